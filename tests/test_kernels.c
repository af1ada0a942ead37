/* split */
/* test_kernels.c: every kernel on every instruction set of this machine, at the sizes where vector
 * code goes wrong, against plain loops in double; the matrix and convolution drivers likewise.
 * Arrays end where an unreadable page begins, so that one element too many is a crash. */
#include "../src/exec/exec_api.h"
#include "../src/kernels/last_private.h"
#include "../src/kernels/q8_private.h"
#include "../src/kernels/rows_private.h"
#include "test.h"

#include <float.h> /* FLT_MAX */
#include <sys/mman.h> /* mmap, mprotect */

/* ---- memory with a forbidden page behind it */

enum {
    SLOTS = 14,
    SLOT_BYTES = 8 << 20,
    PAGE = 1 << 16 /* a multiple of any page size */
};

static unsigned char *slots[SLOTS];

/* `bytes` that end at the forbidden page (or begin behind one); filled with NaN patterns. */
static void *fenced(int slot, size_t bytes, bool behind)
{
    if (slots[slot] == NULL) {
        void *block = mmap(NULL, SLOT_BYTES + 2 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        slots[slot] = (unsigned char *)block + PAGE;
        if (block == MAP_FAILED || mprotect(block, PAGE, PROT_NONE) != 0 ||
            mprotect(slots[slot] + SLOT_BYTES, PAGE, PROT_NONE) != 0) {
            printf("no memory\n");
            exit(2);
        }
    }
    if (bytes > SLOT_BYTES) {
        printf("slot %d: %lu bytes are too many\n", slot, (unsigned long)bytes);
        exit(2);
    }
    unsigned char *ptr = behind ? slots[slot] : slots[slot] + SLOT_BYTES - bytes;
    memset(ptr, 0xff, bytes);
    return ptr;
}

static float *fenced_floats(int slot, int64_t n)
{
    return (float *)fenced(slot, (size_t)n * sizeof(float), false);
}

/* ---- numbers */

static uint32_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static int64_t random_below(int64_t n)
{
    return (int64_t)random_bits() % n;
}

static float random_float(void) /* -1..1 */
{
    return (float)random_bits() / 8388608.0f - 1.0f;
}

static float *random_floats(int slot, int64_t n)
{
    float *x = fenced_floats(slot, n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = random_float();
    }
    return x;
}

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool same_float(float a, float b)
{
    return float_bits(a) == float_bits(b) || (a != a && b != b);
}

/* ---- which kernels are tested: the sets of this machine, or the forced one */

static bool isa_tested(int isa)
{
    if (test_force_isa() != NULL && strcmp(test_force_isa(), sbit_isa_name((sbit_isa)isa)) != 0) {
        return false;
    }
    return sbit_isa_available((sbit_isa)isa) && sbit__kernels_of((sbit_isa)isa) != NULL;
}

#define EACH_ISA(isa, kernels)                                                                     \
    for (int isa = 1; isa < SBIT_ISA_COUNT; isa++)                                                 \
        for (const sbit_kernels *kernels = isa_tested(isa) ? sbit__kernels_of((sbit_isa)isa)       \
                                                           : NULL;                                 \
             kernels != NULL; kernels = NULL)

static sbit_ctx *ctx_of(int isa, int threads)
{
    sbit_ctx_desc desc;
    sbit_error error;
    sbit_ctx *ctx = NULL;
    memset(&desc, 0, sizeof desc);
    desc.threads = threads;
    desc.force_isa = (sbit_isa)isa;
    CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
    return ctx;
}

TEST(isas_are_listed)
{
    int tested = 0;
    for (int isa = 1; isa < SBIT_ISA_COUNT; isa++) {
        tested += isa_tested(isa);
        if (!isa_tested(isa)) {
            printf("not tested here: %s\n", sbit_isa_name((sbit_isa)isa));
        }
    }
    CHECK(tested > 0);
    CHECK(sbit__kernels_of(SBIT_ISA_SCALAR) != NULL);
    CHECK(sbit__kernels_of(SBIT_ISA_DEFAULT) == NULL);
    EACH_ISA(isa, kernels)
    {
        sbit_ctx *ctx = ctx_of(isa, 1);
        CHECK(kernels->isa == (sbit_isa)isa);
        CHECK(sbit__kernels(ctx) == kernels);
        sbit_ctx_destroy(ctx);
    }
}

/* ---- activations and epilogues, in double */

static double activate(double x, const sbit__epilogue *ep)
{
    if (ep == NULL) {
        return x;
    }
    const double gate = x / 6.0 + 0.5;
    switch (ep->activation) {
    case SBIT__ACT_CLAMP:
        return x < (double)ep->lo ? (double)ep->lo : x > (double)ep->hi ? (double)ep->hi : x;
    case SBIT__ACT_HARDSWISH:
        return x * (gate < 0 ? 0 : gate > 1 ? 1 : gate);
    case SBIT__ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case SBIT__ACT_SILU:
        return x / (1 + exp(-x));
    case SBIT__ACT_LEAKY:
        return x < 0 ? (double)ep->lo * x : x;
    case SBIT__ACT_GELU:
        return x / 2 * (1 + erf(x / sqrt(2.0)));
    default:
        return x;
    }
}

static sbit__epilogue epilogue_number(int64_t number, const float *residual)
{
    sbit__epilogue ep;
    memset(&ep, 0, sizeof ep);
    ep.activation = (sbit__activation)(number % 7);
    ep.lo = ep.activation == SBIT__ACT_LEAKY ? 0.1f : 0.0f;
    ep.hi = number % 14 >= 7 ? 6.0f : (float)INFINITY;
    ep.residual = residual;
    return ep;
}

TEST(numbers_are_divided_up)
{
    for (int64_t a = -9; a <= 9; a++) {
        for (int64_t b = 1; b <= 5; b++) {
            CHECK_EQ_I64(sbit__div_up(a, b), ceil((double)a / (double)b));
        }
    }
}

/* ---- single kernels */

static void check_tile(const sbit_kernels *kernels, int64_t m, int64_t n, int64_t k, int64_t turn)
{
    const int64_t tm = kernels->tile_m, ldb = n + turn % 3 * 5, ldc = n + turn % 4;
    const bool add = turn % 2 != 0, bias_rows = turn % 5 < 2, with_bias = turn % 3 != 0;
    const float *a = random_floats(0, tm * k);
    const float *b = random_floats(1, k > 0 ? (k - 1) * ldb + n : 0);
    const float *bias = random_floats(2, bias_rows ? m : n);
    const float *residual = random_floats(3, (m - 1) * ldc + n);
    float *c = random_floats(4, (m - 1) * ldc + n), *before = random_floats(5, (m - 1) * ldc + n);
    memcpy(c, before, (size_t)((m - 1) * ldc + n) * sizeof(float));
    const sbit__epilogue ep = epilogue_number(turn, turn % 7 < 3 ? residual : NULL);
    const sbit__epilogue *used = turn % 11 != 0 ? &ep : NULL;
    kernels->f32_gemm_tile(m, n, k, a, b, ldb, c, ldc, add, with_bias ? bias : NULL, bias_rows,
                           used);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < ldc && i * ldc + j < (m - 1) * ldc + n; j++) {
            const int64_t at = i * ldc + j;
            if (j >= n) {
                CHECK(same_float(c[at], before[at])); /* between the rows */
                continue;
            }
            double sum = add ? (double)before[at] : 0.0, size = 1.0;
            for (int64_t p = 0; p < k; p++) {
                sum += (double)a[p * tm + i] * (double)b[p * ldb + j];
                size += fabs((double)a[p * tm + i] * (double)b[p * ldb + j]);
            }
            sum += with_bias ? (double)bias[bias_rows ? i : j] : 0.0;
            sum += used != NULL && ep.residual != NULL ? (double)residual[at] : 0.0;
            CHECK_NEAR((double)c[at], activate(sum, used), 1e-6 * size);
        }
    }
}

TEST(gemm_tile)
{
    static const int64_t depths[] = {0, 1, 2, 9, 70};
    EACH_ISA(isa, kernels)
    {
        int64_t turn = 0;
        for (int64_t m = 1; m <= kernels->tile_m; m++) {
            for (int64_t n = 1; n <= kernels->tile_n; n++) {
                for (size_t d = 0; d < SBIT__COUNT_OF(depths); d++, turn++) {
                    check_tile(kernels, m, n, depths[d], turn);
                }
            }
        }
    }
}

/* Each panel has the bits of the tile kernel, whose rows lie tile_m apart. */
TEST(gemm_row_is_a_row_of_the_tile)
{
    static const int64_t depths[] = {0, 1, 2, 9, 70};
    EACH_ISA(isa, kernels)
    {
        const int64_t tm = kernels->tile_m, tn = kernels->tile_n;
        for (int64_t panels = 1; panels <= 4; panels++) {
            for (size_t d = 0; d < SBIT__COUNT_OF(depths); d++) {
                const int64_t k = depths[d], stride = k * tn + 8 * (int64_t)d;
                const float *a = random_floats(0, tm * k), *b = random_floats(1, 4 * stride);
                float *row = random_floats(2, k), *sums = random_floats(3, panels * tn);
                for (int64_t p = 0; p < k; p++) {
                    row[p] = a[p * tm];
                }
                kernels->f32_gemm_row(panels, k, row, b, stride, sums);
                for (int64_t i = 0; i < panels; i++) {
                    float want[32]; /* the widest tile */
                    kernels->f32_gemm_tile(1, tn, k, a, b + i * stride, tn, want, tn, false, NULL,
                                           false, NULL);
                    for (int64_t j = 0; j < tn; j++) {
                        CHECK(same_float(sums[i * tn + j] + 0.0f, want[j]));
                    }
                }
            }
        }
    }
}

static void check_conv_tile(const sbit_kernels *kernels, int64_t m, int64_t n_left, int64_t n_right,
                            int64_t k, int64_t turn)
{
    const int64_t tm = kernels->tile_m, half = kernels->tile_n / 2, ldc = 2 * half + turn % 4;
    const int64_t b_size = 200 + half, c_size = m * ldc;
    const bool add = turn % 2 != 0, with_bias = turn % 3 != 0;
    const float *a = random_floats(0, tm * k), *bias = random_floats(2, m);
    const float *b = random_floats(1, b_size), *residual = random_floats(3, c_size);
    float *c = random_floats(4, c_size), *before = random_floats(5, c_size);
    memcpy(c, before, (size_t)c_size * sizeof(float));
    int32_t *offsets = (int32_t *)fenced(6, (size_t)k * sizeof(int32_t), false);
    for (int64_t p = 0; p < k; p++) {
        offsets[p] = (int32_t)random_below(101);
    }
    /* left and right begin anywhere in b, and change places in c */
    const int64_t at[2] = {random_below(101), 100},
                  to[2] = {turn % 5 < 2 ? 0 : n_right, turn % 5 < 2 ? n_left : 0};
    const int64_t n[2] = {n_left, n_right};
    const sbit__epilogue ep = epilogue_number(turn, turn % 7 < 3 ? residual + to[0] : NULL);
    const sbit__epilogue *used = turn % 11 != 0 ? &ep : NULL;
    kernels->f32_conv_tile(m, k, a, offsets, b + at[0], b + at[1], c + to[0], n_left, c + to[1],
                           n_right, ldc, add, with_bias ? bias : NULL, used);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = n_left + n_right; j < ldc; j++) {
            CHECK(same_float(c[i * ldc + j], before[i * ldc + j]));
        }
        for (int64_t j = 0; j < n_left + n_right; j++) {
            const int side = j >= to[0] && j < to[0] + n[0] ? 0 : 1;
            double sum = add ? (double)before[i * ldc + j] : 0.0, size = 1.0;
            for (int64_t p = 0; p < k; p++) {
                const double term =
                    (double)a[p * tm + i] * (double)b[at[side] + offsets[p] + j - to[side]];
                sum += term;
                size += fabs(term);
            }
            sum += with_bias ? (double)bias[i] : 0.0;
            sum += used != NULL && ep.residual != NULL ? (double)residual[i * ldc + j] : 0.0;
            CHECK_NEAR((double)c[i * ldc + j], activate(sum, used), 1e-6 * size);
        }
    }
}

