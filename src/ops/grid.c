/* grid.c: DepthToSpace, SpaceToDepth, GridSample, AffineGrid. >>grid
 *
 * Called by: infer, exec. Calls: kernels (threads).
 * DepthToSpace and SpaceToDepth move elements between channels and blocks of b x b pixels. With i,
 * j the place within a block and c the channel of the small side, the large side's channel is DCR
 * (i * b + j) * C + c        CRD c * b * b + i * b + j GridSample takes its values at positions of
 * X between -1 and 1, the last axis of X first; taps (1, 2 or 4 for each axis) are found once for a
 * position and used for all channels. AffineGrid makes such positions: theta * (x, y[, z], 1) for
 * the pixel centres of an image.
 */
#include "elements_private.h"
#include "expand_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* floor, rint, fabs */

#if !SPARSEBIT_NO_OPS_VISION

/* ---- DepthToSpace, SpaceToDepth */

static sbit_status sbit__block_read(const sbit_op_call *call, int64_t *size, bool *crd,
                                    sbit_error *error)
{
    static const char *const modes[] = {"DCR", "CRD"};
    int32_t mode = 0;
    *size = sbit_node_int(call->node, "blocksize", 0);
    if (*size < 1 || *size > 32768) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "blocksize is %lld",
                            (long long)*size);
    }
    SBIT__TRY(sbit__op_word(call, "mode", modes, 2, &mode, error));
    *crd = mode == 1;
    return SBIT_OK;
}

static bool sbit__block_to_space(const sbit_op_call *call)
{
    return sbit__streq(call->row->op_type, "DepthToSpace");
}

/* dim * factor, or dim / divisor if that has no rest. */
static sbit_status sbit__block_dim(const sbit_op_call *call, sbit_dim dim, int64_t factor,
                                   int64_t divisor, sbit_dim *out, sbit_error *error)
{
    int64_t value = 0;
    *out = sbit__dim_any();
    if (!sbit__dim_known(dim)) {
        return SBIT_OK;
    }
    if (dim.value % divisor != 0 || !sbit__mul_i64(dim.value / divisor, factor, &value)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld does not divide by %lld",
                            (long long)dim.value, (long long)divisor);
    }
    *out = sbit__dim(value);
    return SBIT_OK;
}

static sbit_status sbit__block_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    int64_t size = 1;
    bool crd = false;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    SBIT__TRY(sbit__block_read(call, &size, &crd, error));
    if (rank >= 0 && rank != 4) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be 4", (int)rank);
    }
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, 4);
    if (rank < 0 || out == NULL) {
        return SBIT_OK;
    }
    const sbit_dim *in = call->in_type[0]->dims;
    const bool grows = sbit__block_to_space(call);
    const int64_t square = size * size;
    out->dims[0] = in[0];
    SBIT__TRY(
        sbit__block_dim(call, in[1], grows ? 1 : square, grows ? square : 1, &out->dims[1], error));
    SBIT__TRY(
        sbit__block_dim(call, in[2], grows ? size : 1, grows ? 1 : size, &out->dims[2], error));
    return sbit__block_dim(call, in[3], grows ? size : 1, grows ? 1 : size, &out->dims[3], error);
}

/* The large side's channel for channel c of the `channels` of the small side, at (i, j). */
static int64_t sbit__block_channel(int64_t size, bool crd, int64_t channels, int64_t c, int64_t i,
                                   int64_t j)
{
    return crd ? (c * size + i) * size + j : (i * size + j) * channels + c;
}

typedef struct sbit__block_task {
    const sbit_tensor *x;
    sbit_tensor *y;
    int64_t size;
    bool crd, grows;
} sbit__block_task;

