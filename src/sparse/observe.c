/* observe.c: the model runs on data, and sparsers see what goes into and comes out of their layers.
 * >>sparse-observe
 */
#include "../exec/exec_api.h"
#include "sparse_private.h"

typedef struct sbit__observe {
    sbit_sparse *sparse;
    const sbit__sparse_layer *only; /* NULL: all layers that do not update their weights */
    bool for_collectors;            /* and nothing else */
    int64_t samples;
} sbit__observe;

static bool sbit__collector_takes(const sbit_sparse *sparse, const sbit__collector *collector,
                                  const sbit__sparse_layer *layer, uint32_t what)
{
    return (collector->is.what & what) != 0 &&
           (collector->is.pattern[0] == '\0' ||
            sbit_layer_matches(sparse->graph, sparse->labeler.members[layer->member].node,
                               collector->is.pattern));
}

static bool sbit__observe_takes(const sbit__observe *observe, const sbit__sparse_layer *layer,
                                uint32_t what)
{
    return !observe->for_collectors && (layer->row->needs & what) != 0 && sbit__sparse_layer_active(layer) &&
           (observe->only != NULL ? layer == observe->only : layer->row->update == NULL);
}

static bool sbit__observe_collects(const sbit__observe *observe, const sbit__sparse_layer *layer, uint32_t what)
{
    bool any = false;
    for (const sbit__collector *c = observe->sparse->collectors; c != NULL && observe->only == NULL; c = c->next) {
        any = any || sbit__collector_takes(observe->sparse, c, layer, what);
    }
    return any;
}

/* What is activated: the output, behind a BatchNormalization and one operator on single elements
 * that alone read it. */
static sbit_value_id sbit__observe_activated(const sbit_graph *graph, sbit_value_id id)
{
    for (int step = 0; step < 2; step++) {
        sbit_use use;
        if (sbit_graph_value(graph, id)->use_count != 1 ||
            sbit_graph_uses(graph, id, &use, 1) != 1 || use.node.idx == 0 || use.body != NULL) {
            return id;
        }
        const sbit_node *node = sbit_graph_node(graph, use.node);
        int32_t opset = 0;
        const sbit_op_row *row = sbit__op_row(graph, node, &opset);
        const bool norm = sbit__streq(node->op_type, "BatchNormalization");
        const bool single = row != NULL && row->channel != NULL &&
                            row->channel->kind == SBIT_CHANNEL_ELEMENTWISE &&
                            (row->channel->inputs == 1 || sbit__streq(node->op_type, "PRelu"));
        if (!norm && !single) {
            return id;
        }
        id = node->outputs[0];
        if (single) {
            return id;
        }
    }
    return id;
}

/* The value that a layer's sparser wants to see as `what`. */
static sbit_value_id sbit__observe_value(const sbit_sparse *sparse, const sbit__sparse_layer *layer,
                                         uint32_t what)
{
    const sbit_node *node =
        sbit_graph_node(sparse->graph, sparse->labeler.members[layer->member].node);
    return what == SBIT_NEEDS_INPUT    ? node->inputs[0]
           : what == SBIT_NEEDS_OUTPUT ? node->outputs[0]
                                       : sbit__observe_activated(sparse->graph, node->outputs[0]);
}

/* Channels of a Conv and its like are axis 1, of a matrix product the last. */
static int32_t sbit__observe_axis(const sbit_sparse *sparse, const sbit__sparse_layer *layer,
                                  int32_t rank)
{
    const sbit_node *node =
        sbit_graph_node(sparse->graph, sparse->labeler.members[layer->member].node);
    return sbit__streq(node->op_type, "Conv") || sbit__streq(node->op_type, "ConvTranspose")
               ? 1
               : rank - 1;
}

static sbit_status sbit__observe_layer(sbit__observe *observe, sbit__sparse_layer *layer,
                                       uint32_t what, const sbit_tensor *tensor, sbit_error *error)
{
    sbit_sparser_sample sample;
    if (tensor->dtype != SBIT_F32 || tensor->rank == 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, layer->name,
                          "sparsers (%s) and collectors look at float32, which '%s' does not compute with",
                          layer->row->head.name, layer->name);
    }
    memset(&sample, 0, sizeof sample);
    sample.what = what;
    sample.tensor = *tensor;
    sample.axis = sbit__observe_axis(observe->sparse, layer, tensor->rank);
    sample.samples = observe->samples;
    for (const sbit__collector *c = observe->sparse->collectors; c != NULL && observe->only == NULL; c = c->next) {
        if (sbit__collector_takes(observe->sparse, c, layer, what)) {
            SBIT__TRY(c->is.see(layer->name, &sample, c->is.user, error));
        }
    }
    return sbit__observe_takes(observe, layer, what)
               ? layer->row->observe(layer->state, &layer->call, &sample, error)
               : SBIT_OK;
}

