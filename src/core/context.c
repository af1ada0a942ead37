/* context.c: the context, CPU features, log, progress, clock, registries. >>context
 *
 * Called by: users first of all; every layer for callbacks and registered rows. Calls: threads,
 * the CPU's own feature report, the system's clock.
 * Does not: choose kernels; the kernel layer looks its table up by the context's ISA.
 *
 * x86: an instruction set counts when CPUID reports it *and* XGETBV says that the operating system
 * saves its registers: XCR0 bits 1,2 (xmm, ymm) for AVX2, also 5,6,7 (opmask, zmm) for AVX-512.
 * ARM and WebAssembly have no such question: what the compiler may use, the CPU has.
 */
#include "core_private.h"

#include <stdio.h> /* vsnprintf */
#include <time.h>  /* clock_gettime, CLOCK_MONOTONIC, timespec_get */
#if defined(_WIN32)
#include <windows.h> /* QueryPerformanceCounter */
#elif !defined(CLOCK_MONOTONIC) && (defined(__unix__) || defined(__APPLE__))
#include <sys/time.h> /* gettimeofday: all that strict -std=c99 shows */
#endif

#if !SPARSEBIT_NO_SIMD && (defined(__x86_64__) || defined(__i386__))
#define SBIT__CONTEXT_X86 1
#include <cpuid.h> /* CPUID for gcc and clang */
#elif !SPARSEBIT_NO_SIMD && (defined(_M_X64) || defined(_M_IX86))
#define SBIT__CONTEXT_X86 1
#include <intrin.h> /* CPUID and XGETBV for MSVC */
#else
#define SBIT__CONTEXT_X86 0
#endif

/* >>cpu features */
SPARSEBIT_API const char *sbit_isa_name(sbit_isa isa)
{
    switch (isa) {
#define SBIT__CONTEXT_ISA_NAME(name, number, text)                                                 \
    case name:                                                                                     \
        return text;
        SBIT_ISA_LIST(SBIT__CONTEXT_ISA_NAME)
#undef SBIT__CONTEXT_ISA_NAME
    case SBIT_ISA_DEFAULT:
        return "default";
    case SBIT_ISA_COUNT:
        break;
    }
    return "unknown";
}

#if SBIT__CONTEXT_X86

/* eax, ebx, ecx, edx of one CPUID leaf; zeros where the CPU does not know the leaf. */
static void sbit__cpuid(uint32_t leaf, uint32_t subleaf, uint32_t regs[4])
{
#if defined(_MSC_VER) && !defined(__clang__)
    int report[4];
    __cpuid(report, (int)(leaf & 0x80000000u));
    memset(regs, 0, 4 * sizeof(regs[0]));
    if ((uint32_t)report[0] >= leaf) {
        __cpuidex(report, (int)leaf, (int)subleaf);
        memcpy(regs, report, sizeof(report));
    }
#else
    unsigned int a = 0, b = 0, c = 0, d = 0;
    if ((unsigned int)__get_cpuid_max(leaf & 0x80000000u, NULL) >= leaf) {
        __cpuid_count(leaf, subleaf, a, b, c, d);
    }
    regs[0] = a;
    regs[1] = b;
    regs[2] = c;
    regs[3] = d;
#endif
}

static uint32_t sbit__xgetbv0(void)
{
#if defined(_MSC_VER) && !defined(__clang__)
    return (uint32_t)_xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0)); /* xgetbv */
    (void)high;
    return low;
#endif
}

/* AVX-VNNI: leaf 7, subleaf 1, eax 4. */
static bool sbit__isa_has_vnni256(void)
{
    uint32_t leaf7[4], more[4];
    sbit__cpuid(7, 0, leaf7);
    sbit__cpuid(7, 1, more);
    return leaf7[0] >= 1 && ((more[0] >> 4) & 1u) != 0;
}

SBIT__FN const char *sbit__cpu_name(char text[SBIT__CPU_NAME])
{
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t regs[4];
        sbit__cpuid(0x80000002u + i, 0, regs);
        memcpy(text + 16 * i, regs, sizeof regs);
    }
    text[SBIT__CPU_NAME - 1] = '\0';
    size_t size = strlen(text);
    while (size > 0 && text[size - 1] == ' ') {
        text[--size] = '\0';
    }
    const size_t first = strspn(text, " ");
    memmove(text, text + first, size - first + 1);
    return text;
}

