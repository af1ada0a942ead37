/* split */
/* bench_kernels.c: speed of the matrix and convolution drivers and of elementwise kernels, one
 * thread, as GFLOP/s and as a fraction of what sbit_measure_peak finds in the
 * same run. Rounds are interleaved; the best and the median are shown, because other work on the
 * machine slows whole spans of time (the sibling of a hyperthread costs more than half).
 * `bench_kernels part` runs the cases whose name contains `part`; SPARSEBIT_FORCE_ISA and
 * SPARSEBIT_TEST_THREADS as for the tests. */
#include "../src/exec/exec_api.h"
#include "../src/kernels/kernels_private.h"

#define SBIT_TEST_NO_MAIN
#include "test.h"

#include <time.h> /* clock */

enum {
    ROUNDS = 25,
    ROUND_NS = 2000000
};

/* ---- cases */

typedef enum bench_kind {
    GEMM,
    CONV,
    UNARY,
    QUANTIZE,
    FAKE,
    SOFTMAX
} bench_kind;

/* GEMM: m n k packed_b. CONV: groups, channels in and out, batch, size, kernel, stride.
 * Others: n, unary operation. */
typedef struct bench_case {
    const char *name;
    bench_kind kind;
    int64_t p[7];
} bench_case;

static const bench_case cases[] = {
    {"gemm 512 512 512", GEMM, {512, 512, 512, 0, 0, 0, 0}},
    {"gemm 512 512 512 packed b", GEMM, {512, 512, 512, 1, 0, 0, 0}},
    {"gemm 64 64 64", GEMM, {64, 64, 64, 0, 0, 0, 0}},
    {"gemm 128 768 768 packed b", GEMM, {128, 768, 768, 1, 0, 0, 0}},
    {"gemm 1 1000 512 packed b", GEMM, {1, 1000, 512, 1, 0, 0, 0}},
    {"conv 3x3 64->64 56x56", CONV, {1, 64, 64, 1, 56, 3, 1}},
    {"conv 3x3 128->128 28x28", CONV, {1, 128, 128, 1, 28, 3, 1}},
    {"conv 3x3 256->256 14x14", CONV, {1, 256, 256, 1, 14, 3, 1}},
    {"conv 3x3 512->512 7x7", CONV, {1, 512, 512, 1, 7, 3, 1}},
    {"conv 7x7 s2 3->64 224x224", CONV, {1, 3, 64, 1, 224, 7, 2}},
    {"conv 3x3 s2 64->128 56x56", CONV, {1, 64, 128, 1, 56, 3, 2}},
    {"conv 3x3 3->16 32x32 batch 16", CONV, {1, 3, 16, 16, 32, 3, 1}},
    {"conv 3x3 16->16 32x32 batch 16", CONV, {1, 16, 16, 16, 32, 3, 1}},
    {"conv 3x3 32->32 16x16 batch 16", CONV, {1, 32, 32, 16, 16, 3, 1}},
    {"conv 3x3 64->64 8x8 batch 16", CONV, {1, 64, 64, 16, 8, 3, 1}},
    {"conv 3x3 512->512 4x4 batch 16", CONV, {1, 512, 512, 16, 4, 3, 1}},
    {"conv 1x1 96->24 14x14", CONV, {1, 96, 24, 1, 14, 1, 1}},
    {"conv 1x1 64->256 56x56", CONV, {1, 64, 256, 1, 56, 1, 1}},
    {"conv 1x1 24->144 32x32 batch 4", CONV, {1, 24, 144, 4, 32, 1, 1}},
    {"conv 1x1 144->24 32x32 batch 4", CONV, {1, 144, 24, 4, 32, 1, 1}},
    {"conv 1x1 320->1280 4x4 batch 4", CONV, {1, 320, 1280, 4, 4, 1, 1}},
    {"conv 3x3 32 groups of 4 56x56", CONV, {32, 4, 4, 1, 56, 3, 1}},
    {"depthwise 3x3 144 32x32", CONV, {144, 1, 1, 1, 32, 3, 1}},
    {"depthwise 3x3 s2 144 32x32", CONV, {144, 1, 1, 1, 32, 3, 2}},
    {"depthwise 3x3 384 8x8", CONV, {384, 1, 1, 1, 8, 3, 1}},
    {"depthwise 3x3 960 4x4", CONV, {960, 1, 1, 1, 4, 3, 1}},
    {"depthwise 3x3 32 112x112", CONV, {32, 1, 1, 1, 112, 3, 1}},
    {"depthwise 5x5 240 14x14", CONV, {240, 1, 1, 1, 14, 5, 1}},
    {"exp 16384", UNARY, {16384, SBIT__UNARY_EXP, 0, 0, 0, 0, 0}},
    {"tanh 16384", UNARY, {16384, SBIT__UNARY_TANH, 0, 0, 0, 0, 0}},
    {"gelu 16384", UNARY, {16384, SBIT__UNARY_GELU, 0, 0, 0, 0, 0}},
    {"softmax 1000", SOFTMAX, {1000, 0, 0, 0, 0, 0, 0}},
    {"quantize u8 16384", QUANTIZE, {16384, 0, 0, 0, 0, 0, 0}},
    {"fake quantize 16384", FAKE, {16384, 0, 0, 0, 0, 0, 0}},
};

