/* test_names_of_dims.c: dims that carry one name for different sizes, as converters write them. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

#define DIMS_MODEL(dims)                                                                           \
    "in x f32 " dims "\nc w f32 2,3,3,3 = 0.5 -1 2 0.25 1 3 -2\nConv x,w -> c pads=[1,1,1,1]\n"    \
    "Relu c -> y\nout y f32 ...\n"

/* Quantizes and runs at 1x3x6x9; the number of warnings. */
static int dims_quantize(const char *text)
{
    build b;
    static float x[162];
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *built = NULL;
    sbit_session *session = NULL;
    model_bytes bytes;
    const sbit_tensor data = build_tensor(SBIT_F32, "1,3,6,9", x);
    for (int i = 0; i < 162; i++) {
        x[i] = (float)((i * 7) % 23) / 4.0f - 2.0f;
    }
    build_begin(&b, 17);
    sbit_graph_destroy(b.graph);
    b.graph = model_graph(b.ctx, text, &bytes, &b.error);
    CHECK_OK(sbit_qconfig_create(b.ctx, "onnxruntime", &config, &b.error), b.error);
    if (CHECK_OK(sbit_quant_create(b.graph, config, &quant, &b.error), b.error)) {
        CHECK_OK(sbit_quant_prepare_calibration(quant, &b.error), b.error);
        CHECK_OK(sbit_quant_forward(quant, NULL, &data, 1, &b.error), b.error);
        CHECK_OK(sbit_quant_calc_qparams(quant, false, false, false, &b.error), b.error);
        CHECK_OK(sbit_quant_build(quant, NULL, &built, &b.error), b.error);
    }
    if (built != NULL && CHECK_OK(sbit_session_create(built, NULL, &session, &b.error), b.error)) {
        CHECK_OK(sbit_session_set_input(session, "x", &data, &b.error), b.error);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(built);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    const int warnings = b.warnings;
    if (warnings > 0) {
        CHECK_CONTAINS(b.warning, "dimension 'dim' is 6");
    }
    build_end(&b);
    free(bytes.data);
    return warnings;
}

TEST(names_that_are_none_say_nothing)
{
    CHECK_EQ_I64(dims_quantize(DIMS_MODEL("'?,'?,'?,'?")), 0);
    CHECK_EQ_I64(dims_quantize(DIMS_MODEL("1,3,'?,'?")), 0);
    CHECK_EQ_I64(dims_quantize(DIMS_MODEL("'-1,3,'-1,'-1")), 0);
    CHECK_EQ_I64(dims_quantize(DIMS_MODEL("None,3,None,None")), 0);
    CHECK_EQ_I64(dims_quantize(DIMS_MODEL("unknown,3,Unknown,unknown")), 0);
}

TEST(a_name_that_contradicts_itself_is_a_warning)
{
    CHECK(dims_quantize(DIMS_MODEL("1,3,dim,dim")) > 0);
    CHECK_EQ_I64(dims_quantize(DIMS_MODEL("N,3,H,W")), 0);
}

/* What is computed ahead of time must not rely on such a name: here that x is square, so that
 * transposing its shape changes nothing. */
TEST(simplifying_relies_on_no_name_that_stands_twice_in_an_input)
{
    static const char model[] =
        "in x f32 dim,dim\nin z f32 dim,dim\nc i i64 2 = 1 0\nShape x -> s\nGather s,i -> t\n"
        "Reshape x,t -> y\nc z0 i64  = 0\nc z1 i64  = 1\nGather s,z0 -> a\nGather s,z1 -> b\n"
        "Equal a,b -> square\nCast square -> y2 to=1\nout y f32 ...\nout y2 f32 ...\n";
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    build b;
    sbit_session *session = NULL;
    model_bytes bytes;
    const sbit_tensor data = build_tensor(SBIT_F32, "2,3", x);
    build_begin(&b, 17);
    sbit_graph_destroy(b.graph);
    b.graph = model_graph(b.ctx, model, &bytes, &b.error);
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    if (CHECK_OK(sbit_session_create(b.graph, NULL, &session, &b.error), b.error)) {
        CHECK_OK(sbit_session_set_input(session, "x", &data, &b.error), b.error);
        CHECK_OK(sbit_session_set_input(session, "z", &data, &b.error), b.error);
        if (CHECK_OK(sbit_session_run(session, &b.error), b.error)) {
            const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
            CHECK(y->rank == 2 && y->dims[0] == 3 && y->dims[1] == 2);
            CHECK_NEAR(((const float *)sbit_session_output(session, 1)->tensor.data)[0], 0.0, 0.0);
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
    free(bytes.data);
}
