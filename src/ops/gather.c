/* gather.c: operators whose places are data: Gather, GatherElements, GatherND, Scatter,
 * ScatterElements, ScatterND, TensorScatter, Compress. >>gather
 *
 * Called by: exec through the rows. Calls: elements.
 * Does: every element type; negative indices count from the end, an index outside of its axis is
 * an error (never a wild read); updates are applied in order, so that results do not depend on
 * threads; reductions in 64 bits or double, rounded to the type after each update.
 * Gather follows the elements of small integer tensors: Shape - Gather is how dims are picked.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

static const char sbit__gather_outside[] = "index %lld is outside of an axis of size %lld";

/* Index number i of `indices`, counted from the end if negative. */
static sbit_status sbit__gather_index(const sbit_op_call *call, const sbit_tensor *indices,
                                      int64_t i, int64_t size, int64_t *out, sbit_error *error)
{
    const int64_t index = sbit__tensor_i64_at(indices, i);
    if (index < -size || index >= size) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, sbit__gather_outside, (long long)index,
                            (long long)size);
    }
    *out = index < 0 ? index + size : index;
    return SBIT_OK;
}

/* >>Gather */

static sbit_status sbit__gather_axis(const sbit_op_call *call, int32_t rank, int32_t *axis,
                                     sbit_error *error)
{
    if (rank < 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the data is a scalar");
    }
    return sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), rank, axis, error);
}

static sbit_status sbit__gather_elems(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim index[SBIT__ELEMS_MAX];
    sbit__elems data;
    int64_t m = 0;
    if (!sbit__op_elems_view(call, 0, &data) ||
        !sbit__op_elems(call, 1, index, SBIT__ELEMS_MAX, &m)) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < m; i++) {
        const int64_t at = index[i].value;
        if (!sbit__dim_known(index[i])) {
            return SBIT_OK;
        }
        if (at < -data.count || at >= data.count) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, sbit__gather_outside, (long long)at,
                                (long long)data.count);
        }
        index[i] = sbit__elems_at(&data, at < 0 ? at + data.count : at);
    }
    sbit__op_set_elems(call, 0, index, m);
    return SBIT_OK;
}

static sbit_status sbit__gather_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = NULL, *indices = NULL;
    sbit_type *out = NULL;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    x = call->in_type[0];
    indices = call->in_type[1];
    out = sbit__op_out(call, 0, x->dtype, -1);
    if (out == NULL || x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__gather_axis(call, x->rank, &axis, error));
    if (indices->rank < 0) {
        return SBIT_OK;
    }
    if (x->rank - 1 + indices->rank > SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "the output's rank is above %d",
                            SBIT_MAX_RANK);
    }
    out->rank = x->rank - 1 + indices->rank;
    for (int32_t i = 0; i < out->rank; i++) {
        out->dims[i] = i < axis                   ? x->dims[i]
                       : i < axis + indices->rank ? indices->dims[i - axis]
                                                  : x->dims[i - indices->rank + 1];
    }
    return x->rank == 1 && out->rank <= 1 ? sbit__gather_elems(call, error) : SBIT_OK;
}

typedef struct sbit__gather_task {
    const sbit_tensor *x, *indices;
    sbit_tensor *y;
    int64_t count, size, inner; /* indices; the axis; elements behind it */
} sbit__gather_task;

static void sbit__gather_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__gather_task *task = (const sbit__gather_task *)data;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t outer = i / task->count;
        int64_t index = sbit__tensor_i64_at(task->indices, i % task->count);
        index += index < 0 ? task->size : 0;
        sbit__elem_copy(task->x->dtype, task->y->data, i * task->inner, task->x->data,
                        (outer * task->size + index) * task->inner, task->inner);
    }
}

static sbit_status sbit__gather_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__gather_task task;
    int32_t axis = 0;
    task.x = call->in[0];
    task.indices = call->in[1];
    task.y = call->out[0];
    if (task.y == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__gather_axis(call, task.x->rank, &axis, error));
    task.count = sbit_tensor_count(task.indices);
    task.size = task.x->dims[axis];
    task.inner = sbit__dims_product(task.x->dims, axis + 1, task.x->rank);
    for (int64_t i = 0; i < task.count; i++) {
        int64_t index = 0;
        SBIT__TRY(sbit__gather_index(call, task.indices, i, task.size, &index, error));
    }
    sbit__parallel_range(call->ctx, sbit__dims_product(task.x->dims, 0, axis) * task.count,
                         1 + 4 * SBIT__BLOCK / (task.inner > 0 ? task.inner : 1),
                         sbit__gather_range, &task);
    return SBIT_OK;
}

