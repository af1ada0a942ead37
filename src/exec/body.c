/* body.c: bodies of If, Loop and Scan: a session each, kept with the node that runs it. >>body
 *
 * Called by: rows, through call->run_body. Calls: session, plan, run.
 * A body's session plans again only when the types of its inputs or of what it captures change, so
 * the thousands of iterations of a loop cost no planning. Captured values are passed by reference.
 * A body whose inputs and captured values have known types is planned with the node (plan_body).
 * Results are copied out, because the next call overwrites the session's memory; a copy that is
 * passed into the next call is freed when that call returns, so that a loop's state does not pile
 * up; the rest is freed when the node has run.
 */
#include "exec_private.h"

static sbit_status sbit__body_session(sbit_session *session, sbit__exec_node *node,
                                      const sbit_graph *graph, sbit_session **out,
                                      sbit_error *error)
{
    sbit__exec_body *body = node->bodies;
    while (body != NULL && body->graph != graph) {
        body = body->next;
    }
    if (body == NULL) {
        const sbit_allocator *a = session->planned ? &session->dynamic : &session->allocator;
        body = (sbit__exec_body *)sbit__calloc(a, 1, sizeof *body);
        if (body == NULL) {
            return sbit__fail_oom(error, sizeof *body);
        }
        body->late = session->planned;
        body->graph = graph;
        body->next = node->bodies;
        node->bodies = body;
    }
    if (body->session == NULL) {
        SBIT__TRY(sbit__session_make(session->program, graph, NULL, session, node, body->late,
                                     &body->session, error));
        body->session->call.run_body = sbit__exec_run_body;
        body->session->call.plan_body = sbit__exec_plan_body;
    }
    *out = body->session;
    return SBIT_OK;
}

