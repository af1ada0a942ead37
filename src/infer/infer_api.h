/* infer_api.h: types and shapes, with symbols and small integer values followed. >>infer
 *
 * Called by: graph users, exec (with concrete inputs), passes. Calls: ops (row->infer).
 */
#ifndef SBIT_INFER_API_H
#define SBIT_INFER_API_H

#include "../ops/ops_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Recomputes the type of every value of the graph (and of its bodies) from its inputs, constants
 * and operators, with symbolic dimensions. Declared types of inner values are hints only: where
 * they contradict what was computed, a warning is logged and the computed type wins (A2.12).
 * Operators without a row leave their outputs as declared. Errors name the node and both shapes. */
SPARSEBIT_API sbit_status sbit_infer(sbit_graph *graph, sbit_error *error);

/* What a caller knows of an open shape. */
typedef struct sbit_value_shape {
    sbit_value_id id;
    int32_t rank;
    int64_t dims[SBIT_MAX_RANK];
} sbit_value_shape;

/* Everything about a model that this build cannot execute: calls `found` once per node without a
 * row, without run(), or with an element type the row does not list; returns how many. */
typedef struct sbit_unsupported {
    const sbit_graph *graph;
    sbit_node_id node;
    const char *reason; /* "no such operator", "element type float64", ...; until found returns */
} sbit_unsupported;
SPARSEBIT_API size_t sbit_graph_unsupported(const sbit_graph *graph,
                                            void (*found)(const sbit_unsupported *, void *user),
                                            void *user);

/* Totals over the nodes for the types as they stand (call sbit_infer first). Unknown dims count
 * as 1. params: elements of constants that are used; macs: by the rows. */
typedef struct sbit_graph_cost {
    int64_t params, macs;
    size_t weight_bytes;
    size_t node_count;
    size_t open_nodes; /* whose macs hold dims that are not known: the true number is larger */
} sbit_graph_cost;
SPARSEBIT_API sbit_status sbit_graph_cost_of(const sbit_graph *graph, sbit_graph_cost *out,
                                             sbit_error *error);
/* Multiply-accumulates of one node; 0 if its row does not say. */
SPARSEBIT_API int64_t sbit_graph_node_macs(const sbit_graph *graph, sbit_node_id node);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_INFER_API_H */
