/* grad_pool.c: gradients of MaxPool, AveragePool and GlobalMaxPool. >>grad-pool
 *
 * Called by: infer, exec; the nodes are added by ops/gradients.c.
 * PoolGrad(dy, x) {of, and the pool's attributes}. A window's gradient goes to its largest element
 * (the first of equals, as MaxPool's Indices say), in equal parts to all that took part, or whole to
 * all (LpPool). Planes are independent; each is written by one thread. With the attribute
 * channels_last (float32, see exec/lower_layout.c) blocks of an image's channels are.
 */
#include "../kernels/rows_private.h"
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#if !SPARSEBIT_NO_OPS_TRAINING

typedef struct sbit__pool_grad {
    bool max, sum, count_pad, last;
    sbit__pool_shape s;
    const sbit_kernels *kernels;
    const void *dy, *x;
    void *dx;
} sbit__pool_grad;

enum {
    SBIT__POOL_GRAD_CHANNELS = 64 /* of a unit, where they come last */
};

static sbit_status sbit__pool_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 2, 2, 1, error);
}

static sbit_status sbit__pool_grad_read(const sbit_op_call *call, sbit__pool_grad *task,
                                        sbit_error *error)
{
    const char *of = sbit_node_string(call->node, "of", "");
    const bool global = sbit__streq(of, "GlobalMaxPool");
    memset(task, 0, sizeof *task);
    task->max = global || sbit__streq(of, "MaxPool");
    task->sum = sbit__streq(of, "LpPool");
    task->count_pad = sbit_node_int(call->node, "count_include_pad", 0) != 0;
    sbit_type x = *call->in_type[1];
    task->last = sbit_node_int(call->node, "channels_last", 0) != 0;
    if (task->last) {
        const sbit_dim channels = x.dims[x.rank - 1];
        memmove(x.dims + 2, x.dims + 1, (size_t)(x.rank - 2) * sizeof x.dims[0]);
        x.dims[1] = channels;
    }
    SBIT__TRY(sbit__pool_shape_of(call, &x, global, &task->s, error));
    if (sbit__type_count(call->in_type[0], 0, call->in_type[0]->rank) !=
        task->s.batch * task->s.channels * task->s.out_size) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the gradient does not fit the input");
    }
    return SBIT_OK;
}

