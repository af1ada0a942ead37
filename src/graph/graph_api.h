/* graph_api.h: the one intermediate representation: values, nodes, attributes, subgraphs. >>graph
 *
 * Called by: users, infer, exec, passes, quant, sparse, train. Calls: core, onnx.
 * A graph is made from an ONNX document and written back to one; everything in between edits it
 * here. Values and nodes are named by index handles that stay valid until the thing is erased;
 * index 0 is "none". Pointers returned by the accessors are borrowed until the next edit of the
 * same graph. A graph has many readers or one writer.
 *
 * Scopes: the body of If/Loop/Scan is a graph of its own, held by the node's attribute. A name of
 * an outer scope used in a body is a value of the body with `outer` set to the parent's value; so
 * each graph is complete in itself, and what a body captures is the list of those values.
 */
#ifndef SBIT_GRAPH_API_H
#define SBIT_GRAPH_API_H

#include "../core/core_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_graph sbit_graph;
typedef struct sbit_value_id {
    uint32_t idx; /* 0: none (an omitted optional input or output) */
} sbit_value_id;
typedef struct sbit_node_id {
    uint32_t idx; /* 0: none */
} sbit_node_id;

/* >>types. A dimension, or an element of a small integer tensor whose value is being followed:
 * symbol 0: the number `value`; SBIT_SYMBOL_ANY: unknown; else: the named unknown
 * sbit_graph_symbol_name(root, symbol), equal wherever the same symbol stands. */
#define SBIT_SYMBOL_ANY 0xffffffffu
typedef struct sbit_dim {
    int64_t value; /* 0 unless symbol is 0 */
    uint32_t symbol;
} sbit_dim;

/* Type and shape of a value. `dtype` SBIT_UNDEFINED: unknown. For sequences and optionals dtype
 * and shape describe the element tensor; `of` is what an optional holds. */
typedef struct sbit_type {
    sbit_value_kind kind;
    sbit_value_kind of;
    sbit_dtype dtype;
    int32_t rank; /* -1: unknown rank */
    sbit_dim dims[SBIT_MAX_RANK];
} sbit_type;

/* >>attributes: `type` (sbit_onnx_attribute_type) says which member is set. Plain data. */
typedef struct sbit_attr {
    const char *name;
    sbit_onnx_attribute_type type;
    float f;
    int64_t i;
    sbit_str s;
    sbit_tensor t;
    sbit_graph *g;
    size_t count; /* of the arrays below */
    const float *floats;
    const int64_t *ints;
    const sbit_str *strings;
    const sbit_tensor *tensors;
    sbit_graph *const *graphs;
    const sbit_onnx_attribute *other; /* sparse tensors and type protos, carried unchanged */
} sbit_attr;

/* >>nodes and values, read only; edit through the functions below. */
typedef struct sbit_node {
    sbit_node_id id;
    const char *name;   /* "" allowed; nodes of a model may share one, new nodes never do */
    const char *domain; /* "" is ai.onnx */
    const char *op_type;
    size_t input_count, output_count, attr_count;
    const sbit_value_id *inputs; /* idx 0: omitted */
    const sbit_value_id *outputs;
    const sbit_attr *attrs;
    const sbit_onnx_node *source; /* the NodeProto it came from, for fields kept as they were */
} sbit_node;

typedef struct sbit_value_info {
    sbit_value_id id;
    const char *name;      /* unique in its graph and its outer scopes */
    sbit_type type;        /* as declared or inferred */
    sbit_node_id producer; /* none: input, constant or captured */
    uint32_t producer_output;
    uint32_t use_count; /* node inputs + graph outputs + captures by bodies */
    bool is_input;
    bool is_output;
    bool is_constant; /* `constant` holds the data, aligned for its type */
    bool has_default; /* an input: `constant` is what it is when nobody feeds it (from IR 4 on;
                         before, each initializer had to be an input, which says nothing) */
    sbit_value_id outer; /* captured from the parent graph */
    sbit_tensor constant;
    const sbit_onnx_value_info *source; /* doc string, metadata, denotation; may be NULL */
} sbit_value_info;

/* >>extend */

/* A use of a value: input `index` of `node`; node none: graph output `index`; `body` not NULL:
 * captured by that body graph of `node`, as the body's value with idx `index`. */
typedef struct sbit_use {
    sbit_node_id node;
    uint32_t index;
    const sbit_graph *body;
} sbit_use;

/* >>users */

/* >>import and export */
/* Takes over `doc` (also on failure) and keeps it until the graph is destroyed: large weights stay
 * borrowed. Inlines model-local functions and turns Constant nodes into constants. Errors name the
 * node or tensor. Free with sbit_graph_destroy. */
