/* run.c: the loop over a plan's steps, with taps and the profile. >>run
 *
 * Called by: session, body. Calls: step.
 */
#include "exec_private.h"

static sbit_status sbit__exec_tap(sbit_session *session, uint32_t idx, sbit_error *error)
{
    sbit_value_id id;
    id.idx = session->tapped[idx];
    return session->tap_fn(session->source, id, &session->values[idx]->value, session->tap_user,
                           error);
}

/* Inputs, and values that the plan knows without running. */
static sbit_status sbit__exec_tap_first(sbit_session *session, sbit_error *error)
{
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        const sbit__place place = sbit__exec_place(session, idx);
        sbit_value_id id;
        id.idx = idx;
        if (session->tapped[idx] != 0 && (place == SBIT__PLACE_INPUT || place == SBIT__PLACE_CAPTURED ||
                                     (place == SBIT__PLACE_CONSTANT &&
                                      !sbit_graph_value(session->graph, id)->is_constant))) {
            SBIT__TRY(sbit__exec_tap(session, idx, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__exec_steps(sbit_session *session, sbit_error *error)
{
    sbit__block_free_all(session, &session->text);
    if (session->has_taps) {
        SBIT__TRY(sbit__exec_tap_first(session, error));
    }
    for (size_t s = 0; s < session->step_count; s++) {
        sbit__step *step = &session->steps[s];
        const uint64_t start = session->profile ? sbit__now_ns() : 0;
        SBIT__TRY(sbit__step_run(step, error));
        if (session->profile) {
            step->data->nanoseconds += sbit__now_ns() - start;
            step->data->runs++;
        }
        for (size_t i = 0; step->tapped && i < step->data->node->output_count; i++) {
            const uint32_t idx = step->data->node->outputs[i].idx;
            if (idx != 0 && session->tapped[idx] != 0) {
                SBIT__TRY(sbit__exec_tap(session, idx, error));
            }
        }
    }
    return SBIT_OK;
}
