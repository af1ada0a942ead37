/* norm.c: sparsers that look at the weight alone. >>sparser-norm
 *
 *     l1norm  sum |w|          l0norm  how many are not zero
 *     l2norm  sqrt(sum w^2)    random  a number drawn for each unit
 *     linfnorm  the largest |w| of a row
 *     level   |w| of elements  slim    |gamma| of the BatchNormalization behind the layer
 *     fpgm    sum over the other rows of the distance (L2, or L1) to them: what lies near the
 *             middle of all rows can be replaced by them (He et al. 2019)
 */
#include "sparsers_private.h"

#include <string.h> /* memset */

typedef double (*sbit__norm_term)(float w);

static double sbit__norm_term_l1(float w)
{
    return fabs((double)w);
}

static double sbit__norm_term_l2(float w)
{
    return (double)w * (double)w;
}

static double sbit__norm_term_l0(float w)
{
    return w != 0.0f ? 1.0 : 0.0;
}

static void sbit__norm_sum(const sbit_sparser_call *call, sbit__norm_term term, double *score)
{
    const float *w = (const float *)call->weight.data;
    sbit_runs runs = sbit_runs_of(call->units);
    memset(score, 0, (size_t)call->units->count * sizeof *score);
    while (sbit_runs_next(&runs)) {
        for (int64_t i = 0; i < runs.count; i++) {
            score[runs.part] += term(w[runs.at + i]);
        }
    }
}

static sbit_status sbit__l1norm_score(const void *state, const sbit_sparser_call *call,
                                      double *score, sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__norm_sum(call, sbit__norm_term_l1, score);
    return SBIT_OK;
}

static sbit_status sbit__l2norm_score(const void *state, const sbit_sparser_call *call,
                                      double *score, sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__norm_sum(call, sbit__norm_term_l2, score);
    const bool single = call->units->count == sbit_tensor_count(&call->weight);
    for (int64_t i = 0; !single && i < call->units->count;
         i++) { /* of elements blocks are summed */
        score[i] = sqrt(score[i]);
    }
    return SBIT_OK;
}

