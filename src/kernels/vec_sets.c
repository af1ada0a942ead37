/* vec_sets.c: the kernels that are written once, for each instruction set, and their tables. >>vec_sets
 *
 * Called by: the drivers, tests. Calls: the kernels.
 * VNNI multiplies groups of 4 bytes at once; the other sets widen them to 16 bits, because
 * multiply-adds of bytes saturate.
 */
#include "last_private.h"
#include "q8_private.h"
#include "rows_private.h"

#include <math.h> /* INFINITY, sqrtf */

/* Before a loop whose bounds are constants. */
#if defined(__clang__) && defined(__OPTIMIZE_SIZE__) /* it warns of what it leaves */
#define SBIT__UNROLL
#define SBIT__UNROLL16
#elif defined(__clang__)
#define SBIT__UNROLL _Pragma("clang loop unroll(full)")
#define SBIT__UNROLL16 _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define SBIT__UNROLL _Pragma("GCC unroll 8")
#define SBIT__UNROLL16 _Pragma("GCC unroll 16")
#else
#define SBIT__UNROLL
#define SBIT__UNROLL16
#endif

#if defined(__GNUC__)
#define SBIT__APART __attribute__((noinline))
#else
#define SBIT__APART
#endif

/* A compiler forgets how a pointer was made: or it would keep what one round of a loop read for the next, in
 * registers that sums need. */
#if defined(__GNUC__)
#define SBIT__OPAQUE(pointer) __asm__("" : "+r"(pointer))
#else
#define SBIT__OPAQUE(pointer) ((void)(pointer))
#endif

/* A vector stays in a register: gcc would read it anew for each of its uses. */
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define SBIT__HELD(vector) __asm__("" : "+x"(vector))
#else
#define SBIT__HELD(vector) ((void)(vector))
#endif

/* Less than a vector: no call (memcpy), before which all vectors would go to the stack. */
SBIT__INLINE void sbit__v_bytes(uint8_t *y, int64_t n, uint64_t bytes)
{
    if (n >= 4) {
        const uint32_t part = (uint32_t)bytes;
        memcpy(y, &part, sizeof part);
        y += 4;
        bytes >>= 32;
    }
    if (n > 0 && (n & 2) != 0) {
        const uint16_t part = (uint16_t)bytes;
        memcpy(y, &part, sizeof part);
        y += 2;
        bytes >>= 16;
    }
    if (n > 0 && (n & 1) != 0) {
        *y = (uint8_t)bytes;
    }
}

/* Compilers that know AVX-VNNI; others use what AVX2 has. */
#if defined(__clang__) ? __clang_major__ >= 12 : defined(__GNUC__) && __GNUC__ >= 11
#define SBIT__HAS_AVXVNNI 1
#else
#define SBIT__HAS_AVXVNNI 0
#endif

#if SBIT__X86
#include <immintrin.h> /* vector instructions */

#include "vec_sse2.h"
#include "vec_q8.h"
#include "vec_q8_elements.h"
#include "vec_last.h"
#include "vec_winograd.h"
#include "vec_norm.h"
#include "vec_exchange.h"
#include "vec_end.h"

#define SBIT__VNNI 0
#include "vec_avx2.h"
#include "vec_q8.h"
#include "vec_q8_elements.h"
#include "vec_end.h"

#define SBIT__VNNI 2
#include "vec_avx2.h"
#include "vec_last.h"
#include "vec_winograd.h"
#include "vec_norm.h"
#include "vec_end.h"

#if SBIT__HAS_AVXVNNI
#define SBIT__VNNI 1
#include "vec_avx2.h"
#include "vec_q8.h"
#include "vec_end.h"
#endif

#define SBIT__VNNI 0
#include "vec_avx512.h"
#include "vec_q8.h"
#include "vec_q8_elements.h"
#include "vec_last.h"
#include "vec_winograd.h"
#include "vec_norm.h"
#include "vec_end.h"

