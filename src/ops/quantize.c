/* quantize.c: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear; internal: FakeQuantize, the
 * first two at once with one scale. >>qdq
 *
 * Called by: exec through the rows. Calls: kernels (f32_quantize_*, f32_dequantize_*), convert.
 * Does: 2- to 16-bit integers, float8 and float4 targets; one scale per tensor, per index of an
 * axis, or per block of an axis.
 * Numbers: q = saturate(round_half_even(x / s) + zp), x ~ (q - zp) * s, in float32 with true
 * division whatever the types of x and s (attribute precision=float16 rounds the quotient first);
 * NaN gives zp. The SIMD kernels and the scalar code here give the same bits.
 */
#include "elements_private.h"
#include "window_private.h"

#include <math.h> /* rintf */

/* How scales belong to elements: x is outer x size x inner around the axis. */
typedef struct sbit__qdq_layout {
    int64_t outer, size, inner;
    int64_t block;  /* indices of the axis that share a scale; `size`: one scale per tensor */
    int64_t blocks; /* scales along the axis */
    bool single;    /* one scale in all */
    bool wide;      /* blocked: each of the inner elements has its own scale */
} sbit__qdq_layout;

typedef struct sbit__qdq_task {
    const sbit_kernels *kernels;
    const sbit_tensor *x, *scale, *zero_point; /* zero_point may be NULL */
    sbit_tensor *y;
    sbit__qdq_layout layout;
    bool to_ints, half, saturate;
    int32_t qmin, qmax;
} sbit__qdq_task;

/* >>layout */

static sbit_status sbit__qdq_blocked(const sbit_op_call *call, const sbit_tensor *x,
                                     const sbit_tensor *scale, int32_t axis, int64_t block,
                                     sbit__qdq_layout *layout, sbit_error *error)
{
    const int64_t length = x->dims[axis];
    const int64_t blocks = length / block + (length % block != 0 ? 1 : 0);
    bool fits = scale->rank == x->rank;
    for (int32_t i = 0; fits && i < x->rank; i++) {
        fits = scale->dims[i] == (i == axis ? blocks : x->dims[i]);
    }
    if (!fits) {
        char text[96];
        sbit_tensor_describe(scale, text, sizeof text);
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "scale %s does not fit blocks of %lld along axis %d", text,
                            (long long)block, (int)axis);
    }
    layout->block = block < length ? block : length > 0 ? length : 1; /* block_size has no limit */
    layout->blocks = blocks;
    layout->wide = layout->inner > 1;
    return SBIT_OK;
}

static sbit_status sbit__qdq_layout_of(const sbit_op_call *call, const sbit_tensor *x,
                                       const sbit_tensor *scale, const sbit_tensor *zero_point,
                                       sbit__qdq_layout *layout, sbit_error *error)
{
    const int64_t block = sbit_node_int(call->node, "block_size", 0);
    const int64_t count = sbit_tensor_count(scale);
    int32_t axis = 0;
    memset(layout, 0, sizeof *layout);
    if (zero_point != NULL && sbit_tensor_count(zero_point) != count) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld scales, but %lld zero points",
                            (long long)count, (long long)sbit_tensor_count(zero_point));
    }
    if (block <= 0 && count == 1) {
        layout->single = true;
        layout->outer = layout->blocks = layout->inner = 1;
        layout->size = layout->block = sbit_tensor_count(x);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 1), x->rank, &axis, error));
    layout->outer = sbit__dims_product(x->dims, 0, axis);
    layout->size = x->dims[axis];
    layout->inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    if (block > 0) {
        return sbit__qdq_blocked(call, x, scale, axis, block, layout, error);
    }
    layout->block = 1;
    layout->blocks = layout->size;
    if (scale->rank != 1 || count != layout->size) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld scales for axis %d of size %lld",
                            (long long)count, (int)axis, (long long)layout->size);
    }
    return SBIT_OK;
}

/* >>one run of elements with one scale */

static int32_t sbit__qdq_round(float quotient, int32_t zero_point, int32_t qmin, int32_t qmax)
{
    const float rounded = rintf(quotient);
    if (rounded != rounded) {
        return zero_point < qmin ? qmin : zero_point > qmax ? qmax : zero_point;
    }
    if (rounded >= (float)(qmax - zero_point)) {
        return qmax;
    }
    return rounded <= (float)(qmin - zero_point) ? qmin : (int32_t)rounded + zero_point;
}

