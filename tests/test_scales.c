/* test_scales.c: scales as a pure function of plan, statistics and settings; wishes for sites;
 * statistics in files; what contracts.md section 4 says about small, dead and large numbers. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

#define IMAGE "N,3,8,8"
#define IMAGE_COUNT (4 * 3 * 8 * 8)

typedef struct scales {
    build b;
    sbit_quant *quant;
} scales;

static sbit_value_id scales_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                 uint64_t seed)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attr = build_ints("pads", pads, 4);
    char text[64];
    sbit_value_id inputs[2];
    snprintf(text, sizeof text, "%s.weight", name);
    inputs[0] = x;
    inputs[1] = build_weights(b, text, dims, seed);
    return build_node(b, "Conv", name, inputs, 2, &attr, 1);
}

static sbit_quant *scales_quant(build *b, const char *profile, const char *const set[][2])
{
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    for (size_t i = 0; !b->failed && set != NULL && set[i][0] != NULL; i++) {
        build_do(b, sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), set[i][0]);
    }
    if (!b->failed) {
        build_do(b, sbit_quant_create(b->graph, config, &quant, &b->error), "quant");
    }
    sbit_qconfig_destroy(config);
    return quant;
}

static uint64_t scales_seed = 3; /* of the last weight */

/* Two convolutions with Relu, joined by a Concat whose inputs share a scale where they are alike.
 */
static void scales_begin(scales *s, const char *profile, const char *const set[][2])
{
    const sbit_attr axis = build_int("axis", 1);
    sbit_value_id both[2];
    memset(s, 0, sizeof *s);
    build_begin(&s->b, 13);
    const sbit_value_id x = build_input(&s->b, "x", SBIT_F32, IMAGE);
    both[0] = build_unary(&s->b, "Relu", "a", scales_conv(&s->b, "ca", x, "4,3,3,3", 1));
    both[1] = build_unary(&s->b, "Relu", "b", scales_conv(&s->b, "cb", both[0], "4,4,3,3", 2));
    const sbit_value_id c = build_node(&s->b, "Concat", "c", both, 2, &axis, 1);
    build_output(&s->b, scales_conv(&s->b, "head", c, "2,8,3,3", scales_seed));
    s->quant = scales_quant(&s->b, profile, set);
}

static void scales_end(scales *s)
{
    sbit_quant_destroy(s->quant);
    build_end(&s->b);
}

/* Feeds normal numbers of a size; empty: with no sample in the batch. */
static void scales_feed(scales *s, float size, bool empty)
{
    static float data[IMAGE_COUNT];
    sbit_rng rng = sbit_rng_seed(11);
    for (int i = 0; i < IMAGE_COUNT; i++) {
        data[i] = sbit_rng_normal(&rng) * size;
    }
    const sbit_tensor x = build_tensor(SBIT_F32, empty ? "0,3,8,8" : "4,3,8,8", data);
    build_do(&s->b, sbit_quant_forward(s->quant, NULL, &x, 1, &s->b.error), "forward");
}

static void scales_data(scales *s, float size, bool empty)
{
    build_do(&s->b, sbit_quant_prepare_calibration(s->quant, &s->b.error), "prepare");
    scales_feed(s, size, empty);
}

static bool scales_calc(scales *s)
{
    return !s->b.failed &&
           build_do(&s->b, sbit_quant_calc_qparams(s->quant, false, false, false, &s->b.error),
                    "calc");
}

static bool scales_site(sbit_quant *quant, const char *tensor, sbit_site *out, size_t *index)
{
    for (size_t i = 0; quant != NULL && i < sbit_quant_site_count(quant); i++) {
        if (sbit_quant_site(quant, i, out) == SBIT_OK && strcmp(out->tensor, tensor) == 0) {
            if (index != NULL) {
                *index = i;
            }
            return true;
        }
    }
    return false;
}

