/* calibrate.c: what sites observe, and what follows from it. >>calibrate
 *
 * Ranges -> groups that share a scale -> scale and zero point -> weight scales raised where the
 * int32 bias would not fit.
 */
#include "quant_private.h"

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
    s.name = sbit__site_value(site)->name;
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
    s.name = sbit__site_value(site)->name;
    s.target = site->target;
    s.grid = &site->settings.grid;
    s.options = &site->settings.options;
    s.statistics = row->statistics != NULL && row->statistics(site->target) != NULL
                       ? site->observer_state
                       : NULL;
    s.scale = site->scale;
    s.zero_point = site->zero_point;
    return s;
}

/* Arrays and fresh states. */
SBIT__FN sbit_status sbit__site_prepare(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t parts = (size_t)sbit__site_parts(site);
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    sbit__site_release(quant, site);
    if (site->min == NULL) {
        site->piece = (float *)sbit__arena_array(&quant->arena, 5 * parts + 1, sizeof(float));
        site->zero_point = (int32_t *)sbit__arena_array(&quant->arena, parts + 1, sizeof(int32_t));
        if (site->piece == NULL || site->zero_point == NULL) {
            return sbit__fail_oom(error, parts * 24);
        }
        site->min = site->piece + 2 * parts;
        site->max = site->min + parts;
        site->scale = site->max + parts;
    }
    const sbit_quantizer_call quantizer = sbit__site_quantizer(quant, site);
    site->observer_bytes = site->settings.observer->state_bytes(&observer) + 1;
    site->quantizer_bytes = site->settings.quantizer->state_bytes(&quantizer) + 1;
    site->observer_state = sbit__calloc(a, 1, site->observer_bytes);
    site->quantizer_state = sbit__calloc(a, 1, site->quantizer_bytes);
    if (site->observer_state == NULL || site->quantizer_state == NULL) {
        return sbit__fail_oom(error, site->observer_bytes + site->quantizer_bytes);
    }
    site->observed = false;
    return site->settings.observer->init(site->observer_state, &observer, error);
}

SBIT__FN void sbit__site_release(sbit_quant *quant, sbit__site *site)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    const sbit_quantizer_call quantizer = sbit__site_quantizer(quant, site);
    if (site->quantizer_state != NULL && site->settings.quantizer->deinit != NULL) {
        site->settings.quantizer->deinit(site->quantizer_state, &quantizer);
    }
    if (site->observer_state != NULL && site->settings.observer->deinit != NULL) {
        site->settings.observer->deinit(site->observer_state, &observer);
    }
    sbit__free(a, site->observer_state, site->observer_bytes);
    sbit__free(a, site->quantizer_state, site->quantizer_bytes);
    site->observer_state = site->quantizer_state = NULL;
}

/* The axis on which a tensor has the samples of the batch: the first, if whole rows fit on it, else
 * the first that is as long; -1: it has none. */
static int32_t sbit__batch_axis(const sbit_quant *quant, const sbit_tensor *tensor)
{
    const int64_t rows = quant->rows;
    if (rows < 1 || tensor->rank == 0) {
        return -1;
    }
    int32_t axis = tensor->dims[0] % rows == 0 ? 0 : 1;
    while (axis > 0 && axis < tensor->rank && tensor->dims[axis] != rows) {
        axis++;
    }
    return axis < tensor->rank ? axis : -1;
}

/* "" or " (sample 17)": where the first value that is not finite lies. */
static void sbit__bad_sample(const sbit_quant *quant, const sbit_tensor *tensor, const float *data,
                             char *text, size_t size)
{
    const int64_t count = sbit_tensor_count(tensor);
    const int32_t axis = sbit__batch_axis(quant, tensor);
    int64_t at = 0, inner = 1;
    while (at < count && data[at] - data[at] == 0.0f) {
        at++;
    }
    text[0] = '\0';
    for (int32_t i = axis + 1; axis >= 0 && i < tensor->rank; i++) {
        inner *= tensor->dims[i];
    }
    if (axis >= 0 && at < count) {
        const int64_t row = at / inner % tensor->dims[axis] / (tensor->dims[axis] / quant->rows);
        const int64_t sample =
            quant->index != NULL && row < quant->samples ? quant->index[row] : row;
        snprintf(text, size, " (sample %lld)", (long long)sample);
    }
}

