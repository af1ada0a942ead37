/* analyze.c: the sensitivity of layers: each alone quantized. >>analyze
 */
#include "analyze_api.h"
#include "trials_private.h"

#include <stdlib.h> /* qsort */

static int sbit__sensitivity_order(const void *a, const void *b)
{
    const sbit_sensitivity *x = (const sbit_sensitivity *)a, *y = (const sbit_sensitivity *)b;
    return x->noise > y->noise ? -1 : x->noise < y->noise ? 1 : strcmp(x->layer, y->layer);
}

/* What is known of a layer without running it; `sites` gets its own. False: all of them are float.
 */
static bool sbit__analyze_layer(const sbit_quant *quant, const sbit__search_layers *layers,
                                size_t index, bool *sites, sbit_sensitivity *out)
{
    const sbit__search_layer *layer = &layers->items[index];
    bool any = false;
    memset(out, 0, sizeof *out);
    out->layer = layer->name;
    out->op_type = "";
    if (layer->node.idx != 0) {
        out->op_type = sbit_graph_node(quant->graph, layer->node)->op_type;
        out->macs = sbit_graph_node_macs(quant->graph, layer->node);
    }
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *site = &quant->sites[i];
        sites[i] = layers->of_site[i] == index && site->enabled;
        any = any || sites[i];
        if (sites[i] && site->target == SBIT_TARGET_WEIGHT) {
            out->weight_bits = site->settings.grid.bits;
            out->params += sbit_tensor_count(&sbit__site_value(site)->constant);
        } else if (sites[i]) {
            out->activation_bits = site->settings.grid.bits;
        }
    }
    return any;
}

/* >>analyze own: what each layer's own output is off by: on float inputs, in a session of the quantized
 * graph cut at what the layer reads, which a float run feeds; and in a run of the whole of it. */
enum {
    SBIT__OWN_INPUTS = 8
};

typedef struct sbit__own {
    sbit_node_id node;
    sbit_session *session; /* NULL: not measured */
    size_t input_count;
    sbit_value_id inputs[SBIT__OWN_INPUTS];
    sbit_diff diff, accumulated;
} sbit__own;

typedef struct sbit__owns {
    sbit_quant *quant;
    sbit_graph *graph; /* quantized; values have the ids of quant->graph */
    sbit_session *plain, *all; /* the float and the quantized model */
    sbit__own *items; /* [count], as the layers */
    size_t count;
} sbit__owns;

static sbit_status sbit__own_begin(const sbit__owns *t, sbit__own *own, sbit_error *error)
{
    sbit_session_desc desc;
    if (own->node.idx == 0) {
        return SBIT_OK;
    }
    const sbit_node *node = sbit_graph_node(t->quant->graph, own->node);
    for (size_t k = 0; k < node->input_count; k++) {
        const sbit_value_id id = node->inputs[k];
        bool known = id.idx == 0 || sbit_graph_value(t->quant->graph, id)->is_constant;
        for (size_t i = 0; i < own->input_count; i++) {
            known = known || own->inputs[i].idx == id.idx;
        }
        if (!known && own->input_count == SBIT__OWN_INPUTS) {
            return SBIT_OK;
        }
        if (!known) {
            own->inputs[own->input_count++] = id;
        }
    }
    const sbit_value_info *y = sbit_graph_value(t->quant->graph, node->outputs[0]);
    if (own->input_count == 0 || sbit_node_body(node, 0) != NULL || y->type.kind != SBIT_KIND_TENSOR ||
        !sbit_dtype_is_number(y->type.dtype)) {
        return SBIT_OK;
    }
    memset(&desc, 0, sizeof desc);
    desc.inputs = own->inputs;
    desc.input_count = own->input_count;
    desc.outputs = node->outputs;
    desc.output_count = 1;
    return sbit_session_create(t->graph, &desc, &own->session, error);
}

/* Without padding. */
static void sbit__own_add(sbit_diff *diff, const sbit_value *want, const sbit_value *got,
                          const sbit_batch *batch)
{
    const int64_t all = sbit_tensor_count(&want->tensor), rows = batch->inputs[0].dims[0];
    const bool part = !batch->whole && batch->inputs[0].rank > 0 && rows > 0 && all % rows == 0;
    sbit_diff_add(diff, &want->tensor, &got->tensor, part ? all / rows * batch->samples : all);
}

