/* histogram.c: histograms that grow with the data, one a part. >>observer-histogram
 *
 * Called by: observers of activations, which see data once and in pieces. Calls: nothing.
 *
 * Bin i of -half .. half - 1 counts the values with i <= x / 2^exponent < i + 1; exact zeros are
 * counted beside. The exponent is the least with which every value so far has a bin: where a value
 * lies beyond, neighbours are joined, 2^d at a time. As bins are powers of two wide and begin at 0,
 * the counts are those of one histogram over all data, however these were cut and in whatever
 * order they came. Between a half and all of the bins of the wider side are in use.
 *
 * State, without pointers: sbit__hist_part[parts], then uint64 counts[parts][2 * half].
 */
#include "observers_private.h"

SBIT__FN int64_t sbit__hist_half(int64_t parts)
{
    return parts == 1 ? 4096 : 2048;
}

SBIT__FN size_t sbit__hist_bytes(int64_t parts)
{
    const size_t bins = 2u * (size_t)sbit__hist_half(parts);
    return (size_t)parts * (sizeof(sbit__hist_part) + bins * sizeof(uint64_t));
}

static uint64_t *sbit__hist_counts(void *state, int64_t parts, int64_t p)
{
    sbit__hist_part *part = (sbit__hist_part *)state;
    return (uint64_t *)(void *)(part + parts) + 2 * sbit__hist_half(parts) * p;
}

/* The least exponent with which |x| < 2^exponent * half. */
static int32_t sbit__hist_exponent(float min, float max, int64_t half)
{
    const float most = -min > max ? -min : max;
    int exponent = 0;
    (void)frexp((double)most, &exponent); /* most = 0.5 .. 1 times 2^exponent */
    while (half > 1) {
        half /= 2;
        exponent--;
    }
    return exponent;
}

/* Joins 2^shift bins at a time; the sides keep to themselves, as 0 is a border. */
static void sbit__hist_join(uint64_t *counts, int64_t half, int32_t shift)
{
    shift = shift < 62 ? shift : 62;
    for (int64_t i = 0; i < half; i++) { /* from 0 outwards: a bin moves inwards or stays */
        const uint64_t above = counts[half + i], below = counts[half - 1 - i];
        counts[half + i] = counts[half - 1 - i] = 0;
        counts[half + (i >> shift)] += above;
        counts[half - 1 - (i >> shift)] += below;
    }
}

/* Makes room for a range. */
static void sbit__hist_grow(sbit__hist_part *part, uint64_t *counts, int64_t half, float min,
                            float max)
{
    if (min < 0.0f || max > 0.0f) {
        const int32_t exponent = sbit__hist_exponent(min, max, half);
        if (!part->has_bins) {
            part->exponent = exponent;
            part->has_bins = 1;
        } else if (exponent > part->exponent) {
            sbit__hist_join(counts, half, exponent - part->exponent);
            part->exponent = exponent;
        }
    }
    part->min = !part->seen || min < part->min ? min : part->min;
    part->max = !part->seen || max > part->max ? max : part->max;
    part->seen = 1;
}

SBIT__FN void sbit__hist_add(void *state, const sbit_observation *x)
{
    const int64_t parts = x->parts.count, half = sbit__hist_half(parts);
    sbit__hist_part *all = (sbit__hist_part *)state;
    sbit_runs runs = sbit_runs_of(&x->parts);
    for (int64_t p = 0; p < parts; p++) {
        sbit__hist_grow(&all[p], sbit__hist_counts(state, parts, p), half, x->min[p], x->max[p]);
    }
    while (sbit_runs_next(&runs)) {
        sbit__hist_part *part = &all[runs.part];
        uint64_t *zero = sbit__hist_counts(state, parts, runs.part) + half;
        const double per_bin = ldexp(1.0, -part->exponent);
        uint64_t zeros = 0;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double at = (double)x->data[i] * per_bin; /* exact */
            const int32_t whole = (int32_t)at;              /* towards 0 */
            const int32_t bin = whole - ((double)whole > at);
            if (x->data[i] < 0.0f || x->data[i] > 0.0f) {
                zero[bin]++;
            } else {
                zeros++;
            }
        }
        part->zeros += zeros;
    }
}

SBIT__FN void sbit__hist_merge(void *state, const void *other, int64_t parts)
{
    const int64_t half = sbit__hist_half(parts);
    sbit__hist_part *to = (sbit__hist_part *)state;
    const sbit__hist_part *from = (const sbit__hist_part *)other;
    for (int64_t p = 0; p < parts; p++) {
        uint64_t *counts = sbit__hist_counts(state, parts, p);
        const sbit__hist_view v = sbit__hist_view_of(other, parts, p);
        if (!from[p].seen) {
            continue;
        }
        sbit__hist_grow(&to[p], counts, half, from[p].min, from[p].max);
        to[p].zeros += from[p].zeros;
        if (from[p].has_bins) {
            const int32_t shift = to[p].exponent - from[p].exponent;
            for (int64_t i = -half; i < half; i++) {
                const int64_t magnitude = i < 0 ? -1 - i : i;
                const int64_t moved = magnitude >> (shift < 62 ? shift : 62);
                counts[half + (i < 0 ? -1 - moved : moved)] += v.counts[half + i];
            }
        }
    }
}

SBIT__FN bool sbit__hist_sound(const void *state, int64_t parts)
{
    const sbit__hist_part *all = (const sbit__hist_part *)state;
    for (int64_t p = 0; p < parts; p++) {
        if (all[p].has_bins && (!(all[p].min < 0.0f || all[p].max > 0.0f) ||
                                all[p].exponent != sbit__hist_exponent(all[p].min, all[p].max,
                                                                       sbit__hist_half(parts)))) {
            return false;
        }
    }
    return true;
}

SBIT__FN sbit__hist_view sbit__hist_view_of(const void *state, int64_t parts, int64_t p)
{
    const sbit__hist_part *all = (const sbit__hist_part *)state;
    sbit__hist_view v;
    v.half = sbit__hist_half(parts);
    v.counts = (const uint64_t *)(const void *)(all + parts) + 2 * v.half * p;
    v.width = all[p].has_bins ? ldexp(1.0, all[p].exponent) : 1.0;
    v.min = all[p].min;
    v.max = all[p].max;
    v.zeros = all[p].zeros;
    return v;
}
