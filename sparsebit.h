/* GENERATED from src/ by tools/amalgamate - do not edit. Edit src/<file>, then run 'make -C tools amalgamate'. */
#ifndef SPARSEBIT_INCLUDED
#define SPARSEBIT_INCLUDED

#include "sparsebit_onnx.h"

/* ---- begin src/core/core_api.h ---- */
/* core_api.h: context, logging, progress, threads, random numbers, tensors. >>core
 *
 * Called by: users and every later layer. Calls: base.
 * A context is passed first everywhere; it holds the allocator, the callbacks, the CPU's features
 * and what the user registered. Nothing else in the library is global.
 */
#ifndef SBIT_CORE_API_H
#define SBIT_CORE_API_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_ctx sbit_ctx;

/* >>isa: instruction sets that kernels are written for; later rows contain earlier ones of the
 * same architecture. X(enum, number, text) */
#define SBIT_ISA_LIST(X)                                                                           \
    X(SBIT_ISA_SCALAR, 1, "scalar")                                                                \
    X(SBIT_ISA_SSE2, 2, "sse2")                                                                    \
    X(SBIT_ISA_AVX2, 3, "avx2")             /* with FMA */                                         \
    X(SBIT_ISA_AVX512, 4, "avx512")         /* F, BW, DQ, VL */                                    \
    X(SBIT_ISA_AVX512VNNI, 5, "avx512vnni") /* and VNNI */                                         \
    X(SBIT_ISA_NEON, 6, "neon")                                                                    \
    X(SBIT_ISA_WASM128, 7, "wasm128")

typedef enum sbit_isa {
    SBIT_ISA_DEFAULT = 0, /* the best that the CPU and operating system offer */
#define SBIT__ISA_ENUM(name, number, text) name = number,
    SBIT_ISA_LIST(SBIT__ISA_ENUM)
#undef SBIT__ISA_ENUM
    SBIT_ISA_COUNT
} sbit_isa;

/* >>callbacks */
typedef enum sbit_log_level { SBIT_LOG_INFO, SBIT_LOG_WARNING } sbit_log_level;

/* Receives notices; without one the library is silent. Called from the calling thread. */
typedef struct sbit_logger {
    void (*log_fn)(sbit_log_level level, const char *message, void *user);
    void *user;
} sbit_logger;

/* Told about long work: `done` of `total` units of `what` ("calibrate", ...). Returning false
 * cancels: the running call ends with SBIT_ERR_CANCELLED and leaves nothing half done. */
typedef struct sbit_progress {
    bool (*progress_fn)(const char *what, int64_t done, int64_t total, void *user);
    void *user;
} sbit_progress;

/* One piece of parallel work. `worker` < the context's thread count; no two pieces with the same
 * worker run at the same time, so scratch memory is per worker. */
typedef void (*sbit_task_fn)(void *task, int64_t index, int32_t worker);

/* >>context. {0} is a valid desc: malloc, silent, one thread, best ISA. */
typedef struct sbit_ctx_desc {
    sbit_allocator allocator;
    sbit_logger logger;
    sbit_progress progress;
    int32_t threads; /* 0: 1; N: a pool of N-1 threads besides the caller; at most 64 */
    /* The user's job system instead of the pool: calls fn(task, i, worker) once for each i in
     * 0..count-1 with worker < `threads`, and returns when all are done. NULL: own pool. */
    void (*parallel_for)(int64_t count, sbit_task_fn fn, void *task, void *user);
    void *parallel_user;
    sbit_isa force_isa; /* for tests and comparisons; unavailable: SBIT_ERR_UNSUPPORTED */
} sbit_ctx_desc;

/* desc may be NULL. Free with sbit_ctx_destroy after everything that was made with it. A context
 * may be used by several threads at once; its pool then serves one of them at a time and the
 * others run on their own thread. Registration is not thread-safe: register first. */
SPARSEBIT_API sbit_status sbit_ctx_create(const sbit_ctx_desc *desc, sbit_ctx **out,
                                          sbit_error *error);
SPARSEBIT_API void sbit_ctx_destroy(sbit_ctx *ctx); /* NULL is fine */

SPARSEBIT_API sbit_isa sbit_ctx_isa(const sbit_ctx *ctx);
SPARSEBIT_API int32_t sbit_ctx_threads(const sbit_ctx *ctx);
SPARSEBIT_API const sbit_allocator *sbit_ctx_allocator(const sbit_ctx *ctx);
SPARSEBIT_API const char *sbit_isa_name(sbit_isa isa);
SPARSEBIT_API bool sbit_isa_available(sbit_isa isa); /* compiled in, and the CPU and OS have it */

/* Runs fn for each index 0..count-1 on the context's threads; returns when all are done. */
SPARSEBIT_API void sbit_ctx_parallel(sbit_ctx *ctx, int64_t count, sbit_task_fn fn, void *task);

/* >>rng: PCG32, the same numbers everywhere. Not for cryptography. */
typedef struct sbit_rng {
    uint64_t state;
} sbit_rng;
SPARSEBIT_API sbit_rng sbit_rng_seed(uint64_t seed);
SPARSEBIT_API uint32_t sbit_rng_next(sbit_rng *rng);
SPARSEBIT_API uint32_t sbit_rng_below(sbit_rng *rng, uint32_t bound); /* unbiased; bound >= 1 */
SPARSEBIT_API float sbit_rng_uniform(sbit_rng *rng);                  /* [0, 1) */
SPARSEBIT_API float sbit_rng_normal(sbit_rng *rng);                   /* mean 0, deviation 1 */

/* >>tensor */
#define SBIT_MAX_RANK 8

/* A dense row-major tensor; plain data, copied freely. Who owns `data` is said where a tensor is
 * handed over. Types below 8 bits are packed as in raw_data; SBIT_STRING holds sbit_str. */
typedef struct sbit_tensor {
    sbit_dtype dtype;
    int32_t rank;                /* 0: a scalar */
    int64_t dims[SBIT_MAX_RANK]; /* dims[rank..] are 0 */
    void *data;                  /* NULL only if a dim is 0, or not yet allocated */
} sbit_tensor;

typedef enum sbit_value_kind {
    SBIT_KIND_TENSOR = 0,
    SBIT_KIND_SEQUENCE,
    SBIT_KIND_OPTIONAL, /* holds 0 or 1 item */
    SBIT_KIND_MAP,      /* not executed, only carried in models */
    SBIT_KIND_SPARSE,   /* likewise */
    SBIT_KIND_OPAQUE    /* likewise */
} sbit_value_kind;

/* What flows through a graph when it runs. */
typedef struct sbit_value {
    sbit_value_kind kind;
    sbit_tensor tensor;       /* SBIT_KIND_TENSOR */
    struct sbit_value *items; /* SBIT_KIND_SEQUENCE, SBIT_KIND_OPTIONAL */
    int64_t item_count;
} sbit_value;

SPARSEBIT_API int64_t sbit_tensor_count(const sbit_tensor *tensor); /* elements; rank 0: 1 */
SPARSEBIT_API size_t sbit_tensor_bytes(const sbit_tensor *tensor);  /* as sbit_dtype_bytes */
SPARSEBIT_API bool sbit_tensor_same_shape(const sbit_tensor *a, const sbit_tensor *b);
/* Allocates zeroed 64-byte aligned data for the given shape (dims may be NULL with rank 0).
 * Free with sbit_tensor_free. Errors: SHAPE, LIMIT, OUT_OF_MEMORY. */
SPARSEBIT_API sbit_status sbit_tensor_alloc(sbit_ctx *ctx, sbit_dtype dtype, int32_t rank,
                                            const int64_t *dims, sbit_tensor *out,
                                            sbit_error *error);
SPARSEBIT_API void sbit_tensor_free(sbit_ctx *ctx, sbit_tensor *tensor); /* then zeroed */
/* Writes "float32[1,3,224,224]"; always NUL-terminated. */
SPARSEBIT_API void sbit_tensor_describe(const sbit_tensor *tensor, char *text, size_t size);

