/* measure.c: differences between tensors, ranks. >>measure
 *
 * Called by: users, strategies that compare. Calls: sbit__tensor_f64_at.
 */
#include "../ops/ops_private.h"
#include "measure_api.h"

#include <math.h> /* log10, sqrt, fabs, isfinite */

SPARSEBIT_API bool sbit_dtype_is_number(sbit_dtype dtype)
{
    return sbit_dtype_bits((int32_t)dtype) > 0 && dtype != SBIT_C64 && dtype != SBIT_C128;
}

SPARSEBIT_API double sbit_tensor_f64_at(const sbit_tensor *tensor, int64_t index)
{
    return sbit__tensor_f64_at(tensor, index);
}

static void sbit__diff_element(sbit_diff *diff, double a, double b)
{
    if (!isfinite(a) || !isfinite(b)) {
        const bool same = a == b || (isnan(a) && isnan(b));
        diff->broken = diff->broken || !same;
        return;
    }
    const double error = fabs(a - b), size = fabs(a);
    diff->error2 += error * error;
    diff->reference2 += a * a;
    diff->other2 += b * b;
    diff->product += a * b;
    diff->max_error = error > diff->max_error ? error : diff->max_error;
    diff->max_reference = size > diff->max_reference ? size : diff->max_reference;
}

SPARSEBIT_API void sbit_diff_add(sbit_diff *diff, const sbit_tensor *reference,
                                 const sbit_tensor *other, int64_t count)
{
    const int64_t all = sbit_tensor_count(reference);
    if (!sbit_tensor_same_shape(reference, other) || !sbit_dtype_is_number(reference->dtype) ||
        !sbit_dtype_is_number(other->dtype)) {
        diff->broken = true;
        return;
    }
    count = count < all ? count : all;
    for (int64_t i = 0; i < count; i++) {
        sbit__diff_element(diff, sbit__tensor_f64_at(reference, i), sbit__tensor_f64_at(other, i));
    }
    diff->count += count;
}

SPARSEBIT_API double sbit_diff_sqnr(const sbit_diff *diff)
{
    if (diff->broken) {
        return -HUGE_VAL;
    }
    return diff->error2 == 0.0 ? HUGE_VAL : 10.0 * log10(diff->reference2 / diff->error2);
}

SPARSEBIT_API double sbit_diff_cosine(const sbit_diff *diff)
{
    const double norms = sqrt(diff->reference2) * sqrt(diff->other2);
    if (diff->broken) {
        return (double)NAN;
    }
    return norms > 0.0 ? diff->product / norms : diff->error2 == 0.0 ? 1.0 : 0.0;
}

SPARSEBIT_API double sbit_diff_relative(const sbit_diff *diff)
{
    const double scale = diff->max_reference > 1e-6 ? diff->max_reference : 1e-6;
    return diff->broken ? HUGE_VAL : diff->max_error / scale;
}

/* Whether class a ranks before class b. */
static bool sbit__ranks_before(const float *scores, int64_t a, int64_t b)
{
    if (isnan(scores[a]) || isnan(scores[b])) {
        return isnan(scores[b]) && (!isnan(scores[a]) || a < b);
    }
    return scores[a] > scores[b] || (!(scores[a] < scores[b]) && a < b);
}

SPARSEBIT_API int64_t sbit_rank_of(const float *scores, int64_t classes, int64_t label)
{
    int64_t rank = 0;
    for (int64_t c = 0; c < classes; c++) {
        rank += sbit__ranks_before(scores, c, label);
    }
    return isnan(scores[label]) ? classes : rank;
}

SPARSEBIT_API int64_t sbit_best_of(const float *scores, int64_t classes)
{
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++) {
        best = sbit__ranks_before(scores, c, best) ? c : best;
    }
    return best;
}