/* The same sites with the same numbers, to the bit. */
static void scales_same(sbit_quant *a, sbit_quant *b, const char *what)
{
    CHECK_EQ_I64(sbit_quant_site_count(a), sbit_quant_site_count(b));
    for (size_t i = 0; i < sbit_quant_site_count(a); i++) {
        sbit_site x, y;
        CHECK(sbit_quant_site(a, i, &x) == SBIT_OK);
        if (!CHECK(scales_site(b, x.tensor, &y, NULL)) ||
            !CHECK_MSG(x.enabled == y.enabled, "%s: %s", what, x.tensor) || !x.enabled) {
            continue;
        }
        const size_t count = (size_t)x.qparams.grid.parts.count;
        CHECK(x.qparams.grid.bits == y.qparams.grid.bits);
        CHECK(x.qparams.grid.symmetric == y.qparams.grid.symmetric);
        if (CHECK(x.qparams.grid.parts.count == y.qparams.grid.parts.count)) {
            CHECK_MSG(memcmp(x.qparams.scale, y.qparams.scale, count * sizeof(float)) == 0 &&
                          memcmp(x.qparams.zero_point, y.qparams.zero_point,
                                 count * sizeof(int32_t)) == 0,
                      "%s: %s: scale %g and %g", what, x.tensor, (double)x.qparams.scale[0],
                      (double)y.qparams.scale[0]);
        }
    }
}

/* ---- pure */

TEST(calculating_twice_changes_nothing)
{
    scales once, twice;
    scales_begin(&once, "generic", NULL);
    scales_begin(&twice, "generic", NULL);
    scales_data(&once, 1.0f, false);
    scales_data(&twice, 1.0f, false);
    CHECK(scales_calc(&once) && scales_calc(&twice) && scales_calc(&twice));
    scales_same(once.quant, twice.quant, "twice");
    scales_end(&once);
    scales_end(&twice);
}

/* Also after a first calibration without samples, which is refused. */
TEST(a_second_calibration_equals_a_fresh_one)
{
    scales fresh, again;
    scales_begin(&fresh, "generic", NULL);
    scales_begin(&again, "generic", NULL);
    scales_data(&again, 1.0f, true);
    CHECK_STATUS(sbit_quant_calc_qparams(again.quant, false, false, false, &again.b.error),
                 SBIT_ERR_STATE, again.b.error);
    CHECK_CONTAINS(again.b.error.message, "calibration set is empty");
    scales_data(&again, 0.001f, false);
    CHECK(scales_calc(&again));
    scales_data(&again, 100.0f, false);
    scales_data(&fresh, 100.0f, false);
    CHECK(scales_calc(&again) && scales_calc(&fresh));
    scales_same(fresh.quant, again.quant, "again");
    scales_end(&fresh);
    scales_end(&again);
}

/* What is set after the calibration counts as what was set before it. */
TEST(settings_change_without_new_data)
{
    static const char *const sets[][3][2] = {
        {{"W.QUANTIZER.BIT", "4"}, {"A.QUANTIZER.BIT", "6"}, {NULL, NULL}},
        {{"A.QSCHEME", "per-tensor-symmetric"}, {NULL, NULL}},
        {{"W.QSCHEME", "per-tensor-symmetric"}, {NULL, NULL}},
        {{"SKIP_TRACE_MODULES", "[cb]"}, {NULL, NULL}},
        {{"W.SPECIFIC", "[{\"ca\": [QUANTIZER.BIT, 3]}]"}, {"W.QUANTIZER.BIT", "16"}, {NULL, NULL}},
        {{"A.QUANTIZER.POWER_OF_TWO", "true"}, {NULL, NULL}},
        {{"EXPORT.SHARE_SCALE", "none"}, {NULL, NULL}},
    };
    for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++) {
        scales fresh, changed;
        scales_begin(&fresh, "generic", sets[k]);
        scales_begin(&changed, "generic", NULL);
        scales_data(&fresh, 1.0f, false);
        scales_data(&changed, 1.0f, false);
        CHECK(scales_calc(&fresh) && scales_calc(&changed));
        for (size_t i = 0; sets[k][i][0] != NULL; i++) {
            build_do(&changed.b,
                     sbit_quant_set(changed.quant, sets[k][i][0], sets[k][i][1], &changed.b.error),
                     sets[k][i][0]);
        }
        CHECK(scales_calc(&changed));
        scales_same(fresh.quant, changed.quant, sets[k][0][0]);
        scales_end(&fresh);
        scales_end(&changed);
    }
}

