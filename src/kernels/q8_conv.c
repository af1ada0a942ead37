/* q8_conv.c: integer convolutions and matrix products, channels last. >>q8_conv
 *
 * Called by: ops/qlinear*.c. Calls: the integer kernels, threads.
 * A unit of work is a band of output rows of one image. Where windows reach over the edge, the
 * band's input rows are first copied between borders filled with the zero point, so that all
 * pixels are alike: pixel p begins at row[p], tap t lies offsets[t] from there. With one group and
 * no dilation along the row the taps of a row are one run. Panels of columns outside, pixels
 * inside, so that a panel stays in the cache. Where padding is 0, nothing is copied: pixels that see
 * the same taps go together, of some images if those are small, and taps on padding are left out.
 *   v = sum x * w - zw * sum x + bias',   bias' = bias - zx * sum w + taps * depth * zx * zw
 * which is sum (x - zx) * (w - zw) + bias; uint8 weights are shifted to int8.
 */
#include "q8_private.h"
#include "rows_private.h"

#include <math.h> /* fabs */

enum {
    SBIT__Q8_BAND_BYTES = 64 * 1024, /* of input */
    SBIT__Q8_BAND_PIXELS = 320,
    SBIT__Q8_SKIP_PIXELS = 1024, /* of a band of several images */
    SBIT__Q8_FEW_PIXELS = 256,   /* of a unit of small images, unless they are as many */
    SBIT__Q8_STRIP_BYTES = 256 * 1024, /* of a band between two convolutions */
    SBIT__Q8_WIDEST = 64,                /* panel that pack_rows knows */
    SBIT__Q8_ONES = 80,                  /* terms summed at a time: a multiple of 4 */
    SBIT__Q8_SUMMED = 32,                /* of as many pixels */
    SBIT__Q8_HEAD = 128,                 /* bytes in front of the packed weights of a group */
    SBIT__Q8_ADDED = 64,                 /* of these */
    SBIT__Q8_LISTED = 128,       /* multiplications that take as long as putting a pixel into a list */
    SBIT__Q8_SLACK = 64,                 /* bytes that may be read behind a band */
    SBIT__Q8_WORTH_A_THREAD = 256 * 1024 /* multiplications */
};

/* Pixels of a unit that see the same taps: `count` from `first` on in its lists. */
typedef struct sbit__q8_class {
    int64_t first, count;
    int64_t top, taps, left, across; /* rows and columns of the kernel: the first, how many */
} sbit__q8_class;

/* What a worker's lists hold: of a unit like this. */
typedef struct sbit__q8_list {
    const uint8_t *base;
    int64_t rows, images, band; /* band: -1 if nothing is cut above or below */
    int64_t classes, count;
} sbit__q8_list;

/* >>plan */

/* The next panel's width where `left` columns remain. */
static int64_t sbit__q8_panel(const sbit__q8_kernels *kernels, int64_t left)
{
    int64_t width = kernels->panel;
    while (width > kernels->lanes && width - left >= kernels->lanes) {
        width /= 2;
    }
    return width;
}

static int64_t sbit__q8_columns(const sbit__q8_kernels *kernels, int64_t count)
{
    int64_t columns = count / kernels->panel * kernels->panel;
    while (columns < count) {
        columns += sbit__q8_panel(kernels, count - columns);
    }
    return columns;
}

/* 1 x 1 without stride: all pixels are rows of one matrix. */
static void sbit__q8_fold(sbit__conv_shape *shape)
{
    int64_t pixels = shape->batch;
    for (int i = 0; i < 3; i++) {
        if (shape->kernel[i] != 1 || shape->stride[i] != 1 || shape->in[i] != shape->out[i]) {
            return;
        }
        pixels *= shape->in[i];
        shape->dilation[i] = 1;
    }
    shape->batch = 1;
    shape->in[0] = shape->out[0] = shape->in[2] = shape->out[2] = 1;
    shape->in[1] = shape->out[1] = pixels;
}

/* Input positions that `count` outputs see along an axis. */
static int64_t sbit__q8_reach(const sbit__conv_shape *shape, int axis, int64_t count)
{
    return (count - 1) * shape->stride[axis] + (shape->kernel[axis] - 1) * shape->dilation[axis] +
           1;
}

/* Pixels of a depthwise convolution without stride lie one behind the other, as do the channels
 * that their taps see: that many at a time are one pixel of more channels, which fill blocks. */
static int64_t sbit__q8_joined(const sbit__conv_shape *shape, int64_t block)
{
    int64_t a = shape->groups, b = block;
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return shape->stride[2] == 1 ? block / a : 1;
}

static bool sbit__q8_has_border(const sbit__conv_shape *shape)
{
    for (int i = 0; i < 3; i++) {
        if (shape->pad_begin[i] != 0 ||
            sbit__q8_reach(shape, i, shape->out[i]) > shape->in[i] + shape->pad_begin[i]) {
            return true;
        }
    }
    return false;
}

/* Rows that are computed where `rows` are wanted. */
static int64_t sbit__q8_whole_rows(const sbit__q8_conv *conv, int64_t rows)
{
    return sbit__div_up(rows, conv->shares) * conv->shares;
}

static int64_t sbit__q8_band_bytes(const sbit__q8_conv *conv, int64_t rows)
{
    const sbit__conv_shape *shape = &conv->shape;
    return shape->kernel[0] * sbit__q8_reach(shape, 1, sbit__q8_whole_rows(conv, rows)) *
           sbit__q8_reach(shape, 2, shape->out[2]) * shape->in_channels;
}

/* Outputs from `at` on along an axis, before `end`, that see the same taps: returns behind the last,
 * and the `count` taps from `first` on. */
static int64_t sbit__q8_alike(const sbit__conv_shape *shape, int axis, int64_t at, int64_t end,
                              int64_t *first, int64_t *count)
{
    const int64_t dilation = shape->dilation[axis], kernel = shape->kernel[axis];
    for (int64_t p = at; p < end; p++) {
        const int64_t base = p * shape->stride[axis] - shape->pad_begin[axis];
        const int64_t inside = sbit__div_up(shape->in[axis] - base, dilation);
        const int64_t from = sbit__smaller(base < 0 ? sbit__div_up(-base, dilation) : 0, kernel);
        const int64_t taps = sbit__larger(sbit__smaller(inside, kernel) - from, 0);
        if (p > at && (from != *first || taps != *count)) {
            return p;
        }
        *first = from;
        *count = taps;
    }
    return end;
}

/* Classes of pixels along an axis. */
static int64_t sbit__q8_axis_classes(const sbit__conv_shape *shape, int axis)
{
    int64_t classes = 0, first = 0, count = 0;
    for (int64_t at = 0; at < shape->out[axis]; classes++) {
        at = sbit__q8_alike(shape, axis, at, shape->out[axis], &first, &count);
    }
    return classes;
}

/* Half pixels that tiles of the widest panel, or of a narrow one, take for `count`. */
static int64_t sbit__q8_tiled(int64_t rows, int64_t count, bool narrow)
{
    const int64_t fours = sbit__div_up(count, 4) * 4;
    if (narrow || count > 3) {
        return 2 * (narrow || count < rows ? fours
                                           : sbit__smaller(fours, sbit__div_up(count, rows) * rows));
    }
    return count == 3 ? 6 : 5 * count; /* few sums wait for each other */
}