#define SBIT__POOL_GRAD(type, name)                                                                \
    static void name##_window(const sbit__pool_grad *task, const type *x, type dy,                 \
                              const sbit__pool_taps *z, const sbit__pool_taps *y,                  \
                              const sbit__pool_taps *w, type *dx)                                  \
    {                                                                                              \
        const int64_t count =                                                                      \
            task->count_pad ? z->padded * y->padded * w->padded                                    \
                            : (z->end - z->begin) * (y->end - y->begin) * (w->end - w->begin);     \
        const type part = task->sum ? dy : count > 0 ? dy / (type)count : (type)0;                 \
        int64_t best = -1;                                                                         \
        for (int64_t kz = z->begin; kz < z->end; kz++) {                                           \
            for (int64_t ky = y->begin; ky < y->end; ky++) {                                       \
                const int64_t row = ((z->start + kz * task->s.dilation[0]) * task->s.in[1] +       \
                                     y->start + ky * task->s.dilation[1]) *                        \
                                        task->s.in[2] +                                            \
                                    w->start;                                                      \
                for (int64_t kx = w->begin; kx < w->end; kx++) {                                   \
                    const int64_t at = row + kx * task->s.dilation[2];                             \
                    if (!task->max) {                                                              \
                        dx[at] += part;                                                            \
                    } else if (best < 0 || x[at] > x[best] || x[at] != x[at]) {                    \
                        best = at;                                                                 \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        if (best >= 0) {                                                                           \
            dx[best] += dy;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void name(void *user, int64_t begin, int64_t end, int32_t worker)                       \
    {                                                                                              \
        const sbit__pool_grad *task = (const sbit__pool_grad *)user;                               \
        (void)worker;                                                                              \
        for (int64_t plane = begin; plane < end; plane++) {                                        \
            const type *dy = (const type *)task->dy + plane * task->s.out_size;                    \
            const type *x = (const type *)task->x + plane * task->s.in_size;                       \
            type *dx = (type *)task->dx + plane * task->s.in_size;                                 \
            memset(dx, 0, (size_t)task->s.in_size * sizeof *dx);                                   \
            for (int64_t o = 0; o < task->s.out_size; o++) {                                       \
                const sbit__pool_taps w = sbit__pool_taps_of(&task->s, 2, o % task->s.out[2]);     \
                const sbit__pool_taps y =                                                          \
                    sbit__pool_taps_of(&task->s, 1, o / task->s.out[2] % task->s.out[1]);          \
                const sbit__pool_taps z =                                                          \
                    sbit__pool_taps_of(&task->s, 0, o / task->s.out[2] / task->s.out[1]);          \
                name##_window(task, x, dy[o], &z, &y, &w, dx);                                     \
            }                                                                                      \
        }                                                                                          \
    }

SBIT__POOL_GRAD(float, sbit__pool_grad_f32)
SBIT__POOL_GRAD(double, sbit__pool_grad_f64)
#undef SBIT__POOL_GRAD

/* A window of n channels that come last. */
static void sbit__pool_grad_pixel(const sbit__pool_grad *task, int64_t n, const float *x,
                                  const float *dy, const sbit__pool_taps taps[3], float *dx)
{
    const sbit__pool_taps *z = &taps[0], *y = &taps[1], *w = &taps[2];
    const int64_t count = task->count_pad
                              ? z->padded * y->padded * w->padded
                              : (z->end - z->begin) * (y->end - y->begin) * (w->end - w->begin);
    float part[SBIT__POOL_GRAD_CHANNELS]; /* of dy; the largest so far */
    int64_t best[SBIT__POOL_GRAD_CHANNELS];
    bool first = true;
    for (int64_t c = 0; c < n; c++) {
        part[c] = task->sum ? dy[c] : count > 0 ? dy[c] / (float)count : 0.0f;
        best[c] = 0;
    }
    for (int64_t kz = z->begin; kz < z->end; kz++) {
        for (int64_t ky = y->begin; ky < y->end; ky++) {
            const int64_t row = ((z->start + kz * task->s.dilation[0]) * task->s.in[1] + y->start +
                                 ky * task->s.dilation[1]) *
                                    task->s.in[2] +
                                w->start;
            for (int64_t kx = w->begin; kx < w->end; kx++) {
                const int64_t at = (row + kx * task->s.dilation[2]) * task->s.channels;
                if (!task->max) {
                    task->kernels->f32_binary(SBIT__BINARY_ADD, n, dx + at, 1, part, 1, dx + at);
                    continue;
                }
                for (int64_t c = 0; c < n; c++) {
                    const float v = x[at + c];
                    const bool more = first || v > part[c] || v != v;
                    part[c] = more ? v : part[c];
                    best[c] = more ? at : best[c];
                }
                first = false;
            }
        }
    }
    for (int64_t c = 0; task->max && !first && c < n; c++) {
        dx[best[c] + c] += dy[c];
    }
}

static void sbit__pool_grad_last(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__pool_grad *task = (const sbit__pool_grad *)user;
    const int64_t all = task->s.channels, blocks = sbit__div_up(all, SBIT__POOL_GRAD_CHANNELS);
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / blocks, c = unit % blocks * SBIT__POOL_GRAD_CHANNELS;
        const int64_t n = sbit__smaller(all - c, SBIT__POOL_GRAD_CHANNELS);
        const float *x = (const float *)task->x + image * task->s.in_size * all + c;
        const float *dy = (const float *)task->dy + image * task->s.out_size * all + c;
        float *dx = (float *)task->dx + image * task->s.in_size * all + c;
        for (int64_t i = 0; i < task->s.in_size; i++) {
            memset(dx + i * all, 0, (size_t)n * sizeof *dx);
        }
        for (int64_t o = 0; o < task->s.out_size; o++) {
            const sbit__pool_taps taps[3] = {
                sbit__pool_taps_of(&task->s, 0, o / task->s.out[2] / task->s.out[1]),
                sbit__pool_taps_of(&task->s, 1, o / task->s.out[2] % task->s.out[1]),
                sbit__pool_taps_of(&task->s, 2, o % task->s.out[2])};
            sbit__pool_grad_pixel(task, n, x, dy + o * all, taps, dx);
        }
    }
}

static sbit_status sbit__pool_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__pool_grad task;
    SBIT__TRY(sbit__pool_grad_read(call, &task, error));
    task.dy = call->in[0]->data;
    task.x = call->in[1]->data;
    task.dx = call->out[0]->data;
    task.kernels = call->kernels;
    const int64_t units = task.last ? sbit__div_up(task.s.channels, SBIT__POOL_GRAD_CHANNELS)
                                    : task.s.channels;
    sbit__parallel_range(call->ctx, task.s.in_size > 0 ? task.s.batch * units : 0, 1,
                         task.last                         ? sbit__pool_grad_last
                         : call->in[0]->dtype == SBIT_F64 ? sbit__pool_grad_f64
                                                          : sbit__pool_grad_f32,
                         &task);
    return SBIT_OK;
}

static const sbit_op_row sbit__grad_pool_rows[] = {
    {SBIT__GRAD_DOMAIN, "PoolGrad", 1, SBIT__T_GRAD, 0, 0, sbit__pool_grad_infer, NULL,
     sbit__pool_grad_run, NULL, NULL, NULL, NULL, NULL},
};

SBIT__FN const sbit_op_row *sbit__op_rows_grad_pool(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__grad_pool_rows);
    return sbit__grad_pool_rows;
}

#endif /* SPARSEBIT_NO_OPS_TRAINING */
