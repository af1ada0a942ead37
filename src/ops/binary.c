/* binary.c: functions of two or more broadcast tensors: arithmetic, comparison, logic, Where, Clip,
 * and the variadic Sum, Mean, Max, Min. >>binary
 *
 * Called by: exec through the rows. Calls: kernels (f32_binary, f32_activate), libm.
 * Does: every type that ONNX lists, NumPy broadcasting (opset 7 on) and the attributes broadcast
 * and axis (before). A pair of tensors becomes rows of the merged shape (sbit__loop) in which each
 * operand advances by 1 or stays: same shape, scalar, channel and row operands are one kernel call
 * per row. float32, float64, int64 and uint64 are computed as they lie; other types in chunks of
 * the class that holds them exactly (float32 for 16-bit floats, 64 bits for integers, wrapping).
 * Integer division truncates towards zero; by zero it gives 0, as does the remainder.
 */
#include "elements_private.h"
#include "gradient_private.h"

#include <float.h> /* FLT_MAX */
#include <math.h>  /* powf, fmod, fabs */

#define SBIT__BINARY_CHUNK 64 /* elements converted at a time, on the stack */

/* The operations; the first ones are the kernel table's, in its order. */
typedef enum sbit__binary_op {
    SBIT__OP_ADD = SBIT__BINARY_ADD,
    SBIT__OP_SUB = SBIT__BINARY_SUB,
    SBIT__OP_MUL = SBIT__BINARY_MUL,
    SBIT__OP_DIV = SBIT__BINARY_DIV,
    SBIT__OP_MAX = SBIT__BINARY_MAX,
    SBIT__OP_MIN = SBIT__BINARY_MIN,
    SBIT__OP_POW = SBIT__BINARY_COUNT,
    SBIT__OP_MOD,  /* sign of the divisor */
    SBIT__OP_FMOD, /* sign of the dividend */
    SBIT__OP_PRELU,
    SBIT__OP_AND, /* bits, and bool */
    SBIT__OP_OR,
    SBIT__OP_XOR,
    SBIT__OP_SHIFT_LEFT,
    SBIT__OP_SHIFT_RIGHT,
    SBIT__OP_EQUAL, /* from here on the result is bool */
    SBIT__OP_LESS,
    SBIT__OP_LESS_EQUAL,
    SBIT__OP_GREATER,
    SBIT__OP_GREATER_EQUAL
} sbit__binary_op;

/* >>arithmetic per class. Steps are 0 or 1. */

#define SBIT__BINARY_LOOP(op, type, expr)                                                          \
    case op:                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const type x = a[i * step_a], z = b[i * step_b];                                       \
            y[i] = (expr);                                                                         \
        }                                                                                          \
        break;

