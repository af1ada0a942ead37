/* moving_average.c: exponential moving average of each sample's range. >>observer-moving-average
 *
 * Sparsebit's MOVING_AVERAGE: samples (axis 0) in the order fed; the first one initialises, then
 * max = r max + (1 - r) sample_max, min alike, r = EMA_RATIO. Per tensor only, activations only.
 * State: bool seen, then min, max.
 */
#include "observers_private.h"

typedef struct sbit__moving_average {
    bool seen;
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
    if (call->channels != 1) {
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
    (void)error;
    for (int64_t i = 0; i < x->samples; i++) {
        sbit_observation sample = *x;
        float min = 0.0f, max = 0.0f;
        sample.outer = x->outer / x->samples;
        sample.data = x->data + i * sample.outer * x->inner;
        sbit__observation_minmax(call, &sample, false, &min, &max);
        s->min = s->seen ? keep * s->min + (1.0f - keep) * min : min;
        s->max = s->seen ? keep * s->max + (1.0f - keep) * max : max;
        s->seen = true;
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

static const sbit_observer_row sbit__moving_average_row = {
    "moving_average",
    "exponential moving average of each sample's range",
    SBIT_TARGET_ACTIVATION,
    sbit__moving_average_keys,
    SBIT__COUNT_OF(sbit__moving_average_keys),
    sbit__moving_average_state_bytes,
    sbit__moving_average_init,
    sbit__moving_average_observe,
    NULL, /* an average in order has no merge */
    sbit__moving_average_range,
    NULL,
    NULL,
    NULL,
};

SBIT__FN const sbit_observer_row *sbit__observer_moving_average(void)
{
    return &sbit__moving_average_row;
}
