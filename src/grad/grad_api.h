/* grad_api.h: rows of losses and optimizers. >>grad
 *
 * Called by: train, quantizers that learn. Calls: exec (forward values), ops (row->backward).
 * The backward driver walks a session's plan from the last node to the first and calls
 * row->backward with out_grad and in_grad set; an operator without it ends the walk with
 * SBIT_ERR_UNSUPPORTED naming the node, before any step is taken.
 */
#ifndef SBIT_GRAD_API_H
#define SBIT_GRAD_API_H

#include "../passes/passes_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A loss over a batch: outputs [N, ...], targets as the loss defines them (class numbers as int64
 * [N], or a tensor of the outputs' shape). */
typedef struct sbit_loss_row {
    const char *name; /* "cross_entropy" */
    const char *doc;
    const sbit_key *keys;
    size_t key_count;
    /* *loss: mean over the batch; gradient (NULL: not wanted): of the outputs' shape */
    sbit_status (*compute)(sbit_ctx *ctx, const sbit_options *options, const sbit_tensor *outputs,
                           const sbit_tensor *targets, double *loss, float *gradient,
                           sbit_error *error);
} sbit_loss_row;

/* One update of one parameter tensor of `count` elements. */
typedef struct sbit_optimizer_call {
    sbit_ctx *ctx;
    const char *name; /* of the parameter, for messages */
    const sbit_options *options;
    int64_t count, step; /* step counts from 1 */
    float learning_rate, weight_decay;
    const uint8_t *mask; /* NULL, or 0 where the parameter is pruned and stays 0 */
} sbit_optimizer_call;

typedef struct sbit_optimizer_row {
    const char *name; /* "sgd", "adam" */
    const char *doc;
    const sbit_key *keys;
    size_t key_count;
    size_t (*state_bytes)(const sbit_optimizer_call *call); /* zeroed before the first step */
    sbit_status (*update)(void *state, const sbit_optimizer_call *call, const float *gradient,
                          float *parameter, sbit_error *error);
} sbit_optimizer_row;

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRAD_API_H */
