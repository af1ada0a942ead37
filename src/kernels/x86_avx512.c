/* x86_avx512.c: kernels for AVX-512 with F, BW, DQ, VL. >>kernels_avx512
 *
 * Called by: dispatch. Calls: reference (what is a hole), nothing else.
 * Same order and skeleton as x86_avx2.c, which explains the mathematics. Partial vectors are loaded
 * and stored under a mask, so that no tail needs code of its own.
 */
#include "rows_private.h"

#if SBIT__X86

#include <immintrin.h> /* vector instructions */

/* gcc's intrinsics use a value that is not set (bug 105593) and, being macros at -O0, masks of the
 * other signedness. */
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define SBIT__AVX512_FN SBIT__TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define SBIT__AVX512 SBIT__AVX512_FN SBIT__INLINE

/* >>vectors: lanes below n; n >= 16 means all, n <= 0 none. */
SBIT__AVX512 __mmask16 sbit__mask16(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}

SBIT__AVX512 __m512 sbit__load16(const float *x, int64_t n)
{
    return n >= 16 ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(sbit__mask16(n), x);
}

SBIT__AVX512 void sbit__store16(float *y, int64_t n, __m512 v)
{
    if (n >= 16) {
        _mm512_storeu_ps(y, v);
    } else {
        _mm512_mask_storeu_ps(y, sbit__mask16(n), v);
    }
}

SBIT__AVX512 __m512 sbit__set16(float x)
{
    return _mm512_set1_ps(x);
}

SBIT__AVX512 __m512 sbit__infinity16(void)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000));
}

/* The CPU's min and max give the second operand if one is a NaN: here v stays one. */
SBIT__AVX512 __m512 sbit__clamp16(__m512 v, __m512 lo, __m512 hi)
{
    return _mm512_min_ps(hi, _mm512_max_ps(lo, v));
}

SBIT__AVX512 __m512 sbit__abs16(__m512 v)
{
    return _mm512_andnot_ps(sbit__set16(-0.0f), v);
}

/* |v| with the sign of s, for v >= 0 */
SBIT__AVX512 __m512 sbit__sign16(__m512 v, __m512 s)
{
    return _mm512_or_ps(v, _mm512_and_ps(s, sbit__set16(-0.0f)));
}

SBIT__AVX512 __m512 sbit__round16(__m512 v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* >>functions */
SBIT__AVX512 __m512 sbit__exp16(__m512 x)
{
    const __m512 v = sbit__clamp16(x, sbit__set16(-104.0f), sbit__set16(89.0f));
    const __m512 n = sbit__round16(_mm512_mul_ps(v, sbit__set16(1.44269504f)));
    __m512 r = _mm512_fnmadd_ps(n, sbit__set16(0.693359375f), v);
    r = _mm512_fnmadd_ps(n, sbit__set16(-2.12194440e-4f), r);
    __m512 p = sbit__set16(0.00138131448f);
    p = _mm512_fmadd_ps(p, r, sbit__set16(0.00836941879f));
    p = _mm512_fmadd_ps(p, r, sbit__set16(0.0416684560f));
    p = _mm512_fmadd_ps(p, r, sbit__set16(0.166665152f));
    p = _mm512_fmadd_ps(p, r, sbit__set16(0.499999940f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
    return _mm512_scalef_ps(_mm512_add_ps(p, sbit__set16(1.0f)), n);
}

SBIT__AVX512 __m512 sbit__log16(__m512 x)
{
    const __m512 zero = _mm512_setzero_ps();
    const __mmask16 tiny = _mm512_cmp_ps_mask(x, sbit__set16(1.17549435e-38f), _CMP_LT_OQ);
    const __m512 v = _mm512_mask_mul_ps(x, tiny, x, sbit__set16(8388608.0f)); /* 2^23 */
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f3504f3)),
                                        23); /* over sqrt 1/2 */
    const __m512 f = _mm512_sub_ps(
        _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(e, 23))), sbit__set16(1.0f));
    __m512 n = _mm512_cvtepi32_ps(e);
    n = _mm512_mask_sub_ps(n, tiny, n, sbit__set16(23.0f));
    __m512 p = sbit__set16(-0.0763449296f);
    p = _mm512_fmadd_ps(p, f, sbit__set16(0.127615750f));
    p = _mm512_fmadd_ps(p, f, sbit__set16(-0.131601825f));
    p = _mm512_fmadd_ps(p, f, sbit__set16(0.142017588f));
    p = _mm512_fmadd_ps(p, f, sbit__set16(-0.166233569f));
    p = _mm512_fmadd_ps(p, f, sbit__set16(0.200012267f));
    p = _mm512_fmadd_ps(p, f, sbit__set16(-0.250008196f));
    p = _mm512_fmadd_ps(p, f, sbit__set16(0.333333313f));
    const __m512 f2 = _mm512_mul_ps(f, f);
    p = _mm512_mul_ps(_mm512_mul_ps(p, f), f2);
    p = _mm512_fmadd_ps(n, sbit__set16(-2.12194440e-4f), p);
    p = _mm512_fnmadd_ps(f2, sbit__set16(0.5f), p);
    p = _mm512_fmadd_ps(n, sbit__set16(0.693359375f), _mm512_add_ps(f, p));
    /* +inf and NaN are their own logarithms; 0 gives -inf, below is no number. */
    p = _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, sbit__set16(3.40282347e38f), _CMP_NLE_UQ), x);
    p = _mm512_mask_sub_ps(p, _mm512_cmp_ps_mask(x, zero, _CMP_EQ_OQ), zero, sbit__infinity16());
    return _mm512_mask_sub_ps(p, _mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ), sbit__infinity16(),
                              sbit__infinity16());
}

SBIT__AVX512 __m512 sbit__sigmoid16(__m512 x)
{
    const __m512 one = sbit__set16(1.0f);
    const __m512 e = sbit__exp16(_mm512_xor_ps(x, sbit__set16(-0.0f)));
    return _mm512_div_ps(one, _mm512_add_ps(one, e));
}

SBIT__AVX512 __m512 sbit__tanh16(__m512 x)
{
    const __m512 one = sbit__set16(1.0f), ax = sbit__abs16(x), x2 = _mm512_mul_ps(x, x);
    __m512 p = sbit__set16(-0.00570498733f);
    p = _mm512_fmadd_ps(p, x2, sbit__set16(0.0206390088f));
    p = _mm512_fmadd_ps(p, x2, sbit__set16(-0.0537397154f));
    p = _mm512_fmadd_ps(p, x2, sbit__set16(0.133314416f));
    p = _mm512_fmadd_ps(p, x2, sbit__set16(-0.333332807f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, x2), x, x);
    const __m512 e = sbit__exp16(_mm512_add_ps(ax, ax));
    const __m512 outer =
        _mm512_sub_ps(one, _mm512_div_ps(sbit__set16(2.0f), _mm512_add_ps(e, one)));
    return _mm512_mask_mov_ps(sbit__sign16(outer, x),
                              _mm512_cmp_ps_mask(ax, sbit__set16(0.625f), _CMP_LT_OQ), p);
}