TEST(conv_tile)
{
    static const int64_t depths[] = {1, 2, 9, 70};
    EACH_ISA(isa, kernels)
    {
        const int64_t half = kernels->tile_n / 2;
        int64_t turn = 0;
        for (int64_t m = 1; m <= kernels->tile_m; m++) {
            for (int64_t n = 1; n <= half; n++) {
                for (size_t d = 0; d < SBIT__COUNT_OF(depths); d++, turn++) {
                    check_conv_tile(kernels, m, n, turn % 3 == 0 ? 0 : half, depths[d], turn);
                    check_conv_tile(kernels, m, half, n, depths[d], turn);
                    check_conv_tile(kernels, m, n, 1 + turn % half, depths[d], turn);
                }
            }
        }
    }
}

static double unary(sbit__unary op, double x)
{
    const double gate = x / 6.0 + 0.5;
    switch (op) {
    case SBIT__UNARY_ABS:
        return fabs(x);
    case SBIT__UNARY_NEG:
        return -x;
    case SBIT__UNARY_EXP:
        return exp(x);
    case SBIT__UNARY_LOG:
        return log(x);
    case SBIT__UNARY_SQRT:
        return sqrt(x);
    case SBIT__UNARY_RECIPROCAL:
        return 1 / x;
    case SBIT__UNARY_SIGMOID:
        return 1 / (1 + exp(-x));
    case SBIT__UNARY_TANH:
        return tanh(x);
    case SBIT__UNARY_ERF:
        return erf(x);
    case SBIT__UNARY_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case SBIT__UNARY_GELU_TANH:
        return x * (1 / (1 + exp(-2 * sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x))));
    case SBIT__UNARY_SILU:
        return x * (1 / (1 + exp(-x)));
    case SBIT__UNARY_HARDSWISH:
        return x * (gate < 0 ? 0 : gate > 1 ? 1 : gate);
    case SBIT__UNARY_FLOOR:
        return floor(x);
    case SBIT__UNARY_CEIL:
        return ceil(x);
    case SBIT__UNARY_ROUND:
        return nearbyint(x);
    case SBIT__UNARY_SOFTPLUS:
        return (x > 0 ? x : x - x == 0 || x < 0 ? 0 : x) + log1p(exp(-fabs(x)));
    case SBIT__UNARY_MISH:
        return x * tanh(log1p(exp(x)));
    case SBIT__UNARY_GELU_SLOPE:
        return 0.5 * erfc(-x / sqrt(2.0)) + x * 0.39894228040143268 * exp(-0.5 * x * x);
    default:
        return x;
    }
}

/* 4 units in the last place + 1e-7, infinities and NaN exactly, exact operations exactly. */
static bool unary_close(sbit__unary op, double x, float got, double wanted)
{
    if (op == SBIT__UNARY_ABS || op == SBIT__UNARY_NEG || op == SBIT__UNARY_SQRT ||
        op == SBIT__UNARY_RECIPROCAL || op == SBIT__UNARY_FLOOR || op == SBIT__UNARY_CEIL ||
        op == SBIT__UNARY_ROUND) {
        return (double)got == (double)(float)wanted || (got != got && wanted != wanted);
    }
    if (wanted != wanted || got != got) {
        return wanted != wanted && got != got;
    }
    if (fabs(wanted) > 3.4028e38 || fabs((double)got) > 3.4028e38) {
        return fabs(wanted) > 3.4028e38 && fabs((double)got) > 3.4028e38 &&
               (wanted > 0) == (got > 0);
    }
    (void)x;
    return fabs((double)got - wanted) <= 1e-7 + fabs(wanted) * 4 * 1.1920929e-7 * 0.5 * 2;
}

TEST(unary_functions)
{
    enum {
        COUNT = 60000
    };
    static const float special[] = {
        0.0f,       -0.0f,           1.0f,        -1.0f,      0.5f,          1.5f,
        2.5f,       -2.5f,           1e-40f,      -1e-40f,    88.0f,         -88.0f,
        89.5f,      -104.5f,         -87.5f,      -95.0f,     0.625f,        0.9f,
        -0.9f,      3.4e38f,         -3.4e38f,    INFINITY,   -INFINITY,     NAN,
        8388609.0f, 8388607.5f,      -8388607.5f, 4194303.5f, 2147483648.0f, -2147483648.0f,
        3e9f,       1.17549435e-38f, 20.0f,       -20.0f,     100.0f};
    static double wanted[COUNT];
    float *x = fenced_floats(0, COUNT), *y = fenced_floats(1, COUNT);
    for (int i = 0; i < COUNT; i++) { /* all exponents, then where the functions bend */
        x[i] = i < COUNT / 2 ? bits_float((uint32_t)i * 143165u) : random_float() * 12.0f;
    }
    memcpy(x, special, sizeof special);
    for (int op = 0; op < SBIT__UNARY_COUNT; op++) {
        for (int i = 0; i < COUNT; i++) {
            wanted[i] = unary((sbit__unary)op, (double)x[i]);
        }
        EACH_ISA(isa, kernels)
        {
            int wrong = 0;
            kernels->f32_unary((sbit__unary)op, COUNT, x, y);
            for (int i = 0; i < COUNT && wrong < 5; i++) {
                if (!unary_close((sbit__unary)op, (double)x[i], y[i], wanted[i])) {
                    wrong++;
                    test_failed(__FILE__, __LINE__, "%s: unary %d of %.9g is %.9g, wanted %.9g",
                                sbit_isa_name((sbit_isa)isa), op, (double)x[i], (double)y[i],
                                wanted[i]);
                }
            }
        }
    }
}

/* The same value wherever an element stands; nothing beyond n is touched; in place. */
TEST(unary_sizes)
{
    for (int op = 0; op < SBIT__UNARY_COUNT; op++) {
        EACH_ISA(isa, kernels)
        {
            float all[80];
            const float *x = random_floats(0, 80);
            kernels->f32_unary((sbit__unary)op, 80, x, all);
            for (int64_t n = 0; n < 40; n++) {
                float *y = fenced_floats(1, n);
                float *z = (float *)fenced(2, (size_t)(n + 1) * sizeof(float), true);
                kernels->f32_unary((sbit__unary)op, n, x + n, y); /* any alignment */
                memcpy(z, x, (size_t)(n + 1) * sizeof(float));
                kernels->f32_unary((sbit__unary)op, n, z, z);
                for (int64_t i = 0; i < n; i++) {
                    CHECK(same_float(y[i], all[n + i]));
                    CHECK(same_float(z[i], all[i]));
                }
                CHECK(same_float(z[n], x[n]));
            }
        }
    }
}

static float binary(sbit__binary op, float a, float b)
{
    switch (op) {
    case SBIT__BINARY_ADD:
        return a + b;
    case SBIT__BINARY_SUB:
        return a - b;
    case SBIT__BINARY_MUL:
        return a * b;
    case SBIT__BINARY_DIV:
        return a / b;
    case SBIT__BINARY_MAX:
        return a != a || b != b ? NAN : a > b ? a : b;
    default:
        return a != a || b != b ? NAN : a < b ? a : b;
    }
}

TEST(binary_operations)
{
    for (int op = 0; op < SBIT__BINARY_COUNT; op++) {
        EACH_ISA(isa, kernels)
        {
            for (int64_t n = 0; n < 40; n++) {
                for (int steps = 0; steps < 4; steps++) {
                    const int64_t sa = steps & 1, sb = steps >> 1, one = n > 0;
                    float *a = random_floats(0, sa ? n : one), *b = random_floats(1, sb ? n : one);
                    float *y = fenced_floats(2, n), copy[40], *z = fenced_floats(3, n);
                    if (n > 2) {
                        a[sa * (n / 2)] = n % 3 == 0 ? NAN : a[0];
                        b[sb * (n - 1)] = n % 5 == 0 ? NAN : b[0];
                    }
                    kernels->f32_binary((sbit__binary)op, n, a, sa, b, sb, y);
                    for (int64_t i = 0; i < n; i++) {
                        CHECK(same_float(y[i], binary((sbit__binary)op, a[sa * i], b[sb * i])));
                        copy[i] = y[i];
                    }
                    if (sa != 0) { /* in place, left and right */
                        memcpy(z, a, (size_t)n * sizeof(float));
                        kernels->f32_binary((sbit__binary)op, n, z, sa, b, sb, z);
                        CHECK(n == 0 || memcmp(z, copy, (size_t)n * sizeof(float)) == 0);
                    }
                    if (sb != 0) {
                        memcpy(z, b, (size_t)n * sizeof(float));
                        kernels->f32_binary((sbit__binary)op, n, a, sa, z, sb, z);
                        CHECK(n == 0 || memcmp(z, copy, (size_t)n * sizeof(float)) == 0);
                    }
                }
            }
        }
    }
}

TEST(activations)
{
    EACH_ISA(isa, kernels)
    {
        for (int64_t n = 0; n < 40; n++) {
            for (int64_t number = 0; number < 12; number++) {
                const sbit__epilogue ep = epilogue_number(number, NULL);
                float *x = random_floats(0, n), before[40];
                for (int64_t i = 0; i < n; i++) {
                    x[i] = before[i] = i == 7 ? NAN : x[i] * 10.0f;
                }
                kernels->f32_activate(n, x, &ep);
                for (int64_t i = 0; i < n; i++) {
                    const double wanted = activate((double)before[i], &ep);
                    if (i == 7) {
                        CHECK(x[i] != x[i]); /* Relu and Clip keep NaN */
                    } else {
                        CHECK_NEAR((double)x[i], wanted, 1e-7 + 5e-7 * fabs(wanted));
                    }
                }
            }
        }
    }
}

TEST(scale_add)
{
    EACH_ISA(isa, kernels)
    {
        for (int64_t n = 0; n < 40; n++) {
            const float *x = random_floats(0, n);
            float *y = fenced_floats(1, n);
            kernels->f32_scale_add(n, x, 3.25f, -0.5f, y);
            for (int64_t i = 0; i < n; i++) {
                CHECK_NEAR((double)y[i], (double)x[i] * 3.25 - 0.5, 5e-7);
            }
        }
    }
}

TEST(reductions)
{
    static const int64_t sizes[] = {0,  1,  2,  3,  7,  8,  9,    15,   16,
                                    17, 31, 32, 33, 63, 65, 1023, 1025, 5000};
    EACH_ISA(isa, kernels)
    {
        for (size_t s = 0; s < SBIT__COUNT_OF(sizes); s++) {
            const int64_t n = sizes[s];
            const float *x = random_floats(0, n), *w = random_floats(1, n);
            double sum = 0, size = 0, dot = 0, least = (double)INFINITY, most = -(double)INFINITY;
            for (int64_t i = 0; i < n; i++) {
                sum += (double)x[i];
                size += fabs((double)x[i]);
                dot += (double)x[i] * (double)w[i];
                least = fmin(least, (double)x[i]);
                most = fmax(most, (double)x[i]);
            }
            float lo = 0, hi = 0;
            bool finite = false;
            kernels->f32_minmax(n, x, &lo, &hi, &finite);
            CHECK_NEAR((double)kernels->f32_sum(n, x), sum, 1e-6 * size);
            CHECK_NEAR((double)kernels->f32_dot(n, x, w), dot, 1e-6 * size);
            CHECK((double)kernels->f32_max(n, x) == most);
            CHECK((double)lo == least && (double)hi == most && finite);
        }
    }
}

