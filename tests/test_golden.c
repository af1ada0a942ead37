/* split */
/* test_golden.c: observers (A) and quantizers (B) against what the original Sparsebit gave on fixed
 * inputs; see the README of ../shared/golden for its conventions and tolerances.
 */
#include "strategy_rows.h"
#include "golden.h"

enum {
    MOST_PARTS = 64
};

/* mean |x - fake quantized x|^2 of a part, in double */
static double loss_of(const rows *r, const sbit_tensor *x, int64_t part, float scale, int32_t zp)
{
    double sum = 0.0;
    int64_t n = 0;
    const float *data = (const float *)x->data;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        if (sbit_parts_at(&r->grid.parts, i) == part) {
            double q = nearbyint((double)(data[i] / scale)) + zp;
            q = q < r->grid.qmin ? r->grid.qmin : q > r->grid.qmax ? r->grid.qmax : q;
            const double d = (double)data[i] - (q - zp) * (double)scale;
            sum += d * d;
            n++;
        }
    }
    return sum / (double)n;
}

typedef struct wanted {
    int64_t count; /* of parts */
    float min[MOST_PARTS], max[MOST_PARTS], scale[MOST_PARTS];
    double zero_point[MOST_PARTS];
} wanted;

/* What an entry of A says; false: nothing to compare with (errors and known bugs). */
static bool read_wanted(golden *g, const sbit_yaml *e, wanted *out)
{
    const sbit_yaml *values = golden_get(e, "values"), *outputs = golden_get(e, "outputs");
    golden_array_view v;
    if (golden_get(e, "error") != NULL || golden_get(e, "known_bug") != NULL) {
        return false;
    }
    out->count = 1;
    if (values != NULL) {
        out->min[0] = (float)golden_value(values, "min");
        out->max[0] = (float)golden_value(values, "max");
        out->scale[0] = (float)golden_value(values, "scale");
        out->zero_point[0] = golden_value(values, "zero_point");
        return true;
    }
    if (outputs == NULL || outputs->count == 0 || !golden_array(g, outputs->items[0].text, &v) ||
        v.rank != 2 || v.dims[1] > MOST_PARTS || v.f == NULL) {
        return false;
    }
    out->count = v.dims[1];
    for (int64_t p = 0; p < out->count; p++) {
        out->min[p] = v.f[p];
        out->max[p] = v.f[out->count + p];
        out->scale[p] = v.f[2 * out->count + p];
        out->zero_point[p] = (double)v.f[3 * out->count + p];
    }
    return true;
}

static void compare_part(const rows *r, const sbit_tensor *x, const char *observer, const wanted *w,
                         int64_t p, float min, float max, const char *id)
{
    sbit_error error;
    float scale = 0.0f;
    int32_t zp = 0;
    const bool mse = strcmp(observer, "mse") == 0, aciq = strncmp(observer, "aciq", 4) == 0;
    CHECK_OK(sbit_grid_scale(&r->grid, id, min, max, &scale, &zp, &error), error);
    if (w->scale[p] <= 1.0000001e-6f) {
        return; /* Sparsebit's floor, for zeros too; ours: contracts section 4 */
    }
    double tolerance = aciq ? 2e-6 : 1e-6;
    double steps = aciq ? 1.0 : 0.0;
    if (mse && r->target == SBIT_TARGET_ACTIVATION) {
        float full;
        int32_t ignored;
        CHECK_OK(sbit_grid_scale(&r->grid, id, w->min[p], w->max[p], &full, &ignored, &error),
                 error);
        tolerance = 0.0101 * (double)(full / w->scale[p]); /* one candidate beside */
        steps = 1.0;
        const double ours = loss_of(r, x, p, scale, zp);
        const double theirs = loss_of(r, x, p, w->scale[p], (int32_t)w->zero_point[p]);
        if (!CHECK(ours <= theirs * 1.005 + 1e-12)) {
            printf("  %s part %d: loss %.9g, golden %.9g\n", id, (int)p, ours, theirs);
        }
    }
    if (!CHECK(fabs((double)scale - (double)w->scale[p]) <= tolerance * (double)w->scale[p]) ||
        !CHECK(fabs((double)zp - w->zero_point[p]) <= steps)) {
        printf("  %s part %d: scale %.9g, golden %.9g; zero point %d, golden %g\n", id, (int)p,
               (double)scale, (double)w->scale[p], (int)zp, w->zero_point[p]);
    }
}

