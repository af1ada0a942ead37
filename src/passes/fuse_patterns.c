/* fuse_patterns.c: operators that exporters write with others. >>pass-fuse-patterns
 *
 *     Min, Max of constants, Clip of Clip, Relu and Clip         one Clip or Relu
 *     clip(x + 3, 0, 6) / 6                                      HardSigmoid
 *     x * clip(x + 3, 0, 6) / 6, x * HardSigmoid(x)              HardSwish (opset 14)
 *     0.5 * x * (1 + erf(x / sqrt(2)))                           Gelu (opset 20)
 *     x - mean over its deviation                                LayerNormalization (opset 17)
 *     LSTM, GRU, RNN with an initial state of zeros              without
 * Where the model's opset has no such operator its nodes stay; the opset is never raised here.
 */
#include "passes_private.h"

/* >>Clip */

typedef struct sbit__clip_range {
    double min, max; /* infinite: no bound */
    sbit_value_id x;
} sbit__clip_range;

static bool sbit__clip_bound(const sbit_graph *graph, const sbit_node *node, size_t input,
                             double *bound)
{
    const sbit_tensor *tensor = sbit__const_in(graph, node, input);
    if (sbit__node_in(node, input).idx == 0) {
        return true;
    }
    if (tensor == NULL || sbit_tensor_count(tensor) != 1 || !sbit__is_float(tensor->dtype)) {
        return false;
    }
    *bound = sbit__tensor_f64_at(tensor, 0);
    return *bound == *bound;
}

/* What a Clip, Relu, Min or Max with a constant does; false if it is none of these. */
static bool sbit__clip_read(const sbit__rewrite *rw, const sbit_node *node, sbit__clip_range *out)
{
    double c = 0.0;
    out->min = -HUGE_VAL;
    out->max = HUGE_VAL;
    if (node == NULL || node->input_count == 0) {
        return false;
    }
    out->x = node->inputs[0];
    if (sbit__is_op(node, "Relu")) {
        out->min = 0.0;
        return true;
    }
    if (sbit__is_op(node, "Clip") && rw->opset >= 11) {
        return sbit__clip_bound(rw->graph, node, 1, &out->min) &&
               sbit__clip_bound(rw->graph, node, 2, &out->max);
    }
    if (sbit__is_op(node, "Clip") && rw->opset >= 6) {
        out->min = (double)sbit_node_float(node, "min", -FLT_MAX);
        out->max = (double)sbit_node_float(node, "max", FLT_MAX);
        return true;
    }
    if ((!sbit__is_op(node, "Min") && !sbit__is_op(node, "Max")) || node->input_count != 2 ||
        rw->opset < 8) {
        return false;
    }
    for (size_t side = 0; side < 2; side++) {
        const sbit_tensor *tensor = sbit__const_in(rw->graph, node, side);
        const sbit_value_id x = node->inputs[1 - side];
        if (tensor != NULL && tensor->rank <= sbit__facts_type(&rw->facts, x)->rank &&
            sbit__clip_bound(rw->graph, node, side, &c)) {
            out->x = x;
            *(sbit__is_op(node, "Min") ? &out->max : &out->min) = c;
            return true;
        }
    }
    return false;
}

static bool sbit__clip_bounded(sbit_dtype dtype, double bound)
{
    const double most = dtype == SBIT_F64 ? DBL_MAX : (double)FLT_MAX;
    return bound < most && bound > -most;
}

/* Puts the operator with that range in the place of `node`. */
static sbit_status sbit__clip_write(sbit__rewrite *rw, const sbit_node *node,
                                    const sbit__clip_range *range, sbit_error *error)
{
    const sbit_dtype dtype = sbit__facts_type(&rw->facts, range->x)->dtype;
    sbit_value_id inputs[3] = {{0}, {0}, {0}};
    sbit_attr attrs[2];
    size_t count = 0;
    inputs[0] = range->x;
    if (range->min == 0.0 && !sbit__clip_bounded(dtype, range->max)) {
        return sbit__replace_node(rw->graph, node, "Relu", inputs, 1, NULL, 0, 1, error);
    }
    if (rw->opset < 11) {
        if (sbit__clip_bounded(dtype, range->min)) {
            attrs[count++] = sbit__attr_float("min", (float)range->min);
        }
        if (sbit__clip_bounded(dtype, range->max)) {
            attrs[count++] = sbit__attr_float("max", (float)range->max);
        }
        return sbit__replace_node(rw->graph, node, "Clip", inputs, 1, attrs, count, 1, error);
    }
    count = 1;
    if (sbit__clip_bounded(dtype, range->min)) {
        SBIT__TRY(sbit__add_scalar(rw->graph, "clip_min", dtype, 0, range->min, &inputs[1], error));
        count = 2;
    }
    if (sbit__clip_bounded(dtype, range->max)) {
        SBIT__TRY(sbit__add_scalar(rw->graph, "clip_max", dtype, 0, range->max, &inputs[2], error));
        count = 3;
    }
    return sbit__replace_node(rw->graph, node, "Clip", inputs, count, NULL, 0, 1, error);
}

