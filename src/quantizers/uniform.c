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
        sbit__straight_row_forward,
        sbit__straight_row_backward,
        NULL,
        NULL,
        NULL,
        NULL,
    };
    return &row;
}
