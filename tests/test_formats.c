/* test_formats.c: how quantized models are written, and read again. tests/interop/check_formats.py
 * compares the files with ONNX Runtime. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

/* x[N,4,5,6] -> Conv (pads) -> Relu -> GlobalAveragePool -> Flatten -> Gemm (transB, alpha) -> Relu
 * -> MatMul 40 -> 7 */
#define FORMAT_ROWS 6
#define FORMAT_COUNT (FORMAT_ROWS * 4 * 5 * 6)

typedef struct formats {
    build b;
    float x[FORMAT_COUNT];
    sbit_tensor input;
} formats;

static void formats_begin(formats *f)
{
    const int64_t pads[4] = {1, 0, 1, 2};
    sbit_value_id in[3], y;
    sbit_attr attrs[2];
    sbit_rng rng = sbit_rng_seed(3);
    memset(f, 0, sizeof *f);
    build_begin(&f->b, 17);
    build *b = &f->b;
    attrs[0] = build_ints("pads", pads, 4);
    in[0] = build_input(b, "x", SBIT_F32, "N,4,5,6");
    in[1] = build_weights(b, "conv.weight", "8,4,3,3", 1);
    in[2] = build_weights(b, "conv.bias", "8", 2);
    y = build_unary(b, "Relu", "relu", build_node(b, "Conv", "conv", in, 3, attrs, 1));
    y = build_unary(b, "GlobalAveragePool", "pool", y);
    in[0] = build_unary(b, "Flatten", "flat", y);
    in[1] = build_weights(b, "fc.weight", "40,8", 3);
    in[2] = build_weights(b, "fc.bias", "40", 4);
    attrs[0] = build_int("transB", 1);
    y = build_unary(b, "Relu", "relu2", build_node(b, "Gemm", "fc", in, 3, attrs, 1));
    build_output(b,
                 build_binary(b, "MatMul", "last", y, build_weights(b, "last.weight", "40,7", 5)));
    for (int i = 0; i < FORMAT_COUNT; i++) {
        f->x[i] = sbit_rng_normal(&rng);
    }
    f->input = build_tensor(SBIT_F32, "6,4,5,6", f->x);
}

/* Quantizes `graph` (NULL: the fixture's) with settings; NULL: failed. */
static sbit_graph *formats_quantize(formats *f, const sbit_graph *graph, const char *profile,
                                    const char *set[][2], bool data)
{
    build *b = &f->b;
    sbit_qconfig *config = NULL;
    sbit_graph *out = NULL;
    sbit_feed_desc desc;
    sbit_feed feed;
    memset(&desc, 0, sizeof desc);
    memset(&feed, 0, sizeof feed);
    desc.inputs = &f->input;
    desc.input_count = 1;
    build_do(b, sbit_feed_of_tensors(b->ctx, &desc, &feed, &b->error), "feed");
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    for (size_t i = 0; !b->failed && set != NULL && set[i][0] != NULL; i++) {
        build_do(b, sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), set[i][0]);
    }
    if (!b->failed) {
        build_do(b,
                 sbit_quantize(graph != NULL ? graph : b->graph, config, data ? &feed : NULL, &out,
                               &b->error),
                 "quantize");
    }
    sbit_feed_close(&feed);
    sbit_qconfig_destroy(config);
    if (out != NULL) {
        build_do(b, sbit_graph_validate(out, &b->error), "validate");
    }
    return out;
}

/* Output 0, nodes one by one in float; the caller frees it. */
static float *formats_run(formats *f, sbit_graph *graph)
{
    sbit_session_desc plain;
    sbit_session *session = NULL;
    float *out = NULL;
    build *b = &f->b;
    memset(&plain, 0, sizeof plain);
    plain.disable_fusion = true;
    if (graph != NULL && !b->failed &&
        build_do(b, sbit_session_create(graph, &plain, &session, &b->error), "session") &&
        build_do(b, sbit_session_set_input_at(session, 0, &f->input, &b->error), "input") &&
        build_do(b, sbit_session_run(session, &b->error), "run")) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        out = (float *)malloc(sbit_tensor_bytes(y));
        memcpy(out, y->data, sbit_tensor_bytes(y));
    }
    sbit_session_destroy(session);
    return out;
}

static size_t formats_nodes(const sbit_graph *graph, const char *op)
{
    size_t count = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        count += strcmp(sbit_graph_node(graph, id)->op_type, op) == 0 ? 1 : 0;
    }
    return count;
}

/* Both graphs give the same, up to `limit` of the largest; both are freed. */
static void formats_same(formats *f, sbit_graph *a, sbit_graph *b, double limit)
{
    float *x = formats_run(f, a), *y = formats_run(f, b);
    double top = 0, off = 0;
    for (int i = 0; x != NULL && y != NULL && i < FORMAT_ROWS * 7; i++) {
        top = fabs((double)x[i]) > top ? fabs((double)x[i]) : top;
        off = fabs((double)x[i] - (double)y[i]) > off ? fabs((double)x[i] - (double)y[i]) : off;
    }
    CHECK_MSG(x != NULL && y != NULL && off <= limit * top, "%g of %g apart", off, top);
    free(x);
    free(y);
    sbit_graph_destroy(a);
    sbit_graph_destroy(b);
}

