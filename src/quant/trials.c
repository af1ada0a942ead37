/* trials.c: how far outputs move when some sites are quantized. >>trials
 *
 * The float outputs are kept, one pass; a float walk keeps the values in front of the layer at work,
 * so that a trial runs only what lies behind it. Sites are divided among layers by the node whose
 * settings they have.
 */
#include "trials_private.h"

#include "../measure/measure_api.h"

#include <stdlib.h> /* qsort */

/* >>trials feed */
static sbit_status sbit__feed_part_read(void *user, const int64_t *index, int64_t count,
                                        sbit_batch *out, sbit_error *error)
{
    const sbit__feed_part *part = (const sbit__feed_part *)user;
    int64_t moved[SBIT_FEED_MOST];
    if (count > SBIT_FEED_MOST) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "%d samples at most are read at once",
                          SBIT_FEED_MOST);
    }
    for (int64_t i = 0; i < count; i++) {
        moved[i] = part->first + index[i];
    }
    SBIT__TRY(part->feed.read(part->feed.user, moved, count, out, error));
    out->index = index; /* moved is gone when this returns */
    return SBIT_OK;
}

SBIT__FN sbit_feed sbit__feed_part_of(sbit__feed_part *part, const sbit_feed *feed, int64_t first,
                                      int64_t count)
{
    sbit_feed out = *feed;
    part->feed = *feed;
    part->first = first;
    out.count = count < feed->count - first ? count : feed->count - first;
    out.read = sbit__feed_part_read;
    out.close = NULL;
    out.user = part;
    return out;
}

/* >>trials layers */
/* The first node that reads something else when the site is quantized; none: of a body, where the
 * whole model counts. */
static sbit_node_id sbit__search_start(const sbit_quant *quant, const sbit__site *site,
                                       const uint32_t *position, sbit_use *uses, size_t capacity)
{
    sbit_node_id first = {0};
    if (site->body != 0) {
        return first;
    }
    const size_t count = sbit_graph_uses(quant->graph, site->value, uses, capacity);
    for (size_t i = 0; i < count && count <= capacity; i++) {
        const sbit_node_id node = uses[i].node;
        if (node.idx != 0 &&
            (first.idx == 0 || position[node.idx] < position[first.idx])) {
            first = node;
        }
    }
    return first;
}

static int sbit__search_order(const void *a, const void *b)
{
    const sbit__search_layer *x = (const sbit__search_layer *)a;
    const sbit__search_layer *y = (const sbit__search_layer *)b;
    if (x->place != y->place) {
        return x->place < y->place ? -1 : 1;
    }
    return x->node.idx < y->node.idx ? -1 : x->node.idx > y->node.idx ? 1 : strcmp(x->name, y->name);
}

static size_t sbit__search_layer_of(const sbit__search_layers *layers, const sbit__site *site)
{
    size_t i = 0;
    const sbit_node_id node = {site->body == 0 ? site->layer.idx : 0};
    while (i < layers->count && (layers->items[i].node.idx != node.idx ||
                                 !sbit__streq(layers->items[i].name, site->layer_name))) {
        i++;
    }
    return i;
}

static void sbit__search_layers_fill(sbit_quant *quant, sbit__search_layers *out,
                                     const uint32_t *position, sbit_use *uses, size_t capacity)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *site = &quant->sites[i];
        const size_t at = sbit__search_layer_of(out, site);
        const sbit_node_id start = sbit__search_start(quant, site, position, uses, capacity);
        const uint32_t place = start.idx != 0 ? position[start.idx] : 0;
        sbit__search_layer *layer = &out->items[at];
        if (at == out->count) {
            out->count++;
            layer->node.idx = site->body == 0 ? site->layer.idx : 0;
            layer->name = site->layer_name;
            layer->start = start;
            layer->place = place;
        } else if (place < layer->place) {
            layer->start = start;
            layer->place = place;
        }
        if (site->target == SBIT_TARGET_WEIGHT) {
            layer->weights = true;
            layer->params += sbit_tensor_count(&sbit__site_value(site)->constant);
        }
    }
    qsort(out->items, out->count, sizeof *out->items, sbit__search_order);
    for (size_t i = 0; i < quant->site_count; i++) {
        out->of_site[i] = (uint32_t)sbit__search_layer_of(out, &quant->sites[i]);
    }
}

