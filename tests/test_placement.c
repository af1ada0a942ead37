/* test_placement.c: which tensors get a quantizer where that is delicate: attention masks, what
 * follows from shapes alone, sums for TensorRT, profiles as rows. Inputs like those of
 * ../shared/field-cases, rebuilt. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

static sbit_quant *placement_quant(build *b, const char *profile, const char *key,
                                   const char *value)
{
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    if (!b->failed && key != NULL) {
        build_do(b, sbit_qconfig_set(config, key, value, &b->error), key);
    }
    if (!b->failed) {
        build_do(b, sbit_quant_create(b->graph, config, &quant, &b->error), profile);
    }
    sbit_qconfig_destroy(config);
    return quant;
}

static bool placement_site(const sbit_quant *quant, const char *tensor)
{
    sbit_site site;
    for (size_t i = 0; quant != NULL && i < sbit_quant_site_count(quant); i++) {
        if (sbit_quant_site(quant, i, &site) == SBIT_OK && strcmp(site.tensor, tensor) == 0) {
            return true;
        }
    }
    return false;
}

/* dB of the quantized model on `seen`, calibrated on `calib`. names NULL: one input. */
static double placement_db(build *b, sbit_quant *quant, const char *const *names,
                           const sbit_tensor *calib, const sbit_tensor *seen, size_t count)
{
    double signal = 0.0, noise = 0.0;
    float *kept = NULL;
    if (quant == NULL || b->failed) {
        return 0.0;
    }
    build_do(b, sbit_quant_prepare_calibration(quant, &b->error), "prepare");
    build_do(b, sbit_quant_forward(quant, names, calib, count, &b->error), "calibrate");
    build_do(b, sbit_quant_calc_qparams(quant, false, false, false, &b->error), "calc");
    for (int run = 0; run < 2 && !b->failed; run++) {
        build_do(b, sbit_quant_set_quant(quant, run > 0, run > 0, &b->error), "mode");
        if (!build_do(b, sbit_quant_forward(quant, names, seen, count, &b->error), "forward")) {
            break;
        }
        const sbit_tensor *y = &sbit_quant_output(quant, 0)->tensor;
        const int64_t n = sbit_tensor_count(y);
        const float *values = (const float *)y->data;
        for (int64_t i = 0; run > 0 && i < n; i++) {
            signal += (double)kept[i] * (double)kept[i];
            noise += ((double)values[i] - (double)kept[i]) * ((double)values[i] - (double)kept[i]);
        }
        if (run == 0) {
            kept = (float *)malloc((size_t)n * sizeof *kept);
            memcpy(kept, values, (size_t)n * sizeof *kept);
        }
    }
    free(kept);
    return 10.0 * log10((signal + 1e-300) / (noise + 1e-300));
}

/* ---- operators written with others */

static sbit_value_id placement_number(build *b, float value)
{
    return build_constant(b, "c", SBIT_F32, "", &value);
}

static sbit_value_id placement_mean(build *b, const char *name, sbit_value_id x)
{
    const int64_t axes[1] = {-1};
    const sbit_attr attr = build_ints("axes", axes, 1);
    return build_node(b, "ReduceMean", name, &x, 1, &attr, 1);
}

typedef enum placement_pieces {
    PIECES_GELU,
    PIECES_GELU_TANH,
    PIECES_SILU,
    PIECES_HARD_SWISH,
    PIECES_LAYER_NORM,
    PIECES_RMS_NORM,
    PIECES_COUNT
} placement_pieces;

