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

/* >>extend */

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
/* Whether gradients pass through the operator: its own, those of what it expands to, or of both branches (If). Where
 * a node's form has none (branches of different shapes), sbit_graph_add_gradients names it all the same. */
SPARSEBIT_API bool sbit_operator_has_gradient(const sbit_op_row *row);

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

/* >>losses: a row adds the nodes that compute the loss from an output of the model. */
typedef struct sbit_loss_row {
    sbit_head head; /* "cross_entropy" */
    /* targets have the type and shape of the output (else class numbers: int64 [N]; rows that take
     * both say false and look at what comes) */
    bool like_output;
    /* *loss: a value of one element, the mean over the batch. `target` is an input of the graph. */
    sbit_status (*build)(sbit_graph *graph, const sbit_options *options, sbit_value_id output,
                         sbit_value_id target, sbit_value_id *loss, sbit_error *error);
} sbit_loss_row;
/* The row must outlive ctx. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_loss_register(sbit_ctx *ctx, const sbit_loss_row *row,
                                             sbit_error *error);
SPARSEBIT_API const sbit_loss_row *sbit_loss_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_loss_row *sbit_loss_at(size_t index); /* built-in; NULL past the end */

/* >>optimizers: one update of one parameter of `count` numbers. */
typedef struct sbit_optimizer_call {
    sbit_ctx *ctx;
    const char *name; /* of the parameter, for messages */
    const sbit_options *options;
    int64_t count, step; /* step counts from 1 */
    float learning_rate, weight_decay;
} sbit_optimizer_call;

typedef struct sbit_optimizer_row {
    sbit_head head; /* "sgd", "adam" */
    size_t (*state_bytes)(const sbit_optimizer_call *call); /* zeroed before the first step */
    /* Parameters are updated side by side by several threads, each parameter by one. */
    sbit_status (*update)(void *state, const sbit_optimizer_call *call, const float *gradient,
                          float *parameter, sbit_error *error);
} sbit_optimizer_row;
SPARSEBIT_API sbit_status sbit_optimizer_register(sbit_ctx *ctx, const sbit_optimizer_row *row,
                                                  sbit_error *error);
SPARSEBIT_API const sbit_optimizer_row *sbit_optimizer_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_optimizer_row *sbit_optimizer_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRAD_API_H */
