/* step_gptq.c: GPTQ: weights rounded one after the other, each error made good by those that
 * follow.
 * >>step-gptq
 *
 * Frantar et al. 2022, on H = sum of x x^T / n of the layer's inputs, per group of a convolution.
 * Columns in falling order of H's diagonal (act-order; the grid is the site's, so that no index is
 * needed). With H + damping = M M^T, M upper triangular, and U = M^-1: after column i is rounded,
 * the columns behind it change by -(w_i - q_i) / U_ii times row i of U. If the factorization fails
 * the damping is raised tenfold, three times; then the weights stay the nearest. Then SWEEPS of
 * coordinate descent on the same form: a weight moves by whole steps while that lowers (q - t) H (q
 * - t)^T. Rows with a scale of their own try it at SCALES sizes, from the observer's down to half
 * of it, and take the one whose form is least; then scale and weights are fitted in turns: the
 * least squares scale of the integers, (q H t) / (q H q), and descent again. asym: the target is t
 * = w (sum x x_q^T) (sum x_q x_q^T)^-1, what is nearest to the float output on quantized inputs.
 * BIAS: all sums are about the means, what the means come to goes into the layer's bias at once, so
 * that the layers behind see it.
 */
#include "layer_private.h"

static const sbit_key sbit__gptq_keys[] = {
    {"GPTQ.DAMPING", SBIT_KEY_FLOAT, "0.01", 0.0, 10.0, NULL,
     "added to the diagonal, as a part of its mean"},
    {"GPTQ.SWEEPS", SBIT_KEY_INT, "8", 0.0, 1000.0, NULL, "visits of all weights afterwards"},
    {"GPTQ.SCALES", SBIT_KEY_INT, "1", 1.0, 64.0, NULL,
     "sizes at which the scale of each output channel is tried; 1: it stays as observed"},
    {"GPTQ.POSITIONS", SBIT_KEY_INT, "64", 0.0, 1e9, NULL,
     "output positions of a sample that are looked at; 0: all"},
    {"GPTQ.BIAS", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "the layer's bias takes up what means come to, weights the rest"},
};

typedef struct sbit__gptq {
    sbit_quant *quant;
    const sbit__site *site;
    const sbit__layer *layer;
    const float *w; /* as stored */
    int64_t group, n, sweeps, sizes;
    double *h;       /* [n][n], damped, in the order of columns */
    double *u;       /* [n][n]: upper triangle of M^-1 */
    double *target;  /* [rows][n] */
    double *work;    /* [workers][8 n] */
    int32_t *parts;  /* blocks: which scale each weight has; NULL: none */
    float *scale;    /* [groups * rows]: chosen; used if sizes > 1 */
    int64_t *column; /* [n]: which column comes i-th */
    float *out;
} sbit__gptq;

/* Four sums side by side: always in the same order, and not one after the other. */
static double sbit__gptq_dot(const double *a, const double *b, int64_t n)
{
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int64_t i = 0; i < 4; i++) {
            sums[i] += a[k + i] * b[k + i];
        }
    }
    for (; k < n; k++) {
        sums[0] += a[k] * b[k];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* >>step-gptq algebra. Lower Cholesky factor of a in place (its upper triangle is left alone);
 * false: not positive definite. */
static bool sbit__gptq_factor(double *a, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double *row = a + j * n;
        const double sum = row[j] - sbit__gptq_dot(row, row, j);
        if (!(sum > 0.0)) {
            return false;
        }
        row[j] = sqrt(sum);
        for (int64_t i = j + 1; i < n; i++) {
            double *below = a + i * n;
            below[j] = (below[j] - sbit__gptq_dot(below, row, j)) / row[j];
        }
    }
    return true;
}

/* The inverse of a lower triangle, in place: row by row, right sides are rows above. */
static void sbit__gptq_invert(double *l, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = l + i * n;
        const double scale = 1.0 / row[i];
        for (int64_t k = 0; k < i; k++) { /* row = -(sum over k of row[k] inverse_k) / l_ii */
            const double factor = row[k];
            const double *above = l + k * n;
            row[k] = 0.0;
            for (int64_t j = 0; j <= k; j++) {
                row[j] += factor * above[j];
            }
        }
        for (int64_t j = 0; j < i; j++) {
            row[j] *= -scale;
        }
        row[i] = scale;
    }
}