static float sbit__qdq_quotient(const sbit__qdq_task *task, float x, float scale)
{
    const float quotient = x / scale;
    return task->half ? sbit_f16_to_f32(sbit_f32_to_f16(quotient)) : quotient;
}

static float sbit__qdq_load(const sbit_tensor *x, int64_t at)
{
    return x->dtype == SBIT_F32 ? ((const float *)x->data)[at] : (float)sbit__tensor_f64_at(x, at);
}

static void sbit__qdq_store_int(sbit_tensor *y, int64_t at, int32_t q)
{
    const int bits = sbit_dtype_bits((int32_t)y->dtype);
    if (bits == 8) {
        ((uint8_t *)y->data)[at] = (uint8_t)q;
    } else if (bits == 16) {
        ((uint16_t *)y->data)[at] = (uint16_t)q;
    } else {
        sbit__packed_set(y->data, at, bits, (uint32_t)q & ((1u << bits) - 1u));
    }
}

#define SBIT__QDQ_CHUNK ((int64_t)256) /* elements at a time */

/* 16 bits: what the kernel that goes back to float makes of quotients is an integer. */
static void sbit__quantize_16(const sbit__qdq_task *task, const float *x, int64_t n, float scale,
                              int32_t zero, uint16_t *y)
{
    float part[SBIT__QDQ_CHUNK];
    for (int64_t at = 0; at < n; at += SBIT__QDQ_CHUNK) {
        const int64_t count = n - at < SBIT__QDQ_CHUNK ? n - at : SBIT__QDQ_CHUNK;
        for (int64_t i = 0; i < count; i++) {
            part[i] = x[at + i] / scale;
        }
        task->kernels->f32_fake_quantize(count, part, 1.0f, zero, task->qmin, task->qmax, part);
        for (int64_t i = 0; i < count; i++) {
            y[at + i] = (uint16_t)((int32_t)part[i] + zero);
        }
    }
}

#undef SBIT__QDQ_CHUNK

static void sbit__dequantize_16(const sbit_tensor *x, int64_t at, int64_t n, float scale,
                                int32_t zero, float *y)
{
    const uint16_t *u = (const uint16_t *)x->data + at;
    const int16_t *s = (const int16_t *)x->data + at;
    for (int64_t i = 0; i < n && x->dtype == SBIT_U16; i++) {
        y[i] = (float)(u[i] - zero) * scale;
    }
    for (int64_t i = 0; i < n && x->dtype == SBIT_I16; i++) {
        y[i] = (float)(s[i] - zero) * scale;
    }
}

static void sbit__quantize_run(const sbit__qdq_task *task, int64_t at, int64_t n, int64_t index)
{
    const float scale = (float)sbit__tensor_f64_at(task->scale, index);
    const sbit_tensor *zp = task->zero_point;
    const sbit_dtype to = task->y->dtype;
    const bool kernel = task->x->dtype == SBIT_F32 && !task->half && n > 1;
    const int32_t zero = zp != NULL && task->to_ints ? (int32_t)sbit__tensor_i64_at(zp, index) : 0;
    if (kernel && to == SBIT_U8) {
        task->kernels->f32_quantize_u8(n, (const float *)task->x->data + at, scale, zero,
                                       task->qmin, task->qmax, (uint8_t *)task->y->data + at);
        return;
    }
    if (kernel && to == SBIT_I8) {
        task->kernels->f32_quantize_s8(n, (const float *)task->x->data + at, scale, zero,
                                       task->qmin, task->qmax, (int8_t *)task->y->data + at);
        return;
    }
    if (kernel && task->to_ints && sbit_dtype_bits((int32_t)to) == 16) {
        sbit__quantize_16(task, (const float *)task->x->data + at, n, scale, zero,
                          (uint16_t *)task->y->data + at);
        return;
    }
    for (int64_t i = at; i < at + n; i++) {
        const float quotient = sbit__qdq_quotient(task, sbit__qdq_load(task->x, i), scale);
        if (task->to_ints) {
            sbit__qdq_store_int(task->y, i,
                                sbit__qdq_round(quotient, zero, task->qmin, task->qmax));
            continue;
        }
        const float shifted =
            zp != NULL ? quotient + (float)sbit__tensor_f64_at(zp, index) : quotient;
        if (sbit_dtype_bits((int32_t)to) < 8) {
            sbit__tensor_set_f64(task->y, i, (double)shifted);
        } else {
            ((uint8_t *)task->y->data)[i] = sbit__f32_to_f8(to, shifted, task->saturate);
        }
    }
}

