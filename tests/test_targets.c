/* test_targets.c: what the keys and profiles promise of a quantized model, on data that is wider
 * than what was calibrated on: axes, clipping, narrow ranges, powers of two, the width in the file,
 * TensorRT's sums, OpenVINO's biases, tensors that no data reached. With rows registered from
 * outside: of observers see test_quant.c; of quantizers, passes and profiles here.
 */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

enum {
    SAMPLES = 4
};

typedef struct target {
    build b;
    sbit_quant *quant;
    sbit_graph *built;
} target;

typedef const char *const setting[2];

/* Calibrates the graph of t->b on x and builds it. */
static void target_quantize(target *t, const char *profile, setting *set, const sbit_tensor *x)
{
    sbit_qconfig *config = NULL;
    build *b = &t->b;
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    for (size_t i = 0; !b->failed && set != NULL && set[i][0] != NULL; i++) {
        build_do(b, sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), set[i][0]);
    }
    if (!b->failed &&
        build_do(b, sbit_quant_create(b->graph, config, &t->quant, &b->error), "quant")) {
        build_do(b, sbit_quant_prepare_calibration(t->quant, &b->error), "prepare");
        build_do(b, sbit_quant_forward(t->quant, NULL, x, 1, &b->error), "forward");
        build_do(b, sbit_quant_calc_qparams(t->quant, false, false, false, &b->error), "calc");
        build_do(b, sbit_quant_build(t->quant, NULL, &t->built, &b->error), "build");
    }
    sbit_qconfig_destroy(config);
}

static void target_end(target *t)
{
    sbit_graph_destroy(t->built);
    sbit_quant_destroy(t->quant);
    build_end(&t->b);
}

static bool target_site(const target *t, const char *tensor, sbit_site *out)
{
    for (size_t i = 0; t->quant != NULL && i < sbit_quant_site_count(t->quant); i++) {
        if (sbit_quant_site(t->quant, i, out) == SBIT_OK && strcmp(out->tensor, tensor) == 0) {
            return true;
        }
    }
    return false;
}

/* The node of the built graph that makes the value, NULL: none. */
static const sbit_node *target_producer(const target *t, sbit_value_id value)
{
    const sbit_value_info *info = sbit_graph_value(t->built, value);
    return info->producer.idx != 0 ? sbit_graph_node(t->built, info->producer) : NULL;
}

static const sbit_node *target_node(const target *t, const char *op_type)
{
    for (sbit_node_id id = sbit_graph_first(t->built); id.idx != 0;
         id = sbit_graph_next(t->built, id)) {
        if (strcmp(sbit_graph_node(t->built, id)->op_type, op_type) == 0) {
            return sbit_graph_node(t->built, id);
        }
    }
    return NULL;
}

static void gauss(float *x, int64_t count, uint64_t seed, float size)
{
    sbit_rng rng = sbit_rng_seed(seed);
    for (int64_t i = 0; i < count; i++) {
        x[i] = size * sbit_rng_normal(&rng);
    }
}

/* A 1x1 convolution that gives every channel on as it is. */
static sbit_value_id same_conv(build *b, const char *name, sbit_value_id x, int channels, bool bias)
{
    float w[64];
    char dims[32], text[64];
    sbit_value_id in[3] = {{0}, {0}, {0}};
    for (int i = 0; i < channels * channels; i++) {
        w[i] = i / channels == i % channels ? 1.0f : 0.0f;
    }
    in[0] = x;
    snprintf(dims, sizeof dims, "%d,%d,1,1", channels, channels);
    snprintf(text, sizeof text, "%s.weight", name);
    in[1] = build_constant(b, text, SBIT_F32, dims, w);
    snprintf(dims, sizeof dims, "%d", channels);
    snprintf(text, sizeof text, "%s.bias", name);
    in[2] = bias ? build_weights(b, text, dims, 9) : in[2];
    return build_node(b, "Conv", name, in, bias ? 3 : 2, NULL, 0);
}

