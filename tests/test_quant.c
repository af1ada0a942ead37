/* test_quant.c: ranges to scales, placement, the exported graph. Blocks of field-reports.md are
 * named where a test answers one. */
#include "../sparsebit.h"
#include "build_graph.h"

/* ---- (min, max) -> (scale, zero point) */

TEST(qparams_of_known_ranges)
{
    static const struct {
        float min, max;
        bool symmetric;
        int qmin, qmax;
        double scale;
        int zero_point;
    } cases[] = {
        {-1.0f, 3.0f, false, 0, 255, 4.0 / 255.0, 64}, /* algorithms section 7.1 */
        {-1.0f, 1.0f, true, -128, 127, 2.0 / 255.0, 0},
        {-1.0f, 0.5f, true, -127, 127, 1.0 / 127.0, 0}, /* NARROW_RANGE */
        {-8.0f, 7.0f, true, -8, 7, 16.0 / 15.0, 0},
        {2.0f, 3.0f, false, 0, 255, 3.0 / 255.0, 0}, /* A4.14: must contain 0 */
        {-3.0f, -2.0f, false, 0, 255, 3.0 / 255.0, 255},
        {0.0f, 0.0f, false, 0, 255, 1.0, 0}, /* A4.5 */
        {0.0f, 0.0f, true, -128, 127, 1.0, 0},
        {0.0f, 0.0f, true, 0, 255, 1.0, 128},
        {-1.0f, 1.0f, true, 0, 255, 2.0 / 255.0, 128},
        {-1.0f, 3.0f, false, -128, 127, 4.0 / 255.0, -64},
        {-1e-9f, 1.0f, false, 0, 255, 1.0 / 255.0, 0},
        {-1e-30f, 1e-38f, true, -128, 127, 1e-6, 0}, /* floor */
        {-3.4e38f, 3.4e38f, false, 0, 255, 6.8e38 / 255.0, 128},
        {0.0f, 6.0f, false, 0, 65535, 6.0 / 65535.0, 0},
        {0.0f, 1.0f, false, 0, 15, 1.0 / 15.0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float scale = -1.0f;
        int32_t zero_point = -1;
        sbit_error error;
        memset(&error, 0, sizeof error);
        CHECK_OK(sbit_qparams_from_range("x", cases[i].min, cases[i].max, cases[i].symmetric,
                                         cases[i].qmin, cases[i].qmax, &scale, &zero_point,
                                         &error),
                 error);
        CHECK_NEAR(scale, cases[i].scale, cases[i].scale * 1.2e-7);
        CHECK_EQ_I64(zero_point, cases[i].zero_point);
    }
}

TEST(qparams_refuse_what_is_not_finite)
{
    static const float bad[] = {(float)NAN, (float)INFINITY, -(float)INFINITY};
    for (size_t i = 0; i < 3; i++) {
        float scale = 7.0f;
        int32_t zero_point = 7;
        sbit_error error;
        CHECK_STATUS(sbit_qparams_from_range("conv1.weight", bad[i], 1.0f, true, -128, 127, &scale,
                                             &zero_point, &error),
                     SBIT_ERR_NUMERIC, error);
        CHECK_CONTAINS(error.message, "conv1.weight");
        CHECK_STATUS(sbit_qparams_from_range("x", 0.0f, bad[i], false, 0, 255, &scale, &zero_point,
                                             &error),
                     SBIT_ERR_NUMERIC, error);
        CHECK(scale == 7.0f && zero_point == 7); /* untouched */
    }
}

/* For any range and width: 0 is exact, the ends are within half a step (symmetric: of the wider
 * end), the zero point lies in the range. */
TEST(qparams_properties)
{
    sbit_rng rng = sbit_rng_seed(5);
    for (int i = 0; i < 20000; i++) {
        const int bits = 2 + (int)sbit_rng_below(&rng, 15);
        const bool symmetric = (i & 1) != 0;
        const bool is_signed = symmetric || (i & 2) != 0;
        const int32_t half = 1 << (bits - 1);
        const int32_t qmin = is_signed ? -half : 0;
        const int32_t qmax = is_signed ? half - 1 : 2 * half - 1;
        const float size = ldexpf(1.0f, (int)sbit_rng_below(&rng, 30) - 12);
        const float a = (sbit_rng_uniform(&rng) * 2.0f - 1.0f) * size;
        const float b = (sbit_rng_uniform(&rng) * 2.0f - 1.0f) * size;
        const float min = a < b ? a : b;
        const float max = a < b ? b : a;
        float scale;
        int32_t zp;
        sbit_error error;
        memset(&error, 0, sizeof error);
        CHECK_OK(sbit_qparams_from_range("x", min, max, symmetric, qmin, qmax, &scale, &zp, &error),
                 error);
        const double lo = fmin((double)min, 0.0), hi = fmax((double)max, 0.0);
        const double step = (double)scale;
        CHECK(scale >= 1e-6f && zp >= qmin && zp <= qmax);
        CHECK(hi <= ((double)(qmax - zp) + (symmetric ? 1.0 : 0.5001)) * step * 1.000001);
        CHECK(lo >= ((double)(qmin - zp) - 0.5001) * step * 1.000001);
        if (scale > 1.1e-6f && !symmetric) { /* and no wider than needed */
            CHECK_NEAR(step * (double)(qmax - qmin), hi - lo, (hi - lo) * 1e-6);
        }
    }
}

/* ---- graphs */

static const int64_t dims_x[4] = {-1, 3, 8, 8};

static sbit_graph *quant_graph(sbit_ctx *ctx)
{
    sbit_graph *g = NULL;
    memset(&build_error, 0, sizeof build_error);
    CHECK_OK(sbit_graph_create(ctx, 13, &g, &build_error), build_error);
    return g;
}

/* Conv with random 3x3 weights, pads 1. */
static sbit_value_id quant_conv(sbit_graph *g, const char *name, sbit_value_id x, int64_t in,
                                int64_t out, bool bias)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    char text[64];
    const int64_t dims[4] = {out, in, 3, 3};
    snprintf(text, sizeof text, "%s.weight", name);
    const sbit_value_id w =
        build_random(g, text, 4, dims, 0.3f, (uint64_t)(in * 100 + out + name[0]));
    snprintf(text, sizeof text, "%s.bias", name);
    const sbit_value_id b = bias ? build_random(g, text, 1, dims, 0.1f, 9) : w;
    const sbit_value_id y = bias ? build_node3(g, "Conv", name, x, w, b)
                                 : build_node2(g, "Conv", name, x, w);
    build_attr_ints(g, y, "pads", 4, pads);
    return y;
}

