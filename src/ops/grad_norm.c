/* grad_norm.c: training form of BatchNormalization; gradients of normalizations, Softmax and the
 * cross entropy. >>grad-norm
 *
 * Called by: infer, exec; the nodes are added by ops/gradients.c and grad. Calls: kernels.
 * With n the normalized x, s the scale, M the elements that share statistics:
 *     batch statistics   dx = s/sd * (dy - (sum dy + n * sum(dy n)) / M)
 *     fixed statistics   dx = s/sd * dy
 *     dscale = sum(dy n)   dbias = sum dy
 * Channels and rows are independent; each is computed by one thread. Sums are taken in double.
 * With channels last (float32, attribute channels_last, which lowering sets) positions are cut into
 * as many pieces for any number of threads, whose sums are added in their order.
 * BatchNormTrain's running statistics are new = momentum * old + (1 - momentum) * batch; the
 * variance that enters is the unbiased one (times M/(M-1)), as PyTorch does, or with attribute
 * unbiased 0 the one that normalizes, as ONNX does.
 */
#include "../kernels/last_private.h"
#include "../kernels/rows_private.h"
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* sqrt, exp, log */

#if !SPARSEBIT_NO_OPS_TRAINING

/* >>BatchNormTrain(x, scale, bias, mean, var [, fixed]) -> y, new mean, new var, batch mean, batch
 * var; fixed not 0: normalized by mean and var, which stay, and are given as those of the batch */

enum {
    SBIT__BN_PIECES = 32,
    SBIT__BN_BLOCK = 8192 /* elements whose sums are floats, about */
};

typedef struct sbit__bn {
    const sbit__last_kernels *kernels;
    sbit_dtype dtype;
    int64_t batch, channels, inner;
    double epsilon, momentum;
    bool unbiased, training, fixed, rms;
    const void *x, *dy, *scale, *bias, *mean, *var;
    void *y, *new_mean, *new_var, *batch_mean, *batch_var; /* y: also dx */
    void *dscale, *dbias;
    /* with channels last: sums of pieces [2 * channels]; of a worker's block; center, then factors */
    double *pieces;
    float *block, *factors;
} sbit__bn;

static double sbit__bn_at(sbit_dtype dtype, const void *data, int64_t i)
{
    return dtype == SBIT_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void sbit__bn_set(sbit_dtype dtype, void *data, int64_t i, double value)
{
    if (data == NULL) {
        return;
    }
    if (dtype == SBIT_F64) {
        ((double *)data)[i] = value;
    } else {
        ((float *)data)[i] = (float)value;
    }
}

/* sums[0] = sum of v, sums[1] = sum of v u over a channel: u = x - center, v = b or (NULL) u. */
static void sbit__bn_sums(const sbit__bn *task, const void *b, int64_t channel, double center,
                          double *sums)
{
    const int64_t step = task->channels * task->inner, first = channel * task->inner;
    if (task->dtype != SBIT_F64) {
        task->kernels->norm_sums(task->batch, step, task->inner, (const float *)task->x + first,
                                 b != NULL ? (const float *)b + first : NULL, (float)center, sums);
        return;
    }
    sums[0] = sums[1] = 0.0;
    for (int64_t n = 0; n < task->batch; n++) {
        for (int64_t i = n * step + first; i < n * step + first + task->inner; i++) {
            const double u = ((const double *)task->x)[i] - center;
            const double v = b != NULL ? ((const double *)b)[i] : u;
            sums[0] += v;
            sums[1] += v * u;
        }
    }
}

/* Mean and variance of a channel. Around an element near the middle of the first plane one pass is
 * enough, unless the mean turns out to be far from it. */
static void sbit__bn_moments(const sbit__bn *task, int64_t channel, double *mean, double *var)
{
    const double count = (double)(task->batch * task->inner);
    double center = sbit__bn_at(task->dtype, task->x, channel * task->inner + task->inner / 2);
    for (int pass = 0; pass < 2; pass++) {
        double sums[2];
        sbit__bn_sums(task, NULL, channel, center, sums);
        const double off = sums[0] / count, rest = sums[1] / count - off * off;
        *mean = center + off;
        *var = rest > 0.0 ? rest : 0.0;
        if (off * off <= 16.0 * *var) {
            return;
        }
        center = task->dtype == SBIT_F64 ? *mean : (double)(float)*mean;
    }
}

/* float32 serves for a x + c: the mean that c takes off costs 8 of its 24 bits at most. */
static bool sbit__bn_plain(const sbit__bn *task, double mean, double inverse)
{
    return task->dtype != SBIT_F64 && fabs(mean) * inverse <= 256.0;
}

/* y = a * x + c over a channel */
static void sbit__bn_scale(const sbit__bn *task, int64_t channel, bool plain, double a, double c)
{
    const int64_t step = task->channels * task->inner, first = channel * task->inner;
    if (plain) {
        task->kernels->norm_scale(task->batch, step, task->inner, (const float *)task->x + first,
                                  (float)a, (float)c, (float *)task->y + first);
        return;
    }
    for (int64_t n = 0; n < task->batch; n++) {
        for (int64_t i = n * step + first; i < n * step + first + task->inner; i++) {
            sbit__bn_set(task->dtype, task->y, i, sbit__bn_at(task->dtype, task->x, i) * a + c);
        }
    }
}

/* The statistics after the batch; fixed: by the running ones, which stay. */
static void sbit__bn_finish(const sbit__bn *task, int64_t c, double mean, double var)
{
    const double count = (double)(task->batch * task->inner);
    const double keep = task->fixed ? 0.0 : task->momentum;
    const double run = task->unbiased && count > 1.0 && !task->fixed ? var * count / (count - 1.0) : var;
    sbit__bn_set(task->dtype, task->new_mean, c,
                 keep * sbit__bn_at(task->dtype, task->mean, c) + (1.0 - keep) * mean);
    sbit__bn_set(task->dtype, task->new_var, c,
                 keep * sbit__bn_at(task->dtype, task->var, c) + (1.0 - keep) * run);
    sbit__bn_set(task->dtype, task->batch_mean, c, mean);
    sbit__bn_set(task->dtype, task->batch_var, c, var);
}

static void sbit__bn_train_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__bn *task = (const sbit__bn *)user;
    const sbit_dtype dtype = task->dtype;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        double mean = sbit__bn_at(dtype, task->mean, c), var = sbit__bn_at(dtype, task->var, c);
        if (!task->fixed) {
            sbit__bn_moments(task, c, &mean, &var);
        }
        const double inverse = 1.0 / sqrt(var + task->epsilon);
        const double scale = sbit__bn_at(dtype, task->scale, c) * inverse;
        sbit__bn_scale(task, c, sbit__bn_plain(task, mean, inverse), scale,
                       sbit__bn_at(dtype, task->bias, c) - mean * scale);
        sbit__bn_finish(task, c, mean, var);
    }
}