typedef struct bench_state {
    sbit_ctx *ctx;
    const sbit_kernels *kernels;
    const bench_case *bench;
    float *x, *w, *packed, *y;
    void *scratch;
    sbit__conv conv;
    sbit__gemm gemm;
    double work; /* flops, or elements */
    int64_t loops;
    double rates[ROUNDS];
} bench_state;

static void *memory(size_t bytes)
{
    const sbit_allocator allocator = sbit__allocator_or_default(NULL);
    void *block = sbit__alloc_aligned(&allocator, bytes);
    if (block == NULL) {
        exit(2);
    }
    memset(block, 0, bytes);
    return block;
}

static float *floats(int64_t n)
{
    float *x = (float *)memory((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(i * 7919 % 1000) / 500.0f - 1.0f;
    }
    return x;
}

static void prepare_gemm(bench_state *s)
{
    const int64_t m = s->bench->p[0], n = s->bench->p[1], k = s->bench->p[2];
    s->x = floats(m * k);
    s->w = floats(k * n);
    s->y = floats(m * n);
    s->packed = (float *)memory(sbit__gemm_pack_b_bytes(s->ctx, n, k));
    sbit__gemm_pack_b(s->ctx, n, k, s->w, n, false, 1.0f, s->packed);
    s->gemm.m = m, s->gemm.n = n, s->gemm.k = k;
    s->gemm.a = s->x, s->gemm.b = s->w, s->gemm.c = s->y;
    s->gemm.lda = k, s->gemm.ldb = n, s->gemm.ldc = n;
    s->gemm.alpha = 1.0f;
    s->gemm.packed_b = s->bench->p[3] != 0 ? s->packed : NULL;
    s->scratch = memory(sbit__gemm_scratch_bytes(s->ctx, &s->gemm));
    s->work = 2.0 * (double)m * (double)n * (double)k;
}

static void prepare_conv(bench_state *s)
{
    const int64_t *p = s->bench->p;
    sbit__conv_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.batch = p[3], shape.groups = p[0];
    shape.in_channels = p[0] * p[1], shape.out_channels = p[0] * p[2];
    for (int d = 0; d < 3; d++) {
        shape.in[d] = d > 0 ? p[4] : 1;
        shape.kernel[d] = d > 0 ? p[5] : 1;
        shape.stride[d] = d > 0 ? p[6] : 1;
        shape.dilation[d] = 1;
        shape.pad_begin[d] = shape.kernel[d] / 2;
        shape.out[d] =
            (shape.in[d] + 2 * shape.pad_begin[d] - shape.kernel[d]) / shape.stride[d] + 1;
    }
    const int64_t pixels = shape.batch * shape.out[1] * shape.out[2];
    sbit__conv_plan(s->ctx, &shape, &s->conv);
    s->x = floats(p[3] * p[0] * p[1] * p[4] * p[4]);
    s->w = floats(p[0] * p[2] * p[1] * p[5] * p[5]);
    s->y = floats(p[0] * p[2] * pixels);
    s->packed = (float *)memory(s->conv.packed_bytes);
    sbit__conv_pack(s->ctx, &s->conv, s->w, s->packed);
    s->scratch = memory(s->conv.scratch_bytes);
    s->work = 2.0 * (double)(p[0] * p[1] * p[2] * p[5] * p[5]) * (double)pixels;
}

static void prepare(bench_state *s)
{
    if (s->bench->kind == GEMM) {
        prepare_gemm(s);
    } else if (s->bench->kind == CONV) {
        prepare_conv(s);
    } else {
        s->x = floats(s->bench->p[0]);
        s->y = floats(s->bench->p[0]);
        s->work = (double)s->bench->p[0];
    }
}

static void run_once(bench_state *s)
{
    sbit__epilogue relu;
    memset(&relu, 0, sizeof relu);
    relu.activation = SBIT__ACT_CLAMP;
    relu.hi = (float)INFINITY;
    const int64_t n = s->bench->p[0];
    switch (s->bench->kind) {
    case GEMM:
        sbit__gemm_run(s->ctx, &s->gemm, s->scratch);
        break;
    case CONV:
        sbit__conv_run(s->ctx, &s->conv, s->x, s->packed, s->w, &relu, s->y, s->scratch);
        break;
    case UNARY:
        s->kernels->f32_unary((sbit__unary)s->bench->p[1], n, s->x, s->y);
        break;
    case QUANTIZE:
        s->kernels->f32_quantize_u8(n, s->x, 0.01f, 128, 0, 255, (uint8_t *)s->y);
        break;
    case FAKE:
        s->kernels->f32_fake_quantize(n, s->x, 0.01f, 128, 0, 255, s->y);
        break;
    case SOFTMAX:
        s->kernels->f32_softmax(n, s->x, s->y);
        break;
    }
}

/* One thread: the processor's time, which does not count waiting for a processor. */
static double clock_ns(const sbit_ctx *ctx)
{
    return sbit_ctx_threads(ctx) == 1 ? (double)clock() * (1e9 / (double)CLOCKS_PER_SEC)
                                      : (double)sbit__now_ns();
}

static double measure(bench_state *s)
{
    const double begin = clock_ns(s->ctx);
    for (int64_t i = 0; i < s->loops; i++) {
        run_once(s);
    }
    const double ns = clock_ns(s->ctx) - begin;
    return s->work * (double)s->loops / (ns > 1.0 ? ns : 1.0);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void show(bench_state *s, double peak_best, double peak_median)
{
    qsort(s->rates, ROUNDS, sizeof s->rates[0], compare);
    const double best = s->rates[ROUNDS - 1], median = s->rates[ROUNDS / 2];
    printf("%-32s %8.4f ms", s->bench->name, s->work / best * 1e-6);
    if (s->bench->kind == GEMM || s->bench->kind == CONV) {
        printf(" %7.1f GFLOP/s, of peak: best %5.1f %%, median %5.1f %%\n", best,
               100 * best / peak_best, 100 * median / peak_median);
    } else {
        printf(" %7.2f elements/ns\n", best);
    }
}

int main(int argc, char **argv)
{
    static bench_state states[SBIT__COUNT_OF(cases)];
    static double peaks[ROUNDS];
    size_t count = 0;
    sbit_error error;
    sbit_ctx_desc desc = test_ctx_desc();
    sbit_ctx *ctx = NULL;
    if (sbit_ctx_create(&desc, &ctx, &error) != SBIT_OK) {
        printf("%s\n", error.message);
        return 1;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(cases); i++) {
        if (argc < 2 || strstr(cases[i].name, argv[1]) != NULL) {
            bench_state *s = &states[count++];
            s->ctx = ctx;
            s->kernels = sbit__kernels(ctx);
            s->bench = &cases[i];
            prepare(s);
            s->loops = 1;
            measure(s);
            const double ns = s->work / measure(s);
            s->loops = ns < ROUND_NS ? (int64_t)(ROUND_NS / ns) + 1 : 1;
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        peaks[round] = 2e-9 * sbit_measure_peak(ctx, false);
        for (size_t i = 0; i < count; i++) {
            states[i].rates[round] = measure(&states[i]);
        }
    }
    qsort(peaks, ROUNDS, sizeof peaks[0], compare);
    const double threads = sbit_ctx_threads(ctx);
    printf("%s, %g thread(s), peak of one: best %.1f, median %.1f GFLOP/s\n",
           sbit_isa_name(sbit_ctx_isa(ctx)), threads, peaks[ROUNDS - 1], peaks[ROUNDS / 2]);
    for (size_t i = 0; i < count; i++) {
        show(&states[i], peaks[ROUNDS - 1] * threads, peaks[ROUNDS / 2] * threads);
    }
    sbit_ctx_destroy(ctx);
    return 0;
}
