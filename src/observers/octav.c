/* octav.c: the clipping with the least expected squared error (Sakr et al. 2022). >>observer-octav
 *
 * Rounding in steps of 2 s / n (s: where |x| is cut, n: steps of the grid; s / n for data of one
 * sign on an affine grid) costs s^2 c with c = 1 / (3 n^2) (a quarter of it), cutting (|x| - s)^2.
 * The least sum is found by turns of
 *     s = sum of |x| beyond s / (c * (values within s, but 0) + values beyond s)
 * from the mean |x| on. The range is the data's, cut at s.
 *
 * Weights are read once for each turn. Activations are read once: the sums run over a histogram
 * that grows with the data.
 */
#include "observers_private.h"

enum {
    SBIT__OCTAV_TURNS = 40
};

typedef struct sbit__octav {
    int32_t turn; /* passes ended */
    int32_t unused;
} sbit__octav;

typedef struct sbit__octav_part { /* of weights */
    double cut, beyond, beyond_count, within_count;
    float min, max;
    int32_t seen, unused;
} sbit__octav_part;

static size_t sbit__octav_state_bytes(const sbit_observer_call *call)
{
    const int64_t parts = call->grid->parts.count;
    return sizeof(sbit__octav) + (call->target == SBIT_TARGET_ACTIVATION
                                      ? sbit__hist_bytes(parts)
                                      : (size_t)parts * sizeof(sbit__octav_part));
}

static sbit_status sbit__octav_init(void *state, const sbit_observer_call *call, sbit_error *error)
{
    (void)state; /* zeroed memory is right */
    (void)call;
    (void)error;
    return SBIT_OK;
}

/* What a value within s costs, in units of s^2. */
static double sbit__octav_cost(const sbit_grid *grid, float min, float max)
{
    const double steps = (double)grid->qmax - (double)grid->qmin;
    const bool one_sided = !grid->symmetric && (min >= 0.0f || max <= 0.0f);
    return 1.0 / ((one_sided ? 12.0 : 3.0) * steps * steps);
}

static double sbit__octav_next(double cost, double beyond, double beyond_count, double within_count)
{
    const double count = cost * within_count + beyond_count;
    return count > 0.0 ? beyond / count : 0.0;
}

/* >>weights */
static void sbit__octav_add(sbit__octav_part *part, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double size = fabs((double)x[i]);
        if (size > part->cut) { /* in the first pass: all but 0 */
            part->beyond += size;
            part->beyond_count += 1.0;
        } else {
            part->within_count += size > 0.0 ? 1.0 : 0.0;
        }
    }
}

static sbit_status sbit__octav_observe(void *state, const sbit_observer_call *call,
                                       const sbit_observation *x, sbit_error *error)
{
    sbit__octav *head = (sbit__octav *)state;
    sbit__octav_part *all = (sbit__octav_part *)(void *)(head + 1);
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)error;
    if (call->target == SBIT_TARGET_ACTIVATION) {
        sbit__hist_add(head + 1, x);
        return SBIT_OK;
    }
    for (int64_t p = 0; p < x->parts.count && head->turn == 0; p++) {
        all[p].min = !all[p].seen || x->min[p] < all[p].min ? x->min[p] : all[p].min;
        all[p].max = !all[p].seen || x->max[p] > all[p].max ? x->max[p] : all[p].max;
        all[p].seen = 1;
    }
    while (sbit_runs_next(&runs)) {
        sbit__octav_add(&all[runs.part], x->data + runs.at, runs.count);
    }
    return SBIT_OK;
}

static sbit_status sbit__octav_again(void *state, const sbit_observer_call *call, bool *wanted,
                                     sbit_error *error)
{
    sbit__octav *head = (sbit__octav *)state;
    sbit__octav_part *all = (sbit__octav_part *)(void *)(head + 1);
    (void)error;
    *wanted = false;
    if (call->target == SBIT_TARGET_ACTIVATION || head->turn >= SBIT__OCTAV_TURNS) {
        return SBIT_OK;
    }
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        sbit__octav_part *part = &all[p];
        const double cost =
            head->turn == 0 ? 0.0 : sbit__octav_cost(call->grid, part->min, part->max);
        const double next =
            sbit__octav_next(cost, part->beyond, part->beyond_count, part->within_count);
        *wanted = *wanted || fabs(next - part->cut) > 1e-7 * next;
        part->cut = next > 0.0 ? next : part->cut;
        part->beyond = part->beyond_count = part->within_count = 0.0;
    }
    head->turn++;
    *wanted = *wanted && head->turn < SBIT__OCTAV_TURNS;
    return SBIT_OK;
}

