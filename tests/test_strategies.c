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
static double plain_loss(const plain *p, double min, double max, double power)
{
    const sbit_grid *g = &p->r->grid;
    sbit_error error;
    float s;
    int32_t zp;
    double sum = 0.0;
    CHECK_OK(sbit_grid_scale(g, "x", (float)min, (float)max, &s, &zp, &error), error);
    for (int64_t i = 0; i < p->n; i++) {
        double q = plain_round(p->x[i] / (double)s) + zp;
        q = q < g->qmin ? g->qmin : q > g->qmax ? g->qmax : q;
        sum += pow(fabs(p->x[i] - (q - zp) * (double)s), power);
    }
    return sum / (double)p->n;
}

static void plain_search(plain *p, double power)
{
    double lo, hi, least = -1.0;
    plain_range(p, &lo, &hi);
    for (int i = 0; i < 80; i++) {
        const float f = (float)(1.0 - 0.01 * i);
        const double loss = plain_loss(p, (double)((float)lo * f), (double)((float)hi * f), power);
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
    return plain_loss(p, min, max, power) <= bound * plain_loss(p, p->min, p->max, power) + 1e-14;
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
    double p_sum = 0.0, q_sum = 0.0, sum = 0.0;
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
        sum += p[i] / p_sum * log((p[i] / p_sum) / (q[i] / q_sum));
    }
    return sum;
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
        hist[bin < 0 ? 0 : bin < bins ? bin : bins - 1] += 1.0;
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
    const bool slow =
        kl || strcmp(entry->row, "mse") == 0 || strcmp(entry->row, "lp") == 0; /* plainly */
    if ((targets & cut->target) == 0 || (quick && slow && symmetric == (bits == 4)) ||
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
                for (int bits = 4; bits <= 8; bits += 4) {
                    for (int symmetric = 0; symmetric < 2; symmetric++) {
                        observed o;
                        if (observed_begin(&o, ctx, &observer_plain[e], bits, symmetric != 0,
                                           &cuttings[c], &shapes[s], data)) {
                            check(&o);
                            observed_end(&o);
                        }
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
    const int64_t parts = o->r.grid.parts.count;
    const float *data = (const float *)o->x.data;
    const bool weight = o->r.target == SBIT_TARGET_WEIGHT;
    plain p;
    memset(&p, 0, sizeof p);
    p.all_positive = true;
    for (int64_t i = 0; i < COUNT; i++) {
        p.all_positive = p.all_positive && data[i] >= 0.0f;
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
            if (sbit_parts_at(&o->r.grid.parts, i) == part) {
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