/* ---- axes */
TEST(channels_of_activations_lie_where_the_layout_says)
{
    static const struct {
        const char *layout;
        int axis, channels;
    } cases[] = {{"NCHW", 1, 5}, {"NLC", 2, 3}};
    static float data[SAMPLES * 5 * 3];
    gauss(data, SAMPLES * 5 * 3, 1, 1.0f);
    for (size_t i = 0; i < 2; i++) {
        setting set[] = {{"A.QSCHEME", "per-channel-affine"},
                         {"A.OBSERVER.LAYOUT", cases[i].layout},
                         {NULL, NULL}};
        target t;
        sbit_site site;
        sbit_value_id in[2];
        memset(&t, 0, sizeof t);
        build_begin(&t.b, 13);
        in[0] = build_input(&t.b, "x", SBIT_F32, "N,5,3");
        in[1] = build_weights(&t.b, "w", "3,2", 5);
        build_output(&t.b, build_node(&t.b, "MatMul", "m", in, 2, NULL, 0));
        const sbit_tensor x = build_tensor(SBIT_F32, "4,5,3", data);
        target_quantize(&t, "sparsebit", set, &x);
        const sbit_node *q = t.b.failed ? NULL : target_node(&t, "QuantizeLinear");
        if (CHECK(q != NULL) && CHECK(target_site(&t, "x", &site))) {
            CHECK_EQ_I64(site.qparams.axis, cases[i].axis);
            CHECK_EQ_I64(site.qparams.grid.parts.count, cases[i].channels);
            CHECK_EQ_I64(sbit_node_int(q, "axis", 1), cases[i].axis);
            for (int c = 0; c < cases[i].channels; c++) { /* minmax of that channel, by hand */
                float lo = 0.0f, hi = 0.0f;
                for (int k = 0; k < SAMPLES * 15; k++) {
                    if ((i == 0 ? k / 3 % 5 : k % 3) == c) {
                        lo = fminf(lo, data[k]);
                        hi = fmaxf(hi, data[k]);
                    }
                }
                CHECK_NEAR(site.qparams.scale[c], (hi - lo) / 255.0f, 1e-8);
            }
        }
        target_end(&t);
    }
}

/* ---- clipping */
TEST(narrow_grids_saturate_at_their_ends)
{
    static const struct {
        const char *bits, *scheme, *int4;
        int qmin, qmax;
    } cases[] = {
        {"4", "per-tensor-affine", "false", 0, 15},
        {"4", "per-tensor-symmetric", "false", -8, 7},
        {"6", "per-tensor-affine", "false", 0, 63},
        {"4", "per-channel-affine", "false", 0, 15},
        {"4", "per-tensor-affine", "true", 0, 15},
        {"8", "per-tensor-symmetric", "false", -128, 127},
        {"12", "per-tensor-affine", "false", 0, 4095},
        {"16", "per-tensor-symmetric", "false", -32768, 32767},
    };
    static float narrow[SAMPLES * 3 * 16], wide[SAMPLES * 3 * 16];
    gauss(narrow, SAMPLES * 3 * 16, 11, 1.0f);
    gauss(wide, SAMPLES * 3 * 16, 12, 3.0f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setting set[] = {{"A.QUANTIZER.BIT", cases[i].bits},
                         {"A.QSCHEME", cases[i].scheme},
                         {"W.QUANTIZER.DISABLE", "true"},
                         {"EXPORT.INT4", cases[i].int4},
                         {NULL, NULL}};
        target t;
        sbit_site site;
        int64_t low = 0, high = 0, off = 0;
        memset(&t, 0, sizeof t);
        build_begin(&t.b, 13);
        const sbit_value_id in = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
        build_output(&t.b, same_conv(&t.b, "c", in, 3, false));
        const sbit_tensor x = build_tensor(SBIT_F32, "4,3,4,4", narrow);
        const sbit_tensor other = build_tensor(SBIT_F32, "4,3,4,4", wide);
        target_quantize(&t, "sparsebit", set, &x);
        build_do(&t.b, sbit_quant_set_quant(t.quant, true, true, &t.b.error), "mode");
        build_do(&t.b, sbit_quant_forward(t.quant, NULL, &other, 1, &t.b.error), "forward");
        if (!t.b.failed && CHECK(target_site(&t, "x", &site))) {
            const float *y = (const float *)sbit_quant_output(t.quant, 0)->tensor.data;
            for (int k = 0; k < SAMPLES * 3 * 16; k++) {
                const int c = site.qparams.axis == 1 ? k / 16 % 3 : 0;
                const double s = (double)site.qparams.scale[c], zp = site.qparams.zero_point[c];
                double q = rint((double)(wide[k] / site.qparams.scale[c])) + zp;
                low += q < cases[i].qmin;
                high += q > cases[i].qmax;
                q = fmin(fmax(q, cases[i].qmin), cases[i].qmax);
                off += fabs((double)y[k] - (q - zp) * s) > 1e-6 * fabs((double)y[k]) + 1e-7;
            }
            CHECK(low > 5 && high > 5);
            CHECK_MSG(off == 0, "%s bits %s: %d values differ", cases[i].bits, cases[i].scheme,
                      (int)off);
        }
        target_end(&t);
    }
}

