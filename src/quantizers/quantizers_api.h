/* quantizers_api.h: quantizers: how a tensor is rounded to a grid, and how that is learned.
 * >>quantizers
 *
 * Called by: quant (calibrate, simulate, export), train (QAT). Calls: observers, kernels.
 * A row is the mathematics of one grid, for weights and activations alike. `uniform` takes the
 * observer's range as it is. Learned ones (LSQ, PACT ...) own parameters that training changes.
 * What QuantizeLinear and DequantizeLinear compute from `finish`'s scale and zero point is what
 * `forward` computes, bit for bit.
 */
#ifndef SBIT_QUANTIZERS_API_H
#define SBIT_QUANTIZERS_API_H

#include "../observers/observers_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>extend */

/* A quantizer at work on one tensor. */
typedef struct sbit_quantizer_call {
    sbit_ctx *ctx;
    const char *name;            /* of the tensor, for messages */
    uint32_t target;             /* one of SBIT_TARGET_* */
    const sbit_grid *grid;       /* grid->parts.count: how many scales there are */
    const sbit_options *options; /* with the row's keys, below "QUANTIZER." */
    const void *statistics;      /* the state of the observer that the row asked for, or NULL */
    float *scale;                /* [parts.count], in and out */
    int32_t *zero_point;         /* [parts.count] */
} sbit_quantizer_call;

/* What training changes: `count` numbers and, of the same length, their gradients. */
typedef struct sbit_parameter {
    const char *name; /* "scale" */
    float *data, *gradient;
    int64_t count;
    bool decay; /* weight decay is meant for it */
} sbit_parameter;

/* In these functions x has data and parts; min, max and samples are not set. */
typedef struct sbit_quantizer_row {
    sbit_head head;
    size_t (*state_bytes)(const sbit_quantizer_call *call); /* zeroed */
    /* optional: what the observer and the grid see in place of x (DoReFa: tanh(x) / max|tanh(x)|);
     * y may be x. forward and backward include it; before init it gets a zeroed state. */
    sbit_status (*domain)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                          float *y, sbit_error *error);
    /* optional, only with domain: the nodes that compute it for an activation, in front of
     * `before`; *first: the one that reads x. NULL: activations cannot be built */
    sbit_status (*nodes)(const sbit_quantizer_call *call, sbit_graph *graph, sbit_value_id x,
                         sbit_node_id before, sbit_node_id *first, sbit_value_id *out,
                         sbit_error *error);
    /* optional: the observer whose statistics init starts from, in place of OBSERVER.TYPE; may give
     * NULL: that one after all. options: as in a call */
    const sbit_observer_row *(*statistics)(uint32_t target, const sbit_options *options);
    /* scale and zero_point arrive as the observer's range gave them; x: the weight, NULL for an
     * activation */
    sbit_status (*init)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                        sbit_error *error);
    /* y = fake-quantized x; y may be x */
    sbit_status (*forward)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                           float *y, sbit_error *error);
    /* optional: straight-through gradient dx from dy (dx may be dy), and adds to the parameters'
     * gradients */
    sbit_status (*backward)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                            const float *dy, float *dx, sbit_error *error);
    /* optional: parameter `index`, false past the last; pointers hold until deinit */
    bool (*parameter)(void *state, const sbit_quantizer_call *call, size_t index,
                      sbit_parameter *out);
    /* optional: final scale and zero_point, and for weights the values to be put on the grid into
     * `effective`, which arrives as a copy of x (NULL for activations); may be called again */
    sbit_status (*finish)(void *state, const sbit_quantizer_call *call, const sbit_observation *x,
                          float *effective, sbit_error *error);
    /* optional: frees what the state holds beyond itself */
    void (*deinit)(void *state, const sbit_quantizer_call *call);
    /* optional: the grid was `before` and has another width now (bit annealing); scale and
     * zero_point of the call are those that cover the same range */
    void (*regrid)(void *state, const sbit_quantizer_call *call, const sbit_grid *before);
} sbit_quantizer_row;

/* The row must outlive ctx. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_quantizer_register(sbit_ctx *ctx, const sbit_quantizer_row *row,
                                                  sbit_error *error);
SPARSEBIT_API const sbit_quantizer_row *sbit_quantizer_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_quantizer_row *sbit_quantizer_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QUANTIZERS_API_H */