#define SBIT__BINARY_COMPARE(name, type)                                                           \
    static void sbit__binary_compare_##name(sbit__binary_op op, int64_t n, const type *a,          \
                                            int64_t step_a, const type *b, int64_t step_b,         \
                                            uint8_t *y)                                            \
    {                                                                                              \
        switch ((int)op) {                                                                         \
            SBIT__BINARY_LOOP(SBIT__OP_EQUAL, type, x == z)                                        \
            SBIT__BINARY_LOOP(SBIT__OP_LESS, type, x < z)                                          \
            SBIT__BINARY_LOOP(SBIT__OP_LESS_EQUAL, type, x <= z)                                   \
            SBIT__BINARY_LOOP(SBIT__OP_GREATER, type, x > z)                                       \
            SBIT__BINARY_LOOP(SBIT__OP_GREATER_EQUAL, type, x >= z)                                \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }
SBIT__BINARY_COMPARE(f32, float)
SBIT__BINARY_COMPARE(f64, double)
SBIT__BINARY_COMPARE(i64, int64_t)
SBIT__BINARY_COMPARE(u64, uint64_t)
#undef SBIT__BINARY_COMPARE

/* Floored remainder: x - floor(x / z) * z; the sign of z, also for a zero result. */
static double sbit__binary_floor_mod(double x, double z)
{
    double rest = fmod(x, z);
    if (rest != 0.0 && (rest < 0.0) != (z < 0.0)) {
        rest += z;
    }
    return rest == 0.0 ? copysign(0.0, z) : rest;
}

static void sbit__binary_f64(sbit__binary_op op, int64_t n, const double *a, int64_t step_a,
                             const double *b, int64_t step_b, double *y)
{
    switch ((int)op) {
        SBIT__BINARY_LOOP(SBIT__OP_ADD, double, x + z)
        SBIT__BINARY_LOOP(SBIT__OP_SUB, double, x - z)
        SBIT__BINARY_LOOP(SBIT__OP_MUL, double, x *z)
        SBIT__BINARY_LOOP(SBIT__OP_DIV, double, x / z)
        SBIT__BINARY_LOOP(SBIT__OP_MAX, double, x > z || x != x ? x : z)
        SBIT__BINARY_LOOP(SBIT__OP_MIN, double, x < z || x != x ? x : z)
        SBIT__BINARY_LOOP(SBIT__OP_POW, double, pow(x, z))
        SBIT__BINARY_LOOP(SBIT__OP_MOD, double, sbit__binary_floor_mod(x, z))
        SBIT__BINARY_LOOP(SBIT__OP_FMOD, double, fmod(x, z))
        SBIT__BINARY_LOOP(SBIT__OP_PRELU, double, x < 0.0 ? x * z : x)
    default:
        break;
    }
}

/* A scalar exponent of 2 or 3 is what models hold most; others go through libm. */
static void sbit__binary_pow_f32(const sbit_kernels *kernels, int64_t n, const float *a,
                                 int64_t step_a, const float *b, int64_t step_b, float *y)
{
    if (step_b == 0 && step_a == 1 && b[0] == 2.0f) {
        kernels->f32_binary(SBIT__BINARY_MUL, n, a, 1, a, 1, y);
        return;
    }
    if (step_b == 0 && step_a == 1 && b[0] == 3.0f) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = a[i] * a[i] * a[i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = powf(a[i * step_a], b[i * step_b]);
    }
}

static void sbit__binary_f32(const sbit_kernels *kernels, sbit__binary_op op, int64_t n,
                             const float *a, int64_t step_a, const float *b, int64_t step_b,
                             float *y)
{
    if ((int)op < (int)SBIT__BINARY_COUNT) {
        kernels->f32_binary((sbit__binary)op, n, a, step_a, b, step_b, y);
        return;
    }
    switch ((int)op) {
    case SBIT__OP_POW:
        sbit__binary_pow_f32(kernels, n, a, step_a, b, step_b, y);
        break;
        SBIT__BINARY_LOOP(SBIT__OP_MOD, float, (float)sbit__binary_floor_mod((double)x, (double)z))
        SBIT__BINARY_LOOP(SBIT__OP_FMOD, float, fmodf(x, z))
        SBIT__BINARY_LOOP(SBIT__OP_PRELU, float, x < 0.0f ? x * z : x)
    default:
        break;
    }
}

/* Integer power, wrapping; a negative exponent truncates 1 / x^-z. */
static uint64_t sbit__binary_pow_u64(uint64_t x, uint64_t z)
{
    uint64_t result = 1;
    for (; z != 0; z >>= 1) {
        result *= (z & 1u) != 0 ? x : 1u;
        x *= x;
    }
    return result;
}

static int64_t sbit__binary_pow_i64(int64_t x, int64_t z)
{
    if (z < 0) {
        return x == 1 ? 1 : x == -1 ? ((z & 1) != 0 ? -1 : 1) : 0;
    }
    return (int64_t)sbit__binary_pow_u64((uint64_t)x, (uint64_t)z);
}

static int64_t sbit__binary_div_i64(int64_t x, int64_t z)
{
    return z == 0 ? 0 : z == -1 ? (int64_t)(0u - (uint64_t)x) : x / z;
}

static int64_t sbit__binary_rest_i64(int64_t x, int64_t z, bool floored)
{
    const int64_t rest = z == 0 || z == -1 ? 0 : x % z;
    return floored && rest != 0 && (rest < 0) != (z < 0) ? rest + z : rest;
}

/* The bits of the narrow type decide what is shifted out; y < 0 or too large leaves the sign. */
static int64_t sbit__binary_shift_right_i64(int64_t x, int64_t z)
{
    if (z < 0 || z > 63) {
        return x < 0 ? -1 : 0;
    }
    return x < 0 ? ~(int64_t)(~(uint64_t)x >> z) : (int64_t)((uint64_t)x >> z);
}

static void sbit__binary_i64(sbit__binary_op op, int64_t n, const int64_t *a, int64_t step_a,
                             const int64_t *b, int64_t step_b, int64_t *y)
{
    switch ((int)op) {
        SBIT__BINARY_LOOP(SBIT__OP_ADD, int64_t, (int64_t)((uint64_t)x + (uint64_t)z))
        SBIT__BINARY_LOOP(SBIT__OP_SUB, int64_t, (int64_t)((uint64_t)x - (uint64_t)z))
        SBIT__BINARY_LOOP(SBIT__OP_MUL, int64_t, (int64_t)((uint64_t)x * (uint64_t)z))
        SBIT__BINARY_LOOP(SBIT__OP_DIV, int64_t, sbit__binary_div_i64(x, z))
        SBIT__BINARY_LOOP(SBIT__OP_MAX, int64_t, x > z ? x : z)
        SBIT__BINARY_LOOP(SBIT__OP_MIN, int64_t, x < z ? x : z)
        SBIT__BINARY_LOOP(SBIT__OP_POW, int64_t, sbit__binary_pow_i64(x, z))
        SBIT__BINARY_LOOP(SBIT__OP_MOD, int64_t, sbit__binary_rest_i64(x, z, true))
        SBIT__BINARY_LOOP(SBIT__OP_FMOD, int64_t, sbit__binary_rest_i64(x, z, false))
        SBIT__BINARY_LOOP(SBIT__OP_PRELU, int64_t, x < 0 ? (int64_t)((uint64_t)x * (uint64_t)z) : x)
        SBIT__BINARY_LOOP(SBIT__OP_AND, int64_t, x & z)
        SBIT__BINARY_LOOP(SBIT__OP_OR, int64_t, x | z)
        SBIT__BINARY_LOOP(SBIT__OP_XOR, int64_t, x ^ z)
        SBIT__BINARY_LOOP(SBIT__OP_SHIFT_LEFT, int64_t,
                          z < 0 || z > 63 ? 0 : (int64_t)((uint64_t)x << z))
        SBIT__BINARY_LOOP(SBIT__OP_SHIFT_RIGHT, int64_t, sbit__binary_shift_right_i64(x, z))
    default:
        break;
    }
}

static void sbit__binary_u64(sbit__binary_op op, int64_t n, const uint64_t *a, int64_t step_a,
                             const uint64_t *b, int64_t step_b, uint64_t *y)
{
    switch ((int)op) {
        SBIT__BINARY_LOOP(SBIT__OP_ADD, uint64_t, x + z)
        SBIT__BINARY_LOOP(SBIT__OP_SUB, uint64_t, x - z)
        SBIT__BINARY_LOOP(SBIT__OP_MUL, uint64_t, x * z)
        SBIT__BINARY_LOOP(SBIT__OP_DIV, uint64_t, z == 0 ? 0 : x / z)
        SBIT__BINARY_LOOP(SBIT__OP_MAX, uint64_t, x > z ? x : z)
        SBIT__BINARY_LOOP(SBIT__OP_MIN, uint64_t, x < z ? x : z)
        SBIT__BINARY_LOOP(SBIT__OP_POW, uint64_t, sbit__binary_pow_u64(x, z))
        SBIT__BINARY_LOOP(SBIT__OP_MOD, uint64_t, z == 0 ? 0 : x % z)
        SBIT__BINARY_LOOP(SBIT__OP_FMOD, uint64_t, z == 0 ? 0 : x % z)
    case SBIT__OP_PRELU: /* never negative */
        for (int64_t i = 0; i < n; i++) {
            y[i] = a[i * step_a];
        }
        break;
        SBIT__BINARY_LOOP(SBIT__OP_AND, uint64_t, x & z)
        SBIT__BINARY_LOOP(SBIT__OP_OR, uint64_t, x | z)
        SBIT__BINARY_LOOP(SBIT__OP_XOR, uint64_t, x ^ z)
        SBIT__BINARY_LOOP(SBIT__OP_SHIFT_LEFT, uint64_t, z > 63 ? 0 : x << z)
        SBIT__BINARY_LOOP(SBIT__OP_SHIFT_RIGHT, uint64_t, z > 63 ? 0 : x >> z)
    default:
        break;
    }
}
#undef SBIT__BINARY_LOOP

static void sbit__binary_strings(int64_t n, const sbit_str *a, int64_t step_a, const sbit_str *b,
                                 int64_t step_b, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = sbit__str_eq(a[i * step_a], b[i * step_b]);
    }
}

/* n results of class `cls` (SBIT_F32, SBIT_F64, SBIT_I64, SBIT_U64, SBIT_STRING); comparisons
 * write bool. */
