/* norm.c: BatchNormalization, LayerNormalization, RMSNormalization, InstanceNormalization,
 * GroupNormalization, LpNormalization, LRN, MeanVarianceNormalization. >>norm
 *
 * Called by: infer, exec. Calls: kernels (rows of floats).
 * Everything is y = (x - mean) * factor * scale + bias over some set of elements that shares mean
 * and factor = 1 / sqrt(variance + epsilon); the operators differ in the set and in what scale and
 * bias belong to. Variance is the mean of squared distances (population), taken in a second pass.
 * Statistics are float32 as stash_type 1 asks, with sums of whole rows by vector kernels.
 */
#include "../kernels/last_private.h"
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* sqrtf, sqrt, pow, powf, fabs */

/* Input i, if present, must be a tensor of rank 1 with `length` entries. */
static sbit_status sbit__norm_vector(const sbit_op_call *call, int32_t i, sbit_dim length,
                                     sbit_error *error)
{
    int32_t rank = -1;
    SBIT__TRY(sbit__op_rank(call, i, &rank, error));
    if (rank < 0) {
        return SBIT_OK;
    }
    const sbit_dim have = call->in_type[i]->dims[0];
    if (rank != 1 ||
        (sbit__dim_known(have) && sbit__dim_known(length) && have.value != length.value)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "input %d must be a vector of %lld entries, one for each channel",
                            (int)i, (long long)(sbit__dim_known(length) ? length.value : 0));
    }
    return SBIT_OK;
}

/* Of `count` equal pieces of x, how many are worth a thread. */
static int64_t sbit__norm_grain(const sbit_tensor *x, int64_t count)
{
    return 1 + 16384 * count / (sbit_tensor_count(x) + 1);
}

/* Mean and 1 / sqrt(variance + epsilon) of n elements; `y` (n floats) is overwritten. */
static void sbit__norm_moments(const sbit_kernels *kernels, int64_t n, const float *x, float *y,
                               float epsilon, float *mean, float *factor)
{
    *mean = kernels->f32_sum(n, x) / (float)n;
    kernels->f32_binary(SBIT__BINARY_SUB, n, x, 1, mean, 0, y);
    *factor = 1.0f / sqrtf(kernels->f32_dot(n, y, y) / (float)n + epsilon);
}

/* ---- BatchNormalization */

/* Outputs behind Y: statistics when it trains. Before version 14 their number says so, and in
 * versions 1 and 6 the attribute is_test can say no. */
static bool sbit__batchnorm_trains(const sbit_op_call *call)
{
    if (call->row->since_version >= 14) {
        return sbit_node_int(call->node, "training_mode", 0) != 0;
    }
    if (call->row->since_version < 7 && sbit_node_int(call->node, "is_test", 0) != 0) {
        return false;
    }
    for (int32_t i = 1; i < call->output_count; i++) {
        if (sbit__op_wants(call, i)) {
            return true;
        }
    }
    return false;
}

/* Before version 9 `spatial` 0 gave each position of a channel statistics of its own. */
static bool sbit__batchnorm_spatial(const sbit_op_call *call)
{
    return call->row->since_version >= 9 || sbit_node_int(call->node, "spatial", 1) != 0;
}

static sbit_status sbit__batchnorm_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 5, 5, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x1e, SBIT_T_FLOATS, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    const sbit_type *x = call->in_type[0];
    if (rank == 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input is a scalar");
    }
    const bool spatial = sbit__batchnorm_spatial(call);
    const sbit_dim channels = rank < 0 ? sbit__dim_any() : rank == 1 ? sbit__dim(1) : x->dims[1];
    for (int32_t i = 1; spatial && i < 5; i++) {
        SBIT__TRY(sbit__norm_vector(call, i, channels, error));
    }
    for (int32_t i = 1; !spatial && rank >= 2 && i < 5; i++) {
        const int64_t want = sbit__type_count(x, 1, rank);
        const int64_t have = call->in_type[i]->rank < 0
                                 ? -1
                                 : sbit__type_count(call->in_type[i], 0, call->in_type[i]->rank);
        if (want >= 0 && have >= 0 && want != have) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "input %d has %lld entries, must have %lld", (int)i,
                                (long long)have, (long long)want);
        }
    }
    sbit__op_same_type(call, 0, 0);
    for (int32_t i = 1; i < call->output_count; i++) {
        if (sbit__op_wants(call, i)) { /* mean, var, saved mean, saved var */
            *call->out_type[i] = *call->in_type[i % 2 == 1 ? 3 : 4];
        }
    }
    return SBIT_OK;
}

typedef struct sbit__batchnorm_task {
    const sbit_kernels *kernels;
    const float *x, *scale, *bias, *mean, *var;
    float *y;
    float *out_mean, *out_var, *saved_mean, *saved_var;
    int64_t batch, channels, inner;
    float epsilon, momentum;
    bool trains;
} sbit__batchnorm_task;

/* Statistics of one channel over all images. */
static void sbit__batchnorm_channel(const sbit__batchnorm_task *task, int64_t channel, float *mean,
                                    float *var)
{
    double sum = 0.0, squares = 0.0;
    const double count = (double)(task->batch * task->inner);
    for (int64_t n = 0; n < task->batch; n++) {
        const float *x = task->x + (n * task->channels + channel) * task->inner;
        for (int64_t i = 0; i < task->inner; i++) {
            sum += (double)x[i];
        }
    }
    const double center = count > 0.0 ? sum / count : 0.0;
    for (int64_t n = 0; n < task->batch; n++) {
        const float *x = task->x + (n * task->channels + channel) * task->inner;
        for (int64_t i = 0; i < task->inner; i++) {
            squares += ((double)x[i] - center) * ((double)x[i] - center);
        }
    }
    *mean = (float)center;
    *var = count > 0.0 ? (float)(squares / count) : 0.0f;
}

static void sbit__batchnorm_learn(const sbit__batchnorm_task *task, int64_t channel, float mean,
                                  float var)
{
    const float keep = task->momentum;
    if (task->out_mean != NULL) {
        task->out_mean[channel] = task->mean[channel] * keep + mean * (1.0f - keep);
    }
    if (task->out_var != NULL) {
        task->out_var[channel] = task->var[channel] * keep + var * (1.0f - keep);
    }
    if (task->saved_mean != NULL) {
        task->saved_mean[channel] = mean;
    }
    if (task->saved_var != NULL) {
        task->saved_var[channel] = var;
    }
}

