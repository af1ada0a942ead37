/* conv_weight.c: the gradient of a convolution with respect to its weights. >>conv_weight
 *
 * Called by: ops (ConvWeightGrad). Calls: the tables' f32_conv_tile, f32_dot, last_exchange,
 * norm_dots and last_depthwise_dots, parallel.
 *
 * dw [O][I*k] = sum over output pixels p of dy [O][p] * column(p) of x. Nothing is copied once a
 * tap: x is turned to channels last inside of its padding, so that what one output pixel sees of a
 * kernel line (all its taps, all channels) is one run of floats, and f32_conv_tile reads runs at
 * any offset. dy is turned to panels of tile_m output channels. Both for a chunk of some images;
 * the chunk's share is then added to the sums, tile by tile.
 * A tile is always added up by one thread, chunk after chunk: any number of threads gives the same
 * bits.
 *
 * 1x1 convolutions without strides on large planes are products of rows as they lie (norm_dots), 4 of
 * dy and 2 of x, a block of pixels at a time. Tasks are 4 output channels.
 *
 * Groups of few output channels (depthwise): planes of x inside of their padding, planes of dy with
 * zeros between their elements, so that both have the same distances: a tap is one dot product of
 * some images' planes, shifted. Tasks are input channels.
 *
 * What comes with channels last is copied or, without padding, read as it lies; each channel for itself:
 * rows of dy times rows of x, added up for each image. Tasks are some channels.
 */
#include "last_private.h"
#include "rows_private.h"

enum {
    SBIT__CONV_WEIGHT_CHUNK = 1 << 18, /* floats of x and dy in a chunk, unless an image has more */
    SBIT__CONV_WEIGHT_PIXELS = 512,    /* terms that are added up at a time */
    SBIT__CONV_WEIGHT_PLANES = 4096,   /* floats of the planes in a dot product, the same */
    SBIT__CONV_WEIGHT_DOTS = 1024,     /* pixels of a block of images of a 1x1 convolution */
    SBIT__CONV_WEIGHT_LEAST = 256,     /* so many; rows of images meet in few sets of the cache */
    SBIT__CONV_WEIGHT_EACH = 64,       /* channels of a unit, each by itself */
    SBIT__CONV_WEIGHT_NARROW = 3       /* output channels of a group: dot products */
};

typedef struct sbit__conv_weight_job {
    sbit__conv_shape s;
    const sbit_kernels *kernels;
    const sbit__last_kernels *vectors;
    int64_t ins, outs;               /* channels of a group */
    int64_t field[3];                /* of x that the outputs see, padding included */
    int64_t lines, length;           /* of kernel: so many runs of so many floats */
    int64_t half, pieces;            /* floats of half a tile; halves of all lines */
    int64_t pixels, images;          /* of an output; of a chunk */
    int64_t rows, panels;            /* output channels of a tile; tiles of a group */
    int64_t x_image, dy_image;       /* floats, of one group */
    bool narrow, pointwise;
    bool last, direct, depthwise;    /* with channels last; x is read as it lies; a channel by itself */
    size_t offsets_bytes, x_bytes, dy_bytes, sums_bytes;
    /* a run's */
    int64_t group, image, count; /* the chunk's first image, its number of images */
    int64_t at;                  /* its first pixel, of a 1x1 convolution */
    const float *x, *dy;
    const float *seen; /* the chunk's x: turned, or as it lies */
    float *dw, *turned, *panel, *sums;
    int32_t *offsets; /* of an output pixel's window in the turned chunk */
} sbit__conv_weight_job;

