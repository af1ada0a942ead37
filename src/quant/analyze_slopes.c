/* analyze_slopes.c: what labels say about quantizing a layer, from one backward pass. >>analyze-slopes
 *
 * In a copy of the float graph every quantizer is a node y = x + t (Q(x) - x), one t a layer. At t = 0
 * the model is float, and the gradient of a sample's cross entropy with respect to t is what the loss
 * gains to first order when that layer is quantized: the sum of g (Q(x) - x) over its tensors. Its mean
 * over samples is Taylor's estimate; half the mean of its square Fisher's of the second order, with
 * the Fisher information in place of the Hessian matrix.
 */
#include "trials_private.h"

typedef struct sbit__slope_site {
    sbit_quant *quant;
    sbit__site *site;
    sbit__external functions;
    float *delta; /* Q(x) - x; of activations: in the run at hand */
    int64_t room;
} sbit__slope_site;

typedef struct sbit__loss_slopes {
    sbit_quant *quant;
    const sbit__search_layers *layers;
    sbit_graph *graph; /* the copy */
    sbit__slope_site *sites;
    size_t count;
    sbit_value_id *inputs;  /* the model's, target, t by layer */
    size_t model_inputs;
    sbit_value_id *outputs; /* by layer: the gradients; none: the loss does not depend on it */
    sbit__arena arena;
} sbit__loss_slopes;

static sbit_status sbit__slope_room(sbit__slope_site *q, int64_t count, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(q->quant->ctx);
    if (count > q->room) {
        sbit__free(a, q->delta, (size_t)q->room * sizeof *q->delta);
        q->delta = (float *)sbit__alloc(a, (size_t)count * sizeof *q->delta);
        q->room = q->delta != NULL ? count : 0;
    }
    return q->room >= count ? SBIT_OK : sbit__fail_oom(error, (size_t)count * sizeof *q->delta);
}

/* Inputs x, t. */
static sbit_status sbit__slope_forward(void *user, const sbit_op_call *call, sbit_error *error)
{
    sbit__slope_site *q = (sbit__slope_site *)user;
    const float *x = (const float *)call->in[0]->data;
    const int64_t count = sbit_tensor_count(call->in[0]);
    memcpy(call->out[0]->data, x, (size_t)count * sizeof *x);
    if (q->site->target == SBIT_TARGET_WEIGHT) {
        return SBIT_OK;
    }
    const bool fixed = q->site->fixed_range || q->site->change.scale != NULL;
    const sbit_quantizer_row *row = fixed ? sbit__quantizer_uniform() : q->site->settings.quantizer;
    const sbit_quantizer_call quantizer = sbit__site_quantizer(q->quant, q->site);
    const sbit_observation seen = sbit__site_observation(q->site, call->in[0], x);
    SBIT__TRY(sbit__slope_room(q, count, error));
    SBIT__TRY(row->forward(q->site->quantizer_state, &quantizer, &seen, q->delta, error));
    for (int64_t i = 0; i < count; i++) {
        q->delta[i] -= x[i];
    }
    return SBIT_OK;
}

/* Inputs dy, x, t; outputs dx, the gradient of t. */
static sbit_status sbit__slope_backward(void *user, const sbit_op_call *call, sbit_error *error)
{
    const sbit__slope_site *q = (const sbit__slope_site *)user;
    const float *dy = (const float *)call->in[0]->data;
    const int64_t count = sbit_tensor_count(call->in[1]);
    double sum = 0.0;
    (void)error;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)dy[i] * (double)q->delta[i];
    }
    if (call->out[0] != NULL) {
        memcpy(call->out[0]->data, dy, (size_t)count * sizeof *dy);
    }
    if (call->output_count > 1 && call->out[1] != NULL) {
        *(float *)call->out[1]->data = (float)sum;
    }
    return SBIT_OK;
}

