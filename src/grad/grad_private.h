/* grad_private.h: the kinds of rows of the gradient layer.
 *
 * Called by: grad, train. Calls: config.
 */
#ifndef SBIT_GRAD_PRIVATE_H
#define SBIT_GRAD_PRIVATE_H

#include "../config/config_private.h"
#include "../passes/passes_private.h"
#include "grad_api.h"

#ifdef __cplusplus
extern "C" {
#endif

SBIT__FN const sbit__kind *sbit__kind_loss(void);
SBIT__FN const sbit__kind *sbit__kind_optimizer(void);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRAD_PRIVATE_H */
