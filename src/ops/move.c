/* move.c: operators that put elements in other places: Transpose, Concat, Split, Slice, Expand,
 * Tile, Pad, CenterCropPad, ReverseSequence. >>move
 *
 * Called by: exec through the rows. Calls: elements.
 * Does: every element type; negative steps, negative pads, all padding modes; symbolic shapes, and
 * the elements of followed integer tensors.
 * How: one strided copy serves Transpose, Slice, Expand and Pad's middle: merged dims, rows of
 * memcpy where both sides are contiguous, tiles where the contiguous dim changes. Padding by
 * reflection, edge or wrap, and Tile, map each output row to an input row.
 * Does not: places that data decides (gather.c).
 */
#include "elements_private.h"
#include "gradient_private.h"

/* >>strided copy */

#define SBIT__MOVE_TILE 64 /* indices of the dim that is contiguous in x */
#define SBIT__MOVE_STRIP 8 /* of the dim that is contiguous in y */

typedef struct sbit__move_task {
    sbit_dtype dtype;
    size_t each; /* bytes of an element; 0: packed */
    bool words;  /* elements may be moved as aligned integers of their size */
    const void *x;
    void *y;
    int64_t x0, y0;  /* first elements */
    sbit__loop loop; /* operands x, y */
    int32_t across;  /* tiles: the dim that is contiguous in x; -1: rows */
    int64_t tiles;   /* of that dim */
} sbit__move_task;

#define SBIT__MOVE_ROW(type)                                                                       \
    {                                                                                              \
        const type *x = (const type *)task->x + from;                                              \
        type *y = (type *)task->y + to;                                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            y[i * sy] = x[i * sx];                                                                 \
        }                                                                                          \
    }

static void sbit__move_row(const sbit__move_task *task, int64_t from, int64_t sx, int64_t to,
                           int64_t sy, int64_t n)
{
    if (sx == 1 && sy == 1) {
        sbit__elem_copy(task->dtype, task->y, to, task->x, from, n);
    } else if (sx == 0 && sy == 1) {
        sbit__elem_fill(task->dtype, task->y, to, n, task->x, from);
    } else if (task->words && task->each == 1) {
        SBIT__MOVE_ROW(uint8_t)
    } else if (task->words && task->each == 2) {
        SBIT__MOVE_ROW(uint16_t)
    } else if (task->words && task->each == 4) {
        SBIT__MOVE_ROW(uint32_t)
    } else if (task->words && task->each == 8) {
        SBIT__MOVE_ROW(uint64_t)
    } else {
        for (int64_t i = 0; i < n; i++) {
            sbit__elem_copy(task->dtype, task->y, to + i * sy, task->x, from + i * sx, 1);
        }
    }
}
#undef SBIT__MOVE_ROW

static void sbit__move_rows(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__move_task *task = (const sbit__move_task *)data;
    const sbit__loop *loop = &task->loop;
    const int32_t last = loop->rank - 1;
    int64_t at[SBIT__LOOP_OPERANDS], index[SBIT_MAX_RANK], rest = begin;
    (void)worker;
    sbit__loop_row(loop, begin, at);
    for (int32_t d = last - 1; d >= 0; d--) {
        index[d] = rest % loop->dims[d];
        rest /= loop->dims[d];
    }
    for (int64_t row = begin; row < end; row++) {
        sbit__move_row(task, task->x0 + at[0], loop->strides[0][last], task->y0 + at[1],
                       loop->strides[1][last], loop->inner);
        for (int32_t d = last - 1; d >= 0; d--) { /* the next row's; no division for each */
            at[0] += loop->strides[0][d];
            at[1] += loop->strides[1][d];
            if (++index[d] < loop->dims[d]) {
                break;
            }
            at[0] -= loop->dims[d] * loop->strides[0][d];
            at[1] -= loop->dims[d] * loop->strides[1][d];
            index[d] = 0;
        }
    }
}

/* Strips of SBIT__MOVE_STRIP elements of y, each gathered from as many rows of x that are read on.
 * Written out: the compiler leaves a loop over the strip as it is. */
#define SBIT__MOVE_TILES(type)                                                                     \
    for (int64_t i = 0; i < n; i += SBIT__MOVE_STRIP) {                                            \
        const type *x = (const type *)task->x + from + i * sx;                                     \
        type *y = (type *)task->y + to + i;                                                        \
        for (int64_t j = 0; j < m && n - i >= SBIT__MOVE_STRIP; j++, y += sy) {                    \
            y[0] = x[j];                                                                           \
            y[1] = x[j + sx];                                                                      \
            y[2] = x[j + 2 * sx];                                                                  \
            y[3] = x[j + 3 * sx];                                                                  \
            y[4] = x[j + 4 * sx];                                                                  \
            y[5] = x[j + 5 * sx];                                                                  \
            y[6] = x[j + 6 * sx];                                                                  \
            y[7] = x[j + 7 * sx];                                                                  \
        }                                                                                          \
        for (int64_t j = 0; j < m && n - i < SBIT__MOVE_STRIP; j++, y += sy) {                     \
            for (int64_t k = 0; k < n - i; k++) {                                                  \
                y[k] = x[k * sx + j];                                                              \
            }                                                                                      \
        }                                                                                          \
    }

/* A band of up to SBIT__MOVE_TILE indices of the dim `across`, over the whole last dim: x is
 * contiguous along the one, y along the other. */
static void sbit__move_tile(const sbit__move_task *task, int64_t from, int64_t sx, int64_t to,
                            int64_t sy, int64_t m, int64_t n)
{
    switch (task->each) {
    case 1:
        SBIT__MOVE_TILES(uint8_t)
        break;
    case 2:
        SBIT__MOVE_TILES(uint16_t)
        break;
    case 4:
        SBIT__MOVE_TILES(uint32_t)
        break;
    default:
        SBIT__MOVE_TILES(uint64_t)
        break;
    }
}
#undef SBIT__MOVE_TILES

static void sbit__move_tile_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__move_task *task = (const sbit__move_task *)data;
    const sbit__loop *loop = &task->loop;
    const int32_t last = loop->rank - 1;
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t rest = unit / task->tiles;
        const int64_t first = (unit % task->tiles) * SBIT__MOVE_TILE;
        const int64_t left = loop->dims[task->across] - first;
        int64_t from = task->x0 + first * loop->strides[0][task->across];
        int64_t to = task->y0 + first * loop->strides[1][task->across];
        for (int32_t d = last - 1; d >= 0; d--) {
            if (d != task->across) {
                from += (rest % loop->dims[d]) * loop->strides[0][d];
                to += (rest % loop->dims[d]) * loop->strides[1][d];
                rest /= loop->dims[d];
            }
        }
        sbit__move_tile(task, from, loop->strides[0][last], to, loop->strides[1][task->across],
                        left < SBIT__MOVE_TILE ? left : SBIT__MOVE_TILE, loop->inner);
    }
}

/* Rows of a few elements are walked across: one long row for each. */
static void sbit__move_turn(sbit__loop *loop)
{
    const int32_t last = loop->rank - 1;
    const int64_t few = 4;
    if (last == 0 || loop->inner > few || loop->dims[last - 1] <= few) {
        return;
    }
    loop->inner = loop->dims[last - 1];
    loop->outer = loop->outer / loop->inner * loop->dims[last];
    loop->dims[last - 1] = loop->dims[last];
    loop->dims[last] = loop->inner;
    for (int32_t k = 0; k < loop->operands; k++) {
        const int64_t stride = loop->strides[k][last];
        loop->strides[k][last] = loop->strides[k][last - 1];
        loop->strides[k][last - 1] = stride;
    }
}

