/* infer.c: types and shapes of all values, with symbols and small integer values followed. >>infer
 *
 * Called by: users, passes, exec. Calls: ops (row->infer).
 * Does: walk the nodes in order, give each row what is known of its inputs, accept what it says of
 * its outputs. Does not: know any operator.
 * Integer tensors of up to 64 elements (shapes, axes, pads) are followed by value: each element is
 * a number, a symbol or unknown. When all are numbers the tensor counts as a constant, so that
 * Shape - Gather - Concat - Reshape chains come out as numbers or symbols.
 */
#include "infer_private.h"

/* One call of a row; call.session points here. */
typedef struct sbit__infer_frame {
    sbit__infer *state;
    const sbit_node *node;
    uint64_t bodies_seen; /* bit b: the row asked for body b */
    bool out_of_memory;   /* in set_elems, which cannot fail */
} sbit__infer_frame;

static sbit_status sbit__infer_oom(const sbit__infer *state, sbit_error *error)
{
    return sbit__fail_oom(error, (size_t)sbit_graph_value_limit(state->graph) * sizeof(sbit_type));
}

static bool sbit__type_is_unknown(const sbit_type *type)
{
    return type->kind == SBIT_KIND_TENSOR && type->dtype == SBIT_UNDEFINED && type->rank < 0;
}

/* >>values */

SBIT__FN sbit_status sbit__infer_begin(sbit__infer *state, const sbit_graph *graph,
                                       const sbit__infer *outer, sbit__arena *arena,
                                       sbit__arena *arrays, sbit_error *error)
{
    const uint32_t limit = sbit_graph_value_limit(graph);
    memset(state, 0, sizeof *state);
    state->ctx = sbit_graph_ctx(graph);
    state->graph = graph;
    state->outer = outer;
    state->arena = arena;
    state->body_nodes = outer != NULL ? outer->body_nodes : &state->own_body_nodes;
    state->types = (sbit_type **)sbit__arena_array(arrays, limit, sizeof(sbit_type *));
    state->known = (const sbit_tensor **)sbit__arena_array(arrays, limit, sizeof(void *));
    state->elems = (const sbit_dim **)sbit__arena_array(arrays, limit, sizeof(void *));
    state->elem_counts = (int64_t *)sbit__arena_array(arrays, limit, sizeof(int64_t));
    return state->types == NULL || state->known == NULL || state->elems == NULL ||
                   state->elem_counts == NULL
               ? sbit__infer_oom(state, error)
               : SBIT_OK;
}

SBIT__FN sbit_status sbit__infer_init(sbit__infer *state, const sbit_graph *graph,
                                      const sbit__infer *outer, sbit__arena *arena,
                                      sbit_error *error)
{
    const uint32_t limit = sbit_graph_value_limit(graph);
    sbit_type *types = (sbit_type *)sbit__arena_array(arena, limit, sizeof(sbit_type));
    SBIT__TRY(sbit__infer_begin(state, graph, outer, arena, arena, error));
    if (types == NULL) {
        return sbit__infer_oom(state, error);
    }
    for (uint32_t i = 0; i < limit; i++) {
        sbit_value_id id;
        const sbit_value_info *info = NULL;
        id.idx = i;
        types[i] = sbit__type_unknown();
        state->types[i] = &types[i];
        if (i == 0 || !sbit_graph_value_alive(graph, id)) {
            continue;
        }
        info = sbit_graph_value(graph, id);
        if (info->is_constant) {
            types[i] = sbit__type_of_tensor(&info->constant);
            const bool freed = info->constant.data == NULL && sbit_tensor_count(&info->constant) > 0;
            state->known[i] = freed ? NULL : &info->constant;
        } else if (info->outer.idx != 0 && outer != NULL) {
            if (outer->types[info->outer.idx] != NULL) {
                types[i] = *outer->types[info->outer.idx];
            }
            state->known[i] = outer->known[info->outer.idx];
            state->elems[i] = outer->elems[info->outer.idx];
            state->elem_counts[i] = outer->elem_counts[info->outer.idx];
        } else if (info->producer.idx == 0) {
            types[i] = info->type;
        }
    }
    return SBIT_OK;
}

static bool sbit__infer_followed(const sbit_tensor *tensor)
{
    return (tensor->dtype == SBIT_I64 || tensor->dtype == SBIT_I32) && tensor->rank <= 1 &&
           sbit_tensor_count(tensor) <= SBIT__INFER_MAX_ELEMS;
}

