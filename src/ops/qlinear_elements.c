/* qlinear_elements.c: integer operators beside products. >>qlinear_elements
 *
 * Called by: exec through the rows. Calls: integer kernels, scalar kernels for tables.
 * com.microsoft QLinearAdd, QLinearMul, QLinearConcat, QLinearLeakyRelu, QLinearSigmoid,
 * QLinearSoftmax, QLinearAveragePool, QLinearGlobalAveragePool; sbit
 * QAdd, QSub, QMul, QSoftmax, QConcat, QAveragePool, QGlobalAveragePool.
 * All are: dequantize, the float32 operator with its operands in their order, quantize, and give
 * the bits of that. Where a result depends on one byte it comes from a table of 256. Sums of pools
 * and means run through the window in its order. Softmax: exp((q - qmax) * s) from a table, added
 * up in eight sums (element i goes to sum i % 8) that are joined pairwise.
 */
#include "qlinear_private.h"

#define SBIT__Q_CHUNK ((int64_t)256) /* elements at a time */

/* Inputs that every operator here with one tensor has, in this order. */
enum {
    SBIT__Q_X,
    SBIT__Q_XS,
    SBIT__Q_XZ,
    SBIT__Q_YS,
    SBIT__Q_YZ
};

static sbit_dtype sbit__q_zero_dtype(const sbit_op_call *call, int32_t zero, int32_t x)
{
    return sbit__in_type(call, zero) != NULL ? sbit__in_dtype(call, zero) : sbit__in_dtype(call, x);
}

/* Inputs 0 to last, but zero points (bits of `optional`, and the one behind) may be omitted; they
 * are bytes as what they belong to. */
static sbit_status sbit__q_inputs(const sbit_op_call *call, int32_t last, uint32_t optional,
                                  sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 0, last + 2, error));
    for (int32_t i = 0; i <= last; i++) {
        if ((optional >> i & 1u) == 0 && sbit__in_type(call, i) == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
    }
    return sbit__op_dtypes(call, optional | 1u << (last + 1), SBIT__T_Q8, error);
}

static sbit_status sbit__q_params_unary(const sbit_op_call *call, sbit__q_param *x,
                                        sbit__q_param *y, sbit_error *error)
{
    SBIT__TRY(sbit__q_param_of(call, SBIT__Q_XS, SBIT__Q_XZ, call->in[0]->dtype, x, error));
    return sbit__q_param_of(call, SBIT__Q_YS, SBIT__Q_YZ, call->out[0]->dtype, y, error);
}

/* >>add, sub, mul */

static sbit_status sbit__q_binary_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs[2] = {0, 3};
    sbit__q_view view;
    SBIT__TRY(sbit__q_inputs(call, 6, 1u << 2 | 1u << 5, error));
    SBIT__TRY(sbit__op_dtypes(call, 1u << 3, SBIT__T_Q8, error));
    sbit__q_view_init(call, "Add", 14, inputs, 2, false, &view);
    SBIT__TRY(view.call.row->infer(&view.call, error));
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        *call->out_type[0] = view.out;
        call->out_type[0]->dtype = sbit__q_zero_dtype(call, 7, 0);
    }
    return SBIT_OK;
}

typedef struct sbit__q_binary_task {
    const sbit__q8_kernels *kernels;
    sbit__q8_pair pair;
    sbit__loop loop;
    const uint8_t *a, *b;
    uint8_t *y;
    uint8_t flip_a, flip_b, flip_y;
    int64_t chunk; /* at a time: SBIT__Q_CHUNK where copies are made */
} sbit__q_binary_task;

/* n bytes from x at a stride as one run: itself, or a copy in `part`. */
static const uint8_t *sbit__q_run_of(const uint8_t *x, int64_t stride, int64_t n, uint8_t flip,
                                     uint8_t *part)
{
    if (stride == 1 && flip == 0) {
        return x;
    }
    for (int64_t i = 0; i < n; i++) {
        part[i] = (uint8_t)(x[i * stride] ^ flip);
    }
    return part;
}

/* Offsets of row `row` from those of the one before it, whose index along the last axis but the
 * inner one is `index`. */
