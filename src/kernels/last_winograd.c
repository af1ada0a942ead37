/* last_winograd.c: 3 x 3 convolutions without stride by Winograd's method. >>last_winograd
 *
 * Called by: last_conv.c. Calls: the kernels with channels last.
 * m x m outputs at once from n x n inputs, n = m + 2 (Lavin and Gray, arXiv 1509.09308):
 *     y = A' [ (G w G') .* (B' d B) ] A
 * with A'[i][j] = p_j^i, G[j][k] = p_j^k / N_j, N_j = product of p_j - p_l over the others, row j of
 * B' = coefficients of the product of x - p_l over the others; the last point is infinite: A' has
 * only its last row there, G its last column, and the last row of B' is the product over all.
 *     m = 2: p = 0, 1, -1, and the rows of B' and G of the first point change sign
 *     m = 4: p = 0, a, -a, b, -b with a = sqrt(1/2), b = sqrt(2): with them errors are half of what
 *            they are with 1 and 2, and hardly larger than a plain sum's
 * The products of each of the n * n places are a matrix product over channels:
 *     V[place][tile][in] x U[place][in][out] = M[place][tile][out]
 * A unit of work is some tiles of all images and some panels of out; V and M are of one unit and stay
 * in the cache. Infinite numbers and errors spread over the outputs of a tile.
 */
#include "last_private.h"
#include "rows_private.h"

enum {
    SBIT__WINOGRAD_BYTES = 512 * 1024, /* of V in a unit, about */
    SBIT__WINOGRAD_TILES = 28
};

/* Floats from a place's matrix to the next: an odd number of lines, or a tile's places would have few
 * sets of the cache to themselves. */
static int64_t sbit__winograd_step(int64_t rows, int64_t columns)
{
    return (sbit__div_up(rows * columns, 16) | 1) * 16;
}

SBIT__FN void sbit__last_winograd_plan(const sbit_ctx *ctx, sbit__last_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    const sbit__last_kernels *kernels = sbit__last_of(ctx);
    const int64_t m = conv->winograd, places = (m + 2) * (m + 2), threads = sbit_ctx_threads(ctx);
    const int64_t widest = (int64_t)kernels->panel * kernels->lanes;
    const int64_t panels = sbit__div_up(conv->columns, widest);
    const int64_t all = s->batch * sbit__div_up(s->out[1], m) * sbit__div_up(s->out[2], m);
    int64_t most = SBIT__WINOGRAD_BYTES / (places * s->in_channels * (int64_t)sizeof(float));
    most = sbit__larger(sbit__smaller(most / 7 * 7, SBIT__WINOGRAD_TILES), 7);
    if (all < threads * most && (all >= threads * 14 || panels < threads)) {
        most = sbit__larger(sbit__div_up(all, threads), 7); /* share tiles rather than panels */
    }
    conv->blocks = sbit__larger(sbit__div_up(all, most), 1);
    conv->pixels = sbit__div_up(all, conv->blocks); /* tiles of a unit */
    conv->parts = conv->blocks >= 2 * threads ? 1 : sbit__smaller(panels, threads);
    conv->worker_bytes =
        (int64_t)(sbit__cache_lines(places * sbit__winograd_step(conv->pixels, s->in_channels)) +
                  sbit__cache_lines(places * sbit__winograd_step(conv->pixels, widest)) +
                  sbit__cache_lines(places * kernels->lanes) + sbit__cache_lines(s->in_channels));
    conv->packed_bytes = sbit__cache_lines(conv->columns * places * s->in_channels);
}

/* >>pack */

