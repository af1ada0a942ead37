/* grad_norm.c: training form of BatchNormalization; gradients of normalizations, Softmax and the
 * cross entropy. >>grad-norm
 *
 * Called by: infer, exec; the nodes are added by ops/gradients.c and grad. Calls: kernels.
 * With n the normalized x, s the scale, M the elements that share statistics:
 *     batch statistics   dx = s/sd * (dy - (sum dy + n * sum(dy n)) / M)
 *     fixed statistics   dx = s/sd * dy
 *     dscale = sum(dy n)   dbias = sum dy
 * Channels and rows are independent; each is computed by one thread. Sums are taken in double.
 * BatchNormTrain's running statistics are new = momentum * old + (1 - momentum) * batch; the
 * variance that enters is the unbiased one (times M/(M-1)), as PyTorch does, or with attribute
 * unbiased 0 the one that normalizes, as ONNX does.
 */
#include "../kernels/last_private.h"
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* sqrt, exp, log */

#if !SPARSEBIT_NO_OPS_TRAINING

/* >>BatchNormTrain(x, scale, bias, mean, var [, fixed]) -> y, new mean, new var, batch mean, batch
 * var; fixed not 0: normalized by mean and var, which stay, and are given as those of the batch */

typedef struct sbit__bn {
    const sbit__last_kernels *kernels;
    sbit_dtype dtype;
    int64_t batch, channels, inner;
    double epsilon, momentum;
    bool unbiased, training, fixed, rms;
    const void *x, *dy, *scale, *bias, *mean, *var;
    void *y, *new_mean, *new_var, *batch_mean, *batch_var; /* y: also dx */
    void *dscale, *dbias;
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

/* By the running statistics, which stay. */
static void sbit__bn_fixed_channel(const sbit__bn *task, int64_t c)
{
    const double mean = sbit__bn_at(task->dtype, task->mean, c);
    const double var = sbit__bn_at(task->dtype, task->var, c);
    const double inverse = 1.0 / sqrt(var + task->epsilon);
    const double scale = sbit__bn_at(task->dtype, task->scale, c) * inverse;
    sbit__bn_scale(task, c, sbit__bn_plain(task, mean, inverse), scale,
                   sbit__bn_at(task->dtype, task->bias, c) - mean * scale);
    sbit__bn_set(task->dtype, task->new_mean, c, mean);
    sbit__bn_set(task->dtype, task->new_var, c, var);
    sbit__bn_set(task->dtype, task->batch_mean, c, mean);
    sbit__bn_set(task->dtype, task->batch_var, c, var);
}

static void sbit__bn_train_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__bn *task = (const sbit__bn *)user;
    const double count = (double)(task->batch * task->inner), keep = task->momentum;
    const sbit_dtype dtype = task->dtype;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        double mean, var;
        if (task->fixed) {
            sbit__bn_fixed_channel(task, c);
            continue;
        }
        sbit__bn_moments(task, c, &mean, &var);
        const double inverse = 1.0 / sqrt(var + task->epsilon);
        const double scale = sbit__bn_at(dtype, task->scale, c) * inverse;
        const double run = task->unbiased && count > 1.0 ? var * count / (count - 1.0) : var;
        sbit__bn_scale(task, c, sbit__bn_plain(task, mean, inverse), scale,
                       sbit__bn_at(dtype, task->bias, c) - mean * scale);
        sbit__bn_set(dtype, task->new_mean, c,
                     keep * sbit__bn_at(dtype, task->mean, c) + (1.0 - keep) * mean);
        sbit__bn_set(dtype, task->new_var, c,
                     keep * sbit__bn_at(dtype, task->var, c) + (1.0 - keep) * run);
        sbit__bn_set(dtype, task->batch_mean, c, mean);
        sbit__bn_set(dtype, task->batch_var, c, var);
    }
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
    task->channels = x->dims[1];
    task->inner = sbit__tensor_span(x, 2, x->rank);
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
    sbit__parallel_range(call->ctx, task.channels, 1, sbit__bn_train_channels, &task);
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

static void sbit__bn_grad_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__bn *task = (const sbit__bn *)user;
    const double count = (double)(task->batch * task->inner);
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        const double mean = sbit__bn_at(task->dtype, task->mean, c);
        const double inverse = 1.0 / sqrt(sbit__bn_at(task->dtype, task->var, c) + task->epsilon);
        double sums[2]; /* dy, dy (x - mean) */
        const double center = task->dtype == SBIT_F64 ? mean : (double)(float)mean;
        sbit__bn_sums(task, task->dy, c, center, sums);
        sums[1] += (center - mean) * sums[0];
        const double dscale = sums[1] * inverse;
        const double a = sbit__bn_at(task->dtype, task->scale, c) * inverse;
        const double b = task->training ? -a * dscale * inverse / count : 0.0;
        const double shift = task->training ? -a * sums[0] / count - b * mean : 0.0;
        sbit__bn_set(task->dtype, task->dscale, c, dscale);
        sbit__bn_set(task->dtype, task->dbias, c, sums[0]);
        if (task->y != NULL) {
            sbit__bn_combine(task, c, sbit__bn_plain(task, mean, inverse), a, b, shift);
        }
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
    sbit__parallel_range(call->ctx, task.channels, 1, sbit__bn_grad_channels, &task);
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

#define SBIT__GRAD_ROW(name, flags, fn, gradient)                                                  \
    {                                                                                              \
        SBIT__GRAD_DOMAIN, name, 1, SBIT__T_GRAD, flags, 0, sbit__##fn##_infer, NULL,              \
            sbit__##fn##_run, gradient, NULL, NULL, NULL, NULL                                     \
    }

static const sbit_op_row sbit__grad_norm_rows[] = {
    SBIT__GRAD_ROW("BatchNormTrain", 0, bn_train, sbit__grad_batch_norm_train),
    SBIT__GRAD_ROW("BatchNormGrad", 0, bn_grad, NULL),
    SBIT__GRAD_ROW("NormGrad", 0, norm_grad, NULL),
    SBIT__GRAD_ROW("SoftmaxGrad", SBIT_OP_IN_PLACE, softmax_grad, NULL),
    SBIT__GRAD_ROW("CrossEntropy", 0, cross_entropy, sbit__grad_cross_entropy),
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
