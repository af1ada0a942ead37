/* ops_api.h: the operator row: all that the system knows of one operator. >>ops
 *
 * Called by: infer (infer), exec (prepare, run), passes, quant (quant), sparse (channel),
 * grad (gradient), the support table. Calls: graph, kernels.
 * A new operator is one row and its functions: put both in a family file of src/ops (or register
 * the row from outside with sbit_operator_register) and every part of the system knows it.
 * Rows never call the executor: bodies of control-flow operators run through call->run_body.
 */
#ifndef SBIT_OPS_API_H
#define SBIT_OPS_API_H

#include "../graph/graph_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>extend */

typedef struct sbit_op_call sbit_op_call;
typedef struct sbit_op_row sbit_op_row;
typedef struct sbit_gradient sbit_gradient;
struct sbit_kernels;

/* What an operator does to activations in front of, and behind, a quantizer. */
enum {
    SBIT_QUANT_INPUTS = 1,        /* generic profiles quantize the activation inputs ... */
    SBIT_QUANT_OUTPUT = 2,        /* ... and the output */
    SBIT_QUANT_PASS_SCALE = 4,    /* output has input 0's values: MaxPool, Reshape, Transpose */
    SBIT_QUANT_SHARE_SCALE = 8,   /* all inputs and the output share one scale: Concat */
    SBIT_QUANT_FIXED_RANGE = 16,  /* output lies in range_min..range_max whatever the data */
    SBIT_QUANT_TENSOR_ONLY = 32,  /* only if no input is a constant: Add, Mul ... of tensors */
    SBIT_QUANT_RECURRENT = 256,   /* weights per gate row through DequantizeLinear */
    SBIT_QUANT_KEEP_FLOAT = 512,  /* never between quantizers: LayerNormalization ... */
    SBIT_QUANT_PASS_NEAREST = 1024 /* only passes values through if attribute mode is nearest (the
                                      default), else as the other flags say: Resize */
};

typedef struct sbit_op_quant {
    uint32_t flags;
    uint32_t activations; /* bit i: input i is an activation */
    int8_t weight, weight2, bias; /* input numbers, -1: none; weight counts if it is constant */
    int8_t out_axis, in_axis;     /* of the weight; negative counts from the end */
    const char *transpose_attr;   /* non-zero integer attribute: the two axes change places */
    float range_min, range_max;
} sbit_op_quant;

/* >>channels: how channels go through an operator; pruning asks. It gives every position of every
 * activation a label; labels that are found to be one channel are joined. Labels of weights belong
 * to (constant, axis, index), so that tied weights agree. Shapes are numbers while it does so. */
typedef enum sbit_channel_kind {
    SBIT_CHANNEL_STOPS = 0,   /* all inputs keep all their channels */
    SBIT_CHANNEL_MOVES,       /* places elements elsewhere: the row itself is run on labels */
    SBIT_CHANNEL_ELEMENTWISE, /* equal positions, after broadcasting, are one channel */
    SBIT_CHANNEL_KEEPS,       /* axis 1 goes through, the axes behind it are mixed */
    SBIT_CHANNEL_PER_CHANNEL, /* likewise, and `params` have one entry per channel */
    SBIT_CHANNEL_OWN          /* label() says */
} sbit_channel_kind;

/* What a constant is to the channels along one of its axes. */
typedef enum sbit_channel_role {
    SBIT_ROLE_PARAM = 0, /* only cut: means, slopes */
    SBIT_ROLE_ROWS,      /* makes the channel: its mask sets them to zero */
    SBIT_ROLE_FILTER,    /* likewise, of a channel that another layer makes (depthwise) */
    SBIT_ROLE_BIAS,      /* set to zero too, unless biases are kept */
    SBIT_ROLE_SCALE,     /* of a normalization; likewise */
    SBIT_ROLE_COLUMNS    /* reads the channel */
} sbit_channel_role;

