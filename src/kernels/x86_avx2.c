/* x86_avx2.c: kernels for AVX2 with FMA. >>kernels_avx2
 *
 * Called by: dispatch. Calls: reference (what is a hole), nothing else.
 * Partial vectors at the end of an array are loaded under a mask and go through the same code as
 * full ones, so a value does not depend on where it stands and neither on how work was split.
 *
 * Mathematics: exp by x = n ln 2 + r, |r| <= ln 2 / 2, a polynomial of degree 6 and 2^n in two
 * factors (so that the end of the range is rounded, not cut); log by x = 2^e (1 + f), 1 + f in
 * [sqrt 1/2, sqrt 2); erfc(z) = t exp(P(t) - z^2), t = 1 / (1 + z / 2); tanh and erf near 0 by odd
 * polynomials. Coefficients: our own minimax fits (Lawson iteration on Chebyshev nodes).
 */
#include "rows_private.h"

#if SBIT__X86

#include <immintrin.h> /* vector instructions */

#define SBIT__AVX2 SBIT__TARGET("avx2,fma") SBIT__INLINE
#define SBIT__AVX2_FN SBIT__TARGET("avx2,fma")

/* >>vectors: lanes of x below n; n >= 8 means all. */
SBIT__AVX2 __m256i sbit__mask8(int64_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), lanes);
}

SBIT__AVX2 __m256 sbit__load8(const float *x, int64_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, sbit__mask8(n));
}

/* Not a masked store: those take dozens of cycles on AMD's CPUs. */
SBIT__AVX2 void sbit__store8(float *y, int64_t n, __m256 v)
{
    if (n >= 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    __m128 half = _mm256_castps256_ps128(v);
    if ((n & 4) != 0) {
        _mm_storeu_ps(y, half);
        half = _mm256_extractf128_ps(v, 1);
        y += 4;
    }
    if ((n & 2) != 0) {
        _mm_storel_pi((__m64 *)(void *)y, half);
        half = _mm_movehl_ps(half, half);
        y += 2;
    }
    if ((n & 1) != 0) {
        _mm_store_ss(y, half);
    }
}

SBIT__AVX2 __m256 sbit__set8(float x)
{
    return _mm256_set1_ps(x);
}

SBIT__AVX2 float sbit__add_lanes8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

SBIT__AVX2 float sbit__max_lanes8(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* The CPU's min and max give the second operand if one is a NaN: here v stays one. */
SBIT__AVX2 __m256 sbit__clamp8(__m256 v, __m256 lo, __m256 hi)
{
    return _mm256_min_ps(hi, _mm256_max_ps(lo, v));
}

SBIT__AVX2 __m256 sbit__abs8(__m256 v)
{
    return _mm256_andnot_ps(sbit__set8(-0.0f), v);
}

/* |v| with the sign of s, for v >= 0 */
SBIT__AVX2 __m256 sbit__sign8(__m256 v, __m256 s)
{
    return _mm256_or_ps(v, _mm256_and_ps(s, sbit__set8(-0.0f)));
}

/* >>functions */
SBIT__AVX2 __m256 sbit__exp8(__m256 x)
{
    const __m256 v = sbit__clamp8(x, sbit__set8(-104.0f), sbit__set8(89.0f));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(v, sbit__set8(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, sbit__set8(0.693359375f), v);
    r = _mm256_fnmadd_ps(n, sbit__set8(-2.12194440e-4f), r);
    __m256 p = sbit__set8(0.00138131448f);
    p = _mm256_fmadd_ps(p, r, sbit__set8(0.00836941879f));
    p = _mm256_fmadd_ps(p, r, sbit__set8(0.0416684560f));
    p = _mm256_fmadd_ps(p, r, sbit__set8(0.166665152f));
    p = _mm256_fmadd_ps(p, r, sbit__set8(0.499999940f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
    p = _mm256_add_ps(p, sbit__set8(1.0f));
    const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
    const __m256i bias = _mm256_set1_epi32(127), rest = _mm256_sub_epi32(i, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p,
                         _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

SBIT__AVX2 __m256 sbit__log8(__m256 x)
{
    const __m256 zero = _mm256_setzero_ps();
    const __m256 tiny = _mm256_cmp_ps(x, sbit__set8(1.17549435e-38f), _CMP_LT_OQ);
    const __m256 v = _mm256_blendv_ps(x, _mm256_mul_ps(x, sbit__set8(8388608.0f)), tiny); /* 2^23 */
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)),
                                        23); /* over sqrt 1/2 */
    const __m256 f = _mm256_sub_ps(
        _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23))), sbit__set8(1.0f));
    const __m256 n = _mm256_sub_ps(_mm256_cvtepi32_ps(e), _mm256_and_ps(tiny, sbit__set8(23.0f)));
    __m256 p = sbit__set8(-0.0763449296f);
    p = _mm256_fmadd_ps(p, f, sbit__set8(0.127615750f));
    p = _mm256_fmadd_ps(p, f, sbit__set8(-0.131601825f));
    p = _mm256_fmadd_ps(p, f, sbit__set8(0.142017588f));
    p = _mm256_fmadd_ps(p, f, sbit__set8(-0.166233569f));
    p = _mm256_fmadd_ps(p, f, sbit__set8(0.200012267f));
    p = _mm256_fmadd_ps(p, f, sbit__set8(-0.250008196f));
    p = _mm256_fmadd_ps(p, f, sbit__set8(0.333333313f));
    const __m256 f2 = _mm256_mul_ps(f, f);
    p = _mm256_mul_ps(_mm256_mul_ps(p, f), f2);
    p = _mm256_fmadd_ps(n, sbit__set8(-2.12194440e-4f), p);
    p = _mm256_fnmadd_ps(f2, sbit__set8(0.5f), p);
    p = _mm256_fmadd_ps(n, sbit__set8(0.693359375f), _mm256_add_ps(f, p));
    /* +inf and NaN are their own logarithms; 0 gives -inf, below is no number. */
    const __m256 kept = _mm256_cmp_ps(x, sbit__set8(3.40282347e38f), _CMP_NLE_UQ);
    p = _mm256_blendv_ps(p, x, kept);
    p = _mm256_blendv_ps(p, _mm256_div_ps(sbit__set8(-1.0f), zero),
                         _mm256_cmp_ps(x, zero, _CMP_EQ_OQ));
    return _mm256_or_ps(p, _mm256_cmp_ps(x, zero, _CMP_LT_OQ));
}

SBIT__AVX2 __m256 sbit__sigmoid8(__m256 x)
{
    const __m256 one = sbit__set8(1.0f);
    const __m256 e = sbit__exp8(_mm256_xor_ps(x, sbit__set8(-0.0f)));
    return _mm256_div_ps(one, _mm256_add_ps(one, e));
}

SBIT__AVX2 __m256 sbit__tanh8(__m256 x)
{
    const __m256 one = sbit__set8(1.0f), ax = sbit__abs8(x), x2 = _mm256_mul_ps(x, x);
    __m256 p = sbit__set8(-0.00570498733f);
    p = _mm256_fmadd_ps(p, x2, sbit__set8(0.0206390088f));
    p = _mm256_fmadd_ps(p, x2, sbit__set8(-0.0537397154f));
    p = _mm256_fmadd_ps(p, x2, sbit__set8(0.133314416f));
    p = _mm256_fmadd_ps(p, x2, sbit__set8(-0.333332807f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, x2), x, x);
    const __m256 e = sbit__exp8(_mm256_add_ps(ax, ax));
    const __m256 outer = _mm256_sub_ps(one, _mm256_div_ps(sbit__set8(2.0f), _mm256_add_ps(e, one)));
    return _mm256_blendv_ps(sbit__sign8(outer, x), p,
                            _mm256_cmp_ps(ax, sbit__set8(0.625f), _CMP_LT_OQ));
}

SBIT__AVX2 __m256 sbit__erfc8(__m256 z) /* z >= 0 */
{
    const __m256 one = sbit__set8(1.0f);
    const __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(z, sbit__set8(0.5f), one));
    __m256 p = sbit__set8(0.0157194845f);
    p = _mm256_fmadd_ps(p, t, sbit__set8(-0.258466661f));
    p = _mm256_fmadd_ps(p, t, sbit__set8(1.12203038f));
    p = _mm256_fmadd_ps(p, t, sbit__set8(-2.10042882f));
    p = _mm256_fmadd_ps(p, t, sbit__set8(1.63784432f));
    p = _mm256_fmadd_ps(p, t, sbit__set8(-0.287685186f));
    p = _mm256_fmadd_ps(p, t, sbit__set8(1.15092146f));
    p = _mm256_fmadd_ps(p, t, sbit__set8(-1.27993488f));
    return _mm256_mul_ps(t, sbit__exp8(_mm256_fnmadd_ps(z, z, p)));
}

