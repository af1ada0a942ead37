/* proof_api.h: what a quantized file proves by itself, without any data. >>proof
 *
 * Called by: users, tools. Calls: graph, facts of the operators' rows.
 */
#ifndef SBIT_PROOF_API_H
#define SBIT_PROOF_API_H

#include "steps_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>users */

/* A product of integers: Conv, ConvTranspose, Gemm, MatMul between DequantizeLinear nodes, or
 * QLinearConv, QLinearMatMul, ConvInteger, MatMulInteger, QGemm. */
typedef struct sbit_proof {
    const sbit_graph *graph;
    sbit_node_id node;
    double sum;       /* no input makes the sum larger: sum |w_q - zp| max|x_q - zp| + |bias|, the
                         largest of its output channels; HUGE_VAL: its length is not known */
    bool fits;        /* sum < 2^31: an int32 accumulator cannot wrap */
    double deviation; /* of the requantized result from exact arithmetic before rounding, at most,
                         in steps of the output; below 1 the integers are within one step. -1: its
                         output is float; HUGE_VAL: scales are not constants, or their product is
                         no normal float32 */
} sbit_proof;
/* Calls `found` (may be NULL) for each product of the graph and its bodies; returns how many there
 * are. Shapes as they stand: call sbit_infer first. Thread-safe. */
SPARSEBIT_API size_t sbit_graph_prove(const sbit_graph *graph,
                                      void (*found)(const sbit_proof *, void *user), void *user);

/* An integer weight against the float one that it stands for. */
typedef struct sbit_rounding {
    const char *layer;    /* name of the node, or of its output */
    int64_t count;        /* of elements */
    int64_t nearest;      /* that are the nearest integers: saturate(round_half_even(w / s) + zp) */
    int64_t other;        /* that are the integer on the other side of w / s: rounded by a recipe */
    double worst;         /* the largest distance of an integer from w / s, in steps */
} sbit_rounding;
/* Calls `found` for each weight of `quantized` (DequantizeLinear of a constant, QLinearConv ...)
 * whose layer `plain` has too: by the weight's name (W and W_quantized), the node's or its output's,
 * with a float weight of the same shape. plain: simplified as sbit_quant_create does. Returns how many weights of `quantized`
 * have no partner. Thread-safe. */
SPARSEBIT_API size_t sbit_graph_roundings(const sbit_graph *plain, const sbit_graph *quantized,
                                          void (*found)(const sbit_rounding *, void *user),
                                          void *user);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_PROOF_API_H */
