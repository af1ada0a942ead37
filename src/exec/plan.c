/* plan.c: what to run for the inputs at hand: types, known values, steps, memory. >>plan
 *
 * Called by: exec. Calls: infer, ops (row->prepare; row->run for what is known already).
 * A node whose inputs are all constant is run once and its outputs count as constants from then on
 * (weights behind DequantizeLinear; large ones wait until a step needs them). A node whose inputs
 * are known for the shapes at hand (the arithmetic on shapes that exporters write) is run while
 * planning. What is left become steps.
 */
#include "exec_private.h"

#include <stdio.h> /* snprintf */

#define SBIT__PLAN_SMALL 64       /* elements up to which shape arithmetic is run while planning */
#define SBIT__PLAN_FOLD_GROWTH 8  /* a constant may take this much more than what it is made of */
#define SBIT__PLAN_FOLD_FREE 4096 /* bytes that a constant may always take */
#define SBIT__PLAN_FOLD_NOW 16384 /* bytes of a constant that need not wait for a step */

SBIT__FN void sbit__plan_drop(sbit_session *session)
{
    const sbit_allocator *a = &session->ctx->allocator;
    for (uint32_t i = 0; session->nodes != NULL && i < session->node_limit; i++) {
        session->nodes[i].skipped = false;
        session->nodes[i].prepared_holds = false;
    }
    sbit__free_aligned(a, session->block, session->block_bytes);
    session->block = NULL;
    session->block_bytes = 0;
    session->unshared_bytes = 0;
    session->scratch_needed = 0;
    session->plan = NULL;
    session->steps = NULL;
    session->step_count = 0;
    session->planned = false;
    session->ran = false;
    sbit__arena_deinit(&session->plan_arena);
    sbit__arena_init(&session->plan_arena, a);
}

/* >>inputs */

typedef struct sbit__plan_symbol {
    uint32_t symbol, input; /* input: the value where it was seen first */
    int64_t value;
} sbit__plan_symbol;

/* A symbolic dimension stands for one number wherever it stands in the inputs. */
static sbit_status sbit__plan_check_symbols(sbit_session *session, sbit_error *error)
{
    sbit__plan_symbol *seen = (sbit__plan_symbol *)sbit__arena_array(
        &session->plan_arena, session->input_count * SBIT_MAX_RANK + 1, sizeof *seen);
    size_t count = 0;
    if (seen == NULL) {
        return sbit__fail_oom(error, session->input_count * sizeof *seen);
    }
    for (size_t i = 0; i < session->input_count; i++) {
        const uint32_t idx = session->inputs[i].idx;
        const sbit_value_info *info = sbit_graph_value(session->graph, session->inputs[i]);
        const sbit_type *actual = &session->infer.types[idx];
        for (int32_t d = 0; d < actual->rank && d < info->type.rank; d++) {
            const sbit_dim dim = info->type.dims[d];
            size_t k = 0;
            if (dim.symbol == 0 || dim.symbol == SBIT_SYMBOL_ANY ||
                !sbit__dim_known(actual->dims[d])) {
                continue;
            }
            while (k < count && seen[k].symbol != dim.symbol) {
                k++;
            }
            if (k == count) {
                seen[count].symbol = dim.symbol;
                seen[count].input = idx;
                seen[count++].value = actual->dims[d].value;
            } else if (seen[k].value != actual->dims[d].value) {
                sbit_value_id first;
                first.idx = seen[k].input;
                return sbit__fail(error, SBIT_ERR_SHAPE, info->name,
                                  "dimension '%s' is %lld in input '%s', but %lld in input '%s'",
                                  sbit_graph_symbol_name(session->graph, dim.symbol),
                                  (long long)seen[k].value,
                                  sbit_graph_value(session->graph, first)->name,
                                  (long long)actual->dims[d].value, info->name);
            }
        }
    }
    return SBIT_OK;
}

