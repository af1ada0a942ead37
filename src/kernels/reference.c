/* reference.c: every kernel in scalar C; these define the results. >>kernels_reference
 *
 * Called by: dispatch (scalar row, holes of other rows), tests. Calls: libm.
 * Rounding: nearbyintf in the default rounding mode is round half to even.
 * NaN: min/max/clamp keep it, quantize gives the zero point, minmax reports it.
 */
#include "rows_private.h"

#include <math.h> /* expf, tanhf, nearbyintf ... */

/* >>scalar forms */
static float sbit__ref_clamp(float x, float lo, float hi)
{
    return x < lo ? lo : (x > hi ? hi : x); /* a NaN fails both */
}

static float sbit__ref_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float sbit__ref_hardswish(float x)
{
    return x * sbit__ref_clamp(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f);
}

static float sbit__ref_gelu(float x) /* without the cancellation of 1 + erf */
{
    return 0.5f * x * erfcf(-x * 0.707106781f);
}

static float sbit__ref_softplus(float x)
{
    return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
}

static float sbit__ref_activate(float x, const sbit__epilogue *ep)
{
    switch (ep->activation) {
    case SBIT__ACT_CLAMP:
        return sbit__ref_clamp(x, ep->lo, ep->hi);
    case SBIT__ACT_HARDSWISH:
        return sbit__ref_hardswish(x);
    case SBIT__ACT_SIGMOID:
        return sbit__ref_sigmoid(x);
    case SBIT__ACT_SILU:
        return x * sbit__ref_sigmoid(x);
    case SBIT__ACT_LEAKY:
        return x < 0.0f ? ep->lo * x : x;
    case SBIT__ACT_GELU:
        return sbit__ref_gelu(x);
    case SBIT__ACT_NONE:
        break;
    }
    return x;
}

static float sbit__ref_unary(sbit__unary op, float x)
{
    switch (op) {
    case SBIT__UNARY_ABS:
        return fabsf(x);
    case SBIT__UNARY_NEG:
        return -x;
    case SBIT__UNARY_EXP:
        return expf(x);
    case SBIT__UNARY_LOG:
        return logf(x);
    case SBIT__UNARY_SQRT:
        return sqrtf(x);
    case SBIT__UNARY_RECIPROCAL:
        return 1.0f / x;
    case SBIT__UNARY_SIGMOID:
        return sbit__ref_sigmoid(x);
    case SBIT__UNARY_TANH:
        return tanhf(x);
    case SBIT__UNARY_ERF:
        return erff(x);
    case SBIT__UNARY_GELU:
        return sbit__ref_gelu(x);
    case SBIT__UNARY_GELU_TANH: /* x / 2 * (1 + tanh u) = x * sigmoid(2 u) */
        return x * sbit__ref_sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
    case SBIT__UNARY_SILU:
        return x * sbit__ref_sigmoid(x);
    case SBIT__UNARY_HARDSWISH:
        return sbit__ref_hardswish(x);
    case SBIT__UNARY_FLOOR:
        return floorf(x);
    case SBIT__UNARY_CEIL:
        return ceilf(x);
    case SBIT__UNARY_ROUND:
        return nearbyintf(x);
    case SBIT__UNARY_SOFTPLUS:
        return sbit__ref_softplus(x);
    case SBIT__UNARY_MISH:
        return x * tanhf(sbit__ref_softplus(x));
    case SBIT__UNARY_GELU_SLOPE:
        return 0.5f * erfcf(x * -0.707106781f) + 0.398942280f * x * expf(-0.5f * x * x);
    case SBIT__UNARY_COUNT:
        break;
    }
    return x;
}

static float sbit__ref_binary(sbit__binary op, float a, float b)
{
    switch (op) {
    case SBIT__BINARY_ADD:
        return a + b;
    case SBIT__BINARY_SUB:
        return a - b;
    case SBIT__BINARY_MUL:
        return a * b;
    case SBIT__BINARY_DIV:
        return a / b;
    case SBIT__BINARY_MAX: /* a NaN on either side stays */
        return a > b || a != a ? a : b;
    case SBIT__BINARY_MIN:
        return a < b || a != a ? a : b;
    case SBIT__BINARY_COUNT:
        break;
    }
    return a;
}

static int64_t sbit__ref_quantize(float x, float scale, int32_t zero_point, int32_t qmin,
                                  int32_t qmax)
{
    const float v = x / scale;
    const int64_t lo = (int64_t)qmin - zero_point, hi = (int64_t)qmax - zero_point;
    if (v != v) {
        return zero_point;
    }
    if (v <= (float)lo) {
        return qmin;
    }
    if (v >= (float)hi) {
        return qmax;
    }
    return (int64_t)nearbyintf(v) + zero_point;
}

/* >>products: their sums are of doubles and rounded each 1,024 terms, so that what runs with these kernels is
 * the exact side of a comparison, as reductions are */
