/* searches.c: rows that look for the ratios which meet a budget. >>searches
 *
 *     uniform      one ratio for all, by halving
 *     sensitivity  of each unit the largest ratio that, alone, scores at least t; t by halving
 *     greedy       step by step where the least is lost for what is saved, both measured alone
 *     netadapt     in steps of the budget: every unit alone is taken as far as the step wants, the one
 *                  that scores best keeps it (Yang et al. 2018); with NETADAPT.STEPS each is trained
 *                  for a while before it is scored, and the best one's weights are kept
 *     annealing    ratios move at random along the budget; what scores worse is taken less and less
 *                  often (simulated annealing)
 *     autocompress rounds of annealing, each to a part of the budget, and of training that draws the
 *                  weights to what is pruned (Liu et al. 2020)
 *     admm_training  that training alone, at one ratio for all; without a budget at RATIO of each
 *                  (Zhang et al. 2018; NNI's ADMMPruner)
 */
#include "sparse_private.h"

#include <math.h>   /* exp, pow */
#include <stdlib.h> /* qsort */

enum {
    SBIT__SEARCH_RATIOS = 9 /* 0.1 to 0.9: curves */
};
#define SBIT__SEARCH_MOST 0.98
#define SBIT__SEARCH_FULL 0.99 /* of a budget of time */
#define SBIT__SEARCH_NEAR 0.002 /* ratios are halved until they are known as well as that */

static double *sbit__search_array(sbit_search *search, size_t count, sbit_error *error)
{
    double *out = (double *)sbit__arena_array(&search->arena, count + 1, sizeof *out);
    if (out == NULL) {
        sbit__fail_oom(error, count * sizeof *out);
    }
    return out;
}

static sbit_status sbit__search_told(sbit_search *search, int64_t at, int64_t of, sbit_error *error)
{
    return sbit__progress(search->sparse->ctx, "search", at, of, error);
}

/* >>along a line: ratios from what is added to all of `shape`, within 0 (or the floor) to MOST */

static void sbit__search_shift(const sbit_search *search, const double *shape, size_t units, double by,
                               double *ratios)
{
    for (size_t i = 0; i < units; i++) {
        const double r = shape[i] + by, least = search->floor != NULL ? search->floor[i] : 0.0;
        ratios[i] = r < least ? least : r > SBIT__SEARCH_MOST ? SBIT__SEARCH_MOST : r;
    }
}

/* The least that is added and meets the budget, to NEAR; where nothing does, MOST of all. What that
 * leaves of a budget of time, which goes in steps, goes to units in front, which take the next less, and
 * to those behind that it is enough for. */
static sbit_status sbit__search_onto(sbit_search *search, const double *shape, double *ratios,
                                     sbit_error *error)
{
    const size_t n = search->unit_count;
    double low = 0.0, high = 0.0; /* all ratios are 0; all are MOST */
    double left = 0.0; /* of what may be, at the last point that meets it */
    size_t less = 0; /* units in front that may; that may not */
    const bool steps = search->limits[SBIT__BUDGET_TIME] > 0.0;
    size_t more = steps ? n + 1 : 1;
    sbit_search_point point;
    for (size_t i = 0; i < n; i++) {
        low = i == 0 || -shape[i] < low ? -shape[i] : low;
        high = i == 0 || SBIT__SEARCH_MOST - shape[i] > high ? SBIT__SEARCH_MOST - shape[i] : high;
    }
    while (high - low > SBIT__SEARCH_NEAR) {
        const double by = 0.5 * (low + high);
        sbit__search_shift(search, shape, n, by, ratios);
        SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
        *(point.over > 1.0 ? &low : &high) = by;
        left = point.over > 1.0 ? left : point.over;
    }
    while (more - less > 1) {
        const size_t at = less + (more - less) / 2;
        sbit__search_shift(search, shape, n, high, ratios);
        sbit__search_shift(search, shape, at, low, ratios);
        SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
        *(point.over > 1.0 ? &more : &less) = at;
        left = point.over > 1.0 ? left : point.over;
    }
    sbit__search_shift(search, shape, n, high, ratios);
    sbit__search_shift(search, shape, less, low, ratios);
    for (size_t i = less + 1; i < n && steps && left < SBIT__SEARCH_FULL; i++) { /* unit `less` is too much */
        const double was = ratios[i];
        sbit__search_shift(search, shape + i, 1, low, ratios + i);
        SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
        ratios[i] = point.over > 1.0 ? was : ratios[i];
        left = point.over > 1.0 ? left : point.over;
    }
    return SBIT_OK;
}

