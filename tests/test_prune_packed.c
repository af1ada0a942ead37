/* test_prune_packed.c: models that are quantized already are pruned: the smaller file computes what
 * the masked one does (the library compares them), integers and scales of what stays are the same.
 * And what a removed channel leaves behind activations and operators of users; patterns of elements, weight by weight.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"
#include "model_text.h"

#include <math.h> /* exp, erf ... */

static sbit_graph *quantized(build *b, const sbit_graph *graph, const char *const (*set)[2], const sbit_feed *feed)
{
    sbit_qconfig *config = NULL;
    sbit_graph *out = NULL;
    CHECK_OK(sbit_qconfig_create(b->ctx, "generic", &config, &b->error), b->error);
    for (size_t i = 0; set[i][0] != NULL; i++) {
        CHECK_OK(sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), b->error);
    }
    CHECK_OK(sbit_quantize(graph, config, feed, &out, &b->error), b->error);
    sbit_qconfig_destroy(config);
    return out;
}

static const sbit_node *node_of(const sbit_graph *graph, const char *op, int index)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        if (strcmp(sbit_graph_node(graph, id)->op_type, op) == 0 && index-- == 0) {
            return sbit_graph_node(graph, id);
        }
    }
    return NULL;
}

/* MLP of 32 inputs, `hidden` units and 4 outputs; rows of the first weight grow with their index. */
static void mlp(build *b, const char *hidden, int n)
{
    static float w[32 * 64];
    char dims[2][32];
    sbit_rng rng = sbit_rng_seed(3);
    for (int i = 0; i < 32 * n; i++) {
        w[i] = sbit_rng_normal(&rng) * (0.05f + (float)(i % n) / (float)n);
    }
    snprintf(dims[0], sizeof dims[0], "32,%s", hidden);
    snprintf(dims[1], sizeof dims[1], "%s,4", hidden);
    sbit_value_id x = build_input(b, "x", SBIT_F32, "N,32");
    x = build_binary(b, "MatMul", "fc1", x, build_constant(b, "fc1.weight", SBIT_F32, dims[0], w));
    x = build_unary(b, "Relu", "relu", x);
    build_output(b, build_binary(b, "MatMul", "fc2", x, build_weights(b, "fc2.weight", dims[1], 2)));
}

static sbit_graph *pruned(build *b, const sbit_graph *graph, const char *text)
{
    sbit_sconfig *config = NULL;
    sbit_graph *out = NULL;
    CHECK_OK(sbit_sconfig_read(b->ctx, text, strlen(text), &config, &b->error), b->error);
    CHECK_OK(sbit_prune(graph, config, NULL, &out, &b->error), b->error);
    sbit_sconfig_destroy(config);
    return out;
}