static void sbit__q_next_row(const sbit__loop *loop, int64_t row, int64_t *index, int64_t *offsets)
{
    const int32_t axis = loop->rank - 2;
    if (axis < 0 || row == loop->outer) {
        return;
    }
    if (++*index == loop->dims[axis]) {
        *index = 0;
        sbit__loop_row(loop, row, offsets);
        return;
    }
    for (int32_t k = 0; k < loop->operands; k++) {
        offsets[k] += loop->strides[k][axis];
    }
}

static void sbit__q_binary_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_binary_task *task = (const sbit__q_binary_task *)user;
    const sbit__loop *loop = &task->loop;
    const int64_t chunks = (loop->inner + task->chunk - 1) / task->chunk;
    uint8_t part_a[SBIT__Q_CHUNK], part_b[SBIT__Q_CHUNK];
    (void)worker;
    const int64_t sa = loop->strides[1][loop->rank - 1], sb = loop->strides[2][loop->rank - 1];
    int64_t offsets[SBIT__LOOP_OPERANDS], chunk = begin % chunks, row = begin / chunks;
    int64_t index = loop->rank > 1 ? row % loop->dims[loop->rank - 2] : 0;
    sbit__loop_row(loop, row, offsets);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = chunk * task->chunk, left = loop->inner - first;
        const int64_t n = left < task->chunk ? left : task->chunk;
        uint8_t *y = task->y + offsets[0] + first;
        const uint8_t *a =
            sbit__q_run_of(task->a + offsets[1] + first * sa, sa, n, task->flip_a, part_a);
        const uint8_t *b =
            sbit__q_run_of(task->b + offsets[2] + first * sb, sb, n, task->flip_b, part_b);
        task->kernels->q8_binary(&task->pair, n, a, b, y);
        if (task->flip_y != 0) {
            sbit__q_flip(n, y, task->flip_y, y);
        }
        if (++chunk == chunks) {
            chunk = 0;
            sbit__q_next_row(loop, ++row, &index, offsets);
        }
    }
}

/* What does not depend on scales. */
typedef struct sbit__q_binary {
    sbit__binary op;
    sbit__q8_store store;
} sbit__q_binary;

static sbit_status sbit__q_binary_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_binary *plan = NULL;
    SBIT__TRY(sbit__op_check(call, error));
    plan = (sbit__q_binary *)call->alloc_params(call, sizeof *plan);
    if (plan == NULL) {
        return sbit__op_no_memory(call, error);
    }
    plan->op = sbit__q_is(call, "Mul")   ? SBIT__BINARY_MUL
               : sbit__q_is(call, "Sub") ? SBIT__BINARY_SUB
                                         : SBIT__BINARY_ADD;
    plan->store = sbit__q_store_of(call, "lo", "hi");
    return SBIT_OK;
}

static sbit_status sbit__q_binary_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_binary *plan = (const sbit__q_binary *)call->params;
    sbit__q_binary_task task;
    int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK];
    sbit__q_param a, b, y;
    sbit_tensor *out = call->out[0];
    if (out == NULL || sbit_tensor_count(out) == 0) {
        return SBIT_OK;
    }
    memset(&task, 0, sizeof task);
    SBIT__TRY(sbit__q_param_of(call, 1, 2, call->in[0]->dtype, &a, error));
    SBIT__TRY(sbit__q_param_of(call, 4, 5, call->in[3]->dtype, &b, error));
    SBIT__TRY(sbit__q_param_of(call, 6, 7, out->dtype, &y, error));
    sbit__tensor_strides(out, strides[0]);
    SBIT__TRY(sbit__op_strides(call, call->in[0], -1, out->rank, out->dims, strides[1], error));
    SBIT__TRY(sbit__op_strides(call, call->in[3], -1, out->rank, out->dims, strides[2], error));
    sbit__loop_init(&task.loop, out->rank, out->dims, 3, (const int64_t(*)[SBIT_MAX_RANK])strides);
    task.kernels = sbit__q8_of(call->ctx);
    task.pair.op = plan->op;
    task.pair.store = plan->store;
    task.pair.store.zero = y.zero;
    task.pair.scale_a = a.scale;
    task.pair.scale_b = b.scale;
    task.pair.scale_y = y.scale;
    task.pair.zero_a = a.zero;
    task.pair.zero_b = b.zero;
    task.a = (const uint8_t *)call->in[0]->data;
    task.b = (const uint8_t *)call->in[3]->data;
    task.y = (uint8_t *)out->data;
    task.flip_a = a.flip;
    task.flip_b = b.flip;
    task.flip_y = y.flip;
    const int32_t inner = task.loop.rank - 1;
    const bool copies = a.flip != 0 || b.flip != 0 || task.loop.strides[1][inner] != 1 ||
                        task.loop.strides[2][inner] != 1;
    task.chunk = copies ? SBIT__Q_CHUNK : SBIT__BLOCK;
    const int64_t chunks = (task.loop.inner + task.chunk - 1) / task.chunk;
    const int64_t each = task.loop.inner < task.chunk ? task.loop.inner : task.chunk;
    sbit__parallel_range(call->ctx, task.loop.outer * chunks, 1 + 4 * SBIT__BLOCK / each,
                         sbit__q_binary_rows, &task);
    return SBIT_OK;
}