#define SBIT__VNNI 1
#include "vec_avx512.h"
#include "vec_q8.h"
#include "vec_end.h"

/* 16 pixels at a time: byte j of the result is pixel j / 3 of plane j % 3. */
SBIT__TARGET("avx2")
static void sbit__q8_three__avx2(int64_t n, int64_t plane, const uint8_t *x, uint8_t flip,
                                 uint8_t *y)
{
    const __m128i flips = _mm_set1_epi8((char)flip);
    uint8_t order[3][3][16]; /* of a part of the result, of a plane; 128: none of it */
    int64_t i = 0;
    for (int part = 0; part < 3; part++) {
        for (int k = 0; k < 3; k++) {
            for (int j = 0; j < 16; j++) {
                const int at = 16 * part + j;
                order[part][k][j] = (uint8_t)(at % 3 == k ? at / 3 : 128);
            }
        }
    }
    for (; i + 16 <= n; i += 16) {
        __m128i v[3];
        for (int k = 0; k < 3; k++) {
            v[k] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)(x + k * plane + i)), flips);
        }
        for (int part = 0; part < 3; part++) {
            __m128i joined = _mm_setzero_si128();
            for (int k = 0; k < 3; k++) {
                const __m128i o = _mm_loadu_si128((const __m128i *)(const void *)order[part][k]);
                joined = _mm_or_si128(joined, _mm_shuffle_epi8(v[k], o));
            }
            _mm_storeu_si128((__m128i *)(void *)(y + 3 * i + 16 * part), joined);
        }
    }
    sbit__q8_three__ref(n - i, plane, x + i, flip, y + 3 * i);
}

/* 8 rows at a time: halves of two rows that lie 4 apart are one vector. */
SBIT__TARGET("avx2,fma")
static void sbit__last_exchange__avx2fma(int64_t rows, int64_t columns, const float *x,
                                         int64_t x_step, float *y, int64_t y_step)
{
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
        const float *from = x + i * x_step;
        float *to = y + i;
        int64_t j = 0;
        for (; j + 4 <= columns; j += 4) {
            __m256 v[4];
            for (int k = 0; k < 4; k++) {
                v[k] = _mm256_insertf128_ps(
                    _mm256_castps128_ps256(_mm_loadu_ps(from + k * x_step + j)),
                    _mm_loadu_ps(from + (k + 4) * x_step + j), 1);
            }
            for (int k = 0; k < 2; k++) { /* columns 0 and 1, then 2 and 3 of both halves */
                const __m256 a = k == 0 ? _mm256_unpacklo_ps(v[0], v[1]) : _mm256_unpackhi_ps(v[0], v[1]);
                const __m256 b = k == 0 ? _mm256_unpacklo_ps(v[2], v[3]) : _mm256_unpackhi_ps(v[2], v[3]);
                _mm256_storeu_ps(to + (j + 2 * k) * y_step, _mm256_shuffle_ps(a, b, 0x44));
                _mm256_storeu_ps(to + (j + 2 * k + 1) * y_step, _mm256_shuffle_ps(a, b, 0xee));
            }
        }
        for (; j < columns; j++) {
            for (int k = 0; k < 8; k++) {
                to[j * y_step + k] = from[k * x_step + j];
            }
        }
    }
    if (i < rows) {
        sbit__last_exchange__sse2(rows - i, columns, x + i * x_step, x_step, y + i, y_step);
    }
}

#elif SBIT__HAS_128
#include <arm_neon.h> /* vector instructions */

#include "vec_neon.h"
#include "vec_q8.h"
#include "vec_q8_elements.h"
#include "vec_last.h"
#include "vec_winograd.h"
#include "vec_norm.h"
#include "vec_exchange.h"
#include "vec_end.h"
#endif