/* Fills in the smallest and largest of x; an error where a value is not finite. */
static sbit_status sbit__site_measure(sbit_quant *quant, const sbit__site *site,
                                      const sbit_tensor *tensor, sbit_observation *x,
                                      sbit_error *error)
{
    const char *name = sbit__site_value(site)->name;
    float *min = site->piece, *max = min + sbit__site_parts(site);
    if (!sbit__observation_measure(quant->ctx, x->data, &x->parts, min, max)) {
        char where[40];
        sbit__bad_sample(quant, tensor, x->data, where, sizeof where);
        return sbit__fail(error, SBIT_ERR_NUMERIC, name,
                          "tensor '%s' has values that are not finite (NaN or infinity)%s; check "
                          "the data and its preprocessing",
                          name, where);
    }
    x->min = min;
    x->max = max;
    return SBIT_OK;
}

/* What the quantizer makes of x, where it has a domain of its own; `seen` has room for it. */
static sbit_status sbit__site_domain(sbit_quant *quant, sbit__site *site, const sbit_tensor *tensor,
                                     sbit_observation *x, float *seen, sbit_error *error)
{
    const sbit_quantizer_call call = sbit__site_quantizer(quant, site);
    SBIT__TRY(site->settings.quantizer->domain(site->quantizer_state, &call, x, seen, error));
    x->data = seen;
    return sbit__site_measure(quant, site, tensor, x, error);
}

/* Feeds float32 data laid out as `tensor`. */
static sbit_status sbit__site_observe_f32(sbit_quant *quant, sbit__site *site,
                                          const sbit_tensor *tensor, const float *data,
                                          sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    const char *name = sbit__site_value(site)->name;
    const size_t bytes = (size_t)sbit_tensor_count(tensor) * sizeof(float);
    float *seen = NULL;
    if (site->axis >= 0 &&
        (site->axis >= tensor->rank ||
         sbit_parts_of(tensor, site->axis, site->block).count != sbit__site_parts(site))) {
        return sbit__fail(
            error, SBIT_ERR_SHAPE, name,
            "tensor '%s': its %lld entries on axis %d are not the planned number", name,
            (long long)(site->axis < tensor->rank ? tensor->dims[site->axis] : 0), (int)site->axis);
    }
    sbit_observation x = sbit__site_observation(site, tensor, data);
    SBIT__TRY(sbit__site_measure(quant, site, tensor, &x, error));
    sbit_status status = SBIT_OK;
    if (site->settings.quantizer->domain != NULL) {
        seen = (float *)sbit__alloc(a, bytes);
        status = seen != NULL ? sbit__site_domain(quant, site, tensor, &x, seen, error)
                              : sbit__fail_oom(error, bytes);
    }
    if (status == SBIT_OK) {
        status = site->settings.observer->observe(site->observer_state, &observer, &x, error);
        site->observed = status == SBIT_OK;
    }
    sbit__free(a, seen, bytes);
    return status;
}

SBIT__FN sbit_status sbit__site_again(sbit_quant *quant, sbit__site *site, bool *wanted,
                                      sbit_error *error)
{
    const sbit_observer_row *row = site->settings.observer;
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    *wanted = false;
    return row->again != NULL ? row->again(site->observer_state, &observer, wanted, error)
                              : SBIT_OK;
}

/* Copies the first `keep` entries of an axis. */
static void sbit__copy_front(const sbit_tensor *tensor, int32_t axis, int64_t keep, char *to)
{
    sbit_tensor part = *tensor;
    for (int32_t i = 0; i < axis; i++) {
        part.dims[i] = 1;
    }
    const size_t step = sbit_tensor_bytes(&part);
    part.dims[axis] = keep;
    const size_t bytes = sbit_tensor_bytes(&part);
    for (size_t at = 0, end = sbit_tensor_bytes(tensor); at < end; at += step, to += bytes) {
        memcpy(to, (const char *)tensor->data + at, bytes);
    }
}

