/* step_by_time.c: layers that integers make slower on this machine stay float. >>step-by-time
 *
 * Two builds are timed node by node, in turns: with all that is quantized, and with float weights
 * between the same quantizers. A layer whose weight is quantized has the time of its node and of the
 * conversions at its tensors. Where integers take longer, the weight stays float, and so does an
 * activation that no other node reads. What was chosen is then run against what was not; if the
 * whole is not faster, nothing stays float, and the table learns that. TABLE: the times are read from that file instead, or
 * written to it if there is none; then nothing is run, and the result is the same on any machine.
 */
#include "../measure/latency_private.h"
#include "trials_private.h"

static const sbit_key sbit__by_time_keys[] = {
    {"BY_TIME.TABLE", SBIT_KEY_STRING, "", 0, 0, NULL,
     "file of times (JSON): read if it is there, else written"},
    {"BY_TIME.MARGIN", SBIT_KEY_FLOAT, "5", 0.0, 1000.0, NULL,
     "percent that a layer must be slower in integers to stay float"},
};

#define SBIT__BY_TIME_INTEGERS " (integers)" /* behind a node's name in the table */

typedef struct sbit__by_time {
    sbit_quant *quant;
    sbit_feed feed;
    sbit_latency *times;
    sbit__arena *arena; /* of the step */
    double *us;    /* [2][nodes]: of each layer's node; integers, float weights */
    size_t nodes;
    bool *is_float; /* [nodes]: stays float */
    bool *sites;    /* [site count]: stay quantized */
} sbit__by_time;

/* The node whose time a node of a build is counted at: itself, or the layer whose tensor it converts. */
static uint32_t sbit__by_time_owner(const sbit__by_time *t, const sbit_graph *built,
                                    sbit_node_id id)
{
    const sbit_graph *graph = t->quant->graph;
    if (id.idx < t->nodes && sbit_graph_node_alive(graph, id)) {
        return id.idx;
    }
    for (int step = 0; step < 4; step++) { /* DequantizeLinear, QuantizeLinear, Clip, the tensor */
        const sbit_value_id x = sbit_graph_node(built, id)->inputs[0];
        if (x.idx == 0) {
            break;
        }
        if (x.idx < sbit_graph_value_limit(graph) && sbit_graph_value_alive(graph, x)) {
            const sbit__site *site = sbit__site_on(t->quant, graph, x, SBIT_TARGET_ACTIVATION);
            return site != NULL && site->body == 0 ? site->layer.idx
                                                   : sbit_graph_value(graph, x)->producer.idx;
        }
        id = sbit_graph_value(built, x)->producer;
        if (id.idx == 0) {
            break;
        }
    }
    return 0;
}

static double sbit__by_time_sum(const sbit__by_time *t, const sbit__timing *timing, double *us)
{
    double sum = 0.0;
    for (size_t i = 0; i < timing->count; i++) {
        const double here = 1e-3 * timing->ns[i];
        sum += here;
        if (us != NULL) {
            us[sbit__by_time_owner(t, timing->graph, timing->nodes[i].node)] += here;
        }
    }
    return sum;
}