/* Half of 64 units go, the first: what stays has the integers and scales that it had. */
TEST(integers_and_scales_of_what_stays_are_the_same)
{
    static const char *const formats[] = {"qdq", "qoperator"};
    static const char *const plain[][2] = {{NULL, NULL}};
    float data[16 * 32];
    sbit_rng rng = sbit_rng_seed(7);
    for (int i = 0; i < 16 * 32; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    const sbit_tensor x = build_tensor(SBIT_F32, "16,32", data);
    for (int f = 0; f < 2; f++) {
        build b;
        sbit_feed feed;
        sbit_feed_desc desc;
        sbit_graph *q = NULL, *out = NULL;
        memset(&desc, 0, sizeof desc);
        desc.inputs = &x;
        desc.input_count = 1;
        build_begin(&b, 17);
        mlp(&b, "64", 64);
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
        if (!b.failed && (q = quantized(&b, b.graph, plain, &feed)) != NULL) {
            sbit_graph *again = NULL;
            CHECK_OK(sbit_format_convert(q, formats[f], &again, &b.error), b.error);
            out = again != NULL ? pruned(&b, again, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n") : NULL;
            const char *op = f == 0 ? "DequantizeLinear" : "QLinearMatMul";
            int found = 0;
            for (int i = 0; out != NULL && node_of(out, op, i) != NULL; i++) {
                const sbit_node *now = node_of(out, op, i), *was = NULL;
                const size_t at = f == 0 ? 0 : 3;
                const sbit_tensor *a = &sbit_graph_value(out, now->inputs[at])->constant, *c = NULL;
                for (int k = 0; (was = node_of(again, op, k)) != NULL; k++) {
                    if (strcmp(sbit_graph_value(again, was->outputs[0])->name,
                               sbit_graph_value(out, now->outputs[0])->name) == 0) {
                        c = &sbit_graph_value(again, was->inputs[at])->constant;
                        break;
                    }
                }
                if (was == NULL || a->data == NULL || a->rank != 2 || !CHECK(c != NULL && c->data != NULL)) {
                    continue;
                }
                const bool first = c->dims[0] == 32;
                const sbit_tensor *s = &sbit_graph_value(out, now->inputs[at + 1])->constant;
                const sbit_tensor *t = &sbit_graph_value(again, was->inputs[at + 1])->constant;
                CHECK_EQ_I64(a->dims[first ? 1 : 0], 32);
                CHECK_EQ_I64(a->dims[first ? 0 : 1], c->dims[first ? 0 : 1]);
                for (int64_t r = 0; r < a->dims[0]; r++) { /* the larger rows stay: mostly the last */
                    for (int64_t k = 0; !first && k < a->dims[1]; k++) {
                        bool same = false;
                        for (int64_t o = r; o < c->dims[0] && !same; o++) {
                            same = memcmp((const int8_t *)a->data + r * 4, (const int8_t *)c->data + o * 4, 4) == 0;
                        }
                        CHECK(same);
                    }
                }
                CHECK_EQ_I64(sbit_tensor_count(s),
                             sbit_tensor_count(t) == 1 ? 1 : first ? 32 : sbit_tensor_count(t));
                found++;
            }
            CHECK(f == 1 || found == 2);
            CHECK(f == 0 || (out != NULL && node_of(out, "QLinearMatMul", 0) != NULL));
            sbit_graph_destroy(again);
        }
        sbit_graph_destroy(out);
        sbit_graph_destroy(q);
        sbit_feed_close(&feed);
        build_end(&b);
    }
}

/* Blocks of 16 of 64 hidden units: whole blocks go, with their scales, and it is MatMulNBits again. */
TEST(blocks_go_as_a_whole)
{
    static const char *const blocks[][2] = {{"W.QUANTIZER.GROUP_SIZE", "16"}, {"W.QUANTIZER.BIT", "4"},
                                            {"A.QUANTIZER.BIT", "0"}, {"EXPORT.FORMAT", "matmul_nbits"}, {NULL, NULL}};
    build b;
    sbit_graph *q = NULL, *out = NULL;
    build_begin(&b, 21);
    mlp(&b, "64", 64);
    if (!b.failed &&
        (q = quantized(&b, b.graph, blocks, NULL)) != NULL) {
        out = pruned(&b, q, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.4}\n"); /* 1 of 4 blocks */
        const sbit_node *first = out != NULL ? node_of(out, "MatMulNBits", 0) : NULL;
        const sbit_node *second = out != NULL ? node_of(out, "MatMulNBits", 1) : NULL;
        if (CHECK(first != NULL && second != NULL)) {
            CHECK_EQ_I64(sbit_node_int(first, "N", 0), 48);
            CHECK_EQ_I64(sbit_node_int(second, "K", 0), 48);
            CHECK_EQ_I64(sbit_node_int(second, "bits", 0), 4);
            CHECK_EQ_I64(sbit_tensor_count(&sbit_graph_value(out, second->inputs[2])->constant), 4 * 3);
        }
    }
    sbit_graph_destroy(out);
    sbit_graph_destroy(q);
    build_end(&b);
}

/* ---- files of other makers: each layer as it may stand there */

/* Integers without a pattern that channels share. */
#define ODD "1 -7 13 -22 5 31 -3 17 -40 8 2 -11 29 -5 19 -60 4 9 -2 37 -15 6 -33 12 50 -1 23 -8 3 -27 14 44 -10"
#define QDQ(in, out) "QuantizeLinear " in ",as,az -> " in "_q\nDequantizeLinear " in "_q,as,az -> " out "\n"
#define GRID "c as f32 = 0.1\nc az i8 = 0\n"

static const struct {
    const char *name, *text;
    const char *constant, *dims; /* of the smaller file, by the node's name; "": all channels stay ... */
    const char *reason;          /* ... because of that */
} files[] = {
    {"a residual of two convolutions",
     "in x f32 1,4,6,6\n" GRID "c w1 i8 8,4,3,3 = " ODD "\nc s1 f32 8 = 0.01 0.02 0.005 0.04\nc z1 i8 8 = 0\n"
     "c b1 i32 8 = 100 -50 20 7\nc sb f32 8 = 0.001 0.002 0.0005 0.004\n"
     "c w2 i8 8,8,3,3 = " ODD "\nc w3 i8 2,8,1,1 = " ODD "\nc s3 f32 = 0.02\n" QDQ("x", "xd")
     "DequantizeLinear w1,s1,z1 -> w1f axis=0\nDequantizeLinear b1,sb -> b1f axis=0\nConv xd,w1f,b1f -> a conv1 pads=[1,1,1,1]\n"
     "Relu a -> ar\n" QDQ("ar", "ad")
     "DequantizeLinear w2,s1,z1 -> w2f axis=0\nConv ad,w2f -> b conv2 pads=[1,1,1,1]\n" QDQ("b", "bd")
     "Add ad,bd -> r\n" QDQ("r", "rd") "DequantizeLinear w3,s3 -> w3f\nConv rd,w3f -> y conv3\nout y f32 1,2,6,6\n",
     "conv3 conv2 conv1", "2,4,1,1 4,4,3,3 4,4,3,3", ""},
    {"a depthwise convolution",
     "in x f32 1,4,6,6\n" GRID "c w1 i8 8,4,1,1 = " ODD "\nc s1 f32 8 = 0.01 0.02 0.005 0.04\nc z1 i8 8 = 0\n"
     "c w2 i8 8,1,3,3 = " ODD "\nc w3 i8 2,8,1,1 = " ODD "\nc s3 f32 = 0.02\n" QDQ("x", "xd")
     "DequantizeLinear w1,s1,z1 -> w1f axis=0\nConv xd,w1f -> a conv1\n" QDQ("a", "ad")
     "DequantizeLinear w2,s1,z1 -> w2f axis=0\nConv ad,w2f -> b dw group=8 pads=[1,1,1,1]\nClip b,lo,hi -> bc\n"
     "c lo f32 = 0\nc hi f32 = 6\n" QDQ("bc", "bd") "DequantizeLinear w3,s3 -> w3f\nConv bd,w3f -> y conv3\nout y f32 1,2,6,6\n",
     "conv3 dw conv1", "2,4,1,1 4,1,3,3 4,4,1,1", ""},
    {"products of integers with dynamic ranges",
     "in x f32 3,6\nc w1 i8 6,8 = " ODD "\nc s1 f32 = 0.01\nc z1 i8 = 0\nc w2 i8 8,2 = " ODD "\nc s2 f32 = 0.02\n"
     "DynamicQuantizeLinear x -> q,qs,qz\nMatMulInteger q,w1,qz,z1 -> i fc1\nCast i -> f to=1\nMul qs,s1 -> s\nMul f,s -> a\nRelu a -> ar\n"
     "DynamicQuantizeLinear ar -> q2,qs2,qz2\n"
     "MatMulInteger q2,w2,qz2,z1 -> i2 fc2\nCast i2 -> f2 to=1\nMul qs2,s2 -> t\nMul f2,t -> y\nout y f32 3,2\n",
     "", "", "MatMulInteger"},
    {"blocked weights whose columns were ordered",
     "opset 21\nopset 1 com.microsoft\nin x f32 3,32\nc w1 f32 32,64 = " ODD "\n"
     "c b u8 4,4,8 = 18 52 99 200 7 250 33 128 64 5 77\nc sc f32 16 = 0.01 0.03 0.02\n"
     "c g i32 64 = 0 1 2 3\nMatMul x,w1 -> a fc1\nRelu a -> ar\n"
     "com.microsoft:MatMulNBits ar,b,sc,,g -> y fc2 K=64 N=4 bits=4 block_size=16\nout y f32 3,4\n",
     "", "", "MatMulNBits"},
};

/* "2,4,1,1" of the integers behind input 1 of a node. */
static void dims_of(const sbit_graph *graph, const char *name, char *out, size_t size)
{
    out[0] = '\0';
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (strcmp(node->name, name) == 0) {
            const sbit_type *type = &sbit_graph_value(graph, node->inputs[1])->type;
            for (int32_t i = 0; i < type->rank; i++) {
                const size_t n = strlen(out);
                snprintf(out + n, size - n, "%s%lld", i > 0 ? "," : "", (long long)type->dims[i].value);
            }
        }
    }
}

TEST(files_of_other_makers)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        static const char half[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n";
        build b; /* hears warnings */
        build_begin(&b, 17);
        sbit_ctx *ctx = b.ctx;
        sbit_error error;
        model_bytes bytes;
        sbit_graph *graph = model_graph(ctx, files[i].text, &bytes, &error), *out = NULL;
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        if (CHECK_MSG(graph != NULL, "%s: %s", files[i].name, error.message) &&
            CHECK_OK(sbit_sconfig_read(ctx, half, strlen(half), &config, &error), error) &&
            CHECK_OK(sbit_sparse_create(graph, config, &sparse, &error), error) &&
            CHECK_OK(sbit_sparse_select(sparse, NULL, &error), error) &&
            CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &error), error)) { /* compared with the masked one there */
            const char *nodes = files[i].constant, *dims = files[i].dims;
            for (; nodes[0] != '\0'; nodes += nodes[strcspn(nodes, " ")] != '\0') {
                char name[40], got[60], wanted[60];
                const int n = (int)strcspn(nodes, " "), d = (int)strcspn(dims, " ");
                snprintf(name, sizeof name, "%.*s", n, nodes);
                snprintf(wanted, sizeof wanted, "%.*s", d, dims);
                dims_of(out, name, got, sizeof got);
                CHECK_MSG(strcmp(got, wanted) == 0, "%s: %s has %s, not %s", files[i].name, name, got, wanted);
                nodes += n;
                dims += d + (dims[d] != '\0');
            }
            for (size_t g = 0; files[i].reason[0] != '\0' && g < sbit_sparse_group_count(sparse); g++) {
                sbit_sparse_group group;
                CHECK_OK(sbit_sparse_group_at(sparse, g, &group), error);
                CHECK_EQ_I64(group.kept, group.channels);
                CHECK_CONTAINS(group.reason, files[i].reason);
            }
        }
        sbit_graph_destroy(out);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        if (files[i].reason[0] != '\0') { /* said at once */
            CHECK_CONTAINS(b.warning, "prune the float model, then quantize it");
        }
        sbit_graph_destroy(graph);
        free(bytes.data);
        build_end(&b);
    }
}

