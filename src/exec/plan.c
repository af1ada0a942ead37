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

static void sbit__plan_drop_infer(sbit_session *session)
{
    sbit__arena_deinit(&session->infer_arena);
    sbit__arena_init(&session->infer_arena, &session->allocator);
}

SBIT__FN void sbit__plan_drop(sbit_session *session)
{
    const sbit_allocator *a = &session->allocator;
    (void)sbit__exec_scratch(session, 0, NULL); /* cannot fail */
    for (size_t o = 0; o < session->node_count; o++) {
        session->nodes[o].skipped = false;
        if (session->nodes[o].late != NULL) {
            session->nodes[o].late->holds = false;
        }
    }
    sbit__free_aligned(a, session->block, session->block_bytes);
    session->block = NULL;
    session->block_bytes = 0;
    session->unshared_bytes = 0;
    session->live_bytes = 0;
    session->steps = NULL;
    session->step_count = 0;
    session->planned = false;
    session->ran = false;
    sbit__plan_drop_infer(session);
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
        const sbit_type *actual = &session->values[idx]->type;
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

static sbit_status sbit__plan_own(sbit_session *session, uint32_t idx, sbit_error *error)
{
    return idx == 0 || sbit__exec_own(session, idx) != NULL
               ? SBIT_OK
               : sbit__fail_oom(error, sizeof(sbit__exec_value));
}

static sbit_status sbit__plan_own_outputs(sbit_session *session, const sbit_node *node,
                                          sbit_error *error)
{
    for (size_t i = 0; i < node->output_count; i++) {
        SBIT__TRY(sbit__plan_own(session, node->outputs[i].idx, error));
    }
    return SBIT_OK;
}

/* Memory for what is not constant. */
static sbit_status sbit__plan_touch(sbit_session *session, const sbit_value_id *ids, size_t count,
                                    sbit_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (session->values[ids[i].idx] == NULL) {
            SBIT__TRY(sbit__plan_own(session, ids[i].idx, error));
        }
    }
    return SBIT_OK;
}

/* Whether the constant of a value is not the program's in this session: the caller, or that of the
 * graph around this one, feeds something else. */
static bool sbit__plan_is_overridden(const sbit_session *session, uint32_t idx)
{
    return sbit__program_constant(session->program, session->graph, idx) != NULL &&
           !session->values[idx]->shared;
}

/* Constants that the caller overrides take with them what the program made of them: values are
 * computed in steps again, packed forms are not used. Where data was freed after packing, it is
 * computed again, too. */
static sbit_status sbit__plan_overrides(sbit_session *session, sbit_error *error)
{
    const sbit__made *made = sbit__program_made(session->program, session->graph);
    for (size_t o = 0; o < session->node_count; o++) {
        sbit__exec_node *data = &session->nodes[o];
        for (size_t i = 0; i < data->node->input_count; i++) {
            if (sbit__plan_is_overridden(session, data->node->inputs[i].idx)) {
                data->folded = false;
                data->packed = NULL;
            }
        }
        if (!data->folded) {
            SBIT__TRY(sbit__plan_own_outputs(session, data->node, error));
        }
    }
    for (size_t o = session->node_count; o-- > 0;) {
        sbit__exec_node *data = &session->nodes[o];
        const sbit_node *node = data->node;
        for (size_t i = 0; i < node->output_count; i++) {
            if (sbit__plan_is_overridden(session, node->outputs[i].idx)) {
                data->folded = false; /* its data was asked for below */
            }
        }
        if (data->folded) {
            continue;
        }
        SBIT__TRY(sbit__plan_own_outputs(session, node, error));
        for (size_t i = 0; i < node->input_count; i++) {
            const sbit__exec_value *value = session->values[node->inputs[i].idx];
            const bool reads =
                data->packed == NULL || i >= 32 || (made->released[node->id.idx] >> i & 1u) == 0;
            if (value != NULL && reads && value->shared && value->value.tensor.data == NULL &&
                sbit_graph_value(session->graph, node->inputs[i])->producer.idx != 0) {
                SBIT__TRY(sbit__plan_own(session, node->inputs[i].idx, error));
            }
        }
    }
    return SBIT_OK;
}

/* Everything that does not change from run to run, what nodes have of the program, and memory for
 * the rest. */
