/* pool.c: MaxPool, AveragePool, LpPool, their global forms, MaxUnpool, MaxRoiPool, RoiAlign. >>pool
 *
 * Called by: infer, exec. Calls: kernels (rows of floats).
 * Layout: X [N, C, spatial...]; a plane is one channel of one image, and planes are independent.
 * float32 windows that lie inside of the input are combined for all positions of a plane, axis
 * after axis, by vector kernels, and every stride-th result is taken; windows at the edges, and all
 * of them if that is less work, are looked at one by one. Elements outside of the input never take
 * part; AveragePool's count_include_pad counts padding that pads names, but not what ceil_mode adds
 * behind it. A window that sees nothing but padding (possible with dilations) gives 0.
 * MaxPool's Indices count elements of the whole X; the first of equal values wins.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* pow, fabs, floor, ceil, round */

typedef enum sbit__pooling_kind {
    SBIT__POOLING_MAX,
    SBIT__POOLING_AVERAGE,
    SBIT__POOLING_LP
} sbit__pooling_kind;

typedef struct sbit__pooling_plan {
    sbit__pooling_kind kind;
    sbit__pool_shape s;
    bool count_pad, column_major;
    double p;
    bool slides;                            /* windows are combined at all positions */
    int64_t strip;                          /* ... for so many rows of output at once; 0: all */
    int64_t inside_begin[3], inside_end[3]; /* outputs whose windows lie inside of the input */
} sbit__pooling_plan;

/* ---- shapes */

