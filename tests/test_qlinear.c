/* test_qlinear.c: the integer operators as nodes of a graph: values by hand, types that are flipped
 * at the border, what is not constant, new shapes, errors. interop/check_qlinear.py has the rest.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

/* A quantization parameter pair as constants: scale and zero point of that type. */
static void add_param(build *b, const char *name, float scale, sbit_dtype dtype, int zero,
                      sbit_value_id *ids)
{
    char text[64];
    const uint8_t byte = (uint8_t)zero;
    snprintf(text, sizeof text, "%s_scale", name);
    ids[0] = build_constant(b, text, SBIT_F32, "", &scale);
    snprintf(text, sizeof text, "%s_zero", name);
    ids[1] = build_constant(b, text, dtype, "", &byte);
}

static sbit_value_id add_ms_node(build *b, const char *op_type, const sbit_value_id *inputs,
                                 size_t count, const sbit_attr *attrs, size_t attr_count)
{
    sbit_value_id out = {0};
    if (!b->failed) {
        build_do(b, sbit_graph_set_opset(b->graph, "com.microsoft", 1, &b->error), "opset");
    }
    build_node_outputs(b, "com.microsoft", op_type, "y", inputs, count, attrs, attr_count, &out, 1);
    build_output(b, out);
    return out;
}

/* Runs the graph on one input and compares the bytes of output 0. */
static void check_bytes(build *b, sbit_dtype dtype, const char *dims, const void *data,
                        const void *want, size_t bytes)
{
    sbit_session *session = NULL;
    const sbit_tensor x = build_tensor(dtype, dims, data);
    const sbit_tensor *y = NULL;
    if (b->failed ||
        !build_do(b, sbit_session_create(b->graph, NULL, &session, &b->error), "session")) {
        return;
    }
    build_do(b, sbit_session_set_input(session, "x", &x, &b->error), "input");
    for (int i = 0; i < 2 && !b->failed; i++) { /* packed by the first run, used by the second */
        build_do(b, sbit_session_run(session, &b->error), "run");
        y = &sbit_session_output(session, 0)->tensor;
        if (!b->failed && CHECK(y != NULL) && CHECK_EQ_I64(sbit_tensor_bytes(y), bytes)) {
            CHECK(memcmp(y->data, want, bytes) == 0);
        }
    }
    sbit_session_destroy(session);
}

TEST(convolution_by_hand)
{
    /* x - 10 = 1 2 3 4; weights 1 -2 with zero point 0, bias 5, padding 1 in front:
     * sums 5-2, 5+1-4, 5+2-6, 5+3-8 = 3 2 1 0; times 0.5 * 0.25 / 0.0625 = 2, plus 100 */
    static const int8_t w[2] = {1, -2};
    static const int32_t bias[1] = {5};
    static const uint8_t x[4] = {11, 12, 13, 14}, want[4] = {106, 104, 102, 100};
    static const int64_t pads[2] = {1, 0};
    build b;
    sbit_value_id in[9], y;
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_U8, "1,1,4");
    add_param(&b, "x", 0.5f, SBIT_U8, 10, &in[1]);
    in[3] = build_constant(&b, "w", SBIT_I8, "1,1,2", w);
    add_param(&b, "w", 0.25f, SBIT_I8, 0, &in[4]);
    add_param(&b, "y", 0.0625f, SBIT_U8, 100, &in[6]);
    in[8] = build_constant(&b, "b", SBIT_I32, "1", bias);
    const sbit_attr attr = build_ints("pads", pads, 2);
    y = build_node(&b, "QLinearConv", "y", in, 9, &attr, 1);
    build_output(&b, y);
    check_bytes(&b, SBIT_U8, "1,1,4", x, want, sizeof want);
    build_end(&b);
}

TEST(product_of_int8_with_unsigned_weights)
{
    /* (x + 3) = 4 5, (w - 128) = 1 -1; 2 0: sums 4*1+5*2 = 14, 4*-1 = -4; scale 1, zero -1 */
    static const int8_t x[2] = {1, 2}, want[2] = {13, -5};
    static const uint8_t w[4] = {129, 127, 130, 128};
    build b;
    sbit_value_id in[8], y;
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_I8, "M,2");
    add_param(&b, "x", 0.5f, SBIT_I8, -3, &in[1]);
    in[3] = build_constant(&b, "w", SBIT_U8, "2,2", w);
    add_param(&b, "w", 2.0f, SBIT_U8, 128, &in[4]);
    add_param(&b, "y", 1.0f, SBIT_I8, -1, &in[6]);
    y = build_node(&b, "QLinearMatMul", "y", in, 8, NULL, 0);
    build_output(&b, y);
    check_bytes(&b, SBIT_I8, "1,2", x, want, sizeof want);
    build_end(&b);
}