static sbit_status sbit__search_uniform(sbit_search *search, const sbit_options *options,
                                        double *ratios, sbit_error *error)
{
    (void)options;
    double *shape = sbit__search_array(search, search->unit_count, error);
    return shape != NULL ? sbit__search_onto(search, shape, ratios, error)
                         : SBIT_ERR_OUT_OF_MEMORY;
}

/* >>curves: every unit alone */

typedef struct sbit__curves {
    sbit_search_point *points; /* [units][RATIOS] */
    double *levels;            /* the scores, ascending */
    size_t count;
} sbit__curves;

static double sbit__curve_ratio(size_t step)
{
    return 0.1 * (double)step; /* step 0: nothing goes */
}

static sbit_status sbit__curves_make(sbit_search *search, double *ratios, sbit__curves *out,
                                     sbit_error *error)
{
    out->count = search->unit_count * SBIT__SEARCH_RATIOS;
    out->levels = sbit__search_array(search, out->count, error);
    out->points = (sbit_search_point *)sbit__arena_array(&search->arena, out->count + 1,
                                                         sizeof *out->points);
    if (out->levels == NULL || out->points == NULL) {
        return sbit__fail_oom(error, out->count * sizeof *out->points);
    }
    for (size_t i = 0; i < out->count; i++) {
        const size_t unit = i / SBIT__SEARCH_RATIOS;
        ratios[unit] = sbit__curve_ratio(i % SBIT__SEARCH_RATIOS + 1);
        SBIT__TRY(sbit_search_try(search, ratios, true, &out->points[i], error));
        SBIT__TRY(sbit__search_told(search, (int64_t)i + 1, (int64_t)out->count, error));
        out->levels[i] = out->points[i].score;
        ratios[unit] = 0.0;
    }
    qsort(out->levels, out->count, sizeof *out->levels, sbit__f64_order);
    return SBIT_OK;
}

static void sbit__curves_level(const sbit__curves *curves, double level, double *ratios)
{
    for (size_t i = 0; i < curves->count; i++) {
        const size_t unit = i / SBIT__SEARCH_RATIOS, step = i % SBIT__SEARCH_RATIOS + 1;
        ratios[unit] = step == 1 ? 0.0 : ratios[unit];
        ratios[unit] = curves->points[i].score >= level ? sbit__curve_ratio(step) : ratios[unit];
    }
}

static sbit_status sbit__search_sensitivity(sbit_search *search, const sbit_options *options,
                                            double *ratios, sbit_error *error)
{
    sbit__curves curves;
    sbit_search_point point;
    (void)options;
    SBIT__TRY(sbit__curves_make(search, ratios, &curves, error));
    size_t low = 0, high = curves.count; /* levels[low] is met, if any is; from high on none is */
    while (high - low > 1) {
        const size_t at = low + (high - low) / 2;
        sbit__curves_level(&curves, curves.levels[at], ratios);
        SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
        *(point.over <= 1.0 ? &low : &high) = at;
    }
    if (curves.count > 0) {
        sbit__curves_level(&curves, curves.levels[low], ratios);
    }
    return SBIT_OK;
}

