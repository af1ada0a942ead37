/* q8_private.h: integer kernels: uint8 activations, int8 weights, int32 sums. >>q8
 *
 * Called by: ops/qlinear*.c. Calls: core (threads).
 *
 * Activations lie channels last, [image][position][channel], and are uint8: what is int8 outside
 * is flipped (q ^ 0x80, zero point + 128) at the border. Sums are int32 and wrap. All kernels give
 * the same bits on every instruction set; q8_reference.c defines them. They are written once, in
 * vec_q8.h, over the vector operations of vec_*.h.
 */
#ifndef SBIT_Q8_PRIVATE_H
#define SBIT_Q8_PRIVATE_H

#include "kernels_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of the sum v of a column, with f = (float)v * scale, + shift if there are shifts:
 *   U8   clamp(round_half_even(f) + zero, lo, hi), 0 <= lo <= hi <= 255
 *   F32  f
 *   I32  v */
typedef enum sbit__q8_kind {
    SBIT__Q8_U8,
    SBIT__Q8_F32,
    SBIT__Q8_I32
} sbit__q8_kind;

typedef struct sbit__q8_store {
    sbit__q8_kind kind;
    bool fits;            /* |f| stays below 2^31 for all v: U8 is then faster */
    int32_t zero, lo, hi; /* U8 */
} sbit__q8_store;

/* y = Q(DQ(a) op DQ(b)) in float32, with true division. `linear`: round(b * by_b + (a * by_a + base))
 * + zero, clamped, is the same for all 65,536 pairs of bytes (sbit__q8_try_linear has seen it), and
 * a set may compute that. */
typedef struct sbit__q8_pair {
    sbit__binary op; /* ADD, SUB, MUL */
    float scale_a, scale_b, scale_y;
    int32_t zero_a, zero_b;
    sbit__q8_store store; /* U8 */
    bool linear;
    float by_a, by_b, base;
} sbit__q8_pair;

/* One panel of columns. A row's sum is over `taps` runs of `depth` bytes, run t beginning at
 * offsets[t] from the row's pointer; whole groups of 4 are read. Per-column arrays have `width`
 * entries, of which `columns` are stored. */
typedef struct sbit__q8_tile {
    int64_t taps, depth;
    const int64_t *offsets;
    int64_t width, columns;
    const int8_t *weights; /* [taps][depth / 4 rounded up][width][4], zeros beyond depth */
    int64_t between;       /* bytes of weights between taps that are left out */
    const int32_t *bias;
    const int32_t *factor;      /* NULL: none; v += row_sums[row] * factor[column] */
    const float *scale, *shift; /* shift NULL: none; both unused for I32 */
    sbit__q8_store store;
    int64_t out_stride; /* elements between rows of the output */
    const int64_t *to;  /* or where each row's output begins, in elements; NULL */
    int64_t line;       /* rows in which a whole tile has every 4 as far behind those before; 0: not known */
    const int8_t *next; /* weights that come behind these and are fetched meanwhile; or these */
} sbit__q8_tile;

/* One tap of each channel at a time. Channels go in blocks of `block`; weights and per-channel
 * arrays stand in the order that transposing bytes leaves (sbit__q8_lane). Blocks are read whole.
 */
typedef struct sbit__q8_depthwise {
    int64_t channels, block;
    int64_t quads;          /* of taps */
    int64_t shares;         /* outputs that see each: 1, or 2, of which the second lies `below` */
    const int64_t *offsets; /* 4 * quads */
    const int8_t *weights;  /* [channels / block][quads][shares][block][4] */
    const int32_t *bias;
    const float *scale, *shift;
    sbit__q8_store store;
    int64_t in_stride, out_stride; /* elements between pixels */
    int64_t below;                 /* elements; 0: the second output is not wanted */
} sbit__q8_depthwise;

#define SBIT__Q8_LIST(X)                                                                           \
    X(void, q8_tile,                                                                               \
      (const sbit__q8_tile *tile, int64_t rows, const uint8_t *const *row,                         \
       const int32_t *row_sums, void *out))                                                        \
    /* `pixels` outputs side by side */                                                            \
    X(void, q8_depthwise,                                                                          \
      (const sbit__q8_depthwise *d, int64_t pixels, const uint8_t *x, void *y))                    \
    X(void, q8_binary,                                                                             \
      (const sbit__q8_pair *pair, int64_t n, const uint8_t *a, const uint8_t *b, uint8_t *y))      \
    /* y[p][i] = the largest of it and x[p * step + offsets[t] + i]: `count` runs of n */           \
    X(void, q8_max,                                                                                \
      (int64_t n, int64_t count, int64_t step, int64_t taps, const int64_t *offsets,               \
       const uint8_t *x, uint8_t *y))                                                              \
    /* y[3 i + k] = x[k * plane + i] ^ flip */                                                     \
    X(void, q8_three, (int64_t n, int64_t plane, const uint8_t *x, uint8_t flip, uint8_t *y))      \
    /* y[2 i] = a[i], y[2 i + 1] = b[i] */                                                         \
    X(void, q8_interleave, (int64_t n, const uint8_t *a, const uint8_t *b, uint8_t *y))            \
    X(void, q8_lookup,                                                                             \
      (int64_t n, const uint8_t *table, const uint8_t *x, uint8_t *y)) /* of 256 */                \
    /* sums += (x - zero) * scale, row after row */                                                \
    X(void, q8_accumulate,                                                                         \
      (int64_t n, int64_t rows, int64_t stride, const uint8_t *x, int32_t zero, float scale,       \
       float *sums))                                                                               \
    /* as last_peak, of bytes */                                                                   \
    X(int64_t, q8_peak, (int64_t loops, int32_t * sum))

