/* latency.c: how long nodes take on this machine: timing, and a table of times. >>latency
 *
 * A node's time depends on the work that it is left with: between two works that were measured it is
 * interpolated.
 */
#include "../config/config_private.h"
#include "../kernels/last_private.h"
#include "latency_private.h"

#include <math.h>   /* fabs */
#include <stdlib.h> /* qsort */

enum {
    SBIT__LATENCY_LEAST = 3, /* turns, however long they take */
    SBIT__LATENCY_RUNS = 10, /* of a turn, but ... */
    SBIT__LATENCY_MANY = 1000 /* ... never more: some clocks stand still */
};
#define SBIT__LATENCY_SAME 0.012 /* shares that are nearer are one */
#define SBIT__LATENCY_MOST 1e18  /* that a file may say: sums stay finite */
#define SBIT__LATENCY_LONG 25000000u /* ... not longer than that, ... */
#define SBIT__LATENCY_SHORT 2000000u /* ... nor shorter: some clocks count microseconds */

/* >>latency table */

SBIT__FN sbit_status sbit__latency_make(sbit_ctx *ctx, sbit_latency **out, sbit_error *error)
{
    sbit_latency *latency =
        (sbit_latency *)sbit__calloc(sbit_ctx_allocator(ctx), 1, sizeof *latency);
    if (latency == NULL) {
        return sbit__fail_oom(error, sizeof *latency);
    }
    const sbit__last_kernels *kernels = sbit__last_kernels_of(sbit_ctx_isa(ctx));
    latency->ctx = ctx;
    latency->lanes = kernels != NULL ? kernels->lanes : 1;
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
        sbit__free(a, latency->shares.moments, latency->shares.capacity * sizeof *latency->shares.moments);
        sbit__map_deinit(&latency->index);
        sbit__arena_deinit(&latency->arena);
        sbit__free(a, latency, sizeof *latency);
    }
}

SBIT__FN const sbit__latency_node *sbit__latency_find(const sbit_latency *latency, const char *name)
{
    uint32_t i = 0;
    return sbit__map_find(&latency->index, name, &i) ? &latency->nodes[i] : NULL;
}

