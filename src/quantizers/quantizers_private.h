/* quantizers_private.h: the built-in quantizers.
 *
 * Called by: the files of quantizers/, quant. Calls: observers, kernels.
 * A new quantizer: its file with one const row, one line in SBIT__QUANTIZERS, one in src/MANIFEST.
 */
#ifndef SBIT_QUANTIZERS_PRIVATE_H
#define SBIT_QUANTIZERS_PRIVATE_H

#include "../observers/observers_private.h"
#include "quantizers_api.h"

#include <math.h> /* nearbyintf */

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__QUANTIZERS(X) X(uniform)

#define SBIT__QUANTIZER_DECLARE(name)                                                              \
    SBIT__FN const sbit_quantizer_row *sbit__quantizer_##name(void);
SBIT__QUANTIZERS(SBIT__QUANTIZER_DECLARE)
#undef SBIT__QUANTIZER_DECLARE

SBIT__FN const sbit__kind *sbit__kind_quantizer(void);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QUANTIZERS_PRIVATE_H */
