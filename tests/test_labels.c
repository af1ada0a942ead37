/* split */
/* test_labels.c: which channels live and die together. Each pattern is a small graph whose groups
 * were worked out by hand; `at(name, axis, index)` is the channel that an index of a weight's axis
 * belongs to. */
#include "../src/sparse/sparse_private.h"
#include "test.h"

#include "build_graph.h"

typedef struct looked {
    build b;
    sbit__arena arena;
    sbit__labeler labeler;
    sbit__groups groups;
} looked;

static void look_begin(looked *l)
{
    memset(l, 0, sizeof *l);
    build_begin(&l->b, 18);
}

static bool look(looked *l)
{
    build *b = &l->b;
    sbit__arena_init(&l->arena, sbit_ctx_allocator(b->ctx));
    return !b->failed && CHECK_OK(sbit_infer(b->graph, &b->error), b->error) &&
           CHECK_OK(sbit__sparse_prepare(b->graph, &l->arena, &b->error), b->error) &&
           CHECK_OK(sbit__labeler_run(&l->labeler, b->graph, "", false, &l->arena, &b->error), b->error) &&
           CHECK_OK(sbit__groups_make(&l->labeler, &l->groups, &b->error), b->error);
}

static void look_end(looked *l)
{
    sbit__labeler_deinit(&l->labeler);
    sbit__arena_deinit(&l->arena);
    build_end(&l->b);
}

static int32_t at(looked *l, const char *name, int32_t axis, int64_t index)
{
    const sbit_value_id id = sbit_graph_find_value(l->b.graph, name);
    for (size_t i = 0; i < l->labeler.member_count; i++) {
        const sbit__member *member = &l->labeler.members[i];
        if (member->value.idx == id.idx && member->axis == axis && index < member->count) {
            return l->groups.class_of[sbit__label_root(&l->labeler, member->labels[index])];
        }
    }
    const sbit__channel_labels *labels = &l->labeler.of[id.idx];
    if (labels->form == SBIT__LABELS_AXIS && labels->axis == axis) {
        return l->groups.class_of[sbit__label_root(&l->labeler, labels->at[index])];
    }
    CHECK_MSG(false, "%s has no channels along axis %d", name, (int)axis);
    return -2;
}

static bool can_go(looked *l, const char *name, int32_t axis, int64_t index)
{
    const int32_t c = at(l, name, axis, index);
    return c >= 0 && l->groups.classes[c].removable;
}

/* All `n` indices can go, each by itself. */
static void check_free(looked *l, const char *name, int32_t axis, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        CHECK_MSG(can_go(l, name, axis, i), "%s[%d] of axis %d is kept: %s", name, (int)i,
                  (int)axis, l->groups.classes[at(l, name, axis, i)].reason);
        CHECK(i == 0 || at(l, name, axis, i) != at(l, name, axis, 0));
    }
}

static void check_kept(looked *l, const char *name, int32_t axis, const char *why)
{
    const int32_t c = at(l, name, axis, 0);
    if (CHECK(c >= 0) && CHECK(!l->groups.classes[c].removable)) {
        CHECK_MSG(strstr(l->groups.classes[c].reason, why) != NULL, "%s is kept because: %s", name,
                  l->groups.classes[c].reason);
    }
}

static sbit_value_id conv(build *b, const char *w, sbit_value_id x, const char *dims, int64_t group)
{
    const sbit_value_id inputs[2] = {x, build_weights(b, w, dims, 1)};
    sbit_attr attrs[1];
    char name[40];
    snprintf(name, sizeof name, "conv_%s", w);
    attrs[0] = build_int("group", group);
    return build_node(b, "Conv", name, inputs, 2, attrs, 1);
}

static sbit_value_id matmul(build *b, const char *w, sbit_value_id x, const char *dims)
{
    return build_binary(b, "MatMul", w, x, build_weights(b, w, dims, 1));
}

static sbit_value_id reshape(build *b, sbit_value_id x, const char *count, const int64_t *dims)
{
    return build_binary(b, "Reshape", "reshape", x,
                        build_constant(b, "shape", SBIT_I64, count, dims));
}

static sbit_value_id transpose(build *b, sbit_value_id x, const int64_t *perm, size_t n)
{
    const sbit_attr attr = build_ints("perm", perm, n);
    return build_node(b, "Transpose", "transpose", &x, 1, &attr, 1);
}