SBIT__AVX2 __m256 sbit__erf8(__m256 x)
{
    const __m256 ax = sbit__abs8(x), x2 = _mm256_mul_ps(x, x);
    __m256 p = sbit__set8(-0.000609039795f);
    p = _mm256_fmadd_ps(p, x2, sbit__set8(0.00501197157f));
    p = _mm256_fmadd_ps(p, x2, sbit__set8(-0.0267789159f));
    p = _mm256_fmadd_ps(p, x2, sbit__set8(0.112821408f));
    p = _mm256_fmadd_ps(p, x2, sbit__set8(-0.376125246f));
    p = _mm256_fmadd_ps(p, x2, sbit__set8(1.12837911f));
    const __m256 outer = _mm256_sub_ps(sbit__set8(1.0f), sbit__erfc8(ax));
    return _mm256_blendv_ps(sbit__sign8(outer, x), _mm256_mul_ps(p, x),
                            _mm256_cmp_ps(ax, sbit__set8(0.9f), _CMP_LT_OQ));
}

/* erfc(-x / sqrt(2)), twice the share of the normal distribution below x */
SBIT__AVX2 __m256 sbit__normal8(__m256 x)
{
    const __m256 c = sbit__erfc8(_mm256_mul_ps(sbit__abs8(x), sbit__set8(0.707106781f)));
    return _mm256_blendv_ps(_mm256_sub_ps(sbit__set8(2.0f), c), c, x); /* by x's sign */
}

SBIT__AVX2 __m256 sbit__gelu8(__m256 x)
{
    return _mm256_mul_ps(_mm256_mul_ps(x, sbit__set8(0.5f)), sbit__normal8(x));
}

SBIT__AVX2 __m256 sbit__gelu_slope8(__m256 x)
{
    const __m256 minus = _mm256_mul_ps(x, sbit__set8(-0.5f));
    const __m256 bell = _mm256_mul_ps(sbit__set8(0.398942280f), sbit__exp8(_mm256_mul_ps(minus, x)));
    return _mm256_fmadd_ps(x, bell, _mm256_mul_ps(sbit__set8(0.5f), sbit__normal8(x)));
}

SBIT__AVX2 __m256 sbit__gelu_tanh8(__m256 x)
{
    const __m256 x3 = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
    const __m256 u = _mm256_fmadd_ps(x3, sbit__set8(0.044715f), x);
    return _mm256_mul_ps(x, sbit__sigmoid8(_mm256_mul_ps(u, sbit__set8(1.59576912f))));
}

SBIT__AVX2 __m256 sbit__hardswish8(__m256 x)
{
    const __m256 gate = _mm256_fmadd_ps(x, sbit__set8(1.0f / 6.0f), sbit__set8(0.5f));
    return _mm256_mul_ps(x, sbit__clamp8(gate, _mm256_setzero_ps(), sbit__set8(1.0f)));
}

SBIT__AVX2 __m256 sbit__softplus8(__m256 x)
{
    const __m256 one = sbit__set8(1.0f);
    const __m256 e = sbit__exp8(_mm256_or_ps(x, sbit__set8(-0.0f)));
    const __m256 u = _mm256_add_ps(one, e); /* log1p: what 1 + e lost is added again */
    const __m256 lost = _mm256_div_ps(_mm256_sub_ps(e, _mm256_sub_ps(u, one)), u);
    return _mm256_add_ps(_mm256_max_ps(_mm256_setzero_ps(), x), _mm256_add_ps(sbit__log8(u), lost));
}

SBIT__AVX2 __m256 sbit__mish8(__m256 x) /* tanh(log(1 + w)) = n / (n + 2), n = w (w + 2) */
{
    const __m256 two = sbit__set8(2.0f);
    const __m256 w = sbit__exp8(_mm256_min_ps(sbit__set8(20.0f), x));
    const __m256 n = _mm256_mul_ps(w, _mm256_add_ps(w, two));
    return _mm256_mul_ps(x, _mm256_div_ps(n, _mm256_add_ps(n, two)));
}

