/* uniform.c: rounding to the grid that the observer's range gives. >>quantizer-uniform
 *
 * forward: y = (saturate(round_half_even(x / s) + zp) - zp) * s; nothing is learned.
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
    (void)state;
    (void)error;
    sbit__straight_forward(call, x, call->scale, call->zero_point, y);
    return SBIT_OK;
}

static sbit_status sbit__uniform_backward(void *state, const sbit_quantizer_call *call,
                                          const sbit_observation *x, const float *dy, float *dx,
                                          sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__straight_backward(call, x, call->scale, call->zero_point, dy, dx, NULL, NULL);
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
