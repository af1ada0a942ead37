/* conv.c: convolution in 1 to 3 dimensions, [N,C,D,H,W]. >>conv
 *
 * Called by: ops (Conv, ConvTranspose's gradient form). Calls: kernels, gemm.c (packing), parallel.
 *
 * POINTWISE and IM2COL are matrix products for each group:
 *     y[out_channel][pixel] = w[out_channel][k] * columns[k][pixel],  k = (channel, kz, ky, kx)
 * where `pixel` counts through all images of the batch, so that tiles are full although images are
 * small. A column tile is gathered into a panel just before it is used; for POINTWISE it is read
 * from x where it lies if that costs less. A tile that reaches into the next image is computed in
 * a buffer and scattered.
 *
 * DEPTHWISE and DIRECT compute each output row from the rows it depends on, taken from a strip of
 * the input that was copied with its padding. Rows that are too narrow for vectors are computed
 * together: the strip is read as one long row and what lies between two rows is thrown away.
 *
 * Neither threads nor strips change the order in which a sum's terms are added.
 */
#include "rows_private.h"

enum {
    SBIT__CONV_L1_BYTES = 16 * 1024,
    SBIT__CONV_L2_BYTES = 192 * 1024,
    SBIT__CONV_DIRECT_CHANNELS = 4, /* out of a group, at most */
    SBIT__CONV_DIRECT_ROWS = 1024,  /* rows that an output row depends on, at most */
    SBIT__CONV_NARROW = 16,         /* rows below are computed together */
    SBIT__CONV_WORTH_A_THREAD = 64 * 1024 /* multiplications */
};

/* One row of a kernel: (channel, kz, ky). */
typedef struct sbit__conv_row {
    int64_t offset; /* from x's element for kernel position 0 in channel 0 of the group */
    int32_t z, y;   /* kz, ky times dilation */
} sbit__conv_row;

typedef struct sbit__conv_job {
    const sbit_kernels *kernels;
    const sbit__conv *conv;
    sbit__conv_shape s;
    const float *x, *packed, *bias;
    const sbit__epilogue *epilogue;
    float *y;
    unsigned char *scratch;
    int64_t in_group, out_group; /* channels of a group */
    int64_t in_pixels, out_pixels;
    int64_t rows, k; /* kernel rows of a group's input; times the kernel's width */
    size_t worker_bytes;
    /* matrix form */
    int64_t panels, tiles; /* of a group's weights; of all pixels */
    int64_t block_rows;    /* kernel rows in a block of k */
    int64_t block_tiles, blocks, panel_parts;
    bool gather;
    sbit__conv_row *row_table;
    size_t table_bytes, tile_bytes, panel_bytes;
    /* row form */
    int64_t strip, strips;                      /* output rows in a strip; strips in a plane */
    int64_t pad_rows, pad_width;                /* of a strip of the input */
    size_t strip_bytes, narrow_bytes;
} sbit__conv_job;

/* >>plan */
static bool sbit__conv_is_pointwise(const sbit__conv_shape *s)
{
    for (int d = 0; d < 3; d++) {
        if (s->kernel[d] != 1 || s->stride[d] != 1 || s->pad_begin[d] != 0 ||
            s->in[d] != s->out[d]) {
            return false;
        }
    }
    return true;
}

static sbit__conv_algorithm sbit__conv_choose(const sbit__conv_shape *s)
{
    const int64_t in_group = s->in_channels / s->groups, out_group = s->out_channels / s->groups;
    const int64_t rows = in_group * s->kernel[0] * s->kernel[1];
    if (s->groups > 1 && out_group <= SBIT__CONV_DIRECT_CHANNELS &&
        rows <= SBIT__CONV_DIRECT_ROWS) {
        return in_group == 1 && s->kernel[0] == 1 ? SBIT__CONV_DEPTHWISE : SBIT__CONV_DIRECT;
    }
    return sbit__conv_is_pointwise(s) ? SBIT__CONV_POINTWISE : SBIT__CONV_IM2COL;
}

static bool sbit__conv_by_rows(const sbit__conv *conv)
{
    return conv->algorithm == SBIT__CONV_DEPTHWISE || conv->algorithm == SBIT__CONV_DIRECT;
}

/* Columns of a pointwise convolution are copied when channels lie a multiple of 1 KiB apart: then
 * few sets of the L1 cache hold them all, and what is loaded for one weight panel is gone before
 * the next. */