static sbit_quant *quant_make(sbit_graph *g, const char *profile, const char *set[][2])
{
    sbit_ctx *ctx = sbit_graph_ctx(g);
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    CHECK_OK(sbit_qconfig_create(ctx, profile, &config, &error), error);
    for (size_t i = 0; set != NULL && set[i][0] != NULL; i++) {
        CHECK_OK(sbit_qconfig_set(config, set[i][0], set[i][1], &error), error);
    }
    CHECK_OK(sbit_quant_create(g, config, &quant, &error), error);
    sbit_qconfig_destroy(config);
    return quant;
}

/* Feeds `batches` batches of four random images. */
static bool quant_feed(sbit_quant *quant, int64_t channels, int64_t size, int batches)
{
    const int64_t dims[4] = {4, channels, size, size};
    const size_t count = (size_t)(4 * channels * size * size);
    float *data = (float *)malloc(count * sizeof *data);
    sbit_rng rng = sbit_rng_seed(3);
    bool ok = CHECK_OK(sbit_quant_prepare_calibration(quant, &build_error), build_error);
    for (int b = 0; b < batches && ok; b++) {
        for (size_t i = 0; i < count; i++) {
            data[i] = sbit_rng_normal(&rng);
        }
        const sbit_tensor x = build_tensor(SBIT_F32, 4, dims, data);
        ok = CHECK_OK(sbit_quant_forward(quant, NULL, &x, 1, &build_error), build_error);
    }
    ok = ok && CHECK_OK(sbit_quant_calc_qparams(quant, &build_error), build_error);
    free(data);
    return ok;
}

