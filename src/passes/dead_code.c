/* dead_code.c: what no output needs is removed; weights that are inputs become constants.
 * >>pass-dead-code
 */
#include "passes_private.h"

/* >>dead_code. Nodes that draw random numbers, and operators that nobody here knows (they may have
 * effects besides their outputs), stay. So do those with such a node in a body. */

static bool sbit__dead_keeps(const sbit_graph *graph, const sbit_node *node)
{
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, node, &opset);
    if (row == NULL || (row->flags & SBIT_OP_RANDOM) != 0) {
        return true;
    }
    const sbit_graph *body = NULL;
    for (size_t b = 0; (body = sbit_node_body(node, b)) != NULL; b++) {
        for (sbit_node_id id = sbit_graph_first(body); id.idx != 0;
             id = sbit_graph_next(body, id)) {
            if (sbit__dead_keeps(body, sbit_graph_node(body, id))) {
                return true;
            }
        }
    }
    return false;
}

static bool sbit__dead_used(const sbit_graph *graph, const sbit_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        if (sbit__output_used(graph, node, i)) {
            return true;
        }
    }
    return false;
}

static sbit_status sbit__dead_nodes(sbit_graph *graph, sbit__arena *arena, int64_t *changes,
                                    sbit_error *error)
{
    sbit_node_id *ids = NULL;
    size_t count = 0;
    SBIT__TRY(sbit__node_list(graph, arena, &ids, &count, error));
    for (size_t i = count; i-- > 0;) {
        const sbit_node *node = sbit_graph_node(graph, ids[i]);
        if (!sbit__dead_used(graph, node) && !sbit__dead_keeps(graph, node)) {
            sbit__erase_unused(graph, node);
            ++*changes;
        }
    }
    for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
        sbit_value_id id;
        id.idx = i;
        sbit__erase_dead_value(graph, id);
    }
    return SBIT_OK;
}

static sbit_status sbit__dead_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                  int64_t *changes, sbit_error *error)
{
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    (void)desc;
    sbit__arena_init(&arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    status = sbit__dead_nodes(graph, &arena, changes, error);
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN const sbit_pass_row *sbit__pass_dead_code(void)
{
    static const sbit_pass_row row = {
        {"dead_code", "removes nodes and constants that no output needs", 0, NULL, 0},
        false,
        sbit__dead_run};
    return &row;
}

/* >>weights_as_constants. Exporters used to list every initializer among the inputs. Before IR 4
 * they had to, so there it says nothing; since then it makes a default that the caller may replace,
 * and nothing can be computed from it ahead of time. With fix_defaults those that only serve as
 * weight, bias or normalization parameter (or nothing), and are declared with the default's own
 * shape, become constants; any other stays an input. */

static bool sbit__weight_place(const sbit_graph *graph, const sbit_node *node, uint32_t index)
{
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, node, &opset);
    if (sbit__is_op(node, "BatchNormalization") || sbit__is_op(node, "InstanceNormalization")) {
        return index >= 1;
    }
    return row != NULL && row->quant != NULL &&
           ((int32_t)index == row->quant->weight || (int32_t)index == row->quant->weight2 ||
            (int32_t)index == row->quant->bias) &&
           index != 0;
}

static bool sbit__weight_only(const sbit_graph *graph, sbit_value_id id, sbit__arena *arena,
                              bool *ok)
{
    const size_t count = sbit_graph_uses(graph, id, NULL, 0);
    sbit_use *uses = (sbit_use *)sbit__arena_array(arena, count + 1, sizeof *uses);
    *ok = uses != NULL;
    if (!*ok) {
        return false;
    }
    (void)sbit_graph_uses(graph, id, uses, count);
    for (size_t i = 0; i < count; i++) {
        if (uses[i].node.idx == 0 || uses[i].body != NULL ||
            !sbit__weight_place(graph, sbit_graph_node(graph, uses[i].node), uses[i].index)) {
            return false;
        }
    }
    return true;
}

/* The declared shape leaves the default no choice. */
static bool sbit__weight_shape(const sbit_value_info *info)
{
    bool same = info->type.rank == info->constant.rank && info->type.dtype == info->constant.dtype;
    for (int32_t i = 0; same && i < info->type.rank; i++) {
        const sbit_dim dim = info->type.dims[i];
        same = sbit__dim_known(dim) && dim.value == info->constant.dims[i];
    }
    return same;
}

static sbit_status sbit__weights_demote(sbit_graph *graph, bool fix_defaults, sbit__arena *arena,
                                        int64_t *changes, sbit_error *error)
{
    for (size_t i = sbit_graph_input_count(graph); i-- > 0;) {
        const sbit_value_id id = sbit_graph_input(graph, i);
        const sbit_value_info *info = sbit_graph_value(graph, id);
        bool ok = true;
        const bool takes =
            info->is_constant || (fix_defaults && info->has_default && sbit__weight_shape(info) &&
                                  sbit__weight_only(graph, id, arena, &ok));
        if (!ok) {
            return sbit__fail_oom(error, sizeof(sbit_use));
        }
        if (takes) {
            SBIT__TRY(sbit_graph_set_input(graph, id, false, error));
            ++*changes;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__weights_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                     int64_t *changes, sbit_error *error)
{
    sbit__arena arena;
    if (sbit_graph_parent(graph) != NULL) {
        return SBIT_OK;
    }
    sbit__arena_init(&arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    const sbit_status status =
        sbit__weights_demote(graph, desc->fix_defaults, &arena, changes, error);
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN const sbit_pass_row *sbit__pass_weights_as_constants(void)
{
    static const sbit_pass_row row = {
        {"weights_as_constants",
         "initializers that are inputs become constants: all before IR 4, weights if asked", 0,
         NULL, 0},
        false,
        sbit__weights_run};
    return &row;
}