/* Rows of G. */
static void sbit__winograd_factors(int64_t m, double g[6][3])
{
    static const double two[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
    const double a = 0.70710678118654752440, b = 1.41421356237309504880; /* sqrt(1/2), sqrt(2) */
    const double four[6][3] = {{1, 0, 0},
                               {-1 / 1.5, -a / 1.5, -0.5 / 1.5},
                               {-1 / 1.5, a / 1.5, -0.5 / 1.5},
                               {1 / 6.0, b / 6, 2 / 6.0},
                               {1 / 6.0, -b / 6, 2 / 6.0},
                               {0, 0, 1}};
    for (int64_t i = 0; i < m + 2; i++) {
        for (int k = 0; k < 3; k++) {
            g[i][k] = m == 2 ? two[i][k] : four[i][k];
        }
    }
}

enum {
    SBIT__WINOGRAD_MOST = 16 /* lanes */
};

/* `lanes` is a constant in each copy. */
SBIT__INLINE void sbit__winograd_columns(const sbit__last_conv *conv, const float *weights,
                                         int64_t count, int lanes, int64_t width, float *to)
{
    const int64_t n = conv->winograd + 2, in = conv->shape.in_channels;
    double g[6][3], w[9][SBIT__WINOGRAD_MOST], half[3][SBIT__WINOGRAD_MOST];
    sbit__winograd_factors(conv->winograd, g);
    memset(w, 0, sizeof w);
    for (int64_t c = 0; c < in; c++) {
        for (int64_t j = 0; j < count; j++) {
            for (int t = 0; t < 9; t++) {
                w[t][j] = (double)weights[(j * in + c) * 9 + t];
            }
        }
        for (int64_t i = 0; i < n; i++) {
            for (int k = 0; k < 3; k++) {
                for (int j = 0; j < lanes; j++) {
                    half[k][j] = g[i][0] * w[k][j] + g[i][1] * w[3 + k][j] + g[i][2] * w[6 + k][j];
                }
            }
            for (int64_t at = 0; at < n; at++) {
                float *row = to + ((i * n + at) * in + c) * width;
                for (int j = 0; j < lanes; j++) {
                    row[j] = (float)(half[0][j] * g[at][0] + half[1][j] * g[at][1] +
                                     half[2][j] * g[at][2]);
                }
            }
        }
    }
}

/* G w G' of `lanes` output channels at once, of which `count` exist. */
SBIT__FN void sbit__last_winograd_pack(const sbit__last_conv *conv, const float *weights,
                                       int64_t count, int64_t lanes, int64_t width, float *to)
{
    switch (lanes) {
    case 16:
        sbit__winograd_columns(conv, weights, count, 16, width, to);
        break;
    case 8:
        sbit__winograd_columns(conv, weights, count, 8, width, to);
        break;
    case 4:
        sbit__winograd_columns(conv, weights, count, 4, width, to);
        break;
    default:
        sbit__winograd_columns(conv, weights, count, (int)lanes, width, to);
    }
}

/* >>run */

typedef struct sbit__winograd_unit {
    const sbit__last_job *job;
    int64_t first, tiles; /* of all images' */
    float *v, *sums, *middle, *zeros;
} sbit__winograd_unit;

typedef struct sbit__winograd_place {
    int64_t image, h, w; /* of the tile's first output */
} sbit__winograd_place;

/* Of the unit's first tile. */
static sbit__winograd_place sbit__winograd_begin(const sbit__winograd_unit *unit)
{
    const sbit__last_conv *conv = unit->job->conv;
    const int64_t m = conv->winograd, wide = sbit__div_up(conv->shape.out[2], m);
    const int64_t high = sbit__div_up(conv->shape.out[1], m);
    sbit__winograd_place p;
    p.w = unit->first % wide * m;
    p.h = unit->first / wide % high * m;
    p.image = unit->first / wide / high;
    return p;
}

/* From a tile to the next. */
static void sbit__winograd_go_on(const sbit__last_conv *conv, sbit__winograd_place *p)
{
    p->w += conv->winograd;
    if (p->w >= conv->shape.out[2]) {
        p->w = 0;
        p->h += conv->winograd;
        if (p->h >= conv->shape.out[1]) {
            p->h = 0;
            p->image++;
        }
    }
}

static void sbit__winograd_inputs(const sbit__winograd_unit *unit)
{
    const sbit__last_job *job = unit->job;
    const sbit__conv_shape *s = &job->conv->shape;
    const int64_t n = job->conv->winograd + 2, c = s->in_channels;
    sbit__winograd_place p = sbit__winograd_begin(unit);
    for (int64_t t = 0; t < unit->tiles; t++) {
        const int64_t w = p.w - s->pad_begin[2], first = sbit__larger(w, 0);
        sbit__last_patch patch;
        patch.left = first - w;
        patch.right = sbit__smaller(s->in[2] - w, n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t h = p.h - s->pad_begin[1] + i;
            const bool inside = h >= 0 && h < s->in[1] && first < s->in[2];
            patch.row[i] =
                inside ? job->x + ((p.image * s->in[1] + h) * s->in[2] + first) * c : unit->zeros;
            patch.step[i] = inside ? c : 0;
        }
        job->kernels->last_winograd_load((int)job->conv->winograd, c, &patch, unit->middle,
                                         unit->v + t * c, sbit__winograd_step(unit->tiles, c));
        sbit__winograd_go_on(job->conv, &p);
    }
}

/* The columns first..first+columns-1 of all tiles. */
static void sbit__winograd_panel(const sbit__winograd_unit *unit, int64_t first, int64_t width,
                                 int64_t columns)
{
    const sbit__last_job *job = unit->job;
    const sbit__conv_shape *s = &job->conv->shape;
    const int64_t m = job->conv->winograd, places = (m + 2) * (m + 2), c = s->in_channels;
    const int64_t out = sbit__last_pitch(job->conv), step = sbit__winograd_step(unit->tiles, width);
    const int64_t v_step = sbit__winograd_step(unit->tiles, c);
    const bool fetches = job->conv->blocks <= 4;
    sbit__last_tile tile;
    sbit__last_cell cell;
    memset(&tile, 0, sizeof tile);
    tile.taps = 1;
    tile.depth = tile.x_step = c;
    tile.width = tile.columns = tile.out_step = width;
    for (int64_t i = 0; i < places; i++) {
        tile.weights = job->packed + places * c * first + i * c * width;
        tile.x = unit->v + i * v_step;
        tile.ahead = fetches && i + 1 < places ? c * width : 0;
        tile.next = tile.weights + c * width;
        job->kernels->last_tile(&tile, unit->tiles, NULL, unit->sums + i * step);
    }
    memset(&cell, 0, sizeof cell);
    cell.columns = columns;
    cell.row_step = s->out[2] * out;
    cell.pixel_step = out;
    cell.store = job->store;
    cell.store.bias = job->bias != NULL ? job->bias + first : NULL;
    sbit__winograd_place p = sbit__winograd_begin(unit);
    for (int64_t t = 0; t < unit->tiles; t++) {
        const int64_t at = ((p.image * s->out[1] + p.h) * s->out[2] + p.w) * out + first;
        cell.rows = sbit__smaller(m, s->out[1] - p.h);
        cell.pixels = sbit__smaller(m, s->out[2] - p.w);
        cell.store.residual = job->epilogue != NULL && job->epilogue->residual != NULL
                                  ? job->epilogue->residual + at
                                  : NULL;
        job->kernels->last_winograd_store((int)m, &cell, unit->sums + t * width, step,
                                          unit->middle, job->y + at);
        for (int64_t i = 0; i < cell.rows; i++) {
            sbit__last_activate(job, cell.pixels, columns, out, job->y + at + i * cell.row_step);
        }
        sbit__winograd_go_on(job->conv, &p);
    }
}

SBIT__FN void sbit__last_winograd_unit(const sbit__last_job *job, int64_t number, int32_t worker)
{
    const sbit__last_conv *conv = job->conv;
    const sbit__conv_shape *s = &conv->shape;
    const int64_t m = conv->winograd, places = (m + 2) * (m + 2), c = s->in_channels;
    const int64_t widest = (int64_t)job->kernels->panel * job->kernels->lanes;
    const int64_t all = s->batch * sbit__div_up(s->out[1], m) * sbit__div_up(s->out[2], m);
    char *scratch = job->scratch + worker * conv->worker_bytes;
    sbit__winograd_unit unit;
    int64_t panel = 0;
    unit.job = job;
    unit.first = number / conv->parts * conv->pixels;
    unit.tiles = sbit__smaller(conv->pixels, all - unit.first);
    unit.v = (float *)(void *)scratch;
    scratch += sbit__cache_lines(places * sbit__winograd_step(conv->pixels, c));
    unit.sums = (float *)(void *)scratch;
    scratch += sbit__cache_lines(places * sbit__winograd_step(conv->pixels, widest));
    unit.middle = (float *)(void *)scratch;
    scratch += sbit__cache_lines(places * job->kernels->lanes);
    unit.zeros = (float *)(void *)scratch;
    memset(unit.zeros, 0, (size_t)c * sizeof(float));
    sbit__winograd_inputs(&unit);
    for (int64_t first = 0; first < s->out_channels; panel++) {
        const int64_t width = sbit__last_panel(job->kernels, s->out_channels - first);
        if (panel % conv->parts == number % conv->parts) {
            sbit__winograd_panel(&unit, first, width,
                                 sbit__smaller(width, s->out_channels - first));
        }
        first += width;
    }
}
