/* quantizers_api.h: quantizers: how a tensor is rounded to integers, and how that is learned.
 * >>quantizers
 *
 * Called by: quant (calibrate, simulate, export), train (QAT). Calls: observers, kernels.
 * `uniform` takes the observer's range as it is. Learned ones (LSQ, PACT, AdaRound ...) own
 * parameters that training changes; export asks `finish` for the effective weight and qparams, so
 * that the file holds exactly what the forward pass used.
 */
#ifndef SBIT_QUANTIZERS_API_H
#define SBIT_QUANTIZERS_API_H

#include "../observers/observers_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A quantizer at work on one tensor. */
typedef struct sbit_quantizer_call {
    sbit_ctx *ctx;
    const char *name; /* of the tensor, for messages */
    uint32_t target;  /* SBIT_TARGET_* */
    bool symmetric;
    int32_t bits, qmin, qmax;
    int64_t channels; /* 1: per tensor */
    const sbit_options *options;
    float *scale;        /* [channels], in and out */
    int32_t *zero_point; /* [channels] */
} sbit_quantizer_call;

typedef struct sbit_quantizer_row {
    const char *name;
    const char *doc;
    uint32_t targets;
    const sbit_key *keys;
    size_t key_count;
    size_t (*state_bytes)(const sbit_quantizer_call *call); /* zeroed */
    /* optional: changes what the observer sees (DoReFa's tanh), y may be x */
    void (*preprocess)(const void *state, const sbit_quantizer_call *call,
                       const sbit_observation *x, float *y);
    /* scale and zero_point arrive as the observer's range gave them; `x`: the weight, or the last
     * calibration batch of an activation */
    sbit_status (*init)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                        sbit_error *error);
    /* y = fake-quantized x; y may be x */
    sbit_status (*forward)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                           float *y, sbit_error *error);
    /* optional: straight-through gradients: dx[i], and into the parameters' gradients */
    sbit_status (*backward)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                            const float *dy, float *dx, sbit_error *error);
    /* optional: parameter `index` with its gradient, same length; false past the last */
    bool (*parameter)(void *state, const sbit_quantizer_call *call, size_t index, const char **name,
                      float **value, float **gradient, int64_t *count);
    /* optional: final scale, zero_point, and for weights the float values to be stored (NULL: as
     * they are) */
    sbit_status (*finish)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                          float *effective, sbit_error *error);
} sbit_quantizer_row;

SPARSEBIT_API sbit_status sbit_quantizer_register(sbit_ctx *ctx, const sbit_quantizer_row *row,
                                                  sbit_error *error);
SPARSEBIT_API const sbit_quantizer_row *sbit_quantizer_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_quantizer_row *sbit_quantizer_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QUANTIZERS_API_H */
