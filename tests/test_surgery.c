/* test_surgery.c: field reports A7, pruning surgery: each report is a test, most of them here.
 *
 *     A7.1   the same tensor twice in a Concat          test_sparse: pattern_twice
 *     A7.2   Concat offsets, spatial Concat ties        test_sparse: pattern_side_by_side, pattern_above
 *     A7.4   a: 40-80-1, b: Res2Net, c: strides 1 and   here: chain, inverted (2); test_sparse: pattern_res2net,
 *            2, d: groups; an Add of many               pattern_inverted (1); here: grouped, many
 *     A7.6   what is indexed by channels                here: shuffle, shuffled pixels (DCR, CRD), norms behind
 *                                                       a bias; test_sparse: pattern_squeeze_excite,
 *                                                       pattern_norms, normalized_axes_lose_channels
 *     A7.8   half of the channels: what is left         here: half_of_the_channels_is_what_is_told
 *     A7.9   outputs keep their shape                   test_sparse: pattern_output
 *     A7.10  something always stays                     here: chain of four at 0.99, multiples of eight
 *     A7.11  MatMul, Add, Mul by constants              test_sparse: pattern_functional
 *
 * sbit_prune itself compares what is left with the masked model; here the sizes are checked.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

static sbit_value_id layer(build *b, const char *name, sbit_value_id x, const char *dims,
                           const char *bias, int64_t group, int64_t stride)
{
    const int64_t strides[] = {stride, stride};
    char text[40];
    sbit_value_id in[3];
    sbit_attr attrs[2];
    in[0] = x;
    snprintf(text, sizeof text, "%s.weight", name);
    in[1] = build_weights(b, text, dims, (uint64_t)name[0] * 256 + (uint64_t)name[1]);
    snprintf(text, sizeof text, "%s.bias", name);
    if (bias != NULL) {
        in[2] = build_weights(b, text, bias, (uint64_t)name[1]);
    }
    attrs[0] = build_int("group", group);
    attrs[1] = build_ints("strides", strides, 2);
    return build_node(b, "Conv", name, in, bias != NULL ? 3 : 2, attrs, 2);
}

static void surgery_chain(build *b, sbit_value_id x)
{
    const sbit_value_id y = layer(b, "aa", x, "40,3,1,1", "40", 1, 1);
    build_output(b, layer(b, "zz", layer(b, "bb", y, "80,40,1,1", NULL, 1, 1), "1,80,1,1", NULL, 1, 1));
}

/* A depthwise convolution of stride 2 between a wide and a narrow one. */
static void surgery_inverted(build *b, sbit_value_id x)
{
    sbit_value_id y = layer(b, "aa", x, "4,3,1,1", NULL, 1, 1);
    y = build_unary(b, "Relu", "r1", layer(b, "wi", y, "20,4,1,1", "20", 1, 1));
    y = build_unary(b, "Relu", "r2", layer(b, "bb", y, "20,1,1,1", "20", 20, 2));
    build_output(b, layer(b, "zz", layer(b, "na", y, "8,20,1,1", NULL, 1, 1), "4,8,1,1", NULL, 1, 1));
}

static void surgery_grouped(build *b, sbit_value_id x)
{
    const sbit_value_id y = layer(b, "aa", x, "16,3,1,1", NULL, 1, 1);
    build_output(b, layer(b, "zz", layer(b, "bb", y, "16,4,1,1", "16", 4, 1), "4,16,1,1", NULL, 1, 1));
}

/* Three branches are added at once, one of them the input of another. */
static void surgery_many(build *b, sbit_value_id x)
{
    sbit_value_id in[3];
    in[0] = layer(b, "aa", x, "10,3,1,1", NULL, 1, 1);
    in[1] = layer(b, "bb", in[0], "10,10,1,1", "10", 1, 1);
    in[2] = layer(b, "cc", x, "10,3,1,1", NULL, 1, 1);
    const sbit_value_id y = build_node(b, "Sum", "sum", in, 3, NULL, 0);
    build_output(b, layer(b, "zz", y, "4,10,1,1", NULL, 1, 1));
}

static void surgery_shuffle(build *b, sbit_value_id x)
{
    const int64_t wide[] = {0, 2, 5, 4, 4}, narrow[] = {0, 10, 4, 4}, perm[] = {0, 2, 1, 3, 4};
    const sbit_attr order = build_ints("perm", perm, 5);
    sbit_value_id y = layer(b, "aa", x, "10,3,1,1", "10", 1, 1);
    y = build_binary(b, "Reshape", "split", y, build_constant(b, "wide", SBIT_I64, "5", wide));
    y = build_node(b, "Transpose", "swap", &y, 1, &order, 1);
    y = build_binary(b, "Reshape", "join", y, build_constant(b, "narrow", SBIT_I64, "4", narrow));
    y = layer(b, "bb", y, "10,10,1,1", NULL, 1, 1);
    build_output(b, layer(b, "zz", y, "4,10,1,1", NULL, 1, 1));
}