TEST(reductions_meet_nan_and_infinity)
{
    EACH_ISA(isa, kernels)
    {
        for (int64_t n = 1; n < 40; n++) {
            for (int64_t at = 0; at < n; at++) {
                float *x = random_floats(0, n), lo, hi;
                bool finite = true;
                x[at] = NAN;
                kernels->f32_minmax(n, x, &lo, &hi, &finite);
                CHECK(!finite && lo == lo && hi == hi);
                CHECK(isnan((double)kernels->f32_max(n, x)));
                x[at] = -INFINITY;
                kernels->f32_minmax(n, x, &lo, &hi, &finite);
                CHECK(!finite && lo == -INFINITY);
                x[at] = INFINITY;
                kernels->f32_minmax(n, x, &lo, &hi, &finite);
                CHECK(!finite && hi == INFINITY);
            }
        }
    }
}

TEST(sum_is_accurate) /* a plain float loop is off by more than 1 here */
{
    enum {
        COUNT = 1000000
    };
    float *x = fenced_floats(0, COUNT);
    for (int i = 0; i < COUNT; i++) {
        x[i] = 0.1f;
    }
    EACH_ISA(isa, kernels)
    {
        CHECK_NEAR((double)kernels->f32_sum(COUNT, x), 100000.0, 0.1);
    }
}

TEST(softmax)
{
    static const int64_t sizes[] = {0, 1, 2, 7, 8, 9, 16, 17, 33, 100, 1000, 3000};
    EACH_ISA(isa, kernels)
    {
        for (size_t s = 0; s < SBIT__COUNT_OF(sizes); s++) {
            const int64_t n = sizes[s];
            float *x = random_floats(0, n), *y = fenced_floats(1, n);
            double sum = 0, most = -(double)INFINITY, total = 0;
            for (int64_t i = 0; i < n; i++) {
                x[i] = x[i] * 20 + 300; /* overflows without the maximum */
                most = fmax(most, (double)x[i]);
            }
            for (int64_t i = 0; i < n; i++) {
                sum += exp((double)x[i] - most);
            }
            kernels->f32_softmax(n, x, y);
            for (int64_t i = 0; i < n; i++) {
                CHECK_NEAR((double)y[i], exp((double)x[i] - most) / sum, 1e-6);
                total += (double)y[i];
            }
            CHECK_NEAR(total, n > 0 ? 1.0 : 0.0, 2e-6);
            kernels->f32_softmax(n, x, x);
            CHECK(n == 0 || memcmp(x, y, (size_t)n * sizeof(float)) == 0);
        }
    }
}

TEST(depthwise_row)
{
    static const int64_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 65, 100};
    EACH_ISA(isa, kernels)
    {
        int64_t turn = 0;
        for (size_t s = 0; s < SBIT__COUNT_OF(widths); s++) {
            for (int64_t shape = 0; shape < 5 * 3 * 2; shape++, turn++) {
                const int64_t out_w = widths[s], kw = 1 + shape % 5, stride = 1 + shape / 5 % 3;
                const int64_t dilation = 1 + shape / 15, kh = 1 + turn % 4;
                const int64_t n = (out_w - 1) * stride + (kw - 1) * dilation + 1;
                const float *rows[4];
                for (int64_t i = 0; i < kh; i++) {
                    rows[i] = random_floats((int)i, n);
                }
                const float *w = random_floats(4, kh * kw), *residual = random_floats(5, out_w);
                float *y = fenced_floats(6, out_w);
                const sbit__epilogue ep = epilogue_number(turn, turn % 4 < 2 ? residual : NULL);
                kernels->f32_depthwise_row(out_w, kh, kw, stride, dilation, rows, w, 0.25f, y,
                                           turn % 5 != 0 ? &ep : NULL);
                for (int64_t x = 0; x < out_w; x++) {
                    double sum = 0.25 + (turn % 5 != 0 && turn % 4 < 2 ? (double)residual[x] : 0.0);
                    for (int64_t i = 0; i < kh * kw; i++) {
                        sum += (double)w[i] * (double)rows[i / kw][x * stride + i % kw * dilation];
                    }
                    CHECK_NEAR((double)y[x], activate(sum, turn % 5 != 0 ? &ep : NULL), 1e-5);
                }
            }
        }
    }
}

TEST(depthwise_plane)
{
    static const int64_t widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 14, 16, 17, 31, 33, 40};
    static const int64_t kernel_sizes[][2] = {{3, 3}, {5, 5}, {1, 1}, {3, 1}, {2, 4}, {7, 7}};
    EACH_ISA(isa, kernels)
    {
        int64_t turn = 0;
        for (size_t i = 0; i < SBIT__COUNT_OF(widths) * 6 * 8; i++, turn++) {
            sbit__depthwise d;
            d.kh = kernel_sizes[i % 6][0];
            d.kw = kernel_sizes[i % 6][1];
            d.stride_h = 1 + (int64_t)i / 6 % 2;
            d.stride_w = i / 12 % 2 != 0 ? 1 + turn % 4 : d.stride_h;
            d.dilation_h = d.dilation_w = 1 + (int64_t)i / 24 % 2;
            d.pad_h = turn % 4;
            d.pad_w = turn % 5;
            d.in_h = 1 + turn % 19;
            d.in_w = widths[i / 48];
            const int64_t end = turn % 3; /* padding behind */
            const int64_t reach_h = (d.kh - 1) * d.dilation_h, reach_w = (d.kw - 1) * d.dilation_w;
            const int64_t free_h = d.in_h + d.pad_h + end - reach_h - 1;
            const int64_t free_w = d.in_w + d.pad_w + end - reach_w - 1;
            const int64_t out_h = free_h >= 0 ? free_h / d.stride_h + 1 : 0;
            d.out_w = free_w >= 0 ? free_w / d.stride_w + 1 : 0;
            float *zeros = fenced_floats(4, d.in_w);
            memset(zeros, 0, (size_t)d.in_w * sizeof(float));
            d.zeros = zeros;
            const float *x = random_floats(0, d.in_h * d.in_w);
            const float *w = random_floats(1, d.kh * d.kw);
            const float *residual = random_floats(2, out_h * d.out_w);
            float *y = fenced_floats(3, out_h * d.out_w);
            const sbit__epilogue ep = epilogue_number(turn, turn % 4 < 2 ? residual : NULL);
            const sbit__epilogue *used = turn % 5 != 0 ? &ep : NULL;
            const int64_t cut = out_h * (turn % 3) / 3; /* in two calls */
            kernels->f32_depthwise_plane(&d, 0, cut, x, w, 0.25f, y, used);
            kernels->f32_depthwise_plane(&d, cut, out_h, x, w, 0.25f, y, used);
            for (int64_t at = 0; at < out_h * d.out_w; at++) {
                double sum = 0.25 + (used != NULL && turn % 4 < 2 ? (double)residual[at] : 0.0);
                for (int64_t t = 0; t < d.kh * d.kw; t++) {
                    const int64_t iy =
                        at / d.out_w * d.stride_h - d.pad_h + t / d.kw * d.dilation_h;
                    const int64_t ix =
                        at % d.out_w * d.stride_w - d.pad_w + t % d.kw * d.dilation_w;
                    if (iy >= 0 && iy < d.in_h && ix >= 0 && ix < d.in_w) {
                        sum += (double)w[t] * (double)x[iy * d.in_w + ix];
                    }
                }
                CHECK_NEAR((double)y[at], activate(sum, used), 2e-5);
            }
        }
    }
}

/* ---- quantization */

TEST(quantize_known_ties)
{
    static const float x[] = {0.25f, 0.75f, 1.25f, 1.75f};
    static const uint8_t wanted[] = {0, 2, 2, 4}; /* scale 0.5: 0.5, 1.5, 2.5, 3.5 to even */
    static const float y[] = {2.5f, 3.5f, -2.5f, -3.5f};
    static const int8_t wanted_y[] = {2, 4, -2, -4};
    const float odd = -2.5f, scale = 5.0f / 255.0f; /* -127.49999 when divided, not -127.5 */
    EACH_ISA(isa, kernels)
    {
        uint8_t u[4];
        int8_t s[4], one;
        kernels->f32_quantize_u8(4, x, 0.5f, 0, 0, 255, u);
        CHECK_MEM(u, wanted, 4);
        kernels->f32_quantize_s8(4, y, 1.0f, 0, -128, 127, s);
        CHECK_MEM(s, wanted_y, 4);
        kernels->f32_quantize_s8(1, &odd, scale, 0, -128, 127, &one);
        CHECK_EQ_I64(one, -127);
    }
}

/* x = k + 1/2 is rounded to the even neighbour before the zero point is added, whatever that is. */
TEST(quantize_all_ties)
{
    static const int32_t zero_points[] = {0, 1, 127, 128};
    EACH_ISA(isa, kernels)
    {
        for (size_t z = 0; z < SBIT__COUNT_OF(zero_points); z++) {
            const int32_t zp = zero_points[z];
            float x[400];
            uint8_t u[400];
            int8_t s[400];
            int n = 0;
            for (int k = -130; k <= 260; k++) {
                x[n++] = ((float)k + 0.5f) * 0.25f;
            }
            kernels->f32_quantize_u8(n, x, 0.25f, zp, 0, 255, u);
            kernels->f32_quantize_s8(n, x, 0.25f, zp - 128, -128, 127, s);
            for (int i = 0; i < n; i++) {
                const int k = i - 130, even = k % 2 == 0 ? k : k + 1, q = even + zp;
                CHECK_EQ_I64(u[i], q < 0 ? 0 : q > 255 ? 255 : q);
                CHECK_EQ_I64(s[i] + 128, q < 0 ? 0 : q > 255 ? 255 : q);
            }
        }
    }
}

TEST(quantize_beyond_numbers)
{
    static const float x[] = {NAN,   INFINITY,      -INFINITY,      1e30f, -1e30f, 3e9f,
                              -3e9f, 2147483648.0f, -2147483648.0f, -0.0f, 1e-45f, -NAN};
    static const uint8_t wanted[] = {7, 250, 3, 250, 3, 250, 3, 250, 3, 7, 7, 7};
    EACH_ISA(isa, kernels)
    {
        uint8_t u[12];
        int8_t s[12];
        float f[12];
        kernels->f32_quantize_u8(12, x, 1.0f, 7, 3, 250, u);
        kernels->f32_quantize_s8(12, x, 1.0f, 7 - 128, 3 - 128, 250 - 128, s);
        kernels->f32_fake_quantize(12, x, 1.0f, 7, 3, 250, f);
        for (int i = 0; i < 12; i++) {
            CHECK_EQ_I64(u[i], wanted[i]);
            CHECK_EQ_I64(s[i] + 128, wanted[i]);
            CHECK(float_bits(f[i]) == float_bits((float)(wanted[i] - 7)));
        }
    }
}

