/* observers_api.h: observers: calibration statistics -> a range (min, max). >>observers
 *
 * Called by: quant (calibration), quantizers (statistics they start from). Calls: kernels, config.
 * An observer sees every value of a tensor once in each pass over the data, in pieces, and keeps
 * O(bins) per part (sbit_parts). Its result is a range; sbit_qparams_from_range (quant) alone makes
 * scale and zero point of it.
 */
#ifndef SBIT_OBSERVERS_API_H
#define SBIT_OBSERVERS_API_H

#include "../config/config_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>extend */

/* What is observed: fixed when the observer is made. */
typedef struct sbit_observer_call {
    sbit_ctx *ctx;
    const char *name;            /* of the tensor, for messages */
    uint32_t target;             /* one of SBIT_TARGET_* */
    const sbit_grid *grid;       /* grid->parts.count: how many ranges there are */
    const sbit_options *options; /* with the row's keys, below "OBSERVER." */
} sbit_observer_call;

/* One piece of data, all of it finite. */
typedef struct sbit_observation {
    const float *data;
    sbit_parts parts;       /* of this piece: its dims; steps, blocks and count are the grid's */
    const float *min, *max; /* [parts.count] smallest and largest of each part of this piece */
    int64_t samples;        /* the data are that many samples of equal size, one after the other */
} sbit_observation;

typedef struct sbit_observer_row {
    sbit_head head;
    size_t (*state_bytes)(const sbit_observer_call *call); /* zeroed memory is handed to init */
    sbit_status (*init)(void *state, const sbit_observer_call *call, sbit_error *error);
    sbit_status (*observe)(void *state, const sbit_observer_call *call, const sbit_observation *x,
                           sbit_error *error);
    /* optional: called at the end of each pass; *wanted = true asks for another one over the same
     * data, in any order. Where the data cannot be read again, range gives the best it can. */
    sbit_status (*again)(void *state, const sbit_observer_call *call, bool *wanted,
                         sbit_error *error);
    /* optional: adds what `other` saw to what `state` saw; both at the end of the same pass. NULL:
     * the order matters. */
    sbit_status (*merge)(void *state, const void *other, const sbit_observer_call *call,
                         sbit_error *error);
    /* min and max of each part; called after at least one observe, as often as wanted */
    sbit_status (*range)(const void *state, const sbit_observer_call *call, float *min, float *max,
                         sbit_error *error);
    /* optional, both or none: statistics to and from bytes of this machine, for calibration files;
     * save with NULL measures. load gets a state fresh from init. */
    size_t (*save)(const void *state, const sbit_observer_call *call, void *bytes, size_t capacity);
    sbit_status (*load)(void *state, const sbit_observer_call *call, const void *bytes, size_t size,
                        sbit_error *error);
    /* optional: frees what the state holds beyond itself */
    void (*deinit)(void *state, const sbit_observer_call *call);
} sbit_observer_row;

/* The row must outlive ctx. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_observer_register(sbit_ctx *ctx, const sbit_observer_row *row,
                                                 sbit_error *error);
/* Any case. NULL: unknown. */
SPARSEBIT_API const sbit_observer_row *sbit_observer_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_observer_row *sbit_observer_at(size_t index); /* NULL past the end */

#ifdef __cplusplus
}
#endif

#endif /* SBIT_OBSERVERS_API_H */
