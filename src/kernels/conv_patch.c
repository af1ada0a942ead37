/* conv_patch.c: convolution as matrix products that read a padded copy of the input. >>conv_patch
 *
 * Called by: conv.c. Calls: the conv tile kernel.
 * For a block of output rows, the input rows that they depend on are copied with their padding,
 * some channels at a time:
 *
 *     patch[plane][channel][kz][row][phase][phase_width]
 *
 * A phase holds every stride-th column, so that the inputs of neighbouring outputs are neighbours.
 * Row k of the columns matrix then begins at offsets[k] from an output's place: each number is
 * copied once instead of once for each kernel position. An output row is cut into halves of a tile;
 * two halves, also of different rows or images, make a tile.
 */
#include "conv_private.h"

/* Half a tile. */
typedef struct sbit__conv_half {
    int64_t c; /* place in y, for channel 0 */
    int32_t b; /* place in the patch */
    int32_t n; /* columns */
} sbit__conv_half;

/* >>plan */

/* Columns that are computed but not needed cost as much as gathering; see conv_matrix.c. The unit
 * is the time of one multiply-add with a column tile. */
static bool sbit__conv_patch_pays(const sbit__conv_job *job, int64_t half, int64_t halves)
{
    enum {
        GATHER = 10,
        OFFSETS_PERCENT = 5
    };
    if (job->algorithm != SBIT__CONV_IM2COL || job->taps == 1) {
        return false;
    }
    return job->out_group * halves * half * (100 + OFFSETS_PERCENT) <
           (job->out_group + GATHER) * job->s.out[2] * 100;
}

static void sbit__conv_plan_block(sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t reach = (s->kernel[1] - 1) * s->dilation[1] + 1, stride = s->stride[1];
    const int64_t row_bytes = job->patch.channels * s->kernel[0] * job->patch.pitch * 4;
    const int64_t room = SBIT__CONV_L2_BYTES / sbit__larger(row_bytes, 1);
    job->patch.out_rows = sbit__larger((room - reach) / stride + 1, 1);
    job->patch.out_rows = sbit__larger(sbit__smaller(job->patch.out_rows, s->out[1]), 1);
    job->patch.in_rows = (job->patch.out_rows - 1) * stride + reach;
    /* Channels an odd number of cache lines apart fall on all sets of the L1 cache. */
    const int64_t lines =
        sbit__div_up(s->kernel[0] * job->patch.in_rows * job->patch.pitch, 16) | 1;
    job->patch.channel_stride = lines * 16;
    job->patch.plane_stride = job->patch.channels * job->patch.channel_stride;
    job->patch.planes = 1;
    job->blocks = s->batch * s->out[0] * sbit__div_up(s->out[1], job->patch.out_rows);
    if (job->patch.out_rows == s->out[1]) {
        const int64_t fit = SBIT__CONV_L2_BYTES / (job->patch.plane_stride * 4);
        job->patch.planes = sbit__smaller(sbit__larger(fit, 1), s->batch * s->out[0]);
        job->patch.planes = sbit__larger(job->patch.planes, 1);
        job->blocks = sbit__div_up(s->batch * s->out[0], job->patch.planes);
    }
}

SBIT__FN void sbit__conv_plan_patch(sbit__conv_job *job, int64_t threads)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t tile_m = job->kernels->tile_m, half = job->kernels->tile_n / 2;
    job->patch.half = half;
    job->patch.halves = sbit__div_up(s->out[2], half);
    if (!sbit__conv_patch_pays(job, half, job->patch.halves)) {
        return;
    }
    const int64_t depth = sbit__larger(sbit__gemm_depth(job->kernels, job->k) / job->taps, 1);
    job->patch.channels = sbit__div_up(job->in_group, sbit__div_up(job->in_group, depth));
    const int64_t reach = (s->kernel[2] - 1) * s->dilation[2];
    job->patch.phase_width = s->out[2] + reach / s->stride[2];
    job->patch.pitch = s->stride[2] * job->patch.phase_width;
    sbit__conv_plan_block(job);
    const int64_t floats = job->patch.planes * job->patch.plane_stride + half;
    if (floats > INT32_MAX) {
        return; /* places are 32-bit */
    }
    job->patch.used = true;
    const int64_t weight_bytes = job->panels * tile_m * job->patch.channels * job->taps * 4;
    job->weights_outside = weight_bytes > SBIT__CONV_L1_BYTES;
    job->panel_parts = sbit__conv_panel_parts(job, threads);
    job->units = s->groups * job->blocks * job->panel_parts;
    job->shared_bytes = sbit__cache_lines(job->patch.channels * job->taps); /* 32-bit offsets */
    const int64_t halves = job->patch.planes * job->patch.out_rows * job->patch.halves;
    job->patch.halves_bytes =
        sbit__cache_lines(halves * (int64_t)(sizeof(sbit__conv_half) / sizeof(float)));
    job->worker_bytes = job->patch.halves_bytes + sbit__cache_lines(floats);
}