/* In place of what was there for the same work. */
static sbit_status sbit__latency_insert(const sbit_latency *latency, sbit__latency_node *node, double work,
                                        double us, sbit_error *error)
{
    size_t at = node->count; /* files have rising work */
    while (at > 0 && node->moments[at - 1].work >= work) {
        at--;
    }
    if (at == node->count || node->moments[at].work > work) {
        SBIT__TRY(sbit__grow(sbit_ctx_allocator(latency->ctx), (void **)&node->moments, &node->capacity,
                             node->count + 1, sizeof *node->moments, error));
        memmove(node->moments + at + 1, node->moments + at,
                (node->count++ - at) * sizeof *node->moments);
    }
    node->moments[at].work = work;
    node->moments[at].us = us;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__latency_put(sbit_latency *latency, const char *name, double work, double us,
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
    return sbit__latency_insert(latency, &latency->nodes[i], work, us, error);
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
SBIT__FN double sbit__latency_at(const sbit__latency_node *node, double work)
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

/* >>latency shares */
SBIT__FN double sbit__latency_share(const sbit_latency *latency, double share)
{
    const sbit__latency_node *shares = &latency->shares;
    return shares->count == 0                  ? share
           : share < shares->moments[0].work ? sbit__latency_even(&shares->moments[0], share)
                                             : sbit__latency_at(shares, share);
}

/* Falling neighbours become their mean, until none are left. */
static void sbit__latency_rise(sbit__latency_node *shares)
{
    for (size_t first = 0; first + 1 < shares->count;) {
        size_t behind = first + 1;
        double sum = shares->moments[first].us;
        while (behind < shares->count && shares->moments[behind].us * (double)(behind - first) < sum) {
            sum += shares->moments[behind++].us;
        }
        for (size_t i = first; i < behind; i++) {
            shares->moments[i].us = sum / (double)(behind - first);
        }
        const bool again = behind - first > 1 && first > 0;
        first = again ? 0 : behind - first > 1 ? behind : first + 1;
    }
}

SBIT__FN sbit_status sbit__latency_learn(sbit_latency *latency, double share, double measured,
                                         sbit_error *error)
{
    sbit__latency_node *shares = &latency->shares;
    for (size_t i = 0; i < shares->count; i++) {
        const sbit__moment *m = &shares->moments[i];
        if (fabs(m->work - share) < SBIT__LATENCY_SAME) {
            measured = 0.5 * (m->us + measured);
            share = m->work;
            break;
        }
    }
    SBIT__TRY(sbit__latency_insert(latency, shares, share, measured, error));
    sbit__latency_rise(shares);
    return SBIT_OK;
}

/* >>latency nodes */
/* The first output that is there (an LSTM may leave out others in front); NULL: none. */
static const sbit_value_info *sbit__latency_output(const sbit_graph *graph, const sbit_node *node)
{
    size_t i = 0;
    while (i < node->output_count && node->outputs[i].idx == 0) {
        i++;
    }
    return i < node->output_count ? sbit_graph_value(graph, node->outputs[i]) : NULL;
}

SBIT__FN double sbit__latency_work(const sbit_latency *latency, const sbit_graph *graph,
                                   const sbit_node *node)
{
    const int64_t macs = sbit_graph_node_macs(graph, node->id), lanes = latency->lanes;
    const sbit_value_info *output = sbit__latency_output(graph, node);
    const int32_t rank = output != NULL ? output->type.rank : 0;
    const int32_t channels = strstr(node->op_type, "Conv") != NULL ? 1 : rank - 1;
    double count = 1.0, filled = 1.0;
    for (int32_t i = 0; i < rank; i++) {
        const int64_t size = output->type.dims[i].value;
        count *= size > 0 ? (double)size : 1.0;
        filled = i == channels && size > 0 ? (double)((size + lanes - 1) / lanes * lanes) / (double)size : filled;
    }
    return macs > 0 ? (double)macs * filled : count;
}

SBIT__FN const char *sbit__latency_name(const sbit_graph *graph, const sbit_node *node)
{
    const sbit_value_info *output = sbit__latency_output(graph, node);
    return output != NULL ? output->name : "";
}

/* >>latency timing */
SBIT__FN sbit_status sbit__timing_open(sbit__timing *t, sbit_graph *graph, sbit_error *error)
{
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(t, 0, sizeof *t);
    desc.profile = true;
    t->graph = graph;
    sbit__arena_init(&t->arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    SBIT__TRY(sbit_session_create(graph, &desc, &t->session, error));
    t->count = sbit_session_profile(t->session, NULL, 0);
    t->nodes = (sbit_node_profile *)sbit__arena_array(&t->arena, t->count + 1, sizeof *t->nodes);
    t->before = (uint64_t *)sbit__arena_array(&t->arena, t->count + 1, sizeof *t->before);
    t->ns = (double *)sbit__arena_array(&t->arena, t->count + 1, sizeof *t->ns);
    t->turns = (double *)sbit__arena_array(&t->arena, (t->count + 1) * SBIT__LATENCY_TURNS, sizeof *t->turns);
    return t->nodes == NULL || t->before == NULL || t->ns == NULL || t->turns == NULL
               ? sbit__fail_oom(error, t->count * SBIT__LATENCY_TURNS * sizeof *t->turns)
               : SBIT_OK;
}

SBIT__FN void sbit__timing_close(sbit__timing *t)
{
    sbit_session_destroy(t->session);
    if (t->graph != NULL) {
        sbit__arena_deinit(&t->arena);
    }
}

/* A turn: so many runs in a row, and how long each node and the whole took in one of them. Runs before
 * bring back what the others have driven out of the caches. */
static sbit_status sbit__timing_some(sbit__timing *t, int64_t runs, int turn, uint64_t *spent,
                                     sbit_error *error)
{
    for (int64_t i = 0; i < runs / 3; i++) {
        SBIT__TRY(sbit_session_run(t->session, error));
    }
    sbit_session_profile(t->session, t->nodes, t->count);
    for (size_t i = 0; i < t->count; i++) {
        t->before[i] = t->nodes[i].nanoseconds;
    }
    const uint64_t begin = sbit__now_ns();
    for (int64_t i = 0; i < runs; i++) {
        SBIT__TRY(sbit_session_run(t->session, error));
    }
    *spent = sbit__now_ns() - begin;
    sbit_session_profile(t->session, t->nodes, t->count);
    for (size_t i = 0; i < t->count; i++) {
        t->turns[i * SBIT__LATENCY_TURNS + (size_t)turn] =
            (double)(t->nodes[i].nanoseconds - t->before[i]) / (double)runs;
    }
    t->turns[t->count * SBIT__LATENCY_TURNS + (size_t)turn] = (double)(*spent + 1) / (double)runs;
    return SBIT_OK;
}

/* The median over the turns of `row` through what the whole of `first` took. */
static double sbit__timing_share(const sbit__timing *t, size_t row, const sbit__timing *first, int turns)
{
    double shares[SBIT__LATENCY_TURNS];
    for (int i = 0; i < turns; i++) {
        shares[i] = t->turns[row * SBIT__LATENCY_TURNS + (size_t)i] /
                    first->turns[first->count * SBIT__LATENCY_TURNS + (size_t)i];
    }
    qsort(shares, (size_t)turns, sizeof shares[0], sbit__f64_order);
    return 0.5 * (shares[(turns - 1) / 2] + shares[turns / 2]);
}

static void sbit__timing_sum(sbit__timing *t, const sbit__timing *first, int turns)
{
    const double *wholes = first->turns + first->count * SBIT__LATENCY_TURNS;
    double least = wholes[0], sum = 0.0;
    for (int i = 1; i < turns; i++) {
        least = wholes[i] < least ? wholes[i] : least;
    }
    for (size_t i = 0; i < t->count; i++) {
        t->ns[i] = sbit__timing_share(t, i, first, turns);
        sum += t->ns[i];
    }
    const double scale = sum > 0.0 ? least * sbit__timing_share(t, t->count, first, turns) / sum : 0.0;
    for (size_t i = 0; i < t->count; i++) {
        t->ns[i] *= scale;
    }
}

SBIT__FN sbit_status sbit__timing_run(sbit__timing *list, size_t count, int turns, sbit_error *error)
{
    const uint64_t most = (uint64_t)count * (uint64_t)turns * SBIT__LATENCY_LONG;
    uint64_t spent = 0, all = 0;
    int turn = 0;
    for (size_t k = 0; k < count; k++) {
        SBIT__TRY(sbit__timing_some(&list[k], 1, 0, &spent, error)); /* the first run */
        SBIT__TRY(sbit__timing_some(&list[k], 1, 0, &spent, error));
        const int64_t short_runs = (int64_t)(SBIT__LATENCY_SHORT / (spent + 1));
        const int64_t least = short_runs < SBIT__LATENCY_MANY ? short_runs : (int64_t)SBIT__LATENCY_MANY;
        const int64_t most_runs = (int64_t)(SBIT__LATENCY_LONG / (spent + 1));
        const int64_t runs = most_runs < SBIT__LATENCY_RUNS ? most_runs : (int64_t)SBIT__LATENCY_RUNS;
        list[k].together = (runs > least ? runs : least) + 1;
    }
    for (; turn < turns && (turn < SBIT__LATENCY_LEAST || all < most); turn++) {
        for (size_t i = 0; i < count; i++) {
            sbit__timing *t = &list[turn % 2 == 0 ? i : count - 1 - i];
            SBIT__TRY(sbit__timing_some(t, t->together, turn, &spent, error));
            all += spent;
        }
    }
    for (size_t k = 0; k < count; k++) {
        sbit__timing_sum(&list[k], &list[0], turn);
    }
    return SBIT_OK;
}
#undef SBIT__LATENCY_SAME
#undef SBIT__LATENCY_LONG
#undef SBIT__LATENCY_SHORT

/* >>latency files */

static void sbit__latency_write(sbit_json *to, const char *name, const sbit__latency_node *node)
{
    sbit_json_open(to, name, '[');
    for (size_t m = 0; m < node->count; m++) {
        sbit_json_number(to, NULL, node->moments[m].work);
        sbit_json_number(to, NULL, node->moments[m].us);
    }
    sbit_json_close(to, ']');
}

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
    sbit_json_int(&json, "lanes", latency->lanes); /* that works were filled up to */
    if (latency->shares.count > 0) { /* of pruned models: by nodes, as measured, ... */
        sbit__latency_write(&json, "shares", &latency->shares);
    }
    sbit_json_open(&json, "microseconds", '{'); /* of every node: [work, time, work, time ...] */
    for (size_t i = 0; i < latency->count; i++) {
        sbit__latency_write(&json, latency->nodes[i].name, &latency->nodes[i]);
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
                      "%s: a table of times is {\"microseconds\": {NODE: [work, time, ...]}}, besides \"lanes\": 1 to "
                      "1024, \"shares\": [by nodes, measured, ...] above 0", where);
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

/* Of a node, or (NULL) the shares. */
static sbit_status sbit__latency_read_node(sbit_latency *latency, const sbit_yaml *at, const char *name,
                                           sbit_error *error)
{
    const double least = name != NULL ? 0.0 : 1e-9; /* a share of 0 would meet any budget */
    for (size_t m = 0; m + 1 < at->count || m == 0; m += 2) {
        double work = 0.0, us = 0.0;
        if (at->kind != SBIT_YAML_LIST || at->count < 2 || at->count % 2 != 0 ||
            at->items[m].kind != SBIT_YAML_SCALAR || at->items[m + 1].kind != SBIT_YAML_SCALAR ||
            !sbit__parse_f64(at->items[m].text, &work) || !sbit__parse_f64(at->items[m + 1].text, &us) ||
            !(work >= least && work <= SBIT__LATENCY_MOST) || !(us >= least && us <= SBIT__LATENCY_MOST)) {
            return sbit__latency_bad(at, error);
        }
        SBIT__TRY(name != NULL ? sbit__latency_put(latency, name, work, us, error)
                               : sbit__latency_insert(latency, &latency->shares, work, us, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__latency_read(sbit_latency *latency, const sbit_yaml *root,
                                      sbit_error *error)
{
    const sbit_yaml *table = NULL;
    for (size_t i = 0; root->kind == SBIT_YAML_MAP && i < root->count; i++) {
        const sbit_yaml *at = &root->items[i];
        table = sbit__streq(at->key, "microseconds") && at->kind == SBIT_YAML_MAP ? at : table;
        if (sbit__streq(at->key, "lanes") && (at->kind != SBIT_YAML_SCALAR || !sbit__parse_i64(at->text, &latency->lanes) ||
                                              latency->lanes < 1 || latency->lanes > 1024)) {
            return sbit__latency_bad(at, error);
        }
        if (sbit__streq(at->key, "shares")) {
            SBIT__TRY(sbit__latency_read_node(latency, at, NULL, error));
        }
        sbit__latency_origin(latency->ctx, at);
    }
    for (size_t i = 0; table != NULL && i < table->count; i++) {
        SBIT__TRY(sbit__latency_read_node(latency, &table->items[i], table->items[i].key, error));
    }
    sbit__latency_rise(&latency->shares);
    return latency->count > 0 ? SBIT_OK : sbit__latency_bad(root, error);
}
#undef SBIT__LATENCY_MOST

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
        latency->lanes = 1; /* older tables: works as they are */
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
