/* sparsers_api.h: sparsers: what a part of a weight is worth. >>sparsers
 *
 * Called by: sparse (masks, groups). Calls: config (keys).
 * A sparser gives each unit of a layer's weight (an element, a row ...) one number; the sparse
 * layer alone turns numbers into masks: exact counts, ties to the lower index, layers that must
 * lose the same channels.
 */
#ifndef SBIT_SPARSERS_API_H
#define SBIT_SPARSERS_API_H

#include "../config/config_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>extend */

/* What a sparser looks at besides the weight; the model is run on data to provide all but gamma. */
enum {
    SBIT_NEEDS_INPUT = 1,     /* of the layer */
    SBIT_NEEDS_OUTPUT = 2,    /* of the layer */
    SBIT_NEEDS_ACTIVATED = 4, /* behind BatchNormalization and activation; else the output */
    SBIT_NEEDS_GAMMA = 8,     /* scales of the BatchNormalization behind the layer */
    SBIT_NEEDS_GRADIENT = 16  /* of the loss (LOSS, on data with targets) with respect to the weight */
};

/* What one score stands for. */
enum {
    SBIT_GRANULARITY_ELEMENT = 1,
    SBIT_GRANULARITY_ROW = 2 /* an output channel */
};

/* How elements are compared, and what is kept. */
enum {
    SBIT_SPARSER_BY_ROW = 1,    /* within each row of the weight, not all of the layer */
    SBIT_SPARSER_ONE_MORE = 2,  /* floor(ratio * n) + 1 of them go, as Sparsebit does it */
    SBIT_SPARSER_REMEMBERS = 4  /* its state lives on from step 0 of sbit_sparse_step to the last */
};

/* The layer: fixed while its state lives. */
typedef struct sbit_sparser_call {
    sbit_ctx *ctx;
    const char *name;            /* of the layer, for messages */
    const sbit_options *options; /* with the row's keys, below SPARSER */
    sbit_tensor weight;          /* float32 */
    int32_t out_axis, in_axis;   /* of the weight; in_axis -1: none */
    const sbit_parts *units;     /* which elements of the weight a score stands for */
    const float *gamma;          /* [rows]; NULL: no BatchNormalization behind it */
    int64_t seed;                /* different for each layer */
    double progress;             /* how far SCHEDULE is, 0 to 1; 1 without steps */
} sbit_sparser_call;

/* One tensor of the layer for one batch. */
typedef struct sbit_sparser_sample {
    uint32_t what;      /* one of SBIT_NEEDS_* */
    sbit_tensor tensor; /* float32 */
    int32_t axis;       /* of its channels */
    int64_t samples;    /* rows of axis 0 beyond them are padding; -1: axis 0 is no batch */
} sbit_sparser_sample;

typedef struct sbit_sparser_row {
    sbit_head head; /* "l1norm" */
    uint32_t needs, granularities, traits;
    size_t (*state_bytes)(const sbit_sparser_call *call); /* optional; zeroed */
    /* optional, but for rows that need data: called for each tensor of each batch */
    sbit_status (*observe)(void *state, const sbit_sparser_call *call,
                           const sbit_sparser_sample *sample, sbit_error *error);
    /* score[units->count]: the smallest are pruned first */
    sbit_status (*score)(const void *state, const sbit_sparser_call *call, double *score,
                         sbit_error *error);
    /* optional, single elements only, and in place of score: chooses keep[elements] (1 keep) for
     * the ratio, or n of every m (n_of_m[1] > 0), and changes the weight to make up for what goes.
     * What keep and weight have 0 at first is pruned already: it stays so, and counts. The layers
     * before are pruned when it looks at data. */
    sbit_status (*update)(void *state, const sbit_sparser_call *call, double ratio,
                          const int64_t *n_of_m, float *weight, uint8_t *keep, sbit_error *error);
    void (*deinit)(void *state, const sbit_sparser_call *call); /* optional */
} sbit_sparser_row;

/* The row must outlive ctx. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_sparser_register(sbit_ctx *ctx, const sbit_sparser_row *row,
                                                sbit_error *error);
/* Any case. NULL: unknown. */
SPARSEBIT_API const sbit_sparser_row *sbit_sparser_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_sparser_row *sbit_sparser_at(size_t index); /* NULL past the end */

/* >>sparsity schedules: the sparsity at a step; pure functions. */
typedef struct sbit_sparsity_row {
    sbit_head head; /* "agp" */
    /* 0 <= step <= total: from 0 on, `to` at total; from and to in 0 to 1 */
    double (*at)(const sbit_options *options, int64_t step, int64_t total, double from, double to);
} sbit_sparsity_row;
/* The row must outlive ctx. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_sparsity_register(sbit_ctx *ctx, const sbit_sparsity_row *row,
                                                 sbit_error *error);
SPARSEBIT_API const sbit_sparsity_row *sbit_sparsity_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_sparsity_row *sbit_sparsity_at(size_t index); /* NULL past the end */

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSERS_API_H */