static bool sbit__conv_must_gather(const sbit__conv_job *job)
{
    const int64_t apart = job->in_pixels * (int64_t)sizeof(float);
    return job->conv->algorithm != SBIT__CONV_POINTWISE ||
           (apart % 1024 == 0 && job->k > 16 && job->panels > 2);
}

static void sbit__conv_plan_matrix(sbit__conv_job *job, int64_t threads)
{
    const int64_t tile_m = job->kernels->tile_m, tile_n = job->kernels->tile_n;
    const int64_t kw = job->s.kernel[2];
    job->panels = sbit__div_up(job->out_group, tile_m);
    job->tiles = sbit__div_up(job->s.batch * job->out_pixels, tile_n);
    const int64_t depth = sbit__larger(sbit__gemm_depth(job->kernels, job->k) / kw, 1);
    job->block_rows = sbit__div_up(job->rows, sbit__div_up(job->rows, depth));
    job->gather = sbit__conv_must_gather(job);
    job->panel_bytes = sbit__cache_lines(job->block_rows * kw * tile_n);
    job->tile_bytes = sbit__cache_lines(tile_m * tile_n);
    /* Weights that stay in L2: columns are used from L1 at once. Else: as many columns as L2 holds
     * for each pass over the weights. */
    const int64_t weight_bytes = job->panels * tile_m * job->block_rows * kw * 4;
    const int64_t room =
        weight_bytes > SBIT__CONV_L2_BYTES ? SBIT__CONV_L2_BYTES : SBIT__CONV_L1_BYTES;
    job->block_tiles = sbit__larger(room / (int64_t)job->panel_bytes, 1);
    job->block_tiles = sbit__larger(sbit__smaller(job->block_tiles, job->tiles), 1);
    job->blocks = sbit__div_up(job->tiles, job->block_tiles);
    job->panel_parts = 1;
    if (threads > 1 && job->s.groups * job->blocks < 4 * threads) {
        const int64_t wanted = sbit__div_up(4 * threads, job->s.groups * job->blocks);
        job->panel_parts = sbit__smaller(wanted, job->panels);
    }
    job->table_bytes = sbit__cache_lines(
        sbit__div_up(job->rows * (int64_t)sizeof(sbit__conv_row), (int64_t)sizeof(float)));
    job->worker_bytes = job->panel_bytes * (size_t)job->block_tiles + 2 * job->tile_bytes;
}

static void sbit__conv_plan_rows(sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t reach = (s->kernel[1] - 1) * s->dilation[1] + 1;
    job->pad_width = (s->out[2] - 1) * s->stride[2] + (s->kernel[2] - 1) * s->dilation[2] + 1;
    const int64_t row_bytes = job->in_group * s->kernel[0] * job->pad_width * 4;
    /* As many rows as L1 holds, but enough to make the overlap of strips small. */
    const int64_t room = SBIT__CONV_L1_BYTES / sbit__larger(row_bytes, 1) - reach;
    job->strip = sbit__larger(room / s->stride[1] + 1, 8);
    job->strip = sbit__larger(sbit__smaller(job->strip, s->out[1]), 1);
    job->strips = sbit__div_up(s->out[1], job->strip);
    job->pad_rows = (job->strip - 1) * s->stride[1] + reach;
    job->strip_bytes =
        sbit__cache_lines(job->in_group * s->kernel[0] * job->pad_rows * job->pad_width);
    job->narrow_bytes = sbit__cache_lines(job->strip * job->pad_width);
    const int64_t pointer_bytes = job->rows * (int64_t)sizeof(const float *);
    job->worker_bytes = job->strip_bytes + job->narrow_bytes +
                        sbit__cache_lines(sbit__div_up(pointer_bytes, 4));
}

static void sbit__conv_job_init(sbit__conv_job *job, const sbit_ctx *ctx, const sbit__conv *conv)
{
    memset(job, 0, sizeof(*job));
    const sbit__conv_shape *s = &conv->shape;
    job->kernels = sbit__kernels(ctx);
    job->conv = conv;
    job->s = *s;
    job->in_group = s->in_channels / s->groups;
    job->out_group = s->out_channels / s->groups;
    job->in_pixels = s->in[0] * s->in[1] * s->in[2];
    job->out_pixels = s->out[0] * s->out[1] * s->out[2];
    job->rows = job->in_group * s->kernel[0] * s->kernel[1];
    job->k = job->rows * s->kernel[2];
    if (sbit__conv_by_rows(conv)) {
        sbit__conv_plan_rows(job);
    } else {
        sbit__conv_plan_matrix(job, sbit_ctx_threads(ctx));
    }
}