/* What one step further costs for what it saves, both as if nothing else were pruned. */
static double sbit__greedy_price(const sbit__curves *curves, size_t unit, size_t step,
                                 const sbit_search_point *whole)
{
    const sbit_search_point *next = &curves->points[unit * SBIT__SEARCH_RATIOS + step];
    const sbit_search_point *now = step > 0 ? next - 1 : whole;
    const double lost = now->score - next->score, saved = now->over - next->over;
    return saved > 0.0 ? (lost > 0.0 ? lost : 0.0) / saved : HUGE_VAL;
}

static sbit_status sbit__search_greedy(sbit_search *search, const sbit_options *options,
                                       double *ratios, sbit_error *error)
{
    const size_t n = search->unit_count;
    sbit__curves curves;
    sbit_search_point whole, point;
    (void)options;
    size_t *steps = (size_t *)sbit__arena_array(&search->arena, n + 1, sizeof *steps);
    if (steps == NULL) {
        return sbit__fail_oom(error, n * sizeof *steps);
    }
    SBIT__TRY(sbit_search_try(search, ratios, true, &whole, error));
    SBIT__TRY(sbit__curves_make(search, ratios, &curves, error));
    for (point = whole; point.over > 1.0;) {
        size_t best = n;
        double least = HUGE_VAL;
        for (size_t i = 0; i < n; i++) {
            const double price = steps[i] < SBIT__SEARCH_RATIOS
                                     ? sbit__greedy_price(&curves, i, steps[i], &whole)
                                     : HUGE_VAL;
            if (steps[i] < SBIT__SEARCH_RATIOS && (best == n || price < least)) {
                best = i;
                least = price;
            }
        }
        if (best == n) {
            break;
        }
        ratios[best] = sbit__curve_ratio(++steps[best]);
        SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
    }
    return SBIT_OK;
}

/* >>netadapt */

static const sbit_key sbit__netadapt_keys[] = {
    {"NETADAPT.STEP", SBIT_KEY_FLOAT, "0.05", 0.001, 1.0, NULL,
     "SEARCH netadapt: part of the model that goes in each step"},
    {"NETADAPT.STEPS", SBIT_KEY_INT, "0", 0, 1e6, NULL,
     "SEARCH netadapt: training steps of every candidate before it is scored, from data with labels "
     "(by LOSS); the weights of those that are kept stay"},
    {"NETADAPT.BATCH", SBIT_KEY_INT, "32", 1, 1e6, NULL, "SEARCH netadapt: samples of such a step"},
    {"NETADAPT.RATE", SBIT_KEY_FLOAT, "0.001", 0.0, 1e3, NULL, "SEARCH netadapt: their learning rate"},
};

/* The least ratio of one unit that leaves at most `over`, to NEAR; *found false: none does. */
static sbit_status sbit__netadapt_unit(sbit_search *search, double *ratios, size_t unit, double over,
                                       bool *found, sbit_error *error)
{
    sbit_search_point point;
    double low = ratios[unit], high = SBIT__SEARCH_MOST;
    ratios[unit] = high;
    SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
    *found = point.over <= over;
    while (*found && high - low > SBIT__SEARCH_NEAR) {
        ratios[unit] = 0.5 * (low + high);
        SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
        *(point.over > over ? &low : &high) = ratios[unit];
    }
    ratios[unit] = high;
    return SBIT_OK;
}

/* One step: *moved false if no unit can make it alone. */
static sbit_status sbit__netadapt_step(sbit_search *search, double *ratios, double over, bool *moved,
                                       sbit_error *error)
{
    size_t best = search->unit_count;
    double best_score = -HUGE_VAL, best_ratio = 0.0;
    for (size_t i = 0; i < search->unit_count; i++) {
        const double was = ratios[i];
        sbit_search_point point;
        bool found = false;
        if (was < SBIT__SEARCH_MOST) {
            SBIT__TRY(sbit__netadapt_unit(search, ratios, i, over, &found, error));
        }
        if (found) {
            SBIT__TRY(sbit_search_try(search, ratios, true, &point, error));
            if (best == search->unit_count || point.score > best_score) {
                best = i;
                best_score = point.score;
                best_ratio = ratios[i];
                sbit__search_keep(search);
            }
        }
        ratios[i] = was;
    }
    *moved = best < search->unit_count;
    if (*moved) {
        ratios[best] = best_ratio;
    }
    return *moved && search->tuning.steps > 0 ? sbit__search_adopt(search, error) : SBIT_OK;
}