/* ---- keys of the grid */
TEST(narrow_range_leaves_the_lowest_integer_out)
{
    static float data[SAMPLES * 3 * 16];
    gauss(data, SAMPLES * 3 * 16, 21, 1.0f);
    for (int narrow = 0; narrow < 2; narrow++) {
        setting set[] = {{"W.QUANTIZER.NARROW_RANGE", narrow ? "true" : "false"}, {NULL, NULL}};
        const float w[2] = {-1.0f, 0.3f};
        target t;
        sbit_site site;
        sbit_value_id in[2];
        memset(&t, 0, sizeof t);
        build_begin(&t.b, 13);
        in[0] = build_input(&t.b, "x", SBIT_F32, "N,2");
        in[1] = build_constant(&t.b, "w", SBIT_F32, "2,1", w);
        build_output(&t.b, build_node(&t.b, "MatMul", "m", in, 2, NULL, 0));
        const sbit_tensor x = build_tensor(SBIT_F32, "4,2", data);
        target_quantize(&t, "generic", set, &x);
        if (!t.b.failed && CHECK(target_site(&t, "w", &site))) {
            const sbit_node *dq = target_producer(&t, target_node(&t, "MatMul")->inputs[1]);
            CHECK_EQ_I64(site.qparams.grid.qmin, narrow ? -127 : -128);
            CHECK_NEAR(site.qparams.scale[0], narrow ? 1.0 / 127.0 : 2.0 / 255.0, 1e-9);
            if (CHECK(dq != NULL && strcmp(dq->op_type, "DequantizeLinear") == 0)) {
                const sbit_tensor *q = &sbit_graph_value(t.built, dq->inputs[0])->constant;
                CHECK_EQ_I64(((const int8_t *)q->data)[0], -127); /* -127.5 is short of a tie */
            }
        }
        target_end(&t);
    }
}

TEST(power_of_two_scales_hold_the_whole_range)
{
    static float data[SAMPLES * 3 * 16];
    for (int k = 0; k < 6; k++) {
        setting set[] = {{"A.QUANTIZER.POWER_OF_TWO", "true"}, {NULL, NULL}};
        target t;
        sbit_site site;
        int exponent = 0;
        float most = 0.0f;
        gauss(data, SAMPLES * 3 * 16, 31 + (uint64_t)k, 0.1f * (float)(k + 1));
        memset(&t, 0, sizeof t);
        build_begin(&t.b, 13);
        const sbit_value_id in = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
        build_output(&t.b, same_conv(&t.b, "c", in, 3, false));
        const sbit_tensor x = build_tensor(SBIT_F32, "4,3,4,4", data);
        target_quantize(&t, "tensorrt", set, &x);
        for (int i = 0; i < SAMPLES * 3 * 16; i++) {
            most = fmaxf(most, fabsf(data[i]));
        }
        if (!t.b.failed && CHECK(target_site(&t, "x", &site))) {
            const double exact = 2.0 * (double)most / 255.0, s = (double)site.qparams.scale[0];
            CHECK_NEAR(frexpf(site.qparams.scale[0], &exponent), 0.5, 0.0);
            CHECK_MSG(s >= exact && s < 2.0 * exact, "scale %g for %g", s, exact);
        }
        target_end(&t);
    }
}

static bool says_bits(const sbit_onnx_node *node, const char *bits)
{
    for (size_t i = 0; i < node->metadata_props_count; i++) {
        const sbit_onnx_string_entry *entry = &node->metadata_props[i];
        if (entry->key.size == 4 && memcmp(entry->key.data, "bits", 4) == 0) {
            return entry->value.size == strlen(bits) &&
                   memcmp(entry->value.data, bits, entry->value.size) == 0;
        }
    }
    return false;
}

