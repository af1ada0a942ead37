/* What a quantized file proves by itself: sums and roundings worked out by hand. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

#include <math.h> /* HUGE_VAL */

/* x [2,3] u8 (zero point 10) times w [3,2] s8, int32 bias, to u8: DQ - Gemm - Relu - Q. */
typedef struct proof {
    build b;
    sbit_proof found[4];
    sbit_rounding roundings[4];
    size_t count, rounding_count;
} proof;

static void proof_found(const sbit_proof *one, void *user)
{
    proof *p = (proof *)user;
    if (p->count < 4) {
        p->found[p->count++] = *one;
    }
}

static void proof_rounding(const sbit_rounding *one, void *user)
{
    proof *p = (proof *)user;
    if (p->rounding_count < 4) {
        p->roundings[p->rounding_count++] = *one;
    }
}

static sbit_value_id proof_dq(build *b, const char *name, sbit_value_id q, float scale,
                              sbit_dtype dtype, const void *zero)
{
    char text[64];
    sbit_value_id inputs[3];
    inputs[0] = q;
    snprintf(text, sizeof text, "%s.s", name);
    inputs[1] = build_constant(b, text, SBIT_F32, "", &scale);
    snprintf(text, sizeof text, "%s.z", name);
    inputs[2] = build_constant(b, text, dtype, "", zero);
    return build_node(b, "DequantizeLinear", name, inputs, 3, NULL, 0);
}

static sbit_value_id proof_q(build *b, const char *name, sbit_value_id x, float scale)
{
    const uint8_t zero = 0;
    sbit_value_id inputs[3];
    inputs[0] = x;
    inputs[1] = build_constant(b, "y.s", SBIT_F32, "", &scale);
    inputs[2] = build_constant(b, "y.z", SBIT_U8, "", &zero);
    return build_node(b, "QuantizeLinear", name, inputs, 3, NULL, 0);
}

static const int8_t proof_w[6] = {3, -100, -7, 50, 127, -128};

static void proof_gemm(proof *p, float x_scale)
{
    const uint8_t x_zero = 10;
    const int8_t w_zero = 0;
    const int32_t bias_zero = 0, bias[2] = {1000, -2000};
    sbit_value_id in[3];
    build *b = &p->b;
    memset(p, 0, sizeof *p);
    build_begin(b, 21);
    in[0] = proof_dq(b, "x.dq", build_input(b, "x", SBIT_U8, "2,3"), x_scale, SBIT_U8, &x_zero);
    in[1] = proof_dq(b, "w.dq", build_constant(b, "w_quantized", SBIT_I8, "3,2", proof_w), 0.01f,
                     SBIT_I8, &w_zero);
    in[2] = proof_dq(b, "b.dq", build_constant(b, "b", SBIT_I32, "2", bias), 0.005f, SBIT_I32,
                     &bias_zero);
    const sbit_value_id y = build_node(b, "Gemm", "gemm", in, 3, NULL, 0);
    build_output(b, proof_q(b, "y.q", build_node(b, "Relu", "relu", &y, 1, NULL, 0), 0.25f));
    build_do(b, sbit_infer(b->graph, &b->error), "infer");
}

TEST(sums_of_a_gemm)
{
    proof p;
    proof_gemm(&p, 0.5f);
    CHECK_EQ_I64(sbit_graph_prove(p.b.graph, proof_found, &p), 1);
    /* |x - 10| <= 245; columns: 3 + 7 + 127 = 137 and 100 + 50 + 128 = 278 */
    CHECK_NEAR(p.found[0].sum, 245.0 * 278.0 + 2000.0, 0.0);
    CHECK(p.found[0].fits);
    CHECK_NEAR(p.found[0].deviation, 256.0 * 4.0 / 16777216.0, 1e-9);
    build_end(&p.b);
}

/* s_x s_w below 2^-126: the multiplier has lost its precision, nothing is promised. */
TEST(scales_whose_product_is_not_normal_prove_nothing)
{
    proof p;
    proof_gemm(&p, 1e-37f);
    sbit_graph_prove(p.b.graph, proof_found, &p);
    CHECK(p.found[0].deviation >= HUGE_VAL);
    build_end(&p.b);
}

/* 16 bits: one term of 65535 * 32767 fits below 2^31, two do not. */
TEST(sums_that_can_wrap_are_found)
{
    const int16_t w[2] = {32767, 2}, w_zero = 0;
    const uint16_t x_zero = 0;
    static const char *const x_dims[] = {"4,1", "4,2"}, *const w_dims[] = {"1,1", "2,1"};
    for (int i = 0; i < 2; i++) {
        proof p;
        sbit_value_id in[2];
        memset(&p, 0, sizeof p);
        build_begin(&p.b, 21);
        in[0] = proof_dq(&p.b, "x.dq", build_input(&p.b, "x", SBIT_U16, x_dims[i]), 1.0f, SBIT_U16,
                         &x_zero);
        in[1] = proof_dq(&p.b, "w.dq", build_constant(&p.b, "w", SBIT_I16, w_dims[i], w), 1.0f,
                         SBIT_I16, &w_zero);
        build_output(&p.b, build_node(&p.b, "MatMul", "m", in, 2, NULL, 0));
        build_do(&p.b, sbit_infer(p.b.graph, &p.b.error), "infer");
        CHECK_EQ_I64(sbit_graph_prove(p.b.graph, proof_found, &p), 1);
        CHECK_NEAR(p.found[0].sum, 65535.0 * (i == 0 ? 32767.0 : 32769.0), 0.0);
        CHECK_EQ_I64(p.found[0].fits, i == 0);
        CHECK_NEAR(p.found[0].deviation, -1.0, 0.0); /* float output */
        build_end(&p.b);
    }
}