/* Rows of the wide image: each takes from, or gives to, `size` channels. */
static void sbit__block_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__block_task *task = (const sbit__block_task *)user;
    const sbit_tensor *wide = task->grows ? task->y : task->x;
    const sbit_tensor *deep = task->grows ? task->x : task->y;
    const int64_t size = task->size;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const int64_t h = row % wide->dims[2];
        const int64_t c = row / wide->dims[2] % wide->dims[1];
        const int64_t n = row / wide->dims[2] / wide->dims[1];
        for (int64_t w = 0; w < wide->dims[3]; w++) {
            const int64_t channel =
                sbit__block_channel(size, task->crd, wide->dims[1], c, h % size, w % size);
            const int64_t other =
                ((n * deep->dims[1] + channel) * deep->dims[2] + h / size) * deep->dims[3] +
                w / size;
            const int64_t here = row * wide->dims[3] + w;
            if (wide->dtype == SBIT_F32) {
                const int64_t to = task->grows ? here : other, from = task->grows ? other : here;
                ((float *)task->y->data)[to] = ((const float *)task->x->data)[from];
            } else {
                sbit__elem_copy(wide->dtype, task->y->data, task->grows ? here : other,
                                task->x->data, task->grows ? other : here, 1);
            }
        }
    }
}

static sbit_status sbit__block_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__block_task task;
    SBIT__TRY(sbit__block_read(call, &task.size, &task.crd, error));
    task.grows = sbit__block_to_space(call);
    task.x = call->in[0];
    task.y = call->out[0];
    const sbit_tensor *wide = task.grows ? task.y : task.x;
    if (sbit_tensor_count(wide) > 0) {
        sbit__parallel_range(call->ctx, sbit__tensor_span(wide, 0, 3), 4, sbit__block_rows, &task);
    }
    return SBIT_OK;
}

/* ---- GridSample */

typedef enum sbit__grid_mode {
    SBIT__GRID_LINEAR,
    SBIT__GRID_CUBIC,
    SBIT__GRID_NEAREST
} sbit__grid_mode;

typedef enum sbit__grid_padding {
    SBIT__GRID_ZEROS,
    SBIT__GRID_BORDER,
    SBIT__GRID_REFLECTION
} sbit__grid_padding;

typedef struct sbit__grid_task {
    sbit__grid_mode mode;
    sbit__grid_padding padding;
    bool align_corners;
    const sbit_tensor *x, *grid;
    sbit_tensor *y;
    int32_t spatial;
    int64_t in_size, out_size;
    bool wide; /* the grid is float64, else float32 */
} sbit__grid_task;

#define SBIT__GRID_TAPS 64 /* 4 for each of 3 axes */

static sbit_status sbit__grid_read(const sbit_op_call *call, sbit__grid_task *task,
                                   sbit_error *error)
{
    static const char *const modes[] = {"linear", "cubic", "nearest", "bilinear", "bicubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    int32_t mode = 0, padding = 0;
    memset(task, 0, sizeof *task);
    task->align_corners = sbit_node_int(call->node, "align_corners", 0) != 0;
    SBIT__TRY(sbit__op_word(call, "mode", modes, 5, &mode, error));
    SBIT__TRY(sbit__op_word(call, "padding_mode", paddings, 3, &padding, error));
    task->mode = (sbit__grid_mode)(mode % 3);
    task->padding = (sbit__grid_padding)padding;
    return SBIT_OK;
}

static sbit_status sbit__grid_check(const sbit_op_call *call, int32_t rank, int32_t grid_rank,
                                    sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    const sbit_type *grid = call->in_type[1];
    if (rank >= 0 && (rank < 3 || rank > 5)) {
        return sbit_op_fail(call, rank < 3 ? SBIT_ERR_SHAPE : SBIT_ERR_UNSUPPORTED, error,
                            "input rank %d, must be 3 to 5", (int)rank);
    }
    if (rank >= 0 && grid_rank >= 0 && rank != grid_rank) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, grid rank %d", (int)rank,
                            (int)grid_rank);
    }
    if (grid_rank >= 0 && (grid_rank < 3 || grid_rank > 5)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "grid rank %d, must be 3 to 5",
                            (int)grid_rank);
    }
    if (grid_rank >= 0 && sbit__dim_known(grid->dims[grid_rank - 1]) &&
        grid->dims[grid_rank - 1].value != grid_rank - 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the grid's positions have %lld coordinates, must have %d",
                            (long long)grid->dims[grid_rank - 1].value, (int)grid_rank - 2);
    }
    if (rank >= 0 && grid_rank >= 0 && sbit__dim_known(x->dims[0]) &&
        sbit__dim_known(grid->dims[0]) && x->dims[0].value != grid->dims[0].value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "input and grid have batches %lld and %lld",
                            (long long)x->dims[0].value, (long long)grid->dims[0].value);
    }
    return SBIT_OK;
}

