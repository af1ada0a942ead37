/* split */
/* test_strategies.c: every row of observers and quantizers against plain double arithmetic, on data
 * of many shapes. A new row needs an entry in `observer_plain` or `quantizer_plain`; a row without
 * one fails.
 */
#include "strategy_rows.h"
#include "build_graph.h"

enum {
    ROWS = 12, /* samples, or the output channels of a weight */
    CHANNELS = 5,
    INNER = 40,
    COUNT = ROWS * CHANNELS * INNER
};

/* ---- data */
typedef struct shape_of_data {
    const char *name;
    float (*draw)(sbit_rng *rng, int64_t channel);
} shape_of_data;

static float draw_gauss(sbit_rng *rng, int64_t channel)
{
    (void)channel;
    return 1.3f * sbit_rng_normal(rng);
}

static float draw_laplace(sbit_rng *rng, int64_t channel)
{
    const float u = sbit_rng_uniform(rng) - 0.5f;
    (void)channel;
    return (u < 0.0f ? 1.0f : -1.0f) * logf(1.0f - 1.999f * fabsf(u));
}

static float draw_relu(sbit_rng *rng, int64_t channel)
{
    const float x = sbit_rng_normal(rng);
    (void)channel;
    return x > 0.0f ? x : 0.0f;
}

static float draw_two_sided(sbit_rng *rng, int64_t channel)
{
    (void)channel;
    return sbit_rng_uniform(rng) < 0.3f ? -0.7f - 0.1f * sbit_rng_normal(rng)
                                        : 2.0f + 0.4f * sbit_rng_normal(rng);
}

static float draw_constant(sbit_rng *rng, int64_t channel)
{
    (void)rng;
    (void)channel;
    return 0.37f;
}

static float draw_zero(sbit_rng *rng, int64_t channel)
{
    (void)rng;
    (void)channel;
    return 0.0f;
}

static float draw_outlier(sbit_rng *rng, int64_t channel)
{
    (void)channel;
    return sbit_rng_normal(rng) * (sbit_rng_below(rng, 400) == 0 ? 60.0f : 1.0f);
}

static float draw_per_channel(sbit_rng *rng, int64_t channel)
{
    static const float size[CHANNELS] = {1e-3f, 0.1f, 1.0f, 7.0f, 900.0f};
    return size[channel % CHANNELS] * (sbit_rng_normal(rng) + (channel % 2 == 0 ? 0.0f : 0.8f));
}

static float draw_negative(sbit_rng *rng, int64_t channel)
{
    (void)channel;
    return -0.2f - fabsf(sbit_rng_normal(rng));
}

static const shape_of_data shapes[] = {
    {"gauss", draw_gauss},         {"laplace", draw_laplace},         {"relu", draw_relu},
    {"two-sided", draw_two_sided}, {"constant", draw_constant},       {"zero", draw_zero},
    {"outlier", draw_outlier},     {"per channel", draw_per_channel}, {"negative", draw_negative},
};

static void draw(const shape_of_data *shape, uint64_t seed, float *out)
{
    sbit_rng rng = sbit_rng_seed(seed);
    for (int64_t i = 0; i < COUNT; i++) {
        out[i] = shape->draw(&rng, i / INNER % CHANNELS);
    }
}

/* ---- plain arithmetic of observers: the values of one part, in the order fed */
typedef struct plain {
    const rows *r;
    const double *x; /* [n] */
    int64_t n;
    int64_t samples, all_count; /* of the whole tensor */
    bool all_positive;
    double min, max; /* out */
    /* what error of the result against the row is allowed: of the range's width */
    double tolerance;
} plain;

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static void plain_range(const plain *p, double *min, double *max)
{
    *min = *max = p->x[0];
    for (int64_t i = 1; i < p->n; i++) {
        *min = p->x[i] < *min ? p->x[i] : *min;
        *max = p->x[i] > *max ? p->x[i] : *max;
    }
}

static void plain_minmax(plain *p)
{
    plain_range(p, &p->min, &p->max);
}

static void plain_moving_average(plain *p)
{
    const double keep = sbit_options_float(&p->r->options, "OBSERVER.MOVING_AVERAGE.EMA_RATIO");
    const int64_t each = p->n / p->samples;
    for (int64_t s = 0; s < p->samples; s++) {
        plain sample = *p;
        sample.x += s * each;
        sample.n = each;
        plain_range(&sample, &sample.min, &sample.max);
        p->min = s == 0 ? sample.min : keep * p->min + (1.0 - keep) * sample.min;
        p->max = s == 0 ? sample.max : keep * p->max + (1.0 - keep) * sample.max;
    }
    p->tolerance = 1e-5;
}

static double plain_round(double x) /* half to even, whatever the rounding mode */
{
    const double below = floor(x), rest = x - below;
    return rest < 0.5 || (rest <= 0.5 && fmod(below, 2.0) == 0.0) ? below : below + 1.0;
}

/* mean |x - y|^power, y fake-quantized on the grid of a range */
/* Not summed to the end where it is above `enough`. */
static double plain_loss(const plain *p, double min, double max, double power, double enough)
{
    const sbit_grid *g = &p->r->grid;
    sbit_error error;
    float s;
    int32_t zp;
    double sum = 0.0;
    CHECK_OK(sbit_grid_scale(g, "x", (float)min, (float)max, &s, &zp, &error), error);
    for (int64_t i = 0; i < p->n && sum <= enough * (double)p->n; i++) {
        double q = plain_round(p->x[i] / (double)s) + zp;
        q = q < g->qmin ? g->qmin : q > g->qmax ? g->qmax : q;
        const double d = fabs(p->x[i] - (q - zp) * (double)s);
        sum += power == 2.0 ? d * d : power == 1.0 ? d : pow(d, power);
    }
    return sum / (double)p->n;
}

static void plain_search(plain *p, double power)
{
    double lo, hi, least = -1.0;
    plain_range(p, &lo, &hi);
    for (int i = 0; i < 80; i++) {
        const float f = (float)(1.0 - 0.01 * i);
        const double loss = plain_loss(p, (double)((float)lo * f), (double)((float)hi * f), power,
                                       least < 0.0 ? HUGE_VAL : least);
        if (least < 0.0 || loss < least) {
            least = loss;
            p->min = (double)((float)lo * f);
            p->max = (double)((float)hi * f);
        }
    }
}

/* The range may be another if its error is nearly the least: from a histogram by 0.5 %, and by more
 * where few values make the error of a candidate a matter of luck. */