TEST(chain_of_convs_with_norm_and_bias)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,8,8"), "4,3,1,1", 1);
    const sbit_value_id bn[5] = {x, build_weights(b, "gamma", "4", 1),
                                 build_weights(b, "beta", "4", 2), build_weights(b, "mean", "4", 3),
                                 build_weights(b, "var", "4", 4)};
    x = build_unary(b, "Relu", "relu", build_node(b, "BatchNormalization", "bn", bn, 5, NULL, 0));
    build_output(b, conv(b, "w2", x, "5,4,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w1", 0, 4);
        for (int64_t i = 0; i < 4; i++) {
            CHECK_EQ_I64(at(&l, "w2", 1, i), at(&l, "w1", 0, i));
            CHECK_EQ_I64(at(&l, "var", 0, i), at(&l, "w1", 0, i));
        }
        check_kept(&l, "w2", 0, "output");
        CHECK_EQ_I64(l.groups.group_count, 2); /* w1's rows; w2's rows */
        CHECK_EQ_I64(at(&l, "w1", 1, 0), -1);  /* the input's channels: no layer makes them */
    }
    look_end(&l);
}

TEST(shuffle_keeps_each_channel_apart)
{
    const int64_t wide[] = {0, 2, 3, 8, 8}, narrow[] = {0, 6, 8, 8}, perm[] = {0, 2, 1, 3, 4};
    looked l;
    look_begin(&l);
    build *b = &l.b;
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,8,8"), "6,3,1,1", 1);
    x = reshape(b, transpose(b, reshape(b, x, "5", wide), perm, 5), "4", narrow);
    build_output(b, conv(b, "w2", x, "5,6,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w1", 0, 6);
        for (int64_t i = 0; i < 6; i++) { /* 0 3 1 4 2 5 */
            CHECK_EQ_I64(at(&l, "w2", 1, i), at(&l, "w1", 0, i / 2 + i % 2 * 3));
        }
    }
    look_end(&l);
}

TEST(flatten_gives_a_linear_layer_runs_of_columns)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,2,2"), "3,3,1,1", 1);
    x = build_unary(b, "Flatten", "flatten", x);
    const sbit_value_id in[3] = {x, build_weights(b, "w2", "5,12", 1),
                                 build_weights(b, "b", "5", 1)};
    const sbit_attr trans = build_int("transB", 1);
    build_output(b, build_node(b, "Gemm", "fc", in, 3, &trans, 1));
    if (look(&l)) {
        check_free(&l, "w1", 0, 3);
        for (int64_t i = 0; i < 12; i++) {
            CHECK_EQ_I64(at(&l, "w2", 1, i), at(&l, "w1", 0, i / 4));
        }
        CHECK_EQ_I64(at(&l, "b", 0, 4), at(&l, "w2", 0, 4));
        check_kept(&l, "b", 0, "output 'fc'");
    }
    look_end(&l);
}

/* [N, 5, 6] times q, k, v in one matrix; 2 heads of 3; the output's projection reads them. */
TEST(attention_loses_whole_heads)
{
    const int64_t split[] = {0, 5, 3, 2, 3}, merged[] = {0, 5, 6};
    const int64_t to_heads[] = {2, 0, 3, 1, 4}, swap[] = {0, 1, 3, 2}, back[] = {0, 2, 1, 3};
    looked l;
    look_begin(&l);
    build *b = &l.b;
    sbit_value_id qkv[3];
    sbit_value_id x = matmul(b, "wqkv", build_input(b, "x", SBIT_F32, "N,5,6"), "6,18");
    x = build_binary(b, "Add", "qkv_bias", x, build_weights(b, "bias", "18", 3));
    x = transpose(b, reshape(b, x, "5", split), to_heads, 5);
    for (int64_t i = 0; i < 3; i++) {
        const sbit_attr axis = build_int("axis", 0);
        const sbit_value_id in[2] = {x, build_constant(b, "which", SBIT_I64, "", &i)};
        qkv[i] = build_node(b, "Gather", "part", in, 2, &axis, 1);
    }
    x = build_binary(b, "MatMul", "scores", qkv[0], transpose(b, qkv[1], swap, 4));
    const float half = 0.5f;
    x = build_binary(b, "Mul", "scaled", x, build_constant(b, "half", SBIT_F32, "", &half));
    x = build_binary(b, "MatMul", "mixed", build_unary(b, "Softmax", "softmax", x), qkv[2]);
    x = reshape(b, transpose(b, x, back, 4), "3", merged);
    build_output(b, matmul(b, "wo", x, "6,4"));
    if (look(&l)) {
        for (int64_t i = 0; i < 18; i++) {
            CHECK(can_go(&l, "wqkv", 1, i));
            CHECK_EQ_I64(at(&l, "wqkv", 1, i), at(&l, "wqkv", 1, i % 6 / 3 * 3));
            CHECK_EQ_I64(at(&l, "bias", 0, i), at(&l, "wqkv", 1, i));
        }
        CHECK(at(&l, "wqkv", 1, 0) != at(&l, "wqkv", 1, 3));
        for (int64_t i = 0; i < 6; i++) {
            CHECK_EQ_I64(at(&l, "wo", 0, i), at(&l, "wqkv", 1, i / 3 * 3));
        }
    }
    look_end(&l);
}

