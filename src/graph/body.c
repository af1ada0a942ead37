/* body.c: moving the contents of a body into the graph around it. >>body
 *
 * Called by: passes that decide an If, unroll a Loop. Calls: ir, edit.
 * First everything is prepared beside the graph: a value of the parent for each value of the body,
 * room for the uses, complete nodes. Then the nodes are entered one by one, which cannot fail.
 */
#include "graph_private.h"

typedef struct sbit__inline {
    sbit_graph *body, *graph;
    sbit_value_id *map;       /* by idx in the body: the value in the parent */
    bool *made;               /* by idx in the body: map holds a new value */
    sbit__graph_node **nodes; /* by idx in the body: the new node */
} sbit__inline;

static sbit_status sbit__inline_map_value(sbit__inline *work, uint32_t idx,
                                          const sbit_value_id *inputs, sbit_error *error)
{
    const sbit__graph_value *value = work->body->values[idx];
    uint32_t holders = 0;
    if (value->info.outer.idx != 0) {
        work->map[idx] = value->info.outer;
    } else if (value->info.is_input) {
        for (size_t i = 0; i < work->body->input_count; i++) {
            if (work->body->inputs[i].idx == idx) {
                work->map[idx] = inputs[i];
            }
        }
    } else {
        const char *name = value->info.name;
        sbit__map_find(&work->graph->family->value_names, name, &holders);
        if (holders != 1) { /* not this body alone */
            SBIT__TRY(sbit__graph_unique_name(work->graph, false, name, &name, error));
        }
        SBIT__TRY(
            sbit__graph_new_value(work->graph, name, &value->info.type, &work->map[idx], error));
        work->made[idx] = true;
    }
    return sbit__graph_reserve_uses(work->graph, work->map[idx], (size_t)value->info.use_count + 1,
                                    error);
}

static sbit_status sbit__inline_copy_ids(sbit__inline *work, const sbit_value_id *ids, size_t count,
                                         sbit_value_id **out, sbit_error *error)
{
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(work->graph, count, sizeof(sbit_value_id), &block, error));
    *out = (sbit_value_id *)block;
    for (size_t i = 0; i < count; i++) {
        (*out)[i] = work->map[ids[i].idx]; /* map[0] is none */
    }
    return SBIT_OK;
}

static sbit_status sbit__inline_make_node(sbit__inline *work, uint32_t idx, sbit_error *error)
{
    const sbit__graph_node *old = work->body->nodes[idx];
    sbit__graph_node *node = NULL;
    const char *name = "";
    SBIT__TRY(sbit__graph_new_node(work->graph, &node, error));
    node->alive = false; /* until it is entered */
    const sbit_node_id id = node->info.id;
    node->info = old->info;
    node->info.id = id;
    node->info.name = "";
    SBIT__TRY(
        sbit__inline_copy_ids(work, old->inputs, old->info.input_count, &node->inputs, error));
    SBIT__TRY(
        sbit__inline_copy_ids(work, old->outputs, old->info.output_count, &node->outputs, error));
    node->attrs = old->attrs; /* same arena: taken over */
    node->input_capacity = old->info.input_count;
    node->output_capacity = old->info.output_count;
    node->attr_capacity = old->info.attr_count;
    node->metadata = old->metadata;
    node->metadata_count = old->metadata_count;
    if (old->info.name[0] != '\0') {
        uint32_t holders = 0;
        name = old->info.name;
        sbit__map_find(&work->graph->family->node_names, name, &holders);
        if (holders != 1) {
            SBIT__TRY(sbit__graph_unique_name(work->graph, true, name, &name, error));
        }
        SBIT__TRY(sbit__graph_hold_name(work->graph, true, name, id.idx, error));
    }
    node->info.name = name;
    work->nodes[idx] = node;
    return SBIT_OK;
}

static sbit_status sbit__inline_prepare(sbit__inline *work, const sbit_value_id *inputs,
                                        sbit_error *error)
{
    const sbit_graph *body = work->body;
    for (uint32_t i = 1; i < body->value_count; i++) {
        if (body->values[i]->alive) {
            SBIT__TRY(sbit__inline_map_value(work, i, inputs, error));
        }
    }
    for (uint32_t i = body->first; i != 0; i = body->nodes[i]->next) {
        SBIT__TRY(sbit__inline_make_node(work, i, error));
    }
    return SBIT_OK;
}