SBIT__FN void sbit__conv_share_patch(const sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    int32_t *offset = (int32_t *)(void *)job->scratch;
    for (int64_t c = 0; c < job->patch.channels; c++) {
        for (int64_t tap = 0; tap < job->taps; tap++) {
            const int64_t x = tap % s->kernel[2] * s->dilation[2];
            const int64_t y = tap / s->kernel[2] % s->kernel[1] * s->dilation[1];
            const int64_t z = tap / s->kernel[2] / s->kernel[1];
            const int64_t row = z * job->patch.in_rows + y;
            *offset++ = (int32_t)(c * job->patch.channel_stride + row * job->patch.pitch +
                                  x % s->stride[2] * job->patch.phase_width + x / s->stride[2]);
        }
    }
}

/* >>copy */

/* Every stride-th number of an input row from column `x` on, zeros outside. */
static void sbit__conv_copy_phase(const sbit__conv_job *job, const float *row, int64_t x, float *to)
{
    const int64_t stride = job->s.stride[2], width = job->s.in[2], n = job->patch.phase_width;
    int64_t first = x >= 0 ? 0 : sbit__smaller(sbit__div_up(-x, stride), n);
    int64_t end = x >= width ? 0 : sbit__smaller((width - 1 - x) / stride + 1, n);
    end = sbit__larger(first, end);
    sbit__conv_zero(to, first);
    if (stride == 1) {
        sbit__conv_copy(to + first, row + (x + first), end - first);
    } else {
        for (int64_t i = first; i < end; i++) {
            to[i] = row[x + i * stride];
        }
    }
    sbit__conv_zero(to + end, n - end);
}

/* One channel's input at depth z, rows y.., all phases. */
static void sbit__conv_copy_plane(const sbit__conv_job *job, const float *channel, int64_t z,
                                  int64_t y, int64_t rows, float *to)
{
    const sbit__conv_shape *s = &job->s;
    for (int64_t i = 0; i < rows; i++, y++, to += job->patch.pitch) {
        if (z < 0 || z >= s->in[0] || y < 0 || y >= s->in[1]) {
            memset(to, 0, (size_t)job->patch.pitch * sizeof(float));
            continue;
        }
        const float *row = channel + (z * s->in[1] + y) * s->in[2];
        for (int64_t phase = 0; phase < s->stride[2]; phase++) {
            sbit__conv_copy_phase(job, row, phase - s->pad_begin[2],
                                  to + phase * job->patch.phase_width);
        }
    }
}

/* >>block */
typedef struct sbit__conv_patch_unit {
    int64_t group, panel0, panel1;
    int64_t plane0, planes, oy, out_rows; /* output */
    int64_t c0, c1;                       /* channels of the block of k */
    int64_t halves;
    sbit__conv_half *half;
    float *patch;
} sbit__conv_patch_unit;

static void sbit__conv_patch_copy(const sbit__conv_job *job, const sbit__conv_patch_unit *u)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t rows = (u->out_rows - 1) * s->stride[1] + (s->kernel[1] - 1) * s->dilation[1] + 1;
    const int64_t y = u->oy * s->stride[1] - s->pad_begin[1];
    for (int64_t plane = 0; plane < u->planes; plane++) {
        const int64_t image = (u->plane0 + plane) / s->out[0];
        const int64_t oz = (u->plane0 + plane) % s->out[0];
        const int64_t channel = image * s->in_channels + u->group * job->in_group;
        for (int64_t c = u->c0; c < u->c1; c++) {
            float *to = u->patch + plane * job->patch.plane_stride +
                        (c - u->c0) * job->patch.channel_stride;
            for (int64_t kz = 0; kz < s->kernel[0]; kz++) {
                const int64_t z = oz * s->stride[0] - s->pad_begin[0] + kz * s->dilation[0];
                sbit__conv_copy_plane(job, job->x + (channel + c) * job->in_pixels, z, y, rows,
                                      to + kz * job->patch.in_rows * job->patch.pitch);
            }
        }
    }
}

