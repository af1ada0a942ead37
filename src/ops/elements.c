/* elements.c: optional inputs, symbolic arithmetic, strided loops and element copies. >>elements
 *
 * Called by: the operator families that move or combine elements. Calls: ops/common.c.
 * Does: what many operators need in the same way. Does not: know any operator.
 * Types of 2 and 4 bits are packed from the low bits of each byte up, as in raw_data.
 */
#include "elements_private.h"

/* >>inputs and outputs */

SBIT__FN const sbit_type *sbit__in_type(const sbit_op_call *call, int32_t i)
{
    return i >= 0 && i < call->input_count ? call->in_type[i] : NULL;
}

SBIT__FN const sbit_tensor *sbit__in(const sbit_op_call *call, int32_t i)
{
    return i >= 0 && i < call->input_count && call->in != NULL ? call->in[i] : NULL;
}

SBIT__FN sbit_tensor *sbit__out(const sbit_op_call *call, int32_t i)
{
    return i >= 0 && i < call->output_count && call->out != NULL ? call->out[i] : NULL;
}

SBIT__FN bool sbit__op_constant(const sbit_op_call *call, int32_t i)
{
    const sbit_tensor *tensor = sbit__in(call, i);
    return tensor != NULL && tensor->data != NULL;
}

SBIT__FN sbit_dtype sbit__in_dtype(const sbit_op_call *call, int32_t i)
{
    const sbit_type *type = sbit__in_type(call, i);
    return type != NULL ? type->dtype : SBIT_UNDEFINED;
}

SBIT__FN sbit_status sbit__op_one_dtype(const sbit_op_call *call, int32_t first, int32_t last,
                                        sbit_error *error)
{
    sbit_dtype dtype = SBIT_UNDEFINED;
    for (int32_t i = first; i <= last && i < call->input_count; i++) {
        const sbit_dtype other = sbit__in_dtype(call, i);
        if (other == SBIT_UNDEFINED) {
            continue;
        }
        if (dtype != SBIT_UNDEFINED && dtype != other) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "its inputs have element types %s and %s",
                                sbit_dtype_name((int32_t)dtype), sbit_dtype_name((int32_t)other));
        }
        dtype = other;
    }
    return SBIT_OK;
}

static bool sbit__op_output_planned(const sbit_tensor *tensor, sbit_dtype dtype, int32_t rank,
                                    const int64_t *dims)
{
    int64_t count = 1;
    if (tensor->dtype != dtype || tensor->rank != rank) {
        return false;
    }
    for (int32_t i = 0; i < rank; i++) {
        if (tensor->dims[i] != dims[i]) {
            return false;
        }
        count *= dims[i];
    }
    return tensor->data != NULL || count == 0;
}

SBIT__FN sbit_status sbit__op_output(const sbit_op_call *call, int32_t i, sbit_dtype dtype,
                                     int32_t rank, const int64_t *dims, sbit_tensor **out,
                                     sbit_error *error)
{
    *out = sbit__out(call, i);
    if (*out == NULL || sbit__op_output_planned(*out, dtype, rank, dims)) {
        return SBIT_OK;
    }
    if (call->alloc_output == NULL) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "output %d has another shape than was planned", (int)i);
    }
    SBIT__TRY(call->alloc_output(call, i, -1, dtype, rank, dims, error));
    *out = call->out[i];
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_scalar(const sbit_op_call *call, int32_t i, int64_t otherwise,
                                     int64_t *out, sbit_error *error)
{
    const sbit_tensor *tensor = sbit__in(call, i);
    *out = otherwise;
    if (tensor == NULL) {
        return SBIT_OK;
    }
    if (sbit_tensor_count(tensor) != 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d must be one number", (int)i);
    }
    if ((SBIT_T(tensor->dtype) & (SBIT_T_INTS | SBIT_T_FLOATS | SBIT_T(SBIT_BOOL))) == 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d must be a number, not %s",
                            (int)i, sbit_dtype_name((int32_t)tensor->dtype));
    }
    *out = sbit__tensor_i64_at(tensor, 0);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_output_type(const sbit_op_call *call, int32_t i,
                                          const sbit_type *type, sbit_tensor **out,
                                          sbit_error *error)
{
    int64_t dims[SBIT_MAX_RANK];
    *out = NULL;
    for (int32_t d = 0; d < type->rank; d++) {
        dims[d] = type->dims[d].value;
    }
    if (!sbit__type_static(type)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the shape of output %d is not known",
                            (int)i);
    }
    return sbit__op_output(call, i, type->dtype, type->rank, dims, out, error);
}

