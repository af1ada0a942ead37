/* step_reconstruct.c: weights and activation scales of a block together, for what the block
 * computes. >>step-reconstruct
 *
 * Li et al. 2021 (BRECQ) and Wei et al. 2022 (QDrop): block by block (>>blocks), Adam minimizes
 *     mean |block_q(x') - block(x)|^2 / e  +  REGULARIZER mean(1 - |2 h - 1|^beta)
 * over AdaRound's rounding variables v, h = h(v) (>>step-adaround), the logarithms of the
 * activations' scales (LSQ's gradient) and the layers' biases. e is the first term when the block
 * begins, so that the second's weight is the same for all models. x is what the float model
 * computes, x' what the model quantized so far does. In x' and behind each of the block's
 * activation quantizers every element is at random, with probability DROP, the float one: a pure
 * function of seed, iteration, place and element. What an earlier step chose (gptq) is where the
 * weights begin, and zeros stay (masks). FINETUNE lets weights go to any integer, straight-through,
 * and learns the logarithms of their scales, too (of integers that an earlier step chose, with their
 * own gradient: straight-through says that a scale does nothing to them). Where scales are powers of two, the logarithm is
 * rounded to one (Jain et al. 2020, TQT). Gradients come from the rows' own rules (>>grad); a block
 * with an operator that has none keeps the weights it has.
 */
#include "layer_private.h"

static const sbit_key sbit__reconstruct_keys[] = {
    {"RECONSTRUCT.ITERATIONS", SBIT_KEY_INT, "500", 1.0, 1e7, NULL, "steps of Adam for each block"},
    {"RECONSTRUCT.BATCH", SBIT_KEY_INT, "32", 1.0, 65536.0, NULL, "samples of a step"},
    {"RECONSTRUCT.LAYERS", SBIT_KEY_INT, "1", 1.0, 1e6, NULL,
     "blocks are joined until they have so many layers"},
    {"RECONSTRUCT.LEARNING_RATE", SBIT_KEY_FLOAT, "0.03", 0.0, 10.0, NULL,
     "of the rounding variables; FINETUNE: a tenth of it, in steps of the grid, falls to 0"},
    {"RECONSTRUCT.SCALE_RATE", SBIT_KEY_FLOAT, "0.002", 0.0, 1.0, NULL,
     "of scales and biases, as a share of them; falls to 0; 0: they stay"},
    {"RECONSTRUCT.FINETUNE", SBIT_KEY_BOOL, "false", 0.0, 0.0, NULL,
     "weights go to any integer, not to one of two, and their scales are learned"},
    {"RECONSTRUCT.DROP", SBIT_KEY_FLOAT, "0.5", 0.0, 1.0, NULL,
     "probability that an activation is not quantized"},
    {"RECONSTRUCT.REGULARIZER", SBIT_KEY_FLOAT, "10", 0.0, 1e9, NULL,
     "weight of the term that drives values to the grid"},
    {"RECONSTRUCT.WARM_UP", SBIT_KEY_FLOAT, "0.2", 0.0, 1.0, NULL,
     "part of the iterations without it"},
};

typedef struct sbit__rebuild sbit__rebuild;

typedef enum sbit__rebuild_kind {
    SBIT__REBUILD_WEIGHT, /* v, or (FINETUNE) the weight in steps of its first scale */
    SBIT__REBUILD_SCALES, /* the logarithms of what they are multiplied by */
    SBIT__REBUILD_BIAS    /* of the layer whose weight the site is */
} sbit__rebuild_kind;

/* Numbers that are learned. */
typedef struct sbit__rebuild_parameter {
    struct sbit__rebuild_site *site;
    sbit__rebuild_kind kind;
    sbit_tensor value;
    sbit_value_id id;
    float unit; /* the rate is in such units */
    void *adam;
} sbit__rebuild_parameter;

/* A quantizer of the block. */
typedef struct sbit__rebuild_site {
    sbit__external functions; /* user: this struct */
    sbit__rebuild *block;
    sbit__site *site;
    sbit__rebuild_parameter *parameter; /* the first of its node; NULL: it stays as it is */
    size_t fed;                         /* how many its node has */
    float *low;                         /* weights: integers below, zero point left out */
    float *sigmoid, *pull;              /* weights: of v; of the regularizer */
    float *scale, *first;               /* [parts] at present, at first */
    double *sums;                       /* [parts] */
    sbit_value_id inputs[3];            /* of its node */
} sbit__rebuild_site;

struct sbit__rebuild {
    sbit_quant *quant;
    const sbit__block *at;
    sbit__arena *arena;
    sbit_options adam;
    int64_t iterations, batch, iteration;
    float rate, scale_rate, drop, regularizer, warm_up;
    bool hard; /* weights rounded, nothing dropped: to measure */
    bool finetune;
    sbit__rebuild_site *sites;
    size_t count;
    sbit__rebuild_parameter *parameters; /* in the order of the session's inputs and outputs */
    size_t learned;
    int64_t weights;          /* rounding variables of all sites */
    int64_t samples, in, out; /* what was gathered: rows of so many numbers */
    sbit_tensor x, quantized, y;
    float *from; /* where a walk's batches go */
    int64_t taken;
    sbit_tensor inputs[2]; /* of a step: x', y */
    sbit_graph *graph;
    sbit_session *session;
    double unit; /* e */
};