SBIT__FN sbit_status sbit__site_observe(sbit_quant *quant, sbit__site *site,
                                        const sbit_tensor *tensor, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const bool activation = site->target == SBIT_TARGET_ACTIVATION;
    const int32_t batch = activation ? sbit__batch_axis(quant, tensor) : -1;
    sbit_tensor real = *tensor;
    if (batch >= 0 && quant->samples < quant->rows) {
        real.dims[batch] = tensor->dims[batch] / quant->rows * quant->samples;
    }
    const int64_t count = sbit_tensor_count(&real);
    const bool moved = batch > 0 && quant->samples < quant->rows;
    if (count == 0) {
        return SBIT_OK; /* says nothing */
    }
    if (tensor->dtype == SBIT_F32 && !moved) {
        return sbit__site_observe_f32(quant, site, &real, (const float *)tensor->data, error);
    }
    const size_t bytes = (size_t)count * sizeof(float), old = sbit_tensor_bytes(&real);
    char *data = (char *)sbit__alloc(a, bytes + old); /* float32, then the part that counts */
    if (data == NULL) {
        return sbit__fail_oom(error, bytes + old);
    }
    const void *from = tensor->data;
    if (moved) {
        sbit__copy_front(tensor, batch, real.dims[batch], data + bytes);
        from = data + bytes;
    }
    sbit__convert(tensor->dtype, from, SBIT_F32, data, count);
    const sbit_status status =
        sbit__site_observe_f32(quant, site, &real, (const float *)(const void *)data, error);
    sbit__free(a, data, bytes + old);
    return status;
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

/* >>calibrate ranges */
static sbit_status sbit__calc_range(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    if (site->fixed_range) {
        site->min[0] = site->fixed_min;
        site->max[0] = site->fixed_max;
        return SBIT_OK;
    }
    if (site->target == SBIT_TARGET_WEIGHT) {
        sbit_tensor weight;
        SBIT__TRY(sbit__site_prepare(quant, site, error));
        SBIT__TRY(sbit__site_weight(quant, site, &weight, error));
        for (bool wanted = true; wanted;) {
            SBIT__TRY(sbit__site_observe(quant, site, &weight, error));
            SBIT__TRY(sbit__site_again(quant, site, &wanted, error));
        }
    }
    if (!site->observed) {
        site->enabled = site->target == SBIT_TARGET_WEIGHT;
        site->reason = "no data reached it during calibration";
        return SBIT_OK;
    }
    return site->settings.observer->range(site->observer_state, &observer, site->min, site->max,
                                          error);
}

static float sbit__calc_width(const sbit__site *site)
{
    const float lo = site->min[0] < 0.0f ? -site->min[0] : site->min[0];
    const float hi = site->max[0] < 0.0f ? -site->max[0] : site->max[0];
    return lo > hi ? lo : hi;
}

/* Joins the ranges of all per-tensor activation sites of one group. */
static void sbit__calc_join_groups(sbit_quant *quant)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *first = &quant->sites[i];
        float min = 0.0f, max = 0.0f;
        for (int pass = 0; pass < 2; pass++) { /* gather, then give to all */
            for (size_t j = 0; first->target == SBIT_TARGET_ACTIVATION && j < quant->site_count;
                 j++) {
                sbit__site *site = &quant->sites[j];
                if (!site->enabled || site->group != first->group || site->axis != -1 ||
                    site->target != SBIT_TARGET_ACTIVATION) {
                    continue;
                }
                if (pass == 0) { /* every range is widened to contain 0 in the end */
                    min = site->min[0] < min ? site->min[0] : min;
                    max = site->max[0] > max ? site->max[0] : max;
                } else {
                    site->min[0] = min;
                    site->max[0] = max;
                }
            }
        }
    }
}

/* The enabled per-tensor activation site of a value, for sharing. */
static sbit__site *sbit__calc_shared_site(sbit_quant *quant, const sbit_graph *graph,
                                          sbit_value_id value)
{
    for (size_t i = 0; value.idx != 0 && i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (sbit__site_is(site, graph, value, SBIT_TARGET_ACTIVATION) && site->enabled &&
            site->axis == -1) {
            return site;
        }
    }
    return NULL;
}

/* Value i of those that a node joins: its inputs, then its output. */
static sbit_value_id sbit__calc_joined(const sbit_node *node, size_t i)
{
    return i < node->input_count ? node->inputs[i] : node->outputs[0];
}

