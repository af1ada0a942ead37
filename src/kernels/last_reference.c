/* last_reference.c: what the float kernels with channels last compute. >>last_reference
 *
 * Called by: the drivers without SIMD, tests. Calls: nothing.
 */
#include "last_private.h"

#include <math.h> /* sqrtf */

static float sbit__last_end(const sbit__last_store *store, int64_t at, float sum)
{
    sum += store->residual != NULL ? store->residual[at] : 0.0f;
    if (store->activation == SBIT__ACT_HARDSWISH) {
        const float gate = sum * (1.0f / 6.0f) + 0.5f;
        return sum * (gate < 0.0f ? 0.0f : gate > 1.0f ? 1.0f : gate);
    }
    if (store->activation == SBIT__ACT_CLAMP) {
        return sum < store->lo ? store->lo : sum > store->hi ? store->hi : sum;
    }
    return sum;
}

SBIT__FN void sbit__last_tile__ref(const sbit__last_tile *tile, int64_t rows,
                                   const float *const *row, float *out)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < tile->columns; j++) {
            const float *w = tile->weights + j;
            const int64_t at = i * tile->out_step + j;
            const float bias = tile->goes_on              ? out[at]
                               : tile->store.bias != NULL ? tile->store.bias[j]
                                                          : 0.0f;
            double sum = 0.0;
            for (int64_t t = 0; t < tile->taps; t++) {
                const float *x = row != NULL ? row[t * tile->pitch + i] + tile->shift
                                             : tile->x + i * tile->x_step;
                for (int64_t k = 0; k < tile->depth; k++, w += tile->width) {
                    sum += (double)x[k] * (double)*w;
                }
            }
            const float v = tile->adds ? out[at] + ((float)sum + bias) : (float)sum + bias;
            out[at] = sbit__last_end(&tile->store, at,
                                     tile->behind != NULL ? v + tile->behind[j] : v);
        }
    }
}

SBIT__FN void sbit__last_stem__ref(const sbit__last_stem *stem, int64_t pixels, const float *const *x,
                                   float *out)
{
    for (int64_t i = 0; i < pixels; i++) {
        for (int64_t j = 0; j < stem->columns; j++) {
            const int64_t at = i * stem->out_step + j;
            const float *w = stem->weights + j;
            double sum = 0.0;
            for (int64_t k = 0; k < stem->taps * stem->kernel * stem->channels; k++) {
                const int64_t t = k / stem->channels / stem->kernel, c = k % stem->channels;
                const float *from = x[t * stem->channels + c] + stem->shift + i * stem->stride;
                sum += (double)from[k / stem->channels % stem->kernel] * (double)w[k * stem->width];
            }
            const float bias = stem->store.bias != NULL ? stem->store.bias[j] : 0.0f;
            out[at] = sbit__last_end(&stem->store, at, (float)sum + bias);
        }
    }
}

SBIT__FN void sbit__last_depthwise__ref(const sbit__last_window *window, int64_t pixels,
                                        const float *x, float *y)
{
    for (int64_t p = 0; p < pixels; p++) {
        for (int64_t c = 0; c < window->channels; c++) { /* one lane */
            const float *from = x + p * window->pixel_step + c;
            const float *w = window->weights + c * window->block_step;
            const float bias = window->store.bias != NULL ? window->store.bias[c] : 0.0f;
            double sum = 0.0;
            for (int64_t r = 0; r < window->rows; r++) {
                for (int64_t t = 0; t < window->taps; t++) {
                    sum += (double)from[r * window->row_step + t * window->tap_step] *
                           (double)w[r * window->weight_row + t];
                }
            }
            const int64_t at = p * window->out_step + c;
            y[at] = sbit__last_end(&window->store, at, (float)sum + bias);
        }
    }
}

SBIT__FN void sbit__last_pool__ref(int64_t channels, int64_t count, const float *const *x, bool sum,
                                   float scale, float *y)
{
    for (int64_t c = 0; c < channels; c++) {
        float v = x[0][c];
        for (int64_t i = 1; i < count; i++) {
            v = sum ? v + x[i][c] : x[i][c] > v ? x[i][c] : v;
        }
        y[c] = sum ? v * scale : v;
    }
}

SBIT__FN void sbit__last_sparse__ref(int64_t columns, const int32_t *end, const int32_t *place,
                                     const float *weight, const float *x, const float *bias,
                                     float *sums)
{
    for (int64_t j = 0; j < columns; j++, sums += 4) { /* one lane */
        for (int p = 0; p < 4; p++) {
            double sum = (double)(bias != NULL ? bias[j] : sums[p]);
            for (int64_t i = end[j]; i < end[j + 1]; i++) {
                sum += (double)weight[i] * (double)x[place[i] + p];
            }
            sums[p] = (float)sum;
        }
    }
}

SBIT__FN void sbit__last_zip__ref(int64_t n, const float *a, const float *b, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[2 * i] = a[i];
        y[2 * i + 1] = b[i];
    }
}