/* True if compared. */
static bool compare_entry(golden *g, sbit_ctx *ctx, const sbit_yaml *e)
{
    const sbit_yaml *arguments = golden_get(e, "arguments");
    const char *observer = golden_text(arguments, "observer"), *id = golden_text(e, "id");
    const char *scheme = golden_text(arguments, "qscheme");
    const sbit_yaml *batches = golden_get(arguments, "batches");
    const sbit_observer_row *row = sbit_observer_find(ctx, observer);
    const bool weight = strcmp(golden_text(arguments, "target"), "weight") == 0;
    const bool nlc = strcmp(golden_text(arguments, "OBSERVER.LAYOUT"), "NLC") == 0;
    const bool channels = strstr(scheme, "per-channel") != NULL;
    const int32_t axis = !channels ? -1 : weight ? 0 : nlc ? 2 : 1;
    const uint32_t target = weight ? SBIT_TARGET_WEIGHT : SBIT_TARGET_ACTIVATION;
    float min[MOST_PARTS], max[MOST_PARTS];
    golden_array_view v;
    int64_t cuts[16];
    wanted w;
    rows r;
    if (row == NULL || (row->head.targets & target) == 0 || !read_wanted(g, e, &w) ||
        !CHECK(golden_array(g, golden_text(golden_get(e, "inputs"), "x"), &v))) {
        return false;
    }
    const sbit_tensor x = rows_tensor(v.f, v.rank, v.dims);
    if (channels && strcmp(row->head.name, "moving_average") == 0) {
        return false; /* the original ignores the scheme; refused here */
    }
    if (channels && w.count != x.dims[axis]) {
        return false; /* one range a batch and channel: a bug of the original */
    }
    for (size_t i = 0; i < batches->count; i++) {
        cuts[i] = atoi(batches->items[i].text);
    }
    rows_begin(&r, ctx, &row->head, "OBSERVER.", target, strstr(scheme, "symmetric") != NULL,
               (int)golden_value(arguments, "bit"), &x, axis, 0);
    for (size_t i = 0; i < arguments->count; i++) {
        if (sbit_options_find(&r.options, arguments->items[i].key) != NULL) {
            rows_set(&r, arguments->items[i].key, arguments->items[i].text);
        }
    }
    rows_range(&r, row, &x, cuts, batches->count, min, max);
    for (int64_t p = 0; p < w.count; p++) {
        compare_part(&r, &x, observer, &w, p, min[p], max[p], id);
    }
    rows_end(&r);
    return true;
}

TEST(observers_give_golden_scales)
{
    golden g;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    size_t compared = 0, entries = 0;
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    if (!golden_open(&g, ctx, "A_sparsebit_observers")) {
        golden_close(&g);
        sbit_ctx_destroy(ctx);
        SBIT_TEST_SKIP("no golden data");
    }
    for (const sbit_yaml *e; (e = golden_next(&g)) != NULL; entries++) {
        compared += compare_entry(&g, ctx, e) ? 1 : 0;
    }
    printf("  %u of %u entries compared\n", (unsigned)compared, (unsigned)entries);
    CHECK_EQ_I64(entries, 2351);
    golden_close(&g);
    sbit_ctx_destroy(ctx);
}

/* ---- B: quantizers */
typedef struct quantized {
    rows r;
    sbit_tensor x;
    const float *upstream;
    float *y, *dx;
    float scale[MOST_PARTS];
    int32_t zero_point[MOST_PARTS];
    void *statistics, *state;
    const sbit_quantizer_row *row;
    double gradient_size; /* sum of |upstream| */
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
    call.zero_point = q->zero_point;
    return call;
}

static sbit_observation observation_of(const quantized *q)
{
    sbit_observation x;
    memset(&x, 0, sizeof x);
    x.data = (const float *)q->x.data;
    x.parts = q->r.grid.parts;
    return x;
}

