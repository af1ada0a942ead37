/* lower_private.h: lowering: a session's graph becomes what its kernels do best. >>lower
 *
 * Called by: the files of exec. Calls: graph, infer.
 *
 * Lowering rewrites the program's private clone, in which values and nodes have the caller's ids
 * and constants are borrowed. It has phases (SBIT__LOWER_PHASES), and each is a table of entries,
 * one file each. An entry is called for every node of its operator, again and again until a phase
 * changes nothing more; it looks around, and if its pattern is there it calls sbit__lower_replace,
 * which puts one internal row (domain "sbit") in place of the nodes and keeps account of where it
 * came from. Nothing has been folded yet, so DequantizeLinear of a weight is still a node.
 *
 * What an entry may rely on: types are those that infer is sure of; a value that somebody else
 * looks at - a tap, a result, a state - or that has another use is never taken for an inner one if
 * sbit__lower_user is asked; rows that a user registered in place of built-in ones are left alone
 * if sbit__lower_is is asked.
 */
#ifndef SBIT_LOWER_PRIVATE_H
#define SBIT_LOWER_PRIVATE_H

#include "../infer/infer_private.h"
#include "exec_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the order of running. */
#define SBIT__LOWER_PHASES(X)                                                                      \
    X(int)    /* nodes between DequantizeLinear and QuantizeLinear, on integers */                 \
    X(layout) /* those with channels last */                                                       \
    X(float)  /* sums with bias, residual and activation; fake quantization */                     \
    X(last)   /* float operators with channels last */                                             \
    X(heads)  /* attention in pieces becomes the operator */                                       \
    X(strips) /* chains of them that do not keep what is between them in memory; what writes into a Concat */

/* The nodes of the caller's graph that a node of the program does the work of. */
typedef struct sbit__origin {
    const sbit_node_id *nodes; /* the first is what messages name */
    size_t count;              /* 0: the node with the same id */
} sbit__origin;

/* What lowering says of one graph of the program. */
typedef struct sbit__lowered {
    const sbit_graph *source; /* the caller's */
    sbit__origin *origin;     /* by node of the program's graph */
    uint32_t origin_limit;
    const char **reason; /* by node of the caller's graph: why it was left as it is; may be NULL */
    uint32_t reason_limit;
    sbit_node_id *into; /* by node of the caller's graph: the program's first that does its work */
} sbit__lowered;

typedef struct sbit__lowering {
    sbit_ctx *ctx;
    sbit_graph *graph; /* to rewrite */
    const bool *kept;  /* by value: somebody outside looks at it; NULL: none */
    uint32_t kept_limit;
    sbit__facts facts;
    sbit__facts expected; /* for desc.shapes; empty, if there are none */
    sbit__lowered *result;
    sbit__arena *arena; /* as long as the program */
    void *work;         /* SBIT__LOWER_WORK_BYTES for whoever puts a node together */
    sbit_value_id *lasts; /* by value: what ToLast made of it; the first last_limit */
    size_t last_limit;
    bool exact;    /* the session's */
    bool integers; /* what is put in now computes on integers: no reason stays */
    size_t changes;
} sbit__lowering;

#define SBIT__LOWER_WORK_BYTES (24 * sizeof(sbit_attr))

typedef struct sbit__lower_entry {
    const char *op_type; /* of ai.onnx; NULL: every node */
    sbit_status (*apply)(sbit__lowering *lower, const sbit_node *node, sbit_error *error);
} sbit__lower_entry;

#define SBIT__LOWER_DECLARE(name)                                                                  \
    SBIT__FN const sbit__lower_entry *sbit__lower_entries_##name(size_t *count);
SBIT__LOWER_PHASES(SBIT__LOWER_DECLARE)
#undef SBIT__LOWER_DECLARE

/* >>looking */
/* The node is that operator of ai.onnx and runs on a built-in row. */
SBIT__FN bool sbit__lower_is(const sbit__lowering *lower, const sbit_node *node,
                             const char *op_type);
SBIT__FN const sbit_type *sbit__lower_type(const sbit__lowering *lower, sbit_value_id id);
/* The same for the shapes that inputs are expected to have: decides what is fast, not what is right. */
SBIT__FN const sbit_type *sbit__lower_expected(const sbit__lowering *lower, sbit_value_id id);
/* The data of a value that nobody can change; NULL if there is none. */
SBIT__FN const sbit_tensor *sbit__lower_constant(const sbit__lowering *lower, sbit_value_id id);
/* A float32 constant of one element. */
SBIT__FN bool sbit__lower_scalar(const sbit__lowering *lower, sbit_value_id id, float *out);
/* The bounds of a Relu, or of a Clip whose bounds are constants; false: the node is neither. */
SBIT__FN bool sbit__lower_clamp(const sbit__lowering *lower, const sbit_node *node, float *lo,
                                float *hi);
