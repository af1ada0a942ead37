/* passes_private.h: the built-in passes and what their files share.
 *
 * Called by: the files of passes/, quant. Calls: graph, infer.
 * A new pass: its file with one const row, one line in SBIT__PASSES (the order of running), one in
 * src/MANIFEST.
 *
 * How an edit stays safe: everything that can fail (constants, values, nodes without outputs) is
 * made first; then functions that cannot fail move the outputs over and erase what is replaced.
 */
#ifndef SBIT_PASSES_PRIVATE_H
#define SBIT_PASSES_PRIVATE_H

#include "../config/config_private.h"
#include "../exec/exec_api.h"
#include "../infer/infer_private.h"
#include "passes_api.h"

#include <float.h> /* FLT_MAX */
#include <math.h>  /* sqrt, isfinite */

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__PASSES(X)                                                                            \
    X(weights_as_constants)                                                                        \
    X(dead_code)                                                                                   \
    X(fold_constants)                                                                              \
    X(shape_folding)                                                                               \
    X(inline_if)                                                                                   \
    X(identity)                                                                                    \
    X(sequence_to_split)                                                                           \
    X(merge_duplicates)                                                                            \
    X(fold_batch_norm)                                                                             \
    X(fuse_patterns)                                                                               \
    X(fuse_scalar)

#define SBIT__PASS_DECLARE(name) SBIT__FN const sbit_pass_row *sbit__pass_##name(void);
SBIT__PASSES(SBIT__PASS_DECLARE)
#undef SBIT__PASS_DECLARE

SBIT__FN const sbit__kind *sbit__kind_pass(void);

/* Product of dims[from..to) if all are numbers, else -1. */
SBIT__FN int64_t sbit__known_product(const sbit_type *type, int32_t from, int32_t to);

/* >>rules: a pass that looks at each node once. */
typedef struct sbit__rewrite {
    sbit_graph *graph;
    sbit_ctx *ctx;
    const sbit_simplify_desc *desc;
    sbit__facts facts;
    int64_t opset; /* of ai.onnx */
    int64_t changes;
} sbit__rewrite;

typedef sbit_status (*sbit__rule_fn)(sbit__rewrite *rw, const sbit_node *node, sbit_error *error);
typedef struct sbit__rule {
    const char *op_type; /* of ai.onnx; NULL: every node */
    sbit__rule_fn apply; /* adds to rw->changes */
} sbit__rule;

/* Ends with sbit__facts_deinit(&rw->facts). */
SBIT__FN sbit_status sbit__rewrite_init(sbit__rewrite *rw, sbit_graph *graph, const sbit_simplify_desc *desc,
                                        sbit_error *error);
/* Gives each node to the rules of its operator, until one changes something. */
SBIT__FN sbit_status sbit__apply_rules(sbit_graph *graph, const sbit_simplify_desc *desc,
                                       const sbit__rule *rules, size_t rule_count, int64_t *changes,
                                       sbit_error *error);
/* The ids of all nodes in order, in the arena. */
SBIT__FN sbit_status sbit__node_list(const sbit_graph *graph, sbit__arena *arena,
                                     sbit_node_id **ids, size_t *count, sbit_error *error);

/* >>looking */
SBIT__FN bool sbit__is_op(const sbit_node *node, const char *op_type); /* of ai.onnx; NULL: no */
SBIT__FN sbit_value_id sbit__node_in(const sbit_node *node, size_t index); /* none if not there */
SBIT__FN bool sbit__output_used(const sbit_graph *graph, const sbit_node *node, size_t index);
/* Only output 0 is used (or there is no other). */
SBIT__FN bool sbit__single_output(const sbit_graph *graph, const sbit_node *node);
SBIT__FN const sbit_node *sbit__producer(const sbit_graph *graph, sbit_value_id id); /* NULL */
/* The producer, if it is that operator, its first output is `id`, and nothing but one node input
 * uses it. */
SBIT__FN const sbit_node *sbit__sole_producer(const sbit_graph *graph, sbit_value_id id,
                                              const char *op_type);
SBIT__FN bool sbit__sole_use(const sbit_graph *graph, sbit_value_id id);
/* The constant of an input; NULL if it is none, or a default that the caller may replace. */
SBIT__FN const sbit_tensor *sbit__const_in(const sbit_graph *graph, const sbit_node *node,
                                           size_t index);
SBIT__FN bool sbit__is_float(sbit_dtype dtype); /* float32, float64 */
/* A constant of one float element. */
SBIT__FN bool sbit__scalar_const(const sbit_graph *graph, sbit_value_id id, double *value);
/* Integers of an attribute, or of a constant input; false if neither is there and known. */
SBIT__FN bool sbit__node_ints(const sbit_graph *graph, const sbit_node *node, const char *name,
                              size_t input, int64_t *values, int64_t capacity, int64_t *count);

/* >>making. Names are made unique. */
/* One number of a type; rank 0, or 1 with one element. */
SBIT__FN sbit_status sbit__add_scalar(sbit_graph *graph, const char *name, sbit_dtype dtype,
                                      int32_t rank, double value, sbit_value_id *out,
                                      sbit_error *error);
SBIT__FN sbit_status sbit__add_ints(sbit_graph *graph, const char *name, const int64_t *values,
                                    int64_t count, sbit_value_id *out, sbit_error *error);
/* A node with one new output, named after `name`. */
SBIT__FN sbit_status sbit__emit(sbit_graph *graph, sbit_node_id before, const char *op_type,
                                const char *name, const sbit_value_id *inputs, size_t input_count,
                                const sbit_attr *attrs, size_t attr_count, sbit_value_id *out,
                                sbit_error *error);