/* Types of what comes from outside: inputs as fed or declared, captured values as they are. */
static sbit_status sbit__plan_sources(sbit_session *session, sbit_error *error)
{
    sbit__infer *infer = &session->infer;
    sbit_session *parent = session->parent;
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        session->plan[idx].root = idx;
        session->plan[idx].first = -1;
        session->plan[idx].last = -1;
        if (session->fed[idx]) {
            infer->types[idx] = session->fed_types[idx];
            infer->known[idx] = NULL;
        }
        if (session->constant[idx]) { /* the graph's, or folded by an earlier plan */
            infer->types[idx] = sbit__type_of_tensor(&session->values[idx].tensor);
            infer->known[idx] = &session->values[idx].tensor;
            session->plan[idx].place = SBIT__PLACE_CONSTANT;
        }
    }
    for (size_t i = 0; i < session->input_count; i++) {
        session->plan[session->inputs[i].idx].place = SBIT__PLACE_INPUT;
    }
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        if (session->fed[idx]) {
            session->plan[idx].place = SBIT__PLACE_INPUT;
        }
    }
    for (size_t i = 0; i < session->capture_count; i++) {
        const uint32_t idx = session->captures[i].idx;
        const uint32_t outer = sbit_graph_value(session->graph, session->captures[i])->outer.idx;
        const bool known = parent->plan[outer].place == SBIT__PLACE_CONSTANT;
        session->values[idx] = parent->values[outer];
        infer->types[idx] = sbit__type_of_value(&session->values[idx], &parent->infer.types[outer]);
        infer->known[idx] = known ? &session->values[idx].tensor : NULL;
        session->constant[idx] = parent->constant[outer];
        session->plan[idx].place = known ? SBIT__PLACE_CONSTANT : SBIT__PLACE_CAPTURED;
    }
    return parent == NULL ? sbit__plan_check_symbols(session, error) : SBIT_OK;
}

/* >>what is known while planning */

static bool sbit__plan_outputs_static(const sbit_session *session, const sbit_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        if (idx != 0 && !sbit__type_static(&session->infer.types[idx])) {
            return false;
        }
    }
    return true;
}

static int64_t sbit__plan_count(const sbit_type *type)
{
    int64_t dims[SBIT_MAX_RANK], count = INT64_MAX;
    for (int32_t i = 0; i < type->rank; i++) {
        dims[i] = type->dims[i].value;
    }
    return sbit__dims_count(dims, (size_t)type->rank, &count) ? count : INT64_MAX;
}

/* Whether the outputs can and should be computed now, and whether that holds for ever. */
static bool sbit__plan_can_evaluate(const sbit_session *session, const sbit_node *node,
                                    const sbit__exec_node *data, bool *forever)
{
    size_t in_bytes = 0, out_bytes = 0;
    bool few = true;
    *forever = true;
    if ((data->row->flags & (SBIT_OP_RANDOM | SBIT_OP_BODY)) != 0 || data->row->run == NULL) {
        return false;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        if (idx == 0) {
            continue;
        }
        if (session->plan[idx].place != SBIT__PLACE_CONSTANT) {
            return false;
        }
        *forever = *forever && (session->constant[idx] || session->plan[idx].maker != 0);
        few = few && sbit_tensor_count(&session->values[idx].tensor) <= SBIT__PLAN_SMALL;
        in_bytes += sbit_tensor_bytes(&session->values[idx].tensor);
    }
    if (!sbit__plan_outputs_static(session, node)) {
        return (data->row->flags & SBIT_OP_DYNAMIC) != 0 && (few || *forever);
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        const int64_t count = idx != 0 ? sbit__plan_count(&session->infer.types[idx]) : 0;
        size_t bytes = SIZE_MAX / 4;
        few = few && count <= SBIT__PLAN_SMALL;
        /* text that a row made (alloc_text) lasts for one run only */
        if (idx != 0 && (session->infer.types[idx].dtype == SBIT_STRING ||
                         !sbit__exec_bytes(session->infer.types[idx].dtype, count, &bytes))) {
            return false;
        }
        out_bytes += idx != 0 ? bytes : 0;
    }
    return few || (*forever && (out_bytes <= SBIT__PLAN_FOLD_FREE ||
                                out_bytes / SBIT__PLAN_FOLD_GROWTH <= in_bytes));
}

