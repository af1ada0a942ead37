/* float64.c: matrix products and convolutions in double. >>float64
 *
 * Called by: ops, where element types are float64. Calls: parallel.
 * Double is for accuracy: straight loops, rows of which compilers make vectors, shared by threads
 * in pieces that do not change the order of any sum.
 */
#include "kernels_private.h"

/* >>gemm */
static void sbit__f64_gemm_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__f64_gemm *gemm = (const sbit__f64_gemm *)user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        double *c = gemm->c + i * gemm->ldc;
        for (int64_t j = 0; j < gemm->n; j++) {
            c[j] = 0.0;
        }
        for (int64_t p = 0; p < gemm->k; p++) {
            const double a = gemm->a[i * gemm->a_row + p * gemm->a_col];
            const double *b = gemm->b + p * gemm->b_row;
            for (int64_t j = 0; gemm->b_col == 1 && j < gemm->n; j++) {
                c[j] += a * b[j];
            }
            for (int64_t j = 0; gemm->b_col != 1 && j < gemm->n; j++) {
                c[j] += a * b[j * gemm->b_col];
            }
        }
    }
}

SBIT__FN void sbit__f64_gemm_run(sbit_ctx *ctx, const sbit__f64_gemm *gemm)
{
    sbit__f64_gemm task = *gemm;
    const double each = (double)gemm->n * (double)gemm->k + 1.0;
    const double worth = (double)SBIT__WORTH_A_THREAD;
    const int64_t grain = each < worth ? (int64_t)(worth / each) : 0;
    sbit__parallel_range(ctx, gemm->m, grain + 1, sbit__f64_gemm_rows, &task);
}

/* >>convolution. Both directions walk over positions of the short side (outputs of Conv, inputs of
 * ConvTranspose); kernel element k of position i stands on the long side at
 * i * stride + k * dilation - pad. */
typedef struct sbit__f64_span {
    int64_t begin, end, shift; /* positions that stand inside; where position 0 does */
} sbit__f64_span;

static sbit__f64_span sbit__f64_conv_span(const sbit__f64_conv *conv, int axis, int64_t k)
{
    const int64_t shorter = conv->transposed ? conv->shape.in[axis] : conv->shape.out[axis];
    const int64_t longer = conv->transposed ? conv->shape.out[axis] : conv->shape.in[axis];
    const int64_t stride = conv->shape.stride[axis];
    sbit__f64_span span;
    span.shift = k * conv->shape.dilation[axis] - conv->shape.pad_begin[axis];
    span.begin = span.shift < 0 ? (-span.shift + stride - 1) / stride : 0;
    span.end = longer > span.shift ? (longer - span.shift + stride - 1) / stride : 0;
    span.end = span.end < shorter ? span.end : shorter;
    return span;
}

/* Adds what one kernel element with weight w carries from plane x to plane y. */
static void sbit__f64_conv_add(const sbit__f64_conv *conv, const double *x, double w, int64_t kz,
                               int64_t ky, int64_t kx, double *y)
{
    const int64_t *shorter = conv->transposed ? conv->shape.in : conv->shape.out;
    const int64_t *longer = conv->transposed ? conv->shape.out : conv->shape.in;
    const int64_t stride = conv->shape.stride[2];
    const sbit__f64_span sz = sbit__f64_conv_span(conv, 0, kz);
    const sbit__f64_span sy = sbit__f64_conv_span(conv, 1, ky);
    const sbit__f64_span sx = sbit__f64_conv_span(conv, 2, kx);
    for (int64_t z = sz.begin; z < sz.end; z++) {
        for (int64_t row = sy.begin; row < sy.end; row++) {
            const int64_t at_short = (z * shorter[1] + row) * shorter[2];
            const int64_t at_long = ((z * conv->shape.stride[0] + sz.shift) * longer[1] +
                                     row * conv->shape.stride[1] + sy.shift) *
                                        longer[2] +
                                    sx.shift;
            for (int64_t i = sx.begin; i < sx.end; i++) {
                if (conv->transposed) {
                    y[at_long + i * stride] += w * x[at_short + i];
                } else {
                    y[at_short + i] += w * x[at_long + i * stride];
                }
            }
        }
    }
}

static void sbit__f64_conv_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__f64_conv *conv = (const sbit__f64_conv *)user;
    const int64_t in_group = conv->shape.in_channels / conv->shape.groups;
    const int64_t out_group = conv->shape.out_channels / conv->shape.groups;
    const int64_t in_size = conv->shape.in[0] * conv->shape.in[1] * conv->shape.in[2];
    const int64_t out_size = conv->shape.out[0] * conv->shape.out[1] * conv->shape.out[2];
    const int64_t taps = conv->shape.kernel[0] * conv->shape.kernel[1] * conv->shape.kernel[2];
    (void)worker;
    for (int64_t plane = begin; plane < end; plane++) {
        const int64_t n = plane / conv->shape.out_channels, oc = plane % conv->shape.out_channels;
        const int64_t group = oc / out_group;
        double *y = conv->y + plane * out_size;
        for (int64_t i = 0; i < out_size; i++) {
            y[i] = conv->bias != NULL ? conv->bias[oc] : 0.0;
        }
        for (int64_t i = 0; i < in_group; i++) {
            const int64_t ic = group * in_group + i;
            const double *x = conv->x + (n * conv->shape.in_channels + ic) * in_size;
            const double *w =
                conv->w +
                (conv->transposed ? ic * out_group + oc % out_group : oc * in_group + i) * taps;
            for (int64_t k = 0; k < taps; k++) {
                sbit__f64_conv_add(conv, x, w[k], k / conv->shape.kernel[2] / conv->shape.kernel[1],
                                   k / conv->shape.kernel[2] % conv->shape.kernel[1],
                                   k % conv->shape.kernel[2], y);
            }
        }
    }
}

SBIT__FN void sbit__f64_conv_run(sbit_ctx *ctx, const sbit__f64_conv *conv)
{
    sbit__f64_conv task = *conv;
    sbit__parallel_range(ctx, conv->shape.batch * conv->shape.out_channels, 1,
                         sbit__f64_conv_planes, &task);
}