/* >>channels last */

static void sbit__bn_piece(const sbit__bn *task, int64_t piece, int64_t *begin, int64_t *end)
{
    const int64_t rows = task->batch * task->inner;
    *begin = rows * piece / SBIT__BN_PIECES;
    *end = rows * (piece + 1) / SBIT__BN_PIECES;
}

/* Rows of a block. */
static int64_t sbit__bn_rows(int64_t channels)
{
    return sbit__larger(sbit__smaller(SBIT__BN_BLOCK / sbit__larger(channels, 1), 512), 32);
}

/* Sums of v and of v u around the centers in `factors`: v = dy or, where there is none, u. */
static void sbit__bn_last_sums(void *user, int64_t first, int64_t last, int32_t worker)
{
    const sbit__bn *task = (const sbit__bn *)user;
    const int64_t n = task->channels;
    const int64_t most = sbit__bn_rows(n);
    float *block = task->block + worker * 2 * n;
    for (int64_t piece = first; piece < last; piece++) {
        double *sums = task->pieces + piece * 2 * n;
        int64_t begin = 0, end = 0;
        sbit__bn_piece(task, piece, &begin, &end);
        memset(sums, 0, (size_t)(2 * n) * sizeof *sums);
        for (int64_t i = begin; i < end; i += most) {
            const float *dy = task->dy != NULL ? (const float *)task->dy + i * n : NULL;
            task->kernels->norm_last_sums(sbit__smaller(most, end - i), n,
                                          (const float *)task->x + i * n, dy, task->factors, block);
            for (int64_t c = 0; c < 2 * n; c++) {
                sums[c] += (double)block[c];
            }
        }
    }
}

/* Those of all pieces, in the first. */
static void sbit__bn_last_add(sbit_ctx *ctx, const sbit__bn *task)
{
    sbit__bn all = *task;
    const int64_t n = 2 * task->channels;
    sbit__parallel_range(ctx, SBIT__BN_PIECES, 1, sbit__bn_last_sums, &all);
    for (int64_t i = n; i < SBIT__BN_PIECES * n; i++) {
        task->pieces[i % n] += task->pieces[i];
    }
}

static void sbit__bn_last_scale(void *user, int64_t first, int64_t last, int32_t worker)
{
    const sbit__bn *task = (const sbit__bn *)user;
    const int64_t n = task->channels;
    const int64_t most = sbit__bn_rows(n);
    (void)worker;
    for (int64_t piece = first; piece < last; piece++) {
        int64_t begin = 0, end = 0;
        sbit__bn_piece(task, piece, &begin, &end);
        for (int64_t i = begin; i < end; i += most) {
            const float *dy = task->dy != NULL ? (const float *)task->dy + i * n : NULL;
            task->kernels->norm_last_scale(sbit__smaller(most, end - i), n,
                                           (const float *)task->x + i * n, dy, task->factors,
                                           (float *)task->y + i * n);
        }
    }
}

/* pieces: the mean and the variance of all channels, as sbit__bn_moments finds them. */
static void sbit__bn_last_moments(sbit_ctx *ctx, const sbit__bn *task)
{
    const int64_t n = task->channels, rows = task->batch * task->inner;
    double *mean = task->pieces, *var = mean + n;
    bool again = true;
    memcpy(task->factors, (const float *)task->x + rows / 2 * n, (size_t)n * sizeof(float));
    for (int pass = 0; pass < 2 && again; pass++) {
        again = false;
        sbit__bn_last_add(ctx, task);
        for (int64_t c = 0; c < n; c++) {
            const double off = mean[c] / (double)rows, rest = var[c] / (double)rows - off * off;
            mean[c] = (double)task->factors[c] + off;
            var[c] = rest > 0.0 ? rest : 0.0;
            again = again || off * off > 16.0 * var[c];
        }
        for (int64_t c = 0; c < n && again; c++) {
            task->factors[c] = (float)mean[c];
        }
    }
}

