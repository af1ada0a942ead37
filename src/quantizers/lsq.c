/* lsq.c: learned step sizes: lsq, lsq+. >>quantizer-lsq
 *
 * LSQ (Esser et al. 2020), as Sparsebit has it (algorithms: section 1.8): the scale is a parameter,
 * first 2 * mean|x| / sqrt(Q), Q the number of steps above zero, or (FROM_OBSERVER) what the range
 * of OBSERVER.TYPE gives; forward uses its absolute value.
 * Affine grids: zero is the middle where the data have negatives, else the lowest integer.
 * LSQ+ (Bhalgat et al. 2020): activations have affine grids, scale and zero point start from
 * OBSERVER.TYPE and both are parameters (forward rounds the zero point); weights have symmetric
 * grids and begin with the wider of mean +- 3 deviations.
 * Gradients of both are straight-through, times 1 / sqrt(elements of a part * Q); for LSQ+ on
 * affine grids Q is the number of all steps. An all-zero part keeps the scale it came with.
 *
 * State: float scale[parts], gradient[parts], zero_point[parts], gradient[parts]; the double sums
 * of one call to backward behind them.
 */
#include "quantizers_private.h"

typedef struct sbit__lsq {
    float *scale, *scale_gradient, *zero, *zero_gradient;
    double *sums;  /* [2 * parts] */
    double *steps; /* [1] Q */
    float *used_scale;
    int32_t *used_zero; /* [parts] each: what forward rounds with */
} sbit__lsq;

static size_t sbit__lsq_state_bytes(const sbit_quantizer_call *call)
{
    return sizeof(double) +
           (size_t)call->grid->parts.count * (2 * sizeof(double) + 6 * sizeof(float));
}

static sbit__lsq sbit__lsq_of(void *state, const sbit_quantizer_call *call)
{
    const int64_t parts = call->grid->parts.count;
    sbit__lsq s;
    s.sums = (double *)state;
    s.steps = s.sums + 2 * parts;
    s.scale = (float *)(void *)(s.steps + 1);
    s.scale_gradient = s.scale + parts;
    s.zero = s.scale_gradient + parts;
    s.zero_gradient = s.zero + parts;
    s.used_scale = s.zero_gradient + parts;
    s.used_zero = (int32_t *)(void *)(s.used_scale + parts);
    return s;
}

/* The integer in the middle of a grid that has no sign of its own. */
static int32_t sbit__lsq_middle(const sbit_grid *grid)
{
    return (int32_t)(((int64_t)grid->qmin + grid->qmax + 1) / 2);
}

/* Scale and zero point as forward and the exported pair use them. */
static void sbit__lsq_refresh(const sbit__lsq *s, const sbit_quantizer_call *call)
{
    const sbit_grid *grid = call->grid;
    for (int64_t p = 0; p < grid->parts.count; p++) {
        const float scale = s->scale[p] < 0.0f ? -s->scale[p] : s->scale[p];
        const float zero = nearbyintf(s->zero[p]);
        s->used_scale[p] = scale > FLT_MIN ? scale : FLT_MIN;
        s->used_zero[p] = zero < (float)grid->qmin   ? grid->qmin
                          : zero > (float)grid->qmax ? grid->qmax
                                                     : (int32_t)zero;
    }
}

static void sbit__lsq_publish(const sbit__lsq *s, const sbit_quantizer_call *call)
{
    const size_t parts = (size_t)call->grid->parts.count;
    sbit__lsq_refresh(s, call);
    memcpy(call->scale, s->used_scale, parts * sizeof *call->scale);
    memcpy(call->zero_point, s->used_zero, parts * sizeof *call->zero_point);
}

static const sbit_key sbit__lsq_keys[] = {
    {"LSQ.FROM_OBSERVER", SBIT_KEY_BOOL, "false", 0.0, 0.0, NULL,
     "the first scale is that of OBSERVER.TYPE's range"},
};

static const sbit_observer_row *sbit__lsq_statistics(uint32_t target, const sbit_options *options)
{
    (void)target;
    return sbit_options_bool(options, "QUANTIZER.LSQ.FROM_OBSERVER") ? NULL
                                                                     : sbit__observer_moments();
}

