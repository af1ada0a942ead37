/* session.c: making and destroying sessions, inputs, results, memory and profile. >>session
 *
 * Called by: users, calibration, verification. Calls: plan, run.
 */
#include "exec_private.h"

#include <stdio.h> /* snprintf */

static void *sbit__session_array(sbit_session *session, size_t count, size_t bytes_each, bool *ok)
{
    void *array = sbit__arena_array(&session->arena, count + 1, bytes_each);
    *ok = *ok && array != NULL;
    return array;
}

static sbit_status sbit__session_arrays(sbit_session *s, sbit_error *error)
{
    bool ok = true;
    s->value_limit = sbit_graph_value_limit(s->graph);
    s->node_limit = sbit_graph_node_limit(s->graph);
    s->tapped = (bool *)sbit__session_array(s, s->value_limit, sizeof(bool), &ok);
    s->wanted = (bool *)sbit__session_array(s, s->value_limit, sizeof(bool), &ok);
    s->values =
        (sbit__exec_value **)sbit__session_array(s, s->value_limit, sizeof(void *), &ok);
    s->node_at = (uint32_t *)sbit__session_array(s, s->node_limit, sizeof(uint32_t), &ok);
    s->inputs = (sbit_value_id *)sbit__session_array(s, sbit_graph_input_count(s->graph),
                                                     sizeof(sbit_value_id), &ok);
    s->states =
        (sbit__exec_state *)sbit__session_array(s, s->state_count, sizeof(sbit__exec_state), &ok);
    s->outputs =
        (sbit_value_id *)sbit__session_array(s, s->output_count, sizeof(sbit_value_id), &ok);
    s->results = (sbit_value *)sbit__session_array(s, s->output_count, sizeof(sbit_value), &ok);
    s->result_blocks =
        (sbit__dynamic *)sbit__session_array(s, s->output_count, sizeof(sbit__dynamic), &ok);
    return ok ? SBIT_OK : sbit__fail_oom(error, s->value_limit * sizeof(void *));
}

/* What is looked at from outside. */
static void sbit__session_targets(sbit_session *s, const sbit_session_desc *desc)
{
    const bool tapped = desc->tap_fn != NULL;
    const uint32_t limit = sbit_graph_value_limit(s->source);
    for (size_t i = 0; i < s->output_count; i++) {
        s->outputs[i] = sbit_graph_output(s->graph, i);
        s->wanted[s->outputs[i].idx] = true;
    }
    for (size_t i = 0; i < s->state_count; i++) {
        s->states[i].output = desc->states[i].output;
        s->states[i].input = desc->states[i].input;
        s->wanted[s->states[i].output.idx] = true;
    }
    for (size_t i = 0; i < desc->tap_count && tapped; i++) {
        s->tapped[desc->taps[i].idx] = true;
    }
    for (uint32_t idx = 1; desc->tap_all && tapped && idx < limit; idx++) {
        s->tapped[idx] = true;
    }
    s->has_taps = tapped && (desc->tap_all || desc->tap_count > 0);
}

/* Marks the values that nodes which results and taps need read, and these nodes in node_at, from
 * the last to the first; how many there are. `order`, `captured`: room for all nodes and values. */
static size_t sbit__session_needed(sbit_session *s, bool *needed, sbit_node_id *order,
                                   sbit_value_id *captured)
{
    size_t count = 0, kept = 0;
    for (sbit_node_id id = sbit_graph_first(s->graph); id.idx != 0;
         id = sbit_graph_next(s->graph, id)) {
        order[count++] = id;
    }
    for (uint32_t idx = 1; idx < s->value_limit; idx++) {
        needed[idx] = s->wanted[idx] || s->tapped[idx];
    }
    while (count-- > 0) {
        const sbit_node *node = sbit_graph_node(s->graph, order[count]);
        size_t captures = 0;
        bool keep = false;
        for (size_t i = 0; i < node->output_count; i++) {
            keep = keep || (node->outputs[i].idx != 0 && needed[node->outputs[i].idx]);
        }
        if (!keep) {
            continue;
        }
        s->node_at[node->id.idx] = 1;
        kept++;
        for (size_t i = 0; i < node->input_count; i++) {
            needed[node->inputs[i].idx] = true;
        }
        captures = sbit_graph_captures(s->graph, node->id, captured, s->value_limit);
        for (size_t i = 0; i < captures; i++) {
            needed[captured[i].idx] = true;
        }
    }
    return kept;
}

