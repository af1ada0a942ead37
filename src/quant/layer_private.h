/* layer_private.h: a layer with a constant weight as the matrix product that it is. >>layer
 *
 * Called by: steps that round weights. Calls: kernels, the graph.
 *
 * Conv, Gemm and MatMul compute, for each group g, row r and position p,
 *     y[p][g][r] = sum over k of w[g][r][k] x[p][g][k] (+ bias)
 * where x[p][g] are the values under the window. Everything that layer-wise rounding needs of the
 * data are the sums over p of x x^T.
 */
#ifndef SBIT_LAYER_PRIVATE_H
#define SBIT_LAYER_PRIVATE_H

#include "quant_private.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit__layer {
    const sbit_graph *graph;
    const sbit_node *node;
    bool conv;
    int32_t spatial;              /* conv: 1 to 3 */
    int64_t groups, rows, depth;  /* of each group: rows of `depth` weights */
    int64_t row_step, depth_step; /* weight (g, r, k): (g rows + r) row_step + k depth_step */
    int64_t kernel[3], stride[3], dilation[3], pad[3]; /* of missing leading dims: 1, 1, 1, 0 */
    int32_t auto_pad; /* -1: SAME_LOWER, 1: SAME_UPPER, 0: pad says it */
} sbit__layer;

/* False if the layer is none of the three, or its weight is not of rank 2 (Conv: 3 to 5). */
SBIT__FN bool sbit__layer_of(const sbit_graph *graph, sbit_node_id node, sbit__layer *out);

/* Sums over positions. The mean is that of the positions taken. */
typedef struct sbit__gram {
    sbit__layer layer;
    sbit_ctx *ctx;
    sbit_rng rng;
    int64_t most;           /* positions taken of each sample; 0: all */
    bool cross;             /* also of two streams: cross[g][i][j] = sum of a_i b_j */
    double count;           /* of positions */
    float *sums;            /* [groups][depth][depth] of b (and of a alone if not cross) */
    float *mixed;           /* cross: [groups][depth][depth] */
    float *mean_a, *mean_b; /* [groups][depth]: sums, not yet divided */
    size_t bytes;
    struct sbit__gram *other; /* sums over the samples that are not in these; NULL: all are */
} sbit__gram;

SBIT__FN sbit_status sbit__gram_init(sbit_ctx *ctx, const sbit__layer *layer, bool cross,
                                     int64_t most, uint64_t seed, sbit__gram *out,
                                     sbit_error *error);
SBIT__FN void sbit__gram_deinit(sbit__gram *gram);
/* Adds `samples` from `first` of `rows` samples of x; b: the second stream of the same shape, or NULL. */
SBIT__FN sbit_status sbit__gram_add(sbit__gram *gram, const sbit_tensor *a, const sbit_tensor *b,
                                    int64_t rows, int64_t first, int64_t samples, sbit_error *error);

/* Sums about the means from here on: sum a b^T - (sum a)(sum b)^T / n. And back. */
SBIT__FN void sbit__gram_center(sbit__gram *gram);
SBIT__FN void sbit__gram_uncenter(sbit__gram *gram);
/* The other samples join these; their memory goes. */
SBIT__FN void sbit__gram_merge(sbit__gram *gram);

/* Adds the first `samples` of `rows` samples of x, over all positions, to sums[groups][depth]. */
SBIT__FN sbit_status sbit__layer_means(const sbit__layer *layer, const sbit_tensor *x, int64_t rows,
                                       int64_t samples, double *sums, double *count,
                                       sbit_error *error);

/* >>rounding layer by layer: what AdaRound, GPTQ ... share. The sums are gathered for each layer in
 * turn (asym: under what is quantized so far), `round` makes the weights of it. */
typedef struct sbit__round_units sbit__round_units;
typedef sbit_status (*sbit__round_fn)(sbit__round_units *units, const sbit_unit *unit,
                                      const sbit__layer *layer, sbit__gram *gram,
                                      sbit_error *error);
struct sbit__round_units {
    sbit_quant *quant;
    const sbit_options *options;
    const sbit_step_row *step;
    int64_t positions; /* of each sample; 0: all */
    bool quantized;    /* also for what the quantized model so far computes, whatever asym says */
    bool halves;       /* of two streams: every second batch (half of the only one) apart, as gram->other */
    sbit__round_fn round;
    sbit_walk *plain, *walk; /* while it runs: float, and quantized so far (NULL: not wanted) */
    int64_t samples;         /* of the feed */
};
/* `positions`: the key that says how many. */
SBIT__FN sbit_status sbit__round_run(void *state, const sbit_options *options,
                                     const sbit_step_row *step, const char *positions,
                                     bool quantized, bool halves, sbit__round_fn round,
                                     const sbit_feed *feed, sbit_error *error);

/* c[rows][depth] = a[rows][depth] times g[depth][depth], of one group; 64-byte aligned scratch. */
SBIT__FN size_t sbit__layer_product_bytes(sbit_ctx *ctx, const sbit__layer *layer);
SBIT__FN void sbit__layer_product(sbit_ctx *ctx, const sbit__layer *layer, const float *a,
                                  const float *g, float *c, void *scratch);

/* >>step-gptq: the weight becomes the nearest to what fits the float output best on the inputs of
 * the second stream. */
SBIT__FN sbit_status sbit__gptq_refit(sbit__round_units *units, const sbit_unit *unit,
                                      const sbit__layer *layer, sbit__gram *gram,
                                      sbit_error *error);

/* >>compensate-beside: fits the operator, which is a unit of its own behind its block's layers. */
SBIT__FN sbit_status sbit__beside_unit(sbit__round_units *units, const sbit_unit *unit,
                                       const sbit__beside *beside, const sbit__layer *layer,
                                       sbit_error *error);

/* >>step-adaround: of sigmoid(v), h(v) in 0..1 and its slope in v; the slope in v of |2 h - 1|^beta,
 * of n at a time. */
SBIT__FN float sbit__adaround_h(float sigmoid);
SBIT__FN float sbit__adaround_slope(float sigmoid);
SBIT__FN void sbit__adaround_pull(const sbit_ctx *ctx, int64_t n, const float *sigmoid, float beta,
                                  float *out);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_LAYER_PRIVATE_H */