static void sbit__dequantize_run(const sbit__qdq_task *task, int64_t at, int64_t n, int64_t index)
{
    const float scale = (float)sbit__tensor_f64_at(task->scale, index);
    const sbit_tensor *zp = task->zero_point, *x = task->x;
    const bool kernel = task->y->dtype == SBIT_F32 && n > 1;
    const int64_t zero = zp != NULL && task->to_ints ? sbit__tensor_i64_at(zp, index) : 0;
    if (kernel && x->dtype == SBIT_U8) {
        task->kernels->f32_dequantize_u8(n, (const uint8_t *)x->data + at, scale, (int32_t)zero,
                                         (float *)task->y->data + at);
        return;
    }
    if (kernel && x->dtype == SBIT_I8) {
        task->kernels->f32_dequantize_s8(n, (const int8_t *)x->data + at, scale, (int32_t)zero,
                                         (float *)task->y->data + at);
        return;
    }
    if (kernel && (x->dtype == SBIT_U16 || x->dtype == SBIT_I16)) {
        sbit__dequantize_16(x, at, n, scale, (int32_t)zero, (float *)task->y->data + at);
        return;
    }
    for (int64_t i = at; i < at + n; i++) {
        float value = 0.0f;
        if (task->to_ints) {
            value = (float)(sbit__tensor_i64_at(x, i) - zero);
        } else {
            value = (float)sbit__tensor_f64_at(x, i);
            value -= zp != NULL ? (float)sbit__tensor_f64_at(zp, index) : 0.0f;
        }
        value *= scale;
        sbit__convert(SBIT_F32, &value, task->y->dtype,
                      sbit__elem_at(task->y->dtype, task->y->data, i), 1);
    }
}

/* >>all runs */

typedef void (*sbit__qdq_run_fn)(const sbit__qdq_task *task, int64_t at, int64_t n, int64_t index);

typedef struct sbit__qdq_job {
    const sbit__qdq_task *task;
    sbit__qdq_run_fn run;
} sbit__qdq_job;

static void sbit__qdq_block(void *data, int64_t begin, int64_t end)
{
    const sbit__qdq_job *job = (const sbit__qdq_job *)data;
    job->run(job->task, begin, end - begin, 0);
}

/* Unit i is block i % blocks of the axis, in the outer index i / blocks. */
static void sbit__qdq_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__qdq_job *job = (const sbit__qdq_job *)data;
    const sbit__qdq_layout *layout = &job->task->layout;
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t outer = unit / layout->blocks, b = unit % layout->blocks;
        const int64_t first = b * layout->block, left = layout->size - first;
        const int64_t rows = left < layout->block ? left : layout->block;
        const int64_t at = (outer * layout->size + first) * layout->inner;
        if (!layout->wide) {
            job->run(job->task, at, rows * layout->inner,
                     job->task->scale->rank == 1 && layout->block == 1 ? b : unit);
            continue;
        }
        for (int64_t k = 0; k < rows * layout->inner; k++) {
            job->run(job->task, at + k, 1, unit * layout->inner + k % layout->inner);
        }
    }
}

static void sbit__qdq_all(const sbit_op_call *call, const sbit__qdq_task *task,
                          sbit__qdq_run_fn run)
{
    sbit__qdq_job job;
    const sbit__qdq_layout *layout = &task->layout;
    const int64_t units = layout->outer * layout->blocks;
    const bool packed = sbit_dtype_bits((int32_t)task->y->dtype) < 8;
    job.task = task;
    job.run = run;
    if (sbit_tensor_count(task->x) == 0) {
        return;
    }
    if (layout->single && !packed) {
        sbit__parallel_blocks(call->ctx, layout->size, sbit__qdq_block, &job);
    } else if (layout->single) {
        sbit__qdq_block(&job, 0, layout->size);
    } else if (packed) { /* neighbours share bytes */
        sbit__qdq_range(&job, 0, units, 0);
    } else {
        sbit__parallel_range(call->ctx, units,
                             1 + 2 * SBIT__BLOCK / (layout->block * layout->inner), sbit__qdq_range,
                             &job);
    }
}

