/* unary.c: functions of one element: activations, rounding, trigonometry, predicates. >>unary
 *
 * Called by: exec through the rows. Calls: kernels (f32_unary, f32_activate), libm.
 * Does: every numeric type that ONNX lists. float32 runs on the SIMD kernels where there is one;
 * float16 and bfloat16 are computed in float32 and rounded once; float64 in float64; integers in
 * 64 bits, wrapping to their width.
 * Does not: Clip and PRelu, which have more than one tensor: binary.c.
 */
#include "elements_private.h"
#include "gradient_private.h"

#include <math.h> /* expf, erff, rintf and friends */

#define SBIT__UNARY_CHUNK 128 /* elements converted at a time, on the stack */

typedef struct sbit__unary_args {
    const sbit_kernels *kernels;
    float a, b;       /* alpha, beta; gamma; bias, lambd */
    bool is_unsigned; /* integers: the type has no sign */
} sbit__unary_args;

/* One function in the arithmetic of each class of types; NULL: ONNX does not list the class. */
typedef struct sbit__unary_fn {
    void (*f32)(const sbit__unary_args *args, int64_t n, const float *x, float *y);
    void (*f64)(const sbit__unary_args *args, int64_t n, const double *x, double *y);
    void (*i64)(const sbit__unary_args *args, int64_t n, const int64_t *x, int64_t *y);
} sbit__unary_fn;

/* >>loops */

typedef struct sbit__unary_task {
    const sbit__unary_fn *fn;
    const sbit__unary_args *args;
    const sbit_tensor *x;
    sbit_tensor *y;
} sbit__unary_task;

static void sbit__unary_chunk(const sbit__unary_task *task, int64_t at, int64_t n)
{
    const sbit_dtype dtype = task->x->dtype;
    const void *x = sbit__elem_at_const(dtype, task->x->data, at);
    void *y = sbit__elem_at(dtype, task->y->data, at);
    if ((SBIT_T(dtype) & SBIT_T_FLOATS) != 0) {
        float f[SBIT__UNARY_CHUNK];
        sbit__convert(dtype, x, SBIT_F32, f, n);
        task->fn->f32(task->args, n, f, f);
        sbit__convert(SBIT_F32, f, dtype, y, n);
    } else {
        int64_t v[SBIT__UNARY_CHUNK];
        sbit__convert(dtype, x, SBIT_I64, v, n);
        task->fn->i64(task->args, n, v, v);
        sbit__convert(SBIT_I64, v, dtype, y, n);
    }
}

static void sbit__unary_block(void *data, int64_t begin, int64_t end)
{
    const sbit__unary_task *task = (const sbit__unary_task *)data;
    const int64_t n = end - begin;
    if (task->x->dtype == SBIT_F32) {
        task->fn->f32(task->args, n, (const float *)task->x->data + begin,
                      (float *)task->y->data + begin);
        return;
    }
    if (task->x->dtype == SBIT_F64) {
        task->fn->f64(task->args, n, (const double *)task->x->data + begin,
                      (double *)task->y->data + begin);
        return;
    }
    for (int64_t at = begin; at < end; at += SBIT__UNARY_CHUNK) {
        const int64_t left = end - at;
        sbit__unary_chunk(task, at, left < SBIT__UNARY_CHUNK ? left : SBIT__UNARY_CHUNK);
    }
}

static sbit_status sbit__unary_run(const sbit_op_call *call, const sbit__unary_fn *fn, float a,
                                   float b, sbit_error *error)
{
    sbit__unary_args args;
    sbit__unary_task task;
    const uint32_t type = SBIT_T(call->in[0]->dtype);
    (void)error;
    if (call->out[0] == NULL) {
        return SBIT_OK;
    }
    if ((type & SBIT_T_FLOATS) == 0 && fn->i64 == NULL) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "element type %s",
                            sbit_dtype_name((int32_t)call->in[0]->dtype));
    }
    args.kernels = call->kernels;
    args.a = a;
    args.b = b;
    args.is_unsigned = (type & SBIT_T_UNSIGNED) != 0;
    task.fn = fn;
    task.args = &args;
    task.x = call->in[0];
    task.y = call->out[0];
    sbit__parallel_blocks(call->ctx, sbit_tensor_count(task.x), sbit__unary_block, &task);
    return SBIT_OK;
}