/* The kernels of an instruction set. */
typedef struct sbit__q8_kernels {
    int32_t lanes; /* int32 in a vector; a depthwise block is 4 times that */
    int32_t panel; /* widest panel: a power of two times lanes; narrower ones are halves */
    int32_t rows;  /* of its tile; or 4 */
#define SBIT__Q8_MEMBER(type, name, params) type(*name) params;
    SBIT__Q8_LIST(SBIT__Q8_MEMBER)
#undef SBIT__Q8_MEMBER
} sbit__q8_kernels;

SBIT__FN const sbit__q8_kernels *sbit__q8_kernels_of(sbit_isa isa); /* NULL: not compiled in */
SBIT__FN const sbit__q8_kernels *sbit__q8_of(const sbit_ctx *ctx);

#define SBIT__Q8_DECLARE(type, name, params) SBIT__FN type sbit__##name##__ref params;
SBIT__Q8_LIST(SBIT__Q8_DECLARE)
#undef SBIT__Q8_DECLARE

/* >>convolution driver, channels last, 1 to 3 spatial dimensions; a matrix product is one of
 * 1 x 1. Fixed-width plain data: it may be copied and written out. */
typedef struct sbit__q8_conv {
    sbit__conv_shape shape;
    sbit__q8_store store;
    int32_t zero_x;  /* of x; what padding is filled with */
    bool has_factor; /* weights have zero points */
    bool has_shift;  /* there is a float bias */
    bool adds;       /* another tensor to what is stored (U8), by `added`: ADD */
    bool zero_pads;  /* zero_x is known to be 0: taps on padding add nothing */
    sbit__q8_pair added;
    bool depthwise, copies, merges;
    bool skips;                       /* taps on padding; copies no band */
    int64_t mates;                    /* images whose like pixels a tile takes together */
    int64_t images;                   /* of a unit, if it skips */
    int64_t classes;                  /* of pixels that see the same taps, in a unit, at most */
    int64_t taps, depth;              /* of a run; taps are quadruples when depthwise */
    int64_t joined;                   /* pixels that a depthwise convolution takes as one */
    int64_t shares;                   /* rows of outputs that it computes at a time */
    int64_t columns;                  /* of a group, with what panels are filled up with */
    int64_t rows, bands;              /* output rows of a unit, units along the rows */
    int64_t parts;                    /* units that share the panels of a group */
    int64_t band_bytes, worker_bytes; /* scratch */
    int64_t group_bytes;              /* packed weights of a group */
    size_t packed_bytes, scratch_bytes;
} sbit__q8_conv;

/* Weights as the model has them; strides in elements. */
typedef struct sbit__q8_weights {
    const void *data; /* int8 or uint8 */
    bool is_unsigned;
    int64_t out_stride, in_stride, tap_stride; /* in: within a group */
    const int32_t *bias;                       /* NULL: none; one for each output channel */
    const float *scale, *shift;                /* multipliers; NULL for I32, or none */
    const int32_t *zero;                       /* zero points of the weights, NULL: 0 */
    bool once;                                 /* packed for all runs: trying pays */
} sbit__q8_weights;

/* Fills in everything behind `added`; no failure. Packed weights depend on channels, kernel and
 * instruction set, never on the image. */
SBIT__FN void sbit__q8_conv_plan(const sbit_ctx *ctx, sbit__q8_conv *conv);
SBIT__FN void sbit__q8_conv_pack(const sbit_ctx *ctx, const sbit__q8_conv *conv,
                                 const sbit__q8_weights *weights, void *packed);
/* x [batch][positions][in_channels], y alike, of the store's type; other: what is added, as y */
SBIT__FN void sbit__q8_conv_run(sbit_ctx *ctx, const sbit__q8_conv *conv, const uint8_t *x,
                                const void *packed, const uint8_t *other, void *y, void *scratch);
/* On the calling thread alone, for workers; scratch: conv->worker_bytes. */
SBIT__FN void sbit__q8_conv_run_alone(const sbit_ctx *ctx, const sbit__q8_conv *conv,
                                      const uint8_t *x, const void *packed, const uint8_t *other,
                                      void *y, void *scratch);

/* >>strips: a 1x1 convolution that expands channels, a depthwise one and, if it has channels, a 1x1
 * one that projects them, without what is between them in memory. The depthwise one pads with its
 * zero point; the 1x1 have channels in fours to read. Sums are those one by one. */
typedef struct sbit__q8_strip {
    sbit__q8_conv conv[3]; /* planned; shapes before sbit__q8_conv_plan */
    int64_t step;          /* output rows that are projected at a time */
    int64_t wide_bytes, narrow_bytes, worker_bytes; /* scratch */
    size_t scratch_bytes;
} sbit__q8_strip;

/* Behind sbit__q8_conv_plan of each; no failure. */
SBIT__FN void sbit__q8_strip_plan(const sbit_ctx *ctx, sbit__q8_strip *strip);
SBIT__FN void sbit__q8_strip_run(sbit_ctx *ctx, const sbit__q8_strip *strip, const uint8_t *x,
                                 const void *const packed[3], const uint8_t *other, uint8_t *y,
                                 void *scratch);

/* Finds numbers for pair->linear, of ADD and SUB; they depend on the set. Takes about 50 us. */
SBIT__FN void sbit__q8_try_linear(const sbit__q8_kernels *kernels, sbit__q8_pair *pair);

/* Which channel of a block stands at place `at` in the arrays of a depthwise convolution. */
SBIT__INLINE int64_t sbit__q8_lane(int64_t block, int64_t at)
{
    const int64_t lanes = block / 4, vector = at / lanes, lane = at % lanes;
    return lane / 4 * 16 + vector * 4 + lane % 4;
}

#ifdef __cplusplus
}
#endif

#endif /* SBIT_Q8_PRIVATE_H */
