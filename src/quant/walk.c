/* walk.c: one run of a model over all samples that stops between layers. >>walk
 *
 * At a stop the walk hands out the inputs of a layer, in float or as the model quantized so far
 * computes them, and keeps the frontier: the values that the rest of the model still needs, of
 * every batch. The next stop starts from there, so that visiting all layers costs one forward pass.
 * A frontier that would be larger than the limit is not taken; the old one is used once more.
 * Values have the ids of the graph: a build keeps them. Constants behind the frontier may change.
 */
#include "quant_private.h"

/* A value at the frontier: one tensor for each batch. */
typedef struct sbit__walk_value {
    sbit_value_id id;
    sbit_tensor *batches;
} sbit__walk_value;

struct sbit_walk {
    sbit_ctx *ctx;
    sbit_graph *graph;
    sbit_quant *quant; /* NULL: the graph as it is, alone */
    sbit_feed feed;
    bool quantized;
    sbit_quant_build_desc build; /* sites: NULL, or the caller's */
    size_t max_bytes;
    int64_t batches;         /* 0: not read yet */
    int64_t *samples, *rows; /* [batches]; one block */
    bool whole;              /* all rows count: sbit_batch */
    sbit__walk_value *values;
    size_t value_count;
    bool at_start;      /* the frontier is the feed */
    uint32_t *position; /* by node: its place in execution order, from 1 */
    uint32_t reached;   /* nodes up to this place lie behind the frontier */
};

/* >>walk memory */
static void sbit__walk_drop(sbit_walk *walk, sbit__walk_value *values, size_t count)
{
    const sbit_allocator *a = sbit_ctx_allocator(walk->ctx);
    for (size_t i = 0; i < count; i++) {
        for (int64_t b = 0; values[i].batches != NULL && b < walk->batches; b++) {
            sbit_tensor_free(walk->ctx, &values[i].batches[b]);
        }
        sbit__free(a, values[i].batches, (size_t)walk->batches * sizeof(sbit_tensor));
    }
    sbit__free(a, values, (count + 1) * sizeof *values);
}

SPARSEBIT_API void sbit_walk_destroy(sbit_walk *walk)
{
    if (walk == NULL) {
        return;
    }
    const sbit_allocator *a = sbit_ctx_allocator(walk->ctx);
    sbit__walk_drop(walk, walk->values, walk->value_count);
    sbit__free(a, walk->samples, 2 * (size_t)walk->batches * sizeof *walk->samples);
    sbit__free(a, walk->position, sbit_graph_node_limit(walk->graph) * sizeof(uint32_t));
    sbit__free(a, walk, sizeof *walk);
}

