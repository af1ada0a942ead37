/* rows_private.h: which instruction set has which kernels of its own. >>kernel_rows
 *
 * Called by: the kernel files and dispatch.c. Calls: nothing.
 * A kernel named below as a hole of a set is taken from the set's next lower row: the name with the
 * set's suffix then stands for the lower one, in declarations and in the table alike. The list
 * doubles as what could still be written for that set. All other kernels exist in all sets.
 */
#ifndef SBIT_ROWS_PRIVATE_H
#define SBIT_ROWS_PRIVATE_H

#include "kernels_private.h"

/* The 128-bit sets share one file: exactly one of them can be compiled in. */
#if SBIT__X86
#define SBIT__128(name) sbit__##name##__sse2
#define SBIT__HAS_128 1
#elif !SPARSEBIT_NO_SIMD && defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_NEON)
#define SBIT__128(name) sbit__##name##__neon
#define SBIT__HAS_128 1
#else
#define SBIT__HAS_128 0
#endif

/* >>holes */
#define sbit__f32_histogram__sse2 sbit__f32_histogram__ref
#define sbit__f32_histogram__neon sbit__f32_histogram__ref
#define sbit__f32_histogram__avx2 sbit__f32_histogram__ref
#define sbit__f32_histogram__avx512 sbit__f32_histogram__ref

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__DECLARE_REF(type, name, params) SBIT__FN type sbit__##name##__ref params;
SBIT__KERNEL_LIST(SBIT__DECLARE_REF)
#undef SBIT__DECLARE_REF

#if SBIT__X86
#define SBIT__DECLARE_SSE2(type, name, params) SBIT__FN type sbit__##name##__sse2 params;
SBIT__KERNEL_LIST(SBIT__DECLARE_SSE2)
#undef SBIT__DECLARE_SSE2
#define SBIT__DECLARE_AVX2(type, name, params) SBIT__FN type sbit__##name##__avx2 params;
SBIT__KERNEL_LIST(SBIT__DECLARE_AVX2)
#undef SBIT__DECLARE_AVX2
#define SBIT__DECLARE_AVX512(type, name, params) SBIT__FN type sbit__##name##__avx512 params;
SBIT__KERNEL_LIST(SBIT__DECLARE_AVX512)
#undef SBIT__DECLARE_AVX512
#elif SBIT__HAS_128
#define SBIT__DECLARE_NEON(type, name, params) SBIT__FN type sbit__##name##__neon params;
SBIT__KERNEL_LIST(SBIT__DECLARE_NEON)
#undef SBIT__DECLARE_NEON
#endif

/* Tile sizes of f32_gemm_tile, which the drivers read from the table. */
enum {
    SBIT__REF_TILE_M = 4,
    SBIT__REF_TILE_N = 8,
    SBIT__128_TILE_M = SBIT__X86 ? 4 : 8, /* 4 x 8: 8 of SSE2's 16 registers hold sums */
    SBIT__128_TILE_N = 8,
    SBIT__AVX2_TILE_M = 6, /* 12 of 16 registers hold sums */
    SBIT__AVX2_TILE_N = 16,
    SBIT__AVX512_TILE_M = 12, /* 24 of 32; 12 = 8 + 4 suits channel counts better than 14 */
    SBIT__AVX512_TILE_N = 32,
    SBIT__MAX_TILE_M = 12,
    SBIT__MAX_TILE_N = 32
};

SBIT__INLINE int64_t sbit__smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

SBIT__INLINE int64_t sbit__larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

SBIT__INLINE int64_t sbit__div_up(int64_t a, int64_t b) /* b > 0 */
{
    return a / b + (a % b > 0 ? 1 : 0);
}

/* >>shared by the drivers */
/* How many of `k` terms a block takes, so that a left and a right panel fit the L1 cache. */
SBIT__FN int64_t sbit__gemm_depth(const sbit_kernels *kernels, int64_t k);
SBIT__FN size_t sbit__cache_lines(int64_t floats); /* bytes, a multiple of 64 */
/* panel[p][i] = alpha * source[i * stride_i + p * stride_k], i < count <= tile, zeros beyond. */
SBIT__FN void sbit__pack_panel(int64_t count, int64_t tile, int64_t k, const float *source,
                               int64_t stride_i, int64_t stride_k, float alpha, float *panel);
/* The same for any count: panel after panel, `panel_stride` apart. */
SBIT__FN void sbit__pack_panels(int64_t count, int64_t tile, int64_t k, const float *source,
                                int64_t stride_i, int64_t stride_k, float alpha, float *panel,
                                int64_t panel_stride);
/* The same with the context's threads; panels lie behind each other. */
SBIT__FN void sbit__pack_all(sbit_ctx *ctx, int64_t count, int64_t tile, int64_t k,
                             const float *source, int64_t stride_i, int64_t stride_k, float alpha,
                             float *packed);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_ROWS_PRIVATE_H */
