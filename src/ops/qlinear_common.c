/* qlinear_common.c: quantization parameters, layouts and shapes of the integer operators.
 *
 * Called by: ops/qlinear*.c. Calls: kernels, the rows of the float operators for shapes.
 */
#include "qlinear_private.h"

/* >>parameters */

SBIT__FN sbit_status sbit__q_param_of(const sbit_op_call *call, int32_t scale, int32_t zero,
                                      sbit_dtype dtype, sbit__q_param *out, sbit_error *error)
{
    const sbit_tensor *s = sbit__in(call, scale), *z = sbit__in(call, zero);
    if (s == NULL || sbit_tensor_count(s) != 1 || (z != NULL && sbit_tensor_count(z) != 1)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "scale (input %d) and zero point (input %d) must have one element",
                            (int)scale, (int)zero);
    }
    out->scale = (float)sbit__tensor_f64_at(s, 0);
    out->zero = z != NULL ? (int32_t)sbit__tensor_i64_at(z, 0) : 0;
    out->flip = 0;
    if (dtype == SBIT_I8) {
        out->zero += 128;
        out->flip = 0x80;
    }
    return SBIT_OK;
}

SBIT__FN sbit__q8_store sbit__q_store_of(const sbit_op_call *call, const char *lo, const char *hi)
{
    sbit__q8_store store;
    store.kind = SBIT__Q8_U8;
    store.fits = false;
    store.zero = 0;
    store.lo = (int32_t)sbit_node_int(call->node, lo, 0);
    store.hi = (int32_t)sbit_node_int(call->node, hi, 255);
    return store;
}

SBIT__FN bool sbit__q_channels_last(const sbit_op_call *call)
{
    return sbit_node_int(call->node, "channels_last", 0) != 0;
}

SBIT__FN bool sbit__q_is(const sbit_op_call *call, const char *name)
{
    const char *own = call->row->op_type;
    own += strncmp(own, "QLinear", 7) == 0 ? 7 : own[0] == 'Q' ? 1 : 0;
    return strcmp(own, name) == 0;
}

/* >>shapes */

SBIT__FN void sbit__q_type_to_first(sbit_type *type)
{
    if (type->rank > 2) {
        const sbit_dim channels = type->dims[type->rank - 1];
        memmove(&type->dims[2], &type->dims[1], (size_t)(type->rank - 2) * sizeof channels);
        type->dims[1] = channels;
    }
}

SBIT__FN void sbit__q_type_to_last(sbit_type *type)
{
    if (type->rank > 2) {
        const sbit_dim channels = type->dims[1];
        memmove(&type->dims[1], &type->dims[2], (size_t)(type->rank - 2) * sizeof channels);
        type->dims[type->rank - 1] = channels;
    }
}

SBIT__FN void sbit__q_view_init(const sbit_op_call *call, const char *op_type, int32_t version,
                                const int32_t *inputs, int32_t count, bool channels_last,
                                sbit__q_view *view)
{
    memset(view, 0, sizeof *view);
    view->call = *call;
    view->call.row = sbit_operator_find(call->ctx, "", op_type, version);
    view->call.opset = version;
    for (int32_t i = 0; i < count; i++) {
        const sbit_type *type = sbit__in_type(call, inputs[i]);
        if (type == NULL) {
            continue;
        }
        view->types[i] = *type;
        view->types[i].dtype = type->dtype == SBIT_UNDEFINED ? SBIT_UNDEFINED : SBIT_F32;
        view->in_type[i] = &view->types[i];
        if (channels_last && i == 0) {
            sbit__q_type_to_first(&view->types[i]);
        }
        view->call.input_count = i + 1;
    }
    view->out = sbit__type_unknown();
    view->out_type[0] = &view->out;
    view->call.in_type = view->in_type;
    view->call.out_type = view->out_type;
    view->call.output_count = 1;
    view->call.in = view->in;
    view->call.in_elems = NULL;
    view->call.in_elem_count = NULL;
}

SBIT__FN sbit_status sbit__q_infer_as(const sbit_op_call *call, const char *op_type,
                                      int32_t version, const int32_t *inputs, int32_t count,
                                      sbit_dtype dtype, sbit_error *error)
{
    sbit__q_view view;
    const bool last = sbit__q_channels_last(call);
    sbit__q_view_init(call, op_type, version, inputs, count, last, &view);
    SBIT__TRY(view.call.row->infer(&view.call, error));
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        *call->out_type[0] = view.out;
        call->out_type[0]->dtype = dtype;
        if (last) {
            sbit__q_type_to_last(call->out_type[0]);
        }
    }
    return SBIT_OK;
}

/* >>layouts */

/* 8 bytes, or as many as are left. */
static uint64_t sbit__q_load8(const uint8_t *x, int64_t left)
{
    uint64_t word = 0;
    if (left >= 8) { /* one load to compilers */
        return (uint64_t)x[0] | (uint64_t)x[1] << 8 | (uint64_t)x[2] << 16 | (uint64_t)x[3] << 24 |
               (uint64_t)x[4] << 32 | (uint64_t)x[5] << 40 | (uint64_t)x[6] << 48 |
               (uint64_t)x[7] << 56;
    }
    for (int64_t i = 0; i < left; i++) {
        word |= (uint64_t)x[i] << (8 * i);
    }
    return word;
}