/* >>functions. SBIT__UNARY_DEFINE(name, in float32, in float64), both of x; a and b are the
 * parameters. SBIT__UNARY_KERNEL takes float32 from the kernel table. */

#define SBIT__UNARY_F32(name, expr)                                                                \
    static void sbit__unary_##name##_f32(const sbit__unary_args *args, int64_t n, const float *xs, \
                                         float *ys)                                                \
    {                                                                                              \
        const float a = args->a, b = args->b;                                                      \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float x = xs[i];                                                                 \
            ys[i] = (expr);                                                                        \
        }                                                                                          \
    }
#define SBIT__UNARY_F64(name, expr)                                                                \
    static void sbit__unary_##name##_f64(const sbit__unary_args *args, int64_t n,                  \
                                         const double *xs, double *ys)                             \
    {                                                                                              \
        const double a = (double)args->a, b = (double)args->b;                                     \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const double x = xs[i];                                                                \
            ys[i] = (expr);                                                                        \
        }                                                                                          \
    }
#define SBIT__UNARY_I64(name, expr)                                                                \
    static void sbit__unary_##name##_i64(const sbit__unary_args *args, int64_t n,                  \
                                         const int64_t *xs, int64_t *ys)                           \
    {                                                                                              \
        (void)args;                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const int64_t x = xs[i];                                                               \
            ys[i] = (expr);                                                                        \
        }                                                                                          \
    }
#define SBIT__UNARY_RUN(name, a, b, i64)                                                           \
    static sbit_status sbit__unary_##name##_run(const sbit_op_call *call, sbit_error *error)       \
    {                                                                                              \
        static const sbit__unary_fn fn = {sbit__unary_##name##_f32, sbit__unary_##name##_f64,      \
                                          i64};                                                    \
        return sbit__unary_run(call, &fn, a, b, error);                                            \
    }
#define SBIT__UNARY_DEFINE(name, expr32, expr64)                                                   \
    SBIT__UNARY_F32(name, expr32)                                                                  \
    SBIT__UNARY_F64(name, expr64)                                                                  \
    SBIT__UNARY_RUN(name, 0.0f, 0.0f, NULL)
#define SBIT__UNARY_KERNEL_F32(name, kernel)                                                       \
    static void sbit__unary_##name##_f32(const sbit__unary_args *args, int64_t n, const float *xs, \
                                         float *ys)                                                \
    {                                                                                              \
        args->kernels->f32_unary(kernel, n, xs, ys);                                               \
    }
#define SBIT__UNARY_KERNEL(name, kernel, expr64)                                                   \
    SBIT__UNARY_KERNEL_F32(name, kernel)                                                           \
    SBIT__UNARY_F64(name, expr64)                                                                  \
    SBIT__UNARY_RUN(name, 0.0f, 0.0f, NULL)
/* With two attributes of the node as parameters. */
#define SBIT__UNARY_RUN_ATTRS(name, name_a, default_a, name_b, default_b, i64)                     \
    SBIT__UNARY_RUN(name, sbit_node_float(call->node, name_a, default_a),                          \
                    sbit_node_float(call->node, name_b, default_b), i64)