/* A table of constant rows makes channels; other gathers with constant indices move them. */
static sbit_status sbit__gather_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *x = call->op->in_type[0], *y = call->op->out_type[0];
    const int32_t *labels = NULL;
    int32_t axis = 0;
    if (call->is_constant(call, 1)) {
        return call->moves(call, error);
    }
    SBIT__TRY(sbit__gather_axis(call->op, x->rank, &axis, error));
    if (!call->is_constant(call, 0) || axis != 0 || x->rank != 2) {
        return call->stop(call, "gathers at places that are known only while running", error);
    }
    SBIT__TRY(call->labels(call, 0, 1, 1, SBIT_ROLE_ROWS, &labels, error));
    return call->produce(call, 0, y->rank - 1, labels, error);
}

/* >>elements: GatherElements and ScatterElements walk the indices' shape; the same coordinates,
 * with the axis replaced by the index, are the place in the data. */

typedef struct sbit__gather_walk {
    const sbit_tensor *data, *indices;
    int32_t axis;
    int64_t strides[SBIT_MAX_RANK];            /* of data; 0 for the axis */
    int64_t axis_stride, axis_size, rows, row; /* row: the last dim of indices */
} sbit__gather_walk;

static sbit_status sbit__gather_walk_init(const sbit_op_call *call, const sbit_tensor *data,
                                          const sbit_tensor *indices, sbit__gather_walk *walk,
                                          sbit_error *error)
{
    int32_t axis = 0;
    SBIT__TRY(sbit__gather_axis(call, data->rank, &axis, error));
    if (indices->rank != data->rank) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "indices of rank %d for data of rank %d",
                            (int)indices->rank, (int)data->rank);
    }
    for (int32_t i = 0; i < data->rank; i++) {
        if (i != axis && indices->dims[i] > data->dims[i]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "axis %d of the indices is longer than the data's", (int)i);
        }
    }
    walk->data = data;
    walk->indices = indices;
    walk->axis = axis;
    sbit__tensor_strides(data, walk->strides);
    walk->axis_stride = walk->strides[axis];
    walk->axis_size = data->dims[axis];
    walk->strides[axis] = 0;
    walk->row = indices->dims[indices->rank - 1];
    walk->rows = sbit__dims_product(indices->dims, 0, indices->rank - 1);
    return SBIT_OK;
}

/* Where row number `row` begins in the data, but for the index. */
static int64_t sbit__gather_walk_row(const sbit__gather_walk *walk, int64_t row)
{
    int64_t at = 0;
    for (int32_t d = walk->indices->rank - 2; d >= 0; d--) {
        at += (row % walk->indices->dims[d]) * walk->strides[d];
        row /= walk->indices->dims[d];
    }
    return at;
}

static sbit_status sbit__gather_elements_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), call->in_type[1]->rank);
    if (out != NULL && out->rank >= 0) {
        memcpy(out->dims, call->in_type[1]->dims, sizeof out->dims);
    }
    return SBIT_OK;
}

static sbit_status sbit__gather_elements_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__gather_walk walk;
    sbit_tensor *y = call->out[0];
    SBIT__TRY(sbit__gather_walk_init(call, call->in[0], call->in[1], &walk, error));
    if (y == NULL) {
        return SBIT_OK;
    }
    const int64_t step = walk.strides[y->rank - 1];
    for (int64_t r = 0; r < walk.rows; r++) {
        const int64_t base = sbit__gather_walk_row(&walk, r);
        for (int64_t i = 0; i < walk.row; i++) {
            const int64_t k = r * walk.row + i;
            int64_t index = 0;
            SBIT__TRY(sbit__gather_index(call, walk.indices, k, walk.axis_size, &index, error));
            sbit__elem_copy(y->dtype, y->data, k, walk.data->data,
                            base + i * step + index * walk.axis_stride, 1);
        }
    }
    return SBIT_OK;
}

