/* graph_private.h: the insides of a graph, shared by the files of the graph layer; and a few
 * operations that passes need and users do not.
 *
 * Called by: src/graph; passes and tests for the functions of the last section. Calls: core, onnx.
 *
 * A root graph and all bodies below it form a family. The family shares one arena (structs, names,
 * lists, attributes: freed together), the document, the symbols, and a register of all names in
 * use. A name is counted once for each graph that defines it, so that "is it free in every scope"
 * is one look-up. Values that a body captures define no name: they carry their outer value's.
 *
 * Values and nodes are structs in the arena with tables of pointers to them, so an entry never
 * moves. Nodes hang in a list in execution order and carry an order number with gaps, which makes
 * "which comes first" a comparison. Each value has the array of its uses (unordered).
 */
#ifndef SBIT_GRAPH_PRIVATE_H
#define SBIT_GRAPH_PRIVATE_H

#include "../core/core_private.h"
#include "graph_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit__graph_value {
    sbit_value_info info; /* use_count is the length of `uses` */
    sbit_use *uses;       /* of a body: index is the idx of the body's captured value */
    size_t use_capacity;
    size_t use_pending; /* of a node that is being made */
    const sbit_onnx_tensor *tensor; /* where the constant's text fields came from; may be NULL */
    bool alive;
    bool owns_constant; /* the data is a block of its own: free it with the value */
} sbit__graph_value;

typedef struct sbit__graph_node {
    sbit_node info; /* its arrays are the ones below */
    sbit_value_id *inputs, *outputs;
    sbit_attr *attrs;
    size_t input_capacity, output_capacity, attr_capacity;
    sbit_onnx_string_entry *metadata; /* all of it, the source's included */
    size_t metadata_count;
    uint32_t prev, next; /* idx of the neighbours; 0: none */
    uint64_t order;      /* ascending along the list */
    bool alive;
} sbit__graph_node;

typedef struct sbit__graph_opset {
    const char *domain; /* "" is ai.onnx */
    int64_t version;
    const sbit_onnx_opset_id *source; /* may be NULL */
} sbit__graph_opset;

typedef struct sbit__graph_family {
    sbit_ctx *ctx;
    sbit__arena arena;
    sbit_onnx_doc *doc;           /* NULL: made by hand */
    bool owns_doc;                /* false in clones */
    const sbit_onnx_model *model; /* of doc; NULL without one */
    int64_t ir_version;
    bool opset_raised; /* then the IR version must fit the opset */
    sbit__graph_opset *opsets;
    size_t opset_count, opset_capacity;
    sbit_onnx_string_entry *metadata;
    size_t metadata_count;
    const char **symbols; /* [0] is not used */
    size_t symbol_count, symbol_capacity;
    sbit__map symbol_of;
    sbit__map value_names, node_names;       /* name -> number of graphs that define it */
    sbit__map value_suffixes, node_suffixes; /* base -> index in suffixes */
    uint32_t *suffixes;                      /* the last number tried behind a base */
    size_t suffix_count, suffix_capacity;
    sbit_tensor *tensors; /* attributes' tensors that have blocks of their own */
    size_t tensor_count, tensor_capacity;
    sbit_graph *graphs; /* all ever made, newest first, by next_graph */
    uint32_t graph_count;
} sbit__graph_family;

struct sbit_graph {
    sbit__graph_family *family;
    sbit_graph *parent;
    sbit_node_id holder; /* the parent's node whose attribute this body is; 0 until it has one */
    const char *name;
    const sbit_onnx_graph *source; /* may be NULL */
    sbit__graph_value **values;    /* [0] is not used */
    size_t value_count, value_capacity;
    sbit__graph_node **nodes; /* [0] is not used */
    size_t node_count, node_capacity;
    uint32_t first, last;
    sbit_value_id *inputs, *outputs;
    size_t input_count, input_capacity, output_count, output_capacity;
    size_t capture_count;
    sbit__map value_of, node_of; /* name -> idx; captured values are not in it */
    sbit_graph *next_graph;
    uint32_t index; /* in the family, in the order of making; the root is 0 */
    bool alive;
};

