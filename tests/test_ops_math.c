/* test_ops_math.c: elementwise, reducing, moving, generating, quantizing and control operators on
 * values worked out by hand. Every case runs three times: inputs fed with their shapes declared,
 * fed with unknown shapes, and as constants. The ONNX backend data (test_conformance) covers the
 * usual; here are old opsets, ties, edges and broken models. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ARRAY(values) (values), COUNT(values)

/* ---- attributes */

static sbit_attr attr_int(const char *name, int64_t value)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_INT;
    attr.i = value;
    return attr;
}

static sbit_attr attr_float(const char *name, float value)
{
    sbit_attr attr = attr_int(name, 0);
    attr.type = SBIT_ONNX_ATTR_FLOAT;
    attr.f = value;
    return attr;
}

static sbit_attr attr_ints(const char *name, const int64_t *values, size_t count)
{
    sbit_attr attr = attr_int(name, 0);
    attr.type = SBIT_ONNX_ATTR_INTS;
    attr.ints = values;
    attr.count = count;
    return attr;
}

static sbit_attr attr_string(const char *name, const char *text)
{
    sbit_attr attr = attr_int(name, 0);
    attr.type = SBIT_ONNX_ATTR_STRING;
    attr.s.data = text;
    attr.s.size = strlen(text);
    return attr;
}

/* ---- running one operator */

typedef enum feed_mode {
    FEED_DECLARED,
    FEED_UNKNOWN,
    FEED_CONSTANT,
    FEED_MODES
} feed_mode;

typedef struct op_case {
    int64_t opset;
    const char *op;
    const sbit_tensor *in; /* dtype SBIT_UNDEFINED: omitted */
    size_t in_count;
    const sbit_attr *attrs;
    size_t attr_count;
    size_t out_count;
} op_case;

static sbit_value_id case_input(build *b, feed_mode mode, const sbit_tensor *tensor, size_t i)
{
    sbit_type type;
    sbit_value_id id = {0};
    char name[16];
    snprintf(name, sizeof name, "in%d", (int)i);
    if (tensor->dtype == SBIT_UNDEFINED || b->failed) {
        return id;
    }
    if (mode == FEED_CONSTANT) {
        build_do(b, sbit_graph_add_constant(b->graph, name, tensor, &id, &b->error), name);
        return id;
    }
    memset(&type, 0, sizeof type);
    type.dtype = tensor->dtype;
    type.rank = mode == FEED_UNKNOWN ? -1 : tensor->rank;
    for (int32_t d = 0; d < SBIT_MAX_RANK; d++) {
        type.dims[d].value = mode == FEED_UNKNOWN ? 0 : tensor->dims[d];
        type.dims[d].symbol = mode == FEED_UNKNOWN ? SBIT_SYMBOL_ANY : 0;
    }
    id = build_value(b, name, &type);
    build_do(b, sbit_graph_set_input(b->graph, id, true, &b->error), name);
    return id;
}

static sbit_status case_feed(build *b, const op_case *c, sbit_session *session)
{
    for (size_t i = 0; i < c->in_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", (int)i);
        if (c->in[i].dtype != SBIT_UNDEFINED) {
            const sbit_status status = sbit_session_set_input(session, name, &c->in[i], &b->error);
            if (status != SBIT_OK) {
                return status;
            }
        }
    }
    return SBIT_OK;
}

/* Builds and runs; the session (NULL if it could not be made) is the caller's, as is b. */
static sbit_status case_run(build *b, const op_case *c, feed_mode mode, sbit_session **session)
{
    sbit_value_id ins[16], outs[16];
    sbit_status status = SBIT_OK;
    *session = NULL;
    build_begin(b, c->opset);
    for (size_t i = 0; i < c->in_count; i++) {
        ins[i] = case_input(b, mode, &c->in[i], i);
    }
    build_node_outputs(b, "", c->op, "node", ins, c->in_count, c->attrs, c->attr_count, outs,
                       c->out_count);
    for (size_t i = 0; i < c->out_count; i++) {
        build_output(b, outs[i]);
    }
    if (b->failed) {
        return SBIT_ERR_STATE;
    }
    status = sbit_session_create(b->graph, NULL, session, &b->error);
    if (status == SBIT_OK && mode != FEED_CONSTANT) {
        status = case_feed(b, c, *session);
    }
    return status == SBIT_OK ? sbit_session_run(*session, &b->error) : status;
}

static bool bits_equal(const sbit_tensor *a, const sbit_tensor *b)
{
    return memcmp(a->data, b->data, sbit_tensor_bytes(b)) == 0;
}

static bool same_tensor(const char *op, const sbit_tensor *got, const sbit_tensor *want,
                        double tolerance)
{
    char a[96], b[96];
    sbit_tensor_describe(got, a, sizeof a);
    sbit_tensor_describe(want, b, sizeof b);
    if (!CHECK_MSG(strcmp(a, b) == 0, "%s: got %s, wanted %s", op, a, b)) {
        return false;
    }
    for (int64_t i = 0; i < sbit_tensor_count(want); i++) {
        bool same = true;
        if (want->dtype == SBIT_F32) {
            const double x = (double)((const float *)got->data)[i];
            const double y = (double)((const float *)want->data)[i];
            same = x == y || (x != x && y != y) || fabs(x - y) <= tolerance;
            if (!CHECK_MSG(same, "%s: element %d is %.9g, wanted %.9g", op, (int)i, x, y)) {
                return false;
            }
        } else if (want->dtype == SBIT_STRING) {
            const sbit_str x = ((const sbit_str *)got->data)[i];
            const sbit_str y = ((const sbit_str *)want->data)[i];
            if (!CHECK_MSG(x.size == y.size && memcmp(x.data, y.data, x.size) == 0,
                           "%s: element %d is '%s', wanted '%s'", op, (int)i, x.data, y.data)) {
                return false;
            }
        }
    }
    return want->dtype == SBIT_F32 || want->dtype == SBIT_STRING ||
           CHECK_MSG(bits_equal(got, want), "%s: other %s values", op, b);
}