/* Integers count as the bytes that they are: a float layer that stays is as large as four of them. */
TEST(budgets_count_what_the_file_holds)
{
    static const char model[] =
        "in x f32 1,16\n" GRID "c w1 i8 32,16 = " ODD "\nc s1 f32 = 0.01\nc w2 i8 4,32 = " ODD "\nc w0 f32 16,4 = " ODD "\n" QDQ("x", "xd")
        "DequantizeLinear w1,s1 -> w1f\nGemm xd,w1f -> a fc1 transB=1\n" QDQ("a", "ad")
        "DequantizeLinear w2,s1 -> w2f\nGemm ad,w2f -> b fc2 transB=1\nMatMul xd,w0 -> c0 fc0\nAdd b,c0 -> y\nout y f32 1,4\n";
    static const char text[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n";
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    sbit_graph *graph = model_graph(ctx, model, &bytes, &error), *out = NULL;
    sbit_sconfig *config = NULL;
    sbit_sparse *sparse = NULL;
    sbit_sparse_budget budget;
    sbit_graph_cost before, after;
    memset(&budget, 0, sizeof budget);
    budget.bytes = 0.6;
    if (CHECK(graph != NULL) && CHECK_OK(sbit_sconfig_read(ctx, text, strlen(text), &config, &error), error) &&
        CHECK_OK(sbit_sparse_create(graph, config, &sparse, &error), error) &&
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &error), error) &&
        CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &error), error) &&
        CHECK_OK(sbit_graph_cost_of(graph, &before, &error), error) &&
        CHECK_OK(sbit_graph_cost_of(out, &after, &error), error)) {
        const double left = (double)after.weight_bytes / (double)before.weight_bytes;
        CHECK_MSG(left <= 0.6 && left > 0.55, "%.3f of %d bytes", left, (int)before.weight_bytes);
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    sbit_graph_destroy(graph);
    free(bytes.data);
    sbit_ctx_destroy(ctx);
}

