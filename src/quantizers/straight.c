/* straight.c: fake quantization and its straight-through gradients (algorithms: section 1.4).
 * >>quantizer-straight-through
 *
 * Called by: the rows, whose parameters are the scale and zero point. With r = x / s and
 * v = round(r) + zp before it is clamped to qmin..qmax, and upstream gradient g:
 *     dx   g inside, else 0
 *     ds   sum of g * (round(r) - r) inside, g * (qmin - zp) below, g * (qmax - zp) above
 *     dzp  sum of -s * g outside
 */
#include "quantizers_private.h"

SBIT__FN void sbit__straight_forward(const sbit_quantizer_call *call, const sbit_observation *x,
                                     const float *scale, const int32_t *zero_point, float *y)
{
    const sbit_kernels *kernels = sbit__kernels(call->ctx);
    const sbit_grid *grid = call->grid;
    sbit_runs runs = sbit_runs_of(&x->parts);
    while (sbit_runs_next(&runs)) {
        kernels->f32_fake_quantize(runs.count, x->data + runs.at, scale[runs.part],
                                   zero_point[runs.part], grid->qmin, grid->qmax, y + runs.at);
    }
}

SBIT__FN void sbit__straight_backward(const sbit_quantizer_call *call, const sbit_observation *x,
                                      const float *scale, const int32_t *zero_point,
                                      const float *dy, float *dx, double *dscale, double *dzero)
{
    const float qmin = (float)call->grid->qmin, qmax = (float)call->grid->qmax;
    sbit_runs runs = sbit_runs_of(&x->parts);
    while (sbit_runs_next(&runs)) {
        const float s = scale[runs.part], zp = (float)zero_point[runs.part];
        double sum_scale = 0.0, sum_zero = 0.0;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const float ratio = x->data[i] / s;
            const float whole = nearbyintf(ratio);
            const float v = whole + zp;
            const double g = (double)dy[i];
            const bool inside = v >= qmin && v <= qmax;
            sum_scale += inside     ? g * ((double)whole - (double)ratio)
                         : v < qmin ? g * ((double)qmin - (double)zp)
                                    : g * ((double)qmax - (double)zp);
            sum_zero -= inside ? 0.0 : g * (double)s;
            dx[i] = inside ? dy[i] : 0.0f;
        }
        if (dscale != NULL) {
            dscale[runs.part] += sum_scale;
        }
        if (dzero != NULL) {
            dzero[runs.part] += sum_zero;
        }
    }
}

/* >>rows whose grid is the call's: nothing is learned. */
SBIT__FN sbit_status sbit__straight_row_forward(void *state, const sbit_quantizer_call *call,
                                                const sbit_observation *x, float *y,
                                                sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__straight_forward(call, x, call->scale, call->zero_point, y);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__straight_row_backward(void *state, const sbit_quantizer_call *call,
                                                 const sbit_observation *x, const float *dy,
                                                 float *dx, sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__straight_backward(call, x, call->scale, call->zero_point, dy, dx, NULL, NULL);
    return SBIT_OK;
}
