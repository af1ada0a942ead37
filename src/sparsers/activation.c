/* activation.c: sparsers that look at what layers compute. >>sparser-activation
 *
 *     apoz             part of the activations that are not zero (Hu et al. 2016)
 *     mean_activation  mean of the activations
 *     hrank            mean rank of a channel's feature maps (Lin et al. 2020)
 *     wanda            |w| * sqrt(sum of squares of the input feature), within each row (Sun et al.
 *                      2023); WANDA.SQUARED without the root, and with RANK layer, as torch.ao had it
 */
#include "sparsers_private.h"

#include <string.h> /* memset */

/* A sum for each channel, and how many numbers went into it. */
typedef struct sbit__channel_sums {
    double *sum; /* behind this struct */
    int64_t count;
} sbit__channel_sums;

static double *sbit__sums_of(const void *state)
{
    return (double *)(uintptr_t)((const char *)state + sizeof(sbit__channel_sums));
}

static size_t sbit__row_sums_bytes(const sbit_sparser_call *call)
{
    return sizeof(sbit__channel_sums) + (size_t)call->weight.dims[call->out_axis] * sizeof(double);
}

static size_t sbit__column_sums_bytes(const sbit_sparser_call *call)
{
    const int32_t axis = call->in_axis >= 0 ? call->in_axis : call->out_axis;
    return sizeof(sbit__channel_sums) + (size_t)call->weight.dims[axis] * sizeof(double);
}

/* Calls add(x, channel) for every number of the samples. */
typedef void (*sbit__sum_fn)(double *sum, float x);

static int64_t sbit__sum_channels(const sbit_sparser_sample *sample, double *sum, int64_t channels,
                                  sbit__sum_fn add)
{
    const sbit_tensor *t = &sample->tensor;
    const int64_t n = t->dims[sample->axis];
    int64_t inner = 1, count = sbit_tensor_count(t);
    for (int32_t i = sample->axis + 1; i < t->rank; i++) {
        inner *= t->dims[i];
    }
    if (sample->samples >= 0 && t->dims[0] > 0 && sample->axis > 0) {
        count = count / t->dims[0] * sample->samples;
    }
    for (int64_t p = 0; p < count; p++) {
        const int64_t c = p / inner % n;
        if (c < channels) {
            add(&sum[c], ((const float *)t->data)[p]);
        }
    }
    return n > 0 ? count / n : 0;
}

static void sbit__sum_active(double *sum, float x)
{
    *sum += x != 0.0f ? 1.0 : 0.0;
}

static void sbit__sum_plain(double *sum, float x)
{
    *sum += (double)x;
}

static void sbit__sum_square(double *sum, float x)
{
    *sum += (double)x * (double)x;
}

static sbit_status sbit__sum_observe(void *state, const sbit_sparser_call *call,
                                     const sbit_sparser_sample *sample, int32_t axis,
                                     sbit__sum_fn add)
{
    sbit__channel_sums *sums = (sbit__channel_sums *)state;
    sums->count += sbit__sum_channels(sample, sbit__sums_of(state), call->weight.dims[axis], add);
    return SBIT_OK;
}

/* >>apoz, mean_activation: of what the model computes behind the layer, or, as NNI does it, of a
 * function of the layer's own output. */

static float sbit__relu(float x)
{
    return x > 0.0f ? x : 0.0f;
}

static float sbit__activate(const char *function, float x)
{
    if (sbit__streq(function, "relu6")) {
        return x > 6.0f ? 6.0f : sbit__relu(x);
    }
    return sbit__streq(function, "gelu")
               ? (float)(0.5 * (double)x * (1.0 + erf((double)x / sqrt(2.0))))
               : sbit__relu(x);
}