/* Observes x with the row's statistics (or the named observer), then init. */
static bool quantizer_begin(quantized *q, const char *observer)
{
    sbit_error error;
    float min[MOST_PARTS], max[MOST_PARTS], *seen = NULL;
    const sbit_observer_row *statistics =
        q->row->statistics != NULL ? q->row->statistics(q->r.target, &q->r.options) : NULL;
    const sbit_observer_row *row =
        statistics != NULL ? statistics : sbit_observer_find(q->r.ctx, observer);
    const sbit_observer_call seer = rows_observer_call(&q->r);
    const sbit_observation x = observation_of(q);
    sbit_tensor input = q->x;
    sbit_quantizer_call call = quantizer_call(q);
    q->state = calloc(1, q->row->state_bytes(&call) + 1);
    if (q->row->domain != NULL) {
        seen = (float *)malloc((size_t)sbit_tensor_count(&input) * sizeof *seen);
        CHECK_OK(q->row->domain(q->state, &call, &x, seen, &error), error);
        input.data = seen;
    }
    void *state = rows_state(&q->r, row);
    rows_feed(&q->r, row, state, &input, input.dims, 1);
    free(seen);
    CHECK_OK(row->range(state, &seer, min, max, &error), error);
    for (int64_t p = 0; p < q->r.grid.parts.count; p++) {
        CHECK_OK(sbit_grid_scale(&q->r.grid, "x", min[p], max[p], &q->scale[p], &q->zero_point[p],
                                 &error),
                 error);
    }
    q->statistics = statistics != NULL ? state : NULL;
    call = quantizer_call(q);
    const bool ok = CHECK_OK(
        q->row->init(q->state, &call, q->r.target == SBIT_TARGET_WEIGHT ? &x : NULL, &error),
        error);
    rows_free(&q->r, row, state);
    q->statistics = NULL;
    return ok;
}

/* True if all but very few (rounding ties) are equal, those by one step at most. */
static bool same_but_ties(const quantized *q, const float *a, const float *b, double most_share)
{
    int64_t off = 0;
    const int64_t n = sbit_tensor_count(&q->x);
    for (int64_t i = 0; i < n; i++) {
        const double step = (double)q->scale[sbit_parts_at(&q->r.grid.parts, i)];
        const double d = fabs((double)a[i] - (double)b[i]);
        if (d > 1.001 * step + 1e-6 * fabs((double)b[i])) {
            return false;
        }
        off += d > 0.01 * step + 1e-6 * fabs((double)b[i]) ? 1 : 0;
    }
    return off <= (int64_t)(most_share * (double)n);
}

static void check_forward(quantized *q, golden *g, const sbit_yaml *outputs, const char *id)
{
    sbit_error error;
    golden_array_view v;
    const sbit_quantizer_call call = quantizer_call(q);
    const sbit_observation x = observation_of(q);
    double ties = 0.002;
    CHECK_OK(q->row->forward(q->state, &call, &x, q->y, &error), error);
    if (strcmp(q->row->head.name, "pact") == 0 && q->r.grid.symmetric) {
        /* the original clamps at -alpha first, which is a tie between the lowest two integers */
        for (int64_t i = 0; i < sbit_tensor_count(&q->x); i++) {
            const float lowest = (float)q->r.grid.qmin * q->scale[0];
            ties += q->y[i] <= lowest ? 1.0 / (double)sbit_tensor_count(&q->x) : 0.0;
        }
    }
    if (golden_array(g, golden_text(outputs, "y"), &v) &&
        !CHECK(same_but_ties(q, q->y, v.f, ties))) {
        printf("  %s: y differs\n", id);
    }
}