SBIT__FN void sbit__conv_plan(const sbit_ctx *ctx, const sbit__conv_shape *shape, sbit__conv *out)
{
    memset(out, 0, sizeof(*out));
    out->shape = *shape;
    out->algorithm = sbit__conv_choose(shape);
    sbit__conv_job job;
    sbit__conv_job_init(&job, ctx, out);
    const int64_t floats = sbit__conv_by_rows(out)
                               ? job.out_group * job.k
                               : job.panels * job.kernels->tile_m * job.k;
    out->packed_bytes = sbit__cache_lines(shape->groups * floats);
    out->scratch_bytes = job.table_bytes + job.worker_bytes * (size_t)sbit_ctx_threads(ctx);
}

SBIT__FN void sbit__conv_pack(const sbit_ctx *ctx, const sbit__conv *conv, const float *weights,
                              float *packed)
{
    sbit__conv_job job;
    sbit__conv_job_init(&job, ctx, conv);
    if (sbit__conv_by_rows(conv)) {
        memcpy(packed, weights, (size_t)(job.s.out_channels * job.k) * sizeof(float));
        return;
    }
    const int64_t tile = job.kernels->tile_m;
    for (int64_t g = 0; g < job.s.groups; g++, weights += job.out_group * job.k) {
        for (int64_t i = 0; i < job.out_group; i += tile, packed += tile * job.k) {
            sbit__pack_panel(sbit__smaller(job.out_group - i, tile), tile, job.k,
                             weights + i * job.k, job.k, 1, 1.0f, packed);
        }
    }
}

/* >>gathering: columns first..first+count of a group, kernel rows r0..r1, as panel[k][tile_n]. */

/* Adjacent columns that lie in one output row, and where their input begins. */
typedef struct sbit__conv_span {
    int64_t column, count;
    int64_t base; /* of kernel position 0 in channel 0 of the group; may be outside */
    int64_t z, y, x;
} sbit__conv_span;

static sbit__conv_span sbit__conv_span_at(const sbit__conv_job *job, int64_t group, int64_t pixel,
                                          int64_t column, int64_t count)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t image = pixel / job->out_pixels, rest = pixel % job->out_pixels;
    const int64_t ox = rest % s->out[2], oy = rest / s->out[2] % s->out[1];
    const int64_t oz = rest / s->out[2] / s->out[1];
    sbit__conv_span span;
    span.column = column;
    span.count = sbit__smaller(count, s->out[2] - ox);
    span.z = oz * s->stride[0] - s->pad_begin[0];
    span.y = oy * s->stride[1] - s->pad_begin[1];
    span.x = ox * s->stride[2] - s->pad_begin[2];
    span.base = (image * s->in_channels + group * job->in_group) * job->in_pixels +
                (span.z * s->in[1] + span.y) * s->in[2] + span.x;
    return span;
}

SBIT__INLINE void sbit__conv_copy(float *to, const float *from, int64_t n, int64_t stride)
{
    if (stride != 1) {
        for (int64_t i = 0; i < n; i++) {
            to[i] = from[i * stride];
        }
        return;
    }
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
    for (int64_t i = 0; i < n; i++) {
        to[i] = 0.0f;
    }
}

/* One kernel column of a span: `to` is the first kernel row's place in the panel, `step` leads to
 * the next; columns first..end lie inside the image's rows. */
SBIT__INLINE void sbit__conv_gather_span(const sbit__conv_job *job, const sbit__conv_span *span,
                                         int64_t r0, int64_t r1, int64_t shift, int64_t first,
                                         int64_t end, int64_t count, int64_t stride, float *to,
                                         int64_t step)
{
    const uint64_t depth = (uint64_t)job->s.in[0], height = (uint64_t)job->s.in[1];
    for (int64_t r = r0; r < r1; r++, to += step) {
        const sbit__conv_row *row = &job->row_table[r];
        if ((uint64_t)(span->z + row->z) >= depth || (uint64_t)(span->y + row->y) >= height) {
            sbit__conv_zero(to, count);
            continue;
        }
        const float *from = job->x + (span->base + row->offset + shift + first * stride);
        sbit__conv_zero(to, first);
        sbit__conv_copy(to + first, from, end - first, stride);
        sbit__conv_zero(to + end, count - end);
    }
}

