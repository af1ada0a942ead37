/* last_conv.c: float convolutions with channels last. >>last_conv
 *
 * Called by: ops/last.c. Calls: the kernels with channels last, threads.
 * Six forms:
 *   pixels     a unit is a run of output pixels of all images; a table says where each tap of each
 *              of them begins, which is in a row of zeros where it lies outside of the input
 *   bands      few input channels, which may be the image's planes: a unit is some output rows; the
 *              input rows that they see are copied between borders of zeros, pixel by pixel, so that
 *              all taps of a row are one run
 *   stem       an image's planes with stride 1 or 2: the same without copies, but for the windows that
 *              the borders cut
 *   Winograd   last_winograd.c
 *   sparse     last_sparse.c
 *   depthwise  a unit is some output rows and some channels; windows are cut at the borders
 * Units are shared out to threads; with few of them, several units share the panels of a group.
 */
#include "last_private.h"
#include "rows_private.h"

enum {
    SBIT__LAST_UNIT_BYTES = 256 * 1024, /* of input that a unit of pixels sees, about */
    SBIT__LAST_UNIT_PIXELS = 196,
    SBIT__LAST_UNIT_LEAST = 42,
    SBIT__LAST_FETCHED = 4, /* units, at most, that fetch weights before they are used */
    SBIT__LAST_PIECE = 8 * 1024, /* weights of a panel at once, about */
    SBIT__LAST_BAND_BYTES = 64 * 1024,
    SBIT__LAST_MERGED = 8,                /* input channels, at most, for bands */
    SBIT__LAST_WORTH_A_THREAD = 256 * 1024 /* multiplications */
};

/* >>plan */

static int64_t sbit__last_taps(const sbit__conv_shape *s)
{
    return s->kernel[0] * s->kernel[1] * s->kernel[2];
}

/* Input positions that `count` outputs see along an axis. */
static int64_t sbit__last_reach(const sbit__conv_shape *s, int axis, int64_t count)
{
    return sbit__larger(count - 1, 0) * s->stride[axis] + (s->kernel[axis] - 1) * s->dilation[axis] + 1;
}

static int64_t sbit__last_band_floats(const sbit__conv_shape *s, int64_t rows)
{
    return s->kernel[0] * sbit__last_reach(s, 1, rows) * sbit__last_reach(s, 2, s->out[2]) *
           s->in_channels;
}

static int64_t sbit__last_macs(const sbit__last_conv *conv) /* weighted: depthwise is slower */
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t weights = conv->sparse ? conv->nonzeros
                                         : s->out_channels * sbit__last_taps(s) * (s->in_channels / s->groups);
    return s->batch * s->out[0] * s->out[1] * s->out[2] * weights * (conv->depthwise ? 2 : 1);
}

/* Units that are worth a thread each, at most `most`. */
static int64_t sbit__last_wanted(const sbit_ctx *ctx, const sbit__last_conv *conv)
{
    const int64_t threads = sbit_ctx_threads(ctx);
    return threads == 1 ? 1
                        : sbit__larger(sbit__smaller(sbit__last_macs(conv) /
                                                         SBIT__LAST_WORTH_A_THREAD,
                                                     8 * threads),
                                       1);
}

static void sbit__last_plan_pixels(const sbit_ctx *ctx, sbit__last_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t all = s->batch * s->out[0] * s->out[1] * s->out[2];
    const int64_t wanted = sbit__last_wanted(ctx, conv);
    const int64_t seen =
        sbit__larger(s->in_channels * s->stride[1] * s->stride[2], 1) * (int64_t)sizeof(float);
    int64_t pixels = sbit__larger(
        sbit__smaller(SBIT__LAST_UNIT_BYTES / seen, SBIT__LAST_UNIT_PIXELS), SBIT__LAST_UNIT_LEAST);
    pixels = sbit__smaller(pixels, sbit__larger(sbit__div_up(all, wanted), SBIT__LAST_UNIT_LEAST));
    conv->blocks = sbit__larger(sbit__div_up(all, pixels), 1);
    conv->pixels = sbit__div_up(all, conv->blocks);
    conv->parts = sbit__div_up(wanted, conv->blocks);
    conv->worker_bytes = (int64_t)sbit__cache_lines(s->in_channels) +
                         (conv->taps * conv->pixels * (int64_t)sizeof(float *) + 63) / 64 * 64;
}