static bool quant_site(sbit_quant *quant, const char *tensor, sbit_site *out)
{
    for (size_t i = 0; i < sbit_quant_site_count(quant); i++) {
        if (sbit_quant_site(quant, i, out) == SBIT_OK && strcmp(out->tensor, tensor) == 0) {
            return true;
        }
    }
    return false;
}

static int quant_count(const sbit_graph *g, const char *op)
{
    int count = 0;
    for (sbit_node_id id = sbit_graph_first(g); id.idx != 0; id = sbit_graph_next(g, id)) {
        count += strcmp(sbit_graph_node(g, id)->op_type, op) == 0;
    }
    return count;
}

/* Largest |float - simulated| / largest |float| of output 0 on one batch. */
static double quant_error(sbit_quant *quant, int64_t channels, int64_t size)
{
    const int64_t dims[4] = {4, channels, size, size};
    const size_t count = (size_t)(4 * channels * size * size);
    float *data = (float *)malloc(count * sizeof *data);
    sbit_rng rng = sbit_rng_seed(3);
    double worst = 0.0, largest = 1e-6;
    for (size_t i = 0; i < count; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    const sbit_tensor x = build_tensor(SBIT_F32, 4, dims, data);
    CHECK_OK(sbit_quant_set_quant(quant, false, false, &build_error), build_error);
    CHECK_OK(sbit_quant_forward(quant, NULL, &x, 1, &build_error), build_error);
    const sbit_tensor *y = &sbit_quant_result(quant, 0)->tensor;
    const size_t n = (size_t)sbit_tensor_count(y);
    float *reference = (float *)malloc(n * sizeof *reference);
    memcpy(reference, y->data, n * sizeof *reference);
    CHECK_OK(sbit_quant_set_quant(quant, true, true, &build_error), build_error);
    CHECK_OK(sbit_quant_forward(quant, NULL, &x, 1, &build_error), build_error);
    const float *q = (const float *)sbit_quant_result(quant, 0)->tensor.data;
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)q[i] - (double)reference[i]));
        largest = fmax(largest, fabs((double)reference[i]));
    }
    free(reference);
    free(data);
    return worst / largest;
}

/* A4.6, A4.10: Relu stays and shares its producer's range; MaxPool and Flatten pass one scale on;
 * the classifier's output stays float. */
