/* last_private.h: float convolutions and pools with channels last. >>last
 *
 * Called by: ops/last.c. Calls: core (threads).
 *
 * Tensors lie [image][position][channel]; vectors hold channels, so that planes of any size fill
 * them. The kernels are written once, in vec_last.h, over the vector operations of vec_*.h;
 * last_reference.c defines what they compute. The terms of a sum are added in the order of taps and
 * channels, whatever the tile, the block or the number of threads.
 */
#ifndef SBIT_LAST_PRIVATE_H
#define SBIT_LAST_PRIVATE_H

#include "kernels_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of a sum: + bias, + residual, activation. */
typedef struct sbit__last_store {
    const float *bias;     /* of the first column; NULL: none */
    const float *residual; /* where the output is in a tensor like it; NULL: none */
    sbit__activation activation; /* NONE, CLAMP, HARDSWISH: the rest is the driver's work */
    float lo, hi;
} sbit__last_store;

/* One panel of columns. A row's sum is over `taps` runs of `depth` floats; run t of row i begins at
 * row[t * pitch + i] + shift or, where row is NULL and there is one tap, at x + i * x_step. */
typedef struct sbit__last_tile {
    int64_t taps, depth, pitch, shift;
    const float *x;
    int64_t x_step;
    int64_t width, columns; /* of the panel; those that are stored */
    const float *weights;   /* [taps][depth][width]; width may be more than `columns` need */
    const float *next;      /* weights that come next, */
    int64_t ahead;          /* so many floats: fetched meanwhile */
    bool fetches;           /* output and residual of the next rows, too */
    bool goes_on;           /* the sums begin with what the output holds, not with the bias */
    bool adds;              /* they are added to what it holds */
    const float *behind;    /* then this, of the first column; NULL: none; then the store's work */
    sbit__last_store store;
    int64_t out_step;       /* floats between rows of the output */
} sbit__last_tile;

/* Outputs of a window over an image with its channels first, side by side: sums over `taps` rows of the window,
 * `kernel` pixels of each and `channels`, in this order. Row t of channel c begins for the first output at
 * x[t * channels + c] + shift. */
typedef struct sbit__last_stem {
    int64_t taps, kernel, channels;
    int64_t stride, shift;  /* stride: 1 or 2 */
    int64_t width, columns; /* of the panel; those that are stored */
    const float *weights;   /* [taps][kernel][channels][width] */
    sbit__last_store store; /* residual: the driver's work */
    int64_t out_step;
} sbit__last_stem;

/* A window over each channel by itself, as far as it lies inside of the input. Weights are blocks
 * of `lanes` channels, `block_step` apart, in which those of a tap follow each other. */
typedef struct sbit__last_window {
    int64_t channels, rows, taps;
    int64_t row_step, tap_step, pixel_step, out_step; /* floats */
    const float *weights; /* of the first row and tap */
    int64_t weight_row, block_step;
    sbit__last_store store; /* residual: the driver's work */
} sbit__last_window;

/* The inputs of a tile of Winograd's method: row i begins at row[i], its pixels are step[i] floats apart.
 * Of its columns left..right-1 lie in the plane, the first of which is at row[i]; a row outside is zeros, with
 * step 0. */
typedef struct sbit__last_patch {
    const float *row[6];
    int64_t step[6];
    int64_t left, right;
} sbit__last_patch;

/* Where the outputs of a tile of Winograd's method go: rows x pixels of them lie in the plane. */
typedef struct sbit__last_cell {
    int64_t columns, rows, pixels;
    int64_t row_step, pixel_step;
    sbit__last_store store;
} sbit__last_cell;

#define SBIT__WINOGRAD_A 0.707106781186547524f /* see last_winograd.c */
#define SBIT__WINOGRAD_B 1.414213562373095049f

enum {
    SBIT__NORM_BLOCK = 2048 /* elements that are added up as floats */
};

