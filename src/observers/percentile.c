/* percentile.c: cuts a part of the values of each sign, exactly. >>observer-percentile
 *
 * Sparsebit's PERCENTILE (algorithms: section 1.7): of N values, P of them >= 0 and M below,
 *     max = the (N - round(P * ALPHA))-th smallest, 0 if P = 0
 *     min = the max(round(M * ALPHA), 1)-th smallest, 0 if M = 0
 * The values are found without keeping the data, digit by digit of their bit patterns put in order:
 * a pass counts how often each value of the next digit occurs behind the digits known so far. One
 * part: two passes of 16 bits; more: three of 11, 11 and 10. Where activations cannot be read
 * again, the digits that are missing are taken as far outside as the data went.
 *
 * State, without pointers: sbit__percentile, sbit__percentile_part[parts],
 * uint64 counts[parts][2][2^bits] (the side of max, of min; the first pass uses one for both).
 */
#include "observers_private.h"

typedef struct sbit__percentile {
    int32_t pass; /* passes ended */
    int32_t unused;
} sbit__percentile;

typedef struct sbit__percentile_part {
    uint64_t rank[2];   /* of the max, of the min: among the values behind `known` */
    uint32_t known[2];  /* the digits found so far, as the highest bits */
    uint32_t active[2]; /* there are values of that sign */
    float min, max;     /* of all data */
    uint32_t seen, unused;
} sbit__percentile_part;

static const sbit_key sbit__percentile_keys[] = {
    {"PERCENTILE.ALPHA", SBIT_KEY_FLOAT, "0.001", 0.0, 1.0, NULL,
     "part of the values of each sign to cut"},
};

static int32_t sbit__percentile_bits(int64_t parts)
{
    return parts == 1 ? 16 : 11;
}

/* The lowest bit of the digit that pass number `pass` counts; 32 before the first. */
static int32_t sbit__percentile_shift(int64_t parts, int32_t pass)
{
    const int32_t shift = 32 - sbit__percentile_bits(parts) * (pass + 1);
    return shift > 0 ? shift : 0;
}

static size_t sbit__percentile_state_bytes(const sbit_observer_call *call)
{
    const size_t parts = (size_t)call->grid->parts.count;
    const size_t digits = (size_t)1 << sbit__percentile_bits(call->grid->parts.count);
    return sizeof(sbit__percentile) +
           parts * (sizeof(sbit__percentile_part) + 2 * digits * sizeof(uint64_t));
}

static sbit__percentile_part *sbit__percentile_parts(void *state)
{
    return (sbit__percentile_part *)(void *)((sbit__percentile *)state + 1);
}

static size_t sbit__percentile_at(int64_t parts, int64_t p, int side)
{
    return ((size_t)p * 2 + (size_t)side) << sbit__percentile_bits(parts);
}

static uint64_t *sbit__percentile_counts(void *state, int64_t parts)
{
    return (uint64_t *)(void *)(sbit__percentile_parts(state) + parts);
}