/* H in the order of columns, damped. */
static void sbit__gptq_fill(const sbit__gptq *t, const sbit__gram *gram, double damping, double *h)
{
    const int64_t n = t->n;
    const float *sums = gram->sums + t->group * n * n;
    double mean = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mean += (double)sums[i * n + i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            const int64_t a = t->column[i], b = t->column[j];
            h[i * n + j] = (double)(a < b ? sums[a * n + b] : sums[b * n + a]);
        }
        h[i * n + i] += damping * mean + 1e-12;
    }
}

/* U by the factor of H turned over: with J the reversal, J H J = L L^T gives M = J L J. */
static bool sbit__gptq_prepare(sbit__gptq *t, const sbit__gram *gram, double damping)
{
    const int64_t n = t->n;
    for (int attempt = 0; attempt<4; attempt++, damping = damping> 0.0 ? damping * 10.0 : 0.001) {
        sbit__gptq_fill(t, gram, damping, t->h);
        for (int64_t i = 0; i < n * n; i++) {
            t->u[i] = t->h[n * n - 1 - i];
        }
        if (!sbit__gptq_factor(t->u, n)) {
            continue;
        }
        sbit__gptq_invert(t->u, n);
        for (int64_t i = 0, k = n * n - 1; i < k; i++, k--) { /* J L^-1 J: upper */
            const double kept = t->u[i];
            t->u[i] = t->u[k];
            t->u[k] = kept;
        }
        return true;
    }
    return false;
}

/* What rows are rounded towards, in the order of columns. asym: t H = w (sum x x_q^T) + damping w,
 * solved with H^-1 = U^T U. */
static void sbit__gptq_target(sbit__gptq *t, const sbit__gram *gram, int64_t r, double *row,
                              double *room)
{
    const int64_t n = t->n;
    const sbit__layer *layer = t->layer;
    const float *sums = gram->sums + t->group * n * n;
    const float *weight = t->w + (t->group * layer->rows + r) * layer->row_step;
    for (int64_t i = 0; i < n; i++) {
        row[i] = (double)weight[t->column[i] * layer->depth_step];
    }
    if (!gram->cross) {
        return;
    }
    const float *mixed = gram->mixed + t->group * n * n;
    for (int64_t j = 0; j < n; j++) { /* the damping pulls towards w */
        const double damped = t->h[j * n + j] - (double)sums[t->column[j] * n + t->column[j]];
        room[j] = damped * row[j];
    }
    for (int64_t i = 0; i < n; i++) {
        const float *m = mixed + t->column[i] * n;
        for (int64_t j = 0; j < n; j++) {
            room[j] += row[i] * (double)m[t->column[j]];
        }
    }
    double *half = room + n;
    for (int64_t i = 0; i < n; i++) { /* U b */
        half[i] = sbit__gptq_dot(t->u + i * n + i, room + i, n - i);
    }
    memset(row, 0, (size_t)n * sizeof *row);
    for (int64_t i = 0; i < n; i++) { /* U^T (U b) */
        for (int64_t j = i; j < n; j++) {
            row[j] += t->u[i * n + j] * half[i];
        }
    }
}

/* >>step-gptq rows */
typedef struct sbit__gptq_row {
    double scale, least, most; /* the grid: scale times least..most */
    const double *columns;     /* blocks: scale, least, most of each column in turn; NULL: none */
    int64_t n;                 /* columns */
    const float *weight;       /* of the row; its columns are order[i] * step */
    const int64_t *order;
    int64_t step;
} sbit__gptq_row;

/* The step of column i. */
static double sbit__gptq_step(const sbit__gptq_row *grid, int64_t i)
{
    return grid->columns != NULL ? grid->columns[i] : grid->scale;
}

/* A weight that is zero was pruned, and stays: the others make up for it. */
static double sbit__gptq_round(const sbit__gptq_row *grid, int64_t i, double value)
{
    if (grid->weight[grid->order[i] * grid->step] == 0.0f) {
        return 0.0;
    }
    const bool own = grid->columns != NULL;
    const double scale = sbit__gptq_step(grid, i), q = nearbyint(value / scale);
    const double least = own ? grid->columns[grid->n + i] : grid->least;
    const double most = own ? grid->columns[2 * grid->n + i] : grid->most;
    return scale * (q < least ? least : q > most ? most : q);
}