/* A table of times in which the first layer takes 10 us a unit and nothing else anything: half of the
 * time is half of the units, whatever the integers are packed in. */
TEST(a_budget_of_time_holds_for_quantized_models)
{
    static const char *const formats[] = {"qdq", "qoperator"};
    static const char *const plain[][2] = {{NULL, NULL}};
    static const char *const prune = "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n";
    const char *path = SBIT_TEST_TMP "/packed_times.json";
    float data[16 * 32];
    sbit_rng rng = sbit_rng_seed(7);
    for (int i = 0; i < 16 * 32; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    const sbit_tensor x = build_tensor(SBIT_F32, "16,32", data);
    for (int f = 0; f < 2; f++) {
        build b;
        sbit_feed feed;
        sbit_feed_desc desc;
        sbit_sparse_budget budget;
        sbit_graph *q = NULL, *packed = NULL, *graph = NULL, *out = NULL;
        sbit_sparse *sparse = NULL;
        sbit_sconfig *config = NULL;
        memset(&desc, 0, sizeof desc);
        memset(&budget, 0, sizeof budget);
        desc.inputs = &x;
        desc.input_count = 1;
        build_begin(&b, 17);
        mlp(&b, "64", 64);
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
        q = quantized(&b, b.graph, plain, &feed);
        if (q != NULL && CHECK_OK(sbit_format_convert(q, formats[f], &packed, &b.error), b.error) &&
            CHECK_OK(sbit_sconfig_read(b.ctx, prune, strlen(prune), &config, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_create(packed, config, &sparse, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_masked(sparse, &graph, &b.error), b.error)) { /* as what is timed: its names */
            const sbit_node *layer = node_of(graph, f == 0 ? "MatMul" : "QLinearMatMul", 0);
            FILE *file = fopen(path, "wb");
            for (sbit_node_id id = sbit_graph_first(graph); file != NULL && id.idx != 0; id = sbit_graph_next(graph, id)) {
                const sbit_node *node = sbit_graph_node(graph, id);
                const char *name = sbit_graph_value(graph, node->outputs[0])->name;
                fprintf(file, "%s\"%s\": [%s]", id.idx == sbit_graph_first(graph).idx ? "{\"microseconds\": {" : ", ", name,
                        node == layer ? "0, 0, 2048, 640" : "1, 0");
            }
            if (CHECK(file != NULL)) {
                fputs("}}", file);
                fclose(file);
            }
            budget.latency = 0.5;
            if (CHECK_OK(sbit_latency_load(b.ctx, path, &budget.times, &b.error), b.error)) {
                CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
                CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error);
            }
            if (out != NULL) { /* 32 units are left, as integers */
                const sbit_node *node = node_of(out, f == 0 ? "DequantizeLinear" : "QLinearMatMul", f == 0 ? 1 : 0);
                bool found = false;
                for (size_t i = 0; node != NULL && i < node->input_count; i++) {
                    const sbit_value_info *value = sbit_graph_value(out, node->inputs[i]);
                    found = found || (value->is_constant && value->constant.dtype == SBIT_I8 && value->constant.rank == 2 &&
                                      value->constant.dims[0] == 32 && value->constant.dims[1] == 32);
                }
                CHECK_MSG(found, "%s", formats[f]);
            }
            sbit_latency_destroy(budget.times);
        }
        remove(path);
        sbit_graph_destroy(graph);
        sbit_graph_destroy(out);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        sbit_graph_destroy(packed);
        sbit_graph_destroy(q);
        sbit_feed_close(&feed);
        build_end(&b);
    }
}

/* ---- biases that stay: what every activation of torch's pruner makes of a removed channel goes into the layer
 * behind, as the ONNX nodes that torch writes for it */

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double clip(double x, double least, double most) { return x < least ? least : x > most ? most : x; }
static double softplus(double x) { return log1p(exp(x)); }

static double f_relu(double x) { return x > 0 ? x : 0; }
static double f_rrelu(double x) { return x > 0 ? x : 0.22916666 * x; } /* evaluated: between 1/8 and 1/3 */
static double f_hardtanh(double x) { return clip(x, -1, 1); }
static double f_relu6(double x) { return clip(x, 0, 6); }
static double f_hardsigmoid(double x) { return clip(x / 6 + 0.5, 0, 1); }
static double f_silu(double x) { return x * sigmoid(x); }
static double f_mish(double x) { return x * tanh(softplus(x)); }
static double f_hardswish(double x) { return x * clip(x + 3, 0, 6) / 6; }
static double f_elu(double x) { return x > 0 ? x : expm1(x); }
static double f_celu(double x) { return x > 0 ? x : 1.5 * expm1(x / 1.5); }
static double f_selu(double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x)); }
static double f_hardshrink(double x) { return fabs(x) > 0.5 ? x : 0; }
static double f_softshrink(double x) { return x > 0.5 ? x - 0.5 : x < -0.5 ? x + 0.5 : 0; }
static double f_leaky(double x) { return x > 0 ? x : 0.01 * x; }
static double f_logsigmoid(double x) { return -softplus(-x); }
static double f_prelu(double x) { return x > 0 ? x : 0.25 * x; }
static double f_softsign(double x) { return x / (1 + fabs(x)); }
static double f_tanhshrink(double x) { return x - tanh(x); }
static double f_gelu(double x) { return 0.5 * x * (1 + erf(x / sqrt(2.0))); }
static double f_gelu_tanh(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

/* a -> h. Where torch has written it in two ways, both. */
static const struct {
    const char *name;
    double (*f)(double x);
    const char *nodes;
} activations[] = {
    {"relu", f_relu, "Relu a -> h\n"},
    {"rrelu", f_rrelu, "LeakyRelu a -> h alpha=0.22916667\n"},
    {"hardtanh", f_hardtanh, "c lo f32 = -1\nc hi f32 = 1\nClip a,lo,hi -> h\n"},
    {"relu6", f_relu6, "c lo f32 = 0\nc hi f32 = 6\nClip a,lo,hi -> h\n"},
    {"sigmoid", sigmoid, "Sigmoid a -> h\n"},
    {"hardsigmoid", f_hardsigmoid, "HardSigmoid a -> h alpha=0.16666667 beta=0.5\n"},
    {"tanh", tanh, "Tanh a -> h\n"},
    {"silu", f_silu, "Sigmoid a -> s\nMul a,s -> h\n"},
    {"mish", f_mish, "Softplus a -> s\nTanh s -> t\nMul a,t -> h\n"},
    {"mish", f_mish, "Mish a -> h\n"},
    {"hardswish", f_hardswish, "HardSwish a -> h\n"},
    {"hardswish", f_hardswish, "c three f32 = 3\nc lo f32 = 0\nc hi f32 = 6\nAdd a,three -> s\nClip s,lo,hi -> t\nMul a,t -> u\nDiv u,hi -> h\n"},
    {"elu", f_elu, "Elu a -> h\n"},
    {"celu", f_celu, "Celu a -> h alpha=1.5\n"},
    {"selu", f_selu, "Selu a -> h\n"},
    {"hardshrink", f_hardshrink, "Shrink a -> h lambd=0.5 bias=0.0\n"},
    {"hardshrink", f_hardshrink,
     "c most f32 = 0.5\nc least f32 = -0.5\nc zero f32 = 0\nGreater a,most -> g\nLess a,least -> l\nOr g,l -> o\nWhere o,a,zero -> h\n"},
    {"softshrink", f_softshrink, "Shrink a -> h lambd=0.5 bias=0.5\n"},
    {"leaky_relu", f_leaky, "LeakyRelu a -> h alpha=0.01\n"},
    {"logsigmoid", f_logsigmoid, "Sigmoid a -> s\nLog s -> h\n"},
    {"softplus", softplus, "Softplus a -> h\n"},
    {"prelu", f_prelu, "c slope f32 1 = 0.25\nPRelu a,slope -> h\n"},
    {"prelu", f_prelu, "c slope f32 8 = 0.25\nPRelu a,slope -> h\n"},
    {"softsign", f_softsign, "c one f32 = 1\nAbs a -> s\nAdd s,one -> t\nDiv a,t -> h\n"},
    {"softsign", f_softsign, "Softsign a -> h\n"},
    {"tanhshrink", f_tanhshrink, "Tanh a -> t\nSub a,t -> h\n"},
    {"gelu", f_gelu,
     "c two f32 = 1.4142135\nc one f32 = 1\nc half f32 = 0.5\nDiv a,two -> s\nErf s -> t\nAdd t,one -> u\nMul a,u -> v\nMul v,half -> h\n"},
    {"gelu", f_gelu, "Gelu a -> h\n"},
    {"gelu", f_gelu_tanh, "Gelu a -> h approximate=tanh\n"},
};

/* Rows 0, 2, 5 and 7 have no weights, and go; these are their biases. */
static const double removed[] = {-4.25, -0.375, 0.75, 7.5};
static const int removed_at[] = {0, 2, 5, 7};
#define MODEL \
    "opset 20\nin x f32 2,3\nc b f32 8 = -4.25 1 -0.375 2 -1 0.75 0.5 7.5\nc w f32 8,3 = 0 0 0 1 -2 3 0 0 0 2 1 -1 -3 1 2 0 0 0 1 4 -1 0 0 0\n" \
    "c w2 f32 2,8 = 1 2 -3 4 5 -0.5 7 2 0.25 1 1 1 1 3 1 -1\nGemm x,w,b -> a fc1 transB=1\n%sGemm h,w2 -> y fc2 transB=1\nout y f32 2,2\n"

TEST(what_activations_make_of_biases_is_folded)
{
    static const float w2[2][8] = {{1, 2, -3, 4, 5, -0.5f, 7, 2}, {0.25f, 1, 1, 1, 1, 3, 1, -1}};
    static const char half[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: false}\n";
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++) {
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        sbit_graph *out = NULL;
        sbit_sconfig *config = NULL;
        char text[1200];
        snprintf(text, sizeof text, MODEL, activations[i].nodes);
        sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
        if (CHECK(graph != NULL) && CHECK_OK(sbit_sconfig_read(ctx, half, strlen(half), &config, &error), error) &&
            CHECK_OK(sbit_prune(graph, config, NULL, &out, &error), error)) {
            const sbit_value_id w = sbit_graph_find_value(out, "w"), folded = sbit_graph_find_value(out, "folded");
            CHECK_MSG(w.idx != 0 && sbit_graph_value(out, w)->constant.dims[0] == 4 && folded.idx != 0, "%s: not 4 of 8 channels are left",
                      activations[i].name);
            for (int o = 0; o < 2 && folded.idx != 0; o++) {
                double wanted = 0.0, size = 0.0;
                for (int k = 0; k < 4; k++) {
                    const double term = (double)w2[o][removed_at[k]] * activations[i].f(removed[k]);
                    wanted += term;
                    size += fabs(term);
                }
                const double got = (double)((const float *)sbit_graph_value(out, folded)->constant.data)[o];
                CHECK_MSG(fabs(got - wanted) <= 1e-6 * size, "%s: %.9g goes into output %d, not %.9g", activations[i].name, got, o,
                          wanted);
            }
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        sbit_graph_destroy(graph);
        free(bytes.data);
        sbit_ctx_destroy(ctx);
    }
}

/* ---- operators of users */

static sbit_status same_infer(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    if (call->out_type[0] != NULL) {
        *call->out_type[0] = *call->in_type[0];
    }
    return SBIT_OK;
}

static sbit_status double_run(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(call->in[0]); i++) {
        ((float *)call->out[0]->data)[i] = 2.0f * ((const float *)call->in[0]->data)[i];
    }
    return SBIT_OK;
}

