/* conv_private.h: what the files of the convolution driver share. >>conv
 *
 *     conv.c         chooses, packs weights, runs
 *     conv_matrix.c  as matrix products over panels of gathered columns (and pointwise)
 *     conv_patch.c   as matrix products that read a padded copy of a part of the input
 *     conv_rows.c    row by row, for groups with few output channels
 *
 * The first two of these compute, for each group,
 *     y[out_channel][pixel] = w[out_channel][k] * columns[k][pixel],  k = (channel, kz, ky, kx)
 * from the same packed weights. Which is faster depends on the image, so each run chooses anew.
 * Neither threads nor blocks change the order in which a sum's terms are added; nor does the
 * choice.
 */
#ifndef SBIT_CONV_PRIVATE_H
#define SBIT_CONV_PRIVATE_H

#include "rows_private.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SBIT__CONV_L1_BYTES = 16 * 1024,
    SBIT__CONV_L2_BYTES = 160 * 1024
};

/* One row of a kernel: (channel, kz, ky). */
typedef struct sbit__conv_row {
    int64_t offset; /* from x's element for kernel position 0 in channel 0 of the group */
    int32_t z, y;   /* kz, ky times dilation */
} sbit__conv_row;

typedef struct sbit__conv_job {
    const sbit_kernels *kernels;
    sbit__conv_algorithm algorithm;
    sbit__conv_shape s;
    const float *x, *packed, *bias;
    const sbit__epilogue *epilogue;
    float *y;
    unsigned char *scratch; /* shared_bytes, then worker_bytes for each worker */
    size_t shared_bytes, worker_bytes;
    int64_t in_group, out_group; /* channels of a group */
    int64_t in_pixels, out_pixels;
    int64_t taps;    /* kernel positions */
    int64_t rows, k; /* kernel rows of a group's input; times the kernel's width: terms of a sum */
    int64_t units;   /* pieces of work that threads share */

    /* Both matrix forms: weight panels of a group, blocks of columns, parts of the panels. */
    int64_t panels, blocks, panel_parts;
    bool weights_outside; /* the outer loop of a block is that over weight panels */

    struct {
        int64_t tiles;       /* of all pixels of the batch */
        int64_t block_rows;  /* kernel rows in a block of k */
        int64_t block_tiles; /* in a block of columns */
        bool gather;         /* else pointwise columns are read from x */
        size_t tile_bytes, panel_bytes;
    } matrix;

    struct {
        bool used;
        int64_t half, halves; /* columns in half a tile; halves in an output row */
        int64_t channels;     /* in a block of k */
        int64_t out_rows;     /* of a plane in a block; with more than one plane: all */
        int64_t planes;       /* (image, depth) in a block */
        int64_t in_rows;      /* that they depend on */
        int64_t phase_width, pitch, channel_stride, plane_stride; /* floats */
        size_t table_bytes, halves_bytes;
    } patch;

    struct {
        int64_t strip, strips;       /* output rows in a strip; strips in a plane */
        int64_t pad_rows, pad_width; /* of a strip of the input */
        size_t strip_bytes, narrow_bytes;
    } by_rows;
} sbit__conv_job;

SBIT__FN void sbit__conv_plan_matrix(sbit__conv_job *job, int64_t threads);
SBIT__FN void sbit__conv_plan_patch(sbit__conv_job *job, int64_t threads);
SBIT__FN void sbit__conv_plan_depthwise(sbit__conv_job *job);
SBIT__FN void sbit__conv_plan_rows(sbit__conv_job *job);
/* Fills what all workers read, before a run. */
SBIT__FN void sbit__conv_share_matrix(const sbit__conv_job *job);
SBIT__FN void sbit__conv_share_patch(const sbit__conv_job *job);
SBIT__FN void sbit__conv_share_depthwise(const sbit__conv_job *job);
SBIT__FN void sbit__conv_matrix_range(void *job, int64_t begin, int64_t end, int32_t worker);
SBIT__FN void sbit__conv_patch_range(void *job, int64_t begin, int64_t end, int32_t worker);
SBIT__FN void sbit__conv_depthwise_range(void *job, int64_t begin, int64_t end, int32_t worker);
SBIT__FN void sbit__conv_rows_range(void *job, int64_t begin, int64_t end, int32_t worker);

/* How often the weights are cut for the threads when there are few blocks. */
SBIT__FN int64_t sbit__conv_panel_parts(const sbit__conv_job *job, int64_t threads);

/* Lengths are known to be small: loops of moves, no calls. */
SBIT__INLINE void sbit__conv_copy(float *to, const float *from, int64_t n)
{
    for (; n >= 8; n -= 8, to += 8, from += 8) {
        memcpy(to, from, 8 * sizeof(float)); /* a size that becomes moves */
    }
    if (n >= 4) {
        memcpy(to, from, 4 * sizeof(float));
        n -= 4, to += 4, from += 4;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[i];
    }
}

SBIT__INLINE void sbit__conv_zero(float *to, int64_t n)
{
    if (n <= 2) { /* most often: padding 1; compilers make the loop below a call */
        if (n > 0) {
            to[0] = to[n - 1] = 0.0f;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i] = 0.0f;
    }
}

#ifdef __cplusplus
}
#endif

#endif /* SBIT_CONV_PRIVATE_H */