/* What units compute by classes and the lists are less than all taps. */
static bool sbit__q8_skipping_pays(const sbit__q8_kernels *kernels, const sbit__q8_conv *conv)
{
    const bool narrow = conv->mates > 1;
    const sbit__conv_shape *s = &conv->shape;
    int64_t work = 0, all = 0, top = 0, left = 0, taps = 0, across = 0;
    for (int64_t h = 0, h1 = 0, end = 0; h < s->out[1]; h = h1) {
        if (h == end) { /* a band begins */
            end = sbit__smaller(h + conv->rows, s->out[1]);
            all += s->kernel[1] * s->kernel[2] *
                   sbit__q8_tiled(kernels->rows, conv->images * (end - h) * s->out[2], narrow);
        }
        h1 = sbit__q8_alike(s, 1, h, end, &top, &taps);
        for (int64_t w = 0, w1 = 0; w < s->out[2]; w = w1) {
            w1 = sbit__q8_alike(s, 2, w, s->out[2], &left, &across);
            const int64_t one = (h1 - h) * (w1 - w);
            work += taps * across *
                    (narrow ? conv->images * sbit__q8_tiled(4, one, true)
                            : sbit__q8_tiled(kernels->rows, conv->images * one, false));
        }
    }
    const int64_t pixels = s->out[1] * s->out[2] * conv->images;
    const int64_t macs = s->in_channels * s->out_channels;
    all = all * macs / 2;
    return work * macs / 2 + pixels * SBIT__Q8_LISTED < all - all / 100;
}

/* Padding that is 0 is never read: pixels that see the same taps go together. Tiles of few columns
 * want pixels evenly apart: those of several images are. */
static void sbit__q8_plan_skipping(const sbit_ctx *ctx, sbit__q8_conv *conv)
{
    const sbit__q8_kernels *kernels = sbit__q8_of(ctx);
    const sbit__conv_shape *s = &conv->shape;
    const int64_t pixels = s->out[1] * s->out[2], threads = sbit_ctx_threads(ctx);
    const int64_t units = threads > 1 ? 4 * threads : 1; /* at least, where there are as many images */
    const int64_t rest = s->out_channels % kernels->panel;
    int64_t narrow = kernels->panel;
    for (int64_t left = rest; left > 0; left -= narrow) {
        narrow = sbit__q8_panel(kernels, left);
    }
    conv->images = 1;
    conv->classes = 0;
    conv->mates = narrow == kernels->panel ? 1 : narrow * 4 == kernels->panel ? 4 : 2;
    conv->skips = conv->zero_pads && conv->copies && conv->merges && !conv->has_factor &&
                  s->in_channels % 4 == 0 && s->kernel[0] == 1 && s->in[0] == 1 &&
                  s->out[0] == 1 && pixels > 0 && s->batch >= conv->mates;
    if (!conv->skips) {
        return;
    }
    conv->images = conv->mates;
    while (conv->images * pixels < SBIT__Q8_FEW_PIXELS &&
           2 * conv->images <= sbit__larger(s->batch / units, conv->mates)) {
        conv->images *= 2;
    }
    conv->classes = sbit__q8_axis_classes(s, 1) * sbit__q8_axis_classes(s, 2);
    conv->copies = false;
}

static void sbit__q8_plan_units(const sbit_ctx *ctx, sbit__q8_conv *conv)
{
    const sbit__conv_shape *shape = &conv->shape;
    const int64_t threads = sbit_ctx_threads(ctx), height = shape->out[1];
    const int64_t images = sbit__div_up(shape->batch, conv->images) * shape->out[0];
    const int64_t most = conv->images > 1 ? (int64_t)SBIT__Q8_SKIP_PIXELS : (int64_t)SBIT__Q8_BAND_PIXELS;
    const int64_t panels =
        conv->depthwise ? 1 : sbit__div_up(conv->columns, sbit__q8_of(ctx)->panel);
    const int64_t row_macs =
        shape->out[2] * shape->out_channels * conv->taps * conv->depth * (conv->depthwise ? 4 : 1);
    int64_t rows = 1;
    if (images == 0 || height == 0 || shape->out[2] == 0) { /* an empty tensor: no units */
        conv->rows = conv->parts = 1;
        conv->bands = 0;
        return;
    }
    while (rows < height &&
           (conv->depthwise || conv->images * (rows + 1) * shape->out[2] <= most) &&
           conv->images * sbit__q8_band_bytes(conv, rows + 1) <= SBIT__Q8_BAND_BYTES) {
        rows++;
    }
    conv->parts = 1;
    if (threads > 1) {
        const int64_t work =
            sbit__larger(shape->batch * shape->out[0] * height * row_macs / SBIT__Q8_WORTH_A_THREAD, 1);
        const int64_t units = sbit__smaller(work, 2 * threads);
        const int64_t bands = sbit__div_up(units, images);
        rows = sbit__smaller(rows, sbit__larger(height / bands, sbit__div_up(20, shape->out[2])));
        rows = sbit__smaller(rows, height);
        conv->parts =
            sbit__smaller(sbit__div_up(units, images * sbit__div_up(height, rows)), panels);
    }
    const int64_t tiles = 4 * (int64_t)sbit__q8_of(ctx)->rows;
    conv->bands = sbit__div_up(height, rows);
    conv->rows = shape->out[2] == 1 && conv->bands >= 8 && rows >= 2 * tiles
                     ? rows / tiles * tiles /* whole tiles, of either kind */
                     : sbit__div_up(height, conv->bands);
    conv->bands = sbit__div_up(height, conv->rows);
}

SBIT__FN void sbit__q8_conv_plan(const sbit_ctx *ctx, sbit__q8_conv *conv)
{
    const sbit__q8_kernels *kernels = sbit__q8_of(ctx);
    sbit__conv_shape *shape = &conv->shape;
    const int64_t in = shape->in_channels / shape->groups,
                  out = shape->out_channels / shape->groups;
    const int64_t kernel = shape->kernel[0] * shape->kernel[1] * shape->kernel[2];
    sbit__q8_fold(shape);
    conv->depthwise = in == 1 && out == 1 && shape->groups > 1 && !conv->has_factor;
    conv->merges = shape->groups == 1 && shape->dilation[2] == 1;
    conv->depth = conv->depthwise ? 1 : conv->merges ? in * shape->kernel[2] : in;
    conv->taps = conv->merges ? kernel / shape->kernel[2] : kernel;
    conv->shares = 1;
    conv->copies = sbit__q8_has_border(shape) || (!conv->depthwise && conv->depth % 4 != 0);
    sbit__q8_plan_skipping(ctx, conv);
    if (conv->depthwise) {
        const int64_t block = 4 * kernels->lanes;
        const bool pairs = /* a column of 3 taps, and the one of the row below */
            shape->kernel[0] == 1 && shape->kernel[1] == 3 && shape->stride[1] == 1 &&
            shape->dilation[1] == 1;
        conv->shares = pairs ? 2 : 1;
        conv->taps = pairs ? shape->kernel[2] : sbit__div_up(kernel, 4);
        conv->joined = sbit__q8_joined(shape, block);
        conv->columns = sbit__div_up(conv->joined * shape->groups, block) * block;
        conv->copies = conv->copies || pairs || shape->groups % block != 0;
        conv->group_bytes = SBIT__Q8_HEAD + conv->columns * (16 + 4 * conv->taps * conv->shares);
        conv->packed_bytes = (size_t)conv->group_bytes;
    } else {
        conv->columns = sbit__q8_columns(kernels, out);
        conv->group_bytes = SBIT__Q8_HEAD +
                            conv->columns * (16 + conv->taps * sbit__div_up(conv->depth, 4) * 4);
        conv->packed_bytes = (size_t)(conv->group_bytes * shape->groups);
    }
    sbit__q8_plan_units(ctx, conv);
    if (conv->skips && !sbit__q8_skipping_pays(kernels, conv)) {
        conv->skips = false;
        conv->copies = true;
        conv->images = 1;
        conv->classes = 0;
        sbit__q8_plan_units(ctx, conv);
    }
    const int64_t pixels =
        conv->images * (conv->rows * shape->out[2] + (conv->mates > 1 ? 3 * conv->classes : 0));
    conv->band_bytes =
        conv->copies ? (sbit__q8_band_bytes(conv, conv->rows) + SBIT__Q8_SLACK + 63) / 64 * 64 : 0;
    conv->worker_bytes = conv->band_bytes + 16 * (4 * conv->taps + pixels); /* see sbit__q8_unit */
    if (conv->skips) {
        conv->worker_bytes += (int64_t)sizeof(sbit__q8_list) +
                              conv->classes * (int64_t)sizeof(sbit__q8_class);
    }
    conv->worker_bytes = sbit__div_up(conv->worker_bytes, 64) * 64;
    conv->scratch_bytes = (size_t)conv->worker_bytes * (size_t)sbit_ctx_threads(ctx);
}

