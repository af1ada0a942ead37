/* dequantize.c: models that are quantized already: their floats, their scales, other formats.
 * >>dequantize
 *
 * Called by: users, quant.c, formats.c. Calls: the graph, formats' table.
 *   0. integers made while running, and weights in com.microsoft's blocks: >>dequantize-running
 *   1. operators on integers become DequantizeLinear - operator - QuantizeLinear again
 *   2. DequantizeLinear of constants becomes a float constant: weights, biases
 *   3. QuantizeLinear and the other DequantizeLinear vanish: what lay between is float. Inputs and
 *      outputs of the model that were integers are floats then. A Clip that says the width of few
 *      bits (metadata "bits") goes with its QuantizeLinear; a Relu that the integers' range stood
 *      for is there again.
 * On the way scales are noted, by the names of the float tensors.
 */
#include "quant_private.h"

#include <stdlib.h> /* atoi */

/* >>dequantize scales */

/* Notes the scales of `node`, a QuantizeLinear or DequantizeLinear, as those of a tensor. */
static sbit_status sbit__learned_add(sbit__learned_list *list, const sbit_graph *graph,
                                     const sbit_node *node, const char *name, uint32_t target,
                                     sbit_error *error)
{
    const sbit_tensor *scale = sbit__format_constant(graph, node, 1);
    const sbit_tensor *zero = sbit__format_constant(graph, node, 2);
    if (list == NULL || scale == NULL ||
        (node->input_count > 2 &&
         (zero == NULL || sbit_tensor_count(zero) != sbit_tensor_count(scale)))) {
        return SBIT_OK;
    }
    const size_t count = (size_t)sbit_tensor_count(scale);
    sbit__learned *l = (sbit__learned *)sbit__arena_alloc(list->arena, sizeof *l);
    float *scales = (float *)sbit__arena_array(list->arena, count + 1, sizeof *scales);
    int32_t *zeros = (int32_t *)sbit__arena_array(list->arena, count + 1, sizeof *zeros);
    const char *copy = sbit__arena_strdup(list->arena, name, strlen(name));
    if (l == NULL || scales == NULL || zeros == NULL || copy == NULL) {
        return sbit__fail_oom(error, count * 8);
    }
    for (size_t i = 0; i < count; i++) {
        scales[i] = (float)sbit__tensor_f64_at(scale, (int64_t)i);
        zeros[i] = zero != NULL ? (int32_t)sbit__tensor_i64_at(zero, (int64_t)i) : 0;
    }
    const sbit_dtype stored = sbit__streq(node->op_type, "DequantizeLinear")
                                  ? sbit_graph_value(graph, node->inputs[0])->type.dtype
                                  : sbit_graph_value(graph, node->outputs[0])->type.dtype;
    const char *bits = sbit__graph_node_metadata(graph, node->id, "bits");
    l->name = copy;
    l->target = target;
    l->dtype = zero != NULL ? zero->dtype : stored != SBIT_F32 ? stored : SBIT_U8;
    l->bits = bits != NULL ? atoi(bits) : (int32_t)sbit_dtype_bits((int32_t)l->dtype);
    l->block = sbit_node_int(node, "block_size", 0);
    l->axis = count == 1 && l->block == 0 ? -1 : (int32_t)sbit_node_int(node, "axis", 1);
    l->count = (int64_t)count;
    l->scale = scales;
    l->zero_point = zeros;
    l->next = list->first;
    list->first = l;
    list->count++;
    return SBIT_OK;
}

/* The numbers of a grid begin elsewhere: uint8 or int8. */
static int64_t sbit__learned_low(const sbit__learned *l)
{
    const bool is_signed = l->dtype == SBIT_I8 || l->dtype == SBIT_I16 || l->dtype == SBIT_I4;
    return is_signed ? -((int64_t)1 << (l->bits - 1)) : 0;
}

