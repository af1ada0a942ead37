/* grad_conv.c: gradients of convolutions, 1 to 3 spatial dimensions, all forms. >>grad-conv
 *
 * Called by: infer, exec; the nodes are added by ops/gradients.c. Calls: kernels.
 *     ConvDataGrad(dy, w, shape of x)     ConvWeightGrad(x, dy, shape of w)     attributes as Conv
 * With g groups of I input and O output channels, k kernel positions and p output pixels:
 *
 * dx: with stride 1 a convolution of dy by the kernel turned around, which the convolution driver
 * runs; else per image and group columns [I*k][p] = w^T [I*k][O] * dy [O][p], added to the places
 * that they stand for. Images are spread over the threads.
 *
 * dw [O][I*k] = sum over images of dy [O][p] * columns(x)^T [p][I*k]: kernels/conv_weight.c.
 *
 * Where lowering has set channels_last, x and dy have their channels last and float32; dx is as many
 * convolutions of dy as a stride has rests: the taps that reach a position depend on its rest alone.
 *
 * float64 is computed by the definition, in float64.
 */
#include "../kernels/last_private.h"
#include "../kernels/rows_private.h"
#include "elements_private.h"
#include "gradient_private.h"
#include "qlinear_private.h"
#include "window_private.h"

#if !SPARSEBIT_NO_OPS_TRAINING

enum {
    SBIT__CONV_GRAD_COLUMNS = 1 << 17, /* floats of columns of one worker (dx) */
    SBIT__CONV_GRAD_NARROW = 3         /* output channels of a group: rows instead of products */
};

/* >>shapes */

/* What Conv's attributes say about x, w and y; in_type[w] must be known unless w_dims is given. */
static sbit_status sbit__conv_grad_shape(const sbit_op_call *call, int32_t rank,
                                         const int64_t *x_dims, const int64_t *w_dims,
                                         sbit__conv_shape *shape, sbit_error *error)
{
    sbit__window window;
    sbit_dim kernel[SBIT__MAX_SPATIAL];
    memset(shape, 0, sizeof *shape);
    if (rank < 3 || rank > 2 + SBIT__MAX_SPATIAL) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "rank %d is no convolution's", (int)rank);
    }
    for (int32_t i = 0; i < rank - 2; i++) {
        kernel[i] = sbit__dim(w_dims[i + 2]);
    }
    SBIT__TRY(sbit__window_read(call, rank - 2, kernel, &window, error));
    shape->batch = x_dims[0];
    shape->groups = sbit_node_int(call->node, "group", 1);
    shape->in_channels = x_dims[1];
    shape->out_channels = w_dims[0];
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        const int32_t from = i - (SBIT__MAX_SPATIAL - window.spatial);
        shape->in[i] = shape->out[i] = shape->kernel[i] = 1;
        shape->stride[i] = shape->dilation[i] = 1;
        if (from >= 0) {
            shape->in[i] = x_dims[from + 2];
            SBIT__TRY(
                sbit__window_length(call, &window, from, shape->in[i], &shape->out[i], error));
            shape->kernel[i] = window.kernel[from];
            shape->stride[i] = window.stride[from];
            shape->dilation[i] = window.dilation[from];
            shape->pad_begin[i] = window.pad_begin[from];
        }
    }
    if (shape->groups < 1 || shape->in_channels != w_dims[1] * shape->groups ||
        shape->out_channels % shape->groups != 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "channels and groups do not fit");
    }
    return SBIT_OK;
}

static bool sbit__conv_grad_last(const sbit_op_call *call)
{
    return sbit_node_int(call->node, "channels_last", 0) != 0;
}

/* The shapes of x and w: one is an input, the other is stated by input 2. In prepare the stated
 * one may not be known: then *known is false. */
