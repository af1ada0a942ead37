/* grad_elements.c: internal rows of gradients that work element by element. >>grad-elements
 *
 * Called by: infer, exec; the nodes are added by ops/gradients.c. Calls: kernels.
 * ActivationGrad: dx = dy * slope, the slope from the input or the output of the function
 * (whichever rule is used says so); at a kink it is that of PyTorch: 0 for Relu, Clip and Abs.
 */
#include "../kernels/last_private.h"
#include "elements_private.h"
#include "gradient_private.h"

#include <math.h> /* exp, erf, tanh, cos, sin, cosh, sinh, sqrt, fabs */

/* >>shapes from inputs */

SBIT__FN sbit_status sbit__grad_dims(const sbit_op_call *call, int32_t input, int32_t *rank,
                                     int64_t dims[SBIT_MAX_RANK], sbit_error *error)
{
    const sbit_tensor *shape = sbit__in(call, input);
    const int64_t count = shape != NULL ? sbit_tensor_count(shape) : -1;
    if (count < 0 || count > SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d is no shape", (int)input);
    }
    for (int64_t i = 0; i < count; i++) {
        dims[i] = sbit__tensor_i64_at(shape, i);
    }
    *rank = (int32_t)count;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__grad_infer_shape(const sbit_op_call *call, int32_t input,
                                            sbit_error *error)
{
    sbit_dim dims[SBIT_MAX_RANK];
    int64_t count = 0;
    sbit_type *out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), -1);
    (void)error;
    if (out != NULL && sbit__op_elems(call, input, dims, SBIT_MAX_RANK, &count)) {
        out->rank = (int32_t)count;
        memcpy(out->dims, dims, (size_t)count * sizeof dims[0]);
    }
    return SBIT_OK;
}

#if !SPARSEBIT_NO_OPS_TRAINING

/* >>ActivationGrad */

#define SBIT__SLOPE_CHUNK 96
#define SBIT__SLOPE_STEP 4 /* a vector, which is read before it is written: dx may be dy */

typedef struct sbit__slope_args {
    const sbit_kernels *kernels;
    const sbit__last_kernels *last;
    double a, b; /* attributes alpha and beta (gamma), or the limits of Clip */
} sbit__slope_args;

typedef struct sbit__slope {
    const char *of;
    double a, b; /* defaults */
    void (*f32)(const sbit__slope_args *args, const float *dy, const float *v, float *dx);
    void (*f64)(const sbit__slope_args *args, int64_t n, const double *dy, const double *v,
                double *dx);
} sbit__slope;

enum {
    SBIT__SLOPE_PLAIN = -1
}; /* no vector function is needed first */

static double sbit__slope_f64(int helper, double x)
{
    switch (helper) {
    case SBIT__UNARY_EXP:
        return exp(x);
    case SBIT__UNARY_ERF:
        return erf(x);
    case SBIT__UNARY_TANH:
        return tanh(x);
    case SBIT__UNARY_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    default:
        return 0.0;
    }
}

/* h = helper(in), result: both expressions of v, the latter of a, b, h and dy's element d too, in
 * type T. f32: whole chunks, in loops that compilers turn into vectors. */
#define SBIT__SLOPE_OF(name, helper, in, result)                                                   \
    static void sbit__slope_##name##_f32(const sbit__slope_args *args, const float *dy,            \
                                         const float *vs, float *dx)                               \
    {                                                                                              \
        typedef float T;                                                                           \
        const T a = (T)args->a, b = (T)args->b;                                                    \
        T hs[SBIT__SLOPE_CHUNK];                                                                   \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (int i = 0; (int)(helper) >= 0 && i < SBIT__SLOPE_CHUNK; i++) {                        \
            const T v = vs[i];                                                                     \
            hs[i] = in;                                                                            \
        }                                                                                          \
        if ((int)(helper) >= 0) {                                                                  \
            args->kernels->f32_unary((sbit__unary)((int)(helper) >= 0 ? (int)(helper) : 0),        \
                                     SBIT__SLOPE_CHUNK, hs, hs);                                   \
        }                                                                                          \
        for (int k = 0; k < SBIT__SLOPE_CHUNK; k += SBIT__SLOPE_STEP) {                            \
            T out[SBIT__SLOPE_STEP];                                                               \
            for (int i = 0; i < SBIT__SLOPE_STEP; i++) {                                           \
                const T d = dy[k + i], v = vs[k + i], h = (int)(helper) >= 0 ? hs[k + i] : v;      \
                (void)v;                                                                           \
                (void)h;                                                                           \
                out[i] = result;                                                                   \
            }                                                                                      \
            memcpy(dx + k, out, sizeof out);                                                       \
        }                                                                                          \
    }                                                                                              \
    static void sbit__slope_##name##_f64(const sbit__slope_args *args, int64_t n,                  \
                                         const double *dy, const double *vs, double *dx)           \
    {                                                                                              \
        typedef double T;                                                                          \
        const T a = args->a, b = args->b;                                                          \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const T d = dy[i], v = vs[i], h = sbit__slope_f64((int)(helper), in);                  \
            (void)v;                                                                               \
            (void)h;                                                                               \
            dx[i] = result;                                                                        \
        }                                                                                          \
    }