static void sbit__binary_apply(const sbit_kernels *kernels, sbit__binary_op op, sbit_dtype cls,
                               int64_t n, const void *a, int64_t step_a, const void *b,
                               int64_t step_b, void *y)
{
    const bool compares = op >= SBIT__OP_EQUAL;
    if (cls == SBIT_F32 && compares) {
        sbit__binary_compare_f32(op, n, (const float *)a, step_a, (const float *)b, step_b,
                                 (uint8_t *)y);
    } else if (cls == SBIT_F32) {
        sbit__binary_f32(kernels, op, n, (const float *)a, step_a, (const float *)b, step_b,
                         (float *)y);
    } else if (cls == SBIT_F64 && compares) {
        sbit__binary_compare_f64(op, n, (const double *)a, step_a, (const double *)b, step_b,
                                 (uint8_t *)y);
    } else if (cls == SBIT_F64) {
        sbit__binary_f64(op, n, (const double *)a, step_a, (const double *)b, step_b, (double *)y);
    } else if (cls == SBIT_I64 && compares) {
        sbit__binary_compare_i64(op, n, (const int64_t *)a, step_a, (const int64_t *)b, step_b,
                                 (uint8_t *)y);
    } else if (cls == SBIT_I64) {
        sbit__binary_i64(op, n, (const int64_t *)a, step_a, (const int64_t *)b, step_b,
                         (int64_t *)y);
    } else if (cls == SBIT_U64 && compares) {
        sbit__binary_compare_u64(op, n, (const uint64_t *)a, step_a, (const uint64_t *)b, step_b,
                                 (uint8_t *)y);
    } else if (cls == SBIT_U64) {
        sbit__binary_u64(op, n, (const uint64_t *)a, step_a, (const uint64_t *)b, step_b,
                         (uint64_t *)y);
    } else {
        sbit__binary_strings(n, (const sbit_str *)a, step_a, (const sbit_str *)b, step_b,
                             (uint8_t *)y);
    }
}

static sbit_dtype sbit__binary_class(sbit_dtype a, sbit_dtype b)
{
    const uint32_t type = SBIT_T(a);
    if (a == SBIT_STRING || a == SBIT_F64) {
        return a;
    }
    if ((type & SBIT_T_FLOATS) != 0) {
        return SBIT_F32;
    }
    if ((SBIT_T(b) & SBIT_T_FLOATS) != 0) { /* Pow of an integer by a float */
        return SBIT_F64;
    }
    return (type & (SBIT_T_UNSIGNED | SBIT_T(SBIT_BOOL))) != 0 ? SBIT_U64 : SBIT_I64;
}

/* >>rows of a pair */

typedef struct sbit__binary_task {
    const sbit_kernels *kernels;
    sbit__binary_op op;
    sbit_dtype cls, a_dtype, b_dtype, y_dtype;
    const void *a, *b;
    void *y;
    sbit__loop loop; /* operands a, b, y */
    int64_t blocks;  /* pieces that a row is cut into */
} sbit__binary_task;

/* `n` (at most SBIT__BINARY_CHUNK unless it advances over data of its class) elements as `cls`. */
static const void *sbit__binary_load(sbit_dtype dtype, const void *data, int64_t at, int64_t step,
                                     int64_t n, sbit_dtype cls, void *chunk)
{
    const void *from = sbit__elem_at_const(dtype, data, at);
    if (dtype == cls) {
        return from;
    }
    sbit__convert(dtype, from, cls, chunk, step == 0 ? 1 : n);
    return chunk;
}

static void sbit__binary_row(const sbit__binary_task *task, int64_t a, int64_t step_a, int64_t b,
                             int64_t step_b, int64_t y, int64_t n)
{
    double chunks[3][SBIT__BINARY_CHUNK]; /* 8 bytes an element serve every class */
    const bool compares = task->op >= SBIT__OP_EQUAL;
    const bool direct = task->a_dtype == task->cls && task->b_dtype == task->cls &&
                        (compares || task->y_dtype == task->cls);
    const int64_t most = direct ? n : SBIT__BINARY_CHUNK;
    for (int64_t at = 0; at < n; at += most) {
        const int64_t m = n - at < most ? n - at : most;
        const void *pa = sbit__binary_load(task->a_dtype, task->a, a + at * step_a, step_a, m,
                                           task->cls, chunks[0]);
        const void *pb = sbit__binary_load(task->b_dtype, task->b, b + at * step_b, step_b, m,
                                           task->cls, chunks[1]);
        void *py = sbit__elem_at(task->y_dtype, task->y, y + at);
        if (compares || task->y_dtype == task->cls) {
            sbit__binary_apply(task->kernels, task->op, task->cls, m, pa, step_a, pb, step_b, py);
            continue;
        }
        sbit__binary_apply(task->kernels, task->op, task->cls, m, pa, step_a, pb, step_b,
                           chunks[2]);
        sbit__convert(task->cls, chunks[2], task->y_dtype, py, m);
    }
}

static void sbit__binary_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__binary_task *task = (const sbit__binary_task *)data;
    const sbit__loop *loop = &task->loop;
    const int64_t step_a = loop->strides[0][loop->rank - 1];
    const int64_t step_b = loop->strides[1][loop->rank - 1];
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = (i % task->blocks) * SBIT__BLOCK;
        const int64_t left = loop->inner - at;
        int64_t offsets[SBIT__LOOP_OPERANDS];
        sbit__loop_row(loop, i / task->blocks, offsets);
        sbit__binary_row(task, offsets[0] + at * step_a, step_a, offsets[1] + at * step_b, step_b,
                         offsets[2] + at, left < SBIT__BLOCK ? left : SBIT__BLOCK);
    }
}

/* y = a op b, with b's dims beginning at dim `align` of y's (-1: right-aligned). */
static sbit_status sbit__binary_pair(const sbit_op_call *call, sbit__binary_op op,
                                     const sbit_tensor *a, const sbit_tensor *b, int32_t align,
                                     sbit_tensor *y, sbit_error *error)
{
    sbit__binary_task task;
    int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK];
    memset(strides, 0, sizeof strides);
    SBIT__TRY(sbit__op_strides(call, a, -1, y->rank, y->dims, strides[0], error));
    SBIT__TRY(sbit__op_strides(call, b, align, y->rank, y->dims, strides[1], error));
    sbit__tensor_strides(y, strides[2]);
    if (sbit_tensor_count(y) == 0) {
        return SBIT_OK;
    }
    sbit__loop_init(&task.loop, y->rank, y->dims, 3, (const int64_t(*)[SBIT_MAX_RANK])strides);
    task.kernels = call->kernels;
    task.op = op;
    task.cls = sbit__binary_class(a->dtype, b->dtype);
    task.a_dtype = a->dtype;
    task.b_dtype = b->dtype;
    task.y_dtype = y->dtype;
    task.a = a->data;
    task.b = b->data;
    task.y = y->data;
    task.blocks = (task.loop.inner + SBIT__BLOCK - 1) / SBIT__BLOCK;
    sbit__parallel_range(call->ctx, task.loop.outer * task.blocks,
                         1 + 4 * SBIT__BLOCK /
                                 (task.loop.inner < SBIT__BLOCK ? task.loop.inner : SBIT__BLOCK),
                         sbit__binary_range, &task);
    return SBIT_OK;
}