static sbit_status sbit__search_netadapt(sbit_search *search, const sbit_options *options,
                                         double *ratios, sbit_error *error)
{
    sbit_search_point point;
    double *shape = sbit__search_array(search, search->unit_count, error);
    if (shape == NULL) {
        return SBIT_ERR_OUT_OF_MEMORY;
    }
    SBIT__TRY(sbit__search_tunes(search, sbit_options_int(options, "NETADAPT.STEPS"),
                                 sbit_options_int(options, "NETADAPT.BATCH"),
                                 sbit_options_float(options, "NETADAPT.RATE"), error));
    SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
    const double whole = point.over, step = sbit_options_float(options, "NETADAPT.STEP");
    while (point.over > 1.0) {
        const double wanted = point.over - step * whole;
        bool moved = false;
        SBIT__TRY(
            sbit__netadapt_step(search, ratios, wanted > 1.0 ? wanted : 1.0, &moved, error));
        if (!moved) { /* no unit alone can go so far: all of them do */
            memcpy(shape, ratios, search->unit_count * sizeof *shape);
            return sbit__search_onto(search, shape, ratios, error);
        }
        SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
        SBIT__TRY(sbit__search_told(search, (int64_t)(1e3 * (whole - point.over)),
                                    (int64_t)(1e3 * (whole - 1.0)) + 1, error));
    }
    return SBIT_OK;
}

/* >>annealing */

static const sbit_key sbit__annealing_keys[] = {
    {"ANNEALING.STEPS", SBIT_KEY_INT, "60", 1, 1e6, NULL, "SEARCH annealing: ratios that are tried"},
    {"ANNEALING.SEED", SBIT_KEY_INT, "1", 0, 1e9, NULL, "SEARCH annealing: of what is random"},
    {"ANNEALING.RANGE", SBIT_KEY_FLOAT, "0.35", 0.0, 1.0, NULL,
     "SEARCH annealing: how far a ratio moves at first"},
};

typedef struct sbit__sized {
    int64_t parameters;
    size_t unit;
} sbit__sized;

static int sbit__search_by_size(const void *a, const void *b)
{
    const sbit__sized *x = (const sbit__sized *)a, *y = (const sbit__sized *)b;
    return x->parameters != y->parameters ? (x->parameters < y->parameters ? -1 : 1)
           : x->unit < y->unit            ? -1
                                          : 1;
}

/* Random ratios; larger units get larger ones. */
static sbit_status sbit__annealing_begin(sbit_search *search, sbit_rng *rng, double *shape,
                                         sbit_error *error)
{
    const size_t n = search->unit_count;
    sbit__sized *order = (sbit__sized *)sbit__arena_array(&search->arena, n + 1, sizeof *order);
    double *random = sbit__search_array(search, n, error);
    if (order == NULL || random == NULL) {
        return sbit__fail_oom(error, n * sizeof *order);
    }
    for (size_t i = 0; i < n; i++) {
        order[i].parameters = sbit_search_unit_at(search, i).parameters;
        order[i].unit = i;
        random[i] = (double)sbit_rng_uniform(rng);
    }
    qsort(order, n, sizeof *order, sbit__search_by_size);
    qsort(random, n, sizeof *random, sbit__f64_order);
    for (size_t i = 0; i < n; i++) {
        shape[order[i].unit] = random[i];
    }
    return SBIT_OK;
}

/* What meets the budget is better than what does not; of two that do not, the nearer one. */
static bool sbit__search_better(const sbit_search_point *a, const sbit_search_point *b)
{
    const double x = a->over > 1.0 ? a->over : 1.0, y = b->over > 1.0 ? b->over : 1.0;
    return x < y || (x <= y && a->score > b->score);
}