/* >>pack: per group whether the store fits, how another tensor is added, bias, factor, scale, shift of
 * all columns, weights */

typedef struct sbit__q8_group {
    int32_t *fits, *bias, *factor;
    sbit__q8_pair *added;
    float *scale, *shift;
    int8_t *weights;
} sbit__q8_group;

static sbit__q8_group sbit__q8_group_at(const sbit__q8_conv *conv, void *packed, int64_t group)
{
    sbit__q8_group at;
    char *base = (char *)packed + group * conv->group_bytes;
    at.fits = (int32_t *)(void *)base;
    at.added = (sbit__q8_pair *)(void *)(base + SBIT__Q8_ADDED);
    at.bias = (int32_t *)(void *)(base + SBIT__Q8_HEAD);
    at.factor = at.bias + conv->columns;
    at.scale = (float *)(void *)(at.factor + conv->columns);
    at.shift = at.scale + conv->columns;
    at.weights = (int8_t *)(void *)(at.shift + conv->columns);
    return at;
}

static int32_t sbit__q8_weight(const sbit__q8_weights *weights, int64_t at)
{
    return weights->is_unsigned ? (int32_t)((const uint8_t *)weights->data)[at] - 128
                                : (int32_t)((const int8_t *)weights->data)[at];
}

/* Column `column` of a group is output channel `channel`. */
static void sbit__q8_pack_column(const sbit__q8_conv *conv, const sbit__q8_weights *weights,
                                 const sbit__q8_group *at, int64_t column, int64_t channel,
                                 uint32_t sum)
{
    const int64_t terms = conv->shape.in_channels / conv->shape.groups * conv->shape.kernel[0] *
                          conv->shape.kernel[1] * conv->shape.kernel[2];
    const int32_t zero =
        (weights->zero != NULL ? weights->zero[channel] : 0) - (weights->is_unsigned ? 128 : 0);
    const uint32_t zx = (uint32_t)conv->zero_x,
                   bias = weights->bias != NULL ? (uint32_t)weights->bias[channel] : 0;
    at->bias[column] = (int32_t)(bias - zx * sum + (uint32_t)terms * zx * (uint32_t)zero);
    at->factor[column] = -zero;
    at->scale[column] = weights->scale != NULL ? weights->scale[channel] : 0.0f;
    at->shift[column] = weights->shift != NULL ? weights->shift[channel] : 0.0f;
    const double most = (double)terms * (255 * 255) + fabs((double)(int32_t)bias);
    const double sums = most < 2147483648.0 ? most : 2147483648.0; /* they wrap */
    if (!(sums * fabs((double)at->scale[column]) + fabs((double)at->shift[column]) < 2e9)) {
        *at->fits = 0;
    }
}

/* Sums of each column of a packed panel: its products with ones. */
static void sbit__q8_column_sums(const sbit__q8_kernels *kernels, const sbit__q8_conv *conv,
                                 const int8_t *panel, int64_t width, uint32_t *sums)
{
    uint8_t ones[SBIT__Q8_ONES];
    int32_t part[SBIT__Q8_WIDEST], none[SBIT__Q8_WIDEST];
    const uint8_t *row = ones;
    const int64_t offset = 0;
    sbit__q8_tile tile;
    memset(&tile, 0, sizeof tile);
    memset(ones, 1, sizeof ones);
    memset(none, 0, sizeof none);
    memset(sums, 0, (size_t)width * sizeof *sums);
    tile.taps = 1;
    tile.offsets = &offset;
    tile.width = tile.columns = tile.out_stride = width;
    tile.bias = none;
    tile.store.kind = SBIT__Q8_I32;
    for (int64_t k = 0; k < conv->depth; k += SBIT__Q8_ONES) {
        tile.depth = sbit__smaller(conv->depth - k, SBIT__Q8_ONES);
        tile.weights = tile.next = panel + k * width;
        kernels->q8_tile(&tile, 1, &row, NULL, part);
        for (int64_t j = 0; j < width; j++) {
            sums[j] += (uint32_t)part[j];
        }
    }
}

/* What is multiplied are two activations: the right one is packed in every run. Columns lie side by
 * side in it, in rows of the depth; four rows are put together column by column. */
static void sbit__q8_pack_rows(const sbit__q8_kernels *kernels, const sbit__q8_conv *conv,
                               const sbit__q8_weights *weights, const sbit__q8_group *at,
                               int64_t first, int64_t width)
{
    static const uint8_t nothing[SBIT__Q8_WIDEST] = {0};
    const int64_t count = sbit__smaller(width, conv->shape.out_channels - first);
    const uint8_t flip = weights->is_unsigned ? 0x80 : 0;
    int8_t *panel = at->weights + first * sbit__div_up(conv->depth, 4) * 4;
    uint8_t *to = (uint8_t *)panel, pair[2][2 * SBIT__Q8_WIDEST];
    uint32_t sums[SBIT__Q8_WIDEST] = {0};
    for (int64_t k = 0; k < conv->depth; k += 4) {
        const uint8_t *row[4];
        const int64_t rows = sbit__smaller(conv->depth - k, 4);
        for (int64_t r = 0; r < 4; r++) {
            row[r] = r < rows ? (const uint8_t *)weights->data + (k + r) * weights->in_stride + first
                              : nothing;
        }
        kernels->q8_interleave(count, row[0], row[2], pair[0]);
        kernels->q8_interleave(count, row[1], row[3], pair[1]);
        kernels->q8_interleave(2 * count, pair[0], pair[1], to);
        const uint8_t masks[4] = {flip, (uint8_t)(rows > 1 ? flip : 0), (uint8_t)(rows > 2 ? flip : 0),
                                  (uint8_t)(rows > 3 ? flip : 0)};
        uint64_t mask = 0, part = 0;
        memcpy(&mask, masks, sizeof masks);
        memcpy((char *)&mask + sizeof masks, masks, sizeof masks);
        for (int64_t j = 0; j < 4 * width && flip != 0; j += 8) {
            memcpy(&part, to + j, sizeof part);
            part ^= mask;
            memcpy(to + j, &part, sizeof part);
        }
        to += 4 * width;
    }
    if (conv->zero_x != 0) {
        sbit__q8_column_sums(kernels, conv, panel, width, sums);
    }
    for (int64_t j = 0; j < count; j++) {
        sbit__q8_pack_column(conv, weights, at, first + j, first + j, sums[j]);
    }
}