TEST(the_file_says_the_true_width)
{
    setting set[] = {{"A.QUANTIZER.BIT", "6"}, {"W.QUANTIZER.BIT", "4"}, {NULL, NULL}};
    static float data[SAMPLES * 3 * 16];
    target t;
    sbit_onnx_doc *doc = NULL;
    int six = 0, four = 0;
    gauss(data, SAMPLES * 3 * 16, 41, 1.0f);
    memset(&t, 0, sizeof t);
    build_begin(&t.b, 13);
    const sbit_value_id in = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
    build_output(&t.b, same_conv(&t.b, "c", in, 3, false));
    const sbit_tensor x = build_tensor(SBIT_F32, "4,3,4,4", data);
    target_quantize(&t, "sparsebit", set, &x);
    if (!t.b.failed && build_do(&t.b, sbit_graph_export(t.built, &doc, &t.b.error), "export")) {
        const sbit_onnx_graph *graph = sbit_onnx_doc_model(doc)->graph;
        for (size_t i = 0; i < graph->node_count; i++) {
            six += says_bits(&graph->node[i], "6");
            four += says_bits(&graph->node[i], "4");
        }
        CHECK_EQ_I64(six, 2);  /* the activation's pair */
        CHECK_EQ_I64(four, 1); /* the weight's DequantizeLinear */
        sbit_onnx_destroy(doc);
    }
    target_end(&t);
}

/* Blocks of 4 of the 10 inputs of a MatMul [10,3]: the scale of each by hand, short last block too;
 * the bias of the layer behind stays float. */
TEST(blocks_of_inputs_have_scales_of_their_own)
{
    setting set[] = {{"W.QUANTIZER.GROUP_SIZE", "4"}, {"W.QUANTIZER.BIT", "4"}, {NULL, NULL}};
    static float w[30], data[SAMPLES * 10];
    target t;
    sbit_site site;
    sbit_value_id in[3];
    memset(&t, 0, sizeof t);
    gauss(w, 30, 1, 1.0f);
    gauss(data, SAMPLES * 10, 2, 1.0f);
    build_begin(&t.b, 13);
    in[0] = build_input(&t.b, "x", SBIT_F32, "N,10");
    in[1] = build_constant(&t.b, "w", SBIT_F32, "10,3", w);
    in[2] = build_weights(&t.b, "bias", "3", 4);
    build_output(&t.b, build_node(&t.b, "Gemm", "g", in, 3, NULL, 0));
    const sbit_tensor x = build_tensor(SBIT_F32, "4,10", data);
    target_quantize(&t, "generic", set, &x);
    const sbit_node *gemm = t.b.failed ? NULL : target_node(&t, "Gemm");
    const sbit_node *dq = gemm != NULL ? target_producer(&t, gemm->inputs[1]) : NULL;
    if (CHECK(dq != NULL) && CHECK(target_site(&t, "w", &site))) {
        const sbit_tensor *scale = &sbit_graph_value(t.built, dq->inputs[1])->constant;
        const sbit_tensor *q = &sbit_graph_value(t.built, dq->inputs[0])->constant;
        CHECK_EQ_I64(sbit_node_int(dq, "axis", 1), 0);
        CHECK_EQ_I64(sbit_node_int(dq, "block_size", 0), 4);
        CHECK(sbit_graph_opset(t.built, "") >= 21);
        CHECK(scale->rank == 2 && scale->dims[0] == 3 && scale->dims[1] == 3);
        CHECK_EQ_I64(site.qparams.grid.parts.count, 9);
        CHECK(target_producer(&t, gemm->inputs[2]) == NULL);
        for (int k = 0; k < 30; k++) {
            float most = 0.0f;
            for (int r = k / 12 * 4; r < k / 12 * 4 + 4 && r < 10; r++) {
                most = fmaxf(most, fabsf(w[r * 3 + k % 3]));
            }
            const float s = 2.0f * most / 15.0f;
            CHECK_NEAR(((const float *)scale->data)[k / 12 * 3 + k % 3], s, 1e-7);
            CHECK(fabsf(w[k] - (float)((const int8_t *)q->data)[k] * s) <= 0.501f * s);
        }
    }
    target_end(&t);
}

