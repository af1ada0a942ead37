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

static sbit_status sbit__analyze_all(sbit__trials *trials, const sbit__search_layers *layers,
                                     bool *sites, sbit_sensitivity *all, size_t *count,
                                     sbit_error *error)
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
        (*count)++;
    }
    qsort(all, *count, sizeof *all, sbit__sensitivity_order);
    return sbit__progress(quant->ctx, "analyze", (int64_t)layers->count, (int64_t)layers->count,
                          error);
}

static sbit_status sbit__analyze(sbit_quant *quant, const sbit_feed *feed,
                                 const sbit__search_layers *layers, sbit_sensitivity *out,
                                 size_t capacity, size_t *count, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t bytes = (layers->count + 1) * sizeof *out + quant->site_count;
    sbit__trials trials;
    size_t found = 0;
    sbit_sensitivity *all = (sbit_sensitivity *)sbit__calloc(a, 1, bytes);
    if (all == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    sbit_status status = sbit__trials_begin(quant, feed, &trials, error);
    if (status == SBIT_OK) {
        status = sbit__analyze_all(&trials, layers, (bool *)(void *)(all + layers->count + 1), all,
                                   &found, error);
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