static sbit_status sbit__conv_grad_read(const sbit_op_call *call, bool data_grad, bool *known,
                                        sbit__conv_shape *shape, sbit_error *error)
{
    const bool last = sbit__conv_grad_last(call);
    sbit_type types[2];
    const sbit_type *have = &types[data_grad ? 1 : 0], *dy = &types[data_grad ? 0 : 1];
    int64_t dims[SBIT_MAX_RANK] = {0}, stated[SBIT_MAX_RANK] = {0};
    int32_t rank = 0;
    for (int i = 0; i < 2; i++) {
        types[i] = *call->in_type[i];
        if (last && (i == 0 || !data_grad)) {
            sbit__q_type_to_first(&types[i]);
        }
    }
    *known = sbit__type_static(have) && sbit__type_static(dy) && sbit__in(call, 2) != NULL &&
             sbit__in(call, 2)->data != NULL;
    if (!*known) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < have->rank; i++) {
        dims[i] = have->dims[i].value;
    }
    SBIT__TRY(sbit__grad_dims(call, 2, &rank, stated, error));
    if (rank != have->rank || rank != dy->rank) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "ranks %d and %d do not fit", (int)rank,
                            (int)have->rank);
    }
    SBIT__TRY(sbit__conv_grad_shape(call, rank, data_grad ? stated : dims,
                                    data_grad ? dims : stated, shape, error));
    for (int32_t i = 2; i < rank; i++) {
        if (dy->dims[i].value != shape->out[i + SBIT__MAX_SPATIAL - rank]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "the gradient has %lld elements on axis %d, the output %lld",
                                (long long)dy->dims[i].value, (int)i,
                                (long long)shape->out[i + SBIT__MAX_SPATIAL - rank]);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__conv_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    SBIT__TRY(sbit__grad_infer_shape(call, 2, error));
    if (sbit__conv_grad_last(call) && sbit__streq(call->row->op_type, "ConvDataGrad") &&
        call->out_type[0] != NULL) {
        sbit__q_type_to_last(call->out_type[0]);
    }
    return SBIT_OK;
}

static int64_t sbit__conv_grad_volume(const int64_t dims[3])
{
    return dims[0] * dims[1] * dims[2];
}

/* The first and the end of the positions of an axis whose tap `k` lies inside of the input. */
static void sbit__conv_grad_span(const sbit__conv_shape *s, int32_t axis, int64_t k, int64_t *begin,
                                 int64_t *end)
{
    const int64_t shift = k * s->dilation[axis] - s->pad_begin[axis], step = s->stride[axis];
    *begin = shift < 0 ? (-shift + step - 1) / step : 0;
    *end = s->in[axis] > shift ? (s->in[axis] - shift + step - 1) / step : 0;
    *end = *end < s->out[axis] ? *end : s->out[axis];
    *begin = *begin < *end ? *begin : *end;
}

/* >>float64: both by the definition; a task is a channel of the result */

typedef struct sbit__conv_grad_f64 {
    sbit__conv_shape s;
    const double *x, *w, *dy;
    double *dx, *dw;
} sbit__conv_grad_f64;

/* Adds what one tap of one pair of planes gives: to dx (if it is wanted) or the sum for dw. */
static double sbit__conv_grad_tap(const sbit__conv_shape *s, const int64_t k[3], const double *x,
                                  double w, const double *dy, double *dx)
{
    int64_t begin[3], end[3];
    double sum = 0.0;
    for (int32_t i = 0; i < 3; i++) {
        sbit__conv_grad_span(s, i, k[i], &begin[i], &end[i]);
    }
    for (int64_t z = begin[0]; z < end[0]; z++) {
        for (int64_t y = begin[1]; y < end[1]; y++) {
            const int64_t iz = z * s->stride[0] + k[0] * s->dilation[0] - s->pad_begin[0];
            const int64_t iy = y * s->stride[1] + k[1] * s->dilation[1] - s->pad_begin[1];
            const int64_t from = (z * s->out[1] + y) * s->out[2];
            const int64_t to =
                (iz * s->in[1] + iy) * s->in[2] + k[2] * s->dilation[2] - s->pad_begin[2];
            for (int64_t i = begin[2]; i < end[2]; i++) {
                if (dx != NULL) {
                    dx[to + i * s->stride[2]] += w * dy[from + i];
                } else {
                    sum += x[to + i * s->stride[2]] * dy[from + i];
                }
            }
        }
    }
    return sum;
}

