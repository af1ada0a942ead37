/* elements_mask.c: masks of single elements: whole layers, rows, blocks, N of M. >>sparse-elements
 */
#include "sparse_private.h"

#include <math.h>   /* floor, HUGE_VAL */
#include <stdlib.h> /* qsort */

/* >>ranking */

static int sbit__rank_order(const void *a, const void *b)
{
    const sbit__rank *x = (const sbit__rank *)a, *y = (const sbit__rank *)b;
    return x->score < y->score   ? -1
           : x->score > y->score ? 1
           : x->index < y->index ? -1
                                 : x->index > y->index;
}

SBIT__FN sbit_status sbit__ranks_of(const double *scores, int64_t n, sbit__arena *scratch,
                                    sbit__rank **out, sbit_error *error)
{
    sbit__rank *ranks = (sbit__rank *)sbit__arena_array(scratch, (size_t)n + 1, sizeof *ranks);
    if (ranks == NULL) {
        return sbit__fail_oom(error, (size_t)n * sizeof *ranks);
    }
    for (int64_t i = 0; i < n; i++) {
        ranks[i].score = scores[i];
        ranks[i].index = i;
    }
    qsort(ranks, (size_t)n, sizeof *ranks, sbit__rank_order);
    *out = ranks;
    return SBIT_OK;
}

/* >>a weight as rows, columns and the rest: element (r, c, k) */

typedef struct sbit__grid3 {
    int64_t rows, columns, rest;
    int64_t row_stride, column_stride;
    int64_t dims[SBIT_MAX_RANK], strides[SBIT_MAX_RANK]; /* of the rest */
    int32_t rank;
} sbit__grid3;

static sbit__grid3 sbit__grid3_of(const sbit__sparse_layer *layer)
{
    const sbit_tensor *w = &layer->weight;
    /* a table that is gathered from: an entry is a row, as torch has it */
    const bool table = layer->call.in_axis < 0 && layer->call.out_axis == 1 && w->rank == 2;
    const int32_t row = table ? 0 : layer->call.out_axis, column = table ? 1 : layer->call.in_axis;
    sbit__grid3 g;
    int64_t stride = 1;
    memset(&g, 0, sizeof g);
    g.rows = g.columns = g.rest = 1;
    for (int32_t i = w->rank; i-- > 0;) {
        if (i == row) {
            g.rows = w->dims[i];
            g.row_stride = stride;
        } else if (i == column) {
            g.columns = w->dims[i];
            g.column_stride = stride;
        } else {
            g.dims[g.rank] = w->dims[i];
            g.strides[g.rank++] = stride;
            g.rest *= w->dims[i];
        }
        stride *= w->dims[i];
    }
    return g;
}

static int64_t sbit__grid3_at(const sbit__grid3 *g, int64_t r, int64_t c, int64_t k)
{
    int64_t at = r * g->row_stride + c * g->column_stride;
    for (int32_t i = 0; i < g->rank; i++) {
        at += k % g->dims[i] * g->strides[i];
        k /= g->dims[i];
    }
    return at;
}

/* >>patterns */

/* The `gone` smallest of the elements at[0..n-1]. */
static sbit_status sbit__mask_smallest(const double *scores, const int64_t *at, int64_t n,
                                       int64_t gone, uint8_t *keep, sbit__arena *scratch,
                                       sbit_error *error)
{
    double *values = (double *)sbit__arena_array(scratch, (size_t)n + 1, sizeof *values);
    sbit__rank *ranks = NULL;
    if (values == NULL) {
        return sbit__fail_oom(error, (size_t)n * sizeof *values);
    }
    for (int64_t i = 0; i < n; i++) {
        values[i] = scores[at != NULL ? at[i] : i];
    }
    SBIT__TRY(sbit__ranks_of(values, n, scratch, &ranks, error));
    for (int64_t i = 0; i < gone && i < n; i++) {
        keep[at != NULL ? at[ranks[i].index] : ranks[i].index] = 0;
    }
    return SBIT_OK;
}