static sbit_status sbit__walk_begin(sbit_walk *walk, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(walk->ctx);
    const sbit_graph *graph = walk->graph;
    int64_t size = walk->feed.batch > 0 ? walk->feed.batch : (int64_t)SBIT_FEED_BATCH;
    uint32_t place = 0;
    size = size > (int64_t)SBIT_FEED_BATCH ? (int64_t)SBIT_FEED_BATCH : size;
    walk->batches = (walk->feed.count + size - 1) / size;
    walk->samples = (int64_t *)sbit__calloc(a, 2 * (size_t)walk->batches, sizeof *walk->samples);
    walk->position =
        (uint32_t *)sbit__calloc(a, sbit_graph_node_limit(graph), sizeof *walk->position);
    if (walk->samples == NULL || walk->position == NULL) {
        return sbit__fail_oom(error, (size_t)walk->batches * 8);
    }
    walk->rows = walk->samples + walk->batches;
    for (int64_t b = 0; b < walk->batches; b++) {
        const int64_t left = walk->feed.count - b * size;
        walk->samples[b] = left < size ? left : size;
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        walk->position[id.idx] = ++place;
    }
    walk->at_start = true;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__walk_on(sbit_ctx *ctx, sbit_graph *graph, const sbit_feed *feed, sbit_walk **out,
                                   sbit_error *error)
{
    sbit_walk *walk = (sbit_walk *)sbit__calloc(sbit_ctx_allocator(ctx), 1, sizeof *walk);
    if (walk == NULL) {
        return sbit__fail_oom(error, sizeof *walk);
    }
    walk->ctx = ctx;
    walk->graph = graph;
    walk->feed = *feed;
    walk->build.format = "qdq";
    walk->max_bytes = (size_t)1 << 30;
    const sbit_status status = sbit__walk_begin(walk, error);
    if (status != SBIT_OK) {
        sbit_walk_destroy(walk);
        return status;
    }
    *out = walk;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_walk_create(sbit_quant *quant, const sbit_feed *feed,
                                           const sbit_walk_desc *desc, sbit_walk **out,
                                           sbit_error *error)
{
    if (quant == NULL || feed == NULL || feed->read == NULL || feed->count < 1 || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "a quant, a feed with samples and a place for the walk are wanted");
    }
    SBIT__TRY(sbit__walk_on(quant->ctx, quant->graph, feed, out, error));
    (*out)->quant = quant;
    if (desc != NULL) {
        (*out)->quantized = desc->quantized;
        (*out)->build.float_weights = desc->float_weights;
        (*out)->build.float_activations = desc->float_activations;
        (*out)->build.sites = desc->sites;
        (*out)->max_bytes = desc->max_bytes > 0 ? desc->max_bytes : (*out)->max_bytes;
    }
    return SBIT_OK;
}

/* >>walk frontier */
static bool sbit__walk_used_behind(const sbit_walk *walk, const sbit_value_info *value,
                                   uint32_t place, sbit_use *uses, size_t capacity)
{
    const size_t count = sbit_graph_uses(walk->graph, value->id, uses, capacity);
    for (size_t i = 0; i < count && i < capacity; i++) {
        if (uses[i].node.idx != 0 && walk->position[uses[i].node.idx] > place) {
            return true;
        }
    }
    return count > capacity;
}

/* The values that nodes behind `place` read and nodes up to it, or the feed, make. *plain false:
 * some are not tensors. */
static sbit_status sbit__walk_frontier(const sbit_walk *walk, uint32_t place, sbit_value_id *out,
                                       size_t *count, bool *plain, sbit_error *error)
{
    const sbit_graph *graph = walk->graph;
    const sbit_allocator *a = sbit_ctx_allocator(walk->ctx);
    const size_t capacity = 4096, bytes = capacity * sizeof(sbit_use);
    sbit_use *uses = (sbit_use *)sbit__alloc(a, bytes);
    if (uses == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    *count = 0;
    *plain = true;
    for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
        const sbit_value_id id = {i};
        if (!sbit_graph_value_alive(graph, id)) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(graph, id);
        const bool made = value->producer.idx != 0 ? walk->position[value->producer.idx] <= place
                                                   : value->is_input && !value->is_constant;
        if (made && sbit__walk_used_behind(walk, value, place, uses, capacity)) {
            *plain = *plain && value->type.kind == SBIT_KIND_TENSOR;
            out[(*count)++] = id;
        }
    }
    sbit__free(a, uses, bytes);
    return SBIT_OK;
}

/* >>walk run */
typedef struct sbit__walk_run {
    sbit_walk *walk;
    sbit_graph *built;       /* NULL: the float graph */
    sbit_value_id *frontier; /* to be kept; the wanted value comes behind them if it is none */
    size_t frontier_count, wanted;
    sbit__walk_value *kept; /* NULL: they are not kept */
    size_t kept_bytes;
    uint32_t place; /* that they are the frontier of */
    sbit_session *session;
} sbit__walk_run;

static sbit_status sbit__walk_session(sbit__walk_run *run, sbit_value_id wanted, sbit_error *error)
{
    sbit_walk *walk = run->walk;
    const sbit_allocator *a = sbit_ctx_allocator(walk->ctx);
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    const size_t count = walk->value_count, bytes = (count + 1) * sizeof(sbit_value_id);
    sbit_value_id *inputs = (sbit_value_id *)sbit__alloc(a, bytes);
    if (inputs == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (size_t i = 0; i < count; i++) {
        inputs[i] = walk->values[i].id;
    }
    run->frontier[run->frontier_count] = wanted;
    while (run->frontier[run->wanted].idx != wanted.idx) {
        run->wanted++;
    }
    desc.inputs = walk->at_start ? NULL : inputs;
    desc.input_count = walk->at_start ? 0 : count;
    desc.outputs = run->frontier;
    desc.output_count = run->frontier_count + (run->wanted == run->frontier_count ? 1 : 0);
    const sbit_status status = sbit_session_create(
        run->built != NULL ? run->built : walk->graph, &desc, &run->session, error);
    sbit__free(a, inputs, bytes);
    return status;
}

static sbit_status sbit__walk_set_inputs(const sbit__walk_run *run, int64_t batch, int64_t first,
                                         sbit_error *error)
{
    sbit_walk *walk = run->walk;
    int64_t *rows = &walk->rows[batch];
    for (size_t i = 0; !walk->at_start && i < walk->value_count; i++) {
        SBIT__TRY(
            sbit_session_set_input_at(run->session, i, &walk->values[i].batches[batch], error));
    }
    if (!walk->at_start) {
        return SBIT_OK;
    }
    sbit_batch read;
    SBIT__TRY(sbit_feed_read(&walk->feed, first, walk->samples[batch], &read, error));
    walk->whole = read.whole;
    for (size_t i = 0; i < read.input_count; i++) {
        *rows = *rows == 0 && read.inputs[i].rank > 0 ? read.inputs[i].dims[0] : *rows;
    }
    return sbit__batch_set(&read, walk->graph, run->session, error);
}

/* Copies the frontier's values of one batch, as long as the limit allows. */
static sbit_status sbit__walk_keep(sbit__walk_run *run, int64_t batch, sbit_error *error)
{
    for (size_t i = 0; run->kept != NULL && i < run->frontier_count; i++) {
        const sbit_tensor *x = &sbit_session_output(run->session, i)->tensor;
        run->kept_bytes += sbit_tensor_bytes(x);
        if (run->kept_bytes > run->walk->max_bytes) {
            sbit__walk_drop(run->walk, run->kept, run->frontier_count);
            run->kept = NULL;
            return SBIT_OK;
        }
        SBIT__TRY(sbit__tensor_copy(run->walk->ctx, x, &run->kept[i].batches[batch], error));
    }
    return SBIT_OK;
}

/* Runs batch `b`, whose first sample is `first`; the caller says of which output `batch` tells. */
static sbit_status sbit__walk_batch(sbit__walk_run *run, int64_t b, int64_t first,
                                    sbit_walk_batch *batch, sbit_error *error)
{
    const sbit_walk *walk = run->walk;
    memset(batch, 0, sizeof *batch);
    SBIT__TRY(sbit__walk_set_inputs(run, b, first, error));
    SBIT__TRY(sbit_session_run(run->session, error));
    batch->index = b;
    batch->samples = walk->whole ? walk->rows[b] : walk->samples[b];
    batch->rows = walk->rows[b];
    return SBIT_OK;
}

static sbit_status sbit__walk_room(sbit__walk_run *run, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(run->walk->ctx);
    const size_t count = run->frontier_count;
    run->kept = (sbit__walk_value *)sbit__calloc(a, count + 1, sizeof *run->kept);
    for (size_t i = 0; run->kept != NULL && i < count; i++) {
        run->kept[i].id = run->frontier[i];
        run->kept[i].batches =
            (sbit_tensor *)sbit__calloc(a, (size_t)run->walk->batches, sizeof(sbit_tensor));
        if (run->kept[i].batches == NULL) {
            sbit__walk_drop(run->walk, run->kept, count);
            run->kept = NULL;
        }
    }
    return run->kept != NULL ? SBIT_OK : sbit__fail_oom(error, count * sizeof *run->kept);
}

/* A session up to the node; value none: to what its input `input` reads. */
static sbit_status sbit__walk_open(sbit__walk_run *run, sbit_node_id node, size_t input,
                                   sbit_value_id value, sbit_error *error)
{
    sbit_walk *walk = run->walk;
    const size_t bytes = (sbit_graph_value_limit(walk->graph) + 1) * sizeof(sbit_value_id);
    bool plain = true;
    if (!walk->at_start && walk->position[node.idx] <= walk->reached) { /* backwards: once more */
        sbit__walk_drop(walk, walk->values, walk->value_count);
        walk->values = NULL;
        walk->value_count = 0;
        walk->at_start = true;
    }
    run->place = walk->position[node.idx] - 1; /* all in front of the layer is done */
    run->frontier = (sbit_value_id *)sbit__alloc(sbit_ctx_allocator(walk->ctx), bytes);
    if (run->frontier == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    SBIT__TRY(sbit__walk_frontier(walk, run->place, run->frontier, &run->frontier_count, &plain, error));
    if (walk->quantized) {
        SBIT__TRY(sbit__quant_build(walk->quant, &walk->build, true, &run->built, error));
    }
    if (plain && run->place > 0) {
        SBIT__TRY(sbit__walk_room(run, error));
    } else {
        run->frontier_count = 0;
    }
    const sbit_graph *graph = run->built != NULL ? run->built : walk->graph;
    value = value.idx != 0 ? value : sbit_graph_node(graph, node)->inputs[input];
    return sbit__walk_session(run, value, error);
}

static void sbit__walk_close(sbit__walk_run *run, bool arrived)
{
    sbit_walk *walk = run->walk;
    if (arrived && run->kept != NULL) {
        sbit__walk_drop(walk, walk->values, walk->value_count);
        walk->values = run->kept;
        walk->value_count = run->frontier_count;
        walk->at_start = false;
        walk->reached = run->place;
    } else if (run->kept != NULL) {
        sbit__walk_drop(walk, run->kept, run->frontier_count);
    }
    sbit_session_destroy(run->session);
    sbit_graph_destroy(run->built);
    sbit__free(sbit_ctx_allocator(walk->ctx), run->frontier,
               (sbit_graph_value_limit(walk->graph) + 1) * sizeof(sbit_value_id));
}

static sbit_status sbit__walk_batches(sbit__walk_run *runs, size_t count, sbit_walk_fn fn, void *user,
                                      sbit_error *error)
{
    const sbit_walk *walk = runs[0].walk;
    int64_t first = 0;
    for (int64_t b = 0; b < walk->batches; b++) {
        sbit_walk_batch batches[2];
        for (size_t i = 0; i < count; i++) {
            SBIT__TRY(sbit__walk_batch(&runs[i], b, first, &batches[i], error));
            batches[i].x = &sbit_session_output(runs[i].session, runs[i].wanted)->tensor;
            SBIT__TRY(sbit__walk_keep(&runs[i], b, error));
        }
        if (fn != NULL) {
            SBIT__TRY(fn(batches, user, error));
        }
        first += walk->samples[b];
    }
    return SBIT_OK;
}

static sbit_status sbit__walk_go(sbit_walk *const *walks, size_t count, sbit_node_id node, size_t input,
                                 sbit_value_id value, sbit_walk_fn fn, void *user, sbit_error *error)
{
    sbit__walk_run runs[2];
    sbit_status status = SBIT_OK;
    memset(runs, 0, sizeof runs);
    for (size_t i = 0; i < count; i++) {
        runs[i].walk = walks[i];
        status = status == SBIT_OK ? sbit__walk_open(&runs[i], node, input, value, error) : status;
    }
    status = status == SBIT_OK ? sbit__walk_batches(runs, count, fn, user, error) : status;
    for (size_t i = 0; i < count; i++) {
        sbit__walk_close(&runs[i], status == SBIT_OK);
    }
    return status;
}

SPARSEBIT_API sbit_status sbit_walk_to(sbit_walk *walk, sbit_node_id node, size_t input,
                                       sbit_walk_fn fn, void *user, sbit_error *error)
{
    const sbit_value_id none = {0};
    if (walk == NULL || node.idx == 0 || !sbit_graph_node_alive(walk->graph, node) ||
        input >= sbit_graph_node(walk->graph, node)->input_count) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "a walk, and an input of a node of its graph are wanted");
    }
    return sbit__walk_go(&walk, 1, node, input, none, fn, user, error);
}

SBIT__FN sbit_status sbit__walk_to_value(sbit_walk *walk, sbit_node_id node, sbit_value_id value,
                                         sbit_walk_fn fn, void *user, sbit_error *error)
{
    return sbit__walk_go(&walk, 1, node, 0, value, fn, user, error);
}

SBIT__FN sbit_status sbit__walk_both(sbit_walk *const *walks, sbit_node_id node, size_t input, sbit_walk_fn fn,
                                     void *user, sbit_error *error)
{
    const sbit_value_id none = {0};
    return sbit__walk_go(walks, 2, node, input, none, fn, user, error);
}

/* >>walk to the outputs */
static sbit_status sbit__walk_outputs(sbit__walk_run *run, sbit_value_id *outputs, size_t *number,
                                      size_t *count, sbit_error *error)
{
    const sbit_walk *walk = run->walk;
    const sbit_graph *graph = walk->graph;
    *count = 0;
    for (size_t i = 0; i < sbit_graph_output_count(graph); i++) {
        const sbit_value_id id = sbit_graph_output(graph, i);
        const sbit_node_id producer = sbit_graph_value(graph, id)->producer;
        if (producer.idx != 0 && (walk->at_start || walk->position[producer.idx] > walk->reached)) {
            number[*count] = i;
            outputs[(*count)++] = id;
        }
    }
    return *count > 0 ? SBIT_OK
                      : sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                                   "no output of the model lies behind the walk");
}