static sbit_status sbit__search_annealing(sbit_search *search, const sbit_options *options,
                                          double *ratios, sbit_error *error)
{
    const size_t n = search->unit_count, bytes = n * sizeof *ratios;
    const int64_t steps = sbit_options_int(options, "ANNEALING.STEPS");
    const double range = sbit_options_float(options, "ANNEALING.RANGE");
    sbit_rng rng = sbit_rng_seed((uint64_t)sbit_options_int(options, "ANNEALING.SEED"));
    double *shape = sbit__search_array(search, n, error), *now = sbit__search_array(search, n, error);
    double *tried = sbit__search_array(search, n, error);
    sbit_search_point at, best;
    at.over = at.score = best.over = best.score = 0.0;
    if (shape == NULL || now == NULL || tried == NULL) {
        return SBIT_ERR_OUT_OF_MEMORY;
    }
    SBIT__TRY(sbit__annealing_begin(search, &rng, shape, error));
    for (int64_t step = 0; step < steps; step++) {
        /* from 1 to 0.2, as from 100 to 20 degrees */
        const double heat = pow(0.2, (double)step / (double)steps);
        sbit_search_point point;
        SBIT__TRY(sbit__search_onto(search, shape, tried, error));
        SBIT__TRY(sbit_search_try(search, tried, true, &point, error));
        const double worse = (at.score - point.score) / (at.score != 0.0 ? fabs(at.score) : 1.0);
        if (step == 0 || sbit__search_better(&point, &at) ||
            (point.over <= 1.0 && (double)sbit_rng_uniform(&rng) < exp(-worse / (0.1 * heat)))) {
            memcpy(now, tried, bytes);
            at = point;
        }
        if (step == 0 || sbit__search_better(&point, &best)) {
            memcpy(ratios, tried, bytes);
            best = point;
        }
        for (size_t i = 0; i < n; i++) {
            shape[i] = now[i] + range * heat * (2.0 * (double)sbit_rng_uniform(&rng) - 1.0);
        }
        SBIT__TRY(sbit__search_told(search, step + 1, steps, error));
    }
    return SBIT_OK;
}

/* >>autocompress: alternating directions around a trainer. Z = W + U without what goes, U += W - Z,
 * W trained while it is drawn to Z - U. */

static const sbit_key sbit__autocompress_keys[] = {
    {"AUTOCOMPRESS.ROUNDS", SBIT_KEY_INT, "3", 1, 100, NULL,
     "SEARCH autocompress: parts of the budget, each by annealing (ANNEALING's keys), then training"},
    {"AUTOCOMPRESS.ITERATIONS", SBIT_KEY_INT, "10", 1, 1e4, NULL,
     "SEARCH autocompress: of each round's training; after each it is chosen anew what goes"},
    {"AUTOCOMPRESS.STEPS", SBIT_KEY_INT, "20", 1, 1e6, NULL,
     "SEARCH autocompress: steps of an iteration, from data with labels (by LOSS)"},
    {"AUTOCOMPRESS.BATCH", SBIT_KEY_INT, "32", 1, 1e6, NULL, "SEARCH autocompress: samples of a step"},
    {"AUTOCOMPRESS.RATE", SBIT_KEY_FLOAT, "0.001", 0.0, 1e3, NULL,
     "SEARCH autocompress: learning rate"},
    {"AUTOCOMPRESS.RHO", SBIT_KEY_FLOAT, "0.01", 0.0, 1.0, NULL,
     "SEARCH autocompress: part of the way to what is pruned that weights are drawn in each step"},
};

typedef struct sbit__drawn {
    float **u, **v; /* by layer; NULL: not drawn */
    float **pull;   /* by value */
} sbit__drawn;

static sbit_value_id sbit__drawn_value(const sbit_sparse *sparse, size_t layer)
{
    return sparse->labeler.members[sparse->layers[layer].member].value;
}

