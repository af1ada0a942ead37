/* step_cross_layer.c: cross-layer equalization: the channels between two layers get like ranges in
 * both, without any data. >>step-cross-layer And what to do with channels that are never near 0:
 * bias absorption. >>step-bias-absorption
 *
 * Nagel et al. 2019. Where layer A's channel i goes into layer B alone, through operators that let
 * a positive factor pass (Relu, pools ...), A's row i may be divided by s_i and B's column i
 * multiplied by it. s_i = sqrt(range of A's row / range of B's column) gives both the same range;
 * all pairs are visited until nothing changes. A small s_i makes the activations of its channel
 * large, and with them the range of the whole tensor: s_i is not let below the geometric mean of
 * the pair divided by AMPLIFY. Clip(0, b), Relu6, becomes Relu and Min with b / s_i per channel:
 * the float model stays the same function.
 *
 * Bias absorption, of the same paper (after equalization, which makes biases large): where what A's
 * channel gives is above c_i > 0, Relu takes nothing away, A's bias gives c_i to B's, as sum of B's
 * weights times c_i, and the tensor between them needs a range that is so much smaller. The paper
 * takes c_i from a normalization's parameters, which are folded here: c_i is the least that
 * calibration sees, so that for these samples the float model stays the same function. Bounds move,
 * too. B must not be padded: with zeros, which would be c_i.
 */
#include "layer_private.h"

static const sbit_key sbit__cross_keys[] = {
    {"CROSS_LAYER.AMPLIFY", SBIT_KEY_FLOAT, "2", 1.0, 1e9, NULL,
     "how far activations of a channel may grow beyond the mean"},
    {"CROSS_LAYER.ROUNDS", SBIT_KEY_INT, "40", 1.0, 1e6, NULL, "visits of all pairs at most"},
    {"CROSS_LAYER.CLIP", SBIT_KEY_CHOICE, "bound", 0, 0, "bound|skip",
     "Clip between two layers (bias_absorption, too): bounds per channel, or such pairs are left alone"},
};

/* A layer's weight while it changes. */
typedef struct sbit__cross_layer {
    sbit__layer layer;
    sbit_value_id weight, bias; /* bias none: 0 */
    int64_t out, in;            /* channels */
    float *w;
} sbit__cross_layer;

typedef struct sbit__cross_pair {
    sbit__cross_layer *a, *b;
    sbit_node_id clip;   /* 0: none between them */
    sbit_value_id bound; /* absorption: of a Min between them; 0: none */
    double *s;           /* [a->out]; absorption: 1 */
    double *taken;       /* absorption: [a->out] c */
} sbit__cross_pair;

typedef struct sbit__cross {
    sbit_quant *quant;
    sbit_graph *graph;
    sbit__arena arena;
    const sbit_options *options;
    sbit__cross_layer *layers;
    sbit__cross_pair *pairs;
    size_t layer_count, pair_count;
    bool absorbs; /* else it equalizes */
} sbit__cross;

/* >>step-cross-layer pairs */
static bool sbit__cross_constant(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *value = id.idx != 0 ? sbit_graph_value(graph, id) : NULL;
    return value != NULL && value->is_constant && value->use_count == 1 && !value->is_output &&
           value->constant.dtype == SBIT_F32;
}

