/* step_adaround.c: AdaRound: weights rounded up or down for what the layer computes.
 * >>step-adaround
 *
 * Nagel et al. 2020, layer by layer. With w = s (floor(w/s) + h), h = clamp(1.2 sigmoid(v) - 0.1,
 * 0, 1), Adam on v alone minimizes
 *     mean over positions of |(w_q - w) x|^2  +  REGULARIZER sum(1 - |2 h - 1|^beta)
 * h begins as the fraction of w/s; the second term is left away in the first WARM_UP of the
 * iterations, then beta falls from 20 to 2. In the end v >= 0 rounds up; it ends early once all h
 * are 0 or 1. In which order the second term drives weights to the grid decides more than the first
 * does, so ever more iterations find ever less; therefore weights of a row then change sides, alone
 * or two at a time, as long as that lowers the first term.
 *
 * No activation lies inside a layer, so the first term is a quadratic form of G = sum of x x^T: the
 * data is read once, and each iteration takes all of it. asym: x is what the model quantized so far
 * gives, and the target stays w times the float input: |w_q x_q - w x|^2 needs sum of x x_q^T too.
 */
#include "layer_private.h"
#include "../kernels/rows_private.h"

static const sbit_key sbit__adaround_keys[] = {
    {"ADAROUND.ITERATIONS", SBIT_KEY_INT, "500", 1.0, 1e6, NULL, "steps of Adam for each layer"},
    {"ADAROUND.LEARNING_RATE", SBIT_KEY_FLOAT, "0.01", 1e-6, 10.0, NULL, "of Adam"},
    {"ADAROUND.REGULARIZER", SBIT_KEY_FLOAT, "0.01", 0.0, 1e6, NULL,
     "weight of the term that drives values to the grid"},
    {"ADAROUND.WARM_UP", SBIT_KEY_FLOAT, "0.2", 0.0, 1.0, NULL,
     "part of the iterations without it"},
    {"ADAROUND.POSITIONS", SBIT_KEY_INT, "64", 0.0, 1e9, NULL,
     "output positions of a sample that are looked at; 0: all"},
};

enum {
    SBIT__ADAROUND_SWEEPS = 20, /* over a row's pairs, at most */
    SBIT__ADAROUND_BLOCK = 64
};

/* One layer at work; matrices are [rows][depth] of one group. */
typedef struct sbit__adaround {
    sbit_quant *quant;
    const sbit__site *site;
    const sbit_options *options;
    sbit__layer layer;
    sbit__gram gram;
    int64_t iterations;
    float rate, regularizer, warm_up;
    float *w;         /* the layer's weights, as stored */
    float *low;       /* floor(w / s) */
    float *scale;     /* of each row */
    float *zero;      /* zero point of each row */
    float *v, *m, *u; /* rounding variables, Adam's moments */
    float *q;         /* soft weights */
    float *sigmoid;   /* of v */
    float *pull;      /* the regularizer's slope */
    float *target, *error;
    bool *moves;  /* [rows]: some weight lies between two integers */
    int64_t group;
    const float *sums; /* of the group: [depth][depth] */
    int64_t step;      /* of Adam, from 1 */
    float beta;        /* 0: no regularizer yet */
    void *scratch;
    size_t bytes;
} sbit__adaround;

SBIT__FN float sbit__adaround_h(float sigmoid)
{
    const float h = 1.2f * sigmoid - 0.1f;
    return h < 0.0f ? 0.0f : h > 1.0f ? 1.0f : h;
}

SBIT__FN float sbit__adaround_slope(float sigmoid)
{
    const float h = 1.2f * sigmoid - 0.1f;
    return h > 0.0f && h < 1.0f ? 1.2f * sigmoid * (1.0f - sigmoid) : 0.0f;
}