#define SBIT__SLOPE(name, helper, in, slope) SBIT__SLOPE_OF(name, helper, in, d *(slope))

#define SBIT__SLOPE_ROOT_2 1.4142135623730951
#define SBIT__SLOPE_TANH_IN ((T)0.7978845608028654 * (v + (T)0.044715 * v * v * v))

/* the slope is 1 between limits, else 0: a kernel, and double */
#define SBIT__SLOPE_IF(name, low, high)                                                            \
    static void sbit__slope_##name##_f32(const sbit__slope_args *args, const float *dy,            \
                                         const float *vs, float *dx)                               \
    {                                                                                              \
        const double a = args->a, b = args->b;                                                     \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        args->last->slope_inside(SBIT__SLOPE_CHUNK, dy, vs, (float)(low), (float)(high), dx);      \
    }                                                                                              \
    static void sbit__slope_##name##_f64(const sbit__slope_args *args, int64_t n,                  \
                                         const double *dy, const double *vs, double *dx)           \
    {                                                                                              \
        const double a = args->a, b = args->b;                                                     \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            dx[i] = vs[i] > (low) && !(vs[i] >= (double)(high)) ? dy[i] : 0.0;                     \
        }                                                                                          \
    }

SBIT__SLOPE_IF(relu, 0.0, NAN)
SBIT__SLOPE_IF(clip, a, b)
SBIT__SLOPE(leaky, SBIT__SLOPE_PLAIN, v, (v < 0 ? a : (T)1))
SBIT__SLOPE(elu, SBIT__UNARY_EXP, (v < 0 ? v : (T)0), (v < 0 ? a * h : (T)1))
SBIT__SLOPE(selu, SBIT__UNARY_EXP, (v < 0 ? v : (T)0), (v > 0 ? b : b * a * h))
SBIT__SLOPE(celu, SBIT__UNARY_EXP, (v < 0 ? v / a : (T)0), (v > 0 ? (T)1 : h))
SBIT__SLOPE_IF(thresholded, a, NAN)
SBIT__SLOPE(sigmoid, SBIT__SLOPE_PLAIN, v, (v * ((T)1 - v)))
SBIT__SLOPE(hard_sigmoid, SBIT__SLOPE_PLAIN, v, (a * v + b > 0 && a * v + b < 1 ? a : (T)0))
SBIT__SLOPE(hard_swish, SBIT__SLOPE_PLAIN, v, (v <= -3 ? (T)0 : v >= 3 ? (T)1 : v / (T)3 + (T)0.5))
SBIT__SLOPE(tanh, SBIT__SLOPE_PLAIN, v, ((T)1 - v * v))
SBIT__SLOPE(softplus, SBIT__UNARY_SIGMOID, v, h)
SBIT__SLOPE(softsign, SBIT__SLOPE_PLAIN, v,
            (T)1 / (((T)1 + (v < 0 ? -v : v)) * ((T)1 + (v < 0 ? -v : v))))
/* with s = sigmoid(v), q = (1 - s)^2: tanh(softplus(v)) = (1 - q) / (1 + q) */
#define SBIT__SLOPE_MISH (((T)1 - ((T)1 - h) * ((T)1 - h)) / ((T)1 + ((T)1 - h) * ((T)1 - h)))
SBIT__SLOPE(mish, SBIT__UNARY_SIGMOID, v,
            (SBIT__SLOPE_MISH + v * h * ((T)1 - SBIT__SLOPE_MISH * SBIT__SLOPE_MISH)))
