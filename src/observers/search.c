/* search.c: the clipping with the least error of rounding: mse, lp. >>observer-search
 *
 * Sparsebit's MSE (algorithms: section 1.7): of the 80 ranges f * (min, max), f = 1.00, 0.99 ..
 * 0.21, the one whose fake-quantized values differ least, the first of equals. The difference is
 * the mean of |x - y|^p: p = 2, or OBSERVER.LP.P (2.4 weighs large errors more).
 *
 * Weights are read twice: the range, then the error of every candidate, exactly. Activations are
 * read once: the error is computed over the bins of a histogram (centres, and the spread of a bin
 * on top), within a candidate of the exact one.
 */
#include "observers_private.h"

enum {
    SBIT__SEARCH_CANDIDATES = 80,
    SBIT__SEARCH_BATCH = 64 /* values of a part that are rounded at once */
};

/* What a weight's parts gather; behind the header, sized by the number of parts:
 * double loss[parts][80], float min[parts], max[parts], waiting[parts][64], int32 fill[parts]. */
typedef struct sbit__search {
    double power;
    int32_t pass; /* 0: the range, 1: the errors, 2: done */
    int32_t unused;
} sbit__search;

typedef struct sbit__search_arrays {
    double *loss;
    float *min, *max, *waiting;
    int32_t *fill;
} sbit__search_arrays;

static const sbit_key sbit__search_lp_keys[] = {
    {"LP.P", SBIT_KEY_FLOAT, "2.4", 0.5, 16.0, NULL, "power of the error that lp sums"},
};

static size_t sbit__search_state_bytes(const sbit_observer_call *call)
{
    const size_t parts = (size_t)call->grid->parts.count;
    if (call->target == SBIT_TARGET_ACTIVATION) {
        return sizeof(sbit__search) + sbit__hist_bytes(call->grid->parts.count);
    }
    return sizeof(sbit__search) + parts * SBIT__SEARCH_CANDIDATES * sizeof(double) +
           parts * (SBIT__SEARCH_BATCH + 3u) * sizeof(float);
}

static sbit__search_arrays sbit__search_arrays_of(const void *state, int64_t parts)
{
    union {
        const void *constant;
        sbit__search *head;
    } u; /* the arrays of a state that only range reads are not written to */
    sbit__search_arrays s;
    u.constant = state;
    s.loss = (double *)(void *)(u.head + 1);
    s.min = (float *)(void *)(s.loss + parts * SBIT__SEARCH_CANDIDATES);
    s.max = s.min + parts;
    s.waiting = s.max + parts;
    s.fill = (int32_t *)(void *)(s.waiting + parts * SBIT__SEARCH_BATCH);
    return s;
}

static sbit_status sbit__search_mse_init(void *state, const sbit_observer_call *call,
                                         sbit_error *error)
{
    (void)call;
    (void)error;
    ((sbit__search *)state)->power = 2.0;
    return SBIT_OK;
}

static sbit_status sbit__search_lp_init(void *state, const sbit_observer_call *call,
                                        sbit_error *error)
{
    (void)error;
    ((sbit__search *)state)->power = sbit_options_float(call->options, "OBSERVER.LP.P");
    return SBIT_OK;
}

static float sbit__search_factor(int candidate)
{
    return (float)(1.0 - 0.01 * (double)candidate);
}

/* |error|^power, from its square: `mse` needs no pow, `lp` one for each value and candidate. */
static double sbit__search_power(double square, double power)
{
    return power == 2.0 ? square : square > 0.0 ? pow(square, 0.5 * power) : 0.0;
}

/* >>weights: adds the errors of some values of a part under every candidate. */
static sbit_status sbit__search_errors(const void *state, const sbit_observer_call *call,
                                       int64_t part, const float *x, int64_t count,
                                       sbit_error *error)
{
    const sbit__search_arrays s = sbit__search_arrays_of(state, call->grid->parts.count);
    const sbit_kernels *kernels = sbit__kernels(call->ctx);
    const sbit_grid *grid = call->grid;
    const double power = ((const sbit__search *)state)->power;
    float y[SBIT__SEARCH_BATCH];
    for (int c = 0; c < SBIT__SEARCH_CANDIDATES; c++) {
        const float f = sbit__search_factor(c);
        double *loss = &s.loss[part * SBIT__SEARCH_CANDIDATES + c];
        float scale;
        int32_t zero_point;
        SBIT__TRY(sbit_grid_scale(grid, call->name, s.min[part] * f, s.max[part] * f, &scale,
                                  &zero_point, error));
        for (int64_t at = 0; at < count; at += SBIT__SEARCH_BATCH) {
            const int64_t left = count - at, most = SBIT__SEARCH_BATCH;
            const int64_t n = left < most ? left : most;
            kernels->f32_fake_quantize(n, x + at, scale, zero_point, grid->qmin, grid->qmax, y);
            double sum = 0.0;
            for (int64_t i = 0; i < n; i++) {
                const double d = (double)x[at + i] - (double)y[i];
                sum += sbit__search_power(d * d, power);
            }
            *loss += sum;
        }
    }
    return SBIT_OK;
}

