/* measure_api.h: how far two tensors are apart, and where a class ranks. >>measure
 *
 * Called by: users, strategies that compare. Calls: core, the element conversions of ops.
 * SQNR = 10 log10(sum ref^2 / sum (ref - x)^2) dB; relative error = max|ref - x| / max(max|ref|,
 * 1e-6); ranks break ties by the lower index. All sums are doubles. Thread-safe.
 */
#ifndef SBIT_MEASURE_API_H
#define SBIT_MEASURE_API_H

#include "../core/core_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether sbit_tensor_f64_at knows the type: all but strings and complex numbers. */
SPARSEBIT_API bool sbit_dtype_is_number(sbit_dtype dtype);
/* An element as a number, 0 <= index < sbit_tensor_count; bool is 0 or 1. */
SPARSEBIT_API double sbit_tensor_f64_at(const sbit_tensor *tensor, int64_t index);

/* Differences between tensors and their references, over any number of calls; {0} starts. */
typedef struct sbit_diff {
    double error2, reference2, other2, product; /* sums of squares and of reference * other */
    double max_error, max_reference;
    int64_t count; /* of elements */
    bool broken;   /* shapes or types differed, or only one of two values was finite */
} sbit_diff;

/* Compares the first `count` elements; more than there are: all. */
SPARSEBIT_API void sbit_diff_add(sbit_diff *diff, const sbit_tensor *reference,
                                 const sbit_tensor *other, int64_t count);
SPARSEBIT_API double sbit_diff_sqnr(const sbit_diff *diff);     /* dB; equal: HUGE_VAL, broken: - */
SPARSEBIT_API double sbit_diff_cosine(const sbit_diff *diff);   /* -1..1; broken: NaN */
SPARSEBIT_API double sbit_diff_relative(const sbit_diff *diff); /* broken: HUGE_VAL */

/* How many of scores[0..classes-1] rank before `label`: larger ones, and equal ones of lower index.
 * Top-k is rank < k. The rank of a NaN is `classes`. */
SPARSEBIT_API int64_t sbit_rank_of(const float *scores, int64_t classes, int64_t label);
SPARSEBIT_API int64_t sbit_best_of(const float *scores, int64_t classes); /* the one of rank 0 */

#ifdef __cplusplus
}
#endif

#endif /* SBIT_MEASURE_API_H */