static sbit_status sbit__clip_join(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    sbit__clip_range outer, inner;
    const sbit_node *before = NULL;
    const bool plain = sbit__is_op(node, "Relu") || sbit__is_op(node, "Clip");
    bool joined = false;
    if (!sbit__clip_read(rw, node, &outer) || outer.min > outer.max) {
        return SBIT_OK;
    }
    const sbit_dtype dtype = sbit__facts_type(&rw->facts, outer.x)->dtype;
    if (!sbit__is_float(dtype) || (dtype == SBIT_F64 && rw->opset < 11)) {
        return SBIT_OK; /* Clip-6 bounds float64 by attributes, which are float32 */
    }
    if (!sbit__clip_bounded(dtype, outer.min) && !sbit__clip_bounded(dtype, outer.max) &&
        rw->opset >= 11) {
        return sbit__bypass(rw, node, outer.x, error);
    }
    before = sbit__producer(rw->graph, outer.x);
    if (sbit__clip_read(rw, before, &inner) && sbit__sole_use(rw->graph, outer.x) &&
        sbit__single_output(rw->graph, before) && inner.min <= inner.max &&
        inner.min <= outer.max && outer.min <= inner.max) {
        outer.min = inner.min > outer.min ? inner.min : outer.min;
        outer.max = inner.max < outer.max ? inner.max : outer.max;
        outer.x = inner.x;
        joined = true;
    }
    /* A Clip that is a Relu; a single Min or Max stays. */
    if (!joined && !(sbit__is_op(node, "Clip") && outer.min == 0.0 &&
                     !sbit__clip_bounded(dtype, outer.max) && outer.max > 0.0)) {
        return SBIT_OK;
    }
    if (!joined && !plain) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__clip_write(rw, node, &outer, error));
    rw->changes++;
    return SBIT_OK;
}

/* >>products: the factors of x * y * c / d as leaves and one number */

#define SBIT__PRODUCT_LEAVES 4
typedef struct sbit__product {
    sbit_value_id leaves[SBIT__PRODUCT_LEAVES];
    int32_t count;
    double factor;
} sbit__product;

static bool sbit__product_walk(const sbit_graph *graph, sbit_value_id id, bool root,
                               sbit__product *out)
{
    const sbit_node *node = sbit__producer(graph, id);
    double c = 0.0;
    if (!root && sbit__scalar_const(graph, id, &c)) {
        out->factor *= c;
        return true;
    }
    if ((root || sbit__sole_use(graph, id)) && node != NULL && node->input_count == 2) {
        if (sbit__is_op(node, "Mul")) {
            return sbit__product_walk(graph, node->inputs[0], false, out) &&
                   sbit__product_walk(graph, node->inputs[1], false, out);
        }
        if (sbit__is_op(node, "Div") && sbit__scalar_const(graph, node->inputs[1], &c) &&
            c != 0.0) {
            out->factor /= c;
            return sbit__product_walk(graph, node->inputs[0], false, out);
        }
    }
    if (out->count == SBIT__PRODUCT_LEAVES) {
        return false;
    }
    out->leaves[out->count++] = id;
    return true;
}

static bool sbit__product_of(const sbit_graph *graph, const sbit_node *node, sbit__product *out)
{
    memset(out, 0, sizeof *out);
    out->factor = 1.0;
    return sbit__product_walk(graph, node->outputs[0], true, out);
}

static bool sbit__product_near(double a, double b)
{
    return fabs(a - b) <= 2e-6 * fabs(b); /* constants are written with about 7 digits */
}