/* >>storage (ir.c) */
SBIT__FN sbit_status sbit__graph_new_family(sbit_ctx *ctx, sbit_graph **root, sbit_error *error);
SBIT__FN sbit_status sbit__graph_new_body(sbit_graph *parent, sbit_graph **out, sbit_error *error);
/* A body goes away: its captures are no uses of the parent's values any more. */
SBIT__FN void sbit__graph_drop_body(sbit_graph *body);
SBIT__FN sbit__graph_value *sbit__graph_value_at(const sbit_graph *graph, sbit_value_id id);
SBIT__FN sbit__graph_node *sbit__graph_node_at(const sbit_graph *graph, sbit_node_id id);
/* Memory of the family's arena. */
SBIT__FN sbit_status sbit__graph_alloc(sbit_graph *graph, size_t count, size_t bytes_each,
                                       void **out, sbit_error *error);
SBIT__FN sbit_status sbit__graph_text(sbit_graph *graph, const char *text, size_t size,
                                      const char **out, sbit_error *error);
/* As sbit__grow, in the arena: the old array stays readable. */
SBIT__FN sbit_status sbit__graph_grow(sbit_graph *graph, void **items, size_t count,
                                      size_t *capacity, size_t needed, size_t bytes_each,
                                      sbit_error *error);
/* Sets a key of a metadata list; all is copied, because the list may be the document's. */
SBIT__FN sbit_status sbit__graph_put_metadata(sbit_graph *graph, sbit_onnx_string_entry **entries,
                                              size_t *count, const char *key, const char *value,
                                              sbit_error *error);

/* >>names (ir.c) */
SBIT__FN sbit_status sbit__graph_unique_name(sbit_graph *graph, bool of_node, const char *base,
                                             const char **out, sbit_error *error);
/* Counts a name (which must live as long as the family) for this graph and points it at idx. */
SBIT__FN sbit_status sbit__graph_hold_name(sbit_graph *graph, bool of_node, const char *name,
                                           uint32_t idx, sbit_error *error);
SBIT__FN void sbit__graph_release_name(sbit_graph *graph, bool of_node, const char *name,
                                       uint32_t idx);
SBIT__FN bool sbit__graph_name_taken(const sbit_graph *graph, const char *name);
/* Points the captures of a value at its new name, through all bodies. */
SBIT__FN void sbit__graph_spread_name(const sbit_graph *graph, sbit_value_id id);

/* Warns of what is likely a mistake in a model that was loaded (notices.c). */
SBIT__FN void sbit__graph_notices(const sbit_graph *root);

/* >>values and uses (ir.c) */
/* A value with exactly this name (borrowed; free in this graph); name NULL: a captured value. */
SBIT__FN sbit_status sbit__graph_new_value(sbit_graph *graph, const char *name,
                                           const sbit_type *type, sbit_value_id *out,
                                           sbit_error *error);
SBIT__FN sbit_status sbit__graph_reserve_uses(sbit_graph *graph, sbit_value_id id, size_t extra,
                                              sbit_error *error);
/* Room for one use each, for a node that is being made. */
SBIT__FN sbit_status sbit__graph_reserve_inputs(sbit_graph *graph, const sbit_value_id *inputs,
                                                size_t count, sbit_error *error);
SBIT__FN void sbit__graph_put_use(sbit_graph *graph, sbit_value_id id, sbit_node_id node,
                                  uint32_t index, const sbit_graph *body); /* reserved before */
SBIT__FN void sbit__graph_take_use(sbit_graph *graph, sbit_value_id id, sbit_node_id node,
                                   uint32_t index, const sbit_graph *body);
/* The value of `body` that captures `id` of its parent: found, or made. */
SBIT__FN sbit_value_id sbit__graph_find_capture(const sbit_graph *body, sbit_value_id outer);
SBIT__FN sbit_status sbit__graph_capture(sbit_graph *body, sbit_value_id outer, sbit_value_id *out,
                                         sbit_error *error);
/* Makes the tensor's data the value's constant. owned: a block of sbit_tensor_alloc that the
 * value frees from now on; else borrowed from the document. */
SBIT__FN void sbit__graph_put_constant(sbit_graph *graph, sbit_value_id id,
                                       const sbit_tensor *tensor, bool owned,
                                       const sbit_onnx_tensor *source);
/* sbit_graph_add_constant without the copy: the graph owns the data from now on, if it succeeds. */
SBIT__FN sbit_status sbit__graph_take_constant(sbit_graph *graph, const char *name,
                                               const sbit_tensor *tensor, sbit_value_id *out,
                                               sbit_error *error);