static void check_backward(quantized *q, golden *g, const sbit_yaml *outputs, const char *id)
{
    sbit_error error;
    golden_array_view v;
    const sbit_quantizer_call call = quantizer_call(q);
    const sbit_observation x = observation_of(q);
    const int64_t n = sbit_tensor_count(&q->x);
    int64_t off = 0;
    CHECK_OK(q->row->backward(q->state, &call, &x, q->upstream, q->dx, &error), error);
    const bool kept = golden_array(g, golden_text(outputs, "grad_x_nonzero"), &v) ||
                      golden_array(g, golden_text(outputs, "grad_x_inside"), &v);
    for (int64_t i = 0; kept && i < n; i++) {
        const float wanted_dx = v.u8[i] != 0 ? q->upstream[i] : 0.0f;
        off += q->dx[i] < wanted_dx || q->dx[i] > wanted_dx ? 1 : 0;
    }
    if (!CHECK(off <= n / 500)) {
        printf("  %s: %d gradients of x differ\n", id, (int)off);
    }
    if (golden_array(g, golden_text(outputs, "grad_x"), &v)) {
        for (int64_t i = 0; i < n; i++) {
            off += fabs((double)q->dx[i] - (double)v.f[i]) > 2e-5 * fabs((double)v.f[i]) + 1e-6;
        }
        if (!CHECK(off <= n / 500)) {
            printf("  %s: %d gradients of x differ\n", id, (int)off);
        }
    }
}

static void check_parameter(quantized *q, golden *g, const sbit_yaml *outputs, size_t index,
                            const char *output, const char *id)
{
    golden_array_view v;
    sbit_parameter p;
    const sbit_quantizer_call call = quantizer_call(q);
    if (!golden_array(g, golden_text(outputs, output), &v) ||
        !CHECK(q->row->parameter != NULL && q->row->parameter(q->state, &call, index, &p))) {
        return;
    }
    CHECK_EQ_I64(p.count, v.count);
    for (int64_t i = 0; i < v.count && i < p.count; i++) {
        const double steps = (double)q->r.grid.qmax - (double)q->r.grid.qmin;
        const double bound =
            2e-6 * q->gradient_size * steps / sqrt((double)sbit_tensor_count(&q->x) * steps) +
            1e-5 * fabs((double)v.f[i]);
        if (!CHECK(fabs((double)p.gradient[i] - (double)v.f[i]) <= bound)) {
            printf("  %s: %s[%d] %.9g, golden %.9g\n", id, output, (int)i, (double)p.gradient[i],
                   (double)v.f[i]);
        }
    }
}

static void check_scales(quantized *q, golden *g, const sbit_yaml *outputs, const char *id)
{
    golden_array_view s, z;
    const bool zero = golden_array(g, golden_text(outputs, "zero_point"), &z);
    if (!golden_array(g, golden_text(outputs, "scale"), &s)) {
        return;
    }
    CHECK_EQ_I64(s.count, q->r.grid.parts.count);
    for (int64_t p = 0; p < s.count; p++) {
        const double d = fabs((double)q->scale[p] - (double)s.f[p]);
        if (!CHECK(d <= 2e-6 * (double)s.f[p]) ||
            (zero && !CHECK(fabs((double)q->zero_point[p] - (double)z.f[p]) <= 0.5))) {
            printf("  %s: scale[%d] %.9g, golden %.9g; zero point %d, golden %g\n", id, (int)p,
                   (double)q->scale[p], (double)s.f[p], (int)q->zero_point[p],
                   zero ? (double)z.f[p] : 0.0);
        }
    }
}

static bool quantized_load(quantized *q, golden *g, sbit_ctx *ctx, const sbit_yaml *e)
{
    static const struct {
        const char *prefix, *row;
    } rows_of[] = {{"uniform/", "uniform"}, {"ste/", "uniform"},   {"lsq/", "lsq"},
                   {"lsq_plus/", "lsq+"},   {"dorefa/", "dorefa"}, {"pact/", "pact"}};
    const sbit_yaml *arguments = golden_get(e, "arguments"), *inputs = golden_get(e, "inputs");
    const char *id = golden_text(e, "id"), *scheme = golden_text(arguments, "qscheme");
    const bool weight = strstr(id, "weight") != NULL;
    golden_array_view v, up;
    memset(q, 0, sizeof *q);
    for (size_t i = 0; i < sizeof rows_of / sizeof rows_of[0]; i++) {
        if (strncmp(id, rows_of[i].prefix, strlen(rows_of[i].prefix)) == 0) {
            q->row = sbit_quantizer_find(ctx, rows_of[i].row);
        }
    }
    if (q->row == NULL || golden_get(e, "error") != NULL || inputs == NULL ||
        !golden_array(g, golden_text(inputs, "x"), &v)) {
        return false;
    }
    const bool channels = strstr(scheme, "per-channel") != NULL;
    q->x = rows_tensor(v.f, v.rank, v.dims);
    rows_begin(&q->r, ctx, &q->row->head, "QUANTIZER.",
               weight ? SBIT_TARGET_WEIGHT : SBIT_TARGET_ACTIVATION,
               strstr(scheme, "symmetric") != NULL, (int)golden_value(arguments, "bit"), &q->x,
               !channels ? -1
               : weight  ? 0
                         : 1,
               0);
    q->upstream = golden_array(g, golden_text(inputs, "upstream"), &up) ? up.f : NULL;
    q->y = (float *)calloc((size_t)v.count, 2 * sizeof *q->y);
    q->dx = q->y + v.count;
    for (int64_t i = 0; q->upstream != NULL && i < v.count; i++) {
        q->gradient_size += fabs((double)q->upstream[i]);
    }
    return CHECK(q->r.grid.parts.count <= MOST_PARTS);
}