static void sbit__slope_gelu_f32(const sbit__slope_args *args, const float *dy, const float *vs,
                                 float *dx)
{
    float h[SBIT__SLOPE_CHUNK];
    args->kernels->f32_unary(SBIT__UNARY_GELU_SLOPE, SBIT__SLOPE_CHUNK, vs, h);
    args->kernels->f32_binary(SBIT__BINARY_MUL, SBIT__SLOPE_CHUNK, dy, 1, h, 1, dx);
}
static void sbit__slope_gelu_f64(const sbit__slope_args *args, int64_t n, const double *dy,
                                 const double *vs, double *dx)
{
    (void)args;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i] * (0.5 + 0.5 * erf(vs[i] / SBIT__SLOPE_ROOT_2) +
                         vs[i] * 0.3989422804014327 * exp(-0.5 * vs[i] * vs[i]));
    }
}
SBIT__SLOPE(gelu_tanh, SBIT__UNARY_TANH, SBIT__SLOPE_TANH_IN,
            ((T)0.5 * ((T)1 + h) +
             (T)0.5 * v * ((T)1 - h * h) * (T)0.7978845608028654 * ((T)1 + (T)0.134145 * v * v)))
SBIT__SLOPE(swish, SBIT__UNARY_SIGMOID, (a * v), (h + a * v * h * ((T)1 - h)))
SBIT__SLOPE(abs, SBIT__SLOPE_PLAIN, v, (v > 0 ? (T)1 : v < 0 ? (T)-1 : (T)0))
SBIT__SLOPE(erf, SBIT__UNARY_EXP, (-v * v), ((T)1.1283791670955126 * h))
SBIT__SLOPE(sqrt, SBIT__SLOPE_PLAIN, v, ((T)0.5 / v))
SBIT__SLOPE(exp, SBIT__SLOPE_PLAIN, v, v)
SBIT__SLOPE(log, SBIT__SLOPE_PLAIN, v, ((T)1 / v))
SBIT__SLOPE(reciprocal, SBIT__SLOPE_PLAIN, v, (-v * v))
SBIT__SLOPE(sin, SBIT__SLOPE_PLAIN, v, (T)cos((double)v))
SBIT__SLOPE(cos, SBIT__SLOPE_PLAIN, v, (T)-sin((double)v))
SBIT__SLOPE(tan, SBIT__SLOPE_PLAIN, v, ((T)1 + v * v))
SBIT__SLOPE(asin, SBIT__SLOPE_PLAIN, v, (T)(1.0 / sqrt(1.0 - (double)v * (double)v)))
SBIT__SLOPE(acos, SBIT__SLOPE_PLAIN, v, (T)(-1.0 / sqrt(1.0 - (double)v * (double)v)))
SBIT__SLOPE(atan, SBIT__SLOPE_PLAIN, v, ((T)1 / ((T)1 + v * v)))
SBIT__SLOPE(sinh, SBIT__SLOPE_PLAIN, v, (T)cosh((double)v))
SBIT__SLOPE(cosh, SBIT__SLOPE_PLAIN, v, (T)sinh((double)v))
SBIT__SLOPE(asinh, SBIT__SLOPE_PLAIN, v, (T)(1.0 / sqrt((double)v * (double)v + 1.0)))
SBIT__SLOPE(acosh, SBIT__SLOPE_PLAIN, v, (T)(1.0 / sqrt((double)v * (double)v - 1.0)))
SBIT__SLOPE(atanh, SBIT__SLOPE_PLAIN, v, ((T)1 / ((T)1 - v * v)))
SBIT__SLOPE(shrink, SBIT__SLOPE_PLAIN, v, (T)((v < -a) | (v > a)))

#define SBIT__SLOPE_ROW(of, a, b, name)                                                            \
    {                                                                                              \
        of, a, b, sbit__slope_##name##_f32, sbit__slope_##name##_f64                               \
    }