SBIT__FN sbit_status sbit__search_layers_find(sbit_quant *quant, sbit__search_layers *out,
                                              sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t nodes = sbit_graph_node_limit(quant->graph), capacity = 4096;
    const size_t work = nodes * sizeof(uint32_t) + capacity * sizeof(sbit_use);
    uint32_t place = 0;
    memset(out, 0, sizeof *out);
    out->bytes = quant->site_count * (sizeof *out->items + sizeof(uint32_t)) + 1;
    out->items = (sbit__search_layer *)sbit__calloc(a, 1, out->bytes);
    sbit_use *uses = (sbit_use *)sbit__calloc(a, 1, work);
    if (out->items == NULL || uses == NULL) {
        sbit__free(a, uses, work);
        sbit__search_layers_free(quant, out);
        return sbit__fail_oom(error, quant->site_count * sizeof *out->items + work);
    }
    uint32_t *position = (uint32_t *)(void *)(uses + capacity);
    out->of_site = (uint32_t *)(void *)(out->items + quant->site_count);
    for (sbit_node_id id = sbit_graph_first(quant->graph); id.idx != 0;
         id = sbit_graph_next(quant->graph, id)) {
        position[id.idx] = ++place;
    }
    sbit__search_layers_fill(quant, out, position, uses, capacity);
    sbit__free(a, uses, work);
    return SBIT_OK;
}

SBIT__FN void sbit__search_layers_free(sbit_quant *quant, sbit__search_layers *layers)
{
    sbit__free(sbit_ctx_allocator(quant->ctx), layers->items, layers->bytes);
    memset(layers, 0, sizeof *layers);
}

/* >>trials reference */
static sbit_status sbit__trials_keep(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__trials *t = (sbit__trials *)user;
    return sbit__tensor_copy(t->quant->ctx, batch->x,
                             &t->reference[(size_t)batch->index * t->outputs + batch->output],
                             error);
}