/* >>reductions */

typedef enum sbit__scatter_op {
    SBIT__SCATTER_NONE,
    SBIT__SCATTER_ADD,
    SBIT__SCATTER_MUL,
    SBIT__SCATTER_MAX,
    SBIT__SCATTER_MIN
} sbit__scatter_op;

static sbit_status sbit__scatter_op_of(const sbit_op_call *call, sbit_dtype dtype,
                                       sbit__scatter_op *op, sbit_error *error)
{
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    int32_t word = 0;
    SBIT__TRY(sbit__op_word(call, "reduction", names, 5, &word, error));
    *op = (sbit__scatter_op)word;
    return word == 0 || (SBIT_T(dtype) & (SBIT_T_NUMBERS | SBIT_T(SBIT_BOOL))) != 0
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "reduction='%s' of %s",
                              names[word], sbit_dtype_name((int32_t)dtype));
}

static double sbit__scatter_f64(sbit__scatter_op op, double a, double b)
{
    switch (op) {
    case SBIT__SCATTER_ADD:
        return a + b;
    case SBIT__SCATTER_MUL:
        return a * b;
    case SBIT__SCATTER_MAX:
        return a > b || a != a ? a : b;
    case SBIT__SCATTER_MIN:
        return a < b || a != a ? a : b;
    default:
        return b;
    }
}

static int64_t sbit__scatter_i64(sbit__scatter_op op, bool is_unsigned, int64_t a, int64_t b)
{
    const bool above = is_unsigned ? (uint64_t)a > (uint64_t)b : a > b;
    switch (op) {
    case SBIT__SCATTER_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SBIT__SCATTER_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case SBIT__SCATTER_MAX:
        return above ? a : b;
    case SBIT__SCATTER_MIN:
        return above ? b : a;
    default:
        return b;
    }
}

/* y[to + i] = op(y[to + i], u[from + i]) for n elements. */
static void sbit__scatter_apply(sbit__scatter_op op, sbit_tensor *y, int64_t to,
                                const sbit_tensor *u, int64_t from, int64_t n)
{
    if (op == SBIT__SCATTER_NONE) {
        sbit__elem_copy(y->dtype, y->data, to, u->data, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if ((SBIT_T(y->dtype) & SBIT_T_FLOATS) != 0) {
            sbit__tensor_set_f64(y, to + i,
                                 sbit__scatter_f64(op, sbit__tensor_f64_at(y, to + i),
                                                   sbit__tensor_f64_at(u, from + i)));
        } else {
            const int64_t value =
                sbit__scatter_i64(op, (SBIT_T(y->dtype) & SBIT_T_UNSIGNED) != 0,
                                  sbit__tensor_i64_at(y, to + i), sbit__tensor_i64_at(u, from + i));
            sbit__convert(SBIT_I64, &value, y->dtype, sbit__elem_at(y->dtype, y->data, to + i), 1);
        }
    }
}

/* >>ScatterElements, Scatter */

static sbit_status sbit__scatter_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    if (sbit__in_dtype(call, 0) != sbit__in_dtype(call, 2) &&
        sbit__in_dtype(call, 0) != SBIT_UNDEFINED && sbit__in_dtype(call, 2) != SBIT_UNDEFINED) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "data and updates differ in element type");
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__scatter_elements_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *updates = call->in[2];
    sbit_tensor *y = call->out[0];
    sbit__scatter_op op = SBIT__SCATTER_NONE;
    sbit__gather_walk walk;
    SBIT__TRY(sbit__scatter_op_of(call, call->in[0]->dtype, &op, error));
    SBIT__TRY(sbit__gather_walk_init(call, call->in[0], call->in[1], &walk, error));
    if (!sbit_tensor_same_shape(call->in[1], updates)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "indices and updates differ in shape");
    }
    if (y == NULL) {
        return SBIT_OK;
    }
    sbit__elem_copy_all(call->in[0], y);
    const int64_t step = walk.strides[y->rank - 1];
    for (int64_t r = 0; r < walk.rows; r++) {
        const int64_t base = sbit__gather_walk_row(&walk, r);
        for (int64_t i = 0; i < walk.row; i++) {
            const int64_t k = r * walk.row + i;
            int64_t index = 0;
            SBIT__TRY(sbit__gather_index(call, walk.indices, k, walk.axis_size, &index, error));
            sbit__scatter_apply(op, y, base + i * step + index * walk.axis_stride, updates, k, 1);
        }
    }
    return SBIT_OK;
}

