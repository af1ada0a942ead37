/* step_gptq.c: GPTQ: weights rounded one after the other, each error made good by those that
 * follow.
 * >>step-gptq
 *
 * Frantar et al. 2022, on H = sum of x x^T / n of the layer's inputs, per group of a convolution.
 * Columns in falling order of H's diagonal (act-order; the grid is the site's, so that no index is
 * needed); here they stand in rising order and the last is rounded first. With H + damping = L L^T,
 * L lower, the form (t - q) H (t - q)^T is the sum of ((t - q) L)_i^2, and the i-th term holds no
 * column before i: q_i makes it least, given those behind. That is what GPTQ does, without H^-1
 * (Chen et al. 2025), and in blocks of columns it is matrix products. If the factorization fails
 * the damping is raised tenfold, three times; then the weights stay the nearest. Then SWEEPS of
 * coordinate descent on the same form: a weight moves by whole steps while that lowers it; the
 * nearest weights are another start. Rows with a scale of their own try it at SCALES sizes, from
 * the observer's down to half of it, and go on with the one whose form is least; then scale and
 * weights are fitted in turns: the least squares scale of the integers, (q H t) / (q H q), and
 * descent again. asym: the target is t = w + w (sum x x_q^T - sum x_q x_q^T) (sum x_q x_q^T +
 * damping)^-1, what is nearest to the float output on quantized inputs; how strong that damping is, and
 * what part of the correction counts, is what each half of the batches says of the correction that
 * the other half finds: few samples fit anything, and teach nothing. BIAS: all sums are about
 * the means, what the means come to goes into the layer's bias at once, so that the layers behind
 * see it.
 */
#include "layer_private.h"
#include "../kernels/rows_private.h"

static const sbit_key sbit__gptq_keys[] = {
    {"GPTQ.DAMPING", SBIT_KEY_FLOAT, "0.01", 0.0, 10.0, NULL,
     "added to the diagonal, as a part of its mean; more where a column has fewer than 10 positions"},
    {"GPTQ.SWEEPS", SBIT_KEY_INT, "8", 0.0, 1000.0, NULL, "visits of all weights afterwards"},
    {"GPTQ.SCALES", SBIT_KEY_INT, "1", 1.0, 64.0, NULL,
     "sizes at which the scale of each output channel is tried; 1: it stays as observed"},
    {"GPTQ.POSITIONS", SBIT_KEY_INT, "64", 0.0, 1e9, NULL,
     "output positions of a sample that are looked at; 0: all"},
    {"GPTQ.BIAS", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "the layer's bias takes up what means come to, weights the rest"},
};

enum {
    SBIT__GPTQ_BLOCK = 64, /* columns between two matrix products */
    SBIT__GPTQ_TURNS = 3,  /* of scale and weights */
    SBIT__GPTQ_PLENTY = 10 /* positions per column; of fewer, more is noise: more damping */
};

/* One group at work: matrices of [n][n] and [rows][n], columns in their order. */
typedef struct sbit__gptq {
    sbit_quant *quant;
    const sbit__site *site;
    const sbit__layer *layer;
    const float *w; /* as stored */
    int64_t group, n, rows, sweeps, sizes;
    int64_t begin, end;     /* columns of the block at work */
    bool solve;             /* an equation is solved, nothing is rounded */
    bool nearest;           /* to the target, not good for each other */
    float *h, *l;           /* damped; its factor, lower triangle */
    float *more;            /* asym: what the mixed sums are above those of x_q */
    double damping, ridge;  /* of rounding; of the target's correction */
    double share;           /* of the correction that counts */
    float *target;          /* what is to be rounded */
    float *best, *q;        /* weights: kept; at work */
    float *off;             /* target - q */
    float *product, *slope; /* sums of the columns behind; off H */
    float *scale, *tried;   /* [rows] of best, of q */
    double *form, *left;    /* [rows] likewise */
    int32_t *parts;         /* blocks: which scale each weight has; NULL: none */
    int64_t *column;        /* [n]: which column comes i-th */
    float *out, *found;     /* of all groups: weights as stored; scales, shifts */
    void *scratch;
} sbit__gptq;