/* Where the quotient is near the middle of two integers, with scales of every kind. */
TEST(quantize_near_ties)
{
    const sbit_kernels *ref = sbit__kernels_of(SBIT_ISA_SCALAR);
    const float special[8] = {1e-30f, 1e30f, 1e-9f, 1e9f, 1e-39f, 1.9999999f, 0.5f, FLT_MAX};
    EACH_ISA(isa, kernels)
    {
        for (int k = 0; k < 1000; k++) {
            enum { N = 5 * 256 + 7 };
            const float scale = k < 8 ? special[k] : 0.001f + fabsf(random_float());
            const int32_t zp = (int32_t)random_below(256);
            float x[N] = {INFINITY, -INFINITY, NAN, -0.0f, FLT_MAX, -FLT_MAX, 1e-40f};
            uint8_t u[N], u0[N], s[N], s0[N];
            for (int i = 7; i < N; i++) {
                x[i] = ((float)((i - 7) / 5 - zp) + 0.5f) * scale;
                for (int step = (i - 7) % 5; step != 2; step += step < 2 ? 1 : -1) {
                    x[i] = nextafterf(x[i], step < 2 ? -INFINITY : INFINITY);
                }
            }
            kernels->f32_quantize_u8(N, x, scale, zp, 0, 255, u);
            ref->f32_quantize_u8(N, x, scale, zp, 0, 255, u0);
            CHECK_MEM(u, u0, sizeof u);
            kernels->f32_quantize_s8(N, x, scale, zp - 128, -128, 127, (int8_t *)s);
            ref->f32_quantize_s8(N, x, scale, zp - 128, -128, 127, (int8_t *)s0);
            CHECK_MEM(s, s0, sizeof s);
        }
    }
}

TEST(quantize_sizes_and_bits)
{
    const sbit_kernels *ref = sbit__kernels_of(SBIT_ISA_SCALAR);
    EACH_ISA(isa, kernels)
    {
        for (int64_t n = 0; n < 150; n++) {
            const float scale = 0.001f + 0.1f * fabsf(random_float());
            const int32_t zp = (int32_t)random_below(256), wide = (int32_t)random_below(60000);
            float *x = random_floats(0, n), *f = fenced_floats(4, n), *g = fenced_floats(5, n);
            for (int64_t i = 0; i < n; i++) {
                x[i] =
                    n % 2 != 0 ? x[i] * 20.0f : ((float)random_below(300) - 150.0f) * 0.5f * scale;
            }
            uint8_t *u = (uint8_t *)fenced(1, (size_t)n, false), u0[150];
            int8_t *s = (int8_t *)fenced(2, (size_t)n, false), s0[150];
            kernels->f32_quantize_u8(n, x, scale, zp, 0, 255, u);
            ref->f32_quantize_u8(n, x, scale, zp, 0, 255, u0);
            CHECK_MEM(u, u0, (size_t)n);
            kernels->f32_quantize_s8(n, x, scale, zp - 128, -127, 127, s);
            ref->f32_quantize_s8(n, x, scale, zp - 128, -127, 127, s0);
            CHECK_MEM(s, s0, (size_t)n);
            kernels->f32_dequantize_u8(n, u, scale, zp, f);
            ref->f32_dequantize_u8(n, u, scale, zp, g);
            CHECK_MEM(f, g, (size_t)n * sizeof(float));
            kernels->f32_fake_quantize(n, x, scale, zp, 0, 255, f);
            CHECK_MEM(f, g, (size_t)n * sizeof(float)); /* the same bits as the pair */
            kernels->f32_dequantize_s8(n, s, scale, zp - 128, f);
            ref->f32_dequantize_s8(n, s, scale, zp - 128, g);
            CHECK_MEM(f, g, (size_t)n * sizeof(float));
            ref->f32_fake_quantize(n, x, scale / 1000, wide, 0, 65535, g);
            kernels->f32_fake_quantize(n, x, scale / 1000, wide, 0, 65535, f);
            CHECK_MEM(f, g, (size_t)n * sizeof(float));
            ref->f32_fake_quantize(n, x, 1e-9f, 0, INT32_MIN, INT32_MAX, g);
            kernels->f32_fake_quantize(n, x, 1e-9f, 0, INT32_MIN, INT32_MAX, f);
            CHECK_MEM(f, g, (size_t)n * sizeof(float));
            memcpy(f, x, (size_t)n * sizeof(float)); /* in place */
            ref->f32_fake_quantize(n, x, scale, zp, 0, 15, g);
            kernels->f32_fake_quantize(n, f, scale, zp, 0, 15, f);
            CHECK_MEM(f, g, (size_t)n * sizeof(float));
        }
    }
}

TEST(dequantize_all_values)
{
    EACH_ISA(isa, kernels)
    {
        uint8_t u[256];
        int8_t s[256];
        float f[256], g[256];
        for (int i = 0; i < 256; i++) {
            u[i] = (uint8_t)i;
            s[i] = (int8_t)(i - 128);
        }
        kernels->f32_dequantize_u8(256, u, 0.1f, 13, f);
        kernels->f32_dequantize_s8(256, s, 0.1f, 13, g);
        for (int i = 0; i < 256; i++) {
            const float wanted = (float)(i - 13) * 0.1f, wanted_s = (float)(i - 141) * 0.1f;
            CHECK(float_bits(f[i]) == float_bits(wanted));
            CHECK(float_bits(g[i]) == float_bits(wanted_s));
        }
    }
}

TEST(histogram)
{
    static const float x[] = {-1.0f, 0.0f, 0.24f, 0.25f, 0.5f, 0.99f, 1.0f, 7.0f, NAN, INFINITY};
    EACH_ISA(isa, kernels)
    {
        uint64_t counts[4] = {0, 0, 0, 100};
        kernels->f32_histogram(10, x, 0.0f, 1.0f, 4, counts);
        CHECK_EQ_I64(counts[0], 3);
        CHECK_EQ_I64(counts[1], 1);
        CHECK_EQ_I64(counts[2], 1);
        CHECK_EQ_I64(counts[3], 104);
        kernels->f32_histogram(3, x, 2.0f, 2.0f, 4, counts); /* empty range */
        CHECK_EQ_I64(counts[0], 6);
    }
}

/* ---- drivers */

static void count_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    unsigned char *seen = (unsigned char *)task;
    CHECK(worker >= 0 && worker < 4);
    for (int64_t i = begin; i < end; i++) {
        seen[i]++; /* no two pieces share an index */
    }
}

TEST(parallel_range)
{
    sbit_ctx *ctx = ctx_of(SBIT_ISA_DEFAULT, 4);
    for (int64_t n = 0; n < 200; n += n < 20 ? 1 : 37) {
        for (int64_t grain = 0; grain < 70; grain += 23) {
            unsigned char seen[200] = {0};
            sbit__parallel_range(ctx, n, grain, count_range, seen);
            for (int64_t i = 0; i < 200; i++) {
                CHECK_EQ_I64(seen[i], i < n);
            }
        }
    }
    sbit_ctx_destroy(ctx);
}

typedef struct gemm_case {
    int64_t m, n, k;
    bool trans_a, trans_b, pack_a, pack_b, bias_rows;
    float alpha;
    int64_t turn;
} gemm_case;

static void run_gemm(int isa, int threads, const gemm_case *t, const sbit__gemm *operands,
                     float *result)
{
    sbit_ctx *ctx = ctx_of(isa, threads);
    sbit__gemm g = *operands;
    const float pack_alpha = t->turn % 2 != 0 ? t->alpha : 1.0f;
    if (t->pack_a) {
        float *packed = (float *)fenced(5, sbit__gemm_pack_a_bytes(ctx, t->m, t->k), false);
        sbit__gemm_pack_a(ctx, t->m, t->k, g.a, g.lda, t->trans_a, pack_alpha, packed);
        g.packed_a = packed;
    }
    if (t->pack_b) {
        const bool both = t->pack_a;
        float *packed = (float *)fenced(6, sbit__gemm_pack_b_bytes(ctx, t->n, t->k), false);
        sbit__gemm_pack_b(ctx, t->n, t->k, g.b, g.ldb, t->trans_b, both ? 1.0f : pack_alpha,
                          packed);
        g.packed_b = packed;
    }
    if ((t->pack_a || t->pack_b) && pack_alpha != 1.0f) {
        g.alpha = 1.0f; /* it is in the packed operand */
    }
    void *scratch = fenced(7, sbit__gemm_scratch_bytes(ctx, &g), false);
    g.c = result;
    sbit__gemm_run(ctx, &g, scratch);
    sbit_ctx_destroy(ctx);
}

/* Of every instruction set, with 1, 2 and 4 threads: the products in double are the same for all. */
static void check_gemm(const gemm_case *t)
{
    const int64_t turn = t->turn, m = t->m, n = t->n, k = t->k, ldc = n + turn % 3;
    const int64_t a_rows = t->trans_a ? k : m, a_cols = t->trans_a ? m : k;
    const int64_t b_rows = t->trans_b ? n : k, b_cols = t->trans_b ? k : n;
    const int64_t c_size = m > 0 && n > 0 ? (m - 1) * ldc + n : 0;
    sbit__gemm g;
    memset(&g, 0, sizeof g);
    g.m = m, g.n = n, g.k = k;
    g.lda = a_cols + turn % 2;
    g.ldb = b_cols + turn % 3;
    g.ldc = ldc;
    g.trans_a = t->trans_a, g.trans_b = t->trans_b;
    g.alpha = t->alpha;
    const float *a = random_floats(0, a_rows * g.lda), *b = random_floats(1, b_rows * g.ldb);
    const float *bias = random_floats(2, t->bias_rows ? m : n);
    float *c = fenced_floats(3, c_size), *first = fenced_floats(4, 2 * c_size);
    float *residual = first + c_size;
    for (int64_t i = 0; i < c_size; i++) {
        residual[i] = random_float();
    }
    g.a = a, g.b = b;
    g.bias = turn % 3 != 0 ? bias : NULL;
    g.bias_rows = t->bias_rows;
    const sbit__epilogue ep = epilogue_number(turn, turn % 4 == 1 ? residual : NULL);
    g.epilogue = turn % 5 != 0 ? &ep : NULL;
    double *wanted = (double *)malloc((size_t)(m * n + 1) * 2 * sizeof(double)), *sizes = wanted + m * n;
    for (int64_t i = 0; i < m * n; i++) {
        const int64_t row = i / n, column = i % n;
        const int64_t step_a = t->trans_a ? g.lda : 1, step_b = t->trans_b ? 1 : g.ldb;
        const float *p_a = a + row * (t->trans_a ? 1 : g.lda), *p_b = b + column * (t->trans_b ? g.ldb : 1);
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; p++) {
            const double term = (double)p_a[p * step_a] * (double)p_b[p * step_b];
            sum += term;
            size += fabs(term);
        }
        sum *= (double)t->alpha;
        sum += g.bias != NULL ? (double)bias[t->bias_rows ? row : column] : 0.0;
        sum += g.epilogue != NULL && ep.residual != NULL ? (double)residual[row * ldc + column] : 0.0;
        wanted[i] = activate(sum, g.epilogue);
        sizes[i] = 1.0 + size * fabs((double)t->alpha);
    }
    EACH_ISA(isa, kernels)
    {
        memset(c, 0xff, (size_t)c_size * sizeof(float));
        run_gemm(isa, 1, t, &g, c);
        memcpy(first, c, (size_t)c_size * sizeof(float));
        for (int64_t i = 0; i < m * n; i++) {
            if (!CHECK_NEAR((double)c[i / n * ldc + i % n], wanted[i], 2e-6 * sizes[i])) {
                printf("  isa %d m %d n %d k %d turn %d at %d %d\n", isa, (int)m, (int)n, (int)k,
                       (int)turn, (int)(i / n), (int)(i % n));
                break;
            }
        }
        for (int threads = 2; threads <= 4; threads += 2) { /* threads change no bit */
            memset(c, 0xff, (size_t)c_size * sizeof(float));
            run_gemm(isa, threads, t, &g, c);
            CHECK(c_size == 0 || memcmp(c, first, (size_t)c_size * sizeof(float)) == 0);
        }
    }
    free(wanted);
}

