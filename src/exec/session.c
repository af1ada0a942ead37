/* session.c: making and destroying sessions: which nodes and values a graph's session has.
 * >>session
 *
 * Called by: body, constants, face. Calls: program, plan, states.
 */
#include "exec_private.h"

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
    s->tapped = (uint32_t *)sbit__session_array(s, s->value_limit, sizeof(uint32_t), &ok);
    s->wanted = (bool *)sbit__session_array(s, s->value_limit, sizeof(bool), &ok);
    s->values = (sbit__exec_value **)sbit__session_array(s, s->value_limit, sizeof(void *), &ok);
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

/* A value as it was computed: before ToFirst brought its channels to the front. */
static sbit_value_id sbit__session_as_it_lies(const sbit_session *s, sbit_value_id id)
{
    const sbit_node *maker = sbit_graph_node(s->graph, sbit_graph_value(s->graph, id)->producer);
    if (maker == NULL || strcmp(maker->domain, "sbit") != 0 ||
        strcmp(maker->op_type, "ToFirst") != 0 || s->tapped[maker->inputs[0].idx] != 0) {
        return id;
    }
    const sbit_dtype dtype = sbit_graph_value(s->graph, maker->inputs[0])->type.dtype;
    return sbit_node_int(maker, "to", 0) == (int64_t)dtype ? maker->inputs[0] : id;
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
        const sbit_value_id id = desc->taps[i];
        s->tapped[i < desc->taps_as_they_lie ? sbit__session_as_it_lies(s, id).idx : id.idx] = id.idx;
    }
    for (uint32_t idx = 1; desc->tap_all && tapped && idx < limit; idx++) {
        s->tapped[idx] = idx;
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
        needed[idx] = s->wanted[idx] || s->tapped[idx] != 0;
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
                                        sbit__exec_node *parent_node, bool late, sbit_session **out,
                                        sbit_error *error)
{
    sbit_ctx *ctx = program->ctx;
    const sbit_allocator *base = parent == NULL ? &ctx->allocator
                                 : late         ? &parent->dynamic
                                                : &parent->allocator;
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
        sbit__meter_init(&s->dynamic_meter, &s->allocator, desc->dynamic_bytes, &s->dynamic);
    } else {
        s->dynamic = parent->dynamic;
    }
    sbit__arena_init(&s->arena, &s->allocator);
    sbit__arena_init(&s->plan_arena, &s->allocator);
    sbit__arena_init(&s->infer_arena, &s->allocator);
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
            sbit__free(body->late ? &s->dynamic : &s->allocator, body, sizeof *body);
        }
    }
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
    sbit__block_free_all(session, &session->text);
    sbit__block_free_spare(session);
    sbit__arena_deinit(&session->plan_arena);
    sbit__arena_deinit(&session->infer_arena);
    sbit__arena_deinit(&session->arena);
    sbit_program_destroy(session->owned);
    sbit__free(&allocator, session, sizeof *session);
}