/* Room for a layer whose weight and bias may be changed; NULL: it is none. */
static sbit__cross_layer *sbit__cross_layer_of(sbit__cross *x, sbit_node_id id)
{
    const sbit_node *node = sbit_graph_node(x->graph, id);
    sbit__cross_layer *layer = &x->layers[x->layer_count];
    for (size_t i = 0; i < x->layer_count; i++) {
        if (x->layers[i].layer.node->id.idx == id.idx) {
            return &x->layers[i];
        }
    }
    memset(layer, 0, sizeof *layer);
    if (!sbit__layer_of(x->graph, id, &layer->layer) ||
        !sbit__cross_constant(x->graph, node->inputs[1])) {
        return NULL;
    }
    const sbit__layer *l = &layer->layer;
    layer->weight = node->inputs[1];
    layer->out = l->groups * l->rows;
    layer->in = l->groups * l->depth / (l->conv ? l->kernel[0] * l->kernel[1] * l->kernel[2] : 1);
    if (node->input_count > 2 && node->inputs[2].idx != 0) {
        const sbit_value_info *bias = sbit_graph_value(x->graph, node->inputs[2]);
        layer->bias = node->inputs[2];
        if (!sbit__cross_constant(x->graph, layer->bias) ||
            sbit_tensor_count(&bias->constant) != layer->out ||
            bias->constant.dims[bias->constant.rank - 1] != layer->out) {
            return NULL;
        }
    }
    const size_t count = (size_t)(l->groups * l->rows * l->depth);
    layer->w = (float *)sbit__arena_array(&x->arena, count, sizeof(float));
    if (layer->w == NULL) {
        return NULL;
    }
    memcpy(layer->w, sbit_graph_value(x->graph, layer->weight)->constant.data,
           count * sizeof(float));
    x->layer_count++;
    return layer;
}

/* Clip(0, b) with b > 0 in its attributes or inputs. */
static bool sbit__cross_clip(const sbit_graph *graph, const sbit_node *node, double *bound)
{
    double limit[2] = {-1.0, -1.0};
    for (size_t i = 0; i < 2; i++) {
        const char *const names[] = {"min", "max"};
        const sbit_attr *attr = sbit_node_attr(node, names[i]);
        if (attr != NULL && attr->type == SBIT_ONNX_ATTR_FLOAT) {
            limit[i] = (double)attr->f;
        } else if (i + 1 < node->input_count && node->inputs[i + 1].idx != 0) {
            const sbit_value_info *value = sbit_graph_value(graph, node->inputs[i + 1]);
            if (!value->is_constant || sbit_tensor_count(&value->constant) != 1) {
                return false;
            }
            limit[i] = sbit__tensor_f64_at(&value->constant, 0);
        }
    }
    *bound = limit[1];
    return limit[0] >= 0.0 && limit[0] <= 0.0 && limit[1] > 0.0;
}

/* The one reader of what `id` makes, if nothing else looks at it. */
static const sbit_node *sbit__cross_reader(const sbit_graph *graph, const sbit_node *node)
{
    sbit_use use;
    const sbit_value_info *value = sbit_graph_value(graph, node->outputs[0]);
    if (value->use_count != 1 || value->is_output ||
        sbit_graph_uses(graph, value->id, &use, 1) != 1 || use.node.idx == 0 || use.body != NULL ||
        use.index != 0) {
        return NULL;
    }
    return sbit_graph_node(graph, use.node);
}

/* Min with a number for each channel, as equalization leaves it. */
static bool sbit__cross_min(const sbit__cross *x, const sbit_node *node)
{
    return x->absorbs && sbit__streq(node->op_type, "Min") && node->input_count == 2 &&
           sbit__cross_constant(x->graph, node->inputs[1]);
}

/* The layer behind `node`, if a positive factor per channel passes in between (absorption: if a
 * positive number does that is less than what is there). */
