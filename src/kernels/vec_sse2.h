/* vec_sse2.h: vector operations of SSE2. >>vec
 *
 * A vec_*.h names the operations of one instruction set, vec_q8.h and vec_last.h are written over
 * them, and vec_end.h takes the names back. They have no include guards: vec_sets.c includes them for
 * each set, and tools/amalgamate pastes them where they are included.
 *     SBIT__V(name)  the name with the set's suffix      SBIT__V_TARGET, SBIT__V_INLINE  functions
 *     vi, vf, vb     vectors of int32, of float, of bytes (4 * lanes); all are loaded unaligned
 *     (x, n)         only the first n elements are read (zeros behind) or written; n may be large
 *     clamp_f32      lo where v is a NaN
 *     inside_f32     d where lo < v and not v >= hi, else 0
 *     round          to nearest even; store_u8: the values fit
 *     round_below    round of the smaller one, of a NaN and what is too small INT32_MIN
 *     quotient       x / y; inverse is 1 / y and no product of them is near the ends of what floats hold, or 0
 *     repeat4        4 bytes in each lane
 *     low8 ... high16   unpack within each 128 bits
 *     narrow         to 16 bits, + zero (which set_words made), to bytes, all saturating; within each 128 bits
 *     in_order       what narrow gave, vector after vector
 *     store_half     the first half of a vector of bytes, or the upper one
 *     lookup         entries of a table of 256
 *     u4, s4         groups of 4 bytes, unsigned and signed, ready for
 *     dot4           sum[lane] += u[lane][0] * s[lane][0] + ... + u[lane][3] * s[lane][3], exact
 *     tile_m, tile_v a tile's rows and vectors
 *     fma_f32        a * b + sum, rounded once or twice: of bytes only where all were tried
 *     max_f32        b where one is a NaN; min_f32 likewise
 *     last_m, last_v a tile of vec_last.h: its rows and vectors
 */
#define SBIT__V(name) sbit__##name##__sse2
#define SBIT__V_TARGET SBIT__TARGET("sse2")
#define SBIT__V_INLINE SBIT__V_TARGET SBIT__INLINE
#if !defined(__clang__)
#pragma GCC diagnostic push
#endif

enum {
    SBIT__V(lanes) = 4
};
typedef __m128i SBIT__V(vi);
typedef __m128 SBIT__V(vf);
typedef __m128i SBIT__V(vb);