static const sbit__slope sbit__slopes[] = {
    SBIT__SLOPE_ROW("Relu", 0.0, 0.0, relu),
    SBIT__SLOPE_ROW("Clip", 0.0, 0.0, clip),
    SBIT__SLOPE_ROW("LeakyRelu", 0.01, 0.0, leaky),
    SBIT__SLOPE_ROW("Elu", 1.0, 0.0, elu),
    SBIT__SLOPE_ROW("Selu", 1.67326319217681884765625, 1.05070102214813232421875, selu),
    SBIT__SLOPE_ROW("Celu", 1.0, 0.0, celu),
    SBIT__SLOPE_ROW("ThresholdedRelu", 1.0, 0.0, thresholded),
    SBIT__SLOPE_ROW("Sigmoid", 0.0, 0.0, sigmoid),
    SBIT__SLOPE_ROW("HardSigmoid", 0.2, 0.5, hard_sigmoid),
    SBIT__SLOPE_ROW("HardSwish", 0.0, 0.0, hard_swish),
    SBIT__SLOPE_ROW("Tanh", 0.0, 0.0, tanh),
    SBIT__SLOPE_ROW("Softplus", 0.0, 0.0, softplus),
    SBIT__SLOPE_ROW("Softsign", 0.0, 0.0, softsign),
    SBIT__SLOPE_ROW("Mish", 0.0, 0.0, mish),
    SBIT__SLOPE_ROW("Gelu", 0.0, 0.0, gelu), /* attribute approximate: the next */
    SBIT__SLOPE_ROW("GeluTanh", 0.0, 0.0, gelu_tanh),
    SBIT__SLOPE_ROW("Swish", 1.0, 0.0, swish),
    SBIT__SLOPE_ROW("Abs", 0.0, 0.0, abs),
    SBIT__SLOPE_ROW("Erf", 0.0, 0.0, erf),
    SBIT__SLOPE_ROW("Sqrt", 0.0, 0.0, sqrt),
    SBIT__SLOPE_ROW("Exp", 0.0, 0.0, exp),
    SBIT__SLOPE_ROW("Log", 0.0, 0.0, log),
    SBIT__SLOPE_ROW("Reciprocal", 0.0, 0.0, reciprocal),
    SBIT__SLOPE_ROW("Sin", 0.0, 0.0, sin),
    SBIT__SLOPE_ROW("Cos", 0.0, 0.0, cos),
    SBIT__SLOPE_ROW("Tan", 0.0, 0.0, tan),
    SBIT__SLOPE_ROW("Asin", 0.0, 0.0, asin),
    SBIT__SLOPE_ROW("Acos", 0.0, 0.0, acos),
    SBIT__SLOPE_ROW("Atan", 0.0, 0.0, atan),
    SBIT__SLOPE_ROW("Sinh", 0.0, 0.0, sinh),
    SBIT__SLOPE_ROW("Cosh", 0.0, 0.0, cosh),
    SBIT__SLOPE_ROW("Asinh", 0.0, 0.0, asinh),
    SBIT__SLOPE_ROW("Acosh", 0.0, 0.0, acosh),
    SBIT__SLOPE_ROW("Atanh", 0.0, 0.0, atanh),
    SBIT__SLOPE_ROW("Shrink", 0.5, 0.0, shrink),
};

#undef SBIT__SLOPE
#undef SBIT__SLOPE_IF
#undef SBIT__SLOPE_OF
#undef SBIT__SLOPE_ROW
#undef SBIT__SLOPE_MISH
#undef SBIT__SLOPE_ROOT_2
#undef SBIT__SLOPE_TANH_IN

static const sbit__slope *sbit__slope_of(const sbit_node *node)
{
    const char *of = sbit_node_string(node, "of", "");
    if (sbit__streq(of, "Gelu") &&
        sbit__streq(sbit_node_string(node, "approximate", "none"), "tanh")) {
        of = "GeluTanh";
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__slopes); i++) {
        if (sbit__streq(sbit__slopes[i].of, of)) {
            return &sbit__slopes[i];
        }
    }
    return NULL;
}

/* One limit of Clip: attribute or input; the default is none. */
static double sbit__slope_limit(const sbit_op_call *call, int32_t input, const char *name,
                                double otherwise)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    const sbit_tensor *limit = sbit__in(call, input);
    return limit != NULL  ? sbit__tensor_f64_at(limit, 0)
           : attr != NULL ? (double)attr->f
                          : otherwise;
}