/* Copies the box `dims` from x (at element x0, with strides) to y; the two do not overlap. */
static void sbit__move_box(sbit_ctx *ctx, sbit_dtype dtype, int32_t rank, const int64_t *dims,
                           const void *x, int64_t x0, const int64_t *x_strides, void *y, int64_t y0,
                           const int64_t *y_strides)
{
    sbit__move_task task;
    int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK];
    int64_t grain = 1;
    memset(strides, 0, sizeof strides);
    if (sbit__dims_product(dims, 0, rank) == 0) {
        return;
    }
    for (int32_t i = 0; i < rank; i++) {
        strides[0][i] = x_strides[i];
        strides[1][i] = y_strides[i];
    }
    sbit__loop_init(&task.loop, rank, dims, 2, (const int64_t(*)[SBIT_MAX_RANK])strides);
    task.dtype = dtype;
    task.each = sbit__elem_bytes(dtype);
    task.words = task.each <= 8 && dtype != SBIT_C64; /* a complex64 is aligned to 4 only */
    task.x = x;
    task.y = y;
    task.x0 = x0;
    task.y0 = y0;
    task.across = -1;
    const int32_t last = task.loop.rank - 1;
    for (int32_t d = 0; d < last && task.words && task.each > 0; d++) {
        if (task.loop.strides[0][d] == 1 && task.loop.strides[0][last] > 1 &&
            task.loop.strides[1][last] == 1) {
            task.across = d;
        }
    }
    if (task.across < 0 && task.words && task.each > 0) {
        sbit__move_turn(&task.loop);
    }
    grain = 1 + 4 * SBIT__BLOCK / task.loop.inner;
    if (task.each == 0) { /* neighbours share bytes */
        sbit__move_rows(&task, 0, task.loop.outer, 0);
    } else if (task.across >= 0) {
        const int64_t n = task.loop.dims[task.across];
        task.tiles = (n + SBIT__MOVE_TILE - 1) / SBIT__MOVE_TILE;
        sbit__parallel_range(ctx, task.loop.outer / n * task.tiles, 1 + grain / SBIT__MOVE_TILE,
                             sbit__move_tile_range, &task);
    } else {
        sbit__parallel_range(ctx, task.loop.outer, grain, sbit__move_rows, &task);
    }
}

/* >>Transpose */

static sbit_status sbit__transpose_perm(const sbit_op_call *call, int32_t rank,
                                        int32_t perm[SBIT_MAX_RANK], sbit_error *error)
{
    int64_t given[SBIT_MAX_RANK], count = -1;
    bool seen[SBIT_MAX_RANK] = {false};
    SBIT__TRY(sbit__op_ints(call, "perm", -1, given, SBIT_MAX_RANK, &count, error));
    if (count >= 0 && count != rank) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "perm has %lld entries for a tensor of rank %d", (long long)count,
                            (int)rank);
    }
    for (int32_t i = 0; i < rank; i++) {
        if (count < 0) {
            perm[i] = rank - 1 - i;
            continue;
        }
        SBIT__TRY(sbit__op_axis(call, given[i], rank, &perm[i], error));
        if (seen[perm[i]]) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "perm names axis %d twice",
                                (int)perm[i]);
        }
        seen[perm[i]] = true;
    }
    return SBIT_OK;
}

static sbit_status sbit__transpose_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t perm[SBIT_MAX_RANK];
    const sbit_type *x = NULL;
    sbit_type *out = NULL;
    sbit_dim elems[SBIT__ELEMS_MAX];
    int64_t count = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    x = call->in_type[0];
    out = sbit__op_out(call, 0, x->dtype, x->rank);
    if (x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__transpose_perm(call, x->rank, perm, error));
    for (int32_t i = 0; out != NULL && i < x->rank; i++) {
        out->dims[i] = x->dims[perm[i]];
    }
    if (x->rank <= 1 && sbit__op_elems(call, 0, elems, SBIT__ELEMS_MAX, &count)) {
        sbit__op_set_elems(call, 0, elems, count);
    }
    return SBIT_OK;
}

typedef struct sbit__transpose {
    int32_t perm[SBIT_MAX_RANK];
} sbit__transpose;

static sbit_status sbit__transpose_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__transpose plan;
    memset(&plan, 0, sizeof plan);
    if (!sbit__type_static(call->in_type[0])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__transpose_perm(call, call->in_type[0]->rank, plan.perm, error));
    return sbit__op_keep(call, &plan, sizeof plan, error);
}

static sbit_status sbit__transpose_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit_tensor *y = call->out[0];
    sbit__transpose plan;
    int64_t own[SBIT_MAX_RANK], from[SBIT_MAX_RANK], to[SBIT_MAX_RANK];
    if (y == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_kept(call, &plan, sizeof plan, error));
    sbit__tensor_strides(x, own);
    sbit__tensor_strides(y, to);
    for (int32_t i = 0; i < x->rank; i++) {
        from[i] = own[plan.perm[i]];
    }
    sbit__move_box(call->ctx, x->dtype, y->rank, y->dims, x->data, 0, from, y->data, 0, to);
    return SBIT_OK;
}

/* >>Concat */

static sbit_status sbit__concat_axis(const sbit_op_call *call, int32_t rank, int32_t *axis,
                                     sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(call->node, "axis");
    if (attr == NULL && call->row->since_version >= 4) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no axis");
    }
    return sbit__op_axis(call, attr != NULL ? attr->i : 1, rank, axis, error);
}

static void sbit__concat_elems(const sbit_op_call *call)
{
    sbit_dim all[SBIT__ELEMS_MAX];
    int64_t used = 0, count = 0;
    for (int32_t i = 0; i < call->input_count; i++) {
        if (!sbit__op_elems(call, i, all + used, SBIT__ELEMS_MAX - used, &count)) {
            return;
        }
        used += count;
    }
    sbit__op_set_elems(call, 0, all, used);
}

static sbit_status sbit__concat_dims(const sbit_op_call *call, sbit_type *out, int32_t axis,
                                     sbit_error *error)
{
    sbit_dim sum = sbit__dim(0);
    for (int32_t i = 0; i < call->input_count; i++) {
        const sbit_type *x = call->in_type[i];
        sum = sbit__dim_add(sum, x->rank < 0 ? sbit__dim_any() : x->dims[axis]);
        for (int32_t d = 0; x->rank >= 0 && d < out->rank; d++) {
            if (d == axis) {
                continue;
            }
            if (sbit__dim_known(out->dims[d]) && sbit__dim_known(x->dims[d]) &&
                out->dims[d].value != x->dims[d].value) {
                char a[96], b[96];
                sbit__type_describe(call->graph, call->in_type[0], a, sizeof a);
                sbit__type_describe(call->graph, x, b, sizeof b);
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "%s and %s differ in more than axis %d", a, b, (int)axis);
            }
            if (!sbit__dim_known(out->dims[d]) &&
                (sbit__dim_known(x->dims[d]) || out->dims[d].symbol == SBIT_SYMBOL_ANY)) {
                out->dims[d] = x->dims[d];
            }
        }
    }
    out->dims[axis] = sum;
    return SBIT_OK;
}