/* Nobody but `uses` inputs of nodes looks at the value. */
SBIT__FN bool sbit__lower_inner(const sbit__lowering *lower, sbit_value_id id, size_t uses);
/* The node whose input is the only thing that looks at the value; NULL if there is more or none. */
SBIT__FN const sbit_node *sbit__lower_user(const sbit__lowering *lower, sbit_value_id id);
/* The node that makes the value; NULL: none. */
SBIT__FN const sbit_node *sbit__lower_producer(const sbit__lowering *lower, sbit_value_id id);
/* Input `index` of the node; none if it is not there. */
SBIT__FN sbit_value_id sbit__lower_in(const sbit_node *node, size_t index);
/* The axes of a reduction as bits; 0: not known. */
SBIT__FN uint32_t sbit__lower_axes(const sbit__lowering *lower, const sbit_node *node,
                                   int32_t rank);
/* What loops say of shapes holds for the rounds that infer has seen. */
SBIT__FN bool sbit__lower_in_loop(const sbit_graph *graph);
/* a stands before b. */
SBIT__FN bool sbit__lower_before(const sbit__lowering *lower, const sbit_node *a,
                                 const sbit_node *b);

/* >>changing */
typedef struct sbit__lower_desc {
    const char *domain; /* NULL: "sbit" */
    const char *op_type;
    const sbit_value_id *inputs;
    size_t input_count;
    const sbit_value_id *outputs; /* values that listed nodes make */
    size_t output_count;
    const sbit_attr *attrs;
    size_t attr_count;
    /* What the new node does the work of. The first is what messages name, so that the new node has
     * its name. It stands behind the maker of outputs[0], or before `at`. The makers of outputs go,
     * and of the others those that nobody needs any more (DequantizeLinear of a shared value
     * stays).
     */
    const sbit_node_id *nodes;
    size_t node_count;
    sbit_node_id at;
} sbit__lower_desc;

SBIT__FN sbit_status sbit__lower_replace(sbit__lowering *lower, const sbit__lower_desc *desc,
                                         sbit_node_id *out, sbit_error *error);
/* The same, but the node is put before `at`, makes new values, and nothing goes. */
SBIT__FN sbit_status sbit__lower_insert(sbit__lowering *lower, const sbit__lower_desc *desc,
                                        sbit_node_id *out, sbit_error *error);
/* Why a node of the program is left as it is; the text is copied. The last word counts. */
SBIT__FN sbit_status sbit__lower_reason(sbit__lowering *lower, sbit_node_id node,
                                        const char *reason, sbit_error *error);

/* >>driver. Runs all phases over `graph`, a graph of the program. A graph whose types cannot be
 * inferred is left as it is: planning says what is wrong with it. */
SBIT__FN sbit_status sbit__lower_graph(sbit_graph *graph, const bool *kept, uint32_t kept_limit,
                                       const sbit_session_desc *desc, sbit__lowered *result,
                                       sbit__arena *arena, sbit_error *error);
/* The phase `heads` alone, on a graph of the caller's, for whoever differentiates it; the graph uses
 * domain "sbit" then. */
SBIT__FN sbit_status sbit__lower_heads_of(sbit_graph *graph, sbit_error *error);
/* Replaces operators that are defined by others (row->expand), which may be such, too: first the
 * types that expand() looks at are inferred, if there is such an operator anywhere. */
SBIT__FN sbit_status sbit__lower_expand_types(sbit_graph *root, sbit_error *error);
SBIT__FN sbit_status sbit__lower_expand(sbit_graph *graph, sbit__lowered *result,
                                        sbit__arena *arena, sbit_error *error);
/* Fills `into`, once lowering is done. */
SBIT__FN sbit_status sbit__lower_finish(const sbit_graph *graph, sbit__lowered *result,
                                        sbit__arena *arena, sbit_error *error);
/* Where a node of the program came from: the first of the caller's nodes. */
SBIT__FN sbit_node_id sbit__lowered_origin(const sbit__lowered *lowered, sbit_node_id node);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_LOWER_PRIVATE_H */