SBIT__FN void sbit__graph_drop_constant(sbit_graph *graph, sbit_value_id id);
/* For a constant that is not read soon: pages of a file are given back; a block of its own is freed
 * with free_block, which leaves a tensor without data: true. */
SBIT__FN bool sbit__graph_release_constant(const sbit_graph *graph, sbit_value_id id,
                                           bool free_block);
SBIT__FN sbit_status sbit__graph_append_id(sbit_graph *graph, sbit_value_id **ids, size_t *count,
                                           size_t *capacity, sbit_value_id id, sbit_error *error);

/* >>nodes (ir.c, edit.c) */
/* An empty node that is not yet in the list; sbit__graph_commit_node enters what its lists name. */
SBIT__FN sbit_status sbit__graph_new_node(sbit_graph *graph, sbit__graph_node **out,
                                          sbit_error *error);
SBIT__FN void sbit__graph_link_node(sbit_graph *graph, uint32_t idx, uint32_t before);
SBIT__FN void sbit__graph_unlink_node(sbit_graph *graph, uint32_t idx);
/* The bodies of an attribute, one by one; NULL behind the last. */
SBIT__FN sbit_graph *sbit__graph_attr_body(const sbit_attr *attr, size_t index);
SBIT__FN void sbit__graph_commit_node(sbit_graph *graph, sbit__graph_node *node, uint32_t before);
SBIT__FN sbit_status sbit__graph_copy_attr(sbit_graph *graph, const sbit_attr *attr, sbit_attr *out,
                                           sbit_error *error);
/* What sbit_graph_set_opset never does: ai.onnx at `version`, whose nodes were converted. */
SBIT__FN void sbit__graph_lower_opset(sbit_graph *graph, int64_t version);
/* Attributes to make nodes with; names and arrays are borrowed. */
SBIT__FN sbit_attr sbit__attr_int(const char *name, int64_t value);
SBIT__FN sbit_attr sbit__attr_float(const char *name, float value);
SBIT__FN sbit_attr sbit__attr_ints(const char *name, const int64_t *values, size_t count);
SBIT__FN sbit_attr sbit__attr_string(const char *name, const char *value);
/* Keeps a tensor's block until the family goes. */
SBIT__FN sbit_status sbit__graph_keep_tensor(sbit_graph *graph, const sbit_tensor *tensor,
                                             sbit_error *error);

/* >>types (ir.c, type.c) */
SBIT__FN void sbit__graph_type_unknown(sbit_type *type);
SBIT__FN void sbit__graph_type_of_tensor(const sbit_tensor *tensor, sbit_type *out);
SBIT__FN bool sbit__graph_type_equal(const sbit_type *a, const sbit_type *b);
/* maker is `graph` again, or NULL when no symbols may be made: new names are then unknown dims. */
SBIT__FN sbit_status sbit__graph_type_from_onnx(const sbit_graph *graph, sbit_graph *maker,
                                                const char *name, const sbit_onnx_type *source,
                                                sbit_type *out, sbit_error *error);
SBIT__FN sbit_status sbit__graph_type_to_onnx(const sbit_graph *graph, sbit_onnx_doc *doc,
                                              const sbit_type *type, sbit_onnx_type **out,
                                              sbit_error *error);

/* >>outputs (edit.c) */
/* The graph gives these values and no others. */
SBIT__FN sbit_status sbit__graph_set_outputs(sbit_graph *graph, const sbit_value_id *ids,
                                             size_t count, sbit_error *error);

/* >>clones (clone.c) */
/* As sbit_graph_clone, but all constants stay the original's: for what only computes. */
SBIT__FN sbit_status sbit__graph_clone_borrowing(const sbit_graph *graph, sbit_graph **out,
                                                 sbit_error *error);

/* >>import (scopes.c, functions.c, import.c) */
struct sbit__import_call;
/* Where names are looked up: one for each graph, and one for each function call inlined in it. */
typedef struct sbit__import_scope {
    sbit_graph *graph;
    sbit__map names; /* name -> idx of a value of `graph`; 0: an omitted argument */
    struct sbit__import_scope *outer;
    const struct sbit__import_call *call; /* whose attributes ref_attr_name means; may be NULL */
    const char *prefix;                   /* of the names of inlined nodes and values */
} sbit__import_scope;