SBIT__FN void sbit__adaround_pull(const sbit_ctx *ctx, int64_t n, const float *sigmoid, float beta,
                                  float *out)
{
    const sbit_kernels *kernels = sbit__kernels(ctx);
    kernels->f32_scale_add(n, sigmoid, 2.4f, -1.2f, out); /* 2 h - 1 */
    kernels->f32_unary(SBIT__UNARY_ABS, n, out, out);
    kernels->f32_unary(SBIT__UNARY_LOG, n, out, out);
    kernels->f32_scale_add(n, out, beta - 1.0f, 0.0f, out);
    kernels->f32_unary(SBIT__UNARY_EXP, n, out, out);
    for (int64_t i = 0; i < n; i++) {
        const float slope = 2.0f * beta * sbit__adaround_slope(sigmoid[i]);
        out[i] = slope > 0.0f ? out[i] * (sigmoid[i] < 0.5f ? -slope : slope) : 0.0f;
    }
}

static float sbit__adaround_weight(const sbit__adaround *t, int64_t r, int64_t k)
{
    const sbit__layer *layer = &t->layer;
    return t->w[(t->group * layer->rows + r) * layer->row_step + k * layer->depth_step];
}

/* Row r's scale: of the whole tensor, or of its channel. */
static void sbit__adaround_start(sbit__adaround *t)
{
    const sbit__layer *layer = &t->layer;
    const bool one = sbit__site_parts(t->site) == 1;
    for (int64_t r = 0; r < layer->rows; r++) {
        const int64_t row = t->group * layer->rows + r;
        t->scale[r] = t->site->scale[one ? 0 : row];
        t->zero[r] = (float)t->site->zero_point[one ? 0 : row];
        for (int64_t k = 0; k < layer->depth; k++) {
            const int64_t i = r * layer->depth + k;
            const float x = sbit__adaround_weight(t, r, k);
            const float on_grid = x / t->scale[r];
            const float low = floorf(on_grid), rest = on_grid - low;
            t->q[i] = x; /* for the target */
            t->low[i] = low;
            t->v[i] = x != 0.0f ? -logf(1.2f / (rest + 0.1f) - 1.0f) : -10.0f; /* pruned: stays */
            t->m[i] = t->u[i] = 0.0f;
        }
    }
}

/* w_q of a row from v; values beyond the grid's ends stay there. */
static void sbit__adaround_soft_task(void *task, int64_t r, int32_t worker)
{
    const sbit__adaround *t = (const sbit__adaround *)task;
    const sbit_grid *grid = &t->site->settings.grid;
    const int64_t first = r * t->layer.depth, depth = t->layer.depth;
    const float least = (float)grid->qmin - t->zero[r], most = (float)grid->qmax - t->zero[r];
    (void)worker;
    sbit__kernels(t->quant->ctx)
        ->f32_unary(SBIT__UNARY_SIGMOID, depth, t->v + first, t->sigmoid + first);
    t->moves[r] = false;
    for (int64_t i = first; i < first + depth; i++) {
        const float h = sbit__adaround_h(t->sigmoid[i]), q = t->low[i] + h;
        t->moves[r] = t->moves[r] || (h > 0.0f && h < 1.0f);
        t->q[i] = t->scale[r] * (q < least ? least : q > most ? most : q);
    }
}