static double sbit__gptq_dot(const float *a, const float *b, int64_t n)
{
    double sums[4] = {0.0, 0.0, 0.0, 0.0}; /* side by side, not one after the other */
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int64_t i = 0; i < 4; i++) {
            sums[i] += (double)a[k + i] * (double)b[k + i];
        }
    }
    for (; k < n; k++) {
        sums[0] += (double)a[k] * (double)b[k];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* y += factor x */
static void sbit__gptq_add(float *y, const float *x, float factor, int64_t n)
{
    float sums[8];
    int64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        for (int64_t i = 0; i < 8; i++) {
            sums[i] = y[k + i] + factor * x[k + i];
        }
        memcpy(y + k, sums, sizeof sums);
    }
    for (; k < n; k++) {
        y[k] += factor * x[k];
    }
}

/* >>step-gptq algebra. c[m][n] = a[m][k] b[k][n], b transposed if so said. */
static sbit__gemm sbit__gptq_gemm(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb,
                                  int64_t ldc, bool trans_b)
{
    sbit__gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.lda = lda;
    gemm.ldb = ldb;
    gemm.ldc = ldc;
    gemm.trans_b = trans_b;
    gemm.alpha = 1.0f;
    return gemm;
}

static void sbit__gptq_multiply(const sbit__gptq *t, sbit__gemm gemm, const float *a,
                                const float *b, float *c)
{
    gemm.a = a;
    gemm.b = b;
    gemm.c = c;
    sbit__gemm_run(t->quant->ctx, &gemm, t->scratch);
}

/* c = a b, b [n][n]. */
static void sbit__gptq_times(const sbit__gptq *t, const float *a, const float *b, float *c)
{
    const int64_t n = t->n;
    sbit__gptq_multiply(t, sbit__gptq_gemm(t->rows, n, n, n, n, n, false), a, b, c);
}

static size_t sbit__gptq_scratch(sbit_ctx *ctx, int64_t rows, int64_t n)
{
    const int64_t most = sbit__larger(rows, n), block = SBIT__GPTQ_BLOCK;
    const int64_t rest = n % block > 0 ? n % block : block; /* fewer columns may take more */
    const sbit__gemm shapes[5] = {sbit__gptq_gemm(rows, n, n, n, n, n, false),
                                  sbit__gptq_gemm(most, block, n, n, n, block, false),
                                  sbit__gptq_gemm(most, block, n, n, n, block, true),
                                  sbit__gptq_gemm(most, rest, n, n, n, rest, false),
                                  sbit__gptq_gemm(most, rest, n, n, n, rest, true)};
    size_t bytes = 0;
    for (int i = 0; i < 5; i++) {
        const size_t own = sbit__gemm_scratch_bytes(ctx, &shapes[i]);
        bytes = own > bytes ? own : bytes;
    }
    return bytes + 64;
}

/* Row i of the factor from column `begin` on, what lies before being taken off already; false: not
 * positive definite. */
static bool sbit__gptq_factor_row(const sbit__gptq *t, int64_t i, int64_t begin, int64_t end)
{
    float *row = t->l + i * t->n;
    for (int64_t j = begin; j < end && j < i; j++) {
        const float *above = t->l + j * t->n;
        const double sum = sbit__gptq_dot(row + begin, above + begin, j - begin);
        row[j] = (float)(((double)row[j] - sum) / (double)above[j]);
    }
    if (i >= end) {
        return true;
    }
    const double rest = (double)row[i] - sbit__gptq_dot(row + begin, row + begin, i - begin);
    row[i] = rest > 0.0 ? (float)sqrt(rest) : 0.0f;
    return rest > 1e-6 * (double)t->h[i * t->n + i];
}

/* l = the lower Cholesky factor of h. `product` is too small for all rows at once: by turns. */
static bool sbit__gptq_factor(const sbit__gptq *t)
{
    const int64_t n = t->n;
    bool fine = true;
    memcpy(t->l, t->h, (size_t)(n * n) * sizeof *t->l);
    for (int64_t begin = 0; begin < n && fine; begin += SBIT__GPTQ_BLOCK) {
        const int64_t end = sbit__smaller(begin + SBIT__GPTQ_BLOCK, n), width = end - begin;
        const int64_t most = t->rows * n / width;
        for (int64_t i = begin, count; i < n && begin > 0; i += count) {
            count = sbit__smaller(most, n - i);
            sbit__gptq_multiply(t, sbit__gptq_gemm(count, width, begin, n, n, width, true),
                                t->l + i * n, t->l + begin * n, t->product);
            for (int64_t k = 0; k < count * width; k++) {
                t->l[(i + k / width) * n + begin + k % width] -= t->product[k];
            }
        }
        for (int64_t i = begin; i < n && fine; i++) {
            fine = sbit__gptq_factor_row(t, i, begin, end);
        }
    }
    return fine;
}