#define SBIT__LAST_LIST(X)                                                                         \
    X(void, last_tile,                                                                             \
      (const sbit__last_tile *tile, int64_t rows, const float *const *row, float *out))            \
    X(void, last_stem,                                                                             \
      (const sbit__last_stem *stem, int64_t pixels, const float *const *x, float *out))            \
    /* `pixels` outputs side by side */                                                            \
    X(void, last_depthwise,                                                                        \
      (const sbit__last_window *window, int64_t pixels, const float *x, float *y))                 \
    /* y[c] = the largest x[i][c] of `count` rows, or scale * their sum */                         \
    X(void, last_pool,                                                                             \
      (int64_t channels, int64_t count, const float *const *x, bool sum, float scale, float *y))   \
    /* v[place * step + c] of a tile from its (m + 2)^2 input pixels; middle: (m + 2)^2 vectors */ \
    X(void, last_winograd_load,                                                                    \
      (int m, int64_t channels, const sbit__last_patch *x, float *middle, float *v, int64_t step)) \
    /* 4 vectors of sums for each column: += weight[i] * 4 vectors at x + place[i], for the i that are at \
     * least end[column] and less than end[column + 1]; they begin with bias[column], or go on (NULL) */ \
    X(void, last_sparse,                                                                           \
      (int64_t columns, const int32_t *end, const int32_t *place, const float *weight,             \
       const float *x, const float *bias, float *sums))                                                               \
    /* outputs of a tile from its sums[place * step + column], which are whole vectors */          \
    X(void, last_winograd_store,                                                                   \
      (int m, const sbit__last_cell *cell, const float *sums, int64_t step, float *middle,         \
       float *y))                                                                                  \
    /* y[2 * i] = a[i], y[2 * i + 1] = b[i] */                                                     \
    X(void, last_zip, (int64_t n, const float *a, const float *b, float *y))                       \
    /* y[j][i] = x[i][j] */                                                                        \
    X(void, last_exchange,                                                                         \
      (int64_t rows, int64_t columns, const float *x, int64_t x_step, float *y, int64_t y_step))     \
    /* of `rows` pieces of n elements, `step` apart: sums[0] = sum of v, sums[1] = sum of v u, with \
     * u = x - center, v = b or (b NULL) u */                                                      \
    X(void, norm_sums,                                                                             \
      (int64_t rows, int64_t step, int64_t n, const float *x, const float *b, float center,        \
       double *sums))                                                                              \
    /* y = a * x + c */                                                                            \
    X(void, norm_scale,                                                                            \
      (int64_t rows, int64_t step, int64_t n, const float *x, float a, float c, float *y))         \
    /* y = (x - mean) * factor * scale + bias: mean 0 unless centered, factor = 1 / sqrt(mean of (x -      \
     * mean)^2 + epsilon), which come out as stats; scale, bias: NULL ok */                        \
    X(void, norm_row,                                                                              \
      (int64_t n, const float *x, const float *scale, const float *bias, bool centered,            \
       float epsilon, float *y, float stats[2]))                                                   \
    /* dx = a * dy + b * x + c; dx may be dy */                                                    \
    X(void, norm_combine,                                                                          \
      (int64_t rows, int64_t step, int64_t n, const float *x, const float *dy, float a, float b,   \
       float c, float *dx))                                                                        \
    /* sums[2 * i + j] = the products of row i of 4 and row 4 + j of 2, n elements each, of      \
     * `images` images that lie a_image and b_image apart */                                       \
    X(void, norm_dots,                                                                             \
      (int64_t images, int64_t n, const float *const *rows, int64_t a_image, int64_t b_image,      \
       float *sums))                                                                               \
    /* of `rows` rows of n channels: sums[c] = sum of v, sums[n + c] = sum of v u, with u = x - center[c], \
     * v = b or (b NULL) u */                                                                      \
    X(void, norm_last_sums,                                                                        \
      (int64_t rows, int64_t n, const float *x, const float *b, const float *center, float *sums)) \
    /* y = f[c] * (x - f[n + c]) + f[2 n + c], and f[3 n + c] * dy unless dy is NULL */            \
    X(void, norm_last_scale,                                                                       \
      (int64_t rows, int64_t n, const float *x, const float *dy, const float *f, float *y))        \
    /* dx = dy where lo < v and not v >= hi, else 0; dx may be dy */                               \
    X(void, slope_inside,                                                                          \
      (int64_t n, const float *dy, const float *v, float lo, float hi, float *dx))                 \
    /* q = round(x / scale) + zero, as f32_fake_quantize rounds: dx = dy where lo <= q <= hi, else 0; dx may be \
     * dy. sums[0] = sum of dy * (q - zero - x / scale), outside of dy * (lo or hi - zero), sums[1] = sum of dy \
     * outside; a NaN is below. Zero, lo and hi within 2^16 */ \
    X(void, slope_grid,                                                                            \
      (int64_t n, const float *dy, const float *x, float scale, float zero, float lo, float hi,    \
       float *dx, double *sums))                                                                   \
    /* A sample's step back through LSTM, n units: gates i, o, f, c at g, their gradients at dg (may be g), n \
     * apart each; top: tanh of the cells, c0: the cells before, dh, dy: of the output; c0, dy: NULL is 0;     \
     * dc: of the cells, then of those before */                                                   \
    X(void, lstm_back,                                                                             \
      (int64_t n, const float *g, const float *top, const float *c0, const float *dh,              \
       const float *dy, float *dc, float *dg))                                                     \
    /* sums[t * step + c] += sum over pixels of dy[c] * x[t * tap_step + c]; pixels are step apart in dy */ \
    X(void, last_depthwise_dots,                                                                   \
      (int64_t pixels, int64_t channels, int64_t taps, int64_t step, const float *dy,              \
       int64_t pixel_step, int64_t tap_step, const float *x, float *sums))                         \
    /* as many multiply-adds as registers alone allow: how many; *sum keeps them from vanishing */ \
    X(int64_t, last_peak, (int64_t loops, float *sum))