static void sbit__conv_gather(const sbit__conv_job *job, int64_t group, int64_t pixel,
                              int64_t count, int64_t r0, int64_t r1, float *panel)
{
    const int64_t kw = job->s.kernel[2], stride = job->s.stride[2], width = job->s.in[2];
    const int64_t tile_n = job->kernels->tile_n, step = kw * tile_n;
    for (int64_t column = 0; column < count;) {
        const sbit__conv_span span =
            sbit__conv_span_at(job, group, pixel + column, column, count - column);
        const int64_t n = span.count;
        for (int64_t kx = 0; kx < kw; kx++) {
            const int64_t shift = kx * job->s.dilation[2], x = span.x + shift;
            int64_t first = x >= 0 ? 0 : sbit__smaller(sbit__div_up(-x, stride), n);
            int64_t end = x >= width ? 0 : sbit__smaller((width - 1 - x) / stride + 1, n);
            end = sbit__larger(end, first);
            float *to = panel + kx * tile_n + column;
            if (stride == 1 && end - first == 16 && n == 16) {
                sbit__conv_gather_span(job, &span, r0, r1, shift, 0, 16, 16, 1, to, step);
            } else if (stride == 1 && end - first == 8 && n == 8) {
                sbit__conv_gather_span(job, &span, r0, r1, shift, 0, 8, 8, 1, to, step);
            } else if (first == end) {
                for (int64_t r = r0; r < r1; r++, to += step) {
                    sbit__conv_zero(to, n);
                }
            } else {
                sbit__conv_gather_span(job, &span, r0, r1, shift, first, end, n, stride, to, step);
            }
        }
        column += n;
    }
}

static void sbit__conv_fill_table(const sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    sbit__conv_row *row = job->row_table;
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

/* >>matrix form */
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
    int64_t pixel, n;   /* the first, counted through all images; how many */
    int64_t place;      /* of the first in channel 0 of its image in y */
    bool split;         /* they reach into the next image */
    const float *b;
    int64_t ldb;
} sbit__conv_columns;