static sbit_status sbit__grid_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__grid_task task;
    int32_t rank = -1, grid_rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__op_dtypes(call, 2, SBIT_T_FLOATS, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    SBIT__TRY(sbit__op_rank(call, 1, &grid_rank, error));
    SBIT__TRY(sbit__grid_read(call, &task, error));
    SBIT__TRY(sbit__grid_check(call, rank, grid_rank, error));
    const sbit_type *x = call->in_type[0];
    if (x->dtype != SBIT_UNDEFINED && (SBIT_T_NUMBERS >> (uint32_t)x->dtype & 1u) == 0) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "%s cannot be sampled",
                            sbit_dtype_name((int32_t)x->dtype));
    }
    const int32_t out_rank = rank >= 0 ? rank : grid_rank;
    sbit_type *out = sbit__op_out(call, 0, x->dtype, out_rank);
    for (int32_t i = 0; out != NULL && i < out_rank; i++) {
        if (i < 2 && rank >= 0) {
            out->dims[i] = x->dims[i];
        } else if (i >= 2 && grid_rank >= 0) {
            out->dims[i] = call->in_type[1]->dims[i - 1];
        }
    }
    return SBIT_OK;
}

/* Folds x back between low and high as often as needed. */
static double sbit__grid_reflect(bool wide, double x, double low, double high)
{
    const double range = high - low;
    const bool below = x < low;
    const double distance = sbit__real(wide, below ? low - x : x - high);
    if (distance <= 0.0 || !(range > 0.0)) {
        return range > 0.0 ? x : low;
    }
    const double times = floor(sbit__real(wide, distance / range));
    const double rest = sbit__real(wide, distance - sbit__real(wide, times * range));
    const bool even = times - 2.0 * floor(times / 2.0) < 1.0;
    return sbit__real(wide, below == even ? low + rest : high - rest);
}

/* Grid coordinate -> position in cells, with padding that moves positions applied. Computed as in
 * float32 (where the coordinates are), so that halves are halves and edges are edges. */
static double sbit__grid_position(const sbit__grid_task *task, double at, int64_t length)
{
    const bool w = task->wide;
    const double last = (double)(length - 1);
    const double low = task->align_corners ? 0.0 : -0.5;
    const double high = task->align_corners ? last : last + 0.5;
    const double shifted = sbit__real(w, at + 1.0);
    double x = task->align_corners
                   ? sbit__real(w, shifted / 2.0 * last)
                   : sbit__real(w, sbit__real(w, shifted * (double)length) - 1.0) / 2.0;
    if (task->mode == SBIT__GRID_NEAREST) {
        x = rint(x); /* halfway cases to even */
    }
    if (!(x >= -1e9 && x <= 1e9)) { /* not a number, or beyond any cell's number */
        x = x > 0.0 ? 1e9 : -1e9;
    }
    if (x >= low && x <= high) {
        return x;
    }
    if (task->padding == SBIT__GRID_BORDER && task->mode != SBIT__GRID_CUBIC) {
        /* cubic: only its taps stop at the border, as in PyTorch and ONNX Runtime */
        return x < 0.0 ? 0.0 : x > last ? last : x;
    }
    return task->padding == SBIT__GRID_REFLECTION ? sbit__grid_reflect(w, x, low, high) : x;
}

/* Cell number `at` of an axis, -1: counts as 0. */
static int64_t sbit__grid_cell(const sbit__grid_task *task, double at, int64_t length)
{
    const double last = (double)(length - 1);
    if (at >= 0.0 && at <= last) {
        return (int64_t)at;
    }
    if (task->padding == SBIT__GRID_ZEROS) {
        return -1;
    }
    if (task->padding == SBIT__GRID_REFLECTION) {
        at = task->align_corners ? sbit__grid_reflect(task->wide, at, 0.0, last)
                                 : sbit__grid_reflect(task->wide, at, -0.5, last + 0.5);
    }
    return at > 0.0 ? (at < last ? (int64_t)at : length - 1) : 0;
}

