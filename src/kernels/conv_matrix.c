/* conv_matrix.c: convolution as products of weights and gathered columns. >>conv_matrix
 *
 * Called by: conv.c. Calls: the matrix tile kernel, gemm.c (packing).
 * `pixel` counts through all images of the batch, so that tiles are full although images are small.
 * A column tile is gathered into a panel just before it is used; for POINTWISE it is read from x
 * where it lies if that costs less. A tile that reaches into the next image is computed in a
 * buffer and scattered.
 */
#include "conv_private.h"

enum {
    SBIT__CONV_MOST_TILES = 32,  /* in a block */
    SBIT__CONV_DIRECT_PANELS = 8 /* of weights that read the input where it lies */
};

/* Columns of a pointwise convolution are copied when many weight panels use them, and when
 * channels lie a multiple of 1 KiB apart: then few sets of the L1 cache hold them all, and what is
 * loaded for one weight panel is gone before the next. */
static bool sbit__conv_must_gather(const sbit__conv_job *job)
{
    const int64_t apart = job->in_pixels * (int64_t)sizeof(float);
    return job->algorithm != SBIT__CONV_POINTWISE || job->panels > SBIT__CONV_DIRECT_PANELS ||
           (apart % 1024 == 0 && job->k > 16 && job->panels > 2);
}

SBIT__FN int64_t sbit__conv_panel_parts(const sbit__conv_job *job, int64_t threads)
{
    const int64_t pieces = job->s.groups * job->blocks;
    if (threads == 1 || pieces >= 4 * threads) {
        return 1;
    }
    return sbit__smaller(sbit__div_up(4 * threads, sbit__larger(pieces, 1)), job->panels);
}

SBIT__FN void sbit__conv_plan_matrix(sbit__conv_job *job, int64_t threads)
{
    const int64_t tile_m = job->kernels->tile_m, tile_n = job->kernels->tile_n;
    const int64_t kw = job->s.kernel[2];
    job->matrix.tiles = sbit__div_up(job->s.batch * job->out_pixels, tile_n);
    const int64_t depth = sbit__larger(sbit__gemm_depth(job->kernels, job->k) / kw, 1);
    job->matrix.block_rows = sbit__div_up(job->rows, sbit__div_up(job->rows, depth));
    job->matrix.gather = sbit__conv_must_gather(job);
    job->matrix.panel_bytes = sbit__cache_lines(job->matrix.block_rows * kw * tile_n);
    job->matrix.tile_bytes = sbit__cache_lines(tile_m * tile_n);
    /* Weights beyond L2: as many columns as L2 holds share each pass over them. Else as many as L1
     * holds; but pointwise input is read at least eight tiles at a time. */
    const int64_t weight_bytes = job->panels * tile_m * job->matrix.block_rows * kw * 4;
    const bool beyond = weight_bytes > SBIT__CONV_L2_BYTES;
    const int64_t room = beyond ? SBIT__CONV_L2_BYTES : SBIT__CONV_L1_BYTES;
    const int64_t least = job->algorithm == SBIT__CONV_POINTWISE ? 8 : 1;
    job->matrix.block_tiles = sbit__larger(room / (int64_t)job->matrix.panel_bytes, least);
    job->matrix.block_tiles = sbit__smaller(job->matrix.block_tiles, SBIT__CONV_MOST_TILES);
    job->matrix.block_tiles =
        sbit__larger(sbit__smaller(job->matrix.block_tiles, job->matrix.tiles), 1);
    job->weights_outside =
        beyond || job->matrix.block_tiles * (int64_t)job->matrix.panel_bytes <= room;
    job->blocks = sbit__div_up(job->matrix.tiles, job->matrix.block_tiles);
    job->panel_parts = sbit__conv_panel_parts(job, threads);
    job->units = job->s.groups * job->blocks * job->panel_parts;
    job->shared_bytes = sbit__cache_lines(
        sbit__div_up(job->rows * (int64_t)sizeof(sbit__conv_row), (int64_t)sizeof(float)));
    job->worker_bytes = job->matrix.panel_bytes * (size_t)job->matrix.block_tiles;
    job->worker_bytes += 2 * job->matrix.tile_bytes;
}