/* Channels go through but the first of them. */
static sbit_status all_but_the_first(const sbit_channel_call *call, sbit_error *error)
{
    const int32_t *labels = NULL;
    const sbit_status status = call->labels(call, 0, 1, 1, SBIT_ROLE_PARAM, &labels, error);
    if (status != SBIT_OK) {
        return status;
    }
    call->fix(call, labels[0], "is the first");
    return call->produce(call, 0, 1, labels, error);
}

/* A rule of a user's operator counts, and one of his in place of a built-in row's too. */
TEST(users_rules_say_how_channels_go)
{
    static const sbit_op_channel through = {SBIT_CHANNEL_ELEMENTWISE, 1, 0, 0, 0, NULL};
    static const sbit_op_channel some = {SBIT_CHANNEL_OWN, 1, 0, 0, 0, all_but_the_first};
    static const struct {
        const char *domain, *op;
        const sbit_op_channel *channel;
        int64_t kept; /* of 8; half have no weights, the first is one of them */
        bool first;   /* it stays */
        const char *reason;
    } cases[] = {
        {"", "Relu", &through, 4, false, ""},
        {"com.example", "Double", &through, 4, false, ""},
        {"com.example", "Double", NULL, 8, true, "has no rule for channels"},
        {"com.example", "Double", &some, 4, true, "is the first"},
        {"", "Softsign", NULL, 8, true, "has no rule for channels"},
        {"", "Softsign", &some, 4, true, "is the first"},
    };
    static const char half[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        sbit_graph *out = NULL;
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        sbit_sparse_group group;
        sbit_op_row row;
        char text[1200], node[60];
        memset(&row, 0, sizeof row);
        memset(&group, 0, sizeof group);
        row.domain = cases[i].domain;
        row.op_type = cases[i].op;
        row.since_version = 1;
        row.types = SBIT_T(SBIT_F32);
        row.infer = same_infer;
        row.run = double_run;
        row.channel = cases[i].channel;
        CHECK_OK(sbit_operator_register(ctx, &row, &error), error);
        snprintf(node, sizeof node, "%s%s%s a -> h\n", row.domain, row.domain[0] != '\0' ? ":" : "", row.op_type);
        snprintf(text, sizeof text, "%s" MODEL, row.domain[0] != '\0' ? "opset 1 com.example\n" : "", node);
        sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
        if (CHECK(graph != NULL) && CHECK_OK(sbit_sconfig_read(ctx, half, strlen(half), &config, &error), error) &&
            CHECK_OK(sbit_sparse_create(graph, config, &sparse, &error), error) &&
            CHECK_OK(sbit_sparse_select(sparse, NULL, &error), error) &&
            CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &error), error) &&
            CHECK_OK(sbit_sparse_group_at(sparse, 0, &group), error)) {
            CHECK_MSG(group.kept == cases[i].kept, "%s, case %d: %d are kept", cases[i].op, (int)i, (int)group.kept);
            CHECK_CONTAINS(group.reason, cases[i].reason);
            const sbit_tensor *w = &sbit_graph_value(out, sbit_graph_find_value(out, "w"))->constant;
            CHECK_EQ_I64(w->dims[0], cases[i].kept);
            CHECK((((const float *)w->data)[0] == 0.0f) == cases[i].first);
        }
        sbit_graph_destroy(out);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        sbit_graph_destroy(graph);
        free(bytes.data);
        sbit_ctx_destroy(ctx);
    }
}