/* Weights of the cells around a position whose fraction is f, and where the first lies. */
static int32_t sbit__grid_weights(sbit__grid_mode mode, double f, double weights[4], double *first)
{
    const double a = -0.75;
    if (mode == SBIT__GRID_NEAREST) {
        weights[0] = 1.0;
        return 1;
    }
    if (mode == SBIT__GRID_LINEAR) {
        weights[0] = 1.0 - f;
        weights[1] = f;
        return 2;
    }
    for (int32_t i = 0; i < 4; i++) {
        const double d = fabs(f + 1.0 - (double)i);
        weights[i] = d <= 1.0 ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
                              : ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
    }
    *first -= 1.0;
    return 4;
}

/* The derivatives of those weights. */
static void sbit__grid_slopes(sbit__grid_mode mode, double f, double slopes[4])
{
    const double a = -0.75;
    slopes[0] = mode == SBIT__GRID_LINEAR ? -1.0 : 0.0;
    slopes[1] = 1.0;
    for (int32_t i = 0; mode == SBIT__GRID_CUBIC && i < 4; i++) {
        const double at = f + 1.0 - (double)i, d = fabs(at);
        const double slope = d <= 1.0 ? (3.0 * (a + 2.0) * d - 2.0 * (a + 3.0)) * d
                                      : (3.0 * a * d - 10.0 * a) * d + 8.0 * a;
        slopes[i] = at < 0.0 ? -slope : slope;
    }
}

/* Cells by which a position moves with its grid coordinate: less than 0 where it is reflected, 0
 * where it stays at the border. */
static double sbit__grid_speed(const sbit__grid_task *task, double at, int64_t length)
{
    const double last = (double)(length - 1), size = task->align_corners ? last : last + 1.0;
    const double low = task->align_corners ? 0.0 : -0.5, high = last - low;
    const double x = (at + 1.0) * size / 2.0 + low;
    if (task->mode == SBIT__GRID_NEAREST || (x >= low && x <= high) ||
        task->padding == SBIT__GRID_ZEROS ||
        (task->padding == SBIT__GRID_BORDER && task->mode == SBIT__GRID_CUBIC)) {
        return size / 2.0;
    }
    if (task->padding == SBIT__GRID_BORDER || !(high > low)) {
        return 0.0;
    }
    const double folds = floor((x - low) / (high - low));
    return folds - 2.0 * floor(folds / 2.0) < 0.5 ? size / 2.0 : -size / 2.0;
}

/* All taps of one position: cells within a plane of X, with weights, or their derivatives by the
 * grid's coordinate `by` (-1: none). Returns how many. */
static int32_t sbit__grid_taps(const sbit__grid_task *task, int64_t point, int32_t by,
                               int64_t cells[SBIT__GRID_TAPS], double weights[SBIT__GRID_TAPS])
{
    int32_t count = 1;
    cells[0] = 0;
    weights[0] = 1.0;
    for (int32_t axis = 0; axis < task->spatial; axis++) {
        const int64_t length = task->x->dims[axis + 2];
        const double at = sbit__real_at(task->wide, task->grid->data,
                                        point * task->spatial + task->spatial - 1 - axis);
        const double x = sbit__grid_position(task, at, length);
        double first = floor(x), own[4];
        const double fraction = x - first;
        const int32_t n = sbit__grid_weights(task->mode, fraction, own, &first);
        if (by == task->spatial - 1 - axis) {
            const double speed = sbit__grid_speed(task, at, length);
            sbit__grid_slopes(task->mode, fraction, own);
            for (int32_t k = 0; k < n; k++) {
                own[k] *= speed;
            }
        }
        for (int32_t k = n - 1; k >= 0; k--) { /* backwards, so that block 0 is read until last */
            const int64_t cell = sbit__grid_cell(task, first + (double)k, length);
            for (int32_t i = 0; i < count; i++) {
                const bool counts = cell >= 0 && cells[i] >= 0;
                cells[k * count + i] = counts ? cells[i] * length + cell : -1;
                weights[k * count + i] = weights[i] * own[k];
            }
        }
        count *= n;
    }
    return count;
}

