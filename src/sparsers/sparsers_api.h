/* sparsers_api.h: rows of sparsers and schedules. >>sparsers
 *
 * Called by: sparse (masks), train (schedules). Calls: kernels, config (keys).
 * A sparser gives every element, block or channel of a weight a score; the sparse layer alone
 * turns scores into masks: exact counts (floor(ratio * n)), ties to the lower index, groups of
 * layers that must lose the same channels.
 */
#ifndef SBIT_SPARSERS_API_H
#define SBIT_SPARSERS_API_H

#include "../grad/grad_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a sparser looks at; the sparse layer runs the model with taps to provide it. */
enum {
    SBIT_NEEDS_WEIGHT = 1,
    SBIT_NEEDS_ACTIVATION = 2,
    SBIT_NEEDS_GRADIENT = 4
};

/* What one mask bit stands for; rows say which they can score. */
enum {
    SBIT_GRANULARITY_ELEMENT = 1,
    SBIT_GRANULARITY_BLOCK = 2,
    SBIT_GRANULARITY_N_OF_M = 4,
    SBIT_GRANULARITY_IN_CHANNEL = 8,
    SBIT_GRANULARITY_OUT_CHANNEL = 16
};

typedef struct sbit_sparser_call {
    sbit_ctx *ctx;
    const char *name;     /* of the layer, for messages */
    uint32_t granularity; /* one of the above */
    const sbit_options *options;
    const sbit_tensor *weight; /* float32 */
    int32_t out_axis, in_axis; /* of the weight */
    int64_t units;             /* scores to give */
    const uint8_t *unit_of;    /* NULL for elements and channels; else see the sparse layer */
} sbit_sparser_call;

typedef struct sbit_sparser_row {
    const char *name; /* "l1norm" */
    const char *doc;
    uint32_t needs, granularities;
    const sbit_key *keys;
    size_t key_count;
    size_t (*state_bytes)(const sbit_sparser_call *call); /* zeroed */
    /* optional unless needs asks: one batch of the layer's input, output and weight gradient */
    sbit_status (*observe)(void *state, const sbit_sparser_call *call, const sbit_tensor *input,
                           const sbit_tensor *output, const sbit_tensor *weight_gradient,
                           sbit_error *error);
    /* score[units]: the smallest are pruned first */
    sbit_status (*score)(void *state, const sbit_sparser_call *call, float *score,
                         sbit_error *error);
    /* optional: frees what observe allocated beyond the state */
    void (*deinit)(void *state, const sbit_sparser_call *call);
} sbit_sparser_row;

/* The target sparsity at a step of training; pure functions. */
typedef struct sbit_schedule_row {
    const char *name; /* "constant", "agp", "cubic", ... */
    const char *doc;
    const sbit_key *keys;
    size_t key_count;
    /* 0 <= step < total; from and to in [0, 1] */
    double (*sparsity)(const sbit_options *options, int64_t step, int64_t total, double from,
                       double to);
} sbit_schedule_row;

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSERS_API_H */
