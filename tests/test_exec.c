/* test_exec.c: planning, memory reuse, fusion, taps, dynamic shapes, bodies, failures. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

#ifndef _WIN32
#include <pthread.h> /* sessions in threads of the test */
#endif

/* ---- helpers */

static void fill(float *data, int64_t count, uint64_t seed)
{
    sbit_rng rng = sbit_rng_seed(seed);
    for (int64_t i = 0; i < count; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
}

static bool set_floats(sbit_session *session, const char *name, const char *dims, const float *data)
{
    const sbit_tensor tensor = build_tensor(SBIT_F32, dims, data);
    sbit_error error;
    return CHECK_OK(sbit_session_set_input(session, name, &tensor, &error), error);
}

static const float *floats_of(const sbit_session *session, size_t index)
{
    const sbit_value *value = sbit_session_output(session, index);
    return value != NULL ? (const float *)value->tensor.data : NULL;
}

static void check_floats(const float *got, const float *want, int64_t count, double tolerance)
{
    if (!CHECK(got != NULL)) {
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (!CHECK_NEAR(got[i], want[i], tolerance)) {
            return;
        }
    }
}

/* rows of the tests: x + 1 with counters */
static struct {
    int prepares, runs;
} plus_one;

static sbit_status infer_same(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    *call->out_type[0] = *call->in_type[0];
    return SBIT_OK;
}

static sbit_status prepare_plus_one(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    plus_one.prepares++;
    *call->scratch_bytes = 1000;
    return call->alloc_params(call, 100) != NULL
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_OUT_OF_MEMORY, error, "parameters");
}

static sbit_status run_plus_one(const sbit_op_call *call, sbit_error *error)
{
    const float *x = (const float *)call->in[0]->data;
    float *y = (float *)call->out[0]->data;
    (void)error;
    plus_one.runs++;
    CHECK(call->params != NULL && call->scratch != NULL);
    memset(call->scratch, 0xff, 1000);
    for (int64_t i = 0; i < sbit_tensor_count(call->in[0]); i++) {
        y[i] = x[i] + 1.0f;
    }
    return SBIT_OK;
}

/* float32 values above 0, and how many */
static sbit_status infer_positive(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    call->out_type[0]->dtype = SBIT_F32;
    call->out_type[0]->rank = 1;
    call->out_type[1]->dtype = SBIT_I64;
    call->out_type[1]->rank = 0;
    return SBIT_OK;
}

static sbit_status run_positive(const sbit_op_call *call, sbit_error *error)
{
    const float *x = (const float *)call->in[0]->data;
    int64_t count = 0;
    for (int64_t i = 0; i < sbit_tensor_count(call->in[0]); i++) {
        count += x[i] > 0.0f;
    }
    sbit_status status = call->alloc_output(call, 0, -1, SBIT_F32, 1, &count, error);
    if (status == SBIT_OK) {
        status = call->alloc_output(call, 1, -1, SBIT_I64, 0, NULL, error);
    }
    if (status != SBIT_OK) {
        return status;
    }
    *(int64_t *)call->out[1]->data = count;
    count = 0;
    for (int64_t i = 0; i < sbit_tensor_count(call->in[0]); i++) {
        if (x[i] > 0.0f) {
            ((float *)call->out[0]->data)[count++] = x[i];
        }
    }
    return SBIT_OK;
}

static sbit_status run_fails(const sbit_op_call *call, sbit_error *error)
{
    (void)call;
    (void)error;
    return SBIT_ERR_NUMERIC; /* says nothing */
}

static sbit_op_row plain_row(const char *op_type,
                             sbit_status (*infer)(const sbit_op_call *, sbit_error *),
                             sbit_status (*run)(const sbit_op_call *, sbit_error *))
{
    sbit_op_row row;
    memset(&row, 0, sizeof row);
    row.domain = "test";
    row.op_type = op_type;
    row.since_version = 1;
    row.types = SBIT_T_ANY;
    row.infer = infer;
    row.run = run;
    return row;
}

static sbit_value_id user_unary(build *b, const char *op_type, const char *name, sbit_value_id x)
{
    sbit_value_id y;
    build_node_outputs(b, "test", op_type, name, &x, 1, NULL, 0, &y, 1);
    return y;
}

static sbit_session *session_of(build *b, const sbit_session_desc *desc)
{
    sbit_session *session = NULL;
    if (!b->failed) {
        CHECK_OK(sbit_session_create(b->graph, desc, &session, &b->error), b->error);
    }
    return session;
}

/* ---- memory */

/* Four matrix products of 4x16 values: only two of them live at a time. */
TEST(a_chain_needs_two_buffers)
{
    build b;
    sbit_session_memory memory;
    float x[64];
    build_begin(&b, 17);
    sbit_value_id v = build_input(&b, "x", SBIT_F32, "4,16");
    for (int i = 0; i < 4; i++) {
        v = build_binary(&b, "MatMul", "product", v, build_weights(&b, "w", "16,16", 1));
    }
    build_output(&b, v);
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        sbit_session_memory_of(session, &memory);
        CHECK_EQ_I64(memory.activation_bytes, 0); /* no plan yet */
        fill(x, 64, 1);
        set_floats(session, "x", "4,16", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        sbit_session_memory_of(session, &memory);
        CHECK(memory.activation_bytes >= 2 * 4 * 16 * 4);
        CHECK(memory.activation_bytes <= 2 * 4 * 16 * 4 + (memory.scratch_bytes + 63) / 64 * 64);
        CHECK_EQ_I64(memory.unshared_bytes, 4 * 4 * 16 * 4);
        CHECK_EQ_I64(memory.dynamic_bytes, 0);
        CHECK(memory.packed_bytes >= 4 * 16 * 16 * 4);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

static sbit_status tap_nothing(const sbit_graph *graph, sbit_value_id id, const sbit_value *value,
                               void *user, sbit_error *error)
{
    (void)graph;
    (void)id;
    (void)value;
    (void)user;
    (void)error;
    return SBIT_OK;
}

/* Weights behind DequantizeLinear: floats are made by the step that packs them and go when all that
 * read them have; what a kernel reads as it is stays. */
TEST(large_constants_are_made_when_needed)
{
    enum {
        K = 64,
        N = 128
    };
    static int8_t q[3][K * N];
    static const float scale[1] = {0.001f};
    static const int64_t order[2] = {1, 0};
    const sbit_attr perm = build_ints("perm", order, 2);
    static float x[5 * K];
    build b;
    sbit_value_id w[3];
    build_begin(&b, 17);
    fill(x, 5 * K, 1);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "batch,64");
    const sbit_value_id s = build_constant(&b, "s", SBIT_F32, "", scale);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < K * N; k++) {
            q[i][k] = (int8_t)((k * 37 + i * 11) % 255 - 127);
        }
        w[i] =
            build_binary(&b, "DequantizeLinear", "w",
                         build_constant(&b, "q", SBIT_I8, i == 2 ? "128,64" : "64,128", q[i]), s);
    }
    const sbit_value_id turned = build_node(&b, "Transpose", "turn", &w[1], 1, &perm, 1);
    sbit_value_id v = build_binary(&b, "MatMul", "first", input, w[0]);
    v = build_binary(&b, "MatMul", "second", v, turned);
    const sbit_value_id again = build_binary(&b, "MatMul", "again", v, w[0]);
    const sbit_value_id last = build_binary(&b, "MatMul", "last", w[2],
                                            build_node(&b, "Transpose", "turn_x", &v, 1, &perm, 1));
    build_output(&b, again);
    build_output(&b, last);
    sbit_session_desc eager_desc;
    memset(&eager_desc, 0, sizeof eager_desc);
    eager_desc.tap_all = true;
    eager_desc.tap_fn = tap_nothing;
    sbit_session *session = session_of(&b, NULL), *eager = session_of(&b, &eager_desc);
    static const char *const shapes[] = {"3,64", "5,64", "3,64"};
    for (int i = 0; session != NULL && eager != NULL && i < 3; i++) {
        sbit_session_memory memory;
        set_floats(session, "x", shapes[i], x);
        set_floats(eager, "x", shapes[i], x);
        CHECK_OK(sbit_session_plan(session, &b.error), b.error);
        sbit_session_memory_of(session, &memory);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_OK(sbit_session_run(eager, &b.error), b.error);
        sbit_session_memory_of(session, &memory);
        CHECK_MSG(memory.packed_bytes >= 4 * K * N * 4 &&
                      memory.packed_bytes < 4 * K * N * 4 + 8192,
                  "%u bytes are packed", (unsigned)memory.packed_bytes);
        CHECK_EQ_I64(memory.dynamic_bytes, 0);
        for (size_t o = 0; o < 2; o++) {
            const int count = N * (shapes[i][0] - '0');
            check_floats(floats_of(session, o), floats_of(eager, o), count, 1e-4);
        }
    }
    sbit_session_destroy(session);
    sbit_session_destroy(eager);
    build_end(&b);
}

