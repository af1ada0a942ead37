/* latency.c: what a smaller graph would take on this machine, by a table of times. >>latency-left
 *
 * A node is known by the name of its first output in the simplified graph.
 */
#include "../measure/latency_private.h"
#include "../passes/passes_api.h"
#include "sparse_private.h"

#include <stdlib.h> /* qsort */

enum {
    SBIT__LATENCY_RATIOS = 10, /* that the table is made with, ... */
    SBIT__LATENCY_ROUNDS = 3,  /* ... so often - sessions have better and worse memory - ... */
    SBIT__LATENCY_FEW = 5      /* ... with so many turns */
};

/* >>graphs */

/* A simplified copy, typed for one sample, with weights as a file holds them: of what is pruned, or the
 * user's graph, which has them so. */
static sbit_status sbit__latency_graph(const sbit_sparse *sparse, const sbit_graph *graph,
                                       sbit_graph **out, sbit_error *error)
{
    SBIT__TRY(sbit_graph_clone(graph, out, error));
    for (size_t i = 0; i < sbit_graph_input_count(*out); i++) {
        const sbit_value_id id = sbit_graph_input(*out, i);
        const sbit_value_id known = sbit_graph_find_value(sparse->graph, sbit_graph_value(*out, id)->name);
        sbit_type type;
        if (known.idx != 0) {
            sbit__sparse_input_type(sparse, known, true, &type);
            sbit_graph_set_type(*out, id, &type);
        }
    }
    sbit_status status = sbit_infer(*out, error);
    status = status == SBIT_OK && graph != sparse->original ? sbit__packed_close(sparse, *out, error) : status;
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
            us += sbit__latency_at(known, sbit__latency_work(latency, graph, node));
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
static double sbit__timing_total(const sbit__timing *t)
{
    double us = 0.0;
    for (size_t i = 0; i < t->count; i++) {
        us += 1e-3 * t->ns[i];
    }
    return us;
}

/* To the table, which takes that part of it. */
static sbit_status sbit__timing_put(const sbit__timing *t, double scale, double part, sbit_latency *latency,
                                    sbit_error *error)
{
    for (size_t i = 0; i < t->count; i++) {
        const sbit_node *node = sbit_graph_node(t->graph, t->nodes[i].node);
        const char *name = sbit__latency_name(t->graph, node);
        const double work = sbit__latency_work(latency, t->graph, node);
        const sbit__latency_node *known = part < 1.0 ? sbit__latency_find(latency, name) : NULL;
        const double us = 1e-3 * t->ns[i] * scale, old = known != NULL ? sbit__latency_at(known, work) : us;
        SBIT__TRY(sbit__latency_put(latency, name, work, old + part * (us - old), error));
    }
    return SBIT_OK;
}

static sbit_status sbit__latency_open(const sbit_sparse *sparse, const sbit_graph *graph, sbit__timing *t,
                                      sbit_graph **simple, sbit_error *error)
{
    SBIT__TRY(sbit__latency_graph(sparse, graph, simple, error));
    SBIT__TRY(sbit__timing_open(t, *simple, error));
    return sbit__sparse_inputs(sparse, t->session, true, 1, &t->arena, error);
}

/* Runs what is left at present in turns with the whole: microseconds of both. Of times of what is left
 * the table takes that part, in its own time of the whole; without one (NULL) the whole is the user's
 * graph, which may be faster than the graph that is pruned (a channel shuffle is one Gather there). */
static sbit_status sbit__latency_run(sbit_sparse *sparse, sbit_latency *latency, double part, double us[2],
                                     sbit_error *error)
{
    sbit__timing t[2];
    sbit_graph *left = NULL, *simple[2] = {NULL, NULL};
    const sbit_graph *whole = latency == NULL && sparse->original != NULL ? sparse->original : sparse->graph;
    memset(t, 0, sizeof t);
    SBIT__TRY(sbit__sparse_left(sparse, &left, error));
    sbit_status status = sbit__latency_open(sparse, whole, &t[0], &simple[0], error);
    status = status == SBIT_OK ? sbit__latency_open(sparse, left, &t[1], &simple[1], error) : status;
    status = status == SBIT_OK ? sbit__timing_run(t, 2, latency != NULL ? (int)SBIT__LATENCY_FEW : (int)SBIT__LATENCY_TURNS, error) : status;
    if (status == SBIT_OK) {
        us[0] = sbit__timing_total(&t[0]);
        us[1] = sbit__timing_total(&t[1]);
    }
    if (status == SBIT_OK && latency != NULL) {
        const double table = sbit__latency_sum(latency, simple[0]);
        status = sbit__timing_put(&t[1], table > 0.0 && us[0] > 0.0 ? table / us[0] : 1.0, part, latency,
                                  error);
    }
    for (int k = 0; k < 2; k++) {
        sbit__timing_close(&t[k]);
        sbit_graph_destroy(simple[k]);
    }
    sbit_graph_destroy(left);
    return status;
}

SPARSEBIT_API sbit_status sbit_latency_now(sbit_sparse *sparse, double *before, double *after,
                                           sbit_error *error)
{
    double us[2], shares[SBIT__LATENCY_ROUNDS], all[SBIT__LATENCY_ROUNDS];
    for (int i = 0; i < SBIT__LATENCY_ROUNDS; i++) {
        SBIT__TRY(sbit__latency_run(sparse, NULL, 0.0, us, error));
        all[i] = us[0];
        shares[i] = us[0] > 0.0 ? us[1] / us[0] : 1.0;
    }
    qsort(shares, SBIT__COUNT_OF(shares), sizeof shares[0], sbit__f64_order);
    qsort(all, SBIT__COUNT_OF(all), sizeof all[0], sbit__f64_order);
    *before = all[0];
    *after = all[0] * shares[SBIT__LATENCY_ROUNDS / 2];
    return SBIT_OK;
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
    for (int turn = 0; turn < SBIT__LATENCY_ROUNDS * SBIT__LATENCY_RATIOS; turn++) {
        const double ratio = (double)(turn % SBIT__LATENCY_RATIOS) / (double)SBIT__LATENCY_RATIOS;
        const double part = 1.0 / (double)(turn / SBIT__LATENCY_RATIOS + 1); /* of the mean of the rounds */
        double us[2];
        for (size_t i = 0; i < count; i++) {
            all[i] = ratio;
        }
        sbit__alone_set(sparse, units, count, all);
        SBIT__TRY(sbit_sparse_select(sparse, feed, error));
        SBIT__TRY(sbit__latency_run(sparse, latency, part, us, error));
        SBIT__TRY(sbit__progress(sparse->ctx, "latency", turn + 1, SBIT__LATENCY_ROUNDS * SBIT__LATENCY_RATIOS,
                                 error));
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