static sbit__conv_row *sbit__conv_table(const sbit__conv_job *job)
{
    return (sbit__conv_row *)(void *)job->scratch;
}

SBIT__FN void sbit__conv_share_matrix(const sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    sbit__conv_row *row = sbit__conv_table(job);
    for (int64_t c = 0; c < job->in_group; c++) {
        for (int64_t kz = 0; kz < s->kernel[0]; kz++) {
            for (int64_t ky = 0; ky < s->kernel[1]; ky++, row++) {
                row->z = (int32_t)(kz * s->dilation[0]);
                row->y = (int32_t)(ky * s->dilation[1]);
                row->offset = c * job->in_pixels + (row->z * s->in[1] + row->y) * s->in[2];
            }
        }
    }
}

/* >>gathering: columns first..first+count of a group, kernel rows r0..r1, as panel[k][tile_n]. */

/* Adjacent columns that lie in one output row, and where their input begins. */
typedef struct sbit__conv_span {
    int64_t count;
    int64_t base; /* of kernel position 0 in channel 0 of the group; may be outside */
    int64_t z, y, x;
} sbit__conv_span;

static sbit__conv_span sbit__conv_span_at(const sbit__conv_job *job, int64_t group, int64_t pixel,
                                          int64_t count)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t image = pixel / job->out_pixels, rest = pixel % job->out_pixels;
    const int64_t ox = rest % s->out[2], oy = rest / s->out[2] % s->out[1];
    const int64_t oz = rest / s->out[2] / s->out[1];
    sbit__conv_span span;
    span.count = sbit__smaller(count, s->out[2] - ox);
    span.z = oz * s->stride[0] - s->pad_begin[0];
    span.y = oy * s->stride[1] - s->pad_begin[1];
    span.x = ox * s->stride[2] - s->pad_begin[2];
    span.base = (image * s->in_channels + group * job->in_group) * job->in_pixels +
                (span.z * s->in[1] + span.y) * s->in[2] + span.x;
    return span;
}

/* A span with the kernel rows that are gathered for it. */
typedef struct sbit__conv_strand {
    const sbit__conv_row *row, *row_end; /* kernel rows */
    const float *x;
    int64_t base; /* in x, of a row at offset 0 and kernel column 0 */
    int64_t n, kw, stride, dilation;
    float *to; /* the first row's place in the panel */
    int64_t tile_n;
    int64_t z, y;
    uint64_t depth, height;
} sbit__conv_strand;

/* `piece` (a constant) numbers at `from`, `from + stride` ... */
SBIT__INLINE void sbit__conv_pick(float *to, const float *from, int64_t piece, int64_t stride)
{
    if (stride == 1) {
        memcpy(to, from, (size_t)piece * sizeof(float));
        return;
    }
    for (int64_t i = 0; i + 4 <= piece; i += 4, from += 4 * stride) {
        to[i] = from[0];
        to[i + 1] = from[stride];
        to[i + 2] = from[2 * stride];
        to[i + 3] = from[3 * stride];
    }
    for (int64_t i = piece / 4 * 4; i < piece; i++, from += stride) {
        to[i] = *from;
    }
}

/* Columns `piece` to twice `piece` of them: two pieces that may overlap; what lies left and right
 * of the image is copied too. All kernel columns of a row at once: they read the same cache lines.
 */
SBIT__INLINE void sbit__conv_gather_pieces(const sbit__conv_strand *s, int64_t piece,
                                           int64_t stride)
{
    const sbit__conv_strand t = *s; /* not read again after each store */
    const int64_t second = t.n - piece;
    float *to = t.to;
    for (const sbit__conv_row *row = t.row; row != t.row_end; row++) {
        const float *from = t.x + (t.base + row->offset);
        const bool inside =
            (uint64_t)(t.z + row->z) < t.depth && (uint64_t)(t.y + row->y) < t.height;
        for (int64_t kx = 0; kx < t.kw; kx++, to += t.tile_n, from += t.dilation) {
            if (inside) {
                sbit__conv_pick(to, from, piece, stride);
                sbit__conv_pick(to + second, from + second * stride, piece, stride);
            } else {
                sbit__conv_zero(to, t.n);
            }
        }
    }
}

