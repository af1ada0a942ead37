/* kl.c: entropy calibration: the clipping that keeps most of the distribution. >>observer-kl
 *
 * What Sparsebit's KL_HISTOGRAM means to do (algorithms: section 1.7; its own code returns a
 * constant): a histogram of 2049 bins on -A .. A, A = max|x|, the middle one around 0. For every
 * half width i: p = the middle 2i + 1 bins, what lies outside added to the first and the last;
 * q = the same bins without the outside, joined to D groups (D: steps of the grid; the last takes
 * the rest) and spread evenly over the bins of the group where p is not empty. Empty bins of both
 * count 1e-4. The i with the least sum of P log(P / Q) gives the threshold (i + 1/2) bins.
 * Exact zeros, which every grid has, are not counted: behind a Relu they would be a peak that any
 * joining of bins smears, and the least threshold would win (resnet20: 79.5 %, so 87.6 %).
 * Data of one sign on an affine grid: 2048 bins on 0 .. A, thresholds of whole bins.
 * The range is the data's, cut at the threshold; grids with more steps than bins cut nothing.
 *
 * Two passes: A, then the histogram (binned.c).
 */
#include "observers_private.h"

enum {
    SBIT__KL_HALF = 1024,
    SBIT__KL_BINS = 2 * SBIT__KL_HALF + 1
};

#define SBIT__KL_EMPTY 1e-4

static size_t sbit__kl_state_bytes(const sbit_observer_call *call)
{
    return sbit__binned_bytes(call, SBIT__KL_BINS);
}

static sbit_status sbit__kl_init(void *state, const sbit_observer_call *call, sbit_error *error)
{
    (void)call;
    (void)error;
    ((sbit__binned *)state)->bins = SBIT__KL_BINS;
    return SBIT_OK;
}

static bool sbit__kl_one_sided(const sbit_grid *grid, float min, float max)
{
    return !grid->symmetric && (min >= 0.0f || max <= 0.0f);
}

static double sbit__kl_width(const sbit_grid *grid, float min, float max)
{
    const double most = (double)(-min > max ? -min : max);
    return sbit__kl_one_sided(grid, min, max) ? most / (2.0 * (double)SBIT__KL_HALF)
                                              : 2.0 * most / (double)SBIT__KL_BINS;
}

static sbit__bin_map sbit__kl_map(const sbit_grid *grid, float min, float max, int64_t bins)
{
    const double width = sbit__kl_width(grid, min, max);
    sbit__bin_map map;
    (void)bins;
    map.absolute = sbit__kl_one_sided(grid, min, max);
    map.skip_zero = true;
    map.per_bin = width > 0.0 ? 1.0 / width : 0.0;
    map.offset = map.absolute ? 0.0 : 0.5 + (double)SBIT__KL_HALF;
    map.last = map.absolute ? SBIT__KL_BINS - 2 : SBIT__KL_BINS - 1;
    return map;
}

static sbit_status sbit__kl_observe(void *state, const sbit_observer_call *call,
                                    const sbit_observation *x, sbit_error *error)
{
    (void)error;
    sbit__binned_observe(state, call, x, sbit__kl_map);
    return SBIT_OK;
}

/* >>divergence: of a slice, from sums over the bins before each. */
typedef struct sbit__kl_sums {
    double count[SBIT__KL_BINS + 1], used[SBIT__KL_BINS + 1], log_sum[SBIT__KL_BINS + 1];
    int64_t bins;
} sbit__kl_sums;

static double sbit__kl_xlogx(double x)
{
    return x > 0.0 ? x * log(x) : 0.0;
}

static void sbit__kl_sum(sbit__kl_sums *s, const uint64_t *counts, int64_t bins)
{
    s->bins = bins;
    s->count[0] = s->used[0] = s->log_sum[0] = 0.0;
    for (int64_t i = 0; i < bins; i++) {
        const double n = (double)counts[i];
        s->count[i + 1] = s->count[i] + n;
        s->used[i + 1] = s->used[i] + (counts[i] > 0 ? 1.0 : 0.0);
        s->log_sum[i + 1] = s->log_sum[i] + sbit__kl_xlogx(n);
    }
}

/* What p has beside the bins of [from, to): the tail on its first or last bin, if that is there. */
typedef struct sbit__kl_tail {
    int64_t bin;
    double own, more; /* counts of the bin itself, and of the tail */
} sbit__kl_tail;

static void sbit__kl_add_tail(const sbit__kl_tail *t, int64_t from, int64_t to, double *mass,
                              double *used)
{
    if (t->bin >= from && t->bin < to && t->more > 0.0) {
        *mass += t->more;
        *used += t->own > 0.0 ? 0.0 : 1.0;
    }
}

