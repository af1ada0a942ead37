/* observers_api.h: observers: calibration statistics -> a range (min, max). >>observers
 *
 * Called by: quant (calibration). Calls: kernels, config (keys).
 * An observer sees every value of a tensor once, streaming, and keeps O(bins) per tensor or
 * channel. Its result is a range; sbit__qparams_from_range (quant) alone makes scale and zero
 * point of it.
 */
#ifndef SBIT_OBSERVERS_API_H
#define SBIT_OBSERVERS_API_H

#include "../passes/passes_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SBIT_TARGET_WEIGHT = 1,
    SBIT_TARGET_ACTIVATION = 2
};

/* What is observed: fixed when the observer is made. */
typedef struct sbit_observer_call {
    sbit_ctx *ctx;
    uint32_t target; /* one of SBIT_TARGET_* */
    bool symmetric;
    int32_t bits, qmin, qmax;
    int64_t channels;            /* 1: per tensor */
    const sbit_options *options; /* with the row's keys, below "OBSERVER." */
} sbit_observer_call;

/* One piece of data: element (o, c, i) is data[(o * channels + c) * inner + i]; a batch has
 * `samples` samples, each outer / samples consecutive values of o (samples divides outer). */
typedef struct sbit_observation {
    const float *data;
    int64_t outer, channels, inner, samples;
} sbit_observation;

typedef struct sbit_observer_row {
    const char *name; /* lower case: "minmax" */
    const char *doc;
    uint32_t targets; /* SBIT_TARGET_* it may be used for */
    const sbit_key *keys;
    size_t key_count;
    size_t (*state_bytes)(const sbit_observer_call *call); /* zeroed memory is handed to init */
    sbit_status (*init)(void *state, const sbit_observer_call *call, sbit_error *error);
    /* All elements are finite: the caller checks and names the tensor. */
    sbit_status (*observe)(void *state, const sbit_observer_call *call, const sbit_observation *x,
                           sbit_error *error);
    /* optional: adds what `other` saw after what `state` saw */
    sbit_status (*merge)(void *state, const void *other, const sbit_observer_call *call,
                         sbit_error *error);
    /* min[channels], max[channels]; called after at least one observe */
    sbit_status (*range)(const void *state, const sbit_observer_call *call, float *min, float *max,
                         sbit_error *error);
    /* optional: frees what observe allocated from ctx beyond the state itself */
    void (*deinit)(void *state, const sbit_observer_call *call);
    /* optional: statistics to and from bytes, for calibration files; save with NULL measures */
    size_t (*save)(const void *state, const sbit_observer_call *call, void *bytes, size_t capacity);
    sbit_status (*load)(void *state, const sbit_observer_call *call, const void *bytes, size_t size,
                        sbit_error *error);
} sbit_observer_row;

SPARSEBIT_API sbit_status sbit_observer_register(sbit_ctx *ctx, const sbit_observer_row *row,
                                                 sbit_error *error);
/* User rows first; any case. NULL: unknown. */
SPARSEBIT_API const sbit_observer_row *sbit_observer_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_observer_row *sbit_observer_at(size_t index); /* NULL past the end */

#ifdef __cplusplus
}
#endif

#endif /* SBIT_OBSERVERS_API_H */