static void surgery_pixels(build *b, sbit_value_id x, const char *mode)
{
    sbit_attr attrs[2];
    memset(attrs, 0, sizeof attrs);
    attrs[0] = build_int("blocksize", 2);
    attrs[1].name = "mode";
    attrs[1].type = SBIT_ONNX_ATTR_STRING;
    attrs[1].s.data = mode;
    attrs[1].s.size = 3;
    const sbit_value_id y = layer(b, "aa", x, "40,3,1,1", "40", 1, 1);
    const sbit_value_id z = build_node(b, "DepthToSpace", "d2s", &y, 1, attrs, 2);
    build_output(b, layer(b, "zz", layer(b, "bb", z, "10,10,1,1", NULL, 1, 1), "4,10,1,1", NULL, 1, 1));
}

static void surgery_dcr(build *b, sbit_value_id x)
{
    surgery_pixels(b, x, "DCR");
}

static void surgery_crd(build *b, sbit_value_id x)
{
    surgery_pixels(b, x, "CRD");
}

/* A bias and the four vectors of BatchNormalization. */
static void surgery_norm(build *b, sbit_value_id x)
{
    static const float ones[10] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
    sbit_value_id in[5];
    in[0] = layer(b, "aa", x, "10,3,1,1", "10", 1, 1);
    in[1] = build_weights(b, "gamma", "10", 5);
    in[2] = build_weights(b, "beta", "10", 6);
    in[3] = build_weights(b, "mean", "10", 7);
    in[4] = build_constant(b, "var", SBIT_F32, "10", ones);
    const sbit_value_id y = build_node(b, "BatchNormalization", "bn", in, 5, NULL, 0);
    build_output(b, layer(b, "zz", layer(b, "bb", y, "10,10,1,1", NULL, 1, 1), "4,10,1,1", NULL, 1, 1));
}

static void surgery_four(build *b, sbit_value_id x)
{
    const sbit_value_id y = layer(b, "aa", x, "4,3,1,1", NULL, 1, 1);
    build_output(b, layer(b, "zz", layer(b, "bb", y, "20,4,1,1", NULL, 1, 1), "4,20,1,1", NULL, 1, 1));
}

static int64_t surgery_dim(const sbit_graph *graph, const char *name, int32_t axis)
{
    const sbit_value_id id = sbit_graph_find_value(graph, name);
    return CHECK_MSG(id.idx != 0, "%s is gone", name) ? sbit_graph_value(graph, id)->constant.dims[axis] : -1;
}

static sbit_sconfig *surgery_config(build *b, const char *keys)
{
    char text[300];
    sbit_sconfig *config = NULL;
    snprintf(text, sizeof text, "SPARSER: {TYPE: structured, STRATEGY: l1norm, %s}\n", keys);
    build_do(b, sbit_sconfig_read(b->ctx, text, strlen(text), &config, &b->error), text);
    return config;
}

TEST(what_others_cut_wrongly_keeps_the_right_sizes)
{
    static const struct {
        void (*make)(build *, sbit_value_id);
        const char *keys;
        int64_t aa, bb; /* rows that stay; all axes behind them as well, or it would not run */
    } cases[] = {
        {surgery_chain, "RATIO: 0.3", 28, 56},
        {surgery_chain, "RATIO: 0.3, PRUNE_BIAS: false", 28, 56},
        {surgery_inverted, "RATIO: 0.3", 3, 14},
        {surgery_inverted, "RATIO: 0.3, PRUNE_BIAS: false", 3, 14},
        {surgery_grouped, "RATIO: 0.3", 12, 12}, /* one of every four */
        {surgery_many, "RATIO: 0.3", 7, 7},
        {surgery_many, "RATIO: 0.3, PRUNE_BIAS: false", 7, 7},
        {surgery_shuffle, "RATIO: 0.3", 7, 7},
        {surgery_dcr, "RATIO: 0.3", 28, 7}, /* whole pixels of four */
        {surgery_crd, "RATIO: 0.3", 28, 7},
        {surgery_norm, "RATIO: 0.3", 7, 7},
        {surgery_norm, "RATIO: 0.3, PRUNE_BIAS: false", 7, 7},
        {surgery_four, "RATIO: 0.99", 1, 1},
        {surgery_four, "RATIO: 0.99, MIN_KEPT: 3", 3, 3},
        {surgery_four, "RATIO: 0.5, ALIGN: 8", 4, 16}, /* 10 would be left; of 4 no eight can be */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_graph *out = NULL;
        build_begin(&b, 18);
        cases[i].make(&b, build_input(&b, "x", SBIT_F32, "N,3,4,4"));
        sbit_sconfig *config = surgery_config(&b, cases[i].keys);
        if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error) &&
            CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            const int64_t aa = surgery_dim(out, "aa.weight", 0), bb = surgery_dim(out, "bb.weight", 0);
            CHECK_OK(sbit_graph_validate(out, &b.error), b.error);
            CHECK_MSG(aa == cases[i].aa && bb == cases[i].bb, "case %d keeps %d and %d", (int)i, (int)aa,
                      (int)bb);
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* 40-80-1 by half, on 4 x 4: 20 * 3 + 40 * 20 + 40 products at each place. */
TEST(half_of_the_channels_is_what_is_told)
{
    build b;
    sbit_graph *out = NULL;
    sbit_graph_cost before, after;
    build_begin(&b, 18);
    surgery_chain(&b, build_input(&b, "x", SBIT_F32, "1,3,4,4"));
    sbit_sconfig *config = surgery_config(&b, "RATIO: 0.5");
    if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error) &&
        CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error) &&
        CHECK_OK(sbit_graph_cost_of(b.graph, &before, &b.error), b.error) &&
        CHECK_OK(sbit_graph_cost_of(out, &after, &b.error), b.error)) {
        CHECK_EQ_I64(before.macs, 16 * (40 * 3 + 80 * 40 + 80));
        CHECK_EQ_I64(after.macs, 16 * (20 * 3 + 40 * 20 + 40));
        CHECK_EQ_I64(before.params, 40 * 3 + 40 + 80 * 40 + 80);
        CHECK_EQ_I64(after.params, 20 * 3 + 20 + 40 * 20 + 40);
        CHECK_EQ_I64((int64_t)after.weight_bytes, 4 * after.params);
    }
    sbit_graph_destroy(out);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Two channels r and 2 r (r = Relu(x)), times 10 and 100: without the first 2 w r is nearest to 210 r.
 * What is left of the mean goes into the mean of the BatchNormalization behind, as into a bias, and its
 * variance is not taken anew; nor is anything in front of what was cut: `both` gives what `ridge` does. */