/* >>tables */

static sbit_status sbit__q_unary_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__q_inputs(call, SBIT__Q_YS, 1u << SBIT__Q_XZ, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = sbit__q_zero_dtype(call, SBIT__Q_YZ, 0);
    }
    return SBIT_OK;
}

typedef struct sbit__q_lookup_task {
    const sbit__q8_kernels *q8;
    const uint8_t *x, *table;
    uint8_t *y;
} sbit__q_lookup_task;

static void sbit__q_lookup_block(void *user, int64_t begin, int64_t end)
{
    const sbit__q_lookup_task *task = (const sbit__q_lookup_task *)user;
    task->q8->q8_lookup(end - begin, task->table, task->x + begin, task->y + begin);
}

static void sbit__q_sigmoid(const sbit_kernels *scalar, float alpha, int64_t n, float *values)
{
    (void)alpha;
    scalar->f32_unary(SBIT__UNARY_SIGMOID, n, values, values);
}

static void sbit__q_leaky(const sbit_kernels *scalar, float alpha, int64_t n, float *values)
{
    (void)scalar;
    for (int64_t i = 0; i < n; i++) {
        values[i] = values[i] < 0.0f ? alpha * values[i] : values[i];
    }
}

typedef struct sbit__q_lookup {
    bool sigmoid; /* else LeakyRelu */
    float alpha;
} sbit__q_lookup;

static sbit_status sbit__q_lookup_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_lookup *plan = NULL;
    SBIT__TRY(sbit__op_check(call, error));
    plan = (sbit__q_lookup *)call->alloc_params(call, sizeof *plan);
    if (plan == NULL) {
        return sbit__op_no_memory(call, error);
    }
    plan->sigmoid = sbit__q_is(call, "Sigmoid");
    plan->alpha = sbit_node_float(call->node, "alpha", 0.01f);
    return SBIT_OK;
}

static sbit_status sbit__q_lookup_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_lookup *plan = (const sbit__q_lookup *)call->params;
    sbit__q_lookup_task task;
    sbit__q_param x, y;
    uint8_t table[256];
    SBIT__TRY(sbit__q_params_unary(call, &x, &y, error));
    sbit__q_table(&x, &y, plan->sigmoid ? sbit__q_sigmoid : sbit__q_leaky, plan->alpha, table);
    task.x = (const uint8_t *)call->in[0]->data;
    task.y = (uint8_t *)call->out[0]->data;
    task.table = table;
    task.q8 = sbit__q8_of(call->ctx);
    sbit__parallel_blocks(call->ctx, sbit_tensor_count(call->in[0]), sbit__q_lookup_block, &task);
    return SBIT_OK;
}

/* >>softmax */

static sbit_status sbit__q_softmax_axis(const sbit_op_call *call, int32_t rank, int32_t *axis,
                                        sbit_error *error)
{
    return sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), rank, axis, error);
}

static sbit_status sbit__q_softmax_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t axis = 0;
    SBIT__TRY(sbit__q_unary_infer(call, error));
    return call->in_type[0]->rank > 0
               ? sbit__q_softmax_axis(call, call->in_type[0]->rank, &axis, error)
               : SBIT_OK;
}

typedef struct sbit__q_softmax_task {
    const sbit_kernels *kernels;
    const uint8_t *x;
    uint8_t *y;
    int64_t length, inner; /* a line's elements are `inner` apart */
    sbit__q_param to;
    uint8_t flip;
    const float *exps; /* of -d * scale */
} sbit__q_softmax_task;