static void sbit__batchnorm_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__batchnorm_task *task = (const sbit__batchnorm_task *)user;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        float mean = task->mean[c], var = task->var[c];
        if (task->trains) {
            sbit__batchnorm_channel(task, c, &mean, &var);
            sbit__batchnorm_learn(task, c, mean, var);
        }
        const float scale = task->scale[c] / sqrtf(var + task->epsilon);
        for (int64_t n = 0; n < task->batch; n++) {
            const int64_t at = (n * task->channels + c) * task->inner;
            if (task->inner == 1) {
                task->y[at] = (task->x[at] - mean) * scale + task->bias[c];
            } else {
                task->kernels->f32_scale_add(task->inner, task->x + at, scale,
                                             task->bias[c] - mean * scale, task->y + at);
            }
        }
    }
}

static float *sbit__norm_out(const sbit_op_call *call, int32_t i)
{
    sbit_tensor *out = sbit__out(call, i);
    return out != NULL ? (float *)out->data : NULL;
}

static sbit_status sbit__batchnorm_run32(const sbit_op_call *call, sbit_error *error)
{
    sbit__batchnorm_task task;
    const sbit_tensor *x = call->in[0];
    (void)error;
    memset(&task, 0, sizeof task);
    task.kernels = call->kernels;
    task.x = (const float *)x->data;
    task.scale = (const float *)call->in[1]->data;
    task.bias = (const float *)call->in[2]->data;
    task.mean = (const float *)call->in[3]->data;
    task.var = (const float *)call->in[4]->data;
    task.y = (float *)call->out[0]->data;
    task.out_mean = sbit__norm_out(call, 1);
    task.out_var = sbit__norm_out(call, 2);
    task.saved_mean = sbit__norm_out(call, 3);
    task.saved_var = sbit__norm_out(call, 4);
    task.batch = x->dims[0];
    task.channels = x->rank > 1 ? x->dims[1] : 1;
    task.inner = sbit__tensor_span(x, 2, x->rank);
    if (!sbit__batchnorm_spatial(call)) {
        task.channels *= task.inner;
        task.inner = 1;
    }
    task.epsilon = sbit_node_float(call->node, "epsilon", 1e-5f);
    task.momentum = sbit_node_float(call->node, "momentum", 0.9f);
    task.trains = sbit__batchnorm_trains(call);
    if (!task.trains) { /* what is stated stays as it is */
        for (int64_t c = 0; c < task.channels; c++) {
            sbit__batchnorm_learn(&task, c, task.mean[c], task.var[c]);
        }
    }
    sbit__parallel_range(call->ctx, task.channels, sbit__norm_grain(x, task.channels),
                         sbit__batchnorm_channels, &task);
    return SBIT_OK;
}

/* Writes statistics that the node gives in double: input 3 or 4 moved towards `value`, or itself.
 */
static void sbit__batchnorm_learn64(const sbit_op_call *call, int32_t i, int64_t c, double value)
{
    const double keep = (double)sbit_node_float(call->node, "momentum", 0.9f);
    const double old = ((const double *)call->in[2 + i]->data)[c];
    sbit_tensor *running = sbit__out(call, i), *saved = sbit__out(call, i + 2);
    if (running != NULL) {
        ((double *)running->data)[c] = old * keep + value * (1.0 - keep);
    }
    if (saved != NULL) {
        ((double *)saved->data)[c] = value;
    }
}

static sbit_status sbit__batchnorm_run64(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const double epsilon = (double)sbit_node_float(call->node, "epsilon", 1e-5f);
    const int64_t span = sbit__tensor_span(x, 2, x->rank);
    const int64_t inner = sbit__batchnorm_spatial(call) ? span : 1;
    const int64_t channels = (x->rank > 1 ? x->dims[1] : 1) * (inner == span ? 1 : span);
    const int64_t count = x->dims[0] * inner;
    const double *from = (const double *)x->data;
    (void)error;
    for (int64_t c = 0; c < channels; c++) {
        double stats[2] = {((const double *)call->in[3]->data)[c],
                           ((const double *)call->in[4]->data)[c]};
        for (int32_t k = 0; sbit__batchnorm_trains(call) && k < 2; k++) { /* mean, variance */
            double sum = 0.0;
            for (int64_t i = 0; i < count; i++) {
                const double value = from[(i / inner * channels + c) * inner + i % inner];
                sum += k == 0 ? value : (value - stats[0]) * (value - stats[0]);
            }
            stats[k] = count > 0 ? sum / (double)count : 0.0;
        }
        sbit__batchnorm_learn64(call, 1, c, stats[0]);
        sbit__batchnorm_learn64(call, 2, c, stats[1]);
        const double scale = ((const double *)call->in[1]->data)[c] / sqrt(stats[1] + epsilon);
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = (i / inner * channels + c) * inner + i % inner;
            ((double *)call->out[0]->data)[at] =
                (from[at] - stats[0]) * scale + ((const double *)call->in[2]->data)[c];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__batchnorm_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__batchnorm_run32, sbit__batchnorm_run64, error);
}

/* ---- LayerNormalization and RMSNormalization: rows of the dims from `axis` on */

static sbit_status sbit__layernorm_axis(const sbit_op_call *call, int32_t rank, int32_t *axis,
                                        sbit_error *error)
{
    return sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), rank, axis, error);
}

/* Scale and bias must broadcast to X, and not the other way round. */
static sbit_status sbit__layernorm_check(const sbit_op_call *call, int32_t input, sbit_error *error)
{
    int32_t rank = -1;
    const sbit_type *x = call->in_type[0];
    SBIT__TRY(sbit__op_rank(call, input, &rank, error));
    if (rank < 0) {
        return SBIT_OK;
    }
    bool fits = rank <= x->rank;
    for (int32_t i = 0; fits && i < rank; i++) {
        const sbit_dim have = call->in_type[input]->dims[rank - 1 - i];
        const sbit_dim want = x->dims[x->rank - 1 - i];
        fits = !sbit__dim_known(have) || have.value == 1 || !sbit__dim_known(want) ||
               have.value == want.value;
    }
    return fits ? SBIT_OK
                : sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                               "input %d does not broadcast to the shape of input 0", (int)input);
}