static void sbit__ref_tile_put(int64_t m, int64_t n, double sums[][SBIT__REF_TILE_N],
                               int64_t column, float *c, int64_t ldc, bool add, const float *bias,
                               bool bias_rows, const sbit__epilogue *ep)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float x = (float)(sums[i][column + j] + (add ? (double)c[i * ldc + j] : 0.0));
            x += bias != NULL ? bias[bias_rows ? i : j] : 0.0f;
            if (ep != NULL) {
                x += ep->residual != NULL ? ep->residual[i * ldc + j] : 0.0f;
                x = sbit__ref_activate(x, ep);
            }
            c[i * ldc + j] = x;
        }
    }
}

/* Left panels are full: rows beyond m are zeros. */
SBIT__INLINE void sbit__ref_tile_sums(int64_t n, int64_t k, const float *a, const float *b,
                                      int64_t ldb, double sums[][SBIT__REF_TILE_N])
{
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < SBIT__REF_TILE_M; i++) {
            const double left = (double)a[p * SBIT__REF_TILE_M + i];
            for (int64_t j = 0; j < n; j++) {
                sums[i][j] += left * (double)b[p * ldb + j];
            }
        }
    }
}

SBIT__FN void sbit__f32_gemm_tile__ref(int64_t m, int64_t n, int64_t k, const float *a,
                                       const float *b, int64_t ldb, float *c, int64_t ldc, bool add,
                                       const float *bias, bool bias_rows, const sbit__epilogue *ep)
{
    double sums[SBIT__REF_TILE_M][SBIT__REF_TILE_N] = {{0.0}};
    if (n == SBIT__REF_TILE_N) { /* a constant, for the compiler */
        sbit__ref_tile_sums(SBIT__REF_TILE_N, k, a, b, ldb, sums);
    } else {
        sbit__ref_tile_sums(n, k, a, b, ldb, sums);
    }
    sbit__ref_tile_put(m, n, sums, 0, c, ldc, add, bias, bias_rows, ep);
}

SBIT__FN void sbit__f32_gemm_row__ref(int64_t panels, int64_t k, const float *a, const float *b,
                                      int64_t stride, float *sums)
{
    for (int64_t i = 0; i < panels; i++, b += stride, sums += SBIT__REF_TILE_N) {
        double row[SBIT__REF_TILE_N] = {0.0};
        for (int64_t p = 0; p < k; p++) {
            for (int64_t j = 0; j < SBIT__REF_TILE_N; j++) {
                row[j] += (double)a[p] * (double)b[p * SBIT__REF_TILE_N + j];
            }
        }
        for (int64_t j = 0; j < SBIT__REF_TILE_N; j++) {
            sums[j] = (float)row[j];
        }
    }
}

SBIT__FN void sbit__f32_conv_tile__ref(int64_t m, int64_t k, const float *a, const int32_t *offsets,
                                       const float *b_left, const float *b_right, float *c_left,
                                       int64_t n_left, float *c_right, int64_t n_right, int64_t ldc,
                                       bool add, const float *bias, const sbit__epilogue *ep)
{
    const int64_t half = SBIT__REF_TILE_N / 2;
    double sums[SBIT__REF_TILE_M][SBIT__REF_TILE_N] = {{0.0}};
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < m; i++) {
            const double weight = (double)a[p * SBIT__REF_TILE_M + i];
            for (int64_t j = 0; j < n_left; j++) {
                sums[i][j] += weight * (double)b_left[offsets[p] + j];
            }
            for (int64_t j = 0; j < n_right; j++) {
                sums[i][half + j] += weight * (double)b_right[offsets[p] + j];
            }
        }
    }
    sbit__ref_tile_put(m, n_left, sums, 0, c_left, ldc, add, bias, true, ep);
    if (n_right > 0) {
        sbit__epilogue right;
        memset(&right, 0, sizeof(right));
        if (ep != NULL) {
            right = *ep;
            right.residual = ep->residual != NULL ? ep->residual + (c_right - c_left) : NULL;
        }
        sbit__ref_tile_put(m, n_right, sums, half, c_right, ldc, add, bias, true, &right);
    }
}

SBIT__FN void sbit__f32_depthwise_row__ref(int64_t out_w, int64_t kh, int64_t kw, int64_t stride_w,
                                           int64_t dilation_w, const float *const *rows,
                                           const float *weights, float bias, float *y,
                                           const sbit__epilogue *ep)
{
    for (int64_t x = 0; x < out_w; x++) {
        double exact = 0.0;
        for (int64_t i = 0; i < kh; i++) {
            for (int64_t j = 0; j < kw; j++) {
                exact += (double)weights[i * kw + j] *
                         (double)rows[i][x * stride_w + j * dilation_w];
            }
        }
        float sum = (float)exact + bias;
        if (ep != NULL) {
            sum += ep->residual != NULL ? ep->residual[x] : 0.0f;
            sum = sbit__ref_activate(sum, ep);
        }
        y[x] = sum;
    }
}

static float sbit__ref_depthwise(const sbit__depthwise *d, int64_t row, int64_t column,
                                 const float *x, const float *weights, float bias)
{
    double sum = 0.0;
    for (int64_t i = 0; i < d->kh * d->kw; i++) {
        const int64_t iy = row * d->stride_h - d->pad_h + i / d->kw * d->dilation_h;
        const int64_t ix = column * d->stride_w - d->pad_w + i % d->kw * d->dilation_w;
        if (iy >= 0 && iy < d->in_h && ix >= 0 && ix < d->in_w) {
            sum += (double)weights[i] * (double)x[iy * d->in_w + ix];
        }
    }
    return (float)sum + bias;
}

