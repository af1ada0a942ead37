/* kernels_private.h: the table of kernels per instruction set and the drivers on top. >>kernels
 *
 * Called by: ops (run, prepare), observers, quantizers. Calls: core (threads).
 *
 * Two levels. A KERNEL is a leaf for one instruction set: no allocation, no threads, no failure;
 * `<what>__ref` in scalar C comes first, is always compiled and defines the result; variants are
 * `<what>__avx2` ... One X-macro list below names all kernels; it makes the struct of function
 * pointers, the const table rows (holes filled by the next lower row, at last by __ref), the tests
 * and the benchmarks. A DRIVER is portable code over the table: blocking, packing, threads.
 *
 * Calling convention: sizes in elements (int64_t), pointers need only the alignment of their
 * element type, outputs do not overlap inputs unless the comment says "in place ok", scratch is
 * the caller's, 64-byte aligned, sized by ..._scratch_bytes().
 * Exactness: integer kernels and quantize/dequantize are bit-exact with __ref on every ISA; float
 * sums may differ by rounding (max |a-b| <= 1e-5 * sum |terms|); exp/tanh/... <= 4 ulp + 1e-7.
 */
#ifndef SBIT_KERNELS_PRIVATE_H
#define SBIT_KERNELS_PRIVATE_H

#include "../core/core_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Code for an instruction set without build flags. */
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__)) && !SPARSEBIT_NO_SIMD
#define SBIT__X86 1
#define SBIT__TARGET(features) __attribute__((target(features)))
#else
#define SBIT__X86 0
#define SBIT__TARGET(features)
#endif

#if defined(__GNUC__)
#define SBIT__PREFETCH(at) __builtin_prefetch((at), 0, 2) /* to the second cache */
#else
#define SBIT__PREFETCH(at) ((void)(at))
#endif

/* What a matrix or convolution kernel does to an accumulator before it is stored, in this order:
 * + bias, + residual, activation. All optional; {0} stores the accumulator. */
typedef enum sbit__activation {
    SBIT__ACT_NONE = 0,
    SBIT__ACT_CLAMP,       /* min(max(x, lo), hi): Relu is lo 0, hi +inf */
    SBIT__ACT_HARDSWISH,   /* x * clamp(x / 6 + 0.5, 0, 1) */
    SBIT__ACT_SIGMOID,
    SBIT__ACT_SILU,        /* x * sigmoid(x) */
    SBIT__ACT_LEAKY,       /* x < 0 ? lo * x : x */
    SBIT__ACT_GELU         /* x / 2 * (1 + erf(x / sqrt 2)) */
} sbit__activation;

typedef struct sbit__epilogue {
    sbit__activation activation;
    float lo, hi;
    const float *residual; /* same layout as the output; added before the activation */
} sbit__epilogue;

/* Elementwise operations by number, so that one loop structure serves all. */
typedef enum sbit__unary {
    SBIT__UNARY_ABS, SBIT__UNARY_NEG, SBIT__UNARY_EXP, SBIT__UNARY_LOG, SBIT__UNARY_SQRT,
    SBIT__UNARY_RECIPROCAL, SBIT__UNARY_SIGMOID, SBIT__UNARY_TANH, SBIT__UNARY_ERF,
    SBIT__UNARY_GELU, SBIT__UNARY_GELU_TANH, SBIT__UNARY_SILU, SBIT__UNARY_HARDSWISH,
    SBIT__UNARY_FLOOR, SBIT__UNARY_CEIL, SBIT__UNARY_ROUND, SBIT__UNARY_SOFTPLUS,
    SBIT__UNARY_MISH,
    SBIT__UNARY_GELU_SLOPE, /* of Gelu at x */
    SBIT__UNARY_COUNT
} sbit__unary;
typedef enum sbit__binary {
    SBIT__BINARY_ADD, SBIT__BINARY_SUB, SBIT__BINARY_MUL, SBIT__BINARY_DIV, SBIT__BINARY_MAX,
    SBIT__BINARY_MIN,
    SBIT__BINARY_COUNT
} sbit__binary;