static sbit_status sbit__layernorm_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t stash = sbit_node_int(call->node, "stash_type", SBIT_F32);
    int32_t rank = -1, axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    SBIT__TRY(sbit__op_dtypes(call, 6, SBIT_T_FLOATS, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    if (stash < 0 || stash > 31 || (SBIT_T_FLOATS >> stash & 1u) == 0) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "stash_type %lld is not a float type", (long long)stash);
    }
    const sbit_type *x = call->in_type[0];
    if (rank >= 0) {
        SBIT__TRY(sbit__layernorm_axis(call, rank, &axis, error));
        SBIT__TRY(sbit__layernorm_check(call, 1, error));
        SBIT__TRY(sbit__layernorm_check(call, 2, error));
    }
    sbit__op_same_type(call, 0, 0);
    for (int32_t i = 1; i < 3; i++) { /* mean, 1 / deviation; of RMS only that */
        sbit_type *out = sbit__op_out(call, i, (sbit_dtype)stash, rank);
        for (int32_t k = 0; out != NULL && k < rank; k++) {
            out->dims[k] = k < axis ? x->dims[k] : sbit__dim(1);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__rmsnorm_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__layernorm_infer(call, error));
    if (sbit__op_wants(call, 0)) { /* Y has the type of scale */
        call->out_type[0]->dtype = call->in_type[1]->dtype;
    }
    return SBIT_OK;
}

typedef struct sbit__layernorm_task {
    const sbit__last_kernels *kernels;
    const float *x;
    float *y, *means, *factors;
    int64_t rows, inner;
    float epsilon;
    bool centered; /* false: RMSNormalization */
    const float *scale, *bias;
    bool plain;   /* scale and bias are one row each, or absent */
    int32_t rank; /* otherwise: how they lie against X */
    int64_t dims[SBIT_MAX_RANK];
    int64_t scale_strides[SBIT_MAX_RANK], bias_strides[SBIT_MAX_RANK];
} sbit__layernorm_task;

static int64_t sbit__layernorm_at(const sbit__layernorm_task *task, const int64_t *strides,
                                  int64_t at)
{
    int64_t offset = 0;
    for (int32_t i = task->rank - 1; i >= 0; i--) {
        offset += at % task->dims[i] * strides[i];
        at /= task->dims[i];
    }
    return offset;
}

static void sbit__layernorm_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__layernorm_task *task = (const sbit__layernorm_task *)user;
    const int64_t n = task->inner;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        float *y = task->y + row * n, stats[2];
        task->kernels->norm_row(n, task->x + row * n, task->plain ? task->scale : NULL,
                                task->plain ? task->bias : NULL, task->centered, task->epsilon, y,
                                stats);
        if (task->means != NULL) {
            task->means[row] = stats[0];
        }
        if (task->factors != NULL) {
            task->factors[row] = stats[1];
        }
        for (int64_t i = 0; !task->plain && i < n; i++) {
            const int64_t at = row * n + i;
            y[i] *= task->scale[sbit__layernorm_at(task, task->scale_strides, at)];
            if (task->bias != NULL) {
                y[i] += task->bias[sbit__layernorm_at(task, task->bias_strides, at)];
            }
        }
    }
}

static bool sbit__layernorm_is_row(const sbit_tensor *tensor, const sbit_tensor *x, int32_t axis)
{
    int32_t skip = 0;
    while (tensor->rank - skip > x->rank - axis) {
        if (tensor->dims[skip++] != 1) {
            return false;
        }
    }
    if (tensor->rank - skip != x->rank - axis) {
        return false;
    }
    for (int32_t i = 0; i < x->rank - axis; i++) {
        if (tensor->dims[skip + i] != x->dims[axis + i]) {
            return false;
        }
    }
    return true;
}

typedef struct sbit__layernorm {
    int32_t axis;
    float epsilon;
} sbit__layernorm;

static sbit_status sbit__layernorm_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__layernorm plan;
    SBIT__TRY(sbit__op_prepare_f32(call, error));
    if (!sbit__type_static(call->in_type[0])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__layernorm_axis(call, call->in_type[0]->rank, &plan.axis, error));
    plan.epsilon = sbit_node_float(call->node, "epsilon", 1e-5f);
    return sbit__op_keep(call, &plan, sizeof plan, error);
}

static sbit_status sbit__layernorm_run_as(const sbit_op_call *call, bool centered,
                                          sbit_error *error)
{
    sbit__layernorm plan;
    sbit__layernorm_task task;
    const sbit_tensor *x = call->in[0];
    const sbit_tensor *scale = call->in[1];
    const sbit_tensor *bias = sbit__in(call, 2);
    SBIT__TRY(sbit__op_kept(call, &plan, sizeof plan, error));
    const int32_t axis = plan.axis;
    memset(&task, 0, sizeof task);
    task.kernels = sbit__last_of(call->ctx);
    task.x = (const float *)x->data;
    task.y = (float *)call->out[0]->data;
    task.means = centered ? sbit__norm_out(call, 1) : NULL;
    task.factors = sbit__norm_out(call, centered ? 2 : 1);
    task.rows = sbit__tensor_span(x, 0, axis);
    task.inner = sbit__tensor_span(x, axis, x->rank);
    task.epsilon = plan.epsilon;
    task.centered = centered;
    task.scale = (const float *)scale->data;
    task.bias = bias != NULL ? (const float *)bias->data : NULL;
    task.rank = x->rank;
    memcpy(task.dims, x->dims, sizeof task.dims);
    task.plain = sbit__layernorm_is_row(scale, x, axis) &&
                 (bias == NULL || sbit__layernorm_is_row(bias, x, axis));
    if (!task.plain) {
        SBIT__TRY(sbit__op_strides(call, scale, -1, x->rank, x->dims, task.scale_strides, error));
        if (bias != NULL) {
            SBIT__TRY(sbit__op_strides(call, bias, -1, x->rank, x->dims, task.bias_strides, error));
        }
    }
    sbit__parallel_range(call->ctx, task.rows, sbit__norm_grain(x, task.rows), sbit__layernorm_rows,
                         &task);
    return SBIT_OK;
}

/* Mean and 1 / sqrt(variance + epsilon) of n elements; not centered: mean 0. */
static void sbit__norm_moments64(int64_t n, const double *x, double epsilon, bool centered,
                                 double *mean, double *factor)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; centered && i < n; i++) {
        sum += x[i];
    }
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        squares += (x[i] - *mean) * (x[i] - *mean);
    }
    *factor = 1.0 / sqrt(squares / (double)n + epsilon);
}

