/* place.c: which tensors get a quantizer. >>place
 *
 * Reads the operator rows (row->quant) and the profile's lists.
 *
 * classic   the activation inputs and weights of Sparsebit's operators, each with the settings of
 *           the consuming layer; equal settings on one tensor share a site.
 * others    one site a tensor. Inputs of every quantizable operator; outputs where the profile
 *           says so and something quantized reads them, or the operator has a quantized weight.
 *           Operators that pass values through unchanged put one scale on both sides.
 *
 * A curve (curve.c) is one operator: its argument and its result have sites, nothing between.
 *
 * The bodies of If, Loop and Scan are placed like the root, each by itself: what one captures gets
 * a site in it. A weight that several graphs read lies in the root, once.
 */
#include "quant_private.h"

/* One graph of the model: the root or a body. */
typedef struct sbit__placement {
    sbit_quant *quant;
    const sbit_graph *graph;
    uint32_t body;             /* its number: see sbit__quant_body */
    const sbit_node_id *order; /* nodes in execution order */
    size_t count;
    bool *wanted;                  /* by value: something quantized reads it */
    const sbit__site_graph *facts; /* what flow.c found out about the values */
} sbit__placement;

static const sbit_op_row *sbit__place_row(const sbit__placement *p, const sbit_node *node)
{
    return sbit_operator_find(p->quant->ctx, node->domain, node->op_type,
                              sbit_graph_opset(p->graph, node->domain));
}

static const sbit_value_info *sbit__place_value(const sbit__placement *p, sbit_value_id id)
{
    return id.idx != 0 ? sbit_graph_value(p->graph, id) : NULL;
}

static bool sbit__place_float(const sbit_value_info *value)
{
    const uint32_t floats = SBIT_T(SBIT_F32) | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16);
    return value != NULL && value->type.kind == SBIT_KIND_TENSOR &&
           (SBIT_T(value->type.dtype) & floats) != 0;
}

/* A matrix that is a constant turned over, for this value's one reader: tied embeddings are read
 * by Gather as they are and by the last MatMul like this (A4.15). The Transpose, or NULL. */
static const sbit_node *sbit__place_turned(const sbit__placement *p, const sbit_value_info *value)
{
    if (!sbit__place_float(value) || value->producer.idx == 0 || value->use_count != 1 ||
        value->is_output) {
        return NULL;
    }
    const sbit_node *node = sbit_graph_node(p->graph, value->producer);
    const sbit_value_info *from =
        node->input_count > 0 ? sbit__place_value(p, node->inputs[0]) : NULL;
    const sbit_attr *perm = sbit_node_attr(node, "perm");
    const bool turns = perm == NULL || (perm->type == SBIT_ONNX_ATTR_INTS && perm->count == 2 &&
                                        perm->ints[0] == 1 && perm->ints[1] == 0);
    return sbit__streq(node->op_type, "Transpose") && node->domain[0] == '\0' && turns &&
                   sbit__place_float(from) && from->is_constant && from->constant.rank == 2 &&
                   !from->is_output
               ? node
               : NULL;
}

/* What a body captures, as the graph that it comes from knows it. */
static const sbit_value_info *sbit__place_origin(const sbit__placement *p,
                                                 const sbit_value_info *value)
{
    const sbit_graph *graph = p->graph;
    while (value != NULL && value->outer.idx != 0) {
        graph = sbit_graph_parent(graph);
        value = sbit_graph_value(graph, value->outer);
    }
    return value;
}

/* True for an input that carries data of the network: float, present, neither a constant nor made
 * of constants and shapes, nor a default that the caller may replace by data of another range. */
static bool sbit__place_is_activation(const sbit__placement *p, const sbit_node *node, size_t input)
{
    const sbit_value_info *value =
        input < node->input_count ? sbit__place_value(p, node->inputs[input]) : NULL;
    return sbit__place_float(value) && !sbit__place_origin(p, value)->is_constant &&
           !sbit__place_origin(p, value)->has_default && p->facts->data[value->id.idx] &&
           sbit__place_turned(p, value) == NULL;
}

static bool sbit__place_is_constant(const sbit__placement *p, const sbit_node *node, int32_t input)
{
    const sbit_value_info *value = input >= 0 && (size_t)input < node->input_count
                                       ? sbit__place_value(p, node->inputs[input])
                                       : NULL;
    value = sbit__place_origin(p, value);
    return sbit__place_float(value) && value->is_constant;
}

/* The layer's weight is so small that integers would cost more than they save. */
static bool sbit__place_small(const sbit__placement *p, const sbit_node *node)
{
    const sbit_op_row *row = sbit__place_row(p, node);
    const sbit_op_quant *q = row != NULL ? row->quant : NULL;
    const int64_t least = sbit_options_int(&p->quant->config->tree.top, "EXPORT.SMALLEST_WEIGHT");
    const sbit_value_info *weight =
        q != NULL && least > 0 && q->weight >= 0 && (size_t)q->weight < node->input_count
            ? sbit__place_value(p, node->inputs[q->weight])
            : NULL;
    weight = weight != NULL ? sbit__place_origin(p, weight) : NULL;
    return weight != NULL && weight->is_constant && sbit_tensor_count(&weight->constant) < least;
}