static void sbit__conv_grad_f64_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_grad_f64 *task = (const sbit__conv_grad_f64 *)user;
    const sbit__conv_shape *s = &task->s;
    const int64_t outs = s->out_channels / s->groups, ins = s->in_channels / s->groups;
    const int64_t taps = sbit__conv_grad_volume(s->kernel);
    const int64_t in = sbit__conv_grad_volume(s->in), out = sbit__conv_grad_volume(s->out);
    (void)worker;
    for (int64_t c = begin; c < end; c++) { /* input channels */
        const int64_t group = c / ins;
        for (int64_t o = group * outs; o < (group + 1) * outs; o++) {
            for (int64_t t = 0; t < taps; t++) {
                const int64_t k[3] = {t / s->kernel[2] / s->kernel[1],
                                      t / s->kernel[2] % s->kernel[1], t % s->kernel[2]};
                const int64_t at = (o * ins + c % ins) * taps + t;
                double sum = 0.0;
                for (int64_t n = 0; n < s->batch; n++) {
                    const int64_t plane = (n * s->in_channels + c) * in;
                    sum += sbit__conv_grad_tap(s, k, task->dw != NULL ? task->x + plane : NULL,
                                               task->dw != NULL ? 0.0 : task->w[at],
                                               task->dy + (n * s->out_channels + o) * out,
                                               task->dw != NULL ? NULL : task->dx + plane);
                }
                if (task->dw != NULL) {
                    task->dw[at] = sum;
                }
            }
        }
    }
}

/* >>dx: with stride 1 */

/* The convolution of dy that gives dx; false: not by one convolution. */
static bool sbit__conv_grad_turned(const sbit__conv_shape *s, sbit__conv_shape *turned)
{
    *turned = *s;
    turned->in_channels = s->out_channels;
    turned->out_channels = s->in_channels;
    for (int32_t i = 0; i < 3; i++) {
        turned->in[i] = s->out[i];
        turned->out[i] = s->in[i];
        turned->pad_begin[i] = (s->kernel[i] - 1) * s->dilation[i] - s->pad_begin[i];
        if (s->stride[i] != 1 || turned->pad_begin[i] < 0) {
            return false;
        }
    }
    return true;
}

/* w [g*O][I][k] becomes [g*I][O][k turned around]. */
static void sbit__conv_grad_turn(const sbit__conv_shape *s, const float *w, float *turned)
{
    const int64_t outs = s->out_channels / s->groups, ins = s->in_channels / s->groups;
    const int64_t taps = sbit__conv_grad_volume(s->kernel);
    for (int64_t o = 0; o < s->out_channels; o++) {
        for (int64_t i = 0; i < ins; i++) {
            const float *from = w + (o * ins + i) * taps;
            float *to = turned + ((o / outs * ins + i) * outs + o % outs) * taps;
            for (int64_t t = 0; t < taps; t++) {
                to[t] = from[taps - 1 - t];
            }
        }
    }
}

/* >>dx: with strides */

typedef struct sbit__conv_grad_data {
    sbit_ctx *ctx;
    sbit__conv_shape s;
    const float *dy, *w;
    float *dx;
    char
        *scratch; /* packed weights of all groups, then for each worker columns and the product's */
    int64_t rows; /* of the last axis of y in one block of columns */
    size_t packed_bytes, column_bytes, gemm_bytes;
} sbit__conv_grad_data;

static void sbit__conv_grad_product(const sbit__conv_shape *s, int64_t rows, sbit__gemm *gemm)
{
    memset(gemm, 0, sizeof *gemm);
    gemm->m = s->in_channels / s->groups * sbit__conv_grad_volume(s->kernel);
    gemm->k = s->out_channels / s->groups;
    gemm->n = gemm->ldc = rows * s->out[2];
    gemm->lda = gemm->m;
    gemm->trans_a = true;
    gemm->ldb = sbit__conv_grad_volume(s->out);
    gemm->alpha = 1.0f;
    gemm->serial = true;
}