/* ---- patterns: N of M and blocks, of every weight of every kind of layer */

static const struct {
    const char *name;
    int rows, columns; /* axes of outputs and inputs */
} patterned[] = {{"w1", 0, 1}, {"w2", 0, 1}, {"w3", 1, 0}, {"w4", 0, 1}, {"w5", 1, 0}, {"w6", 0, 1}};
#define LAYERS \
    "in x f32 1,8,6,6\nc w1 f32 12,8,3,3 = " ODD "\nc w2 f32 12,6,1,1 = " ODD "\nc w3 f32 12,10,2,2 = " ODD "\nc w4 f32 16,10 = " ODD "\n" \
    "c w5 f32 16,9 = " ODD "\nc w6 f32 7,9 = " ODD "\nConv x,w1 -> a\nConv a,w2 -> b group=2\nConvTranspose b,w3 -> d\nGlobalAveragePool d -> e\n" \
    "Flatten e -> f\nGemm f,w4 -> g transB=1\nMatMul g,w5 -> h\nGemm h,w6 -> y transB=1\nout y f32 1,7\n"

/* Element (r, c, k) of a weight with these axes; k: places of the kernel. */
static float weight_at(const sbit_tensor *w, int rows, int64_t r, int64_t c, int64_t k)
{
    const int64_t places = w->rank == 4 ? w->dims[2] * w->dims[3] : 1;
    const int64_t first = rows == 0 ? r : c, second = rows == 0 ? c : r;
    return ((const float *)w->data)[(first * w->dims[1] + second) * places + k];
}

