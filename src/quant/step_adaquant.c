/* step_adaquant.c: weights move freely so that their nearest integers give what the layer computes.
 * >>step-adaquant
 *
 * Hubara et al. 2020, layer by layer: over v, in steps of the grid, the loss
 *     |w x - s q x'|^2,  q = clamp(round(w / s + v)),
 * with the gradient passed straight through the rounding; Adam. Unlike AdaRound an integer may go
 * anywhere. All that is needed are the sums S of x' x'^T and M of x x'^T (>>layer): with w_q = s q
 * the loss of a row is w_q S w_q - 2 w M w_q, up to a constant. The roundings jump, so each row
 * keeps the best integers that it had, the nearest at first.
 */
#include "layer_private.h"

static const sbit_key sbit__adaquant_keys[] = {
    {"ADAQUANT.ITERATIONS", SBIT_KEY_INT, "300", 1.0, 1e6, NULL, "steps of Adam for each layer"},
    {"ADAQUANT.LEARNING_RATE", SBIT_KEY_FLOAT, "0.02", 0.0, 10.0, NULL,
     "its rate, in steps of the grid"},
    {"ADAQUANT.POSITIONS", SBIT_KEY_INT, "64", 0.0, 1e9, NULL,
     "output positions of a sample that are looked at; 0: all"},
};

/* One layer at work; matrices are [rows][depth] of one group. */
typedef struct sbit__adaquant {
    sbit_quant *quant;
    const sbit__site *site;
    const sbit__layer *layer;
    const sbit__gram *gram;
    int64_t iterations;
    float rate;
    const float *w;        /* as stored */
    float *start;          /* w / s */
    float *v, *m, *u;      /* moves, Adam's moments */
    float *q;              /* weights on the grid */
    float *target, *error; /* w M, w_q S */
    float *best, *out;     /* the best rows; as stored, all groups */
    double *least;         /* [rows]: their loss */
    void *scratch;
} sbit__adaquant;

/* Scale and zero point of a row of group g: of the tensor, or of its channel. */
static float sbit__adaquant_scale(const sbit__adaquant *t, int64_t g, int64_t r, float *zero)
{
    const int64_t part = sbit__site_parts(t->site) == 1 ? 0 : g * t->layer->rows + r;
    *zero = (float)t->site->zero_point[part];
    return t->site->scale[part];
}

static void sbit__adaquant_start(sbit__adaquant *t, int64_t g)
{
    const sbit__layer *l = t->layer;
    for (int64_t r = 0; r < l->rows; r++) {
        float zero;
        const float scale = sbit__adaquant_scale(t, g, r, &zero);
        t->least[r] = HUGE_VAL;
        for (int64_t k = 0; k < l->depth; k++) {
            const int64_t i = r * l->depth + k;
            t->q[i] =
                t->w[(g * l->rows + r) * l->row_step + k * l->depth_step]; /* for the target */
            t->start[i] = t->q[i] / scale;
            t->v[i] = t->m[i] = t->u[i] = 0.0f;
        }
    }
}

static void sbit__adaquant_round(sbit__adaquant *t, int64_t g)
{
    const sbit_grid *grid = &t->site->settings.grid;
    const int64_t depth = t->layer->depth;
    for (int64_t r = 0; r < t->layer->rows; r++) {
        float zero;
        const float scale = sbit__adaquant_scale(t, g, r, &zero);
        const float low = (float)grid->qmin - zero, high = (float)grid->qmax - zero;
        for (int64_t i = r * depth; i < (r + 1) * depth; i++) {
            const float q = nearbyintf(t->start[i] + t->v[i]);
            t->q[i] = scale * (q < low ? low : q > high ? high : q);
        }
    }
}

/* Rows that are better than before are kept. */
static void sbit__adaquant_keep(sbit__adaquant *t)
{
    const int64_t depth = t->layer->depth;
    for (int64_t r = 0; r < t->layer->rows; r++) {
        double loss = 0.0;
        for (int64_t i = r * depth; i < (r + 1) * depth; i++) {
            loss += (double)t->q[i] * ((double)t->error[i] - 2.0 * (double)t->target[i]);
        }
        if (loss < t->least[r]) {
            t->least[r] = loss;
            memcpy(t->best + r * depth, t->q + r * depth, (size_t)depth * sizeof *t->q);
        }
    }
}