static sbit_status sbit__concat_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type *out = NULL;
    int32_t rank = -1, axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, INT32_MAX, error));
    SBIT__TRY(sbit__op_one_dtype(call, 0, call->input_count - 1, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        const sbit_type *x = call->in_type[i];
        if (x == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
        if (rank >= 0 && x->rank >= 0 && x->rank != rank) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "its inputs have ranks %d and %d",
                                (int)rank, (int)x->rank);
        }
        rank = x->rank >= 0 ? x->rank : rank;
    }
    out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), rank);
    if (out == NULL || rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__concat_axis(call, rank, &axis, error));
    SBIT__TRY(sbit__concat_dims(call, out, axis, error));
    if (rank == 1) {
        sbit__concat_elems(call);
    }
    return SBIT_OK;
}

typedef struct sbit__concat {
    int32_t axis;
} sbit__concat;

static sbit_status sbit__concat_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__concat plan = {0};
    if (!sbit__type_static(call->in_type[0])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__concat_axis(call, call->in_type[0]->rank, &plan.axis, error));
    return sbit__op_keep(call, &plan, sizeof plan, error);
}

static sbit_status sbit__concat_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_tensor *y = call->out[0];
    sbit__concat plan = {0};
    int64_t at = 0;
    if (y == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_kept(call, &plan, sizeof plan, error));
    const int32_t axis = plan.axis;
    const int64_t outer = sbit__dims_product(y->dims, 0, axis);
    const int64_t row = sbit__dims_product(y->dims, axis, y->rank);
    for (int32_t i = 0; i < call->input_count; i++) {
        const sbit_tensor *x = call->in[i];
        const int64_t part = sbit__dims_product(x->dims, axis, x->rank);
        const int64_t dims[2] = {outer, part}, from[2] = {part, 1}, to[2] = {row, 1};
        sbit__move_box(call->ctx, y->dtype, 2, dims, x->data, 0, from, y->data, at, to);
        at += part;
    }
    return SBIT_OK;
}

/* >>Split */

/* The size of output i along the axis. Sizes are listed by the attribute `split` (up to opset 12)
 * or input 1; else all are equal, the last one smaller if that does not come out (opset 18). */
static sbit_dim sbit__split_size(const sbit_op_call *call, int32_t i, sbit_dim whole)
{
    const sbit_attr *attr =
        call->row->since_version < 13 ? sbit_node_attr(call->node, "split") : NULL;
    const sbit_tensor *sizes = sbit__in(call, 1);
    const int64_t parts = call->output_count;
    if (attr != NULL && attr->type == SBIT_ONNX_ATTR_INTS && attr->count > 0) {
        return (size_t)i < attr->count ? sbit__dim(attr->ints[i]) : sbit__dim(-1);
    }
    if (sbit__in_type(call, 1) != NULL) {
        if (sizes != NULL) {
            return i < sbit_tensor_count(sizes) ? sbit__dim(sbit__tensor_i64_at(sizes, i))
                                                : sbit__dim(-1);
        }
        return call->in_elems != NULL && call->in_elems[1] != NULL && i < call->in_elem_count[1]
                   ? call->in_elems[1][i]
                   : sbit__dim_any();
    }
    if (!sbit__dim_known(whole)) {
        return parts == 1 ? whole : sbit__dim_any();
    }
    const int64_t each = whole.value / parts + (whole.value % parts != 0 ? 1 : 0);
    const int64_t left = whole.value - each * i;
    return sbit__dim(left < 0 ? 0 : left < each ? left : each);
}

/* Checks that the sizes are not negative and add up to the axis. */
static sbit_status sbit__split_check(const sbit_op_call *call, sbit_dim whole, sbit_error *error)
{
    sbit_dim sum = sbit__dim(0);
    const int64_t parts = sbit_node_int(call->node, "num_outputs", call->output_count);
    const bool uneven = sbit__dim_known(whole) && whole.value % call->output_count != 0;
    if (call->row->since_version >= 18 && parts != call->output_count) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "num_outputs is %lld, but it has %d outputs", (long long)parts,
                            (int)call->output_count);
    }
    if (uneven && call->row->since_version < 18 && sbit__in_type(call, 1) == NULL &&
        sbit_node_attr(call->node, "split") == NULL) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld does not split into %d equal parts",
                            (long long)whole.value, (int)call->output_count);
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        const sbit_dim size = sbit__split_size(call, i, whole);
        if (sbit__dim_known(size) && size.value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "part %d has no size or a negative one", (int)i);
        }
        if (sbit__dim_known(size) && sbit__dim_known(whole) && size.value > whole.value) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "part %d has %lld of %lld elements along the axis", (int)i,
                                (long long)size.value, (long long)whole.value);
        }
        sum = sbit__dim_add(sum, size);
    }
    if (sbit__dim_known(sum) && sbit__dim_known(whole) && sum.value != whole.value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the parts add up to %lld, not to %lld",
                            (long long)sum.value, (long long)whole.value);
    }
    return SBIT_OK;
}

static sbit_status sbit__split_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = NULL;
    sbit_dim elems[SBIT__ELEMS_MAX];
    int64_t count = 0, at = 0;
    int32_t axis = 0;
    const int32_t version = call->row->since_version; /* sizes are an attribute from 2 to 11 */
    SBIT__TRY(sbit__op_inputs(call, 1, version >= 2 && version < 13 ? 1 : 2, error));
    x = call->in_type[0];
    for (int32_t i = 0; i < call->output_count; i++) {
        sbit__op_same_type(call, i, 0);
    }
    if (x->rank < 0 || call->output_count == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), x->rank, &axis, error));
    SBIT__TRY(sbit__split_check(call, x->dims[axis], error));
    const bool follow = x->rank == 1 && sbit__op_elems(call, 0, elems, SBIT__ELEMS_MAX, &count);
    for (int32_t i = 0; i < call->output_count; i++) {
        const sbit_dim size = sbit__split_size(call, i, x->dims[axis]);
        if (call->out_type[i] != NULL) {
            call->out_type[i]->dims[axis] = size;
        }
        if (follow && at >= 0 && sbit__dim_known(size) && at + size.value <= count) {
            sbit__op_set_elems(call, i, elems + at, size.value);
        }
        at = sbit__dim_known(size) && at >= 0 ? at + size.value : -1;
    }
    return SBIT_OK;
}

static sbit_status sbit__split_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    int32_t axis = 0;
    int64_t at = 0;
    if (call->output_count == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), x->rank, &axis, error));
    SBIT__TRY(sbit__split_check(call, sbit__dim(x->dims[axis]), error));
    const int64_t outer = sbit__dims_product(x->dims, 0, axis);
    const int64_t row = sbit__dims_product(x->dims, axis, x->rank);
    const int64_t inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    for (int32_t i = 0; i < call->output_count; i++) {
        const int64_t size = sbit__split_size(call, i, sbit__dim(x->dims[axis])).value;
        const int64_t part = size * inner;
        const int64_t dims[2] = {outer, part}, from[2] = {row, 1}, to[2] = {part, 1};
        int64_t shape[SBIT_MAX_RANK];
        sbit_tensor *y = NULL;
        memcpy(shape, x->dims, sizeof shape);
        shape[axis] = size;
        SBIT__TRY(sbit__op_output(call, i, x->dtype, x->rank, shape, &y, error));
        if (y != NULL) {
            sbit__move_box(call->ctx, x->dtype, 2, dims, x->data, at, from, y->data, 0, to);
        }
        at += part;
    }
    return SBIT_OK;
}

/* >>Slice */

typedef struct sbit__slice {
    bool known;              /* false: axes, or how many there are, are computed */
    bool cut[SBIT_MAX_RANK]; /* the axis is sliced */
    sbit_dim start[SBIT_MAX_RANK], end[SBIT_MAX_RANK], step[SBIT_MAX_RANK];
} sbit__slice;