/* True if the site's grid can say the same; *shift is added to zero points. */
static bool sbit__learned_fits(const sbit__learned *l, const sbit__site *site, int32_t *shift)
{
    const sbit_grid *grid = &site->settings.grid;
    const int32_t rank = sbit__site_value(site)->type.rank;
    const int32_t axis = l->axis < 0 && l->axis != -1 ? l->axis + rank : l->axis;
    int32_t largest;
    const sbit_dtype float8 = sbit__quantizer_float8(site->settings.quantizer, &largest);
    const bool floats = l->dtype == SBIT_F8E4M3FN || l->dtype == SBIT_F8E5M2;
    bool fits = (floats ? l->dtype == float8 : float8 == SBIT_UNDEFINED) &&
                l->target == site->target && sbit__streq(l->name, site->tensor) &&
                l->bits == grid->bits && l->block == site->block &&
                (l->count == 1 || (l->count == sbit__site_parts(site) && axis == site->axis));
    *shift = floats ? 0 : (int32_t)(sbit__site_lowest(site) - sbit__learned_low(l));
    for (int64_t i = 0; fits && i < l->count; i++) {
        const int64_t zero = (int64_t)l->zero_point[i] + *shift;
        const int32_t middle = sbit__qparams_zero_point(0.0f, 1.0f, true, grid->qmin, grid->qmax);
        fits = l->scale[i] > 0.0f && l->scale[i] - l->scale[i] == 0.0f && zero >= grid->qmin &&
               zero <= grid->qmax && (!grid->symmetric || zero == middle);
    }
    return fits;
}

SBIT__FN sbit_status sbit__learned_fix(sbit_quant *quant, sbit__site *site, const sbit__learned *l,
                                       bool *fixed, sbit_error *error)
{
    const int64_t parts = sbit__site_parts(site); /* one scale serves all of them */
    int32_t shift = 0;
    *fixed = false;
    if (!sbit__site_wanted(site) || !sbit__learned_fits(l, site, &shift)) {
        return SBIT_OK;
    }
    float *scales = (float *)sbit__arena_array(&quant->arena, (size_t)parts + 1, sizeof *scales);
    int32_t *zeros = (int32_t *)sbit__arena_array(&quant->arena, (size_t)parts + 1, sizeof *zeros);
    if (scales == NULL || zeros == NULL) {
        return sbit__fail_oom(error, (size_t)parts * sizeof *zeros);
    }
    for (int64_t k = 0; k < parts; k++) {
        scales[k] = l->scale[l->count > 1 ? k : 0];
        zeros[k] = l->zero_point[l->count > 1 ? k : 0] + shift;
    }
    site->learned = *fixed = true;
    site->change.scale = scales;
    site->change.zero_point = zeros;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__learned_apply(sbit_quant *quant, const sbit__learned_list *list,
                                         sbit_error *error)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        bool fixed = site->change.scale != NULL;
        for (const sbit__learned *l = list->first; l != NULL && !fixed; l = l->next) {
            SBIT__TRY(sbit__learned_fix(quant, site, l, &fixed, error));
        }
    }
    return SBIT_OK;
}

/* >>dequantize constants */

SBIT__FN bool sbit__dequantize_is(const sbit_node *node, const char *op)
{
    return sbit__streq(node->op_type, op) &&
           (node->domain[0] == '\0' || sbit__streq(node->domain, "com.microsoft"));
}

/* "w_quantized" (ours), "w_quantized_1" are w again. */
SBIT__FN void sbit__dequantize_name(const char *name, char *text, size_t size)
{
    static const char suffix[] = "_quantized";
    snprintf(text, size, "%s", name);
    char *at = strstr(text, suffix);
    while (at != NULL && at[sizeof suffix - 1] != '\0') {
        at = strstr(at + 1, suffix);
    }
    if (at != NULL && at != text) {
        *at = '\0';
    }
}