static sbit_status sbit__pooling_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    sbit__window window;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    const sbit_type *x = call->in_type[0];
    if (rank < 0) {
        (void)sbit__op_out(call, 0, x->dtype, -1);
        (void)sbit__op_out(call, 1, SBIT_I64, -1);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__window_read(call, rank - 2, NULL, &window, error));
    window.may_cut = true;
    for (int32_t i = 0; i < 2; i++) {
        sbit_type *out = sbit__op_out(call, i, i == 0 ? x->dtype : SBIT_I64, rank);
        if (out != NULL) {
            out->dims[0] = x->dims[0];
            out->dims[1] = x->dims[1];
            SBIT__TRY(sbit__window_dims(call, &window, x->dims + 2, out->dims + 2, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__pooling_p(const sbit_op_call *call, double *p, sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(call->node, "p");
    *p = 2.0;
    if (attr != NULL) { /* version 1: a float */
        *p = attr->type == SBIT_ONNX_ATTR_FLOAT ? (double)attr->f : (double)attr->i;
    }
    if (!(*p > 0.0)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "p is %g, must be positive", *p);
    }
    return SBIT_OK;
}

static sbit_status sbit__pooling_plan_of(const sbit_op_call *call, sbit__pooling_kind kind,
                                         sbit__pooling_plan *plan, sbit_error *error)
{
    memset(plan, 0, sizeof *plan);
    SBIT__TRY(sbit__pool_shape_of(call, call->in_type[0], false, &plan->s, error));
    plan->kind = kind;
    plan->count_pad = sbit_node_int(call->node, "count_include_pad", 0) != 0;
    plan->column_major = sbit_node_int(call->node, "storage_order", 0) != 0;
    return kind == SBIT__POOLING_LP ? sbit__pooling_p(call, &plan->p, error) : SBIT_OK;
}

/* ---- element by element: any type, with indices */

typedef struct sbit__pooling_task {
    const sbit__pooling_plan *plan;
    const sbit_kernels *kernels;
    const void *x;
    void *y;
    int64_t *indices;   /* NULL: not wanted */
    float *rows;        /* two planes for each worker, if the plan slides */
    int64_t row_stride; /* floats between two workers' planes */
} sbit__pooling_task;

static int64_t sbit__pooling_index(const sbit__pooling_plan *plan, int64_t plane, int64_t at)
{
    if (plan->column_major) { /* first spatial dim runs fastest */
        const int64_t x = at % plan->s.in[2], y = at / plan->s.in[2] % plan->s.in[1];
        const int64_t z = at / plan->s.in[2] / plan->s.in[1];
        at = z + (y + x * plan->s.in[1]) * plan->s.in[0];
    }
    return plane * plan->s.in_size + at;
}

/* Defines a task over planes for one type. */
#define SBIT__POOLING_MAX_OF(type, name)                                                           \
    static int64_t name##_at(const sbit__pooling_plan *plan, const type *x, int64_t o)             \
    {                                                                                              \
        const sbit__pool_taps tx = sbit__pool_taps_of(&plan->s, 2, o % plan->s.out[2]);            \
        const sbit__pool_taps ty =                                                                 \
            sbit__pool_taps_of(&plan->s, 1, o / plan->s.out[2] % plan->s.out[1]);                  \
        const sbit__pool_taps tz =                                                                 \
            sbit__pool_taps_of(&plan->s, 0, o / plan->s.out[2] / plan->s.out[1]);                  \
        int64_t best = -1;                                                                         \
        for (int64_t kz = tz.begin; kz < tz.end; kz++) {                                           \
            for (int64_t ky = ty.begin; ky < ty.end; ky++) {                                       \
                const int64_t row = ((tz.start + kz * plan->s.dilation[0]) * plan->s.in[1] +       \
                                     ty.start + ky * plan->s.dilation[1]) *                        \
                                        plan->s.in[2] +                                            \
                                    tx.start;                                                      \
                for (int64_t kx = tx.begin; kx < tx.end; kx++) {                                   \
                    const int64_t at = row + kx * plan->s.dilation[2];                             \
                    best = best < 0 || x[at] > x[best] || x[at] != x[at] ? at : best;              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        return best;                                                                               \
    }                                                                                              \
    static void name(void *user, int64_t begin, int64_t end, int32_t worker)                       \
    {                                                                                              \
        const sbit__pooling_task *task = (const sbit__pooling_task *)user;                         \
        const sbit__pooling_plan *plan = task->plan;                                               \
        (void)worker;                                                                              \
        for (int64_t plane = begin; plane < end; plane++) {                                        \
            const type *x = (const type *)task->x + plane * plan->s.in_size;                       \
            for (int64_t o = 0; o < plan->s.out_size; o++) {                                       \
                const int64_t best = name##_at(plan, x, o);                                        \
                const int64_t to = plane * plan->s.out_size + o;                                   \
                ((type *)task->y)[to] = best < 0 ? (type)0 : x[best];                              \
                if (task->indices != NULL) {                                                       \
                    task->indices[to] = best < 0 ? -1 : sbit__pooling_index(plan, plane, best);    \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

SBIT__POOLING_MAX_OF(float, sbit__pooling_max_f32)
SBIT__POOLING_MAX_OF(double, sbit__pooling_max_f64)
SBIT__POOLING_MAX_OF(int8_t, sbit__pooling_max_i8)
SBIT__POOLING_MAX_OF(uint8_t, sbit__pooling_max_u8)

/* |x|^p of LpPool. */
static float sbit__pooling_power(const sbit__pooling_plan *plan, float x)
{
    const double value = fabs((double)x);
    return (float)(plan->p == 2.0 ? value * value : plan->p == 1.0 ? value : pow(value, plan->p));
}

/* From the combination of a window's elements to the output. */
static float sbit__pooling_finish(const sbit__pooling_plan *plan, float value, float count)
{
    if (plan->kind != SBIT__POOLING_LP) {
        return plan->kind == SBIT__POOLING_AVERAGE ? value / count : value;
    }
    return plan->p == 2.0   ? sqrtf(value)
           : plan->p == 1.0 ? value
                            : (float)pow((double)value, 1.0 / plan->p);
}

/* ---- float32: windows one by one, or whole planes at once */

/* Not a number is larger than all numbers, as in the vector kernels, NumPy and PyTorch. */
static float sbit__pooling_larger(float next, float value)
{
    return next > value || next != next ? next : value;
}

/* One row of taps within the input, at distance `step`, added to or compared with `value`. */
static float sbit__pooling_taps_row(const sbit__pooling_task *task, const float *x, int64_t n,
                                    int64_t step, float value)
{
    const sbit__pooling_plan *plan = task->plan;
    if (plan->kind == SBIT__POOLING_LP) {
        for (int64_t i = 0; i < n; i++) {
            value += sbit__pooling_power(plan, x[i * step]);
        }
        return value;
    }
    if (step == 1 && n >= 16) { /* as when AveragePool stands for GlobalAveragePool */
        const float more = plan->kind == SBIT__POOLING_MAX ? task->kernels->f32_max(n, x)
                                                           : task->kernels->f32_sum(n, x);
        return plan->kind == SBIT__POOLING_MAX ? sbit__pooling_larger(more, value) : value + more;
    }
    for (int64_t i = 0; i < n; i++) {
        const float next = x[i * step];
        value = plan->kind == SBIT__POOLING_MAX ? sbit__pooling_larger(next, value) : value + next;
    }
    return value;
}

/* Output o of a plane by its definition. */
static float sbit__pooling_window(const sbit__pooling_task *task, const float *x, int64_t o)
{
    const sbit__pooling_plan *plan = task->plan;
    const sbit__pool_taps tx = sbit__pool_taps_of(&plan->s, 2, o % plan->s.out[2]);
    const sbit__pool_taps ty = sbit__pool_taps_of(&plan->s, 1, o / plan->s.out[2] % plan->s.out[1]);
    const sbit__pool_taps tz = sbit__pool_taps_of(&plan->s, 0, o / plan->s.out[2] / plan->s.out[1]);
    const int64_t n = tx.end - tx.begin;
    const int64_t inside = n * (ty.end - ty.begin) * (tz.end - tz.begin);
    float value = 0.0f;
    if (n <= 0 || inside <= 0) {
        return 0.0f;
    }
    if (plan->kind == SBIT__POOLING_MAX) {
        value = x[((tz.start + tz.begin * plan->s.dilation[0]) * plan->s.in[1] + ty.start +
                   ty.begin * plan->s.dilation[1]) *
                      plan->s.in[2] +
                  tx.start + tx.begin * plan->s.dilation[2]];
    }
    for (int64_t kz = tz.begin; kz < tz.end; kz++) {
        for (int64_t ky = ty.begin; ky < ty.end; ky++) {
            const int64_t row = ((tz.start + kz * plan->s.dilation[0]) * plan->s.in[1] + ty.start +
                                 ky * plan->s.dilation[1]) *
                                plan->s.in[2];
            value = sbit__pooling_taps_row(task, x + row + tx.start + tx.begin * plan->s.dilation[2],
                                           n, plan->s.dilation[2], value);
        }
    }
    const float counted =
        plan->count_pad ? (float)tx.padded * (float)ty.padded * (float)tz.padded : (float)inside;
    return sbit__pooling_finish(plan, value, counted);
}

/* Combines the windows at every position of n elements (some rows, or a whole plane), axis after
 * axis; the result lies at each window's first element and is right for windows that lie inside of
 * the input. */
static const float *sbit__pooling_slide(const sbit__pooling_task *task, const float *x, int64_t n,
                                        float *a)
{
    float *b = a + task->row_stride / 2;
    const sbit__pooling_plan *plan = task->plan;
    const sbit__binary op = plan->kind == SBIT__POOLING_MAX ? SBIT__BINARY_MAX : SBIT__BINARY_ADD;
    int64_t distance = 1;
    if (plan->kind == SBIT__POOLING_LP) {
        for (int64_t i = 0; i < n; i++) {
            b[i] = sbit__pooling_power(plan, x[i]);
        }
        x = b;
    }
    for (int32_t axis = 2; axis >= 0; axis--) {
        const int64_t step = plan->s.dilation[axis] * distance;
        float *to = x == a ? b : a;
        distance *= plan->s.in[axis];
        if (plan->s.kernel[axis] == 1) {
            continue;
        }
        n -= (plan->s.kernel[axis] - 1) * step;
        task->kernels->f32_binary(op, n, x, 1, x + step, 1, to);
        for (int64_t k = 2; k < plan->s.kernel[axis]; k++) {
            task->kernels->f32_binary(op, n, to, 1, x + k * step, 1, to);
        }
        x = to;
    }
    return x;
}

/* One row of outputs, of which begin..end-1 have windows inside; `from`: the first one's window. */
static void sbit__pooling_pick(const sbit__pooling_task *task, const float *from, int64_t begin,
                               int64_t end, float *y)
{
    const sbit__pooling_plan *plan = task->plan;
    const int64_t stride = plan->s.stride[2];
    const float count = (float)plan->s.kernel[0] * (float)plan->s.kernel[1] * (float)plan->s.kernel[2];
    if (plan->kind == SBIT__POOLING_MAX) {
        for (int64_t ox = begin; ox < end; ox++) {
            y[ox] = from[ox * stride];
        }
        return;
    }
    for (int64_t ox = begin; ox < end; ox++) {
        y[ox] = sbit__pooling_finish(plan, from[ox * stride], count);
    }
}

/* The outputs of row r outside of begin..end-1. */
static void sbit__pooling_edges(const sbit__pooling_task *task, const float *x, int64_t r,
                                int64_t begin, int64_t end, float *y)
{
    const int64_t n = task->plan->s.out[2];
    for (int64_t ox = 0; ox < n; ox++) {
        if (ox == begin && begin < end) {
            ox = end;
        }
        if (ox < n) {
            y[r * n + ox] = sbit__pooling_window(task, x, r * n + ox);
        }
    }
}

static void sbit__pooling_plane(const sbit__pooling_task *task, const float *x, float *a, float *y)
{
    const sbit__pooling_plan *plan = task->plan;
    const int64_t *begin = plan->inside_begin, *end = plan->inside_end;
    const int64_t extent = (plan->s.kernel[1] - 1) * plan->s.dilation[1] + 1;
    const float *slid = NULL;
    int64_t base = 0, strip_end = 0; /* `slid` is of x[base..], for outputs before strip_end */
    for (int64_t r = 0; r < plan->s.out[0] * plan->s.out[1]; r++) {
        const int64_t oz = r / plan->s.out[1], oy = r % plan->s.out[1];
        if (oz < begin[0] || oz >= end[0] || oy < begin[1] || oy >= end[1]) {
            sbit__pooling_edges(task, x, r, 0, 0, y);
            continue;
        }
        const int64_t z = oz * plan->s.stride[0] - plan->s.pad_begin[0];
        const int64_t row = z * plan->s.in[1] + oy * plan->s.stride[1] - plan->s.pad_begin[1];
        if (slid == NULL || (plan->strip > 0 && r >= strip_end)) {
            int64_t n = plan->s.in_size;
            if (plan->strip > 0) {
                const int64_t rows = end[1] - oy < plan->strip ? end[1] - oy : plan->strip;
                base = row * plan->s.in[2];
                n = ((rows - 1) * plan->s.stride[1] + extent) * plan->s.in[2];
                strip_end = r + rows;
            }
            slid = sbit__pooling_slide(task, x + base, n, a);
        }
        sbit__pooling_pick(task, slid + row * plan->s.in[2] - base - plan->s.pad_begin[2], begin[2],
                           end[2], y + r * plan->s.out[2]);
        sbit__pooling_edges(task, x, r, begin[2], end[2], y);
    }
}

static void sbit__pooling_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__pooling_task *task = (const sbit__pooling_task *)user;
    const sbit__pooling_plan *plan = task->plan;
    for (int64_t plane = begin; plane < end; plane++) {
        const float *x = (const float *)task->x + plane * plan->s.in_size;
        float *y = (float *)task->y + plane * plan->s.out_size;
        if (plan->slides) {
            sbit__pooling_plane(task, x, task->rows + worker * task->row_stride, y);
            continue;
        }
        for (int64_t o = 0; o < plan->s.out_size; o++) {
            y[o] = sbit__pooling_window(task, x, o);
        }
    }
}

/* Floats of a worker's two planes. */
static int64_t sbit__pooling_floats(const sbit__pooling_plan *plan)
{
    return plan->slides ? 2 * ((plan->s.in_size + 15) / 16 * 16) : 0;
}

/* Which outputs have windows inside of the input, and whether sliding over all positions is less
 * work than looking at every tap of every window. */
static void sbit__pooling_choose(sbit__pooling_plan *plan)
{
    double window = 1.0, slide = 0.0;
    bool any = true;
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        const int64_t stride = plan->s.stride[i];
        const int64_t room =
            plan->s.in[i] + plan->s.pad_begin[i] - ((plan->s.kernel[i] - 1) * plan->s.dilation[i] + 1);
        const int64_t first =
            plan->s.pad_begin[i] > 0 ? (plan->s.pad_begin[i] + stride - 1) / stride : 0;
        const int64_t last = room >= 0 ? room / stride + 1 : 0;
        plan->inside_begin[i] = first;
        plan->inside_end[i] = last < plan->s.out[i] ? last : plan->s.out[i];
        any = any && plan->inside_begin[i] < plan->inside_end[i];
        window *= (double)plan->s.kernel[i];
        slide += (double)(plan->s.kernel[i] - 1);
    }
    /* Strips of 16 KiB stay in the first cache; neighbours share extent - stride rows of input. */
    const int64_t extent = (plan->s.kernel[1] - 1) * plan->s.dilation[1] + 1;
    const int64_t rows = plan->s.in[2] > 0 ? 4096 / plan->s.in[2] / plan->s.stride[1] : 0;
    plan->strip = plan->s.in[0] > 1 ? 0 : rows > 4 * extent ? rows : 4 * extent;
    /* A step of a vector kernel counts a quarter of a tap. */
    plan->slides = any && (double)plan->s.in_size * slide / 4.0 < (double)plan->s.out_size * window;
}

static sbit__pooling_kind sbit__pooling_kind_of(const sbit_op_call *call)
{
    return sbit__streq(call->row->op_type, "MaxPool")       ? SBIT__POOLING_MAX
           : sbit__streq(call->row->op_type, "AveragePool") ? SBIT__POOLING_AVERAGE
                                                            : SBIT__POOLING_LP;
}

static sbit_status sbit__pooling_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__pooling_plan plan;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__pooling_plan_of(call, sbit__pooling_kind_of(call), &plan, error));
    sbit__pooling_choose(&plan);
    SBIT__TRY(sbit__op_keep(call, &plan, sizeof plan, error));
    *call->scratch_bytes =
        sbit__op_in_float_scratch(call) +
        (size_t)sbit_ctx_threads(call->ctx) * (size_t)sbit__pooling_floats(&plan) * sizeof(float);
    return SBIT_OK;
}

static sbit_status sbit__pooling_task_of(const sbit_op_call *call, sbit__pooling_plan *plan,
                                         sbit__pooling_task *task, sbit_error *error)
{
    SBIT__TRY(sbit__op_kept(call, plan, sizeof *plan, error));
    memset(task, 0, sizeof *task);
    task->plan = plan;
    task->kernels = call->kernels;
    task->x = call->in[0]->data;
    task->y = call->out[0]->data;
    task->indices = sbit__out(call, 1) != NULL ? (int64_t *)call->out[1]->data : NULL;
    task->rows = (float *)call->scratch;
    task->row_stride = sbit__pooling_floats(plan);
    return SBIT_OK;
}

static sbit_status sbit__pooling_run32(const sbit_op_call *call, sbit_error *error)
{
    sbit__pooling_plan plan;
    sbit__pooling_task task;
    SBIT__TRY(sbit__pooling_task_of(call, &plan, &task, error));
    if (plan.s.out_size > 0) {
        sbit__parallel_range(call->ctx, plan.s.batch * plan.s.channels, 1,
                             task.indices != NULL ? sbit__pooling_max_f32 : sbit__pooling_planes,
                             &task);
    }
    return SBIT_OK;
}

/* Output o of a plane in double, average or Lp. */
static double sbit__pooling_window64(const sbit__pooling_plan *plan, const double *x, int64_t o)
{
    const sbit__pool_taps tx = sbit__pool_taps_of(&plan->s, 2, o % plan->s.out[2]);
    const sbit__pool_taps ty = sbit__pool_taps_of(&plan->s, 1, o / plan->s.out[2] % plan->s.out[1]);
    const sbit__pool_taps tz = sbit__pool_taps_of(&plan->s, 0, o / plan->s.out[2] / plan->s.out[1]);
    double sum = 0.0, inside = 0.0;
    for (int64_t kz = tz.begin; kz < tz.end; kz++) {
        for (int64_t ky = ty.begin; ky < ty.end; ky++) {
            const int64_t row = ((tz.start + kz * plan->s.dilation[0]) * plan->s.in[1] + ty.start +
                                 ky * plan->s.dilation[1]) *
                                plan->s.in[2];
            for (int64_t kx = tx.begin; kx < tx.end; kx++, inside += 1.0) {
                const double value = x[row + tx.start + kx * plan->s.dilation[2]];
                sum += plan->kind == SBIT__POOLING_LP ? pow(fabs(value), plan->p) : value;
            }
        }
    }
    if (plan->kind == SBIT__POOLING_LP || inside == 0.0) {
        return inside == 0.0 ? 0.0 : pow(sum, 1.0 / plan->p);
    }
    return sum /
           (plan->count_pad ? (double)tx.padded * (double)ty.padded * (double)tz.padded : inside);
}

static void sbit__pooling_planes64(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__pooling_task *task = (const sbit__pooling_task *)user;
    const sbit__pooling_plan *plan = task->plan;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t plane = i / plan->s.out_size;
        ((double *)task->y)[i] = sbit__pooling_window64(
            plan, (const double *)task->x + plane * plan->s.in_size, i % plan->s.out_size);
    }
}

static sbit_status sbit__pooling_run64(const sbit_op_call *call, sbit_error *error)
{
    sbit__pooling_plan plan;
    sbit__pooling_task task;
    SBIT__TRY(sbit__pooling_task_of(call, &plan, &task, error));
    sbit__parallel_range(call->ctx, plan.s.batch * plan.s.channels * plan.s.out_size, 256, sbit__pooling_planes64,
                         &task);
    return SBIT_OK;
}

static sbit_status sbit__pooling_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__pooling_run32, sbit__pooling_run64, error);
}

static sbit_status sbit__maxpool_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_dtype dtype = call->in[0]->dtype;
    sbit__pooling_plan plan;
    sbit__pooling_task task;
    if (dtype != SBIT_F64 && dtype != SBIT_I8 && dtype != SBIT_U8) {
        return sbit__pooling_run(call, error);
    }
    SBIT__TRY(sbit__pooling_task_of(call, &plan, &task, error));
    sbit__parallel_range(call->ctx, plan.s.batch * plan.s.channels, 1,
                         dtype == SBIT_F64  ? sbit__pooling_max_f64
                         : dtype == SBIT_I8 ? sbit__pooling_max_i8
                                            : sbit__pooling_max_u8,
                         &task);
    return SBIT_OK;
}

/* ---- global pools: any rank from 2 */

static sbit_status sbit__gpool_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    if (rank >= 0 && rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be at least 2",
                            (int)rank);
    }
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, rank);
    for (int32_t i = 0; out != NULL && i < rank; i++) {
        out->dims[i] = i < 2 ? call->in_type[0]->dims[i] : sbit__dim(1);
    }
    return SBIT_OK;
}

