/* layers.c: the weights that are pruned: settings, scores. >>sparse-layers
 */
#include "sparse_private.h"

#include <math.h>  /* HUGE_VAL */
#include <stdio.h> /* snprintf */

/* >>settings */

/* The scales of the BatchNormalization that alone reads the layer's output. */
static const float *sbit__sparse_layer_gamma(const sbit_graph *graph, const sbit_node *node,
                                             int64_t rows)
{
    const sbit_value_info *output = sbit_graph_value(graph, node->outputs[0]);
    sbit_use use;
    if (output->use_count != 1 || sbit_graph_uses(graph, output->id, &use, 1) != 1 ||
        use.node.idx == 0 || use.body != NULL || use.index != 0) {
        return NULL;
    }
    const sbit_node *next = sbit_graph_node(graph, use.node);
    const sbit_tensor *gamma =
        sbit__streq(next->op_type, "BatchNormalization") && next->domain[0] == '\0'
            ? sbit__graph_constant(graph, next->inputs[1])
            : NULL;
    return gamma != NULL && gamma->dtype == SBIT_F32 && gamma->dims[0] == rows
               ? (const float *)gamma->data
               : NULL;
}

/* As float32; what was pruned before is 0. */
static sbit_status sbit__sparse_layer_weight(sbit_sparse *sparse, sbit__sparse_layer *layer,
                                             const sbit_tensor *weight, sbit_error *error)
{
    const uint8_t *start = sparse->start[sparse->labeler.members[layer->member].value.idx];
    if (layer->owns_weight) {
        sbit_tensor_free(sparse->ctx, &layer->weight);
        layer->owns_weight = false;
    }
    if (weight->dtype == SBIT_F32 && start == NULL) {
        layer->weight = *weight;
        return SBIT_OK;
    }
    SBIT__TRY(sbit_tensor_alloc(sparse->ctx, SBIT_F32, weight->rank, weight->dims, &layer->weight,
                                error));
    layer->owns_weight = true;
    sbit__convert(weight->dtype, weight->data, SBIT_F32, layer->weight.data,
                  sbit_tensor_count(weight));
    for (int64_t i = 0; start != NULL && i < sbit_tensor_count(weight); i++) {
        float *w = (float *)layer->weight.data;
        w[i] = start[i] != 0 ? w[i] : 0.0f;
    }
    return SBIT_OK;
}

/* The axis that the weight's channels are read along; -1: none. */
static int32_t sbit__sparse_layer_in_axis(const sbit__labeler *labeler, const sbit__member *rows)
{
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        if (member->value.idx == rows->value.idx &&
            (member->roles >> SBIT_ROLE_COLUMNS & 1u) != 0) {
            return member->axis;
        }
    }
    return -1;
}

/* MASK. */
static sbit_status sbit__sparse_layer_start(sbit_sparse *sparse, const sbit__sparse_layer *layer,
                                            const sbit_tensor *weight, sbit_error *error)
{
    const sbit__member *member = &sparse->labeler.members[layer->member];
    const char *mask = sbit_options_string(&layer->options, "MASK");
    const int64_t n = (int64_t)strlen(mask), count = sbit_tensor_count(weight);
    const int64_t rows = weight->dims[member->axis];
    const sbit_parts parts = sbit_parts_of(weight, member->axis, n == rows ? 0 : 1);
    if (n == 0) {
        return SBIT_OK;
    }
    if ((n != rows && n != count) || strspn(mask, "01") != (size_t)n) {
        return sbit__fail(error, SBIT_ERR_CONFIG, layer->name,
                          "SPARSER: MASK of '%s' must be %lld digits 0 or 1, of rows, or %lld, of elements",
                          layer->name, (long long)rows, (long long)count);
    }
    uint8_t *keep = (uint8_t *)sbit__arena_alloc(&sparse->arena, (size_t)count + 1);
    if (keep == NULL) {
        return sbit__fail_oom(error, (size_t)count);
    }
    for (int64_t i = 0; i < count; i++) {
        keep[i] = mask[n == rows ? sbit_parts_at(&parts, i) : i] == '1' ? 1 : 0;
    }
    sparse->start[member->value.idx] = keep;
    return SBIT_OK;
}