/* The floats of DequantizeLinear of a constant: (q - zero) * scale in float32. */
static sbit_status sbit__dequantize_constant(sbit_graph *graph, const sbit_node *node,
                                             sbit__learned_list *list, sbit_error *error)
{
    const sbit_tensor *q = sbit__format_constant(graph, node, 0);
    const sbit_tensor *scale = sbit__format_constant(graph, node, 1);
    const sbit_tensor *zero = sbit__format_constant(graph, node, 2);
    const int64_t block = sbit_node_int(node, "block_size", 0);
    int64_t axis =
        sbit_tensor_count(scale) == 1 && block == 0 ? -1 : sbit_node_int(node, "axis", 1);
    axis = axis < -1 || (axis == -1 && sbit_tensor_count(scale) != 1) ? axis + q->rank : axis;
    const bool numbers = (SBIT_T(scale->dtype) & SBIT_T_FLOATS) != 0 && q->dtype != SBIT_STRING;
    const sbit_parts parts = sbit_parts_of(q, (int32_t)axis, block > 0 ? block : 0);
    char name[512];
    sbit_tensor floats;
    sbit_value_id y;
    if (!numbers || parts.count != sbit_tensor_count(scale) || axis >= q->rank || axis < -1 ||
        (zero != NULL && sbit_tensor_count(zero) != parts.count)) {
        return sbit__fail(error, SBIT_ERR_SHAPE, node->name,
                          "DequantizeLinear '%s': %lld scales do not fit its axis", node->name,
                          (long long)sbit_tensor_count(scale));
    }
    SBIT__TRY(
        sbit_tensor_alloc(sbit_graph_ctx(graph), scale->dtype, q->rank, q->dims, &floats, error));
    sbit_runs runs = sbit_runs_of(&parts);
    while (sbit_runs_next(&runs)) {
        const float s = (float)sbit__tensor_f64_at(scale, runs.part);
        const float z = zero != NULL ? (float)sbit__tensor_f64_at(zero, runs.part) : 0.0f;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const float value = ((float)sbit__tensor_f64_at(q, i) - z) * s;
            sbit__tensor_set_f64(&floats, i, (double)value);
        }
    }
    const sbit_value_id old = node->outputs[0];
    const bool weight = q->dtype != SBIT_I32;
    sbit__dequantize_name(sbit_graph_value(graph, node->inputs[0])->name, name, sizeof name);
    sbit_status status = sbit__graph_take_constant(graph, name, &floats, &y, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(sbit_graph_ctx(graph), &floats);
        return status;
    }
    if (weight) {
        SBIT__TRY(sbit__learned_add(list, graph, node, sbit_graph_value(graph, y)->name,
                                    SBIT_TARGET_WEIGHT, error));
    }
    return sbit_graph_replace_uses(graph, old, y, error);
}

/* >>dequantize activations */

/* What a DequantizeLinear of no constant reads comes from a QuantizeLinear or an input, maybe
 * through operators that move elements; integers of other origin have no floats. */
static bool sbit__dequantize_known(const sbit_graph *graph, sbit_value_id id)
{
    for (int32_t most = 0; most < 1000; most++) {
        const sbit_value_info *value = sbit_graph_value(graph, id);
        if (value->producer.idx == 0) {
            return value->is_input && !value->is_constant;
        }
        const sbit_node *node = sbit_graph_node(graph, value->producer);
        if (sbit__dequantize_is(node, "QuantizeLinear")) {
            return true;
        }
        const sbit_op_row *row =
            sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                               sbit_graph_opset(graph, node->domain));
        if (row == NULL || row->quant == NULL || node->input_count == 0 ||
            (row->quant->flags & SBIT_QUANT_PASS_SCALE) == 0) {
            return false;
        }
        id = node->inputs[0];
    }
    return false;
}

/* What the clamp in front of a QuantizeLinear of few bits reads: Clip, or Max and Min. */
static sbit_value_id sbit__dequantize_unclipped(const sbit_graph *graph, const sbit_node *quantize)
{
    sbit_value_id x = quantize->inputs[0];
    const sbit_node *clip = sbit__format_producer(graph, x);
    if (sbit__graph_node_metadata(graph, quantize->id, "bits") == NULL || clip == NULL ||
        sbit_graph_value(graph, x)->use_count != 1) {
        return x;
    }
    const sbit_node *max =
        sbit__format_is(clip, "Min") ? sbit__format_producer(graph, clip->inputs[0]) : NULL;
    clip = sbit__format_is(max, "Max") ? max : clip;
    return sbit__format_is(clip, "Clip") || clip == max ? clip->inputs[0] : x;
}

/* The value of what a node makes is x, which it reads, maybe behind a clamp that goes too. */
static sbit_status sbit__dequantize_skip(sbit_graph *graph, sbit_node_id id, sbit_value_id x,
                                         sbit_error *error)
{
    const sbit_value_id y = sbit_graph_node(graph, id)->outputs[0];
    SBIT__TRY(sbit_graph_replace_uses(graph, y, x, error));
    for (sbit_value_id at = y; at.idx != x.idx;) {
        const sbit_value_id before = sbit_graph_node(graph, id)->inputs[0];
        sbit_graph_erase_node(graph, id);
        sbit_graph_erase_value(graph, at);
        at = before;
        id = sbit_graph_value(graph, at)->producer;
    }
    return SBIT_OK;
}