static double sbit__unary_sigmoid(double x)
{
    /* exp of a negative number only: no overflow on either side */
    const double e = exp(-fabs(x));
    return x >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

static double sbit__unary_softplus(double x)
{
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static void sbit__unary_copy(int64_t n, const float *x, float *y)
{
    if (x != y && n > 0) {
        memcpy(y, x, (size_t)n * sizeof *y);
    }
}

static void sbit__unary_activate(const sbit__unary_args *args, sbit__activation activation,
                                 float lo, float hi, int64_t n, const float *x, float *y)
{
    sbit__epilogue epilogue;
    memset(&epilogue, 0, sizeof epilogue);
    epilogue.activation = activation;
    epilogue.lo = lo;
    epilogue.hi = hi;
    sbit__unary_copy(n, x, y);
    args->kernels->f32_activate(n, y, &epilogue);
}

/* Activations */
static void sbit__unary_relu_f32(const sbit__unary_args *args, int64_t n, const float *x, float *y)
{
    const float zero = 0.0f;
    args->kernels->f32_binary(SBIT__BINARY_MAX, n, x, 1, &zero, 0, y);
}
SBIT__UNARY_F64(relu, x < 0.0 ? 0.0 : x)
SBIT__UNARY_I64(relu, x < 0 ? 0 : x)
SBIT__UNARY_RUN(relu, 0.0f, 0.0f, sbit__unary_relu_i64)

static void sbit__unary_leaky_f32(const sbit__unary_args *args, int64_t n, const float *x, float *y)
{
    sbit__unary_activate(args, SBIT__ACT_LEAKY, args->a, 0.0f, n, x, y);
}
SBIT__UNARY_F64(leaky, x < 0.0 ? a * x : x)
SBIT__UNARY_RUN_ATTRS(leaky, "alpha", 0.01f, "", 0.0f, NULL)

SBIT__UNARY_F32(elu, x < 0.0f ? a * expm1f(x) : x)
SBIT__UNARY_F64(elu, x < 0.0 ? a * expm1(x) : x)
SBIT__UNARY_RUN_ATTRS(elu, "alpha", 1.0f, "", 0.0f, NULL)

SBIT__UNARY_F32(selu, x > 0.0f ? b * x : b * (a * expm1f(x)))
SBIT__UNARY_F64(selu, x > 0.0 ? b * x : b * (a * expm1(x)))
/* opset 1 rounded both constants to four digits */
SBIT__UNARY_RUN_ATTRS(selu, "alpha", (call->row->since_version < 6 ? 1.6732f : 1.67326324f),
                      "gamma", (call->row->since_version < 6 ? 1.0507f : 1.05070102f), NULL)

SBIT__UNARY_F32(celu, x > 0.0f ? x : a * expm1f(x / a))
SBIT__UNARY_F64(celu, x > 0.0 ? x : a * expm1(x / a))
SBIT__UNARY_RUN_ATTRS(celu, "alpha", 1.0f, "", 0.0f, NULL)

SBIT__UNARY_F32(thresholded, x > a ? x : 0.0f)
SBIT__UNARY_F64(thresholded, x > a ? x : 0.0)
SBIT__UNARY_RUN_ATTRS(thresholded, "alpha", 1.0f, "", 0.0f, NULL)

static void sbit__unary_hard_sigmoid_f32(const sbit__unary_args *args, int64_t n, const float *x,
                                         float *y)
{
    args->kernels->f32_scale_add(n, x, args->a, args->b, y);
    sbit__unary_activate(args, SBIT__ACT_CLAMP, 0.0f, 1.0f, n, y, y);
}
SBIT__UNARY_F64(hard_sigmoid, a *x + b < 0.0 ? 0.0 : a * x + b > 1.0 ? 1.0 : a * x + b) /* NaN stays */
SBIT__UNARY_RUN_ATTRS(hard_sigmoid, "alpha", 0.2f, "beta", 0.5f, NULL)

static void sbit__unary_swish_f32(const sbit__unary_args *args, int64_t n, const float *x, float *y)
{
    float gate[SBIT__UNARY_CHUNK];
    if (args->a == 1.0f) {
        args->kernels->f32_unary(SBIT__UNARY_SILU, n, x, y);
        return;
    }
    for (int64_t at = 0; at < n; at += SBIT__UNARY_CHUNK) {
        const int64_t m = n - at < SBIT__UNARY_CHUNK ? n - at : SBIT__UNARY_CHUNK;
        args->kernels->f32_scale_add(m, x + at, args->a, 0.0f, gate);
        args->kernels->f32_unary(SBIT__UNARY_SIGMOID, m, gate, gate);
        args->kernels->f32_binary(SBIT__BINARY_MUL, m, x + at, 1, gate, 1, y + at);
    }
}
SBIT__UNARY_F64(swish, x *sbit__unary_sigmoid(a *x))
SBIT__UNARY_RUN_ATTRS(swish, "alpha", 1.0f, "", 0.0f, NULL)

SBIT__UNARY_F32(shrink, x<-b ? x + a : x> b ? x - a : 0.0f)
SBIT__UNARY_F64(shrink, x<-b ? x + a : x> b ? x - a : 0.0)
static void sbit__unary_shrink_i64(const sbit__unary_args *args, int64_t n, const int64_t *x,
                                   int64_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        const sbit_dtype wide = args->is_unsigned ? SBIT_U64 : SBIT_I64;
        double v = 0.0;
        sbit__convert(wide, &x[i], SBIT_F64, &v, 1);
        sbit__unary_shrink_f64(args, 1, &v, &v);
        sbit__convert(SBIT_F64, &v, wide, &y[i], 1);
    }
}
SBIT__UNARY_RUN_ATTRS(shrink, "bias", 0.0f, "lambd", 0.5f, sbit__unary_shrink_i64)

SBIT__UNARY_KERNEL(sigmoid, SBIT__UNARY_SIGMOID, sbit__unary_sigmoid(x))
SBIT__UNARY_KERNEL(tanh, SBIT__UNARY_TANH, tanh(x))
SBIT__UNARY_KERNEL(hard_swish, SBIT__UNARY_HARDSWISH, x *fmax(0.0, fmin(1.0, x / 6.0 + 0.5)))
SBIT__UNARY_KERNEL(softplus, SBIT__UNARY_SOFTPLUS, sbit__unary_softplus(x))
SBIT__UNARY_KERNEL(mish, SBIT__UNARY_MISH, x *tanh(sbit__unary_softplus(x)))
SBIT__UNARY_DEFINE(softsign, x / (1.0f + fabsf(x)), x / (1.0 + fabs(x)))

SBIT__UNARY_KERNEL(gelu_erf, SBIT__UNARY_GELU, 0.5 * x * (1.0 + erf(x * 0.70710678118654752440)))
SBIT__UNARY_KERNEL(gelu_tanh, SBIT__UNARY_GELU_TANH,
                   0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))))