/* A TensorProto file (.pb) as a tensor with data of its own; free with sbit_tensor_free. */
SPARSEBIT_API sbit_status sbit_tensor_load_pb(sbit_ctx *ctx, const char *path, sbit_tensor *out,
                                              sbit_error *error);
SPARSEBIT_API sbit_status sbit_tensor_save_pb(sbit_ctx *ctx, const char *path, const char *name,
                                              const sbit_tensor *tensor, sbit_error *error);

/* float16/bfloat16/float8 conversions, round half to even (ONNX Cast). */
SPARSEBIT_API float sbit_f16_to_f32(uint16_t bits);
SPARSEBIT_API uint16_t sbit_f32_to_f16(float value);
SPARSEBIT_API float sbit_bf16_to_f32(uint16_t bits);
SPARSEBIT_API uint16_t sbit_f32_to_bf16(float value);

/* >>qparams: how a tensor is quantized: q = saturate(round_half_even(x / scale) + zero_point) in
 * qmin..qmax, x ~ (q - zero_point) * scale. Arrays have `count` entries: 1 per tensor, or one
 * per index of `axis`; with block_size > 0, one per block of that many indices along `axis`. */
typedef struct sbit_qparams {
    sbit_dtype dtype; /* storage: SBIT_I8, SBIT_U8, SBIT_I16, SBIT_U16, SBIT_I4, SBIT_U4, SBIT_I32 */
    int32_t bits;     /* true width, 2..16 (32: bias) */
    int32_t qmin, qmax;
    int32_t axis;     /* -1: per tensor */
    int32_t block_size;
    int64_t count;
    const float *scale;
    const int32_t *zero_point;
} sbit_qparams;

#ifdef __cplusplus
}
#endif

#endif /* SBIT_CORE_API_H */
/* ---- end src/core/core_api.h ---- */

/* ---- begin src/graph/graph_api.h ---- */
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
    size_t count;          /* of the arrays below */
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
    const char *name;     /* "" allowed; unique otherwise after import */
    const char *domain;   /* "" is ai.onnx */
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
    uint32_t use_count;    /* node inputs + graph outputs + captures by bodies */
    bool is_input;         /* with is_constant: an input with a default value (IR < 4 style) */
    bool is_output;
    bool is_constant;      /* `constant` holds the data, aligned for its type */
    sbit_value_id outer;   /* captured from the parent graph */
    sbit_tensor constant;
    const sbit_onnx_value_info *source; /* doc string, metadata, denotation; may be NULL */
} sbit_value_info;

/* A use of a value: input `index` of `node`; node none: graph output `index`; `body` not NULL:
 * captured by that body graph of `node`. */
typedef struct sbit_use {
    sbit_node_id node;
    uint32_t index;
    const sbit_graph *body;
} sbit_use;

/* >>import and export */
/* Takes over `doc` (also on failure) and keeps it until the graph is destroyed: large weights stay
 * borrowed. Inlines model-local functions and turns Constant nodes into constants. Errors name the
 * node or tensor. Free with sbit_graph_destroy. */
SPARSEBIT_API sbit_status sbit_graph_import(sbit_ctx *ctx, sbit_onnx_doc *doc, sbit_graph **out,
                                            sbit_error *error);
SPARSEBIT_API sbit_status sbit_graph_load(sbit_ctx *ctx, const char *path, sbit_graph **out,
                                          sbit_error *error);
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
SPARSEBIT_API size_t sbit_graph_input_count(const sbit_graph *graph); /* all declared inputs */
SPARSEBIT_API sbit_value_id sbit_graph_input(const sbit_graph *graph, size_t index);
SPARSEBIT_API size_t sbit_graph_output_count(const sbit_graph *graph);
SPARSEBIT_API sbit_value_id sbit_graph_output(const sbit_graph *graph, size_t index);
SPARSEBIT_API sbit_value_id sbit_graph_find_value(const sbit_graph *graph, const char *name);
SPARSEBIT_API sbit_node_id sbit_graph_find_node(const sbit_graph *graph, const char *name);
/* Writes up to `capacity` uses of a value (node order, inputs ascending, outputs last), returns
 * how many there are. */
SPARSEBIT_API size_t sbit_graph_uses(const sbit_graph *graph, sbit_value_id id, sbit_use *uses,
                                     size_t capacity);
/* Values of `graph` that the bodies of `node` capture; same convention. */
SPARSEBIT_API size_t sbit_graph_captures(const sbit_graph *graph, sbit_node_id id,
                                         sbit_value_id *values, size_t capacity);
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
    const char *domain;   /* NULL: "" */
    const char *name;     /* NULL: op_type; made unique */
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
/* ---- end src/graph/graph_api.h ---- */

#endif /* SPARSEBIT_INCLUDED */

#ifdef SPARSEBIT_IMPLEMENTATION
#ifndef SPARSEBIT_IMPLEMENTED
#define SPARSEBIT_IMPLEMENTED

#ifndef SPARSEBIT_ONNX_IMPLEMENTATION
#define SPARSEBIT_ONNX_IMPLEMENTATION
#endif
#include "sparsebit_onnx.h"

/* ---- begin src/core/core_private.h ---- */
/* core_private.h: the context's insides and what later layers use of it.
 *
 * Called by: every layer above core. Calls: base, onnx.
 */
#ifndef SBIT_CORE_PRIVATE_H
#define SBIT_CORE_PRIVATE_H

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__MAX_THREADS 64

/* What users can register; the rows' types belong to the layers that own the kinds. */
enum sbit__registry_kind {
    SBIT__REG_OPERATOR,
    SBIT__REG_PASS,
    SBIT__REG_OBSERVER,
    SBIT__REG_QUANTIZER,
    SBIT__REG_SPARSER,
    SBIT__REG_SCHEDULE,
    SBIT__REG_LOSS,
    SBIT__REG_OPTIMIZER,
    SBIT__REG_PROFILE,
    SBIT__REG_COUNT
};

typedef struct sbit__registry {
    const void **rows; /* borrowed from the user until the context is destroyed */
    size_t count, capacity;
} sbit__registry;

struct sbit_ctx {
    sbit_allocator allocator;
    sbit_logger logger;
    sbit_progress progress;
    int32_t threads; /* at least 1 */
    void (*parallel_for)(int64_t count, sbit_task_fn fn, void *task, void *user);
    void *parallel_user;
    sbit_isa isa;            /* never SBIT_ISA_DEFAULT */
    const void *kernels;     /* the kernel layer's table; core does not know its type */
    struct sbit__pool *pool; /* NULL: one thread, or the user's parallel_for */
    sbit__registry registries[SBIT__REG_COUNT];
};

/* Rows are kept in the order of registration. Whether a name is taken is for the kind's layer. */
SBIT__FN sbit_status sbit__registry_add(sbit_ctx *ctx, enum sbit__registry_kind kind,
                                        const void *row, sbit_error *error);
SBIT__FN const void *const *sbit__registry_rows(const sbit_ctx *ctx, enum sbit__registry_kind kind,
                                                size_t *count);

/* Formats for the user's logger; does nothing without one. */
SBIT__FN void sbit__log(sbit_ctx *ctx, sbit_log_level level, const char *format, ...)
    SBIT__PRINTF(3, 4);
/* SBIT_ERR_CANCELLED when the user's callback asks to stop. */
SBIT__FN sbit_status sbit__progress(sbit_ctx *ctx, const char *what, int64_t done, int64_t total,
                                    sbit_error *error);
/* A clock for measuring spans: monotonic where the system shows one, else wall time. */
SBIT__FN uint64_t sbit__now_ns(void);

SBIT__FN const void *sbit__ctx_kernels(const sbit_ctx *ctx);
SBIT__FN void sbit__ctx_set_kernels(sbit_ctx *ctx, const void *kernels);

#if !SPARSEBIT_NO_THREADS
/* threads.c: `threads` counts the caller. */
SBIT__FN sbit_status sbit__pool_create(const sbit_allocator *allocator, int32_t threads,
                                       struct sbit__pool **out, sbit_error *error);
