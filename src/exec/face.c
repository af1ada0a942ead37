/* face.c: what users call: programs and sessions, inputs, results, memory and profile. >>face
 *
 * Called by: users, calibration, verification, training. Calls: all of exec.
 */
#include "exec_private.h"

#include <stdio.h> /* snprintf */

/* >>making */

SPARSEBIT_API sbit_status sbit_program_create(sbit_graph *graph, const sbit_session_desc *desc,
                                              sbit_program **out, sbit_error *error)
{
    sbit_program *program = NULL;
    SBIT__TRY(sbit__program_make(graph, desc, &program, error));
    const sbit_status status = sbit__program_fold(program, error);
    if (status != SBIT_OK) {
        sbit_program_destroy(program);
        return status;
    }
    *out = program;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_session_create_for(const sbit_program *program,
                                                  const sbit_session_desc *desc, sbit_session **out,
                                                  sbit_error *error)
{
    sbit_session_desc own = program->desc;
    own.tap_fn = desc != NULL && desc->tap_fn != NULL ? desc->tap_fn : own.tap_fn;
    own.tap_user = desc != NULL && desc->tap_fn != NULL ? desc->tap_user : own.tap_user;
    own.profile = desc != NULL && desc->profile;
    own.max_bytes = desc != NULL ? desc->max_bytes : 0;
    own.dynamic_bytes = desc != NULL ? desc->dynamic_bytes : 0;
    SBIT__TRY(sbit__session_make(program, program->graph, &own, NULL, NULL, false, out, error));
    (*out)->call.run_body = sbit__exec_run_body;
    (*out)->call.plan_body = sbit__exec_plan_body;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_session_create(sbit_graph *graph, const sbit_session_desc *desc,
                                              sbit_session **out, sbit_error *error)
{
    sbit_program *program = NULL;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit__program_make(graph, desc, &program, error));
    status = sbit_session_create_for(program, desc, out, error);
    if (status != SBIT_OK) {
        sbit_program_destroy(program);
        return status;
    }
    (*out)->owned = program;
    return SBIT_OK;
}

/* >>inputs */

SPARSEBIT_API size_t sbit_session_input_count(const sbit_session *session)
{
    return session->input_count;
}

SPARSEBIT_API const sbit_value_info *sbit_session_input_info(const sbit_session *session,
                                                             size_t index)
{
    return index < session->input_count ? sbit_graph_value(session->graph, session->inputs[index])
                                        : NULL;
}

SPARSEBIT_API size_t sbit_session_output_count(const sbit_session *session)
{
    return session->output_count;
}

SPARSEBIT_API const sbit_value_info *sbit_session_output_info(const sbit_session *session,
                                                              size_t index)
{
    return index < session->output_count ? sbit_graph_value(session->graph, session->outputs[index])
                                         : NULL;
}

static sbit_status sbit__session_no_input(const sbit_session *s, const char *name,
                                          sbit_error *error)
{
    char text[300] = "";
    size_t used = 0;
    for (size_t i = 0; i < sbit_graph_input_count(s->graph) && used + 1 < sizeof text; i++) {
        const sbit_value_info *info = sbit_graph_value(s->graph, sbit_graph_input(s->graph, i));
        const int n =
            snprintf(text + used, sizeof text - used, "%s'%s'", i > 0 ? ", " : "", info->name);
        used += n > 0 ? (size_t)n : 0;
    }
    const char *inputs = text[0] != '\0' ? text : "none";
    if (name == NULL) {
        return sbit__fail(
            error, SBIT_ERR_NOT_FOUND, name,
            "which input is meant? without a name there must be one; the graph has %s", inputs);
    }
    return sbit__fail(error, SBIT_ERR_NOT_FOUND, name, "there is no input '%s'; the graph has %s",
                      name, inputs);
}

static sbit_status sbit__session_set(sbit_session *session, const sbit_value_info *info,
                                     const sbit_value *value, sbit_error *error)
{
    const sbit_value_id id = info->id;
    const char *name = info->name;
    sbit__exec_state *state = sbit__state_find(session, id);
    sbit__exec_value *input = NULL;
    sbit_type type;
    if (value->kind == SBIT_KIND_TENSOR && value->tensor.data == NULL &&
        sbit_tensor_count(&value->tensor) > 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, name,
                          "the tensor for input '%s' has no data", name);
    }
    if (value->kind != SBIT_KIND_TENSOR && value->kind != SBIT_KIND_SEQUENCE &&
        value->kind != SBIT_KIND_OPTIONAL) {
        return sbit__fail(
            error, SBIT_ERR_UNSUPPORTED, name,
            "input '%s' is a map, sparse tensor or opaque value, which nothing runs on", name);
    }
    type = sbit__type_of_value(value, &info->type);
    SBIT__TRY(sbit__program_check_input(session->graph, info, &type, error));
    if (state != NULL) {
        return sbit__state_set(session, state, &value->tensor, error);
    }
    input = session->values[id.idx];
    const bool is_new = input == NULL || input->shared;
    input = sbit__exec_own(session, id.idx);
    if (input == NULL) {
        return sbit__meter_explain(session, sbit__fail_oom(error, sizeof *input), error);
    }
    /* Results stay readable until the next run, so the plan is not touched here. */
    session->stale = session->stale || !session->planned || is_new ||
                     !sbit__graph_type_equal(&type, &input->type);
    SBIT__TRY(sbit__session_set_type(session, input, &type, error));
    input->value = *value;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_session_set_value(sbit_session *session, const char *name,
                                                 const sbit_value *value, sbit_error *error)
{
    const bool only = name == NULL && session->input_count == 1;
    const sbit_value_id none = {0};
    const sbit_value_id id = only           ? session->inputs[0]
                             : name != NULL ? sbit_graph_find_value(session->graph, name)
                                            : none;
    const sbit_value_info *info = id.idx != 0 ? sbit_graph_value(session->graph, id) : NULL;
    return info == NULL || !info->is_input ? sbit__session_no_input(session, name, error)
                                           : sbit__session_set(session, info, value, error);
}

SPARSEBIT_API sbit_status sbit_session_set_input_at(sbit_session *session, size_t index,
                                                    const sbit_tensor *tensor, sbit_error *error)
{
    sbit_value value;
    if (index >= session->input_count) {
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, NULL,
                          "the session has %lu inputs, none is %lu",
                          (unsigned long)session->input_count, (unsigned long)index);
    }
    memset(&value, 0, sizeof value);
    value.tensor = *tensor;
    return sbit__session_set(session, sbit_graph_value(session->graph, session->inputs[index]),
                             &value, error);
}