TEST(settings_that_need_data_or_are_wrong_are_refused)
{
    scales s;
    scales_begin(&s, "generic", NULL);
    scales_data(&s, 1.0f, false);
    CHECK(scales_calc(&s));
    CHECK_STATUS(sbit_quant_set(s.quant, "A.QUANTIZER.BIT", "1", &s.b.error), SBIT_ERR_CONFIG,
                 s.b.error);
    CHECK_STATUS(sbit_quant_set(s.quant, "SCHEDULE.FUSE_BN", "true", &s.b.error), SBIT_ERR_STATE,
                 s.b.error);
    CHECK(scales_calc(&s)); /* nothing was changed */
    build_do(&s.b, sbit_quant_set(s.quant, "A.OBSERVER.TYPE", "moving_average", &s.b.error), "set");
    CHECK_STATUS(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), SBIT_ERR_STATE,
                 s.b.error);
    CHECK_CONTAINS(s.b.error.message, "moving_average");
    scales_end(&s);
}

TEST(statistics_come_back_from_a_file)
{
    static const char *const path = SBIT_TEST_TMP "/scales.stats";
    static const char *const narrow[][2] = {{"A.QUANTIZER.BIT", "4"}, {NULL, NULL}};
    static const char *const other[][2] = {{"A.OBSERVER.TYPE", "moving_average"}, {NULL, NULL}};
    scales a, b, c;
    scales_begin(&a, "generic", narrow);
    scales_begin(&b, "generic", narrow);
    scales_begin(&c, "generic", other);
    CHECK_STATUS(sbit_quant_save_statistics(a.quant, path, &a.b.error), SBIT_ERR_STATE, a.b.error);
    scales_data(&a, 1.0f, false);
    CHECK(scales_calc(&a));
    build_do(&a.b, sbit_quant_save_statistics(a.quant, path, &a.b.error), "save");
    build_do(&b.b, sbit_quant_load_statistics(b.quant, path, &b.b.error), "load");
    CHECK(scales_calc(&b));
    scales_same(a.quant, b.quant, "loaded");
    CHECK_STATUS(sbit_quant_load_statistics(c.quant, path, &c.b.error), SBIT_ERR_STATE, c.b.error);
    CHECK_CONTAINS(c.b.error.message, "moving_average");
    FILE *file = fopen(path, "rb+");
    if (CHECK(file != NULL)) { /* cut off: said, not read beyond */
        char bytes[100];
        CHECK(fread(bytes, 1, sizeof bytes, file) == sizeof bytes);
        fclose(file);
        file = fopen(path, "wb");
        CHECK(file != NULL && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes);
        fclose(file);
        CHECK_STATUS(sbit_quant_load_statistics(b.quant, path, &b.b.error), SBIT_ERR_PARSE,
                     b.b.error);
    }
    scales_end(&a);
    scales_end(&b);
    scales_end(&c);
}

/* Two runs joined are one run over both; not where the order matters, or passes have ended. */
TEST(statistics_of_two_runs_are_joined)
{
    static const char *const paths[] = {SBIT_TEST_TMP "/one.stats", SBIT_TEST_TMP "/two.stats"};
    static const struct {
        const char *observer;
        bool joins, ended;
    } cases[] = {{"minmax", true, true},        {"mse", true, true},
                 {"lp", true, true},            {"aciq", true, true},
                 {"octav", true, true},         {"kl_histogram", true, false},
                 {"percentile", true, false},   {"ort_entropy", true, false},
                 {"ort_percentile", true, false}, {"moving_average", false, false}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const char *const set[][2] = {{"A.OBSERVER.TYPE", cases[i / 2].observer}, {NULL, NULL}};
        const bool ended = i % 2 == 1, joins = ended ? cases[i / 2].ended : cases[i / 2].joins;
        scales run[2], joined, whole;
        scales_begin(&joined, "generic", set);
        scales_begin(&whole, "generic", set);
        for (size_t k = 0; k < 2; k++) {
            scales_begin(&run[k], "generic", set);
            scales_data(&run[k], k == 0 ? 1.0f : 5.0f, false);
            CHECK(!ended || scales_calc(&run[k]));
            build_do(&run[k].b, sbit_quant_save_statistics(run[k].quant, paths[k], &run[k].b.error),
                     "save");
        }
        CHECK_STATUS(sbit_quant_merge_statistics(joined.quant, paths[0], &joined.b.error),
                     SBIT_ERR_STATE, joined.b.error);
        build_do(&joined.b, sbit_quant_load_statistics(joined.quant, paths[0], &joined.b.error),
                 "load");
        const sbit_status status =
            sbit_quant_merge_statistics(joined.quant, paths[1], &joined.b.error);
        CHECK_MSG(status == (joins ? SBIT_OK : SBIT_ERR_STATE), "%s %d: %s",
                  cases[i / 2].observer, (int)ended, joined.b.error.message);
        if (status == SBIT_OK) {
            scales_data(&whole, 1.0f, false);
            scales_feed(&whole, 5.0f, false);
            CHECK(scales_calc(&whole) && scales_calc(&joined));
            scales_same(whole.quant, joined.quant, cases[i / 2].observer);
        } else { /* half of it was added */
            CHECK_STATUS(sbit_quant_calc_qparams(joined.quant, false, false, false, &joined.b.error),
                         SBIT_ERR_STATE, joined.b.error);
        }
        scales_end(&run[0]);
        scales_end(&run[1]);
        scales_end(&joined);
        scales_end(&whole);
    }
}