static sbit_isa sbit__isa_best(void)
{
    uint32_t leaf1[4], leaf7[4];
    sbit__cpuid(1, 0, leaf1);
    sbit__cpuid(7, 0, leaf7);
    if (((leaf1[3] >> 26) & 1u) == 0) { /* edx 26: SSE2 */
        return SBIT_ISA_SCALAR;
    }
    const uint32_t avx_fma_osxsave = (1u << 28) | (1u << 12) | (1u << 27); /* leaf 1, ecx */
    if ((leaf1[2] & avx_fma_osxsave) != avx_fma_osxsave || ((leaf7[1] >> 5) & 1u) == 0) {
        return SBIT_ISA_SSE2;
    }
    const uint32_t saved = sbit__xgetbv0();
    if ((saved & 0x06u) != 0x06u) {
        return SBIT_ISA_SSE2;
    }
    const uint32_t f_dq_bw_vl = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31); /* leaf 7, ebx */
    if ((saved & 0xe6u) != 0xe6u || (leaf7[1] & f_dq_bw_vl) != f_dq_bw_vl) {
        return sbit__isa_has_vnni256() ? SBIT_ISA_AVX2VNNI : SBIT_ISA_AVX2;
    }
    return ((leaf7[2] >> 11) & 1u) != 0 ? SBIT_ISA_AVX512VNNI : SBIT_ISA_AVX512;
}

#else

static bool sbit__isa_has_vnni256(void)
{
    return false;
}

SBIT__FN const char *sbit__cpu_name(char text[SBIT__CPU_NAME])
{
    text[0] = '\0';
    return text;
}

static sbit_isa sbit__isa_best(void)
{
#if SPARSEBIT_NO_SIMD
    return SBIT_ISA_SCALAR;
#elif defined(__ARM_NEON) || defined(_M_ARM64)
    return SBIT_ISA_NEON;
#elif defined(__wasm_simd128__)
    return SBIT_ISA_WASM128;
#else
    return SBIT_ISA_SCALAR;
#endif
}

#endif

SPARSEBIT_API bool sbit_isa_available(sbit_isa isa)
{
    const sbit_isa best = sbit__isa_best();
    if (isa <= SBIT_ISA_DEFAULT || isa >= SBIT_ISA_COUNT) {
        return false;
    }
    if (isa == SBIT_ISA_SCALAR || isa == best) {
        return true;
    }
    if (isa == SBIT_ISA_AVX2VNNI) {
        return best >= SBIT_ISA_AVX2 && best <= SBIT_ISA_AVX512VNNI && sbit__isa_has_vnni256();
    }
    /* the x86 sets contain each other */
    return best == SBIT_ISA_AVX2VNNI ? isa <= SBIT_ISA_AVX2
                                     : best <= SBIT_ISA_AVX512VNNI && isa < best;
}

/* >>create and destroy */
static sbit_status sbit__ctx_check_desc(const sbit_ctx_desc *desc, sbit_error *error)
{
    if (!sbit__allocator_valid(&desc->allocator)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the allocator must have all three functions or none");
    }
    if (desc->threads < 0 || desc->threads > SBIT__MAX_THREADS) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "threads is %ld, which is not in 0..%d", (long)desc->threads,
                          SBIT__MAX_THREADS);
    }
    if (desc->max_body_nodes < 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "max_body_nodes is negative");
    }
    if (desc->force_isa != SBIT_ISA_DEFAULT && !sbit_isa_available(desc->force_isa)) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "instruction set %s is not available here: the best one is %s",
                          sbit_isa_name(desc->force_isa), sbit_isa_name(sbit__isa_best()));
    }
    return SBIT_OK;
}

static sbit_status sbit__ctx_start_threads(sbit_ctx *ctx, sbit_error *error)
{
    if (ctx->threads == 1 || ctx->parallel_for != NULL) {
        return SBIT_OK;
    }
#if SPARSEBIT_NO_THREADS
    (void)error;
    sbit__log(ctx, SBIT_LOG_WARNING, "built with SPARSEBIT_NO_THREADS: 1 thread instead of %ld",
              (long)ctx->threads);
    ctx->threads = 1;
    return SBIT_OK;
#else
    return sbit__pool_create(&ctx->allocator, ctx->threads, &ctx->pool, error);
#endif
}

