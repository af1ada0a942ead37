/* test_quant.c: ranges to scales, placement, the exported graph. Blocks of field-reports.md are
 * named where a test answers one. */
#include "../sparsebit.h"
#include "test.h"
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
        {-1e-30f, 1e-38f, true, -128, 127, 2e-30 / 255.0, 0},
        {-1e-37f, 0.0f, true, -128, 127, 1.17549435e-38, 0}, /* the least normal number */
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
                                         cases[i].qmin, cases[i].qmax, &scale, &zero_point, &error),
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
        CHECK_STATUS(
            sbit_qparams_from_range("x", 0.0f, bad[i], false, 0, 255, &scale, &zero_point, &error),
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
        CHECK(scale >= 1.17549435e-38f && zp >= qmin && zp <= qmax);
        CHECK(hi <= ((double)(qmax - zp) + (symmetric ? 1.0 : 0.5001)) * step * 1.000001);
        CHECK(lo >= ((double)(qmin - zp) - 0.5001) * step * 1.000001);
        if (!symmetric) { /* and no wider than needed */
            CHECK_NEAR(step * (double)(qmax - qmin), hi - lo, (hi - lo) * 1e-6);
        }
    }
}

/* ---- graphs: images [N,3,8,8], 3x3 convolutions with pads 1 */

#define IMAGE "N,3,8,8"
#define IMAGE_COUNT (4 * 3 * 8 * 8)

static sbit_value_id quant_conv(build *b, const char *name, sbit_value_id x, int in, int out,
                                bool bias)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attr = build_ints("pads", pads, 4);
    char text[64], dims[64];
    sbit_value_id inputs[3] = {x, {0}, {0}};
    snprintf(text, sizeof text, "%s.weight", name);
    snprintf(dims, sizeof dims, "%d,%d,3,3", out, in);
    inputs[1] = build_weights(b, text, dims, (uint64_t)(in * 100 + out + name[0]));
    snprintf(text, sizeof text, "%s.bias", name);
    snprintf(dims, sizeof dims, "%d", out);
    inputs[2] = bias ? build_weights(b, text, dims, 9) : inputs[2];
    return build_node(b, "Conv", name, inputs, bias ? 3 : 2, &attr, 1);
}

static sbit_quant *quant_make(build *b, const char *profile, const char *set[][2])
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