/* True if a value is known not to be negative. */
static bool sbit__dequantize_positive(const sbit_graph *graph, sbit_value_id id, int32_t depth)
{
    static const char *const clamps[] = {"Relu",     "Sigmoid", "HardSigmoid", "Softmax",
                                         "Softplus", "Abs",     "Exp",         NULL};
    static const char *const sums[] = {"Add", "Mul", "Concat", "Max", "Sum", NULL};
    static const char *const means[] = {"AveragePool", "GlobalAveragePool", "ReduceMean",
                                        "ReduceSum",   "ReduceMax",         NULL};
    const sbit_node *node = sbit__format_producer(graph, id);
    if (node == NULL || depth == 0) {
        return node == NULL; /* what the caller feeds: nothing is added */
    }
    const sbit_op_row *row = sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                                                sbit_graph_opset(graph, node->domain));
    if (sbit__format_is(node, "Clip")) {
        const sbit_tensor *low = sbit__format_constant(graph, node, 1);
        return low != NULL && sbit__tensor_f64_at(low, 0) >= 0.0;
    }
    const bool all = sbit__word_listed(sums, node->op_type);
    const bool first =
        sbit__word_listed(means, node->op_type) || sbit__dequantize_is(node, "DequantizeLinear") ||
        sbit__dequantize_is(node, "QuantizeLinear") ||
        (row != NULL && row->quant != NULL && (row->quant->flags & SBIT_QUANT_PASS_SCALE) != 0);
    bool positive = all || first;
    for (size_t i = 0; positive && i < (all ? node->input_count : 1); i++) {
        positive = sbit__dequantize_positive(graph, node->inputs[i], depth - 1);
    }
    return positive || sbit__word_listed(clamps, node->op_type);
}

/* Quantizers leave a Relu out where the integers begin with 0 (ONNX Runtime, format qoperator); the
 * float model needs it: Relu, or Clip to 0 .. 6 if they end there. */
static sbit_status sbit__dequantize_clamp(sbit_graph *graph, const sbit_node *node,
                                          sbit_value_id *x, sbit_error *error)
{
    const sbit_tensor *scale = sbit__format_constant(graph, node, 1);
    const sbit_tensor *zero = sbit__format_constant(graph, node, 2);
    const bool eight = zero == NULL || zero->dtype == SBIT_I8 || zero->dtype == SBIT_U8;
    const int64_t least = zero != NULL && zero->dtype == SBIT_I8 ? -128 : 0;
    sbit_value_id inputs[3];
    if (scale == NULL || sbit_tensor_count(scale) != 1 || !eight || x->idx != node->inputs[0].idx ||
        (zero != NULL && sbit__tensor_i64_at(zero, 0) != least) ||
        sbit__dequantize_positive(graph, *x, 16)) {
        return SBIT_OK;
    }
    const double step = sbit__tensor_f64_at(scale, 0), limits[2] = {0.0, 6.0};
    inputs[0] = *x;
    if (fabs(255.0 * step - 6.0) > 0.5 * step || sbit_graph_opset(graph, "") < 11) {
        SBIT__TRY(sbit__format_add(graph, node, "", "Relu", inputs, 1, NULL, 0, x, 1, error));
    } else {
        for (size_t i = 0; i < 2; i++) {
            sbit_tensor limit;
            SBIT__TRY(
                sbit_tensor_alloc(sbit_graph_ctx(graph), scale->dtype, 0, NULL, &limit, error));
            sbit__tensor_set_f64(&limit, 0, limits[i]);
            const sbit_status status =
                sbit__graph_take_constant(graph, "limit", &limit, &inputs[1 + i], error);
            if (status != SBIT_OK) {
                sbit_tensor_free(sbit_graph_ctx(graph), &limit);
                return status;
            }
        }
        SBIT__TRY(sbit__format_add(graph, node, "", "Clip", inputs, 3, NULL, 0, x, 1, error));
    }
    return sbit_graph_set_node_input(graph, node->id, 0, *x, error);
}