TEST(in_place_operators_need_one_buffer)
{
    build b;
    sbit_session_memory memory;
    static const float x[3] = {-1.0f, 0.5f, 4.0f}, want[3] = {0.0f, 0.5f, 4.0f};
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "3");
    sbit_value_id v = build_unary(&b, "Relu", "first", input);
    v = build_unary(&b, "Relu", "second", v);
    v = build_unary(&b, "Relu", "third", v);
    build_output(&b, v);
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        set_floats(session, "x", "3", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        sbit_session_memory_of(session, &memory);
        CHECK_EQ_I64(memory.activation_bytes, 64); /* 12 bytes, rounded up to the alignment */
        CHECK_EQ_I64(memory.unshared_bytes, 3 * 64);
        check_floats(floats_of(session, 0), want, 3, 0.0);
        CHECK_NEAR(x[0], -1.0, 0.0); /* the caller's memory is not written to */
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* y = relu(x); z = y + reshape(relu(reshape(y))) : y must survive the in-place chance. */
TEST(views_and_in_place_do_not_disturb_each_other)
{
    build b;
    static const int64_t flat = 6, square[2] = {2, 3};
    static const float x[6] = {-1, 2, -3, 4, -5, 6};
    static const float want_z[6] = {0, 4, 0, 8, 0, 12}, want_v[6] = {1, 3, 1, 5, 1, 7};
    const sbit_op_row row = plain_row("PlusOne", infer_same, run_plus_one);
    sbit_op_row counted = row;
    build_begin(&b, 17);
    counted.prepare = prepare_plus_one;
    counted.flags = SBIT_OP_IN_PLACE;
    CHECK_OK(sbit_operator_register(b.ctx, &counted, &b.error), b.error);
    const sbit_value_id to_flat = build_constant(&b, "flat", SBIT_I64, "1", &flat);
    const sbit_value_id to_square = build_constant(&b, "square", SBIT_I64, "2", square);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "2,3");
    const sbit_value_id y = build_unary(&b, "Relu", "y", input);
    const sbit_value_id view = build_binary(&b, "Reshape", "view", y, to_flat);
    const sbit_value_id same = build_unary(&b, "Relu", "same", view);
    const sbit_value_id back = build_binary(&b, "Reshape", "back", same, to_square);
    const sbit_value_id z = build_binary(&b, "Add", "z", y, back);
    const sbit_value_id plus = user_unary(&b, "PlusOne", "plus", view); /* may not overwrite */
    build_output(&b, z);
    build_output(&b, build_binary(&b, "Reshape", "v", plus, to_square));
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        for (int repeat = 0; repeat < 2; repeat++) {
            set_floats(session, "x", "2,3", x);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            check_floats(floats_of(session, 0), want_z, 6, 0.0);
            check_floats(floats_of(session, 1), want_v, 6, 0.0);
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* An early result must not be overwritten by what is computed after it. */
TEST(results_live_to_the_end)
{
    build b;
    static const float x[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    float want[16];
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "4,4");
    const sbit_value_id early = build_unary(&b, "Neg", "early", input);
    build_output(&b, early);
    sbit_value_id v = early;
    for (int i = 0; i < 3; i++) {
        v = build_binary(&b, "MatMul", "product", v, build_weights(&b, "w", "4,4", 1));
    }
    build_output(&b, v);
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        set_floats(session, "x", "4,4", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        for (int i = 0; i < 16; i++) {
            want[i] = -x[i];
        }
        check_floats(floats_of(session, 0), want, 16, 0.0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(results_outlive_the_inputs_they_are_views_of)
{
    build b;
    static const int64_t flat = 4;
    float x[4] = {1, 2, 3, 4};
    static const float want[4] = {1, 2, 3, 4};
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "2,2");
    const sbit_value_id shape = build_constant(&b, "shape", SBIT_I64, "1", &flat);
    build_output(&b, build_binary(&b, "Reshape", "view", input, shape));
    build_output(&b, input);
    build_output(&b, shape);
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        set_floats(session, "x", "2,2", x);
        CHECK(sbit_session_output(session, 0) == NULL);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        memset(x, 0, sizeof x); /* the caller's memory is the caller's again */
        check_floats(floats_of(session, 0), want, 4, 0.0);
        check_floats(floats_of(session, 1), want, 4, 0.0);
        const sbit_value *constant = sbit_session_output(session, 2);
        CHECK_EQ_I64(*(const int64_t *)constant->tensor.data, 4);
        CHECK(sbit_session_output(session, 3) == NULL);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* Setting inputs of another shape must not take the last results away. */
TEST(results_stay_readable_while_inputs_are_set)
{
    build b;
    static const float x[4] = {1, 2, 3, 4}, want[2] = {-1, -2};
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "N");
    build_output(&b, build_unary(&b, "Neg", "neg", input));
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        set_floats(session, "x", "2", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        set_floats(session, "x", "4", x);
        check_floats(floats_of(session, 0), want, 2, 0.0);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], 4);
        CHECK_OK(sbit_session_run(session, &b.error), b.error); /* the input is still set */
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* A sequence made of constants is none of the constants that outlive a plan. */
TEST(sequences_of_constants_survive_a_new_plan)
{
    build b;
    static const float data[2] = {5, 7}, x[2] = {1, 2};
    static const int64_t one = 1;
    sbit_value_id in[2];
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "N");
    in[0] = build_constant(&b, "first", SBIT_F32, "1", &data[0]);
    in[1] = build_constant(&b, "second", SBIT_F32, "1", &data[1]);
    in[0] = build_node(&b, "SequenceConstruct", "sequence", in, 2, NULL, 0);
    in[1] = build_constant(&b, "one", SBIT_I64, "", &one);
    const sbit_value_id item = build_node(&b, "SequenceAt", "item", in, 2, NULL, 0);
    build_output(&b, build_binary(&b, "Add", "sum", input, item));
    sbit_session *session = session_of(&b, NULL);
    for (int n = 1; session != NULL && n <= 2; n++) {
        set_floats(session, "x", n == 1 ? "1" : "2", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], n);
        CHECK_NEAR(floats_of(session, 0)[n - 1], 7 + n, 0.0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* Values whose shape depends on data: the limit is met while running, and the node is named. */
TEST(the_memory_limit_names_the_node)
{
    build b;
    sbit_session_desc desc;
    sbit_session_memory memory;
    static float x[4096];
    static sbit_op_row row;
    sbit_value_id outputs[2];
    build_begin(&b, 17);
    row = plain_row("Positive", infer_positive, run_positive);
    row.flags = SBIT_OP_DYNAMIC;
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "4096");
    build_node_outputs(&b, "test", "Positive", "positive", &in, 1, NULL, 0, outputs, 2);
    build_output(&b, outputs[0]);
    for (int i = 0; i < 4096; i++) {
        x[i] = (float)(i + 1);
    }
    memset(&desc, 0, sizeof desc);
    memset(&memory, 0, sizeof memory);
    for (int limited = 0; limited < 2; limited++) {
        sbit_session *session = session_of(&b, &desc);
        if (session != NULL) {
            set_floats(session, "x", "4096", x);
            CHECK_OK(sbit_session_plan(session, &b.error), b.error);
            sbit_session_memory_of(session, &memory);
            const sbit_status status = sbit_session_run(session, &b.error);
            CHECK_STATUS(status, limited == 0 ? SBIT_OK : SBIT_ERR_LIMIT, b.error);
            CHECK(limited == 0 || strstr(b.error.message, "'positive'") != NULL);
        }
        sbit_session_destroy(session);
        desc.max_bytes = memory.total_bytes + 1000;
    }
    build_end(&b);
}

/* One byte less than what a session says that it takes is too little. */
TEST(the_memory_limit_is_kept)
{
    build b;
    sbit_session_desc desc;
    sbit_session_memory memory;
    float x[64];
    build_begin(&b, 17);
    sbit_value_id v = build_input(&b, "x", SBIT_F32, "4,16");
    v = build_binary(&b, "MatMul", "a", v, build_weights(&b, "w", "16,16", 1));
    v = build_binary(&b, "MatMul", "b", v, build_weights(&b, "w", "16,16", 2));
    build_output(&b, v);
    fill(x, 64, 1);
    memset(&desc, 0, sizeof desc);
    memset(&memory, 0, sizeof memory);
    for (int less = 0; less < 3; less++) {
        sbit_session *session = session_of(&b, &desc);
        if (session != NULL) {
            set_floats(session, "x", "4,16", x);
            const sbit_status status = sbit_session_run(session, &b.error);
            CHECK_STATUS(status, less < 2 ? SBIT_OK : SBIT_ERR_LIMIT, b.error);
            CHECK_EQ_I64(sbit_session_output(session, 0) != NULL, less < 2);
            sbit_session_memory_of(session, &memory);
        }
        sbit_session_destroy(session);
        if (less == 2) {
            char text[24];
            snprintf(text, sizeof text, "%u", (unsigned)desc.max_bytes);
            CHECK_CONTAINS(b.error.message, text);
        }
        desc.max_bytes = memory.total_bytes - (less == 0 ? 0 : 1);
    }
    build_end(&b);
}

/* ---- programs that sessions share */

static const struct {
    const char *name;
    bool quick;     /* in short runs, too */
    bool is_static; /* no value's shape depends on data */
} shared_models[] = {
    {"cifar10/resnet20", true, true},         {"cifar10/mobilenetv3s", true, true},
    {"cifar10/rowlstm", true, true},          {"zoo/mnist_8", true, true},
    {"zoo/silero_vad_v5", true, true},       {"cifar10/mobilenetv2", false, true},
    {"cifar10/resnet18w32", false, true},     {"cifar10/shufflenetv2", false, true},
    {"cifar10/vggsmall", false, true},        {"cifar10/vit_tiny", false, true},
    {"bench/mobilenet_v2", true, true},       {"bench/mobilenet_v3_small", false, true},
    {"bench/squeezenet1_1", false, true},     {"zoo/efficientnet_lite0", false, true},
    {"zoo/ppocr_cls", false, true},           {"zoo/ppocrv4_det", false, true},
    {"zoo/ppocrv4_rec", false, true},         {"zoo/silero_vad_v4", false, true},
    {"zoo/super_resolution_10", false, true}, {"zoo/ultraface_rfb320", false, true},
    {"zoo/yunet_n_dynamic", false, true},
};

/* Feeds every input with something of a size that the models here take. The memory is the test's.
 */
static void feed_something(sbit_session *session, void *memory[8])
{
    for (size_t i = 0; i < sbit_session_input_count(session) && i < 8; i++) {
        const sbit_value_info *info = sbit_session_input_info(session, i);
        sbit_tensor tensor;
        sbit_error error;
        memset(&tensor, 0, sizeof tensor);
        tensor.dtype = info->type.dtype;
        tensor.rank = info->type.rank;
        for (int32_t d = 0; d < tensor.rank; d++) {
            const sbit_dim dim = info->type.dims[d];
            const bool fixed = dim.symbol == 0 && dim.value > 0;
            tensor.dims[d] = fixed                        ? dim.value
                             : d == 0 || tensor.rank == 3 ? 1
                             : tensor.rank == 2           ? 512
                                                          : 64;
        }
        const int64_t count = sbit_tensor_count(&tensor);
        memory[i] = calloc((size_t)count + 1, 8);
        tensor.data = memory[i];
        if (tensor.dtype == SBIT_F32) {
            fill((float *)memory[i], count, i + 1);
        } else if (tensor.dtype == SBIT_I64) {
            ((int64_t *)memory[i])[0] = 16000;
        }
        CHECK_OK(sbit_session_set_input(session, info->name, &tensor, &error), error);
    }
}

static void free_something(void *memory[8])
{
    for (int i = 0; i < 8; i++) {
        free(memory[i]);
        memory[i] = NULL;
    }
}

/* What a session says that it takes, it takes, and no byte more; a run takes nothing; a byte less
 * is too little; two sessions of one program do not pack twice. */
static void check_shared_model(sbit_graph *graph, test_heap *heap, const char *name, bool is_static)
{
    sbit_program *program = NULL;
    sbit_session *session = NULL;
    sbit_session_memory memory;
    sbit_session_desc desc;
    sbit_error error;
    void *fed[8] = {NULL};
    if (!CHECK_OK(sbit_program_create(graph, NULL, &program, &error), error)) {
        return;
    }
    memset(&desc, 0, sizeof desc);
    const int64_t before = heap->live_bytes;
    heap->peak_bytes = before;
    if (CHECK_OK(sbit_session_create_for(program, NULL, &session, &error), error)) {
        size_t unfed = 0; /* told before anything is fed, if shapes are fixed */
        if (sbit_session_plan(session, &error) == SBIT_OK) {
            sbit_session_memory_of(session, &memory);
            unfed = memory.total_bytes;
        }
        feed_something(session, fed);
        CHECK_OK(sbit_session_plan(session, &error), error);
        sbit_session_memory_of(session, &memory);
        CHECK(unfed == 0 || unfed == memory.total_bytes);
        const int64_t count = heap->count;
        CHECK_OK(sbit_session_run(session, &error), error);
        CHECK_OK(sbit_session_run(session, &error), error);
        if (is_static) {
            CHECK_MSG(heap->count == count, "%s: %d allocations in two runs", name,
                      (int)(heap->count - count));
            /* types of bodies are inferred with a little of the context's own */
            CHECK_MSG((int64_t)memory.total_bytes == heap->peak_bytes - before ||
                          strncmp(name, "zoo/silero", 10) == 0,
                      "%s: %d bytes told, %d taken", name, (int)memory.total_bytes,
                      (int)(heap->peak_bytes - before));
            /* what a further session costs beside its activations: 55 nodes, 278 value ids */
            CHECK_MSG(strcmp(name, "bench/mobilenet_v2") != 0 ||
                          memory.total_bytes - memory.activation_bytes <= 64 * 1024,
                      "%s: %d bytes beside activations", name,
                      (int)(memory.total_bytes - memory.activation_bytes));
        }
    }
    sbit_session_destroy(session);
    CHECK_EQ_I64(heap->live_bytes, before);
    for (int less = 0; is_static && less < 2; less++) {
        desc.max_bytes = memory.total_bytes - (less == 1 ? 1 : 0);
        if (CHECK_OK(sbit_session_create_for(program, &desc, &session, &error), error)) {
            free_something(fed);
            feed_something(session, fed);
            CHECK_STATUS(sbit_session_run(session, &error), less == 1 ? SBIT_ERR_LIMIT : SBIT_OK,
                         error);
            sbit_session_destroy(session);
        }
    }
    free_something(fed);
    sbit_program_destroy(program);
}

TEST(sessions_take_what_they_say)
{
    char path[512];
    for (size_t i = 0; i < sizeof shared_models / sizeof shared_models[0]; i++) {
        test_heap heap = {0, 0, 0, 0};
        sbit_ctx_desc desc;
        sbit_ctx *ctx = NULL;
        sbit_graph *graph = NULL;
        sbit_error error;
        char name[128];
        snprintf(name, sizeof name, "models/%s.onnx", shared_models[i].name);
        if (!test_shared(name, path, sizeof path)) {
            SBIT_TEST_SKIP("no shared models");
        }
        if (getenv("SBIT_TEST_QUICK") != NULL && !shared_models[i].quick) {
            continue;
        }
        memset(&desc, 0, sizeof desc);
        desc.allocator = test_heap_allocator(&heap);
        CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
        if (CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error) &&
            CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error)) {
            check_shared_model(graph, &heap, shared_models[i].name, shared_models[i].is_static);
        }
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
    }
}

/* New shapes are planned by sbit_session_plan or else by run, before its first step; either way what
 * is told is what is taken, and a run of shapes that the last one had takes nothing. */
TEST(new_shapes_are_planned_once)
{
    static const int64_t batches[] = {2, 5, 5, 1, 7, 3};
    static float x[7 * 3 * 8 * 8];
    test_heap heap = {0, 0, 0, 0};
    sbit_value_id in[2];
    sbit_ctx_desc desc;
    build b;
    memset(&b, 0, sizeof b);
    memset(&desc, 0, sizeof desc);
    desc.allocator = test_heap_allocator(&heap);
    build_do(&b, sbit_ctx_create(&desc, &b.ctx, &b.error), "context");
    build_do(&b, sbit_graph_create(b.ctx, 17, &b.graph, &b.error), "graph");
    in[0] = build_input(&b, "x", SBIT_F32, "N,3,8,8");
    in[1] = build_weights(&b, "w", "16,3,3,3", 1);
    in[0] = build_unary(&b, "Relu", "relu", build_node(&b, "Conv", "conv", in, 2, NULL, 0));
    in[0] = build_unary(&b, "Flatten", "flat", build_unary(&b, "GlobalAveragePool", "mean", in[0]));
    build_output(&b, build_unary(&b, "Softmax", "softmax", in[0]));
    fill(x, 7 * 3 * 8 * 8, 3);
    for (int planned = 0; planned < 2; planned++) {
        sbit_program *program = NULL;
        sbit_session *session = NULL;
        CHECK_OK(sbit_program_create(b.graph, NULL, &program, &b.error), b.error);
        const int64_t before = heap.live_bytes;
        heap.peak_bytes = before;
        CHECK_OK(sbit_session_create_for(program, NULL, &session, &b.error), b.error);
        for (int i = 0; i < 6; i++) {
            sbit_session_memory told, after;
            char dims[32];
            snprintf(dims, sizeof dims, "%d,3,8,8", (int)batches[i]);
            set_floats(session, "x", dims, x);
            CHECK(i == 0 || sbit_session_output(session, 0) != NULL); /* of the run before */
            const int64_t set = heap.count;
            if (planned == 1) {
                CHECK_OK(sbit_session_plan(session, &b.error), b.error);
            } else {
                CHECK_OK(sbit_session_run(session, &b.error), b.error);
            }
            CHECK_EQ_I64(heap.count == set, i == 2); /* the shapes of before */
            const int64_t count = heap.count;
            sbit_session_memory_of(session, &told);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            CHECK_EQ_I64(heap.count, count);
            CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], batches[i]);
            sbit_session_memory_of(session, &after);
            CHECK(memcmp(&told, &after, sizeof told) == 0);
            CHECK_EQ_I64(told.total_bytes, heap.peak_bytes - before);
        }
        sbit_session_destroy(session);
        CHECK_EQ_I64(heap.live_bytes, before);
        sbit_program_destroy(program);
    }
    build_end(&b);
}

/* 20,000 operators on a constant, which a Conv packs at last: a list, not recursion; all floats in
 * between are freed. */
TEST(long_chains_of_constants_are_no_recursion)
{
    enum {
        LENGTH = 20001,
        COUNT = 96 * 96
    };
    build b;
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx_desc desc;
    static float w[COUNT], x[2 * 96];
    memset(&b, 0, sizeof b);
    memset(&desc, 0, sizeof desc);
    desc.allocator = test_heap_allocator(&heap);
    build_do(&b, sbit_ctx_create(&desc, &b.ctx, &b.error), "context");
    build_do(&b, sbit_graph_create(b.ctx, 17, &b.graph, &b.error), "graph");
    fill(w, COUNT, 1);
    fill(x, 2 * 96, 2);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "2,96");
    sbit_value_id v = build_constant(&b, "w", SBIT_F32, "96,96", w);
    const sbit_value_id plain = build_binary(&b, "MatMul", "plain", input, v);
    for (int i = 0; i < LENGTH - 1; i++) {
        v = build_unary(&b, "Neg", "neg", v);
    }
    build_output(&b, build_binary(&b, "MatMul", "chain", input, v));
    build_output(&b, plain);
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        sbit_session_memory memory;
        set_floats(session, "x", "2,96", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        check_floats(floats_of(session, 0), floats_of(session, 1), 2 * 96, 0.0);
        sbit_session_memory_of(session, &memory);
        CHECK(memory.packed_bytes < 4 * COUNT * sizeof(float));
    }
    sbit_session_destroy(session);
    build_end(&b);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

/* A default that the caller overrides takes with it what was made of it, in this session only:
 * weights whose floats were freed after packing come back where they are needed. */
TEST(overridden_defaults_do_not_meet_packed_weights)
{
    enum {
        N = 80
    };
    build b;
    static int8_t q[N * N], other[N * N];
    static float x[N], bias[N], want[N];
    static const float scale[1] = {0.5f};
    sbit_program *program = NULL;
    sbit_session *sessions[2] = {NULL, NULL};
    sbit_error error;
    build_begin(&b, 17);
    fill(x, N, 1);
    for (int i = 0; i < N * N; i++) {
        q[i] = (int8_t)(i * 7 % 23 - 11);
        other[i] = (int8_t)(i * 5 % 19 - 9);
    }
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "1,80");
    const sbit_value_id stored = build_constant(&b, "q", SBIT_I8, "80,80", q);
    const sbit_value_id offset = build_constant(&b, "bias", SBIT_F32, "80", bias);
    build_do(&b, sbit_graph_set_input(b.graph, stored, true, &b.error), "default");
    build_do(&b, sbit_graph_set_input(b.graph, offset, true, &b.error), "default");
    sbit_value_id in[3];
    in[0] = input;
    in[1] = build_binary(&b, "DequantizeLinear", "w", stored,
                         build_constant(&b, "s", SBIT_F32, "", scale));
    in[2] = offset;
    build_output(&b, build_node(&b, "Gemm", "gemm", in, 3, NULL, 0));
    CHECK_OK(sbit_program_create(b.graph, NULL, &program, &error), error);
    for (int s = 0; s < 2; s++) {
        CHECK_OK(sbit_session_create_for(program, NULL, &sessions[s], &error), error);
        set_floats(sessions[s], "x", "1,80", x);
    }
    const sbit_tensor changed = build_tensor(SBIT_I8, "80,80", other);
    for (int round = 0; round < 3; round++) { /* as it is; another bias; other weights */
        if (round == 1) {
            fill(bias, N, 5);
            set_floats(sessions[0], "bias", "80", bias);
        } else if (round == 2) {
            CHECK_OK(sbit_session_set_input(sessions[0], "q", &changed, &error), error);
        }
        for (int s = 0; s < 2; s++) {
            const int8_t *weights = s == 0 && round == 2 ? other : q;
            for (int j = 0; j < N; j++) {
                double sum = s == 0 && round > 0 ? (double)bias[j] : 0.0;
                for (int k = 0; k < N; k++) {
                    sum += (double)x[k] * 0.5 * weights[k * N + j];
                }
                want[j] = (float)sum;
            }
            CHECK_OK(sbit_session_run(sessions[s], &error), error);
            check_floats(floats_of(sessions[s], 0), want, N, 1e-3);
        }
    }
    sbit_session_destroy(sessions[0]);
    sbit_session_destroy(sessions[1]);
    sbit_program_destroy(program);
    build_end(&b);
}

#ifndef _WIN32
typedef struct shared_run {
    const sbit_program *program;
    float x[2 * 8], y[2 * 4];
    int failures;
} shared_run;

static void *run_shared(void *user)
{
    shared_run *run = (shared_run *)user;
    sbit_session *session = NULL;
    sbit_error error;
    const sbit_tensor tensor = build_tensor(SBIT_F32, "2,8", run->x);
    run->failures = sbit_session_create_for(run->program, NULL, &session, &error) != SBIT_OK;
    for (int i = 0; i < 50 && run->failures == 0; i++) {
        run->failures += sbit_session_set_input(session, "x", &tensor, &error) != SBIT_OK ||
                         sbit_session_run(session, &error) != SBIT_OK;
    }
    if (run->failures == 0) {
        memcpy(run->y, sbit_session_output(session, 0)->tensor.data, sizeof run->y);
    }
    sbit_session_destroy(session);
    return NULL;
}

typedef struct tap_log {
    uint32_t ids[8];
    float first[8];
    int count, stop_at;
} tap_log;

static sbit_status log_tap(const sbit_graph *graph, sbit_value_id id, const sbit_value *value,
                           void *user, sbit_error *error)
{
    (void)graph;
    tap_log *log = (tap_log *)user;
    (void)error;
    if (log->count < 8) {
        log->ids[log->count] = id.idx;
        log->first[log->count] = *(const float *)value->tensor.data;
    }
    log->count++;
    return log->count == log->stop_at ? SBIT_ERR_CANCELLED : SBIT_OK;
}

