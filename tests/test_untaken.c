/* test_untaken.c: bodies that do not fit the shapes at hand, because they do not run: everything
 * works that works without them. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

/* h = x * w is [B,3,5]; a branch squeezes axis 1 where it is 1 long. */
#define UNTAKEN_HEAD                                                                               \
    "in x f32 B,3,4\nc w f32 4,5 = 0.5 -1 2 0.25 1 3\nMatMul x,w -> h\n"                           \
    "c ax i64 1 = 1\nc k i64  = 1\nc one i64  = 1\nShape h -> sh\nGather sh,k -> g\n"
#define UNTAKEN_SQUEEZE "graph sq\nSqueeze h,ax -> t\nout t f32 ...\nend\n"
#define UNTAKEN_KEEP "graph keep\nIdentity h -> e\nout e f32 ...\nend\n"

static const char *const untaken_models[] = {
    /* the condition follows from shapes */
    UNTAKEN_SQUEEZE UNTAKEN_KEEP UNTAKEN_HEAD "Equal g,one -> c\nIf c -> q if then_branch=@sq "
                                              "else_branch=@keep\nRelu q -> y\nout y f32 ...\n",
    UNTAKEN_SQUEEZE UNTAKEN_KEEP UNTAKEN_HEAD
    "Equal g,one -> n\nNot n -> c\nIf c -> q if then_branch=@keep else_branch=@sq\nRelu q -> y\n"
    "out y f32 ...\n",
    /* it is an input */
    UNTAKEN_SQUEEZE UNTAKEN_KEEP UNTAKEN_HEAD
    "in c bool\nIf c -> q if then_branch=@sq else_branch=@keep\nRelu q -> y\nout y f32 ...\n",
    /* the branch lies in another one, with a layer of its own */
    UNTAKEN_SQUEEZE UNTAKEN_KEEP "graph outer\nMatMul x,w -> o\nIf c2 -> p inner then_branch=@sq "
                                 "else_branch=@keep\nAdd o,p -> oo\n"
                                 "out oo f32 ...\nend\n" UNTAKEN_HEAD
                                 "Equal g,one -> c2\nNot c2 -> c\nIf c -> q if then_branch=@outer "
                                 "else_branch=@keep\nRelu q -> y\n"
                                 "out y f32 ...\n",
    /* a loop that makes no round */
    "graph body\nin i i64\nin c bool\nin s f32 ...\nSqueeze h,ax -> t\nIdentity c -> cc\n"
    "Identity s -> ss\nout cc bool\nout ss f32 ...\nend\n" UNTAKEN_HEAD
    "c m i64  = 0\nLoop m,-,h -> q loop body=@body\nRelu q -> y\nout y f32 ...\n",
};

static const float *untaken_x(void)
{
    static float x[24];
    for (int i = 0; i < 24; i++) {
        x[i] = (float)((i * 7) % 11) - 4.0f;
    }
    return x;
}

/* Output 0 for [2,3,4] ones-like data; its element count. */
static int64_t untaken_run(sbit_graph *graph, float *out, sbit_error *error)
{
    sbit_session *session = NULL;
    int64_t count = -1;
    static const uint8_t no[1] = {0};
    const sbit_tensor x = build_tensor(SBIT_F32, "2,3,4", untaken_x());
    const sbit_tensor c = build_tensor(SBIT_BOOL, "", no);
    if (CHECK_OK(sbit_session_create(graph, NULL, &session, error), *error) &&
        CHECK_OK(sbit_session_set_input(session, "x", &x, error), *error)) {
        if (sbit_session_input_count(session) > 1) {
            CHECK_OK(sbit_session_set_input(session, "c", &c, error), *error);
        }
        if (CHECK_OK(sbit_session_run(session, error), *error)) {
            const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
            count = sbit_tensor_count(y);
            memcpy(out, y->data, (size_t)(count < 64 ? count : 64) * sizeof *out);
        }
    }
    sbit_session_destroy(session);
    return count;
}

