/* split */
/* test_lowering_int.c: Q/DQ graphs on integers: which operators are found, the bits that they give
 * against every operator run by itself, the same bits on every instruction set, layout changes at
 * the borders only, what keeps a pattern from being used. */
#include "../src/exec/exec_private.h"
#include "test.h"

#include "build_graph.h"

#ifndef _WIN32
#include <pthread.h> /* sessions in threads of the test */
#endif

/* ---- graphs */

static sbit_value_id scalar(build *b, const char *name, sbit_dtype dtype, float value)
{
    const int8_t byte = (int8_t)(int32_t)value;
    const uint8_t unsigned_byte = (uint8_t)(int32_t)value;
    return build_constant(b, name, dtype, "",
                          dtype == SBIT_F32  ? (const void *)&value
                          : dtype == SBIT_I8 ? (const void *)&byte
                                             : (const void *)&unsigned_byte);
}

static sbit_value_id quantize(build *b, sbit_value_id x, float scale, sbit_dtype dtype, int zero)
{
    const sbit_value_id in[3] = {x, scalar(b, "s", SBIT_F32, scale),
                                 scalar(b, "z", dtype, (float)zero)};
    return build_node(b, "QuantizeLinear", "q", in, 3, NULL, 0);
}

static sbit_value_id dequantize(build *b, sbit_value_id q, float scale, sbit_dtype dtype, int zero)
{
    const sbit_value_id in[3] = {q, scalar(b, "s", SBIT_F32, scale),
                                 scalar(b, "z", dtype, (float)zero)};
    return build_node(b, "DequantizeLinear", "dq", in, 3, NULL, 0);
}

/* Q and DQ of the same scale; int8 has its zero point 128 lower. */
static sbit_value_id pair(build *b, sbit_value_id x, float scale, sbit_dtype dtype, int zero)
{
    zero -= dtype == SBIT_I8 ? 128 : 0;
    return dequantize(b, quantize(b, x, scale, dtype, zero), scale, dtype, zero);
}

/* Integers from -100 to 100, dequantized with a scale for each index of `axis`. */
static sbit_value_id weight(build *b, const char *dims, int64_t axis, float scale)
{
    static float scales[256];
    sbit_tensor shape = build_tensor(SBIT_I8, dims, NULL);
    const int64_t count = sbit_tensor_count(&shape), channels = shape.dims[axis];
    int8_t *data = (int8_t *)malloc((size_t)count);
    char text[16];
    sbit_rng rng = sbit_rng_seed((uint64_t)count);
    for (int64_t i = 0; i < count; i++) {
        data[i] = (int8_t)((int)sbit_rng_below(&rng, 201) - 100);
    }
    for (int64_t c = 0; c < channels; c++) {
        scales[c] = scale * (1.0f + (float)(c % 7) / 16.0f);
    }
    snprintf(text, sizeof text, "%d", (int)channels);
    const sbit_value_id in[2] = {build_constant(b, "w", SBIT_I8, dims, data),
                                 build_constant(b, "ws", SBIT_F32, text, scales)};
    const sbit_attr attr = build_int("axis", axis);
    free(data);
    return build_node(b, "DequantizeLinear", "wdq", in, 2, &attr, 1);
}

/* int32 with the scales of weight() times the input's */
static sbit_value_id bias(build *b, int64_t channels, float scale)
{
    static float scales[256];
    static int32_t data[256];
    char text[16];
    for (int64_t c = 0; c < channels; c++) {
        scales[c] = scale;
        data[c] = (int32_t)(c * 97 % 2000 - 900);
    }
    snprintf(text, sizeof text, "%d", (int)channels);
    const sbit_value_id in[2] = {build_constant(b, "b", SBIT_I32, text, data),
                                 build_constant(b, "bs", SBIT_F32, text, scales)};
    const sbit_attr attr = build_int("axis", 0);
    return build_node(b, "DequantizeLinear", "bdq", in, 2, &attr, 1);
}

static sbit_value_id conv(build *b, sbit_value_id x, const char *dims, int64_t group, bool biased)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    sbit_value_id in[3];
    sbit_attr attrs[2];
    sbit_tensor shape = build_tensor(SBIT_I8, dims, NULL);
    in[0] = x;
    in[1] = weight(b, dims, 0, 0.004f);
    in[2].idx = 0;
    if (biased) {
        in[2] = bias(b, shape.dims[0], 0.001f); /* not the sums' scale: becomes a float bias */
    }
    attrs[0] = build_int("group", group);
    attrs[1] = build_ints("pads", pads, 4);
    return build_node(b, "Conv", "conv", in, biased ? 3 : 2, attrs, shape.dims[2] == 3 ? 2 : 1);
}

/* ---- running */

typedef struct result {
    uint8_t *bytes;
    size_t size;
} result;

static int64_t symbol_size = 2;

/* The graph's first output for inputs of small numbers, on an instruction set. */
static result run(build *b, const sbit_session_desc *desc)
{
    result out = {NULL, 0};
    sbit_session *session = NULL;
    if (b->failed ||
        !build_do(b, sbit_session_create(b->graph, desc, &session, &b->error), "session")) {
        return out;
    }
    float *inputs[4] = {NULL};
    for (size_t i = 0; i < sbit_session_input_count(session) && !b->failed; i++) {
        const sbit_value_info *info = sbit_session_input_info(session, i);
        sbit_tensor t;
        memset(&t, 0, sizeof t);
        t.dtype = info->type.dtype;
        t.rank = info->type.rank;
        for (int32_t d = 0; d < t.rank; d++) {
            t.dims[d] = info->type.dims[d].symbol == 0 ? info->type.dims[d].value : symbol_size;
        }
        const int64_t count = sbit_tensor_count(&t);
        float *data = inputs[i] = (float *)malloc((size_t)count * sizeof *data);
        sbit_rng rng = sbit_rng_seed(i + 5);
        for (int64_t k = 0; k < count; k++) {
            data[k] = sbit_rng_normal(&rng);
        }
        t.data = data;
        build_do(b, sbit_session_set_input_at(session, i, &t, &b->error), "input");
    }
    if (!b->failed && build_do(b, sbit_session_run(session, &b->error), "run")) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        out.size = sbit_tensor_bytes(y);
        out.bytes = (uint8_t *)malloc(out.size + 1);
        memcpy(out.bytes, y->data, out.size);
    }
    sbit_session_destroy(session);
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        free(inputs[i]);
    }
    return out;
}

/* How many nodes of the program are this operator. */
static int count_nodes(build *b, const sbit_session_desc *desc, const char *op_type)
{
    sbit_session *session = NULL;
    int count = 0;
    if (!b->failed &&
        build_do(b, sbit_session_create(b->graph, desc, &session, &b->error), "session")) {
        const sbit_graph *graph = session->program->graph;
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;
             id = sbit_graph_next(graph, id)) {
            count += strcmp(sbit_graph_node(graph, id)->op_type, op_type) == 0;
        }
    }
    sbit_session_destroy(session);
    return count;
}

/* As it is lowered, and one by one. */
static void run_both(build *b, result *lowered, result *one_by_one)
{
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.disable_fusion = true;
    *lowered = run(b, NULL);
    *one_by_one = run(b, &desc);
    CHECK(lowered->size > 0);
    CHECK_EQ_I64(lowered->size, one_by_one->size);
}

/* Elements that differ between integers and one by one; none by more than one step of 8 bits. */
static size_t differences(build *b)
{
    result x, y;
    size_t count = 0;
    run_both(b, &x, &y);
    for (size_t i = 0; i < x.size && i < y.size; i++) {
        const int step = (int)(uint8_t)(x.bytes[i] - y.bytes[i] + 1);
        count += step != 1;
        CHECK_MSG(step <= 2, "byte %zu is %u, one by one %u", i, x.bytes[i], y.bytes[i]);
    }
    free(x.bytes);
    free(y.bytes);
    return count;
}