/* True if compared. */
static bool compare_quantizer(golden *g, sbit_ctx *ctx, const sbit_yaml *e)
{
    const sbit_yaml *arguments = golden_get(e, "arguments"), *outputs = golden_get(e, "outputs");
    const char *id = golden_text(e, "id"), *observer = golden_text(arguments, "observer");
    const bool given = strncmp(id, "uniform/", 8) == 0 || strncmp(id, "ste/", 4) == 0;
    golden_array_view s, z;
    quantized q;
    if (!quantized_load(&q, g, ctx, e)) {
        return false;
    }
    const bool fractional = golden_array(g, golden_text(outputs, "zero_point"), &z) &&
                            (double)z.f[0] > floor((double)z.f[0]);
    bool compared = !fractional && strcmp(id, "lsq/negative_scale") != 0;
    if (compared && given) {
        compared = golden_array(g, golden_text(outputs, "scale"), &s) &&
                   golden_array(g, golden_text(outputs, "zero_point"), &z) &&
                   s.count == q.r.grid.parts.count;
        for (int64_t p = 0; compared && p < s.count; p++) {
            q.scale[p] = s.f[p];
            q.zero_point[p] = (int32_t)z.f[p];
        }
    } else if (compared) {
        const sbit_yaml *alpha = golden_get(arguments, "alpha");
        if (alpha != NULL) {
            rows_set(&q.r, "QUANTIZER.PACT.ALPHA_VALUE", alpha->text);
        }
        compared = strstr(id, "/zeros/") == NULL && /* scale 0 there: a bug */
                   CHECK(quantizer_begin(&q, observer[0] != '\0' ? observer : "minmax"));
        if (compared) {
            check_scales(&q, g, outputs, id);
        }
    }
    if (compared) {
        check_forward(&q, g, outputs, id);
    }
    if (compared && q.upstream != NULL) {
        const bool pact = strncmp(id, "pact/", 5) == 0;
        check_backward(&q, g, outputs, id);
        if (pact && golden_get(e, "known_bug") == NULL) {
            check_parameter(&q, g, outputs, 0, "grad_alpha", id);
        } else if (!given && !pact) {
            check_parameter(&q, g, outputs, 0, "grad_scale", id);
            check_parameter(&q, g, outputs, 1, "grad_zero_point", id);
        }
    }
    const sbit_quantizer_call call = quantizer_call(&q);
    if (q.row->deinit != NULL && q.state != NULL) {
        q.row->deinit(q.state, &call);
    }
    free(q.state);
    free(q.y);
    rows_end(&q.r);
    return compared;
}

TEST(quantizers_give_golden_values_and_gradients)
{
    golden g;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    size_t compared = 0, entries = 0;
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    if (!golden_open(&g, ctx, "B_sparsebit_quantizers")) {
        golden_close(&g);
        sbit_ctx_destroy(ctx);
        SBIT_TEST_SKIP("no golden data");
    }
    for (const sbit_yaml *e; (e = golden_next(&g)) != NULL; entries++) {
        compared += compare_quantizer(&g, ctx, e) ? 1 : 0;
    }
    printf("  %u of %u entries compared\n", (unsigned)compared, (unsigned)entries);
    CHECK_EQ_I64(entries, 418);
    golden_close(&g);
    sbit_ctx_destroy(ctx);
}

