/* test_prune_packed.c: models that are quantized already are pruned: the smaller file computes what
 * the masked one does (the library compares them), integers and scales of what stays are the same.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

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
