/* deform.c: DeformConv with 1 to 3 spatial dimensions. >>deform
 *
 * Called by: infer, exec. Calls: kernels (gemm driver, threads).
 * A convolution whose taps are moved by `offset` and weighted by `mask`, both given for each output
 * position. As Conv by columns: per image and group, columns [Cin/g * K][out] are sampled from X
 * (linear between neighbours, 0 outside), then Y = W [Cout/g][Cin/g * K] * columns. Layout:
 *   X [N, Cin, in...]  W [Cout, Cin/g, k...]  offset [N, og * K * S, out...]  mask [N, og * K,
 * out...] with S spatial dimensions, K kernel elements and og offset groups; channel c has the
 * offsets of group c / (Cin / og), and offset channel (group * K + k) * S + axis moves tap k along
 * `axis`.
 *
 * DeformConvGrad(x, w, offset, mask, dy) -> dx, dw, doffset, dmask; products and dw in float64, dx, doffset and
 * dmask added up in the tensors' own type: per image and group dw += dy * columns', and what the columns get, dcolumns = W' * dy, goes to the cells that they
 * were sampled from and, by the slope of the sample along each axis, to the offsets.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* floor */

#if !SPARSEBIT_NO_OPS_VISION

typedef struct sbit__deform {
    sbit__window window;
    int64_t batch, groups, offset_groups, in_channels, out_channels; /* channels of all groups */
    int64_t in[SBIT__MAX_SPATIAL], out[SBIT__MAX_SPATIAL];
    int64_t in_size, out_size, kernel_size;
} sbit__deform;

static sbit_status sbit__deform_bad(const sbit_op_call *call, const char *what, sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%s", what);
}

static bool sbit__deform_differ(sbit_dim a, sbit_dim b)
{
    return sbit__dim_known(a) && sbit__dim_known(b) && a.value != b.value;
}

/* Ranks, channels and groups. *rank -1: unknown. */
static sbit_status sbit__deform_check(const sbit_op_call *call, int32_t *rank, sbit_error *error)
{
    static const int32_t optional[] = {1, 2, 4};
    const int64_t groups = sbit_node_int(call->node, "group", 1);
    const int64_t offset_groups = sbit_node_int(call->node, "offset_group", 1);
    int32_t bias_rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 3, 5, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x1e, 0, error));
    SBIT__TRY(sbit__op_rank(call, 0, rank, error));
    SBIT__TRY(sbit__op_rank(call, 3, &bias_rank, error));
    for (size_t i = 0; i < SBIT__COUNT_OF(optional); i++) {
        int32_t other = -1;
        SBIT__TRY(sbit__op_rank(call, optional[i], &other, error));
        if (*rank < 0) {
            *rank = other;
        } else if (other >= 0 && other != *rank) {
            return sbit__deform_bad(call, "input, weight, offset and mask have different ranks",
                                    error);
        }
    }
    if (groups < 1 || groups > INT32_MAX || offset_groups < 1 || offset_groups > INT32_MAX ||
        (bias_rank >= 0 && bias_rank != 1)) {
        return sbit__deform_bad(call, "group and offset_group are at least 1, the bias is a vector",
                                error);
    }
    if (call->in_type[0]->rank < 3 || call->in_type[1]->rank < 3) {
        return *rank >= 0 && *rank < 3 ? sbit__deform_bad(call, "its rank is at least 3", error)
                                       : SBIT_OK;
    }
    const sbit_dim *x = call->in_type[0]->dims, *w = call->in_type[1]->dims;
    if (sbit__dim_known(x[1]) && (x[1].value % offset_groups != 0 || x[1].value % groups != 0 ||
                                  sbit__deform_differ(sbit__dim(x[1].value / groups), w[1]))) {
        return sbit__deform_bad(call, "channels do not fit weight, group and offset_group", error);
    }
    if (sbit__dim_known(w[0]) && (w[0].value % groups != 0 || w[0].value < 1)) {
        return sbit__deform_bad(call, "the weight's channels do not divide into groups", error);
    }
    return bias_rank == 1 && sbit__deform_differ(call->in_type[3]->dims[0], w[0])
               ? sbit__deform_bad(call, "the bias has one entry for each output channel", error)
               : SBIT_OK;
}