static void sbit__last_plan_bands(const sbit_ctx *ctx, sbit__last_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t planes = s->batch * s->out[0];
    const int64_t bands = sbit__div_up(sbit__last_wanted(ctx, conv), sbit__larger(planes, 1));
    const int64_t most = sbit__larger(s->out[1] / bands, 1);
    int64_t rows = 1;
    while (rows < most && sbit__last_band_floats(s, rows + 1) * 4 <= SBIT__LAST_BAND_BYTES) {
        rows++;
    }
    conv->bands = sbit__larger(sbit__div_up(s->out[1], rows), 1);
    conv->rows = sbit__div_up(s->out[1], conv->bands);
    conv->bands = sbit__larger(sbit__div_up(s->out[1], sbit__larger(conv->rows, 1)), 1);
    conv->pixels = s->out[2];
    conv->parts = 1;
    conv->band_floats = (sbit__last_band_floats(s, conv->rows) + 15) / 16 * 16;
    conv->worker_bytes = conv->band_floats * (int64_t)sizeof(float) +
                         (conv->taps * conv->pixels * (int64_t)sizeof(float *) + 63) / 64 * 64;
}

static void sbit__last_plan_stem(const sbit_ctx *ctx, sbit__last_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t planes = s->batch * s->out[0], runs = conv->taps * s->in_channels;
    const int64_t bands = sbit__div_up(sbit__last_wanted(ctx, conv), sbit__larger(planes, 1));
    conv->rows = sbit__larger(sbit__div_up(s->out[1], bands), 1);
    conv->bands = sbit__larger(sbit__div_up(s->out[1], conv->rows), 1);
    conv->worker_bytes = (int64_t)(sbit__cache_lines(s->in[2]) + sbit__cache_lines(runs * s->kernel[2])) +
                         2 * (runs * (int64_t)sizeof(float *) + 63) / 64 * 64;
}

static void sbit__last_plan_depthwise(const sbit_ctx *ctx, sbit__last_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t lines = s->batch * s->out[0] * s->out[1], lanes = sbit__last_of(ctx)->lanes;
    const int64_t wanted = sbit__last_wanted(ctx, conv);
    conv->bands = sbit__larger(sbit__smaller(wanted, lines), 1);
    conv->parts =
        sbit__smaller(sbit__div_up(wanted, conv->bands), sbit__div_up(s->groups, lanes));
}

static bool sbit__last_is_depthwise(const sbit__conv_shape *s)
{
    return s->groups > 1 && s->in_channels == s->groups && s->out_channels == s->groups &&
           s->kernel[0] == 1;
}

/* Each output pixel is made of the input pixel of the same place. */
static bool sbit__last_is_dense(const sbit__conv_shape *s)
{
    bool dense = s->groups == 1 && sbit__last_taps(s) == 1;
    for (int i = 0; i < 3; i++) {
        dense = dense && s->stride[i] == 1 && s->in[i] == s->out[i] && s->pad_begin[i] == 0;
    }
    return dense;
}

SBIT__FN bool sbit__last_may_winograd(const sbit__conv_shape *s)
{
    return s->groups == 1 && s->kernel[0] == 1 && s->kernel[1] == 3 && s->kernel[2] == 3 &&
           s->stride[0] == 1 && s->stride[1] == 1 && s->stride[2] == 1 && s->dilation[1] == 1 &&
           s->dilation[2] == 1 && s->in[0] == 1 && s->out[0] == 1;
}

SBIT__FN void sbit__last_conv_plan(const sbit_ctx *ctx, sbit__last_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    const int64_t in = s->in_channels / s->groups, out = s->out_channels / s->groups;
    const int64_t lanes = sbit__last_of(ctx)->lanes, taps = sbit__last_taps(s);
    conv->depthwise = sbit__last_is_depthwise(s);
    conv->merges = conv->first || (!conv->sparse && s->groups == 1 && s->dilation[2] == 1 && s->kernel[2] > 1 &&
                                   in <= SBIT__LAST_MERGED);
    conv->stem = conv->first && !conv->sparse && conv->winograd == 0 && s->stride[2] <= 2;
    conv->taps = conv->merges ? taps / s->kernel[2] : taps;
    conv->depth = conv->merges ? in * s->kernel[2] : in;
    conv->columns = sbit__div_up(conv->depthwise ? s->groups : out, lanes) * lanes;
    conv->packed_bytes = sbit__cache_lines(conv->columns * taps * in *
                                           (conv->depthwise ? 1 : s->groups));
    conv->blocks = conv->bands = conv->parts = 1;
    conv->worker_bytes = 0;
    if (conv->sparse) {
        sbit__last_sparse_plan(ctx, conv);
    } else if (conv->winograd != 0) {
        sbit__last_winograd_plan(ctx, conv);
    } else if (conv->depthwise) {
        sbit__last_plan_depthwise(ctx, conv);
    } else if (conv->stem) {
        sbit__last_plan_stem(ctx, conv);
    } else if (conv->merges) {
        sbit__last_plan_bands(ctx, conv);
    } else {
        sbit__last_plan_pixels(ctx, conv);
    }
    conv->scratch_bytes = (size_t)conv->worker_bytes * (size_t)sbit_ctx_threads(ctx);
}