SBIT__FN bool sbit__op_elems_view(const sbit_op_call *call, int32_t i, sbit__elems *out)
{
    const sbit_tensor *tensor = sbit__in(call, i);
    if (i < 0 || i >= call->input_count) {
        return false;
    }
    out->dims = call->in_elems != NULL ? call->in_elems[i] : NULL;
    out->tensor = tensor;
    if (out->dims != NULL) {
        out->count = call->in_elem_count[i];
        return true;
    }
    if (tensor == NULL || tensor->rank > 1 ||
        (SBIT_T(tensor->dtype) & (SBIT_T_INTS | SBIT_T(SBIT_BOOL))) == 0) {
        return false;
    }
    out->count = sbit_tensor_count(tensor);
    return out->count <= SBIT__ELEMS_MAX;
}

SBIT__FN sbit_dim sbit__elems_at(const sbit__elems *elems, int64_t k)
{
    return elems->dims != NULL ? elems->dims[k] : sbit__dim(sbit__tensor_i64_at(elems->tensor, k));
}

SBIT__FN bool sbit__op_elems(const sbit_op_call *call, int32_t i, sbit_dim *elems, int64_t capacity,
                             int64_t *count)
{
    sbit__elems view;
    if (!sbit__op_elems_view(call, i, &view) || view.count > capacity) {
        return false;
    }
    for (int64_t k = 0; k < view.count; k++) {
        elems[k] = sbit__elems_at(&view, k);
    }
    *count = view.count;
    return true;
}

SBIT__FN void sbit__op_set_elems(const sbit_op_call *call, int32_t output, const sbit_dim *elems,
                                 int64_t count)
{
    if (call->set_elems != NULL && output < call->output_count && call->out_type[output] != NULL) {
        call->set_elems(call, output, elems, count);
    }
}

/* >>symbolic arithmetic */

SBIT__FN sbit_dim sbit__dim_add(sbit_dim a, sbit_dim b)
{
    int64_t sum = 0;
    if (sbit__dim_known(a) && sbit__dim_known(b)) {
        return sbit__add_i64(a.value, b.value, &sum) ? sbit__dim(sum) : sbit__dim_any();
    }
    if (sbit__dim_known(a) && a.value == 0) {
        return b;
    }
    return sbit__dim_known(b) && b.value == 0 ? a : sbit__dim_any();
}

SBIT__FN sbit_dim sbit__dim_sub(sbit_dim a, sbit_dim b)
{
    if (sbit__dim_known(b) && b.value != INT64_MIN) {
        return sbit__dim_add(a, sbit__dim(-b.value));
    }
    return sbit__dim_equal(a, b) ? sbit__dim(0) : sbit__dim_any();
}

SBIT__FN sbit_dim sbit__dim_mul(sbit_dim a, sbit_dim b)
{
    int64_t product = 0;
    if (sbit__dim_known(a) && sbit__dim_known(b)) {
        return sbit__mul_i64(a.value, b.value, &product) ? sbit__dim(product) : sbit__dim_any();
    }
    if (sbit__dim_known(a) && (a.value == 0 || a.value == 1)) {
        return a.value == 0 ? a : b;
    }
    if (sbit__dim_known(b) && (b.value == 0 || b.value == 1)) {
        return b.value == 0 ? b : a;
    }
    return sbit__dim_any();
}