/* Whole steps of single weights while they help; returns the form that is left. */
static double sbit__gptq_descend(const sbit__gptq *t, const sbit__gptq_row *grid,
                                 const double *target, double *q, double *slope)
{
    const int64_t n = t->n;
    memset(slope, 0, (size_t)n * sizeof *slope);
    for (int64_t i = 0; i < n; i++) {
        const double off = q[i] - target[i];
        for (int64_t j = 0; j < n; j++) {
            slope[j] += off * t->h[i * n + j];
        }
    }
    bool moved = true;
    for (int64_t sweep = 0; sweep < t->sweeps && moved; sweep++) {
        moved = false;
        for (int64_t i = 0; i < n; i++) {
            const double best = sbit__gptq_round(grid, i, q[i] - slope[i] / t->h[i * n + i]);
            const double step = best - q[i];
            if (fabs(step) < 0.5 * sbit__gptq_step(grid, i) ||
                step * (2.0 * slope[i] + step * t->h[i * n + i]) >= 0.0) {
                continue;
            }
            q[i] = best;
            moved = true;
            for (int64_t j = 0; j < n; j++) {
                slope[j] += step * t->h[i * n + j];
            }
        }
    }
    double form = 0.0;
    for (int64_t i = 0; i < n; i++) {
        form += (q[i] - target[i]) * slope[i];
    }
    return form;
}

/* The best weights on a grid in q, and their form; value and slope are room. */
static double sbit__gptq_solve(const sbit__gptq *t, const sbit__gptq_row *grid,
                               const double *target, double *q, double *value, double *slope)
{
    const int64_t n = t->n;
    memcpy(value, target, (size_t)n * sizeof *value);
    for (int64_t i = 0; i < n; i++) {
        q[i] = sbit__gptq_round(grid, i, value[i]);
        const double error = (value[i] - q[i]) / t->u[i * n + i];
        for (int64_t j = i; j < n; j++) {
            value[j] -= error * t->u[i * n + j];
        }
    }
    const double form = sbit__gptq_descend(t, grid, target, q, slope);
    for (int64_t i = 0; i < n; i++) { /* on coarse grids the nearest may be the better start */
        value[i] = sbit__gptq_round(grid, i, target[i]);
    }
    const double other = sbit__gptq_descend(t, grid, target, value, slope);
    if (other < form) {
        memcpy(q, value, (size_t)n * sizeof *q);
    }
    return other < form ? other : form;
}

/* The least squares scale of q's integers over that of the grid; 1 if there is none nearby. */
static double sbit__gptq_ratio(const sbit__gptq *t, const double *target, const double *q)
{
    const int64_t n = t->n;
    double with = 0.0, own = 0.0;
    for (int64_t i = 0; i < n; i++) {
        with += q[i] * sbit__gptq_dot(t->h + i * n, target, n);
        own += q[i] * sbit__gptq_dot(t->h + i * n, q, n);
    }
    const double ratio = own > 0.0 ? with / own : 1.0;
    return ratio > 0.8 && ratio < 1.25 ? ratio : 1.0;
}

/* Other scales for the row: best[] and the grid get what is better than `form`. */
static void sbit__gptq_scales(const sbit__gptq *t, sbit__gptq_row *grid, const double *target,
                              double form, double *best, double *q, double *value, double *slope)
{
    const int64_t n = t->n;
    const double first = grid->scale;
    sbit__gptq_row other = *grid;
    for (int64_t k = 1; k < t->sizes; k++) {
        other.scale = (double)(float)(first * (1.0 - 0.5 * (double)k / (double)(t->sizes - 1)));
        const double left = sbit__gptq_solve(t, &other, target, q, value, slope);
        if (left < form) {
            form = left;
            grid->scale = other.scale;
            memcpy(best, q, (size_t)n * sizeof *best);
        }
    }
    for (int turn = 0; turn < 3; turn++) {
        other.scale = (double)(float)(grid->scale * sbit__gptq_ratio(t, target, best));
        for (int64_t i = 0; i < n; i++) { /* the same integers */
            q[i] = best[i] / grid->scale * other.scale;
        }
        const double left = sbit__gptq_descend(t, &other, target, q, slope);
        if (left >= form) {
            return;
        }
        form = left;
        grid->scale = other.scale;
        memcpy(best, q, (size_t)n * sizeof *best);
    }
}