/* What is kept of the nodes that node_at marks. */
static sbit_status sbit__session_nodes(sbit_session *s, size_t count, sbit_value_id *captured,
                                       sbit_error *error)
{
    bool ok = true;
    size_t ins = 0, outs = 0;
    s->nodes = (sbit__exec_node *)sbit__session_array(s, count, sizeof(sbit__exec_node), &ok);
    for (sbit_node_id id = sbit_graph_first(s->graph); ok && id.idx != 0;
         id = sbit_graph_next(s->graph, id)) {
        const sbit_node *node = sbit_graph_node(s->graph, id);
        sbit__exec_node *data = &s->nodes[s->node_count];
        if (s->node_at[id.idx] == 0) {
            continue;
        }
        s->node_at[id.idx] = (uint32_t)++s->node_count;
        data->node = node;
        data->row = sbit__op_row(s->graph, node, &data->opset);
        data->capture_count = sbit_graph_captures(s->graph, id, captured, s->value_limit);
        if (data->capture_count > 0) {
            data->captures = (sbit_value_id *)sbit__session_array(s, data->capture_count,
                                                                  sizeof(sbit_value_id), &ok);
            for (size_t i = 0; ok && i < data->capture_count; i++) {
                data->captures[i] = captured[i];
            }
        }
        ins = node->input_count > ins ? node->input_count : ins;
        outs = node->output_count > outs ? node->output_count : outs;
    }
    return ok ? sbit__session_make_call(s, ins, outs, error)
              : sbit__fail_oom(error, count * sizeof(sbit__exec_node));
}

SBIT__FN bool sbit__session_has_input(const sbit_session *s, sbit_value_id id)
{
    for (size_t i = 0; i < s->input_count; i++) {
        if (s->inputs[i].idx == id.idx) {
            return true;
        }
    }
    return false;
}

/* An input to feed, with memory for its type, so that feeding it takes none. */
static sbit_status sbit__session_add_input(sbit_session *s, sbit_value_id id, sbit_error *error)
{
    sbit__exec_value *value = sbit__exec_own(s, id.idx);
    if (value != NULL) {
        value->fed_type = (sbit_type *)sbit__arena_alloc(&s->arena, sizeof *value->fed_type);
    }
    if (value == NULL || value->fed_type == NULL) {
        return sbit__fail_oom(error, sizeof *value);
    }
    s->inputs[s->input_count++] = id;
    return SBIT_OK;
}

/* Inputs to feed. */
static sbit_status sbit__session_sources(sbit_session *s, const sbit_session_desc *desc,
                                         const bool *needed, sbit_error *error)
{
    const bool all_inputs = s->parent != NULL || s->program->all_inputs;
    for (size_t i = 0; desc->inputs != NULL && i < desc->input_count; i++) {
        if (!sbit__session_has_input(s, desc->inputs[i])) {
            SBIT__TRY(sbit__session_add_input(s, desc->inputs[i], error));
        }
    }
    for (size_t i = 0; i < sbit_graph_input_count(s->graph); i++) {
        const sbit_value_id id = sbit_graph_input(s->graph, i);
        const sbit_value_info *info = sbit_graph_value(s->graph, id);
        if (!info->is_constant && !info->has_default && (all_inputs || needed[id.idx]) &&
            sbit__state_find(s, id) == NULL && !sbit__session_has_input(s, id)) {
            SBIT__TRY(sbit__session_add_input(s, id, error));
        }
    }
    return SBIT_OK;
}

/* The needed values that are those of the graph around this one. */
static sbit_status sbit__session_captures(sbit_session *s, const bool *needed,
                                          sbit_value_id *captured, sbit_error *error)
{
    bool ok = true;
    for (uint32_t idx = 1; idx < s->value_limit; idx++) {
        sbit_value_id id;
        id.idx = idx;
        if (needed[idx] && sbit_graph_value_alive(s->graph, id) &&
            sbit_graph_value(s->graph, id)->outer.idx != 0) {
            captured[s->capture_count++] = id;
        }
    }
    s->captures =
        (sbit_value_id *)sbit__session_array(s, s->capture_count, sizeof(sbit_value_id), &ok);
    if (!ok) {
        return sbit__fail_oom(error, s->capture_count * sizeof(sbit_value_id));
    }
    memcpy(s->captures, captured, s->capture_count * sizeof(sbit_value_id));
    return SBIT_OK;
}

/* >>making */

/* Which nodes and values there are; `arena`: for what is not kept. */
static sbit_status sbit__session_find(sbit_session *s, const sbit_session_desc *desc,
                                      sbit__arena *arena, sbit_error *error)
{
    bool *needed = (bool *)sbit__arena_array(arena, s->value_limit, sizeof(bool));
    sbit_node_id *order =
        (sbit_node_id *)sbit__arena_array(arena, s->node_limit, sizeof(sbit_node_id));
    sbit_value_id *captured =
        (sbit_value_id *)sbit__arena_array(arena, s->value_limit, sizeof(sbit_value_id));
    if (needed == NULL || order == NULL || captured == NULL) {
        return sbit__fail_oom(error, s->value_limit * sizeof(sbit_value_id));
    }
    const size_t count = sbit__session_needed(s, needed, order, captured);
    SBIT__TRY(sbit__session_nodes(s, count, captured, error));
    SBIT__TRY(sbit__session_sources(s, desc, needed, error));
    return sbit__session_captures(s, needed, captured, error);
}