static sbit_status sbit__unary_gelu_run(const sbit_op_call *call, sbit_error *error)
{
    static const char *const words[] = {"none", "tanh"};
    int32_t approximate = 0;
    SBIT__TRY(sbit__op_word(call, "approximate", words, 2, &approximate, error));
    return approximate == 1 ? sbit__unary_gelu_tanh_run(call, error)
                            : sbit__unary_gelu_erf_run(call, error);
}

/* Arithmetic and rounding */
SBIT__UNARY_KERNEL_F32(abs, SBIT__UNARY_ABS)
SBIT__UNARY_F64(abs, fabs(x))
SBIT__UNARY_I64(abs, x < 0 && !args->is_unsigned ? (int64_t)(0u - (uint64_t)x) : x)
SBIT__UNARY_RUN(abs, 0.0f, 0.0f, sbit__unary_abs_i64)

SBIT__UNARY_KERNEL_F32(neg, SBIT__UNARY_NEG)
SBIT__UNARY_F64(neg, -x)
SBIT__UNARY_I64(neg, (int64_t)(0u - (uint64_t)x))
SBIT__UNARY_RUN(neg, 0.0f, 0.0f, sbit__unary_neg_i64)

SBIT__UNARY_F32(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)
SBIT__UNARY_F64(sign, x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x)
SBIT__UNARY_I64(sign, x == 0 ? 0 : x > 0 || args->is_unsigned ? 1 : -1)
SBIT__UNARY_RUN(sign, 0.0f, 0.0f, sbit__unary_sign_i64)