/* Both operators, with what `task` says of types. */
static sbit_status sbit__qdq_op(const sbit_op_call *call, sbit__qdq_task *task,
                                sbit__qdq_run_fn run, sbit_error *error)
{
    task->kernels = call->kernels;
    task->x = call->in[0];
    task->scale = call->in[1];
    task->zero_point = sbit__in(call, 2);
    task->y = call->out[0];
    SBIT__TRY(
        sbit__qdq_layout_of(call, task->x, task->scale, task->zero_point, &task->layout, error));
    sbit__qdq_all(call, task, run);
    return SBIT_OK;
}

static bool sbit__qdq_is_int(sbit_dtype dtype)
{
    return (SBIT_T(dtype) & (SBIT_T_INTS | SBIT_T(SBIT_I4) | SBIT_T(SBIT_U4) | SBIT_T(SBIT_I2) |
                             SBIT_T(SBIT_U2))) != 0;
}

/* Integers of a type. */
static void sbit__qdq_bounds(sbit_dtype dtype, int32_t *qmin, int32_t *qmax)
{
    const int bits = sbit_dtype_bits((int32_t)dtype);
    const bool is_signed =
        dtype == SBIT_I4 || dtype == SBIT_I2 || (SBIT_T(dtype) & SBIT_T_SIGNED) != 0;
    *qmin = is_signed ? -(1 << (bits - 1)) : 0;
    *qmax = is_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
}

/* What is known of axis and number of scales, as layout_of will see it. */
static sbit_status sbit__qdq_check(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = call->in_type[0], *scale = call->in_type[1];
    const int64_t block = sbit_node_int(call->node, "block_size", 0);
    const int64_t count = scale->rank >= 0 ? sbit__type_count(scale, 0, scale->rank) : -1;
    int32_t axis = 0;
    if (x->rank < 0 || (block <= 0 && (count < 0 || count == 1))) {
        return SBIT_OK; /* one scale for all has no axis */
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 1), x->rank, &axis, error));
    const sbit_dim length = x->dims[axis];
    if (block <= 0 && (scale->rank != 1 || (sbit__dim_known(length) && length.value != count))) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld scales for axis %d of size %lld",
                            (long long)count, (int)axis, (long long)length.value);
    }
    return SBIT_OK;
}

/* >>QuantizeLinear */

#define SBIT__QDQ_TARGETS                                                                          \
    (SBIT__T_F8 | SBIT_T(SBIT_U8) | SBIT_T(SBIT_I8) | SBIT_T(SBIT_U16) | SBIT_T(SBIT_I16) |        \
     SBIT_T(SBIT_U4) | SBIT_T(SBIT_I4) | SBIT_T(SBIT_U2) | SBIT_T(SBIT_I2) | SBIT_T(SBIT_F4E2M1) | \
     SBIT__T_F6)

/* QuantizeLinear-21: the zero point's type, else output_dtype, else uint8. */
static sbit_status sbit__quantize_target(const sbit_op_call *call, sbit_dtype *to,
                                         sbit_error *error)
{
    const int64_t asked = sbit_node_int(call->node, "output_dtype", 0);
    const sbit_type *zp = sbit__in_type(call, 2);
    *to = zp != NULL                                       ? zp->dtype
          : asked == 0                                     ? SBIT_U8
          : asked > 0 && asked < (int64_t)SBIT_DTYPE_COUNT ? (sbit_dtype)asked
                                                           : SBIT_STRING;
    if (*to != SBIT_UNDEFINED && (SBIT_T(*to) & SBIT__QDQ_TARGETS) == 0) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "quantizing to %s",
                            sbit_dtype_name((int32_t)*to));
    }
    if (zp != NULL && asked != 0 && *to != SBIT_UNDEFINED && (int64_t)*to != asked) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the zero point is %s, but output_dtype is %s",
                            sbit_dtype_name((int32_t)*to), sbit_dtype_name((int32_t)asked));
    }
    return SBIT_OK;
}

static sbit_status sbit__quantize_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dtype to = SBIT_U8;
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    SBIT__TRY(sbit__quantize_target(call, &to, error));
    SBIT__TRY(sbit__qdq_check(call, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = to;
    }
    return SBIT_OK;
}