/* The first scale of a part: that of the observer, which covers its range from `zero` on, too. */
static float sbit__lsq_observed(const sbit_quantizer_call *call, int64_t p, int32_t zero)
{
    const sbit_grid *grid = call->grid;
    const double scale = (double)call->scale[p], at = (double)call->zero_point[p];
    const double low = zero > grid->qmin
                           ? (at - (double)grid->qmin) / ((double)zero - (double)grid->qmin)
                           : 0.0;
    const double high = ((double)grid->qmax - at) / ((double)grid->qmax - (double)zero);
    return (float)(scale * (low > high ? low : high));
}

static sbit_status sbit__lsq_init(void *state, const sbit_quantizer_call *call,
                                  const sbit_observation *x, sbit_error *error)
{
    const sbit__moments *moments = (const sbit__moments *)call->statistics;
    const sbit_grid *grid = call->grid;
    const sbit__lsq s = sbit__lsq_of(state, call);
    bool negative = false;
    (void)x;
    (void)error;
    for (int64_t p = 0; p < grid->parts.count; p++) {
        negative = negative || (moments != NULL ? moments[p].min < 0.0f
                                                : call->zero_point[p] > grid->qmin);
    }
    for (int64_t p = 0; p < grid->parts.count; p++) {
        const bool seen = moments != NULL && moments[p].count > 0 && moments[p].sum_abs > 0.0;
        int32_t zero = grid->symmetric ? call->zero_point[p] : grid->qmin;
        zero = !grid->symmetric && negative ? sbit__lsq_middle(grid) : zero;
        s.zero[p] = (float)zero;
        *s.steps = (double)(grid->qmax - zero); /* the same for all */
        s.scale[p] = seen ? (float)(2.0 * moments[p].sum_abs / (double)moments[p].count /
                                    sqrt(*s.steps))
                          : sbit__lsq_observed(call, p, zero);
    }
    sbit__lsq_publish(&s, call);
    return SBIT_OK;
}

/* Mean and deviation (n - 1) of each part of a weight, into sums[2 * parts]. */
static void sbit__lsq_plus_measure(const sbit_observation *x, double *sums)
{
    const int64_t parts = x->parts.count;
    const double n = (double)(sbit_parts_elements(&x->parts) / parts);
    memset(sums, 0, (size_t)(2 * parts) * sizeof *sums);
    for (int pass = 0; pass < 2; pass++) {
        sbit_runs runs = sbit_runs_of(&x->parts);
        while (sbit_runs_next(&runs)) {
            const double mean = sums[runs.part];
            double sum = 0.0;
            for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
                const double v = (double)x->data[i];
                sum += pass == 0 ? v : (v - mean) * (v - mean);
            }
            sums[pass * parts + runs.part] += sum;
        }
        for (int64_t p = 0; p < parts; p++) {
            double *value = &sums[pass * parts + p];
            *value = pass == 0 ? *value / n : n > 1.0 ? sqrt(*value / (n - 1.0)) : 0.0;
        }
    }
}

static sbit_status sbit__lsq_plus_init(void *state, const sbit_quantizer_call *call,
                                       const sbit_observation *x, sbit_error *error)
{
    const sbit_grid *grid = call->grid;
    const int64_t parts = grid->parts.count;
    const sbit__lsq s = sbit__lsq_of(state, call);
    const bool weight = call->target == SBIT_TARGET_WEIGHT;
    if (grid->symmetric != weight || (!weight && parts != 1)) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "QUANTIZER.TYPE",
                          "tensor '%s': lsq+ needs a symmetric QSCHEME for weights and "
                          "per-tensor-affine for activations",
                          call->name);
    }
    *s.steps = weight ? (double)grid->qmax : (double)grid->qmax - (double)grid->qmin;
    if (weight) {
        sbit__lsq_plus_measure(x, s.sums);
    }
    for (int64_t p = 0; p < parts; p++) {
        s.scale[p] = call->scale[p];
        s.zero[p] = (float)call->zero_point[p];
        if (weight) {
            const double mean = fabs(s.sums[p]), width = mean + 3.0 * s.sums[parts + p];
            s.scale[p] = width > 0.0
                             ? (float)(2.0 * width / ((double)grid->qmax - (double)grid->qmin))
                             : s.scale[p];
        }
    }
    sbit__lsq_publish(&s, call);
    return SBIT_OK;
}

static sbit_status sbit__lsq_forward(void *state, const sbit_quantizer_call *call,
                                     const sbit_observation *x, float *y, sbit_error *error)
{
    const sbit__lsq s = sbit__lsq_of(state, call);
    (void)error;
    sbit__lsq_refresh(&s, call);
    sbit__straight_forward(call, x, s.used_scale, s.used_zero, y);
    return SBIT_OK;
}