SBIT__UNARY_KERNEL_F32(erf, SBIT__UNARY_ERF)
SBIT__UNARY_F64(erf, erf(x))
SBIT__UNARY_I64(erf, (int64_t)erf(args->is_unsigned ? (double)(uint64_t)x : (double)x))
SBIT__UNARY_RUN(erf, 0.0f, 0.0f, sbit__unary_erf_i64)

SBIT__UNARY_F32(bit_not, x)
SBIT__UNARY_F64(bit_not, x)
SBIT__UNARY_I64(bit_not, ~x)
SBIT__UNARY_RUN(bit_not, 0.0f, 0.0f, sbit__unary_bit_not_i64)

SBIT__UNARY_KERNEL(floor, SBIT__UNARY_FLOOR, floor(x))
SBIT__UNARY_KERNEL(ceil, SBIT__UNARY_CEIL, ceil(x))
SBIT__UNARY_KERNEL(round, SBIT__UNARY_ROUND, rint(x)) /* half to even */
SBIT__UNARY_KERNEL(sqrt, SBIT__UNARY_SQRT, sqrt(x))
SBIT__UNARY_KERNEL(exp, SBIT__UNARY_EXP, exp(x))
SBIT__UNARY_KERNEL(log, SBIT__UNARY_LOG, log(x))
SBIT__UNARY_KERNEL(reciprocal, SBIT__UNARY_RECIPROCAL, 1.0 / x)

/* Trigonometry */
SBIT__UNARY_DEFINE(sin, sinf(x), sin(x))
SBIT__UNARY_DEFINE(cos, cosf(x), cos(x))
SBIT__UNARY_DEFINE(tan, tanf(x), tan(x))
SBIT__UNARY_DEFINE(asin, asinf(x), asin(x))
SBIT__UNARY_DEFINE(acos, acosf(x), acos(x))
SBIT__UNARY_DEFINE(atan, atanf(x), atan(x))
SBIT__UNARY_DEFINE(sinh, sinhf(x), sinh(x))
SBIT__UNARY_DEFINE(cosh, coshf(x), cosh(x))
SBIT__UNARY_DEFINE(asinh, asinhf(x), asinh(x))
SBIT__UNARY_DEFINE(acosh, acoshf(x), acosh(x))
SBIT__UNARY_DEFINE(atanh, atanhf(x), atanh(x))

#undef SBIT__UNARY_F32
#undef SBIT__UNARY_F64
#undef SBIT__UNARY_I64
#undef SBIT__UNARY_RUN
#undef SBIT__UNARY_DEFINE
#undef SBIT__UNARY_KERNEL_F32
#undef SBIT__UNARY_KERNEL
#undef SBIT__UNARY_RUN_ATTRS

/* >>predicates */

/* In double, which tells infinity and NaN of every float type. */
static sbit_status sbit__unary_test_run(const sbit_op_call *call, bool nan, bool negative,
                                        bool positive)
{
    const sbit_tensor *x = call->in[0];
    const int64_t n = sbit_tensor_count(x);
    uint8_t *y = call->out[0] != NULL ? (uint8_t *)call->out[0]->data : NULL;
    double v[SBIT__UNARY_CHUNK];
    for (int64_t at = 0; y != NULL && at < n; at += SBIT__UNARY_CHUNK) {
        const int64_t m = n - at < SBIT__UNARY_CHUNK ? n - at : SBIT__UNARY_CHUNK;
        sbit__convert(x->dtype, sbit__elem_at_const(x->dtype, x->data, at), SBIT_F64, v, m);
        for (int64_t i = 0; i < m; i++) {
            const bool is_nan = v[i] != v[i];
            const bool is_inf = !is_nan && v[i] - v[i] != 0.0;
            y[at + i] = nan ? is_nan : is_inf && (v[i] > 0.0 ? positive : negative);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__unary_isnan_run(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    return sbit__unary_test_run(call, true, false, false);
}

static sbit_status sbit__unary_isinf_run(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    return sbit__unary_test_run(call, false, sbit_node_int(call->node, "detect_negative", 1) != 0,
                                sbit_node_int(call->node, "detect_positive", 1) != 0);
}

static sbit_status sbit__unary_not_run(const sbit_op_call *call, sbit_error *error)
{
    const int64_t n = sbit_tensor_count(call->in[0]);
    const uint8_t *x = (const uint8_t *)call->in[0]->data;
    uint8_t *y = call->out[0] != NULL ? (uint8_t *)call->out[0]->data : NULL;
    (void)error;
    for (int64_t i = 0; y != NULL && i < n; i++) {
        y[i] = x[i] == 0;
    }
    return SBIT_OK;
}

/* >>infer */

static sbit_status sbit__unary_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 1, 1, 0, error);
}

static sbit_status sbit__unary_infer_bool(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__unary_infer(call, error));
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = SBIT_BOOL;
    }
    return SBIT_OK;
}