TEST(matrices_in_blocks_as_one_operator)
{
    static const char *const blocks[] = {"16", "32"}, *const bits[] = {"2", "3", "4", "8"};
    static const char *const schemes[] = {"per-channel-symmetric", "per-channel-affine"};
    for (int i = 0; i < 16; i++) {
        const char *set[][2] = {{"W.QUANTIZER.GROUP_SIZE", blocks[i & 1]},
                                {"W.QUANTIZER.BIT", bits[i / 4]},
                                {"W.QSCHEME", schemes[i / 2 & 1]},
                                {"EXPORT.FORMAT", "weights"},
                                {NULL, NULL}};
        formats f;
        formats_begin(&f);
        sbit_graph *pairs = formats_quantize(&f, NULL, "generic", set, false);
        set[3][1] = "matmul_nbits";
        sbit_graph *packed = formats_quantize(&f, NULL, "generic", set, false);
        if (packed != NULL) {
            CHECK_EQ_I64(formats_nodes(packed, "MatMulNBits"), 2);
            CHECK_EQ_I64(formats_nodes(packed, "DequantizeLinear"), 1); /* Conv's */
        }
        formats_same(&f, pairs, packed, 0.0);
        build_end(&f.b);
    }
}

/* What DynamicQuantizeLinear makes of each tensor is the only error beside the weights'. */
TEST(activations_quantized_while_running)
{
    static const char *const schemes[] = {"per-channel-symmetric", "per-channel-affine",
                                          "per-tensor-symmetric", "per-tensor-affine"};
    for (size_t i = 0; i < 4; i++) {
        const char *set[][2] = {
            {"W.QSCHEME", schemes[i]}, {"EXPORT.FORMAT", "weights"}, {NULL, NULL}};
        formats f;
        formats_begin(&f);
        sbit_graph *weights = formats_quantize(&f, NULL, "generic", set, false);
        set[1][1] = "dynamic";
        sbit_graph *dynamic = formats_quantize(&f, NULL, "generic", set, false);
        if (dynamic != NULL) {
            CHECK_EQ_I64(formats_nodes(dynamic, "ConvInteger"), 1);
            CHECK_EQ_I64(formats_nodes(dynamic, "MatMulInteger"), 2);
            CHECK_EQ_I64(formats_nodes(dynamic, "DequantizeLinear"), 0);
        }
        formats_same(&f, weights, dynamic, 0.03);
        build_end(&f.b);
    }
}

/* ---- bodies */

static sbit_status formats_count(const sbit_graph *graph, void *user)
{
    int64_t *count = (int64_t *)user; /* of what the format puts in, of pairs that are left */
    static const char *const ops[] = {"QLinearMatMul", "MatMulInteger", "MatMulNBits"};
    for (size_t i = 0; i < 3; i++) {
        count[0] += (int64_t)formats_nodes(graph, ops[i]);
    }
    count[1] += (int64_t)formats_nodes(graph, "MatMul");
    return SBIT_OK;
}

/* Both branches of an If, and a branch within, are written as the root is; and back. */
TEST(formats_reach_into_bodies)
{
    static const char model[] =
        "graph inner\nc u f32 120,7 = 0.5 -1 0.25 2 0.1 -0.3 1.5 0.7\nMatMul h,u -> p0\n"
        "c u2 f32 7,7 = 0.5 0.1 -0.4\nMatMul p0,u2 -> p\nout p f32 ...\nend\n"
        "graph other\nc o f32 120,7 = -0.2 0.8 0.3\nMatMul h,o -> r\nout r f32 ...\nend\n"
        "graph yes\nIf k -> s nested then_branch=@inner else_branch=@other\nout s f32 ...\nend\n"
        "graph no\nc w f32 120,7 = 1 -0.5 0.3 0.2\nMatMul h,w -> t\nout t f32 ...\nend\n"
        "in x f32 6,4,5,6\nc zero f32  = 0\nFlatten x -> h\nReduceMax x -> m keepdims=0\n"
        "Greater m,zero -> k\nIf k -> y if then_branch=@yes else_branch=@no\nout y f32 ...\n";
    static const char *const formats_of[][2] = {
        {"qdq", "qoperator"}, {"weights", "dynamic"}, {"weights", "matmul_nbits"}};
    for (size_t i = 0; i < 3; i++) {
        const char *set[][2] = {{"EXPORT.FORMAT", formats_of[i][0]},
                                {"W.QUANTIZER.GROUP_SIZE", i == 2 ? "16" : "0"},
                                {NULL, NULL}};
        formats f;
        model_bytes bytes;
        sbit_graph *back = NULL;
        int64_t count[2] = {0, 0}, left[2] = {0, 0};
        formats_begin(&f);
        sbit_graph_destroy(f.b.graph);
        f.b.graph = model_graph(f.b.ctx, model, &bytes, &f.b.error);
        sbit_graph *pairs = formats_quantize(&f, NULL, "generic", set, i == 0);
        set[0][1] = formats_of[i][1];
        sbit_graph *other = formats_quantize(&f, NULL, "generic", set, i == 0);
        if (other != NULL) {
            (void)sbit_graph_each(other, formats_count, count);
            /* a branch that no data reached has float activations */
            CHECK_MSG(count[0] >= (i == 0 ? 1 : 4), "%s: %d", formats_of[i][1], (int)count[0]);
        }
        if (other != NULL && build_do(&f.b, sbit_dequantize(other, &back, &f.b.error), "back")) {
            (void)sbit_graph_each(back, formats_count, left);
            CHECK(left[0] == 0 && left[1] == 4 && !sbit_graph_is_quantized(back));
        }
        sbit_graph_destroy(back);
        formats_same(&f, pairs, other, i == 1 ? 0.03 : i == 0 ? 0.01 : 1e-6);
        build_end(&f.b);
        free(bytes.data);
    }
}