/* >>GatherND, ScatterND: the last dim of the indices holds tuples that name slices of the data */

typedef struct sbit__gather_tuples {
    int32_t depth;        /* numbers in a tuple */
    int64_t count, slice; /* tuples; elements of a slice */
    int64_t strides[SBIT_MAX_RANK], sizes[SBIT_MAX_RANK];
} sbit__gather_tuples;

/* `first`: the data's dims before it are batch dims. */
static sbit_status sbit__gather_tuples_init(const sbit_op_call *call, const sbit_tensor *data,
                                            const sbit_tensor *indices, int32_t first,
                                            sbit__gather_tuples *tuples, sbit_error *error)
{
    int64_t strides[SBIT_MAX_RANK];
    const int64_t depth = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
    if (data->rank < 1 || indices->rank < 1 || depth < 0 || depth > data->rank - first) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "indices with %lld numbers each for data of rank %d", (long long)depth,
                            (int)data->rank);
    }
    sbit__tensor_strides(data, strides);
    tuples->depth = (int32_t)depth;
    tuples->count = sbit__dims_product(indices->dims, 0, indices->rank - 1);
    tuples->slice = sbit__dims_product(data->dims, first + (int32_t)depth, data->rank);
    for (int32_t i = 0; i < (int32_t)depth; i++) {
        tuples->strides[i] = strides[first + i];
        tuples->sizes[i] = data->dims[first + i];
    }
    return SBIT_OK;
}

static sbit_status sbit__gather_tuple(const sbit_op_call *call, const sbit__gather_tuples *tuples,
                                      const sbit_tensor *indices, int64_t number, int64_t *at,
                                      sbit_error *error)
{
    *at = 0;
    for (int32_t i = 0; i < tuples->depth; i++) {
        int64_t index = 0;
        SBIT__TRY(sbit__gather_index(call, indices, number * tuples->depth + i, tuples->sizes[i],
                                     &index, error));
        *at += index * tuples->strides[i];
    }
    return SBIT_OK;
}

static sbit_status sbit__gather_batch(const sbit_op_call *call, int32_t rank_x, int32_t rank_i,
                                      int32_t *batch, sbit_error *error)
{
    const int64_t dims = sbit_node_int(call->node, "batch_dims", 0);
    if (dims < 0 || dims >= rank_x || dims >= rank_i) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "batch_dims=%lld for data of rank %d and indices of rank %d",
                            (long long)dims, (int)rank_x, (int)rank_i);
    }
    *batch = (int32_t)dims;
    return SBIT_OK;
}

static sbit_status sbit__gather_nd_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = NULL, *indices = NULL;
    sbit_type *out = NULL;
    int32_t batch = 0;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    x = call->in_type[0];
    indices = call->in_type[1];
    out = sbit__op_out(call, 0, x->dtype, -1);
    if (out == NULL || x->rank < 0 || indices->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__gather_batch(call, x->rank, indices->rank, &batch, error));
    const sbit_dim depth = indices->dims[indices->rank - 1];
    if (!sbit__dim_known(depth)) {
        return SBIT_OK;
    }
    const int64_t rest = x->rank - batch - depth.value;
    if (depth.value < 0 || rest < 0 || indices->rank - 1 + rest > SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "indices with %lld numbers each for data of rank %d",
                            (long long)depth.value, (int)x->rank);
    }
    out->rank = indices->rank - 1 + (int32_t)rest;
    for (int32_t i = 0; i < out->rank; i++) {
        out->dims[i] = i < indices->rank - 1 ? indices->dims[i] : x->dims[x->rank - out->rank + i];
    }
    return SBIT_OK;
}