/* Add(x, c) with that number, used once; the x. */
static sbit_value_id sbit__pattern_plus(const sbit_graph *graph, sbit_value_id id, double wanted)
{
    const sbit_node *add = sbit__sole_producer(graph, id, "Add");
    const sbit_value_id none = {0};
    double c = 0.0;
    for (size_t side = 0; add != NULL && side < 2; side++) {
        if (sbit__scalar_const(graph, add->inputs[side], &c) && sbit__product_near(c, wanted)) {
            return add->inputs[1 - side];
        }
    }
    return none;
}

/* The new node has x's shape, as the old ones have: their constants are single numbers, whose rank
 * must not be larger than x's. float32 only: which constant stands for 1/6 is a matter of
 * precision.
 */
static bool sbit__pattern_keeps_shape(const sbit__rewrite *rw, sbit_value_id x, sbit_value_id y)
{
    const sbit_type *a = sbit__facts_type(&rw->facts, x), *b = sbit__facts_type(&rw->facts, y);
    return a->dtype == SBIT_F32 && a->rank >= 0 && a->rank == b->rank;
}

/* >>hard activations */

/* clip(x + 3, 0, 6): the x. */
static sbit_value_id sbit__pattern_clip6(const sbit__rewrite *rw, sbit_value_id id)
{
    const sbit_node *node = sbit__producer(rw->graph, id);
    const sbit_value_id none = {0};
    sbit__clip_range range;
    if (node == NULL || !sbit__sole_use(rw->graph, id) || !sbit__single_output(rw->graph, node) ||
        !sbit__clip_read(rw, node, &range) || range.min != 0.0 || range.max != 6.0) {
        return none;
    }
    return sbit__pattern_plus(rw->graph, range.x, 3.0);
}

/* HardSigmoid(x) = clip(x / 6 + 0.5, 0, 1): the x. */
static sbit_value_id sbit__pattern_hard_sigmoid(const sbit__rewrite *rw, sbit_value_id id)
{
    const sbit_node *node = sbit__sole_producer(rw->graph, id, "HardSigmoid");
    const sbit_value_id none = {0};
    if (node == NULL ||
        !sbit__product_near((double)sbit_node_float(node, "alpha", 0.2f), 1.0 / 6.0) ||
        sbit_node_float(node, "beta", 0.5f) != 0.5f) {
        return none;
    }
    return node->inputs[0];
}

static sbit_status sbit__pattern_hard(sbit__rewrite *rw, const sbit_node *node, bool *done,
                                      sbit_error *error)
{
    sbit_attr attrs[2] = {sbit__attr_float("alpha", 1.0f / 6.0f), sbit__attr_float("beta", 0.5f)};
    sbit__product product;
    if (!sbit__product_of(rw->graph, node, &product) || product.count > 2) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < product.count; i++) {
        const sbit_value_id clip = sbit__pattern_clip6(rw, product.leaves[i]);
        const sbit_value_id hard = sbit__pattern_hard_sigmoid(rw, product.leaves[i]);
        const sbit_value_id x = clip.idx != 0 ? clip : hard;
        if (x.idx == 0 || !sbit__pattern_keeps_shape(rw, x, node->outputs[0]) ||
            !sbit__product_near(product.factor, clip.idx != 0 ? 1.0 / 6.0 : 1.0)) {
            continue;
        }
        if (product.count == 2 && product.leaves[1 - i].idx == x.idx && rw->opset >= 14) {
            *done = true;
            return sbit__replace_node(rw->graph, node, "HardSwish", &x, 1, NULL, 0, 1, error);
        }
        if (product.count == 1 && clip.idx != 0 && rw->opset >= 6) {
            *done = true;
            return sbit__replace_node(rw->graph, node, "HardSigmoid", &x, 1, attrs, 2, 1, error);
        }
    }
    return SBIT_OK;
}

/* >>Gelu */

