/* last_pool.c: pools with channels last. >>last_pool
 *
 * Called by: ops/last.c. Calls: the kernels with channels last, threads.
 * For each output pixel there is a list of the input pixels in its window; it moves on by a step as
 * long as windows lie inside of the input.
 */
#include "last_private.h"
#include "rows_private.h"

#include <math.h> /* INFINITY */

enum {
    SBIT__LAST_POOL_LIST = 64 /* entries that are summed at once, so that long sums stay exact */
};

SBIT__FN void sbit__last_pool_plan(const sbit_ctx *ctx, sbit__last_pool *pool)
{
    const size_t list = (size_t)(pool->kernel[0] * pool->kernel[1] * pool->kernel[2]);
    const size_t sums = list / SBIT__LAST_POOL_LIST + 1;
    (void)ctx;
    pool->worker_bytes =
        sbit__cache_lines((int64_t)(2 * (list + sums))) +
        (pool->average ? sums * sbit__cache_lines(pool->channels) : 0);
    pool->scratch_bytes = pool->worker_bytes * (size_t)sbit_ctx_threads(ctx);
}

typedef struct sbit__last_pool_job {
    const sbit__last_pool *pool;
    const sbit__last_kernels *kernels;
    const float *x;
    float *y;
    char *scratch;
} sbit__last_pool_job;

/* The pixels of the window of output `at`; *cells: with padding. */
static int64_t sbit__last_pool_list(const sbit__last_pool_job *job, int64_t at, const float **list,
                                    int64_t *cells)
{
    const sbit__last_pool *p = job->pool;
    const int64_t o[3] = {at / p->out[2] / p->out[1] % p->out[0], at / p->out[2] % p->out[1],
                          at % p->out[2]};
    const int64_t n = at / p->out[2] / p->out[1] / p->out[0];
    int64_t count = 0, i[3];
    *cells = 0;
    for (int64_t kd = 0; kd < p->kernel[0]; kd++) {
        i[0] = o[0] * p->stride[0] - p->pad_begin[0] + kd * p->dilation[0];
        for (int64_t kh = 0; kh < p->kernel[1]; kh++) {
            i[1] = o[1] * p->stride[1] - p->pad_begin[1] + kh * p->dilation[1];
            for (int64_t kw = 0; kw < p->kernel[2]; kw++) {
                i[2] = o[2] * p->stride[2] - p->pad_begin[2] + kw * p->dilation[2];
                const bool cell = i[0] < p->in[0] + p->pad_end[0] &&
                                  i[1] < p->in[1] + p->pad_end[1] &&
                                  i[2] < p->in[2] + p->pad_end[2];
                const bool inside = i[0] >= 0 && i[0] < p->in[0] && i[1] >= 0 &&
                                    i[1] < p->in[1] && i[2] >= 0 && i[2] < p->in[2];
                *cells += cell ? 1 : 0;
                if (inside) {
                    list[count++] =
                        job->x + (((n * p->in[0] + i[0]) * p->in[1] + i[1]) * p->in[2] + i[2]) *
                                     p->channels;
                }
            }
        }
    }
    return count;
}

/* Outputs behind `at`, in its row, whose windows are whole as the one of `at` is. */
static int64_t sbit__last_pool_whole(const sbit__last_pool *p, int64_t at)
{
    const int64_t o = at % p->out[2];
    const int64_t end = o * p->stride[2] - p->pad_begin[2] + (p->kernel[2] - 1) * p->dilation[2];
    return sbit__smaller((p->in[2] - 1 - end) / p->stride[2], p->out[2] - 1 - o);
}

/* Sums of parts first, then the sum of these. */
static void sbit__last_pool_sum(const sbit__last_pool_job *job, int64_t count,
                                const float *const *list, const float **parts, float *sums,
                                float scale, float *y)
{
    const int64_t c = job->pool->channels, most = SBIT__LAST_POOL_LIST;
    const int64_t step = (int64_t)(sbit__cache_lines(c) / sizeof(float));
    int64_t n = 0;
    if (count <= most) {
        job->kernels->last_pool(c, count, list, true, scale, y);
        return;
    }
    for (int64_t i = 0; i < count; i += most, n++) {
        parts[n] = sums + n * step;
        job->kernels->last_pool(c, sbit__smaller(most, count - i), list + i, true, 1.0f,
                                sums + n * step);
    }
    job->kernels->last_pool(c, n, parts, true, scale, y);
}

static void sbit__last_pool_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__last_pool_job *job = (const sbit__last_pool_job *)task;
    const sbit__last_pool *p = job->pool;
    const int64_t all = p->kernel[0] * p->kernel[1] * p->kernel[2];
    char *scratch = job->scratch + (size_t)worker * p->worker_bytes;
    const float **list = (const float **)(void *)scratch;
    const float **parts = list + all;
    float *sums = (float *)(void *)(scratch + sbit__cache_lines(
                                                  2 * (all + all / SBIT__LAST_POOL_LIST + 1)));
    int64_t cells = 0, count = 0, whole = 0;
    for (int64_t at = begin; at < end; at++, whole--) {
        if (whole > 0) {
            for (int64_t i = 0; i < count; i++) {
                list[i] += p->stride[2] * p->channels;
            }
        } else {
            count = sbit__last_pool_list(job, at, list, &cells);
            whole = count == all ? 1 + sbit__last_pool_whole(p, at) : 0;
        }
        float *y = job->y + at * p->channels;
        if (count == 0) {
            for (int64_t c = 0; c < p->channels; c++) {
                y[c] = p->average ? 0.0f : -INFINITY;
            }
        } else if (p->average) {
            const int64_t over = p->count_pads ? cells : count;
            sbit__last_pool_sum(job, count, list, parts, sums, 1.0f / (float)over, y);
        } else {
            job->kernels->last_pool(p->channels, count, list, false, 1.0f, y);
        }
    }
}

SBIT__FN void sbit__last_pool_run(sbit_ctx *ctx, const sbit__last_pool *pool, const float *x,
                                  float *y, void *scratch)
{
    const int64_t all = pool->kernel[0] * pool->kernel[1] * pool->kernel[2];
    sbit__last_pool_job job;
    job.pool = pool;
    job.kernels = sbit__last_of(ctx);
    job.x = x;
    job.y = y;
    job.scratch = (char *)scratch;
    sbit__parallel_range(ctx, pool->batch * pool->out[0] * pool->out[1] * pool->out[2],
                         1 + 65536 / (all * pool->channels + 1), sbit__last_pool_range, &job);
}
