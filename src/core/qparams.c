/* qparams.c: from a range to scale and zero point. >>qparams
 *
 * The only place in the library that does this (contracts.md section 4); fp32 arithmetic in the
 * order of Sparsebit, so that its numbers come out again.
 */
#include "core_private.h"

#include <math.h> /* floor, log2, exp2, ceil */

/* The smallest normal number whose reciprocal is one too. */
#define SBIT__QPARAMS_MIN_SCALE 1.17549435e-38f

static int32_t sbit__qparams_round_clamp(double value, int32_t qmin, int32_t qmax)
{
    if (value <= (double)qmin) {
        return qmin;
    }
    if (value >= (double)qmax) {
        return qmax;
    }
    const double below = floor(value);
    const double rest = value - below;
    const int32_t low = (int32_t)below;
    if (rest == 0.5) {
        return low + (low & 1); /* half to even */
    }
    return rest > 0.5 ? low + 1 : low;
}

/* Widest range a float can hold divided by the number of steps; the difference itself may not fit
 * in fp32, then the quotient is taken in double. */
static float sbit__qparams_divide(float min, float max, float steps)
{
    const float width = max - min;
    if (width - width == 0.0f) {
        return width / steps;
    }
    return (float)(((double)max - (double)min) / (double)steps);
}

SBIT__FN int32_t sbit__qparams_zero_point(float min, float scale, bool symmetric, int32_t qmin,
                                          int32_t qmax)
{
    const int32_t middle = qmin < 0 ? 0 : (int32_t)(((int64_t)qmin + qmax + 1) / 2);
    const float lo = min < 0.0f ? min : 0.0f;
    return symmetric ? middle
                     : sbit__qparams_round_clamp((double)qmin - (double)(lo / scale), qmin, qmax);
}

SPARSEBIT_API sbit_status sbit_qparams_from_range(const char *name, float min, float max,
                                                  bool symmetric, int32_t qmin, int32_t qmax,
                                                  float *scale, int32_t *zero_point,
                                                  sbit_error *error)
{
    if (qmin >= qmax || scale == NULL || zero_point == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, name, "empty integer range");
    }
    if (min - min != 0.0f || max - max != 0.0f) {
        return sbit__fail(error, SBIT_ERR_NUMERIC, name,
                          "tensor '%s' has a range that is not finite (NaN or infinity)",
                          name != NULL ? name : "");
    }
    const float lo = min < 0.0f ? min : 0.0f;
    const float hi = max > 0.0f ? max : 0.0f;
    const float steps = (float)((double)qmax - (double)qmin);
    if (lo == 0.0f && hi == 0.0f) {
        *scale = 1.0f;
        *zero_point = symmetric ? sbit__qparams_zero_point(0.0f, 1.0f, true, qmin, qmax)
                                : sbit__qparams_round_clamp(0.0, qmin, qmax);
        return SBIT_OK;
    }
    const float bound = -lo > hi ? -lo : hi;
    float s = symmetric ? sbit__qparams_divide(-bound, bound, steps)
                        : sbit__qparams_divide(lo, hi, steps);
    s = s > SBIT__QPARAMS_MIN_SCALE ? s : SBIT__QPARAMS_MIN_SCALE;
    *scale = s;
    *zero_point = sbit__qparams_zero_point(lo, s, symmetric, qmin, qmax);
    return SBIT_OK;
}

/* The next power of two, upwards. */
static float sbit__qparams_power(float scale)
{
    return (float)exp2(ceil(log2((double)scale)));
}

SPARSEBIT_API sbit_status sbit_grid_scale(const sbit_grid *grid, const char *name, float min,
                                          float max, float *scale, int32_t *zero_point,
                                          sbit_error *error)
{
    float s = 0.0f;
    SBIT__TRY(sbit_qparams_from_range(name, min, max, grid->symmetric, grid->qmin, grid->qmax, &s,
                                      zero_point, error));
    if (grid->power_of_two) {
        s = sbit__qparams_power(s);
        *zero_point = sbit__qparams_zero_point(min, s, grid->symmetric, grid->qmin, grid->qmax);
    }
    *scale = s;
    return SBIT_OK;
}