/* >>pack */

typedef struct sbit__last_packing {
    const sbit__last_conv *conv;
    const sbit__last_kernels *kernels;
    const float *weights;
    float *packed;
} sbit__last_packing;

SBIT__FN int64_t sbit__last_panel(const sbit__last_kernels *kernels, int64_t left)
{
    const int64_t widest = (int64_t)kernels->panel * kernels->lanes;
    return left >= widest ? widest : sbit__div_up(left, kernels->lanes) * kernels->lanes;
}

/* `lanes` output channels of a group, of which `count` exist: from [channel][in][taps] to
 * [tap][in][width], merged or not; all lanes at once, so that a line of the cache is written once. */
static void sbit__last_pack_lanes(const sbit__last_conv *conv, const float *from, int64_t count,
                                  int64_t lanes, int64_t width, float *to)
{
    const int64_t in = conv->shape.in_channels / conv->shape.groups;
    const int64_t taps = sbit__last_taps(&conv->shape);
    for (int64_t c = 0; c < in; c++) {
        for (int64_t t = 0; t < taps; t++) {
            float *row = to + (t * in + c) * width;
            for (int64_t j = 0; j < lanes; j++) {
                row[j] = j < count ? from[(j * in + c) * taps + t] : 0.0f;
            }
        }
    }
}

static void sbit__last_pack_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__last_packing *p = (const sbit__last_packing *)task;
    const sbit__conv_shape *s = &p->conv->shape;
    const int64_t out = s->out_channels / s->groups, in = s->in_channels / s->groups;
    const int64_t terms = sbit__last_taps(s) * in, side = p->conv->winograd + 2;
    const int64_t lanes = p->kernels->lanes, widest = p->kernels->panel * lanes;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t group = i * lanes / p->conv->columns, column = i * lanes % p->conv->columns;
        const int64_t first = column / widest * widest, at = column - first;
        const int64_t width = sbit__last_panel(p->kernels, out - first);
        const int64_t count = sbit__smaller(lanes, out - column);
        const float *from = p->weights + (group * out + column) * terms;
        if (p->conv->winograd != 0) {
            float *panel = p->packed + first * side * side * in;
            sbit__last_winograd_pack(p->conv, from, count, lanes, width, panel + at);
        } else {
            float *panel = p->packed + (group * p->conv->columns + first) * terms;
            sbit__last_pack_lanes(p->conv, from, count, lanes, width, panel + at);
        }
    }
}

SBIT__FN void sbit__last_conv_pack(sbit_ctx *ctx, const sbit__last_conv *conv, const float *weights,
                                   float *packed)
{
    const sbit__conv_shape *s = &conv->shape;
    sbit__last_packing packing;
    packing.conv = conv;
    packing.kernels = sbit__last_of(ctx);
    packing.weights = weights;
    packing.packed = packed;
    const int64_t taps = sbit__last_taps(s), lanes = packing.kernels->lanes;
    if (conv->sparse) {
        sbit__last_sparse_pack(conv, weights, packed);
        return;
    }
    if (conv->depthwise) {
        memset(packed, 0, conv->packed_bytes);
        for (int64_t c = 0; c < s->groups; c++) {
            for (int64_t t = 0; t < taps; t++) {
                packed[c / lanes * lanes * taps + t * lanes + c % lanes] = weights[c * taps + t];
            }
        }
        return;
    }
    sbit__parallel_range(ctx, s->groups * (conv->columns / lanes),
                         1 + 65536 / (taps * s->in_channels * lanes + 1), sbit__last_pack_range,
                         &packing);
}

/* >>run */