static sbit_status sbit__walk_finish_batches(sbit__walk_run *run, const size_t *number, size_t count,
                                             sbit_walk_fn fn, void *user, sbit_error *error)
{
    sbit_walk *walk = run->walk;
    int64_t first = 0;
    for (int64_t b = 0; b < walk->batches; b++) {
        sbit_walk_batch batch;
        SBIT__TRY(sbit__walk_batch(run, b, first, &batch, error));
        for (size_t i = 0; i < count; i++) {
            const sbit_value *y = sbit_session_output(run->session, i);
            batch.output = number[i];
            batch.x = &y->tensor;
            if (y->kind == SBIT_KIND_TENSOR) {
                SBIT__TRY(fn(&batch, user, error));
            }
        }
        first += walk->samples[b];
    }
    return SBIT_OK;
}

static sbit_status sbit__walk_finish(sbit__walk_run *run, const sbit_quant_build_desc *build,
                                     sbit_value_id *ids, size_t *number, sbit_walk_fn fn, void *user,
                                     sbit_error *error)
{
    sbit_walk *walk = run->walk;
    sbit_session_desc desc;
    size_t count = 0;
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(sbit__walk_outputs(run, ids, number, &count, error));
    desc.outputs = ids;
    desc.output_count = count;
    if (!walk->at_start) {
        desc.inputs = ids + count;
        desc.input_count = walk->value_count;
        for (size_t i = 0; i < walk->value_count; i++) {
            ids[count + i] = walk->values[i].id;
        }
    }
    if (build != NULL) {
        sbit_quant_build_desc own = *build;
        own.format = "qdq";
        SBIT__TRY(sbit__quant_build(walk->quant, &own, true, &run->built, error));
    }
    SBIT__TRY(sbit_session_create(run->built != NULL ? run->built : walk->graph, &desc,
                                  &run->session, error));
    return sbit__walk_finish_batches(run, number, count, fn, user, error);
}

SPARSEBIT_API sbit_status sbit_walk_finish(sbit_walk *walk, const sbit_quant_build_desc *build,
                                           sbit_walk_fn fn, void *user, sbit_error *error)
{
    sbit__walk_run run;
    if (walk == NULL || fn == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a walk and a function are wanted");
    }
    const sbit_allocator *a = sbit_ctx_allocator(walk->ctx);
    const size_t outputs = sbit_graph_output_count(walk->graph);
    const size_t bytes = outputs * sizeof(size_t) +
                         (outputs + walk->value_count) * sizeof(sbit_value_id);
    size_t *number = (size_t *)sbit__alloc(a, bytes);
    if (number == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memset(&run, 0, sizeof run);
    run.walk = walk;
    const sbit_status status = sbit__walk_finish(
        &run, build, (sbit_value_id *)(void *)(number + outputs), number, fn, user, error);
    sbit_session_destroy(run.session);
    sbit_graph_destroy(run.built);
    sbit__free(a, number, bytes);
    return status;
}