static void sbit__conv_weight_job_init(sbit__conv_weight_job *job, const sbit_ctx *ctx,
                                       const sbit__conv_shape *s, bool last)
{
    memset(job, 0, sizeof *job);
    job->s = *s;
    job->last = last;
    job->kernels = sbit__kernels(ctx);
    job->vectors = sbit__last_of(ctx);
    job->ins = s->in_channels / s->groups;
    job->outs = s->out_channels / s->groups;
    job->pixels = s->out[0] * s->out[1] * s->out[2];
    for (int32_t i = 0; i < 3; i++) {
        job->field[i] = (s->out[i] - 1) * s->stride[i] + (s->kernel[i] - 1) * s->dilation[i] + 1;
    }
    job->lines = s->kernel[0] * s->kernel[1];
    job->length = s->kernel[2] * job->ins;
    if (s->dilation[2] != 1) {
        job->lines *= s->kernel[2];
        job->length = job->ins;
    }
    job->half = job->kernels->tile_n / 2;
    job->pieces = job->lines * sbit__div_up(job->length, job->half);
    job->panels = sbit__div_up(job->outs, job->kernels->tile_m);
    job->rows = job->panels > 0 ? sbit__div_up(job->outs, job->panels) : 0;
    job->x_image = job->field[0] * job->field[1] * job->field[2] * job->ins;
    job->dy_image = job->panels * job->kernels->tile_m * job->pixels;
    job->images = SBIT__CONV_WEIGHT_CHUNK / sbit__larger(job->x_image + job->dy_image, 1);
    job->depthwise = last && job->outs == 1 && job->ins == 1;
    job->narrow = !last && job->outs <= SBIT__CONV_WEIGHT_NARROW;
    if (job->narrow) {
        job->x_image = job->dy_image = job->field[0] * job->field[1] * job->field[2];
        job->images = SBIT__CONV_WEIGHT_PLANES / sbit__larger(job->x_image, 1);
    }
    job->images = sbit__smaller(sbit__larger(job->images, 1), sbit__larger(s->batch, 1));
    job->pointwise = !last && !job->narrow && job->pixels >= SBIT__CONV_WEIGHT_LEAST;
    job->direct = last && s->groups == 1 && job->length % job->half == 0;
    for (int32_t i = 0; i < 3; i++) {
        job->direct = job->direct && s->pad_begin[i] == 0 && job->field[i] == s->in[i];
    }
    if (job->depthwise) {
        job->sums_bytes = sbit__cache_lines(2 * job->lines * s->kernel[2] * s->groups);
        return;
    }
    for (int32_t i = 0; i < 3; i++) {
        job->pointwise = job->pointwise && s->kernel[i] == 1 && s->stride[i] == 1 &&
                         s->pad_begin[i] == 0 && s->in[i] == s->out[i];
    }
    if (job->pointwise) {
        return;
    }
    if (job->narrow) { /* of each worker */
        job->x_bytes = job->dy_bytes = sbit__cache_lines(job->images * job->x_image);
        return;
    }
    job->offsets_bytes = sbit__cache_lines(job->images * job->pixels);
    job->x_bytes = job->direct ? 0 : sbit__cache_lines(job->images * job->x_image + job->half);
    job->dy_bytes = sbit__cache_lines(job->images * job->dy_image);
    job->sums_bytes = sbit__cache_lines(job->outs * job->pieces * job->half);
}

SBIT__FN size_t sbit__conv_weight_scratch_bytes(const sbit_ctx *ctx, const sbit__conv_shape *shape,
                                                bool last)
{
    sbit__conv_weight_job job;
    sbit__conv_weight_job_init(&job, ctx, shape, last);
    const size_t workers = job.narrow ? (size_t)sbit_ctx_threads(ctx) : 1;
    return workers * (job.offsets_bytes + job.x_bytes + job.dy_bytes + job.sums_bytes);
}

SBIT__FN bool sbit__conv_weight_fits(const sbit_ctx *ctx, const sbit__conv_shape *shape, bool last)
{
    sbit__conv_weight_job job;
    sbit__conv_weight_job_init(&job, ctx, shape, last);
    return job.images * job.x_image <= INT32_MAX;
}

/* >>a chunk: its images in both forms. Unit: an image. */

/* `channels` planes of an input image, channels last, at their place in the padding. */
static void sbit__conv_weight_turn(const sbit__conv_weight_job *job, int64_t channels,
                                   const float *x, float *to)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t plane = s->in[0] * s->in[1] * s->in[2];
    int64_t begin[3], end[3]; /* of the field, what lies in x */
    bool padded = false;
    for (int32_t i = 0; i < 3; i++) {
        begin[i] = sbit__smaller(sbit__larger(s->pad_begin[i], 0), job->field[i]);
        end[i] = sbit__larger(sbit__smaller(s->in[i] + s->pad_begin[i], job->field[i]), begin[i]);
        padded = padded || end[i] - begin[i] < job->field[i];
    }
    if (padded) {
        memset(to, 0, (size_t)job->x_image * sizeof *to);
    }
    for (int64_t z = begin[0]; z < end[0]; z++) {
        for (int64_t y = begin[1]; y < end[1]; y++) {
            const int64_t from = ((z - s->pad_begin[0]) * s->in[1] + y - s->pad_begin[1]) * s->in[2];
            const int64_t row = (z * job->field[1] + y) * job->field[2] + begin[2];
            const int64_t count = end[2] - begin[2];
            if (job->last) { /* x: the group's channels of the image */
                const float *pixel = x + (from + begin[2] - s->pad_begin[2]) * s->in_channels;
                const int64_t run = s->groups == 1 ? count : 1;
                for (int64_t i = 0; i < count; i += run) {
                    memcpy(to + (row + i) * channels, pixel + i * s->in_channels,
                           (size_t)(run * channels) * sizeof *to);
                }
                continue;
            }
            if (channels == 1) {
                memcpy(to + row, x + from + begin[2] - s->pad_begin[2], (size_t)count * sizeof *to);
                continue;
            }
            job->vectors->last_exchange(channels, count,
                                     x + from + begin[2] - s->pad_begin[2], plane,
                                     to + row * channels, channels);
        }
    }
}