static sbit_status sbit__dequantize_node(sbit_graph *graph, sbit_node_id id,
                                         sbit__learned_list *list, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_type unknown = sbit__type_unknown();
    if (sbit__dequantize_is(node, "QuantizeLinear")) {
        sbit_value_id x = sbit__dequantize_unclipped(graph, node);
        SBIT__TRY(sbit__dequantize_clamp(graph, node, &x, error));
        SBIT__TRY(sbit__learned_add(list, graph, node, sbit_graph_value(graph, x)->name,
                                    SBIT_TARGET_ACTIVATION, error));
        return sbit__dequantize_skip(graph, id, x, error);
    }
    if (!sbit__dequantize_is(node, "DequantizeLinear")) {
        for (size_t i = 0; i < node->output_count; i++) { /* floats now, maybe */
            const sbit_value_id y = node->outputs[i];
            const sbit_value_info *value = y.idx != 0 ? sbit_graph_value(graph, y) : NULL;
            if (value != NULL && !value->is_output && value->type.kind == SBIT_KIND_TENSOR &&
                value->type.dtype != SBIT_F32) {
                sbit_graph_set_type(graph, y, &unknown);
            }
        }
        return SBIT_OK;
    }
    const sbit_value_info *x = sbit_graph_value(graph, node->inputs[0]);
    if (x->is_input && (SBIT_T(x->type.dtype) & SBIT_T_FLOATS) == 0) { /* floats from now on */
        const sbit_value_info *scale = sbit_graph_value(graph, node->inputs[1]);
        sbit_type type = x->type;
        type.dtype = scale->type.dtype;
        sbit_graph_set_type(graph, x->id, &type);
        SBIT__TRY(sbit__learned_add(list, graph, node, x->name, SBIT_TARGET_ACTIVATION, error));
    }
    return sbit__dequantize_skip(graph, id, node->inputs[0], error);
}

/* The inputs and outputs that all functions here look at are there. */
static sbit_status sbit__dequantize_well_formed(const sbit_graph *graph, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        const bool pair = sbit__dequantize_is(node, "QuantizeLinear") ||
                          sbit__dequantize_is(node, "DequantizeLinear");
        if (pair &&
            (node->input_count < 2 || node->inputs[0].idx == 0 || node->inputs[1].idx == 0 ||
             node->output_count < 1 || node->outputs[0].idx == 0)) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, node->name,
                              "%s '%s' lacks an input or its output", node->op_type, node->name);
        }
    }
    return SBIT_OK;
}

/* All integers that become floats have a float form. */
static sbit_status sbit__dequantize_check(const sbit_graph *graph, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (sbit__dequantize_is(node, "DequantizeLinear") &&
            !sbit__dequantize_known(graph, node->inputs[0])) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, node->name,
                              "DequantizeLinear '%s' reads integers that neither QuantizeLinear "
                              "nor an input gives: it has no float form",
                              node->name);
        }
    }
    return SBIT_OK;
}

/* Nodes whose integers nobody can follow, by operator. */
static const char *sbit__dequantize_left(const sbit_graph *graph)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (strncmp(node->op_type, "QLinear", 7) == 0 || sbit__streq(node->op_type, "QGemm") ||
            sbit__streq(node->op_type, "DynamicQuantizeLinear") ||
            sbit__streq(node->op_type, "DynamicQuantizeMatMul") ||
            sbit__streq(node->op_type, "MatMulIntegerToFloat")) {
            return node->op_type;
        }
    }
    return NULL;
}

static sbit_status sbit__dequantize_graph(sbit_graph *graph, sbit__learned_list *list,
                                          sbit_error *error)
{
    sbit_node_id next;
    SBIT__TRY(sbit__format_qdq(graph, error));
    SBIT__TRY(sbit__dequantize_well_formed(graph, error));
    const char *left = sbit__dequantize_left(graph);
    if (left != NULL) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, left,
                          "operator %s of this quantized model has no float form here", left);
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = next) {
        const sbit_node *node = sbit_graph_node(graph, id);
        next = sbit_graph_next(graph, id);
        if (sbit__dequantize_is(node, "DequantizeLinear") &&
            sbit__format_constant(graph, node, 0) != NULL &&
            sbit__format_constant(graph, node, 1) != NULL) {
            SBIT__TRY(sbit__dequantize_constant(graph, node, list, error));
        }
    }
    sbit__format_clean(graph);
    SBIT__TRY(sbit__dequantize_check(graph, error));
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = next) {
        next = sbit_graph_next(graph, id);
        SBIT__TRY(sbit__dequantize_node(graph, id, list, error));
    }
    sbit__format_clean(graph);
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(sbit_graph_node(graph, id), b)) != NULL; b++) {
            SBIT__TRY(sbit__dequantize_graph(body, list, error));
        }
    }
    return sbit_graph_sort(graph, error);
}