/* Of every `m` neighbours along the columns `n` go; fewer of a shorter run at the end. */
static void sbit__mask_n_of_m(const sbit__sparse_layer *layer, const sbit__grid3 *g, uint8_t *keep)
{
    const int64_t n = layer->settings.n_of_m[0], m = layer->settings.n_of_m[1];
    for (int64_t line = 0; line < g->rows * g->rest; line++) {
        const int64_t r = line / g->rest, k = line % g->rest;
        for (int64_t first = 0; first < g->columns; first += m) {
            const int64_t end = first + m < g->columns ? first + m : g->columns;
            int64_t gone = n - (m - (end - first));
            for (; gone > 0; gone--) {
                int64_t least = -1;
                for (int64_t c = first; c < end; c++) {
                    const int64_t at = sbit__grid3_at(g, r, c, k);
                    if (keep[at] != 0 && (least < 0 || layer->scores[at] < layer->scores[least])) {
                        least = at;
                    }
                }
                keep[least] = 0;
            }
        }
    }
}

/* What lies further from the diagonal than half the band goes. */
static void sbit__mask_diagonal(const sbit__sparse_layer *layer, const sbit__grid3 *g,
                                uint8_t *keep)
{
    const int64_t half = layer->settings.diagonal / 2;
    for (int64_t i = 0; i < g->rows * g->columns * g->rest; i++) {
        const int64_t k = i % g->rest, c = i / g->rest % g->columns, r = i / g->rest / g->columns;
        if (r - c > half || c - r > half) {
            keep[sbit__grid3_at(g, r, c, k)] = 0;
        }
    }
}

static sbit_status sbit__mask_rows_apart(const sbit__sparse_layer *layer, const sbit__grid3 *g,
                                         uint8_t *keep, sbit__arena *scratch, sbit_error *error)
{
    const int64_t n = g->columns * g->rest;
    const int64_t gone = (int64_t)floor(layer->settings.ratio * (double)n + 1e-9);
    int64_t *at = (int64_t *)sbit__arena_array(scratch, (size_t)n + 1, sizeof *at);
    if (at == NULL) {
        return sbit__fail_oom(error, (size_t)n * sizeof *at);
    }
    for (int64_t r = 0; r < g->rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            at[i] = sbit__grid3_at(g, r, i / g->rest, i % g->rest);
        }
        sbit__arena row;
        sbit__arena_init(&row, &scratch->allocator);
        const sbit_status status =
            sbit__mask_smallest(layer->scores, at, n, gone, keep, &row, error);
        sbit__arena_deinit(&row);
        SBIT__TRY(status);
    }
    return SBIT_OK;
}

static int64_t sbit__block_length(int64_t asked, int64_t all)
{
    return asked > 0 && asked < all ? asked : all;
}

/* Of every block of h rows and w columns, those at the borders shorter, the smallest elements. */
static sbit_status sbit__mask_within(const sbit__sparse_layer *layer, const sbit__grid3 *g,
                                     uint8_t *keep, sbit__arena *scratch, sbit_error *error)
{
    const int64_t h = sbit__block_length(layer->settings.within[0], g->rows);
    const int64_t w = sbit__block_length(layer->settings.within[1], g->columns);
    const int64_t down = (g->rows + h - 1) / h, across = (g->columns + w - 1) / w;
    int64_t *at = (int64_t *)sbit__arena_array(scratch, (size_t)(h * w) + 1, sizeof *at);
    if (at == NULL) {
        return sbit__fail_oom(error, (size_t)(h * w) * sizeof *at);
    }
    for (int64_t b = 0; b < down * across * g->rest; b++) {
        const int64_t top = b / g->rest / across * h, left = b / g->rest % across * w;
        int64_t n = 0;
        for (int64_t i = 0; i < h * w; i++) {
            const int64_t r = top + i / w, c = left + i % w;
            if (r < g->rows && c < g->columns) {
                at[n++] = sbit__grid3_at(g, r, c, b % g->rest);
            }
        }
        sbit__arena block;
        sbit__arena_init(&block, &scratch->allocator);
        const sbit_status status = sbit__mask_smallest(
            layer->scores, at, n, (int64_t)floor(layer->settings.ratio * (double)n + 1e-9), keep,
            &block, error);
        sbit__arena_deinit(&block);
        SBIT__TRY(status);
    }
    return SBIT_OK;
}