static sbit__conv_columns sbit__conv_columns_of(const sbit__conv_job *job,
                                                const sbit__conv_unit *u, int64_t tile)
{
    const int64_t tile_n = job->kernels->tile_n;
    sbit__conv_columns t;
    t.pixel = tile * tile_n;
    t.n = sbit__smaller(job->s.batch * job->out_pixels - t.pixel, tile_n);
    const int64_t image = t.pixel / job->out_pixels, at = t.pixel - image * job->out_pixels;
    t.place = image * job->s.out_channels * job->out_pixels + at;
    t.split = at + t.n > job->out_pixels;
    t.b = u->columns + (tile - u->tile0) * (int64_t)(job->panel_bytes / sizeof(float));
    t.ldb = tile_n;
    if (!job->gather && !t.split) {
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

static void sbit__conv_unit_run(const sbit__conv_job *job, sbit__conv_unit *u)
{
    for (u->r0 = 0; u->r0 < job->rows; u->r0 = u->r1) {
        u->r1 = sbit__smaller(job->rows, u->r0 + job->block_rows);
        for (int64_t tile = u->tile0; tile < u->tile1; tile++) {
            const sbit__conv_columns t = sbit__conv_columns_of(job, u, tile);
            if (job->gather || t.split) {
                float *panel = u->columns + (t.b - u->columns);
                sbit__conv_gather(job, u->group, t.pixel, t.n, u->r0, u->r1, panel);
            }
        }
        /* Columns of L1 size meet all weights one after another; many columns share the weights. */
        if (u->tile1 - u->tile0 == 1) {
            const sbit__conv_columns t = sbit__conv_columns_of(job, u, u->tile0);
            for (int64_t panel = u->panel0; panel < u->panel1; panel++) {
                sbit__conv_tile(job, u, panel, &t);
            }
            continue;
        }
        for (int64_t panel = u->panel0; panel < u->panel1; panel++) {
            for (int64_t tile = u->tile0; tile < u->tile1; tile++) {
                const sbit__conv_columns t = sbit__conv_columns_of(job, u, tile);
                sbit__conv_tile(job, u, panel, &t);
            }
        }
    }
}

static void sbit__conv_matrix_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_job *job = (const sbit__conv_job *)task;
    unsigned char *scratch = job->scratch + job->table_bytes + (size_t)worker * job->worker_bytes;
    sbit__conv_unit u;
    memset(&u, 0, sizeof(u));
    u.sums = (float *)(void *)scratch;
    u.residual = (float *)(void *)(scratch + job->tile_bytes);
    u.columns = (float *)(void *)(scratch + 2 * job->tile_bytes);
    for (int64_t index = begin; index < end; index++) {
        const int64_t part = index % job->panel_parts;
        const int64_t block = index / job->panel_parts % job->blocks;
        u.group = index / job->panel_parts / job->blocks;
        u.panel0 = part * job->panels / job->panel_parts;
        u.panel1 = (part + 1) * job->panels / job->panel_parts;
        u.tile0 = block * job->block_tiles;
        u.tile1 = sbit__smaller(u.tile0 + job->block_tiles, job->tiles);
        sbit__conv_unit_run(job, &u);
    }
}

/* >>row form */
typedef struct sbit__conv_strip {
    int64_t image, group, oz, oy, rows; /* output rows oy..oy+rows */
    float *input, *narrow;
    const float **pointers;
} sbit__conv_strip;

/* One input row with its padding. */
static void sbit__conv_copy_row(const sbit__conv_job *job, const float *plane, int64_t y, float *to)
{
    const int64_t left = sbit__smaller(job->s.pad_begin[2], job->pad_width);
    const int64_t n = sbit__smaller(job->s.in[2], job->pad_width - left);
    if (plane == NULL || y < 0 || y >= job->s.in[1]) {
        sbit__conv_zero(to, job->pad_width);
        return;
    }
    sbit__conv_zero(to, left);
    sbit__conv_copy(to + left, plane + y * job->s.in[2], n, 1);
    sbit__conv_zero(to + left + n, job->pad_width - left - n);
}

/* strip->input[channel][kz][row][pad_width] */
static void sbit__conv_copy_strip(const sbit__conv_job *job, const sbit__conv_strip *strip)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t y0 = strip->oy * s->stride[1] - s->pad_begin[1];
    const int64_t rows =
        (strip->rows - 1) * s->stride[1] + (s->kernel[1] - 1) * s->dilation[1] + 1;
    const int64_t channel = strip->image * s->in_channels + strip->group * job->in_group;
    float *to = strip->input;
    for (int64_t c = 0; c < job->in_group; c++) {
        const float *volume = job->x + (channel + c) * job->in_pixels;
        for (int64_t kz = 0; kz < s->kernel[0]; kz++) {
            const int64_t z = strip->oz * s->stride[0] - s->pad_begin[0] + kz * s->dilation[0];
            const float *plane =
                z >= 0 && z < s->in[0] ? volume + z * s->in[1] * s->in[2] : NULL;
            for (int64_t y = 0; y < rows; y++) {
                sbit__conv_copy_row(job, plane, y0 + y, to + y * job->pad_width);
            }
            to += job->pad_rows * job->pad_width;
        }
    }
}

/* The rows that output row `row` of the strip depends on. */
static void sbit__conv_point(const sbit__conv_job *job, const sbit__conv_strip *strip, int64_t row)
{
    const float **pointer = strip->pointers;
    const float *plane = strip->input + row * job->s.stride[1] * job->pad_width;
    for (int64_t c = 0; c < job->in_group * job->s.kernel[0]; c++) {
        for (int64_t ky = 0; ky < job->s.kernel[1]; ky++) {
            *pointer++ = plane + ky * job->s.dilation[1] * job->pad_width;
        }
        plane += job->pad_rows * job->pad_width;
    }
}

static void sbit__conv_row_run(const sbit__conv_job *job, const sbit__conv_strip *strip,
                               int64_t channel, int64_t out_w, float *y, const sbit__epilogue *ep)
{
    job->kernels->f32_depthwise_row(
        out_w, job->rows, job->s.kernel[2], job->s.stride[2], job->s.dilation[2], strip->pointers,
        job->packed + channel * job->k, job->bias != NULL ? job->bias[channel] : 0.0f, y, ep);
}

static float *sbit__conv_strip_y(const sbit__conv_job *job, const sbit__conv_strip *strip,
                                 int64_t channel)
{
    const sbit__conv_shape *s = &job->s;
    return job->y +
           (((strip->image * s->out_channels + channel) * s->out[0] + strip->oz) * s->out[1] +
            strip->oy) *
               s->out[2];
}

