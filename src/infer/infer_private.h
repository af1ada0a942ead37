/* infer_private.h: the engine of type inference, shared by sbit_infer and the executor.
 *
 * Called by: infer, exec. Calls: ops (row->infer).
 */
#ifndef SBIT_INFER_PRIVATE_H
#define SBIT_INFER_PRIVATE_H

#include "../ops/ops_private.h"
#include "infer_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__INFER_MAX_ELEMS 64 /* integer tensors up to this size are followed by value */

/* Types to be written into the graphs once all of inference has succeeded: what the last look at
 * each of them said. By the graphs' index in their family. */
typedef struct sbit__infer_results {
    sbit__arena *arena;
    sbit_graph **graphs; /* NULL: not seen */
    sbit_type **types;
    uint32_t count;
} sbit__infer_results;

/* What is known of the values of one graph. The arrays are indexed by value and live in `arena`. */
typedef struct sbit__infer {
    sbit_ctx *ctx;
    const sbit_graph *graph;
    const struct sbit__infer *outer; /* of the parent graph, for captured values; or NULL */
    sbit__arena *arena;
    sbit__arena *passing; /* for what one node needs; NULL: arena */
    sbit_type **types; /* NULL: nothing asks for it */
    const sbit_tensor **known; /* data that is known now: constants, followed integers */
    const sbit_dim **elems;    /* followed integers, some of them unknown */
    int64_t *elem_counts;
    /* sbit_infer: declared types of inner values fill what cannot be computed, and bodies report
     * their types here. NULL in the executor: what is not computed stays unknown. */
    sbit__infer_results *results;
    int64_t *body_nodes;    /* how many nodes of bodies were looked at: ctx->max_body_nodes */
    int64_t own_body_nodes; /* what body_nodes points to, in the outermost graph */
} sbit__infer;

/* Arrays without entries, in `arrays`: the caller says where types lie. */
SBIT__FN sbit_status sbit__infer_begin(sbit__infer *state, const sbit_graph *graph,
                                       const sbit__infer *outer, sbit__arena *arena,
                                       sbit__arena *arrays, sbit_error *error);
/* Fills state->arena and the arrays: constants get their types and data, captured values what
 * `outer` knows, the others their declared types if they have no producer. */
SBIT__FN sbit_status sbit__infer_init(sbit__infer *state, const sbit_graph *graph,
                                      const sbit__infer *outer, sbit__arena *arena,
                                      sbit_error *error);
/* Computes the outputs of one node from what is known of its inputs. A node without a row leaves
 * them as declared. */
SBIT__FN sbit_status sbit__infer_node(sbit__infer *state, sbit_node_id node, sbit_error *error);
/* The same for all nodes in order. */
SBIT__FN sbit_status sbit__infer_run(sbit__infer *state, sbit_error *error);
/* Data of a value if it is known, from `known` or from elems that are all numbers; NULL if not.
 * *ok false: out of memory. */
SBIT__FN const sbit_tensor *sbit__infer_known(sbit__infer *state, sbit_value_id id, bool *ok);
/* Which of the graph's named dims stand for different sizes, by symbol; in `arena`. */
SBIT__FN sbit_status sbit__loose_symbols(const sbit_graph *root, sbit__arena *arena, bool **out,
                                         sbit_error *error);
/* An error that lists by operator all that the executor has no way to run; OK if there is none. */
SBIT__FN sbit_status sbit__unsupported_fail(const sbit_graph *graph, sbit_error *error);
/* True if the executor has no way to run the node; why is written to `reason`. */
SBIT__FN bool sbit__node_unsupported(const sbit_graph *graph, const sbit_node *node, char *reason,
                                     size_t size);

/* >>facts: what is certain of a graph's values. Unlike the types that sbit_infer leaves in the
 * graph, nothing here comes from declarations of inner values: models declare wrong sizes, and use
 * one symbol for several, so these must not decide a rewrite. */
typedef struct sbit__facts {
    sbit__arena arena;
    sbit__infer *state;
    uint32_t limit; /* values made later are unknown */
    sbit_type unknown;
} sbit__facts;

SBIT__FN sbit_status sbit__facts_init(sbit__facts *facts, const sbit_graph *graph,
                                      sbit_error *error);
/* The same for inputs of the root with these shapes. */
SBIT__FN sbit_status sbit__facts_init_for(sbit__facts *facts, const sbit_graph *graph,
                                          const sbit_value_shape *shapes, size_t count,
                                          sbit_error *error);
/* The shape that the list has for the value, if it has one. */
SBIT__FN void sbit__shape_apply(const sbit_value_shape *shapes, size_t count, sbit_value_id id,
                                sbit_type *type);
SBIT__FN void sbit__facts_deinit(sbit__facts *facts);
SBIT__FN const sbit_type *sbit__facts_type(const sbit__facts *facts, sbit_value_id id);
/* Elements of a small integer tensor, some of them symbols; NULL: not followed. */
SBIT__FN const sbit_dim *sbit__facts_elems(const sbit__facts *facts, sbit_value_id id,
                                           int64_t *count);
/* Both ranks are known and all dims equal: numbers or symbols. */
SBIT__FN bool sbit__same_dims(const sbit_type *a, const sbit_type *b);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_INFER_PRIVATE_H */