SBIT__AVX2 __m256 sbit__leaky8(__m256 x, __m256 slope)
{
    return _mm256_blendv_ps(x, _mm256_mul_ps(x, slope),
                            _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}

/* >>elementwise */
#define SBIT__AVX2_MAP(expr)                                                                       \
    for (int64_t i = 0; i < n; i += 8) {                                                           \
        const __m256 v = sbit__load8(x + i, n - i);                                                \
        sbit__store8(y + i, n - i, (expr));                                                        \
    }                                                                                              \
    break

SBIT__AVX2_FN SBIT__FN void sbit__f32_unary__avx2(sbit__unary op, int64_t n, const float *x,
                                                  float *y)
{
    const __m256 sign = sbit__set8(-0.0f), one = sbit__set8(1.0f);
    switch (op) {
    case SBIT__UNARY_ABS:
        SBIT__AVX2_MAP(sbit__abs8(v));
    case SBIT__UNARY_NEG:
        SBIT__AVX2_MAP(_mm256_xor_ps(v, sign));
    case SBIT__UNARY_EXP:
        SBIT__AVX2_MAP(sbit__exp8(v));
    case SBIT__UNARY_LOG:
        SBIT__AVX2_MAP(sbit__log8(v));
    case SBIT__UNARY_SQRT:
        SBIT__AVX2_MAP(_mm256_sqrt_ps(v));
    case SBIT__UNARY_RECIPROCAL:
        SBIT__AVX2_MAP(_mm256_div_ps(one, v));
    case SBIT__UNARY_SIGMOID:
        SBIT__AVX2_MAP(sbit__sigmoid8(v));
    case SBIT__UNARY_TANH:
        SBIT__AVX2_MAP(sbit__tanh8(v));
    case SBIT__UNARY_ERF:
        SBIT__AVX2_MAP(sbit__erf8(v));
    case SBIT__UNARY_GELU:
        SBIT__AVX2_MAP(sbit__gelu8(v));
    case SBIT__UNARY_GELU_TANH:
        SBIT__AVX2_MAP(sbit__gelu_tanh8(v));
    case SBIT__UNARY_SILU:
        SBIT__AVX2_MAP(_mm256_mul_ps(v, sbit__sigmoid8(v)));
    case SBIT__UNARY_HARDSWISH:
        SBIT__AVX2_MAP(sbit__hardswish8(v));
    case SBIT__UNARY_FLOOR:
        SBIT__AVX2_MAP(_mm256_floor_ps(v));
    case SBIT__UNARY_CEIL:
        SBIT__AVX2_MAP(_mm256_ceil_ps(v));
    case SBIT__UNARY_ROUND:
        SBIT__AVX2_MAP(_mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    case SBIT__UNARY_SOFTPLUS:
        SBIT__AVX2_MAP(sbit__softplus8(v));
    case SBIT__UNARY_MISH:
        SBIT__AVX2_MAP(sbit__mish8(v));
    case SBIT__UNARY_GELU_SLOPE:
        SBIT__AVX2_MAP(sbit__gelu_slope8(v));
    case SBIT__UNARY_COUNT:
        break;
    }
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_activate__avx2(int64_t n, float *y, const sbit__epilogue *ep)
{
    const float *x = y;
    const __m256 lo = sbit__set8(ep->lo), hi = sbit__set8(ep->hi);
    switch (ep->activation) {
    case SBIT__ACT_CLAMP:
        SBIT__AVX2_MAP(sbit__clamp8(v, lo, hi));
    case SBIT__ACT_HARDSWISH:
        SBIT__AVX2_MAP(sbit__hardswish8(v));
    case SBIT__ACT_SIGMOID:
        SBIT__AVX2_MAP(sbit__sigmoid8(v));
    case SBIT__ACT_SILU:
        SBIT__AVX2_MAP(_mm256_mul_ps(v, sbit__sigmoid8(v)));
    case SBIT__ACT_LEAKY:
        SBIT__AVX2_MAP(sbit__leaky8(v, lo));
    case SBIT__ACT_GELU:
        SBIT__AVX2_MAP(sbit__gelu8(v));
    case SBIT__ACT_NONE:
        break;
    }
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_scale_add__avx2(int64_t n, const float *x, float scale,
                                                      float shift, float *y)
{
    const __m256 s = sbit__set8(scale), t = sbit__set8(shift);
    do {
        SBIT__AVX2_MAP(_mm256_fmadd_ps(v, s, t));
    } while (0);
}
#undef SBIT__AVX2_MAP

/* max and min give the second operand for a NaN: what is left is a NaN in `a`. */
SBIT__AVX2 __m256 sbit__max8(__m256 a, __m256 b)
{
    return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

SBIT__AVX2 __m256 sbit__min8(__m256 a, __m256 b)
{
    return _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

#define SBIT__AVX2_MAP2(expr)                                                                      \
    for (int64_t i = 0; i < n; i += 8) {                                                           \
        const __m256 v = step_a != 0 ? sbit__load8(a + i, n - i) : a0;                             \
        const __m256 w = step_b != 0 ? sbit__load8(b + i, n - i) : b0;                             \
        sbit__store8(y + i, n - i, (expr));                                                        \
    }                                                                                              \
    break

SBIT__AVX2_FN SBIT__FN void sbit__f32_binary__avx2(sbit__binary op, int64_t n, const float *a,
                                                   int64_t step_a, const float *b, int64_t step_b,
                                                   float *y)
{
    const __m256 a0 = sbit__set8(n > 0 ? *a : 0.0f), b0 = sbit__set8(n > 0 ? *b : 0.0f);
    switch (op) {
    case SBIT__BINARY_ADD:
        SBIT__AVX2_MAP2(_mm256_add_ps(v, w));
    case SBIT__BINARY_SUB:
        SBIT__AVX2_MAP2(_mm256_sub_ps(v, w));
    case SBIT__BINARY_MUL:
        SBIT__AVX2_MAP2(_mm256_mul_ps(v, w));
    case SBIT__BINARY_DIV:
        SBIT__AVX2_MAP2(_mm256_div_ps(v, w));
    case SBIT__BINARY_MAX:
        SBIT__AVX2_MAP2(sbit__max8(v, w));
    case SBIT__BINARY_MIN:
        SBIT__AVX2_MAP2(sbit__min8(v, w));
    case SBIT__BINARY_COUNT:
        break;
    }
}
#undef SBIT__AVX2_MAP2

/* >>reductions: floats in a block, doubles over the blocks. */
enum {
    SBIT__AVX2_SUM_BLOCK = 1024
};

SBIT__AVX2 float sbit__dot_block8(int64_t n, const float *a, const float *b)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        s0 = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), s0);
        s1 = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8), _mm256_loadu_ps(b + i + 8), s1);
        s2 = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 16), _mm256_loadu_ps(b + i + 16), s2);
        s3 = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 24), _mm256_loadu_ps(b + i + 24), s3);
    }
    for (; i < n; i += 8) {
        s0 = _mm256_fmadd_ps(sbit__load8(a + i, n - i), sbit__load8(b + i, n - i), s0);
    }
    return sbit__add_lanes8(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)));
}

SBIT__AVX2 float sbit__sum_block8(int64_t n, const float *x)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        s0 = _mm256_add_ps(s0, _mm256_loadu_ps(x + i));
        s1 = _mm256_add_ps(s1, _mm256_loadu_ps(x + i + 8));
        s2 = _mm256_add_ps(s2, _mm256_loadu_ps(x + i + 16));
        s3 = _mm256_add_ps(s3, _mm256_loadu_ps(x + i + 24));
    }
    for (; i < n; i += 8) {
        s0 = _mm256_add_ps(s0, sbit__load8(x + i, n - i));
    }
    return sbit__add_lanes8(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)));
}

SBIT__AVX2_FN SBIT__FN float sbit__f32_sum__avx2(int64_t n, const float *x)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i += SBIT__AVX2_SUM_BLOCK) {
        sum += (double)sbit__sum_block8(sbit__smaller(n - i, SBIT__AVX2_SUM_BLOCK), x + i);
    }
    return (float)sum;
}

SBIT__AVX2_FN SBIT__FN float sbit__f32_dot__avx2(int64_t n, const float *a, const float *b)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i += SBIT__AVX2_SUM_BLOCK) {
        const int64_t size = sbit__smaller(n - i, SBIT__AVX2_SUM_BLOCK);
        sum += (double)sbit__dot_block8(size, a + i, b + i);
    }
    return (float)sum;
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_minmax__avx2(int64_t n, const float *x, float *min,
                                                   float *max, bool *finite)
{
    const __m256 inf = _mm256_div_ps(sbit__set8(1.0f), _mm256_setzero_ps());
    __m256 lo = inf, hi = _mm256_xor_ps(inf, sbit__set8(-0.0f)), sum = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        lo = _mm256_min_ps(v, lo);
        hi = _mm256_max_ps(v, hi);
        sum = _mm256_or_ps(sum, _mm256_sub_ps(v, v)); /* 0, or NaN for what is not finite */
    }
    bool all_finite = _mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)) == 0;
    float least = -sbit__max_lanes8(_mm256_xor_ps(lo, sbit__set8(-0.0f)));
    float most = sbit__max_lanes8(hi);
    for (; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        all_finite = all_finite && x[i] - x[i] == 0.0f;
    }
    *min = least;
    *max = most;
    *finite = all_finite;
}