/* Runs a node now; its outputs stay in their dynamic blocks. */
static sbit_status sbit__plan_evaluate(sbit_session *session, sbit_node_id id, bool forever,
                                       sbit_error *error)
{
    sbit__exec_node *data = &session->nodes[id.idx];
    sbit__step *step = (sbit__step *)sbit__arena_alloc(&session->plan_arena, sizeof *step);
    sbit_status status = SBIT_OK;
    if (step == NULL) {
        return sbit__fail_oom(error, sizeof *step);
    }
    step->node = sbit_graph_node(session->graph, id);
    SBIT__TRY(sbit__step_build(session, step, error));
    for (size_t i = 0; i < step->node->output_count; i++) {
        const uint32_t idx = step->node->outputs[i].idx;
        session->plan[idx].place = SBIT__PLACE_DYNAMIC;
        sbit__dynamic_set_constant(session, &session->dynamics[idx], idx != 0);
    }
    status = sbit__step_prepare(step, error);
    if (status == SBIT_OK && session->scratch_needed > session->scratch_bytes) {
        status = sbit__exec_scratch(session, session->scratch_needed, error);
    }
    if (status == SBIT_OK) {
        status = sbit__step_run(step, error); /* makes what it needs */
    }
    sbit__exec_free_state(session, data);
    SBIT__TRY(status);
    data->folded = forever;
    for (size_t i = 0; i < step->node->output_count; i++) {
        const uint32_t idx = step->node->outputs[i].idx;
        if (idx != 0 && session->values[idx].kind == SBIT_KIND_TENSOR) {
            session->infer.known[idx] = &session->values[idx].tensor;
            session->infer.elems[idx] = NULL;
            session->constant[idx] = forever;
            session->plan[idx].place = SBIT__PLACE_CONSTANT;
        } else if (idx != 0) {
            data->folded = false; /* a sequence: computed again by the next plan */
        }
    }
    for (size_t i = 0; i < step->node->input_count; i++) { /* read by such nodes only */
        const uint32_t idx = step->node->inputs[i].idx;
        if (idx != 0 && session->plan[idx].maker != 0 && session->steps != NULL &&
            session->plan[idx].uses == 0) {
            sbit__plan_free_constant(session, idx);
        }
    }
    return SBIT_OK;
}

/* >>constants that are made when needed */

/* Large, of floats (so that no shape depends on it), and only read by steps. */
static bool sbit__plan_can_wait(const sbit_session *session, const sbit_node *node)
{
    size_t total = 0;
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        const sbit_type *type = &session->infer.types[idx];
        size_t bytes = 0;
        if (idx == 0) {
            continue;
        }
        if (session->plan[idx].pinned || !sbit__type_static(type) ||
            (SBIT_T(type->dtype) & SBIT_T_FLOATS) == 0 ||
            !sbit__exec_bytes(type->dtype, sbit__plan_count(type), &bytes)) {
            return false;
        }
        total += bytes;
    }
    return total > SBIT__PLAN_FOLD_NOW;
}

static void sbit__plan_wait(sbit_session *session, const sbit_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        const sbit_type *type = &session->infer.types[idx];
        sbit_tensor *tensor = &session->values[idx].tensor;
        if (idx == 0) {
            continue;
        }
        memset(&session->values[idx], 0, sizeof session->values[idx]);
        tensor->dtype = type->dtype;
        tensor->rank = type->rank;
        for (int32_t d = 0; d < type->rank; d++) {
            tensor->dims[d] = type->dims[d].value;
        }
        session->plan[idx].place = SBIT__PLACE_CONSTANT;
        session->plan[idx].maker = node->id.idx;
    }
}

SBIT__FN sbit_status sbit__plan_constant(sbit_session *session, uint32_t idx, sbit_error *error)
{
    sbit_node_id maker;
    maker.idx = session->plan[idx].maker;
    return maker.idx == 0 || session->values[idx].tensor.data != NULL
               ? SBIT_OK
               : sbit__plan_evaluate(session, maker, true, error);
}

SBIT__FN void sbit__plan_free_constant(sbit_session *session, uint32_t idx)
{
    sbit__dynamic_free(session, &session->dynamics[idx]);
    session->values[idx].tensor.data = NULL;
    session->infer.known[idx] = NULL;
    session->constant[idx] = false;
    session->nodes[session->plan[idx].maker].folded = false; /* made again if a plan needs it */
}

/* A result, what the caller taps and what bodies read must be there when the run begins. */
static void sbit__plan_pin(sbit_session *session)
{
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        session->plan[idx].pinned =
            session->wanted[idx] || session->tapped[idx] || session->keep_values;
    }
    for (size_t o = 0; o < session->order_count; o++) {
        const sbit__exec_node *data = &session->nodes[session->order[o].idx];
        for (size_t i = 0; i < data->capture_count; i++) {
            session->plan[data->captures[i].idx].pinned = true;
        }
    }
}