/* Bytes of a file that are others are an error or other numbers, never a place outside of arrays. */
TEST(damaged_statistics_do_no_harm)
{
    static const char *const path = SBIT_TEST_TMP "/damaged.stats";
    static const char *const observers[] = {"kl_histogram", "percentile", "mse", "octav", "ort_entropy"};
    for (size_t i = 0; i < sizeof observers / sizeof observers[0]; i++) {
        const char *const set[][2] = {{"A.OBSERVER.TYPE", observers[i]},
                                      {"A.QUANTIZER.BIT", "4"}, /* few steps: kl_histogram's time */
                                      {NULL, NULL}};
        const size_t step = getenv("SBIT_TEST_QUICK") != NULL ? 8 : 4;
        size_t size = 0, refused = 0;
        scales run;
        scales_begin(&run, "generic", set);
        scales_data(&run, 1.0f, false);
        build_do(&run.b, sbit_quant_save_statistics(run.quant, path, &run.b.error), "save");
        unsigned char *bytes = test_read_file(path, &size);
        if (CHECK(bytes != NULL && size > 400)) {
            for (size_t at = 16; at < 400; at += step) { /* the first record's names, head, first values */
                unsigned char was[4];
                memcpy(was, bytes + at, sizeof was);
                memset(bytes + at, 0x7f, sizeof was);
                FILE *file = fopen(path, "wb");
                CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
                memcpy(bytes + at, was, sizeof was);
                refused += sbit_quant_merge_statistics(run.quant, path, &run.b.error) != SBIT_OK;
                (void)sbit_quant_calc_qparams(run.quant, false, false, false, &run.b.error);
                if (sbit_quant_load_statistics(run.quant, path, &run.b.error) == SBIT_OK) {
                    (void)sbit_quant_calc_qparams(run.quant, false, false, false, &run.b.error);
                }
                scales_data(&run, 1.0f, false);
            }
        }
        CHECK_MSG(step * refused > 40, "%s: %d refused", observers[i], (int)refused);
        free(bytes);
        scales_end(&run);
    }
}

/* Of other weights, other settings of the observer, or something else than the tensor. */
TEST(statistics_are_stamped)
{
    static const char *const path = SBIT_TEST_TMP "/stamp.stats";
    static const char *const sets[][3][2] = {
        {{"A.OBSERVER.TYPE", "percentile"}, {NULL, NULL}},
        {{"A.OBSERVER.TYPE", "percentile"}, {"A.QUANTIZER.BIT", "4"}, {NULL, NULL}},
        {{"A.OBSERVER.TYPE", "percentile"}, {"A.OBSERVER.PERCENTILE.ALPHA", "0.01"}, {NULL, NULL}},
        {{"A.OBSERVER.TYPE", "percentile"}, {"A.QUANTIZER.TYPE", "dorefa"}, {NULL, NULL}},
        {{"A.OBSERVER.TYPE", "percentile"}, {NULL, NULL}}, /* with another weight */
    };
    static const char *const says[] = {NULL, NULL, "with these settings", "with these settings",
                                       "other weights"};
    scales s;
    scales_begin(&s, "generic", sets[0]);
    scales_data(&s, 1.0f, false);
    CHECK(scales_calc(&s));
    build_do(&s.b, sbit_quant_save_statistics(s.quant, path, &s.b.error), "save");
    scales_end(&s);
    for (size_t i = 0; i < 5; i++) {
        scales_seed = i == 4 ? 9 : 3;
        scales_begin(&s, "generic", sets[i]);
        scales_seed = 3;
        const sbit_status status = sbit_quant_load_statistics(s.quant, path, &s.b.error);
        CHECK_MSG(status == (says[i] == NULL ? SBIT_OK : SBIT_ERR_STATE), "%d: %s", (int)i,
                  status == SBIT_OK ? "taken" : s.b.error.message);
        if (status != SBIT_OK && says[i] != NULL) {
            CHECK_CONTAINS(s.b.error.message, says[i]);
        }
        scales_end(&s);
    }
}