static bool near_loss(const plain *p, double power, double min, double max)
{
    const double bound = p->r->target == SBIT_TARGET_WEIGHT ? 1.00001
                         : p->n > 2000 && power == 2.0      ? 1.005
                                                            : 1.03;
    return plain_loss(p, min, max, power, HUGE_VAL) <=
           bound * plain_loss(p, p->min, p->max, power, HUGE_VAL) + 1e-14;
}

static void plain_mse(plain *p)
{
    plain_search(p, 2.0);
}

static void plain_lp(plain *p)
{
    plain_search(p, sbit_options_float(&p->r->options, "OBSERVER.LP.P"));
}

static bool near_mse(const plain *p, double min, double max)
{
    return near_loss(p, 2.0, min, max);
}

static bool near_lp(const plain *p, double min, double max)
{
    return near_loss(p, sbit_options_float(&p->r->options, "OBSERVER.LP.P"), min, max);
}

static void plain_percentile(plain *p)
{
    const double alpha = sbit_options_float(&p->r->options, "OBSERVER.PERCENTILE.ALPHA");
    double *sorted = (double *)malloc((size_t)p->n * sizeof *sorted);
    int64_t negative = 0;
    memcpy(sorted, p->x, (size_t)p->n * sizeof *sorted);
    qsort(sorted, (size_t)p->n, sizeof *sorted, compare_doubles);
    while (negative < p->n && sorted[negative] < 0.0) {
        negative++;
    }
    const int64_t cut = (int64_t)plain_round((double)(p->n - negative) * alpha);
    const int64_t low = (int64_t)plain_round((double)negative * alpha);
    p->max = negative < p->n ? sorted[p->n - cut - 1] : 0.0;
    p->min = negative > 0 ? sorted[low > 1 ? low - 1 : 0] : 0.0;
    free(sorted);
}

/* The intended algorithm, array by array. */
static double plain_divergence(const double *hist, int bins, int first, int end, int groups)
{
    static double p[2049], q[2049];
    const int n = end - first, each = n / groups;
    double p_sum = 0.0, q_sum = 0.0, sum = 0.0, term = 0.0;
    for (int i = 0; i < n; i++) {
        p[i] = hist[first + i];
        q[i] = 0.0;
    }
    for (int i = 0; i < bins; i++) {
        p[0] += i < first ? hist[i] : 0.0;
        p[n - 1] += i >= end ? hist[i] : 0.0;
    }
    for (int g = 0; g < groups; g++) {
        const int from = g * each, to = g == groups - 1 ? n : from + each;
        double inside = 0.0, used = 0.0;
        for (int i = from; i < to; i++) {
            inside += hist[first + i];
            used += p[i] > 0.0 ? 1.0 : 0.0;
        }
        for (int i = from; i < to; i++) {
            q[i] = p[i] > 0.0 ? inside / used : 0.0;
        }
    }
    for (int i = 0; i < n; i++) {
        p[i] = p[i] > 0.0 ? p[i] : 1e-4;
        q[i] = q[i] > 0.0 ? q[i] : 1e-4;
        p_sum += p[i];
        q_sum += q[i];
    }
    for (int i = 0; i < n; i++) {
        if (i == 0 || p[i] > p[i - 1] || p[i] < p[i - 1] || q[i] > q[i - 1] || q[i] < q[i - 1]) {
            term = p[i] / p_sum * log((p[i] / p_sum) / (q[i] / q_sum)); /* else as the one before */
        }
        sum += term;
    }
    return sum;
}

/* Why kl_histogram loses 2 points on mobilenetv2 in 8 bits, all of it in one tensor behind a Relu6:
 * channels that hardly vary are peaks of the histogram. A step of 8 bins smears a peak, which costs
 * its share of the values times log 8 of divergence although the values move by less than half a
 * step; a range of a third resolves it, and cuts the tail for less. The divergence, worked out array
 * by array, prefers the cut; the squared error is many times larger there. */
TEST(kl_resolves_peaks_and_gives_up_the_tail)
{
    enum { N = 60000 };
    static const float peaks[4] = {0.3123f, 0.5177f, 0.7411f, 1.0613f};
    static float x[N];
    static double hist[2049];
    float min, max;
    double error[2] = {0.0, 0.0};
    const int64_t dims[1] = {N}, cuts[1] = {N};
    const sbit_tensor all = rows_tensor(x, 1, dims);
    sbit_ctx *ctx = NULL;
    sbit_error problem;
    rows r;
    sbit_rng rng = sbit_rng_seed(8);
    for (int i = 0; i < N; i++) {
        const float v = 1.2f * fabsf(sbit_rng_normal(&rng)) * (i % 40 == 1 ? 2.0f : 1.0f);
        x[i] = i % 2 == 0 ? peaks[i / 2 % 4] + 0.0005f * sbit_rng_normal(&rng) : v > 6.0f ? 6.0f : v;
    }
    x[1] = 6.0f;
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &problem), problem);
    const sbit_observer_row *row = sbit_observer_find(ctx, "kl_histogram");
    rows_begin(&r, ctx, &row->head, "OBSERVER.", SBIT_TARGET_ACTIVATION, false, 8, &all, -1, 0);
    rows_range(&r, row, &all, cuts, 1, &min, &max);
    rows_end(&r);
    const double ends[2] = {6.0, (double)max};
    memset(hist, 0, sizeof hist);
    for (int i = 0; i < N; i++) {
        hist[(int)fmin(2047.0, floor((double)x[i] * 2048.0 / 6.0))] += 1.0;
        for (int k = 0; k < 2; k++) {
            const double step = ends[k] / 255.0;
            const double q = fmin(255.0, nearbyint((double)x[i] / step));
            error[k] += ((double)x[i] - q * step) * ((double)x[i] - q * step) / N;
        }
    }
    const int bins = (int)plain_round((double)max * 2048.0 / 6.0);
    CHECK_MSG((double)max < 3.0, "cut at %g", (double)max);
    CHECK(plain_divergence(hist, 2048, 0, bins, 255) < plain_divergence(hist, 2048, 0, 2048, 255));
    CHECK_MSG(error[1] > 10.0 * error[0], "mean squared error %g, %g cut", error[0], error[1]);
    sbit_ctx_destroy(ctx);
}