TEST(untaken_bodies_that_do_not_fit_are_no_obstacle)
{
    for (size_t i = 0; i < sizeof untaken_models / sizeof untaken_models[0]; i++) {
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        float plain[64], simple[64];
        memset(&error, 0, sizeof error);
        sbit_graph *graph = model_graph(ctx, untaken_models[i], &bytes, &error);
        const int64_t n = untaken_run(graph, plain, &error);
        CHECK_EQ_I64(n, 30);
        CHECK_OK(sbit_infer(graph, &error), error);
        if (CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error)) {
            CHECK_OK(sbit_graph_validate(graph, &error), error);
            CHECK_EQ_I64(untaken_run(graph, simple, &error), n);
            CHECK_MEM(plain, simple, sizeof(float) * 30);
        }
        CHECK_OK(sbit_graph_lift_opset(graph, 21, &error), error);
        CHECK_EQ_I64(untaken_run(graph, simple, &error), n);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

/* Bodies of fixed shapes are planned with their nodes, the branch that is not taken, too: running
 * takes no memory but what was told. */
TEST(bodies_of_fixed_shapes_are_planned)
{
    static const char model[] =
        "graph a\nMatMul x,w -> m\nRelu m -> t\nout t f32 ...\nend\n"
        "graph b\nMatMul x,w -> n\nNeg n -> e\nout e f32 ...\nend\n"
        "graph body\nin i i64\nin go bool\nin s f32 ...\nMatMul s,v -> sv\nAdd sv,s -> ss\n"
        "Identity go -> gg\nout gg bool\nout ss f32 ...\nend\n"
        "in x f32 3,4\nin c bool\nc w f32 4,5 = 0.5 -1 2\nc v f32 4,4 = 0.25 0 -0.5\nc k i64  = 5\n"
        "If c -> q if then_branch=@a else_branch=@b\nExp q -> y\nout y f32 ...\n"
        "Loop k,-,x -> z loop body=@body\nout z f32 ...\n";
    static const float w[3] = {0.5f, -1.0f, 2.0f}, v[3] = {0.25f, 0.0f, -0.5f};
    const float *x = untaken_x();
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx_desc desc;
    sbit_ctx *ctx = NULL;
    sbit_session *session = NULL;
    sbit_session_memory before, after;
    sbit_error error;
    model_bytes bytes;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.allocator = test_heap_allocator(&heap);
    CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
    sbit_graph *graph = model_graph(ctx, model, &bytes, &error);
    if (CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error)) {
        const sbit_tensor in = build_tensor(SBIT_F32, "3,4", x);
        CHECK_OK(sbit_session_plan(session, &error), error);
        sbit_session_memory_of(session, &before);
        const int64_t count = heap.count;
        for (int run = 0; run < 4; run++) {
            const uint8_t yes[1] = {(uint8_t)(run % 2)};
            const sbit_tensor c = build_tensor(SBIT_BOOL, "", yes);
            double want[4];
            CHECK_OK(sbit_session_set_input(session, "x", &in, &error), error);
            CHECK_OK(sbit_session_set_input(session, "c", &c, &error), error);
            CHECK_OK(sbit_session_run(session, &error), error);
            const sbit_value *y = sbit_session_output(session, 0);
            const sbit_value *z = sbit_session_output(session, 1);
            if (!CHECK(y != NULL && z != NULL)) {
                break;
            }
            double m = 0.0;
            for (int i = 0; i < 4; i++) { /* column 0; weights repeat from the start */
                m += (double)x[i] * (double)w[i * 5 % 3];
                want[i] = (double)x[i];
            }
            CHECK_NEAR(((const float *)y->tensor.data)[0], exp(run % 2 == 1 ? (m > 0 ? m : 0) : -m),
                       1e-4 * exp(fabs(m)));
            for (int round = 0; round < 5; round++) {
                double next[4];
                for (int j = 0; j < 4; j++) {
                    next[j] = want[j];
                    for (int i = 0; i < 4; i++) {
                        next[j] += want[i] * (double)v[(i * 4 + j) % 3];
                    }
                }
                memcpy(want, next, sizeof want);
            }
            CHECK_NEAR(((const float *)z->tensor.data)[3], want[3], 1e-4 * fabs(want[3]) + 1e-4);
        }
        sbit_session_memory_of(session, &after);
        CHECK_EQ_I64(heap.count, count);
        CHECK_EQ_I64(after.activation_bytes, before.activation_bytes);
        CHECK_EQ_I64(after.total_bytes, before.total_bytes);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
    free(bytes.data);
}

TEST(models_with_untaken_bodies_are_quantized)
{
    static const uint8_t no[1] = {0};
    for (size_t i = 0; i < sizeof untaken_models / sizeof untaken_models[0]; i++) {
        build b;
        sbit_qconfig *config = NULL;
        sbit_quant *quant = NULL;
        sbit_graph *built = NULL;
        model_bytes bytes;
        float plain[64], quantized[64];
        sbit_tensor inputs[2];
        static const char *const names[2] = {"x", "c"};
        inputs[0] = build_tensor(SBIT_F32, "2,3,4", untaken_x());
        inputs[1] = build_tensor(SBIT_BOOL, "", no);
        build_begin(&b, 17);
        sbit_graph_destroy(b.graph);
        b.graph = model_graph(b.ctx, untaken_models[i], &bytes, &b.error);
        untaken_run(b.graph, plain, &b.error);
        CHECK_OK(sbit_qconfig_create(b.ctx, "onnxruntime", &config, &b.error), b.error);
        if (CHECK_OK(sbit_quant_create(b.graph, config, &quant, &b.error), b.error)) {
            CHECK_OK(sbit_quant_prepare_calibration(quant, &b.error), b.error);
            CHECK_OK(sbit_quant_forward(quant, names, inputs, i == 2 ? 2 : 1, &b.error), b.error);
            CHECK_OK(sbit_quant_calc_qparams(quant, false, false, false, &b.error), b.error);
            CHECK_OK(sbit_quant_build(quant, NULL, &built, &b.error), b.error);
        }
        if (built != NULL && CHECK_EQ_I64(untaken_run(built, quantized, &b.error), 30)) {
            for (int k = 0; k < 30; k++) {
                CHECK_NEAR(quantized[k], plain[k], 0.6);
            }
        }
        sbit_graph_destroy(built);
        sbit_quant_destroy(quant);
        sbit_qconfig_destroy(config);
        build_end(&b);
        free(bytes.data);
    }
}

/* What does run and does not fit is an error as before. */
TEST(a_taken_branch_that_does_not_fit_is_an_error)
{
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    sbit_graph *graph = model_graph(ctx,
                                    UNTAKEN_SQUEEZE UNTAKEN_KEEP UNTAKEN_HEAD
                                    "Equal g,one -> n\nNot n -> c\nIf c -> q if then_branch=@sq "
                                    "else_branch=@keep\nRelu q -> y\n"
                                    "out y f32 ...\n",
                                    &bytes, &error);
    CHECK_STATUS(sbit_simplify(graph, NULL, NULL, &error), SBIT_ERR_SHAPE, error);
    CHECK_CONTAINS(error.message, "Squeeze 't'");
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}
