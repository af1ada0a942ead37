/* test_defaults.c: inputs with default values. From IR 4 on they are inputs: what is fed counts,
 * and nothing is computed from the default ahead of time. Before, each initializer had to be an
 * input. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

/* y = x * W + x * A * B, with A and B of no columns by default (an adapter that is not there). */
#define ADAPTER                                                                                    \
    "in x f32 N,2\nin A f32 2,r\nin B f32 r,2\nc A f32 2,0 = 0\nc B f32 0,2 = 0\n"                 \
    "c W f32 2,2 = 1 2 3 4\nMatMul x,W -> base\nMatMul x,A -> xa\nMatMul xa,B -> low\n"            \
    "Add base,low -> y\nout y f32 N,2\n"

static const float defaults_x[4] = {1, 0, 0, 1}, defaults_a[2] = {1, 2}, defaults_b[2] = {10, 100};

static void defaults_check(sbit_graph *graph, bool fed, const float *want, sbit_error *error)
{
    sbit_session *session = NULL;
    const sbit_tensor x = build_tensor(SBIT_F32, "2,2", defaults_x);
    const sbit_tensor a = build_tensor(SBIT_F32, "2,1", defaults_a);
    const sbit_tensor b = build_tensor(SBIT_F32, "1,2", defaults_b);
    if (CHECK_OK(sbit_session_create(graph, NULL, &session, error), *error) &&
        CHECK_OK(sbit_session_set_input(session, "x", &x, error), *error) &&
        (!fed || (CHECK_OK(sbit_session_set_input(session, "A", &a, error), *error) &&
                  CHECK_OK(sbit_session_set_input(session, "B", &b, error), *error))) &&
        CHECK_OK(sbit_session_run(session, error), *error)) {
        const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int i = 0; i < 4; i++) {
            CHECK_NEAR(y[i], want[i], 1e-4 * (double)fabsf(want[i]));
        }
    }
    sbit_session_destroy(session);
}

TEST(defaults_can_be_fed_before_and_after_simplifying)
{
    static const float plain[4] = {1, 2, 3, 4}, with[4] = {11, 102, 23, 204};
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    char path[300];
    sbit_graph *graph = model_graph(ctx, ADAPTER, &bytes, &error);
    for (int round = 0; round < 3 && graph != NULL; round++) {
        const sbit_value_info *a = sbit_graph_value(graph, sbit_graph_find_value(graph, "A"));
        CHECK_EQ_I64(sbit_graph_input_count(graph), 3);
        CHECK(a->is_input && a->has_default && !a->is_constant);
        CHECK(a->type.rank == 2 && a->type.dims[1].symbol != 0); /* as declared */
        CHECK_EQ_I64(a->constant.dims[1], 0);
        CHECK_OK(sbit_infer(graph, &error), error);
        CHECK_OK(sbit_graph_validate(graph, &error), error);
        defaults_check(graph, false, plain, &error);
        defaults_check(graph, true, with, &error);
        if (round == 0) {
            CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error);
        } else if (round == 1) { /* and from a file again */
            test_tmp_path("defaults.onnx", path, sizeof path);
            CHECK_OK(sbit_graph_save(graph, path, NULL, &error), error);
            sbit_graph_destroy(graph);
            graph = NULL;
            CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error);
        }
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

TEST(defaults_are_not_folded)
{
    static const char model[] = "in x f32 1\nin t f32 1\nc t f32 1 = 3\nc one f32 1 = 1\n"
                                "Add one,t -> u\nMul u,u -> v\nAdd x,v -> y\nout y f32 1\n";
    static const float two[1] = {2};
    for (int asked = 0; asked < 2; asked++) {
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        sbit_simplify_desc desc;
        sbit_session *session = NULL;
        const sbit_tensor x = build_tensor(SBIT_F32, "1", two);
        sbit_graph *graph = model_graph(ctx, model, &bytes, &error);
        memset(&desc, 0, sizeof desc);
        desc.fix_defaults = true;
        CHECK(asked == 0 || CHECK_OK(sbit_simplify(graph, &desc, NULL, &error), error));
        CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error);
        /* asked: t only serves as an operand, not as a weight: it stays an input all the same */
        CHECK_EQ_I64(sbit_graph_input_count(graph), 2);
        if (CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error)) {
            CHECK_OK(sbit_session_set_input(session, "x", &x, &error), error);
            CHECK_OK(sbit_session_run(session, &error), error);
            CHECK_NEAR(((const float *)sbit_session_output(session, 0)->tensor.data)[0], 18.0, 0.0);
            CHECK_OK(sbit_session_set_input(session, "t", &x, &error), error);
            CHECK_OK(sbit_session_run(session, &error), error);
            CHECK_NEAR(((const float *)sbit_session_output(session, 0)->tensor.data)[0], 11.0, 0.0);
        }
        sbit_session_destroy(session);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

