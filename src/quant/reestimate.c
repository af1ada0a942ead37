/* reestimate.c: running statistics of BatchNormalization from data, without training. >>reestimate
 *
 * Called by: users, quant (SCHEDULE.BN_TUNING), after pruning. Calls: exec.
 * A copy of the graph runs with its BatchNormalization nodes in training mode and momentum 0: each
 * batch tells its own mean and variance, as in training. Over batches means are averaged by samples
 * and variances by the law of total variance. Batches with padding count only if there are no
 * others.
 */
#include "quant_private.h"

typedef struct sbit__reestimate_node {
    sbit_node_id node;
    sbit_value_id mean, var; /* outputs of the copy's node */
    int64_t channels;
    double *sums; /* [2][channels]: of means, of variances and squared means */
} sbit__reestimate_node;

typedef struct sbit__reestimate {
    sbit_graph *graph, *copy;
    const bool *fixed; /* by value: nodes that read it stay as they are; NULL: none */
    sbit__arena arena;
    sbit__reestimate_node *nodes;
    size_t count;
    double samples;
} sbit__reestimate;

/* A node whose statistics can be set: constants of float32, not in training mode. */
static bool sbit__reestimate_takes(const sbit_graph *graph, const sbit_node *node)
{
    if (!sbit__streq(node->op_type, "BatchNormalization") || node->domain[0] != '\0' ||
        node->input_count != 5 || node->output_count != 1 ||
        sbit_node_int(node, "training_mode", 0) != 0) {
        return false;
    }
    for (size_t i = 3; i < 5; i++) {
        const sbit_value_info *value = sbit_graph_value(graph, node->inputs[i]);
        if (!value->is_constant || value->constant.dtype != SBIT_F32 || value->constant.rank != 1) {
            return false;
        }
    }
    return true;
}

static sbit_status sbit__reestimate_trains(sbit__reestimate *r, sbit__reestimate_node *n,
                                           sbit_error *error)
{
    const sbit_value_info *mean =
        sbit_graph_value(r->copy, sbit_graph_node(r->copy, n->node)->inputs[3]);
    const sbit_type type = mean->type;
    sbit_attr attr = sbit__attr_float("momentum", 0.0f);
    n->channels = mean->constant.dims[0];
    n->sums = (double *)sbit__arena_array(&r->arena, 2 * (size_t)n->channels, sizeof(double));
    if (n->sums == NULL) {
        return sbit__fail_oom(error, 16 * (size_t)n->channels);
    }
    memset(n->sums, 0, 2 * (size_t)n->channels * sizeof(double));
    SBIT__TRY(sbit_graph_set_attr(r->copy, n->node, &attr, error));
    if (sbit_graph_opset(r->copy, "") >= 14) {
        attr = sbit__attr_int("training_mode", 1);
        SBIT__TRY(sbit_graph_set_attr(r->copy, n->node, &attr, error));
    }
    SBIT__TRY(sbit_graph_add_value(r->copy, "batch_mean", &type, &n->mean, error));
    SBIT__TRY(sbit_graph_add_value(r->copy, "batch_var", &type, &n->var, error));
    SBIT__TRY(sbit_graph_set_node_output(r->copy, n->node, 1, n->mean, error));
    return sbit_graph_set_node_output(r->copy, n->node, 2, n->var, error);
}

static sbit_status sbit__reestimate_find(sbit__reestimate *r, sbit_error *error)
{
    const size_t limit = sbit_graph_node_limit(r->graph);
    r->nodes = (sbit__reestimate_node *)sbit__arena_array(&r->arena, limit, sizeof *r->nodes);
    if (r->nodes == NULL) {
        return sbit__fail_oom(error, limit * sizeof *r->nodes);
    }
    for (sbit_node_id id = sbit_graph_first(r->graph); id.idx != 0;
         id = sbit_graph_next(r->graph, id)) {
        const sbit_node *node = sbit_graph_node(r->graph, id);
        if (sbit__reestimate_takes(r->graph, node) &&
            (r->fixed == NULL || !r->fixed[node->inputs[0].idx])) {
            memset(&r->nodes[r->count], 0, sizeof *r->nodes);
            r->nodes[r->count].node = id;
            SBIT__TRY(sbit__reestimate_trains(r, &r->nodes[r->count], error));
            r->count++;
        }
    }
    return SBIT_OK;
}

static void sbit__reestimate_add(sbit__reestimate *r, sbit_session *session, int64_t samples)
{
    for (size_t k = 0; k < r->count; k++) {
        const sbit__reestimate_node *n = &r->nodes[k];
        const float *mean = (const float *)sbit_session_output(session, 2 * k)->tensor.data;
        const float *var = (const float *)sbit_session_output(session, 2 * k + 1)->tensor.data;
        for (int64_t c = 0; c < n->channels; c++) {
            const double m = (double)mean[c];
            n->sums[c] += (double)samples * m;
            n->sums[n->channels + c] += (double)samples * ((double)var[c] + m * m);
        }
    }
    r->samples += (double)samples;
}

