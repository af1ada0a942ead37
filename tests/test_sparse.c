/* test_sparse.c: pruning: what is chosen, what is masked, and that the smaller graph computes what
 * the masked one does. The library compares the two itself (sbit_sparse_shrink); here numbers and
 * shapes are checked against what was worked out by hand, and real networks at several ratios. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

static sbit_sconfig *configure(build *b, const char *text)
{
    sbit_sconfig *config = NULL;
    if (!b->failed) {
        build_do(b, sbit_sconfig_read(b->ctx, text, strlen(text), &config, &b->error), text);
    }
    return config;
}

static sbit_value_id conv(build *b, const char *name, sbit_value_id x, sbit_value_id w,
                          sbit_value_id bias, const int64_t *pads, int64_t group)
{
    const sbit_value_id inputs[3] = {x, w, bias};
    sbit_attr attrs[2];
    attrs[0] = build_int("group", group);
    attrs[1] = build_ints("pads", pads, 4);
    return build_node(b, "Conv", name, inputs, bias.idx != 0 ? 3 : 2, attrs, pads != NULL ? 2 : 1);
}

static const sbit_value_id none = {0};

static const sbit_tensor *constant(const sbit_graph *graph, const char *name)
{
    const sbit_value_id id = sbit_graph_find_value(graph, name);
    return CHECK_MSG(id.idx != 0, "%s is gone", name) ? &sbit_graph_value(graph, id)->constant
                                                      : NULL;
}

static float number(const sbit_graph *graph, const char *name, int64_t i)
{
    const sbit_tensor *tensor = constant(graph, name);
    return tensor != NULL && CHECK(i < sbit_tensor_count(tensor)) ? ((const float *)tensor->data)[i]
                                                                  : 0.0f;
}

static int64_t dim(const sbit_graph *graph, const char *name, int32_t axis)
{
    const sbit_tensor *tensor = constant(graph, name);
    return tensor != NULL ? tensor->dims[axis] : -1;
}

/* Layer w1 of 4 channels, with norms 4 1 3 1; a bias; then w2. */
static void two_convs_behind(build *b, sbit_value_id x, const int64_t *pads)
{
    const float w1[] = {-4, 1, 3, -1}, bias[] = {0.5f, 2, -1, -3};
    const float w2[] = {1, 10, 100, 1000, 2, 20, 200, 2000};
    sbit_value_id y = conv(b, "first", x, build_constant(b, "w1", SBIT_F32, "4,1,1,1", w1),
                           build_constant(b, "b1", SBIT_F32, "4", bias), NULL, 1);
    y = build_unary(b, "Relu", "relu", y);
    y = conv(b, "second", y, build_constant(b, "w2", SBIT_F32, "2,4,1,1", w2), none, pads, 1);
    build_output(b, y);
}

static void two_convs(build *b, const int64_t *pads)
{
    two_convs_behind(b, build_input(b, "x", SBIT_F32, "N,1,5,5"), pads);
}

/* sbit_sparse_set_masks of one to begin with. */
static sbit_status start_mask(sbit_sparse *sparse, const char *name, const uint8_t *keep, int64_t count,
                              sbit_error *error)
{
    sbit_mask mask;
    memset(&mask, 0, sizeof mask);
    mask.name = name;
    mask.keep = keep;
    mask.count = count;
    return sbit_sparse_set_masks(sparse, &mask, 1, true, error);
}

/* Norms 4 1 3 1, of which the third is pruned before: it goes besides the one that the ratio wants. */
TEST(masks_to_begin_with_stay)
{
    const uint8_t third[] = {1, 1, 0, 1};
    for (int by_layer = 0; by_layer < 2; by_layer++) {
        build b;
        sbit_sparse *sparse = NULL;
        sbit_graph *out = NULL;
        sbit_mask mask;
        build_begin(&b, 18);
        two_convs(&b, NULL);
        sbit_sconfig *config =
            configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, SPECIFIC: [{second: [RATIO, 0]}]}\n");
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            CHECK_OK(start_mask(sparse, "w1", third, 4, &b.error), b.error);
            CHECK_STATUS(start_mask(sparse, "w9", third, 4, &b.error), SBIT_ERR_NOT_FOUND, b.error);
            CHECK_STATUS(start_mask(sparse, "w1", third, 3, &b.error), SBIT_ERR_SHAPE, b.error);
            CHECK_OK(by_layer ? sbit_sparse_calc_params(sparse, NULL, &b.error)
                              : sbit_sparse_select(sparse, NULL, &b.error),
                     b.error); /* norms 4 1 0 1: the third and the second */
            CHECK_OK(sbit_sparse_mask(sparse, 0, &mask), b.error);
            CHECK(mask.keep[0] == 1 && mask.keep[1] == 0 && mask.keep[2] == 0 && mask.keep[3] == 1);
            CHECK_OK(sbit_sparse_check_cut(sparse, &b.error), b.error);
            sbit_sparse_switch_masks(sparse, false);
            CHECK_OK(sbit_sparse_masked(sparse, &out, &b.error), b.error);
            CHECK_NEAR(number(out, "w1", 2), 3, 0);
            sbit_graph_destroy(out);
            sbit_sparse_switch_masks(sparse, true);
            CHECK_OK(sbit_sparse_masked(sparse, &out, &b.error), b.error);
            CHECK_NEAR(number(out, "w1", 2), 0, 0);
            sbit_graph_destroy(out);
        }
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* Inputs that have much in common: what goes can be made up for. */
static void related_inputs(float *data, int count, int width)
{
    sbit_rng rng = sbit_rng_seed(5);
    for (int i = 0; i < count; i++) {
        data[i] = sbit_rng_normal(&rng) + (i % width > 0 ? 0.8f * data[i - 1] : 0.0f);
    }
}

/* One product of 8 inputs and 6 outputs; a feed of 64 samples. */
static sbit_sparse *one_product(build *b, const float *data, const char *text, sbit_feed *feed, sbit_sconfig **config)
{
    const sbit_tensor x = build_tensor(SBIT_F32, "64,8", data);
    sbit_sparse *sparse = NULL;
    sbit_feed_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    build_begin(b, 18);
    build_output(b, build_binary(b, "MatMul", "fc", build_input(b, "x", SBIT_F32, "N,8"), build_weights(b, "w", "8,6", 1)));
    *config = configure(b, text);
    CHECK_OK(sbit_feed_of_tensors(b->ctx, &desc, feed, &b->error), b->error);
    if (!b->failed) {
        CHECK_OK(sbit_sparse_create(b->graph, *config, &sparse, &b->error), b->error);
    }
    return sparse;
}

/* What was pruned before stays pruned, and counts, where weights are changed too. */
TEST(masks_to_begin_with_stay_where_weights_change)
{
    static const char *const cases[][2] = {{"sparsegpt", "RATIO: 0.5"}, {"sparsegpt", "N_OF_M: \"2:4\""},
                                           {"admm", "RATIO: 0.5"},      {"admm", "N_OF_M: \"2:4\""},
                                           {"sparsegpt", "RATIO: 0.05"}, {"admm", "RATIO: 0.05"}};
    float data[64 * 8];
    uint8_t start[48];
    related_inputs(data, 64 * 8, 8);
    for (int i = 0; i < 48; i++) { /* inputs 1 and 6 of every output */
        start[i] = i / 6 == 1 || i / 6 == 6 ? 0 : 1;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_feed feed;
        sbit_sconfig *config = NULL;
        sbit_graph *masked = NULL;
        sbit_mask mask;
        char text[120];
        int gone = 0, revived = 0;
        snprintf(text, sizeof text, "SPARSER: {TYPE: unstructured, STRATEGY: %s, %s}\n", cases[i][0], cases[i][1]);
        sbit_sparse *sparse = one_product(&b, data, text, &feed, &config);
        if (sparse != NULL && CHECK_OK(start_mask(sparse, "w", start, 48, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_select(sparse, &feed, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_mask(sparse, 0, &mask), b.error) &&
            CHECK_OK(sbit_sparse_masked(sparse, &masked, &b.error), b.error)) {
            for (int k = 0; k < 48; k++) {
                gone += mask.keep[k] == 0;
                revived += start[k] == 0 && (mask.keep[k] != 0 || number(masked, "w", k) != 0.0f);
            }
            CHECK_MSG(revived == 0, "%s: %d came back", text, revived);
            CHECK_EQ_I64(gone, i < 4 ? 24 : 12);
        }
        sbit_graph_destroy(masked);
        sbit_feed_close(&feed);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* Curves try the ratios that they are asked for, and leave weights as they were. */
TEST(curves_try_their_own_ratios_and_leave_no_weights)
{
    static const char *const cases[] = {"level, THRESHOLD: 1000", "sparsegpt", "admm"};
    const double ratios[] = {0.25, 0.5};
    float data[64 * 8];
    related_inputs(data, 64 * 8, 8);
    for (size_t i = 0; i < 3; i++) {
        build b;
        sbit_feed feed;
        sbit_sconfig *config = NULL;
        sbit_graph *masked = NULL;
        sbit_sparse_loss points[4];
        size_t count = 0;
        char text[120];
        snprintf(text, sizeof text, "SPARSER: {TYPE: unstructured, STRATEGY: %s}\n", cases[i]);
        sbit_sparse *sparse = one_product(&b, data, text, &feed, &config);
        if (sparse != NULL &&
            CHECK_OK(sbit_sparse_analyze(sparse, &feed, ratios, 2, points, 4, &count, &b.error), b.error) &&
            CHECK_EQ_I64((int64_t)count, 2)) {
            CHECK_EQ_I64(points[0].kept, 36);
            CHECK_EQ_I64(points[1].kept, 24);
            CHECK(points[0].sqnr > points[1].sqnr + 1.0);
            CHECK_OK(sbit_sparse_masked(sparse, &masked, &b.error), b.error);
            for (int k = 0; k < 48; k++) {
                CHECK_NEAR(number(masked, "w", k), number(b.graph, "w", k), 0);
            }
            sbit_graph_destroy(masked);
            if (i == 0) { /* and the threshold is one again */
                sbit_mask mask;
                CHECK_OK(sbit_sparse_select(sparse, &feed, &b.error), b.error);
                CHECK_OK(sbit_sparse_mask(sparse, 0, &mask), b.error);
                CHECK_EQ_I64(mask.kept, 1); /* MAX_RATIO 0.99 */
            }
        }
        sbit_feed_close(&feed);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* A ratio that was given to a layer counts, not the threshold. Norms 4 1 3 1. */
TEST(layers_with_a_ratio_of_their_own_have_no_threshold)
{
    for (int turn = 0; turn < 3; turn++) {
        build b;
        sbit_sparse *sparse = NULL;
        sbit_sparse_group group;
        build_begin(&b, 18);
        two_convs(&b, NULL);
        sbit_sconfig *config = configure(
            &b, turn == 0 ? "SPARSER: {TYPE: structured, STRATEGY: l1norm, THRESHOLD: 2, SPECIFIC: [{first: [RATIO, 0.0]}]}\n"
                          : "SPARSER: {TYPE: structured, STRATEGY: l1norm, THRESHOLD: 2}\n");
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            if (turn == 1) {
                CHECK_OK(sbit_sparse_set_ratio(sparse, "first", 0.25, &b.error), b.error);
            }
            CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error);
            CHECK_EQ_I64(sbit_sparse_group_at(sparse, 0, &group), SBIT_OK);
            CHECK_STR(group.layers, "first");
            CHECK_EQ_I64(group.kept, turn == 0 ? 4 : turn == 1 ? 3 : 2);
        }
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

TEST(what_no_cut_removes_is_listed)
{
    const uint8_t first_row[] = {0, 0, 0, 0, 1, 1, 1, 1};
    build b;
    sbit_sparse *sparse = NULL;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config = configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        CHECK_OK(sbit_sparse_set_mask(sparse, "w2", first_row, 8, &b.error), b.error);
        CHECK_STATUS(sbit_sparse_check_cut(sparse, &b.error), SBIT_ERR_STATE, b.error);
        CHECK(strstr(b.error.message, "in: second") != NULL);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Norms 4 1 3 1. */
TEST(what_scores_less_than_a_threshold_goes)
{
    static const struct {
        const char *keys;
        int64_t kept;
    } cases[] = {{"THRESHOLD: 2", 2},       {"THRESHOLD: 1", 4},
                 {"THRESHOLD: 3.5", 1},     {"THRESHOLD: 3.5, MAX_RATIO: 0.5", 2},
                 {"THRESHOLD: 0.5, MIN_RATIO: 0.25", 3}, {"THRESHOLD: 2, RATIO: 0.25", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_graph *out = NULL;
        char text[120];
        build_begin(&b, 18);
        two_convs(&b, NULL);
        snprintf(text, sizeof text, "SPARSER: {TYPE: structured, STRATEGY: l1norm, %s}\n", cases[i].keys);
        sbit_sconfig *config = configure(&b, text);
        if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            CHECK_MSG(dim(out, "w1", 0) == cases[i].kept, "%s keeps %d", cases[i].keys, (int)dim(out, "w1", 0));
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

TEST(the_smallest_channels_go_ties_by_lower_index)
{
    build b;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.49}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "w1", 0), 3); /* floor(0.49 * 4): one of the two with norm 1 */
        CHECK_NEAR(number(out, "w1", 0), -4, 0);
        CHECK_NEAR(number(out, "w1", 1), 3, 0);
        CHECK_NEAR(number(out, "w1", 2), -1, 0);
        CHECK_EQ_I64(dim(out, "w2", 1), 3);
        CHECK_NEAR(number(out, "w2", 1), 100, 0);
        CHECK_NEAR(number(out, "w2", 3), 2, 0);
        CHECK_NEAR(number(out, "b1", 2), -3, 0);
        CHECK_EQ_I64(dim(out, "w2", 0), 2); /* the output's channels */
        CHECK_OK(sbit_graph_validate(out, &b.error), b.error);
    }
    sbit_graph_destroy(out);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Channels 1 and 3 go; Relu makes 2 and 0 of their biases: 2 * 10 and 2 * 20 go into the second. */
TEST(kept_biases_are_folded_into_the_next_layer)
{
    build b;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config = configure(
        &b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: false}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "w1", 0), 2);
        CHECK_NEAR(number(out, "folded", 0), 20, 1e-6);
        CHECK_NEAR(number(out, "folded", 1), 40, 1e-6);
        CHECK_NEAR(number(out, "b1", 1), -1, 0);
    }
    sbit_graph_destroy(out);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Behind zero padding only what is zero can go: channel 3, and then 2, whose bias is negative. */
TEST(constants_in_front_of_padding_keep_their_channel)
{
    const int64_t pads[] = {1, 1, 1, 1};
    build b;
    sbit_sparse *sparse = NULL;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    two_convs(&b, pads);
    sbit_sconfig *config = configure(
        &b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: false}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error)) {
        sbit_sparse_group group;
        CHECK_EQ_I64(dim(out, "w1", 0), 2);
        CHECK_NEAR(number(out, "w1", 0), -4, 0);
        CHECK_NEAR(number(out, "w1", 1), 1, 0);
        CHECK_EQ_I64(sbit_sparse_group_at(sparse, 0, &group), SBIT_OK);
        CHECK_STR(group.layers, "first");
        CHECK(strstr(group.reason, "zero padding") != NULL);
        CHECK_EQ_I64(group.kept, 2);
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Two groups of 4 -> 4: each loses the same number, the smallest of its own. */
TEST(groups_of_a_convolution_stay_equal_by_score)
{
    build b;
    sbit_graph *out = NULL;
    float w1[8], grouped[16];
    build_begin(&b, 18);
    for (int i = 0; i < 8; i++) {
        w1[i] = (float)(8 - i); /* all of the second group are smaller */
    }
    for (int i = 0; i < 16; i++) {
        grouped[i] = (float)(i + 1);
    }
    sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,1,3,3");
    y = conv(&b, "first", y, build_constant(&b, "w1", SBIT_F32, "8,1,1,1", w1), none, NULL, 1);
    y = conv(&b, "grouped", y, build_constant(&b, "wg", SBIT_F32, "4,4,1,1", grouped), none, NULL,
             2);
    build_output(&b, conv(&b, "last", y, build_weights(&b, "w3", "2,4,1,1", 3), none, NULL, 1));
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "w1", 0), 4);
        CHECK_NEAR(number(out, "w1", 1), 7, 0); /* 8 7 of the first, 4 3 of the second */
        CHECK_NEAR(number(out, "w1", 2), 4, 0);
        CHECK_EQ_I64(dim(out, "wg", 0), 2);
        CHECK_EQ_I64(dim(out, "wg", 1), 2);
        CHECK_NEAR(number(out, "wg", 0), 5, 0); /* row 1, columns 0 and 1 */
        CHECK_NEAR(number(out, "wg", 2), 13, 0);
        CHECK_EQ_I64(dim(out, "w3", 1), 2);
    }
    sbit_graph_destroy(out);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

TEST(masks_of_single_layers_are_sparsebits)
{
    build b;
    sbit_sparse *sparse = NULL;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config =
        configure(&b, "SPARSER:\n  TYPE: structed\n  STRATEGY: l1norm\n  RATIO: 0.5\n"
                      "  SPECIFIC: [{\"second\": [TYPE, unstructured, RATIO, 0.3]}]\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_calc_params(sparse, NULL, &b.error), b.error)) {
        const uint8_t rows[] = {1, 0, 1, 0}, second[] = {0, 0, 1, 1, 0, 1, 1, 1};
        sbit_mask mask;
        for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
            CHECK_EQ_I64(sbit_sparse_mask(sparse, i, &mask), SBIT_OK);
            const uint8_t *want = strcmp(mask.name, "w2") == 0 ? second : rows;
            CHECK_MEM(mask.keep, want, (size_t)mask.count); /* w1, b1; floor(2.4) + 1 of w2 */
        }
        CHECK_EQ_I64((int64_t)sbit_sparse_mask_count(sparse), 3);
        CHECK_OK(sbit_sparse_set_ratio(sparse, "first", 0.0, &b.error), b.error);
        CHECK_STATUS(sbit_sparse_set_ratio(sparse, "frist", 0.5, &b.error), SBIT_ERR_NOT_FOUND,
                     b.error);
        CHECK(strstr(b.error.message, "first") != NULL);
        CHECK_STATUS(sbit_sparse_set_ratio(sparse, "first", 1.5, &b.error),
                     SBIT_ERR_INVALID_ARGUMENT, b.error);
        CHECK_OK(sbit_sparse_calc_params(sparse, NULL, &b.error), b.error);
        CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK);
        CHECK_EQ_I64(mask.kept, mask.count);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

TEST(masks_can_be_brought_along)
{
    const uint8_t keep[] = {1, 1, 0, 1};
    build b;
    sbit_sparse *sparse = NULL;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        CHECK_STATUS(sbit_sparse_set_mask(sparse, "w1", keep, 3, &b.error), SBIT_ERR_SHAPE,
                     b.error);
        CHECK_STATUS(sbit_sparse_set_mask(sparse, "w9", keep, 4, &b.error), SBIT_ERR_NOT_FOUND,
                     b.error);
        CHECK_OK(sbit_sparse_set_mask(sparse, "w1", keep, 4, &b.error), b.error);
        if (CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error)) {
            CHECK_EQ_I64(dim(out, "w1", 0), 3); /* its bias, -1, becomes 0 behind Relu */
            CHECK_NEAR(number(out, "w1", 2), -1, 0);
            CHECK_NEAR(number(out, "w2", 2), 1000, 0);
        }
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

TEST(layers_before_an_add_can_be_left_alone)
{
    build b;
    sbit_sparse *sparse = NULL;
    build_begin(&b, 18);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2,3,3");
    const sbit_value_id y = conv(&b, "a", x, build_weights(&b, "wa", "4,2,1,1", 1), none, NULL, 1);
    sbit_value_id z = conv(&b, "b", y, build_weights(&b, "wb", "4,4,1,1", 2), none, NULL, 1);
    z = conv(&b, "c", z, build_weights(&b, "wc", "4,4,1,1", 3), none, NULL, 1);
    z = build_binary(&b, "Add", "add", y, build_unary(&b, "Relu", "relu", z));
    build_output(&b, conv(&b, "d", z, build_weights(&b, "wd", "2,4,1,1", 4), none, NULL, 1));
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        sbit_sparse_disable_sparse_before_add(sparse);
        CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error);
        for (size_t i = 0; i < sbit_sparse_group_count(sparse); i++) {
            sbit_sparse_group group;
            CHECK_EQ_I64(sbit_sparse_group_at(sparse, i, &group), SBIT_OK);
            CHECK_EQ_I64(group.kept, strcmp(group.layers, "b") == 0 ? 2 : group.channels);
        }
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

TEST(nothing_to_cut_is_a_warning_and_the_same_graph)
{
    build b;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2,3,3");
    build_output(&b, conv(&b, "a", x, build_weights(&b, "wa", "4,2,1,1", 1), none, NULL, 1));
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "wa", 0), 4);
        CHECK(strstr(b.warning, "nothing was pruned") != NULL);
    }
    sbit_graph_destroy(out);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* A sparser from outside: the last rows first. */
static sbit_status backwards_score(const void *state, const sbit_sparser_call *call, double *score,
                                   sbit_error *error)
{
    (void)state;
    (void)error;
    for (int64_t i = 0; i < call->units->count; i++) {
        score[i] = (double)-i;
    }
    return SBIT_OK;
}

TEST(a_users_sparser_is_found_by_name)
{
    static const sbit_sparser_row row = {{"backwards", "the last rows first", 0, NULL, 0},
                                         0,
                                         SBIT_GRANULARITY_ROW,
                                         0,
                                         NULL,
                                         NULL,
                                         backwards_score,
                                         NULL,
                                         NULL};
    build b;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    CHECK_OK(sbit_sparser_register(b.ctx, &row, &b.error), b.error);
    CHECK_STATUS(sbit_sparser_register(b.ctx, &row, &b.error), SBIT_ERR_DUPLICATE, b.error);
    CHECK(sbit_sparser_find(b.ctx, "Backwards") == &row);
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: backwards, RATIO: 0.5}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "w1", 0), 2);
        CHECK_NEAR(number(out, "w1", 1), 1, 0);
    }
    sbit_graph_destroy(out);
    sbit_sconfig_destroy(config);
    config = configure(&b, "SPARSER: {TYPE: unstructured, STRATEGY: backwards, RATIO: 0.5}\n");
    CHECK_STATUS(sbit_prune(b.graph, config, NULL, &out, &b.error), SBIT_ERR_CONFIG, b.error);
    CHECK(strstr(b.error.message, "single elements") != NULL);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