static sbit_status sbit__layernorm_run_as64(const sbit_op_call *call, bool centered,
                                            sbit_error *error)
{
    sbit__layernorm plan;
    sbit__layernorm_task task; /* where scale and bias lie */
    const sbit_tensor *x = call->in[0], *scale = call->in[1], *bias = sbit__in(call, 2);
    sbit_tensor *means = centered ? sbit__out(call, 1) : NULL;
    sbit_tensor *factors = sbit__out(call, centered ? 2 : 1);
    SBIT__TRY(sbit__op_kept(call, &plan, sizeof plan, error));
    const int32_t axis = plan.axis;
    const double epsilon = (double)plan.epsilon;
    memset(&task, 0, sizeof task);
    task.rank = x->rank;
    memcpy(task.dims, x->dims, sizeof task.dims);
    SBIT__TRY(sbit__op_strides(call, scale, -1, x->rank, x->dims, task.scale_strides, error));
    if (bias != NULL) {
        SBIT__TRY(sbit__op_strides(call, bias, -1, x->rank, x->dims, task.bias_strides, error));
    }
    const int64_t n = sbit__tensor_span(x, axis, x->rank);
    for (int64_t row = 0; row < sbit__tensor_span(x, 0, axis); row++) {
        const double *from = (const double *)x->data + row * n;
        double mean = 0.0, factor = 0.0;
        sbit__norm_moments64(n, from, epsilon, centered, &mean, &factor);
        for (int64_t i = 0; i < n; i++) {
            const int64_t s = sbit__layernorm_at(&task, task.scale_strides, row * n + i);
            const int64_t b = sbit__layernorm_at(&task, task.bias_strides, row * n + i);
            const double y = (from[i] - mean) * factor * ((const double *)scale->data)[s];
            ((double *)call->out[0]->data)[row * n + i] =
                y + (bias != NULL ? ((const double *)bias->data)[b] : 0.0);
        }
        if (means != NULL) {
            ((double *)means->data)[row] = mean;
        }
        if (factors != NULL) {
            ((double *)factors->data)[row] = factor;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__layernorm_run64(const sbit_op_call *call, sbit_error *error)
{
    return sbit__layernorm_run_as64(call, true, error);
}

static sbit_status sbit__rmsnorm_run64(const sbit_op_call *call, sbit_error *error)
{
    return sbit__layernorm_run_as64(call, false, error);
}

static sbit_status sbit__layernorm_run32(const sbit_op_call *call, sbit_error *error)
{
    return sbit__layernorm_run_as(call, true, error);
}

static sbit_status sbit__layernorm_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__layernorm_run32, sbit__layernorm_run64, error);
}

static sbit_status sbit__rmsnorm_run32(const sbit_op_call *call, sbit_error *error)
{
    return sbit__layernorm_run_as(call, false, error);
}

static sbit_status sbit__rmsnorm_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__rmsnorm_run32, sbit__rmsnorm_run64, error);
}

/* ---- InstanceNormalization and GroupNormalization: channels of one image in groups */

static sbit_status sbit__groupnorm_infer_groups(const sbit_op_call *call, int64_t groups,
                                                bool per_group, sbit_error *error)
{
    int32_t rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    SBIT__TRY(sbit__op_dtypes(call, 6, 0, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    if (rank >= 0 && rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be at least 2",
                            (int)rank);
    }
    const sbit_dim channels = rank < 0 ? sbit__dim_any() : call->in_type[0]->dims[1];
    if (groups < 0 || (groups == 0 && per_group) ||
        (groups > 0 && sbit__dim_known(channels) && channels.value % groups != 0)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "%lld channels do not divide into %lld groups",
                            (long long)channels.value, (long long)groups);
    }
    for (int32_t i = 1; i < 3; i++) {
        SBIT__TRY(sbit__norm_vector(call, i, per_group ? sbit__dim(groups) : channels, error));
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__instancenorm_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__groupnorm_infer_groups(call, 0, false, error);
}

static sbit_status sbit__groupnorm_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t groups = sbit_node_int(call->node, "num_groups", 0);
    if (groups < 1) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "num_groups is %lld",
                            (long long)groups);
    }
    return sbit__groupnorm_infer_groups(call, groups, call->row->since_version < 21, error);
}

typedef struct sbit__groupnorm_task {
    const sbit_kernels *kernels;
    const float *x, *scale, *bias;
    float *y;
    int64_t groups, channels, inner; /* channels of a group */
    float epsilon;
    bool per_group; /* version 18: one scale and bias for each group */
} sbit__groupnorm_task;

static void sbit__groupnorm_groups(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__groupnorm_task *task = (const sbit__groupnorm_task *)user;
    const int64_t size = task->channels * task->inner;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *x = task->x + i * size;
        float *y = task->y + i * size;
        const int64_t group = i % task->groups;
        float mean = 0.0f, factor = 0.0f;
        sbit__norm_moments(task->kernels, size, x, y, task->epsilon, &mean, &factor);
        for (int64_t c = 0; c < task->channels; c++) {
            const int64_t at = task->per_group ? group : group * task->channels + c;
            const float scale = task->scale[at] * factor;
            float *row = y + c * task->inner;
            task->kernels->f32_binary(SBIT__BINARY_MUL, task->inner, row, 1, &scale, 0, row);
            task->kernels->f32_binary(SBIT__BINARY_ADD, task->inner, row, 1, &task->bias[at], 0,
                                      row);
        }
    }
}

static sbit_status sbit__groupnorm_run32(const sbit_op_call *call, sbit_error *error)
{
    sbit__groupnorm_task task;
    const sbit_tensor *x = call->in[0];
    (void)error;
    memset(&task, 0, sizeof task);
    task.kernels = call->kernels;
    task.x = (const float *)x->data;
    task.scale = (const float *)call->in[1]->data;
    task.bias = (const float *)call->in[2]->data;
    task.y = (float *)call->out[0]->data;
    task.groups = sbit_node_int(call->node, "num_groups", x->dims[1]); /* none: InstanceNorm */
    task.channels = task.groups > 0 ? x->dims[1] / task.groups : 0;
    task.inner = sbit__tensor_span(x, 2, x->rank);
    task.epsilon = sbit_node_float(call->node, "epsilon", 1e-5f);
    task.per_group =
        sbit__streq(call->row->op_type, "GroupNormalization") && call->row->since_version < 21;
    if (sbit_tensor_count(x) > 0) {
        const int64_t groups = x->dims[0] * task.groups;
        sbit__parallel_range(call->ctx, groups, sbit__norm_grain(x, groups), sbit__groupnorm_groups,
                             &task);
    }
    return SBIT_OK;
}