static void sbit__bn_train_last(sbit_ctx *ctx, const sbit__bn *task)
{
    const int64_t n = task->channels;
    float *f = task->factors;
    sbit__bn all = *task;
    if (!task->fixed) {
        sbit__bn_last_moments(ctx, task);
    }
    for (int64_t c = 0; c < n; c++) {
        const double mean = task->fixed ? sbit__bn_at(task->dtype, task->mean, c) : task->pieces[c];
        const double var = task->fixed ? sbit__bn_at(task->dtype, task->var, c) : task->pieces[n + c];
        const double scale =
            sbit__bn_at(task->dtype, task->scale, c) / sqrt(var + task->epsilon);
        f[c] = (float)scale;
        f[n + c] = (float)mean;
        f[2 * n + c] = (float)(sbit__bn_at(task->dtype, task->bias, c) +
                               scale * ((double)f[n + c] - mean));
        sbit__bn_finish(task, c, mean, var);
    }
    sbit__parallel_range(ctx, SBIT__BN_PIECES, 1, sbit__bn_last_scale, &all);
}

static sbit_status sbit__bn_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (sbit_node_int(call->node, "channels_last", 0) != 0 && sbit__type_static(x)) {
        const size_t n = (size_t)x->dims[x->rank - 1].value;
        const size_t workers = (size_t)sbit_ctx_threads(call->ctx);
        *call->scratch_bytes =
            SBIT__BN_PIECES * 2 * n * sizeof(double) + (4 + 2 * workers) * n * sizeof(float);
    }
    return SBIT_OK;
}

static sbit_status sbit__bn_train_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 5, 6, error));
    if (call->in_type[0]->rank >= 0 && call->in_type[0]->rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be at least 2",
                            (int)call->in_type[0]->rank);
    }
    sbit__op_same_type(call, 0, 0);
    for (int32_t i = 1; i < 5; i++) {
        sbit__op_same_type(call, i, i % 2 == 1 ? 3 : 4);
    }
    return SBIT_OK;
}

static void *sbit__bn_out(const sbit_op_call *call, int32_t i)
{
    sbit_tensor *out = sbit__out(call, i);
    return out != NULL ? out->data : NULL;
}

/* Input 5 of both rows. */
static bool sbit__bn_is_fixed(const sbit_op_call *call)
{
    const sbit_tensor *fixed = sbit__in(call, 5);
    return fixed != NULL && sbit__tensor_f64_at(fixed, 0) != 0.0;
}

static void sbit__bn_read(const sbit_op_call *call, const sbit_tensor *x, sbit__bn *task)
{
    memset(task, 0, sizeof *task);
    task->kernels = sbit__last_of(call->ctx);
    task->dtype = x->dtype;
    task->batch = x->dims[0];
    const bool last = sbit_node_int(call->node, "channels_last", 0) != 0;
    task->channels = x->dims[last ? x->rank - 1 : 1];
    task->inner = last ? sbit__tensor_span(x, 1, x->rank - 1) : sbit__tensor_span(x, 2, x->rank);
    if (last) {
        task->pieces = (double *)call->scratch;
        task->factors = (float *)(void *)(task->pieces + SBIT__BN_PIECES * 2 * task->channels);
        task->block = task->factors + 4 * task->channels;
    }
    task->epsilon = (double)sbit_node_float(call->node, "epsilon", 1e-5f);
    task->momentum = (double)sbit_node_float(call->node, "momentum", 0.9f);
    task->unbiased = sbit_node_int(call->node, "unbiased", 1) != 0;
    task->training = sbit_node_int(call->node, "training", 0) != 0;
    task->x = x->data;
}

static sbit_status sbit__bn_train_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__bn task;
    sbit__bn_read(call, call->in[0], &task);
    task.fixed = sbit__bn_is_fixed(call);
    if (task.batch * task.inner == 0 && !task.fixed) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "an empty batch has no statistics");
    }
    task.scale = call->in[1]->data;
    task.bias = call->in[2]->data;
    task.mean = call->in[3]->data;
    task.var = call->in[4]->data;
    task.y = call->out[0]->data;
    task.new_mean = sbit__bn_out(call, 1);
    task.new_var = sbit__bn_out(call, 2);
    task.batch_mean = sbit__bn_out(call, 3);
    task.batch_var = sbit__bn_out(call, 4);
    if (task.factors != NULL) {
        sbit__bn_train_last(call->ctx, &task);
    } else {
        sbit__parallel_range(call->ctx, task.channels, 1, sbit__bn_train_channels, &task);
    }
    return SBIT_OK;
}

/* >>BatchNormGrad(dy, x, scale, mean, var [, fixed]) {training, epsilon} -> dx, dscale, dbias */