SBIT__AVX512 __m512 sbit__erfc16(__m512 z) /* z >= 0 */
{
    const __m512 one = sbit__set16(1.0f);
    const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(z, sbit__set16(0.5f), one));
    __m512 p = sbit__set16(0.0157194845f);
    p = _mm512_fmadd_ps(p, t, sbit__set16(-0.258466661f));
    p = _mm512_fmadd_ps(p, t, sbit__set16(1.12203038f));
    p = _mm512_fmadd_ps(p, t, sbit__set16(-2.10042882f));
    p = _mm512_fmadd_ps(p, t, sbit__set16(1.63784432f));
    p = _mm512_fmadd_ps(p, t, sbit__set16(-0.287685186f));
    p = _mm512_fmadd_ps(p, t, sbit__set16(1.15092146f));
    p = _mm512_fmadd_ps(p, t, sbit__set16(-1.27993488f));
    return _mm512_mul_ps(t, sbit__exp16(_mm512_fnmadd_ps(z, z, p)));
}

SBIT__AVX512 __m512 sbit__erf16(__m512 x)
{
    const __m512 ax = sbit__abs16(x), x2 = _mm512_mul_ps(x, x);
    __m512 p = sbit__set16(-0.000609039795f);
    p = _mm512_fmadd_ps(p, x2, sbit__set16(0.00501197157f));
    p = _mm512_fmadd_ps(p, x2, sbit__set16(-0.0267789159f));
    p = _mm512_fmadd_ps(p, x2, sbit__set16(0.112821408f));
    p = _mm512_fmadd_ps(p, x2, sbit__set16(-0.376125246f));
    p = _mm512_fmadd_ps(p, x2, sbit__set16(1.12837911f));
    const __m512 outer = _mm512_sub_ps(sbit__set16(1.0f), sbit__erfc16(ax));
    return _mm512_mask_mul_ps(sbit__sign16(outer, x),
                              _mm512_cmp_ps_mask(ax, sbit__set16(0.9f), _CMP_LT_OQ), p, x);
}

/* erfc(-x / sqrt(2)), twice the share of the normal distribution below x */
SBIT__AVX512 __m512 sbit__normal16(__m512 x)
{
    const __m512 c = sbit__erfc16(_mm512_mul_ps(sbit__abs16(x), sbit__set16(0.707106781f)));
    const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(_mm512_sub_ps(sbit__set16(2.0f), c), below, c);
}

SBIT__AVX512 __m512 sbit__gelu16(__m512 x)
{
    return _mm512_mul_ps(_mm512_mul_ps(x, sbit__set16(0.5f)), sbit__normal16(x));
}

SBIT__AVX512 __m512 sbit__gelu_slope16(__m512 x)
{
    const __m512 minus = _mm512_mul_ps(x, sbit__set16(-0.5f));
    const __m512 bell = _mm512_mul_ps(sbit__set16(0.398942280f), sbit__exp16(_mm512_mul_ps(minus, x)));
    return _mm512_fmadd_ps(x, bell, _mm512_mul_ps(sbit__set16(0.5f), sbit__normal16(x)));
}

SBIT__AVX512 __m512 sbit__gelu_tanh16(__m512 x)
{
    const __m512 x3 = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    const __m512 u = _mm512_fmadd_ps(x3, sbit__set16(0.044715f), x);
    return _mm512_mul_ps(x, sbit__sigmoid16(_mm512_mul_ps(u, sbit__set16(1.59576912f))));
}

SBIT__AVX512 __m512 sbit__hardswish16(__m512 x)
{
    const __m512 gate = _mm512_fmadd_ps(x, sbit__set16(1.0f / 6.0f), sbit__set16(0.5f));
    return _mm512_mul_ps(x, sbit__clamp16(gate, _mm512_setzero_ps(), sbit__set16(1.0f)));
}

SBIT__AVX512 __m512 sbit__softplus16(__m512 x)
{
    const __m512 one = sbit__set16(1.0f);
    const __m512 e = sbit__exp16(_mm512_or_ps(x, sbit__set16(-0.0f)));
    const __m512 u = _mm512_add_ps(one, e); /* log1p: what 1 + e lost is added again */
    const __m512 lost = _mm512_div_ps(_mm512_sub_ps(e, _mm512_sub_ps(u, one)), u);
    return _mm512_add_ps(_mm512_max_ps(_mm512_setzero_ps(), x),
                         _mm512_add_ps(sbit__log16(u), lost));
}

SBIT__AVX512 __m512 sbit__mish16(__m512 x) /* tanh(log(1 + w)) = n / (n + 2), n = w (w + 2) */
{
    const __m512 two = sbit__set16(2.0f);
    const __m512 w = sbit__exp16(_mm512_min_ps(sbit__set16(20.0f), x));
    const __m512 n = _mm512_mul_ps(w, _mm512_add_ps(w, two));
    return _mm512_mul_ps(x, _mm512_div_ps(n, _mm512_add_ps(n, two)));
}

SBIT__AVX512 __m512 sbit__leaky16(__m512 x, __m512 slope)
{
    return _mm512_mask_mul_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), x, slope);
}

/* >>elementwise */
#define SBIT__AVX512_MAP(expr)                                                                     \
    for (int64_t i = 0; i < n; i += 16) {                                                          \
        const __m512 v = sbit__load16(x + i, n - i);                                               \
        sbit__store16(y + i, n - i, (expr));                                                       \
    }                                                                                              \
    break