static void sbit__gptq_row_task(void *task, int64_t r, int32_t worker)
{
    const sbit__gptq *t = (const sbit__gptq *)task;
    const sbit__layer *layer = t->layer;
    const int64_t n = t->n, row = t->group * layer->rows + r;
    const sbit_grid *g = &t->site->settings.grid;
    const int64_t part = sbit__site_parts(t->site) == 1 || t->parts != NULL ? 0 : row;
    double *value = t->work + (int64_t)worker * 8 * n, *q = value + n, *slope = q + n;
    double *best = slope + n;
    const double *target = t->target + r * n;
    sbit__gptq_row grid;
    grid.scale = (double)t->site->scale[part];
    grid.least = (double)(g->qmin - t->site->zero_point[part]);
    grid.most = (double)(g->qmax - t->site->zero_point[part]);
    grid.columns = t->parts != NULL ? best + 2 * n : NULL;
    grid.n = n;
    grid.weight = t->w + row * layer->row_step;
    grid.order = t->column;
    grid.step = layer->depth_step;
    for (int64_t i = 0; t->parts != NULL && i < n; i++) {
        const int64_t own = t->parts[row * layer->row_step + t->column[i] * layer->depth_step];
        best[2 * n + i] = (double)t->site->scale[own];
        best[3 * n + i] = (double)(g->qmin - t->site->zero_point[own]);
        best[4 * n + i] = (double)(g->qmax - t->site->zero_point[own]);
    }
    const double form = sbit__gptq_solve(t, &grid, target, best, value, slope);
    if (t->sizes > 1) {
        sbit__gptq_scales(t, &grid, target, form, best, q, value, slope);
        t->scale[row] = (float)grid.scale;
    }
    for (int64_t i = 0; i < n; i++) {
        t->out[row * layer->row_step + t->column[i] * layer->depth_step] = (float)best[i];
    }
}

/* >>step-gptq groups */
static void sbit__gptq_order(sbit__gptq *t, const sbit__gram *gram)
{
    const float *sums = gram->sums + t->group * t->n * t->n;
    for (int64_t i = 0; i < t->n; i++) { /* insertion: stable, lower index first */
        int64_t at = i;
        const float size = sums[i * t->n + i];
        while (at > 0 && sums[t->column[at - 1] * t->n + t->column[at - 1]] < size) {
            t->column[at] = t->column[at - 1];
            at--;
        }
        t->column[at] = i;
    }
}

static void sbit__gptq_group(sbit__gptq *t, const sbit__gram *gram, double damping, bool *failed)
{
    sbit__gptq_order(t, gram);
    if (!sbit__gptq_prepare(t, gram, damping)) {
        *failed = true; /* `out` has the weights as they are: the nearest */
        return;
    }
    for (int64_t r = 0; r < t->layer->rows; r++) {
        sbit__gptq_target(t, gram, r, t->target + r * t->n, t->work);
    }
    sbit_ctx_parallel(t->quant->ctx, t->layer->rows, sbit__gptq_row_task, t);
}

/* >>step-gptq bias. Sums about the means: sum a b^T - (sum a)(sum b)^T / n. */
static void sbit__gptq_center(sbit__gram *gram)
{
    const int64_t depth = gram->layer.depth;
    const float *mean_b = gram->cross ? gram->mean_b : gram->mean_a;
    for (int64_t g = 0; g < gram->layer.groups; g++) {
        for (int which = 0; which < (gram->cross ? 2 : 1); which++) {
            const float *a = (which == 0 ? mean_b : gram->mean_a) + g * depth;
            const float *b = mean_b + g * depth;
            float *sums = (which == 0 ? gram->sums : gram->mixed) + g * depth * depth;
            for (int64_t i = 0; i < depth * depth; i++) {
                sums[i] -= (float)((double)a[i / depth] * (double)b[i % depth] / gram->count);
            }
        }
    }
}

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
        t->scale[row] = (float)(sum / gram->count);
    }
    return sbit__site_set_shift(t->quant, &t->quant->sites[unit->site], t->scale,
                                (size_t)(l->groups * l->rows), error);
}