/* >>symbolic elements */

static sbit_dim sbit__binary_elem(sbit__binary_op op, sbit_dim a, sbit_dim b)
{
    const bool known = sbit__dim_known(a) && sbit__dim_known(b);
    switch ((int)op) {
    case SBIT__OP_ADD:
        return sbit__dim_add(a, b);
    case SBIT__OP_SUB:
        return sbit__dim_sub(a, b);
    case SBIT__OP_MUL:
        return sbit__dim_mul(a, b);
    case SBIT__OP_DIV:
        return sbit__dim_div(a, b);
    case SBIT__OP_EQUAL:
        if (sbit__dim_equal(a, b)) {
            return sbit__dim(1);
        }
        /* a symbol is a dimension, so it is never negative */
        if (known || (sbit__dim_known(a) && a.value < 0 && b.symbol != SBIT_SYMBOL_ANY) ||
            (sbit__dim_known(b) && b.value < 0 && a.symbol != SBIT_SYMBOL_ANY)) {
            return sbit__dim(0);
        }
        return sbit__dim_any();
    default:
        break;
    }
    if (known) {
        int64_t y = 0;
        uint8_t truth = 0;
        if (op >= SBIT__OP_EQUAL) {
            sbit__binary_compare_i64(op, 1, &a.value, 0, &b.value, 0, &truth);
            return sbit__dim(truth);
        }
        sbit__binary_i64(op, 1, &a.value, 0, &b.value, 0, &y);
        return sbit__dim(y);
    }
    if ((op == SBIT__OP_MAX || op == SBIT__OP_MIN) && sbit__dim_equal(a, b)) {
        return a;
    }
    return sbit__dim_any();
}

/* States the elements of output 0 if those of inputs 0 and `other` are followed. */
static void sbit__binary_elems(const sbit_op_call *call, sbit__binary_op op)
{
    sbit_dim a[SBIT__ELEMS_MAX];
    sbit__elems b;
    int64_t n = 0;
    if ((SBIT_T(sbit__in_dtype(call, 0)) &
         (SBIT_T(SBIT_I64) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_BOOL))) == 0 ||
        call->out_type[0] == NULL || call->out_type[0]->rank < 0 || call->out_type[0]->rank > 1 ||
        !sbit__op_elems(call, 0, a, SBIT__ELEMS_MAX, &n)) {
        return;
    }
    for (int32_t k = 1; k < call->input_count; k++) {
        if (!sbit__op_elems_view(call, k, &b) || b.count > SBIT__ELEMS_MAX ||
            (n != b.count && n != 1 && b.count != 1)) {
            return;
        }
        for (; n < b.count; n++) {
            a[n] = a[0];
        }
        for (int64_t i = 0; i < n; i++) {
            a[i] = sbit__binary_elem(op, a[i], sbit__elems_at(&b, b.count == 1 ? 0 : i));
        }
    }
    sbit__op_set_elems(call, 0, a, n);
}

/* >>two inputs */

/* Before opset 7: input 1 is broadcast only with broadcast=1, its dims starting at `axis`. */
static sbit_status sbit__binary_old_align(const sbit_op_call *call, int32_t rank_a, int32_t rank_b,
                                          int32_t *align, sbit_error *error)
{
    const int64_t axis = sbit_node_int(call->node, "axis", INT64_MAX);
    *align = -1;
    if (axis == INT64_MAX || sbit_node_int(call->node, "broadcast", 0) == 0 || rank_b == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, axis, rank_a, align, error));
    if (*align + rank_b > rank_a) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "input 1 has rank %d and does not fit behind axis %lld", (int)rank_b,
                            (long long)axis);
    }
    return SBIT_OK;
}

static bool sbit__binary_is_old(const sbit_op_call *call)
{
    return call->row->since_version < 7;
}

static sbit_status sbit__binary_infer_any(const sbit_op_call *call, sbit__binary_op op,
                                          bool same_types, sbit_error *error)
{
    const sbit_dtype in = sbit__in_dtype(call, 0);
    const sbit_dtype dtype = op >= SBIT__OP_EQUAL ? SBIT_BOOL : in;
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    if (same_types) {
        SBIT__TRY(sbit__op_one_dtype(call, 0, 1, error));
    }
    out = sbit__op_out(call, 0, dtype, -1);
    if (out == NULL) {
        return SBIT_OK;
    }
    if (sbit__binary_is_old(call) || op == SBIT__OP_PRELU) {
        out->rank = call->in_type[0]->rank;
        memcpy(out->dims, call->in_type[0]->dims, sizeof out->dims);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_broadcast(call, call->in_type, 2, out, error));
    sbit__binary_elems(call, op);
    return SBIT_OK;
}

static sbit_status sbit__binary_run_any(const sbit_op_call *call, sbit__binary_op op,
                                        sbit_error *error)
{
    const sbit_tensor *a = call->in[0], *b = call->in[1];
    int32_t align = -1;
    if (call->out[0] == NULL) {
        return SBIT_OK;
    }
    if (sbit__binary_is_old(call)) {
        SBIT__TRY(sbit__binary_old_align(call, a->rank, b->rank, &align, error));
    }
    return sbit__binary_pair(call, op, a, b, align, call->out[0], error);
}

#define SBIT__BINARY_DEFINE(name, op)                                                              \
    static sbit_status sbit__binary_##name##_infer(const sbit_op_call *call, sbit_error *error)    \
    {                                                                                              \
        return sbit__binary_infer_any(call, op, true, error);                                      \
    }                                                                                              \
    static sbit_status sbit__binary_##name##_run(const sbit_op_call *call, sbit_error *error)      \
    {                                                                                              \
        return sbit__binary_run_any(call, op, error);                                              \
    }