/* The bytes of the program are the same on every instruction set. */
static void check_sets(build *b)
{
    const result want = run(b, NULL);
    char path[512];
    snprintf(path, sizeof path, "%s/lowering.onnx", SBIT_TEST_TMP);
    build_do(b, sbit_graph_save(b->graph, path, NULL, &b->error), "save");
    for (int isa = 1; isa < SBIT_ISA_COUNT && !b->failed; isa++) {
        build other;
        sbit_ctx_desc desc;
        if (!sbit_isa_available((sbit_isa)isa)) {
            continue;
        }
        memset(&other, 0, sizeof other);
        memset(&desc, 0, sizeof desc);
        desc.force_isa = (sbit_isa)isa;
        desc.threads = 2;
        build_do(&other, sbit_ctx_create(&desc, &other.ctx, &other.error), "context");
        build_do(&other, sbit_graph_load(other.ctx, path, &other.graph, &other.error), "load");
        const result got = run(&other, NULL);
        CHECK_MSG(got.size == want.size && memcmp(got.bytes, want.bytes, got.size) == 0,
                  "%s gives other bits", sbit_isa_name((sbit_isa)isa));
        free(got.bytes);
        build_end(&other);
    }
    free(want.bytes);
}

/* Ends the graph with a Q of x and checks everything: the operator is there, at most `most`
 * elements differ by one step. */
static void check_graph(build *b, sbit_value_id x, float scale, sbit_dtype dtype, int zero,
                        const char *op_type, size_t most)
{
    build_output(b, quantize(b, x, scale, dtype, zero - (dtype == SBIT_I8 ? 128 : 0)));
    CHECK_MSG(count_nodes(b, NULL, op_type) > 0, "there is no %s", op_type);
    CHECK_EQ_I64(count_nodes(b, NULL, "DequantizeLinear"), 0);
    const size_t count = differences(b);
    CHECK_MSG(count <= most, "%s: %zu elements differ", op_type, count);
    check_sets(b);
}

static sbit_status look(const sbit_graph *graph, sbit_value_id id, const sbit_value *value,
                        void *user, sbit_error *error)
{
    (void)graph;
    (void)id;
    (void)value;
    (void)error;
    ++*(int *)user;
    return SBIT_OK;
}

#define EACH_DTYPE(dtype)                                                                          \
    for (sbit_dtype dtype = SBIT_U8; dtype != SBIT_UNDEFINED;                                      \
         dtype = dtype == SBIT_U8 ? SBIT_I8 : SBIT_UNDEFINED)

TEST(convolutions)
{
    static const struct {
        const char *input, *dims;
        int64_t group;
        bool biased, relu;
    } cases[] = {
        {"2,3,9,9", "20,3,3,3", 1, true, true},     {"1,16,7,7", "24,16,1,1", 1, false, false},
        {"1,12,7,7", "8,3,3,3", 4, true, false},    {"2,24,6,6", "24,1,3,3", 24, true, true},
        {"1,70,5,5", "70,1,3,3", 70, false, false}, {"1,7,5,5", "1,7,3,3", 1, true, false},
    };
    EACH_DTYPE(dtype)
    {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            build b;
            build_begin(&b, 17);
            sbit_value_id x = build_input(&b, "x", SBIT_F32, cases[i].input);
            x = conv(&b, pair(&b, x, 0.02f, dtype, 120), cases[i].dims, cases[i].group,
                     cases[i].biased);
            if (cases[i].relu) {
                x = build_unary(&b, "Relu", "relu", x);
            }
            check_graph(&b, x, 0.03f, dtype, 100, "QConv", 2);
            CHECK_EQ_I64(count_nodes(&b, NULL, "Relu"), 0);
            build_end(&b);
        }
    }
}

TEST(an_integer_bias_of_the_right_scale_is_added_to_the_sum)
{
    static const int32_t huge[2] = {INT32_MAX, -7}; /* would overflow: added as float */
    for (int i = 0; i < 2; i++) {
        build b;
        build_begin(&b, 17);
        sbit_value_id in[3], bias_in[2], w_in[2];
        const float ws[1] = {0.004f};
        static const int8_t w[6] = {1, -2, 3, 4, -5, 6};
        const float s = 0.02f;
        const float product = s * ws[0];
        static const int32_t small[2] = {100, -200};
        in[0] = pair(&b, build_input(&b, "x", SBIT_F32, "4,3"), s, SBIT_U8, 128);
        w_in[0] = build_constant(&b, "w", SBIT_I8, "3,2", w);
        w_in[1] = build_constant(&b, "ws", SBIT_F32, "", ws);
        in[1] = build_node(&b, "DequantizeLinear", "wdq", w_in, 2, NULL, 0);
        bias_in[0] = build_constant(&b, "b", SBIT_I32, "2", i == 0 ? small : huge);
        bias_in[1] = build_constant(&b, "bs", SBIT_F32, "", &product);
        in[2] = build_node(&b, "DequantizeLinear", "bdq", bias_in, 2, NULL, 0);
        const sbit_value_id y = build_node(&b, "Gemm", "gemm", in, 3, NULL, 0);
        check_graph(&b, y, i == 0 ? 0.001f : 1000.0f, SBIT_U8, 60, "QGemm", 0);
        build_end(&b);
    }
}

TEST(products)
{
    EACH_DTYPE(dtype)
    {
        build b;
        build_begin(&b, 17);
        sbit_value_id in[3];
        in[0] = pair(&b, build_input(&b, "x", SBIT_F32, "5,40"), 0.02f, dtype, 130);
        in[1] = weight(&b, "33,40", 0, 0.004f);
        in[2] = bias(&b, 33, 0.001f);
        const sbit_attr trans = build_int("transB", 1);
        sbit_value_id y = build_node(&b, "Gemm", "gemm", in, 3, &trans, 1);
        check_graph(&b, y, 0.03f, dtype, 100, "QGemm", 1);
        build_end(&b);

        build_begin(&b, 17); /* a bias behind MatMul */
        in[0] = pair(&b, build_input(&b, "x", SBIT_F32, "2,7,40"), 0.02f, dtype, 130);
        in[1] = weight(&b, "40,33", 1, 0.004f);
        y = build_node(&b, "MatMul", "matmul", in, 2, NULL, 0);
        y = build_binary(&b, "Add", "add", y, build_weights(&b, "bias", "33", 9));
        check_graph(&b, build_unary(&b, "Relu", "relu", y), 0.03f, dtype, 100, "QMatMul", 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, "Add"), 0);
        build_end(&b);

        build_begin(&b, 17); /* two activations, a number behind */
        in[0] = pair(&b, build_input(&b, "x", SBIT_F32, "2,3,9,16"), 0.02f, dtype, 130);
        in[1] = pair(&b, build_input(&b, "k", SBIT_F32, "2,3,16,9"), 0.03f, dtype, 90);
        y = build_node(&b, "MatMul", "matmul", in, 2, NULL, 0);
        y = build_binary(&b, "Mul", "mul", y, scalar(&b, "n", SBIT_F32, 0.25f));
        check_graph(&b, y, 0.03f, dtype, 100, "QMatMul", 2);
        CHECK_EQ_I64(count_nodes(&b, NULL, "Mul"), 0);
        build_end(&b);
    }
}