static sbit_value_id placement_in_pieces(build *b, placement_pieces kind, sbit_value_id x)
{
    sbit_value_id y, in[3];
    switch (kind) {
    case PIECES_GELU:
        y = build_unary(b, "Erf", "p1",
                        build_binary(b, "Div", "p0", x, placement_number(b, 1.41421356f)));
        y = build_binary(b, "Add", "p2", y, placement_number(b, 1.0f));
        y = build_binary(b, "Mul", "p3", placement_number(b, 0.5f), y);
        return build_binary(b, "Mul", "y", x, y);
    case PIECES_GELU_TANH:
        y = build_binary(b, "Mul", "p0", build_binary(b, "Mul", "p1", x, x), x);
        y = build_binary(b, "Mul", "p2", y, placement_number(b, 0.044715f));
        y = build_binary(b, "Add", "p3", x, y);
        y = build_binary(b, "Mul", "p4", y, placement_number(b, 0.79788456f));
        y = build_binary(b, "Add", "p6", build_unary(b, "Tanh", "p5", y),
                         placement_number(b, 1.0f));
        y = build_binary(b, "Mul", "p7", x, y);
        return build_binary(b, "Mul", "y", y, placement_number(b, 0.5f));
    case PIECES_SILU:
        return build_binary(b, "Mul", "y", x, build_unary(b, "Sigmoid", "p0", x));
    case PIECES_HARD_SWISH:
        in[0] = build_binary(b, "Add", "p0", x, placement_number(b, 3.0f));
        in[1] = placement_number(b, 0.0f);
        in[2] = placement_number(b, 6.0f);
        y = build_binary(b, "Mul", "p2", x, build_node(b, "Clip", "p1", in, 3, NULL, 0));
        return build_binary(b, "Div", "y", y, placement_number(b, 6.0f));
    case PIECES_LAYER_NORM:
        x = build_binary(b, "Sub", "p1", x, placement_mean(b, "p0", x));
        y = placement_mean(b, "p3", build_binary(b, "Pow", "p2", x, placement_number(b, 2.0f)));
        y = build_binary(b, "Add", "p4", y, placement_number(b, 1e-5f));
        return build_binary(b, "Div", "y", x, build_unary(b, "Sqrt", "p5", y));
    default:
        y = placement_mean(b, "p1", build_binary(b, "Mul", "p0", x, x));
        y = build_binary(b, "Add", "p2", y, placement_number(b, 1e-5f));
        y = build_unary(b, "Reciprocal", "p4", build_unary(b, "Sqrt", "p3", y));
        return build_binary(b, "Mul", "y", x, y);
    }
}

static bool placement_inside(const char *tensor)
{
    return tensor[0] == 'p' && tensor[1] >= '0' && tensor[1] <= '9';
}

/* One operator to a quantizer: all that read its argument read the same, the result has a site,
 * nothing between has. Norms stay float in the generic profiles. */
