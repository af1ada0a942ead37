/* memory.c: offsets of values in one block, shared by values that do not live at the same time.
 * >>memory
 *
 * Called by: plan. Calls: memory_fit.
 * A value lives from the step that makes it to the last step that reads it, both included; results
 * live for ever; the scratch memory of a step lives for that step. A view has its input's memory,
 * and so may the output of a row that allows it when the input dies there; then both are one life.
 * Lives are placed largest first, each at the lowest offset that is free for all its steps.
 */
#include "exec_private.h"

#include <stdlib.h> /* qsort */

static sbit__exec_value *sbit__memory_root(sbit__exec_value *value)
{
    while (value->root != value) {
        value = value->root;
    }
    return value;
}

/* Output 0; NULL: there is none. */
static sbit__exec_value *sbit__memory_output(const sbit__step *step)
{
    const sbit_node *node = step->data->node;
    return node->output_count > 0 ? step->session->values[node->outputs[0].idx] : NULL;
}

static void sbit__memory_read(const sbit_session *session, uint32_t idx, int32_t step)
{
    sbit__exec_value *value = session->values[idx];
    if (value != NULL && !value->shared && value->life.last < step) {
        value->life.last = step;
    }
}

/* First and last step of each value by itself. */
static void sbit__memory_lives(sbit_session *session)
{
    for (size_t s = 0; s < session->step_count; s++) {
        const sbit__exec_node *data = session->steps[s].data;
        const int32_t at = (int32_t)s;
        for (size_t i = 0; i < data->node->input_count; i++) {
            sbit__memory_read(session, data->node->inputs[i].idx, at);
        }
        for (size_t i = 0; i < data->capture_count; i++) {
            sbit__memory_read(session, data->captures[i].idx, at);
        }
        for (size_t i = 0; i < data->node->output_count; i++) {
            const uint32_t idx = data->node->outputs[i].idx;
            if (idx != 0) {
                session->values[idx]->life.first = at;
                sbit__memory_read(session, idx, at);
            }
        }
    }
    for (size_t i = 0; i < session->output_count; i++) {
        sbit__memory_read(session, session->outputs[i].idx, SBIT__EXEC_FOREVER);
    }
    for (size_t i = 0; i < session->state_count; i++) {
        sbit__memory_read(session, session->states[i].output.idx, SBIT__EXEC_FOREVER);
    }
    for (uint32_t idx = 1; session->keep_values && idx < session->value_limit; idx++) {
        sbit__memory_read(session, idx, SBIT__EXEC_FOREVER);
    }
}

/* The output takes over the root's memory. */
static void sbit__memory_join(sbit__step *step, uint32_t input)
{
    sbit__exec_value *root = sbit__memory_root(step->session->values[input]);
    sbit__exec_value *output = sbit__memory_output(step);
    output->root = root;
    if (!root->shared && output->life.last > root->life.last) {
        root->life.last = output->life.last;
    }
    step->alias = input;
}

/* A view may share any memory that stays put while the plan runs; in-place writers look at the
 * root's last use. A result that is a view of the caller's memory is copied after the run. */
static bool sbit__memory_can_view(const sbit__step *step)
{
    const sbit_node *node = step->data->node;
    sbit__exec_value *input =
        node->input_count > 0 ? step->session->values[node->inputs[0].idx] : NULL;
    const sbit__exec_value *output = sbit__memory_output(step);
    const sbit__place place = input != NULL ? sbit__memory_root(input)->place : SBIT__PLACE_NONE;
    return (step->data->row->flags & SBIT_OP_VIEW) != 0 && output->place == SBIT__PLACE_BLOCK &&
           place != SBIT__PLACE_DYNAMIC && place != SBIT__PLACE_NONE &&
           input->type.dtype == output->type.dtype;
}

/* Input `input` of the step can be overwritten by its output. */
static bool sbit__memory_can_overwrite(const sbit__step *step, size_t input, int32_t at)
{
    const sbit__exec_node *data = step->data;
    sbit__exec_value *const *values = step->session->values;
    const uint32_t idx = data->node->inputs[input].idx;
    const sbit__exec_value *root = idx != 0 ? sbit__memory_root(values[idx]) : NULL;
    if (idx == 0 || values[idx]->place != SBIT__PLACE_BLOCK || root->place != SBIT__PLACE_BLOCK ||
        root->life.last != at ||
        !sbit__graph_type_equal(&values[idx]->type, &sbit__memory_output(step)->type)) {
        return false;
    }
    /* Another input that lies in the same memory with another shape would be read too late. */
    for (size_t i = 0; i < data->node->input_count; i++) {
        const uint32_t other = data->node->inputs[i].idx;
        if (other != 0 && other != idx && sbit__memory_root(values[other]) == root) {
            return false;
        }
    }
    for (size_t i = 0; i < data->capture_count; i++) {
        if (sbit__memory_root(values[data->captures[i].idx]) == root) {
            return false;
        }
    }
    return true;
}

static void sbit__memory_share(sbit_session *session)
{
    for (size_t s = 0; s < session->step_count; s++) {
        sbit__step *step = &session->steps[s];
        const sbit_node *node = step->data->node;
        const bool in_place = (step->data->row->flags & SBIT_OP_IN_PLACE) != 0;
        if (sbit__memory_output(step) == NULL) {
            continue;
        }
        if (sbit__memory_can_view(step)) {
            sbit__memory_join(step, node->inputs[0].idx);
            continue;
        }
        if (!in_place || sbit__memory_output(step)->place != SBIT__PLACE_BLOCK) {
            continue;
        }
        for (size_t i = 0; i < node->input_count && step->alias == 0; i++) {
            if (sbit__memory_can_overwrite(step, i, (int32_t)s)) {
                sbit__memory_join(step, node->inputs[i].idx);
            }
        }
    }
}