SBIT__BINARY_DEFINE(add, SBIT__OP_ADD)
SBIT__BINARY_DEFINE(sub, SBIT__OP_SUB)
SBIT__BINARY_DEFINE(mul, SBIT__OP_MUL)
SBIT__BINARY_DEFINE(div, SBIT__OP_DIV)
SBIT__BINARY_DEFINE(bit_and, SBIT__OP_AND)
SBIT__BINARY_DEFINE(bit_or, SBIT__OP_OR)
SBIT__BINARY_DEFINE(bit_xor, SBIT__OP_XOR)
SBIT__BINARY_DEFINE(equal, SBIT__OP_EQUAL)
SBIT__BINARY_DEFINE(less, SBIT__OP_LESS)
SBIT__BINARY_DEFINE(less_equal, SBIT__OP_LESS_EQUAL)
SBIT__BINARY_DEFINE(greater, SBIT__OP_GREATER)
SBIT__BINARY_DEFINE(greater_equal, SBIT__OP_GREATER_EQUAL)
#undef SBIT__BINARY_DEFINE

static sbit_status sbit__binary_pow_infer(const sbit_op_call *call, sbit_error *error)
{
    /* Pow-12: the exponent has a type of its own */
    return sbit__binary_infer_any(call, SBIT__OP_POW, call->row->since_version < 12, error);
}

static sbit_status sbit__binary_pow_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__binary_run_any(call, SBIT__OP_POW, error);
}

static sbit__binary_op sbit__binary_mod_op(const sbit_op_call *call)
{
    return sbit_node_int(call->node, "fmod", 0) != 0 ? SBIT__OP_FMOD : SBIT__OP_MOD;
}

static sbit_status sbit__binary_mod_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__binary_infer_any(call, sbit__binary_mod_op(call), true, error);
}

static sbit_status sbit__binary_mod_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__binary_run_any(call, sbit__binary_mod_op(call), error);
}

static sbit_status sbit__binary_shift_op(const sbit_op_call *call, sbit__binary_op *op,
                                         sbit_error *error)
{
    static const char *const directions[] = {"LEFT", "RIGHT"};
    int32_t direction = 0;
    SBIT__TRY(sbit__op_word(call, "direction", directions, 2, &direction, error));
    *op = direction == 0 ? SBIT__OP_SHIFT_LEFT : SBIT__OP_SHIFT_RIGHT;
    return SBIT_OK;
}

static sbit_status sbit__binary_shift_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__binary_op op = SBIT__OP_SHIFT_LEFT;
    SBIT__TRY(sbit__binary_shift_op(call, &op, error));
    return sbit__binary_infer_any(call, op, true, error);
}

static sbit_status sbit__binary_shift_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__binary_op op = SBIT__OP_SHIFT_LEFT;
    SBIT__TRY(sbit__binary_shift_op(call, &op, error));
    return sbit__binary_run_any(call, op, error);
}

static sbit_status sbit__binary_prelu_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__binary_infer_any(call, SBIT__OP_PRELU, true, error);
}

/* The slope broadcasts to x only. Before opset 7 a slope [C] belonged to axis 1. */
static sbit_status sbit__binary_prelu_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *slope = call->in[1];
    const bool channels = sbit__binary_is_old(call) && slope->rank == 1 && call->in[0]->rank > 1;
    if (call->out[0] == NULL) {
        return SBIT_OK;
    }
    return sbit__binary_pair(call, SBIT__OP_PRELU, call->in[0], slope, channels ? 1 : -1,
                             call->out[0], error);
}

/* >>variadic */

static sbit_status sbit__binary_variadic_infer(const sbit_op_call *call, sbit__binary_op op,
                                               sbit_error *error)
{
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 1, INT32_MAX, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        if (call->in_type[i] == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
    }
    SBIT__TRY(sbit__op_one_dtype(call, 0, call->input_count - 1, error));
    out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), -1);
    if (out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_broadcast(call, call->in_type, call->input_count, out, error));
    if (op != SBIT__OP_ADD) {
        sbit__binary_elems(call, op);
    }
    return SBIT_OK;
}

/* A lone input is broadcast to y by itself: op(x, x) would be another value for a sum. */
static sbit_status sbit__binary_variadic_run(const sbit_op_call *call, sbit__binary_op op,
                                             sbit_error *error)
{
    sbit_tensor *y = call->out[0];
    if (y == NULL) {
        return SBIT_OK;
    }
    if (call->input_count == 1) {
        sbit__elem_copy_all(call->in[0], y);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__binary_pair(call, op, call->in[0], call->in[1], -1, y, error));
    for (int32_t i = 2; i < call->input_count; i++) {
        SBIT__TRY(sbit__binary_pair(call, op, y, call->in[i], -1, y, error));
    }
    return SBIT_OK;
}

#define SBIT__BINARY_VARIADIC(name, op)                                                            \
    static sbit_status sbit__binary_##name##_infer(const sbit_op_call *call, sbit_error *error)    \
    {                                                                                              \
        return sbit__binary_variadic_infer(call, op, error);                                       \
    }                                                                                              \
    static sbit_status sbit__binary_##name##_run(const sbit_op_call *call, sbit_error *error)      \
    {                                                                                              \
        return sbit__binary_variadic_run(call, op, error);                                         \
    }
SBIT__BINARY_VARIADIC(sum, SBIT__OP_ADD)
SBIT__BINARY_VARIADIC(max, SBIT__OP_MAX)
SBIT__BINARY_VARIADIC(min, SBIT__OP_MIN)
#undef SBIT__BINARY_VARIADIC

static sbit_status sbit__binary_mean_run(const sbit_op_call *call, sbit_error *error)
{
    float single = (float)call->input_count;
    double wide = (double)call->input_count;
    sbit_tensor count;
    sbit_tensor *y = call->out[0];
    if (y == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__binary_variadic_run(call, SBIT__OP_ADD, error));
    memset(&count, 0, sizeof count);
    count.dtype = y->dtype == SBIT_F64 ? SBIT_F64 : SBIT_F32; /* computed in float32, all others */
    count.data = y->dtype == SBIT_F64 ? (void *)&wide : (void *)&single;
    return sbit__binary_pair(call, SBIT__OP_DIV, y, &count, -1, y, error);
}

/* >>Where */