static void plain_kl(plain *p)
{
    const sbit_grid *g = &p->r->grid;
    const int steps = g->qmax - g->qmin;
    double hist[2049] = {0.0}, lo, hi, least = -1.0;
    int best = 0;
    plain_range(p, &lo, &hi);
    const double most = -lo > hi ? -lo : hi;
    const bool one_sided = !g->symmetric && (lo >= 0.0 || hi <= 0.0);
    const int bins = one_sided ? 2048 : 2049;
    const double width = one_sided ? most / 2048.0 : 2.0 * most / 2049.0;
    p->min = lo;
    p->max = hi;
    p->tolerance = 1e-6;
    if (most <= 0.0) {
        return;
    }
    for (int64_t i = 0; i < p->n; i++) {
        const int bin = (int)floor(one_sided ? fabs(p->x[i]) / width : p->x[i] / width + 1024.5);
        const bool zero = !(p->x[i] < 0.0) && !(p->x[i] > 0.0); /* on every grid */
        hist[bin < 0 ? 0 : bin < bins ? bin : bins - 1] += zero ? 0.0 : 1.0;
    }
    for (int i = one_sided ? steps : steps / 2; i <= (one_sided ? 2048 : 1024); i++) {
        const int first = one_sided ? 0 : 1024 - i, end = one_sided ? i : 1024 + i + 1;
        if (end - first >= steps) {
            const double d = plain_divergence(hist, bins, first, end, steps);
            if (least < 0.0 || d < least - 1e-12) {
                least = d;
                best = i;
            }
        }
    }
    const double cut = ((double)best + (one_sided ? 0.0 : 0.5)) * width;
    p->min = lo < -cut ? -cut : lo;
    p->max = hi > cut ? cut : hi;
}

static void plain_aciq(plain *p)
{
    static const double gauss[] = {0.0, 1.24, 1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92, 4.2};
    static const double laplace[] = {1.05, 1.86, 2.83, 3.89, 5.03, 6.2, 7.41, 8.64, 9.89};
    static const double laplace_half[] = {1.86, 2.83, 3.89, 5.02, 6.2, 7.41, 8.64, 9.89, 11.16};
    const char *name = sbit_options_string(&p->r->options, "OBSERVER.ACIQ.DISTRIBUTION");
    const bool half = !p->r->grid.symmetric && p->all_positive;
    const int bits = p->r->grid.bits;
    double lo, hi, mean = 0.0, spread = 0.0;
    plain_range(p, &lo, &hi);
    for (int64_t i = 0; i < p->n; i++) {
        mean += p->x[i] / (double)p->n;
    }
    for (int64_t i = 0; i < p->n; i++) {
        spread += fabs(p->x[i] - mean) / (double)p->n;
    }
    const double n =
        (double)p->all_count / (p->r->target == SBIT_TARGET_ACTIVATION ? (double)p->samples : 1.0);
    if (strcmp(name, "LAPLACE") == 0) {
        p->max = (half ? laplace_half : laplace)[bits] * spread;
    } else {
        const double c = 0.5 * 0.35 * (1.0 + sqrt(acos(-1.0) * log(4.0)));
        p->max = gauss[bits + (half ? 1 : 0)] * (hi - lo) * c / sqrt(2.0 * log(n));
    }
    p->min = half ? 0.0 : -p->max;
    p->tolerance = 1e-6;
}

/* The expected squared error of rounding within s and cutting beyond, least where its derivative is
 * zero: found by bisection. */
static double plain_octav_slope(const plain *p, double cost, double s)
{
    double slope = 0.0;
    for (int64_t i = 0; i < p->n; i++) {
        const double size = fabs(p->x[i]);
        slope += size > s ? s - size : size > 0.0 ? cost * s : 0.0;
    }
    return slope;
}

static void plain_octav(plain *p)
{
    const sbit_grid *g = &p->r->grid;
    const double steps = g->qmax - g->qmin;
    double lo, hi;
    plain_range(p, &lo, &hi);
    const bool one_sided = !g->symmetric && (lo >= 0.0 || hi <= 0.0);
    const double cost = 1.0 / ((one_sided ? 12.0 : 3.0) * steps * steps);
    double low = 0.0, high = -lo > hi ? -lo : hi;
    for (int i = 0; i < 200; i++) {
        const double middle = 0.5 * (low + high);
        if (plain_octav_slope(p, cost, middle) < 0.0) {
            low = middle;
        } else {
            high = middle;
        }
    }
    p->min = lo < -high ? -high : lo;
    p->max = hi > high ? high : hi;
    p->tolerance = 5e-3; /* histograms; and a minimum at a value, where the slope jumps */
}

/* NumPy's way, step by step (see test_golden.c for ONNX Runtime's own numbers). */
static void plain_ort_percentile(plain *p)
{
    const int bins = (int)sbit_options_int(&p->r->options, "OBSERVER.ORT_PERCENTILE.NUM_BINS");
    const double keep = sbit_options_float(&p->r->options, "OBSERVER.ORT_PERCENTILE.PERCENTILE");
    const double outside = (100.0 - keep) / 200.0;
    double *hist = (double *)calloc((size_t)bins, sizeof *hist), lo, hi, sum = 0.0;
    int left = -1, right = -1;
    plain_range(p, &lo, &hi);
    const double most = -lo > hi ? -lo : hi, width = 2.0 * most / bins;
    p->min = lo;
    p->max = hi;
    p->tolerance = 1e-6;
    for (int64_t i = 0; i < p->n && most > 0.0; i++) {
        const int bin = (int)floor(p->x[i] / width + 0.5 * bins);
        hist[bin < bins ? bin : bins - 1] += 1.0;
    }
    for (int i = 0; i < bins && most > 0.0; i++) {
        sum += hist[i] / (double)p->n;
        left = left < 0 && sum >= outside ? i : left;
        right = right < 0 && sum >= 1.0 - outside ? i : right;
    }
    right = right < 0 ? bins : right;
    if (most > 0.0) {
        p->min = fmax(lo, -most + left * width);
        p->max = fmin(hi, -most + right * width);
    }
    free(hist);
}

typedef struct observer_entry {
    const char *row;
    const char *option, *value; /* NULL: defaults */
    void (*compute)(plain *p);
    bool (*near_enough)(const plain *p, double min, double max); /* NULL: p->tolerance */
} observer_entry;