/* What integers are compared with: a sum of the reference is that of doubles. */
TEST(products_of_the_reference_are_rounded_once)
{
    enum { K = 900, N = 9 };
    sbit_ctx *ctx = ctx_of(SBIT_ISA_SCALAR, 1);
    const float *a = random_floats(0, 3 * K), *b = random_floats(1, K * N);
    float c[3 * N];
    for (int64_t m = 1; m <= 3; m += 2) { /* a row; tiles */
        sbit__gemm g;
        memset(&g, 0, sizeof g);
        g.m = m;
        g.n = g.ldb = g.ldc = N;
        g.k = g.lda = K;
        g.alpha = 1.0f;
        g.a = a;
        g.b = b;
        g.c = c;
        void *scratch = fenced(7, sbit__gemm_scratch_bytes(ctx, &g), false);
        sbit__gemm_run(ctx, &g, scratch);
        for (int64_t i = 0; i < m * N; i++) {
            double sum = 0.0;
            for (int64_t k = 0; k < K; k++) {
                sum += (double)a[i / N * K + k] * (double)b[k * N + i % N];
            }
            CHECK(c[i] == (float)sum);
        }
    }
    sbit_ctx_destroy(ctx);
}

/* Of a packed b, and of the same one as it lies. */
static void one_row_is_a_row_of_many(sbit_ctx *ctx, int64_t n, int64_t k)
{
    enum { ROWS = 7 };
    const float *a = random_floats(0, ROWS * k), *b = random_floats(1, k * n);
    float *many = fenced_floats(2, ROWS * n), *one = fenced_floats(3, n);
    float *packed = (float *)fenced(4, sbit__gemm_pack_b_bytes(ctx, n, k), false);
    sbit__gemm g;
    memset(&g, 0, sizeof g);
    sbit__gemm_pack_b(ctx, n, k, b, n, false, 1.0f, packed);
    g.n = g.ldb = g.ldc = n;
    g.k = g.lda = k;
    g.alpha = 1.0f;
    g.a = a;
    g.b = b;
    for (int form = 0; form < 4; form++) {
        g.m = form % 2 == 0 ? ROWS : 1;
        g.c = form % 2 == 0 ? many : one;
        g.packed_b = form < 2 ? packed : NULL;
        sbit__gemm_run(ctx, &g, fenced(5, sbit__gemm_scratch_bytes(ctx, &g), false));
        CHECK_MSG(form == 0 || memcmp(many, one, (size_t)n * sizeof *one) == 0, "isa %d, form %d, n %d, k %d",
                  (int)sbit_ctx_isa(ctx), form, (int)n, (int)k);
    }
}

TEST(one_row_has_the_sums_of_many)
{
    static const int64_t depths[] = {0, 1, 128, 300, 1024, 1096, 2500};
    EACH_ISA(isa, kernels)
    {
        sbit_ctx *ctx = ctx_of(isa, 1);
        for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
            one_row_is_a_row_of_many(ctx, 41, depths[i]);
            one_row_is_a_row_of_many(ctx, 500, depths[i]);
        }
        sbit_ctx_destroy(ctx);
    }
}

TEST(gemm_driver)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1},     {0, 5, 3},      {5, 0, 3},     {3, 5, 0},    {1, 10, 64},   {1, 1000, 37},
        {2, 33, 300},  {4, 17, 600},   {5, 100, 20},  {6, 16, 272}, {7, 17, 273},  {12, 32, 100},
        {13, 33, 180}, {24, 48, 500},  {25, 50, 90},  {64, 64, 64}, {145, 20, 30}, {150, 530, 40},
        {30, 600, 20}, {70, 70, 1100}, {1, 300, 3000}};
    int64_t turn = 0;
    for (size_t s = 0; s < SBIT__COUNT_OF(sizes); s++) {
        for (int form = 0; form < 16; form++, turn++) {
            gemm_case t;
            t.m = sizes[s][0], t.n = sizes[s][1], t.k = sizes[s][2];
            t.trans_a = (form & 1) != 0, t.trans_b = (form & 2) != 0;
            t.pack_a = (form & 4) != 0, t.pack_b = (form & 8) != 0;
            t.bias_rows = turn % 2 == 0;
            t.alpha = turn % 3 == 1 ? 0.5f : 1.0f;
            t.turn = turn;
            check_gemm(&t);
        }
    }
}

/* The plain loops. */
static double conv_at(const sbit__conv_shape *s, const float *x, const float *w, int64_t image,
                      int64_t channel, const int64_t o[3], double *size)
{
    const int64_t in_group = s->in_channels / s->groups, out_group = s->out_channels / s->groups;
    const int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    double sum = 0;
    const int64_t plane = s->in[0] * s->in[1] * s->in[2];
    x += (image * s->in_channels + channel / out_group * in_group) * plane;
    w += channel * in_group * taps;
    for (int64_t t = 0; t < taps; t++) {
        const int64_t k[3] = {t / s->kernel[2] / s->kernel[1], t / s->kernel[2] % s->kernel[1],
                              t % s->kernel[2]};
        int64_t i[3];
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            i[d] = o[d] * s->stride[d] - s->pad_begin[d] + k[d] * s->dilation[d];
            inside = inside && i[d] >= 0 && i[d] < s->in[d];
        }
        const int64_t at = inside ? (i[0] * s->in[1] + i[1]) * s->in[2] + i[2] : 0;
        for (int64_t c = 0; inside && c < in_group; c++) {
            const double term = (double)x[c * plane + at] * (double)w[c * taps + t];
            sum += term;
            *size += fabs(term);
        }
    }
    return sum;
}

static int64_t out_size(const sbit__conv_shape *s, int d, int64_t pad_end)
{
    const int64_t reach = (s->kernel[d] - 1) * s->dilation[d] + 1;
    return (s->in[d] + s->pad_begin[d] + pad_end - reach) / s->stride[d] + 1;
}

/* to[n][j][i] = from[n][i][j] */
static void exchange(int64_t n, int64_t rows, int64_t columns, const float *from, float *to)
{
    for (int64_t at = 0; at < n * rows * columns; at++) {
        const int64_t i = at / columns % rows, j = at % columns;
        to[at / rows / columns * rows * columns + j * rows + i] = from[at];
    }
}

static bool channels_last;  /* which driver is tested */
static int64_t winograd;    /* and which of its forms */
static bool sparse, image;  /* image: the input keeps its channels first */

/* The driver with channels last, from and to channels first. */
static void run_last_conv(sbit_ctx *ctx, const sbit__conv_shape *s, const float *x, const float *w,
                          const float *bias, const sbit__epilogue *ep, float *y)
{
    const int64_t in = s->in[0] * s->in[1] * s->in[2], out = s->out[0] * s->out[1] * s->out[2];
    const int64_t y_size = s->batch * s->out_channels * out;
    sbit__last_conv conv;
    sbit__epilogue last_ep;
    memset(&conv, 0, sizeof conv);
    memset(&last_ep, 0, sizeof last_ep);
    conv.shape = *s;
    conv.winograd = winograd;
    conv.sparse = sparse;
    conv.first = image;
    for (int64_t i = 0; i < s->out_channels * s->in_channels / s->groups * s->kernel[0] * s->kernel[1] * s->kernel[2]; i++) {
        conv.nonzeros += w[i] != 0.0f ? 1 : 0;
    }
    sbit__last_conv_plan(ctx, &conv);
    float *last_x = fenced_floats(8, s->batch * s->in_channels * in);
    float *last_y = fenced_floats(9, y_size), *last_residual = fenced_floats(10, y_size);
    float *packed = (float *)fenced(5, conv.packed_bytes, false);
    void *scratch = fenced(6, conv.scratch_bytes, false);
    exchange(s->batch, s->in_channels, in, x, last_x);
    if (ep != NULL) {
        last_ep = *ep;
        if (ep->residual != NULL) {
            exchange(s->batch, s->out_channels, out, ep->residual, last_residual);
            last_ep.residual = last_residual;
        }
    }
    sbit__last_conv_pack(ctx, &conv, w, packed);
    sbit__last_conv_run(ctx, &conv, image ? x : last_x, packed, bias, ep != NULL ? &last_ep : NULL, last_y,
                        scratch);
    exchange(s->batch, out, s->out_channels, last_y, y);
}

static void run_conv(int isa, int threads, const sbit__conv_shape *s, const float *x,
                     const float *w, const float *bias, const sbit__epilogue *ep, float *y)
{
    sbit_ctx *ctx = ctx_of(isa, threads);
    if (channels_last) {
        run_last_conv(ctx, s, x, w, bias, ep, y);
        sbit_ctx_destroy(ctx);
        return;
    }
    sbit__conv conv;
    sbit__conv_plan(ctx, s, &conv);
    float *packed = (float *)fenced(5, conv.packed_bytes, false);
    sbit__conv_pack(ctx, &conv, w, packed);
    void *scratch = fenced(6, conv.scratch_bytes, false);
    sbit__conv_run(ctx, &conv, x, packed, bias, ep, y, scratch);
    sbit_ctx_destroy(ctx);
}

static void print_shape(const sbit__conv_shape *s)
{
    printf("  batch %d groups %d channels %d -> %d in %dx%dx%d out %dx%dx%d kernel %dx%dx%d stride "
           "%d %d %d dilation %d %d %d pad %d %d %d\n",
           (int)s->batch, (int)s->groups, (int)s->in_channels, (int)s->out_channels, (int)s->in[0],
           (int)s->in[1], (int)s->in[2], (int)s->out[0], (int)s->out[1], (int)s->out[2],
           (int)s->kernel[0], (int)s->kernel[1], (int)s->kernel[2], (int)s->stride[0],
           (int)s->stride[1], (int)s->stride[2], (int)s->dilation[0], (int)s->dilation[1],
           (int)s->dilation[2], (int)s->pad_begin[0], (int)s->pad_begin[1], (int)s->pad_begin[2]);
}

/* Of every instruction set, with 1, 2 and 4 threads: the sums in double are the same for all. */
static void check_conv(const sbit__conv_shape *s, int64_t turn)
{
    const int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    const int64_t in_size = s->in[0] * s->in[1] * s->in[2];
    const int64_t out_pixels = s->out[0] * s->out[1] * s->out[2];
    const int64_t y_size = s->batch * s->out_channels * out_pixels;
    const float *x = random_floats(0, s->batch * s->in_channels * in_size);
    const int64_t weights = s->out_channels * (s->in_channels / s->groups) * taps;
    float *w = random_floats(1, weights);
    for (int64_t i = 0; sparse && i < weights; i++) {
        w[i] = random_below(5) != 0 ? 0.0f : w[i];
    }
    const float *bias = random_floats(2, s->out_channels);
    const float *residual = random_floats(3, y_size);
    float *y = fenced_floats(4, y_size), *first = fenced_floats(7, y_size);
    const sbit__epilogue ep = epilogue_number(turn, turn % 4 == 1 ? residual : NULL);
    const sbit__epilogue *used = turn % 5 != 0 ? &ep : NULL;
    const float *used_bias = turn % 3 != 0 ? bias : NULL;
    double *wanted = (double *)malloc((size_t)y_size * 2 * sizeof(double)), *sizes = wanted + y_size;
    for (int64_t i = 0; i < y_size; i++) {
        const int64_t at = i % out_pixels, channel = i / out_pixels % s->out_channels;
        const int64_t o[3] = {at / s->out[2] / s->out[1], at / s->out[2] % s->out[1],
                              at % s->out[2]};
        sizes[i] = 1.0;
        double sum = conv_at(s, x, w, i / out_pixels / s->out_channels, channel, o, &sizes[i]);
        sum += used_bias != NULL ? (double)bias[channel] : 0.0;
        sum += used != NULL && ep.residual != NULL ? (double)residual[i] : 0.0;
        wanted[i] = activate(sum, used);
    }
    EACH_ISA(isa, kernels)
    {
        memset(y, 0xff, (size_t)y_size * sizeof(float));
        run_conv(isa, 1, s, x, w, used_bias, used, y);
        memcpy(first, y, (size_t)y_size * sizeof(float));
        for (int64_t i = 0; i < y_size; i++) {
            const int64_t row = i / s->out[2] % s->out[1], column = i % s->out[2];
            double size = sizes[i];
            for (int64_t t = 0; t < winograd * winograd; t++) { /* the largest of the tile counts */
                const int64_t other[2] = {row / winograd * winograd + t / winograd,
                                          column / winograd * winograd + t % winograd};
                if (other[0] < s->out[1] && other[1] < s->out[2]) {
                    const double its = sizes[i + (other[0] - row) * s->out[2] + other[1] - column];
                    size = its > size ? its : size;
                }
            }
            if (!CHECK_NEAR((double)y[i], wanted[i], 2e-6 * size)) {
                printf("  isa %d turn %d at %d\n", isa, (int)turn, (int)i);
                print_shape(s);
                break;
            }
        }
        for (int threads = 2; threads <= 4; threads += 2) {
            memset(y, 0xff, (size_t)y_size * sizeof(float));
            run_conv(isa, threads, s, x, w, used_bias, used, y);
            if (!CHECK(memcmp(y, first, (size_t)y_size * sizeof(float)) == 0)) {
                print_shape(s);
            }
        }
    }
    free(wanted);
}