static sbit_status sbit__quantize_run_op(const sbit_op_call *call, sbit_error *error)
{
    const sbit_dtype to = call->out[0]->dtype;
    sbit__qdq_task task;
    memset(&task, 0, sizeof task);
    task.to_ints = sbit__qdq_is_int(to);
    task.half = sbit_node_int(call->node, "precision", 0) == (int64_t)SBIT_F16;
    task.saturate = sbit_node_int(call->node, "saturate", 1) != 0;
    if (task.to_ints) {
        sbit__qdq_bounds(to, &task.qmin, &task.qmax);
    }
    return sbit__qdq_op(call, &task, sbit__quantize_run, error);
}

/* >>DequantizeLinear */

static sbit_status sbit__dequantize_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t asked = sbit_node_int(call->node, "output_dtype", 0);
    sbit_dtype to = SBIT_F32;
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    to = asked > 0 && asked < (int64_t)SBIT_DTYPE_COUNT ? (sbit_dtype)asked
                                                        : call->in_type[1]->dtype;
    to = to == SBIT_F8E8M0 ? SBIT_F32 : to;
    if (to != SBIT_UNDEFINED && (SBIT_T(to) & SBIT_T_FLOATS) == 0) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "dequantizing to %s",
                            sbit_dtype_name((int32_t)to));
    }
    if (sbit__in_type(call, 2) != NULL && sbit__in_dtype(call, 0) != sbit__in_dtype(call, 2) &&
        sbit__in_dtype(call, 0) != SBIT_UNDEFINED && sbit__in_dtype(call, 2) != SBIT_UNDEFINED) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the zero point is %s, but the data is %s",
                            sbit_dtype_name((int32_t)sbit__in_dtype(call, 2)),
                            sbit_dtype_name((int32_t)sbit__in_dtype(call, 0)));
    }
    SBIT__TRY(sbit__qdq_check(call, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = to;
    }
    return SBIT_OK;
}

static sbit_status sbit__dequantize_run_op(const sbit_op_call *call, sbit_error *error)
{
    sbit__qdq_task task;
    memset(&task, 0, sizeof task);
    task.to_ints = sbit__qdq_is_int(call->in[0]->dtype);
    return sbit__qdq_op(call, &task, sbit__dequantize_run, error);
}

/* >>DynamicQuantizeLinear */

static sbit_status sbit__dynamic_quantize_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = SBIT_U8;
    }
    sbit__op_out(call, 1, SBIT_F32, 0);
    sbit__op_out(call, 2, SBIT_U8, 0);
    return SBIT_OK;
}

static sbit_status sbit__dynamic_quantize_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int64_t n = sbit_tensor_count(x);
    sbit_tensor *y = sbit__out(call, 0), *scale_out = sbit__out(call, 1);
    sbit_tensor *zero_out = sbit__out(call, 2), scale_tensor, zero_tensor;
    float lo = 0.0f, hi = 0.0f, scale = 1.0f;
    uint8_t zero = 0;
    bool finite = true;
    sbit__qdq_task task;
    if (n > 0) {
        call->kernels->f32_minmax(n, (const float *)x->data, &lo, &hi, &finite);
    }
    if (!finite) {
        return sbit_op_fail(call, SBIT_ERR_NUMERIC, error, "the input is not finite");
    }
    lo = lo < 0.0f ? lo : 0.0f;
    hi = hi > 0.0f ? hi : 0.0f;
    scale = hi > lo ? (hi - lo) / 255.0f : 1.0f;
    zero = (uint8_t)sbit__qdq_round((0.0f - lo) / scale, 0, 0, 255);
    if (scale_out != NULL) {
        memcpy(scale_out->data, &scale, sizeof scale);
    }
    if (zero_out != NULL) {
        memcpy(zero_out->data, &zero, sizeof zero);
    }
    if (y == NULL) {
        return SBIT_OK;
    }
    memset(&task, 0, sizeof task);
    memset(&scale_tensor, 0, sizeof scale_tensor);
    scale_tensor.dtype = SBIT_F32;
    zero_tensor = scale_tensor;
    zero_tensor.dtype = SBIT_U8;
    scale_tensor.data = &scale;
    zero_tensor.data = &zero;
    task.kernels = call->kernels;
    task.x = x;
    task.y = y;
    task.scale = &scale_tensor;
    task.zero_point = &zero_tensor;
    task.to_ints = true;
    task.qmax = 255;
    task.layout.single = true;
    task.layout.size = n;
    sbit__qdq_all(call, &task, sbit__quantize_run);
    return SBIT_OK;
}