/* One step of Adam along a row's gradient. */
static void sbit__adaround_adam_task(void *task, int64_t r, int32_t worker)
{
    const sbit__adaround *t = (const sbit__adaround *)task;
    const sbit_grid *grid = &t->site->settings.grid;
    const float step = (float)t->step, share = (float)(2.0 / t->gram.count);
    const float first = 1.0f - powf(0.9f, step), second = 1.0f - powf(0.999f, step);
    const float least = (float)grid->qmin - t->zero[r], most = (float)grid->qmax - t->zero[r];
    const int64_t begin = r * t->layer.depth;
    (void)worker;
    if (t->beta > 0.0f) {
        sbit__adaround_pull(t->quant->ctx, t->layer.depth, t->sigmoid + begin, t->beta,
                            t->pull + begin);
    }
    for (int64_t i = begin; i < begin + t->layer.depth; i++) {
        const float q = t->low[i] + sbit__adaround_h(t->sigmoid[i]);
        float gradient = q >= least && q <= most
                             ? share * (t->error[i] - t->target[i]) * t->scale[r] *
                                   sbit__adaround_slope(t->sigmoid[i])
                             : 0.0f;
        gradient -= t->beta > 0.0f ? t->regularizer * t->pull[i] : 0.0f;
        t->m[i] = 0.9f * t->m[i] + 0.1f * gradient;
        t->u[i] = 0.999f * t->u[i] + 0.001f * gradient * gradient;
        t->v[i] -= t->rate * (t->m[i] / first) / (sqrtf(t->u[i] / second) + 1e-8f);
    }
}

static bool sbit__adaround_moves(const sbit__adaround *t)
{
    for (int64_t r = 0; r < t->layer.rows; r++) {
        if (t->moves[r]) {
            return true;
        }
    }
    return false;
}

static void sbit__adaround_search(sbit__adaround *t)
{
    const sbit__layer *layer = &t->layer;
    const int64_t warm = (int64_t)(t->warm_up * (float)t->iterations);
    for (int64_t i = 0; i < t->iterations; i++) {
        const float after = (float)(i - warm) / (float)(t->iterations - warm);
        t->step = i + 1;
        t->beta = i < warm ? 0.0f : 20.0f - 18.0f * after;
        sbit_ctx_parallel(t->quant->ctx, layer->rows, sbit__adaround_soft_task, t);
        if (!sbit__adaround_moves(t)) {
            break; /* all are integers, where both slopes are 0 */
        }
        sbit__layer_product(t->quant->ctx, layer, t->q, t->sums, t->error, t->scratch);
        sbit_ctx_parallel(t->quant->ctx, layer->rows, sbit__adaround_adam_task, t);
    }
}

/* >>step-adaround pairs: (w_q - w) G (w_q - w)^T of a row when weights change sides. */
typedef struct sbit__adaround_row {
    const float *sums; /* [depth][depth] */
    int64_t depth;
    float *step;  /* what a weight moves by if it changes sides; 0: it must not */
    float *rise;  /* of the form, if it alone does */
    float *slope; /* w_q G - target */
    float *v;
} sbit__adaround_row;

static void sbit__adaround_rises(const sbit__adaround_row *row)
{
    for (int64_t k = 0; k < row->depth; k++) {
        const float bend = row->step[k] * row->sums[k * row->depth + k];
        row->rise[k] = row->step[k] * (2.0f * row->slope[k] + bend);
    }
}

/* The weight with which k had best change sides; k: none, or k alone. *least: the form's rise, 0 if
 * there is nothing to gain. */
static int64_t sbit__adaround_partner(const sbit__adaround_row *row, int64_t k, float *least)
{
    const float own = row->rise[k], twice = 2.0f * row->step[k];
    int64_t best = k;
    *least = own < 0.0f ? own : 0.0f;
    for (int64_t begin = 0; begin < row->depth; begin += SBIT__ADAROUND_BLOCK) {
        const int64_t count = sbit__smaller(SBIT__ADAROUND_BLOCK, row->depth - begin);
        const float *step = row->step + begin, *sums = row->sums + k * row->depth + begin;
        float rise[SBIT__ADAROUND_BLOCK];
        for (int64_t i = 0; i < count; i++) {
            rise[i] = row->rise[begin + i] + twice * step[i] * sums[i];
        }
        for (int64_t i = 0; i < count; i++) {
            if (own + rise[i] < *least && step[i] != 0.0f && begin + i != k) {
                *least = own + rise[i];
                best = begin + i;
            }
        }
    }
    return best;
}