static sbit_status sbit__where_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim made[SBIT__ELEMS_MAX];
    sbit__elems c, x, z;
    int64_t n = 0;
    sbit_dtype dtype = SBIT_UNDEFINED;
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    SBIT__TRY(sbit__op_one_dtype(call, 1, 2, error));
    dtype = sbit__in_dtype(call, 1);
    dtype = dtype == SBIT_UNDEFINED ? sbit__in_dtype(call, 2) : dtype;
    out = sbit__op_out(call, 0, dtype, -1);
    if (out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_broadcast(call, call->in_type, 3, out, error));
    if (out->rank < 0 || out->rank > 1 || !sbit__op_elems_view(call, 0, &c) ||
        !sbit__op_elems_view(call, 1, &x) || !sbit__op_elems_view(call, 2, &z)) {
        return SBIT_OK;
    }
    n = c.count > x.count ? c.count : x.count;
    n = z.count > n ? z.count : n;
    if ((c.count != n && c.count != 1) || (x.count != n && x.count != 1) ||
        (z.count != n && z.count != 1) || n > SBIT__ELEMS_MAX) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const sbit_dim cond = sbit__elems_at(&c, c.count == 1 ? 0 : i);
        const sbit_dim then = sbit__elems_at(&x, x.count == 1 ? 0 : i);
        const sbit_dim other = sbit__elems_at(&z, z.count == 1 ? 0 : i);
        const bool same = sbit__dim_equal(then, other);
        made[i] = same                     ? then
                  : !sbit__dim_known(cond) ? sbit__dim_any()
                  : cond.value != 0        ? then
                                           : other;
    }
    sbit__op_set_elems(call, 0, made, n);
    return SBIT_OK;
}

typedef struct sbit__where_task {
    sbit_dtype dtype;
    const uint8_t *cond;
    const void *x, *z;
    void *y;
    sbit__loop loop; /* cond, x, z, y */
} sbit__where_task;

#define SBIT__WHERE_LOOP(type)                                                                     \
    {                                                                                              \
        const type *x = (const type *)task->x + at[1], *z = (const type *)task->z + at[2];         \
        type *y = (type *)task->y + at[3];                                                         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            y[i] = cond[i * sc] != 0 ? x[i * sx] : z[i * sz];                                      \
        }                                                                                          \
    }

static void sbit__where_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__where_task *task = (const sbit__where_task *)data;
    const int32_t last = task->loop.rank - 1;
    const int64_t n = task->loop.inner, sc = task->loop.strides[0][last];
    const int64_t sx = task->loop.strides[1][last], sz = task->loop.strides[2][last];
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        int64_t at[SBIT__LOOP_OPERANDS];
        sbit__loop_row(&task->loop, row, at);
        const uint8_t *cond = task->cond + at[0];
        switch (task->dtype == SBIT_C64 ? 0 : sbit__elem_bytes(task->dtype)) { /* C64: align 4 */
        case 1:
            SBIT__WHERE_LOOP(uint8_t)
            break;
        case 2:
            SBIT__WHERE_LOOP(uint16_t)
            break;
        case 4:
            SBIT__WHERE_LOOP(uint32_t)
            break;
        case 8:
            SBIT__WHERE_LOOP(uint64_t)
            break;
        default:
            for (int64_t i = 0; i < n; i++) {
                const bool yes = cond[i * sc] != 0;
                sbit__elem_copy(task->dtype, task->y, at[3] + i, yes ? task->x : task->z,
                                yes ? at[1] + i * sx : at[2] + i * sz, 1);
            }
            break;
        }
    }
}
#undef SBIT__WHERE_LOOP

static sbit_status sbit__where_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__where_task task;
    int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK];
    sbit_tensor *y = call->out[0];
    if (y == NULL) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < 3; i++) {
        SBIT__TRY(sbit__op_strides(call, call->in[i], -1, y->rank, y->dims, strides[i], error));
    }
    sbit__tensor_strides(y, strides[3]);
    if (sbit_tensor_count(y) == 0) {
        return SBIT_OK;
    }
    sbit__loop_init(&task.loop, y->rank, y->dims, 4, (const int64_t(*)[SBIT_MAX_RANK])strides);
    task.dtype = y->dtype;
    task.cond = (const uint8_t *)call->in[0]->data;
    task.x = call->in[1]->data;
    task.z = call->in[2]->data;
    task.y = y->data;
    sbit__parallel_range(call->ctx, task.loop.outer, 1 + 4 * SBIT__BLOCK / task.loop.inner,
                         sbit__where_range, &task);
    return SBIT_OK;
}

/* >>Clip */

static sbit_status sbit__clip_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, call->row->since_version < 11 ? 1 : 3, error));
    SBIT__TRY(sbit__op_one_dtype(call, 0, 2, error));
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

typedef struct sbit__clip_task {
    const sbit_kernels *kernels;
    const sbit_tensor *x;
    sbit_tensor *y;
    bool has_lo, has_hi;
    sbit_tensor lo, hi; /* scalars of x's type, or float32 */
    sbit__epilogue clamp;
} sbit__clip_task;

/* max with lo, then min with hi: hi wins when the limits cross. */
static void sbit__clip_block(void *data, int64_t begin, int64_t end)
{
    const sbit__clip_task *task = (const sbit__clip_task *)data;
    const sbit_dtype dtype = task->x->dtype;
    if (dtype == SBIT_F32) {
        const float *x = (const float *)task->x->data + begin;
        float *y = (float *)task->y->data + begin;
        if (x != y) {
            memcpy(y, x, (size_t)(end - begin) * sizeof *y);
        }
        task->kernels->f32_activate(end - begin, y, &task->clamp);
        return;
    }
    sbit__binary_task pair;
    pair.kernels = task->kernels;
    pair.a_dtype = pair.y_dtype = dtype;
    pair.a = task->x->data;
    pair.y = task->y->data;
    if (!task->has_lo && !task->has_hi && pair.a != pair.y) {
        sbit__elem_copy(dtype, pair.y, begin, pair.a, begin, end - begin);
    }
    for (int pass = 0; pass < 2; pass++) {
        const sbit_tensor *limit = pass == 0 ? &task->lo : &task->hi;
        if (pass == 0 ? !task->has_lo : !task->has_hi) {
            continue;
        }
        pair.op = pass == 0 ? SBIT__OP_MAX : SBIT__OP_MIN;
        pair.b_dtype = limit->dtype;
        pair.b = limit->data;
        pair.cls = sbit__binary_class(dtype, limit->dtype);
        sbit__binary_row(&pair, begin, 1, 0, 0, begin, end - begin);
        pair.a = task->y->data;
    }
}