typedef struct sbit__gpool_task {
    sbit__pooling_kind kind;
    const sbit_kernels *kernels;
    const sbit_tensor *x;
    sbit_tensor *y;
    int64_t size;
    double p;
} sbit__gpool_task;

/* Exact and slow, for float64 and for powers. */
static double sbit__gpool_plane(const sbit__gpool_task *task, int64_t plane)
{
    double sum = 0.0;
    for (int64_t i = 0; i < task->size; i++) {
        const double value = sbit__tensor_f64_at(task->x, plane * task->size + i);
        if (task->kind == SBIT__POOLING_MAX) {
            sum = i == 0 || value > sum || value != value ? value : sum;
        } else if (task->kind == SBIT__POOLING_AVERAGE) {
            sum += value;
        } else {
            sum += pow(fabs(value), task->p);
        }
    }
    return task->kind == SBIT__POOLING_MAX       ? sum
           : task->kind == SBIT__POOLING_AVERAGE ? sum / (double)task->size
                                                 : pow(sum, 1.0 / task->p);
}

static void sbit__gpool_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__gpool_task *task = (const sbit__gpool_task *)user;
    (void)worker;
    for (int64_t plane = begin; plane < end; plane++) {
        if (task->size == 0) {
            sbit__tensor_set_f64(task->y, plane, 0.0);
        } else if (task->x->dtype != SBIT_F32 || task->kind == SBIT__POOLING_LP) {
            sbit__tensor_set_f64(task->y, plane, sbit__gpool_plane(task, plane));
        } else {
            const float *x = (const float *)task->x->data + plane * task->size;
            ((float *)task->y->data)[plane] =
                task->kind == SBIT__POOLING_MAX
                    ? task->kernels->f32_max(task->size, x)
                    : task->kernels->f32_sum(task->size, x) / (float)task->size;
        }
    }
}