TEST(means_behind_a_repaired_layer_are_its_bias)
{
    const float first[] = {1, 2}, second[] = {10, 100}, data[] = {1, -2, 0.5f, 3, 4, -1, 2, 2};
    const float unit[] = {1, 1}, zero[] = {0, 0}, nearly[] = {1.0f - 1e-5f, 1.0f - 1e-5f};
    const float gamma = 1.0f, beta = 0.0f, mean = 7.0f, var = 4.0f;
    const sbit_tensor x = build_tensor(SBIT_F32, "2,1,2,2", data);
    for (int turn = 0; turn < 2; turn++) {
        build b;
        sbit_sparse *sparse = NULL;
        sbit_graph *masked = NULL;
        sbit_feed feed;
        sbit_feed_desc desc;
        sbit_sparse_repaired repaired;
        sbit_value_id in[5];
        memset(&desc, 0, sizeof desc);
        desc.inputs = &x;
        desc.input_count = 1;
        build_begin(&b, 18);
        in[0] = build_input(&b, "x", SBIT_F32, "N,1,2,2");
        in[1] = build_constant(&b, "w1", SBIT_F32, "2,1,1,1", first);
        in[0] = build_node(&b, "Conv", "first", in, 2, NULL, 0);
        in[1] = build_constant(&b, "gamma1", SBIT_F32, "2", unit); /* changes nothing */
        in[2] = build_constant(&b, "beta1", SBIT_F32, "2", zero);
        in[3] = build_constant(&b, "mean1", SBIT_F32, "2", zero);
        in[4] = build_constant(&b, "var1", SBIT_F32, "2", nearly);
        in[0] = build_unary(&b, "Relu", "relu", build_node(&b, "BatchNormalization", "bn1", in, 5, NULL, 0));
        in[1] = build_constant(&b, "w2", SBIT_F32, "1,2,1,1", second);
        in[0] = build_node(&b, "Conv", "second", in, 2, NULL, 0);
        in[1] = build_constant(&b, "gamma", SBIT_F32, "1", &gamma);
        in[2] = build_constant(&b, "beta", SBIT_F32, "1", &beta);
        in[3] = build_constant(&b, "mean", SBIT_F32, "1", &mean);
        in[4] = build_constant(&b, "var", SBIT_F32, "1", &var);
        build_output(&b, build_node(&b, "BatchNormalization", "bn", in, 5, NULL, 0));
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
        sbit_sconfig *config =
            surgery_config(&b, turn == 0 ? "RATIO: 0.5, REPAIR: ridge" : "RATIO: 0.5, REPAIR: both");
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_repair(sparse, &feed, &repaired, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_masked(sparse, &masked, &b.error), b.error)) {
            const char *const names[] = {"w2", "mean", "var"};
            double now[3];
            for (int i = 0; i < 3; i++) {
                const sbit_tensor *t =
                    &sbit_graph_value(masked, sbit_graph_find_value(masked, names[i]))->constant;
                now[i] = (double)((const float *)t->data)[i == 0 ? 1 : 0];
            }
            /* r has the mean 12.5 / 8 */
            CHECK_MSG(now[0] > 100.0 && now[0] < 105.01, "%g", now[0]);
            CHECK_NEAR(now[1], 7.0 - (210.0 - 2.0 * now[0]) * 12.5 / 8.0, 1e-3);
            CHECK_NEAR(now[2], 4.0, 0);
            CHECK_EQ_I64(repaired.norms, 0);
            CHECK(repaired.after == repaired.ridge && repaired.ridge > repaired.before + 20.0);
        }
        sbit_graph_destroy(masked);
        sbit_feed_close(&feed);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}