/* Puts a new node in place of `old`, with the old one's name and outputs (the first
 * `output_count` of them; the others must be unused). */
SBIT__FN sbit_status sbit__replace_node(sbit_graph *graph, const sbit_node *old,
                                        const char *op_type, const sbit_value_id *inputs,
                                        size_t input_count, const sbit_attr *attrs,
                                        size_t attr_count, size_t output_count, sbit_error *error);
/* The same with an operator of another domain than ai.onnx. */
SBIT__FN sbit_status sbit__replace_with(sbit_graph *graph, const sbit_node *old, const char *domain,
                                        const char *op_type, const sbit_value_id *inputs,
                                        size_t input_count, const sbit_attr *attrs,
                                        size_t attr_count, size_t output_count, sbit_error *error);
/* A node like `like` (operator, attributes, name), but with these inputs, that produces output 0
 * of `last`, which is erased. */
SBIT__FN sbit_status sbit__rebuild_node(sbit_graph *graph, const sbit_node *like,
                                        const sbit_node *last, const sbit_value_id *inputs,
                                        size_t input_count, const sbit_attr *attrs,
                                        size_t attr_count, sbit_error *error);
/* Erases a node whose outputs are unused, and these. */
SBIT__FN void sbit__erase_unused(sbit_graph *graph, const sbit_node *node);
/* Erases values that nothing makes or uses, unless the caller may set them. */
SBIT__FN void sbit__erase_dead_value(sbit_graph *graph, sbit_value_id id);
/* True if all uses of `from` may become uses of `to` without leaving an Identity behind. */
SBIT__FN bool sbit__can_replace(const sbit_graph *graph, sbit_value_id from, sbit_value_id to);
/* Uses of the node's output 0 become uses of `to`, and the node goes, if that is possible. */
SBIT__FN sbit_status sbit__bypass(sbit__rewrite *rw, const sbit_node *node, sbit_value_id to,
                                  sbit_error *error);
/* Gives `to`, a new value, the name of `from`, which is on its way out. */
SBIT__FN void sbit__take_name(sbit_graph *graph, sbit_value_id from, sbit_value_id to);

/* >>affine (affine.c): y = scale[c] * y + shift[c] moved into the linear node that makes y. */
typedef struct sbit__affine {
    int64_t count; /* 1: the same for all channels */
    double *scale, *shift;
} sbit__affine;
/* `linear`: Conv, ConvTranspose, Gemm or MatMul (or Add of a constant behind a MatMul), whose
 * output only `last` uses. last_axis: channels are on the last axis, else on axis 1. Replaces both
 * by one node (MatMul: with an Add behind), if that is possible. */
SBIT__FN sbit_status sbit__affine_into(sbit__rewrite *rw, const sbit_node *linear,
                                       const sbit_node *last, const sbit__affine *affine,
                                       bool last_axis, sbit_error *error);
/* The same for `before`, which computes scale[c] * x + shift[c] for a Conv only. A shift needs a
 * Conv without padding. */
SBIT__FN sbit_status sbit__affine_from(sbit__rewrite *rw, const sbit_node *before, sbit_value_id x,
                                       const sbit_node *conv, const sbit__affine *affine,
                                       sbit_error *error);
SBIT__FN sbit_status sbit__affine_init(sbit__rewrite *rw, sbit__affine *affine, int64_t count,
                                       sbit_error *error); /* scale 1, shift 0; in rw's arena */

/* >>opset (opset.c): a model goes from one ai.onnx opset to another. All nodes of all levels are
 * looked at first; only when each can be converted is the first one changed, of a copy; only when
 * the copy is a valid model of the other opset, the graph itself. */
typedef struct sbit__opset {
    sbit_graph *graph; /* the level that is looked at */
    sbit__arena *arena;
    int64_t from, to;
    bool change; /* false: only look */
    sbit__text *problems;
    int64_t problem_count;
    sbit_status (*convert)(struct sbit__opset *opset, sbit_node_id id, sbit_error *error);
} sbit__opset;
/* The node cannot be converted. Always OK: all such nodes are named together. */
SBIT__FN sbit_status sbit__opset_problem(sbit__opset *opset, const sbit_node *node,
                                         const char *why);
/* Errors: INVALID_ARGUMENT, if the graph is a body. */
SBIT__FN sbit_status sbit__opset_from(const sbit_graph *graph, int64_t *from, sbit_error *error);
/* form: from, to and convert. Nodes that cannot be converted may be because constants are computed
 * by nodes: then those are folded. `how`: "raised". Failures but OUT_OF_MEMORY change nothing. */
SBIT__FN sbit_status sbit__opset_convert(const sbit__opset *form, sbit_graph *graph, const char *how,
                                         sbit_error *error);

/* >>patterns (layer_norm.c): LayerNormalization written with primitives (A3.17). */
#define SBIT__LAYER_NORM_NODES 14
typedef struct sbit__layer_norm {
    sbit_value_id x, scale, bias, output; /* scale, bias: none if absent */
    int32_t axis;                         /* the first normalized axis, 0.. */
    int32_t rank;                         /* of x */
    double epsilon;
    sbit_node_id nodes[SBIT__LAYER_NORM_NODES]; /* all of the pattern; the last makes `output` */
    size_t node_count;
} sbit__layer_norm;
/* True if `node` divides by the deviation in such a pattern: y = (x - mean) / sqrt(var + eps), by
 * Div, or Mul with a reciprocal; a scale and a bias behind it are taken in. Only the output is
 * used from outside. facts: NULL takes the types that the graph says. */
SBIT__FN bool sbit__match_layer_norm(const sbit_graph *graph, sbit_node_id node,
                                     const sbit__facts *facts, sbit__layer_norm *out);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_PASSES_PRIVATE_H */