/* ---- models that are quantized already */

static int64_t formats_kept(formats *f, const sbit_graph *graph, const char *profile,
                            const char *set[][2], size_t *sites)
{
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    build *b = &f->b;
    int64_t kept = 0;
    *sites = 0;
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    for (size_t i = 0; !b->failed && set != NULL && set[i][0] != NULL; i++) {
        build_do(b, sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), set[i][0]);
    }
    if (!b->failed && build_do(b, sbit_quant_create(graph, config, &quant, &b->error), "quant")) {
        *sites = sbit_quant_site_count(quant);
        kept = sbit_quant_needs_data(quant) ? 0 : 1;
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    return kept;
}

/* The weights of a dequantized model are the float ones, rounded; activations are not rounded. */
TEST(quantized_models_become_float_again)
{
    static const char *const formats_of[] = {"qdq", "qoperator"};
    for (size_t i = 0; i < 2; i++) {
        const char *set[][2] = {{"EXPORT.FORMAT", formats_of[i]}, {NULL, NULL}};
        const char *weights[][2] = {{"EXPORT.FORMAT", "weights"}, {NULL, NULL}};
        formats f;
        sbit_graph *plain = NULL;
        formats_begin(&f);
        sbit_graph *quantized = formats_quantize(&f, NULL, "generic", set, true);
        CHECK(sbit_graph_is_quantized(quantized) && !sbit_graph_is_quantized(f.b.graph));
        if (build_do(&f.b, sbit_dequantize(quantized, &plain, &f.b.error), "dequantize")) {
            CHECK(!sbit_graph_is_quantized(plain));
            build_do(&f.b, sbit_graph_validate(plain, &f.b.error), "validate");
        }
        sbit_graph_destroy(quantized);
        /* int32 biases are off by less than 1e-5 */
        formats_same(&f, formats_quantize(&f, NULL, "generic", weights, false), plain, 1e-4);
        build_end(&f.b);
    }
}

/* What was quantized while running, and weights in blocks: the float model, weights rounded. */
TEST(models_of_float_activations_become_float_again)
{
    static const char *const formats_of[] = {"dynamic", "matmul_nbits"};
    static const char *const schemes[] = {"per-channel-symmetric", "per-channel-affine"};
    for (size_t i = 0; i < 4; i++) {
        const char *set[][2] = {{"W.QSCHEME", schemes[i / 2]},
                                {"EXPORT.FORMAT", formats_of[i % 2]},
                                {"W.QUANTIZER.GROUP_SIZE", i % 2 == 0 ? "0" : "16"},
                                {NULL, NULL}};
        formats f;
        sbit_graph *plain = NULL;
        formats_begin(&f);
        sbit_graph *quantized = formats_quantize(&f, NULL, "generic", set, false);
        CHECK(quantized != NULL && sbit_graph_is_quantized(quantized));
        if (build_do(&f.b, sbit_dequantize(quantized, &plain, &f.b.error), "dequantize")) {
            CHECK(!sbit_graph_is_quantized(plain));
            CHECK_EQ_I64(formats_nodes(plain, "Cast") + formats_nodes(plain, "Mul") +
                             formats_nodes(plain, "NBitsWeight"),
                         0);
            build_do(&f.b, sbit_graph_validate(plain, &f.b.error), "validate");
        }
        sbit_graph_destroy(quantized);
        set[1][1] = "weights";
        formats_same(&f, formats_quantize(&f, NULL, "generic", set, false), plain, 1e-5);
        build_end(&f.b);
    }
}