SBIT__AVX512_FN SBIT__FN void sbit__f32_unary__avx512(sbit__unary op, int64_t n, const float *x,
                                                      float *y)
{
    const __m512 sign = sbit__set16(-0.0f), one = sbit__set16(1.0f);
    switch (op) {
    case SBIT__UNARY_ABS:
        SBIT__AVX512_MAP(sbit__abs16(v));
    case SBIT__UNARY_NEG:
        SBIT__AVX512_MAP(_mm512_xor_ps(v, sign));
    case SBIT__UNARY_EXP:
        SBIT__AVX512_MAP(sbit__exp16(v));
    case SBIT__UNARY_LOG:
        SBIT__AVX512_MAP(sbit__log16(v));
    case SBIT__UNARY_SQRT:
        SBIT__AVX512_MAP(_mm512_sqrt_ps(v));
    case SBIT__UNARY_RECIPROCAL:
        SBIT__AVX512_MAP(_mm512_div_ps(one, v));
    case SBIT__UNARY_SIGMOID:
        SBIT__AVX512_MAP(sbit__sigmoid16(v));
    case SBIT__UNARY_TANH:
        SBIT__AVX512_MAP(sbit__tanh16(v));
    case SBIT__UNARY_ERF:
        SBIT__AVX512_MAP(sbit__erf16(v));
    case SBIT__UNARY_GELU:
        SBIT__AVX512_MAP(sbit__gelu16(v));
    case SBIT__UNARY_GELU_TANH:
        SBIT__AVX512_MAP(sbit__gelu_tanh16(v));
    case SBIT__UNARY_SILU:
        SBIT__AVX512_MAP(_mm512_mul_ps(v, sbit__sigmoid16(v)));
    case SBIT__UNARY_HARDSWISH:
        SBIT__AVX512_MAP(sbit__hardswish16(v));
    case SBIT__UNARY_FLOOR:
        SBIT__AVX512_MAP(_mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
    case SBIT__UNARY_CEIL:
        SBIT__AVX512_MAP(_mm512_roundscale_ps(v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
    case SBIT__UNARY_ROUND:
        SBIT__AVX512_MAP(sbit__round16(v));
    case SBIT__UNARY_SOFTPLUS:
        SBIT__AVX512_MAP(sbit__softplus16(v));
    case SBIT__UNARY_MISH:
        SBIT__AVX512_MAP(sbit__mish16(v));
    case SBIT__UNARY_GELU_SLOPE:
        SBIT__AVX512_MAP(sbit__gelu_slope16(v));
    case SBIT__UNARY_COUNT:
        break;
    }
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_activate__avx512(int64_t n, float *y,
                                                         const sbit__epilogue *ep)
{
    const float *x = y;
    const __m512 lo = sbit__set16(ep->lo), hi = sbit__set16(ep->hi);
    switch (ep->activation) {
    case SBIT__ACT_CLAMP:
        SBIT__AVX512_MAP(sbit__clamp16(v, lo, hi));
    case SBIT__ACT_HARDSWISH:
        SBIT__AVX512_MAP(sbit__hardswish16(v));
    case SBIT__ACT_SIGMOID:
        SBIT__AVX512_MAP(sbit__sigmoid16(v));
    case SBIT__ACT_SILU:
        SBIT__AVX512_MAP(_mm512_mul_ps(v, sbit__sigmoid16(v)));
    case SBIT__ACT_LEAKY:
        SBIT__AVX512_MAP(sbit__leaky16(v, lo));
    case SBIT__ACT_GELU:
        SBIT__AVX512_MAP(sbit__gelu16(v));
    case SBIT__ACT_NONE:
        break;
    }
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_scale_add__avx512(int64_t n, const float *x, float scale,
                                                          float shift, float *y)
{
    const __m512 s = sbit__set16(scale), t = sbit__set16(shift);
    do {
        SBIT__AVX512_MAP(_mm512_fmadd_ps(v, s, t));
    } while (0);
}
#undef SBIT__AVX512_MAP

/* max and min give the second operand for a NaN: what is left is a NaN in `a`. */
SBIT__AVX512 __m512 sbit__max16(__m512 a, __m512 b)
{
    return _mm512_mask_max_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a, b);
}

SBIT__AVX512 __m512 sbit__min16(__m512 a, __m512 b)
{
    return _mm512_mask_min_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a, b);
}

#define SBIT__AVX512_MAP2(expr)                                                                    \
    for (int64_t i = 0; i < n; i += 16) {                                                          \
        const __m512 v = step_a != 0 ? sbit__load16(a + i, n - i) : a0;                            \
        const __m512 w = step_b != 0 ? sbit__load16(b + i, n - i) : b0;                            \
        sbit__store16(y + i, n - i, (expr));                                                       \
    }                                                                                              \
    break

SBIT__AVX512_FN SBIT__FN void sbit__f32_binary__avx512(sbit__binary op, int64_t n, const float *a,
                                                       int64_t step_a, const float *b,
                                                       int64_t step_b, float *y)
{
    const __m512 a0 = sbit__set16(n > 0 ? *a : 0.0f), b0 = sbit__set16(n > 0 ? *b : 0.0f);
    switch (op) {
    case SBIT__BINARY_ADD:
        SBIT__AVX512_MAP2(_mm512_add_ps(v, w));
    case SBIT__BINARY_SUB:
        SBIT__AVX512_MAP2(_mm512_sub_ps(v, w));
    case SBIT__BINARY_MUL:
        SBIT__AVX512_MAP2(_mm512_mul_ps(v, w));
    case SBIT__BINARY_DIV:
        SBIT__AVX512_MAP2(_mm512_div_ps(v, w));
    case SBIT__BINARY_MAX:
        SBIT__AVX512_MAP2(sbit__max16(v, w));
    case SBIT__BINARY_MIN:
        SBIT__AVX512_MAP2(sbit__min16(v, w));
    case SBIT__BINARY_COUNT:
        break;
    }
}
#undef SBIT__AVX512_MAP2

/* >>reductions: floats in a block, doubles over the blocks. */
enum {
    SBIT__AVX512_SUM_BLOCK = 2048
};

SBIT__AVX512_FN SBIT__FN float sbit__f32_sum__avx512(int64_t n, const float *x)
{
    double sum = 0.0;
    for (int64_t block = 0; block < n; block += SBIT__AVX512_SUM_BLOCK) {
        const int64_t end = block + sbit__smaller(n - block, SBIT__AVX512_SUM_BLOCK);
        __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
        int64_t i = block;
        for (; i + 64 <= end; i += 64) {
            s0 = _mm512_add_ps(s0, _mm512_loadu_ps(x + i));
            s1 = _mm512_add_ps(s1, _mm512_loadu_ps(x + i + 16));
            s2 = _mm512_add_ps(s2, _mm512_loadu_ps(x + i + 32));
            s3 = _mm512_add_ps(s3, _mm512_loadu_ps(x + i + 48));
        }
        for (; i < end; i += 16) {
            s0 = _mm512_add_ps(s0, sbit__load16(x + i, end - i));
        }
        s0 = _mm512_add_ps(_mm512_add_ps(s0, s1), _mm512_add_ps(s2, s3));
        sum += (double)_mm512_reduce_add_ps(s0);
    }
    return (float)sum;
}

SBIT__AVX512_FN SBIT__FN float sbit__f32_dot__avx512(int64_t n, const float *a, const float *b)
{
    double sum = 0.0;
    for (int64_t block = 0; block < n; block += SBIT__AVX512_SUM_BLOCK) {
        const int64_t end = block + sbit__smaller(n - block, SBIT__AVX512_SUM_BLOCK);
        __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
        int64_t i = block;
        for (; i + 64 <= end; i += 64) {
            s0 = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), s0);
            s1 = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 16), _mm512_loadu_ps(b + i + 16), s1);
            s2 = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 32), _mm512_loadu_ps(b + i + 32), s2);
            s3 = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 48), _mm512_loadu_ps(b + i + 48), s3);
        }
        for (; i < end; i += 16) {
            s0 = _mm512_fmadd_ps(sbit__load16(a + i, end - i), sbit__load16(b + i, end - i), s0);
        }
        s0 = _mm512_add_ps(_mm512_add_ps(s0, s1), _mm512_add_ps(s2, s3));
        sum += (double)_mm512_reduce_add_ps(s0);
    }
    return (float)sum;
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_minmax__avx512(int64_t n, const float *x, float *min,
                                                       float *max, bool *finite)
{
    __m512 lo = sbit__infinity16(), hi = _mm512_sub_ps(_mm512_setzero_ps(), lo);
    __mmask16 bad = 0;
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = sbit__mask16(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
        lo = _mm512_mask_min_ps(lo, mask, v, lo);
        hi = _mm512_mask_max_ps(hi, mask, v, hi);
        const __m512 zero_or_nan = _mm512_sub_ps(v, v);
        bad = (__mmask16)(bad | _mm512_cmp_ps_mask(zero_or_nan, zero_or_nan, _CMP_UNORD_Q));
    }
    *min = _mm512_reduce_min_ps(lo);
    *max = _mm512_reduce_max_ps(hi);
    *finite = bad == 0;
}