/* ---- ONNX Runtime's calibrators */
/* quantization/calibrate.py of onnxruntime 1.2x, HistogramCollector(method, symmetric=False, bins,
 * groups or percentile), on the data below. */
static const struct {
    int data;
    const char *method, *bins, *argument;
    float min, max;
} ort_cases[] = {
    {0, "entropy", "128", "128", -3.70000005f, 3.70000005f},
    {0, "entropy", "1024", "128", -3.70000005f, 3.70000005f},
    {0, "entropy", "513", "64", -3.70000005f, 3.70000005f},
    {0, "entropy", "2048", "255", -3.68554688f, 3.68916011f},
    {0, "percentile", "2048", "99.999", -3.70000005f, 3.69638658f},
    {0, "percentile", "2048", "99.0", -3.60244155f, 3.59882808f},
    {0, "percentile", "100", "90.0", -2.73799992f, 2.66400027f},
    {1, "entropy", "128", "128", 0.0f, 2.0f},
    {1, "entropy", "1024", "128", 0.0f, 2.0f},
    {1, "entropy", "513", "64", 0.0f, 2.0f},
    {1, "entropy", "2048", "255", 0.0f, 2.0f},
    {1, "percentile", "2048", "99.999", 0.0f, 1.99804688f},
    {1, "percentile", "2048", "99.0", 0.0f, 1.96289062f},
    {1, "percentile", "100", "90.0", 0.0f, 1.5999999f},
    {2, "entropy", "128", "128", -0.800000012f, 6.78721857f},
    {2, "entropy", "1024", "128", -0.800000012f, 6.20394182f},
    {2, "entropy", "513", "64", -0.800000012f, 5.99339247f},
    {2, "entropy", "2048", "255", -0.800000012f, 6.19731379f},
    {2, "percentile", "2048", "99.999", -0.800000012f, 6.78059053f},
    {2, "percentile", "2048", "99.0", -0.795377254f, 3.95700121f},
    {2, "percentile", "100", "90.0", -0.800000012f, 0.678722382f},
    {3, "entropy", "128", "128", -6.25f, 5.75f},
    {3, "entropy", "1024", "128", -6.25f, 5.75f},
    {3, "entropy", "513", "64", -6.25f, 5.75f},
    {3, "entropy", "2048", "255", -5.44433594f, 5.45043945f},
    {3, "percentile", "2048", "99.999", -6.25f, 5.74951172f},
    {3, "percentile", "2048", "99.0", -5.98754883f, 5.48095703f},
    {3, "percentile", "100", "90.0", -3.875f, 3.25f},
};

static float ort_data(int kind, int i)
{
    const double t = (double)(i * 7919LL % 2003 - 1001) / 1001.0;
    const double x = kind == 0   ? t * t * t * 3.7
                     : kind == 1 ? (t > 0.0 ? t * t * 2.0 : 0.0)
                     : kind == 2 ? t * 0.8 + (i % 37 == 5 ? t * t * 6.0 : 0.0)
                                 : t * t * t * t * t * 6.0 - 0.25;
    return (float)x;
}