/* H in the order of columns, damped, and its factor. */
static bool sbit__gptq_prepare(sbit__gptq *t, const sbit__gram *gram, double damping)
{
    const int64_t n = t->n;
    const float *sums = gram->sums + t->group * n * n;
    double mean = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mean += (double)sums[i * n + i] / (double)n;
    }
    for (int attempt = 0; attempt<4; attempt++, damping = damping> 0.0 ? damping * 10.0 : 0.001) {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++) {
                const int64_t a = t->column[i], b = t->column[j];
                t->h[i * n + j] = a < b ? sums[a * n + b] : sums[b * n + a];
            }
            t->h[i * n + i] = (float)((double)t->h[i * n + i] + damping * mean + 1e-12);
        }
        if (sbit__gptq_factor(t)) {
            return true;
        }
    }
    return false;
}

/* >>step-gptq rows */
typedef struct sbit__gptq_grid {
    double scale, least, most; /* scale times least..most */
} sbit__gptq_grid;

/* Of column i of row r. */
static sbit__gptq_grid sbit__gptq_grid_of(const sbit__gptq *t, int64_t r, int64_t i)
{
    const sbit__layer *layer = t->layer;
    const sbit_grid *g = &t->site->settings.grid;
    const int64_t row = t->group * layer->rows + r;
    const int64_t part =
        t->parts != NULL ? t->parts[row * layer->row_step + t->column[i] * layer->depth_step]
                         : (sbit__site_parts(t->site) == 1 ? 0 : row);
    sbit__gptq_grid grid;
    grid.scale = (double)(t->parts != NULL ? t->site->scale[part] : t->tried[r]);
    grid.least = (double)(g->qmin - t->site->zero_point[part]);
    grid.most = (double)(g->qmax - t->site->zero_point[part]);
    return grid;
}

static float sbit__gptq_weight(const sbit__gptq *t, int64_t r, int64_t i)
{
    const sbit__layer *layer = t->layer;
    return t->w[(t->group * layer->rows + r) * layer->row_step + t->column[i] * layer->depth_step];
}

/* A weight that is zero was pruned, and stays: the others make up for it. */
static float sbit__gptq_round(const sbit__gptq *t, int64_t r, int64_t i, double value)
{
    const sbit__gptq_grid grid = sbit__gptq_grid_of(t, r, i);
    const double q = nearbyint(value / grid.scale);
    return sbit__gptq_weight(t, r, i) == 0.0f
               ? 0.0f
               : (float)(grid.scale * (q < grid.least ? grid.least : q > grid.most ? grid.most : q));
}

/* A row through the block, last column first; product: the sums of the columns behind. Rounds, or
 * solves off L = target. */
static void sbit__gptq_back_task(void *task, int64_t r, int32_t worker)
{
    const sbit__gptq *t = (const sbit__gptq *)task;
    const int64_t n = t->n, width = t->end - t->begin;
    float *sums = t->product + r * width, *off = t->off + r * n;
    (void)worker;
    for (int64_t i = t->end - 1; i >= t->begin; i--) {
        const float *l = t->l + i * n;
        const double sum = (double)sums[i - t->begin], own = (double)l[i];
        const double target = (double)t->target[r * n + i];
        if (t->solve) {
            off[i] = (float)((target - sum) / own);
        } else {
            float *q = &t->q[r * n + i];
            *q = sbit__gptq_round(t, r, i, target + sum / own);
            off[i] = (float)(target - (double)*q);
            const double rest = sum + (double)off[i] * own;
            t->left[r] += rest * rest;
        }
        sbit__gptq_add(sums, l + t->begin, off[i], i - t->begin);
    }
}