TEST(attention_with_one_head_loses_single_channels)
{
    const int64_t swap[] = {0, 2, 1};
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,5,6");
    const sbit_value_id q = matmul(b, "wq", x, "6,4"), k = matmul(b, "wk", x, "6,4");
    const sbit_value_id v = matmul(b, "wv", x, "6,3");
    sbit_value_id y = build_binary(b, "MatMul", "scores", q, transpose(b, k, swap, 3));
    y = build_binary(b, "MatMul", "mixed", build_unary(b, "Softmax", "softmax", y), v);
    build_output(b, matmul(b, "wo", y, "3,4"));
    if (look(&l)) {
        check_free(&l, "wq", 1, 4);
        check_free(&l, "wv", 1, 3);
        for (int64_t i = 0; i < 4; i++) {
            CHECK_EQ_I64(at(&l, "wk", 1, i), at(&l, "wq", 1, i));
        }
        CHECK_EQ_I64(at(&l, "wo", 0, 2), at(&l, "wv", 1, 2));
    }
    look_end(&l);
}

TEST(squeeze_excite_follows_what_it_scales)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,8,8"), "4,3,3,3", 1);
    sbit_value_id s = build_unary(b, "GlobalAveragePool", "pool", x);
    s = build_unary(b, "Relu", "relu", conv(b, "down", s, "2,4,1,1", 1));
    s = build_unary(b, "Sigmoid", "sigmoid", conv(b, "up", s, "4,2,1,1", 1));
    build_output(b, conv(b, "w2", build_binary(b, "Mul", "scaled", x, s), "5,4,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w1", 0, 4);
        check_free(&l, "down", 0, 2);
        for (int64_t i = 0; i < 4; i++) {
            CHECK_EQ_I64(at(&l, "up", 0, i), at(&l, "w1", 0, i));
            CHECK_EQ_I64(at(&l, "down", 1, i), at(&l, "w1", 0, i));
            CHECK_EQ_I64(at(&l, "w2", 1, i), at(&l, "w1", 0, i));
        }
        CHECK_EQ_I64(l.groups.group_count, 3); /* w1 with up; down; w2 */
    }
    look_end(&l);
}

TEST(residual_layers_have_the_same_channels)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,8,8"), "4,3,1,1", 1);
    sbit_value_id y = conv(b, "w2", x, "6,4,1,1", 1);
    x = build_binary(b, "Add", "add", x, conv(b, "w3", y, "4,6,1,1", 1));
    build_output(b, conv(b, "w4", x, "5,4,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w1", 0, 4);
        check_free(&l, "w2", 0, 6);
        for (int64_t i = 0; i < 4; i++) {
            CHECK_EQ_I64(at(&l, "w3", 0, i), at(&l, "w1", 0, i));
        }
    }
    look_end(&l);
}