/* >>step-reconstruct random. Bits that belong to (iteration, place, number). */
static uint64_t sbit__rebuild_bits(const sbit__rebuild *t, size_t place, int64_t number)
{
    const uint64_t key = ((uint64_t)t->at->begin << 48) ^ ((uint64_t)place << 36) ^
                         ((uint64_t)t->iteration * UINT64_C(0x2545F4914F6CDD1D)) ^ (uint64_t)number;
    return sbit__mix64(key + SBIT__MIX64_STEP);
}

/* y[i] = x[i] for dropped elements (NULL: 0), in steps of 1/256; a hash decides about eight. */
static void sbit__rebuild_drop(const sbit__rebuild *t, size_t place, const float *x, int64_t count,
                               float *y)
{
    const uint32_t limit = t->hard ? 0 : (uint32_t)(t->drop * 256.0f + 0.5f);
    int64_t i = 0;
    for (; i + 8 <= count && limit > 0; i += 8) {
        const uint64_t bits = sbit__rebuild_bits(t, place, i);
        uint32_t from[8] = {0, 0, 0, 0, 0, 0, 0, 0}, to[8];
        if (x != NULL) {
            memcpy(from, x + i, sizeof from);
        }
        memcpy(to, y + i, sizeof to);
        for (uint32_t k = 0; k < 8; k++) { /* all ones where bits say so: no branches */
            const uint32_t take = 0u - (((uint32_t)(bits >> (8u * k) & 0xFFu) - limit) >> 31);
            to[k] ^= (to[k] ^ from[k]) & take;
        }
        memcpy(y + i, to, sizeof to);
    }
    for (; i < count && limit > 0; i++) {
        if ((uint32_t)(sbit__rebuild_bits(t, place, i) & 0xFFu) < limit) {
            y[i] = x != NULL ? x[i] : 0.0f;
        }
    }
}

/* >>step-reconstruct activations */
static sbit_status sbit__rebuild_forward(void *user, const sbit_op_call *call, sbit_error *error)
{
    const sbit__rebuild_site *q = (const sbit__rebuild_site *)user;
    const sbit__rebuild *t = q->block;
    sbit_quantizer_call quantizer = sbit__site_quantizer(t->quant, q->site);
    const float *x = (const float *)call->in[0]->data;
    float *y = (float *)call->out[0]->data;
    const sbit_observation seen = sbit__site_observation(q->site, call->in[0], x);
    if (q->parameter != NULL) {
        sbit__straight_forward(&quantizer, &seen, q->scale, quantizer.zero_point, y);
    } else {
        const bool fixed = q->site->fixed_range || q->site->change.scale != NULL;
        const sbit_quantizer_row *row =
            fixed ? sbit__quantizer_uniform() : q->site->settings.quantizer;
        SBIT__TRY(row->forward(q->site->quantizer_state, &quantizer, &seen, y, error));
    }
    sbit__rebuild_drop(t, (size_t)(q - t->sites) + 1, x, sbit_tensor_count(call->in[0]), y);
    return SBIT_OK;
}

/* The gradient of the logarithms from that of the scales. NULL: not wanted. */
static void sbit__rebuild_slopes(const sbit__rebuild_site *q, sbit_tensor *out)
{
    for (int64_t p = 0; out != NULL && p < sbit__site_parts(q->site); p++) {
        ((float *)out->data)[p] = (float)q->sums[p] * q->scale[p];
    }
}

/* Inputs dy, x, parameter; outputs dx, its gradient. */
static sbit_status sbit__rebuild_backward(void *user, const sbit_op_call *call, sbit_error *error)
{
    const sbit__rebuild_site *q = (const sbit__rebuild_site *)user;
    const sbit__rebuild *t = q->block;
    const size_t place = (size_t)(q - t->sites) + 1;
    const sbit_quantizer_call quantizer = sbit__site_quantizer(t->quant, q->site);
    const float *dy = (const float *)call->in[0]->data;
    const int64_t count = sbit_tensor_count(call->in[1]), parts = sbit__site_parts(q->site);
    const sbit_observation x =
        sbit__site_observation(q->site, call->in[1], (const float *)call->in[1]->data);
    float *dx = call->out[0] != NULL ? (float *)call->out[0]->data : (float *)call->scratch;
    (void)error;
    memset(q->sums, 0, (size_t)parts * sizeof *q->sums);
    memcpy(dx, dy, (size_t)count * sizeof *dx);
    sbit__rebuild_drop(t, place, NULL, count, dx);
    sbit__straight_backward(&quantizer, &x, q->parameter != NULL ? q->scale : quantizer.scale,
                            quantizer.zero_point, dx, dx, q->sums, NULL);
    sbit__rebuild_drop(t, place, dy, count, dx);
    sbit__rebuild_slopes(q, call->output_count > 1 ? call->out[1] : NULL);
    return SBIT_OK;
}

/* >>step-reconstruct weights */
static float sbit__rebuild_near(float at, float least, float most)
{
    const float n = nearbyintf(at);
    return n < least ? least : n > most ? most : n;
}