static void sbit__gptq_back(sbit__gptq *t, bool solve)
{
    const int64_t n = t->n;
    t->solve = solve;
    memset(t->left, 0, (size_t)t->rows * sizeof *t->left);
    for (t->end = n; t->end > 0; t->end = t->begin) {
        t->begin = (t->end - 1) / SBIT__GPTQ_BLOCK * SBIT__GPTQ_BLOCK;
        const int64_t width = t->end - t->begin;
        if (t->end == n) {
            memset(t->product, 0, (size_t)(t->rows * width) * sizeof *t->product);
        } else {
            sbit__gptq_multiply(t,
                                sbit__gptq_gemm(t->rows, width, n - t->end, n, n, width, false),
                                t->off + t->end, t->l + t->end * n + t->begin, t->product);
        }
        sbit_ctx_parallel(t->quant->ctx, t->rows, sbit__gptq_back_task, t);
    }
}

/* target solves target L^T = slope, first column first. */
static void sbit__gptq_forth(const sbit__gptq *t)
{
    const int64_t n = t->n;
    for (int64_t begin = 0; begin < n; begin += SBIT__GPTQ_BLOCK) {
        const int64_t end = sbit__smaller(begin + SBIT__GPTQ_BLOCK, n), width = end - begin;
        if (begin > 0) {
            sbit__gptq_multiply(t, sbit__gptq_gemm(t->rows, width, begin, n, n, width, true),
                                t->target, t->l + begin * n, t->product);
        }
        for (int64_t r = 0; r < t->rows; r++) {
            float *x = t->target + r * n;
            for (int64_t i = begin; i < end; i++) {
                const float *l = t->l + i * n;
                const double known = begin > 0 ? (double)t->product[r * width + i - begin] : 0.0;
                const double here = sbit__gptq_dot(x + begin, l + begin, i - begin);
                x[i] = (float)(((double)t->slope[r * n + i] - known - here) / (double)l[i]);
            }
        }
    }
}

/* out = w (mixed sums - those of x_q), columns as stored. */
static void sbit__gptq_lack(sbit__gptq *t, const sbit__gram *gram, float *out)
{
    const int64_t n = t->n, square = n * n;
    sbit__kernels(t->quant->ctx)
        ->f32_binary(SBIT__BINARY_SUB, square, gram->mixed + t->group * square, 1,
                     gram->sums + t->group * square, 1, t->more);
    for (int64_t i = 0; i < t->rows * n; i++) {
        t->q[i / n * n + t->column[i % n]] = sbit__gptq_weight(t, i / n, i % n);
    }
    sbit__gptq_times(t, t->q, t->more, out);
}

/* off = what w lacks for quantized inputs; false: the sums say too little. */
static bool sbit__gptq_correct(sbit__gptq *t, const sbit__gram *gram, double ridge)
{
    const int64_t n = t->n;
    if (!sbit__gptq_prepare(t, gram, ridge)) {
        return false;
    }
    sbit__gptq_lack(t, gram, t->off);
    for (int64_t i = 0; i < t->rows * n; i++) {
        t->slope[i] = t->off[i / n * n + t->column[i % n]];
    }
    sbit__gptq_forth(t);
    sbit__gptq_back(t, true);
    return true;
}

/* What rows are rounded towards. */
static void sbit__gptq_target(sbit__gptq *t, const sbit__gram *gram)
{
    const int64_t n = t->n;
    const bool corrected = gram->cross && t->share > 0.0 && sbit__gptq_correct(t, gram, t->ridge);
    for (int64_t i = 0; i < t->rows * n; i++) {
        t->target[i] = sbit__gptq_weight(t, i / n, i % n) +
                       (corrected ? (float)(t->share * (double)t->off[i]) : 0.0f);
    }
}