static sbit_status sbit__deform_read(const sbit_op_call *call, int32_t rank, sbit__window *window,
                                     sbit_error *error)
{
    sbit_dim kernel[SBIT__MAX_SPATIAL];
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        const sbit_type *w = call->in_type[1];
        kernel[i] = i + 2 < w->rank ? w->dims[i + 2] : sbit__dim_any();
    }
    return sbit__window_read(call, rank - 2, kernel, window, error);
}

/* Input i (offset or mask) has the batch, `channels` and the output's lengths. */
static sbit_status sbit__deform_field(const sbit_op_call *call, int32_t i, int64_t channels,
                                      const sbit_dim *out, int32_t rank, sbit_error *error)
{
    if (!sbit__op_has(call, i) || call->in_type[i]->rank != rank) {
        return SBIT_OK;
    }
    const sbit_dim *have = call->in_type[i]->dims;
    bool differs = sbit__deform_differ(have[0], out[0]) ||
                   (channels > 0 && sbit__deform_differ(have[1], sbit__dim(channels)));
    for (int32_t k = 2; k < rank; k++) {
        differs = differs || sbit__deform_differ(have[k], out[k]);
    }
    return differs ? sbit__deform_bad(call,
                                      i == 2 ? "the offset's shape does not fit the output"
                                             : "the mask's shape does not fit the output",
                                      error)
                   : SBIT_OK;
}

static sbit_status sbit__deform_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t offset_groups = sbit_node_int(call->node, "offset_group", 1);
    int32_t rank = -1;
    sbit__window window;
    int64_t taps = 1;
    SBIT__TRY(sbit__deform_check(call, &rank, error));
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, rank);
    if (rank < 0 || out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__deform_read(call, rank, &window, error));
    if (call->in_type[1]->rank == rank) {
        out->dims[1] = call->in_type[1]->dims[0];
    }
    if (call->in_type[0]->rank == rank) {
        out->dims[0] = call->in_type[0]->dims[0];
        SBIT__TRY(
            sbit__window_dims(call, &window, call->in_type[0]->dims + 2, out->dims + 2, error));
    }
    for (int32_t i = 0; i < window.spatial; i++) {
        taps = sbit__saturating_mul(taps, window.kernel[i]);
    }
    taps = sbit__saturating_mul(taps, offset_groups);
    SBIT__TRY(sbit__deform_field(call, 2, sbit__saturating_mul(taps, window.spatial), out->dims,
                                 rank, error));
    return sbit__deform_field(call, 4, taps, out->dims, rank, error);
}

static sbit_status sbit__deform_of(const sbit_op_call *call, sbit__deform *deform,
                                   sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    int64_t floats = 0;
    memset(deform, 0, sizeof *deform);
    SBIT__TRY(sbit__deform_read(call, x->rank, &deform->window, error));
    deform->batch = x->dims[0].value;
    deform->groups = sbit_node_int(call->node, "group", 1);
    deform->offset_groups = sbit_node_int(call->node, "offset_group", 1);
    deform->in_channels = x->dims[1].value;
    deform->out_channels = call->in_type[1]->dims[0].value;
    deform->in_size = deform->out_size = deform->kernel_size = 1;
    for (int32_t i = 0; i < deform->window.spatial; i++) {
        deform->in[i] = x->dims[i + 2].value;
        SBIT__TRY(
            sbit__window_length(call, &deform->window, i, deform->in[i], &deform->out[i], error));
        deform->in_size *= deform->in[i];
        deform->out_size *= deform->out[i];
        deform->kernel_size *= deform->window.kernel[i];
    }
    if (!sbit__mul_i64(deform->kernel_size, deform->in_channels, &floats) ||
        !sbit__mul_i64(floats, deform->out_size, &floats) || floats > INT64_MAX / 64) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
    }
    return SBIT_OK;
}

static void sbit__deform_gemm(const sbit__deform *deform, sbit__gemm *gemm)
{
    memset(gemm, 0, sizeof *gemm);
    gemm->m = deform->out_channels / deform->groups;
    gemm->k = deform->in_channels / deform->groups * deform->kernel_size;
    gemm->n = deform->out_size;
    gemm->lda = gemm->k;
    gemm->ldb = gemm->ldc = gemm->n;
    gemm->alpha = 1.0f;
    gemm->bias_rows = true;
}

static size_t sbit__deform_column_bytes(const sbit_op_call *call, const sbit__gemm *gemm)
{
    const size_t each = call->in_type[0]->dtype == SBIT_F64 ? sizeof(double) : sizeof(float);
    return sbit__align64((size_t)(gemm->k * gemm->n) * each);
}