/* dx = a * dy + b * x + c over a channel */
static void sbit__bn_combine(const sbit__bn *task, int64_t channel, bool plain, double a, double b,
                             double c)
{
    const int64_t step = task->channels * task->inner, first = channel * task->inner;
    if (plain) {
        task->kernels->norm_combine(task->batch, step, task->inner, (const float *)task->x + first,
                                    (const float *)task->dy + first, (float)a, (float)b, (float)c,
                                    (float *)task->y + first);
        return;
    }
    for (int64_t n = 0; n < task->batch; n++) {
        for (int64_t i = n * step + first; i < n * step + first + task->inner; i++) {
            sbit__bn_set(task->dtype, task->y, i,
                         a * sbit__bn_at(task->dtype, task->dy, i) +
                             b * sbit__bn_at(task->dtype, task->x, i) + c);
        }
    }
}

/* What the sums of dy and of dy (x - center) of a channel say: its gradients, and the factors of
 * dx = a * dy + b * (x - mean) + shift. */
static void sbit__bn_grad_of(const sbit__bn *task, int64_t c, double center, const double sums[2],
                             double factors[3])
{
    const double count = (double)(task->batch * task->inner);
    const double mean = sbit__bn_at(task->dtype, task->mean, c);
    const double inverse = 1.0 / sqrt(sbit__bn_at(task->dtype, task->var, c) + task->epsilon);
    const double dscale = (sums[1] + (center - mean) * sums[0]) * inverse;
    const double a = sbit__bn_at(task->dtype, task->scale, c) * inverse;
    sbit__bn_set(task->dtype, task->dscale, c, dscale);
    sbit__bn_set(task->dtype, task->dbias, c, sums[0]);
    factors[0] = a;
    factors[1] = task->training ? -a * dscale * inverse / count : 0.0;
    factors[2] = task->training ? -a * sums[0] / count : 0.0;
}

static void sbit__bn_grad_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__bn *task = (const sbit__bn *)user;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        const double mean = sbit__bn_at(task->dtype, task->mean, c);
        const double inverse = 1.0 / sqrt(sbit__bn_at(task->dtype, task->var, c) + task->epsilon);
        const double center = task->dtype == SBIT_F64 ? mean : (double)(float)mean;
        double sums[2], f[3];
        sbit__bn_sums(task, task->dy, c, center, sums);
        sbit__bn_grad_of(task, c, center, sums, f);
        if (task->y != NULL) {
            sbit__bn_combine(task, c, sbit__bn_plain(task, mean, inverse), f[0], f[1],
                             f[2] - f[1] * mean);
        }
    }
}

static void sbit__bn_grad_last(sbit_ctx *ctx, const sbit__bn *task)
{
    const int64_t n = task->channels;
    float *f = task->factors;
    sbit__bn all = *task;
    memcpy(f, task->mean, (size_t)n * sizeof *f);
    sbit__bn_last_add(ctx, task);
    for (int64_t c = 0; c < n; c++) {
        const double sums[2] = {task->pieces[c], task->pieces[n + c]};
        double k[3];
        sbit__bn_grad_of(task, c, sbit__bn_at(task->dtype, task->mean, c), sums, k);
        f[n + c] = ((const float *)task->mean)[c];
        f[c] = (float)k[1];
        f[2 * n + c] = (float)k[2];
        f[3 * n + c] = (float)k[0];
    }
    if (task->y != NULL) {
        sbit__parallel_range(ctx, SBIT__BN_PIECES, 1, sbit__bn_last_scale, &all);
    }
}

static sbit_status sbit__bn_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 5, 6, error));
    sbit__op_same_type(call, 0, 1);
    sbit__op_same_type(call, 1, 2);
    sbit__op_same_type(call, 2, 2);
    return SBIT_OK;
}

static sbit_status sbit__bn_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__bn task;
    (void)error;
    sbit__bn_read(call, call->in[1], &task);
    task.training = task.training && !sbit__bn_is_fixed(call);
    task.dy = call->in[0]->data;
    task.scale = call->in[2]->data;
    task.mean = call->in[3]->data;
    task.var = call->in[4]->data;
    task.y = sbit__bn_out(call, 0);
    task.dscale = sbit__bn_out(call, 1);
    task.dbias = sbit__bn_out(call, 2);
    if (task.factors != NULL) {
        sbit__bn_grad_last(call->ctx, &task);
    } else {
        sbit__parallel_range(call->ctx, task.channels, 1, sbit__bn_grad_channels, &task);
    }
    return SBIT_OK;
}

/* >>NormGrad(dy, x) {axis, epsilon, rms} -> dx, n: rows of the axes from `axis` on */