/* erf(x / sqrt(2)) + 1, used once: the x. */
static sbit_value_id sbit__pattern_erf(const sbit__rewrite *rw, sbit_value_id id)
{
    const sbit_value_id inner = sbit__pattern_plus(rw->graph, id, 1.0), none = {0};
    const sbit_node *erf = inner.idx != 0 ? sbit__sole_producer(rw->graph, inner, "Erf") : NULL;
    const sbit_node *scaled = erf != NULL ? sbit__producer(rw->graph, erf->inputs[0]) : NULL;
    sbit__product product;
    if ((!sbit__is_op(scaled, "Mul") && !sbit__is_op(scaled, "Div")) ||
        !sbit__sole_use(rw->graph, erf->inputs[0]) ||
        !sbit__product_of(rw->graph, scaled, &product) || product.count != 1 ||
        !sbit__product_near(product.factor, 0.70710678118654752440)) {
        return none;
    }
    return product.leaves[0];
}

/* Before opset 20 com.microsoft has it, for graphs
 * that nobody is given: those that import the domain of internal rows. */
static sbit_status sbit__pattern_gelu(sbit__rewrite *rw, const sbit_node *node, bool *done,
                                      sbit_error *error)
{
    const char *domain = rw->opset < 20 ? "com.microsoft" : "";
    sbit__product product;
    if ((rw->opset < 20 && sbit_graph_opset(rw->graph, "sbit") < 1) ||
        !sbit__product_of(rw->graph, node, &product) || product.count != 2 ||
        !sbit__product_near(product.factor, 0.5)) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < 2; i++) {
        const sbit_value_id x = sbit__pattern_erf(rw, product.leaves[i]);
        if (x.idx != 0 && x.idx == product.leaves[1 - i].idx &&
            sbit__pattern_keeps_shape(rw, x, node->outputs[0])) {
            *done = true;
            return sbit__replace_with(rw->graph, node, domain, "Gelu", &x, 1, NULL, 0, 1, error);
        }
    }
    return SBIT_OK;
}

/* >>LayerNormalization */

/* A scale of ones for the normalized axes, which must be known; none if they are not. */
static sbit_status sbit__pattern_ones(sbit__rewrite *rw, const sbit__layer_norm *norm,
                                      sbit_value_id *out, sbit_error *error)
{
    const sbit_type *x = sbit__facts_type(&rw->facts, norm->x);
    int64_t dims[SBIT_MAX_RANK];
    sbit_tensor ones;
    sbit_status status = SBIT_OK;
    out->idx = 0;
    for (int32_t i = norm->axis; i < x->rank; i++) {
        if (!sbit__dim_known(x->dims[i])) {
            return SBIT_OK;
        }
        dims[i - norm->axis] = x->dims[i].value;
    }
    SBIT__TRY(sbit_tensor_alloc(rw->ctx, x->dtype, x->rank - norm->axis, dims, &ones, error));
    for (int64_t i = 0; i < sbit_tensor_count(&ones); i++) {
        sbit__tensor_set_f64(&ones, i, 1.0);
    }
    status = sbit_graph_add_constant(rw->graph, "layer_norm_scale", &ones, out, error);
    sbit_tensor_free(rw->ctx, &ones);
    return status;
}

static sbit_status sbit__pattern_layer_norm(sbit__rewrite *rw, const sbit_node *node, bool *done,
                                            sbit_error *error)
{
    sbit__layer_norm norm;
    sbit_value_id inputs[3];
    sbit_attr attrs[2];
    const sbit_node *last = NULL;
    if (rw->opset < 17 || !sbit__match_layer_norm(rw->graph, node->id, &rw->facts, &norm) ||
        sbit__facts_type(&rw->facts, norm.x)->dtype != SBIT_F32) { /* epsilon becomes one */
        return SBIT_OK;
    }
    inputs[0] = norm.x;
    inputs[1] = norm.scale;
    inputs[2] = norm.bias;
    if (norm.scale.idx == 0) {
        SBIT__TRY(sbit__pattern_ones(rw, &norm, &inputs[1], error));
        if (inputs[1].idx == 0) {
            return SBIT_OK;
        }
    }
    attrs[0] = sbit__attr_int("axis", norm.axis - norm.rank);
    attrs[1] = sbit__attr_float("epsilon", (float)norm.epsilon);
    last = sbit__producer(rw->graph, norm.output);
    SBIT__TRY(sbit__replace_node(rw->graph, last, "LayerNormalization", inputs,
                                 norm.bias.idx != 0 ? 3 : 2, attrs, 2, 1, error));
    *done = true;
    return SBIT_OK;
}

