/* plan.c: what to run for the inputs at hand: types, known values, steps, memory. >>plan
 *
 * Called by: exec. Calls: infer, ops (row->prepare; row->run for what is known already).
 * What the program computed from constants is known. A node whose inputs are known for the shapes
 * at hand (the arithmetic on shapes that exporters write) is run while planning. What is left
 * become steps.
 */
#include "exec_private.h"

#include <stdio.h> /* snprintf */

#define SBIT__PLAN_SMALL 64 /* elements up to which shape arithmetic is run while planning */

SBIT__FN void sbit__plan_drop(sbit_session *session)
{
    const sbit_allocator *a = &session->allocator;
    for (uint32_t i = 0; session->nodes != NULL && i < session->node_limit; i++) {
        session->nodes[i].skipped = false;
        session->nodes[i].prepared_holds = false;
    }
    sbit__free_aligned(a, session->block, session->block_bytes);
    session->block = NULL;
    session->block_bytes = 0;
    session->unshared_bytes = 0;
    session->plan = NULL;
    session->steps = NULL;
    session->step_count = 0;
    session->planned = false;
    session->ran = false;
    sbit__arena_deinit(&session->plan_arena);
    sbit__arena_init(&session->plan_arena, a);
    session->plan_arena.block_bytes = SBIT__EXEC_ARENA;
}

/* >>inputs */

typedef struct sbit__plan_symbol {
    uint32_t symbol, input; /* input: the value where it was seen first */
    int64_t value;
} sbit__plan_symbol;

/* The two numbers of a name: an error, or a warning if nobody builds on that name. */
static sbit_status sbit__plan_tell_symbol(sbit_session *session, const sbit__plan_symbol *seen,
                                          const sbit_value_info *info, int64_t value, bool loose,
                                          sbit_error *error)
{
    char text[300];
    sbit_value_id first;
    first.idx = seen->input;
    snprintf(text, sizeof text,
             "dimension '%.60s' is %lld in input '%.60s', but %lld in input '%.60s'",
             sbit_graph_symbol_name(session->graph, seen->symbol), (long long)seen->value,
             sbit_graph_value(session->graph, first)->name, (long long)value, info->name);
    if (!loose) {
        return sbit__fail(error, SBIT_ERR_SHAPE, info->name, "%s", text);
    }
    if (!session->told_symbols) {
        sbit__log(session->ctx, SBIT_LOG_WARNING, "%s: the name says nothing", text);
    }
    session->told_symbols = true;
    return SBIT_OK;
}

/* A symbolic dimension stands for one number wherever it stands in the inputs. */
static sbit_status sbit__plan_check_symbols(sbit_session *session, sbit_error *error)
{
    bool *loose = NULL;
    SBIT__TRY(sbit__loose_symbols(session->graph, &session->plan_arena, &loose, error));
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
                SBIT__TRY(sbit__plan_tell_symbol(session, &seen[k], info, actual->dims[d].value,
                                                 loose[dim.symbol], error));
            }
        }
    }
    return SBIT_OK;
}

/* >>constants */

/* Whether the constant of a value is not the program's in this session: the caller, or that of the
 * graph around this one, feeds something else. */
static bool sbit__plan_is_overridden(const sbit_session *session, uint32_t idx)
{
    sbit_value_id id;
    id.idx = idx;
    return idx != 0 && !session->constant[idx] &&
           sbit__program_constant(session->program, session->graph, id) != NULL;
}

/* Constants that the caller overrides take with them what the program made of them: values are
 * computed in steps again, packed forms are not used. Where data was freed after packing, it is
 * computed again, too. */
static void sbit__plan_overrides(sbit_session *session)
{
    const sbit__made *made = sbit__program_made(session->program, session->graph);
    for (size_t o = 0; o < session->order_count; o++) {
        const sbit_node *node = sbit_graph_node(session->graph, session->order[o]);
        sbit__exec_node *data = &session->nodes[node->id.idx];
        for (size_t i = 0; i < node->input_count; i++) {
            if (sbit__plan_is_overridden(session, node->inputs[i].idx)) {
                data->folded = false;
                data->packed = NULL;
            }
        }
        for (size_t i = 0; !data->folded && i < node->output_count; i++) {
            session->constant[node->outputs[i].idx] = false;
        }
    }
    for (size_t o = session->order_count; o-- > 0;) {
        const sbit_node *node = sbit_graph_node(session->graph, session->order[o]);
        sbit__exec_node *data = &session->nodes[node->id.idx];
        for (size_t i = 0; i < node->output_count; i++) {
            const uint32_t idx = node->outputs[i].idx;
            if (idx != 0 && data->folded && !session->constant[idx]) {
                data->folded = false; /* its data was asked for below */
            }
        }
        for (size_t i = 0; !data->folded && i < node->output_count; i++) {
            session->constant[node->outputs[i].idx] = false;
        }
        for (size_t i = 0; !data->folded && i < node->input_count; i++) {
            const uint32_t idx = node->inputs[i].idx;
            const bool reads =
                data->packed == NULL || i >= 32 || (made->released[node->id.idx] >> i & 1u) == 0;
            if (idx != 0 && reads && session->constant[idx] &&
                session->values[idx].tensor.data == NULL && made->folded[idx] != NULL) {
                session->constant[idx] = false;
            }
        }
    }
}