static sbit_status sbit__slope_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 4, error));
    if (sbit__slope_of(call->node) == NULL) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "unknown function '%s'",
                            sbit_node_string(call->node, "of", ""));
    }
    sbit__op_same_type(call, 0, 1);
    return SBIT_OK;
}

typedef struct sbit__slope_task {
    const sbit__slope *slope;
    sbit__slope_args args;
    const sbit_tensor *dy, *v;
    sbit_tensor *dx;
} sbit__slope_task;

static void sbit__slope_block(void *user, int64_t begin, int64_t end)
{
    const sbit__slope_task *task = (const sbit__slope_task *)user;
    for (int64_t i = begin; i < end; i += SBIT__SLOPE_CHUNK) {
        const int64_t n = end - i < SBIT__SLOPE_CHUNK ? end - i : SBIT__SLOPE_CHUNK;
        if (task->dx->dtype == SBIT_F64) {
            task->slope->f64(&task->args, n, (const double *)task->dy->data + i,
                             (const double *)task->v->data + i, (double *)task->dx->data + i);
            continue;
        }
        const float *dy = (const float *)task->dy->data + i, *v = (const float *)task->v->data + i;
        float *dx = (float *)task->dx->data + i;
        if (n == SBIT__SLOPE_CHUNK) {
            task->slope->f32(&task->args, dy, v, dx);
        } else { /* the last one: filled up */
            float rest[2][SBIT__SLOPE_CHUNK] = {{0.0f}};
            memcpy(rest[0], dy, (size_t)n * sizeof *dy);
            memcpy(rest[1], v, (size_t)n * sizeof *v);
            task->slope->f32(&task->args, rest[0], rest[1], rest[0]);
            memcpy(dx, rest[0], (size_t)n * sizeof *dx);
        }
    }
}

static sbit_status sbit__slope_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__slope_task task;
    (void)error;
    task.slope = sbit__slope_of(call->node);
    task.args.kernels = call->kernels;
    task.args.last = sbit__last_of(call->ctx);
    task.args.a = (double)sbit_node_float(call->node,
                                          sbit__streq(task.slope->of, "Shrink") ? "lambd" : "alpha",
                                          (float)task.slope->a);
    task.args.b = (double)sbit_node_float(
        call->node, sbit__streq(task.slope->of, "Selu") ? "gamma" : "beta", (float)task.slope->b);
    if (sbit__streq(task.slope->of, "Clip")) {
        task.args.a = sbit__slope_limit(call, 2, "min", -(double)INFINITY);
        task.args.b = sbit__slope_limit(call, 3, "max", (double)INFINITY);
    }
    task.dy = call->in[0];
    task.v = call->in[1];
    task.dx = call->out[0];
    sbit__parallel_blocks(call->ctx, sbit_tensor_count(task.dx), sbit__slope_block, &task);
    return SBIT_OK;
}

/* >>Spread: the gradient of a sum or mean goes to all that it was made of */

static sbit_status sbit__spread_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    return sbit__grad_infer_shape(call, 1, error);
}

typedef struct sbit__spread_task {
    const sbit_kernels *kernels;
    sbit__loop loop; /* operands dx, dy */
    const sbit_tensor *dy;
    sbit_tensor *dx;
    double factor;
} sbit__spread_task;

static void sbit__spread_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__spread_task *task = (const sbit__spread_task *)user;
    const int64_t n = task->loop.inner, step = task->loop.strides[1][task->loop.rank - 1];
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        int64_t at[SBIT__LOOP_OPERANDS];
        sbit__loop_row(&task->loop, r, at);
        if (task->dx->dtype == SBIT_F64) {
            double *dx = (double *)task->dx->data + at[0];
            for (int64_t i = 0; i < n; i++) {
                dx[i] = ((const double *)task->dy->data)[at[1] + i * step] * task->factor;
            }
            continue;
        }
        const float *dy = (const float *)task->dy->data + at[1];
        float *dx = (float *)task->dx->data + at[0];
        for (int64_t i = 0; i < n; i++) {
            dx[i] = dy[i * step] * (float)task->factor;
        }
    }
}