static sbit_status sbit__gpool_run_kind(const sbit_op_call *call, sbit__pooling_kind kind,
                                        sbit_error *error)
{
    sbit__gpool_task task;
    memset(&task, 0, sizeof task);
    task.kind = kind;
    task.kernels = call->kernels;
    task.x = call->in[0];
    task.y = call->out[0];
    task.size = sbit__tensor_span(task.x, 2, task.x->rank);
    if (kind == SBIT__POOLING_LP) {
        SBIT__TRY(sbit__pooling_p(call, &task.p, error));
    }
    sbit__parallel_range(call->ctx, sbit_tensor_count(task.y), 16, sbit__gpool_planes, &task);
    return SBIT_OK;
}

static sbit_status sbit__gpool_average(const sbit_op_call *call, sbit_error *error)
{
    return sbit__gpool_run_kind(call, SBIT__POOLING_AVERAGE, error);
}

static sbit_status sbit__gpool_max(const sbit_op_call *call, sbit_error *error)
{
    return sbit__gpool_run_kind(call, SBIT__POOLING_MAX, error);
}

static sbit_status sbit__gpool_lp(const sbit_op_call *call, sbit_error *error)
{
    return sbit__gpool_run_kind(call, SBIT__POOLING_LP, error);
}

static sbit_status sbit__gpool_average_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__gpool_average, sbit__gpool_average, error);
}

static sbit_status sbit__gpool_max_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__gpool_max, sbit__gpool_max, error);
}

static sbit_status sbit__gpool_lp_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__gpool_lp, sbit__gpool_lp, error);
}

/* ---- MaxUnpool: values go back to where Indices says, counted in the unpooled shape; a larger
 * output_shape adds zeros behind it. */

/* Lengths that the attributes stand for, batch and channel included. */
static sbit_status sbit__unpool_dims(const sbit_op_call *call, sbit_dim *dims, sbit_error *error)
{
    sbit__window window;
    const sbit_type *x = call->in_type[0];
    SBIT__TRY(sbit__window_read(call, x->rank - 2, NULL, &window, error));
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    for (int32_t i = 0; i < window.spatial; i++) {
        dims[i + 2] = sbit__dim_any();
        if (!sbit__dim_known(x->dims[i + 2])) {
            continue;
        }
        const int64_t in = x->dims[i + 2].value;
        int64_t length = 0;
        if (in > 0 && !sbit__mul_i64(in - 1, window.stride[i], &length)) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
        }
        length = in == 0 ? 0 : length + window.kernel[i] - window.pad_begin[i] - window.pad_end[i];
        if (length < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "padding leaves %lld elements of spatial dimension %d",
                                (long long)length, (int)i);
        }
        dims[i + 2] = sbit__dim(length);
    }
    return SBIT_OK;
}

/* Output dims: output_shape if it is given (unknown: rank only), else the unpooled ones. */
static sbit_status sbit__unpool_out_dims(const sbit_op_call *call, const sbit_dim *unpooled,
                                         int32_t rank, sbit_dim *dims, sbit_error *error)
{
    int64_t wanted[SBIT_MAX_RANK];
    int64_t count = -1;
    memcpy(dims, unpooled, (size_t)rank * sizeof *dims);
    if (!sbit__op_has(call, 2)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_ints(call, NULL, 2, wanted, SBIT_MAX_RANK, &count, error));
    if (count >= 0 && count != rank) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "output_shape has %lld entries, the input's rank is %d",
                            (long long)count, (int)rank);
    }
    for (int32_t i = 0; i < rank; i++) {
        if (count >= 0 &&
            (wanted[i] < 0 || (sbit__dim_known(unpooled[i]) && wanted[i] < unpooled[i].value))) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "output_shape[%d] is %lld, less than the unpooled length", (int)i,
                                (long long)wanted[i]);
        }
        dims[i] = count >= 0 ? sbit__dim(wanted[i]) : sbit__dim_any();
    }
    return SBIT_OK;
}

static sbit_status sbit__unpool_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim unpooled[SBIT_MAX_RANK], dims[SBIT_MAX_RANK];
    int32_t rank = -1, index_rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    SBIT__TRY(sbit__op_rank(call, 1, &index_rank, error));
    if (call->in_type[1]->dtype != SBIT_I64 && call->in_type[1]->dtype != SBIT_UNDEFINED) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the indices must be int64");
    }
    for (int32_t i = 0; i < rank && index_rank >= 0; i++) {
        const sbit_dim a = call->in_type[0]->dims[i];
        const sbit_dim b = index_rank == rank ? call->in_type[1]->dims[i] : sbit__dim(-1);
        if (sbit__dim_known(a) && sbit__dim_known(b) && a.value != b.value) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "indices and values have different shapes");
        }
    }
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, rank);
    if (rank < 0 || out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__unpool_dims(call, unpooled, error));
    SBIT__TRY(sbit__unpool_out_dims(call, unpooled, rank, dims, error));
    memcpy(out->dims, dims, (size_t)rank * sizeof dims[0]);
    return SBIT_OK;
}