static int64_t kept_of(sbit_sparse *sparse, size_t group)
{
    sbit_sparse_group g;
    return sbit_sparse_group_at(sparse, group, &g) == SBIT_OK ? g.kept : -1;
}

/* agp from 0 to 0.75 in 4 steps: 0.43 0.66 0.74 0.75 of 4 channels; weights change in between. */
TEST(steps_follow_the_schedule_and_do_not_add_up)
{
    const float other[] = {1, 5, -7, 9};
    const sbit_tensor changed = build_tensor(SBIT_F32, "4,1,1,1", other);
    const sbit_tensor wrong = build_tensor(SBIT_F32, "2,2,1,1", other);
    build b;
    sbit_sparse *sparse = NULL;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config = configure(
        &b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.75, SCHEDULE: agp}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        const int64_t kept[] = {4, 3, 2, 2, 1};
        for (int64_t step = 0; step <= 4; step++) {
            CHECK_OK(sbit_sparse_step(sparse, step, 4, NULL, &b.error), b.error);
            CHECK_EQ_I64(kept_of(sparse, 0), kept[step]);
        }
        CHECK_OK(sbit_sparse_step(sparse, 2, 4, NULL, &b.error), b.error);
        CHECK_EQ_I64(kept_of(sparse, 0), 2);
        CHECK_STATUS(sbit_sparse_set_weight(sparse, "w1", &wrong, &b.error), SBIT_ERR_SHAPE,
                     b.error);
        CHECK_STATUS(sbit_sparse_set_weight(sparse, "w7", &changed, &b.error), SBIT_ERR_NOT_FOUND,
                     b.error);
        CHECK_OK(sbit_sparse_set_weight(sparse, "w1", &changed, &b.error), b.error);
        CHECK_OK(sbit_sparse_step(sparse, 4, 4, NULL, &b.error), b.error);
        if (CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error)) {
            CHECK_EQ_I64(dim(out, "w1", 0), 1);
            CHECK_NEAR(number(out, "w1", 0), 9, 0);
        }
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Blocks and N of M of a MatMul [4,4], whose rows are its second axis. */
TEST(patterns_of_single_elements)
{
    const float w[] = {1, 9, 2, 8, 3, 7, 4, 6, 5, 5, 6, 4, 7, 3, 8, 2};
    static const struct {
        const char *keys;
        uint8_t keep[16];
    } cases[] = {
        /* column by column (an output): of its four, the two smallest */
        {"N_OF_M: \"2:4\"", {0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0}},
        /* 2 outputs x 2 inputs: sums 20 20 20 20 -> the first two of four blocks */
        {"BLOCK: 2x2, RATIO: 0.5", {0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}},
        /* the same by a ratio of every column, and of every pair of its elements */
        {"WITHIN: 1x4, RATIO: 0.5", {0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0}},
        {"WITHIN: 1x2, RATIO: 0.5", {0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0}},
        /* whole inputs: all worth 20 */
        {"BLOCK: 9223372036854775807x1, RATIO: 0.25",
         {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {"BLOCK: -1x1, RATIO: 0.25", {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        build b;
        sbit_sparse *sparse = NULL;
        sbit_mask mask;
        build_begin(&b, 18);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
        build_output(
            &b, build_binary(&b, "MatMul", "fc", x, build_constant(&b, "w", SBIT_F32, "4,4", w)));
        snprintf(text, sizeof text, "SPARSER: {TYPE: unstructured, STRATEGY: level, %s}\n",
                 cases[i].keys);
        sbit_sconfig *config = configure(&b, text);
        if (!b.failed &&
            CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_calc_params(sparse, NULL, &b.error), b.error) &&
            CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK)) {
            CHECK_MSG(memcmp(mask.keep, cases[i].keep, 16) == 0, "%s", cases[i].keys);
        }
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* Outputs of a graph on one random image. */
static void some_outputs(build *b, sbit_graph *graph, int64_t channels, int64_t side, float *y, int64_t count)
{
    static float x[3 * 32 * 32];
    sbit_session *session = NULL;
    sbit_rng rng = sbit_rng_seed(7);
    sbit_tensor in = build_tensor(SBIT_F32, "1,1,1,1", x);
    in.dims[1] = channels;
    in.dims[2] = in.dims[3] = side;
    for (int64_t i = 0; i < sbit_tensor_count(&in); i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    if (CHECK_OK(sbit_session_create(graph, NULL, &session, &b->error), b->error) &&
        CHECK_OK(sbit_session_set_input(session, sbit_session_input_info(session, 0)->name, &in, &b->error), b->error) &&
        CHECK_OK(sbit_session_run(session, &b->error), b->error) &&
        CHECK(sbit_tensor_count(&sbit_session_output(session, 0)->tensor) >= count)) {
        memcpy(y, sbit_session_output(session, 0)->tensor.data, (size_t)count * sizeof *y);
    }
    sbit_session_destroy(session);
}

/* The sum of |w| of layers with N of M that is not masked. */
static double kept_magnitude(const sbit_sparse *sparse)
{
    double sum = 0.0;
    for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
        sbit_mask mask;
        sbit_sparse_mask(sparse, i, &mask);
        const float *w = (const float *)sbit_graph_value(sbit_sparse_graph(sparse), mask.value)->constant.data;
        for (int64_t k = 0; k < mask.count; k++) {
            sum += mask.keep[k] != 0 ? fabs((double)w[k]) : 0.0;
        }
    }
    return sum;
}

/* Neighbours 8 9 | 1 2 keep one of two, 9 + 2; in other places 8 + 9. w1 has no neighbours. */
TEST(channels_change_places_so_that_n_of_m_keeps_more)
{
    const float w1[] = {1, 2, 3, 4}, bias[] = {1, 2, 3, 4}, w2[] = {8, 9, -1, 2, 8, 9, -1, -2};
    build b;
    sbit_sparse *sparse = NULL;
    sbit_sparse_permuted done;
    sbit_graph *out = NULL;
    float before[18], after[18];
    build_begin(&b, 18);
    sbit_value_id y = conv(&b, "first", build_input(&b, "x", SBIT_F32, "N,1,3,3"),
                           build_constant(&b, "w1", SBIT_F32, "4,1,1,1", w1),
                           build_constant(&b, "b1", SBIT_F32, "4", bias), NULL, 1);
    y = build_unary(&b, "Relu", "relu", y);
    build_output(&b, conv(&b, "second", y, build_constant(&b, "w2", SBIT_F32, "2,4,1,1", w2), none, NULL, 1));
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: unstructured, STRATEGY: level, N_OF_M: \"1:2\", PERMUTE: 8}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_permute(sparse, NULL, &done, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_masked(sparse, &out, &b.error), b.error)) {
        some_outputs(&b, b.graph, 1, 3, before, 18);
        some_outputs(&b, out, 1, 3, after, 18);
        for (int i = 0; i < 18; i++) {
            CHECK_NEAR(after[i], before[i], 1e-4 * fabs((double)before[i]) + 1e-4);
        }
        CHECK(number(out, "w2", 0) != 8 || number(out, "w2", 1) != 9);
        CHECK_NEAR(number(out, "w1", 0), number(out, "b1", 0), 0); /* together */
        CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error);
        CHECK_NEAR(kept_magnitude(sparse), 2 * (8 + 9) + 10, 1e-6);
        CHECK_NEAR(done.before, (2.0 * (9 + 2) + 10) / 50, 1e-6);
        CHECK_NEAR(done.after, (2.0 * (8 + 9) + 10) / 50, 1e-6);
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

TEST(a_network_with_channels_in_other_places_computes_the_same)
{
    char path[1024];
    double kept[2] = {0, 0};
    float before[10], after[10];
    if (!test_shared("models/cifar10/resnet20.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no shared models");
    }
    for (int turn = 0; turn < 2; turn++) {
        build b;
        sbit_sparse *sparse = NULL;
        sbit_graph *out = NULL;
        sbit_sparse_permuted done;
        build_begin(&b, 18);
        sbit_graph_destroy(b.graph);
        b.graph = NULL;
        sbit_sconfig *config =
            configure(&b, turn == 0 ? "SPARSER: {TYPE: unstructured, STRATEGY: level, N_OF_M: \"2:4\"}\n"
                                    : "SPARSER: {TYPE: unstructured, STRATEGY: level, N_OF_M: \"2:4\", PERMUTE: 1}\n");
        if (CHECK_OK(sbit_graph_load(b.ctx, path, &b.graph, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_permute(sparse, NULL, &done, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_masked(sparse, &out, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error)) {
            some_outputs(&b, b.graph, 3, 32, before, 10);
            some_outputs(&b, out, 3, 32, after, 10);
            for (int i = 0; i < 10; i++) {
                CHECK_NEAR(after[i], before[i], 1e-4 * 20);
            }
            kept[turn] = kept_magnitude(sparse);
            CHECK((turn == 1) == (done.after > done.before) && (turn == 1) == (done.channels > 0));
        }
        sbit_graph_destroy(out);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
    CHECK_MSG(kept[1] > kept[0] * 1.0005, "%g, %g", kept[0], kept[1]);
}

/* The model's inputs are larger in the second place: there a smaller weight is worth more. */
TEST(wanda_and_activations_look_at_data)
{
    const float w[] = {3, 1, -1, 2, 2, 2}, data[] = {1, 10, -1, 10, 1, -10, 1, 10};
    const sbit_tensor x = build_tensor(SBIT_F32, "4,2", data);
    static const struct {
        const char *config;
        uint8_t keep[6];
    } cases[] = {
        /* [2,3], rows are columns here: |w| * {2, 20}: one of two goes in each */
        {"{TYPE: unstructured, STRATEGY: wanda, RATIO: 0.5}", {0, 0, 0, 1, 1, 1}},
        /* Relu of (3 1 -1) a + (2 2 2) b: two thirds of positive numbers, 23 21 19 ... */
        {"{TYPE: structured, STRATEGY: mean_activation, RATIO: 0.4}", {1, 1, 0, 1, 1, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        build b;
        sbit_sparse *sparse = NULL;
        sbit_feed feed;
        sbit_feed_desc desc;
        sbit_mask mask;
        build_begin(&b, 18);
        memset(&desc, 0, sizeof desc);
        desc.inputs = &x;
        desc.input_count = 1;
        sbit_value_id y = build_binary(&b, "MatMul", "fc", build_input(&b, "x", SBIT_F32, "N,2"),
                                       build_constant(&b, "w", SBIT_F32, "2,3", w));
        y = build_unary(&b, "Relu", "relu", y);
        build_output(&b, build_binary(&b, "MatMul", "out", y, build_weights(&b, "v", "3,1", 1)));
        snprintf(text, sizeof text, "SPARSER: %s\n", cases[i].config);
        sbit_sconfig *config = configure(&b, text);
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
        if (!b.failed &&
            CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_calc_params(sparse, &feed, &b.error), b.error) &&
            CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK)) {
            CHECK_MSG(memcmp(mask.keep, cases[i].keep, 6) == 0, "%s: %d%d%d %d%d%d",
                      cases[i].config, mask.keep[0], mask.keep[1], mask.keep[2], mask.keep[3],
                      mask.keep[4], mask.keep[5]);
        }
        sbit_feed_close(&feed);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

static sbit_value_id plain_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                int64_t group)
{
    char w[40];
    snprintf(w, sizeof w, "%s.weight", name);
    return conv(b, name, x, build_weights(b, w, dims, (uint64_t)name[0] * 7 + (uint64_t)name[1]),
                none, NULL, group);
}

/* Channels r and 2 r, r = Relu(x), then 10 and 100 of them: r goes, and the second layer makes up
 * for it. Without a bias: min (210 r - w 2 r)^2 + d (w - 100)^2 with d = 0.01 sum (2 r)^2, which is
 * w = (420 + 0.04 * 100) / 4.04. With one: the same around the means, the bias takes the rest. */
TEST(ridge_makes_up_for_what_goes)
{
    const float first[] = {1, 2}, second[] = {10, 100}, shift[] = {3};
    const float data[] = {1, -2, 0.5f, 3, 4, -1, 2, 2};
    const sbit_tensor x = build_tensor(SBIT_F32, "2,1,2,2", data);
    for (int turn = 0; turn < 3; turn++) { /* no bias, a bias, the layer is left out */
        build b;
        sbit_sparse *sparse = NULL;
        sbit_graph *out = NULL;
        sbit_feed feed;
        sbit_feed_desc desc;
        sbit_sparse_repaired repaired;
        memset(&desc, 0, sizeof desc);
        desc.inputs = &x;
        desc.input_count = 1;
        build_begin(&b, 18);
        sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,1,2,2");
        y = conv(&b, "first", y, build_constant(&b, "w1", SBIT_F32, "2,1,1,1", first), none, NULL,
                 1);
        y = build_unary(&b, "Relu", "relu", y);
        y = conv(&b, "second", y, build_constant(&b, "w2", SBIT_F32, "1,2,1,1", second),
                 turn == 1 ? build_constant(&b, "b2", SBIT_F32, "1", shift) : none, NULL, 1);
        build_output(&b, y);
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
        sbit_sconfig *config =
            configure(&b, turn < 2 ? "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, "
                                     "REPAIR: ridge}\n"
                                   : "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, "
                                     "REPAIR: ridge, SPECIFIC: [{\"second\": [REPAIR, none]}]}\n");
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error) &&
            CHECK_STATUS(sbit_sparse_repair(sparse, NULL, NULL, &b.error), SBIT_ERR_STATE,
                         b.error) &&
            CHECK_OK(sbit_sparse_repair(sparse, &feed, &repaired, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_shrink(sparse, &feed, &out, &b.error), b.error)) {
            const double w = 424.0 / 4.04, mean = 12.5 / 8.0; /* of r */
            CHECK_EQ_I64(dim(out, "w2", 1), 1);
            CHECK_NEAR(number(out, "w2", 0), turn < 2 ? w : 100, 1e-3);
            CHECK_EQ_I64(repaired.layers, turn < 2);
            CHECK(turn == 2 ? repaired.after == repaired.before
                            : repaired.after > repaired.before + 20.0);
            if (turn == 1) {
                CHECK_NEAR(number(out, "b2", 0), 3 + (210 - 2 * w) * mean, 1e-3);
            }
            sbit_graph_destroy(out);
            out = NULL;
            /* the next choice starts from the weights as they were */
            CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error);
            CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error);
            CHECK_NEAR(number(out, "w2", 0), 100, 0);
        }
        sbit_graph_destroy(out);
        sbit_feed_close(&feed);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* r and 2 r, times 10 and 100: without r the output is 200 r in place of 210 r, 26.4 dB. The second
 * layer, by single elements: 10 goes, the same. */
TEST(each_group_alone_is_analyzed)
{
    const float first[] = {1, 2}, second[] = {10, 100}, data[] = {1, -2, 0.5f, 3};
    const double ratios[] = {0.1, 0.5}, lost = 20.0 * log10(21.0);
    const sbit_tensor x = build_tensor(SBIT_F32, "1,1,2,2", data);
    build b;
    sbit_sparse *sparse = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    sbit_sparse_loss points[8];
    size_t count = 0;
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    build_begin(&b, 18);
    sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,1,2,2");
    y = conv(&b, "first", y, build_constant(&b, "w1", SBIT_F32, "2,1,1,1", first), none, NULL, 1);
    y = build_unary(&b, "Relu", "relu", y);
    build_output(&b, conv(&b, "second", y, build_constant(&b, "w2", SBIT_F32, "1,2,1,1", second),
                          none, NULL, 1));
    CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l2norm, RATIO: 0.25, "
                      "SPECIFIC: [{\"second\": [TYPE, unstructured, RATIO, 0.5]}]}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_analyze(sparse, &feed, ratios, 2, points, 8, &count, &b.error),
                 b.error) &&
        CHECK_EQ_I64((int64_t)count, 4)) {
        for (size_t i = 0; i < 4; i++) {
            CHECK_STR(points[i].layers, i < 2 ? "first" : "second");
            CHECK_EQ_I64(points[i].count, 2);
            CHECK_EQ_I64(points[i].kept, i % 2 == 0 ? 2 : 1);
            CHECK(i % 2 == 0 ? points[i].sqnr > 200.0 : fabs(points[i].sqnr - lost) < 1e-3);
        }
        CHECK_STATUS(sbit_sparse_analyze(sparse, &feed, ratios, 2, points, 3, &count, &b.error),
                     SBIT_ERR_LIMIT, b.error);
        CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error); /* ratios as they were */
        CHECK_EQ_I64(kept_of(sparse, 0), 2);
    }
    sbit_feed_close(&feed);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

static sbit_graph *ten_channels(build *b)
{
    const float first[] = {0, 1, 0, -2, 0, 3, 0, -1, 0, 2};
    build_begin(b, 18);
    sbit_value_id y = build_input(b, "x", SBIT_F32, "N,1,2,2");
    y = conv(b, "aa", y, build_constant(b, "aa.weight", SBIT_F32, "10,1,1,1", first), none, NULL, 1);
    y = plain_conv(b, "bb", build_unary(b, "Relu", "relu", y), "10,10,1,1", 1);
    build_output(b, plain_conv(b, "zz", build_unary(b, "Relu", "relu2", y), "2,10,1,1", 1));
    return b->graph;
}

/* One sample for the input x, to be closed. */
static sbit_feed feed_of(build *b, const sbit_tensor *x)
{
    sbit_feed feed;
    sbit_feed_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.inputs = x;
    desc.input_count = 1;
    CHECK_OK(sbit_feed_of_tensors(b->ctx, &desc, &feed, &b->error), b->error);
    return feed;
}

/* Two inputs that are always equal: what one loses the other takes up, but for the damping of 1 %. */
static void makes_up_for_what_goes(const char *strategy)
{
    const float w[] = {1, 2}, data[] = {1, 1, -2, -2, 0.5f, 0.5f, 3, 3};
    const sbit_tensor x = build_tensor(SBIT_F32, "4,2", data);
    char text[150];
    build b;
    sbit_sparse *sparse = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    build_begin(&b, 18);
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    build_output(&b, build_binary(&b, "MatMul", "fc", build_input(&b, "x", SBIT_F32, "N,2"),
                                  build_constant(&b, "w", SBIT_F32, "2,1", w)));
    snprintf(text, sizeof text,
             "SPARSER: {TYPE: unstructured, STRATEGY: %s, RATIO: 0.5, ADMM.ITERATIONS: 300}\n", strategy);
    sbit_sconfig *config = configure(&b, text);
    CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        CHECK_STATUS(sbit_sparse_calc_params(sparse, NULL, &b.error), SBIT_ERR_STATE, b.error);
        for (int turn = 0; turn < 2; turn++) { /* the second starts from the same weights */
            sbit_graph *masked = NULL;
            CHECK_OK(sbit_sparse_calc_params(sparse, &feed, &b.error), b.error);
            if (CHECK_OK(sbit_sparse_masked(sparse, &masked, &b.error), b.error)) {
                CHECK_NEAR(number(masked, "w", 0), 0, 0);
                CHECK_NEAR(number(masked, "w", 1), 2 + 1 / 1.01, 1e-5);
            }
            sbit_graph_destroy(masked);
        }
    }
    sbit_feed_close(&feed);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

TEST(sparsegpt_and_admm_make_up_for_what_goes)
{
    makes_up_for_what_goes("sparsegpt");
    makes_up_for_what_goes("admm");
}

/* Two branches are added and normalized: RMS exactly, with a corrected scale and epsilon; a mean not,
 * unless it is asked for. */
TEST(normalized_axes_lose_channels)
{
    const float w[] = {4, 0.1f, 2, 3, -1, 0.2f, 1, 2}, gamma[] = {1, 2, 3, 4};
    static const struct {
        const char *op, *keys;
        int64_t kept;
    } cases[] = {{"RMSNormalization", "RATIO: 0.5", 2},
                 {"RMSNormalization", "RATIO: 0.5, PRUNE_BIAS: false", 4},
                 {"LayerNormalization", "RATIO: 0.5", 4},
                 {"LayerNormalization", "RATIO: 0.5, INEXACT_NORM: true", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_graph *out = NULL;
        char text[120];
        build_begin(&b, 23);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2");
        sbit_value_id y = build_binary(&b, "MatMul", "fc", x, build_constant(&b, "w", SBIT_F32, "2,4", w));
        if (i == 1) { /* what goes is 1 there */
            const float ones[] = {1, 1, 1, 1};
            y = build_binary(&b, "Add", "add", y, build_constant(&b, "one", SBIT_F32, "4", ones));
        }
        const sbit_value_id inputs[2] = {y, build_constant(&b, "gamma", SBIT_F32, "4", gamma)};
        const sbit_attr epsilon = build_float("epsilon", 0.25f);
        y = build_node(&b, cases[i].op, "norm", inputs, 2, &epsilon, 1);
        build_output(&b, build_binary(&b, "MatMul", "out", y, build_weights(&b, "v", "4,3", 1)));
        snprintf(text, sizeof text, "SPARSER: {TYPE: structured, STRATEGY: l1norm, %s}\n", cases[i].keys);
        sbit_sconfig *config = configure(&b, text);
        if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            CHECK_MSG(dim(out, "w", 1) == cases[i].kept, "%s, %s: %d", cases[i].op, cases[i].keys,
                      (int)dim(out, "w", 1));
            if (i == 0) { /* norms 5 0.3 3 5: the first and the last stay */
                CHECK_NEAR(number(out, "gamma", 0), sqrt(2.0), 1e-6);
                CHECK_NEAR(number(out, "gamma", 1), 4 * sqrt(2.0), 1e-6);
            }
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* A token that is expanded to the batch, as vision transformers have it: the shape is computed. */
TEST(computed_shapes_of_expand_follow_the_channels)
{
    const float w[] = {4, 0.1f, 2, 3, -1, 0.2f, 1, 2}, gamma[] = {1, 2, 3, 4}, token[] = {1, 2, 3, 4};
    const int64_t zero[] = {0}, one[] = {1}, four[] = {4};
    build b;
    sbit_graph *out = NULL;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,2");
    const sbit_value_id shape = build_unary(&b, "Shape", "shape", x);
    const sbit_value_id batch =
        build_binary(&b, "Gather", "batch", shape, build_constant(&b, "zero", SBIT_I64, "1", zero));
    const sbit_value_id parts[3] = {batch, build_constant(&b, "one", SBIT_I64, "1", one),
                                    build_constant(&b, "four", SBIT_I64, "1", four)};
    const sbit_attr first = build_int("axis", 0), second = build_int("axis", 1);
    const sbit_value_id tokens =
        build_binary(&b, "Expand", "tokens", build_constant(&b, "token", SBIT_F32, "1,1,4", token),
                     build_node(&b, "Concat", "target", parts, 3, &first, 1));
    const sbit_value_id both[2] = {
        tokens, build_binary(&b, "MatMul", "fc", x, build_constant(&b, "w", SBIT_F32, "2,4", w))};
    const sbit_value_id inputs[2] = {build_node(&b, "Concat", "all", both, 2, &second, 1),
                                     build_constant(&b, "gamma", SBIT_F32, "4", gamma)};
    const sbit_value_id y = build_node(&b, "LayerNormalization", "norm", inputs, 2, NULL, 0);
    build_output(&b, build_binary(&b, "MatMul", "out", y, build_weights(&b, "v", "4,3", 1)));
    sbit_sconfig *config = configure(
        &b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, INEXACT_NORM: true}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "w", 1), 2); /* and it ran */
        CHECK_EQ_I64(dim(out, "token", 2), 2);
        CHECK_NEAR(number(out, "token", 1), 4, 0);
        CHECK(strstr(b.warning, "normalized axis") != NULL);
    }
    sbit_graph_destroy(out);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Two of every four neighbours along the inputs, exactly; outputs nearer than without the update. */
TEST(admm_prunes_n_of_m)
{
    static const char *const strategies[] = {"level", "admm"};
    float data[64 * 8];
    double sqnr[2] = {0.0, 0.0};
    sbit_rng rng = sbit_rng_seed(5);
    for (int i = 0; i < 64 * 8; i++) { /* inputs that have much in common */
        data[i] = sbit_rng_normal(&rng) + (i % 8 > 0 ? 0.8f * data[i - 1] : 0.0f);
    }
    const sbit_tensor x = build_tensor(SBIT_F32, "64,8", data);
    for (int i = 0; i < 2; i++) {
        build b;
        sbit_sparse *sparse = NULL;
        char text[120];
        sbit_sparse_repaired repaired;
        build_begin(&b, 18);
        build_output(&b, build_binary(&b, "MatMul", "fc", build_input(&b, "x", SBIT_F32, "N,8"),
                                      build_weights(&b, "w", "8,6", 1)));
        sbit_feed feed = feed_of(&b, &x);
        snprintf(text, sizeof text,
                 "SPARSER: {TYPE: unstructured, STRATEGY: %s, N_OF_M: \"2:4\", REPAIR: batch_norm}\n",
                 strategies[i]);
        sbit_sconfig *config = configure(&b, text);
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            sbit_mask mask;
            CHECK_OK(sbit_sparse_select(sparse, &feed, &b.error), b.error);
            CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK);
            for (int g = 0; g < 12; g++) { /* column g / 2, inputs 4 (g % 2) to + 3 */
                int kept = 0;
                for (int k = 0; k < 4; k++) {
                    kept += mask.keep[(g % 2 * 4 + k) * 6 + g / 2];
                }
                CHECK_EQ_I64(kept, 2);
            }
            CHECK_OK(sbit_sparse_repair(sparse, &feed, &repaired, &b.error), b.error);
            sqnr[i] = repaired.before;
        }
        sbit_feed_close(&feed);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
    CHECK_MSG(sqnr[1] > sqnr[0] + 1.0, "%g dB, by magnitude %g", sqnr[1], sqnr[0]);
}

/* Five of the ten channels of aa are 0: what a budget wants goes there alone, and nothing is lost. */
TEST(budgets_are_met_where_it_costs_least)
{
    static const char *const searches[] = {"uniform", "sensitivity", "greedy", "netadapt",
                                           "annealing"};
    const float data[] = {1, -2, 0.5f, 3};
    const sbit_tensor x = build_tensor(SBIT_F32, "1,1,2,2", data);
    for (size_t i = 0; i < sizeof searches / sizeof searches[0]; i++) {
        build b;
        sbit_sparse *sparse = NULL;
        sbit_sparse_budget budget;
        char text[100];
        memset(&budget, 0, sizeof budget);
        ten_channels(&b);
        sbit_feed feed = feed_of(&b, &x);
        snprintf(text, sizeof text, "SPARSER: {TYPE: structured, STRATEGY: l1norm, SEARCH: %s}\n",
                 searches[i]);
        sbit_sconfig *config = configure(&b, text);
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            budget.params = 0.6; /* (5 + 50 + 20) of (10 + 100 + 20) are left */
            if (i > 0) {
                CHECK_STATUS(sbit_sparse_fit(sparse, &budget, NULL, &b.error), SBIT_ERR_STATE, b.error);
            }
            CHECK_OK(sbit_sparse_fit(sparse, &budget, i > 0 ? &feed : NULL, &b.error), b.error);
            const int64_t aa = kept_of(sparse, 0), bb = kept_of(sparse, 1);
            CHECK_MSG(aa + aa * bb + 2 * bb <= 78, "%s keeps %d and %d", searches[i], (int)aa, (int)bb);
            if (i == 0) {
                CHECK(aa > 5 && bb < 10);
            } else if (i < 4) {
                CHECK_EQ_I64(aa, 5);
                CHECK_EQ_I64(bb, 10);
            }
            budget.params = 0.001;
            CHECK_STATUS(sbit_sparse_fit(sparse, &budget, &feed, &b.error), SBIT_ERR_LIMIT, b.error);
            CHECK(strstr(b.error.message, "of the parameters") != NULL);
        }
        sbit_feed_close(&feed);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* What the user wants measured decides: channels of bb, whatever the outputs say. */
static sbit_status wants_bb_small(sbit_graph *masked, void *user, double *score, sbit_error *error)
{
    const sbit_value_id id = sbit_graph_find_value(masked, "aa.weight");
    const sbit_tensor *w = &sbit_graph_value(masked, id)->constant;
    (void)error;
    *score = 0.0;
    for (int64_t i = 0; i < sbit_tensor_count(w); i++) {
        *score += ((const float *)w->data)[i] != 0.0f ? 1.0 : 0.0;
    }
    ++*(int *)user;
    return SBIT_OK;
}

/* Half of the ratio everywhere: rows of a user, with keys. */
static sbit_status user_search(sbit_search *search, const sbit_options *options, double *ratios,
                               sbit_error *error)
{
    sbit_search_point point;
    for (size_t i = 0; i < sbit_search_unit_count(search); i++) {
        const sbit_search_unit unit = sbit_search_unit_at(search, i);
        CHECK_EQ_I64(unit.count, 10);
        CHECK_EQ_I64(unit.parameters, i == 0 ? 10 : 100);
        CHECK_STR(unit.layers, i == 0 ? "aa" : "bb");
        ratios[i] = sbit_options_float(options, "MINE.RATIO");
    }
    const sbit_status status = sbit_search_try(search, ratios, false, &point, error);
    CHECK_NEAR(point.over, (6 + 36 + 12) / 130.0 / 0.9, 1e-12);
    return status;
}

TEST(searches_are_rows_and_score_what_users_measure)
{
    static const sbit_key keys[] = {{"MINE.RATIO", SBIT_KEY_FLOAT, "0.35", 0, 1, NULL, "all"}};
    static const sbit_search_row mine = {{"mine", "a test's", 0, keys, 1}, false, user_search};
    build b;
    sbit_sparse *sparse = NULL;
    sbit_sparse_budget budget;
    int calls = 0;
    memset(&budget, 0, sizeof budget);
    ten_channels(&b);
    CHECK_OK(sbit_search_register(b.ctx, &mine, &b.error), b.error);
    CHECK_STATUS(sbit_search_register(b.ctx, &mine, &b.error), SBIT_ERR_DUPLICATE, b.error);
    CHECK(sbit_search_find(b.ctx, "MINE") == &mine && sbit_search_find(b.ctx, "none") == NULL);
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, SEARCH: netadapt}\n");
    budget.params = 0.6;
    budget.measure = wants_bb_small;
    budget.user = &calls;
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
        CHECK(calls > 0);
        CHECK(kept_of(sparse, 1) < 10 || kept_of(sparse, 0) == 5); /* zeros of aa cost nothing */
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    sparse = NULL;
    config = configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, SEARCH: mine, MINE.RATIO: 0.4}\n");
    budget.params = 0.9;
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
        CHECK_EQ_I64(kept_of(sparse, 0), 6);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

static sbit_status times_of_text(build *b, const char *path, const char *text, sbit_latency **out)
{
    FILE *file = fopen(path, "wb");
    if (!CHECK(file != NULL)) {
        return SBIT_ERR_IO;
    }
    fputs(text, file);
    fclose(file);
    return sbit_latency_load(b->ctx, path, out, &b->error);
}

/* What takes a half by its layers takes 0.8, and a fifth 0.5: between them lies a line, below it is even. */
static void times_that_were_corrected(build *b, sbit_sparse *sparse, const char *const *names, const char *path)
{
    static const struct {
        double budget;
        int64_t kept;
    } cases[] = {{1.0, 10}, {0.92, 8}, {0.8, 5}, {0.79, 4}, {0.6, 3}, {0.5, 2}, {0.25, 1}};
    char text[300];
    sbit_sparse_budget budget;
    memset(&budget, 0, sizeof budget);
    snprintf(text, sizeof text,
             "{\"shares\": [0.2, 0.5, 0.5, 0.8, 1, 1], \"microseconds\": {\"%s\": [4, 10, 40, 100], \"%s\": [1, 0], \"%s\": [1, 0]}}",
             names[0], names[1], names[2]);
    for (int again = 0; again < 2; again++) { /* what save wrote */
        sbit_latency *times = NULL;
        if (CHECK_OK(again ? sbit_latency_load(b->ctx, path, &times, &b->error) : times_of_text(b, path, text, &times), b->error)) {
            budget.times = times;
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                budget.latency = cases[i].budget;
                CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b->error), b->error);
                CHECK_EQ_I64(kept_of(sparse, 0), cases[i].kept);
            }
            CHECK_OK(sbit_latency_save(times, path, &b->error), b->error);
        }
        sbit_latency_destroy(times);
    }
    /* falling: both are their mean, 0.8, which nothing has to go for */
    sbit_latency *falls = NULL;
    snprintf(text, sizeof text,
             "{\"shares\": [1, 0.7, 0.5, 0.9], \"microseconds\": {\"%s\": [4, 10, 40, 100], \"%s\": [1, 0], \"%s\": [1, 0]}}",
             names[0], names[1], names[2]);
    if (CHECK_OK(times_of_text(b, path, text, &falls), b->error)) {
        budget.times = falls;
        budget.latency = 0.85;
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b->error), b->error);
        CHECK_EQ_I64(kept_of(sparse, 0), 10);
    }
    sbit_latency_destroy(falls);
    static const char *const wrong[] = {"[0.5]", "{}", "[0.5, \"a\"]", "[0.5, -1]", "[1, 0]", "[0, 1]",
                                        "[1, 1e999]", "[inf, 1]", "[1, 1e300]", "[1, nan]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        sbit_latency *times = NULL;
        snprintf(text, sizeof text, "{\"shares\": %s, \"microseconds\": {\"a\": [1, 1]}}", wrong[i]);
        CHECK_STATUS(times_of_text(b, path, text, &times), SBIT_ERR_CONFIG, b->error);
        CHECK_MSG(strstr(b->error.message, "shares") != NULL, "%s", b->error.message);
        sbit_latency_destroy(times);
    }
    static const char *const huge[] = {"[1, inf]", "[1e999, 1]", "[1, 1e300]"};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        sbit_latency *times = NULL;
        snprintf(text, sizeof text, "{\"microseconds\": {\"a\": %s}}", huge[i]);
        CHECK_STATUS(times_of_text(b, path, text, &times), SBIT_ERR_CONFIG, b->error);
        sbit_latency_destroy(times);
    }
}