/* Whole steps of single weights while they help; slope is -(target - q) H. */
static void sbit__gptq_descend_task(void *task, int64_t r, int32_t worker)
{
    const sbit__gptq *t = (const sbit__gptq *)task;
    const int64_t n = t->n;
    float *q = t->q + r * n, *slope = t->slope + r * n;
    const float *target = t->target + r * n;
    bool moved = true;
    (void)worker;
    for (int64_t sweep = 0; sweep < t->sweeps && moved; sweep++) {
        moved = false;
        for (int64_t i = 0; i < n; i++) {
            const double bend = (double)t->h[i * n + i], down = (double)slope[i];
            const float best = sbit__gptq_round(t, r, i, (double)q[i] - down / bend);
            const double step = (double)best - (double)q[i];
            if (fabs(step) >= 0.5 * sbit__gptq_grid_of(t, r, i).scale &&
                step * (2.0 * down + step * bend) < 0.0) {
                q[i] = best;
                moved = true;
                sbit__gptq_add(slope, t->h + i * n, (float)step, n);
            }
        }
    }
    t->left[r] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        t->left[r] += ((double)q[i] - (double)target[i]) * (double)slope[i];
    }
}

/* Rows of q that are better than what is kept are kept. */
static void sbit__gptq_keep(const sbit__gptq *t)
{
    const int64_t n = t->n;
    for (int64_t r = 0; r < t->rows; r++) {
        if (t->left[r] < t->form[r] || isinf(t->form[r])) { /* the first is kept, whatever it is */
            t->form[r] = t->left[r];
            t->scale[r] = t->tried[r];
            memcpy(t->best + r * n, t->q + r * n, (size_t)n * sizeof *t->q);
        }
    }
}

static void sbit__gptq_descend(sbit__gptq *t)
{
    const int64_t all = t->rows * t->n;
    sbit__kernels(t->quant->ctx)
        ->f32_binary(SBIT__BINARY_SUB, all, t->q, 1, t->target, 1, t->off);
    sbit__gptq_times(t, t->off, t->h, t->slope);
    sbit_ctx_parallel(t->quant->ctx, t->rows, sbit__gptq_descend_task, t);
    sbit__gptq_keep(t);
}

/* The kept integers on their least squares scale, if there is one nearby; slope is best H. */
static void sbit__gptq_rescale(sbit__gptq *t, const float *towards)
{
    const int64_t n = t->n;
    for (int64_t r = 0; r < t->rows; r++) {
        const float *best = t->best + r * n;
        const double with = sbit__gptq_dot(best, towards + r * n, n);
        const double own = sbit__gptq_dot(best, t->slope + r * n, n);
        const double ratio = own > 0.0 ? with / own : 1.0;
        const bool fits = ratio > 0.8 && ratio < 1.25;
        t->tried[r] = fits ? (float)((double)t->scale[r] * ratio) : t->scale[r];
        for (int64_t i = 0; i < n; i++) {
            t->q[r * n + i] =
                (float)((double)best[i] / (double)t->scale[r] * (double)t->tried[r]);
        }
    }
}

/* >>step-gptq groups */
static void sbit__gptq_order(sbit__gptq *t, const sbit__gram *gram)
{
    const float *sums = gram->sums + t->group * t->n * t->n;
    for (int64_t i = 0; i < t->n; i++) { /* insertion: of equals the lower index comes last */
        int64_t at = i;
        const float size = sums[i * t->n + i];
        while (at > 0 && sums[t->column[at - 1] * t->n + t->column[at - 1]] >= size) {
            t->column[at] = t->column[at - 1];
            at--;
        }
        t->column[at] = i;
    }
}

/* The nearest weights to the target at the kept scales. */
static void sbit__gptq_nearest(const sbit__gptq *t, float *q)
{
    const int64_t n = t->n;
    memcpy(t->tried, t->scale, (size_t)t->rows * sizeof *t->tried);
    for (int64_t i = 0; i < t->rows * n; i++) {
        q[i] = sbit__gptq_round(t, i / n, i % n, (double)t->target[i]);
    }
}