/* Counts of kl_histogram are over other bins where a grid is symmetric: told, not misread. */
TEST(counts_of_the_other_scheme_are_refused)
{
    static const char *const kl[][2] = {{"A.OBSERVER.TYPE", "kl_histogram"}, {NULL, NULL}};
    static float data[IMAGE_COUNT];
    scales s;
    sbit_feed feed;
    sbit_feed_desc desc;
    sbit_rng rng = sbit_rng_seed(5);
    for (int i = 0; i < IMAGE_COUNT; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    const sbit_tensor x = build_tensor(SBIT_F32, "4,3,8,8", data);
    scales_begin(&s, "generic", kl);
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    build_do(&s.b, sbit_feed_of_tensors(s.b.ctx, &desc, &feed, &s.b.error), "feed");
    build_do(&s.b, sbit_quant_calibrate(s.quant, &feed, &s.b.error), "calibrate");
    CHECK(scales_calc(&s));
    build_do(&s.b, sbit_quant_set(s.quant, "A.QUANTIZER.BIT", "4", &s.b.error), "bits");
    CHECK(scales_calc(&s));
    build_do(&s.b, sbit_quant_set(s.quant, "A.QSCHEME", "per-tensor-symmetric", &s.b.error), "set");
    CHECK_STATUS(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), SBIT_ERR_STATE,
                 s.b.error);
    CHECK_CONTAINS(s.b.error.message, "calibrate again");
    sbit_feed_close(&feed);
    scales_end(&s);
}

/* ---- wishes for single sites */

TEST(sites_are_chosen_and_changed_one_by_one)
{
    static const float scale = 0.125f;
    static const int32_t zero_point = 3;
    scales s;
    sbit_site site;
    size_t at = 0;
    sbit_site_change change;
    scales_begin(&s, "generic", NULL);
    scales_data(&s, 1.0f, false);
    memset(&change, 0, sizeof change);
    CHECK(scales_site(s.quant, "x", &site, &at));
    change.scale = &scale;
    CHECK_STATUS(sbit_quant_set_site(s.quant, at, &change, &s.b.error), SBIT_ERR_INVALID_ARGUMENT,
                 s.b.error);
    change.zero_point = &zero_point;
    CHECK_OK(sbit_quant_set_site(s.quant, at, &change, &s.b.error), s.b.error);
    memset(&change, 0, sizeof change);
    CHECK(scales_site(s.quant, "ca.weight", &site, &at));
    change.bits = 16;
    CHECK_OK(sbit_quant_set_site(s.quant, at, &change, &s.b.error), s.b.error);
    change.bits = 0;
    change.enable = -1;
    CHECK(scales_site(s.quant, "cb.weight", &site, &at));
    CHECK_OK(sbit_quant_set_site(s.quant, at, &change, &s.b.error), s.b.error);
    CHECK(scales_calc(&s));
    CHECK(scales_site(s.quant, "x", &site, NULL));
    CHECK_NEAR(site.qparams.scale[0], scale, 0.0);
    CHECK_EQ_I64(site.qparams.zero_point[0], 3);
    CHECK(scales_site(s.quant, "ca.weight", &site, NULL) && site.qparams.grid.bits == 16);
    CHECK(scales_site(s.quant, "cb.weight", &site, NULL) && !site.enabled);
    CHECK_CONTAINS(site.reason, "set_site");
    sbit_graph *q = NULL;
    if (build_do(&s.b, sbit_quant_build(s.quant, NULL, &q, &s.b.error), "build")) {
        CHECK_EQ_I64(sbit_graph_opset(q, ""), 21); /* 16 bits */
        CHECK(sbit_graph_find_value(q, "cb.weight").idx != 0);
        CHECK(sbit_graph_find_value(q, "ca.weight").idx == 0);
        CHECK_OK(sbit_graph_validate(q, &s.b.error), s.b.error);
    }
    sbit_graph_destroy(q);
    scales_end(&s);
}