static void sbit__last_job_store(sbit__last_job *job)
{
    const sbit__epilogue *ep = job->epilogue;
    memset(&job->store, 0, sizeof job->store);
    if (ep == NULL) {
        return;
    }
    job->adds = (job->conv->depthwise || job->conv->sparse || job->conv->stem) && ep->residual != NULL;
    job->activates = ep->activation != SBIT__ACT_NONE;
    if (!job->adds && !job->conv->sparse) {
        job->activates = job->activates && ep->activation != SBIT__ACT_CLAMP &&
                         ep->activation != SBIT__ACT_HARDSWISH;
    }
    job->store.activation = job->activates ? SBIT__ACT_NONE : ep->activation;
    job->store.lo = ep->lo;
    job->store.hi = ep->hi;
}

SBIT__FN void sbit__last_activate(const sbit__last_job *job, int64_t rows, int64_t columns,
                                  int64_t step, float *y)
{
    for (int64_t i = 0; (job->adds || job->activates) && i < rows; i++) {
        float *to = y + i * step;
        if (job->adds) {
            const float *residual = job->epilogue->residual + (to - job->y);
            job->elements->f32_binary(SBIT__BINARY_ADD, columns, to, 1, residual, 1, to);
        }
        if (job->activates) {
            job->elements->f32_activate(columns, to, job->epilogue);
        }
    }
}

/* Position `at` of the output's pixels as image and coordinates. */
typedef struct sbit__last_place {
    int64_t n, o[3];
} sbit__last_place;

static sbit__last_place sbit__last_place_of(const sbit__conv_shape *s, int64_t at)
{
    sbit__last_place p;
    p.o[2] = at % s->out[2];
    p.o[1] = at / s->out[2] % s->out[1];
    p.o[0] = at / s->out[2] / s->out[1] % s->out[0];
    p.n = at / s->out[2] / s->out[1] / s->out[0];
    return p;
}

/* Where the runs of `count` pixels from p on begin, all in one row of the output: those of a tap
 * follow each other, taps are `pitch` pointers apart. */
static void sbit__last_table_row(const sbit__last_job *job, const sbit__last_place *p,
                                 const float *zeros, int64_t count, int64_t pitch,
                                 const float **row)
{
    const sbit__conv_shape *s = &job->conv->shape;
    const int64_t c = s->in_channels, step = s->stride[2] * c;
    for (int64_t t = 0; t < job->conv->taps; t++, row += pitch) {
        const int64_t kw = t % s->kernel[2], kh = t / s->kernel[2] % s->kernel[1];
        const int64_t kd = t / s->kernel[2] / s->kernel[1];
        const int64_t d = p->o[0] * s->stride[0] - s->pad_begin[0] + kd * s->dilation[0];
        const int64_t h = p->o[1] * s->stride[1] - s->pad_begin[1] + kh * s->dilation[1];
        int64_t w = p->o[2] * s->stride[2] - s->pad_begin[2] + kw * s->dilation[2], i = 0;
        if (d >= 0 && d < s->in[0] && h >= 0 && h < s->in[1]) {
            for (; i < count && w < 0; i++, w += s->stride[2]) {
                row[i] = zeros;
            }
            int64_t at = (((p->n * s->in[0] + d) * s->in[1] + h) * s->in[2] + w) * c;
            for (; i < count && w < s->in[2]; i++, w += s->stride[2], at += step) {
                row[i] = job->x + at;
            }
        }
        for (; i < count; i++) {
            row[i] = zeros;
        }
    }
}

/* A panel, piece by piece, if its weights are many: all pixels read a piece while it is in the cache, and the
 * next one is fetched. What store and ahead say is for the last one. */
static void sbit__last_pieces(const sbit__last_job *job, const sbit__last_tile *panel, int64_t pixels,
                              const float *const *row, float *y)
{
    const int64_t terms = sbit__larger(SBIT__LAST_PIECE / panel->width, 1);
    const int64_t depth = sbit__smaller(panel->depth, terms);
    const int64_t taps = depth < panel->depth ? 1 : sbit__smaller(sbit__larger(terms / depth, 1), panel->taps);
    sbit__last_tile piece = *panel;
    for (int64_t t = 0; t < panel->taps; t += taps) {
        for (int64_t k = 0; k < panel->depth; k += depth) {
            const int64_t end = sbit__smaller(k + depth, panel->depth);
            piece.taps = sbit__smaller(taps, panel->taps - t);
            piece.depth = end - k;
            piece.x = panel->x + k;
            piece.shift = panel->shift + k;
            piece.weights = panel->weights + (t * panel->depth + k) * panel->width;
            piece.goes_on = t > 0 || k > 0;
            if (t + piece.taps < panel->taps || end < panel->depth) {
                memset(&piece.store, 0, sizeof piece.store);
                piece.store.bias = panel->store.bias;
                piece.next = piece.weights + piece.taps * piece.depth * panel->width;
                piece.ahead = sbit__smaller(piece.taps * piece.depth,
                                            (panel->taps - t - piece.taps + 1) * panel->depth - end) *
                              panel->width;
            } else {
                piece.store = panel->store;
                piece.next = panel->next;
                piece.ahead = sbit__smaller(panel->ahead, SBIT__LAST_PIECE);
            }
            piece.fetches = !piece.goes_on || piece.store.residual != NULL; /* else it was just written */
            job->kernels->last_tile(&piece, pixels, row != NULL ? row + t * panel->pitch : NULL, y);
        }
    }
}