/* W4A8: int4 and uint4 weights with scales and zero points of their channels. */
TEST(weights_of_four_bits_are_unpacked)
{
    static const sbit_dtype types[] = {SBIT_I4, SBIT_U4};
    static const char *const dims[] = {"11,5,3,3", "7,15", "15,7"};
    static const char *const ops[] = {"Conv", "Gemm", "MatMul"};
    static const char *const names[] = {"QConv", "QGemm", "QMatMul"};
    static const int64_t axes[] = {0, 0, 1};
    for (size_t i = 0; i < 6; i++) {
        const size_t op = i / 2;
        const sbit_dtype dtype = types[i % 2];
        uint8_t data[248], zeros[6];
        float scales[11];
        build b;
        sbit_value_id in[2], w[3];
        sbit_attr attrs[2];
        build_begin(&b, 21);
        for (size_t k = 0; k < sizeof data; k++) {
            data[k] = (uint8_t)(k * 167 + 19 * i);
        }
        for (size_t k = 0; k < 11; k++) {
            scales[k] = 0.01f + 0.001f * (float)k;
            zeros[k / 2] = (uint8_t)(0x93 + 7 * k);
        }
        w[0] = build_constant(&b, "w", dtype, dims[op], data);
        w[1] = build_constant(&b, "ws", SBIT_F32, op == 0 ? "11" : "7", scales);
        w[2] = build_constant(&b, "wz", dtype, op == 0 ? "11" : "7", zeros);
        attrs[0] = build_int("axis", axes[op]);
        in[0] = build_input(&b, "x", SBIT_F32, op == 0 ? "1,5,6,7" : "4,15");
        in[0] = pair(&b, in[0], 0.02f, SBIT_U8, 120);
        in[1] = build_node(&b, "DequantizeLinear", "wdq", w, 3, attrs, 1);
        attrs[1] = build_int("transB", 1);
        const sbit_value_id y =
            build_node(&b, ops[op], "product", in, 2, attrs + 1, op == 1 ? 1 : 0);
        check_graph(&b, y, 0.03f, SBIT_U8, 100, names[op], 2);
        build_end(&b);
    }
}

/* Q of 16 bits: the zero point as the type has it. */
static sbit_value_id quantize16(build *b, const char *op_type, sbit_value_id x, float scale,
                                sbit_dtype dtype, int zero)
{
    const uint16_t bits = (uint16_t)zero;
    const sbit_value_id in[3] = {x, scalar(b, "s", SBIT_F32, scale),
                                 build_constant(b, "z", dtype, "", &bits)};
    return build_node(b, op_type, "q", in, 3, NULL, 0);
}

/* One step of 16 bits, or of 8, or a float's rounding; in at most `most` elements. */
static void check_wide(build *b, sbit_dtype dtype, size_t most)
{
    result x, y;
    size_t count = 0;
    run_both(b, &x, &y);
    for (size_t i = 0; i < x.size / 4 && dtype == SBIT_F32; i++) {
        float u = 0.0f, v = 0.0f;
        memcpy(&u, x.bytes + 4 * i, 4);
        memcpy(&v, y.bytes + 4 * i, 4);
        CHECK(fabsf(u - v) <= 1e-5f * (1.0f + fabsf(v)));
    }
    for (size_t i = 0; i < x.size / 2 && (dtype == SBIT_U16 || dtype == SBIT_I16); i++) {
        uint16_t u = 0, v = 0;
        memcpy(&u, x.bytes + 2 * i, 2);
        memcpy(&v, y.bytes + 2 * i, 2);
        const int step = (int16_t)(uint16_t)(u - v);
        count += step != 0;
        CHECK_MSG(step >= -1 && step <= 1, "element %zu is %u, one by one %u", i, u, v);
    }
    for (size_t i = 0; i < x.size && dtype == SBIT_U8; i++) {
        count += x.bytes[i] != y.bytes[i];
    }
    CHECK_MSG(count <= most, "%zu elements differ", count);
    free(x.bytes);
    free(y.bytes);
    check_sets(b);
}

/* 8x16: activations of 16 bits run as products of their bytes. */
TEST(activations_of_16_bits)
{
    static const struct {
        sbit_dtype in, out; /* F32: no quantizer behind */
        int in_zero, out_zero;
        const char *input, *dims, *op;
        int64_t group;
        bool relu;
    } cases[] = {
        {SBIT_U16, SBIT_U16, 30001, 20007, "1,6,7,8", "10,6,3,3", "Conv", 1, true},
        {SBIT_I16, SBIT_I16, 0, 0, "2,8,5,5", "12,4,3,3", "Conv", 2, false},
        {SBIT_I16, SBIT_U8, -300, 128, "2,8,5,5", "8,1,3,3", "Conv", 8, true},
        {SBIT_U16, SBIT_F32, 32768, 0, "4,40", "33,40", "Gemm", 1, false},
        {SBIT_I16, SBIT_I16, 77, -1234, "4,40", "33,40", "Gemm", 1, true},
        {SBIT_U16, SBIT_U16, 65535, 0, "2,3,40", "40,33", "MatMul", 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_value_id in[3], y;
        const bool wide = cases[i].out != SBIT_U8;
        const char *op = cases[i].op;
        const sbit_attr trans = build_int("transB", 1);
        build_begin(&b, 21);
        in[0] = build_input(&b, "x", SBIT_F32, cases[i].input);
        in[0] = quantize16(&b, "QuantizeLinear", in[0], 1e-4f, cases[i].in, cases[i].in_zero);
        in[0] = quantize16(&b, "DequantizeLinear", in[0], 1e-4f, cases[i].in, cases[i].in_zero);
        if (strcmp(op, "Conv") == 0) {
            y = conv(&b, in[0], cases[i].dims, cases[i].group, i != 1);
        } else if (strcmp(op, "Gemm") == 0) {
            in[1] = weight(&b, cases[i].dims, 0, 0.004f);
            in[2] = bias(&b, 33, 0.001f);
            y = build_node(&b, op, "product", in, 3, &trans, 1);
        } else {
            in[1] = weight(&b, cases[i].dims, 1, 0.004f);
            y = build_node(&b, op, "product", in, 2, NULL, 0);
            y = build_binary(&b, "Add", "add", y, build_weights(&b, "bias", "33", 9));
        }
        y = cases[i].relu ? build_unary(&b, "Relu", "relu", y) : y;
        if (cases[i].out != SBIT_F32) {
            y = wide ? quantize16(&b, "QuantizeLinear", y, 2e-4f, cases[i].out, cases[i].out_zero)
                     : quantize(&b, y, 0.03f, SBIT_U8, cases[i].out_zero);
        }
        build_output(&b, y);
        CHECK_EQ_I64(count_nodes(&b, NULL, "QJoin"), 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, op), 0);
        CHECK_EQ_I64(count_nodes(&b, NULL, "Relu"), 0);
        CHECK_EQ_I64(count_nodes(&b, NULL, "DequantizeLinear"), 0);
        check_wide(&b, cases[i].out, wide ? 30 : 1);
        build_end(&b);
    }
}

TEST(elementwise)
{
    static const char *const ops[] = {"Add", "Sub", "Mul"};
    static const char *const names[] = {"QAdd", "QSub", "QMul"};
    EACH_DTYPE(dtype)
    {
        for (int i = 0; i < 6; i++) {
            build b;
            build_begin(&b, 17);
            const sbit_value_id x =
                pair(&b, build_input(&b, "x", SBIT_F32, "2,19,5,5"), 0.02f, dtype, 128);
            const sbit_value_id z =
                pair(&b, build_input(&b, "z", SBIT_F32, i < 3 ? "2,19,5,5" : "2,19,1,1"), 0.03f,
                     dtype, 90);
            sbit_value_id y = build_binary(&b, ops[i % 3], "y", x, z);
            y = i < 3 ? build_unary(&b, "Relu", "r", y) : y;
            check_graph(&b, y, 0.04f, dtype, 70, names[i % 3], 0);
            build_end(&b);
        }
    }
}

/* The bytes with all steps in one, and where somebody looks at what the product made. */
static void check_added(build *b, sbit_value_id product, const char *op_type)
{
    const sbit_value_id inner = product;
    sbit_session_desc desc;
    int looks = 0;
    memset(&desc, 0, sizeof desc);
    desc.tap_fn = look;
    desc.tap_user = &looks;
    desc.taps = &inner;
    desc.tap_count = 1;
    CHECK_EQ_I64(count_nodes(b, NULL, "QAdd"), 0);
    CHECK_EQ_I64(count_nodes(b, &desc, "QAdd"), 1);
    const result one = run(b, NULL), steps = run(b, &desc);
    CHECK_EQ_I64(looks, 1);
    CHECK_MSG(one.size > 0 && one.size == steps.size &&
                  memcmp(one.bytes, steps.bytes, one.size) == 0,
              "%s: other bits in one step", op_type);
    free(one.bytes);
    free(steps.bytes);
}