/* Bit patterns in the order of the numbers; -0 and 0 are one. */
static uint32_t sbit__percentile_key(float x)
{
    uint32_t bits;
    x += 0.0f;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

static float sbit__percentile_value(uint32_t key)
{
    const uint32_t bits = (key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static sbit_status sbit__percentile_init(void *state, const sbit_observer_call *call,
                                         sbit_error *error)
{
    (void)state; /* zeroed memory is right */
    (void)call;
    (void)error;
    return SBIT_OK;
}

static void sbit__percentile_join(sbit__percentile_part *part, float min, float max)
{
    part->min = !part->seen || min < part->min ? min : part->min;
    part->max = !part->seen || max > part->max ? max : part->max;
    part->seen = 1;
}

static sbit_status sbit__percentile_observe(void *state, const sbit_observer_call *call,
                                            const sbit_observation *x, sbit_error *error)
{
    const int64_t parts = x->parts.count;
    const int32_t pass = ((const sbit__percentile *)state)->pass;
    const int32_t shift = sbit__percentile_shift(parts, pass);
    const int32_t known = pass > 0 ? sbit__percentile_shift(parts, pass - 1) : 32;
    const uint32_t mask = pass > 0 ? (1u << (known - shift)) - 1u : 0xffffffffu;
    sbit__percentile_part *all = sbit__percentile_parts(state);
    uint64_t *counts = sbit__percentile_counts(state, parts);
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)call;
    (void)error;
    for (int64_t p = 0; p < parts && pass == 0; p++) {
        sbit__percentile_join(&all[p], x->min[p], x->max[p]);
    }
    while (sbit_runs_next(&runs)) {
        const sbit__percentile_part *part = &all[runs.part];
        uint64_t *side[2] = {counts + sbit__percentile_at(parts, runs.part, 0),
                             counts + sbit__percentile_at(parts, runs.part, 1)};
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const uint32_t key = sbit__percentile_key(x->data[i]);
            if (pass == 0) {
                side[0][key >> shift]++;
                continue;
            }
            for (int s = 0; s < 2; s++) {
                if (((key ^ part->known[s]) >> known) == 0) {
                    side[s][key >> shift & mask]++;
                }
            }
        }
    }
    return SBIT_OK;
}

/* The digit that holds the value of that rank, which becomes the rank behind it. */
static uint32_t sbit__percentile_digit(const uint64_t *counts, int32_t bits, uint64_t *rank)
{
    const uint32_t last = (1u << bits) - 1u;
    uint32_t digit = 0;
    while (digit < last && *rank >= counts[digit]) {
        *rank -= counts[digit++];
    }
    return digit;
}

/* Ranks of both values, from 0, once all values were counted. */
static void sbit__percentile_ranks(sbit__percentile_part *part, const uint64_t *counts,
                                   int32_t bits, double alpha)
{
    const uint32_t half = 1u << (bits - 1);
    uint64_t below = 0, all = 0;
    for (uint32_t i = 0; i < 2 * half; i++) {
        all += counts[i];
        below += i < half ? counts[i] : 0;
    }
    const double cut = nearbyint((double)(all - below) * alpha);
    const double low = nearbyint((double)below * alpha);
    part->active[0] = all > below;
    part->active[1] = below > 0;
    part->rank[0] = all > (uint64_t)cut ? all - (uint64_t)cut - 1 : 0;
    part->rank[1] = low > 1.0 ? (uint64_t)low - 1 : 0;
}

/* Finds the next digit of both values of a part. */
static void sbit__percentile_narrow(sbit__percentile_part *part, const uint64_t *max_counts,
                                    const uint64_t *min_counts, const sbit_observer_call *call,
                                    int32_t pass)
{
    const int64_t parts = call->grid->parts.count;
    const int32_t shift = sbit__percentile_shift(parts, pass);
    const int32_t bits = (pass > 0 ? sbit__percentile_shift(parts, pass - 1) : 32) - shift;
    if (pass == 0) {
        sbit__percentile_ranks(part, max_counts, bits,
                               sbit_options_float(call->options, "OBSERVER.PERCENTILE.ALPHA"));
    }
    part->known[0] |= sbit__percentile_digit(max_counts, bits, &part->rank[0]) << shift;
    part->known[1] |=
        sbit__percentile_digit(pass == 0 ? max_counts : min_counts, bits, &part->rank[1]) << shift;
}

static sbit_status sbit__percentile_again(void *state, const sbit_observer_call *call, bool *wanted,
                                          sbit_error *error)
{
    const int64_t parts = call->grid->parts.count;
    sbit__percentile *head = (sbit__percentile *)state;
    sbit__percentile_part *all = sbit__percentile_parts(state);
    uint64_t *counts = sbit__percentile_counts(state, parts);
    const bool done = head->pass > 0 && sbit__percentile_shift(parts, head->pass - 1) == 0;
    (void)error;
    for (int64_t p = 0; p < parts && !done; p++) {
        sbit__percentile_narrow(&all[p], counts + sbit__percentile_at(parts, p, 0),
                                counts + sbit__percentile_at(parts, p, 1), call, head->pass);
    }
    if (!done) {
        memset(counts, 0, sbit__percentile_at(parts, parts, 0) * sizeof *counts);
        head->pass++;
    }
    *wanted = !done && sbit__percentile_shift(parts, head->pass - 1) > 0;
    return SBIT_OK;
}

static sbit_status sbit__percentile_merge(void *state, const void *other,
                                          const sbit_observer_call *call, sbit_error *error)
{
    const int64_t parts = call->grid->parts.count;
    const sbit__percentile *from = (const sbit__percentile *)other;
    const sbit__percentile_part *theirs = (const sbit__percentile_part *)(const void *)(from + 1);
    const uint64_t *more = (const uint64_t *)(const void *)(theirs + parts);
    uint64_t *counts = sbit__percentile_counts(state, parts);
    bool same = from->pass == ((const sbit__percentile *)state)->pass;
    for (int64_t p = 0; p < parts && from->pass > 0; p++) { /* of the last pass nothing is left */
        const uint32_t *known = sbit__percentile_parts(state)[p].known;
        same = same && sbit__percentile_shift(parts, from->pass - 1) > 0 &&
               known[0] == theirs[p].known[0] && known[1] == theirs[p].known[1];
    }
    if (!same) {
        return sbit__fail(error, SBIT_ERR_STATE, call->name,
                          "tensor '%s': values beyond different limits cannot be joined; calibrate "
                          "with all data",
                          call->name);
    }
    for (int64_t p = 0; p < parts; p++) {
        if (theirs[p].seen) {
            sbit__percentile_join(&sbit__percentile_parts(state)[p], theirs[p].min, theirs[p].max);
        }
    }
    for (size_t i = 0; i < sbit__percentile_at(parts, parts, 0); i++) {
        counts[i] += more[i];
    }
    return SBIT_OK;
}

static sbit_status sbit__percentile_range(const void *state, const sbit_observer_call *call,
                                          float *min, float *max, sbit_error *error)
{
    const int64_t parts = call->grid->parts.count;
    const sbit__percentile *head = (const sbit__percentile *)state;
    const sbit__percentile_part *all = (const sbit__percentile_part *)(const void *)(head + 1);
    const uint64_t *counts = (const uint64_t *)(const void *)(all + parts);
    const int32_t pass = head->pass > 0 ? head->pass - 1 : 0;
    const uint32_t rest = (1u << sbit__percentile_shift(parts, pass)) - 1u; /* bits not known */
    (void)error;
    for (int64_t p = 0; p < parts; p++) {
        sbit__percentile_part part = all[p];
        if (head->pass == 0) {
            sbit__percentile_narrow(&part, counts + sbit__percentile_at(parts, p, 0), NULL, call,
                                    0);
        }
        const float hi = sbit__percentile_value(part.known[0] | rest);
        const float lo = sbit__percentile_value(part.known[1]);
        max[p] = !part.active[0] ? 0.0f : hi < part.max ? hi : part.max;
        min[p] = !part.active[1] ? 0.0f : lo > part.min ? lo : part.min;
    }
    return SBIT_OK;
}

static size_t sbit__percentile_save(const void *state, const sbit_observer_call *call, void *bytes,
                                    size_t capacity)
{
    return sbit__observer_save_flat(state, sbit__percentile_state_bytes(call), bytes, capacity);
}

static sbit_status sbit__percentile_load(void *state, const sbit_observer_call *call,
                                         const void *bytes, size_t size, sbit_error *error)
{
    const int64_t parts = call->grid->parts.count;
    SBIT__TRY(sbit__observer_load_flat(state, call, sbit__percentile_state_bytes(call), bytes, size,
                                       error));
    const int32_t pass = ((const sbit__percentile *)state)->pass;
    return pass == 0 || pass == 1 ||
                   (pass > 1 && pass < 33 && sbit__percentile_shift(parts, pass - 2) > 0)
               ? SBIT_OK
               : sbit__observer_damaged(state, size, call, error);
}

SBIT__FN const sbit_observer_row *sbit__observer_percentile(void)
{
    static const sbit_observer_row row = {
        {"percentile", "cuts a part of the values of each sign",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__percentile_keys,
         SBIT__COUNT_OF(sbit__percentile_keys)},
        sbit__percentile_state_bytes,
        sbit__percentile_init,
        sbit__percentile_observe,
        sbit__percentile_again,
        sbit__percentile_merge,
        sbit__percentile_range,
        sbit__percentile_save,
        sbit__percentile_load,
        NULL,
    };
    return &row;
}