static sbit_status sbit__unpool_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim unpooled[SBIT_MAX_RANK];
    int64_t strides[SBIT_MAX_RANK];
    const sbit_tensor *x = call->in[0];
    const int64_t *indices = (const int64_t *)call->in[1]->data;
    sbit_tensor *y = call->out[0];
    int64_t total = 1;
    SBIT__TRY(sbit__unpool_dims(call, unpooled, error));
    for (int32_t i = 0; i < x->rank; i++) {
        total *= unpooled[i].value;
    }
    sbit__elem_zero(y->dtype, y->data, 0, sbit_tensor_count(y));
    sbit__tensor_strides(y, strides);
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        int64_t rest = indices[i], to = 0;
        if (rest < 0 || rest >= total) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "index %lld is outside of the %lld elements of the output",
                                (long long)rest, (long long)total);
        }
        for (int32_t k = x->rank - 1; k >= 0; k--) {
            to += rest % unpooled[k].value * strides[k];
            rest /= unpooled[k].value;
        }
        sbit__elem_copy(x->dtype, y->data, to, x->data, i, 1);
    }
    return SBIT_OK;
}

/* ---- regions of interest */

static sbit_status sbit__roi_infer_size(const sbit_op_call *call, int64_t roi_columns,
                                        int64_t height, int64_t width, sbit_error *error)
{
    int32_t rank = -1, roi_rank = -1;
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    SBIT__TRY(sbit__op_rank(call, 1, &roi_rank, error));
    SBIT__TRY(sbit__op_dtypes(call, 2, 0, error));
    if ((rank >= 0 && rank != 4) || (roi_rank >= 0 && roi_rank != 2)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "input rank %d and rois rank %d, must be 4 and 2", (int)rank,
                            (int)roi_rank);
    }
    if (roi_rank == 2 && sbit__dim_known(call->in_type[1]->dims[1]) &&
        call->in_type[1]->dims[1].value != roi_columns) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "rois have %lld columns, must be %lld",
                            (long long)call->in_type[1]->dims[1].value, (long long)roi_columns);
    }
    if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "output size %lld x %lld",
                            (long long)height, (long long)width);
    }
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, 4);
    if (out != NULL) {
        out->dims[0] = roi_rank == 2 ? call->in_type[1]->dims[0] : sbit__dim_any();
        out->dims[1] = rank == 4 ? call->in_type[0]->dims[1] : sbit__dim_any();
        out->dims[2] = sbit__dim(height);
        out->dims[3] = sbit__dim(width);
    }
    return SBIT_OK;
}

static sbit_status sbit__roipool_infer(const sbit_op_call *call, sbit_error *error)
{
    int64_t size[2] = {0, 0}, count = -1;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__op_ints(call, "pooled_shape", -1, size, 2, &count, error));
    if (count != 2) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "pooled_shape needs 2 entries");
    }
    return sbit__roi_infer_size(call, 5, size[0], size[1], error);
}

/* Before version 16 there was no attribute and no shift by half a pixel. */
static sbit_status sbit__roialign_modes(const sbit_op_call *call, int64_t version,
                                        bool *half_pixel, bool *use_max, sbit_error *error)
{
    static const char *const places[] = {"half_pixel", "output_half_pixel"};
    static const char *const modes[] = {"avg", "max"};
    int32_t place = 0, mode = 0;
    SBIT__TRY(sbit__op_word(call, "coordinate_transformation_mode", places, 2, &place, error));
    SBIT__TRY(sbit__op_word(call, "mode", modes, 2, &mode, error));
    *half_pixel = version >= 16 && place == 0;
    *use_max = mode == 1;
    return SBIT_OK;
}

static sbit_status sbit__roialign_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    bool half_pixel = false, use_max = false;
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    SBIT__TRY(sbit__roialign_modes(call, 16, &half_pixel, &use_max, error));
    SBIT__TRY(sbit__op_rank(call, 2, &rank, error));
    const sbit_type *batch = call->in_type[2];
    const sbit_type *rois = call->in_type[1];
    if ((rank >= 0 && rank != 1) || (batch->dtype != SBIT_I64 && batch->dtype != SBIT_UNDEFINED) ||
        (rank == 1 && rois->rank == 2 && sbit__dim_known(batch->dims[0]) &&
         sbit__dim_known(rois->dims[0]) && batch->dims[0].value != rois->dims[0].value)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "batch_indices must be int64 with one entry for each region");
    }
    return sbit__roi_infer_size(call, 4, sbit_node_int(call->node, "output_height", 1),
                                sbit_node_int(call->node, "output_width", 1), error);
}

/* Positions are computed as in float32, where elements are: so that a bin that ends on a cell's
 * edge still does. */
typedef struct sbit__roi_task {
    bool wide; /* elements are double, else float */
    const sbit_tensor *x;
    const void *rois;
    const int64_t *batch; /* RoiAlign */
    const void *dy;       /* MaxRoiPoolGrad: added to y, which is dx then, at the largest cell */
    void *y;
    int64_t rois_count, channels, height, width, out_h, out_w;
    double scale;
    bool half_pixel, use_max;
    int64_t sampling;
} sbit__roi_task;

static void sbit__roi_task_of(const sbit_op_call *call, sbit__roi_task *task)
{
    memset(task, 0, sizeof *task);
    task->wide = call->in[0]->dtype == SBIT_F64;
    task->x = call->in[0];
    task->rois = call->in[1]->data;
    task->y = call->out[0]->data;
    task->rois_count = call->out[0]->dims[0];
    task->channels = call->in[0]->dims[1];
    task->height = call->in[0]->dims[2];
    task->width = call->in[0]->dims[3];
    task->out_h = call->out[0]->dims[2];
    task->out_w = call->out[0]->dims[3];
    task->scale = (double)sbit_node_float(call->node, "spatial_scale", 1.0f);
}

/* Number `at` of the regions' numbers, scaled. */
static double sbit__roi_scaled(const sbit__roi_task *task, int64_t at)
{
    return sbit__real(task->wide, sbit__real_at(task->wide, task->rois, at) * task->scale);
}

/* First and one past the last input cell of bin `at` of `bins`, clipped to the input. */
static void sbit__roipool_bin(const sbit__roi_task *task, int64_t start, int64_t length,
                              int64_t bins, int64_t at, int64_t limit, int64_t *begin, int64_t *end)
{
    const double size = sbit__real(task->wide, (double)length / (double)bins);
    *begin = (int64_t)floor(sbit__real(task->wide, (double)at * size)) + start;
    *end = (int64_t)ceil(sbit__real(task->wide, (double)(at + 1) * size)) + start;
    *begin = *begin < 0 ? 0 : *begin > limit ? limit : *begin;
    *end = *end < 0 ? 0 : *end > limit ? limit : *end;
}