/* The followed elements of a value; those of known data are made on the first call. */
static const sbit_dim *sbit__infer_elems(sbit__infer *state, sbit_value_id id, bool *ok)
{
    const sbit_tensor *tensor = state->known[id.idx];
    if (state->elems[id.idx] == NULL && tensor != NULL && sbit__infer_followed(tensor)) {
        const int64_t count = sbit_tensor_count(tensor);
        sbit_dim *elems =
            (sbit_dim *)sbit__arena_array(state->arena, (size_t)count + 1, sizeof(sbit_dim));
        *ok = *ok && elems != NULL;
        for (int64_t i = 0; elems != NULL && i < count; i++) {
            elems[i] = sbit__dim(sbit__tensor_i64_at(tensor, i));
        }
        state->elems[id.idx] = elems;
        state->elem_counts[id.idx] = count;
    }
    return state->elems[id.idx];
}

SBIT__FN const sbit_tensor *sbit__infer_known(sbit__infer *state, sbit_value_id id, bool *ok)
{
    const sbit_dim *elems = state->elems[id.idx];
    const sbit_type *type = state->types[id.idx];
    const int64_t count = state->elem_counts[id.idx];
    sbit_tensor *tensor = NULL;
    if (state->known[id.idx] != NULL || elems == NULL || type->kind != SBIT_KIND_TENSOR ||
        (type->dtype != SBIT_I64 && type->dtype != SBIT_I32) || type->rank < 0 || type->rank > 1) {
        return state->known[id.idx];
    }
    for (int64_t i = 0; i < count; i++) {
        if (!sbit__dim_known(elems[i])) {
            return NULL;
        }
    }
    tensor = (sbit_tensor *)sbit__arena_alloc(state->arena, sizeof *tensor);
    if (tensor != NULL) {
        tensor->dtype = type->dtype;
        tensor->rank = type->rank;
        tensor->dims[0] = type->rank == 1 ? count : 0;
        tensor->data = sbit__arena_array(state->arena, (size_t)count + 1, sizeof(int64_t));
    }
    if (tensor == NULL || tensor->data == NULL) {
        *ok = false;
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        if (type->dtype == SBIT_I64) {
            ((int64_t *)tensor->data)[i] = elems[i].value;
        } else {
            ((int32_t *)tensor->data)[i] = (int32_t)elems[i].value;
        }
    }
    state->known[id.idx] = tensor;
    return tensor;
}

static void sbit__infer_set_elems(const sbit_op_call *call, int32_t output, const sbit_dim *elems,
                                  int64_t count)
{
    sbit__infer_frame *frame = (sbit__infer_frame *)call->session;
    sbit__infer *state = frame->state;
    sbit_value_id id;
    sbit_dim *copy = NULL;
    if (output < 0 || (size_t)output >= frame->node->output_count || count < 0 ||
        count > SBIT__INFER_MAX_ELEMS) {
        return;
    }
    id = frame->node->outputs[output];
    if (id.idx == 0) {
        return;
    }
    copy = (sbit_dim *)sbit__arena_array(state->arena, (size_t)count + 1, sizeof(sbit_dim));
    if (copy == NULL) {
        frame->out_of_memory = true;
        return;
    }
    memcpy(copy, elems, (size_t)count * sizeof *copy);
    state->elems[id.idx] = copy;
    state->elem_counts[id.idx] = count;
}

/* >>declared types as hints */

/* True if both say the same wherever both say something. */
static bool sbit__infer_agrees(const sbit_type *computed, const sbit_type *declared)
{
    if (computed->kind != declared->kind ||
        (computed->dtype != declared->dtype && computed->dtype != SBIT_UNDEFINED &&
         declared->dtype != SBIT_UNDEFINED)) {
        return false;
    }
    if (computed->rank < 0 || declared->rank < 0) {
        return true;
    }
    if (computed->rank != declared->rank) {
        return false;
    }
    for (int32_t i = 0; i < computed->rank; i++) {
        const sbit_dim a = computed->dims[i], b = declared->dims[i];
        if (sbit__dim_known(a) && sbit__dim_known(b) && a.value != b.value) {
            return false;
        }
    }
    return true;
}

/* A declared type fills what was not computed. Where the two contradict, the declared one is out
 * of date: the computed one wins, with a warning. A computed symbol also wins over a declared
 * number, which may come from the example that a model was traced with. */