SBIT__AVX512_FN SBIT__FN float sbit__f32_max__avx512(int64_t n, const float *x)
{
    const __m512 inf = sbit__infinity16();
    __m512 hi = _mm512_sub_ps(_mm512_setzero_ps(), inf);
    __mmask16 nan = 0;
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 mask = sbit__mask16(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
        hi = _mm512_mask_max_ps(hi, mask, v, hi);
        nan = (__mmask16)(nan | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q));
    }
    return nan != 0 ? _mm512_cvtss_f32(_mm512_sub_ps(inf, inf)) : _mm512_reduce_max_ps(hi);
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_softmax__avx512(int64_t n, const float *x, float *y)
{
    const __m512 max = sbit__set16(sbit__f32_max__avx512(n, x));
    double total = 0.0;
    for (int64_t block = 0; block < n; block += SBIT__AVX512_SUM_BLOCK) {
        const int64_t end = block + sbit__smaller(n - block, SBIT__AVX512_SUM_BLOCK);
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = block; i < end; i += 16) {
            const __m512 e = sbit__exp16(_mm512_sub_ps(sbit__load16(x + i, n - i), max));
            sum = _mm512_mask_add_ps(sum, sbit__mask16(n - i), sum, e);
            sbit__store16(y + i, n - i, e);
        }
        total += (double)_mm512_reduce_add_ps(sum);
    }
    const __m512 scale = sbit__set16((float)(1.0 / total));
    for (int64_t i = 0; i < n; i += 16) {
        sbit__store16(y + i, n - i, _mm512_mul_ps(sbit__load16(y + i, n - i), scale));
    }
}

/* >>quantization: the clamp comes before the rounding (same result: its bounds are whole), so that
 * the conversion to int32 cannot overflow. */
typedef struct sbit__quantizer16 {
    __m512 scale, lo, hi;
    __m512i zero_point;
    bool products; /* serve for the division; with inverse and bounds of x */
    __m512 inverse, least, most;
} sbit__quantizer16;

SBIT__AVX512 sbit__quantizer16 sbit__quantizer16_of(float scale, int32_t zero_point, int32_t qmin,
                                                    int32_t qmax)
{
    sbit__quantizer16 q;
    q.scale = sbit__set16(scale);
    q.lo = sbit__set16((float)((int64_t)qmin - zero_point));
    q.hi = sbit__set16((float)((int64_t)qmax - zero_point));
    q.zero_point = _mm512_set1_epi32(zero_point);
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    const float lo = (float)((int64_t)qmin - zero_point), hi = (float)((int64_t)qmax - zero_point);
    q.products = scale > 1e-9f && scale < 1e9f && (~bits & 0x7fffffu) != 0 && lo > -1e6f && hi < 1e6f;
    q.inverse = sbit__set16(q.products ? 1.0f / scale : 0.0f);
    q.least = sbit__set16((lo - 1.0f) * scale); /* beyond these the clamp decides */
    q.most = sbit__set16((hi + 1.0f) * scale);
    return q;
}

/* x / scale, NaN as 0, clamped: not rounded yet */
SBIT__AVX512 __m512 sbit__quantize16_float(__m512 x, const sbit__quantizer16 *q)
{
    __m512 v = _mm512_div_ps(x, q->scale);
    v = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v);
    return sbit__clamp16(v, q->lo, q->hi);
}

/* The same but for the sign of 0, by a product that is corrected twice (Markstein 1990): a division
 * takes 16 cycles. */
SBIT__AVX512 __m512 sbit__quantize16_product(__m512 x, const sbit__quantizer16 *q)
{
    x = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    x = sbit__clamp16(x, q->least, q->most);
    __m512 v = _mm512_mul_ps(x, q->inverse);
    v = _mm512_fmadd_ps(_mm512_fnmadd_ps(v, q->scale, x), q->inverse, v);
    v = _mm512_fmadd_ps(_mm512_fnmadd_ps(v, q->scale, x), q->inverse, v);
    return sbit__clamp16(v, q->lo, q->hi);
}

/* The low byte of the int32 is the value, signed or not. */
SBIT__AVX512 void sbit__quantize_bytes16(int64_t n, const float *x, const sbit__quantizer16 *q,
                                         unsigned char *y)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __m512 from = sbit__load16(x + i, n - i);
        const __m512 v = q->products ? sbit__quantize16_product(from, q) : sbit__quantize16_float(from, q);
        const __m512i wide = _mm512_add_epi32(_mm512_cvtps_epi32(v), q->zero_point);
        _mm_mask_storeu_epi8(y + i, sbit__mask16(n - i), _mm512_cvtepi32_epi8(wide));
    }
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_quantize_u8__avx512(int64_t n, const float *x, float scale,
                                                            int32_t zero_point, int32_t qmin,
                                                            int32_t qmax, uint8_t *y)
{
    const sbit__quantizer16 q = sbit__quantizer16_of(scale, zero_point, qmin, qmax);
    sbit__quantize_bytes16(n, x, &q, y);
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_quantize_s8__avx512(int64_t n, const float *x, float scale,
                                                            int32_t zero_point, int32_t qmin,
                                                            int32_t qmax, int8_t *y)
{
    const sbit__quantizer16 q = sbit__quantizer16_of(scale, zero_point, qmin, qmax);
    sbit__quantize_bytes16(n, x, &q, (unsigned char *)y);
}

SBIT__AVX512 __m512 sbit__dequantize16(__m512i q, __m512i zero_point, __m512 scale)
{
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(q, zero_point)), scale);
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_dequantize_u8__avx512(int64_t n, const uint8_t *x,
                                                              float scale, int32_t zero_point,
                                                              float *y)
{
    const __m512i zp = _mm512_set1_epi32(zero_point);
    const __m512 s = sbit__set16(scale);
    for (int64_t i = 0; i < n; i += 16) {
        const __m128i bytes = _mm_maskz_loadu_epi8(sbit__mask16(n - i), x + i);
        sbit__store16(y + i, n - i, sbit__dequantize16(_mm512_cvtepu8_epi32(bytes), zp, s));
    }
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_dequantize_s8__avx512(int64_t n, const int8_t *x,
                                                              float scale, int32_t zero_point,
                                                              float *y)
{
    const __m512i zp = _mm512_set1_epi32(zero_point);
    const __m512 s = sbit__set16(scale);
    for (int64_t i = 0; i < n; i += 16) {
        const __m128i bytes = _mm_maskz_loadu_epi8(sbit__mask16(n - i), x + i);
        sbit__store16(y + i, n - i, sbit__dequantize16(_mm512_cvtepi8_epi32(bytes), zp, s));
    }
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_fake_quantize__avx512(int64_t n, const float *x,
                                                              float scale, int32_t zero_point,
                                                              int32_t qmin, int32_t qmax, float *y)
{
    const sbit__quantizer16 q = sbit__quantizer16_of(scale, zero_point, qmin, qmax);
    for (int64_t i = 0; i < n; i += 16) {
        __m512 v = sbit__round16(sbit__quantize16_float(sbit__load16(x + i, n - i), &q));
        v = _mm512_add_ps(v, _mm512_setzero_ps()); /* integers have no -0 */
        sbit__store16(y + i, n - i, _mm512_mul_ps(v, q.scale));
    }
}

/* >>matrix tile, 12 x 32: rows in fours, so that 4, 8 and 12 of them are computed */

/* Where the rows of b are: with offsets, at offsets[p] from left and right; else at p * stride from
 * left, and right is left + 16. Under masks where `edge`. */
typedef struct sbit__columns16 {
    const float *left, *right;
    const int32_t *offsets;
    int64_t stride;
    __mmask16 mask0, mask1;
} sbit__columns16;

SBIT__AVX512 __m512 sbit__load16_if(const float *x, __mmask16 mask, bool edge)
{
    return edge ? _mm512_maskz_loadu_ps(mask, x) : _mm512_loadu_ps(x);
}

#define SBIT__AVX512_4(what, i, j, k, l)                                                           \
    what(i);                                                                                       \
    what(j);                                                                                       \
    what(k);                                                                                       \
    what(l)
#define SBIT__AVX512_ZERO(i) __m512 s##i##0 = _mm512_setzero_ps(), s##i##1 = s##i##0
#define SBIT__AVX512_FMA(i)                                                                        \
    w = _mm512_set1_ps(from[i]);                                                                   \
    s##i##0 = _mm512_fmadd_ps(w, b0, s##i##0);                                                     \
    s##i##1 = _mm512_fmadd_ps(w, b1, s##i##1)
#define SBIT__AVX512_ROWS4 SBIT__AVX512_4(SBIT__AVX512_FMA, 0, 1, 2, 3)
#define SBIT__AVX512_ROWS8                                                                         \
    SBIT__AVX512_ROWS4;                                                                            \
    SBIT__AVX512_4(SBIT__AVX512_FMA, 4, 5, 6, 7)
#define SBIT__AVX512_ROWS12                                                                        \
    SBIT__AVX512_ROWS8;                                                                            \
    SBIT__AVX512_4(SBIT__AVX512_FMA, 8, 9, 10, 11)
#define SBIT__AVX512_STEP(rows, p)                                                                 \
    do {                                                                                           \
        const float *from = a + (p)*SBIT__AVX512_TILE_M;                                           \
        const int64_t at = indirect ? offsets[p] : (p)*stride;                                     \
        const __m512 b0 = sbit__load16_if(left + at, mask0, edge);                                 \
        const __m512 b1 = sbit__load16_if(right + at, mask1, edge);                                \
        __m512 w;                                                                                  \
        rows;                                                                                      \
    } while (0)
#define SBIT__AVX512_SUMS(rows)                                                                    \
    const float *left = columns->left, *right = columns->right;                                    \
    const int32_t *offsets = columns->offsets;                                                     \
    const int64_t stride = columns->stride;                                                        \
    const __mmask16 mask0 = columns->mask0, mask1 = columns->mask1;                                \
    for (; k > 1; k -= 2, a += 2 * SBIT__AVX512_TILE_M) {                                          \
        SBIT__AVX512_STEP(rows, 0);                                                                \
        SBIT__AVX512_STEP(rows, 1);                                                                \
        left += indirect ? 0 : 2 * stride;                                                         \
        right += indirect ? 0 : 2 * stride;                                                        \
        offsets += indirect ? 2 : 0;                                                               \
    }                                                                                              \
    if (k > 0) {                                                                                   \
        SBIT__AVX512_STEP(rows, 0);                                                                \
    }
#define SBIT__AVX512_PUT(i)                                                                        \
    _mm512_store_ps(tile + 32 * (i), s##i##0);                                                     \
    _mm512_store_ps(tile + 32 * (i) + 16, s##i##1)

SBIT__AVX512 void sbit__tile12x32(int64_t k, const float *a, const sbit__columns16 *columns,
                                  bool indirect, bool edge, float *tile)
{
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 0, 1, 2, 3);
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 4, 5, 6, 7);
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 8, 9, 10, 11);
    SBIT__AVX512_SUMS(SBIT__AVX512_ROWS12);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 0, 1, 2, 3);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 4, 5, 6, 7);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 8, 9, 10, 11);
}

