/* recompute.c: gradients that compute values of the forward pass again instead of keeping them.
 * >>recompute
 *
 * Called by: train. Calls: graph, ops (row->flags).
 * The forward nodes are cut into segments. What crosses a cut is kept; what else the gradients read
 * of a segment is made again by copies of its nodes, which stand in front of the first gradient
 * that reads it (Chen et al. 2016). That is a matter of the graph alone: the planner frees the
 * first values early because nothing reads them any more. Copies compute the same bits; the last
 * segment is not copied, because its gradients come at once. LstmGrad, which makes its gates again
 * in any case, keeps those of a part of the steps only.
 */
#include "grad_private.h"

typedef struct sbit__recompute {
    sbit_graph *graph;
    sbit__arena arena;
    sbit_node_id *order; /* [count] the forward nodes */
    size_t count;
    uint32_t value_limit;
    size_t *made;           /* by value: 1 + the place in order of the node that makes it; 0: none */
    size_t *read;           /* by value: 1 + the place of the last forward node that reads it */
    size_t *segment;        /* by place in order */
    bool *kept;             /* by value: it crosses a cut, or no node that can be copied makes it */
    sbit_value_id *again;   /* by value: its copy; none yet */
    bool *pending;          /* by place in order: to be copied */
} sbit__recompute;

static bool sbit__recompute_can(const sbit_graph *graph, const sbit_node *node)
{
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, node, &opset);
    const uint32_t never = SBIT_OP_RANDOM | SBIT_OP_BODY | SBIT_OP_DYNAMIC | SBIT_OP_KINDS;
    return row != NULL && (row->flags & never) == 0;
}

static bool sbit__recompute_only_shape(const sbit_graph *graph, const sbit_node *node)
{
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, node, &opset);
    return row != NULL && (row->flags & SBIT_OP_SHAPE_ONLY) != 0;
}

/* Bytes of a value for one sample: dims that are not known count as 1. */
static double sbit__recompute_bytes(const sbit_graph *graph, uint32_t idx)
{
    const sbit_value_id id = {idx};
    const sbit_type *type = &sbit_graph_value(graph, id)->type;
    double bytes = 4.0;
    for (int32_t i = 0; type->kind == SBIT_KIND_TENSOR && i < type->rank; i++) {
        bytes *= sbit__dim_known(type->dims[i]) ? (double)type->dims[i].value : 1.0;
    }
    return bytes;
}

static sbit_status sbit__recompute_init(sbit__recompute *r, uint32_t forward, sbit_error *error)
{
    const size_t limit = sbit_graph_value_limit(r->graph);
    r->value_limit = (uint32_t)limit;
    r->order = (sbit_node_id *)sbit__arena_array(&r->arena, forward + 1, sizeof *r->order);
    r->segment = (size_t *)sbit__arena_array(&r->arena, forward + 1, sizeof *r->segment);
    r->pending = (bool *)sbit__arena_array(&r->arena, forward + 1, sizeof *r->pending);
    r->made = (size_t *)sbit__arena_array(&r->arena, limit, sizeof *r->made);
    r->read = (size_t *)sbit__arena_array(&r->arena, limit, sizeof *r->read);
    r->kept = (bool *)sbit__arena_array(&r->arena, limit, sizeof *r->kept);
    r->again = (sbit_value_id *)sbit__arena_array(&r->arena, limit, sizeof *r->again);
    if (r->order == NULL || r->segment == NULL || r->pending == NULL || r->made == NULL ||
        r->read == NULL || r->kept == NULL || r->again == NULL) {
        return sbit__fail_oom(error, limit * sizeof *r->made);
    }
    for (sbit_node_id id = sbit_graph_first(r->graph); id.idx != 0;
         id = sbit_graph_next(r->graph, id)) {
        const sbit_node *node = sbit_graph_node(r->graph, id);
        if (id.idx >= forward) {
            continue;
        }
        r->order[r->count++] = id;
        for (size_t i = 0; i < node->input_count; i++) {
            r->read[node->inputs[i].idx] = r->count;
        }
        for (size_t i = 0; i < node->output_count; i++) {
            r->made[node->outputs[i].idx] = r->count;
            r->kept[node->outputs[i].idx] = !sbit__recompute_can(r->graph, node);
        }
    }
    return SBIT_OK;
}

/* Cuts behind `every` nodes or up to half as many: where the fewest bytes cross. */
static sbit_status sbit__recompute_cut(sbit__recompute *r, size_t every, sbit_error *error)
{
    double *cross = (double *)sbit__arena_array(&r->arena, r->count + 2, sizeof *cross);
    size_t begin = 0, segment = 0;
    if (cross == NULL) {
        return sbit__fail_oom(error, r->count * sizeof *cross);
    }
    for (uint32_t v = 1; v < r->value_limit; v++) { /* made by node made - 1, read by read - 1 */
        if (r->made[v] > 0 && r->read[v] > r->made[v]) {
            cross[r->made[v]] += sbit__recompute_bytes(r->graph, v);
            cross[r->read[v]] -= sbit__recompute_bytes(r->graph, v);
        }
    }
    for (size_t i = 1; i <= r->count; i++) {
        cross[i] += cross[i - 1];
    }
    for (; begin < r->count; segment++) {
        size_t end = begin + every < r->count ? begin + every : r->count;
        for (size_t c = end; end < r->count && c > begin && 2 * (c - begin) >= every; c--) {
            end = cross[c] < cross[end] ? c : end;
        }
        for (; begin < end; begin++) {
            r->segment[begin] = segment;
        }
    }
    for (uint32_t v = 1; v < r->value_limit; v++) {
        const size_t made = r->made[v], read = r->read[v];
        r->kept[v] = r->kept[v] || made == 0 || r->segment[made - 1] + 1 == segment ||
                     (read > 0 && r->segment[read - 1] > r->segment[made - 1]);
    }
    return SBIT_OK;
}