/* Of the runs of `m` inputs `n` go, of shorter ones fewer, and they are the smallest. */
static void check_runs(const char *name, const sbit_tensor *was, const sbit_tensor *now, int rows, int columns, int64_t n, int64_t m)
{
    const int64_t places = was->rank == 4 ? was->dims[2] * was->dims[3] : 1;
    int wrong = 0;
    for (int64_t i = 0; i < was->dims[rows] * places; i++) {
        for (int64_t first = 0; first < was->dims[columns]; first += m) {
            const int64_t end = first + m < was->dims[columns] ? first + m : was->dims[columns];
            const int64_t wanted = n - (m - (end - first)) > 0 ? n - (m - (end - first)) : 0;
            double largest = 0.0, smallest = 1e30;
            int64_t gone = 0;
            for (int64_t c = first; c < end; c++) {
                const float before = weight_at(was, rows, i / places, c, i % places);
                const float after = weight_at(now, rows, i / places, c, i % places);
                const double size = fabs((double)before);
                gone += after == 0.0f;
                wrong += after != 0.0f && after != before;
                largest = after == 0.0f && size > largest ? size : largest;
                smallest = after != 0.0f && size < smallest ? size : smallest;
            }
            wrong += gone != wanted || largest > smallest;
        }
    }
    CHECK_MSG(wrong == 0, "%d:%d of %s: %d wrong", (int)n, (int)m, name, wrong);
}