static int sbit__memory_order(const void *a, const void *b)
{
    const sbit__life *x = *(const sbit__life *const *)a;
    const sbit__life *y = *(const sbit__life *const *)b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static size_t sbit__memory_round(size_t bytes)
{
    return (bytes + SBIT__EXEC_ALIGN - 1) & ~(SBIT__EXEC_ALIGN - 1);
}

/* Bytes of all values of the block. */
static sbit_status sbit__memory_sizes(sbit_session *session, sbit_error *error)
{
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        const sbit_tensor *tensor = NULL;
        size_t bytes = 0;
        int64_t elements = 0;
        sbit_value_id id;
        id.idx = idx;
        if (sbit__exec_place(session, idx) != SBIT__PLACE_BLOCK) {
            continue;
        }
        tensor = &session->values[idx]->value.tensor;
        if (!sbit__dims_count(tensor->dims, (size_t)tensor->rank, &elements) ||
            !sbit__exec_bytes(tensor->dtype, elements, &bytes) || bytes > SIZE_MAX / 2) {
            return sbit__fail(error, SBIT_ERR_LIMIT, sbit_graph_value(session->graph, id)->name,
                              "value '%s' is too large for this machine",
                              sbit_graph_value(session->graph, id)->name);
        }
        session->values[idx]->life.bytes = sbit__memory_round(bytes);
        if (!sbit__add_size(session->unshared_bytes, session->values[idx]->life.bytes,
                            &session->unshared_bytes)) {
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                              "the values are too large for this machine");
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__memory_allocate(sbit_session *session, size_t bytes, sbit_error *error)
{
    if (bytes == 0) {
        return SBIT_OK;
    }
    session->block = sbit__alloc_aligned(&session->allocator, bytes);
    if (session->block == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    session->block_bytes = bytes;
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        if (sbit__exec_place(session, idx) == SBIT__PLACE_BLOCK) {
            const sbit__exec_value *root = sbit__memory_root(session->values[idx]);
            if (root->place == SBIT__PLACE_BLOCK) {
                session->values[idx]->value.tensor.data =
                    (char *)session->block + root->life.offset;
            }
        }
    }
    return SBIT_OK;
}

/* What gets an offset: values that have memory of their own, and the scratch memory of steps, which
 * lives for a step. */
static size_t sbit__memory_list(sbit_session *session, sbit__life **lives)
{
    size_t count = 0;
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        sbit__exec_value *value = session->values[idx];
        if (sbit__exec_place(session, idx) == SBIT__PLACE_BLOCK && value->root == value &&
            value->life.bytes > 0) {
            value->life.rank = idx;
            lives[count++] = &value->life;
        }
    }
    for (size_t s = 0; s < session->step_count; s++) {
        sbit__step *step = &session->steps[s];
        step->has_scratch = !step->late && step->scratch_bytes > 0;
        if (step->has_scratch) {
            step->scratch.rank = session->value_limit + (uint32_t)s;
            step->scratch.first = step->scratch.last = (int32_t)s;
            step->scratch.bytes = sbit__memory_round(step->scratch_bytes);
            lives[count++] = &step->scratch;
        }
    }
    return count;
}

/* The most bytes of lives that meet in one step. */
static sbit_status sbit__memory_least(sbit_session *session, sbit__life *const *lives, size_t count,
                                      sbit__arena *arena, sbit_error *error)
{
    const size_t steps = session->step_count;
    size_t live = 0, *begin = (size_t *)sbit__arena_array(arena, steps + 1, sizeof *begin);
    size_t *end = (size_t *)sbit__arena_array(arena, steps + 1, sizeof *end);
    if (begin == NULL || end == NULL) {
        return sbit__fail_oom(error, steps * sizeof *begin);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t last = (size_t)lives[i]->last;
        begin[lives[i]->first] += lives[i]->bytes;
        end[last < steps ? last : steps] += lives[i]->bytes;
    }
    for (size_t s = 0; s < steps; s++) {
        live += begin[s];
        session->live_bytes = live > session->live_bytes ? live : session->live_bytes;
        live -= end[s];
    }
    return SBIT_OK;
}

static sbit_status sbit__memory_offsets(sbit_session *session, sbit__arena *arena, size_t *bytes,
                                        sbit_error *error)
{
    const size_t limit = session->value_limit + session->step_count;
    sbit__life **lives = (sbit__life **)sbit__arena_array(arena, limit, sizeof *lives);
    size_t count = 0;
    if (lives == NULL) {
        return sbit__fail_oom(error, limit * sizeof *lives);
    }
    count = sbit__memory_list(session, lives);
    SBIT__TRY(sbit__memory_least(session, lives, count, arena, error));
    qsort(lives, count, sizeof lives[0], sbit__memory_order);
    return sbit__memory_fit(lives, count, session->step_count, arena, bytes, error);
}

SBIT__FN sbit_status sbit__plan_memory(sbit_session *session, sbit_error *error)
{
    sbit__arena arena;
    size_t bytes = 0;
    sbit_status status = SBIT_OK;
    sbit__memory_lives(session);
    sbit__memory_share(session);
    SBIT__TRY(sbit__memory_sizes(session, error));
    sbit__arena_init(&arena, &session->allocator);
    status = sbit__memory_offsets(session, &arena, &bytes, error);
    sbit__arena_deinit(&arena);
    return status == SBIT_OK ? sbit__memory_allocate(session, bytes, error) : status;
}