/* List `input` (or attribute `name` in opset 1) as symbolic numbers; false: not known. */
static sbit_status sbit__slice_list(const sbit_op_call *call, const char *name, int32_t input,
                                    sbit_dim *list, int64_t *count, bool *known, sbit_error *error)
{
    int64_t values[SBIT_MAX_RANK];
    *count = -1;
    *known = true;
    if (call->row->since_version >= 10) {
        if (sbit__in_type(call, input) != NULL) {
            *known = sbit__op_elems(call, input, list, SBIT_MAX_RANK, count);
        }
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_ints(call, name, -1, values, SBIT_MAX_RANK, count, error));
    for (int64_t i = 0; i < *count; i++) {
        list[i] = sbit__dim(values[i]);
    }
    return SBIT_OK;
}

static sbit_status sbit__slice_read(const sbit_op_call *call, int32_t rank, sbit__slice *slice,
                                    sbit_error *error)
{
    sbit_dim starts[SBIT_MAX_RANK], ends[SBIT_MAX_RANK], axes[SBIT_MAX_RANK], steps[SBIT_MAX_RANK];
    int64_t n = -1, n_ends = -1, n_axes = -1, n_steps = -1;
    bool known[4];
    memset(slice, 0, sizeof *slice);
    SBIT__TRY(sbit__slice_list(call, "starts", 1, starts, &n, &known[0], error));
    SBIT__TRY(sbit__slice_list(call, "ends", 2, ends, &n_ends, &known[1], error));
    SBIT__TRY(sbit__slice_list(call, "axes", 3, axes, &n_axes, &known[2], error));
    SBIT__TRY(sbit__slice_list(call, NULL, 4, steps, &n_steps, &known[3], error));
    const sbit_type *starts_type = sbit__in_type(call, 1);
    if (!known[0] && starts_type != NULL && starts_type->rank == 1 &&
        sbit__dim_known(starts_type->dims[0]) && starts_type->dims[0].value <= SBIT_MAX_RANK) {
        n = starts_type->dims[0].value;
    }
    n = n < 0 && n_axes >= 0 ? n_axes : n;
    if (n < 0 || n > rank || !known[2]) {
        return n > rank || (known[0] && n < 0)
                   ? sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                  "its starts do not fit a tensor of rank %d", (int)rank)
                   : SBIT_OK;
    }
    if ((known[1] && n_ends != n) || (n_axes >= 0 && n_axes != n) ||
        (known[3] && n_steps >= 0 && n_steps != n)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "starts, ends, axes and steps differ in length");
    }
    slice->known = true;
    for (int64_t i = 0; i < n; i++) {
        int32_t axis = (int32_t)i;
        if (n_axes >= 0 && !sbit__dim_known(axes[i])) {
            slice->known = false;
            return SBIT_OK;
        }
        if (n_axes >= 0) {
            SBIT__TRY(sbit__op_axis(call, axes[i].value, rank, &axis, error));
        }
        slice->cut[axis] = true;
        slice->start[axis] = known[0] ? starts[i] : sbit__dim_any();
        slice->end[axis] = known[1] ? ends[i] : sbit__dim_any();
        slice->step[axis] = !known[3] ? sbit__dim_any() : n_steps >= 0 ? steps[i] : sbit__dim(1);
        if (sbit__dim_known(slice->step[axis]) && slice->step[axis].value == 0) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "a step of 0");
        }
    }
    return SBIT_OK;
}

static int64_t sbit__slice_between(int64_t value, int64_t low, int64_t high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}

/* How many indices of an axis of `size` are taken, and the first of them. Slice-10: going up both
 * ends lie in 0..size; going down start lies in 0..size-1 and end in -1..size-1. */
static int64_t sbit__slice_clamp(int64_t size, int64_t start, int64_t end, int64_t step,
                                 int64_t *first)
{
    start += start < 0 ? size : 0;
    end += end < 0 ? size : 0;
    if (step < 0) {
        const int64_t stride = step == INT64_MIN ? INT64_MAX : -step;
        *first = sbit__slice_between(start, 0, size - 1);
        end = sbit__slice_between(end, -1, size - 1);
        return *first > end ? (*first - end - 1) / stride + 1 : 0;
    }
    *first = sbit__slice_between(start, 0, size);
    end = sbit__slice_between(end, 0, size);
    return end > *first ? (end - *first - 1) / step + 1 : 0;
}

static sbit_dim sbit__slice_dim(const sbit__slice *slice, int32_t axis, sbit_dim size)
{
    const sbit_dim start = slice->start[axis], end = slice->end[axis], step = slice->step[axis];
    int64_t first = 0;
    if (!sbit__dim_known(start) || !sbit__dim_known(step)) {
        return sbit__dim_any();
    }
    if (sbit__dim_known(size) && sbit__dim_known(end)) {
        return sbit__dim(sbit__slice_clamp(size.value, start.value, end.value, step.value, &first));
    }
    if (start.value == 0 && step.value == 1) {
        const bool to_end = sbit__dim_known(end) && end.value >= INT32_MAX;
        return to_end || sbit__dim_equal(size, end) ? size : sbit__dim_any();
    }
    return sbit__dim_any();
}

static sbit_status sbit__slice_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__slice slice;
    const sbit_type *x = NULL;
    sbit_type *out = NULL;
    sbit_dim picked[SBIT__ELEMS_MAX];
    sbit__elems elems;
    int64_t first = 0;
    const bool inputs = call->row->since_version >= 10;
    SBIT__TRY(sbit__op_inputs(call, inputs ? 3 : 1, inputs ? 5 : 1, error));
    x = call->in_type[0];
    out = sbit__op_out(call, 0, x->dtype, x->rank);
    if (out == NULL || x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__slice_read(call, x->rank, &slice, error));
    if (!slice.known) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < x->rank; i++) {
        out->dims[i] = slice.cut[i] ? sbit__slice_dim(&slice, i, x->dims[i]) : x->dims[i];
    }
    if (x->rank != 1 || !slice.cut[0] || !sbit__dim_known(slice.start[0]) ||
        !sbit__dim_known(slice.end[0]) || !sbit__dim_known(slice.step[0]) ||
        !sbit__op_elems_view(call, 0, &elems)) {
        return SBIT_OK;
    }
    const int64_t n = sbit__slice_clamp(elems.count, slice.start[0].value, slice.end[0].value,
                                        slice.step[0].value, &first);
    for (int64_t i = 0; i < n && i < SBIT__ELEMS_MAX; i++) {
        picked[i] = sbit__elems_at(&elems, first + i * slice.step[0].value);
    }
    sbit__op_set_elems(call, 0, picked, n < SBIT__ELEMS_MAX ? n : SBIT__ELEMS_MAX);
    return SBIT_OK;
}

static sbit_status sbit__slice_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__slice slice;
    int64_t dims[SBIT_MAX_RANK], from[SBIT_MAX_RANK], to[SBIT_MAX_RANK], x0 = 0;
    sbit_tensor *y = NULL;
    SBIT__TRY(sbit__slice_read(call, x->rank, &slice, error));
    if (!slice.known) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "axes must be a list of integers");
    }
    sbit__tensor_strides(x, from);
    for (int32_t i = 0; i < x->rank; i++) {
        int64_t first = 0, step = 1;
        dims[i] = x->dims[i];
        if (slice.cut[i]) {
            if (!sbit__dim_known(slice.start[i]) || !sbit__dim_known(slice.end[i]) ||
                !sbit__dim_known(slice.step[i])) {
                return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                    "starts, ends, axes and steps must be lists of integers");
            }
            step = slice.step[i].value;
            dims[i] = sbit__slice_clamp(x->dims[i], slice.start[i].value, slice.end[i].value, step,
                                        &first);
        }
        x0 += dims[i] > 0 ? first * from[i] : 0;
        from[i] = dims[i] > 1 ? from[i] * step : 0; /* a step may be as large as int64 */
    }
    SBIT__TRY(sbit__op_output(call, 0, x->dtype, x->rank, dims, &y, error));
    if (y != NULL) {
        sbit__tensor_strides(y, to);
        sbit__move_box(call->ctx, x->dtype, y->rank, dims, x->data, x0, from, y->data, 0, to);
    }
    return SBIT_OK;
}