/* All rows of the strip at once, as one row with pad_width outputs between two beginnings. */
static void sbit__conv_strip_narrow(const sbit__conv_job *job, const sbit__conv_strip *strip)
{
    const int64_t width = job->s.out[2];
    const sbit__epilogue *ep = job->epilogue;
    const float *residual = ep != NULL ? ep->residual : NULL;
    sbit__conv_point(job, strip, 0);
    for (int64_t i = 0; i < job->out_group; i++) {
        const int64_t channel = strip->group * job->out_group + i;
        float *y = sbit__conv_strip_y(job, strip, channel);
        sbit__conv_row_run(job, strip, channel, (strip->rows - 1) * job->pad_width + width,
                           strip->narrow, residual == NULL ? ep : NULL);
        for (int64_t row = 0; row < strip->rows; row++) {
            sbit__conv_copy(y + row * width, strip->narrow + row * job->pad_width, width, 1);
        }
        if (residual != NULL) {
            const int64_t n = strip->rows * width;
            job->kernels->f32_binary(SBIT__BINARY_ADD, n, y, 1, residual + (y - job->y), 1, y);
            job->kernels->f32_activate(n, y, ep);
        }
    }
}

static void sbit__conv_strip_wide(const sbit__conv_job *job, const sbit__conv_strip *strip)
{
    const int64_t width = job->s.out[2];
    for (int64_t row = 0; row < strip->rows; row++) {
        sbit__conv_point(job, strip, row);
        for (int64_t i = 0; i < job->out_group; i++) {
            const int64_t channel = strip->group * job->out_group + i;
            float *y = sbit__conv_strip_y(job, strip, channel) + row * width;
            sbit__epilogue ep;
            memset(&ep, 0, sizeof(ep));
            if (job->epilogue != NULL) {
                ep = *job->epilogue;
                ep.residual = ep.residual != NULL ? ep.residual + (y - job->y) : NULL;
            }
            sbit__conv_row_run(job, strip, channel, width, y, &ep);
        }
    }
}

static void sbit__conv_rows_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_job *job = (const sbit__conv_job *)task;
    unsigned char *scratch = job->scratch + (size_t)worker * job->worker_bytes;
    const sbit__conv_shape *s = &job->s;
    const int64_t widest = s->stride[2] == 1 ? SBIT__CONV_NARROW : SBIT__CONV_NARROW / 2;
    const bool narrow = s->stride[1] == s->stride[2] && s->out[2] < widest;
    sbit__conv_strip strip;
    strip.input = (float *)(void *)scratch;
    strip.narrow = (float *)(void *)(scratch + job->strip_bytes);
    strip.pointers = (const float **)(void *)(scratch + job->strip_bytes + job->narrow_bytes);
    for (int64_t index = begin; index < end; index++) {
        int64_t rest = index;
        strip.oy = rest % job->strips * job->strip;
        rest /= job->strips;
        strip.oz = rest % s->out[0];
        rest /= s->out[0];
        strip.group = rest % s->groups;
        strip.image = rest / s->groups;
        strip.rows = sbit__smaller(job->strip, s->out[1] - strip.oy);
        sbit__conv_copy_strip(job, &strip);
        if (narrow) {
            sbit__conv_strip_narrow(job, &strip);
        } else {
            sbit__conv_strip_wide(job, &strip);
        }
    }
}

/* >>run */
SBIT__FN void sbit__conv_run(sbit_ctx *ctx, const sbit__conv *conv, const float *x,
                             const float *packed, const float *bias,
                             const sbit__epilogue *epilogue, float *y, void *scratch)
{
    sbit__conv_job job;
    sbit__conv_job_init(&job, ctx, conv);
    job.x = x;
    job.packed = packed;
    job.bias = bias;
    job.epilogue = epilogue;
    job.y = y;
    job.scratch = (unsigned char *)scratch;
    job.row_table = (sbit__conv_row *)scratch;
    const int64_t outputs = job.s.batch * job.s.out_channels * job.out_pixels;
    if (outputs <= 0) {
        return;
    }
    const bool by_rows = sbit__conv_by_rows(conv);
    const int64_t units = by_rows ? job.s.batch * job.s.groups * job.s.out[0] * job.strips
                                  : job.s.groups * job.blocks * job.panel_parts;
    const int64_t each = sbit__larger(outputs * job.k / units, 1);
    const int64_t grain = sbit__div_up(SBIT__CONV_WORTH_A_THREAD, each);
    if (!by_rows) {
        sbit__conv_fill_table(&job);
    }
    sbit__parallel_range(ctx, units, grain,
                         by_rows ? sbit__conv_rows_range : sbit__conv_matrix_range, &job);
}