static sbit_status sbit__deform_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__deform deform;
    sbit__gemm gemm;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0]) || !sbit__type_static(call->in_type[1])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__deform_of(call, &deform, error));
    sbit__deform_gemm(&deform, &gemm);
    *call->scratch_bytes = sbit__op_in_float_scratch(call) +
                           sbit__deform_column_bytes(call, &gemm) +
                           sbit__gemm_scratch_bytes(call->ctx, &gemm);
    return SBIT_OK;
}

typedef struct sbit__deform_task {
    const sbit__deform *deform;
    bool wide, columns_wide;       /* these, and columns, are double, else float */
    const void *x, *offset, *mask; /* mask may be NULL */
    void *columns;
    int64_t image, first_channel; /* of the group */
} sbit__deform_task;

/* The weight of a cell around `at`, 0 outside, and its place in the plane; slope: the weight's
 * derivative along that axis (-1: the weight). */
static double sbit__deform_corner(const sbit__deform *deform, const double *at, int32_t corner,
                                  int32_t slope, int64_t *place)
{
    double weight = 1.0;
    *place = 0;
    for (int32_t i = 0; i < deform->window.spatial && weight != 0.0; i++) {
        const double low = floor(at[i]), part = at[i] - low;
        const bool high = (corner >> i & 1) != 0;
        const double cell = high ? low + 1.0 : low;
        /* Not outside, so that what is no number is no cell either. */
        const bool inside = cell >= 0.0 && cell < (double)deform->in[i];
        const double own = i == slope ? (high ? 1.0 : -1.0) : high ? part : 1.0 - part;
        weight *= inside ? own : 0.0;
        *place = *place * deform->in[i] + (inside ? (int64_t)cell : 0);
    }
    return weight;
}

/* Linear between the cells around `at`; `channel` of all images. */
static double sbit__deform_sample(const sbit__deform_task *task, int64_t channel, const double *at,
                                  int32_t slope)
{
    const sbit__deform *deform = task->deform;
    double sum = 0.0;
    for (int32_t corner = 0; corner < 1 << deform->window.spatial; corner++) {
        int64_t place = 0;
        const double weight = sbit__deform_corner(deform, at, corner, slope, &place);
        if (weight != 0.0) {
            sum += weight * sbit__real_at(task->wide, task->x, channel * deform->in_size + place);
        }
    }
    return sum;
}

/* Tap (of the image's offset groups) of `channel` of the image and kernel element k. */
static int64_t sbit__deform_tap(const sbit__deform_task *task, int64_t channel, int64_t k)
{
    const sbit__deform *deform = task->deform;
    const int64_t width = deform->in_channels / deform->offset_groups;
    return (task->image * deform->offset_groups + channel / width) * deform->kernel_size + k;
}

/* Where tap `tap` of output position o samples. */
static void sbit__deform_at(const sbit__deform_task *task, int64_t tap, int64_t o, double *at)
{
    const sbit__deform *deform = task->deform;
    const int32_t spatial = deform->window.spatial;
    int64_t rest = o, rest_k = tap % deform->kernel_size;
    for (int32_t i = spatial - 1; i >= 0; i--) {
        const int64_t start = rest % deform->out[i] * deform->window.stride[i] -
                              deform->window.pad_begin[i] +
                              rest_k % deform->window.kernel[i] * deform->window.dilation[i];
        const double moved = sbit__real_at(task->wide, task->offset,
                                           (tap * spatial + i) * deform->out_size + o);
        at[i] = sbit__real(task->wide, (double)start + moved);
        rest /= deform->out[i];
        rest_k /= deform->window.kernel[i];
    }
}

/* Rows of the columns: row = channel of the group * K + kernel element. */
static void sbit__deform_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__deform_task *task = (const sbit__deform_task *)user;
    const sbit__deform *deform = task->deform;
    const int64_t n = deform->out_size;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const int64_t channel = task->first_channel + row / deform->kernel_size;
        const int64_t tap = sbit__deform_tap(task, channel, row % deform->kernel_size);
        for (int64_t o = 0; o < n; o++) {
            double at[SBIT__MAX_SPATIAL];
            sbit__deform_at(task, tap, o, at);
            double value =
                sbit__deform_sample(task, task->image * deform->in_channels + channel, at, -1);
            if (task->mask != NULL) {
                value *= sbit__real_at(task->wide, task->mask, tap * n + o);
            }
            sbit__real_set(task->columns_wide, task->columns, row * n + o, value);
        }
    }
}