typedef struct sbit__depthwise {
    int64_t in_h, in_w, out_w, kh, kw;
    int64_t stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w; /* padding before */
    const float *zeros;                                               /* in_w of them */
} sbit__depthwise;

/* >>table: X(return type, name, parameters). A new kernel is one line here, a __ref, variants. */
#define SBIT__KERNEL_LIST(X)                                                                       \
    /* c[m][n] (+)= a-panel * b: `a` packed [k][tile_m], b rows at stride ldb, m <= tile_m,       \
     * n <= tile_n; add: c holds a partial sum. bias per row (bias_rows) or column or NULL;        \
     * epilogue (NULL: none) and bias are applied when `last`. ep->residual has stride ldc. */     \
    X(void, f32_gemm_tile,                                                                         \
      (int64_t m, int64_t n, int64_t k, const float *a, const float *b, int64_t ldb, float *c,     \
       int64_t ldc, bool add, const float *bias, bool bias_rows, const sbit__epilogue *ep))        \
    /* One row times 1 to 4 packed panels that are `stride` apart: sums[panel][tile_n], with the   \
     * bits of f32_gemm_tile. */                                                                   \
    X(void, f32_gemm_row,                                                                          \
      (int64_t panels, int64_t k, const float *a, const float *b, int64_t stride, float *sums))    \
    /* f32_gemm_tile with columns in two halves: row p of b begins at offsets[p] from b_left and   \
     * from b_right, for columns that go to c_left and c_right. n_left, n_right <= tile_n / 2      \
     * (n_right may be 0), but b must be readable for that. ep->residual belongs to c_left, that of\
     * c_right is as far away from it. bias per row. */                                            \
    X(void, f32_conv_tile,                                                                         \
      (int64_t m, int64_t k, const float *a, const int32_t *offsets, const float *b_left,          \
       const float *b_right, float *c_left, int64_t n_left, float *c_right, int64_t n_right,       \
       int64_t ldc, bool add, const float *bias, const sbit__epilogue *ep))                        \
    X(void, f32_unary, (sbit__unary op, int64_t n, const float *x, float *y)) /* in place ok */    \
    /* steps 0 (one value) or 1; in place ok */                                                    \
    X(void, f32_binary,                                                                            \
      (sbit__binary op, int64_t n, const float *a, int64_t step_a, const float *b,                 \
       int64_t step_b, float *y))                                                                  \
    X(void, f32_activate, (int64_t n, float *x, const sbit__epilogue *ep)) /* activation only */   \
    X(void, f32_scale_add, (int64_t n, const float *x, float scale, float shift, float *y))        \
    X(void, f32_minmax, (int64_t n, const float *x, float *min, float *max, bool *finite))         \
    X(float, f32_sum, (int64_t n, const float *x))                                                 \
    X(float, f32_dot, (int64_t n, const float *a, const float *b))                                 \
    X(float, f32_max, (int64_t n, const float *x))                                                 \
    X(void, f32_softmax, (int64_t n, const float *x, float *y)) /* in place ok */                  \
    /* an output row of a convolution from any `kh` rows; reads no more than it needs */           \
    X(void, f32_depthwise_row,                                                                     \
      (int64_t out_w, int64_t kh, int64_t kw, int64_t stride_w, int64_t dilation_w,                \
       const float *const *rows, const float *weights, float bias, float *y,                       \
       const sbit__epilogue *ep))                                                                  \
    /* rows row0..row1 of a depthwise convolution of one plane: x[in_h][in_w], y[.][out_w] */      \
    X(void, f32_depthwise_plane,                                                                   \
      (const sbit__depthwise *d, int64_t row0, int64_t row1, const float *x, const float *weights, \
       float bias, float *y, const sbit__epilogue *ep))                                            \
    /* true division, round half to even, + zero_point, saturate to qmin..qmax; NaN gives zp */    \
    X(void, f32_quantize_u8,                                                                       \
      (int64_t n, const float *x, float scale, int32_t zero_point, int32_t qmin, int32_t qmax,     \
       uint8_t *y))                                                                                \
    X(void, f32_quantize_s8,                                                                       \
      (int64_t n, const float *x, float scale, int32_t zero_point, int32_t qmin, int32_t qmax,     \
       int8_t *y))                                                                                 \
    X(void, f32_dequantize_u8,                                                                     \
      (int64_t n, const uint8_t *x, float scale, int32_t zero_point, float *y))                    \
    X(void, f32_dequantize_s8,                                                                     \
      (int64_t n, const int8_t *x, float scale, int32_t zero_point, float *y))                     \
    /* quantize then dequantize without leaving float; same bits as the pair; in place ok */       \
    X(void, f32_fake_quantize,                                                                     \
      (int64_t n, const float *x, float scale, int32_t zero_point, int32_t qmin, int32_t qmax,     \
       float *y))                                                                                  \
    /* histogram of x over [lo, hi) in `bins` equal bins; outside values go to the end bins */     \
    X(void, f32_histogram,                                                                         \
      (int64_t n, const float *x, float lo, float hi, int64_t bins, uint64_t *counts))