SBIT__AVX2_FN SBIT__FN float sbit__f32_max__avx2(int64_t n, const float *x)
{
    const __m256 inf = _mm256_div_ps(sbit__set8(-1.0f), _mm256_setzero_ps());
    __m256 hi = inf, nan = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        hi = _mm256_max_ps(v, hi);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    }
    float most = sbit__max_lanes8(hi);
    if (_mm256_movemask_ps(nan) != 0) {
        return _mm256_cvtss_f32(_mm256_sub_ps(inf, inf));
    }
    for (; i < n; i++) {
        most = x[i] > most || x[i] != x[i] ? x[i] : most;
    }
    return most;
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_softmax__avx2(int64_t n, const float *x, float *y)
{
    const __m256 max = sbit__set8(sbit__f32_max__avx2(n, x));
    double total = 0.0;
    for (int64_t block = 0; block < n; block += SBIT__AVX2_SUM_BLOCK) {
        const int64_t end = block + sbit__smaller(n - block, SBIT__AVX2_SUM_BLOCK);
        __m256 sum = _mm256_setzero_ps();
        for (int64_t i = block; i < end; i += 8) {
            __m256 e = sbit__exp8(_mm256_sub_ps(sbit__load8(x + i, n - i), max));
            if (n - i < 8) {
                e = _mm256_and_ps(e, _mm256_castsi256_ps(sbit__mask8(n - i)));
            }
            sum = _mm256_add_ps(sum, e);
            sbit__store8(y + i, n - i, e);
        }
        total += (double)sbit__add_lanes8(sum);
    }
    const __m256 scale = sbit__set8((float)(1.0 / total));
    for (int64_t i = 0; i < n; i += 8) {
        sbit__store8(y + i, n - i, _mm256_mul_ps(sbit__load8(y + i, n - i), scale));
    }
}

/* >>quantization: the clamp comes before the rounding (same result: its bounds are whole), so that
 * the conversion to int32 cannot overflow. */
typedef struct sbit__quantizer8 {
    __m256 scale, lo, hi;
    __m256i zero_point;
} sbit__quantizer8;

SBIT__AVX2 sbit__quantizer8 sbit__quantizer8_of(float scale, int32_t zero_point, int32_t qmin,
                                                int32_t qmax)
{
    sbit__quantizer8 q;
    q.scale = sbit__set8(scale);
    q.lo = sbit__set8((float)((int64_t)qmin - zero_point));
    q.hi = sbit__set8((float)((int64_t)qmax - zero_point));
    q.zero_point = _mm256_set1_epi32(zero_point);
    return q;
}

/* x / scale, NaN as 0, clamped: not rounded yet */
SBIT__AVX2 __m256 sbit__quantize8_float(__m256 x, const sbit__quantizer8 *q)
{
    const __m256 v = _mm256_div_ps(x, q->scale);
    return sbit__clamp8(_mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q)), q->lo, q->hi);
}

SBIT__AVX2 __m256i sbit__quantize8(__m256 x, const sbit__quantizer8 *q)
{
    return _mm256_add_epi32(_mm256_cvtps_epi32(sbit__quantize8_float(x, q)), q->zero_point);
}

/* 32 int32 in [-128, 255] to bytes; packing works within halves, hence the permutation. */
SBIT__AVX2 __m256i sbit__pack32(const __m256i q[4], bool is_signed)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i a = _mm256_packs_epi32(q[0], q[1]), b = _mm256_packs_epi32(q[2], q[3]);
    return _mm256_permutevar8x32_epi32(
        is_signed ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b), order);
}

/* n < 32 at the end go through a buffer. */
SBIT__AVX2 void sbit__quantize_bytes8(int64_t n, const float *x, const sbit__quantizer8 *q,
                                      bool is_signed, unsigned char *y)
{
    __m256i v[4];
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; j++) {
            v[j] = sbit__quantize8(_mm256_loadu_ps(x + i + 8 * j), q);
        }
        _mm256_storeu_si256((__m256i *)(void *)(y + i), sbit__pack32(v, is_signed));
    }
    if (i < n) {
        float rest[32] = {0.0f};
        unsigned char bytes[32];
        memcpy(rest, x + i, (size_t)(n - i) * sizeof(float));
        for (int j = 0; j < 4; j++) {
            v[j] = sbit__quantize8(_mm256_loadu_ps(rest + 8 * j), q);
        }
        _mm256_storeu_si256((__m256i *)(void *)bytes, sbit__pack32(v, is_signed));
        memcpy(y + i, bytes, (size_t)(n - i));
    }
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_quantize_u8__avx2(int64_t n, const float *x, float scale,
                                                        int32_t zero_point, int32_t qmin,
                                                        int32_t qmax, uint8_t *y)
{
    const sbit__quantizer8 q = sbit__quantizer8_of(scale, zero_point, qmin, qmax);
    sbit__quantize_bytes8(n, x, &q, false, y);
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_quantize_s8__avx2(int64_t n, const float *x, float scale,
                                                        int32_t zero_point, int32_t qmin,
                                                        int32_t qmax, int8_t *y)
{
    const sbit__quantizer8 q = sbit__quantizer8_of(scale, zero_point, qmin, qmax);
    sbit__quantize_bytes8(n, x, &q, true, (unsigned char *)y);
}

SBIT__AVX2 __m256 sbit__dequantize8(__m256i q, __m256i zero_point, __m256 scale)
{
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(q, zero_point)), scale);
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_dequantize_u8__avx2(int64_t n, const uint8_t *x, float scale,
                                                          int32_t zero_point, float *y)
{
    const __m256i zp = _mm256_set1_epi32(zero_point);
    const __m256 s = sbit__set8(scale);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(x + i));
        _mm256_storeu_ps(y + i, sbit__dequantize8(_mm256_cvtepu8_epi32(bytes), zp, s));
    }
    sbit__f32_dequantize_u8__ref(n - i, x + i, scale, zero_point, y + i);
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_dequantize_s8__avx2(int64_t n, const int8_t *x, float scale,
                                                          int32_t zero_point, float *y)
{
    const __m256i zp = _mm256_set1_epi32(zero_point);
    const __m256 s = sbit__set8(scale);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(x + i));
        _mm256_storeu_ps(y + i, sbit__dequantize8(_mm256_cvtepi8_epi32(bytes), zp, s));
    }
    sbit__f32_dequantize_s8__ref(n - i, x + i, scale, zero_point, y + i);
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_fake_quantize__avx2(int64_t n, const float *x, float scale,
                                                          int32_t zero_point, int32_t qmin,
                                                          int32_t qmax, float *y)
{
    const sbit__quantizer8 q = sbit__quantizer8_of(scale, zero_point, qmin, qmax);
    for (int64_t i = 0; i < n; i += 8) {
        __m256 v = sbit__quantize8_float(sbit__load8(x + i, n - i), &q);
        v = _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        v = _mm256_add_ps(v, _mm256_setzero_ps()); /* integers have no -0 */
        sbit__store8(y + i, n - i, _mm256_mul_ps(v, q.scale));
    }
}

/* >>matrix tile, 6 x 16 */

/* Where the rows of b are: with offsets, at offsets[p] from left and right; else at p * stride from
 * left, and right is left + 8. Under masks where `edge`. */
typedef struct sbit__columns8 {
    const float *left, *right;
    const int32_t *offsets;
    int64_t stride;
    __m256i mask0, mask1;
} sbit__columns8;

SBIT__AVX2 __m256 sbit__load8_if(const float *x, __m256i mask, bool edge)
{
    return edge ? _mm256_maskload_ps(x, mask) : _mm256_loadu_ps(x);
}

#define SBIT__AVX2_ZERO(i) __m256 s##i##0 = _mm256_setzero_ps(), s##i##1 = s##i##0
#define SBIT__AVX2_FMA(i)                                                                          \
    w = _mm256_broadcast_ss(from + (i));                                                           \
    s##i##0 = _mm256_fmadd_ps(w, b0, s##i##0);                                                     \
    s##i##1 = _mm256_fmadd_ps(w, b1, s##i##1)
#define SBIT__AVX2_ROWS2                                                                           \
    SBIT__AVX2_FMA(0);                                                                             \
    SBIT__AVX2_FMA(1)
#define SBIT__AVX2_ROWS4                                                                           \
    SBIT__AVX2_ROWS2;                                                                              \
    SBIT__AVX2_FMA(2);                                                                             \
    SBIT__AVX2_FMA(3)
