/* last_strip.c: expanding, depthwise and projecting convolutions in one pass. >>last_strip
 *
 * Called by: ops/last.c. Calls: the driver of convolutions with channels last, threads.
 * A unit is a band of output rows of an image, which a worker makes a few rows at a time: it expands
 * the rows that the windows see, those that the windows before saw too are still there, and what the
 * depthwise convolution makes of them is projected at once. All sums are those of the convolutions one
 * by one.
 */
#include "last_private.h"
#include "rows_private.h"

enum {
    SBIT__STRIP_BYTES = 256 * 1024, /* between the convolutions, for a worker, about */
    SBIT__STRIP_BAND = 8            /* output rows of a unit, at least: borders are expanded twice */
};

static bool sbit__strip_has(const sbit__last_strip *strip, int i)
{
    return strip->conv[i].shape.out_channels > 0;
}

/* Floats between the convolutions for `rows` rows of the output. */
static int64_t sbit__strip_floats(const sbit__last_strip *strip, int64_t rows, int64_t *between)
{
    const sbit__conv_shape *s = &strip->conv[1].shape;
    const int64_t seen = (rows - 1) * s->stride[1] + (s->kernel[1] - 1) * s->dilation[1] + 1;
    between[0] = sbit__strip_has(strip, 0)
                     ? sbit__smaller(seen, s->in[1]) * s->in[2] * s->out_channels
                     : 0;
    between[1] = sbit__strip_has(strip, 2) ? rows * s->out[2] * s->out_channels : 0;
    return between[0] + between[1];
}

SBIT__FN void sbit__last_strip_plan(const sbit_ctx *ctx, sbit__last_strip *strip)
{
    const sbit__conv_shape *s = &strip->conv[1].shape;
    const int64_t threads = sbit_ctx_threads(ctx), batch = sbit__larger(s->batch, 1);
    strip->packed_bytes = 0;
    for (int i = 0; i < 3; i++) {
        if (sbit__strip_has(strip, i)) {
            sbit__last_conv_plan(ctx, &strip->conv[i]);
            strip->conv[i].parts = 1;
            strip->conv[i].blocks = INT64_MAX; /* weights are in the cache */
            strip->packed_bytes += strip->conv[i].packed_bytes;
        }
    }
    const int64_t bands = sbit__div_up(batch > 1 ? 4 * threads : threads, batch);
    strip->bands = sbit__larger(sbit__smaller(bands, s->out[1] / SBIT__STRIP_BAND), 1);
    const int64_t most = sbit__div_up(s->out[1], strip->bands);
    strip->rows = 1;
    while (strip->rows < most &&
           sbit__strip_floats(strip, strip->rows + 1, strip->between) * 4 <= SBIT__STRIP_BYTES) {
        strip->rows++;
    }
    (void)sbit__strip_floats(strip, strip->rows, strip->between);
    strip->worker_bytes = sbit__cache_lines(strip->between[0]) + sbit__cache_lines(strip->between[1]);
    strip->scratch_bytes = strip->worker_bytes * (size_t)threads;
}

SBIT__FN void sbit__last_strip_pack(sbit_ctx *ctx, const sbit__last_strip *strip,
                                    const float *const weights[3], float *packed)
{
    for (int i = 0; i < 3; i++) {
        if (sbit__strip_has(strip, i)) {
            sbit__last_conv_pack(ctx, &strip->conv[i], weights[i], packed);
            packed += strip->conv[i].packed_bytes / sizeof *packed;
        }
    }
}

typedef struct sbit__strip_job {
    const sbit__last_strip *strip;
    sbit__last_job job[3]; /* x of the first that is there, y of the last */
    char *scratch;
} sbit__strip_job;

/* Of the positions before `at`: how many of 0..count-1. */
static int64_t sbit__strip_inside(int64_t at, int64_t count)
{
    return sbit__smaller(sbit__larger(at, 0), count);
}