/* One panel: `width` columns from `first`. */
static void sbit__q8_pack_panel(const sbit__q8_conv *conv, const sbit__q8_weights *weights,
                                const sbit__q8_group *at, int64_t group, int64_t first,
                                int64_t width)
{
    const int64_t in = conv->shape.in_channels / conv->shape.groups;
    const int64_t out = conv->shape.out_channels / conv->shape.groups;
    const int64_t quads = sbit__div_up(conv->depth, 4);
    const int64_t merged = conv->merges ? conv->shape.kernel[2] : 1; /* taps of one row of the panel */
    int8_t *to = at->weights + first * conv->taps * quads * 4;
    for (int64_t j = 0; j < width && first + j < out; j++) {
        const int64_t channel = group * out + first + j;
        uint32_t sum = 0;
        for (int64_t i = 0; i < conv->taps * merged; i++) {
            const int64_t from = channel * weights->out_stride + i * weights->tap_stride;
            int8_t *row = to + (i / merged * quads * width + j) * 4;
            int64_t k = i % merged * in;
            for (int64_t c = 0; c < in; c++, k++) {
                const int32_t w = sbit__q8_weight(weights, from + c * weights->in_stride);
                row[(k >> 2) * width * 4 + (k & 3)] = (int8_t)w;
                sum += (uint32_t)w;
            }
        }
        sbit__q8_pack_column(conv, weights, at, first + j, channel, sum);
    }
}

static void sbit__q8_pack_depthwise(const sbit_ctx *ctx, const sbit__q8_conv *conv,
                                    const sbit__q8_weights *weights, const sbit__q8_group *at)
{
    const int64_t block = 4 * sbit__q8_of(ctx)->lanes;
    const int64_t taps = conv->shape.kernel[0] * conv->shape.kernel[1] * conv->shape.kernel[2];
    const int64_t across = conv->shape.kernel[2];
    for (int64_t i = 0; i < conv->columns; i++) {
        const int64_t first = i / block * block, place = i % block;
        const int64_t at_run = first + sbit__q8_lane(block, place);
        const int64_t channel = at_run % conv->shape.groups;
        const bool used = at_run < conv->joined * conv->shape.groups;
        uint32_t sum = 0;
        for (int64_t t = 0; used && t < taps; t++) {
            const int32_t w =
                sbit__q8_weight(weights, channel * weights->out_stride + t * weights->tap_stride);
            for (int64_t s = 0; s < conv->shares; s++) {
                const int64_t quad = conv->shares == 1 ? t / 4 : t % across;
                const int64_t in_quad = conv->shares == 1 ? t % 4 : t / across + s;
                const int64_t at_block = (first * conv->taps + quad * block) * conv->shares;
                at->weights[(at_block + s * block + place) * 4 + in_quad] = (int8_t)w;
            }
            sum += (uint32_t)w;
        }
        if (used) {
            sbit__q8_pack_column(conv, weights, at, i, channel, sum);
        }
    }
}

typedef char sbit__q8_added_fits[sizeof(sbit__q8_pair) <= SBIT__Q8_HEAD - SBIT__Q8_ADDED ? 1 : -1];

/* Both formulas on all pairs. */
static bool sbit__q8_is_linear(const sbit__q8_kernels *kernels, const sbit__q8_pair *pair)
{
    sbit__q8_pair exact = *pair;
    uint8_t a[256], b[256], got[256], want[256];
    exact.linear = false;
    for (int32_t i = 0; i < 256; i++) {
        b[i] = (uint8_t)i;
    }
    for (int32_t i = 0; i < 256; i++) {
        memset(a, i, sizeof a);
        kernels->q8_binary(pair, 256, a, b, got);
        kernels->q8_binary(&exact, 256, a, b, want);
        if (memcmp(got, want, sizeof got) != 0) {
            return false;
        }
    }
    return true;
}

/* Results near a tie decide: each try has roundings of its own, and 19 of 20 pairs of scales are
 * met by one of them. */
SBIT__FN void sbit__q8_try_linear(const sbit__q8_kernels *kernels, sbit__q8_pair *pair)
{
    static const double steps[3] = {0.0, 9e-8, -9e-8}; /* about one place of a float */
    const double by_a = (double)pair->scale_a / (double)pair->scale_y;
    const double by_b = (pair->op == SBIT__BINARY_SUB ? -1.0 : 1.0) * (double)pair->scale_b /
                        (double)pair->scale_y;
    pair->linear = false;
    if (pair->op == SBIT__BINARY_MUL || !(fabs(by_a) < 1e4 && fabs(by_b) < 1e4)) {
        return; /* or the sum could leave int32 */
    }
    for (int i = 0; i < 9 && !pair->linear; i++) {
        pair->by_a = (float)(by_a * (1.0 + steps[i % 3]));
        pair->by_b = (float)(by_b * (1.0 + steps[i / 3]));
        pair->base = (float)-(pair->zero_a * (double)pair->by_a + pair->zero_b * (double)pair->by_b);
        pair->linear = true;
        pair->linear = sbit__q8_is_linear(kernels, pair);
    }
}

SBIT__FN void sbit__q8_conv_pack(const sbit_ctx *ctx, const sbit__q8_conv *conv,
                                 const sbit__q8_weights *weights, void *packed)
{
    const sbit__q8_kernels *kernels = sbit__q8_of(ctx);
    memset(packed, 0, conv->packed_bytes);
    if (conv->adds) {
        sbit__q8_pair *added = sbit__q8_group_at(conv, packed, 0).added;
        *added = conv->added;
        if (weights->once && kernels->q8_binary != sbit__q8_binary__ref) { /* it has one form */
            sbit__q8_try_linear(kernels, added);
        }
    }
    if (conv->depthwise) {
        const sbit__q8_group at = sbit__q8_group_at(conv, packed, 0);
        *at.fits = 1;
        sbit__q8_pack_depthwise(ctx, conv, weights, &at);
        return;
    }
    const int64_t out = conv->shape.out_channels / conv->shape.groups;
    const bool by_rows = conv->shape.groups == 1 && conv->taps == 1 && weights->out_stride == 1 &&
                         conv->depth == conv->shape.in_channels &&
                         kernels->panel <= SBIT__Q8_WIDEST;
    for (int64_t g = 0; g < conv->shape.groups; g++) {
        const sbit__q8_group at = sbit__q8_group_at(conv, packed, g);
        *at.fits = 1;
        for (int64_t first = 0; first < out;) {
            const int64_t width = sbit__q8_panel(kernels, out - first);
            if (by_rows) {
                sbit__q8_pack_rows(kernels, conv, weights, &at, first, width);
            } else {
                sbit__q8_pack_panel(conv, weights, &at, g, first, width);
            }
            first += width;
        }
    }
}

/* >>run */

typedef struct sbit__q8_job {
    const sbit__q8_conv *conv;
    const sbit__q8_kernels *kernels;
    const uint8_t *x, *other;
    const sbit__q8_pair *added;
    const void *packed;
    char *y, *scratch;
} sbit__q8_job;

/* One unit: where its pixels begin and how far taps lie. */
typedef struct sbit__q8_unit {
    const sbit__q8_job *job;
    const uint8_t *base;     /* of the first pixel's first tap */
    int64_t line, slice;     /* bytes from row to row, from slice to slice */
    int64_t *offsets;        /* 4 * taps */
    const uint8_t **row;     /* for each pixel */
    int32_t *sums;           /* for each pixel */
    int64_t rows, out_pixel; /* output rows, number of the first output pixel */
    int64_t part, images;
    int64_t first_row;   /* output row, if it skips */
    sbit__q8_list *list; /* if it skips, with row and to; else NULL */
    sbit__q8_class *classes;
    int64_t *to;
} sbit__q8_unit;