SBIT__FN void sbit__last_table(const sbit__last_job *job, int64_t first, int64_t pixels, const float *zeros,
                               const float **row)
{
    const sbit__conv_shape *s = &job->conv->shape;
    for (int64_t i = 0; i < pixels;) {
        const sbit__last_place p = sbit__last_place_of(s, first + i);
        const int64_t count = sbit__smaller(s->out[2] - p.o[2], pixels - i);
        sbit__last_table_row(job, &p, zeros, count, pixels, row + i);
        i += count;
    }
}

SBIT__FN void sbit__last_panels(const sbit__last_job *job, int64_t group, int64_t part,
                                int64_t pixels, const float *const *row, int64_t shift,
                                int64_t first_pixel)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t out = s->out_channels / s->groups, terms = conv->taps * conv->depth;
    const int64_t pitch = sbit__last_pitch(conv);
    sbit__last_tile tile;
    int64_t number = 0;
    memset(&tile, 0, sizeof tile);
    tile.taps = conv->taps;
    tile.depth = conv->depth;
    tile.pitch = pixels;
    tile.shift = shift;
    tile.x = job->x + first_pixel * s->in_channels;
    tile.x_step = s->in_channels;
    tile.out_step = pitch;
    tile.store = job->store;
    for (int64_t first = 0; first < out; number++) {
        const int64_t at = first_pixel * pitch + group * out + first;
        tile.width = sbit__last_panel(job->kernels, out - first);
        tile.columns = sbit__smaller(out - first, tile.width);
        tile.weights = job->packed + (group * conv->columns + first) * terms;
        tile.store.bias = job->bias != NULL ? job->bias + group * out + first : NULL;
        tile.store.residual = job->epilogue != NULL && job->epilogue->residual != NULL
                                  ? job->epilogue->residual + at
                                  : NULL;
        const int64_t next = first + conv->parts * tile.width; /* this part's: only the last is narrower */
        tile.ahead = conv->blocks <= SBIT__LAST_FETCHED && next < out
                         ? sbit__last_panel(job->kernels, out - next) * terms
                         : 0;
        tile.next = tile.ahead > 0 ? tile.weights + (next - first) * terms : NULL;
        if (number % conv->parts == part) {
            sbit__last_pieces(job, &tile, pixels, row, job->y + at);
            sbit__last_activate(job, pixels, tile.columns, pitch, job->y + at);
        }
        first += tile.width;
    }
}

static void sbit__last_pixels_unit(const sbit__last_job *job, int64_t number, int32_t worker)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t part = number % conv->parts, first = number / conv->parts * conv->pixels;
    const int64_t all = s->batch * s->out[0] * s->out[1] * s->out[2];
    const int64_t pixels = sbit__smaller(conv->pixels, all - first);
    float *zeros = (float *)(void *)(job->scratch + worker * conv->worker_bytes);
    const float **row =
        (const float **)(void *)((char *)zeros + sbit__cache_lines(s->in_channels));
    if (sbit__last_is_dense(s)) {
        sbit__last_panels(job, 0, part, pixels, NULL, 0, first);
        return;
    }
    memset(zeros, 0, (size_t)s->in_channels * sizeof *zeros);
    sbit__last_table(job, first, pixels, zeros, row);
    for (int64_t g = 0; g < s->groups; g++) {
        sbit__last_panels(job, g, part, pixels, row, 0, first);
        for (int64_t i = 0; s->groups > 1 && i < pixels * conv->taps; i++) {
            row[i] = row[i] == zeros ? zeros : row[i] + s->in_channels / s->groups;
        }
    }
}

