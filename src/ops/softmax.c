/* softmax.c: Softmax, LogSoftmax, Hardmax. >>softmax
 *
 * Called by: infer, exec. Calls: kernels (rows of floats).
 * From version 13 on the sums run along `axis` (default -1) alone. Before, the input counts as a
 * matrix whose columns are all dims from `axis` (default 1) on, and the sums run along its rows.
 * Both are lines of `length` elements at distance `inner`; lines at distance 1 are kernel calls,
 * others are worked on in strips of neighbouring lines, and so are very short ones, once turned.
 *   Softmax     exp(x - max) / sum(exp(x - max))
 *   LogSoftmax  (x - max) - log(sum(exp(x - max)))
 *   Hardmax     1 for the first largest element, else 0
 */
#include "../kernels/last_private.h"
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* logf, exp, log */

#define SBIT__SOFTMAX_STRIP 128 /* lines side by side; floats at a time within a line */
#define SBIT__SOFTMAX_SHORT 4   /* elements of a line, at most, that is turned, */
#define SBIT__SOFTMAX_TURNED 16 /* with so many others */

typedef enum sbit__softmax_kind {
    SBIT__SOFTMAX_PLAIN,
    SBIT__SOFTMAX_LOG,
    SBIT__SOFTMAX_HARD
} sbit__softmax_kind;

static sbit_status sbit__softmax_axis(const sbit_op_call *call, int32_t rank, int32_t *axis,
                                      sbit_error *error)
{
    const bool flattens = call->row->since_version < 13;
    const int64_t given = sbit_node_int(call->node, "axis", flattens ? 1 : -1);
    *axis = 0;
    if (flattens && given == rank) { /* a matrix of one column, as for a vector with axis 1 */
        *axis = rank;
        return SBIT_OK;
    }
    if (rank == 0 && (given == 0 || given == -1)) {
        return SBIT_OK;
    }
    return sbit__op_axis(call, given, rank, axis, error);
}

static sbit_status sbit__softmax_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1, axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    if (rank >= 0) {
        SBIT__TRY(sbit__softmax_axis(call, rank, &axis, error));
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

typedef struct sbit__softmax_task {
    sbit__softmax_kind kind;
    const sbit_kernels *kernels;
    const sbit__last_kernels *turns;
    const void *x; /* float, or double */
    void *y;
    int64_t outer, length, inner;
    int64_t strips; /* per outer index */
} sbit__softmax_task;

static void sbit__softmax_log_line(const sbit_kernels *kernels, int64_t n, const float *x, float *y)
{
    float part[SBIT__SOFTMAX_STRIP];
    const float max = kernels->f32_max(n, x);
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i += SBIT__SOFTMAX_STRIP) {
        const int64_t count = n - i < SBIT__SOFTMAX_STRIP ? n - i : SBIT__SOFTMAX_STRIP;
        kernels->f32_binary(SBIT__BINARY_SUB, count, x + i, 1, &max, 0, y + i);
        kernels->f32_unary(SBIT__UNARY_EXP, count, y + i, part);
        sum += kernels->f32_sum(count, part);
    }
    const float shift = logf(sum);
    kernels->f32_binary(SBIT__BINARY_SUB, n, y, 1, &shift, 0, y);
}

static void sbit__softmax_hard_line(int64_t n, int64_t step, const float *x, float *y)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        best = x[i * step] > x[best * step] ||
                       (x[i * step] != x[i * step] && x[best * step] == x[best * step])
                   ? i
                   : best;
        y[i * step] = 0.0f;
    }
    y[best * step] = 1.0f;
}

/* `width` lines side by side: rows of the strip are combined into one maximum and sum per line. */
static void sbit__softmax_strip(const sbit__softmax_task *task, const float *x, float *y,
                                int64_t width)
{
    const sbit_kernels *kernels = task->kernels;
    const int64_t step = task->inner;
    const bool log = task->kind == SBIT__SOFTMAX_LOG;
    float max[SBIT__SOFTMAX_STRIP], sum[SBIT__SOFTMAX_STRIP], part[SBIT__SOFTMAX_STRIP];
    memcpy(max, x, (size_t)width * sizeof max[0]);
    for (int64_t i = 1; i < task->length; i++) {
        kernels->f32_binary(SBIT__BINARY_MAX, width, max, 1, x + i * step, 1, max);
    }
    for (int64_t i = 0; i < task->length; i++) {
        float *exps = log ? part : y + i * step;
        kernels->f32_binary(SBIT__BINARY_SUB, width, x + i * step, 1, max, 1, y + i * step);
        kernels->f32_unary(SBIT__UNARY_EXP, width, y + i * step, exps);
        if (i == 0) {
            memcpy(sum, exps, (size_t)width * sizeof sum[0]);
        } else {
            kernels->f32_binary(SBIT__BINARY_ADD, width, sum, 1, exps, 1, sum);
        }
    }
    if (log) {
        kernels->f32_unary(SBIT__UNARY_LOG, width, sum, sum);
    }
    for (int64_t i = 0; i < task->length; i++) {
        kernels->f32_binary(log ? SBIT__BINARY_SUB : SBIT__BINARY_DIV, width, y + i * step, 1, sum,
                            1, y + i * step);
    }
}

