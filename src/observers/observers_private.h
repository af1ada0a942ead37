/* observers_private.h: the built-in observers.
 *
 * Called by: the files of observers/, quant. Calls: kernels.
 * A new observer: its file with one const row, one line in SBIT__OBSERVERS, one in src/MANIFEST.
 */
#ifndef SBIT_OBSERVERS_PRIVATE_H
#define SBIT_OBSERVERS_PRIVATE_H

#include "../config/config_private.h"
#include "../kernels/kernels_private.h"
#include "observers_api.h"

#include <math.h> /* INFINITY, frexp, ldexp, pow, nearbyint */

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__OBSERVERS(X)                                                                         \
    X(minmax)                                                                                      \
    X(moving_average)                                                                              \
    X(mse)                                                                                         \
    X(lp)                                                                                          \
    X(percentile)                                                                                  \
    X(kl_histogram)                                                                                \
    X(aciq)                                                                                        \
    X(octav)                                                                                       \
    X(ort_entropy)                                                                                 \
    X(ort_percentile)                                                                              \
    X(moments)

#define SBIT__OBSERVER_DECLARE(name) SBIT__FN const sbit_observer_row *sbit__observer_##name(void);
SBIT__OBSERVERS(SBIT__OBSERVER_DECLARE)
#undef SBIT__OBSERVER_DECLARE

SBIT__FN const sbit__kind *sbit__kind_observer(void);

/* The smallest and largest element of each part; false if an element is not finite. */
SBIT__FN bool sbit__observation_measure(sbit_ctx *ctx, const float *data, const sbit_parts *parts,
                                        float *min, float *max);

/* >>histograms that grow (histogram.c); states hold one as `sbit__hist_bytes` zeroed bytes */
typedef struct sbit__hist_part {
    float min, max;
    int32_t exponent;       /* bins are 2^exponent wide */
    int32_t seen, has_bins; /* any value; any but zero */
    int32_t unused;
    uint64_t zeros;
} sbit__hist_part;

/* One part of a histogram: bin i of -half .. half - 1, counts[half + i], is i * width <= x. */
typedef struct sbit__hist_view {
    const uint64_t *counts; /* [2 * half] */
    int64_t half;
    double width;
    float min, max;
    uint64_t zeros; /* in no bin */
} sbit__hist_view;

SBIT__FN int64_t sbit__hist_half(int64_t parts);
SBIT__FN size_t sbit__hist_bytes(int64_t parts);
SBIT__FN void sbit__hist_add(void *state, const sbit_observation *x);
SBIT__FN void sbit__hist_merge(void *state, const void *other, int64_t parts);
SBIT__FN bool sbit__hist_sound(const void *state, int64_t parts); /* what a file had may not be */
SBIT__FN sbit__hist_view sbit__hist_view_of(const void *state, int64_t parts, int64_t p);

/* The state of `moments`: one for each part. */
typedef struct sbit__moments {
    int64_t count;
    double sum, sum_abs;
    float min, max;
} sbit__moments;

SBIT__FN void sbit__moments_join(sbit__moments *to, const sbit__moments *from);
/* Adds one run of x. */
SBIT__FN void sbit__moments_add(sbit__moments *to, const sbit_observation *x, const sbit_runs *run);

/* >>histograms over a known range (binned.c); states begin with one, `bins` set by init */
typedef struct sbit__binned {
    int32_t seen;
    int32_t pass; /* 0: the range, 1: counting, 2: counted */
    int64_t bins;
    int64_t symmetric; /* the grid, when it counted: maps may depend on it */
} sbit__binned;

/* The bin of x: the whole part of x * per_bin + offset, 0 .. last. */
typedef struct sbit__bin_map {
    bool absolute;  /* of |x| */
    bool skip_zero; /* exact zeros, which every grid has, are not counted */
    double per_bin, offset;
    int64_t last;
} sbit__bin_map;
typedef sbit__bin_map (*sbit__bin_map_fn)(const sbit_grid *grid, float min, float max,
                                          int64_t bins);

typedef struct sbit__binned_view {
    const float *min, *max; /* [parts] of all data */
    const uint64_t *counts;
    const void *growing;
} sbit__binned_view;

SBIT__FN size_t sbit__binned_bytes(const sbit_observer_call *call, int64_t bins);
SBIT__FN sbit__binned_view sbit__binned_view_of(const void *state, int64_t parts);
SBIT__FN void sbit__binned_observe(void *state, const sbit_observer_call *call,
                                   const sbit_observation *x, sbit__bin_map_fn map_of);
/* Members of rows. */
SBIT__FN sbit_status sbit__binned_again(void *state, const sbit_observer_call *call, bool *wanted,
                                        sbit_error *error);
SBIT__FN sbit_status sbit__binned_merge(void *state, const void *other,
                                        const sbit_observer_call *call, sbit_error *error);
/* A head of `bins`, as init left it, keeps them. */
SBIT__FN sbit_status sbit__binned_load(void *state, const sbit_observer_call *call, const void *bytes,
                                       size_t size, sbit_error *error);
/* Counts of a part: as counted, or in scratch[bins] as best as can be told; NULL: not known. */
SBIT__FN const uint64_t *sbit__binned_part(const void *state, const sbit_observer_call *call,
                                           int64_t p, const sbit__bin_map *map, uint64_t *scratch);

/* save and load of a state without pointers. */
SBIT__FN size_t sbit__observer_save_flat(const void *state, size_t size, void *bytes,
                                         size_t capacity);
SBIT__FN sbit_status sbit__observer_load_flat(void *state, const sbit_observer_call *call,
                                              size_t expected, const void *bytes, size_t size,
                                              sbit_error *error);
/* What was loaded is not sound: zeros, and an error. */
SBIT__FN sbit_status sbit__observer_damaged(void *state, size_t size, const sbit_observer_call *call,
                                            sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_OBSERVERS_PRIVATE_H */
