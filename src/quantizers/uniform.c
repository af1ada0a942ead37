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
    const sbit_grid *grid = call->grid;
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)state;
    (void)error;
    while (sbit_runs_next(&runs)) {
        kernels->f32_fake_quantize(runs.count, x->data + runs.at, call->scale[runs.part],
                                   call->zero_point[runs.part], grid->qmin, grid->qmax,
                                   y + runs.at);
    }
    return SBIT_OK;
}

static sbit_status sbit__uniform_backward(void *state, const sbit_quantizer_call *call,
                                          const sbit_observation *x, const float *dy, float *dx,
                                          sbit_error *error)
{
    const float qmin = (float)call->grid->qmin, qmax = (float)call->grid->qmax;
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)state;
    (void)error;
    while (sbit_runs_next(&runs)) {
        const float scale = call->scale[runs.part];
        const float zp = (float)call->zero_point[runs.part];
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const float q = nearbyintf(x->data[i] / scale) + zp;
            dx[i] = q >= qmin && q <= qmax ? dy[i] : 0.0f;
        }
    }
    return SBIT_OK;
}

SBIT__FN const sbit_quantizer_row *sbit__quantizer_uniform(void)
{
    static const sbit_quantizer_row row = {
        {"uniform", "round to the grid of the observer's range",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, NULL, 0},
        sbit__uniform_state_bytes,
        NULL,
        NULL,
        sbit__uniform_init,
        sbit__uniform_forward,
        sbit__uniform_backward,
        NULL,
        NULL,
        NULL,
    };
    return &row;
}