static sbit_status sbit__gather_nd_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *indices = call->in[1];
    sbit_tensor *y = call->out[0];
    sbit__gather_tuples tuples;
    int32_t batch = 0;
    SBIT__TRY(sbit__gather_batch(call, x->rank, indices->rank, &batch, error));
    SBIT__TRY(sbit__gather_tuples_init(call, x, indices, batch, &tuples, error));
    for (int32_t i = 0; i < batch; i++) {
        if (x->dims[i] != indices->dims[i]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "data and indices differ in batch dim %d", (int)i);
        }
    }
    const int64_t batches = sbit__dims_product(x->dims, 0, batch);
    const int64_t each = sbit__dims_product(x->dims, batch, x->rank);
    const int64_t per_batch = batches > 0 ? tuples.count / batches : 0;
    for (int64_t i = 0; y != NULL && i < tuples.count; i++) {
        int64_t at = 0;
        SBIT__TRY(sbit__gather_tuple(call, &tuples, indices, i, &at, error));
        sbit__elem_copy(x->dtype, y->data, i * tuples.slice, x->data, i / per_batch * each + at,
                        tuples.slice);
    }
    return SBIT_OK;
}

static sbit_status sbit__scatter_nd_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *indices = call->in[1], *updates = call->in[2];
    sbit_tensor *y = call->out[0];
    sbit__scatter_op op = SBIT__SCATTER_NONE;
    sbit__gather_tuples tuples;
    SBIT__TRY(sbit__scatter_op_of(call, x->dtype, &op, error));
    SBIT__TRY(sbit__gather_tuples_init(call, x, indices, 0, &tuples, error));
    const int32_t lead = indices->rank - 1; /* dims that count tuples; those of a slice follow */
    bool fits = updates->rank == lead + x->rank - tuples.depth;
    for (int32_t i = 0; fits && i < updates->rank; i++) {
        fits = updates->dims[i] == (i < lead ? indices->dims[i] : x->dims[tuples.depth + i - lead]);
    }
    if (!fits) {
        char text[96];
        sbit_tensor_describe(updates, text, sizeof text);
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "updates %s for %lld slices of %lld elements", text,
                            (long long)tuples.count, (long long)tuples.slice);
    }
    if (y == NULL) {
        return SBIT_OK;
    }
    sbit__elem_copy_all(x, y);
    for (int64_t i = 0; i < tuples.count; i++) {
        int64_t at = 0;
        SBIT__TRY(sbit__gather_tuple(call, &tuples, indices, i, &at, error));
        sbit__scatter_apply(op, y, at, updates, i * tuples.slice, tuples.slice);
    }
    return SBIT_OK;
}

/* >>TensorScatter: rows of a key-value cache */

static sbit_status sbit__tensor_scatter_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    SBIT__TRY(sbit__op_one_dtype(call, 0, 1, error));
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__tensor_scatter_check(const sbit_op_call *call, int32_t axis,
                                              bool *circular, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *u = call->in[1], *starts = sbit__in(call, 2);
    static const char *const modes[] = {"linear", "circular"};
    int32_t mode = 0;
    SBIT__TRY(sbit__op_word(call, "mode", modes, 2, &mode, error));
    *circular = mode == 1;
    for (int32_t i = 0; i < x->rank; i++) {
        if (u->rank != x->rank ||
            (i == axis ? u->dims[i] > x->dims[i] : u->dims[i] != x->dims[i])) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the update does not fit the cache");
        }
    }
    if (axis == 0 || (starts != NULL && sbit_tensor_count(starts) != x->dims[0])) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "axis 0, or not one index per sample");
    }
    return SBIT_OK;
}

static sbit_status sbit__tensor_scatter_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *u = call->in[1], *starts = sbit__in(call, 2);
    sbit_tensor *y = call->out[0];
    int32_t axis = 0;
    bool circular = false;
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -2), x->rank, &axis, error));
    SBIT__TRY(sbit__tensor_scatter_check(call, axis, &circular, error));
    if (y == NULL) {
        return SBIT_OK;
    }
    const int64_t outer = sbit__dims_product(x->dims, 0, axis);
    const int64_t inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    const int64_t size = x->dims[axis], length = u->dims[axis];
    sbit__elem_copy_all(x, y);
    for (int64_t o = 0; o < outer; o++) {
        const int64_t batch = o / (outer / x->dims[0]);
        const int64_t start = starts != NULL ? sbit__tensor_i64_at(starts, batch) : 0;
        if (start < 0 || (!circular && start > size - length)) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, sbit__gather_outside, (long long)start,
                                (long long)size);
        }
        for (int64_t i = 0; i < length; i++) {
            const int64_t at = (start % size + i) % size;
            sbit__elem_copy(x->dtype, y->data, (o * size + at) * inner, u->data,
                            (o * length + i) * inner, inner);
        }
    }
    return SBIT_OK;
}