/* Two activations: as many terms as the shape says, or nobody knows. */
TEST(products_of_two_activations)
{
    const uint8_t zero = 128;
    static const char *const dims[] = {"2,5", "2,K"};
    static const char *const others[] = {"5,3", "K,3"};
    for (int i = 0; i < 2; i++) {
        proof p;
        sbit_value_id in[2];
        memset(&p, 0, sizeof p);
        build_begin(&p.b, 21);
        in[0] = proof_dq(&p.b, "a.dq", build_input(&p.b, "a", SBIT_U8, dims[i]), 1.0f, SBIT_U8,
                         &zero);
        in[1] = proof_dq(&p.b, "b.dq", build_input(&p.b, "b", SBIT_U8, others[i]), 1.0f, SBIT_U8,
                         &zero);
        build_output(&p.b, build_node(&p.b, "MatMul", "m", in, 2, NULL, 0));
        build_do(&p.b, sbit_infer(p.b.graph, &p.b.error), "infer");
        sbit_graph_prove(p.b.graph, proof_found, &p);
        CHECK(i == 0 ? fabs(p.found[0].sum - 5.0 * 128.0 * 128.0) < 0.5
                     : p.found[0].sum >= HUGE_VAL && !p.found[0].fits);
        build_end(&p.b);
    }
}

/* A convolution in groups, per channel, as the integer operator: only the channel's own weights
 * count. */
TEST(sums_of_an_integer_operator)
{
    proof p;
    const int8_t w[8] = {1, 2, 3, 4, -50, 60, -70, 80}; /* [4,1,1,2] */
    const float x_scale = 0.5f, w_scale[4] = {0.1f, 0.2f, 0.3f, 0.4f}, y_scale = 2.0f;
    const int8_t x_zero = -28, w_zero[4] = {0, 0, 0, 0}, y_zero = 0;
    sbit_value_id in[8];
    const sbit_attr group = build_int("group", 4);
    memset(&p, 0, sizeof p);
    build_begin(&p.b, 21);
    in[0] = build_input(&p.b, "x", SBIT_I8, "1,4,3,3");
    in[1] = build_constant(&p.b, "xs", SBIT_F32, "", &x_scale);
    in[2] = build_constant(&p.b, "xz", SBIT_I8, "", &x_zero);
    in[3] = build_constant(&p.b, "c.weight_quantized", SBIT_I8, "4,1,1,2", w);
    in[4] = build_constant(&p.b, "ws", SBIT_F32, "4", w_scale);
    in[5] = build_constant(&p.b, "wz", SBIT_I8, "4", w_zero);
    in[6] = build_constant(&p.b, "ys", SBIT_F32, "", &y_scale);
    in[7] = build_constant(&p.b, "yz", SBIT_I8, "", &y_zero);
    build_output(&p.b, build_node(&p.b, "QLinearConv", "c", in, 8, &group, 1));
    build_do(&p.b, sbit_infer(p.b.graph, &p.b.error), "infer");
    CHECK_EQ_I64(sbit_graph_prove(p.b.graph, proof_found, &p), 1);
    CHECK_NEAR(p.found[0].sum, 155.0 * 150.0, 0.0); /* 127 + 28; 70 + 80 */
    CHECK_NEAR(p.found[0].deviation, 256.0 * 4.0 / 16777216.0, 1e-9);
    build_end(&p.b);
}

/* Nearest, the other side, moved further, saturated: one of each. */
TEST(roundings_are_told_apart)
{
    proof p;
    build plain;
    /* w / 0.01: 2.6 -> 3 nearest; -99.2 -> -100 other side; -10 -> -7 three steps; 50.5 -> 50 even
     * and nearest; 300 -> 127 saturated; -127.9 -> -128 */
    const float w[6] = {0.026f, -0.992f, -0.1f, 0.505f, 3.0f, -1.279f};
    proof_gemm(&p, 0.5f);
    build_begin(&plain, 21);
    sbit_value_id in[2];
    in[0] = build_input(&plain, "x", SBIT_F32, "2,3");
    in[1] = build_constant(&plain, "w", SBIT_F32, "3,2", w);
    build_output(&plain, build_node(&plain, "Gemm", "other_name", in, 2, NULL, 0));
    CHECK_EQ_I64(sbit_graph_roundings(plain.graph, p.b.graph, proof_rounding, &p), 0);
    CHECK_EQ_I64((int64_t)p.rounding_count, 1);
    CHECK_STR(p.roundings[0].layer, "gemm");
    CHECK_EQ_I64(p.roundings[0].count, 6);
    CHECK_EQ_I64(p.roundings[0].nearest, 4);
    CHECK_EQ_I64(p.roundings[0].other, 1);
    CHECK_NEAR(p.roundings[0].worst, 3.0, 1e-4);
    build_end(&plain);
    build_begin(&plain, 21); /* a graph without such a layer */
    build_output(&plain, build_node(&plain, "Relu", "r", (sbit_value_id[]){build_input(
                             &plain, "x", SBIT_F32, "2,3")}, 1, NULL, 0));
    CHECK_EQ_I64(sbit_graph_roundings(plain.graph, p.b.graph, proof_rounding, &p), 1);
    build_end(&plain);
    build_end(&p.b);
}