/* All searches; t->scale has the observer's. */
static void sbit__gptq_search(sbit__gptq *t)
{
    const int64_t n = t->n, all = t->rows * n;
    float *first = t->slope; /* not in use yet */
    memcpy(first, t->scale, (size_t)t->rows * sizeof *first);
    for (int64_t k = 0; k < t->sizes; k++) {
        const double size = k > 0 ? 1.0 - 0.5 * (double)k / (double)(t->sizes - 1) : 1.0;
        for (int64_t r = 0; r < t->rows; r++) {
            t->tried[r] = (float)((double)first[r] * size);
            t->form[r] = k > 0 ? t->form[r] : (double)INFINITY;
        }
        sbit__gptq_back(t, false);
        sbit__gptq_keep(t);
    }
    memcpy(t->q, t->best, (size_t)all * sizeof *t->q);
    memcpy(t->tried, t->scale, (size_t)t->rows * sizeof *t->tried);
    sbit__gptq_descend(t);
    sbit__gptq_nearest(t, t->q); /* on coarse grids the better start */
    sbit__gptq_descend(t);
    float *towards = t->product;
    sbit__gptq_times(t, t->target, t->h, towards);
    for (int turn = 0; turn < SBIT__GPTQ_TURNS && t->sizes > 1; turn++) {
        sbit__gptq_times(t, t->best, t->h, t->slope);
        sbit__gptq_rescale(t, towards);
        sbit__gptq_descend(t);
    }
}

static void sbit__gptq_rows(sbit__gptq *t)
{
    const int64_t n = t->n, all = t->rows * n, first = t->group * t->rows;
    const bool one = sbit__site_parts(t->site) == 1 || t->parts != NULL;
    for (int64_t r = 0; r < t->rows; r++) {
        t->scale[r] = t->site->scale[one ? 0 : first + r];
    }
    if (t->nearest) {
        sbit__gptq_nearest(t, t->best);
    } else {
        sbit__gptq_search(t);
    }
    memcpy(t->found + first, t->scale, (t->sizes > 1 ? (size_t)t->rows : 0) * sizeof *t->scale);
    for (int64_t i = 0; i < all; i++) {
        t->out[(first + i / n) * t->layer->row_step + t->column[i % n] * t->layer->depth_step] =
            t->best[i];
    }
}

static void sbit__gptq_group(sbit__gptq *t, const sbit__gram *gram, bool *failed)
{
    sbit__gptq_order(t, gram);
    sbit__gptq_target(t, gram);
    if (!sbit__gptq_prepare(t, gram, t->damping)) {
        *failed = true; /* `out` has the weights as they are: the nearest */
        return;
    }
    sbit__gptq_rows(t);
}

/* >>step-gptq trust */
/* A correction d of one half changes the error on the other by d H d - 2 d (w M - w H): both sums. */
static void sbit__gptq_judge(sbit__gptq *t, const sbit__gram *from, const sbit__gram *on, double ridge,
                             double *with, double *own)
{
    const int64_t n = t->n, all = t->rows * n;
    for (t->group = 0; t->group < t->layer->groups; t->group++) {
        sbit__gptq_order(t, from);
        if (!sbit__gptq_correct(t, from, ridge)) {
            continue;
        }
        for (int64_t i = 0; i < all; i++) {
            t->best[i / n * n + t->column[i % n]] = t->off[i];
        }
        sbit__gptq_lack(t, on, t->slope);
        *with += sbit__gptq_dot(t->best, t->slope, all);
        sbit__gptq_times(t, t->best, on->sums + t->group * n * n, t->slope);
        *own += sbit__gptq_dot(t->best, t->slope, all);
    }
}

/* The damping and the part of the correction that help most on the half it was not found on. */
static void sbit__gptq_trust(sbit__gptq *t, const sbit__gram *gram)
{
    double most = 0.0;
    t->share = 0.0;
    double ridge = t->damping > 1e-4 ? t->damping : 1e-4;
    do {
        double with = 0.0, own = 0.0;
        sbit__gptq_judge(t, gram, gram->other, ridge, &with, &own);
        sbit__gptq_judge(t, gram->other, gram, ridge, &with, &own);
        if (with > 0.0 && own > 0.0 && with * with / own > most) {
            most = with * with / own;
            t->ridge = ridge;
            t->share = with < own ? with / own : 1.0;
        }
        ridge *= 4.0;
    } while (ridge < 10.0);
}

/* >>step-gptq bias */
/* Whether the layer has a bias, or gets one. */
static bool sbit__gptq_has_bias(const sbit_quant *quant, const sbit__layer *layer)
{
    return !sbit__streq(layer->node->op_type, "MatMul") ||
           sbit__bias_value(quant, quant->graph, layer->node->id) != NULL;
}

