/* split */
/* test_limits.c: what is large or grows without bounds ends with an error that names the node, in
 * no time; and what is large and honest runs. */
#include "../src/exec/exec_private.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

#include <time.h> /* clock */

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* What loading, inference and a plan say of a model: SBIT_OK, or the status with its message. */
static sbit_status limits_plan(const char *text, sbit_error *error)
{
    sbit_ctx *ctx = test_ctx();
    sbit_session *session = NULL;
    model_bytes bytes;
    sbit_graph *graph = model_graph(ctx, text, &bytes, error);
    sbit_status status = graph != NULL ? sbit_infer(graph, error) : SBIT_ERR_STATE;
    if (status == SBIT_OK) {
        status = sbit_session_create(graph, NULL, &session, error);
    }
    if (status == SBIT_OK) {
        status = sbit_session_plan(session, error);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
    return status;
}

/* ---- sizes */

TEST(a_block_may_be_longer_than_its_axis)
{
    static const char *const models[2] = {
        "opset 21\nin x f32 2,4\nc s f32 1,4 = 1 2 4 8\n"
        "QuantizeLinear x,s -> y q axis=0 block_size=4611686018427387904\nout y u8 2,4\n",
        "opset 21\nc q i8 4,2 = 1 2 3 4 5 6 7 8\nc s f32 4,1 = 1 2 4 8\n"
        "DequantizeLinear q,s -> y dq axis=1 block_size=9223372036854775807\nout y f32 4,2\n"};
    static const uint8_t want_q[8] = {8, 4, 2, 1, 16, 8, 4, 2};
    static const float want_dq[8] = {1, 2, 6, 8, 20, 24, 56, 64};
    static const float x[8] = {8, 8, 8, 8, 16, 16, 16, 16};
    for (int m = 0; m < 2; m++) {
        sbit_ctx *ctx = test_ctx();
        sbit_session *session = NULL;
        sbit_error error;
        model_bytes bytes;
        sbit_graph *graph = model_graph(ctx, models[m], &bytes, &error);
        const sbit_tensor tensor = build_tensor(SBIT_F32, "2,4", x);
        if (graph != NULL && CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error) &&
            (m == 1 || CHECK_OK(sbit_session_set_input(session, "x", &tensor, &error), error)) &&
            CHECK_OK(sbit_session_run(session, &error), error)) {
            CHECK_MEM(sbit_session_output(session, 0)->tensor.data,
                      m == 0 ? (const void *)want_q : (const void *)want_dq,
                      m == 0 ? sizeof want_q : sizeof want_dq);
        }
        sbit_session_destroy(session);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

TEST(sizes_that_no_machine_has_name_the_node)
{
    static const struct {
        const char *name, *text;
    } cases[] = {
        {"Conv", "in x f32 1,2147483648,8,8\nin w f32 2147483648,2147483648,3,3\n"
                 "Conv x,w -> y conv\nout y f32 ...\n"},
        {"Expand", "in x f16 1\nc s i64 3 = 2147483648 2147483648 4\n"
                   "Expand x,s -> e expand\nSoftmax e -> y soft\nout y f16 ...\n"},
        {"Conv", "in x f32 1,1,4,4,4\nc w f32 1,1,1,1,1 = 1\n"
                 "Conv x,w -> y conv pads=[2147483647,2147483647,2147483647,2147483647,2147483647,"
                 "2147483647]\nout y f32 ...\n"},
        /* few outputs, each over a huge padded row */
        {"Conv", "in x f32 1,1048576,4,4,4\nin w f32 1,1048576,1024,1024,1024\n"
                 "Conv x,w -> y conv pads=[2147483647,2147483647,2147483647,2147483647,2147483647,"
                 "2147483647] strides=[2147483647,2147483647,2147483647]\nout y f32 ...\n"},
        {"ConvTranspose", "in x f32 1,1,4,4,4\nc w f32 1,1,1,1,1 = 1\nConvTranspose x,w -> y t "
                          "strides=[2147483647,2147483647,2147483647]\nout y f32 ...\n"},
        {"MaxPool", "in x f32 1,1,4,4,4\nMaxPool x -> y pool kernel_shape=[1,1,1] pads=[2147483647,"
                    "2147483647,2147483647,2147483647,2147483647,2147483647]\nout y f32 ...\n"},
        {"Tile", "in x f16 4,4\nc r i64 2 = 3037000500 3037000500\nTile x,r -> t tile\n"
                 "Relu t -> y\nout y f16 ...\n"},
        {"Pad", "opset 17\nin x f16 4,4\nc p i64 4 = 0 0 3037000500 3037000500\n"
                "Pad x,p -> t pad\nRelu t -> y\nout y f16 ...\n"},
        {"MatMul", "in a f64 4294967296,2\nin b f64 2,4294967296\nMatMul a,b -> y m\n"
                   "out y f64 ...\n"},
        {"Gemm", "in a f32 4294967296,2\nin b f32 2,4294967296\nGemm a,b -> y m\nout y f32 ...\n"},
        {"Resize", "in x f32 1,1,64,64\nc s f32 4 = 1 1 30000000 30000000\n"
                   "Resize x,-,s -> t r mode=linear\nRelu t -> y\nout y f32 ...\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_error error;
        const double begin = seconds();
        memset(&error, 0, sizeof error);
        CHECK_STATUS(limits_plan(cases[i].text, &error), SBIT_ERR_LIMIT, error);
        CHECK_CONTAINS(error.message, cases[i].name);
        CHECK(seconds() - begin < 0.5);
    }
}

/* ---- nodes with many inputs */

TEST(a_node_with_many_inputs_takes_memory_for_each_once)
{
    enum {
        COUNT = 20000
    };
    for (int different = 0; different < 2; different++) {
        test_heap heap = {0, 0, 0, 0};
        sbit_ctx_desc desc = test_ctx_desc();
        sbit_ctx *ctx = NULL;
        sbit_graph *graph = NULL;
        sbit_error error;
        model_bytes text = {NULL, 0, 0};
        desc.allocator = test_heap_allocator(&heap);
        model_put(&text, "in x f32 4\n", 11);
        for (int i = 0; different == 1 && i < COUNT; i++) {
            char line[64];
            snprintf(line, sizeof line, "Neg x -> v%d\n", i);
            model_put(&text, line, strlen(line));
        }
        model_put(&text, "Sum ", 4);
        for (int i = 0; i < COUNT; i++) {
            char name[16];
            snprintf(name, sizeof name, different == 1 ? "v%d" : "x", i);
            model_put(&text, i > 0 ? "," : "", i > 0 ? 1 : 0);
            model_put(&text, name, strlen(name));
        }
        model_put(&text, " -> y\nout y f32 4\n", 19);
        const model_bytes bytes = model_from_text((const char *)text.data);
        CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
        CHECK_OK(sbit_graph_read(ctx, bytes.data, bytes.size, &graph, &error), error);
        CHECK_MSG(heap.peak_bytes < ((int64_t)48 << 20), "%.0f MB after import",
                  (double)heap.peak_bytes / 1e6);
        if (graph != NULL) { /* the same node once more, through the editor */
            const sbit_node_id old =
                sbit_graph_find_value(graph, "y").idx != 0
                    ? sbit_graph_value(graph, sbit_graph_find_value(graph, "y"))->producer
                    : sbit_graph_first(graph);
            const sbit_node *node = sbit_graph_node(graph, old);
            sbit_node_desc copy;
            sbit_node_id made;
            sbit_value_id z;
            memset(&copy, 0, sizeof copy);
            CHECK_OK(sbit_graph_add_value(
                         graph, "z", &sbit_graph_value(graph, node->outputs[0])->type, &z, &error),
                     error);
            copy.op_type = "Sum";
            copy.inputs = node->inputs;
            copy.input_count = node->input_count;
            copy.outputs = &z;
            copy.output_count = 1;
            CHECK_OK(sbit_graph_add_node(graph, &copy, &made, &error), error);
            CHECK_MSG(heap.peak_bytes < ((int64_t)64 << 20), "%.0f MB after an edit",
                      (double)heap.peak_bytes / 1e6);
            CHECK_OK(sbit_graph_validate(graph, &error), error);
        }
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        CHECK_EQ_I64(heap.live_bytes, 0);
        free(text.data);
        free(bytes.data);
    }
}

/* ---- loops in loops */

/* `depth` loops, each around the next; every round of any of them makes one more dim unknown. */
static void limits_loops(int depth, char *text, size_t size)
{
    size_t used = 0;
    for (int k = 0; k < depth; k++) {
        used += (size_t)snprintf(text + used, size - used,
                                 "graph L%d\nin i%d i64\nin c%d bool\nin s%d f32 ...\n"
                                 "Identity c%d -> d%d\nConcat s%d,s%d -> t%d axis=0\n"
                                 "Transpose t%d -> u%d perm=[1,2,3,4,5,6,7,0]\n",
                                 k, k, k, k, k, k, k, k, k, k, k);
        if (k > 0) {
            used += (size_t)snprintf(text + used, size - used,
                                     "Loop m,-,s%d -> w%d loop%d body=@L%d\n", k, k, k, k - 1);
        }
        used += (size_t)snprintf(text + used, size - used, "out d%d bool\nout u%d f32 ...\nend\n",
                                 k, k);
    }
    snprintf(text + used, size - used,
             "in x f32 2,2,2,2,2,2,2,2\nc m i64  = 1\nc c bool  = 1\n"
             "Loop m,c,x -> y outer body=@L%d\nout y f32 ...\n",
             depth - 1);
}

TEST(loops_in_loops_are_looked_at_for_a_limited_time)
{
    static char text[8192];
    for (int depth = 2; depth <= 12; depth += 10) {
        sbit_ctx_desc desc = test_ctx_desc();
        test_heap heap = {0, 0, 0, 0};
        sbit_ctx *ctx = NULL;
        sbit_error error;
        model_bytes bytes;
        desc.allocator = test_heap_allocator(&heap);
        memset(&error, 0, sizeof error);
        limits_loops(depth, text, sizeof text);
        CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
        sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
        const int64_t loaded = heap.live_bytes;
        const double begin = seconds();
        heap.peak_bytes = loaded;
        if (depth == 2) {
            CHECK_OK(sbit_infer(graph, &error), error);
        } else {
            CHECK_STATUS(sbit_infer(graph, &error), SBIT_ERR_LIMIT, error);
            CHECK_CONTAINS(error.message, "Loop 'loop");
            CHECK_CONTAINS(error.message, "max_body_nodes");
        }
        CHECK(seconds() - begin < 20.0); /* about 0.5, with sanitizers 5 */
        CHECK_MSG(heap.peak_bytes - loaded < 4 << 20, "%.1f MB while inferring",
                  (double)(heap.peak_bytes - loaded) / 1e6);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        CHECK_EQ_I64(heap.live_bytes, 0);
        free(bytes.data);
    }
}

TEST(the_limit_of_bodies_can_be_set)
{
    static char text[8192];
    static const int64_t limits[3] = {10, 100000, -1};
    static const sbit_status want[3] = {SBIT_ERR_LIMIT, SBIT_OK, SBIT_ERR_INVALID_ARGUMENT};
    for (int i = 0; i < 3; i++) {
        sbit_ctx_desc desc = test_ctx_desc();
        sbit_ctx *ctx = NULL;
        sbit_graph *graph = NULL;
        sbit_error error;
        model_bytes bytes = {NULL, 0, 0};
        memset(&error, 0, sizeof error);
        desc.max_body_nodes = limits[i];
        sbit_status status = sbit_ctx_create(&desc, &ctx, &error);
        limits_loops(3, text, sizeof text);
        if (status == SBIT_OK) {
            graph = model_graph(ctx, text, &bytes, &error);
            status = sbit_infer(graph, &error);
        }
        CHECK_STATUS(status, want[i], error);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

/* ---- many nodes */

/* 0: a chain; 1: all beside each other, then summed; 2: residual blocks of Conv and Add */
static sbit_value_id limits_many(build *b, int kind, int count)
{
    static const float one[1] = {1};
    sbit_value_id x = build_input(b, "x", SBIT_F32, "1,1,2,2"), v = x;
    const sbit_value_id w = build_constant(b, "w", SBIT_F32, "1,1,1,1", one);
    if (kind == 0) {
        for (int i = 0; i < count; i++) {
            v = build_unary(b, "Neg", "v", v);
        }
    } else if (kind == 1) {
        sbit_value_id *all = (sbit_value_id *)malloc((size_t)count * sizeof *all);
        for (int i = 0; i < count; i++) {
            all[i] = build_unary(b, "Neg", "v", x);
        }
        v = build_node(b, "Sum", "sum", all, (size_t)count, NULL, 0);
        free(all);
    } else {
        for (int i = 0; i < count / 2; i++) {
            v = build_binary(b, "Add", "a", build_binary(b, "Conv", "c", v, w), x);
        }
    }
    return v;
}

TEST(a_hundred_thousand_nodes_are_planned_and_run)
{
    const int count = getenv("SBIT_TEST_QUICK") != NULL ? 20000 : 100000;
    static const float x[4] = {1, 2, 3, 4};
    for (int kind = 0; kind < 3; kind++) {
        build b;
        sbit_session *session = NULL;
        const sbit_tensor tensor = build_tensor(SBIT_F32, "1,1,2,2", x);
        build_begin(&b, 17);
        build_output(&b, limits_many(&b, kind, count));
        const double begin = seconds();
        CHECK_OK(sbit_infer(b.graph, &b.error), b.error);
        if (CHECK_OK(sbit_session_create(b.graph, NULL, &session, &b.error), b.error) &&
            CHECK_OK(sbit_session_set_input(session, "x", &tensor, &b.error), b.error) &&
            CHECK_OK(sbit_session_run(session, &b.error), b.error)) {
            const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
            CHECK_EQ_I64(y[1], 2 * (kind == 0 ? 1 : kind == 1 ? -count : 1 + count / 2));
        }
        CHECK_MSG(seconds() - begin < 20.0, "kind %d took %.1f s", kind, seconds() - begin);
        sbit_session_destroy(session);
        build_end(&b);
    }
}

/* The same rule, slowly. */
static size_t limits_lowest(const sbit__life *life, sbit__life *const *placed,
                            int count)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < count; i++) {
            const sbit__life *other = placed[i];
            if (other->first <= life->last && life->first <= other->last &&
                offset < other->offset + other->bytes && other->offset < offset + life->bytes) {
                offset = other->offset + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

TEST(values_get_the_lowest_free_offset)
{
    enum {
        MOST = 400
    };
    static sbit__life values[MOST];
    static sbit__life *lives[MOST];
    sbit_rng rng = sbit_rng_seed(7);
    sbit_allocator none;
    memset(&none, 0, sizeof none);
    for (int round = 0; round < 60; round++) {
        const int count = 1 + (int)sbit_rng_below(&rng, MOST);
        const int steps = 1 + (int)sbit_rng_below(&rng, round % 2 == 0 ? 10 : 300);
        size_t bytes = 0, want = 0;
        sbit__arena arena;
        sbit_error error;
        sbit__arena_init(&arena, &none);
        memset(values, 0, sizeof values);
        for (int i = 0; i < count; i++) {
            values[i].first = (int32_t)sbit_rng_below(&rng, (uint32_t)steps);
            values[i].last = values[i].first + (int32_t)sbit_rng_below(&rng, 5);
            values[i].last = values[i].last >= steps ? steps - 1 : values[i].last;
            if (sbit_rng_below(&rng, 20) == 0) {
                values[i].last = SBIT__EXEC_FOREVER;
            }
            values[i].bytes = 64 * (1 + (size_t)sbit_rng_below(&rng, 50));
            lives[i] = &values[i];
        }
        CHECK_OK(sbit__memory_fit(lives, (size_t)count, (size_t)steps, &arena, &bytes, &error),
                 error);
        for (int i = 0; i < count; i++) {
            const size_t lowest = limits_lowest(lives[i], lives, i);
            if (!CHECK_EQ_I64(lives[i]->offset, lowest)) {
                break;
            }
            want = lowest + lives[i]->bytes > want ? lowest + lives[i]->bytes : want;
        }
        CHECK_EQ_I64(bytes, want);
        sbit__arena_deinit(&arena);
    }
}

/* More of them at once than are looked at one by one: nothing overlaps, nothing is lost. */
TEST(many_values_at_once_do_not_overlap)
{
    enum {
        COUNT = 4000
    };
    static sbit__life values[COUNT];
    static sbit__life *lives[COUNT];
    sbit_rng rng = sbit_rng_seed(9);
    sbit__arena arena;
    sbit_allocator none;
    sbit_error error;
    size_t bytes = 0, sum = 0;
    memset(&none, 0, sizeof none);
    sbit__arena_init(&arena, &none);
    for (int i = 0; i < COUNT; i++) {
        values[i].first = (int32_t)sbit_rng_below(&rng, 1000);
        values[i].last = values[i].first + 600;
        values[i].last = values[i].last > 999 ? 999 : values[i].last;
        values[i].bytes = 64 * (1 + (size_t)sbit_rng_below(&rng, 9));
        sum += values[i].bytes;
        lives[i] = &values[i];
    }
    CHECK_OK(sbit__memory_fit(lives, COUNT, 1000, &arena, &bytes, &error), error);
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < i; k++) {
            const bool apart = values[i].last < values[k].first ||
                               values[k].last < values[i].first ||
                               values[i].offset >= values[k].offset + values[k].bytes ||
                               values[k].offset >= values[i].offset + values[i].bytes;
            if (!CHECK(apart)) {
                return;
            }
        }
    }
    CHECK(bytes < sum);
    sbit__arena_deinit(&arena);
}

/* ---- attributes as large as they can be */

TEST(attributes_of_any_size_neither_overflow_nor_take_forever)
{
    static const struct {
        const char *text;
        sbit_status want;
    } cases[] = {
        {"opset 9\nc x i64 6 = 1 5 2 5 3 5\nTfIdfVectorizer x -> y t mode=TF min_gram_length=1 "
         "max_gram_length=2 max_skip_count=9223372036854775807 ngram_counts=[0,2] "
         "ngram_indexes=[0,1,2] pool_int64s=[5,1,1,2]\nout y f32 ...\n",
         SBIT_OK},
        {"opset 23\nc x f32 1,2,4 = 1\nc s f32 1,2,1 = 1\nRotaryEmbedding x,s,s -> y r "
         "num_heads=9223372036854775807\nout y f32 ...\n",
         SBIT_ERR_SHAPE},
        {"opset 13\nc x f32 2,4 = 1\nc s i64 2 = 9223372036854775807 4\nSplit x,s -> y,z p axis=1\n"
         "out y f32 ...\nout z f32 ...\n",
         SBIT_ERR_SHAPE},
        {"opset 24\nc x f32 1,1,2,2 = 1\nc n i64 1 = -9223372036854775808\n"
         "Attention x,x,x,-,-,-,n -> y a is_causal=1\nout y f32 ...\n",
         SBIT_ERR_SHAPE},
        {"opset 23\nc n i64 3 = 1 2 0\nConstantOfShape n -> x\nIdentity x -> s\nRotaryEmbedding "
         "x,s,s -> y r "
         "num_heads=9223372036854775807\nout y f32 ...\n",
         SBIT_OK}, /* y has no elements */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sbit_ctx_desc desc = test_ctx_desc();
        const double begin = seconds();
        sbit_ctx *ctx = NULL;
        sbit_session *session = NULL;
        sbit_error error;
        model_bytes bytes;
        memset(&error, 0, sizeof error);
        CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
        sbit_graph *graph = model_graph(ctx, cases[i].text, &bytes, &error);
        sbit_status status = sbit_session_create(graph, NULL, &session, &error);
        status = status == SBIT_OK ? sbit_session_run(session, &error) : status;
        CHECK_STATUS(status, cases[i].want, error);
        if (status == SBIT_OK && i == 0) { /* 5 thrice, 1 once, "1 2" with one between them */
            const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
            CHECK(y[0] == 3.0f && y[1] == 1.0f && y[2] == 1.0f);
        }
        CHECK(seconds() - begin < 0.5);
        sbit_session_destroy(session);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

/* What a schema's text rules out, and once gave a result all the same. */
#define BYTES                                                                                      \
    "c x u8 1,1,2,2 = 1\nc w u8 1,1,2,2 = 1\nc s f32  = 0.5\nc z u8  = 0\nc t f32 3 = 0.5\n"        \
    "c u u8 3 = 0\n"
TEST(what_schemas_rule_out_is_said)
{
    static const struct {
        const char *text, *say;
    } cases[] = {
        {"opset 16\nc x f32 1,1,2,2 = 1\nc r f32 1,4 = 1\nc b i64 1 = 0\n"
         "RoiAlign x,r,b -> y ra mode=sum",
         "RoiAlign 'ra': mode='sum' is not one of avg, max"},
        {"opset 16\nc x f32 1,1,2,2 = 1\nc r f32 1,4 = 1\nc b i64 1 = 0\n"
         "RoiAlign x,r,b -> y ra coordinate_transformation_mode=pixel",
         "is not one of half_pixel, output_half_pixel"},
        {"opset 24\nc x f32 2 = 1\nCast x -> y c to=24 round_mode=even",
         "round_mode='even' is not one of up, down, nearest"},
        {"opset 13\nc x f32 4,2 = 1\nc i i64 3,1 = 0 1 2\nc u f32 2,3 = 1\n"
         "ScatterND x,i,u -> y nd",
         "ScatterND 'nd': updates"},
        {"opset 14\nc x f32  = 1\nc a i64  = 0\nCumSum x,a -> y cs exclusive=1",
         "axis 0 is outside of a tensor of rank 0"},
        {"opset 23\nc x f32 1,1,2,2 = 1\nc n i64 1 = 2\nAttention x,x,x,-,-,-,n -> y at",
         "Attention 'at': it has 7 inputs, but needs at most 6"},
        {"opset 24\nc x f32 1,1,2,2 = 1\nAttention x,x,x -> z,-,-,y at qk_matmul_output_mode=4",
         "qk_matmul_output_mode"},
        {"opset 23\nopset 1 ai.onnx.preview\nc x f32 1,1,2,2 = 1\n"
         "ai.onnx.preview:FlexAttention x,x,x -> y fa softmax_precision=33",
         "softmax_precision"},
        {"opset 27\nc x f32 1,1,2 = 1\nc d f64 1,1,1 = 1\n"
         "LinearAttention x,x,x,-,d -> y la update_rule=gated q_num_heads=1 kv_num_heads=1",
         "element type float64 of input 4"},
        {"opset 13\nopset 1 ai.onnx.preview.training\nc x f32 2 = 1\nc r f32  = 1\nc t i64  = 1\n"
         "ai.onnx.preview.training:Momentum r,t,x,x,x -> y,s mo mode=fast alpha=0.5 beta=0.5 "
         "norm_coefficient=0.5",
         "mode='fast' is not one of standard, nesterov"},
        {"opset 10\n" BYTES "QLinearConv x,s,z,w,-,z,s,z -> y qc", "QLinearConv 'qc': input 4 is missing"},
        {"opset 10\n" BYTES "QLinearConv x,s,z,w,s,z,-,z -> y qc", "QLinearConv 'qc': input 6 is missing"},
        {"opset 10\n" BYTES "QLinearMatMul x,t,z,w,s,z,s,z -> y qm",
         "input 1 has 3 numbers for 2 rows or columns"},
        {"opset 10\n" BYTES "MatMulInteger x,w,-,u -> y mi",
         "input 3 has 3 numbers for 2 rows or columns"},
        {"opset 13\nopset 1 ai.onnx.preview.training\nc x f32 2 = 1\nc n i64 1 = 0\nc t i64  = 1\n"
         "ConstantOfShape n -> r\nai.onnx.preview.training:Adagrad r,t,x,x,x -> y,s ad",
         "rate and step are one number each"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sbit_ctx_desc desc = test_ctx_desc();
        char text[500];
        sbit_ctx *ctx = NULL;
        sbit_session *session = NULL;
        sbit_error error;
        model_bytes bytes;
        memset(&error, 0, sizeof error);
        CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
        snprintf(text, sizeof text, "%s\nout y ?\n", cases[i].text);
        sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
        if (graph != NULL && sbit_session_create(graph, NULL, &session, &error) == SBIT_OK) {
            CHECK_MSG(sbit_session_run(session, &error) != SBIT_OK, "%s: runs", cases[i].text);
        }
        CHECK_CONTAINS(error.message, cases[i].say);
        sbit_session_destroy(session);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

/* ---- operators that can be compiled out */

static void switch_is(const char *macro, const sbit_op_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool out = true;
        const char *got = sbit_operator_switch(rows[i].domain, rows[i].op_type, &out);
        CHECK_MSG(got != NULL && strcmp(got, macro) == 0 && !out, "%s is of %s, not %s",
                  rows[i].op_type, got != NULL ? got : "no switch", macro);
    }
}

/* ops/table.c names the operators of each switch: those of its families, and no others. */
TEST(switches_name_the_operators_of_their_families)
{
    const sbit_op_row *row = NULL;
    size_t count = 0, all = 0, named = 0;
    const char *macro = NULL;
#define SWITCH_IS(name)                                                                            \
    row = sbit__op_rows_##name(&count);                                                            \
    switch_is(macro, row, count);                                                                  \
    all += count;
#define FAMILY_IS(name)                                                                            \
    macro = "SPARSEBIT_NO_OPS_" #name;                                                             \
    SBIT__OPS_##name(SWITCH_IS)
    FAMILY_IS(RNN)
    FAMILY_IS(CONTROL)
    FAMILY_IS(STRING)
    FAMILY_IS(SIGNAL)
    FAMILY_IS(ML)
    FAMILY_IS(ATTENTION)
    FAMILY_IS(VISION)
    FAMILY_IS(MICROSOFT)
    FAMILY_IS(TRAINING)
#undef FAMILY_IS
#undef SWITCH_IS
    for (size_t i = 0; (row = sbit_operator_at(i)) != NULL; i++) {
        named += sbit_operator_switch(row->domain, row->op_type, NULL) != NULL ? 1 : 0;
    }
    CHECK_EQ_I64((int64_t)named, (int64_t)all);
    CHECK(sbit_operator_switch("", "Conv", NULL) == NULL);
    CHECK(sbit_operator_switch("ai.onnx", "LSTM", NULL) != NULL);
    CHECK(sbit_operator_switch("com.acme", "LSTM", NULL) == NULL);
}

/* What is known of an output although a shape or an axis is only known while running. */
TEST(shapes_that_data_decides_keep_what_is_known)
{
    static const struct {
        const char *text, *type;
    } cases[] = {
        {"opset 18\nin x f32 3,1\nin s i64 3\nExpand x,s -> y e\nout y f32 ...\n",
         "float32[?,3,?]"},
        {"opset 18\nin x f32 1,5,5\nin i i64 2\nin b i64 2\nCol2Im x,i,b -> y c\nout y f32 ...\n",
         "float32[1,?,?,?]"},
        {"opset 20\nin x f32 1,10,10,1\nin a i64 \nDFT x,,a -> y d\nout y f32 ...\n",
         "float32[1,10,10,2]"},
        {"opset 20\nin x f32 1,10,10,1\nin a i64 \nDFT x,,a -> y d onesided=1\nout y f32 ...\n",
         "float32[?,?,?,2]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        char type[200] = "";
        memset(&error, 0, sizeof error);
        sbit_graph *graph = model_graph(ctx, cases[i].text, &bytes, &error);
        if (CHECK(graph != NULL) && CHECK_OK(sbit_infer(graph, &error), error)) {
            const sbit_value_id y = sbit_graph_find_value(graph, "y");
            sbit__type_describe(graph, &sbit_graph_value(graph, y)->type, type, sizeof type);
        }
        CHECK_STR(type, cases[i].type);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}
