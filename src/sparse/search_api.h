/* search_api.h: what meets a budget: rows that look for the ratios, times of layers. >>search
 *
 * Called by: users, tools. Calls: sparse.
 *
 * SPARSER.SEARCH names the row that sbit_sparse_fit runs. A row tries ratios, one for each unit - a
 * group of channels that can go, or the elements of one layer - and leaves the best it found. All
 * rows see the same costs (of the graph that would be left, channels that cannot go included) and
 * the same score.
 */
#ifndef SBIT_SEARCH_API_H
#define SBIT_SEARCH_API_H

#include "../measure/latency_api.h"
#include "sparse_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>latency-left: a table of times by what is left of a node (>>latency). One run is one sample.
 * Runs the model with ten uniform ratios up to 0.9, simplified, in turns with the model as it is, on the
 * context's threads: about half a second for each (of a slow model at least five runs), three times.
 * The first sbit_sparse_fit with it adds what models of every tenth of the time really take (some 20 s);
 * each measures its result and, where that is off by more than 3 %, adds that and searches again, up to
 * three times. A table that was loaded is used as it is; of another model it is refused (CONFIG).
 * Masks are forgotten. Free with sbit_latency_destroy. */
SPARSEBIT_API sbit_status sbit_latency_measure(sbit_sparse *sparse, const sbit_feed *feed,
                                               sbit_latency **out, sbit_error *error);
/* Microseconds of a run of the model without what is pruned at present, and of the model as it was:
 * measured now, in turns, with three pairs of sessions. */
SPARSEBIT_API sbit_status sbit_latency_now(sbit_sparse *sparse, double *before, double *after,
                                           sbit_error *error);

/* >>extend */

typedef struct sbit_search sbit_search;

typedef struct sbit_search_unit {
    const char *layers;        /* as sbit_sparse_loss */
    int64_t count, parameters; /* channels or elements; of the weights that are scored */
} sbit_search_unit;

typedef struct sbit_search_point {
    double over;  /* what is left through what may be left, the largest: 1 or less meets the budget */
    double score; /* more is better: minus the noise through the signal of the outputs on the feed, or
                     what the budget's measure says */
} sbit_search_point;

typedef struct sbit_search_row {
    sbit_head head;  /* its keys hang below "SPARSER." */
    bool needs_score; /* a feed, or a measure */
    /* ratios[units], zeroed: what it found, or what leaves least if nothing meets the budget */
    sbit_status (*run)(sbit_search *search, const sbit_options *options, double *ratios,
                       sbit_error *error);
} sbit_search_row;

/* The row must outlive ctx. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_search_register(sbit_ctx *ctx, const sbit_search_row *row,
                                               sbit_error *error);
SPARSEBIT_API const sbit_search_row *sbit_search_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_search_row *sbit_search_at(size_t index); /* NULL past the end */

/* >>services */
SPARSEBIT_API size_t sbit_search_unit_count(const sbit_search *search);
SPARSEBIT_API sbit_search_unit sbit_search_unit_at(const sbit_search *search,
                                                   size_t index); /* asserts the index */
/* Prunes with one ratio a unit and says what is left; the score only if asked for: it runs the
 * model on the feed. */
SPARSEBIT_API sbit_status sbit_search_try(sbit_search *search, const double *ratios, bool scored,
                                          sbit_search_point *out, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SEARCH_API_H */