/* Copies the input rows of a band between borders. */
static void sbit__q8_copy_band(const sbit__q8_unit *unit, const uint8_t *image, int64_t out_d,
                               int64_t out_h, uint8_t *to)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *shape = &conv->shape;
    const int64_t c = shape->in_channels, width = sbit__q8_reach(shape, 2, shape->out[2]);
    const int64_t left = sbit__smaller(shape->pad_begin[2], width);
    const int64_t inside = sbit__larger(sbit__smaller(shape->in[2], width - left), 0);
    const int64_t right = width - left - inside;
    const int64_t height = sbit__q8_reach(shape, 1, sbit__q8_whole_rows(conv, unit->rows));
    for (int64_t i = 0; i < shape->kernel[0] * height; i++) {
        const int64_t d =
            out_d * shape->stride[0] - shape->pad_begin[0] + i / height * shape->dilation[0];
        const int64_t h = out_h * shape->stride[1] - shape->pad_begin[1] + i % height;
        if (d < 0 || d >= shape->in[0] || h < 0 || h >= shape->in[1]) {
            memset(to, conv->zero_x, (size_t)(width * c));
        } else {
            memset(to, conv->zero_x, (size_t)(left * c));
            memcpy(to + left * c, image + (d * shape->in[1] + h) * shape->in[2] * c,
                   (size_t)(inside * c));
            memset(to + (left + inside) * c, conv->zero_x, (size_t)(right * c));
        }
        to += width * c;
    }
    memset(to, 0, SBIT__Q8_SLACK); /* the last quadruple reads it, with weight 0 */
}

static void sbit__q8_unit_offsets(sbit__q8_unit *unit)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *shape = &conv->shape;
    const int64_t across = conv->merges ? 1 : shape->kernel[2];
    const int64_t taps = shape->kernel[0] * shape->kernel[1] * across;
    if (conv->shares == 2) { /* columns of 4 */
        for (int64_t t = 0; t < 4 * conv->taps; t++) {
            unit->offsets[t] = t % 4 * unit->line + t / 4 * shape->dilation[2] * shape->in_channels;
        }
        return;
    }
    for (int64_t t = 0; t < 4 * conv->taps; t++) { /* what fills a quadruple has weight 0 */
        const int64_t at = t < taps ? t : 0;
        unit->offsets[t] = at / (shape->kernel[1] * across) * unit->slice +
                           at / across % shape->kernel[1] * shape->dilation[1] * unit->line +
                           at % across * shape->dilation[2] * shape->in_channels;
    }
}

/* Of a whole band: of one that was copied they are those of the next, too. */
static void sbit__q8_unit_rows(const sbit__q8_unit *unit)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *shape = &conv->shape;
    const bool column = shape->out[2] == 1; /* is one row of as many pixels */
    const int64_t down = shape->stride[1] * unit->line;
    const int64_t step = column ? down : shape->stride[2] * shape->in_channels;
    const int64_t rows = conv->copies ? conv->rows : unit->rows;
    const int64_t high = column ? 1 : rows, wide = column ? rows : shape->out[2];
    for (int64_t h = 0; h < high; h++) {
        const uint8_t **row = unit->row + h * wide;
        for (int64_t w = 0; w < wide; w++) {
            row[w] = unit->base + (h * down + w * step);
        }
    }
}

/* Sums of what each pixel's taps see: products with columns of ones, of which one is kept. */
static void sbit__q8_unit_sums(const sbit__q8_unit *unit)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__q8_kernels *kernels = unit->job->kernels;
    const int64_t pixels = unit->rows * conv->shape.out[2], quad = 4 * kernels->lanes;
    int8_t ones[SBIT__Q8_ONES / 4 * SBIT__Q8_WIDEST];
    int32_t none[SBIT__Q8_WIDEST / 4] = {0}, part[SBIT__Q8_SUMMED];
    const uint8_t *row[SBIT__Q8_SUMMED];
    sbit__q8_tile tile;
    memset(&tile, 0, sizeof tile);
    memset(ones, 1, sizeof ones);
    memset(unit->sums, 0, (size_t)pixels * sizeof *unit->sums);
    tile.taps = conv->taps;
    tile.offsets = unit->offsets;
    tile.width = kernels->lanes;
    tile.columns = tile.out_stride = 1;
    tile.weights = tile.next = ones;
    tile.bias = none;
    tile.store.kind = SBIT__Q8_I32;
    for (int64_t k = 0; k < conv->depth; k += SBIT__Q8_ONES) {
        tile.depth = sbit__smaller(conv->depth - k, SBIT__Q8_ONES);
        tile.between = -sbit__div_up(tile.depth, 4) * quad; /* all taps have the same */
        for (int64_t i = tile.depth; i % 4 != 0; i++) {
            for (int64_t j = 0; j < kernels->lanes; j++) {
                ones[i / 4 * quad + 4 * j + i % 4] = 0;
            }
        }
        for (int64_t first = 0; first < pixels; first += SBIT__Q8_SUMMED) {
            const int64_t count = sbit__smaller(pixels - first, SBIT__Q8_SUMMED);
            for (int64_t p = 0; p < count; p++) {
                row[p] = unit->row[first + p] + k;
            }
            kernels->q8_tile(&tile, count, row, NULL, part);
            for (int64_t p = 0; p < count; p++) {
                unit->sums[first + p] += part[p];
            }
        }
    }
}

static int64_t sbit__q8_out_bytes(const sbit__q8_conv *conv)
{
    return conv->store.kind == SBIT__Q8_U8 ? 1 : 4;
}

/* Adds the other tensor to `count` channels from `first` of all pixels, while the caches have them. */
static void sbit__q8_unit_add(const sbit__q8_unit *unit, int64_t first, int64_t count)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const int64_t channels = conv->shape.out_channels;
    const int64_t band = unit->rows * conv->shape.out[2] * channels;
    const int64_t run = count == channels ? band : count; /* what lies side by side */
    for (int64_t i = 0; conv->adds && i < unit->images; i++) {
        const int64_t begin =
            (unit->out_pixel + i * conv->shape.out[1] * conv->shape.out[2]) * channels;
        for (int64_t at = begin; at < begin + band; at += sbit__larger(run, channels)) {
            uint8_t *y = (uint8_t *)(void *)unit->job->y + at + first;
            unit->job->kernels->q8_binary(unit->job->added, run, y, unit->job->other + at + first,
                                          y);
        }
    }
}