/* y, or (dy given) the gradient of what is learned from dy: of scales in sums. Zeros stay. */
static void sbit__rebuild_weights(const sbit__rebuild_site *q, const sbit_tensor *w,
                                  const float *dy, float *y)
{
    const sbit__site *site = q->site;
    const sbit_grid *grid = &site->settings.grid;
    const float *v = (const float *)q->parameter->value.data, *own = (const float *)w->data;
    const bool finetune = q->block->finetune, hard = q->block->hard;
    const sbit_observation x = sbit__site_observation(site, w, NULL);
    sbit_runs runs = sbit_runs_of(&x.parts);
    if (dy == NULL && !finetune && !hard) { /* forward comes first */
        sbit__kernels(q->block->quant->ctx)
            ->f32_unary(SBIT__UNARY_SIGMOID, sbit_tensor_count(w), v, q->sigmoid);
    }
    while (sbit_runs_next(&runs)) {
        const float zero = (float)site->zero_point[runs.part], scale = q->scale[runs.part];
        const float least = (float)grid->qmin - zero, most = (float)grid->qmax - zero;
        /* What an earlier step has rounded: integers that are multiplied by the scale, whatever that
         * is. Else: weights, which come to lie elsewhere on the grid when the scale changes. */
        const bool chosen = finetune && site->rounded != NULL && !grid->power_of_two;
        const float first = chosen ? scale : q->first[runs.part], ratio = first / scale;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const float h = finetune ? 0.0f
                            : hard   ? (v[i] >= 0.0f ? 1.0f : 0.0f)
                                     : sbit__adaround_h(q->sigmoid[i]);
            const float at = finetune ? v[i] * ratio : q->low[i] + h;
            const float n = finetune ? sbit__rebuild_near(at, least, most)
                                     : (at < least ? least : at > most ? most : at);
            const bool inside = finetune ? n == nearbyintf(at) : n == at;
            if (dy == NULL) {
                y[i] = scale * n;
                continue;
            }
            const float slope = finetune ? first : scale * sbit__adaround_slope(q->sigmoid[i]);
            q->sums[runs.part] += (double)(dy[i] * (inside && !chosen ? n - at : n));
            y[i] = inside && own[i] != 0.0f ? dy[i] * slope : 0.0f;
        }
    }
}

static sbit_status sbit__rebuild_soft(void *user, const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    sbit__rebuild_weights((const sbit__rebuild_site *)user, call->in[0], NULL,
                          (float *)call->out[0]->data);
    return SBIT_OK;
}

static sbit_status sbit__rebuild_soft_back(void *user, const sbit_op_call *call, sbit_error *error)
{
    const sbit__rebuild_site *q = (const sbit__rebuild_site *)user;
    (void)error;
    memset(q->sums, 0, (size_t)sbit__site_parts(q->site) * sizeof *q->sums);
    if (call->output_count > 1 && call->out[1] != NULL) {
        sbit__rebuild_weights(q, call->in[1], (const float *)call->in[0]->data,
                              (float *)call->out[1]->data);
    }
    sbit__rebuild_slopes(q, call->output_count > 2 ? call->out[2] : NULL);
    return SBIT_OK;
}

/* v from where the weight lies between two integers, on the side of the one that it has. */
static void sbit__rebuild_start(const sbit__rebuild_site *q, const sbit_tensor *w)
{
    const float *x = (const float *)w->data, *rounded = q->site->rounded;
    float *v = (float *)q->parameter->value.data;
    const sbit_observation seen = sbit__site_observation(q->site, w, x);
    sbit_runs runs = sbit_runs_of(&seen.parts);
    while (sbit_runs_next(&runs)) {
        const float scale = q->site->scale[runs.part];
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const float ratio = x[i] / scale;
            const float own = nearbyintf(rounded != NULL ? rounded[i] / scale : ratio);
            const bool up = ratio < own;
            if (q->block->finetune) {
                v[i] = rounded != NULL ? own : ratio;
                continue;
            }
            float rest = ratio - (up ? own - 1.0f : own);
            rest = up && rest < 0.8f ? 0.8f : !up && rest > 0.2f ? 0.2f : rest;
            if (rounded == NULL) {
                rest = ratio - floorf(ratio);
            }
            q->low[i] = rounded == NULL ? floorf(ratio) : up ? own - 1.0f : own;
            v[i] = -logf(1.2f / ((rest < 0.0f ? 0.0f : rest > 1.0f ? 1.0f : rest) + 0.1f) - 1.0f);
        }
    }
}

/* >>step-reconstruct block */
static bool sbit__rebuild_inside(const sbit__rebuild *t, sbit_node_id node)
{
    const uint32_t place = t->at->place[node.idx];
    return place > t->at->begin && place <= t->at->end;
}

/* The block's own sites: weights that its nodes read, activations that go in or are made inside. */
static bool sbit__rebuild_owns(const sbit__rebuild *t, const sbit__site *site)
{
    if (!site->enabled || site->graph != t->quant->graph || site->captured ||
        site->value.idx == t->at->exit.idx) {
        return false;
    }
    const sbit_value_info *value = sbit__site_value(site);
    if (site->target == SBIT_TARGET_WEIGHT) {
        for (const sbit__site_use *use = site->uses; use != NULL; use = use->next) {
            if (sbit__rebuild_inside(t, use->node)) {
                return true;
            }
        }
        return false;
    }
    return site->value.idx == t->at->entry.idx ||
           (value->producer.idx != 0 && sbit__rebuild_inside(t, value->producer));
}

/* A scale may be any number (or power of two), and no other site shares it. */
static bool sbit__rebuild_free(const sbit__rebuild *t, const sbit__site *site)
{
    bool alone = site->settings.quantizer == sbit__quantizer_uniform() && !site->fixed_range &&
                 site->change.scale == NULL;
    for (size_t i = 0; sbit__site_shares(site) && i < t->quant->site_count; i++) {
        const sbit__site *other = &t->quant->sites[i];
        alone =
            alone && (other == site || !sbit__site_shares(other) || other->group != site->group);
    }
    return alone && t->scale_rate > 0.0f;
}