static void sbit__conv_weight_images(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_weight_job *job = (const sbit__conv_weight_job *)user;
    const sbit__conv_shape *s = &job->s;
    const int64_t plane = s->in[0] * s->in[1] * s->in[2], tile = job->kernels->tile_m;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = job->image + i;
        const int64_t first = job->group * job->outs; /* channels of dy, of x */
        const int64_t x_at = image * s->in_channels * plane + job->group * job->ins * (job->last ? 1 : plane);
        const float *dy = job->dy + image * s->out_channels * job->pixels +
                          first * (job->last ? 1 : job->pixels);
        if (!job->direct) {
            sbit__conv_weight_turn(job, job->ins, job->x + x_at, job->turned + i * job->x_image);
        }
        for (int64_t p = 0; p < job->panels; p++) { /* a panel goes through all images */
            const int64_t rows = sbit__smaller(job->outs - p * job->rows, job->rows);
            float *panel = job->panel + (p * job->count + i) * job->pixels * tile;
            if (job->last) {
                sbit__pack_panel(rows, tile, job->pixels, dy + p * job->rows, 1, s->out_channels,
                                 1.0f, panel);
                continue;
            }
            if (rows < tile) { /* the kernel reads whole rows of it */
                memset(panel, 0, (size_t)(job->pixels * tile) * sizeof *panel);
            }
            for (int64_t at = 0; at < job->pixels; at += SBIT__CONV_WEIGHT_PIXELS) {
                job->vectors->last_exchange(
                    rows, sbit__smaller(job->pixels - at, SBIT__CONV_WEIGHT_PIXELS),
                    dy + p * job->rows * job->pixels + at, job->pixels, panel + at * tile, tile);
            }
        }
    }
}

/* Where the windows of output pixels begin in a turned chunk. */
static void sbit__conv_weight_offsets(const sbit__conv_weight_job *job)
{
    const sbit__conv_shape *s = &job->s;
    int32_t *to = job->offsets;
    for (int64_t n = 0; n < job->images; n++) {
        for (int64_t z = 0; z < s->out[0]; z++) {
            for (int64_t y = 0; y < s->out[1]; y++) {
                const int64_t row =
                    (z * s->stride[0] * job->field[1] + y * s->stride[1]) * job->field[2];
                for (int64_t x = 0; x < s->out[2]; x++) {
                    *to++ = (int32_t)(n * job->x_image + (row + x * s->stride[2]) * job->ins);
                }
            }
        }
    }
}

/* >>sums [O][pieces * half]. Unit: a tile, of one panel and two pieces. */

/* From a window's begin to where piece `index` begins; *count: its floats. */
static int64_t sbit__conv_weight_piece(const sbit__conv_weight_job *job, int64_t index,
                                       int64_t *count)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t cuts = sbit__div_up(job->length, job->half);
    const int64_t at = index % cuts * job->half, line = index / cuts;
    const int64_t across = s->dilation[2] != 1 ? s->kernel[2] : 1;
    const int64_t kx = line % across, ky = line / across % s->kernel[1];
    const int64_t kz = line / across / s->kernel[1];
    *count = sbit__smaller(job->length - at, job->half);
    return ((kz * s->dilation[0] * job->field[1] + ky * s->dilation[1]) * job->field[2] +
            kx * s->dilation[2]) *
               job->ins +
           at;
}