/* Class numbers: the feed's first targets, int64 [n]. */
static sbit_status sbit__trials_labels(sbit__trials *t, const sbit_feed *feed, sbit_error *error)
{
    sbit_batch batch;
    for (int64_t at = 0; at < feed->count && t->labels != NULL; at += batch.samples) {
        SBIT__TRY(sbit_feed_read(feed, at, 0, &batch, error));
        if (batch.whole || batch.target_count == 0 || batch.targets[0].dtype != SBIT_I64 ||
            batch.targets[0].rank != 1 || batch.targets[0].dims[0] < batch.samples) {
            t->labels = NULL;
        } else {
            memcpy(t->labels + at, batch.targets[0].data, (size_t)batch.samples * sizeof(int64_t));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__trials_fill(sbit__trials *t, const sbit_feed *feed, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(t->quant->ctx);
    t->outputs = sbit_graph_output_count(t->quant->graph);
    t->samples = feed->count;
    t->batches = feed->count; /* as many at most */
    t->bytes = (size_t)feed->count * (t->outputs * sizeof(sbit_tensor) + sizeof(int64_t));
    t->reference = (sbit_tensor *)sbit__calloc(a, 1, t->bytes);
    if (t->reference == NULL) {
        return sbit__fail_oom(error, t->bytes);
    }
    t->labels = (int64_t *)(void *)(t->reference + (size_t)t->batches * t->outputs);
    SBIT__TRY(sbit_walk_create(t->quant, feed, NULL, &t->front, error));
    SBIT__TRY(sbit_walk_create(t->quant, feed, NULL, &t->walk, error));
    SBIT__TRY(sbit__trials_labels(t, feed, error));
    return sbit_walk_finish(t->front, NULL, sbit__trials_keep, t, error);
}

SBIT__FN sbit_status sbit__trials_begin(sbit_quant *quant, const sbit_feed *feed,
                                        sbit__trials *out, sbit_error *error)
{
    memset(out, 0, sizeof *out);
    out->quant = quant;
    const sbit_status status = sbit__trials_fill(out, feed, error);
    if (status != SBIT_OK) {
        sbit__trials_end(out);
    }
    return status;
}

SBIT__FN void sbit__trials_end(sbit__trials *t)
{
    for (size_t i = 0; t->reference != NULL && i < (size_t)t->batches * t->outputs; i++) {
        sbit_tensor_free(t->quant->ctx, &t->reference[i]);
    }
    sbit__free(sbit_ctx_allocator(t->quant->ctx), t->reference, t->bytes);
    sbit_walk_destroy(t->front);
    sbit_walk_destroy(t->walk);
    memset(t, 0, sizeof *t);
}

/* >>trials run */
typedef struct sbit__trial_run {
    sbit__trials *trials;
    sbit__trial *out;
    sbit_diff *diffs; /* [outputs] */
    int64_t first;    /* sample of the batch */
} sbit__trial_run;

static void sbit__trial_classes(sbit__trial_run *run, const sbit_walk_batch *batch,
                                const sbit_tensor *plain)
{
    const sbit_tensor *x = batch->x;
    if (x->dtype != SBIT_F32 || x->rank != 2 || x->dims[0] != batch->rows || x->dims[1] < 2) {
        return;
    }
    for (int64_t i = 0; i < batch->samples; i++) {
        const int64_t at = i * x->dims[1];
        const int64_t best = sbit_best_of((const float *)x->data + at, x->dims[1]);
        run->out->ranked++;
        run->out->agreed +=
            best == sbit_best_of((const float *)plain->data + at, x->dims[1]) ? 1 : 0;
        if (run->trials->labels != NULL) {
            run->out->right += best == run->trials->labels[run->first + i] ? 1 : 0;
        }
    }
}

static sbit_status sbit__trial_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__trial_run *run = (sbit__trial_run *)user;
    const sbit__trials *t = run->trials;
    const sbit_tensor *plain = &t->reference[(size_t)batch->index * t->outputs + batch->output];
    const int64_t count = sbit_tensor_count(batch->x);
    (void)error;
    if (!sbit_tensor_same_shape(plain, batch->x)) {
        run->diffs[batch->output].broken = true;
        return SBIT_OK;
    }
    sbit_diff_add(&run->diffs[batch->output], plain, batch->x,
                  batch->rows > 0 && count % batch->rows == 0 ? count / batch->rows * batch->samples
                                                              : count);
    if (batch->output == 0) {
        sbit__trial_classes(run, batch, plain);
        run->first += batch->samples;
    }
    return SBIT_OK;
}

static sbit_status sbit__trials_walk_to(sbit__trials *t, sbit_node_id start, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(t->quant->graph, start);
    size_t input = 0;
    while (input + 1 < node->input_count &&
           (node->inputs[input].idx == 0 ||
            sbit_graph_value(t->quant->graph, node->inputs[input])->is_constant)) {
        input++;
    }
    SBIT__TRY(sbit_walk_to(t->walk, start, input, NULL, NULL, error));
    t->at = start;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__trials_run(sbit__trials *t, const bool *sites, sbit_node_id start,
                                      sbit__trial *out, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(t->quant->ctx);
    const size_t bytes = (t->outputs + 1) * sizeof(sbit_diff);
    sbit_quant_build_desc build;
    sbit__trial_run run;
    memset(out, 0, sizeof *out);
    memset(&build, 0, sizeof build);
    build.sites = sites;
    if (start.idx != 0 && start.idx != t->at.idx) {
        SBIT__TRY(sbit__trials_walk_to(t, start, error));
    }
    memset(&run, 0, sizeof run);
    run.trials = t;
    run.out = out;
    run.diffs = (sbit_diff *)sbit__calloc(a, 1, bytes);
    if (run.diffs == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    const sbit_status status =
        sbit_walk_finish(start.idx != 0 ? t->walk : t->front, &build, sbit__trial_see, &run, error);
    for (size_t i = 0; i < t->outputs; i++) {
        const sbit_diff *d = &run.diffs[i];
        out->noise += d->broken ? HUGE_VAL : d->error2 / (d->reference2 > 0.0 ? d->reference2 : 1.0);
        out->error2 += d->error2;
        out->elements += d->count;
    }
    sbit__free(a, run.diffs, bytes);
    return status;
}

SBIT__FN double sbit__trials_drop(const sbit__trials *t, const sbit__trial *plain,
                                  const sbit__trial *trial)
{
    if (trial->ranked == 0) {
        return 100.0 * trial->noise;
    }
    const int64_t lost =
        t->labels != NULL ? plain->right - trial->right : trial->ranked - trial->agreed;
    return 100.0 * (double)lost / (double)trial->ranked;
}