/* The largest of n bytes and `most`. */
static uint8_t sbit__q_most(int64_t n, const uint8_t *x, uint8_t most)
{
    uint8_t each[8];
    int64_t i = 0;
    memset(each, most, sizeof each);
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            each[k] = x[i + k] > each[k] ? x[i + k] : each[k];
        }
    }
    for (; i < n; i++) {
        each[0] = x[i] > each[0] ? x[i] : each[0];
    }
    for (int k = 0; k < 8; k++) {
        most = each[k] > most ? each[k] : most;
    }
    return most;
}

/* out[i] = exps[most - x[i]]; element i is added to sum i % 8 */
static void sbit__q_exps(int64_t n, const uint8_t *x, uint8_t most, const float *exps, float *out,
                         float sums[8])
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            out[i + k] = exps[most - x[i + k]];
            sums[k] += out[i + k];
        }
    }
    for (int k = 0; i < n; i++, k++) {
        out[i] = exps[most - x[i]];
        sums[k] += out[i];
    }
}

/* A line in pieces of SBIT__Q_CHUNK, which usually is one. */
static void sbit__q_softmax_line(const sbit__q_softmax_task *task, const uint8_t *x, uint8_t *y)
{
    const int64_t n = task->length, step = task->inner;
    float sums[8] = {0.0f}, unused[8], exps[SBIT__Q_CHUNK];
    uint8_t most = 0, copy[SBIT__Q_CHUNK], bytes[SBIT__Q_CHUNK];
    const uint8_t *part = NULL;
    int64_t count = 0;
    for (int64_t first = 0; first < n; first += count) {
        count = n - first < SBIT__Q_CHUNK ? n - first : SBIT__Q_CHUNK;
        part = sbit__q_run_of(x + first * step, step, count, task->flip, copy);
        most = sbit__q_most(count, part, most);
    }
    for (int64_t first = 0; first < n; first += count) {
        count = n - first < SBIT__Q_CHUNK ? n - first : SBIT__Q_CHUNK;
        if (n > SBIT__Q_CHUNK) {
            part = sbit__q_run_of(x + first * step, step, count, task->flip, copy);
        }
        sbit__q_exps(count, part, most, task->exps, exps, sums);
    }
    const float sum =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (int64_t first = 0; first < n; first += count) {
        const bool direct = step == 1 && task->to.flip == 0;
        uint8_t *to = direct ? y + first : bytes;
        count = n - first < SBIT__Q_CHUNK ? n - first : SBIT__Q_CHUNK;
        if (n > SBIT__Q_CHUNK) {
            part = sbit__q_run_of(x + first * step, step, count, task->flip, copy);
            memset(unused, 0, sizeof unused);
            sbit__q_exps(count, part, most, task->exps, exps, unused);
        }
        task->kernels->f32_binary(SBIT__BINARY_DIV, count, exps, 1, &sum, 0, exps);
        task->kernels->f32_quantize_u8(count, exps, task->to.scale, task->to.zero, 0, 255, to);
        for (int64_t i = 0; !direct && i < count; i++) {
            y[(first + i) * step] = (uint8_t)(bytes[i] ^ task->to.flip);
        }
    }
}

static void sbit__q_softmax_lines(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_softmax_task *task = (const sbit__q_softmax_task *)user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i / task->inner * task->length * task->inner + i % task->inner;
        sbit__q_softmax_line(task, task->x + at, task->y + at);
    }
}

typedef struct sbit__q_softmax {
    int64_t length, inner; /* a line's elements are `inner` apart */
} sbit__q_softmax;

static sbit_status sbit__q_softmax_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    /* com.microsoft's attribute opset: before 13 all dims from the axis on are one line */
    const bool flattens = sbit_node_int(call->node, "opset", 13) < 13;
    sbit__q_softmax *plan = NULL;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(x)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__q_softmax_axis(call, x->rank, &axis, error));
    plan = (sbit__q_softmax *)call->alloc_params(call, sizeof *plan);
    if (plan == NULL) {
        return sbit__op_no_memory(call, error);
    }
    plan->length = sbit__type_count(x, axis, flattens ? x->rank : axis + 1);
    plan->inner = flattens ? 1 : sbit__type_count(x, axis + 1, x->rank);
    return SBIT_OK;
}