SBIT__FN sbit_status sbit__dequantize(sbit_graph *graph, sbit__learned_list *list,
                                      sbit_error *error)
{
    static const char *const only[] = {"fold_constants"}; /* what scales and zero points are made of */
    sbit_simplify_desc fold;
    memset(&fold, 0, sizeof fold);
    fold.only = only;
    fold.only_count = SBIT__COUNT_OF(only);
    SBIT__TRY(sbit_simplify(graph, &fold, NULL, error));
    SBIT__TRY(sbit__dequantize_running(graph, error));
    SBIT__TRY(sbit__dequantize_graph(graph, list, error));
    return sbit_infer(graph, error);
}

static sbit_status sbit__quantized_seen(const sbit_graph *graph, void *user)
{
    bool *seen = (bool *)user;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        *seen = *seen || sbit__dequantize_is(node, "QuantizeLinear") ||
                sbit__dequantize_is(node, "DequantizeLinear") ||
                strncmp(node->op_type, "QLinear", 7) == 0 || sbit__streq(node->op_type, "QGemm") ||
                sbit__streq(node->op_type, "DynamicQuantizeLinear") ||
                sbit__streq(node->op_type, "DynamicQuantizeMatMul") ||
                sbit__streq(node->op_type, "MatMulNBits");
    }
    return SBIT_OK;
}

SPARSEBIT_API bool sbit_graph_is_quantized(const sbit_graph *graph)
{
    bool seen = false;
    (void)sbit_graph_each(graph, sbit__quantized_seen, &seen);
    return seen;
}

SPARSEBIT_API sbit_status sbit_dequantize(const sbit_graph *graph, sbit_graph **out,
                                          sbit_error *error)
{
    sbit_graph *copy = NULL;
    SBIT__TRY(sbit_graph_clone(graph, &copy, error));
    const sbit_status status = sbit__dequantize(copy, NULL, error);
    if (status != SBIT_OK) {
        sbit_graph_destroy(copy);
        return status;
    }
    *out = copy;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_format_convert(const sbit_graph *graph, const char *format,
                                              sbit_graph **out, sbit_error *error)
{
    const sbit_format_row *row = NULL;
    sbit_graph *copy = NULL;
    SBIT__TRY(sbit__format_get(sbit_graph_ctx(graph), format, &row, error));
    if (row->float_activations) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, format,
                          "format '%s' is for float activations: dequantize the model and quantize "
                          "it with this format",
                          format);
    }
    SBIT__TRY(sbit_graph_clone(graph, &copy, error));
    sbit_status status = sbit__format_qdq(copy, error);
    status = status == SBIT_OK && row->write != NULL ? row->write(copy, error) : status;
    status = status == SBIT_OK ? sbit_infer(copy, error) : status;
    if (status != SBIT_OK) {
        sbit_graph_destroy(copy);
        return status;
    }
    *out = copy;
    return SBIT_OK;
}

/* >>dequantize bits */
SPARSEBIT_API sbit_status sbit_quant_add_bits(sbit_graph *graph, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        const bool quantize = sbit__dequantize_is(node, "QuantizeLinear");
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(node, b)) != NULL; b++) {
            SBIT__TRY(sbit_quant_add_bits(body, error));
        }
        if (!quantize && !sbit__dequantize_is(node, "DequantizeLinear")) {
            continue;
        }
        const char *text = sbit__graph_node_metadata(graph, id, "bits");
        const sbit_dtype dtype =
            sbit_graph_value(graph, quantize ? node->outputs[0] : node->inputs[0])->type.dtype;
        const sbit_attr bits = sbit__attr_int(
            "bits", text != NULL ? atoi(text) : (int64_t)sbit_dtype_bits((int32_t)dtype));
        SBIT__TRY(sbit_graph_set_attr(graph, id, &bits, error));
    }
    return SBIT_OK;
}