static sbit_status sbit__session_fill(sbit_session *s, const sbit_session_desc *desc,
                                      sbit_error *error)
{
    const sbit__lowered *lowered = sbit__program_lowered(s->program, s->graph);
    sbit__arena passing;
    s->source = lowered != NULL ? lowered->source : s->graph;
    s->state_count = desc->state_count;
    s->output_count = sbit_graph_output_count(s->graph);
    SBIT__TRY(sbit__session_arrays(s, error));
    sbit__session_targets(s, desc);
    sbit__arena_init(&passing, &s->allocator);
    const sbit_status status = sbit__session_find(s, desc, &passing, error);
    sbit__arena_deinit(&passing);
    SBIT__TRY(status);
    return sbit__state_begin_all(s, error);
}

SBIT__FN sbit_status sbit__session_make(const sbit_program *program, const sbit_graph *graph,
                                        const sbit_session_desc *desc, sbit_session *parent,
                                        sbit__exec_node *parent_node, sbit_session **out,
                                        sbit_error *error)
{
    sbit_ctx *ctx = program->ctx;
    const sbit_allocator *base = parent != NULL ? &parent->allocator : &ctx->allocator;
    sbit_session *s = (sbit_session *)sbit__calloc(base, 1, sizeof *s);
    sbit_session_desc defaults;
    sbit_status status = SBIT_OK;
    if (s == NULL) {
        return sbit__fail_oom(error, sizeof *s);
    }
    memset(&defaults, 0, sizeof defaults);
    if (parent != NULL && parent->tap_bodies) {
        defaults.tap_fn = parent->tap_fn;
        defaults.tap_user = parent->tap_user;
        defaults.tap_all = defaults.tap_bodies = true;
    }
    desc = desc != NULL ? desc : &defaults;
    s->ctx = ctx;
    s->program = program;
    s->graph = graph;
    s->parent = parent;
    s->parent_node = parent_node;
    s->tap_fn = desc->tap_fn;
    s->tap_user = desc->tap_user;
    s->keep_values = desc->keep_values;
    s->tap_bodies = desc->tap_bodies && desc->tap_fn != NULL;
    s->profile = desc->profile;
    s->allocator = *base;
    if (parent == NULL) {
        sbit__meter_init(&s->meter, base, desc->max_bytes, &s->allocator);
        s->meter.bytes = s->meter.peak = sizeof *s;
    }
    sbit__arena_init(&s->arena, &s->allocator);
    sbit__arena_init(&s->plan_arena, &s->allocator);
    s->arena.block_bytes = s->plan_arena.block_bytes = SBIT__EXEC_ARENA;
    status = sbit__session_fill(s, desc, error);
    if (status != SBIT_OK) {
        status = sbit__meter_explain(s, status, error);
        sbit_session_destroy(s);
        return status;
    }
    *out = s;
    return SBIT_OK;
}