/* A sixth channel of aa is more than what is left of 55 us, one of bb is not. */
static void times_that_are_filled_up(build *b, sbit_sparse *sparse, const char *const *names, const char *path)
{
    char text[300];
    sbit_latency *times = NULL;
    sbit_sparse_budget budget;
    memset(&budget, 0, sizeof budget);
    snprintf(text, sizeof text, "{\"microseconds\": {\"%s\": [4, 10, 40, 100], \"%s\": [4, 0.1, 400, 10], \"%s\": [1, 0]}}",
             names[0], names[1], names[2]);
    if (CHECK_OK(times_of_text(b, path, text, &times), b->error)) {
        budget.times = times;
        budget.latency = 0.5;
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b->error), b->error);
        CHECK_EQ_I64(kept_of(sparse, 0), 5);
        CHECK_EQ_I64(kept_of(sparse, 1), 6);
    }
    sbit_latency_destroy(times);
}

/* Times that were worked out by hand: aa takes 10 us a channel, bb and zz nothing. */
TEST(a_table_of_times_is_used_as_it_is)
{
    char path[400];
    build b;
    sbit_sparse *sparse = NULL;
    sbit_sparse_budget budget;
    sbit_latency *times = NULL;
    char text[300];
    memset(&budget, 0, sizeof budget);
    test_tmp_path("latency.json", path, sizeof path);
    ten_channels(&b);
    sbit_sconfig *config = configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n");
    budget.latency = 0.6;
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        const sbit_graph *graph = sbit_sparse_graph(sparse);
        const char *names[3] = {"", "", ""};
        size_t n = 0;
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
            const sbit_node *node = sbit_graph_node(graph, id);
            if (strcmp(node->op_type, "Conv") == 0 && n < 3) {
                names[n++] = sbit_graph_value(graph, node->outputs[0])->name;
            }
        }
        CHECK_STATUS(sbit_sparse_fit(sparse, &budget, NULL, &b.error), SBIT_ERR_INVALID_ARGUMENT, b.error);
        /* 4 multiply-accumulates a channel */
        const int size = snprintf(text, sizeof text,
                                  "{\"microseconds\": {\"%s\": [4, 10, 40, 100], \"%s\": [1, 0], "
                                  "\"%s\": [1, 0]}}",
                                  names[0], names[1], names[2]);
        FILE *file = fopen(path, "wb");
        if (CHECK(n == 3 && file != NULL)) {
            CHECK(fwrite(text, 1, (size_t)size, file) == (size_t)size);
            fclose(file);
        }
        if (CHECK_OK(sbit_latency_load(b.ctx, path, &times, &b.error), b.error)) {
            budget.times = times;
            CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
            CHECK_EQ_I64(kept_of(sparse, 0), 6);
            CHECK_OK(sbit_latency_save(times, path, &b.error), b.error);
            sbit_latency_destroy(times);
            times = NULL;
            CHECK_OK(sbit_latency_load(b.ctx, path, &times, &b.error), b.error); /* what save wrote */
            budget.times = times;
            budget.latency = 0.3;
            CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
            CHECK_EQ_I64(kept_of(sparse, 0), 3);
            CHECK_EQ_I64(kept_of(sparse, 1), 3);
            budget.latency = 0.0001;
            CHECK_STATUS(sbit_sparse_fit(sparse, &budget, NULL, &b.error), SBIT_ERR_LIMIT, b.error);
            CHECK(strstr(b.error.message, "of the time") != NULL);
        }
        sbit_latency_destroy(times);
        times = NULL;
        times_that_were_corrected(&b, sparse, names, path);
        times_that_are_filled_up(&b, sparse, names, path);
        double before = 0.0, after = 0.0;
        CHECK_OK(sbit_latency_measure(sparse, NULL, &times, &b.error), b.error);
        budget.times = times;
        budget.latency = 100.0; /* whatever else this machine does at present */
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
        CHECK_OK(sbit_latency_now(sparse, &before, &after, &b.error), b.error);
        CHECK_MSG(before > 0.0 && after > 0.0, "%g %g", before, after);
        sbit_latency_destroy(times);
        times = NULL;
        file = fopen(path, "wb");
        if (CHECK(file != NULL)) {
            fputs("{\"microseconds\": {\"a\": [1]}}", file);
            fclose(file);
        }
        CHECK_STATUS(sbit_latency_load(b.ctx, path, &times, &b.error), SBIT_ERR_CONFIG, b.error);
        CHECK_STATUS(sbit_latency_load(b.ctx, "nowhere/at.all", &times, &b.error), SBIT_ERR_IO, b.error);
        remove(path);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Outputs worth 7 0 1 2: the first and the last stay. */