/* What label() is given. Labels are positive numbers; 0: none (a constant that nothing cuts). */
typedef struct sbit_channel_call sbit_channel_call;
struct sbit_channel_call {
    const sbit_op_call *op; /* as infer has it: types, constants */
    bool inexact; /* axes that are normalized may lose channels, though that changes the others */
    /* True if the input is a constant, or a constant that was stored in another type. */
    bool (*is_constant)(const sbit_channel_call *call, int32_t input);
    /* One label for each index of an axis of an input: of an activation, all positions with that
     * index are joined; of a constant, with parts > 1, the axis is counted once for each of that
     * many equal parts of axis 0 (columns of a grouped convolution). Lives until label returns. */
    sbit_status (*labels)(const sbit_channel_call *call, int32_t input, int32_t axis, int64_t parts,
                          sbit_channel_role role, const int32_t **out, sbit_error *error);
    /* The output's labels: those of the axis everywhere. Copied. */
    sbit_status (*produce)(const sbit_channel_call *call, int32_t output, int32_t axis,
                           const int32_t *labels, sbit_error *error);
    void (*join)(const sbit_channel_call *call, int32_t a, int32_t b);
    /* The channel may not be removed, because of `reason` (of the node; copied). */
    void (*fix)(const sbit_channel_call *call, int32_t label, const char *reason);
    /* Each of `blocks` equal runs of the labels must keep as many. Copied. */
    sbit_status (*balance)(const sbit_channel_call *call, const int32_t *labels, int64_t count,
                           int64_t blocks, sbit_error *error);
    /* Labels of input 0 go through to output 0, except along the axes of the bits in `mixed`:
     * what varies along one of them may not be removed, because of `reason`. */
    sbit_status (*pass)(const sbit_channel_call *call, uint32_t mixed, const char *reason,
                        sbit_error *error);
    /* Products of matrices in inputs 0 and 1: index k of a's last axis meets index k of the one
     * before b's last, matrix by matrix. */
    sbit_status (*contract)(const sbit_channel_call *call, sbit_error *error);
    sbit_status (*moves)(const sbit_channel_call *call, sbit_error *error); /* as the kinds */
    sbit_status (*stop)(const sbit_channel_call *call, const char *reason, sbit_error *error);
    void *user;
};

typedef struct sbit_op_channel {
    sbit_channel_kind kind;
    uint32_t inputs; /* bit i: input i carries channels; others only say where, or give a type */
    uint32_t params; /* PER_CHANNEL: bit i: input i has one entry per channel on its axis 0 */
    uint32_t scales, biases; /* which of them make the channel zero when they are */
    sbit_status (*label)(const sbit_channel_call *call, sbit_error *error); /* OWN */
} sbit_op_channel;

/* Row flags. */
enum {
    SBIT_OP_VIEW = 1,        /* output 0 is input 0 with another shape: no copy if in place */
    SBIT_OP_IN_PLACE = 2,    /* output 0 may overwrite an input of the same type and shape */
    SBIT_OP_DYNAMIC = 4,     /* output shapes depend on data: run() calls alloc_output */
    SBIT_OP_RANDOM = 8,      /* never folded, never merged with an equal node */
    SBIT_OP_SHAPE_ONLY = 16, /* looks at input 0's shape, not its data: Shape, Size */
    SBIT_OP_BODY = 32,       /* has bodies: If, Loop, Scan */
    SBIT_OP_KINDS = 64,      /* takes sequences or optionals; others are never run on them */
    SBIT_OP_OMITS = 128,     /* runs without output 0 too; others are always given it */
    SBIT_OP_INTEGERS = 256   /* what it expands to computes with integers: no gradient passes */
};

/* >>call: what a row's function is given. One struct for all phases; members that a phase does not
 * have are NULL or 0. Arrays have input_count / output_count entries; an omitted one is NULL. */
struct sbit_op_call {
    sbit_ctx *ctx;
    const struct sbit_kernels *kernels; /* of the context's instruction set */
    const sbit_graph *graph;
    const sbit_node *node;
    const sbit_op_row *row;
    int32_t opset; /* version of the node's domain that the model imports */
    int32_t input_count, output_count;