static sbit_status sbit__spread_run(const sbit_op_call *call, sbit_error *error)
{
    int64_t dims[SBIT_MAX_RANK], strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK];
    int64_t axes[SBIT_MAX_RANK], axis_count = -1, stride = 1, set = 1;
    int32_t rank = 0;
    sbit__spread_task task;
    memset(&task, 0, sizeof task);
    memset(strides, 0, sizeof strides);
    SBIT__TRY(sbit__grad_dims(call, 1, &rank, dims, error));
    SBIT__TRY(sbit__op_output(call, 0, call->in[0]->dtype, rank, dims, &task.dx, error));
    if (task.dx == NULL || sbit_tensor_count(task.dx) == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_ints(call, "axes", 2, axes, SBIT_MAX_RANK, &axis_count, error));
    const bool all = axis_count < 1 && sbit_node_int(call->node, "noop_with_empty_axes", 0) == 0;
    sbit__tensor_strides(task.dx, strides[0]);
    for (int32_t i = rank - 1; i >= 0; i--) {
        bool reduced = all;
        for (int64_t k = 0; k < axis_count; k++) {
            reduced = reduced || axes[k] == i || axes[k] + rank == i;
        }
        strides[1][i] = reduced ? 0 : stride;
        stride *= reduced ? 1 : dims[i];
        set *= reduced ? dims[i] : 1;
    }
    task.dy = call->in[0];
    if (stride != sbit_tensor_count(task.dy)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the gradient does not fit the shape");
    }
    task.kernels = call->kernels;
    task.factor = sbit_node_int(call->node, "mean", 0) != 0 ? 1.0 / (double)set : 1.0;
    sbit__loop_init(&task.loop, rank, dims, 2, (const int64_t(*)[SBIT_MAX_RANK])strides);
    sbit__parallel_range(call->ctx, task.loop.outer, 1 + SBIT__BLOCK / (1 + task.loop.inner),
                         sbit__spread_rows, &task);
    return SBIT_OK;
}

/* >>moves: IndexLike, ScatterBack, Piece, ZerosLike */

static sbit_status sbit__index_like_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_same_type(call, 0, 0);
    if (call->out_type[0] != NULL) {
        call->out_type[0]->dtype = SBIT_I32;
    }
    return SBIT_OK;
}

static sbit_status sbit__index_like_run(const sbit_op_call *call, sbit_error *error)
{
    const int64_t count = sbit_tensor_count(call->out[0]);
    const int64_t first = sbit_node_int(call->node, "first", 0);
    if (count >= INT32_MAX) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "more than 2^31 elements");
    }
    for (int64_t i = 0; i < count; i++) {
        ((int32_t *)call->out[0]->data)[i] = (int32_t)(i + first);
    }
    return SBIT_OK;
}

static sbit_status sbit__scatter_back_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    return sbit__grad_infer_shape(call, 2, error);
}

/* One thread: elements may meet, and their order must not change the sum. */
static sbit_status sbit__scatter_back_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *dy = call->in[0], *index = call->in[1];
    const int32_t *at = (const int32_t *)index->data;
    const int64_t first = sbit_node_int(call->node, "first", 0);
    int64_t dims[SBIT_MAX_RANK];
    int32_t rank = 0;
    sbit_tensor *dx = NULL;
    SBIT__TRY(sbit__grad_dims(call, 2, &rank, dims, error));
    SBIT__TRY(sbit__op_output(call, 0, dy->dtype, rank, dims, &dx, error));
    const int64_t count = sbit_tensor_count(dy), limit = dx != NULL ? sbit_tensor_count(dx) : 0;
    if (index->dtype != SBIT_I32 || sbit_tensor_count(index) != count) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "indices and gradient differ in shape");
    }
    if (limit == 0) {
        return SBIT_OK;
    }
    memset(dx->data, 0, sbit_tensor_bytes(dx));
    for (int64_t i = 0; i < count; i++) {
        const int64_t to = at[i] - first;
        if (to < -first || to >= limit) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "index %d is outside of the input",
                                (int)at[i]);
        }
        if (to < 0) { /* padding */
            continue;
        }
        if (dx->dtype == SBIT_F64) {
            ((double *)dx->data)[to] += ((const double *)dy->data)[i];
        } else {
            ((float *)dx->data)[to] += ((const float *)dy->data)[i];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__piece_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t axis = sbit_node_int(call->node, "axis", 0);
    const int64_t begin = sbit_node_int(call->node, "begin", 0);
    const int64_t length = sbit_node_int(call->node, "length", 0);
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_same_type(call, 0, 0);
    const sbit_type *x = call->in_type[0];
    if (x->rank < 0 || call->out_type[0] == NULL) {
        return SBIT_OK;
    }
    if (axis < 0 || axis >= x->rank || begin < 0 || length < 0 ||
        (sbit__dim_known(x->dims[axis]) &&
         (begin > x->dims[axis].value || length > x->dims[axis].value - begin))) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the piece lies outside of its input");
    }
    call->out_type[0]->dims[axis] = sbit__dim(length);
    return SBIT_OK;
}