#define SBIT__AVX2_ROWS6                                                                           \
    SBIT__AVX2_ROWS4;                                                                              \
    SBIT__AVX2_FMA(4);                                                                             \
    SBIT__AVX2_FMA(5)
#define SBIT__AVX2_STEP(rows, p)                                                                   \
    do {                                                                                           \
        const float *from = a + (p)*SBIT__AVX2_TILE_M;                                             \
        const int64_t at = indirect ? offsets[p] : (p)*stride;                                     \
        const __m256 b0 = sbit__load8_if(left + at, mask0, edge);                                  \
        const __m256 b1 = sbit__load8_if(right + at, mask1, edge);                                 \
        __m256 w;                                                                                  \
        rows;                                                                                      \
    } while (0)
#define SBIT__AVX2_SUMS(rows)                                                                      \
    const float *left = columns->left, *right = columns->right;                                    \
    const int32_t *offsets = columns->offsets;                                                     \
    const int64_t stride = columns->stride;                                                        \
    const __m256i mask0 = columns->mask0, mask1 = columns->mask1;                                  \
    for (; k > 1; k -= 2, a += 2 * SBIT__AVX2_TILE_M) {                                            \
        SBIT__AVX2_STEP(rows, 0);                                                                  \
        SBIT__AVX2_STEP(rows, 1);                                                                  \
        left += indirect ? 0 : 2 * stride;                                                         \
        right += indirect ? 0 : 2 * stride;                                                        \
        offsets += indirect ? 2 : 0;                                                               \
    }                                                                                              \
    if (k > 0) {                                                                                   \
        SBIT__AVX2_STEP(rows, 0);                                                                  \
    }