TEST(concat_split_and_slice_keep_track)
{
    const int64_t sizes[] = {3, 4}, one = 1, five = 5;
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id in = build_input(b, "x", SBIT_F32, "N,3,4,4");
    const sbit_attr axis = build_int("axis", 1);
    sbit_value_id parts[3], out[2];
    parts[0] = conv(b, "w1", in, "2,3,1,1", 1);
    parts[1] = conv(b, "w2", in, "3,3,1,1", 1);
    parts[2] = parts[0]; /* the same tensor twice */
    sbit_value_id x = build_node(b, "Concat", "concat", parts, 3, &axis, 1);
    const sbit_value_id cut[2] = {x, build_constant(b, "sizes", SBIT_I64, "2", sizes)};
    build_node_outputs(b, "", "Split", "split", cut, 2, &axis, 1, out, 2);
    build_output(b, conv(b, "w3", out[0], "5,3,1,1", 1));
    const sbit_value_id slice[4] = {out[1], build_constant(b, "from", SBIT_I64, "1", &one),
                                    build_constant(b, "to", SBIT_I64, "1", &five),
                                    build_constant(b, "along", SBIT_I64, "1", &one)};
    build_output(b,
                 conv(b, "w4", build_node(b, "Slice", "slice", slice, 4, NULL, 0), "5,3,1,1", 1));
    if (look(&l)) { /* concat: 1.0 1.1 2.0 2.1 2.2 1.0 1.1; split after 2.0; slice from 2.2 */
        check_free(&l, "w1", 0, 2);
        check_free(&l, "w2", 0, 3);
        CHECK_EQ_I64(at(&l, "w3", 1, 0), at(&l, "w1", 0, 0));
        CHECK_EQ_I64(at(&l, "w3", 1, 2), at(&l, "w2", 0, 0));
        CHECK_EQ_I64(at(&l, "w4", 1, 0), at(&l, "w2", 0, 2));
        CHECK_EQ_I64(at(&l, "w4", 1, 1), at(&l, "w1", 0, 0));
        CHECK_EQ_I64(at(&l, "w4", 1, 2), at(&l, "w1", 0, 1));
    }
    look_end(&l);
}

TEST(grouped_convolution_is_balanced_and_depthwise_follows)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,4,4"), "4,3,1,1", 1);
    x = conv(b, "grouped", x, "6,2,1,1", 2);
    x = conv(b, "depth", x, "12,1,3,3", 6); /* two outputs a channel */
    build_output(b, conv(b, "w2", x, "5,12,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w1", 0, 4);
        check_free(&l, "grouped", 0, 6);
        for (int64_t i = 0; i < 4; i++) { /* columns: two of each group */
            CHECK_EQ_I64(at(&l, "grouped", 1, i), at(&l, "w1", 0, i));
        }
        for (int64_t i = 0; i < 12; i++) {
            CHECK_EQ_I64(at(&l, "depth", 0, i), at(&l, "grouped", 0, i / 2));
            CHECK_EQ_I64(at(&l, "w2", 1, i), at(&l, "grouped", 0, i / 2));
        }
        if (CHECK_EQ_I64((int64_t)l.labeler.balance_count, 2)) {
            CHECK_EQ_I64(l.labeler.balances[0].count, 4);
            CHECK_EQ_I64(l.labeler.balances[1].count, 6);
            CHECK_EQ_I64(l.labeler.balances[1].blocks, 2);
        }
        CHECK_EQ_I64(l.groups.group_count, 3); /* depth makes none */
    }
    look_end(&l);
}

TEST(tied_weights_agree)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id w = build_weights(b, "tied", "4,4,1,1", 1);
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,4,4"), "4,3,1,1", 1);
    x = build_binary(b, "Conv", "first", x, w);
    x = build_binary(b, "Conv", "second", x, w);
    build_output(b, conv(b, "w2", x, "5,4,1,1", 1));
    if (look(&l)) { /* rows of the first are columns of the second, which are those of the first */
        check_free(&l, "tied", 0, 4);
        for (int64_t i = 0; i < 4; i++) {
            CHECK_EQ_I64(at(&l, "tied", 1, i), at(&l, "tied", 0, i));
            CHECK_EQ_I64(at(&l, "w1", 0, i), at(&l, "tied", 0, i));
            CHECK_EQ_I64(at(&l, "w2", 1, i), at(&l, "tied", 0, i));
        }
    }
    look_end(&l);
}