/* >>Compress */

/* How many of `size` indices the condition keeps; what it does not list goes. */
static int64_t sbit__compress_kept(const sbit_tensor *condition, int64_t size)
{
    const uint8_t *keep = (const uint8_t *)condition->data;
    const int64_t listed = sbit_tensor_count(condition);
    int64_t kept = 0;
    for (int64_t i = 0; i < listed && i < size; i++) {
        kept += keep[i] != 0 ? 1 : 0;
    }
    return kept;
}

/* What is left of `size` indices, as far as it is known. */
static sbit_dim sbit__compress_dim(const sbit_op_call *call, sbit_dim size)
{
    const sbit_tensor *condition = call->in[1];
    const bool is_known = sbit__op_constant(call, 1) && condition->dtype == SBIT_BOOL &&
                          sbit__dim_known(size);
    return is_known ? sbit__dim(sbit__compress_kept(condition, size.value)) : sbit__dim_any();
}

static sbit_status sbit__compress_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = NULL;
    const bool flat = sbit_node_attr(call->node, "axis") == NULL;
    sbit_type *out = NULL;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    x = call->in_type[0];
    out = sbit__op_out(call, 0, x->dtype, flat ? 1 : x->rank);
    if (out == NULL || x->rank < 0) {
        return SBIT_OK;
    }
    if (flat) {
        const int64_t size = sbit__type_count(x, 0, x->rank);
        out->dims[0] = sbit__compress_dim(call, size < 0 ? sbit__dim_any() : sbit__dim(size));
        return SBIT_OK;
    }
    SBIT__TRY(sbit__gather_axis(call, x->rank, &axis, error));
    for (int32_t i = 0; i < x->rank; i++) {
        out->dims[i] = i == axis ? sbit__compress_dim(call, x->dims[i]) : x->dims[i];
    }
    return SBIT_OK;
}

static sbit_status sbit__compress_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *condition = call->in[1];
    const bool flat = sbit_node_attr(call->node, "axis") == NULL;
    const uint8_t *keep = (const uint8_t *)condition->data;
    int64_t dims[SBIT_MAX_RANK] = {0}, done = 0;
    int32_t axis = 0;
    if (condition->dtype != SBIT_BOOL) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the condition is %s, not bool",
                            sbit_dtype_name((int32_t)condition->dtype));
    }
    if (!flat) {
        SBIT__TRY(sbit__gather_axis(call, x->rank, &axis, error));
    }
    const int64_t size = flat ? sbit_tensor_count(x) : x->dims[axis];
    const int64_t outer = flat ? 1 : sbit__dims_product(x->dims, 0, axis);
    const int64_t inner = flat ? 1 : sbit__dims_product(x->dims, axis + 1, x->rank);
    const int64_t listed = sbit_tensor_count(condition);
    const int64_t n = listed < size ? listed : size;
    const int64_t kept = sbit__compress_kept(condition, size);
    memcpy(dims, x->dims, sizeof dims);
    dims[flat ? 0 : axis] = kept;
    SBIT__TRY(call->alloc_output(call, 0, -1, x->dtype, flat ? 1 : x->rank, dims, error));
    for (int64_t o = 0; o < outer && kept > 0 && inner > 0; o++) {
        for (int64_t i = 0; i < n; i++) {
            if (keep[i] != 0) {
                sbit__elem_copy(x->dtype, call->out[0]->data, done * inner, x->data,
                                (o * size + i) * inner, inner);
                done++;
            }
        }
    }
    return SBIT_OK;
}

/* >>rows */

/* Of a constant table (an embedding) Sparsebit quantizes the weight only, row by row; of an
 * activation the scale is passed on. */
static const sbit_op_quant sbit__gather_quant = {
    SBIT_QUANT_PASS_SCALE, 0, 0, -1, -1, 0, 1, NULL, 0.0f, 0.0f};