/* The bias moves by mean(w x) - mean(w_q x'); t->out serves as room. */
static sbit_status sbit__gptq_shift(sbit__gptq *t, const sbit_unit *unit, const sbit__gram *gram,
                                    sbit_error *error)
{
    const sbit__layer *l = t->layer;
    const float *mean_b = gram->cross ? gram->mean_b : gram->mean_a;
    SBIT__TRY(sbit__site_dequantized(t->quant, &t->quant->sites[unit->site], t->out, error));
    for (int64_t row = 0; row < l->groups * l->rows; row++) {
        const int64_t g = row / l->rows;
        double sum = 0.0;
        for (int64_t k = 0; k < l->depth; k++) {
            const int64_t at = row * l->row_step + k * l->depth_step;
            sum += (double)t->w[at] * (double)gram->mean_a[g * l->depth + k] -
                   (double)t->out[at] * (double)mean_b[g * l->depth + k];
        }
        t->found[row] = (float)(sum / gram->count);
    }
    return sbit__site_set_shift(t->quant, &t->quant->sites[unit->site], t->found,
                                (size_t)(l->groups * l->rows), error);
}

/* What the halves say of each other, about their means if so said; then they are one. */
static void sbit__gptq_halves(sbit__gptq *t, sbit__gram *gram, bool about)
{
    if (gram->count <= 0.0 || gram->other->count <= 0.0) { /* one sample */
        sbit__gram_merge(gram);
        return;
    }
    if (about) {
        sbit__gram_center(gram);
        sbit__gram_center(gram->other);
    }
    sbit__gptq_trust(t, gram);
    if (about) {
        sbit__gram_uncenter(gram);
        sbit__gram_uncenter(gram->other);
    }
    sbit__gram_merge(gram);
    sbit__log(t->quant->ctx, SBIT_LOG_INFO, "weight of '%s': %.2f of a correction damped by %.4f",
              t->layer->node->name, t->share, t->ridge);
}

/* Each output channel has a scale of its own that may be any number. */
static bool sbit__gptq_free(const sbit__site *site, size_t outputs)
{
    return (size_t)sbit__site_parts(site) == outputs && site->block == 0 &&
           site->dtype == SBIT_F32 && site->change.scale == NULL &&
           !site->settings.grid.power_of_two;
}

/* Which scale each weight has. */
static void sbit__gptq_parts(sbit__gptq *t, const sbit_tensor *weight)
{
    const sbit_observation x = sbit__site_observation(t->site, weight, NULL);
    sbit_runs runs = sbit_runs_of(&x.parts);
    while (sbit_runs_next(&runs)) {
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            t->parts[i] = (int32_t)runs.part;
        }
    }
}

static sbit_status sbit__gptq_layer(sbit__gptq *t, const sbit__round_units *units,
                                    const sbit_unit *unit, sbit__gram *gram, sbit_error *error)
{
    const double count = gram->count + (gram->other != NULL ? gram->other->count : 0.0);
    const double few = (double)SBIT__GPTQ_PLENTY * (double)t->n / (count > 1.0 ? count : 1.0);
    const size_t outputs = (size_t)(t->layer->groups * t->rows);
    sbit__site *site = &t->quant->sites[unit->site];
    bool failed = false;
    memcpy(t->out, t->w, outputs * (size_t)t->n * sizeof(float));
    memcpy(t->found, site->scale, (t->sizes > 1 ? outputs : 0) * sizeof(float));
    const bool bias = !t->nearest && sbit_options_bool(units->options, "STEP.GPTQ.BIAS") &&
                      count > 0.0 && sbit__gptq_has_bias(t->quant, t->layer);
    t->damping = sbit_options_float(units->options, "STEP.GPTQ.DAMPING") * (few > 1.0 ? few : 1.0);
    t->ridge = t->damping;
    t->share = 1.0;
    const bool about = bias || t->nearest; /* compensate fits biases itself */
    if (gram->other != NULL) {
        sbit__gptq_halves(t, gram, about);
    }
    if (about) {
        sbit__gram_center(gram);
    }
    for (t->group = 0; t->group < t->layer->groups; t->group++) {
        sbit__gptq_group(t, gram, &failed);
    }
    if (failed) {
        sbit__log(
            t->quant->ctx, SBIT_LOG_WARNING,
            "%s: '%s': the inputs say too little about some weights, which stay the nearest",
            t->nearest ? "compensate" : "gptq", t->layer->node->name);
    }
    memcpy(site->scale, t->found, (t->sizes > 1 ? outputs : 0) * sizeof(float));
    SBIT__TRY(sbit_quant_set_weight(t->quant, unit->site, t->out, error));
    return bias ? sbit__gptq_shift(t, unit, gram, error) : SBIT_OK;
}