SBIT__AVX512 void sbit__tile8x32(int64_t k, const float *a, const sbit__columns16 *columns,
                                 bool indirect, bool edge, float *tile)
{
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 0, 1, 2, 3);
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 4, 5, 6, 7);
    SBIT__AVX512_SUMS(SBIT__AVX512_ROWS8);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 0, 1, 2, 3);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 4, 5, 6, 7);
}

SBIT__AVX512 void sbit__tile4x32(int64_t k, const float *a, const sbit__columns16 *columns,
                                 bool indirect, bool edge, float *tile)
{
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 0, 1, 2, 3);
    SBIT__AVX512_SUMS(SBIT__AVX512_ROWS4);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 0, 1, 2, 3);
}

#undef SBIT__AVX512_ZERO
#undef SBIT__AVX512_FMA
#undef SBIT__AVX512_STEP
#undef SBIT__AVX512_PUT

/* One vector a row: the left half only. */
#define SBIT__AVX512_ZERO(i) __m512 s##i = _mm512_setzero_ps()
#define SBIT__AVX512_FMA(i) s##i = _mm512_fmadd_ps(_mm512_set1_ps(from[i]), b0, s##i)
#define SBIT__AVX512_STEP(rows, p)                                                                 \
    do {                                                                                           \
        const float *from = a + (p)*SBIT__AVX512_TILE_M;                                           \
        const int64_t at = indirect ? offsets[p] : (p)*stride;                                     \
        const __m512 b0 = sbit__load16_if(left + at, mask0, edge);                                 \
        rows;                                                                                      \
    } while (0)
#define SBIT__AVX512_PUT(i) _mm512_store_ps(tile + 32 * (i), s##i)

SBIT__AVX512 void sbit__tile12x16(int64_t k, const float *a, const sbit__columns16 *columns,
                                  bool indirect, bool edge, float *tile)
{
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 0, 1, 2, 3);
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 4, 5, 6, 7);
    SBIT__AVX512_4(SBIT__AVX512_ZERO, 8, 9, 10, 11);
    SBIT__AVX512_SUMS(SBIT__AVX512_ROWS12);
    (void)right;
    (void)mask1;
    SBIT__AVX512_4(SBIT__AVX512_PUT, 0, 1, 2, 3);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 4, 5, 6, 7);
    SBIT__AVX512_4(SBIT__AVX512_PUT, 8, 9, 10, 11);
}
#undef SBIT__AVX512_ZERO
#undef SBIT__AVX512_FMA
#undef SBIT__AVX512_PUT
#undef SBIT__AVX512_4
#undef SBIT__AVX512_ROWS4
#undef SBIT__AVX512_ROWS8
#undef SBIT__AVX512_ROWS12
#undef SBIT__AVX512_STEP
#undef SBIT__AVX512_SUMS

SBIT__AVX512 void sbit__tile_sums16(int64_t m, int64_t n, int64_t k, const float *a,
                                    const sbit__columns16 *columns, bool indirect, bool edge,
                                    float *tile)
{
    if (n <= 16) {
        sbit__tile12x16(k, a, columns, indirect, edge, tile);
    } else if (m > 8) {
        sbit__tile12x32(k, a, columns, indirect, edge, tile);
    } else if (m > 4) {
        sbit__tile8x32(k, a, columns, indirect, edge, tile);
    } else {
        sbit__tile4x32(k, a, columns, indirect, edge, tile);
    }
}

/* What happens to the sums of a tile; its halves may go to different places. */
typedef struct sbit__tile_out16 {
    float *left, *right;
    int64_t n_left, n_right, ldc;
    bool add, bias_rows;
    const float *bias;
    const sbit__epilogue *ep;
} sbit__tile_out16;

/* What is stored to later: fetched during the sums. */
SBIT__AVX512 void sbit__tile_fetch16(int64_t m, const sbit__tile_out16 *out)
{
    for (int64_t i = 0; i < m; i++) {
        _mm_prefetch((const char *)(out->left + i * out->ldc), _MM_HINT_T0);
        if (out->n_right > 0) {
            const float *right = out->right + i * out->ldc;
            _mm_prefetch((const char *)right, _MM_HINT_T0);
            _mm_prefetch((const char *)(right + out->n_right - 1), _MM_HINT_T0);
        }
    }
}