SBIT__FN void sbit__last_exchange__ref(int64_t rows, int64_t columns, const float *x,
                                       int64_t x_step, float *y, int64_t y_step)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            y[j * y_step + i] = x[i * x_step + j];
        }
    }
}

/* >>normalization */

SBIT__FN void sbit__norm_sums__ref(int64_t rows, int64_t step, int64_t n, const float *x,
                                   const float *b, float center, double *sums)
{
    sums[0] = sums[1] = 0.0;
    for (int64_t i = 0; i < rows * n; i++) {
        const int64_t at = i / n * step + i % n;
        const double u = (double)(x[at] - center), v = b != NULL ? (double)b[at] : u;
        sums[0] += v;
        sums[1] += v * u;
    }
}

SBIT__FN void sbit__norm_row__ref(int64_t n, const float *x, const float *scale, const float *bias,
                                  bool centered, float epsilon, float *y, float stats[2])
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; centered && i < n; i++) {
        sum += (double)x[i];
    }
    const float mean = (float)(sum / (double)n);
    for (int64_t i = 0; i < n; i++) {
        squares += (double)(x[i] - mean) * (double)(x[i] - mean);
    }
    const float factor = 1.0f / sqrtf((float)(squares / (double)n) + epsilon);
    for (int64_t i = 0; i < n; i++) {
        const float v = (x[i] - mean) * factor * (scale != NULL ? scale[i] : 1.0f);
        y[i] = bias != NULL ? v + bias[i] : v;
    }
    stats[0] = mean;
    stats[1] = factor;
}

SBIT__FN void sbit__norm_scale__ref(int64_t rows, int64_t step, int64_t n, const float *x, float a,
                                    float c, float *y)
{
    for (int64_t i = 0; i < rows * n; i++) {
        const int64_t at = i / n * step + i % n;
        y[at] = x[at] * a + c;
    }
}

SBIT__FN void sbit__norm_combine__ref(int64_t rows, int64_t step, int64_t n, const float *x,
                                      const float *dy, float a, float b, float c, float *dx)
{
    for (int64_t i = 0; i < rows * n; i++) {
        const int64_t at = i / n * step + i % n;
        dx[at] = dy[at] * a + (x[at] * b + c);
    }
}

SBIT__FN void sbit__norm_dots__ref(int64_t images, int64_t n, const float *const *rows,
                                   int64_t a_image, int64_t b_image, float *sums)
{
    for (int k = 0; k < 8; k++) {
        float sum = 0.0f;
        for (int64_t i = 0; i < images * n; i++) {
            sum += rows[k / 2][i / n * a_image + i % n] * rows[4 + k % 2][i / n * b_image + i % n];
        }
        sums[k] = sum;
    }
}

SBIT__FN void sbit__norm_last_sums__ref(int64_t rows, int64_t n, const float *x, const float *b,
                                        const float *center, float *sums)
{
    for (int64_t c = 0; c < n; c++) {
        double sum = 0.0, product = 0.0;
        for (int64_t i = c; i < rows * n; i += n) {
            const double u = (double)(x[i] - center[c]), v = b != NULL ? (double)b[i] : u;
            sum += v;
            product += v * u;
        }
        sums[c] = (float)sum;
        sums[n + c] = (float)product;
    }
}

SBIT__FN void sbit__norm_last_scale__ref(int64_t rows, int64_t n, const float *x, const float *dy,
                                         const float *f, float *y)
{
    for (int64_t i = 0; i < rows * n; i++) {
        const float *k = f + i % n;
        const float v = (x[i] - k[n]) * k[0] + k[2 * n];
        y[i] = dy != NULL ? dy[i] * k[3 * n] + v : v;
    }
}

SBIT__FN void sbit__slope_inside__ref(int64_t n, const float *dy, const float *v, float lo,
                                      float hi, float *dx)
{
    for (int64_t i = 0; i < n; i++) {
        dx[i] = v[i] > lo && !(v[i] >= hi) ? dy[i] : 0.0f;
    }
}

SBIT__FN void sbit__slope_grid__ref(int64_t n, const float *dy, const float *x, float scale,
                                    float zero, float lo, float hi, float *dx, double *sums)
{
    const float least = lo - zero, most = hi - zero;
    sums[0] = sums[1] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const float ratio = x[i] / scale;
        const double q = (double)nearbyintf(ratio), g = (double)dy[i];
        const bool inside = q >= (double)least && q <= (double)most;
        sums[0] += g * (inside ? q - (double)ratio : (double)(q > (double)most ? most : least));
        sums[1] += inside ? 0.0 : g;
        dx[i] = inside ? dy[i] : 0.0f;
    }
}

SBIT__FN void sbit__lstm_back__ref(int64_t n, const float *g, const float *top, const float *c0,
                                   const float *dh, const float *dy, float *dc, float *dg)
{
    for (int64_t i = 0; i < n; i++) {
        const float in = g[i], out = g[n + i], keep = g[2 * n + i], value = g[3 * n + i];
        const float up = dy != NULL ? dh[i] + dy[i] : dh[i];
        const float down = dc[i] + up * out * (1.0f - top[i] * top[i]);
        dg[i] = down * value * in * (1.0f - in);
        dg[n + i] = up * top[i] * out * (1.0f - out);
        dg[2 * n + i] = c0 != NULL ? down * c0[i] * keep * (1.0f - keep) : 0.0f;
        dg[3 * n + i] = down * in * (1.0f - value * value);
        dc[i] = down * keep;
    }
}