static void sbit__adaround_change(const sbit__adaround_row *row, int64_t k)
{
    const float *sums = row->sums + k * row->depth, step = row->step[k];
    for (int64_t i = 0; i < row->depth; i++) {
        row->slope[i] += step * sums[i];
    }
    row->step[k] = -step;
    row->v[k] = step > 0.0f ? 1.0f : -1.0f;
}

/* Once over all weights; false: none has changed. */
static bool sbit__adaround_sweep(const sbit__adaround_row *row)
{
    bool changed = false;
    for (int64_t k = 0; k < row->depth; k++) {
        float least;
        const int64_t other = row->step[k] != 0.0f ? sbit__adaround_partner(row, k, &least) : k;
        if (row->step[k] == 0.0f || least >= -1e-6f * fabsf(row->rise[k])) {
            continue; /* what rounding alone could be is no gain */
        }
        sbit__adaround_change(row, k);
        if (other != k) {
            sbit__adaround_change(row, other);
        }
        sbit__adaround_rises(row);
        changed = true;
    }
    return changed;
}

/* Row r of t->q is rounded, of t->error its product with G; Adam's moments are room by now. */
static void sbit__adaround_pairs_task(void *task, int64_t r, int32_t worker)
{
    sbit__adaround *t = (sbit__adaround *)task;
    const sbit_grid *grid = &t->site->settings.grid;
    const int64_t begin = r * t->layer.depth;
    const float least = (float)grid->qmin - t->zero[r], most = (float)grid->qmax - t->zero[r];
    sbit__adaround_row row;
    (void)worker;
    row.sums = t->sums;
    row.depth = t->layer.depth;
    row.step = t->m + begin;
    row.rise = t->u + begin;
    row.slope = t->error + begin;
    row.v = t->v + begin;
    for (int64_t k = 0; k < row.depth; k++) {
        const float low = t->low[begin + k];
        const bool free = low >= least && low + 1.0f <= most && sbit__adaround_weight(t, r, k) != 0.0f;
        row.step[k] = !free ? 0.0f : row.v[k] >= 0.0f ? -t->scale[r] : t->scale[r];
        row.slope[k] -= t->target[begin + k];
    }
    sbit__adaround_rises(&row);
    for (int sweep = 0; sweep < SBIT__ADAROUND_SWEEPS && sbit__adaround_sweep(&row); sweep++) {
        continue;
    }
}

static void sbit__adaround_group(sbit__adaround *t, float *out)
{
    const sbit__layer *layer = &t->layer;
    const sbit_grid *grid = &t->site->settings.grid;
    const int64_t square = layer->depth * layer->depth;
    t->sums = t->gram.sums + t->group * square;
    sbit__adaround_start(t);
    /* target = w G (or w times the cross sums); the loss's gradient in w_q is 2 (w_q G - target) /
     * n */
    sbit__layer_product(t->quant->ctx, layer, t->q,
                        t->gram.cross ? t->gram.mixed + t->group * square : t->sums, t->target,
                        t->scratch);
    sbit__adaround_search(t);
    for (int64_t i = 0; i < layer->rows * layer->depth; i++) {
        const int64_t r = i / layer->depth;
        const float q = t->low[i] + (t->v[i] >= 0.0f ? 1.0f : 0.0f);
        const float least = (float)grid->qmin - t->zero[r], most = (float)grid->qmax - t->zero[r];
        t->q[i] = t->scale[r] * (q < least ? least : q > most ? most : q);
    }
    sbit__layer_product(t->quant->ctx, layer, t->q, t->sums, t->error, t->scratch);
    sbit_ctx_parallel(t->quant->ctx, layer->rows, sbit__adaround_pairs_task, t);
    for (int64_t i = 0; i < layer->rows * layer->depth; i++) {
        const int64_t r = i / layer->depth, k = i % layer->depth;
        out[(t->group * layer->rows + r) * layer->row_step + k * layer->depth_step] =
            t->scale[r] * (t->low[i] + (t->v[i] >= 0.0f ? 1.0f : 0.0f));
    }
}