    /* all phases: types of the inputs; infer writes those of the outputs (they arrive unknown,
     * with rank -1). In prepare and run all dims are numbers, unless an input is DYNAMIC. */
    const sbit_type *const *in_type;
    sbit_type *const *out_type;

    /* infer, pack, prepare: constants (NULL if not constant; in prepare `data` is NULL if pack gave
     * it up); run: all inputs, outputs to fill */
    const sbit_tensor *const *in;
    sbit_tensor *const *out;
    /* run: the same as values, for sequences and optionals */
    const sbit_value *const *in_value;
    sbit_value *const *out_value;

    /* infer: small integer tensors whose elements are known or symbolic: in_elems[i] has
     * in_elem_count[i] entries, or is NULL; set_elems states them for an output (rank 0 or 1) */
    const sbit_dim *const *in_elems;
    const int64_t *in_elem_count;
    void (*set_elems)(const sbit_op_call *call, int32_t output, const sbit_dim *elems,
                      int64_t count);
    /* infer: types of a body's outputs, given those of its inputs (NULL: as declared) */
    sbit_status (*infer_body)(const sbit_op_call *call, const sbit_graph *body,
                              const sbit_type *const *inputs, sbit_type *outputs,
                              sbit_error *error);

    /* pack: one block for what is packed, 64-byte aligned, zeroed (NULL: out of memory) ... */
    void *(*alloc_packed)(const sbit_op_call *call, size_t bytes);
    /* ... and a constant that neither prepare nor run will read, so that its data may be freed */
    void (*release_input)(const sbit_op_call *call, int32_t input);
    const void *packed; /* prepare, run: that block; NULL: nothing is packed (for this session) */
    /* prepare: the parameter block, zeroed: plain data, no pointers. NULL: out of memory */
    void *(*alloc_params)(const sbit_op_call *call, size_t bytes);
    const void *params;    /* run: that block; NULL: prepare asked for none */
    size_t *scratch_bytes; /* prepare: what run needs in `scratch` */
    void *scratch;         /* run: 64-byte aligned */

    /* run: storage for an output of a DYNAMIC row (tensor, or sequence of `count` tensors to be
     * allocated one by one with item >= 0), owned by the session */
    sbit_status (*alloc_output)(const sbit_op_call *call, int32_t output, int64_t item,
                                sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                sbit_error *error);
    sbit_status (*alloc_items)(const sbit_op_call *call, int32_t output, sbit_value_kind kind,
                               int64_t count, sbit_error *error);
    /* run: makes an output (item >= 0: an item of it, after alloc_items) a deep copy of `value`,
     * of any kind; the storage is as alloc_output's */
    sbit_status (*copy_output)(const sbit_op_call *call, int32_t output, int64_t item,
                               const sbit_value *value, sbit_error *error);
    /* run: memory for the text of string outputs, until the next run; NULL: out of memory */
    void *(*alloc_text)(const sbit_op_call *call, size_t bytes);
    /* run: runs a body; inputs by position, results copied into `outputs`, whose data belongs to
     * the session and lives until the node has run (copy_output what stays). A result that is
     * passed as an input of the next call lives until that call returns. */
    sbit_status (*run_body)(const sbit_op_call *call, const sbit_graph *body,
                            const sbit_value *const *inputs, size_t input_count,
                            sbit_value *outputs, size_t output_count, sbit_error *error);

    /* prepare: what a body is going to be given, so that it is planned now and not while running.
     * Types that are not known leave it to the run, and so does a body that does not fit: it may be
     * the branch that is never taken. NULL in infer and pack. Errors: OUT_OF_MEMORY. */
    sbit_status (*plan_body)(const sbit_op_call *call, const sbit_graph *body,
                             const sbit_type *const *inputs, size_t input_count,
                             sbit_error *error);

    void *session; /* the caller's own, for the function pointers above */
};

/* >>gradient: what row->gradient is given. Values that it reads later (inputs, outputs) stay in
 * memory until then because nodes read them; nodes are added behind all others. Types are those
 * that infer knows before the first gradient is added. */
