/* gradient.c: sparsers that look at the gradient of the loss. >>sparser-gradient
 *
 * With w a weight and g its gradient, sums over the batches that are seen:
 *     taylor    sum (w g)^2 over the elements: what the loss changes without them, to first order
 *               (Molchanov et al. 2019; NNI's TaylorFO)
 *     fisher    (sum of w g over the unit)^2: of the unit as a whole (Theis et al. 2018; exact with
 *               one sample a batch)
 *     movement  - w g: what grows away from zero stays (Sanh et al. 2020, hard)
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

#define SBIT__SLOPE_ROW(name, doc, observe)                                                        \
    SBIT__FN const sbit_sparser_row *sbit__sparser_##name(void)                                    \
    {                                                                                              \
        static const sbit_sparser_row row = {{#name, doc, 0, NULL, 0},                             \
                                             SBIT_NEEDS_GRADIENT,                                  \
                                             SBIT_GRANULARITY_ELEMENT | SBIT_GRANULARITY_ROW,      \
                                             0,                                                    \
                                             sbit__slope_bytes,                                    \
                                             observe,                                              \
                                             sbit__slope_score,                                    \
                                             NULL,                                                 \
                                             NULL};                                                \
        return &row;                                                                               \
    }
SBIT__SLOPE_ROW(taylor, "what the loss changes without it, to first order", sbit__taylor_observe)
SBIT__SLOPE_ROW(fisher, "square of what the loss changes without the whole unit",
                sbit__fisher_observe)
SBIT__SLOPE_ROW(movement, "weights that the loss drives towards zero go", sbit__movement_observe)
#undef SBIT__SLOPE_ROW