static void sbit__conv_weight_tiles(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_weight_job *job = (const sbit__conv_weight_job *)user;
    const int64_t pairs = sbit__div_up(job->pieces, 2), tile = job->kernels->tile_m;
    const int64_t all = job->count * job->pixels, stride = job->pieces * job->half;
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t panel = unit / pairs, piece = unit % pairs * 2;
        int64_t left = 0, right = 0;
        const float *b_left = job->seen + sbit__conv_weight_piece(job, piece, &left);
        const float *b_right =
            piece + 1 < job->pieces ? job->seen + sbit__conv_weight_piece(job, piece + 1, &right)
                                    : b_left;
        float *sums = job->sums + panel * job->rows * stride + piece * job->half;
        for (int64_t at = 0; at < all; at += SBIT__CONV_WEIGHT_PIXELS) {
            job->kernels->f32_conv_tile(
                sbit__smaller(job->outs - panel * job->rows, job->rows),
                sbit__smaller(all - at, SBIT__CONV_WEIGHT_PIXELS),
                job->panel + (panel * all + at) * tile, job->offsets + at, b_left, b_right, sums,
                left, right > 0 ? sums + job->half : sums, right, stride,
                job->image > 0 || at > 0, NULL, NULL);
        }
    }
}

/* dw [O][I][k] of the sums. Unit: an output channel. */
static void sbit__conv_weight_store(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_weight_job *job = (const sbit__conv_weight_job *)user;
    const int64_t taps = job->lines * job->length / sbit__larger(job->ins, 1);
    const int64_t cuts = sbit__div_up(job->length, job->half), stride = job->pieces * job->half;
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        float *to = job->dw + (job->group * job->outs + o) * job->ins * taps;
        for (int64_t t = 0; t < taps; t++) {
            const int64_t at = t * job->ins; /* of the lines, one behind the other */
            const float *from =
                job->sums + o * stride + at / job->length * cuts * job->half + at % job->length;
            for (int64_t i = 0; i < job->ins; i++) {
                to[i * taps + t] = from[i];
            }
        }
    }
}

/* >>1x1: what a block of pixels gives, which the caches hold. Unit: 4 output channels of a group. */

static void sbit__conv_weight_quads(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_weight_job *job = (const sbit__conv_weight_job *)user;
    const int64_t quads = sbit__div_up(job->outs, 4), pixels = job->pixels, ins = job->ins;
    const int64_t x_image = job->s.in_channels * pixels, dy_image = job->s.out_channels * pixels;
    const int64_t n = sbit__smaller(pixels - job->at, SBIT__CONV_WEIGHT_DOTS);
    const bool first = job->image == 0 && job->at == 0;
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t group = unit / quads, o = group * job->outs + unit % quads * 4;
        const int64_t rows = sbit__smaller((group + 1) * job->outs - o, 4);
        const float *x = job->x + job->image * x_image + group * ins * pixels + job->at;
        const float *dy = job->dy + job->image * dy_image + o * pixels + job->at;
        const float *row[6];
        float sums[8];
        for (int64_t k = 0; k < 4; k++) { /* what is missing is computed twice */
            row[k] = dy + sbit__smaller(k, rows - 1) * pixels;
        }
        for (int64_t i = 0; i < ins; i += 2) {
            const int64_t columns = sbit__smaller(ins - i, 2);
            row[4] = x + i * pixels;
            row[5] = row[4] + (columns - 1) * pixels;
            job->vectors->norm_dots(job->count, n, row, dy_image, x_image, sums);
            for (int64_t k = 0; k < rows * columns; k++) {
                float *to = job->dw + (o + k / columns) * ins + i + k % columns;
                const float sum = sums[k / columns * 2 + k % columns];
                *to = first ? sum : *to + sum;
            }
        }
    }
}

static void sbit__conv_weight_pointwise(sbit_ctx *ctx, sbit__conv_weight_job *job)
{
    const int64_t most = SBIT__CONV_WEIGHT_DOTS;
    const int64_t images = sbit__larger(most / sbit__larger(job->pixels, 1), 1);
    for (job->image = 0; job->image < job->s.batch; job->image += images) {
        job->count = sbit__smaller(images, job->s.batch - job->image);
        for (job->at = 0; job->at < job->pixels; job->at += most) {
            sbit__parallel_range(ctx, job->s.groups * sbit__div_up(job->outs, 4), 4,
                                 sbit__conv_weight_quads, job);
        }
    }
}

/* >>narrow groups. Unit: an input channel. */