/* Room for `count` numbers that are learned. */
static sbit_status sbit__rebuild_learn(sbit__rebuild *t, sbit__rebuild_site *q, int64_t count,
                                       sbit__rebuild_parameter **out, sbit_error *error)
{
    const sbit_optimizer_row *adam = sbit_optimizer_find(t->quant->ctx, "adam");
    sbit__rebuild_parameter *p = &t->parameters[t->learned++];
    sbit_optimizer_call call;
    memset(&call, 0, sizeof call);
    call.options = &t->adam;
    call.count = count;
    p->site = q;
    p->unit = 1.0f;
    p->value.dtype = SBIT_F32;
    p->value.rank = 1;
    p->value.dims[0] = count;
    p->value.data = sbit__arena_array(t->arena, (size_t)count, sizeof(float));
    p->adam = sbit__arena_alloc(t->arena, adam->state_bytes(&call));
    *out = p;
    return p->value.data != NULL && p->adam != NULL
               ? SBIT_OK
               : sbit__fail_oom(error, (size_t)count * sizeof(float));
}

/* One more input of the site's node. */
static sbit_status sbit__rebuild_feed(sbit__rebuild *t, sbit__rebuild_site *q, int64_t count,
                                      sbit__rebuild_kind kind, sbit_error *error)
{
    sbit__rebuild_parameter *p = NULL;
    SBIT__TRY(sbit__rebuild_learn(t, q, count, &p, error));
    SBIT__TRY(sbit_graph_add_constant(t->graph, q->site->tensor, &p->value, &p->id, error));
    p->kind = kind;
    q->parameter = q->parameter != NULL ? q->parameter : p;
    q->inputs[++q->fed] = p->id;
    return SBIT_OK;
}

/* Scales that may be learned start from the site's. */
static sbit_status sbit__rebuild_scales(sbit__rebuild *t, sbit__rebuild_site *q, sbit_error *error)
{
    const size_t parts = (size_t)sbit__site_parts(q->site);
    q->scale = (float *)sbit__arena_array(t->arena, 2 * parts, sizeof(float));
    q->sums = (double *)sbit__arena_array(t->arena, parts, sizeof(double));
    if (q->scale == NULL || q->sums == NULL) {
        return sbit__fail_oom(error, parts * sizeof(float));
    }
    q->first = q->scale + parts;
    memcpy(q->scale, q->site->scale, parts * sizeof(float));
    memcpy(q->first, q->site->scale, parts * sizeof(float));
    return SBIT_OK;
}

/* The bias of a weight's layer, if it is the layer's own and has a number for each output. */
static sbit_status sbit__rebuild_bias(sbit__rebuild *t, sbit__rebuild_site *q, sbit_error *error)
{
    const sbit_value_info *bias = sbit__bias_value(t->quant, t->quant->graph, q->site->uses->node);
    sbit__rebuild_parameter *p = NULL;
    sbit__layer layer;
    double size = 0.0;
    if (bias == NULL || bias->use_count != 1 || bias->constant.dtype != SBIT_F32 ||
        !sbit__layer_of(t->quant->graph, q->site->uses->node, &layer) ||
        sbit_tensor_count(&bias->constant) != layer.groups * layer.rows || t->scale_rate <= 0.0f) {
        return SBIT_OK;
    }
    const int64_t count = sbit_tensor_count(&bias->constant);
    const float *from = (const float *)bias->constant.data;
    SBIT__TRY(sbit__rebuild_learn(t, q, count, &p, error));
    for (int64_t i = 0; i < count; i++) {
        const float shift = q->site->shift != NULL ? q->site->shift[i] : 0.0f;
        ((float *)p->value.data)[i] = from[i] + shift;
        size += fabs((double)from[i]) / (double)count;
    }
    p->value.rank = bias->constant.rank;
    memcpy(p->value.dims, bias->constant.dims, sizeof p->value.dims);
    p->kind = SBIT__REBUILD_BIAS;
    p->id = bias->id;
    p->unit = (float)size;
    return SBIT_OK;
}

/* A weight that some other block or graph reads as well stays what it is. */
static sbit_status sbit__rebuild_weight(sbit__rebuild *t, sbit__rebuild_site *q, bool unit,
                                        sbit_error *error)
{
    sbit_tensor w;
    SBIT__TRY(sbit__site_weight(t->quant, q->site, &w, error));
    const int64_t count = sbit_tensor_count(&w);
    if (unit) {
        q->functions.forward = sbit__rebuild_soft;
        q->functions.backward = sbit__rebuild_soft_back;
        q->low = (float *)sbit__arena_array(t->arena, 3 * (size_t)count, sizeof(float));
        if (q->low == NULL) {
            return sbit__fail_oom(error, 3 * (size_t)count * sizeof(float));
        }
        q->sigmoid = q->low + count;
        q->pull = q->sigmoid + count;
        SBIT__TRY(sbit__rebuild_scales(t, q, error));
        SBIT__TRY(sbit__rebuild_feed(t, q, count, SBIT__REBUILD_WEIGHT, error));
        t->weights += count;
        sbit__rebuild_start(q, &w);
        if (t->finetune && sbit__rebuild_free(t, q->site)) {
            SBIT__TRY(sbit__rebuild_feed(t, q, sbit__site_parts(q->site), SBIT__REBUILD_SCALES,
                                         error));
        }
        return sbit__rebuild_bias(t, q, error);
    }
    w.data = sbit__arena_array(t->arena, (size_t)count, sizeof(float));
    if (w.data == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof(float));
    }
    SBIT__TRY(sbit__site_dequantized(t->quant, q->site, (float *)w.data, error));
    return sbit_graph_set_constant(t->graph, q->site->value, &w, error);
}