/* Puts a class's pixels, of output rows h0.. and columns w0.., into the lists. */
static void sbit__q8_list_class(const sbit__q8_unit *unit, sbit__q8_class *one, int64_t h0,
                                int64_t h1, int64_t w0, int64_t w1)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t c = s->in_channels, pixels = (h1 - h0) * (w1 - w0);
    const int64_t chunk = conv->mates > 1 ? 4 : pixels;
    const int64_t image = s->in[1] * unit->line, out = s->out_channels;
    const int64_t down = s->stride[1] * unit->line, aside = s->stride[2] * c;
    const bool sees = one->taps > 0 && one->across > 0;
    const int64_t x = (one->top * s->dilation[1] - s->pad_begin[1]) * unit->line +
                      (one->left - s->pad_begin[2]) * c;
    int64_t *to = unit->to + unit->list->count;
    const uint8_t **row = unit->row + unit->list->count;
    int64_t h = 0, w = 0, h_next = h0, w_next = w0;
    one->first = unit->list->count;
    for (int64_t p = 0; p < pixels; p += chunk) {
        const int64_t h_at = h_next, w_at = w_next;
        for (int64_t n = 0; n < unit->images; n++) {
            h = h_at;
            w = w_at;
            for (int64_t i = 0; i < chunk; i++) {
                *row++ = unit->base + (sees ? n * image + h * down + w * aside + x : 0);
                *to++ = ((n * s->out[1] + h - unit->first_row) * s->out[2] + w) * out;
                if (w + 1 < w1) {
                    w++;
                } else if (h + 1 < h1) { /* the last again fills up the last chunk */
                    w = w0;
                    h++;
                }
            }
        }
        h_next = h;
        w_next = w;
    }
    one->count = row - (unit->row + one->first);
    unit->list->count += one->count;
}

/* All taps of these rows lie inside of the image. */
static bool sbit__q8_rows_inside(const sbit__conv_shape *s, int64_t h, int64_t rows)
{
    int64_t first = 0, count = 0;
    return sbit__q8_alike(s, 1, h, h + rows, &first, &count) == h + rows && count == s->kernel[1];
}

/* Lists of the unit before serve one like it, moved. */
static void sbit__q8_unit_lists(const sbit__q8_unit *unit, int64_t band)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *s = &conv->shape;
    sbit__q8_list *list = unit->list;
    const int64_t end = unit->first_row + unit->rows;
    const uint8_t *base = unit->base + unit->first_row * s->stride[1] * unit->line;
    const int64_t key = sbit__q8_rows_inside(s, unit->first_row, unit->rows) ? -1 : band;
    if (list->count > 0 && list->rows == unit->rows && list->images == unit->images &&
        list->band == key) {
        const int64_t by = base - list->base;
        for (int64_t i = 0; i < list->count; i++) {
            unit->row[i] += by;
        }
        list->base = base;
        return;
    }
    list->base = base;
    list->rows = unit->rows;
    list->images = unit->images;
    list->band = key;
    list->classes = list->count = 0;
    for (int64_t h = unit->first_row, h1 = h; h < end; h = h1) {
        sbit__q8_class one;
        h1 = sbit__q8_alike(s, 1, h, end, &one.top, &one.taps);
        for (int64_t w = 0, w1 = 0; w < s->out[2]; w = w1) {
            w1 = sbit__q8_alike(s, 2, w, s->out[2], &one.left, &one.across);
            sbit__q8_list_class(unit, &one, h, h1, w, w1);
            unit->classes[list->classes++] = one;
        }
    }
}

/* A panel's columns, class by class. */
static void sbit__q8_unit_classes(const sbit__q8_unit *unit, const sbit__q8_tile *panel, char *y)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t in = s->in_channels, quad = panel->width, quads = in / 4 * s->kernel[2];
    for (int64_t i = 0; i < unit->list->classes; i++) {
        const sbit__q8_class *one = &unit->classes[i];
        const bool all = one->taps == s->kernel[1] && one->across == s->kernel[2];
        sbit__q8_tile tile = *panel;
        tile.taps = one->across > 0 ? one->taps : 0;
        tile.depth = one->across * in;
        tile.between = (s->kernel[2] - one->across) * in * quad;
        tile.weights = panel->weights + (one->top * quads * 4 + one->left * in) * quad;
        tile.next = all ? panel->next : tile.weights;
        tile.to = unit->to + one->first;
        tile.line = unit->images % conv->mates == 0 && conv->mates > 1 ? one->count : 0;
        unit->job->kernels->q8_tile(&tile, one->count, unit->row + one->first, NULL, y);
    }
}

static void sbit__q8_unit_group(const sbit__q8_unit *unit, int64_t group)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__q8_kernels *kernels = unit->job->kernels;
    const sbit__conv_shape *shape = &conv->shape;
    const int64_t in = shape->in_channels / shape->groups,
                  out = shape->out_channels / shape->groups;
    const int64_t pixels = unit->rows * shape->out[2], quads = sbit__div_up(conv->depth, 4);
    /* packed weights are only read */
    const sbit__q8_group at = sbit__q8_group_at(conv, (void *)(uintptr_t)unit->job->packed, group);
    sbit__q8_tile tile;
    int64_t number = 0;
    memset(&tile, 0, sizeof tile);
    if (group > 0) {
        for (int64_t p = 0; p < pixels; p++) {
            unit->row[p] += in;
        }
    }
    if (conv->has_factor) {
        sbit__q8_unit_sums(unit);
    }
    tile.taps = conv->taps;
    tile.depth = conv->depth;
    tile.offsets = unit->offsets;
    tile.store = conv->store;
    tile.store.fits = *at.fits != 0;
    tile.out_stride = shape->out_channels;
    tile.line = shape->out[2] == 1 ? unit->rows : shape->out[2];
    for (int64_t first = 0; first < out; number++) {
        tile.width = sbit__q8_panel(kernels, out - first);
        tile.columns = sbit__smaller(out - first, tile.width);
        tile.weights = at.weights + first * conv->taps * quads * 4;
        tile.next = tile.weights;
        if (conv->parts == 1 && first + 2 * tile.width <= conv->columns) { /* as wide as this */
            tile.next = tile.weights + tile.width * conv->taps * quads * 4;
        }
        tile.bias = at.bias + first;
        tile.factor = conv->has_factor ? at.factor + first : NULL;
        tile.scale = at.scale + first;
        tile.shift = conv->has_shift ? at.shift + first : NULL;
        if (number % conv->parts == unit->part) {
            const int64_t to = unit->out_pixel * shape->out_channels + group * out + first;
            char *y = unit->job->y + to * sbit__q8_out_bytes(conv);
            if (conv->skips) {
                sbit__q8_unit_classes(unit, &tile, y);
            } else {
                kernels->q8_tile(&tile, pixels, unit->row, unit->sums, y);
            }
            if (conv->parts > 1) {
                sbit__q8_unit_add(unit, group * out + first, tile.columns);
            }
        }
        first += tile.width;
    }
}

static void sbit__q8_unit_depthwise(const sbit__q8_unit *unit)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *shape = &conv->shape;
    const sbit__q8_group at = sbit__q8_group_at(conv, (void *)(uintptr_t)unit->job->packed, 0);
    sbit__q8_depthwise d;
    memset(&d, 0, sizeof d);
    d.channels = conv->joined * shape->groups;
    d.block = 4 * unit->job->kernels->lanes;
    d.quads = conv->taps;
    d.shares = conv->shares;
    d.offsets = unit->offsets;
    d.weights = at.weights;
    d.bias = at.bias;
    d.scale = at.scale;
    d.shift = conv->has_shift ? at.shift : NULL;
    d.store = conv->store;
    d.store.fits = *at.fits != 0;
    d.in_stride = conv->joined * shape->stride[2] * shape->in_channels;
    d.out_stride = conv->joined * shape->out_channels;
    const int64_t whole = shape->out[2] / conv->joined, rest = shape->out[2] % conv->joined;
    sbit__q8_depthwise last = d;
    last.channels = rest * shape->groups;
    for (int64_t h = 0; h < unit->rows; h += conv->shares) {
        d.below = last.below = h + 1 < unit->rows ? shape->out[2] * shape->out_channels : 0;
        const uint8_t *x = unit->base + h * shape->stride[1] * unit->line;
        const int64_t to = (unit->out_pixel + h * shape->out[2]) * shape->out_channels;
        char *y = unit->job->y + to * sbit__q8_out_bytes(conv);
        unit->job->kernels->q8_depthwise(&d, whole, x, y);
        if (rest > 0) {
            unit->job->kernels->q8_depthwise(&last, 1, x + whole * d.in_stride,
                                             y + whole * d.out_stride * sbit__q8_out_bytes(conv));
        }
    }
}