static sbit_status sbit__lsq_backward(void *state, const sbit_quantizer_call *call,
                                      const sbit_observation *x, const float *dy, float *dx,
                                      sbit_error *error)
{
    const sbit__lsq s = sbit__lsq_of(state, call);
    const int64_t parts = call->grid->parts.count;
    const double each = (double)sbit_parts_elements(&x->parts) / (double)parts;
    (void)error;
    memset(s.sums, 0, (size_t)(2 * parts) * sizeof *s.sums);
    sbit__lsq_refresh(&s, call);
    sbit__straight_backward(call, x, s.used_scale, s.used_zero, dy, dx, s.sums, s.sums + parts);
    const double factor = 1.0 / sqrt(each * *s.steps);
    for (int64_t p = 0; p < parts; p++) {
        s.scale_gradient[p] +=
            (float)(s.scale[p] < 0.0f ? -s.sums[p] * factor : s.sums[p] * factor);
        s.zero_gradient[p] += (float)(s.sums[parts + p] * factor);
    }
    return SBIT_OK;
}

static bool sbit__lsq_parameter(void *state, const sbit_quantizer_call *call, size_t index,
                                sbit_parameter *out)
{
    const sbit__lsq s = sbit__lsq_of(state, call);
    if (index > 0) {
        return false;
    }
    out->name = "scale";
    out->data = s.scale;
    out->gradient = s.scale_gradient;
    out->count = call->grid->parts.count;
    out->decay = false;
    return true;
}

static bool sbit__lsq_plus_parameter(void *state, const sbit_quantizer_call *call, size_t index,
                                     sbit_parameter *out)
{
    const sbit__lsq s = sbit__lsq_of(state, call);
    if (index == 1 && !call->grid->symmetric) {
        out->name = "zero_point";
        out->data = s.zero;
        out->gradient = s.zero_gradient;
        out->count = call->grid->parts.count;
        out->decay = false;
        return true;
    }
    return sbit__lsq_parameter(state, call, index, out);
}

static sbit_status sbit__lsq_finish(void *state, const sbit_quantizer_call *call,
                                    const sbit_observation *x, float *effective, sbit_error *error)
{
    const sbit__lsq s = sbit__lsq_of(state, call);
    (void)x;
    (void)effective; /* the weight as it is */
    (void)error;
    sbit__lsq_publish(&s, call);
    return SBIT_OK;
}

/* Steps of half the size, twice as many. */
static void sbit__lsq_regrid(void *state, const sbit_quantizer_call *call, const sbit_grid *before)
{
    const sbit_grid *grid = call->grid;
    const sbit__lsq s = sbit__lsq_of(state, call);
    const double ratio = ldexp(1.0, grid->bits - before->bits);
    for (int64_t p = 0; p < grid->parts.count; p++) {
        s.scale[p] = (float)((double)s.scale[p] / ratio);
        s.zero[p] = grid->symmetric ? s.zero[p]
                                    : (float)(((double)s.zero[p] - (double)before->qmin) * ratio +
                                              (double)grid->qmin);
    }
    *s.steps *= ratio; /* 7 becomes 112, not 127: so that there is a way back */
}

SBIT__FN const sbit_quantizer_row *sbit__quantizer_lsq(void)
{
    static const sbit_quantizer_row row = {
        {"lsq", "learned step size", SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__lsq_keys,
         SBIT__COUNT_OF(sbit__lsq_keys)},
        sbit__lsq_state_bytes,
        NULL,
        NULL,
        sbit__lsq_statistics,
        sbit__lsq_init,
        sbit__lsq_forward,
        sbit__lsq_backward,
        sbit__lsq_parameter,
        sbit__lsq_finish,
        NULL,
        sbit__lsq_regrid,
    };
    return &row;
}

SBIT__FN const sbit_quantizer_row *sbit__quantizer_lsq_plus(void)
{
    static const sbit_quantizer_row row = {
        {"lsq+", "learned step size and zero point", SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION,
         NULL, 0},
        sbit__lsq_state_bytes,
        NULL,
        NULL,
        NULL,
        sbit__lsq_plus_init,
        sbit__lsq_forward,
        sbit__lsq_backward,
        sbit__lsq_plus_parameter,
        sbit__lsq_finish,
        NULL,
        sbit__lsq_regrid,
    };
    return &row;
}