/* True if all outputs that anyone reads are known, so that the node need not run. */
static sbit_status sbit__plan_accept_known(sbit_session *session, const sbit_node *node,
                                           bool *all_known, sbit_error *error)
{
    *all_known = node->output_count > 0;
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit_value_id id = node->outputs[i];
        bool ok = true;
        const sbit_tensor *known = id.idx != 0 ? sbit__infer_known(&session->infer, id, &ok) : NULL;
        if (!ok) {
            return sbit__fail_oom(error, sizeof(sbit_tensor));
        }
        if (id.idx != 0 && (known == NULL || session->wanted[id.idx])) {
            *all_known = false;
        }
    }
    for (size_t i = 0; *all_known && i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        if (idx != 0 && session->infer.known[idx] != &session->values[idx].tensor) {
            memset(&session->values[idx], 0, sizeof session->values[idx]);
            session->values[idx].tensor = *session->infer.known[idx];
            session->plan[idx].place = SBIT__PLACE_CONSTANT;
        }
    }
    return SBIT_OK;
}

/* Loops generalise over iterations that have not been seen: what they say of shapes is no promise.
 * The branches of If have no inputs and can be trusted. */
static void sbit__plan_forget_loops(sbit_session *session, const sbit_node *node,
                                    const sbit__exec_node *data)
{
    bool has_inputs = false;
    if ((data->row->flags & SBIT_OP_BODY) == 0) {
        return;
    }
    for (size_t i = 0; i < node->attr_count; i++) {
        const sbit_attr *attr = &node->attrs[i];
        has_inputs = has_inputs ||
                     (attr->type == SBIT_ONNX_ATTR_GRAPH && sbit_graph_input_count(attr->g) > 0);
    }
    for (size_t i = 0; has_inputs && i < node->output_count; i++) {
        session->infer.types[node->outputs[i].idx] = sbit__type_unknown();
    }
}

static sbit_status sbit__plan_infer_node(sbit_session *session, sbit_node_id id, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(session->graph, id);
    sbit__exec_node *data = &session->nodes[id.idx];
    bool forever = false;
    if (data->folded) {
        data->skipped = true;
        return SBIT_OK;
    }
    SBIT__TRY(sbit__infer_node(&session->infer, id, error));
    sbit__plan_forget_loops(session, node, data);
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        session->plan[idx].fixed = sbit__type_static(&session->infer.types[idx]);
    }
    SBIT__TRY(sbit__plan_accept_known(session, node, &data->skipped, error));
    if (!data->skipped && sbit__plan_can_evaluate(session, node, data, &forever)) {
        data->skipped = true;
        if (forever && sbit__plan_can_wait(session, node)) {
            sbit__plan_wait(session, node);
        } else {
            SBIT__TRY(sbit__plan_evaluate(session, id, forever, error));
        }
    }
    return SBIT_OK;
}

/* >>steps */

static void sbit__plan_use(sbit_session *session, sbit_value_id id, sbit_node_id user)
{
    session->plan[id.idx].uses++;
    session->plan[id.idx].user = user.idx;
}

static void sbit__plan_count_uses(sbit_session *session)
{
    for (size_t o = 0; o < session->order_count; o++) {
        const sbit_node *node = sbit_graph_node(session->graph, session->order[o]);
        const sbit__exec_node *data = &session->nodes[node->id.idx];
        for (size_t i = 0; !data->skipped && i < node->input_count; i++) {
            sbit__plan_use(session, node->inputs[i], node->id);
        }
        for (size_t i = 0; !data->skipped && i < data->capture_count; i++) {
            sbit__plan_use(session, data->captures[i], node->id);
        }
    }
}

static sbit_status sbit__plan_choose_steps(sbit_session *session, sbit_error *error)
{
    session->steps = (sbit__step *)sbit__arena_array(&session->plan_arena,
                                                     session->order_count + 1, sizeof(sbit__step));
    if (session->steps == NULL) {
        return sbit__fail_oom(error, session->order_count * sizeof(sbit__step));
    }
    sbit__plan_count_uses(session);
    session->step_count = 0;
    for (size_t o = 0; o < session->order_count; o++) {
        const sbit_node_id id = session->order[o];
        if (!session->nodes[id.idx].skipped) {
            session->steps[session->step_count++].node = sbit_graph_node(session->graph, id);
        }
    }
    return SBIT_OK;
}