TEST(outputs_lose_channels_if_asked)
{
    const float w[] = {3, 0, 1, 0, -4, 0, 0, 2};
    static const struct {
        const char *outputs;
        int64_t kept;
    } cases[] = {{"", 4}, {"y", 2}, {"other,y", 2}, {"all", 2}, {"x", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_graph *out = NULL;
        build_begin(&b, 18);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2");
        const sbit_value_id y =
            build_binary(&b, "Gemm", "fc", x, build_constant(&b, "w", SBIT_F32, "2,4", w));
        build_output(&b, build_unary(&b, "Relu", "other", x));
        build_output(&b, y);
        CHECK_OK(sbit_graph_rename_value(b.graph, y, "y", &b.error), b.error);
        CHECK_OK(sbit_graph_rename_value(b.graph, sbit_graph_output(b.graph, 0), "other", &b.error),
                 b.error);
        sbit_sconfig *config =
            configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
        if (cases[i].outputs[0] != '\0') {
            CHECK_OK(sbit_sconfig_set(config, "SPARSER.PRUNE_OUTPUTS", cases[i].outputs, &b.error),
                     b.error);
        }
        if (cases[i].kept == 0) {
            CHECK_STATUS(sbit_prune(b.graph, config, NULL, &out, &b.error), SBIT_ERR_CONFIG, b.error);
        } else if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error) &&
                   CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            CHECK_EQ_I64(dim(out, "w", 1), cases[i].kept);
            CHECK_EQ_I64(sbit_graph_value(out, sbit_graph_output(out, 1))->type.dims[1].value,
                         cases[i].kept);
            if (cases[i].kept == 2) {
                CHECK_NEAR(number(out, "w", 0), 3, 0);
                CHECK_NEAR(number(out, "w", 2), -4, 0);
            }
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* The first layer of a pair loses its first channel; the mean and variance of what is left behind
 * the second are those of the data: x * 2 * 3 with x = 1 2 3 4. */
TEST(statistics_are_taken_anew)
{
    const float first[] = {1, 2}, second[] = {10, 3}, one[] = {1}, zero[] = {0};
    const float data[] = {1, 2, 3, 4};
    const sbit_tensor x = build_tensor(SBIT_F32, "1,1,2,2", data);
    build b;
    sbit_graph *out = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    build_begin(&b, 18);
    sbit_value_id in[5];
    sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,1,2,2");
    y = conv(&b, "first", y, build_constant(&b, "w1", SBIT_F32, "2,1,1,1", first), none, NULL, 1);
    in[0] = conv(&b, "second", y, build_constant(&b, "w2", SBIT_F32, "1,2,1,1", second), none, NULL,
                 1);
    in[1] = build_constant(&b, "gamma", SBIT_F32, "1", one);
    in[2] = build_constant(&b, "beta", SBIT_F32, "1", zero);
    in[3] = build_constant(&b, "mean", SBIT_F32, "1", zero);
    in[4] = build_constant(&b, "var", SBIT_F32, "1", one);
    build_output(&b, build_node(&b, "BatchNormalization", "bn", in, 5, NULL, 0));
    CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
    sbit_sconfig *config = configure(
        &b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, REPAIR: batch_norm}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, &feed, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "w1", 0), 1);
        CHECK_NEAR(number(out, "w2", 0), 3, 0);
        CHECK_NEAR(number(out, "mean", 0), 15, 1e-4);
        CHECK_NEAR(number(out, "var", 0), 36 * 1.25, 1e-3);
    }
    sbit_graph_destroy(out);
    sbit_feed_close(&feed);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* x = 1 -2, w = 3 1, 1.5 0.1, so y = 0 0.8; targets -1 -0.2: the mean square error has the gradient
 * 1 1, -2 -2, and w g = 3 1, -3 -0.2. Columns are rows here: taylor 18 and 1.04, fisher 0 and 0.64,
 * movement 0 and -0.8. */