/* A limit as a scalar of the input's type in `store`: the output may lie where the limit was. */
static sbit_status sbit__clip_limit(const sbit_op_call *call, int32_t input, const char *name,
                                    sbit_tensor *limit, double *store, float *value, bool *has,
                                    sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    const sbit_tensor *tensor = sbit__in(call, input);
    memset(limit, 0, sizeof *limit);
    limit->data = store;
    *has = false;
    if (attr == NULL && call->row->since_version == 6 && call->in[0]->dtype == SBIT_F64) {
        *value = input == 1 ? -FLT_MAX : FLT_MAX; /* the attributes' defaults bound float64 */
        *store = (double)*value;
        limit->dtype = SBIT_F64;
        *has = true;
    } else if (call->row->since_version < 11 && attr != NULL) {
        *value = attr->f;
        limit->dtype = call->in[0]->dtype == SBIT_F64 ? SBIT_F64 : SBIT_F32;
        sbit__convert(SBIT_F32, value, limit->dtype, store, 1);
        *has = true;
    } else if (call->row->since_version >= 11 && tensor != NULL) {
        if (sbit_tensor_count(tensor) != 1) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%s must be a scalar", name);
        }
        limit->dtype = tensor->dtype;
        memcpy(store, tensor->data, sbit__elem_bytes(tensor->dtype));
        *value = (float)sbit__tensor_f64_at(tensor, 0);
        *has = true;
    }
    return SBIT_OK;
}

static sbit_status sbit__clip_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__clip_task task;
    float lo = -INFINITY, hi = INFINITY;
    double store_lo = 0.0, store_hi = 0.0;
    memset(&task, 0, sizeof task);
    if (call->out[0] == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__clip_limit(call, 1, "min", &task.lo, &store_lo, &lo, &task.has_lo, error));
    SBIT__TRY(sbit__clip_limit(call, 2, "max", &task.hi, &store_hi, &hi, &task.has_hi, error));
    task.kernels = call->kernels;
    task.x = call->in[0];
    task.y = call->out[0];
    task.clamp.activation = SBIT__ACT_CLAMP;
    task.clamp.lo = lo < hi ? lo : hi; /* hi wins when they cross */
    task.clamp.hi = hi;
    sbit__parallel_blocks(call->ctx, sbit_tensor_count(task.x), sbit__clip_block, &task);
    return SBIT_OK;
}

/* >>rows */

static const sbit_op_channel sbit__binary_channel = {SBIT_CHANNEL_ELEMENTWISE, ~0u, 0, 0, 0, NULL};
static const sbit_op_channel sbit__clip_channel = {SBIT_CHANNEL_ELEMENTWISE, 1, 0, 0, 0, NULL};
static const sbit_op_quant sbit__binary_quant = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT | SBIT_QUANT_TENSOR_ONLY, 3, -1, -1, -1, 0, 0, NULL, 0.0f,
    0.0f};
static const sbit_op_quant sbit__binary_quant_prelu = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
/* Clip(0, 6) is Sparsebit's QReLU6; generic profiles fold it into the operator before it. */
static const sbit_op_quant sbit__binary_quant_clip = {0, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};

#define SBIT__BINARY_ROW(name, version, types, fn, gradient, quant)                                \
    {                                                                                              \
        "", name, version, types, SBIT_OP_IN_PLACE, 0, sbit__binary_##fn##_infer, NULL,            \
            sbit__binary_##fn##_run, gradient, NULL, quant, &sbit__binary_channel, NULL            \
    }
#define SBIT__BINARY_ARITHMETIC(name, fn, gradient, quant)                                         \
    SBIT__BINARY_ROW(name, 1, SBIT__T_FLOATS1, fn, gradient, quant),                               \
        SBIT__BINARY_ROW(name, 6, SBIT__T_FLOATS1 | SBIT__T_WORDS, fn, gradient, quant),           \
        SBIT__BINARY_ROW(name, 7, SBIT__T_FLOATS1 | SBIT__T_WORDS, fn, gradient, quant),           \
        SBIT__BINARY_ROW(name, 13, SBIT_T_FLOATS | SBIT__T_WORDS, fn, gradient, quant),            \
        SBIT__BINARY_ROW(name, 14, SBIT_T_NUMBERS, fn, gradient, quant)
#define SBIT__BINARY_ORDER(name, fn)                                                               \
    SBIT__BINARY_ROW(name, 1, SBIT__T_FLOATS1, fn, NULL, NULL),                                    \
        SBIT__BINARY_ROW(name, 7, SBIT__T_FLOATS1, fn, NULL, NULL),                                \
        SBIT__BINARY_ROW(name, 9, SBIT__T_NUMBERS1, fn, NULL, NULL),                               \
        SBIT__BINARY_ROW(name, 13, SBIT_T_NUMBERS, fn, NULL, NULL)
#define SBIT__BINARY_LOGIC(name, fn)                                                               \
    SBIT__BINARY_ROW(name, 1, SBIT_T(SBIT_BOOL), fn, NULL, NULL),                                  \
        SBIT__BINARY_ROW(name, 7, SBIT_T(SBIT_BOOL), fn, NULL, NULL)
/* The result is built up in the output, which therefore must not be one of the inputs. */
#define SBIT__BINARY_MANY(name, version, types, infer, run, gradient, quant)                       \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__binary_##infer##_infer, NULL,                        \
            sbit__binary_##run##_run, gradient, NULL, quant, &sbit__binary_channel, NULL           \
    }
#define SBIT__BINARY_SUMS(name, infer, run, gradient, quant)                                       \
    SBIT__BINARY_MANY(name, 1, SBIT__T_FLOATS1, infer, run, gradient, quant),                      \
        SBIT__BINARY_MANY(name, 6, SBIT__T_FLOATS1, infer, run, gradient, quant),                  \
        SBIT__BINARY_MANY(name, 8, SBIT__T_FLOATS1, infer, run, gradient, quant)
#define SBIT__CLIP_ROW(version, types)                                                             \
    {                                                                                              \
        "", "Clip", version, types, SBIT_OP_IN_PLACE, 0, sbit__clip_infer, NULL, sbit__clip_run,   \
            sbit__grad_clip, NULL, &sbit__binary_quant_clip, &sbit__clip_channel, NULL             \
    }
#define SBIT__WHERE_ROW(version)                                                                   \
    {                                                                                              \
        "", "Where", version, SBIT_T(SBIT_BOOL), SBIT_OP_IN_PLACE, 0, sbit__where_infer, NULL,     \
            sbit__where_run, sbit__grad_where, NULL, NULL, &sbit__binary_channel, NULL             \
    }

