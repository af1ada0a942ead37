/* blocks.c: parts of the model that one tensor goes into and one comes out of. >>blocks
 *
 * A place is a point of the execution order: all nodes up to it have run. Where a single tensor is
 * alive the model can be cut; between two cuts lies a residual block, or a layer and what follows
 * it without weights of its own (an activation, a pool).
 */
#include "quant_private.h"

typedef struct sbit__blocks {
    const sbit_graph *graph;
    sbit__arena *arena;
    uint32_t nodes;
    uint32_t *place; /* by node: from 1 */
    int32_t
        *alive;    /* [nodes + 2] by place: how many more values are alive than at the one before */
    uint32_t *sum; /* likewise, the sum of their ids */
    bool *layer;   /* [nodes + 2] by place: the node there is one */
} sbit__blocks;

static sbit_status sbit__blocks_value(sbit__blocks *b, const sbit_value_info *value,
                                      sbit_error *error)
{
    const size_t count = sbit_graph_uses(b->graph, value->id, NULL, 0);
    sbit_use *uses = (sbit_use *)sbit__arena_array(b->arena, count + 1, sizeof *uses);
    const uint32_t made = value->producer.idx != 0 ? b->place[value->producer.idx] : 0;
    uint32_t last = made;
    if (uses == NULL) {
        return sbit__fail_oom(error, count * sizeof *uses);
    }
    sbit_graph_uses(b->graph, value->id, uses, count);
    for (size_t i = 0; i < count; i++) { /* outputs of the model live on */
        const uint32_t at = uses[i].node.idx != 0 ? b->place[uses[i].node.idx] : b->nodes + 1;
        last = at > last ? at : last;
    }
    b->alive[made]++;
    b->alive[last]--;
    b->sum[made] += value->id.idx;
    b->sum[last] -= value->id.idx;
    return SBIT_OK;
}

static sbit_status sbit__blocks_scan(sbit__blocks *b, const sbit_unit *units, size_t count,
                                     sbit_error *error)
{
    const sbit_graph *graph = b->graph;
    const size_t limit = sbit_graph_node_limit(graph);
    b->place = (uint32_t *)sbit__arena_array(b->arena, limit + 1, sizeof *b->place);
    b->alive = (int32_t *)sbit__arena_array(b->arena, limit + 2, sizeof *b->alive);
    b->sum = (uint32_t *)sbit__arena_array(b->arena, limit + 2, sizeof *b->sum);
    b->layer = (bool *)sbit__arena_array(b->arena, limit + 2, sizeof *b->layer);
    if (b->place == NULL || b->alive == NULL || b->sum == NULL || b->layer == NULL) {
        return sbit__fail_oom(error, limit * sizeof *b->place);
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        b->place[id.idx] = ++b->nodes;
    }
    for (size_t i = 0; i < count; i++) {
        b->layer[b->place[units[i].node.idx]] = true;
    }
    for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
        const sbit_value_id id = {i};
        if (!sbit_graph_value_alive(graph, id)) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(graph, id);
        if (!value->is_constant && (value->producer.idx != 0 || value->is_input)) {
            SBIT__TRY(sbit__blocks_value(b, value, error));
        }
    }
    return SBIT_OK;
}

/* Blocks with at least `layers` layers, as long as there are so many; what comes behind the last
 * layer of one without a layer of its own belongs to it. */