static sbit_status sbit__piece_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int32_t axis = (int32_t)sbit_node_int(call->node, "axis", 0);
    const int64_t begin = sbit_node_int(call->node, "begin", 0);
    const int64_t length = sbit_node_int(call->node, "length", 0);
    const int64_t outer = sbit__dims_product(x->dims, 0, axis);
    const int64_t inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    (void)error;
    for (int64_t i = 0; i < outer; i++) {
        sbit__elem_copy(x->dtype, call->out[0]->data, i * length * inner, x->data,
                        (i * x->dims[axis] + begin) * inner, length * inner);
    }
    return SBIT_OK;
}

static sbit_status sbit__zeros_like_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 1, 1, 0, error);
}

static sbit_status sbit__zeros_like_run(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    if (sbit_tensor_count(call->out[0]) > 0) {
        memset(call->out[0]->data, 0, sbit_tensor_bytes(call->out[0]));
    }
    return SBIT_OK;
}

/* >>rows */

/* >>CumProdGrad: (dy, x, axis): in the direction of the products, S_i = sum over k >= i of dy_k times
 * the x between i and k: S_i = dy_i + x_{i+1} S_{i+1} (exclusive: dy and S one further); dx_i = S_i
 * times the x in front of i. No division: zeros are like any other number. */
typedef struct sbit__cum_prod_grad_task {
    const sbit_tensor *x, *dy;
    sbit_tensor *y;
    int64_t size, inner; /* of the axis; elements behind it */
    bool exclusive, reverse;
} sbit__cum_prod_grad_task;

static void sbit__cum_prod_grad_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__cum_prod_grad_task *task = (const sbit__cum_prod_grad_task *)data;
    const sbit_tensor *x = task->x, *dy = task->dy;
    const int64_t size = task->size, inner = task->inner;
    (void)worker;
    for (int64_t line = begin * inner; line < end * inner; line++) {
        const int64_t base = line / inner * size * inner + line % inner;
        double sum = 0.0, product = 1.0, next = 0.0; /* next: x_{i+1} */
        for (int64_t i = size; i-- > 0;) {
            const int64_t at = base + (task->reverse ? size - 1 - i : i) * inner;
            const double own = sbit__tensor_f64_at(dy, at);
            const double with = own + next * sum;
            sbit__tensor_set_f64(task->y, at, task->exclusive ? sum : with);
            sum = task->exclusive ? own + sbit__tensor_f64_at(x, at) * sum : with;
            next = sbit__tensor_f64_at(x, at);
        }
        for (int64_t i = 0; i < size; i++) {
            const int64_t at = base + (task->reverse ? size - 1 - i : i) * inner;
            sbit__tensor_set_f64(task->y, at, product * sbit__tensor_f64_at(task->y, at));
            product *= sbit__tensor_f64_at(x, at);
        }
    }
}

static sbit_status sbit__cum_prod_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 3, 3, 1, error);
}

static sbit_status sbit__cum_prod_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[1];
    sbit__cum_prod_grad_task task;
    int64_t given = 0;
    int32_t axis = 0;
    memset(&task, 0, sizeof task);
    SBIT__TRY(sbit__op_scalar(call, 2, 0, &given, error));
    SBIT__TRY(sbit__op_axis(call, given, x->rank, &axis, error));
    task.x = x;
    task.size = x->dims[axis];
    task.inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    task.dy = call->in[0];
    task.exclusive = sbit_node_int(call->node, "exclusive", 0) != 0;
    task.reverse = sbit_node_int(call->node, "reverse", 0) != 0;
    task.y = call->out[0];
    sbit__parallel_range(call->ctx, sbit__dims_product(x->dims, 0, axis), 1,
                         sbit__cum_prod_grad_range, &task);
    return SBIT_OK;
}