/* >>tables */
/* >>no products, no VNNI */
#define sbit__q8_three__sse2 sbit__q8_three__ref
#define sbit__q8_three__neon sbit__q8_three__ref
#define sbit__q8_three__avx2vnni sbit__q8_three__avx2
#define sbit__q8_three__avx512 sbit__q8_three__avx2
#define sbit__q8_three__avx512vnni sbit__q8_three__avx2
#define sbit__q8_binary__avx2vnni sbit__q8_binary__avx2
#define sbit__q8_max__avx2vnni sbit__q8_max__avx2
#define sbit__q8_interleave__avx2vnni sbit__q8_interleave__avx2
#define sbit__q8_lookup__avx2vnni sbit__q8_lookup__avx2
#define sbit__q8_accumulate__avx2vnni sbit__q8_accumulate__avx2
#define sbit__q8_binary__avx512vnni sbit__q8_binary__avx512
#define sbit__q8_max__avx512vnni sbit__q8_max__avx512
#define sbit__q8_interleave__avx512vnni sbit__q8_interleave__avx512
#define sbit__q8_lookup__avx512vnni sbit__q8_lookup__avx512
#define sbit__q8_accumulate__avx512vnni sbit__q8_accumulate__avx512
#define SBIT__Q8_REF(type, name, params) sbit__##name##__ref,
#define SBIT__Q8_SSE2(type, name, params) sbit__##name##__sse2,
#define SBIT__Q8_AVX2(type, name, params) sbit__##name##__avx2,
#define SBIT__Q8_AVX2VNNI(type, name, params) sbit__##name##__avx2vnni,
#define SBIT__Q8_AVX512(type, name, params) sbit__##name##__avx512,
#define SBIT__Q8_AVX512VNNI(type, name, params) sbit__##name##__avx512vnni,
#define SBIT__Q8_NEON(type, name, params) sbit__##name##__neon,

static const sbit__q8_kernels sbit__q8_scalar = {4, 8, 1, SBIT__Q8_LIST(SBIT__Q8_REF)};
#if SBIT__X86
static const sbit__q8_kernels sbit__q8_sse2 = {4, 4 * sbit__tile_v__sse2,
    sbit__tile_m__sse2, SBIT__Q8_LIST(SBIT__Q8_SSE2)};
static const sbit__q8_kernels sbit__q8_avx2 = {8, 8 * sbit__tile_v__avx2,
    sbit__tile_m__avx2, SBIT__Q8_LIST(SBIT__Q8_AVX2)};
#if SBIT__HAS_AVXVNNI
static const sbit__q8_kernels sbit__q8_avx2vnni = {8, 8 * sbit__tile_v__avx2vnni,
    sbit__tile_m__avx2vnni, SBIT__Q8_LIST(SBIT__Q8_AVX2VNNI)};
#else
#define sbit__q8_avx2vnni sbit__q8_avx2
#endif
static const sbit__q8_kernels sbit__q8_avx512 = {16, 16 * sbit__tile_v__avx512,
    sbit__tile_m__avx512, SBIT__Q8_LIST(SBIT__Q8_AVX512)};
static const sbit__q8_kernels sbit__q8_avx512vnni = {16, 16 * sbit__tile_v__avx512vnni,
    sbit__tile_m__avx512vnni, SBIT__Q8_LIST(SBIT__Q8_AVX512VNNI)};
#elif SBIT__HAS_128
static const sbit__q8_kernels sbit__q8_neon = {4, 4 * sbit__tile_v__neon,
    sbit__tile_m__neon, SBIT__Q8_LIST(SBIT__Q8_NEON)};
#endif