static void sbit__conv_grad_plan(sbit_ctx *ctx, const sbit__conv_shape *s,
                                 sbit__conv_grad_data *data)
{
    sbit__gemm gemm;
    memset(data, 0, sizeof *data);
    data->ctx = ctx;
    data->s = *s;
    if (s->out_channels / s->groups <= SBIT__CONV_GRAD_NARROW) {
        return;
    }
    sbit__conv_grad_product(s, 1, &gemm);
    const int64_t row = gemm.m * s->out[2], rows = s->out[0] * s->out[1];
    data->rows = row > 0 ? SBIT__CONV_GRAD_COLUMNS / row : 1;
    data->rows = data->rows < 1 ? 1 : data->rows > rows ? rows : data->rows;
    data->column_bytes = sbit__align64((size_t)(data->rows * row) * sizeof(float));
    data->packed_bytes = sbit__align64(sbit__gemm_pack_a_bytes(ctx, gemm.m, gemm.k));
    for (int32_t i = 0; i < 2; i++) { /* the last product is smaller, which may take more */
        const int64_t count = i == 0 || data->rows == 0 ? data->rows : rows % data->rows;
        sbit__conv_grad_product(s, count, &gemm);
        gemm.packed_a = sbit__gemm_any();
        const size_t bytes = gemm.n > 0 ? sbit__align64(sbit__gemm_scratch_bytes(ctx, &gemm)) : 0;
        data->gemm_bytes = bytes > data->gemm_bytes ? bytes : data->gemm_bytes;
    }
}

/* dx += one row of columns: output row (z, y), tap t of one channel. */
static void sbit__conv_grad_add_row(const sbit__conv_shape *s, int64_t row, int64_t t, float factor,
                                    const float *from, float *dx)
{
    const int64_t kx = t % s->kernel[2], ky = t / s->kernel[2] % s->kernel[1];
    const int64_t kz = t / s->kernel[2] / s->kernel[1];
    const int64_t iz = row / s->out[1] * s->stride[0] + kz * s->dilation[0] - s->pad_begin[0];
    const int64_t iy = row % s->out[1] * s->stride[1] + ky * s->dilation[1] - s->pad_begin[1];
    const int64_t step = s->stride[2];
    int64_t begin = 0, end = 0;
    if (iz < 0 || iz >= s->in[0] || iy < 0 || iy >= s->in[1]) {
        return;
    }
    sbit__conv_grad_span(s, 2, kx, &begin, &end);
    float *to = dx + (iz * s->in[1] + iy) * s->in[2] + kx * s->dilation[2] - s->pad_begin[2];
    for (int64_t i = begin; i < end; i++) {
        to[i * step] += factor * from[i];
    }
}

/* A group with few output channels: each of them is added tap by tap. */
static void sbit__conv_grad_narrow(const sbit__conv_grad_data *data, const float *dy,
                                   const float *w, float *dx)
{
    const sbit__conv_shape *s = &data->s;
    const int64_t outs = s->out_channels / s->groups, ins = s->in_channels / s->groups;
    const int64_t taps = sbit__conv_grad_volume(s->kernel), rows = s->out[0] * s->out[1];
    for (int64_t o = 0; o < outs; o++) {
        for (int64_t i = 0; i < ins; i++) {
            for (int64_t t = 0; t < taps; t++) {
                for (int64_t r = 0; r < rows; r++) {
                    sbit__conv_grad_add_row(s, r, t, w[(o * ins + i) * taps + t],
                                            dy + (o * rows + r) * s->out[2],
                                            dx + i * sbit__conv_grad_volume(s->in));
                }
            }
        }
    }
}

static void sbit__conv_grad_wide(const sbit__conv_grad_data *data, const float *dy,
                                 const float *packed, float *dx, char *scratch)
{
    const sbit__conv_shape *s = &data->s;
    const int64_t ins = s->in_channels / s->groups, taps = sbit__conv_grad_volume(s->kernel);
    const int64_t rows = s->out[0] * s->out[1];
    float *columns = (float *)(void *)scratch;
    for (int64_t first = 0; first < rows; first += data->rows) {
        const int64_t count = rows - first < data->rows ? rows - first : data->rows;
        sbit__gemm gemm;
        sbit__conv_grad_product(s, count, &gemm);
        gemm.packed_a = packed;
        gemm.b = dy + first * s->out[2];
        gemm.c = columns;
        sbit__gemm_run(data->ctx, &gemm, scratch + data->column_bytes);
        for (int64_t k = 0; k < ins * taps; k++) {
            for (int64_t r = 0; r < count; r++) {
                sbit__conv_grad_add_row(s, first + r, k % taps, 1.0f,
                                        columns + (k * count + r) * s->out[2],
                                        dx + k / taps * sbit__conv_grad_volume(s->in));
            }
        }
    }
}