TEST(gradients_of_a_loss_are_looked_at)
{
    const float w[] = {3, 1, 1.5f, 0.1f}, data[] = {1, -2}, wanted[] = {-1, -0.2f};
    const sbit_tensor x = build_tensor(SBIT_F32, "1,2", data);
    const sbit_tensor t = build_tensor(SBIT_F32, "1,2", wanted);
    static const struct {
        const char *strategy;
        uint8_t keep[4];
    } cases[] = {{"taylor", {1, 0, 1, 0}}, {"fisher", {0, 1, 0, 1}}, {"movement", {1, 0, 1, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        build b;
        sbit_sparse *sparse = NULL;
        sbit_feed feed, bare;
        sbit_feed_desc desc;
        sbit_mask mask;
        build_begin(&b, 18);
        memset(&desc, 0, sizeof desc);
        desc.inputs = &x;
        desc.input_count = 1;
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &bare, &b.error), b.error);
        desc.targets = &t;
        desc.target_count = 1;
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
        build_output(&b, build_binary(&b, "MatMul", "fc", build_input(&b, "x", SBIT_F32, "N,2"),
                                      build_constant(&b, "w", SBIT_F32, "2,2", w)));
        snprintf(text, sizeof text,
                 "SPARSER: {TYPE: structured, STRATEGY: %s, RATIO: 0.5, LOSS: mse}\n",
                 cases[i].strategy);
        sbit_sconfig *config = configure(&b, text);
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            CHECK_STATUS(sbit_sparse_calc_params(sparse, NULL, &b.error), SBIT_ERR_STATE, b.error);
            CHECK_STATUS(sbit_sparse_calc_params(sparse, &bare, &b.error), SBIT_ERR_STATE, b.error);
            CHECK(strstr(b.error.message, "targets") != NULL);
            CHECK_OK(sbit_sparse_calc_params(sparse, &feed, &b.error), b.error);
            if (CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK)) {
                CHECK_MSG(memcmp(mask.keep, cases[i].keep, 4) == 0, "%s", cases[i].strategy);
            }
        }
        sbit_feed_close(&feed);
        sbit_feed_close(&bare);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* ---- scores that add up over steps, start masks, torch's entries */

/* w 2 x 2 behind x = (1, -2), loss mse to `wanted`: w g is (3, 1, -3, -0.2) for (-1, -0.2). */
static const float slope_w[] = {3, 1, 1.5f, 0.1f};

static sbit_sparse *slopes(build *b, const char *text, const float *wanted, sbit_feed *feed, sbit_sconfig **config)
{
    static const float data[] = {1, -2};
    const sbit_tensor x = build_tensor(SBIT_F32, "1,2", data), t = build_tensor(SBIT_F32, "1,2", wanted);
    sbit_sparse *sparse = NULL;
    sbit_feed_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.targets = &t;
    desc.input_count = desc.target_count = 1;
    build_begin(b, 18);
    build_output(b, build_binary(b, "MatMul", "fc", build_input(b, "x", SBIT_F32, "N,2"),
                                 build_constant(b, "w", SBIT_F32, "2,2", slope_w)));
    *config = configure(b, text);
    CHECK_OK(sbit_feed_of_tensors(b->ctx, &desc, feed, &b->error), b->error);
    if (!b->failed) {
        CHECK_OK(sbit_sparse_create(b->graph, *config, &sparse, &b->error), b->error);
    }
    return sparse;
}

static void slopes_end(build *b, sbit_sparse *sparse, sbit_feed *feed, sbit_sconfig *config)
{
    sbit_feed_close(feed);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(b);
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

TEST(soft_movement_prunes_below_a_threshold_that_grows)
{
    static const float wanted[] = {-1, -0.2f};
    const double wg[] = {3, 1, -3, -0.2};
    double s[4];
    for (int steps = 0; steps < 2; steps++) { /* one select; the second of two steps */
        for (int i = 0; i < 4; i++) {
            s[i] = -0.5 * (wg[i] + (steps == 0 ? 0.8 * 0.25 : 0.0));
            const double q = sigmoid(s[i]);
            s[i] -= steps == 1 ? 0.5 * (wg[i] + 0.5 * 0.8 * q * (1 - q)) : 0.0;
        }
        for (int above = 0; above < 2; above++) { /* just below the second element's score, and above it */
            const double threshold = (sigmoid(s[1]) + (above ? 1e-5 : -1e-5)) * (steps == 1 ? 2.0 : 1.0);
            char text[240];
            build b;
            sbit_feed feed;
            sbit_sconfig *config = NULL;
            sbit_mask mask;
            snprintf(text, sizeof text,
                     "SPARSER: {TYPE: unstructured, STRATEGY: soft_movement, THRESHOLD: %.9f, LOSS: mse, SCHEDULE: linear, "
                     "SOFT_MOVEMENT.RATE: 0.5, SOFT_MOVEMENT.LAMBDA: 0.8}\n",
                     threshold);
            sbit_sparse *sparse = slopes(&b, text, wanted, &feed, &config);
            if (sparse != NULL && steps == 0) {
                CHECK_OK(sbit_sparse_select(sparse, &feed, &b.error), b.error);
            } else if (sparse != NULL) {
                CHECK_OK(sbit_sparse_step(sparse, 0, 2, &feed, &b.error), b.error);
                CHECK(sbit_sparse_mask_count(sparse) == 0 ||
                      (sbit_sparse_mask(sparse, 0, &mask) == SBIT_OK && mask.kept == 4));
                CHECK_OK(sbit_sparse_step(sparse, 1, 2, &feed, &b.error), b.error);
            }
            if (sparse != NULL && CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK)) {
                CHECK_EQ_I64(mask.keep[0], 0);
                CHECK_EQ_I64(mask.keep[1], above ? 0 : 1);
                CHECK(mask.keep[2] == 1 && mask.keep[3] == 1);
            }
            slopes_end(&b, sparse, &feed, config);
        }
    }
}

/* - w g = (3, 1, -3, -0.2) at step 0; at step 1 the weights are 0 and nothing is added. */
TEST(movement_adds_up_over_steps)
{
    static const float wanted[] = {1, 1.8f}, zeros[4] = {0, 0, 0, 0};
    const sbit_tensor w = build_tensor(SBIT_F32, "2,2", zeros);
    build b;
    sbit_feed feed;
    sbit_sconfig *config = NULL;
    sbit_mask mask;
    sbit_sparse *sparse =
        slopes(&b, "SPARSER: {TYPE: unstructured, STRATEGY: movement, RATIO: 0.25, LOSS: mse}\n", wanted, &feed, &config);
    if (sparse != NULL && CHECK_OK(sbit_sparse_step(sparse, 0, 2, &feed, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_set_weight(sparse, "w", &w, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_step(sparse, 1, 2, &feed, &b.error), b.error) &&
        CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK)) {
        CHECK(mask.kept == 3 && mask.keep[2] == 0);
        CHECK_OK(sbit_sparse_step(sparse, 0, 2, &feed, &b.error), b.error); /* anew: all are 0 */
        CHECK(sbit_sparse_mask(sparse, 0, &mask) == SBIT_OK && mask.kept == 3 && mask.keep[0] == 0);
    }
    slopes_end(&b, sparse, &feed, config);
}

static const float tune_goal[4] = {0, -4, 1.5f, 0.1f};

/* A loss that is (w - goal)^2: then towards what is pruned. */
static void tune_step(float *w, const float *pull, float rho)
{
    for (int i = 0; i < 4; i++) {
        w[i] -= rho * (w[i] - pull[i]);
        w[i] -= 0.2f * (w[i] - tune_goal[i]);
    }
}

static sbit_status tune_to_goal(const sbit_sparse_tuning *tuning, sbit_error *error)
{
    const sbit_value_id id = sbit_graph_find_value(tuning->graph, "w");
    const sbit_tensor *was = &sbit_graph_value(tuning->graph, id)->constant;
    float w[4];
    const sbit_tensor now = build_tensor(SBIT_F32, "2,2", memcpy(w, was->data, sizeof w));
    CHECK(tuning->steps == 2 && tuning->batch == 1 && tuning->pull != NULL && tuning->pull[id.idx] != NULL);
    for (int64_t i = 0; i < tuning->steps; i++) {
        tune_step(w, tuning->pull[id.idx], (float)tuning->rho);
    }
    return sbit_graph_set_constant(tuning->graph, id, &now, error);
}

/* z[i]: v[i] where it is one of the two largest, else 0. */
static void two_of_four(const float *v, float *z)
{
    for (int i = 0; i < 4; i++) {
        int smaller = 0;
        for (int k = 0; k < 4; k++) {
            smaller += fabs((double)v[k]) < fabs((double)v[i]) ? 1 : 0;
        }
        z[i] = smaller >= 2 ? v[i] : 0.0f;
    }
}

TEST(admm_training_draws_weights_to_what_goes)
{
    static const float wanted[] = {0, 0};
    float w[4], u[4] = {0, 0, 0, 0}, v[4], z[4], pull[4];
    build b;
    sbit_feed feed;
    sbit_sconfig *config = NULL;
    sbit_sparse_budget budget;
    sbit_graph *out = NULL;
    memset(&budget, 0, sizeof budget);
    budget.tune = tune_to_goal;
    memcpy(w, slope_w, sizeof w);
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 4; i++) {
            v[i] = w[i] + u[i];
        }
        two_of_four(v, z);
        for (int i = 0; i < 4; i++) {
            u[i] = v[i] - z[i];
            pull[i] = z[i] - u[i];
        }
        tune_step(w, pull, 0.1f);
        tune_step(w, pull, 0.1f);
    }
    two_of_four(w, z);
    CHECK(z[0] == 0.0f && z[1] < -1.0f); /* the data changed what goes */
    sbit_sparse *sparse = slopes(&b, "SPARSER: {TYPE: unstructured, STRATEGY: level, RATIO: 0.5, LOSS: mse, SEARCH: admm_training, "
                                     "ADMM_TRAINING.ITERATIONS: 4, ADMM_TRAINING.EPOCHS: 2, ADMM_TRAINING.BATCH: 1, "
                                     "ADMM_TRAINING.RHO: 0.1}\n",
                                 wanted, &feed, &config);
    if (sparse != NULL && CHECK_OK(sbit_sparse_fit(sparse, &budget, &feed, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_masked(sparse, &out, &b.error), b.error)) {
        for (int i = 0; i < 4; i++) {
            CHECK_NEAR(number(out, "w", i), z[i], 1e-6);
        }
        budget.tune = NULL;
        CHECK_STATUS(sbit_sparse_fit(sparse, &budget, &feed, &b.error), SBIT_ERR_STATE, b.error);
    }
    sbit_graph_destroy(out);
    slopes_end(&b, sparse, &feed, config);
}

TEST(factors_of_a_schedule_are_listed)
{
    static const int64_t gone[] = {0, 1, 2, 0}; /* of four, RATIO 0.5: 0, 0.25, 0.5, 0.125 */
    build b;
    sbit_sparse *sparse = NULL;
    sbit_sconfig *wrong = NULL;
    static const char bad[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, LAMBDA.FACTORS: [0, much]}\n";
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config = configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, SCHEDULE: lambda, "
                                         "LAMBDA.FACTORS: [0, 0.5, 1, 0.25], SPECIFIC: [{second: [RATIO, 0]}]}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        for (int step = 0; step < 4; step++) {
            CHECK_OK(sbit_sparse_step(sparse, step, 3, NULL, &b.error), b.error);
            CHECK_EQ_I64(kept_of(sparse, 0), 4 - gone[step]);
        }
    }
    CHECK_STATUS(sbit_sconfig_read(b.ctx, bad, sizeof bad - 1, &wrong, &b.error), SBIT_ERR_CONFIG, b.error);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* The mask of one product, 4 inputs x 4 outputs. */
