/* vector128.c: kernels for sets of 128-bit vectors: SSE2, and NEON of 64-bit ARM. >>kernels_128
 *
 * Called by: dispatch. Calls: reference (what is a hole, some tails).
 * A first part names the few vector operations that differ between the sets, the rest is written
 * once: only one of the sets can be compiled in. 32-bit ARM uses the scalar kernels: its NEON
 * flushes small numbers to zero and cannot divide.
 *
 * Partial vectors at the end of an array go through the same code as full ones, so a value does
 * not depend on where it stands. Mathematics: see x86_avx2.c.
 */
#include "rows_private.h"

#if SBIT__HAS_128

/* >>operations */
#if SBIT__X86
#include <emmintrin.h> /* SSE2 */

#define SBIT__V4 SBIT__TARGET("sse2") SBIT__INLINE
#define SBIT__V4_FN SBIT__TARGET("sse2") SBIT__FN
typedef __m128 sbit__v4;
typedef __m128i sbit__i4;

SBIT__V4 sbit__v4 sbit__v4_set(float x)
{
    return _mm_set1_ps(x);
}
SBIT__V4 sbit__v4 sbit__v4_load(const float *x)
{
    return _mm_loadu_ps(x);
}
SBIT__V4 void sbit__v4_store(float *y, sbit__v4 v)
{
    _mm_storeu_ps(y, v);
}
SBIT__V4 sbit__v4 sbit__v4_add(sbit__v4 a, sbit__v4 b)
{
    return _mm_add_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_sub(sbit__v4 a, sbit__v4 b)
{
    return _mm_sub_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_mul(sbit__v4 a, sbit__v4 b)
{
    return _mm_mul_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_div(sbit__v4 a, sbit__v4 b)
{
    return _mm_div_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_sqrt(sbit__v4 a)
{
    return _mm_sqrt_ps(a);
}
/* a * b + c, rounded once or twice */
SBIT__V4 sbit__v4 sbit__v4_madd(sbit__v4 a, sbit__v4 b, sbit__v4 c)
{
    return _mm_add_ps(_mm_mul_ps(a, b), c);
}
/* a < b ? a : b: b if one is a NaN */
SBIT__V4 sbit__v4 sbit__v4_least(sbit__v4 a, sbit__v4 b)
{
    return _mm_min_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_most(sbit__v4 a, sbit__v4 b)
{
    return _mm_max_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_less(sbit__v4 a, sbit__v4 b)
{
    return _mm_cmplt_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_equal(sbit__v4 a, sbit__v4 b)
{
    return _mm_cmpeq_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_and(sbit__v4 a, sbit__v4 b)
{
    return _mm_and_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_or(sbit__v4 a, sbit__v4 b)
{
    return _mm_or_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_xor(sbit__v4 a, sbit__v4 b)
{
    return _mm_xor_ps(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_select(sbit__v4 mask, sbit__v4 a, sbit__v4 b)
{
    return _mm_or_ps(_mm_and_ps(mask, a), _mm_andnot_ps(mask, b));
}
SBIT__V4 bool sbit__v4_all(sbit__v4 mask)
{
    return _mm_movemask_ps(mask) == 15;
}
SBIT__V4 sbit__i4 sbit__i4_set(int32_t x)
{
    return _mm_set1_epi32(x);
}
SBIT__V4 sbit__i4 sbit__i4_add(sbit__i4 a, sbit__i4 b)
{
    return _mm_add_epi32(a, b);
}
SBIT__V4 sbit__i4 sbit__i4_sub(sbit__i4 a, sbit__i4 b)
{
    return _mm_sub_epi32(a, b);
}
SBIT__V4 sbit__i4 sbit__i4_half(sbit__i4 a)
{
    return _mm_srai_epi32(a, 1);
}
SBIT__V4 sbit__i4 sbit__i4_shift23(sbit__i4 a) /* into the exponent's place */
{
    return _mm_slli_epi32(a, 23);
}
SBIT__V4 sbit__i4 sbit__i4_unshift23(sbit__i4 a)
{
    return _mm_srai_epi32(a, 23);
}
SBIT__V4 sbit__i4 sbit__i4_round(sbit__v4 a) /* half to even; |a| < 2^31 */
{
    return _mm_cvtps_epi32(a);
}
SBIT__V4 sbit__v4 sbit__i4_float(sbit__i4 a)
{
    return _mm_cvtepi32_ps(a);
}
SBIT__V4 sbit__i4 sbit__v4_bits(sbit__v4 a)
{
    return _mm_castps_si128(a);
}
SBIT__V4 sbit__v4 sbit__i4_as_v4(sbit__i4 a)
{
    return _mm_castsi128_ps(a);
}
/* Half to even; SSE2 rounds by way of int32: beyond 2^23 all numbers are whole already. */
SBIT__V4 sbit__v4 sbit__v4_round(sbit__v4 a)
{
    const sbit__v4 sign = _mm_and_ps(a, _mm_set1_ps(-0.0f));
    const sbit__v4 tiny = _mm_cmplt_ps(_mm_xor_ps(a, sign), _mm_set1_ps(8388608.0f));
    const sbit__v4 whole = _mm_or_ps(_mm_cvtepi32_ps(_mm_cvtps_epi32(a)), sign);
    return sbit__v4_select(tiny, whole, a);
}
/* 16 int32 in [-128, 255] to bytes */
SBIT__V4 void sbit__i4_pack16(const sbit__i4 q[4], bool is_signed, unsigned char *y)
{
    const __m128i a = _mm_packs_epi32(q[0], q[1]), b = _mm_packs_epi32(q[2], q[3]);
    _mm_storeu_si128((__m128i *)(void *)y,
                     is_signed ? _mm_packs_epi16(a, b) : _mm_packus_epi16(a, b));
}
SBIT__V4 sbit__i4 sbit__i4_widen(const unsigned char *x, bool is_signed)
{
    int32_t four;
    memcpy(&four, x, 4);
    const __m128i v = _mm_cvtsi32_si128(four), zero = _mm_setzero_si128();
    if (is_signed) { /* each byte to the top of its int32 */
        return _mm_srai_epi32(_mm_unpacklo_epi16(zero, _mm_unpacklo_epi8(zero, v)), 24);
    }
    return _mm_unpacklo_epi16(_mm_unpacklo_epi8(v, zero), zero);
}
/* x[0], x[2], x[4], x[6], reading to x[6] */
SBIT__V4 sbit__v4 sbit__v4_every_second(const float *x)
{
    return _mm_shuffle_ps(_mm_loadu_ps(x), _mm_loadu_ps(x + 3), _MM_SHUFFLE(3, 1, 2, 0));
}

#else
#include <arm_neon.h> /* NEON */

#define SBIT__V4 SBIT__INLINE
#define SBIT__V4_FN SBIT__FN
typedef float32x4_t sbit__v4;
typedef int32x4_t sbit__i4;

SBIT__V4 sbit__v4 sbit__u4_as_v4(uint32x4_t a)
{
    return vreinterpretq_f32_u32(a);
}
SBIT__V4 uint32x4_t sbit__v4_as_u4(sbit__v4 a)
{
    return vreinterpretq_u32_f32(a);
}
SBIT__V4 sbit__v4 sbit__v4_set(float x)
{
    return vdupq_n_f32(x);
}
SBIT__V4 sbit__v4 sbit__v4_load(const float *x)
{
    return vld1q_f32(x);
}
SBIT__V4 void sbit__v4_store(float *y, sbit__v4 v)
{
    vst1q_f32(y, v);
}
SBIT__V4 sbit__v4 sbit__v4_add(sbit__v4 a, sbit__v4 b)
{
    return vaddq_f32(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_sub(sbit__v4 a, sbit__v4 b)
{
    return vsubq_f32(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_mul(sbit__v4 a, sbit__v4 b)
{
    return vmulq_f32(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_div(sbit__v4 a, sbit__v4 b)
{
    return vdivq_f32(a, b);
}
SBIT__V4 sbit__v4 sbit__v4_sqrt(sbit__v4 a)
{
    return vsqrtq_f32(a);
}
SBIT__V4 sbit__v4 sbit__v4_madd(sbit__v4 a, sbit__v4 b, sbit__v4 c)
{
    return vfmaq_f32(c, a, b);
}
SBIT__V4 sbit__v4 sbit__v4_least(sbit__v4 a, sbit__v4 b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
SBIT__V4 sbit__v4 sbit__v4_most(sbit__v4 a, sbit__v4 b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
SBIT__V4 sbit__v4 sbit__v4_less(sbit__v4 a, sbit__v4 b)
{
    return sbit__u4_as_v4(vcltq_f32(a, b));
}
SBIT__V4 sbit__v4 sbit__v4_equal(sbit__v4 a, sbit__v4 b)
{
    return sbit__u4_as_v4(vceqq_f32(a, b));
}
SBIT__V4 sbit__v4 sbit__v4_and(sbit__v4 a, sbit__v4 b)
{
    return sbit__u4_as_v4(vandq_u32(sbit__v4_as_u4(a), sbit__v4_as_u4(b)));
}
SBIT__V4 sbit__v4 sbit__v4_or(sbit__v4 a, sbit__v4 b)
{
    return sbit__u4_as_v4(vorrq_u32(sbit__v4_as_u4(a), sbit__v4_as_u4(b)));
}
SBIT__V4 sbit__v4 sbit__v4_xor(sbit__v4 a, sbit__v4 b)
{
    return sbit__u4_as_v4(veorq_u32(sbit__v4_as_u4(a), sbit__v4_as_u4(b)));
}
SBIT__V4 sbit__v4 sbit__v4_select(sbit__v4 mask, sbit__v4 a, sbit__v4 b)
{
    return vbslq_f32(sbit__v4_as_u4(mask), a, b);
}
SBIT__V4 bool sbit__v4_all(sbit__v4 mask)
{
    return vminvq_u32(sbit__v4_as_u4(mask)) != 0;
}
SBIT__V4 sbit__i4 sbit__i4_set(int32_t x)
{
    return vdupq_n_s32(x);
}
SBIT__V4 sbit__i4 sbit__i4_add(sbit__i4 a, sbit__i4 b)
{
    return vaddq_s32(a, b);
}
SBIT__V4 sbit__i4 sbit__i4_sub(sbit__i4 a, sbit__i4 b)
{
    return vsubq_s32(a, b);
}
SBIT__V4 sbit__i4 sbit__i4_half(sbit__i4 a)
{
    return vshrq_n_s32(a, 1);
}
SBIT__V4 sbit__i4 sbit__i4_shift23(sbit__i4 a)
{
    return vshlq_n_s32(a, 23);
}
SBIT__V4 sbit__i4 sbit__i4_unshift23(sbit__i4 a)
{
    return vshrq_n_s32(a, 23);
}
SBIT__V4 sbit__i4 sbit__i4_round(sbit__v4 a)
{
    return vcvtnq_s32_f32(a);
}
SBIT__V4 sbit__v4 sbit__i4_float(sbit__i4 a)
{
    return vcvtq_f32_s32(a);
}
SBIT__V4 sbit__i4 sbit__v4_bits(sbit__v4 a)
{
    return vreinterpretq_s32_f32(a);
}
SBIT__V4 sbit__v4 sbit__i4_as_v4(sbit__i4 a)
{
    return vreinterpretq_f32_s32(a);
}
SBIT__V4 sbit__v4 sbit__v4_round(sbit__v4 a)
{
    return vrndnq_f32(a);
}
SBIT__V4 void sbit__i4_pack16(const sbit__i4 q[4], bool is_signed, unsigned char *y)
{
    const int16x8_t a = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
    const int16x8_t b = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
    (void)is_signed; /* the low byte is the same */
    vst1q_u8(y, vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(a), vmovn_s16(b))));
}
SBIT__V4 sbit__i4 sbit__i4_widen(const unsigned char *x, bool is_signed)
{
    uint32_t four;
    memcpy(&four, x, 4);
    const uint8x8_t v = vreinterpret_u8_u32(vdup_n_u32(four));
    if (is_signed) {
        return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(v))));
    }
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(v))));
}
SBIT__V4 sbit__v4 sbit__v4_every_second(const float *x)
{
    return vuzp1q_f32(vld1q_f32(x), vextq_f32(vld1q_f32(x + 3), vld1q_f32(x + 3), 1));
}
#endif

/* >>vectors */
SBIT__V4 sbit__v4 sbit__v4_load_part(const float *x, int64_t n)
{
    if (n >= 4) {
        return sbit__v4_load(x);
    }
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t i = 0; i < n; i++) {
        part[i] = x[i];
    }
    return sbit__v4_load(part);
}

SBIT__V4 void sbit__v4_store_part(float *y, int64_t n, sbit__v4 v)
{
    if (n >= 4) {
        sbit__v4_store(y, v);
        return;
    }
    float part[4];
    sbit__v4_store(part, v);
    for (int64_t i = 0; i < n; i++) {
        y[i] = part[i];
    }
}

SBIT__V4 float sbit__v4_sum(sbit__v4 v)
{
    float x[4];
    sbit__v4_store(x, v);
    return (x[0] + x[2]) + (x[1] + x[3]);
}

SBIT__V4 sbit__v4 sbit__v4_clamp(sbit__v4 v, sbit__v4 lo, sbit__v4 hi)
{
    return sbit__v4_least(hi, sbit__v4_most(lo, v)); /* a NaN stays */
}

SBIT__V4 sbit__v4 sbit__v4_sign(sbit__v4 v)
{
    return sbit__v4_and(v, sbit__v4_set(-0.0f));
}

SBIT__V4 sbit__v4 sbit__v4_abs(sbit__v4 v)
{
    return sbit__v4_xor(v, sbit__v4_sign(v));
}

SBIT__V4 sbit__v4 sbit__v4_infinity(void)
{
    return sbit__i4_as_v4(sbit__i4_set(0x7f800000));
}

/* >>functions */
SBIT__V4 sbit__v4 sbit__v4_exp(sbit__v4 x)
{
    const sbit__v4 v = sbit__v4_clamp(x, sbit__v4_set(-104.0f), sbit__v4_set(89.0f));
    const sbit__i4 i = sbit__i4_round(sbit__v4_mul(v, sbit__v4_set(1.44269504f)));
    const sbit__v4 n = sbit__i4_float(i);
    sbit__v4 r = sbit__v4_madd(n, sbit__v4_set(-0.693359375f), v); /* exact */
    r = sbit__v4_madd(n, sbit__v4_set(2.12194440e-4f), r);
    sbit__v4 p = sbit__v4_set(0.00138131448f);
    p = sbit__v4_madd(p, r, sbit__v4_set(0.00836941879f));
    p = sbit__v4_madd(p, r, sbit__v4_set(0.0416684560f));
    p = sbit__v4_madd(p, r, sbit__v4_set(0.166665152f));
    p = sbit__v4_madd(p, r, sbit__v4_set(0.499999940f));
    p = sbit__v4_madd(sbit__v4_mul(r, r), p, r);
    p = sbit__v4_add(p, sbit__v4_set(1.0f));
    const sbit__i4 half = sbit__i4_half(i), rest = sbit__i4_sub(i, half);
    const sbit__i4 bias = sbit__i4_set(127);
    p = sbit__v4_mul(p, sbit__i4_as_v4(sbit__i4_shift23(sbit__i4_add(half, bias))));
    p = sbit__v4_mul(p, sbit__i4_as_v4(sbit__i4_shift23(sbit__i4_add(rest, bias))));
    return sbit__v4_select(sbit__v4_equal(x, x), p, x); /* a NaN has no n */
}

SBIT__V4 sbit__v4 sbit__v4_log(sbit__v4 x)
{
    const sbit__v4 zero = sbit__v4_set(0.0f);
    const sbit__v4 tiny = sbit__v4_less(x, sbit__v4_set(1.17549435e-38f));
    const sbit__v4 v =
        sbit__v4_select(tiny, sbit__v4_mul(x, sbit__v4_set(8388608.0f)), x); /* 2^23 */
    const sbit__i4 bits = sbit__v4_bits(v);
    const sbit__i4 e = sbit__i4_unshift23(sbit__i4_sub(bits, sbit__i4_set(0x3f3504f3)));
    const sbit__v4 f =
        sbit__v4_sub(sbit__i4_as_v4(sbit__i4_sub(bits, sbit__i4_shift23(e))), sbit__v4_set(1.0f));
    const sbit__v4 n = sbit__v4_sub(sbit__i4_float(e), sbit__v4_and(tiny, sbit__v4_set(23.0f)));
    sbit__v4 p = sbit__v4_set(-0.0763449296f);
    p = sbit__v4_madd(p, f, sbit__v4_set(0.127615750f));
    p = sbit__v4_madd(p, f, sbit__v4_set(-0.131601825f));
    p = sbit__v4_madd(p, f, sbit__v4_set(0.142017588f));
    p = sbit__v4_madd(p, f, sbit__v4_set(-0.166233569f));
    p = sbit__v4_madd(p, f, sbit__v4_set(0.200012267f));
    p = sbit__v4_madd(p, f, sbit__v4_set(-0.250008196f));
    p = sbit__v4_madd(p, f, sbit__v4_set(0.333333313f));
    const sbit__v4 f2 = sbit__v4_mul(f, f);
    p = sbit__v4_mul(sbit__v4_mul(p, f), f2);
    p = sbit__v4_madd(n, sbit__v4_set(-2.12194440e-4f), p);
    p = sbit__v4_madd(f2, sbit__v4_set(-0.5f), p);
    p = sbit__v4_madd(n, sbit__v4_set(0.693359375f), sbit__v4_add(f, p));
    /* +inf and NaN are their own logarithms; 0 gives -inf, below is no number. */
    p = sbit__v4_select(sbit__v4_less(x, sbit__v4_infinity()), p, x);
    p = sbit__v4_select(sbit__v4_equal(x, zero), sbit__v4_sub(zero, sbit__v4_infinity()), p);
    return sbit__v4_or(p, sbit__v4_less(x, zero));
}

SBIT__V4 sbit__v4 sbit__v4_sigmoid(sbit__v4 x)
{
    const sbit__v4 one = sbit__v4_set(1.0f);
    const sbit__v4 e = sbit__v4_exp(sbit__v4_xor(x, sbit__v4_set(-0.0f)));
    return sbit__v4_div(one, sbit__v4_add(one, e));
}

SBIT__V4 sbit__v4 sbit__v4_tanh(sbit__v4 x)
{
    const sbit__v4 one = sbit__v4_set(1.0f), ax = sbit__v4_abs(x), x2 = sbit__v4_mul(x, x);
    sbit__v4 p = sbit__v4_set(-0.00570498733f);
    p = sbit__v4_madd(p, x2, sbit__v4_set(0.0206390088f));
    p = sbit__v4_madd(p, x2, sbit__v4_set(-0.0537397154f));
    p = sbit__v4_madd(p, x2, sbit__v4_set(0.133314416f));
    p = sbit__v4_madd(p, x2, sbit__v4_set(-0.333332807f));
    p = sbit__v4_madd(sbit__v4_mul(p, x2), x, x);
    const sbit__v4 e = sbit__v4_exp(sbit__v4_add(ax, ax));
    const sbit__v4 outer =
        sbit__v4_sub(one, sbit__v4_div(sbit__v4_set(2.0f), sbit__v4_add(e, one)));
    return sbit__v4_select(sbit__v4_less(ax, sbit__v4_set(0.625f)), p,
                           sbit__v4_or(outer, sbit__v4_sign(x)));
}

SBIT__V4 sbit__v4 sbit__v4_erfc(sbit__v4 z) /* z >= 0 */
{
    const sbit__v4 one = sbit__v4_set(1.0f);
    const sbit__v4 t = sbit__v4_div(one, sbit__v4_madd(z, sbit__v4_set(0.5f), one));
    sbit__v4 p = sbit__v4_set(0.0157194845f);
    p = sbit__v4_madd(p, t, sbit__v4_set(-0.258466661f));
    p = sbit__v4_madd(p, t, sbit__v4_set(1.12203038f));
    p = sbit__v4_madd(p, t, sbit__v4_set(-2.10042882f));
    p = sbit__v4_madd(p, t, sbit__v4_set(1.63784432f));
    p = sbit__v4_madd(p, t, sbit__v4_set(-0.287685186f));
    p = sbit__v4_madd(p, t, sbit__v4_set(1.15092146f));
    p = sbit__v4_madd(p, t, sbit__v4_set(-1.27993488f));
    return sbit__v4_mul(t, sbit__v4_exp(sbit__v4_sub(p, sbit__v4_mul(z, z))));
}

SBIT__V4 sbit__v4 sbit__v4_erf(sbit__v4 x)
{
    const sbit__v4 ax = sbit__v4_abs(x), x2 = sbit__v4_mul(x, x);
    sbit__v4 p = sbit__v4_set(-0.000609039795f);
    p = sbit__v4_madd(p, x2, sbit__v4_set(0.00501197157f));
    p = sbit__v4_madd(p, x2, sbit__v4_set(-0.0267789159f));
    p = sbit__v4_madd(p, x2, sbit__v4_set(0.112821408f));
    p = sbit__v4_madd(p, x2, sbit__v4_set(-0.376125246f));
    p = sbit__v4_madd(p, x2, sbit__v4_set(1.12837911f));
    const sbit__v4 outer = sbit__v4_sub(sbit__v4_set(1.0f), sbit__v4_erfc(ax));
    return sbit__v4_select(sbit__v4_less(ax, sbit__v4_set(0.9f)), sbit__v4_mul(p, x),
                           sbit__v4_or(outer, sbit__v4_sign(x)));
}

/* erfc(-x / sqrt(2)), twice the share of the normal distribution below x */
SBIT__V4 sbit__v4 sbit__v4_normal(sbit__v4 x)
{
    const sbit__v4 c = sbit__v4_erfc(sbit__v4_mul(sbit__v4_abs(x), sbit__v4_set(0.707106781f)));
    const sbit__v4 below = sbit__v4_less(x, sbit__v4_set(0.0f));
    return sbit__v4_select(below, c, sbit__v4_sub(sbit__v4_set(2.0f), c));
}

SBIT__V4 sbit__v4 sbit__v4_gelu(sbit__v4 x)
{
    return sbit__v4_mul(sbit__v4_mul(x, sbit__v4_set(0.5f)), sbit__v4_normal(x));
}

SBIT__V4 sbit__v4 sbit__v4_gelu_slope(sbit__v4 x)
{
    const sbit__v4 minus = sbit__v4_mul(x, sbit__v4_set(-0.5f));
    const sbit__v4 bell = sbit__v4_mul(sbit__v4_set(0.398942280f), sbit__v4_exp(sbit__v4_mul(minus, x)));
    return sbit__v4_add(sbit__v4_mul(x, bell), sbit__v4_mul(sbit__v4_set(0.5f), sbit__v4_normal(x)));
}

SBIT__V4 sbit__v4 sbit__v4_gelu_tanh(sbit__v4 x)
{
    const sbit__v4 x3 = sbit__v4_mul(sbit__v4_mul(x, x), x);
    const sbit__v4 u = sbit__v4_madd(x3, sbit__v4_set(0.044715f), x);
    return sbit__v4_mul(x, sbit__v4_sigmoid(sbit__v4_mul(u, sbit__v4_set(1.59576912f))));
}

SBIT__V4 sbit__v4 sbit__v4_hardswish(sbit__v4 x)
{
    const sbit__v4 gate = sbit__v4_madd(x, sbit__v4_set(1.0f / 6.0f), sbit__v4_set(0.5f));
    return sbit__v4_mul(x, sbit__v4_clamp(gate, sbit__v4_set(0.0f), sbit__v4_set(1.0f)));
}

SBIT__V4 sbit__v4 sbit__v4_softplus(sbit__v4 x)
{
    const sbit__v4 one = sbit__v4_set(1.0f);
    const sbit__v4 e = sbit__v4_exp(sbit__v4_or(x, sbit__v4_set(-0.0f)));
    const sbit__v4 u = sbit__v4_add(one, e); /* log1p: what 1 + e lost is added again */
    const sbit__v4 lost = sbit__v4_div(sbit__v4_sub(e, sbit__v4_sub(u, one)), u);
    return sbit__v4_add(sbit__v4_most(sbit__v4_set(0.0f), x), sbit__v4_add(sbit__v4_log(u), lost));
}

SBIT__V4 sbit__v4 sbit__v4_mish(sbit__v4 x) /* tanh(log(1 + w)) = n / (n + 2), n = w (w + 2) */
{
    const sbit__v4 two = sbit__v4_set(2.0f);
    const sbit__v4 w = sbit__v4_exp(sbit__v4_least(sbit__v4_set(20.0f), x));
    const sbit__v4 n = sbit__v4_mul(w, sbit__v4_add(w, two));
    return sbit__v4_mul(x, sbit__v4_div(n, sbit__v4_add(n, two)));
}

SBIT__V4 sbit__v4 sbit__v4_floor(sbit__v4 x)
{
    const sbit__v4 r = sbit__v4_round(x), one = sbit__v4_set(1.0f);
    return sbit__v4_sub(r, sbit__v4_and(sbit__v4_less(x, r), one));
}

SBIT__V4 sbit__v4 sbit__v4_ceil(sbit__v4 x)
{
    const sbit__v4 r = sbit__v4_round(x), one = sbit__v4_set(1.0f);
    return sbit__v4_or(sbit__v4_add(r, sbit__v4_and(sbit__v4_less(r, x), one)), sbit__v4_sign(x));
}

/* >>elementwise */
#define SBIT__V4_MAP(expr)                                                                         \
    for (int64_t i = 0; i < n; i += 4) {                                                           \
        const sbit__v4 v = sbit__v4_load_part(x + i, n - i);                                       \
        sbit__v4_store_part(y + i, n - i, (expr));                                                 \
    }                                                                                              \
    break

SBIT__V4_FN void SBIT__128(f32_unary)(sbit__unary op, int64_t n, const float *x, float *y)
{
    const sbit__v4 sign = sbit__v4_set(-0.0f), one = sbit__v4_set(1.0f);
    switch (op) {
    case SBIT__UNARY_ABS:
        SBIT__V4_MAP(sbit__v4_abs(v));
    case SBIT__UNARY_NEG:
        SBIT__V4_MAP(sbit__v4_xor(v, sign));
    case SBIT__UNARY_EXP:
        SBIT__V4_MAP(sbit__v4_exp(v));
    case SBIT__UNARY_LOG:
        SBIT__V4_MAP(sbit__v4_log(v));
    case SBIT__UNARY_SQRT:
        SBIT__V4_MAP(sbit__v4_sqrt(v));
    case SBIT__UNARY_RECIPROCAL:
        SBIT__V4_MAP(sbit__v4_div(one, v));
    case SBIT__UNARY_SIGMOID:
        SBIT__V4_MAP(sbit__v4_sigmoid(v));
    case SBIT__UNARY_TANH:
        SBIT__V4_MAP(sbit__v4_tanh(v));
    case SBIT__UNARY_ERF:
        SBIT__V4_MAP(sbit__v4_erf(v));
    case SBIT__UNARY_GELU:
        SBIT__V4_MAP(sbit__v4_gelu(v));
    case SBIT__UNARY_GELU_TANH:
        SBIT__V4_MAP(sbit__v4_gelu_tanh(v));
    case SBIT__UNARY_SILU:
        SBIT__V4_MAP(sbit__v4_mul(v, sbit__v4_sigmoid(v)));
    case SBIT__UNARY_HARDSWISH:
        SBIT__V4_MAP(sbit__v4_hardswish(v));
    case SBIT__UNARY_FLOOR:
        SBIT__V4_MAP(sbit__v4_floor(v));
    case SBIT__UNARY_CEIL:
        SBIT__V4_MAP(sbit__v4_ceil(v));
    case SBIT__UNARY_ROUND:
        SBIT__V4_MAP(sbit__v4_round(v));
    case SBIT__UNARY_SOFTPLUS:
        SBIT__V4_MAP(sbit__v4_softplus(v));
    case SBIT__UNARY_MISH:
        SBIT__V4_MAP(sbit__v4_mish(v));
    case SBIT__UNARY_GELU_SLOPE:
        SBIT__V4_MAP(sbit__v4_gelu_slope(v));
    case SBIT__UNARY_COUNT:
        break;
    }
}

SBIT__V4_FN void SBIT__128(f32_activate)(int64_t n, float *y, const sbit__epilogue *ep)
{
    const float *x = y;
    const sbit__v4 lo = sbit__v4_set(ep->lo), hi = sbit__v4_set(ep->hi), zero = sbit__v4_set(0.0f);
    switch (ep->activation) {
    case SBIT__ACT_CLAMP:
        SBIT__V4_MAP(sbit__v4_clamp(v, lo, hi));
    case SBIT__ACT_HARDSWISH:
        SBIT__V4_MAP(sbit__v4_hardswish(v));
    case SBIT__ACT_SIGMOID:
        SBIT__V4_MAP(sbit__v4_sigmoid(v));
    case SBIT__ACT_SILU:
        SBIT__V4_MAP(sbit__v4_mul(v, sbit__v4_sigmoid(v)));
    case SBIT__ACT_LEAKY:
        SBIT__V4_MAP(sbit__v4_select(sbit__v4_less(v, zero), sbit__v4_mul(v, lo), v));
    case SBIT__ACT_GELU:
        SBIT__V4_MAP(sbit__v4_gelu(v));
    case SBIT__ACT_NONE:
        break;
    }
}

SBIT__V4_FN void SBIT__128(f32_scale_add)(int64_t n, const float *x, float scale, float shift,
                                          float *y)
{
    const sbit__v4 s = sbit__v4_set(scale), t = sbit__v4_set(shift);
    do {
        SBIT__V4_MAP(sbit__v4_madd(v, s, t));
    } while (0);
}
#undef SBIT__V4_MAP

/* The comparisons below give b for a NaN: what is left is a NaN in a. */
SBIT__V4 sbit__v4 sbit__v4_max(sbit__v4 a, sbit__v4 b)
{
    return sbit__v4_select(sbit__v4_equal(a, a), sbit__v4_most(a, b), a);
}

SBIT__V4 sbit__v4 sbit__v4_min(sbit__v4 a, sbit__v4 b)
{
    return sbit__v4_select(sbit__v4_equal(a, a), sbit__v4_least(a, b), a);
}

#define SBIT__V4_MAP2(expr)                                                                        \
    for (int64_t i = 0; i < n; i += 4) {                                                           \
        const sbit__v4 v = step_a != 0 ? sbit__v4_load_part(a + i, n - i) : a0;                    \
        const sbit__v4 w = step_b != 0 ? sbit__v4_load_part(b + i, n - i) : b0;                    \
        sbit__v4_store_part(y + i, n - i, (expr));                                                 \
    }                                                                                              \
    break

SBIT__V4_FN void SBIT__128(f32_binary)(sbit__binary op, int64_t n, const float *a, int64_t step_a,
                                       const float *b, int64_t step_b, float *y)
{
    const sbit__v4 a0 = sbit__v4_set(n > 0 ? *a : 0.0f), b0 = sbit__v4_set(n > 0 ? *b : 0.0f);
    switch (op) {
    case SBIT__BINARY_ADD:
        SBIT__V4_MAP2(sbit__v4_add(v, w));
    case SBIT__BINARY_SUB:
        SBIT__V4_MAP2(sbit__v4_sub(v, w));
    case SBIT__BINARY_MUL:
        SBIT__V4_MAP2(sbit__v4_mul(v, w));
    case SBIT__BINARY_DIV:
        SBIT__V4_MAP2(sbit__v4_div(v, w));
    case SBIT__BINARY_MAX:
        SBIT__V4_MAP2(sbit__v4_max(v, w));
    case SBIT__BINARY_MIN:
        SBIT__V4_MAP2(sbit__v4_min(v, w));
    case SBIT__BINARY_COUNT:
        break;
    }
}
#undef SBIT__V4_MAP2

/* >>reductions: floats in a block, doubles over the blocks. */
enum {
    SBIT__V4_SUM_BLOCK = 256
};

SBIT__V4_FN float SBIT__128(f32_sum)(int64_t n, const float *x)
{
    double sum = 0.0;
    for (int64_t block = 0; block < n; block += SBIT__V4_SUM_BLOCK) {
        const int64_t end = block + sbit__smaller(n - block, SBIT__V4_SUM_BLOCK);
        sbit__v4 s0 = sbit__v4_set(0.0f), s1 = s0;
        int64_t i = block;
        for (; i + 8 <= end; i += 8) {
            s0 = sbit__v4_add(s0, sbit__v4_load(x + i));
            s1 = sbit__v4_add(s1, sbit__v4_load(x + i + 4));
        }
        for (; i < end; i += 4) {
            s0 = sbit__v4_add(s0, sbit__v4_load_part(x + i, end - i));
        }
        sum += (double)sbit__v4_sum(sbit__v4_add(s0, s1));
    }
    return (float)sum;
}

SBIT__V4_FN float SBIT__128(f32_dot)(int64_t n, const float *a, const float *b)
{
    double sum = 0.0;
    for (int64_t block = 0; block < n; block += SBIT__V4_SUM_BLOCK) {
        const int64_t end = block + sbit__smaller(n - block, SBIT__V4_SUM_BLOCK);
        sbit__v4 s0 = sbit__v4_set(0.0f), s1 = s0;
        int64_t i = block;
        for (; i + 8 <= end; i += 8) {
            s0 = sbit__v4_madd(sbit__v4_load(a + i), sbit__v4_load(b + i), s0);
            s1 = sbit__v4_madd(sbit__v4_load(a + i + 4), sbit__v4_load(b + i + 4), s1);
        }
        for (; i < end; i += 4) {
            s0 = sbit__v4_madd(sbit__v4_load_part(a + i, end - i),
                               sbit__v4_load_part(b + i, end - i), s0);
        }
        sum += (double)sbit__v4_sum(sbit__v4_add(s0, s1));
    }
    return (float)sum;
}

SBIT__V4_FN void SBIT__128(f32_minmax)(int64_t n, const float *x, float *min, float *max,
                                       bool *finite)
{
    const sbit__v4 inf = sbit__v4_infinity();
    sbit__v4 lo = inf, hi = sbit__v4_sub(sbit__v4_set(0.0f), inf), bad = sbit__v4_set(0.0f);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const sbit__v4 v = sbit__v4_load(x + i);
        lo = sbit__v4_least(v, lo);
        hi = sbit__v4_most(v, hi);
        bad = sbit__v4_or(bad, sbit__v4_sub(v, v)); /* 0, or NaN for what is not finite */
    }
    float least[4], most[4];
    sbit__v4_store(least, lo);
    sbit__v4_store(most, hi);
    sbit__f32_minmax__ref(n - i, x + i, min, max, finite);
    for (int j = 0; j < 4; j++) {
        *min = least[j] < *min ? least[j] : *min;
        *max = most[j] > *max ? most[j] : *max;
    }
    *finite = *finite && sbit__v4_all(sbit__v4_equal(bad, bad));
}

SBIT__V4_FN float SBIT__128(f32_max)(int64_t n, const float *x)
{
    sbit__v4 hi = sbit__v4_sub(sbit__v4_set(0.0f), sbit__v4_infinity());
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        hi = sbit__v4_max(hi, sbit__v4_load(x + i));
    }
    float all[8];
    sbit__v4_store(all, hi);
    for (int64_t j = 0; j < 4; j++) {
        all[4 + j] = i + j < n ? x[i + j] : all[0];
    }
    return sbit__f32_max__ref(8, all);
}

SBIT__V4_FN void SBIT__128(f32_softmax)(int64_t n, const float *x, float *y)
{
    const sbit__v4 max = sbit__v4_set(SBIT__128(f32_max)(n, x));
    for (int64_t i = 0; i < n; i += 4) {
        const sbit__v4 e = sbit__v4_exp(sbit__v4_sub(sbit__v4_load_part(x + i, n - i), max));
        sbit__v4_store_part(y + i, n - i, e);
    }
    const float sum = SBIT__128(f32_sum)(n, y);
    const sbit__v4 scale = sbit__v4_set(1.0f / sum);
    for (int64_t i = 0; i < n; i += 4) {
        const sbit__v4 e = sbit__v4_load_part(y + i, n - i);
        sbit__v4_store_part(y + i, n - i, sbit__v4_mul(e, scale));
    }
}

/* >>quantization: the clamp comes before the rounding (same result: its bounds are whole), so that
 * the conversion to int32 cannot overflow. */
typedef struct sbit__quantizer4 {
    sbit__v4 scale, lo, hi;
    sbit__i4 zero_point;
} sbit__quantizer4;

SBIT__V4 sbit__quantizer4 sbit__quantizer4_of(float scale, int32_t zero_point, int32_t qmin,
                                              int32_t qmax)
{
    sbit__quantizer4 q;
    q.scale = sbit__v4_set(scale);
    q.lo = sbit__v4_set((float)((int64_t)qmin - zero_point));
    q.hi = sbit__v4_set((float)((int64_t)qmax - zero_point));
    q.zero_point = sbit__i4_set(zero_point);
    return q;
}

/* x / scale, NaN as 0, clamped: not rounded yet */
SBIT__V4 sbit__v4 sbit__quantize4_float(sbit__v4 x, const sbit__quantizer4 *q)
{
    const sbit__v4 v = sbit__v4_div(x, q->scale);
    return sbit__v4_clamp(sbit__v4_and(v, sbit__v4_equal(v, v)), q->lo, q->hi);
}

SBIT__V4 void sbit__quantize4_16(const float *x, const sbit__quantizer4 *q, bool is_signed,
                                 unsigned char *y)
{
    sbit__i4 v[4];
    for (int j = 0; j < 4; j++) {
        const sbit__v4 f = sbit__quantize4_float(sbit__v4_load(x + 4 * j), q);
        v[j] = sbit__i4_add(sbit__i4_round(f), q->zero_point);
    }
    sbit__i4_pack16(v, is_signed, y);
}

SBIT__V4 void sbit__quantize4_bytes(int64_t n, const float *x, const sbit__quantizer4 *q,
                                    bool is_signed, unsigned char *y)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        sbit__quantize4_16(x + i, q, is_signed, y + i);
    }
    if (i < n) {
        float rest[16] = {0.0f};
        unsigned char bytes[16];
        memcpy(rest, x + i, (size_t)(n - i) * sizeof(float));
        sbit__quantize4_16(rest, q, is_signed, bytes);
        memcpy(y + i, bytes, (size_t)(n - i));
    }
}

SBIT__V4_FN void SBIT__128(f32_quantize_u8)(int64_t n, const float *x, float scale,
                                            int32_t zero_point, int32_t qmin, int32_t qmax,
                                            uint8_t *y)
{
    const sbit__quantizer4 q = sbit__quantizer4_of(scale, zero_point, qmin, qmax);
    sbit__quantize4_bytes(n, x, &q, false, y);
}

SBIT__V4_FN void SBIT__128(f32_quantize_s8)(int64_t n, const float *x, float scale,
                                            int32_t zero_point, int32_t qmin, int32_t qmax,
                                            int8_t *y)
{
    const sbit__quantizer4 q = sbit__quantizer4_of(scale, zero_point, qmin, qmax);
    sbit__quantize4_bytes(n, x, &q, true, (unsigned char *)y);
}

SBIT__V4 int64_t sbit__dequantize4(int64_t n, const unsigned char *x, bool is_signed, float scale,
                                   int32_t zero_point, float *y)
{
    const sbit__i4 zp = sbit__i4_set(zero_point);
    const sbit__v4 s = sbit__v4_set(scale);
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const sbit__i4 q = sbit__i4_sub(sbit__i4_widen(x + i, is_signed), zp);
        sbit__v4_store(y + i, sbit__v4_mul(sbit__i4_float(q), s));
    }
    return i;
}

SBIT__V4_FN void SBIT__128(f32_dequantize_u8)(int64_t n, const uint8_t *x, float scale,
                                              int32_t zero_point, float *y)
{
    const int64_t i = sbit__dequantize4(n, x, false, scale, zero_point, y);
    sbit__f32_dequantize_u8__ref(n - i, x + i, scale, zero_point, y + i);
}

SBIT__V4_FN void SBIT__128(f32_dequantize_s8)(int64_t n, const int8_t *x, float scale,
                                              int32_t zero_point, float *y)
{
    const int64_t i = sbit__dequantize4(n, (const unsigned char *)x, true, scale, zero_point, y);
    sbit__f32_dequantize_s8__ref(n - i, x + i, scale, zero_point, y + i);
}

SBIT__V4_FN void SBIT__128(f32_fake_quantize)(int64_t n, const float *x, float scale,
                                              int32_t zero_point, int32_t qmin, int32_t qmax,
                                              float *y)
{
    const sbit__quantizer4 q = sbit__quantizer4_of(scale, zero_point, qmin, qmax);
    for (int64_t i = 0; i < n; i += 4) {
        sbit__v4 v = sbit__quantize4_float(sbit__v4_load_part(x + i, n - i), &q);
        v = sbit__v4_add(sbit__v4_round(v), sbit__v4_set(0.0f)); /* integers have no -0 */
        sbit__v4_store_part(y + i, n - i, sbit__v4_mul(v, q.scale));
    }
}

/* >>matrix tile, 4 x 8; NEON computes 8 rows as twice 4 */
#define SBIT__V4_ROW(i)                                                                            \
    w = sbit__v4_set(a[i]);                                                                        \
    s##i##0 = sbit__v4_madd(w, b0, s##i##0);                                                       \
    s##i##1 = sbit__v4_madd(w, b1, s##i##1)

/* Rows of b: with offsets, at offsets[p] from left and right, all 4 + 4 columns; else at p * stride
 * from left, n columns, and right is left + 4. */
SBIT__V4 void sbit__v4_tile(int64_t k, const float *a, const float *left, const float *right,
                            const int32_t *offsets, int64_t stride, int64_t n, float *tile)
{
    sbit__v4 s00 = sbit__v4_set(0.0f), s01 = s00, s10 = s00, s11 = s00;
    sbit__v4 s20 = s00, s21 = s00, s30 = s00, s31 = s00;
    for (int64_t p = 0; p < k; p++, a += SBIT__128_TILE_M) {
        const int64_t at = offsets != NULL ? offsets[p] : p * stride;
        const sbit__v4 b0 = sbit__v4_load_part(left + at, n);
        const sbit__v4 b1 = n > 4 ? sbit__v4_load_part(right + at, n - 4) : b0;
        sbit__v4 w;
        SBIT__V4_ROW(0);
        SBIT__V4_ROW(1);
        SBIT__V4_ROW(2);
        SBIT__V4_ROW(3);
    }
    sbit__v4_store(tile, s00);
    sbit__v4_store(tile + 4, s01);
    sbit__v4_store(tile + 8, s10);
    sbit__v4_store(tile + 12, s11);
    sbit__v4_store(tile + 16, s20);
    sbit__v4_store(tile + 20, s21);
    sbit__v4_store(tile + 24, s30);
    sbit__v4_store(tile + 28, s31);
}
#undef SBIT__V4_ROW

/* One half of the tile's columns to c. */
SBIT__V4 void sbit__v4_tile_put(int64_t m, const float *tile, float *c, int64_t n, int64_t ldc,
                                bool add, const float *bias, bool bias_rows, const float *residual,
                                const sbit__epilogue *ep)
{
    const bool clamp = ep != NULL && ep->activation == SBIT__ACT_CLAMP;
    const sbit__v4 lo = sbit__v4_set(clamp ? ep->lo : 0.0f);
    const sbit__v4 hi = sbit__v4_set(clamp ? ep->hi : 0.0f);
    for (int64_t i = 0; i < m; i++, c += ldc) {
        sbit__v4 v = sbit__v4_load(tile + 8 * i);
        if (add) {
            v = sbit__v4_add(v, sbit__v4_load_part(c, n));
        }
        if (bias != NULL) {
            v = sbit__v4_add(v, bias_rows ? sbit__v4_set(bias[i]) : sbit__v4_load_part(bias, n));
        }
        if (residual != NULL) {
            v = sbit__v4_add(v, sbit__v4_load_part(residual + i * ldc, n));
        }
        sbit__v4_store_part(c, n, clamp ? sbit__v4_clamp(v, lo, hi) : v);
        if (ep != NULL && ep->activation > SBIT__ACT_CLAMP) {
            SBIT__128(f32_activate)(n, c, ep);
        }
    }
}

SBIT__V4_FN void SBIT__128(f32_gemm_tile)(int64_t m, int64_t n, int64_t k, const float *a,
                                          const float *b, int64_t ldb, float *c, int64_t ldc,
                                          bool add, const float *bias, bool bias_rows,
                                          const sbit__epilogue *ep)
{
    float tile[SBIT__128_TILE_M * SBIT__128_TILE_N];
    const float *residual = ep != NULL ? ep->residual : NULL;
    for (int64_t i = 0; i < m; i += 4) {
        if (n == SBIT__128_TILE_N) {
            sbit__v4_tile(k, a + i, b, b + 4, NULL, ldb, SBIT__128_TILE_N, tile + 8 * i);
        } else {
            sbit__v4_tile(k, a + i, b, b + 4, NULL, ldb, n, tile + 8 * i);
        }
    }
    sbit__v4_tile_put(m, tile, c, sbit__smaller(n, 4), ldc, add, bias, bias_rows, residual, ep);
    if (n > 4) {
        sbit__v4_tile_put(m, tile + 4, c + 4, n - 4, ldc, add,
                          bias != NULL && !bias_rows ? bias + 4 : bias, bias_rows,
                          residual != NULL ? residual + 4 : NULL, ep);
    }
}

#define SBIT__V4_PANEL(i)                                                                          \
    s##i##0 = sbit__v4_madd(w, sbit__v4_load(b + (i)*stride), s##i##0);                            \
    s##i##1 = sbit__v4_madd(w, sbit__v4_load(b + (i)*stride + 4), s##i##1)
#define SBIT__V4_SUMS(i)                                                                           \
    sbit__v4_store(sums + 8 * (i), s##i##0);                                                       \
    sbit__v4_store(sums + 8 * (i) + 4, s##i##1)

SBIT__V4_FN void SBIT__128(f32_gemm_row)(int64_t panels, int64_t k, const float *a, const float *b,
                                         int64_t stride, float *sums)
{
    const float *end = a + k;
    if (panels == 4) {
        sbit__v4 s00 = sbit__v4_set(0.0f), s01 = s00, s10 = s00, s11 = s00;
        sbit__v4 s20 = s00, s21 = s00, s30 = s00, s31 = s00;
        for (; a < end; a++, b += SBIT__128_TILE_N) {
            const sbit__v4 w = sbit__v4_set(*a);
            SBIT__V4_PANEL(0);
            SBIT__V4_PANEL(1);
            SBIT__V4_PANEL(2);
            SBIT__V4_PANEL(3);
        }
        SBIT__V4_SUMS(0);
        SBIT__V4_SUMS(1);
        SBIT__V4_SUMS(2);
        SBIT__V4_SUMS(3);
        return;
    }
    for (int64_t i = 0; i < panels; i++, b += stride, sums += SBIT__128_TILE_N) {
        sbit__v4 s0 = sbit__v4_set(0.0f), s1 = s0;
        for (int64_t p = 0; p < k; p++) {
            const sbit__v4 w = sbit__v4_set(a[p]);
            s0 = sbit__v4_madd(w, sbit__v4_load(b + SBIT__128_TILE_N * p), s0);
            s1 = sbit__v4_madd(w, sbit__v4_load(b + SBIT__128_TILE_N * p + 4), s1);
        }
        sbit__v4_store(sums, s0);
        sbit__v4_store(sums + 4, s1);
    }
}
#undef SBIT__V4_PANEL
#undef SBIT__V4_SUMS

SBIT__V4_FN void SBIT__128(f32_conv_tile)(int64_t m, int64_t k, const float *a,
                                          const int32_t *offsets, const float *b_left,
                                          const float *b_right, float *c_left, int64_t n_left,
                                          float *c_right, int64_t n_right, int64_t ldc, bool add,
                                          const float *bias, const sbit__epilogue *ep)
{
    float tile[SBIT__128_TILE_M * SBIT__128_TILE_N];
    const float *residual = ep != NULL ? ep->residual : NULL;
    for (int64_t i = 0; i < m; i += 4) {
        sbit__v4_tile(k, a + i, b_left, n_right > 0 ? b_right : b_left, offsets, 0,
                      SBIT__128_TILE_N, tile + 8 * i);
    }
    sbit__v4_tile_put(m, tile, c_left, n_left, ldc, add, bias, true, residual, ep);
    if (n_right > 0) {
        sbit__v4_tile_put(m, tile + 4, c_right, n_right, ldc, add, bias, true,
                          residual != NULL ? residual + (c_right - c_left) : NULL, ep);
    }
}

/* >>depthwise row */
SBIT__V4 sbit__v4 sbit__v4_tap(const float *p, int64_t stride)
{
    if (stride == 1) {
        return sbit__v4_load(p);
    }
    if (stride == 2) {
        return sbit__v4_every_second(p);
    }
    const float four[4] = {p[0], p[stride], p[2 * stride], p[3 * stride]};
    return sbit__v4_load(four);
}

/* 4 * `vectors` outputs from x on; the order of a sum does not depend on it. */
SBIT__V4 void sbit__v4_row(int64_t x, int64_t kh, int64_t kw, int64_t stride, int64_t dilation,
                           const float *const *rows, const float *w, float bias, bool two,
                           const float *residual, float *y)
{
    sbit__v4 s0 = sbit__v4_set(bias), s1 = s0;
    for (int64_t i = 0; i < kh; i++) {
        const float *p = rows[i] + x * stride;
        for (int64_t j = 0; j < kw; j++, w++, p += dilation) {
            const sbit__v4 v = sbit__v4_set(*w);
            s0 = sbit__v4_madd(v, sbit__v4_tap(p, stride), s0);
            if (two) {
                s1 = sbit__v4_madd(v, sbit__v4_tap(p + 4 * stride, stride), s1);
            }
        }
    }
    if (residual != NULL) {
        s0 = sbit__v4_add(s0, sbit__v4_load(residual + x));
        s1 = two ? sbit__v4_add(s1, sbit__v4_load(residual + x + 4)) : s1;
    }
    sbit__v4_store(y + x, s0);
    if (two) {
        sbit__v4_store(y + x + 4, s1);
    }
}

SBIT__V4 void sbit__v4_row_all(int64_t out_w, int64_t kh, int64_t kw, int64_t stride,
                               int64_t dilation, const float *const *rows, const float *weights,
                               float bias, const float *residual, float *y)
{
    int64_t x = 0;
    for (; x + 8 <= out_w; x += 8) {
        sbit__v4_row(x, kh, kw, stride, dilation, rows, weights, bias, true, residual, y);
    }
    for (; x < out_w; x += 4) { /* the last 4 perhaps once more: y does not overlap what is read */
        sbit__v4_row(sbit__smaller(x, out_w - 4), kh, kw, stride, dilation, rows, weights, bias,
                     false, residual, y);
    }
}

SBIT__V4_FN void SBIT__128(f32_depthwise_row)(int64_t out_w, int64_t kh, int64_t kw,
                                              int64_t stride_w, int64_t dilation_w,
                                              const float *const *rows, const float *weights,
                                              float bias, float *y, const sbit__epilogue *ep)
{
    const float *residual = ep != NULL ? ep->residual : NULL;
    if (out_w < 4) {
        sbit__f32_depthwise_row__ref(out_w, kh, kw, stride_w, dilation_w, rows, weights, bias, y,
                                     ep);
        return;
    }
    if (stride_w == 1) {
        sbit__v4_row_all(out_w, kh, kw, 1, dilation_w, rows, weights, bias, residual, y);
    } else if (stride_w == 2) {
        sbit__v4_row_all(out_w, kh, kw, 2, dilation_w, rows, weights, bias, residual, y);
    } else {
        sbit__v4_row_all(out_w, kh, kw, stride_w, dilation_w, rows, weights, bias, residual, y);
    }
    if (ep != NULL && ep->activation != SBIT__ACT_NONE) {
        SBIT__128(f32_activate)(out_w, y, ep);
    }
}

/* >>depthwise plane: blocks of 4 columns */
typedef struct sbit__plane4 {
    const sbit__depthwise *d;
    const float *x, *weights, *residual;
    sbit__v4 bias, lo, hi;
    float *y;
    int64_t column, n; /* the block's first output column; how many are stored */
    bool edge;         /* some of its taps lie left or right of the image */
} sbit__plane4;

/* Columns at, at + stride ... of a line, zeros outside of the image. */
static void sbit__plane4_lanes(const sbit__depthwise *d, const float *line, int64_t at,
                               int64_t stride, float lanes[4])
{
    for (int64_t i = 0; i < 4; i++) {
        const int64_t column = at + i * stride;
        lanes[i] = column >= 0 && column < d->in_w ? line[column] : 0.0f;
    }
}

/* Tap j. The stride is 1 or 2. */
SBIT__V4 sbit__v4 sbit__plane4_tap(const sbit__plane4 *p, const float *line, int64_t at, int64_t j,
                                   int64_t stride, bool edge)
{
    (void)j;
    if (!edge || (at >= 0 && at + 3 * stride < p->d->in_w)) {
        return sbit__v4_tap(line + at, stride);
    }
    float lanes[4];
    sbit__plane4_lanes(p->d, line, at, stride, lanes);
    return sbit__v4_load(lanes);
}

/* Row iy of the image, or zeros. */
SBIT__V4 const float *sbit__plane4_line(const sbit__plane4 *p, int64_t iy)
{
    return iy >= 0 && iy < p->d->in_h ? p->x + iy * p->d->in_w : p->d->zeros;
}

SBIT__V4 void sbit__plane4_put(const sbit__plane4 *p, int64_t row, sbit__v4 v)
{
    const int64_t at = row * p->d->out_w + p->column;
    if (p->residual != NULL) {
        v = sbit__v4_add(v, sbit__v4_load_part(p->residual + at, p->n));
    }
    sbit__v4_store_part(p->y + at, p->n, sbit__v4_clamp(v, p->lo, p->hi));
}

/* The block at `column`: where it is, and which lanes of its taps lie in the image. */
SBIT__V4 void sbit__plane4_move(sbit__plane4 *p, int64_t column)
{
    const sbit__depthwise *d = p->d;
    const int64_t at = column * d->stride_w - d->pad_w;
    const int64_t reach = (d->kw - 1) * d->dilation_w + 3 * d->stride_w;
    p->column = column;
    p->n = sbit__smaller(d->out_w - column, 4);
    p->edge = at < 0 || at + reach >= d->in_w;
}

/* 3 x 3 without strides, down a block of columns: each input row is loaded once and used for the
 * three outputs above. */
SBIT__V4 void sbit__plane4_3x3(const sbit__plane4 *p, int64_t row0, int64_t row1, bool edge,
                               int64_t n)
{
    const float *w = p->weights, *residual = p->residual;
    const int64_t at = p->column - p->d->pad_w, in_w = p->d->in_w, out_w = p->d->out_w;
    const int64_t below = p->d->in_h + p->d->pad_h; /* rows are counted from the padding's first */
    const sbit__v4 w0 = sbit__v4_set(w[0]), w1 = sbit__v4_set(w[1]), w2 = sbit__v4_set(w[2]);
    const sbit__v4 w3 = sbit__v4_set(w[3]), w4 = sbit__v4_set(w[4]), w5 = sbit__v4_set(w[5]);
    const sbit__v4 w6 = sbit__v4_set(w[6]), w7 = sbit__v4_set(w[7]), w8 = sbit__v4_set(w[8]);
    const sbit__v4 bias = p->bias, lo = p->lo, hi = p->hi;
    sbit__v4 second = bias, first = bias; /* outputs that one or two rows are still missing */
    int64_t place = (row0 - 2) * out_w + p->column;
    for (int64_t row = row0, end; row < row1 + 2; row = end) {
        const bool outside = row < p->d->pad_h || row >= below;
        const float *line = outside ? p->d->zeros : p->x + (row - p->d->pad_h) * in_w;
        end = row < p->d->pad_h ? p->d->pad_h : row < below ? below : row1 + 2;
        end = sbit__smaller(end, row1 + 2);
        for (; row < end; row++, line += outside ? 0 : in_w, place += out_w) {
            const sbit__v4 a = sbit__plane4_tap(p, line, at, 0, 1, edge);
            const sbit__v4 b = sbit__plane4_tap(p, line, at + 1, 1, 1, edge);
            const sbit__v4 c = sbit__plane4_tap(p, line, at + 2, 2, 1, edge);
            sbit__v4 done = sbit__v4_madd(w6, a, second);
            second = sbit__v4_madd(w3, a, first);
            first = sbit__v4_madd(w0, a, bias);
            done = sbit__v4_madd(w7, b, done);
            second = sbit__v4_madd(w4, b, second);
            first = sbit__v4_madd(w1, b, first);
            done = sbit__v4_madd(w8, c, done);
            second = sbit__v4_madd(w5, c, second);
            first = sbit__v4_madd(w2, c, first);
            if (row < row0 + 2) {
                continue;
            }
            if (residual != NULL) {
                done = sbit__v4_add(done, sbit__v4_load_part(residual + place, n));
            }
            sbit__v4_store_part(p->y + place, n, sbit__v4_clamp(done, lo, hi));
        }
    }
}

SBIT__V4 void sbit__plane4_3x3_all(sbit__plane4 *p, int64_t row0, int64_t row1)
{
    for (int64_t column = 0; column < p->d->out_w; column += 4) {
        sbit__plane4_move(p, column);
        if (!p->edge && p->n == 4) {
            sbit__plane4_3x3(p, row0, row1, false, 4);
        } else if (p->n == 4) {
            sbit__plane4_3x3(p, row0, row1, true, 4);
        } else {
            sbit__plane4_3x3(p, row0, row1, true, p->n);
        }
    }
}

/* Any kernel: `count` <= 8 output rows from `row` on share each weight. */
#define SBIT__PLANE4_LINE(r)                                                                       \
    const float *x##r =                                                                            \
        inside ? x + (r)*step : sbit__plane4_line(p, r < count ? iy + (r)*d->stride_h : -1)
#define SBIT__PLANE4_TAP(r)                                                                        \
    s##r = sbit__v4_madd(v, sbit__plane4_tap(p, x##r, at, j, stride, edge), s##r)
#define SBIT__PLANE4_8(what)                                                                       \
    what(0);                                                                                       \
    what(1);                                                                                       \
    what(2);                                                                                       \
    what(3);                                                                                       \
    what(4);                                                                                       \
    what(5);                                                                                       \
    what(6);                                                                                       \
    what(7)

SBIT__V4 void sbit__plane4_rows(const sbit__plane4 *p, int64_t row, int64_t count, int64_t stride,
                                bool edge)
{
    const sbit__depthwise *d = p->d;
    const float *w = p->weights;
    const int64_t step = d->stride_h * d->in_w;
    sbit__v4 s0 = p->bias, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    int64_t iy = row * d->stride_h - d->pad_h;
    for (int64_t i = 0; i < d->kh; i++, iy += d->dilation_h) {
        const bool inside = count == 8 && iy >= 0 && iy + 7 * d->stride_h < d->in_h;
        const float *x = sbit__plane4_line(p, iy);
        SBIT__PLANE4_8(SBIT__PLANE4_LINE);
        int64_t at = p->column * stride - d->pad_w;
        for (int64_t j = 0; j < d->kw; j++, w++, at += d->dilation_w) {
            const sbit__v4 v = sbit__v4_set(*w);
            SBIT__PLANE4_8(SBIT__PLANE4_TAP);
        }
    }
    const sbit__v4 sums[8] = {s0, s1, s2, s3, s4, s5, s6, s7};
    for (int64_t r = 0; r < count; r++) {
        sbit__plane4_put(p, row + r, sums[r]);
    }
}
#undef SBIT__PLANE4_LINE
#undef SBIT__PLANE4_TAP
#undef SBIT__PLANE4_8

SBIT__V4 void sbit__plane4_all(sbit__plane4 *p, int64_t row0, int64_t row1, int64_t stride)
{
    for (int64_t row = row0; row < row1; row += 8) {
        for (int64_t column = 0; column < p->d->out_w; column += 4) {
            sbit__plane4_move(p, column);
            if (p->edge) {
                sbit__plane4_rows(p, row, sbit__smaller(row1 - row, 8), stride, true);
            } else {
                sbit__plane4_rows(p, row, sbit__smaller(row1 - row, 8), stride, false);
            }
        }
    }
}

SBIT__V4_FN void SBIT__128(f32_depthwise_plane)(const sbit__depthwise *d, int64_t row0,
                                                int64_t row1, const float *x, const float *weights,
                                                float bias, float *y, const sbit__epilogue *ep)
{
    if (d->stride_w > 2) {
        sbit__f32_depthwise_plane__ref(d, row0, row1, x, weights, bias, y, ep);
        return;
    }
    const bool clamp = ep != NULL && ep->activation == SBIT__ACT_CLAMP;
    const sbit__v4 inf = sbit__v4_infinity();
    sbit__plane4 p;
    p.d = d;
    p.x = x;
    p.weights = weights;
    p.residual = ep != NULL ? ep->residual : NULL;
    p.bias = sbit__v4_set(bias);
    p.lo = clamp ? sbit__v4_set(ep->lo) : sbit__v4_sub(sbit__v4_set(0.0f), inf);
    p.hi = clamp ? sbit__v4_set(ep->hi) : inf;
    p.y = y;
    if (d->kh == 3 && d->kw == 3 && d->stride_h == 1 && d->stride_w == 1 && d->dilation_h == 1 &&
        d->dilation_w == 1) {
        sbit__plane4_3x3_all(&p, row0, row1);
    } else if (d->stride_w == 1) {
        sbit__plane4_all(&p, row0, row1, 1);
    } else {
        sbit__plane4_all(&p, row0, row1, 2);
    }
    if (ep != NULL && ep->activation > SBIT__ACT_CLAMP) {
        SBIT__128(f32_activate)((row1 - row0) * d->out_w, y + row0 * d->out_w, ep);
    }
}

#undef SBIT__V4
#undef SBIT__V4_FN

#endif /* SBIT__HAS_128 */
