/* nbits.c: com.microsoft's matrix products of floats with quantized weights. >>nbits
 *
 * MatMulNBits           y = a w^T + bias; w [N,K] in blocks of 2 to 8 bits along K
 * DynamicQuantizeMatMul a is quantized as DynamicQuantizeLinear does, then the product of integers
 * Both are written with other operators. The weight of the first comes out of sbit NBitsWeight: w^T
 * as floats, (q - zero point) * scale, in the type of the scales; of constants it is made once.
 */
#include "elements_private.h"
#include "expand_private.h"
#include "window_private.h"

#if !SPARSEBIT_NO_OPS_MICROSOFT

/* >>weights */

enum {
    SBIT__NBITS_A,
    SBIT__NBITS_B,
    SBIT__NBITS_SCALES,
    SBIT__NBITS_ZEROS,
    SBIT__NBITS_INDEX,
    SBIT__NBITS_BIAS,
    SBIT__NBITS_INPUTS
};

typedef struct sbit__nbits {
    int64_t k, n, bits, block, blocks; /* blocks of a row */
} sbit__nbits;

static sbit_status sbit__nbits_of(const sbit_op_call *call, sbit__nbits *out, sbit_error *error)
{
    const sbit_node *node = call->node;
    out->k = sbit_node_int(node, "K", 0);
    out->n = sbit_node_int(node, "N", 0);
    out->bits = sbit_node_int(node, "bits", 4);
    out->block = sbit_node_int(node, "block_size", 0);
    if (out->k < 1 || out->n < 1 || out->k > INT32_MAX || out->n > INT32_MAX || out->block < 16 ||
        out->block > INT32_MAX || (out->block & (out->block - 1)) != 0 ||
        (out->bits != 2 && out->bits != 4 && out->bits != 8)) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error,
                            "K and N of at least 1, bits 2, 4 or 8 and a block_size that is a "
                            "power of two from 16 on are known");
    }
    out->blocks = (out->k + out->block - 1) / out->block;
    return SBIT_OK;
}

/* Elements of input i of NBitsWeight, or -1: unknown or omitted. */
static int64_t sbit__nbits_elements(const sbit_op_call *call, int32_t i)
{
    const sbit_type *type = sbit__in_type(call, i);
    return type != NULL && sbit__type_static(type) ? sbit__type_size(type) : -1;
}

/* Inputs B, scales, zero points, index of the block of each k. */
static sbit_status sbit__nbits_weight_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__nbits w;
    SBIT__TRY(sbit__op_inputs(call, 2, 4, error));
    SBIT__TRY(sbit__nbits_of(call, &w, error));
    const sbit_dtype dtype = sbit__in_dtype(call, 1), zeros = sbit__in_dtype(call, 2);
    const bool packed = zeros == SBIT_U8;
    const int64_t row_bytes = (w.blocks * w.bits + 7) / 8;
    const int64_t wanted[4] = {w.n * w.blocks * (w.block * w.bits / 8), w.n * w.blocks,
                               packed ? w.n * row_bytes : w.n * w.blocks, w.k};
    for (int32_t i = 0; i < 4; i++) {
        const int64_t given = sbit__nbits_elements(call, i);
        if (given >= 0 && given != wanted[i]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "%s has %lld elements, %lld are wanted",
                                i == 0   ? "B"
                                : i == 1 ? "scales"
                                : i == 2 ? "zero_points"
                                         : "g_idx",
                                (long long)given, (long long)wanted[i]);
        }
    }
    if (sbit__in_type(call, 2) != NULL && !packed && zeros != dtype) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error,
                            "zero_points are uint8, or of the type of the scales");
    }
    sbit_type *out = sbit__op_out(call, 0, dtype, 2);
    if (out != NULL) {
        out->dims[0] = sbit__dim(w.k);
        out->dims[1] = sbit__dim(w.n);
    }
    return SBIT_OK;
}

