/* aciq.c: clipping that is best for an assumed distribution (Banner et al. 2019). >>observer-aciq
 *
 * Sparsebit's ACIQ (algorithms: section 1.7): max = factor[bits] * deviation, min = -max; on affine
 * grids, with no negative value in all the data, min = 0 and the factors of the half range.
 *     LAPLACE  deviation = mean |x - mean(x)| of a part: the second pass
 *     GAUS     deviation from the range: (max - min) * c / sqrt(2 ln n), n the number of values of
 *              the tensor, of activations for each sample, c = 0.175 (1 + sqrt(pi ln 4))
 * Without a second pass LAPLACE takes the deviation of a Laplace distribution with the data's
 * variance.
 */
#include "observers_private.h"

typedef struct sbit__aciq {
    int32_t pass, unused;
    int64_t samples;
} sbit__aciq;

typedef struct sbit__aciq_part {
    sbit__moments moments;
    double squares, spread; /* sums of x^2, and in the second pass of |x - mean| */
} sbit__aciq_part;

static const sbit_key sbit__aciq_keys[] = {
    {"ACIQ.DISTRIBUTION", SBIT_KEY_CHOICE, "GAUS", 0, 0, "GAUS|LAPLACE", "assumed distribution"},
};

/* By distribution, half range, and bits from 2 on. */
static const double sbit__aciq_factors[2][2][7] = {
    {{1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92}, {2.15, 2.55, 2.93, 3.28, 3.61, 3.92, 4.2}},
    {{2.83, 3.89, 5.03, 6.2, 7.41, 8.64, 9.89}, {3.89, 5.02, 6.2, 7.41, 8.64, 9.89, 11.16}},
};

static size_t sbit__aciq_state_bytes(const sbit_observer_call *call)
{
    return sizeof(sbit__aciq) + (size_t)call->grid->parts.count * sizeof(sbit__aciq_part);
}

static bool sbit__aciq_laplace(const sbit_observer_call *call)
{
    return sbit__streq(sbit_options_string(call->options, "OBSERVER.ACIQ.DISTRIBUTION"), "LAPLACE");
}

static sbit_status sbit__aciq_init(void *state, const sbit_observer_call *call, sbit_error *error)
{
    (void)state; /* zeroed memory is right */
    if (call->grid->bits < 2 || call->grid->bits > 8) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "OBSERVER.TYPE",
                          "tensor '%s': aciq has factors for 2 to 8 bits, not for %d", call->name,
                          (int)call->grid->bits);
    }
    return SBIT_OK;
}

static sbit__aciq_part *sbit__aciq_parts(void *state)
{
    return (sbit__aciq_part *)(void *)((sbit__aciq *)state + 1);
}

static sbit_status sbit__aciq_observe(void *state, const sbit_observer_call *call,
                                      const sbit_observation *x, sbit_error *error)
{
    sbit__aciq *head = (sbit__aciq *)state;
    sbit__aciq_part *all = sbit__aciq_parts(state);
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)call;
    (void)error;
    head->samples += head->pass == 0 ? x->samples : 0;
    while (sbit_runs_next(&runs)) {
        sbit__aciq_part *part = &all[runs.part];
        const double mean =
            part->moments.count > 0 ? part->moments.sum / (double)part->moments.count : 0.0;
        double sum = 0.0;
        if (head->pass == 0) {
            sbit__moments_add(&part->moments, x, &runs);
        }
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double v = (double)x->data[i];
            sum += head->pass == 0 ? v * v : fabs(v - mean);
        }
        *(head->pass == 0 ? &part->squares : &part->spread) += sum;
    }
    return SBIT_OK;
}

static sbit_status sbit__aciq_again(void *state, const sbit_observer_call *call, bool *wanted,
                                    sbit_error *error)
{
    sbit__aciq *head = (sbit__aciq *)state;
    (void)error;
    *wanted = head->pass == 0 && sbit__aciq_laplace(call);
    head->pass += head->pass < 2 ? 1 : 0;
    return SBIT_OK;
}