/* The product of group g of an image in double. */
static void sbit__deform_multiply64(const sbit_op_call *call, const sbit__gemm *gemm, int64_t i,
                                    int64_t g)
{
    const sbit_tensor *bias = sbit__in(call, 3);
    sbit__f64_gemm product;
    product.m = gemm->m;
    product.n = product.ldc = product.b_row = gemm->n;
    product.k = product.a_row = gemm->k;
    product.a_col = product.b_col = 1;
    product.a = (const double *)call->in[1]->data + g * gemm->m * gemm->k;
    product.b = (const double *)call->scratch;
    product.c = (double *)call->out[0]->data + i * gemm->m * gemm->n;
    sbit__f64_gemm_run(call->ctx, &product);
    for (int64_t k = 0; bias != NULL && k < gemm->m * gemm->n; k++) {
        product.c[k] += ((const double *)bias->data)[g * gemm->m + k / gemm->n];
    }
}

static void sbit__deform_multiply(const sbit_op_call *call, sbit__gemm *gemm, int64_t i, int64_t g)
{
    const sbit_tensor *bias = sbit__in(call, 3);
    gemm->a = (const float *)call->in[1]->data + g * gemm->m * gemm->k;
    gemm->b = (const float *)call->scratch;
    gemm->bias = bias != NULL ? (const float *)bias->data + g * gemm->m : NULL;
    gemm->c = (float *)call->out[0]->data + i * gemm->m * gemm->n;
    sbit__gemm_run(call->ctx, gemm, (char *)call->scratch + sbit__deform_column_bytes(call, gemm));
}

static sbit_status sbit__deform_run_any(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *mask = sbit__in(call, 4);
    sbit__deform deform;
    sbit__deform_task task;
    sbit__gemm gemm;
    SBIT__TRY(sbit__deform_of(call, &deform, error));
    sbit__deform_gemm(&deform, &gemm);
    if (sbit_tensor_count(call->out[0]) == 0) {
        return SBIT_OK;
    }
    if (gemm.k == 0) {
        return sbit__deform_bad(call, "it has no input channels", error);
    }
    memset(&task, 0, sizeof task);
    task.deform = &deform;
    task.wide = task.columns_wide = call->in[0]->dtype == SBIT_F64;
    task.x = call->in[0]->data;
    task.offset = call->in[2]->data;
    task.mask = mask != NULL ? mask->data : NULL;
    task.columns = call->scratch;
    for (int64_t i = 0; i < deform.batch * deform.groups; i++) {
        const int64_t g = i % deform.groups;
        task.image = i / deform.groups;
        task.first_channel = g * (deform.in_channels / deform.groups);
        sbit__parallel_range(call->ctx, gemm.k, 1, sbit__deform_rows, &task);
        if (task.wide) {
            sbit__deform_multiply64(call, &gemm, i, g);
        } else {
            sbit__deform_multiply(call, &gemm, i, g);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__deform_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__deform_run_any, sbit__deform_run_any, error);
}

static int64_t sbit__deform_macs(const sbit_op_call *call)
{
    return sbit__window_macs(call->out_type[0], call->in_type[1]);
}

/* >>gradient */

typedef struct sbit__deform_grad {
    sbit__deform_task task;
    double *dcolumns;          /* [channels of the group * K][out] */
    void *dx, *doffset, *dmask; /* NULL: not wanted */
} sbit__deform_grad;

static sbit_status sbit__deform_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 5, error));
    for (int32_t i = 0; i < 4; i++) {
        if (sbit__op_has(call, i)) {
            sbit__op_same_type(call, i, i);
        }
    }
    return sbit__op_has(call, 4)
               ? SBIT_OK
               : sbit__deform_bad(call, "the output's gradient is missing", error);
}

/* Scratch: columns, their gradient, dy and w of a group, dw of all groups. */
static void sbit__deform_grad_parts(const sbit__deform *deform, const sbit__gemm *gemm,
                                    size_t counts[5])
{
    counts[0] = counts[1] = (size_t)(gemm->k * gemm->n);
    counts[2] = (size_t)(gemm->m * gemm->n);
    counts[3] = (size_t)(gemm->m * gemm->k);
    counts[4] = counts[3] * (size_t)deform->groups;
}