static const observer_entry observer_plain[] = {
    {"minmax", NULL, NULL, plain_minmax, NULL},
    {"moving_average", NULL, NULL, plain_moving_average, NULL},
    {"moving_average", "OBSERVER.MOVING_AVERAGE.EMA_RATIO", "0.3", plain_moving_average, NULL},
    {"mse", NULL, NULL, plain_mse, near_mse},
    {"lp", NULL, NULL, plain_lp, near_lp},
    {"lp", "OBSERVER.LP.P", "1", plain_lp, near_lp},
    {"percentile", NULL, NULL, plain_percentile, NULL},
    {"percentile", "OBSERVER.PERCENTILE.ALPHA", "0.03", plain_percentile, NULL},
    {"percentile", "OBSERVER.PERCENTILE.ALPHA", "0", plain_percentile, NULL},
    {"kl_histogram", NULL, NULL, plain_kl, NULL},
    {"aciq", NULL, NULL, plain_aciq, NULL},
    {"aciq", "OBSERVER.ACIQ.DISTRIBUTION", "LAPLACE", plain_aciq, NULL},
    {"octav", NULL, NULL, plain_octav, NULL},
    {"ort_percentile", NULL, NULL, plain_ort_percentile, NULL},
    {"ort_percentile", "OBSERVER.ORT_PERCENTILE.PERCENTILE", "97", plain_ort_percentile, NULL},
    {"ort_entropy", NULL, NULL, plain_minmax, NULL}, /* as many bins as groups: nothing to cut */
    {"moments", NULL, NULL, plain_minmax, NULL},
};

/* ---- how a tensor is cut */
typedef struct cutting {
    uint32_t target;
    int32_t axis;
    int64_t block;
} cutting;

static const cutting cuttings[] = {
    {SBIT_TARGET_ACTIVATION, -1, 0}, {SBIT_TARGET_ACTIVATION, 1, 0}, {SBIT_TARGET_WEIGHT, -1, 0},
    {SBIT_TARGET_WEIGHT, 0, 0},      {SBIT_TARGET_WEIGHT, 1, 0},     {SBIT_TARGET_WEIGHT, 2, 16},
};

/* `make quick` takes a quarter of the product of shapes, cuttings and grids, where every two meet;
 * of what takes long in plain arithmetic an eighth. */
static bool taken(const char *row, size_t shape, size_t cut, size_t grid)
{
    const bool slow = strcmp(row, "kl_histogram") == 0 || strcmp(row, "mse") == 0 ||
                      strcmp(row, "lp") == 0 || strcmp(row, "hqq") == 0;
    return getenv("SBIT_TEST_QUICK") == NULL ||
           ((shape + cut) % 4 == grid && (!slow || (shape + cut / 2) % 2 == 0));
}

typedef struct observed {
    rows r;
    const observer_entry *entry;
    const sbit_observer_row *row;
    sbit_tensor x;
    float *min, *max, *range; /* [parts], [parts], [2 * parts] */
    char what[160];
} observed;

static bool observed_begin(observed *o, sbit_ctx *ctx, const observer_entry *entry, int bits,
                           bool symmetric, const cutting *cut, const shape_of_data *shape,
                           const float *data)
{
    static const int64_t dims[] = {ROWS, CHANNELS, INNER};
    memset(o, 0, sizeof *o);
    o->entry = entry;
    o->row = sbit_observer_find(ctx, entry->row);
    o->x = rows_tensor(data, 3, dims);
    if (!CHECK(o->row != NULL)) {
        return false;
    }
    const uint32_t targets = o->row->head.targets != 0 ? o->row->head.targets : cut->target;
    const bool kl = strcmp(entry->row, "kl_histogram") == 0,
               quick = getenv("SBIT_TEST_QUICK") != NULL;
    if ((targets & cut->target) == 0 ||
        (strcmp(entry->row, "moving_average") == 0 && cut->axis >= 0) || /* per tensor only */
        (kl && cut->axis >= 0 && (cut->axis == 2 || shape->draw != draw_per_channel || quick))) {
        return false;
    }
    rows_begin(&o->r, ctx, &o->row->head, "OBSERVER.", cut->target, symmetric, bits, &o->x,
               cut->axis, cut->block);
    if (entry->option != NULL) {
        rows_set(&o->r, entry->option, entry->value);
    }
    const size_t parts = (size_t)o->r.grid.parts.count;
    o->min = (float *)calloc(parts, 4 * sizeof(float));
    o->max = o->min + parts;
    o->range = o->max + parts;
    snprintf(o->what, sizeof o->what, "%s %s %d bits %s, %s axis %d block %d", entry->row,
             shape->name, bits, symmetric ? "symmetric" : "affine",
             cut->target == SBIT_TARGET_WEIGHT ? "weight" : "activation", (int)cut->axis,
             (int)cut->block);
    return true;
}

static void observed_end(observed *o)
{
    free(o->min);
    rows_end(&o->r);
}

/* Calls `check` for every row, shape, grid and cutting. */
static void for_each_observer(void (*check)(observed *o))
{
    static float data[COUNT];
    sbit_ctx *ctx = NULL;
    sbit_error error;
    if (!CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error)) {
        return;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        draw(&shapes[s], 77 + s, data);
        for (size_t e = 0; e < sizeof observer_plain / sizeof observer_plain[0]; e++) {
            for (size_t c = 0; c < sizeof cuttings / sizeof cuttings[0]; c++) {
                for (size_t grid = 0; grid < 4; grid++) {
                    observed o;
                    if (taken(observer_plain[e].row, s, c, grid) &&
                        observed_begin(&o, ctx, &observer_plain[e], grid / 2 == 0 ? 4 : 8,
                                       grid % 2 != 0, &cuttings[c], &shapes[s], data)) {
                        check(&o);
                        observed_end(&o);
                    }
                }
            }
        }
    }
    sbit_ctx_destroy(ctx);
}

TEST(every_observer_has_plain_arithmetic)
{
    for (size_t i = 0; sbit_observer_at(i) != NULL; i++) {
        bool found = false;
        for (size_t e = 0; e < sizeof observer_plain / sizeof observer_plain[0]; e++) {
            found = found || strcmp(observer_plain[e].row, sbit_observer_at(i)->head.name) == 0;
        }
        if (!CHECK(found)) {
            printf("  %s has no entry\n", sbit_observer_at(i)->head.name);
        }
    }
}

static void check_plain(observed *o)
{
    static const int64_t cuts[] = {5, 1, 6};
    static double values[COUNT];
    static int64_t part_of[COUNT];
    const int64_t parts = o->r.grid.parts.count;
    const float *data = (const float *)o->x.data;
    const bool weight = o->r.target == SBIT_TARGET_WEIGHT;
    plain p;
    memset(&p, 0, sizeof p);
    p.all_positive = true;
    for (int64_t i = 0; i < COUNT; i++) {
        p.all_positive = p.all_positive && data[i] >= 0.0f;
        part_of[i] = sbit_parts_at(&o->r.grid.parts, i);
    }
    if (weight) {
        const int64_t whole = ROWS;
        rows_range(&o->r, o->row, &o->x, &whole, 1, o->min, o->max);
    } else {
        rows_range(&o->r, o->row, &o->x, cuts, 3, o->min, o->max);
    }
    for (int64_t part = 0; part < parts; part++) {
        p.r = &o->r;
        p.x = values;
        p.n = 0;
        p.samples = ROWS;
        p.all_count = COUNT;
        p.tolerance = 0.0;
        for (int64_t i = 0; i < COUNT; i++) {
            if (part_of[i] == part) {
                values[p.n++] = (double)data[i];
            }
        }
        o->entry->compute(&p);
        const double min = (double)o->min[part], max = (double)o->max[part];
        const double allowed = p.tolerance * (fabs(p.min) + fabs(p.max)) + 1e-12;
        const bool same = fabs(min - p.min) <= allowed && fabs(max - p.max) <= allowed;
        if (!CHECK(same ||
                   (o->entry->near_enough != NULL && o->entry->near_enough(&p, min, max)))) {
            printf("  %s, part %d: %.9g .. %.9g, plainly %.9g .. %.9g\n", o->what, (int)part, min,
                   max, p.min, p.max);
        }
    }
}