/* >>rows */

#define SBIT__UNARY_FLOATS1 SBIT__T_FLOATS1
#define SBIT__UNARY_FLOATS SBIT_T_FLOATS
#define SBIT__UNARY_ROW(name, version, types, run, gradient, quant)                                \
    {                                                                                              \
        "", name, version, types, SBIT_OP_IN_PLACE, 0, sbit__unary_infer, NULL, run, gradient,     \
            NULL, quant, &sbit__unary_channel, NULL                                                \
    }
#define SBIT__UNARY_ROW_BOOL(name, version, types, run)                                            \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__unary_infer_bool, NULL, run, NULL, NULL, NULL,       \
            &sbit__unary_channel, NULL                                                             \
    }
/* Opset 6 dropped the attribute consumed_inputs, a later one added bfloat16. */
#define SBIT__UNARY_ROWS_1_6(name, later, run, gradient, quant)                                    \
    SBIT__UNARY_ROW(name, 1, SBIT__UNARY_FLOATS1, run, gradient, quant),                           \
        SBIT__UNARY_ROW(name, 6, SBIT__UNARY_FLOATS1, run, gradient, quant),                       \
        SBIT__UNARY_ROW(name, later, SBIT__UNARY_FLOATS, run, gradient, quant)
#define SBIT__UNARY_ROWS_2(name, first, later, run, gradient, quant)                               \
    SBIT__UNARY_ROW(name, first, SBIT__UNARY_FLOATS1, run, gradient, quant),                       \
        SBIT__UNARY_ROW(name, later, SBIT__UNARY_FLOATS, run, gradient, quant)

