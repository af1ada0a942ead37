/* qlinear_wide.c: what lets activations of 16 bits run on integer kernels of 8. >>qlinear_wide
 *
 * Called by: exec through the rows. Calls: kernels (f32_fake_quantize: rounds and clamps).
 * sbit QSplit: the high and the low byte of uint16 (of int16 plus 2^15), two uint8 tensors. A product
 * of each with its part of the zero point gives int32 sums (ConvInteger, MatMulInteger), and as
 * x - z = 256 (high - z / 256) + (low - z % 256), sbit QJoin makes of them
 *   y = saturate(round_half_even((float)(256 * high + low + bias) * (s_x * s_w / s_y)) + zp_y)
 * exactly as the products of 8 bits: the sum has 64 bits, a float bias is added behind the multiplier,
 * without s_y the result is float.
 */
#include "qlinear_private.h"

#define SBIT__Q_JOIN_CHUNK ((int64_t)256) /* elements at a time */
#define SBIT__T_Q16 (SBIT_T(SBIT_U16) | SBIT_T(SBIT_I16))

/* >>QSplit */

static sbit_status sbit__q_split_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_dtypes(call, 1, SBIT__T_Q16, error));
    for (int32_t i = 0; i < call->output_count; i++) {
        sbit__op_same_type(call, i, 0);
        if (call->out_type[i] != NULL) {
            call->out_type[i]->dtype = SBIT_U8;
        }
    }
    return SBIT_OK;
}

static void sbit__q_split_block(void *task, int64_t begin, int64_t end)
{
    const sbit_op_call *call = (const sbit_op_call *)task;
    const uint16_t *x = (const uint16_t *)call->in[0]->data;
    const unsigned flip = call->in[0]->dtype == SBIT_I16 ? 0x8000u : 0;
    uint8_t *high = (uint8_t *)call->out[0]->data, *low = (uint8_t *)call->out[1]->data;
    for (int64_t i = begin; i < end; i++) {
        const unsigned u = x[i] ^ flip;
        high[i] = (uint8_t)(u >> 8);
        low[i] = (uint8_t)(u & 255u);
    }
}

static sbit_status sbit__q_split_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_op_call task = *call;
    (void)error;
    sbit__parallel_blocks(call->ctx, sbit_tensor_count(call->in[0]), sbit__q_split_block, &task);
    return SBIT_OK;
}

/* >>QJoin: high, low, s_x, s_w, bias, s_y, zp_y; the last three may be omitted */
enum {
    SBIT__Q_JOIN_HIGH,
    SBIT__Q_JOIN_LOW,
    SBIT__Q_JOIN_XS,
    SBIT__Q_JOIN_WS,
    SBIT__Q_JOIN_BIAS,
    SBIT__Q_JOIN_YS,
    SBIT__Q_JOIN_YZ
};

typedef struct sbit__q_join {
    int64_t channels, inner; /* of the axis; elements behind it */
    int32_t lo, hi;          /* bounds, from the type's least number; hi -1: its largest */
    float alpha;
} sbit__q_join;

static sbit_status sbit__q_join_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 4, 7, error));
    SBIT__TRY(sbit__op_dtypes(call, 3, SBIT_T(SBIT_I32), error));
    sbit__op_same_type(call, 0, SBIT__Q_JOIN_HIGH);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = sbit__in_type(call, SBIT__Q_JOIN_YZ) != NULL
                                       ? sbit__in_dtype(call, SBIT__Q_JOIN_YZ)
                                       : SBIT_F32;
    }
    return SBIT_OK;
}

static sbit_status sbit__q_join_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *sums = call->in_type[SBIT__Q_JOIN_HIGH];
    int32_t axis = 0;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(sums)) {
        return SBIT_OK;
    }
    SBIT__TRY(
        sbit__op_axis(call, sbit_node_int(call->node, "axis", 1), sums->rank, &axis, error));
    sbit__q_join *plan = (sbit__q_join *)call->alloc_params(call, sizeof *plan);
    if (plan == NULL) {
        return sbit__op_no_memory(call, error);
    }
    plan->channels = sums->dims[axis].value;
    plan->inner = sbit__type_count(sums, axis + 1, sums->rank);
    plan->lo = (int32_t)sbit_node_int(call->node, "lo", 0);
    plan->hi = (int32_t)sbit_node_int(call->node, "hi", -1);
    plan->alpha = sbit_node_float(call->node, "alpha", 1.0f);
    *call->scratch_bytes =
        (size_t)plan->channels * (sizeof(int64_t) + 2 * sizeof(float)); /* sbit__q_join_task */
    return SBIT_OK;
}

typedef struct sbit__q_join_task {
    const sbit__q_join *plan;
    const sbit_kernels *kernels;
    const int32_t *high, *low;
    sbit_tensor *y;
    const int64_t *bias;        /* of each channel */
    const float *scale, *shift; /* NULL: no float bias */
    int32_t lo, hi, zero;       /* of y */
} sbit__q_join_task;