SBIT__FN sbit_dim sbit__dim_div(sbit_dim a, sbit_dim b)
{
    if (!sbit__dim_known(b) || b.value == 0) {
        return sbit__dim_any();
    }
    if (b.value == 1) {
        return a;
    }
    if (!sbit__dim_known(a) || (a.value == INT64_MIN && b.value == -1)) {
        return sbit__dim_any();
    }
    return sbit__dim(a.value / b.value);
}

SBIT__FN sbit_dim sbit__dim_product(const sbit_dim *dims, int32_t count)
{
    sbit_dim product = sbit__dim(1);
    for (int32_t i = 0; i < count; i++) {
        if (sbit__dim_known(dims[i]) && dims[i].value == 0) {
            return dims[i];
        }
    }
    for (int32_t i = 0; i < count; i++) {
        product = sbit__dim_mul(product, dims[i]);
    }
    return product;
}

/* >>elements */

SBIT__FN size_t sbit__elem_bytes(sbit_dtype dtype)
{
    return dtype == SBIT_STRING ? sizeof(sbit_str) : (size_t)sbit_dtype_bits((int32_t)dtype) / 8;
}

SBIT__FN void *sbit__elem_at(sbit_dtype dtype, void *data, int64_t index)
{
    return (uint8_t *)data + (size_t)index * sbit__elem_bytes(dtype);
}

SBIT__FN const void *sbit__elem_at_const(sbit_dtype dtype, const void *data, int64_t index)
{
    return (const uint8_t *)data + (size_t)index * sbit__elem_bytes(dtype);
}

SBIT__FN void sbit__elem_copy(sbit_dtype dtype, void *dst, int64_t to, const void *src,
                              int64_t from, int64_t n)
{
    const size_t each = sbit__elem_bytes(dtype);
    const int bits = sbit_dtype_bits((int32_t)dtype);
    if (n <= 0) {
        return;
    }
    if (each != 0) {
        memcpy((uint8_t *)dst + (size_t)to * each, (const uint8_t *)src + (size_t)from * each,
               (size_t)n * each);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        sbit__packed_set(dst, to + i, bits, sbit__packed_at(src, from + i, bits));
    }
}

SBIT__FN void sbit__elem_fill(sbit_dtype dtype, void *dst, int64_t to, int64_t n, const void *src,
                              int64_t from)
{
    if (n <= 0) {
        return;
    }
    if (sbit__elem_bytes(dtype) == 0) {
        for (int64_t i = 0; i < n; i++) {
            sbit__elem_copy(dtype, dst, to + i, src, from, 1);
        }
        return;
    }
    sbit__elem_copy(dtype, dst, to, src, from, 1);
    for (int64_t done = 1; done < n;) { /* doubling keeps the copies long */
        const int64_t more = done < n - done ? done : n - done;
        sbit__elem_copy(dtype, dst, to + done, dst, to, more);
        done += more;
    }
}

SBIT__FN void sbit__elem_zero(sbit_dtype dtype, void *dst, int64_t to, int64_t n)
{
    const size_t each = sbit__elem_bytes(dtype);
    if (n <= 0) {
        return;
    }
    if (dtype == SBIT_STRING) {
        const sbit_str empty = sbit__str("");
        for (int64_t i = 0; i < n; i++) {
            ((sbit_str *)dst)[to + i] = empty;
        }
    } else if (each != 0) {
        memset((uint8_t *)dst + (size_t)to * each, 0, (size_t)n * each);
    } else {
        for (int64_t i = 0; i < n; i++) {
            sbit__packed_set(dst, to + i, sbit_dtype_bits((int32_t)dtype), 0);
        }
    }
}

SBIT__FN void sbit__elem_copy_all(const sbit_tensor *from, sbit_tensor *to)
{
    const size_t bytes = sbit_tensor_bytes(from);
    if (bytes > 0 && from->data != to->data) {
        memcpy(to->data, from->data, bytes);
    }
}