SPARSEBIT_API sbit_status sbit_ctx_create(const sbit_ctx_desc *desc, sbit_ctx **out,
                                          sbit_error *error)
{
    sbit_ctx_desc filled;
    memset(&filled, 0, sizeof(filled));
    if (desc != NULL) {
        filled = *desc;
    }
    SBIT__TRY(sbit__ctx_check_desc(&filled, error));
    const sbit_allocator allocator = sbit__allocator_or_default(&filled.allocator);
    sbit_ctx *ctx = (sbit_ctx *)sbit__calloc(&allocator, 1, sizeof(*ctx));
    if (ctx == NULL) {
        return sbit__fail_oom(error, sizeof(*ctx));
    }
    ctx->allocator = allocator;
    ctx->logger = filled.logger;
    ctx->progress = filled.progress;
    ctx->threads = filled.threads == 0 ? 1 : filled.threads;
    ctx->parallel_for = filled.parallel_for;
    ctx->parallel_user = filled.parallel_user;
    ctx->max_body_nodes = filled.max_body_nodes == 0 ? 500000 : filled.max_body_nodes;
    ctx->isa = filled.force_isa != SBIT_ISA_DEFAULT ? filled.force_isa : sbit__isa_best();
    const sbit_status status = sbit__ctx_start_threads(ctx, error);
    if (status != SBIT_OK) {
        sbit_ctx_destroy(ctx);
        return status;
    }
    *out = ctx;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_ctx_destroy(sbit_ctx *ctx)
{
    if (ctx == NULL) {
        return;
    }
    const sbit_allocator allocator = ctx->allocator;
#if !SPARSEBIT_NO_THREADS
    sbit__pool_destroy(ctx->pool);
#endif
    sbit__free(&allocator, ctx->registry, ctx->registry_capacity * sizeof(ctx->registry[0]));
    sbit__free(&allocator, ctx, sizeof(*ctx));
}

SPARSEBIT_API sbit_isa sbit_ctx_isa(const sbit_ctx *ctx)
{
    return ctx->isa;
}

SPARSEBIT_API int32_t sbit_ctx_threads(const sbit_ctx *ctx)
{
    return ctx->threads;
}

SPARSEBIT_API const sbit_allocator *sbit_ctx_allocator(const sbit_ctx *ctx)
{
    return &ctx->allocator;
}

SPARSEBIT_API void sbit_ctx_parallel(sbit_ctx *ctx, int64_t count, sbit_task_fn fn, void *task)
{
    if (count > 1 && ctx->parallel_for != NULL) {
        ctx->parallel_for(count, fn, task, ctx->parallel_user);
        return;
    }
#if !SPARSEBIT_NO_THREADS
    if (count > 1 && ctx->pool != NULL) {
        sbit__pool_run(ctx->pool, count, fn, task);
        return;
    }
#endif
    for (int64_t i = 0; i < count; i++) {
        fn(task, i, 0);
    }
}

/* >>log, progress, clock */
SBIT__FN void sbit__log(sbit_ctx *ctx, sbit_log_level level, const char *format, ...)
{
    if (ctx->logger.log_fn == NULL) {
        return;
    }
    char message[1024];
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (size >= 0) {
        ctx->logger.log_fn(level, message, ctx->logger.user);
    }
}

SBIT__FN sbit_status sbit__progress(sbit_ctx *ctx, const char *what, int64_t done, int64_t total,
                                    sbit_error *error)
{
    if (ctx->progress.progress_fn == NULL ||
        ctx->progress.progress_fn(what, done, total, ctx->progress.user)) {
        return SBIT_OK;
    }
    return sbit__fail(error, SBIT_ERR_CANCELLED, what, "%s was cancelled at %lld of %lld", what,
                      (long long)done, (long long)total);
}

SBIT__FN uint64_t sbit__now_ns(void)
{
#if defined(_WIN32)
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    const uint64_t rate = (uint64_t)per_second.QuadPart, now = (uint64_t)ticks.QuadPart;
    return now / rate * 1000000000u + now % rate * 1000000000u / rate;
#elif defined(CLOCK_MONOTONIC)
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#elif defined(__unix__) || defined(__APPLE__)
    struct timeval now;
    if (gettimeofday(&now, NULL) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_usec * 1000u;
#else
    return (uint64_t)clock() * (1000000000u / (uint64_t)CLOCKS_PER_SEC);
#endif
}

/* >>registry */
SBIT__FN sbit_status sbit__registry_add(sbit_ctx *ctx, const void *kind, const void *row,
                                        sbit_error *error)
{
    void *rows = ctx->registry;
    const sbit_status status = sbit__grow(&ctx->allocator, &rows, &ctx->registry_capacity,
                                          ctx->registry_count + 1, sizeof *ctx->registry, error);
    ctx->registry = (sbit__registered *)rows;
    if (status == SBIT_OK) {
        ctx->registry[ctx->registry_count].kind = kind;
        ctx->registry[ctx->registry_count++].row = row;
    }
    return status;
}

SBIT__FN const void *sbit__registry_at(const sbit_ctx *ctx, const void *kind, size_t index)
{
    for (size_t i = 0; i < ctx->registry_count; i++) {
        if (ctx->registry[i].kind == kind && index-- == 0) {
            return ctx->registry[i].row;
        }
    }
    return NULL;
}

#undef SBIT__CONTEXT_X86
