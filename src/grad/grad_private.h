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
/* The row's loss of a value, its keys at their defaults, against a new input *target; infers types. */
SBIT__FN sbit_status sbit__loss_append(sbit_graph *graph, const sbit_loss_row *row,
                                       sbit_value_id output, sbit_value_id *target,
                                       sbit_value_id *loss, sbit_error *error);
/* Dropout becomes DropoutTrain (ops/gradient_private.h), whatever its training mode says; *draw: an
 * int64 constant, one number, to be fed with another one in each run; none: there is no Dropout. */
SBIT__FN sbit_status sbit__grad_train_dropout(sbit_graph *graph, sbit_value_id *draw,
                                              sbit_error *error);
/* sbit_graph_add_gradients; *forward: nodes from this index on are gradients. */
SBIT__FN sbit_status sbit__gradients_build(sbit_graph *graph, sbit_value_id loss,
                                           const sbit_value_id *wanted, size_t count,
                                           sbit_value_id *gradients, uint32_t *forward,
                                           sbit_error *error);
/* Nodes from index `forward` on are gradients: of what they read of the others, only about one
 * value in `every` nodes is kept, the rest is computed again (grad/recompute.c). */
SBIT__FN sbit_status sbit__grad_recompute(sbit_graph *graph, uint32_t forward, size_t every,
                                          sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRAD_PRIVATE_H */