static void sbit__conv_grad_images(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_grad_data *data = (const sbit__conv_grad_data *)user;
    const sbit__conv_shape *s = &data->s;
    const int64_t outs = s->out_channels / s->groups, ins = s->in_channels / s->groups;
    const int64_t in = sbit__conv_grad_volume(s->in), out = sbit__conv_grad_volume(s->out);
    const int64_t weights = outs * ins * sbit__conv_grad_volume(s->kernel);
    char *scratch = data->scratch + (size_t)s->groups * data->packed_bytes +
                    (size_t)worker * (data->column_bytes + data->gemm_bytes);
    for (int64_t i = begin; i < end; i++) { /* a group of an image */
        const int64_t group = i % s->groups;
        const float *dy = data->dy + i * outs * out;
        float *dx = data->dx + i * ins * in;
        memset(dx, 0, (size_t)(ins * in) * sizeof(float));
        if (data->packed_bytes == 0) {
            sbit__conv_grad_narrow(data, dy, data->w + group * weights, dx);
        } else {
            const void *packed = data->scratch + (size_t)group * data->packed_bytes;
            sbit__conv_grad_wide(data, dy, (const float *)packed, dx, scratch);
        }
    }
}

/* >>dx with channels last */

/* The positions of x whose indices leave one rest by the strides, as a convolution of dy. */
typedef struct sbit__conv_grad_part {
    sbit__conv_shape shape; /* outputs before `skip` are none of x */
    int64_t rest[3], first[3], step[3], skip[3]; /* taps first, first + step ... of w reach them */
    bool whole, empty;
} sbit__conv_grad_part;

static void sbit__conv_grad_part_of(const sbit__conv_shape *s, int64_t number,
                                    sbit__conv_grad_part *part)
{
    memset(part, 0, sizeof *part);
    part->shape = *s;
    part->shape.in_channels = s->out_channels;
    part->shape.out_channels = s->in_channels;
    part->whole = true;
    for (int i = 0; i < 3; i++) {
        const int64_t step = s->stride[i], rest = number % step;
        int64_t count = 0, last = 0;
        for (int64_t k = 0; k < s->kernel[i]; k++) {
            if ((rest + s->pad_begin[i] - k * s->dilation[i]) % step == 0) {
                part->first[i] = count == 0 ? k : part->first[i];
                part->step[i] = k - last;
                last = k;
                count++;
            }
        }
        const int64_t pad = (last * s->dilation[i] - rest - s->pad_begin[i]) / step;
        number /= step;
        part->rest[i] = rest;
        part->skip[i] = sbit__larger(-pad, 0);
        part->shape.in[i] = s->out[i];
        part->shape.out[i] = (s->in[i] - rest + step - 1) / step + part->skip[i];
        part->shape.kernel[i] = count;
        part->shape.dilation[i] = count > 1 ? part->step[i] * s->dilation[i] / step : 1;
        part->shape.stride[i] = 1;
        part->shape.pad_begin[i] = sbit__larger(pad, 0);
        part->whole = part->whole && step == 1 && part->skip[i] == 0;
        part->empty = part->empty || count == 0;
    }
}

/* w [g*O][I][k] becomes [g*I][O][the part's taps turned around]. */
static void sbit__conv_grad_part_turn(const sbit__conv_shape *s, const sbit__conv_grad_part *part,
                                      const float *w, float *turned)
{
    const int64_t outs = s->out_channels / s->groups, ins = s->in_channels / s->groups;
    const int64_t taps = sbit__conv_grad_volume(s->kernel), *kernel = part->shape.kernel;
    const int64_t count = sbit__conv_grad_volume(kernel);
    for (int64_t t = 0; t < count; t++) {
        const int64_t back = count - 1 - t;
        const int64_t k[3] = {back / kernel[2] / kernel[1], back / kernel[2] % kernel[1],
                              back % kernel[2]};
        int64_t tap = 0;
        for (int i = 0; i < 3; i++) {
            tap = tap * s->kernel[i] + part->first[i] + k[i] * part->step[i];
        }
        for (int64_t o = 0; o < s->out_channels; o++) {
            for (int64_t i = 0; i < ins; i++) {
                turned[((o / outs * ins + i) * outs + o % outs) * count + t] =
                    w[(o * ins + i) * taps + tap];
            }
        }
    }
}

