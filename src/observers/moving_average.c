/* moving_average.c: exponential moving average of each sample's range. >>observer-moving-average
 *
 * Sparsebit's MOVING_AVERAGE: samples (axis 0) in the order fed; the first one initialises, then
 * max = r max + (1 - r) sample_max, min alike, r = EMA_RATIO. Per tensor only, activations only.
 */
#include "observers_private.h"

typedef struct sbit__moving_average {
    float seen; /* 0 or 1 */
    float min, max;
} sbit__moving_average;

static const sbit_key sbit__moving_average_keys[] = {
    {"MOVING_AVERAGE.EMA_RATIO", SBIT_KEY_FLOAT, "0.9", 0.0, 1.0, NULL,
     "weight of the past against each new sample"},
};

static size_t sbit__moving_average_state_bytes(const sbit_observer_call *call)
{
    (void)call;
    return sizeof(sbit__moving_average);
}

static sbit_status sbit__moving_average_init(void *state, const sbit_observer_call *call,
                                             sbit_error *error)
{
    (void)state;
    if (call->grid->parts.count != 1) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "OBSERVER.TYPE",
                          "moving_average works per tensor only; use a per-tensor QSCHEME");
    }
    return SBIT_OK;
}

static sbit_status sbit__moving_average_observe(void *state, const sbit_observer_call *call,
                                                const sbit_observation *x, sbit_error *error)
{
    sbit__moving_average *s = (sbit__moving_average *)state;
    const float keep =
        (float)sbit_options_float(call->options, "OBSERVER.MOVING_AVERAGE.EMA_RATIO");
    const int64_t each = sbit_parts_elements(&x->parts) / x->samples;
    (void)error;
    for (int64_t i = 0; i < x->samples; i++) {
        float min = x->min[0], max = x->max[0];
        bool finite;
        if (x->samples > 1) {
            sbit__kernels(call->ctx)->f32_minmax(each, x->data + i * each, &min, &max, &finite);
        }
        s->min = s->seen > 0.0f ? keep * s->min + (1.0f - keep) * min : min;
        s->max = s->seen > 0.0f ? keep * s->max + (1.0f - keep) * max : max;
        s->seen = 1.0f;
    }
    return SBIT_OK;
}

static sbit_status sbit__moving_average_range(const void *state, const sbit_observer_call *call,
                                              float *min, float *max, sbit_error *error)
{
    const sbit__moving_average *s = (const sbit__moving_average *)state;
    (void)call;
    (void)error;
    *min = s->min;
    *max = s->max;
    return SBIT_OK;
}

static size_t sbit__moving_average_save(const void *state, const sbit_observer_call *call,
                                        void *bytes, size_t capacity)
{
    (void)call;
    return sbit__observer_save_flat(state, sizeof(sbit__moving_average), bytes, capacity);
}

static sbit_status sbit__moving_average_load(void *state, const sbit_observer_call *call,
                                             const void *bytes, size_t size, sbit_error *error)
{
    return sbit__observer_load_flat(state, call, sizeof(sbit__moving_average), bytes, size, error);
}

SBIT__FN const sbit_observer_row *sbit__observer_moving_average(void)
{
    static const sbit_observer_row row = {
        {"moving_average", "exponential moving average of each sample's range",
         SBIT_TARGET_ACTIVATION, sbit__moving_average_keys,
         SBIT__COUNT_OF(sbit__moving_average_keys)},
        sbit__moving_average_state_bytes,
        sbit__moving_average_init,
        sbit__moving_average_observe,
        NULL,
        NULL, /* an average in order has no merge */
        sbit__moving_average_range,
        sbit__moving_average_save,
        sbit__moving_average_load,
        NULL,
    };
    return &row;
}