static sbit_status sbit__drawn_memory(sbit_search *search, sbit__drawn *out, sbit_error *error)
{
    const sbit_sparse *sparse = search->sparse;
    const size_t layers = sparse->layer_count + 1, values = sbit_graph_value_limit(sparse->graph);
    sbit__arena *arena = &search->arena;
    out->u = (float **)sbit__arena_array(arena, layers, sizeof(float *));
    out->v = (float **)sbit__arena_array(arena, layers, sizeof(float *));
    out->pull = (float **)sbit__arena_array(arena, values, sizeof(float *));
    if (out->u == NULL || out->v == NULL || out->pull == NULL) {
        return sbit__fail_oom(error, values * sizeof(float *));
    }
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_value_id id = sbit__drawn_value(sparse, i);
        const sbit_tensor *weight = &sbit_graph_value(sparse->graph, id)->constant;
        const size_t count = (size_t)sbit_tensor_count(weight) + 1;
        if (weight->dtype == SBIT_F32) {
            out->u[i] = (float *)sbit__arena_array(arena, count, sizeof(float));
            out->v[i] = (float *)sbit__arena_array(arena, count, sizeof(float));
            out->pull[id.idx] = (float *)sbit__arena_array(arena, count, sizeof(float));
            if (out->u[i] == NULL || out->v[i] == NULL || out->pull[id.idx] == NULL) {
                return sbit__fail_oom(error, count * sizeof(float));
            }
        }
    }
    return SBIT_OK;
}

static void sbit__drawn_reset(const sbit_sparse *sparse, sbit__drawn *d)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_value_id id = sbit__drawn_value(sparse, i);
        if (d->u[i] != NULL) {
            memset(d->u[i], 0, sbit_tensor_bytes(&sbit_graph_value(sparse->graph, id)->constant));
        }
    }
}