SBIT__FN void sbit__pool_destroy(struct sbit__pool *pool); /* NULL is fine */
SBIT__FN void sbit__pool_run(struct sbit__pool *pool, int64_t count, sbit_task_fn fn, void *task);
#endif

/* tensor.c */
/* As sbit_tensor_alloc for SBIT_STRING, with room for `text_bytes` of text behind the elements:
 * *text points there. One sbit_tensor_free frees both. */
SBIT__FN sbit_status sbit__tensor_alloc_strings(sbit_ctx *ctx, int32_t rank, const int64_t *dims,
                                                size_t text_bytes, sbit_tensor *out, char **text,
                                                sbit_error *error);
/* A copy with data of its own, strings included; free with sbit_tensor_free. */
SBIT__FN sbit_status sbit__tensor_copy(sbit_ctx *ctx, const sbit_tensor *tensor, sbit_tensor *out,
                                       sbit_error *error);
/* The alignment that the elements of a type need in memory: 1, 2, 4, 8. */
SBIT__FN size_t sbit__dtype_align(sbit_dtype dtype);
/* The elements of a TensorProto in memory that is aligned for their type: borrowed from the
 * document where possible (*owned false), else a block from the context (*owned true: free with
 * sbit_tensor_free). */
SBIT__FN sbit_status sbit__tensor_from_onnx(sbit_ctx *ctx, sbit_onnx_doc *doc,
                                            const sbit_onnx_tensor *source, sbit_tensor *out,
                                            bool *owned, sbit_error *error);
/* Describes `tensor` as a TensorProto of `doc`: raw_data borrows the tensor's data (on big-endian
 * hosts: a swapped copy), text of string tensors is borrowed too. `name` is copied. */
SBIT__FN sbit_status sbit__tensor_to_onnx(sbit_onnx_doc *doc, const char *name,
                                          const sbit_tensor *tensor, sbit_onnx_tensor *out,
                                          sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_CORE_PRIVATE_H */
/* ---- end src/core/core_private.h ---- */

/* ---- begin src/core/context.c ---- */
/* context.c: the context, CPU features, log, progress, clock, registries. >>context
 *
 * Called by: users first of all; every layer for callbacks and registered rows. Calls: threads,
 * the CPU's own feature report, the system's clock.
 * Does not: choose kernels (the kernel layer keeps its table in the context's slot).
 *
 * x86: an instruction set counts when CPUID reports it *and* XGETBV says that the operating system
 * saves its registers: XCR0 bits 1,2 (xmm, ymm) for AVX2, also 5,6,7 (opmask, zmm) for AVX-512.
 * ARM and WebAssembly have no such question: what the compiler may use, the CPU has.
 */

#include <stdio.h> /* vsnprintf */
#include <time.h>  /* clock_gettime, CLOCK_MONOTONIC, timespec_get */
#if defined(_WIN32)
#include <windows.h> /* QueryPerformanceCounter */
#elif !defined(CLOCK_MONOTONIC) && (defined(__unix__) || defined(__APPLE__))
#include <sys/time.h> /* gettimeofday: all that strict -std=c99 shows */
#endif

#if !SPARSEBIT_NO_SIMD && (defined(__x86_64__) || defined(__i386__))
#define SBIT__CONTEXT_X86 1
#include <cpuid.h> /* CPUID for gcc and clang */
#elif !SPARSEBIT_NO_SIMD && (defined(_M_X64) || defined(_M_IX86))
#define SBIT__CONTEXT_X86 1
#include <intrin.h> /* CPUID and XGETBV for MSVC */
#else
#define SBIT__CONTEXT_X86 0
#endif

/* >>cpu features */
SPARSEBIT_API const char *sbit_isa_name(sbit_isa isa)
{
    switch (isa) {
#define SBIT__CONTEXT_ISA_NAME(name, number, text)                                                 \
    case name:                                                                                     \
        return text;
        SBIT_ISA_LIST(SBIT__CONTEXT_ISA_NAME)
#undef SBIT__CONTEXT_ISA_NAME
    case SBIT_ISA_DEFAULT:
        return "default";
    case SBIT_ISA_COUNT:
        break;
    }
    return "unknown";
}

#if SBIT__CONTEXT_X86

/* eax, ebx, ecx, edx of one CPUID leaf; zeros where the CPU does not know the leaf. */
static void sbit__cpuid(uint32_t leaf, uint32_t subleaf, uint32_t regs[4])
{
#if defined(_MSC_VER) && !defined(__clang__)
    int report[4];
    __cpuid(report, 0);
    memset(regs, 0, 4 * sizeof(regs[0]));
    if ((uint32_t)report[0] >= leaf) {
        __cpuidex(report, (int)leaf, (int)subleaf);
        memcpy(regs, report, sizeof(report));
    }
#else
    unsigned int a = 0, b = 0, c = 0, d = 0;
    if ((unsigned int)__get_cpuid_max(0, NULL) >= leaf) {
        __cpuid_count(leaf, subleaf, a, b, c, d);
    }
    regs[0] = a;
    regs[1] = b;
    regs[2] = c;
    regs[3] = d;
#endif
}

static uint32_t sbit__xgetbv0(void)
{
#if defined(_MSC_VER) && !defined(__clang__)
    return (uint32_t)_xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0)); /* xgetbv */
    (void)high;
    return low;
#endif
}

static sbit_isa sbit__isa_best(void)
{
    uint32_t leaf1[4], leaf7[4];
    sbit__cpuid(1, 0, leaf1);
    sbit__cpuid(7, 0, leaf7);
    if (((leaf1[3] >> 26) & 1u) == 0) { /* edx 26: SSE2 */
        return SBIT_ISA_SCALAR;
    }
    const uint32_t avx_fma_osxsave = (1u << 28) | (1u << 12) | (1u << 27); /* leaf 1, ecx */
    if ((leaf1[2] & avx_fma_osxsave) != avx_fma_osxsave || ((leaf7[1] >> 5) & 1u) == 0) {
        return SBIT_ISA_SSE2;
    }
    const uint32_t saved = sbit__xgetbv0();
    if ((saved & 0x06u) != 0x06u) {
        return SBIT_ISA_SSE2;
    }
    const uint32_t f_dq_bw_vl = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31); /* leaf 7, ebx */
    if ((saved & 0xe6u) != 0xe6u || (leaf7[1] & f_dq_bw_vl) != f_dq_bw_vl) {
        return SBIT_ISA_AVX2;
    }
    return ((leaf7[2] >> 11) & 1u) != 0 ? SBIT_ISA_AVX512VNNI : SBIT_ISA_AVX512;
}

#else

static sbit_isa sbit__isa_best(void)
{
#if SPARSEBIT_NO_SIMD
    return SBIT_ISA_SCALAR;
#elif defined(__ARM_NEON) || defined(_M_ARM64)
    return SBIT_ISA_NEON;
#elif defined(__wasm_simd128__)
    return SBIT_ISA_WASM128;
#else
    return SBIT_ISA_SCALAR;
#endif
}

#endif

SPARSEBIT_API bool sbit_isa_available(sbit_isa isa)
{
    const sbit_isa best = sbit__isa_best();
    if (isa <= SBIT_ISA_DEFAULT || isa >= SBIT_ISA_COUNT) {
        return false;
    }
    if (isa == SBIT_ISA_SCALAR || isa == best) {
        return true;
    }
    return best <= SBIT_ISA_AVX512VNNI && isa < best; /* the x86 sets contain each other */
}

/* >>create and destroy */
static sbit_status sbit__ctx_check_desc(const sbit_ctx_desc *desc, sbit_error *error)
{
    if (!sbit__allocator_valid(&desc->allocator)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the allocator must have all three functions or none");
    }
    if (desc->threads < 0 || desc->threads > SBIT__MAX_THREADS) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "threads is %ld, which is not in 0..%d", (long)desc->threads,
                          SBIT__MAX_THREADS);
    }
    if (desc->force_isa != SBIT_ISA_DEFAULT && !sbit_isa_available(desc->force_isa)) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "instruction set %s is not available here: the best one is %s",
                          sbit_isa_name(desc->force_isa), sbit_isa_name(sbit__isa_best()));
    }
    return SBIT_OK;
}