#define SBIT__AVX2_PUT(i)                                                                          \
    _mm256_store_ps(tile + 16 * (i), s##i##0);                                                     \
    _mm256_store_ps(tile + 16 * (i) + 8, s##i##1)

SBIT__AVX2 void sbit__tile6x16(int64_t k, const float *a, const sbit__columns8 *columns,
                               bool indirect, bool edge, float *tile)
{
    SBIT__AVX2_ZERO(0);
    SBIT__AVX2_ZERO(1);
    SBIT__AVX2_ZERO(2);
    SBIT__AVX2_ZERO(3);
    SBIT__AVX2_ZERO(4);
    SBIT__AVX2_ZERO(5);
    SBIT__AVX2_SUMS(SBIT__AVX2_ROWS6);
    SBIT__AVX2_PUT(0);
    SBIT__AVX2_PUT(1);
    SBIT__AVX2_PUT(2);
    SBIT__AVX2_PUT(3);
    SBIT__AVX2_PUT(4);
    SBIT__AVX2_PUT(5);
}

SBIT__AVX2 void sbit__tile4x16(int64_t k, const float *a, const sbit__columns8 *columns,
                               bool indirect, bool edge, float *tile)
{
    SBIT__AVX2_ZERO(0);
    SBIT__AVX2_ZERO(1);
    SBIT__AVX2_ZERO(2);
    SBIT__AVX2_ZERO(3);
    SBIT__AVX2_SUMS(SBIT__AVX2_ROWS4);
    SBIT__AVX2_PUT(0);
    SBIT__AVX2_PUT(1);
    SBIT__AVX2_PUT(2);
    SBIT__AVX2_PUT(3);
}

SBIT__AVX2 void sbit__tile2x16(int64_t k, const float *a, const sbit__columns8 *columns,
                               bool indirect, bool edge, float *tile)
{
    SBIT__AVX2_ZERO(0);
    SBIT__AVX2_ZERO(1);
    SBIT__AVX2_SUMS(SBIT__AVX2_ROWS2);
    SBIT__AVX2_PUT(0);
    SBIT__AVX2_PUT(1);
}

#undef SBIT__AVX2_ZERO
#undef SBIT__AVX2_FMA
#undef SBIT__AVX2_STEP
#undef SBIT__AVX2_PUT

/* One vector a row: the left half only. */
#define SBIT__AVX2_FMA(i) s##i = _mm256_fmadd_ps(_mm256_broadcast_ss(from + (i)), b0, s##i)
#define SBIT__AVX2_STEP(rows, p)                                                                   \
    do {                                                                                           \
        const float *from = a + (p)*SBIT__AVX2_TILE_M;                                             \
        const int64_t at = indirect ? offsets[p] : (p)*stride;                                     \
        const __m256 b0 = sbit__load8_if(left + at, mask0, edge);                                  \
        rows;                                                                                      \
    } while (0)

SBIT__AVX2 void sbit__tile6x8(int64_t k, const float *a, const sbit__columns8 *columns,
                              bool indirect, bool edge, float *tile)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0;
    SBIT__AVX2_SUMS(SBIT__AVX2_ROWS6);
    (void)right;
    (void)mask1;
    _mm256_store_ps(tile, s0);
    _mm256_store_ps(tile + 16, s1);
    _mm256_store_ps(tile + 32, s2);
    _mm256_store_ps(tile + 48, s3);
    _mm256_store_ps(tile + 64, s4);
    _mm256_store_ps(tile + 80, s5);
}
#undef SBIT__AVX2_FMA
#undef SBIT__AVX2_ROWS2
#undef SBIT__AVX2_ROWS4
#undef SBIT__AVX2_ROWS6
#undef SBIT__AVX2_STEP
#undef SBIT__AVX2_SUMS

SBIT__AVX2 void sbit__tile_sums8(int64_t m, int64_t n, int64_t k, const float *a,
                                 const sbit__columns8 *columns, bool indirect, bool edge,
                                 float *tile)
{
    if (n <= 8) {
        sbit__tile6x8(k, a, columns, indirect, edge, tile);
    } else if (m > 4) {
        sbit__tile6x16(k, a, columns, indirect, edge, tile);
    } else if (m > 2) {
        sbit__tile4x16(k, a, columns, indirect, edge, tile);
    } else {
        sbit__tile2x16(k, a, columns, indirect, edge, tile);
    }
}

/* What happens to the sums of a tile; its halves may go to different places. */
typedef struct sbit__tile_out8 {
    float *left, *right;
    int64_t n_left, n_right, ldc;
    bool add, bias_rows;
    const float *bias;
    const sbit__epilogue *ep;
} sbit__tile_out8;

/* What is stored to later: fetched during the sums. */
SBIT__AVX2 void sbit__tile_fetch8(int64_t m, const sbit__tile_out8 *out)
{
    for (int64_t i = 0; i < m; i++) {
        _mm_prefetch((const char *)(out->left + i * out->ldc), _MM_HINT_T0);
        if (out->n_right > 0) {
            const float *end = out->right + i * out->ldc + out->n_right - 1;
            _mm_prefetch((const char *)end, _MM_HINT_T0);
        }
    }
}

SBIT__AVX2 __m256 sbit__tile_vector8(__m256 v, const float *c, int64_t n, bool add, __m256 bias,
                                     const float *residual)
{
    v = _mm256_add_ps(add ? _mm256_add_ps(v, sbit__load8(c, n)) : v, bias);
    return residual != NULL ? _mm256_add_ps(v, sbit__load8(residual, n)) : v;
}

SBIT__AVX2_FN static void sbit__tile_put8(int64_t m, __m256 tile[][2], const sbit__tile_out8 *out)
{
    const sbit__tile_out8 o = *out;
    const bool clamp = o.ep != NULL && o.ep->activation == SBIT__ACT_CLAMP;
    const float *residual = o.ep != NULL ? o.ep->residual : NULL;
    const int64_t apart = residual != NULL && o.n_right > 0 ? o.right - o.left : 0;
    const __m256 inf = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
    const __m256 lo = clamp ? sbit__set8(o.ep->lo) : _mm256_xor_ps(inf, sbit__set8(-0.0f));
    const __m256 hi = clamp ? sbit__set8(o.ep->hi) : inf;
    const bool full = o.n_left == 8 && o.n_right == 8;
    __m256 bias0 = _mm256_setzero_ps(), bias1 = bias0;
    if (o.bias != NULL && !o.bias_rows) {
        bias0 = sbit__load8(o.bias, o.n_left);
        bias1 = o.n_right > 0 ? sbit__load8(o.bias + 8, o.n_right) : bias0;
    }
    for (int64_t i = 0; i < m; i++) {
        float *left = o.left + i * o.ldc, *right = o.right + i * o.ldc;
        const float *more = residual != NULL ? residual + i * o.ldc : NULL;
        if (o.bias != NULL && o.bias_rows) {
            bias0 = bias1 = _mm256_broadcast_ss(o.bias + i);
        }
        if (full) {
            const __m256 v = sbit__tile_vector8(tile[i][0], left, 8, o.add, bias0, more);
            const __m256 w = sbit__tile_vector8(tile[i][1], right, 8, o.add, bias1,
                                                more != NULL ? more + apart : NULL);
            _mm256_storeu_ps(left, sbit__clamp8(v, lo, hi));
            _mm256_storeu_ps(right, sbit__clamp8(w, lo, hi));
        } else {
            const __m256 v = sbit__tile_vector8(tile[i][0], left, o.n_left, o.add, bias0, more);
            sbit__store8(left, o.n_left, sbit__clamp8(v, lo, hi));
            if (o.n_right > 0) {
                const __m256 w = sbit__tile_vector8(tile[i][1], right, o.n_right, o.add, bias1,
                                                    more != NULL ? more + apart : NULL);
                sbit__store8(right, o.n_right, sbit__clamp8(w, lo, hi));
            }
        }
        if (o.ep != NULL && o.ep->activation > SBIT__ACT_CLAMP) {
            sbit__f32_activate__avx2(o.n_left, left, o.ep);
            sbit__f32_activate__avx2(o.n_right, right, o.ep);
        }
    }
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_gemm_tile__avx2(int64_t m, int64_t n, int64_t k,
                                                      const float *a, const float *b, int64_t ldb,
                                                      float *c, int64_t ldc, bool add,
                                                      const float *bias, bool bias_rows,
                                                      const sbit__epilogue *ep)
{
    __m256 tile[SBIT__AVX2_TILE_M][2]; /* through memory: rows are counted at run time */
    const int64_t n_left = sbit__smaller(n, 8);
    const sbit__columns8 columns = {b, b + 8, NULL, ldb, sbit__mask8(n), sbit__mask8(n - 8)};
    const sbit__tile_out8 out = {c, c + 8, n_left, n - n_left, ldc, add, bias_rows, bias, ep};
    sbit__tile_fetch8(m, &out);
    if (n == SBIT__AVX2_TILE_N || n == 8) {
        sbit__tile_sums8(m, n, k, a, &columns, false, false, (float *)tile);
    } else {
        sbit__tile_sums8(m, n, k, a, &columns, false, true, (float *)tile);
    }
    sbit__tile_put8(m, tile, &out);
}

#define SBIT__AVX2_PANEL(i)                                                                        \
    s##i##0 = _mm256_fmadd_ps(w, _mm256_loadu_ps(b + (i)*stride), s##i##0);                        \
    s##i##1 = _mm256_fmadd_ps(w, _mm256_loadu_ps(b + (i)*stride + 8), s##i##1)
#define SBIT__AVX2_ROW_SUMS(i)                                                                     \
    _mm256_storeu_ps(sums + 16 * (i), s##i##0);                                                    \
    _mm256_storeu_ps(sums + 16 * (i) + 8, s##i##1)

SBIT__AVX2_FN SBIT__FN void sbit__f32_gemm_row__avx2(int64_t panels, int64_t k, const float *a,
                                                     const float *b, int64_t stride, float *sums)
{
    const float *end = a + k;
    if (panels == 4) {
        __m256 s00 = _mm256_setzero_ps(), s01 = s00, s10 = s00, s11 = s00;
        __m256 s20 = s00, s21 = s00, s30 = s00, s31 = s00;
        for (; a < end; a++, b += SBIT__AVX2_TILE_N) {
            const __m256 w = _mm256_broadcast_ss(a);
            SBIT__AVX2_PANEL(0);
            SBIT__AVX2_PANEL(1);
            SBIT__AVX2_PANEL(2);
            SBIT__AVX2_PANEL(3);
        }
        SBIT__AVX2_ROW_SUMS(0);
        SBIT__AVX2_ROW_SUMS(1);
        SBIT__AVX2_ROW_SUMS(2);
        SBIT__AVX2_ROW_SUMS(3);
        return;
    }
    for (int64_t i = 0; i < panels; i++, b += stride, sums += SBIT__AVX2_TILE_N) {
        __m256 s0 = _mm256_setzero_ps(), s1 = s0;
        for (int64_t p = 0; p < k; p++) {
            const __m256 w = _mm256_broadcast_ss(a + p);
            s0 = _mm256_fmadd_ps(w, _mm256_loadu_ps(b + SBIT__AVX2_TILE_N * p), s0);
            s1 = _mm256_fmadd_ps(w, _mm256_loadu_ps(b + SBIT__AVX2_TILE_N * p + 8), s1);
        }
        _mm256_storeu_ps(sums, s0);
        _mm256_storeu_ps(sums + 8, s1);
    }
}
#undef SBIT__AVX2_PANEL
#undef SBIT__AVX2_ROW_SUMS

SBIT__AVX2_FN SBIT__FN void sbit__f32_conv_tile__avx2(int64_t m, int64_t k, const float *a,
                                                      const int32_t *offsets, const float *b_left,
                                                      const float *b_right, float *c_left,
                                                      int64_t n_left, float *c_right,
                                                      int64_t n_right, int64_t ldc, bool add,
                                                      const float *bias, const sbit__epilogue *ep)
{
    __m256 tile[SBIT__AVX2_TILE_M][2];
    const __m256i none = _mm256_setzero_si256();
    const sbit__columns8 columns = {b_left, b_right, offsets, 0, none, none};
    const sbit__tile_out8 out = {c_left, c_right, n_left, n_right, ldc, add, true, bias, ep};
    sbit__tile_fetch8(m, &out);
    sbit__tile_sums8(m, n_right > 0 ? 16 : 8, k, a, &columns, true, false, (float *)tile);
    sbit__tile_put8(m, tile, &out);
}

/* >>depthwise row */

/* One tap of 8 outputs. stride 2: every second of p[0..14], as 0 2 8 10 4 6 12 14 without reading
 * beyond p[14]; sums stay in that order until they are stored. */
SBIT__AVX2 __m256 sbit__tap8(const float *p, int64_t stride)
{
    if (stride == 1) {
        return _mm256_loadu_ps(p);
    }
    if (stride == 2) {
        return _mm256_shuffle_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 7),
                                 _MM_SHUFFLE(3, 1, 2, 0));
    }
    return _mm256_setr_ps(p[0], p[stride], p[2 * stride], p[3 * stride], p[4 * stride],
                          p[5 * stride], p[6 * stride], p[7 * stride]);
}

SBIT__AVX2 __m256 sbit__ordered8(__m256 v, int64_t stride)
{
    return stride == 2 ? _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)) : v;
}