SBIT__AVX512 __m512 sbit__tile_vector16(__m512 v, const float *c, int64_t n, bool add, __m512 bias,
                                        const float *residual)
{
    v = _mm512_add_ps(add ? _mm512_add_ps(v, sbit__load16(c, n)) : v, bias);
    return residual != NULL ? _mm512_add_ps(v, sbit__load16(residual, n)) : v;
}

SBIT__AVX512_FN static void sbit__tile_put16(int64_t m, __m512 tile[][2],
                                             const sbit__tile_out16 *out)
{
    const sbit__tile_out16 o = *out;
    const bool clamp = o.ep != NULL && o.ep->activation == SBIT__ACT_CLAMP;
    const float *residual = o.ep != NULL ? o.ep->residual : NULL;
    const int64_t apart = residual != NULL && o.n_right > 0 ? o.right - o.left : 0;
    const __m512 inf = sbit__infinity16();
    const __m512 lo = clamp ? sbit__set16(o.ep->lo) : _mm512_sub_ps(_mm512_setzero_ps(), inf);
    const __m512 hi = clamp ? sbit__set16(o.ep->hi) : inf;
    __m512 bias0 = _mm512_setzero_ps(), bias1 = bias0;
    if (o.bias != NULL && !o.bias_rows) {
        bias0 = sbit__load16(o.bias, o.n_left);
        bias1 = o.n_right > 0 ? sbit__load16(o.bias + 16, o.n_right) : bias0;
    }
    for (int64_t i = 0; i < m; i++) {
        float *left = o.left + i * o.ldc, *right = o.right + i * o.ldc;
        const float *more = residual != NULL ? residual + i * o.ldc : NULL;
        if (o.bias != NULL && o.bias_rows) {
            bias0 = bias1 = _mm512_set1_ps(o.bias[i]);
        }
        const __m512 v = sbit__tile_vector16(tile[i][0], left, o.n_left, o.add, bias0, more);
        sbit__store16(left, o.n_left, sbit__clamp16(v, lo, hi));
        if (o.n_right > 0) {
            const __m512 w = sbit__tile_vector16(tile[i][1], right, o.n_right, o.add, bias1,
                                                 more != NULL ? more + apart : NULL);
            sbit__store16(right, o.n_right, sbit__clamp16(w, lo, hi));
        }
        if (o.ep != NULL && o.ep->activation > SBIT__ACT_CLAMP) {
            sbit__f32_activate__avx512(o.n_left, left, o.ep);
            sbit__f32_activate__avx512(o.n_right, right, o.ep);
        }
    }
}

#define SBIT__AVX512_PANEL(i)                                                                      \
    s##i##0 = _mm512_fmadd_ps(w, _mm512_loadu_ps(b + (i)*stride), s##i##0);                        \
    s##i##1 = _mm512_fmadd_ps(w, _mm512_loadu_ps(b + (i)*stride + 16), s##i##1)
#define SBIT__AVX512_ROW_SUMS(i)                                                                   \
    _mm512_storeu_ps(sums + 32 * (i), s##i##0);                                                    \
    _mm512_storeu_ps(sums + 32 * (i) + 16, s##i##1)

SBIT__AVX512_FN SBIT__FN void sbit__f32_gemm_row__avx512(int64_t panels, int64_t k, const float *a,
                                                         const float *b, int64_t stride,
                                                         float *sums)
{
    const float *end = a + k;
    if (panels == 4) {
        __m512 s00 = _mm512_setzero_ps(), s01 = s00, s10 = s00, s11 = s00;
        __m512 s20 = s00, s21 = s00, s30 = s00, s31 = s00;
        for (; a < end; a++, b += SBIT__AVX512_TILE_N) {
            const __m512 w = _mm512_set1_ps(*a);
            SBIT__AVX512_PANEL(0);
            SBIT__AVX512_PANEL(1);
            SBIT__AVX512_PANEL(2);
            SBIT__AVX512_PANEL(3);
        }
        SBIT__AVX512_ROW_SUMS(0);
        SBIT__AVX512_ROW_SUMS(1);
        SBIT__AVX512_ROW_SUMS(2);
        SBIT__AVX512_ROW_SUMS(3);
        return;
    }
    for (int64_t i = 0; i < panels; i++, b += stride, sums += SBIT__AVX512_TILE_N) {
        __m512 s0 = _mm512_setzero_ps(), s1 = s0;
        for (int64_t p = 0; p < k; p++) {
            const __m512 w = _mm512_set1_ps(a[p]);
            s0 = _mm512_fmadd_ps(w, _mm512_loadu_ps(b + SBIT__AVX512_TILE_N * p), s0);
            s1 = _mm512_fmadd_ps(w, _mm512_loadu_ps(b + SBIT__AVX512_TILE_N * p + 16), s1);
        }
        _mm512_storeu_ps(sums, s0);
        _mm512_storeu_ps(sums + 16, s1);
    }
}
#undef SBIT__AVX512_PANEL
#undef SBIT__AVX512_ROW_SUMS

SBIT__AVX512_FN SBIT__FN void sbit__f32_gemm_tile__avx512(int64_t m, int64_t n, int64_t k,
                                                          const float *a, const float *b,
                                                          int64_t ldb, float *c, int64_t ldc,
                                                          bool add, const float *bias,
                                                          bool bias_rows, const sbit__epilogue *ep)
{
    __m512 tile[SBIT__AVX512_TILE_M][2]; /* through memory: rows are counted at run time */
    const int64_t n_left = sbit__smaller(n, 16);
    const sbit__columns16 columns = {b, b + 16, NULL, ldb, sbit__mask16(n), sbit__mask16(n - 16)};
    const sbit__tile_out16 out = {c, c + 16, n_left, n - n_left, ldc, add, bias_rows, bias, ep};
    sbit__tile_fetch16(m, &out);
    if (n == SBIT__AVX512_TILE_N || n == 16) {
        sbit__tile_sums16(m, n, k, a, &columns, false, false, (float *)tile);
    } else {
        sbit__tile_sums16(m, n, k, a, &columns, false, true, (float *)tile);
    }
    sbit__tile_put16(m, tile, &out);
}

SBIT__AVX512_FN SBIT__FN void
sbit__f32_conv_tile__avx512(int64_t m, int64_t k, const float *a, const int32_t *offsets,
                            const float *b_left, const float *b_right, float *c_left,
                            int64_t n_left, float *c_right, int64_t n_right, int64_t ldc, bool add,
                            const float *bias, const sbit__epilogue *ep)
{
    __m512 tile[SBIT__AVX512_TILE_M][2];
    const sbit__columns16 columns = {b_left, b_right, offsets, 0, 0, 0};
    const sbit__tile_out16 out = {c_left, c_right, n_left, n_right, ldc, add, true, bias, ep};
    sbit__tile_fetch16(m, &out);
    sbit__tile_sums16(m, n_right > 0 ? 32 : 16, k, a, &columns, true, false, (float *)tile);
    sbit__tile_put16(m, tile, &out);
}

/* >>depthwise row */

/* Of a = p[0..15] and b = p[15..30]. */
SBIT__AVX512 __m512 sbit__every_second16(__m512 a, __m512 b)
{
    const __m512i order =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, order, b);
}

/* One tap of `n` outputs (16: all), reading to p[(n - 1) * stride] only. */
SBIT__AVX512 __m512 sbit__tap16(const float *p, int64_t stride, int64_t n)
{
    if (stride == 1) {
        return sbit__load16(p, n);
    }
    if (stride == 2) {
        const __m512 a = sbit__load16(p, 2 * n - 1);
        const __m512 b = n > 8 ? sbit__load16(p + 15, 2 * n - 16) : a;
        return sbit__every_second16(a, b);
    }
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i places = _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)stride));
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), sbit__mask16(n), places, p, 4);
}