static sbit_status sbit__deform_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__deform deform;
    sbit__gemm gemm;
    size_t counts[5], sum = 0;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0]) || !sbit__type_static(call->in_type[1])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__deform_of(call, &deform, error));
    sbit__deform_gemm(&deform, &gemm);
    sbit__deform_grad_parts(&deform, &gemm, counts);
    for (size_t i = 0; i < 5; i++) {
        sum += counts[i];
    }
    *call->scratch_bytes = sbit__align64(sum * sizeof(double));
    return SBIT_OK;
}

/* += to a number of the tensors' type. */
static void sbit__deform_add(const sbit__deform_task *task, void *data, int64_t at, double value)
{
    sbit__real_set(task->wide, data, at, sbit__real_at(task->wide, data, at) + value);
}

/* Channels of the group: each adds to its own plane of dx. */
static void sbit__deform_grad_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__deform_grad *grad = (const sbit__deform_grad *)user;
    const sbit__deform_task *task = &grad->task;
    const sbit__deform *deform = task->deform;
    const int64_t n = deform->out_size, taps = deform->kernel_size;
    (void)worker;
    for (int64_t i = begin * taps * n; i < end * taps * n; i++) {
        const int64_t row = i / n, o = i % n, channel = task->first_channel + row / taps;
        const int64_t tap = sbit__deform_tap(task, channel, row % taps);
        const int64_t plane = (task->image * deform->in_channels + channel) * deform->in_size;
        double at[SBIT__MAX_SPATIAL], given = grad->dcolumns[i];
        sbit__deform_at(task, tap, o, at);
        if (task->mask != NULL) {
            given *= sbit__real_at(task->wide, task->mask, tap * n + o);
        }
        for (int32_t corner = 0; corner < 1 << deform->window.spatial; corner++) {
            int64_t place = 0;
            const double weight = sbit__deform_corner(deform, at, corner, -1, &place);
            if (weight != 0.0) {
                sbit__deform_add(task, grad->dx, plane + place, given * weight);
            }
        }
    }
}

/* Kernel elements: their offsets and masks, to which all channels of an offset group add. */
static void sbit__deform_grad_taps(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__deform_grad *grad = (const sbit__deform_grad *)user;
    const sbit__deform_task *task = &grad->task;
    const sbit__deform *deform = task->deform;
    const int32_t spatial = deform->window.spatial;
    const int64_t n = deform->out_size, taps = deform->kernel_size;
    const int64_t channels = deform->in_channels / deform->groups;
    (void)worker;
    for (int64_t i = begin * channels * n; i < end * channels * n; i++) {
        const int64_t k = i / n / channels, c = i / n % channels, o = i % n;
        const int64_t channel = task->first_channel + c, tap = sbit__deform_tap(task, channel, k);
        const int64_t all = task->image * deform->in_channels + channel;
        const double given = grad->dcolumns[(c * taps + k) * n + o];
        const double mask =
            task->mask != NULL ? sbit__real_at(task->wide, task->mask, tap * n + o) : 1.0;
        double at[SBIT__MAX_SPATIAL];
        sbit__deform_at(task, tap, o, at);
        if (grad->dmask != NULL) {
            sbit__deform_add(task, grad->dmask, tap * n + o,
                             given * sbit__deform_sample(task, all, at, -1));
        }
        for (int32_t axis = 0; grad->doffset != NULL && axis < spatial; axis++) {
            sbit__deform_add(task, grad->doffset, (tap * spatial + axis) * n + o,
                             given * mask * sbit__deform_sample(task, all, at, axis));
        }
    }
}

/* Group g of an image: dw += dy columns', dcolumns = w' dy. parts: see _grad_parts. */
static void sbit__deform_grad_group(const sbit_op_call *call, sbit__deform_grad *grad,
                                    const sbit__gemm *gemm, double *const parts[5], int64_t g)
{
    const sbit__deform_task *task = &grad->task;
    const int64_t first_w = g * gemm->m * gemm->k;
    const int64_t first_y = (task->image * task->deform->groups + g) * gemm->m * gemm->n;
    sbit__f64_gemm product;
    for (int64_t i = 0; i < gemm->m * gemm->n; i++) {
        parts[2][i] = sbit__real_at(task->wide, call->in[4]->data, first_y + i);
    }
    for (int64_t i = 0; i < gemm->m * gemm->k; i++) {
        parts[3][i] = sbit__real_at(task->wide, call->in[1]->data, first_w + i);
    }
    product.m = gemm->k;
    product.n = product.ldc = product.b_row = gemm->n;
    product.k = gemm->m;
    product.a_col = gemm->k;
    product.a_row = product.b_col = 1;
    product.a = parts[3];
    product.b = parts[2];
    product.c = grad->dcolumns;
    sbit__f64_gemm_run(call->ctx, &product);
    if (sbit__out(call, 1) != NULL) {
        sbit__parallel_range(call->ctx, gemm->k, 1, sbit__deform_rows, &grad->task);
        product.m = gemm->m;
        product.n = product.ldc = gemm->k;
        product.k = product.a_row = product.b_col = gemm->n;
        product.a_col = product.b_row = 1;
        product.a = parts[2];
        product.b = parts[0];
        product.c = parts[3]; /* w has been read */
        sbit__f64_gemm_run(call->ctx, &product);
        for (int64_t i = 0; i < gemm->m * gemm->k; i++) {
            parts[4][first_w + i] += parts[3][i];
        }
    }
}