/* The kernels of an instruction set. */
typedef struct sbit__last_kernels {
    int32_t lanes; /* floats in a vector */
    int32_t panel; /* widest panel, in vectors; narrower ones have any number of them */
#define SBIT__LAST_MEMBER(type, name, params) type(*name) params;
    SBIT__LAST_LIST(SBIT__LAST_MEMBER)
#undef SBIT__LAST_MEMBER
} sbit__last_kernels;

SBIT__FN const sbit__last_kernels *sbit__last_kernels_of(sbit_isa isa); /* NULL: not compiled in */
SBIT__FN const sbit__last_kernels *sbit__last_of(const sbit_ctx *ctx);

#define SBIT__LAST_DECLARE(type, name, params) SBIT__FN type sbit__##name##__ref params;
SBIT__LAST_LIST(SBIT__LAST_DECLARE)
#undef SBIT__LAST_DECLARE

/* >>convolution driver, 1 to 3 spatial dimensions. Plain data: it may be copied. */
typedef struct sbit__last_conv {
    sbit__conv_shape shape;
    int64_t winograd;       /* 0, or outputs at once along an axis, 2 or 4: given, if
                               sbit__last_may_winograd */
    bool sparse;            /* weights of 0 are left out: given, without groups */
    int64_t nonzeros;       /* those that are there, if sparse: given, less than 2^31 */
    bool first;             /* x has its channels first: given, without groups and dilation along the last axis */
    int64_t pitch;          /* floats between pixels of the output: given, 0: as many as it has channels; more of
                               dense weights only, without groups, residual and `first` */
    bool depthwise, merges, stem; /* see last_conv.c */
    int64_t taps, depth;            /* of a tile */
    int64_t columns;                /* of a group, with what panels are filled up with */
    int64_t rows, bands;            /* output rows of a unit, units along the rows */
    int64_t pixels, blocks;         /* of a unit; units along all pixels; unused with bands */
    int64_t parts;                  /* units that share the panels or channels */
    int64_t band_floats, worker_bytes;
    size_t packed_bytes, scratch_bytes;
} sbit__last_conv;

SBIT__INLINE int64_t sbit__last_pitch(const sbit__last_conv *conv)
{
    return conv->pitch > 0 ? conv->pitch : conv->shape.out_channels;
}
SBIT__FN bool sbit__last_may_winograd(const sbit__conv_shape *shape);
/* What is given is set. Packed weights depend on kernel, channels, groups, dilation and zeros alone. */
SBIT__FN void sbit__last_conv_plan(const sbit_ctx *ctx, sbit__last_conv *conv);
/* weights [out_channels][in_channels / groups][kernel...] */
SBIT__FN void sbit__last_conv_pack(sbit_ctx *ctx, const sbit__last_conv *conv, const float *weights,
                                   float *packed);
SBIT__FN void sbit__last_conv_run(sbit_ctx *ctx, const sbit__last_conv *conv, const float *x,
                                  const float *packed, const float *bias, /* NULL ok */
                                  const sbit__epilogue *epilogue, float *y, void *scratch);