static void sbit__grid_points(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__grid_task *task = (const sbit__grid_task *)user;
    const int64_t channels = task->x->dims[1];
    (void)worker;
    for (int64_t point = begin; point < end; point++) {
        int64_t cells[SBIT__GRID_TAPS];
        double weights[SBIT__GRID_TAPS];
        const int64_t n = point / task->out_size;
        const int32_t taps = sbit__grid_taps(task, point, -1, cells, weights);
        for (int64_t c = 0; c < channels; c++) {
            const int64_t plane = (n * channels + c) * task->in_size;
            const int64_t to = (n * channels + c) * task->out_size + point % task->out_size;
            double sum = 0.0;
            for (int32_t k = 0; k < taps; k++) {
                if (cells[k] >= 0) {
                    sum +=
                        weights[k] * (task->x->dtype == SBIT_F32
                                          ? (double)((const float *)task->x->data)[plane + cells[k]]
                                          : sbit__tensor_f64_at(task->x, plane + cells[k]));
                }
            }
            if (task->y->dtype == SBIT_F32) {
                ((float *)task->y->data)[to] = (float)sum;
            } else {
                sbit__tensor_set_f64(task->y, to, sum);
            }
        }
    }
}

static sbit_status sbit__grid_run_any(const sbit_op_call *call, sbit_error *error)
{
    sbit__grid_task task;
    SBIT__TRY(sbit__grid_read(call, &task, error));
    task.x = call->in[0];
    task.grid = call->in[1];
    task.y = call->out[0];
    task.wide = task.grid->dtype == SBIT_F64;
    task.spatial = task.x->rank - 2;
    task.in_size = sbit__tensor_span(task.x, 2, task.x->rank);
    task.out_size = sbit__tensor_span(task.y, 2, task.y->rank);
    if (sbit_tensor_count(task.y) == 0) {
        return SBIT_OK;
    }
    if (task.in_size == 0) {
        sbit__elem_zero(task.y->dtype, task.y->data, 0, sbit_tensor_count(task.y));
        return SBIT_OK;
    }
    sbit__parallel_range(call->ctx, task.y->dims[0] * task.out_size, 64, sbit__grid_points, &task);
    return SBIT_OK;
}

static sbit_status sbit__grid_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__grid_run_any, sbit__grid_run_any, error);
}

/* GridSampleGrad(x, grid, dy) -> dx, dgrid: a plane of dx and a position of dgrid are each computed
 * by one thread. */
static sbit_status sbit__grid_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    sbit__op_same_type(call, 0, 0);
    sbit__op_same_type(call, 1, 1);
    return SBIT_OK;
}

typedef struct sbit__grid_back {
    sbit__grid_task task;
    const sbit_tensor *dy;
    sbit_tensor *dx, *dgrid;
} sbit__grid_back;

static void sbit__grid_back_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__grid_back *back = (const sbit__grid_back *)user;
    const sbit__grid_task *task = &back->task;
    (void)worker;
    for (int64_t plane = begin; plane < end; plane++) {
        const int64_t n = plane / task->x->dims[1], first = plane * task->in_size;
        for (int64_t i = 0; i < task->in_size; i++) {
            sbit__tensor_set_f64(back->dx, first + i, 0.0);
        }
        for (int64_t p = 0; p < task->out_size; p++) {
            int64_t cells[SBIT__GRID_TAPS];
            double weights[SBIT__GRID_TAPS];
            const int32_t taps =
                sbit__grid_taps(task, n * task->out_size + p, -1, cells, weights);
            const double dy = sbit__tensor_f64_at(back->dy, plane * task->out_size + p);
            for (int32_t k = 0; k < taps; k++) {
                const int64_t at = first + cells[k];
                if (cells[k] >= 0) {
                    sbit__tensor_set_f64(back->dx, at,
                                         sbit__tensor_f64_at(back->dx, at) + dy * weights[k]);
                }
            }
        }
    }
}