/* >>loops */

SBIT__FN void sbit__loop_init(sbit__loop *loop, int32_t rank, const int64_t *dims, int32_t operands,
                              const int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK])
{
    memset(loop, 0, sizeof *loop);
    loop->operands = operands;
    for (int32_t d = 0; d < rank; d++) {
        bool joins = loop->rank > 0;
        if (dims[d] == 1) {
            continue;
        }
        for (int32_t k = 0; joins && k < operands; k++) {
            joins = loop->strides[k][loop->rank - 1] == strides[k][d] * dims[d];
        }
        loop->rank += joins ? 0 : 1;
        loop->dims[loop->rank - 1] = joins ? loop->dims[loop->rank - 1] * dims[d] : dims[d];
        for (int32_t k = 0; k < operands; k++) {
            loop->strides[k][loop->rank - 1] = strides[k][d];
        }
    }
    if (loop->rank == 0) {
        loop->rank = 1;
        loop->dims[0] = 1;
    }
    loop->inner = loop->dims[loop->rank - 1];
    loop->outer = sbit__dims_product(loop->dims, 0, loop->rank - 1);
}

SBIT__FN void sbit__loop_row(const sbit__loop *loop, int64_t row,
                             int64_t offsets[SBIT__LOOP_OPERANDS])
{
    memset(offsets, 0, SBIT__LOOP_OPERANDS * sizeof offsets[0]);
    for (int32_t d = loop->rank - 2; d >= 0; d--) {
        const int64_t index = row % loop->dims[d];
        row /= loop->dims[d];
        for (int32_t k = 0; k < loop->operands; k++) {
            offsets[k] += index * loop->strides[k][d];
        }
    }
}

SBIT__FN sbit_status sbit__op_strides(const sbit_op_call *call, const sbit_tensor *tensor,
                                      int32_t align, int32_t rank, const int64_t *dims,
                                      int64_t strides[SBIT_MAX_RANK], sbit_error *error)
{
    const int32_t first = align < 0 ? rank - tensor->rank : align;
    int64_t own[SBIT_MAX_RANK];
    memset(strides, 0, SBIT_MAX_RANK * sizeof strides[0]);
    sbit__tensor_strides(tensor, own);
    for (int32_t i = 0; i < tensor->rank; i++) {
        const int32_t d = first + i;
        if (tensor->dims[i] == 1) {
            continue;
        }
        if (d < 0 || d >= rank || tensor->dims[i] != dims[d]) {
            char text[96];
            sbit_tensor_describe(tensor, text, sizeof text);
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%s does not broadcast to the output",
                                text);
        }
        strides[d] = own[i];
    }
    return SBIT_OK;
}

SBIT__FN int64_t sbit__dims_product(const int64_t *dims, int32_t begin, int32_t end)
{
    int64_t product = 1;
    for (int32_t i = begin; i < end; i++) {
        product *= dims[i];
    }
    return product;
}

typedef struct sbit__blocks_task {
    sbit__block_fn fn;
    void *task;
    int64_t n;
} sbit__blocks_task;

static void sbit__blocks_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__blocks_task *blocks = (const sbit__blocks_task *)data;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t stop = (i + 1) * SBIT__BLOCK;
        blocks->fn(blocks->task, i * SBIT__BLOCK, stop < blocks->n ? stop : blocks->n);
    }
}

SBIT__FN void sbit__parallel_blocks(sbit_ctx *ctx, int64_t n, sbit__block_fn fn, void *task)
{
    sbit__blocks_task blocks;
    blocks.fn = fn;
    blocks.task = task;
    blocks.n = n;
    if (n > 0) {
        sbit__parallel_range(ctx, (n + SBIT__BLOCK - 1) / SBIT__BLOCK, 4, sbit__blocks_range,
                             &blocks);
    }
}