/* >>Expand */

static sbit_status sbit__expand_type(const sbit_op_call *call, const sbit_type *x, sbit_type *out,
                                     sbit_error *error)
{
    sbit_dim shape[SBIT_MAX_RANK];
    int64_t count = 0;
    sbit_type asked = sbit__type_unknown();
    const sbit_type *both[2];
    const sbit_type *shape_type = sbit__in_type(call, 1);
    if (!sbit__op_elems(call, 1, shape, SBIT_MAX_RANK, &count)) {
        if (shape_type->rank != 1 || !sbit__dim_known(shape_type->dims[0])) {
            return SBIT_OK;
        }
        count = shape_type->dims[0].value;
        if (count > SBIT_MAX_RANK) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "a shape of rank %lld",
                                (long long)count);
        }
        out->rank = x->rank < 0 ? -1 : x->rank > (int32_t)count ? x->rank : (int32_t)count;
        for (int32_t i = 1; i <= x->rank; i++) { /* only a dim of 1 becomes another */
            const sbit_dim dim = x->dims[x->rank - i];
            out->dims[out->rank - i] =
                sbit__dim_known(dim) && dim.value != 1 ? dim : sbit__dim_any();
        }
        return SBIT_OK;
    }
    asked.rank = (int32_t)count;
    for (int64_t i = 0; i < count; i++) {
        asked.dims[i] = shape[i];
        if (sbit__dim_known(shape[i]) && shape[i].value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the shape holds %lld",
                                (long long)shape[i].value);
        }
    }
    both[0] = x;
    both[1] = &asked;
    return sbit__op_broadcast(call, both, 2, out, error);
}

static sbit_status sbit__expand_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim elems[SBIT__ELEMS_MAX];
    int64_t count = 0;
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), -1);
    if (out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__expand_type(call, call->in_type[0], out, error));
    if (out->rank != 1 || !sbit__dim_known(out->dims[0]) || out->dims[0].value > SBIT__ELEMS_MAX ||
        !sbit__op_elems(call, 0, elems, SBIT__ELEMS_MAX, &count) || count < 1) {
        return SBIT_OK;
    }
    for (int64_t i = count; i < out->dims[0].value; i++) {
        elems[i] = elems[0];
    }
    sbit__op_set_elems(call, 0, elems, out->dims[0].value);
    return SBIT_OK;
}

static sbit_status sbit__expand_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const sbit_type x_type = sbit__type_of_tensor(x);
    sbit_type type = sbit__type_unknown();
    int64_t from[SBIT_MAX_RANK], to[SBIT_MAX_RANK];
    sbit_tensor *y = NULL;
    type.dtype = x->dtype;
    SBIT__TRY(sbit__expand_type(call, &x_type, &type, error));
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &y, error));
    if (y != NULL) {
        SBIT__TRY(sbit__op_strides(call, x, -1, y->rank, y->dims, from, error));
        sbit__tensor_strides(y, to);
        sbit__move_box(call->ctx, x->dtype, y->rank, y->dims, x->data, 0, from, y->data, 0, to);
    }
    return SBIT_OK;
}

/* >>rows by mapped indices: Pad and Tile */

typedef enum sbit__pad_mode {
    SBIT__PAD_CONSTANT,
    SBIT__PAD_REFLECT,
    SBIT__PAD_EDGE,
    SBIT__PAD_WRAP
} sbit__pad_mode;

/* Output index i along an axis shows input index first + f(i - before), f mapping any integer to
 * 0..size-1. */
typedef struct sbit__pad_axis {
    int64_t before, size, first;
} sbit__pad_axis;

typedef struct sbit__pad_task {
    sbit__pad_mode mode;
    const sbit_tensor *x;
    sbit_tensor *y;
    sbit__pad_axis axes[SBIT_MAX_RANK];
    int64_t strides[SBIT_MAX_RANK]; /* of x */
} sbit__pad_task;

static int64_t sbit__pad_index(sbit__pad_mode mode, const sbit__pad_axis *axis, int64_t i)
{
    const int64_t size = axis->size;
    int64_t at = i - axis->before;
    if (at >= 0 && at < size) {
        return axis->first + at;
    }
    if (mode == SBIT__PAD_EDGE) {
        return axis->first + (at < 0 ? 0 : size - 1);
    }
    const int64_t period = mode == SBIT__PAD_WRAP ? size : size == 1 ? 1 : 2 * (size - 1);
    at %= period;
    at += at < 0 ? period : 0;
    return axis->first + (at < size ? at : period - at);
}

/* One row of y along the last axis: runs of consecutive input elements are copied together. */
static void sbit__pad_row(const sbit__pad_task *task, int64_t from, int64_t to)
{
    const int32_t last = task->y->rank - 1;
    const sbit__pad_axis *axis = &task->axes[last];
    const int64_t n = task->y->dims[last];
    for (int64_t i = 0; i < n;) {
        const int64_t at = sbit__pad_index(task->mode, axis, i);
        const bool inside = i >= axis->before && i - axis->before < axis->size;
        int64_t run = inside || task->mode == SBIT__PAD_WRAP ? axis->first + axis->size - at : 1;
        run = run < n - i ? run : n - i;
        sbit__elem_copy(task->x->dtype, task->y->data, to + i, task->x->data, from + at, run);
        i += run;
    }
}

static void sbit__pad_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__pad_task *task = (const sbit__pad_task *)data;
    const int32_t last = task->y->rank - 1;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0;
        for (int32_t d = last - 1; d >= 0; d--) {
            from += sbit__pad_index(task->mode, &task->axes[d], rest % task->y->dims[d]) *
                    task->strides[d];
            rest /= task->y->dims[d];
        }
        sbit__pad_row(task, from, row * task->y->dims[last]);
    }
}

static void sbit__pad_rows(const sbit_op_call *call, sbit__pad_task *task)
{
    const sbit_tensor *y = task->y;
    const int64_t count = sbit_tensor_count(y);
    if (count == 0) {
        return;
    }
    if (y->rank == 0) {
        sbit__elem_copy_all(task->x, task->y);
        return;
    }
    const int64_t row = y->dims[y->rank - 1];
    sbit__tensor_strides(task->x, task->strides);
    if (sbit__elem_bytes(y->dtype) == 0) {
        sbit__pad_range(task, 0, count / row, 0);
    } else {
        sbit__parallel_range(call->ctx, count / row, 1 + 4 * SBIT__BLOCK / row, sbit__pad_range,
                             task);
    }
}

/* >>Tile */