static void sbit__infer_hint(sbit__infer *state, const char *name, const sbit_type *declared,
                             sbit_type *computed)
{
    if (sbit__type_is_unknown(declared)) {
        return;
    }
    if (sbit__type_is_unknown(computed)) {
        *computed = *declared;
        return;
    }
    if (!sbit__infer_agrees(computed, declared)) {
        char a[128], b[128];
        sbit__type_describe(state->graph, declared, a, sizeof a);
        sbit__type_describe(state->graph, computed, b, sizeof b);
        sbit__log(state->ctx, SBIT_LOG_WARNING,
                  "value '%s' is declared as %s, but computed as %s, which is used", name, a, b);
        return;
    }
    if (computed->dtype == SBIT_UNDEFINED) {
        computed->dtype = declared->dtype;
    }
    if (computed->rank < 0) {
        computed->rank = declared->rank;
        memcpy(computed->dims, declared->dims, sizeof computed->dims);
        return;
    }
    for (int32_t i = 0; i < computed->rank && declared->rank == computed->rank; i++) {
        if (computed->dims[i].symbol == SBIT_SYMBOL_ANY) {
            computed->dims[i] = declared->dims[i];
        }
    }
}

/* >>bodies */

/* The same graph, writable: the node owns it. *index: which of its bodies. */
static sbit_graph *sbit__infer_owned_body(const sbit_node *node, const sbit_graph *body,
                                          size_t *index)
{
    sbit_graph *own = NULL;
    *index = 0;
    while ((own = sbit_node_body(node, *index)) != NULL && own != body) {
        ++*index;
    }
    return own;
}

static sbit_status sbit__infer_report(const sbit__infer *state, sbit_graph *graph,
                                      sbit_error *error)
{
    sbit__infer_results *results = state->results;
    const size_t limit = sbit_graph_value_limit(graph);
    sbit_type **types = &results->types[graph->index];
    if (*types == NULL) {
        *types = (sbit_type *)sbit__arena_array(results->arena, limit, sizeof **types);
    }
    if (*types == NULL) {
        return sbit__infer_oom(state, error);
    }
    for (size_t i = 0; i < limit; i++) {
        (*types)[i] = *state->types[i];
    }
    results->graphs[graph->index] = graph;
    return SBIT_OK;
}

/* A loop is looked at until its types settle, and a loop inside of it as often for each of these
 * times: what that takes is limited. */
static sbit_status sbit__infer_spend(const sbit_op_call *call, const sbit__infer *state,
                                     const sbit_graph *body, sbit_error *error)
{
    *state->body_nodes += (int64_t)body->node_count + 1;
    if (*state->body_nodes <= call->ctx->max_body_nodes) {
        return SBIT_OK;
    }
    return sbit_op_fail(call, SBIT_ERR_LIMIT, error,
                        "inferring types took more than %lld steps in bodies of nested loops; "
                        "sbit_ctx_desc.max_body_nodes allows more",
                        (long long)call->ctx->max_body_nodes);
}

static sbit_status sbit__infer_body_in(const sbit_op_call *call, sbit_graph *body,
                                       const sbit_type *const *inputs, sbit_type *outputs,
                                       sbit__arena *arena, sbit_error *error)
{
    const sbit__infer *outer = ((const sbit__infer_frame *)call->session)->state;
    sbit__infer child;
    SBIT__TRY(sbit__infer_init(&child, body, outer, arena, error));
    child.results = outer->results;
    for (size_t i = 0; inputs != NULL && i < sbit_graph_input_count(body); i++) {
        const sbit_value_id id = sbit_graph_input(body, i);
        if (inputs[i] != NULL) {
            const sbit_type declared = *child.types[id.idx];
            *child.types[id.idx] = *inputs[i];
            if (child.results != NULL) {
                sbit__infer_hint(&child, sbit_graph_value(body, id)->name, &declared,
                                 child.types[id.idx]);
            }
        }
    }
    SBIT__TRY(sbit__infer_run(&child, error));
    for (size_t i = 0; outputs != NULL && i < sbit_graph_output_count(body); i++) {
        outputs[i] = *child.types[sbit_graph_output(body, i).idx];
    }
    return child.results != NULL ? sbit__infer_report(&child, body, error) : SBIT_OK;
}