TEST(equal_biases_of_two_layers_do_not_tie_them)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id bias = build_weights(b, "bias", "4", 1);
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,4,4"), "4,3,1,1", 1);
    const sbit_value_id in[3] = {x, build_weights(b, "w2", "4,4,1,1", 2), bias};
    x = build_node(b, "Conv", "second", in, 3, NULL, 0);
    const sbit_value_id again[3] = {x, build_weights(b, "w3", "4,4,1,1", 3), bias};
    x = build_node(b, "Conv", "third", again, 3, NULL, 0);
    build_output(b, conv(b, "w4", x, "5,4,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w2", 0, 4);
        check_free(&l, "w3", 0, 4);
        CHECK(at(&l, "w2", 0, 0) != at(&l, "w3", 0, 0));
    }
    look_end(&l);
}

TEST(padded_channels_go_with_what_they_are_added_to)
{
    const int64_t pads[] = {0, 1, 0, 0, 0, 1, 0, 0};
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id in = build_input(b, "x", SBIT_F32, "N,3,4,4");
    const sbit_value_id x = conv(b, "w1", in, "2,3,1,1", 1);
    const sbit_value_id padded =
        build_binary(b, "Pad", "pad", x, build_constant(b, "pads", SBIT_I64, "8", pads));
    const sbit_value_id y = build_binary(b, "Add", "add", padded, conv(b, "w2", x, "4,2,1,1", 1));
    build_output(b, conv(b, "w3", y, "5,4,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w2", 0, 4);
        CHECK_EQ_I64(at(&l, "w1", 0, 0), at(&l, "w2", 0, 1));
        CHECK_EQ_I64(at(&l, "w1", 0, 1), at(&l, "w2", 0, 2));
        CHECK_EQ_I64(at(&l, "w3", 1, 3), at(&l, "w2", 0, 3));
    }
    look_end(&l);
}

/* One more in front and one less behind: as many as before, but each of them another. */
TEST(channels_that_a_pad_shifts_are_not_those_in_their_places)
{
    const int64_t pads[] = {0, 1, 0, 0, 0, -1, 0, 0};
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id in = build_input(b, "x", SBIT_F32, "N,3,4,4");
    const sbit_value_id x = conv(b, "w1", in, "3,3,1,1", 1);
    const sbit_value_id padded =
        build_binary(b, "Pad", "pad", x, build_constant(b, "pads", SBIT_I64, "8", pads));
    const sbit_value_id y = build_binary(b, "Add", "add", padded, conv(b, "w2", in, "3,3,1,1", 1));
    build_output(b, conv(b, "w3", y, "5,3,1,1", 1));
    if (look(&l)) {
        CHECK_EQ_I64(at(&l, "w1", 0, 0), at(&l, "w2", 0, 1));
        CHECK_EQ_I64(at(&l, "w1", 0, 1), at(&l, "w2", 0, 2));
        CHECK(at(&l, "w1", 0, 2) != at(&l, "w2", 0, 2));
    }
    look_end(&l);
}

TEST(what_all_channels_share_is_kept)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_value_id in = build_input(b, "x", SBIT_F32, "N,3,4,4");
    const sbit_value_id x = conv(b, "w1", in, "4,3,1,1", 1);
    const sbit_value_id map = build_unary(b, "Sigmoid", "map", conv(b, "wmap", in, "1,3,1,1", 1));
    const sbit_value_id y = build_binary(b, "Mul", "mul", x, map);
    const sbit_value_id scale = build_weights(b, "scale", "4,1,1", 5);
    build_output(b, conv(b, "w2", build_binary(b, "Mul", "scaled", y, scale), "5,4,1,1", 1));
    if (look(&l)) {
        check_free(&l, "w1", 0, 4);
        check_kept(&l, "wmap", 0, "spreads");
        for (int64_t i = 0; i < 4; i++) {
            CHECK_EQ_I64(at(&l, "scale", 0, i), at(&l, "w1", 0, i));
        }
    }
    look_end(&l);
}

