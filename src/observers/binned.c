/* binned.c: histograms over a range that is known: two passes over the data. >>observer-binned
 *
 * Called by: observers whose bins are fractions of the data's own range. The first pass finds the
 * range, the second counts. Where activations cannot be read a second time, the counts are made
 * from a histogram that grows with the data (histogram.c): each of its bins goes where its middle
 * lies.
 *
 * State, without pointers: sbit__binned, float min[parts], max[parts], uint64 counts[parts][bins],
 * for activations a growing histogram.
 */
#include "observers_private.h"

SBIT__FN size_t sbit__binned_bytes(const sbit_observer_call *call, int64_t bins)
{
    const int64_t parts = call->grid->parts.count;
    return sizeof(sbit__binned) +
           (size_t)parts * (2 * sizeof(float) + (size_t)bins * sizeof(uint64_t)) +
           (call->target == SBIT_TARGET_ACTIVATION ? sbit__hist_bytes(parts) : 0);
}

static float *sbit__binned_ranges(void *state)
{
    return (float *)(void *)((sbit__binned *)state + 1);
}

static uint64_t *sbit__binned_counts(void *state, int64_t parts)
{
    return (uint64_t *)(void *)(sbit__binned_ranges(state) + 2 * parts);
}

SBIT__FN sbit__binned_view sbit__binned_view_of(const void *state, int64_t parts)
{
    const sbit__binned *head = (const sbit__binned *)state;
    sbit__binned_view v;
    v.min = (const float *)(const void *)(head + 1);
    v.max = v.min + parts;
    v.counts = (const uint64_t *)(const void *)(v.max + parts);
    v.growing = v.counts + parts * head->bins;
    return v;
}

static void sbit__binned_join(void *state, int64_t parts, const float *min, const float *max)
{
    sbit__binned *head = (sbit__binned *)state;
    float *lo = sbit__binned_ranges(state), *hi = lo + parts;
    for (int64_t p = 0; p < parts; p++) {
        lo[p] = !head->seen || min[p] < lo[p] ? min[p] : lo[p];
        hi[p] = !head->seen || max[p] > hi[p] ? max[p] : hi[p];
    }
    head->seen = 1;
}

static int64_t sbit__binned_place(const sbit__bin_map *map, double x)
{
    const double at = (map->absolute ? fabs(x) : x) * map->per_bin + map->offset;
    const int64_t bin = (int64_t)at;
    return bin < 0 ? 0 : bin < map->last ? bin : map->last;
}

SBIT__FN void sbit__binned_observe(void *state, const sbit_observer_call *call,
                                   const sbit_observation *x, sbit__bin_map_fn map_of)
{
    sbit__binned *head = (sbit__binned *)state;
    const int64_t parts = x->parts.count;
    const float *min = sbit__binned_ranges(state), *max = min + parts;
    uint64_t *counts = sbit__binned_counts(state, parts);
    if (head->pass == 0) {
        sbit__binned_join(state, parts, x->min, x->max);
        if (call->target == SBIT_TARGET_ACTIVATION) {
            sbit__hist_add(counts + parts * head->bins, x);
        }
        return;
    }
    sbit_runs runs = sbit_runs_of(&x->parts);
    head->symmetric = call->grid->symmetric ? 1 : 0;
    while (sbit_runs_next(&runs)) {
        const sbit__bin_map map = map_of(call->grid, min[runs.part], max[runs.part], head->bins);
        uint64_t *bins = counts + runs.part * head->bins;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const bool zero = !(x->data[i] < 0.0f) && !(x->data[i] > 0.0f);
            bins[sbit__binned_place(&map, (double)x->data[i])] += zero && map.skip_zero ? 0 : 1;
        }
    }
}

SBIT__FN sbit_status sbit__binned_again(void *state, const sbit_observer_call *call, bool *wanted,
                                        sbit_error *error)
{
    sbit__binned *head = (sbit__binned *)state;
    (void)call;
    (void)error;
    *wanted = head->pass == 0;
    head->pass += head->pass < 2 ? 1 : 0;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__binned_merge(void *state, const void *other,
                                        const sbit_observer_call *call, sbit_error *error)
{
    const int64_t parts = call->grid->parts.count;
    const sbit__binned *from = (const sbit__binned *)other;
    const sbit__binned_view v = sbit__binned_view_of(other, parts);
    uint64_t *counts = sbit__binned_counts(state, parts);
    const float *ranges = sbit__binned_ranges(state);
    if (from->pass != ((const sbit__binned *)state)->pass ||
        (from->pass > 0 && memcmp(ranges, v.min, 2 * (size_t)parts * sizeof *ranges) != 0)) {
        return sbit__fail(error, SBIT_ERR_STATE, call->name,
                          "tensor '%s': counts over different ranges cannot be joined; calibrate "
                          "with all data",
                          call->name);
    }
    if (from->seen && from->pass == 0) {
        sbit__binned_join(state, parts, v.min, v.max);
        if (call->target == SBIT_TARGET_ACTIVATION) {
            sbit__hist_merge(counts + parts * from->bins, v.growing, parts);
        }
    }
    for (int64_t i = 0; i < parts * from->bins; i++) {
        counts[i] += v.counts[i];
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__binned_load(void *state, const sbit_observer_call *call, const void *bytes,
                                       size_t size, sbit_error *error)
{
    sbit__binned *head = (sbit__binned *)state;
    const int64_t bins = head->bins, parts = call->grid->parts.count;
    SBIT__TRY(sbit__observer_load_flat(state, call, sbit__binned_bytes(call, bins), bytes, size, error));
    const bool same = head->bins == bins && head->pass >= 0 && head->pass <= 2;
    head->bins = bins;
    if (!same || (call->target == SBIT_TARGET_ACTIVATION &&
                  !sbit__hist_sound(sbit__binned_counts(state, parts) + parts * bins, parts))) {
        (void)sbit__observer_damaged(state, size, call, error);
        head->bins = bins;
        return SBIT_ERR_PARSE;
    }
    return SBIT_OK;
}

SBIT__FN const uint64_t *sbit__binned_part(const void *state, const sbit_observer_call *call,
                                           int64_t p, const sbit__bin_map *map, uint64_t *scratch)
{
    const sbit__binned *head = (const sbit__binned *)state;
    const int64_t parts = call->grid->parts.count;
    const sbit__binned_view v = sbit__binned_view_of(state, parts);
    if (head->pass == 2) {
        return v.counts + p * head->bins;
    }
    if (call->target != SBIT_TARGET_ACTIVATION) {
        return NULL;
    }
    const sbit__hist_view h = sbit__hist_view_of(v.growing, parts, p);
    memset(scratch, 0, (size_t)head->bins * sizeof *scratch);
    scratch[sbit__binned_place(map, 0.0)] = map->skip_zero ? 0 : h.zeros;
    for (int64_t i = -h.half; i < h.half; i++) {
        const double middle = ((double)i + 0.5) * h.width;
        scratch[sbit__binned_place(map, middle)] += h.counts[h.half + i];
    }
    return scratch;
}