/* A build of some sites only: for sensitivity, one layer at a time. */
TEST(a_build_takes_the_sites_it_is_told)
{
    scales s;
    bool mask[32] = {false};
    sbit_quant_build_desc desc;
    sbit_site site;
    size_t at = 0;
    sbit_graph *q = NULL;
    int quantize = 0, dequantize = 0;
    scales_begin(&s, "generic", NULL);
    scales_data(&s, 1.0f, false);
    CHECK(scales_calc(&s) && sbit_quant_site_count(s.quant) <= 32);
    CHECK(scales_site(s.quant, "cb.weight", &site, &at));
    mask[at] = true;
    CHECK(scales_site(s.quant, "x", &site, &at));
    mask[at] = true;
    memset(&desc, 0, sizeof desc);
    desc.sites = mask;
    if (build_do(&s.b, sbit_quant_build(s.quant, &desc, &q, &s.b.error), "build")) {
        for (sbit_node_id id = sbit_graph_first(q); id.idx != 0; id = sbit_graph_next(q, id)) {
            quantize += strcmp(sbit_graph_node(q, id)->op_type, "QuantizeLinear") == 0;
            dequantize += strcmp(sbit_graph_node(q, id)->op_type, "DequantizeLinear") == 0;
        }
        CHECK_EQ_I64(quantize, 1);
        CHECK_EQ_I64(dequantize, 2);
    }
    sbit_graph_destroy(q);
    scales_end(&s);
}

/* ---- small, dead and large numbers */

/* y = x w + b for x [N,k], w [k,n]; dB of the simulated result against float on other data than was
 * calibrated on. *quant is left for a look at the sites. */
static double scales_gemm(scales *s, const char *profile, const char *const set[][2],
                          const float *w, const char *w_dims, const float *bias, const char *b_dims,
                          float size)
{
    static float x[2][64 * 4];
    sbit_value_id inputs[3];
    double signal = 0.0, noise = 0.0;
    sbit_rng rng = sbit_rng_seed(3);
    float kept[512];
    memset(s, 0, sizeof *s);
    build_begin(&s->b, 13);
    inputs[0] = build_input(&s->b, "x", SBIT_F32, "N,4");
    inputs[1] = build_constant(&s->b, "w", SBIT_F32, w_dims, w);
    inputs[2] = bias != NULL ? build_constant(&s->b, "b", SBIT_F32, b_dims, bias) : inputs[2];
    build_output(&s->b, build_node(&s->b, "Gemm", "y", inputs, bias != NULL ? 3 : 2, NULL, 0));
    s->quant = scales_quant(&s->b, profile, set);
    for (int i = 0; i < 2 * 64 * 4; i++) {
        x[i / 256][i % 256] = (sbit_rng_uniform(&rng) * 2.0f - 1.0f) * size;
    }
    for (int run = 0; run < 3 && !s->b.failed; run++) {
        const sbit_tensor t = build_tensor(SBIT_F32, "64,4", x[run > 0]);
        if (run == 0) {
            build_do(&s->b, sbit_quant_prepare_calibration(s->quant, &s->b.error), "prepare");
        } else {
            build_do(&s->b, sbit_quant_set_quant(s->quant, run > 1, run > 1, &s->b.error), "mode");
        }
        build_do(&s->b, sbit_quant_forward(s->quant, NULL, &t, 1, &s->b.error), "forward");
        if (run == 0) {
            scales_calc(s);
            continue;
        }
        const sbit_tensor *y = &sbit_quant_output(s->quant, 0)->tensor;
        for (int64_t i = 0; i < sbit_tensor_count(y) && i < 512; i++) {
            const float value = ((const float *)y->data)[i];
            const double off = (double)value - (double)kept[i];
            signal += run > 1 ? (double)kept[i] * (double)kept[i] : 0.0;
            noise += run > 1 ? off * off : 0.0;
            kept[i] = run > 1 ? kept[i] : value;
        }
    }
    return 10.0 * log10(signal / (noise > 0.0 ? noise : 1e-300));
}

static const float scales_w[8] = {0.5f, -0.3f, 0.8f, 0.9f, -0.7f, 0.4f, 0.2f, -0.6f}; /* [4,2] */