/* A unit of some images whose taps on padding are left out. */
static void sbit__q8_run_skipping(const sbit__q8_job *job, int64_t number, int32_t worker, bool first)
{
    const sbit__q8_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t groups = sbit__div_up(s->batch, conv->images);
    const int64_t band = number / conv->parts / groups, n = number / conv->parts % groups * conv->images;
    char *scratch = job->scratch + worker * conv->worker_bytes;
    sbit__q8_unit unit;
    memset(&unit, 0, sizeof unit);
    unit.job = job;
    unit.part = number % conv->parts;
    unit.first_row = band * conv->rows;
    unit.rows = sbit__smaller(conv->rows, s->out[1] - unit.first_row);
    unit.images = sbit__smaller(conv->images, s->batch - n);
    unit.out_pixel = (n * s->out[1] + unit.first_row) * s->out[2];
    unit.line = s->in[2] * s->in_channels;
    unit.base = job->x + n * s->in[1] * unit.line;
    unit.list = (sbit__q8_list *)(void *)scratch;
    unit.classes = (sbit__q8_class *)(void *)(unit.list + 1);
    unit.offsets = (int64_t *)(void *)(unit.classes + conv->classes);
    unit.row = (const uint8_t **)(void *)(unit.offsets + conv->taps);
    unit.to = (int64_t *)(void *)(unit.row + conv->images * (conv->rows * s->out[2] +
                                                             (conv->mates > 1 ? 3 * conv->classes : 0)));
    if (first) {
        memset(unit.list, 0, sizeof *unit.list);
        for (int64_t t = 0; t < conv->taps; t++) {
            unit.offsets[t] = t * s->dilation[1] * unit.line;
        }
    }
    sbit__q8_unit_lists(&unit, band);
    sbit__q8_unit_group(&unit, 0);
    if (conv->parts == 1) {
        sbit__q8_unit_add(&unit, 0, s->out_channels);
    }
}

/* first: the worker's first, which fills in its pointers. */
static void sbit__q8_run_unit(const sbit__q8_job *job, int64_t number, int32_t worker, bool first)
{
    const sbit__q8_conv *conv = job->conv;
    const sbit__conv_shape *shape = &conv->shape;
    const int64_t part = number % conv->parts, band = number / conv->parts % conv->bands;
    const int64_t plane = number / conv->parts / conv->bands;
    const int64_t n = plane / shape->out[0], d = plane % shape->out[0], h = band * conv->rows;
    const int64_t line = shape->in[2] * shape->in_channels, pixels = conv->rows * shape->out[2];
    const uint8_t *image = job->x + n * shape->in[0] * shape->in[1] * line;
    char *scratch = job->scratch + worker * conv->worker_bytes;
    sbit__q8_unit unit;
    memset(&unit, 0, sizeof unit);
    unit.job = job;
    unit.part = part;
    unit.images = 1;
    unit.rows = sbit__smaller(conv->rows, shape->out[1] - h);
    unit.out_pixel = (plane * shape->out[1] + h) * shape->out[2];
    unit.offsets = (int64_t *)(void *)(scratch + conv->band_bytes);
    unit.row = (const uint8_t **)(void *)(unit.offsets + 4 * conv->taps);
    unit.sums = (int32_t *)(void *)(unit.row + pixels);
    if (conv->copies) {
        unit.base = (const uint8_t *)(const void *)scratch;
        unit.line = sbit__q8_reach(shape, 2, shape->out[2]) * shape->in_channels;
        unit.slice = unit.line * sbit__q8_reach(shape, 1, sbit__q8_whole_rows(conv, unit.rows));
        sbit__q8_copy_band(&unit, image, d, h, (uint8_t *)(void *)scratch);
    } else {
        unit.line = line;
        unit.slice = shape->in[1] * line * shape->dilation[0];
        unit.base =
            image + d * shape->stride[0] * shape->in[1] * line + h * shape->stride[1] * line;
    }
    sbit__q8_unit_offsets(&unit);
    if (conv->depthwise) {
        sbit__q8_unit_depthwise(&unit);
    } else {
        if (first || !conv->copies || shape->groups > 1) {
            sbit__q8_unit_rows(&unit);
        }
        for (int64_t g = 0; g < shape->groups; g++) {
            sbit__q8_unit_group(&unit, g);
        }
    }
    if (conv->parts == 1) { /* else parts do it themselves */
        sbit__q8_unit_add(&unit, 0, shape->out_channels);
    }
}

static void sbit__q8_run_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q8_job *job = (const sbit__q8_job *)task;
    for (int64_t i = begin; i < end; i++) {
        if (job->conv->skips) {
            sbit__q8_run_skipping(job, i, worker, i == begin);
        } else {
            sbit__q8_run_unit(job, i, worker, i == begin);
        }
    }
}

/* The part of a job that all runs have. */
static void sbit__q8_job_of(const sbit_ctx *ctx, const sbit__q8_conv *conv, const uint8_t *x,
                            const void *packed, const uint8_t *other, void *y, void *scratch,
                            sbit__q8_job *job)
{
    job->conv = conv;
    job->kernels = sbit__q8_of(ctx);
    job->x = x;
    job->packed = packed;
    job->other = other;
    job->added = sbit__q8_group_at(conv, (void *)(uintptr_t)packed, 0).added;
    job->y = (char *)y;
    job->scratch = (char *)scratch;
}

static int64_t sbit__q8_units(const sbit__q8_conv *conv)
{
    return sbit__div_up(conv->shape.batch, conv->images) * conv->shape.out[0] * conv->bands *
           conv->parts;
}

SBIT__FN void sbit__q8_conv_run_alone(const sbit_ctx *ctx, const sbit__q8_conv *conv,
                                      const uint8_t *x, const void *packed, const uint8_t *other,
                                      void *y, void *scratch)
{
    sbit__q8_job job;
    sbit__q8_job_of(ctx, conv, x, packed, other, y, scratch, &job);
    sbit__q8_run_range(&job, 0, sbit__q8_units(conv), 0);
}

SBIT__FN void sbit__q8_conv_run(sbit_ctx *ctx, const sbit__q8_conv *conv, const uint8_t *x,
                                const void *packed, const uint8_t *other, void *y, void *scratch)
{
    const sbit__conv_shape *shape = &conv->shape;
    const int64_t unit_macs = conv->images * conv->rows * shape->out[2] * shape->out_channels * conv->taps *
                              conv->depth * (conv->depthwise ? 4 : 1) / conv->parts;
    sbit__q8_job job;
    sbit__q8_job_of(ctx, conv, x, packed, other, y, scratch, &job);
    sbit__parallel_range(ctx, sbit__q8_units(conv), 1 + SBIT__Q8_WORTH_A_THREAD / (2 * (unit_macs + 1)),
                         sbit__q8_run_range, &job);
}

/* >>strips: as a depthwise convolution's units, whose band is computed instead of copied */