/* groups, channels of a group in and out, batch, then in, kernel, stride, dilation, begin and end
 * padding of height and width */
static const int64_t conv_shapes[][14] = {
    {1, 3, 16, 2, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1},  {1, 16, 16, 2, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1},
    {1, 8, 12, 2, 16, 16, 3, 3, 2, 2, 1, 1, 1, 1},  {1, 40, 20, 3, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1},
    {1, 64, 30, 5, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1},   {1, 20, 30, 3, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1},
    {1, 30, 24, 1, 14, 14, 1, 1, 1, 1, 1, 1, 0, 0}, {1, 30, 24, 3, 7, 7, 1, 1, 1, 1, 1, 1, 0, 0},
    {1, 300, 13, 4, 4, 4, 1, 1, 1, 1, 1, 1, 0, 0},  {1, 30, 24, 2, 16, 16, 1, 1, 1, 1, 1, 1, 0, 0},
    {1, 20, 14, 2, 16, 16, 1, 1, 2, 2, 1, 1, 0, 0}, {1, 300, 300, 2, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0},
    {1, 64, 200, 1, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1},  {1, 5, 7, 2, 11, 13, 5, 3, 1, 2, 2, 1, 2, 1},
    {1, 2, 9, 1, 20, 20, 7, 7, 2, 2, 1, 1, 3, 3},   {1, 4, 4, 2, 9, 9, 2, 2, 1, 1, 1, 1, 0, 1},
    {32, 1, 1, 2, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1},  {16, 1, 1, 2, 16, 16, 3, 3, 2, 2, 1, 1, 1, 1},
    {16, 1, 1, 3, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1},    {16, 1, 1, 2, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1},
    {16, 1, 1, 2, 8, 8, 3, 3, 2, 2, 1, 1, 1, 1},    {5, 1, 1, 2, 14, 14, 5, 5, 1, 1, 1, 1, 2, 2},
    {5, 1, 1, 1, 14, 14, 5, 5, 2, 2, 1, 1, 2, 2},   {7, 1, 1, 1, 50, 70, 3, 3, 1, 1, 1, 1, 1, 1},
    {6, 1, 1, 1, 20, 23, 3, 3, 1, 2, 2, 1, 0, 1},   {4, 1, 2, 2, 12, 12, 3, 3, 1, 1, 1, 1, 1, 1},
    {8, 4, 4, 2, 14, 14, 3, 3, 1, 1, 1, 1, 1, 1},   {2, 6, 10, 2, 10, 10, 3, 3, 1, 1, 1, 1, 1, 1},
    {3, 1, 1, 2, 1, 40, 1, 5, 1, 2, 1, 1, 0, 2},    {1, 6, 8, 2, 1, 100, 1, 9, 1, 1, 1, 2, 0, 8},
    {2, 2, 3, 1, 5, 4, 3, 3, 3, 3, 1, 1, 1, 1},     {1, 2, 2, 1, 2, 2, 5, 5, 1, 1, 1, 1, 2, 2},
    {3, 1, 1, 1, 2, 2, 5, 5, 1, 1, 1, 1, 2, 2},     {1, 1, 6, 1, 28, 28, 5, 5, 1, 1, 1, 1, 0, 0},
    {4, 1, 1, 1, 100, 5, 3, 3, 1, 1, 1, 1, 1, 1},   {1, 7, 5, 9, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0},
    {37, 1, 1, 1, 3, 18, 5, 5, 1, 1, 1, 1, 2, 2},   {37, 1, 1, 1, 5, 35, 5, 5, 2, 2, 1, 1, 2, 2},
    {37, 1, 1, 1, 3, 16, 3, 3, 1, 1, 1, 1, 1, 1},   {37, 1, 1, 1, 5, 33, 3, 3, 2, 2, 1, 1, 1, 1},
    {1, 1100, 70, 1, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0}, {1, 520, 66, 1, 3, 2, 3, 3, 1, 1, 1, 1, 1, 1},
    {1, 4200, 9, 1, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0}};

static void check_conv_shapes(void)
{
    for (size_t i = 0; i < SBIT__COUNT_OF(conv_shapes); i++) {
        const int64_t *p = conv_shapes[i];
        sbit__conv_shape s;
        memset(&s, 0, sizeof s);
        s.groups = p[0];
        s.in_channels = p[0] * p[1];
        s.out_channels = p[0] * p[2];
        s.batch = p[3];
        s.in[0] = s.kernel[0] = s.stride[0] = s.dilation[0] = s.out[0] = 1;
        for (int d = 1; d < 3; d++) {
            s.in[d] = p[3 + d];
            s.kernel[d] = p[5 + d];
            s.stride[d] = p[7 + d];
            s.dilation[d] = p[9 + d];
            s.pad_begin[d] = p[11 + d];
            s.out[d] = out_size(&s, d, p[11 + d]);
        }
        if (sparse && s.groups > 1) {
            continue;
        }
        check_conv(&s, (int64_t)i);
        if (getenv("SBIT_TEST_QUICK") == NULL) {
            check_conv(&s, (int64_t)i + 7);
        }
    }
}

TEST(conv_driver)
{
    channels_last = false;
    check_conv_shapes();
}

TEST(conv_driver_with_channels_last)
{
    channels_last = true;
    check_conv_shapes();
}

TEST(conv_driver_of_few_weights)
{
    channels_last = sparse = true;
    check_conv_shapes();
    sparse = false;
}

static void check_conv_random(void)
{
    const int64_t turns = getenv("SBIT_TEST_QUICK") != NULL ? 80 : 250;
    random_state = 12345;
    for (int64_t turn = 0; turn < turns; turn++) {
        sbit__conv_shape s;
        memset(&s, 0, sizeof s);
        s.batch = 1 + random_below(4);
        s.groups = random_below(3) == 0 && !sparse ? 1 + random_below(5) : 1;
        s.in_channels = s.groups * (1 + random_below(turn % 10 == 0 ? sparse ? 220 : 60 : 6));
        s.out_channels = s.groups * (1 + random_below(turn % 7 == 0 ? 40 : 10));
        const int first = turn % 4 == 0 ? 0 : turn % 4 == 1 ? 2 : 1; /* 3-D, 1-D, 2-D */
        bool possible = true;
        for (int d = 0; d < 3; d++) {
            const bool used = d >= first;
            s.in[d] = used ? 1 + random_below(first == 2 ? 60 : 14) : 1;
            s.kernel[d] = used ? 1 + random_below(4) : 1;
            s.stride[d] = used ? 1 + random_below(3) : 1;
            s.dilation[d] = used ? 1 + random_below(2) : 1;
            s.pad_begin[d] = used ? random_below(4) : 0;
            const int64_t pad_end = used ? random_below(4) : 0;
            possible = possible &&
                       s.in[d] + s.pad_begin[d] + pad_end > (s.kernel[d] - 1) * s.dilation[d];
            s.out[d] = out_size(&s, d, pad_end);
        }
        if (possible) {
            check_conv(&s, turn);
        }
    }
}

TEST(conv_driver_random)
{
    channels_last = false;
    check_conv_random();
}

/* channels in, between and out (0: no convolution there); batch, height, width; kernel, stride,
 * dilation, padding above, below, left and right; rows at once */
static const int64_t strip_shapes[][14] = {
    {5, 19, 7, 2, 7, 6, 3, 1, 1, 1, 1, 1, 1, 1}, {8, 32, 16, 1, 9, 9, 3, 2, 1, 1, 1, 1, 1, 2},
    {3, 17, 0, 2, 9, 11, 5, 2, 1, 2, 1, 1, 2, 1}, {0, 70, 9, 1, 11, 8, 5, 1, 1, 2, 2, 2, 2, 3},
    {4, 16, 4, 3, 6, 5, 3, 1, 2, 2, 2, 2, 2, 2},  {6, 33, 5, 1, 35, 4, 3, 1, 1, 1, 1, 1, 1, 2},
    {6, 16, 5, 1, 33, 3, 1, 3, 1, 0, 1, 0, 0, 2}, {2, 9, 3, 1, 3, 3, 3, 1, 1, 3, 3, 0, 0, 1}};

/* The three convolutions of a strip, one by one; the result is in slot 7. */
static const float *run_strip_plainly(sbit_ctx *ctx, const sbit__last_strip *strip, const float *x,
                                      const float *const *weights, const float *const *bias,
                                      const sbit__epilogue *epilogue)
{
    float *y = NULL;
    for (int i = 0; i < 3; i++) {
        sbit__last_conv conv = strip->conv[i];
        const sbit__conv_shape *s = &conv.shape;
        if (s->out_channels > 0) {
            sbit__last_conv_plan(ctx, &conv);
            float *packed = (float *)fenced(5, conv.packed_bytes, false);
            y = fenced_floats(8 + i, s->batch * s->out[1] * s->out[2] * s->out_channels);
            sbit__last_conv_pack(ctx, &conv, weights[i], packed);
            sbit__last_conv_run(ctx, &conv, x, packed, bias[i], &epilogue[i], y,
                                fenced(6, conv.scratch_bytes, false));
            x = y;
        }
    }
    return y;
}