static sbit_status sbit__gptq_run_layer(sbit__round_units *units, const sbit_unit *unit,
                                        const sbit__layer *layer, sbit__gram *gram, bool nearest,
                                        sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(units->quant->ctx);
    const int64_t n = layer->depth, rows = layer->rows, one = rows * n;
    const size_t outputs = (size_t)(layer->groups * rows), all = outputs * (size_t)n;
    sbit__gptq t;
    sbit_tensor weight;
    memset(&t, 0, sizeof t);
    SBIT__TRY(sbit__site_weight(units->quant, &units->quant->sites[unit->site], &weight, error));
    t.quant = units->quant;
    t.site = &units->quant->sites[unit->site];
    t.layer = layer;
    t.w = (const float *)weight.data;
    t.n = n;
    t.rows = rows;
    t.nearest = nearest;
    t.sweeps = sbit_options_int(units->options, "STEP.GPTQ.SWEEPS");
    t.sizes = !nearest && sbit__gptq_free(t.site, outputs)
                  ? sbit_options_int(units->options, "STEP.GPTQ.SCALES")
                  : 1;
    const bool blocks = t.site->block > 0;
    const size_t bytes = (size_t)(2 * rows + n) * sizeof(double) +
                         ((size_t)((gram->cross ? 3 : 2) * n * n + 6 * one + 2 * rows) + all + outputs) *
                             sizeof(float) +
                         (blocks ? all * sizeof(int32_t) : 0) +
                         sbit__gptq_scratch(t.quant->ctx, rows, n);
    t.form = (double *)sbit__alloc(a, bytes);
    if (t.form == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    t.left = t.form + rows;
    t.column = (int64_t *)(void *)(t.left + rows);
    t.h = (float *)(void *)(t.column + n);
    t.l = t.h + n * n;
    t.more = t.l + n * n;
    t.target = gram->cross ? t.more + n * n : t.more;
    t.best = t.target + one;
    t.q = t.best + one;
    t.off = t.q + one;
    t.product = t.off + one;
    t.slope = t.product + one;
    t.scale = t.slope + one;
    t.tried = t.scale + rows;
    t.out = t.tried + rows;
    t.found = t.out + all;
    char *rest = (char *)(t.found + outputs);
    if (blocks) {
        t.parts = (int32_t *)(void *)rest;
        rest += all * sizeof(int32_t);
        sbit__gptq_parts(&t, &weight);
    }
    t.scratch = (void *)(((uintptr_t)rest + 63u) & ~(uintptr_t)63u);
    const sbit_status status = sbit__gptq_layer(&t, units, unit, gram, error);
    sbit__free(a, t.form, bytes);
    return status;
}

static sbit_status sbit__gptq_unit(sbit__round_units *units, const sbit_unit *unit,
                                   const sbit__layer *layer, sbit__gram *gram, sbit_error *error)
{
    return sbit__gptq_run_layer(units, unit, layer, gram, false, error);
}

SBIT__FN sbit_status sbit__gptq_refit(sbit__round_units *units, const sbit_unit *unit,
                                      const sbit__layer *layer, sbit__gram *gram, sbit_error *error)
{
    return sbit__gptq_run_layer(units, unit, layer, gram, true, error);
}

static sbit_status sbit__gptq_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                  sbit_error *error)
{
    return sbit__round_run(state, options, sbit__step_gptq(), "STEP.GPTQ.POSITIONS", false,
                           true, sbit__gptq_unit, feed, error);
}

SBIT__FN const sbit_step_row *sbit__step_gptq(void)
{
    static const sbit_step_row row = {
        {"gptq", "weights rounded one after the other, errors made good by those that follow",
         SBIT_TARGET_WEIGHT, sbit__gptq_keys, SBIT__COUNT_OF(sbit__gptq_keys)},
        SBIT_STAGE_WEIGHTS,
        true,
        sbit__gptq_run,
    };
    return &row;
}