/* Long runs are rounded where they lie; short ones wait until there are enough of their part. */
static sbit_status sbit__search_second(void *state, const sbit_observer_call *call,
                                       const sbit_observation *x, sbit_error *error)
{
    const sbit__search_arrays s = sbit__search_arrays_of(state, x->parts.count);
    sbit_runs runs = sbit_runs_of(&x->parts);
    while (sbit_runs_next(&runs)) {
        if (runs.count >= SBIT__SEARCH_BATCH / 2) {
            SBIT__TRY(
                sbit__search_errors(state, call, runs.part, x->data + runs.at, runs.count, error));
            continue;
        }
        float *waiting = s.waiting + runs.part * SBIT__SEARCH_BATCH;
        if (s.fill[runs.part] + runs.count > SBIT__SEARCH_BATCH) {
            SBIT__TRY(
                sbit__search_errors(state, call, runs.part, waiting, s.fill[runs.part], error));
            s.fill[runs.part] = 0;
        }
        memcpy(waiting + s.fill[runs.part], x->data + runs.at,
               (size_t)runs.count * sizeof *waiting);
        s.fill[runs.part] += (int32_t)runs.count;
    }
    return SBIT_OK;
}

static sbit_status sbit__search_observe(void *state, const sbit_observer_call *call,
                                        const sbit_observation *x, sbit_error *error)
{
    sbit__search *head = (sbit__search *)state;
    if (call->target == SBIT_TARGET_ACTIVATION) {
        sbit__hist_add(head + 1, x);
        return SBIT_OK;
    }
    if (head->pass > 0) {
        return sbit__search_second(state, call, x, error);
    }
    const sbit__search_arrays s = sbit__search_arrays_of(state, x->parts.count);
    for (int64_t p = 0; p < x->parts.count; p++) {
        s.min[p] = s.fill[p] == 0 || x->min[p] < s.min[p] ? x->min[p] : s.min[p];
        s.max[p] = s.fill[p] == 0 || x->max[p] > s.max[p] ? x->max[p] : s.max[p];
        s.fill[p] = 1; /* seen */
    }
    return SBIT_OK;
}

static sbit_status sbit__search_again(void *state, const sbit_observer_call *call, bool *wanted,
                                      sbit_error *error)
{
    sbit__search *head = (sbit__search *)state;
    const int64_t parts = call->grid->parts.count;
    *wanted = call->target == SBIT_TARGET_WEIGHT && head->pass == 0;
    if (call->target == SBIT_TARGET_ACTIVATION) {
        return SBIT_OK;
    }
    const sbit__search_arrays s = sbit__search_arrays_of(state, parts);
    for (int64_t p = 0; p < parts; p++) {
        if (head->pass == 1) {
            SBIT__TRY(sbit__search_errors(state, call, p, s.waiting + p * SBIT__SEARCH_BATCH,
                                          s.fill[p], error));
        }
        s.fill[p] = 0;
    }
    head->pass++;
    return SBIT_OK;
}

static sbit_status sbit__search_merge(void *state, const void *other,
                                      const sbit_observer_call *call, sbit_error *error)
{
    const sbit__search *from = (const sbit__search *)other;
    const int64_t parts = call->grid->parts.count;
    if (call->target == SBIT_TARGET_ACTIVATION) {
        sbit__hist_merge((sbit__search *)state + 1, from + 1, parts);
        return SBIT_OK;
    }
    const sbit__search_arrays a = sbit__search_arrays_of(state, parts);
    const sbit__search_arrays b = sbit__search_arrays_of(other, parts);
    if (from->pass != ((const sbit__search *)state)->pass) {
        return sbit__fail(error, SBIT_ERR_STATE, call->name, "statistics of different passes");
    }
    for (int64_t p = 0; p < parts; p++) {
        if (from->pass == 0 && b.fill[p] != 0) {
            a.min[p] = a.fill[p] == 0 || b.min[p] < a.min[p] ? b.min[p] : a.min[p];
            a.max[p] = a.fill[p] == 0 || b.max[p] > a.max[p] ? b.max[p] : a.max[p];
            a.fill[p] = 1;
        }
        for (int c = 0; c < SBIT__SEARCH_CANDIDATES; c++) {
            a.loss[p * SBIT__SEARCH_CANDIDATES + c] += b.loss[p * SBIT__SEARCH_CANDIDATES + c];
        }
    }
    return SBIT_OK;
}