/* One scale for the first `count` of them, if their ranges are alike. */
static void sbit__calc_share_node(sbit_quant *quant, const sbit_graph *graph, const sbit_node *node,
                                  size_t count)
{
    const double limit = sbit_options_float(&quant->config->tree.top, "EXPORT.SHARE_LIMIT");
    const sbit__site *first = sbit__calc_shared_site(quant, graph, sbit__calc_joined(node, 0));
    float narrow = 0.0f, wide = 0.0f;
    for (size_t i = 0; i < count; i++) {
        const sbit__site *site = sbit__calc_shared_site(quant, graph, sbit__calc_joined(node, i));
        if (site == NULL || site->settings.grid.qmin != first->settings.grid.qmin ||
            site->settings.grid.qmax != first->settings.grid.qmax ||
            site->settings.grid.symmetric != first->settings.grid.symmetric) {
            return;
        }
        const float width = sbit__calc_width(site);
        narrow = i == 0 || width < narrow ? width : narrow;
        wide = width > wide ? width : wide;
    }
    if ((double)wide > limit * (double)narrow) {
        char text[160];
        sbit_graph_describe(graph, node->id, text, sizeof text);
        sbit__log(quant->ctx, SBIT_LOG_INFO,
                  "%s: its inputs' ranges differ by more than %g times (%g and %g); they keep "
                  "scales of their own",
                  text, limit, (double)wide, (double)narrow);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        const uint32_t from =
            sbit__calc_shared_site(quant, graph, sbit__calc_joined(node, i))->group;
        for (size_t j = 0; j < quant->site_count; j++) {
            if (quant->sites[j].group == from) {
                quant->sites[j].group = first->group;
            }
        }
    }
}

static void sbit__calc_share_graph(sbit_quant *quant, const sbit_graph *graph, bool add)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        const sbit_op_row *row = sbit_operator_find(quant->ctx, node->domain, node->op_type,
                                                    sbit_graph_opset(quant->graph, node->domain));
        if (row == NULL || row->quant == NULL || node->output_count == 0) {
            continue;
        }
        if ((row->quant->flags & SBIT_QUANT_SHARE_SCALE) != 0) {
            sbit__calc_share_node(quant, graph, node, node->input_count + 1);
        } else if (add && (row->quant->flags & SBIT_QUANT_CLASSIC_ADD) != 0) {
            sbit__calc_share_node(quant, graph, node, node->input_count);
        }
    }
}

/* Concat: inputs and output; Add: inputs, for runtimes that add the integers as they are. Only
 * where outputs are quantized too: Sparsebit gives every input a scale of its own. */
static void sbit__calc_share(sbit_quant *quant)
{
    const char *which = sbit_options_string(&quant->config->tree.top, "EXPORT.SHARE_SCALE");
    const bool concat = quant->profile->outputs && !sbit__streq(which, "none");
    const bool add = concat && sbit__streq(which, "concat_add");
    const sbit_graph *graph;
    for (uint32_t body = 0; concat && (graph = sbit__quant_body(quant->graph, body)) != NULL;
         body++) {
        sbit__calc_share_graph(quant, graph, add);
    }
}

/* >>calibrate scales */
/* Scales of float16 and bfloat16 tensors are stored in that type: what is computed with must be
 * what is stored, and must not vanish (2^-24 is the smallest float16). */
static void sbit__calc_fit_scale(sbit__site *site, int64_t c)
{
    float scale = site->scale[c];
    if (site->dtype == SBIT_F32) {
        return;
    }
    if (site->dtype == SBIT_F16) {
        scale = scale > 5.9604645e-8f ? scale : 5.9604645e-8f;
        scale = sbit_f16_to_f32(sbit_f32_to_f16(scale));
    } else {
        scale = sbit_bf16_to_f32(sbit_f32_to_bf16(scale));
    }
    site->scale[c] = scale;
    site->zero_point[c] =
        sbit__qparams_zero_point(site->min[c], scale, site->settings.grid.symmetric,
                                 site->settings.grid.qmin, site->settings.grid.qmax);
}