typedef struct sbit_kernels {
    sbit_isa isa;
    int32_t tile_m, tile_n; /* of f32_gemm_tile */
#define SBIT__KERNEL_MEMBER(type, name, params) type(*name) params;
    SBIT__KERNEL_LIST(SBIT__KERNEL_MEMBER)
#undef SBIT__KERNEL_MEMBER
} sbit_kernels;

/* The table of the context's ISA; never NULL. */
SBIT__FN const sbit_kernels *sbit__kernels(const sbit_ctx *ctx);
/* The table of any compiled-in ISA (tests, benchmarks); NULL if not compiled in. Calling it on a
 * CPU without that ISA crashes: ask sbit_isa_available first. */
SBIT__FN const sbit_kernels *sbit__kernels_of(sbit_isa isa);

enum { SBIT__WORTH_A_THREAD = 64 * 1024 }; /* multiplications */

/* >>gemm driver: c[m][n] = epilogue(alpha * a[m][k] * b[k][n] + bias). Row-major with leading
 * dimensions; transposed operands are read transposed. Packed operands come from the functions
 * below; pass either `a` or `packed_a`, `b` or `packed_b`. beta: c = ... + beta * c_in is the
 * caller's (residual). */
typedef struct sbit__gemm {
    int64_t m, n, k;
    const float *a, *b;
    int64_t lda, ldb, ldc;
    bool trans_a, trans_b;
    const float *packed_a, *packed_b;
    float alpha; /* folded into packed operands when those are packed with it; 1 if unsure */
    const float *bias;
    bool bias_rows; /* bias has m entries, else n */
    bool serial;    /* on the calling thread: what calls it is spread over the threads itself */
    const sbit__epilogue *epilogue;
    float *c;
    float *b_sums; /* n sums of b's columns over k; b is not packed nor transposed then. NULL: none */
} sbit__gemm;

SBIT__FN size_t sbit__gemm_pack_a_bytes(const sbit_ctx *ctx, int64_t m, int64_t k);
SBIT__FN size_t sbit__gemm_pack_b_bytes(const sbit_ctx *ctx, int64_t n, int64_t k);
SBIT__FN void sbit__gemm_pack_a(sbit_ctx *ctx, int64_t m, int64_t k, const float *a,
                                int64_t lda, bool trans, float alpha, float *packed);
SBIT__FN void sbit__gemm_pack_b(sbit_ctx *ctx, int64_t n, int64_t k, const float *b,
                                int64_t ldb, bool trans, float alpha, float *packed);
SBIT__FN size_t sbit__gemm_scratch_bytes(const sbit_ctx *ctx, const sbit__gemm *gemm);
/* Stands for a packed operand where only scratch bytes are asked for. */
SBIT__FN const float *sbit__gemm_any(void);
SBIT__FN void sbit__gemm_run(sbit_ctx *ctx, const sbit__gemm *gemm, void *scratch);