/* How often axis i is repeated: input 1, or (opset 1) inputs tiles and axis. */
static sbit_status sbit__tile_repeats(const sbit_op_call *call, int32_t rank,
                                      sbit_dim repeats[SBIT_MAX_RANK], bool *known,
                                      sbit_error *error)
{
    int64_t count = 0, tiles = 0, axis = 0;
    if (call->row->since_version >= 6) {
        *known = sbit__op_elems(call, 1, repeats, SBIT_MAX_RANK, &count);
        if (*known && count != rank) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "it repeats %lld axes of a tensor of rank %d", (long long)count,
                                (int)rank);
        }
    } else {
        int32_t at = 0;
        *known = sbit__in(call, 1) != NULL && sbit__in(call, 2) != NULL;
        for (int32_t i = 0; i < rank; i++) {
            repeats[i] = sbit__dim(1);
        }
        if (!*known) {
            return SBIT_OK;
        }
        SBIT__TRY(sbit__op_scalar(call, 1, 1, &tiles, error));
        SBIT__TRY(sbit__op_scalar(call, 2, 0, &axis, error));
        SBIT__TRY(sbit__op_axis(call, axis, rank, &at, error));
        repeats[at] = sbit__dim(tiles);
    }
    for (int32_t i = 0; *known && i < rank; i++) {
        if (sbit__dim_known(repeats[i]) && repeats[i].value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "it repeats axis %d %lld times",
                                (int)i, (long long)repeats[i].value);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__tile_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim repeats[SBIT_MAX_RANK], elems[SBIT__ELEMS_MAX];
    const int32_t inputs = call->row->since_version >= 6 ? 2 : 3;
    bool known = false;
    int64_t count = 0;
    SBIT__TRY(sbit__op_inputs(call, inputs, inputs, error));
    const sbit_type *x = call->in_type[0];
    sbit_type *out = sbit__op_out(call, 0, x->dtype, x->rank);
    if (out == NULL || x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__tile_repeats(call, x->rank, repeats, &known, error));
    for (int32_t i = 0; known && i < x->rank; i++) {
        out->dims[i] = sbit__dim_mul(x->dims[i], repeats[i]);
    }
    if (x->rank == 1 && sbit__dim_known(out->dims[0]) && out->dims[0].value <= SBIT__ELEMS_MAX &&
        sbit__op_elems(call, 0, elems, SBIT__ELEMS_MAX, &count) && count > 0) {
        for (int64_t i = count; i < out->dims[0].value; i++) {
            elems[i] = elems[i - count];
        }
        sbit__op_set_elems(call, 0, elems, out->dims[0].value);
    }
    return SBIT_OK;
}

static sbit_status sbit__tile_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit_dim repeats[SBIT_MAX_RANK];
    int64_t dims[SBIT_MAX_RANK];
    bool known = false;
    sbit__pad_task task;
    memset(&task, 0, sizeof task);
    SBIT__TRY(sbit__tile_repeats(call, x->rank, repeats, &known, error));
    for (int32_t i = 0; i < x->rank; i++) {
        const sbit_dim size = sbit__dim_mul(sbit__dim(x->dims[i]), repeats[i]);
        if (!known || !sbit__dim_known(size)) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "the output is too large");
        }
        dims[i] = size.value;
        task.axes[i].size = x->dims[i];
    }
    SBIT__TRY(sbit__op_output(call, 0, x->dtype, x->rank, dims, &task.y, error));
    if (task.y != NULL) {
        task.mode = SBIT__PAD_WRAP;
        task.x = x;
        sbit__pad_rows(call, &task);
    }
    return SBIT_OK;
}

/* >>Pad */

typedef struct sbit__pads {
    bool known;
    sbit_dim before[SBIT_MAX_RANK], after[SBIT_MAX_RANK];
} sbit__pads;

static sbit_status sbit__pads_list(const sbit_op_call *call, sbit_dim list[2 * SBIT_MAX_RANK],
                                   int64_t *count, sbit_error *error)
{
    int64_t values[2 * SBIT_MAX_RANK];
    const int32_t version = call->row->since_version;
    if (version >= 11) {
        if (!sbit__op_elems(call, 1, list, 2 * SBIT_MAX_RANK, count)) {
            *count = -1;
        }
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_ints(call, version < 2 ? "paddings" : "pads", -1, values, 2 * SBIT_MAX_RANK,
                            count, error));
    for (int64_t i = 0; i < *count; i++) {
        list[i] = sbit__dim(values[i]);
    }
    return *count >= 0 ? SBIT_OK
                       : sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no pads");
}

static sbit_status sbit__pads_read(const sbit_op_call *call, int32_t rank, sbit__pads *pads,
                                   sbit_error *error)
{
    sbit_dim list[2 * SBIT_MAX_RANK];
    int64_t axes[SBIT_MAX_RANK], count = -1, n_axes = -1;
    const bool has_axes = sbit__in_type(call, 3) != NULL;
    pads->known = false;
    for (int32_t i = 0; i < rank; i++) {
        pads->before[i] = pads->after[i] = sbit__dim(0);
    }
    SBIT__TRY(sbit__pads_list(call, list, &count, error));
    SBIT__TRY(sbit__op_ints(call, NULL, has_axes ? 3 : -1, axes, SBIT_MAX_RANK, &n_axes, error));
    if (count < 0 || (has_axes && n_axes < 0)) {
        return SBIT_OK;
    }
    if (count != 2 * (has_axes ? n_axes : rank)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "%lld pads for %lld axes: two each are needed", (long long)count,
                            (long long)(has_axes ? n_axes : rank));
    }
    for (int64_t i = 0; i < count / 2; i++) {
        int32_t axis = (int32_t)i;
        if (has_axes) {
            SBIT__TRY(sbit__op_axis(call, axes[i], rank, &axis, error));
        }
        pads->before[axis] = list[i];
        pads->after[axis] = list[i + count / 2];
    }
    pads->known = true;
    return SBIT_OK;
}

SBIT__FN bool sbit__pads_spare(const sbit_op_call *call, int32_t rank, int32_t axis)
{
    sbit__pads pads;
    return sbit__pads_read(call, rank, &pads, NULL) == SBIT_OK && pads.known &&
           sbit__dim_known(pads.before[axis]) && pads.before[axis].value == 0 &&
           sbit__dim_known(pads.after[axis]) && pads.after[axis].value == 0;
}

static sbit_status sbit__pad_mode_of(const sbit_op_call *call, sbit__pad_mode *mode,
                                     sbit_error *error)
{
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    int32_t word = 0;
    SBIT__TRY(sbit__op_word(call, "mode", names, 4, &word, error));
    *mode = (sbit__pad_mode)word;
    return SBIT_OK;
}

static sbit_status sbit__pad_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t version = call->row->since_version;
    sbit__pads pads;
    sbit__pad_mode mode = SBIT__PAD_CONSTANT;
    SBIT__TRY(sbit__op_inputs(call, version < 11 ? 1 : 2,
                              version < 11   ? 1
                              : version < 18 ? 3
                                             : 4,
                              error));
    SBIT__TRY(sbit__pad_mode_of(call, &mode, error));
    const sbit_type *x = call->in_type[0];
    sbit_type *out = sbit__op_out(call, 0, x->dtype, x->rank);
    if (out == NULL || x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__pads_read(call, x->rank, &pads, error));
    for (int32_t i = 0; pads.known && i < x->rank; i++) {
        out->dims[i] = sbit__dim_add(x->dims[i], sbit__dim_add(pads.before[i], pads.after[i]));
        if (sbit__dim_known(out->dims[i]) && out->dims[i].value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "pads cut more than axis %d has",
                                (int)i);
        }
    }
    return SBIT_OK;
}

