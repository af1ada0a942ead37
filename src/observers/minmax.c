/* minmax.c: the smallest and largest value seen, per tensor or channel. >>observer-minmax
 *
 * Sparsebit's MINMAX. State: bool seen, then min[channels], max[channels].
 */
#include "observers_private.h"

typedef struct sbit__minmax {
    bool seen;
} sbit__minmax;

static float *sbit__minmax_min(void *state)
{
    return (float *)(void *)((char *)state + sizeof(float));
}

static size_t sbit__minmax_state_bytes(const sbit_observer_call *call)
{
    return sizeof(float) * (1u + 2u * (size_t)call->channels);
}

SBIT__FN void sbit__observation_minmax(const sbit_observer_call *call, const sbit_observation *x,
                                       bool join, float *min, float *max)
{
    const sbit_kernels *kernels = sbit__kernels(call->ctx);
    const bool whole = x->channels == 1; /* then everything lies in one run */
    const int64_t outer = whole ? 1 : x->outer;
    const int64_t count = whole ? x->outer * x->inner : x->inner;
    for (int64_t o = 0; o < outer && count > 0; o++) { /* in the order of memory */
        const float *row = x->data + o * x->channels * count;
        const bool first = o == 0 && !join;
        for (int64_t c = 0; c < x->channels; c++) {
            float lo = row[c * count], hi = lo;
            bool finite;
            if (count > 1) {
                kernels->f32_minmax(count, row + c * count, &lo, &hi, &finite);
            }
            min[c] = first || lo < min[c] ? lo : min[c];
            max[c] = first || hi > max[c] ? hi : max[c];
        }
    }
}

static sbit_status sbit__minmax_init(void *state, const sbit_observer_call *call, sbit_error *error)
{
    (void)state; /* zeroed memory is right */
    (void)call;
    (void)error;
    return SBIT_OK;
}

static sbit_status sbit__minmax_observe(void *state, const sbit_observer_call *call,
                                        const sbit_observation *x, sbit_error *error)
{
    sbit__minmax *s = (sbit__minmax *)state;
    float *min = sbit__minmax_min(state);
    (void)error;
    sbit__observation_minmax(call, x, s->seen, min, min + call->channels);
    s->seen = true;
    return SBIT_OK;
}

static sbit_status sbit__minmax_merge(void *state, const void *other,
                                      const sbit_observer_call *call, sbit_error *error)
{
    const sbit__minmax *from = (const sbit__minmax *)other;
    sbit__minmax *to = (sbit__minmax *)state;
    const float *values = (const float *)(const void *)((const char *)other + sizeof(float));
    float *min = sbit__minmax_min(state);
    float *max = min + call->channels;
    (void)error;
    for (int64_t c = 0; from->seen && c < call->channels; c++) {
        const float lo = values[c];
        const float hi = values[call->channels + c];
        min[c] = !to->seen || lo < min[c] ? lo : min[c];
        max[c] = !to->seen || hi > max[c] ? hi : max[c];
    }
    to->seen = to->seen || from->seen;
    return SBIT_OK;
}

static sbit_status sbit__minmax_range(const void *state, const sbit_observer_call *call, float *min,
                                      float *max, sbit_error *error)
{
    const float *values = (const float *)(const void *)((const char *)state + sizeof(float));
    (void)error;
    memcpy(min, values, (size_t)call->channels * sizeof *min);
    memcpy(max, values + call->channels, (size_t)call->channels * sizeof *max);
    return SBIT_OK;
}

static size_t sbit__minmax_save(const void *state, const sbit_observer_call *call, void *bytes,
                                size_t capacity)
{
    const size_t size = sbit__minmax_state_bytes(call);
    if (bytes != NULL && capacity >= size) {
        memcpy(bytes, state, size);
    }
    return size;
}

static sbit_status sbit__minmax_load(void *state, const sbit_observer_call *call, const void *bytes,
                                     size_t size, sbit_error *error)
{
    if (size != sbit__minmax_state_bytes(call)) {
        return sbit__fail(error, SBIT_ERR_PARSE, "minmax", "saved statistics have another size");
    }
    memcpy(state, bytes, size);
    return SBIT_OK;
}

static const sbit_observer_row sbit__minmax_row = {
    "minmax",
    "smallest and largest value seen",
    SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION,
    NULL,
    0,
    sbit__minmax_state_bytes,
    sbit__minmax_init,
    sbit__minmax_observe,
    sbit__minmax_merge,
    sbit__minmax_range,
    NULL,
    sbit__minmax_save,
    sbit__minmax_load,
};

SBIT__FN const sbit_observer_row *sbit__observer_minmax(void)
{
    return &sbit__minmax_row;
}