/* Output rows first..end-1 of an image. */
static void sbit__strip_band(const sbit__strip_job *task, int64_t image, int64_t first, int64_t end,
                             char *scratch)
{
    const sbit__last_strip *strip = task->strip;
    const sbit__conv_shape *s = &strip->conv[1].shape;
    const bool expands = sbit__strip_has(strip, 0), projects = sbit__strip_has(strip, 2);
    const int64_t in = s->in[2] * s->out_channels, out = s->out[2] * s->out_channels;
    const int64_t reach = (s->kernel[1] - 1) * s->dilation[1] + 1;
    float *wide = (float *)(void *)scratch;
    float *narrow = (float *)(void *)(scratch + sbit__cache_lines(strip->between[0]));
    int64_t top = 0, held = 0; /* the rows that are there */
    for (int64_t h = first, rows = 0; h < end; h += rows) {
        rows = sbit__smaller(strip->rows, end - h);
        const int64_t at = h * s->stride[1] - s->pad_begin[1];
        const int64_t from = sbit__strip_inside(at, s->in[1]);
        const int64_t to = sbit__strip_inside(at + (rows - 1) * s->stride[1] + reach, s->in[1]);
        const int64_t kept = sbit__larger(top + held - from, 0);
        sbit__last_job job = task->job[0];
        if (expands && kept > 0 && from > top) {
            memmove(wide, wide + (from - top) * in, (size_t)(kept * in) * sizeof *wide);
        }
        if (expands && to - from > kept) {
            const int64_t row = (image * s->in[1] + from + kept) * s->in[2];
            job.x += row * strip->conv[0].shape.in_channels;
            job.y = wide + kept * in;
            sbit__last_panels(&job, 0, 0, (to - from - kept) * s->in[2], NULL, 0, 0);
        }
        top = from;
        held = to - from;
        sbit__last_conv part = strip->conv[1]; /* these rows as a plane of their own */
        part.shape.batch = 1;
        part.shape.in[1] = held;
        part.shape.pad_begin[1] = from - at;
        job = task->job[1];
        job.conv = &part;
        job.x = expands ? wide : job.x + (image * s->in[1] + from) * in;
        job.y = projects ? narrow : job.y + (image * s->out[1] + h) * out;
        for (int64_t i = 0; i < rows; i++) {
            sbit__last_depthwise_row(&job, i, 0, s->out_channels);
        }
        if (projects) {
            const int64_t y = (image * s->out[1] + h) * s->out[2] * strip->conv[2].shape.out_channels;
            job = task->job[2];
            sbit__epilogue epilogue = *job.epilogue;
            epilogue.residual = epilogue.residual != NULL ? epilogue.residual + y : NULL;
            job.epilogue = &epilogue;
            job.x = narrow;
            job.y += y;
            sbit__last_panels(&job, 0, 0, rows * s->out[2], NULL, 0, 0);
        }
    }
}

static void sbit__strip_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__strip_job *task = (const sbit__strip_job *)user;
    const int64_t bands = task->strip->bands, lines = task->strip->conv[1].shape.out[1];
    for (int64_t i = begin; i < end; i++) {
        const int64_t band = i % bands;
        sbit__strip_band(task, i / bands, lines * band / bands, lines * (band + 1) / bands,
                         task->scratch + (size_t)worker * task->strip->worker_bytes);
    }
}

SBIT__FN void sbit__last_strip_run(sbit_ctx *ctx, const sbit__last_strip *strip, const float *x,
                                   const float *packed, const float *const bias[3],
                                   const sbit__epilogue epilogue[3], float *y, void *scratch)
{
    const sbit__conv_shape *s = &strip->conv[1].shape;
    sbit__strip_job task;
    memset(&task, 0, sizeof task);
    task.strip = strip;
    task.scratch = (char *)scratch;
    for (int i = 0; i < 3; i++) {
        if (sbit__strip_has(strip, i)) {
            sbit__last_job_init(ctx, &strip->conv[i], x, packed, bias[i], &epilogue[i], y,
                                &task.job[i]);
            packed += strip->conv[i].packed_bytes / sizeof *packed;
        }
    }
    if (s->batch > 0 && s->out[1] > 0 && s->out[2] > 0) {
        sbit__parallel_range(ctx, s->batch * strip->bands, 1, sbit__strip_range, &task);
    }
}
