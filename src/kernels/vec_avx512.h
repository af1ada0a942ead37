/* vec_avx512.h: vector operations of AVX-512; SBIT__VNNI 1: with VNNI. >>vec_avx512
 *
 * The names are explained in vec_sse2.h; vec_end.h takes them back.
 */
#if SBIT__VNNI
#define SBIT__V(name) sbit__##name##__avx512vnni
#define SBIT__V_TARGET SBIT__TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#else
#define SBIT__V(name) sbit__##name##__avx512
#define SBIT__V_TARGET SBIT__TARGET("avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define SBIT__V_INLINE SBIT__V_TARGET SBIT__INLINE

/* gcc's intrinsics use a value that is not set (bug 105593) and, being macros at -O0, masks of the
 * other signedness. */
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

enum {
    SBIT__V(lanes) = 16
};
typedef __m512i SBIT__V(vi);
typedef __m512 SBIT__V(vf);
typedef __m512i SBIT__V(vb);

SBIT__V_INLINE __mmask16 SBIT__V(mask)(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}
SBIT__V_INLINE __mmask64 SBIT__V(mask_bytes)(int64_t n)
{
    return n >= 64 ? ~(uint64_t)0 : n <= 0 ? 0 : ((uint64_t)1 << n) - 1;
}
SBIT__V_INLINE __m512i SBIT__V(set_i32)(int32_t x)
{
    return _mm512_set1_epi32(x);
}
SBIT__V_INLINE __m512i SBIT__V(load_i32)(const int32_t *x)
{
    return _mm512_loadu_si512(x);
}
SBIT__V_INLINE void SBIT__V(store_i32)(int32_t *y, int64_t n, __m512i v)
{
    _mm512_mask_storeu_epi32(y, SBIT__V(mask)(n), v);
}
SBIT__V_INLINE __m512i SBIT__V(add_i32)(__m512i a, __m512i b)
{
    return _mm512_add_epi32(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(sub_i32)(__m512i a, __m512i b)
{
    return _mm512_sub_epi32(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(mul_i32)(__m512i a, __m512i b)
{
    return _mm512_mullo_epi32(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(load_u8)(const uint8_t *x, int64_t n)
{
    if (n >= 16) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
    }
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(SBIT__V(mask)(n), x));
}
SBIT__V_INLINE void SBIT__V(store_u8)(uint8_t *y, int64_t n, __m512i v)
{
    if (n >= 16) {
        _mm_storeu_si128((__m128i *)(void *)y, _mm512_cvtepi32_epi8(v));
    } else {
        _mm_mask_storeu_epi8(y, SBIT__V(mask)(n), _mm512_cvtepi32_epi8(v));
    }
}
/* with a rounding of their own, compilers do not join them to fused multiply-adds */
#define SBIT__V_ROUND (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
SBIT__V_INLINE __m512 SBIT__V(set_f32)(float x)
{
    return _mm512_set1_ps(x);
}
SBIT__V_INLINE __m512 SBIT__V(load_f32)(const float *x, int64_t n)
{
    return n >= 16 ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(SBIT__V(mask)(n), x);
}
SBIT__V_INLINE void SBIT__V(store_f32)(float *y, int64_t n, __m512 v)
{
    if (n >= 16) {
        _mm512_storeu_ps(y, v);
    } else {
        _mm512_mask_storeu_ps(y, SBIT__V(mask)(n), v);
    }
}
SBIT__V_INLINE __m512 SBIT__V(add_f32)(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}
SBIT__V_INLINE __m512 SBIT__V(sub_f32)(__m512 a, __m512 b)
{
    return _mm512_sub_ps(a, b);
}
SBIT__V_INLINE __m512 SBIT__V(mul_f32)(__m512 a, __m512 b)
{
    return _mm512_mul_round_ps(a, b, SBIT__V_ROUND);
}
#undef SBIT__V_ROUND
/* A product, corrected twice, instead of a division that takes 16 cycles: with the rounded inverse
 * of y and a product less than 1 ulp away, the second is what division gives (Markstein 1990). */
SBIT__V_INLINE __m512 SBIT__V(quotient)(__m512 x, __m512 y, float inverse)
{
    const __m512 by = _mm512_set1_ps(inverse);
    __m512 q = _mm512_mul_ps(x, by);
    if (inverse == 0.0f) {
        return _mm512_div_ps(x, y);
    }
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, y, x), by, q);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, y, x), by, q);
}
SBIT__V_INLINE __m512 SBIT__V(fma_f32)(__m512 a, __m512 b, __m512 sum)
{
    return _mm512_fmadd_ps(a, b, sum);
}
SBIT__V_INLINE __m512 SBIT__V(max_f32)(__m512 a, __m512 b)
{
    return _mm512_max_ps(a, b);
}
SBIT__V_INLINE __m512 SBIT__V(min_f32)(__m512 a, __m512 b)
{
    return _mm512_min_ps(a, b);
}
SBIT__V_INLINE __m512 SBIT__V(inside_f32)(__m512 d, __m512 v, __m512 lo, __m512 hi)
{
    const __mmask16 above = _mm512_cmp_ps_mask(v, lo, _CMP_GT_OQ);
    return _mm512_maskz_mov_ps(_mm512_mask_cmp_ps_mask(above, v, hi, _CMP_NGE_UQ), d);
}
SBIT__V_INLINE __m512 SBIT__V(clamp_f32)(__m512 v, __m512 lo, __m512 hi)
{
    return _mm512_min_ps(_mm512_max_ps(v, lo), hi);
}
SBIT__V_INLINE __m512 SBIT__V(to_f32)(__m512i v)
{
    return _mm512_cvtepi32_ps(v);
}
SBIT__V_INLINE __m512i SBIT__V(round)(__m512 v)
{
    return _mm512_cvtps_epi32(v);
}
SBIT__V_INLINE __m512i SBIT__V(round_below)(__m512 v, __m512 top)
{
    return _mm512_cvtps_epi32(_mm512_min_ps(top, v)); /* INT32_MIN of what does not fit */
}

