/* site.c: tensors with a quantizer: the graphs they lie in, look-ups, weights, biases. >>site
 *
 * Sites on one value are chained; each graph of the model has a table from values to the first.
 */
#include "quant_private.h"

/* >>site graphs */
/* Counts graphs depth first: *index falls to 0 at the one that is looked for. */
static sbit_graph *sbit__place_body(sbit_graph *graph, uint32_t *index)
{
    if (*index == 0) {
        return graph;
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(sbit_graph_node(graph, id), b)) != NULL; b++) {
            --*index;
            sbit_graph *found = sbit__place_body(body, index);
            if (found != NULL) {
                return found;
            }
        }
    }
    return NULL;
}

SBIT__FN sbit_graph *sbit__quant_body(sbit_graph *root, uint32_t index)
{
    return sbit__place_body(root, &index);
}

static size_t sbit__site_graph_number(const sbit_quant *quant, const sbit_graph *graph)
{
    size_t i = 0;
    while (i < quant->graph_count && quant->graphs[i].graph != graph) {
        i++;
    }
    return i;
}

SBIT__FN const sbit__site_graph *sbit__site_graph_of(const sbit_quant *quant,
                                                     const sbit_graph *graph)
{
    const size_t number =
        graph != NULL ? sbit__site_graph_number(quant, graph) : quant->graph_count;
    return number < quant->graph_count ? &quant->graphs[number] : NULL;
}

SBIT__FN sbit_status sbit__sites_begin(sbit_quant *quant, sbit_error *error)
{
    size_t count = 0;
    while (sbit__quant_body(quant->graph, (uint32_t)count) != NULL) {
        count++;
    }
    quant->graph_count = 0;
    quant->graphs =
        (sbit__site_graph *)sbit__arena_array(&quant->arena, count, sizeof *quant->graphs);
    if (quant->graphs == NULL) {
        return sbit__fail_oom(error, count * sizeof *quant->graphs);
    }
    for (size_t i = 0; i < count; i++) {
        const sbit_graph *graph = sbit__quant_body(quant->graph, (uint32_t)i);
        const size_t values = sbit_graph_value_limit(graph);
        uint32_t *first =
            (uint32_t *)sbit__arena_array(&quant->arena, 3 * values + 1, sizeof *first);
        bool *flags = (bool *)sbit__arena_array(&quant->arena, 5 * values, sizeof *flags);
        if (first == NULL || flags == NULL) {
            return sbit__fail_oom(error, 3 * values * sizeof *first);
        }
        memset(first, 0, (3 * values + 1) * sizeof *first);
        memset(flags, 0, 5 * values * sizeof *flags);
        quant->graphs[i].data = flags;
        quant->graphs[i].layered = flags + values;
        quant->graphs[i].exact = flags + 2 * values;
        quant->graphs[i].normalizes = flags + 3 * values;
        quant->graphs[i].scored = flags + 4 * values;
        quant->graphs[i].graph = graph;
        quant->graphs[i].first = first;
        quant->graphs[i].curve = first + values;
        quant->graphs[i].argument = first + 2 * values;
        quant->graph_count = i + 1;
    }
    return SBIT_OK;
}

SBIT__FN void sbit__site_link(sbit_quant *quant, uint32_t index)
{
    sbit__site *site = &quant->sites[index];
    uint32_t *at =
        &quant->graphs[sbit__site_graph_number(quant, site->graph)].first[site->value.idx];
    while (*at != 0) {
        at = &quant->sites[*at - 1].next;
    }
    *at = index + 1;
}

/* >>site look-ups */
static sbit__site *sbit__site_chain(sbit_quant *quant, uint32_t number, uint32_t target)
{
    while (number != 0 && quant->sites[number - 1].target != target) {
        number = quant->sites[number - 1].next;
    }
    return number != 0 ? &quant->sites[number - 1] : NULL;
}

SBIT__FN sbit__site *sbit__site_on(sbit_quant *quant, const sbit_graph *graph, sbit_value_id value,
                                   uint32_t target)
{
    const size_t number = sbit__site_graph_number(quant, graph);
    return value.idx != 0 && number < quant->graph_count
               ? sbit__site_chain(quant, quant->graphs[number].first[value.idx], target)
               : NULL;
}

SBIT__FN sbit__site *sbit__site_after(sbit_quant *quant, const sbit__site *site)
{
    return sbit__site_chain(quant, site->next, site->target);
}

SBIT__FN sbit__site *sbit__quant_input_site(sbit_quant *quant, const sbit_graph *graph,
                                            sbit_node_id node, uint32_t input)
{
    const sbit_node *info = sbit_graph_node(graph, node);
    const sbit_value_id none = {0};
    sbit__site *site =
        sbit__site_on(quant, graph, input < info->input_count ? info->inputs[input] : none,
                      SBIT_TARGET_ACTIVATION);
    for (; site != NULL; site = sbit__site_after(quant, site)) {
        if (site->enabled && site->all_uses) {
            return site;
        }
        for (const sbit__site_use *use = site->uses; site->enabled && use != NULL;
             use = use->next) {
            if (use->node.idx == node.idx && use->input == input) {
                return site;
            }
        }
    }
    return NULL;
}