static sbit_status sbit__deform_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *mask = sbit__in(call, 3);
    sbit__deform deform;
    sbit__deform_grad grad;
    sbit__gemm gemm;
    size_t counts[5];
    double *parts[5], *at = (double *)call->scratch;
    SBIT__TRY(sbit__deform_of(call, &deform, error));
    sbit__deform_gemm(&deform, &gemm);
    sbit__deform_grad_parts(&deform, &gemm, counts);
    for (size_t i = 0; i < 5; i++) {
        parts[i] = at;
        at += counts[i];
    }
    memset(parts[4], 0, counts[4] * sizeof(double));
    for (int32_t i = 0; i < 4; i++) {
        if (i != 1 && sbit__out(call, i) != NULL) {
            memset(call->out[i]->data, 0, sbit_tensor_bytes(call->out[i]));
        }
    }
    memset(&grad, 0, sizeof grad);
    grad.task.deform = &deform;
    grad.task.wide = call->in[0]->dtype == SBIT_F64;
    grad.task.columns_wide = true;
    grad.task.x = call->in[0]->data;
    grad.task.offset = call->in[2]->data;
    grad.task.mask = mask != NULL ? mask->data : NULL;
    grad.task.columns = parts[0];
    grad.dcolumns = parts[1];
    grad.dx = sbit__out(call, 0) != NULL ? call->out[0]->data : NULL;
    grad.doffset = sbit__out(call, 2) != NULL ? call->out[2]->data : NULL;
    grad.dmask = sbit__out(call, 3) != NULL ? call->out[3]->data : NULL;
    for (int64_t i = 0; i < deform.batch * deform.groups; i++) {
        const int64_t g = i % deform.groups, channels = deform.in_channels / deform.groups;
        grad.task.image = i / deform.groups;
        grad.task.first_channel = g * channels;
        sbit__deform_grad_group(call, &grad, &gemm, parts, g);
        if (grad.dx != NULL) {
            sbit__parallel_range(call->ctx, channels, 1, sbit__deform_grad_planes, &grad);
        }
        if (grad.doffset != NULL || grad.dmask != NULL) {
            sbit__parallel_range(call->ctx, deform.kernel_size, 1, sbit__deform_grad_taps, &grad);
        }
    }
    for (size_t i = 0; sbit__out(call, 1) != NULL && i < counts[4]; i++) {
        sbit__real_set(grad.task.wide, call->out[1]->data, (int64_t)i, parts[4][i]);
    }
    return SBIT_OK;
}

/* ---- rows: not quantized, since offsets need their precision; all channels stay */

#define SBIT__DEFORM_ROW(version, types)                                                           \
    {                                                                                              \
        "", "DeformConv", version, types, 0, 0, sbit__deform_infer, sbit__deform_prepare,          \
            sbit__deform_run, sbit__grad_deform, NULL, NULL, NULL, sbit__deform_macs               \
    }

static const sbit_op_row sbit__deform_table[] = {
    SBIT__DEFORM_ROW(19, SBIT__T_FLOATS1),
    SBIT__DEFORM_ROW(22, SBIT_T_FLOATS),
    {SBIT__GRAD_DOMAIN, "DeformConvGrad", 1, SBIT__T_GRAD, 0, 0, sbit__deform_grad_infer,
     sbit__deform_grad_prepare, sbit__deform_grad_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__DEFORM_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_deform(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__deform_table);
    return sbit__deform_table;
}

#endif /* SPARSEBIT_NO_OPS_VISION */