static void sbit__q_softmax_exps(float scale, float exps[256])
{
    for (int32_t d = 0; d < 256; d++) {
        exps[d] = (float)-d * scale;
    }
    sbit__kernels_of(SBIT_ISA_SCALAR)->f32_unary(SBIT__UNARY_EXP, 256, exps, exps);
}

static sbit_status sbit__q_softmax_pack(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *scale = sbit__in(call, SBIT__Q_XS);
    float *exps = NULL;
    if (scale == NULL || sbit_tensor_count(scale) != 1) {
        return SBIT_OK;
    }
    exps = (float *)call->alloc_packed(call, 256 * sizeof *exps);
    if (exps == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__q_softmax_exps((float)sbit__tensor_f64_at(scale, 0), exps);
    return SBIT_OK;
}

static sbit_status sbit__q_softmax_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_softmax *plan = (const sbit__q_softmax *)call->params;
    const sbit_tensor *x = call->in[0];
    sbit__q_softmax_task task;
    sbit__q_param from;
    float exps[256];
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (sbit_tensor_count(x) == 0) {
        return SBIT_OK;
    }
    memset(&task, 0, sizeof task);
    SBIT__TRY(sbit__q_params_unary(call, &from, &task.to, error));
    task.exps = (const float *)call->packed;
    if (task.exps == NULL) {
        sbit__q_softmax_exps(from.scale, exps);
        task.exps = exps;
    }
    task.kernels = call->kernels;
    task.x = (const uint8_t *)x->data;
    task.y = (uint8_t *)call->out[0]->data;
    task.flip = from.flip;
    task.length = plan->length;
    task.inner = plan->inner;
    sbit__parallel_range(call->ctx, sbit_tensor_count(x) / task.length, 1 + 16384 / task.length,
                         sbit__q_softmax_lines, &task);
    return SBIT_OK;
}

/* >>concat: y scale, y zero, then x, scale, zero for each input; zero points are there */

static sbit_status sbit__q_concat_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t count = (call->input_count - 2) / 3;
    sbit_type *out = call->output_count > 0 ? call->out_type[0] : NULL;
    int32_t axis = 0;
    if (call->input_count < 5 || call->input_count % 3 != 2) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "it has %d inputs: 2 and 3 for each tensor are needed",
                            (int)call->input_count);
    }
    SBIT__TRY(sbit__op_inputs(call, call->input_count, call->input_count, error));
    SBIT__TRY(sbit__op_dtypes(call, 1u << 1, SBIT__T_Q8, error));
    if (out == NULL) {
        return SBIT_OK;
    }
    *out = *call->in_type[2];
    out->dtype = sbit__in_dtype(call, 1);
    for (int32_t i = 0; i < count; i++) {
        const sbit_type *type = call->in_type[2 + 3 * i];
        if (type->dtype != SBIT_UNDEFINED && (SBIT_T(type->dtype) & SBIT__T_Q8) == 0) {
            return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "tensor %d is %s", (int)i,
                                sbit_dtype_name((int32_t)type->dtype));
        }
        if (type->rank < 0 || out->rank < 0) {
            out->rank = -1;
            continue;
        }
        SBIT__TRY(
            sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), out->rank, &axis, error));
        if (type->rank != out->rank) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "tensor %d has rank %d, not %d",
                                (int)i, (int)type->rank, (int)out->rank);
        }
        for (int32_t d = 0; i > 0 && d < out->rank; d++) {
            const sbit_dim dim = type->dims[d];
            if (d == axis) {
                out->dims[d] = sbit__dim_add(out->dims[d], dim);
            } else if (!sbit__dim_known(out->dims[d])) {
                out->dims[d] = sbit__dim_known(dim) ? dim : out->dims[d];
            } else if (sbit__dim_known(dim) && dim.value != out->dims[d].value) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "dimension %d of tensor %d is %lld", (int)d, (int)i,
                                    (long long)dim.value);
            }
        }
    }
    return SBIT_OK;
}

typedef struct sbit__q_concat {
    int64_t outer, pitch; /* of the result: how often a piece of each tensor comes, bytes of all */
    int32_t axis;
} sbit__q_concat;

