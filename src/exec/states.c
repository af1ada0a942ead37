/* states.c: values that a session carries from the end of a run to the begin of the next. >>states
 *
 * Called by: session, face. Calls: storage.
 * A state's input is fed from memory of the session, so that setting it copies.
 */
#include "exec_private.h"

SBIT__FN sbit__exec_state *sbit__state_find(const sbit_session *s, sbit_value_id input)
{
    for (size_t i = 0; i < s->state_count; i++) {
        if (s->states[i].input.idx == input.idx) {
            return &s->states[i];
        }
    }
    return NULL;
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

SBIT__FN sbit_status sbit__state_set(sbit_session *s, sbit__exec_state *state,
                                     const sbit_tensor *tensor, sbit_error *error)
{
    sbit_tensor copy;
    const sbit_type type = sbit__type_of_tensor(tensor);
    sbit__exec_value *input = NULL;
    if (tensor->dtype == SBIT_STRING) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED,
                          sbit_graph_value(s->graph, state->input)->name,
                          "state '%s': strings are not carried from run to run",
                          sbit_graph_value(s->graph, state->input)->name);
    }
    SBIT__TRY(sbit__dynamic_tensor(s, &state->memory, tensor->dtype, tensor->rank, tensor->dims,
                                   &copy, error));
    if (tensor->data != NULL && tensor->data != copy.data) {
        memcpy(copy.data, tensor->data, sbit_tensor_bytes(tensor));
    } else if (tensor->data == NULL) {
        memset(copy.data, 0, sbit_tensor_bytes(tensor));
    }
    input = sbit__exec_own(s, state->input.idx);
    if (input == NULL) {
        return sbit__fail_oom(error, sizeof *input);
    }
    s->stale = s->stale || !s->planned || !sbit__graph_type_equal(&type, &input->type);
    SBIT__TRY(sbit__session_set_type(s, input, &type, error));
    memset(&input->value, 0, sizeof input->value);
    input->value.tensor = copy;
    state->set = true;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__state_begin_all(sbit_session *s, sbit_error *error)
{
    for (size_t i = 0; i < s->state_count; i++) {
        sbit__exec_state *state = &s->states[i];
        const sbit_value_info *info = sbit_graph_value(s->source, state->input);
        sbit_tensor tensor = info->constant;
        sbit__dynamic_set_constant(s, &state->memory, true);
        sbit__dynamic_set_constant(s, &state->passing, true);
        if (sbit__state_find(s, state->input) != state ||
            sbit__session_has_input(s, state->input)) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, info->name,
                              "'%s' is carried into twice, or also fed", info->name);
        }
        if (!info->is_constant && !info->has_default) {
            if (info->producer.idx != 0 || !sbit__type_static(&info->type)) {
                continue; /* to be set */
            }
            memset(&tensor, 0, sizeof tensor);
            tensor.dtype = info->type.dtype;
            tensor.rank = info->type.rank;
            for (int32_t d = 0; d < tensor.rank; d++) {
                tensor.dims[d] = info->type.dims[d].value;
            }
        }
        SBIT__TRY(sbit__state_set(s, state, &tensor, error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__state_reserve_all(sbit_session *s, sbit_error *error)
{
    for (size_t i = 0; i < s->state_count; i++) {
        sbit__exec_state *state = &s->states[i];
        sbit_tensor tensor = s->values[state->input.idx]->value.tensor;
        if (!sbit__exec_owns(s, state->output.idx) && state->output.idx != state->input.idx) {
            SBIT__TRY(sbit__dynamic_tensor(s, &state->passing, tensor.dtype, tensor.rank,
                                           tensor.dims, &tensor, error));
        }
    }
    return SBIT_OK;
}

/* An output that lies in the memory of an input is put aside first: that may be another state. */
static sbit_status sbit__state_check(sbit_session *s, sbit__exec_state *state, sbit_error *error)
{
    const sbit_value *from = &s->values[state->output.idx]->value;
    const sbit_type type = sbit__type_of_value(from, &s->values[state->output.idx]->type);
    const sbit_type *want = s->values[state->input.idx]->fed_type;
    sbit_tensor copy;
    if (from->kind != SBIT_KIND_TENSOR || !sbit__graph_type_equal(&type, want)) {
        char a[96], b[96];
        sbit__type_describe(s->graph, &type, a, sizeof a);
        sbit__type_describe(s->graph, want, b, sizeof b);
        return sbit__fail(error, SBIT_ERR_SHAPE, sbit_graph_value(s->graph, state->input)->name,
                          "state '%s' is %s, but the run gave %s for it",
                          sbit_graph_value(s->graph, state->input)->name, b, a);
    }
    state->from = from->tensor.data;
    if (sbit__exec_owns(s, state->output.idx) || state->from == state->memory.main) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__dynamic_tensor(s, &state->passing, type.dtype, type.rank, from->tensor.dims,
                                   &copy, error));
    memcpy(copy.data, from->tensor.data, sbit_tensor_bytes(&copy));
    state->from = copy.data;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__state_carry_all(sbit_session *s, sbit_error *error)
{
    for (size_t i = 0; i < s->state_count; i++) {
        SBIT__TRY(sbit__state_check(s, &s->states[i], error));
    }
    for (size_t i = 0; i < s->state_count; i++) {
        const sbit__exec_state *state = &s->states[i];
        if (state->from != state->memory.main) {
            memcpy(state->memory.main, state->from,
                   sbit_tensor_bytes(&s->values[state->output.idx]->value.tensor));
        }
    }
    return SBIT_OK;
}