TEST(products_add_another_tensor)
{
    static const struct {
        const char *input, *dims, *other;
        int64_t group;
        bool relu, first;
    } cases[] = {
        {"2,20,5,5", "20,20,3,3", "2,20,5,5", 1, true, true},
        {"1,70,5,5", "70,1,3,3", "1,70,5,5", 70, false, false},
        {"1,12,7,7", "150,12,1,1", "1,150,7,7", 1, true, false},
        {"N,12,7,7", "8,3,3,3", "N,8,7,7", 4, false, true},
        {"1,200,4,4", "170,200,1,1", "1,170,4,4", 1, true, false}, /* threads share its channels */
        {"2,5,20", "20,37", "2,5,37", 0, false, true}, /* MatMul */
    };
    EACH_DTYPE(dtype)
    {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            build b;
            build_begin(&b, 17);
            sbit_value_id in[2];
            sbit_value_id x = pair(&b, build_input(&b, "x", SBIT_F32, cases[i].input), 0.02f, dtype, 120);
            const sbit_value_id z =
                pair(&b, build_input(&b, "z", SBIT_F32, cases[i].other), 0.03f, dtype, 90);
            if (cases[i].group > 0) {
                x = conv(&b, x, cases[i].dims, cases[i].group, true);
            } else {
                in[0] = x;
                in[1] = weight(&b, cases[i].dims, 1, 0.004f);
                x = build_node(&b, "MatMul", "matmul", in, 2, NULL, 0);
            }
            const sbit_value_id product =
                quantize(&b, x, 0.035f, dtype, 110 - (dtype == SBIT_I8 ? 128 : 0));
            x = dequantize(&b, product, 0.035f, dtype, 110 - (dtype == SBIT_I8 ? 128 : 0));
            x = cases[i].first ? build_binary(&b, "Add", "y", x, z) : build_binary(&b, "Add", "y", z, x);
            x = cases[i].relu ? build_unary(&b, "Relu", "r", x) : x;
            check_graph(&b, x, 0.04f, dtype, 70, cases[i].group > 0 ? "QConv" : "QMatMul", 4);
            check_added(&b, product, cases[i].dims);
            build_end(&b);
        }
    }
}

/* Two products whose results meet: the later one adds. One that is spread out, or read with
 * another scale, or used twice: none does. */
TEST(products_that_do_not_add)
{
    for (int i = 0; i < 4; i++) {
        build b;
        build_begin(&b, 17);
        const sbit_value_id x = pair(&b, build_input(&b, "x", SBIT_F32, "1,8,5,5"), 0.02f, SBIT_U8, 120);
        const sbit_value_id z =
            pair(&b, build_input(&b, "z", SBIT_F32, i == 1 ? "1,8,1,1" : "1,8,5,5"), 0.03f, SBIT_U8, 90);
        const sbit_value_id q = quantize(&b, conv(&b, x, "8,8,3,3", 1, true), 0.03f, SBIT_U8, 100);
        const sbit_value_id y = dequantize(&b, q, i == 2 ? 0.04f : 0.03f, SBIT_U8, 100);
        const sbit_value_id other =
            i == 0 ? pair(&b, conv(&b, z, "8,8,1,1", 1, false), 0.02f, SBIT_U8, 80) : z;
        build_output(&b, quantize(&b, build_binary(&b, "Add", "y", y, other), 0.05f, SBIT_U8, 99));
        if (i == 3) {
            build_output(&b, q);
        }
        CHECK_EQ_I64(count_nodes(&b, NULL, "QAdd"), i == 0 ? 0 : 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, "QConv"), i == 0 ? 2 : 1);
        CHECK(differences(&b) <= 4);
        build_end(&b);
    }
}

TEST(single_operators)
{
    static const struct {
        const char *op_type, *name;
    } cases[] = {
        {"HardSwish", "QTable"},
        {"Sigmoid", "QTable"},
        {"HardSigmoid", "QTable"},
        {"Tanh", "QTable"},
        {"LeakyRelu", "QTable"},
        {"Relu", "QTable"},
        {"GlobalAveragePool", "QGlobalAveragePool"},
    };
    EACH_DTYPE(dtype)
    {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            build b;
            build_begin(&b, 17);
            const sbit_value_id x =
                pair(&b, build_input(&b, "x", SBIT_F32, "2,19,3,3"), 0.02f, dtype, 128);
            check_graph(&b, build_unary(&b, cases[i].op_type, "y", x), 0.021f, dtype, 90,
                        cases[i].name, 1);
            build_end(&b);
        }
        build b;
        build_begin(&b, 17);
        const sbit_value_id x =
            pair(&b, build_input(&b, "x", SBIT_F32, "2,3,37"), 0.02f, dtype, 128);
        check_graph(&b, build_unary(&b, "Softmax", "y", x), 1.0f / 256.0f, dtype, 0, "QSoftmax", 1);
        build_end(&b);
    }
}

/* Windows side by side; overlapping ones stay float, and it is told why. */
TEST(transposed_convolutions)
{
    EACH_DTYPE(dtype)
    {
        for (int64_t i = 0; i < 6; i++) { /* of six channels, of one */
            const int64_t stride = i % 3 + 1, channels = i < 3 ? 6 : 1;
            const char *const dims = i == 1   ? "7,6,2,2"
                                     : i < 3  ? "7,6,3,3"
                                     : i == 4 ? "7,1,2,2"
                                              : "7,1,3,3";
            const int64_t side[2] = {stride, stride}, two[2] = {2, 2};
            build b;
            build_begin(&b, 17);
            sbit_value_id in[3];
            const sbit_attr attr = build_ints("strides", stride < 3 ? two : side, 2);
            in[0] = pair(&b, build_input(&b, "x", SBIT_F32, "2,7,3,5"), 0.02f, dtype, 120);
            in[1] = weight(&b, dims, 1, 0.004f);
            in[2] = bias(&b, channels, 0.001f);
            sbit_value_id x = build_node(&b, "ConvTranspose", "up", in, 3, &attr, 1);
            x = build_unary(&b, "Relu", "r", x);
            if (stride > 1) {
                check_graph(&b, x, 0.02f, dtype, 90, "QConv", 2);
            } else {
                build_output(&b, quantize(&b, x, 0.02f, dtype, 0));
            }
            CHECK_EQ_I64(count_nodes(&b, NULL, "ConvTranspose"), stride > 1 ? 0 : 1);
            build_end(&b);
        }
    }
}

/* 1x1 to 48 channels - depthwise 3x3 with strides - 1x1 to 8, + x without strides: where images are
 * expected to be large, in strips, with the same bytes. */
TEST(large_bottlenecks_run_in_strips)
{
    static const int64_t pads[4] = {1, 0, 1, 2};
    EACH_DTYPE(dtype)
    {
        for (int i = 0; i < 6; i++) { /* odd: stride 2; from 4 on: nothing projects */
            const int64_t strides[2] = {1 + i % 2, 1 + i % 2};
            const sbit_attr attrs[3] = {build_ints("pads", pads, 4), build_int("group", 48),
                                        build_ints("strides", strides, 2)};
            const int zero = dtype == SBIT_I8 ? -28 : 100;
            result got[2];
            build b;
            build_begin(&b, 17);
            sbit_value_id in[2];
            const sbit_value_id x = build_input(&b, "x", SBIT_F32, i < 2 ? "N,8,H,W" : "N,12,H,W");
            const sbit_value_id first = pair(&b, x, 0.02f, dtype, 120);
            in[0] = conv(&b, first, i < 2 ? "48,8,1,1" : "48,12,1,1", 1, i != 3);
            in[0] = pair(&b, build_unary(&b, "Relu", "relu", in[0]), 0.02f, dtype, 7);
            in[1] = weight(&b, "48,1,3,3", 0, 0.004f);
            in[0] = build_node(&b, "Conv", "depthwise", in, 2, attrs, 3);
            if (i < 4) {
                in[0] = pair(&b, in[0], 0.02f, dtype, 90);
                in[0] = conv(&b, in[0], "8,48,1,1", 1, true);
            }
            if (i == 0) {
                const sbit_value_id moved = pair(&b, in[0], 0.03f, dtype, 110);
                in[0] = build_binary(&b, "Add", "add", moved, first);
            }
            build_output(&b, quantize(&b, in[0], 0.03f, dtype, zero));
            for (int k = 0; k < 2; k++) {
                sbit_session_desc desc;
                sbit_value_shape shape = {{0}, 4, {2, 0, 0, 0}};
                shape.id = x;
                shape.dims[1] = i < 2 ? 8 : 12;
                shape.dims[2] = shape.dims[3] = k == 0 ? 8 : 64;
                memset(&desc, 0, sizeof desc);
                desc.shapes = &shape;
                desc.shape_count = 1;
                symbol_size = 11;
                got[k] = run(&b, &desc);
                symbol_size = 2;
                CHECK_EQ_I64(count_nodes(&b, &desc, "QStrip"), k);
                if (k == 1) { /* the pointwise ones and the depthwise one are gone */
                    CHECK_EQ_I64(count_nodes(&b, &desc, "QConv"), 0);
                }
            }
            CHECK(got[0].size > 0 && got[0].size == got[1].size &&
                  memcmp(got[0].bytes, got[1].bytes, got[0].size) == 0);
            free(got[0].bytes);
            free(got[1].bytes);
            build_end(&b);
        }
    }
}

