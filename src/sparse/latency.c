/* latency.c: what a smaller graph would take on this machine: a table of times. >>latency
 *
 * A node is known by the name of its first output in the simplified graph. Its time depends on the
 * work that it is left with: between two works that were measured it is interpolated.
 */
#include "../exec/exec_api.h"
#include "../passes/passes_api.h"
#include "sparse_private.h"

enum {
    SBIT__LATENCY_RATIOS = 5, /* that the table is made with */
    SBIT__LATENCY_TURNS = 40, /* at most, and ... */
    SBIT__LATENCY_LEAST = 5
};
#define SBIT__LATENCY_NS 300000000u /* ... as long as that, but LEAST turns */

typedef struct sbit__moment {
    double work, us;
} sbit__moment;

typedef struct sbit__latency_node {
    const char *name;
    sbit__moment *moments; /* ascending by work */
    size_t count, capacity;
} sbit__latency_node;

struct sbit_latency {
    sbit_ctx *ctx;
    sbit__arena arena; /* of names */
    sbit__map index;
    sbit__latency_node *nodes;
    size_t count, capacity;
    bool loaded;
};

/* >>table */

static sbit_status sbit__latency_make(sbit_ctx *ctx, sbit_latency **out, sbit_error *error)
{
    sbit_latency *latency =
        (sbit_latency *)sbit__calloc(sbit_ctx_allocator(ctx), 1, sizeof *latency);
    if (latency == NULL) {
        return sbit__fail_oom(error, sizeof *latency);
    }
    latency->ctx = ctx;
    sbit__arena_init(&latency->arena, sbit_ctx_allocator(ctx));
    sbit__map_init(&latency->index, sbit_ctx_allocator(ctx));
    *out = latency;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_latency_destroy(sbit_latency *latency)
{
    if (latency != NULL) {
        const sbit_allocator *a = sbit_ctx_allocator(latency->ctx);
        for (size_t i = 0; i < latency->count; i++) {
            sbit__free(a, latency->nodes[i].moments,
                       latency->nodes[i].capacity * sizeof *latency->nodes[i].moments);
        }
        sbit__free(a, latency->nodes, latency->capacity * sizeof *latency->nodes);
        sbit__map_deinit(&latency->index);
        sbit__arena_deinit(&latency->arena);
        sbit__free(a, latency, sizeof *latency);
    }
}

static const sbit__latency_node *sbit__latency_find(const sbit_latency *latency, const char *name)
{
    uint32_t i = 0;
    return sbit__map_find(&latency->index, name, &i) ? &latency->nodes[i] : NULL;
}

/* A time for some work, in place of what was there for the same. */
static sbit_status sbit__latency_put(sbit_latency *latency, const char *name, double work, double us,
                                     sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(latency->ctx);
    uint32_t i = (uint32_t)latency->count;
    if (!sbit__map_find(&latency->index, name, &i)) {
        SBIT__TRY(sbit__grow(a, (void **)&latency->nodes, &latency->capacity, latency->count + 1,
                             sizeof *latency->nodes, error));
        const char *copy = sbit__arena_strdup(&latency->arena, name, strlen(name));
        if (copy == NULL) {
            return sbit__fail_oom(error, strlen(name));
        }
        SBIT__TRY(sbit__map_set(&latency->index, copy, i, error));
        memset(&latency->nodes[i], 0, sizeof latency->nodes[i]);
        latency->nodes[i].name = copy;
        latency->count++;
    }
    sbit__latency_node *node = &latency->nodes[i];
    size_t at = 0;
    while (at < node->count && node->moments[at].work < work) {
        at++;
    }
    if (at == node->count || node->moments[at].work > work) {
        SBIT__TRY(sbit__grow(a, (void **)&node->moments, &node->capacity, node->count + 1,
                             sizeof *node->moments, error));
        memmove(node->moments + at + 1, node->moments + at,
                (node->count++ - at) * sizeof *node->moments);
    }
    node->moments[at].work = work;
    node->moments[at].us = us;
    return SBIT_OK;
}

/* As much for each work as there. */
static double sbit__latency_even(const sbit__moment *m, double work)
{
    return m->work > 0.0 ? m->us * work / m->work : m->us;
}

/* On the line through two moments. */
static double sbit__latency_line(const sbit__moment *m, double work)
{
    return m[0].us + (work - m[0].work) / (m[1].work - m[0].work) * (m[1].us - m[0].us);
}

/* Below the first the line goes on, unless it falls to 0 too early or rises again; beyond the last
 * one work costs what it does there. */
static double sbit__latency_at(const sbit__latency_node *node, double work)
{
    const sbit__moment *m = node->moments;
    size_t i = 0;
    while (i < node->count && m[i].work < work) {
        i++;
    }
    if (i > 0) {
        return i == node->count ? sbit__latency_even(m + i - 1, work)
                                : sbit__latency_line(m + i - 1, work);
    }
    const double even = sbit__latency_even(m, work);
    const double line = node->count > 1 ? sbit__latency_line(m, work) : even;
    return line > m->us ? m->us : line > even ? line : even;
}

/* >>graphs */

/* A simplified copy, typed for one sample, with weights as a file holds them. */
static sbit_status sbit__latency_graph(const sbit_sparse *sparse, const sbit_graph *graph,
                                       sbit_graph **out, sbit_error *error)
{
    SBIT__TRY(sbit_graph_clone(graph, out, error));
    for (size_t i = 0; i < sbit_graph_input_count(*out); i++) {
        const sbit_value_id id = sbit_graph_input(*out, i);
        sbit_type type;
        sbit__sparse_input_type(sparse, id, true, &type);
        sbit_graph_set_type(*out, id, &type);
    }
    sbit_status status = sbit_infer(*out, error);
    status = status == SBIT_OK ? sbit__packed_close(sparse, *out, error) : status;
    status = status == SBIT_OK ? sbit_simplify(*out, NULL, NULL, error) : status;
    if (status != SBIT_OK) {
        sbit_graph_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* The first output that is there (an LSTM may leave out others in front); NULL: none. */
static const sbit_value_info *sbit__latency_output(const sbit_graph *graph, const sbit_node *node)
{
    size_t i = 0;
    while (i < node->output_count && node->outputs[i].idx == 0) {
        i++;
    }
    return i < node->output_count ? sbit_graph_value(graph, node->outputs[i]) : NULL;
}

static double sbit__latency_work(const sbit_graph *graph, const sbit_node *node)
{
    const int64_t macs = sbit_graph_node_macs(graph, node->id);
    double count = 1.0;
    const sbit_value_info *output = sbit__latency_output(graph, node);
    for (int32_t i = 0; output != NULL && i < output->type.rank; i++) {
        const int64_t size = output->type.dims[i].value;
        count *= size > 0 ? (double)size : 1.0;
    }
    return macs > 0 ? (double)macs : count;
}

static const char *sbit__latency_name(const sbit_graph *graph, const sbit_node *node)
{
    const sbit_value_info *output = sbit__latency_output(graph, node);
    return output != NULL ? output->name : "";
}

static double sbit__latency_sum(const sbit_latency *latency, const sbit_graph *graph)
{
    double us = 0.0, macs = 0.0, unknown = 0.0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        const sbit__latency_node *known =
            sbit__latency_find(latency, sbit__latency_name(graph, node));
        if (known != NULL) {
            us += sbit__latency_at(known, sbit__latency_work(graph, node));
        }
        *(known != NULL ? &macs : &unknown) += (double)sbit_graph_node_macs(graph, id);
    }
    return macs > 0.0 ? us * (1.0 + unknown / macs) : us;
}

SBIT__FN sbit_status sbit__latency_of(const sbit_latency *latency, const sbit_sparse *sparse,
                                      const sbit_graph *graph, double *us, sbit_error *error)
{
    sbit_graph *simple = NULL;
    SBIT__TRY(sbit__latency_graph(sparse, graph, &simple, error));
    *us = sbit__latency_sum(latency, simple);
    sbit_graph_destroy(simple);
    return SBIT_OK;
}

/* >>measuring */

/* The shortest time of every node, over some runs. */
typedef struct sbit__timing {
    const sbit_sparse *sparse;
    sbit_graph *graph; /* simplified */
    sbit_session *session;
    sbit__arena arena;
    sbit_node_profile *nodes;
    uint64_t *before;
    double *least; /* nanoseconds */
    size_t count;
} sbit__timing;

static sbit_status sbit__timing_begin(sbit__timing *t, sbit_error *error)
{
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.profile = true;
    SBIT__TRY(sbit_session_create(t->graph, &desc, &t->session, error));
    SBIT__TRY(sbit__sparse_inputs(t->sparse, t->session, true, 1, &t->arena, error));
    t->count = sbit_session_profile(t->session, NULL, 0);
    t->nodes = (sbit_node_profile *)sbit__arena_array(&t->arena, t->count + 1, sizeof *t->nodes);
    t->before = (uint64_t *)sbit__arena_array(&t->arena, t->count + 1, sizeof *t->before);
    t->least = (double *)sbit__arena_array(&t->arena, t->count + 1, sizeof *t->least);
    return t->nodes == NULL || t->before == NULL || t->least == NULL
               ? sbit__fail_oom(error, t->count * sizeof *t->nodes)
               : SBIT_OK;
}

/* So many runs in a row, and how long each node took in one of them. */
static sbit_status sbit__timing_some(sbit__timing *t, int64_t runs, bool first, uint64_t *spent,
                                     sbit_error *error)
{
    const uint64_t begin = sbit__now_ns();
    for (int64_t i = 0; i < runs; i++) {
        SBIT__TRY(sbit_session_run(t->session, error));
    }
    *spent = sbit__now_ns() - begin;
    sbit_session_profile(t->session, t->nodes, t->count);
    for (size_t i = 0; i < t->count; i++) {
        const double now = (double)(t->nodes[i].nanoseconds - t->before[i]) / (double)runs;
        t->before[i] = t->nodes[i].nanoseconds;
        t->least[i] = first || now < t->least[i] ? now : t->least[i];
    }
    return SBIT_OK;
}

/* Short runs are timed together: some clocks count microseconds. */
static sbit_status sbit__timing_run(sbit__timing *t, sbit_error *error)
{
    uint64_t spent = 0, all = 0;
    SBIT__TRY(sbit__timing_some(t, 2, true, &spent, error)); /* warms up */
    SBIT__TRY(sbit__timing_some(t, 1, true, &spent, error));
    const uint64_t together = spent < 2000 ? 1000 : 2000000 / spent + 1;
    for (int turn = 0; turn < SBIT__LATENCY_TURNS &&
                       (turn < SBIT__LATENCY_LEAST || all < SBIT__LATENCY_NS);
         turn++) {
        SBIT__TRY(sbit__timing_some(t, (int64_t)together, turn == 0, &spent, error));
        all += spent;
    }
    return SBIT_OK;
}

static sbit_status sbit__timing_take(const sbit__timing *t, double scale, sbit_latency *latency,
                                     double *us, sbit_error *error)
{
    *us = 0.0;
    for (size_t i = 0; i < t->count; i++) {
        const sbit_node *node = sbit_graph_node(t->graph, t->nodes[i].node);
        const double time = 1e-3 * t->least[i];
        *us += time;
        if (latency != NULL) {
            SBIT__TRY(sbit__latency_put(latency, sbit__latency_name(t->graph, node),
                                        sbit__latency_work(t->graph, node), time * scale, error));
        }
    }
    return SBIT_OK;
}

/* Runs a graph: its time, and those of its nodes, times `scale`, to the table (NULL: none). */
static sbit_status sbit__latency_run(const sbit_sparse *sparse, const sbit_graph *graph,
                                     double scale, sbit_latency *latency, double *us,
                                     sbit_error *error)
{
    sbit__timing t;
    memset(&t, 0, sizeof t);
    t.sparse = sparse;
    SBIT__TRY(sbit__latency_graph(sparse, graph, &t.graph, error));
    sbit__arena_init(&t.arena, sbit_ctx_allocator(sparse->ctx));
    sbit_status status = sbit__timing_begin(&t, error);
    status = status == SBIT_OK ? sbit__timing_run(&t, error) : status;
    status = status == SBIT_OK ? sbit__timing_take(&t, scale, latency, us, error) : status;
    sbit_session_destroy(t.session);
    sbit__arena_deinit(&t.arena);
    sbit_graph_destroy(t.graph);
    return status;
}

/* What is left at present, likewise. */
static sbit_status sbit__latency_left(sbit_sparse *sparse, double scale, sbit_latency *latency,
                                      double *us, sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit__sparse_left(sparse, &graph, error));
    const sbit_status status = sbit__latency_run(sparse, graph, scale, latency, us, error);
    sbit_graph_destroy(graph);
    return status;
}

SPARSEBIT_API sbit_status sbit_latency_now(sbit_sparse *sparse, double *before, double *after,
                                           sbit_error *error)
{
    SBIT__TRY(sbit__latency_run(sparse, sparse->graph, 1.0, NULL, before, error));
    return sbit__latency_left(sparse, 1.0, NULL, after, error);
}

static sbit_status sbit__latency_fill(sbit_sparse *sparse, const sbit_feed *feed,
                                      sbit_latency *latency, sbit__arena *arena, sbit_error *error)
{
    static const double ratios[SBIT__LATENCY_RATIOS] = {0.0, 0.25, 0.5, 0.75, 0.9};
    sbit__alone *units = NULL;
    size_t count = 0;
    SBIT__TRY(sbit__alone_list(sparse, arena, &units, &count, error));
    double *all = (double *)sbit__arena_array(arena, count + 1, sizeof *all);
    if (all == NULL) {
        return sbit__fail_oom(error, count * sizeof *all);
    }
    for (int r = 0; r < SBIT__LATENCY_RATIOS; r++) {
        double us = 0.0;
        for (size_t i = 0; i < count; i++) {
            all[i] = ratios[r];
        }
        sbit__alone_set(sparse, units, count, all);
        SBIT__TRY(sbit_sparse_select(sparse, feed, error));
        SBIT__TRY(sbit__latency_left(sparse, 1.0, latency, &us, error));
        SBIT__TRY(sbit__progress(sparse->ctx, "latency", r + 1, SBIT__LATENCY_RATIOS, error));
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_latency_measure(sbit_sparse *sparse, const sbit_feed *feed,
                                               sbit_latency **out, sbit_error *error)
{
    sbit_latency *latency = NULL;
    sbit__arena arena;
    SBIT__TRY(sbit__latency_make(sparse->ctx, &latency, error));
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    sbit_status status = sbit__latency_fill(sparse, feed, latency, &arena, error);
    const sbit_status back = sbit__alone_forget(sparse, status == SBIT_OK ? error : NULL);
    status = status == SBIT_OK ? back : status;
    sbit__arena_deinit(&arena);
    if (status != SBIT_OK) {
        sbit_latency_destroy(latency);
        return status;
    }
    *out = latency;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__latency_check(sbit_latency *latency, sbit_sparse *sparse, double share,
                                         bool *changed, sbit_error *error)
{
    double before = 0.0, after = 0.0, table = 0.0;
    *changed = false;
    if (latency->loaded) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_latency_now(sparse, &before, &after, error));
    *changed = after < 0.95 * share * before || after > 1.05 * share * before;
    SBIT__TRY(sbit__latency_of(latency, sparse, sparse->graph, &table, error));
    return *changed && before > 0.0
               ? sbit__latency_left(sparse, table / before, latency, &after, error)
               : SBIT_OK;
}

/* >>files */

SPARSEBIT_API sbit_status sbit_latency_save(const sbit_latency *latency, const char *path,
                                            sbit_error *error)
{
    sbit__json_file file;
    sbit_json json;
    char machine[SBIT__CPU_NAME];
    SBIT__TRY(sbit__json_file_open(&file, latency->ctx, path, &json, error));
    sbit_json_open(&json, NULL, '{');
    sbit_json_text(&json, "isa", sbit_isa_name(sbit_ctx_isa(latency->ctx)));
    sbit_json_int(&json, "threads", sbit_ctx_threads(latency->ctx));
    sbit_json_text(&json, "machine", sbit__cpu_name(machine));
    sbit_json_open(&json, "microseconds", '{'); /* of every node: [work, time, work, time ...] */
    for (size_t i = 0; i < latency->count; i++) {
        const sbit__latency_node *node = &latency->nodes[i];
        sbit_json_open(&json, node->name, '[');
        for (size_t m = 0; m < node->count; m++) {
            sbit_json_number(&json, NULL, node->moments[m].work);
            sbit_json_number(&json, NULL, node->moments[m].us);
        }
        sbit_json_close(&json, ']');
    }
    sbit_json_close(&json, '}');
    sbit_json_close(&json, '}');
    return sbit__json_file_close(&file);
}

static sbit_status sbit__latency_bad(const sbit_yaml *at, sbit_error *error)
{
    char where[32];
    sbit__yaml_position(at->line, at->column, where, sizeof where);
    return sbit__fail(error, SBIT_ERR_CONFIG, where,
                      "%s: a table of times is {\"microseconds\": {NODE: [work, time, ...]}}", where);
}

/* A table may be of another machine - the one that the model is for - but that is said. */
static void sbit__latency_origin(sbit_ctx *ctx, const sbit_yaml *at)
{
    static const char *const names[] = {"isa", "threads", "machine"};
    char threads[16], machine[SBIT__CPU_NAME];
    const char *here[3];
    snprintf(threads, sizeof threads, "%d", (int)sbit_ctx_threads(ctx));
    here[0] = sbit_isa_name(sbit_ctx_isa(ctx));
    here[1] = threads;
    here[2] = sbit__cpu_name(machine);
    for (size_t i = 0; i < SBIT__COUNT_OF(names); i++) {
        if (sbit__streq(at->key, names[i]) && at->kind == SBIT_YAML_SCALAR &&
            !sbit__streq(at->text, here[i])) {
            sbit__log(ctx, SBIT_LOG_WARNING, "the table of times was made with %s %s; here it is %s",
                      names[i], at->text, here[i]);
        }
    }
}

static sbit_status sbit__latency_read(sbit_latency *latency, const sbit_yaml *root,
                                      sbit_error *error)
{
    const sbit_yaml *table = NULL;
    for (size_t i = 0; root->kind == SBIT_YAML_MAP && i < root->count; i++) {
        const sbit_yaml *at = &root->items[i];
        table = sbit__streq(at->key, "microseconds") && at->kind == SBIT_YAML_MAP ? at : table;
        sbit__latency_origin(latency->ctx, at);
    }
    for (size_t i = 0; table != NULL && i < table->count; i++) {
        const sbit_yaml *node = &table->items[i];
        for (size_t m = 0; m + 1 < node->count || m == 0; m += 2) {
            double work = 0.0, us = 0.0;
            if (node->kind != SBIT_YAML_LIST || node->count < 2 || node->count % 2 != 0 ||
                node->items[m].kind != SBIT_YAML_SCALAR ||
                node->items[m + 1].kind != SBIT_YAML_SCALAR ||
                !sbit__parse_f64(node->items[m].text, &work) ||
                !sbit__parse_f64(node->items[m + 1].text, &us) || !(work >= 0.0) || !(us >= 0.0)) {
                return sbit__latency_bad(node, error);
            }
            SBIT__TRY(sbit__latency_put(latency, node->key, work, us, error));
        }
    }
    return latency->count > 0 ? SBIT_OK : sbit__latency_bad(root, error);
}

SPARSEBIT_API sbit_status sbit_latency_load(sbit_ctx *ctx, const char *path, sbit_latency **out,
                                            sbit_error *error)
{
    sbit__file file;
    sbit_yaml_doc *doc = NULL;
    sbit_latency *latency = NULL;
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(ctx), path, &file, error));
    sbit_status status = sbit_yaml_parse(ctx, (const char *)file.data, file.size, &doc, error);
    status = status == SBIT_OK ? sbit__latency_make(ctx, &latency, error) : status;
    if (status == SBIT_OK) {
        latency->loaded = true;
        status = sbit__latency_read(latency, sbit_yaml_root(doc), error);
    }
    sbit_yaml_destroy(doc);
    sbit__file_close(&file);
    if (status != SBIT_OK) {
        sbit_latency_destroy(latency);
        return status;
    }
    *out = latency;
    return SBIT_OK;
}
#undef SBIT__LATENCY_NS