/* What the files of this driver share. */
typedef struct sbit__last_job {
    const sbit__last_conv *conv;
    const sbit__last_kernels *kernels;
    const sbit_kernels *elements; /* for activations that the kernels do not do */
    const float *x, *packed, *bias;
    const sbit__epilogue *epilogue;
    sbit__last_store store;
    bool adds, activates; /* residual, activation: by `elements` */
    float *y;
    char *scratch;
} sbit__last_job;

/* The width of the next panel where `left` columns remain. */
SBIT__FN int64_t sbit__last_panel(const sbit__last_kernels *kernels, int64_t left);
/* What the kernels did not do to `columns` of `rows` rows. */
SBIT__FN void sbit__last_activate(const sbit__last_job *job, int64_t rows, int64_t columns,
                                  int64_t step, float *y);
SBIT__FN void sbit__last_winograd_plan(const sbit_ctx *ctx, sbit__last_conv *conv);
/* Weights [channel][in][3][3] of neighbours as columns of a panel [place][in][width]. */
SBIT__FN void sbit__last_winograd_pack(const sbit__last_conv *conv, const float *weights,
                                       int64_t count, int64_t lanes, int64_t width, float *to);
SBIT__FN void sbit__last_winograd_unit(const sbit__last_job *job, int64_t number, int32_t worker);

SBIT__FN void sbit__last_sparse_plan(const sbit_ctx *ctx, sbit__last_conv *conv);
SBIT__FN void sbit__last_sparse_pack(const sbit__last_conv *conv, const float *weights, float *packed);
SBIT__FN void sbit__last_sparse_unit(const sbit__last_job *job, int64_t number, int32_t worker);
/* Where the runs of `pixels` output pixels from the first on begin, tap by tap. */
SBIT__FN void sbit__last_table(const sbit__last_job *job, int64_t first, int64_t pixels, const float *zeros,
                               const float **row);

/* A job with its store; residual and activation as `epilogue` says, which may be NULL. */
SBIT__FN void sbit__last_job_init(const sbit_ctx *ctx, const sbit__last_conv *conv, const float *x,
                                  const float *packed, const float *bias,
                                  const sbit__epilogue *epilogue, float *y, sbit__last_job *job);
/* All panels of a group, but for those of other parts; row, shift: a tile's; row NULL: output pixels
 * are input pixels. */
SBIT__FN void sbit__last_panels(const sbit__last_job *job, int64_t group, int64_t part,
                                int64_t pixels, const float *const *row, int64_t shift,
                                int64_t first_pixel);
/* Output row `line` of the channels first..first+count-1. */
SBIT__FN void sbit__last_depthwise_row(const sbit__last_job *job, int64_t line, int64_t first,
                                       int64_t count);

/* >>strips: three convolutions in one pass, so that what is between them never lies in memory as a
 * whole. A 1x1 expands, a depthwise one follows, a 1x1 projects; either 1x1 may be absent. */
typedef struct sbit__last_strip {
    sbit__last_conv conv[3]; /* out_channels 0: absent */
    int64_t rows;            /* of the depthwise output at once */
    int64_t bands;           /* units of an image */
    int64_t between[2];      /* floats that a worker keeps of the expanded rows, of the next ones */
    size_t worker_bytes, packed_bytes, scratch_bytes;
} sbit__last_strip;

/* Shapes are given. For packed weights channels and kernels suffice. */
SBIT__FN void sbit__last_strip_plan(const sbit_ctx *ctx, sbit__last_strip *strip);
SBIT__FN void sbit__last_strip_pack(sbit_ctx *ctx, const sbit__last_strip *strip,
                                    const float *const weights[3], float *packed);
/* epilogues: of the last one alone with a residual */
SBIT__FN void sbit__last_strip_run(sbit_ctx *ctx, const sbit__last_strip *strip, const float *x,
                                   const float *packed, const float *const bias[3], /* NULL ok */
                                   const sbit__epilogue epilogue[3], float *y, void *scratch);

/* >>pools: windows that lie outside of the input are cut */
typedef struct sbit__last_pool {
    int64_t batch, channels;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_begin[3], pad_end[3];
    bool average, count_pads; /* average over padding as well */
    size_t worker_bytes, scratch_bytes;
} sbit__last_pool;

SBIT__FN void sbit__last_pool_plan(const sbit_ctx *ctx, sbit__last_pool *pool);
SBIT__FN void sbit__last_pool_run(sbit_ctx *ctx, const sbit__last_pool *pool, const float *x,
                                  float *y, void *scratch);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_LAST_PRIVATE_H */