/* Columns begin..end of kernel column kx lie outside of the image. Column after column: mostly
 * there is one, and rows of one would become calls of memset. */
static void sbit__conv_clear(const sbit__conv_strand *s, int64_t kx, int64_t begin, int64_t end)
{
    const int64_t rows = s->row_end - s->row, step = s->kw * s->tile_n;
    for (int64_t i = begin; i < end; i++) {
        float *to = s->to + kx * s->tile_n + i;
        for (int64_t r = 0; r < rows; r++) {
            to[r * step] = 0.0f;
        }
    }
}

/* Where copying what lies outside of the image's rows would leave x. */
static void sbit__conv_gather_slowly(const sbit__conv_strand *s, int64_t x, int64_t width)
{
    float *to = s->to;
    for (const sbit__conv_row *row = s->row; row != s->row_end; row++) {
        const bool inside =
            (uint64_t)(s->z + row->z) < s->depth && (uint64_t)(s->y + row->y) < s->height;
        for (int64_t kx = 0; kx < s->kw; kx++, to += s->tile_n) {
            for (int64_t i = 0; i < s->n; i++) {
                const int64_t shift = kx * s->dilation + i * s->stride;
                const bool here = inside && x + shift >= 0 && x + shift < width;
                to[i] = here ? s->x[s->base + row->offset + shift] : 0.0f;
            }
        }
    }
}

static void sbit__conv_gather_strand(const sbit__conv_strand *s)
{
    if (s->stride == 1 && s->n > 16) {
        sbit__conv_gather_pieces(s, 16, 1);
    } else if (s->stride == 1 && s->n > 8) {
        sbit__conv_gather_pieces(s, 8, 1);
    } else if (s->stride == 1 && s->n > 4) {
        sbit__conv_gather_pieces(s, 4, 1);
    } else if (s->n > 16) {
        sbit__conv_gather_pieces(s, 16, s->stride);
    } else if (s->n > 8) {
        sbit__conv_gather_pieces(s, 8, s->stride);
    } else if (s->n > 4) {
        sbit__conv_gather_pieces(s, 4, s->stride);
    } else if (s->n > 2) {
        sbit__conv_gather_pieces(s, 2, s->stride);
    } else {
        sbit__conv_gather_pieces(s, 1, s->stride);
    }
}

static void sbit__conv_gather_span(const sbit__conv_job *job, const sbit__conv_strand *s, int64_t x)
{
    const int64_t x_size = job->s.batch * job->s.in_channels * job->in_pixels;
    const int64_t width = job->s.in[2], reach = (s->kw - 1) * s->dilation;
    if (s->base + s->row->offset < 0 ||
        s->base + s->row_end[-1].offset + reach + (s->n - 1) * s->stride >= x_size) {
        sbit__conv_gather_slowly(s, x, width);
        return;
    }
    sbit__conv_gather_strand(s);
    if (x >= 0 && x + reach + (s->n - 1) * s->stride < width) {
        return;
    }
    for (int64_t kx = 0; kx < s->kw; kx++, x += s->dilation) {
        const int64_t left = x >= 0 ? 0 : sbit__smaller(sbit__div_up(-x, s->stride), s->n);
        const int64_t end = x >= width ? 0 : sbit__smaller((width - 1 - x) / s->stride + 1, s->n);
        sbit__conv_clear(s, kx, 0, left);
        sbit__conv_clear(s, kx, sbit__larger(left, end), s->n);
    }
}

static void sbit__conv_gather(const sbit__conv_job *job, int64_t group, int64_t pixel,
                              int64_t count, int64_t r0, int64_t r1, float *panel)
{
    sbit__conv_strand s;
    s.row = sbit__conv_table(job) + r0;
    s.row_end = sbit__conv_table(job) + r1;
    s.x = job->x;
    s.kw = job->s.kernel[2];
    s.stride = job->s.stride[2];
    s.dilation = job->s.dilation[2];
    s.tile_n = job->kernels->tile_n;
    s.depth = (uint64_t)job->s.in[0];
    s.height = (uint64_t)job->s.in[1];
    for (int64_t column = 0; column < count; column += s.n) {
        const sbit__conv_span span = sbit__conv_span_at(job, group, pixel + column, count - column);
        s.n = span.count;
        s.z = span.z;
        s.y = span.y;
        s.base = span.base;
        s.to = panel + column;
        sbit__conv_gather_span(job, &s, span.x);
    }
}

