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

static uint32_t sbit__memory_root(const sbit_session *session, uint32_t idx)
{
    while (session->plan[idx].root != idx) {
        idx = session->plan[idx].root;
    }
    return idx;
}

/* Output 0; 0: there is none. */
static uint32_t sbit__memory_output(const sbit__step *step)
{
    return step->node->output_count > 0 ? step->node->outputs[0].idx : 0;
}

static void sbit__memory_read(sbit_session *session, uint32_t idx, int32_t step)
{
    if (session->plan[idx].last < step) {
        session->plan[idx].last = step;
    }
}

/* First and last step of each value by itself. */
static void sbit__memory_lives(sbit_session *session)
{
    for (size_t s = 0; s < session->step_count; s++) {
        const sbit__step *step = &session->steps[s];
        const int32_t at = (int32_t)s;
        for (size_t i = 0; i < step->node->input_count; i++) {
            sbit__memory_read(session, step->node->inputs[i].idx, at);
        }
        for (size_t i = 0; i < step->data->capture_count; i++) {
            sbit__memory_read(session, step->data->captures[i].idx, at);
        }
        for (size_t i = 0; i < step->node->output_count; i++) {
            const uint32_t idx = step->node->outputs[i].idx;
            session->plan[idx].first = at;
            sbit__memory_read(session, idx, at);
        }
    }
    for (size_t i = 0; i < session->output_count; i++) {
        session->plan[session->outputs[i].idx].last = SBIT__EXEC_FOREVER;
    }
    for (size_t i = 0; i < session->state_count; i++) {
        session->plan[session->states[i].output.idx].last = SBIT__EXEC_FOREVER;
    }
    for (uint32_t idx = 1; session->keep_values && idx < session->value_limit; idx++) {
        session->plan[idx].last = SBIT__EXEC_FOREVER;
    }
}

/* The output takes over the root's memory. */
static void sbit__memory_join(sbit_session *session, sbit__step *step, uint32_t input)
{
    sbit__exec_value *root = &session->plan[sbit__memory_root(session, input)];
    sbit__exec_value *output = &session->plan[sbit__memory_output(step)];
    output->root = sbit__memory_root(session, input);
    root->last = output->last > root->last ? output->last : root->last;
    step->alias = input;
}

/* A view may share any memory that stays put while the plan runs; in-place writers look at the
 * root's last use. A result that is a view of the caller's memory is copied after the run. */
static bool sbit__memory_can_view(const sbit_session *session, const sbit__step *step)
{
    const uint32_t input = step->node->input_count > 0 ? step->node->inputs[0].idx : 0;
    const sbit__place place = session->plan[sbit__memory_root(session, input)].place;
    return (step->data->row->flags & SBIT_OP_VIEW) != 0 && input != 0 &&
           session->plan[sbit__memory_output(step)].place == SBIT__PLACE_BLOCK &&
           step->call.in_type[0]->dtype == step->call.out_type[0]->dtype &&
           place != SBIT__PLACE_DYNAMIC && place != SBIT__PLACE_NONE;
}

/* Input `input` of the step can be overwritten by its output. */
static bool sbit__memory_can_overwrite(const sbit_session *session, const sbit__step *step,
                                       size_t input, int32_t at)
{
    const uint32_t idx = step->node->inputs[input].idx;
    const uint32_t root = sbit__memory_root(session, idx);
    if (idx == 0 || session->plan[idx].place != SBIT__PLACE_BLOCK ||
        session->plan[root].place != SBIT__PLACE_BLOCK || session->plan[root].last != at ||
        !sbit__graph_type_equal(step->call.in_type[input], step->call.out_type[0])) {
        return false;
    }
    /* Another input that lies in the same memory with another shape would be read too late. */
    for (size_t i = 0; i < step->node->input_count; i++) {
        const uint32_t other = step->node->inputs[i].idx;
        if (other != 0 && other != idx && sbit__memory_root(session, other) == root) {
            return false;
        }
    }
    for (size_t i = 0; i < step->data->capture_count; i++) {
        if (sbit__memory_root(session, step->data->captures[i].idx) == root) {
            return false;
        }
    }
    return true;
}

static void sbit__memory_share(sbit_session *session)
{
    for (size_t s = 0; s < session->step_count; s++) {
        sbit__step *step = &session->steps[s];
        const bool in_place = (step->data->row->flags & SBIT_OP_IN_PLACE) != 0;
        if (sbit__memory_output(step) == 0) {
            continue;
        }
        if (sbit__memory_can_view(session, step)) {
            sbit__memory_join(session, step, step->node->inputs[0].idx);
            continue;
        }
        if (!in_place || session->plan[sbit__memory_output(step)].place != SBIT__PLACE_BLOCK) {
            continue;
        }
        for (size_t i = 0; i < step->node->input_count && step->alias == 0; i++) {
            if (sbit__memory_can_overwrite(session, step, i, (int32_t)s)) {
                sbit__memory_join(session, step, step->node->inputs[i].idx);
            }
        }
    }
}