static sbit_status sbit__own_batch(const sbit__owns *t, sbit__own *own, const sbit_batch *batch,
                                   sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(t->quant->graph, own->node);
    const sbit_value *want = sbit_session_value(t->plain, node->outputs[0]);
    const sbit_value *all = sbit_session_value(t->all, node->outputs[0]);
    for (size_t k = 0; k < own->input_count; k++) {
        const sbit_value *x = sbit_session_value(t->plain, own->inputs[k]);
        if (x == NULL || x->kind != SBIT_KIND_TENSOR) {
            return SBIT_OK;
        }
        SBIT__TRY(sbit_session_set_input_at(own->session, k, &x->tensor, error));
    }
    SBIT__TRY(sbit_session_run(own->session, error));
    if (want != NULL && all != NULL) {
        sbit__own_add(&own->diff, want, sbit_session_output(own->session, 0), batch);
        sbit__own_add(&own->accumulated, want, all, batch);
    }
    return SBIT_OK;
}

static sbit_status sbit__own_feed(const sbit__owns *t, sbit_session *session,
                                  const sbit_batch *batch, sbit_error *error)
{
    SBIT__TRY(sbit__batch_set(batch, t->quant->graph, session, error));
    return sbit_session_run(session, error);
}

static sbit_status sbit__owns_measure(sbit__owns *t, const sbit_feed *feed, sbit_error *error)
{
    sbit_session_desc desc;
    sbit_batch batch;
    memset(&desc, 0, sizeof desc);
    desc.keep_values = true;
    SBIT__TRY(sbit__quant_build(t->quant, NULL, true, &t->graph, error));
    SBIT__TRY(sbit_session_create(t->quant->graph, &desc, &t->plain, error));
    SBIT__TRY(sbit_session_create(t->graph, &desc, &t->all, error));
    for (size_t i = 0; i < t->count; i++) {
        SBIT__TRY(sbit__own_begin(t, &t->items[i], error));
    }
    for (int64_t at = 0; at < feed->count; at += batch.samples) {
        SBIT__TRY(sbit_feed_read(feed, at, 0, &batch, error));
        SBIT__TRY(sbit__own_feed(t, t->plain, &batch, error));
        SBIT__TRY(sbit__own_feed(t, t->all, &batch, error));
        for (size_t i = 0; i < t->count; i++) {
            if (t->items[i].session != NULL) {
                SBIT__TRY(sbit__own_batch(t, &t->items[i], &batch, error));
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__analyze_own(sbit_quant *quant, const sbit_feed *feed,
                                     const sbit__search_layers *layers, const size_t *index,
                                     sbit_sensitivity *all, size_t count, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t bytes = (count + 1) * sizeof(sbit__own);
    sbit__owns t;
    memset(&t, 0, sizeof t);
    t.quant = quant;
    t.count = count;
    t.items = (sbit__own *)sbit__calloc(a, 1, bytes);
    if (t.items == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (size_t i = 0; i < count; i++) {
        t.items[i].node = layers->items[index[i]].node;
    }
    const sbit_status status = sbit__owns_measure(&t, feed, error);
    for (size_t i = 0; i < count; i++) {
        all[i].own = t.items[i].diff;
        all[i].accumulated = t.items[i].accumulated;
        sbit_session_destroy(t.items[i].session);
    }
    sbit_session_destroy(t.plain);
    sbit_session_destroy(t.all);
    sbit_graph_destroy(t.graph);
    sbit__free(a, t.items, bytes);
    return status;
}

static sbit_status sbit__analyze_labels(const sbit__trials *trials, const sbit_feed *feed,
                                        const sbit__search_layers *layers, const size_t *index,
                                        sbit_sensitivity *all, size_t count, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(trials->quant->ctx);
    const double samples = (double)feed->count;
    bool able = false;
    double *sums = (double *)sbit__calloc(a, 2 * layers->count + 1, sizeof *sums);
    sbit_status status = sums != NULL ? SBIT_OK : sbit__fail_oom(error, layers->count * 16);
    if (status == SBIT_OK && trials->labels != NULL) {
        status = sbit__analyze_slopes(trials->quant, feed, layers, sums, &able, error);
    }
    for (size_t i = 0; i < count && status == SBIT_OK; i++) {
        all[i].taylor = able ? sums[2 * index[i]] / samples : (double)NAN;
        all[i].fisher = able ? 0.5 * sums[2 * index[i] + 1] / samples : (double)NAN;
    }
    sbit__free(a, sums, (2 * layers->count + 1) * sizeof *sums);
    return status;
}

static sbit_status sbit__analyze_all(sbit__trials *trials, const sbit__search_layers *layers,
                                     const sbit_feed *feed, bool *sites, size_t *index,
                                     sbit_sensitivity *all, size_t *count, sbit_error *error)
{
    sbit_quant *quant = trials->quant;
    for (size_t i = 0; i < layers->count; i++) {
        sbit_sensitivity *one = &all[*count];
        sbit__trial trial;
        SBIT__TRY(sbit__progress(quant->ctx, "analyze", (int64_t)i, (int64_t)layers->count, error));
        if (!sbit__analyze_layer(quant, layers, i, sites, one)) {
            continue;
        }
        SBIT__TRY(sbit__trials_run(trials, sites, layers->items[i].start, &trial, error));
        one->noise = trial.noise;
        one->sqnr = trial.noise > 0.0 ? -10.0 * log10(trial.noise) : HUGE_VAL;
        one->mse = trial.elements > 0 ? trial.error2 / (double)trial.elements : 0.0;
        one->agreement =
            trial.ranked > 0 ? (double)trial.agreed / (double)trial.ranked : 1.0;
        index[(*count)++] = i;
    }
    SBIT__TRY(sbit__analyze_own(quant, feed, layers, index, all, *count, error));
    SBIT__TRY(sbit__analyze_labels(trials, feed, layers, index, all, *count, error));
    qsort(all, *count, sizeof *all, sbit__sensitivity_order);
    return sbit__progress(quant->ctx, "analyze", (int64_t)layers->count, (int64_t)layers->count,
                          error);
}

static sbit_status sbit__analyze(sbit_quant *quant, const sbit_feed *feed,
                                 const sbit__search_layers *layers, sbit_sensitivity *out,
                                 size_t capacity, size_t *count, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t bytes =
        (layers->count + 1) * (sizeof *out + sizeof(size_t)) + quant->site_count;
    sbit__trials trials;
    size_t found = 0;
    sbit_sensitivity *all = (sbit_sensitivity *)sbit__calloc(a, 1, bytes);
    if (all == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    sbit_status status = sbit__trials_begin(quant, feed, &trials, error);
    if (status == SBIT_OK) {
        size_t *index = (size_t *)(void *)(all + layers->count + 1);
        bool *sites = (bool *)(void *)(index + layers->count + 1);
        status = sbit__analyze_all(&trials, layers, feed, sites, index, all, &found, error);
        sbit__trials_end(&trials);
    }
    if (status == SBIT_OK) {
        memcpy(out, all, (found < capacity ? found : capacity) * sizeof *out);
        *count = found;
    }
    sbit__free(a, all, bytes);
    return status;
}

SPARSEBIT_API sbit_status sbit_quant_analyze(sbit_quant *quant, const sbit_feed *feed,
                                             sbit_sensitivity *out, size_t capacity, size_t *count,
                                             sbit_error *error)
{
    sbit__search_layers layers;
    if (quant == NULL || feed == NULL || count == NULL || (out == NULL && capacity > 0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "a quant, a feed and a place for the number of layers are wanted");
    }
    if (!quant->calibrated) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL, "call sbit_quant_calc_qparams first");
    }
    sbit_status status = sbit__search_layers_find(quant, &layers, error);
    if (status == SBIT_OK) {
        status = sbit__analyze(quant, feed, &layers, out, capacity, count, error);
    }
    sbit__search_layers_free(quant, &layers);
    return status;
}
