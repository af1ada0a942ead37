/* optimizers.c: the built-in optimizers. >>optimizers
 *
 * Called by: train. Conventions are PyTorch's. With g the gradient, r the rate, d the decay:
 *     sgd     g += d w; v = MOMENTUM v + g (the first step: v = g); w -= r v
 *             NESTEROV: w -= r (g + MOMENTUM v)
 *     adam    g += d w; m = B1 m + (1 - B1) g; s = B2 s + (1 - B2) g^2
 *             w -= r m / (1 - B1^t) / (sqrt(s / (1 - B2^t)) + EPSILON)
 *     adamw   w -= r d w, then adam without decay
 */
#include "grad_private.h"

#include <math.h> /* sqrtf, pow */

static const sbit_key sbit__sgd_keys[] = {
    {"MOMENTUM", SBIT_KEY_FLOAT, "0", 0, 1, NULL, "how much of the last step goes on"},
    {"NESTEROV", SBIT_KEY_BOOL, "false", 0, 0, NULL, "look ahead along the momentum"},
};

static size_t sbit__sgd_bytes(const sbit_optimizer_call *call)
{
    const bool moves = sbit_options_float(call->options, "MOMENTUM") != 0.0;
    return moves ? (size_t)call->count * sizeof(float) : 0;
}

static sbit_status sbit__sgd_update(void *state, const sbit_optimizer_call *call,
                                    const float *gradient, float *parameter, sbit_error *error)
{
    const float momentum = (float)sbit_options_float(call->options, "MOMENTUM");
    const bool nesterov = sbit_options_bool(call->options, "NESTEROV");
    float *v = (float *)state;
    (void)error;
    for (int64_t i = 0; i < call->count; i++) {
        float g = gradient[i] + call->weight_decay * parameter[i];
        if (momentum != 0.0f) {
            v[i] = momentum * v[i] + g;
            g = nesterov ? g + momentum * v[i] : v[i];
        }
        parameter[i] -= call->learning_rate * g;
    }
    return SBIT_OK;
}

static const sbit_key sbit__adam_keys[] = {
    {"BETA1", SBIT_KEY_FLOAT, "0.9", 0, 1, NULL, "keeps the mean of gradients"},
    {"BETA2", SBIT_KEY_FLOAT, "0.999", 0, 1, NULL, "keeps the mean of their squares"},
    {"EPSILON", SBIT_KEY_FLOAT, "1e-8", 0, 1, NULL, "added outside of the root"},
};

static size_t sbit__adam_bytes(const sbit_optimizer_call *call)
{
    return (size_t)call->count * 2 * sizeof(float);
}

static void sbit__adam_step(float *state, const sbit_optimizer_call *call, float coupled,
                            float decoupled, const float *gradient, float *parameter)
{
    const double beta1 = sbit_options_float(call->options, "BETA1");
    const double beta2 = sbit_options_float(call->options, "BETA2");
    const float epsilon = (float)sbit_options_float(call->options, "EPSILON");
    const float b1 = (float)beta1, b2 = (float)beta2;
    const float rate =
        (float)((double)call->learning_rate / (1.0 - pow(beta1, (double)call->step)));
    const float root = (float)(1.0 / sqrt(1.0 - pow(beta2, (double)call->step)));
    float *m = state, *s = state + call->count;
    for (int64_t i = 0; i < call->count; i++) {
        const float g = gradient[i] + coupled * parameter[i];
        m[i] = b1 * m[i] + (1.0f - b1) * g;
        s[i] = b2 * s[i] + (1.0f - b2) * g * g;
        parameter[i] -= call->learning_rate * decoupled * parameter[i];
        parameter[i] -= rate * m[i] / (sqrtf(s[i]) * root + epsilon);
    }
}

static sbit_status sbit__adam_update(void *state, const sbit_optimizer_call *call,
                                     const float *gradient, float *parameter, sbit_error *error)
{
    (void)error;
    sbit__adam_step((float *)state, call, call->weight_decay, 0.0f, gradient, parameter);
    return SBIT_OK;
}

static sbit_status sbit__adamw_update(void *state, const sbit_optimizer_call *call,
                                      const float *gradient, float *parameter, sbit_error *error)
{
    (void)error;
    sbit__adam_step((float *)state, call, 0.0f, call->weight_decay, gradient, parameter);
    return SBIT_OK;
}

static const sbit_optimizer_row sbit__optimizers[] = {
    {{"sgd", "stochastic gradient descent", 0, sbit__sgd_keys, SBIT__COUNT_OF(sbit__sgd_keys)},
     sbit__sgd_bytes,
     sbit__sgd_update},
    {{"adam", "steps of a size that the gradients' squares give", 0, sbit__adam_keys,
      SBIT__COUNT_OF(sbit__adam_keys)},
     sbit__adam_bytes,
     sbit__adam_update},
    {{"adamw", "adam, with weight decay beside it", 0, sbit__adam_keys,
      SBIT__COUNT_OF(sbit__adam_keys)},
     sbit__adam_bytes,
     sbit__adamw_update},
};

static const sbit_head *sbit__optimizer_head(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__optimizers) ? &sbit__optimizers[index].head : NULL;
}

SBIT__FN const sbit__kind *sbit__kind_optimizer(void)
{
    static const sbit__kind kind = {"optimizer", sbit__optimizer_head};
    return &kind;
}

SPARSEBIT_API sbit_status sbit_optimizer_register(sbit_ctx *ctx, const sbit_optimizer_row *row,
                                                  sbit_error *error)
{
    const bool complete = row != NULL && row->state_bytes != NULL && row->update != NULL;
    return sbit__row_register(ctx, sbit__kind_optimizer(), row != NULL ? &row->head : NULL,
                              complete, error);
}

SPARSEBIT_API const sbit_optimizer_row *sbit_optimizer_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_optimizer_row *)(const void *)sbit__row_find(ctx, sbit__kind_optimizer(),
                                                                    name);
}

SPARSEBIT_API const sbit_optimizer_row *sbit_optimizer_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__optimizers) ? &sbit__optimizers[index] : NULL;
}