typedef struct sbit__row8 {
    int64_t kh, kw, dilation;
    const float *const *rows;
    const float *weights;
    float bias, lo, hi;
    const float *residual;
    float *y;
} sbit__row8;

SBIT__AVX2 void sbit__row8_put(const sbit__row8 *r, int64_t x, __m256 v)
{
    if (r->residual != NULL) {
        v = _mm256_add_ps(v, _mm256_loadu_ps(r->residual + x));
    }
    _mm256_storeu_ps(r->y + x, sbit__clamp8(v, sbit__set8(r->lo), sbit__set8(r->hi)));
}

/* 32 outputs from x on, then 8. The order of the sum is the same in both. */
SBIT__AVX2 void sbit__row8_block32(const sbit__row8 *r, int64_t x, int64_t stride)
{
    __m256 s0 = sbit__set8(r->bias), s1 = s0, s2 = s0, s3 = s0;
    const float *w = r->weights;
    for (int64_t i = 0; i < r->kh; i++) {
        const float *p = r->rows[i] + x * stride;
        for (int64_t j = 0; j < r->kw; j++, w++, p += r->dilation) {
            const __m256 v = _mm256_broadcast_ss(w);
            s0 = _mm256_fmadd_ps(v, sbit__tap8(p, stride), s0);
            s1 = _mm256_fmadd_ps(v, sbit__tap8(p + 8 * stride, stride), s1);
            s2 = _mm256_fmadd_ps(v, sbit__tap8(p + 16 * stride, stride), s2);
            s3 = _mm256_fmadd_ps(v, sbit__tap8(p + 24 * stride, stride), s3);
        }
    }
    sbit__row8_put(r, x, sbit__ordered8(s0, stride));
    sbit__row8_put(r, x + 8, sbit__ordered8(s1, stride));
    sbit__row8_put(r, x + 16, sbit__ordered8(s2, stride));
    sbit__row8_put(r, x + 24, sbit__ordered8(s3, stride));
}

SBIT__AVX2 void sbit__row8_block8(const sbit__row8 *r, int64_t x, int64_t stride)
{
    __m256 s = sbit__set8(r->bias);
    const float *w = r->weights;
    for (int64_t i = 0; i < r->kh; i++) {
        const float *p = r->rows[i] + x * stride;
        for (int64_t j = 0; j < r->kw; j++, w++, p += r->dilation) {
            s = _mm256_fmadd_ps(_mm256_broadcast_ss(w), sbit__tap8(p, stride), s);
        }
    }
    sbit__row8_put(r, x, sbit__ordered8(s, stride));
}

SBIT__AVX2 void sbit__row8_all(const sbit__row8 *r, int64_t out_w, int64_t stride)
{
    int64_t x = 0;
    for (; x + 32 <= out_w; x += 32) {
        sbit__row8_block32(r, x, stride);
    }
    for (; x + 8 <= out_w; x += 8) {
        sbit__row8_block8(r, x, stride);
    }
    if (x < out_w) { /* once more over the last 8: y does not overlap what is read */
        sbit__row8_block8(r, out_w - 8, stride);
    }
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_depthwise_row__avx2(int64_t out_w, int64_t kh, int64_t kw,
                                                          int64_t stride_w, int64_t dilation_w,
                                                          const float *const *rows,
                                                          const float *weights, float bias,
                                                          float *y, const sbit__epilogue *ep)
{
    if (out_w < 8) {
        sbit__f32_depthwise_row__ref(out_w, kh, kw, stride_w, dilation_w, rows, weights, bias, y,
                                     ep);
        return;
    }
    const float inf = _mm256_cvtss_f32(_mm256_div_ps(sbit__set8(1.0f), _mm256_setzero_ps()));
    const bool clamp = ep != NULL && ep->activation == SBIT__ACT_CLAMP;
    sbit__row8 r;
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
        sbit__row8_all(&r, out_w, 1);
    } else if (stride_w == 2) {
        sbit__row8_all(&r, out_w, 2);
    } else {
        sbit__row8_all(&r, out_w, stride_w);
    }
    if (ep != NULL && ep->activation > SBIT__ACT_CLAMP) {
        sbit__f32_activate__avx2(out_w, y, ep);
    }
}

/* >>depthwise plane: blocks of 8 columns */
enum {
    SBIT__PLANE8_MASKS =
        8 /* columns of a kernel whose masks are kept; others are made when needed */
};

typedef struct sbit__plane8 {
    const sbit__depthwise *d;
    const float *x, *weights, *residual;
    __m256 bias, lo, hi;
    float *y;
    int64_t column, n; /* the block's first output column; how many are stored */
    bool edge;         /* some of its taps lie left or right of the image */
    __m256i mask[SBIT__PLANE8_MASKS], mask_high[SBIT__PLANE8_MASKS]; /* of taps at an edge */
} sbit__plane8;

/* Lanes begin <= i < end. */
SBIT__AVX2 __m256i sbit__span8(int64_t begin, int64_t end)
{
    const __m256i below = sbit__mask8(sbit__larger(begin, 0));
    return _mm256_andnot_si256(below, sbit__mask8(end));
}

/* Tap j: columns at, at + stride ... of a line, zeros outside of the image. The stride is 1, or 2:
 * in the order of sbit__tap8. */
SBIT__AVX2 __m256 sbit__plane8_tap(const sbit__plane8 *p, const float *line, int64_t at, int64_t j,
                                   int64_t stride, bool edge)
{
    const float *from = line + at;
    if (!edge) {
        return sbit__tap8(from, stride);
    }
    const bool kept = j < SBIT__PLANE8_MASKS;
    const __m256 a =
        _mm256_maskload_ps(from, kept ? p->mask[j] : sbit__span8(-at, p->d->in_w - at));
    if (stride == 1) {
        return a;
    }
    const __m256i high = kept ? p->mask_high[j] : sbit__span8(-at - 7, p->d->in_w - at - 7);
    return _mm256_shuffle_ps(a, _mm256_maskload_ps(from + 7, high), _MM_SHUFFLE(3, 1, 2, 0));
}

/* Row iy of the image, or zeros. */
SBIT__AVX2 const float *sbit__plane8_line(const sbit__plane8 *p, int64_t iy)
{
    return iy >= 0 && iy < p->d->in_h ? p->x + iy * p->d->in_w : p->d->zeros;
}

SBIT__AVX2 void sbit__plane8_put(const sbit__plane8 *p, int64_t row, __m256 v)
{
    const int64_t at = row * p->d->out_w + p->column;
    if (p->residual != NULL) {
        v = _mm256_add_ps(v, sbit__load8(p->residual + at, p->n));
    }
    sbit__store8(p->y + at, p->n, sbit__clamp8(v, p->lo, p->hi));
}

/* The block at `column`: where it is, and which lanes of its taps lie in the image. */
SBIT__AVX2 void sbit__plane8_move(sbit__plane8 *p, int64_t column)
{
    const sbit__depthwise *d = p->d;
    const int64_t at = column * d->stride_w - d->pad_w;
    const int64_t reach = (d->kw - 1) * d->dilation_w + 7 * d->stride_w;
    p->column = column;
    p->n = sbit__smaller(d->out_w - column, 8);
    p->edge = at < 0 || at + reach >= d->in_w;
    for (int64_t j = 0; j < d->kw && j < SBIT__PLANE8_MASKS && p->edge; j++) {
        const int64_t begin = -(at + j * d->dilation_w), end = begin + d->in_w;
        p->mask[j] = sbit__span8(begin, end);
        p->mask_high[j] = sbit__span8(begin - 7, end - 7);
    }
}

/* 3 x 3 without strides, down a block of columns: each input row is loaded once and used for the
 * three outputs above. */