static sbit_status sbit__plan_values(sbit_session *session, sbit_error *error)
{
    const sbit__made *made = sbit__program_made(session->program, session->graph);
    bool overridden = false;
    for (size_t i = 0; i < session->capture_count; i++) {
        const uint32_t outer = sbit_graph_value(session->graph, session->captures[i])->outer.idx;
        if (!session->parent->values[outer]->shared) {
            SBIT__TRY(sbit__plan_own(session, session->captures[i].idx, error));
        }
    }
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        if (session->values[idx] == NULL) {
            session->values[idx] = made->values[idx];
        }
        overridden = overridden || sbit__plan_is_overridden(session, idx);
    }
    for (size_t o = 0; o < session->node_count; o++) {
        sbit__exec_node *data = &session->nodes[o];
        data->folded = made->folded[data->node->id.idx];
        data->packed = made->packed[data->node->id.idx];
        SBIT__TRY(sbit__plan_touch(session, data->node->inputs, data->node->input_count, error));
        SBIT__TRY(sbit__plan_touch(session, data->node->outputs, data->node->output_count, error));
        SBIT__TRY(sbit__plan_touch(session, data->captures, data->capture_count, error));
    }
    SBIT__TRY(sbit__plan_touch(session, session->inputs, session->input_count, error));
    SBIT__TRY(sbit__plan_touch(session, session->outputs, session->output_count, error));
    return overridden ? sbit__plan_overrides(session, error) : SBIT_OK;
}

/* Types of what comes from outside: inputs as fed or declared, captured values as they are. */
static sbit_status sbit__plan_sources(sbit_session *session, sbit_error *error)
{
    sbit__infer *infer = &session->infer;
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        sbit__exec_value *value = session->values[idx];
        sbit_value_id id;
        id.idx = idx;
        if (value == NULL) {
            continue;
        }
        infer->types[idx] = &value->type;
        if (value->shared) {
            infer->known[idx] = value->value.tensor.data != NULL ? &value->value.tensor : NULL;
            continue;
        }
        const sbit_value_info *info = sbit_graph_value(session->graph, id);
        value->type = value->fed                ? *value->fed_type
                      : info->producer.idx == 0 ? sbit__session_expected(session, info)
                                                : sbit__type_unknown();
        value->place = value->fed ? SBIT__PLACE_INPUT : SBIT__PLACE_NONE;
        value->root = value;
        value->fixed = false;
        memset(&value->life, 0, sizeof value->life);
        value->life.first = value->life.last = -1;
    }
    for (size_t i = 0; i < session->input_count; i++) {
        session->values[session->inputs[i].idx]->place = SBIT__PLACE_INPUT;
    }
    for (size_t i = 0; i < session->capture_count; i++) {
        const uint32_t idx = session->captures[i].idx;
        const uint32_t outer_idx =
            sbit_graph_value(session->graph, session->captures[i])->outer.idx;
        const sbit__exec_value *outer = session->parent->values[outer_idx];
        sbit__exec_value *value = session->values[idx];
        if (!value->shared) {
            const bool known = outer->place == SBIT__PLACE_CONSTANT;
            value->value = outer->value;
            value->type = sbit__type_static(&outer->type)
                              ? outer->type /* its data may not be there yet */
                              : sbit__type_of_value(&value->value, &outer->type);
            infer->known[idx] = known ? &value->value.tensor : NULL;
            value->place = known ? SBIT__PLACE_CONSTANT : SBIT__PLACE_CAPTURED;
        }
    }
    return session->parent == NULL ? sbit__plan_check_symbols(session, error) : SBIT_OK;
}

/* >>what is known while planning */

static bool sbit__plan_outputs_static(const sbit_session *session, const sbit_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        if (idx != 0 && !sbit__type_static(&session->values[idx]->type)) {
            return false;
        }
    }
    return true;
}