static sbit_status sbit__rebuild_activation(sbit__rebuild *t, sbit__rebuild_site *q,
                                            sbit_error *error)
{
    q->functions.forward = sbit__rebuild_forward;
    q->functions.backward = sbit__rebuild_backward;
    SBIT__TRY(sbit__rebuild_scales(t, q, error));
    return sbit__rebuild_free(t, q->site)
               ? sbit__rebuild_feed(t, q, sbit__site_parts(q->site), SBIT__REBUILD_SCALES, error)
               : SBIT_OK;
}

/* A clone with the block's quantizers as nodes. */
static sbit_status sbit__rebuild_place(sbit__rebuild *t, const bool *units, sbit_error *error)
{
    sbit_quant *quant = t->quant;
    t->sites =
        (sbit__rebuild_site *)sbit__arena_array(t->arena, quant->site_count + 1, sizeof *t->sites);
    t->parameters = (sbit__rebuild_parameter *)sbit__arena_array(
        t->arena, 3 * quant->site_count + 1, sizeof *t->parameters);
    if (t->sites == NULL || t->parameters == NULL) {
        return sbit__fail_oom(error, quant->site_count * sizeof *t->sites);
    }
    SBIT__TRY(sbit_graph_clone(quant->graph, &t->graph, error));
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (!sbit__rebuild_owns(t, site)) {
            continue;
        }
        sbit__rebuild_site *q = &t->sites[t->count++];
        q->block = t;
        q->site = site;
        q->functions.user = q;
        if (site->target == SBIT_TARGET_WEIGHT) {
            SBIT__TRY(sbit__rebuild_weight(t, q, units[i], error));
        } else {
            SBIT__TRY(sbit__rebuild_activation(t, q, error));
        }
        if (q->functions.forward != NULL) {
            SBIT__TRY(sbit__site_insert(t->graph, site, &q->functions, q->inputs,
                                        1 + q->fed, t->arena, error));
        }
    }
    return SBIT_OK;
}

/* Loss and gradients behind the block, and a session from its entry to them. */
static sbit_status sbit__rebuild_session(sbit__rebuild *t, sbit_error *error)
{
    const sbit_loss_row *mse = sbit_loss_find(t->quant->ctx, "mse");
    const sbit_type type = sbit_graph_value(t->graph, t->at->exit)->type;
    sbit_value_id *ids =
        (sbit_value_id *)sbit__arena_array(t->arena, 3 * t->learned + 3, sizeof *ids);
    sbit_session_desc desc;
    if (ids == NULL) {
        return sbit__fail_oom(error, t->learned * sizeof *ids);
    }
    sbit_value_id *inputs = ids + t->learned + 1, *gradients = inputs + t->learned + 2;
    SBIT__TRY(sbit_graph_add_value(t->graph, "target", &type, &inputs[1], error));
    SBIT__TRY(sbit_graph_set_input(t->graph, inputs[1], true, error));
    SBIT__TRY(mse->build(t->graph, NULL, t->at->exit, inputs[1], &ids[0], error));
    inputs[0] = t->at->entry;
    for (size_t i = 0; i < t->learned; i++) {
        inputs[2 + i] = t->parameters[i].id;
    }
    SBIT__TRY(sbit_graph_add_gradients(t->graph, ids[0], inputs + 2, t->learned, gradients, error));
    memset(&desc, 0, sizeof desc);
    desc.inputs = inputs;
    desc.input_count = t->learned + 2;
    desc.outputs = ids;
    desc.output_count = t->learned + 1;
    for (size_t i = 0; i < t->learned; i++) {
        ids[1 + i] = gradients[i];
        if (gradients[i].idx == 0) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL, "a quantizer has no gradient");
        }
    }
    SBIT__TRY(sbit_session_create(t->graph, &desc, &t->session, error));
    SBIT__TRY(sbit_session_set_input_at(t->session, 0, &t->inputs[0], error));
    SBIT__TRY(sbit_session_set_input_at(t->session, 1, &t->inputs[1], error));
    for (size_t i = 0; i < t->learned; i++) {
        SBIT__TRY(sbit_session_set_input_at(t->session, 2 + i, &t->parameters[i].value, error));
    }
    return SBIT_OK;
}

/* >>step-reconstruct data */
static sbit_status sbit__rebuild_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__rebuild *t = (sbit__rebuild *)user;
    const sbit_tensor *x = batch->x;
    const int64_t row = batch->rows > 0 ? sbit_tensor_count(x) / batch->rows : 0;
    if (x->rank < 1 || x->dims[0] != batch->rows || x->dtype != SBIT_F32 ||
        (t->x.data != NULL && row != t->in) || t->taken + batch->samples > t->samples) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "its input is not one row for each sample");
    }
    if (t->x.data == NULL) {
        int64_t dims[SBIT_MAX_RANK];
        memcpy(dims, x->dims, sizeof dims);
        dims[0] = t->samples;
        t->in = row;
        SBIT__TRY(sbit_tensor_alloc(t->quant->ctx, SBIT_F32, x->rank, dims, &t->x, error));
        SBIT__TRY(sbit_tensor_alloc(t->quant->ctx, SBIT_F32, x->rank, dims, &t->quantized, error));
        dims[0] = t->batch;
        SBIT__TRY(sbit_tensor_alloc(t->quant->ctx, SBIT_F32, x->rank, dims, &t->inputs[0], error));
        t->from = (float *)t->x.data;
    }
    memcpy(t->from + t->taken * row, x->data, (size_t)(batch->samples * row) * sizeof(float));
    t->taken += batch->samples;
    return SBIT_OK;
}