/* A plane of dy with its elements where the windows begin in a field; zeros elsewhere. */
static void sbit__conv_weight_spread(const sbit__conv_weight_job *job, const float *dy, float *to)
{
    const sbit__conv_shape *s = &job->s;
    memset(to, 0, (size_t)job->dy_image * sizeof *to);
    for (int64_t z = 0; z < s->out[0]; z++) {
        for (int64_t y = 0; y < s->out[1]; y++, dy += s->out[2]) {
            float *row = to + (z * s->stride[0] * job->field[1] + y * s->stride[1]) * job->field[2];
            if (s->stride[2] == 1) {
                memcpy(row, dy, (size_t)s->out[2] * sizeof *row);
                continue;
            }
            for (int64_t x = 0; x < s->out[2]; x++) {
                row[x * s->stride[2]] = dy[x];
            }
        }
    }
}

static void sbit__conv_weight_channel(const sbit__conv_weight_job *job, int64_t c, float *xs,
                                      float *dys)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t plane = s->in[0] * s->in[1] * s->in[2];
    const int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    const int64_t first = c / job->ins * job->outs, images = job->images;
    for (int64_t o = first; o < first + job->outs; o++) {
        memset(job->dw + (o * job->ins + c % job->ins) * taps, 0, (size_t)taps * sizeof(float));
    }
    for (int64_t image = 0; image < s->batch; image += images) {
        const int64_t count = sbit__smaller(s->batch - image, images);
        for (int64_t n = 0; n < count; n++) {
            sbit__conv_weight_turn(job, 1, job->x + ((image + n) * s->in_channels + c) * plane,
                                   xs + n * job->x_image);
        }
        for (int64_t o = first; o < first + job->outs; o++) {
            float *dw = job->dw + (o * job->ins + c % job->ins) * taps;
            for (int64_t n = 0; n < count; n++) {
                sbit__conv_weight_spread(
                    job, job->dy + ((image + n) * s->out_channels + o) * job->pixels,
                    dys + n * job->dy_image);
            }
            for (int64_t t = 0; t < taps; t++) { /* of the last image, as far as the tap goes */
                const int64_t kx = t % s->kernel[2], ky = t / s->kernel[2] % s->kernel[1];
                const int64_t kz = t / s->kernel[2] / s->kernel[1];
                const int64_t shift =
                    (kz * s->dilation[0] * job->field[1] + ky * s->dilation[1]) * job->field[2] +
                    kx * s->dilation[2];
                dw[t] += job->kernels->f32_dot(count * job->x_image - shift, dys, xs + shift);
            }
        }
    }
}

static void sbit__conv_weight_channels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_weight_job *job = (const sbit__conv_weight_job *)user;
    char *memory = (char *)(void *)job->turned + (size_t)worker * (job->x_bytes + job->dy_bytes);
    for (int64_t c = begin; c < end; c++) {
        sbit__conv_weight_channel(job, c, (float *)(void *)memory,
                                  (float *)(void *)(memory + job->x_bytes));
    }
}

/* >>each channel by itself, channels last. Unit: some channels. */

/* The output positions along an axis whose tap k lies inside of the input. */
static void sbit__conv_weight_span(const sbit__conv_shape *s, int axis, int64_t k, int64_t *begin,
                                   int64_t *end)
{
    const int64_t at = k * s->dilation[axis] - s->pad_begin[axis], left = s->in[axis] - at;
    *begin = at < 0 ? sbit__div_up(-at, s->stride[axis]) : 0;
    *end = left > 0 ? sbit__smaller(sbit__div_up(left, s->stride[axis]), s->out[axis]) : 0;
}

/* Adds to sums [tap][channels] what an output row and a kernel row give; x: the row's begin. */
static void sbit__conv_weight_row(const sbit__conv_weight_job *job, int64_t channels,
                                  const float *dy, const float *x, float *sums)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t step = s->in_channels, pixel = s->stride[2] * step, tap = s->dilation[2] * step;
    int64_t first = 0, end = 0, middle = 0, stop = 0; /* middle..stop: pixels that see all taps */
    sbit__conv_weight_span(s, 2, 0, &middle, &end);
    sbit__conv_weight_span(s, 2, s->kernel[2] - 1, &first, &stop);
    stop = sbit__larger(stop, middle);
    const float *from = x - s->pad_begin[2] * step; /* what pixel 0's tap 0 sees */
    if (stop > middle) {
        job->vectors->last_depthwise_dots(stop - middle, channels, s->kernel[2], step,
                                          dy + middle * step, pixel, tap, from + middle * pixel, sums);
    }
    for (int64_t k = 0; k < s->kernel[2]; k++) {
        sbit__conv_weight_span(s, 2, k, &first, &end);
        for (int side = 0; side < 2; side++) {
            const int64_t at = side == 0 ? first : sbit__larger(stop, first);
            const int64_t count = (side == 0 ? sbit__smaller(middle, end) : end) - at;
            if (count > 0) {
                job->vectors->last_depthwise_dots(count, channels, 1, step, dy + at * step, pixel, tap,
                                                  from + at * pixel + k * tap, sums + k * step);
            }
        }
    }
}

