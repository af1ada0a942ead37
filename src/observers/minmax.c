/* minmax.c: the smallest and largest value seen of each part. >>observer-minmax
 *
 * Sparsebit's MINMAX. State: float seen (0 or 1), min[parts], max[parts].
 */
#include "observers_private.h"

static size_t sbit__minmax_state_bytes(const sbit_observer_call *call)
{
    return sizeof(float) * (1u + 2u * (size_t)call->grid->parts.count);
}

static sbit_status sbit__minmax_init(void *state, const sbit_observer_call *call, sbit_error *error)
{
    (void)state; /* zeroed memory is right */
    (void)call;
    (void)error;
    return SBIT_OK;
}

static void sbit__minmax_join(float *state, int64_t count, const float *min, const float *max)
{
    const bool first = state[0] <= 0.0f;
    float *lo = state + 1, *hi = lo + count;
    for (int64_t p = 0; p < count; p++) {
        lo[p] = first || min[p] < lo[p] ? min[p] : lo[p];
        hi[p] = first || max[p] > hi[p] ? max[p] : hi[p];
    }
    state[0] = 1.0f;
}

static sbit_status sbit__minmax_observe(void *state, const sbit_observer_call *call,
                                        const sbit_observation *x, sbit_error *error)
{
    (void)error;
    sbit__minmax_join((float *)state, call->grid->parts.count, x->min, x->max);
    return SBIT_OK;
}

static sbit_status sbit__minmax_merge(void *state, const void *other,
                                      const sbit_observer_call *call, sbit_error *error)
{
    const float *from = (const float *)other;
    const int64_t count = call->grid->parts.count;
    (void)error;
    if (from[0] > 0.0f) {
        sbit__minmax_join((float *)state, count, from + 1, from + 1 + count);
    }
    return SBIT_OK;
}

static sbit_status sbit__minmax_range(const void *state, const sbit_observer_call *call, float *min,
                                      float *max, sbit_error *error)
{
    const float *values = (const float *)state + 1;
    const size_t count = (size_t)call->grid->parts.count;
    (void)error;
    memcpy(min, values, count * sizeof *min);
    memcpy(max, values + count, count * sizeof *max);
    return SBIT_OK;
}

SBIT__FN size_t sbit__observer_save_flat(const void *state, size_t size, void *bytes,
                                         size_t capacity)
{
    if (bytes != NULL && capacity >= size) {
        memcpy(bytes, state, size);
    }
    return size;
}

SBIT__FN sbit_status sbit__observer_load_flat(void *state, const sbit_observer_call *call,
                                              size_t expected, const void *bytes, size_t size,
                                              sbit_error *error)
{
    if (size != expected) {
        return sbit__fail(error, SBIT_ERR_PARSE, call->name,
                          "tensor '%s': saved statistics have another size (%lu bytes, not %lu)",
                          call->name, (unsigned long)size, (unsigned long)expected);
    }
    memcpy(state, bytes, size);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__observer_damaged(void *state, size_t size, const sbit_observer_call *call,
                                            sbit_error *error)
{
    memset(state, 0, size);
    return sbit__fail(error, SBIT_ERR_PARSE, call->name, "tensor '%s': saved statistics are damaged",
                      call->name);
}

static size_t sbit__minmax_save(const void *state, const sbit_observer_call *call, void *bytes,
                                size_t capacity)
{
    return sbit__observer_save_flat(state, sbit__minmax_state_bytes(call), bytes, capacity);
}

static sbit_status sbit__minmax_load(void *state, const sbit_observer_call *call, const void *bytes,
                                     size_t size, sbit_error *error)
{
    return sbit__observer_load_flat(state, call, sbit__minmax_state_bytes(call), bytes, size,
                                    error);
}

SBIT__FN const sbit_observer_row *sbit__observer_minmax(void)
{
    static const sbit_observer_row row = {
        {"minmax", "smallest and largest value seen", SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION,
         NULL, 0},
        sbit__minmax_state_bytes,
        sbit__minmax_init,
        sbit__minmax_observe,
        NULL,
        sbit__minmax_merge,
        sbit__minmax_range,
        sbit__minmax_save,
        sbit__minmax_load,
        NULL,
    };
    return &row;
}