SPARSEBIT_API sbit_status sbit_session_set_input(sbit_session *session, const char *name,
                                                 const sbit_tensor *tensor, sbit_error *error)
{
    sbit_value value;
    memset(&value, 0, sizeof value);
    value.tensor = *tensor;
    return sbit_session_set_value(session, name, &value, error);
}

/* >>plan and run */

static void sbit__session_name(const char *name, char *text, size_t size, size_t *used, size_t nth)
{
    if (*used + 1 < size) {
        const int n = snprintf(text + *used, size - *used, "%s'%s'", nth > 0 ? ", " : "", name);
        *used += n > 0 ? (size_t)n : 0;
    }
}

static sbit_status sbit__session_check_fed(const sbit_session *s, bool or_static, sbit_error *error)
{
    char text[300] = "";
    size_t used = 0, count = 0;
    for (size_t i = 0; i < s->input_count; i++) {
        const sbit_value_info *info = sbit_graph_value(s->graph, s->inputs[i]);
        const sbit__exec_value *value = s->values[info->id.idx];
        const sbit_type type = sbit__session_expected(s, info);
        if ((value != NULL && value->fed) || info->use_count == 0 ||
            (or_static && sbit__type_static(&type))) {
            continue;
        }
        sbit__session_name(info->name, text, sizeof text, &used, count++);
    }
    for (size_t i = 0; i < s->state_count; i++) {
        if (!s->states[i].set) {
            sbit__session_name(sbit_graph_value(s->graph, s->states[i].input)->name, text,
                               sizeof text, &used, count++);
        }
    }
    return count == 0
               ? SBIT_OK
               : sbit__fail(error, SBIT_ERR_STATE, NULL,
                            count == 1 ? "input %s was not set" : "inputs %s were not set", text);
}

/* Memory for results of a known shape that lie in the caller's memory: they are copied. */
static sbit_status sbit__session_reserve(sbit_session *s, sbit_error *error)
{
    for (size_t i = 0; i < s->output_count; i++) {
        const sbit__exec_value *value = s->values[s->outputs[i].idx];
        const bool copied = !sbit__exec_owns(s, s->outputs[i].idx) &&
                            sbit__type_static(&value->type) && value->type.dtype != SBIT_STRING;
        sbit_tensor tensor;
        sbit__dynamic_set_constant(s, &s->result_blocks[i], copied);
        if (copied) {
            sbit__tensor_of_type(&value->type, &tensor);
            SBIT__TRY(sbit__dynamic_tensor(s, &s->result_blocks[i], tensor.dtype, tensor.rank,
                                           tensor.dims, &tensor, error));
        }
    }
    return sbit__state_reserve_all(s, error);
}