static sbit_status sbit__activated_observe(void *state, const sbit_sparser_call *call,
                                           const sbit_sparser_sample *sample, sbit__sum_fn add,
                                           sbit_error *error)
{
    const char *function = sbit_options_string(call->options, "ACTIVATION");
    const bool own = !sbit__streq(function, "model");
    sbit_sparser_sample changed = *sample;
    if ((sample->what == SBIT_NEEDS_OUTPUT) != own) {
        return SBIT_OK;
    }
    if (!own) {
        return sbit__sum_observe(state, call, sample, call->out_axis, add);
    }
    SBIT__TRY(sbit__tensor_copy(call->ctx, &sample->tensor, &changed.tensor, error));
    float *x = (float *)changed.tensor.data;
    for (int64_t i = 0; i < sbit_tensor_count(&changed.tensor); i++) {
        x[i] = sbit__activate(function, x[i]);
    }
    const sbit_status status = sbit__sum_observe(state, call, &changed, call->out_axis, add);
    sbit_tensor_free(call->ctx, &changed.tensor);
    return status;
}

static const sbit_key sbit__activation_keys[] = {
    {"ACTIVATION", SBIT_KEY_CHOICE, "model", 0, 0, "model|relu|relu6|gelu",
     "of apoz and mean_activation: what the model has behind the layer, or of its output"},
};

static sbit_status sbit__apoz_observe(void *state, const sbit_sparser_call *call,
                                      const sbit_sparser_sample *sample, sbit_error *error)
{
    return sbit__activated_observe(state, call, sample, sbit__sum_active, error);
}

static sbit_status sbit__mean_activation_observe(void *state, const sbit_sparser_call *call,
                                                 const sbit_sparser_sample *sample,
                                                 sbit_error *error)
{
    return sbit__activated_observe(state, call, sample, sbit__sum_plain, error);
}

static sbit_status sbit__sums_score(const void *state, const sbit_sparser_call *call, double *score,
                                    sbit_error *error)
{
    const sbit__channel_sums *sums = (const sbit__channel_sums *)state;
    (void)error;
    for (int64_t i = 0; i < call->units->count; i++) {
        score[i] = sums->count > 0 ? sbit__sums_of(state)[i] / (double)sums->count : 0.0;
    }
    return SBIT_OK;
}

/* >>hrank: Gaussian elimination with pivots; what is below 1e-5 of the largest counts as zero. */

static int64_t sbit__hrank_of(double *m, int64_t rows, int64_t columns)
{
    double largest = 0.0;
    int64_t rank = 0;
    for (int64_t i = 0; i < rows * columns; i++) {
        largest = fabs(m[i]) > largest ? fabs(m[i]) : largest;
    }
    for (int64_t c = 0; c < columns && rank < rows; c++) {
        int64_t pivot = rank;
        for (int64_t r = rank + 1; r < rows; r++) {
            pivot = fabs(m[r * columns + c]) > fabs(m[pivot * columns + c]) ? r : pivot;
        }
        if (!(fabs(m[pivot * columns + c]) > 1e-5 * largest)) {
            continue;
        }
        for (int64_t k = 0; k < columns; k++) {
            const double t = m[pivot * columns + k];
            m[pivot * columns + k] = m[rank * columns + k];
            m[rank * columns + k] = t;
        }
        for (int64_t r = rank + 1; r < rows; r++) {
            const double f = m[r * columns + c] / m[rank * columns + c];
            for (int64_t k = c; k < columns; k++) {
                m[r * columns + k] -= f * m[rank * columns + k];
            }
        }
        rank++;
    }
    return rank;
}

static sbit_status sbit__hrank_observe(void *state, const sbit_sparser_call *call,
                                       const sbit_sparser_sample *sample, sbit_error *error)
{
    const sbit_tensor *t = &sample->tensor;
    const sbit_allocator *a = sbit_ctx_allocator(call->ctx);
    if (t->rank != 4 || sample->axis != 1) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, call->name,
                          "hrank looks at feature maps [N, C, H, W]; '%s' gives none", call->name);
    }
    const int64_t size = t->dims[2] * t->dims[3], channels = call->weight.dims[call->out_axis];
    double *map = (double *)sbit__alloc(a, (size_t)size * sizeof *map);
    if (map == NULL) {
        return sbit__fail_oom(error, (size_t)size * sizeof *map);
    }
    for (int64_t n = 0; n < t->dims[0] && n < sample->samples; n++) {
        for (int64_t c = 0; c < t->dims[1] && c < channels; c++) {
            const float *from = (const float *)t->data + (n * t->dims[1] + c) * size;
            for (int64_t i = 0; i < size; i++) {
                map[i] = (double)from[i];
            }
            sbit__sums_of(state)[c] += (double)sbit__hrank_of(map, t->dims[2], t->dims[3]);
        }
        ((sbit__channel_sums *)state)->count++;
    }
    sbit__free(a, map, (size_t)size * sizeof *map);
    return SBIT_OK;
}