static const sbit_op_quant sbit__gather_quant_pass = {
    SBIT_QUANT_PASS_SCALE, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
static const sbit_op_channel sbit__gather_channel = {SBIT_CHANNEL_OWN,  1, 0, 0, 0,
                                                     sbit__gather_label};

#define SBIT__GATHER_OP(name, version, types, flags, infer, run, gradient, quant, channel)         \
    {                                                                                              \
        "", name, version, types, flags, 0, sbit__##infer##_infer, NULL, sbit__##run##_run,        \
            gradient, NULL, quant, channel, NULL                                                   \
    }
#define SBIT__GATHER_ROW(version, types)                                                           \
    SBIT__GATHER_OP("Gather", version, types, 0, gather, gather, sbit__grad_moves,                 \
                    &sbit__gather_quant, &sbit__gather_channel)
#define SBIT__GATHER_PASS(name, version, types, fn, gradient)                                      \
    SBIT__GATHER_OP(name, version, types, 0, fn, fn, gradient, &sbit__gather_quant_pass, NULL)
#define SBIT__SCATTER_ROW(name, version, types, fn)                                                \
    SBIT__GATHER_OP(name, version, types, 0, scatter, fn, sbit__grad_##fn, NULL, NULL)

static const sbit_op_row sbit__gather_rows[] = {
    SBIT__GATHER_ROW(1, SBIT__T_ALL1),
    SBIT__GATHER_ROW(11, SBIT__T_ALL1),
    SBIT__GATHER_ROW(13, SBIT__T_ALL13),
    SBIT__GATHER_PASS("GatherElements", 11, SBIT__T_ALL1, gather_elements, sbit__grad_moves),
    SBIT__GATHER_PASS("GatherElements", 13, SBIT__T_ALL13, gather_elements, sbit__grad_moves),
    SBIT__GATHER_PASS("GatherND", 11, SBIT__T_ALL1, gather_nd, sbit__grad_moves),
    SBIT__GATHER_PASS("GatherND", 12, SBIT__T_ALL1, gather_nd, sbit__grad_moves),
    SBIT__GATHER_PASS("GatherND", 13, SBIT__T_ALL13, gather_nd, sbit__grad_moves),
    SBIT__SCATTER_ROW("Scatter", 9, SBIT__T_ALL1, scatter_elements),
    SBIT__SCATTER_ROW("Scatter", 11, SBIT__T_ALL1, scatter_elements),
    SBIT__SCATTER_ROW("ScatterElements", 11, SBIT__T_ALL1, scatter_elements),
    SBIT__SCATTER_ROW("ScatterElements", 13, SBIT__T_ALL13, scatter_elements),
    SBIT__SCATTER_ROW("ScatterElements", 16, SBIT__T_ALL13, scatter_elements),
    SBIT__SCATTER_ROW("ScatterElements", 18, SBIT__T_ALL13, scatter_elements),
    SBIT__SCATTER_ROW("ScatterND", 11, SBIT__T_ALL1, scatter_nd),
    SBIT__SCATTER_ROW("ScatterND", 13, SBIT__T_ALL13, scatter_nd),
    SBIT__SCATTER_ROW("ScatterND", 16, SBIT__T_ALL13, scatter_nd),
    SBIT__SCATTER_ROW("ScatterND", 18, SBIT__T_ALL13, scatter_nd),
    SBIT__GATHER_OP("TensorScatter", 24, SBIT__T_ALL24, 0, tensor_scatter, tensor_scatter, NULL,
                    NULL, NULL),
    SBIT__GATHER_OP("Compress", 9, SBIT__T_ALL1, SBIT_OP_DYNAMIC, compress, compress,
                    sbit__grad_compress, &sbit__gather_quant_pass, NULL),
    SBIT__GATHER_OP("Compress", 11, SBIT__T_ALL1, SBIT_OP_DYNAMIC, compress, compress,
                    sbit__grad_compress, &sbit__gather_quant_pass, NULL),
    SBIT__GATHER_OP("Compress", 28, SBIT__T_ALL13, SBIT_OP_DYNAMIC, compress, compress,
                    sbit__grad_compress, &sbit__gather_quant_pass, NULL),
};

#undef SBIT__GATHER_OP
#undef SBIT__GATHER_ROW
#undef SBIT__GATHER_PASS
#undef SBIT__SCATTER_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_gather(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__gather_rows);
    return sbit__gather_rows;
}
