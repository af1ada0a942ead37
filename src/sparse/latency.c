/* latency.c: what a smaller graph would take on this machine, by a table of times. >>latency-left
 *
 * A node is known by the name of its first output in the simplified graph.
 */
#include "../measure/latency_private.h"
#include "../passes/passes_api.h"
#include "sparse_private.h"

enum { SBIT__LATENCY_RATIOS = 10 }; /* that the table is made with */

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

/* >>latency-left measuring */
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
    sbit_graph *simple = NULL;
    SBIT__TRY(sbit__latency_graph(sparse, graph, &simple, error));
    sbit_status status = sbit__timing_open(&t, simple, error);
    if (status == SBIT_OK) {
        status = sbit__sparse_inputs(sparse, t.session, true, 1, &t.arena, error);
    }
    status = status == SBIT_OK ? sbit__timing_run(&t, 1, error) : status;
    status = status == SBIT_OK ? sbit__timing_take(&t, scale, latency, us, error) : status;
    sbit__timing_close(&t);
    sbit_graph_destroy(simple);
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
            all[i] = (double)r / (double)SBIT__LATENCY_RATIOS;
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