/* n sums from `at` on, times their channels' multipliers. */
static void sbit__q_join_sums(const sbit__q_join_task *task, int64_t at, int64_t n, float *f)
{
    const int64_t inner = task->plan->inner, channels = task->plan->channels;
    for (int64_t i = 0; i < n;) {
        const int64_t c = (at + i) / inner % channels;
        const int64_t left = inner - (at + i) % inner, end = left < n - i ? i + left : n;
        const int64_t bias = task->bias[c];
        const float scale = task->scale[c], shift = task->shift != NULL ? task->shift[c] : 0.0f;
        for (; i < end; i++) {
            f[i] = (float)(256 * (int64_t)task->high[at + i] + task->low[at + i] + bias) * scale;
            if (task->shift != NULL) {
                f[i] += shift;
            }
        }
    }
}

static void sbit__q_join_block(void *user, int64_t begin, int64_t end)
{
    const sbit__q_join_task *task = (const sbit__q_join_task *)user;
    float part[SBIT__Q_JOIN_CHUNK];
    if (task->y->dtype == SBIT_F32) {
        sbit__q_join_sums(task, begin, end - begin, (float *)task->y->data + begin);
        return;
    }
    const bool octets = sbit_dtype_bits((int32_t)task->y->dtype) == 8;
    for (int64_t at = begin; at < end; at += SBIT__Q_JOIN_CHUNK) {
        const int64_t n = end - at < SBIT__Q_JOIN_CHUNK ? end - at : SBIT__Q_JOIN_CHUNK;
        sbit__q_join_sums(task, at, n, part);
        task->kernels->f32_fake_quantize(n, part, 1.0f, task->zero, task->lo, task->hi, part);
        for (int64_t i = 0; i < n && octets; i++) {
            ((uint8_t *)task->y->data)[at + i] = (uint8_t)((int32_t)part[i] + task->zero);
        }
        for (int64_t i = 0; i < n && !octets; i++) {
            ((uint16_t *)task->y->data)[at + i] = (uint16_t)((int32_t)part[i] + task->zero);
        }
    }
}

/* Multipliers and biases of all channels, in scratch memory. */
static void sbit__q_join_arrays(const sbit_op_call *call, sbit__q_join_task *task)
{
    const sbit__q_join *plan = task->plan;
    const sbit_tensor *ws = call->in[SBIT__Q_JOIN_WS], *b = sbit__in(call, SBIT__Q_JOIN_BIAS);
    const sbit_tensor *ys = sbit__in(call, SBIT__Q_JOIN_YS);
    const float sx = (float)sbit__tensor_f64_at(call->in[SBIT__Q_JOIN_XS], 0);
    const float sy = ys != NULL ? (float)sbit__tensor_f64_at(ys, 0) : 1.0f;
    const bool floats = b != NULL && b->dtype != SBIT_I32;
    int64_t *bias = (int64_t *)call->scratch;
    float *scale = (float *)(void *)(bias + plan->channels), *shift = scale + plan->channels;
    for (int64_t c = 0; c < plan->channels; c++) {
        const float sw = (float)sbit__tensor_f64_at(ws, sbit_tensor_count(ws) > 1 ? c : 0);
        const float product = plan->alpha == 1.0f ? sx * sw : plan->alpha * sx * sw;
        scale[c] = ys != NULL ? product / sy : product;
        bias[c] = b != NULL && !floats ? sbit__tensor_i64_at(b, c) : 0;
        shift[c] = floats ? (float)sbit__tensor_f64_at(b, c) / sy : 0.0f;
    }
    task->bias = bias;
    task->scale = scale;
    task->shift = floats ? shift : NULL;
}

static sbit_status sbit__q_join_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_join_task task;
    memset(&task, 0, sizeof task);
    task.plan = (const sbit__q_join *)call->params;
    task.kernels = call->kernels;
    task.y = call->out[0];
    if (task.plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    const int64_t count = sbit_tensor_count(task.y);
    if (count == 0) {
        return SBIT_OK;
    }
    task.high = (const int32_t *)call->in[SBIT__Q_JOIN_HIGH]->data;
    task.low = (const int32_t *)call->in[SBIT__Q_JOIN_LOW]->data;
    sbit__q_join_arrays(call, &task);
    if (task.y->dtype != SBIT_F32) {
        const bool is_signed = task.y->dtype == SBIT_I8 || task.y->dtype == SBIT_I16;
        const int32_t top = (1 << sbit_dtype_bits((int32_t)task.y->dtype)) - 1;
        const int32_t least = is_signed ? -(top / 2) - 1 : 0;
        task.zero = (int32_t)sbit__tensor_i64_at(call->in[SBIT__Q_JOIN_YZ], 0);
        task.lo = least + task.plan->lo;
        task.hi = least + (task.plan->hi < 0 ? top : task.plan->hi);
    }
    sbit__parallel_blocks(call->ctx, count, sbit__q_join_block, &task);
    return SBIT_OK;
}

/* >>rows */
static const sbit_op_row sbit__q_wide_rows[] = {
    {"sbit", "QSplit", 1, SBIT__T_Q16, 0, NULL, sbit__q_split_infer, NULL, sbit__q_split_run, NULL,
     NULL, NULL, NULL, NULL},
    {"sbit", "QJoin", 1, SBIT_T(SBIT_I32), 0, NULL, sbit__q_join_infer, sbit__q_join_prepare,
     sbit__q_join_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__Q_JOIN_CHUNK
#undef SBIT__T_Q16

SBIT__FN const sbit_op_row *sbit__op_rows_qlinear_wide(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__q_wide_rows);
    return sbit__q_wide_rows;
}