static sbit_status sbit__ctx_start_threads(sbit_ctx *ctx, sbit_error *error)
{
    if (ctx->threads == 1 || ctx->parallel_for != NULL) {
        return SBIT_OK;
    }
#if SPARSEBIT_NO_THREADS
    (void)error;
    sbit__log(ctx, SBIT_LOG_WARNING, "built with SPARSEBIT_NO_THREADS: 1 thread instead of %ld",
              (long)ctx->threads);
    ctx->threads = 1;
    return SBIT_OK;
#else
    return sbit__pool_create(&ctx->allocator, ctx->threads, &ctx->pool, error);
#endif
}

SPARSEBIT_API sbit_status sbit_ctx_create(const sbit_ctx_desc *desc, sbit_ctx **out,
                                          sbit_error *error)
{
    sbit_ctx_desc filled;
    memset(&filled, 0, sizeof(filled));
    if (desc != NULL) {
        filled = *desc;
    }
    SBIT__TRY(sbit__ctx_check_desc(&filled, error));
    const sbit_allocator allocator = sbit__allocator_or_default(&filled.allocator);
    sbit_ctx *ctx = (sbit_ctx *)sbit__calloc(&allocator, 1, sizeof(*ctx));
    if (ctx == NULL) {
        return sbit__fail_oom(error, sizeof(*ctx));
    }
    ctx->allocator = allocator;
    ctx->logger = filled.logger;
    ctx->progress = filled.progress;
    ctx->threads = filled.threads == 0 ? 1 : filled.threads;
    ctx->parallel_for = filled.parallel_for;
    ctx->parallel_user = filled.parallel_user;
    ctx->isa = filled.force_isa != SBIT_ISA_DEFAULT ? filled.force_isa : sbit__isa_best();
    const sbit_status status = sbit__ctx_start_threads(ctx, error);
    if (status != SBIT_OK) {
        sbit_ctx_destroy(ctx);
        return status;
    }
    *out = ctx;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_ctx_destroy(sbit_ctx *ctx)
{
    if (ctx == NULL) {
        return;
    }
    const sbit_allocator allocator = ctx->allocator;
#if !SPARSEBIT_NO_THREADS
    sbit__pool_destroy(ctx->pool);
#endif
    for (int kind = 0; kind < SBIT__REG_COUNT; kind++) {
        sbit__registry *registry = &ctx->registries[kind];
        sbit__free(&allocator, registry->rows, registry->capacity * sizeof(registry->rows[0]));
    }
    sbit__free(&allocator, ctx, sizeof(*ctx));
}

SPARSEBIT_API sbit_isa sbit_ctx_isa(const sbit_ctx *ctx)
{
    return ctx->isa;
}

SPARSEBIT_API int32_t sbit_ctx_threads(const sbit_ctx *ctx)
{
    return ctx->threads;
}

SPARSEBIT_API const sbit_allocator *sbit_ctx_allocator(const sbit_ctx *ctx)
{
    return &ctx->allocator;
}

SBIT__FN const void *sbit__ctx_kernels(const sbit_ctx *ctx)
{
    return ctx->kernels;
}

SBIT__FN void sbit__ctx_set_kernels(sbit_ctx *ctx, const void *kernels)
{
    ctx->kernels = kernels;
}

SPARSEBIT_API void sbit_ctx_parallel(sbit_ctx *ctx, int64_t count, sbit_task_fn fn, void *task)
{
    if (count > 1 && ctx->parallel_for != NULL) {
        ctx->parallel_for(count, fn, task, ctx->parallel_user);
        return;
    }
#if !SPARSEBIT_NO_THREADS
    if (count > 1 && ctx->pool != NULL) {
        sbit__pool_run(ctx->pool, count, fn, task);
        return;
    }
#endif
    for (int64_t i = 0; i < count; i++) {
        fn(task, i, 0);
    }
}

/* >>log, progress, clock */
SBIT__FN void sbit__log(sbit_ctx *ctx, sbit_log_level level, const char *format, ...)
{
    if (ctx->logger.log_fn == NULL) {
        return;
    }
    char message[1024];
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (size >= 0) {
        ctx->logger.log_fn(level, message, ctx->logger.user);
    }
}

SBIT__FN sbit_status sbit__progress(sbit_ctx *ctx, const char *what, int64_t done, int64_t total,
                                    sbit_error *error)
{
    if (ctx->progress.progress_fn == NULL ||
        ctx->progress.progress_fn(what, done, total, ctx->progress.user)) {
        return SBIT_OK;
    }
    return sbit__fail(error, SBIT_ERR_CANCELLED, what, "%s was cancelled at %lld of %lld", what,
                      (long long)done, (long long)total);
}

SBIT__FN uint64_t sbit__now_ns(void)
{
#if defined(_WIN32)
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    const uint64_t rate = (uint64_t)per_second.QuadPart, now = (uint64_t)ticks.QuadPart;
    return now / rate * 1000000000u + now % rate * 1000000000u / rate;
#elif defined(CLOCK_MONOTONIC)
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#elif defined(__unix__) || defined(__APPLE__)
    struct timeval now;
    if (gettimeofday(&now, NULL) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_usec * 1000u;
#else
    return (uint64_t)clock() * (1000000000u / (uint64_t)CLOCKS_PER_SEC);
#endif
}

/* >>registries */
SBIT__FN sbit_status sbit__registry_add(sbit_ctx *ctx, enum sbit__registry_kind kind,
                                        const void *row, sbit_error *error)
{
    sbit__registry *registry = &ctx->registries[kind];
    void *rows = (void *)registry->rows;
    const sbit_status status = sbit__grow(&ctx->allocator, &rows, &registry->capacity,
                                          registry->count + 1, sizeof(registry->rows[0]), error);
    registry->rows = (const void **)rows;
    if (status != SBIT_OK) {
        return status;
    }
    registry->rows[registry->count++] = row;
    return SBIT_OK;
}

SBIT__FN const void *const *sbit__registry_rows(const sbit_ctx *ctx, enum sbit__registry_kind kind,
                                                size_t *count)
{
    *count = ctx->registries[kind].count;
    return ctx->registries[kind].rows;
}

#undef SBIT__CONTEXT_X86
/* ---- end src/core/context.c ---- */

/* ---- begin src/core/threads.c ---- */
/* threads.c: the library's own pool of threads. >>threads
 *
 * Called by: sbit_ctx_parallel. Calls: pthreads or Windows threads.
 * Does: one parallel loop at a time. The indices are cut into equal pieces that the threads take in
 * turn from a counter. A loop that is started while the pool is busy (from inside a loop, or by
 * another thread) runs on the thread that started it, so nothing can wait for itself.
 * Does not: steal work, grow, or order the pieces.
 *
 * A job opens when `generation` is raised and closes when the caller has found the counter
 * exhausted. A worker joins an open job under the mutex; the caller waits only for those that
 * joined, never for a worker that is still asleep. Between jobs a worker first spins for some
 * microseconds, because the next operator of a network usually follows at once, then sleeps.
 */

#if !SPARSEBIT_NO_THREADS

#if defined(_WIN32)
#include <windows.h> /* threads, SRW locks, condition variables */
#else
#include <pthread.h> /* threads, mutexes, condition variables */
#endif

enum {
    SBIT__POOL_SPINS = 2000,
    SBIT__POOL_PIECES_PER_THREAD = 8
};

/* >>system layer: the few calls that differ between POSIX and Windows. */
#if defined(_WIN32)
typedef SRWLOCK sbit__mutex;
typedef CONDITION_VARIABLE sbit__cond;
typedef HANDLE sbit__thread;
#define SBIT__POOL_THREAD_RESULT DWORD WINAPI
#define SBIT__POOL_THREAD_DONE 0

static bool sbit__mutex_init(sbit__mutex *mutex)
{
    InitializeSRWLock(mutex);
    return true;
}
static void sbit__mutex_deinit(sbit__mutex *mutex)
{
    (void)mutex;
}
static void sbit__mutex_lock(sbit__mutex *mutex)
{
    AcquireSRWLockExclusive(mutex);
}
static bool sbit__mutex_try(sbit__mutex *mutex)
{
    return TryAcquireSRWLockExclusive(mutex) != 0;
}
static void sbit__mutex_unlock(sbit__mutex *mutex)
{
    ReleaseSRWLockExclusive(mutex);
}
static bool sbit__cond_init(sbit__cond *cond)
{
    InitializeConditionVariable(cond);
    return true;
}
static void sbit__cond_deinit(sbit__cond *cond)
{
    (void)cond;
}
static void sbit__cond_wait(sbit__cond *cond, sbit__mutex *mutex)
{
    SleepConditionVariableSRW(cond, mutex, INFINITE, 0);
}
static void sbit__cond_wake_all(sbit__cond *cond)
{
    WakeAllConditionVariable(cond);
}
#else
typedef pthread_mutex_t sbit__mutex;
typedef pthread_cond_t sbit__cond;
typedef pthread_t sbit__thread;
#define SBIT__POOL_THREAD_RESULT void *
#define SBIT__POOL_THREAD_DONE NULL

static bool sbit__mutex_init(sbit__mutex *mutex)
{
    return pthread_mutex_init(mutex, NULL) == 0;
}
static void sbit__mutex_deinit(sbit__mutex *mutex)
{
    pthread_mutex_destroy(mutex);
}
static void sbit__mutex_lock(sbit__mutex *mutex)
{
    pthread_mutex_lock(mutex);
}
static bool sbit__mutex_try(sbit__mutex *mutex)
{
    return pthread_mutex_trylock(mutex) == 0;
}
static void sbit__mutex_unlock(sbit__mutex *mutex)
{
    pthread_mutex_unlock(mutex);
}
static bool sbit__cond_init(sbit__cond *cond)
{
    return pthread_cond_init(cond, NULL) == 0;
}
static void sbit__cond_deinit(sbit__cond *cond)
{
    pthread_cond_destroy(cond);
}
static void sbit__cond_wait(sbit__cond *cond, sbit__mutex *mutex)
{
    pthread_cond_wait(cond, mutex);
}
static void sbit__cond_wake_all(sbit__cond *cond)
{
    pthread_cond_broadcast(cond);
}
#endif

/* A counter shared by threads. */
typedef struct sbit__counter {
#if defined(_WIN32)
    volatile LONG value;
#else
    int32_t value;
#endif
} sbit__counter;

static int32_t sbit__counter_get(sbit__counter *counter)
{
#if defined(_WIN32)
    return (int32_t)InterlockedCompareExchange(&counter->value, 0, 0);
#else
    return __atomic_load_n(&counter->value, __ATOMIC_ACQUIRE);
#endif
}

static void sbit__counter_set(sbit__counter *counter, int32_t value)
{
#if defined(_WIN32)
    InterlockedExchange(&counter->value, (LONG)value);
#else
    __atomic_store_n(&counter->value, value, __ATOMIC_RELEASE);
#endif
}

/* Returns the value before. */
static int32_t sbit__counter_add(sbit__counter *counter, int32_t delta)
{
#if defined(_WIN32)
    return (int32_t)InterlockedExchangeAdd(&counter->value, (LONG)delta);
#else
    return __atomic_fetch_add(&counter->value, delta, __ATOMIC_ACQ_REL);
#endif
}

/* Tells the CPU that a loop is waiting for another thread. */
static void sbit__pool_pause(void)
{
#if defined(_WIN32)
    YieldProcessor();
#elif defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* >>pool */
typedef struct sbit__pool_worker {
    struct sbit__pool *pool;
    sbit__thread thread;
    int32_t worker; /* 1.. ; the caller of a loop is worker 0 */
} sbit__pool_worker;

struct sbit__pool {
    sbit_allocator allocator;
    int32_t worker_count; /* running threads, the caller not counted */
    sbit__pool_worker workers[SBIT__MAX_THREADS - 1];
    sbit__mutex busy;  /* held by the caller of the running loop */
    sbit__mutex mutex; /* guards all below but the counters' reads */
    sbit__cond wake, done;
    sbit__counter generation; /* raised for each job, and to quit */
    sbit__counter next_piece;
    sbit__counter joined; /* workers inside the open job */
    bool open, quit;
    int32_t piece_count;
    int64_t count, piece_size;
    sbit_task_fn fn;
    void *task;
};

static void sbit__pool_work(struct sbit__pool *pool, int32_t worker)
{
    for (;;) {
        const int32_t piece = sbit__counter_add(&pool->next_piece, 1);
        if (piece >= pool->piece_count) {
            return;
        }
        const int64_t begin = (int64_t)piece * pool->piece_size;
        const int64_t left = pool->count - begin;
        const int64_t end = begin + (left < pool->piece_size ? left : pool->piece_size);
        for (int64_t i = begin; i < end; i++) {
            pool->fn(pool->task, i, worker);
        }
    }
}

/* Waits until a job other than number `seen` has been opened. True if it is still open: then the
 * caller has joined it. */
static bool sbit__pool_await(struct sbit__pool *pool, int32_t *seen, bool *quit)
{
    for (int spin = 0; spin < SBIT__POOL_SPINS; spin++) {
        if (sbit__counter_get(&pool->generation) != *seen) {
            break;
        }
        sbit__pool_pause();
    }
    sbit__mutex_lock(&pool->mutex);
    while (sbit__counter_get(&pool->generation) == *seen) {
        sbit__cond_wait(&pool->wake, &pool->mutex);
    }
    *seen = sbit__counter_get(&pool->generation);
    *quit = pool->quit;
    const bool join = pool->open && !pool->quit;
    if (join) {
        sbit__counter_add(&pool->joined, 1);
    }
    sbit__mutex_unlock(&pool->mutex);
    return join;
}

static SBIT__POOL_THREAD_RESULT sbit__pool_main(void *argument)
{
    sbit__pool_worker *self = (sbit__pool_worker *)argument;
    struct sbit__pool *pool = self->pool;
    int32_t seen = 0;
    bool quit = false;
    while (!quit) {
        if (!sbit__pool_await(pool, &seen, &quit)) {
            continue;
        }
        sbit__pool_work(pool, self->worker);
        sbit__mutex_lock(&pool->mutex);
        if (sbit__counter_add(&pool->joined, -1) == 1) {
            sbit__cond_wake_all(&pool->done);
        }
        sbit__mutex_unlock(&pool->mutex);
    }
    return SBIT__POOL_THREAD_DONE;
}

static void sbit__pool_open_job(struct sbit__pool *pool, int64_t count, sbit_task_fn fn, void *task)
{
    const int64_t most_pieces = (int64_t)(pool->worker_count + 1) * SBIT__POOL_PIECES_PER_THREAD;
    const int64_t piece_size = count / most_pieces + (count % most_pieces != 0 ? 1 : 0);
    sbit__mutex_lock(&pool->mutex);
    pool->fn = fn;
    pool->task = task;
    pool->count = count;
    pool->piece_size = piece_size;
    pool->piece_count = (int32_t)(count / piece_size + (count % piece_size != 0 ? 1 : 0));
    sbit__counter_set(&pool->next_piece, 0);
    pool->open = true;
    /* Wraps around harmlessly: only "another number than before" matters. */
    sbit__counter_set(&pool->generation, (sbit__counter_get(&pool->generation) + 1) & 0x7fffffff);
    sbit__cond_wake_all(&pool->wake);
    sbit__mutex_unlock(&pool->mutex);
}

static void sbit__pool_close_job(struct sbit__pool *pool)
{
    sbit__mutex_lock(&pool->mutex);
    pool->open = false;
    sbit__mutex_unlock(&pool->mutex);
    for (int spin = 0; spin < SBIT__POOL_SPINS; spin++) {
        if (sbit__counter_get(&pool->joined) == 0) {
            return;
        }
        sbit__pool_pause();
    }
    sbit__mutex_lock(&pool->mutex);
    while (sbit__counter_get(&pool->joined) != 0) {
        sbit__cond_wait(&pool->done, &pool->mutex);
    }
    sbit__mutex_unlock(&pool->mutex);
}

SBIT__FN void sbit__pool_run(struct sbit__pool *pool, int64_t count, sbit_task_fn fn, void *task)
{
    if (!sbit__mutex_try(&pool->busy)) {
        for (int64_t i = 0; i < count; i++) {
            fn(task, i, 0);
        }
        return;
    }
    sbit__pool_open_job(pool, count, fn, task);
    sbit__pool_work(pool, 0);
    sbit__pool_close_job(pool);
    sbit__mutex_unlock(&pool->busy);
}

/* >>start and stop */
static bool sbit__pool_start_worker(struct sbit__pool *pool)
{
    sbit__pool_worker *worker = &pool->workers[pool->worker_count];
    worker->pool = pool;
    worker->worker = pool->worker_count + 1;
#if defined(_WIN32)
    worker->thread = CreateThread(NULL, 0, sbit__pool_main, worker, 0, NULL);
    if (worker->thread == NULL) {
        return false;
    }
#else
    if (pthread_create(&worker->thread, NULL, sbit__pool_main, worker) != 0) {
        return false;
    }
#endif
    pool->worker_count++;
    return true;
}

static bool sbit__pool_init_sync(struct sbit__pool *pool)
{
    if (!sbit__mutex_init(&pool->busy)) {
        return false;
    }
    if (!sbit__mutex_init(&pool->mutex)) {
        sbit__mutex_deinit(&pool->busy);
        return false;
    }
    if (!sbit__cond_init(&pool->wake)) {
        sbit__mutex_deinit(&pool->mutex);
        sbit__mutex_deinit(&pool->busy);
        return false;
    }
    if (!sbit__cond_init(&pool->done)) {
        sbit__cond_deinit(&pool->wake);
        sbit__mutex_deinit(&pool->mutex);
        sbit__mutex_deinit(&pool->busy);
        return false;
    }
    return true;
}

SBIT__FN sbit_status sbit__pool_create(const sbit_allocator *allocator, int32_t threads,
                                       struct sbit__pool **out, sbit_error *error)
{
    struct sbit__pool *pool = (struct sbit__pool *)sbit__calloc(allocator, 1, sizeof(*pool));
    if (pool == NULL) {
        return sbit__fail_oom(error, sizeof(*pool));
    }
    pool->allocator = *allocator;
    if (!sbit__pool_init_sync(pool)) {
        sbit__free(allocator, pool, sizeof(*pool));
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "the system has no more mutexes");
    }
    for (int32_t i = 1; i < threads; i++) {
        if (!sbit__pool_start_worker(pool)) {
            sbit__pool_destroy(pool);
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "thread %ld of %ld cannot be started",
                              (long)i + 1, (long)threads);
        }
    }
    *out = pool;
    return SBIT_OK;
}

SBIT__FN void sbit__pool_destroy(struct sbit__pool *pool)
{
    if (pool == NULL) {
        return;
    }
    sbit__mutex_lock(&pool->mutex);
    pool->quit = true;
    sbit__counter_set(&pool->generation, (sbit__counter_get(&pool->generation) + 1) & 0x7fffffff);
    sbit__cond_wake_all(&pool->wake);
    sbit__mutex_unlock(&pool->mutex);
    for (int32_t i = 0; i < pool->worker_count; i++) {
#if defined(_WIN32)
        WaitForSingleObject(pool->workers[i].thread, INFINITE);
        CloseHandle(pool->workers[i].thread);
#else
        pthread_join(pool->workers[i].thread, NULL);
#endif
    }
    sbit__cond_deinit(&pool->done);
    sbit__cond_deinit(&pool->wake);
    sbit__mutex_deinit(&pool->mutex);
    sbit__mutex_deinit(&pool->busy);
    const sbit_allocator allocator = pool->allocator;
    sbit__free(&allocator, pool, sizeof(*pool));
}

#undef SBIT__POOL_THREAD_RESULT
#undef SBIT__POOL_THREAD_DONE

#endif /* !SPARSEBIT_NO_THREADS */
/* ---- end src/core/threads.c ---- */

/* ---- begin src/core/rng.c ---- */
/* rng.c: random numbers that are the same on every machine. >>rng
 *
 * Called by: users, data shuffling, weight initialisation, training. Calls: libm's sqrt only.
 * Does: PCG32 (O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
 * Algorithms for Random Number Generation", variant XSH-RR 64/32) on the stream 54 of its
 * published demonstration; bounded, uniform and normal numbers.
 * Does not: need libm's log or cos, whose last bits differ between systems.
 */

#include <math.h> /* sqrt: exactly rounded by IEEE 754, hence the same everywhere */

static const uint64_t sbit__rng_multiplier = 6364136223846793005u;
static const uint64_t sbit__rng_increment = (54u << 1) | 1u;

SPARSEBIT_API uint32_t sbit_rng_next(sbit_rng *rng)
{
    const uint64_t old = rng->state;
    const uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    const uint32_t rotation = (uint32_t)(old >> 59);
    rng->state = old * sbit__rng_multiplier + sbit__rng_increment;
    return (shifted >> rotation) | (shifted << ((32u - rotation) & 31u));
}

SPARSEBIT_API sbit_rng sbit_rng_seed(uint64_t seed)
{
    sbit_rng rng;
    rng.state = sbit__rng_increment + seed;
    (void)sbit_rng_next(&rng);
    return rng;
}

/* Numbers below 2^32 mod bound are drawn again, so that each residue is equally likely. */
SPARSEBIT_API uint32_t sbit_rng_below(sbit_rng *rng, uint32_t bound)
{
    SPARSEBIT_ASSERT(bound >= 1);
    const uint32_t threshold = (0u - bound) % bound;
    for (;;) {
        const uint32_t drawn = sbit_rng_next(rng);
        if (drawn >= threshold) {
            return drawn % bound;
        }
    }
}

SPARSEBIT_API float sbit_rng_uniform(sbit_rng *rng)
{
    return (float)(sbit_rng_next(rng) >> 8) * (1.0f / 16777216.0f);
}

/* Natural logarithm for 0 < x < 1: x = m * 2^e with m near 1, and with z = (m - 1)/(m + 1)
 * ln m = 2 (z + z^3/3 + z^5/5 + ...), |z| < 0.172: 10 terms are below 2^-53. */
static double sbit__rng_log(double x)
{
    int exponent = 0;
    while (x < 0.70710678118654752) {
        x *= 2.0;
        exponent--;
    }
    const double z = (x - 1.0) / (x + 1.0);
    const double z2 = z * z;
    double sum = 0.0;
    for (int k = 21; k >= 1; k -= 2) {
        sum = sum * z2 + 1.0 / (double)k;
    }
    return 2.0 * z * sum + (double)exponent * 0.69314718055994531;
}

/* Marsaglia's polar method; of the pair it makes, one number is used, to keep the state small. */
SPARSEBIT_API float sbit_rng_normal(sbit_rng *rng)
{
    for (;;) {
        const double u = (double)sbit_rng_next(rng) * (2.0 / 4294967296.0) - 1.0;
        const double v = (double)sbit_rng_next(rng) * (2.0 / 4294967296.0) - 1.0;
        const double s = u * u + v * v;
        if (s > 0.0 && s < 1.0) {
            return (float)(u * sqrt(-2.0 * sbit__rng_log(s) / s));
        }
    }
}
/* ---- end src/core/rng.c ---- */

/* ---- begin src/core/tensor.c ---- */
/* tensor.c: dense tensors, half precision, TensorProto files. >>tensor
 *
 * Called by: users and every later layer. Calls: the codec for .pb files and model tensors.
 * Does: allocate, measure, copy and describe tensors; convert float16 and bfloat16; move elements
 * between TensorProto and memory.
 * Does not: know strides or views: a tensor is always dense and row-major.
 *
 * Blocks of sbit_tensor_alloc are 64-byte aligned. A string tensor's block has 64 bytes in front
 * that hold its size, since text of any length may follow the elements:
 *     [size_t bytes | pad to 64][sbit_str x count][text]      data points at the first sbit_str
 * binary16: sign 1, exponent 5 (bias 15), fraction 10. bfloat16: the upper half of binary32.
 */

enum {
    SBIT__TENSOR_STRING_HEADER = 64
};

/* >>measure */
SPARSEBIT_API int64_t sbit_tensor_count(const sbit_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++) {
        count *= tensor->dims[i];
    }
    return count;
}