static void sbit__adaquant_adam(sbit__adaquant *t, int64_t g, int64_t step)
{
    const sbit_grid *grid = &t->site->settings.grid;
    const int64_t depth = t->layer->depth;
    const float first = 1.0f - powf(0.9f, (float)step), second = 1.0f - powf(0.999f, (float)step);
    const float share = (float)(2.0 / t->gram->count);
    for (int64_t r = 0; r < t->layer->rows; r++) {
        float zero;
        const float scale = sbit__adaquant_scale(t, g, r, &zero);
        const float low = (float)grid->qmin - zero, high = (float)grid->qmax - zero;
        for (int64_t i = r * depth; i < (r + 1) * depth; i++) {
            const float at = t->start[i] + t->v[i];
            const bool moves = t->start[i] != 0.0f && at >= low - 0.5f && at <= high + 0.5f;
            const float slope = moves ? scale * share : 0.0f; /* none: beyond the ends, or pruned */
            const float gradient = slope * (t->error[i] - t->target[i]);
            t->m[i] = 0.9f * t->m[i] + 0.1f * gradient;
            t->u[i] = 0.999f * t->u[i] + 0.001f * gradient * gradient;
            t->v[i] -= t->rate * (t->m[i] / first) / (sqrtf(t->u[i] / second) + 1e-12f);
        }
    }
}

static void sbit__adaquant_group(sbit__adaquant *t, int64_t g)
{
    const sbit__layer *l = t->layer;
    const int64_t square = l->depth * l->depth;
    const float *sums = t->gram->sums + g * square;
    sbit__adaquant_start(t, g);
    sbit__layer_product(t->quant->ctx, l, t->q, t->gram->cross ? t->gram->mixed + g * square : sums,
                        t->target, t->scratch);
    for (int64_t i = 0; i <= t->iterations; i++) {
        sbit__adaquant_round(t, g);
        sbit__layer_product(t->quant->ctx, l, t->q, sums, t->error, t->scratch);
        sbit__adaquant_keep(t);
        sbit__adaquant_adam(t, g, i + 1);
    }
    for (int64_t r = 0; r < l->rows; r++) {
        for (int64_t k = 0; k < l->depth; k++) {
            t->out[(g * l->rows + r) * l->row_step + k * l->depth_step] = t->best[r * l->depth + k];
        }
    }
}

static sbit_status sbit__adaquant_unit(sbit__round_units *units, const sbit_unit *unit,
                                       const sbit__layer *layer, sbit__gram *gram,
                                       sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(units->quant->ctx);
    const size_t one = (size_t)(layer->rows * layer->depth), all = one * (size_t)layer->groups;
    sbit__adaquant t;
    sbit_tensor weight;
    if (gram->count <= 0.0 || units->quant->sites[unit->site].block > 0) {
        return SBIT_OK; /* nothing came; blocks have scales of their own: nearest */
    }
    memset(&t, 0, sizeof t);
    const size_t scratch = sbit__layer_product_bytes(units->quant->ctx, layer);
    const size_t bytes =
        (size_t)layer->rows * sizeof(double) + (8 * one + all) * sizeof(float) + scratch;
    SBIT__TRY(sbit__site_weight(units->quant, &units->quant->sites[unit->site], &weight, error));
    t.least = (double *)sbit__alloc(a, bytes);
    if (t.least == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    t.quant = units->quant;
    t.site = &units->quant->sites[unit->site];
    t.layer = layer;
    t.gram = gram;
    t.iterations = sbit_options_int(units->options, "STEP.ADAQUANT.ITERATIONS");
    t.rate = (float)sbit_options_float(units->options, "STEP.ADAQUANT.LEARNING_RATE");
    t.w = (const float *)weight.data;
    t.start = (float *)(void *)(t.least + layer->rows);
    t.v = t.start + one;
    t.m = t.v + one;
    t.u = t.m + one;
    t.q = t.u + one;
    t.target = t.q + one;
    t.error = t.target + one;
    t.best = t.error + one;
    t.out = t.best + one;
    t.scratch = (void *)(((uintptr_t)(t.out + all) + 63u) & ~(uintptr_t)63u);
    for (int64_t g = 0; g < layer->groups; g++) {
        sbit__adaquant_group(&t, g);
    }
    const sbit_status status = sbit_quant_set_weight(units->quant, unit->site, t.out, error);
    sbit__free(a, t.least, bytes);
    return status;
}

static sbit_status sbit__adaquant_run(void *state, const sbit_options *options,
                                      const sbit_feed *feed, sbit_error *error)
{
    return sbit__round_run(state, options, sbit__step_adaquant(), "STEP.ADAQUANT.POSITIONS", false,
                           false, sbit__adaquant_unit, feed, error);
}

SBIT__FN const sbit_step_row *sbit__step_adaquant(void)
{
    static const sbit_step_row row = {
        {"adaquant", "weights move freely for what the layer computes, by Adam", SBIT_TARGET_WEIGHT,
         sbit__adaquant_keys, SBIT__COUNT_OF(sbit__adaquant_keys)},
        SBIT_STAGE_WEIGHTS,
        true,
        sbit__adaquant_run,
    };
    return &row;
}