/* Row h of slice d of image n, pixel by pixel. */
static void sbit__last_copy_row(const sbit__last_job *job, int64_t n, int64_t d, int64_t h,
                                int64_t pixels, float *to)
{
    const sbit__conv_shape *s = &job->conv->shape;
    const int64_t c = s->in_channels, plane = s->in[0] * s->in[1] * s->in[2];
    const int64_t at = (d * s->in[1] + h) * s->in[2];
    if (job->conv->first && c > 1) {
        job->kernels->last_exchange(c, pixels, job->x + n * c * plane + at, plane, to, c);
    } else {
        memcpy(to, job->x + (n * plane + at) * c, (size_t)(pixels * c) * sizeof *to);
    }
}

/* Copies the input rows of a band between borders. */
static void sbit__last_copy_band(const sbit__last_job *job, const sbit__last_place *p, int64_t rows,
                                 float *to)
{
    const sbit__conv_shape *s = &job->conv->shape;
    const int64_t c = s->in_channels, width = sbit__last_reach(s, 2, s->out[2]);
    const int64_t left = sbit__smaller(s->pad_begin[2], width);
    const int64_t inside = sbit__larger(sbit__smaller(s->in[2], width - left), 0);
    const int64_t right = width - left - inside, height = sbit__last_reach(s, 1, rows);
    for (int64_t i = 0; i < s->kernel[0] * height; i++, to += width * c) {
        const int64_t d =
            p->o[0] * s->stride[0] - s->pad_begin[0] + i / height * s->dilation[0];
        const int64_t h = p->o[1] * s->stride[1] - s->pad_begin[1] + i % height;
        if (d < 0 || d >= s->in[0] || h < 0 || h >= s->in[1]) {
            memset(to, 0, (size_t)(width * c) * sizeof *to);
            continue;
        }
        memset(to, 0, (size_t)(left * c) * sizeof *to);
        sbit__last_copy_row(job, p->n, d, h, inside, to + left * c);
        memset(to + (left + inside) * c, 0, (size_t)(right * c) * sizeof *to);
    }
}

static void sbit__last_band_unit(const sbit__last_job *job, int64_t number, int32_t worker)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t h = number % conv->bands * conv->rows, plane = number / conv->bands;
    const int64_t rows = sbit__smaller(conv->rows, s->out[1] - h);
    const int64_t first = (plane * s->out[1] + h) * s->out[2];
    const int64_t line = sbit__last_reach(s, 2, s->out[2]) * s->in_channels;
    const int64_t slice = line * sbit__last_reach(s, 1, rows);
    float *band = (float *)(void *)(job->scratch + worker * conv->worker_bytes);
    const float **row = (const float **)(void *)(band + conv->band_floats);
    const sbit__last_place p = sbit__last_place_of(s, first);
    sbit__last_copy_band(job, &p, rows, band);
    for (int64_t t = 0; t < conv->taps; t++) { /* of the first output row */
        const float *from =
            band + t / s->kernel[1] * slice + t % s->kernel[1] * s->dilation[1] * line;
        for (int64_t w = 0; w < s->out[2]; w++) {
            row[t * s->out[2] + w] = from + w * s->stride[2] * s->in_channels;
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        sbit__last_panels(job, 0, 0, s->out[2], row, i * s->stride[1] * line,
                          first + i * s->out[2]);
    }
}

/* `pixels` outputs from `first` on, by all panels; row: what they see of the input from the first on, with `shift`. */
static void sbit__last_stem_panels(const sbit__last_job *job, int64_t pixels, const float *const *row,
                                   int64_t shift, int64_t first)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t out = s->out_channels;
    float *y = job->y + first * out;
    sbit__last_stem stem;
    memset(&stem, 0, sizeof stem);
    stem.taps = conv->taps;
    stem.kernel = s->kernel[2];
    stem.channels = s->in_channels;
    stem.stride = s->stride[2];
    stem.shift = shift;
    stem.store = job->store;
    stem.out_step = out;
    for (int64_t column = 0; column < out; column += stem.width) {
        stem.width = sbit__last_panel(job->kernels, out - column);
        stem.columns = sbit__smaller(out - column, stem.width);
        stem.weights = job->packed + column * conv->taps * conv->depth;
        stem.store.bias = job->bias != NULL ? job->bias + column : NULL;
        job->kernels->last_stem(&stem, pixels, row, y + column);
    }
    sbit__last_activate(job, pixels, out, out, y);
}