TEST(observers_agree_with_plain_arithmetic)
{
    for_each_observer(check_plain);
}

/* ---- states: cut, joined, saved */
/* Every pass: half of the pieces to one state, half to another that stands where the first stood;
 * joined they must say what one state says that saw all. */
static void check_merge(observed *o)
{
    const sbit_observer_call call = rows_observer_call(&o->r);
    const size_t bytes = o->row->state_bytes(&call);
    const int64_t parts = o->r.grid.parts.count;
    float *whole = (float *)calloc((size_t)parts, 2 * sizeof *whole);
    void *a = rows_state(&o->r, o->row);
    bool wanted = o->row->merge != NULL && o->row->deinit == NULL;
    const bool able = wanted;
    sbit_error error;
    while (wanted) {
        void *b = calloc(1, bytes + 1);
        memcpy(b, a, bytes); /* states without pointers; a new pass begins without counts */
        for (int64_t first = 0; first < ROWS; first += 3) {
            sbit_tensor piece = o->x;
            piece.dims[0] = 3;
            piece.data = (float *)o->x.data + first * CHANNELS * INNER;
            rows_observe(&o->r, o->row, first % 2 == 0 ? a : b, &piece, o->range);
        }
        CHECK_OK(o->row->merge(a, b, &call, &error), error);
        free(b);
        wanted = false;
        if (o->row->again != NULL) {
            CHECK_OK(o->row->again(a, &call, &wanted, &error), error);
        }
    }
    if (able) {
        const int64_t all = ROWS;
        CHECK_OK(o->row->range(a, &call, o->min, o->max, &error), error);
        rows_range(&o->r, o->row, &o->x, &all, 1, whole, whole + parts);
        for (int64_t p = 0; p < parts; p++) {
            const double scale = fabs((double)whole[p]) + fabs((double)whole[parts + p]);
            if (!CHECK(fabs((double)o->min[p] - (double)whole[p]) <= 1e-7 * scale) ||
                !CHECK(fabs((double)o->max[p] - (double)whole[parts + p]) <= 1e-7 * scale)) {
                printf("  %s, part %d: joined %.9g .. %.9g, whole %.9g .. %.9g\n", o->what, (int)p,
                       (double)o->min[p], (double)o->max[p], (double)whole[p],
                       (double)whole[parts + p]);
            }
        }
    }
    free(whole);
    rows_free(&o->r, o->row, a);
}

/* Rows of weights need whole samples: cut only where pieces are of the same parts. */
static void check_merge_of_activations(observed *o)
{
    if (o->r.target == SBIT_TARGET_ACTIVATION || o->r.axis == -1 || o->r.axis == 1) {
        check_merge(o);
    }
}

TEST(observers_split_anyhow_say_the_same)
{
    for_each_observer(check_merge_of_activations);
}

/* Saved after a part of the data and loaded into a fresh state, which sees the rest. */
static void check_save(observed *o)
{
    const sbit_observer_call call = rows_observer_call(&o->r);
    const int64_t parts = o->r.grid.parts.count;
    float *whole = (float *)calloc((size_t)parts, 2 * sizeof *whole);
    sbit_error error;
    sbit_tensor front = o->x, back = o->x;
    if (!CHECK(o->row->save != NULL && o->row->load != NULL)) {
        return;
    }
    front.dims[0] = back.dims[0] = ROWS / 2;
    back.data = (float *)o->x.data + ROWS / 2 * CHANNELS * INNER;
    void *a = rows_state(&o->r, o->row);
    void *b = rows_state(&o->r, o->row);
    rows_observe(&o->r, o->row, a, &front, o->range);
    const size_t size = o->row->save(a, &call, NULL, 0);
    char *bytes = (char *)malloc(size + 1);
    bytes[size] = 77;
    CHECK_EQ_I64(o->row->save(a, &call, bytes, size), size);
    CHECK_EQ_I64(bytes[size], 77);
    CHECK(o->row->load(b, &call, bytes, size + 8, &error) != SBIT_OK);
    CHECK_OK(o->row->load(b, &call, bytes, size, &error), error);
    rows_observe(&o->r, o->row, a, &back, o->range);
    rows_observe(&o->r, o->row, b, &back, o->range);
    CHECK_OK(o->row->range(a, &call, o->min, o->max, &error), error);
    CHECK_OK(o->row->range(b, &call, whole, whole + parts, &error), error);
    CHECK(memcmp(o->min, whole, (size_t)parts * sizeof *whole) == 0);
    CHECK(memcmp(o->max, whole + parts, (size_t)parts * sizeof *whole) == 0);
    free(bytes);
    free(whole);
    rows_free(&o->r, o->row, a);
    rows_free(&o->r, o->row, b);
}

static void check_save_of_cut(observed *o)
{
    if (o->r.axis == -1 || o->r.axis == 1) {
        check_save(o);
    }
}

TEST(observers_are_saved_and_loaded)
{
    for_each_observer(check_save_of_cut);
}

/* ---- quantizers */
/* What a row's forward is in double, with the rounding of the starting point frozen: its derivative
 * is the straight-through gradient. */
typedef struct surrogate {
    const rows *r;
    const char *row;
    double scale[COUNT], zero[COUNT]; /* of each element */
    double rest[COUNT];               /* round(x / s) - x / s at the start */
    double most;                      /* dorefa: max|tanh(x)|; pact: alpha */
} surrogate;

static double surrogate_domain(const surrogate *s, double x)
{
    return strcmp(s->row, "dorefa") == 0 ? tanh(x) / s->most : x;
}