static double sbit__kl_divergence(const sbit__kl_sums *s, int64_t first, int64_t end,
                                  int64_t groups)
{
    const double total = s->count[s->bins];
    const int64_t last = end - 1, each = (end - first) / groups;
    const sbit__kl_tail left = {first, s->count[first + 1] - s->count[first], s->count[first]};
    const sbit__kl_tail right = {last, s->count[end] - s->count[last], total - s->count[end]};
    double used = s->used[end] - s->used[first], mass = 0.0;
    double p_log_p = s->log_sum[end] - s->log_sum[first], p_log_q = 0.0, q_sum = 0.0;
    sbit__kl_add_tail(&left, first, end, &mass, &used);
    sbit__kl_add_tail(&right, first, end, &mass, &used);
    p_log_p += sbit__kl_xlogx(left.own + left.more) - sbit__kl_xlogx(left.own);
    p_log_p += sbit__kl_xlogx(right.own + right.more) - sbit__kl_xlogx(right.own);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t from = first + g * each, to = g == groups - 1 ? end : from + each;
        const double sum = s->count[to] - s->count[from];
        double p = sum, bins = s->used[to] - s->used[from];
        sbit__kl_add_tail(&left, from, to, &p, &bins);
        sbit__kl_add_tail(&right, from, to, &p, &bins);
        if (bins > 0.0) {
            const double q = sum > 0.0 ? sum / bins : SBIT__KL_EMPTY;
            p_log_q += p * log(q);
            q_sum += q * bins;
        }
    }
    const double empty = ((double)(end - first) - used) * SBIT__KL_EMPTY; /* in p and q alike */
    const double p_sum = total + empty;
    return (p_log_p - p_log_q) / p_sum + log((q_sum + empty) / p_sum);
}

/* Where the values of a part are cut. */
static double sbit__kl_threshold(sbit__kl_sums *sums, const uint64_t *counts, bool one_sided,
                                 double width, int64_t steps)
{
    const int64_t bins = SBIT__KL_BINS - (one_sided ? 1 : 0);
    const int64_t most = one_sided ? bins : (int64_t)SBIT__KL_HALF;
    int64_t best = most;
    double least = 0.0;
    bool found = false;
    sbit__kl_sum(sums, counts, bins);
    for (int64_t i = one_sided ? steps : steps / 2; i <= most; i++) {
        const int64_t first = one_sided ? 0 : SBIT__KL_HALF - i;
        const int64_t end = one_sided ? i : SBIT__KL_HALF + i + 1;
        if (end - first < steps) {
            continue;
        }
        const double d = sbit__kl_divergence(sums, first, end, steps);
        if (!found || d < least) {
            least = d;
            found = true;
            best = i;
        }
    }
    return ((double)best + (one_sided ? 0.0 : 0.5)) * width;
}

static sbit_status sbit__kl_range(const void *state, const sbit_observer_call *call, float *min,
                                  float *max, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(call->ctx);
    const int64_t parts = call->grid->parts.count;
    const int64_t steps = (int64_t)call->grid->qmax - call->grid->qmin;
    const sbit__binned_view v = sbit__binned_view_of(state, parts);
    const size_t bytes = sizeof(sbit__kl_sums) + SBIT__KL_BINS * sizeof(uint64_t);
    const sbit__binned *head = (const sbit__binned *)state;
    if (head->pass == 2 && (head->symmetric != 0) != call->grid->symmetric) {
        return sbit__fail(error, SBIT_ERR_STATE, call->name,
                          "kl_histogram counted tensor '%s' for the other scheme (symmetric, affine); "
                          "calibrate again",
                          call->name);
    }
    sbit__kl_sums *sums = (sbit__kl_sums *)sbit__alloc(a, bytes);
    if (sums == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int64_t p = 0; p < parts; p++) {
        const double width = sbit__kl_width(call->grid, v.min[p], v.max[p]);
        const bool one_sided = sbit__kl_one_sided(call->grid, v.min[p], v.max[p]);
        const sbit__bin_map map = sbit__kl_map(call->grid, v.min[p], v.max[p], SBIT__KL_BINS);
        const uint64_t *counts =
            sbit__binned_part(state, call, p, &map, (uint64_t *)(void *)(sums + 1));
        const bool cuts = counts != NULL && width > 0.0 && steps < SBIT__KL_BINS - 1;
        const double cut =
            cuts ? sbit__kl_threshold(sums, counts, one_sided, width, steps) : (double)INFINITY;
        min[p] = (double)v.min[p] < -cut ? (float)-cut : v.min[p];
        max[p] = (double)v.max[p] > cut ? (float)cut : v.max[p];
    }
    sbit__free(a, sums, bytes);
    return SBIT_OK;
}

static size_t sbit__kl_save(const void *state, const sbit_observer_call *call, void *bytes,
                            size_t capacity)
{
    return sbit__observer_save_flat(state, sbit__kl_state_bytes(call), bytes, capacity);
}

static sbit_status sbit__kl_load(void *state, const sbit_observer_call *call, const void *bytes,
                                 size_t size, sbit_error *error)
{
    return sbit__binned_load(state, call, bytes, size, error);
}

SBIT__FN const sbit_observer_row *sbit__observer_kl_histogram(void)
{
    static const sbit_observer_row row = {
        {"kl_histogram", "entropy calibration: the clipping that keeps most of the distribution",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, NULL, 0},
        sbit__kl_state_bytes,
        sbit__kl_init,
        sbit__kl_observe,
        sbit__binned_again,
        sbit__binned_merge,
        sbit__kl_range,
        sbit__kl_save,
        sbit__kl_load,
        NULL,
    };
    return &row;
}
