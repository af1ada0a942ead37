/* observers_private.h: the built-in observers.
 *
 * Called by: the files of observers/, quant. Calls: kernels.
 * A new observer: its file with one const row, one line in SBIT__OBSERVERS, one in src/MANIFEST.
 */
#ifndef SBIT_OBSERVERS_PRIVATE_H
#define SBIT_OBSERVERS_PRIVATE_H

#include "../config/config_private.h"
#include "../kernels/kernels_private.h"
#include "observers_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__OBSERVERS(X)                                                                         \
    X(minmax)                                                                                      \
    X(moving_average)

#define SBIT__OBSERVER_DECLARE(name) SBIT__FN const sbit_observer_row *sbit__observer_##name(void);
SBIT__OBSERVERS(SBIT__OBSERVER_DECLARE)
#undef SBIT__OBSERVER_DECLARE

/* min[c] and max[c] of one observation, joined to what they hold when `join`. */
SBIT__FN void sbit__observation_minmax(const sbit_observer_call *call, const sbit_observation *x,
                                       bool join, float *min, float *max);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_OBSERVERS_PRIVATE_H */