/* >>site contents */
SBIT__FN bool sbit__site_wanted(const sbit__site *site)
{
    return site->search_float == NULL &&
           (site->change.enable != 0 ? site->change.enable > 0 : !site->settings.disabled);
}

SBIT__FN void sbit__site_search_bits(sbit_quant *quant, sbit__site *site, int32_t bits)
{
    const int32_t own = site->change.bits != 0
                            ? site->change.bits
                            : (int32_t)sbit_options_int(&site->settings.options, "QUANTIZER.BIT");
    site->search_bits = bits;
    sbit__settings_bits(quant->config, site->target, bits != 0 ? bits : own, &site->settings);
}

SBIT__FN sbit_status sbit__site_search_range(sbit_quant *quant, sbit__site *site,
                                             const sbit_observer_row *observer, const float *min,
                                             const float *max, sbit_error *error)
{
    const size_t parts = (size_t)sbit__site_parts(site);
    if (site->range == NULL) {
        site->range = (float *)sbit__arena_array(&quant->arena, 2 * parts, sizeof *site->range);
    }
    if (site->range == NULL) {
        return sbit__fail_oom(error, 2 * parts * sizeof *site->range);
    }
    memcpy(site->range, min, parts * sizeof *min);
    memcpy(site->range + parts, max, parts * sizeof *max);
    site->ranged = observer;
    return SBIT_OK;
}

SBIT__FN void sbit__site_search_forget(sbit_quant *quant, sbit__site *site)
{
    if (site->search_bits != 0) {
        sbit__site_search_bits(quant, site, 0);
    }
    site->search_float = NULL;
    site->ranged = NULL;
}

SBIT__FN bool sbit__site_same_grid(const sbit__site *a, const sbit__site *b)
{
    const sbit_grid *x = &a->settings.grid, *y = &b->settings.grid;
    return x->qmin == y->qmin && x->qmax == y->qmax && x->symmetric == y->symmetric &&
           x->power_of_two == y->power_of_two;
}

SBIT__FN bool sbit__site_is_float8(const sbit__site *site)
{
    return site->settings.grid.dtype == SBIT_F8E4M3FN || site->settings.grid.dtype == SBIT_F8E5M2;
}

SBIT__FN int32_t sbit__site_lowest(const sbit__site *site)
{
    const sbit_grid *grid = &site->settings.grid;
    return grid->qmin < 0 && grid->qmin == -grid->qmax ? grid->qmin - 1 : grid->qmin;
}

SBIT__FN bool sbit__site_shares(const sbit__site *site)
{
    return site->enabled && site->target == SBIT_TARGET_ACTIVATION && site->axis == -1 &&
           site->change.scale == NULL;
}

SBIT__FN int64_t sbit__site_parts(const sbit__site *site)
{
    return site->settings.grid.parts.count;
}

SBIT__FN sbit_observation sbit__site_observation(const sbit__site *site, const sbit_tensor *shape,
                                                 const float *data)
{
    sbit_observation x;
    memset(&x, 0, sizeof x);
    x.data = data;
    x.parts = sbit_parts_of(shape, site->axis, site->block);
    x.samples = site->axis != 0 && shape->rank > 0 ? shape->dims[0] : 1;
    return x;
}

SBIT__FN sbit_observer_call sbit__site_observer(const sbit_quant *quant, const sbit__site *site)
{
    sbit_observer_call s;
    s.ctx = quant->ctx;
    s.name = site->tensor;
    s.target = site->target;
    s.grid = &site->settings.grid;
    s.options = &site->settings.options;
    return s;
}

SBIT__FN sbit_quantizer_call sbit__site_quantizer(const sbit_quant *quant, const sbit__site *site)
{
    const sbit_quantizer_row *row = site->settings.quantizer;
    sbit_quantizer_call s;
    s.ctx = quant->ctx;
    s.name = site->tensor;
    s.target = site->target;
    s.grid = &site->settings.grid;
    s.options = &site->settings.options;
    s.statistics = sbit__quantizer_statistics(row, site->target, s.options) != NULL
                       ? site->observer_state
                       : NULL;
    s.scale = site->scale;
    s.zero_point = site->zero_point;
    return s;
}

SBIT__FN const sbit_value_info *sbit__site_value(const sbit__site *site)
{
    return sbit_graph_value(site->graph, site->value);
}

SBIT__FN sbit_status sbit__site_weight(sbit_quant *quant, sbit__site *site, sbit_tensor *out,
                                       sbit_error *error)
{
    const sbit_tensor *constant = &sbit__site_value(site)->constant;
    *out = *constant;
    if (constant->dtype == SBIT_F32) {
        return SBIT_OK;
    }
    const size_t count = (size_t)sbit_tensor_count(constant);
    if (site->weight == NULL) {
        site->weight = (float *)sbit__arena_array(&quant->arena, count + 1, sizeof(float));
        if (site->weight == NULL) {
            return sbit__fail_oom(error, count * sizeof(float));
        }
        sbit__convert(constant->dtype, constant->data, SBIT_F32, site->weight, (int64_t)count);
    }
    out->dtype = SBIT_F32;
    out->data = site->weight;
    return SBIT_OK;
}