/* The constant as an element of x's type in `store` (room for any type). */
static sbit_status sbit__pad_constant(const sbit_op_call *call, const sbit_tensor *x,
                                      double store[2], sbit_error *error)
{
    const sbit_tensor *value = sbit__in(call, 2);
    const float number = sbit_node_float(call->node, "value", 0.0f);
    memset(store, 0, 2 * sizeof store[0]);
    sbit__elem_zero(x->dtype, store, 0, 1);
    if (call->row->since_version < 11) {
        sbit__convert(SBIT_F32, &number, x->dtype, store, 1);
    } else if (value != NULL && sbit_tensor_count(value) == 1 && value->dtype == x->dtype) {
        sbit__elem_copy(x->dtype, store, 0, value->data, 0, 1);
    } else if (value != NULL && sbit_tensor_count(value) > 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "constant_value must be one element of the input's type");
    }
    return SBIT_OK;
}

/* Cuts negative pads off the input; what is left is written into y at to[], size[] each axis. */
static void sbit__pad_clip(int64_t size, int64_t before, int64_t after, sbit__pad_axis *axis)
{
    axis->first = before >= 0 ? 0 : before > -size ? -before : size;
    axis->size = size - axis->first;
    axis->size = after >= 0 ? axis->size : after > -axis->size ? axis->size + after : 0;
    axis->before = before > 0 ? before : 0;
}

static void sbit__pad_middle(const sbit_op_call *call, const sbit__pad_task *task)
{
    int64_t dims[SBIT_MAX_RANK], from[SBIT_MAX_RANK], to[SBIT_MAX_RANK], x0 = 0, y0 = 0;
    sbit__tensor_strides(task->x, from);
    sbit__tensor_strides(task->y, to);
    for (int32_t i = 0; i < task->y->rank; i++) {
        const sbit__pad_axis *axis = &task->axes[i];
        const int64_t room = task->y->dims[i] - axis->before; /* cuts may reach into the pads */
        dims[i] = axis->size < room ? axis->size : room < 0 ? 0 : room;
        if (dims[i] == 0) {
            return; /* pads may be as large as int64 */
        }
        x0 += axis->first * from[i];
        y0 += axis->before * to[i];
    }
    sbit__move_box(call->ctx, task->x->dtype, task->y->rank, dims, task->x->data, x0, from,
                   task->y->data, y0, to);
}

static sbit_status sbit__pad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__pads pads;
    sbit__pad_task task;
    int64_t dims[SBIT_MAX_RANK];
    double constant[2];
    memset(&task, 0, sizeof task);
    SBIT__TRY(sbit__pad_mode_of(call, &task.mode, error));
    SBIT__TRY(sbit__pads_read(call, x->rank, &pads, error));
    for (int32_t i = 0; i < x->rank; i++) {
        const sbit_dim size =
            sbit__dim_add(sbit__dim(x->dims[i]), sbit__dim_add(pads.before[i], pads.after[i]));
        if (!pads.known || !sbit__dim_known(size) || size.value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "axis %d becomes negative or too "
                                "large",
                                (int)i);
        }
        dims[i] = size.value;
        sbit__pad_clip(x->dims[i], pads.before[i].value, pads.after[i].value, &task.axes[i]);
        if (task.mode != SBIT__PAD_CONSTANT && task.axes[i].size == 0 && dims[i] > 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "axis %d has nothing to repeat",
                                (int)i);
        }
    }
    SBIT__TRY(sbit__op_output(call, 0, x->dtype, x->rank, dims, &task.y, error));
    if (task.y == NULL) {
        return SBIT_OK;
    }
    task.x = x;
    if (task.mode != SBIT__PAD_CONSTANT) {
        sbit__pad_rows(call, &task);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__pad_constant(call, x, constant, error));
    sbit__elem_fill(x->dtype, task.y->data, 0, sbit_tensor_count(task.y), constant, 0);
    sbit__pad_middle(call, &task);
    return SBIT_OK;
}

/* >>CenterCropPad */

static sbit_status sbit__center_target(const sbit_op_call *call, const sbit_type *x, sbit_type *out,
                                       sbit_error *error)
{
    int64_t axes[SBIT_MAX_RANK], n_axes = -1, count = 0;
    sbit_dim target[SBIT_MAX_RANK];
    SBIT__TRY(sbit__op_ints(call, "axes", -1, axes, SBIT_MAX_RANK, &n_axes, error));
    if (x->rank < 0) {
        return SBIT_OK;
    }
    out->rank = x->rank;
    memcpy(out->dims, x->dims, sizeof out->dims);
    if (!sbit__op_elems(call, 1, target, SBIT_MAX_RANK, &count)) {
        for (int32_t i = 0; i < x->rank; i++) {
            out->dims[i] = sbit__dim_any();
        }
        return SBIT_OK;
    }
    if (count != (n_axes >= 0 ? n_axes : x->rank)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "%lld sizes for %lld axes",
                            (long long)count, (long long)(n_axes >= 0 ? n_axes : x->rank));
    }
    for (int64_t i = 0; i < count; i++) {
        int32_t axis = (int32_t)i;
        if (n_axes >= 0) {
            SBIT__TRY(sbit__op_axis(call, axes[i], x->rank, &axis, error));
        }
        if (sbit__dim_known(target[i]) && target[i].value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "a size of %lld",
                                (long long)target[i].value);
        }
        out->dims[axis] = target[i];
    }
    return SBIT_OK;
}

static sbit_status sbit__center_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type ignored = sbit__type_unknown();
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), -1);
    return sbit__center_target(call, call->in_type[0], out != NULL ? out : &ignored, error);
}

static sbit_status sbit__center_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const sbit_type x_type = sbit__type_of_tensor(x);
    sbit_type type = sbit__type_unknown();
    sbit__pad_task task;
    memset(&task, 0, sizeof task);
    type.dtype = x->dtype;
    SBIT__TRY(sbit__center_target(call, &x_type, &type, error));
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &task.y, error));
    if (task.y == NULL) {
        return SBIT_OK;
    }
    task.x = x;
    for (int32_t i = 0; i < x->rank; i++) {
        const int64_t have = x->dims[i], want = task.y->dims[i];
        task.axes[i].first = have > want ? (have - want) / 2 : 0;
        task.axes[i].before = have < want ? (want - have) / 2 : 0;
        task.axes[i].size = have < want ? have : want;
    }
    sbit__elem_zero(x->dtype, task.y->data, 0, sbit_tensor_count(task.y));
    sbit__pad_middle(call, &task);
    return SBIT_OK;
}

/* >>ReverseSequence */

static sbit_status sbit__reverse_axes(const sbit_op_call *call, int32_t *time, int32_t *batch,
                                      sbit_error *error)
{
    const int64_t t = sbit_node_int(call->node, "time_axis", 0);
    const int64_t b = sbit_node_int(call->node, "batch_axis", 1);
    if ((t != 0 || b != 1) && (t != 1 || b != 0)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "time_axis and batch_axis must be 0 and 1");
    }
    *time = (int32_t)t;
    *batch = (int32_t)b;
    return SBIT_OK;
}

static sbit_status sbit__reverse_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t time = 0, batch = 1;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__reverse_axes(call, &time, &batch, error));
    if (call->in_type[0]->rank >= 0 && call->in_type[0]->rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "an input of rank below 2");
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__reverse_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *lengths = call->in[1];
    sbit_tensor *y = call->out[0];
    int32_t time = 0, batch = 1;
    SBIT__TRY(sbit__reverse_axes(call, &time, &batch, error));
    if (y == NULL) {
        return SBIT_OK;
    }
    const int64_t inner = sbit__dims_product(x->dims, 2, x->rank);
    const int64_t time_step = time == 0 ? x->dims[1] * inner : inner;
    const int64_t batch_step = batch == 0 ? x->dims[1] * inner : inner;
    if (sbit_tensor_count(lengths) != x->dims[batch]) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld lengths for a batch of %lld",
                            (long long)sbit_tensor_count(lengths), (long long)x->dims[batch]);
    }
    for (int64_t b = 0; b < x->dims[batch]; b++) {
        const int64_t length = sbit__tensor_i64_at(lengths, b);
        if (length < 0 || length > x->dims[time]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "length %lld of %lld steps",
                                (long long)length, (long long)x->dims[time]);
        }
        for (int64_t t = 0; t < x->dims[time]; t++) {
            const int64_t source = t < length ? length - 1 - t : t;
            sbit__elem_copy(x->dtype, y->data, b * batch_step + t * time_step, x->data,
                            b * batch_step + source * time_step, inner);
        }
    }
    return SBIT_OK;
}