/* What the float block makes of x. Samples are repeated where a fixed batch wants more. */
static sbit_status sbit__rebuild_target(sbit__rebuild *t, sbit_session *session, sbit_error *error)
{
    SBIT__TRY(sbit_session_set_input_at(session, 0, &t->inputs[0], error));
    for (int64_t first = 0; first < t->samples; first += t->batch) {
        const int64_t left = t->samples - first, own = left < t->batch ? left : t->batch;
        for (int64_t i = 0; i < t->batch; i++) {
            memcpy((float *)t->inputs[0].data + i * t->in,
                   (const float *)t->x.data + (first + i % own) * t->in,
                   (size_t)t->in * sizeof(float));
        }
        SBIT__TRY(sbit_session_run(session, error));
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        if (y->rank < 1 || y->dims[0] != t->batch || y->dtype != SBIT_F32) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                              "its output is not one row for each sample");
        }
        if (t->y.data == NULL) {
            int64_t dims[SBIT_MAX_RANK];
            memcpy(dims, y->dims, sizeof dims);
            t->out = sbit_tensor_count(y) / t->batch;
            SBIT__TRY(
                sbit_tensor_alloc(t->quant->ctx, SBIT_F32, y->rank, dims, &t->inputs[1], error));
            dims[0] = t->samples;
            SBIT__TRY(sbit_tensor_alloc(t->quant->ctx, SBIT_F32, y->rank, dims, &t->y, error));
        }
        memcpy((float *)t->y.data + first * t->out, y->data,
               (size_t)(own * t->out) * sizeof(float));
    }
    return SBIT_OK;
}

/* The float input, the same under what is quantized so far, and the float output. */
static sbit_status sbit__rebuild_gather(sbit__rebuild *t, sbit_walk *plain, sbit_walk *quantized,
                                        sbit_error *error)
{
    sbit_node_id first = sbit_graph_first(t->quant->graph);
    sbit_session *session = NULL;
    sbit_session_desc desc;
    while (t->at->place[first.idx] <= t->at->begin) {
        first = sbit_graph_next(t->quant->graph, first);
    }
    SBIT__TRY(sbit__walk_to_value(plain, first, t->at->entry, sbit__rebuild_see, t, error));
    t->from = (float *)t->quantized.data;
    t->taken = 0;
    SBIT__TRY(sbit__walk_to_value(quantized, first, t->at->entry, sbit__rebuild_see, t, error));
    memset(&desc, 0, sizeof desc);
    desc.inputs = &t->at->entry;
    desc.outputs = &t->at->exit;
    desc.input_count = desc.output_count = 1;
    SBIT__TRY(sbit_session_create(t->quant->graph, &desc, &session, error));
    const sbit_status status = sbit__rebuild_target(t, session, error);
    sbit_session_destroy(session);
    return status;
}

/* >>step-reconstruct search */
/* One run on samples drawn at random; *loss: the first term, not yet divided. */
static sbit_status sbit__rebuild_run(sbit__rebuild *t, double *loss, sbit_error *error)
{
    float *x = (float *)t->inputs[0].data;
    for (int64_t i = 0; i < t->batch; i++) {
        const int64_t row = (int64_t)(sbit__rebuild_bits(t, 0, i) % (uint64_t)t->samples);
        memcpy(x + i * t->in, (const float *)t->quantized.data + row * t->in,
               (size_t)t->in * sizeof(float));
        sbit__rebuild_drop(t, 4000 + (size_t)i, (const float *)t->x.data + row * t->in, t->in,
                           x + i * t->in);
        memcpy((float *)t->inputs[1].data + i * t->out, (const float *)t->y.data + row * t->out,
               (size_t)t->out * sizeof(float));
    }
    SBIT__TRY(sbit_session_run(t->session, error));
    *loss = (double)*(const float *)sbit_session_output(t->session, 0)->tensor.data;
    return SBIT_OK;
}

/* The loss with everything rounded, over some samples. */
static sbit_status sbit__rebuild_measure(sbit__rebuild *t, double *loss, sbit_error *error)
{
    const int64_t all = (t->samples + t->batch - 1) / t->batch, runs = all < 8 ? all : 8;
    *loss = 0.0;
    t->hard = true;
    for (t->iteration = 0; t->iteration < runs; t->iteration++) {
        double one = 0.0;
        SBIT__TRY(sbit__rebuild_run(t, &one, error));
        *loss += one / (double)runs;
    }
    t->hard = false;
    return SBIT_OK;
}

/* Scales from their logarithms. */
static void sbit__rebuild_rescale(const sbit__rebuild_site *q, const float *logs)
{
    const bool power = q->site->settings.grid.power_of_two;
    for (int64_t p = 0; p < sbit__site_parts(q->site); p++) {
        q->scale[p] = q->first[p] * (power ? ldexpf(1.0f, (int)nearbyintf(logs[p] * 1.442695f))
                                           : expf(logs[p]));
    }
}