static const sbit_node *sbit__cross_follow(const sbit__cross *x, const sbit_node *node,
                                           sbit__cross_pair *pair)
{
    static const char *const pass[] = {"AveragePool", "Relu",    "LeakyRelu",         "Identity",
                                       "MaxPool",     "Dropout", "GlobalAveragePool", "GlobalMaxPool",
                                       NULL};
    const bool clips =
        sbit__streq(sbit_options_string(x->options, "STEP.CROSS_LAYER.CLIP"), "bound");
    double bound;
    memset(pair, 0, sizeof *pair);
    while ((node = sbit__cross_reader(x->graph, node)) != NULL) {
        size_t i = x->absorbs ? 1 : 0; /* AveragePool may count padding */
        while (pass[i] != NULL && !sbit__streq(pass[i], node->op_type)) {
            i++;
        }
        if (node->domain[0] == '\0' && pass[i] != NULL) {
            continue;
        }
        const bool clip = sbit__streq(node->op_type, "Clip"), min = sbit__cross_min(x, node);
        if (!clip && !min) {
            return node;
        }
        if (pair->clip.idx != 0 || pair->bound.idx != 0 ||
            (clip && (!clips || !sbit__cross_clip(x->graph, node, &bound)))) {
            return NULL;
        }
        if (clip) {
            pair->clip = node->id;
        } else {
            pair->bound = node->inputs[1];
        }
    }
    return NULL;
}

/* A factor of Gemm would be one of what is given. */
static bool sbit__cross_plain(const sbit_node *node)
{
    return sbit_node_float(node, "alpha", 1.0f) == 1.0f && sbit_node_float(node, "beta", 1.0f) == 1.0f;
}

/* One number for each channel of what the layer gives. */
static bool sbit__cross_by_channel(const sbit__cross_layer *layer, const sbit_tensor *bound)
{
    const int32_t axis = bound->rank - 1 - (layer->layer.conv ? layer->layer.spatial : 0);
    return axis >= 0 && bound->dims[axis] == layer->out && sbit_tensor_count(bound) == layer->out;
}

/* Both have a bias, and b no padding; bounds are one for each channel. */
static bool sbit__cross_absorbs(const sbit__cross *x, const sbit__cross_pair *pair)
{
    const sbit_attr *pads = sbit_node_attr(pair->b->layer.node, "pads");
    bool padded = pair->b->layer.auto_pad != 0;
    for (size_t i = 0; pair->b->layer.conv && pads != NULL && i < pads->count; i++) {
        padded = padded || pads->ints[i] != 0;
    }
    return !padded && pair->a->bias.idx != 0 && pair->b->bias.idx != 0 &&
           sbit__cross_plain(pair->a->layer.node) && sbit__cross_plain(pair->b->layer.node) &&
           (pair->bound.idx == 0 ||
            sbit__cross_by_channel(pair->a, &sbit_graph_value(x->graph, pair->bound)->constant));
}

static sbit_status sbit__cross_find(sbit__cross *x, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(x->graph); id.idx != 0;
         id = sbit_graph_next(x->graph, id)) {
        sbit__cross_pair *pair = &x->pairs[x->pair_count];
        sbit__layer layer;
        if (!sbit__layer_of(x->graph, id, &layer)) {
            continue;
        }
        const sbit_node *next = sbit__cross_follow(x, layer.node, pair);
        sbit__layer behind;
        if (next == NULL || !sbit__layer_of(x->graph, next->id, &behind) ||
            behind.conv != layer.conv) {
            continue;
        }
        pair->a = sbit__cross_layer_of(x, id);
        pair->b = sbit__cross_layer_of(x, next->id);
        if (pair->a == NULL || pair->b == NULL || pair->a->out != pair->b->in ||
            (x->absorbs && !sbit__cross_absorbs(x, pair))) {
            continue;
        }
        pair->s = (double *)sbit__arena_array(&x->arena, 2 * (size_t)pair->a->out, sizeof(double));
        if (pair->s == NULL) {
            return sbit__fail_oom(error, 2 * (size_t)pair->a->out * sizeof(double));
        }
        pair->taken = pair->s + pair->a->out;
        for (int64_t c = 0; c < pair->a->out; c++) {
            pair->s[c] = 1.0;
        }
        x->pair_count++;
    }
    return SBIT_OK;
}

/* >>step-cross-layer factors */
/* Element i of the weights that belong to output channel c (rows) or input channel c (columns): the
 * element's place, or -1 past the last. */