static const sbit_op_row sbit__binary_rows[] = {
    SBIT__BINARY_ARITHMETIC("Add", add, sbit__grad_add, &sbit__binary_quant),
    SBIT__BINARY_ARITHMETIC("Sub", sub, sbit__grad_sub, &sbit__binary_quant),
    SBIT__BINARY_ARITHMETIC("Mul", mul, sbit__grad_mul, &sbit__binary_quant),
    SBIT__BINARY_ARITHMETIC("Div", div, sbit__grad_div, &sbit__binary_quant),
    SBIT__BINARY_ROW("Pow", 1, SBIT__T_FLOATS1, pow, sbit__grad_pow, NULL),
    SBIT__BINARY_ROW("Pow", 7, SBIT__T_FLOATS1, pow, sbit__grad_pow, NULL),
    SBIT__BINARY_ROW("Pow", 12, SBIT__T_FLOATS1 | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64), pow,
                     sbit__grad_pow, NULL),
    SBIT__BINARY_ROW("Pow", 13, SBIT_T_FLOATS | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64), pow,
                     sbit__grad_pow, NULL),
    SBIT__BINARY_ROW("Pow", 15, SBIT_T_FLOATS | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64), pow,
                     sbit__grad_pow, NULL),
    SBIT__BINARY_ROW("Mod", 10, SBIT__T_NUMBERS1, mod, sbit__grad_mod, NULL),
    SBIT__BINARY_ROW("Mod", 13, SBIT_T_NUMBERS, mod, sbit__grad_mod, NULL),
    SBIT__BINARY_ROW("Mod", 28, SBIT_T_NUMBERS, mod, sbit__grad_mod, NULL),
    SBIT__BINARY_ROW("PRelu", 1, SBIT__T_FLOATS1, prelu, sbit__grad_prelu,
                     &sbit__binary_quant_prelu),
    SBIT__BINARY_ROW("PRelu", 6, SBIT__T_FLOATS1, prelu, sbit__grad_prelu,
                     &sbit__binary_quant_prelu),
    SBIT__BINARY_ROW("PRelu", 7, SBIT__T_FLOATS1, prelu, sbit__grad_prelu,
                     &sbit__binary_quant_prelu),
    SBIT__BINARY_ROW("PRelu", 9, SBIT__T_FLOATS1 | SBIT__T_WORDS, prelu, sbit__grad_prelu,
                     &sbit__binary_quant_prelu),
    SBIT__BINARY_ROW("PRelu", 16, SBIT_T_FLOATS | SBIT__T_WORDS, prelu, sbit__grad_prelu,
                     &sbit__binary_quant_prelu),

    SBIT__BINARY_SUMS("Sum", sum, sum, sbit__grad_add, &sbit__binary_quant),
    SBIT__BINARY_MANY("Sum", 13, SBIT_T_FLOATS, sum, sum, sbit__grad_add, &sbit__binary_quant),
    SBIT__BINARY_SUMS("Mean", sum, mean, sbit__grad_mean, NULL),
    SBIT__BINARY_MANY("Mean", 13, SBIT_T_FLOATS, sum, mean, sbit__grad_mean, NULL),
    SBIT__BINARY_SUMS("Max", max, max, sbit__grad_extreme, NULL),
    SBIT__BINARY_MANY("Max", 12, SBIT__T_NUMBERS1, max, max, sbit__grad_extreme, NULL),
    SBIT__BINARY_MANY("Max", 13, SBIT_T_NUMBERS, max, max, sbit__grad_extreme, NULL),
    SBIT__BINARY_SUMS("Min", min, min, sbit__grad_extreme, NULL),
    SBIT__BINARY_MANY("Min", 12, SBIT__T_NUMBERS1, min, min, sbit__grad_extreme, NULL),
    SBIT__BINARY_MANY("Min", 13, SBIT_T_NUMBERS, min, min, sbit__grad_extreme, NULL),

    SBIT__BINARY_ROW("Equal", 1, SBIT_T(SBIT_BOOL) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64), equal,
                     NULL, NULL),
    SBIT__BINARY_ROW("Equal", 7, SBIT_T(SBIT_BOOL) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64), equal,
                     NULL, NULL),
    SBIT__BINARY_ROW("Equal", 11, SBIT_T(SBIT_BOOL) | SBIT__T_NUMBERS1, equal, NULL, NULL),
    SBIT__BINARY_ROW("Equal", 13, SBIT_T(SBIT_BOOL) | SBIT_T_NUMBERS, equal, NULL, NULL),
    SBIT__BINARY_ROW("Equal", 19, SBIT_T(SBIT_BOOL) | SBIT_T(SBIT_STRING) | SBIT_T_NUMBERS, equal,
                     NULL, NULL),
    SBIT__BINARY_ORDER("Less", less),
    SBIT__BINARY_ORDER("Greater", greater),
    SBIT__BINARY_ROW("LessOrEqual", 12, SBIT__T_NUMBERS1, less_equal, NULL, NULL),
    SBIT__BINARY_ROW("LessOrEqual", 16, SBIT_T_NUMBERS, less_equal, NULL, NULL),
    SBIT__BINARY_ROW("GreaterOrEqual", 12, SBIT__T_NUMBERS1, greater_equal, NULL, NULL),
    SBIT__BINARY_ROW("GreaterOrEqual", 16, SBIT_T_NUMBERS, greater_equal, NULL, NULL),

    SBIT__BINARY_LOGIC("And", bit_and),
    SBIT__BINARY_LOGIC("Or", bit_or),
    SBIT__BINARY_LOGIC("Xor", bit_xor),
    SBIT__BINARY_ROW("BitwiseAnd", 18, SBIT_T_INTS, bit_and, NULL, NULL),
    SBIT__BINARY_ROW("BitwiseOr", 18, SBIT_T_INTS, bit_or, NULL, NULL),
    SBIT__BINARY_ROW("BitwiseXor", 18, SBIT_T_INTS, bit_xor, NULL, NULL),
    SBIT__BINARY_ROW("BitShift", 11, SBIT_T_UNSIGNED, shift, NULL, NULL),
    SBIT__BINARY_ROW("BitShift", 28, SBIT_T_INTS, shift, NULL, NULL),

    SBIT__WHERE_ROW(9),
    SBIT__WHERE_ROW(16),
    SBIT__CLIP_ROW(1, SBIT__T_FLOATS1),
    SBIT__CLIP_ROW(6, SBIT__T_FLOATS1),
    SBIT__CLIP_ROW(11, SBIT__T_FLOATS1),
    SBIT__CLIP_ROW(12, SBIT__T_NUMBERS1),
    SBIT__CLIP_ROW(13, SBIT_T_NUMBERS),
};

#undef SBIT__BINARY_ROW
#undef SBIT__BINARY_ARITHMETIC
#undef SBIT__BINARY_ORDER
#undef SBIT__BINARY_LOGIC
#undef SBIT__BINARY_MANY
#undef SBIT__BINARY_SUMS
#undef SBIT__CLIP_ROW
#undef SBIT__WHERE_ROW
#undef SBIT__BINARY_CHUNK

SBIT__FN const sbit_op_row *sbit__op_rows_binary(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__binary_rows);
    return sbit__binary_rows;
}