SPARSEBIT_API size_t sbit_tensor_bytes(const sbit_tensor *tensor)
{
    size_t bytes = 0;
    const int64_t count = sbit_tensor_count(tensor);
    if (tensor->dtype == SBIT_STRING) {
        return (size_t)count * sizeof(sbit_str);
    }
    return sbit_dtype_bytes((int32_t)tensor->dtype, count, &bytes) ? bytes : 0;
}

SPARSEBIT_API bool sbit_tensor_same_shape(const sbit_tensor *a, const sbit_tensor *b)
{
    if (a->rank != b->rank) {
        return false;
    }
    for (int32_t i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) {
            return false;
        }
    }
    return true;
}

SPARSEBIT_API void sbit_tensor_describe(const sbit_tensor *tensor, char *text, size_t size)
{
    if (size == 0) {
        return;
    }
    int wrote = snprintf(text, size, "%s[", sbit_dtype_name((int32_t)tensor->dtype));
    size_t used = wrote > 0 ? (size_t)wrote : 0;
    for (int32_t i = 0; i < tensor->rank && used < size; i++) {
        wrote = snprintf(text + used, size - used, "%s%lld", i == 0 ? "" : ",",
                         (long long)tensor->dims[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

SBIT__FN size_t sbit__dtype_align(sbit_dtype dtype)
{
    if (dtype == SBIT_STRING) {
        return sizeof(void *);
    }
    switch (sbit_dtype_bits((int32_t)dtype)) {
    case 16:
        return 2;
    case 32:
        return 4;
    case 64:
    case 128:
        return dtype == SBIT_C64 ? 4 : 8;
    default:
        return 1;
    }
}

/* >>allocate */

/* Fills dtype, rank and dims after checking them; *count gets the number of elements. */
static sbit_status sbit__tensor_set_shape(sbit_tensor *tensor, sbit_dtype dtype, int32_t rank,
                                          const int64_t *dims, int64_t *count, sbit_error *error)
{
    if (rank < 0 || rank > SBIT_MAX_RANK) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "rank %ld is not in 0..%d", (long)rank,
                          SBIT_MAX_RANK);
    }
    memset(tensor, 0, sizeof(*tensor));
    tensor->dtype = dtype;
    tensor->rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return sbit__fail(error, SBIT_ERR_SHAPE, NULL, "dimension %ld is negative: %lld",
                              (long)i, (long long)dims[i]);
        }
        tensor->dims[i] = dims[i];
    }
    if (!sbit__dims_count(tensor->dims, (size_t)rank, count)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the number of elements of a tensor of rank %ld overflows", (long)rank);
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_alloc_strings(sbit_ctx *ctx, int32_t rank, const int64_t *dims,
                                                size_t text_bytes, sbit_tensor *out, char **text,
                                                sbit_error *error)
{
    sbit_tensor tensor;
    int64_t count = 0;
    size_t bytes = 0;
    SBIT__TRY(sbit__tensor_set_shape(&tensor, SBIT_STRING, rank, dims, &count, error));
    if ((uint64_t)count > SIZE_MAX / sizeof(sbit_str) ||
        !sbit__add_size((size_t)count * sizeof(sbit_str), text_bytes, &bytes) ||
        !sbit__add_size(bytes, SBIT__TENSOR_STRING_HEADER, &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a tensor of %lld strings is too large",
                          (long long)count);
    }
    char *block = (char *)sbit__alloc_aligned(&ctx->allocator, bytes);
    if (block == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memset(block, 0, bytes);
    memcpy(block, &bytes, sizeof(bytes));
    tensor.data = block + SBIT__TENSOR_STRING_HEADER;
    *text = block + SBIT__TENSOR_STRING_HEADER + (size_t)count * sizeof(sbit_str);
    *out = tensor;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_tensor_alloc(sbit_ctx *ctx, sbit_dtype dtype, int32_t rank,
                                            const int64_t *dims, sbit_tensor *out,
                                            sbit_error *error)
{
    sbit_tensor tensor;
    int64_t count = 0;
    size_t bytes = 0;
    char *text = NULL;
    if (dtype == SBIT_STRING) {
        return sbit__tensor_alloc_strings(ctx, rank, dims, 0, out, &text, error);
    }
    SBIT__TRY(sbit__tensor_set_shape(&tensor, dtype, rank, dims, &count, error));
    if (sbit_dtype_bits((int32_t)dtype) == 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL, "a tensor of type %s has no size",
                          sbit_dtype_name((int32_t)dtype));
    }
    if (!sbit_dtype_bytes((int32_t)dtype, count, &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a tensor of %lld elements is too large",
                          (long long)count);
    }
    tensor.data = sbit__alloc_aligned(&ctx->allocator, bytes);
    if (tensor.data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memset(tensor.data, 0, bytes);
    *out = tensor;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_tensor_free(sbit_ctx *ctx, sbit_tensor *tensor)
{
    if (tensor == NULL) {
        return;
    }
    if (tensor->data != NULL && tensor->dtype == SBIT_STRING) {
        char *block = (char *)tensor->data - SBIT__TENSOR_STRING_HEADER;
        size_t bytes = 0;
        memcpy(&bytes, block, sizeof(bytes));
        sbit__free_aligned(&ctx->allocator, block, bytes);
    } else if (tensor->data != NULL) {
        sbit__free_aligned(&ctx->allocator, tensor->data, sbit_tensor_bytes(tensor));
    }
    memset(tensor, 0, sizeof(*tensor));
}

/* A string tensor holding copies of `count` texts, each followed by a NUL. */
static sbit_status sbit__tensor_copy_strings(sbit_ctx *ctx, int32_t rank, const int64_t *dims,
                                             const sbit_str *strings, int64_t count,
                                             sbit_tensor *out, sbit_error *error)
{
    size_t text_bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!sbit__add_size(text_bytes, strings[i].size, &text_bytes) ||
            !sbit__add_size(text_bytes, 1, &text_bytes)) {
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "the text of a tensor is too large");
        }
    }
    char *text = NULL;
    SBIT__TRY(sbit__tensor_alloc_strings(ctx, rank, dims, text_bytes, out, &text, error));
    sbit_str *copies = (sbit_str *)out->data;
    for (int64_t i = 0; i < count; i++) {
        if (strings[i].size != 0) {
            memcpy(text, strings[i].data, strings[i].size);
        }
        copies[i].data = text;
        copies[i].size = strings[i].size;
        text += strings[i].size + 1;
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_copy(sbit_ctx *ctx, const sbit_tensor *tensor, sbit_tensor *out,
                                       sbit_error *error)
{
    sbit_tensor copy;
    if (tensor->dtype == SBIT_STRING) {
        return sbit__tensor_copy_strings(ctx, tensor->rank, tensor->dims,
                                         (const sbit_str *)tensor->data, sbit_tensor_count(tensor),
                                         out, error);
    }
    SBIT__TRY(sbit_tensor_alloc(ctx, tensor->dtype, tensor->rank, tensor->dims, &copy, error));
    const size_t bytes = sbit_tensor_bytes(tensor);
    if (bytes != 0) {
        memcpy(copy.data, tensor->data, bytes);
    }
    *out = copy;
    return SBIT_OK;
}

/* >>TensorProto */
static sbit_status sbit__tensor_strings_from_onnx(sbit_ctx *ctx, const sbit_onnx_tensor *source,
                                                  sbit_tensor *out, bool *owned, sbit_error *error)
{
    int64_t count = 0;
    SBIT__TRY(sbit_onnx_tensor_count(source, &count, error));
    if ((uint64_t)count != source->string_data_count) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, source->name.data,
                          "tensor '%s' has %llu strings, its dims say %lld", source->name.data,
                          (unsigned long long)source->string_data_count, (long long)count);
    }
    SBIT__TRY(sbit__tensor_copy_strings(ctx, (int32_t)source->dims_count, source->dims,
                                        source->string_data, count, out, error));
    *owned = true;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_from_onnx(sbit_ctx *ctx, sbit_onnx_doc *doc,
                                            const sbit_onnx_tensor *source, sbit_tensor *out,
                                            bool *owned, sbit_error *error)
{
    const char *name = source->name.data != NULL ? source->name.data : "";
    sbit_tensor tensor;
    int64_t count = 0;
    sbit_str bytes = {NULL, 0};
    if (source->dims_count > SBIT_MAX_RANK) {
        return sbit__fail(error, SBIT_ERR_LIMIT, name, "tensor '%s' has rank %llu, at most %d work",
                          name, (unsigned long long)source->dims_count, SBIT_MAX_RANK);
    }
    if (source->data_type == SBIT_STRING) {
        return sbit__tensor_strings_from_onnx(ctx, source, out, owned, error);
    }
    if (sbit_dtype_bits(source->data_type) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                          "tensor '%s' has the unknown element type %ld", name,
                          (long)source->data_type);
    }
    const sbit_dtype dtype = (sbit_dtype)source->data_type;
    SBIT__TRY(sbit_onnx_tensor_data(doc, source, &bytes, error));
    SBIT__TRY(sbit__tensor_set_shape(&tensor, dtype, (int32_t)source->dims_count, source->dims,
                                     &count, error));
    if (bytes.size == 0 || (uintptr_t)bytes.data % sbit__dtype_align(dtype) == 0) {
        /* Constants are never written through; data is not const so that owners can fill it. */
        memcpy(&tensor.data, &bytes.data, sizeof(tensor.data));
        *owned = false;
    } else {
        SBIT__TRY(sbit_tensor_alloc(ctx, dtype, tensor.rank, tensor.dims, &tensor, error));
        memcpy(tensor.data, bytes.data, bytes.size);
        *owned = true;
    }
    *out = tensor;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_to_onnx(sbit_onnx_doc *doc, const char *name,
                                          const sbit_tensor *tensor, sbit_onnx_tensor *out,
                                          sbit_error *error)
{
    const size_t rank = (size_t)tensor->rank;
    memset(out, 0, sizeof(*out));
    if (rank != 0) {
        out->dims = (int64_t *)sbit_onnx_alloc(doc, rank, sizeof(int64_t));
        if (out->dims == NULL) {
            return sbit__fail_oom(error, rank * sizeof(int64_t));
        }
        memcpy(out->dims, tensor->dims, rank * sizeof(int64_t));
        out->dims_count = rank;
    }
    SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, (int32_t)tensor->dtype);
    if (name != NULL && name[0] != '\0') {
        sbit_str copy = {NULL, 0};
        SBIT__TRY(sbit_onnx_text(doc, name, strlen(name), &copy, error));
        SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_NAME, name, copy);
    }
    if (tensor->dtype == SBIT_STRING) {
        out->string_data = (sbit_str *)tensor->data;
        out->string_data_count = (size_t)sbit_tensor_count(tensor);
        return SBIT_OK;
    }
    sbit_str bytes;
    bytes.data = (const char *)tensor->data;
    bytes.size = sbit_tensor_bytes(tensor);
    if (!sbit__onnx_host_is_little()) {
        SBIT__TRY(sbit__onnx_swapped(&doc->arena, (int32_t)tensor->dtype, &bytes, error));
    }
    SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_RAW_DATA, raw_data, bytes);
    return SBIT_OK;
}