/* Blocks of h rows, w columns and d places of a kernel, those at the borders shorter; the smallest means go. */
static sbit_status sbit__mask_blocks(const sbit__sparse_layer *layer, const sbit__grid3 *g,
                                     uint8_t *keep, sbit__arena *scratch, sbit_error *error)
{
    const int64_t h = sbit__block_length(layer->settings.block[0], g->rows);
    const int64_t w = sbit__block_length(layer->settings.block[1], g->columns);
    const int64_t d = sbit__block_length(layer->settings.block[2], g->rest);
    const int64_t down = (g->rows + h - 1) / h, across = (g->columns + w - 1) / w;
    const int64_t deep = (g->rest + d - 1) / d, count = down * across * deep;
    double *means = (double *)sbit__arena_array(scratch, 3 * (size_t)count + 3, sizeof *means);
    sbit__rank *ranks = NULL;
    if (means == NULL) {
        return sbit__fail_oom(error, 3 * (size_t)count * sizeof *means);
    }
    double *sizes = means + count, *left = sizes + count; /* left: not pruned by a start mask */
    for (int pass = 0; pass < 2; pass++) {
        const int64_t gone = (int64_t)floor(layer->settings.ratio * (double)count + 1e-9);
        for (int64_t i = 0; i < gone && pass == 1; i++) {
            sizes[ranks[i].index] = -1.0; /* goes */
        }
        for (int64_t i = 0; i < g->rows * g->columns * g->rest; i++) {
            const int64_t k = i % g->rest, c = i / g->rest % g->columns;
            const int64_t r = i / g->rest / g->columns;
            const int64_t b = (r / h * across + c / w) * deep + k / d;
            const int64_t at = sbit__grid3_at(g, r, c, k);
            if (pass == 0) {
                const bool started = layer->scores[at] == -HUGE_VAL;
                means[b] += started ? 0.0 : layer->scores[at];
                left[b] += started ? 0.0 : 1.0;
                sizes[b] += 1.0;
            } else if (sizes[b] < 0.0) {
                keep[at] = 0;
            }
        }
        for (int64_t b = 0; b < count && pass == 0; b++) {
            means[b] = left[b] > 0.0 ? means[b] / sizes[b] : -HUGE_VAL;
        }
        if (pass == 0) {
            SBIT__TRY(sbit__ranks_of(means, count, scratch, &ranks, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__mask_elements(const sbit__sparse_layer *layer, uint8_t *keep,
                                         sbit__arena *scratch, sbit_error *error)
{
    const sbit_sparse_settings *settings = &layer->settings;
    const sbit__grid3 g = sbit__grid3_of(layer);
    const int64_t n = layer->units.count;
    if (settings->n_of_m[1] > 0) {
        sbit__mask_n_of_m(layer, &g, keep);
        return SBIT_OK;
    }
    if (settings->diagonal > 0) {
        sbit__mask_diagonal(layer, &g, keep);
        return SBIT_OK;
    }
    if (settings->block[0] != 0) {
        return sbit__mask_blocks(layer, &g, keep, scratch, error);
    }
    if (settings->within[0] != 0) {
        return sbit__mask_within(layer, &g, keep, scratch, error);
    }
    if (settings->by_row) {
        return sbit__mask_rows_apart(layer, &g, keep, scratch, error);
    }
    int64_t gone = (int64_t)floor(settings->ratio * (double)n + 1e-9);
    gone += (layer->row->traits & SBIT_SPARSER_ONE_MORE) != 0 && gone < n ? 1 : 0;
    return sbit__mask_smallest(layer->scores, NULL, n, gone, keep, scratch, error);
}