TEST(tensors_that_are_small_as_a_whole_stay_precise)
{
    static const float sizes[] = {1.0f, 1e-5f, 1e-6f, 1e-20f};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        float w[8];
        scales s;
        for (int k = 0; k < 8; k++) {
            w[k] = scales_w[k] * sizes[i];
        }
        const double weights = scales_gemm(&s, "generic", NULL, w, "4,2", NULL, NULL, 1.0f);
        CHECK_MSG(weights > 38.0, "weights of size %g: %.1f dB", (double)sizes[i], weights);
        scales_end(&s);
        const double data = scales_gemm(&s, "generic", NULL, scales_w, "4,2", NULL, NULL, sizes[i]);
        CHECK_MSG(data > 38.0, "activations of size %g: %.1f dB", (double)sizes[i], data);
        scales_end(&s);
    }
}

/* In Sparsebit's own profile its floor is kept, and said. */
TEST(sparsebit_keeps_its_floor_and_says_so)
{
    scales s;
    sbit_site site;
    const float w[8] = {1e-6f, 0.0f, 1e-6f, 0.0f, -1e-6f, 0.0f, 1e-6f, 0.0f};
    scales_gemm(&s, "sparsebit", NULL, w, "4,2", NULL, NULL, 1.0f);
    if (CHECK(scales_site(s.quant, "w", &site, NULL))) {
        CHECK_NEAR(site.qparams.scale[0], 1e-6, 1e-12);
        CHECK_NEAR(site.qparams.scale[1], 1e-6, 1e-12);
        CHECK_CONTAINS(s.b.warning, "1 of 2 scales are raised to 1e-6");
    }
    scales_end(&s);
}

/* [4,5]: columns 0, 2 and 4 live, 1 all zero, 3 below 2^-24 of the largest; bias 0.4 on all. The
 * dead take the live ones' median scale, so that their bias stays precise. */
TEST(dead_channels_take_the_median_scale)
{
    const float tiny = 1e-9f;
    const float w[20] = {1.0f,  0.0f, 2.0f, tiny, 4.0f, 0.5f, 0.0f, 1.0f, -tiny, 2.0f,
                         -1.0f, 0.0f, 1.5f, tiny, 3.0f, 0.2f, 0.0f, 0.1f, tiny,  0.3f};
    const float bias[5] = {0.4f, 0.4f, 0.4f, 0.4f, 0.4f};
    scales s;
    sbit_site site;
    const double db = scales_gemm(&s, "generic", NULL, w, "4,5", bias, "5", 255.0f);
    CHECK_MSG(db > 38.0, "%.1f dB", db);
    if (CHECK(scales_site(s.quant, "w", &site, NULL))) {
        CHECK_NEAR(site.qparams.scale[0], 2.0 / 255.0, 1e-8);
        CHECK_NEAR(site.qparams.scale[2], 4.0 / 255.0, 1e-8);
        CHECK_NEAR(site.qparams.scale[4], 8.0 / 255.0, 1e-8);
        CHECK_NEAR(site.qparams.scale[1], 4.0 / 255.0, 1e-8);
        CHECK_NEAR(site.qparams.scale[3], 4.0 / 255.0, 1e-8);
    }
    scales_end(&s);
}

/* |bias| / (scale_x scale_w) beyond 2^31 in every profile: who keeps the bias float leaves it to
 * the runtime to make it an integer. */
TEST(large_biases_over_tiny_weights_fit_in_31_bits)
{
    static const char *const profiles[] = {"generic", "openvino", "tensorrt", "mcu"};
    const float w[8] = {1e-7f, -1.0f, 2e-7f, 0.5f, -1e-7f, 0.2f, 1e-7f, 0.1f};
    const float bias[2] = {50.0f, -4.5f};
    for (size_t i = 0; i < 4; i++) {
        scales s;
        sbit_site x, site;
        const double db = scales_gemm(&s, profiles[i], NULL, w, "4,2", bias, "2", 1e-3f);
        CHECK_MSG(db > 60.0, "%s: %.1f dB", profiles[i], db);
        if (CHECK(scales_site(s.quant, "w", &site, NULL)) &&
            CHECK(scales_site(s.quant, "x", &x, NULL))) {
            const double q = 50.0 / ((double)x.qparams.scale[0] * (double)site.qparams.scale[0]);
            CHECK_MSG(q < 2147483648.0 && q > 2147000000.0, "%s: %g", profiles[i], q);
            CHECK_NEAR(site.qparams.scale[1], 2.0 / 255.0, 1e-8);
        }
        scales_end(&s);
    }
}