static sbit_status sbit__q_concat_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *y = call->out_type[0];
    sbit__q_concat *plan = NULL;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(y)) {
        return SBIT_OK;
    }
    plan = (sbit__q_concat *)call->alloc_params(call, sizeof *plan);
    if (plan == NULL) {
        return sbit__op_no_memory(call, error);
    }
    SBIT__TRY(
        sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), y->rank, &plan->axis, error));
    plan->outer = sbit__type_count(y, 0, plan->axis);
    plan->pitch = sbit__type_count(y, plan->axis, y->rank);
    return SBIT_OK;
}

/* One input: a run of n bytes for each index of the axes in front. */
typedef struct sbit__q_concat_task {
    const sbit__q8_kernels *q8;
    const uint8_t *x, *table; /* table NULL: as they are */
    uint8_t *y;
    int64_t n, pitch;
} sbit__q_concat_task;

static void sbit__q_concat_runs(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_concat_task *task = (const sbit__q_concat_task *)user;
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        const uint8_t *x = task->x + o * task->n;
        uint8_t *y = task->y + o * task->pitch;
        if (task->table == NULL) {
            memcpy(y, x, (size_t)task->n);
        } else {
            task->q8->q8_lookup(task->n, task->table, x, y);
        }
    }
}

static sbit_status sbit__q_concat_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_concat *plan = (const sbit__q_concat *)call->params;
    sbit__q_concat_task task;
    sbit_tensor *y = call->out[0];
    const int32_t count = (call->input_count - 2) / 3;
    sbit__q_param to, from;
    int64_t at = 0;
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    SBIT__TRY(sbit__q_param_of(call, 0, 1, y->dtype, &to, error));
    for (int32_t i = 0; i < count; i++) {
        const sbit_tensor *x = call->in[2 + 3 * i];
        const int64_t n = sbit__tensor_span(x, plan->axis, x->rank);
        uint8_t table[256];
        SBIT__TRY(sbit__q_param_of(call, 3 + 3 * i, 4 + 3 * i, x->dtype, &from, error));
        const bool same = from.scale == to.scale && from.zero == to.zero && from.flip == to.flip;
        if (!same) {
            sbit__q_table(&from, &to, NULL, 0.0f, table);
        }
        task.q8 = sbit__q8_of(call->ctx);
        task.x = (const uint8_t *)x->data;
        task.table = same ? NULL : table;
        task.y = (uint8_t *)y->data + at;
        task.n = n;
        task.pitch = plan->pitch;
        sbit__parallel_range(call->ctx, plan->outer, 1 + 65536 / (n + 1), sbit__q_concat_runs,
                             &task);
        at += n;
    }
    return SBIT_OK;
}

/* >>average pools: channels last inside, transposed through scratch where the model is not */

typedef struct sbit__q_pool {
    sbit__pool_shape s;
    bool count_pad, last;               /* last: channels last */
    size_t x_bytes, y_bytes, sum_bytes; /* of a worker */
} sbit__q_pool;

static bool sbit__q_is_global(const sbit_op_call *call)
{
    return sbit__q_is(call, "GlobalAveragePool");
}

static sbit_status sbit__q_pool_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs[1] = {0};
    SBIT__TRY(sbit__q_inputs(call, SBIT__Q_YS, 1u << SBIT__Q_XZ, error));
    return sbit__q_infer_as(call, sbit__q_is_global(call) ? "GlobalAveragePool" : "AveragePool",
                            sbit__q_is_global(call) ? 1 : 19, inputs, 1,
                            sbit__q_zero_dtype(call, SBIT__Q_YZ, 0), error);
}

static sbit_status sbit__q_pool_shape(const sbit_op_call *call, sbit__q_pool *pool,
                                      sbit_error *error)
{
    const int32_t inputs[1] = {0};
    sbit__q_view view;
    sbit__q_view_init(call, "AveragePool", 19, inputs, 1, sbit__q_channels_last(call), &view);
    memset(pool, 0, sizeof *pool);
    pool->last = sbit__q_channels_last(call);
    pool->count_pad = sbit_node_int(call->node, "count_include_pad", 0) != 0;
    return sbit__pool_shape_of(&view.call, view.in_type[0], sbit__q_is_global(call), &pool->s,
                               error);
}