/* >>activations: the error under a candidate over the bins. */
static double sbit__search_hist_error(const sbit__hist_view *v, const sbit_grid *grid, float scale,
                                      int32_t zero_point, double power)
{
    const double s = (double)scale, zp = (double)zero_point;
    const double spread = v->width * v->width / 12.0; /* of values within a bin */
    double sum = 0.0;
    for (int64_t i = -v->half; i < v->half; i++) {
        const uint64_t n = v->counts[v->half + i];
        if (n == 0) {
            continue;
        }
        const double x = ((double)i + 0.5) * v->width;
        double q = nearbyint(x / s) + zp;
        q = q < (double)grid->qmin ? (double)grid->qmin : q;
        q = q > (double)grid->qmax ? (double)grid->qmax : q;
        const double d = x - (q - zp) * s;
        sum += (double)n * sbit__search_power(d * d + spread, power);
    }
    return sum;
}

static sbit_status sbit__search_range(const void *state, const sbit_observer_call *call, float *min,
                                      float *max, sbit_error *error)
{
    const sbit__search *head = (const sbit__search *)state;
    const int64_t parts = call->grid->parts.count;
    const bool binned = call->target == SBIT_TARGET_ACTIVATION;
    const sbit__search_arrays s = sbit__search_arrays_of(state, parts);
    for (int64_t p = 0; p < parts; p++) {
        sbit__hist_view v;
        memset(&v, 0, sizeof v);
        if (binned) {
            v = sbit__hist_view_of(head + 1, parts, p);
        }
        const float lo = binned ? v.min : s.min[p], hi = binned ? v.max : s.max[p];
        int best = 0;
        double least = 0.0;
        for (int c = 0; c < SBIT__SEARCH_CANDIDATES && (binned || head->pass > 1); c++) {
            const float f = sbit__search_factor(c);
            double loss = binned ? 0.0 : s.loss[p * SBIT__SEARCH_CANDIDATES + c];
            float scale;
            int32_t zp;
            if (binned) {
                SBIT__TRY(
                    sbit_grid_scale(call->grid, call->name, lo * f, hi * f, &scale, &zp, error));
                loss = sbit__search_hist_error(&v, call->grid, scale, zp, head->power);
            }
            if (c == 0 || loss < least) {
                least = loss;
                best = c;
            }
        }
        min[p] = lo * sbit__search_factor(best);
        max[p] = hi * sbit__search_factor(best);
    }
    return SBIT_OK;
}

static size_t sbit__search_save(const void *state, const sbit_observer_call *call, void *bytes,
                                size_t capacity)
{
    return sbit__observer_save_flat(state, sbit__search_state_bytes(call), bytes, capacity);
}

static sbit_status sbit__search_load(void *state, const sbit_observer_call *call, const void *bytes,
                                     size_t size, sbit_error *error)
{
    sbit__search *head = (sbit__search *)state;
    const double power = head->power;
    const int64_t parts = call->grid->parts.count;
    SBIT__TRY(
        sbit__observer_load_flat(state, call, sbit__search_state_bytes(call), bytes, size, error));
    bool sound = head->pass >= 0 && head->pass <= 2;
    if (call->target == SBIT_TARGET_ACTIVATION) {
        sound = sound && sbit__hist_sound(head + 1, parts);
    } else {
        const sbit__search_arrays s = sbit__search_arrays_of(state, parts);
        for (int64_t p = 0; p < parts; p++) {
            sound = sound && s.fill[p] >= 0 && s.fill[p] <= SBIT__SEARCH_BATCH;
        }
    }
    const sbit_status status = sound ? SBIT_OK : sbit__observer_damaged(state, size, call, error);
    head->power = power;
    return status;
}

SBIT__FN const sbit_observer_row *sbit__observer_mse(void)
{
    static const sbit_observer_row row = {
        {"mse", "the clipping with the least squared error of rounding",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, NULL, 0},
        sbit__search_state_bytes,
        sbit__search_mse_init,
        sbit__search_observe,
        sbit__search_again,
        sbit__search_merge,
        sbit__search_range,
        sbit__search_save,
        sbit__search_load,
        NULL,
    };
    return &row;
}

SBIT__FN const sbit_observer_row *sbit__observer_lp(void)
{
    static const sbit_observer_row row = {
        {"lp", "the clipping with the least sum of |error|^p",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__search_lp_keys,
         SBIT__COUNT_OF(sbit__search_lp_keys)},
        sbit__search_state_bytes,
        sbit__search_lp_init,
        sbit__search_observe,
        sbit__search_again,
        sbit__search_merge,
        sbit__search_range,
        sbit__search_save,
        sbit__search_load,
        NULL,
    };
    return &row;
}