/* One step of Adam. beta 0: no regularizer (yet). */
static sbit_status sbit__rebuild_update(sbit__rebuild *t, float beta, sbit_error *error)
{
    const sbit_optimizer_row *adam = sbit_optimizer_find(t->quant->ctx, "adam");
    const float left = (float)(1.0 - (double)t->iteration / (double)t->iterations);
    const float unit = (float)(1.0 / t->unit), pull = t->regularizer / (float)t->weights;
    for (size_t i = 0; i < t->learned; i++) {
        const sbit__rebuild_parameter *p = &t->parameters[i];
        const sbit__rebuild_site *q = p->site;
        const bool weight = p->kind == SBIT__REBUILD_WEIGHT;
        float *value = (float *)p->value.data;
        float *gradient = (float *)sbit_session_output(t->session, 1 + i)->tensor.data;
        sbit_optimizer_call call;
        memset(&call, 0, sizeof call);
        call.ctx = t->quant->ctx;
        call.options = &t->adam;
        call.count = sbit_tensor_count(&p->value);
        call.step = t->iteration + 1;
        call.learning_rate = !weight       ? t->scale_rate * left * p->unit
                             : t->finetune ? 0.1f * t->rate * left
                                           : t->rate;
        if (weight && beta > 0.0f) {
            sbit__adaround_pull(t->quant->ctx, call.count, q->sigmoid, beta, q->pull);
        }
        for (int64_t k = 0; k < call.count; k++) {
            gradient[k] = gradient[k] * unit - (weight && beta > 0.0f ? pull * q->pull[k] : 0.0f);
        }
        SBIT__TRY(adam->update(p->adam, &call, gradient, value, error));
        if (p->kind == SBIT__REBUILD_SCALES) {
            sbit__rebuild_rescale(q, value);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__rebuild_search(sbit__rebuild *t, sbit_error *error)
{
    const int64_t warm = (int64_t)(t->warm_up * (float)t->iterations);
    double loss;
    for (t->iteration = 0; t->iteration < t->iterations; t->iteration++) {
        const float after = (float)(t->iteration - warm) / (float)(t->iterations - warm);
        const bool anneals = !t->finetune && t->iteration >= warm;
        SBIT__TRY(sbit__rebuild_run(t, &loss, error));
        SBIT__TRY(sbit__rebuild_update(t, anneals ? 20.0f - 18.0f * after : 0.0f, error));
    }
    return SBIT_OK;
}

/* Rounded weights, scales and what biases moved by go to the sites. */
static sbit_status sbit__rebuild_publish(sbit__rebuild *t, sbit_error *error)
{
    t->hard = true;
    for (size_t i = 0; i < t->learned; i++) {
        sbit__rebuild_parameter *p = &t->parameters[i];
        sbit__rebuild_site *q = p->site;
        float *value = (float *)p->value.data;
        sbit_tensor w;
        if (p->kind != SBIT__REBUILD_BIAS) {
            memcpy(q->site->scale, q->scale, (size_t)sbit__site_parts(q->site) * sizeof(float));
        }
        if (p->kind == SBIT__REBUILD_BIAS) {
            const sbit_tensor *bias = &sbit_graph_value(t->quant->graph, p->id)->constant;
            const size_t count = (size_t)sbit_tensor_count(bias);
            for (size_t k = 0; k < count; k++) {
                value[k] -= ((const float *)bias->data)[k];
            }
            SBIT__TRY(sbit__site_set_shift(t->quant, q->site, value, count, error));
        } else if (p->kind == SBIT__REBUILD_WEIGHT) {
            SBIT__TRY(sbit__site_weight(t->quant, q->site, &w, error));
            sbit__rebuild_weights(q, &w, NULL, q->low); /* element by element: in place */
            SBIT__TRY(sbit_quant_set_weight(t->quant, (size_t)(q->site - t->quant->sites), q->low,
                                            error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__rebuild_block(sbit__rebuild *t, const bool *units, sbit_walk *plain,
                                       sbit_walk *quantized, sbit_error *error)
{
    double before = 0.0, after = 0.0;
    SBIT__TRY(sbit__rebuild_gather(t, plain, quantized, error));
    SBIT__TRY(sbit__rebuild_place(t, units, error));
    SBIT__TRY(sbit__rebuild_session(t, error));
    SBIT__TRY(sbit__rebuild_measure(t, &before, error));
    t->unit = before > 1e-30 ? before : 1.0;
    SBIT__TRY(sbit__rebuild_search(t, error));
    SBIT__TRY(sbit__rebuild_measure(t, &after, error));
    sbit__log(t->quant->ctx, SBIT_LOG_INFO, "reconstruct: up to '%s': error %.3g, was %.3g",
              sbit_graph_value(t->graph, t->at->exit)->name, after, before);
    return after < before ? sbit__rebuild_publish(t, error) : SBIT_OK;
}

/* >>step-reconstruct run */
static void sbit__rebuild_deinit(sbit__rebuild *t)
{
    sbit_ctx *ctx = t->quant->ctx;
    sbit_session_destroy(t->session);
    sbit_graph_destroy(t->graph);
    sbit_tensor_free(ctx, &t->x);
    sbit_tensor_free(ctx, &t->quantized);
    sbit_tensor_free(ctx, &t->y);
    sbit_tensor_free(ctx, &t->inputs[0]);
    sbit_tensor_free(ctx, &t->inputs[1]);
    sbit__arena_deinit(t->arena);
}

typedef struct sbit__reconstruct {
    sbit_quant *quant;
    const sbit_options *options;
    const sbit_feed *feed;
    sbit__arena arena;
    sbit_unit *units;
    size_t unit_count;
    bool *unit, *done; /* by site: a weight to be rounded; all that is quantized so far */
    sbit__block *blocks;
    size_t block_count;
    sbit_walk *plain, *quantized;
} sbit__reconstruct;

/* The settings of a step, and of its block; a batch that the model fixes. */
static sbit_status sbit__reconstruct_settings(const sbit__reconstruct *r, sbit__rebuild *t,
                                              sbit_error *error)
{
    const sbit_options *options = r->options;
    const sbit_type *type = &sbit_graph_value(r->quant->graph, t->at->entry)->type;
    sbit__key_table table;
    const sbit_optimizer_row *adam = sbit_optimizer_find(r->quant->ctx, "adam");
    t->iterations = sbit_options_int(options, "STEP.RECONSTRUCT.ITERATIONS");
    t->batch = sbit_options_int(options, "STEP.RECONSTRUCT.BATCH");
    t->rate = (float)sbit_options_float(options, "STEP.RECONSTRUCT.LEARNING_RATE");
    t->scale_rate = (float)sbit_options_float(options, "STEP.RECONSTRUCT.SCALE_RATE");
    t->drop = (float)sbit_options_float(options, "STEP.RECONSTRUCT.DROP");
    t->regularizer = (float)sbit_options_float(options, "STEP.RECONSTRUCT.REGULARIZER");
    t->warm_up = (float)sbit_options_float(options, "STEP.RECONSTRUCT.WARM_UP");
    t->finetune = sbit_options_bool(options, "STEP.RECONSTRUCT.FINETUNE");
    t->samples = r->feed->count;
    t->batch = t->batch < t->samples ? t->batch : t->samples;
    if (type->rank > 0 && type->dims[0].symbol == 0 && type->dims[0].value > 0) {
        t->batch = type->dims[0].value;
    }
    table.prefix = "";
    table.keys = adam->head.keys;
    table.count = adam->head.key_count;
    return sbit__options_init(t->arena, &table, 1, &t->adam, error);
}

static sbit_status sbit__reconstruct_block(sbit__reconstruct *r, const sbit__block *block,
                                           sbit_error *error)
{
    sbit__rebuild t;
    sbit__arena arena;
    memset(&t, 0, sizeof t);
    sbit__arena_init(&arena, sbit_ctx_allocator(r->quant->ctx));
    t.quant = r->quant;
    t.arena = &arena;
    t.at = block;
    sbit_status status = sbit__reconstruct_settings(r, &t, error);
    if (status == SBIT_OK) {
        status = sbit__rebuild_block(&t, r->unit, r->plain, r->quantized, error);
    }
    if (status == SBIT_ERR_UNSUPPORTED) {
        sbit__log(r->quant->ctx, SBIT_LOG_WARNING, "reconstruct: what ends with '%s' is left: %s",
                  sbit_graph_value(r->quant->graph, block->exit)->name,
                  error != NULL ? error->message : "it has no gradient");
        status = SBIT_OK;
    }
    sbit__rebuild_deinit(&t);
    for (size_t i = 0; i < r->unit_count; i++) { /* from here on it is quantized */
        const uint32_t place = block->place[r->units[i].node.idx];
        r->done[r->units[i].site] = r->done[r->units[i].site] || place <= block->end;
    }
    return status;
}

static sbit_status sbit__reconstruct_all(sbit__reconstruct *r, sbit_error *error)
{
    sbit_quant *quant = r->quant;
    sbit_walk_desc desc;
    const size_t sites = quant->site_count, count = r->unit_count;
    r->units = (sbit_unit *)sbit__arena_array(&r->arena, count + 1, sizeof *r->units);
    r->unit = (bool *)sbit__arena_array(&r->arena, 2 * sites + 1, sizeof *r->unit);
    if (r->units == NULL || r->unit == NULL) {
        return sbit__fail_oom(error, sites);
    }
    r->done = r->unit + sites;
    memset(r->done, 1, sites * sizeof *r->done);
    sbit_quant_units(quant, sbit__step_reconstruct(), r->units, count);
    for (size_t i = 0; i < count; i++) {
        r->unit[r->units[i].site] = true;
        r->done[r->units[i].site] = false;
    }
    SBIT__TRY(sbit__blocks_find(quant, r->units, count,
                                (size_t)sbit_options_int(r->options, "STEP.RECONSTRUCT.LAYERS"),
                                &r->arena, &r->blocks, &r->block_count, error));
    memset(&desc, 0, sizeof desc);
    desc.quantized = true;
    desc.sites = r->done;
    SBIT__TRY(sbit_walk_create(quant, r->feed, NULL, &r->plain, error));
    SBIT__TRY(sbit_walk_create(quant, r->feed, &desc, &r->quantized, error));
    for (size_t i = 0; i < r->block_count; i++) {
        SBIT__TRY(
            sbit__progress(quant->ctx, "reconstruct", (int64_t)i, (int64_t)r->block_count, error));
        SBIT__TRY(sbit__reconstruct_block(r, &r->blocks[i], error));
    }
    return sbit__progress(quant->ctx, "reconstruct", (int64_t)r->block_count,
                          (int64_t)r->block_count, error);
}

static sbit_status sbit__reconstruct_run(void *state, const sbit_options *options,
                                         const sbit_feed *feed, sbit_error *error)
{
    sbit__reconstruct r;
    memset(&r, 0, sizeof r);
    r.quant = (sbit_quant *)state;
    r.options = options;
    r.feed = feed;
    sbit__arena_init(&r.arena, sbit_ctx_allocator(r.quant->ctx));
    r.unit_count = sbit_quant_units(r.quant, sbit__step_reconstruct(), NULL, 0);
    const sbit_status status = sbit__reconstruct_all(&r, error);
    sbit_walk_destroy(r.plain);
    sbit_walk_destroy(r.quantized);
    sbit__arena_deinit(&r.arena);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_reconstruct(void)
{
    static const sbit_step_row row = {
        {"reconstruct", "weights and activation scales of a block together, for what it computes",
         SBIT_TARGET_WEIGHT, sbit__reconstruct_keys, SBIT__COUNT_OF(sbit__reconstruct_keys)},
        SBIT_STAGE_WEIGHTS,
        true,
        sbit__reconstruct_run,
    };
    return &row;
}