/* A row is a channel of one image. */
static void sbit__norm_grad_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__bn *task = (const sbit__bn *)user;
    const double count = (double)task->inner;
    sbit__bn normalized = *task;
    (void)worker;
    normalized.y = task->batch_mean;
    for (int64_t r = begin; r < end; r++) {
        double mean = 0.0, var, sums[2];
        if (task->rms) {
            sbit__bn_sums(task, NULL, r, 0.0, sums);
            var = sums[1] / count;
        } else {
            sbit__bn_moments(task, r, &mean, &var);
        }
        const double inverse = 1.0 / sqrt(var + task->epsilon);
        const double center = task->dtype == SBIT_F64 ? mean : (double)(float)mean;
        const bool plain = sbit__bn_plain(task, mean, inverse);
        sbit__bn_sums(task, task->dy, r, center, sums);
        const double product = (sums[1] + (center - mean) * sums[0]) * inverse * inverse / count;
        const double sum = task->rms ? 0.0 : sums[0] / count;
        if (normalized.y != NULL) {
            sbit__bn_scale(&normalized, r, plain, inverse, -mean * inverse);
        }
        if (task->y != NULL) {
            sbit__bn_combine(task, r, plain, inverse, -inverse * product, inverse * (mean * product - sum));
        }
    }
}

static sbit_status sbit__norm_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    sbit__op_same_type(call, 0, 1);
    sbit__op_same_type(call, 1, 1);
    return SBIT_OK;
}

static sbit_status sbit__norm_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[1];
    sbit__bn task;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), x->rank, &axis, error));
    memset(&task, 0, sizeof task);
    task.kernels = sbit__last_of(call->ctx);
    task.dtype = x->dtype;
    task.batch = 1;
    task.channels = sbit__tensor_span(x, 0, axis);
    task.inner = sbit__tensor_span(x, axis, x->rank);
    task.epsilon = (double)sbit_node_float(call->node, "epsilon", 1e-5f);
    task.rms = sbit_node_int(call->node, "rms", 0) != 0;
    task.dy = call->in[0]->data;
    task.x = x->data;
    task.y = sbit__bn_out(call, 0);
    task.batch_mean = sbit__bn_out(call, 1); /* x normalized */
    sbit__parallel_range(call->ctx, task.inner > 0 ? task.channels : 0, 16, sbit__norm_grad_rows,
                         &task);
    return SBIT_OK;
}

/* >>LayerNormGrad(dy, x, scale) {axis, epsilon, rms} -> dx, dscale, dbias: scale and bias have the
 * shape of a row. Rows are cut into as many pieces for any number of threads, whose sums are added
 * in their order. */

typedef struct sbit__layer_grad {
    sbit__bn bn; /* channels: rows; y: dx */
    const sbit_kernels *kernels;
    double *sums; /* of a piece: dscale, then dbias */
    float *lines; /* of a worker: dy * scale, then x normalized, then its piece's sums */
} sbit__layer_grad;

/* Mean (of rms: 0) and 1 / standard deviation of a row. */
static double sbit__layer_grad_moments(const sbit__bn *task, int64_t row, double *mean)
{
    double var = 0.0, sums[2];
    *mean = 0.0;
    if (task->rms) {
        sbit__bn_sums(task, NULL, row, 0.0, sums);
        var = sums[1] / (double)task->inner;
    } else {
        sbit__bn_moments(task, row, mean, &var);
    }
    return 1.0 / sqrt(var + task->epsilon);
}

/* A row in double; sums are the piece's. */
static void sbit__layer_grad_row64(const sbit__bn *task, int64_t row, double mean, double inverse,
                                   double *sums)
{
    const int64_t n = task->inner, at = row * n;
    double all = 0.0, along = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double dy = sbit__bn_at(task->dtype, task->dy, at + i);
        const double normal = (sbit__bn_at(task->dtype, task->x, at + i) - mean) * inverse;
        const double g = dy * sbit__bn_at(task->dtype, task->scale, i);
        all += task->rms ? 0.0 : g;
        along += g * normal;
        sums[i] += dy * normal;
        sums[n + i] += dy;
    }
    for (int64_t i = 0; task->y != NULL && i < n; i++) {
        const double normal = (sbit__bn_at(task->dtype, task->x, at + i) - mean) * inverse;
        const double g = sbit__bn_at(task->dtype, task->dy, at + i) *
                         sbit__bn_at(task->dtype, task->scale, i);
        sbit__bn_set(task->dtype, task->y, at + i,
                     inverse * (g - (all + normal * along) / (double)n));
    }
}

/* A row in float32; lines are the worker's. */
static void sbit__layer_grad_row32(const sbit__layer_grad *task, int64_t row, double mean,
                                   double inverse, float *lines)
{
    const sbit__bn *bn = &task->bn;
    const sbit_kernels *kernels = task->kernels;
    const int64_t n = bn->inner;
    const float *x = (const float *)bn->x + row * n, *dy = (const float *)bn->dy + row * n;
    float *normal = lines + n, *sums = lines + 2 * n;
    if (bn->y != NULL) {
        const double center = (double)(float)mean, count = (double)n;
        double all[2];
        kernels->f32_binary(SBIT__BINARY_MUL, n, dy, 1, (const float *)bn->scale, 1, lines);
        bn->kernels->norm_sums(1, n, n, x, lines, (float)center, all);
        const double product = (all[1] + (center - mean) * all[0]) * inverse * inverse / count;
        const double sum = bn->rms ? 0.0 : all[0] / count;
        bn->kernels->norm_combine(1, n, n, x, lines, (float)inverse, (float)(-inverse * product),
                                  (float)(inverse * (mean * product - sum)),
                                  (float *)bn->y + row * n);
    }
    kernels->f32_scale_add(n, x, (float)inverse, (float)(-mean * inverse), normal);
    kernels->f32_binary(SBIT__BINARY_MUL, n, normal, 1, dy, 1, normal);
    kernels->f32_binary(SBIT__BINARY_ADD, n, sums, 1, normal, 1, sums);
    kernels->f32_binary(SBIT__BINARY_ADD, n, sums + n, 1, dy, 1, sums + n);
}