static int64_t sbit__cross_element(const sbit__cross_layer *x, bool column, int64_t c, int64_t i)
{
    const sbit__layer *l = &x->layer;
    if (!column) {
        return i < l->depth ? c * l->row_step + i * l->depth_step : -1;
    }
    const int64_t window = l->conv ? l->kernel[0] * l->kernel[1] * l->kernel[2] : 1;
    const int64_t in = x->in / l->groups, g = c / in, k = c % in;
    return i < l->rows * window ? (g * l->rows + i / window) * l->row_step +
                                      (k * window + i % window) * l->depth_step
                                : -1;
}

static double sbit__cross_range(const sbit__cross_layer *x, bool column, int64_t c)
{
    float most = 0.0f;
    int64_t at;
    for (int64_t i = 0; (at = sbit__cross_element(x, column, c, i)) >= 0; i++) {
        const float size = x->w[at] < 0.0f ? -x->w[at] : x->w[at];
        most = size > most ? size : most;
    }
    return (double)most;
}

static void sbit__cross_scale(sbit__cross_layer *x, bool column, int64_t c, double factor)
{
    int64_t at;
    for (int64_t i = 0; (at = sbit__cross_element(x, column, c, i)) >= 0; i++) {
        x->w[at] = (float)((double)x->w[at] * factor);
    }
}

static void sbit__cross_apply(sbit__cross_pair *pair, int64_t c, double s)
{
    sbit__cross_scale(pair->a, false, c, 1.0 / s);
    sbit__cross_scale(pair->b, true, c, s);
    pair->s[c] *= s;
}

/* The largest change of a visit to all pairs. */
static double sbit__cross_round(sbit__cross *x)
{
    double most = 0.0;
    for (size_t p = 0; p < x->pair_count; p++) {
        sbit__cross_pair *pair = &x->pairs[p];
        for (int64_t c = 0; c < pair->a->out; c++) {
            const double a = sbit__cross_range(pair->a, false, c);
            const double b = sbit__cross_range(pair->b, true, c);
            if (!(a > 1e-12 && b > 1e-12)) {
                continue; /* a dead channel */
            }
            const double s = sqrt(a / b);
            most = fabs(log(s)) > most ? fabs(log(s)) : most;
            sbit__cross_apply(pair, c, s);
        }
    }
    return most;
}

static void sbit__cross_limit(sbit__cross *x)
{
    const double amplify = sbit_options_float(x->options, "STEP.CROSS_LAYER.AMPLIFY");
    for (size_t p = 0; p < x->pair_count; p++) {
        sbit__cross_pair *pair = &x->pairs[p];
        double sum = 0.0;
        for (int64_t c = 0; c < pair->a->out; c++) {
            sum += log(pair->s[c]);
        }
        const double least = exp(sum / (double)pair->a->out) / amplify;
        for (int64_t c = 0; c < pair->a->out; c++) {
            if (pair->s[c] < least) {
                sbit__cross_apply(pair, c, least / pair->s[c]);
            }
        }
    }
}

/* >>step-cross-layer result */
static sbit_status sbit__cross_store(sbit__cross *x, sbit_value_id id, const float *values,
                                     sbit_error *error)
{
    sbit_tensor tensor = sbit_graph_value(x->graph, id)->constant;
    tensor.data = (void *)(uintptr_t)values;
    return sbit_graph_set_constant(x->graph, id, &tensor, error);
}

/* A constant with a number for each channel of a, divided by s, less what is taken. None: 0. */
static sbit_status sbit__cross_divide(sbit__cross *x, const sbit__cross_pair *pair, sbit_value_id id,
                                      sbit_error *error)
{
    if (id.idx == 0) {
        return SBIT_OK;
    }
    const float *old = (const float *)sbit_graph_value(x->graph, id)->constant.data;
    float *values = (float *)sbit__arena_array(&x->arena, (size_t)pair->a->out, sizeof *values);
    if (values == NULL) {
        return sbit__fail_oom(error, (size_t)pair->a->out * sizeof *values);
    }
    for (int64_t c = 0; c < pair->a->out; c++) {
        values[c] = (float)((double)old[c] / pair->s[c] - pair->taken[c]);
    }
    return sbit__cross_store(x, id, values, error);
}