static sbit_status sbit__groupnorm_run64(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int64_t groups = sbit_node_int(call->node, "num_groups", x->dims[1]);
    const int64_t channels = groups > 0 ? x->dims[1] / groups : 0;
    const int64_t inner = sbit__tensor_span(x, 2, x->rank);
    const double epsilon = (double)sbit_node_float(call->node, "epsilon", 1e-5f);
    const bool per_group =
        sbit__streq(call->row->op_type, "GroupNormalization") && call->row->since_version < 21;
    (void)error;
    for (int64_t i = 0; channels * inner > 0 && i < x->dims[0] * groups; i++) {
        const double *from = (const double *)x->data + i * channels * inner;
        double *to = (double *)call->out[0]->data + i * channels * inner;
        double mean = 0.0, factor = 0.0;
        sbit__norm_moments64(channels * inner, from, epsilon, true, &mean, &factor);
        for (int64_t k = 0; k < channels * inner; k++) {
            const int64_t at = per_group ? i % groups : i % groups * channels + k / inner;
            to[k] = (from[k] - mean) * factor * ((const double *)call->in[1]->data)[at] +
                    ((const double *)call->in[2]->data)[at];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__groupnorm_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__groupnorm_run32, sbit__groupnorm_run64, error);
}

/* ---- LpNormalization: along one axis; a norm of 0 gives 0 */

static sbit_status sbit__lpnorm_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1, axis = 0;
    const int64_t p = sbit_node_int(call->node, "p", 2);
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    if (p != 1 && p != 2) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "p is %lld, must be 1 or 2",
                            (long long)p);
    }
    if (rank >= 0) {
        SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), rank, &axis, error));
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

typedef struct sbit__lpnorm_task {
    bool wide; /* double, else float */
    const void *x;
    void *y;
    int64_t length, inner;
    bool squares;
} sbit__lpnorm_task;

static void sbit__lpnorm_lines(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__lpnorm_task *task = (const sbit__lpnorm_task *)user;
    (void)worker;
    for (int64_t line = begin; line < end; line++) {
        const int64_t at = line / task->inner * task->length * task->inner + line % task->inner;
        double sum = 0.0;
        for (int64_t i = 0; i < task->length; i++) {
            const double x = sbit__real_at(task->wide, task->x, at + i * task->inner);
            sum += task->squares ? x * x : fabs(x);
        }
        const double norm = task->squares ? sqrt(sum) : sum;
        for (int64_t i = 0; i < task->length; i++) {
            const int64_t k = at + i * task->inner;
            const double x = sbit__real_at(task->wide, task->x, k);
            sbit__real_set(task->wide, task->y, k, norm == 0.0 ? 0.0 : x / norm);
        }
    }
}

static sbit_status sbit__lpnorm_run_any(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__lpnorm_task task;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), x->rank, &axis, error));
    task.wide = x->dtype == SBIT_F64;
    task.x = x->data;
    task.y = call->out[0]->data;
    task.length = x->dims[axis];
    task.inner = sbit__tensor_span(x, axis + 1, x->rank);
    task.squares = sbit_node_int(call->node, "p", 2) == 2;
    sbit__parallel_range(call->ctx, sbit__tensor_span(x, 0, axis) * task.inner, 64,
                         sbit__lpnorm_lines, &task);
    return SBIT_OK;
}

static sbit_status sbit__lpnorm_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__lpnorm_run_any, sbit__lpnorm_run_any, error);
}

/* ---- LRN: over neighbouring channels c - floor((size - 1) / 2) .. c + ceil((size - 1) / 2) */

static sbit_status sbit__lrn_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    const int64_t size = sbit_node_int(call->node, "size", 0);
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    if (rank >= 0 && rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be at least 2",
                            (int)rank);
    }
    if (size < 1 || size > INT32_MAX) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "size is %lld", (long long)size);
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

typedef struct sbit__lrn_task {
    const float *x;
    float *y;
    int64_t channels, inner, before, after;
    float scale, beta, bias; /* scale: alpha / size */
} sbit__lrn_task;

static void sbit__lrn_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__lrn_task *task = (const sbit__lrn_task *)user;
    (void)worker;
    for (int64_t plane = begin; plane < end; plane++) {
        const int64_t c = plane % task->channels;
        const int64_t first = c > task->before ? c - task->before : 0;
        const int64_t last =
            c + task->after < task->channels ? c + task->after : task->channels - 1;
        const float *x = task->x + plane * task->inner;
        float *y = task->y + plane * task->inner;
        for (int64_t i = 0; i < task->inner; i++) {
            y[i] = 0.0f;
        }
        for (int64_t k = first - c; k <= last - c; k++) {
            const float *other = x + k * task->inner;
            for (int64_t i = 0; i < task->inner; i++) {
                y[i] += other[i] * other[i];
            }
        }
        for (int64_t i = 0; i < task->inner; i++) {
            y[i] = x[i] / powf(task->bias + task->scale * y[i], task->beta);
        }
    }
}

static sbit_status sbit__lrn_run32(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int64_t size = sbit_node_int(call->node, "size", 1);
    sbit__lrn_task task;
    (void)error;
    task.x = (const float *)x->data;
    task.y = (float *)call->out[0]->data;
    task.channels = x->dims[1];
    task.inner = sbit__tensor_span(x, 2, x->rank);
    task.before = (size - 1) / 2;
    task.after = size / 2;
    task.scale = sbit_node_float(call->node, "alpha", 1e-4f) / (float)size;
    task.beta = sbit_node_float(call->node, "beta", 0.75f);
    task.bias = sbit_node_float(call->node, "bias", 1.0f);
    sbit__parallel_range(call->ctx, x->dims[0] * task.channels, 1, sbit__lrn_planes, &task);
    return SBIT_OK;
}