static bool sbit__place_skipped(const sbit__placement *p, const sbit_node *node)
{
    const sbit_option *skip = sbit_options_find(&p->quant->config->tree.top, "SKIP_TRACE_MODULES");
    for (size_t i = 0; i < skip->list_count; i++) {
        if (sbit_layer_matches(p->graph, node->id, skip->list[i])) {
            return true;
        }
    }
    return sbit__place_small(p, node);
}

/* The row's flags for this node: Resize copies values only in one of its modes. */
static uint32_t sbit__place_flags(const sbit_node *node, const sbit_op_quant *q)
{
    const uint32_t flags = q->flags & ~(uint32_t)SBIT_QUANT_PASS_NEAREST;
    if ((q->flags & SBIT_QUANT_PASS_NEAREST) == 0 ||
        !sbit__streq(sbit_node_string(node, "mode", "nearest"), "nearest")) {
        return flags;
    }
    return SBIT_QUANT_PASS_SCALE;
}

static bool sbit__place_all_tensors(const sbit__placement *p, const sbit_node *node)
{
    for (size_t i = 0; i < node->input_count; i++) {
        if (!sbit__place_is_activation(p, node, i)) {
            return false;
        }
    }
    return true;
}

/* The result of the curve that the node is of; 0: of none. */
static uint32_t sbit__place_curve(const sbit__placement *p, const sbit_node *node)
{
    const uint32_t output = node->output_count > 0 ? node->outputs[0].idx : 0;
    return p->facts->argument[output] != 0 ? output : p->facts->curve[output];
}

/* The node that stands for the operator: of a curve, that which computes the result. */
static const sbit_node *sbit__place_whole(const sbit__placement *p, const sbit_node *node)
{
    const sbit_value_id result = {sbit__place_curve(p, node)};
    return result.idx != 0 ? sbit__producer(p->graph, result) : node;
}