typedef struct sbit__row16 {
    int64_t kh, kw, dilation;
    const float *const *rows;
    const float *weights;
    float bias, lo, hi;
    const float *residual;
    float *y;
} sbit__row16;

SBIT__AVX512 void sbit__row16_put(const sbit__row16 *r, int64_t x, int64_t n, __m512 v)
{
    if (r->residual != NULL) {
        v = _mm512_add_ps(v, sbit__load16(r->residual + x, n));
    }
    sbit__store16(r->y + x, n, sbit__clamp16(v, sbit__set16(r->lo), sbit__set16(r->hi)));
}

/* 32 outputs from x on, then at most 16. The order of the sum is the same in both. */
SBIT__AVX512 void sbit__row16_block32(const sbit__row16 *r, int64_t x, int64_t stride)
{
    __m512 s0 = sbit__set16(r->bias), s1 = s0;
    const float *w = r->weights;
    for (int64_t i = 0; i < r->kh; i++) {
        const float *p = r->rows[i] + x * stride;
        for (int64_t j = 0; j < r->kw; j++, w++, p += r->dilation) {
            const __m512 v = _mm512_set1_ps(*w);
            s0 = _mm512_fmadd_ps(v, sbit__tap16(p, stride, 16), s0);
            s1 = _mm512_fmadd_ps(v, sbit__tap16(p + 16 * stride, stride, 16), s1);
        }
    }
    sbit__row16_put(r, x, 16, s0);
    sbit__row16_put(r, x + 16, 16, s1);
}

SBIT__AVX512 void sbit__row16_block16(const sbit__row16 *r, int64_t x, int64_t n, int64_t stride)
{
    __m512 s = sbit__set16(r->bias);
    const float *w = r->weights;
    for (int64_t i = 0; i < r->kh; i++) {
        const float *p = r->rows[i] + x * stride;
        for (int64_t j = 0; j < r->kw; j++, w++, p += r->dilation) {
            s = _mm512_fmadd_ps(_mm512_set1_ps(*w), sbit__tap16(p, stride, n), s);
        }
    }
    sbit__row16_put(r, x, n, s);
}