/* >>wanda */

static sbit_status sbit__wanda_observe(void *state, const sbit_sparser_call *call,
                                       const sbit_sparser_sample *sample, sbit_error *error)
{
    const int32_t axis = call->in_axis >= 0 ? call->in_axis : call->out_axis;
    (void)error;
    return sbit__sum_observe(state, call, sample, axis, sbit__sum_square);
}

static sbit_status sbit__wanda_score(const void *state, const sbit_sparser_call *call,
                                     double *score, sbit_error *error)
{
    const int32_t axis = call->in_axis >= 0 ? call->in_axis : call->out_axis;
    const bool squared = sbit_options_bool(call->options, "WANDA.SQUARED");
    const double *norm = sbit__sums_of(state);
    const float *w = (const float *)call->weight.data;
    sbit_runs runs = sbit_runs_of(call->units);
    int64_t inner = 1;
    (void)error;
    for (int32_t i = axis + 1; i < call->weight.rank; i++) {
        inner *= call->weight.dims[i];
    }
    memset(score, 0, (size_t)call->units->count * sizeof *score);
    while (sbit_runs_next(&runs)) {
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double x = norm[i / inner % call->weight.dims[axis]];
            score[runs.part] += fabs((double)w[i]) * (squared ? x : sqrt(x));
        }
    }
    return SBIT_OK;
}

static const sbit_key sbit__wanda_keys[] = {
    {"WANDA.SQUARED", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "without the square root: with RANK layer as torch.ao.pruning had it"},
};

/* >>rows */

#define SBIT__ACTIVATION_ROW(name, doc, keys, key_count, needs, granularities, traits, bytes,      \
                             observe, score)                                                       \
    SBIT__FN const sbit_sparser_row *sbit__sparser_##name(void)                                    \
    {                                                                                              \
        static const sbit_sparser_row row = {{#name, doc, 0, keys, key_count},                     \
                                             needs,                                                \
                                             granularities,                                        \
                                             traits,                                               \
                                             bytes,                                                \
                                             observe,                                              \
                                             score,                                                \
                                             NULL,                                                 \
                                             NULL};                                                \
        return &row;                                                                               \
    }
SBIT__ACTIVATION_ROW(apoz, "part of the activations that are not zero", sbit__activation_keys, 1,
                     SBIT_NEEDS_OUTPUT | SBIT_NEEDS_ACTIVATED, SBIT_GRANULARITY_ROW, 0,
                     sbit__row_sums_bytes, sbit__apoz_observe, sbit__sums_score)
SBIT__ACTIVATION_ROW(mean_activation, "mean of the activations", NULL, 0,
                     SBIT_NEEDS_OUTPUT | SBIT_NEEDS_ACTIVATED, SBIT_GRANULARITY_ROW, 0,
                     sbit__row_sums_bytes, sbit__mean_activation_observe, sbit__sums_score)
SBIT__ACTIVATION_ROW(hrank, "mean rank of the feature maps", NULL, 0, SBIT_NEEDS_ACTIVATED,
                     SBIT_GRANULARITY_ROW, 0, sbit__row_sums_bytes, sbit__hrank_observe,
                     sbit__sums_score)
SBIT__ACTIVATION_ROW(wanda, "|w| times the norm of what it is multiplied with", sbit__wanda_keys, 1,
                     SBIT_NEEDS_INPUT, SBIT_GRANULARITY_ELEMENT | SBIT_GRANULARITY_ROW,
                     SBIT_SPARSER_BY_ROW, sbit__column_sums_bytes, sbit__wanda_observe,
                     sbit__wanda_score)
#undef SBIT__ACTIVATION_ROW