/* The batch's tensors with memory of their own: the feed's is good until it reads again. */
static sbit_status sbit__by_time_keep(sbit__arena *arena, sbit_batch *batch, sbit_error *error)
{
    sbit_tensor *inputs = (sbit_tensor *)sbit__arena_array(arena, batch->input_count + 1, sizeof *inputs);
    for (size_t i = 0; inputs != NULL && i < batch->input_count; i++) {
        const size_t bytes = sbit_tensor_bytes(&batch->inputs[i]);
        inputs[i] = batch->inputs[i];
        inputs[i].data = sbit__arena_alloc(arena, bytes + 1);
        if (inputs[i].data == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        memcpy(inputs[i].data, batch->inputs[i].data, bytes);
    }
    batch->inputs = inputs;
    return inputs != NULL ? SBIT_OK : sbit__fail_oom(error, batch->input_count * sizeof *inputs);
}

/* So many samples as the model's first input says, 1 if it says none. */
static int64_t sbit__by_time_samples(const sbit_graph *graph)
{
    const sbit_type *type = sbit_graph_input_count(graph) > 0
                                ? &sbit_graph_value(graph, sbit_graph_input(graph, 0))->type
                                : NULL;
    return type != NULL && type->kind == SBIT_KIND_TENSOR && type->rank > 0 && type->dims[0].value > 0
               ? type->dims[0].value
               : 1;
}

/* Times of two builds, in turns, on the feed's first samples; sums[2], microseconds. */
static sbit_status sbit__by_time_run(const sbit__by_time *t, sbit_graph *const graphs[2], bool keep,
                                     double *sums, sbit_error *error)
{
    sbit__timing timing[2];
    sbit_status status = SBIT_OK;
    memset(timing, 0, sizeof timing);
    for (int k = 0; k < 2 && status == SBIT_OK; k++) {
        sbit_batch batch;
        status = sbit__timing_open(&timing[k], graphs[k], error);
        status = status == SBIT_OK ? sbit_feed_read(&t->feed, 0, sbit__by_time_samples(t->quant->graph), &batch, error) : status;
        status = status == SBIT_OK ? sbit__by_time_keep(&timing[k].arena, &batch, error) : status;
        status = status == SBIT_OK ? sbit__batch_set(&batch, graphs[k], timing[k].session, error) : status;
    }
    status = status == SBIT_OK ? sbit__timing_run(timing, 2, SBIT__LATENCY_TURNS, error) : status;
    for (int k = 0; k < 2; k++) {
        if (status == SBIT_OK) {
            sums[k] = sbit__by_time_sum(t, &timing[k], keep ? t->us + (size_t)k * t->nodes : NULL);
        }
        sbit__timing_close(&timing[k]);
    }
    return status;
}

/* As Q/DQ graphs, whatever is written in the end: their nodes are those of the model. */
static sbit_status sbit__by_time_builds(const sbit__by_time *t, const sbit_quant_build_desc *other,
                                        bool keep, double *sums, sbit_error *error)
{
    sbit_graph *graphs[2] = {NULL, NULL};
    sbit_quant_build_desc descs[2];
    memset(descs, 0, sizeof descs);
    descs[1] = *other;
    descs[0].format = descs[1].format = "qdq";
    sbit_status status = sbit__quant_build(t->quant, &descs[0], true, &graphs[0], error);
    status = status == SBIT_OK ? sbit__quant_build(t->quant, &descs[1], true, &graphs[1], error) : status;
    status = status == SBIT_OK ? sbit__by_time_run(t, graphs, keep, sums, error) : status;
    sbit_graph_destroy(graphs[0]);
    sbit_graph_destroy(graphs[1]);
    return status;
}

static const char *sbit__by_time_key(const sbit__by_time *t, const sbit_node *node, bool integers)
{
    return sbit__arena_printf(t->arena, "%s%s", sbit__latency_name(t->quant->graph, node),
                              integers ? SBIT__BY_TIME_INTEGERS : "");
}

static sbit_status sbit__by_time_put(const sbit__by_time *t, sbit_node_id id, bool integers,
                                     double us, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(t->quant->graph, id);
    const char *key = sbit__by_time_key(t, node, integers);
    return key != NULL
               ? sbit__latency_put(t->times, key, sbit__latency_work(t->times, t->quant->graph, node), us, error)
               : sbit__fail_oom(error, 1);
}

static sbit_status sbit__by_time_measure(sbit__by_time *t, const sbit_unit *units, size_t count,
                                         sbit_error *error)
{
    sbit_quant_build_desc desc;
    double sums[2];
    memset(&desc, 0, sizeof desc);
    desc.float_weights = true;
    SBIT__TRY(sbit__latency_make(t->quant->ctx, &t->times, error));
    SBIT__TRY(sbit__by_time_builds(t, &desc, true, sums, error));
    for (size_t i = 0; i < count; i++) {
        const sbit_node_id node = units[i].node;
        SBIT__TRY(sbit__by_time_put(t, node, true, t->us[node.idx], error));
        SBIT__TRY(sbit__by_time_put(t, node, false, t->us[t->nodes + node.idx], error));
    }
    return SBIT_OK;
}

/* *chosen: layers that are slower; *known: how many the table has. */
static sbit_status sbit__by_time_choose(sbit__by_time *t, const sbit_unit *units, size_t count,
                                        double margin, size_t *chosen, size_t *known, sbit_error *error)
{
    const char *missing = NULL; /* the first that the table has not */
    *chosen = *known = 0;
    for (size_t i = 0; i < count; i++) {
        const sbit_graph *graph = t->quant->graph;
        const sbit_node *node = sbit_graph_node(graph, units[i].node);
        const double work = sbit__latency_work(t->times, graph, node);
        const char *keys[2] = {sbit__by_time_key(t, node, true), sbit__by_time_key(t, node, false)};
        if (keys[0] == NULL || keys[1] == NULL) {
            return sbit__fail_oom(error, 1);
        }
        const sbit__latency_node *integers = sbit__latency_find(t->times, keys[0]);
        const sbit__latency_node *floats = sbit__latency_find(t->times, keys[1]);
        if (integers != NULL && floats != NULL) {
            const double us[2] = {sbit__latency_at(integers, work), sbit__latency_at(floats, work)};
            ++*known;
            t->is_float[node->id.idx] = us[0] > us[1] * (1.0 + margin / 100.0);
            *chosen += t->is_float[node->id.idx] ? 1 : 0;
            if (t->is_float[node->id.idx]) {
                sbit__log(t->quant->ctx, SBIT_LOG_INFO, "by_time: '%s' stays float: %.1f us, %.1f in integers",
                          sbit__latency_name(graph, node), us[1], us[0]);
            }
        } else if (missing == NULL) {
            missing = sbit__latency_name(graph, node);
        }
    }
    if (*known > 0 && missing != NULL) { /* of another model, or of a version that cut long names */
        sbit__log(t->quant->ctx, SBIT_LOG_WARNING, "by_time: the table has no times of '%s' and %u other layers, which stay "
                  "integers; without that file they are measured", missing, (unsigned)(count - *known - 1));
    }
    return SBIT_OK;
}

/* Which sites stay quantized: weights of other layers, activations that other nodes read. */
static void sbit__by_time_sites(const sbit__by_time *t)
{
    sbit_use uses[64];
    for (size_t i = 0; i < t->quant->site_count; i++) {
        const sbit__site *site = &t->quant->sites[i];
        bool needed = !site->enabled || site->body != 0 || site->captured;
        for (const sbit__site_use *use = site->uses; use != NULL && !site->all_uses; use = use->next) {
            needed = needed || !t->is_float[use->node.idx];
        }
        if (site->all_uses && site->body == 0) {
            const size_t count = sbit_graph_uses(site->graph, site->value, uses, 64);
            needed = needed || count > 64;
            for (size_t k = 0; k < count && !needed; k++) {
                needed = uses[k].node.idx == 0 || uses[k].body != NULL ||
                         !t->is_float[uses[k].node.idx];
            }
        }
        t->sites[i] = site->enabled && needed;
    }
}

static sbit_status sbit__by_time_work(sbit__by_time *t, const sbit_options *options,
                                      sbit_unit *units, size_t count, sbit_error *error)
{
    const char *path = sbit_options_string(options, "STEP.BY_TIME.TABLE");
    const bool given = path[0] != '\0' && !sbit__file_missing(path);
    sbit_quant_build_desc desc;
    double sums[2] = {0.0, 1.0};
    size_t chosen = 0, known = 0;
    SBIT__TRY(given ? sbit_latency_load(t->quant->ctx, path, &t->times, error)
                    : sbit__by_time_measure(t, units, count, error));
    SBIT__TRY(sbit__by_time_choose(t, units, count, sbit_options_float(options, "STEP.BY_TIME.MARGIN"),
                                   &chosen, &known, error));
    if (known == 0 && count > 0) {
        return sbit__fail(error, SBIT_ERR_CONFIG, path, "'%s' has no times of this model's layers",
                          path);
    }
    sbit__by_time_sites(t);
    memset(&desc, 0, sizeof desc);
    desc.sites = t->sites;
    if (chosen > 0 && !given) {
        SBIT__TRY(sbit__by_time_builds(t, &desc, false, sums, error));
        sbit__log(t->quant->ctx, SBIT_LOG_INFO, "by_time: %.1f us, with %u layers float %.1f us",
                  sums[0], (unsigned)chosen, sums[1]);
        for (size_t i = 0; i < count && !(sums[1] < sums[0]); i++) { /* the table learns it */
            if (t->is_float[units[i].node.idx]) {
                SBIT__TRY(sbit__by_time_put(t, units[i].node, false,
                                            t->us[units[i].node.idx], error));
            }
        }
    }
    if (path[0] != '\0' && !given) {
        SBIT__TRY(sbit_latency_save(t->times, path, error));
    }
    for (size_t i = 0; i < t->quant->site_count && (given || sums[1] < sums[0]); i++) {
        sbit__site *site = &t->quant->sites[i];
        if (site->enabled && !t->sites[i]) {
            site->search_float = "left float by step by_time: integers are slower";
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__by_time_step(void *state, const sbit_options *options,
                                      const sbit_feed *feed, sbit_error *error)
{
    sbit__by_time t;
    sbit__arena arena;
    memset(&t, 0, sizeof t);
    t.quant = (sbit_quant *)state;
    t.feed = *feed;
    t.nodes = sbit_graph_node_limit(t.quant->graph);
    t.arena = &arena;
    sbit__arena_init(&arena, sbit_ctx_allocator(t.quant->ctx));
    const size_t count = sbit_quant_units(t.quant, NULL, NULL, 0);
    sbit_unit *units = (sbit_unit *)sbit__arena_array(&arena, count + 1, sizeof *units);
    t.us = (double *)sbit__arena_array(&arena, 2 * t.nodes, sizeof *t.us);
    t.is_float = (bool *)sbit__arena_array(&arena, t.nodes, sizeof *t.is_float);
    t.sites = (bool *)sbit__arena_array(&arena, t.quant->site_count + 1, sizeof *t.sites);
    sbit_status status =
        units != NULL && t.us != NULL && t.is_float != NULL && t.sites != NULL
            ? SBIT_OK
            : sbit__fail_oom(error, t.nodes * sizeof *t.us);
    if (status == SBIT_OK) {
        sbit_quant_units(t.quant, NULL, units, count);
        status = sbit__by_time_work(&t, options, units, count, error);
    }
    sbit_latency_destroy(t.times);
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_by_time(void)
{
    static const sbit_step_row row = {
        {"by_time", "layers that integers make slower on this machine stay float",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__by_time_keys,
         SBIT__COUNT_OF(sbit__by_time_keys)},
        SBIT_STAGE_SEARCH,
        true,
        sbit__by_time_step,
    };
    return &row;
}