SPARSEBIT_API sbit_status sbit_graph_import(sbit_ctx *ctx, sbit_onnx_doc *doc, sbit_graph **out,
                                            sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_load(sbit_ctx *ctx, const char *path, sbit_graph **out,
                                          sbit_error *error);
/* `bytes` must stay unchanged until the graph is destroyed: weights are borrowed from them. */
SPARSEBIT_API sbit_status sbit_graph_read(sbit_ctx *ctx, const void *bytes, size_t size,
                                          sbit_graph **out, sbit_error *error);
/* An empty graph importing ai.onnx at `opset`. */
SPARSEBIT_API sbit_status sbit_graph_create(sbit_ctx *ctx, int64_t opset, sbit_graph **out,
                                            sbit_error *error);
/* A deep copy (constants that are borrowed from the document stay shared with it; the original
 * must outlive the clone). Ids are the same in the clone. */
SPARSEBIT_API sbit_status sbit_graph_clone(const sbit_graph *graph, sbit_graph **out,
                                           sbit_error *error);
SPARSEBIT_API void sbit_graph_destroy(sbit_graph *graph); /* the root only; NULL is fine */
/* The document borrows from the graph: destroy it first. */
SPARSEBIT_API sbit_status sbit_graph_export(const sbit_graph *graph, sbit_onnx_doc **out,
                                            sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_save(const sbit_graph *graph, const char *path,
                                          const sbit_onnx_write_desc *desc, sbit_error *error);

/* >>extend */

/* >>reading */
SPARSEBIT_API sbit_ctx *sbit_graph_ctx(const sbit_graph *graph);
SPARSEBIT_API sbit_graph *sbit_graph_parent(const sbit_graph *graph); /* NULL: the root */
SPARSEBIT_API const char *sbit_graph_name(const sbit_graph *graph);
SPARSEBIT_API int64_t sbit_graph_opset(const sbit_graph *graph, const char *domain); /* 0: none */
SPARSEBIT_API int64_t sbit_graph_ir_version(const sbit_graph *graph);
SPARSEBIT_API const sbit_node *sbit_graph_node(const sbit_graph *graph, sbit_node_id id);
SPARSEBIT_API const sbit_value_info *sbit_graph_value(const sbit_graph *graph, sbit_value_id id);
/* Upper bounds (exclusive) of idx, for side arrays; erased ids are inside and never reused. */
SPARSEBIT_API uint32_t sbit_graph_node_limit(const sbit_graph *graph);
SPARSEBIT_API uint32_t sbit_graph_value_limit(const sbit_graph *graph);
SPARSEBIT_API bool sbit_graph_node_alive(const sbit_graph *graph, sbit_node_id id);
SPARSEBIT_API bool sbit_graph_value_alive(const sbit_graph *graph, sbit_value_id id);
/* Nodes in execution (topological) order: first, then next until none. */
SPARSEBIT_API sbit_node_id sbit_graph_first(const sbit_graph *graph);
SPARSEBIT_API sbit_node_id sbit_graph_next(const sbit_graph *graph, sbit_node_id id);
/* >>users */

SPARSEBIT_API size_t sbit_graph_input_count(const sbit_graph *graph); /* all declared inputs */
SPARSEBIT_API sbit_value_id sbit_graph_input(const sbit_graph *graph, size_t index);
SPARSEBIT_API size_t sbit_graph_output_count(const sbit_graph *graph);
SPARSEBIT_API sbit_value_id sbit_graph_output(const sbit_graph *graph, size_t index);
SPARSEBIT_API sbit_value_id sbit_graph_find_value(const sbit_graph *graph, const char *name);
SPARSEBIT_API sbit_node_id sbit_graph_find_node(const sbit_graph *graph, const char *name);
/* >>extend */

/* Writes up to `capacity` uses of a value (node order, inputs ascending, outputs last), returns
 * how many there are. */
SPARSEBIT_API size_t sbit_graph_uses(const sbit_graph *graph, sbit_value_id id, sbit_use *uses,
                                     size_t capacity);
/* Values of `graph` that the bodies of `node` capture; same convention. */
SPARSEBIT_API size_t sbit_graph_captures(const sbit_graph *graph, sbit_node_id id,
                                         sbit_value_id *values, size_t capacity);
/* Body `index` of a node (If, Loop, Scan), counted over all its attributes; NULL past the last. */
SPARSEBIT_API sbit_graph *sbit_node_body(const sbit_node *node, size_t index);
/* Calls `fn` for the graph, then for the bodies of its nodes and theirs, in node order; ends at the
 * first status that is not SBIT_OK and returns it. */
SPARSEBIT_API sbit_status sbit_graph_each(const sbit_graph *root,
                                          sbit_status (*fn)(const sbit_graph *graph, void *user),
                                          void *user);
SPARSEBIT_API const char *sbit_graph_symbol_name(const sbit_graph *graph, uint32_t symbol);

/* Attributes by name; the value `otherwise` if absent. */
SPARSEBIT_API const sbit_attr *sbit_node_attr(const sbit_node *node, const char *name); /* NULL */
SPARSEBIT_API int64_t sbit_node_int(const sbit_node *node, const char *name, int64_t otherwise);
SPARSEBIT_API float sbit_node_float(const sbit_node *node, const char *name, float otherwise);
SPARSEBIT_API const char *sbit_node_string(const sbit_node *node, const char *name,
                                           const char *otherwise);
/* What a message calls a node: its name, else its first output's, with the operator:
 * "Conv 'conv1'". */
SPARSEBIT_API void sbit_graph_describe(const sbit_graph *graph, sbit_node_id id, char *text,
                                       size_t size);

/* >>editing. Text and arrays are copied; on failure nothing changed. */
/* A new value; the name is made unique by appending _1, _2 ... if it is taken in any scope. */
SPARSEBIT_API sbit_status sbit_graph_add_value(sbit_graph *graph, const char *name,
                                               const sbit_type *type, sbit_value_id *out,
                                               sbit_error *error);
/* A constant holding a copy of the tensor's data. */
SPARSEBIT_API sbit_status sbit_graph_add_constant(sbit_graph *graph, const char *name,
                                                  const sbit_tensor *tensor, sbit_value_id *out,
                                                  sbit_error *error);
/* Gives a value (no producer, or one whose node is about to be erased) constant data; copies. */
SPARSEBIT_API sbit_status sbit_graph_set_constant(sbit_graph *graph, sbit_value_id id,
                                                  const sbit_tensor *tensor, sbit_error *error);
SPARSEBIT_API void sbit_graph_set_type(sbit_graph *graph, sbit_value_id id, const sbit_type *type);
SPARSEBIT_API sbit_status sbit_graph_set_input(sbit_graph *graph, sbit_value_id id, bool is_input,
                                               sbit_error *error); /* appended last */
SPARSEBIT_API sbit_status sbit_graph_add_output(sbit_graph *graph, sbit_value_id id,
                                                sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_set_output(sbit_graph *graph, size_t index, sbit_value_id id,
                                                sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_rename_value(sbit_graph *graph, sbit_value_id id,
                                                  const char *name, sbit_error *error);

typedef struct sbit_node_desc {
    const char *op_type;
    const char *domain; /* NULL: "" */
    const char *name;   /* NULL: op_type; made unique */
    const sbit_value_id *inputs;
    size_t input_count;
    const sbit_value_id *outputs; /* values without a producer */
    size_t output_count;
    const sbit_attr *attrs; /* deep-copied, except bodies, which are taken over */
    size_t attr_count;
    sbit_node_id before; /* insert before this node; none: at the end */
} sbit_node_desc;
SPARSEBIT_API sbit_status sbit_graph_add_node(sbit_graph *graph, const sbit_node_desc *desc,
                                              sbit_node_id *out, sbit_error *error);
/* Erases the node; its outputs stay as values without producer (erase or re-produce them). */
SPARSEBIT_API void sbit_graph_erase_node(sbit_graph *graph, sbit_node_id id);
/* Only values without producer and uses, and not graph inputs. */
SPARSEBIT_API void sbit_graph_erase_value(sbit_graph *graph, sbit_value_id id);
SPARSEBIT_API sbit_status sbit_graph_set_node_input(sbit_graph *graph, sbit_node_id id,
                                                    size_t index, sbit_value_id value,
                                                    sbit_error *error); /* grows the list */
/* Gives output `index` of a node another value without producer (growing the list). */
SPARSEBIT_API sbit_status sbit_graph_set_node_output(sbit_graph *graph, sbit_node_id id,
                                                     size_t index, sbit_value_id value,
                                                     sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_set_attr(sbit_graph *graph, sbit_node_id id,
                                              const sbit_attr *attr, sbit_error *error);
SPARSEBIT_API void sbit_graph_remove_attr(sbit_graph *graph, sbit_node_id id, const char *name);
SPARSEBIT_API sbit_status sbit_graph_set_op(sbit_graph *graph, sbit_node_id id, const char *domain,
                                            const char *op_type, sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_add_node_metadata(sbit_graph *graph, sbit_node_id id,
                                                       const char *key, const char *value,
                                                       sbit_error *error);
/* Drops the node's metadata whose key begins with `prefix`. */
SPARSEBIT_API sbit_status sbit_graph_drop_node_metadata(sbit_graph *graph, sbit_node_id id,
                                                        const char *prefix, sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_add_metadata(sbit_graph *graph, const char *key,
                                                  const char *value, sbit_error *error);
/* All uses of `from` (nodes, outputs, captures) become uses of `to`. A graph output keeps its
 * name: `to` takes it over when `from` was one. */
SPARSEBIT_API sbit_status sbit_graph_replace_uses(sbit_graph *graph, sbit_value_id from,
                                                  sbit_value_id to, sbit_error *error);
/* Restores topological order after edits; error naming a node on a cycle. */
SPARSEBIT_API sbit_status sbit_graph_sort(sbit_graph *graph, sbit_error *error);
/* Imports `domain` at least at `version` (only ever raised; converts nothing). */
SPARSEBIT_API sbit_status sbit_graph_set_opset(sbit_graph *graph, const char *domain,
                                               int64_t version, sbit_error *error);
/* A number for a dim_param name, the same for the same name. */
SPARSEBIT_API sbit_status sbit_graph_symbol(sbit_graph *graph, const char *name, uint32_t *symbol,
                                            sbit_error *error);
/* Checks every invariant of the structure; for tests and after user passes. */
SPARSEBIT_API sbit_status sbit_graph_validate(const sbit_graph *graph, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRAPH_API_H */