TEST(bodies_see_what_is_fed)
{
    static const char model[] =
        "graph yes\nAdd x,t -> a\nout a f32 1\nend\ngraph no\nIdentity x -> b\nout b f32 1\nend\n"
        "in x f32 1\nin t f32 1\nin c bool \nc t f32 1 = 3\nc c bool  = 1\n"
        "If c -> y cond then_branch=@yes else_branch=@no\nout y f32 1\n";
    static const float two[1] = {2}, five[1] = {5};
    static const uint8_t no[1] = {0};
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    sbit_session *session = NULL;
    const sbit_tensor x = build_tensor(SBIT_F32, "1", two), t = build_tensor(SBIT_F32, "1", five);
    const sbit_tensor c = build_tensor(SBIT_BOOL, "", no);
    sbit_graph *graph = model_graph(ctx, model, &bytes, &error);
    CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error);
    if (CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error)) {
        const sbit_tensor *fed[3] = {NULL, &t, &c};
        static const char *const names[3] = {"", "t", "c"};
        static const double want[3] = {5, 7, 2};
        CHECK_OK(sbit_session_set_input(session, "x", &x, &error), error);
        for (int i = 0; i < 3; i++) {
            CHECK(i == 0 ||
                  CHECK_OK(sbit_session_set_input(session, names[i], fed[i], &error), error));
            CHECK_OK(sbit_session_run(session, &error), error);
            CHECK_NEAR(((const float *)sbit_session_output(session, 0)->tensor.data)[0], want[i],
                       0.0);
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

/* IR 3: weights that are inputs, because all initializers had to be. */
TEST(before_ir_4_initializers_are_constants)
{
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    sbit_graph *graph = model_graph(ctx,
                                    "ir 3\nopset 8\nin x f32 1,2\nin w f32 2,2\nc w f32 2,2 = 1 2\n"
                                    "in v f32 2,2\nc v f32 2,2 = 1 1\nAdd w,v -> s\n"
                                    "MatMul x,s -> y\nout y f32 1,2\n",
                                    &bytes, &error);
    CHECK(sbit_graph_value(graph, sbit_graph_find_value(graph, "w"))->is_constant);
    CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error);
    const sbit_node *node = sbit_graph_node(graph, sbit_graph_first(graph));
    CHECK_STR(node->op_type, "MatMul"); /* the sum was folded */
    CHECK_EQ_I64(sbit_graph_input_count(graph), 1);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

/* Quantization needs weights that stay: inputs whose default has the declared shape, and that only
 * serve as weights, become constants, which is said; adapters stay inputs and in float. */
TEST(quantization_takes_defaults_of_the_declared_shape_for_weights)
{
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *built = NULL;
    model_bytes bytes;
    const sbit_tensor x = build_tensor(SBIT_F32, "2,2", defaults_x);
    build_begin(&b, 17);
    sbit_graph_destroy(b.graph);
    b.graph = model_graph(b.ctx, "in W f32 2,2\n" ADAPTER, &bytes, &b.error);
    CHECK_OK(sbit_qconfig_create(b.ctx, "onnxruntime", &config, &b.error), b.error);
    if (CHECK_OK(sbit_quant_create(b.graph, config, &quant, &b.error), b.error)) {
        CHECK_CONTAINS(b.warning, "'W'");
        CHECK_OK(sbit_quant_prepare_calibration(quant, &b.error), b.error);
        CHECK_OK(sbit_quant_forward(quant, NULL, &x, 1, &b.error), b.error);
        CHECK_OK(sbit_quant_calc_qparams(quant, false, true, true, &b.error), b.error);
        CHECK_OK(sbit_quant_build(quant, NULL, &built, &b.error), b.error);
    }
    if (built != NULL) {
        CHECK_EQ_I64(sbit_graph_input_count(built), 3);
        CHECK(sbit_graph_value(built, sbit_graph_find_value(built, "A"))->has_default);
        const sbit_value_id w = sbit_graph_find_value(built, "W_quantized");
        CHECK(w.idx == 0 || sbit_graph_value(built, w)->is_constant);
        static const float plain[4] = {1, 2, 3, 4}, with[4] = {11, 102, 23, 204};
        (void)plain;
        (void)with;
    }
    sbit_graph_destroy(built);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    build_end(&b);
    free(bytes.data);
}
