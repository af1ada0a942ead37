/* grad_api.h: gradients as nodes of the graph; rows of losses and optimizers. >>grad
 *
 * Called by: train, steps and sparsers that learn. Calls: graph, infer, ops (row->gradient).
 * The nodes that compute gradients stand in the same graph as those that they differentiate: one
 * plan, one executor, one memory planner for both.
 */
#ifndef SBIT_GRAD_API_H
#define SBIT_GRAD_API_H

#include "../passes/passes_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends the nodes that compute the gradients of `loss` (one element, float32 or float64) with
 * respect to `wanted` values: inputs, constants (weights), values inside. gradients[i] has the
 * shape of wanted[i]; it is none (idx 0) where the loss does not depend on the value. A constant is
 * differentiated as the value it has; to train it, make it an input first (sbit_graph_parameters).
 * Types are inferred before and after. On failure the graph may hold some of the new nodes: work on
 * a clone. Errors: UNSUPPORTED naming every operator on the way that has no gradient (before
 * anything is added), SHAPE, those of infer. */
SPARSEBIT_API sbit_status sbit_graph_add_gradients(sbit_graph *graph, sbit_value_id loss,
                                                   const sbit_value_id *wanted, size_t count,
                                                   sbit_value_id *gradients, sbit_error *error);

/* A running statistic: what the batch makes of it. */
typedef struct sbit_statistic {
    sbit_value_id value;   /* of BatchNormalization: running mean or variance (a constant) */
    sbit_value_id updated; /* after the batch at hand */
} sbit_statistic;

/* Turns BatchNormalization into its training form: normalized by the batch's mean and population
 * variance; running statistics blend in the unbiased variance with ONNX's momentum (0.9 keeps nine
 * tenths), as PyTorch does. Writes up to `capacity` statistics, returns in *count how many there
 * are. */
SPARSEBIT_API sbit_status sbit_graph_to_training(sbit_graph *graph, sbit_statistic *statistics,
                                                 size_t capacity, size_t *count, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRAD_API_H */