/* Memory for a part: turned weights, packed ones, the convolution's own, the positions one behind
 * the other. */
typedef struct sbit__conv_grad_room {
    size_t turned, packed, scratch, positions;
} sbit__conv_grad_room;

/* The convolution of a part, by Winograd's method where lowering wants it and it can be. */
static void sbit__conv_grad_part_plan(const sbit_op_call *call, const sbit__conv_grad_part *part,
                                      sbit__last_conv *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->shape = part->shape;
    plan->winograd = sbit__last_may_winograd(&plan->shape) ? sbit_node_int(call->node, "winograd", 0) : 0;
    sbit__last_conv_plan(call->ctx, plan);
}

static void sbit__conv_grad_room_of(const sbit_op_call *call, const sbit__conv_shape *s,
                                    sbit__conv_grad_room *room)
{
    const int64_t parts = sbit__conv_grad_volume(s->stride);
    memset(room, 0, sizeof *room);
    for (int64_t i = 0; i < parts; i++) {
        sbit__conv_grad_part part;
        sbit__last_conv plan;
        sbit__conv_grad_part_of(s, i, &part);
        if (part.empty) {
            continue;
        }
        sbit__conv_grad_part_plan(call, &part, &plan);
        const int64_t weights =
            s->out_channels * s->in_channels / s->groups * sbit__conv_grad_volume(part.shape.kernel);
        const size_t each[4] = {
            sbit__cache_lines(weights), sbit__align64(plan.packed_bytes),
            sbit__align64(plan.scratch_bytes),
            part.whole ? 0
                       : sbit__cache_lines(s->batch * s->in_channels *
                                           sbit__conv_grad_volume(part.shape.out))};
        room->turned = each[0] > room->turned ? each[0] : room->turned;
        room->packed = each[1] > room->packed ? each[1] : room->packed;
        room->scratch = each[2] > room->scratch ? each[2] : room->scratch;
        room->positions = each[3] > room->positions ? each[3] : room->positions;
    }
}

typedef struct sbit__conv_grad_spread {
    const sbit__conv_shape *s;
    const sbit__conv_grad_part *part;
    const float *from; /* NULL: zeros */
    float *dx;
} sbit__conv_grad_spread;

/* The part's positions go to their places in dx. Unit: an image. */
static void sbit__conv_grad_spread_images(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_grad_spread *task = (const sbit__conv_grad_spread *)user;
    const sbit__conv_shape *s = task->s;
    const sbit__conv_grad_part *part = task->part;
    const int64_t c = s->in_channels, *out = part->shape.out;
    (void)worker;
    for (int64_t n = begin; n < end; n++) {
        for (int64_t i = 0; i < sbit__conv_grad_volume(out); i++) {
            const int64_t at[3] = {i / out[2] / out[1] - part->skip[0],
                                   i / out[2] % out[1] - part->skip[1],
                                   i % out[2] - part->skip[2]};
            int64_t to = n;
            for (int k = 0; k < 3; k++) {
                to = to * s->in[k] + at[k] * s->stride[k] + part->rest[k];
            }
            if (at[0] < 0 || at[1] < 0 || at[2] < 0) {
                continue;
            }
            if (task->from == NULL) {
                memset(task->dx + to * c, 0, (size_t)c * sizeof(float));
            } else {
                memcpy(task->dx + to * c, task->from + (n * sbit__conv_grad_volume(out) + i) * c,
                       (size_t)c * sizeof(float));
            }
        }
    }
}