static sbit_status sbit__slope_weight(sbit__slope_site *q, sbit_error *error)
{
    sbit_tensor w;
    SBIT__TRY(sbit__site_weight(q->quant, q->site, &w, error));
    const int64_t count = sbit_tensor_count(&w);
    SBIT__TRY(sbit__slope_room(q, count, error));
    SBIT__TRY(sbit__site_dequantized(q->quant, q->site, q->delta, error));
    for (int64_t i = 0; i < count; i++) {
        q->delta[i] -= ((const float *)w.data)[i];
    }
    return SBIT_OK;
}

/* t = 0. */
static sbit_tensor sbit__slope_start(float *zero)
{
    sbit_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = SBIT_F32;
    t.rank = 1;
    t.dims[0] = 1;
    t.data = zero;
    *zero = 0.0f;
    return t;
}

static sbit_status sbit__loss_slopes_place(sbit__loss_slopes *s, sbit_error *error)
{
    float zero;
    const sbit_tensor t = sbit__slope_start(&zero);
    for (size_t l = 0; l < s->layers->count; l++) {
        sbit_value_id *id = &s->inputs[s->model_inputs + 1 + l];
        SBIT__TRY(sbit_graph_add_constant(s->graph, "t", &t, id, error));
    }
    for (size_t i = 0; i < s->quant->site_count; i++) {
        sbit__site *site = &s->quant->sites[i];
        sbit_value_id inputs[2];
        if (!site->enabled || site->body != 0) {
            continue;
        }
        if (site->dtype != SBIT_F32) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, site->tensor, "it is not of float32");
        }
        sbit__slope_site *q = &s->sites[s->count++];
        q->quant = s->quant;
        q->site = site;
        q->functions.forward = sbit__slope_forward;
        q->functions.backward = sbit__slope_backward;
        q->functions.user = q;
        inputs[1] = s->inputs[s->model_inputs + 1 + s->layers->of_site[i]];
        SBIT__TRY(site->target == SBIT_TARGET_WEIGHT ? sbit__slope_weight(q, error) : SBIT_OK);
        SBIT__TRY(sbit__site_insert(s->graph, site, &q->functions, inputs, 2, &s->arena, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__loss_slopes_build(sbit__loss_slopes *s, sbit_session **out, sbit_error *error)
{
    const sbit_graph *graph = s->quant->graph;
    const size_t layers = s->layers->count;
    sbit_session_desc desc;
    sbit_value_id loss;
    s->model_inputs = sbit_graph_input_count(graph);
    s->inputs = (sbit_value_id *)sbit__arena_array(&s->arena, s->model_inputs + 3 * layers + 2,
                                                   sizeof *s->inputs);
    s->sites = (sbit__slope_site *)sbit__arena_array(&s->arena, s->quant->site_count + 1,
                                                     sizeof *s->sites);
    if (s->inputs == NULL || s->sites == NULL) {
        return sbit__fail_oom(error, s->quant->site_count * sizeof *s->sites);
    }
    s->outputs = s->inputs + s->model_inputs + 1 + layers;
    SBIT__TRY(sbit_graph_clone(graph, &s->graph, error));
    SBIT__TRY(sbit__loss_slopes_place(s, error));
    for (size_t i = 0; i < s->model_inputs; i++) {
        s->inputs[i] = sbit_graph_input(s->graph, i);
    }
    const sbit_value_id output = sbit_graph_output(s->graph, 0);
    const sbit_node_id last = sbit_graph_value(s->graph, output)->producer;
    const bool softmax = last.idx != 0 && sbit__flow_is_softmax(sbit_graph_node(s->graph, last));
    SBIT__TRY(sbit__loss_append(s->graph, sbit_loss_find(s->quant->ctx, "cross_entropy"),
                                softmax ? sbit_graph_node(s->graph, last)->inputs[0] : output,
                                &s->inputs[s->model_inputs], &loss, error));
    SBIT__TRY(sbit_graph_add_gradients(s->graph, loss, s->inputs + s->model_inputs + 1, layers,
                                       s->outputs, error));
    memset(&desc, 0, sizeof desc);
    sbit_value_id *wanted = s->outputs + layers;
    for (size_t l = 0; l < layers; l++) {
        if (s->outputs[l].idx != 0) {
            wanted[desc.output_count++] = s->outputs[l];
        }
    }
    desc.inputs = s->inputs;
    desc.input_count = s->model_inputs + 1 + layers;
    desc.outputs = wanted;
    return desc.output_count > 0 ? sbit_session_create(s->graph, &desc, out, error) : SBIT_OK;
}

/* One sample after another: the square is of each one's slope. False: not one at a time. */
static sbit_status sbit__loss_slopes_feed(const sbit__loss_slopes *s, const sbit_batch *batch,
                                     sbit_session *session, bool *able, sbit_error *error)
{
    for (size_t k = 0; k < batch->input_count; k++) {
        size_t at = 0;
        while (batch->names != NULL && at < s->model_inputs &&
               !sbit__streq(sbit_graph_value(s->graph, s->inputs[at])->name, batch->names[k])) {
            at++;
        }
        *able = *able && (batch->inputs[k].rank == 0 || batch->inputs[k].dims[0] == 1);
        if (at < s->model_inputs) {
            SBIT__TRY(sbit_session_set_input_at(session, at, &batch->inputs[k], error));
        }
    }
    return sbit_session_set_input_at(session, s->model_inputs, &batch->targets[0], error);
}

static sbit_status sbit__loss_slopes_run(sbit__loss_slopes *s, const sbit_feed *feed, sbit_session *session,
                                    double *sums, bool *able, sbit_error *error)
{
    float zero;
    sbit_batch batch;
    const sbit_tensor t = sbit__slope_start(&zero);
    for (size_t l = 0; l < s->layers->count; l++) {
        SBIT__TRY(sbit_session_set_input_at(session, s->model_inputs + 1 + l, &t, error));
    }
    for (int64_t at = 0; at < feed->count; at += batch.samples) {
        SBIT__TRY(sbit_feed_read(feed, at, 1, &batch, error));
        SBIT__TRY(sbit__loss_slopes_feed(s, &batch, session, able, error));
        if (!*able) {
            return SBIT_OK;
        }
        SBIT__TRY(sbit_session_run(session, error));
        for (size_t l = 0, output = 0; l < s->layers->count; l++) {
            if (s->outputs[l].idx != 0) {
                const sbit_value *y = sbit_session_output(session, output++);
                const double slope = (double)*(const float *)y->tensor.data;
                sums[2 * l] += slope;
                sums[2 * l + 1] += slope * slope;
            }
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__analyze_slopes(sbit_quant *quant, const sbit_feed *feed,
                                          const sbit__search_layers *layers, double *sums,
                                          bool *able, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    sbit_session *session = NULL;
    sbit_error problem;
    sbit__loss_slopes s;
    memset(&s, 0, sizeof s);
    s.quant = quant;
    s.layers = layers;
    sbit__arena_init(&s.arena, a);
    sbit_status status = sbit__loss_slopes_build(&s, &session, &problem);
    *able = status == SBIT_OK;
    if (status == SBIT_OK && session != NULL) {
        status = sbit__loss_slopes_run(&s, feed, session, sums, able, &problem);
    }
    if (status == SBIT_ERR_UNSUPPORTED || status == SBIT_ERR_SHAPE ||
        status == SBIT_ERR_INVALID_ARGUMENT) { /* the last: labels that are no classes of it */
        sbit__log(quant->ctx, SBIT_LOG_INFO, "no gradients of this model on this data: %s",
                  problem.message);
        *able = false;
        status = SBIT_OK;
    } else if (status != SBIT_OK && error != NULL) {
        *error = problem;
    }
    sbit_session_destroy(session);
    for (size_t i = 0; i < s.count; i++) {
        sbit__free(a, s.sites[i].delta, (size_t)s.sites[i].room * sizeof(float));
    }
    sbit_graph_destroy(s.graph);
    sbit__arena_deinit(&s.arena);
    return status;
}
