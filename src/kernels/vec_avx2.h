/* vec_avx2.h: vector operations of AVX2; SBIT__VNNI 1: with AVX-VNNI, 2: with FMA. >>vec_avx2
 *
 * The names are explained in vec_sse2.h; vec_end.h takes them back. FMA is not asked for where
 * compilers must not join a product and a sum.
 */
#if SBIT__VNNI == 2
#define SBIT__V(name) sbit__##name##__avx2fma
#define SBIT__V_TARGET SBIT__TARGET("avx2,fma")
#elif SBIT__VNNI
#define SBIT__V(name) sbit__##name##__avx2vnni
#define SBIT__V_TARGET SBIT__TARGET("avx2,avxvnni")
#else
#define SBIT__V(name) sbit__##name##__avx2
#define SBIT__V_TARGET SBIT__TARGET("avx2")
#endif
#define SBIT__V_INLINE SBIT__V_TARGET SBIT__INLINE
#if !defined(__clang__)
#pragma GCC diagnostic push
#endif

enum {
    SBIT__V(lanes) = 8
};
typedef __m256i SBIT__V(vi);
typedef __m256 SBIT__V(vf);
typedef __m256i SBIT__V(vb);

SBIT__V_INLINE __m256i SBIT__V(set_i32)(int32_t x)
{
    return _mm256_set1_epi32(x);
}
SBIT__V_INLINE __m256i SBIT__V(load_i32)(const int32_t *x)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}
SBIT__V_INLINE __m256i SBIT__V(mask)(int64_t n) /* the first n < 8 lanes; none if n < 0 */
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SBIT__V_INLINE void SBIT__V(store_i32)(int32_t *y, int64_t n, __m256i v)
{
    if (n >= 8) {
        _mm256_storeu_si256((__m256i *)(void *)y, v);
    } else {
        _mm256_maskstore_epi32(y, SBIT__V(mask)(n), v);
    }
}
SBIT__V_INLINE __m256i SBIT__V(add_i32)(__m256i a, __m256i b)
{
    return _mm256_add_epi32(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(sub_i32)(__m256i a, __m256i b)
{
    return _mm256_sub_epi32(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(mul_i32)(__m256i a, __m256i b)
{
    return _mm256_mullo_epi32(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(load_u8)(const uint8_t *x, int64_t n)
{
    uint64_t part = 0;
    memcpy(&part, x, n >= 8 ? 8 : n > 0 ? (size_t)n : 0);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)part));
}
SBIT__V_INLINE void SBIT__V(store_u8)(uint8_t *y, int64_t n, __m256i v)
{
    const __m256i words = _mm256_packus_epi16(_mm256_packs_epi32(v, v), v);
    const __m128i bytes =
        _mm_unpacklo_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    if (n >= 8) {
        _mm_storel_epi64((__m128i *)(void *)y, bytes);
    } else {
        sbit__v_bytes(y, n, (uint64_t)_mm_cvtsi128_si64(bytes));
    }
}
SBIT__V_INLINE __m256 SBIT__V(set_f32)(float x)
{
    return _mm256_set1_ps(x);
}
SBIT__V_INLINE __m256 SBIT__V(load_f32)(const float *x, int64_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, SBIT__V(mask)(n));
}
SBIT__V_INLINE void SBIT__V(store_f32)(float *y, int64_t n, __m256 v)
{
    if (n >= 8) {
        _mm256_storeu_ps(y, v);
    } else {
        _mm256_maskstore_ps(y, SBIT__V(mask)(n), v);
    }
}
SBIT__V_INLINE __m256 SBIT__V(add_f32)(__m256 a, __m256 b)
{
    return _mm256_add_ps(a, b);
}
SBIT__V_INLINE __m256 SBIT__V(sub_f32)(__m256 a, __m256 b)
{
    return _mm256_sub_ps(a, b);
}
SBIT__V_INLINE __m256 SBIT__V(mul_f32)(__m256 a, __m256 b)
{
    return _mm256_mul_ps(a, b);
}
SBIT__V_INLINE __m256 SBIT__V(quotient)(__m256 x, __m256 y, float inverse)
{
    (void)inverse;
    return _mm256_div_ps(x, y);
}
SBIT__V_INLINE __m256 SBIT__V(fma_f32)(__m256 a, __m256 b, __m256 sum)
{
#if SBIT__VNNI == 2
    return _mm256_fmadd_ps(a, b, sum);
#else
    return _mm256_add_ps(_mm256_mul_ps(a, b), sum);
#endif
}
SBIT__V_INLINE __m256 SBIT__V(max_f32)(__m256 a, __m256 b)
{
    return _mm256_max_ps(a, b);
}
SBIT__V_INLINE __m256 SBIT__V(min_f32)(__m256 a, __m256 b)
{
    return _mm256_min_ps(a, b);
}
SBIT__V_INLINE __m256 SBIT__V(inside_f32)(__m256 d, __m256 v, __m256 lo, __m256 hi)
{
    return _mm256_and_ps(d, _mm256_and_ps(_mm256_cmp_ps(v, lo, _CMP_GT_OQ),
                                          _mm256_cmp_ps(v, hi, _CMP_NGE_UQ)));
}
SBIT__V_INLINE __m256 SBIT__V(clamp_f32)(__m256 v, __m256 lo, __m256 hi)
{
    return _mm256_min_ps(_mm256_max_ps(v, lo), hi);
}
SBIT__V_INLINE __m256 SBIT__V(to_f32)(__m256i v)
{
    return _mm256_cvtepi32_ps(v);
}
SBIT__V_INLINE __m256i SBIT__V(round)(__m256 v)
{
    return _mm256_cvtps_epi32(v);
}
SBIT__V_INLINE __m256i SBIT__V(round_below)(__m256 v, __m256 top)
{
    return _mm256_cvtps_epi32(_mm256_min_ps(top, v)); /* INT32_MIN of what does not fit */
}

/* >>bytes: 32 channels */
SBIT__V_INLINE __m256i SBIT__V(load_bytes)(const uint8_t *x, int64_t n)
{
    uint8_t part[32] = {0};
    if (n >= 32) {
        return _mm256_loadu_si256((const __m256i *)(const void *)x);
    }
    memcpy(part, x, n > 0 ? (size_t)n : 0);
    return _mm256_loadu_si256((const __m256i *)(const void *)part);
}
SBIT__V_INLINE void SBIT__V(store_bytes)(uint8_t *y, int64_t n, __m256i v)
{
    if (n >= 32) {
        _mm256_storeu_si256((__m256i *)(void *)y, v);
    } else {
        uint8_t part[32];
        _mm256_storeu_si256((__m256i *)(void *)part, v);
        memcpy(y, part, n > 0 ? (size_t)n : 0);
    }
}
SBIT__V_INLINE void SBIT__V(store_half)(uint8_t *y, int64_t n, bool upper, __m256i v)
{
    const __m128i half = upper ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v);
    if (n >= 16) {
        _mm_storeu_si128((__m128i *)(void *)y, half);
        return;
    }
    if (n >= 8) {
        _mm_storel_epi64((__m128i *)(void *)y, half);
        sbit__v_bytes(y + 8, n - 8, (uint64_t)_mm_cvtsi128_si64(_mm_srli_si128(half, 8)));
    } else {
        sbit__v_bytes(y, n, (uint64_t)_mm_cvtsi128_si64(half));
    }
}
SBIT__V_INLINE __m256i SBIT__V(max_bytes)(__m256i a, __m256i b)
{
    return _mm256_max_epu8(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(min_bytes)(__m256i a, __m256i b)
{
    return _mm256_min_epu8(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(low8)(__m256i a, __m256i b)
{
    return _mm256_unpacklo_epi8(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(high8)(__m256i a, __m256i b)
{
    return _mm256_unpackhi_epi8(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(low16)(__m256i a, __m256i b)
{
    return _mm256_unpacklo_epi16(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(high16)(__m256i a, __m256i b)
{
    return _mm256_unpackhi_epi16(a, b);
}
SBIT__V_INLINE __m256i SBIT__V(narrow)(__m256i a, __m256i b, __m256i c, __m256i d, __m256i zero)
{
    return _mm256_packus_epi16(_mm256_adds_epi16(_mm256_packs_epi32(a, b), zero),
                            _mm256_adds_epi16(_mm256_packs_epi32(c, d), zero));
}
SBIT__V_INLINE __m256i SBIT__V(set_words)(int16_t x)
{
    return _mm256_set1_epi16(x);
}
SBIT__V_INLINE __m256i SBIT__V(set_bytes)(uint8_t x)
{
    return _mm256_set1_epi8((char)x);
}
SBIT__V_INLINE __m256i SBIT__V(in_order)(__m256i v)
{
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
/* 16 rows of 16: adding 0x70 sets the top bit of what belongs to another row, which gives 0. */
SBIT__V_INLINE __m256i SBIT__V(lookup)(const uint8_t *table, __m256i v)
{
    __m256i found = _mm256_setzero_si256();
    SBIT__UNROLL16 for (int row = 0; row < 16; row++)
    {
        const __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(table + 16 * row));
        const __m256i at = _mm256_adds_epu8(_mm256_xor_si256(v, _mm256_set1_epi8((char)(16 * row))),
                                            _mm256_set1_epi8(0x70));
        found = _mm256_or_si256(found, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(part), at));
    }
    return found;
}
SBIT__V_INLINE __m256i SBIT__V(repeat4)(const uint8_t *x) /* 4 bytes in each lane */
{
    int32_t part;
    memcpy(&part, x, sizeof part);
    return _mm256_set1_epi32(part);
}

#define SBIT__V_LAST 2
enum {
    SBIT__V(last_m) = 6,
    SBIT__V(last_v) = SBIT__V_LAST
};

/* >>products */
enum {
    SBIT__V(tile_m) = 4,
    SBIT__V(tile_v) = 2
};
#if SBIT__VNNI == 1
typedef __m256i SBIT__V(u4);
typedef __m256i SBIT__V(s4);
SBIT__V_INLINE __m256i SBIT__V(u4_of)(__m256i v)
{
    return v;
}
SBIT__V_INLINE __m256i SBIT__V(s4_of)(__m256i v)
{
    return v;
}
SBIT__V_INLINE __m256i SBIT__V(dot4)(__m256i sum, __m256i u, __m256i s)
{
    return _mm256_dpbusd_avx_epi32(sum, u, s);
}
#else
typedef struct SBIT__V(u4) {
    __m256i even, odd; /* 16 bits each */
} SBIT__V(u4);
typedef SBIT__V(u4) SBIT__V(s4);
SBIT__V_INLINE SBIT__V(u4) SBIT__V(u4_of)(__m256i v)
{
    SBIT__V(u4) u;
    u.even = _mm256_and_si256(v, _mm256_set1_epi16(0xff));
    u.odd = _mm256_srli_epi16(v, 8);
    return u;
}
SBIT__V_INLINE SBIT__V(s4) SBIT__V(s4_of)(__m256i v)
{
    SBIT__V(s4) s;
    s.even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
    s.odd = _mm256_srai_epi16(v, 8);
    return s;
}
SBIT__V_INLINE __m256i SBIT__V(dot4)(__m256i sum, SBIT__V(u4) u, SBIT__V(s4) s)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(u.even, s.even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(u.odd, s.odd));
}
#endif