static sbit_status sbit__pattern_product(sbit__rewrite *rw, const sbit_node *node,
                                         sbit_error *error)
{
    bool done = false;
    if (node->input_count != 2 || node->output_count != 1 || rw->opset < 7) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__pattern_hard(rw, node, &done, error));
    if (!done) {
        SBIT__TRY(sbit__pattern_gelu(rw, node, &done, error));
    }
    if (!done) {
        SBIT__TRY(sbit__pattern_layer_norm(rw, node, &done, error));
    }
    rw->changes += done ? 1 : 0;
    return SBIT_OK;
}

/* In a graph that is trained: the others may add constants, which would be trained. */
static sbit_status sbit__pattern_only_gelu(sbit__rewrite *rw, const sbit_node *node,
                                           sbit_error *error)
{
    bool done = false;
    if (node->input_count == 2 && node->output_count == 1 && rw->opset >= 7) {
        SBIT__TRY(sbit__pattern_gelu(rw, node, &done, error));
    }
    rw->changes += done ? 1 : 0;
    return SBIT_OK;
}

/* >>initial states */

/* All elements are zero, because it is only moved from such a constant or ConstantOfShape. */
static bool sbit__pattern_zeros(const sbit_graph *graph, sbit_value_id id, int32_t depth)
{
    const char *const moves[] = {"Slice", "Reshape", "Squeeze",   "Unsqueeze", "Identity", "Expand",
                                 "Tile",  "Split",   "Transpose", "Cast",      "Flatten"};
    const sbit_tensor *tensor = sbit__graph_constant(graph, id);
    const sbit_node *node = sbit__producer(graph, id);
    if (tensor != NULL) {
        const int64_t count = sbit_tensor_count(tensor);
        for (int64_t i = 0; i < count; i++) {
            if (sbit__tensor_f64_at(tensor, i) != 0.0) {
                return false;
            }
        }
        return sbit__is_float(tensor->dtype);
    }
    if (sbit__is_op(node, "ConstantOfShape")) {
        const sbit_attr *value = sbit_node_attr(node, "value");
        return value == NULL ||
               (value->type == SBIT_ONNX_ATTR_TENSOR && sbit_tensor_count(&value->t) == 1 &&
                sbit__tensor_f64_at(&value->t, 0) == 0.0);
    }
    for (size_t i = 0; node != NULL && depth < 16 && i < SBIT__COUNT_OF(moves); i++) {
        if (sbit__is_op(node, moves[i])) {
            return sbit__pattern_zeros(graph, node->inputs[0], depth + 1);
        }
    }
    return false;
}

static sbit_status sbit__pattern_states(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_value_id none = {0};
    for (size_t i = 5; i <= 6 && i < node->input_count; i++) {
        if (node->inputs[i].idx != 0 && sbit__pattern_zeros(rw->graph, node->inputs[i], 0)) {
            SBIT__TRY(sbit_graph_set_node_input(rw->graph, node->id, i, none, error));
            rw->changes++;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__pattern_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                     int64_t *changes, sbit_error *error)
{
    static const sbit__rule rules[] = {
        {"Clip", sbit__clip_join},      {"Relu", sbit__clip_join},
        {"Min", sbit__clip_join},       {"Max", sbit__clip_join},
        {"Mul", sbit__pattern_product}, {"Div", sbit__pattern_product},
        {"LSTM", sbit__pattern_states}, {"GRU", sbit__pattern_states},
        {"RNN", sbit__pattern_states},
    };
    static const sbit__rule own[] = {{"Mul", sbit__pattern_only_gelu},
                                     {"Div", sbit__pattern_only_gelu}};
    const bool closed = sbit_graph_opset(graph, "sbit") > 0;
    return sbit__apply_rules(graph, desc, closed ? own : rules,
                             closed ? SBIT__COUNT_OF(own) : SBIT__COUNT_OF(rules), changes, error);
}

SBIT__FN const sbit_pass_row *sbit__pass_fuse_patterns(void)
{
    static const sbit_pass_row row = {{"fuse_patterns",
                                       "operators written with others: Clip, HardSwish, Gelu, "
                                       "LayerNormalization",
                                       0, NULL, 0},
                                      false,
                                      sbit__pattern_run};
    return &row;
}

#undef SBIT__PRODUCT_LEAVES