/* Adds op(inputs) in front of `before`, with a new output of the type of `like`. */
static sbit_status sbit__cross_node(sbit__cross *x, const char *op_type, sbit_value_id like,
                                    const sbit_value_id *inputs, size_t count, sbit_node_id before,
                                    sbit_value_id *out, sbit_error *error)
{
    const sbit_value_info *info = sbit_graph_value(x->graph, like);
    const sbit_type type = info->type;
    char name[300];
    sbit_node_desc desc;
    sbit_node_id node;
    snprintf(name, sizeof name, "%.250s_%s", info->name, op_type);
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(sbit_graph_add_value(x->graph, name, &type, out, error));
    desc.op_type = op_type;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = count;
    desc.outputs = out;
    desc.output_count = 1;
    desc.before = before;
    return sbit_graph_add_node(x->graph, &desc, &node, error);
}

/* Clip(0, b) becomes Min(Relu, b / s - taken). */
static sbit_status sbit__cross_bound(sbit__cross *x, const sbit__cross_pair *pair,
                                     sbit_error *error)
{
    if (pair->clip.idx == 0) {
        return SBIT_OK;
    }
    const sbit_node *clip = sbit_graph_node(x->graph, pair->clip);
    const sbit_value_id from = clip->inputs[0], to = clip->outputs[0];
    const int32_t spatial = pair->a->layer.conv ? pair->a->layer.spatial : 0;
    sbit_value_id inputs[2], y;
    sbit_tensor bounds;
    char name[300];
    double bound = 0.0;
    sbit__cross_clip(x->graph, clip, &bound);
    memset(&bounds, 0, sizeof bounds);
    bounds.dtype = SBIT_F32;
    bounds.rank = 1 + spatial;
    for (int32_t i = 0; i < bounds.rank; i++) {
        bounds.dims[i] = i == 0 ? pair->a->out : 1;
    }
    float *b = (float *)sbit__arena_array(&x->arena, (size_t)pair->a->out, sizeof *b);
    if (b == NULL) {
        return sbit__fail_oom(error, (size_t)pair->a->out * sizeof *b);
    }
    for (int64_t c = 0; c < pair->a->out; c++) {
        b[c] = (float)(bound / pair->s[c] - pair->taken[c]);
    }
    bounds.data = b;
    snprintf(name, sizeof name, "%.250s_bound", sbit_graph_value(x->graph, to)->name);
    SBIT__TRY(sbit_graph_add_constant(x->graph, name, &bounds, &inputs[1], error));
    SBIT__TRY(sbit__cross_node(x, "Relu", to, &from, 1, pair->clip, &inputs[0], error));
    SBIT__TRY(sbit__cross_node(x, "Min", to, inputs, 2, pair->clip, &y, error));
    SBIT__TRY(sbit_graph_replace_uses(x->graph, to, y, error));
    sbit_graph_erase_node(x->graph, pair->clip);
    sbit_graph_erase_value(x->graph, to);
    return SBIT_OK;
}

static sbit_status sbit__cross_equalize(sbit__cross *x, sbit_error *error)
{
    const int64_t rounds = sbit_options_int(x->options, "STEP.CROSS_LAYER.ROUNDS");
    for (int64_t i = 0; i < rounds && sbit__cross_round(x) > 1e-4; i++) {
        SBIT__TRY(sbit__progress(x->quant->ctx, "cross_layer", i, rounds, error));
    }
    sbit__cross_limit(x);
    for (size_t i = 0; i < x->layer_count; i++) {
        SBIT__TRY(sbit__cross_store(x, x->layers[i].weight, x->layers[i].w, error));
    }
    for (size_t i = 0; i < x->pair_count; i++) {
        SBIT__TRY(sbit__cross_divide(x, &x->pairs[i], x->pairs[i].a->bias, error));
        SBIT__TRY(sbit__cross_bound(x, &x->pairs[i], error));
    }
    sbit__log(x->quant->ctx, SBIT_LOG_INFO, "cross_layer: %u pairs of layers equalized",
              (unsigned)x->pair_count);
    return SBIT_OK;
}