/* y of one element; ds and dzp move its scale and zero point */
static double surrogate_value(const surrogate *s, int64_t i, double x, double ds, double dzp)
{
    const sbit_grid *g = &s->r->grid;
    const double scale = s->scale[i] + ds, zero = s->zero[i] + dzp;
    double q = surrogate_domain(s, x) / scale + s->rest[i] + zero;
    q = q < g->qmin ? g->qmin : q > g->qmax ? g->qmax : q;
    return (q - zero) * scale;
}

typedef struct quantizer_entry {
    const char *row;
    bool learns_scale, learns_zero; /* with the gradient factor of lsq */
} quantizer_entry;

static const quantizer_entry quantizer_plain[] = {
    {"uniform", false, false}, {"lsq", true, false},     {"lsq+", true, true},
    {"pact", false, false},    {"dorefa", false, false}, {"hqq", false, false},
};

typedef struct quantized {
    rows r;
    const quantizer_entry *entry;
    const sbit_quantizer_row *row;
    sbit_tensor x; /* what it is used on; it was calibrated on other data, unless a weight */
    float *scale;  /* [parts] */
    int32_t *zero; /* [parts] */
    void *state, *statistics;
    char what[160];
} quantized;

static sbit_quantizer_call quantizer_call(quantized *q)
{
    sbit_quantizer_call call;
    call.ctx = q->r.ctx;
    call.name = "x";
    call.target = q->r.target;
    call.grid = &q->r.grid;
    call.options = &q->r.options;
    call.statistics = q->statistics;
    call.scale = q->scale;
    call.zero_point = q->zero;
    return call;
}

static sbit_observation quantizer_input(const quantized *q)
{
    sbit_observation x;
    memset(&x, 0, sizeof x);
    x.data = (const float *)q->x.data;
    x.parts = q->r.grid.parts;
    return x;
}

/* Calibrates on `data`, then init. */
static bool quantizer_calibrate(quantized *q, const float *data)
{
    static float seen[COUNT];
    const size_t parts = (size_t)q->r.grid.parts.count;
    const int64_t whole = ROWS;
    sbit_error error;
    sbit_quantizer_call call = quantizer_call(q);
    const sbit_observer_row *row =
        q->row->statistics != NULL ? q->row->statistics(q->r.target, call.options) : NULL;
    const bool own = row != NULL;
    const sbit_observer_call observer = rows_observer_call(&q->r);
    float *range = (float *)calloc(parts, 2 * sizeof *range);
    sbit_tensor input = q->x;
    sbit_observation x = quantizer_input(q);
    row = own ? row : sbit_observer_find(q->r.ctx, "minmax");
    input.data = (void *)(uintptr_t)data;
    x.data = data;
    q->state = calloc(1, q->row->state_bytes(&call) + 1);
    if (q->row->domain != NULL) {
        CHECK_OK(q->row->domain(q->state, &call, &x, seen, &error), error);
        input.data = seen;
    }
    void *state = rows_state(&q->r, row);
    rows_feed(&q->r, row, state, &input, &whole, 1);
    CHECK_OK(row->range(state, &observer, range, range + parts, &error), error);
    for (size_t p = 0; p < parts; p++) {
        CHECK_OK(sbit_grid_scale(&q->r.grid, "x", range[p], range[parts + p], &q->scale[p],
                                 &q->zero[p], &error),
                 error);
    }
    q->statistics = own ? state : NULL;
    call = quantizer_call(q);
    const sbit_status status =
        q->row->init(q->state, &call, q->r.target == SBIT_TARGET_WEIGHT ? &x : NULL, &error);
    q->statistics = NULL;
    rows_free(&q->r, row, state);
    free(range);
    return status == SBIT_OK; /* a scheme that it does not take is refused */
}

static void for_each_quantizer(void (*check)(quantized *q))
{
    static const int64_t dims[] = {ROWS, CHANNELS, INNER};
    static float calibration[COUNT], other[COUNT];
    sbit_ctx *ctx = NULL;
    sbit_error error;
    int refused = 0, ran = 0;
    if (!CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error)) {
        return;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        draw(&shapes[s], 177 + s, calibration);
        draw(&shapes[s], 277 + s, other);
        for (int64_t i = 0; i < COUNT; i++) {
            other[i] *= 1.7f; /* so that it saturates */
        }
        for (size_t e = 0; e < sizeof quantizer_plain / sizeof quantizer_plain[0]; e++) {
            for (size_t k = 0; k < 4 * sizeof cuttings / sizeof cuttings[0]; k++) {
                const cutting *cut = &cuttings[k / 4];
                const int bits = k % 2 == 0 ? 8 : 4;
                const bool symmetric = k / 2 % 2 == 0, weight = cut->target == SBIT_TARGET_WEIGHT;
                quantized q;
                memset(&q, 0, sizeof q);
                q.entry = &quantizer_plain[e];
                q.row = sbit_quantizer_find(ctx, q.entry->row);
                if (!CHECK(q.row != NULL) || (q.row->head.targets & cut->target) == 0 ||
                    !taken(q.entry->row, s, k / 4, k % 4)) {
                    continue;
                }
                q.x = rows_tensor(weight ? calibration : other, 3, dims);
                rows_begin(&q.r, ctx, &q.row->head, "QUANTIZER.", cut->target, symmetric, bits,
                           &q.x, cut->axis, cut->block);
                if (strcmp(q.entry->row, "pact") == 0) {
                    rows_set(&q.r, "QUANTIZER.PACT.ALPHA_VALUE", "1.5");
                }
                q.scale = (float *)calloc((size_t)q.r.grid.parts.count, sizeof(float));
                q.zero = (int32_t *)calloc((size_t)q.r.grid.parts.count, sizeof(int32_t));
                snprintf(q.what, sizeof q.what, "%s %s %d bits %s, %s axis %d block %d",
                         q.entry->row, shapes[s].name, bits, symmetric ? "symmetric" : "affine",
                         weight ? "weight" : "activation", (int)cut->axis, (int)cut->block);
                if (quantizer_calibrate(&q, calibration)) {
                    check(&q);
                    ran++;
                } else {
                    refused++;
                }
                const sbit_quantizer_call call = quantizer_call(&q);
                if (q.row->deinit != NULL) {
                    q.row->deinit(q.state, &call);
                }
                free(q.state);
                free(q.scale);
                free(q.zero);
                rows_end(&q.r);
            }
        }
    }
    CHECK_MSG(ran > 5 * refused, "%d ran, %d refused", ran, refused);
    sbit_ctx_destroy(ctx);
}