/* A plan for the inputs as they are set now. */
static sbit_status sbit__session_plan_now(sbit_session *session, sbit_error *error)
{
    session->ran = false;
    if (session->planned && !session->stale) {
        return SBIT_OK;
    }
    if (session->owned != NULL) { /* a session that never runs packs nothing */
        SBIT__TRY(sbit__program_fold(session->owned, error));
    }
    SBIT__TRY(sbit__plan_make(session, error));
    session->stale = false;
    return sbit__session_reserve(session, error);
}

SPARSEBIT_API sbit_status sbit_session_plan(sbit_session *session, sbit_error *error)
{
    SBIT__TRY(sbit__session_check_fed(session, true, error));
    return sbit__meter_explain(session, sbit__session_plan_now(session, error), error);
}

static bool sbit__value_has_text(const sbit_value *value)
{
    if (value->kind == SBIT_KIND_TENSOR) {
        return value->tensor.dtype == SBIT_STRING;
    }
    return value->item_count > 0 && sbit__value_has_text(&value->items[0]);
}

/* Results that lie in the caller's memory, or whose text may, are copied. */
static sbit_status sbit__session_result(sbit_session *s, size_t i, sbit_error *error)
{
    const uint32_t idx = s->outputs[i].idx;
    const sbit_value *value = &s->values[idx]->value;
    sbit__dynamic *copy = &s->result_blocks[i];
    sbit__block_free_all(s, &copy->items);
    s->results[i] = *value;
    if (sbit__exec_owns(s, idx) && !sbit__value_has_text(value)) {
        return SBIT_OK;
    }
    if (value->kind != SBIT_KIND_TENSOR || sbit__value_has_text(value)) {
        return sbit__value_copy(s, &copy->items, value, &s->results[i], error);
    }
    SBIT__TRY(sbit__dynamic_tensor(s, copy, value->tensor.dtype, value->tensor.rank,
                                   value->tensor.dims, &s->results[i].tensor, error));
    memcpy(s->results[i].tensor.data, value->tensor.data, sbit_tensor_bytes(&value->tensor));
    return SBIT_OK;
}