static sbit_status sbit__calc_site_qparams(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const sbit__settings *s = &site->settings;
    const char *name = sbit__site_value(site)->name;
    for (int64_t c = 0; c < sbit__site_parts(site); c++) {
        SBIT__TRY(sbit_qparams_from_range(name, site->min[c], site->max[c], s->grid.symmetric,
                                          s->grid.qmin, s->grid.qmax, &site->scale[c],
                                          &site->zero_point[c], error));
        sbit__calc_fit_scale(site, c);
        if (s->power_of_two) {
            site->scale[c] = (float)exp2(ceil(log2((double)site->scale[c])));
            site->zero_point[c] = sbit__qparams_zero_point(
                site->min[c], site->scale[c], s->grid.symmetric, s->grid.qmin, s->grid.qmax);
        }
    }
    if (site->quantizer_state == NULL) {
        return SBIT_OK; /* a fixed range has no data to learn from */
    }
    const sbit_quantizer_call quantizer = sbit__site_quantizer(quant, site);
    if (site->target != SBIT_TARGET_WEIGHT) {
        return s->quantizer->init(site->quantizer_state, &quantizer, NULL, error);
    }
    sbit_tensor weight;
    SBIT__TRY(sbit__site_weight(quant, site, &weight, error));
    const sbit_observation x = sbit__site_observation(site, &weight, (const float *)weight.data);
    return s->quantizer->init(site->quantizer_state, &quantizer, &x, error);
}

SBIT__FN const sbit_value_info *sbit__quant_bias(const sbit_quant *quant, const sbit_graph *graph,
                                                 sbit_node_id id)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_op_row *row = sbit_operator_find(quant->ctx, node->domain, node->op_type,
                                                sbit_graph_opset(quant->graph, node->domain));
    const int32_t input = row != NULL && row->quant != NULL ? row->quant->bias : -1;
    if (!quant->profile->int32_bias || input < 0 || (size_t)input >= node->input_count ||
        node->inputs[input].idx == 0) {
        return NULL;
    }
    const sbit_value_info *bias = sbit_graph_value(graph, node->inputs[input]);
    const bool row_vector =
        bias->is_constant && bias->constant.dtype == SBIT_F32 && bias->constant.rank >= 1 &&
        bias->constant.dims[bias->constant.rank - 1] == sbit_tensor_count(&bias->constant);
    return row_vector ? bias : NULL;
}

/* |bias| / (scale_x * scale_w) must stay below 2^31: raises scale_w[c] just enough. The weights of
 * such a channel are next to zero anyway (field-reports A4.3). */
static void sbit__calc_fit_bias(sbit_quant *quant, sbit__site *weight, sbit_node_id node)
{
    const sbit_value_info *bias = sbit__quant_bias(quant, weight->graph, node);
    const sbit__site *x = sbit__quant_input_site(quant, weight->graph, node, 0);
    if (bias == NULL || x == NULL || x->axis != -1) {
        return;
    }
    const float *b = (const float *)bias->constant.data;
    const int64_t count = sbit_tensor_count(&bias->constant);
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % sbit__site_parts(weight);
        const double least = fabs((double)b[i]) / ((double)x->scale[0] * 2147483000.0);
        if ((double)weight->scale[c] < least) {
            weight->scale[c] = (float)(least * (1.0 + 1e-6));
        }
    }
}

SBIT__FN sbit_status sbit__quant_calc(sbit_quant *quant, sbit_error *error)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        SBIT__TRY(
            sbit__progress(quant->ctx, "quantize", (int64_t)i, (int64_t)quant->site_count, error));
        if (site->enabled) {
            SBIT__TRY(sbit__calc_range(quant, site, error));
        }
    }
    sbit__calc_share(quant);
    sbit__calc_join_groups(quant);
    for (size_t i = 0; i < quant->site_count; i++) {
        if (quant->sites[i].enabled) {
            SBIT__TRY(sbit__calc_site_qparams(quant, &quant->sites[i], error));
        }
    }
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        for (const sbit__site_use *use = site->uses;
             site->enabled && site->target == SBIT_TARGET_WEIGHT && !site->captured && use != NULL;
             use = use->next) {
            sbit__calc_fit_bias(quant, site, use->node);
        }
    }
    return SBIT_OK;
}