static sbit_status sbit__lrn_run64(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const double *from = (const double *)x->data;
    const int64_t size = sbit_node_int(call->node, "size", 1), channels = x->dims[1];
    const int64_t inner = sbit__tensor_span(x, 2, x->rank);
    const double scale = (double)sbit_node_float(call->node, "alpha", 1e-4f) / (double)size;
    const double beta = (double)sbit_node_float(call->node, "beta", 0.75f);
    const double bias = (double)sbit_node_float(call->node, "bias", 1.0f);
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        const int64_t c = i / inner % channels;
        const int64_t first = c > (size - 1) / 2 ? -((size - 1) / 2) : -c;
        const int64_t last = c + size / 2 < channels ? size / 2 : channels - 1 - c;
        double squares = 0.0;
        for (int64_t k = first; k <= last; k++) {
            squares += from[i + k * inner] * from[i + k * inner];
        }
        ((double *)call->out[0]->data)[i] = from[i] / pow(bias + scale * squares, beta);
    }
    return SBIT_OK;
}

static sbit_status sbit__lrn_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__lrn_run32, sbit__lrn_run64, error);
}

/* LrnGrad(dy, x): with t = bias + scale (sum of squares), e = dy x t^(-beta - 1):
 *     dx = dy t^-beta - 2 scale beta x (sum of e over the channels that count x) */
static double sbit__lrn_term(const sbit_tensor *x, int64_t at, int64_t c, const double *settings,
                             int64_t size)
{
    const int64_t channels = x->dims[1], inner = sbit__tensor_span(x, 2, x->rank);
    const int64_t first = c > (size - 1) / 2 ? -((size - 1) / 2) : -c;
    const int64_t last = c + size / 2 < channels ? size / 2 : channels - 1 - c;
    double squares = 0.0;
    for (int64_t k = first; k <= last; k++) {
        const double value = sbit__tensor_f64_at(x, at + k * inner);
        squares += value * value;
    }
    return settings[2] + settings[0] * squares;
}

static void sbit__lrn_grad_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit_op_call *call = (const sbit_op_call *)user;
    const sbit_tensor *dy = call->in[0], *x = call->in[1];
    const int64_t size = sbit_node_int(call->node, "size", 1), channels = x->dims[1];
    const int64_t inner = sbit__tensor_span(x, 2, x->rank);
    const double settings[3] = {(double)sbit_node_float(call->node, "alpha", 1e-4f) / (double)size,
                                (double)sbit_node_float(call->node, "beta", 0.75f),
                                (double)sbit_node_float(call->node, "bias", 1.0f)};
    (void)worker;
    for (int64_t i = begin * inner; i < end * inner; i++) {
        const int64_t c = i / inner % channels;
        const int64_t first = c > size / 2 ? -(size / 2) : -c; /* the window turned around */
        const int64_t last = c + (size - 1) / 2 < channels ? (size - 1) / 2 : channels - 1 - c;
        double sum = 0.0;
        for (int64_t k = first; k <= last; k++) {
            const int64_t at = i + k * inner;
            const double t = sbit__lrn_term(x, at, c + k, settings, size);
            sum += sbit__tensor_f64_at(dy, at) * sbit__tensor_f64_at(x, at) *
                   pow(t, -settings[1] - 1.0);
        }
        const double own = pow(sbit__lrn_term(x, i, c, settings, size), -settings[1]);
        sbit__tensor_set_f64(call->out[0], i,
                             sbit__tensor_f64_at(dy, i) * own -
                                 2.0 * settings[0] * settings[1] * sbit__tensor_f64_at(x, i) * sum);
    }
}

static sbit_status sbit__lrn_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 2, 2, 1, error);
}

static sbit_status sbit__lrn_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[1];
    sbit_op_call copy = *call;
    (void)error;
    sbit__parallel_range(call->ctx, x->dims[0] * x->dims[1], 1, sbit__lrn_grad_planes, &copy);
    return SBIT_OK;
}

/* ---- MeanVarianceNormalization: y = (x - mean) / (deviation + 1e-9) over `axes` */

static sbit_status sbit__mvn_axes(const sbit_op_call *call, int32_t rank,
                                  bool reduced[SBIT_MAX_RANK], sbit_error *error)
{
    int64_t axes[SBIT_MAX_RANK] = {0, 2, 3};
    int64_t count = -1;
    SBIT__TRY(sbit__op_ints(call, "axes", -1, axes, SBIT_MAX_RANK, &count, error));
    memset(reduced, 0, SBIT_MAX_RANK * sizeof *reduced);
    for (int64_t i = 0; i < (count < 0 ? 3 : count); i++) {
        int32_t axis = 0;
        SBIT__TRY(sbit__op_axis(call, axes[i], rank, &axis, error));
        reduced[axis] = true;
    }
    return SBIT_OK;
}