static void sbit__conv_weight_each(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_weight_job *job = (const sbit__conv_weight_job *)user;
    const sbit__conv_shape *s = &job->s;
    const int64_t c = s->in_channels, taps = s->kernel[1] * s->kernel[2];
    (void)worker;
    for (int64_t at = begin * SBIT__CONV_WEIGHT_EACH; at < sbit__smaller(end * SBIT__CONV_WEIGHT_EACH, c);
         at += SBIT__CONV_WEIGHT_EACH) {
        const int64_t channels = sbit__smaller(c - at, SBIT__CONV_WEIGHT_EACH);
        float *all = job->sums + at, *sums = all + taps * c; /* of the image */
        for (int64_t t = 0; t < taps; t++) {
            memset(all + t * c, 0, (size_t)channels * sizeof *all);
        }
        for (int64_t n = 0; n < s->batch; n++) {
            for (int64_t t = 0; t < taps; t++) {
                memset(sums + t * c, 0, (size_t)channels * sizeof *sums);
            }
            for (int64_t i = 0; i < s->out[1] * s->kernel[1]; i++) {
                const int64_t k = i % s->kernel[1], y = i / s->kernel[1];
                const int64_t h = y * s->stride[1] + k * s->dilation[1] - s->pad_begin[1];
                if (h >= 0 && h < s->in[1]) {
                    sbit__conv_weight_row(job, channels,
                                          job->dy + (n * s->out[1] + y) * s->out[2] * c + at,
                                          job->x + (n * s->in[1] + h) * s->in[2] * c + at,
                                          sums + k * s->kernel[2] * c);
                }
            }
            for (int64_t t = 0; t < taps; t++) {
                job->kernels->f32_binary(SBIT__BINARY_ADD, channels, all + t * c, 1, sums + t * c, 1,
                                         all + t * c);
            }
        }
        for (int64_t i = 0; i < channels * taps; i++) {
            job->dw[at * taps + i] = all[i % taps * c + i / taps];
        }
    }
}

SBIT__FN void sbit__conv_weight_run(sbit_ctx *ctx, const sbit__conv_shape *shape, bool last,
                                    const float *x, const float *dy, float *dw, void *scratch)
{
    sbit__conv_weight_job job;
    char *memory = (char *)scratch;
    sbit__conv_weight_job_init(&job, ctx, shape, last);
    job.x = x;
    job.dy = dy;
    job.dw = dw;
    if (job.depthwise) {
        job.sums = (float *)scratch;
        sbit__parallel_range(ctx, sbit__div_up(shape->groups, SBIT__CONV_WEIGHT_EACH), 1,
                             sbit__conv_weight_each, &job);
        return;
    }
    if (job.narrow) {
        job.turned = (float *)scratch;
        sbit__parallel_range(ctx, shape->in_channels, 1, sbit__conv_weight_channels, &job);
        return;
    }
    if (job.pointwise) {
        sbit__conv_weight_pointwise(ctx, &job);
        return;
    }
    job.offsets = (int32_t *)(void *)memory;
    job.turned = (float *)(void *)(memory += job.offsets_bytes);
    job.panel = (float *)(void *)(memory += job.x_bytes);
    job.sums = (float *)(void *)(memory + job.dy_bytes);
    /* the kernel reads whole halves: what lies behind the last run must be numbers */
    if (!job.direct) {
        memset(job.turned + job.images * job.x_image, 0, (size_t)job.half * sizeof *job.turned);
    }
    sbit__conv_weight_offsets(&job);
    for (job.group = 0; job.group < shape->groups; job.group++) {
        for (job.image = 0; job.image < shape->batch; job.image += job.count) {
            job.count = sbit__smaller(job.images, shape->batch - job.image);
            job.seen = job.direct ? x + job.image * job.x_image : job.turned;
            sbit__parallel_range(ctx, job.count, 1, sbit__conv_weight_images, &job);
            sbit__parallel_range(ctx, job.panels * sbit__div_up(job.pieces, 2), 1,
                                 sbit__conv_weight_tiles, &job);
        }
        sbit__parallel_range(ctx, job.outs, 1, sbit__conv_weight_store, &job);
    }
}
