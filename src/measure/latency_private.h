/* latency_private.h: times of nodes. >>latency
 *
 * Called by: budgets of pruning, placement by time. Calls: exec, config (files).
 */
#ifndef SBIT_LATENCY_PRIVATE_H
#define SBIT_LATENCY_PRIVATE_H

#include "../core/core_private.h"
#include "../exec/exec_api.h"
#include "latency_api.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SBIT__LATENCY_TURNS = 15 }; /* at most */

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
    sbit__latency_node shares; /* of pruned models: by nodes, and as measured; none: they are the same */
    int64_t lanes; /* channels that kernels make at once */
    bool loaded;
};

SBIT__FN sbit_status sbit__latency_make(sbit_ctx *ctx, sbit_latency **out, sbit_error *error);
SBIT__FN const sbit__latency_node *sbit__latency_find(const sbit_latency *latency,
                                                      const char *name); /* NULL: unknown */
/* A time for some work, in place of what was there for the same. */
SBIT__FN sbit_status sbit__latency_put(sbit_latency *latency, const char *name, double work,
                                       double us, sbit_error *error);
/* What takes that share of the whole by its nodes takes `measured` of it; the mean of both where such a
 * share is known. More by nodes is never less. */
SBIT__FN sbit_status sbit__latency_learn(sbit_latency *latency, double share, double measured,
                                         sbit_error *error);
/* The share of the whole that is expected of what takes that one by its nodes. */
SBIT__FN double sbit__latency_share(const sbit_latency *latency, double share);
/* Microseconds for some work. */
SBIT__FN double sbit__latency_at(const sbit__latency_node *node, double work);
/* Multiply-accumulates, with output channels filled up to `lanes`, else elements of the output. */
SBIT__FN double sbit__latency_work(const sbit_latency *latency, const sbit_graph *graph,
                                   const sbit_node *node);
/* The name that the table knows a node by. */
SBIT__FN const char *sbit__latency_name(const sbit_graph *graph, const sbit_node *node);

/* The times of the nodes of a graph, which add up to what it takes. */
typedef struct sbit__timing {
    sbit_graph *graph;
    sbit_session *session; /* whose inputs are to be set */
    sbit__arena arena;
    sbit_node_profile *nodes;
    uint64_t *before;
    double *turns; /* [count + 1][TURNS]: of the nodes, and of the whole */
    double *ns;    /* of the nodes, in one run */
    size_t count;
    int64_t together; /* runs that are timed in a row */
} sbit__timing;
/* Borrows the graph. Also after an error: close. */
SBIT__FN sbit_status sbit__timing_open(sbit__timing *t, sbit_graph *graph, sbit_error *error);
SBIT__FN void sbit__timing_close(sbit__timing *t);
/* Runs several in turns, forth and back: each time is the median of its shares of what the first
 * graph took in the same turn - a machine's pace changes from one second to the next -, times the
 * first one's shortest. */
SBIT__FN sbit_status sbit__timing_run(sbit__timing *list, size_t count, int turns,
                                      sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_LATENCY_PRIVATE_H */