/* The same bytes on every set, of two threads. */
TEST(strips_are_the_same_on_every_set)
{
    EACH_DTYPE(dtype)
    {
        build b;
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,8,21,20");
        sbit_value_id in = pair(&b, x, 0.02f, dtype, 120);
        in = conv(&b, in, "96,8,1,1", 1, true);
        in = pair(&b, build_unary(&b, "Relu", "relu", in), 0.02f, dtype, 0);
        in = pair(&b, conv(&b, in, "96,1,3,3", 96, true), 0.02f, dtype, 90);
        check_graph(&b, conv(&b, in, "20,96,1,1", 1, false), 0.03f, dtype, 100, "QStrip", 400);
        build_end(&b);
    }
}

/* A strip that adds its input, and a stack of products of two activations. */
static void build_strip_and_stack(build *b)
{
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "2,8,40,40");
    const sbit_value_id first = pair(b, x, 0.02f, SBIT_U8, 120);
    sbit_value_id in = conv(b, first, "96,8,1,1", 1, true);
    in = pair(b, build_unary(b, "Relu", "relu", in), 0.02f, SBIT_U8, 0);
    in = pair(b, conv(b, in, "96,1,3,3", 96, true), 0.02f, SBIT_U8, 90);
    in = pair(b, conv(b, in, "8,96,1,1", 1, true), 0.03f, SBIT_U8, 110);
    in = pair(b, build_binary(b, "Add", "add", in, first), 0.03f, SBIT_U8, 100);
    in = pair(b, build_binary(b, "MatMul", "square", in, in), 0.3f, SBIT_U8, 100);
    build_output(b, in);
}

TEST(every_allocation_of_strips_and_stacks_may_fail)
{
    static float x[2 * 8 * 40 * 40];
    for (int64_t n = 0; n < 2000; n++) {
        test_heap heap;
        sbit_ctx_desc desc;
        build b;
        sbit_session *session = NULL;
        memset(&heap, 0, sizeof heap);
        memset(&b, 0, sizeof b);
        memset(&desc, 0, sizeof desc);
        desc.allocator = test_heap_allocator(&heap);
        desc.threads = 1;
        CHECK_OK(sbit_ctx_create(&desc, &b.ctx, &b.error), b.error);
        CHECK_OK(sbit_graph_create(b.ctx, 17, &b.graph, &b.error), b.error);
        build_strip_and_stack(&b);
        if (n == 0) { /* they are what is tested */
            CHECK_EQ_I64(count_nodes(&b, NULL, "QStrip"), 1);
            CHECK_EQ_I64(count_nodes(&b, NULL, "QMatMul"), 1);
        }
        const sbit_tensor tensor = build_tensor(SBIT_F32, "2,8,40,40", x);
        heap.count = 0;
        heap.fail_at = n;
        sbit_status status = sbit_session_create(b.graph, NULL, &session, &b.error);
        if (status == SBIT_OK) {
            CHECK_OK(sbit_session_set_input(session, "x", &tensor, &b.error), b.error);
            status = sbit_session_run(session, &b.error);
            CHECK_MSG(status == SBIT_OK || sbit_session_run(session, &b.error) == SBIT_OK,
                      "no run after allocation %lld failed", (long long)n);
        }
        sbit_session_destroy(session);
        build_end(&b);
        CHECK_EQ_I64(heap.live_bytes, 0);
        if (status == SBIT_OK && n > 0) {
            CHECK(n > 10);
            return;
        }
        if (!CHECK_EQ_I64(status, n > 0 ? SBIT_ERR_OUT_OF_MEMORY : SBIT_OK)) {
            return;
        }
    }
    CHECK_MSG(false, "too many allocations");
}

static sbit_value_id padded(build *b, sbit_value_id x, float value)
{
    static const int64_t pads[8] = {0, 0, 1, 0, 0, 0, 2, 1};
    sbit_value_id in[3];
    in[0] = x;
    in[1] = build_constant(b, "pads", SBIT_I64, "8", pads);
    in[2] = scalar(b, "v", SBIT_F32, value);
    return build_node(b, "Pad", "pad", in, value != 0.0f ? 3 : 2, NULL, 0);
}

TEST(pads)
{
    EACH_DTYPE(dtype)
    {
        for (int i = 0; i < 4; i++) { /* with 0, in front of a convolution; another value; of an input */
            build b;
            build_begin(&b, 17);
            sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,3,7,5");
            x = padded(&b, i < 3 ? pair(&b, x, 0.02f, dtype, 120) : x, i == 2 ? 0.3f : 0.0f);
            if (i == 0) {
                check_graph(&b, x, 0.02f, dtype, 120, "Pad", 0);
            } else {
                x = pair(&b, x, 0.02f, dtype, 120);
                check_graph(&b, conv(&b, x, "8,3,3,3", 1, false), 0.03f, dtype, 100, "QConv", 2);
                CHECK_EQ_I64(count_nodes(&b, NULL, "Pad"), i == 2 ? 1 : 0);
            }
            build_end(&b);
        }
    }
}

/* Of N, positions, C: the mean of tokens. */
TEST(means_over_the_axes_in_the_middle)
{
    static const int64_t axes[2] = {1, -2};
    EACH_DTYPE(dtype)
    {
        for (int i = 0; i < 4; i++) {
            const sbit_attr attrs[2] = {build_ints("axes", axes, i < 2 ? 1 : 2),
                                        build_int("keepdims", i % 2)};
            build b;
            build_begin(&b, 17);
            sbit_value_id x = build_input(&b, "x", SBIT_F32, i < 2 ? "2,7,19" : "2,3,4,19");
            x = pair(&b, x, 0.02f, dtype, 120);
            x = build_node(&b, "ReduceMean", "mean", &x, 1, attrs, 2);
            check_graph(&b, x, 0.01f, dtype, 120, "QGlobalAveragePool", 1);
            build_end(&b);
        }
    }
}

/* x -> y written with several operators; DQ of a number is a number, too. */
static sbit_value_id number(build *b, float value, bool quantized)
{
    return quantized ? dequantize(b, scalar(b, "q", SBIT_U8, 3.0f), value / 2.0f, SBIT_U8, 1)
                     : scalar(b, "c", SBIT_F32, value);
}

