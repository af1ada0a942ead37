/* cost.c: multiply-accumulates and parameters of a graph. >>cost
 *
 * Called by: users, sparse (pruning ratios), tools. Calls: ops (row->macs).
 * Works on the types as they stand in the graph; unknown dimensions count as 1.
 */
#include "infer_private.h"

static sbit_type sbit__cost_type(const sbit_type *type, bool *open)
{
    sbit_type numbers = *type;
    *open = *open || type->rank < 0;
    for (int32_t i = 0; i < SBIT_MAX_RANK; i++) {
        if (i >= type->rank || !sbit__dim_known(type->dims[i])) {
            numbers.dims[i] = sbit__dim(1);
            *open = *open || i < type->rank;
        }
    }
    return numbers;
}

typedef struct sbit__cost_arrays {
    bool open;        /* some dim is not known */
    sbit_type *types; /* of the inputs, then of the outputs */
    const sbit_type **in_type;
    sbit_type **out_type;
    const sbit_tensor **in;
} sbit__cost_arrays;

static bool sbit__cost_gather(const sbit_graph *graph, const sbit_node *node, sbit__arena *arena,
                              sbit__cost_arrays *a)
{
    const size_t ins = node->input_count, outs = node->output_count;
    a->types = (sbit_type *)sbit__arena_array(arena, ins + outs + 1, sizeof(sbit_type));
    a->in_type = (const sbit_type **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    a->out_type = (sbit_type **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    a->in = (const sbit_tensor **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    if (a->types == NULL || a->in_type == NULL || a->out_type == NULL || a->in == NULL) {
        return false;
    }
    a->open = false;
    for (size_t i = 0; i < ins + outs; i++) {
        const sbit_value_id id = i < ins ? node->inputs[i] : node->outputs[i - ins];
        const sbit_value_info *info = id.idx != 0 ? sbit_graph_value(graph, id) : NULL;
        if (info == NULL) {
            continue;
        }
        a->types[i] = sbit__cost_type(&info->type, &a->open);
        if (i >= ins) {
            a->out_type[i - ins] = &a->types[i];
            continue;
        }
        if (info->is_constant) {
            a->types[i] = sbit__type_of_tensor(&info->constant);
            a->in[i] = &info->constant;
        }
        a->in_type[i] = &a->types[i];
    }
    return true;
}

/* *open: the count holds dims that are not known. */
static int64_t sbit__cost_macs(const sbit_graph *graph, const sbit_node *node, sbit__arena *arena,
                               bool *open, bool *ok)
{
    sbit__cost_arrays arrays;
    sbit_op_call call;
    memset(&call, 0, sizeof call);
    *open = false;
    call.row = sbit__op_row(graph, node, &call.opset);
    if (call.row == NULL || call.row->macs == NULL) {
        return 0;
    }
    if (!sbit__cost_gather(graph, node, arena, &arrays)) {
        *ok = false;
        return 0;
    }
    call.ctx = sbit_graph_ctx(graph);
    call.kernels = sbit__kernels(call.ctx);
    call.graph = graph;
    call.node = node;
    call.input_count = (int32_t)node->input_count;
    call.output_count = (int32_t)node->output_count;
    call.in_type = arrays.in_type;
    call.out_type = arrays.out_type;
    call.in = arrays.in;
    *open = arrays.open;
    return call.row->macs(&call);
}

SPARSEBIT_API int64_t sbit_graph_node_macs(const sbit_graph *graph, sbit_node_id node)
{
    sbit__arena arena;
    int64_t macs = 0;
    bool open = false, ok = true;
    sbit__arena_init(&arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    macs = sbit__cost_macs(graph, sbit_graph_node(graph, node), &arena, &open, &ok);
    sbit__arena_deinit(&arena);
    return ok ? macs : 0;
}

typedef struct sbit__cost_sum {
    sbit__arena arena;
    sbit_graph_cost cost;
} sbit__cost_sum;

static sbit_status sbit__cost_add(const sbit_graph *graph, void *user)
{
    sbit__cost_sum *sum = (sbit__cost_sum *)user;
    const uint32_t limit = sbit_graph_value_limit(graph);
    bool ok = true;
    for (uint32_t i = 1; i < limit; i++) {
        sbit_value_id id;
        const sbit_value_info *info = NULL;
        id.idx = i;
        info = sbit_graph_value_alive(graph, id) ? sbit_graph_value(graph, id) : NULL;
        if (info != NULL && (info->is_constant || info->has_default) && info->use_count > 0) {
            sum->cost.params += sbit_tensor_count(&info->constant);
            sum->cost.weight_bytes += sbit_tensor_bytes(&info->constant);
        }
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && ok;
         id = sbit_graph_next(graph, id)) {
        sum->cost.node_count++;
        bool open = false;
        sum->cost.macs +=
            sbit__cost_macs(graph, sbit_graph_node(graph, id), &sum->arena, &open, &ok);
        sum->cost.open_nodes += open ? 1 : 0;
    }
    return ok ? SBIT_OK : SBIT_ERR_OUT_OF_MEMORY;
}

SPARSEBIT_API sbit_status sbit_graph_cost_of(const sbit_graph *graph, sbit_graph_cost *out,
                                             sbit_error *error)
{
    sbit__cost_sum sum;
    memset(&sum, 0, sizeof sum);
    sbit__arena_init(&sum.arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    const sbit_status status = sbit_graph_each(graph, sbit__cost_add, &sum);
    sbit__arena_deinit(&sum.arena);
    if (status != SBIT_OK) {
        return sbit__fail_oom(error, sizeof(sbit_type));
    }
    *out = sum.cost;
    return SBIT_OK;
}