static void sbit__roipool_regions(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__roi_task *task = (const sbit__roi_task *)user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t roi = i / task->channels * 5;
        const int64_t x1 = (int64_t)round(sbit__roi_scaled(task, roi + 1));
        const int64_t y1 = (int64_t)round(sbit__roi_scaled(task, roi + 2));
        const int64_t w = (int64_t)round(sbit__roi_scaled(task, roi + 3)) - x1 + 1;
        const int64_t h = (int64_t)round(sbit__roi_scaled(task, roi + 4)) - y1 + 1;
        const int64_t image = (int64_t)sbit__real_at(task->wide, task->rois, roi);
        const int64_t from =
            (image * task->channels + i % task->channels) * task->height * task->width;
        for (int64_t o = 0; o < task->out_h * task->out_w; o++) {
            int64_t h0 = 0, h1 = 0, w0 = 0, w1 = 0;
            int64_t place = -1;
            double best = 0.0;
            sbit__roipool_bin(task, y1, h < 1 ? 1 : h, task->out_h, o / task->out_w, task->height,
                              &h0, &h1);
            sbit__roipool_bin(task, x1, w < 1 ? 1 : w, task->out_w, o % task->out_w, task->width,
                              &w0, &w1);
            for (int64_t at = h0 * task->width; at < h1 * task->width; at += task->width) {
                for (int64_t k = w0; k < w1; k++) {
                    const double x = sbit__real_at(task->wide, task->x->data, from + at + k);
                    if (place < 0 || x > best || x != x) {
                        best = x;
                        place = from + at + k;
                    }
                }
            }
            const int64_t to = i * task->out_h * task->out_w + o;
            if (task->dy == NULL) {
                sbit__real_set(task->wide, task->y, to, best);
            } else if (place >= 0) {
                sbit__real_set(task->wide, task->y, place,
                               sbit__real_at(task->wide, task->y, place) +
                                   sbit__real_at(task->wide, task->dy, to));
            }
        }
    }
}

static bool sbit__roi_sane(double value)
{
    return value > -1e9 && value < 1e9; /* NaN is not */
}

static sbit_status sbit__roipool_check(const sbit_op_call *call, const sbit__roi_task *task,
                                       sbit_error *error)
{
    for (int64_t i = 0; i < task->rois_count * 5; i++) {
        const bool image = i % 5 == 0;
        const double value =
            image ? sbit__real_at(task->wide, task->rois, i) : sbit__roi_scaled(task, i);
        if (!sbit__roi_sane(value) ||
            (image && (value < 0.0 || value >= (double)task->x->dims[0]))) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "region %lld is not inside of the batch", (long long)(i / 5));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__roipool_run_any(const sbit_op_call *call, sbit_error *error)
{
    sbit__roi_task task;
    sbit__roi_task_of(call, &task);
    SBIT__TRY(sbit__roipool_check(call, &task, error));
    sbit__parallel_range(call->ctx, task.rois_count * task.channels, 1, sbit__roipool_regions,
                         &task);
    return SBIT_OK;
}

static sbit_status sbit__roipool_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__roipool_run_any, sbit__roipool_run_any, error);
}

/* MaxRoiPoolGrad(x, rois, dy): regions that overlap add to the same cells, so one thread does it. */
static sbit_status sbit__roipool_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 3, 3, 0, error);
}

static sbit_status sbit__roipool_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__roi_task task;
    sbit__roi_task_of(call, &task);
    task.dy = call->in[2]->data;
    task.rois_count = call->in[2]->dims[0];
    task.out_h = call->in[2]->dims[2];
    task.out_w = call->in[2]->dims[3];
    SBIT__TRY(sbit__roipool_check(call, &task, error)); /* nothing says that the forward node has run */
    memset(task.y, 0, sbit_tensor_bytes(call->out[0]));
    sbit__roipool_regions(&task, 0, task.rois_count * task.channels, 0);
    return SBIT_OK;
}

/* The four cells around (y, x) within a plane, and their bilinear weights; false: it lies further
 * than 1 outside, where all is 0. */
static bool sbit__roialign_corners(const sbit__roi_task *task, double y, double x, int64_t cells[4],
                                   double weights[4])
{
    if (y < -1.0 || y > (double)task->height || x < -1.0 || x > (double)task->width) {
        return false;
    }
    y = y > 0.0 ? y : 0.0;
    x = x > 0.0 ? x : 0.0;
    int64_t y0 = (int64_t)y, x0 = (int64_t)x;
    if (y0 >= task->height - 1) {
        y0 = task->height - 1;
        y = (double)y0;
    }
    if (x0 >= task->width - 1) {
        x0 = task->width - 1;
        x = (double)x0;
    }
    const int64_t row0 = y0 * task->width;
    const int64_t row1 = y0 < task->height - 1 ? row0 + task->width : row0;
    const int64_t x1 = x0 < task->width - 1 ? x0 + 1 : x0;
    const double fy = y - (double)y0, fx = x - (double)x0;
    cells[0] = row0 + x0;
    cells[1] = row0 + x1;
    cells[2] = row1 + x0;
    cells[3] = row1 + x1;
    weights[0] = (1.0 - fy) * (1.0 - fx);
    weights[1] = (1.0 - fy) * fx;
    weights[2] = fy * (1.0 - fx);
    weights[3] = fy * fx;
    return true;
}

/* Value at (y, x): bilinear, or the largest weighted corner. */
static double sbit__roialign_sample(const sbit__roi_task *task, int64_t from, double y, double x)
{
    int64_t cells[4];
    double v[4];
    if (!sbit__roialign_corners(task, y, x, cells, v)) {
        return 0.0;
    }
    for (int k = 0; k < 4; k++) {
        v[k] *= sbit__real_at(task->wide, task->x->data, from + cells[k]);
    }
    if (task->use_max) {
        const double top = v[0] > v[1] ? v[0] : v[1], bottom = v[2] > v[3] ? v[2] : v[3];
        return top > bottom ? top : bottom;
    }
    return v[0] + v[1] + v[2] + v[3];
}

/* A region in input cells: start and size of its bins, and sample points per bin. */
typedef struct sbit__roi_box {
    double y, x, bin_h, bin_w;
    int64_t grid_h, grid_w;
} sbit__roi_box;

static sbit__roi_box sbit__roialign_box(const sbit__roi_task *task, int64_t region)
{
    const double offset = task->half_pixel ? 0.5 : 0.0;
    double corner[4];
    sbit__roi_box box;
    for (int32_t i = 0; i < 4; i++) {
        corner[i] = sbit__real(task->wide, sbit__roi_scaled(task, region * 4 + i) - offset);
    }
    box.x = corner[0];
    box.y = corner[1];
    double w = sbit__real(task->wide, corner[2] - box.x);
    double h = sbit__real(task->wide, corner[3] - box.y);
    if (!task->half_pixel) {
        w = w > 1.0 ? w : 1.0;
        h = h > 1.0 ? h : 1.0;
    }
    box.bin_h = sbit__real(task->wide, h / (double)task->out_h);
    box.bin_w = sbit__real(task->wide, w / (double)task->out_w);
    box.grid_h = task->sampling > 0 ? task->sampling : (int64_t)ceil(box.bin_h);
    box.grid_w = task->sampling > 0 ? task->sampling : (int64_t)ceil(box.bin_w);
    return box;
}

/* start + bin number * its size + (sample + 0.5) * size / samples */
static double sbit__roialign_place(const sbit__roi_task *task, double start, int64_t bin,
                                   double size, int64_t sample, int64_t samples)
{
    const bool w = task->wide;
    const double base = sbit__real(w, start + sbit__real(w, (double)bin * size));
    const double step = sbit__real(w, ((double)sample + 0.5) * size);
    return sbit__real(w, base + sbit__real(w, step / (double)samples));
}