static sbit_value_id in_pieces(build *b, int kind, sbit_value_id x, bool quantized)
{
    sbit_value_id y;
    if (kind == 0) { /* Gelu */
        y = build_binary(b, "Div", "d", x, number(b, 1.41421356f, quantized));
        y = build_binary(b, "Add", "a", build_unary(b, "Erf", "e", y), number(b, 1.0f, quantized));
        y = build_binary(b, "Mul", "m", x, y);
        return build_binary(b, "Mul", "y", y, number(b, 0.5f, quantized));
    }
    if (kind == 1) { /* Gelu by tanh */
        y = build_binary(b, "Pow", "p", x, number(b, 3.0f, quantized));
        y = build_binary(b, "Mul", "m", y, number(b, 0.044715f, quantized));
        y = build_binary(b, "Add", "a", x, y);
        y = build_binary(b, "Mul", "s", y, number(b, 0.79788456f, quantized));
        y = build_binary(b, "Add", "o", build_unary(b, "Tanh", "t", y), number(b, 1.0f, quantized));
        return build_binary(b, "Mul", "y",
                            build_binary(b, "Mul", "h", x, number(b, 0.5f, quantized)), y);
    }
    if (kind == 2) { /* SiLU */
        return build_binary(b, "Mul", "y", x, build_unary(b, "Sigmoid", "s", x));
    }
    if (kind == 3) { /* HardSwish */
        sbit_value_id in[3];
        in[0] = build_binary(b, "Add", "a", x, number(b, 3.0f, quantized));
        in[1] = number(b, 0.0f, false);
        in[2] = number(b, 6.0f, false);
        y = build_binary(b, "Mul", "m", x, build_node(b, "Clip", "c", in, 3, NULL, 0));
        return build_binary(b, "Div", "y", y, number(b, 6.0f, quantized));
    }
    /* LeakyRelu by Where: a bool inside */
    sbit_value_id in[3];
    in[0] = build_binary(b, "Greater", "g", x, number(b, 0.0f, false));
    in[1] = x;
    in[2] = build_binary(b, "Mul", "m", x, number(b, 0.1f, quantized));
    return build_node(b, "Where", "y", in, 3, NULL, 0);
}

TEST(functions_in_pieces_are_one_table)
{
    static const char *const pieces[] = {"Erf", "Tanh", "Sigmoid", "Clip", "Where", "Mul"};
    EACH_DTYPE(dtype)
    {
        for (int kind = 0; kind < 10; kind++) {
            build b;
            build_begin(&b, 17);
            const sbit_value_id x =
                pair(&b, build_input(&b, "x", SBIT_F32, "2,19,3,3"), 0.02f, dtype, 128);
            const sbit_value_id y = in_pieces(&b, kind / 2, x, kind % 2 != 0);
            check_graph(&b, y, 0.011f, dtype, 40, "QTable", 0);
            for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
                CHECK_EQ_I64(count_nodes(&b, NULL, pieces[i]), 0);
            }
            build_end(&b);
        }
    }
}

TEST(prelu_with_a_slope_for_each_channel)
{
    static const int8_t quantized[5] = {10, -20, 30, 0, 127};
    EACH_DTYPE(dtype)
    {
        for (int i = 0; i < 3; i++) {
            build b;
            build_begin(&b, 17);
            sbit_value_id in[2];
            in[0] = pair(&b, build_input(&b, "x", SBIT_F32, "2,5,4,3"), 0.02f, dtype, 128);
            in[1] = i < 2 ? build_weights(&b, "s", i == 0 ? "5,1,1" : "1,5,1,1", 3)
                          : dequantize(&b, build_constant(&b, "q", SBIT_I8, "5,1,1", quantized),
                                       0.01f, SBIT_I8, 3);
            check_graph(&b, build_node(&b, "PRelu", "y", in, 2, NULL, 0), 0.011f, dtype, 60,
                        "QTables", 0);
            build_end(&b);
        }
    }
}

/* A second reader inside, another tensor, and constants that are no numbers. */
TEST(what_is_no_function_of_one_tensor_is_no_table)
{
    for (int kind = 0; kind < 3; kind++) {
        build b;
        build_begin(&b, 17);
        const sbit_value_id x = pair(&b, build_input(&b, "x", SBIT_F32, "2,4"), 0.02f, SBIT_U8, 9);
        const sbit_value_id z = pair(&b, build_input(&b, "z", SBIT_F32, "2,4"), 0.03f, SBIT_U8, 9);
        const sbit_value_id inner = build_unary(&b, "Sigmoid", "s", x);
        const sbit_value_id y = build_binary(&b, "Mul", "y", inner,
                                             kind == 0   ? x
                                             : kind == 1 ? z
                                                         : build_weights(&b, "w", "4", 1));
        build_output(&b, quantize(&b, y, 0.01f, SBIT_U8, 0));
        if (kind == 0) {
            build_output(&b, inner);
        }
        CHECK_EQ_I64(count_nodes(&b, NULL, "QTable"), 0);
        CHECK_EQ_I64(count_nodes(&b, NULL, "Sigmoid"), 1);
        build_end(&b);
    }
}

/* Operators that move values run on the integers; layout changes stand at the borders. */
TEST(regions_have_one_entry_and_one_exit)
{
    EACH_DTYPE(dtype)
    {
        build b;
        build_begin(&b, 17);
        static const int64_t shuffled[5] = {2, 2, 8, 8, 8}, back[4] = {2, 16, 8, 8};
        static const int64_t perm[5] = {0, 2, 1, 3, 4}, two[2] = {2, 2}, axes[2] = {2, 3};
        const sbit_attr permute = build_ints("perm", perm, 5), axis = build_int("axis", 1);
        sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
        sbit_attr mean[2] = {build_ints("axes", axes, 2), build_int("keepdims", 0)};
        sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,3,8,8"), y, in[2], halves[2];
        x = pair(&b, x, 0.02f, dtype, 128);
        x = build_unary(&b, "Relu", "r", conv(&b, x, "16,3,3,3", 1, true));
        x = pair(&b, x, 0.03f, dtype, 0);
        /* residual */
        y = pair(&b, conv(&b, x, "16,16,3,3", 1, true), 0.03f, dtype, 128);
        x = pair(&b, build_binary(&b, "Add", "add", y, x), 0.04f, dtype, 100);
        /* shuffle */
        in[0] = x;
        in[1] = build_constant(&b, "shape", SBIT_I64, "5", shuffled);
        x = pair(&b, build_node(&b, "Reshape", "m", in, 2, NULL, 0), 0.04f, dtype, 100);
        x = pair(&b, build_node(&b, "Transpose", "t", &x, 1, &permute, 1), 0.04f, dtype, 100);
        in[0] = x;
        in[1] = build_constant(&b, "shape", SBIT_I64, "4", back);
        x = pair(&b, build_node(&b, "Reshape", "n", in, 2, NULL, 0), 0.04f, dtype, 100);
        /* halves: one through a convolution and a gate, then joined */
        build_node_outputs(&b, "", "Split", "split", &x, 1, &axis, 1, halves, 2);
        y = pair(&b, halves[0], 0.04f, dtype, 100);
        y = pair(&b, conv(&b, y, "8,1,3,3", 8, false), 0.03f, dtype, 128);
        y = pair(&b, build_unary(&b, "HardSwish", "h", y), 0.02f, dtype, 20);
        in[0] = y;
        in[1] = pair(&b, halves[1], 0.04f, dtype, 100);
        x = build_node(&b, "Concat", "join", in, 2, &axis, 1);
        x = pair(&b, x, 0.035f, dtype, 100);
        x = pair(&b, build_node(&b, "MaxPool", "max", &x, 1, pool, 2), 0.035f, dtype, 100);
        x = build_node(&b, "ReduceMean", "mean", &x, 1, mean, 2);
        x = pair(&b, x, 0.02f, dtype, 100);
        in[0] = x;
        in[1] = weight(&b, "16,10", 1, 0.004f);
        build_output(&b, build_node(&b, "Gemm", "logits", in, 2, NULL, 0));
        CHECK_EQ_I64(count_nodes(&b, NULL, "ToLast"), 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, "ToFirst"), 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, "QuantizeLinear"), 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, "QConv"), 3);
        CHECK_EQ_I64(count_nodes(&b, NULL, "QShuffle"), 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, "QMaxPool"), 1);
        CHECK_EQ_I64(count_nodes(&b, NULL, "QGemm"), 1);
        check_sets(&b);
        build_end(&b);
    }
}