static void sbit__grid_back_points(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__grid_back *back = (const sbit__grid_back *)user;
    const sbit__grid_task *task = &back->task;
    const int64_t channels = task->x->dims[1];
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t cells[SBIT__GRID_TAPS];
        double weights[SBIT__GRID_TAPS], sum = 0.0;
        const int64_t point = i / task->spatial, n = point / task->out_size;
        const int32_t taps =
            sbit__grid_taps(task, point, (int32_t)(i % task->spatial), cells, weights);
        for (int64_t plane = n * channels; plane < (n + 1) * channels; plane++) {
            const double dy = sbit__tensor_f64_at(
                back->dy, plane * task->out_size + point % task->out_size);
            for (int32_t k = 0; k < taps; k++) {
                sum += cells[k] >= 0 ? dy * weights[k] *
                                           sbit__tensor_f64_at(task->x,
                                                               plane * task->in_size + cells[k])
                                     : 0.0;
            }
        }
        sbit__tensor_set_f64(back->dgrid, i, sum);
    }
}

static sbit_status sbit__grid_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__grid_back back;
    memset(&back, 0, sizeof back);
    SBIT__TRY(sbit__grid_read(call, &back.task, error));
    back.task.x = call->in[0];
    back.task.grid = call->in[1];
    back.task.wide = back.task.grid->dtype == SBIT_F64;
    back.task.spatial = back.task.x->rank - 2;
    back.dy = call->in[2];
    back.dx = sbit__out(call, 0);
    back.dgrid = sbit__out(call, 1);
    back.task.in_size = sbit__tensor_span(back.task.x, 2, back.task.x->rank);
    back.task.out_size = sbit__tensor_span(back.dy, 2, back.dy->rank);
    if (back.dx != NULL && sbit_tensor_count(back.dx) > 0) {
        sbit__parallel_range(call->ctx, back.dx->dims[0] * back.dx->dims[1], 1,
                             sbit__grid_back_planes, &back);
    }
    if (back.dgrid != NULL && sbit_tensor_count(back.dgrid) > 0) {
        if (back.task.in_size == 0) {
            sbit__elem_zero(back.dgrid->dtype, back.dgrid->data, 0, sbit_tensor_count(back.dgrid));
            return SBIT_OK;
        }
        sbit__parallel_range(call->ctx, sbit_tensor_count(back.dgrid), 64, sbit__grid_back_points,
                             &back);
    }
    return SBIT_OK;
}

/* ---- AffineGrid */

static sbit_status sbit__affine_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1, size_rank = -1;
    sbit_dim size[SBIT_MAX_RANK];
    int64_t count = -1;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    SBIT__TRY(sbit__op_rank(call, 1, &size_rank, error));
    const sbit_type *theta = call->in_type[0];
    const sbit_type *type = call->in_type[1];
    if (rank >= 0 && rank != 3) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "theta has rank %d, must be 3", (int)rank);
    }
    if (!sbit__op_elems(call, 1, size, SBIT_MAX_RANK, &count)) {
        count = -1;
    }
    if (count < 0 && size_rank == 1 && sbit__dim_known(type->dims[0])) {
        count = type->dims[0].value;
        for (int64_t i = 0; i < count && i < SBIT_MAX_RANK; i++) {
            size[i] = sbit__dim_any();
        }
    }
    if ((type->dtype != SBIT_I64 && type->dtype != SBIT_UNDEFINED) ||
        (count >= 0 && count != 4 && count != 5)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "size must be 4 or 5 int64 numbers: N, C and the image's lengths");
    }
    const int64_t spatial = count - 2;
    for (int32_t i = 1; i < 3 && rank == 3 && count > 0; i++) {
        const sbit_dim have = theta->dims[i];
        if (sbit__dim_known(have) && have.value != spatial + i - 1) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "theta must be [N, %d, %d] for %d coordinates", (int)spatial,
                                (int)spatial + 1, (int)spatial);
        }
    }
    sbit_type *out = sbit__op_out(call, 0, theta->dtype, count > 0 ? (int32_t)count : -1);
    if (out == NULL || count < 0) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        if (sbit__dim_known(size[i]) && size[i].value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "size[%d] is negative", (int)i);
        }
    }
    out->dims[0] = rank == 3 && sbit__dim_known(theta->dims[0]) ? theta->dims[0] : size[0];
    if (sbit__dim_known(out->dims[0]) && sbit__dim_known(size[0]) &&
        out->dims[0].value != size[0].value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "theta and size have batches %lld and %lld",
                            (long long)out->dims[0].value, (long long)size[0].value);
    }
    for (int64_t i = 2; i < count; i++) {
        out->dims[i - 1] = size[i];
    }
    out->dims[count - 1] = sbit__dim(spatial);
    return SBIT_OK;
}