static sbit_status sbit__octav_merge(void *state, const void *other, const sbit_observer_call *call,
                                     sbit_error *error)
{
    sbit__octav *head = (sbit__octav *)state;
    const sbit__octav *from = (const sbit__octav *)other;
    const sbit__octav_part *theirs = (const sbit__octav_part *)(const void *)(from + 1);
    const int64_t parts = call->grid->parts.count;
    if (call->target == SBIT_TARGET_ACTIVATION) {
        sbit__hist_merge(head + 1, from + 1, parts);
        return SBIT_OK;
    }
    if (from->turn != head->turn) {
        return sbit__fail(error, SBIT_ERR_STATE, call->name, "statistics of different passes");
    }
    for (int64_t p = 0; p < parts; p++) {
        sbit__octav_part *part = (sbit__octav_part *)(void *)(head + 1) + p;
        if (theirs[p].seen) {
            part->min = !part->seen || theirs[p].min < part->min ? theirs[p].min : part->min;
            part->max = !part->seen || theirs[p].max > part->max ? theirs[p].max : part->max;
            part->seen = 1;
        }
        part->beyond += theirs[p].beyond;
        part->beyond_count += theirs[p].beyond_count;
        part->within_count += theirs[p].within_count;
    }
    return SBIT_OK;
}

/* >>activations: one turn over the bins; the bin that is cut counts in proportion. */
static double sbit__octav_turn(const sbit__hist_view *v, double cost, double cut)
{
    double beyond = 0.0, beyond_count = 0.0, within_count = 0.0;
    for (int64_t i = 0; i < v->half; i++) {
        const double n = (double)(v->counts[v->half + i] + v->counts[v->half - 1 - i]);
        const double low = (double)i * v->width, high = low + v->width;
        const double from = cut < low ? low : cut < high ? cut : high;
        const double share = n * (high - from) / v->width;
        beyond += share * 0.5 * (from + high);
        beyond_count += share;
        within_count += n - share;
    }
    return sbit__octav_next(cost, beyond, beyond_count, within_count);
}

static double sbit__octav_solve(const sbit__hist_view *v, const sbit_grid *grid)
{
    const double cost = sbit__octav_cost(grid, v->min, v->max);
    double cut = sbit__octav_turn(v, 0.0, 0.0);
    for (int turn = 0; turn < SBIT__OCTAV_TURNS; turn++) {
        const double next = sbit__octav_turn(v, cost, cut);
        const bool done = fabs(next - cut) <= 1e-7 * next;
        cut = next > 0.0 ? next : cut;
        if (done) {
            break;
        }
    }
    return cut;
}

static sbit_status sbit__octav_range(const void *state, const sbit_observer_call *call, float *min,
                                     float *max, sbit_error *error)
{
    const sbit__octav *head = (const sbit__octav *)state;
    const sbit__octav_part *all = (const sbit__octav_part *)(const void *)(head + 1);
    const int64_t parts = call->grid->parts.count;
    const bool binned = call->target == SBIT_TARGET_ACTIVATION;
    (void)error;
    for (int64_t p = 0; p < parts; p++) {
        sbit__hist_view v;
        memset(&v, 0, sizeof v);
        if (binned) {
            v = sbit__hist_view_of(head + 1, parts, p);
        } else {
            v.min = all[p].min;
            v.max = all[p].max;
        }
        const double found = binned ? sbit__octav_solve(&v, call->grid) : all[p].cut;
        const double cut = binned || head->turn > 1 ? found : (double)INFINITY;
        min[p] = (double)v.min < -cut ? (float)-cut : v.min;
        max[p] = (double)v.max > cut ? (float)cut : v.max;
    }
    return SBIT_OK;
}

static size_t sbit__octav_save(const void *state, const sbit_observer_call *call, void *bytes,
                               size_t capacity)
{
    return sbit__observer_save_flat(state, sbit__octav_state_bytes(call), bytes, capacity);
}

static sbit_status sbit__octav_load(void *state, const sbit_observer_call *call, const void *bytes,
                                    size_t size, sbit_error *error)
{
    SBIT__TRY(sbit__observer_load_flat(state, call, sbit__octav_state_bytes(call), bytes, size, error));
    return call->target != SBIT_TARGET_ACTIVATION ||
                   sbit__hist_sound((sbit__octav *)state + 1, call->grid->parts.count)
               ? SBIT_OK
               : sbit__observer_damaged(state, size, call, error);
}

SBIT__FN const sbit_observer_row *sbit__observer_octav(void)
{
    static const sbit_observer_row row = {
        {"octav", "the clipping with the least expected squared error",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, NULL, 0},
        sbit__octav_state_bytes,
        sbit__octav_init,
        sbit__octav_observe,
        sbit__octav_again,
        sbit__octav_merge,
        sbit__octav_range,
        sbit__octav_save,
        sbit__octav_load,
        NULL,
    };
    return &row;
}