/* An output row from the input rows that it sees; edge: for windows that are cut, to which edges points. */
static void sbit__last_stem_row(const sbit__last_job *job, int64_t first, const float *const *row, float *edge,
                                const float *const *edges)
{
    const sbit__conv_shape *s = &job->conv->shape;
    const int64_t runs = job->conv->taps * s->in_channels, kernel = s->kernel[2];
    for (int64_t at = 0, count = 1; at < s->out[2]; at += count) {
        const int64_t w = at * s->stride[2] - s->pad_begin[2];
        count = 1;
        if (w >= 0 && w + kernel <= s->in[2]) {
            count = sbit__smaller((s->in[2] - kernel - w) / s->stride[2] + 1, s->out[2] - at);
            sbit__last_stem_panels(job, count, row, w, first + at);
            continue;
        }
        for (int64_t i = 0; i < runs; i++) {
            for (int64_t k = 0; k < kernel; k++) {
                edge[i * kernel + k] = w + k >= 0 && w + k < s->in[2] ? row[i][w + k] : 0.0f;
            }
        }
        sbit__last_stem_panels(job, 1, edges, 0, first + at);
    }
}

static void sbit__last_stem_unit(const sbit__last_job *job, int64_t number, int32_t worker)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t c = s->in_channels, runs = conv->taps * c, begin = number % conv->bands * conv->rows;
    const int64_t end = sbit__smaller(begin + conv->rows, s->out[1]), plane = number / conv->bands;
    float *zeros = (float *)(void *)(job->scratch + worker * conv->worker_bytes);
    float *edge = (float *)(void *)((char *)zeros + sbit__cache_lines(s->in[2]));
    const float **row = (const float **)(void *)((char *)edge + sbit__cache_lines(runs * s->kernel[2]));
    const float **edges = row + runs;
    memset(zeros, 0, (size_t)s->in[2] * sizeof *zeros);
    for (int64_t i = 0; i < runs; i++) {
        edges[i] = edge + i * s->kernel[2];
    }
    for (int64_t line = begin; line < end; line++) {
        const int64_t first = (plane * s->out[1] + line) * s->out[2];
        const sbit__last_place p = sbit__last_place_of(s, first);
        for (int64_t i = 0; i < runs; i++) {
            const int64_t t = i / c;
            const int64_t d = p.o[0] * s->stride[0] - s->pad_begin[0] + t / s->kernel[1] * s->dilation[0];
            const int64_t h = line * s->stride[1] - s->pad_begin[1] + t % s->kernel[1] * s->dilation[1];
            const int64_t slice = (p.n * c + i % c) * s->in[0] + d;
            const bool inside = d >= 0 && d < s->in[0] && h >= 0 && h < s->in[1];
            row[i] = inside ? job->x + (slice * s->in[1] + h) * s->in[2] : zeros;
        }
        sbit__last_stem_row(job, first, row, edge, edges);
    }
}

/* Positions k of 0..kernel-1 for which 0 <= at + k * dilation < in: *first and how many. */
static int64_t sbit__last_cut(int64_t at, int64_t kernel, int64_t dilation, int64_t in,
                              int64_t *first)
{
    int64_t end = at < in ? sbit__smaller(kernel, (in - 1 - at) / dilation + 1) : 0;
    *first = at < 0 ? sbit__smaller((-at + dilation - 1) / dilation, kernel) : 0;
    return sbit__larger(end - *first, 0);
}