static void check_case(const op_case *c, const sbit_tensor *want, double tolerance)
{
    for (int mode = 0; mode < FEED_MODES; mode++) {
        build b;
        sbit_session *session = NULL;
        if (CHECK_OK(case_run(&b, c, (feed_mode)mode, &session), b.error)) {
            for (size_t i = 0; i < c->out_count; i++) {
                const sbit_value *value = sbit_session_output(session, i);
                if (CHECK(value != NULL)) {
                    same_tensor(c->op, &value->tensor, &want[i], tolerance);
                }
            }
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}

/* One output. */
static void check_op(int64_t opset, const char *op, const sbit_tensor *in, size_t in_count,
                     const sbit_attr *attrs, size_t attr_count, sbit_tensor want)
{
    const op_case c = {opset, op, in, in_count, attrs, attr_count, 1};
    check_case(&c, &want, 1e-5);
}

/* Must fail, in every mode, with a message that holds `part`. */
static void check_fails(int64_t opset, const char *op, const sbit_tensor *in, size_t in_count,
                        const sbit_attr *attrs, size_t attr_count, const char *part)
{
    const op_case c = {opset, op, in, in_count, attrs, attr_count, 1};
    for (int mode = 0; mode < FEED_MODES; mode++) {
        build b;
        sbit_session *session = NULL;
        const sbit_status status = case_run(&b, &c, (feed_mode)mode, &session);
        CHECK_MSG(status != SBIT_OK, "%s in mode %d should fail", op, mode);
        CHECK_CONTAINS(status != SBIT_OK ? b.error.message : part, part);
        sbit_session_destroy(session);
        build_end(&b);
    }
}

static sbit_tensor none(void)
{
    sbit_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    return tensor;
}

#define F32(dims, data) build_tensor(SBIT_F32, dims, data)
#define I64(dims, data) build_tensor(SBIT_I64, dims, data)

/* ---- rows */

TEST(every_row_is_complete_and_versions_are_distinct)
{
    size_t count = 0;
    for (const sbit_op_row *row; (row = sbit_operator_at(count)) != NULL; count++) {
        CHECK_MSG(row->infer != NULL && (row->run != NULL || row->expand != NULL) &&
                      row->since_version >= 1 && row->types != 0,
                  "%s-%d lacks something", row->op_type, (int)row->since_version);
        for (size_t i = 0; i < count; i++) {
            const sbit_op_row *other = sbit_operator_at(i);
            CHECK_MSG(strcmp(row->op_type, other->op_type) != 0 ||
                          strcmp(row->domain, other->domain) != 0 ||
                          row->since_version != other->since_version,
                      "%s-%d stands twice", row->op_type, (int)row->since_version);
        }
    }
    CHECK(count > 500);
}

/* ---- unary */

TEST(activations_by_hand)
{
    const float x[] = {-2.0f, -0.5f, 0.0f, 0.5f, 2.0f};
    const float leaky[] = {-0.2f, -0.05f, 0.0f, 0.5f, 2.0f};
    const float relu[] = {0.0f, 0.0f, 0.0f, 0.5f, 2.0f};
    const float hard[] = {0.1f, 0.4f, 0.5f, 0.6f, 0.9f};
    const float shrink[] = {-1.5f, 0.0f, 0.0f, 0.0f, 1.5f};
    const float selu[] = {-1.52016651f, -0.691758f, 0.0f, 0.5253505f, 2.1014020f};
    const sbit_tensor in = F32("5", x);
    const sbit_attr alpha = attr_float("alpha", 0.1f);
    const sbit_attr bounds[] = {attr_float("bias", 0.5f), attr_float("lambd", 1.0f)};
    check_op(16, "LeakyRelu", &in, 1, &alpha, 1, F32("5", leaky));
    check_op(13, "Relu", &in, 1, NULL, 0, F32("5", relu));
    check_op(6, "HardSigmoid", &in, 1, NULL, 0, F32("5", hard));
    check_op(9, "Shrink", &in, 1, ARRAY(bounds), F32("5", shrink));
    check_op(6, "Selu", &in, 1, NULL, 0, F32("5", selu));
}

TEST(round_is_half_to_even)
{
    const float x[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 2.4f};
    const float y[] = {0.0f, 2.0f, 2.0f, 0.0f, -2.0f, -2.0f, 2.0f};
    const sbit_tensor in = F32("7", x);
    check_op(11, "Round", &in, 1, NULL, 0, F32("7", y));
}

TEST(not_a_number_stays)
{
    const float x[] = {NAN, 1.0f, NAN, -1.0f, 3.0f, 4.0f, 5.0f, 6.0f, NAN};
    const float relu[] = {NAN, 1.0f, NAN, 0.0f, 3.0f, 4.0f, 5.0f, 6.0f, NAN};
    const uint8_t nan[] = {1, 0, 1, 0, 0, 0, 0, 0, 1};
    const sbit_tensor in = F32("9", x);
    check_op(14, "Relu", &in, 1, NULL, 0, F32("9", relu));
    check_op(13, "IsNaN", &in, 1, NULL, 0, build_tensor(SBIT_BOOL, "9", nan));
}

TEST(integers_wrap_and_keep_their_sign)
{
    const int8_t x[] = {-128, -1, 0, 127};
    const int8_t neg[] = {-128, 1, 0, -127};
    const int8_t sign[] = {-1, -1, 0, 1};
    const uint64_t u[] = {0, 1, UINT64_MAX};
    const uint64_t u_sign[] = {0, 1, 1};
    const sbit_tensor in = build_tensor(SBIT_I8, "4", x), uin = build_tensor(SBIT_U64, "3", u);
    check_op(13, "Neg", &in, 1, NULL, 0, build_tensor(SBIT_I8, "4", neg));
    check_op(13, "Abs", &in, 1, NULL, 0, build_tensor(SBIT_I8, "4", "\x80\x01\x00\x7f"));
    check_op(13, "Sign", &in, 1, NULL, 0, build_tensor(SBIT_I8, "4", sign));
    check_op(13, "Sign", &uin, 1, NULL, 0, build_tensor(SBIT_U64, "3", u_sign));
    check_op(13, "Abs", &uin, 1, NULL, 0, build_tensor(SBIT_U64, "3", u));
}

/* ---- binary */

TEST(broadcast_before_opset_7_follows_axis)
{
    const float a[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const float b[] = {100, 200, 300};
    const float row[] = {100, 201, 302, 103, 204, 305, 106, 207, 308, 109, 210, 311};
    const float middle[] = {100, 101, 202, 203, 304, 305, 106, 107, 208, 209, 310, 311};
    const sbit_tensor suffix[] = {F32("4,3", a), F32("3", b)};
    const sbit_tensor inner[] = {F32("2,3,2", a), F32("3", b)};
    const sbit_attr on = attr_int("broadcast", 1);
    const sbit_attr axis[] = {attr_int("broadcast", 1), attr_int("axis", 1)};
    check_op(6, "Add", suffix, 2, &on, 1, F32("4,3", row));
    check_op(6, "Add", inner, 2, ARRAY(axis), F32("2,3,2", middle));
    check_fails(6, "Add", inner, 2, &on, 1, "broadcast");
}

TEST(broadcasting_in_every_position)
{
    const float a[] = {1, 2, 3}, b[] = {10, 20};
    const float outer[] = {11, 12, 13, 21, 22, 23};
    const float scalar[] = {11, 12, 13};
    const sbit_tensor pair[] = {F32("1,3", a), F32("2,1", b)};
    const sbit_tensor one[] = {F32("", b), F32("3", a)};
    const sbit_tensor empty[] = {F32("0,3", a), F32("3", a)};
    check_op(14, "Add", pair, 2, NULL, 0, F32("2,3", outer));
    check_op(14, "Add", one, 2, NULL, 0, F32("3", scalar));
    check_op(14, "Add", empty, 2, NULL, 0, F32("0,3", NULL));
    const sbit_tensor bad[] = {F32("3", a), F32("2", b)};
    check_fails(14, "Add", bad, 2, NULL, 0, "broadcast");
}

TEST(integer_division_never_traps)
{
    const int64_t a[] = {7, -7, 5, INT64_MIN}, b[] = {2, 2, 0, -1};
    const int64_t div[] = {3, -3, 0, INT64_MIN}, mod[] = {1, 1, 0, 0}, fmod_[] = {1, -1, 0, 0};
    const sbit_tensor in[] = {I64("4", a), I64("4", b)};
    const sbit_attr trunc = attr_int("fmod", 1);
    check_op(14, "Div", in, 2, NULL, 0, I64("4", div));
    check_op(13, "Mod", in, 2, NULL, 0, I64("4", mod));
    check_op(13, "Mod", in, 2, &trunc, 1, I64("4", fmod_));
}

TEST(pow_mixes_types)
{
    const int32_t x[] = {2, 3, -2};
    const float y[] = {3.0f, 2.0f, 3.0f};
    const int32_t z[] = {8, 9, -8};
    const float f[] = {1.5f, 2.0f, 3.0f};
    const int64_t two = 2;
    const float squares[] = {2.25f, 4.0f, 9.0f};
    const sbit_tensor in[] = {build_tensor(SBIT_I32, "3", x), F32("3", y)};
    const sbit_tensor by_int[] = {F32("3", f), I64("", &two)};
    check_op(15, "Pow", in, 2, NULL, 0, build_tensor(SBIT_I32, "3", z));
    check_op(15, "Pow", by_int, 2, NULL, 0, F32("3", squares));
}

TEST(shifts_reach_past_the_type)
{
    const uint8_t x[] = {1, 200, 255}, y[] = {9, 1, 7};
    const uint8_t left[] = {0, 144, 128}, right[] = {0, 100, 1};
    const sbit_tensor in[] = {build_tensor(SBIT_U8, "3", x), build_tensor(SBIT_U8, "3", y)};
    const sbit_attr l = attr_string("direction", "LEFT"), r = attr_string("direction", "RIGHT");
    const sbit_attr bad = attr_string("direction", "UP");
    check_op(11, "BitShift", in, 2, &l, 1, build_tensor(SBIT_U8, "3", left));
    check_op(11, "BitShift", in, 2, &r, 1, build_tensor(SBIT_U8, "3", right));
    check_fails(11, "BitShift", in, 2, &bad, 1, "UP");
}

TEST(clip_takes_its_limits_in_every_form) /* A4.7 */
{
    const float x[] = {-3.0f, -1.0f, 0.0f, 0.5f, 3.0f};
    const float both[] = {-1.0f, -1.0f, 0.0f, 0.5f, 1.0f};
    const float upper[] = {-3.0f, -1.0f, 0.0f, 0.5f, 1.0f};
    const float lower[] = {-1.0f, -1.0f, 0.0f, 0.5f, 3.0f};
    const float crossed[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    const float low = -1.0f, high = 1.0f, above = 2.0f;
    const int8_t xi[] = {-100, 0, 100}, lo = -5, hi = 5, yi[] = {-5, 0, 5};
    const sbit_attr limits[] = {attr_float("min", -1.0f), attr_float("max", 1.0f)};
    const sbit_tensor in[] = {F32("5", x), F32("", &low), F32("", &high)};
    const sbit_tensor no_min[] = {F32("5", x), none(), F32("", &high)};
    const sbit_tensor cross[] = {F32("5", x), F32("", &above), F32("", &high)};
    const sbit_tensor ints[] = {build_tensor(SBIT_I8, "3", xi), build_tensor(SBIT_I8, "", &lo),
                                build_tensor(SBIT_I8, "", &hi)};
    check_op(6, "Clip", in, 1, ARRAY(limits), F32("5", both));
    check_op(6, "Clip", in, 1, limits, 1, F32("5", lower));
    check_op(11, "Clip", in, 3, NULL, 0, F32("5", both));
    check_op(13, "Clip", no_min, 3, NULL, 0, F32("5", upper));
    check_op(13, "Clip", in, 2, NULL, 0, F32("5", lower));
    check_op(13, "Clip", in, 1, NULL, 0, F32("5", x));
    check_op(13, "Clip", cross, 3, NULL, 0, F32("5", crossed));
    check_op(12, "Clip", ints, 3, NULL, 0, build_tensor(SBIT_I8, "3", yi));
}

TEST(clip_of_a_scalar_may_lie_where_a_limit_was)
{
    const double x = 9.0, lo = 1.0, hi = 5.0, y = 5.0;
    const sbit_tensor in[] = {build_tensor(SBIT_F64, "", &x), build_tensor(SBIT_F64, "", &lo),
                              build_tensor(SBIT_F64, "", &hi)};
    check_op(13, "Clip", in, 3, NULL, 0, build_tensor(SBIT_F64, "", &y));
}

TEST(prelu_slope_belongs_to_channels_before_opset_7)
{
    const float x[] = {-1, -2, -3, -4}, slope[] = {0.5f, 0.25f};
    const float y[] = {-0.5f, -1.0f, -0.75f, -1.0f};
    const sbit_tensor in[] = {F32("1,2,2", x), F32("2", slope)};
    check_op(6, "PRelu", in, 2, NULL, 0, F32("1,2,2", y));
}

TEST(variadic_operators_take_one_or_many)
{
    const float a[] = {1, 5}, b[] = {4, 2}, c[] = {3};
    const float sum[] = {8, 10}, mean[] = {8.0f / 3, 10.0f / 3}, max[] = {4, 5}, min[] = {1, 2};
    const sbit_tensor in[] = {F32("2", a), F32("2", b), F32("1", c)};
    check_op(13, "Sum", in, 3, NULL, 0, F32("2", sum));
    check_op(13, "Mean", in, 3, NULL, 0, F32("2", mean));
    check_op(13, "Max", in, 3, NULL, 0, F32("2", max));
    check_op(13, "Min", in, 3, NULL, 0, F32("2", min));
    check_op(13, "Sum", in, 1, NULL, 0, F32("2", a));
}

TEST(strings_compare_and_move)
{
    const sbit_str a[] = {{"x", 1}, {"yy", 2}, {"", 0}}, b[] = {{"x", 1}, {"y", 1}, {"", 0}};
    const sbit_str picked[] = {{"", 0}, {"x", 1}};
    const uint8_t same[] = {1, 0, 1};
    const int64_t at[] = {2, 0};
    const sbit_tensor in[] = {build_tensor(SBIT_STRING, "3", a), build_tensor(SBIT_STRING, "3", b)};
    const sbit_tensor gather[] = {build_tensor(SBIT_STRING, "3", a), I64("2", at)};
    check_op(19, "Equal", in, 2, NULL, 0, build_tensor(SBIT_BOOL, "3", same));
    check_op(13, "Gather", gather, 2, NULL, 0, build_tensor(SBIT_STRING, "2", picked));
}

/* ---- reduce */

TEST(reductions_over_any_axes)
{
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; /* [2,3,2] */
    const float over_1[] = {9, 12, 27, 30}, over_02[] = {18, 26, 34}, all[] = {78};
    const float max_0[] = {7, 8, 9, 10, 11, 12};
    const int64_t axis_1[] = {1}, axes_02[] = {0, -1}, axis_0[] = {0}, axis_3[] = {3};
    const sbit_attr far = attr_ints("axes", axis_3, 1);
    const sbit_attr keep0[] = {attr_ints("axes", axis_1, 1), attr_int("keepdims", 0)};
    const sbit_attr flat = attr_int("keepdims", 0);
    const sbit_tensor in[] = {F32("2,3,2", x), I64("2", axes_02)};
    const sbit_tensor max_in[] = {F32("2,3,2", x), I64("1", axis_0)};
    check_op(11, "ReduceSum", in, 1, ARRAY(keep0), F32("2,2", over_1));
    check_op(13, "ReduceSum", in, 2, NULL, 0, F32("1,3,1", over_02));
    check_op(13, "ReduceSum", in, 1, &flat, 1, F32("", all));
    check_op(18, "ReduceMax", max_in, 2, NULL, 0, F32("1,3,2", max_0));
    check_fails(11, "ReduceSum", max_in, 1, &far, 1, "axis 3");
}

TEST(reductions_of_numbers_whose_squares_or_sums_are_too_large_for_float32)
{
    const float x[] = {3e38f, 2e38f, 3e38f, 1e38f, -3e38f, 1e38f, -1e38f, -3e38f}; /* [4,2] */
    float over_0[2], all[1];
    double sums[2] = {0.0, 0.0};
    const float squares[] = {1e20f, -1e20f};
    const int64_t first[] = {0}, second[] = {1};
    const sbit_attr flat = attr_int("keepdims", 0);
    const sbit_tensor in[] = {F32("4,2", x), I64("1", first)};
    const sbit_tensor row[] = {F32("1,8", x), I64("1", second)};
    const sbit_tensor l2[] = {F32("1,2", squares), I64("1", second)};
    const float over_1[] = {1e20f * 1.41421356f};
    for (int i = 0; i < 8; i++) {
        sums[i % 2] += (double)x[i];
        over_0[i % 2] = (float)sums[i % 2];
    }
    all[0] = (float)(sums[0] + sums[1]);
    check_op(13, "ReduceSum", in, 2, &flat, 1, F32("2", over_0));
    check_op(13, "ReduceSum", row, 2, &flat, 1, F32("1", all));
    check_op(18, "ReduceL2", l2, 2, &flat, 1, F32("1", over_1));
}

TEST(reductions_of_nothing)
{
    const float zero[] = {0, 0}, one[] = {1, 1}, low[] = {-INFINITY, -INFINITY};
    const int64_t axis[] = {1};
    const int32_t lowest[] = {INT32_MIN, INT32_MIN};
    const sbit_attr flat = attr_int("keepdims", 0);
    const sbit_tensor in[] = {F32("2,0", zero), I64("1", axis)};
    const sbit_tensor ints[] = {build_tensor(SBIT_I32, "2,0", zero), I64("1", axis)};
    check_op(18, "ReduceSum", in, 2, &flat, 1, F32("2", zero));
    check_op(18, "ReduceProd", in, 2, &flat, 1, F32("2", one));
    check_op(18, "ReduceMax", in, 2, &flat, 1, F32("2", low));
    check_op(18, "ReduceLogSumExp", in, 2, &flat, 1, F32("2", low));
    check_op(18, "ReduceMax", ints, 2, &flat, 1, build_tensor(SBIT_I32, "2", lowest));
}

TEST(log_sum_exp_does_not_overflow)
{
    const float x[] = {1000.0f, 1000.0f}, y[] = {1000.69318f};
    const sbit_attr flat = attr_int("keepdims", 0);
    const sbit_tensor in = F32("2", x);
    check_op(13, "ReduceLogSumExp", &in, 1, &flat, 1, F32("", y));
}

TEST(arg_max_breaks_ties_as_asked)
{
    const float x[] = {3, 1, 3, 2, 2, 2};
    const int64_t first[] = {0, 0}, last[] = {2, 2}, least[] = {1, 0};
    const sbit_tensor in = F32("2,3", x);
    const sbit_attr flat[] = {attr_int("axis", -1), attr_int("keepdims", 0),
                              attr_int("select_last_index", 1)};
    check_op(13, "ArgMax", &in, 1, flat, 2, I64("2", first));
    check_op(13, "ArgMax", &in, 1, flat, 3, I64("2", last));
    check_op(13, "ArgMin", &in, 1, flat, 2, I64("2", least));
    /* What is no number is first, for both, as in NumPy. */
    const float y[] = {3, NAN, 1, NAN, 0};
    const int64_t one = 1, three = 3;
    const sbit_tensor holes = F32("5", y);
    check_op(13, "ArgMax", &holes, 1, flat, 2, I64("", &one));
    check_op(13, "ArgMin", &holes, 1, flat, 2, I64("", &one));
    check_op(13, "ArgMax", &holes, 1, flat, 3, I64("", &three));
    check_op(13, "ArgMin", &holes, 1, flat, 3, I64("", &three));
    const float hard[] = {0, 1, 0, 0, 0};
    check_op(13, "Hardmax", &holes, 1, NULL, 0, F32("5", hard));
}

TEST(top_k_orders_ties_by_index)
{
    const float x[] = {1, 5, 5, NAN, 2}, largest[] = {NAN, 5, 5}, smallest[] = {1, 2, 5};
    const int64_t at_largest[] = {3, 1, 2}, at_smallest[] = {0, 4, 1}, three = 3;
    const sbit_tensor in[] = {F32("5", x), I64("1", &three)};
    const sbit_tensor want_large[] = {F32("3", largest), I64("3", at_largest)};
    const sbit_tensor want_small[] = {F32("3", smallest), I64("3", at_smallest)};
    const sbit_attr small = attr_int("largest", 0), k = attr_int("k", 3);
    const op_case large = {11, "TopK", in, 2, NULL, 0, 2},
                  least = {11, "TopK", in, 2, &small, 1, 2};
    const op_case old = {1, "TopK", in, 1, &k, 1, 2};
    const op_case values = {11, "TopK", in, 2, NULL, 0, 1};
    check_case(&large, want_large, 0.0);
    check_case(&least, want_small, 0.0);
    check_case(&old, want_large, 0.0);
    check_case(&values, want_large, 0.0);
    const int64_t six = 6;
    const sbit_tensor bad[] = {F32("5", x), I64("1", &six)};
    check_fails(11, "TopK", bad, 2, NULL, 0, "k is");
}

TEST(running_sums)
{
    const int32_t x[] = {1, 2, 3, 4}, exclusive[] = {0, 1, 3, 6}, reverse[] = {10, 9, 7, 4};
    const int32_t axis = 0, product[] = {1, 2, 6, 24};
    const sbit_tensor in[] = {build_tensor(SBIT_I32, "4", x), build_tensor(SBIT_I32, "", &axis)};
    const sbit_attr ex = attr_int("exclusive", 1), re = attr_int("reverse", 1);
    check_op(14, "CumSum", in, 2, &ex, 1, build_tensor(SBIT_I32, "4", exclusive));
    check_op(14, "CumSum", in, 2, &re, 1, build_tensor(SBIT_I32, "4", reverse));
    check_op(26, "CumProd", in, 2, NULL, 0, build_tensor(SBIT_I32, "4", product));
}

/* ---- shape */

TEST(reshape_copies_and_computes_dims)
{
    const float x[] = {1, 2, 3, 4, 5, 6};
    const int64_t copy[] = {0, -1, 1}, bad[] = {4, -1}, twice[] = {-1, -1}, zero[] = {0, 3};
    const int64_t old[] = {3, 2};
    const sbit_tensor in[] = {F32("2,3", x), I64("3", copy)};
    const sbit_tensor wrong[] = {F32("2,3", x), I64("2", bad)};
    const sbit_tensor two[] = {F32("2,3", x), I64("2", twice)};
    const sbit_tensor empty[] = {F32("0,5", x), I64("2", zero)};
    const sbit_attr shape = attr_ints("shape", old, 2), allow = attr_int("allowzero", 1);
    check_op(5, "Reshape", in, 2, NULL, 0, F32("2,3,1", x));
    check_op(1, "Reshape", in, 1, &shape, 1, F32("3,2", x));
    check_op(14, "Reshape", empty, 2, &allow, 1, F32("0,3", NULL));
    check_fails(14, "Reshape", wrong, 2, NULL, 0, "number of elements");
    check_fails(14, "Reshape", two, 2, NULL, 0, "-1");
}

TEST(squeeze_and_unsqueeze_in_both_forms)
{
    const float x[] = {1, 2};
    const int64_t axes[] = {0, -1}, first[] = {0}, twice[] = {0, 0};
    const sbit_attr attr = attr_ints("axes", first, 1), both = attr_ints("axes", axes, 2);
    const sbit_tensor in[] = {F32("1,2,1", x), I64("2", axes)};
    const sbit_tensor un[] = {F32("2", x), I64("2", axes)};
    const sbit_tensor bad[] = {F32("2", x), I64("2", twice)};
    check_op(1, "Squeeze", in, 1, &attr, 1, F32("2,1", x));
    check_op(13, "Squeeze", in, 2, NULL, 0, F32("2", x));
    check_op(13, "Squeeze", in, 1, NULL, 0, F32("2", x));
    check_op(1, "Unsqueeze", un, 1, &both, 1, F32("1,2,1", x));
    check_op(13, "Unsqueeze", un, 2, NULL, 0, F32("1,2,1", x));
    check_fails(13, "Unsqueeze", bad, 2, NULL, 0, "twice");
    check_fails(1, "Squeeze", un, 1, &attr, 1, "size 2");
}

TEST(casts_to_and_from_text)
{
    const float x[] = {1.5f, -2.0f, INFINITY};
    const int64_t whole[] = {42, INT64_MIN};
    const sbit_str numbers[] = {{"3.25", 4}, {"-INF", 4}, {"1e3", 3}};
    const float parsed[] = {3.25f, -INFINITY, 1000.0f};
    const sbit_str text[] = {{"42", 2}, {"-9223372036854775808", 20}};
    const sbit_str float_text[] = {{"1.5", 3}, {"-2", 2}, {"inf", 3}};
    const sbit_tensor in = I64("2", whole), from = build_tensor(SBIT_STRING, "3", numbers);
    const sbit_tensor floats = F32("3", x);
    const sbit_attr to_text = attr_int("to", SBIT_STRING), to_float = attr_int("to", SBIT_F32);
    const sbit_attr named = attr_string("to", "FLOAT");
    check_op(9, "Cast", &in, 1, &to_text, 1, build_tensor(SBIT_STRING, "2", text));
    check_op(9, "Cast", &floats, 1, &to_text, 1, build_tensor(SBIT_STRING, "3", float_text));
    check_op(9, "Cast", &from, 1, &to_float, 1, F32("3", parsed));
    const sbit_str large[] = {{"9007199254740993", 16}, {"9223372036854775809", 19}, {"18446744073709551615", 20},
                              {"18446744073709551616", 20}};
    const uint64_t exact[] = {9007199254740993u, 9223372036854775809u, UINT64_MAX, UINT64_MAX};
    const sbit_tensor words = build_tensor(SBIT_STRING, "4", large);
    const sbit_attr to_u64 = attr_int("to", SBIT_U64);
    check_op(9, "Cast", &words, 1, &to_u64, 1, build_tensor(SBIT_U64, "4", exact));
    const int32_t i = -3;
    const float f = -3.0f;
    const sbit_tensor like[] = {F32("3", x), build_tensor(SBIT_C64, "1", x)};
    check_fails(15, "CastLike", like, 2, NULL, 0, "casting");
    const sbit_tensor old = build_tensor(SBIT_I32, "", &i);
    check_op(1, "Cast", &old, 1, &named, 1, F32("", &f));
}

/* ---- symbolic shapes: what exporters write */

static void check_dims(build *b, sbit_value_id id, const char *wanted)
{
    char text[96] = "";
    const sbit_value_info *info = sbit_graph_value(b->graph, id);
    for (int32_t i = 0; i < info->type.rank; i++) {
        const sbit_dim dim = info->type.dims[i];
        const size_t used = strlen(text);
        if (dim.symbol == 0) {
            snprintf(text + used, sizeof text - used, "%s%d", i > 0 ? "," : "", (int)dim.value);
        } else {
            snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "," : "",
                     dim.symbol == SBIT_SYMBOL_ANY ? "?"
                                                   : sbit_graph_symbol_name(b->graph, dim.symbol));
        }
    }
    CHECK_STR(text, wanted);
}

TEST(view_chain_keeps_the_batch_symbol)
{
    build b;
    const int64_t zero = 0, axis = 0, rest = -1, hidden = 12;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,4");
    const sbit_value_id shape = build_unary(&b, "Shape", "s", x);
    const sbit_value_id index = build_constant(&b, "i", SBIT_I64, "", &zero);
    const sbit_value_id n = build_binary(&b, "Gather", "g", shape, index);
    const sbit_value_id axes = build_constant(&b, "a", SBIT_I64, "1", &axis);
    const sbit_value_id n1 = build_binary(&b, "Unsqueeze", "u", n, axes);
    const sbit_value_id minus = build_constant(&b, "m", SBIT_I64, "1", &rest);
    const sbit_value_id twelve = build_constant(&b, "h", SBIT_I64, "1", &hidden);
    const sbit_value_id parts[] = {n1, minus}, back[] = {minus, twelve};
    const sbit_attr cat = attr_int("axis", 0);
    const sbit_value_id to = build_node(&b, "Concat", "c", parts, 2, &cat, 1);
    const sbit_value_id y = build_binary(&b, "Reshape", "r", x, to);
    const sbit_value_id to2 = build_node(&b, "Concat", "c2", back, 2, &cat, 1);
    const sbit_value_id z = build_binary(&b, "Reshape", "r2", y, to2);
    build_output(&b, z);
    if (CHECK_OK(sbit_infer(b.graph, &b.error), b.error)) {
        check_dims(&b, y, "N,12");
        check_dims(&b, z, "N,12");
    }
    build_end(&b);
}

TEST(expand_chain_with_minus_one_is_followed) /* Where(Equal(shape, -1), ones, shape) */
{
    build b;
    const int64_t wish[] = {-1, 5}, two = 2, minus = -1, one = 1;
    sbit_attr fill = attr_int("value", 0);
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,1");
    const sbit_value_id size = build_constant(&b, "n", SBIT_I64, "1", &two);
    fill.type = SBIT_ONNX_ATTR_TENSOR;
    fill.t = I64("1", &one);
    const sbit_value_id ones = build_node(&b, "ConstantOfShape", "ones", &size, 1, &fill, 1);
    const sbit_value_id m = build_constant(&b, "m", SBIT_I64, "", &minus);
    const sbit_value_id negative = build_binary(&b, "Mul", "neg", ones, m);
    const sbit_value_id shape = build_constant(&b, "shape", SBIT_I64, "2", wish);
    const sbit_value_id same = build_binary(&b, "Equal", "eq", shape, negative);
    const sbit_value_id choose[] = {same, ones, shape};
    const sbit_value_id to = build_node(&b, "Where", "w", choose, 3, NULL, 0);
    const sbit_value_id y = build_binary(&b, "Expand", "e", x, to);
    build_output(&b, y);
    if (CHECK_OK(sbit_infer(b.graph, &b.error), b.error)) {
        check_dims(&b, y, "N,5");
    }
    build_end(&b);
}

/* ---- move */

TEST(slices_clamp_like_numpy)
{
    const float x[] = {0, 1, 2, 3, 4};
    const float back[] = {4, 3, 2, 1, 0}, middle[] = {1, 3}, tail[] = {3, 4};
    const int64_t s0[] = {4}, e0[] = {INT64_MIN}, a[] = {0}, m1[] = {-1};
    const int64_t s1[] = {1}, e1[] = {100}, two[] = {2}, s2[] = {-2}, far[] = {INT64_MAX};
    const sbit_tensor reverse[] = {F32("5", x), I64("1", s0), I64("1", e0), I64("1", a),
                                   I64("1", m1)};
    const sbit_tensor steps[] = {F32("5", x), I64("1", s1), I64("1", e1), I64("1", a),
                                 I64("1", two)};
    const sbit_tensor huge[] = {F32("5", x), I64("1", s2), I64("1", far), I64("1", a),
                                I64("1", far)};
    const sbit_tensor last[] = {F32("5", x), I64("1", s2), I64("1", far)};
    const sbit_tensor empty[] = {F32("5", x), I64("1", s0), I64("1", s1)};
    const sbit_tensor zero[] = {F32("5", x), I64("1", s1), I64("1", e1), I64("1", a), I64("1", a)};
    const sbit_attr old[] = {attr_ints("starts", s2, 1), attr_ints("ends", far, 1)};
    check_op(13, "Slice", reverse, 5, NULL, 0, F32("5", back));
    check_op(10, "Slice", steps, 5, NULL, 0, F32("2", middle));
    check_op(10, "Slice", huge, 5, NULL, 0, F32("1", tail));
    check_op(10, "Slice", last, 3, NULL, 0, F32("2", tail));
    check_op(10, "Slice", empty, 3, NULL, 0, F32("0", NULL));
    check_op(1, "Slice", last, 1, ARRAY(old), F32("2", tail));
    check_fails(10, "Slice", zero, 5, NULL, 0, "step");
}

TEST(transposes_of_every_width)
{
    float x[2 * 3 * 70], y[2 * 3 * 70];
    uint16_t h[2 * 3 * 70], hy[2 * 3 * 70];
    for (int i = 0; i < 2 * 3 * 70; i++) {
        const int n = i / 210, c = i / 70 % 3, w = i % 70;
        x[i] = (float)i;
        h[i] = (uint16_t)i;
        y[(n * 70 + w) * 3 + c] = (float)i;
        hy[(n * 70 + w) * 3 + c] = (uint16_t)i;
    }
    const int64_t perm[] = {0, 2, 1}, bad[] = {0, 1, 1};
    const sbit_attr attr = attr_ints("perm", perm, 3), wrong = attr_ints("perm", bad, 3);
    const sbit_tensor in = F32("2,3,70", x), half = build_tensor(SBIT_U16, "2,3,70", h);
    check_op(13, "Transpose", &in, 1, &attr, 1, F32("2,70,3", y));
    check_op(13, "Transpose", &half, 1, &attr, 1, build_tensor(SBIT_U16, "2,70,3", hy));
    check_fails(13, "Transpose", &in, 1, &wrong, 1, "twice");
    /* int4 [2,3]: elements 1 2 3 / 4 5 6 become 1 4 2 5 3 6, low nibble first */
    const uint8_t packed[] = {0x21, 0x43, 0x65}, turned[] = {0x41, 0x52, 0x63};
    const sbit_tensor four = build_tensor(SBIT_I4, "2,3", packed);
    check_op(21, "Transpose", &four, 1, NULL, 0, build_tensor(SBIT_I4, "3,2", turned));
}

TEST(pads_in_every_mode)
{
    const float x[] = {1, 2, 3};
    const int64_t pads[] = {2, 4}, cut[] = {-1, 1}, old[] = {1, 1};
    const float value = 9.0f;
    const float constant[] = {9, 9, 1, 2, 3, 9, 9, 9, 9}, edge[] = {1, 1, 1, 2, 3, 3, 3, 3, 3};
    const float reflect[] = {3, 2, 1, 2, 3, 2, 1, 2, 3}, wrap[] = {2, 3, 1, 2, 3, 1, 2, 3, 1};
    const float cut_edge[] = {2, 3, 3}, cut_zero[] = {2, 3, 0}, old_zero[] = {0, 1, 2, 3, 0};
    const sbit_tensor in[] = {F32("3", x), I64("2", pads), F32("", &value)};
    const sbit_tensor cuts[] = {F32("3", x), I64("2", cut)};
    const sbit_attr modes[] = {attr_string("mode", "edge"), attr_string("mode", "reflect"),
                               attr_string("mode", "wrap"), attr_string("mode", "swirl")};
    const sbit_attr attr = attr_ints("pads", old, 2), first = attr_ints("paddings", old, 2);
    check_op(13, "Pad", in, 3, NULL, 0, F32("9", constant));
    check_op(13, "Pad", in, 2, &modes[0], 1, F32("9", edge));
    check_op(13, "Pad", in, 2, &modes[1], 1, F32("9", reflect));
    check_op(19, "Pad", in, 2, &modes[2], 1, F32("9", wrap));
    check_op(13, "Pad", cuts, 2, &modes[0], 1, F32("3", cut_edge));
    check_op(13, "Pad", cuts, 2, NULL, 0, F32("3", cut_zero));
    check_op(2, "Pad", in, 1, &attr, 1, F32("5", old_zero));
    check_op(1, "Pad", in, 1, &first, 1, F32("5", old_zero));
    check_fails(13, "Pad", in, 2, &modes[3], 1, "swirl");
    /* what is cut may be more than there is, and no 64 bits have its negative */
    const int64_t far[] = {INT64_MIN, INT64_MAX, INT64_MAX, INT64_MIN};
    const float none[] = {0, 0};
    const sbit_tensor far_front[] = {F32("3", x), I64("2", far)}, far_back[] = {F32("3", x), I64("2", far + 2)};
    check_op(13, "Pad", far_front, 2, NULL, 0, F32("2", none));
    check_op(13, "Pad", far_back, 2, NULL, 0, F32("2", none));
}

TEST(hard_sigmoid_of_what_is_no_number_is_none)
{
    const double x[] = {(double)NAN, -9.0, 9.0, 0.0}, y[] = {(double)NAN, 0.0, 1.0, 0.5};
    const sbit_tensor in = build_tensor(SBIT_F64, "4", x);
    check_op(22, "HardSigmoid", &in, 1, NULL, 0, build_tensor(SBIT_F64, "4", y));
}

TEST(integers_at_their_ends)
{
    static const int64_t ends[] = {INT64_MIN, INT64_MAX, INT64_MAX}, places[] = {INT64_MIN, -1, INT64_MAX - 1};
    const sbit_tensor range[] = {I64("", ends), I64("", ends + 1), I64("", ends + 2)};
    check_op(11, "Range", range, 3, NULL, 0, I64("3", places));
    static const uint64_t most[] = {UINT64_C(1) << 63, 3}, shrunk[] = {UINT64_C(1) << 63, 0}, whole[] = {1, 0};
    const sbit_tensor large = build_tensor(SBIT_U64, "2", most);
    const sbit_attr bounds[] = {attr_float("lambd", 4.0f), attr_float("bias", 0.0f)};
    check_op(9, "Shrink", &large, 1, ARRAY(bounds), build_tensor(SBIT_U64, "2", shrunk));
    static const uint64_t largest[] = {UINT64_MAX, 0};
    const sbit_tensor erf_of = build_tensor(SBIT_U64, "2", largest);
    check_op(9, "Erf", &erf_of, 1, NULL, 0, build_tensor(SBIT_U64, "2", whole));
    static const int8_t least8[] = {-128, -128, 127, 5}, by8[] = {-1, 0, -128, 0}, div8[] = {-128, 0, 0, 0},
                        mod8[] = {0, 0, -1, 0}, abs8[] = {-128, -128, 127, 5};
    const sbit_tensor pair8[] = {build_tensor(SBIT_I8, "4", least8), build_tensor(SBIT_I8, "4", by8)};
    check_op(14, "Div", pair8, 2, NULL, 0, build_tensor(SBIT_I8, "4", div8));
    check_op(13, "Mod", pair8, 2, NULL, 0, build_tensor(SBIT_I8, "4", mod8));
    check_op(13, "Abs", pair8, 1, NULL, 0, build_tensor(SBIT_I8, "4", abs8));
    static const int64_t least64[] = {INT64_MIN, INT64_MIN, 7}, by64[] = {-1, 2, INT64_MIN},
                         div64[] = {INT64_MIN, INT64_MIN / 2, 0}, mod64[] = {0, 0, INT64_MIN + 7};
    const sbit_tensor pair64[] = {I64("3", least64), I64("3", by64)};
    check_op(14, "Div", pair64, 2, NULL, 0, I64("3", div64));
    check_op(13, "Mod", pair64, 2, NULL, 0, I64("3", mod64));
    static const int32_t base[] = {2, -1, -1, 0, 1}, power[] = {-1, -3, -4, 0, INT32_MIN}, made[] = {0, -1, 1, 1, 1};
    const sbit_tensor pow32[] = {build_tensor(SBIT_I32, "5", base), build_tensor(SBIT_I32, "5", power)};
    check_op(12, "Pow", pow32, 2, NULL, 0, build_tensor(SBIT_I32, "5", made));
    static const uint8_t bits[] = {0xff, 0xff, 0x81}, by[] = {8, 255, 1}, left[] = {0, 0, 2}, right[] = {0, 0, 0x40};
    const sbit_tensor shift[] = {build_tensor(SBIT_U8, "3", bits), build_tensor(SBIT_U8, "3", by)};
    const sbit_attr ways[] = {attr_string("direction", "LEFT"), attr_string("direction", "RIGHT")};
    check_op(11, "BitShift", shift, 2, &ways[0], 1, build_tensor(SBIT_U8, "3", left));
    check_op(11, "BitShift", shift, 2, &ways[1], 1, build_tensor(SBIT_U8, "3", right));
}

TEST(splits_in_every_form)
{
    const float x[] = {1, 2, 3, 4, 5};
    const int64_t sizes[] = {2, 3}, wrong[] = {2, 2};
    const sbit_tensor in[] = {F32("5", x), I64("2", sizes)}, bad[] = {F32("5", x), I64("2", wrong)};
    const sbit_tensor given[] = {F32("2", x), F32("3", x + 2)};
    const sbit_tensor uneven[] = {F32("3", x), F32("2", x + 3)};
    const sbit_attr attr = attr_ints("split", sizes, 2), two = attr_int("num_outputs", 2);
    const op_case v2 = {2, "Split", in, 1, &attr, 1, 2}, v13 = {13, "Split", in, 2, NULL, 0, 2};
    const op_case v18 = {18, "Split", in, 1, &two, 1, 2};
    check_case(&v2, given, 0.0);
    check_case(&v13, given, 0.0);
    check_case(&v18, uneven, 0.0);
    check_fails(13, "Split", bad, 2, NULL, 0, "add up");
}

TEST(tiles_and_expands)
{
    const float x[] = {1, 2};
    const float tiled[] = {1, 2, 1, 2, 1, 2, 1, 2}, expanded[] = {1, 1, 1, 2, 2, 2};
    const int64_t repeats[] = {2, 2}, shape[] = {1, 3};
    const float old_tiles = 2.0f, old_axis = 0.0f, old[] = {1, 2, 1, 2};
    const sbit_tensor in[] = {F32("1,2", x), I64("2", repeats)};
    const sbit_tensor wide[] = {F32("2,1", x), I64("2", shape)};
    const sbit_tensor first[] = {F32("2", x), F32("", &old_tiles), F32("", &old_axis)};
    check_op(13, "Tile", in, 2, NULL, 0, F32("2,4", tiled));
    check_op(13, "Expand", wide, 2, NULL, 0, F32("2,3", expanded));
    check_op(1, "Tile", first, 3, NULL, 0, F32("4", old));
}

/* ---- gather */

TEST(indices_are_checked)
{
    const float x[] = {10, 20, 30};
    const int64_t at[] = {-1, 0}, far[] = {3}, below[] = {-4}, pairs[] = {0, 5};
    const float picked[] = {30, 10};
    const sbit_tensor in[] = {F32("3", x), I64("2", at)}, high[] = {F32("3", x), I64("1", far)};
    const sbit_tensor low[] = {F32("3", x), I64("1", below)};
    const sbit_tensor nd[] = {F32("1,3", x), I64("1,2", pairs)};
    const sbit_tensor scatter[] = {F32("3", x), I64("1", far), F32("1", x)};
    check_op(13, "Gather", in, 2, NULL, 0, F32("2", picked));
    check_op(13, "GatherElements", in, 2, NULL, 0, F32("2", picked));
    check_fails(13, "Gather", high, 2, NULL, 0, "index 3");
    check_fails(13, "Gather", low, 2, NULL, 0, "index -4");
    check_fails(13, "GatherElements", high, 2, NULL, 0, "index 3");
    check_fails(13, "GatherND", nd, 2, NULL, 0, "index 5");
    check_fails(18, "ScatterElements", scatter, 3, NULL, 0, "index 3");
}

TEST(scatter_reduces)
{
    const int32_t x[] = {1, 2, 3}, updates[] = {10, 20}, add[] = {1, 32, 3}, max[] = {1, 20, 3};
    const int64_t at[] = {1, 1};
    const sbit_tensor in[] = {build_tensor(SBIT_I32, "3", x), I64("2", at),
                              build_tensor(SBIT_I32, "2", updates)};
    const sbit_tensor nd[] = {build_tensor(SBIT_I32, "3", x), I64("2,1", at),
                              build_tensor(SBIT_I32, "2", updates)};
    const sbit_attr plus = attr_string("reduction", "add"), most = attr_string("reduction", "max");
    check_op(18, "ScatterElements", in, 3, &plus, 1, build_tensor(SBIT_I32, "3", add));
    check_op(18, "ScatterND", nd, 3, &most, 1, build_tensor(SBIT_I32, "3", max));
    check_op(9, "Scatter", in, 3, NULL, 0, build_tensor(SBIT_I32, "3", max));
}

/* ---- quantize */

/* x = k + 0.5 for k in -130..260: half to even, then the zero point, then saturation (A3.2). */
static void check_ties(sbit_dtype dtype, int32_t zero_point, float scale)
{
    enum {
        FIRST = -130,
        LAST = 260,
        N = LAST - FIRST + 1
    };
    float x[N];
    uint8_t want[N];
    const int32_t lo = dtype == SBIT_U8 ? 0 : -128, hi = dtype == SBIT_U8 ? 255 : 127;
    const uint8_t zp = (uint8_t)zero_point;
    for (int i = 0; i < N; i++) {
        const int32_t k = FIRST + i;
        int32_t q = (k % 2 == 0 ? k : k + 1) + zero_point;
        q = q < lo ? lo : q > hi ? hi : q;
        x[i] = ((float)k + 0.5f) * scale;
        want[i] = (uint8_t)q;
    }
    const sbit_tensor in[] = {F32("391", x), F32("", &scale), build_tensor(dtype, "", &zp)};
    check_op(13, "QuantizeLinear", in, 3, NULL, 0, build_tensor(dtype, "391", want));
}

TEST(quantize_ties_go_to_even)
{
    const int32_t unsigned_zps[] = {0, 1, 127, 128}, signed_zps[] = {0, 1, 127, -128};
    for (int i = 0; i < 4; i++) {
        check_ties(SBIT_U8, unsigned_zps[i], 1.0f);
        check_ties(SBIT_U8, unsigned_zps[i], 0.5f);
        check_ties(SBIT_I8, signed_zps[i], 1.0f);
        check_ties(SBIT_I8, signed_zps[i], 0.25f);
    }
}

TEST(quantize_divides_truly_and_saturates)
{
    const float x[] = {-2.5f, INFINITY, -INFINITY, NAN, 1e30f}, scale = 5.0f / 255.0f;
    const int8_t y[] = {-127, 127, -128, 3, 127}, zp = 0, three = 3;
    const sbit_tensor in[] = {F32("1", x), F32("", &scale), build_tensor(SBIT_I8, "", &zp)};
    const sbit_tensor odd[] = {F32("4", x + 1), F32("", &scale), build_tensor(SBIT_I8, "", &three)};
    check_op(13, "QuantizeLinear", in, 3, NULL, 0, build_tensor(SBIT_I8, "1", y));
    check_op(13, "QuantizeLinear", odd, 3, NULL, 0, build_tensor(SBIT_I8, "4", y + 1));
}

TEST(quantize_of_float16_rounds_once) /* A3.2: +-0.050018310546875 / 0.0999755859375 */
{
    const uint16_t x[] = {sbit_f32_to_f16(0.050018310546875f),
                          sbit_f32_to_f16(-0.050018310546875f)};
    const uint16_t scale = sbit_f32_to_f16(0.0999755859375f);
    const int8_t y[] = {1, -1}, zp = 0;
    const sbit_tensor in[] = {build_tensor(SBIT_F16, "2", x), build_tensor(SBIT_F16, "", &scale),
                              build_tensor(SBIT_I8, "", &zp)};
    check_op(19, "QuantizeLinear", in, 3, NULL, 0, build_tensor(SBIT_I8, "2", y));
}

TEST(quantize_takes_its_type_from_output_dtype) /* A3.14 */
{
    uint16_t x[10];
    int8_t y[10];
    const float scale[] = {0.5f};
    for (int i = 0; i < 10; i++) {
        x[i] = sbit_f32_to_f16((float)(i - 5));
        y[i] = (int8_t)(2 * (i - 5));
    }
    const sbit_tensor in[] = {build_tensor(SBIT_F16, "10", x), F32("1", scale)};
    const sbit_attr to = attr_int("output_dtype", SBIT_I8);
    check_op(23, "QuantizeLinear", in, 2, &to, 1, build_tensor(SBIT_I8, "10", y));
    /* without either: uint8 */
    const uint8_t u[10] = {0, 0, 0, 0, 0, 0, 2, 4, 6, 8};
    check_op(23, "QuantizeLinear", in, 2, NULL, 0, build_tensor(SBIT_U8, "10", u));
}

TEST(quantize_per_axis_block_and_nibble)
{
    const float x[] = {1, 2, 3, 4, 5, 6}, scales[] = {1, 2, 4}, two[] = {1, 2};
    const int8_t zps[] = {0, 0, 1}, per_axis[] = {1, 1, 2, 4, 2, 3};
    const uint8_t nibbles[] = {0x21, 0x43, 0x75}, zero4 = 0;
    const int8_t blocked[] = {1, 2, 2, 4, 5, 3}, zero = 0;
    const float one = 1.0f, x4[] = {1, 2, 3, 4, 5, 99};
    const float block_scales[] = {1, 2, 1, 2};
    const sbit_tensor axis[] = {F32("2,3", x), F32("3", scales), build_tensor(SBIT_I8, "3", zps)};
    const sbit_tensor four[] = {F32("6", x4), F32("", &one), build_tensor(SBIT_I4, "", &zero4)};
    const sbit_tensor block[] = {F32("2,3", x), F32("2,2", block_scales)};
    const sbit_tensor bad[] = {F32("2,3", x), F32("2", two)};
    const sbit_attr blocks[] = {attr_int("axis", 1), attr_int("block_size", 2),
                                attr_int("output_dtype", SBIT_I8)};
    (void)zero;
    check_op(13, "QuantizeLinear", axis, 3, NULL, 0, build_tensor(SBIT_I8, "2,3", per_axis));
    check_op(21, "QuantizeLinear", four, 3, NULL, 0, build_tensor(SBIT_I4, "6", nibbles));
    check_op(21, "QuantizeLinear", block, 2, ARRAY(blocks), build_tensor(SBIT_I8, "2,3", blocked));
    check_fails(13, "QuantizeLinear", bad, 2, NULL, 0, "scales");
}

TEST(dequantize_per_axis_and_int32)
{
    const uint8_t x[] = {0, 128, 255, 10, 20, 30}, zp[] = {128, 0};
    const float scales[] = {0.5f, 2.0f}, y[] = {-64, 0, 63.5f, 20, 40, 60};
    const int32_t bias[] = {-1000, 2000};
    const float bias_scale = 0.25f, bias_y[] = {-250, 500};
    const sbit_tensor in[] = {build_tensor(SBIT_U8, "2,3", x), F32("2", scales),
                              build_tensor(SBIT_U8, "2", zp)};
    const sbit_tensor b[] = {build_tensor(SBIT_I32, "2", bias), F32("", &bias_scale)};
    const sbit_attr axis = attr_int("axis", 0);
    check_op(13, "DequantizeLinear", in, 3, &axis, 1, F32("2,3", y));
    check_op(10, "DequantizeLinear", b, 2, NULL, 0, F32("2", bias_y));
}

TEST(dynamic_quantize_of_zeros)
{
    const float x[] = {0, 0}, one = 1.0f;
    const uint8_t y[] = {0, 0}, zero = 0;
    const sbit_tensor in = F32("2", x);
    const sbit_tensor want[] = {build_tensor(SBIT_U8, "2", y), F32("", &one),
                                build_tensor(SBIT_U8, "", &zero)};
    const op_case c = {11, "DynamicQuantizeLinear", &in, 1, NULL, 0, 3};
    check_case(&c, want, 0.0);
}

/* ---- generate */

TEST(ranges_and_fills)
{
    const int64_t start = 10, limit = 1, delta = -4, down[] = {10, 6, 2}, shape[] = {2, 1};
    const float ones[] = {1, 1}, f0 = 0.0f, f1 = 1.0f, step = 0.25f,
                quarter[] = {0, 0.25f, 0.5f, 0.75f};
    const int64_t huge[] = {(int64_t)1 << 40, (int64_t)1 << 40}, zero = 0;
    sbit_attr value = attr_int("value", 0);
    const sbit_tensor in[] = {I64("", &start), I64("", &limit), I64("", &delta)};
    const sbit_tensor floats[] = {F32("", &f0), F32("", &f1), F32("", &step)};
    const sbit_tensor bad[] = {I64("", &start), I64("", &limit), I64("", &zero)};
    const sbit_tensor fill = I64("2", shape), large = I64("2", huge);
    value.type = SBIT_ONNX_ATTR_TENSOR;
    value.t = F32("1", ones);
    check_op(11, "Range", in, 3, NULL, 0, I64("3", down));
    check_op(11, "Range", floats, 3, NULL, 0, F32("4", quarter));
    check_op(9, "ConstantOfShape", &fill, 1, &value, 1, F32("2,1", ones));
    check_fails(11, "Range", bad, 3, NULL, 0, "delta");
    check_fails(9, "ConstantOfShape", &large, 1, &value, 1, "large");
}

TEST(random_numbers_repeat)
{
    const int64_t dims[] = {1000};
    const sbit_attr attrs[] = {attr_ints("shape", dims, 1), attr_float("seed", 7.0f)};
    const op_case c = {1, "RandomNormal", NULL, 0, attrs, 2, 1};
    float first[1000];
    for (int round = 0; round < 2; round++) {
        build b;
        sbit_session *session = NULL;
        if (CHECK_OK(case_run(&b, &c, FEED_DECLARED, &session), b.error)) {
            const float *x = (const float *)sbit_session_output(session, 0)->tensor.data;
            double sum = 0.0, squares = 0.0;
            for (int i = 0; i < 1000; i++) {
                sum += (double)x[i];
                squares += (double)x[i] * (double)x[i];
            }
            CHECK_NEAR(sum / 1000, 0.0, 0.15);
            CHECK_NEAR(squares / 1000, 1.0, 0.2);
            CHECK(round == 0 || memcmp(first, x, sizeof first) == 0);
            memcpy(first, x, sizeof first);
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}

/* Mean and variance of a case's output, which is float and lies in low..high. */
static void check_moments(const op_case *c, double mean, double variance, double low, double high)
{
    build b;
    sbit_session *session = NULL;
    if (CHECK_OK(case_run(&b, c, FEED_DECLARED, &session), b.error)) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        const int64_t n = sbit_tensor_count(y);
        double sum = 0.0, squares = 0.0;
        CHECK_EQ_I64(y->dtype, SBIT_F32);
        for (int64_t i = 0; i < n; i++) {
            const double v = (double)((const float *)y->data)[i];
            CHECK(v >= low && v <= high);
            sum += v - mean;
            squares += (v - mean) * (v - mean);
        }
        const double deviation = sqrt(variance / (double)n);
        CHECK_NEAR(sum / (double)n, 0.0, 5.0 * deviation);
        CHECK_NEAR(squares / (double)n / variance, 1.0, 8.0 / sqrt((double)n));
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(random_numbers_have_their_moments)
{
    static float x[20000];
    const int64_t dims[] = {20000};
    const sbit_tensor like = F32("20000", x);
    const sbit_attr normal[] = {attr_float("mean", 2.0f), attr_float("scale", 3.0f),
                                attr_ints("shape", dims, 1)};
    const sbit_attr uniform[] = {attr_float("low", -1.0f), attr_float("high", 3.0f),
                                 attr_ints("shape", dims, 1)};
    const op_case cases[] = {{1, "RandomNormal", NULL, 0, normal, 3, 1},
                             {1, "RandomNormalLike", &like, 1, normal, 2, 1},
                             {1, "RandomUniform", NULL, 0, uniform, 3, 1},
                             {1, "RandomUniformLike", &like, 1, uniform, 2, 1}};
    for (int i = 0; i < 4; i++) {
        check_moments(&cases[i], i < 2 ? 2.0 : 1.0, i < 2 ? 9.0 : 16.0 / 12.0, i < 2 ? -20.0 : -1.0,
                      i < 2 ? 20.0 : 3.0);
    }
}

TEST(multinomial_draws_as_often_as_its_classes_are_likely)
{
    enum {
        SAMPLES = 20000
    };
    /* logarithms, of 0.1, 0.2, 0.7 and of 8 : 1 : 1 without a common sum */
    const float x[] = {-2.3025851f, -1.6094379f, -0.35667494f, 4.0794415f, 2.0f, 2.0f};
    const double p[2][3] = {{0.1, 0.2, 0.7}, {0.8, 0.1, 0.1}};
    const sbit_tensor in = F32("2,3", x);
    const sbit_attr size = attr_int("sample_size", SAMPLES);
    const op_case c = {7, "Multinomial", &in, 1, &size, 1, 1};
    build b;
    sbit_session *session = NULL;
    if (CHECK_OK(case_run(&b, &c, FEED_DECLARED, &session), b.error)) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        CHECK_EQ_I64(y->dtype, SBIT_I32);
        for (int row = 0; row < 2; row++) {
            int64_t counts[3] = {0, 0, 0};
            for (int i = 0; i < SAMPLES; i++) {
                const int32_t drawn = ((const int32_t *)y->data)[row * SAMPLES + i];
                if (CHECK(drawn >= 0 && drawn < 3)) {
                    counts[drawn]++;
                }
            }
            for (int k = 0; k < 3; k++) {
                CHECK_NEAR((double)counts[k], SAMPLES * p[row][k],
                           5.0 * sqrt(SAMPLES * p[row][k] * (1.0 - p[row][k])));
            }
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(nonzero_unique_and_nms)
{
    const float x[] = {0, 3, 0, 4};
    const int64_t places[] = {0, 1, 1, 1}; /* rows 0 1, columns 1 1 */
    const float u[] = {2, 1, 1, 3, 4, 3}, sorted[] = {1, 2, 3, 4}, order[] = {2, 1, 3, 4};
    const int64_t first[] = {1, 0, 3, 4}, inverse[] = {1, 0, 0, 2, 3, 2}, counts[] = {2, 1, 2, 1};
    const int64_t first2[] = {0, 1, 3, 4}, inverse2[] = {0, 1, 1, 2, 3, 2},
                  counts2[] = {1, 2, 2, 1};
    const sbit_tensor in = F32("2,2", x), ux = F32("6", u);
    const sbit_tensor want[] = {F32("4", sorted), I64("4", first), I64("6", inverse),
                                I64("4", counts)};
    const sbit_tensor want2[] = {F32("4", order), I64("4", first2), I64("6", inverse2),
                                 I64("4", counts2)};
    const sbit_attr unsorted = attr_int("sorted", 0);
    const op_case unique = {11, "Unique", &ux, 1, NULL, 0, 4};
    const op_case as_met = {11, "Unique", &ux, 1, &unsorted, 1, 4};
    check_op(13, "NonZero", &in, 1, NULL, 0, I64("2,2", places));
    check_case(&unique, want, 0.0);
    check_case(&as_met, want2, 0.0);
    /* complex: by the real part, then by the imaginary one; 0 and -0 are one */
    const float pairs[] = {1, -2, -3, 1, 1, -5, -3, 1, 0, 0.0f, -0.0f, 0};
    const float pairs_sorted[] = {-3, 1, 0, 0, 1, -5, 1, -2};
    const int64_t first3[] = {1, 4, 2, 0}, inverse3[] = {3, 0, 2, 0, 1, 1}, counts3[] = {2, 2, 1, 1};
    const sbit_tensor cx = build_tensor(SBIT_C64, "6", pairs);
    const sbit_tensor want3[] = {build_tensor(SBIT_C64, "4", pairs_sorted), I64("4", first3),
                                 I64("6", inverse3), I64("4", counts3)};
    const op_case of_complex = {11, "Unique", &cx, 1, NULL, 0, 4};
    check_case(&of_complex, want3, 0.0);
    /* two boxes overlap by more than half, the third stands alone; equal scores: lower index */
    const float boxes[] = {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 0, 5, 1, 6}, scores[] = {0.9f, 0.9f, 0.8f};
    const int64_t most = 10, picked[] = {0, 0, 0, 0, 0, 2};
    const float iou = 0.5f, score = 0.1f;
    const sbit_tensor nms[] = {F32("1,3,4", boxes), F32("1,1,3", scores), I64("1", &most),
                               F32("1", &iou), F32("1", &score)};
    check_op(11, "NonMaxSuppression", nms, 5, NULL, 0, I64("2,3", picked));
}

/* ---- control */

/* Written with the onnx package: last, all = Loop(M, "", init) with the body
 *     next = i + 1; total = sum + next; go = next < 5; square = next * next
 * which gives go, total and square. */
static const char loop_model[] =
    "\010\007\022\000:\375\002\012\266\002\012\001M\012\000\012\004init\022\004last\022\003all"
    "\042\004Loop*\227\002\012\004body2\213\002\012$\022\003one\042\010Constant*\023\012\005valu"
    "e*\007\020\007:\001\001B\000\240\001\004\012%\022\004five\042\010Constant*\023\012\005value"
    "*\007\020\007:\001\005B\000\240\001\004\012\023\012\001i\012\003one\022\004next\042\003Add"
    "\012\027\012\003sum\012\004next\022\005total\042\003Add\012\026\012\004next\012\004five\022"
    "\002go\042\004Less\012\031\012\004next\012\004next\022\006square\042\003Mul\022\001bZ\013"
    "\012\001i\022\006\012\004\010\007\022\000Z\013\012\001c\022\006\012\004\010\011\022\000Z"
    "\015\012\003sum\022\006\012\004\010\007\022\000b\014\012\002go\022\006\012\004\010\011\022"
    "\000b\017\012\005total\022\006\012\004\010\007\022\000b\020\012\006square\022\006\012\004"
    "\010\007\022\000\240\001\005\022\001gZ\013\012\001M\022\006\012\004\010\007\022\000Z\016"
    "\012\004init\022\006\012\004\010\007\022\000b\016\012\004last\022\006\012\004\010\007\022"
    "\000b\022\012\003all\022\013\012\011\010\007\022\005\012\003\022\001nB\004\012\000\020\015";

/* sum of 1..5, squares stacked: stops by its own condition, or by the trip count. */
static void check_loop(int64_t trips, const int64_t *squares, int64_t count, int64_t total)
{
    sbit_error error;
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    const int64_t start = 0;
    const sbit_tensor most = I64("", &trips), init = I64("", &start);
    if (CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error) &&
        CHECK_OK(sbit_graph_read(ctx, loop_model, sizeof loop_model - 1, &graph, &error), error) &&
        CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error) &&
        CHECK_OK(sbit_session_set_input(session, "M", &most, &error), error) &&
        CHECK_OK(sbit_session_set_input(session, "init", &init, &error), error) &&
        CHECK_OK(sbit_session_run(session, &error), error)) {
        const sbit_tensor *sum = &sbit_session_output(session, 0)->tensor;
        const sbit_tensor *list = &sbit_session_output(session, 1)->tensor;
        CHECK_EQ_I64(*(const int64_t *)sum->data, total);
        CHECK_EQ_I64(list->rank, 1);
        if (CHECK_EQ_I64(list->dims[0], count) && count > 0) {
            CHECK_MEM(list->data, squares, (size_t)count * sizeof *squares);
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(loops_end_by_condition_and_by_count)
{
    const int64_t squares[] = {1, 4, 9, 16, 25};
    check_loop(100, squares, 5, 15);
    check_loop(3, squares, 3, 6);
    check_loop(0, squares, 0, 0);
    check_loop(-1, squares, 0, 0);
}

/* ---- threads: the same bits with one and with three */

static void run_with_threads(const op_case *c, int threads, float *out, size_t bytes)
{
    sbit_ctx_desc desc;
    build b;
    sbit_session *session = NULL;
    sbit_value_id ins[4], y;
    memset(&desc, 0, sizeof desc);
    memset(&b, 0, sizeof b);
    desc.threads = threads;
    build_do(&b, sbit_ctx_create(&desc, &b.ctx, &b.error), "context");
    build_do(&b, sbit_graph_create(b.ctx, c->opset, &b.graph, &b.error), "graph");
    for (size_t i = 0; i < c->in_count; i++) {
        ins[i] = case_input(&b, FEED_DECLARED, &c->in[i], i);
    }
    y = build_node(&b, c->op, "node", ins, c->in_count, c->attrs, c->attr_count);
    build_output(&b, y);
    if (!b.failed && CHECK_OK(sbit_session_create(b.graph, NULL, &session, &b.error), b.error) &&
        CHECK_OK(case_feed(&b, c, session), b.error) &&
        CHECK_OK(sbit_session_run(session, &b.error), b.error)) {
        const sbit_tensor *tensor = &sbit_session_output(session, 0)->tensor;
        CHECK_EQ_I64(sbit_tensor_bytes(tensor), bytes);
        memcpy(out, tensor->data, bytes);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(results_do_not_depend_on_threads)
{
    enum {
        N = 100003
    };
    float *x = (float *)malloc(N * sizeof *x), *one = (float *)malloc(N * sizeof *x);
    float *three = (float *)malloc(N * sizeof *x);
    sbit_rng rng = sbit_rng_seed(5);
    for (int i = 0; i < N; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    const sbit_tensor in[] = {F32("100003", x), F32("100003", x)};
    const char *const unary[] = {"Sigmoid", "Tanh", "Erf", "Exp", "Softplus", "ReduceSum"};
    for (size_t i = 0; i < COUNT(unary); i++) {
        const op_case c = {13, unary[i], in, 1, NULL, 0, 1};
        const size_t bytes = i == 5 ? sizeof *x : N * sizeof *x;
        run_with_threads(&c, 1, one, bytes);
        run_with_threads(&c, 3, three, bytes);
        CHECK_MSG(memcmp(one, three, bytes) == 0, "%s depends on threads", unary[i]);
    }
    free(x);
    free(one);
    free(three);
}

/* ---- channels */

/* ---- broken models: an error that says what is wrong, never a crash */

TEST(broken_nodes_are_refused)
{
    const float x[] = {1, 2, 3, 4};
    const int64_t three[] = {3, 3}, nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t huge[] = {INT64_MAX, INT64_MAX}, minus[] = {-5, 1};
    const sbit_tensor in[] = {F32("2,2", x), I64("2", three)};
    const sbit_tensor many[] = {F32("2,2", x), I64("9", nine)};
    const sbit_tensor big[] = {F32("2,2", x), I64("2", huge)};
    const sbit_tensor neg[] = {F32("2,2", x), I64("2", minus)};
    const sbit_attr axis = attr_int("axis", 7);
    check_fails(13, "Concat", in, 1, NULL, 0, "axis");
    check_fails(13, "Concat", in, 1, &axis, 1, "axis 7");
    check_fails(13, "Flatten", in, 1, &axis, 1, "axis 7");
    check_fails(13, "Softmax", in, 1, &axis, 1, "axis 7");
    check_fails(13, "Expand", in, 2, NULL, 0, "broadcast");
    check_fails(13, "Reshape", in, 2, NULL, 0, "number of elements");
    check_fails(13, "Reshape", many, 2, NULL, 0, "");
    check_fails(13, "Tile", big, 2, NULL, 0, "");
    check_fails(13, "Tile", neg, 2, NULL, 0, "-5");
    check_fails(13, "Add", in, 1, NULL, 0, "at least 2");
    check_fails(13, "Add", in, 2, NULL, 0, "element types");
    check_fails(18, "CenterCropPad", neg, 2, NULL, 0, "-5");
}