SBIT__FN void sbit__last_depthwise_dots__ref(int64_t pixels, int64_t channels, int64_t taps,
                                             int64_t step, const float *dy, int64_t pixel_step,
                                             int64_t tap_step, const float *x, float *sums)
{
    for (int64_t i = 0; i < taps * channels; i++) {
        const int64_t t = i / channels, c = i % channels;
        double sum = 0.0;
        for (int64_t p = 0; p < pixels; p++) {
            sum += (double)dy[p * step + c] * (double)x[p * pixel_step + t * tap_step + c];
        }
        sums[t * step + c] += (float)sum;
    }
}

/* >>Winograd: see last_winograd.c */

static void sbit__winograd_in(int m, const float *d, float *t)
{
    const float a = SBIT__WINOGRAD_A, b = SBIT__WINOGRAD_B;
    const float d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
    if (m == 2) {
        t[0] = d0 - d2;
        t[1] = d1 + d2;
        t[2] = d2 - d1;
        t[3] = d3 - d1;
        return;
    }
    const float d4 = d[4], d5 = d[5];
    const float p = d4 - 2.0f * d2, q = a * d3 - b * d1, r = d4 - 0.5f * d2, s = b * d3 - a * d1;
    t[0] = d0 + d4 - 2.5f * d2;
    t[1] = p + q;
    t[2] = p - q;
    t[3] = r + s;
    t[4] = r - s;
    t[5] = d1 + d5 - 2.5f * d3;
}

static void sbit__winograd_out(int m, const float *s, int64_t step, float *y)
{
    const float s0 = s[0], s1 = s[step], s2 = s[2 * step], s3 = s[3 * step];
    if (m == 2) {
        y[0] = s0 + (s1 + s2);
        y[1] = s3 + (s1 - s2);
        return;
    }
    const float s4 = s[4 * step], s5 = s[5 * step];
    const float u = SBIT__WINOGRAD_A * (s1 - s2), v = SBIT__WINOGRAD_B * (s3 - s4);
    y[0] = s0 + ((s1 + s2) + (s3 + s4));
    y[1] = u + v;
    y[2] = 0.5f * (s1 + s2) + 2.0f * (s3 + s4);
    y[3] = 0.5f * u + (2.0f * v + s5);
}

SBIT__FN void sbit__last_winograd_load__ref(int m, int64_t channels, const sbit__last_patch *x,
                                            float *middle, float *v, int64_t step)
{
    const int n = m + 2;
    float d[6], t[6];
    for (int64_t c = 0; c < channels; c++) {
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < n; i++) {
                const bool inside = j >= x->left && j < x->right;
                d[i] = inside ? x->row[i][(j - x->left) * x->step[i] + c] : 0.0f;
            }
            sbit__winograd_in(m, d, t);
            for (int i = 0; i < n; i++) {
                middle[i * n + j] = t[i];
            }
        }
        for (int i = 0; i < n; i++) {
            sbit__winograd_in(m, middle + i * n, t);
            for (int j = 0; j < n; j++) {
                v[(i * n + j) * step + c] = t[j];
            }
        }
    }
}

SBIT__FN void sbit__last_winograd_store__ref(int m, const sbit__last_cell *cell, const float *sums,
                                             int64_t step, float *middle, float *y)
{
    const int n = m + 2;
    float t[4];
    for (int64_t c = 0; c < cell->columns; c++) {
        for (int j = 0; j < n; j++) {
            sbit__winograd_out(m, sums + j * step + c, n * step, t);
            for (int i = 0; i < m; i++) {
                middle[i * n + j] = t[i];
            }
        }
        for (int64_t i = 0; i < cell->rows; i++) {
            sbit__winograd_out(m, middle + i * n, 1, t);
            for (int64_t j = 0; j < cell->pixels; j++) {
                const int64_t at = i * cell->row_step + j * cell->pixel_step + c;
                const float bias = cell->store.bias != NULL ? cell->store.bias[c] : 0.0f;
                y[at] = sbit__last_end(&cell->store, at, t[j] + bias);
            }
        }
    }
}

SBIT__FN int64_t sbit__last_peak__ref(int64_t loops, float *sum)
{
    float s[4] = {0.0f, 1.0f, 2.0f, 3.0f};
    const float b = sum[0];
    for (int64_t i = 0; i < loops; i++) {
        s[0] = s[0] * 0.999f + b;
        s[1] = s[1] * 0.999f + b;
        s[2] = s[2] * 0.999f + b;
        s[3] = s[3] * 0.999f + b;
    }
    sum[0] = s[0] + s[1] + s[2] + s[3];
    return loops * 4;
}
