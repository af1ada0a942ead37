/* quantizers_private.h: the built-in quantizers.
 *
 * Called by: the files of quantizers/, quant. Calls: observers, kernels.
 * A new quantizer: its file with one const row, one line in SBIT__QUANTIZERS, one in src/MANIFEST.
 */
#ifndef SBIT_QUANTIZERS_PRIVATE_H
#define SBIT_QUANTIZERS_PRIVATE_H

#include "../observers/observers_private.h"
#include "quantizers_api.h"

#include <float.h> /* FLT_MIN */
#include <math.h>  /* nearbyintf, sqrt, tanhf */
#include <stdio.h> /* snprintf */

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__QUANTIZERS(X)                                                                        \
    X(uniform)                                                                                     \
    X(lsq)                                                                                         \
    X(lsq_plus)                                                                                    \
    X(pact)                                                                                        \
    X(dorefa)                                                                                      \
    X(hqq)                                                                                         \
    X(float8_e4m3fn)                                                                               \
    X(float8_e5m2)

#define SBIT__QUANTIZER_DECLARE(name)                                                              \
    SBIT__FN const sbit_quantizer_row *sbit__quantizer_##name(void);
SBIT__QUANTIZERS(SBIT__QUANTIZER_DECLARE)
#undef SBIT__QUANTIZER_DECLARE

SBIT__FN const sbit__kind *sbit__kind_quantizer(void);

/* The observer that a row asks for in place of OBSERVER.TYPE; NULL: none. */
SBIT__FN const sbit_observer_row *sbit__quantizer_statistics(const sbit_quantizer_row *row,
                                                             uint32_t target,
                                                             const sbit_options *options);

/* float8.c: the type that a row rounds to, and its largest number; SBIT_UNDEFINED: integers. */
SBIT__FN sbit_dtype sbit__quantizer_float8(const sbit_quantizer_row *row, int32_t *largest);

/* straight.c: with the given scale and zero point of each part; y may be x, dx may be dy. */
SBIT__FN void sbit__straight_forward(const sbit_quantizer_call *call, const sbit_observation *x,
                                     const float *scale, const int32_t *zero_point, float *y);
/* Adds to dscale and dzero ([parts], either NULL: not wanted). */
SBIT__FN void sbit__straight_backward(const sbit_quantizer_call *call, const sbit_observation *x,
                                      const float *scale, const int32_t *zero_point,
                                      const float *dy, float *dx, double *dscale, double *dzero);
/* forward and backward of rows that learn nothing: with the call's scale and zero point. */
SBIT__FN sbit_status sbit__straight_row_forward(void *state, const sbit_quantizer_call *call,
                                                const sbit_observation *x, float *y,
                                                sbit_error *error);
SBIT__FN sbit_status sbit__straight_row_backward(void *state, const sbit_quantizer_call *call,
                                                 const sbit_observation *x, const float *dy,
                                                 float *dx, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QUANTIZERS_PRIVATE_H */