/* Small, and all inputs are known for the shapes at hand. */
static bool sbit__plan_can_evaluate(const sbit_session *session, const sbit__exec_node *data)
{
    const sbit_node *node = data->node;
    if ((data->row->flags & (SBIT_OP_RANDOM | SBIT_OP_BODY)) != 0 || data->row->run == NULL) {
        return false;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        if (idx != 0 &&
            (sbit__exec_place(session, idx) != SBIT__PLACE_CONSTANT ||
             sbit_tensor_count(&session->values[idx]->value.tensor) > SBIT__PLAN_SMALL)) {
            return false;
        }
    }
    const bool is_static = sbit__plan_outputs_static(session, node);
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        const sbit_type *type = idx != 0 ? &session->values[idx]->type : NULL;
        /* text that a row made (alloc_text) lasts for one run only */
        if (type != NULL && (type->dtype == SBIT_STRING ||
                             (is_static && sbit__type_elements(type) > SBIT__PLAN_SMALL))) {
            return false;
        }
    }
    return is_static || (data->row->flags & SBIT_OP_DYNAMIC) != 0;
}

/* Runs a node now; its outputs stay in their dynamic blocks. */
static sbit_status sbit__plan_evaluate(sbit_session *session, sbit__exec_node *data,
                                       sbit_error *error)
{
    SBIT__TRY(sbit__step_evaluate(session, data, error));
    for (size_t i = 0; i < data->node->output_count; i++) {
        const uint32_t idx = data->node->outputs[i].idx;
        sbit__exec_value *out = session->values[idx];
        if (out != NULL && out->value.kind == SBIT_KIND_TENSOR) {
            session->infer.known[idx] = &out->value.tensor;
            session->infer.elems[idx] = NULL;
            out->place = SBIT__PLACE_CONSTANT;
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
        sbit__exec_value *out = session->values[idx];
        if (out != NULL && session->infer.known[idx] != &out->value.tensor) {
            memset(&out->value, 0, sizeof out->value);
            out->value.tensor = *session->infer.known[idx];
            out->place = SBIT__PLACE_CONSTANT;
        }
    }
    return SBIT_OK;
}

/* Loops generalise over iterations that have not been seen: what they say of shapes is no promise.
 * The branches of If have no inputs and can be trusted. */
static void sbit__plan_forget_loops(sbit_session *session, const sbit__exec_node *data)
{
    const sbit_node *node = data->node;
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
        if (node->outputs[i].idx != 0) {
            session->values[node->outputs[i].idx]->type = sbit__type_unknown();
        }
    }
}

static sbit_status sbit__plan_infer_node(sbit_session *session, sbit__exec_node *data,
                                         sbit_error *error)
{
    const sbit_node *node = data->node;
    if (data->folded) {
        data->skipped = true;
        return SBIT_OK;
    }
    SBIT__TRY(sbit__infer_node(&session->infer, node->id, error));
    sbit__plan_forget_loops(session, data);
    for (size_t i = 0; i < node->output_count; i++) {
        sbit__exec_value *out = session->values[node->outputs[i].idx];
        if (out != NULL) {
            out->fixed = sbit__type_static(&out->type);
        }
    }
    SBIT__TRY(sbit__plan_accept_known(session, node, &data->skipped, error));
    if (!data->skipped && sbit__plan_can_evaluate(session, data)) {
        data->skipped = true;
        SBIT__TRY(sbit__plan_evaluate(session, data, error));
    }
    return SBIT_OK;
}

/* >>steps */

static sbit_status sbit__plan_choose_steps(sbit_session *session, sbit_error *error)
{
    size_t count = 0;
    for (size_t o = 0; o < session->node_count; o++) {
        count += session->nodes[o].skipped ? 0 : 1;
    }
    session->steps =
        (sbit__step *)sbit__arena_array(&session->plan_arena, count + 1, sizeof(sbit__step));
    if (session->steps == NULL) {
        return sbit__fail_oom(error, count * sizeof(sbit__step));
    }
    session->step_count = 0;
    for (size_t o = 0; o < session->node_count; o++) {
        sbit__exec_node *data = &session->nodes[o];
        if (!data->skipped) {
            sbit__step *step = &session->steps[session->step_count++];
            step->session = session;
            step->data = data;
            for (size_t i = 0; i < data->node->output_count; i++) {
                step->tapped = step->tapped || session->tapped[data->node->outputs[i].idx] != 0;
            }
        }
    }
    return SBIT_OK;
}