/* Plan, parameter blocks, sessions of bodies. */
static void sbit__session_free_nodes(sbit_session *s)
{
    sbit__plan_drop(s);
    for (size_t o = 0; o < s->node_count; o++) {
        sbit__exec_node *node = &s->nodes[o];
        sbit__body_results_free(s, node);
        sbit__exec_free_params(s, node);
        while (node->bodies != NULL) {
            sbit__exec_body *body = node->bodies;
            node->bodies = body->next;
            sbit_session_destroy(body->session);
            sbit__free(&s->allocator, body, sizeof *body);
        }
    }
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

SPARSEBIT_API sbit_status sbit_session_create_for(const sbit_program *program,
                                                  const sbit_session_desc *desc, sbit_session **out,
                                                  sbit_error *error)
{
    sbit_session_desc own = program->desc;
    own.tap_fn = desc != NULL && desc->tap_fn != NULL ? desc->tap_fn : own.tap_fn;
    own.tap_user = desc != NULL && desc->tap_fn != NULL ? desc->tap_user : own.tap_user;
    own.profile = desc != NULL && desc->profile;
    own.max_bytes = desc != NULL ? desc->max_bytes : 0;
    return sbit__session_make(program, program->graph, &own, NULL, NULL, out, error);
}

SPARSEBIT_API void sbit_session_destroy(sbit_session *session)
{
    sbit_allocator allocator;
    if (session == NULL) {
        return;
    }
    allocator = session->parent != NULL ? session->allocator : session->ctx->allocator;
    sbit__session_free_nodes(session);
    for (uint32_t idx = 0; session->values != NULL && idx < session->value_limit; idx++) {
        if (session->values[idx] != NULL && !session->values[idx]->shared) {
            sbit__dynamic_free(session, &session->values[idx]->dynamic);
        }
    }
    for (size_t i = 0; session->result_blocks != NULL && i < session->output_count; i++) {
        sbit__dynamic_free(session, &session->result_blocks[i]);
    }
    for (size_t i = 0; session->states != NULL && i < session->state_count; i++) {
        sbit__dynamic_free(session, &session->states[i].memory);
        sbit__dynamic_free(session, &session->states[i].passing);
    }
    sbit__block_free_all(session, &session->text, &session->dynamic_bytes);
    sbit__free_aligned(&session->allocator, session->scratch, session->scratch_bytes);
    sbit__arena_deinit(&session->plan_arena);
    sbit__arena_deinit(&session->arena);
    sbit_program_destroy(session->owned);
    sbit__free(&allocator, session, sizeof *session);
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

static sbit_status sbit__session_check_input(const sbit_session *s, const sbit_value_info *info,
                                             const sbit_type *type, sbit_error *error)
{
    const sbit_type *declared = &info->type;
    bool fits = type->kind == declared->kind &&
                (declared->dtype == SBIT_UNDEFINED || type->dtype == SBIT_UNDEFINED ||
                 type->dtype == declared->dtype);
    if (fits && type->kind == SBIT_KIND_TENSOR && declared->rank >= 0) {
        fits = type->rank == declared->rank;
        for (int32_t i = 0; fits && i < type->rank; i++) {
            fits = !sbit__dim_known(declared->dims[i]) ||
                   declared->dims[i].value == type->dims[i].value;
        }
    }
    if (!fits) {
        char a[128], b[128];
        sbit__type_describe(s->graph, type, a, sizeof a);
        sbit__type_describe(s->graph, declared, b, sizeof b);
        return sbit__fail(error, SBIT_ERR_SHAPE, info->name,
                          "input '%s' is declared as %s and cannot be %s", info->name, b, a);
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__session_set_type(sbit_session *s, sbit__exec_value *value,
                                            const sbit_type *type, sbit_error *error)
{
    if (value->fed_type == NULL) {
        value->fed_type = (sbit_type *)sbit__arena_alloc(&s->arena, sizeof *type);
    }
    if (value->fed_type == NULL) {
        return sbit__meter_explain(s, sbit__fail_oom(error, sizeof *type), error);
    }
    *value->fed_type = *type;
    value->fed = true;
    return SBIT_OK;
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
    SBIT__TRY(sbit__session_check_input(session, info, &type, error));
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
        if ((value != NULL && value->fed) || info->use_count == 0 ||
            (or_static && sbit__type_static(&info->type))) {
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
    return SBIT_OK;
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
    sbit__block_free_all(s, &copy->items, &s->dynamic_bytes);
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
    memory->scratch_bytes += s->scratch_bytes;
    for (size_t i = 0; i < s->step_count; i++) {
        const size_t bytes = s->steps[i].has_scratch ? s->steps[i].scratch_bytes : 0;
        memory->scratch_bytes = bytes > memory->scratch_bytes ? bytes : memory->scratch_bytes;
    }
    memory->state_bytes += s->state_bytes;
    memory->dynamic_bytes += s->dynamic_peak;
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
    }
}

/* Between quantizers: 8-bit integers in and out, or in and a sum out. */
static bool sbit__session_on_integers(const sbit_session *s, const sbit_node *node)
{
    bool found = strcmp(node->domain, "sbit") == 0 && node->op_type[0] == 'Q';
    const sbit__exec_value *first =
        node->input_count > 0 ? s->values[node->inputs[0].idx] : NULL;
    found = found || (first != NULL &&
                      (first->type.dtype == SBIT_U8 || first->type.dtype == SBIT_I8));
    return found && strcmp(node->op_type, "DequantizeLinear") != 0;
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
    out->reason =
        lowered->reason != NULL && id.idx < lowered->reason_limit ? lowered->reason[id.idx] : NULL;
    if (first.idx != id.idx) {
        out->fused_into = first;
        return;
    }
    while (into.idx != 0 && sbit__lowered_origin(lowered, into).idx == id.idx) {
        const uint32_t at = s->node_at[into.idx];
        const sbit__exec_node *data = at != 0 ? &s->nodes[at - 1] : NULL;
        out->nanoseconds += data != NULL ? data->nanoseconds : 0;
        out->runs += data == NULL || (out->runs > 0 && sbit__session_is_layout(s, into))
                         ? 0
                         : data->runs;
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
