/* expand_private.h: operators written with others: `expand` of a row. >>expand
 *
 * Called by: ops/nbits.c, ops/microsoft.c, and families whose gradient is that of what they are
 * written with. Calls: graph.
 * sbit__expand_begin takes the node out of the graph; nodes that are added stand where it stood and
 * one of them makes each of its outputs. A failure is kept: what follows does nothing, and
 * `return e.status` tells.
 */
#ifndef SBIT_EXPAND_PRIVATE_H
#define SBIT_EXPAND_PRIVATE_H

#include "ops_private.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit__expand {
    sbit_graph *graph;
    sbit_node node; /* as it was: it is erased first, so that others may make its outputs */
    sbit_node_id before;
    int64_t opset; /* of ai.onnx */
    sbit_dtype dtype; /* of input 0 */
    sbit_status status; /* the first failure; what follows does nothing */
    sbit_error *error;
} sbit__expand;

static const sbit_value_id sbit__expand_none = {0};

/* As sbit__expand_begin, but the node stays (its bodies with it) until sbit__expand_erase: only what is
 * added after that makes its outputs. */
SBIT__FN sbit__expand sbit__expand_of(sbit_graph *graph, sbit_node_id id, sbit_error *error);
SBIT__FN void sbit__expand_erase(sbit__expand *e);
SBIT__FN sbit__expand sbit__expand_begin(sbit_graph *graph, sbit_node_id id, sbit_error *error);
SBIT__FN void sbit__expand_fail(sbit__expand *e, sbit_status status, const char *why);
SBIT__FN sbit_value_id sbit__expand_in(const sbit__expand *e, size_t i);
/* The node's output i, for a node to make; none if it is not wanted. */
SBIT__FN sbit_value_id sbit__expand_out(const sbit__expand *e, size_t i);
SBIT__FN sbit_value_id sbit__expand_value(sbit__expand *e, const char *name);
SBIT__FN void sbit__expand_node(sbit__expand *e, const char *domain, const char *op_type,
                                const sbit_value_id *inputs, size_t input_count,
                                const sbit_value_id *outputs, size_t output_count,
                                const sbit_attr *attrs, size_t attr_count);
/* A node of ai.onnx with one output: `out`, or a new value if that is none. */
SBIT__FN sbit_value_id sbit__expand_op(sbit__expand *e, const char *op_type, sbit_value_id a,
                                       sbit_value_id b, const sbit_attr *attr, sbit_value_id out);

/* >>pieces */
/* The form of what follows is that of opset `version` and later. */
SBIT__FN void sbit__expand_needs(sbit__expand *e, int64_t version);
SBIT__FN const sbit_type *sbit__expand_in_type(const sbit__expand *e, size_t i);
/* A number if dim `axis` (from the end if negative) of input i is one, else -1. */
SBIT__FN int64_t sbit__expand_dim(const sbit__expand *e, size_t i, int32_t axis);
SBIT__FN sbit_value_id sbit__expand_constant(sbit__expand *e, const sbit_tensor *tensor);
SBIT__FN sbit_value_id sbit__expand_ints(sbit__expand *e, const int64_t *values, int64_t count);
/* A scalar of the type of input 0. */
SBIT__FN sbit_value_id sbit__expand_scalar(sbit__expand *e, double value);
SBIT__FN sbit_value_id sbit__expand_cast(sbit__expand *e, sbit_value_id x, sbit_dtype to);
SBIT__FN sbit_value_id sbit__expand_reshape(sbit__expand *e, sbit_value_id x, const int64_t *dims,
                                            int64_t count);
SBIT__FN sbit_value_id sbit__expand_transpose(sbit__expand *e, sbit_value_id x, const int64_t *perm,
                                              int32_t rank, sbit_value_id out);
/* x[..., from:to, ...] along an axis. */
SBIT__FN sbit_value_id sbit__expand_slice(sbit__expand *e, sbit_value_id x, int64_t axis,
                                          int64_t from, int64_t to);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_EXPAND_PRIVATE_H */