/* Masks of W + U, and what follows. The weights that are scored are the sparse's for that time only. */
static sbit_status sbit__drawn_project(sbit_search *search, const double *ratios,
                                       const sbit_graph *work, sbit__drawn *d, sbit_error *error)
{
    sbit_sparse *sparse = search->sparse;
    sbit_search_point point;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_value_id id = sbit__drawn_value(sparse, i);
        sbit_tensor weight = sbit_graph_value(work, id)->constant;
        for (int64_t k = 0; d->u[i] != NULL && k < sbit_tensor_count(&weight); k++) {
            d->v[i][k] = ((const float *)weight.data)[k] + d->u[i][k];
        }
        if (d->u[i] != NULL) {
            weight.data = d->v[i];
            SBIT__TRY(sbit__sparse_change(sparse, id, &weight, error));
        }
    }
    SBIT__TRY(sbit__layers_score(sparse, search->feed, error));
    SBIT__TRY(sbit_search_try(search, ratios, false, &point, error)); /* takes the change back */
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_value_id id = sbit__drawn_value(sparse, i);
        const uint8_t *keep = sparse->keep[id.idx];
        const int64_t count = sbit_tensor_count(&sbit_graph_value(work, id)->constant);
        for (int64_t k = 0; d->u[i] != NULL && k < count; k++) {
            const float z = keep == NULL || keep[k] != 0 ? d->v[i][k] : 0.0f;
            d->u[i][k] = d->v[i][k] - z;
            d->pull[id.idx][k] = z - d->u[i][k];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__drawn_train(sbit_search *search, int64_t iterations, const double *ratios,
                                     sbit_sparse_tuning *tuning, sbit__drawn *d, sbit_graph *work,
                                     sbit_error *error)
{
    tuning->graph = work;
    tuning->pull = (const float *const *)d->pull;
    sbit__drawn_reset(search->sparse, d);
    for (int64_t i = 0; i < iterations; i++) {
        SBIT__TRY(sbit__drawn_project(search, ratios, work, d, error));
        SBIT__TRY(search->budget->tune(tuning, error));
        SBIT__TRY(sbit__search_told(search, i + 1, iterations, error));
    }
    sbit__drawn_reset(search->sparse, d); /* in the end W itself is what is pruned */
    SBIT__TRY(sbit__drawn_project(search, ratios, work, d, error));
    return sbit__masks_apply(search->sparse, work, error);
}

/* Trains a copy, whose weights then are the sparse's. */
static sbit_status sbit__drawn_round(sbit_search *search, int64_t iterations, const double *ratios,
                                     sbit_sparse_tuning *tuning, sbit__drawn *d, sbit_error *error)
{
    sbit_graph_destroy(search->best);
    search->best = NULL;
    SBIT__TRY(sbit_graph_clone(search->sparse->graph, &search->best, error));
    SBIT__TRY(sbit__drawn_train(search, iterations, ratios, tuning, d, search->best, error));
    return sbit__search_adopt(search, error);
}

static sbit_status sbit__search_autocompress(sbit_search *search, const sbit_options *options,
                                             double *ratios, sbit_error *error)
{
    const int64_t rounds = sbit_options_int(options, "AUTOCOMPRESS.ROUNDS");
    double limits[SBIT__BUDGETS];
    sbit__drawn d;
    double *least = sbit__search_array(search, search->unit_count, error);
    if (least == NULL) {
        return SBIT_ERR_OUT_OF_MEMORY;
    }
    memcpy(limits, search->limits, sizeof limits);
    SBIT__TRY(sbit__drawn_memory(search, &d, error));
    SBIT__TRY(sbit__search_tunes(search, sbit_options_int(options, "AUTOCOMPRESS.STEPS"),
                                 sbit_options_int(options, "AUTOCOMPRESS.BATCH"),
                                 sbit_options_float(options, "AUTOCOMPRESS.RATE"), error));
    sbit_sparse_tuning tuning = search->tuning;
    tuning.rho = sbit_options_float(options, "AUTOCOMPRESS.RHO");
    search->tuning.steps = 0; /* annealing does not train */
    search->floor = least;
    for (int64_t round = 1; round <= rounds; round++) {
        for (int b = 0; b < SBIT__BUDGETS; b++) {
            search->limits[b] =
                limits[b] > 0.0 ? pow(limits[b], (double)round / (double)rounds) : 0.0;
        }
        memcpy(least, ratios, search->unit_count * sizeof *least);
        SBIT__TRY(sbit__search_annealing(search, options, ratios, error));
        SBIT__TRY(sbit__drawn_round(search, sbit_options_int(options, "AUTOCOMPRESS.ITERATIONS"), ratios, &tuning,
                                    &d, error));
    }
    memcpy(search->limits, limits, sizeof limits);
    search->floor = NULL;
    return SBIT_OK;
}

/* >>training alone */

static const sbit_key sbit__admm_training_keys[] = {
    {"ADMM_TRAINING.ITERATIONS", SBIT_KEY_INT, "10", 1, 1e4, NULL,
     "SEARCH admm_training: after each it is chosen anew what goes"},
    {"ADMM_TRAINING.EPOCHS", SBIT_KEY_INT, "1", 1, 1e4, NULL,
     "SEARCH admm_training: of an iteration, over the data with labels (by LOSS)"},
    {"ADMM_TRAINING.BATCH", SBIT_KEY_INT, "32", 1, 1e6, NULL, "SEARCH admm_training: samples of a step"},
    {"ADMM_TRAINING.RATE", SBIT_KEY_FLOAT, "0.001", 0.0, 1e3, NULL, "SEARCH admm_training: learning rate"},
    {"ADMM_TRAINING.RHO", SBIT_KEY_FLOAT, "0.01", 0.0, 1.0, NULL,
     "SEARCH admm_training: part of the way to what is pruned that weights are drawn in each step"},
};

/* The ratios of the configuration, the strictest of each unit. */
static void sbit__search_configured(const sbit_search *search, double *ratios)
{
    for (size_t u = 0; u < search->unit_count; u++) {
        ratios[u] = 1.0;
        for (size_t i = 0; i < search->sparse->layer_count; i++) {
            const double target = search->sparse->layers[i].target;
            ratios[u] = sbit__alone_has(search->sparse, &search->units[u], i) && target < ratios[u] ? target
                                                                                                    : ratios[u];
        }
    }
}

static sbit_status sbit__search_admm_training(sbit_search *search, const sbit_options *options,
                                              double *ratios, sbit_error *error)
{
    const int64_t batch = sbit_options_int(options, "ADMM_TRAINING.BATCH");
    const int64_t steps = search->feed != NULL ? (search->feed->count + batch - 1) / batch : 1;
    bool limited = false;
    sbit__drawn d;
    for (int b = 0; b < SBIT__BUDGETS; b++) {
        limited = limited || search->limits[b] > 0.0;
    }
    if (limited) {
        SBIT__TRY(sbit__search_uniform(search, options, ratios, error));
    } else {
        sbit__search_configured(search, ratios);
    }
    SBIT__TRY(sbit__drawn_memory(search, &d, error));
    SBIT__TRY(sbit__search_tunes(search, steps * sbit_options_int(options, "ADMM_TRAINING.EPOCHS"), batch,
                                 sbit_options_float(options, "ADMM_TRAINING.RATE"), error));
    sbit_sparse_tuning tuning = search->tuning;
    tuning.rho = sbit_options_float(options, "ADMM_TRAINING.RHO");
    return sbit__drawn_round(search, sbit_options_int(options, "ADMM_TRAINING.ITERATIONS"), ratios, &tuning, &d,
                             error);
}

/* >>table */

static const sbit_search_row sbit__search_rows[] = {
    {{"uniform", "one ratio for all", 0, NULL, 0}, false, sbit__search_uniform},
    {{"sensitivity", "all lose the same when pruned alone", 0, NULL, 0},
     true,
     sbit__search_sensitivity},
    {{"greedy", "step by step where the least is lost for what is saved", 0, NULL, 0},
     true,
     sbit__search_greedy},
    {{"netadapt", "in steps of the budget, each by the group that bears it best", 0,
      sbit__netadapt_keys, SBIT__COUNT_OF(sbit__netadapt_keys)},
     true,
     sbit__search_netadapt},
    {{"annealing", "random moves along the budget, worse ones taken ever less (slow)", 0,
      sbit__annealing_keys, SBIT__COUNT_OF(sbit__annealing_keys)},
     true,
     sbit__search_annealing},
    {{"autocompress", "rounds of annealing and of training towards what it prunes (labels)", 0,
      sbit__autocompress_keys, SBIT__COUNT_OF(sbit__autocompress_keys)},
     true,
     sbit__search_autocompress},
    {{"admm_training", "one ratio, or those configured, and training towards what goes (labels)", 0,
      sbit__admm_training_keys, SBIT__COUNT_OF(sbit__admm_training_keys)},
     true,
     sbit__search_admm_training},
};

SPARSEBIT_API const sbit_search_row *sbit_search_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__search_rows) ? &sbit__search_rows[index] : NULL;
}

static const sbit_head *sbit__search_head(size_t index)
{
    return (const sbit_head *)sbit_search_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_search(void)
{
    static const sbit__kind kind = {"search", sbit__search_head};
    return &kind;
}

SPARSEBIT_API const sbit_search_row *sbit_search_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_search_row *)(const void *)sbit__row_find(ctx, sbit__kind_search(), name);
}

SPARSEBIT_API sbit_status sbit_search_register(sbit_ctx *ctx, const sbit_search_row *row,
                                               sbit_error *error)
{
    return sbit__row_register(ctx, sbit__kind_search(), (const sbit_head *)row,
                              row != NULL && row->run != NULL, error);
}
#undef SBIT__SEARCH_FULL
#undef SBIT__SEARCH_NEAR
#undef SBIT__SEARCH_MOST