/* Sets inputs and captured values; *changed: the plan does not hold for them. */
static sbit_status sbit__body_feed(sbit_session *body, const sbit_value *const *inputs,
                                   bool *changed, sbit_error *error)
{
    const sbit_session *parent = body->parent;
    *changed = !body->planned || body->parent_serial != parent->plan_serial;
    for (size_t i = 0; i < body->input_count; i++) {
        sbit__exec_value *input = sbit__exec_own(body, body->inputs[i].idx);
        const sbit_type *declared = &sbit_graph_value(body->graph, body->inputs[i])->type;
        const sbit_type type = sbit__type_of_value(inputs[i], declared);
        if (input == NULL) {
            return sbit__fail_oom(error, sizeof *input);
        }
        *changed = *changed || !input->fed || !sbit__graph_type_equal(&type, input->fed_type);
        SBIT__TRY(sbit__session_set_type(body, input, &type, error));
        input->value = *inputs[i];
    }
    for (size_t i = 0; i < body->capture_count && !*changed; i++) {
        sbit__exec_value *inner = body->values[body->captures[i].idx];
        const sbit__exec_value *outer =
            parent->values[sbit_graph_value(body->graph, body->captures[i])->outer.idx];
        if (!inner->shared) {
            const sbit_type type = sbit__type_of_value(&outer->value, &outer->type);
            *changed = !sbit__graph_type_equal(&type, &inner->type);
            inner->value = outer->value;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__body_results(sbit_session *session, sbit__exec_node *node,
                                      const sbit_session *body, sbit_value *outputs,
                                      sbit_error *error)
{
    for (size_t i = 0; i < body->output_count; i++) {
        sbit__body_result *result = sbit__body_result_make(session);
        if (result == NULL) {
            return sbit__fail_oom(error, sizeof *result);
        }
        result->next = node->results;
        result->call = node->body_calls;
        node->results = result;
        SBIT__TRY(sbit__value_copy(session, &result->blocks,
                                   &body->values[body->outputs[i].idx]->value, &outputs[i], error));
        result->key = outputs[i].kind == SBIT_KIND_TENSOR ? outputs[i].tensor.data
                                                          : (const void *)outputs[i].items;
    }
    return SBIT_OK;
}

/* Results of the call before that come back as inputs die with this call. */
static void sbit__body_mark(sbit__exec_node *node, const sbit_value *const *inputs, size_t count)
{
    for (sbit__body_result *r = node->results; r != NULL && r->call + 1 == node->body_calls;
         r = r->next) {
        for (size_t i = 0; i < count; i++) {
            const void *key = inputs[i]->kind == SBIT_KIND_TENSOR ? inputs[i]->tensor.data
                                                                  : (const void *)inputs[i]->items;
            r->consumed = r->consumed || (key != NULL && key == r->key);
        }
    }
}

static void sbit__body_sweep(sbit_session *session, sbit__exec_node *node)
{
    sbit__body_result **link = &node->results;
    while (*link != NULL && (*link)->call + 1 >= node->body_calls) {
        sbit__body_result *result = *link;
        if (result->consumed) {
            *link = result->next;
            sbit__body_result_free(session, result);
        } else {
            link = &result->next;
        }
    }
}

/* Whether the types of what a body captures are known before it runs. */
static bool sbit__body_captures_known(const sbit_session *body)
{
    for (size_t i = 0; i < body->capture_count; i++) {
        const uint32_t outer = sbit_graph_value(body->graph, body->captures[i])->outer.idx;
        if (!sbit__type_static(&body->parent->values[outer]->type)) {
            return false;
        }
    }
    return true;
}

/* Spare blocks for what a body gives: results of a round, of the one before if there are rounds,
 * and what the node makes of them, which it holds when the others are spare again. */
static sbit_status sbit__body_reserve(sbit_session *session, const sbit__exec_node *node,
                                      const sbit_session *body, sbit_error *error)
{
    const int rounds = body->input_count > 0 ? 2 : 1;
    sbit__exec_block *blocks = NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < body->output_count; i++) {
        const sbit_type *type = &body->values[body->outputs[i].idx]->type;
        size_t bytes = 0;
        if (!sbit__type_static(type) || type->kind != SBIT_KIND_TENSOR ||
            !sbit__exec_bytes(type->dtype, sbit__type_elements(type), &bytes)) {
            continue;
        }
        for (int k = 0; ok && k < rounds; k++) {
            ok = sbit__block_add(session, &blocks, bytes) != NULL &&
                 sbit__block_add(session, &blocks, sizeof(sbit__body_result)) != NULL;
        }
        if (ok && node->bodies->next == NULL) { /* once for both branches */
            sbit__exec_block *held = sbit__block_make(&session->dynamic, bytes);
            ok = held != NULL;
            if (ok) {
                held->next = blocks;
                blocks = held;
            }
        }
    }
    sbit__block_free_all(session, &blocks);
    return ok ? SBIT_OK : sbit__fail_oom(error, 0);
}

SBIT__FN sbit_status sbit__exec_plan_body(const sbit_op_call *call, const sbit_graph *graph,
                                          const sbit_type *const *inputs, size_t input_count,
                                          sbit_error *error)
{
    sbit__step *step = (sbit__step *)call->session;
    sbit_session *body = NULL;
    sbit_status status = SBIT_OK;
    for (size_t i = 0; i < input_count; i++) {
        if (!sbit__type_static(inputs[i])) {
            return SBIT_OK;
        }
    }
    if (step->late) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__body_session(step->session, step->data, graph, &body, error));
    if (input_count != body->input_count || !sbit__body_captures_known(body)) {
        return SBIT_OK;
    }
    for (size_t i = 0; i < input_count; i++) {
        sbit__exec_value *input = body->values[body->inputs[i].idx];
        SBIT__TRY(sbit__session_set_type(body, input, inputs[i], error));
        memset(&input->value, 0, sizeof input->value);
        sbit__tensor_of_type(inputs[i], &input->value.tensor);
    }
    status = sbit__plan_make(body, error);
    return status == SBIT_OK ? sbit__body_reserve(step->session, step->data, body, error)
           : status == SBIT_ERR_OUT_OF_MEMORY ? status
                                              : SBIT_OK;
}

SBIT__FN sbit_status sbit__exec_run_body(const sbit_op_call *call, const sbit_graph *graph,
                                         const sbit_value *const *inputs, size_t input_count,
                                         sbit_value *outputs, size_t output_count,
                                         sbit_error *error)
{
    sbit__step *step = (sbit__step *)call->session;
    sbit_session *session = step->session, *body = NULL;
    sbit__exec_node *node = step->data;
    bool changed = false;
    SBIT__TRY(sbit__body_session(session, node, graph, &body, error));
    if (input_count != body->input_count || output_count != body->output_count) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "the body has %lu inputs and %lu outputs, not %lu and %lu",
                            (unsigned long)body->input_count, (unsigned long)body->output_count,
                            (unsigned long)input_count, (unsigned long)output_count);
    }
    node->body_calls++;
    sbit__body_mark(node, inputs, input_count);
    SBIT__TRY(sbit__body_feed(body, inputs, &changed, error));
    if (changed) {
        SBIT__TRY(sbit__plan_make(body, error));
    }
    SBIT__TRY(sbit__exec_steps(body, error));
    SBIT__TRY(sbit__body_results(session, node, body, outputs, error));
    sbit__body_sweep(session, node);
    return SBIT_OK;
}