/* A class token before positions, added constants, and a normalization that keeps the width. */
TEST(normalized_width_is_kept_hidden_units_are_not)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_attr axis = build_int("axis", 1);
    sbit_value_id parts[2];
    parts[0] = build_weights(b, "token", "1,1,4", 1);
    parts[1] = matmul(b, "w1", build_input(b, "x", SBIT_F32, "1,5,3"), "3,4");
    sbit_value_id x = build_node(b, "Concat", "concat", parts, 2, &axis, 1);
    x = build_binary(b, "Add", "placed", x, build_weights(b, "position", "1,6,4", 2));
    const sbit_value_id in[3] = {x, build_weights(b, "gamma", "4", 1),
                                 build_weights(b, "beta", "4", 1)};
    sbit_value_id y = build_node(b, "LayerNormalization", "norm", in, 3, NULL, 0);
    y = build_unary(b, "Tanh", "tanh", matmul(b, "up", y, "4,8"));
    x = build_binary(b, "Add", "add", x, matmul(b, "down", y, "8,4"));
    build_output(b, matmul(b, "head", x, "4,2"));
    if (look(&l)) {
        check_kept(&l, "w1", 1, "normalizes over the channels");
        check_kept(&l, "down", 1, "normalizes over the channels");
        check_free(&l, "up", 1, 8);
        CHECK_EQ_I64(at(&l, "down", 0, 7), at(&l, "up", 1, 7));
    }
    look_end(&l);
}

TEST(units_of_an_lstm_are_one_in_every_gate)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_attr hidden = build_int("hidden_size", 3);
    sbit_value_id y[3], in[4];
    in[0] = matmul(b, "w1", build_input(b, "x", SBIT_F32, "5,N,2"), "2,4");
    in[1] = build_weights(b, "W", "1,12,4", 1);
    in[2] = build_weights(b, "R", "1,12,3", 1);
    in[3] = build_weights(b, "B", "1,24", 1);
    build_node_outputs(b, "", "LSTM", "lstm", in, 4, &hidden, 1, y, 1);
    const int64_t one = 1;
    const sbit_value_id flat =
        build_binary(b, "Squeeze", "squeeze", y[0], build_constant(b, "axes", SBIT_I64, "1", &one));
    build_output(b, matmul(b, "w2", flat, "3,2"));
    if (look(&l)) {
        check_free(&l, "w1", 1, 4);
        check_free(&l, "R", 2, 3);
        for (int64_t i = 0; i < 24; i++) {
            CHECK_EQ_I64(at(&l, "B", 1, i), at(&l, "R", 2, i % 3));
            CHECK(i >= 12 || at(&l, "W", 1, i) == at(&l, "R", 2, i % 3));
            CHECK(i >= 12 || at(&l, "R", 1, i) == at(&l, "R", 2, i % 3));
        }
        CHECK_EQ_I64(at(&l, "W", 2, 3), at(&l, "w1", 1, 3));
        CHECK_EQ_I64(at(&l, "w2", 0, 2), at(&l, "R", 2, 2));
    }
    look_end(&l);
}

TEST(pixel_shuffle_joins_the_blocks_of_a_channel)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_attr size = build_int("blocksize", 2);
    sbit_value_id x = conv(b, "w1", build_input(b, "x", SBIT_F32, "N,3,4,4"), "8,3,1,1", 1);
    x = build_node(b, "DepthToSpace", "up", &x, 1, &size, 1);
    build_output(b, conv(b, "w2", x, "5,2,1,1", 1));
    if (look(&l)) {
        for (int64_t i = 0; i < 8; i++) { /* DCR: channel c of 2 is every second of 8 */
            CHECK(can_go(&l, "w1", 0, i));
            CHECK_EQ_I64(at(&l, "w1", 0, i), at(&l, "w2", 1, i % 2));
        }
        CHECK(at(&l, "w2", 1, 0) != at(&l, "w2", 1, 1));
    }
    look_end(&l);
}

TEST(softmax_over_channels_and_the_only_channel_are_kept)
{
    looked l;
    look_begin(&l);
    build *b = &l.b;
    const sbit_attr axis = build_int("axis", 1);
    const sbit_value_id in = build_input(b, "x", SBIT_F32, "N,3,4,4");
    sbit_value_id x = conv(b, "w1", in, "4,3,1,1", 1);
    x = build_node(b, "Softmax", "softmax", &x, 1, &axis, 1);
    build_output(b, conv(b, "w2", x, "5,4,1,1", 1));
    build_output(b, conv(b, "w4", conv(b, "w3", in, "1,3,1,1", 1), "5,1,1,1", 1));
    if (look(&l)) {
        check_kept(&l, "w1", 0, "normalizes over the channels");
        check_kept(&l, "w3", 0, "nothing would be left");
    }
    look_end(&l);
}