static void masked_product(const char *text, const sbit_feed *feed, const float *w, uint8_t *keep)
{
    build b;
    sbit_sparse *sparse = NULL;
    sbit_mask mask;
    build_begin(&b, 18);
    build_output(&b, build_binary(&b, "MatMul", "fc", build_input(&b, "x", SBIT_F32, "N,4"),
                                  build_constant(&b, "w", SBIT_F32, "4,4", w)));
    sbit_sconfig *config = configure(&b, text);
    memset(keep, 2, 16);
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_calc_params(sparse, feed, &b.error), b.error) &&
        CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK)) {
        memcpy(keep, mask.keep, 16);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* The first input of every output is pruned from the start: one more of its four goes, whatever scores say. */
TEST(start_masks_count_whatever_scores_say)
{
    static const char *const cases[] = {"N_OF_M: \"2:4\"", "RATIO: 0.5", "RATIO: 0.5, RANK: row", "WITHIN: 1x4, RATIO: 0.5"};
    const float w[16] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[240];
        uint8_t keep[16];
        int kept = 0, first = 0;
        snprintf(text, sizeof text,
                 "SPARSER: {TYPE: unstructured, STRATEGY: random, RANDOM.SEED: 3, %s, SPECIFIC: [{\"*\": [MASK, "
                 "\"0000111111111111\"]}]}\n",
                 cases[i]);
        masked_product(text, NULL, w, keep);
        for (int k = 0; k < 16; k++) {
            kept += keep[k];
            first += k < 4 ? keep[k] : 0;
        }
        CHECK_MSG(kept == 8 && first == 0, "%s: %d, %d", cases[i], kept, first);
        for (int column = 0; column < 4 && i != 1; column++) {
            CHECK_EQ_I64(keep[column] + keep[4 + column] + keep[8 + column] + keep[12 + column], 2);
        }
    }
}

/* |w| sum x^2 of the whole layer: sums 5, 9, 0, 0; within each row another two would go. */
TEST(entries_as_torch_has_them)
{
    const float data[] = {1, 3, 0, 0, 2, 0, 0, 0};
    const float w[16] = {4, 1, 4, 1, 3, 1, 3, 1, 7, 7, 7, 7, 7, 7, 7, 7};
    static const uint8_t wanda[16] = {1, 0, 1, 0, 1, 0, 1, 0}; /* 20 5 20 5 27 9 27 9 0 ...: 12 of 16 */
    const sbit_tensor x = build_tensor(SBIT_F32, "2,4", data);
    uint8_t keep[16];
    build b;
    sbit_sparse *sparse = NULL;
    sbit_graph *out = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
    masked_product("{pruner: WandaSparsifier, config_list: [{tensor_fqn: w, sparsity_level: 0.75}]}\n", &feed, w, keep);
    CHECK(memcmp(keep, wanda, 16) == 0);
    masked_product("{pruner: WandaSparsifier, config_list: [{tensor_fqn: w, sparsity_level: 0.5, mask: [[0, 1, 1, 1], "
                   "[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, true]]}]}\n",
                   &feed, w, keep); /* 20 goes, then the zeros: 7 of 8 */
    CHECK(keep[0] == 0 && keep[2] == 1 && keep[8] == 0 && keep[14] == 0 && keep[15] == 1);
    /* a row that is pruned from the start, and its bias stays: torch's prune_bias false */
    sbit_sconfig *config = configure(&b, "{pruner: SaliencyPruner, config_list: [{tensor_fqn: w1, sparsity_level: 0.25, "
                                         "mask: [true, true, false, true], prune_bias: false}]}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "w1", 0), 3);
        CHECK_NEAR(number(out, "w1", 1), 1, 0);
        CHECK_NEAR(number(out, "w1", 2), -1, 0);
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    sparse = NULL;
    config = configure(&b, "[{tensor_fqn: w1, sparsity_level: 0.25, mask: [1, 0]}]\n");
    CHECK_STATUS(sbit_sparse_create(b.graph, config, &sparse, &b.error), SBIT_ERR_CONFIG, b.error);
    sbit_sconfig_destroy(config);
    sbit_feed_close(&feed);
    build_end(&b);
}

/* torch's data sparsifier: entries of a table in blocks of 1 x 2. Sums 3 7 | 8 1 | 4 9. */
TEST(tables_are_pruned_in_blocks_of_their_entries)
{
    const float w[12] = {1, 2, 3, 4, 4, 4, 1, 0, 2, 2, 8, 1};
    static const uint8_t wanted[12] = {0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1};
    build b;
    sbit_sparse *sparse = NULL;
    sbit_mask mask;
    build_begin(&b, 18);
    const sbit_value_id table = build_constant(&b, "table", SBIT_F32, "3,4", w);
    build_output(&b, build_unary(&b, "Relu", "relu",
                                 build_binary(&b, "Gather", "embedding", table, build_input(&b, "x", SBIT_I64, "N"))));
    sbit_sconfig *config = configure(&b, "{pruner: DataNormSparsifier, config_list: [{tensor_fqn: table, sparsity_level: 0.5, "
                                         "sparse_block_shape: [1, 2], norm: L1}]}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_calc_params(sparse, NULL, &b.error), b.error) &&
        CHECK_EQ_I64(sbit_sparse_mask(sparse, 0, &mask), SBIT_OK)) {
        CHECK(memcmp(mask.keep, wanted, 12) == 0);
        char name[80]; /* a table is its layer's weight, by either name */
        snprintf(name, sizeof name, "%s.%s", mask.layer, mask.part);
        CHECK_CONTAINS(name, ".weight");
        CHECK_OK(sbit_sparse_set_mask(sparse, name, wanted, 12, &b.error), b.error);
        CHECK_OK(sbit_sparse_set_mask(sparse, "table", wanted, 12, &b.error), b.error);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* ONNX gates i o f c of two units: within each the smaller row goes; of whole units the one with the smaller sum. */
TEST(gates_of_a_recurrent_layer_are_ranked_by_themselves)
{
    const float w[8] = {3, 1, 1, 2, 5, 4, 2, 9};
    static const uint8_t rows[8] = {1, 0, 0, 1, 1, 0, 0, 1};
    float r[16];
    build b;
    sbit_sparse *sparse = NULL;
    sbit_graph *out = NULL;
    sbit_mask mask;
    sbit_attr attr = build_int("hidden_size", 2);
    for (int i = 0; i < 16; i++) {
        r[i] = 1;
    }
    build_begin(&b, 18);
    const sbit_value_id inputs[3] = {build_input(&b, "x", SBIT_F32, "5,N,1"), build_constant(&b, "W", SBIT_F32, "1,8,1", w),
                                     build_constant(&b, "R", SBIT_F32, "1,8,2", r)};
    const sbit_value_id y = build_node(&b, "LSTM", "lstm", inputs, 3, &attr, 1);
    const float fc[4] = {1, 2, 3, 4};
    build_output(&b, build_binary(&b, "MatMul", "fc", y, build_constant(&b, "fc.weight", SBIT_F32, "2,2", fc)));
    sbit_sconfig *config = configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, SPECIFIC: [{fc: [RATIO, 0]}]}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_calc_params(sparse, NULL, &b.error), b.error)) {
        for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
            if (CHECK_EQ_I64(sbit_sparse_mask(sparse, i, &mask), SBIT_OK) && strcmp(mask.name, "W") == 0) {
                CHECK(memcmp(mask.keep, rows, 8) == 0 && strcmp(mask.part, "weight_ih") == 0);
            } else if (strcmp(mask.name, "R") == 0) { /* equal rows: the first of each gate, its row and no column */
                CHECK(mask.kept == 8 && mask.keep[0] == 0 && mask.keep[1] == 0 && mask.keep[2] == 1);
            }
        }
        CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error); /* 3 + 1 + 5 + 2 < 1 + 2 + 4 + 9 */
        if (CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error)) {
            CHECK(dim(out, "W", 1) == 4 && dim(out, "R", 1) == 4 && dim(out, "R", 2) == 1 && dim(out, "fc.weight", 0) == 1);
            CHECK_NEAR(number(out, "W", 0), 1, 0);
            CHECK_NEAR(number(out, "W", 3), 9, 0);
        }
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* ---- files, collectors */

static int64_t kept_of_all(const sbit_sparse *sparse)
{
    int64_t kept = 0;
    for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
        sbit_mask mask;
        CHECK_EQ_I64(sbit_sparse_mask(sparse, i, &mask), SBIT_OK);
        kept += mask.kept;
    }
    return kept;
}