SBIT__FN void sbit__site_forget_rounding(sbit_quant *quant, sbit__site *site)
{
    sbit__free(sbit_ctx_allocator(quant->ctx), site->rounded, site->rounded_bytes);
    sbit__free(sbit_ctx_allocator(quant->ctx), site->shift, site->shift_bytes);
    site->rounded = site->shift = NULL;
    site->raw = false;
    site->rounded_bytes = site->shift_bytes = 0;
}

SBIT__FN sbit_status sbit__site_set_shift(sbit_quant *quant, sbit__site *site, const float *shift,
                                          size_t count, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    sbit__free(a, site->shift, site->shift_bytes);
    site->shift_bytes = count * sizeof *shift;
    site->shift = (float *)sbit__alloc(a, site->shift_bytes);
    if (site->shift == NULL) {
        site->shift_bytes = 0;
        return sbit__fail_oom(error, count * sizeof *shift);
    }
    memcpy(site->shift, shift, site->shift_bytes);
    return SBIT_OK;
}

SBIT__FN void sbit__quant_follow(sbit_quant *quant)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (site->enabled && site->leader != 0) {
            site->scale[0] = quant->sites[site->leader - 1].scale[0];
            site->zero_point[0] = quant->sites[site->leader - 1].zero_point[0];
        }
    }
}

/* >>site bias */
SBIT__FN const sbit_value_info *sbit__bias_value(const sbit_quant *quant, const sbit_graph *graph,
                                                 sbit_node_id id)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_op_row *row = sbit_operator_find(quant->ctx, node->domain, node->op_type,
                                                sbit_graph_opset(quant->graph, node->domain));
    const int32_t input = row != NULL && row->quant != NULL ? row->quant->bias : -1;
    if (input < 0 || (size_t)input >= node->input_count || node->inputs[input].idx == 0) {
        return NULL;
    }
    const sbit_value_info *bias = sbit_graph_value(graph, node->inputs[input]);
    const sbit_tensor *b = &bias->constant;
    const bool row_vector = bias->is_constant && sbit_tensor_count(b) > 0 &&
                            (b->rank == 0 || b->dims[b->rank - 1] == sbit_tensor_count(b));
    return row_vector ? bias : NULL;
}

SBIT__FN bool sbit__bias_of(sbit_quant *quant, const sbit_graph *graph, sbit_node_id node,
                            const sbit__site *weight, sbit__bias *out)
{
    out->value = sbit__bias_value(quant, graph, node);
    out->x = sbit__quant_input_site(quant, weight->graph, node, 0);
    out->weight = weight;
    if (out->value == NULL || out->x == NULL || out->x->axis != -1 ||
        sbit__site_is_float8(weight) || sbit__site_is_float8(out->x)) {
        return false;
    }
    out->given = sbit_tensor_count(&out->value->constant);
    out->parts = sbit__site_parts(weight);
    out->count = out->given > out->parts ? out->given : out->parts;
    return out->parts == 1 || out->given == out->parts || (out->given == 1 && weight->block == 0);
}

SBIT__FN float sbit__bias_scale(const sbit__bias *bias, int64_t i)
{
    return bias->x->scale[0] * bias->weight->scale[i % bias->parts];
}

SBIT__FN bool sbit__bias_round(const sbit__bias *bias, int64_t i, float value, int32_t *out)
{
    const double q = nearbyint((double)value / (double)sbit__bias_scale(bias, i));
    const bool fits = fabs(q) <= 2147483647.0;
    *out = fits ? (int32_t)q : 0;
    return fits;
}

/* >>site opset */
/* Per-channel Q/DQ needs opset 13, half-precision floats and float8 19, 16-bit and 4-bit storage
 * and blocks 21. */
SBIT__FN int64_t sbit__quant_opset(const sbit_quant *quant)
{
    int64_t opset = 13;
    for (size_t i = 0; i < quant->site_count; i++) {
        const int32_t bits = quant->sites[i].settings.grid.bits;
        const bool int4 = bits == 4 && sbit_options_bool(&quant->config->tree.top, "EXPORT.INT4");
        if (sbit__site_wanted(&quant->sites[i]) &&
            (bits > 8 || int4 || quant->sites[i].block > 0)) {
            return 21;
        }
        opset = quant->sites[i].dtype != SBIT_F32 || sbit__site_is_float8(&quant->sites[i]) ? 19
                                                                                            : opset;
    }
    return opset;
}

SBIT__FN int32_t sbit__quant_bits(const sbit_quant *quant, uint32_t target)
{
    const size_t side = target == SBIT_TARGET_WEIGHT ? SBIT__QCONFIG_W : SBIT__QCONFIG_A;
    const int64_t bits =
        sbit_options_int(&quant->config->tree.sections[side].options, "QUANTIZER.BIT");
    return bits >= 2 ? (int32_t)bits : 8;
}