static sbit_status sbit__tensor_read_doc(sbit_ctx *ctx, sbit_onnx_doc *doc, sbit_tensor *out,
                                         sbit_error *error)
{
    sbit_tensor tensor;
    bool owned = false;
    const sbit_onnx_tensor *source = (const sbit_onnx_tensor *)sbit_onnx_doc_root(doc);
    SBIT__TRY(sbit__tensor_from_onnx(ctx, doc, source, &tensor, &owned, error));
    if (!owned) {
        const sbit_tensor borrowed = tensor;
        SBIT__TRY(sbit__tensor_copy(ctx, &borrowed, &tensor, error));
    }
    *out = tensor;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_tensor_load_pb(sbit_ctx *ctx, const char *path, sbit_tensor *out,
                                              sbit_error *error)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    memset(&desc, 0, sizeof(desc));
    desc.allocator = ctx->allocator;
    desc.kind = SBIT_ONNX_TENSOR;
    SBIT__TRY(sbit_onnx_load(path, &desc, &doc, error));
    const sbit_status status = sbit__tensor_read_doc(ctx, doc, out, error);
    sbit_onnx_destroy(doc);
    return status;
}

SPARSEBIT_API sbit_status sbit_tensor_save_pb(sbit_ctx *ctx, const char *path, const char *name,
                                              const sbit_tensor *tensor, sbit_error *error)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    memset(&desc, 0, sizeof(desc));
    desc.allocator = ctx->allocator;
    desc.kind = SBIT_ONNX_TENSOR;
    SBIT__TRY(sbit_onnx_create(&desc, &doc, error));
    sbit_status status =
        sbit__tensor_to_onnx(doc, name, tensor, (sbit_onnx_tensor *)sbit_onnx_doc_root(doc), error);
    if (status == SBIT_OK) {
        status = sbit_onnx_save(doc, path, NULL, error);
    }
    sbit_onnx_destroy(doc);
    return status;
}

