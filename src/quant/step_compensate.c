/* step_compensate.c: gains and biases in closed form make up for what quantization did to each
 * layer's output, and weights fitted for it. >>step-compensate
 *
 * After Fu et al. 2024 (QwT: least squares, no gradients), in the form that folds away. A layer is
 * the smallest block, and its linear map its own weights: layer by layer, weights that no other step
 * has rounded first become the nearest to the least squares solution for the inputs that the
 * quantized model gives, as far as halves of the samples find it good for each other (>>step-gptq);
 * then y (float weights on float inputs) is fitted by a[c] y_q + b[c], where y_q is what the
 * quantized and compensated model so far gives. a goes into the weight's scale - the
 * integers stay - and b into the bias. Nothing is added to the graph unless OPERATOR asks for the
 * map of larger blocks, too (>>compensate-beside). All that is needed are the sums of x x^T
 * (>>layer), about the means: E[y y_q] = w M w_q, E[y_q^2] = w_q S w_q. A gain is left away where
 * scales are powers of two, fixed, or in blocks; one scale for the tensor takes one gain.
 */
#include "layer_private.h"

static const sbit_key sbit__compensate_keys[] = {
    {"COMPENSATE.OPERATOR", SBIT_KEY_CHOICE, "none", 0, 0, "none|int8|float",
     "a 1x1 Conv or MatMul beside each block of layers, with weights of that type"},
    {"COMPENSATE.GAIN", SBIT_KEY_BOOL, "true", 0, 0, NULL, "fit scales too"},
    {"COMPENSATE.BIAS", SBIT_KEY_BOOL, "true", 0, 0, NULL, "fit biases"},
    {"COMPENSATE.WEIGHTS", SBIT_KEY_BOOL, "true", 0, 0, NULL,
     "weights that no step has rounded are fitted too, and rounded to the nearest again"},
    {"COMPENSATE.POSITIONS", SBIT_KEY_INT, "64", 0.0, 1e9, NULL,
     "output positions of a sample that are looked at; 0: all"},
};

enum {
    SBIT__COMPENSATE_Y,      /* mean of y */
    SBIT__COMPENSATE_Q,      /* of y_q */
    SBIT__COMPENSATE_SHARED, /* covariance of both */
    SBIT__COMPENSATE_OWN,    /* variance of y_q */
    SBIT__COMPENSATE_MOMENTS
};

typedef struct sbit__compensate {
    sbit_quant *quant;
    const sbit__layer *layer;
    const sbit__gram *gram;
    const float *w;           /* as stored */
    float *wq;                /* likewise: as they come out of their integers */
    float *rows[2], *product; /* [rows][depth] of a group: w, wq; a product */
    double *moments;          /* [groups * rows][SBIT__COMPENSATE_MOMENTS] */
    float *shift;             /* [groups * rows] */
    void *scratch;
} sbit__compensate;

static double sbit__compensate_dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

static void sbit__compensate_group(sbit__compensate *t, int64_t g)
{
    const sbit__layer *l = t->layer;
    const int64_t depth = l->depth, square = depth * depth;
    const double n = t->gram->count;
    for (int64_t r = 0; r < l->rows; r++) {
        const int64_t row = g * l->rows + r;
        for (int64_t k = 0; k < depth; k++) {
            const int64_t at = row * l->row_step + k * l->depth_step;
            t->rows[0][r * depth + k] = t->w[at];
            t->rows[1][r * depth + k] = t->wq[at];
        }
        double *m = t->moments + row * SBIT__COMPENSATE_MOMENTS;
        m[SBIT__COMPENSATE_Y] =
            sbit__compensate_dot(t->rows[0] + r * depth, t->gram->mean_a + g * depth, depth) / n;
        m[SBIT__COMPENSATE_Q] =
            sbit__compensate_dot(t->rows[1] + r * depth, t->gram->mean_b + g * depth, depth) / n;
    }
    for (int which = 0; which < 2; which++) { /* w M, then w_q S */
        sbit__layer_product(t->quant->ctx, l, t->rows[which],
                            (which == 0 ? t->gram->mixed : t->gram->sums) + g * square, t->product,
                            t->scratch);
        for (int64_t r = 0; r < l->rows; r++) {
            double *m = t->moments + (g * l->rows + r) * SBIT__COMPENSATE_MOMENTS;
            m[which == 0 ? SBIT__COMPENSATE_SHARED : SBIT__COMPENSATE_OWN] =
                sbit__compensate_dot(t->product + r * depth, t->rows[1] + r * depth, depth) / n;
        }
    }
}

/* The gain of rows first .. first + count - 1 together, 1 where nothing varies. */
static double sbit__compensate_gain(const sbit__compensate *t, int64_t first, int64_t count)
{
    double shared = 0.0, own = 0.0, size = 0.0;
    for (int64_t r = first; r < first + count; r++) {
        const double *m = t->moments + r * SBIT__COMPENSATE_MOMENTS;
        shared += m[SBIT__COMPENSATE_SHARED];
        own += m[SBIT__COMPENSATE_OWN];
        size += m[SBIT__COMPENSATE_Q] * m[SBIT__COMPENSATE_Q];
    }
    const double gain = own > 1e-6 * size && own > 0.0 ? shared / own : 1.0;
    return gain < 0.5 ? 0.5 : gain > 2.0 ? 2.0 : gain;
}