/* >>rows */

static const sbit_op_quant sbit__move_quant_pass = {
    SBIT_QUANT_PASS_SCALE, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
static const sbit_op_quant sbit__move_quant_concat = {SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT |
                                                          SBIT_QUANT_SHARE_SCALE,
                                                      0xffffffffu,
                                                      -1,
                                                      -1,
                                                      -1,
                                                      0,
                                                      0,
                                                      NULL,
                                                      0.0f,
                                                      0.0f};
static const sbit_op_channel sbit__move_channel = {SBIT_CHANNEL_MOVES, 1, 0, 0, 0, NULL};
static const sbit_op_channel sbit__move_channel_concat = {SBIT_CHANNEL_MOVES, ~0u, 0, 0, 0, NULL};

#define SBIT__MOVE_WITH(name, version, types, fn, prepare, gradient, quant, channel)               \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__##fn##_infer, prepare, sbit__##fn##_run, gradient,   \
            NULL, quant, channel, NULL                                                             \
    }
#define SBIT__MOVE_OP(name, version, types, fn, gradient, quant, channel)                          \
    SBIT__MOVE_WITH(name, version, types, fn, NULL, gradient, quant, channel)
#define SBIT__MOVE_TRANSPOSE(version, types)                                                       \
    SBIT__MOVE_WITH("Transpose", version, types, transpose, sbit__transpose_prepare,               \
                    sbit__grad_transpose, &sbit__move_quant_pass, &sbit__move_channel)
#define SBIT__MOVE_CONCAT(version, types)                                                          \
    SBIT__MOVE_WITH("Concat", version, types, concat, sbit__concat_prepare, sbit__grad_concat,     \
                    &sbit__move_quant_concat, &sbit__move_channel_concat)
#define SBIT__MOVE_SPLIT(version, types)                                                           \
    {                                                                                              \
        "", "Split", version, types, SBIT_OP_OMITS, 0, sbit__split_infer, NULL, sbit__split_run,   \
            sbit__grad_split, NULL, &sbit__move_quant_pass, &sbit__move_channel, NULL              \
    }
#define SBIT__MOVE_SLICE(version, types)                                                           \
    SBIT__MOVE_OP("Slice", version, types, slice, sbit__grad_moves, &sbit__move_quant_pass,        \
                  &sbit__move_channel)
/* A constant other than a quantized number may be padded in: not a place that passes scales. */
#define SBIT__MOVE_PAD(version, types)                                                             \
    SBIT__MOVE_OP("Pad", version, types, pad, sbit__grad_pad, NULL, &sbit__move_channel)
#define SBIT__MOVE_EXPAND(name, version, types, fn, gradient)                                      \
    SBIT__MOVE_OP(name, version, types, fn, gradient, &sbit__move_quant_pass, &sbit__move_channel)

static const sbit_op_row sbit__move_rows_table[] = {
    SBIT__MOVE_TRANSPOSE(1, SBIT__T_ALL1),
    SBIT__MOVE_TRANSPOSE(13, SBIT__T_ALL13),
    SBIT__MOVE_TRANSPOSE(21, SBIT__T_ALL21),
    SBIT__MOVE_TRANSPOSE(23, SBIT__T_ALL23),
    SBIT__MOVE_TRANSPOSE(24, SBIT__T_ALL24),
    SBIT__MOVE_TRANSPOSE(25, SBIT__T_ALL25),
    SBIT__MOVE_CONCAT(1, SBIT__T_FLOATS1),
    SBIT__MOVE_CONCAT(4, SBIT__T_ALL1),
    SBIT__MOVE_CONCAT(11, SBIT__T_ALL1),
    SBIT__MOVE_CONCAT(13, SBIT__T_ALL13),
    SBIT__MOVE_SPLIT(1, SBIT__T_FLOATS1),
    SBIT__MOVE_SPLIT(2, SBIT__T_ALL1),
    SBIT__MOVE_SPLIT(11, SBIT__T_ALL1),
    SBIT__MOVE_SPLIT(13, SBIT__T_ALL13),
    SBIT__MOVE_SPLIT(18, SBIT__T_ALL13),
    SBIT__MOVE_SLICE(1, SBIT__T_ALL1),
    SBIT__MOVE_SLICE(10, SBIT__T_ALL1),
    SBIT__MOVE_SLICE(11, SBIT__T_ALL1),
    SBIT__MOVE_SLICE(13, SBIT__T_ALL13),
    SBIT__MOVE_PAD(1, SBIT__T_FLOATS1),
    SBIT__MOVE_PAD(2, SBIT__T_FLOATS1),
    SBIT__MOVE_PAD(11, SBIT__T_NUMBERS1),
    SBIT__MOVE_PAD(13, SBIT__T_ALL13),
    SBIT__MOVE_PAD(18, SBIT__T_ALL13),
    SBIT__MOVE_PAD(19, SBIT__T_ALL13),
    SBIT__MOVE_PAD(21, SBIT__T_ALL21),
    SBIT__MOVE_PAD(23, SBIT__T_ALL23),
    SBIT__MOVE_PAD(24, SBIT__T_ALL24),
    SBIT__MOVE_PAD(25, SBIT__T_ALL25),
    SBIT__MOVE_EXPAND("Expand", 8, SBIT__T_ALL1, expand, sbit__grad_expand),
    SBIT__MOVE_EXPAND("Expand", 13, SBIT__T_ALL13, expand, sbit__grad_expand),
    SBIT__MOVE_EXPAND("Tile", 1, SBIT__T_FLOATS1, tile, sbit__grad_moves),
    SBIT__MOVE_EXPAND("Tile", 6, SBIT__T_ALL1, tile, sbit__grad_moves),
    SBIT__MOVE_EXPAND("Tile", 13, SBIT__T_ALL13, tile, sbit__grad_moves),
    SBIT__MOVE_OP("CenterCropPad", 18, SBIT__T_ALL13, center, sbit__grad_center_crop_pad, NULL,
                  NULL),
    SBIT__MOVE_OP("ReverseSequence", 10, SBIT__T_ALL1, reverse, sbit__grad_moves,
                  &sbit__move_quant_pass, NULL),
    SBIT__MOVE_OP("ReverseSequence", 28, SBIT__T_ALL13, reverse, sbit__grad_moves,
                  &sbit__move_quant_pass, NULL),
};

#undef SBIT__MOVE_OP
#undef SBIT__MOVE_WITH
#undef SBIT__MOVE_TRANSPOSE
#undef SBIT__MOVE_CONCAT
#undef SBIT__MOVE_SPLIT
#undef SBIT__MOVE_SLICE
#undef SBIT__MOVE_PAD
#undef SBIT__MOVE_EXPAND
#undef SBIT__MOVE_TILE
#undef SBIT__MOVE_STRIP

SBIT__FN const sbit_op_row *sbit__op_rows_move(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__move_rows_table);
    return sbit__move_rows_table;
}