SBIT__FN void sbit__f32_depthwise_plane__ref(const sbit__depthwise *d, int64_t row0, int64_t row1,
                                             const float *x, const float *weights, float bias,
                                             float *y, const sbit__epilogue *ep)
{
    for (int64_t i = row0 * d->out_w; i < row1 * d->out_w; i++) {
        float sum = sbit__ref_depthwise(d, i / d->out_w, i % d->out_w, x, weights, bias);
        if (ep != NULL) {
            sum += ep->residual != NULL ? ep->residual[i] : 0.0f;
            sum = sbit__ref_activate(sum, ep);
        }
        y[i] = sum;
    }
}

/* >>elementwise */
SBIT__FN void sbit__f32_unary__ref(sbit__unary op, int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = sbit__ref_unary(op, x[i]);
    }
}

SBIT__FN void sbit__f32_binary__ref(sbit__binary op, int64_t n, const float *a, int64_t step_a,
                                    const float *b, int64_t step_b, float *y)
{
    const float a0 = n > 0 ? *a : 0.0f, b0 = n > 0 ? *b : 0.0f; /* y may be a or b */
    for (int64_t i = 0; i < n; i++) {
        y[i] = sbit__ref_binary(op, step_a != 0 ? a[i] : a0, step_b != 0 ? b[i] : b0);
    }
}

SBIT__FN void sbit__f32_activate__ref(int64_t n, float *x, const sbit__epilogue *ep)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = sbit__ref_activate(x[i], ep);
    }
}

SBIT__FN void sbit__f32_scale_add__ref(int64_t n, const float *x, float scale, float shift,
                                       float *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * scale + shift;
    }
}

/* >>reductions: double sums, so that the reference is the exact side of a comparison */
SBIT__FN void sbit__f32_minmax__ref(int64_t n, const float *x, float *min, float *max, bool *finite)
{
    float lo = INFINITY, hi = -INFINITY;
    bool all_finite = true;
    for (int64_t i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        all_finite = all_finite && x[i] - x[i] == 0.0f;
    }
    *min = lo;
    *max = hi;
    *finite = all_finite;
}

SBIT__FN float sbit__f32_sum__ref(int64_t n, const float *x)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
    }
    return (float)sum;
}

SBIT__FN float sbit__f32_dot__ref(int64_t n, const float *a, const float *b)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return (float)sum;
}

SBIT__FN float sbit__f32_max__ref(int64_t n, const float *x)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        max = x[i] > max || x[i] != x[i] ? x[i] : max; /* a NaN stays */
    }
    return max;
}

SBIT__FN void sbit__f32_softmax__ref(int64_t n, const float *x, float *y)
{
    const float max = sbit__f32_max__ref(n, x);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = expf(x[i] - max);
        sum += (double)y[i];
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = (float)((double)y[i] / sum);
    }
}

/* >>quantization */
SBIT__FN void sbit__f32_quantize_u8__ref(int64_t n, const float *x, float scale, int32_t zero_point,
                                         int32_t qmin, int32_t qmax, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = (uint8_t)sbit__ref_quantize(x[i], scale, zero_point, qmin, qmax);
    }
}

SBIT__FN void sbit__f32_quantize_s8__ref(int64_t n, const float *x, float scale, int32_t zero_point,
                                         int32_t qmin, int32_t qmax, int8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = (int8_t)sbit__ref_quantize(x[i], scale, zero_point, qmin, qmax);
    }
}

SBIT__FN void sbit__f32_dequantize_u8__ref(int64_t n, const uint8_t *x, float scale,
                                           int32_t zero_point, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = (float)((int32_t)x[i] - zero_point) * scale;
    }
}

SBIT__FN void sbit__f32_dequantize_s8__ref(int64_t n, const int8_t *x, float scale,
                                           int32_t zero_point, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = (float)((int32_t)x[i] - zero_point) * scale;
    }
}

SBIT__FN void sbit__f32_fake_quantize__ref(int64_t n, const float *x, float scale,
                                           int32_t zero_point, int32_t qmin, int32_t qmax, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t q = sbit__ref_quantize(x[i], scale, zero_point, qmin, qmax);
        y[i] = (float)(q - zero_point) * scale;
    }
}

/* NaN is not counted. An empty or reversed range puts all into the first bin. */
SBIT__FN void sbit__f32_histogram__ref(int64_t n, const float *x, float lo, float hi, int64_t bins,
                                       uint64_t *counts)
{
    const float per_unit = hi > lo ? (float)bins / (hi - lo) : 0.0f;
    const float last = (float)(bins - 1);
    for (int64_t i = 0; i < n; i++) {
        const float position = (x[i] - lo) * per_unit;
        if (x[i] != x[i]) {
            continue;
        }
        if (position >= last) {
            counts[bins - 1]++;
        } else {
            counts[position > 0.0f ? (int64_t)position : 0]++;
        }
    }
}