static void sbit__inline_undo(sbit__inline *work)
{
    for (uint32_t i = 1; i < work->body->node_count; i++) {
        if (work->nodes[i] != NULL) {
            sbit__graph_release_name(work->graph, true, work->nodes[i]->info.name,
                                     work->nodes[i]->info.id.idx);
        }
    }
    for (uint32_t i = 1; i < work->body->value_count; i++) {
        if (work->made[i]) {
            sbit_graph_erase_value(work->graph, work->map[i]);
        }
    }
}

/* The bodies of a moved node now capture from the parent. */
static void sbit__inline_move_bodies(sbit__inline *work, const sbit__graph_node *node)
{
    sbit_graph *inner = NULL;
    for (size_t b = 0; (inner = sbit_node_body(&node->info, b)) != NULL; b++) {
        inner->parent = work->graph;
        for (uint32_t i = 1; i < inner->value_count; i++) {
            sbit__graph_value *value = inner->values[i];
            if (value->alive && value->info.outer.idx != 0) {
                value->info.outer = work->map[value->info.outer.idx];
                sbit__graph_put_use(work->graph, value->info.outer, node->info.id, i, inner);
            }
        }
    }
}

static void sbit__inline_commit(sbit__inline *work, uint32_t before)
{
    sbit_graph *body = work->body;
    for (uint32_t i = 1; i < body->value_count; i++) {
        sbit__graph_value *old = body->values[i];
        if (!old->alive || !work->made[i]) {
            continue;
        }
        sbit__graph_value *value = work->graph->values[work->map[i].idx];
        value->info.source = old->info.source;
        value->info.is_constant = old->info.is_constant;
        value->info.constant = old->info.constant;
        value->owns_constant = old->owns_constant;
        value->tensor = old->tensor;
        old->owns_constant = false;
    }
    for (uint32_t i = body->first; i != 0; i = body->nodes[i]->next) {
        sbit__inline_move_bodies(work, work->nodes[i]);
        sbit__graph_commit_node(work->graph, work->nodes[i], before);
    }
    sbit__graph_drop_body(body);
    body->first = body->last = 0;
    body->input_count = body->output_count = body->capture_count = 0;
    for (uint32_t i = 1; i < body->value_count; i++) {
        if (work->map[i].idx != 0) {
            sbit__graph_spread_name(work->graph, work->map[i]);
        }
    }
}

static sbit_status sbit__inline_run(sbit__inline *work, const sbit_allocator *allocator,
                                    sbit_node_id before, const sbit_value_id *inputs,
                                    sbit_value_id *outputs, sbit_error *error)
{
    const size_t values = work->body->value_count, nodes = work->body->node_count;
    work->map = (sbit_value_id *)sbit__calloc(allocator, values, sizeof(*work->map));
    work->made = (bool *)sbit__calloc(allocator, values, sizeof(*work->made));
    work->nodes = (sbit__graph_node **)sbit__calloc(allocator, nodes, sizeof(*work->nodes));
    if (work->map == NULL || work->made == NULL || work->nodes == NULL) {
        return sbit__fail_oom(error, values * sizeof(*work->map));
    }
    const sbit_status status = sbit__inline_prepare(work, inputs, error);
    if (status != SBIT_OK) {
        sbit__inline_undo(work);
        return status;
    }
    for (size_t i = 0; i < work->body->output_count; i++) {
        outputs[i] = work->map[work->body->outputs[i].idx];
    }
    sbit__inline_commit(work, before.idx);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_inline_body(sbit_graph *body, sbit_node_id before,
                                             const sbit_value_id *inputs, sbit_value_id *outputs,
                                             sbit_error *error)
{
    const sbit_allocator *allocator = &body->family->ctx->allocator;
    const size_t values = body->value_count, nodes = body->node_count;
    sbit__inline work;
    memset(&work, 0, sizeof(work));
    work.body = body;
    work.graph = body->parent;
    for (size_t i = 0; i < body->input_count; i++) {
        if (!sbit_graph_value_alive(work.graph, inputs[i])) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, body->name,
                              "input %llu of the body '%s' gets no value", (unsigned long long)i,
                              body->name);
        }
    }
    const sbit_status status = sbit__inline_run(&work, allocator, before, inputs, outputs, error);
    sbit__free(allocator, work.map, values * sizeof(*work.map));
    sbit__free(allocator, work.made, values * sizeof(*work.made));
    sbit__free(allocator, (void *)work.nodes, nodes * sizeof(*work.nodes));
    return status;
}