static sbit_status sbit__mvn_infer(const sbit_op_call *call, sbit_error *error)
{
    bool reduced[SBIT_MAX_RANK];
    int32_t rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    if (rank >= 0) {
        SBIT__TRY(sbit__mvn_axes(call, rank, reduced, error));
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

typedef struct sbit__mvn_task {
    bool wide; /* double, else float */
    const void *x;
    void *y;
    int32_t kept_rank, reduced_rank;
    int64_t kept_dims[SBIT_MAX_RANK], kept_strides[SBIT_MAX_RANK];
    int64_t dims[SBIT_MAX_RANK], strides[SBIT_MAX_RANK]; /* reduced */
    int64_t count;                                       /* elements that share statistics */
} sbit__mvn_task;

static int64_t sbit__mvn_offset(int32_t rank, const int64_t *dims, const int64_t *strides,
                                int64_t at)
{
    int64_t offset = 0;
    for (int32_t i = rank - 1; i >= 0; i--) {
        offset += at % dims[i] * strides[i];
        at /= dims[i];
    }
    return offset;
}

static void sbit__mvn_sets(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__mvn_task *task = (const sbit__mvn_task *)user;
    (void)worker;
    for (int64_t set = begin; set < end; set++) {
        const int64_t base =
            sbit__mvn_offset(task->kept_rank, task->kept_dims, task->kept_strides, set);
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < task->count; i++) {
            const int64_t at =
                base + sbit__mvn_offset(task->reduced_rank, task->dims, task->strides, i);
            sum += sbit__real_at(task->wide, task->x, at);
        }
        const double mean = sum / (double)task->count;
        for (int64_t i = 0; i < task->count; i++) {
            const int64_t at =
                base + sbit__mvn_offset(task->reduced_rank, task->dims, task->strides, i);
            const double x = sbit__real_at(task->wide, task->x, at) - mean;
            squares += x * x;
        }
        const double deviation = sqrt(squares / (double)task->count) + 1e-9;
        for (int64_t i = 0; i < task->count; i++) {
            const int64_t at =
                base + sbit__mvn_offset(task->reduced_rank, task->dims, task->strides, i);
            const double x = sbit__real_at(task->wide, task->x, at) - mean;
            sbit__real_set(task->wide, task->y, at, x / deviation);
        }
    }
}

static sbit_status sbit__mvn_run_any(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__mvn_task task;
    bool reduced[SBIT_MAX_RANK];
    int64_t strides[SBIT_MAX_RANK];
    int64_t sets = 1;
    SBIT__TRY(sbit__mvn_axes(call, x->rank, reduced, error));
    memset(&task, 0, sizeof task);
    task.wide = x->dtype == SBIT_F64;
    task.x = x->data;
    task.y = call->out[0]->data;
    task.count = 1;
    sbit__tensor_strides(x, strides);
    for (int32_t i = 0; i < x->rank; i++) {
        if (reduced[i]) {
            task.dims[task.reduced_rank] = x->dims[i];
            task.strides[task.reduced_rank++] = strides[i];
            task.count *= x->dims[i];
        } else {
            task.kept_dims[task.kept_rank] = x->dims[i];
            task.kept_strides[task.kept_rank++] = strides[i];
            sets *= x->dims[i];
        }
    }
    if (task.count > 0) {
        sbit__parallel_range(call->ctx, sets, 1, sbit__mvn_sets, &task);
    }
    return SBIT_OK;
}

static sbit_status sbit__mvn_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__mvn_run_any, sbit__mvn_run_any, error);
}

/* ---- channels */

/* Channels of a group are normalized together: they live and die together. */
static sbit_status sbit__groupnorm_label(const sbit_channel_call *call, sbit_error *error)
{
    const int64_t groups = sbit_node_int(call->op->node, "num_groups", 0);
    const int64_t channels = call->op->in_type[0]->dims[1].value;
    const bool per_group = call->op->row->since_version < 21;
    const int32_t *x = NULL;
    SBIT__TRY(call->labels(call, 0, 1, 1, SBIT_ROLE_PARAM, &x, error));
    for (int64_t i = 0; i < channels; i++) {
        const int64_t first = i - i % (channels / groups);
        call->join(call, x[i], x[first]);
    }
    for (int32_t input = 1; input < 3; input++) {
        const int32_t *param = NULL;
        SBIT__TRY(call->labels(call, input, 0, 1, input == 1 ? SBIT_ROLE_SCALE : SBIT_ROLE_BIAS,
                               &param, error));
        for (int64_t i = 0; i < channels; i++) {
            call->join(call, x[i], param[per_group ? i / (channels / groups) : i]);
        }
    }
    return call->produce(call, 0, 1, x, error);
}

/* The last axis goes through, with what it is scaled and shifted by. */
static sbit_status sbit__norm_label_last(const sbit_channel_call *call, int32_t axis,
                                         sbit_error *error)
{
    const int64_t channels = call->op->in_type[0]->dims[axis].value;
    const int32_t *x = NULL;
    SBIT__TRY(call->labels(call, 0, axis, 1, SBIT_ROLE_PARAM, &x, error));
    for (int32_t input = 1; input < call->op->input_count; input++) {
        const int32_t *param = NULL;
        if (call->op->in_type[input] == NULL) {
            continue;
        }
        SBIT__TRY(call->labels(call, input, 0, 1, input == 1 ? SBIT_ROLE_SCALE : SBIT_ROLE_BIAS,
                               &param, error));
        for (int64_t i = 0; i < channels; i++) {
            call->join(call, x[i], param[i]);
        }
    }
    return call->produce(call, 0, axis, x, error);
}

/* Zeros add nothing to a mean of squares: the cut corrects scale and epsilon (sparse/follow.c). Of a
 * mean they are a part. */
static bool sbit__norm_can_lose(const sbit_channel_call *call, int64_t axis)
{
    const sbit_op_call *op = call->op;
    const bool layer = sbit__streq(op->row->op_type, "LayerNormalization");
    if (axis != op->in_type[0]->rank - 1 || (layer && !call->inexact) || op->input_count < 2) {
        return false;
    }
    for (int32_t i = 1; i < op->output_count; i++) {
        if (op->node->outputs[i].idx != 0) {
            return false;
        }
    }
    for (int32_t i = 1; i < op->input_count; i++) {
        if (op->in_type[i] != NULL && (!call->is_constant(call, i) || op->in_type[i]->rank != 1)) {
            return false;
        }
    }
    return op->in_type[1] != NULL;
}

/* The axes that are normalized, or whose channels look at their neighbours (LRN). */
static sbit_status sbit__norm_label(const sbit_channel_call *call, sbit_error *error)
{
    const int32_t rank = call->op->in_type[0]->rank;
    const char *op = call->op->row->op_type;
    uint32_t mixed = 0;
    int64_t axis = sbit_node_int(call->op->node, "axis", -1);
    axis += axis < 0 ? rank : 0;
    if (sbit__streq(op, "LRN")) {
        mixed = 2u;
    } else if (sbit__streq(op, "LpNormalization")) {
        mixed = 1u << (uint32_t)axis;
    } else if (sbit__streq(op, "MeanVarianceNormalization")) {
        return call->stop(call, "normalizes over several axes", error);
    } else if (sbit__norm_can_lose(call, axis)) {
        return sbit__norm_label_last(call, (int32_t)axis, error);
    } else {
        mixed = 0xffffffffu << (uint32_t)axis;
    }
    return call->pass(call, mixed, "normalizes over the channels", error);
}

/* ---- rows */

static const sbit_op_quant sbit__norm_quant = {
    SBIT_QUANT_KEEP_FLOAT, 1, -1, -1, -1, 0, 0, NULL, 0, 0};
static const sbit_op_quant sbit__norm_quant_layer = {
    SBIT_QUANT_KEEP_FLOAT, 1, -1, -1, -1, 0, 0, NULL, 0, 0};