/* Placement as Sparsebit's: only inputs are quantized, so sums come out as float. */
/* The pool is float, its input stays with channels last. */
TEST(a_float_pool_behind_integers)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x =
        pair(&b, build_input(&b, "x", SBIT_F32, "2,3,6,6"), 0.02f, SBIT_U8, 128);
    const sbit_value_id y = pair(&b, conv(&b, x, "20,3,3,3", 1, true), 0.03f, SBIT_U8, 100);
    build_output(&b, build_unary(&b, "GlobalAveragePool", "pool", y));
    CHECK_EQ_I64(count_nodes(&b, NULL, "GlobalAveragePoolLast"), 1);
    result lowered, one_by_one;
    run_both(&b, &lowered, &one_by_one);
    for (size_t i = 0; i < lowered.size; i += sizeof(float)) {
        float got = 0.0f, want = 0.0f;
        memcpy(&got, lowered.bytes + i, sizeof got);
        memcpy(&want, one_by_one.bytes + i, sizeof want);
        CHECK_MSG(fabsf(got - want) < 0.004f, "element %zu is %g, not %g", i, (double)got,
                  (double)want);
    }
    free(lowered.bytes);
    free(one_by_one.bytes);
    build_end(&b);
}

TEST(float_results_of_integer_sums)
{
    static const int64_t two[2] = {2, 2};
    sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
    build b;
    build_begin(&b, 17);
    sbit_value_id x = pair(&b, build_input(&b, "x", SBIT_F32, "2,3,8,8"), 0.02f, SBIT_U8, 128);
    sbit_value_id y = build_unary(&b, "Relu", "r", conv(&b, x, "16,3,3,3", 1, true));
    sbit_value_id z = conv(&b, pair(&b, y, 0.02f, SBIT_U8, 0), "16,16,3,3", 1, true);
    y = build_unary(&b, "Relu", "s", build_binary(&b, "Add", "add", z, y));
    y = build_node(&b, "MaxPool", "max", &y, 1, pool, 2); /* Q goes in front of it */
    y = conv(&b, pair(&b, y, 0.03f, SBIT_U8, 0), "4,16,1,1", 1, false);
    build_output(&b, quantize(&b, y, 0.05f, SBIT_U8, 128));
    CHECK_EQ_I64(count_nodes(&b, NULL, "QConv"), 3);
    CHECK_EQ_I64(count_nodes(&b, NULL, "QMaxPool"), 1);
    CHECK_EQ_I64(count_nodes(&b, NULL, "ToLast"), 1);
    CHECK_EQ_I64(count_nodes(&b, NULL, "ToFirst"), 1);
    CHECK(differences(&b) <= 2);
    check_sets(&b);
    build_end(&b);
}

/* A Q without a zero point says its type in an attribute, which goes with it when it is lifted. */
TEST(lifted_quantizers_keep_their_type)
{
    static const int64_t two[2] = {2, 2};
    sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
    const sbit_attr type = build_int("output_dtype", SBIT_I8);
    build b;
    build_begin(&b, 21);
    sbit_value_id x = build_unary(&b, "Relu", "r", build_input(&b, "x", SBIT_F32, "2,3,8,8"));
    sbit_value_id in[2];
    in[0] = build_node(&b, "MaxPool", "max", &x, 1, pool, 2);
    in[1] = scalar(&b, "s", SBIT_F32, 0.01f);
    build_output(&b, build_node(&b, "QuantizeLinear", "q", in, 2, &type, 1));
    CHECK_EQ_I64(count_nodes(&b, NULL, "QMaxPool"), 1);
    CHECK_EQ_I64(differences(&b), 0);
    build_end(&b);
}

/* 255 * 255 * 200,000 / 4 is more than int32 holds, and no shape tells before. */
TEST(products_of_any_length_do_not_overflow)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = pair(&b, build_input(&b, "x", SBIT_F32, "1,K"), 1e-4f, SBIT_U8, 0);
    const sbit_value_id w = pair(&b, build_input(&b, "w", SBIT_F32, "K,1"), 1e-4f, SBIT_U8, 0);
    const sbit_value_id y = build_binary(&b, "MatMul", "matmul", x, w);
    build_output(&b, quantize(&b, y, 0.3f, SBIT_U8, 0));
    CHECK_EQ_I64(count_nodes(&b, NULL, "QMatMul"), 1);
    symbol_size = 200000;
    CHECK_EQ_I64(differences(&b), 0);
    symbol_size = 2;
    build_end(&b);
}

/* What is part of a product holds for those that are computed by loops, too. */
TEST(long_products_keep_their_bias_and_bounds)
{
    static const float bias[4] = {90.0f, -70.0f, 40.0f, -200.0f};
    for (int form = 0; form < 4; form++) {
        build b;
        build_begin(&b, 17);
        const sbit_value_id x = pair(&b, build_input(&b, "x", SBIT_F32, "3,K"), 0.02f, SBIT_U8, 128);
        const sbit_value_id w = pair(&b, build_input(&b, "w", SBIT_F32, "K,4"), 0.02f, SBIT_U8, 128);
        sbit_value_id y = build_binary(&b, "MatMul", "matmul", x, w);
        if ((form & 1) != 0) {
            y = build_binary(&b, "Add", "add", y, build_constant(&b, "bias", SBIT_F32, "4", bias));
        }
        y = (form & 2) != 0 ? build_unary(&b, "Relu", "relu", y) : y;
        build_output(&b, quantize(&b, y, 5.0f, SBIT_U8, 128));
        symbol_size = 40000;
        CHECK(differences(&b) <= 1);
        symbol_size = 2;
        build_end(&b);
    }
}

/* Gemm adds C of [N, 1] to each row a number, which no integer product does. */
TEST(a_bias_per_row_is_none_per_column)
{
    static const float c[5] = {0.3f, -0.2f, 0.1f, -0.4f, 0.2f};
    for (int form = 0; form < 3; form++) {
        build b;
        build_begin(&b, 17);
        sbit_value_id in[3];
        in[0] = pair(&b, build_input(&b, "x", SBIT_F32, "5,7"), 0.02f, SBIT_U8, 128);
        in[1] = weight(&b, "7,5", 1, 0.004f);
        in[2] = build_constant(&b, "c", SBIT_F32, "5,1", c);
        sbit_value_id y = build_node(&b, "Gemm", "gemm", in, 3, NULL, 0);
        y = form == 1 ? build_unary(&b, "Relu", "relu", y) : y;
        if (form == 2) {
            const sbit_value_id other = pair(&b, build_input(&b, "z", SBIT_F32, "5,5"), 0.02f, SBIT_U8, 128);
            y = build_binary(&b, "Add", "sum", pair(&b, y, 0.01f, SBIT_U8, 128), other);
        }
        build_output(&b, quantize(&b, y, 0.01f, SBIT_U8, 128));
        CHECK(differences(&b) <= 1);
        build_end(&b);
    }
}

/* As it stands between two phases. */
TEST(integer_max_pool_with_channels_first)
{
    static const int64_t kernel[2] = {3, 2}, strides[2] = {2, 2}, pads[4] = {1, 0, 1, 1};
    const sbit_attr pool[3] = {build_ints("kernel_shape", kernel, 2),
                               build_ints("strides", strides, 2), build_ints("pads", pads, 4)};
    sbit_session_desc plain;
    result r[2];
    memset(&plain, 0, sizeof plain);
    plain.disable_fusion = true;
    for (int i = 0; i < 2; i++) {
        build b;
        build_begin(&b, 17);
        sbit_value_id y;
        const sbit_value_id x =
            quantize(&b, build_input(&b, "x", SBIT_F32, "2,5,9,7"), 0.02f, SBIT_U8, 128);
        build_node_outputs(&b, i == 0 ? "" : "sbit", i == 0 ? "MaxPool" : "QMaxPool", "max", &x, 1,
                           pool, 3, &y, 1);
        build_output(&b, y);
        r[i] = run(&b, &plain);
        build_end(&b);
    }
    CHECK(r[0].size > 0 && r[0].size == r[1].size && r[0].bytes != NULL && r[1].bytes != NULL &&
          memcmp(r[0].bytes, r[1].bytes, r[0].size) == 0);
    free(r[0].bytes);
    free(r[1].bytes);
}

#ifndef _WIN32
typedef struct shared_run {
    const sbit_program *program;
    float x[3 * 8 * 8], y[10];
    int failures;
} shared_run;