/* Lines begin..end-1, turned so that they lie side by side. */
static void sbit__softmax_turned(const sbit__softmax_task *task, int64_t begin, int64_t end)
{
    const int64_t n = task->length;
    float turned[SBIT__SOFTMAX_SHORT * SBIT__SOFTMAX_TURNED];
    sbit__softmax_task side = *task;
    for (int64_t line = begin; line < end; line += side.inner) {
        side.inner = end - line < SBIT__SOFTMAX_TURNED ? end - line : SBIT__SOFTMAX_TURNED;
        task->turns->last_exchange(side.inner, n, (const float *)task->x + line * n, n, turned,
                                   side.inner);
        sbit__softmax_strip(&side, turned, turned, side.inner);
        task->turns->last_exchange(n, side.inner, turned, side.inner, (float *)task->y + line * n, n);
    }
}

static void sbit__softmax_lines(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__softmax_task *task = (const sbit__softmax_task *)user;
    const int64_t n = task->length;
    (void)worker;
    if (n <= SBIT__SOFTMAX_SHORT && task->kind != SBIT__SOFTMAX_HARD) {
        sbit__softmax_turned(task, begin, end);
        return;
    }
    for (int64_t line = begin; line < end; line++) {
        const float *x = (const float *)task->x + line * n;
        float *y = (float *)task->y + line * n;
        if (task->kind == SBIT__SOFTMAX_PLAIN) {
            task->kernels->f32_softmax(n, x, y);
        } else if (task->kind == SBIT__SOFTMAX_LOG) {
            sbit__softmax_log_line(task->kernels, n, x, y);
        } else {
            sbit__softmax_hard_line(n, 1, x, y);
        }
    }
}

static void sbit__softmax_strips(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__softmax_task *task = (const sbit__softmax_task *)user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % task->strips * SBIT__SOFTMAX_STRIP;
        const int64_t rest = task->inner - first;
        const int64_t width = rest < SBIT__SOFTMAX_STRIP ? rest : SBIT__SOFTMAX_STRIP;
        const int64_t at = i / task->strips * task->length * task->inner + first;
        const float *x = (const float *)task->x + at;
        float *y = (float *)task->y + at;
        if (task->kind != SBIT__SOFTMAX_HARD) {
            sbit__softmax_strip(task, x, y, width);
            continue;
        }
        for (int64_t k = 0; k < width; k++) {
            sbit__softmax_hard_line(task->length, task->inner, x + k, y + k);
        }
    }
}

/* One line of n elements in double. */
static void sbit__softmax_line64(sbit__softmax_kind kind, int64_t n, int64_t step, const double *x,
                                 double *y)
{
    int64_t best = 0;
    double sum = 0.0;
    for (int64_t i = 1; i < n; i++) {
        best = x[i * step] > x[best * step] ? i : best;
    }
    const double max = x[best * step];
    for (int64_t i = 0; i < n; i++) {
        const double shifted = x[i * step] - max;
        y[i * step] = kind == SBIT__SOFTMAX_PLAIN  ? exp(shifted)
                      : kind == SBIT__SOFTMAX_HARD ? (i == best ? 1.0 : 0.0)
                                                   : shifted;
        sum += kind == SBIT__SOFTMAX_LOG ? exp(shifted) : y[i * step];
    }
    const double shift = log(sum);
    for (int64_t i = 0; i < n && kind != SBIT__SOFTMAX_HARD; i++) {
        y[i * step] = kind == SBIT__SOFTMAX_LOG ? y[i * step] - shift : y[i * step] / sum;
    }
}

static void sbit__softmax_lines64(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__softmax_task *task = (const sbit__softmax_task *)user;
    (void)worker;
    for (int64_t line = begin; line < end; line++) {
        const int64_t at = line / task->inner * task->length * task->inner + line % task->inner;
        sbit__softmax_line64(task->kind, task->length, task->inner, (const double *)task->x + at,
                             (double *)task->y + at);
    }
}

/* What prepare found out. */
typedef struct sbit__softmax_plan {
    sbit__softmax_kind kind;
    int64_t outer, length, inner;
} sbit__softmax_plan;

static sbit_status sbit__softmax_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    const char *op_type = call->row->op_type;
    sbit__softmax_plan plan;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_prepare_f32(call, error));
    if (!sbit__type_static(x)) {
        return SBIT_OK;
    }
    memset(&plan, 0, sizeof plan);
    SBIT__TRY(sbit__softmax_axis(call, x->rank, &axis, error));
    const bool flattens = call->row->since_version < 13 || x->rank == 0;
    plan.kind = sbit__streq(op_type, "Softmax")      ? SBIT__SOFTMAX_PLAIN
                : sbit__streq(op_type, "LogSoftmax") ? SBIT__SOFTMAX_LOG
                                                     : SBIT__SOFTMAX_HARD;
    plan.outer = sbit__type_count(x, 0, axis);
    plan.length = sbit__type_count(x, axis, flattens ? x->rank : axis + 1);
    plan.inner = flattens ? 1 : sbit__type_count(x, axis + 1, x->rank);
    return sbit__op_keep(call, &plan, sizeof plan, error);
}