static void check_strip(int isa, const int64_t *t, int threads)
{
    static float residual[4096];
    sbit__epilogue epilogue[3] = {{SBIT__ACT_CLAMP, 0.0f, 6.0f, NULL},
                                  {SBIT__ACT_SILU, 0.0f, 0.0f, NULL},
                                  {SBIT__ACT_NONE, 0.0f, 0.0f, t[2] % 2 != 0 ? residual : NULL}};
    const int64_t channels[4] = {t[0] > 0 ? t[0] : t[1], t[1], t[1], t[2]};
    const float *weights[3], *bias[3];
    sbit__last_strip strip;
    sbit_ctx *ctx = ctx_of(isa, threads);
    memset(&strip, 0, sizeof strip);
    for (int i = 0; i < 3; i++) {
        sbit__conv_shape *s = &strip.conv[i].shape;
        const bool middle = i == 1;
        s->batch = t[3];
        s->groups = middle ? t[1] : 1;
        s->in_channels = channels[i];
        s->out_channels = i == 0 && t[0] == 0 ? 0 : channels[i + 1];
        for (int d = 0; d < 3; d++) {
            s->in[d] = d == 0 ? 1 : i < 2 ? t[3 + d] : strip.conv[1].shape.out[d];
            s->kernel[d] = d > 0 && middle ? t[6] : 1;
            s->stride[d] = d > 0 && middle ? t[7] : 1;
            s->dilation[d] = d > 0 && middle ? t[8] : 1;
            s->pad_begin[d] = d > 0 && middle ? t[7 + 2 * d] : 0;
            s->out[d] = out_size(s, d, d > 0 && middle ? t[8 + 2 * d] : 0);
        }
        weights[i] = random_floats(1 + i, s->out_channels * s->in_channels / s->groups *
                                              s->kernel[1] * s->kernel[2]);
        bias[i] = random_floats(11 + i, s->out_channels);
    }
    const sbit__conv_shape *first = &strip.conv[t[0] > 0 ? 0 : 1].shape;
    const sbit__conv_shape *last = &strip.conv[t[2] > 0 ? 2 : 1].shape;
    const int64_t y_size = t[3] * last->out[1] * last->out[2] * last->out_channels;
    const float *x = random_floats(0, t[3] * t[4] * t[5] * first->in_channels);
    for (int64_t i = 0; i < y_size; i++) {
        residual[i] = random_float();
    }
    const float *expected = run_strip_plainly(ctx, &strip, x, weights, bias, epilogue);
    sbit__last_strip_plan(ctx, &strip);
    CHECK(strip.bands == 1 || threads > 1);
    if (CHECK(strip.rows >= t[13])) {
        strip.rows = t[13];
    }
    float *packed = (float *)fenced(5, strip.packed_bytes, false), *y = fenced_floats(7, y_size);
    sbit__last_strip_pack(ctx, &strip, weights, packed);
    sbit__last_strip_run(ctx, &strip, x, packed, bias, epilogue, y,
                         fenced(6, strip.scratch_bytes, false));
    if (!CHECK(memcmp(y, expected, (size_t)y_size * sizeof *y) == 0)) {
        printf("  isa %d channels %d\n", isa, (int)t[1]);
    }
    sbit_ctx_destroy(ctx);
}

/* Convolutions a few rows at a time are the same bits as one by one. */
TEST(strips)
{
    EACH_ISA(isa, kernels)
    {
        for (size_t i = 0; i < 2 * SBIT__COUNT_OF(strip_shapes); i++) {
            check_strip(isa, strip_shapes[i / 2], i % 2 == 0 ? 1 : 3);
        }
    }
}

/* Windows that hang over the edge, long sums, channels around a vector's lanes. */
TEST(pools_with_channels_last)
{
    static const int64_t shapes[][7] = {/* channels, in, kernel, stride, dilation, pads */
                                        {1, 5, 3, 2, 1, 1, 1},    {16, 8, 2, 2, 1, 0, 0},
                                        {67, 7, 3, 1, 2, 2, 1},   {33, 14, 14, 1, 1, 0, 0},
                                        {130, 9, 5, 3, 1, 2, 4}};
    EACH_ISA(isa, kernels)
    {
        for (size_t i = 0; i < 4 * SBIT__COUNT_OF(shapes); i++) {
            const int64_t *t = shapes[i / 4];
            sbit_ctx *ctx = ctx_of(isa, i % 2 == 0 ? 1 : 3);
            sbit__last_pool pool;
            memset(&pool, 0, sizeof pool);
            pool.batch = 2;
            pool.channels = t[0];
            pool.average = i % 4 >= 2;
            pool.count_pads = i % 8 >= 4;
            for (int d = 0; d < 3; d++) {
                const bool used = d > 0;
                pool.in[d] = used ? t[1] : 1;
                pool.kernel[d] = used ? t[2] : 1;
                pool.stride[d] = used ? t[3] : 1;
                pool.dilation[d] = used ? t[4] : 1;
                pool.pad_begin[d] = used ? t[5] : 0;
                pool.pad_end[d] = used ? t[6] : 0;
                pool.out[d] = used ? (t[1] + t[5] + t[6] - (t[2] - 1) * t[4] - 1) / t[3] + 1 : 1;
            }
            sbit__last_pool_plan(ctx, &pool);
            const float *x = random_floats(0, 2 * t[1] * t[1] * t[0]);
            const int64_t side = pool.out[1], y_size = 2 * side * side * t[0];
            float *y = fenced_floats(4, y_size);
            sbit__last_pool_run(ctx, &pool, x, y, fenced(6, pool.scratch_bytes, false));
            for (int64_t at = 0; at < y_size; at++) {
                const int64_t c = at % t[0], w = at / t[0] % side, h = at / t[0] / side % side;
                double sum = 0, largest = -(double)INFINITY, count = 0;
                for (int64_t k = 0; k < t[2] * t[2]; k++) {
                    const int64_t ih = h * t[3] - t[5] + k / t[2] * t[4];
                    const int64_t iw = w * t[3] - t[5] + k % t[2] * t[4];
                    const bool inside = ih >= 0 && ih < t[1] && iw >= 0 && iw < t[1];
                    const float v = inside ? x[((at / t[0] / side / side * t[1] + ih) * t[1] + iw) *
                                                   t[0] + c]
                                           : 0.0f;
                    sum += (double)v;
                    largest = inside && (double)v > largest ? (double)v : largest;
                    count += inside || (pool.count_pads && ih < t[1] + t[6] && iw < t[1] + t[6]);
                }
                if (!CHECK_NEAR((double)y[at], pool.average ? sum / count : largest, 1e-6)) {
                    printf("  isa %d shape %d at %d\n", isa, (int)i, (int)at);
                    break;
                }
            }
            sbit_ctx_destroy(ctx);
        }
    }
}

/* channels in and out, batch, height, width, kernel, stride, dilation of rows, padding in front and behind */
static const int64_t image_shapes[][10] = {
    {3, 16, 1, 12, 40, 3, 2, 1, 1, 1}, {3, 33, 2, 9, 19, 3, 1, 1, 1, 1}, {1, 70, 1, 8, 21, 5, 1, 1, 2, 2},
    {3, 64, 1, 15, 44, 7, 2, 1, 3, 3}, {2, 5, 1, 7, 3, 3, 1, 2, 2, 2},   {4, 20, 1, 9, 17, 2, 2, 1, 0, 1},
    {3, 48, 1, 8, 16, 4, 4, 1, 0, 0},  {3, 8, 1, 2, 2, 5, 2, 1, 4, 4},   {1, 1, 3, 4, 35, 3, 2, 1, 0, 0}};

TEST(conv_driver_from_images)
{
    channels_last = image = true;
    for (size_t i = 0; i < 6 * SBIT__COUNT_OF(image_shapes); i++) { /* all epilogues */
        const int64_t *p = image_shapes[i / 6];
        sbit__conv_shape s;
        memset(&s, 0, sizeof s);
        s.groups = 1;
        s.in_channels = p[0];
        s.out_channels = p[1];
        s.batch = p[2];
        for (int d = 0; d < 3; d++) {
            s.in[d] = d > 0 ? p[2 + d] : 1;
            s.kernel[d] = d > 0 ? p[5] : 1;
            s.stride[d] = d > 0 ? p[6] : 1;
            s.dilation[d] = d == 1 ? p[7] : 1;
            s.pad_begin[d] = d > 0 ? p[8] : 0;
            s.out[d] = out_size(&s, d, d > 0 ? p[9] : 0);
        }
        check_conv(&s, (int64_t)i);
    }
    image = false;
}

/* channels in and out, batch, height, width, padding in front and behind of both axes */
static const int64_t winograd_shapes[][9] = {
    {16, 16, 1, 4, 4, 1, 1, 1, 1},  {16, 64, 1, 8, 8, 1, 1, 1, 1},  {17, 33, 1, 7, 9, 1, 1, 1, 1},
    {3, 5, 3, 5, 6, 0, 2, 1, 0},    {64, 20, 1, 13, 3, 2, 0, 0, 2}, {32, 40, 1, 9, 10, 1, 1, 1, 1},
    {1, 1, 1, 3, 3, 0, 0, 0, 0},    {40, 70, 2, 6, 6, 1, 1, 1, 1},
    {18, 16, 1, 16, 15, 1, 1, 1, 1}, {16, 130, 1, 14, 16, 0, 3, 3, 0}};

TEST(conv_driver_winograd)
{
    channels_last = true;
    for (size_t i = 0; i < 2 * SBIT__COUNT_OF(winograd_shapes); i++) {
        const int64_t *p = winograd_shapes[i / 2];
        sbit__conv_shape s;
        memset(&s, 0, sizeof s);
        winograd = i % 2 == 0 ? 4 : 2;
        s.groups = 1;
        s.in_channels = p[0];
        s.out_channels = p[1];
        s.batch = p[2];
        for (int d = 0; d < 3; d++) {
            s.in[d] = d > 0 ? p[2 + d] : 1;
            s.kernel[d] = d > 0 ? 3 : 1;
            s.stride[d] = s.dilation[d] = 1;
            s.pad_begin[d] = d > 0 ? p[3 + 2 * d] : 0;
            s.out[d] = out_size(&s, d, d > 0 ? p[4 + 2 * d] : 0);
        }
        CHECK(sbit__last_may_winograd(&s));
        check_conv(&s, (int64_t)i);
    }
    winograd = 0;
}

/* Also three rows next to each other, and what is behind them stays. */
TEST(rows_and_columns_are_exchanged_and_zipped)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 13};
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        for (size_t i = 0; last != NULL && sbit_isa_available((sbit_isa)isa) && i < 64; i++) {
            const int64_t rows = sizes[i / 8], columns = sizes[i % 8];
            float x[13 * 13 + 1], y[13 * 13 + 1], z[2 * 13 + 1];
            for (int64_t k = 0; k < 13 * 13; k++) {
                x[k] = (float)k;
            }
            y[rows * columns] = z[2 * columns] = -1.0f;
            last->last_exchange(rows, columns, x, columns, y, rows);
            last->last_zip(columns, x, x + 13, z);
            bool same = y[rows * columns] == -1.0f && z[2 * columns] == -1.0f;
            for (int64_t k = 0; k < rows * columns; k++) {
                same = same && y[k] == x[k % rows * columns + k / rows];
            }
            for (int64_t k = 0; k < columns; k++) {
                same = same && z[2 * k] == x[k] && z[2 * k + 1] == x[13 + k];
            }
            CHECK(same);
        }
    }
}

/* Rows of whole vectors and rests, far from zero; in place. */
TEST(rows_are_normalized)
{
    float x[71], y[72], scale[71], bias[71], stats[2];
    for (int64_t i = 0; i < 71; i++) {
        x[i] = 100.0f + (float)((i * 37) % 29);
        scale[i] = 1.0f - (float)(i % 5);
        bias[i] = (float)(i % 7);
    }
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        for (int64_t n = 1; last != NULL && sbit_isa_available((sbit_isa)isa) && n < 72; n += 5) {
            const bool centered = n % 2 != 0, plain = n % 3 == 0;
            double mean = 0.0, squares = 0.0;
            for (int64_t i = 0; i < n; i++) {
                mean += centered ? (double)x[i] / (double)n : 0.0;
            }
            for (int64_t i = 0; i < n; i++) {
                squares += ((double)x[i] - mean) * ((double)x[i] - mean);
            }
            const double factor = 1.0 / sqrt(squares / (double)n + 0.5);
            memcpy(y, x, sizeof x);
            y[n] = -1.0f;
            last->norm_row(n, y, plain ? NULL : scale, plain ? NULL : bias, centered, 0.5f, y, stats);
            CHECK_NEAR((double)stats[0], mean, 1e-4);
            CHECK_NEAR((double)stats[1], factor, 1e-5 * factor);
            CHECK(y[n] == -1.0f);
            for (int64_t i = 0; i < n; i++) {
                const double v = ((double)x[i] - mean) * factor;
                CHECK_NEAR((double)y[i], plain ? v : v * (double)scale[i] + (double)bias[i], 1e-4);
            }
        }
    }
}