static void sbit__layer_grad_piece(void *user, int64_t index, int32_t worker)
{
    const sbit__layer_grad *task = (const sbit__layer_grad *)user;
    const sbit__bn *bn = &task->bn;
    const int64_t n = bn->inner, end = (index + 1) * bn->channels / SBIT__BN_PIECES;
    double *sums = task->sums + index * 2 * n;
    float *lines = task->lines + worker * 4 * n;
    memset(sums, 0, (size_t)(2 * n) * sizeof *sums);
    memset(lines, 0, (size_t)(4 * n) * sizeof *lines);
    for (int64_t r = index * bn->channels / SBIT__BN_PIECES; r < end; r++) {
        double mean = 0.0;
        const double inverse = sbit__layer_grad_moments(bn, r, &mean);
        if (sbit__bn_plain(bn, mean, inverse)) {
            sbit__layer_grad_row32(task, r, mean, inverse, lines);
        } else {
            sbit__layer_grad_row64(bn, r, mean, inverse, sums);
        }
    }
    for (int64_t i = 0; i < 2 * n; i++) {
        sums[i] += (double)lines[2 * n + i];
    }
}

static sbit_status sbit__layer_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    sbit__op_same_type(call, 0, 1);
    sbit__op_same_type(call, 1, 2);
    sbit__op_same_type(call, 2, 2);
    return SBIT_OK;
}

static sbit_status sbit__layer_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (sbit__type_static(call->in_type[2])) {
        const size_t n = (size_t)sbit__type_size(call->in_type[2]);
        *call->scratch_bytes = n * (2 * SBIT__BN_PIECES * sizeof(double) +
                                    4 * (size_t)sbit_ctx_threads(call->ctx) * sizeof(float));
    }
    return SBIT_OK;
}

static sbit_status sbit__layer_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[1];
    sbit__layer_grad task;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), x->rank, &axis, error));
    memset(&task, 0, sizeof task);
    sbit__bn *bn = &task.bn;
    bn->kernels = sbit__last_of(call->ctx);
    bn->dtype = x->dtype;
    bn->batch = 1;
    bn->channels = sbit__tensor_span(x, 0, axis);
    bn->inner = sbit__tensor_span(x, axis, x->rank);
    bn->epsilon = (double)sbit_node_float(call->node, "epsilon", 1e-5f);
    bn->rms = sbit_node_int(call->node, "rms", 0) != 0;
    bn->dy = call->in[0]->data;
    bn->x = x->data;
    bn->scale = call->in[2]->data;
    bn->y = sbit__bn_out(call, 0);
    if (bn->inner != sbit_tensor_count(call->in[2])) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the scale has not the shape of a row");
    }
    task.kernels = call->kernels;
    task.sums = (double *)call->scratch;
    task.lines = (float *)(void *)(task.sums + SBIT__BN_PIECES * 2 * bn->inner);
    if (bn->inner > 0) {
        sbit_ctx_parallel(call->ctx, SBIT__BN_PIECES, sbit__layer_grad_piece, &task);
    }
    for (int64_t i = 0; i < 2 * bn->inner; i++) {
        double sum = 0.0;
        for (int64_t k = 0; k < SBIT__BN_PIECES; k++) {
            sum += task.sums[k * 2 * bn->inner + i];
        }
        sbit__bn_set(x->dtype, sbit__bn_out(call, i < bn->inner ? 1 : 2), i % bn->inner, sum);
    }
    return SBIT_OK;
}

/* >>SoftmaxGrad(dy, y) {axis, log, flat}: y * (dy - sum(dy y)), or dy - exp(y) * sum(dy) */

typedef struct sbit__softmax_grad {
    int64_t length, inner;
    bool log;
    const void *dy, *y;
    void *dx;
} sbit__softmax_grad;

#define SBIT__SOFTMAX_GRAD(type, name)                                                             \
    static void name(void *user, int64_t begin, int64_t end, int32_t worker)                       \
    {                                                                                              \
        const sbit__softmax_grad *task = (const sbit__softmax_grad *)user;                         \
        const int64_t step = task->inner;                                                          \
        (void)worker;                                                                              \
        for (int64_t r = begin; r < end; r++) {                                                    \
            const int64_t at = r / step * task->length * step + r % step;                          \
            const type *dy = (const type *)task->dy + at, *y = (const type *)task->y + at;         \
            type *dx = (type *)task->dx + at;                                                      \
            double sum = 0.0;                                                                      \
            for (int64_t i = 0; i < task->length; i++) {                                           \
                sum += (double)dy[i * step] * (task->log ? 1.0 : (double)y[i * step]);             \
            }                                                                                      \
            for (int64_t i = 0; i < task->length; i++) {                                           \
                const double g = (double)dy[i * step], v = (double)y[i * step];                    \
                dx[i * step] = (type)(task->log ? g - exp(v) * sum : v * (g - sum));               \
            }                                                                                      \
        }                                                                                          \
    }