typedef struct sbit__affine_task {
    bool wide; /* double, else float */
    const void *theta;
    void *y;
    int32_t spatial;
    int64_t dims[3], size;
    bool align_corners;
} sbit__affine_task;

/* The coordinates of a point of the grid, the last axis first, and 1. */
static void sbit__affine_at(const sbit__affine_task *task, int64_t point, double at[4])
{
    const int32_t n = task->spatial;
    for (int32_t i = 0; i < n; i++) {
        const int64_t length = task->dims[n - 1 - i];
        const double k = (double)(point % length);
        point /= length;
        if (task->align_corners) {
            at[i] = length > 1 ? 2.0 * k / (double)(length - 1) - 1.0 : 0.0;
        } else {
            at[i] = (2.0 * k + 1.0) / (double)length - 1.0;
        }
    }
    at[n] = 1.0;
}

static void sbit__affine_points(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__affine_task *task = (const sbit__affine_task *)user;
    const int32_t n = task->spatial;
    (void)worker;
    for (int64_t point = begin; point < end; point++) {
        const int64_t theta = point / task->size * n * (n + 1);
        double at[4];
        sbit__affine_at(task, point % task->size, at);
        for (int32_t i = 0; i < n; i++) {
            double sum = 0.0;
            for (int32_t k = 0; k <= n; k++) {
                sum += sbit__real_at(task->wide, task->theta, theta + i * (n + 1) + k) * at[k];
            }
            sbit__real_set(task->wide, task->y, point * n + i, sum);
        }
    }
}

static sbit_status sbit__affine_run_any(const sbit_op_call *call, sbit_error *error)
{
    sbit__affine_task task;
    const sbit_tensor *y = call->out[0];
    (void)error;
    memset(&task, 0, sizeof task);
    task.wide = call->in[0]->dtype == SBIT_F64;
    task.theta = call->in[0]->data;
    task.y = y->data;
    task.spatial = y->rank - 2;
    task.size = 1;
    for (int32_t i = 0; i < task.spatial; i++) {
        task.dims[i] = y->dims[i + 1];
        task.size *= task.dims[i];
    }
    task.align_corners = sbit_node_int(call->node, "align_corners", 0) != 0;
    sbit__parallel_range(call->ctx, y->dims[0] * task.size, 256, sbit__affine_points, &task);
    return SBIT_OK;
}

static sbit_status sbit__affine_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__affine_run_any, sbit__affine_run_any, error);
}