/* >>step-bias-absorption */
/* The least of each channel. */
static sbit_status sbit__absorb_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    const sbit__cross_pair *pair = (const sbit__cross_pair *)user;
    const sbit_tensor *y = batch->x;
    int64_t tail = 1;
    (void)error;
    for (int32_t i = 2; pair->a->layer.conv && i < y->rank; i++) {
        tail *= y->dims[i];
    }
    const int64_t count = batch->rows > 0 ? sbit_tensor_count(y) / batch->rows * batch->samples : 0;
    for (int64_t i = 0; i < count; i++) {
        double *least = &pair->taken[i / tail % pair->a->out];
        const double here = (double)((const float *)y->data)[i];
        *least = here < *least ? here : *least;
    }
    return SBIT_OK;
}

/* What is taken; nothing where a channel is not always positive. *channels: how many give. */
static void sbit__absorb_limit(const sbit__cross *x, const sbit__cross_pair *pair, size_t *channels)
{
    double bound = (double)INFINITY;
    if (pair->clip.idx != 0) {
        sbit__cross_clip(x->graph, sbit_graph_node(x->graph, pair->clip), &bound);
    }
    for (int64_t c = 0; c < pair->a->out; c++) {
        double *taken = &pair->taken[c];
        if (pair->bound.idx != 0) {
            bound = (double)((const float *)sbit_graph_value(x->graph, pair->bound)->constant.data)[c];
        }
        *taken = *taken < bound ? *taken : bound;
        *taken = *taken > 0.0 && !isinf(*taken) ? *taken : 0.0; /* infinite: nothing was seen */
        *channels += *taken > 0.0 ? 1 : 0;
    }
}

/* b's bias takes its weights times what a's channels give. */
static sbit_status sbit__absorb_give(sbit__cross *x, const sbit__cross_pair *pair, sbit_error *error)
{
    const sbit__cross_layer *b = pair->b;
    const sbit__layer *l = &b->layer;
    const int64_t window = l->conv ? l->kernel[0] * l->kernel[1] * l->kernel[2] : 1;
    const int64_t in = b->in / l->groups; /* channels of a group */
    const float *old = (const float *)sbit_graph_value(x->graph, b->bias)->constant.data;
    float *bias = (float *)sbit__arena_array(&x->arena, (size_t)b->out, sizeof *bias);
    if (bias == NULL) {
        return sbit__fail_oom(error, (size_t)b->out * sizeof *bias);
    }
    for (int64_t row = 0; row < b->out; row++) {
        double sum = (double)old[row];
        for (int64_t k = 0; k < l->depth; k++) {
            sum += (double)b->w[row * l->row_step + k * l->depth_step] *
                   pair->taken[row / l->rows * in + k / window];
        }
        bias[row] = (float)sum;
    }
    return sbit__cross_store(x, b->bias, bias, error);
}

static sbit_status sbit__absorb_find(sbit__cross *x, const sbit_feed *feed, size_t *channels, sbit_error *error)
{
    sbit_walk *walk = NULL;
    SBIT__TRY(sbit_walk_create(x->quant, feed, NULL, &walk, error));
    sbit_status status = SBIT_OK;
    for (size_t i = 0; i < x->pair_count && status == SBIT_OK; i++) {
        sbit__cross_pair *pair = &x->pairs[i];
        const sbit_node *node = pair->a->layer.node;
        for (int64_t c = 0; c < pair->a->out; c++) {
            pair->taken[c] = (double)INFINITY;
        }
        status = sbit__walk_to_value(walk, sbit__cross_reader(x->graph, node)->id, node->outputs[0],
                                     sbit__absorb_see, pair, error);
        sbit__absorb_limit(x, pair, channels);
    }
    sbit_walk_destroy(walk);
    return status;
}