static const sbit_op_channel sbit__norm_channel_batch = {
    SBIT_CHANNEL_PER_CHANNEL, 1, 0x1e, 0x02, 0x04, NULL};
static const sbit_op_channel sbit__norm_channel_instance = {
    SBIT_CHANNEL_PER_CHANNEL, 1, 0x06, 0x02, 0x04, NULL};
static const sbit_op_channel sbit__norm_channel_group = {SBIT_CHANNEL_OWN,     1, 0, 0, 0,
                                                         sbit__groupnorm_label};
static const sbit_op_channel sbit__norm_channel_axes = {SBIT_CHANNEL_OWN, 1, 0, 0, 0,
                                                        sbit__norm_label};

#define SBIT__NORM_WITH(name, version, types, infer, prepare, run, gradient, quant, channel)       \
    {                                                                                              \
        "", name, version, types, 0, 0, infer, prepare, run, gradient, NULL, quant, channel, NULL  \
    }
#define SBIT__NORM_ROW(name, version, types, infer, run, gradient, quant, channel)                 \
    SBIT__NORM_WITH(name, version, types, infer, sbit__op_prepare_f32, run, gradient, quant,       \
                    channel)
#define SBIT__BATCHNORM_ROW(version, types)                                                        \
    SBIT__NORM_ROW("BatchNormalization", version, types, sbit__batchnorm_infer,                    \
                   sbit__batchnorm_run, sbit__grad_batch_norm, NULL, &sbit__norm_channel_batch)
#define SBIT__INSTANCENORM_ROW(version, types)                                                     \
    SBIT__NORM_ROW("InstanceNormalization", version, types, sbit__instancenorm_infer,              \
                   sbit__groupnorm_run, sbit__grad_group_norm, &sbit__norm_quant,                  \
                   &sbit__norm_channel_instance)

static const sbit_op_row sbit__norm_rows[] = {
    SBIT__BATCHNORM_ROW(1, SBIT__T_FLOATS1),
    SBIT__BATCHNORM_ROW(6, SBIT__T_FLOATS1),
    SBIT__BATCHNORM_ROW(7, SBIT__T_FLOATS1),
    SBIT__BATCHNORM_ROW(9, SBIT__T_FLOATS1),
    SBIT__BATCHNORM_ROW(14, SBIT_T_FLOATS),
    SBIT__BATCHNORM_ROW(15, SBIT_T_FLOATS),
    /* ONNX Runtime writes these two into files of any opset */
    SBIT__NORM_WITH("LayerNormalization", 1, SBIT_T_FLOATS, sbit__layernorm_infer,
                    sbit__layernorm_prepare, sbit__layernorm_run, sbit__grad_layer_norm,
                    &sbit__norm_quant_layer, &sbit__norm_channel_axes),
    SBIT__NORM_WITH("SimplifiedLayerNormalization", 1, SBIT_T_FLOATS, sbit__rmsnorm_infer,
                    sbit__layernorm_prepare, sbit__rmsnorm_run, sbit__grad_layer_norm,
                    &sbit__norm_quant, &sbit__norm_channel_axes),
    SBIT__NORM_WITH("LayerNormalization", 17, SBIT_T_FLOATS, sbit__layernorm_infer,
                    sbit__layernorm_prepare, sbit__layernorm_run, sbit__grad_layer_norm,
                    &sbit__norm_quant_layer, &sbit__norm_channel_axes),
    SBIT__NORM_WITH("RMSNormalization", 23, SBIT_T_FLOATS, sbit__rmsnorm_infer,
                    sbit__layernorm_prepare, sbit__rmsnorm_run, sbit__grad_layer_norm,
                    &sbit__norm_quant, &sbit__norm_channel_axes),
    SBIT__INSTANCENORM_ROW(1, SBIT__T_FLOATS1),
    SBIT__INSTANCENORM_ROW(6, SBIT__T_FLOATS1),
    SBIT__INSTANCENORM_ROW(22, SBIT_T_FLOATS),
    SBIT__NORM_ROW("GroupNormalization", 18, SBIT_T_FLOATS, sbit__groupnorm_infer,
                   sbit__groupnorm_run, sbit__grad_group_norm, &sbit__norm_quant,
                   &sbit__norm_channel_group),
    SBIT__NORM_ROW("GroupNormalization", 21, SBIT_T_FLOATS, sbit__groupnorm_infer,
                   sbit__groupnorm_run, sbit__grad_group_norm, &sbit__norm_quant,
                   &sbit__norm_channel_group),
    SBIT__NORM_ROW("LpNormalization", 1, SBIT__T_FLOATS1, sbit__lpnorm_infer, sbit__lpnorm_run,
                   sbit__grad_lp_normalization, &sbit__norm_quant, &sbit__norm_channel_axes),
    SBIT__NORM_ROW("LpNormalization", 22, SBIT_T_FLOATS, sbit__lpnorm_infer, sbit__lpnorm_run,
                   sbit__grad_lp_normalization, &sbit__norm_quant, &sbit__norm_channel_axes),
    SBIT__NORM_ROW("LRN", 1, SBIT__T_FLOATS1, sbit__lrn_infer, sbit__lrn_run, sbit__grad_lrn,
                   &sbit__norm_quant, &sbit__norm_channel_axes),
    SBIT__NORM_ROW("LRN", 13, SBIT_T_FLOATS, sbit__lrn_infer, sbit__lrn_run, sbit__grad_lrn,
                   &sbit__norm_quant, &sbit__norm_channel_axes),
    SBIT__NORM_ROW("MeanVarianceNormalization", 9, SBIT__T_FLOATS1, sbit__mvn_infer, sbit__mvn_run,
                   sbit__grad_mean_variance, &sbit__norm_quant, NULL),
    SBIT__NORM_ROW("MeanVarianceNormalization", 13, SBIT_T_FLOATS, sbit__mvn_infer, sbit__mvn_run,
                   sbit__grad_mean_variance, &sbit__norm_quant, NULL),
    {SBIT__GRAD_DOMAIN, "LrnGrad", 1, SBIT__T_GRAD, 0, 0, sbit__lrn_grad_infer, NULL,
     sbit__lrn_grad_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__NORM_ROW
#undef SBIT__NORM_WITH
#undef SBIT__BATCHNORM_ROW
#undef SBIT__INSTANCENORM_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_norm(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__norm_rows);
    return sbit__norm_rows;
}