static sbit_status sbit__sparse_layer_make(sbit_sparse *sparse, sbit_sconfig *config, int32_t index,
                                           sbit__sparse_layer *layer, sbit_error *error)
{
    const sbit__member *member = &sparse->labeler.members[index];
    const sbit_tensor *weight = &sbit_graph_value(sparse->graph, member->value)->constant;
    layer->member = index;
    sbit_layer_name(sparse->graph, member->node, layer->name, sizeof layer->name);
    SBIT__TRY(sbit__sconfig_resolve(config, sparse->graph, member->node, &sparse->arena,
                                    &layer->options, &layer->settings, error));
    layer->settings.from = sbit__arena_printf(&sparse->arena, "%s", layer->settings.from);
    if (layer->settings.from == NULL) {
        return sbit__fail_oom(error, 1);
    }
    layer->target = layer->settings.ratio;
    layer->spared = layer->given =
        layer->target == 0.0 && sbit_options_find(&layer->options, "RATIO")->is_set;
    layer->row = sbit_sparser_find(sparse->ctx, layer->settings.strategy);
    const uint32_t granularity =
        layer->settings.structured ? SBIT_GRANULARITY_ROW : SBIT_GRANULARITY_ELEMENT;
    if ((layer->row->granularities & granularity) == 0) {
        return sbit__fail(error, SBIT_ERR_CONFIG, layer->name,
                          "SPARSER: %s cannot score %s; another STRATEGY can",
                          layer->row->head.name,
                          layer->settings.structured ? "whole channels" : "single elements");
    }
    layer->units = sbit_parts_of(weight, member->axis, layer->settings.structured ? 0 : 1);
    layer->call.ctx = sparse->ctx;
    layer->call.name = layer->name;
    layer->call.options = &layer->options;
    layer->call.out_axis = member->axis;
    layer->call.in_axis = sbit__sparse_layer_in_axis(&sparse->labeler, member);
    layer->call.units = &layer->units;
    layer->call.seed = index;
    layer->call.progress = 1.0;
    layer->threshold = layer->settings.threshold;
    layer->min_ratio = layer->settings.min_ratio;
    return sbit__sparse_layer_start(sparse, layer, weight, error);
}

SBIT__FN sbit_status sbit__layers_make(sbit_sparse *sparse, sbit_sconfig *config, sbit_error *error)
{
    const sbit__labeler *labeler = &sparse->labeler;
    sparse->layers = (sbit__sparse_layer *)sbit__arena_array(
        &sparse->arena, labeler->member_count + 1, sizeof *sparse->layers);
    if (sparse->layers == NULL) {
        return sbit__fail_oom(error, labeler->member_count * sizeof *sparse->layers);
    }
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        const sbit_tensor *weight = &sbit_graph_value(sparse->graph, member->value)->constant;
        if (sbit__member_prunes(member) && weight->rank > 1 && member->parts == 1 &&
            (SBIT_T_FLOATS >> (uint32_t)weight->dtype & 1u) != 0) {
            SBIT__TRY(sbit__sparse_layer_make(sparse, config, (int32_t)m,
                                              &sparse->layers[sparse->layer_count++], error));
        }
    }
    sbit__sconfig_warn_unmatched(config, sparse->graph);
    return SBIT_OK;
}

static void sbit__sparse_layer_forget(sbit_sparse *sparse, sbit__sparse_layer *layer)
{
    if (layer->state != NULL && layer->row->deinit != NULL) {
        layer->row->deinit(layer->state, &layer->call);
    }
    sbit__free_aligned(sbit_ctx_allocator(sparse->ctx), layer->state, layer->state_bytes);
    layer->state = NULL;
}

SBIT__FN void sbit__layers_free(sbit_sparse *sparse)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer_forget(sparse, &sparse->layers[i]);
        if (sparse->layers[i].owns_weight) {
            sbit_tensor_free(sparse->ctx, &sparse->layers[i].weight);
        }
    }
}

SBIT__FN bool sbit__sparse_layer_active(const sbit__sparse_layer *layer)
{
    return layer->settings.ratio > 0.0 || layer->threshold > 0.0 ||
           (!layer->settings.structured &&
            (layer->settings.n_of_m[1] > 0 || layer->settings.diagonal > 0));
}