/* Long rows are added up in doubles. */
TEST(long_rows_are_normalized)
{
    static float x[12007], y[12007];
    double mean = 0.0, squares = 0.0;
    float stats[2];
    sbit_rng rng = sbit_rng_seed(3);
    for (int64_t i = 0; i < 12007; i++) {
        x[i] = 100.0f + 2.0f * sbit_rng_uniform(&rng) - 1.0f;
        mean += (double)x[i] / 12007.0;
    }
    for (int64_t i = 0; i < 12007; i++) {
        squares += ((double)x[i] - mean) * ((double)x[i] - mean) / 12007.0;
    }
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        if (last != NULL && sbit_isa_available((sbit_isa)isa)) {
            last->norm_row(12007, x, NULL, NULL, true, 0.0f, y, stats);
            CHECK_NEAR((double)stats[0], mean, 6e-6); /* one place of a float */
            CHECK_NEAR((double)stats[1], 1.0 / sqrt(squares), 1e-6);
        }
    }
}

/* Products of 4 rows and 2, of whole vectors and rests, in images that lie apart. */
TEST(products_of_rows_of_images)
{
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        for (int64_t n = 1; last != NULL && sbit_isa_available((sbit_isa)isa) && n < 40; n += 3) {
            float data[3 * 40 * 7], sums[8];
            const float *rows[6];
            for (int64_t i = 0; i < 3 * 40 * 7; i++) {
                data[i] = (float)((i * 7919) % 13 - 6);
            }
            for (int64_t i = 0; i < 6; i++) {
                rows[i] = data + (i == 3 ? 2 : i) * n;
            }
            last->norm_dots(3, n, rows, 7 * n, 6 * n, sums);
            for (int64_t k = 0; k < 8; k++) {
                float sum = 0.0f; /* of small integers: exact */
                for (int64_t i = 0; i < 3 * n; i++) {
                    sum += rows[k / 2][i / n * 7 * n + i % n] * rows[4 + k % 2][i / n * 6 * n + i % n];
                }
                CHECK(sums[k] == sum);
            }
        }
    }
}

/* Straight-through gradients of all instruction sets: dx by the integers that f32_fake_quantize gives, also
 * of what no integer holds; sums near to those of doubles. */
TEST(slopes_of_grids)
{
    static const float grids[][4] = {/* scale, zero, lo, hi */
                                     {0.25f, 0.0f, -8.0f, 7.0f},
                                     {0.3f, 7.0f, 0.0f, 15.0f},
                                     {1e-3f, 128.0f, 0.0f, 255.0f},
                                     {0.7f, 0.0f, 0.0f, 3.0f},
                                     {1.2e-38f, -3.0f, -8.0f, 7.0f},
                                     {2.0f, 40000.0f, 0.0f, 65535.0f}};
    enum {
        MOST = 5000 /* two blocks and a half */
    };
    static float x[MOST], dy[MOST], dx[MOST], y[MOST], own[MOST];
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        const sbit_kernels *kernels = sbit__kernels_of((sbit_isa)isa);
        for (size_t g = 0; last != NULL && kernels != NULL && sbit_isa_available((sbit_isa)isa) &&
                           g < SBIT__COUNT_OF(grids);
             g++) {
            const float scale = grids[g][0], zero = grids[g][1], lo = grids[g][2], hi = grids[g][3];
            for (int64_t n = 1; n <= MOST; n = n < 40 ? n + 1 : 5 * n) {
                double sums[2], scales = 0.0, outside = 0.0, size = 0.0;
                for (int64_t i = 0; i < n; i++) {
                    const float at = (float)((i * 7919) % 997) / 997.0f * 1.4f - 0.2f;
                    x[i] = (lo - zero + at * (hi - lo)) * scale;
                    x[i] = i % 5 == 0 ? (nearbyintf(lo - zero + at * (hi - lo)) + 0.5f) * scale : x[i];
                    x[i] = i % 97 == 3 ? (i % 2 == 0 ? 3e38f : -3e38f) : x[i];
                    x[i] = i % 89 == 6 ? (i % 2 == 0 ? INFINITY : -INFINITY) : x[i];
                    dy[i] = (float)((i * 104729) % 1009) / 1009.0f - 0.4f;
                }
                /* y: the integers times scale, before they are cut at lo and hi */
                kernels->f32_fake_quantize(n, x, scale, 0, -200000, 200000, y);
                last->slope_grid(n, dy, x, scale, zero, lo, hi, dx, sums);
                for (int64_t i = 0; i < n; i++) {
                    const double q = (double)y[i] / (double)scale, ratio = (double)(x[i] / scale);
                    const double whole = nearbyint(q);
                    const bool inside = whole >= (double)(lo - zero) && whole <= (double)(hi - zero);
                    const double off = inside                      ? whole - ratio
                                       : whole < (double)(lo - zero) ? (double)(lo - zero)
                                                                     : (double)(hi - zero);
                    CHECK_MSG(dx[i] == (inside ? dy[i] : 0.0f), "isa %d grid %d x %g: dx %g", isa, (int)g,
                              (double)x[i], (double)dx[i]);
                    scales += (double)dy[i] * off;
                    outside += inside ? 0.0 : (double)dy[i];
                    size += fabs((double)dy[i]) * (fabs(off) + 1.0);
                }
                CHECK_MSG(fabs(sums[0] - scales) <= 1e-5 * size, "isa %d grid %d n %d: %g, not %g", isa,
                          (int)g, (int)n, sums[0], scales);
                CHECK_MSG(fabs(sums[1] - outside) <= 1e-5 * size, "isa %d grid %d n %d: %g, not %g",
                          isa, (int)g, (int)n, sums[1], outside);
                memcpy(own, dy, sizeof own);
                last->slope_grid(n, own, x, scale, zero, lo, hi, own, sums);
                CHECK(memcmp(own, dx, (size_t)n * sizeof *dx) == 0); /* in place */
            }
            x[0] = NAN;
            dy[0] = 1.0f;
            double sums[2];
            last->slope_grid(1, dy, x, scale, zero, lo, hi, dx, sums);
            CHECK(dx[0] == 0.0f && sums[0] == (double)(lo - zero) && sums[1] == 1.0);
        }
    }
}

/* LSTM's step back of all instruction sets near to the reference, in place too. */
TEST(steps_back_through_lstm)
{
    enum {
        MOST = 40
    };
    const sbit__last_kernels *ref = sbit__last_kernels_of(SBIT_ISA_SCALAR);
    float g[4 * MOST], top[MOST], c0[MOST], dh[MOST], dy[MOST], dc[2][MOST], dg[2][4 * MOST];
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        for (int64_t n = 1; last != NULL && sbit_isa_available((sbit_isa)isa) && n <= MOST; n++) {
            for (int with = 0; with < 2; with++) {
                for (int64_t i = 0; i < 4 * n; i++) {
                    g[i] = (float)((i * 7919) % 97 + 1) / 99.0f;
                }
                for (int64_t i = 0; i < n; i++) {
                    top[i] = (float)((i * 31) % 19 - 9) / 10.0f;
                    c0[i] = (float)((i * 17) % 23 - 11) / 7.0f;
                    dh[i] = (float)((i * 13) % 29 - 14) / 9.0f;
                    dy[i] = (float)((i * 11) % 31 - 15) / 11.0f;
                    dc[0][i] = dc[1][i] = (float)((i * 7) % 37 - 18) / 13.0f;
                }
                ref->lstm_back(n, g, top, with != 0 ? c0 : NULL, dh, with != 0 ? dy : NULL, dc[0], dg[0]);
                memcpy(dg[1], g, sizeof g);
                last->lstm_back(n, dg[1], top, with != 0 ? c0 : NULL, dh, with != 0 ? dy : NULL, dc[1],
                                dg[1]);
                for (int64_t i = 0; i < 4 * n; i++) {
                    CHECK_MSG(fabsf(dg[1][i] - dg[0][i]) <= 1e-6f, "isa %d n %d [%d]: %g, not %g", isa,
                              (int)n, (int)i, (double)dg[1][i], (double)dg[0][i]);
                    CHECK(fabsf(dc[1][i % n] - dc[0][i % n]) <= 1e-6f);
                }
            }
        }
    }
}

/* What training does with channels last, on small integers: exact. */
TEST(sums_of_channels)
{
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        for (int64_t n = 1; last != NULL && sbit_isa_available((sbit_isa)isa) && n < 100; n += 11) {
            enum {
                ROWS = 7
            };
            float x[ROWS * 100], dy[ROWS * 100], f[400], y[ROWS * 100], sums[500];
            for (int64_t i = 0; i < ROWS * n; i++) {
                x[i] = (float)((i * 7919) % 13 - 6);
                dy[i] = (float)((i * 104729) % 11 - 5);
            }
            for (int64_t i = 0; i < 4 * n; i++) {
                f[i] = (float)(i * 31 % 7 - 3);
            }
            for (int own = 0; own < 2; own++) {
                last->norm_last_sums(ROWS, n, x, own != 0 ? NULL : dy, f, sums);
                last->norm_last_scale(ROWS, n, x, own != 0 ? NULL : dy, f, y);
                for (int64_t c = 0; c < n; c++) {
                    float sum = 0.0f, product = 0.0f;
                    for (int64_t i = c; i < ROWS * n; i += n) {
                        const float u = x[i] - f[c], v = own != 0 ? u : dy[i];
                        sum += v;
                        product += v * u;
                        CHECK(y[i] == f[c] * (x[i] - f[n + c]) + f[2 * n + c] +
                                          (own != 0 ? 0.0f : f[3 * n + c] * dy[i]));
                    }
                    CHECK(sums[c] == sum && sums[n + c] == product);
                }
            }
            x[0] = NAN;
            last->slope_inside(ROWS * n, dy, x, -2.0f, 3.0f, y);
            for (int64_t i = 0; i < ROWS * n; i++) {
                CHECK(y[i] == (x[i] > -2.0f && x[i] < 3.0f ? dy[i] : 0.0f));
            }
            x[0] = INFINITY;
            last->slope_inside(1, dy, x, 0.0f, NAN, y);
            CHECK(y[0] == dy[0]); /* no upper limit */
            x[0] = 0.0f;
            memset(sums, 0, sizeof sums);
            last->last_depthwise_dots(3, n, 4, n, dy, n, n, x, sums); /* 3 pixels, 4 taps */
            for (int64_t i = 0; i < 4 * n; i++) {
                float sum = 0.0f;
                for (int64_t p = 0; p < 3; p++) {
                    sum += dy[p * n + i % n] * x[p * n + i];
                }
                CHECK(sums[i] == sum);
            }
        }
    }
}

TEST(conv_driver_of_few_weights_random)
{
    channels_last = sparse = true;
    check_conv_random();
    sparse = false;
}

TEST(conv_driver_with_channels_last_random)
{
    channels_last = true;
    check_conv_random();
}

/* What a node's rate is compared with: the fastest of all sums in registers. */
TEST(the_peak_is_of_every_instruction_set)
{
    for (int isa = 0; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__last_kernels *last = sbit__last_kernels_of((sbit_isa)isa);
        const sbit__q8_kernels *q8 = sbit__q8_kernels_of((sbit_isa)isa);
        float sum = 0.5f;
        int32_t total = 1;
        if (last == NULL || q8 == NULL || !sbit_isa_available((sbit_isa)isa)) {
            continue;
        }
        CHECK(last->last_peak(3, &sum) % (3 * (int64_t)last->lanes) == 0 && sum > 0.0f);
        CHECK(q8->q8_peak(3, &total) >= 12 && total > 0);
    }
    sbit_ctx_desc desc = test_ctx_desc();
    sbit_ctx *ctx = NULL;
    sbit_error error;
    CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
    CHECK(sbit_measure_peak(ctx, false) > 1e6 && sbit_measure_peak(ctx, true) > 1e6);
    sbit_ctx_destroy(ctx);
}