/* The site's scales times the gains, and the same integers under them. */
static sbit_status sbit__compensate_apply(sbit__compensate *t, const sbit_unit *unit, bool gains,
                                          bool biases, sbit_error *error)
{
    const sbit__layer *l = t->layer;
    sbit__site *site = &t->quant->sites[unit->site];
    const int64_t all = l->groups * l->rows, parts = sbit__site_parts(site);
    for (int64_t part = 0; part < (parts == 1 ? 1 : all); part++) {
        const int64_t first = part, count = parts == 1 ? all : 1;
        const double fitted = gains ? sbit__compensate_gain(t, first, count) : 1.0;
        const float scale = (float)((double)site->scale[part] * fitted);
        const double gain = gains ? (double)scale / (double)site->scale[part] : 1.0;
        for (int64_t r = first; r < first + count; r++) {
            const double *m = t->moments + r * SBIT__COMPENSATE_MOMENTS;
            t->shift[r] = (float)(m[SBIT__COMPENSATE_Y] - gain * m[SBIT__COMPENSATE_Q]);
            for (int64_t k = 0; k < l->depth; k++) {
                float *w = &t->wq[r * l->row_step + k * l->depth_step];
                *w = (float)((double)*w * gain);
            }
        }
        site->scale[part] = gains ? scale : site->scale[part];
    }
    SBIT__TRY(sbit_quant_set_weight(t->quant, unit->site, t->wq, error));
    return biases ? sbit__site_set_shift(t->quant, site, t->shift, (size_t)all, error) : SBIT_OK;
}

static sbit_status sbit__compensate_layer(sbit__compensate *t, const sbit_unit *unit, bool gains,
                                          bool biases, sbit_error *error)
{
    sbit__site *site = &t->quant->sites[unit->site];
    sbit_tensor weight;
    SBIT__TRY(sbit__site_weight(t->quant, site, &weight, error));
    SBIT__TRY(sbit__site_dequantized(t->quant, site, t->wq, error));
    t->w = (const float *)weight.data;
    for (int64_t g = 0; g < t->layer->groups; g++) {
        sbit__compensate_group(t, g);
    }
    const int64_t parts = sbit__site_parts(site);
    gains = gains && site->change.scale == NULL && !site->settings.grid.power_of_two &&
            site->dtype == SBIT_F32 && site->block == 0 &&
            (parts == 1 || parts == t->layer->groups * t->layer->rows);
    return sbit__compensate_apply(t, unit, gains, biases, error);
}

static sbit_status sbit__compensate_unit(sbit__round_units *units, const sbit_unit *unit,
                                         const sbit__layer *layer, sbit__gram *gram,
                                         sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(units->quant->ctx);
    const size_t outputs = (size_t)(layer->groups * layer->rows);
    const size_t group = (size_t)(layer->rows * layer->depth), all = group * (size_t)layer->groups;
    const sbit__beside *beside = sbit__beside_of(units->quant, unit->node);
    sbit__compensate t;
    if (beside != NULL) {
        return sbit__beside_unit(units, unit, beside, layer, error);
    }
    if (gram->count + gram->other->count <= 0.0) {
        return SBIT_OK;
    }
    if (sbit_options_bool(units->options, "STEP.COMPENSATE.WEIGHTS") &&
        units->quant->sites[unit->site].rounded == NULL) {
        SBIT__TRY(sbit__gptq_refit(units, unit, layer, gram, error));
    } else {
        sbit__gram_merge(gram);
        sbit__gram_center(gram);
    }
    memset(&t, 0, sizeof t);
    const size_t scratch = sbit__layer_product_bytes(units->quant->ctx, layer);
    const size_t bytes = outputs * SBIT__COMPENSATE_MOMENTS * sizeof(double) +
                         (all + 3 * group + outputs) * sizeof(float) + scratch;
    t.moments = (double *)sbit__calloc(a, 1, bytes);
    if (t.moments == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    t.quant = units->quant;
    t.layer = layer;
    t.gram = gram;
    t.wq = (float *)(void *)(t.moments + outputs * SBIT__COMPENSATE_MOMENTS);
    t.rows[0] = t.wq + all;
    t.rows[1] = t.rows[0] + group;
    t.product = t.rows[1] + group;
    t.shift = t.product + group;
    t.scratch = (void *)(((uintptr_t)(t.shift + outputs) + 63u) & ~(uintptr_t)63u);
    const sbit_status status = sbit__compensate_layer(
        &t, unit, sbit_options_bool(units->options, "STEP.COMPENSATE.GAIN"),
        sbit_options_bool(units->options, "STEP.COMPENSATE.BIAS"), error);
    sbit__free(a, t.moments, bytes);
    return status;
}

static sbit_status sbit__compensate_run(void *state, const sbit_options *options,
                                        const sbit_feed *feed, sbit_error *error)
{
    return sbit__round_run(state, options, sbit__step_compensate(), "STEP.COMPENSATE.POSITIONS",
                           true, true, sbit__compensate_unit, feed, error);
}

SBIT__FN const sbit_step_row *sbit__step_compensate(void)
{
    static const sbit_step_row row = {
        {"compensate", "gains and biases in closed form make up for what quantization did",
         SBIT_TARGET_WEIGHT, sbit__compensate_keys, SBIT__COUNT_OF(sbit__compensate_keys)},
        SBIT_STAGE_AFTER,
        true,
        sbit__compensate_run,
    };
    return &row;
}