/* Marks the nodes that have to run again for the value of the node at `last`; they lie in one
 * segment. Returns the first place of that segment. */
static size_t sbit__recompute_need(sbit__recompute *r, size_t last)
{
    size_t first = last + 1;
    r->pending[last] = true;
    while (first > 0 && r->segment[first - 1] == r->segment[last]) {
        const sbit_node *node = sbit_graph_node(r->graph, r->order[--first]);
        for (size_t k = 0; r->pending[first] && k < node->input_count; k++) {
            const uint32_t in = node->inputs[k].idx;
            if (in != 0 && !r->kept[in] && r->again[in].idx == 0) {
                r->pending[r->made[in] - 1] = true;
            }
        }
    }
    return first;
}

/* The same node once more, in front of `before`. */
static sbit_status sbit__recompute_copy(sbit__recompute *r, sbit_node_id id, sbit_node_id before,
                                        sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(r->graph, id);
    const size_t ins = node->input_count, outs = node->output_count;
    sbit_value_id *ids = (sbit_value_id *)sbit__arena_array(&r->arena, ins + outs + 1, sizeof *ids);
    sbit_node_desc desc;
    sbit_node_id made;
    if (ids == NULL) {
        return sbit__fail_oom(error, (ins + outs) * sizeof *ids);
    }
    for (size_t i = 0; i < ins; i++) {
        const sbit_value_id again = r->again[node->inputs[i].idx];
        ids[i] = again.idx != 0 ? again : node->inputs[i];
    }
    for (size_t i = 0; i < outs; i++) {
        const sbit_value_id old = sbit_graph_node(r->graph, id)->outputs[i];
        if (old.idx != 0) {
            const sbit_type type = sbit_graph_value(r->graph, old)->type;
            SBIT__TRY(sbit_graph_add_value(r->graph, "again", &type, &ids[ins + i], error));
            r->again[old.idx] = ids[ins + i];
        }
    }
    node = sbit_graph_node(r->graph, id);
    memset(&desc, 0, sizeof desc);
    desc.op_type = node->op_type;
    desc.domain = node->domain;
    desc.name = node->name;
    desc.inputs = ids;
    desc.input_count = ins;
    desc.outputs = ids + ins;
    desc.output_count = outs;
    desc.attrs = node->attrs;
    desc.attr_count = node->attr_count;
    desc.before = before;
    return sbit_graph_add_node(r->graph, &desc, &made, error);
}

/* A gradient's node: what it reads of a segment is made in front of it and read from there. */
static sbit_status sbit__recompute_for(sbit__recompute *r, sbit_node_id id, sbit_error *error)
{
    const size_t count = sbit_graph_node(r->graph, id)->input_count;
    for (size_t i = 0; i < count; i++) {
        const sbit_value_id in = sbit_graph_node(r->graph, id)->inputs[i];
        if (in.idx == 0 || in.idx >= r->value_limit || r->kept[in.idx]) {
            continue;
        }
        const size_t last = r->made[in.idx] - 1;
        size_t k = r->again[in.idx].idx == 0 ? sbit__recompute_need(r, last) : last + 1;
        for (; k <= last; k++) {
            if (r->pending[k]) {
                r->pending[k] = false;
                SBIT__TRY(sbit__recompute_copy(r, r->order[k], id, error));
            }
        }
        SBIT__TRY(sbit_graph_set_node_input(r->graph, id, i, r->again[in.idx], error));
    }
    return SBIT_OK;
}

static sbit_status sbit__recompute_run(sbit__recompute *r, uint32_t forward, size_t every,
                                       sbit_error *error)
{
    SBIT__TRY(sbit__recompute_init(r, forward, error));
    SBIT__TRY(sbit__recompute_cut(r, every, error));
    for (size_t i = 0; i < sbit_graph_output_count(r->graph); i++) {
        r->kept[sbit_graph_output(r->graph, i).idx] = true;
    }
    for (sbit_node_id id = sbit_graph_first(r->graph); id.idx != 0;
         id = sbit_graph_next(r->graph, id)) {
        if (sbit__streq(sbit_graph_node(r->graph, id)->op_type, "LstmGrad")) { /* its gates, too */
            const sbit_attr again = sbit__attr_int("again", 1);
            SBIT__TRY(sbit_graph_set_attr(r->graph, id, &again, error));
        }
        if (id.idx >= forward &&
            !sbit__recompute_only_shape(r->graph, sbit_graph_node(r->graph, id))) {
            SBIT__TRY(sbit__recompute_for(r, id, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__grad_recompute(sbit_graph *graph, uint32_t forward, size_t every,
                                          sbit_error *error)
{
    sbit__recompute r;
    memset(&r, 0, sizeof r);
    r.graph = graph;
    sbit__arena_init(&r.arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    const sbit_status status = sbit__recompute_run(&r, forward, every, error);
    sbit__arena_deinit(&r.arena);
    return status;
}