TEST(generic_places_inputs_and_outputs)
{
    static const int64_t two[2] = {2, 2}, fc[2] = {64, 10};
    sbit_ctx *ctx = test_ctx();
    sbit_graph *g = quant_graph(ctx);
    const sbit_value_id x = build_input(g, "x", 4, dims_x);
    const sbit_value_id c = quant_conv(g, "conv", x, 3, 4, true);
    const sbit_value_id r = build_node1(g, "Relu", "relu", c);
    const sbit_value_id p = build_node1(g, "MaxPool", "pool", r);
    build_attr_ints(g, p, "kernel_shape", 2, two);
    build_attr_ints(g, p, "strides", 2, two);
    const sbit_value_id f = build_node1(g, "Flatten", "flat", p);
    const sbit_value_id y =
        build_node2(g, "Gemm", "y", f, build_random(g, "fc.weight", 2, fc, 0.2f, 1));
    build_output(g, y);
    sbit_quant *quant = quant_make(g, "generic", NULL);
    sbit_site site, relu;
    if (quant != NULL && quant_feed(quant, 3, 8, 3)) {
        CHECK(quant_site(quant, "x", &site) && quant_site(quant, "relu", &relu));
        CHECK(!quant_site(quant, "conv", &site)); /* folded into the Relu's range */
        CHECK(!quant_site(quant, "y", &site));
        CHECK_EQ_I64(relu.qparams.zero_point[0], 0);
        CHECK(quant_site(quant, "pool", &site) &&
              site.qparams.scale[0] == relu.qparams.scale[0]);
        CHECK(quant_site(quant, "flat", &site) &&
              site.qparams.scale[0] == relu.qparams.scale[0]);
        CHECK(quant_site(quant, "conv.weight", &site));
        CHECK_EQ_I64(site.qparams.axis, 0);
        CHECK_EQ_I64(site.qparams.count, 4);
        CHECK(quant_site(quant, "fc.weight", &site)); /* A4.2: transB = 0 -> axis 1 */
        CHECK_EQ_I64(site.qparams.axis, 1);
        CHECK_EQ_I64(site.qparams.count, 10);
        sbit_graph *q = NULL;
        CHECK_OK(sbit_quant_build(quant, true, true, &q, &build_error), build_error);
        CHECK_EQ_I64(quant_count(q, "Relu"), 1);
        CHECK_EQ_I64(quant_count(q, "QuantizeLinear"), 4);
        CHECK_EQ_I64(quant_count(q, "DequantizeLinear"), 4 + 2 + 1); /* weights, one bias */
        CHECK_OK(sbit_graph_validate(q, &build_error), build_error);
        sbit_graph_destroy(q);
        CHECK(quant_error(quant, 3, 8) < 0.05);
    }
    sbit_quant_destroy(quant);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

TEST(sparsebit_profile_places_inputs_only)
{
    sbit_ctx *ctx = test_ctx();
    sbit_graph *g = quant_graph(ctx);
    const sbit_value_id x = build_input(g, "x", 4, dims_x);
    const sbit_value_id a = build_node1(g, "Relu", "r1", quant_conv(g, "c1", x, 3, 4, false));
    const sbit_value_id b = build_node2(g, "Add", "add", a, quant_conv(g, "c2", a, 4, 4, true));
    build_output(g, build_node1(g, "GlobalAveragePool", "y", b));
    sbit_quant *quant = quant_make(g, "sparsebit", NULL);
    sbit_site site;
    if (quant != NULL && quant_feed(quant, 3, 8, 2)) {
        CHECK(quant_site(quant, "x", &site));
        CHECK(!quant_site(quant, "c1", &site)); /* Conv -> Relu is fused by runtimes */
        CHECK(quant_site(quant, "r1", &site));
        CHECK(quant_site(quant, "add", &site)); /* input of the pool */
        CHECK(!quant_site(quant, "c2", &site)); /* Add only with QADD */
        sbit_graph *q = NULL;
        CHECK_OK(sbit_quant_build(quant, true, true, &q, &build_error), build_error);
        CHECK_EQ_I64(quant_count(q, "QuantizeLinear"), 3);
        CHECK_EQ_I64(quant_count(q, "DequantizeLinear"), 3 + 2); /* bias stays float */
        sbit_graph_destroy(q);
    }
    sbit_quant_destroy(quant);
    static const char *qadd[][2] = {{"A.QADD.ENABLE_QUANT", "true"}, {NULL, NULL}};
    quant = quant_make(g, "sparsebit", qadd);
    CHECK(quant != NULL && quant_site(quant, "c2", &site));
    sbit_quant_destroy(quant);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

/* A4.1: ConvTranspose weights [in, out/groups, ...]: axis 1. */
TEST(conv_transpose_scales_on_axis_1)
{
    static const int64_t dims[4] = {3, 5, 3, 3};
    for (int profile = 0; profile < 2; profile++) {
        sbit_ctx *ctx = test_ctx();
        sbit_graph *g = quant_graph(ctx);
        const sbit_value_id x = build_input(g, "x", 4, dims_x);
        const sbit_value_id w = build_random(g, "up.weight", 4, dims, 0.3f, 4);
        const sbit_value_id b = build_random(g, "up.bias", 1, dims + 1, 0.3f, 5);
        const sbit_value_id y = build_node3(g, "ConvTranspose", "up", x, w, b);
        build_output(g, build_node1(g, "GlobalAveragePool", "y", y));
        sbit_quant *quant = quant_make(g, profile == 0 ? "generic" : "sparsebit", NULL);
        sbit_site site;
        if (quant != NULL && quant_feed(quant, 3, 8, 1)) {
            CHECK(quant_site(quant, "up.weight", &site));
            CHECK_EQ_I64(site.qparams.axis, 1);
            CHECK_EQ_I64(site.qparams.count, 5);
            CHECK(quant_error(quant, 3, 8) < 0.1);
        }
        sbit_quant_destroy(quant);
        sbit_graph_destroy(g);
        sbit_ctx_destroy(ctx);
    }
}

/* A4.3: weights ~1e-7 with a real bias: the scale is raised so that the bias fits in int32. A4.5: a
 * channel of zeros. The outputs must still carry the bias. */
TEST(tiny_weights_do_not_overflow_the_bias)
{
    static const float w[8] = {1e-7f, -5e-8f, 2e-8f, 1e-7f, 0.0f, 0.0f, 0.0f, 0.0f};
    static const float b[2] = {5.0f, -4.5f};
    static const int64_t dims_w[2] = {4, 2}, dims[2] = {-1, 4}, out[1] = {2};
    sbit_ctx *ctx = test_ctx();
    sbit_graph *g = quant_graph(ctx);
    const sbit_value_id x = build_input(g, "x", 2, dims);
    const sbit_value_id y = build_node3(g, "Gemm", "y", x, build_const(g, "w", 2, dims_w, w),
                                        build_const(g, "b", 1, out, b));
    build_output(g, y);
    sbit_quant *quant = quant_make(g, "generic", NULL);
    static const float data[4] = {64.0f, -63.5f, 1.0f, 0.5f};
    static const int64_t one[2] = {1, 4};
    const sbit_tensor t = build_tensor(SBIT_F32, 2, one, data);
    if (quant != NULL) {
        CHECK_OK(sbit_quant_prepare_calibration(quant, &build_error), build_error);
        CHECK_OK(sbit_quant_forward(quant, NULL, &t, 1, &build_error), build_error);
        CHECK_OK(sbit_quant_calc_qparams(quant, &build_error), build_error);
        CHECK_OK(sbit_quant_set_quant(quant, true, true, &build_error), build_error);
        CHECK_OK(sbit_quant_forward(quant, NULL, &t, 1, &build_error), build_error);
        const float *q = (const float *)sbit_quant_result(quant, 0)->tensor.data;
        CHECK_NEAR(q[0], 5.0, 1e-3);
        CHECK_NEAR(q[1], -4.5, 1e-3);
    }
    sbit_quant_destroy(quant);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

/* A5.1: a Concat of boxes (0..640) and scores (0..1) does not share one scale. */
TEST(concat_shares_only_alike_ranges)
{
    for (int wide = 0; wide < 2; wide++) {
        sbit_ctx *ctx = test_ctx();
        sbit_graph *g = quant_graph(ctx);
        const sbit_value_id x = build_input(g, "x", 4, dims_x);
        const sbit_value_id a = build_node1(g, "Relu", "a", quant_conv(g, "ca", x, 3, 4, false));
        const sbit_value_id c = quant_conv(g, "cb", x, 3, 4, false);
        static const float factor[1] = {640.0f};
        const sbit_value_id scaled =
            wide ? build_node2(g, "Mul", "scaled", c, build_const(g, "k", 0, NULL, factor)) : c;
        const sbit_value_id b = build_node1(g, "Relu", "b", scaled);
        const sbit_value_id cat = build_node2(g, "Concat", "cat", a, b);
        build_attr_int(g, cat, "axis", 1);
        build_output(g, quant_conv(g, "head", cat, 8, 2, false));
        static const char *off[][2] = {{"SCHEDULE.FUSE_BN", "true"}, {NULL, NULL}};
        sbit_quant *quant = quant_make(g, "generic", off);
        sbit_site sa, sb;
        if (quant != NULL && quant_feed(quant, 3, 8, 2) && CHECK(quant_site(quant, "a", &sa)) &&
            CHECK(quant_site(quant, "b", &sb))) {
            CHECK((sa.qparams.scale[0] == sb.qparams.scale[0]) == (wide == 0));
        }
        sbit_quant_destroy(quant);
        sbit_graph_destroy(g);
        sbit_ctx_destroy(ctx);
    }
}

/* True widths: 4-bit activations clip at 15 in the exported graph as in the simulation; the error
 * grows as the width falls. */
TEST(bit_widths_clip_and_order)
{
    double last = 0.0;
    static const char *const widths[] = {"16", "8", "6", "4", "2"};
    for (size_t i = 0; i < 5; i++) {
        const char *set[][2] = {{"A.QUANTIZER.BIT", widths[i]}, {NULL, NULL}};
        sbit_ctx *ctx = test_ctx();
        sbit_graph *g = quant_graph(ctx);
        const sbit_value_id x = build_input(g, "x", 4, dims_x);
        const sbit_value_id c = quant_conv(g, "c", x, 3, 4, false);
        build_output(g, quant_conv(g, "d", build_node1(g, "Relu", "r", c), 4, 2, false));
        sbit_quant *quant = quant_make(g, "generic", set);
        if (quant != NULL && quant_feed(quant, 3, 8, 2)) {
            sbit_graph *q = NULL;
            CHECK_OK(sbit_quant_build(quant, true, true, &q, &build_error), build_error);
            CHECK_EQ_I64(quant_count(q, "Clip"), i >= 2 ? 2 : 0);
            CHECK_EQ_I64(sbit_graph_opset(q, ""), i == 0 ? 21 : 13);
            sbit_graph_destroy(q);
            const double error = quant_error(quant, 3, 8);
            CHECK_MSG(error > last, "%s bits: %g, wider: %g", widths[i], error, last);
            last = error;
        }
        sbit_quant_destroy(quant);
        sbit_graph_destroy(g);
        sbit_ctx_destroy(ctx);
    }
}

/* A1.9: names that tools like to use are taken already. A4.15: one weight in two layers is stored
 * once. */
TEST(names_do_not_collide_and_weights_are_shared)
{
    static const int64_t dims[4] = {3, 3, 1, 1};
    sbit_ctx *ctx = test_ctx();
    sbit_graph *g = quant_graph(ctx);
    const sbit_value_id x = build_input(g, "x", 4, dims_x);
    const sbit_value_id w = build_random(g, "w", 4, dims, 0.5f, 2);
    const sbit_value_id a = build_node2(g, "Conv", "x_quantized", x, w);
    const sbit_value_id b = build_node2(g, "Conv", "w_scale", a, w);
    build_output(g, build_node1(g, "GlobalAveragePool", "x_zero_point", b));
    sbit_quant *quant = quant_make(g, "generic", NULL);
    if (quant != NULL && quant_feed(quant, 3, 8, 1)) {
        sbit_graph *q = NULL;
        CHECK_OK(sbit_quant_build(quant, true, true, &q, &build_error), build_error);
        CHECK_OK(sbit_graph_validate(q, &build_error), build_error);
        CHECK(sbit_graph_find_value(q, "w").idx == 0); /* the float weight is gone */
        int i8 = 0;
        for (uint32_t i = 1; i < sbit_graph_value_limit(q); i++) {
            const sbit_value_id id = {i};
            i8 += sbit_graph_value_alive(q, id) && sbit_graph_value(q, id)->is_constant &&
                  sbit_graph_value(q, id)->constant.dtype == SBIT_I8 &&
                  sbit_graph_value(q, id)->constant.rank == 4;
        }
        CHECK_EQ_I64(i8, 1);
        CHECK(quant_error(quant, 3, 8) < 0.05);
        sbit_graph_destroy(q);
    }
    sbit_quant_destroy(quant);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

TEST(steps_in_the_wrong_order_are_refused)
{
    sbit_ctx *ctx = test_ctx();
    sbit_graph *g = quant_graph(ctx);
    const sbit_value_id x = build_input(g, "x", 4, dims_x);
    build_output(g, quant_conv(g, "c", x, 3, 4, false));
    sbit_quant *quant = quant_make(g, "generic", NULL);
    sbit_graph *q = NULL;
    if (quant != NULL) {
        CHECK_STATUS(sbit_quant_calc_qparams(quant, &build_error), SBIT_ERR_STATE, build_error);
        CHECK_STATUS(sbit_quant_set_quant(quant, true, true, &build_error), SBIT_ERR_STATE,
                     build_error);
        CHECK_STATUS(sbit_quant_build(quant, true, true, &q, &build_error), SBIT_ERR_STATE,
                     build_error);
        CHECK_OK(sbit_quant_prepare_calibration(quant, &build_error), build_error);
        CHECK_STATUS(sbit_quant_calc_qparams(quant, &build_error), SBIT_ERR_STATE, build_error);
        CHECK_CONTAINS(build_error.message, "calibration set is empty");
        static float data[3 * 64];
        static const int64_t dims[4] = {1, 3, 8, 8}, bad[4] = {1, 4, 8, 6};
        data[5] = (float)NAN;
        sbit_tensor t = build_tensor(SBIT_F32, 4, bad, data);
        CHECK_STATUS(sbit_quant_forward(quant, NULL, &t, 1, &build_error), SBIT_ERR_SHAPE,
                     build_error);
        t = build_tensor(SBIT_F32, 4, dims, data);
        CHECK_STATUS(sbit_quant_forward(quant, NULL, &t, 1, &build_error), SBIT_ERR_NUMERIC,
                     build_error);
        CHECK_CONTAINS(build_error.message, "'x'");
    }
    sbit_quant_destroy(quant);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

/* ---- rows from outside: an observer of the user's, found by name in the configuration */

static size_t half_state_bytes(const sbit_observer_site *site)
{
    return sizeof(float) * (size_t)site->channels;
}

static sbit_status half_init(void *state, const sbit_observer_site *site, sbit_error *error)
{
    (void)state;
    (void)site;
    (void)error;
    return SBIT_OK;
}

static sbit_status half_observe(void *state, const sbit_observer_site *site,
                                const sbit_observation *x, sbit_error *error)
{
    float *most = (float *)state;
    (void)site;
    (void)error;
    for (int64_t i = 0; i < x->outer * x->inner; i++) {
        most[0] = fabsf(x->data[i]) > most[0] ? fabsf(x->data[i]) : most[0];
    }
    return SBIT_OK;
}

static sbit_status half_range(const void *state, const sbit_observer_site *site, float *min,
                              float *max, sbit_error *error)
{
    const float most = *(const float *)state;
    const float factor = (float)sbit_options_float(site->options, "OBSERVER.HALF.FACTOR");
    (void)error;
    *min = -most * factor;
    *max = most * factor;
    return SBIT_OK;
}

static const sbit_key half_keys[] = {
    {"HALF.FACTOR", SBIT_KEY_FLOAT, "0.5", 0.0, 1.0, NULL, "part of the range to keep"},
};
static const sbit_observer_row half_row = {
    "half", "half the range", SBIT_TARGET_FEATURE, half_keys, 1, half_state_bytes, half_init,
    half_observe, NULL, half_range, NULL, NULL, NULL,
};

TEST(observer_registered_from_outside)
{
    static const char *set[][2] = {
        {"A.OBSERVER.TYPE", "half"}, {"A.OBSERVER.HALF.FACTOR", "0.25"}, {NULL, NULL}};
    sbit_ctx *ctx = test_ctx();
    CHECK_OK(sbit_register_observer(ctx, &half_row, &build_error), build_error);
    CHECK_STATUS(sbit_register_observer(ctx, &half_row, &build_error), SBIT_ERR_DUPLICATE,
                 build_error);
    sbit_graph *g = quant_graph(ctx);
    build_output(g, quant_conv(g, "c", build_input(g, "x", 4, dims_x), 3, 4, false));
    sbit_quant *quant = quant_make(g, "generic", set);
    sbit_site site;
    if (quant != NULL && quant_feed(quant, 3, 8, 2) && CHECK(quant_site(quant, "x", &site))) {
        CHECK_STR(site.observer, "half");
        CHECK_NEAR(site.max, -site.min, 0.0);
        CHECK(site.max > 0.5f && site.max < 1.5f); /* a quarter of some 4 sigma */
    }
    sbit_quant_destroy(quant);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}