TEST(ort_calibrators_give_onnxruntimes_ranges)
{
    enum {
        COUNT = 4800
    };
    static float data[COUNT];
    static const int64_t dims[] = {COUNT}, cuts[] = {1000, 3800};
    sbit_ctx *ctx = NULL;
    sbit_error error;
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    for (size_t i = 0; i < sizeof ort_cases / sizeof ort_cases[0]; i++) {
        const bool entropy = strcmp(ort_cases[i].method, "entropy") == 0;
        const sbit_observer_row *row =
            sbit_observer_find(ctx, entropy ? "ort_entropy" : "ort_percentile");
        float min = 0.0f, max = 0.0f;
        rows r;
        for (int k = 0; k < COUNT; k++) {
            data[k] = ort_data(ort_cases[i].data, k);
        }
        const sbit_tensor x = rows_tensor(data, 1, dims);
        if (!CHECK(row != NULL)) {
            continue;
        }
        rows_begin(&r, ctx, &row->head, "OBSERVER.", SBIT_TARGET_ACTIVATION, false, 8, &x, -1, 0);
        rows_set(&r, entropy ? "OBSERVER.ORT_ENTROPY.NUM_BINS" : "OBSERVER.ORT_PERCENTILE.NUM_BINS",
                 ort_cases[i].bins);
        rows_set(&r,
                 entropy ? "OBSERVER.ORT_ENTROPY.NUM_QUANTIZED_BINS"
                         : "OBSERVER.ORT_PERCENTILE.PERCENTILE",
                 ort_cases[i].argument);
        rows_range(&r, row, &x, cuts, 2, &min, &max);
        if (!CHECK(fabs((double)min - (double)ort_cases[i].min) < 2e-6) ||
            !CHECK(fabs((double)max - (double)ort_cases[i].max) < 2e-6)) {
            printf("  data %d %s %s %s: %.9g .. %.9g, ONNX Runtime %.9g .. %.9g\n",
                   ort_cases[i].data, ort_cases[i].method, ort_cases[i].bins, ort_cases[i].argument,
                   (double)min, (double)max, (double)ort_cases[i].min, (double)ort_cases[i].max);
        }
        rows_end(&r);
    }
    sbit_ctx_destroy(ctx);
}

/* ---- C: resnet20 quantized by the original */
enum {
    IMAGES = 256,
    PIXELS = 3 * 32 * 32
};

