/* parallel.c: loops over ranges on the context's threads. >>kernels_parallel
 *
 * Called by: the drivers, ops. Calls: core (sbit_ctx_parallel).
 * Every thread gets about eight pieces, so that a late one does not hold up the rest much.
 */
#include "kernels_private.h"

typedef struct sbit__range_job {
    sbit__range_fn fn;
    void *task;
    int64_t n, pieces;
} sbit__range_job;

static void sbit__range_piece(void *data, int64_t index, int32_t worker)
{
    const sbit__range_job *job = (const sbit__range_job *)data;
    /* Piece i begins at floor(i * n / pieces), written so that nothing overflows. */
    const int64_t each = job->n / job->pieces, rest = job->n % job->pieces;
    const int64_t begin = each * index + rest * index / job->pieces;
    const int64_t end = each * (index + 1) + rest * (index + 1) / job->pieces;
    job->fn(job->task, begin, end, worker);
}

SBIT__FN void sbit__parallel_range(sbit_ctx *ctx, int64_t n, int64_t grain, sbit__range_fn fn,
                                   void *task)
{
    const int64_t threads = sbit_ctx_threads(ctx);
    const int64_t most = grain > 1 ? n / grain : n;
    if (n <= 0) {
        return;
    }
    if (threads == 1 || most <= 1) {
        fn(task, 0, n, 0);
        return;
    }
    sbit__range_job job;
    job.fn = fn;
    job.task = task;
    job.n = n;
    job.pieces = most < threads * 8 ? most : threads * 8;
    sbit_ctx_parallel(ctx, job.pieces, sbit__range_piece, &job);
}