/* The row's quant entry if this node is one to quantize, else NULL. */
static const sbit_op_quant *sbit__place_active(const sbit__placement *p, const sbit_node *node)
{
    static const sbit_op_quant curve = {
        SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 0, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
    const uint32_t result = sbit__place_curve(p, node);
    const sbit_op_row *row = sbit__place_row(p, node);
    const sbit_op_quant *q = result != 0 ? &curve : row != NULL ? row->quant : NULL;
    if (q == NULL || p->facts->normalizes[result] || (q->flags & SBIT_QUANT_KEEP_FLOAT) != 0 ||
        sbit__place_skipped(p, sbit__place_whole(p, node))) {
        return NULL;
    }
    if ((q->flags & SBIT_QUANT_TENSOR_ONLY) != 0 && !sbit__place_all_tensors(p, node)) {
        return NULL;
    }
    return q;
}

/* In the profile's chains: computed in the epilogue of the operator before it. */
static bool sbit__place_fused(const sbit__placement *p, const sbit_node *node)
{
    const sbit_profile_row *profile = p->quant->profile;
    const sbit_value_info *input = sbit__place_value(p, node->inputs[0]);
    if (!sbit_options_bool(&p->quant->config->tree.top, "SCHEDULE.DISABLE_UNNECESSARY_QUANT") ||
        input == NULL || input->producer.idx == 0) {
        return false;
    }
    const sbit_node *producer = sbit_graph_node(p->graph, input->producer);
    for (size_t i = 0; i < profile->chain_count; i++) {
        if (sbit__streq(profile->chains[i].before, producer->op_type) &&
            sbit__word_listed(profile->chains[i].behind, node->op_type)) {
            return true;
        }
    }
    return false;
}

/* The same where operators have outputs: the layer goes on, if nothing else reads what is between. */
static bool sbit__place_chained(const sbit__placement *p, const sbit_node *node)
{
    const sbit_value_info *x = node->input_count > 0 ? sbit__place_value(p, node->inputs[0]) : NULL;
    return x != NULL && x->use_count == 1 && !x->is_output && sbit__place_fused(p, node);
}

static bool sbit__place_reads(const sbit__placement *p, const sbit_node *node,
                              const sbit_op_quant *q, size_t input)
{
    const uint32_t result = sbit__place_curve(p, node);
    if (result != 0) {
        return node->inputs[input].idx == p->facts->argument[result];
    }
    const char *const *listed = p->quant->profile->inputs;
    return (listed == NULL || sbit__word_listed(listed, node->op_type)) &&
           !sbit__place_chained(p, node) && (sbit__place_flags(node, q) & SBIT_QUANT_INPUTS) != 0 && input < 32 &&
           (q->activations & (1u << input)) != 0;
}

/* True for an operator that only clamps its input 0; Min and Max do, against a constant. */
static bool sbit__place_is_clamp(const sbit__placement *p, const sbit_node *node)
{
    return sbit__word_listed(p->quant->profile->clamps, node->op_type) ||
           ((sbit__streq(node->op_type, "Min") || sbit__streq(node->op_type, "Max")) &&
            node->input_count == 2 && sbit__place_is_activation(p, node, 0) &&
            sbit__place_is_constant(p, node, 1));
}

/* No quantizer takes what the node makes, not even behind a clamp. ONNX Runtime then fuses a stack
 * of weights into a product that refuses a scale for each column. */
static bool sbit__place_stays_float(const sbit__placement *p, const sbit_node *node)
{
    sbit_use uses[16];
    const sbit_value_info *value = sbit__place_value(p, node->outputs[0]);
    const size_t count = value == NULL || value->is_output
                             ? 0
                             : sbit_graph_uses(p->graph, value->id, uses, SBIT__COUNT_OF(uses));
    for (size_t i = 0; i < count && i < SBIT__COUNT_OF(uses); i++) {
        if (uses[i].node.idx == 0 || uses[i].body != NULL) {
            continue;
        }
        const sbit_node *user = sbit_graph_node(p->graph, uses[i].node);
        const sbit_op_quant *q = sbit__place_active(p, user);
        const bool clamp = sbit__place_is_clamp(p, user);
        if ((q != NULL && sbit__place_reads(p, user, q, uses[i].index)) ||
            (clamp && !sbit__place_stays_float(p, user))) {
            return false;
        }
    }
    return true;
}

/* >>place sites */
static bool sbit__place_same_settings(const sbit__settings *a, const sbit__settings *b)
{
    return sbit__same_options(&a->options, &b->options, "");
}

/* A site on a value of `graph`: that of the placement, or the root where a body captures. */
static sbit_status sbit__place_new_site(const sbit__placement *p, const sbit_graph *graph,
                                        const sbit_value_info *value, uint32_t target,
                                        sbit_node_id layer, const sbit__settings *settings,
                                        uint32_t *index, sbit_error *error)
{
    void *sites = p->quant->sites;
    char name[256];
    sbit_layer_name(p->graph, layer, name, sizeof name);
    const char *layer_name = sbit__arena_strdup(&p->quant->arena, name, strlen(name));
    const char *tensor = sbit__arena_strdup(&p->quant->arena, value->name, strlen(value->name));
    if (layer_name == NULL || tensor == NULL) {
        return sbit__fail_oom(error, sizeof name);
    }
    SBIT__TRY(sbit__grow(sbit_ctx_allocator(p->quant->ctx), &sites, &p->quant->site_capacity,
                         p->quant->site_count + 1, sizeof *p->quant->sites, error));
    p->quant->sites = (sbit__site *)sites;
    sbit__site *site = &p->quant->sites[p->quant->site_count];
    memset(site, 0, sizeof *site);
    site->body = graph == p->graph ? p->body : 0;
    site->graph = graph;
    site->value = value->id;
    site->dtype = value->type.dtype;
    site->target = target;
    site->layer = layer;
    site->layer_name = layer_name;
    site->tensor = tensor;
    site->settings = *settings;
    site->axis = -1;
    site->settings.grid.parts.count = 1;
    site->enabled = !settings->disabled;
    site->reason = settings->disabled ? "disabled by the configuration" : "";
    site->plan_group = (uint32_t)p->quant->site_count;
    *index = (uint32_t)p->quant->site_count++;
    sbit__site_link(p->quant, *index);
    return SBIT_OK;
}

/* The parts of a site's grid from its axis; of activations, dims that are not known count 1. */
static void sbit__place_parts(sbit__site *site)
{
    const sbit_type *type = &sbit__site_value(site)->type;
    sbit_tensor shape;
    memset(&shape, 0, sizeof shape);
    shape.rank = type->rank > 0 ? type->rank : 0;
    for (int32_t i = 0; i < shape.rank; i++) {
        shape.dims[i] = type->dims[i].symbol == 0 ? type->dims[i].value : 1;
    }
    site->settings.grid.parts = sbit_parts_of(&shape, site->axis, site->block);
}

/* Softmax, Sigmoid, Tanh: the range is known, whatever the calibration data. Sparsebit's own
 * placement observes them as it does everything. */
static void sbit__place_fix_range(const sbit__placement *p, sbit__site *site)
{
    const sbit_node_id producer = sbit_graph_value(p->graph, site->value)->producer;
    const sbit_node *node = producer.idx != 0 ? sbit_graph_node(p->graph, producer) : NULL;
    const sbit_op_row *row = node != NULL ? sbit__place_row(p, node) : NULL;
    if (sbit__profile_is(p->quant->profile, SBIT_PROFILE_CLASSIC) || row == NULL ||
        row->quant == NULL || (row->quant->flags & SBIT_QUANT_FIXED_RANGE) == 0 ||
        sbit__site_parts(site) != 1) {
        return;
    }
    site->fixed_range = true;
    site->fixed_min = row->quant->range_min;
    site->fixed_max = row->quant->range_max;
}

/* What Softmax alone reads is measured by what Softmax makes of it. */
static void sbit__place_softmax(const sbit__placement *p, sbit__site *site)
{
    const sbit_value_info *value = sbit_graph_value(p->graph, site->value);
    sbit_use use;
    if (value->use_count != 1 || sbit_graph_uses(p->graph, value->id, &use, 1) != 1 ||
        use.node.idx == 0 || use.body != NULL) {
        return;
    }
    const sbit_node *node = sbit_graph_node(p->graph, use.node);
    const bool whole = sbit_graph_opset(p->quant->graph, "") < 13;
    site->softmax = sbit__flow_is_softmax(node);
    site->softmax_axis = (int32_t)sbit_node_int(node, "axis", whole ? 1 : -1);
    site->softmax_rest = whole; /* all dims from the axis on are one row */
}

/* The site of a value with the given settings (one_per_value: with any); makes it if needed. */
static sbit_status sbit__place_activation(const sbit__placement *p, sbit_value_id value,
                                          sbit_node_id layer, bool one_per_value, uint32_t *index,
                                          sbit_error *error)
{
    sbit__settings settings;
    SBIT__TRY(sbit__qconfig_resolve(p->quant->config, SBIT_TARGET_ACTIVATION, p->graph, layer,
                                    &p->quant->arena, &settings, error));
    for (const sbit__site *site = sbit__site_on(p->quant, p->graph, value, SBIT_TARGET_ACTIVATION);
         site != NULL; site = sbit__site_after(p->quant, site)) {
        if (one_per_value || sbit__place_same_settings(&site->settings, &settings)) {
            *index = (uint32_t)(site - p->quant->sites);
            return SBIT_OK;
        }
    }
    SBIT__TRY(sbit__place_new_site(p, p->graph, sbit_graph_value(p->graph, value),
                                   SBIT_TARGET_ACTIVATION, layer, &settings, index, error));
    sbit__site *site = &p->quant->sites[*index];
    const sbit_type *type = &sbit_graph_value(p->graph, value)->type;
    const int32_t axis = settings.activation_axis;
    if (settings.per_channel && axis < type->rank && type->dims[axis].symbol == 0) {
        site->axis = axis;
    }
    sbit__place_parts(site);
    sbit__place_fix_range(p, site);
    sbit__place_softmax(p, site);
    return SBIT_OK;
}

static sbit_status sbit__place_use(const sbit__placement *p, uint32_t index, sbit_node_id node,
                                   uint32_t input, sbit_error *error)
{
    sbit__site_use **end = &p->quant->sites[index].uses;
    while (*end != NULL) {
        if ((*end)->node.idx == node.idx && (*end)->input == input) {
            return SBIT_OK;
        }
        end = &(*end)->next;
    }
    *end = (sbit__site_use *)sbit__arena_alloc(&p->quant->arena, sizeof **end);
    if (*end == NULL) {
        return sbit__fail_oom(error, sizeof **end);
    }
    (*end)->node = node;
    (*end)->input = input;
    return SBIT_OK;
}

/* The weight that input `input` of a node of graph `graph` (number `body`) names. */
typedef struct sbit__place_found {
    const sbit_value_info *value; /* NULL: no constant float weight to quantize */
    const sbit_graph *graph;      /* that it is of */
    bool captured;                /* by bodies; then a constant of the root */
    const sbit_node *turned;      /* the Transpose that the node reads it through */
} sbit__place_found;

/* A use in `graph` is by a layer to be quantized, as its weight. */
static bool sbit__place_is_weight(const sbit__placement *p, const sbit_graph *graph,
                                  const sbit_use *use)
{
    sbit__placement there = *p;
    there.graph = graph;
    there.facts = sbit__site_graph_of(p->quant, graph);
    if (use->node.idx == 0 || use->body != NULL) {
        return false;
    }
    const sbit_op_quant *q = sbit__place_active(&there, sbit_graph_node(graph, use->node));
    return q != NULL && q->weight == (int)use->index;
}

/* True if bodies capture a constant of the root, and layers alone read it, there and here, as their
 * weight: then it is stored once, in the root. */
static bool sbit__place_shared(const sbit__placement *p, const sbit_value_info *value)
{
    const sbit_graph *root = p->quant->graph;
    sbit_use uses[16], inner[16];
    bool captured = false;
    const size_t count = sbit_graph_uses(root, value->id, uses, SBIT__COUNT_OF(uses));
    bool all = count <= SBIT__COUNT_OF(uses);
    for (size_t i = 0; all && i < count; i++) {
        if (uses[i].body == NULL) {
            all = sbit__place_is_weight(p, root, &uses[i]);
            continue;
        }
        const sbit_value_id id = {uses[i].index};
        const size_t n = sbit_graph_uses(uses[i].body, id, inner, SBIT__COUNT_OF(inner));
        captured = true;
        all = n <= SBIT__COUNT_OF(inner);
        for (size_t k = 0; all && k < n; k++) {
            all = sbit__place_is_weight(p, uses[i].body, &inner[k]);
        }
    }
    return captured && all;
}

static sbit__place_found sbit__place_find_weight(const sbit__placement *p, const sbit_node *node,
                                                 int32_t input)
{
    sbit__place_found found = {NULL, p->graph, false, NULL};
    const sbit_graph *graph = p->graph;
    if ((size_t)input >= node->input_count || node->inputs[input].idx == 0) {
        return found;
    }
    const sbit_value_info *value = sbit_graph_value(graph, node->inputs[input]);
    found.turned = sbit__place_turned(p, value);
    if (found.turned != NULL) {
        found.value = sbit_graph_value(graph, found.turned->inputs[0]);
        return found;
    }
    const bool outer = value->outer.idx != 0;
    while (value->outer.idx != 0) {
        graph = sbit_graph_parent(graph);
        value = sbit_graph_value(graph, value->outer);
    }
    if (!sbit__place_float(value) || !value->is_constant || value->is_output) {
        return found;
    }
    found.captured = sbit_graph_parent(graph) == NULL && sbit__place_shared(p, value);
    found.graph = found.captured ? graph : p->graph;
    if (found.captured || !outer) {
        found.value = value;
    }
    return found;
}

/* The weight of one node: per channel on the row's output axis. Layers that share a constant and
 * its axis and settings share the site; all graphs' layers share that of a captured one. */
static sbit_status sbit__place_weight(const sbit__placement *p, const sbit_node *node,
                                      const sbit_op_quant *row, int32_t input, sbit_error *error)
{
    sbit_quant *quant = p->quant;
    sbit__settings settings;
    uint32_t index = 0;
    const sbit__place_found w = sbit__place_find_weight(p, node, input);
    if (w.value == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__qconfig_resolve(quant->config, SBIT_TARGET_WEIGHT, p->graph, node->id,
                                    &quant->arena, &settings, error));
    const bool swap = (row->transpose_attr != NULL &&
                       sbit_node_int(node, row->transpose_attr, 0) != 0) != (w.turned != NULL);
    const int32_t rank = w.value->constant.rank;
    int32_t axis = swap ? row->in_axis : row->out_axis;
    axis = axis < 0 ? axis + rank : axis;
    const bool stack = row->out_axis < 0 && rank > 2; /* of matrices */
    const bool per_channel = settings.per_channel && axis >= 0 && axis < rank &&
                             !(stack && sbit__place_stays_float(p, node));
    axis = per_channel ? axis : -1;
    const int64_t block = per_channel && rank == 2 ? settings.block : 0;
    axis = block > 0 ? 1 - axis : axis; /* blocks lie along the other axis */
    const sbit__site *same = sbit__site_on(quant, w.graph, w.value->id, SBIT_TARGET_WEIGHT);
    while (same != NULL && !w.captured &&
           !(same->axis == axis && sbit__place_same_settings(&same->settings, &settings))) {
        same = sbit__site_after(quant, same);
    }
    if (same != NULL) {
        index = (uint32_t)(same - quant->sites);
    } else {
        SBIT__TRY(sbit__place_new_site(p, w.graph, w.value, SBIT_TARGET_WEIGHT, node->id, &settings,
                                       &index, error));
        sbit__site *site = &quant->sites[index];
        site->captured = w.captured;
        site->axis = axis;
        site->block = block;
        sbit__place_parts(site);
    }
    return w.turned != NULL ? sbit__place_use(p, index, w.turned->id, 0, error)
                            : sbit__place_use(p, index, node->id, (uint32_t)input, error);
}

static sbit_status sbit__place_weights(const sbit__placement *p, const sbit_node *node,
                                       const sbit_op_quant *row, sbit_error *error)
{
    const int32_t inputs[2] = {row->weight, row->weight2};
    if ((row->flags & SBIT_QUANT_RECURRENT) != 0 &&
        !sbit__profile_is(p->quant->profile, SBIT_PROFILE_RECURRENT_WEIGHTS)) {
        return SBIT_OK;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(inputs); i++) {
        if (inputs[i] >= 0) {
            SBIT__TRY(sbit__place_weight(p, node, row, inputs[i], error));
        }
    }
    return SBIT_OK;
}

/* >>place classic */
/* All of the node's curve read the value through the site. */
static sbit_status sbit__place_curve_uses(const sbit__placement *p, const sbit_node *node,
                                          sbit_value_id value, uint32_t index, sbit_error *error)
{
    const uint32_t result = sbit__place_curve(p, node);
    for (size_t n = 0; result != 0 && n < p->count; n++) {
        const sbit_node *other = sbit_graph_node(p->graph, p->order[n]);
        for (uint32_t i = 0; i < (uint32_t)other->input_count; i++) {
            if (other->inputs[i].idx == value.idx && sbit__place_curve(p, other) == result) {
                SBIT__TRY(sbit__place_use(p, index, other->id, i, error));
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__place_classic_node(const sbit__placement *p, const sbit_node *node,
                                            sbit_error *error)
{
    const sbit_op_row *row = sbit__place_row(p, node);
    if (row == NULL || row->quant == NULL || sbit__place_skipped(p, node)) {
        return SBIT_OK;
    }
    const sbit_profile_row *profile = p->quant->profile;
    const bool passes = (sbit__place_flags(node, row->quant) & SBIT_QUANT_PASS_SCALE) != 0 &&
                        (row->quant->flags & SBIT_QUANT_PASS_NEAREST) != 0; /* copies values */
    const bool add = sbit_options_bool(&p->quant->config->tree.sections[SBIT__QCONFIG_A].options,
                                       "QADD.ENABLE_QUANT") &&
                     sbit__word_listed(profile->sums, node->op_type);
    if (!(sbit__word_listed(profile->inputs, node->op_type) && !passes) && !add) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__place_weights(p, node, row->quant, error));
    if (sbit__place_fused(p, node)) {
        return SBIT_OK; /* the tensor does not exist in the deployed network */
    }
    for (uint32_t i = 0; i < (uint32_t)node->input_count && i < 32; i++) {
        uint32_t index = 0;
        if ((row->quant->activations & (1u << i)) == 0 || !sbit__place_is_activation(p, node, i) ||
            p->facts->exact[node->inputs[i].idx]) {
            continue;
        }
        SBIT__TRY(sbit__place_activation(p, node->inputs[i], node->id, false, &index, error));
        SBIT__TRY(sbit__place_use(p, index, node->id, i, error));
        SBIT__TRY(sbit__place_curve_uses(p, node, node->inputs[i], index, error));
    }
    return SBIT_OK;
}

/* >>place generic */
static bool sbit__place_wants(const sbit_node *node, size_t input, const bool *wanted,
                              const void *user)
{
    const sbit__placement *p = (const sbit__placement *)user;
    const sbit_op_quant *q = sbit__place_active(p, node);
    bool passes = false;
    for (size_t i = 0; q != NULL && input == 0 && i < node->output_count; i++) {
        passes = passes || wanted[node->outputs[i].idx];
    }
    return q != NULL && (sbit__place_reads(p, node, q, input) ||
                         (passes && (sbit__place_flags(node, q) & SBIT_QUANT_PASS_SCALE) != 0));
}

/* What continues the layer in front of it: a clamp, the profile's chains, or BatchNormalization (FUSE_BN: false) that
 * alone reads a Conv with a constant weight. */
static bool sbit__place_follows(const sbit__placement *p, const sbit_node *node)
{
    const sbit_value_info *x =
        sbit__is_op(node, "BatchNormalization") ? sbit__place_value(p, node->inputs[0]) : NULL;
    const sbit_node *conv =
        x != NULL && x->producer.idx != 0 ? sbit_graph_node(p->graph, x->producer) : NULL;
    return sbit__place_is_clamp(p, node) || sbit__place_chained(p, node) ||
           (conv != NULL && sbit__is_op(conv, "Conv") && x->use_count == 1 && !x->is_output &&
            sbit__place_is_constant(p, conv, 1));
}

/* True if one operator alone reads the value and continues the layer that made it (follows), or an
 * elementwise operator with a constant (the bias of a MatMul). Then the value between has no
 * integer form of its own; what comes out behind gets one. */
static bool sbit__place_continued(const sbit__placement *p, const sbit_value_info *value)
{
    sbit_use use;
    if (value->use_count != 1 || sbit_graph_uses(p->graph, value->id, &use, 1) != 1 ||
        use.node.idx == 0 || use.body != NULL) {
        return false;
    }
    const sbit_node *node = sbit_graph_node(p->graph, use.node);
    const sbit_op_row *row = sbit__place_row(p, node);
    if (sbit__place_follows(p, node)) {
        return use.index == 0;
    }
    return row != NULL && row->quant != NULL && (row->quant->flags & SBIT_QUANT_TENSOR_ONLY) != 0 &&
           node->input_count == 2 && sbit__place_is_constant(p, node, 1 - (int32_t)use.index);
}

/* The layer whose settings a tensor gets: the operator that makes it if that is quantized, else
 * the one that reads it. */
static sbit_node_id sbit__place_layer_of(const sbit__placement *p, const sbit_value_info *value,
                                         sbit_node_id reader)
{
    if (value->producer.idx == 0 || !sbit__profile_is(p->quant->profile, SBIT_PROFILE_OUTPUTS)) {
        return reader;
    }
    const sbit_node *producer = sbit_graph_node(p->graph, value->producer);
    const sbit_op_quant *q = sbit__place_active(p, producer);
    return q != NULL && (sbit__place_flags(producer, q) & SBIT_QUANT_OUTPUT) != 0 ? producer->id
                                                                                  : reader;
}

/* A layer whose output this sum alone reads: TensorRT adds in its epilogue. */
static bool sbit__place_sums_itself(const sbit__placement *p, sbit_value_id id)
{
    const sbit_value_info *value = sbit_graph_value(p->graph, id);
    if (value->producer.idx == 0 || value->use_count != 1 || value->is_output) {
        return false;
    }
    const sbit_node *producer = sbit_graph_node(p->graph, value->producer);
    const sbit_op_row *row = sbit__place_row(p, producer);
    return row != NULL && row->quant != NULL &&
           sbit__place_is_constant(p, producer, row->quant->weight);
}

/* TensorRT: of a sum every input but that of one layer, which adds the others to its output. */
static bool sbit__place_residual(const sbit__placement *p, const sbit_node *node, size_t input)
{
    size_t fuses = node->input_count;
    if (!sbit__word_listed(p->quant->profile->sums, node->op_type)) {
        return false;
    }
    for (size_t i = 0; i < node->input_count && fuses == node->input_count; i++) {
        fuses = sbit__place_sums_itself(p, node->inputs[i]) ? i : fuses;
    }
    return input != fuses;
}

static sbit_status sbit__place_inputs(const sbit__placement *p, const sbit_node *node,
                                      const sbit_op_quant *q, sbit_error *error)
{
    const bool elementwise = (q->flags & SBIT_QUANT_TENSOR_ONLY) != 0;
    for (uint32_t i = 0; i < (uint32_t)node->input_count; i++) {
        uint32_t index = 0;
        if (!sbit__place_reads(p, node, q, i) || !sbit__place_is_activation(p, node, i) ||
            p->facts->exact[node->inputs[i].idx]) {
            continue;
        }
        if (sbit__profile_is(p->quant->profile, SBIT_PROFILE_RESIDUAL_INPUTS) && elementwise &&
            !sbit__place_residual(p, node, i)) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(p->graph, node->inputs[i]);
        const sbit_node_id layer = sbit__place_layer_of(p, value, sbit__place_whole(p, node)->id);
        SBIT__TRY(sbit__place_activation(p, value->id, layer, true, &index, error));
        SBIT__TRY(sbit__place_use(p, index, node->id, i, error));
    }
    return SBIT_OK;
}

/* True if a clamp alone reads the value. */
static bool sbit__place_clamped(const sbit__placement *p, const sbit_value_info *value)
{
    sbit_use use;
    return value->use_count == 1 && sbit_graph_uses(p->graph, value->id, &use, 1) == 1 &&
           use.node.idx != 0 && use.body == NULL && use.index == 0 &&
           sbit__place_follows(p, sbit_graph_node(p->graph, use.node));
}

/* The operator whose output a clamp, or a chain of clamps that nothing else reads, limits. */
static const sbit_node *sbit__place_behind_clamps(const sbit__placement *p, const sbit_node *node)
{
    const sbit_value_info *input = sbit__place_value(p, node->inputs[0]);
    while (input != NULL && input->producer.idx != 0) {
        const sbit_node *before = sbit_graph_node(p->graph, input->producer);
        if (!sbit__place_follows(p, before) || !sbit__place_clamped(p, input)) {
            return before;
        }
        input = sbit__place_value(p, before->inputs[0]);
    }
    return NULL;
}

static bool sbit__place_has_weight(const sbit__placement *p, const sbit_node *node,
                                   const sbit_op_quant *q)
{
    return sbit__place_is_constant(p, node, q->weight) && (q->flags & SBIT_QUANT_RECURRENT) == 0;
}

static bool sbit__place_wants_output(const sbit__placement *p, const sbit_node *node,
                                     const sbit_op_quant *q, const sbit_value_info *value)
{
    if (!sbit__profile_is(p->quant->profile, SBIT_PROFILE_OUTPUTS) || !sbit__place_float(value) ||
        value->is_output || value->is_constant || !p->facts->data[value->id.idx] ||
        p->facts->exact[value->id.idx]) {
        return false;
    }
    if (sbit__place_follows(p, node)) {
        const sbit_node *before = sbit__place_behind_clamps(p, node);
        const sbit_op_quant *b = before != NULL ? sbit__place_active(p, before) : NULL;
        const bool joins = b != NULL && (b->flags & SBIT_QUANT_OUTPUT) != 0;
        const bool more = sbit__place_clamped(p, value);
        return joins && !more && (p->wanted[value->id.idx] || sbit__place_has_weight(p, before, b));
    }
    if (q == NULL || (sbit__place_flags(node, q) & SBIT_QUANT_OUTPUT) == 0 ||
        sbit__place_continued(p, value)) {
        return false;
    }
    return p->wanted[value->id.idx] || sbit__place_has_weight(p, node, q);
}

static sbit_status sbit__place_output(const sbit__placement *p, const sbit_node *node,
                                      const sbit_op_quant *q, sbit_error *error)
{
    uint32_t index = 0;
    const sbit_value_info *value =
        node->output_count > 0 ? sbit__place_value(p, node->outputs[0]) : NULL;
    if (value == NULL || !sbit__place_wants_output(p, node, q, value)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__place_activation(p, value->id, node->id, true, &index, error));
    sbit__site *site = &p->quant->sites[index];
    site->all_uses = true;
    return SBIT_OK;
}

static sbit__site *sbit__place_site_of(const sbit__placement *p, sbit_value_id value)
{
    return sbit__site_on(p->quant, p->graph, value, SBIT_TARGET_ACTIVATION);
}

/* Joins the groups of two sites when they can have one scale. */
static void sbit__place_join(const sbit__placement *p, const sbit__site *a, const sbit__site *b)
{
    const uint32_t from = b->plan_group;
    if (!a->enabled || !b->enabled || a->axis != -1 || b->axis != -1 ||
        !sbit__site_same_grid(a, b)) {
        return;
    }
    const uint32_t to = a->plan_group;
    for (size_t i = 0; i < p->quant->site_count; i++) {
        if (p->quant->sites[i].plan_group == from) {
            p->quant->sites[i].plan_group = to;
        }
    }
}

/* Operators that pass values through: one scale on both sides. */
static sbit_status sbit__place_pass(const sbit__placement *p, const sbit_node *node,
                                    const sbit_op_quant *q, sbit_error *error)
{
    if (q == NULL || (sbit__place_flags(node, q) & SBIT_QUANT_PASS_SCALE) == 0 ||
        !sbit__profile_is(p->quant->profile, SBIT_PROFILE_OUTPUTS) || node->input_count == 0 ||
        sbit__place_site_of(p, node->inputs[0]) == NULL) {
        return SBIT_OK;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit_value_info *value = sbit__place_value(p, node->outputs[i]);
        uint32_t index = 0;
        if (!sbit__place_float(value) || !p->wanted[value->id.idx] || value->is_output ||
            p->facts->exact[value->id.idx]) {
            continue;
        }
        const sbit_node_id layer = sbit__place_site_of(p, node->inputs[0])->layer;
        SBIT__TRY(sbit__place_activation(p, value->id, layer, true, &index, error));
        p->quant->sites[index].all_uses = true;
        sbit__place_join(p, sbit__place_site_of(p, node->inputs[0]), &p->quant->sites[index]);
    }
    return SBIT_OK;
}

static sbit_status sbit__place_generic(const sbit__placement *p, sbit_error *error)
{
    sbit__graph_mark_back(p->graph, p->wanted, sbit__place_wants, p);
    for (size_t n = 0; n < p->count; n++) {
        const sbit_node *node = sbit_graph_node(p->graph, p->order[n]);
        const sbit_op_quant *q = sbit__place_active(p, node);
        if (q != NULL) {
            SBIT__TRY(sbit__place_weights(p, node, q, error));
            SBIT__TRY(sbit__place_inputs(p, node, q, error));
        }
        SBIT__TRY(sbit__place_output(p, node, q, error));
    }
    for (size_t n = 0; n < p->count; n++) {
        const sbit_node *node = sbit_graph_node(p->graph, p->order[n]);
        SBIT__TRY(sbit__place_pass(p, node, sbit__place_active(p, node), error));
    }
    return SBIT_OK;
}

/* >>place driver */
static sbit_status sbit__place_ordered(const sbit__placement *p, sbit_error *error)
{
    if (!sbit__profile_is(p->quant->profile, SBIT_PROFILE_CLASSIC)) {
        return sbit__place_generic(p, error);
    }
    for (size_t n = 0; n < p->count; n++) {
        SBIT__TRY(sbit__place_classic_node(p, sbit_graph_node(p->graph, p->order[n]), error));
    }
    return SBIT_OK;
}

/* One graph: the root or a body. */
static sbit_status sbit__place_graph(sbit_quant *quant, uint32_t body, const sbit_graph *graph,
                                     sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t nodes = sbit_graph_node_limit(graph), values = sbit_graph_value_limit(graph);
    sbit_node_id *order = (sbit_node_id *)sbit__calloc(a, nodes, sizeof *order);
    bool *wanted = (bool *)sbit__calloc(a, values, sizeof *wanted);
    sbit_status status = order != NULL && wanted != NULL
                             ? SBIT_OK
                             : sbit__fail_oom(error, nodes * sizeof *order + values);
    sbit__placement p;
    memset(&p, 0, sizeof p);
    p.quant = quant;
    p.graph = graph;
    p.body = body;
    p.order = order;
    p.wanted = wanted;
    p.facts = &quant->graphs[body];
    for (sbit_node_id id = sbit_graph_first(graph); status == SBIT_OK && id.idx != 0;
         id = sbit_graph_next(graph, id)) {
        order[p.count++] = id;
    }
    if (status == SBIT_OK) {
        status = sbit__place_ordered(&p, error);
    }
    sbit__free(a, order, nodes * sizeof *order);
    sbit__free(a, wanted, values * sizeof *wanted);
    return status;
}

static void sbit__place_warn_skipped(const sbit_quant *quant)
{
    const sbit_option *skip = sbit_options_find(&quant->config->tree.top, "SKIP_TRACE_MODULES");
    char nearest[256];
    for (size_t i = 0; i < skip->list_count; i++) {
        bool matched = false;
        for (size_t b = 0; b < quant->graph_count; b++) {
            const sbit_graph *graph = quant->graphs[b].graph;
            for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && !matched;
                 id = sbit_graph_next(graph, id)) {
                matched = sbit_layer_matches(graph, id, skip->list[i]);
            }
        }
        if (!matched) {
            sbit_layer_suggest(quant->graph, skip->list[i], nearest, sizeof nearest);
            sbit__log(quant->ctx, SBIT_LOG_WARNING,
                      "SKIP_TRACE_MODULES: '%s' matches no layer; the nearest are: %s",
                      skip->list[i], nearest);
        }
    }
}

SBIT__FN sbit_status sbit__quant_place(sbit_quant *quant, sbit_error *error)
{
    SBIT__TRY(sbit__sites_begin(quant, error));
    sbit__flow_find(quant);
    sbit__curve_find(quant);
    for (uint32_t body = 0; body < quant->graph_count; body++) {
        SBIT__TRY(sbit__place_graph(quant, body, quant->graphs[body].graph, error));
    }
    for (size_t i = 0; i < quant->config->tree.section_count; i++) {
        sbit__section_warn_unmatched(&quant->config->tree.sections[i], quant->graph,
                                     "quantized layer");
    }
    sbit__place_warn_skipped(quant);
    return SBIT_OK;
}