/* >>step-adaround layer */
static sbit_status sbit__adaround_room(sbit__adaround *t, float **out, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(t->quant->ctx);
    const int64_t one = t->layer.rows * t->layer.depth, all = one * t->layer.groups;
    const size_t scratch = sbit__layer_product_bytes(t->quant->ctx, &t->layer);
    const size_t floats = (size_t)(9 * one + 2 * t->layer.rows + all);
    t->bytes = floats * sizeof(float) + scratch + (size_t)t->layer.rows * sizeof(bool);
    float *room = (float *)sbit__alloc(a, t->bytes);
    if (room == NULL) {
        return sbit__fail_oom(error, t->bytes);
    }
    t->low = room;
    t->v = t->low + one;
    t->m = t->v + one;
    t->u = t->m + one;
    t->q = t->u + one;
    t->sigmoid = t->q + one;
    t->pull = t->sigmoid + one;
    t->target = t->pull + one;
    t->error = t->target + one;
    t->scale = t->error + one;
    t->zero = t->scale + t->layer.rows;
    *out = t->zero + t->layer.rows;
    t->scratch = (void *)(((uintptr_t)(*out + all) + 63u) & ~(uintptr_t)63u);
    t->moves = (bool *)room + t->bytes - (size_t)t->layer.rows * sizeof(bool);
    return SBIT_OK;
}

static sbit_status sbit__adaround_layer(sbit__adaround *t, size_t site, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(t->quant->ctx);
    sbit_tensor weight;
    float *out = NULL;
    SBIT__TRY(sbit__site_weight(t->quant, &t->quant->sites[site], &weight, error));
    SBIT__TRY(sbit__adaround_room(t, &out, error));
    t->w = (float *)weight.data;
    for (t->group = 0; t->group < t->layer.groups; t->group++) {
        sbit__adaround_group(t, out);
    }
    const sbit_status status = sbit_quant_set_weight(t->quant, site, out, error);
    sbit__free(a, t->low, t->bytes);
    return status;
}

/* >>step-adaround run */
static sbit_status sbit__adaround_unit(sbit__round_units *units, const sbit_unit *unit,
                                       const sbit__layer *layer, sbit__gram *gram,
                                       sbit_error *error)
{
    sbit__adaround t;
    const sbit_options *options = units->options;
    if (units->quant->sites[unit->site].block > 0) {
        return SBIT_OK; /* blocks have scales of their own: nearest */
    }
    memset(&t, 0, sizeof t);
    t.quant = units->quant;
    t.options = options;
    t.layer = *layer;
    t.gram = *gram;
    t.site = &t.quant->sites[unit->site];
    t.iterations = sbit_options_int(options, "STEP.ADAROUND.ITERATIONS");
    t.rate = (float)sbit_options_float(options, "STEP.ADAROUND.LEARNING_RATE");
    t.regularizer = (float)sbit_options_float(options, "STEP.ADAROUND.REGULARIZER");
    t.warm_up = (float)sbit_options_float(options, "STEP.ADAROUND.WARM_UP");
    return sbit__adaround_layer(&t, unit->site, error);
}

static sbit_status sbit__adaround_run(void *state, const sbit_options *options,
                                      const sbit_feed *feed, sbit_error *error)
{
    return sbit__round_run(state, options, sbit__step_adaround(), "STEP.ADAROUND.POSITIONS", false,
                           false, sbit__adaround_unit, feed, error);
}

SBIT__FN const sbit_step_row *sbit__step_adaround(void)
{
    static const sbit_step_row row = {
        {"adaround", "weights rounded up or down for what the layer computes, by Adam",
         SBIT_TARGET_WEIGHT, sbit__adaround_keys, SBIT__COUNT_OF(sbit__adaround_keys)},
        SBIT_STAGE_WEIGHTS,
        true,
        sbit__adaround_run,
    };
    return &row;
}