/* >>FakeQuantize */

static sbit_status sbit__fake_quantize_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t to = sbit_node_int(call->node, "to", 0);
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    if (to <= 0 || to >= (int64_t)SBIT_DTYPE_COUNT || (SBIT_T(to) & SBIT__T_FAKE_QUANTIZE) == 0) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "quantizing to type %lld",
                            (long long)to);
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

typedef struct sbit__fake_task {
    const sbit_kernels *kernels;
    const float *x;
    float *y, scale;
    int32_t zero_point, qmin, qmax;
} sbit__fake_task;

static void sbit__fake_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__fake_task *task = (const sbit__fake_task *)user;
    (void)worker;
    task->kernels->f32_fake_quantize(end - begin, task->x + begin, task->scale, task->zero_point,
                                     task->qmin, task->qmax, task->y + begin);
}

typedef struct sbit__fake_params {
    int32_t qmin, qmax;
} sbit__fake_params;

static sbit_status sbit__fake_quantize_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__fake_params *params = (sbit__fake_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_OUT_OF_MEMORY, error, "out of memory");
    }
    sbit__qdq_bounds((sbit_dtype)sbit_node_int(call->node, "to", 0), &params->qmin, &params->qmax);
    *call->scratch_bytes = 0;
    return SBIT_OK;
}

static sbit_status sbit__fake_quantize_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *scale = call->in[1], *zero_point = sbit__in(call, 2);
    sbit__fake_task task;
    if (scale->dtype != SBIT_F32 || sbit_tensor_count(scale) != 1 ||
        (zero_point != NULL && sbit_tensor_count(zero_point) != 1)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "one float32 scale and zero point");
    }
    memset(&task, 0, sizeof task);
    task.kernels = call->kernels;
    task.x = (const float *)call->in[0]->data;
    task.y = (float *)call->out[0]->data;
    task.scale = ((const float *)scale->data)[0];
    task.zero_point = zero_point != NULL ? (int32_t)sbit__tensor_i64_at(zero_point, 0) : 0;
    task.qmin = ((const sbit__fake_params *)call->params)->qmin;
    task.qmax = ((const sbit__fake_params *)call->params)->qmax;
    sbit__parallel_range(call->ctx, sbit_tensor_count(call->in[0]), SBIT__BLOCK, sbit__fake_range,
                         &task);
    return SBIT_OK;
}

/* >>channels */

/* Scales, and zero points, along an axis belong to its channels. Integers that are constants go
 * nowhere: pruning takes their floats instead (sparse/packed.c). */
static sbit_status sbit__qdq_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *x = call->op->in_type[0];
    const int32_t *channels = NULL, *params = NULL;
    int32_t axis = 0;
    if (call->is_constant(call, 0)) {
        return call->stop(call, "reads constant integers", error);
    }
    if (sbit_node_int(call->op->node, "block_size", 0) != 0) {
        return call->stop(call, "has a scale for each block", error);
    }
    for (int32_t i = 1; i < call->op->input_count && sbit__in_type(call->op, i) != NULL; i++) {
        if (sbit__type_size(call->op->in_type[i]) == 1) {
            continue;
        }
        if (!call->is_constant(call, i)) {
            return call->stop(call, "has scales that are computed", error);
        }
        SBIT__TRY(sbit__op_axis(call->op, sbit_node_int(call->op->node, "axis", 1), x->rank, &axis, error));
        SBIT__TRY(call->labels(call, 0, axis, 1, SBIT_ROLE_PARAM, &channels, error));
        SBIT__TRY(call->labels(call, i, 0, 1, SBIT_ROLE_PARAM, &params, error));
        for (int64_t c = 0; c < x->dims[axis].value; c++) {
            call->join(call, channels[c], params[c]);
        }
    }
    return call->pass(call, 0, "", error);
}

static const sbit_op_channel sbit__qdq_channel = {SBIT_CHANNEL_OWN, 1, 0, 0, 0, sbit__qdq_label};

/* >>rows */