static sbit_status sbit__observe_tap(const sbit_graph *graph, sbit_value_id id,
                                     const sbit_value *value, void *user, sbit_error *error)
{
    sbit__observe *observe = (sbit__observe *)user;
    sbit_sparse *sparse = observe->sparse;
    const sbit_value_id same =
        sbit_graph_find_value(sparse->graph, sbit_graph_value(graph, id)->name);
    for (size_t i = 0; same.idx != 0 && i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        for (uint32_t what = 1; what < SBIT_NEEDS_GAMMA; what <<= 1) {
            if ((sbit__observe_takes(observe, layer, what) || sbit__observe_collects(observe, layer, what)) &&
                sbit__observe_value(sparse, layer, what).idx == same.idx) {
                SBIT__TRY(sbit__observe_layer(observe, layer, what, &value->tensor, error));
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__observe_feed(sbit__observe *observe, sbit_session *session,
                                      const sbit_feed *feed, sbit_error *error)
{
    sbit_batch batch;
    for (int64_t at = 0; at < feed->count; at += batch.samples) {
        SBIT__TRY(sbit_feed_read(feed, at, 0, &batch, error));
        if (batch.samples <= 0) {
            break;
        }
        observe->samples = batch.samples;
        for (size_t i = 0; i < batch.input_count; i++) {
            const char *name =
                batch.names != NULL ? batch.names[i] : sbit_session_input_info(session, 0)->name;
            SBIT__TRY(sbit_session_set_input(session, name, &batch.inputs[i], error));
        }
        SBIT__TRY(sbit_session_run(session, error));
        SBIT__TRY(sbit__progress(observe->sparse->ctx, "observe", at + batch.samples, feed->count,
                                 error));
    }
    return SBIT_OK;
}

static sbit_status sbit__observe_run(sbit__observe *observe, const sbit_feed *feed, sbit_error *error)
{
    sbit_sparse *sparse = observe->sparse;
    const sbit__sparse_layer *only = observe->only;
    sbit_session_desc desc;
    sbit_session *session = NULL;
    sbit__arena arena;
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    sbit_value_id *taps =
        (sbit_value_id *)sbit__arena_array(&arena, 3 * sparse->layer_count + 1, sizeof *taps);
    memset(&desc, 0, sizeof desc);
    for (size_t i = 0; taps != NULL && i < sparse->layer_count; i++) {
        const sbit__sparse_layer *layer = &sparse->layers[i];
        for (uint32_t what = 1; what < SBIT_NEEDS_GAMMA; what <<= 1) {
            if (sbit__observe_takes(observe, layer, what) || sbit__observe_collects(observe, layer, what)) {
                taps[desc.tap_count++] = sbit__observe_value(sparse, layer, what);
            }
        }
    }
    desc.tap_fn = sbit__observe_tap;
    desc.tap_user = observe;
    desc.taps = taps;
    if (only != NULL) { /* nothing behind them is run */
        desc.outputs = taps;
        desc.output_count = desc.tap_count;
    }
    sbit_status status =
        taps != NULL ? SBIT_OK : sbit__fail_oom(error, sparse->layer_count * sizeof *taps);
    if (status == SBIT_OK && desc.tap_count > 0) {
        status = sbit_session_create(sparse->graph, &desc, &session, error);
        status = status == SBIT_OK ? sbit__observe_feed(observe, session, feed, error) : status;
        sbit_session_destroy(session);
    }
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN sbit_status sbit__layers_observe(sbit_sparse *sparse, const sbit__sparse_layer *only,
                                          const sbit_feed *feed, sbit_error *error)
{
    sbit__observe observe;
    memset(&observe, 0, sizeof observe);
    observe.sparse = sparse;
    observe.only = only;
    return sbit__observe_run(&observe, feed, error);
}

/* >>collectors */

SPARSEBIT_API sbit_status sbit_sparse_add_collector(sbit_sparse *sparse,
                                                    const sbit_sparse_collector *collector,
                                                    int32_t *id, sbit_error *error)
{
    const uint32_t known = SBIT_NEEDS_INPUT | SBIT_NEEDS_OUTPUT | SBIT_NEEDS_ACTIVATED;
    if (collector == NULL || id == NULL || collector->see == NULL || (collector->what & known) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "collector: id, see and what are wanted");
    }
    const char *pattern = collector->pattern != NULL ? collector->pattern : "";
    const size_t bytes = sizeof(sbit__collector) + strlen(pattern) + 1;
    sbit__collector *made = (sbit__collector *)sbit__calloc(sbit_ctx_allocator(sparse->ctx), 1, bytes);
    if (made == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    made->is = *collector;
    made->is.pattern = (const char *)memcpy(made + 1, pattern, strlen(pattern) + 1);
    made->bytes = bytes;
    made->id = *id = ++sparse->collector_ids;
    made->next = sparse->collectors;
    sparse->collectors = made;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        if (sbit__collector_takes(sparse, made, &sparse->layers[i], collector->what)) {
            return SBIT_OK;
        }
    }
    sbit_sparse_remove_collector(sparse, *id);
    return sbit__fail(error, SBIT_ERR_NOT_FOUND, pattern, "collector: no layer matches '%s'", pattern);
}

SPARSEBIT_API bool sbit_sparse_remove_collector(sbit_sparse *sparse, int32_t id)
{
    for (sbit__collector **at = &sparse->collectors; *at != NULL; at = &(*at)->next) {
        if ((*at)->id == id) {
            sbit__collector *gone = *at;
            *at = gone->next;
            sbit__free(sbit_ctx_allocator(sparse->ctx), gone, gone->bytes);
            return true;
        }
    }
    return false;
}

SPARSEBIT_API sbit_status sbit_sparse_collect(sbit_sparse *sparse, const sbit_feed *feed,
                                              sbit_error *error)
{
    sbit__observe observe;
    memset(&observe, 0, sizeof observe);
    observe.sparse = sparse;
    observe.for_collectors = true;
    return feed == NULL ? sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "feed is NULL")
                        : sbit__observe_run(&observe, feed, error);
}