/* Where the outputs of a step lie, and when its shapes are found. */
static void sbit__plan_place_outputs(sbit_session *session, sbit__step *step)
{
    const sbit_node *node = step->data->node;
    const uint32_t flags = step->data->row->flags;
    bool inputs_static = true, outputs_static = true, typed = true;
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit__exec_value *in = session->values[node->inputs[i].idx];
        inputs_static = inputs_static && (in == NULL || sbit__type_static(&in->type));
        typed = typed && (in == NULL || in->type.dtype != SBIT_UNDEFINED);
        step->copies = step->copies || (i == 0 && in != NULL && (flags & SBIT_OP_VIEW) != 0 &&
                                        in->type.kind != SBIT_KIND_TENSOR);
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit__exec_value *out = session->values[node->outputs[i].idx];
        outputs_static = outputs_static && (out == NULL || sbit__type_static(&out->type));
    }
    /* infer also checks element types, which then is still to be done */
    step->resolve = (!outputs_static || !typed) && (flags & SBIT_OP_DYNAMIC) == 0 && !step->copies;
    step->late = !inputs_static || step->resolve;
    for (size_t i = 0; i < node->output_count; i++) {
        sbit__exec_value *out = session->values[node->outputs[i].idx];
        if (out == NULL) {
            continue;
        }
        memset(&out->value, 0, sizeof out->value);
        out->place = SBIT__PLACE_DYNAMIC;
        sbit__dynamic_set_constant(session, &out->dynamic, false);
        if ((flags & SBIT_OP_DYNAMIC) == 0 && !step->copies && !step->resolve) {
            out->place = SBIT__PLACE_BLOCK;
            sbit__tensor_of_type(&out->type, &out->value.tensor);
        }
    }
}

/* All steps whose element type has no kernel, in one message. */
static sbit_status sbit__plan_check_types(const sbit_session *session, sbit_error *error)
{
    char text[400] = "";
    size_t used = 0, count = 0;
    for (size_t s = 0; s < session->step_count; s++) {
        const sbit__exec_node *data = session->steps[s].data;
        const uint32_t idx = data->node->input_count > 0    ? data->node->inputs[0].idx
                             : data->node->output_count > 0 ? data->node->outputs[0].idx
                                                            : 0;
        const sbit_type *type = idx != 0 ? &session->values[idx]->type : NULL;
        char node[128];
        if (type == NULL || type->dtype == SBIT_UNDEFINED ||
            (data->row->types & SBIT_T(type->dtype)) != 0) {
            continue;
        }
        sbit_graph_describe(session->graph, data->node->id, node, sizeof node);
        if (used < sizeof text - 1) {
            const int n =
                snprintf(text + used, sizeof text - used, "%s%s (element type %s)",
                         count > 0 ? ", " : "", node, sbit_dtype_name((int32_t)type->dtype));
            used += n > 0 ? (size_t)n : 0;
        }
        count++;
    }
    return count == 0
               ? SBIT_OK
               : sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL, "%lu nodes cannot be executed: %s%s",
                            (unsigned long)count, text, used >= sizeof text ? " ... and more" : "");
}

static sbit_status sbit__plan_steps(sbit_session *session, sbit_error *error)
{
    SBIT__TRY(sbit__plan_choose_steps(session, error));
    for (size_t s = 0; s < session->step_count; s++) {
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

static bool sbit__plan_resolves(const sbit_session *session)
{
    bool resolves = false;
    for (size_t s = 0; s < session->step_count; s++) {
        resolves = resolves || session->steps[s].resolve;
    }
    return resolves;
}

static sbit_status sbit__plan_fill(sbit_session *session, sbit__arena *passing, sbit_error *error)
{
    SBIT__TRY(sbit__plan_values(session, error));
    SBIT__TRY(sbit__infer_begin(&session->infer, session->graph, NULL, &session->plan_arena,
                                &session->infer_arena, error));
    session->infer.passing = passing;
    SBIT__TRY(sbit__plan_sources(session, error));
    for (size_t o = 0; o < session->node_count; o++) {
        SBIT__TRY(sbit__plan_infer_node(session, &session->nodes[o], error));
    }
    session->infer.passing = NULL;
    sbit__arena_deinit(passing);
    sbit__arena_init(passing, &session->allocator);
    SBIT__TRY(sbit__plan_steps(session, error));
    if (!sbit__plan_resolves(session)) {
        sbit__plan_drop_infer(session);
    }
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