/* ONNX Runtime's fused form: y = x ((b - zero) scale) + bias; its terms worked out here. */
TEST(dynamic_quantize_matmul_becomes_a_product)
{
    static const int8_t codes[12] = {1, -2, 3, 4, -5, 6, 7, -8, 9, 10, -11, 12},
                        zeros[3] = {1, 0, -2};
    static const float scales[3] = {0.5f, 0.25f, 2.0f}, bias[3] = {1.0f, -1.0f, 0.5f};
    build b;
    sbit_graph *plain = NULL;
    sbit_session *session = NULL;
    sbit_value_id in[5], out;
    float x[8];
    build_begin(&b, 17);
    build_do(&b, sbit_graph_set_opset(b.graph, "com.microsoft", 1, &b.error), "opset");
    in[0] = build_input(&b, "x", SBIT_F32, "2,4");
    in[1] = build_constant(&b, "b", SBIT_I8, "4,3", codes);
    in[2] = build_constant(&b, "s", SBIT_F32, "3", scales);
    in[3] = build_constant(&b, "z", SBIT_I8, "3", zeros);
    in[4] = build_constant(&b, "c", SBIT_F32, "3", bias);
    build_node_outputs(&b, "com.microsoft", "DynamicQuantizeMatMul", "m", in, 5, NULL, 0, &out, 1);
    build_output(&b, out);
    for (int i = 0; i < 8; i++) {
        x[i] = 0.37f * (float)(i - 3);
    }
    const sbit_tensor input = build_tensor(SBIT_F32, "2,4", x);
    if (build_do(&b, sbit_dequantize(b.graph, &plain, &b.error), "dequantize") &&
        build_do(&b, sbit_session_create(plain, NULL, &session, &b.error), "session") &&
        build_do(&b, sbit_session_set_input_at(session, 0, &input, &b.error), "input") &&
        build_do(&b, sbit_session_run(session, &b.error), "run")) {
        const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int i = 0; i < 6; i++) {
            double want = (double)bias[i % 3];
            for (int k = 0; k < 4; k++) {
                want += (double)x[i / 3 * 4 + k] * (codes[k * 3 + i % 3] - zeros[i % 3]) *
                        (double)scales[i % 3];
            }
            CHECK_MSG(fabs(want - (double)y[i]) < 1e-5, "%g, %g wanted", (double)y[i], want);
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(plain);
    build_end(&b);
}

/* MatMulIntegerToFloat of what DynamicQuantizeLinear made, with its scale times an input: what is
 * multiplied by must stay. With a zero point from elsewhere there is no such product. */
TEST(a_scale_from_elsewhere_is_kept)
{
    static const int8_t codes[12] = {1, -2, 3, 4, -5, 6, 7, -8, 9, 10, -11, 12};
    static const float scales[3] = {0.5f, 0.25f, 2.0f};
    static const uint8_t zero = 3;
    for (int form = 0; form < 3; form++) { /* times an input; an input; another zero point */
        build b;
        sbit_graph *plain = NULL;
        sbit_session *session = NULL;
        sbit_value_id in[6], q[3], out;
        float x[8], factor = 3.0f;
        build_begin(&b, 17);
        build_do(&b, sbit_graph_set_opset(b.graph, "com.microsoft", 1, &b.error), "opset");
        const sbit_value_id at = build_input(&b, "x", SBIT_F32, "2,4");
        const sbit_value_id f = build_input(&b, "factor", SBIT_F32, "");
        build_node_outputs(&b, "", "DynamicQuantizeLinear", "d", &at, 1, NULL, 0, q, 3);
        in[0] = q[0];
        in[1] = build_constant(&b, "b", SBIT_I8, "4,3", codes);
        in[2] = form == 1 ? f : build_binary(&b, "Mul", "s", q[1], f);
        in[3] = build_constant(&b, "w", SBIT_F32, "3", scales);
        in[4] = form == 2 ? build_constant(&b, "z", SBIT_U8, "", &zero) : q[2];
        build_node_outputs(&b, "com.microsoft", "MatMulIntegerToFloat", "m", in, 5, NULL, 0, &out, 1);
        build_output(&b, form == 1 ? build_binary(&b, "Mul", "y", out, q[1]) : out);
        for (int i = 0; i < 8; i++) {
            x[i] = 0.37f * (float)(i - 3);
        }
        const sbit_tensor input = build_tensor(SBIT_F32, "2,4", x);
        const sbit_tensor times = build_tensor(SBIT_F32, "", &factor);
        const sbit_status status = sbit_dequantize(b.graph, &plain, &b.error);
        if (form == 2) {
            CHECK(status == SBIT_ERR_UNSUPPORTED && plain == NULL);
        } else if (build_do(&b, status, "dequantize") &&
                   build_do(&b, sbit_session_create(plain, NULL, &session, &b.error), "session") &&
                   build_do(&b, sbit_session_set_input(session, "x", &input, &b.error), "x") &&
                   build_do(&b, sbit_session_set_input(session, "factor", &times, &b.error), "f") &&
                   build_do(&b, sbit_session_run(session, &b.error), "run")) {
            const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
            for (int i = 0; i < 6; i++) {
                double want = 0.0;
                for (int k = 0; k < 4; k++) {
                    want += 3.0 * (double)x[i / 3 * 4 + k] * codes[k * 3 + i % 3] *
                            (double)scales[i % 3];
                }
                CHECK_MSG(fabs(want - (double)y[i]) < 1e-4, "%d: %g, %g wanted", form, (double)y[i], want);
            }
        }
        sbit_session_destroy(session);
        sbit_graph_destroy(plain);
        build_end(&b);
    }
}

/* Few bits have a Clip in front, per channel Max and Min; it goes too. */
TEST(clips_of_few_bits_go_with_their_quantizers)
{
    static const char *const schemes[] = {"per-tensor-affine", "per-channel-affine"};
    for (size_t i = 0; i < 2; i++) {
        const char *set[][2] = {{"A.QSCHEME", schemes[i]}, {"A.QUANTIZER.BIT", "3"}, {NULL, NULL}};
        const char *weights[][2] = {{"EXPORT.FORMAT", "weights"}, {NULL, NULL}};
        formats f;
        sbit_graph *plain = NULL;
        formats_begin(&f);
        sbit_graph *quantized = formats_quantize(&f, NULL, "generic", set, true);
        if (build_do(&f.b, sbit_dequantize(quantized, &plain, &f.b.error), "dequantize")) {
            CHECK_EQ_I64(formats_nodes(plain, "Clip") + formats_nodes(plain, "Max") +
                             formats_nodes(plain, "Min"),
                         0);
        }
        sbit_graph_destroy(quantized);
        formats_same(&f, formats_quantize(&f, NULL, "generic", weights, false), plain, 1e-3);
        build_end(&f.b);
    }
}

/* Pairs, operators on integers, pairs: the same numbers. */
TEST(formats_round_trip)
{
    formats f;
    sbit_graph *integers = NULL, *again = NULL, *none = NULL;
    formats_begin(&f);
    sbit_graph *pairs = formats_quantize(&f, NULL, "generic", NULL, true);
    if (build_do(&f.b, sbit_format_convert(pairs, "qoperator", &integers, &f.b.error), "convert") &&
        build_do(&f.b, sbit_format_convert(integers, "qdq", &again, &f.b.error), "back")) {
        CHECK_EQ_I64(formats_nodes(integers, "QLinearConv"), 1);
        CHECK_EQ_I64(formats_nodes(again, "QLinearConv"), 0);
        CHECK_EQ_I64(formats_nodes(again, "QuantizeLinear"),
                     formats_nodes(pairs, "QuantizeLinear"));
    }
    sbit_graph_destroy(integers);
    CHECK(sbit_format_convert(pairs, "dynamic", &none, &f.b.error) == SBIT_ERR_UNSUPPORTED);
    CHECK(sbit_format_convert(pairs, "qdc", &none, &f.b.error) == SBIT_ERR_CONFIG);
    formats_same(&f, pairs, again, 0.0);
    build_end(&f.b);
}

/* Quantizing once more needs no data and gives the same model, bit for bit; other widths do. */
TEST(a_quantized_model_keeps_its_scales)
{
    static const char *const from[] = {"generic", "mcu", "tensorrt"};
    for (size_t i = 0; i < 3; i++) {
        const char *four[][2] = {{"A.QUANTIZER.BIT", "4"}, {NULL, NULL}};
        const char *anew[][2] = {{"SCHEDULE.KEEP_SCALES", "false"}, {NULL, NULL}};
        size_t sites = 0;
        formats f;
        formats_begin(&f);
        sbit_graph *first = formats_quantize(&f, NULL, from[i], NULL, true);
        CHECK_EQ_I64(formats_kept(&f, first, from[i], NULL, &sites), 1);
        CHECK(sites > 4);
        if (i < 2) { /* int8 and uint8 are the same grid */
            CHECK_EQ_I64(formats_kept(&f, first, "onnxruntime", NULL, &sites), 1);
            CHECK_EQ_I64(formats_kept(&f, first, from[i], four, &sites), 0);
        }
        CHECK_EQ_I64(formats_kept(&f, first, from[i], anew, &sites), 0);
        sbit_graph *second = formats_quantize(&f, first, from[i], NULL, false);
        formats_same(&f, first, second, 0.0);
        build_end(&f.b);
    }
}

/* ---- encodings: scales in files of other tools */

static sbit_quant *encodings_quant(formats *f, const char *profile)
{
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    build *b = &f->b;
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    if (!b->failed) {
        build_do(b, sbit_quant_create(b->graph, config, &quant, &b->error), "quant");
    }
    sbit_qconfig_destroy(config);
    return quant;
}

static bool encodings_calc(formats *f, sbit_quant *quant, bool data)
{
    sbit_feed_desc desc;
    sbit_feed feed;
    build *b = &f->b;
    memset(&desc, 0, sizeof desc);
    memset(&feed, 0, sizeof feed);
    desc.inputs = &f->input;
    desc.input_count = 1;
    build_do(b, sbit_feed_of_tensors(b->ctx, &desc, &feed, &b->error), "feed");
    const bool ok =
        !b->failed &&
        build_do(b,
                 data ? sbit_quant_calibrate(quant, &feed, &b->error)
                      : sbit_quant_prepare_calibration(quant, &b->error),
                 "calibrate") &&
        build_do(b, sbit_quant_calc_qparams(quant, false, false, false, &b->error), "calc");
    sbit_feed_close(&feed);
    return ok;
}

/* A weight of the root that a body reads has readers of no number in the root. */
TEST(encodings_leave_out_what_bodies_read)
{
    static const char tail[] =
        "out t f32 ...\nend\ngraph no\nMatMul h,v -> r\nout r f32 ...\nend\n"
        "in x f32 6,4,5,6\nc zero f32  = 0\nc w f32 120,7 = 1 -0.5 0.3 0.2\nc v f32 120,7 = 0.4 -0.1\nFlatten x -> h\n"
        "ReduceMax x -> m keepdims=0\nGreater m,zero -> k\nIf k -> y if then_branch=@yes else_branch=@no\nout y f32 ...\n";
    char model[4000], path[512];
    int used = snprintf(model, sizeof model, "graph yes\nIdentity h -> s0\n");
    for (int i = 0; i < 60; i++) {
        used += snprintf(model + used, sizeof model - (size_t)used, "Sin s%d -> s%d\n", i, i + 1);
    }
    snprintf(model + used, sizeof model - (size_t)used, "MatMul s60,w -> t\n%s", tail);
    formats f;
    model_bytes bytes;
    int64_t taken = 0;
    formats_begin(&f);
    sbit_graph_destroy(f.b.graph);
    f.b.graph = model_graph(f.b.ctx, model, &bytes, &f.b.error);
    test_tmp_path("encodings", path, sizeof path);
    sbit_quant *quant = encodings_quant(&f, "generic");
    if (encodings_calc(&f, quant, true)) {
        build_do(&f.b, sbit_quant_save_encodings(quant, path, "nni", &f.b.error), "save");
        build_do(&f.b, sbit_quant_load_encodings(quant, path, &taken, &f.b.error), "load");
    }
    sbit_quant_destroy(quant);
    build_end(&f.b);
    free(bytes.data);
    remove(path);
}

/* Scales go out and come back: aimet bit for bit and without data, tensorrt those of symmetric
 * activations, nni as ranges. */
TEST(encodings_come_back)
{
    static const char *const kinds[] = {"aimet", "tensorrt", "nni"};
    static const char *const profiles[] = {"generic", "mcu", "tensorrt", "openvino"};
    for (size_t i = 0; i < 12; i++) {
        const char *kind = kinds[i % 3], *profile = profiles[i / 3];
        const bool symmetric = strcmp(profile, "tensorrt") == 0;
        formats f;
        char path[512];
        int64_t taken = 0;
        sbit_site a, b;
        formats_begin(&f);
        test_tmp_path("encodings", path, sizeof path);
        sbit_quant *first = encodings_quant(&f, profile), *second = encodings_quant(&f, profile);
        if (encodings_calc(&f, first, true) &&
            build_do(&f.b, sbit_quant_save_encodings(first, path, kind, &f.b.error), "save") &&
            build_do(&f.b, sbit_quant_load_encodings(second, path, &taken, &f.b.error), "load")) {
            const size_t count = sbit_quant_site_count(first);
            const bool all = i % 3 == 0;
            CHECK_MSG(all ? taken == (int64_t)count : taken > 2, "%s %s: %d of %d", profile, kind,
                      (int)taken, (int)count);
            CHECK(!all || !sbit_quant_needs_data(second));
            encodings_calc(&f, second, !all);
            for (size_t s = 0; s < count && !f.b.failed; s++) {
                sbit_quant_site(first, s, &a);
                sbit_quant_site(second, s, &b);
                for (int64_t c = 0; c < a.qparams.grid.parts.count; c++) {
                    const double x = (double)a.qparams.scale[c], y = (double)b.qparams.scale[c];
                    const bool same = all || (symmetric && i % 3 == 1);
                    /* a table of one scale around 0 is up to twice as wide as one with a zero point
                     */
                    const double most = same ? 0.0 : i % 3 == 1 ? 1.1 * x : 1e-5 * x;
                    CHECK_MSG(fabs(x - y) <= most, "%s %s %s: %g, then %g", profile, kind, a.tensor,
                              x, y);
                    CHECK(i % 3 == 1 || a.qparams.zero_point[c] == b.qparams.zero_point[c]);
                }
            }
        }
        sbit_quant_destroy(first);
        sbit_quant_destroy(second);
        build_end(&f.b);
    }
}

/* Lines as TensorRT writes them: 0x3c010a14 is 0.007875938; names may hold colons. */
TEST(a_calibration_table_of_tensorrt)
{
    static const char text[] = "TRT-8601-EntropyCalibration2\nx: 3c010a14\r\nno: such: 3c010a14\n"
                               "relu: 3D000000\npool: 3c01\n";
    formats f;
    char path[512];
    int64_t taken = 0;
    sbit_site site;
    formats_begin(&f);
    test_tmp_path("calib.cache", path, sizeof path);
    FILE *file = fopen(path, "wb");
    if (CHECK(file != NULL)) {
        fwrite(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    sbit_quant *quant = encodings_quant(&f, "tensorrt");
    if (build_do(&f.b, sbit_quant_load_encodings(quant, path, &taken, &f.b.error), "load") &&
        encodings_calc(&f, quant, true)) {
        for (size_t s = 0; s < sbit_quant_site_count(quant); s++) {
            sbit_quant_site(quant, s, &site);
            if (strcmp(site.tensor, "x") == 0) {
                CHECK_NEAR(site.qparams.scale[0], 0.007875937968492508, 1e-15);
            } else if (strcmp(site.tensor, "relu") == 0) {
                CHECK_NEAR(site.qparams.scale[0], 0.03125, 0.0);
            }
        }
        CHECK(taken >= 1);
    }
    CHECK(sbit_quant_save_encodings(quant, path, "qnn", &f.b.error) == SBIT_ERR_NOT_FOUND);
    CHECK_CONTAINS(f.b.error.message, "tensorrt, aimet, nni");
    sbit_quant_destroy(quant);
    build_end(&f.b);
}

/* ---- why nodes are not quantized */

TEST(reasons_of_nodes_that_stay_float)
{
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_value_id in[3];
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_F32, "N,8");
    in[1] = build_weights(&b, "scale", "8", 1);
    in[2] = build_weights(&b, "shift", "8", 2);
    sbit_value_id y = build_binary(&b, "MatMul", "first", in[0], build_weights(&b, "w1", "8,8", 3));
    in[0] = build_unary(&b, "Relu", "relu", y);
    y = build_node(&b, "LayerNormalization", "norm", in, 3, NULL, 0);
    y = build_unary(&b, "Erf", "erf", y);
    y = build_binary(&b, "MatMul", "skipped", y, build_weights(&b, "w2", "8,8", 4));
    build_output(&b, build_binary(&b, "MatMul", "last", y, build_weights(&b, "w3", "8,2", 5)));
    if (build_do(&b, sbit_qconfig_create(b.ctx, "tensorrt", &config, &b.error), "config") &&
        build_do(&b, sbit_qconfig_set(config, "SKIP_TRACE_MODULES", "[skipped]", &b.error),
                 "set") &&
        build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant")) {
        static const char *const names[][2] = {{"first", ""},
                                               {"relu", "a clamp"},
                                               {"norm", "in float between quantizers"},
                                               {"erf", "no target"},
                                               {"skipped", "SKIP_TRACE_MODULES"},
                                               {"last", ""}};
        const sbit_graph *graph = sbit_quant_graph(quant);
        size_t at = 0;
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;
             id = sbit_graph_next(graph, id)) {
            CHECK_STR(sbit_graph_node(graph, id)->name, names[at][0]);
            const char *reason = sbit_quant_reason(quant, id);
            CHECK((reason[0] == '\0') == (names[at][1][0] == '\0'));
            CHECK_CONTAINS(reason, names[at][1]);
            at++;
        }
        CHECK_EQ_I64(at, 6);
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    build_end(&b);
}

/* float8 files keep their scales for float8 alone. */
TEST(a_float8_model_keeps_its_scales)
{
    const char *set[][2] = {
        {"A.QUANTIZER.TYPE", "float8_e4m3fn"}, {"W.QUANTIZER.TYPE", "float8_e5m2"}, {NULL, NULL}};
    size_t sites = 0;
    formats f;
    formats_begin(&f);
    sbit_graph *first = formats_quantize(&f, NULL, "generic", set, true);
    CHECK_EQ_I64(formats_kept(&f, first, "generic", set, &sites), 1);
    CHECK_EQ_I64(formats_kept(&f, first, "generic", NULL, &sites), 0);
    sbit_graph *second = formats_quantize(&f, first, "generic", set, false);
    formats_same(&f, first, second, 0.0);
    build_end(&f.b);
}

/* Formats and dequantization with every allocation failing in turn. */
TEST(formats_out_of_memory_free_everything)
{
    static const char *const formats_of[] = {"qoperator", "qdq", "dynamic", "matmul_nbits", ""};
    const int64_t stride = getenv("SBIT_TEST_QUICK") != NULL ? 7 : 1;
    for (size_t k = 0; k < 5; k++) {
        for (int64_t n = 1;; n += stride) {
            const char *set[][2] = {
                {"EXPORT.FORMAT", formats_of[k]}, {"W.QUANTIZER.GROUP_SIZE", "16"}, {NULL, NULL}};
            const bool later = k < 2 || k == 4; /* what is done to a model with pairs */
            test_heap heap;
            sbit_ctx_desc desc;
            sbit_graph *first = NULL, *out = NULL;
            sbit_value_id in[3];
            formats f;
            memset(&f, 0, sizeof f);
            memset(&heap, 0, sizeof heap);
            memset(&desc, 0, sizeof desc);
            desc.allocator = test_heap_allocator(&heap);
            build *b = &f.b;
            CHECK_OK(sbit_ctx_create(&desc, &b->ctx, &b->error), b->error);
            CHECK_OK(sbit_graph_create(b->ctx, 17, &b->graph, &b->error), b->error);
            in[0] = build_input(b, "x", SBIT_F32, "N,16");
            in[1] = build_weights(b, "w", "16,4", 3);
            in[2] = build_weights(b, "c", "4", 4);
            const sbit_value_id y = build_node(b, "Gemm", "gemm", in, 3, NULL, 0);
            build_output(b, build_binary(b, "MatMul", "last", build_unary(b, "Relu", "relu", y),
                                         build_weights(b, "v", "4,2", 5)));
            for (int i = 0; i < 64; i++) {
                f.x[i] = 0.01f * (float)(i - 30);
            }
            f.input = build_tensor(SBIT_F32, "4,16", f.x);
            first = later ? formats_quantize(&f, NULL, "generic", NULL, true) : NULL;
            if (k == 1) { /* back from operators on integers */
                build_do(b, sbit_format_convert(first, "qoperator", &out, &b->error), "convert");
                sbit_graph_destroy(first);
                first = out;
                out = NULL;
            }
            sbit_qconfig *config = NULL;
            build_do(b, sbit_qconfig_create(b->ctx, "generic", &config, &b->error), "config");
            for (size_t i = 0; !later && i < (k == 3 ? 2u : 1u); i++) {
                build_do(b, sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), set[i][0]);
            }
            heap.count = 0;
            heap.fail_at = n;
            sbit_status status = k == 4 ? sbit_dequantize(first, &out, &b->error)
                                 : later
                                     ? sbit_format_convert(first, formats_of[k], &out, &b->error)
                                     : sbit_quantize(b->graph, config, NULL, &out, &b->error);
            if (!later && status == SBIT_OK) { /* and back */
                sbit_graph *plain = NULL;
                status = sbit_dequantize(out, &plain, &b->error);
                sbit_graph_destroy(out);
                out = plain;
            }
            const bool all_tried = heap.count < n;
            heap.fail_at = 0;
            CHECK_MSG(status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY, "%s %d: %s",
                      formats_of[k], (int)n, b->error.message);
            CHECK((status == SBIT_OK) == (out != NULL));
            sbit_graph_destroy(out);
            sbit_graph_destroy(first);
            sbit_qconfig_destroy(config);
            build_end(b);
            CHECK_MSG(heap.live_bytes == 0, "%s %d: %d bytes are left", formats_of[k], (int)n,
                      (int)heap.live_bytes);
            if (all_tried || test_state.checks_failed > 0) {
                CHECK(n > 20);
                break;
            }
        }
    }
}

/* MatMulNBits with an index of the block of each input (act-order), against plain arithmetic. */
TEST(codes_whose_blocks_are_listed)
{
    enum {
        K = 32,
        N = 2
    };
    uint8_t codes[N * K / 2];
    float scales[N * 2], x[K];
    int32_t index[K];
    build b;
    sbit_session *session = NULL;
    sbit_value_id in[5], out = {0};
    sbit_attr attrs[4];
    sbit_rng rng = sbit_rng_seed(6);
    for (int i = 0; i < N * K / 2; i++) {
        codes[i] = (uint8_t)sbit_rng_below(&rng, 256);
    }
    for (int i = 0; i < N * 2; i++) {
        scales[i] = 0.1f + sbit_rng_uniform(&rng);
    }
    for (int i = 0; i < K; i++) {
        x[i] = sbit_rng_normal(&rng);
        index[i] = i % 2;
    }
    build_begin(&b, 17);
    build_do(&b, sbit_graph_set_opset(b.graph, "com.microsoft", 1, &b.error), "opset");
    memset(in, 0, sizeof in);
    in[0] = build_input(&b, "x", SBIT_F32, "1,32");
    in[1] = build_constant(&b, "codes", SBIT_U8, "2,2,8", codes);
    in[2] = build_constant(&b, "scales", SBIT_F32, "2,2", scales);
    in[4] = build_constant(&b, "index", SBIT_I32, "32", index);
    attrs[0] = build_int("K", K);
    attrs[1] = build_int("N", N);
    attrs[2] = build_int("bits", 4);
    attrs[3] = build_int("block_size", 16);
    build_node_outputs(&b, "com.microsoft", "MatMulNBits", "nbits", in, 5, attrs, 4, &out, 1);
    build_output(&b, out);
    const sbit_tensor input = build_tensor(SBIT_F32, "1,32", x);
    if (build_do(&b, sbit_session_create(b.graph, NULL, &session, &b.error), "session") &&
        build_do(&b, sbit_session_set_input(session, "x", &input, &b.error), "input") &&
        build_do(&b, sbit_session_run(session, &b.error), "run")) {
        for (int n = 0; n < N; n++) {
            double sum = 0.0;
            for (int k = 0; k < K; k++) {
                const int code = codes[(n * K + k) / 2] >> k % 2 * 4 & 15;
                sum += (double)x[k] * (code - 8) * (double)scales[n * 2 + index[k]];
            }
            CHECK_NEAR(((const float *)sbit_session_output(session, 0)->tensor.data)[n], sum, 1e-4);
        }
    }
    sbit_session_destroy(session);
    session = NULL;
    attrs[0].i = 48; /* codes and scales are of 32 inputs */
    build_node_outputs(&b, "com.microsoft", "MatMulNBits", "bad", in, 3, attrs, 4, &out, 1);
    build_output(&b, out);
    CHECK(sbit_session_create(b.graph, NULL, &session, &b.error) != SBIT_OK ||
          sbit_session_set_input(session, "x", &input, &b.error) != SBIT_OK ||
          sbit_session_run(session, &b.error) != SBIT_OK);
    sbit_session_destroy(session);
    build_end(&b);
}
