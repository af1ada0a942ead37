/* dispatch.c: the table of kernels for each instruction set. >>kernels_dispatch
 *
 * Called by: the drivers, ops, observers, quantizers, tests. Calls: core (the context's set).
 * A row is constant; rows_private.h says which of its kernels come from a lower row.
 */
#include "rows_private.h"

#define SBIT__ROW_REF(type, name, params) sbit__##name##__ref,
static const sbit_kernels sbit__kernels_scalar = {
    SBIT_ISA_SCALAR, SBIT__REF_TILE_M, SBIT__REF_TILE_N, SBIT__KERNEL_LIST(SBIT__ROW_REF)};
#undef SBIT__ROW_REF

#if SBIT__X86
#define SBIT__ROW_SSE2(type, name, params) sbit__##name##__sse2,
#define SBIT__ROW_AVX2(type, name, params) sbit__##name##__avx2,
#define SBIT__ROW_AVX512(type, name, params) sbit__##name##__avx512,
static const sbit_kernels sbit__kernels_sse2 = {SBIT_ISA_SSE2, SBIT__128_TILE_M, SBIT__128_TILE_N,
                                                SBIT__KERNEL_LIST(SBIT__ROW_SSE2)};
static const sbit_kernels sbit__kernels_avx2 = {SBIT_ISA_AVX2, SBIT__AVX2_TILE_M, SBIT__AVX2_TILE_N,
                                                SBIT__KERNEL_LIST(SBIT__ROW_AVX2)};
static const sbit_kernels sbit__kernels_avx512 = {
    SBIT_ISA_AVX512, SBIT__AVX512_TILE_M, SBIT__AVX512_TILE_N, SBIT__KERNEL_LIST(SBIT__ROW_AVX512)};
/* VNNI is for integer kernels, which have tables of their own (vec_sets.c). */
static const sbit_kernels sbit__kernels_avx2vnni = {
    SBIT_ISA_AVX2VNNI, SBIT__AVX2_TILE_M, SBIT__AVX2_TILE_N, SBIT__KERNEL_LIST(SBIT__ROW_AVX2)};
static const sbit_kernels sbit__kernels_avx512vnni = {SBIT_ISA_AVX512VNNI, SBIT__AVX512_TILE_M,
                                                      SBIT__AVX512_TILE_N,
                                                      SBIT__KERNEL_LIST(SBIT__ROW_AVX512)};
#undef SBIT__ROW_SSE2
#undef SBIT__ROW_AVX2
#undef SBIT__ROW_AVX512
#elif SBIT__HAS_128
#define SBIT__ROW_NEON(type, name, params) sbit__##name##__neon,
static const sbit_kernels sbit__kernels_neon = {SBIT_ISA_NEON, SBIT__128_TILE_M, SBIT__128_TILE_N,
                                                SBIT__KERNEL_LIST(SBIT__ROW_NEON)};
#undef SBIT__ROW_NEON
#endif

SBIT__FN const sbit_kernels *sbit__kernels_of(sbit_isa isa)
{
    switch (isa) {
    case SBIT_ISA_SCALAR:
        return &sbit__kernels_scalar;
#if SBIT__X86
    case SBIT_ISA_SSE2:
        return &sbit__kernels_sse2;
    case SBIT_ISA_AVX2:
        return &sbit__kernels_avx2;
    case SBIT_ISA_AVX2VNNI:
        return &sbit__kernels_avx2vnni;
    case SBIT_ISA_AVX512:
        return &sbit__kernels_avx512;
    case SBIT_ISA_AVX512VNNI:
        return &sbit__kernels_avx512vnni;
#elif SBIT__HAS_128
    case SBIT_ISA_NEON:
        return &sbit__kernels_neon;
#endif
    default:
        return NULL;
    }
}

SBIT__FN const sbit_kernels *sbit__kernels(const sbit_ctx *ctx)
{
    const sbit_kernels *kernels = sbit__kernels_of(sbit_ctx_isa(ctx));
    return kernels != NULL ? kernels : &sbit__kernels_scalar;
}