TEST(every_quantizer_is_tested)
{
    for (size_t i = 0; sbit_quantizer_at(i) != NULL; i++) {
        bool found = false;
        for (size_t e = 0; e < sizeof quantizer_plain / sizeof quantizer_plain[0]; e++) {
            found = found || strcmp(quantizer_plain[e].row, sbit_quantizer_at(i)->head.name) == 0;
        }
        found = found || strncmp(sbit_quantizer_at(i)->head.name, "float8_", 7) == 0; /* below */
        if (!CHECK(found)) {
            printf("  %s has no entry\n", sbit_quantizer_at(i)->head.name);
        }
    }
}

/* y = DequantizeLinear(QuantizeLinear(x)) in ONNX's words, one run of the library's executor; below
 * 8 bits a Clip of the integers stands for the narrow type. */
static bool run_pair(quantized *q, const float *x, float *y)
{
    build b;
    char dims[40];
    const int64_t parts = q->r.grid.parts.count;
    const bool is_signed = q->r.grid.symmetric;
    const sbit_dtype type = is_signed ? SBIT_I8 : SBIT_U8;
    unsigned char *zero = (unsigned char *)malloc((size_t)parts);
    sbit_attr attrs[2];
    sbit_session *session = NULL;
    size_t attr_count = 0;
    build_begin(&b, 21);
    if (q->r.axis >= 0) {
        attrs[attr_count++] = build_int("axis", q->r.axis);
    }
    if (q->r.block > 0) {
        attrs[attr_count++] = build_int("block_size", q->r.block);
        snprintf(dims, sizeof dims, "%d,%d,%d", ROWS, CHANNELS,
                 (int)((INNER + q->r.block - 1) / q->r.block));
    } else {
        snprintf(dims, sizeof dims, "%d", (int)parts);
    }
    for (int64_t p = 0; p < parts; p++) {
        zero[p] = (unsigned char)(uint32_t)q->zero[p];
    }
    sbit_value_id in[3];
    in[0] = build_input(&b, "x", SBIT_F32, "12,5,40");
    in[1] = build_constant(&b, "s", SBIT_F32, q->r.axis >= 0 ? dims : "", q->scale);
    in[2] = build_constant(&b, "z", type, q->r.axis >= 0 ? dims : "", zero);
    in[0] = build_node(&b, "QuantizeLinear", "q", in, 3, attrs, attr_count);
    if (q->r.grid.bits < 8) {
        const signed char low = (signed char)q->r.grid.qmin, high = (signed char)q->r.grid.qmax;
        sbit_value_id clip[3];
        clip[0] = in[0];
        clip[1] = build_constant(&b, "low", type, "", &low);
        clip[2] = build_constant(&b, "high", type, "", &high);
        in[0] = build_node(&b, "Clip", "c", clip, 3, NULL, 0);
    }
    build_output(&b, build_node(&b, "DequantizeLinear", "dq", in, 3, attrs, attr_count));
    sbit_tensor input = q->x;
    input.data = (void *)(uintptr_t)x;
    bool ok = !b.failed &&
              build_do(&b, sbit_session_create(b.graph, NULL, &session, &b.error), "session") &&
              build_do(&b, sbit_session_set_input(session, "x", &input, &b.error), "input") &&
              build_do(&b, sbit_session_run(session, &b.error), "run");
    if (ok) {
        memcpy(y, sbit_session_output(session, 0)->tensor.data, COUNT * sizeof *y);
    }
    sbit_session_destroy(session);
    build_end(&b);
    free(zero);
    return ok;
}

/* Forward is the exported pair bit for bit, after finish and before; its values lie on the grid. */
static void check_pair(quantized *q)
{
    static float seen[COUNT], y[COUNT], pair[COUNT], effective[COUNT];
    const sbit_quantizer_call call = quantizer_call(q);
    const sbit_observation x = quantizer_input(q);
    const sbit_grid *g = &q->r.grid;
    sbit_error error;
    int64_t off = 0, wild = 0;
    memcpy(seen, x.data, sizeof seen);
    CHECK_OK(q->row->forward(q->state, &call, &x, y, &error), error);
    if (q->row->finish != NULL) {
        memcpy(effective, x.data, sizeof effective);
        const bool weight = q->r.target == SBIT_TARGET_WEIGHT;
        CHECK_OK(
            q->row->finish(q->state, &call, weight ? &x : NULL, weight ? effective : NULL, &error),
            error);
        memcpy(seen, weight ? effective : seen, sizeof seen);
    }
    if (q->row->domain != NULL) {
        CHECK_OK(q->row->domain(q->state, &call, &x, seen, &error), error);
    }
    if (!run_pair(q, seen, pair)) {
        return;
    }
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t p = sbit_parts_at(&g->parts, i);
        const double integer = (double)y[i] / (double)q->scale[p] + q->zero[p];
        off += memcmp(&y[i], &pair[i], sizeof y[i]) != 0 && (y[i] < pair[i] || y[i] > pair[i]);
        wild += fabs(integer - floor(integer + 0.5)) > 1e-3 || integer < g->qmin - 1e-3 ||
                integer > g->qmax + 1e-3;
    }
    if (!CHECK(off == 0) || !CHECK(wild == 0)) {
        printf("  %s: %d of %d differ from the pair, %d are not on the grid\n", q->what, (int)off,
               COUNT, (int)wild);
    }
}

TEST(quantizers_compute_what_the_pair_computes)
{
    for_each_quantizer(check_pair);
}

/* Gradients by central differences of the surrogate; elements near a border of the range or a
 * rounding tie are left out by giving them no upstream gradient. */
