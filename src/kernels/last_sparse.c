/* last_sparse.c: convolutions most of whose weights are 0. >>last_sparse
 *
 * Called by: last_conv.c. Calls: the kernels with channels last.
 * A unit is a few vectors of output pixels and some output channels. What the pixels see of some terms
 * of the sums (an input channel under a tap each) is turned, so that vectors hold pixels; then each
 * output channel adds up the terms whose weight is not 0, from a list. Sums that wait for further terms
 * stay in the cache. Weights of 0 are not multiplied: what is infinite there makes no NaN.
 * Packed: where each list ends, by piece of terms and channel, behind the beginning of all; the places
 * of its terms; their weights.
 */
#include "last_private.h"
#include "rows_private.h"

enum {
    SBIT__SPARSE_TERMS = 96, /* at once: they and 4 vectors of pixels fill 24 KB */
    SBIT__SPARSE_VECTORS = 4 /* of pixels: of last_sparse */
};

static int64_t sbit__sparse_pieces(const sbit__conv_shape *s)
{
    return s->kernel[0] * s->kernel[1] * s->kernel[2] * sbit__div_up(s->in_channels, SBIT__SPARSE_TERMS);
}

/* The lists' ends, places and weights in what is packed. */
static int32_t *sbit__sparse_place(const sbit__last_conv *conv, void *packed)
{
    const int64_t lists = sbit__sparse_pieces(&conv->shape) * conv->shape.out_channels;
    return (int32_t *)(void *)((char *)packed + sbit__cache_lines(lists + 1));
}

static float *sbit__sparse_weight(const sbit__last_conv *conv, void *packed)
{
    return (float *)(void *)((char *)sbit__sparse_place(conv, packed) + sbit__cache_lines(conv->nonzeros));
}

/* Bytes of zeros: for pixels outside, and where there is no bias. */
static size_t sbit__sparse_zeros(const sbit__conv_shape *s)
{
    return sbit__cache_lines(sbit__larger(s->in_channels, s->out_channels));
}

SBIT__FN void sbit__last_sparse_plan(const sbit_ctx *ctx, sbit__last_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t all = s->batch * s->out[0] * s->out[1] * s->out[2], threads = sbit_ctx_threads(ctx);
    const int64_t lists = sbit__sparse_pieces(s) * s->out_channels;
    conv->pixels = SBIT__SPARSE_VECTORS * (int64_t)sbit__last_of(ctx)->lanes;
    conv->blocks = sbit__larger(sbit__div_up(all, conv->pixels), 1);
    conv->parts = threads == 1 || conv->blocks >= 4 * threads
                      ? 1
                      : sbit__smaller(sbit__div_up(4 * threads, conv->blocks), sbit__div_up(s->out_channels, 16));
    conv->packed_bytes = sbit__cache_lines(lists + 1) + 2 * sbit__cache_lines(conv->nonzeros);
    conv->worker_bytes = (int64_t)(sbit__sparse_zeros(s) +
                                   sbit__cache_lines(SBIT__SPARSE_TERMS * conv->pixels) +
                                   sbit__cache_lines(s->out_channels * conv->pixels) +
                                   sbit__cache_lines(2 * conv->taps * conv->pixels)); /* pointers */
}

/* Weights [out][in][taps]; no more than conv->nonzeros. */
SBIT__FN void sbit__last_sparse_pack(const sbit__last_conv *conv, const float *weights, float *packed)
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t in = s->in_channels, taps = conv->taps;
    int32_t *end = (int32_t *)(void *)packed, *place = sbit__sparse_place(conv, packed);
    float *weight = sbit__sparse_weight(conv, packed);
    int64_t count = 0;
    *end++ = 0;
    for (int64_t t = 0; t < taps; t++) {
        for (int64_t first = 0; first < in; first += SBIT__SPARSE_TERMS) {
            const int64_t terms = sbit__smaller(in - first, SBIT__SPARSE_TERMS);
            for (int64_t j = 0; j < s->out_channels; j++) {
                for (int64_t k = 0; k < terms && count < conv->nonzeros; k++) {
                    const float w = weights[(j * in + first + k) * taps + t];
                    if (w != 0.0f) {
                        place[count] = (int32_t)(k * conv->pixels);
                        weight[count++] = w;
                    }
                }
                *end++ = (int32_t)count;
            }
        }
    }
}

/* `terms` floats of each pixel as rows of pixels; those next to each other are turned together. */
static void sbit__sparse_turn(const sbit__last_job *job, const float *const *row, const float *zeros,
                              int64_t pixels, int64_t first, int64_t terms, float *to)
{
    const sbit__last_conv *conv = job->conv;
    const int64_t step = conv->shape.stride[2] * conv->shape.in_channels;
    for (int64_t i = 0, run = 0; i < pixels; i += run) {
        const bool outside = row[i] == zeros;
        for (run = 1; i + run < pixels && (row[i + run] == zeros) == outside; run++) {
            if (!outside && row[i + run] - row[i + run - 1] != step) {
                break;
            }
        }
        job->kernels->last_exchange(run, terms, row[i] + first, outside ? 0 : step, to + i, conv->pixels);
    }
}

SBIT__FN void sbit__last_sparse_unit(const sbit__last_job *job, int64_t number, int32_t worker)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t part = number % conv->parts, first = number / conv->parts * conv->pixels;
    const int64_t column = s->out_channels * part / conv->parts, in = s->in_channels;
    const int64_t columns = s->out_channels * (part + 1) / conv->parts - column;
    const int64_t all = s->batch * s->out[0] * s->out[1] * s->out[2];
    const int64_t pixels = sbit__smaller(conv->pixels, all - first);
    char *scratch = job->scratch + worker * conv->worker_bytes;
    float *zeros = (float *)(void *)scratch;
    float *x = (float *)(void *)(scratch += sbit__sparse_zeros(s));
    float *sums = (float *)(void *)(scratch += sbit__cache_lines(SBIT__SPARSE_TERMS * conv->pixels));
    const float **row = (const float **)(void *)(scratch + sbit__cache_lines(s->out_channels * conv->pixels));
    void *packed = (void *)(uintptr_t)job->packed;
    const int32_t *end = (const int32_t *)packed + column, *place = sbit__sparse_place(conv, packed);
    const float *weight = sbit__sparse_weight(conv, packed);
    const float *bias = job->bias != NULL ? job->bias + column : zeros;
    memset(zeros, 0, (size_t)sbit__larger(in, columns) * sizeof *zeros);
    if (pixels < conv->pixels) { /* those that there are not */
        memset(x, 0, (size_t)(SBIT__SPARSE_TERMS * conv->pixels) * sizeof *x);
    }
    sbit__last_table(job, first, pixels, zeros, row);
    for (int64_t t = 0; t < conv->taps; t++) {
        for (int64_t k = 0; k < in; k += SBIT__SPARSE_TERMS, end += s->out_channels) {
            sbit__sparse_turn(job, row + t * pixels, zeros, pixels, k,
                              sbit__smaller(in - k, SBIT__SPARSE_TERMS), x);
            job->kernels->last_sparse(columns, end, place, weight, x, t + k == 0 ? bias : NULL, sums);
        }
    }
    float *y = job->y + first * s->out_channels + column;
    job->kernels->last_exchange(columns, pixels, sums, conv->pixels, y, s->out_channels);
    sbit__last_activate(job, pixels, columns, s->out_channels, y);
}