/* >>DropoutTrain: (x, draw) {ratio, seed}: as Dropout while training, but what is dropped is a function
 * of seed, draw and place, so that gradients and recomputation drop the same. */
typedef struct sbit__dropout_task {
    const sbit_tensor *x;
    sbit_tensor *y;
    uint64_t key;
    uint32_t limit; /* of 2^24: that many are dropped */
    double scale;
} sbit__dropout_task;

static void sbit__dropout_train_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__dropout_task *task = (const sbit__dropout_task *)user;
    const float scale = (float)task->scale;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const uint64_t bits = sbit__mix64(task->key + (uint64_t)i * SBIT__MIX64_STEP);
        const bool keep = (uint32_t)(bits >> 40) >= task->limit;
        if (task->x->dtype == SBIT_F32) {
            ((float *)task->y->data)[i] = keep ? ((const float *)task->x->data)[i] * scale : 0.0f;
        } else {
            ((double *)task->y->data)[i] =
                keep ? ((const double *)task->x->data)[i] * task->scale : 0.0;
        }
    }
}

static sbit_status sbit__dropout_train_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 2, 2, 0, error);
}

static sbit_status sbit__dropout_train_run(const sbit_op_call *call, sbit_error *error)
{
    const double ratio = (double)sbit_node_float(call->node, "ratio", 0.5f);
    sbit__dropout_task task;
    int64_t draw = 0;
    SBIT__TRY(sbit__op_scalar(call, 1, 0, &draw, error));
    task.x = call->in[0];
    task.y = call->out[0];
    task.limit = (uint32_t)(ratio * 16777216.0);
    task.scale = ratio < 1.0 ? 1.0 / (1.0 - ratio) : 0.0;
    task.key = ((uint64_t)sbit_node_int(call->node, "seed", 0) + 1) *
                   UINT64_C(0xD1342543DE82EF95) +
               (uint64_t)draw * UINT64_C(0xAF251AF3B0F025B5);
    sbit__parallel_range(call->ctx, sbit_tensor_count(task.x), 65536, sbit__dropout_train_range,
                         &task);
    return SBIT_OK;
}

#define SBIT__GRAD_ROW(name, flags, fn)                                                            \
    {                                                                                              \
        SBIT__GRAD_DOMAIN, name, 1, SBIT__T_GRAD, flags, 0, sbit__##fn##_infer, NULL,              \
            sbit__##fn##_run, NULL, NULL, NULL, NULL, NULL                                         \
    }

static const sbit_op_row sbit__grad_elements_rows[] = {
    SBIT__GRAD_ROW("ActivationGrad", SBIT_OP_IN_PLACE, slope),
    SBIT__GRAD_ROW("Spread", 0, spread),
    SBIT__GRAD_ROW("IndexLike", SBIT_OP_SHAPE_ONLY, index_like),
    SBIT__GRAD_ROW("ScatterBack", 0, scatter_back),
    SBIT__GRAD_ROW("Piece", 0, piece),
    SBIT__GRAD_ROW("ZerosLike", SBIT_OP_SHAPE_ONLY, zeros_like),
    SBIT__GRAD_ROW("CumProdGrad", 0, cum_prod_grad),
    {SBIT__GRAD_DOMAIN, "DropoutTrain", 1, SBIT__T_GRAD, SBIT_OP_IN_PLACE, 0,
     sbit__dropout_train_infer, NULL, sbit__dropout_train_run, sbit__grad_dropout_train, NULL,
     NULL, NULL, NULL},
};

#undef SBIT__GRAD_ROW
#undef SBIT__SLOPE_CHUNK
#undef SBIT__SLOPE_STEP

SBIT__FN const sbit_op_row *sbit__op_rows_grad_elements(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__grad_elements_rows);
    return sbit__grad_elements_rows;
}

#endif /* SPARSEBIT_NO_OPS_TRAINING */