/* Lifting to opset 21 replaces the graph that the sites were first placed on. */
TEST(four_bits_in_a_model_that_is_lifted)
{
    char path[512];
    sbit_qconfig *config = NULL;
    target t;
    if (!test_shared("models/cifar10/vit_tiny.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no shared models");
    }
    memset(&t, 0, sizeof t);
    build_begin(&t.b, 13);
    sbit_graph_destroy(t.b.graph);
    t.b.graph = NULL;
    build_do(&t.b, sbit_graph_load(t.b.ctx, path, &t.b.graph, &t.b.error), "load");
    build_do(&t.b, sbit_qconfig_create(t.b.ctx, "generic", &config, &t.b.error), "config");
    build_do(&t.b, sbit_qconfig_set(config, "A.QUANTIZER.DISABLE", "true", &t.b.error), "set");
    build_do(&t.b, sbit_qconfig_set(config, "W.QUANTIZER.BIT", "4", &t.b.error), "set");
    build_do(&t.b, sbit_qconfig_set(config, "EXPORT.INT4", "true", &t.b.error), "set");
    build_do(&t.b, sbit_quant_create(t.b.graph, config, &t.quant, &t.b.error), "quant");
    sbit_qconfig_destroy(config);
    target_end(&t);
}

/* ---- profiles */
/* Add(conv, relu) in both orders: what a convolution makes goes in as it is, the residual branch
 * through a pair of its own. */
TEST(the_residual_branch_of_a_sum_is_quantized)
{
    static float data[SAMPLES * 3 * 16];
    gauss(data, SAMPLES * 3 * 16, 51, 1.0f);
    for (int k = 0; k < 4; k++) {
        const int order = k % 2;
        target t;
        memset(&t, 0, sizeof t);
        build_begin(&t.b, 13);
        const sbit_value_id in = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
        const sbit_value_id r = build_unary(&t.b, "Relu", "r", same_conv(&t.b, "a", in, 3, false));
        const sbit_value_id c = same_conv(&t.b, "b", r, 3, false);
        const sbit_value_id sum =
            build_binary(&t.b, "Add", "sum", order == 0 ? c : r, order == 0 ? r : c);
        build_output(&t.b, same_conv(&t.b, "d", build_unary(&t.b, "Relu", "s", sum), 3, false));
        const sbit_tensor x = build_tensor(SBIT_F32, "4,3,4,4", data);
        target_quantize(&t, k < 2 ? "tensorrt" : "residual", NULL, &x);
        const sbit_node *add = t.b.failed ? NULL : target_node(&t, "Add");
        for (size_t i = 0; CHECK(add != NULL) && i < 2; i++) {
            const sbit_node *from = target_producer(&t, add->inputs[i]);
            const bool residual = (i == 1) == (order == 0);
            if (CHECK(from != NULL)) {
                CHECK_STR(from->op_type, residual ? "DequantizeLinear" : "Conv");
            }
        }
        target_end(&t);
    }
}

TEST(biases_are_integers_where_the_profile_says)
{
    static const struct {
        const char *profile;
        bool integer;
    } cases[] = {{"generic", true},   {"onnxruntime", true}, {"mcu", true},
                 {"openvino", false}, {"tensorrt", false},   {"sparsebit", false}};
    static float data[SAMPLES * 3 * 16];
    gauss(data, SAMPLES * 3 * 16, 61, 1.0f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        target t;
        memset(&t, 0, sizeof t);
        build_begin(&t.b, 13);
        const sbit_value_id in = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
        build_output(&t.b, same_conv(&t.b, "c", in, 3, true));
        const sbit_tensor x = build_tensor(SBIT_F32, "4,3,4,4", data);
        target_quantize(&t, cases[i].profile, NULL, &x);
        const sbit_node *conv = t.b.failed ? NULL : target_node(&t, "Conv");
        if (CHECK(conv != NULL && conv->input_count == 3)) {
            const sbit_node *dq = target_producer(&t, conv->inputs[2]);
            CHECK_MSG((dq != NULL) == cases[i].integer, "%s", cases[i].profile);
            if (dq != NULL) {
                CHECK(sbit_graph_value(t.built, dq->inputs[0])->constant.dtype == SBIT_I32);
            }
        }
        target_end(&t);
    }
}

