/* ort.c: what ONNX Runtime's calibrators compute: ort_entropy, ort_percentile. >>observer-ort
 *
 * Both count the values in NUM_BINS bins on -A .. A, A = max|x| of all data (onnxruntime's Python
 * package, quantization/calibrate.py, `symmetric` off), and cut the data's range at edges of bins.
 *     ort_percentile  the left edges of the bins in which the running share of values reaches
 *                     (100 - PERCENTILE) / 200 and one less that
 *     ort_entropy     of the widths from NUM_QUANTIZED_BINS on the one with the least divergence.
 *                     With the defaults, 128 and 128, there is one width: nothing is cut
 */
#include "observers_private.h"

static const sbit_key sbit__ort_entropy_keys[] = {
    {"ORT_ENTROPY.NUM_BINS", SBIT_KEY_INT, "128", 2.0, 8192.0, NULL, "bins of the histogram"},
    {"ORT_ENTROPY.NUM_QUANTIZED_BINS", SBIT_KEY_INT, "128", 2.0, 8192.0, NULL,
     "bins of the coarse distribution"},
};

static const sbit_key sbit__ort_percentile_keys[] = {
    {"ORT_PERCENTILE.NUM_BINS", SBIT_KEY_INT, "2048", 2.0, 65536.0, NULL, "bins of the histogram"},
    {"ORT_PERCENTILE.PERCENTILE", SBIT_KEY_FLOAT, "99.999", 0.0, 100.0, NULL,
     "share of the values to keep, in per cent"},
};

static int64_t sbit__ort_entropy_bins(const sbit_observer_call *call)
{
    return sbit_options_int(call->options, "OBSERVER.ORT_ENTROPY.NUM_BINS");
}

static int64_t sbit__ort_percentile_bins(const sbit_observer_call *call)
{
    return sbit_options_int(call->options, "OBSERVER.ORT_PERCENTILE.NUM_BINS");
}

static size_t sbit__ort_entropy_state_bytes(const sbit_observer_call *call)
{
    return sbit__binned_bytes(call, sbit__ort_entropy_bins(call));
}

static size_t sbit__ort_percentile_state_bytes(const sbit_observer_call *call)
{
    return sbit__binned_bytes(call, sbit__ort_percentile_bins(call));
}

static sbit_status sbit__ort_entropy_init(void *state, const sbit_observer_call *call,
                                          sbit_error *error)
{
    (void)error;
    ((sbit__binned *)state)->bins = sbit__ort_entropy_bins(call);
    return SBIT_OK;
}

static sbit_status sbit__ort_percentile_init(void *state, const sbit_observer_call *call,
                                             sbit_error *error)
{
    (void)error;
    ((sbit__binned *)state)->bins = sbit__ort_percentile_bins(call);
    return SBIT_OK;
}

static double sbit__ort_most(float min, float max)
{
    return (double)(-min > max ? -min : max);
}

static sbit__bin_map sbit__ort_map(const sbit_grid *grid, float min, float max, int64_t bins)
{
    const double most = sbit__ort_most(min, max);
    sbit__bin_map map;
    (void)grid;
    map.absolute = map.skip_zero = false;
    map.per_bin = most > 0.0 ? (double)bins / (2.0 * most) : 0.0;
    map.offset = 0.5 * (double)bins;
    map.last = bins - 1;
    return map;
}

static sbit_status sbit__ort_observe(void *state, const sbit_observer_call *call,
                                     const sbit_observation *x, sbit_error *error)
{
    (void)error;
    sbit__binned_observe(state, call, x, sbit__ort_map);
    return SBIT_OK;
}

static double sbit__ort_edge(double most, int64_t bins, int64_t index)
{
    return -most + (double)index * (2.0 * most / (double)bins);
}