#define SBIT__QDQ_Q(domain, version, types)                                                              \
    {                                                                                              \
        domain, "QuantizeLinear", version, types, 0, 0, sbit__quantize_infer, NULL,                    \
            sbit__quantize_run_op, NULL, NULL, NULL, &sbit__qdq_channel, NULL                      \
    }
#define SBIT__QDQ_DQ(domain, version, types)                                                             \
    {                                                                                              \
        domain, "DequantizeLinear", version, types, 0, 0, sbit__dequantize_infer, NULL,                \
            sbit__dequantize_run_op, NULL, NULL, NULL, &sbit__qdq_channel, NULL                    \
    }
#define SBIT__QDQ_FROM1 (SBIT_T(SBIT_F32) | SBIT_T(SBIT_I32))
#define SBIT__QDQ_FROM19 (SBIT__QDQ_FROM1 | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16))
#define SBIT__QDQ_TO1 (SBIT_T(SBIT_U8) | SBIT_T(SBIT_I8) | SBIT_T(SBIT_I32))
#define SBIT__QDQ_TO19 (SBIT__QDQ_TO1 | SBIT__T_F8)
#define SBIT__QDQ_TO21                                                                             \
    (SBIT__QDQ_TO19 | SBIT_T(SBIT_U16) | SBIT_T(SBIT_I16) | SBIT_T(SBIT_U4) | SBIT_T(SBIT_I4))
#define SBIT__QDQ_TO23 (SBIT__QDQ_TO21 | SBIT_T(SBIT_F4E2M1))
#define SBIT__QDQ_TO25 (SBIT__QDQ_TO23 | SBIT_T(SBIT_U2) | SBIT_T(SBIT_I2))

static const sbit_op_row sbit__qdq_rows[] = {
    SBIT__QDQ_Q("", 10, SBIT__QDQ_FROM1),
    SBIT__QDQ_Q("", 13, SBIT__QDQ_FROM1),
    SBIT__QDQ_Q("", 19, SBIT__QDQ_FROM19),
    SBIT__QDQ_Q("", 21, SBIT__QDQ_FROM19),
    SBIT__QDQ_Q("", 23, SBIT__QDQ_FROM19),
    SBIT__QDQ_Q("", 24, SBIT__QDQ_FROM19),
    SBIT__QDQ_Q("", 25, SBIT__QDQ_FROM19),
    SBIT__QDQ_Q("", 28, SBIT__QDQ_FROM19),
    SBIT__QDQ_DQ("", 10, SBIT__QDQ_TO1),
    SBIT__QDQ_DQ("", 13, SBIT__QDQ_TO1),
    SBIT__QDQ_DQ("", 19, SBIT__QDQ_TO19),
    SBIT__QDQ_DQ("", 21, SBIT__QDQ_TO21),
    SBIT__QDQ_DQ("", 23, SBIT__QDQ_TO23),
    SBIT__QDQ_DQ("", 24, SBIT__QDQ_TO23),
    SBIT__QDQ_DQ("", 25, SBIT__QDQ_TO25),
    SBIT__QDQ_DQ("", 28, SBIT__QDQ_TO25 | SBIT__T_F6),
    SBIT__QDQ_Q("com.microsoft", 1, SBIT__QDQ_FROM19),
    SBIT__QDQ_DQ("com.microsoft", 1, SBIT__QDQ_TO21),
    {"", "DynamicQuantizeLinear", 11, SBIT_T(SBIT_F32), 0, 0, sbit__dynamic_quantize_infer, NULL,
     sbit__dynamic_quantize_run, NULL, NULL, NULL, NULL, NULL},
    {"sbit", "FakeQuantize", 1, SBIT_T(SBIT_F32), SBIT_OP_IN_PLACE, 0, sbit__fake_quantize_infer,
     sbit__fake_quantize_prepare, sbit__fake_quantize_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__QDQ_TARGETS
#undef SBIT__QDQ_Q
#undef SBIT__QDQ_DQ
#undef SBIT__QDQ_FROM1
#undef SBIT__QDQ_FROM19
#undef SBIT__QDQ_TO1
#undef SBIT__QDQ_TO19
#undef SBIT__QDQ_TO21
#undef SBIT__QDQ_TO23
#undef SBIT__QDQ_TO25

SBIT__FN const sbit_op_row *sbit__op_rows_quantize(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__qdq_rows);
    return sbit__qdq_rows;
}