static sbit_status sbit__reestimate_batch(sbit__reestimate *r, sbit_session *session,
                                          const sbit_batch *batch, bool padded, sbit_error *error)
{
    bool pads = false;
    for (size_t i = 0; i < batch->input_count; i++) {
        const sbit_tensor *x = &batch->inputs[i];
        pads = pads || (!batch->whole && x->rank > 0 && x->dims[0] > batch->samples);
    }
    if (pads != padded) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__batch_set(batch, r->copy, session, error));
    SBIT__TRY(sbit_session_run(session, error));
    sbit__reestimate_add(r, session, batch->samples);
    return SBIT_OK;
}

static sbit_status sbit__reestimate_read(sbit__reestimate *r, sbit_session *session,
                                         const sbit_feed *feed, sbit_error *error)
{
    for (int padded = 0; padded < 2 && !(r->samples > 0.0); padded++) {
        sbit_batch batch;
        for (int64_t at = 0; at < feed->count; at += batch.samples) {
            SBIT__TRY(
                sbit__progress(sbit_graph_ctx(r->graph), "reestimate", at, feed->count, error));
            SBIT__TRY(sbit_feed_read(feed, at, 0, &batch, error));
            SBIT__TRY(sbit__reestimate_batch(r, session, &batch, padded != 0, error));
        }
    }
    return SBIT_OK;
}

/* A constant of the node's own where others read the old one too. */
static sbit_status sbit__reestimate_set(sbit__reestimate *r, sbit_node_id node, size_t input,
                                        const sbit_tensor *tensor, sbit_error *error)
{
    const sbit_value_id id = sbit_graph_node(r->graph, node)->inputs[input];
    sbit_value_id own;
    if (sbit_graph_value(r->graph, id)->use_count == 1) {
        return sbit_graph_set_constant(r->graph, id, tensor, error);
    }
    SBIT__TRY(sbit_graph_add_constant(r->graph, sbit_graph_value(r->graph, id)->name, tensor, &own,
                                      error));
    return sbit_graph_set_node_input(r->graph, node, input, own, error);
}

static sbit_status sbit__reestimate_store(sbit__reestimate *r, sbit_error *error)
{
    for (size_t k = 0; k < r->count; k++) {
        const sbit__reestimate_node *n = &r->nodes[k];
        float *values =
            (float *)sbit__arena_array(&r->arena, 2 * (size_t)n->channels, sizeof(float));
        sbit_tensor tensor;
        if (values == NULL) {
            return sbit__fail_oom(error, 8 * (size_t)n->channels);
        }
        for (int64_t c = 0; c < n->channels; c++) {
            const double mean = n->sums[c] / r->samples;
            const double var = n->sums[n->channels + c] / r->samples - mean * mean;
            values[c] = (float)mean;
            values[n->channels + c] = var > 0.0 ? (float)var : 0.0f;
        }
        memset(&tensor, 0, sizeof tensor);
        tensor.dtype = SBIT_F32;
        tensor.rank = 1;
        tensor.dims[0] = n->channels;
        tensor.data = values;
        SBIT__TRY(sbit__reestimate_set(r, n->node, 3, &tensor, error));
        tensor.data = values + n->channels;
        SBIT__TRY(sbit__reestimate_set(r, n->node, 4, &tensor, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__reestimate_work(sbit__reestimate *r, const sbit_feed *feed,
                                         sbit_session **session, sbit_error *error)
{
    sbit_session_desc desc;
    SBIT__TRY(sbit_graph_clone(r->graph, &r->copy, error));
    SBIT__TRY(sbit__reestimate_find(r, error));
    if (r->count == 0 && r->fixed != NULL) {
        return SBIT_OK;
    }
    if (r->count == 0) {
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, NULL,
                          "the model has no BatchNormalization with constant statistics");
    }
    sbit_value_id *outputs =
        (sbit_value_id *)sbit__arena_array(&r->arena, 2 * r->count, sizeof *outputs);
    if (outputs == NULL) {
        return sbit__fail_oom(error, 2 * r->count * sizeof *outputs);
    }
    for (size_t k = 0; k < r->count; k++) {
        outputs[2 * k] = r->nodes[k].mean;
        outputs[2 * k + 1] = r->nodes[k].var;
    }
    memset(&desc, 0, sizeof desc);
    desc.outputs = outputs;
    desc.output_count = 2 * r->count;
    SBIT__TRY(sbit_session_create(r->copy, &desc, session, error));
    SBIT__TRY(sbit__reestimate_read(r, *session, feed, error));
    return sbit__reestimate_store(r, error);
}

SPARSEBIT_API sbit_status sbit_reestimate_bn(sbit_graph *graph, const sbit_feed *feed,
                                             sbit_error *error)
{
    return sbit__reestimate_bn(graph, NULL, feed, error);
}

SBIT__FN sbit_status sbit__reestimate_bn(sbit_graph *graph, const bool *fixed,
                                         const sbit_feed *feed, sbit_error *error)
{
    sbit__reestimate r;
    sbit_session *session = NULL;
    if (graph == NULL || feed == NULL || feed->read == NULL || feed->count < 1) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "a graph and a feed with samples are wanted");
    }
    memset(&r, 0, sizeof r);
    r.graph = graph;
    r.fixed = fixed;
    sbit__arena_init(&r.arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    const sbit_status status = sbit__reestimate_work(&r, feed, &session, error);
    sbit_session_destroy(session);
    sbit_graph_destroy(r.copy);
    sbit__arena_deinit(&r.arena);
    return status;
}