static void *run_shared(void *user)
{
    shared_run *run = (shared_run *)user;
    sbit_session *session = NULL;
    sbit_error error;
    const sbit_tensor tensor = build_tensor(SBIT_F32, "1,3,8,8", run->x);
    run->failures = sbit_session_create_for(run->program, NULL, &session, &error) != SBIT_OK;
    for (int i = 0; i < 20 && run->failures == 0; i++) {
        run->failures += sbit_session_set_input(session, "x", &tensor, &error) != SBIT_OK ||
                         sbit_session_run(session, &error) != SBIT_OK;
    }
    if (run->failures == 0) {
        memcpy(run->y, sbit_session_output(session, 0)->tensor.data, sizeof run->y);
    }
    sbit_session_destroy(session);
    return NULL;
}

/* A bit of everything: convolutions, sums, concatenation, tables, pools, attention, products. */
static void build_network(build *b)
{
    static const int64_t two[2] = {2, 2}, tokens[1] = {1}, rows[3] = {0, 16, -1};
    const sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
    const sbit_attr mean[2] = {build_ints("axes", tokens, 1), build_int("keepdims", 0)};
    const sbit_attr axis = build_int("axis", 1);
    sbit_value_id in[2], y, x = build_input(b, "x", SBIT_F32, "n,3,8,8");
    x = conv(b, pair(b, x, 0.02f, SBIT_U8, 128), "16,3,3,3", 1, true);
    x = pair(b, build_unary(b, "Relu", "r", x), 0.03f, SBIT_U8, 0);
    y = pair(b, conv(b, x, "16,1,3,3", 16, true), 0.03f, SBIT_U8, 128);
    y = pair(b, build_unary(b, "HardSwish", "h", y), 0.02f, SBIT_U8, 20);
    in[0] = pair(b, build_binary(b, "Add", "add", y, x), 0.04f, SBIT_U8, 100);
    in[1] = x;
    x = pair(b, build_node(b, "Concat", "c", in, 2, &axis, 1), 0.04f, SBIT_U8, 100);
    x = pair(b, build_node(b, "MaxPool", "m", &x, 1, pool, 2), 0.04f, SBIT_U8, 100);
    x = pair(b, conv(b, x, "16,32,1,1", 1, false), 0.03f, SBIT_U8, 128);
    in[0] = x; /* a product of activations and Softmax */
    in[1] = build_constant(b, "rows", SBIT_I64, "3", rows);
    y = pair(b, build_node(b, "Reshape", "t", in, 2, NULL, 0), 0.03f, SBIT_U8, 128);
    y = pair(b, build_binary(b, "MatMul", "mm", y, y), 0.1f, SBIT_U8, 128);
    y = pair(b, build_unary(b, "Softmax", "s", y), 1.0f / 256.0f, SBIT_U8, 0);
    y = pair(b, build_node(b, "ReduceMean", "mean", &y, 1, mean, 2), 1.0f / 256.0f, SBIT_U8, 0);
    x = pair(b, build_node(b, "GlobalAveragePool", "g", &x, 1, NULL, 0), 0.02f, SBIT_U8, 128);
    x = pair(b, build_unary(b, "Flatten", "f", x), 0.02f, SBIT_U8, 128);
    in[0] = pair(b, build_binary(b, "Mul", "gate", x, y), 0.002f, SBIT_U8, 128);
    in[1] = weight(b, "16,10", 1, 0.004f);
    build_output(b, build_node(b, "Gemm", "logits", in, 2, NULL, 0));
}

/* Two threads, a session each, one program of a context with two threads of its own
 * (make -C tests tsan). */
TEST(threads_share_a_program_of_integers)
{
    static shared_run runs[3];
    build b;
    sbit_program *program = NULL;
    pthread_t threads[2];
    build_begin_threads(&b, 17, 2);
    build_network(&b);
    CHECK_EQ_I64(count_nodes(&b, NULL, "DequantizeLinear"), 0);
    if (!b.failed &&
        build_do(&b, sbit_program_create(b.graph, NULL, &program, &b.error), "program")) {
        for (int i = 0; i < 3; i++) {
            sbit_rng rng = sbit_rng_seed((uint64_t)(i == 2 ? 1 : i));
            runs[i].program = program;
            for (size_t k = 0; k < sizeof runs[i].x / sizeof runs[i].x[0]; k++) {
                runs[i].x[k] = sbit_rng_normal(&rng);
            }
        }
        for (int i = 0; i < 2; i++) {
            CHECK_EQ_I64(pthread_create(&threads[i], NULL, run_shared, &runs[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            CHECK_EQ_I64(runs[i].failures, 0);
        }
        (void)run_shared(&runs[2]);
        CHECK(memcmp(runs[1].y, runs[2].y, sizeof runs[1].y) == 0);
        CHECK(memcmp(runs[0].y, runs[2].y, sizeof runs[1].y) != 0);
    }
    sbit_program_destroy(program);
    build_end(&b);
}
#endif

TEST(what_somebody_looks_at_stays)
{
    build b;
    int looks = 0;
    sbit_session_desc desc;
    build_begin(&b, 17);
    const sbit_value_id x =
        pair(&b, build_input(&b, "x", SBIT_F32, "1,3,8,8"), 0.02f, SBIT_U8, 128);
    const sbit_value_id y = conv(&b, x, "16,3,3,3", 1, true);
    build_output(&b, quantize(&b, build_unary(&b, "Relu", "r", y), 0.05f, SBIT_U8, 0));
    memset(&desc, 0, sizeof desc);
    desc.disable_integers = true;
    CHECK_EQ_I64(count_nodes(&b, &desc, "QConv"), 0);
    memset(&desc, 0, sizeof desc);
    desc.tap_fn = look;
    desc.tap_user = &looks;
    desc.taps = &y;
    desc.tap_count = 1;
    CHECK_EQ_I64(count_nodes(&b, &desc, "QConv"), 1); /* with a float result */
    CHECK_EQ_I64(count_nodes(&b, &desc, "Relu"), 1);
    const result r = run(&b, &desc);
    CHECK_EQ_I64(looks, 1);
    free(r.bytes);
    build_end(&b);
}

static void check_reason(build *b, const char *words)
{
    sbit_session *session = NULL;
    sbit_node_profile nodes[16];
    if (!b->failed && build_do(b, sbit_session_create(b->graph, NULL, &session, &b->error), "make")) {
        const size_t count = sbit_session_profile(session, nodes, 16);
        bool told = false;
        for (size_t i = 0; i < count; i++) {
            told = told || (nodes[i].reason != NULL && strstr(nodes[i].reason, words));
        }
        CHECK_MSG(told, "no node has the reason \"%s\"", words);
    }
    sbit_session_destroy(session);
}

TEST(the_reason_why_a_node_is_float_is_told)
{
    build b;
    sbit_value_id in[2];
    build_begin(&b, 17);
    const sbit_value_id x =
        pair(&b, build_input(&b, "x", SBIT_F32, "1,3,8,8"), 0.02f, SBIT_U8, 128);
    build_output(&b, build_unary(&b, "HardSwish", "h", x));
    check_reason(&b, "not quantized");
    build_end(&b);
    build_begin(&b, 21); /* integers of 16 bits */
    for (int i = 0; i < 2; i++) {
        in[i] = build_input(&b, i == 0 ? "x" : "y", SBIT_F32, "4,4");
        in[i] = quantize16(&b, "QuantizeLinear", in[i], 1e-4f, SBIT_I16, 0);
        in[i] = quantize16(&b, "DequantizeLinear", in[i], 1e-4f, SBIT_I16, 0);
    }
    const sbit_value_id y = build_node(&b, "MatMul", "product", in, 2, NULL, 0);
    build_output(&b, quantize16(&b, "QuantizeLinear", build_binary(&b, "Add", "sum", y, in[0]),
                                1e-4f, SBIT_I16, 0));
    check_reason(&b, "multiplied with constant weights");
    check_reason(&b, "no form on integers of other than 8 bits");
    build_end(&b);
}