TEST(power_of_two_scales_stay_so_under_the_bias_rule)
{
    static const char *const set[][2] = {
        {"W.QUANTIZER.POWER_OF_TWO", "true"}, {"A.QUANTIZER.POWER_OF_TWO", "true"}, {NULL, NULL}};
    const float w[8] = {1e-7f, -1.0f, 2e-7f, 0.5f, -1e-7f, 0.2f, 1e-7f, 0.1f};
    const float bias[2] = {50.0f, -4.5f};
    scales s;
    scales_gemm(&s, "mcu", set, w, "4,2", bias, "2", 1e-3f);
    for (size_t i = 0; i < sbit_quant_site_count(s.quant); i++) {
        sbit_site site;
        CHECK(sbit_quant_site(s.quant, i, &site) == SBIT_OK);
        for (int64_t c = 0; c < site.qparams.grid.parts.count; c++) {
            int exponent = 0;
            CHECK_NEAR(frexpf(site.qparams.scale[c], &exponent), 0.5, 0.0);
        }
    }
    scales_end(&s);
}

/* field-cases/bias-of-one-element: C of shape [], [1], [1,1] or [1,2] over two channels. */
TEST(a_bias_of_one_element_serves_every_channel)
{
    static const char *const dims[] = {"", "1", "1,1", "1,2"};
    const float w[8] = {1.0f, 100.0f, -0.5f, 50.0f, 0.25f, -80.0f, 1.0f, 20.0f};
    const float bias[2] = {50.0f, 50.0f};
    for (size_t i = 0; i < 4; i++) {
        scales s;
        sbit_graph *q = NULL;
        const double db = scales_gemm(&s, "onnxruntime", NULL, w, "4,2", bias, dims[i], 1.0f);
        CHECK_MSG(db > 38.0, "[%s]: %.1f dB", dims[i], db);
        if (build_do(&s.b, sbit_quant_build(s.quant, NULL, &q, &s.b.error), "build")) {
            const sbit_value_id id = sbit_graph_find_value(q, "b_scale");
            if (CHECK_MSG(id.idx != 0, "[%s]", dims[i])) {
                CHECK_EQ_I64(sbit_tensor_count(&sbit_graph_value(q, id)->constant), 2);
            }
        }
        sbit_graph_destroy(q);
        scales_end(&s);
    }
}

/* Activations per channel at 4 bits: 8 times the calibrated range comes out clipped to it. */
TEST(narrow_activations_per_channel_are_clipped)
{
    static const char *const set[][2] = {{"A.QSCHEME", "per-channel-affine"},
                                         {"A.QUANTIZER.BIT", "4"},
                                         {"W.QUANTIZER.BIT", "16"},
                                         {NULL, NULL}};
    static float x[2 * 3 * 4];
    static const float eye[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    build b;
    build_begin(&b, 13);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,3,4,1");
    build_output(
        &b, build_binary(&b, "Conv", "y", in, build_constant(&b, "w", SBIT_F32, "3,3,1,1", eye)));
    sbit_quant *quant = scales_quant(&b, "sparsebit", set);
    for (int i = 0; i < 24; i++) {
        x[i] = (float)(i / 4 % 3 + 1) * ((float)(i % 4) - 1.0f) * 0.5f; /* channel c: c+1 times */
    }
    const sbit_tensor t = build_tensor(SBIT_F32, "2,3,4,1", x);
    if (quant != NULL) {
        build_do(&b, sbit_quant_prepare_calibration(quant, &b.error), "prepare");
        build_do(&b, sbit_quant_forward(quant, NULL, &t, 1, &b.error), "forward");
        build_do(&b, sbit_quant_calc_qparams(quant, false, false, false, &b.error), "calc");
        build_do(&b, sbit_quant_set_quant(quant, true, true, &b.error), "mode");
        for (int i = 0; i < 24; i++) {
            x[i] *= 8.0f;
        }
        build_do(&b, sbit_quant_forward(quant, NULL, &t, 1, &b.error), "forward");
        const float *y = b.failed ? NULL : (const float *)sbit_quant_output(quant, 0)->tensor.data;
        for (int i = 0; y != NULL && i < 24; i++) {
            const double size = (double)(i / 4 % 3 + 1), step = size * 1.5 / 15.0;
            const double want = fmin(fmax((double)x[i], -0.5 * size), size);
            CHECK_NEAR(y[i], want, step * 0.51);
        }
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}