static void sbit__q_store8(uint64_t word, uint8_t *y, int64_t left)
{
    if (left >= 8) {
        y[0] = (uint8_t)word;
        y[1] = (uint8_t)(word >> 8);
        y[2] = (uint8_t)(word >> 16);
        y[3] = (uint8_t)(word >> 24);
        y[4] = (uint8_t)(word >> 32);
        y[5] = (uint8_t)(word >> 40);
        y[6] = (uint8_t)(word >> 48);
        y[7] = (uint8_t)(word >> 56);
        return;
    }
    for (int64_t i = 0; i < left; i++) {
        y[i] = (uint8_t)(word >> (8 * i));
    }
}

/* Bytes `shift` bits up in a and at the mask in b change places. */
#define SBIT__Q_SWAP(a, b, shift, mask)                                                            \
    do {                                                                                           \
        const uint64_t both = (((a) >> (shift)) ^ (b)) & (mask);                                   \
        (b) ^= both;                                                                               \
        (a) ^= both << (shift);                                                                    \
    } while (0)

/* y[j][i] = x[i][j] ^ flip. Squares of 8 bytes; the last ones overlap those before. Of fewer than 8
 * rows or columns, what a word holds too much is not used, or written again by the next column. */
static void sbit__q_transpose(int64_t rows, int64_t columns, const uint8_t *x, uint8_t flip,
                              uint8_t *y)
{
    const int64_t all = rows * columns, height = rows < 8 ? rows : 8;
    const int64_t width = columns < 8 ? columns : 8;
    for (int64_t j = 0; rows == 3 && j < columns; j++) { /* pictures */
        y[3 * j] = (uint8_t)(x[j] ^ flip);
        y[3 * j + 1] = (uint8_t)(x[columns + j] ^ flip);
        y[3 * j + 2] = (uint8_t)(x[2 * columns + j] ^ flip);
    }
    if (rows == 3) {
        return;
    }
    for (int64_t j0 = 0; j0 < columns; j0 += 8) {
        const int64_t j = j0 + width <= columns ? j0 : columns - width;
        for (int64_t i0 = 0; i0 < rows; i0 += 8) {
            const int64_t i = i0 + height <= rows ? i0 : rows - height;
            uint64_t w[8] = {0};
            for (int64_t k = 0; k < height; k++) {
                const int64_t at = (i + k) * columns + j;
                w[k] = sbit__q_load8(x + at, all - at) ^ flip * (uint64_t)0x0101010101010101;
            }
            SBIT__Q_SWAP(w[0], w[4], 32, (uint64_t)0x00000000ffffffff);
            SBIT__Q_SWAP(w[1], w[5], 32, (uint64_t)0x00000000ffffffff);
            SBIT__Q_SWAP(w[2], w[6], 32, (uint64_t)0x00000000ffffffff);
            SBIT__Q_SWAP(w[3], w[7], 32, (uint64_t)0x00000000ffffffff);
            SBIT__Q_SWAP(w[0], w[2], 16, (uint64_t)0x0000ffff0000ffff);
            SBIT__Q_SWAP(w[1], w[3], 16, (uint64_t)0x0000ffff0000ffff);
            SBIT__Q_SWAP(w[4], w[6], 16, (uint64_t)0x0000ffff0000ffff);
            SBIT__Q_SWAP(w[5], w[7], 16, (uint64_t)0x0000ffff0000ffff);
            SBIT__Q_SWAP(w[0], w[1], 8, (uint64_t)0x00ff00ff00ff00ff);
            SBIT__Q_SWAP(w[2], w[3], 8, (uint64_t)0x00ff00ff00ff00ff);
            SBIT__Q_SWAP(w[4], w[5], 8, (uint64_t)0x00ff00ff00ff00ff);
            SBIT__Q_SWAP(w[6], w[7], 8, (uint64_t)0x00ff00ff00ff00ff);
            for (int64_t k = 0; k < width; k++) {
                const int64_t at = (j + k) * rows + i;
                sbit__q_store8(w[k], y + at, all - at);
            }
        }
    }
}

#undef SBIT__Q_SWAP

SBIT__FN void sbit__q_to_last(int64_t n, int64_t channels, int64_t positions, const uint8_t *x,
                              uint8_t flip, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i * channels * positions;
        sbit__q_transpose(channels, positions, x + at, flip, y + at);
    }
}

SBIT__FN void sbit__q_to_first(int64_t n, int64_t channels, int64_t positions, const uint8_t *x,
                               uint8_t flip, uint8_t *y)
{
    sbit__q_to_last(n, positions, channels, x, flip, y);
}

SBIT__FN void sbit__q_flip(int64_t n, const uint8_t *x, uint8_t flip, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = (uint8_t)(x[i] ^ flip);
    }
}

/* >>tables */

SBIT__FN void sbit__q_table(const sbit__q_param *x, const sbit__q_param *y, sbit__q_unary_fn op,
                            float alpha, uint8_t table[256])
{
    const sbit_kernels *scalar = sbit__kernels_of(SBIT_ISA_SCALAR);
    uint8_t bytes[256];
    float values[256];
    for (int32_t i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
    }
    scalar->f32_dequantize_u8(256, bytes, x->scale, x->zero, values);
    if (op != NULL) {
        op(scalar, alpha, 256, values);
    }
    scalar->f32_quantize_u8(256, values, y->scale, y->zero, 0, 255, bytes);
    for (int32_t i = 0; i < 256; i++) {
        table[i ^ x->flip] = (uint8_t)(bytes[i] ^ y->flip);
    }
}
