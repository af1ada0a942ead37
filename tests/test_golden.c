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