static void sbit__conv_data_grad_parts(const sbit_op_call *call, const sbit__conv_shape *s)
{
    const int64_t parts = sbit__conv_grad_volume(s->stride);
    float *dx = (float *)call->out[0]->data, *turned = (float *)call->scratch;
    sbit__conv_grad_room room;
    sbit__conv_grad_room_of(call, s, &room);
    char *packed = (char *)call->scratch + room.turned, *scratch = packed + room.packed;
    float *positions = (float *)(void *)(scratch + room.scratch);
    for (int64_t i = 0; i < parts; i++) {
        sbit__conv_grad_part part;
        sbit__conv_grad_spread spread;
        sbit__conv_grad_part_of(s, i, &part);
        if (!part.empty) {
            sbit__last_conv plan;
            sbit__conv_grad_part_plan(call, &part, &plan);
            sbit__conv_grad_part_turn(s, &part, (const float *)call->in[1]->data, turned);
            sbit__last_conv_pack(call->ctx, &plan, turned, (float *)(void *)packed);
            sbit__last_conv_run(call->ctx, &plan, (const float *)call->in[0]->data,
                                (const float *)(void *)packed, NULL, NULL,
                                part.whole ? dx : positions, scratch);
        }
        spread.s = s;
        spread.part = &part;
        spread.from = part.empty ? NULL : positions;
        spread.dx = dx;
        if (!part.whole || part.empty) {
            sbit__parallel_range(call->ctx, s->batch, 1, sbit__conv_grad_spread_images, &spread);
        }
    }
}

/* >>dx: the row */

static sbit_status sbit__conv_data_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__conv_shape shape, turned;
    bool known = false;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    SBIT__TRY(sbit__conv_grad_read(call, true, &known, &shape, error));
    if (!known || call->in_type[0]->dtype == SBIT_F64) {
        return SBIT_OK;
    }
    if (sbit__conv_grad_last(call)) {
        sbit__conv_grad_room room;
        sbit__conv_grad_room_of(call, &shape, &room);
        *call->scratch_bytes = room.turned + room.packed + room.scratch + room.positions;
        return SBIT_OK;
    }
    if (sbit__conv_grad_turned(&shape, &turned)) {
        sbit__conv plan;
        sbit__conv_plan(call->ctx, &turned, &plan);
        const int64_t weights = sbit__type_count(call->in_type[1], 0, call->in_type[1]->rank);
        *call->scratch_bytes = sbit__align64((size_t)weights * sizeof(float)) +
                               sbit__align64(plan.packed_bytes) + plan.scratch_bytes;
        return SBIT_OK;
    }
    sbit__conv_grad_data data;
    sbit__conv_grad_plan(call->ctx, &shape, &data);
    *call->scratch_bytes =
        (size_t)shape.groups * data.packed_bytes +
        (size_t)sbit_ctx_threads(call->ctx) * (data.column_bytes + data.gemm_bytes);
    return SBIT_OK;
}

static void sbit__conv_data_grad_turned(const sbit_op_call *call, const sbit__conv_shape *shape,
                                        const sbit__conv_shape *turned)
{
    const int64_t weights = sbit_tensor_count(call->in[1]);
    float *w = (float *)call->scratch;
    char *packed = (char *)call->scratch + sbit__align64((size_t)weights * sizeof(float));
    sbit__conv plan;
    sbit__conv_plan(call->ctx, turned, &plan);
    sbit__conv_grad_turn(shape, (const float *)call->in[1]->data, w);
    sbit__conv_pack(call->ctx, &plan, w, (float *)(void *)packed);
    sbit__conv_run(call->ctx, &plan, (const float *)call->in[0]->data, (float *)(void *)packed,
                   NULL, NULL, (float *)call->out[0]->data,
                   packed + sbit__align64(plan.packed_bytes));
}

static void sbit__conv_data_grad_strided(const sbit_op_call *call, const sbit__conv_shape *shape)
{
    sbit__conv_grad_data data;
    sbit__gemm gemm;
    sbit__conv_grad_plan(call->ctx, shape, &data);
    data.dy = (const float *)call->in[0]->data;
    data.w = (const float *)call->in[1]->data;
    data.dx = (float *)call->out[0]->data;
    data.scratch = (char *)call->scratch;
    sbit__conv_grad_product(shape, 1, &gemm);
    for (int64_t i = 0; data.packed_bytes > 0 && i < shape->groups; i++) {
        void *packed = data.scratch + (size_t)i * data.packed_bytes;
        sbit__gemm_pack_a(call->ctx, gemm.m, gemm.k, data.w + i * gemm.m * gemm.k, gemm.lda, true,
                          1.0f, (float *)packed);
    }
    sbit__parallel_range(call->ctx, shape->batch * shape->groups, 1, sbit__conv_grad_images, &data);
}