typedef struct sbit__importer {
    sbit_ctx *ctx;
    sbit_onnx_doc *doc;
    const sbit_onnx_model *model;
    size_t inlined_nodes; /* bounded: calls of calls can grow exponentially */
} sbit__importer;

/* An attribute with the scope in which it was written: a body in it sees that scope's names. */
typedef struct sbit__import_attr {
    const char *name;
    const sbit_onnx_attribute *source;
    sbit__import_scope *scope;
} sbit__import_attr;

typedef struct sbit__import_call {
    const sbit_onnx_function *function;
    const struct sbit__import_call *outer; /* the call inside which this one stands */
    sbit__import_attr *attrs;
    size_t attr_count, depth;
} sbit__import_call;

SBIT__FN const char *sbit__graph_domain(sbit_str domain); /* "ai.onnx" becomes "" */
SBIT__FN const char *sbit__import_text(sbit_str text); /* "" for none */
SBIT__FN const char *sbit__import_label(const sbit_onnx_node *node, char *text, size_t size);
SBIT__FN void sbit__import_open_scope(sbit__importer *importer, sbit__import_scope *scope,
                                      sbit_graph *graph, sbit__import_scope *outer,
                                      const sbit__import_call *call);
SBIT__FN void sbit__import_close_scope(sbit__import_scope *scope);
SBIT__FN sbit_status sbit__import_define(sbit__import_scope *scope, const char *name,
                                         const char *what, sbit_value_id *out, sbit_error *error);
/* none if the name is empty, or a function's argument that the call omits. */
SBIT__FN sbit_status sbit__import_resolve(sbit__import_scope *scope, const char *name,
                                          const sbit_onnx_node *reader, sbit_value_id *out,
                                          sbit_error *error);
/* The attributes of a node with references to the enclosing call's replaced. */
SBIT__FN sbit_status sbit__import_attrs(sbit__import_scope *scope, const sbit_onnx_node *node,
                                        sbit__import_attr **out, size_t *count, sbit_error *error);
/* Names that training graphs define must not be given to new values: they share the scope. */
SBIT__FN sbit_status sbit__import_reserve_names(sbit_graph *graph, sbit_error *error);
/* The function that a node calls; NULL: it calls none. */
SBIT__FN const sbit_onnx_function *sbit__functions_named(const sbit__importer *importer,
                                                         const sbit_onnx_node *node);
/* Opens the scope of a call: arguments, results and what the function's nodes define have their
 * names there. To be closed even after a failure. */
SBIT__FN sbit_status sbit__functions_enter(sbit__importer *importer, sbit__import_scope *caller,
                                           const sbit_onnx_node *node,
                                           const sbit_onnx_function *function,
                                           sbit__import_call *call, sbit__import_scope *scope,
                                           sbit_error *error);

/* >>for passes */
/* Moves the nodes and values of a body into its parent graph, before `before` (none: at the end):
 * input i of the body becomes inputs[i] (one for each input of the body, not none); outputs[i] gets
 * the parent's value for output i. The body is empty afterwards: erase its node or attribute. */
SBIT__FN sbit_status sbit__graph_inline_body(sbit_graph *body, sbit_node_id before,
                                             const sbit_value_id *inputs, sbit_value_id *outputs,
                                             sbit_error *error);
/* The data of a value that is constant here or, captured, in an outer graph; NULL: not constant. */
SBIT__FN const sbit_tensor *sbit__graph_constant(const sbit_graph *graph, sbit_value_id id);
/* The value of a node's metadata key; NULL: it has none. */
SBIT__FN const char *sbit__graph_node_metadata(const sbit_graph *graph, sbit_node_id id,
                                               const char *key);
/* Marks values, from the last node of the graph to the first: input `input` of a node if fn says
 * so, which may look at the marks of what the node makes. Marks that are set stay. */
typedef bool (*sbit__mark_fn)(const sbit_node *node, size_t input, const bool *marks,
                              const void *user);
SBIT__FN void sbit__graph_mark_back(const sbit_graph *graph, bool *marks, sbit__mark_fn fn,
                                    const void *user);
/* Removes output `index` of the graph from its list; the value stays. */
SBIT__FN void sbit__graph_remove_output(sbit_graph *graph, size_t index);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRAPH_PRIVATE_H */
