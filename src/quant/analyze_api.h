/* analyze_api.h: which layers suffer most from being quantized. >>analyze
 *
 * Called by: users, tools. Calls: quant.
 */
#ifndef SBIT_ANALYZE_API_H
#define SBIT_ANALYZE_API_H

#include "../measure/measure_api.h"
#include "proof_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>users */

/* A layer, alone quantized: the weights and activations that have its settings. */
typedef struct sbit_sensitivity {
    const char *layer;     /* shown name, borrowed until the quant finds its sites anew */
    const char *op_type;   /* "" in a body */
    int32_t weight_bits, activation_bits; /* 0: it has none that are quantized */
    int64_t params, macs;  /* of its weights; of its node for the shapes as they are declared */
    double noise;          /* of the outputs: sum of error^2 / reference^2 */
    double sqnr;           /* -10 log10(noise) dB; HUGE_VAL: nothing changed */
    double mse;            /* mean squared error of the outputs */
    double agreement;      /* part of the samples with the same class first; 1 without logits */
    /* of its own output, in front of that output's quantizer; count 0: not known (bodies; no one
     * tensor). sbit_diff_sqnr, _cosine */
    sbit_diff own;         /* on float inputs (Sparsebit's error profiler, async) */
    sbit_diff accumulated; /* with everything in front quantized, too (sync) */
    /* what labels say; NaN: the feed has no class numbers, or the model no gradients. g: the gradient
     * of a sample's cross entropy, d: what quantizing this layer alone moves */
    double taylor; /* mean over samples of sum g d: what the loss gains to first order */
    double fisher; /* half the mean of (sum g d)^2: to second order, by the Fisher information */
} sbit_sensitivity;

/* Quantizes each layer alone, with the scales that sbit_quant_calc_qparams found, and compares the
 * outputs with those of float, over the samples of the feed. The float model runs once, each layer
 * costs what lies behind it; labels cost one run forwards and backwards, sample by sample. out[0..capacity-1]: the most sensitive first; *count: how many there
 * are. Errors: STATE before calc_qparams, those of running. */
SPARSEBIT_API sbit_status sbit_quant_analyze(sbit_quant *quant, const sbit_feed *feed,
                                             sbit_sensitivity *out, size_t capacity, size_t *count,
                                             sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_ANALYZE_API_H */