/* Wider vectors would not be faster: the memory is what takes time. */
#define sbit__last_zip__avx2fma sbit__last_zip__sse2
#define sbit__last_zip__avx512 sbit__last_zip__sse2
#define sbit__last_exchange__avx512 sbit__last_exchange__avx2fma
#define SBIT__LAST_REF(type, name, params) sbit__##name##__ref,
#define SBIT__LAST_SSE2(type, name, params) sbit__##name##__sse2,
#define SBIT__LAST_AVX2(type, name, params) sbit__##name##__avx2fma,
#define SBIT__LAST_AVX512(type, name, params) sbit__##name##__avx512,
#define SBIT__LAST_NEON(type, name, params) sbit__##name##__neon,
static const sbit__last_kernels sbit__last_scalar = {1, 8, SBIT__LAST_LIST(SBIT__LAST_REF)};
#if SBIT__X86
static const sbit__last_kernels sbit__last_sse2 = {4, sbit__last_v__sse2,
                                                   SBIT__LAST_LIST(SBIT__LAST_SSE2)};
static const sbit__last_kernels sbit__last_avx2 = {8, sbit__last_v__avx2fma,
                                                   SBIT__LAST_LIST(SBIT__LAST_AVX2)};
static const sbit__last_kernels sbit__last_avx512 = {16, sbit__last_v__avx512,
                                                     SBIT__LAST_LIST(SBIT__LAST_AVX512)};
#elif SBIT__HAS_128
static const sbit__last_kernels sbit__last_neon = {4, sbit__last_v__neon,
                                                   SBIT__LAST_LIST(SBIT__LAST_NEON)};
#endif

#undef SBIT__LAST_REF
#undef SBIT__LAST_SSE2
#undef SBIT__LAST_AVX2
#undef SBIT__LAST_AVX512
#undef SBIT__LAST_NEON
#undef SBIT__Q8_REF
#undef SBIT__Q8_SSE2
#undef SBIT__Q8_AVX2
#undef SBIT__Q8_AVX2VNNI
#undef SBIT__Q8_AVX512
#undef SBIT__Q8_AVX512VNNI
#undef SBIT__Q8_NEON
#undef SBIT__UNROLL
#undef SBIT__UNROLL16

SBIT__FN const sbit__q8_kernels *sbit__q8_kernels_of(sbit_isa isa)
{
    switch (isa) {
    case SBIT_ISA_SCALAR:
        return &sbit__q8_scalar;
#if SBIT__X86
    case SBIT_ISA_SSE2:
        return &sbit__q8_sse2;
    case SBIT_ISA_AVX2:
        return &sbit__q8_avx2;
    case SBIT_ISA_AVX2VNNI:
        return &sbit__q8_avx2vnni;
    case SBIT_ISA_AVX512:
        return &sbit__q8_avx512;
    case SBIT_ISA_AVX512VNNI:
        return &sbit__q8_avx512vnni;
#elif SBIT__HAS_128
    case SBIT_ISA_NEON:
        return &sbit__q8_neon;
#endif
    default:
        return NULL;
    }
}

SBIT__FN const sbit__q8_kernels *sbit__q8_of(const sbit_ctx *ctx)
{
    const sbit__q8_kernels *kernels = sbit__q8_kernels_of(sbit_ctx_isa(ctx));
    return kernels != NULL ? kernels : &sbit__q8_scalar;
}

SBIT__FN const sbit__last_kernels *sbit__last_kernels_of(sbit_isa isa)
{
    switch (isa) {
    case SBIT_ISA_SCALAR:
        return &sbit__last_scalar;
#if SBIT__X86
    case SBIT_ISA_SSE2:
        return &sbit__last_sse2;
    case SBIT_ISA_AVX2:
    case SBIT_ISA_AVX2VNNI:
        return &sbit__last_avx2;
    case SBIT_ISA_AVX512:
    case SBIT_ISA_AVX512VNNI:
        return &sbit__last_avx512;
#elif SBIT__HAS_128
    case SBIT_ISA_NEON:
        return &sbit__last_neon;
#endif
    default:
        return NULL;
    }
}

SBIT__FN const sbit__last_kernels *sbit__last_of(const sbit_ctx *ctx)
{
    const sbit__last_kernels *kernels = sbit__last_kernels_of(sbit_ctx_isa(ctx));
    return kernels != NULL ? kernels : &sbit__last_scalar;
}