typedef struct sbit__conv_unit {
    int64_t group, panel0, panel1, tile0, tile1;
    int64_t r0, r1; /* kernel rows of the block of k */
    float *columns, *sums, *residual;
} sbit__conv_unit;

/* Moves a tile between y's layout and a buffer [rows][tile_n]. */
static void sbit__conv_scatter(const sbit__conv_job *job, int64_t channel, int64_t rows,
                               int64_t pixel, int64_t count, const float *tile)
{
    for (int64_t j = 0; j < count; j++, pixel++) {
        const int64_t image = pixel / job->out_pixels, at = pixel % job->out_pixels;
        float *y = job->y + (image * job->s.out_channels + channel) * job->out_pixels + at;
        for (int64_t i = 0; i < rows; i++) {
            y[i * job->out_pixels] = tile[i * job->kernels->tile_n + j];
        }
    }
}

static void sbit__conv_collect(const sbit__conv_job *job, const float *from, int64_t channel,
                               int64_t rows, int64_t pixel, int64_t count, float *tile)
{
    for (int64_t j = 0; j < count; j++, pixel++) {
        const int64_t image = pixel / job->out_pixels, at = pixel % job->out_pixels;
        const float *y = from + (image * job->s.out_channels + channel) * job->out_pixels + at;
        for (int64_t i = 0; i < rows; i++) {
            tile[i * job->kernels->tile_n + j] = y[i * job->out_pixels];
        }
    }
}

/* Where the columns of a tile come from and go to. */
typedef struct sbit__conv_columns {
    int64_t pixel, n; /* the first, counted through all images; how many */
    int64_t place;    /* of the first in channel 0 of its image in y */
    bool split;       /* they reach into the next image */
    const float *b;
    int64_t ldb;
} sbit__conv_columns;

static sbit__conv_columns sbit__conv_columns_of(const sbit__conv_job *job, const sbit__conv_unit *u,
                                                int64_t tile)
{
    const int64_t tile_n = job->kernels->tile_n;
    sbit__conv_columns t;
    t.pixel = tile * tile_n;
    t.n = sbit__smaller(job->s.batch * job->out_pixels - t.pixel, tile_n);
    const int64_t image = t.pixel / job->out_pixels, at = t.pixel - image * job->out_pixels;
    t.place = image * job->s.out_channels * job->out_pixels + at;
    t.split = at + t.n > job->out_pixels;
    t.b = u->columns + (tile - u->tile0) * (int64_t)(job->matrix.panel_bytes / sizeof(float));
    t.ldb = tile_n;
    if (!job->matrix.gather && !t.split) {
        const int64_t channel = image * job->s.in_channels + u->group * job->in_group + u->r0;
        t.b = job->x + channel * job->in_pixels + at;
        t.ldb = job->in_pixels;
    }
    return t;
}

static void sbit__conv_tile(const sbit__conv_job *job, const sbit__conv_unit *u, int64_t panel,
                            const sbit__conv_columns *t)
{
    const sbit_kernels *kernels = job->kernels;
    const int64_t tile_m = kernels->tile_m, tile_n = kernels->tile_n, kw = job->s.kernel[2];
    const int64_t m = sbit__smaller(job->out_group - panel * tile_m, tile_m);
    const int64_t channel = u->group * job->out_group + panel * tile_m;
    const int64_t k = (u->r1 - u->r0) * kw, place = t->place + channel * job->out_pixels;
    const bool add = u->r0 > 0, last = u->r1 == job->rows;
    const float *a =
        job->packed + ((u->group * job->panels + panel) * job->k + u->r0 * kw) * tile_m;
    const float *bias = last && job->bias != NULL ? job->bias + channel : NULL;
    sbit__epilogue ep;
    memset(&ep, 0, sizeof(ep));
    if (last && job->epilogue != NULL) {
        ep = *job->epilogue;
    }
    if (!t->split) {
        ep.residual = ep.residual != NULL ? ep.residual + place : NULL;
        kernels->f32_gemm_tile(m, t->n, k, a, t->b, t->ldb, job->y + place, job->out_pixels, add,
                               bias, true, &ep);
        return;
    }
    if (add) {
        sbit__conv_collect(job, job->y, channel, m, t->pixel, t->n, u->sums);
    }
    if (ep.residual != NULL) {
        sbit__conv_collect(job, ep.residual, channel, m, t->pixel, t->n, u->residual);
        ep.residual = u->residual;
    }
    kernels->f32_gemm_tile(m, t->n, k, a, t->b, t->ldb, u->sums, tile_n, add, bias, true, &ep);
    sbit__conv_scatter(job, channel, m, t->pixel, t->n, u->sums);
}

