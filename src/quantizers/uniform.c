/* uniform.c: rounding to the grid that the observer's range gives. >>quantizer-uniform
 *
 * forward: y = (saturate(round_half_even(x / s) + zp) - zp) * s (algorithms: section 1.4).
 * backward: dx = dy where the rounded value lies in qmin..qmax, else 0 (straight through).
 */
#include "quantizers_private.h"

static size_t sbit__uniform_state_bytes(const sbit_quantizer_call *call)
{
    (void)call;
    return 0;
}

static sbit_status sbit__uniform_init(void *state, const sbit_quantizer_call *call,
                                      const sbit_observation *x, sbit_error *error)
{
    (void)state;
    (void)call; /* scale and zero point stay as they came */
    (void)x;
    (void)error;
    return SBIT_OK;
}

static sbit_status sbit__uniform_forward(void *state, const sbit_quantizer_call *call,
                                         const sbit_observation *x, float *y, sbit_error *error)
{
    const sbit_kernels *kernels = sbit__kernels(call->ctx);
    (void)state;
    (void)error;
    for (int64_t o = 0; o < x->outer; o++) {
        for (int64_t c = 0; c < x->channels; c++) {
            const int64_t at = (o * x->channels + c) * x->inner;
            const int64_t k = call->channels == 1 ? 0 : c;
            kernels->f32_fake_quantize(x->inner, x->data + at, call->scale[k], call->zero_point[k],
                                       call->qmin, call->qmax, y + at);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__uniform_backward(void *state, const sbit_quantizer_call *call,
                                          const sbit_observation *x, const float *dy, float *dx,
                                          sbit_error *error)
{
    (void)state;
    (void)error;
    for (int64_t o = 0; o < x->outer; o++) {
        for (int64_t c = 0; c < x->channels; c++) {
            const int64_t at = (o * x->channels + c) * x->inner;
            const int64_t k = call->channels == 1 ? 0 : c;
            const float zp = (float)call->zero_point[k];
            for (int64_t i = at; i < at + x->inner; i++) {
                const float q = nearbyintf(x->data[i] / call->scale[k]) + zp;
                const bool inside = q >= (float)call->qmin && q <= (float)call->qmax;
                dx[i] = inside ? dy[i] : 0.0f;
            }
        }
    }
    return SBIT_OK;
}

static const sbit_quantizer_row sbit__uniform_row = {
    "uniform",
    "round to the grid of the observer's range",
    SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION,
    NULL,
    0,
    sbit__uniform_state_bytes,
    NULL,
    sbit__uniform_init,
    sbit__uniform_forward,
    sbit__uniform_backward,
    NULL,
    NULL,
};

SBIT__FN const sbit_quantizer_row *sbit__quantizer_uniform(void)
{
    return &sbit__uniform_row;
}