SBIT__FN void sbit__last_depthwise_row(const sbit__last_job *job, int64_t line, int64_t first,
                                       int64_t count)
{
    const sbit__conv_shape *s = &job->conv->shape;
    const int64_t lanes = job->kernels->lanes, c = s->in_channels;
    const sbit__last_place p = sbit__last_place_of(s, line * s->out[2]);
    const int64_t ih = p.o[1] * s->stride[1] - s->pad_begin[1];
    int64_t k_row = 0, k_tap = 0;
    sbit__last_window w;
    memset(&w, 0, sizeof w);
    w.channels = count;
    const int64_t d = p.o[0] * s->stride[0] - s->pad_begin[0];
    const int64_t seen =
        d >= 0 && d < s->in[0] ? sbit__last_cut(ih, s->kernel[1], s->dilation[1], s->in[1], &k_row) : 0;
    w.rows = seen;
    w.row_step = s->dilation[1] * s->in[2] * c;
    w.tap_step = s->dilation[2] * c;
    w.pixel_step = s->stride[2] * c;
    w.out_step = c;
    w.weight_row = s->kernel[2] * lanes;
    w.block_step = s->kernel[1] * w.weight_row;
    w.store = job->store;
    w.store.bias = job->bias != NULL ? job->bias + first : NULL;
    const float *image = job->x + (p.n * s->in[0] + d) * s->in[1] * s->in[2] * c;
    for (int64_t at = 0; at < s->out[2];) {
        const int64_t iw = at * s->stride[2] - s->pad_begin[2];
        const int64_t reach = (s->kernel[2] - 1) * s->dilation[2];
        int64_t pixels = 1;
        w.taps = sbit__last_cut(iw, s->kernel[2], s->dilation[2], s->in[2], &k_tap);
        if (iw >= 0 && iw + reach < s->in[2]) {
            pixels = (s->in[2] - 1 - iw - reach) / s->stride[2] + 1;
            pixels = sbit__smaller(pixels, s->out[2] - at);
        }
        const int64_t to = (line * s->out[2] + at) * c + first;
        w.weights = job->packed + first * s->kernel[1] * s->kernel[2];
        const int64_t from = (ih + k_row * s->dilation[1]) * s->in[2] + iw +
                             k_tap * s->dilation[2];
        if (w.rows == 0 || w.taps == 0) {
            w.rows = 0; /* nothing is read */
            job->kernels->last_depthwise(&w, pixels, job->x, job->y + to);
            w.rows = seen;
        } else {
            w.weights += k_row * w.weight_row + k_tap * lanes;
            job->kernels->last_depthwise(&w, pixels, image + from * c + first, job->y + to);
        }
        at += pixels;
    }
    float *y = job->y + line * s->out[2] * c + first;
    sbit__last_activate(job, s->out[2], count, c, y);
}

static void sbit__last_depthwise_unit(const sbit__last_job *job, int64_t number)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t lanes = job->kernels->lanes, lines = s->batch * s->out[0] * s->out[1];
    const int64_t blocks = sbit__div_up(s->groups, lanes);
    const int64_t part = number % conv->parts, band = number / conv->parts;
    const int64_t first = blocks * part / conv->parts * lanes;
    const int64_t end = sbit__smaller(blocks * (part + 1) / conv->parts * lanes, s->groups);
    for (int64_t i = lines * band / conv->bands; i < lines * (band + 1) / conv->bands; i++) {
        sbit__last_depthwise_row(job, i, first, end - first);
    }
}

static void sbit__last_run_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__last_job *job = (const sbit__last_job *)task;
    for (int64_t i = begin; i < end; i++) {
        if (job->conv->sparse) {
            sbit__last_sparse_unit(job, i, worker);
        } else if (job->conv->winograd != 0) {
            sbit__last_winograd_unit(job, i, worker);
        } else if (job->conv->depthwise) {
            sbit__last_depthwise_unit(job, i);
        } else if (job->conv->stem) {
            sbit__last_stem_unit(job, i, worker);
        } else if (job->conv->merges) {
            sbit__last_band_unit(job, i, worker);
        } else {
            sbit__last_pixels_unit(job, i, worker);
        }
    }
}

SBIT__FN void sbit__last_job_init(const sbit_ctx *ctx, const sbit__last_conv *conv, const float *x,
                                  const float *packed, const float *bias,
                                  const sbit__epilogue *epilogue, float *y, sbit__last_job *job)
{
    memset(job, 0, sizeof *job);
    job->conv = conv;
    job->kernels = sbit__last_of(ctx);
    job->elements = sbit__kernels(ctx);
    job->x = x;
    job->packed = packed;
    job->bias = bias;
    job->epilogue = epilogue;
    job->y = y;
    sbit__last_job_store(job);
}

SBIT__FN void sbit__last_conv_run(sbit_ctx *ctx, const sbit__last_conv *conv, const float *x,
                                  const float *packed, const float *bias,
                                  const sbit__epilogue *epilogue, float *y, void *scratch)
{
    const sbit__conv_shape *s = &conv->shape;
    sbit__last_job job;
    sbit__last_job_init(ctx, conv, x, packed, bias, epilogue, y, &job);
    job.scratch = (char *)scratch;
    if (s->batch * s->out[0] * s->out[1] * s->out[2] * s->out_channels <= 0) {
        return;
    }
    const int64_t units = (conv->depthwise ? conv->bands
                           : conv->merges && conv->winograd == 0 ? s->batch * s->out[0] * conv->bands
                                           : conv->blocks) *
                          conv->parts;
    const int64_t each = sbit__last_macs(conv) / units + 1;
    sbit__parallel_range(ctx, units, sbit__div_up(SBIT__LAST_WORTH_A_THREAD, 2 * each),
                         sbit__last_run_range, &job);
}