SBIT__FN bool sbit__sparse_layer_together(const sbit__sparse_layer *layer, bool structured)
{
    return layer->settings.whole_model && layer->settings.structured == structured &&
           layer->settings.ratio > 0.0 && layer->row->update == NULL;
}

/* >>scores */

static sbit_status sbit__sparse_layer_open(sbit_sparse *sparse, sbit__sparse_layer *layer,
                                           sbit_error *error)
{
    const sbit__member *member = &sparse->labeler.members[layer->member];
    const sbit_tensor *weight = &sbit_graph_value(sparse->graph, member->value)->constant;
    const bool goes_on = sparse->stepping == 2 && layer->state != NULL;
    if (!goes_on) {
        sbit__sparse_layer_forget(sparse, layer);
    }
    SBIT__TRY(sbit__sparse_layer_weight(sparse, layer, weight, error));
    layer->gamma = sbit__sparse_layer_gamma(
        sparse->graph, sbit_graph_node(sparse->graph, member->node), weight->dims[member->axis]);
    layer->call.weight = layer->weight;
    layer->call.gamma = layer->gamma;
    if (goes_on) {
        return SBIT_OK;
    }
    layer->state_bytes =
        layer->row->state_bytes != NULL ? layer->row->state_bytes(&layer->call) : 0;
    layer->state_bytes += layer->state_bytes == 0 ? 1 : 0;
    layer->state = sbit__alloc_aligned(sbit_ctx_allocator(sparse->ctx), layer->state_bytes);
    if (layer->scores == NULL) {
        layer->scores = (double *)sbit__arena_array(&sparse->arena, (size_t)layer->units.count + 1,
                                                    sizeof(double));
    }
    if (layer->state == NULL || layer->scores == NULL) {
        return sbit__fail_oom(error, layer->state_bytes);
    }
    memset(layer->state, 0, layer->state_bytes);
    return SBIT_OK;
}

/* Units of which a start mask prunes everything go before all others. */
static sbit_status sbit__sparse_layer_started(const sbit_sparse *sparse, sbit__sparse_layer *layer,
                                              sbit_error *error)
{
    const uint8_t *start = sparse->start[sparse->labeler.members[layer->member].value.idx];
    const sbit_allocator *a = sbit_ctx_allocator(sparse->ctx);
    const size_t count = (size_t)layer->units.count + 1;
    if (start == NULL) {
        return SBIT_OK;
    }
    uint8_t *left = (uint8_t *)sbit__calloc(a, count, 1);
    if (left == NULL) {
        return sbit__fail_oom(error, count);
    }
    sbit_runs runs = sbit_runs_of(&layer->units);
    while (sbit_runs_next(&runs)) {
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            left[runs.part] |= start[i];
        }
    }
    for (int64_t u = 0; u < layer->units.count; u++) {
        layer->scores[u] = left[u] != 0 ? layer->scores[u] : -HUGE_VAL;
    }
    sbit__free(a, left, count);
    return SBIT_OK;
}

/* THRESHOLD as a ratio, which gives the same count; not of layers that were given one. */
static void sbit__sparse_layer_threshold(const sbit_sparse *sparse, sbit__sparse_layer *layer)
{
    sbit_sparse_settings *settings = &layer->settings;
    int64_t below = 0;
    for (int64_t i = 0; i < layer->units.count; i++) {
        below += layer->scores[i] < settings->threshold ? 1 : 0;
    }
    if (settings->threshold > 0.0 && !layer->given && !sparse->trying && layer->units.count > 0) {
        const double ratio = (double)below / (double)layer->units.count;
        settings->ratio = ratio < settings->min_ratio   ? settings->min_ratio
                          : ratio > settings->max_ratio ? settings->max_ratio
                                                        : ratio;
    }
}