static sbit_status sbit__aciq_merge(void *state, const void *other, const sbit_observer_call *call,
                                    sbit_error *error)
{
    sbit__aciq *head = (sbit__aciq *)state;
    const sbit__aciq *from = (const sbit__aciq *)other;
    const sbit__aciq_part *theirs = (const sbit__aciq_part *)(const void *)(from + 1);
    const bool spreads = from->pass > 0 && sbit__aciq_laplace(call); /* about the means so far */
    bool same = from->pass == head->pass && (!spreads || from->pass == 1);
    for (int64_t p = 0; p < call->grid->parts.count && spreads; p++) {
        const sbit__moments *a = &sbit__aciq_parts(state)[p].moments, *b = &theirs[p].moments;
        same = same && memcmp(a, b, sizeof *a) == 0;
    }
    if (!same) {
        return sbit__fail(error, SBIT_ERR_STATE, call->name,
                          "tensor '%s': spreads about different means cannot be joined; calibrate "
                          "with all data",
                          call->name);
    }
    head->samples += spreads ? 0 : from->samples;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        sbit__aciq_part *part = &sbit__aciq_parts(state)[p];
        if (!spreads) {
            sbit__moments_join(&part->moments, &theirs[p].moments);
            part->squares += theirs[p].squares;
        }
        part->spread += theirs[p].spread;
    }
    return SBIT_OK;
}

/* The deviation of a part; n: values that the Gaussian estimate counts. */
static double sbit__aciq_deviation(const sbit__aciq_part *part, bool laplace, bool second, double n)
{
    const double count = (double)part->moments.count;
    const double c = 0.5 * 0.35 * (1.0 + sqrt(3.14159265358979323846 * log(4.0)));
    const double mean = part->moments.sum / count;
    if (laplace && second) {
        return part->spread / count;
    }
    if (laplace) {
        const double variance = part->squares / count - mean * mean;
        return variance > 0.0 ? sqrt(variance / 2.0) : 0.0;
    }
    const double width = (double)part->moments.max - (double)part->moments.min;
    return n > 1.0 ? width * c / sqrt(2.0 * log(n)) : width;
}

static sbit_status sbit__aciq_range(const void *state, const sbit_observer_call *call, float *min,
                                    float *max, sbit_error *error)
{
    const sbit__aciq *head = (const sbit__aciq *)state;
    const sbit__aciq_part *all = (const sbit__aciq_part *)(const void *)(head + 1);
    const int64_t parts = call->grid->parts.count;
    const bool laplace = sbit__aciq_laplace(call);
    bool half = !call->grid->symmetric;
    double n = 0.0;
    (void)error;
    for (int64_t p = 0; p < parts; p++) {
        n += (double)all[p].moments.count;
        half = half && all[p].moments.min >= 0.0f;
    }
    n = call->target == SBIT_TARGET_ACTIVATION ? n / (double)head->samples : n;
    for (int64_t p = 0; p < parts; p++) {
        const double factor = sbit__aciq_factors[laplace][half][call->grid->bits - 2];
        const double deviation =
            all[p].moments.count > 0
                ? sbit__aciq_deviation(&all[p], laplace, all[p].spread > 0.0 || head->pass == 2, n)
                : 0.0;
        max[p] = (float)(factor * deviation);
        min[p] = half ? 0.0f : -max[p];
    }
    return SBIT_OK;
}

static size_t sbit__aciq_save(const void *state, const sbit_observer_call *call, void *bytes,
                              size_t capacity)
{
    return sbit__observer_save_flat(state, sbit__aciq_state_bytes(call), bytes, capacity);
}

static sbit_status sbit__aciq_load(void *state, const sbit_observer_call *call, const void *bytes,
                                   size_t size, sbit_error *error)
{
    return sbit__observer_load_flat(state, call, sbit__aciq_state_bytes(call), bytes, size, error);
}

SBIT__FN const sbit_observer_row *sbit__observer_aciq(void)
{
    static const sbit_observer_row row = {
        {"aciq", "the best clipping of a Gaussian or Laplace distribution",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__aciq_keys,
         SBIT__COUNT_OF(sbit__aciq_keys)},
        sbit__aciq_state_bytes,
        sbit__aciq_init,
        sbit__aciq_observe,
        sbit__aciq_again,
        sbit__aciq_merge,
        sbit__aciq_range,
        sbit__aciq_save,
        sbit__aciq_load,
        NULL,
    };
    return &row;
}