/* >>percentile: the first bin up to which at least `share` of the values lie. */
static int64_t sbit__ort_bin_of(const uint64_t *counts, int64_t bins, double share)
{
    double total = 0.0, sum = 0.0;
    for (int64_t i = 0; i < bins; i++) {
        total += (double)counts[i];
    }
    for (int64_t i = 0; i < bins; i++) {
        sum += (double)counts[i] / total;
        if (sum >= share) {
            return i;
        }
    }
    return bins; /* by rounding of the sum */
}

static void sbit__ort_percentile_cut(const sbit_observer_call *call, const uint64_t *counts,
                                     int64_t bins, double *scratch, int64_t *first, int64_t *end)
{
    const double outside =
        (100.0 - sbit_options_float(call->options, "OBSERVER.ORT_PERCENTILE.PERCENTILE")) / 200.0;
    (void)scratch;
    *first = sbit__ort_bin_of(counts, bins, outside);
    *end = sbit__ort_bin_of(counts, bins, 1.0 - outside);
}

/* >>entropy: zeros take 1e-4 each, and the others give that away. 0: nothing but zeros. */
static double sbit__ort_smooth(double *x, int64_t n)
{
    double zeros = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        zeros += x[i] > 0.0 ? 0.0 : 1.0;
    }
    if (zeros >= (double)n) {
        return 0.0;
    }
    const double less = 1e-4 * zeros / ((double)n - zeros);
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] > 0.0 ? x[i] - less : 1e-4;
        sum += x[i];
    }
    return sum;
}

/* The divergence of a slice from its coarse form, p and q of n bins; negative: none. */
static double sbit__ort_divergence(const uint64_t *counts, int64_t bins, int64_t first, int64_t end,
                                   int64_t groups, double *p, double *q)
{
    const int64_t n = end - first, each = n / groups;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        p[i] = (double)counts[first + i];
        q[i] = 0.0;
    }
    for (int64_t i = 0; i < first; i++) {
        p[0] += (double)counts[i];
    }
    for (int64_t i = end; i < bins; i++) {
        p[n - 1] += (double)counts[i];
    }
    for (int64_t g = 0; g < groups; g++) {
        const int64_t from = g * each, to = from + each;
        double inside = 0.0, used = 0.0;
        for (int64_t i = from; i < (g == groups - 1 ? n : to); i++) {
            inside += (double)counts[first + i]; /* the last group counts the rest ... */
        }
        for (int64_t i = from; i < to; i++) {
            used += p[i] > 0.0 ? 1.0 : 0.0;
        }
        for (int64_t i = from; i < to && used > 0.0; i++) {
            q[i] = floor(inside / used); /* ... but does not spread there; whole numbers */
        }
    }
    const double p_sum = sbit__ort_smooth(p, n), q_sum = sbit__ort_smooth(q, n);
    for (int64_t i = 0; i < n && p_sum > 0.0 && q_sum > 0.0; i++) {
        sum += p[i] / p_sum * log((p[i] / p_sum) / (q[i] / q_sum));
    }
    return p_sum > 0.0 && q_sum > 0.0 ? (sum > 0.0 ? sum : 0.0) : -1.0;
}

static void sbit__ort_entropy_cut(const sbit_observer_call *call, const uint64_t *counts,
                                  int64_t bins, double *scratch, int64_t *first, int64_t *end)
{
    const int64_t groups =
        sbit_options_int(call->options, "OBSERVER.ORT_ENTROPY.NUM_QUANTIZED_BINS");
    const int64_t zero = bins / 2;
    double least = -1.0;
    *first = 0;
    *end = bins;
    for (int64_t i = groups / 2; i <= zero; i++) {
        const int64_t from = zero - i, to = zero + i + 1 < bins ? zero + i + 1 : bins;
        if (to - from < groups) {
            continue;
        }
        const double d =
            sbit__ort_divergence(counts, bins, from, to, groups, scratch, scratch + bins);
        if (d >= 0.0 && (least < 0.0 || d < least)) {
            least = d;
            *first = from;
            *end = to;
        }
    }
}