static sbit_status sbit__softmax_run_any(const sbit_op_call *call, sbit_error *error)
{
    sbit__softmax_task task;
    sbit__softmax_plan plan;
    const sbit_tensor *x = call->in[0];
    SBIT__TRY(sbit__op_kept(call, &plan, sizeof plan, error));
    memset(&task, 0, sizeof task);
    task.kind = plan.kind;
    task.kernels = call->kernels;
    task.turns = sbit__last_of(call->ctx);
    task.x = x->data;
    task.y = call->out[0]->data;
    task.outer = plan.outer;
    task.length = plan.length;
    task.inner = plan.inner;
    if (sbit_tensor_count(x) == 0) {
        return SBIT_OK;
    }
    if (x->dtype == SBIT_F64) {
        sbit__parallel_range(call->ctx, task.outer * task.inner, 1 + 4096 / task.length,
                             sbit__softmax_lines64, &task);
        return SBIT_OK;
    }
    if (task.inner == 1) {
        sbit__parallel_range(call->ctx, task.outer, 1 + 4096 / task.length, sbit__softmax_lines,
                             &task);
        return SBIT_OK;
    }
    task.strips = (task.inner + SBIT__SOFTMAX_STRIP - 1) / SBIT__SOFTMAX_STRIP;
    sbit__parallel_range(call->ctx, task.outer * task.strips,
                         1 + 4096 / (task.length * SBIT__SOFTMAX_STRIP), sbit__softmax_strips, &task);
    return SBIT_OK;
}

static sbit_status sbit__softmax_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__softmax_run_any, sbit__softmax_run_any, error);
}

/* ---- channels */

static sbit_status sbit__softmax_label(const sbit_channel_call *call, sbit_error *error)
{
    int32_t axis = 0;
    SBIT__TRY(sbit__softmax_axis(call->op, call->op->in_type[0]->rank, &axis, error));
    const uint32_t mixed = (call->op->row->since_version < 13 ? 0xffffffffu : 1u) << (uint32_t)axis;
    return call->pass(call, mixed, "normalizes over the channels", error);
}

/* ---- rows */

static const sbit_op_quant sbit__softmax_quant = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT | SBIT_QUANT_FIXED_RANGE,
    1,
    -1,
    -1,
    -1,
    0,
    0,
    NULL,
    0,
    1};
static const sbit_op_channel sbit__softmax_channel = {SBIT_CHANNEL_OWN,   1, 0, 0, 0,
                                                      sbit__softmax_label};
static const sbit_op_quant sbit__logsoftmax_quant = {
    SBIT_QUANT_KEEP_FLOAT, 1, -1, -1, -1, 0, 0, NULL, 0, 0};

#define SBIT__SOFTMAX_ROW(name, version, types, gradient, quant)                                   \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__softmax_infer, sbit__softmax_prepare,                \
            sbit__softmax_run, gradient, NULL, quant, &sbit__softmax_channel, NULL                 \
    }

static const sbit_op_row sbit__softmax_rows[] = {
    SBIT__SOFTMAX_ROW("Softmax", 1, SBIT__T_FLOATS1, sbit__grad_softmax, &sbit__softmax_quant),
    SBIT__SOFTMAX_ROW("Softmax", 11, SBIT__T_FLOATS1, sbit__grad_softmax, &sbit__softmax_quant),
    SBIT__SOFTMAX_ROW("Softmax", 13, SBIT_T_FLOATS, sbit__grad_softmax, &sbit__softmax_quant),
    SBIT__SOFTMAX_ROW("LogSoftmax", 1, SBIT__T_FLOATS1, sbit__grad_softmax,
                      &sbit__logsoftmax_quant),
    SBIT__SOFTMAX_ROW("LogSoftmax", 11, SBIT__T_FLOATS1, sbit__grad_softmax,
                      &sbit__logsoftmax_quant),
    SBIT__SOFTMAX_ROW("LogSoftmax", 13, SBIT_T_FLOATS, sbit__grad_softmax, &sbit__logsoftmax_quant),
    SBIT__SOFTMAX_ROW("Hardmax", 1, SBIT__T_FLOATS1, NULL, NULL),
    SBIT__SOFTMAX_ROW("Hardmax", 11, SBIT__T_FLOATS1, NULL, NULL),
    SBIT__SOFTMAX_ROW("Hardmax", 13, SBIT_T_FLOATS, NULL, NULL),
};

#undef SBIT__SOFTMAX_STRIP
#undef SBIT__SOFTMAX_SHORT
#undef SBIT__SOFTMAX_TURNED
#undef SBIT__SOFTMAX_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_softmax(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__softmax_rows);
    return sbit__softmax_rows;
}