static sbit_status sbit__infer_body(const sbit_op_call *call, const sbit_graph *body,
                                    const sbit_type *const *inputs, sbit_type *outputs,
                                    sbit_error *error)
{
    sbit__infer_frame *frame = (sbit__infer_frame *)call->session;
    sbit__arena arena;
    size_t index = 0;
    sbit_graph *writable = sbit__infer_owned_body(frame->node, body, &index);
    if (writable == NULL) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_ARGUMENT, error,
                            "the graph is not a body of this node");
    }
    SBIT__TRY(sbit__infer_spend(call, frame->state, body, error));
    sbit__arena_init(&arena, &call->ctx->allocator); /* nothing of a look at a body stays */
    const sbit_status status = sbit__infer_body_in(call, writable, inputs, outputs, &arena, error);
    sbit__arena_deinit(&arena);
    if (status == SBIT_OK && index < 64) {
        frame->bodies_seen |= (uint64_t)1 << index;
    }
    return status;
}

/* A body that does not fit the shapes at hand keeps its types: a branch that is never taken. */
static sbit_status sbit__infer_other_body(const sbit_op_call *call, const sbit_graph *body,
                                          sbit_error *error)
{
    sbit_error unfit;
    const sbit_status status = sbit__infer_body(call, body, NULL, NULL, &unfit);
    if (status == SBIT_OK || status == SBIT_ERR_SHAPE) {
        return SBIT_OK;
    }
    if (error != NULL) {
        *error = unfit;
    }
    return status;
}

/* Bodies that the row did not ask about still get types, from their declared inputs. */
static sbit_status sbit__infer_other_bodies(const sbit_op_call *call, sbit_error *error)
{
    const sbit__infer_frame *frame = (const sbit__infer_frame *)call->session;
    const sbit_graph *body = NULL;
    for (size_t b = 0; b < 64 && (body = sbit_node_body(call->node, b)) != NULL; b++) {
        if (((frame->bodies_seen >> b) & 1u) == 0) {
            SBIT__TRY(sbit__infer_other_body(call, body, error));
        }
    }
    return SBIT_OK;
}

/* >>nodes */

/* The arrays of a call. */
typedef struct sbit__infer_arrays {
    const sbit_type **in_type;
    sbit_type **out_type;
    sbit_type *out;
    const sbit_tensor **in;
    const sbit_dim **in_elems;
    int64_t *in_elem_count;
} sbit__infer_arrays;