TEST(masks_go_to_a_file_and_come_back)
{
    const char *const paths[4] = {SBIT_TEST_TMP "/masks_a.json", SBIT_TEST_TMP "/masks_b.json", SBIT_TEST_TMP "/masks_masked.onnx", SBIT_TEST_TMP "/masks_shrunk.onnx"};
    const sbit_sparse_files all = {paths[3], paths[2], paths[0], NULL}, only_masks = {NULL, NULL, paths[1], NULL};
    static const char *const wrong[] = {"[1]", "{\"first\": 3}", "{\"first\": {\"weight\": {\"shape\": [4, 1, 1, 1]}}}",
                                        "{\"second\": {\"weight\": {\"runs\": [1, 7], \"shape\": [2, 4, 1, 1]}}, \"first\": {\"weight\": {}}}",
                                        "{\"second\": {\"weight\": {\"runs\": [1, 7], \"shape\": [2, 4, 1, 1]}}",
                                        "{\"second\": {\"weight\": {\"runs\": [1, 7,], \"shape\": [2, 4, 1, 1]}}}",
                                        "{\"second\": {\"weight\": {\"runs\": [1, 7], \"shape\": [2, 4, 1, 1]}}} 1",
                                        "{\"first\": {\"weight\": {\"shape\": [5, 1, 1, 1], \"runs\": [4]}}}",
                                        "{\"first\": {\"weight\": {\"shape\": [4, 1, 1, 1], \"runs\": [3]}}}",
                                        "{\"first\": {\"weight\": {\"shape\": [4, 1, 1, 1], \"runs\": [3, 9]}}}",
                                        "{\"first\": {\"weight\": {\"shape\": [4, 1, 1, 1], \"runs\": [1, 3]}}, \"first\": {\"weight\": {\"runs\": [0, 4]}}}"};
    build b;
    sbit_sparse *sparse[2] = {NULL, NULL};
    sbit_graph *graph = NULL;
    uint8_t kept[4] = {0, 0, 0, 0};
    build_begin(&b, 18);
    two_convs(&b, NULL);
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, SPECIFIC: [{second: [RATIO, 0]}]}\n");
    for (int i = 0; i < 2 && !b.failed; i++) {
        sbit_mask mask;
        CHECK_OK(sbit_sparse_create(b.graph, config, &sparse[i], &b.error), b.error);
        if (i == 0) {
            CHECK_OK(sbit_sparse_select(sparse[i], NULL, &b.error), b.error);
            CHECK_OK(sbit_sparse_export(sparse[i], &all, &b.error), b.error);
        } else {
            CHECK_OK(sbit_sparse_load_masks(sparse[i], paths[0], false, &b.error), b.error);
            CHECK_OK(sbit_sparse_export(sparse[i], &only_masks, &b.error), b.error);
        }
        for (size_t k = 0; k < sbit_sparse_mask_count(sparse[i]); k++) {
            CHECK_EQ_I64(sbit_sparse_mask(sparse[i], k, &mask), SBIT_OK);
            if (strcmp(mask.name, "w1") == 0) {
                CHECK(strcmp(mask.layer, "first") == 0 && strcmp(mask.part, "weight") == 0 && mask.kept == 2);
                CHECK(i == 0 || memcmp(mask.keep, kept, 4) == 0);
                memcpy(kept, mask.keep, 4);
            }
        }
    }
    size_t sizes[2] = {0, 0};
    unsigned char *files[2] = {test_read_file(paths[0], &sizes[0]), test_read_file(paths[1], &sizes[1])};
    CHECK(files[0] != NULL && files[1] != NULL && sizes[0] == sizes[1] && memcmp(files[0], files[1], sizes[0]) == 0);
    free(files[0]);
    free(files[1]);
    for (int i = 2; i < 4; i++) {
        if (CHECK_OK(sbit_graph_load(b.ctx, paths[i], &graph, &b.error), b.error)) {
            CHECK_EQ_I64(dim(graph, "w1", 0), i == 2 ? 4 : 2);
            CHECK_NEAR(number(graph, "w1", 1), i == 2 ? 0 : 3, 0);
        }
        sbit_graph_destroy(graph);
        graph = NULL;
    }
    const int64_t before = kept_of_all(sparse[1]);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        FILE *file = fopen(paths[1], "wb");
        if (CHECK(file != NULL)) {
            fputs(wrong[i], file);
            fclose(file);
        }
        CHECK_STATUS(sbit_sparse_load_masks(sparse[1], paths[1], false, &b.error),
                     strstr(wrong[i], "[5") != NULL ? SBIT_ERR_SHAPE : SBIT_ERR_CONFIG, b.error);
        CHECK_MSG(kept_of_all(sparse[1]) == before, "a part of %s was set", wrong[i]);
    }
    /* arrays: likewise all of them or none */
    static const uint8_t nothing[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    static const struct {
        const char *name;
        int64_t count;
        sbit_status status;
    } second_masks[] = {{"w1", 4, SBIT_ERR_CONFIG}, {"first.weight", 4, SBIT_ERR_CONFIG}, {"second.weight", 7, SBIT_ERR_SHAPE},
                        {"nowhere", 4, SBIT_ERR_NOT_FOUND}, {NULL, 4, SBIT_ERR_INVALID_ARGUMENT}};
    for (size_t i = 0; i < sizeof second_masks / sizeof second_masks[0]; i++) {
        sbit_mask given[2];
        memset(given, 0, sizeof given);
        given[0].name = "first.weight";
        given[0].count = 4;
        given[1].name = second_masks[i].name;
        given[1].count = second_masks[i].count;
        given[0].keep = given[1].keep = nothing;
        for (int start = 0; start < 2; start++) {
            CHECK_STATUS(sbit_sparse_set_masks(sparse[1], given, 2, start == 1, &b.error), second_masks[i].status, b.error);
        }
        CHECK_MSG(kept_of_all(sparse[1]) == before, "a part of two masks was set");
        CHECK_STATUS(sbit_sparse_set_masks(sparse[1], NULL, 0, false, &b.error), SBIT_OK, b.error);
    }
    const sbit_mask both[2] = {{{0}, "w1", NULL, NULL, 4, 0, nothing}, {{0}, "second.weight", NULL, NULL, 8, 0, nothing}};
    CHECK_OK(sbit_sparse_set_masks(sparse[1], both, 2, false, &b.error), b.error);
    CHECK(kept_of_all(sparse[1]) < before);
    CHECK_OK(sbit_sparse_load_masks(sparse[1], paths[0], false, &b.error), b.error);
    CHECK_EQ_I64(kept_of_all(sparse[1]), before);
    FILE *file = fopen(paths[1], "wb"); /* of any size */
    if (CHECK(file != NULL)) {
        fprintf(file, "%*s{\"first\": {\"weight\": {\"runs\": [0, 4], \"shape\": [4, 1, 1, 1]}}}\n", 1100000, "");
        fclose(file);
        CHECK_OK(sbit_sparse_load_masks(sparse[1], paths[1], false, &b.error), b.error);
        CHECK(kept_of_all(sparse[1]) < before);
    }
    /* squashed: zeros stay with the masks off */
    sbit_sparse_switch_masks(sparse[0], false);
    CHECK_OK(sbit_sparse_squash(sparse[0], &b.error), b.error);
    if (CHECK_OK(sbit_sparse_masked(sparse[0], &graph, &b.error), b.error)) {
        CHECK(number(graph, "w1", 0) == -4 && number(graph, "w1", 1) == 0 && number(graph, "w1", 3) == 0);
    }
    sbit_graph_destroy(graph);
    for (int i = 0; i < 4; i++) {
        remove(paths[i]);
    }
    sbit_sparse_destroy(sparse[0]);
    sbit_sparse_destroy(sparse[1]);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

typedef struct seen {
    double sum;
    int calls;
} seen;

static sbit_status see(const char *layer, const sbit_sparser_sample *sample, void *user, sbit_error *error)
{
    seen *s = (seen *)user;
    (void)error;
    CHECK(strcmp(layer, "second") == 0 && sample->axis == 1);
    for (int64_t i = 0; i < sbit_tensor_count(&sample->tensor); i++) {
        s->sum += (double)((const float *)sample->tensor.data)[i];
    }
    s->calls++;
    return SBIT_OK;
}

/* x = 1 everywhere: behind the first layer Relu of w + b = -3.5 3 2 -4, 25 times. */
TEST(collectors_see_what_layers_read_until_they_are_removed)
{
    float data[25] = {0};
    build b;
    sbit_sparse *sparse = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    seen what = {0, 0};
    sbit_sparse_collector collector = {"w2", SBIT_NEEDS_INPUT, see, &what};
    int32_t ids[2] = {0, 0};
    const sbit_tensor x = build_tensor(SBIT_F32, "1,1,5,5", data);
    for (int i = 0; i < 25; i++) {
        data[i] = 1;
    }
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    build_begin(&b, 18);
    two_convs(&b, NULL);
    CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
    sbit_sconfig *config = configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        CHECK_OK(sbit_sparse_add_collector(sparse, &collector, &ids[0], &b.error), b.error);
        CHECK_OK(sbit_sparse_add_collector(sparse, &collector, &ids[1], &b.error), b.error);
        CHECK(ids[0] != ids[1] && ids[0] != 0 && ids[1] != 0);
        CHECK_OK(sbit_sparse_collect(sparse, &feed, &b.error), b.error);
        CHECK_NEAR(what.sum, 2 * 25 * 5, 1e-4);
        CHECK(sbit_sparse_remove_collector(sparse, ids[0]) && !sbit_sparse_remove_collector(sparse, ids[0]));
        CHECK_OK(sbit_sparse_select(sparse, &feed, &b.error), b.error); /* seen beside a sparser's work */
        CHECK_EQ_I64(what.calls, 3);
        CHECK(sbit_sparse_remove_collector(sparse, ids[1]));
        CHECK_OK(sbit_sparse_collect(sparse, &feed, &b.error), b.error);
        CHECK_EQ_I64(what.calls, 3);
        collector.pattern = "nowhere";
        CHECK_STATUS(sbit_sparse_add_collector(sparse, &collector, &ids[0], &b.error), SBIT_ERR_NOT_FOUND, b.error);
    }
    sbit_feed_close(&feed);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* ---- patterns that other tools cut wrongly (field reports A7) */

/* The same tensor twice in a Concat: 8 channels, 2 go, 12 columns are left. */
static void pattern_twice(build *b, sbit_value_id x)
{
    const sbit_attr axis = build_int("axis", 1);
    sbit_value_id both[2];
    both[0] = both[1] = build_unary(b, "Sigmoid", "s", plain_conv(b, "aa", x, "8,3,1,1", 1));
    const sbit_value_id y = build_node(b, "Concat", "twice", both, 2, &axis, 1);
    build_output(b, plain_conv(b, "zz", y, "4,16,1,1", 1));
}

/* Res2Net: 8 channels in 4 parts; each part is added to the next one's input. */
static void pattern_res2net(build *b, sbit_value_id x)
{
    const int64_t sizes[] = {2, 2, 2, 2};
    const sbit_attr axis = build_int("axis", 1);
    sbit_value_id part[4];
    const sbit_value_id in[2] = {plain_conv(b, "aa", x, "8,3,1,1", 1),
                                 build_constant(b, "sizes", SBIT_I64, "4", sizes)};
    build_node_outputs(b, "", "Split", "split", in, 2, &axis, 1, part, 4);
    part[1] = plain_conv(b, "b1", part[1], "2,2,1,1", 1);
    part[2] = plain_conv(b, "b2", build_binary(b, "Add", "a2", part[2], part[1]), "2,2,1,1", 1);
    part[3] = plain_conv(b, "b3", build_binary(b, "Add", "a3", part[3], part[2]), "2,2,1,1", 1);
    const sbit_value_id y = build_node(b, "Concat", "concat", part, 4, &axis, 1);
    build_output(b, plain_conv(b, "zz", y, "4,8,1,1", 1));
}

/* PRelu and InstanceNormalization have one number a channel, GroupNormalization works on pairs. */
static void pattern_norms(build *b, sbit_value_id x)
{
    const sbit_attr groups = build_int("num_groups", 4);
    sbit_value_id in[3];
    in[0] = build_binary(b, "PRelu", "prelu", plain_conv(b, "aa", x, "8,3,1,1", 1),
                         build_weights(b, "slope", "8,1,1", 1));
    in[1] = build_weights(b, "scale", "8", 2);
    in[2] = build_weights(b, "shift", "8", 3);
    sbit_value_id y = build_node(b, "InstanceNormalization", "in", in, 3, NULL, 0);
    in[0] = plain_conv(b, "bb", y, "8,8,1,1", 1);
    in[1] = build_weights(b, "gscale", "4", 4); /* of a group, until opset 21 */
    in[2] = build_weights(b, "gshift", "4", 5);
    y = build_node(b, "GroupNormalization", "gn", in, 3, &groups, 1);
    build_output(b, plain_conv(b, "zz", y, "4,8,1,1", 1));
}

/* Depthwise with two outputs a channel, a transposed convolution, DepthToSpace. */
static void pattern_shapes(build *b, sbit_value_id x)
{
    const sbit_attr size = build_int("blocksize", 2);
    sbit_value_id in[2];
    sbit_value_id y = plain_conv(b, "aa", x, "4,3,1,1", 1);
    in[0] = plain_conv(b, "dw", y, "8,1,1,1", 4);
    in[1] = build_weights(b, "up.weight", "8,8,2,2", 6);
    y = build_node(b, "ConvTranspose", "up", in, 2, NULL, 0);
    y = build_node(b, "DepthToSpace", "d2s", &y, 1, &size, 1);
    build_output(b, plain_conv(b, "zz", y, "4,2,1,1", 1));
}

/* A chain that ends in one channel, and a mean over all of them. */
static void pattern_one(build *b, sbit_value_id x)
{
    const sbit_value_id y = plain_conv(b, "aa", x, "8,3,1,1", 1);
    build_output(b, plain_conv(b, "zz", plain_conv(b, "bb", y, "8,8,1,1", 1), "1,8,1,1", 1));
}

/* 16 and 3 outputs side by side: the parts are no longer equal, and need not be. */
static void pattern_side_by_side(build *b, sbit_value_id x)
{
    const sbit_attr axis = build_int("axis", 3);
    sbit_value_id in[2];
    in[0] = build_binary(b, "MatMul", "wide", x, build_weights(b, "aa.weight", "4,16", 1));
    in[1] = build_binary(b, "MatMul", "narrow", x, build_weights(b, "bb.weight", "4,3", 2));
    const sbit_value_id y =
        build_unary(b, "Relu", "relu", build_node(b, "Concat", "concat", in, 2, &axis, 1));
    build_output(b, build_binary(b, "MatMul", "last", y, build_weights(b, "zz.weight", "19,4", 3)));
}

/* One above the other, along a spatial axis: the same channels of both. */
static void pattern_above(build *b, sbit_value_id x)
{
    const sbit_attr axis = build_int("axis", 2);
    sbit_value_id in[2];
    in[0] = plain_conv(b, "aa", x, "8,3,1,1", 1);
    in[1] = plain_conv(b, "bb", x, "8,3,1,1", 1);
    build_output(b, plain_conv(b, "zz", build_node(b, "Concat", "concat", in, 2, &axis, 1),
                               "4,8,1,1", 1));
}

/* Inverted residual: wide, depthwise, narrow, added to what came in. */
static void pattern_inverted(build *b, sbit_value_id x)
{
    const sbit_value_id y = plain_conv(b, "aa", x, "4,3,1,1", 1);
    sbit_value_id z = build_unary(b, "Relu", "r1", plain_conv(b, "wi", y, "12,4,1,1", 1));
    z = build_unary(b, "Relu", "r2", plain_conv(b, "dw", z, "12,1,1,1", 12));
    z = build_binary(b, "Add", "add", y, plain_conv(b, "na", z, "4,12,1,1", 1));
    build_output(b, plain_conv(b, "zz", z, "4,4,1,1", 1));
}

static void pattern_squeeze_excite(build *b, sbit_value_id x)
{
    const sbit_value_id y = plain_conv(b, "aa", x, "8,3,1,1", 1);
    sbit_value_id s = build_unary(b, "GlobalAveragePool", "pool", y);
    s = build_unary(b, "Relu", "relu", plain_conv(b, "sq", s, "4,8,1,1", 1));
    s = build_unary(b, "Sigmoid", "gate", plain_conv(b, "ex", s, "8,4,1,1", 1));
    build_output(b, plain_conv(b, "zz", build_binary(b, "Mul", "mul", y, s), "4,8,1,1", 1));
}

/* Four parts of two: a quarter of eight would take more of one part than of another. */
static void pattern_grouped(build *b, sbit_value_id x)
{
    const sbit_value_id y = plain_conv(b, "aa", x, "8,3,1,1", 1);
    build_output(b, plain_conv(b, "zz", plain_conv(b, "gg", y, "8,2,1,1", 4), "4,8,1,1", 1));
}

/* The classifier is no Conv or Gemm in the end: its channels reach the output all the same. */
static void pattern_output(build *b, sbit_value_id x)
{
    const int64_t shape[] = {0, 6, -1}, perm[] = {0, 2, 1};
    const sbit_attr axis = build_int("axis", 1), order = build_ints("perm", perm, 3);
    sbit_value_id y = plain_conv(b, "zz", plain_conv(b, "aa", x, "8,3,1,1", 1), "6,8,1,1", 1);
    y = build_binary(b, "Reshape", "reshape", y, build_constant(b, "shape", SBIT_I64, "3", shape));
    y = build_node(b, "Softmax", "softmax", &y, 1, &axis, 1);
    build_output(b, build_node(b, "Transpose", "transpose", &y, 1, &order, 1));
}

/* What tools that look for layers miss: MatMul and Add, Mul by a constant of each channel. */
static void pattern_functional(build *b, sbit_value_id x)
{
    sbit_value_id y = build_binary(b, "MatMul", "m1", x, build_weights(b, "aa.weight", "4,8", 1));
    y = build_binary(b, "Add", "add", y, build_weights(b, "shift", "8", 2));
    y = build_binary(b, "Mul", "mul", build_unary(b, "Relu", "relu", y),
                     build_weights(b, "scale", "1,1,1,8", 3));
    build_output(b, build_binary(b, "MatMul", "m2", y, build_weights(b, "zz.weight", "8,4", 4)));
}

TEST(patterns_that_others_cut_wrongly)
{
    static const struct {
        void (*make)(build *, sbit_value_id);
        const char *weight; /* whose axis keeps `kept` of its entries at ratio 0.25 */
        int32_t axis;
        int64_t kept;
    } cases[] = {
        {pattern_twice, "zz.weight", 1, 12},
        {pattern_res2net, "zz.weight", 1, 8}, /* of parts of 2 a quarter is none */
        {pattern_norms, "gscale", 0, 3},
        {pattern_shapes, "dw.weight", 0, 6},
        {pattern_one, "bb.weight", 1, 6},
        {pattern_side_by_side, "zz.weight", 0, 12 + 3}, /* a quarter of 3 is none */
        {pattern_above, "zz.weight", 1, 6},
        {pattern_inverted, "dw.weight", 0, 9},
        {pattern_squeeze_excite, "zz.weight", 1, 6},
        {pattern_grouped, "aa.weight", 0, 8},
        {pattern_output, "zz.weight", 0, 6},
        {pattern_functional, "shift", 0, 6},
    };
    static const char *const ratios[] = {"0.25", "0.5", "0.75", "0.99"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t r = 0; r < 8; r++) {
            char text[200];
            build b;
            sbit_graph *out = NULL;
            build_begin(&b, 18);
            cases[i].make(&b, build_input(&b, "x", SBIT_F32, "N,3,4,4"));
            snprintf(text, sizeof text,
                     "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: %s, PRUNE_BIAS: %s}\n",
                     ratios[r / 2], r % 2 == 0 ? "true" : "false");
            sbit_sconfig *config = configure(&b, text);
            if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error) &&
                CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
                CHECK_OK(sbit_graph_validate(out, &b.error), b.error);
                CHECK(r > 0 || dim(out, cases[i].weight, cases[i].axis) == cases[i].kept);
                CHECK(dim(out, "aa.weight", 0) >= 1);
            }
            sbit_graph_destroy(out);
            sbit_sconfig_destroy(config);
            build_end(&b);
        }
    }
}