/* >>convolution driver, 1 to 3 spatial dimensions (unused leading ones are 1), NCHW. */
typedef struct sbit__conv_shape {
    int64_t batch, groups;
    int64_t in_channels, out_channels; /* of all groups */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_begin[3];
} sbit__conv_shape;

typedef enum sbit__conv_algorithm {
    SBIT__CONV_POINTWISE, /* 1x1, stride 1, no padding: a gemm on the input as it lies */
    SBIT__CONV_IM2COL,    /* blocks of columns gathered into panels, then gemm */
    SBIT__CONV_DEPTHWISE, /* one input channel per group, 2-D */
    SBIT__CONV_DIRECT     /* small groups, anything else */
} sbit__conv_algorithm;

typedef struct sbit__conv {
    sbit__conv_shape shape;
    sbit__conv_algorithm algorithm;
    size_t packed_bytes;  /* weights; depend on algorithm and channels only, not on the image */
    size_t scratch_bytes; /* for all threads of the context */
} sbit__conv;

/* Chooses the algorithm and sizes; no failure. Same kernel/channels/groups/stride always give the
 * same algorithm and packing, so packed weights outlive a change of image size. */
SBIT__FN void sbit__conv_plan(const sbit_ctx *ctx, const sbit__conv_shape *shape, sbit__conv *out);
/* weights [out_channels][in_channels/groups][kernel...] */
SBIT__FN void sbit__conv_pack(sbit_ctx *ctx, const sbit__conv *conv, const float *weights,
                              float *packed);
SBIT__FN void sbit__conv_run(sbit_ctx *ctx, const sbit__conv *conv, const float *x,
                             const float *packed, const float *bias, /* NULL ok */
                             const sbit__epilogue *epilogue, float *y, void *scratch);

/* dw [out_channels][in_channels / groups][kernel...] = the sum over pixels of dy times what they
 * see of x; both may have their channels last, in up to 2 dimensions. fits: false for groups of images
 * with more than 2^31 floats. */
SBIT__FN bool sbit__conv_weight_fits(const sbit_ctx *ctx, const sbit__conv_shape *shape, bool last);
SBIT__FN size_t sbit__conv_weight_scratch_bytes(const sbit_ctx *ctx, const sbit__conv_shape *shape,
                                                bool last);
SBIT__FN void sbit__conv_weight_run(sbit_ctx *ctx, const sbit__conv_shape *shape, bool last,
                                    const float *x, const float *dy, float *dw, void *scratch);

/* >>float64: the same in double, by straight loops: c[m][n] = a[m][k] * b[k][n] with any strides,
 * and convolutions; `transposed`: shape.pad_begin is that of ConvTranspose. */
typedef struct sbit__f64_gemm {
    int64_t m, n, k;
    const double *a, *b;
    int64_t a_row, a_col, b_row, b_col, ldc;
    double *c;
} sbit__f64_gemm;
SBIT__FN void sbit__f64_gemm_run(sbit_ctx *ctx, const sbit__f64_gemm *gemm);

typedef struct sbit__f64_conv {
    sbit__conv_shape shape;
    bool transposed; /* weights [in_channels][out_channels / groups][kernel...] */
    const double *x, *w, *bias; /* bias: NULL ok */
    double *y;
} sbit__f64_conv;
SBIT__FN void sbit__f64_conv_run(sbit_ctx *ctx, const sbit__f64_conv *conv);

/* >>parallel: splits 0..n-1 into ranges of at least `grain` and runs fn(task, begin, end, worker)
 * on the context's threads; results must not depend on the split. */
typedef void (*sbit__range_fn)(void *task, int64_t begin, int64_t end, int32_t worker);
SBIT__FN void sbit__parallel_range(sbit_ctx *ctx, int64_t n, int64_t grain, sbit__range_fn fn,
                                   void *task);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_KERNELS_PRIVATE_H */