static double sbit__roialign_bin(const sbit__roi_task *task, const sbit__roi_box *box, int64_t from,
                                 int64_t oy, int64_t ox)
{
    const int64_t count = box->grid_h * box->grid_w;
    double value = 0.0;
    for (int64_t g = 0; box->grid_w > 0 && g < count; g++) {
        const double y =
            sbit__roialign_place(task, box->y, oy, box->bin_h, g / box->grid_w, box->grid_h);
        const double x =
            sbit__roialign_place(task, box->x, ox, box->bin_w, g % box->grid_w, box->grid_w);
        const double sample = sbit__roialign_sample(task, from, y, x);
        value = !task->use_max ? value + sample : g == 0 || sample > value ? sample : value;
    }
    return task->use_max ? value : value / (double)(count > 1 ? count : 1);
}

static void sbit__roialign_regions(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__roi_task *task = (const sbit__roi_task *)user;
    const int64_t out_size = task->out_h * task->out_w;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t region = i / task->channels;
        const sbit__roi_box box = sbit__roialign_box(task, region);
        const int64_t from = (task->batch[region] * task->channels + i % task->channels) *
                             task->height * task->width;
        for (int64_t o = 0; o < out_size; o++) {
            sbit__real_set(task->wide, task->y, i * out_size + o,
                           sbit__roialign_bin(task, &box, from, o / task->out_w, o % task->out_w));
        }
    }
}

/* Fails if a region is not sane. */
static sbit_status sbit__roialign_read(const sbit_op_call *call, int64_t version,
                                       sbit__roi_task *out, sbit_error *error)
{
    sbit__roi_task task = *out;
    SBIT__TRY(sbit__roialign_modes(call, version, &task.half_pixel, &task.use_max, error));
    task.sampling = sbit_node_int(call->node, "sampling_ratio", 0);
    task.batch = (const int64_t *)call->in[2]->data;
    *out = task;
    for (int64_t i = 0; i < task.rois_count; i++) {
        bool sane = task.batch[i] >= 0 && task.batch[i] < task.x->dims[0];
        for (int64_t k = 0; k < 4; k++) {
            sane = sane && sbit__roi_sane(sbit__roi_scaled(&task, i * 4 + k));
        }
        if (sane) {
            const sbit__roi_box box = sbit__roialign_box(&task, i);
            sane = box.grid_h <= 4096 && box.grid_w <= 4096;
        }
        if (!sane) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "region %lld is too large or not inside of the batch",
                                (long long)i);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__roialign_run_any(const sbit_op_call *call, sbit_error *error)
{
    sbit__roi_task task;
    sbit__roi_task_of(call, &task);
    SBIT__TRY(sbit__roialign_read(call, call->row->since_version, &task, error));
    if (task.height > 0 && task.width > 0) {
        sbit__parallel_range(call->ctx, task.rois_count * task.channels, 1, sbit__roialign_regions,
                             &task);
    } else {
        memset(task.y, 0, sbit_tensor_bytes(call->out[0]));
    }
    return SBIT_OK;
}

static sbit_status sbit__roialign_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__roialign_run_any, sbit__roialign_run_any, error);
}

/* RoiAlignGrad(x, rois, batch, dy) {version} -> dx; a channel is one thread's. Where the largest
 * counts, it gets all. */
typedef struct sbit__roi_back {
    sbit__roi_task task;
    const sbit_tensor *dy;
    sbit_tensor *dx;
} sbit__roi_back;

static sbit_status sbit__roialign_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 4, 4, 0, error);
}

/* One element of dy: `cells` begin at `from`. */
static void sbit__roialign_back(const sbit__roi_back *back, const sbit__roi_box *box, int64_t from,
                                int64_t oy, int64_t ox, double dy)
{
    const sbit__roi_task *task = &back->task;
    const int64_t count = box->grid_h * box->grid_w;
    double best = 0.0, best_weight = 0.0;
    int64_t best_at = -1;
    for (int64_t g = 0; box->grid_w > 0 && g < count; g++) {
        const double y =
            sbit__roialign_place(task, box->y, oy, box->bin_h, g / box->grid_w, box->grid_h);
        const double x =
            sbit__roialign_place(task, box->x, ox, box->bin_w, g % box->grid_w, box->grid_w);
        int64_t cells[4];
        double weights[4];
        if (!sbit__roialign_corners(task, y, x, cells, weights)) {
            best_at = task->use_max && (g == 0 || best < 0.0) ? -1 : best_at;
            best = g == 0 || best < 0.0 ? 0.0 : best;
            continue;
        }
        for (int k = 0; k < 4; k++) {
            const int64_t at = from + cells[k];
            const double v = weights[k] * sbit__real_at(task->wide, task->x->data, at);
            if (!task->use_max) {
                sbit__tensor_set_f64(back->dx, at,
                                     sbit__tensor_f64_at(back->dx, at) +
                                         dy * weights[k] / (double)(count > 1 ? count : 1));
            } else if ((g == 0 && k == 0) || v > best) {
                best = v;
                best_weight = weights[k];
                best_at = at;
            }
        }
    }
    if (best_at >= 0) {
        sbit__tensor_set_f64(back->dx, best_at,
                             sbit__tensor_f64_at(back->dx, best_at) + dy * best_weight);
    }
}

static void sbit__roialign_back_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__roi_back *back = (const sbit__roi_back *)user;
    const sbit__roi_task *task = &back->task;
    const int64_t size = task->height * task->width, out_size = task->out_h * task->out_w;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        for (int64_t region = 0; region < task->rois_count; region++) {
            const sbit__roi_box box = sbit__roialign_box(task, region);
            const int64_t from = (task->batch[region] * task->channels + c) * size;
            for (int64_t o = 0; o < out_size; o++) {
                const int64_t at = (region * task->channels + c) * out_size + o;
                sbit__roialign_back(back, &box, from, o / task->out_w, o % task->out_w,
                                    sbit__tensor_f64_at(back->dy, at));
            }
        }
    }
}

static sbit_status sbit__roialign_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__roi_back back;
    memset(&back, 0, sizeof back);
    back.dy = call->in[3];
    back.dx = call->out[0];
    sbit__roi_task_of(call, &back.task);
    back.task.rois_count = back.dy->dims[0];
    back.task.out_h = back.dy->dims[2];
    back.task.out_w = back.dy->dims[3];
    SBIT__TRY(
        sbit__roialign_read(call, sbit_node_int(call->node, "version", 16), &back.task, error));
    sbit__elem_zero(back.dx->dtype, back.dx->data, 0, sbit_tensor_count(back.dx));
    if (back.task.height > 0 && back.task.width > 0) {
        sbit__parallel_range(call->ctx, back.task.channels, 1, sbit__roialign_back_channels, &back);
    }
    return SBIT_OK;
}

/* ---- rows */

static const sbit_op_quant sbit__pooling_quant_pass = {
    SBIT_QUANT_PASS_SCALE, 1, -1, -1, -1, 0, 0, NULL, 0, 0};
static const sbit_op_quant sbit__pooling_quant_average = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, -1, -1, -1, 0, 0, NULL, 0, 0};
static const sbit_op_quant sbit__pooling_quant_lp = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, -1, -1, -1, 0, 0, NULL, 0, 0};
static const sbit_op_channel sbit__pooling_channel = {SBIT_CHANNEL_KEEPS, 1, 0, 0, 0, NULL};