/* What is trained: the coordinates [points, n + 1] times theta', in the grid's shape. */
static sbit_status sbit__affine_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    static const int64_t flip[] = {0, 2, 1};
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id out = sbit__expand_out(&e, 0);
    const sbit_type type = sbit_graph_value(graph, out)->type;
    int64_t shape[SBIT_MAX_RANK] = {0}, dims[2];
    sbit__affine_task task;
    sbit_tensor points;
    memset(&task, 0, sizeof task);
    task.size = 1;
    task.spatial = type.rank - 2;
    for (int32_t i = 1; i < type.rank; i++) {
        shape[i] = sbit__dim_known(type.dims[i]) ? type.dims[i].value : -1;
        if (shape[i] < 0) {
            task.spatial = 0;
        } else if (i <= task.spatial) {
            task.dims[i - 1] = shape[i];
            task.size *= shape[i];
        }
    }
    if (task.spatial < 2 || e.status != SBIT_OK) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "the size of the grid must be known");
        return e.status;
    }
    task.align_corners = sbit_node_int(&e.node, "align_corners", 0) != 0;
    dims[0] = task.size;
    dims[1] = task.spatial + 1;
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(graph), e.dtype, 2, dims, &points, error));
    for (int64_t p = 0; p < task.size; p++) {
        double at[4];
        sbit__affine_at(&task, p, at);
        for (int64_t i = 0; i < dims[1]; i++) {
            sbit__tensor_set_f64(&points, p * dims[1] + i, at[i]);
        }
    }
    const sbit_value_id none = sbit__expand_none, grid = sbit__expand_constant(&e, &points);
    sbit_tensor_free(sbit_graph_ctx(graph), &points);
    const sbit_value_id y =
        sbit__expand_op(&e, "MatMul", grid,
                        sbit__expand_transpose(&e, e.node.inputs[0], flip, 3, none), NULL, none);
    (void)sbit__expand_op(&e, "Reshape", y, sbit__expand_ints(&e, shape, type.rank), NULL, out);
    return e.status;
}

/* ---- rows */

static const sbit_op_quant sbit__block_quant = {
    SBIT_QUANT_PASS_SCALE, 1, -1, -1, -1, 0, 0, NULL, 0, 0};
static const sbit_op_channel sbit__block_channels = {SBIT_CHANNEL_MOVES, 1, 0, 0, 0, NULL};
static const sbit_op_channel sbit__grid_channels = {SBIT_CHANNEL_KEEPS, 1, 0, 0, 0, NULL};

#define SBIT__BLOCK_ROW(name, version, types)                                                      \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__block_infer, sbit__op_prepare_check,                 \
            sbit__block_run, sbit__grad_moves, NULL, &sbit__block_quant, &sbit__block_channels,    \
            NULL                                                                                   \
    }
#define SBIT__GRID_ROW(name, version, types, infer, run, gradient, expand)                         \
    {                                                                                              \
        "", name, version, types, 0, 0, infer, sbit__op_prepare_f32, run, gradient, expand, NULL,  \
            &sbit__grid_channels, NULL                                                             \
    }

static const sbit_op_row sbit__grid_rows[] = {
    SBIT__BLOCK_ROW("DepthToSpace", 1, SBIT__T_ALL1),
    SBIT__BLOCK_ROW("DepthToSpace", 11, SBIT__T_ALL1),
    SBIT__BLOCK_ROW("DepthToSpace", 13, SBIT__T_ALL13),
    SBIT__BLOCK_ROW("DepthToSpace", 28, SBIT__T_ALL13),
    SBIT__BLOCK_ROW("SpaceToDepth", 1, SBIT__T_ALL1),
    SBIT__BLOCK_ROW("SpaceToDepth", 13, SBIT__T_ALL13),
    SBIT__BLOCK_ROW("SpaceToDepth", 28, SBIT__T_ALL13),
    SBIT__GRID_ROW("GridSample", 16, SBIT__T_NUMBERS1, sbit__grid_infer, sbit__grid_run,
                   sbit__grad_grid_sample, NULL),
    SBIT__GRID_ROW("GridSample", 20, SBIT__T_NUMBERS1, sbit__grid_infer, sbit__grid_run,
                   sbit__grad_grid_sample, NULL),
    SBIT__GRID_ROW("GridSample", 22, SBIT_T_NUMBERS, sbit__grid_infer, sbit__grid_run,
                   sbit__grad_grid_sample, NULL),
    SBIT__GRID_ROW("AffineGrid", 20, SBIT_T_FLOATS, sbit__affine_infer, sbit__affine_run, NULL,
                   sbit__affine_expand),
    {SBIT__GRAD_DOMAIN, "GridSampleGrad", 1, SBIT__T_GRAD, 0, 0, sbit__grid_grad_infer, NULL,
     sbit__grid_grad_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__GRID_TAPS
#undef SBIT__BLOCK_ROW
#undef SBIT__GRID_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_grid(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__grid_rows);
    return sbit__grid_rows;
}

#endif /* SPARSEBIT_NO_OPS_VISION */