TEST(operators_in_pieces_are_one_operator)
{
    static const char *const profiles[] = {"generic", "onnxruntime", "tensorrt", "sparsebit"};
    for (int i = 0; i < 4 * PIECES_COUNT; i++) {
        const placement_pieces kind = (placement_pieces)(i / 4);
        const bool norm = kind >= PIECES_LAYER_NORM, classic = i % 4 == 3;
        build b;
        sbit_site site;
        build_begin(&b, 13);
        const sbit_value_id in = build_input(&b, "in", SBIT_F32, "N,8");
        sbit_value_id x = build_binary(&b, "MatMul", "x", in, build_weights(&b, "w", "8,8", 1));
        x = placement_in_pieces(&b, kind, x);
        build_output(&b, build_binary(&b, "MatMul", "z", x, build_weights(&b, "v", "8,8", 2)));
        sbit_quant *quant = placement_quant(&b, profiles[i % 4], NULL, NULL);
        for (size_t s = 0; quant != NULL && s < sbit_quant_site_count(quant); s++) {
            CHECK(sbit_quant_site(quant, s, &site) == SBIT_OK);
            CHECK_MSG(!placement_inside(site.tensor), "%s, %d: a site on %s", profiles[i % 4],
                      (int)kind, site.tensor);
        }
        CHECK(placement_site(quant, "y"));
        if (!classic && !(norm && i % 4 == 2)) {
            CHECK_MSG(placement_site(quant, "x"), "%s, %d", profiles[i % 4], (int)kind);
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* ---- attention masks */

#define TOKENS 6
#define WIDTH 8

typedef enum mask_kind {
    MASK_ADD,
    MASK_SUB,
    MASK_WHERE,
    MASK_MUL_ADD,
    MASK_CAUSAL,
    MASK_NONE
} mask_kind;

/* Softmax(q k^T (+ mask)) v with x [N,6,8] and am [N,6]: 1 where a token is there. */
static void mask_graph(build *b, mask_kind kind, float far)
{
    static float causal[TOKENS * TOKENS];
    const float one = 1.0f, minus = -far;
    const int64_t axis = 1;
    sbit_value_id in[3];
    for (int i = 0; i < TOKENS * TOKENS; i++) {
        causal[i] = i % TOKENS > i / TOKENS ? far : 0.0f;
    }
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,6,8");
    const sbit_value_id am = build_input(b, "am", SBIT_F32, "N,6");
    const int64_t perm[3] = {0, 2, 1};
    const sbit_attr turn = build_ints("perm", perm, 3);
    const sbit_value_id q = build_binary(b, "MatMul", "q", x, build_weights(b, "wq", "8,8", 1));
    sbit_value_id k = build_binary(b, "MatMul", "k", x, build_weights(b, "wk", "8,8", 2));
    k = build_node(b, "Transpose", "kt", &k, 1, &turn, 1);
    sbit_value_id s = build_binary(b, "MatMul", "s", q, k);
    in[0] = am;
    in[1] = build_constant(b, "ax", SBIT_I64, "1", &axis);
    sbit_value_id mask = build_node(b, "Unsqueeze", "am3", in, 2, NULL, 0);
    if (kind == MASK_ADD || kind == MASK_SUB) { /* + (1 - am) far */
        mask = build_binary(b, "Sub", "inv", build_constant(b, "one", SBIT_F32, "", &one), mask);
        mask =
            build_binary(b, "Mul", "ext", mask,
                         build_constant(b, "far", SBIT_F32, "", kind == MASK_ADD ? &far : &minus));
        s = build_binary(b, kind == MASK_ADD ? "Add" : "Sub", "sm", s, mask);
    } else if (kind == MASK_WHERE) {
        const int32_t to = SBIT_BOOL;
        const sbit_attr cast = build_int("to", to);
        in[0] = build_node(b, "Cast", "cond", &mask, 1, &cast, 1);
        in[1] = s;
        in[2] = build_constant(b, "far", SBIT_F32, "", &far);
        s = build_node(b, "Where", "sm", in, 3, NULL, 0);
    } else if (kind == MASK_MUL_ADD) { /* s am - (1 - am) 1e4, then scaled */
        const float scale = 0.5f;
        sbit_value_id inv =
            build_binary(b, "Sub", "inv", build_constant(b, "one", SBIT_F32, "", &one), mask);
        inv = build_binary(b, "Mul", "ext", inv, build_constant(b, "far", SBIT_F32, "", &minus));
        s = build_binary(b, "Sub", "sm0", build_binary(b, "Mul", "sa", s, mask), inv);
        s = build_binary(b, "Mul", "sm", s, build_constant(b, "scale", SBIT_F32, "", &scale));
    } else if (kind == MASK_CAUSAL) {
        s = build_binary(b, "Add", "sm", s, build_constant(b, "causal", SBIT_F32, "6,6", causal));
    }
    const sbit_attr last = build_int("axis", -1);
    const sbit_value_id p = build_node(b, "Softmax", "p", &s, 1, &last, 1);
    const sbit_value_id v = build_binary(b, "MatMul", "v", x, build_weights(b, "wv", "8,8", 3));
    build_output(b, build_binary(b, "MatMul", "y", p, v));
}

/* About as good as without a mask, whatever the sentinel, whether calibration saw padding or not.
 */
TEST(attention_masks_stay_exact)
{
    static const char *const names[2] = {"x", "am"};
    static const char *const profiles[] = {"generic",  "sparsebit", "onnxruntime",
                                           "openvino", "tensorrt",  "mcu", "residual"};
    static const float fars[] = {-1e4f, -1e9f, -3.4e38f, -(float)INFINITY};
    static float x[2][4 * TOKENS * WIDTH], am[2][4 * TOKENS];
    sbit_rng rng = sbit_rng_seed(8);
    for (int i = 0; i < 2 * 4 * TOKENS * WIDTH; i++) {
        x[i / (4 * TOKENS * WIDTH)][i % (4 * TOKENS * WIDTH)] = sbit_rng_normal(&rng);
    }
    for (int i = 0; i < 4 * TOKENS; i++) {
        am[0][i] = 1.0f;
        am[1][i] = i % TOKENS < 3 + i / TOKENS ? 1.0f : 0.0f;
    }
    for (size_t p = 0; p < 7; p++) {
        for (int kind = MASK_ADD; kind <= MASK_NONE; kind++) {
            for (size_t f = 0; f < 4; f++) {
                const bool finite_only =
                    kind == MASK_ADD || kind == MASK_SUB || kind == MASK_MUL_ADD;
                for (int seen = 0; seen < 2 && !(finite_only && f > 1); seen++) {
                    build b;
                    build_begin(&b, 17);
                    mask_graph(&b, (mask_kind)kind, fars[f]);
                    sbit_quant *quant = placement_quant(&b, profiles[p], NULL, NULL);
                    sbit_tensor calib[2], test[2];
                    calib[0] = build_tensor(SBIT_F32, "4,6,8", x[0]);
                    calib[1] = build_tensor(SBIT_F32, "4,6", am[seen]);
                    test[0] = build_tensor(SBIT_F32, "4,6,8", x[1]);
                    test[1] = build_tensor(SBIT_F32, "4,6", am[1]);
                    const double db = placement_db(&b, quant, names, calib, test, 2);
                    CHECK_MSG(db > 24.0, "%s, mask %d, %g, seen %d: %.1f dB", profiles[p], kind,
                              (double)fars[f], seen, db);
                    CHECK(kind == MASK_NONE || !placement_site(quant, "sm"));
                    sbit_quant_destroy(quant);
                    build_end(&b);
                }
            }
        }
    }
}

/* A learned position bias is no mask: what it makes is quantized as before. */
TEST(position_biases_are_no_masks)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,6,8");
    const sbit_value_id q = build_binary(&b, "MatMul", "q", x, build_weights(&b, "w", "8,6", 1));
    const sbit_value_id s =
        build_binary(&b, "Add", "s", q, build_weights(&b, "position", "6,6", 5));
    build_output(&b, build_unary(&b, "Softmax", "p", s));
    sbit_quant *quant = placement_quant(&b, "generic", NULL, NULL);
    CHECK(placement_site(quant, "s"));
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* Scores far below the row's largest widen no range: 8 classes, one of them at -300. */
TEST(far_scores_widen_no_range)
{
    static float x[8 * 4];
    build b;
    sbit_site site;
    build_begin(&b, 13);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_value_id y = build_binary(&b, "MatMul", "s", in, build_weights(&b, "w", "4,4", 6));
    build_output(&b, build_unary(&b, "Softmax", "p", y));
    for (int i = 0; i < 32; i++) {
        x[i] = i % 4 == 0 ? 300.0f : 0.1f * (float)(i % 7);
    }
    sbit_quant *quant = placement_quant(&b, "generic", NULL, NULL);
    const sbit_tensor t = build_tensor(SBIT_F32, "8,4", x);
    placement_db(&b, quant, NULL, &t, &t, 1);
    for (size_t i = 0; quant != NULL && i < sbit_quant_site_count(quant); i++) {
        CHECK(sbit_quant_site(quant, i, &site) == SBIT_OK);
        if (strcmp(site.tensor, "s") == 0) {
            CHECK_MSG(site.max - site.min < 21.0f || site.min > -21.0f, "%g to %g",
                      (double)site.min, (double)site.max);
        }
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* ---- shapes as data */

typedef enum shape_kind {
    SHAPE_DIV,
    SHAPE_SQRT,
    SHAPE_GRID,
    SHAPE_COUNT
} shape_kind;

/* c = Conv(x), then / its height, / sqrt(height), or + position numbers. */
static void shape_graph(build *b, shape_kind kind)
{
    const int64_t two = 2, zero = 0, one = 1;
    const sbit_attr to = build_int("to", SBIT_F32);
    sbit_value_id in[3];
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,3,H,W");
    const sbit_value_id c = build_binary(b, "Conv", "c", x, build_weights(b, "w", "4,3,3,3", 1));
    in[0] = build_unary(b, "Shape", "shape", c);
    in[1] = build_constant(b, "two", SBIT_I64, "", &two);
    sbit_value_id h = build_node(b, "Gather", "h", in, 2, NULL, 0);
    if (kind == SHAPE_GRID) {
        in[0] = build_constant(b, "zero", SBIT_I64, "", &zero);
        in[1] = h;
        in[2] = build_constant(b, "one", SBIT_I64, "", &one);
        h = build_node(b, "Range", "range", in, 3, NULL, 0);
    }
    sbit_value_id f = build_node(b, "Cast", "f", &h, 1, &to, 1);
    f = kind == SHAPE_SQRT ? build_unary(b, "Sqrt", "root", f) : f;
    const char *op = kind == SHAPE_GRID ? "Add" : "Div";
    const sbit_value_id y = build_binary(b, op, "y", c, f);
    build_output(b, build_binary(b, "Conv", "z", y, build_weights(b, "w2", "2,4,1,1", 2)));
}

TEST(what_shapes_make_is_never_calibrated)
{
    static float small[2 * 3 * 9 * 9], large[2 * 3 * 30 * 30];
    static const char *const profiles[] = {"generic", "sparsebit", "tensorrt", "mcu"};
    sbit_rng rng = sbit_rng_seed(12);
    for (int i = 0; i < 2 * 3 * 9 * 9; i++) {
        small[i] = sbit_rng_normal(&rng);
    }
    for (int i = 0; i < 2 * 3 * 30 * 30; i++) {
        large[i] = sbit_rng_normal(&rng);
    }
    for (size_t p = 0; p < 4; p++) {
        for (int kind = 0; kind < SHAPE_COUNT; kind++) {
            build b;
            build_begin(&b, 13);
            shape_graph(&b, (shape_kind)kind);
            sbit_quant *quant = placement_quant(&b, profiles[p], NULL, NULL);
            const sbit_tensor calib = build_tensor(SBIT_F32, "2,3,9,9", small);
            const sbit_tensor test = build_tensor(SBIT_F32, "2,3,30,30", large);
            CHECK(!placement_site(quant, "f") && !placement_site(quant, "root"));
            const double db = placement_db(&b, quant, NULL, &calib, &test, 1);
            /* a sum with positions 0..29 leaves the range that 0..8 gave: not the fault here */
            CHECK_MSG(db > (kind == SHAPE_GRID ? -1.0 : 20.0), "%s, %d: %.1f dB", profiles[p], kind,
                      db);
            sbit_quant_destroy(quant);
            build_end(&b);
        }
    }
}

/* ---- TensorRT: sums */

static sbit_value_id sum_conv(build *b, const char *name, sbit_value_id x)
{
    const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attr = build_ints("pads", pads, 4);
    char text[64];
    sbit_value_id in[2];
    snprintf(text, sizeof text, "%s.weight", name);
    in[0] = x;
    in[1] = build_weights(b, text, "3,3,3,3", (uint64_t)name[0]);
    return build_node(b, "Conv", name, in, 2, &attr, 1);
}

/* An input of a sum gets Q and DQ unless it comes from a layer that this sum alone reads; of two
 * such layers one. */
TEST(tensorrt_sums_leave_one_layer_alone)
{
    for (int sum = 0; sum < 2; sum++) {
        const char *op = sum ? "Sum" : "Add";
        build b;
        sbit_graph *q = NULL;
        static float x[3 * 64];
        build_begin(&b, 13);
        const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,3,8,8");
        const sbit_value_id c = sum_conv(&b, "c", in), d = sum_conv(&b, "d", in);
        const sbit_value_id r = build_unary(&b, "Relu", "r", c),
                            s = build_unary(&b, "Relu", "s", d);
        const sbit_value_id one = build_binary(&b, op, "one", r, s); /* both */
        const sbit_value_id e = sum_conv(&b, "e", one);
        const sbit_value_id two = build_binary(&b, op, "two", one, e); /* one alone */
        const sbit_value_id f = sum_conv(&b, "f", two), g = sum_conv(&b, "g", two);
        const sbit_value_id three = build_binary(&b, op, "three", f, g); /* g */
        const sbit_value_id t = build_unary(&b, "Relu", "t", three);
        const sbit_value_id four = build_binary(&b, op, "four", t, t); /* twice the same: both */
        build_output(&b, sum_conv(&b, "y", four));
        sbit_quant *quant = placement_quant(&b, "tensorrt", NULL, NULL);
        CHECK(placement_site(quant, "r") && placement_site(quant, "s"));
        CHECK(placement_site(quant, "one") && !placement_site(quant, "e"));
        CHECK(!placement_site(quant, "f") && placement_site(quant, "g"));
        CHECK(placement_site(quant, "t"));
        const sbit_tensor data = build_tensor(SBIT_F32, "1,3,8,8", x);
        for (int i = 0; i < 3 * 64; i++) {
            x[i] = (float)(i % 11) - 5.0f;
        }
        CHECK(placement_db(&b, quant, NULL, &data, &data, 1) > 20.0);
        if (!b.failed && build_do(&b, sbit_quant_build(quant, NULL, &q, &b.error), "build")) {
            const sbit_node *node = sbit_graph_node(q, sbit_graph_find_node(q, "four"));
            CHECK(node->inputs[0].idx == node->inputs[1].idx);
            CHECK_CONTAINS(sbit_graph_value(q, node->inputs[0])->name, "dequantized");
        }
        sbit_graph_destroy(q);
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* An activation that alone reads its layer has no integers in front of it; HardSigmoid has. */
TEST(openvino_activations_go_with_their_layer)
{
    for (int k = 0; k < 3; k++) {
        build b;
        build_begin(&b, 14);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,8,8");
        const sbit_value_id h = build_unary(&b, "HardSwish", "h", sum_conv(&b, "c", x));
        const sbit_value_id e = sum_conv(&b, "e", h);
        const sbit_value_id i = sum_conv(&b, "g", build_unary(&b, "HardSwish", "i", e));
        const sbit_value_id two = build_binary(&b, "Mul", "two", i, sum_conv(&b, "d", e));
        const sbit_value_id s = build_unary(&b, "HardSigmoid", "s", sum_conv(&b, "f", two));
        build_output(&b, sum_conv(&b, "y", s));
        sbit_quant *quant = placement_quant(&b, k == 1 ? "generic" : "openvino",
                                            k == 2 ? "SCHEDULE.DISABLE_UNNECESSARY_QUANT" : NULL,
                                            "false");
        CHECK(placement_site(quant, "c") == (k != 0));
        CHECK(placement_site(quant, "h") && placement_site(quant, "e") && placement_site(quant, "i"));
        CHECK(placement_site(quant, "f") && placement_site(quant, "s"));
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* ---- Sparsebit's own: which quantizers go (algorithms, 1.9) */

static sbit_value_id chain_norm(build *b, const char *name, sbit_value_id x)
{
    static const float one[3] = {1.5f, 0.5f, 1.0f}, zero[3] = {0.1f, -0.2f, 0.3f};
    const sbit_value_id in[5] = {x, build_constant(b, "n.weight", SBIT_F32, "3", one),
                                 build_constant(b, "n.bias", SBIT_F32, "3", zero),
                                 build_constant(b, "n.mean", SBIT_F32, "3", zero),
                                 build_constant(b, "n.var", SBIT_F32, "3", one)};
    return build_node(b, "BatchNormalization", name, in, 5, NULL, 0);
}

static sbit_value_id chain_producer(build *b, const char *op, sbit_value_id x)
{
    if (strcmp(op, "Conv") == 0) {
        return sum_conv(b, "p", x);
    }
    if (strcmp(op, "BatchNormalization") == 0) {
        return chain_norm(b, "p", sum_conv(b, "c", x));
    }
    if (strcmp(op, "Add") == 0) {
        return build_binary(b, "Add", "p", sum_conv(b, "c", x), sum_conv(b, "d", x));
    }
    return build_binary(b, "MatMul", "p", x, build_weights(b, "m.weight", "8,8", 3));
}

TEST(sparsebit_disables_what_runtimes_fuse)
{
    static const struct {
        const char *before, *behind;
        bool goes; /* the quantizer between them */
    } chains[] = {
        {"Conv", "Relu", true},          {"Conv", "Clip", true},
        {"Conv", "Sigmoid", true},       {"Conv", "LeakyRelu", true},
        {"Conv", "Mish", true},          {"Conv", "Swish", true},
        {"Conv", "HardSigmoid", true},   {"Conv", "Gelu", false},
        {"Conv", "Tanh", false},         {"MatMul", "Relu", true},
        {"MatMul", "Gelu", true},        {"MatMul", "Swish", true},
        {"MatMul", "Tanh", false},       {"MatMul", "Softmax", false},
        {"Add", "Relu", true},           {"Add", "Clip", true},
        {"Add", "Sigmoid", false},       {"Add", "Gelu", false},
        {"BatchNormalization", "Relu", true}, {"BatchNormalization", "Swish", true},
        {"BatchNormalization", "Gelu", false}, {"BatchNormalization", "Tanh", false},
    };
    for (size_t i = 0; i < 2 * (sizeof chains / sizeof chains[0]); i++) {
        const bool off = i % 2 != 0; /* DISABLE_UNNECESSARY_QUANT: false */
        const float limit = 6.0f, none = 0.0f;
        build b;
        build_begin(&b, 24);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,8,8");
        sbit_value_id in[3];
        in[0] = chain_producer(&b, chains[i / 2].before, x);
        in[1] = build_constant(&b, "low", SBIT_F32, "", &none);
        in[2] = build_constant(&b, "high", SBIT_F32, "", &limit);
        const bool clip = strcmp(chains[i / 2].behind, "Clip") == 0;
        in[0] = build_node(&b, chains[i / 2].behind, "f", in, clip ? 3 : 1, NULL, 0);
        build_output(&b, sum_conv(&b, "y", in[0]));
        sbit_quant *quant = placement_quant(&b, "sparsebit",
                                            off ? "SCHEDULE.DISABLE_UNNECESSARY_QUANT" : NULL, "false");
        CHECK_MSG(placement_site(quant, "p") == (off || !chains[i / 2].goes), "%s, %s, %s",
                  chains[i / 2].before, chains[i / 2].behind, off ? "all" : "fused ones go");
        CHECK(placement_site(quant, "x") && placement_site(quant, "f"));
        CHECK(placement_site(quant, "y.weight") && !placement_site(quant, "c"));
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* FUSE_BN: false keeps BatchNormalization, whose quantizer is never used; true makes one layer of it. */
TEST(sparsebit_sites_around_batch_norm)
{
    for (int k = 0; k < 4; k++) {
        const bool fuse = k % 2 != 0, off = k / 2 != 0;
        sbit_qconfig *config = NULL;
        sbit_quant *quant = NULL;
        build b;
        build_begin(&b, 13);
        const sbit_value_id c = sum_conv(&b, "c", build_input(&b, "x", SBIT_F32, "N,3,8,8"));
        const sbit_value_id r = build_unary(&b, "Relu", "r", chain_norm(&b, "n", c));
        build_output(&b, sum_conv(&b, "y", r));
        build_do(&b, sbit_qconfig_create(b.ctx, "sparsebit", &config, &b.error), "config");
        build_do(&b, sbit_qconfig_set(config, "SCHEDULE.FUSE_BN", fuse ? "true" : "false", &b.error), "set");
        build_do(&b, sbit_qconfig_set(config, "SCHEDULE.DISABLE_UNNECESSARY_QUANT", off ? "false" : "true",
                                      &b.error), "set");
        build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant");
        const sbit_node_id none = {0};
        size_t norms = 0;
        for (sbit_node_id id = quant != NULL ? sbit_graph_first(sbit_quant_graph(quant)) : none;
             id.idx != 0; id = sbit_graph_next(sbit_quant_graph(quant), id)) {
            norms += strcmp(sbit_graph_node(sbit_quant_graph(quant), id)->op_type, "BatchNormalization") == 0;
        }
        CHECK_EQ_I64((int64_t)norms, fuse ? 0 : 1);
        CHECK(placement_site(quant, "x") && placement_site(quant, "r") && placement_site(quant, "y.weight"));
        CHECK(!placement_site(quant, "c") || (fuse && off)); /* what BatchNormalization reads */
        CHECK_EQ_I64(placement_site(quant, "n") || (fuse && placement_site(quant, "c")), off); /* Relu's input */
        CHECK_EQ_I64((int64_t)sbit_quant_site_count(quant), 4 + (off ? 1 : 0));
        sbit_quant_destroy(quant);
        sbit_qconfig_destroy(config);
        build_end(&b);
    }
}

/* A value that something else reads, too: the fused reader's quantizer goes all the same. */
TEST(sparsebit_fuses_beside_other_readers)
{
    build b;
    sbit_graph *q = NULL;
    static float x[3 * 64];
    for (int i = 0; i < 3 * 64; i++) {
        x[i] = (float)(i % 13) - 6.0f;
    }
    build_begin(&b, 13);
    const sbit_value_id c = sum_conv(&b, "c", build_input(&b, "x", SBIT_F32, "N,3,8,8"));
    const sbit_value_id r = build_unary(&b, "Relu", "r", c);
    build_output(&b, build_binary(&b, "Add", "y", sum_conv(&b, "d", c), sum_conv(&b, "e", r)));
    sbit_quant *quant = placement_quant(&b, "sparsebit", NULL, NULL);
    const sbit_tensor data = build_tensor(SBIT_F32, "1,3,8,8", x);
    CHECK(placement_db(&b, quant, NULL, &data, &data, 1) > 20.0);
    if (!b.failed && build_do(&b, sbit_quant_build(quant, NULL, &q, &b.error), "build")) {
        const sbit_node *relu = sbit_graph_node(q, sbit_graph_find_node(q, "r"));
        const sbit_node *conv = sbit_graph_node(q, sbit_graph_find_node(q, "d"));
        CHECK_STR(sbit_graph_value(q, relu->inputs[0])->name, "c");
        CHECK_STR(sbit_graph_value(q, conv->inputs[0])->name, "c_dequantized");
    }
    sbit_graph_destroy(q);
    sbit_quant_destroy(quant);
    build_end(&b);
}

TEST(tensorrt_refuses_widths_that_it_does_not_know)
{
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    build_begin(&b, 13);
    build_output(&b, sum_conv(&b, "conv", build_input(&b, "x", SBIT_F32, "N,3,8,8")));
    build_do(&b, sbit_qconfig_create(b.ctx, "tensorrt", &config, &b.error), "config");
    build_do(&b, sbit_qconfig_set(config, "A.QUANTIZER.BIT", "16", &b.error), "bit");
    CHECK_STATUS(sbit_quant_create(b.graph, config, &quant, &b.error), SBIT_ERR_CONFIG, b.error);
    CHECK_CONTAINS(b.error.message, "at most 8");
    sbit_qconfig_destroy(config);
    build_end(&b);
}

/* ---- a target of the user's, by a row alone */

static const char *const target_inputs[] = {"Conv", "HardSwish", NULL};
static const sbit_profile_row target_row = {
    {"npu7", "convolutions and HardSwish, inputs only", 0, NULL, 0},
    SBIT_PROFILE_CLASSIC | SBIT_PROFILE_INT32_BIAS,
    SBIT_QSCHEME_PER_TENSOR_SYMMETRIC,
    SBIT_QSCHEME_PER_TENSOR_SYMMETRIC,
    8,
    target_inputs,
    NULL,
    NULL,
    NULL,
    0,
};

TEST(profile_registered_from_outside)
{
    build b;
    build_begin(&b, 14);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,8,8");
    const sbit_value_id h = build_unary(&b, "HardSwish", "h", sum_conv(&b, "c", x));
    build_output(&b, build_unary(&b, "Relu", "r", build_unary(&b, "Sigmoid", "s", h)));
    CHECK_OK(sbit_profile_register(b.ctx, &target_row, &b.error), b.error);
    sbit_quant *quant = placement_quant(&b, "npu7", NULL, NULL);
    CHECK(placement_site(quant, "x") && placement_site(quant, "c"));
    CHECK(!placement_site(quant, "h") && !placement_site(quant, "s"));
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* ---- a number that stands for "nothing here" and sets the range */

static void sentinels(float sentinel, bool told)
{
    build b;
    float data[64 * 8];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,8");
    build_output(&b, build_binary(&b, "MatMul", "y", x, build_weights(&b, "w", "8,8", 1)));
    sbit_quant *quant = placement_quant(&b, "generic", NULL, NULL);
    sbit_rng rng = sbit_rng_seed(5);
    for (int i = 0; i < 64 * 8; i++) {
        data[i] = i % 16 == 3 ? sentinel : sbit_rng_normal(&rng);
    }
    const sbit_tensor tensor = {SBIT_F32, 2, {64, 8, 0, 0, 0, 0, 0, 0}, data};
    if (!b.failed && quant != NULL) {
        build_do(&b, sbit_quant_prepare_calibration(quant, &b.error), "prepare");
        build_do(&b, sbit_quant_forward(quant, NULL, &tensor, 1, &b.error), "calibrate");
        build_do(&b, sbit_quant_calc_qparams(quant, false, false, false, &b.error), "calc");
        CHECK_EQ_I64(strstr(b.warning, "a few values of size 10000 set its range") != NULL, told);
        CHECK_EQ_I64(strstr(b.warning, "SKIP_TRACE_MODULES: [\"") != NULL, told);
        const int warnings = b.warnings;
        build_do(&b, sbit_quant_calc_qparams(quant, false, false, false, &b.error), "again");
        CHECK_EQ_I64(b.warnings, warnings); /* said once */
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* Behind a Relu6 most is 0, some is 6, little lies in between: nothing stands for a mask. */
TEST(what_saturates_is_no_sentinel)
{
    build b;
    float data[64 * 64];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,64");
    build_output(&b, build_binary(&b, "MatMul", "y", x, build_weights(&b, "w", "64,8", 1)));
    sbit_quant *quant = placement_quant(&b, "generic", NULL, NULL);
    for (int i = 0; i < 64 * 64; i++) {
        data[i] = i % 512 == 2 ? 6.0f : i % 1024 == 8 ? 4.5f : i % 64 == 0 ? 0.01f : 0.0f;
    }
    const sbit_tensor tensor = {SBIT_F32, 2, {64, 64, 0, 0, 0, 0, 0, 0}, data};
    if (!b.failed && quant != NULL) {
        build_do(&b, sbit_quant_prepare_calibration(quant, &b.error), "prepare");
        build_do(&b, sbit_quant_forward(quant, NULL, &tensor, 1, &b.error), "calibrate");
        build_do(&b, sbit_quant_calc_qparams(quant, false, false, false, &b.error), "calc");
        CHECK(strstr(b.warning, "set its range") == NULL);
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

TEST(sentinels_that_set_a_range_are_told)
{
    sentinels(-10000.0f, true);
    sentinels(10000.0f, true);
    sentinels(0.0f, false);
    sentinels(3.5f, false);
}