static sbit_status sbit__q_pool_prepare(const sbit_op_call *call, sbit_error *error)
{
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0])) {
        return SBIT_OK;
    }
    sbit__q_pool *pool = (sbit__q_pool *)call->alloc_params(call, sizeof *pool);
    if (pool == NULL) {
        return sbit__op_no_memory(call, error);
    }
    SBIT__TRY(sbit__q_pool_shape(call, pool, error));
    if (!sbit__q_channels_last(call) || call->in_type[0]->dtype == SBIT_I8 ||
        call->out_type[0]->dtype == SBIT_I8) {
        pool->x_bytes = sbit__align64((size_t)sbit__type_size(call->in_type[0]));
        pool->y_bytes = sbit__align64((size_t)sbit__type_size(call->out_type[0]));
    }
    pool->sum_bytes = sbit__align64((size_t)pool->s.channels * sizeof(float));
    *call->scratch_bytes =
        pool->x_bytes + pool->y_bytes + pool->sum_bytes * (size_t)sbit_ctx_threads(call->ctx);
    return SBIT_OK;
}

typedef struct sbit__q_pool_task {
    const sbit__q_pool *pool;
    const sbit_kernels *kernels;
    const sbit__q8_kernels *q8;
    const uint8_t *x;
    uint8_t *y;
    char *sums;
    sbit__q_param from, to;
} sbit__q_pool_task;

static void sbit__q_pool_at(const sbit__q_pool_task *task, int64_t index, float *sums)
{
    const sbit__pool_shape *s = &task->pool->s;
    const int64_t c = s->channels, n = index / s->out_size;
    const int64_t at[3] = {index % s->out_size / s->out[2] / s->out[1],
                           index % s->out_size / s->out[2] % s->out[1], index % s->out[2]};
    sbit__pool_taps t[3];
    float count = 1.0f;
    for (int32_t i = 0; i < 3; i++) {
        t[i] = sbit__pool_taps_of(s, i, at[i]);
        count *= (float)(task->pool->count_pad ? t[i].padded : t[i].end - t[i].begin);
    }
    memset(sums, 0, (size_t)c * sizeof *sums);
    for (int64_t d = t[0].begin; d < t[0].end; d++) {
        for (int64_t h = t[1].begin; h < t[1].end; h++) {
            const int64_t z = t[0].start + d * s->dilation[0];
            const int64_t y = t[1].start + h * s->dilation[1];
            const int64_t row = ((n * s->in[0] + z) * s->in[1] + y) * s->in[2] + t[2].start;
            task->q8->q8_accumulate(c, t[2].end - t[2].begin, s->dilation[2] * c,
                                    task->x + (row + t[2].begin * s->dilation[2]) * c,
                                    task->from.zero, task->from.scale, sums);
        }
    }
    if (count > 0.0f) {
        task->kernels->f32_binary(SBIT__BINARY_DIV, c, sums, 1, &count, 0, sums);
    }
    task->kernels->f32_quantize_u8(c, sums, task->to.scale, task->to.zero, 0, 255,
                                   task->y + index * c);
}

static void sbit__q_pool_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_pool_task *task = (const sbit__q_pool_task *)user;
    float *sums = (float *)(void *)(task->sums + (size_t)worker * task->pool->sum_bytes);
    for (int64_t i = begin; i < end; i++) {
        sbit__q_pool_at(task, i, sums);
    }
}

