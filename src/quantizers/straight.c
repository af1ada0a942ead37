/* straight.c: fake quantization and its straight-through gradients (algorithms: section 1.4).
 * >>quantizer-straight-through
 *
 * Called by: the rows, whose parameters are the scale and zero point. With r = x / s and
 * v = round(r) + zp before it is clamped to qmin..qmax, and upstream gradient g:
 *     dx   g inside, else 0
 *     ds   sum of g * (round(r) - r) inside, g * (qmin - zp) below, g * (qmax - zp) above
 *     dzp  sum of -s * g outside
 */
#include "../kernels/last_private.h"
#include "../kernels/rows_private.h"
#include "quantizers_private.h"

/* A run of elements that share a scale, in pieces: what is added up does not depend on threads. */
enum {
    SBIT__STRAIGHT_PIECES = 64,                 /* at most */
    SBIT__STRAIGHT_PIECE = 8 * SBIT__NORM_BLOCK, /* elements, at least */
    SBIT__STRAIGHT_SHORT = 8                    /* elements; fewer are not worth a vector */
};

typedef struct sbit__straight {
    sbit_ctx *ctx;
    const float *x, *dy;
    float *y; /* dx */
    float scale;
    int32_t zero_point, qmin, qmax;
    int64_t count, piece;
    double sums[SBIT__STRAIGHT_PIECES][2];
} sbit__straight;

static void sbit__straight_begin(sbit__straight *task, const sbit_quantizer_call *call)
{
    task->ctx = call->ctx;
    task->qmin = call->grid->qmin;
    task->qmax = call->grid->qmax;
}

/* Of elements at..at+count-1; how many pieces there are. */
static int64_t sbit__straight_run(sbit__straight *task, const sbit_runs *run, const float *x,
                                  const float *dy, const float *scale, const int32_t *zero_point,
                                  float *y)
{
    const int64_t blocks = sbit__div_up(run->count, SBIT__NORM_BLOCK);
    task->x = x + run->at;
    task->dy = dy != NULL ? dy + run->at : NULL;
    task->y = y + run->at;
    task->scale = scale[run->part];
    task->zero_point = zero_point[run->part];
    task->count = run->count;
    task->piece = sbit__larger(sbit__div_up(blocks, SBIT__STRAIGHT_PIECES) * SBIT__NORM_BLOCK,
                               SBIT__STRAIGHT_PIECE);
    return sbit__div_up(run->count, task->piece);
}

static void sbit__straight_forward_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__straight *task = (const sbit__straight *)user;
    const int64_t from = begin * task->piece, to = sbit__smaller(end * task->piece, task->count);
    (void)worker;
    sbit__kernels(task->ctx)->f32_fake_quantize(to - from, task->x + from, task->scale,
                                                task->zero_point, task->qmin, task->qmax,
                                                task->y + from);
}

static void sbit__straight_backward_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    sbit__straight *task = (sbit__straight *)user;
    const sbit__last_kernels *kernels = sbit__last_of(task->ctx);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * task->piece;
        kernels->slope_grid(sbit__smaller(task->piece, task->count - at), task->dy + at,
                            task->x + at, task->scale, (float)task->zero_point, (float)task->qmin,
                            (float)task->qmax, task->y + at, task->sums[i]);
    }
}

SBIT__FN void sbit__straight_forward(const sbit_quantizer_call *call, const sbit_observation *x,
                                     const float *scale, const int32_t *zero_point, float *y)
{
    const sbit_kernels *kernels = sbit__kernels(call->ctx);
    sbit_runs runs = sbit_runs_of(&x->parts);
    sbit__straight task;
    sbit__straight_begin(&task, call);
    while (sbit_runs_next(&runs)) {
        if (runs.count < SBIT__STRAIGHT_SHORT) {
            kernels->f32_fake_quantize(runs.count, x->data + runs.at, scale[runs.part],
                                       zero_point[runs.part], task.qmin, task.qmax, y + runs.at);
            continue;
        }
        const int64_t n = sbit__straight_run(&task, &runs, x->data, NULL, scale, zero_point, y);
        sbit__parallel_range(call->ctx, n, 1, sbit__straight_forward_range, &task);
    }
}

SBIT__FN void sbit__straight_backward(const sbit_quantizer_call *call, const sbit_observation *x,
                                      const float *scale, const int32_t *zero_point,
                                      const float *dy, float *dx, double *dscale, double *dzero)
{
    sbit_runs runs = sbit_runs_of(&x->parts);
    sbit__straight task;
    sbit__straight_begin(&task, call);
    while (sbit_runs_next(&runs)) {
        int64_t n = 1;
        if (runs.count < SBIT__STRAIGHT_SHORT) { /* scales along the last axis */
            task.scale = scale[runs.part];
            sbit__slope_grid__ref(runs.count, dy + runs.at, x->data + runs.at, task.scale,
                                  (float)zero_point[runs.part], (float)task.qmin, (float)task.qmax,
                                  dx + runs.at, task.sums[0]);
        } else {
            n = sbit__straight_run(&task, &runs, x->data, dy, scale, zero_point, dx);
            sbit__parallel_range(call->ctx, n, 1, sbit__straight_backward_range, &task);
        }
        for (int64_t i = 0; i < n; i++) {
            if (dscale != NULL) {
                dscale[runs.part] += task.sums[i][0];
            }
            if (dzero != NULL) {
                dzero[runs.part] -= task.sums[i][1] * (double)task.scale;
            }
        }
    }
}

/* >>rows whose grid is the call's: nothing is learned. */
SBIT__FN sbit_status sbit__straight_row_forward(void *state, const sbit_quantizer_call *call,
                                                const sbit_observation *x, float *y,
                                                sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__straight_forward(call, x, call->scale, call->zero_point, y);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__straight_row_backward(void *state, const sbit_quantizer_call *call,
                                                 const sbit_observation *x, const float *dy,
                                                 float *dx, sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__straight_backward(call, x, call->scale, call->zero_point, dy, dx, NULL, NULL);
    return SBIT_OK;
}