/* Fills u->columns for rows r0..r1 of the block's tiles. */
static void sbit__conv_gather_block(const sbit__conv_job *job, const sbit__conv_unit *u)
{
    const int64_t tile_n = job->kernels->tile_n, first = u->tile0 * tile_n;
    const int64_t end = sbit__smaller(u->tile1 * tile_n, job->s.batch * job->out_pixels);
    const int64_t image = first / job->out_pixels, at = first % job->out_pixels;
    const int64_t panel_stride = (int64_t)(job->matrix.panel_bytes / sizeof(float));
    if (job->algorithm == SBIT__CONV_POINTWISE && at + end - first <= job->out_pixels) {
        if (job->matrix.gather) {
            const int64_t channel = image * job->s.in_channels + u->group * job->in_group + u->r0;
            sbit__pack_panels(end - first, tile_n, u->r1 - u->r0,
                              job->x + channel * job->in_pixels + at, 1, job->in_pixels, 1.0f,
                              u->columns, panel_stride);
        }
        return;
    }
    float *panel = u->columns;
    for (int64_t pixel = first; pixel < end; pixel += tile_n, panel += panel_stride) {
        const int64_t n = sbit__smaller(end - pixel, tile_n);
        if (job->matrix.gather || pixel % job->out_pixels + n > job->out_pixels) {
            sbit__conv_gather(job, u->group, pixel, n, u->r0, u->r1, panel);
        }
    }
}

static void sbit__conv_unit_run(const sbit__conv_job *job, sbit__conv_unit *u)
{
    const int64_t tiles = u->tile1 - u->tile0, panels = u->panel1 - u->panel0;
    for (u->r0 = 0; u->r0 < job->rows; u->r0 = u->r1) {
        u->r1 = sbit__smaller(job->rows, u->r0 + job->matrix.block_rows);
        sbit__conv_gather_block(job, u);
        for (int64_t i = 0; i < panels * tiles; i++) {
            const int64_t tile = job->weights_outside ? i % tiles : i / panels;
            const int64_t panel = job->weights_outside ? i / tiles : i % panels;
            const sbit__conv_columns columns = sbit__conv_columns_of(job, u, u->tile0 + tile);
            sbit__conv_tile(job, u, u->panel0 + panel, &columns);
        }
    }
}

SBIT__FN void sbit__conv_matrix_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_job *job = (const sbit__conv_job *)task;
    unsigned char *scratch = job->scratch + job->shared_bytes + (size_t)worker * job->worker_bytes;
    sbit__conv_unit u;
    memset(&u, 0, sizeof(u));
    u.sums = (float *)(void *)scratch;
    u.residual = (float *)(void *)(scratch + job->matrix.tile_bytes);
    u.columns = (float *)(void *)(scratch + 2 * job->matrix.tile_bytes);
    for (int64_t index = begin; index < end; index++) {
        const int64_t part = index % job->panel_parts;
        const int64_t block = index / job->panel_parts % job->blocks;
        u.group = index / job->panel_parts / job->blocks;
        u.panel0 = part * job->panels / job->panel_parts;
        u.panel1 = (part + 1) * job->panels / job->panel_parts;
        u.tile0 = block * job->matrix.block_tiles;
        u.tile1 = sbit__smaller(u.tile0 + job->matrix.block_tiles, job->matrix.tiles);
        sbit__conv_unit_run(job, &u);
    }
}