TEST(weights_that_are_no_constants)
{
    static const uint8_t x[2] = {3, 5};
    static const int8_t w[4] = {1, 2, -1, 4};
    static const int32_t want[2] = {-2, 26};
    build b;
    sbit_value_id in[2];
    sbit_session *session = NULL;
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_U8, "1,2");
    in[1] = build_input(&b, "w", SBIT_I8, "2,2");
    build_output(&b, build_node(&b, "MatMulInteger", "y", in, 2, NULL, 0));
    const sbit_tensor tensors[2] = {build_tensor(SBIT_U8, "1,2", x),
                                    build_tensor(SBIT_I8, "2,2", w)};
    if (!b.failed && build_do(&b, sbit_session_create(b.graph, NULL, &session, &b.error), "make")) {
        build_do(&b, sbit_session_set_input(session, "x", &tensors[0], &b.error), "x");
        build_do(&b, sbit_session_set_input(session, "w", &tensors[1], &b.error), "w");
        build_do(&b, sbit_session_run(session, &b.error), "run");
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        CHECK(y != NULL && memcmp(y->data, want, sizeof want) == 0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(elements_by_hand)
{
    /* 0.5 * (x - 2) + 0.25 * 4 = 0 .5 1 1.5: / 0.5 = 0 1 2 3, + 7; bounds of uint8 */
    static const uint8_t x[4] = {0, 1, 2, 250}, four[1] = {4}, want[4] = {7, 8, 9, 255};
    build b;
    sbit_value_id in[8];
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_U8, "N");
    add_param(&b, "x", 0.5f, SBIT_U8, 2, &in[1]);
    in[3] = build_constant(&b, "c", SBIT_U8, "1", four);
    add_param(&b, "c", 0.25f, SBIT_U8, 0, &in[4]);
    add_param(&b, "y", 0.5f, SBIT_U8, 7, &in[6]);
    add_ms_node(&b, "QLinearAdd", in, 8, NULL, 0);
    check_bytes(&b, SBIT_U8, "4", x, want, sizeof want);
    build_end(&b);
}

TEST(a_scale_per_row_is_computed_too)
{
    static const uint8_t x[4] = {1, 2, 3, 4}, want[2] = {3, 14};
    static const float scales[2] = {1.0f, 2.0f}, results[2] = {1.0f, 1.0f};
    static const uint8_t zeros[2] = {0, 0};
    static const int8_t w[2] = {1, 1};
    build b;
    sbit_value_id in[8], y;
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_U8, "2,2");
    in[1] = build_constant(&b, "xs", SBIT_F32, "2", scales);
    in[2] = build_constant(&b, "xz", SBIT_U8, "2", zeros);
    in[3] = build_constant(&b, "w", SBIT_I8, "2,1", w);
    add_param(&b, "w", 1.0f, SBIT_I8, 0, &in[4]);
    in[6] = build_constant(&b, "ys", SBIT_F32, "2", results);
    in[7] = build_constant(&b, "yz", SBIT_U8, "2", zeros);
    y = build_node(&b, "QLinearMatMul", "y", in, 8, NULL, 0);
    build_output(&b, y);
    check_bytes(&b, SBIT_U8, "2,2", x, want, sizeof want);
    build_end(&b);
}

TEST(wrong_scales_are_named)
{
    static const uint8_t x[2] = {1, 2};
    static const float scales[2] = {1.0f, 2.0f};
    build b;
    sbit_value_id in[5];
    sbit_session *session = NULL;
    const sbit_tensor tensor = build_tensor(SBIT_U8, "2", x);
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_U8, "2");
    in[1] = build_constant(&b, "xs", SBIT_F32, "2", scales);
    in[2].idx = 0;
    add_param(&b, "y", 1.0f, SBIT_U8, 0, &in[3]);
    add_ms_node(&b, "QLinearSigmoid", in, 5, NULL, 0);
    if (!b.failed && build_do(&b, sbit_session_create(b.graph, NULL, &session, &b.error), "make")) {
        build_do(&b, sbit_session_set_input(session, "x", &tensor, &b.error), "x");
        CHECK_EQ_I64(sbit_session_run(session, &b.error), SBIT_ERR_SHAPE);
        CHECK_MSG(strstr(b.error.message, "one element") != NULL, "%s", b.error.message);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(empty_products_divide_nothing)
{
    static const int8_t w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float scale = 0.1f;
    const uint8_t zero = 3;
    const int8_t none = 0;
    for (int32_t threads = 1; threads <= 4; threads += 3) {
        build b;
        sbit_session *session = NULL;
        uint8_t data[1] = {0};
        const sbit_tensor x = {SBIT_U8, 2, {0, 4, 0, 0, 0, 0, 0, 0}, data};
        build_begin_threads(&b, 17, threads);
        sbit_value_id in[8];
        in[0] = build_input(&b, "x", SBIT_U8, "N,4");
        in[1] = in[4] = in[6] = build_constant(&b, "s", SBIT_F32, "", &scale);
        in[2] = in[7] = build_constant(&b, "z", SBIT_U8, "", &zero);
        in[3] = build_constant(&b, "w", SBIT_I8, "4,3", w);
        in[5] = build_constant(&b, "wz", SBIT_I8, "", &none);
        build_output(&b, build_node(&b, "QLinearMatMul", "y", in, 8, NULL, 0));
        if (!b.failed &&
            CHECK_OK(sbit_session_create(b.graph, NULL, &session, &b.error), b.error) &&
            CHECK_OK(sbit_session_set_input(session, "x", &x, &b.error), b.error) &&
            CHECK_OK(sbit_session_run(session, &b.error), b.error)) {
            CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], 0);
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}