/* Norms 1..4 and 10 20 30 40: of eight channels the four smallest, but three of a layer at most. */
TEST(layers_can_be_ranked_together)
{
    const float small[] = {4, 3, 2, 1},
                large[] = {10, 0, 0, 0, 0, 20, 0, 0, 0, 0, 30, 0, 0, 0, 0, 40};
    for (int turn = 0; turn < 2; turn++) {
        build b;
        sbit_graph *out = NULL;
        build_begin(&b, 18);
        sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,1,3,3");
        y = conv(&b, "aa", y, build_constant(&b, "wa", SBIT_F32, "4,1,1,1", small), none, NULL, 1);
        y = conv(&b, "bb", y, build_constant(&b, "wb", SBIT_F32, "4,4,1,1", large), none, NULL, 1);
        build_output(&b, plain_conv(&b, "zz", y, "2,4,1,1", 1));
        sbit_sconfig *config =
            configure(&b, turn == 0 ? "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, "
                                      "SCOPE: model, MAX_RATIO: 0.75}\n"
                                    : "SPARSER: {TYPE: unstructured, STRATEGY: level, RATIO: 0.5, "
                                      "SCOPE: model}\n");
        if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            if (turn == 0) {
                CHECK_EQ_I64(dim(out, "wa", 0), 1);
                CHECK_EQ_I64(dim(out, "wb", 0), 3);
            } else { /* of 28 elements 12 are zero; zz has 8 below 1: 12 + 2 of these go */
                CHECK_NEAR(number(out, "wa", 3), 1, 0);
                CHECK_NEAR(number(out, "wb", 0), 10, 0);
            }
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

TEST(kept_channels_can_be_aligned)
{
    build b;
    sbit_graph *out = NULL;
    build_begin(&b, 18);
    const sbit_value_id y =
        plain_conv(&b, "aa", build_input(&b, "x", SBIT_F32, "N,3,4,4"), "20,3,1,1", 1);
    build_output(&b, plain_conv(&b, "zz", y, "4,20,1,1", 1));
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.55, ALIGN: 8}\n");
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "aa.weight", 0), 16); /* 9 would be left: two eights */
        sbit_graph_destroy(out);
    }
    CHECK_OK(sbit_sconfig_set(config, "SPARSER.MIN_KEPT", "19", &b.error), b.error);
    CHECK_OK(sbit_sconfig_set(config, "SPARSER.ALIGN", "1", &b.error), b.error);
    if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
        CHECK_EQ_I64(dim(out, "aa.weight", 0), 19);
        sbit_graph_destroy(out);
    }
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* SCOPE model: rows of |w| = 1 2 3 4, 5 6 7 8 and 9 10 11 12. Each layer brings its own share of what
 * goes, its own limit and its own multiple. */
TEST(layers_ranked_together_keep_their_own_limits)
{
    static const struct {
        const char *keys;
        int64_t kept[3];
    } cases[] = {
        {"RATIO: 0.5", {1, 1, 4}}, /* 6 of 12, one of each stays */
        {"RATIO: 0.5, MAX_RATIO: 0.5", {2, 2, 2}},
        /* the limit of a alone: the rest is taken from b and c */
        {"RATIO: 0.5, SPECIFIC: [{\"aa\": [MAX_RATIO, 0.25]}]", {3, 1, 2}},
        /* 2 + 2 + 1 go */
        {"RATIO: 0.5, SPECIFIC: [{\"cc\": [RATIO, 0.25]}]", {1, 2, 4}},
        /* three go of a, and two of b: a keeps 2 of its 4 then, and so does b */
        {"RATIO: 0.42, ALIGN: 2", {2, 2, 4}},
        {"RATIO: 0.42, ALIGN: 3", {3, 3, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const char *const names[] = {"aa", "bb", "cc"};
        static const char *const weights[] = {"aa.w", "bb.w", "cc.w"};
        char text[300];
        float w[3][16];
        build b;
        sbit_graph *out = NULL;
        memset(w, 0, sizeof w);
        build_begin(&b, 18);
        sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,4,2,2");
        for (int k = 0; k < 3; k++) {
            for (int r = 0; r < 4; r++) {
                w[k][5 * r] = (float)(4 * k + r + 1);
            }
            y = conv(&b, names[k], y, build_constant(&b, weights[k], SBIT_F32, "4,4,1,1", w[k]),
                     none, NULL, 1);
        }
        build_output(&b, plain_conv(&b, "zz", y, "2,4,1,1", 1));
        snprintf(text, sizeof text,
                 "SPARSER: {TYPE: structured, STRATEGY: l1norm, SCOPE: model, %s}\n",
                 cases[i].keys);
        sbit_sconfig *config = configure(&b, text);
        if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            for (int k = 0; k < 3; k++) {
                CHECK_MSG(dim(out, weights[k], 0) == cases[i].kept[k], "%s: %s keeps %d",
                          cases[i].keys, names[k], (int)dim(out, weights[k], 0));
            }
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* 10 channels in front of two groups: 5 would stay, but 6 have to; of multiples of five that is 10,
 * of four 8. */
TEST(multiples_hold_behind_groups_of_a_convolution)
{
    static const struct {
        const char *align;
        int64_t kept;
    } cases[] = {{"1", 6}, {"5", 10}, {"4", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_graph *out = NULL;
        build_begin(&b, 18);
        sbit_value_id y =
            plain_conv(&b, "aa", build_input(&b, "x", SBIT_F32, "N,3,4,4"), "10,3,1,1", 1);
        y = plain_conv(&b, "gg", y, "4,5,1,1", 2);
        build_output(&b, plain_conv(&b, "zz", y, "4,4,1,1", 1));
        sbit_sconfig *config = configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, "
                                             "SPECIFIC: [{\"aa\": [RATIO, 0.5]}]}\n");
        CHECK_OK(sbit_sconfig_set(config, "SPARSER.ALIGN", cases[i].align, &b.error), b.error);
        if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            CHECK_EQ_I64(dim(out, "aa.weight", 0), cases[i].kept);
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* Channels 1 and 3 of the first of two layers go; only where its bias is kept is 2 * 10 folded. */
TEST(the_policy_of_biases_is_a_layers_own)
{
    for (int turn = 0; turn < 2; turn++) {
        build b;
        sbit_graph *out = NULL;
        build_begin(&b, 18);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,5,5");
        two_convs_behind(&b, plain_conv(&b, "lead", x, "1,3,1,1", 1), NULL);
        sbit_sconfig *config =
            configure(&b, turn == 0 ? "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, "
                                      "SPECIFIC: [{\"first\": [PRUNE_BIAS, false, RATIO, 0.5]}]}\n"
                                    : "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, "
                                      "PRUNE_BIAS: false, "
                                      "SPECIFIC: [{\"first\": [PRUNE_BIAS, true, RATIO, 0.5]}]}\n");
        if (!b.failed && CHECK_OK(sbit_prune(b.graph, config, NULL, &out, &b.error), b.error)) {
            CHECK_EQ_I64(dim(out, "w1", 0), 2);
            CHECK_EQ_I64(sbit_graph_find_value(out, "folded").idx != 0, turn == 0);
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* A loop of steps needs no more memory in the end than after the first turns. */
TEST(steps_do_not_use_up_memory)
{
    const int64_t pads[] = {1, 1, 1, 1};
    test_heap heap;
    sbit_ctx_desc desc;
    build b;
    sbit_sparse *sparse = NULL;
    int64_t settled = 0;
    memset(&heap, 0, sizeof heap);
    memset(&desc, 0, sizeof desc);
    memset(&b, 0, sizeof b);
    desc.allocator = test_heap_allocator(&heap);
    CHECK_OK(sbit_ctx_create(&desc, &b.ctx, &b.error), b.error);
    CHECK_OK(sbit_graph_create(b.ctx, 18, &b.graph, &b.error), b.error);
    two_convs(&b, pads);
    sbit_sconfig *config = configure(
        &b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: false}\n");
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        for (int turn = 0; turn < 400; turn++) {
            CHECK_OK(sbit_sparse_step(sparse, 4, 4, NULL, &b.error), b.error);
            settled = turn == 20 ? heap.live_bytes : settled;
        }
        CHECK_EQ_I64(heap.live_bytes, settled);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* A simplifier that is wrong: it clears the first element of a constant. */
static const char *wrong_name = "";

static sbit_status wrong_run(sbit_graph *graph, const sbit_simplify_desc *desc, int64_t *changes,
                             sbit_error *error)
{
    const sbit_value_id id = sbit_graph_find_value(graph, wrong_name);
    float data[16];
    (void)desc;
    if (id.idx == 0 || ((const float *)sbit_graph_value(graph, id)->constant.data)[0] == 0.0f) {
        return SBIT_OK;
    }
    sbit_tensor changed = sbit_graph_value(graph, id)->constant;
    memcpy(data, changed.data, sbit_tensor_bytes(&changed));
    data[0] = 0.0f;
    changed.data = data;
    (*changes)++;
    return sbit_graph_set_constant(graph, id, &changed, error);
}

/* What is written is compared with the user's own graph, masked if it holds what is masked. */
TEST(the_users_graph_is_compared)
{
    static const sbit_pass_row wrong = {
        {"wrong", "clears a constant", 0, NULL, 0}, false, wrong_run};
    static const struct {
        const char *name, *message;
    } cases[] = {{"w2", "that of the masked model"}, {"b1", "that of the model"}};
    for (size_t i = 0; i < 2; i++) {
        build b;
        sbit_graph *out = NULL;
        build_begin(&b, 18);
        two_convs(&b, NULL);
        wrong_name = cases[i].name;
        CHECK_OK(sbit_pass_register(b.ctx, &wrong, &b.error), b.error);
        sbit_sconfig *config =
            configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
        CHECK_STATUS(sbit_prune(b.graph, config, NULL, &out, &b.error), SBIT_ERR_NUMERIC, b.error);
        CHECK_MSG(strstr(b.error.message, cases[i].message) != NULL, "%s", b.error.message);
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* Before anything is masked the copy that is pruned computes what the model does: shuffles became
 * Gathers in it. */
TEST(the_copy_that_is_pruned_computes_the_same)
{
    const int64_t wide[] = {0, 2, 3, 2, 2}, narrow[] = {0, 6, 2, 2}, perm[] = {0, 2, 1, 3, 4};
    float data[2 * 3 * 4], sums[2][2 * 6 * 4];
    build b;
    sbit_sparse *sparse = NULL;
    build_begin(&b, 18);
    const sbit_attr order = build_ints("perm", perm, 5);
    sbit_value_id y = plain_conv(&b, "aa", build_input(&b, "x", SBIT_F32, "N,3,2,2"), "6,3,1,1", 1);
    y = build_binary(&b, "Reshape", "split", y, build_constant(&b, "wide", SBIT_I64, "5", wide));
    y = build_node(&b, "Transpose", "swap", &y, 1, &order, 1);
    y = build_binary(&b, "Reshape", "join", y, build_constant(&b, "narrow", SBIT_I64, "4", narrow));
    build_output(&b, plain_conv(&b, "zz", y, "6,6,1,1", 1));
    sbit_sconfig *config =
        configure(&b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n");
    for (int i = 0; i < 24; i++) {
        data[i] = (float)(i * i % 7) - 3.0f;
    }
    if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        sbit_graph *copy = NULL;
        CHECK_OK(sbit_sparse_masked(sparse, &copy, &b.error), b.error);
        for (int turn = 0; turn < 2 && copy != NULL; turn++) {
            const sbit_tensor in = build_tensor(SBIT_F32, "2,3,2,2", data);
            sbit_session *session = NULL;
            if (CHECK_OK(sbit_session_create(turn == 0 ? b.graph : copy, NULL, &session, &b.error),
                         b.error) &&
                CHECK_OK(sbit_session_set_input(session, "x", &in, &b.error), b.error) &&
                CHECK_OK(sbit_session_run(session, &b.error), b.error)) {
                memcpy(sums[turn], sbit_session_output(session, 0)->tensor.data, sizeof sums[0]);
            }
            sbit_session_destroy(session);
        }
        bool gather = false;
        for (sbit_node_id id = sbit_graph_first(copy); id.idx != 0;
             id = sbit_graph_next(copy, id)) {
            gather = gather || strcmp(sbit_graph_node(copy, id)->op_type, "Gather") == 0;
        }
        CHECK(gather);
        for (int i = 0; i < 48; i++) {
            CHECK_NEAR(sums[1][i], sums[0][i], 1e-5);
        }
        sbit_graph_destroy(copy);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Every kind of step, with the n-th allocation failing. */
TEST(running_out_of_memory_frees_everything)
{
    const int64_t stride = getenv("SBIT_TEST_QUICK") != NULL ? 17 : 3;
    for (int64_t n = 1;; n += stride) {
        test_heap heap;
        sbit_ctx_desc desc;
        build b;
        sbit_graph *out = NULL;
        memset(&heap, 0, sizeof heap);
        memset(&desc, 0, sizeof desc);
        memset(&b, 0, sizeof b);
        desc.allocator = test_heap_allocator(&heap);
        CHECK_OK(sbit_ctx_create(&desc, &b.ctx, &b.error), b.error);
        CHECK_OK(sbit_graph_create(b.ctx, 18, &b.graph, &b.error), b.error);
        pattern_res2net(&b, build_input(&b, "x", SBIT_F32, "N,3,2,2"));
        sbit_sconfig *config = configure(
            &b, "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: false}\n");
        CHECK_OK(sbit_infer(b.graph, &b.error), b.error);
        heap.count = 0;
        heap.fail_at = n;
        const sbit_status status = sbit_prune(b.graph, config, NULL, &out, &b.error);
        const bool all_tried = heap.count < n;
        heap.fail_at = 0;
        CHECK_MSG(status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY, "allocation %d: %s",
                  (int)n, b.error.message);
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
        CHECK_MSG(heap.live_bytes == 0, "allocation %d: %d bytes are left", (int)n,
                  (int)heap.live_bytes);
        if (all_tried || test_state.checks_failed > 0) {
            break;
        }
    }
}

/* ---- real networks: shrink compares the smaller graph with the masked one */

static void prune_model(const char *path, double ratio, bool prune_bias)
{
    char text[200];
    build b;
    sbit_graph *out = NULL;
    sbit_sparse *sparse = NULL;
    build_begin(&b, 18);
    sbit_graph_destroy(b.graph);
    b.graph = NULL;
    snprintf(text, sizeof text,
             "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: %g, PRUNE_BIAS: %s}\n", ratio,
             prune_bias ? "true" : "false");
    sbit_sconfig *config = configure(&b, text);
    if (CHECK_OK(sbit_graph_load(b.ctx, path, &b.graph, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_select(sparse, NULL, &b.error), b.error) &&
        CHECK_OK(sbit_sparse_shrink(sparse, NULL, &out, &b.error), b.error)) {
        int64_t cut = 0;
        for (size_t i = 0; i < sbit_sparse_group_count(sparse); i++) {
            sbit_sparse_group g;
            CHECK_EQ_I64(sbit_sparse_group_at(sparse, i, &g), SBIT_OK);
            const int64_t most = g.channels - (int64_t)floor(ratio * (double)g.channels + 1e-9);
            CHECK_MSG(g.kept == g.channels || g.kept == most || g.reason[0] != '\0',
                      "%s: %s keeps %d of %d", path, g.layers, (int)g.kept, (int)g.channels);
            CHECK_MSG(g.kept <= most || g.reason[0] != '\0',
                      "%s: %s keeps %d of %d without a reason", path, g.layers, (int)g.kept,
                      (int)g.channels);
            cut += g.channels - g.kept;
        }
        CHECK_MSG(cut > 0, "%s: nothing was cut", path);
        CHECK_OK(sbit_graph_validate(out, &b.error), b.error);
    }
    sbit_graph_destroy(out);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

TEST(shared_networks_shrink_to_what_their_masks_compute)
{
    static const char *const models[] = {"shufflenetv2", "mobilenetv3s", "vit_tiny", "resnet20",
                                         "mobilenetv2",  "vggsmall",     "rowlstm",  "resnet18w32"};
    const double ratios[] = {0.5, 0.1, 0.3, 0.7, 0.9};
    const int64_t tried = getenv("SBIT_TEST_QUICK") != NULL ? 1 : 5;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        char name[80], path[1024];
        snprintf(name, sizeof name, "models/cifar10/%s.onnx", models[m]);
        if (!test_shared(name, path, sizeof path)) {
            SBIT_TEST_SKIP("no shared models");
        }
        for (int64_t r = 0; r < tried; r++) {
            prune_model(path, ratios[r], true);
            prune_model(path, ratios[r], false);
        }
    }
}