/* Where the outputs of a step lie, and when its shapes are found. */
static void sbit__plan_place_outputs(sbit_session *session, sbit__step *step)
{
    const sbit_op_call *call = &step->call;
    const uint32_t flags = step->data->row->flags;
    bool inputs_static = true, outputs_static = true, typed = true;
    for (int32_t i = 0; i < call->input_count; i++) {
        const sbit_type *type = call->in_type[i];
        inputs_static = inputs_static && (type == NULL || sbit__type_static(type));
        typed = typed && (type == NULL || type->dtype != SBIT_UNDEFINED);
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        outputs_static =
            outputs_static && (call->out_type[i] == NULL || sbit__type_static(call->out_type[i]));
    }
    step->copies = (flags & SBIT_OP_VIEW) != 0 && call->input_count > 0 &&
                   call->in_type[0] != NULL && call->in_type[0]->kind != SBIT_KIND_TENSOR;
    /* infer also checks element types, which then is still to be done */
    step->resolve = (!outputs_static || !typed) && (flags & SBIT_OP_DYNAMIC) == 0 && !step->copies;
    step->late = !inputs_static || step->resolve;
    for (int32_t i = 0; i < call->output_count; i++) {
        const uint32_t idx = step->node->outputs[i].idx;
        const sbit_type *type = call->out_type[i];
        sbit_value *value = &session->values[idx];
        if (idx == 0) {
            continue;
        }
        memset(value, 0, sizeof *value);
        session->plan[idx].place = SBIT__PLACE_DYNAMIC;
        sbit__dynamic_set_constant(session, &session->dynamics[idx], false);
        if ((flags & SBIT_OP_DYNAMIC) != 0 || step->copies || step->resolve) {
            continue;
        }
        session->plan[idx].place = SBIT__PLACE_BLOCK;
        value->tensor.dtype = type->dtype;
        value->tensor.rank = type->rank;
        for (int32_t d = 0; d < type->rank; d++) {
            value->tensor.dims[d] = type->dims[d].value;
        }
    }
}

/* All steps whose element type has no kernel, in one message. */
static sbit_status sbit__plan_check_types(const sbit_session *session, sbit_error *error)
{
    char text[400] = "";
    size_t used = 0, count = 0;
    for (size_t s = 0; s < session->step_count; s++) {
        const sbit_op_call *call = &session->steps[s].call;
        const sbit_type *type = call->input_count > 0    ? call->in_type[0]
                                : call->output_count > 0 ? call->out_type[0]
                                                         : NULL;
        char node[128];
        if (type == NULL || type->dtype == SBIT_UNDEFINED ||
            (call->row->types & SBIT_T(type->dtype)) != 0) {
            continue;
        }
        sbit_graph_describe(session->graph, call->node->id, node, sizeof node);
        if (used < sizeof text - 1) {
            const int n =
                snprintf(text + used, sizeof text - used, "%s%s (element type %s)",
                         count > 0 ? ", " : "", node, sbit_dtype_name((int32_t)type->dtype));
            used += n > 0 ? (size_t)n : 0;
        }
        count++;
    }
    return count == 0 ? SBIT_OK
                      : sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                                   "%lu nodes cannot be executed: %s", (unsigned long)count, text);
}

static sbit_status sbit__plan_steps(sbit_session *session, sbit_error *error)
{
    SBIT__TRY(sbit__plan_choose_steps(session, error));
    for (size_t s = 0; s < session->step_count; s++) {
        SBIT__TRY(sbit__step_build(session, &session->steps[s], error));
        sbit__plan_place_outputs(session, &session->steps[s]);
    }
    SBIT__TRY(sbit__plan_check_types(session, error));
    for (size_t s = 0; s < session->step_count; s++) {
        if (!session->steps[s].late) {
            SBIT__TRY(sbit__step_prepare(&session->steps[s], error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__plan_fill(sbit_session *session, sbit_error *error)
{
    session->plan = (sbit__exec_value *)sbit__arena_array(
        &session->plan_arena, session->value_limit, sizeof(sbit__exec_value));
    if (session->plan == NULL) {
        return sbit__fail_oom(error, session->value_limit * sizeof(sbit__exec_value));
    }
    SBIT__TRY(sbit__infer_init(&session->infer, session->graph, NULL, &session->plan_arena, error));
    SBIT__TRY(sbit__plan_sources(session, error));
    sbit__plan_pin(session);
    for (size_t o = 0; o < session->order_count; o++) {
        SBIT__TRY(sbit__plan_infer_node(session, session->order[o], error));
    }
    SBIT__TRY(sbit__plan_steps(session, error));
    SBIT__TRY(sbit__plan_memory(session, error));
    return sbit__exec_scratch(session, session->scratch_needed, error);
}

SBIT__FN sbit_status sbit__plan_make(sbit_session *session, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    sbit__plan_drop(session);
    session->plan_serial++;
    session->parent_serial = session->parent != NULL ? session->parent->plan_serial : 0;
    status = sbit__plan_fill(session, error);
    if (status != SBIT_OK) {
        sbit__plan_drop(session);
        return status;
    }
    session->planned = true;
    return SBIT_OK;
}