/* *work false: there was nothing to add up. */
static sbit_status sbit__conv_grad_begin(const sbit_op_call *call, bool data_grad, bool *work,
                                         sbit__conv_shape *shape, sbit_error *error)
{
    const sbit_tensor *dy = call->in[data_grad ? 0 : 1];
    SBIT__TRY(sbit__conv_grad_read(call, data_grad, work, shape, error));
    *work = *work && sbit_tensor_count(call->out[0]) > 0;
    if (*work && sbit_tensor_count(dy) == 0) {
        memset(call->out[0]->data, 0, sbit_tensor_bytes(call->out[0]));
        *work = false;
    }
    return SBIT_OK;
}

static sbit_status sbit__conv_data_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__conv_shape shape, turned;
    bool work = false;
    SBIT__TRY(sbit__conv_grad_begin(call, true, &work, &shape, error));
    if (!work) {
        return SBIT_OK;
    }
    if (call->in[0]->dtype == SBIT_F64) {
        sbit__conv_grad_f64 task;
        memset(&task, 0, sizeof task);
        task.s = shape;
        task.dy = (const double *)call->in[0]->data;
        task.w = (const double *)call->in[1]->data;
        task.dx = (double *)call->out[0]->data;
        memset(task.dx, 0, sbit_tensor_bytes(call->out[0]));
        sbit__parallel_range(call->ctx, shape.in_channels, 1, sbit__conv_grad_f64_channels, &task);
        return SBIT_OK;
    }
    if (sbit__conv_grad_last(call)) {
        sbit__conv_data_grad_parts(call, &shape);
    } else if (sbit__conv_grad_turned(&shape, &turned)) {
        sbit__conv_data_grad_turned(call, &shape, &turned);
    } else {
        sbit__conv_data_grad_strided(call, &shape);
    }
    return SBIT_OK;
}

/* >>dw */

static sbit_status sbit__conv_weight_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__conv_shape shape;
    bool known = false;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    SBIT__TRY(sbit__conv_grad_read(call, false, &known, &shape, error));
    if (!known || call->in_type[0]->dtype == SBIT_F64) {
        return SBIT_OK;
    }
    if (!sbit__conv_weight_fits(call->ctx, &shape, sbit__conv_grad_last(call))) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "an image has over 2^31 elements");
    }
    *call->scratch_bytes = sbit__conv_weight_scratch_bytes(call->ctx, &shape, sbit__conv_grad_last(call));
    return SBIT_OK;
}

static sbit_status sbit__conv_weight_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__conv_shape shape;
    bool work = false;
    SBIT__TRY(sbit__conv_grad_begin(call, false, &work, &shape, error));
    if (!work) {
        return SBIT_OK;
    }
    if (call->in[0]->dtype == SBIT_F64) {
        sbit__conv_grad_f64 task;
        memset(&task, 0, sizeof task);
        task.s = shape;
        task.x = (const double *)call->in[0]->data;
        task.dy = (const double *)call->in[1]->data;
        task.dw = (double *)call->out[0]->data;
        sbit__parallel_range(call->ctx, shape.in_channels, 1, sbit__conv_grad_f64_channels, &task);
        return SBIT_OK;
    }
    sbit__conv_weight_run(call->ctx, &shape, sbit__conv_grad_last(call),
                          (const float *)call->in[0]->data, (const float *)call->in[1]->data,
                          (float *)call->out[0]->data, call->scratch);
    return SBIT_OK;
}

/* >>rows */

static const sbit_op_row sbit__grad_conv_rows[] = {
    {SBIT__GRAD_DOMAIN, "ConvDataGrad", 1, SBIT__T_GRAD, 0, 0, sbit__conv_grad_infer,
     sbit__conv_data_grad_prepare, sbit__conv_data_grad_run, NULL, NULL, NULL, NULL, NULL},
    {SBIT__GRAD_DOMAIN, "ConvWeightGrad", 1, SBIT__T_GRAD, 0, 0, sbit__conv_grad_infer,
     sbit__conv_weight_grad_prepare, sbit__conv_weight_grad_run, NULL, NULL, NULL, NULL, NULL},
};

SBIT__FN const sbit_op_row *sbit__op_rows_grad_conv(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__grad_conv_rows);
    return sbit__grad_conv_rows;
}

#endif /* SPARSEBIT_NO_OPS_TRAINING */