/* Each output channel has a scale of its own that may be any number. */
static bool sbit__gptq_free(const sbit__site *site, size_t outputs)
{
    return (size_t)sbit__site_parts(site) == outputs && site->block == 0 &&
           site->dtype == SBIT_F32 && site->change.scale == NULL &&
           !site->settings.grid.power_of_two;
}

static sbit_status sbit__gptq_unit(sbit__round_units *units, const sbit_unit *unit,
                                   const sbit__layer *layer, sbit__gram *gram, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(units->quant->ctx);
    const double damping = sbit_options_float(units->options, "STEP.GPTQ.DAMPING");
    const int64_t n = layer->depth, workers = sbit_ctx_threads(units->quant->ctx);
    const size_t all = (size_t)(layer->groups * layer->rows * n);
    const size_t outputs = (size_t)(layer->groups * layer->rows);
    const size_t doubles = (size_t)(2 * n * n + layer->rows * n + workers * 8 * n + n);
    const bool blocks = units->quant->sites[unit->site].block > 0;
    const size_t bytes = doubles * sizeof(double) + (all + outputs) * sizeof(float) +
                         (blocks ? all * sizeof(int32_t) : 0);
    sbit__gptq t;
    sbit_tensor weight;
    bool failed = false;
    memset(&t, 0, sizeof t);
    SBIT__TRY(sbit__site_weight(units->quant, &units->quant->sites[unit->site], &weight, error));
    double *room = (double *)sbit__alloc(a, bytes);
    if (room == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    t.quant = units->quant;
    t.site = &units->quant->sites[unit->site];
    t.layer = layer;
    t.w = (const float *)weight.data;
    t.n = n;
    t.sweeps = sbit_options_int(units->options, "STEP.GPTQ.SWEEPS");
    t.h = room;
    t.u = t.h + n * n;
    t.target = t.u + n * n;
    t.work = t.target + layer->rows * n;
    t.column = (int64_t *)(void *)(t.work + workers * 8 * n);
    t.out = (float *)(void *)(t.column + n);
    t.scale = t.out + all;
    if (blocks) {
        const sbit_observation x = sbit__site_observation(t.site, &weight, NULL);
        sbit_runs runs = sbit_runs_of(&x.parts);
        t.parts = (int32_t *)(void *)(t.scale + outputs);
        while (sbit_runs_next(&runs)) {
            for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
                t.parts[i] = (int32_t)runs.part;
            }
        }
    }
    memcpy(t.out, t.w, all * sizeof(float));
    sbit__site *site = &t.quant->sites[unit->site];
    t.sizes =
        sbit__gptq_free(site, outputs) ? sbit_options_int(units->options, "STEP.GPTQ.SCALES") : 1;
    memcpy(t.scale, site->scale, (t.sizes > 1 ? outputs : 0) * sizeof(float));
    const bool bias = sbit_options_bool(units->options, "STEP.GPTQ.BIAS") && gram->count > 0.0 &&
                      sbit__gptq_has_bias(t.quant, layer);
    if (bias) {
        sbit__gptq_center(gram);
    }
    for (t.group = 0; t.group < layer->groups; t.group++) {
        sbit__gptq_group(&t, gram, damping, &failed);
    }
    if (failed) {
        sbit__log(
            t.quant->ctx, SBIT_LOG_WARNING,
            "gptq: '%s': the inputs say too little about some weights, which stay the nearest",
            layer->node->name);
    }
    memcpy(site->scale, t.scale, (t.sizes > 1 ? outputs : 0) * sizeof(float));
    sbit_status status = sbit_quant_set_weight(t.quant, unit->site, t.out, error);
    if (status == SBIT_OK && bias) {
        status = sbit__gptq_shift(&t, unit, gram, error);
    }
    sbit__free(a, room, bytes);
    return status;
}

static sbit_status sbit__gptq_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                  sbit_error *error)
{
    return sbit__round_run(state, options, sbit__step_gptq(), "STEP.GPTQ.POSITIONS", false,
                           sbit__gptq_unit, feed, error);
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