SBIT__V_INLINE __m128i SBIT__V(set_i32)(int32_t x)
{
    return _mm_set1_epi32(x);
}
SBIT__V_INLINE __m128i SBIT__V(load_i32)(const int32_t *x)
{
    return _mm_loadu_si128((const __m128i *)(const void *)x);
}
SBIT__V_INLINE void SBIT__V(store_i32)(int32_t *y, int64_t n, __m128i v)
{
    if (n >= 4) {
        _mm_storeu_si128((__m128i *)(void *)y, v);
    } else {
        int32_t part[4];
        _mm_storeu_si128((__m128i *)(void *)part, v);
        memcpy(y, part, n > 0 ? (size_t)n * sizeof *y : 0);
    }
}
SBIT__V_INLINE __m128i SBIT__V(add_i32)(__m128i a, __m128i b)
{
    return _mm_add_epi32(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(sub_i32)(__m128i a, __m128i b)
{
    return _mm_sub_epi32(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(mul_i32)(__m128i a, __m128i b)
{
    const __m128i even = _mm_mul_epu32(a, b);
    const __m128i odd = _mm_mul_epu32(_mm_srli_si128(a, 4), _mm_srli_si128(b, 4));
    return _mm_unpacklo_epi32(_mm_shuffle_epi32(even, 8), _mm_shuffle_epi32(odd, 8));
}
SBIT__V_INLINE __m128i SBIT__V(load_u8)(const uint8_t *x, int64_t n)
{
    int32_t part = 0;
    memcpy(&part, x, n >= 4 ? 4 : n > 0 ? (size_t)n : 0);
    const __m128i bytes = _mm_unpacklo_epi8(_mm_cvtsi32_si128(part), _mm_setzero_si128());
    return _mm_unpacklo_epi16(bytes, _mm_setzero_si128());
}
SBIT__V_INLINE void SBIT__V(store_u8)(uint8_t *y, int64_t n, __m128i v)
{
    const int32_t part = _mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(v, v), v));
    if (n >= 4) {
        memcpy(y, &part, 4);
    } else {
        sbit__v_bytes(y, n, (uint32_t)part);
    }
}
SBIT__V_INLINE __m128 SBIT__V(set_f32)(float x)
{
    return _mm_set1_ps(x);
}
SBIT__V_INLINE __m128 SBIT__V(load_f32)(const float *x, int64_t n)
{
    if (n >= 4) {
        return _mm_loadu_ps(x);
    }
    const __m128 odd = n == 1 || n == 3 ? _mm_load_ss(x + n - 1) : _mm_setzero_ps();
    if (n < 2) {
        return odd;
    }
    const __m128i two = _mm_loadl_epi64((const __m128i *)(const void *)x);
    return _mm_movelh_ps(_mm_castsi128_ps(two), odd);
}
SBIT__V_INLINE void SBIT__V(store_f32)(float *y, int64_t n, __m128 v)
{
    if (n >= 4) {
        _mm_storeu_ps(y, v);
        return;
    }
    if (n >= 2) {
        _mm_storel_epi64((__m128i *)(void *)y, _mm_castps_si128(v));
        v = _mm_movehl_ps(v, v);
    }
    if (n == 1 || n == 3) {
        _mm_store_ss(y + n - 1, v);
    }
}
SBIT__V_INLINE __m128 SBIT__V(add_f32)(__m128 a, __m128 b)
{
    return _mm_add_ps(a, b);
}
SBIT__V_INLINE __m128 SBIT__V(sub_f32)(__m128 a, __m128 b)
{
    return _mm_sub_ps(a, b);
}
SBIT__V_INLINE __m128 SBIT__V(mul_f32)(__m128 a, __m128 b)
{
    return _mm_mul_ps(a, b);
}
SBIT__V_INLINE __m128 SBIT__V(quotient)(__m128 x, __m128 y, float inverse)
{
    (void)inverse;
    return _mm_div_ps(x, y);
}
SBIT__V_INLINE __m128 SBIT__V(fma_f32)(__m128 a, __m128 b, __m128 sum)
{
    return _mm_add_ps(_mm_mul_ps(a, b), sum);
}
SBIT__V_INLINE __m128 SBIT__V(max_f32)(__m128 a, __m128 b)
{
    return _mm_max_ps(a, b);
}
SBIT__V_INLINE __m128 SBIT__V(min_f32)(__m128 a, __m128 b)
{
    return _mm_min_ps(a, b);
}
SBIT__V_INLINE __m128 SBIT__V(inside_f32)(__m128 d, __m128 v, __m128 lo, __m128 hi)
{
    return _mm_and_ps(d, _mm_and_ps(_mm_cmpgt_ps(v, lo), _mm_cmpnge_ps(v, hi)));
}
SBIT__V_INLINE __m128 SBIT__V(clamp_f32)(__m128 v, __m128 lo, __m128 hi)
{
    return _mm_min_ps(_mm_max_ps(v, lo), hi);
}
SBIT__V_INLINE __m128 SBIT__V(to_f32)(__m128i v)
{
    return _mm_cvtepi32_ps(v);
}
SBIT__V_INLINE __m128i SBIT__V(round)(__m128 v)
{
    return _mm_cvtps_epi32(v);
}
SBIT__V_INLINE __m128i SBIT__V(round_below)(__m128 v, __m128 top)
{
    return _mm_cvtps_epi32(_mm_min_ps(top, v)); /* INT32_MIN of what does not fit */
}

/* >>bytes: 16 channels */
SBIT__V_INLINE __m128i SBIT__V(load_bytes)(const uint8_t *x, int64_t n)
{
    uint8_t part[16] = {0};
    if (n >= 16) {
        return _mm_loadu_si128((const __m128i *)(const void *)x);
    }
    memcpy(part, x, n > 0 ? (size_t)n : 0);
    return _mm_loadu_si128((const __m128i *)(const void *)part);
}
SBIT__V_INLINE void SBIT__V(store_bytes)(uint8_t *y, int64_t n, __m128i v)
{
    if (n >= 16) {
        _mm_storeu_si128((__m128i *)(void *)y, v);
    } else {
        uint8_t part[16];
        _mm_storeu_si128((__m128i *)(void *)part, v);
        memcpy(y, part, n > 0 ? (size_t)n : 0);
    }
}
SBIT__V_INLINE void SBIT__V(store_half)(uint8_t *y, int64_t n, bool upper, __m128i v)
{
    v = upper ? _mm_srli_si128(v, 8) : v;
    if (n >= 8) {
        _mm_storel_epi64((__m128i *)(void *)y, v);
        return;
    }
    if (n >= 4) {
        sbit__v_bytes(y + 4, n - 4, (uint32_t)_mm_cvtsi128_si32(_mm_srli_si128(v, 4)));
    }
    sbit__v_bytes(y, n < 4 ? n : 4, (uint32_t)_mm_cvtsi128_si32(v));
}
SBIT__V_INLINE __m128i SBIT__V(max_bytes)(__m128i a, __m128i b)
{
    return _mm_max_epu8(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(min_bytes)(__m128i a, __m128i b)
{
    return _mm_min_epu8(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(low8)(__m128i a, __m128i b)
{
    return _mm_unpacklo_epi8(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(high8)(__m128i a, __m128i b)
{
    return _mm_unpackhi_epi8(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(low16)(__m128i a, __m128i b)
{
    return _mm_unpacklo_epi16(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(high16)(__m128i a, __m128i b)
{
    return _mm_unpackhi_epi16(a, b);
}
SBIT__V_INLINE __m128i SBIT__V(narrow)(__m128i a, __m128i b, __m128i c, __m128i d, __m128i zero)
{
    return _mm_packus_epi16(_mm_adds_epi16(_mm_packs_epi32(a, b), zero),
                            _mm_adds_epi16(_mm_packs_epi32(c, d), zero));
}
SBIT__V_INLINE __m128i SBIT__V(set_words)(int16_t x)
{
    return _mm_set1_epi16(x);
}
SBIT__V_INLINE __m128i SBIT__V(set_bytes)(uint8_t x)
{
    return _mm_set1_epi8((char)x);
}
SBIT__V_INLINE __m128i SBIT__V(in_order)(__m128i v)
{
    return v;
}
SBIT__V_INLINE __m128i SBIT__V(lookup)(const uint8_t *table, __m128i v) /* no byte shuffle */
{
    uint8_t part[16];
    _mm_storeu_si128((__m128i *)(void *)part, v);
    for (int i = 0; i < 16; i++) {
        part[i] = table[part[i]];
    }
    return _mm_loadu_si128((const __m128i *)(const void *)part);
}
SBIT__V_INLINE __m128i SBIT__V(repeat4)(const uint8_t *x) /* 4 bytes in each lane */
{
    int32_t part;
    memcpy(&part, x, sizeof part);
    return _mm_set1_epi32(part);
}

SBIT__V_INLINE void SBIT__V(transpose4)(__m128 v[4])
{
    _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
}

/* a0 b0 a1 b1 ...: the first half, the second */
SBIT__V_INLINE void SBIT__V(zip)(__m128 a, __m128 b, __m128 v[2])
{
    v[0] = _mm_unpacklo_ps(a, b);
    v[1] = _mm_unpackhi_ps(a, b);
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
typedef struct SBIT__V(u4) {
    __m128i even, odd; /* 16 bits each */
} SBIT__V(u4);
typedef SBIT__V(u4) SBIT__V(s4);
SBIT__V_INLINE SBIT__V(u4) SBIT__V(u4_of)(__m128i v)
{
    SBIT__V(u4) u;
    u.even = _mm_and_si128(v, _mm_set1_epi16(0xff));
    u.odd = _mm_srli_epi16(v, 8);
    return u;
}
SBIT__V_INLINE SBIT__V(s4) SBIT__V(s4_of)(__m128i v)
{
    SBIT__V(s4) s;
    s.even = _mm_srai_epi16(_mm_slli_epi16(v, 8), 8);
    s.odd = _mm_srai_epi16(v, 8);
    return s;
}
SBIT__V_INLINE __m128i SBIT__V(dot4)(__m128i sum, SBIT__V(u4) u, SBIT__V(s4) s)
{
    sum = _mm_add_epi32(sum, _mm_madd_epi16(u.even, s.even));
    return _mm_add_epi32(sum, _mm_madd_epi16(u.odd, s.odd));
}