static sbit_status sbit__linfnorm_score(const void *state, const sbit_sparser_call *call,
                                        double *score, sbit_error *error)
{
    const float *w = (const float *)call->weight.data;
    sbit_runs runs = sbit_runs_of(call->units);
    (void)state;
    (void)error;
    memset(score, 0, (size_t)call->units->count * sizeof *score);
    while (sbit_runs_next(&runs)) {
        for (int64_t i = 0; i < runs.count; i++) {
            score[runs.part] = fmax(score[runs.part], fabs((double)w[runs.at + i]));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__l0norm_score(const void *state, const sbit_sparser_call *call,
                                      double *score, sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__norm_sum(call, sbit__norm_term_l0, score);
    return SBIT_OK;
}

static sbit_status sbit__random_score(const void *state, const sbit_sparser_call *call,
                                      double *score, sbit_error *error)
{
    sbit_rng rng = sbit_rng_seed((uint64_t)call->seed +
                                 (uint64_t)sbit_options_int(call->options, "RANDOM.SEED"));
    (void)state;
    (void)error;
    for (int64_t i = 0; i < call->units->count; i++) {
        score[i] = (double)sbit_rng_uniform(&rng);
    }
    return SBIT_OK;
}

/* Element k of row r of a weight whose rows lie along `axis`. */
static float sbit__fpgm_at(const sbit_tensor *weight, int32_t axis, int64_t r, int64_t k)
{
    int64_t inner = 1;
    for (int32_t i = axis + 1; i < weight->rank; i++) {
        inner *= weight->dims[i];
    }
    return ((const float *)weight->data)[(k / inner * weight->dims[axis] + r) * inner + k % inner];
}

static sbit_status sbit__fpgm_score(const void *state, const sbit_sparser_call *call, double *score,
                                    sbit_error *error)
{
    const int64_t rows = call->units->count;
    const int64_t length = rows > 0 ? sbit_tensor_count(&call->weight) / rows : 0;
    const bool l1 = sbit_options_int(call->options, "FPGM.P") == 1;
    (void)state;
    (void)error;
    memset(score, 0, (size_t)rows * sizeof *score);
    for (int64_t a = 0; a < rows; a++) {
        for (int64_t b = 0; b < a; b++) {
            double sum = 0.0;
            for (int64_t k = 0; k < length; k++) {
                const double d = (double)sbit__fpgm_at(&call->weight, call->out_axis, a, k) -
                                 (double)sbit__fpgm_at(&call->weight, call->out_axis, b, k);
                sum += l1 ? fabs(d) : d * d;
            }
            sum = l1 ? sum : sqrt(sum);
            score[a] += sum;
            score[b] += sum;
        }
    }
    return SBIT_OK;
}

/* Network slimming (Liu et al. 2017). A layer without BatchNormalization: its L1 norm. */
static sbit_status sbit__slim_score(const void *state, const sbit_sparser_call *call, double *score,
                                    sbit_error *error)
{
    if (call->gamma == NULL) {
        return sbit__l1norm_score(state, call, score, error);
    }
    for (int64_t i = 0; i < call->units->count; i++) {
        score[i] = fabs((double)call->gamma[i]);
    }
    return SBIT_OK;
}

static const sbit_key sbit__fpgm_keys[] = {
    {"FPGM.P", SBIT_KEY_INT, "2", 1, 2, NULL, "distance of two rows: 2 Euclid's, 1 of absolutes"},
};

static const sbit_key sbit__random_keys[] = {
    {"RANDOM.SEED", SBIT_KEY_INT, "0", 0, 4294967295.0, NULL, "another seed, other channels"},
};

#define SBIT__ANY_UNIT (SBIT_GRANULARITY_ELEMENT | SBIT_GRANULARITY_ROW)
#define SBIT__NORM_ROW(name, doc, keys, key_count, granularities, traits, fn)                      \
    SBIT__FN const sbit_sparser_row *sbit__sparser_##name(void)                                    \
    {                                                                                              \
        static const sbit_sparser_row row = {{#name, doc, 0, keys, key_count},                     \
                                             0,                                                    \
                                             granularities,                                        \
                                             traits,                                               \
                                             NULL,                                                 \
                                             NULL,                                                 \
                                             fn,                                                   \
                                             NULL,                                                 \
                                             NULL};                                                \
        return &row;                                                                               \
    }
SBIT__NORM_ROW(l1norm, "sum of absolute values", NULL, 0, SBIT__ANY_UNIT, SBIT_SPARSER_ONE_MORE,
               sbit__l1norm_score)
SBIT__NORM_ROW(level, "absolute value (NNI's level)", NULL, 0, SBIT_GRANULARITY_ELEMENT, 0,
               sbit__l1norm_score)
SBIT__NORM_ROW(l2norm, "root of the sum of squares", NULL, 0, SBIT__ANY_UNIT, 0, sbit__l2norm_score)
SBIT__NORM_ROW(l0norm, "number of values that are not zero", NULL, 0, SBIT_GRANULARITY_ROW, 0,
               sbit__l0norm_score)
SBIT__NORM_ROW(linfnorm, "the largest absolute value", NULL, 0, SBIT_GRANULARITY_ROW, 0,
               sbit__linfnorm_score)
SBIT__NORM_ROW(fpgm, "sum of distances to all other rows", sbit__fpgm_keys, 1, SBIT_GRANULARITY_ROW,
               0, sbit__fpgm_score)
SBIT__NORM_ROW(random, "a random order", sbit__random_keys, 1, SBIT__ANY_UNIT, 0,
               sbit__random_score)
SBIT__NORM_ROW(slim, "scale of the BatchNormalization behind the layer", NULL, 0,
               SBIT_GRANULARITY_ROW, 0, sbit__slim_score)
#undef SBIT__NORM_ROW
#undef SBIT__ANY_UNIT
