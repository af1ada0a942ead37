/* gradient.c: sparsers that look at the gradient of the loss. >>sparser-gradient
 *
 * With w a weight and g its gradient, sums over the batches that are seen:
 *     taylor    sum (w g)^2 over the elements: what the loss changes without them, to first order
 *               (Molchanov et al. 2019; NNI's TaylorFO)
 *     fisher    (sum of w g over the unit)^2: of the unit as a whole (Theis et al. 2018; exact with
 *               one sample a batch)
 *     movement  - w g: what grows away from zero stays (Sanh et al. 2020, hard)
 *     soft_movement  sigmoid(S) with S -= RATE (w g + progress LAMBDA sigmoid'(S)), from 0 on: what is
 *               below THRESHOLD goes; LAMBDA pulls all of them down (the same, soft)
 * Those of movement add up over the steps of sbit_sparse_step; SCHEDULE then also says how much of
 * THRESHOLD and LAMBDA holds.
 */
#include "sparsers_private.h"

#include <string.h> /* memset */

static size_t sbit__slope_bytes(const sbit_sparser_call *call)
{
    return 2 * (size_t)call->units->count * sizeof(double) + 16; /* sums; of the batch */
}

typedef double (*sbit__slope_term)(double wg);

static double sbit__slope_square(double wg)
{
    return wg * wg;
}

static double sbit__slope_plain(double wg)
{
    return wg;
}

static double sbit__slope_minus(double wg)
{
    return -wg;
}

/* to[unit] += term(w g) of all its elements. */
static void sbit__slope_sum(const sbit_sparser_call *call, const sbit_sparser_sample *sample,
                            sbit__slope_term term, double *to)
{
    const float *w = (const float *)call->weight.data, *g = (const float *)sample->tensor.data;
    sbit_runs runs = sbit_runs_of(call->units);
    while (sbit_runs_next(&runs)) {
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            to[runs.part] += term((double)w[i] * (double)g[i]);
        }
    }
}

static sbit_status sbit__taylor_observe(void *state, const sbit_sparser_call *call,
                                        const sbit_sparser_sample *sample, sbit_error *error)
{
    (void)error;
    sbit__slope_sum(call, sample, sbit__slope_square, (double *)state);
    return SBIT_OK;
}

static sbit_status sbit__movement_observe(void *state, const sbit_sparser_call *call,
                                          const sbit_sparser_sample *sample, sbit_error *error)
{
    (void)error;
    sbit__slope_sum(call, sample, sbit__slope_minus, (double *)state);
    return SBIT_OK;
}

static double sbit__slope_sigmoid(double s)
{
    return 1.0 / (1.0 + exp(-s));
}

static sbit_status sbit__soft_movement_observe(void *state, const sbit_sparser_call *call,
                                               const sbit_sparser_sample *sample, sbit_error *error)
{
    double *sum = (double *)state, *batch = sum + call->units->count;
    const double rate = sbit_options_float(call->options, "SOFT_MOVEMENT.RATE");
    const double pull = call->progress * sbit_options_float(call->options, "SOFT_MOVEMENT.LAMBDA");
    (void)error;
    memset(batch, 0, (size_t)call->units->count * sizeof *batch);
    sbit__slope_sum(call, sample, sbit__slope_plain, batch);
    for (int64_t i = 0; i < call->units->count; i++) {
        const double s = sbit__slope_sigmoid(sum[i]);
        sum[i] -= rate * (batch[i] + pull * s * (1.0 - s));
    }
    return SBIT_OK;
}

static sbit_status sbit__soft_movement_score(const void *state, const sbit_sparser_call *call,
                                             double *score, sbit_error *error)
{
    (void)error;
    for (int64_t i = 0; i < call->units->count; i++) {
        score[i] = sbit__slope_sigmoid(((const double *)state)[i]);
    }
    return SBIT_OK;
}

static const sbit_key sbit__soft_movement_keys[] = {
    {"SOFT_MOVEMENT.RATE", SBIT_KEY_FLOAT, "1.0", 0.0, 1e9, NULL,
     "STRATEGY soft_movement: how far a batch moves the scores, which begin at 0"},
    {"SOFT_MOVEMENT.LAMBDA", SBIT_KEY_FLOAT, "0.01", 0.0, 1e9, NULL,
     "STRATEGY soft_movement: weight of the sum of sigmoid(score) in the loss"},
};

static sbit_status sbit__fisher_observe(void *state, const sbit_sparser_call *call,
                                        const sbit_sparser_sample *sample, sbit_error *error)
{
    double *sum = (double *)state, *batch = sum + call->units->count;
    (void)error;
    memset(batch, 0, (size_t)call->units->count * sizeof *batch);
    sbit__slope_sum(call, sample, sbit__slope_plain, batch);
    for (int64_t i = 0; i < call->units->count; i++) {
        sum[i] += batch[i] * batch[i];
    }
    return SBIT_OK;
}

static sbit_status sbit__slope_score(const void *state, const sbit_sparser_call *call,
                                     double *score, sbit_error *error)
{
    (void)error;
    memcpy(score, state, (size_t)call->units->count * sizeof *score);
    return SBIT_OK;
}

#define SBIT__SLOPE_ROW(name, doc, keys, key_count, traits, observe, score)                        \
    SBIT__FN const sbit_sparser_row *sbit__sparser_##name(void)                                    \
    {                                                                                              \
        static const sbit_sparser_row row = {{#name, doc, 0, keys, key_count},                     \
                                             SBIT_NEEDS_GRADIENT,                                  \
                                             SBIT_GRANULARITY_ELEMENT | SBIT_GRANULARITY_ROW,      \
                                             traits,                                               \
                                             sbit__slope_bytes,                                    \
                                             observe,                                              \
                                             score,                                                \
                                             NULL,                                                 \
                                             NULL};                                                \
        return &row;                                                                               \
    }
SBIT__SLOPE_ROW(taylor, "what the loss changes without it, to first order", NULL, 0, 0,
                sbit__taylor_observe, sbit__slope_score)
SBIT__SLOPE_ROW(fisher, "square of what the loss changes without the whole unit", NULL, 0, 0,
                sbit__fisher_observe, sbit__slope_score)
SBIT__SLOPE_ROW(movement, "weights that the loss drives towards zero go", NULL, 0, SBIT_SPARSER_REMEMBERS,
                sbit__movement_observe, sbit__slope_score)
SBIT__SLOPE_ROW(soft_movement, "the same by THRESHOLD, on scores that are pulled down",
                sbit__soft_movement_keys, SBIT__COUNT_OF(sbit__soft_movement_keys), SBIT_SPARSER_REMEMBERS,
                sbit__soft_movement_observe, sbit__soft_movement_score)
#undef SBIT__SLOPE_ROW