static void sbit__conv_patch_halves(const sbit__conv_job *job, sbit__conv_patch_unit *u)
{
    const sbit__conv_shape *s = &job->s;
    sbit__conv_half *half = u->half;
    for (int64_t plane = 0; plane < u->planes; plane++) {
        const int64_t image = (u->plane0 + plane) / s->out[0];
        const int64_t oz = (u->plane0 + plane) % s->out[0];
        for (int64_t row = 0; row < u->out_rows; row++) {
            const int64_t c = image * s->out_channels * job->out_pixels +
                              (oz * s->out[1] + u->oy + row) * s->out[2];
            const int64_t b =
                plane * job->patch.plane_stride + row * s->stride[1] * job->patch.pitch;
            for (int64_t x = 0; x < s->out[2]; x += job->patch.half, half++) {
                half->c = c + x;
                half->b = (int32_t)(b + x);
                half->n = (int32_t)sbit__smaller(s->out[2] - x, job->patch.half);
            }
        }
    }
    u->halves = half - u->half;
}

static void sbit__conv_patch_tile(const sbit__conv_job *job, const sbit__conv_patch_unit *u,
                                  int64_t panel, const sbit__conv_half *left,
                                  const sbit__conv_half *right)
{
    const int64_t tile_m = job->kernels->tile_m;
    const int64_t channel = u->group * job->out_group + panel * tile_m;
    const bool last = u->c1 == job->in_group;
    const int64_t place = channel * job->out_pixels;
    sbit__epilogue ep;
    memset(&ep, 0, sizeof(ep));
    if (last && job->epilogue != NULL) {
        ep = *job->epilogue;
        ep.residual = ep.residual != NULL ? ep.residual + place + left->c : NULL;
    }
    const float *a =
        job->packed + ((u->group * job->panels + panel) * job->k + u->c0 * job->taps) * tile_m;
    job->kernels->f32_conv_tile(
        sbit__smaller(job->out_group - panel * tile_m, tile_m), (u->c1 - u->c0) * job->taps, a,
        (const int32_t *)(const void *)job->scratch, u->patch + left->b, u->patch + right->b,
        job->y + place + left->c, left->n, job->y + place + right->c, right != left ? right->n : 0,
        job->out_pixels, u->c0 > 0, last && job->bias != NULL ? job->bias + channel : NULL, &ep);
}

static void sbit__conv_patch_unit_run(const sbit__conv_job *job, sbit__conv_patch_unit *u)
{
    sbit__conv_patch_halves(job, u);
    const int64_t tiles = sbit__div_up(u->halves, 2), panels = u->panel1 - u->panel0;
    const int64_t outer = job->weights_outside ? panels : tiles;
    const int64_t inner = job->weights_outside ? tiles : panels;
    for (u->c0 = 0; u->c0 < job->in_group; u->c0 = u->c1) {
        u->c1 = sbit__smaller(job->in_group, u->c0 + job->patch.channels);
        sbit__conv_patch_copy(job, u);
        for (int64_t i = 0; i < outer; i++) {
            for (int64_t j = 0; j < inner; j++) {
                const int64_t tile = job->weights_outside ? j : i;
                const int64_t panel = u->panel0 + (job->weights_outside ? i : j);
                const sbit__conv_half *left = u->half + 2 * tile;
                sbit__conv_patch_tile(job, u, panel, left,
                                      2 * tile + 1 < u->halves ? left + 1 : left);
            }
        }
    }
}

SBIT__FN void sbit__conv_patch_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_job *job = (const sbit__conv_job *)task;
    const sbit__conv_shape *s = &job->s;
    unsigned char *scratch = job->scratch + job->shared_bytes + (size_t)worker * job->worker_bytes;
    const int64_t strips = sbit__div_up(s->out[1], job->patch.out_rows); /* of a plane */
    sbit__conv_patch_unit u;
    memset(&u, 0, sizeof(u));
    u.half = (sbit__conv_half *)(void *)scratch;
    u.patch = (float *)(void *)(scratch + job->patch.halves_bytes);
    for (int64_t index = begin; index < end; index++) {
        const int64_t part = index % job->panel_parts;
        const int64_t block = index / job->panel_parts % job->blocks;
        u.group = index / job->panel_parts / job->blocks;
        u.panel0 = part * job->panels / job->panel_parts;
        u.panel1 = (part + 1) * job->panels / job->panel_parts;
        u.plane0 = strips > 1 ? block / strips : block * job->patch.planes;
        u.planes = sbit__smaller(job->patch.planes, s->batch * s->out[0] - u.plane0);
        u.oy = strips > 1 ? block % strips * job->patch.out_rows : 0;
        u.out_rows = sbit__smaller(job->patch.out_rows, s->out[1] - u.oy);
        sbit__conv_patch_unit_run(job, &u);
    }
}