SBIT__FN sbit_status sbit__layers_score(sbit_sparse *sparse, const sbit_feed *feed,
                                        sbit_error *error)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        if ((layer->row->needs & ~(uint32_t)SBIT_NEEDS_GAMMA) != 0 && feed == NULL &&
            sbit__sparse_layer_active(layer)) {
            return sbit__fail(error, SBIT_ERR_STATE, layer->name,
                              "sparser %s looks at data: give it a feed", layer->row->head.name);
        }
        if (layer->row->update != NULL) {
            continue;
        }
        SBIT__TRY(sbit__sparse_layer_open(sparse, layer, error));
    }
    if (feed != NULL) {
        SBIT__TRY(sbit__layers_observe(sparse, NULL, feed, error));
        SBIT__TRY(sbit__layers_gradients(sparse, feed, error));
    }
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        if (layer->row->update != NULL) {
            continue;
        }
        const sbit_status status =
            layer->row->score(layer->state, &layer->call, layer->scores, error);
        if (sparse->stepping == 0 || (layer->row->traits & SBIT_SPARSER_REMEMBERS) == 0) {
            sbit__sparse_layer_forget(sparse, layer);
        }
        SBIT__TRY(status);
        SBIT__TRY(sbit__sparse_layer_started(sparse, layer, error));
        sbit__sparse_layer_threshold(sparse, layer);
    }
    return SBIT_OK;
}

/* >>updates */

SBIT__FN sbit_status sbit__sparse_change(sbit_sparse *sparse, sbit_value_id id,
                                         const sbit_tensor *tensor, sbit_error *error)
{
    if (sparse->was[id.idx].data == NULL) {
        SBIT__TRY(sbit__tensor_copy(sparse->ctx, &sbit_graph_value(sparse->graph, id)->constant,
                                    &sparse->was[id.idx], error));
    }
    return sbit_graph_set_constant(sparse->graph, id, tensor, error);
}

SBIT__FN sbit_status sbit__sparse_unchanged(const sbit_sparse *sparse, sbit_graph *copy,
                                            sbit_error *error)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        sbit_value_id id;
        id.idx = v;
        if (sparse->was[v].data != NULL) {
            SBIT__TRY(sbit_graph_set_constant(copy, id, &sparse->was[v], error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__sparse_restore(sbit_sparse *sparse, sbit_error *error)
{
    SBIT__TRY(sbit__sparse_unchanged(sparse, sparse->graph, error));
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        sbit_tensor_free(sparse->ctx, &sparse->was[v]);
    }
    return SBIT_OK;
}

static sbit_status sbit__layer_change(sbit_sparse *sparse, sbit__sparse_layer *layer,
                                      const sbit_feed *feed, sbit_tensor *weight, sbit_error *error)
{
    const sbit_value_id id = sparse->labeler.members[layer->member].value;
    uint8_t *keep = NULL;
    if (sbit_graph_value(sparse->graph, id)->constant.dtype != SBIT_F32) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, layer->name,
                          "sparser %s changes float32 weights only", layer->row->head.name);
    }
    SBIT__TRY(sbit__sparse_layer_open(sparse, layer, error));
    SBIT__TRY(sbit__layers_observe(sparse, layer, feed, error));
    SBIT__TRY(sbit__mask_of(sparse, id, &keep, error));
    SBIT__TRY(sbit__tensor_copy(sparse->ctx, &layer->weight, weight, error));
    for (int64_t i = 0; i < sbit_tensor_count(weight); i++) {
        float *w = (float *)weight->data;
        w[i] = keep[i] != 0 ? w[i] : 0.0f;
    }
    SBIT__TRY(layer->row->update(layer->state, &layer->call, layer->settings.ratio,
                                 layer->settings.n_of_m, (float *)weight->data, keep, error));
    return sbit__sparse_change(sparse, id, weight, error);
}

SBIT__FN sbit_status sbit__layers_update(sbit_sparse *sparse, const sbit_feed *feed,
                                         sbit_error *error)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        sbit_tensor weight;
        memset(&weight, 0, sizeof weight);
        if (layer->row->update == NULL || !sbit__sparse_layer_active(layer) || feed == NULL) {
            continue;
        }
        const sbit_status status = sbit__layer_change(sparse, layer, feed, &weight, error);
        sbit_tensor_free(sparse->ctx, &weight);
        sbit__sparse_layer_forget(sparse, layer);
        SBIT__TRY(status);
        sparse->masks_fit = false; /* what removed channels are may have changed */
        SBIT__TRY(sbit__progress(sparse->ctx, "prune", (int64_t)i + 1, (int64_t)sparse->layer_count,
                                 error));
    }
    return SBIT_OK;
}