SBIT__AVX512 void sbit__row16_all(const sbit__row16 *r, int64_t out_w, int64_t stride)
{
    int64_t x = 0;
    for (; x + 32 <= out_w; x += 32) {
        sbit__row16_block32(r, x, stride);
    }
    for (; x < out_w; x += 16) {
        sbit__row16_block16(r, x, sbit__smaller(out_w - x, 16), stride);
    }
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_depthwise_row__avx512(int64_t out_w, int64_t kh, int64_t kw,
                                                              int64_t stride_w, int64_t dilation_w,
                                                              const float *const *rows,
                                                              const float *weights, float bias,
                                                              float *y, const sbit__epilogue *ep)
{
    const float inf = _mm512_cvtss_f32(sbit__infinity16());
    const bool clamp = ep != NULL && ep->activation == SBIT__ACT_CLAMP;
    sbit__row16 r;
    r.kh = kh;
    r.kw = kw;
    r.dilation = dilation_w;
    r.rows = rows;
    r.weights = weights;
    r.bias = bias;
    r.lo = clamp ? ep->lo : -inf;
    r.hi = clamp ? ep->hi : inf;
    r.residual = ep != NULL ? ep->residual : NULL;
    r.y = y;
    if (stride_w == 1) {
        sbit__row16_all(&r, out_w, 1);
    } else if (stride_w == 2) {
        sbit__row16_all(&r, out_w, 2);
    } else {
        sbit__row16_all(&r, out_w, stride_w);
    }
    if (ep != NULL && ep->activation > SBIT__ACT_CLAMP) {
        sbit__f32_activate__avx512(out_w, y, ep);
    }
}

/* >>depthwise plane: blocks of 16 columns */
enum {
    SBIT__PLANE16_MASKS = 32 /* columns of a kernel */
};

typedef struct sbit__plane16 {
    const sbit__depthwise *d;
    const float *x, *weights, *residual;
    __m512 bias, lo, hi;
    float *y;
    int64_t column, n; /* the block's first output column; how many are stored */
    bool edge;         /* some of its taps lie left or right of the image */
    __mmask16 mask[SBIT__PLANE16_MASKS], mask_high[SBIT__PLANE16_MASKS]; /* of taps at an edge */
} sbit__plane16;

/* Lanes begin <= i < end. */
SBIT__AVX512 __mmask16 sbit__span16(int64_t begin, int64_t end)
{
    return (__mmask16)(sbit__mask16(end) & ~sbit__mask16(begin));
}

/* Tap j: columns at, at + stride ... of a line, zeros outside of the image. The stride is 1 or 2.
 */
SBIT__AVX512 __m512 sbit__plane16_tap(const sbit__plane16 *p, const float *line, int64_t at,
                                      int64_t j, int64_t stride, bool edge)
{
    const float *from = line + at;
    if (!edge) {
        return sbit__tap16(from, stride, 16);
    }
    const __m512 a = _mm512_maskz_loadu_ps(p->mask[j], from);
    if (stride == 1) {
        return a;
    }
    return sbit__every_second16(a, _mm512_maskz_loadu_ps(p->mask_high[j], from + 15));
}

/* Row iy of the image, or zeros. */
SBIT__AVX512 const float *sbit__plane16_line(const sbit__plane16 *p, int64_t iy)
{
    return iy >= 0 && iy < p->d->in_h ? p->x + iy * p->d->in_w : p->d->zeros;
}

SBIT__AVX512 void sbit__plane16_put(const sbit__plane16 *p, int64_t row, __m512 v)
{
    const int64_t at = row * p->d->out_w + p->column;
    if (p->residual != NULL) {
        v = _mm512_add_ps(v, sbit__load16(p->residual + at, p->n));
    }
    sbit__store16(p->y + at, p->n, sbit__clamp16(v, p->lo, p->hi));
}

/* The block at `column`: where it is, and which lanes of its taps lie in the image. */
SBIT__AVX512 void sbit__plane16_move(sbit__plane16 *p, int64_t column)
{
    const sbit__depthwise *d = p->d;
    const int64_t at = column * d->stride_w - d->pad_w;
    const int64_t reach = (d->kw - 1) * d->dilation_w + 15 * d->stride_w;
    p->column = column;
    p->n = sbit__smaller(d->out_w - column, 16);
    p->edge = at < 0 || at + reach >= d->in_w;
    for (int64_t j = 0; j < d->kw && p->edge; j++) {
        const int64_t begin = -(at + j * d->dilation_w), end = begin + d->in_w;
        p->mask[j] = sbit__span16(begin, end);
        p->mask_high[j] = sbit__span16(begin - 15, end - 15);
    }
}

/* 3 x 3 without strides, down a block of columns: each input row is loaded once and used for the
 * three outputs above. */
SBIT__AVX512 void sbit__plane16_3x3(const sbit__plane16 *p, int64_t row0, int64_t row1, bool edge,
                                    int64_t n)
{
    const float *w = p->weights, *residual = p->residual;
    const int64_t at = p->column - p->d->pad_w, in_w = p->d->in_w, out_w = p->d->out_w;
    const int64_t below = p->d->in_h + p->d->pad_h; /* rows are counted from the padding's first */
    const __m512 w0 = sbit__set16(w[0]), w1 = sbit__set16(w[1]), w2 = sbit__set16(w[2]);
    const __m512 w3 = sbit__set16(w[3]), w4 = sbit__set16(w[4]), w5 = sbit__set16(w[5]);
    const __m512 w6 = sbit__set16(w[6]), w7 = sbit__set16(w[7]), w8 = sbit__set16(w[8]);
    const __m512 bias = p->bias, lo = p->lo, hi = p->hi;
    __m512 second = bias, first = bias; /* outputs that one or two rows are still missing */
    int64_t place = (row0 - 2) * out_w + p->column;
    for (int64_t row = row0, end; row < row1 + 2; row = end) {
        const bool outside = row < p->d->pad_h || row >= below;
        const float *line = outside ? p->d->zeros : p->x + (row - p->d->pad_h) * in_w;
        end = row < p->d->pad_h ? p->d->pad_h : row < below ? below : row1 + 2;
        end = sbit__smaller(end, row1 + 2);
        for (; row < end; row++, line += outside ? 0 : in_w, place += out_w) {
            const __m512 a = sbit__plane16_tap(p, line, at, 0, 1, edge);
            const __m512 b = sbit__plane16_tap(p, line, at + 1, 1, 1, edge);
            const __m512 c = sbit__plane16_tap(p, line, at + 2, 2, 1, edge);
            __m512 done = _mm512_fmadd_ps(w6, a, second);
            second = _mm512_fmadd_ps(w3, a, first);
            first = _mm512_fmadd_ps(w0, a, bias);
            done = _mm512_fmadd_ps(w7, b, done);
            second = _mm512_fmadd_ps(w4, b, second);
            first = _mm512_fmadd_ps(w1, b, first);
            done = _mm512_fmadd_ps(w8, c, done);
            second = _mm512_fmadd_ps(w5, c, second);
            first = _mm512_fmadd_ps(w2, c, first);
            if (row < row0 + 2) {
                continue;
            }
            if (residual != NULL) {
                done = _mm512_add_ps(done, sbit__load16(residual + place, n));
            }
            sbit__store16(p->y + place, n, sbit__clamp16(done, lo, hi));
        }
    }
}

SBIT__AVX512 void sbit__plane16_3x3_all(sbit__plane16 *p, int64_t row0, int64_t row1)
{
    for (int64_t column = 0; column < p->d->out_w; column += 16) {
        sbit__plane16_move(p, column);
        if (!p->edge && p->n == 16) {
            sbit__plane16_3x3(p, row0, row1, false, 16);
        } else if (p->n == 16) {
            sbit__plane16_3x3(p, row0, row1, true, 16);
        } else {
            sbit__plane16_3x3(p, row0, row1, true, p->n);
        }
    }
}

/* Any kernel: `count` <= 8 output rows from `row` on share each weight. */
#define SBIT__PLANE16_LINE(r)                                                                      \
    const float *x##r =                                                                            \
        inside ? x + (r)*step : sbit__plane16_line(p, r < count ? iy + (r)*d->stride_h : -1)
#define SBIT__PLANE16_TAP(r)                                                                       \
    s##r = _mm512_fmadd_ps(v, sbit__plane16_tap(p, x##r, at, j, stride, edge), s##r)
#define SBIT__PLANE16_8(what)                                                                      \
    what(0);                                                                                       \
    what(1);                                                                                       \
    what(2);                                                                                       \
    what(3);                                                                                       \
    what(4);                                                                                       \
    what(5);                                                                                       \
    what(6);                                                                                       \
    what(7)

SBIT__AVX512 void sbit__plane16_rows(const sbit__plane16 *p, int64_t row, int64_t count,
                                     int64_t stride, bool edge)
{
    const sbit__depthwise *d = p->d;
    const float *w = p->weights;
    const int64_t step = d->stride_h * d->in_w;
    __m512 s0 = p->bias, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    int64_t iy = row * d->stride_h - d->pad_h;
    for (int64_t i = 0; i < d->kh; i++, iy += d->dilation_h) {
        const bool inside = count == 8 && iy >= 0 && iy + 7 * d->stride_h < d->in_h;
        const float *x = sbit__plane16_line(p, iy);
        SBIT__PLANE16_8(SBIT__PLANE16_LINE);
        int64_t at = p->column * stride - d->pad_w;
        for (int64_t j = 0; j < d->kw; j++, w++, at += d->dilation_w) {
            const __m512 v = _mm512_set1_ps(*w);
            SBIT__PLANE16_8(SBIT__PLANE16_TAP);
        }
    }
    const __m512 sums[8] = {s0, s1, s2, s3, s4, s5, s6, s7};
    for (int64_t r = 0; r < count; r++) {
        sbit__plane16_put(p, row + r, sums[r]);
    }
}
#undef SBIT__PLANE16_LINE
#undef SBIT__PLANE16_TAP
#undef SBIT__PLANE16_8

SBIT__AVX512 void sbit__plane16_all(sbit__plane16 *p, int64_t row0, int64_t row1, int64_t stride)
{
    for (int64_t row = row0; row < row1; row += 8) {
        for (int64_t column = 0; column < p->d->out_w; column += 16) {
            sbit__plane16_move(p, column);
            if (p->edge) {
                sbit__plane16_rows(p, row, sbit__smaller(row1 - row, 8), stride, true);
            } else {
                sbit__plane16_rows(p, row, sbit__smaller(row1 - row, 8), stride, false);
            }
        }
    }
}

SBIT__AVX512_FN SBIT__FN void sbit__f32_depthwise_plane__avx512(const sbit__depthwise *d,
                                                                int64_t row0, int64_t row1,
                                                                const float *x,
                                                                const float *weights, float bias,
                                                                float *y, const sbit__epilogue *ep)
{
    if (d->stride_w > 2 || d->kw > SBIT__PLANE16_MASKS) {
        sbit__f32_depthwise_plane__ref(d, row0, row1, x, weights, bias, y, ep);
        return;
    }
    const bool clamp = ep != NULL && ep->activation == SBIT__ACT_CLAMP;
    const __m512 inf = sbit__infinity16();
    sbit__plane16 p;
    p.d = d;
    p.x = x;
    p.weights = weights;
    p.residual = ep != NULL ? ep->residual : NULL;
    p.bias = sbit__set16(bias);
    p.lo = clamp ? sbit__set16(ep->lo) : _mm512_sub_ps(sbit__set16(0.0f), inf);
    p.hi = clamp ? sbit__set16(ep->hi) : inf;
    p.y = y;
    if (d->kh == 3 && d->kw == 3 && d->stride_h == 1 && d->stride_w == 1 && d->dilation_h == 1 &&
        d->dilation_w == 1) {
        sbit__plane16_3x3_all(&p, row0, row1);
    } else if (d->stride_w == 1) {
        sbit__plane16_all(&p, row0, row1, 1);
    } else {
        sbit__plane16_all(&p, row0, row1, 2);
    }
    if (ep != NULL && ep->activation > SBIT__ACT_CLAMP) {
        sbit__f32_activate__avx512((row1 - row0) * d->out_w, y + row0 * d->out_w, ep);
    }
}

#undef SBIT__AVX512
#undef SBIT__AVX512_FN

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif /* SBIT__X86 */