typedef struct sbit__nbits_task {
    sbit__nbits w;
    const uint8_t *data;
    const sbit_tensor *scales, *zeros, *index; /* zeros, index NULL: none */
    sbit_tensor *out;
} sbit__nbits_task;

/* The zero point of block b of row n: packed codes, floats, or the middle. */
static float sbit__nbits_zero(const sbit__nbits_task *t, int64_t n, int64_t b)
{
    const sbit__nbits *w = &t->w;
    if (t->zeros == NULL) {
        return (float)(1 << (w->bits - 1));
    }
    if (t->zeros->dtype == SBIT_U8) {
        const uint8_t *row = (const uint8_t *)t->zeros->data + n * ((w->blocks * w->bits + 7) / 8);
        return (float)(row[b * w->bits / 8] >> b * w->bits % 8 & ((1 << w->bits) - 1));
    }
    return (float)sbit__tensor_f64_at(t->zeros, n * w->blocks + b);
}

static void sbit__nbits_rows(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__nbits_task *t = (const sbit__nbits_task *)task;
    const sbit__nbits *w = &t->w;
    const uint32_t mask = (1u << w->bits) - 1u;
    (void)worker;
    for (int64_t n = begin; n < end; n++) {
        float scale = 0.0f, zero = 0.0f;
        int64_t last = -1; /* the block that scale and zero are of */
        for (int64_t k = 0; k < w->k; k++) {
            const int64_t bit = (n * w->blocks * w->block + k) * w->bits;
            int64_t b = t->index != NULL ? sbit__tensor_i64_at(t->index, k) : k / w->block;
            b = b < 0 ? 0 : b >= w->blocks ? w->blocks - 1 : b;
            if (b != last) {
                scale = (float)sbit__tensor_f64_at(t->scales, n * w->blocks + b);
                zero = sbit__nbits_zero(t, n, b);
                last = b;
            }
            const float q = (float)(t->data[bit / 8] >> bit % 8 & mask);
            if (t->out->dtype == SBIT_F32) {
                ((float *)t->out->data)[k * w->n + n] = (q - zero) * scale;
            } else {
                sbit__tensor_set_f64(t->out, k * w->n + n, (double)((q - zero) * scale));
            }
        }
    }
}

static sbit_status sbit__nbits_weight_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__nbits_task task;
    SBIT__TRY(sbit__nbits_of(call, &task.w, error));
    task.data = (const uint8_t *)call->in[0]->data;
    task.scales = call->in[1];
    task.zeros = sbit__in(call, 2);
    task.index = sbit__in(call, 3);
    task.out = call->out[0];
    sbit__parallel_range(call->ctx, task.w.n, 1 + 16384 / task.w.k, sbit__nbits_rows, &task);
    return SBIT_OK;
}

/* >>products, written with other operators */

/* The type of a product of input 0 with a matrix of n columns. */
static void sbit__nbits_product(const sbit_op_call *call, sbit_dim n)
{
    const sbit_type *a = call->in_type[0];
    sbit_type *out = sbit__op_out(call, 0, a->dtype, a->rank);
    for (int32_t i = 0; out != NULL && i < a->rank; i++) {
        out->dims[i] = i + 1 < a->rank ? a->dims[i] : n;
    }
}

static sbit_status sbit__nbits_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__nbits w;
    SBIT__TRY(sbit__op_inputs(call, 3, SBIT__NBITS_INPUTS, error));
    SBIT__TRY(sbit__nbits_of(call, &w, error));
    const sbit_type *a = call->in_type[0];
    if (a->rank == 0 || (a->rank > 0 && sbit__dim_known(a->dims[a->rank - 1]) &&
                         a->dims[a->rank - 1].value != w.k)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "A does not have %lld columns",
                            (long long)w.k);
    }
    sbit__nbits_product(call, sbit__dim(w.n));
    return SBIT_OK;
}