struct sbit_gradient {
    sbit_graph *graph;
    const sbit_node *node;
    int32_t opset; /* of the node's domain */
    int32_t input_count, output_count;
    const sbit_value_id *inputs, *outputs;
    const bool *wanted;                /* of each input: only these need a gradient */
    const sbit_value_id *output_grads; /* none: zero */
    sbit_value_id *input_grads;        /* to fill; what stays none is zero */
    sbit_status status;                /* the first failure; the functions below do nothing then */
    sbit_error *error;
};

/* Adds a node with one output, which it gives (none: failed). Arrays are copied. */
SPARSEBIT_API sbit_value_id sbit_gradient_add(sbit_gradient *g, const char *domain,
                                              const char *op_type, const sbit_value_id *inputs,
                                              size_t input_count, const sbit_attr *attrs,
                                              size_t attr_count);
/* Ends the building of gradients with an error that names the node. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
SPARSEBIT_API void
sbit_gradient_fail(sbit_gradient *g, sbit_status status, const char *format, ...);

/* >>row. Functions return a status and describe failures naming the node (sbit_op_fail). */
struct sbit_op_row {
    const char *domain; /* "" is ai.onnx */
    const char *op_type;
    int32_t since_version;
    uint32_t types;  /* element types of input 0 (of output 0 if there are no inputs) */
    uint32_t flags;
    /* optional: puts constants into the order that run reads them in, once for all sessions of a
     * program; decides from constants, attributes, element types and instruction set alone, never
     * from shapes of activations. Not called if no input is constant. In a session that overrides a
     * constant input, `packed` is NULL. */
    sbit_status (*pack)(const sbit_op_call *call, sbit_error *error);
    sbit_status (*infer)(const sbit_op_call *call, sbit_error *error);
    /* optional: called whenever input shapes change: writes a parameter block, says how much
     * scratch memory run needs */
    sbit_status (*prepare)(const sbit_op_call *call, sbit_error *error);
    /* computes from pointers, parameter block, packed constants and scratch; never allocates, but
     * by the functions of the call */
    sbit_status (*run)(const sbit_op_call *call, sbit_error *error);
    /* optional: adds the nodes that compute the gradients of the inputs from those of the outputs;
     * NULL: not differentiable, reported by name before anything is built */
    void (*gradient)(sbit_gradient *g);
    /* optional, for operators defined by a function: replaces the node by other operators in the
     * session's own graph */
    sbit_status (*expand)(sbit_graph *graph, sbit_node_id node, sbit_error *error);
    const sbit_op_quant *quant;     /* optional: not a place for quantizers */
    const sbit_op_channel *channel; /* optional: as SBIT_CHANNEL_STOPS */
    int64_t (*macs)(const sbit_op_call *call); /* optional: 0 */
};

/* Adds a row; it must outlive ctx. Errors: DUPLICATE (same domain, op_type and since_version as
 * another user row; built-in rows may be overridden), INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_operator_register(sbit_ctx *ctx, const sbit_op_row *row,
                                                 sbit_error *error);
/* The row with the highest since_version <= opset; user rows before built-in ones; NULL: unknown.
 * domain NULL, "" and "ai.onnx" are the same. */
SPARSEBIT_API const sbit_op_row *sbit_operator_find(const sbit_ctx *ctx, const char *domain,
                                                      const char *op_type, int64_t opset);
/* All built-in rows in table order: the support table. NULL past the end. */
SPARSEBIT_API const sbit_op_row *sbit_operator_at(size_t index);
/* The macro that compiles an operator out ("SPARSEBIT_NO_OPS_RNN"); NULL: it is in every build. In
 * *out (may be NULL) whether this build was made so. */
SPARSEBIT_API const char *sbit_operator_switch(const char *domain, const char *op_type, bool *out);

/* For row functions: an error that names the node and operator: "Conv 'conv1': ...". */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
SPARSEBIT_API sbit_status sbit_op_fail(const sbit_op_call *call, sbit_status status,
                                       sbit_error *error, const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_OPS_API_H */