static sbit_status sbit__q_pool_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_pool *pool = (const sbit__q_pool *)call->params;
    const sbit_tensor *x = call->in[0];
    sbit__q_pool_task task;
    if (pool == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (sbit_tensor_count(x) == 0) { /* the output is not empty */
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "a mean of no elements is no integer");
    }
    const bool last = pool->last;
    const sbit__pool_shape *s = &pool->s;
    const int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    uint8_t *scratch = (uint8_t *)call->scratch, *result = (uint8_t *)call->out[0]->data;
    memset(&task, 0, sizeof task);
    SBIT__TRY(sbit__q_params_unary(call, &task.from, &task.to, error));
    task.pool = pool;
    task.kernels = call->kernels;
    task.q8 = sbit__q8_of(call->ctx);
    task.x = (const uint8_t *)x->data;
    task.y = pool->x_bytes == 0 ? result : scratch + pool->x_bytes;
    task.sums = (char *)scratch + pool->x_bytes + pool->y_bytes;
    if (last && pool->x_bytes > 0) {
        sbit__q_flip(sbit_tensor_count(x), task.x, task.from.flip, scratch);
        task.x = scratch;
    } else if (!last) {
        sbit__q_to_last(s->batch, s->channels, s->in_size, task.x, task.from.flip, scratch);
        task.x = scratch;
    }
    sbit__parallel_range(call->ctx, s->batch * s->out_size, 1 + 65536 / (taps * s->channels + 1),
                         sbit__q_pool_range, &task);
    if (last && pool->x_bytes > 0) {
        sbit__q_flip(sbit_tensor_count(call->out[0]), task.y, task.to.flip, result);
    } else if (!last) {
        sbit__q_to_first(s->batch, s->channels, s->out_size, task.y, task.to.flip, result);
    }
    return SBIT_OK;
}

/* >>rows */
#define SBIT__Q_ROW(domain, name, pack, infer, prepare, run)                                       \
    {                                                                                              \
        domain, name, 1, SBIT__T_Q8, 0, pack, infer, prepare, run, NULL, NULL, NULL, NULL, NULL    \
    }
#define SBIT__Q_BINARY(domain, name)                                                               \
    SBIT__Q_ROW(domain, name, NULL, sbit__q_binary_infer, sbit__q_binary_prepare,                  \
                sbit__q_binary_run)
#define SBIT__Q_LOOKUP(domain, name)                                                               \
    SBIT__Q_ROW(domain, name, NULL, sbit__q_unary_infer, sbit__q_lookup_prepare, sbit__q_lookup_run)
#define SBIT__Q_SOFTMAX(domain, name)                                                              \
    SBIT__Q_ROW(domain, name, sbit__q_softmax_pack, sbit__q_softmax_infer,                         \
                sbit__q_softmax_prepare, sbit__q_softmax_run)
#define SBIT__Q_POOL(domain, name)                                                                 \
    SBIT__Q_ROW(domain, name, NULL, sbit__q_pool_infer, sbit__q_pool_prepare, sbit__q_pool_run)
#define SBIT__Q_CONCAT(domain, name)                                                               \
    {                                                                                              \
        domain, name, 1, SBIT_T(SBIT_F32), 0, 0, sbit__q_concat_infer, sbit__q_concat_prepare,     \
            sbit__q_concat_run, NULL, NULL, NULL, NULL, NULL                                       \
    }

static const sbit_op_row sbit__q_element_rows[] = {
    SBIT__Q_BINARY("com.microsoft", "QLinearAdd"),
    SBIT__Q_BINARY("com.microsoft", "QLinearMul"),
    SBIT__Q_LOOKUP("com.microsoft", "QLinearLeakyRelu"),
    SBIT__Q_LOOKUP("com.microsoft", "QLinearSigmoid"),
    SBIT__Q_SOFTMAX("com.microsoft", "QLinearSoftmax"),
    SBIT__Q_POOL("com.microsoft", "QLinearAveragePool"),
    SBIT__Q_POOL("com.microsoft", "QLinearGlobalAveragePool"),
    SBIT__Q_CONCAT("com.microsoft", "QLinearConcat"),
    SBIT__Q_BINARY("sbit", "QAdd"),
    SBIT__Q_BINARY("sbit", "QSub"),
    SBIT__Q_BINARY("sbit", "QMul"),
    SBIT__Q_SOFTMAX("sbit", "QSoftmax"),
    SBIT__Q_POOL("sbit", "QAveragePool"),
    SBIT__Q_POOL("sbit", "QGlobalAveragePool"),
    SBIT__Q_CONCAT("sbit", "QConcat"),
};

#undef SBIT__Q_BINARY
#undef SBIT__Q_LOOKUP
#undef SBIT__Q_SOFTMAX
#undef SBIT__Q_POOL
#undef SBIT__Q_CONCAT
#undef SBIT__Q_ROW
#undef SBIT__Q_CHUNK

SBIT__FN const sbit_op_row *sbit__op_rows_qlinear_elements(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__q_element_rows);
    return sbit__q_element_rows;
}