static sbit_status sbit__nbits_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_node *node = &e.node;
    const sbit_value_id bias = sbit__expand_in(&e, SBIT__NBITS_BIAS), out = sbit__expand_out(&e, 0);
    const sbit_value_id w = sbit__expand_value(&e, node->name), none = sbit__expand_none;
    sbit_value_id inputs[4], y;
    const sbit_attr attrs[4] = {sbit__attr_int("K", sbit_node_int(node, "K", 0)),
                                sbit__attr_int("N", sbit_node_int(node, "N", 0)),
                                sbit__attr_int("bits", sbit_node_int(node, "bits", 4)),
                                sbit__attr_int("block_size", sbit_node_int(node, "block_size", 0))};
    for (size_t i = 0; i < 4; i++) {
        inputs[i] = sbit__expand_in(&e, SBIT__NBITS_B + i);
    }
    sbit__expand_node(&e, "sbit", "NBitsWeight", inputs, 4, &w, 1, attrs, 4);
    y = sbit__expand_op(&e, "MatMul", node->inputs[SBIT__NBITS_A], w, NULL,
                        bias.idx == 0 ? out : none);
    if (bias.idx != 0) {
        (void)sbit__expand_op(&e, "Add", y, bias, NULL, out);
    }
    return e.status;
}

/* Inputs A, B, B's scale, B's zero point, bias. */
static sbit_status sbit__dynamic_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 5, error));
    SBIT__TRY(sbit__op_dtypes(call, 2u, SBIT_T(SBIT_I8) | SBIT_T(SBIT_U8), error));
    const sbit_type *a = call->in_type[0], *b = call->in_type[1];
    if (a->rank == 0 || (b->rank >= 0 && b->rank != 2)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "B is a matrix, A has columns");
    }
    sbit__nbits_product(call, b->rank == 2 ? b->dims[1] : sbit__dim_any());
    return SBIT_OK;
}

static sbit_status sbit__dynamic_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id out = sbit__expand_out(&e, 0);
    sbit_value_id q[3], inputs[7];
    for (size_t i = 0; i < 3; i++) {
        q[i] = sbit__expand_value(&e, e.node.name);
    }
    sbit__expand_node(&e, "", "DynamicQuantizeLinear", e.node.inputs, 1, q, 3, NULL, 0);
    inputs[0] = q[0];
    inputs[1] = e.node.inputs[1];
    inputs[2] = q[1];
    inputs[3] = e.node.inputs[2];
    inputs[4] = q[2];
    inputs[5] = sbit__expand_in(&e, 3);
    inputs[6] = sbit__expand_in(&e, 4);
    sbit__expand_node(&e, "com.microsoft", "MatMulIntegerToFloat", inputs, 7, &out, 1, NULL, 0);
    return e.status;
}

/* >>rows */
static int64_t sbit__nbits_macs(const sbit_op_call *call)
{
    const sbit_type *a = call->in_type[0], *y = call->out_type[0];
    return a->rank > 0 && sbit__dim_known(a->dims[a->rank - 1])
               ? sbit__saturating_mul(sbit__type_size(y), a->dims[a->rank - 1].value)
               : 0;
}

static const sbit_op_row sbit__nbits_table[] = {
    {"com.microsoft", "MatMulNBits", 1, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16), 0,
     NULL, sbit__nbits_infer, NULL, NULL, NULL, sbit__nbits_expand, NULL, NULL, sbit__nbits_macs},
    {"com.microsoft", "DynamicQuantizeMatMul", 1, SBIT_T(SBIT_F32), SBIT_OP_INTEGERS, NULL,
     sbit__dynamic_infer, NULL, NULL, NULL, sbit__dynamic_expand, NULL, NULL, sbit__nbits_macs},
    {"sbit", "NBitsWeight", 1, SBIT_T(SBIT_U8), 0, NULL, sbit__nbits_weight_infer, NULL,
     sbit__nbits_weight_run, NULL, NULL, NULL, NULL, NULL},
};

SBIT__FN const sbit_op_row *sbit__op_rows_nbits(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__nbits_table);
    return sbit__nbits_table;
}

#endif /* SPARSEBIT_NO_OPS_MICROSOFT */