/* The branch that calibration does not take: nothing is known of its activations. */
TEST(what_no_data_reached_stays_float)
{
    static const char *const names[] = {"x", "cond"};
    static float data[SAMPLES * 3 * 16];
    static const unsigned char yes = 1;
    model_bytes model = model_from_text("opset 17\n"
                                        "in x f32 4,3,4,4\n"
                                        "in cond bool \n"
                                        "c w f32 3,3,1,1 = 1 0 0 0 1 0 0 0 1\n"
                                        "graph then\n"
                                        "Abs x -> ta\n"
                                        "Conv ta,w -> t\n"
                                        "out t f32 4,3,4,4\n"
                                        "end\n"
                                        "graph else\n"
                                        "Neg x -> ea\n"
                                        "Conv ea,w -> e\n"
                                        "out e f32 4,3,4,4\n"
                                        "end\n"
                                        "If cond -> y [if] then_branch=@then else_branch=@else\n"
                                        "out y f32 4,3,4,4\n");
    sbit_qconfig *config = NULL;
    target t;
    sbit_site site;
    memset(&t, 0, sizeof t);
    gauss(data, SAMPLES * 3 * 16, 91, 1.0f);
    build_begin(&t.b, 17);
    sbit_graph_destroy(t.b.graph);
    t.b.graph = NULL;
    const sbit_tensor inputs[] = {build_tensor(SBIT_F32, "4,3,4,4", data),
                                  build_tensor(SBIT_BOOL, "", &yes)};
    if (build_do(&t.b, sbit_graph_read(t.b.ctx, model.data, model.size, &t.b.graph, &t.b.error),
                 "read") &&
        build_do(&t.b, sbit_qconfig_create(t.b.ctx, "generic", &config, &t.b.error), "config") &&
        build_do(&t.b, sbit_quant_create(t.b.graph, config, &t.quant, &t.b.error), "quant")) {
        build_do(&t.b, sbit_quant_prepare_calibration(t.quant, &t.b.error), "prepare");
        build_do(&t.b, sbit_quant_forward(t.quant, names, inputs, 2, &t.b.error), "forward");
        build_do(&t.b, sbit_quant_calc_qparams(t.quant, false, false, false, &t.b.error), "calc");
    }
    if (!t.b.failed && CHECK(target_site(&t, "ta", &site)) && CHECK(site.enabled) &&
        CHECK(target_site(&t, "ea", &site))) {
        CHECK(!site.enabled);
        CHECK_CONTAINS(site.reason, "no data");
        CHECK(site.qparams.scale == NULL);
    }
    sbit_qconfig_destroy(config);
    target_end(&t);
    free(model.data); /* the graph borrowed it */
}

/* DoReFa's activations: the nodes that make z = tanh(x) / max|tanh(x)| stand in front of the pair.
 */
TEST(dorefa_activations_carry_their_function)
{
    setting set[] = {{"A.QUANTIZER.TYPE", "dorefa"}, {"W.QUANTIZER.DISABLE", "true"}, {NULL, NULL}};
    static float data[SAMPLES * 3 * 16];
    target t;
    sbit_site site;
    float most = 0.0f;
    memset(&t, 0, sizeof t);
    gauss(data, SAMPLES * 3 * 16, 101, 1.0f);
    build_begin(&t.b, 13);
    const sbit_value_id in = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
    build_output(&t.b, same_conv(&t.b, "c", in, 3, false));
    const sbit_tensor x = build_tensor(SBIT_F32, "4,3,4,4", data);
    target_quantize(&t, "sparsebit", set, &x);
    build_do(&t.b, sbit_quant_set_quant(t.quant, true, true, &t.b.error), "mode");
    build_do(&t.b, sbit_quant_forward(t.quant, NULL, &x, 1, &t.b.error), "forward");
    for (int i = 0; i < SAMPLES * 3 * 16; i++) {
        most = fmaxf(most, fabsf(tanhf(data[i])));
    }
    if (!t.b.failed && CHECK(target_site(&t, "x", &site)) &&
        CHECK(target_node(&t, "Tanh") != NULL)) {
        const float *y = (const float *)sbit_quant_output(t.quant, 0)->tensor.data;
        const double s = (double)site.qparams.scale[0], zp = site.qparams.zero_point[0];
        int off = 0;
        for (int i = 0; i < SAMPLES * 3 * 16; i++) {
            const double q = rint((double)(tanhf(data[i]) / most) / s) + zp;
            const double d = fabs((double)y[i] - (fmin(fmax(q, 0.0), 255.0) - zp) * s);
            CHECK(d <= 1.001 * s);
            off += d > 1e-6;
        }
        CHECK_MSG(off <= 2, "%d values differ", off); /* ties */
    }
    target_end(&t);
}

