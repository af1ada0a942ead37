/* gradients.c: what a loss says about the weights, for the sparsers that want to see it.
 * >>sparse-gradients
 *
 * A copy of the graph gets the loss (LOSS, on the first output) and the nodes of its gradients with
 * respect to the weights of those layers; BatchNormalization stays as it is. One batch, one gradient:
 * that of the mean over its samples.
 */
#include "../exec/exec_api.h"
#include "../grad/grad_private.h"
#include "sparse_private.h"

typedef struct sbit__weight_slopes {
    sbit_sparse *sparse;
    sbit_graph *graph; /* the copy */
    sbit_value_id target;
    sbit_value_id *wanted, *outputs; /* [count]; outputs: none where the loss does not depend on it */
    int32_t *layers;                 /* [count], indices */
    size_t count;
} sbit__weight_slopes;

static bool sbit__weight_slopes_of(const sbit__sparse_layer *layer)
{
    return (layer->row->needs & SBIT_NEEDS_GRADIENT) != 0 && sbit__sparse_layer_active(layer);
}

static sbit_status sbit__weight_slopes_build(sbit__weight_slopes *s, const sbit_options *options,
                                      sbit_error *error)
{
    const sbit_loss_row *row =
        sbit_loss_find(s->sparse->ctx, sbit_options_string(options, "LOSS"));
    sbit_value_id loss;
    SBIT__TRY(sbit__loss_append(s->graph, row, sbit_graph_output(s->graph, 0), &s->target, &loss,
                                error));
    return sbit_graph_add_gradients(s->graph, loss, s->wanted, s->count, s->outputs, error);
}

/* Rows of padding are cut off: the loss is a mean. */
static sbit_status sbit__weight_slopes_feed(const sbit__weight_slopes *s, sbit_session *session,
                                     const sbit_batch *batch, sbit_error *error)
{
    if (batch->target_count == 0) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "gradients need targets: data with labels");
    }
    for (size_t i = 0; i <= batch->input_count; i++) {
        sbit_tensor tensor = i < batch->input_count ? batch->inputs[i] : batch->targets[0];
        const char *name = i == batch->input_count ? sbit_graph_value(s->graph, s->target)->name
                           : batch->names != NULL  ? batch->names[i]
                                                   : sbit_session_input_info(session, 0)->name;
        if (!batch->whole && tensor.rank > 0 && batch->samples < tensor.dims[0]) {
            tensor.dims[0] = batch->samples;
        }
        SBIT__TRY(sbit_session_set_input(session, name, &tensor, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__weight_slopes_observe(const sbit__weight_slopes *s, sbit_session *session,
                                        sbit_error *error)
{
    for (size_t i = 0, output = 0; i < s->count; i++) {
        sbit__sparse_layer *layer = &s->sparse->layers[s->layers[i]];
        sbit_sparser_sample sample;
        if (s->outputs[i].idx == 0) {
            continue;
        }
        sample.what = SBIT_NEEDS_GRADIENT;
        sample.tensor = sbit_session_output(session, output++)->tensor;
        sample.axis = layer->call.out_axis;
        sample.samples = -1;
        SBIT__TRY(layer->row->observe(layer->state, &layer->call, &sample, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__weight_slopes_run(const sbit__weight_slopes *s, const sbit_feed *feed,
                                    sbit_error *error)
{
    sbit_session_desc desc;
    sbit_session *session = NULL;
    sbit_batch batch;
    sbit_status status;
    sbit__arena arena;
    memset(&desc, 0, sizeof desc);
    sbit__arena_init(&arena, sbit_ctx_allocator(s->sparse->ctx));
    sbit_value_id *outputs =
        (sbit_value_id *)sbit__arena_array(&arena, s->count + 1, sizeof *outputs);
    for (size_t i = 0; outputs != NULL && i < s->count; i++) {
        if (s->outputs[i].idx != 0) {
            outputs[desc.output_count++] = s->outputs[i];
        }
    }
    desc.outputs = outputs;
    status = outputs != NULL ? SBIT_OK : sbit__fail_oom(error, s->count * sizeof *outputs);
    if (status == SBIT_OK && desc.output_count > 0) {
        status = sbit_session_create(s->graph, &desc, &session, error);
        for (int64_t at = 0; status == SBIT_OK && at < feed->count; at += batch.samples) {
            status = sbit_feed_read(feed, at, 0, &batch, error);
            if (status != SBIT_OK || batch.samples <= 0) {
                break;
            }
            status = sbit__weight_slopes_feed(s, session, &batch, error);
            status = status == SBIT_OK ? sbit_session_run(session, error) : status;
            status = status == SBIT_OK ? sbit__weight_slopes_observe(s, session, error) : status;
        }
        sbit_session_destroy(session);
    }
    sbit__arena_deinit(&arena);
    return status;
}

static sbit_status sbit__weight_slopes_all(sbit__weight_slopes *s, const sbit_feed *feed, sbit__arena *arena,
                                    sbit_error *error)
{
    sbit_sparse *sparse = s->sparse;
    const sbit_options *options = NULL;
    s->wanted =
        (sbit_value_id *)sbit__arena_array(arena, 2 * sparse->layer_count + 1, sizeof *s->wanted);
    s->layers = (int32_t *)sbit__arena_array(arena, sparse->layer_count + 1, sizeof *s->layers);
    if (s->wanted == NULL || s->layers == NULL) {
        return sbit__fail_oom(error, sparse->layer_count * sizeof *s->wanted);
    }
    s->outputs = s->wanted + sparse->layer_count;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit__sparse_layer *layer = &sparse->layers[i];
        const sbit_value_id id = sparse->labeler.members[layer->member].value;
        if (!sbit__weight_slopes_of(layer)) {
            continue;
        }
        if (layer->owns_weight) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, layer->name,
                              "sparser %s needs gradients of float32 weights",
                              layer->row->head.name);
        }
        options = options == NULL ? &layer->options : options;
        s->layers[s->count] = (int32_t)i;
        s->wanted[s->count++] = id;
    }
    if (s->count == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_graph_clone(sparse->graph, &s->graph, error));
    SBIT__TRY(sbit__weight_slopes_build(s, options, error));
    return sbit__weight_slopes_run(s, feed, error);
}

SBIT__FN sbit_status sbit__layers_gradients(sbit_sparse *sparse, const sbit_feed *feed,
                                            sbit_error *error)
{
    sbit__weight_slopes s;
    sbit__arena arena;
    memset(&s, 0, sizeof s);
    s.sparse = sparse;
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    const sbit_status status = sbit__weight_slopes_all(&s, feed, &arena, error);
    sbit_graph_destroy(s.graph);
    sbit__arena_deinit(&arena);
    return status;
}
