/* moments.c: sums that learned quantizers start from. >>observer-moments
 *
 * Not for OBSERVER.TYPE: quantizer rows ask for it (row->statistics) and read its state. Its range
 * is that of minmax. Sums are float64.
 */
#include "observers_private.h"

static size_t sbit__moments_state_bytes(const sbit_observer_call *call)
{
    return (size_t)call->grid->parts.count * sizeof(sbit__moments);
}

static sbit_status sbit__moments_init(void *state, const sbit_observer_call *call,
                                      sbit_error *error)
{
    (void)state; /* zeroed memory is right */
    (void)call;
    (void)error;
    return SBIT_OK;
}

SBIT__FN void sbit__moments_join(sbit__moments *to, const sbit__moments *from)
{
    if (from->count > 0) {
        to->min = to->count == 0 || from->min < to->min ? from->min : to->min;
        to->max = to->count == 0 || from->max > to->max ? from->max : to->max;
        to->count += from->count;
        to->sum += from->sum;
        to->sum_abs += from->sum_abs;
    }
}

SBIT__FN void sbit__moments_add(sbit__moments *to, const sbit_observation *x, const sbit_runs *run)
{
    sbit__moments sums = {run->count, 0.0, 0.0, x->min[run->part], x->max[run->part]};
    for (int64_t i = run->at; i < run->at + run->count; i++) {
        const double v = (double)x->data[i];
        sums.sum += v;
        sums.sum_abs += v < 0.0 ? -v : v;
    }
    sbit__moments_join(to, &sums);
}

static sbit_status sbit__moments_observe(void *state, const sbit_observer_call *call,
                                         const sbit_observation *x, sbit_error *error)
{
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)call;
    (void)error;
    while (sbit_runs_next(&runs)) {
        sbit__moments_add((sbit__moments *)state + runs.part, x, &runs);
    }
    return SBIT_OK;
}

static sbit_status sbit__moments_merge(void *state, const void *other,
                                       const sbit_observer_call *call, sbit_error *error)
{
    (void)error;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        sbit__moments_join((sbit__moments *)state + p, (const sbit__moments *)other + p);
    }
    return SBIT_OK;
}

static sbit_status sbit__moments_range(const void *state, const sbit_observer_call *call,
                                       float *min, float *max, sbit_error *error)
{
    const sbit__moments *s = (const sbit__moments *)state;
    (void)error;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        min[p] = s[p].min;
        max[p] = s[p].max;
    }
    return SBIT_OK;
}

static size_t sbit__moments_save(const void *state, const sbit_observer_call *call, void *bytes,
                                 size_t capacity)
{
    return sbit__observer_save_flat(state, sbit__moments_state_bytes(call), bytes, capacity);
}

static sbit_status sbit__moments_load(void *state, const sbit_observer_call *call,
                                      const void *bytes, size_t size, sbit_error *error)
{
    return sbit__observer_load_flat(state, call, sbit__moments_state_bytes(call), bytes, size,
                                    error);
}

SBIT__FN const sbit_observer_row *sbit__observer_moments(void)
{
    static const sbit_observer_row row = {
        {"moments", "sums that learned quantizers start from", 0, NULL, 0},
        sbit__moments_state_bytes,
        sbit__moments_init,
        sbit__moments_observe,
        NULL,
        sbit__moments_merge,
        sbit__moments_range,
        sbit__moments_save,
        sbit__moments_load,
        NULL,
    };
    return &row;
}