static bool read_images(float *out)
{
    static const float mean[] = {0.4914f, 0.4822f, 0.4465f}, std[] = {0.2470f, 0.2435f, 0.2616f};
    static unsigned char record[1 + PIXELS];
    char path[512];
    FILE *f =
        test_shared("data/cifar10/train-20k.bin", path, sizeof path) ? fopen(path, "rb") : NULL;
    bool ok = f != NULL;
    for (int n = 0; n < IMAGES && ok; n++) {
        ok = fread(record, 1, sizeof record, f) == sizeof record;
        for (int p = 0; p < PIXELS; p++) {
            const int c = p / 1024;
            out[n * PIXELS + p] = ((float)record[1 + p] / 255.0f - mean[c]) / std[c];
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return ok;
}

/* "body.0.c1.0" of ours is "body_0_c1_0_bn" there, "fc" is "fc". */
static bool resnet_array(golden *g, const char *entry, const sbit_site *site, const char *what,
                         golden_array_view *out)
{
    static const char *const tails[] = {"_bn", ""};
    for (size_t i = 0; i < 2; i++) {
        char name[256], layer[128];
        snprintf(layer, sizeof layer, "%s", site->layer);
        for (char *c = layer; *c != '\0'; c++) {
            *c = *c == '.' || *c == '/' ? '_' : *c;
        }
        snprintf(name, sizeof name, "%s/%s%s/%s_quantizer/%s", entry, layer, tails[i],
                 site->target == SBIT_TARGET_WEIGHT ? "weight" : "input", what);
        if (golden_array(g, name, out)) {
            return true;
        }
    }
    return false;
}

static int compare_resnet(golden *g, sbit_quant *quant, const char *id, bool histogram,
                          double close)
{
    int compared = 0;
    for (size_t i = 0; i < sbit_quant_site_count(quant); i++) {
        golden_array_view scale, zero;
        sbit_site site;
        if (sbit_quant_site(quant, i, &site) != SBIT_OK || !site.enabled ||
            !resnet_array(g, id, &site, "scale", &scale) ||
            !resnet_array(g, id, &site, "zero_point", &zero) ||
            !CHECK(scale.count == site.qparams.grid.parts.count)) {
            continue;
        }
        const bool beside = histogram && site.target == SBIT_TARGET_ACTIVATION;
        for (int64_t p = 0; p < scale.count; p++) {
            const double d = fabs((double)site.qparams.scale[p] / (double)scale.f[p] - 1.0);
            const double z = fabs((double)site.qparams.zero_point[p] - (double)zero.f[p]);
            if (!CHECK(d <= (beside ? 0.05 : close)) || !CHECK(z <= 1.0)) {
                printf("  %s %s[%d]: %.9g, golden %.9g\n", id, site.tensor, (int)p,
                       (double)site.qparams.scale[p], (double)scale.f[p]);
            }
            compared++;
        }
    }
    return compared;
}

/* One entry; the number of scales compared. */
static int quantize_resnet(golden *g, sbit_graph *graph, const sbit_yaml *e, const float *images)
{
    const sbit_yaml *a = golden_get(e, "arguments");
    const char *id = golden_text(e, "id");
    const bool skip = golden_get(e, "known_bug") != NULL || golden_get(a, "wq") != NULL ||
                      golden_get(a, "first_last8") != NULL || golden_get(a, "wobs") == NULL;
    const bool quick = getenv("SBIT_TEST_QUICK") != NULL && strstr(id, "w4a8") == NULL;
    const sbit_yaml *alpha = golden_get(a, "alpha"), *dist = golden_get(a, "dist");
    const sbit_yaml *scheme = golden_get(a, "ascheme"), *backend = golden_get(a, "backend");
    char text[900];
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    sbit_tensor x;
    sbit_error error;
    int compared = 0;
    if (skip || quick) {
        return 0;
    }
    snprintf(text, sizeof text,
             "BACKEND: %s\nSCHEDULE: {FUSE_BN: true}\n"
             "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: %s}, OBSERVER: {TYPE: %s%s%s}}\n"
             "A: {QSCHEME: %s, QUANTIZER: {BIT: %s}, OBSERVER: {TYPE: %s%s%s%s%s}}\n",
             backend != NULL ? backend->text : "virtual", golden_text(a, "wbit"),
             golden_text(a, "wobs"), dist != NULL ? ", ACIQ: {DISTRIBUTION: " : "",
             dist != NULL ? strcmp(dist->text, "GAUS") == 0 ? "GAUS}" : "LAPLACE}" : "",
             scheme != NULL ? scheme->text : "per-tensor-affine", golden_text(a, "abit"),
             golden_text(a, "aobs"), dist != NULL ? ", ACIQ: {DISTRIBUTION: " : "",
             dist != NULL ? strcmp(dist->text, "GAUS") == 0 ? "GAUS}" : "LAPLACE}" : "",
             alpha != NULL ? ", PERCENTILE: {ALPHA: 0.0001}" : "", "");
    static const int64_t dims[] = {IMAGES, 3, 32, 32};
    x = rows_tensor(images, 4, dims);
    memset(&desc, 0, sizeof desc);
    memset(&feed, 0, sizeof feed);
    desc.input_count = 1;
    desc.inputs = &x;
    if (CHECK_OK(sbit_feed_of_tensors(g->ctx, &desc, &feed, &error), error) &&
        CHECK_OK(sbit_qconfig_read(g->ctx, text, strlen(text), &config, &error), error) &&
        CHECK_OK(sbit_quant_create(graph, config, &quant, &error), error) &&
        CHECK_OK(sbit_quant_calibrate(quant, &feed, &error), error) &&
        CHECK_OK(sbit_quant_calc_qparams(quant, false, false, false, &error), error)) {
        compared = compare_resnet(g, quant, id, strcmp(golden_text(a, "aobs"), "MSE") == 0, 1e-4);
    }
    sbit_feed_close(&feed);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    return compared;
}

TEST(resnet20_has_the_scales_of_the_original)
{
    static float images[IMAGES * PIXELS];
    char path[512];
    golden g;
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_error error;
    int entries = 0, scales = 0;
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    if (!golden_open(&g, ctx, "C_sparsebit_resnet20") || !read_images(images) ||
        !test_shared("models/cifar10/resnet20.onnx", path, sizeof path)) {
        golden_close(&g);
        sbit_ctx_destroy(ctx);
        SBIT_TEST_SKIP("no golden data");
    }
    CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error);
    for (const sbit_yaml *e; (e = golden_next(&g)) != NULL;) {
        const int compared = quantize_resnet(&g, graph, e, images);
        entries += compared > 0;
        scales += compared;
    }
    printf("  %d entries, %d scales compared\n", entries, scales);
    CHECK(entries >= 4 && scales > 500 * entries);
    sbit_graph_destroy(graph);
    golden_close(&g);
    sbit_ctx_destroy(ctx);
}