SBIT__SOFTMAX_GRAD(float, sbit__softmax_grad_f32)
SBIT__SOFTMAX_GRAD(double, sbit__softmax_grad_f64)
#undef SBIT__SOFTMAX_GRAD

static sbit_status sbit__softmax_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 2, 2, 1, error);
}

static sbit_status sbit__softmax_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *y = call->in[1];
    const bool flat = sbit_node_int(call->node, "flat", 0) != 0;
    sbit__softmax_grad task;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), y->rank, &axis, error));
    task.length = flat ? sbit__tensor_span(y, axis, y->rank) : y->dims[axis];
    task.inner = flat ? 1 : sbit__tensor_span(y, axis + 1, y->rank);
    task.log = sbit_node_int(call->node, "log", 0) != 0;
    task.dy = call->in[0]->data;
    task.y = y->data;
    task.dx = call->out[0]->data;
    sbit__parallel_range(
        call->ctx, task.length > 0 ? sbit__tensor_span(y, 0, axis) * task.inner : 0, 64,
        y->dtype == SBIT_F64 ? sbit__softmax_grad_f64 : sbit__softmax_grad_f32, &task);
    return SBIT_OK;
}

/* >>CrossEntropy(logits [N,C], targets) {smoothing, ignore, weights} -> loss, dlogits; weights of
 * the classes: rows count by the weight of their class targets: int64 class numbers [N], or
 * probabilities [N,C]; the mean over the rows that count. Both outputs come from the same
 * exponentials; the loss is summed in the order of rows. */

static sbit_status sbit__cross_entropy_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    const sbit_type *x = call->in_type[0];
    if (x->rank >= 0 && x->rank != 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "logits have rank %d, must be [N,C]",
                            (int)x->rank);
    }
    (void)sbit__op_out(call, 0, x->dtype, 0);
    sbit__op_same_type(call, 1, 0);
    return SBIT_OK;
}

/* What row n should be: class `label` (-1: by `weights`), or nothing (false). */
static bool sbit__cross_entropy_target(const sbit_tensor *targets, int64_t n, int64_t classes,
                                       int64_t ignore, int64_t *label)
{
    *label = -1;
    if (targets->dtype == SBIT_I64 || targets->dtype == SBIT_I32) {
        *label = sbit__tensor_i64_at(targets, n);
        return *label != ignore && *label >= 0 && *label < classes;
    }
    return true;
}

/* Of class c; `weights` may be NULL. */
static double sbit__cross_entropy_weight(const sbit_attr *weights, int64_t c)
{
    return weights != NULL ? (double)weights->floats[c] : 1.0;
}

/* *rows: how much all rows count together. */
static sbit_status sbit__cross_entropy_check(const sbit_op_call *call, int64_t ignore,
                                             const sbit_attr *weights, double *rows,
                                             sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *t = call->in[1];
    const bool labels = t->dtype == SBIT_I64 || t->dtype == SBIT_I32;
    const int64_t want = labels ? x->dims[0] : sbit_tensor_count(x);
    *rows = 0.0;
    if (weights != NULL && (int64_t)weights->count != x->dims[1]) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld classes, but %lld weights",
                            (long long)x->dims[1], (long long)weights->count);
    }
    if (sbit_tensor_count(t) != want || (!labels && t->dtype != x->dtype)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "targets must be %lld class numbers, or probabilities of the logits' "
                            "shape and type",
                            (long long)x->dims[0]);
    }
    for (int64_t n = 0; n < x->dims[0]; n++) {
        int64_t label = 0;
        const bool counts = sbit__cross_entropy_target(t, n, x->dims[1], ignore, &label);
        if (!counts && label != ignore) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_ARGUMENT, error,
                                "target %lld is class %lld of %lld", (long long)n, (long long)label,
                                (long long)x->dims[1]);
        }
        *rows += !counts ? 0.0 : label >= 0 ? sbit__cross_entropy_weight(weights, label) : 1.0;
    }
    return SBIT_OK;
}

/* How much of class c row n should be. */
static double sbit__cross_entropy_want(const sbit_tensor *targets, int64_t n, int64_t classes,
                                       int64_t c, int64_t label, double smooth,
                                       const sbit_attr *weights)
{
    const double want =
        label < 0 ? sbit__tensor_f64_at(targets, n * classes + c) : (c == label ? 1.0 : 0.0);
    return (want * (1.0 - smooth) + smooth / (double)classes) *
           sbit__cross_entropy_weight(weights, c);
}