static int sbit__memory_order(const void *a, const void *b)
{
    const sbit__exec_value *x = *(const sbit__exec_value *const *)a;
    const sbit__exec_value *y = *(const sbit__exec_value *const *)b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->root < y->root ? -1 : x->root > y->root;
}

/* Bytes of all values of the block. */
static sbit_status sbit__memory_sizes(sbit_session *session, sbit_error *error)
{
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        sbit__exec_value *value = &session->plan[idx];
        const sbit_tensor *tensor = &session->values[idx].tensor;
        int64_t elements = 0;
        sbit_value_id id;
        id.idx = idx;
        if (value->place != SBIT__PLACE_BLOCK) {
            continue;
        }
        if (!sbit__dims_count(tensor->dims, (size_t)tensor->rank, &elements) ||
            !sbit__exec_bytes(tensor->dtype, elements, &value->bytes) ||
            value->bytes > SIZE_MAX / 2) {
            return sbit__fail(error, SBIT_ERR_LIMIT, sbit_graph_value(session->graph, id)->name,
                              "value '%s' is too large for this machine",
                              sbit_graph_value(session->graph, id)->name);
        }
        value->bytes = (value->bytes + SBIT__EXEC_ALIGN - 1) & ~(SBIT__EXEC_ALIGN - 1);
        if (!sbit__add_size(session->unshared_bytes, value->bytes, &session->unshared_bytes)) {
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                              "the values are too large for this machine");
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__memory_allocate(sbit_session *session, size_t bytes, sbit_error *error)
{
    if (bytes > 0) {
        session->block = sbit__alloc_aligned(&session->allocator, bytes);
        if (session->block == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        session->block_bytes = bytes;
    }
    for (size_t i = 0; i < session->step_count; i++) {
        sbit__step *step = &session->steps[i];
        if (!step->late && step->scratch_bytes > 0) {
            step->has_scratch = true;
            step->call.scratch = (char *)session->block + step->scratch_at;
        }
    }
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        const sbit__exec_value *root = NULL;
        if (session->plan[idx].place != SBIT__PLACE_BLOCK) {
            continue;
        }
        root = &session->plan[sbit__memory_root(session, idx)];
        if (root->place == SBIT__PLACE_BLOCK && session->block != NULL) {
            session->values[idx].tensor.data = (char *)session->block + root->offset;
        }
    }
    return SBIT_OK;
}

/* What gets an offset: values that have memory of their own, and the scratch memory of steps, which
 * lives for a step. Entry i of `all` is value i, behind them come the steps. */
static size_t sbit__memory_list(const sbit_session *session, sbit__exec_value *all,
                                sbit__exec_value **lives)
{
    size_t count = 0;
    memcpy(all, session->plan, session->value_limit * sizeof *all);
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        if (all[idx].place == SBIT__PLACE_BLOCK && all[idx].root == idx && all[idx].bytes > 0) {
            lives[count++] = &all[idx];
        }
    }
    for (size_t s = 0; s < session->step_count; s++) {
        sbit__exec_value *scratch = &all[session->value_limit + s];
        if (!session->steps[s].late && session->steps[s].scratch_bytes > 0) {
            scratch->root = session->value_limit + (uint32_t)s;
            scratch->first = scratch->last = (int32_t)s;
            scratch->bytes =
                (session->steps[s].scratch_bytes + SBIT__EXEC_ALIGN - 1) & ~(SBIT__EXEC_ALIGN - 1);
            lives[count++] = scratch;
        }
    }
    return count;
}

static sbit_status sbit__memory_offsets(sbit_session *session, sbit__arena *arena, size_t *bytes,
                                        sbit_error *error)
{
    const size_t limit = session->value_limit + session->step_count;
    sbit__exec_value *all = (sbit__exec_value *)sbit__arena_array(arena, limit, sizeof *all);
    sbit__exec_value **lives =
        (sbit__exec_value **)sbit__arena_array(arena, limit, sizeof(sbit__exec_value *));
    size_t count = 0;
    if (all == NULL || lives == NULL) {
        return sbit__fail_oom(error, limit * sizeof *all);
    }
    count = sbit__memory_list(session, all, lives);
    qsort(lives, count, sizeof lives[0], sbit__memory_order);
    SBIT__TRY(sbit__memory_fit(all, limit, lives, count, session->step_count, arena, bytes, error));
    for (uint32_t idx = 1; idx < session->value_limit; idx++) {
        session->plan[idx].offset = all[idx].offset;
    }
    for (size_t s = 0; s < session->step_count; s++) {
        session->steps[s].scratch_at = all[session->value_limit + s].offset;
    }
    return SBIT_OK;
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