static bool sbit__infer_gather(sbit__infer *state, const sbit_node *node, sbit__infer_arrays *a)
{
    const size_t ins = node->input_count, outs = node->output_count;
    bool ok = true;
    sbit__arena *arena = state->passing != NULL ? state->passing : state->arena;
    a->in_type = (const sbit_type **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    a->in = (const sbit_tensor **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    a->in_elems = (const sbit_dim **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    a->in_elem_count = (int64_t *)sbit__arena_array(arena, ins + 1, sizeof(int64_t));
    a->out_type = (sbit_type **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    a->out = (sbit_type *)sbit__arena_array(arena, outs + 1, sizeof(sbit_type));
    if (a->in_type == NULL || a->in == NULL || a->in_elems == NULL || a->in_elem_count == NULL ||
        a->out_type == NULL || a->out == NULL) {
        return false;
    }
    for (size_t i = 0; i < ins; i++) {
        const sbit_value_id id = node->inputs[i];
        if (id.idx != 0) {
            a->in_type[i] = state->types[id.idx];
            a->in[i] = sbit__infer_known(state, id, &ok);
            a->in_elems[i] = sbit__infer_elems(state, id, &ok);
            a->in_elem_count[i] = state->elem_counts[id.idx];
        }
    }
    for (size_t i = 0; i < outs; i++) {
        const sbit_value_id id = node->outputs[i];
        a->out[i] = sbit__type_unknown();
        a->out_type[i] = id.idx != 0 ? &a->out[i] : NULL;
        state->elems[id.idx] = NULL;
        state->known[id.idx] = NULL;
    }
    return ok;
}

static void sbit__infer_accept(sbit__infer *state, const sbit_node *node, const sbit_type *out,
                               bool has_row)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit_value_id id = node->outputs[i];
        const sbit_value_info *info = id.idx != 0 ? sbit_graph_value(state->graph, id) : NULL;
        if (info == NULL) {
            continue;
        }
        *state->types[id.idx] = has_row ? out[i] : info->type;
        if (has_row && state->results != NULL) {
            sbit__infer_hint(state, info->name, &info->type, state->types[id.idx]);
        }
    }
}

/* Sizes that no machine has end here, so that rows can multiply dims and element sizes. */
static sbit_status sbit__infer_size(const sbit_op_call *call, const char *what, size_t i,
                                    const sbit_type *type, sbit_error *error)
{
    const int64_t most = (int64_t)(SIZE_MAX / 2 > (size_t)INT64_MAX ? INT64_MAX : SIZE_MAX / 2);
    int64_t count = 1;
    if (type == NULL || type->kind != SBIT_KIND_TENSOR) {
        return SBIT_OK;
    }
    for (int32_t d = 0; d < type->rank; d++) {
        const sbit_dim dim = type->dims[d];
        if (sbit__dim_known(dim) && dim.value > 0 &&
            (!sbit__mul_i64(count, dim.value, &count) || count > most / 64)) {
            char text[128];
            sbit__type_describe(call->graph, type, text, sizeof text);
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error,
                                "%s %lu, %s, is too large for any machine", what, (unsigned long)i,
                                text);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__infer_sizes(const sbit_op_call *call, sbit_error *error)
{
    for (int32_t i = 0; i < call->input_count; i++) {
        SBIT__TRY(sbit__infer_size(call, "input", (size_t)i, call->in_type[i], error));
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        SBIT__TRY(sbit__infer_size(call, "output", (size_t)i, call->out_type[i], error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__infer_node(sbit__infer *state, sbit_node_id node_id, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(state->graph, node_id);
    sbit__infer_frame frame;
    sbit__infer_arrays arrays;
    sbit_op_call call;
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(state->graph, node, &opset);
    if (!sbit__infer_gather(state, node, &arrays)) {
        return sbit__infer_oom(state, error);
    }
    memset(&frame, 0, sizeof frame);
    memset(&call, 0, sizeof call);
    frame.state = state;
    frame.node = node;
    call.ctx = state->ctx;
    call.kernels = sbit__kernels(state->ctx);
    call.graph = state->graph;
    call.node = node;
    call.row = row;
    call.opset = opset;
    call.input_count = (int32_t)node->input_count;
    call.output_count = (int32_t)node->output_count;
    call.in_type = arrays.in_type;
    call.out_type = arrays.out_type;
    call.in = arrays.in;
    call.in_elems = arrays.in_elems;
    call.in_elem_count = arrays.in_elem_count;
    call.set_elems = sbit__infer_set_elems;
    call.infer_body = sbit__infer_body;
    call.session = &frame;
    if (row != NULL && row->infer != NULL) {
        SBIT__TRY(row->infer(&call, error));
        SBIT__TRY(sbit__infer_sizes(&call, error));
    }
    if (frame.out_of_memory) {
        return sbit__infer_oom(state, error);
    }
    if (state->results != NULL) {
        SBIT__TRY(sbit__infer_other_bodies(&call, error));
    }
    sbit__infer_accept(state, node, arrays.out, row != NULL && row->infer != NULL);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__infer_run(sbit__infer *state, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(state->graph); id.idx != 0;
         id = sbit_graph_next(state->graph, id)) {
        SBIT__TRY(sbit__infer_node(state, id, error));
    }
    return SBIT_OK;
}

/* >>public */

static void sbit__infer_write(sbit_graph *graph, const sbit_type *types)
{
    const uint32_t limit = sbit_graph_value_limit(graph);
    for (uint32_t i = 1; i < limit; i++) {
        sbit_value_id id;
        id.idx = i;
        if (sbit_graph_value_alive(graph, id)) {
            sbit_graph_set_type(graph, id, &types[i]);
        }
    }
}

static sbit_status sbit__infer_graph(sbit_graph *graph, sbit__arena *arena, sbit_error *error)
{
    sbit__infer state;
    sbit__infer_results results;
    SBIT__TRY(sbit__op_check_forms(graph, error));
    SBIT__TRY(sbit__infer_init(&state, graph, NULL, arena, error));
    results.arena = arena;
    results.count = graph->family->graph_count;
    results.graphs = (sbit_graph **)sbit__arena_array(arena, results.count, sizeof(void *));
    results.types = (sbit_type **)sbit__arena_array(arena, results.count, sizeof(void *));
    if (results.graphs == NULL || results.types == NULL) {
        return sbit__infer_oom(&state, error);
    }
    state.results = &results;
    SBIT__TRY(sbit__infer_run(&state, error));
    SBIT__TRY(sbit__infer_report(&state, graph, error));
    for (uint32_t i = 0; i < results.count; i++) {
        if (results.graphs[i] != NULL) {
            sbit__infer_write(results.graphs[i], results.types[i]);
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_infer(sbit_graph *graph, sbit_error *error)
{
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    sbit__arena_init(&arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    status = sbit__infer_graph(graph, &arena, error);
    sbit__arena_deinit(&arena);
    return status;
}
