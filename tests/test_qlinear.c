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

/* Sums 5, -5.625, -3, 12.125 of [1.5 -2; 0.5 4] in E4M3FN and [2 1/4; -1 3] in E5M2, times
 * 0.5 * 2 / s_y: for s_y = 1/4 20, -22.5, -12, 48.5, which E4M3FN rounds to 20, -22, -12, 48. */
TEST(products_of_float8)
{
    static const uint8_t x[4] = {0x3c, 0xc0, 0x30, 0x48}, w[4] = {0x40, 0x34, 0xbc, 0x42};
    static const struct {
        sbit_dtype dtype;
        int zero;
        float scale;
        uint8_t want[4];
    } cases[] = {
        {SBIT_F8E4M3FN, 0, 0.25f, {0x5a, 0xdb, 0xd4, 0x64}},
        {SBIT_F8E4M3FN, 0, 0.001f, {0x7e, 0xfe, 0xfe, 0x7e}}, /* saturated: 448 */
        {SBIT_U8, 128, 0.25f, {148, 106, 116, 176}},
        {SBIT_I8, 0, 0.25f, {20, 234, 244, 48}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_value_id in[8];
        build_begin(&b, 21);
        in[0] = build_input(&b, "x", SBIT_F8E4M3FN, "2,2");
        add_param(&b, "x", 0.5f, SBIT_F8E4M3FN, 0, &in[1]);
        in[3] = build_constant(&b, "w", SBIT_F8E5M2, "2,2", w);
        add_param(&b, "w", 2.0f, SBIT_F8E5M2, 0, &in[4]);
        add_param(&b, "y", cases[i].scale, cases[i].dtype, cases[i].zero, &in[6]);
        build_output(&b, build_node(&b, "QLinearMatMul", "p", in, 8, NULL, 0));
        check_bytes(&b, SBIT_F8E4M3FN, "2,2", x, cases[i].want, 4);
        build_end(&b);
    }
}

/* Four elements of 6 bits lie in three bytes, low bits first: 1 = 001000, -7.5 = 111111,
 * 1/8 = 000001, 7.5 = 011111 in E2M3 are c8 1f 7c. */
TEST(floats_of_6_bits)
{
    static const float x[5] = {0.1f, 7.6f, -100.0f, 3.3f, 1.0f};
    static const float e2m3[5] = {0.125f, 7.5f, -7.5f, 3.25f, 1.0f};
    static const float e3m2[5] = {0.125f, 8.0f, -28.0f, 3.5f, 1.0f};
    static const uint8_t packed[3] = {0xc8, 0x1f, 0x7c}, zero[1] = {0};
    static const float four[4] = {2.0f, -15.0f, 0.25f, 15.0f}, two = 2.0f, one = 1.0f;
    static const float small[4] = {1.0f, -7.5f, 0.125f, 7.5f};
    build b;
    for (int i = 0; i < 2; i++) {
        const sbit_attr to = build_int("to", i == 0 ? SBIT_F6E2M3 : SBIT_F6E3M2);
        const sbit_attr back = build_int("to", SBIT_F32);
        build_begin(&b, 28);
        sbit_value_id v = build_input(&b, "x", SBIT_F32, "5");
        v = build_node(&b, "Cast", "c", &v, 1, &to, 1);
        v = build_node(&b, "Cast", "d", &v, 1, &back, 1);
        build_output(&b, v);
        check_bytes(&b, SBIT_F32, "5", x, i == 0 ? e2m3 : e3m2, sizeof x);
        build_end(&b);
    }
    sbit_value_id in[3];
    build_begin(&b, 28);
    in[0] = build_input(&b, "x", SBIT_F6E2M3, "4");
    in[1] = build_constant(&b, "s", SBIT_F32, "", &two);
    build_output(&b, build_node(&b, "DequantizeLinear", "d", in, 2, NULL, 0));
    check_bytes(&b, SBIT_F6E2M3, "4", packed, four, sizeof four);
    build_end(&b);
    build_begin(&b, 28);
    in[0] = build_input(&b, "x", SBIT_F32, "4");
    in[1] = build_constant(&b, "s", SBIT_F32, "", &one);
    in[2] = build_constant(&b, "z", SBIT_F6E2M3, "", zero);
    build_output(&b, build_node(&b, "QuantizeLinear", "q", in, 3, NULL, 0));
    check_bytes(&b, SBIT_F32, "4", small, packed, sizeof packed);
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

TEST(a_global_mean_is_over_every_axis) /* 8 numbers of 6 axes: 28 / 8, rounded to even */
{
    static const uint8_t x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, want[1] = {4};
    build b;
    sbit_value_id in[5];
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_U8, "1,1,2,1,2,2");
    add_param(&b, "x", 1.0f, SBIT_U8, 0, &in[1]);
    add_param(&b, "y", 1.0f, SBIT_U8, 0, &in[3]);
    add_ms_node(&b, "QLinearGlobalAveragePool", in, 5, NULL, 0);
    check_bytes(&b, SBIT_U8, "1,1,2,1,2,2", x, want, sizeof want);
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

/* ---- field reports A3.4 to A3.7, A3.10: on every instruction set of this machine */

#define EACH_ISA(isa)                                                                              \
    for (int isa = 1; isa < SBIT_ISA_COUNT; isa++)                                                 \
        if (sbit_isa_available((sbit_isa)isa))

static void begin_on(build *b, int isa)
{
    sbit_ctx_desc desc;
    memset(b, 0, sizeof *b);
    memset(&desc, 0, sizeof desc);
    desc.force_isa = (sbit_isa)isa;
    if (build_do(b, sbit_ctx_create(&desc, &b->ctx, &b->error), "context")) {
        build_do(b, sbit_graph_create(b->ctx, 17, &b->graph, &b->error), "graph");
    }
}

/* A3.4, A3.5: sums of the largest products are exact, where pairs of 16 bits would saturate. */
TEST(largest_sums_are_exact)
{
    static const struct {
        const char *x, *w;
        int64_t terms;
    } cases[] = {{"1,64,1,1", "2,64,1,1", 64},
                 {"1,512,3,3", "2,512,3,3", 4608},
                 {"1,65793,1,1", "2,65793,1,1", 65793}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t n = (size_t)cases[i].terms;
        uint8_t *x = (uint8_t *)malloc(n);
        int8_t *w = (int8_t *)malloc(2 * n);
        memset(x, 255, n);
        memset(w, 127, n);
        memset(w + n, -128, n);
        const int32_t want[2] = {(int32_t)(255 * 127 * cases[i].terms),
                                 (int32_t)(-255 * 128 * cases[i].terms)};
        EACH_ISA(isa)
        {
            build b;
            begin_on(&b, isa);
            const sbit_value_id in[2] = {build_input(&b, "x", SBIT_U8, cases[i].x),
                                         build_constant(&b, "w", SBIT_I8, cases[i].w, w)};
            build_output(&b, build_node(&b, "ConvInteger", "y", in, 2, NULL, 0));
            check_bytes(&b, SBIT_U8, cases[i].x, x, want, sizeof want);
            build_end(&b);
        }
        free(x);
        free(w);
    }
}

/* A3.6, A3.7: y = saturate(round_half_even((float)sum * multiplier) + zero point), also above 1.
 * The sums are biases: x is its zero point. */
TEST(requantization_is_the_float_formula)
{
    enum {
        N = 2048
    };
    static const float multipliers[] = {1e-9f, 0.25f, 0.9999999f, 1.0f, 1.1096f, 300.0f};
    static const uint8_t x[1] = {7};
    static int8_t w[N];
    static float scale[N];
    static int32_t sum[N];
    static uint8_t want[N];
    sbit_rng rng = sbit_rng_seed(36);
    for (int i = 0; i < N; i++) {
        const float wide = expf(40.0f * sbit_rng_uniform(&rng) - 20.0f);
        w[i] = (int8_t)(i % 255 - 127);
        scale[i] = i < 600 ? multipliers[i % 6] : wide;
        const float reach = i % 5 == 0 ? 4e9f : 400.0f / scale[i]; /* far beyond int32, too */
        sum[i] = (int32_t)((sbit_rng_uniform(&rng) - 0.5f) * (reach < 4e9f ? reach : 4e9f));
        const float y = rintf((float)sum[i] * scale[i]) + 100.0f;
        want[i] = (uint8_t)(y < 0.0f ? 0.0f : y > 255.0f ? 255.0f : y);
    }
    EACH_ISA(isa)
    {
        build b;
        sbit_value_id in[9];
        begin_on(&b, isa);
        in[0] = build_input(&b, "x", SBIT_U8, "1,1,1,1");
        add_param(&b, "x", 1.0f, SBIT_U8, 7, &in[1]);
        in[3] = build_constant(&b, "w", SBIT_I8, "2048,1,1,1", w);
        add_param(&b, "w", 1.0f, SBIT_I8, 0, &in[4]);
        in[4] = build_constant(&b, "scales", SBIT_F32, "2048", scale);
        add_param(&b, "y", 1.0f, SBIT_U8, 100, &in[6]);
        in[8] = build_constant(&b, "b", SBIT_I32, "2048", sum);
        build_output(&b, build_node(&b, "QLinearConv", "y", in, 9, NULL, 0));
        check_bytes(&b, SBIT_U8, "1,1,1,1", x, want, sizeof want);
        build_end(&b);
    }
}

TEST(
    a_multiplier_above_one) /* A3.7: sums 0, 2, 10 at 0.052 * 2.39 / 0.112 are 0, 0.224 and 1.232 */
{
    static const uint8_t x[3] = {0, 2, 10}, want[3] = {0, 2, 11};
    static const int8_t w[1] = {1};
    EACH_ISA(isa)
    {
        build b;
        sbit_value_id in[8];
        begin_on(&b, isa);
        in[0] = build_input(&b, "x", SBIT_U8, "1,1,3");
        add_param(&b, "x", 0.052f, SBIT_U8, 0, &in[1]);
        in[3] = build_constant(&b, "w", SBIT_I8, "1,1,1", w);
        add_param(&b, "w", 2.39f, SBIT_I8, 0, &in[4]);
        add_param(&b, "y", 0.112f, SBIT_U8, 0, &in[6]);
        build_output(&b, build_node(&b, "QLinearConv", "y", in, 8, NULL, 0));
        check_bytes(&b, SBIT_U8, "1,1,3", x, want, sizeof want);
        build_end(&b);
    }
}

TEST(padding_is_the_zero_point) /* A3.10: 3 x 3 ones: 4, 6 and 9, in steps of 1/16 */
{
    static const uint8_t want[9] = {64, 96, 64, 96, 144, 96, 64, 96, 64};
    static const int64_t pads[4] = {1, 1, 1, 1};
    uint8_t x[9];
    int8_t w[9];
    const sbit_attr attr = build_ints("pads", pads, 4);
    memset(x, 128, sizeof x); /* 1.0 at scale 1/64, zero point 64 */
    memset(w, 1, sizeof w);
    EACH_ISA(isa)
    {
        build b;
        sbit_value_id in[8];
        begin_on(&b, isa);
        in[0] = build_input(&b, "x", SBIT_U8, "1,1,3,3");
        add_param(&b, "x", 1.0f / 64.0f, SBIT_U8, 64, &in[1]);
        in[3] = build_constant(&b, "w", SBIT_I8, "1,1,3,3", w);
        add_param(&b, "w", 1.0f, SBIT_I8, 0, &in[4]);
        add_param(&b, "y", 1.0f / 16.0f, SBIT_U8, 0, &in[6]);
        build_output(&b, build_node(&b, "QLinearConv", "y", in, 8, &attr, 1));
        check_bytes(&b, SBIT_U8, "1,1,3,3", x, want, sizeof want);
        build_end(&b);
    }
}