static sbit_status sbit__cross_entropy_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *targets = call->in[1];
    const int64_t classes = x->dims[1], ignore = sbit_node_int(call->node, "ignore", -100);
    const double smooth = (double)sbit_node_float(call->node, "smoothing", 0.0f);
    const sbit_attr *weights = sbit_node_attr(call->node, "weights");
    int64_t label = 0;
    double loss = 0.0, rows = 0.0;
    SBIT__TRY(sbit__cross_entropy_check(call, ignore, weights, &rows, error));
    for (int64_t n = 0; n < x->dims[0]; n++) {
        const bool counts = sbit__cross_entropy_target(targets, n, classes, ignore, &label);
        double top = -(double)INFINITY, sum = 0.0, wanted = 0.0;
        for (int64_t c = 0; c < classes; c++) {
            const double v = sbit__bn_at(x->dtype, x->data, n * classes + c);
            top = v > top || v != v ? v : top;
        }
        for (int64_t c = 0; c < classes; c++) {
            sum += exp(sbit__bn_at(x->dtype, x->data, n * classes + c) - top);
            wanted += sbit__cross_entropy_want(targets, n, classes, c, label, smooth, weights);
        }
        for (int64_t c = 0; c < classes; c++) {
            const double v = sbit__bn_at(x->dtype, x->data, n * classes + c) - top;
            const double want =
                sbit__cross_entropy_want(targets, n, classes, c, label, smooth, weights);
            loss += counts && want != 0.0 ? want * (log(sum) - v) : 0.0;
            sbit__bn_set(x->dtype, sbit__bn_out(call, 1), n * classes + c,
                         counts ? (exp(v) / sum * wanted - want) / rows : 0.0);
        }
    }
    sbit__bn_set(x->dtype, sbit__bn_out(call, 0), 0, rows > 0.0 ? loss / rows : 0.0);
    return SBIT_OK;
}

/* >>Distillation(logits, teacher's logits) {temperature} -> loss, dlogits: T^2 * mean over rows of
 * sum p_t (log p_t - log p), p = softmax(. / T) */

static void sbit__distill_row(const sbit_tensor *x, int64_t at, int64_t classes, double t,
                              double *top, double *sum)
{
    *top = -(double)INFINITY;
    *sum = 0.0;
    for (int64_t c = 0; c < classes; c++) {
        const double v = sbit__bn_at(x->dtype, x->data, at + c) / t;
        *top = v > *top || v != v ? v : *top;
    }
    for (int64_t c = 0; c < classes; c++) {
        *sum += exp(sbit__bn_at(x->dtype, x->data, at + c) / t - *top);
    }
}

static sbit_status sbit__distill_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *teacher = call->in[1];
    const int64_t classes = x->dims[1], rows = x->dims[0];
    const double t = (double)sbit_node_float(call->node, "temperature", 1.0f);
    double loss = 0.0;
    if (!sbit_tensor_same_shape(x, teacher) || x->dtype != teacher->dtype) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the teacher's logits differ in shape or type");
    }
    for (int64_t n = 0; n < rows; n++) {
        double top[2], sum[2];
        sbit__distill_row(x, n * classes, classes, t, &top[0], &sum[0]);
        sbit__distill_row(teacher, n * classes, classes, t, &top[1], &sum[1]);
        for (int64_t c = 0; c < classes; c++) {
            const int64_t at = n * classes + c;
            const double own = sbit__bn_at(x->dtype, x->data, at) / t - top[0] - log(sum[0]);
            const double want = sbit__bn_at(x->dtype, teacher->data, at) / t - top[1] - log(sum[1]);
            loss += exp(want) * (want - own);
            sbit__bn_set(x->dtype, sbit__bn_out(call, 1), at,
                         t * (exp(own) - exp(want)) / (double)rows);
        }
    }
    sbit__bn_set(x->dtype, sbit__bn_out(call, 0), 0, rows > 0 ? t * t * loss / (double)rows : 0.0);
    return SBIT_OK;
}

/* >>rows */

#define SBIT__GRAD_ROW(name, flags, fn, prepare, gradient)                                         \
    {                                                                                              \
        SBIT__GRAD_DOMAIN, name, 1, SBIT__T_GRAD, flags, 0, sbit__##fn##_infer, prepare,           \
            sbit__##fn##_run, gradient, NULL, NULL, NULL, NULL                                     \
    }

static const sbit_op_row sbit__grad_norm_rows[] = {
    SBIT__GRAD_ROW("BatchNormTrain", 0, bn_train, sbit__bn_prepare, sbit__grad_batch_norm_train),
    SBIT__GRAD_ROW("BatchNormGrad", 0, bn_grad, sbit__bn_prepare, NULL),
    SBIT__GRAD_ROW("NormGrad", 0, norm_grad, NULL, NULL),
    SBIT__GRAD_ROW("LayerNormGrad", 0, layer_grad, sbit__layer_grad_prepare, NULL),
    SBIT__GRAD_ROW("SoftmaxGrad", SBIT_OP_IN_PLACE, softmax_grad, NULL, NULL),
    SBIT__GRAD_ROW("CrossEntropy", 0, cross_entropy, NULL, sbit__grad_cross_entropy),
    {SBIT__GRAD_DOMAIN, "Distillation", 1, SBIT__T_GRAD, 0, 0, sbit__cross_entropy_infer, NULL,
     sbit__distill_run, sbit__grad_cross_entropy, NULL, NULL, NULL, NULL},
};

#undef SBIT__GRAD_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_grad_norm(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__grad_norm_rows);
    return sbit__grad_norm_rows;
}

#endif /* SPARSEBIT_NO_OPS_TRAINING */