static const sbit_op_channel sbit__unary_channel = {SBIT_CHANNEL_ELEMENTWISE, 1, 0, 0, 0, NULL};
/* Sparsebit quantizes the input; the generic profiles fold Relu into the operator before it. */
static const sbit_op_quant sbit__unary_quant_classic = {0, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
static const sbit_op_quant sbit__unary_quant_both = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
static const sbit_op_quant sbit__unary_quant_generic = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
static const sbit_op_quant sbit__unary_quant_unit = {SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT |
                                                         SBIT_QUANT_FIXED_RANGE,
                                                     1,
                                                     -1,
                                                     -1,
                                                     -1,
                                                     0,
                                                     0,
                                                     NULL,
                                                     0.0f,
                                                     1.0f};
static const sbit_op_quant sbit__unary_quant_tanh = {
    SBIT_QUANT_FIXED_RANGE, 1, -1, -1, -1, 0, 0, NULL, -1.0f, 1.0f};

static const sbit_op_row sbit__unary_rows[] = {
    SBIT__UNARY_ROW("Relu", 1, SBIT__UNARY_FLOATS1, sbit__unary_relu_run, sbit__grad_from_output,
                    &sbit__unary_quant_classic),
    SBIT__UNARY_ROW("Relu", 6, SBIT__UNARY_FLOATS1, sbit__unary_relu_run, sbit__grad_from_output,
                    &sbit__unary_quant_classic),
    SBIT__UNARY_ROW("Relu", 13, SBIT__UNARY_FLOATS, sbit__unary_relu_run, sbit__grad_from_output,
                    &sbit__unary_quant_classic),
    SBIT__UNARY_ROW("Relu", 14, SBIT__UNARY_FLOATS | SBIT_T_SIGNED, sbit__unary_relu_run,
                    sbit__grad_from_output, &sbit__unary_quant_classic),
    SBIT__UNARY_ROWS_1_6("LeakyRelu", 16, sbit__unary_leaky_run, sbit__grad_from_input,
                         &sbit__unary_quant_both),
    SBIT__UNARY_ROWS_1_6("Elu", 22, sbit__unary_elu_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_1_6("Selu", 22, sbit__unary_selu_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROW("Celu", 12, SBIT_T(SBIT_F32), sbit__unary_celu_run, sbit__grad_from_input,
                    NULL),
    SBIT__UNARY_ROW("Celu", 28, SBIT__UNARY_FLOATS, sbit__unary_celu_run, sbit__grad_from_input,
                    NULL),
    SBIT__UNARY_ROWS_2("ThresholdedRelu", 10, 22, sbit__unary_thresholded_run,
                       sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_1_6("Sigmoid", 13, sbit__unary_sigmoid_run, sbit__grad_from_output,
                         &sbit__unary_quant_unit),
    SBIT__UNARY_ROWS_1_6("HardSigmoid", 22, sbit__unary_hard_sigmoid_run, sbit__grad_from_input,
                         &sbit__unary_quant_unit),
    SBIT__UNARY_ROWS_2("HardSwish", 14, 22, sbit__unary_hard_swish_run, sbit__grad_from_input,
                       &sbit__unary_quant_generic),
    SBIT__UNARY_ROWS_1_6("Tanh", 13, sbit__unary_tanh_run, sbit__grad_from_output,
                         &sbit__unary_quant_tanh),
    SBIT__UNARY_ROWS_2("Softplus", 1, 22, sbit__unary_softplus_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Softsign", 1, 22, sbit__unary_softsign_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Mish", 18, 22, sbit__unary_mish_run, sbit__grad_from_input,
                       &sbit__unary_quant_classic),
    SBIT__UNARY_ROW("Gelu", 20, SBIT__UNARY_FLOATS, sbit__unary_gelu_run, sbit__grad_from_input,
                    &sbit__unary_quant_both),
    {"com.microsoft", "Gelu", 1, SBIT__UNARY_FLOATS, SBIT_OP_IN_PLACE, 0, sbit__unary_infer, NULL,
     sbit__unary_gelu_run, sbit__grad_from_input, NULL, &sbit__unary_quant_both,
     &sbit__unary_channel, NULL},
    SBIT__UNARY_ROW("Swish", 24, SBIT__UNARY_FLOATS, sbit__unary_swish_run, sbit__grad_from_input,
                    &sbit__unary_quant_both),
    SBIT__UNARY_ROW("Shrink", 9, SBIT__T_NUMBERS1, sbit__unary_shrink_run, sbit__grad_from_input,
                    NULL),

    SBIT__UNARY_ROW("Abs", 1, SBIT__UNARY_FLOATS1, sbit__unary_abs_run, sbit__grad_from_input,
                    NULL),
    SBIT__UNARY_ROW("Abs", 6, SBIT__T_NUMBERS1, sbit__unary_abs_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROW("Abs", 13, SBIT_T_NUMBERS, sbit__unary_abs_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROW("Neg", 1, SBIT__UNARY_FLOATS1, sbit__unary_neg_run, sbit__grad_neg, NULL),
    SBIT__UNARY_ROW("Neg", 6, SBIT__UNARY_FLOATS1 | SBIT_T_SIGNED, sbit__unary_neg_run,
                    sbit__grad_neg, NULL),
    SBIT__UNARY_ROW("Neg", 13, SBIT__UNARY_FLOATS | SBIT_T_SIGNED, sbit__unary_neg_run,
                    sbit__grad_neg, NULL),
    SBIT__UNARY_ROW("Sign", 9, SBIT__T_NUMBERS1, sbit__unary_sign_run, sbit__grad_zero, NULL),
    SBIT__UNARY_ROW("Sign", 13, SBIT_T_NUMBERS, sbit__unary_sign_run, sbit__grad_zero, NULL),
    SBIT__UNARY_ROW("Erf", 9, SBIT__T_NUMBERS1, sbit__unary_erf_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROW("Erf", 13, SBIT__UNARY_FLOATS, sbit__unary_erf_run, sbit__grad_from_input,
                    NULL),
    SBIT__UNARY_ROWS_1_6("Floor", 13, sbit__unary_floor_run, sbit__grad_zero, NULL),
    SBIT__UNARY_ROWS_1_6("Ceil", 13, sbit__unary_ceil_run, sbit__grad_zero, NULL),
    SBIT__UNARY_ROWS_2("Round", 11, 22, sbit__unary_round_run, sbit__grad_zero, NULL),
    SBIT__UNARY_ROWS_1_6("Sqrt", 13, sbit__unary_sqrt_run, sbit__grad_from_output, NULL),
    SBIT__UNARY_ROWS_1_6("Exp", 13, sbit__unary_exp_run, sbit__grad_from_output, NULL),
    SBIT__UNARY_ROWS_1_6("Log", 13, sbit__unary_log_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_1_6("Reciprocal", 13, sbit__unary_reciprocal_run, sbit__grad_from_output,
                         NULL),

    SBIT__UNARY_ROWS_2("Sin", 7, 22, sbit__unary_sin_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Cos", 7, 22, sbit__unary_cos_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Tan", 7, 22, sbit__unary_tan_run, sbit__grad_from_output, NULL),
    SBIT__UNARY_ROWS_2("Asin", 7, 22, sbit__unary_asin_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Acos", 7, 22, sbit__unary_acos_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Atan", 7, 22, sbit__unary_atan_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Sinh", 9, 22, sbit__unary_sinh_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Cosh", 9, 22, sbit__unary_cosh_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Asinh", 9, 22, sbit__unary_asinh_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Acosh", 9, 22, sbit__unary_acosh_run, sbit__grad_from_input, NULL),
    SBIT__UNARY_ROWS_2("Atanh", 9, 22, sbit__unary_atanh_run, sbit__grad_from_input, NULL),

    SBIT__UNARY_ROW_BOOL("IsNaN", 9, SBIT__UNARY_FLOATS1, sbit__unary_isnan_run),
    SBIT__UNARY_ROW_BOOL("IsNaN", 13, SBIT__UNARY_FLOATS, sbit__unary_isnan_run),
    SBIT__UNARY_ROW_BOOL("IsNaN", 20, SBIT__UNARY_FLOATS | SBIT__T_F8, sbit__unary_isnan_run),
    SBIT__UNARY_ROW_BOOL("IsInf", 10, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64), sbit__unary_isinf_run),
    SBIT__UNARY_ROW_BOOL("IsInf", 20, SBIT__UNARY_FLOATS | SBIT__T_F8, sbit__unary_isinf_run),
    SBIT__UNARY_ROW("Not", 1, SBIT_T(SBIT_BOOL), sbit__unary_not_run, NULL, NULL),
    SBIT__UNARY_ROW("BitwiseNot", 18, SBIT_T_INTS, sbit__unary_bit_not_run, NULL, NULL),
};

#undef SBIT__UNARY_ROW
#undef SBIT__UNARY_ROW_BOOL
#undef SBIT__UNARY_ROWS_1_6
#undef SBIT__UNARY_ROWS_2
#undef SBIT__UNARY_FLOATS1
#undef SBIT__UNARY_FLOATS
#undef SBIT__UNARY_CHUNK

SBIT__FN const sbit_op_row *sbit__op_rows_unary(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__unary_rows);
    return sbit__unary_rows;
}