/* desc.release_weights: the graph's blocks go with the last node that packs them, and no others. */
TEST(packed_weights_are_freed_in_the_graph)
{
    enum {
        W = 32 * 16 * 9
    };
    static float x[16 * 64], want[32 * 64];
    test_heap heap = {0, 0, 0, 0};
    sbit_value_id in[2], w, wide;
    int64_t live[2] = {0, 0};
    sbit_ctx_desc desc;
    build b;
    memset(&b, 0, sizeof b);
    memset(&desc, 0, sizeof desc);
    desc.allocator = test_heap_allocator(&heap);
    build_do(&b, sbit_ctx_create(&desc, &b.ctx, &b.error), "context");
    build_do(&b, sbit_graph_create(b.ctx, 17, &b.graph, &b.error), "graph");
    in[0] = build_input(&b, "x", SBIT_F32, "1,16,8,8");
    w = in[1] = build_weights(&b, "w", "32,16,3,3", 1);
    sbit_value_id y = build_node(&b, "Conv", "conv", in, 2, NULL, 0);
    in[0] = y;
    wide = in[1] = build_weights(&b, "a", "1,32,6,6", 2);
    build_output(&b, build_node(&b, "Mul", "mul", in, 2, NULL, 0)); /* packs nothing */
    fill(x, 16 * 64, 3);
    for (int release = 0; release < 2; release++) {
        const int64_t before = heap.live_bytes;
        sbit_session_desc how;
        sbit_program *program = NULL;
        sbit_session *session = NULL;
        memset(&how, 0, sizeof how);
        how.release_weights = release == 1;
        CHECK_OK(sbit_program_create(b.graph, &how, &program, &b.error), b.error);
        live[release] = heap.live_bytes - before;
        CHECK_OK(sbit_session_create_for(program, NULL, &session, &b.error), b.error);
        set_floats(session, "x", "1,16,8,8", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        const sbit_tensor *out = &sbit_session_output(session, 0)->tensor;
        if (release == 0) {
            memcpy(want, out->data, sbit_tensor_bytes(out));
        } else {
            CHECK(memcmp(want, out->data, sbit_tensor_bytes(out)) == 0);
        }
        CHECK_EQ_I64(sbit_graph_value(b.graph, w)->constant.data == NULL, release);
        CHECK(sbit_graph_value(b.graph, wide)->constant.data != NULL);
        sbit_session_destroy(session);
        sbit_program_destroy(program);
    }
    CHECK_EQ_I64((live[0] - live[1]) / 4, W + 16); /* an aligned block */
    build_end(&b);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

/* What only a tap reads again keeps its constant; what fails half way is not begun again. */
TEST(freed_constants_are_not_read)
{
    static float x[16 * 64];
    for (int64_t n = 0; n < 400; n++) {
        test_heap heap;
        sbit_value_id in[2], tap;
        sbit_session_desc how;
        sbit_ctx_desc desc;
        tap_log log;
        build b;
        memset(&b, 0, sizeof b);
        memset(&desc, 0, sizeof desc);
        memset(&heap, 0, sizeof heap);
        memset(&how, 0, sizeof how);
        memset(&log, 0, sizeof log);
        desc.allocator = test_heap_allocator(&heap);
        build_do(&b, sbit_ctx_create(&desc, &b.ctx, &b.error), "context");
        build_do(&b, sbit_graph_create(b.ctx, 17, &b.graph, &b.error), "graph");
        in[0] = build_input(&b, "x", SBIT_F32, "1,16,8,8");
        in[1] = build_weights(&b, "w", "32,16,3,3", 1);
        const sbit_value_id first = build_node(&b, "Conv", "a", in, 2, NULL, 0);
        in[0] = build_unary(&b, "Neg", "minus", in[0]);
        tap = build_node(&b, "Conv", "b", in, 2, NULL, 0);
        build_output(&b, first);
        in[0] = first;
        for (int i = 0; i < 2; i++) { /* freed one after the other */
            in[1] = build_weights(&b, i == 0 ? "v" : "u", "32,32,3,3", 2);
            in[0] = build_node(&b, "Conv", i == 0 ? "c" : "d", in, 2, NULL, 0);
        }
        build_output(&b, in[0]);
        how.release_weights = true;
        how.taps = &tap;
        how.tap_count = 1;
        how.tap_fn = log_tap;
        how.tap_user = &log;
        sbit_session *session = NULL;
        CHECK_OK(sbit_session_create(b.graph, &how, &session, &b.error), b.error);
        fill(x, 16 * 64, 3);
        set_floats(session, "x", "1,16,8,8", x);
        heap.count = 0;
        heap.fail_at = n;
        const sbit_status status = sbit_session_run(session, &b.error);
        heap.fail_at = 0;
        if (status == SBIT_OK) {
            const float *out = floats_of(session, 0);
            CHECK_EQ_I64(log.count, 1);
            CHECK_NEAR(log.first[0], -out[0], 1e-5);
        } else {
            CHECK_EQ_I64(status, SBIT_ERR_OUT_OF_MEMORY);
            const sbit_status again = sbit_session_run(session, &b.error);
            CHECK(again == SBIT_OK || again == SBIT_ERR_STATE);
        }
        sbit_session_destroy(session);
        build_end(&b);
        if (n > 0 && status == SBIT_OK) {
            CHECK(n > 10);
            return;
        }
    }
    CHECK_MSG(false, "too many allocations");
}

/* Two threads, a session each, one program (-fsanitize=thread finds nothing to say). */
TEST(threads_share_a_program)
{
    build b;
    sbit_program *program = NULL;
    static shared_run runs[3];
    pthread_t threads[2];
    sbit_value_id in[3];
    sbit_error error;
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_F32, "n,8");
    in[1] = build_weights(&b, "w", "8,4", 1);
    in[2] = build_weights(&b, "b", "4", 2);
    build_output(&b, build_unary(&b, "Relu", "r", build_node(&b, "Gemm", "g", in, 3, NULL, 0)));
    if (CHECK_OK(sbit_program_create(b.graph, NULL, &program, &error), error)) {
        for (int i = 0; i < 3; i++) {
            runs[i].program = program;
            fill(runs[i].x, 16, (uint64_t)(i == 2 ? 1 : i));
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

/* A result that is a view of what the caller feeds is copied into memory that was planned. */
TEST(copies_of_inputs_are_planned)
{
    build b;
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx_desc ctx_desc;
    sbit_session *session = NULL;
    static const int64_t flat[1] = {8};
    static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    memset(&b, 0, sizeof b);
    memset(&ctx_desc, 0, sizeof ctx_desc);
    ctx_desc.allocator = test_heap_allocator(&heap);
    CHECK_OK(sbit_ctx_create(&ctx_desc, &b.ctx, &b.error), b.error);
    CHECK_OK(sbit_graph_create(b.ctx, 17, &b.graph, &b.error), b.error);
    build_output(&b, build_binary(&b, "Reshape", "view", build_input(&b, "x", SBIT_F32, "2,4"),
                                  build_constant(&b, "flat", SBIT_I64, "1", flat)));
    if (CHECK_OK(sbit_session_create(b.graph, NULL, &session, &b.error), b.error)) {
        set_floats(session, "x", "2,4", x);
        CHECK_OK(sbit_session_plan(session, &b.error), b.error);
        const int64_t count = heap.count;
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(heap.count, count);
        CHECK(floats_of(session, 0) != x);
        check_floats(floats_of(session, 0), x, 8, 0.0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* ---- fusion */

typedef sbit_value_id (*tail_fn)(build *b, sbit_value_id x, sbit_value_id residual);

static sbit_value_id tail_relu(build *b, sbit_value_id x, sbit_value_id residual)
{
    (void)residual;
    return build_unary(b, "Relu", "tail", x);
}
static sbit_value_id tail_clip(build *b, sbit_value_id x, sbit_value_id residual)
{
    static const float lo = -0.25f, hi = 0.5f;
    sbit_value_id in[3];
    (void)residual;
    in[0] = x;
    in[1] = build_constant(b, "lo", SBIT_F32, "", &lo);
    in[2] = build_constant(b, "hi", SBIT_F32, "", &hi);
    return build_node(b, "Clip", "tail", in, 3, NULL, 0);
}
/* The three orders in which exporters write Gelu, and one that is none: 2 is added. */
static sbit_value_id gelu_of(build *b, sbit_value_id x, int order)
{
    static const float ones[4] = {1.41421356f, 0.70710678f, 0.5f, 1.0f}, two = 2.0f;
    const sbit_value_id half = build_constant(b, "half", SBIT_F32, "", &ones[2]);
    const sbit_value_id one = build_constant(b, "one", SBIT_F32, "", order == 3 ? &two : &ones[3]);
    const sbit_value_id by = build_constant(b, "by", SBIT_F32, "", &ones[order == 1]);
    sbit_value_id y = build_binary(b, order == 1 ? "Mul" : "Div", "root", x, by);
    y = build_binary(b, "Add", "plus", build_unary(b, "Erf", "erf", y), one);
    return order == 1   ? build_binary(b, "Mul", "last", x, build_binary(b, "Mul", "half_of", y, half))
           : order == 2 ? build_binary(b, "Mul", "last", build_binary(b, "Mul", "half_of", half, x), y)
                        : build_binary(b, "Mul", "last", build_binary(b, "Mul", "times", x, y), half);
}

/* Gelu's constants may have more dims than x, which the result then has. */
TEST(gelu_keeps_the_dims_that_constants_add)
{
    const float root = 1.41421356f, one = 1.0f, half = 0.5f;
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,4");
    sbit_value_id y = build_binary(&b, "Div", "d", x, build_constant(&b, "root", SBIT_F32, "1,1,1", &root));
    y = build_binary(&b, "Add", "a", build_unary(&b, "Erf", "e", y), build_constant(&b, "one", SBIT_F32, "1", &one));
    y = build_binary(&b, "Mul", "h", build_binary(&b, "Mul", "m", x, y), build_constant(&b, "half", SBIT_F32, "1", &half));
    build_output(&b, y);
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        static float values[8];
        fill(values, 8, 7);
        set_floats(session, "x", "2,4", values);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.rank, 3);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(products_take_their_bias_and_gelu)
{
    enum {
        ROWS = 10,
        N = 24
    };
    static float x[ROWS * N], plain[ROWS * N];
    for (int order = 0; order < 4; order++) {
        for (int fuse = 0; fuse < 2; fuse++) {
            build b;
            sbit_session_desc desc;
            sbit_node_profile nodes[16];
            sbit_value_id in[2];
            build_begin(&b, 17);
            const sbit_value_id from = build_input(&b, "x", SBIT_F32, "2,5,24");
            in[0] = from;
            in[1] = build_weights(&b, "w", "24,24", 1);
            in[0] = build_node(&b, "MatMul", "product", in, 2, NULL, 0);
            in[1] = build_weights(&b, "bias", "24", 2);
            in[0] = build_node(&b, "Add", "biased", in, 2, NULL, 0);
            in[0] = build_binary(&b, "Add", "sum", from, in[0]);
            build_output(&b, gelu_of(&b, in[0], order));
            memset(&desc, 0, sizeof desc);
            desc.disable_fusion = fuse == 0;
            desc.profile = true;
            sbit_session *session = session_of(&b, &desc);
            if (session != NULL) {
                size_t joined = 0;
                fill(x, ROWS * N, 7);
                set_floats(session, "x", "2,5,24", x);
                CHECK_OK(sbit_session_run(session, &b.error), b.error);
                const size_t count = sbit_session_profile(session, nodes, 16);
                for (size_t i = 0; i < count && i < 16; i++) {
                    joined += nodes[i].fused_into.idx != 0;
                }
                CHECK_EQ_I64(joined, fuse == 0 ? 0 : order == 3 ? 2 : 7);
                if (fuse == 0) {
                    memcpy(plain, floats_of(session, 0), sizeof plain);
                } else {
                    check_floats(floats_of(session, 0), plain, ROWS * N, order == 3 ? 0.0 : 1e-6);
                }
            }
            sbit_session_destroy(session);
            build_end(&b);
        }
    }
}

static sbit_value_id tail_hardswish(build *b, sbit_value_id x, sbit_value_id residual)
{
    (void)residual;
    return build_unary(b, "HardSwish", "tail", x);
}
static sbit_value_id tail_leaky(build *b, sbit_value_id x, sbit_value_id residual)
{
    const sbit_attr alpha = build_float("alpha", 0.3f);
    (void)residual;
    return build_node(b, "LeakyRelu", "tail", &x, 1, &alpha, 1);
}
static sbit_value_id tail_silu(build *b, sbit_value_id x, sbit_value_id residual)
{
    (void)residual;
    return build_binary(b, "Mul", "tail", x, build_unary(b, "Sigmoid", "gate", x));
}
static sbit_value_id tail_gated(build *b, sbit_value_id x, sbit_value_id residual)
{
    const sbit_attr alpha = build_float("alpha", 1.0f / 6.0f);
    (void)residual;
    const sbit_value_id gate = build_node(b, "HardSigmoid", "gate", &x, 1, &alpha, 1);
    return build_binary(b, "Mul", "tail", gate, x);
}
static sbit_value_id tail_add(build *b, sbit_value_id x, sbit_value_id residual)
{
    return build_binary(b, "Add", "tail", residual, x);
}
static sbit_value_id tail_add_relu(build *b, sbit_value_id x, sbit_value_id residual)
{
    return build_unary(b, "Relu", "last", build_binary(b, "Add", "tail", x, residual));
}

/* x - Conv - Conv - tail(., first Conv) with and without fusion; *steps: nodes that ran fused. */
static void run_tail(tail_fn tail, bool disable_fusion, float *out, int *fused)
{
    build b;
    sbit_session_desc desc;
    sbit_node_profile nodes[16];
    float x[2 * 3 * 6 * 5];
    static const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attr = build_ints("pads", pads, 4);
    sbit_value_id in[2];
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_F32, "N,3,6,5");
    in[1] = build_weights(&b, "w", "7,3,3,3", 1);
    const sbit_value_id first = build_node(&b, "Conv", "first", in, 2, &attr, 1);
    in[0] = first;
    in[1] = build_weights(&b, "v", "7,7,3,3", 2);
    const sbit_value_id second = build_node(&b, "Conv", "second", in, 2, &attr, 1);
    build_output(&b, tail(&b, second, first));
    memset(&desc, 0, sizeof desc);
    desc.disable_fusion = disable_fusion;
    desc.profile = true;
    sbit_session *session = session_of(&b, &desc);
    *fused = 0;
    if (session != NULL) {
        fill(x, 2 * 3 * 6 * 5, 7);
        set_floats(session, "x", "2,3,6,5", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        memcpy(out, floats_of(session, 0), 2 * 7 * 6 * 5 * sizeof(float));
        const size_t count = sbit_session_profile(session, nodes, 16);
        CHECK(count >= 3 && count <= 16);
        for (size_t i = 0; i < count; i++) {
            const bool joined = nodes[i].fused_into.idx != 0;
            CHECK_EQ_I64(nodes[i].runs, joined ? 0 : 1);
            *fused += joined;
            if (joined) {
                CHECK_STR(sbit_graph_node(b.graph, nodes[i].fused_into)->name, "second");
            }
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(fused_equals_unfused)
{
    static const struct {
        tail_fn tail;
        int nodes;
    } tails[] = {{tail_relu, 1}, {tail_clip, 1},  {tail_hardswish, 1}, {tail_leaky, 1},
                 {tail_silu, 2}, {tail_gated, 2}, {tail_add, 1},       {tail_add_relu, 2}};
    static float fused[2 * 7 * 6 * 5], plain[2 * 7 * 6 * 5];
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        int count = 0, none = 0;
        run_tail(tails[i].tail, false, fused, &count);
        run_tail(tails[i].tail, true, plain, &none);
        CHECK_EQ_I64(count, tails[i].nodes);
        CHECK_EQ_I64(none, 0);
        check_floats(fused, plain, 2 * 7 * 6 * 5, 4e-6);
    }
}

/* x [1,16,9,10] - Pad - Conv - Relu - MaxPool - GlobalAveragePool: output and the rows that ran. */
static void run_chain(const sbit_session_desc *desc, float *out, char *rows, size_t capacity)
{
    build b;
    sbit_node_profile nodes[16];
    static float x[16 * 9 * 10];
    static const int64_t pads[8] = {0, 0, 1, 0, 0, 0, 1, 2}, own[4] = {0, 1, 0, 0};
    static const int64_t kernel[2] = {2, 2};
    const sbit_attr attr = build_ints("pads", own, 4);
    const sbit_attr window = build_ints("kernel_shape", kernel, 2);
    sbit_value_id in[2];
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_F32, "N,16,9,10");
    in[1] = build_constant(&b, "pads", SBIT_I64, "8", pads);
    in[0] = build_binary(&b, "Pad", "pad", in[0], in[1]);
    in[1] = build_weights(&b, "w", "20,16,3,3", 1);
    in[0] = build_unary(&b, "Relu", "relu", build_node(&b, "Conv", "conv", in, 2, &attr, 1));
    in[0] = build_node(&b, "MaxPool", "pool", in, 1, &window, 1);
    build_output(&b, build_unary(&b, "GlobalAveragePool", "mean", in[0]));
    sbit_session *session = session_of(&b, desc);
    rows[0] = '\0';
    if (session != NULL) {
        fill(x, 16 * 9 * 10, 7);
        set_floats(session, "x", "1,16,9,10", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        memcpy(out, floats_of(session, 0), 20 * sizeof(float));
        const size_t count = sbit_session_profile(session, nodes, 16);
        for (size_t i = 0; i < count && i < 16; i++) {
            const sbit_node *node = nodes[i].lowered;
            if (nodes[i].fused_into.idx == 0) {
                const size_t used = strlen(rows);
                snprintf(rows + used, capacity - used, "%s%s%d", used > 0 ? " " : "",
                         node->op_type, (int)sbit_node_int(node, "winograd", 0));
            }
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(float_chains_run_with_channels_last)
{
    static float fast[20], exact[20], plain[20];
    char rows[256];
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    run_chain(&desc, fast, rows, sizeof rows);
    CHECK_STR(rows, "ConvLast2 MaxPoolLast0 GlobalAveragePoolLast0");
    desc.disable_integers = true; /* a simulation is of what ONNX defines */
    run_chain(&desc, plain, rows, sizeof rows);
    CHECK_STR(rows, "Conv0 MaxPool0 GlobalAveragePool0");
    desc.disable_integers = false;
    desc.exact = true;
    run_chain(&desc, exact, rows, sizeof rows);
    CHECK_STR(rows, "ConvLast0 MaxPoolLast0 GlobalAveragePoolLast0");
    desc.disable_fusion = true;
    run_chain(&desc, plain, rows, sizeof rows);
    CHECK_STR(rows, "Pad0 Conv0 Relu0 MaxPool0 GlobalAveragePool0");
    check_floats(exact, plain, 20, 4e-6);
    check_floats(fast, plain, 20, 2e-5);
}

/* Of a graph's input with few channels windows are gathered from its planes: nothing turns it. */
TEST(convolutions_read_few_planes_in_place)
{
    static const struct {
        const char *x, *w, *dims;
        int64_t attrs[3][3]; /* strides, dilations, pads in front and behind, by axis */
        int64_t axes, in, out;
    } cases[] = {
        {"N,3,9,21", "18,3,3,3", "2,3,9,21", {{2, 2}, {1, 1}, {1, 1}}, 2, 2 * 3 * 9 * 21, 2 * 18 * 5 * 11},
        {"1,1,7,6", "5,1,2,3", "1,1,7,6", {{1, 1}, {2, 1}, {0, 2}}, 2, 42, 5 * 5 * 8},
        {"2,5,13", "4,5,5", "2,5,13", {{3}, {1}, {2}}, 1, 2 * 5 * 13, 2 * 4 * 5},
        {"1,8,4,5,9", "6,8,2,3,3", "1,8,4,5,9", {{1, 2, 1}, {2, 1, 1}, {1, 0, 1}}, 3, 1440, 6 * 4 * 2 * 9}};
    static float x[1440], fused[2 * 18 * 5 * 11], plain[2 * 18 * 5 * 11];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int pass = 0; pass < 2; pass++) {
            build b;
            sbit_session_desc desc;
            sbit_node_profile nodes[4];
            int64_t pads[6];
            sbit_attr attrs[3];
            sbit_value_id in[2];
            for (int64_t k = 0; k < cases[i].axes; k++) {
                pads[k] = pads[cases[i].axes + k] = cases[i].attrs[2][k];
            }
            attrs[0] = build_ints("strides", cases[i].attrs[0], (size_t)cases[i].axes);
            attrs[1] = build_ints("dilations", cases[i].attrs[1], (size_t)cases[i].axes);
            attrs[2] = build_ints("pads", pads, 2 * (size_t)cases[i].axes);
            build_begin(&b, 17);
            in[0] = build_input(&b, "x", SBIT_F32, cases[i].x);
            in[1] = build_weights(&b, "w", cases[i].w, 1);
            build_output(&b, build_node(&b, "Conv", "conv", in, 2, attrs, 3));
            memset(&desc, 0, sizeof desc);
            desc.disable_fusion = pass == 1;
            sbit_session *session = session_of(&b, &desc);
            if (session != NULL) {
                fill(x, 1440, 7);
                set_floats(session, "x", cases[i].dims, x);
                CHECK_OK(sbit_session_run(session, &b.error), b.error);
                memcpy(pass == 0 ? fused : plain, floats_of(session, 0), (size_t)cases[i].out * sizeof x[0]);
                CHECK_EQ_I64(sbit_session_profile(session, nodes, 4), 1);
                CHECK_EQ_I64(sbit_node_int(nodes[0].lowered, "first", 0), 1 - pass);
            }
            sbit_session_destroy(session);
            build_end(&b);
        }
        check_floats(fused, plain, cases[i].out, 4e-6);
    }
}

/* Planes in the padding are not read; nor is anything planned for rows that are not there. */
TEST(convolutions_with_padding_in_depth_and_without_rows)
{
    static const int64_t pads[6] = {1, 1, 1, 1, 1, 1}, strides[2] = {3, 1};
    static float x[2 * 8 * 3 * 4 * 5], out[2][2 * 8 * 5 * 4 * 5];
    for (int pass = 0; pass < 3; pass++) {
        build b;
        sbit_session_desc desc;
        sbit_value_id in[2];
        const bool rows = pass < 2;
        const sbit_attr attrs[2] = {rows ? build_ints("pads", pads, 6) : build_ints("strides", strides, 2),
                                    build_int("group", rows ? 8 : 1)};
        build_begin(&b, 17);
        in[0] = build_input(&b, "x", SBIT_F32, rows ? "2,8,3,4,5" : "1,3,0,8");
        in[1] = build_weights(&b, "w", rows ? "8,1,1,3,3" : "5,3,1,3", 1);
        build_output(&b, build_node(&b, "Conv", "conv", in, 2, attrs, 2));
        memset(&desc, 0, sizeof desc);
        desc.disable_fusion = pass == 1;
        sbit_session *session = session_of(&b, &desc);
        if (session != NULL) {
            fill(x, 2 * 8 * 3 * 4 * 5, 7);
            set_floats(session, "x", rows ? "2,8,3,4,5" : "1,3,0,8", x);
            if (CHECK_OK(sbit_session_run(session, &b.error), b.error) && rows) {
                memcpy(out[pass], floats_of(session, 0), sizeof out[pass]);
            }
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
    check_floats(out[0], out[1], 2 * 8 * 5 * 4 * 5, 4e-6);
}

/* x [N,L,3 H D] - heads apart - softmax(scale q k') v - heads side by side. form: parts by Gather, scale
 * at q, by Div. look: the weights are a result too. *fused: nodes of Attention. */
static void run_heads(int64_t n, int64_t length, int64_t heads, int64_t size, int form, bool look, bool plain,
                      int32_t threads, float *out, int *fused)
{
    static const int64_t turn[5] = {2, 0, 3, 1, 4}, keys[4] = {0, 1, 3, 2}, back[4] = {0, 2, 1, 3};
    static const int64_t numbers[4] = {0, 1, 2, 3};
    static float x[2 * 70 * 3 * 3 * 4];
    build b;
    sbit_session_desc desc;
    sbit_node_profile nodes[32];
    char dims[48];
    const float scale = form == 2 ? 2.0f : 0.4f;
    const sbit_attr by_turn = build_ints("perm", turn, 5), by_keys = build_ints("perm", keys, 4);
    const sbit_attr by_back = build_ints("perm", back, 4), axis = build_int("axis", -1);
    sbit_value_id in[4], part[3];
    build_begin_threads(&b, 17, threads);
    snprintf(dims, sizeof dims, "N,L,%d", (int)(3 * heads * size));
    in[0] = build_input(&b, "x", SBIT_F32, dims);
    const int64_t apart[5] = {0, 0, 3, heads, size}, join[3] = {0, 0, heads * size};
    in[0] = build_binary(&b, "Reshape", "apart", in[0], build_constant(&b, "a", SBIT_I64, "5", apart));
    const sbit_value_id parts = build_node(&b, "Transpose", "turn", in, 1, &by_turn, 1);
    const sbit_value_id by = build_constant(&b, "scale", SBIT_F32, "", &scale);
    for (int i = 0; i < 3; i++) {
        in[0] = parts;
        in[1] = build_constant(&b, "from", SBIT_I64, form == 1 ? "" : "1", &numbers[i]);
        in[2] = build_constant(&b, "to", SBIT_I64, "1", &numbers[i + 1]);
        in[3] = build_constant(&b, "axes", SBIT_I64, "1", &numbers[0]);
        part[i] = form == 1 ? build_node(&b, "Gather", "part", in, 2, NULL, 0)
                            : build_binary(&b, "Squeeze", "part", build_node(&b, "Slice", "slice", in, 4, NULL, 0), in[3]);
    }
    part[0] = form == 1 ? build_binary(&b, "Mul", "q", by, part[0]) : part[0];
    part[1] = build_node(&b, "Transpose", "keys", &part[1], 1, &by_keys, 1);
    in[0] = build_binary(&b, "MatMul", "scores", part[0], part[1]);
    in[0] = form == 1 ? in[0] : build_binary(&b, form == 2 ? "Div" : "Mul", "scaled", in[0], by);
    in[0] = build_node(&b, "Softmax", "weights", in, 1, &axis, form == 1 ? 0 : 1); /* the default is the last */
    const sbit_value_id weights = in[0];
    in[0] = build_binary(&b, "MatMul", "values", in[0], part[2]);
    in[0] = build_node(&b, "Transpose", "back", in, 1, &by_back, 1);
    build_output(&b, build_binary(&b, "Reshape", "join", in[0], build_constant(&b, "j", SBIT_I64, "3", join)));
    if (look) {
        build_output(&b, weights);
    }
    memset(&desc, 0, sizeof desc);
    desc.disable_fusion = plain;
    sbit_session *session = session_of(&b, &desc);
    *fused = 0;
    if (session != NULL) {
        fill(x, n * length * 3 * heads * size, 7);
        snprintf(dims, sizeof dims, "%d,%d,%d", (int)n, (int)length, (int)(3 * heads * size));
        set_floats(session, "x", dims, x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        memcpy(out, floats_of(session, 0), (size_t)(n * length * heads * size) * sizeof(float));
        const size_t count = sbit_session_profile(session, nodes, 32);
        for (size_t i = 0; i < count && i < 32; i++) {
            *fused += nodes[i].fused_into.idx == 0 && strcmp(nodes[i].lowered->op_type, "Attention") == 0;
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(heads_of_attention_are_read_in_place)
{
    static float fused[2 * 70 * 3 * 4], plain[2 * 70 * 3 * 4], threaded[2 * 70 * 3 * 4];
    int count = 0;
    for (int form = 0; form < 3; form++) {
        run_heads(2, 5, 2, 3, form, false, false, 1, fused, &count);
        CHECK_EQ_I64(count, 1);
        run_heads(2, 5, 2, 3, form, false, true, 1, plain, &count);
        CHECK_EQ_I64(count, 0);
        check_floats(fused, plain, 2 * 5 * 2 * 3, 2e-6);
    }
    run_heads(2, 5, 2, 3, 0, true, false, 1, fused, &count); /* somebody looks at the weights */
    CHECK_EQ_I64(count, 0);
    run_heads(1, 70, 3, 4, 0, false, true, 1, plain, &count);
    run_heads(1, 70, 3, 4, 0, false, false, 1, fused, &count);
    run_heads(1, 70, 3, 4, 0, false, false, 2, threaded, &count);
    CHECK_EQ_I64(count, 1);
    check_floats(fused, plain, 70 * 3 * 4, 2e-6);
    CHECK_MEM(fused, threaded, 70 * 3 * 4 * sizeof(float));
}

/* x [1,8,6,5] - Conv - Resize - two Conv - channel shuffle - Split: a Conv and a ReduceMean, a Transpose
 * to channels last. *moves: nodes that only move elements and ran. */
static void run_shuffle(bool plain, float *out, int *moves, int *shuffles)
{
    build b;
    sbit_session_desc desc;
    sbit_node_profile nodes[32];
    static float x[8 * 6 * 5];
    static const float scales[4] = {1, 1, 2, 2};
    static const int64_t apart[5] = {1, 2, 6, 12, 10}, back[4] = {1, 12, 12, 10}, sizes[2] = {6, 6};
    static const int64_t turn[5] = {0, 2, 1, 3, 4}, last[4] = {0, 2, 3, 1}, spatial[2] = {2, 3};
    const sbit_attr by = build_ints("perm", turn, 5), to = build_ints("perm", last, 4);
    const sbit_attr over = build_ints("axes", spatial, 2), axis = build_int("axis", 1);
    sbit_value_id in[3], halves[2];
    memset(&desc, 0, sizeof desc);
    desc.disable_fusion = plain;
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_F32, "1,8,6,5");
    in[0] = build_binary(&b, "Conv", "first", in[0], build_weights(&b, "w", "12,8,1,1", 1));
    in[1].idx = 0;
    in[2] = build_constant(&b, "scales", SBIT_F32, "4", scales);
    in[0] = build_node(&b, "Resize", "resize", in, 3, NULL, 0);
    in[1] = build_binary(&b, "Conv", "a", in[0], build_weights(&b, "wa", "6,12,1,1", 2));
    in[0] = build_binary(&b, "Conv", "b", in[0], build_weights(&b, "wb", "6,12,1,1", 3));
    in[0] = build_node(&b, "Concat", "join", in, 2, &axis, 1);
    in[0] = build_binary(&b, "Reshape", "apart", in[0],
                         build_constant(&b, "s", SBIT_I64, "5", apart));
    in[0] = build_node(&b, "Transpose", "turn", in, 1, &by, 1);
    in[0] = build_binary(&b, "Reshape", "back", in[0],
                         build_constant(&b, "t", SBIT_I64, "4", back));
    in[1] = build_constant(&b, "sizes", SBIT_I64, "2", sizes);
    build_node_outputs(&b, "", "Split", "split", in, 2, &axis, 1, halves, 2);
    in[0] = build_binary(&b, "Conv", "c", halves[0], build_weights(&b, "wc", "20,6,3,3", 4));
    build_output(&b, build_node(&b, "ReduceMean", "mean", in, 1, &over, 1));
    in[0] = build_binary(&b, "Conv", "d", halves[1], build_weights(&b, "wd", "20,6,1,1", 5));
    build_output(&b, build_node(&b, "Transpose", "last", in, 1, &to, 1));
    sbit_session *session = session_of(&b, &desc);
    *moves = *shuffles = 0;
    if (session != NULL) {
        fill(x, 8 * 6 * 5, 7);
        set_floats(session, "x", "1,8,6,5", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        memcpy(out, floats_of(session, 0), 20 * sizeof(float));
        memcpy(out + 20, floats_of(session, 1), 20 * 12 * 10 * sizeof(float));
        const size_t count = sbit_session_profile(session, nodes, 32);
        for (size_t i = 0; i < count && i < 32; i++) {
            const char *op = nodes[i].fused_into.idx == 0 ? nodes[i].lowered->op_type : "";
            *moves += strcmp(op, "Split") == 0 || strcmp(op, "Reshape") == 0 ||
                      strcmp(op, "Transpose") == 0 || strcmp(op, "ReduceMean") == 0;
            *shuffles += strcmp(op, "ShuffleLast") == 0 || strcmp(op, "Identity") == 0 ||
                         strcmp(op, "GlobalAveragePoolLast") == 0;
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(shuffles_resizes_and_means_run_with_channels_last)
{
    static float fast[20 + 20 * 12 * 10], plain[20 + 20 * 12 * 10];
    int moves = 0, shuffles = 0;
    run_shuffle(true, plain, &moves, &shuffles);
    CHECK_EQ_I64(moves, 6);
    CHECK_EQ_I64(shuffles, 0);
    run_shuffle(false, fast, &moves, &shuffles);
    CHECK_EQ_I64(moves, 0);
    CHECK_EQ_I64(shuffles, 3);
    check_floats(fast, plain, 20 + 20 * 12 * 10, 2e-5);
}

/* x [N,16,H,W] of `declared` shape - Conv 3 x 3 with `weights`: what it was lowered to. */
static sbit_session *square_session(build *b, const char *declared, const char *weights, const sbit_value_shape *shape)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attr = build_ints("pads", pads, 4);
    sbit_session_desc desc;
    sbit_value_shape own;
    sbit_value_id in[2];
    build_begin(b, 17);
    in[0] = build_input(b, "x", SBIT_F32, declared);
    in[1] = build_weights(b, "w", weights, 1);
    memset(&desc, 0, sizeof desc);
    if (shape != NULL) {
        own = *shape;
        own.id = in[0];
        desc.shapes = &own;
        desc.shape_count = 1;
    }
    build_output(b, build_node(b, "Conv", "conv", in, 2, &attr, 1));
    return session_of(b, &desc);
}

static int64_t square_winograd(const sbit_session *session)
{
    sbit_node_profile node;
    CHECK_EQ_I64(sbit_session_profile(session, &node, 1), 1);
    return sbit_node_int(node.lowered, "winograd", 0);
}

/* A 1x1 Conv, 144 to 144 channels, with a bias; every `apart`th weight is not 0. */
static void few_weights(build *b, int64_t apart)
{
    static float w[144 * 144], bias[144];
    sbit_value_id in[3];
    fill(w, 144 * 144, 5);
    fill(bias, 144, 7);
    for (int64_t i = 0; i < 144 * 144; i++) {
        w[i] = i % apart == 0 ? w[i] : 0.0f;
    }
    in[0] = build_input(b, "few", SBIT_F32, "1,144,7,10");
    in[1] = build_constant(b, "w", SBIT_F32, "144,144,1,1", w);
    in[2] = build_constant(b, "bias", SBIT_F32, "144", bias);
    build_output(b, build_unary(b, "Relu", "relu", build_node(b, "Conv", "conv", in, 3, NULL, 0)));
}

/* What it is lowered to. */
static int64_t run_few_weights(bool exact, int64_t apart, int32_t threads, float *y)
{
    static float x[144 * 7 * 10];
    sbit_session_desc desc;
    sbit_node_profile node;
    build b;
    fill(x, 144 * 7 * 10, 6);
    build_begin_threads(&b, 17, threads);
    few_weights(&b, apart);
    memset(&desc, 0, sizeof desc);
    desc.exact = exact;
    sbit_session *session = session_of(&b, &desc);
    int64_t nonzeros = -2;
    if (session != NULL) {
        set_floats(session, "few", "1,144,7,10", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        memcpy(y, floats_of(session, 0), 144 * 7 * 10 * sizeof(float));
        if (CHECK(sbit_session_profile(session, &node, 1) > 0)) {
            nonzeros = sbit_node_int(node.lowered, "nonzeros", -1);
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
    return nonzeros;
}

TEST(few_weights_are_a_list)
{
    static float list[144 * 7 * 10], same[144 * 7 * 10], panels[144 * 7 * 10];
    CHECK_EQ_I64(run_few_weights(false, 13, 1, list), (144 * 144 + 12) / 13);
    CHECK_EQ_I64(run_few_weights(false, 13, 3, same), (144 * 144 + 12) / 13);
    CHECK(memcmp(list, same, sizeof list) == 0);
    CHECK_EQ_I64(run_few_weights(true, 13, 1, panels), -1);
    check_floats(list, panels, 144 * 7 * 10, 2e-5);
    CHECK_EQ_I64(run_few_weights(false, 2, 1, panels), -1);
}

static void square_run(sbit_session *session, const char *dims, const float *x, float *y)
{
    sbit_error error;
    set_floats(session, "x", dims, x);
    CHECK_OK(sbit_session_run(session, &error), error);
    const sbit_value *out = sbit_session_output(session, 0);
    if (CHECK(out != NULL)) {
        memcpy(y, out->tensor.data, sbit_tensor_bytes(&out->tensor));
    }
}

TEST(expected_shapes_choose_as_fixed_ones_do)
{
    static const char *const open_dims = "N,16,H,W", *const large = "2,16,9,10", *const many = "12,16,4,4";
    static const sbit_value_shape small = {{0}, 4, {1, 16, 4, 4}};
    static const char *const dims[] = {"1,16,4,4", "N,16,H,W"}, *const wide = "20,16,3,3";
    static float x[2 * 16 * 9 * 10], y[2][20 * 4 * 4], z[2][2 * 20 * 9 * 10];
    sbit_session_memory told[2];
    build b[2], c;
    fill(x, 2 * 16 * 9 * 10, 3);
    for (int i = 0; i < 2; i++) {
        sbit_session *session = square_session(&b[i], dims[i], wide, i == 0 ? NULL : &small);
        if (session != NULL) {
            CHECK_EQ_I64(square_winograd(session), 2);
            CHECK_OK(sbit_session_plan(session, &b[i].error), b[i].error); /* nothing is set */
            sbit_session_memory_of(session, &told[i]);
            const size_t unfed = told[i].total_bytes;
            square_run(session, dims[0], x, y[i]);
            sbit_session_memory_of(session, &told[i]);
            CHECK_EQ_I64(told[i].total_bytes, unfed);
        }
        if (session != NULL && i == 1) { /* others run, too */
            square_run(session, large, x, z[0]);
        }
        sbit_session_destroy(session);
        build_end(&b[i]);
    }
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
    CHECK_EQ_I64(told[0].activation_bytes, told[1].activation_bytes);
    CHECK_EQ_I64(told[0].packed_bytes, told[1].packed_bytes);
    sbit_session *session = square_session(&c, many, wide, NULL);
    if (session != NULL) { /* tiles of all images share the weights */
        CHECK_EQ_I64(square_winograd(session), 4);
    }
    sbit_session_destroy(session);
    build_end(&c);
    session = square_session(&c, open_dims, wide, NULL);
    if (session != NULL) {
        CHECK_EQ_I64(square_winograd(session), 4);
        CHECK_STATUS(sbit_session_plan(session, &c.error), SBIT_ERR_STATE, c.error);
        square_run(session, large, x, z[1]);
        check_floats(z[0], z[1], 2 * 20 * 9 * 10, 2e-5);
    }
    sbit_session_destroy(session);
    build_end(&c);
}

TEST(few_channels_that_come_out_use_winograd)
{
    static const char *const weights[] = {"7,16,3,3", "8,16,3,3", "16,15,3,3"};
    for (int i = 0; i < 3; i++) {
        build b;
        sbit_session *session = square_session(&b, i < 2 ? "1,16,16,16" : "1,15,16,16", weights[i], NULL);
        if (session != NULL) {
            CHECK_EQ_I64(square_winograd(session), i == 1 ? 4 : 0);
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}

TEST(expected_shapes_are_checked)
{
    static const struct {
        sbit_value_shape shape;
        sbit_status status;
        const char *says;
    } cases[] = {{{{0}, 4, {1, 8, 4, 4}}, SBIT_ERR_SHAPE, "'x'"},
                 {{{0}, 3, {1, 16, 4}}, SBIT_ERR_SHAPE, "'x'"},
                 {{{0}, 4, {1, 16, -1, 4}}, SBIT_ERR_INVALID_ARGUMENT, "shape 0"},
                 {{{2}, 4, {1, 16, 4, 4}}, SBIT_ERR_INVALID_ARGUMENT, "shape 0"},
                 {{{99}, 4, {1, 16, 4, 4}}, SBIT_ERR_INVALID_ARGUMENT, "shape 0"}};
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,16,H,W");
    build_output(&b, build_unary(&b, "Relu", "relu", x));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_session_desc desc;
        sbit_session *session = NULL;
        sbit_value_shape shape = cases[i].shape;
        shape.id = shape.id.idx != 0 ? shape.id : x;
        memset(&desc, 0, sizeof desc);
        desc.shapes = &shape;
        desc.shape_count = 1;
        CHECK_STATUS(sbit_session_create(b.graph, &desc, &session, &b.error), cases[i].status,
                     b.error);
        CHECK_CONTAINS(b.error.message, cases[i].says);
        CHECK(session == NULL);
        sbit_session_destroy(session);
    }
    build_end(&b);
}

/* Runs b on a small x [2,8,7,6], expected to be as shape says: the rows that ran and, with `parts`, the nodes that
 * became part of others; gives how many there are. bias: another "b1" than the default, unless NULL. */
static size_t run_profiled(build *b, const sbit_value_shape *shape, const float *bias, bool parts, float *out,
                           char *rows, size_t capacity)
{
    static float x[2 * 8 * 7 * 6];
    sbit_session_desc desc;
    sbit_node_profile nodes[16];
    size_t count = 0;
    memset(&desc, 0, sizeof desc);
    desc.shapes = shape;
    desc.shape_count = 1;
    desc.profile = true;
    sbit_session *session = session_of(b, &desc);
    rows[0] = '\0';
    if (session != NULL) {
        fill(x, 2 * 8 * 7 * 6, 5);
        if (bias != NULL) {
            set_floats(session, "b1", "20", bias);
        }
        square_run(session, "2,8,7,6", x, out);
        count = sbit_session_profile(session, nodes, 16);
        for (size_t i = 0; i < count && i < 16; i++) {
            const bool part = nodes[i].fused_into.idx != 0;
            const char *name = part ? sbit_graph_node(b->graph, nodes[i].fused_into)->name
                                    : nodes[i].lowered->op_type;
            CHECK_EQ_I64(nodes[i].runs, part ? 0 : 1);
            if (parts || !part) {
                snprintf(rows + strlen(rows), capacity - strlen(rows), " %s%s", part ? "in " : "", name);
            }
        }
    }
    sbit_session_destroy(session);
    return count;
}

/* x [N,8,H,W] - 1x1 to 48, Relu - depthwise 3x3, Clip - 1x1 to 8 - + x, expected to be `side` high and
 * wide, run on a small one: the rows that ran, the nodes that became part of the first. */
static void run_bottleneck(int64_t side, float *out, char *rows, size_t capacity)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attrs[2] = {build_ints("pads", pads, 4), build_int("group", 48)};
    build b;
    sbit_value_shape shape = {{0}, 4, {2, 8, side, side}};
    sbit_value_id in[3];
    build_begin(&b, 17);
    shape.id = build_input(&b, "x", SBIT_F32, "N,8,H,W");
    in[0] = shape.id;
    in[1] = build_weights(&b, "w0", "48,8,1,1", 1);
    in[2] = build_weights(&b, "b0", "48", 2);
    in[0] = build_unary(&b, "Relu", "relu", build_node(&b, "Conv", "expand", in, 3, NULL, 0));
    in[1] = build_weights(&b, "w1", "48,1,3,3", 3);
    in[0] = build_unary(&b, "HardSwish", "swish", build_node(&b, "Conv", "depthwise", in, 2, attrs, 2));
    in[1] = build_weights(&b, "w2", "8,48,1,1", 4);
    in[0] = build_node(&b, "Conv", "project", in, 2, NULL, 0);
    build_output(&b, build_binary(&b, "Add", "add", in[0], shape.id));
    CHECK_EQ_I64((int64_t)run_profiled(&b, &shape, NULL, true, out, rows, capacity), 6);
    build_end(&b);
}

/* Bottlenecks whose inside does not fit a cache keep it out of memory, and give the same bits. */
TEST(large_bottlenecks_run_in_strips)
{
    static float strips[2 * 8 * 7 * 6], plain[2 * 8 * 7 * 6];
    char rows[256];
    run_bottleneck(16, plain, rows, sizeof rows);
    CHECK_STR(rows, " ConvLast in expand ConvLast in depthwise ConvLast in project");
    run_bottleneck(256, strips, rows, sizeof rows);
    CHECK_STR(rows, " StripLast in expand in expand in expand in expand in expand");
    CHECK(memcmp(strips, plain, sizeof plain) == 0);
}

/* x [2,8,7,6] - 1x1 to 16, Relu - 1x1 to 20, Relu, beside 3x3 to 24, LeakyRelu - joined, or also given as they are;
 * expected to be `side` high and wide; bias: another one than the 1x1's default, unless NULL. */
static void run_fire(bool joined, int64_t side, const float *bias, float *out, char *rows, size_t capacity)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr pad = build_ints("pads", pads, 4), axis = build_int("axis", 1);
    sbit_value_shape shape = {{0}, 4, {2, 8, side, side}};
    sbit_value_id in[3], parts[2];
    build b;
    build_begin(&b, 17);
    shape.id = in[0] = build_input(&b, "x", SBIT_F32, "N,8,H,W");
    in[1] = build_weights(&b, "w0", "16,8,1,1", 1);
    in[0] = build_unary(&b, "Relu", "relu", build_node(&b, "Conv", "squeeze", in, 2, NULL, 0));
    in[1] = build_weights(&b, "w1", "20,16,1,1", 2);
    in[2] = build_weights(&b, "b1", "20", 3);
    build_do(&b, sbit_graph_set_input(b.graph, in[2], true, &b.error), "default");
    parts[0] = build_unary(&b, "Relu", "relu1", build_node(&b, "Conv", "one", in, 3, NULL, 0));
    in[1] = build_weights(&b, "w2", "24,16,3,3", 4);
    parts[1] = build_unary(&b, "LeakyRelu", "leaky", build_node(&b, "Conv", "other", in, 2, &pad, 1));
    build_output(&b, build_node(&b, "Concat", "join", parts, 2, &axis, 1));
    if (!joined) {
        build_output(&b, parts[0]);
        build_output(&b, parts[1]);
    }
    run_profiled(&b, &shape, bias, false, out, rows, capacity);
    build_end(&b);
}

/* What a Concat joins is computed where it belongs, with the same bits. */
TEST(convolutions_that_are_joined_need_no_copies)
{
    static float joined[2 * 44 * 7 * 6], plain[2 * 44 * 7 * 6];
    float other[20];
    char rows[256];
    fill(other, 20, 6);
    for (int i = 0; i < 4; i++) {
        const int64_t side = i < 2 ? 2 : 64;
        const float *bias = i % 2 == 0 ? NULL : other;
        run_fire(false, side, bias, plain, rows, sizeof rows);
        CHECK_STR(rows, " ConvLast ConvLast ConvLast Concat");
        run_fire(true, side, bias, joined, rows, sizeof rows);
        CHECK_STR(rows, " ConvLast JoinLast");
        CHECK(memcmp(joined, plain, sizeof plain) == 0);
    }
}

static sbit_status count_tap(const sbit_graph *graph, sbit_value_id id, const sbit_value *value,
                             void *user, sbit_error *error)
{
    (void)graph;
    int *count = (int *)user;
    (void)error;
    CHECK(id.idx != 0 && value->tensor.data != NULL);
    ++*count;
    return SBIT_OK;
}

/* What is tapped, a result or used twice is not fused away. */
TEST(fusion_keeps_what_others_look_at)
{
    for (int reason = 0; reason < 4; reason++) {
        build b;
        sbit_session_desc desc;
        sbit_node_profile nodes[8];
        int taps = 0;
        float x[2 * 4];
        sbit_value_id in[2];
        build_begin(&b, 17);
        in[0] = build_input(&b, "x", SBIT_F32, "2,4");
        in[1] = build_weights(&b, "w", "4,4", 1);
        const sbit_value_id product = build_node(&b, "Gemm", "product", in, 2, NULL, 0);
        if (reason == 2) { /* before the Relu, which is then the last user */
            build_output(&b, build_unary(&b, "Neg", "other", product));
        }
        build_output(&b, build_unary(&b, "Relu", "relu", product));
        memset(&desc, 0, sizeof desc);
        desc.profile = true;
        if (reason == 0) {
            desc.tap_fn = count_tap;
            desc.tap_user = &taps;
            desc.taps = &product;
            desc.tap_count = 1;
        } else if (reason == 1) {
            build_output(&b, product);
        }
        sbit_session *session = session_of(&b, &desc);
        if (session != NULL) {
            fill(x, 8, 3);
            set_floats(session, "x", "2,4", x);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            const size_t count = sbit_session_profile(session, nodes, 8);
            for (size_t i = 0; i < count; i++) {
                const char *name = sbit_graph_node(b.graph, nodes[i].node)->name;
                if (strcmp(name, "relu") == 0) {
                    CHECK_EQ_I64(nodes[i].fused_into.idx != 0, reason == 3);
                }
            }
            CHECK_EQ_I64(taps, reason == 0);
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}

/* QuantizeLinear + DequantizeLinear as one kernel: the same bits, ties and saturation included. */
TEST(fake_quantization_is_one_step_with_the_same_bits)
{
    float results[2][64];
    size_t steps[2] = {0, 0};
    for (int fuse = 0; fuse < 2; fuse++) {
        build b;
        static const float scale = 0.5f;
        static const uint8_t zero_point = 3;
        sbit_session_desc desc;
        sbit_node_profile nodes[4];
        float x[64];
        sbit_value_id in[3];
        build_begin(&b, 17);
        in[0] = build_input(&b, "x", SBIT_F32, "64");
        in[1] = build_constant(&b, "scale", SBIT_F32, "", &scale);
        in[2] = build_constant(&b, "zero_point", SBIT_U8, "", &zero_point);
        in[0] = build_node(&b, "QuantizeLinear", "q", in, 3, NULL, 0);
        build_output(&b, build_node(&b, "DequantizeLinear", "dq", in, 3, NULL, 0));
        memset(&desc, 0, sizeof desc);
        desc.profile = true;
        desc.disable_fusion = fuse == 0;
        if (sbit_operator_find(b.ctx, "", "QuantizeLinear", 17) == NULL) {
            build_end(&b);
            SBIT_TEST_SKIP("no QuantizeLinear");
        }
        sbit_session *session = session_of(&b, &desc);
        for (int i = 0; i < 64; i++) {
            x[i] = (float)(i - 20) * 0.25f; /* every second one is a tie */
        }
        x[0] = -1000.0f;
        x[1] = 1000.0f;
        if (session != NULL) {
            set_floats(session, "x", "64", x);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            memcpy(results[fuse], floats_of(session, 0), sizeof results[fuse]);
            const size_t count = sbit_session_profile(session, nodes, 4);
            for (size_t i = 0; i < count; i++) {
                steps[fuse] += nodes[i].runs;
            }
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
    CHECK_EQ_I64(steps[0], 2);
    CHECK_EQ_I64(steps[1], 1);
    CHECK_MEM(results[0], results[1], sizeof results[0]);
    CHECK_NEAR(results[1][0], -1.5, 0.0);  /* (0 - 3) * 0.5 */
    CHECK_NEAR(results[1][1], 126.0, 0.0); /* (255 - 3) * 0.5 */
    CHECK_NEAR(results[1][21], 0.0, 0.0);  /* 0.25 / 0.5 = 0.5, to even: 0 */
    CHECK_NEAR(results[1][23], 1.0, 0.0);  /* 1.5, to even: 2 */
}

/* ---- taps and profile */

TEST(taps_without_a_function_are_refused)
{
    build b;
    sbit_session_desc desc;
    sbit_session *session = NULL;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "4");
    build_output(&b, build_unary(&b, "Relu", "relu", x));
    for (int kind = 0; kind < 3; kind++) {
        memset(&desc, 0, sizeof desc);
        desc.taps = kind == 0 ? &x : NULL;
        desc.tap_count = kind == 0 ? 1 : 0;
        desc.tap_all = kind == 1;
        desc.tap_bodies = kind == 2;
        CHECK_STATUS(sbit_session_create(b.graph, &desc, &session, &b.error),
                     SBIT_ERR_INVALID_ARGUMENT, b.error);
        CHECK_CONTAINS(b.error.message, "tap_fn");
    }
    build_end(&b);
}

/* Both values of a convolution's output: the dims, and the elements in the model's order. */
typedef struct lie_log {
    int64_t channels[2];
    float values[2][3 * 2 * 5];
    uint32_t ids[2];
    int count;
} lie_log;

static sbit_status log_lie(const sbit_graph *graph, sbit_value_id id, const sbit_value *value,
                           void *user, sbit_error *error)
{
    lie_log *log = (lie_log *)user;
    const sbit_tensor *tensor = &value->tensor;
    const bool last = tensor->dims[3] == 3;
    (void)graph;
    (void)error;
    if (log->count < 2) {
        log->ids[log->count] = id.idx;
        log->channels[log->count] = last ? 3 : 1;
        for (int i = 0; i < 3 * 2 * 5; i++) {
            log->values[log->count][last ? i % 3 * 10 + i / 3 : i] = ((const float *)tensor->data)[i];
        }
    }
    log->count++;
    return SBIT_OK;
}

TEST(taps_as_they_lie_have_channels_last_and_the_same_numbers)
{
    static float x[4 * 2 * 5];
    lie_log log[2];
    sbit_value_id in[2], taps[2];
    build b;
    build_begin(&b, 17);
    in[0] = build_input(&b, "x", SBIT_F32, "N,4,2,5");
    in[1] = build_weights(&b, "w", "3,4,1,1", 1);
    in[0] = taps[0] = build_node(&b, "Conv", "conv", in, 2, NULL, 0);
    in[1] = build_weights(&b, "v", "3,3,1,1", 2);
    taps[1] = build_node(&b, "Conv", "behind", in, 2, NULL, 0);
    build_output(&b, build_unary(&b, "GlobalAveragePool", "mean", taps[1]));
    fill(x, 4 * 2 * 5, 3);
    for (size_t lie = 0; lie < 2; lie++) {
        sbit_session_desc desc;
        memset(&desc, 0, sizeof desc);
        memset(&log[lie], 0, sizeof log[lie]);
        desc.tap_fn = log_lie;
        desc.tap_user = &log[lie];
        desc.taps = taps;
        desc.tap_count = 2;
        desc.taps_as_they_lie = lie; /* only the first */
        sbit_session *session = session_of(&b, &desc);
        if (session != NULL) {
            set_floats(session, "x", "1,4,2,5", x);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
        }
        sbit_session_destroy(session);
        CHECK_EQ_I64(log[lie].count, 2);
        CHECK_EQ_I64(log[lie].ids[0], taps[0].idx);
        CHECK_EQ_I64(log[lie].ids[1], taps[1].idx);
        CHECK_EQ_I64(log[lie].channels[0], lie == 1 ? 3 : 1);
        CHECK_EQ_I64(log[lie].channels[1], 1);
    }
    CHECK_EQ_I64(memcmp(log[0].values, log[1].values, sizeof log[0].values), 0);
    build_end(&b);
}

TEST(taps_see_values_in_order_before_they_are_overwritten)
{
    build b;
    tap_log log;
    sbit_session_desc desc;
    static const float x[2] = {-2.0f, 3.0f};
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "2");
    const sbit_value_id neg = build_unary(&b, "Neg", "neg", input);
    const sbit_value_id abs = build_unary(&b, "Abs", "abs", neg);
    const sbit_value_id last = build_unary(&b, "Neg", "last", abs);
    build_output(&b, last);
    memset(&desc, 0, sizeof desc);
    memset(&log, 0, sizeof log);
    desc.tap_fn = log_tap;
    desc.tap_user = &log;
    desc.tap_all = true;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        set_floats(session, "x", "2", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(log.count, 4);
        CHECK_EQ_I64(log.ids[0], input.idx);
        CHECK_EQ_I64(log.ids[1], neg.idx);
        CHECK_EQ_I64(log.ids[2], abs.idx);
        CHECK_EQ_I64(log.ids[3], last.idx);
        CHECK_NEAR(log.first[0], -2.0, 0.0);
        CHECK_NEAR(log.first[1], 2.0, 0.0);
        CHECK_NEAR(log.first[3], -2.0, 0.0);
        memset(&log, 0, sizeof log);
        log.stop_at = 2;
        CHECK_STATUS(sbit_session_run(session, &b.error), SBIT_ERR_CANCELLED, b.error);
        CHECK_EQ_I64(log.count, 2);
        CHECK(sbit_session_output(session, 0) == NULL);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* ---- lowering */

static sbit_status expand_twice(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_value_id in = node->inputs[0], out = node->outputs[0];
    sbit_value_id neg, inputs[2];
    sbit_node_desc desc;
    sbit_type type = sbit_graph_value(graph, in)->type;
    memset(&desc, 0, sizeof desc);
    desc.before = sbit_graph_next(graph, id);
    sbit_graph_erase_node(graph, id);
    sbit_status status = sbit_graph_add_value(graph, "neg", &type, &neg, error);
    desc.op_type = "Neg";
    desc.inputs = &in;
    desc.input_count = 1;
    desc.outputs = &neg;
    desc.output_count = 1;
    if (status == SBIT_OK) {
        status = sbit_graph_add_node(graph, &desc, NULL, error);
    }
    desc.op_type = "Sub";
    inputs[0] = in;
    inputs[1] = neg;
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = &out;
    return status == SBIT_OK ? sbit_graph_add_node(graph, &desc, NULL, error) : status;
}

/* An operator that is defined by others: the profile speaks of the caller's node. */
TEST(operators_defined_by_others_are_expanded)
{
    build b;
    sbit_session_desc desc;
    sbit_node_profile nodes[4];
    static const float x[2] = {1, -2}, want[2] = {2, 0};
    build_begin(&b, 17);
    static sbit_op_row row;
    row = plain_row("Twice", infer_same, NULL);
    row.expand = expand_twice;
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    const sbit_value_id twice =
        user_unary(&b, "Twice", "twice", build_input(&b, "x", SBIT_F32, "2"));
    build_output(&b, build_unary(&b, "Relu", "relu", twice));
    memset(&desc, 0, sizeof desc);
    desc.profile = true;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        set_floats(session, "x", "2", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        check_floats(floats_of(session, 0), want, 2, 0.0);
        CHECK_EQ_I64(sbit_session_profile(session, nodes, 4), 2);
        CHECK_STR(sbit_graph_node(b.graph, nodes[0].node)->name, "twice");
        CHECK_EQ_I64(nodes[0].runs, 2);
        CHECK_STR(nodes[0].lowered->op_type, "Neg");
        CHECK_STR(nodes[1].lowered->op_type, "Relu");
    }
    sbit_session_destroy(session);
    CHECK(strcmp(sbit_graph_node(b.graph, sbit_graph_first(b.graph))->op_type, "Twice") == 0);
    build_end(&b);
}

/* A row that a user registered in place of a built-in one is run, not fused away. */
TEST(rows_of_users_are_not_fused_away)
{
    build b;
    sbit_session_desc desc;
    sbit_node_profile nodes[4];
    static const float x[4] = {1, -2, 3, -4};
    build_begin(&b, 17);
    static sbit_op_row row;
    row = plain_row("Relu", infer_same, run_plus_one);
    row.domain = "";
    row.prepare = prepare_plus_one;
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    sbit_value_id in[2];
    in[0] = build_input(&b, "x", SBIT_F32, "1,4");
    in[1] = build_weights(&b, "w", "4,4", 1);
    build_output(&b, build_unary(&b, "Relu", "relu", build_node(&b, "Gemm", "g", in, 2, NULL, 0)));
    memset(&desc, 0, sizeof desc);
    plus_one.runs = 0;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        set_floats(session, "x", "1,4", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(plus_one.runs, 1);
        CHECK_EQ_I64(sbit_session_profile(session, nodes, 4), 2);
        CHECK_EQ_I64(nodes[1].fused_into.idx, 0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* An internal row that a model brings along is checked: what is added has another shape. */
TEST(internal_rows_are_checked)
{
    build b;
    sbit_session *session = NULL;
    sbit_error error;
    sbit_value_id in[4] = {{0}, {0}, {0}, {0}}, y;
    const sbit_attr activation = build_int("activation", 99);
    static float x[8];
    for (int wrong = 0; wrong < 2; wrong++) {
        build_begin(&b, 17);
        in[0] = build_input(&b, "x", SBIT_F32, "2,4");
        in[1] = build_weights(&b, "w", "4,3", 1);
        in[3] = wrong == 0 ? build_weights(&b, "r", "1", 1) : in[2];
        build_node_outputs(&b, "sbit", "MatMul", "m", in, wrong == 0 ? 4 : 2, &activation,
                           wrong == 0 ? 0 : 1, &y, 1);
        build_output(&b, y);
        if (CHECK_OK(sbit_session_create(b.graph, NULL, &session, &error), error)) {
            set_floats(session, "x", "2,4", x);
            CHECK(sbit_session_run(session, &error) != SBIT_OK);
            CHECK(strstr(error.message, wrong == 0 ? "MatMul 'm': what is added"
                                                   : "MatMul 'm': activation is 99") != NULL);
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}

TEST(joined_convolutions_need_both_weights)
{
    build b;
    sbit_value_id in[3], y;
    for (size_t count = 2; count < 4; count++) {
        build_begin(&b, 17);
        in[0] = build_input(&b, "x", SBIT_F32, "1,2,2,3");
        in[1] = build_weights(&b, "w", "4,3,1,1", 1);
        in[2] = build_weights(&b, "bias", "4", 2);
        build_node_outputs(&b, "sbit", "JoinLast", "join", in, count, NULL, 0, &y, 1);
        build_output(&b, y);
        CHECK_STATUS(sbit_infer(b.graph, &b.error), SBIT_ERR_INVALID_MODEL, b.error);
        CHECK_CONTAINS(b.error.message, "input 3 is missing");
        build_end(&b);
    }
}

/* ---- cut sessions, kept values, states */

/* resnet20, raw: each node by itself on the values that a whole run kept gives what it gave there,
 * bit for bit. */
TEST(every_node_runs_alone_on_tapped_inputs)
{
    char path[512];
    sbit_graph *graph = NULL;
    sbit_session *whole = NULL;
    sbit_error error;
    sbit_ctx *ctx = NULL;
    static float image[3 * 32 * 32];
    int alone = 0;
    if (!test_shared("models/cifar10/resnet20.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no shared models");
        return;
    }
    fill(image, 3 * 32 * 32, 1);
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.keep_values = true;
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    if (CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error) &&
        CHECK_OK(sbit_session_create(graph, &desc, &whole, &error), error)) {
        set_floats(whole, sbit_session_input_info(whole, 0)->name, "1,3,32,32", image);
        CHECK_OK(sbit_session_run(whole, &error), error);
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;
             id = sbit_graph_next(graph, id)) {
            const sbit_node *node = sbit_graph_node(graph, id);
            sbit_session *session = NULL;
            sbit_value_id inputs[16];
            memset(&desc, 0, sizeof desc);
            for (size_t i = 0; i < node->input_count; i++) {
                const sbit_value_id in = node->inputs[i];
                if (in.idx != 0 && !sbit_graph_value(graph, in)->is_constant) {
                    inputs[desc.input_count++] = in;
                }
            }
            desc.inputs = inputs;
            desc.outputs = node->outputs;
            desc.output_count = 1;
            if (!CHECK_OK(sbit_session_create(graph, &desc, &session, &error), error)) {
                continue;
            }
            CHECK_EQ_I64(sbit_session_input_count(session), desc.input_count);
            for (size_t i = 0; i < desc.input_count; i++) {
                const sbit_value *value = sbit_session_value(whole, inputs[i]);
                CHECK_EQ_I64(sbit_session_input_info(session, i)->id.idx, inputs[i].idx);
                if (CHECK(value != NULL)) {
                    CHECK_OK(sbit_session_set_input_at(session, i, &value->tensor, &error), error);
                }
            }
            CHECK_OK(sbit_session_run(session, &error), error);
            const sbit_value *want = sbit_session_value(whole, node->outputs[0]);
            const sbit_value *got = sbit_session_output(session, 0);
            if (CHECK(got != NULL && want != NULL) &&
                CHECK_EQ_I64(sbit_tensor_bytes(&got->tensor), sbit_tensor_bytes(&want->tensor))) {
                /* by itself a node is lowered: a Conv's sums have another order */
                if (strcmp(node->op_type, "Conv") == 0) {
                    check_floats((const float *)got->tensor.data, (const float *)want->tensor.data,
                                 sbit_tensor_count(&got->tensor), 2e-5);
                } else {
                    CHECK_MSG(memcmp(got->tensor.data, want->tensor.data,
                                     sbit_tensor_bytes(&got->tensor)) == 0,
                              "%s '%s' differs", node->op_type, node->name);
                }
                alone++;
            }
            sbit_session_destroy(session);
        }
        CHECK(alone > 50);
    }
    sbit_session_destroy(whole);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* y = relu(x * w): w is fed; then y is fed, and x is not asked for. */
TEST(inner_values_and_constants_can_be_fed)
{
    build b;
    static const float w[4] = {1, 2, 3, 4}, other[4] = {-1, 1, -1, 1}, x[4] = {1, 2, 3, 4};
    sbit_session_desc desc;
    sbit_error error;
    build_begin(&b, 17);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "4");
    const sbit_value_id weight = build_constant(&b, "w", SBIT_F32, "4", w);
    const sbit_value_id product = build_binary(&b, "Mul", "product", in, weight);
    build_output(&b, build_unary(&b, "Relu", "relu", product));
    memset(&desc, 0, sizeof desc);
    desc.inputs = &weight;
    desc.input_count = 1;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        static const float want[4] = {0, 2, 0, 4};
        CHECK_EQ_I64(sbit_session_input_count(session), 2);
        CHECK_STR(sbit_session_input_info(session, 0)->name, "w");
        CHECK_STR(sbit_session_input_info(session, 1)->name, "x");
        CHECK_STATUS(sbit_session_run(session, &error), SBIT_ERR_STATE, error);
        set_floats(session, "w", "4", other);
        set_floats(session, "x", "4", x);
        CHECK_OK(sbit_session_run(session, &error), error);
        check_floats(floats_of(session, 0), want, 4, 0.0);
    }
    sbit_session_destroy(session);
    desc.inputs = &product;
    session = session_of(&b, &desc);
    if (session != NULL) {
        static const float want[4] = {0, 1, 0, 1};
        CHECK_EQ_I64(sbit_session_input_count(session), 1);
        set_floats(session, sbit_session_input_info(session, 0)->name, "4", other);
        CHECK_OK(sbit_session_run(session, &error), error);
        check_floats(floats_of(session, 0), want, 4, 0.0);
    }
    sbit_session_destroy(session);
    CHECK(sbit_graph_value(b.graph, weight)->is_constant); /* the graph is as it was */
    CHECK(sbit_graph_value(b.graph, product)->producer.idx != 0);
    desc.inputs = &product;
    memset(&error, 0, sizeof error);
    desc.input_count = 1;
    sbit_value_id none = {12345};
    desc.inputs = &none;
    CHECK_STATUS(sbit_session_create(b.graph, &desc, &session, &error), SBIT_ERR_INVALID_ARGUMENT,
                 error);
    build_end(&b);
}

/* One output of a node is fed, the other one is computed. */
TEST(one_of_two_outputs_can_be_fed)
{
    build b;
    static const float x[4] = {1, 2, 3, 4}, fed[2] = {10, 20}, want[2] = {13, 24};
    sbit_session_desc desc;
    sbit_value_id halves[2];
    build_begin(&b, 17);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "4");
    build_node_outputs(&b, "", "Split", "halves", &in, 1, NULL, 0, halves, 2);
    build_output(&b, build_binary(&b, "Add", "sum", halves[0], halves[1]));
    memset(&desc, 0, sizeof desc);
    desc.inputs = halves;
    desc.input_count = 1;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        CHECK_EQ_I64(sbit_session_input_count(session), 2);
        set_floats(session, sbit_session_input_info(session, 0)->name, "2", fed);
        set_floats(session, "x", "4", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        check_floats(floats_of(session, 0), want, 2, 0.0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(kept_values_are_there_after_the_run)
{
    build b;
    sbit_session_desc desc;
    static const float x[2] = {-2, 3}, w[2] = {2, 2}, want[3][2] = {{2, -3}, {4, -6}, {4, 0}};
    sbit_value_id v[3];
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "2");
    v[0] = build_unary(&b, "Neg", "neg", input);
    v[1] = build_binary(&b, "Mul", "mul", v[0], build_constant(&b, "w", SBIT_F32, "2", w));
    v[2] = build_unary(&b, "Relu", "relu", v[1]);
    build_output(&b, build_unary(&b, "Neg", "last", v[2]));
    memset(&desc, 0, sizeof desc);
    desc.keep_values = true;
    sbit_session *session = session_of(&b, &desc), *plain = session_of(&b, NULL);
    if (session != NULL && plain != NULL) {
        set_floats(session, "x", "2", x);
        CHECK(sbit_session_value(session, v[0]) == NULL);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        for (int i = 0; i < 3; i++) {
            const sbit_value *value = sbit_session_value(session, v[i]);
            check_floats(value != NULL ? (const float *)value->tensor.data : NULL, want[i], 2, 0.0);
        }
        set_floats(plain, "x", "2", x);
        CHECK_OK(sbit_session_run(plain, &b.error), b.error);
        CHECK(sbit_session_value(plain, v[0]) == NULL);
    }
    sbit_session_destroy(session);
    sbit_session_destroy(plain);
    build_end(&b);
}

/* total = total + x; a delay line old = x of the run before, older = old before: what is carried
 * is what the run saw, whatever the order. */
TEST(states_are_carried_from_run_to_run)
{
    build b;
    sbit_session_desc desc;
    sbit_session_state states[3];
    sbit_error error;
    static const float one[2] = {1, 1};
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2");
    const sbit_value_id total = build_constant(&b, "total", SBIT_F32, "2", one);
    const sbit_value_id old = build_input(&b, "old", SBIT_F32, "2");
    const sbit_value_id older = build_input(&b, "older", SBIT_F32, "n");
    const sbit_value_id sum = build_binary(&b, "Add", "sum", total, x);
    build_output(&b, sum);
    build_output(&b, build_unary(&b, "Identity", "copy", older));
    memset(&desc, 0, sizeof desc);
    states[0].output = sum;
    states[0].input = total;
    states[1].output = x;
    states[1].input = old;
    states[2].output = old;
    states[2].input = older;
    desc.states = states;
    desc.state_count = 3;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        float in[2];
        CHECK_EQ_I64(sbit_session_input_count(session), 1);
        CHECK(sbit_session_state_at(session, 0) != NULL);
        CHECK(sbit_session_state_at(session, 2) == NULL); /* of unknown size: to be set */
        set_floats(session, "x", "2", in);
        CHECK_STATUS(sbit_session_run(session, &error), SBIT_ERR_STATE, error);
        CHECK(strstr(error.message, "'older'") != NULL);
        set_floats(session, "older", "2", one);
        for (int i = 0; i < 5; i++) {
            in[0] = in[1] = (float)(i + 10);
            CHECK_OK(sbit_session_run(session, &error), error);
            CHECK_NEAR(floats_of(session, 0)[0], 1 + 10 * (i + 1) + i * (i + 1) / 2, 0.0);
            CHECK_NEAR(floats_of(session, 1)[0], i == 0 ? 1 : i == 1 ? 0 : i + 8, 0.0);
            const sbit_value *state = sbit_session_state_at(session, 0);
            CHECK_NEAR(((const float *)state->tensor.data)[1], floats_of(session, 0)[1], 0.0);
        }
        static const float hundred[2] = {100, 100};
        set_floats(session, "total", "2", hundred);
        CHECK_OK(sbit_session_run(session, &error), error);
        CHECK_NEAR(floats_of(session, 0)[0], 114, 0.0);
    }
    sbit_session_destroy(session);
    CHECK(memcmp(sbit_graph_value(b.graph, total)->constant.data, one, sizeof one) == 0);
    states[1].input = total;
    CHECK_STATUS(sbit_session_create(b.graph, &desc, &session, &error), SBIT_ERR_INVALID_ARGUMENT,
                 error);
    build_end(&b);
}

/* A run that fails leaves states alone, and a shape that changes is an error. */
TEST(a_failed_run_carries_nothing)
{
    build b;
    sbit_session_desc desc;
    sbit_session_state state;
    sbit_error error;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "n");
    const sbit_value_id s = build_input(&b, "s", SBIT_F32, "m");
    state.output = build_binary(&b, "Add", "sum", s, x);
    state.input = s;
    build_output(&b, state.output);
    memset(&desc, 0, sizeof desc);
    desc.states = &state;
    desc.state_count = 1;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        static const float two[2] = {2, 2}, one[1] = {1};
        set_floats(session, "s", "1", one);
        set_floats(session, "x", "2", two);
        CHECK_STATUS(sbit_session_run(session, &error), SBIT_ERR_SHAPE, error);
        CHECK_NEAR(((const float *)sbit_session_state_at(session, 0)->tensor.data)[0], 1, 0.0);
        set_floats(session, "x", "1", two);
        CHECK_OK(sbit_session_run(session, &error), error);
        CHECK_NEAR(((const float *)sbit_session_state_at(session, 0)->tensor.data)[0], 3, 0.0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(only_what_the_outputs_need_is_run)
{
    build b;
    sbit_session_desc desc;
    sbit_node_profile nodes[4];
    static const float x[2] = {-2.0f, 3.0f}, want[2] = {2.0f, -3.0f};
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "2");
    const sbit_value_id other = build_input(&b, "other", SBIT_F32, "2");
    const sbit_value_id neg = build_unary(&b, "Neg", "neg", input);
    build_output(&b, build_binary(&b, "Add", "sum", neg, other));
    memset(&desc, 0, sizeof desc);
    desc.outputs = &neg;
    desc.output_count = 1;
    desc.profile = true;
    sbit_session *session = session_of(&b, &desc);
    if (session != NULL) {
        CHECK_EQ_I64(sbit_session_input_count(session), 1);
        CHECK_STR(sbit_session_input_info(session, 0)->name, "x");
        CHECK_EQ_I64(sbit_session_output_count(session), 1);
        CHECK_STR(sbit_session_output_info(session, 0)->name, "neg");
        set_floats(session, "x", "2", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        check_floats(floats_of(session, 0), want, 2, 0.0);
        CHECK_EQ_I64(sbit_session_profile(session, nodes, 4), 1);
        CHECK_EQ_I64(nodes[0].runs, 1);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* ---- shapes */

TEST(the_batch_may_change_between_runs)
{
    build b;
    sbit_op_row row = plain_row("PlusOne", infer_same, run_plus_one);
    float x[12], want[12];
    build_begin(&b, 17);
    row.prepare = prepare_plus_one;
    plus_one.prepares = plus_one.runs = 0;
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "N,3");
    build_output(&b, build_unary(&b, "Relu", "relu", user_unary(&b, "PlusOne", "plus", input)));
    sbit_session *session = session_of(&b, NULL);
    static const char *const shapes[] = {"1,3", "4,3", "4,3", "2,3"};
    static const int counts[] = {3, 12, 12, 6};
    for (int i = 0; session != NULL && i < 4; i++) {
        fill(x, counts[i], (uint64_t)i);
        for (int k = 0; k < counts[i]; k++) {
            want[k] = x[k] + 1.0f > 0.0f ? x[k] + 1.0f : 0.0f;
        }
        set_floats(session, "x", shapes[i], x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], counts[i] / 3);
        check_floats(floats_of(session, 0), want, counts[i], 0.0);
    }
    CHECK_EQ_I64(plus_one.prepares, 3); /* not for the same shape again */
    CHECK_EQ_I64(plus_one.runs, 4);
    if (session != NULL) {
        sbit_session_memory memory;
        sbit_session_memory_of(session, &memory);
        CHECK_EQ_I64(memory.state_bytes, 100); /* kept over the plans */
        CHECK_EQ_I64(memory.scratch_bytes, 1000);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(inputs_are_checked_against_their_declarations)
{
    build b;
    static const float data[64] = {0};
    sbit_tensor tensor;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "left", SBIT_F32, "rows,2");
    const sbit_value_id y = build_input(&b, "right", SBIT_F32, "rows,2");
    build_output(&b, build_binary(&b, "Add", "sum", x, y));
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        CHECK_STATUS(sbit_session_run(session, &b.error), SBIT_ERR_STATE, b.error);
        CHECK_CONTAINS(b.error.message, "'left', 'right'");
        tensor = build_tensor(SBIT_F32, "3,2", data);
        CHECK_STATUS(sbit_session_set_input(session, "lift", &tensor, &b.error), SBIT_ERR_NOT_FOUND,
                     b.error);
        CHECK_CONTAINS(b.error.message, "'left', 'right'");
        CHECK_STATUS(sbit_session_set_input(session, "sum", &tensor, &b.error), SBIT_ERR_NOT_FOUND,
                     b.error);
        tensor = build_tensor(SBIT_F32, "3,4", data);
        CHECK_STATUS(sbit_session_set_input(session, "left", &tensor, &b.error), SBIT_ERR_SHAPE,
                     b.error);
        CHECK_CONTAINS(b.error.message, "float32[rows,2]");
        CHECK_CONTAINS(b.error.message, "float32[3,4]");
        tensor = build_tensor(SBIT_F64, "3,2", data);
        CHECK_STATUS(sbit_session_set_input(session, "left", &tensor, &b.error), SBIT_ERR_SHAPE,
                     b.error);
        tensor = build_tensor(SBIT_F32, "3,2,1", data);
        CHECK_STATUS(sbit_session_set_input(session, "left", &tensor, &b.error), SBIT_ERR_SHAPE,
                     b.error);
        tensor = build_tensor(SBIT_F32, "3,2", NULL);
        CHECK_STATUS(sbit_session_set_input(session, "left", &tensor, &b.error),
                     SBIT_ERR_INVALID_ARGUMENT, b.error);
        set_floats(session, "left", "3,2", data);
        set_floats(session, "right", "4,2", data);
        CHECK_STATUS(sbit_session_run(session, &b.error), SBIT_ERR_SHAPE, b.error);
        CHECK_CONTAINS(b.error.message, "'rows' is 3 in input 'left', but 4 in input 'right'");
        set_floats(session, "right", "3,2", data);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(an_empty_batch_runs)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3");
    build_output(&b, build_binary(&b, "MatMul", "product", build_unary(&b, "Relu", "relu", x),
                                  build_weights(&b, "w", "3,5", 1)));
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        const sbit_tensor empty = build_tensor(SBIT_F32, "0,3", NULL);
        CHECK_OK(sbit_session_set_input(session, "x", &empty, &b.error), b.error);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], 0);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[1], 5);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* The number of positive values decides the shapes behind it; everything there resolves itself. */
TEST(shapes_may_depend_on_data)
{
    build b;
    sbit_op_row positive = plain_row("Positive", infer_positive, run_positive);
    sbit_op_row plus = plain_row("PlusOne", infer_same, run_plus_one);
    sbit_value_id outs[2];
    static const float first[4] = {1, -2, 3, 4}, second[4] = {-1, -2, -3, 5};
    static const float want_first[3] = {2, 4, 5}, want_second[1] = {6};
    build_begin(&b, 17);
    positive.flags = SBIT_OP_DYNAMIC;
    plus.prepare = prepare_plus_one;
    plus_one.prepares = 0;
    CHECK_OK(sbit_operator_register(b.ctx, &positive, &b.error), b.error);
    CHECK_OK(sbit_operator_register(b.ctx, &plus, &b.error), b.error);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "4");
    build_node_outputs(&b, "test", "Positive", "positive", &x, 1, NULL, 0, outs, 2);
    build_output(&b, build_unary(&b, "Relu", "relu", user_unary(&b, "PlusOne", "plus", outs[0])));
    build_output(&b, outs[1]);
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        sbit_session_memory memory;
        set_floats(session, "x", "4", first);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], 3);
        CHECK_EQ_I64(*(const int64_t *)sbit_session_output(session, 1)->tensor.data, 3);
        check_floats(floats_of(session, 0), want_first, 3, 0.0);
        set_floats(session, "x", "4", second);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(sbit_session_output(session, 0)->tensor.dims[0], 1);
        check_floats(floats_of(session, 0), want_second, 1, 0.0);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_EQ_I64(plus_one.prepares, 2); /* once for each shape */
        sbit_session_memory_of(session, &memory);
        CHECK(memory.dynamic_bytes >= 3 * 12 + 8); /* three values of 3 floats, one int64 */
        CHECK(memory.dynamic_bytes < memory.total_bytes);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* What depends on data has a limit of its own: what a run took suffices, and no byte less. Which
 * nodes these are is known before. */
TEST(what_depends_on_data_has_a_limit)
{
    build b;
    sbit_op_row positive = plain_row("Positive", infer_positive, run_positive);
    sbit_value_id outs[2];
    sbit_session_desc desc;
    sbit_session_memory memory;
    sbit_node_profile nodes[4];
    static const float x[4] = {1, -2, 3, 4};
    build_begin(&b, 17);
    positive.flags = SBIT_OP_DYNAMIC;
    CHECK_OK(sbit_operator_register(b.ctx, &positive, &b.error), b.error);
    const sbit_value_id negative =
        build_unary(&b, "Neg", "static", build_input(&b, "x", SBIT_F32, "4"));
    build_node_outputs(&b, "test", "Positive", "positive", &negative, 1, NULL, 0, outs, 2);
    build_output(&b, build_unary(&b, "Exp", "behind", outs[0]));
    memset(&desc, 0, sizeof desc);
    memset(&memory, 0, sizeof memory);
    for (int less = 0; less < 3; less++) {
        sbit_session *session = session_of(&b, &desc);
        if (session != NULL) {
            CHECK_OK(sbit_session_plan(session, &b.error), b.error); /* nothing is fed yet */
            sbit_session_memory_of(session, &memory);
            CHECK_EQ_I64(memory.dynamic_bytes, 0);
            CHECK_EQ_I64(sbit_session_profile(session, nodes, 4), 3);
            CHECK(!nodes[0].is_dynamic && nodes[1].is_dynamic && nodes[2].is_dynamic);
            set_floats(session, "x", "4", x);
            const sbit_status status = sbit_session_run(session, &b.error);
            CHECK_STATUS(status, less < 2 ? SBIT_OK : SBIT_ERR_LIMIT, b.error);
            sbit_session_memory_of(session, &memory);
        }
        sbit_session_destroy(session);
        if (less == 2) {
            char text[24];
            snprintf(text, sizeof text, "%u", (unsigned)desc.dynamic_bytes);
            CHECK_CONTAINS(b.error.message, text);
            CHECK_CONTAINS(b.error.message, "behind");
            CHECK_CONTAINS(b.error.message, "dynamic_bytes");
        }
        desc.dynamic_bytes = memory.dynamic_bytes - (less == 0 ? 0 : 1);
    }
    build_end(&b);
}

/* ---- constants */

TEST(what_is_made_of_constants_is_computed_once)
{
    build b;
    sbit_op_row row = plain_row("PlusOne", infer_same, run_plus_one);
    static const float data[4] = {1, 2, 3, 4}, x[2] = {1, 10}, want[2] = {2 + 40, 3 + 50};
    build_begin(&b, 17);
    row.prepare = prepare_plus_one;
    plus_one.runs = 0;
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    const sbit_value_id w =
        user_unary(&b, "PlusOne", "plus", build_constant(&b, "w", SBIT_F32, "2,2", data));
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "N,2");
    build_output(&b, build_binary(&b, "MatMul", "product", input, w));
    sbit_session *session = session_of(&b, NULL);
    for (int i = 0; session != NULL && i < 3; i++) {
        static const float twice[4] = {1, 10, 1, 10};
        set_floats(session, "x", i == 1 ? "2,2" : "1,2", i == 1 ? twice : x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        check_floats(floats_of(session, 0), want, 2, 1e-5);
    }
    CHECK_EQ_I64(plus_one.runs, 1);
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(inputs_with_a_default_can_be_overridden)
{
    build b;
    static const float w[1] = {2}, other[1] = {5}, x[1] = {3};
    build_begin(&b, 17);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "1,1");
    const sbit_value_id weights = build_constant(&b, "w", SBIT_F32, "1,1", w);
    CHECK_OK(sbit_graph_set_input(b.graph, weights, true, &b.error), b.error);
    build_output(
        &b, build_binary(&b, "MatMul", "product", input, build_unary(&b, "Neg", "neg", weights)));
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        CHECK_EQ_I64(sbit_session_input_count(session), 1);
        set_floats(session, "x", "1,1", x);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_NEAR(floats_of(session, 0)[0], -6.0, 0.0);
        set_floats(session, "w", "1,1", other);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        CHECK_NEAR(floats_of(session, 0)[0], -15.0, 0.0);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* ---- bodies: a row of the test that runs its body `times` times on (state) */

static sbit_status infer_repeat(const sbit_op_call *call, sbit_error *error)
{
    const sbit_attr *body = sbit_node_attr(call->node, "body");
    return call->infer_body(call, body->g, call->in_type, call->out_type[0], error);
}

static sbit_status run_repeat(const sbit_op_call *call, sbit_error *error)
{
    const int64_t times = sbit_node_int(call->node, "times", 1);
    const sbit_attr *body = sbit_node_attr(call->node, "body");
    const sbit_value *in = call->in_value[0];
    sbit_value state;
    for (int64_t i = 0; i < times; i++) {
        const sbit_status status = call->run_body(call, body->g, &in, 1, &state, 1, error);
        if (status != SBIT_OK) {
            return status;
        }
        in = &state;
    }
    return call->copy_output(call, 0, -1, in, error);
}

/* A model whose node "test.Repeat" has the body y = op(x) + c, where c is the model's input or
 * initializer. */
static sbit_graph *load_repeat(build *b, bool constant, int64_t times, const char *op)
{
    sbit_onnx_doc *doc = NULL;
    sbit_onnx_model *model;
    sbit_graph *graph = NULL;
    if (!CHECK_OK(sbit_onnx_create(NULL, &doc, &b->error), b->error)) {
        return NULL;
    }
    model = sbit_onnx_doc_model(doc);
#define NEW(type, count) (type *)sbit_onnx_alloc(doc, count, sizeof(type))
#define TEXT(message, field, member, value)                                                        \
    do {                                                                                           \
        sbit_str text_;                                                                            \
        text_.data = value;                                                                        \
        text_.size = strlen(value);                                                                \
        SBIT_ONNX_SET(message, field, member, text_);                                              \
    } while (0)
    SBIT_ONNX_SET(model, SBIT_ONNX_MODEL_IR_VERSION, ir_version, 8);
    model->opset_import = NEW(sbit_onnx_opset_id, 2);
    model->opset_import_count = 2;
    TEXT(&model->opset_import[0], SBIT_ONNX_OPSET_ID_DOMAIN, domain, "");
    SBIT_ONNX_SET(&model->opset_import[0], SBIT_ONNX_OPSET_ID_VERSION, version, 17);
    TEXT(&model->opset_import[1], SBIT_ONNX_OPSET_ID_DOMAIN, domain, "test");
    SBIT_ONNX_SET(&model->opset_import[1], SBIT_ONNX_OPSET_ID_VERSION, version, 1);
    model->graph = NEW(sbit_onnx_graph, 1);
    TEXT(model->graph, SBIT_ONNX_GRAPH_NAME, name, "main");
    sbit_onnx_graph *body = NEW(sbit_onnx_graph, 1);
    TEXT(body, SBIT_ONNX_GRAPH_NAME, name, "body");
    sbit_onnx_graph *graphs[2] = {model->graph, body};
    static const char *const names[2][2] = {{"x", "y"}, {"in", "out"}};
    for (int g = 0; g < 2; g++) {
        sbit_onnx_value_info *infos = NEW(sbit_onnx_value_info, 3);
        for (int i = 0; i < 3; i++) {
            TEXT(&infos[i], SBIT_ONNX_VALUE_INFO_NAME, name, i < 2 ? names[g][i] : "c");
            infos[i].type = NEW(sbit_onnx_type, 1);
            infos[i].type->tensor_type = NEW(sbit_onnx_type_tensor, 1);
            SBIT_ONNX_SET(infos[i].type->tensor_type, SBIT_ONNX_TYPE_TENSOR_ELEM_TYPE, elem_type,
                          SBIT_F32);
        }
        sbit_onnx_value_info *inputs = NEW(sbit_onnx_value_info, 2);
        inputs[0] = infos[0];
        inputs[1] = infos[2];
        graphs[g]->input = inputs;
        graphs[g]->input_count = g == 0 && !constant ? 2 : 1;
        graphs[g]->output = &infos[1];
        graphs[g]->output_count = 1;
    }
    if (constant) {
        sbit_onnx_tensor *c = NEW(sbit_onnx_tensor, 1);
        TEXT(c, SBIT_ONNX_TENSOR_NAME, name, "c");
        SBIT_ONNX_SET(c, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, SBIT_F32);
        c->float_data = NEW(float, 1);
        c->float_data[0] = 1.0f;
        c->float_data_count = 1;
        model->graph->initializer = c;
        model->graph->initializer_count = 1;
    }
    body->node = NEW(sbit_onnx_node, 2);
    body->node_count = 2;
    for (int i = 0; i < 2; i++) {
        sbit_str *io = NEW(sbit_str, 3);
        static const char *const io_names[2][3] = {{"in", "mid", ""}, {"mid", "c", "out"}};
        for (int k = 0; k < 3; k++) {
            io[k].data = io_names[i][k];
            io[k].size = strlen(io_names[i][k]);
        }
        body->node[i].input = io;
        body->node[i].input_count = i == 0 ? 1 : 2;
        body->node[i].output = &io[i + 1];
        body->node[i].output_count = 1;
        TEXT(&body->node[i], SBIT_ONNX_NODE_OP_TYPE, op_type, i == 0 ? op : "Add");
        if (i == 0 && strcmp(op, "Relu") != 0) {
            TEXT(&body->node[i], SBIT_ONNX_NODE_DOMAIN, domain, "test");
        }
    }
    sbit_onnx_node *node = NEW(sbit_onnx_node, 1);
    sbit_str *io = NEW(sbit_str, 2);
    io[0] = model->graph->input[0].name;
    io[1] = model->graph->output[0].name;
    node->input = &io[0];
    node->output = &io[1];
    node->input_count = node->output_count = 1;
    TEXT(node, SBIT_ONNX_NODE_OP_TYPE, op_type, "Repeat");
    TEXT(node, SBIT_ONNX_NODE_DOMAIN, domain, "test");
    TEXT(node, SBIT_ONNX_NODE_NAME, name, "repeat");
    node->attribute = NEW(sbit_onnx_attribute, 2);
    node->attribute_count = 2;
    TEXT(&node->attribute[0], SBIT_ONNX_ATTRIBUTE_NAME, name, "body");
    SBIT_ONNX_SET(&node->attribute[0], SBIT_ONNX_ATTRIBUTE_TYPE, type, SBIT_ONNX_ATTR_GRAPH);
    node->attribute[0].g = body;
    TEXT(&node->attribute[1], SBIT_ONNX_ATTRIBUTE_NAME, name, "times");
    SBIT_ONNX_SET(&node->attribute[1], SBIT_ONNX_ATTRIBUTE_TYPE, type, SBIT_ONNX_ATTR_INT);
    SBIT_ONNX_SET(&node->attribute[1], SBIT_ONNX_ATTRIBUTE_I, i, times);
    model->graph->node = node;
    model->graph->node_count = 1;
#undef NEW
#undef TEXT
    CHECK_OK(sbit_graph_import(b->ctx, doc, &graph, &b->error), b->error);
    return graph;
}

TEST(bodies_run_many_times_on_one_plan)
{
    for (int constant = 0; constant < 2; constant++) {
        build b;
        sbit_op_row repeat = plain_row("Repeat", infer_repeat, run_repeat);
        sbit_op_row plus = plain_row("PlusOne", infer_same, run_plus_one);
        static const float x[3] = {1, 2, 3}, c[1] = {1};
        sbit_session_memory memory;
        build_begin(&b, 17);
        repeat.flags = SBIT_OP_BODY | SBIT_OP_DYNAMIC;
        plus.prepare = prepare_plus_one;
        plus_one.prepares = plus_one.runs = 0;
        CHECK_OK(sbit_operator_register(b.ctx, &repeat, &b.error), b.error);
        CHECK_OK(sbit_operator_register(b.ctx, &plus, &b.error), b.error);
        sbit_graph_destroy(b.graph);
        b.graph = load_repeat(&b, constant == 1, 1000, "PlusOne");
        sbit_session *session = b.graph != NULL ? session_of(&b, NULL) : NULL;
        if (session != NULL) {
            set_floats(session, "x", "3", x);
            if (constant == 0) {
                set_floats(session, "c", "", c);
            }
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            CHECK_NEAR(floats_of(session, 0)[2], 2003.0, 0.0);
            CHECK_EQ_I64(plus_one.runs, 1000);
            CHECK_EQ_I64(plus_one.prepares, 1);
            sbit_session_memory_of(session, &memory);
            CHECK(memory.dynamic_bytes < 16384); /* the loop's state does not pile up */
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            CHECK_EQ_I64(plus_one.prepares, 1);
            set_floats(session, "x", "2", x);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            CHECK_EQ_I64(plus_one.prepares, 2);
            CHECK_NEAR(floats_of(session, 0)[1], 2002.0, 0.0);
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}

TEST(inference_goes_into_bodies)
{
    build b;
    sbit_op_row repeat = plain_row("Repeat", infer_repeat, run_repeat);
    char text[100];
    build_begin(&b, 17);
    CHECK_OK(sbit_operator_register(b.ctx, &repeat, &b.error), b.error);
    sbit_graph_destroy(b.graph);
    b.graph = load_repeat(&b, true, 1, "Relu");
    if (b.graph != NULL) {
        const sbit_value_id x = sbit_graph_input(b.graph, 0);
        const sbit_type type = build_type(&b, SBIT_F32, "N,5");
        sbit_graph_set_type(b.graph, x, &type);
        CHECK_OK(sbit_infer(b.graph, &b.error), b.error);
        CHECK_STR(build_type_text(&b, sbit_graph_output(b.graph, 0), text, sizeof text),
                  "float32[N,5]");
        const sbit_node *node = sbit_graph_node(b.graph, sbit_graph_first(b.graph));
        sbit_graph *body = sbit_node_attr(node, "body")->g;
        const sbit_type *mid = &sbit_graph_value(body, sbit_graph_find_value(body, "mid"))->type;
        CHECK_EQ_I64(mid->rank, 2);
        CHECK_EQ_I64(mid->dims[1].value, 5);
        sbit_session *session = NULL;
        CHECK_STATUS(sbit_session_create(body, NULL, &session, &b.error), SBIT_ERR_INVALID_ARGUMENT,
                     b.error);
    }
    build_end(&b);
}

/* ---- failures */

TEST(unsupported_nodes_are_named_at_once)
{
    build b;
    sbit_session *session = NULL;
    sbit_session_desc desc;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2");
    const sbit_value_id fine = build_unary(&b, "Relu", "fine", x);
    const sbit_value_id first = user_unary(&b, "Foo", "first", fine);
    build_output(&b, user_unary(&b, "Bar", "second", first));
    if (!b.failed) {
        CHECK_STATUS(sbit_session_create(b.graph, NULL, &session, &b.error), SBIT_ERR_UNSUPPORTED,
                     b.error);
        CHECK_CONTAINS(b.error.message, "2 nodes");
        CHECK_CONTAINS(b.error.message, "test.Foo: no such operator (1: 'first')");
        CHECK_CONTAINS(b.error.message, "test.Bar: no such operator (1: 'second')");
        CHECK(session == NULL);
        memset(&desc, 0, sizeof desc); /* but what does not need them runs */
        desc.outputs = &fine;
        desc.output_count = 1;
        session = session_of(&b, &desc);
        CHECK(session != NULL);
        sbit_session_destroy(session);
    }
    build_end(&b);
}

TEST(a_failing_node_is_named)
{
    build b;
    const sbit_op_row row = plain_row("Fails", infer_same, run_fails);
    static const float x[2] = {1, 2};
    build_begin(&b, 17);
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    const sbit_value_id input = build_input(&b, "x", SBIT_F32, "2");
    build_output(&b, user_unary(&b, "Fails", "culprit", input));
    sbit_session *session = session_of(&b, NULL);
    if (session != NULL) {
        set_floats(session, "x", "2", x);
        CHECK_STATUS(sbit_session_run(session, &b.error), SBIT_ERR_NUMERIC, b.error);
        CHECK_STR(b.error.message, "test::Fails 'culprit': a value is not finite");
        CHECK_STR(b.error.where, "culprit");
        CHECK_STATUS(sbit_session_run(session, NULL), SBIT_ERR_NUMERIC, b.error);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* A graph with all kinds of storage; the n-th allocation fails, for all n. */
static sbit_status build_and_run(test_heap *heap, int64_t fail_at, bool *recovered)
{
    build b;
    sbit_ctx_desc desc;
    static sbit_op_row positive, plus;
    static const int64_t zero = 0, pads[4] = {1, 1, 1, 1};
    static float x[2 * 3 * 4 * 4];
    const sbit_attr attr = build_ints("pads", pads, 4);
    sbit_value_id in[2], outs[2];
    sbit_session *session = NULL;
    memset(&b, 0, sizeof b);
    memset(&desc, 0, sizeof desc);
    desc.allocator = test_heap_allocator(heap);
    CHECK_OK(sbit_ctx_create(&desc, &b.ctx, &b.error), b.error);
    CHECK_OK(sbit_graph_create(b.ctx, 17, &b.graph, &b.error), b.error);
    positive = plain_row("Positive", infer_positive, run_positive);
    positive.flags = SBIT_OP_DYNAMIC;
    plus = plain_row("PlusOne", infer_same, run_plus_one);
    plus.prepare = prepare_plus_one;
    CHECK_OK(sbit_operator_register(b.ctx, &positive, &b.error), b.error);
    CHECK_OK(sbit_operator_register(b.ctx, &plus, &b.error), b.error);
    in[0] = build_input(&b, "x", SBIT_F32, "N,3,4,4");
    in[1] = user_unary(&b, "PlusOne", "folded", build_weights(&b, "w", "3,3,3,3", 1));
    const sbit_value_id conv = build_node(&b, "Conv", "conv", in, 2, &attr, 1);
    const sbit_value_id relu = build_unary(&b, "Relu", "relu", conv);
    build_node_outputs(&b, "test", "Positive", "positive", &relu, 1, NULL, 0, outs, 2);
    build_output(&b, user_unary(&b, "PlusOne", "late", outs[0]));
    const sbit_value_id shape = build_unary(&b, "Shape", "shape", x[0] > 2.0f ? conv : in[0]);
    build_output(&b, build_binary(&b, "Gather", "gather", shape,
                                  build_constant(&b, "zero", SBIT_I64, "", &zero)));
    build_output(&b, build_binary(&b, "Reshape", "view", relu, shape));
    fill(x, 2 * 3 * 4 * 4, 1);
    const sbit_tensor tensor = build_tensor(SBIT_F32, "2,3,4,4", x);
    heap->count = 0;
    heap->fail_at = fail_at;
    sbit_status status = sbit_session_create(b.graph, NULL, &session, &b.error);
    if (status == SBIT_OK) {
        CHECK_OK(sbit_session_set_input(session, "x", &tensor, &b.error), b.error);
        status = sbit_session_run(session, &b.error);
        *recovered = status == SBIT_OK || sbit_session_run(session, &b.error) == SBIT_OK;
    }
    sbit_session_destroy(session);
    build_end(&b);
    return status;
}

/* Likewise, where weights become a list. */
static sbit_status build_and_run_few_weights(test_heap *heap, int64_t fail_at, bool *recovered)
{
    static float x[144 * 7 * 10];
    const sbit_tensor tensor = build_tensor(SBIT_F32, "1,144,7,10", x);
    build b;
    sbit_ctx_desc desc;
    sbit_session *session = NULL;
    sbit_node_profile node;
    memset(&b, 0, sizeof b);
    memset(&desc, 0, sizeof desc);
    desc.allocator = test_heap_allocator(heap);
    CHECK_OK(sbit_ctx_create(&desc, &b.ctx, &b.error), b.error);
    CHECK_OK(sbit_graph_create(b.ctx, 17, &b.graph, &b.error), b.error);
    few_weights(&b, 13);
    heap->count = 0;
    heap->fail_at = fail_at;
    sbit_status status = sbit_session_create(b.graph, NULL, &session, &b.error);
    if (status == SBIT_OK) {
        CHECK_OK(sbit_session_set_input(session, "few", &tensor, &b.error), b.error);
        status = sbit_session_run(session, &b.error);
        *recovered = status == SBIT_OK || sbit_session_run(session, &b.error) == SBIT_OK;
        CHECK(sbit_session_profile(session, &node, 1) > 0 && sbit_node_int(node.lowered, "nonzeros", -1) > 0);
    }
    sbit_session_destroy(session);
    build_end(&b);
    return status;
}

static void each_allocation_fails(sbit_status (*run)(test_heap *heap, int64_t fail_at, bool *recovered))
{
    for (int64_t n = 1; n < 2000; n++) {
        test_heap heap;
        bool recovered = true;
        memset(&heap, 0, sizeof heap);
        const sbit_status status = run(&heap, n, &recovered);
        CHECK_EQ_I64(heap.live_bytes, 0);
        CHECK_MSG(recovered, "the session is not usable after allocation %lld failed",
                  (long long)n);
        if (status == SBIT_OK) {
            CHECK(n > 10);
            return;
        }
        if (!CHECK_EQ_I64(status, SBIT_ERR_OUT_OF_MEMORY)) {
            return;
        }
    }
    CHECK_MSG(false, "too many allocations");
}

TEST(every_allocation_may_fail)
{
    each_allocation_fails(build_and_run);
    each_allocation_fails(build_and_run_few_weights);
}

/* ---- threads */

TEST(results_do_not_depend_on_the_number_of_threads)
{
    static float results[3][2 * 16 * 12 * 12];
    for (int i = 0; i < 3; i++) {
        build b;
        sbit_ctx_desc desc;
        static float x[2 * 8 * 12 * 12];
        static const int64_t pads[4] = {1, 1, 1, 1};
        const sbit_attr attr = build_ints("pads", pads, 4);
        sbit_value_id in[2];
        memset(&b, 0, sizeof b);
        memset(&desc, 0, sizeof desc);
        desc.threads = 1 << i;
        CHECK_OK(sbit_ctx_create(&desc, &b.ctx, &b.error), b.error);
        CHECK_OK(sbit_graph_create(b.ctx, 17, &b.graph, &b.error), b.error);
        in[0] = build_input(&b, "x", SBIT_F32, "2,8,12,12");
        in[1] = build_weights(&b, "w", "16,8,3,3", 1);
        const sbit_value_id conv = build_node(&b, "Conv", "conv", in, 2, &attr, 1);
        build_output(&b, build_unary(&b, "Relu", "relu", conv));
        sbit_session *session = session_of(&b, NULL);
        if (session != NULL) {
            fill(x, 2 * 8 * 12 * 12, 5);
            set_floats(session, "x", "2,8,12,12", x);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            memcpy(results[i], floats_of(session, 0), sizeof results[i]);
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
    CHECK_MEM(results[0], results[1], sizeof results[0]);
    CHECK_MEM(results[0], results[2], sizeof results[0]);
}

/* Without a name the only input is meant; of two, none. */
TEST(the_only_input_needs_no_name)
{
    const float data[] = {-1.0f, 2.0f};
    const sbit_tensor x = build_tensor(SBIT_F32, "2", data);
    for (int inputs = 1; inputs <= 2; inputs++) {
        build b;
        sbit_session *session = NULL;
        build_begin(&b, 13);
        const sbit_value_id a = build_input(&b, "a", SBIT_F32, "2");
        const sbit_value_id other = inputs == 2 ? build_input(&b, "b", SBIT_F32, "2") : a;
        build_output(&b, build_binary(&b, "Add", "sum", a, other));
        CHECK_OK(sbit_session_create(b.graph, NULL, &session, &b.error), b.error);
        if (inputs == 1) {
            const float want[] = {-2.0f, 4.0f};
            CHECK_OK(sbit_session_set_input(session, NULL, &x, &b.error), b.error);
            CHECK_OK(sbit_session_run(session, &b.error), b.error);
            check_floats(floats_of(session, 0), want, 2, 0.0);
        } else {
            CHECK_STATUS(sbit_session_set_input(session, NULL, &x, &b.error), SBIT_ERR_NOT_FOUND,
                         b.error);
            CHECK_CONTAINS(b.error.message, "the graph has 'a', 'b'");
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}