typedef void (*sbit__ort_cut_fn)(const sbit_observer_call *call, const uint64_t *counts,
                                 int64_t bins, double *scratch, int64_t *first, int64_t *end);

static sbit_status sbit__ort_range(const void *state, const sbit_observer_call *call, float *min,
                                   float *max, sbit__ort_cut_fn cut, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(call->ctx);
    const int64_t parts = call->grid->parts.count, bins = ((const sbit__binned *)state)->bins;
    const sbit__binned_view v = sbit__binned_view_of(state, parts);
    const size_t bytes = (size_t)bins * (2 * sizeof(double) + sizeof(uint64_t));
    double *scratch = (double *)sbit__alloc(a, bytes);
    if (scratch == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int64_t p = 0; p < parts; p++) {
        const sbit__bin_map map = sbit__ort_map(call->grid, v.min[p], v.max[p], bins);
        const uint64_t *counts =
            sbit__binned_part(state, call, p, &map, (uint64_t *)(void *)(scratch + 2 * bins));
        const double most = sbit__ort_most(v.min[p], v.max[p]);
        min[p] = v.min[p];
        max[p] = v.max[p];
        if (counts != NULL && most > 0.0) {
            int64_t first = 0, end = bins;
            cut(call, counts, bins, scratch, &first, &end);
            const float low = (float)sbit__ort_edge(most, bins, first);
            const float high = (float)sbit__ort_edge(most, bins, end);
            min[p] = low > min[p] ? low : min[p];
            max[p] = high < max[p] ? high : max[p];
        }
    }
    sbit__free(a, scratch, bytes);
    return SBIT_OK;
}

static sbit_status sbit__ort_entropy_range(const void *state, const sbit_observer_call *call,
                                           float *min, float *max, sbit_error *error)
{
    return sbit__ort_range(state, call, min, max, sbit__ort_entropy_cut, error);
}

static sbit_status sbit__ort_percentile_range(const void *state, const sbit_observer_call *call,
                                              float *min, float *max, sbit_error *error)
{
    return sbit__ort_range(state, call, min, max, sbit__ort_percentile_cut, error);
}

static size_t sbit__ort_save(const void *state, const sbit_observer_call *call, void *bytes,
                             size_t capacity)
{
    const size_t size = sbit__binned_bytes(call, ((const sbit__binned *)state)->bins);
    return sbit__observer_save_flat(state, size, bytes, capacity);
}

static sbit_status sbit__ort_load(void *state, const sbit_observer_call *call, const void *bytes,
                                  size_t size, sbit_error *error)
{
    return sbit__binned_load(state, call, bytes, size, error);
}

SBIT__FN const sbit_observer_row *sbit__observer_ort_entropy(void)
{
    static const sbit_observer_row row = {
        {"ort_entropy", "ONNX Runtime's entropy calibration",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__ort_entropy_keys,
         SBIT__COUNT_OF(sbit__ort_entropy_keys)},
        sbit__ort_entropy_state_bytes,
        sbit__ort_entropy_init,
        sbit__ort_observe,
        sbit__binned_again,
        sbit__binned_merge,
        sbit__ort_entropy_range,
        sbit__ort_save,
        sbit__ort_load,
        NULL,
    };
    return &row;
}

SBIT__FN const sbit_observer_row *sbit__observer_ort_percentile(void)
{
    static const sbit_observer_row row = {
        {"ort_percentile", "ONNX Runtime's percentile calibration",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__ort_percentile_keys,
         SBIT__COUNT_OF(sbit__ort_percentile_keys)},
        sbit__ort_percentile_state_bytes,
        sbit__ort_percentile_init,
        sbit__ort_observe,
        sbit__binned_again,
        sbit__binned_merge,
        sbit__ort_percentile_range,
        sbit__ort_save,
        sbit__ort_load,
        NULL,
    };
    return &row;
}