/* ---- a quantizer from outside: rounds down; its finish has the last word on the scale */
static size_t floor_state_bytes(const sbit_quantizer_call *call)
{
    (void)call;
    return sizeof(float);
}

static sbit_status floor_init(void *state, const sbit_quantizer_call *call,
                              const sbit_observation *x, sbit_error *error)
{
    (void)error;
    *(float *)state = x != NULL ? 2.0f : 4.0f; /* weights, activations */
    return call->statistics == NULL ? SBIT_OK : SBIT_ERR_STATE;
}

static sbit_status floor_forward(void *state, const sbit_quantizer_call *call,
                                 const sbit_observation *x, float *y, sbit_error *error)
{
    (void)state;
    (void)error;
    for (int64_t i = 0; i < sbit_parts_elements(&x->parts); i++) {
        const int64_t p = sbit_parts_at(&x->parts, i);
        y[i] = floorf(x->data[i] / call->scale[p]) * call->scale[p];
    }
    return SBIT_OK;
}

static sbit_status floor_finish(void *state, const sbit_quantizer_call *call,
                                const sbit_observation *x, float *effective, sbit_error *error)
{
    const float factor = (float)sbit_options_float(call->options, "QUANTIZER.FLOOR.STEP");
    (void)state;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        call->scale[p] = factor;
        call->zero_point[p] = 0;
    }
    return x != NULL ? floor_forward(state, call, x, effective, error) : SBIT_OK;
}

static void floor_deinit(void *state, const sbit_quantizer_call *call)
{
    (void)call;
    *(float *)state = 0.0f;
}

static const sbit_key floor_keys[] = {
    {"FLOOR.STEP", SBIT_KEY_FLOAT, "0.25", 0.0, 9.0, NULL, "step"},
};
static const sbit_quantizer_row floor_row = {
    {"floor", "rounds down", SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, floor_keys, 1},
    floor_state_bytes,
    NULL,
    NULL,
    NULL,
    floor_init,
    floor_forward,
    NULL,
    NULL,
    floor_finish,
    floor_deinit,
    NULL,
};

TEST(quantizer_registered_from_outside)
{
    setting set[] = {{"W.QUANTIZER.TYPE", "floor"},
                     {"A.QUANTIZER.TYPE", "floor"},
                     {"A.QUANTIZER.FLOOR.STEP", "0.125"},
                     {NULL, NULL}};
    const float w[3] = {0.7f, -0.7f, 3.9f};
    const int8_t wanted[3] = {2, -3, 15};
    static float data[SAMPLES * 3];
    target t;
    sbit_site site;
    sbit_value_id in[2];
    memset(&t, 0, sizeof t);
    gauss(data, SAMPLES * 3, 71, 1.0f);
    build_begin(&t.b, 13);
    build_do(&t.b, sbit_quantizer_register(t.b.ctx, &floor_row, &t.b.error), "register");
    CHECK_STATUS(sbit_quantizer_register(t.b.ctx, &floor_row, &t.b.error), SBIT_ERR_DUPLICATE,
                 t.b.error);
    CHECK_STATUS(sbit_quantizer_register(t.b.ctx, NULL, &t.b.error), SBIT_ERR_INVALID_ARGUMENT,
                 t.b.error);
    sbit_quantizer_row lame = floor_row;
    lame.head.name = "lame";
    lame.forward = NULL;
    CHECK_STATUS(sbit_quantizer_register(t.b.ctx, &lame, &t.b.error), SBIT_ERR_INVALID_ARGUMENT,
                 t.b.error);
    CHECK(sbit_quantizer_find(t.b.ctx, "Floor") == &floor_row);
    in[0] = build_input(&t.b, "x", SBIT_F32, "N,3");
    in[1] = build_constant(&t.b, "w", SBIT_F32, "3,1", w);
    build_output(&t.b, build_node(&t.b, "MatMul", "m", in, 2, NULL, 0));
    const sbit_tensor x = build_tensor(SBIT_F32, "4,3", data);
    target_quantize(&t, "generic", set, &x);
    if (!t.b.failed && CHECK(target_site(&t, "w", &site))) {
        const sbit_node *dq = target_producer(&t, target_node(&t, "MatMul")->inputs[1]);
        CHECK_STR(site.quantizer, "floor");
        if (CHECK(dq != NULL)) {
            const sbit_tensor *q = &sbit_graph_value(t.built, dq->inputs[0])->constant;
            CHECK(memcmp(q->data, wanted, sizeof wanted) == 0);
        }
        const sbit_node *pair = target_node(&t, "QuantizeLinear");
        if (CHECK(pair != NULL)) {
            const sbit_tensor *s = &sbit_graph_value(t.built, pair->inputs[1])->constant;
            CHECK_NEAR(*(const float *)s->data, 0.125, 0.0);
        }
    }
    target_end(&t);
}

