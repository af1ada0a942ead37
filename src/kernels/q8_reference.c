/* q8_reference.c: the integer kernels in plain C: what they mean. >>q8_reference
 *
 * Called by: dispatch (the scalar row), tests. Calls: nothing.
 */
#include "q8_private.h"

#include <math.h> /* rintf */

/* Unsigned arithmetic, because sums wrap. */
static int32_t sbit__q8_madd(int32_t sum, int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)sum + (uint32_t)a * (uint32_t)b);
}

/* A rounded product: never joined to the sum behind it, as compilers do where the CPU can. */
static float sbit__q8_times(float a, float b)
{
    float product = a * b;
#if defined(__GNUC__) && defined(__aarch64__)
    __asm__("" : "+w"(product));
#endif
    return product;
}

static uint8_t sbit__q8_finish(const sbit__q8_store *store, float f)
{
    const float lo = (float)(store->lo - store->zero), hi = (float)(store->hi - store->zero);
    f = f > lo ? f : lo;
    f = f < hi ? f : hi;
    return (uint8_t)((int32_t)rintf(f) + store->zero);
}

static void sbit__q8_put(const sbit__q8_store *store, int32_t sum, const float *scale,
                         const float *shift, int64_t column, void *out, int64_t at)
{
    if (store->kind == SBIT__Q8_I32) {
        ((int32_t *)out)[at] = sum;
        return;
    }
    float f = sbit__q8_times((float)sum, scale[column]);
    if (shift != NULL) {
        f += shift[column];
    }
    if (store->kind == SBIT__Q8_F32) {
        ((float *)out)[at] = f;
    } else {
        ((uint8_t *)out)[at] = sbit__q8_finish(store, f);
    }
}

SBIT__FN void sbit__q8_tile__ref(const sbit__q8_tile *tile, int64_t rows, const uint8_t *const *row,
                                 const int32_t *row_sums, void *out)
{
    const int64_t quads = (tile->depth + 3) / 4;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < tile->columns; j++) {
            int32_t sum = tile->bias[j];
            for (int64_t t = 0; t < tile->taps; t++) {
                const uint8_t *x = row[i] + tile->offsets[t];
                for (int64_t k = 0; k < tile->depth; k++) {
                    const int64_t group = (t * quads + k / 4) * tile->width + j;
                    sum = sbit__q8_madd(sum, x[k],
                                        tile->weights[group * 4 + k % 4 + t * tile->between]);
                }
            }
            if (tile->factor != NULL) {
                sum = sbit__q8_madd(sum, row_sums[i], tile->factor[j]);
            }
            sbit__q8_put(&tile->store, sum, tile->scale, tile->shift, j, out,
                         (tile->to != NULL ? tile->to[i] : i * tile->out_stride) + j);
        }
    }
}

SBIT__FN void sbit__q8_depthwise__ref(const sbit__q8_depthwise *d, int64_t pixels, const uint8_t *x,
                                      void *y)
{
    const int64_t columns = (d->channels + d->block - 1) / d->block * d->block;
    for (int64_t i = pixels * columns * d->shares; i-- > 0;) { /* the first output last */
        const int64_t at = i % columns, p = i / columns % pixels, share = i / columns / pixels;
        const int64_t first = at / d->block * d->block, place = at % d->block;
        const int64_t c = first + sbit__q8_lane(d->block, place);
        int32_t sum = d->bias[at];
        for (int64_t t = 0; c < d->channels && t < 4 * d->quads; t++) {
            const int64_t group =
                (first * d->quads + t / 4 * d->block) * d->shares + share * d->block + place;
            sum = sbit__q8_madd(sum, x[p * d->in_stride + d->offsets[t] + c],
                                d->weights[4 * group + t % 4]);
        }
        if (c < d->channels) {
            sbit__q8_put(&d->store, sum, d->scale, d->shift, at, y,
                         share * d->below + p * d->out_stride + c);
        }
    }
}

SBIT__FN void sbit__q8_binary__ref(const sbit__q8_pair *pair, int64_t n, const uint8_t *a,
                                   const uint8_t *b, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        const float u = sbit__q8_times((float)(a[i] - pair->zero_a), pair->scale_a);
        const float v = sbit__q8_times((float)(b[i] - pair->zero_b), pair->scale_b);
        const float f = pair->op == SBIT__BINARY_ADD   ? u + v
                        : pair->op == SBIT__BINARY_SUB ? u - v
                                                       : u * v;
        y[i] = sbit__q8_finish(&pair->store, f / pair->scale_y);
    }
}

SBIT__FN void sbit__q8_max__ref(int64_t n, int64_t count, int64_t step, int64_t taps,
                                const int64_t *offsets, const uint8_t *x, uint8_t *y)
{
    for (int64_t p = 0; p < count; p++) {
        for (int64_t t = 0; t < taps; t++) {
            for (int64_t i = 0; i < n; i++) {
                const uint8_t at = x[p * step + offsets[t] + i];
                y[p * n + i] = at > y[p * n + i] ? at : y[p * n + i];
            }
        }
    }
}

SBIT__FN void sbit__q8_three__ref(int64_t n, int64_t plane, const uint8_t *x, uint8_t flip,
                                  uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[3 * i] = (uint8_t)(x[i] ^ flip);
        y[3 * i + 1] = (uint8_t)(x[plane + i] ^ flip);
        y[3 * i + 2] = (uint8_t)(x[2 * plane + i] ^ flip);
    }
}

SBIT__FN void sbit__q8_interleave__ref(int64_t n, const uint8_t *a, const uint8_t *b, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[2 * i] = a[i];
        y[2 * i + 1] = b[i];
    }
}

SBIT__FN void sbit__q8_lookup__ref(int64_t n, const uint8_t *table, const uint8_t *x, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = table[x[i]];
    }
}

SBIT__FN void sbit__q8_accumulate__ref(int64_t n, int64_t rows, int64_t stride, const uint8_t *x,
                                       int32_t zero, float scale, float *sums)
{
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < n; i++) {
            sums[i] += sbit__q8_times((float)(x[row * stride + i] - zero), scale);
        }
    }
}

SBIT__FN int64_t sbit__q8_peak__ref(int64_t loops, int32_t *sum)
{
    uint32_t s[4] = {0, 1, 2, 3};
    const uint32_t x = (uint32_t)sum[0] | 1;
    for (int64_t i = 0; i < loops; i++) { /* not what a compiler sums up at once */
        s[0] += s[1] * x;
        s[1] += s[2] * x;
        s[2] += s[3] * x;
        s[3] += s[0] * x;
    }
    sum[0] = (int32_t)(s[0] >> 1);
    return loops * 4;
}