/* >>half precision */
static uint32_t sbit__f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float sbit__f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

SPARSEBIT_API float sbit_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = (uint32_t)(bits >> 10) & 0x1fu;
    const uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1fu) { /* infinity and NaN */
        return sbit__f32_from_bits(sign | 0x7f800000u | (fraction << 13));
    }
    if (exponent == 0) { /* zero and subnormal: fraction * 2^-24, exact in binary32 */
        const float magnitude = (float)fraction * (1.0f / 16777216.0f);
        return sbit__f32_from_bits(sign | sbit__f32_bits(magnitude));
    }
    return sbit__f32_from_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

/* `value` >> `shift`, rounded half to even; shift 1..31. */
static uint32_t sbit__shift_round_even(uint32_t value, uint32_t shift)
{
    const uint32_t half = 1u << (shift - 1u);
    const uint32_t rest = value & ((half << 1) - 1u);
    const uint32_t floor = value >> shift;
    return floor + ((rest > half || (rest == half && (floor & 1u) != 0)) ? 1u : 0u);
}

SPARSEBIT_API uint16_t sbit_f32_to_f16(float value)
{
    const uint32_t bits = sbit__f32_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { /* NaN: keep what fits of the payload, stay quiet */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x47800000u) { /* 65536 and above, infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        const uint32_t exponent = magnitude >> 23;
        if (exponent < 102u) { /* below 2^-25 */
            return (uint16_t)sign;
        }
        const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        return (uint16_t)(sign | sbit__shift_round_even(mantissa, 126u - exponent));
    }
    /* A carry out of the fraction raises the exponent, up to infinity: that is the rounding. */
    return (uint16_t)(sign | sbit__shift_round_even(magnitude - (112u << 23), 13u));
}

SPARSEBIT_API float sbit_bf16_to_f32(uint16_t bits)
{
    return sbit__f32_from_bits((uint32_t)bits << 16);
}

SPARSEBIT_API uint16_t sbit_f32_to_bf16(float value)
{
    const uint32_t bits = sbit__f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { /* NaN: rounding could turn it into infinity */
        return (uint16_t)((bits >> 16) | 0x40u);
    }
    return (uint16_t)sbit__shift_round_even(bits, 16u);
}
/* ---- end src/core/tensor.c ---- */

#endif /* SPARSEBIT_IMPLEMENTED */
#endif /* SPARSEBIT_IMPLEMENTATION */

/*
MIT License

Copyright (c) sparsebit authors

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