static sbit_status sbit__cross_absorb(sbit__cross *x, const sbit_feed *feed, sbit_error *error)
{
    size_t channels = 0;
    SBIT__TRY(sbit__absorb_find(x, feed, &channels, error));
    for (size_t i = 0; i < x->pair_count && channels > 0; i++) {
        const sbit__cross_pair *pair = &x->pairs[i];
        SBIT__TRY(sbit__absorb_give(x, pair, error));
        SBIT__TRY(sbit__cross_divide(x, pair, pair->a->bias, error));
        SBIT__TRY(sbit__cross_divide(x, pair, pair->bound, error));
        SBIT__TRY(sbit__cross_bound(x, pair, error));
    }
    sbit__log(x->quant->ctx, SBIT_LOG_INFO, "bias_absorption: %u channels between %u pairs of layers",
              (unsigned)channels, (unsigned)x->pair_count);
    return SBIT_OK;
}

/* >>step-cross-layer run */
static sbit_status sbit__cross_work(sbit__cross *x, const sbit_feed *feed, sbit_error *error)
{
    const size_t nodes = sbit_graph_node_limit(x->graph);
    x->layers = (sbit__cross_layer *)sbit__arena_array(&x->arena, nodes, sizeof *x->layers);
    x->pairs = (sbit__cross_pair *)sbit__arena_array(&x->arena, nodes, sizeof *x->pairs);
    if (x->layers == NULL || x->pairs == NULL) {
        return sbit__fail_oom(error, nodes * (sizeof *x->layers + sizeof *x->pairs));
    }
    SBIT__TRY(sbit__cross_find(x, error));
    return x->absorbs ? sbit__cross_absorb(x, feed, error) : sbit__cross_equalize(x, error);
}

static sbit_status sbit__cross_begin(void *state, const sbit_options *options, const sbit_feed *feed, bool absorbs,
                                     sbit_error *error)
{
    sbit__cross x;
    memset(&x, 0, sizeof x);
    x.quant = (sbit_quant *)state;
    x.graph = sbit_quant_float_graph(x.quant);
    x.options = options;
    x.absorbs = absorbs;
    sbit__arena_init(&x.arena, sbit_ctx_allocator(x.quant->ctx));
    const sbit_status status = sbit__cross_work(&x, feed, error);
    sbit__arena_deinit(&x.arena);
    return status;
}

static sbit_status sbit__cross_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                   sbit_error *error)
{
    return sbit__cross_begin(state, options, feed, false, error);
}

static sbit_status sbit__absorb_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                    sbit_error *error)
{
    return sbit__cross_begin(state, options, feed, true, error);
}

SBIT__FN const sbit_step_row *sbit__step_bias_absorption(void)
{
    static const sbit_step_row row = {
        {"bias_absorption", "what channels always have above 0 goes into the bias of the layer behind",
         SBIT_TARGET_WEIGHT, NULL, 0},
        SBIT_STAGE_FLOAT_GRAPH,
        true,
        sbit__absorb_run,
    };
    return &row;
}

SBIT__FN const sbit_step_row *sbit__step_cross_layer(void)
{
    static const sbit_step_row row = {
        {"cross_layer", "equal ranges for the channels between two layers, without data",
         SBIT_TARGET_WEIGHT, sbit__cross_keys, SBIT__COUNT_OF(sbit__cross_keys)},
        SBIT_STAGE_FLOAT_GRAPH,
        false,
        sbit__cross_run,
    };
    return &row;
}