static void check_gradient(quantized *q)
{
    static surrogate s;
    static float dy[COUNT], dx[COUNT];
    const sbit_quantizer_call call = quantizer_call(q);
    const sbit_observation x = quantizer_input(q);
    const sbit_grid *g = &q->r.grid;
    const int64_t parts = g->parts.count;
    const bool pact = strcmp(q->entry->row, "pact") == 0;
    double *wanted = (double *)calloc((size_t)parts, 2 * sizeof *wanted);
    sbit_rng rng = sbit_rng_seed(5);
    sbit_error error;
    double size = 0.0, alpha = 0.0;
    int64_t off = 0;
    if (!CHECK(q->row->backward != NULL)) {
        return;
    }
    s.r = &q->r;
    s.row = q->entry->row;
    s.most = 0.0;
    for (int64_t i = 0; i < COUNT; i++) {
        const double t = fabs(tanh((double)x.data[i]));
        s.most = t > s.most ? t : s.most;
    }
    s.most = s.most > 1e-30 ? s.most : 1.0;
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t p = sbit_parts_at(&g->parts, i);
        s.scale[i] = (double)q->scale[p];
        s.zero[i] = (double)q->zero[p];
        const double ratio = surrogate_domain(&s, (double)x.data[i]) / s.scale[i];
        const double v = plain_round(ratio) + s.zero[i];
        s.rest[i] = plain_round(ratio) - ratio;
        const bool near_tie = fabs(fabs(s.rest[i]) - 0.5) < 1e-3;
        const bool at_end = fabs(v - g->qmin) < 0.5 || fabs(v - g->qmax) < 0.5;
        const bool at_alpha = pact && fabs(fabs((double)x.data[i]) - 1.5) < 0.1;
        dy[i] = near_tie || at_end || at_alpha ? 0.0f : sbit_rng_normal(&rng);
        const double g_i = (double)dy[i], h = 1e-4 * s.scale[i], xi = (double)x.data[i];
        wanted[p] += g_i *
                     (surrogate_value(&s, i, xi, h, 0.0) - surrogate_value(&s, i, xi, -h, 0.0)) /
                     (2.0 * h);
        wanted[parts + p] +=
            g_i * (surrogate_value(&s, i, xi, 0.0, 1e-4) - surrogate_value(&s, i, xi, 0.0, -1e-4)) /
            2e-4;
        size += fabs(g_i);
        alpha += pact && xi > 1.5 ? g_i : pact && g->symmetric && xi < -1.5 ? -g_i : 0.0;
    }
    CHECK_OK(q->row->backward(q->state, &call, &x, dy, dx, &error), error);
    for (int64_t i = 0; i < COUNT; i++) {
        const double h = strcmp(s.row, "dorefa") == 0 ? 1e-5 : 1e-4 * s.scale[i];
        const double xi = (double)x.data[i];
        const double d =
            (double)dy[i] *
            (surrogate_value(&s, i, xi + h, 0.0, 0.0) - surrogate_value(&s, i, xi - h, 0.0, 0.0)) /
            (2.0 * h);
        off += fabs((double)dx[i] - d) > 1e-4 * fabs((double)dy[i]) * (1.0 + 1.0 / s.most) + 1e-7;
    }
    if (!CHECK(off == 0)) {
        printf("  %s: %d gradients of x differ\n", q->what, (int)off);
    }
    sbit_parameter parameter;
    for (size_t k = 0;
         q->row->parameter != NULL && q->row->parameter(q->state, &call, k, &parameter); k++) {
        double steps = g->qmax - (double)q->zero[0];
        if (q->entry->learns_zero && !g->symmetric) {
            steps = (double)g->qmax - g->qmin;
        }
        for (int64_t p = 0; p < parameter.count; p++) {
            const double factor = pact ? 1.0 : 1.0 / sqrt((double)COUNT / (double)parts * steps);
            const double value = pact ? alpha : factor * wanted[(int64_t)k * parts + p];
            const double bound =
                1e-4 * fabs(value) + 1e-6 * (pact ? size : factor * size * (g->qmax - g->qmin));
            if (!CHECK(fabs((double)parameter.gradient[p] - value) <= bound)) {
                printf("  %s: %s[%d] %.9g, plainly %.9g\n", q->what, parameter.name, (int)p,
                       (double)parameter.gradient[p], value);
            }
        }
    }
    free(wanted);
}

TEST(quantizers_have_straight_through_gradients)
{
    for_each_quantizer(check_gradient);
}

/* ---- float8: no integers */

/* The number of a type with `bits` of mantissa, exponents from `least` on, that is nearest to x,
 * ties to even, at most `largest`. */
static double float8_plain(double x, int bits, int least, double largest)
{
    const double size = fabs(x);
    int exponent = 0;
    frexp(size, &exponent);
    exponent = exponent - 1 < least ? least : exponent - 1;
    const double step = ldexp(1.0, exponent - bits);
    const double y = nearbyint(size / step) * step;
    return copysign(y > largest ? largest : y, x);
}

TEST(float8_rows_round_as_floats_do)
{
    static const struct {
        const char *row;
        int bits, least;
        double largest;
    } types[] = {{"float8_e4m3fn", 3, -6, 448.0}, {"float8_e5m2", 2, -14, 57344.0}};
    enum {
        MANY = 4000
    };
    float x[MANY], y[MANY], dy[MANY], dx[MANY];
    sbit_rng rng = sbit_rng_seed(8);
    for (size_t t = 0; t < 2; t++) {
        build b;
        build_begin(&b, 19);
        const sbit_quantizer_row *row = sbit_quantizer_find(b.ctx, types[t].row);
        const sbit_tensor shape = build_tensor(SBIT_F32, "2,2000", x);
        float scale[2] = {0.37f, 0.0021f};
        int32_t zero[2] = {0, 0};
        sbit_grid grid;
        sbit_quantizer_call call;
        sbit_observation seen;
        memset(&grid, 0, sizeof grid);
        memset(&call, 0, sizeof call);
        memset(&seen, 0, sizeof seen);
        grid.dtype = t == 0 ? SBIT_F8E4M3FN : SBIT_F8E5M2;
        grid.bits = 8;
        grid.symmetric = true;
        grid.qmax = (int32_t)types[t].largest;
        grid.qmin = -grid.qmax;
        grid.parts = sbit_parts_of(&shape, 0, 0);
        call.ctx = b.ctx;
        call.grid = &grid;
        call.scale = scale;
        call.zero_point = zero;
        seen.data = x;
        seen.parts = grid.parts;
        for (int i = 0; i < MANY; i++) { /* all sizes, ties, what saturates */
            const double size = ldexp(1.0 + (double)(i % 64) / 32.0, i % 40 - 24);
            x[i] = (float)(size * (i % 2 == 0 ? 1.0 : -1.0)) * scale[i / 2000] *
                   (i % 3 == 0 ? 1.0f : 1.0f + 0.1f * sbit_rng_uniform(&rng));
            dy[i] = sbit_rng_normal(&rng);
        }
        x[7] = 0.0f;
        CHECK_OK(row->forward(NULL, &call, &seen, y, &b.error), b.error);
        CHECK_OK(row->backward(NULL, &call, &seen, dy, dx, &b.error), b.error);
        for (int i = 0; i < MANY; i++) {
            const float ratio = x[i] / scale[i / 2000];
            const float want = (float)float8_plain((double)ratio, types[t].bits, types[t].least,
                                                   types[t].largest) *
                               scale[i / 2000];
            const bool inside = fabs((double)ratio) <= types[t].largest;
            if (!CHECK_MSG(y[i] == want, "%s: %.9g gives %.9g, not %.9g", types[t].row,
                           (double)x[i], (double)y[i], (double)want) ||
                !CHECK(dx[i] == (inside ? dy[i] : 0.0f))) {
                break;
            }
        }
        build_end(&b);
    }
}