static void sbit__blocks_cut(const sbit__blocks *b, size_t layers, sbit__block *out, size_t *count)
{
    int32_t alive = 0;
    uint32_t sum = 0, begin = 0, end = 0; /* of the block that grows; end: the last cut */
    sbit_value_id entry = {0}, exit = {0};
    size_t own = 0, since = 0; /* layers of the block up to `end`, behind it */
    *count = 0;
    for (uint32_t place = 0; place <= b->nodes; place++) {
        alive += b->alive[place];
        sum += b->sum[place];
        since += b->layer[place] ? 1 : 0;
        const sbit_value_id id = {sum};
        if (alive != 1 || sbit_graph_value(b->graph, id)->type.kind != SBIT_KIND_TENSOR ||
            sbit_graph_value(b->graph, id)->type.dtype != SBIT_F32) {
            continue;
        }
        if (entry.idx == 0) { /* the first cut */
            begin = place;
            entry = id;
        } else if (since > 0 && own >= layers) {
            sbit__block block = {entry, exit, begin, end, b->place};
            out[(*count)++] = block;
            begin = end;
            entry = exit;
            own = 0;
        }
        own = entry.idx == id.idx ? 0 : own + since;
        since = 0;
        end = place;
        exit = id;
    }
    if (own > 0) {
        sbit__block block = {entry, exit, begin, end, b->place};
        out[(*count)++] = block;
    }
}

SBIT__FN sbit_status sbit__blocks_find(const sbit_quant *quant, const sbit_unit *units,
                                       size_t unit_count, size_t layers, sbit__arena *arena,
                                       sbit__block **out, size_t *count, sbit_error *error)
{
    sbit__blocks b;
    memset(&b, 0, sizeof b);
    b.graph = quant->graph;
    b.arena = arena;
    SBIT__TRY(sbit__blocks_scan(&b, units, unit_count, error));
    *out = (sbit__block *)sbit__arena_array(arena, unit_count + 1, sizeof **out);
    if (*out == NULL) {
        return sbit__fail_oom(error, unit_count * sizeof **out);
    }
    sbit__blocks_cut(&b, layers, *out, count);
    return SBIT_OK;
}

/* >>blocks quantizers as nodes */
/* All node inputs that read x (but the quantizer's own) read y; graph outputs stay float. */
static sbit_status sbit__site_redirect(sbit_graph *graph, sbit__arena *arena, sbit_value_id x,
                                       sbit_value_id y, sbit_node_id except, sbit_error *error)
{
    const size_t count = sbit_graph_uses(graph, x, NULL, 0);
    sbit_use *uses = (sbit_use *)sbit__arena_array(arena, count + 1, sizeof *uses);
    if (uses == NULL) {
        return sbit__fail_oom(error, count * sizeof *uses);
    }
    sbit_graph_uses(graph, x, uses, count);
    for (size_t i = 0; i < count; i++) {
        if (uses[i].node.idx != 0 && uses[i].body == NULL && uses[i].node.idx != except.idx) {
            SBIT__TRY(sbit_graph_set_node_input(graph, uses[i].node, uses[i].index, y, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__site_insert(sbit_graph *graph, const sbit__site *site,
                                       const sbit__external *functions, sbit_value_id *inputs,
                                       size_t input_count, sbit__arena *arena, sbit_error *error)
{
    const sbit_value_info *info = sbit_graph_value(graph, site->value);
    const sbit_type type = info->type;
    const sbit_attr attr = sbit__external_attr(functions);
    sbit_value_id y = {0};
    sbit_node_id node = {0};
    sbit_node_desc desc;
    char name[200];
    snprintf(name, sizeof name, "%.180s_quantized", info->name);
    memset(&desc, 0, sizeof desc);
    desc.before =
        info->producer.idx == 0 ? sbit_graph_first(graph) : sbit_graph_next(graph, info->producer);
    SBIT__TRY(sbit_graph_add_value(graph, name, &type, &y, error));
    inputs[0] = site->value;
    desc.op_type = "External";
    desc.domain = "sbit";
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = &y;
    desc.output_count = 1;
    desc.attrs = &attr;
    desc.attr_count = 1;
    SBIT__TRY(sbit_graph_add_node(graph, &desc, &node, error));
    if (site->all_uses) {
        return sbit__site_redirect(graph, arena, site->value, y, node, error);
    }
    for (const sbit__site_use *use = site->uses; use != NULL; use = use->next) {
        SBIT__TRY(sbit_graph_set_node_input(graph, use->node, use->input, y, error));
    }
    return SBIT_OK;
}