/* >>bytes: 64 channels */
SBIT__V_INLINE __m512i SBIT__V(load_bytes)(const uint8_t *x, int64_t n)
{
    return n >= 64 ? _mm512_loadu_si512(x) : _mm512_maskz_loadu_epi8(SBIT__V(mask_bytes)(n), x);
}
SBIT__V_INLINE void SBIT__V(store_bytes)(uint8_t *y, int64_t n, __m512i v)
{
    if (n >= 64) {
        _mm512_storeu_si512(y, v);
    } else {
        _mm512_mask_storeu_epi8(y, SBIT__V(mask_bytes)(n), v);
    }
}
SBIT__V_INLINE void SBIT__V(store_half)(uint8_t *y, int64_t n, bool upper, __m512i v)
{
    const __m256i half = upper ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v);
    if (n >= 32) {
        _mm256_storeu_si256((__m256i *)(void *)y, half);
    } else {
        _mm256_mask_storeu_epi8(y, (__mmask32)SBIT__V(mask_bytes)(n), half);
    }
}
SBIT__V_INLINE __m512i SBIT__V(max_bytes)(__m512i a, __m512i b)
{
    return _mm512_max_epu8(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(min_bytes)(__m512i a, __m512i b)
{
    return _mm512_min_epu8(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(low8)(__m512i a, __m512i b)
{
    return _mm512_unpacklo_epi8(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(high8)(__m512i a, __m512i b)
{
    return _mm512_unpackhi_epi8(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(low16)(__m512i a, __m512i b)
{
    return _mm512_unpacklo_epi16(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(high16)(__m512i a, __m512i b)
{
    return _mm512_unpackhi_epi16(a, b);
}
SBIT__V_INLINE __m512i SBIT__V(narrow)(__m512i a, __m512i b, __m512i c, __m512i d, __m512i zero)
{
    return _mm512_packus_epi16(_mm512_adds_epi16(_mm512_packs_epi32(a, b), zero),
                            _mm512_adds_epi16(_mm512_packs_epi32(c, d), zero));
}
SBIT__V_INLINE __m512i SBIT__V(set_words)(int16_t x)
{
    return _mm512_set1_epi16(x);
}
SBIT__V_INLINE __m512i SBIT__V(set_bytes)(uint8_t x)
{
    return _mm512_set1_epi8((char)x);
}
SBIT__V_INLINE __m512i SBIT__V(in_order)(__m512i v)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}
/* As for AVX2. */
SBIT__V_INLINE __m512i SBIT__V(lookup)(const uint8_t *table, __m512i v)
{
    __m512i found = _mm512_setzero_si512();
    SBIT__UNROLL16 for (int row = 0; row < 16; row++)
    {
        const __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(table + 16 * row));
        const __m512i at = _mm512_adds_epu8(_mm512_xor_si512(v, _mm512_set1_epi8((char)(16 * row))),
                                            _mm512_set1_epi8(0x70));
        found = _mm512_or_si512(found, _mm512_shuffle_epi8(_mm512_broadcast_i32x4(part), at));
    }
    return found;
}
SBIT__V_INLINE __m512i SBIT__V(repeat4)(const uint8_t *x) /* 4 bytes in each lane */
{
    int32_t part;
    memcpy(&part, x, sizeof part);
    return _mm512_set1_epi32(part);
}

#define SBIT__V_LAST 4
enum {
    SBIT__V(last_m) = 7,
    SBIT__V(last_v) = SBIT__V_LAST
};

/* >>products */
#if SBIT__VNNI
enum {
    SBIT__V(tile_m) = 5,
    SBIT__V(tile_v) = 4
};
typedef __m512i SBIT__V(u4);
typedef __m512i SBIT__V(s4);
SBIT__V_INLINE __m512i SBIT__V(u4_of)(__m512i v)
{
    return v;
}
SBIT__V_INLINE __m512i SBIT__V(s4_of)(__m512i v)
{
    return v;
}
SBIT__V_INLINE __m512i SBIT__V(dot4)(__m512i sum, __m512i u, __m512i s)
{
    return _mm512_dpbusd_epi32(sum, u, s);
}
#else
enum {
    SBIT__V(tile_m) = 4,
    SBIT__V(tile_v) = 4
};
typedef struct SBIT__V(u4) {
    __m512i even, odd;
} SBIT__V(u4);
typedef SBIT__V(u4) SBIT__V(s4);
SBIT__V_INLINE SBIT__V(u4) SBIT__V(u4_of)(__m512i v)
{
    SBIT__V(u4) u;
    u.even = _mm512_and_si512(v, _mm512_set1_epi16(0xff));
    u.odd = _mm512_srli_epi16(v, 8);
    return u;
}
SBIT__V_INLINE SBIT__V(s4) SBIT__V(s4_of)(__m512i v)
{
    SBIT__V(s4) s;
    s.even = _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8);
    s.odd = _mm512_srai_epi16(v, 8);
    return s;
}
SBIT__V_INLINE __m512i SBIT__V(dot4)(__m512i sum, SBIT__V(u4) u, SBIT__V(s4) s)
{
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(u.even, s.even));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(u.odd, s.odd));
}
#endif