#define SBIT__POOLING_T12 (SBIT__T_FLOATS1 | SBIT_T(SBIT_I8) | SBIT_T(SBIT_U8))
#define SBIT__POOLING_ROW(name, version, types, infer, prepare, run, gradient, quant)              \
    {                                                                                              \
        "", name, version, types, 0, 0, infer, prepare, run, gradient, NULL, quant,                \
            &sbit__pooling_channel, NULL                                                           \
    }
#define SBIT__MAXPOOL_ROW(version, types)                                                          \
    SBIT__POOLING_ROW("MaxPool", version, types, sbit__pooling_infer, sbit__pooling_prepare,       \
                      sbit__maxpool_run, sbit__grad_pool, &sbit__pooling_quant_pass)
#define SBIT__AVGPOOL_ROW(version, types)                                                          \
    SBIT__POOLING_ROW("AveragePool", version, types, sbit__pooling_infer, sbit__pooling_prepare,   \
                      sbit__pooling_run, sbit__grad_pool, &sbit__pooling_quant_average)
#define SBIT__LPPOOL_ROW(version, types)                                                           \
    SBIT__POOLING_ROW("LpPool", version, types, sbit__pooling_infer, sbit__pooling_prepare,        \
                      sbit__pooling_run, sbit__grad_lp_pool, &sbit__pooling_quant_lp)
#define SBIT__GPOOL_ROW(name, version, types, run, gradient, quant)                                \
    SBIT__POOLING_ROW(name, version, types, sbit__gpool_infer, sbit__op_prepare_f32, run,          \
                      gradient, quant)
#define SBIT__ROI_ROW(name, version, types, infer, prepare, run, gradient)                         \
    {                                                                                              \
        "", name, version, types, 0, 0, infer, prepare, run, gradient, NULL, NULL, NULL, NULL      \
    }

static const sbit_op_row sbit__pooling_rows[] = {
    SBIT__MAXPOOL_ROW(1, SBIT__T_FLOATS1),
    SBIT__MAXPOOL_ROW(8, SBIT__T_FLOATS1),
    SBIT__MAXPOOL_ROW(10, SBIT__T_FLOATS1),
    SBIT__MAXPOOL_ROW(11, SBIT__T_FLOATS1),
    SBIT__MAXPOOL_ROW(12, SBIT__POOLING_T12),
    SBIT__MAXPOOL_ROW(22, SBIT__POOLING_T12 | SBIT_T(SBIT_BF16)),
    SBIT__AVGPOOL_ROW(1, SBIT__T_FLOATS1),
    SBIT__AVGPOOL_ROW(7, SBIT__T_FLOATS1),
    SBIT__AVGPOOL_ROW(10, SBIT__T_FLOATS1),
    SBIT__AVGPOOL_ROW(11, SBIT__T_FLOATS1),
    SBIT__AVGPOOL_ROW(19, SBIT__T_FLOATS1),
    SBIT__AVGPOOL_ROW(22, SBIT_T_FLOATS),
    SBIT__LPPOOL_ROW(1, SBIT__T_FLOATS1),
    SBIT__LPPOOL_ROW(2, SBIT__T_FLOATS1),
    SBIT__LPPOOL_ROW(11, SBIT__T_FLOATS1),
    SBIT__LPPOOL_ROW(18, SBIT__T_FLOATS1),
    SBIT__LPPOOL_ROW(22, SBIT_T_FLOATS),
    SBIT__GPOOL_ROW("GlobalAveragePool", 1, SBIT__T_FLOATS1, sbit__gpool_average_run,
                    sbit__grad_pool, &sbit__pooling_quant_average),
    SBIT__GPOOL_ROW("GlobalAveragePool", 22, SBIT_T_FLOATS, sbit__gpool_average_run,
                    sbit__grad_pool, &sbit__pooling_quant_average),
    SBIT__GPOOL_ROW("GlobalMaxPool", 1, SBIT__T_FLOATS1, sbit__gpool_max_run, sbit__grad_pool,
                    &sbit__pooling_quant_pass),
    SBIT__GPOOL_ROW("GlobalMaxPool", 22, SBIT_T_FLOATS, sbit__gpool_max_run, sbit__grad_pool,
                    &sbit__pooling_quant_pass),
    SBIT__GPOOL_ROW("GlobalLpPool", 1, SBIT__T_FLOATS1, sbit__gpool_lp_run,
                    sbit__grad_global_lp_pool, &sbit__pooling_quant_lp),
    SBIT__GPOOL_ROW("GlobalLpPool", 2, SBIT__T_FLOATS1, sbit__gpool_lp_run,
                    sbit__grad_global_lp_pool, &sbit__pooling_quant_lp),
    SBIT__GPOOL_ROW("GlobalLpPool", 22, SBIT_T_FLOATS, sbit__gpool_lp_run,
                    sbit__grad_global_lp_pool, &sbit__pooling_quant_lp),
    SBIT__ROI_ROW("MaxUnpool", 9, SBIT__T_FLOATS1, sbit__unpool_infer, sbit__op_prepare_check,
                  sbit__unpool_run, sbit__grad_max_unpool),
    SBIT__ROI_ROW("MaxUnpool", 11, SBIT__T_FLOATS1, sbit__unpool_infer, sbit__op_prepare_check,
                  sbit__unpool_run, sbit__grad_max_unpool),
    SBIT__ROI_ROW("MaxUnpool", 22, SBIT_T_FLOATS, sbit__unpool_infer, sbit__op_prepare_check,
                  sbit__unpool_run, sbit__grad_max_unpool),
    SBIT__ROI_ROW("MaxRoiPool", 1, SBIT__T_FLOATS1, sbit__roipool_infer, sbit__op_prepare_f32,
                  sbit__roipool_run, sbit__grad_roi_pool),
    SBIT__ROI_ROW("MaxRoiPool", 22, SBIT_T_FLOATS, sbit__roipool_infer, sbit__op_prepare_f32,
                  sbit__roipool_run, sbit__grad_roi_pool),
    SBIT__ROI_ROW("RoiAlign", 10, SBIT__T_FLOATS1, sbit__roialign_infer, sbit__op_prepare_f32,
                  sbit__roialign_run, sbit__grad_roi_align),
    SBIT__ROI_ROW("RoiAlign", 16, SBIT__T_FLOATS1, sbit__roialign_infer, sbit__op_prepare_f32,
                  sbit__roialign_run, sbit__grad_roi_align),
    SBIT__ROI_ROW("RoiAlign", 22, SBIT_T_FLOATS, sbit__roialign_infer, sbit__op_prepare_f32,
                  sbit__roialign_run, sbit__grad_roi_align),
    {SBIT__GRAD_DOMAIN, "RoiAlignGrad", 1, SBIT__T_GRAD, 0, 0, sbit__roialign_grad_infer, NULL,
     sbit__roialign_grad_run, NULL, NULL, NULL, NULL, NULL},
    {SBIT__GRAD_DOMAIN, "MaxRoiPoolGrad", 1, SBIT__T_GRAD, 0, 0, sbit__roipool_grad_infer, NULL,
     sbit__roipool_grad_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__POOLING_MAX_OF
#undef SBIT__POOLING_T12
#undef SBIT__POOLING_ROW
#undef SBIT__MAXPOOL_ROW
#undef SBIT__AVGPOOL_ROW
#undef SBIT__LPPOOL_ROW
#undef SBIT__GPOOL_ROW
#undef SBIT__ROI_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_pool(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__pooling_rows);
    return sbit__pooling_rows;
}