SBIT__AVX2 void sbit__plane8_3x3(const sbit__plane8 *p, int64_t row0, int64_t row1, bool edge,
                                 int64_t n)
{
    const float *w = p->weights, *residual = p->residual;
    const int64_t at = p->column - p->d->pad_w, in_w = p->d->in_w, out_w = p->d->out_w;
    const int64_t below = p->d->in_h + p->d->pad_h; /* rows are counted from the padding's first */
    const __m256 w0 = sbit__set8(w[0]), w1 = sbit__set8(w[1]), w2 = sbit__set8(w[2]);
    const __m256 w3 = sbit__set8(w[3]), w4 = sbit__set8(w[4]), w5 = sbit__set8(w[5]);
    const __m256 w6 = sbit__set8(w[6]), w7 = sbit__set8(w[7]), w8 = sbit__set8(w[8]);
    const __m256 bias = p->bias, lo = p->lo, hi = p->hi;
    __m256 second = bias, first = bias; /* outputs that one or two rows are still missing */
    int64_t place = (row0 - 2) * out_w + p->column;
    for (int64_t row = row0, end; row < row1 + 2; row = end) {
        const bool outside = row < p->d->pad_h || row >= below;
        const float *line = outside ? p->d->zeros : p->x + (row - p->d->pad_h) * in_w;
        end = row < p->d->pad_h ? p->d->pad_h : row < below ? below : row1 + 2;
        end = sbit__smaller(end, row1 + 2);
        for (; row < end; row++, line += outside ? 0 : in_w, place += out_w) {
            const __m256 a = sbit__plane8_tap(p, line, at, 0, 1, edge);
            const __m256 b = sbit__plane8_tap(p, line, at + 1, 1, 1, edge);
            const __m256 c = sbit__plane8_tap(p, line, at + 2, 2, 1, edge);
            __m256 done = _mm256_fmadd_ps(w6, a, second);
            second = _mm256_fmadd_ps(w3, a, first);
            first = _mm256_fmadd_ps(w0, a, bias);
            done = _mm256_fmadd_ps(w7, b, done);
            second = _mm256_fmadd_ps(w4, b, second);
            first = _mm256_fmadd_ps(w1, b, first);
            done = _mm256_fmadd_ps(w8, c, done);
            second = _mm256_fmadd_ps(w5, c, second);
            first = _mm256_fmadd_ps(w2, c, first);
            if (row < row0 + 2) {
                continue;
            }
            if (residual != NULL) {
                done = _mm256_add_ps(done, sbit__load8(residual + place, n));
            }
            sbit__store8(p->y + place, n, sbit__clamp8(done, lo, hi));
        }
    }
}

SBIT__AVX2 void sbit__plane8_3x3_all(sbit__plane8 *p, int64_t row0, int64_t row1)
{
    for (int64_t column = 0; column < p->d->out_w; column += 8) {
        sbit__plane8_move(p, column);
        if (!p->edge && p->n == 8) {
            sbit__plane8_3x3(p, row0, row1, false, 8);
        } else if (p->n == 8) {
            sbit__plane8_3x3(p, row0, row1, true, 8);
        } else {
            sbit__plane8_3x3(p, row0, row1, true, p->n);
        }
    }
}

/* Any kernel: `count` <= 8 output rows from `row` on share each weight. */
#define SBIT__PLANE8_LINE(r)                                                                       \
    const float *x##r =                                                                            \
        inside ? x + (r)*step : sbit__plane8_line(p, r < count ? iy + (r)*d->stride_h : -1)
#define SBIT__PLANE8_TAP(r)                                                                        \
    s##r = _mm256_fmadd_ps(v, sbit__plane8_tap(p, x##r, at, j, stride, edge), s##r)
#define SBIT__PLANE8_8(what)                                                                       \
    what(0);                                                                                       \
    what(1);                                                                                       \
    what(2);                                                                                       \
    what(3);                                                                                       \
    what(4);                                                                                       \
    what(5);                                                                                       \
    what(6);                                                                                       \
    what(7)

SBIT__AVX2 void sbit__plane8_rows(const sbit__plane8 *p, int64_t row, int64_t count, int64_t stride,
                                  bool edge)
{
    const sbit__depthwise *d = p->d;
    const float *w = p->weights;
    const int64_t step = d->stride_h * d->in_w;
    __m256 s0 = p->bias, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    int64_t iy = row * d->stride_h - d->pad_h;
    for (int64_t i = 0; i < d->kh; i++, iy += d->dilation_h) {
        const bool inside = count == 8 && iy >= 0 && iy + 7 * d->stride_h < d->in_h;
        const float *x = sbit__plane8_line(p, iy);
        SBIT__PLANE8_8(SBIT__PLANE8_LINE);
        int64_t at = p->column * stride - d->pad_w;
        for (int64_t j = 0; j < d->kw; j++, w++, at += d->dilation_w) {
            const __m256 v = _mm256_broadcast_ss(w);
            SBIT__PLANE8_8(SBIT__PLANE8_TAP);
        }
    }
    const __m256 sums[8] = {s0, s1, s2, s3, s4, s5, s6, s7};
    for (int64_t r = 0; r < count; r++) {
        sbit__plane8_put(p, row + r, sbit__ordered8(sums[r], stride));
    }
}
#undef SBIT__PLANE8_LINE
#undef SBIT__PLANE8_TAP
#undef SBIT__PLANE8_8

SBIT__AVX2 void sbit__plane8_all(sbit__plane8 *p, int64_t row0, int64_t row1, int64_t stride)
{
    for (int64_t row = row0; row < row1; row += 8) {
        for (int64_t column = 0; column < p->d->out_w; column += 8) {
            sbit__plane8_move(p, column);
            if (p->edge) {
                sbit__plane8_rows(p, row, sbit__smaller(row1 - row, 8), stride, true);
            } else {
                sbit__plane8_rows(p, row, sbit__smaller(row1 - row, 8), stride, false);
            }
        }
    }
}

SBIT__AVX2_FN SBIT__FN void sbit__f32_depthwise_plane__avx2(const sbit__depthwise *d, int64_t row0,
                                                            int64_t row1, const float *x,
                                                            const float *weights, float bias,
                                                            float *y, const sbit__epilogue *ep)
{
    if (d->stride_w > 2) {
        sbit__f32_depthwise_plane__ref(d, row0, row1, x, weights, bias, y, ep);
        return;
    }
    const bool clamp = ep != NULL && ep->activation == SBIT__ACT_CLAMP;
    const __m256 inf = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
    sbit__plane8 p;
    p.d = d;
    p.x = x;
    p.weights = weights;
    p.residual = ep != NULL ? ep->residual : NULL;
    p.bias = sbit__set8(bias);
    p.lo = clamp ? sbit__set8(ep->lo) : _mm256_sub_ps(sbit__set8(0.0f), inf);
    p.hi = clamp ? sbit__set8(ep->hi) : inf;
    p.y = y;
    if (d->kh == 3 && d->kw == 3 && d->stride_h == 1 && d->stride_w == 1 && d->dilation_h == 1 &&
        d->dilation_w == 1) {
        sbit__plane8_3x3_all(&p, row0, row1);
    } else if (d->stride_w == 1) {
        sbit__plane8_all(&p, row0, row1, 1);
    } else {
        sbit__plane8_all(&p, row0, row1, 2);
    }
    if (ep != NULL && ep->activation > SBIT__ACT_CLAMP) {
        sbit__f32_activate__avx2((row1 - row0) * d->out_w, y + row0 * d->out_w, ep);
    }
}

#undef SBIT__AVX2
#undef SBIT__AVX2_FN

#endif /* SBIT__X86 */