/* Everything that does not change from run to run, and what nodes have of the program. */
static void sbit__plan_constants(sbit_session *session)
{
    const sbit__made *made = sbit__program_made(session->program, session->graph);
    bool overridden = false;
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        sbit_value_id id;
        const sbit_tensor *constant = NULL;
        id.idx = idx;
        constant = sbit__program_constant(session->program, session->graph, id);
        session->constant[idx] = constant != NULL && !session->fed[idx];
        if (session->constant[idx]) {
            memset(&session->values[idx], 0, sizeof session->values[idx]);
            session->values[idx].tensor = *constant;
        }
        overridden = overridden || (constant != NULL && session->fed[idx]);
    }
    for (size_t i = 0; i < session->capture_count; i++) {
        const uint32_t idx = session->captures[i].idx;
        const uint32_t outer = sbit_graph_value(session->graph, session->captures[i])->outer.idx;
        const bool was = session->constant[idx];
        session->constant[idx] = session->parent->constant[outer];
        overridden = overridden || (was && !session->constant[idx]);
    }
    for (size_t o = 0; o < session->order_count; o++) {
        sbit__exec_node *data = &session->nodes[session->order[o].idx];
        data->folded = made->folded_node != NULL && made->folded_node[session->order[o].idx];
        data->packed = made->packed != NULL ? made->packed[session->order[o].idx] : NULL;
    }
    if (overridden) {
        sbit__plan_overrides(session);
    }
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
            infer->types[idx] = *session->fed_types[idx];
            infer->known[idx] = NULL;
        }
        if (session->constant[idx]) {
            infer->types[idx] = sbit__type_of_tensor(&session->values[idx].tensor);
            infer->known[idx] =
                session->values[idx].tensor.data != NULL ? &session->values[idx].tensor : NULL;
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

/* Small, and all inputs are known for the shapes at hand. */
static bool sbit__plan_can_evaluate(const sbit_session *session, const sbit_node *node,
                                    const sbit__exec_node *data)
{
    if ((data->row->flags & (SBIT_OP_RANDOM | SBIT_OP_BODY)) != 0 || data->row->run == NULL) {
        return false;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        if (idx != 0 && (session->plan[idx].place != SBIT__PLACE_CONSTANT ||
                         sbit_tensor_count(&session->values[idx].tensor) > SBIT__PLAN_SMALL)) {
            return false;
        }
    }
    if (!sbit__plan_outputs_static(session, node)) {
        return (data->row->flags & SBIT_OP_DYNAMIC) != 0;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        /* text that a row made (alloc_text) lasts for one run only */
        if (idx != 0 && (session->infer.types[idx].dtype == SBIT_STRING ||
                         sbit__type_elements(&session->infer.types[idx]) > SBIT__PLAN_SMALL)) {
            return false;
        }
    }
    return true;
}

/* Runs a node now; its outputs stay in their dynamic blocks. */
static sbit_status sbit__plan_evaluate(sbit_session *session, const sbit_node *node,
                                       sbit_error *error)
{
    SBIT__TRY(sbit__step_evaluate(session, node->id, error));
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        if (idx != 0 && session->values[idx].kind == SBIT_KIND_TENSOR) {
            session->infer.known[idx] = &session->values[idx].tensor;
            session->infer.elems[idx] = NULL;
            session->plan[idx].place = SBIT__PLACE_CONSTANT;
        }
    }
    return SBIT_OK;
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
    if (!data->skipped && sbit__plan_can_evaluate(session, node, data)) {
        data->skipped = true;
        SBIT__TRY(sbit__plan_evaluate(session, node, error));
    }
    return SBIT_OK;
}

/* >>steps */

static sbit_status sbit__plan_choose_steps(sbit_session *session, sbit_error *error)
{
    session->steps = (sbit__step *)sbit__arena_array(&session->plan_arena, session->order_count + 1,
                                                     sizeof(sbit__step));
    if (session->steps == NULL) {
        return sbit__fail_oom(error, session->order_count * sizeof(sbit__step));
    }
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
                                   "%lu nodes cannot be executed: %s%s", (unsigned long)count, text,
                                   used >= sizeof text ? " ... and more" : "");
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

static sbit_status sbit__plan_fill(sbit_session *session, sbit__arena *passing, sbit_error *error)
{
    session->plan = (sbit__exec_value *)sbit__arena_array(
        &session->plan_arena, session->value_limit, sizeof(sbit__exec_value));
    if (session->plan == NULL) {
        return sbit__fail_oom(error, session->value_limit * sizeof(sbit__exec_value));
    }
    SBIT__TRY(sbit__infer_init(&session->infer, session->graph, NULL, &session->plan_arena, error));
    session->infer.passing = passing;
    sbit__plan_constants(session);
    SBIT__TRY(sbit__plan_sources(session, error));
    for (size_t o = 0; o < session->order_count; o++) {
        SBIT__TRY(sbit__plan_infer_node(session, session->order[o], error));
    }
    session->infer.passing = NULL;
    sbit__arena_deinit(passing);
    sbit__arena_init(passing, &session->allocator);
    SBIT__TRY(sbit__plan_steps(session, error));
    SBIT__TRY(sbit__exec_scratch(session, 0, error)); /* of what was computed while planning */
    return sbit__plan_memory(session, error);
}

SBIT__FN sbit_status sbit__plan_make(sbit_session *session, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    sbit__arena passing;
    sbit__plan_drop(session);
    session->plan_serial++;
    session->parent_serial = session->parent != NULL ? session->parent->plan_serial : 0;
    sbit__arena_init(&passing, &session->allocator);
    status = sbit__plan_fill(session, &passing, error);
    session->infer.passing = NULL;
    sbit__arena_deinit(&passing);
    if (status != SBIT_OK) {
        sbit__plan_drop(session);
        return status;
    }
    session->planned = true;
    return SBIT_OK;
}