static void quant_images(float *data, uint64_t seed)
{
    sbit_rng rng = sbit_rng_seed(seed);
    for (int i = 0; i < IMAGE_COUNT; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
}

/* Calibrates on `batches` batches of four random images. */
static bool quant_feed(build *b, sbit_quant *quant, int batches)
{
    static float data[IMAGE_COUNT];
    if (quant == NULL) {
        return false;
    }
    build_do(b, sbit_quant_prepare_calibration(quant, &b->error), "prepare");
    for (int i = 0; i < batches && !b->failed; i++) {
        quant_images(data, (uint64_t)i + 3);
        const sbit_tensor x = build_tensor(SBIT_F32, "4,3,8,8", data);
        build_do(b, sbit_quant_forward(quant, NULL, &x, 1, &b->error), "forward");
    }
    return !b->failed &&
           build_do(b, sbit_quant_calc_qparams(quant, false, false, false, &b->error), "calc");
}

static bool quant_site(sbit_quant *quant, const char *tensor, sbit_site *out)
{
    for (size_t i = 0; quant != NULL && i < sbit_quant_site_count(quant); i++) {
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

/* Output 0 for one batch in a mode; free() it. */
static float *quant_output(build *b, sbit_quant *quant, bool quantized, size_t *count)
{
    static float data[IMAGE_COUNT];
    quant_images(data, 3);
    const sbit_tensor x = build_tensor(SBIT_F32, "4,3,8,8", data);
    build_do(b, sbit_quant_set_quant(quant, quantized, quantized, &b->error), "mode");
    if (b->failed || !build_do(b, sbit_quant_forward(quant, NULL, &x, 1, &b->error), "forward")) {
        *count = 0;
        return NULL;
    }
    const sbit_tensor *y = &sbit_quant_output(quant, 0)->tensor;
    *count = (size_t)sbit_tensor_count(y);
    float *copy = (float *)malloc(*count * sizeof *copy);
    memcpy(copy, y->data, *count * sizeof *copy);
    return copy;
}

/* Largest |float - simulated| / largest |float| of output 0. */
static double quant_error(build *b, sbit_quant *quant)
{
    size_t n = 0, m = 0;
    double worst = 0.0, largest = 1e-6;
    float *reference = quant_output(b, quant, false, &n);
    float *simulated = quant_output(b, quant, true, &m);
    for (size_t i = 0; i < n && n == m; i++) {
        worst = fmax(worst, fabs((double)simulated[i] - (double)reference[i]));
        largest = fmax(largest, fabs((double)reference[i]));
    }
    CHECK(n > 0 && n == m && worst > 0.0);
    free(reference);
    free(simulated);
    return worst / largest;
}

static sbit_graph *quant_built(build *b, sbit_quant *quant)
{
    sbit_graph *q = NULL;
    build_do(b, sbit_quant_build(quant, NULL, &q, &b->error), "build");
    if (!b->failed) {
        build_do(b, sbit_graph_validate(q, &b->error), "validate");
    }
    return q;
}

/* A4.6, A4.10, A4.2: Relu stays and carries the range; MaxPool and Flatten pass one scale on; a
 * Gemm without transB has its channels on axis 1; the classifier's output stays float. */
TEST(generic_places_inputs_and_outputs)
{
    static const int64_t two[2] = {2, 2};
    const sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
    build b;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
    const sbit_value_id r = build_unary(&b, "Relu", "relu", quant_conv(&b, "conv", x, 3, 4, true));
    const sbit_value_id p = build_node(&b, "MaxPool", "pool", &r, 1, pool, 2);
    const sbit_value_id f = build_unary(&b, "Flatten", "flat", p);
    build_output(&b, build_binary(&b, "Gemm", "y", f, build_weights(&b, "fc.weight", "64,10", 1)));
    sbit_quant *quant = quant_make(&b, "generic", NULL);
    sbit_site site, relu;
    if (quant_feed(&b, quant, 3) && CHECK(quant_site(quant, "relu", &relu))) {
        CHECK(quant_site(quant, "x", &site));
        CHECK(!quant_site(quant, "conv", &site)); /* folded into the Relu's range */
        CHECK(!quant_site(quant, "y", &site));
        CHECK_EQ_I64(relu.qparams.zero_point[0], 0);
        CHECK(quant_site(quant, "pool", &site));
        CHECK_NEAR(site.qparams.scale[0], relu.qparams.scale[0], 0.0);
        CHECK(quant_site(quant, "flat", &site));
        CHECK_NEAR(site.qparams.scale[0], relu.qparams.scale[0], 0.0);
        CHECK(quant_site(quant, "conv.weight", &site));
        CHECK_EQ_I64(site.qparams.axis, 0);
        CHECK_EQ_I64(site.qparams.grid.parts.count, 4);
        CHECK(quant_site(quant, "fc.weight", &site));
        CHECK_EQ_I64(site.qparams.axis, 1);
        CHECK_EQ_I64(site.qparams.grid.parts.count, 10);
        sbit_graph *q = quant_built(&b, quant);
        if (q != NULL) {
            CHECK_EQ_I64(quant_count(q, "Relu"), 1);
            CHECK_EQ_I64(quant_count(q, "QuantizeLinear"), 4);
            CHECK_EQ_I64(quant_count(q, "DequantizeLinear"), 4 + 2 + 1); /* weights, one bias */
        }
        sbit_graph_destroy(q);
        CHECK(quant_error(&b, quant) < 0.05);
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

TEST(sparsebit_profile_places_inputs_only)
{
    static const char *qadd[][2] = {{"A.QADD.ENABLE_QUANT", "true"}, {NULL, NULL}};
    build b;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
    const sbit_value_id r = build_unary(&b, "Relu", "r1", quant_conv(&b, "c1", x, 3, 4, false));
    const sbit_value_id add =
        build_binary(&b, "Add", "add", r, quant_conv(&b, "c2", r, 4, 4, true));
    build_output(&b, build_unary(&b, "GlobalAveragePool", "y", add));
    sbit_quant *quant = quant_make(&b, "sparsebit", NULL);
    sbit_site site;
    if (quant_feed(&b, quant, 2)) {
        CHECK(quant_site(quant, "x", &site));
        CHECK(!quant_site(quant, "c1", &site)); /* Conv -> Relu is fused by runtimes */
        CHECK(quant_site(quant, "r1", &site));
        CHECK(quant_site(quant, "add", &site)); /* input of the pool */
        CHECK(!quant_site(quant, "c2", &site)); /* Add only with QADD */
        sbit_graph *q = quant_built(&b, quant);
        if (q != NULL) {
            CHECK_EQ_I64(quant_count(q, "QuantizeLinear"), 3);
            CHECK_EQ_I64(quant_count(q, "DequantizeLinear"), 3 + 2); /* bias stays float */
        }
        sbit_graph_destroy(q);
    }
    sbit_quant_destroy(quant);
    quant = quant_make(&b, "sparsebit", qadd);
    CHECK(quant_site(quant, "c2", &site));
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* A4.1: ConvTranspose weights [in, out/groups, ...]: axis 1. */
TEST(conv_transpose_scales_on_axis_1)
{
    for (int profile = 0; profile < 2; profile++) {
        build b;
        build_begin(&b, 13);
        sbit_value_id inputs[3];
        inputs[0] = build_input(&b, "x", SBIT_F32, IMAGE);
        inputs[1] = build_weights(&b, "up.weight", "3,5,3,3", 4);
        inputs[2] = build_weights(&b, "up.bias", "5", 5);
        const sbit_value_id y = build_node(&b, "ConvTranspose", "up", inputs, 3, NULL, 0);
        build_output(&b, build_unary(&b, "GlobalAveragePool", "y", y));
        sbit_quant *quant = quant_make(&b, profile == 0 ? "generic" : "sparsebit", NULL);
        sbit_site site;
        if (quant_feed(&b, quant, 1) && CHECK(quant_site(quant, "up.weight", &site))) {
            CHECK_EQ_I64(site.qparams.axis, 1);
            CHECK_EQ_I64(site.qparams.grid.parts.count, 5);
            CHECK(quant_error(&b, quant) < 0.1);
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* A4.3: weights ~1e-7 with a real bias: the scale is raised so that the bias fits in int32. A4.5: a
 * channel of zeros. The outputs must still carry the bias. */
TEST(tiny_weights_do_not_overflow_the_bias)
{
    static const float w[8] = {1e-7f, 0.0f, -5e-8f, 0.0f, 2e-8f, 0.0f, 1e-7f, 0.0f};
    static const float bias[2] = {5.0f, -4.5f};
    static const float data[4] = {64.0f, -63.5f, 1.0f, 0.5f};
    build b;
    build_begin(&b, 13);
    sbit_value_id inputs[3];
    inputs[0] = build_input(&b, "x", SBIT_F32, "N,4");
    inputs[1] = build_constant(&b, "w", SBIT_F32, "4,2", w);
    inputs[2] = build_constant(&b, "b", SBIT_F32, "2", bias);
    build_output(&b, build_node(&b, "Gemm", "y", inputs, 3, NULL, 0));
    sbit_quant *quant = quant_make(&b, "generic", NULL);
    const sbit_tensor t = build_tensor(SBIT_F32, "1,4", data);
    if (quant != NULL) {
        build_do(&b, sbit_quant_prepare_calibration(quant, &b.error), "prepare");
        build_do(&b, sbit_quant_forward(quant, NULL, &t, 1, &b.error), "forward");
        build_do(&b, sbit_quant_calc_qparams(quant, false, false, false, &b.error), "calc");
        build_do(&b, sbit_quant_set_quant(quant, true, true, &b.error), "mode");
        build_do(&b, sbit_quant_forward(quant, NULL, &t, 1, &b.error), "forward");
        const float *y = (const float *)sbit_quant_output(quant, 0)->tensor.data;
        CHECK_NEAR(y[0], 5.0, 1e-3);
        CHECK_NEAR(y[1], -4.5, 1e-3);
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* A5.1: a Concat of boxes (0..640) and scores (0..1) does not share one scale; alike ranges do, but
 * not in Sparsebit's own placement. The inputs of Add do if that is wished for. */
TEST(concat_and_add_share_only_alike_ranges)
{
    static const struct {
        const char *profile, *share, *op;
        float factor; /* between the two ranges */
        bool shared;
    } cases[] = {
        {"generic", "concat", "Concat", 2.0f, true},
        {"generic", "concat", "Concat", 640.0f, false},
        {"generic", "none", "Concat", 2.0f, false},
        {"sparsebit", "concat", "Concat", 2.0f, true}, /* asked for */
        {"sparsebit", NULL, "Concat", 2.0f, false},
        {"tensorrt", "concat", "Concat", 2.0f, true},
        {"generic", "concat", "Add", 2.0f, false},
        {"generic", "concat_add", "Add", 2.0f, true},
        {"generic", "concat_add", "Add", 640.0f, false},
        {"generic", "concat_add", "Concat", 2.0f, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sbit_attr axis = build_int("axis", 1);
        build b;
        build_begin(&b, 13);
        sbit_value_id in[2];
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
        sbit_value_id c = quant_conv(&b, "cb", x, 3, 4, false);
        c = build_binary(&b, "Mul", "scaled", c,
                         build_constant(&b, "k", SBIT_F32, "", &cases[i].factor));
        in[0] = build_unary(&b, "Relu", "a", quant_conv(&b, "ca", x, 3, 4, false));
        in[1] = build_unary(&b, "Relu", "b", c);
        const bool add = strcmp(cases[i].op, "Add") == 0;
        const sbit_value_id both =
            build_node(&b, cases[i].op, "both", in, 2, add ? NULL : &axis, add ? 0 : 1);
        build_output(&b, quant_conv(&b, "head", both, add ? 4 : 8, 2, false));
        build_output(&b, quant_conv(&b, "side", in[0], 4, 2, false)); /* sites in any placement */
        build_output(&b, quant_conv(&b, "other", in[1], 4, 2, false));
        const char *set[2][2] = {{"EXPORT.SHARE_SCALE", cases[i].share}, {NULL, NULL}};
        set[0][0] = cases[i].share != NULL ? set[0][0] : NULL;
        sbit_quant *quant = quant_make(&b, cases[i].profile, set);
        sbit_site sa, sb;
        if (quant_feed(&b, quant, 2) && CHECK(quant_site(quant, "a", &sa)) &&
            CHECK(quant_site(quant, "b", &sb))) {
            const bool same = fabsf(sa.qparams.scale[0] - sb.qparams.scale[0]) <= 0.0f;
            CHECK_MSG(same == cases[i].shared, "%s, %s, %s: %g and %g", cases[i].profile,
                      cases[i].share != NULL ? cases[i].share : "default", cases[i].op,
                      (double)sa.qparams.scale[0], (double)sb.qparams.scale[0]);
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* True widths: narrow activations are clipped in the exported graph; the error grows as the width
 * falls. */
TEST(bit_widths_clip_and_order)
{
    double last = 0.0;
    static const char *const widths[] = {"16", "8", "6", "4", "2"};
    for (size_t i = 0; i < 5; i++) {
        const char *set[][2] = {
            {"A.QUANTIZER.BIT", widths[i]}, {"W.QUANTIZER.BIT", "16"}, {NULL, NULL}};
        build b;
        build_begin(&b, 13);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
        const sbit_value_id r = build_unary(&b, "Relu", "r", quant_conv(&b, "c", x, 3, 4, false));
        build_output(&b, quant_conv(&b, "d", r, 4, 2, false));
        sbit_quant *quant = quant_make(&b, "generic", set);
        if (quant_feed(&b, quant, 2)) {
            sbit_graph *q = quant_built(&b, quant);
            if (q != NULL) {
                CHECK_EQ_I64(quant_count(q, "Clip"), i >= 2 ? 2 : 0);
                CHECK_EQ_I64(sbit_graph_opset(q, ""), 21); /* 16-bit weights */
            }
            sbit_graph_destroy(q);
            const double error = quant_error(&b, quant);
            CHECK_MSG(error > last, "%s bits: %g, wider: %g", widths[i], error, last);
            last = error;
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* EXPORT.INT4: packed types, a quarter of the bytes of int8 pairs, the same numbers as with Clip.
 */
TEST(int4_types_hold_the_same_numbers)
{
    size_t n[2] = {0, 0};
    float *y[2] = {NULL, NULL};
    for (int int4 = 0; int4 < 2; int4++) {
        const char *set[][2] = {{"A.QUANTIZER.BIT", "4"},
                                {"W.QUANTIZER.BIT", "4"},
                                {"EXPORT.INT4", int4 ? "true" : "false"},
                                {NULL, NULL}};
        build b;
        build_begin(&b, 13);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
        const sbit_value_id r = build_unary(&b, "Relu", "r", quant_conv(&b, "c", x, 3, 4, false));
        build_output(&b, quant_conv(&b, "d", r, 4, 2, true));
        sbit_quant *quant = quant_make(&b, "generic", set);
        if (quant_feed(&b, quant, 2)) {
            y[int4] = quant_output(&b, quant, true, &n[int4]);
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
    if (CHECK(n[0] > 0 && n[0] == n[1])) {
        CHECK_MEM(y[0], y[1], n[0] * sizeof(float));
    }
    free(y[0]);
    free(y[1]);
}

/* A1.9: names that tools like to use are taken already. A4.15: one weight in two layers is stored
 * once. */
TEST(names_do_not_collide_and_weights_are_shared)
{
    build b;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
    const sbit_value_id w = build_weights(&b, "w", "3,3,1,1", 2);
    const sbit_value_id c = build_binary(&b, "Conv", "x_quantized", x, w);
    const sbit_value_id d = build_binary(&b, "Conv", "w_scale", c, w);
    build_output(&b, build_unary(&b, "GlobalAveragePool", "x_zero_point", d));
    sbit_quant *quant = quant_make(&b, "generic", NULL);
    if (quant_feed(&b, quant, 1)) {
        sbit_graph *q = quant_built(&b, quant);
        int stored = 0;
        CHECK(sbit_graph_find_value(q, "w").idx == 0); /* the float weight is gone */
        for (uint32_t i = 1; i < sbit_graph_value_limit(q); i++) {
            const sbit_value_id id = {i};
            stored += sbit_graph_value_alive(q, id) && sbit_graph_value(q, id)->is_constant &&
                      sbit_graph_value(q, id)->constant.dtype == SBIT_I8 &&
                      sbit_graph_value(q, id)->constant.rank == 4;
        }
        CHECK_EQ_I64(stored, 1);
        CHECK(quant_error(&b, quant) < 0.05);
        sbit_graph_destroy(q);
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

TEST(specific_overrides_and_warns)
{
    static const char *set[][2] = {
        {"W.SPECIFIC", "[{\"c\": [QUANTIZER.DISABLE, true], \"nothing*\": [QUANTIZER.BIT, 4]}]"},
        {"SKIP_TRACE_MODULES", "[d]"},
        {NULL, NULL}};
    build b;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
    const sbit_value_id r = build_unary(&b, "Relu", "r", quant_conv(&b, "c", x, 3, 4, false));
    build_output(&b, quant_conv(&b, "e", quant_conv(&b, "d", r, 4, 4, false), 4, 2, false));
    sbit_quant *quant = quant_make(&b, "sparsebit", set);
    sbit_site site;
    CHECK(quant_site(quant, "c.weight", &site) && !site.enabled);
    CHECK(!quant_site(quant, "d.weight", &site)); /* skipped */
    CHECK(quant_site(quant, "e.weight", &site) && site.enabled);
    CHECK_CONTAINS(b.warning, "'nothing*' matches no");
    sbit_quant_destroy(quant);
    build_end(&b);
}

TEST(steps_in_the_wrong_order_are_refused)
{
    static float data[IMAGE_COUNT];
    build b;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
    build_output(&b, quant_conv(&b, "c", x, 3, 4, false));
    sbit_quant *quant = quant_make(&b, "generic", NULL);
    sbit_graph *q = NULL;
    if (quant != NULL) {
        CHECK_STATUS(sbit_quant_calc_qparams(quant, false, false, false, &b.error), SBIT_ERR_STATE,
                     b.error);
        CHECK_STATUS(sbit_quant_set_quant(quant, true, true, &b.error), SBIT_ERR_STATE, b.error);
        CHECK_STATUS(sbit_quant_build(quant, NULL, &q, &b.error), SBIT_ERR_STATE, b.error);
        CHECK_OK(sbit_quant_prepare_calibration(quant, &b.error), b.error);
        CHECK_STATUS(sbit_quant_calc_qparams(quant, false, false, false, &b.error), SBIT_ERR_STATE,
                     b.error);
        CHECK_CONTAINS(b.error.message, "calibration set is empty");
        data[5] = (float)NAN;
        sbit_tensor t = build_tensor(SBIT_F32, "1,4,6,8", data);
        CHECK_STATUS(sbit_quant_forward(quant, NULL, &t, 1, &b.error), SBIT_ERR_SHAPE, b.error);
        t = build_tensor(SBIT_F32, "1,3,8,8", data);
        CHECK_STATUS(sbit_quant_forward(quant, NULL, &t, 1, &b.error), SBIT_ERR_NUMERIC, b.error);
        CHECK_CONTAINS(b.error.message, "'x'");
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* ---- rows from outside: an observer of the user's, found by name in the configuration */

static size_t half_state_bytes(const sbit_observer_call *site)
{
    return sizeof(float) * (size_t)site->grid->parts.count;
}

static sbit_status half_init(void *state, const sbit_observer_call *site, sbit_error *error)
{
    (void)state;
    (void)site;
    (void)error;
    return SBIT_OK;
}

static sbit_status half_observe(void *state, const sbit_observer_call *site,
                                const sbit_observation *x, sbit_error *error)
{
    float *most = (float *)state;
    (void)site;
    (void)error;
    for (int64_t i = 0; i < sbit_parts_elements(&x->parts); i++) {
        most[0] = fabsf(x->data[i]) > most[0] ? fabsf(x->data[i]) : most[0];
    }
    return SBIT_OK;
}

static sbit_status half_range(const void *state, const sbit_observer_call *site, float *min,
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
    {"half", "half the range", SBIT_TARGET_ACTIVATION, half_keys, 1},
    half_state_bytes,
    half_init,
    half_observe,
    NULL,
    NULL,
    half_range,
    NULL,
    NULL,
    NULL,
};

TEST(observer_registered_from_outside)
{
    static const char *set[][2] = {
        {"A.OBSERVER.TYPE", "half"}, {"A.OBSERVER.HALF.FACTOR", "0.25"}, {NULL, NULL}};
    build b;
    build_begin(&b, 13);
    build_do(&b, sbit_observer_register(b.ctx, &half_row, &b.error), "register");
    CHECK_STATUS(sbit_observer_register(b.ctx, &half_row, &b.error), SBIT_ERR_DUPLICATE, b.error);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, IMAGE);
    build_output(&b, quant_conv(&b, "c", x, 3, 4, false));
    sbit_quant *quant = quant_make(&b, "generic", set);
    sbit_site site;
    if (quant_feed(&b, quant, 2) && CHECK(quant_site(quant, "x", &site))) {
        CHECK_STR(site.observer, "half");
        CHECK_NEAR(site.max, -site.min, 0.0);
        CHECK(site.max > 0.5f && site.max < 1.5f); /* a quarter of some 4 sigma */
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* Each row brings keys of its own; none is dropped, however many there are. */
TEST(a_hundred_observers_keep_their_keys)
{
    enum {
        ROWS = 100
    };
    static sbit_observer_row rows[ROWS];
    static sbit_key keys[ROWS];
    static char names[ROWS][16], paths[ROWS][40];
    build b;
    sbit_qconfig *config = NULL;
    build_begin(&b, 13);
    for (int i = 0; i < ROWS; i++) {
        snprintf(names[i], sizeof names[i], "half%d", i);
        snprintf(paths[i], sizeof paths[i], "A.OBSERVER.HALF%d.FACTOR", i);
        keys[i] = half_keys[0];
        keys[i].path = paths[i] + strlen("A.OBSERVER.");
        rows[i] = half_row;
        rows[i].head.name = names[i];
        rows[i].head.keys = &keys[i];
        build_do(&b, sbit_observer_register(b.ctx, &rows[i], &b.error), names[i]);
    }
    build_do(&b, sbit_qconfig_create(b.ctx, "generic", &config, &b.error), "config");
    for (int i = 0; i < ROWS; i++) {
        build_do(&b, sbit_qconfig_set(config, paths[i], "0.25", &b.error), paths[i]);
    }
    sbit_qconfig_destroy(config);
    build_end(&b);
}

static sbit_status quant_cosh(sbit_graph *graph, const sbit_simplify_desc *desc, int64_t *changes,
                              sbit_error *error)
{
    (void)desc;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        if (strcmp(sbit_graph_node(graph, id)->op_type, "Sinh") == 0) {
            const sbit_status status = sbit_graph_set_op(graph, id, "", "Cosh", error);
            if (status != SBIT_OK) {
                return status;
            }
            ++*changes;
        }
    }
    return SBIT_OK;
}

/* A pass that a user registers has a switch, as Sparsebit's fusions have: absent is true. */
TEST(passes_of_users_have_a_switch)
{
    static const sbit_pass_row row = {{"to_cosh", "Sinh becomes Cosh", 0, NULL, 0}, false, quant_cosh};
    static const char *const lines[] = {"", "SCHEDULE: {TO_COSH: true}\n",
                                        "SCHEDULE: {TO_COSH: false}\n", "SCHEDULE: {TO_COS: true}\n"};
    for (int i = 0; i < 5; i++) {
        build b;
        sbit_qconfig *config = NULL;
        sbit_quant *quant = NULL;
        char text[300];
        build_begin(&b, 17);
        if (i < 4) {
            CHECK_OK(sbit_pass_register(b.ctx, &row, &b.error), b.error);
        }
        const sbit_value_id x = build_unary(&b, "Sinh", "s", build_input(&b, "x", SBIT_F32, "N,4"));
        build_output(&b, build_binary(&b, "MatMul", "y", x, build_weights(&b, "w", "4,3", 1)));
        snprintf(text, sizeof text,
                 "%sW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
                 lines[i < 4 ? i : 1]);
        const sbit_status status = sbit_qconfig_read(b.ctx, text, strlen(text), &config, &b.error);
        if (i >= 3) {
            CHECK(status == SBIT_ERR_CONFIG && config == NULL);
            CHECK_CONTAINS(b.error.message, i == 3 ? "SCHEDULE.TO_COSH" : "TO_COSH");
        } else if (build_do(&b, status, "config") &&
                   build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant")) {
            const sbit_graph *graph = sbit_quant_graph(quant);
            CHECK_STR(sbit_graph_node(graph, sbit_graph_first(graph))->op_type,
                      i == 2 ? "Sinh" : "Cosh");
        }
        sbit_quant_destroy(quant);
        sbit_qconfig_destroy(config);
        build_end(&b);
    }
}