static sbit_status sbit__session_results(sbit_session *s, sbit_error *error)
{
    for (size_t i = 0; i < s->output_count; i++) {
        SBIT__TRY(sbit__session_result(s, i, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__session_run(sbit_session *session, sbit_error *error)
{
    SBIT__TRY(sbit__session_plan_now(session, error));
    SBIT__TRY(sbit__exec_steps(session, error));
    SBIT__TRY(sbit__session_results(session, error));
    return sbit__state_carry_all(session, error);
}

SPARSEBIT_API sbit_status sbit_session_run(sbit_session *session, sbit_error *error)
{
    SBIT__TRY(sbit__session_check_fed(session, false, error));
    const sbit_status status = sbit__session_run(session, error);
    session->ran = status == SBIT_OK;
    return sbit__meter_explain(session, status, error);
}

SPARSEBIT_API const sbit_value *sbit_session_output(const sbit_session *session, size_t index)
{
    return session->ran && index < session->output_count ? &session->results[index] : NULL;
}

SPARSEBIT_API const sbit_value *sbit_session_state_at(const sbit_session *session, size_t index)
{
    return index < session->state_count && session->states[index].set
               ? &session->values[session->states[index].input.idx]->value
               : NULL;
}

SPARSEBIT_API const sbit_value *sbit_session_value(const sbit_session *session, sbit_value_id id)
{
    return session->ran && session->keep_values && id.idx > 0 && id.idx < session->value_limit &&
                   sbit__exec_place(session, id.idx) != SBIT__PLACE_NONE
               ? &session->values[id.idx]->value
               : NULL;
}

/* >>memory and profile */

static void sbit__session_add_memory(const sbit_session *s, sbit_session_memory *memory)
{
    memory->activation_bytes += s->block_bytes;
    memory->unshared_bytes += s->unshared_bytes;
    memory->live_bytes += s->live_bytes;
    memory->scratch_bytes += s->scratch_bytes;
    for (size_t i = 0; i < s->step_count; i++) {
        const size_t bytes = s->steps[i].has_scratch ? s->steps[i].scratch_bytes : 0;
        memory->scratch_bytes = bytes > memory->scratch_bytes ? bytes : memory->scratch_bytes;
    }
    memory->state_bytes += s->state_bytes;
    for (size_t o = 0; o < s->node_count; o++) {
        for (const sbit__exec_body *body = s->nodes[o].bodies; body != NULL; body = body->next) {
            if (body->session != NULL) {
                sbit__session_add_memory(body->session, memory);
            }
        }
    }
}

SPARSEBIT_API void sbit_session_memory_of(const sbit_session *session, sbit_session_memory *out)
{
    memset(out, 0, sizeof *out);
    if (session->planned) {
        sbit__session_add_memory(session, out);
        out->packed_bytes = session->program->packed_bytes;
        out->total_bytes = session->meter.peak;
        out->dynamic_bytes = session->dynamic_meter.peak;
    }
}

/* Between quantizers: 8-bit integers in and out, or in and a sum out. */
static bool sbit__session_on_integers(const sbit_session *s, const sbit_node *node)
{
    bool found = strcmp(node->domain, "sbit") == 0 && node->op_type[0] == 'Q';
    const sbit__exec_value *first = node->input_count > 0 ? s->values[node->inputs[0].idx] : NULL;
    found =
        found || (first != NULL && (first->type.dtype == SBIT_U8 || first->type.dtype == SBIT_I8));
    return found && strcmp(node->op_type, "DequantizeLinear") != 0;
}

/* The memory of an output is found while running. */
static bool sbit__session_is_dynamic(const sbit_session *s, const sbit_node *node)
{
    bool found = false;
    for (size_t i = 0; i < node->output_count; i++) {
        found = found || sbit__exec_place(s, node->outputs[i].idx) == SBIT__PLACE_DYNAMIC;
    }
    return found;
}

/* Added by lowering to an operator that the caller has: no run of its own. */
static bool sbit__session_is_layout(const sbit_session *s, sbit_node_id id)
{
    const sbit_node *node = sbit_graph_node(s->graph, id);
    return strcmp(node->op_type, "ToFirst") == 0 || strcmp(node->op_type, "ToLast") == 0;
}

/* One of the caller's nodes. What was expanded from it counts together, in the nodes that stand one
 * behind the other. */
static void sbit__session_profile_node(const sbit_session *s, sbit_node_id id, sbit_node_id into,
                                       sbit_node_profile *out)
{
    const sbit__lowered *lowered = sbit__program_lowered(s->program, s->graph);
    const sbit_node_id first = sbit__lowered_origin(lowered, into);
    memset(out, 0, sizeof *out);
    out->node = id;
    out->lowered = sbit_graph_node(s->graph, into);
    out->on_integers = s->planned && sbit__session_on_integers(s, out->lowered);
    out->is_dynamic = s->planned && sbit__session_is_dynamic(s, out->lowered);
    out->reason =
        lowered->reason != NULL && id.idx < lowered->reason_limit ? lowered->reason[id.idx] : NULL;
    if (first.idx != id.idx) {
        out->fused_into = first;
        return;
    }
    while (into.idx != 0 && sbit__lowered_origin(lowered, into).idx == id.idx) {
        if (sbit__session_is_layout(s, out->lowered->id)) { /* a change of layout stood in front */
            out->lowered = sbit_graph_node(s->graph, into);
        }
        const uint32_t at = s->node_at[into.idx];
        const sbit__exec_node *data = at != 0 ? &s->nodes[at - 1] : NULL;
        out->nanoseconds += data != NULL ? data->nanoseconds : 0;
        out->runs += data == NULL || sbit__session_is_layout(s, into) ? 0 : data->runs;
        into = sbit_graph_next(s->graph, into);
    }
}

SPARSEBIT_API size_t sbit_session_profile(const sbit_session *session, sbit_node_profile *nodes,
                                          size_t capacity)
{
    const sbit__lowered *lowered = sbit__program_lowered(session->program, session->graph);
    size_t count = 0;
    for (sbit_node_id id = sbit_graph_first(session->source); id.idx != 0;
         id = sbit_graph_next(session->source, id)) {
        const sbit_node_id into = lowered->into[id.idx];
        if (into.idx != 0 && count++ < capacity) {
            sbit__session_profile_node(session, id, into, &nodes[count - 1]);
        }
    }
    return count;
}