/* Of two layers only the one that the profile lists gets a quantizer for its input. */
TEST(profiles_may_list_whose_inputs_are_quantized)
{
    static const char *const conv_only[] = {"Conv", NULL};
    static float data[SAMPLES * 3 * 16];
    gauss(data, SAMPLES * 3 * 16, 81, 1.0f);
    for (int listed = 0; listed < 2; listed++) {
        sbit_profile_row mine;
        target t;
        sbit_site site;
        static const float slope[4] = {1.0f, 2.0f, 3.0f, 4.0f};
        sbit_value_id in[2];
        memset(&mine, 0, sizeof mine);
        mine.head.name = "mine";
        mine.head.doc = "inputs of what is listed";
        mine.flags = SBIT_PROFILE_SYMMETRIC_ONLY;
        mine.activation_scheme = mine.weight_scheme = SBIT_QSCHEME_PER_TENSOR_SYMMETRIC;
        mine.inputs = listed == 1 ? conv_only : NULL;
        memset(&t, 0, sizeof t);
        build_begin(&t.b, 13);
        build_do(&t.b, sbit_profile_register(t.b.ctx, &mine, &t.b.error), "register");
        const sbit_value_id x = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
        in[0] = build_unary(&t.b, "Tanh", "between", same_conv(&t.b, "c", x, 3, true));
        in[1] = build_constant(&t.b, "slope", SBIT_F32, "4,1", slope);
        build_output(&t.b, build_node(&t.b, "MatMul", "m", in, 2, NULL, 0));
        const sbit_tensor tensor = build_tensor(SBIT_F32, "4,3,4,4", data);
        target_quantize(&t, "mine", NULL, &tensor);
        if (!t.b.failed) {
            const sbit_node *layer = target_node(&t, "MatMul");
            CHECK(target_site(&t, "x", &site));
            CHECK_EQ_I64(strcmp(target_producer(&t, layer->inputs[0])->op_type,
                                "DequantizeLinear") == 0,
                         listed == 0);
        }
        target_end(&t);
    }
}

TEST(profile_registered_from_outside)
{
    sbit_profile_row mine;
    static float data[SAMPLES * 3 * 16];
    target t;
    sbit_site site;
    memset(&mine, 0, sizeof mine);
    mine.head.name = "mine";
    mine.head.doc = "symmetric inputs, no outputs";
    mine.flags = SBIT_PROFILE_SYMMETRIC_ONLY;
    mine.activation_scheme = mine.weight_scheme = SBIT_QSCHEME_PER_TENSOR_SYMMETRIC;
    memset(&t, 0, sizeof t);
    gauss(data, SAMPLES * 3 * 16, 81, 1.0f);
    build_begin(&t.b, 13);
    build_do(&t.b, sbit_profile_register(t.b.ctx, &mine, &t.b.error), "register");
    CHECK_STATUS(sbit_profile_register(t.b.ctx, &mine, &t.b.error), SBIT_ERR_DUPLICATE, t.b.error);
    CHECK(sbit_profile_find(t.b.ctx, "MINE") == &mine);
    const sbit_value_id in = build_input(&t.b, "x", SBIT_F32, "N,3,4,4");
    build_output(&t.b, same_conv(&t.b, "c", in, 3, true));
    const sbit_tensor x = build_tensor(SBIT_F32, "4,3,4,4", data);
    target_quantize(&t, "mine", NULL, &x);
    if (!t.b.failed && CHECK(target_site(&t, "x", &site))) {
        CHECK(site.qparams.grid.symmetric);
        CHECK_EQ_I64(site.qparams.zero_point[0], 0);
        CHECK(target_site(&t, "c.weight", &site) && site.qparams.axis == -1);
    }
    target_end(&t);
}