SBIT__FN void sbit__q8_strip_plan(const sbit_ctx *ctx, sbit__q8_strip *strip)
{
    sbit__q8_conv *deep = &strip->conv[1];
    const sbit__conv_shape *s = &deep->shape;
    const int64_t threads = sbit_ctx_threads(ctx), height = s->out[1];
    const int64_t images = sbit__larger(s->batch, 1);
    const int64_t least = threads == 1 ? 1 : sbit__div_up(2 * threads, images);
    int64_t rows = 1;
    while (rows < sbit__div_up(height, least) &&
           sbit__q8_band_bytes(deep, rows + 1) <= SBIT__Q8_STRIP_BYTES) {
        rows++;
    }
    deep->bands = height > 0 ? sbit__div_up(height, rows) : 0;
    deep->rows = height > 0 ? sbit__div_up(height, deep->bands) : 1;
    strip->step = 2;
    while (strip->step < deep->rows && (strip->step + 2) * s->out[2] <= SBIT__Q8_BAND_PIXELS) {
        strip->step += 2;
    }
    const int64_t pixels = sbit__larger(s->in[2], strip->step * s->out[2]);
    strip->wide_bytes = sbit__q8_band_bytes(deep, deep->rows) + SBIT__Q8_SLACK;
    strip->wide_bytes = sbit__div_up(strip->wide_bytes, 64) * 64;
    strip->narrow_bytes = strip->step * s->out[2] * s->out_channels + SBIT__Q8_SLACK;
    strip->narrow_bytes = sbit__div_up(strip->narrow_bytes, 64) * 64;
    strip->worker_bytes = strip->wide_bytes + strip->narrow_bytes +
                          sbit__div_up(8 * (4 * deep->taps + 4 + pixels), 64) * 64;
    strip->scratch_bytes = (size_t)strip->worker_bytes * (size_t)threads;
    for (int i = 0; i < 3; i += 2) {
        strip->conv[i].parts = 1;
    }
}

typedef struct sbit__q8_strip_job {
    const sbit__q8_strip *strip;
    sbit__q8_job job[3];
    char *scratch;
} sbit__q8_strip_job;

/* A 1x1 convolution of `pixels` pixels from x. */
static void sbit__q8_strip_product(const sbit__q8_job *job, const uint8_t *x, int64_t pixels,
                                   int64_t out_pixel, int64_t *offsets, const uint8_t **row)
{
    const sbit__conv_shape *shape = &job->conv->shape;
    sbit__q8_unit unit;
    memset(&unit, 0, sizeof unit);
    offsets[0] = 0;
    unit.job = job;
    unit.base = x;
    unit.offsets = offsets;
    unit.row = row;
    unit.rows = pixels;
    unit.out_pixel = out_pixel;
    unit.images = 1;
    for (int64_t p = 0; p < pixels; p++) {
        row[p] = x + p * shape->in_channels;
    }
    sbit__q8_unit_group(&unit, 0);
    sbit__q8_unit_add(&unit, 0, shape->out_channels);
}

/* The expanded rows that output rows h.. of image n see, between their borders. */
static void sbit__q8_strip_expand(const sbit__q8_strip_job *task, const sbit__q8_unit *unit,
                                  int64_t n, int64_t h, uint8_t *to)
{
    const sbit__q8_conv *conv = unit->job->conv;
    const sbit__conv_shape *shape = &conv->shape;
    const int64_t c = shape->in_channels, width = unit->line / c;
    const int64_t left = sbit__smaller(shape->pad_begin[2], width);
    const int64_t inside = sbit__larger(sbit__smaller(shape->in[2], width - left), 0);
    const int64_t height = sbit__q8_reach(shape, 1, sbit__q8_whole_rows(conv, unit->rows));
    for (int64_t i = 0; i < height; i++, to += width * c) {
        const int64_t at = h * shape->stride[1] - shape->pad_begin[1] + i;
        if (at < 0 || at >= shape->in[1]) {
            memset(to, conv->zero_x, (size_t)(width * c));
            continue;
        }
        sbit__q8_job job = task->job[0];
        job.y = (char *)(void *)(to + left * c);
        memset(to, conv->zero_x, (size_t)(left * c));
        sbit__q8_strip_product(&job,
                               job.x + (n * shape->in[1] + at) * shape->in[2] *
                                           job.conv->shape.in_channels,
                               inside, 0, unit->offsets, unit->row);
        memset(to + (left + inside) * c, conv->zero_x, (size_t)((width - left - inside) * c));
    }
    memset(to, 0, SBIT__Q8_SLACK);
}

static void sbit__q8_strip_unit(const sbit__q8_strip_job *task, int64_t number, int32_t worker)
{
    const sbit__q8_strip *strip = task->strip;
    const sbit__q8_conv *conv = &strip->conv[1];
    const sbit__conv_shape *shape = &conv->shape;
    const bool projects = strip->conv[2].shape.out_channels > 0;
    const int64_t n = number / conv->bands, h = number % conv->bands * conv->rows;
    char *scratch = task->scratch + worker * strip->worker_bytes;
    char *narrow = scratch + strip->wide_bytes;
    sbit__q8_job job = task->job[1];
    sbit__q8_unit unit;
    memset(&unit, 0, sizeof unit);
    unit.job = &job;
    unit.rows = sbit__smaller(conv->rows, shape->out[1] - h);
    unit.offsets = (int64_t *)(void *)(narrow + strip->narrow_bytes);
    unit.row = (const uint8_t **)(void *)(unit.offsets + 4 * conv->taps + 4);
    unit.line = sbit__q8_reach(shape, 2, shape->out[2]) * shape->in_channels;
    unit.base = (const uint8_t *)(const void *)scratch;
    sbit__q8_strip_expand(task, &unit, n, h, (uint8_t *)(void *)scratch);
    const int64_t end = unit.rows, pixel = (n * shape->out[1] + h) * shape->out[2];
    for (int64_t i = 0; i < end; i += strip->step) {
        unit.rows = sbit__smaller(strip->step, end - i);
        unit.base = (const uint8_t *)(const void *)scratch + i * shape->stride[1] * unit.line;
        unit.out_pixel = projects ? 0 : pixel + i * shape->out[2];
        job.y = projects ? narrow : job.y;
        sbit__q8_unit_offsets(&unit);
        sbit__q8_unit_depthwise(&unit);
        if (projects) {
            sbit__q8_strip_product(&task->job[2], (const uint8_t *)(const void *)narrow,
                                   unit.rows * shape->out[2], pixel + i * shape->out[2],
                                   unit.offsets, unit.row);
        }
    }
}

static void sbit__q8_strip_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    for (int64_t i = begin; i < end; i++) {
        sbit__q8_strip_unit((const sbit__q8_strip_job *)task, i, worker);
    }
}

SBIT__FN void sbit__q8_strip_run(sbit_ctx *ctx, const sbit__q8_strip *strip, const uint8_t *x,
                                 const void *const packed[3], const uint8_t *other, uint8_t *y,
                                 void *scratch)
{
    const sbit__conv_shape *shape = &strip->conv[1].shape;
    sbit__q8_strip_job task;
    memset(&task, 0, sizeof task);
    task.strip = strip;
    task.scratch = (char *)scratch;
    for (int i = 0; i < 3; i++) {
        sbit__q8_job *job = &task.job[i];
        job->conv = &strip->conv[i];
        job->kernels = sbit__q8_of(ctx);
        job->x = x;
        job->other = other;
        job->packed = packed[i];
        job->y = (char *)y;
        if (packed[i] != NULL) {
            job->added = sbit__q8_group_at(job->conv, (void *)(uintptr_t)packed[i], 0).added;
        }
    }
    if (shape->out[2] > 0) {
        sbit__parallel_range(ctx, shape->batch * strip->conv[1].bands, 1, sbit__q8_strip_range,
                             &task);
    }
}
