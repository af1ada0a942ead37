/* test_prune_packed.c: models that are quantized already are pruned: the smaller file computes what
 * the masked one does (the library compares them), integers and scales of what stays are the same.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"
#include "model_text.h"

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
     "DynamicQuantizeLinear ar -> q2,qs2,qz2\nMatMulInteger q2,w2,qz2,z1 -> i2 fc2\nCast i2 -> f2 to=1\nMul qs2,s2 -> t\nMul f2,t -> y\nout y f32 3,2\n",
     "", "", "DynamicQuantizeLinear"},
    {"blocked weights whose columns were ordered",
     "opset 21\nopset 1 com.microsoft\nin x f32 3,32\nc w1 f32 32,64 = " ODD "\nc b u8 4,4,8 = 18 52 99 200 7 250 33 128 64 5 77\nc sc f32 16 = 0.01 0.03 0.02\n"
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
        sbit_ctx *ctx = test_ctx();
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
        sbit_graph_destroy(graph);
        free(bytes.data);
        sbit_ctx_destroy(ctx);
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