/* Half of the blocks go as a whole, and no one that goes is larger, on average, than one that stays. */
static void check_blocks(const char *name, const sbit_tensor *was, const sbit_tensor *now, int rows, int columns, int64_t h, int64_t w)
{
    const int64_t places = was->rank == 4 ? was->dims[2] * was->dims[3] : 1;
    const int64_t down = (was->dims[rows] + h - 1) / h, across = (was->dims[columns] + w - 1) / w;
    int64_t gone = 0;
    int wrong = 0;
    double largest = 0.0, smallest = 1e30;
    for (int64_t b = 0; b < down * across * places; b++) {
        double sum = 0.0;
        int zeros = 0, all = 0;
        for (int64_t i = 0; i < h * w; i++) {
            const int64_t r = b / places / across * h + i / w, c = b / places % across * w + i % w;
            if (r < was->dims[rows] && c < was->dims[columns]) {
                zeros += weight_at(now, rows, r, c, b % places) == 0.0f;
                sum += fabs((double)weight_at(was, rows, r, c, b % places));
                all++;
            }
        }
        sum /= all;
        wrong += zeros != 0 && zeros != all;
        gone += zeros != 0;
        largest = zeros != 0 && sum > largest ? sum : largest;
        smallest = zeros == 0 && sum < smallest ? sum : smallest;
    }
    CHECK_MSG(wrong == 0 && gone == down * across * places / 2 && largest <= smallest,
              "%dx%d of %s: %d blocks in part, %d of %d gone, %g and %g", (int)h, (int)w, name, wrong, (int)gone,
              (int)(down * across * places), largest, smallest);
}

TEST(patterns_hold_for_every_weight)
{
    static const struct {
        const char *keys;
        int64_t h, w; /* of blocks; of N of M: n and m */
        bool runs;
    } cases[] = {{"N_OF_M: \"2:4\"", 2, 4, true}, {"N_OF_M: \"1:4\"", 1, 4, true}, {"BLOCK: 1x4", 1, 4, false},
                 {"BLOCK: 4x1", 4, 1, false}, {"BLOCK: 2x2", 2, 2, false}, {"BLOCK: 5x3", 5, 3, false}};
    sbit_ctx *ctx = test_ctx();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_error error;
        model_bytes bytes;
        sbit_graph *graph = model_graph(ctx, LAYERS, &bytes, &error), *out = NULL;
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        char text[160];
        snprintf(text, sizeof text, "SPARSER: {TYPE: unstructured, STRATEGY: level, RATIO: 0.5, %s}\n", cases[i].keys);
        if (CHECK(graph != NULL) && CHECK_OK(sbit_sconfig_read(ctx, text, strlen(text), &config, &error), error) &&
            CHECK_OK(sbit_sparse_create(graph, config, &sparse, &error), error) &&
            CHECK_OK(sbit_sparse_select(sparse, NULL, &error), error) && CHECK_OK(sbit_sparse_masked(sparse, &out, &error), error)) {
            for (size_t k = 0; k < sizeof patterned / sizeof patterned[0]; k++) {
                const sbit_value_id a = sbit_graph_find_value(graph, patterned[k].name);
                const sbit_value_id b = sbit_graph_find_value(out, patterned[k].name);
                if (CHECK_MSG(b.idx != 0, "%s is gone", patterned[k].name)) {
                    (cases[i].runs ? check_runs : check_blocks)(patterned[k].name, &sbit_graph_value(graph, a)->constant,
                                                                &sbit_graph_value(out, b)->constant, patterned[k].rows,
                                                                patterned[k].columns, cases[i].h, cases[i].w);
                }
            }
        }
        sbit_graph_destroy(out);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        sbit_graph_destroy(graph);
        free(bytes.data);
    }
    sbit_ctx_destroy(ctx);
}
