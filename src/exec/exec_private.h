/* exec_private.h: the insides of a session, shared by the files of the executor.
 *
 * Called by: exec. Calls: infer, ops.
 *
 * A program is what is run, with all that its constants make; sessions only read it. What outlives
 * a plan in a session: the order of nodes, blocks of values whose shape depends on data, sessions
 * of bodies. What a plan holds (types, places, steps, parameter blocks) is made anew when input
 * shapes change. Arrays "by value" and "by node" are indexed by the ids' idx; those of sessions
 * hold no more than pointers: constants are the program's, and what nothing needs has no memory.
 */
#ifndef SBIT_EXEC_PRIVATE_H
#define SBIT_EXEC_PRIVATE_H

#include "exec_api.h"
#include "lower_private.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__EXEC_ALIGN ((size_t)64)
#define SBIT__EXEC_ARENA ((size_t)2048) /* blocks do not grow: what is told is what is needed */
#define SBIT__EXEC_FOREVER INT32_MAX    /* last use of a value that outlives the run */
#define SBIT__SPARE_LISTS 24            /* blocks of 64 bytes, 128, 256 ... */

/* Where the data of a value lies. */
typedef enum sbit__place {
    SBIT__PLACE_NONE = 0, /* not computed: not needed, or fused away */
    SBIT__PLACE_INPUT,    /* the caller's memory */
    SBIT__PLACE_CONSTANT, /* the graph's, or computed while planning */
    SBIT__PLACE_CAPTURED, /* of a body: the parent session's memory */
    SBIT__PLACE_BLOCK,    /* at an offset of the shared block */
    SBIT__PLACE_DYNAMIC   /* a block of its own, sized while running */
} sbit__place;

/* What shares a block of memory: it lives from one step to another and gets an offset. */
typedef struct sbit__life {
    int32_t first, last;
    uint32_t rank; /* decides between equal ones */
    bool placed;
    size_t offset, bytes;
} sbit__life;

/* A block of memory in a list. The data follows, 64-byte aligned. */
typedef struct sbit__exec_block {
    struct sbit__exec_block *next;
    size_t bytes, total; /* of the data; of all */
} sbit__exec_block;

/* Memory of a DYNAMIC value; `main` is kept from run to run, `items` (of sequences) is not. */
typedef struct sbit__dynamic {
    void *main;
    size_t main_bytes;
    bool constant; /* main is made when the session plans, and counts as state */
    sbit__exec_block *items;
} sbit__dynamic;

/* A value of a session or, if it is constant, of its program. */
typedef struct sbit__exec_value {
    sbit_value value;
    sbit_type type;
    sbit_type *fed_type; /* what the caller feeds it as */
    bool fed;
    sbit__dynamic dynamic;
    bool shared; /* the program's: sessions only read it */

    bool fixed; /* type and shape were known when the plan was made */
    sbit__place place;
    struct sbit__exec_value *root; /* the value whose memory this one has; itself if not shared */
    sbit__life life;               /* steps that make and last use it; of a root: all that share */
} sbit__exec_value;

/* A parameter block; the data follow, aligned for any number. */
typedef struct sbit__params {
    size_t bytes; /* of the data */
    size_t late;  /* made while running: dynamic */
} sbit__params;

/* A result of run_body, in the node that called it. */
typedef struct sbit__body_result {
    struct sbit__body_result *next;
    sbit__exec_block *own, *blocks; /* that this lies in; its data */
    const void *key;                /* the data or items pointer that was given out */
    uint64_t call;                  /* which call of run_body made it */
    bool consumed;                  /* passed as an input of the running call */
} sbit__body_result;

typedef struct sbit__exec_body {
    struct sbit__exec_body *next;
    const sbit_graph *graph;
    sbit_session *session;
    bool late; /* made while running: dynamic */
} sbit__exec_body;

/* Types of inputs and outputs at the last prepare while running. */
typedef struct sbit__exec_late {
    size_t bytes; /* of this */
    bool holds;
    sbit_type types[1]; /* and more */
} sbit__exec_late;

/* What is kept of a node that is needed between plans. */
typedef struct sbit__exec_node {
    const sbit_node *node;
    const sbit_op_row *row;
    int32_t opset;
    bool folded;        /* the program has computed the outputs */
    bool skipped;       /* in the current plan: the outputs are known */
    const void *packed; /* the program's; NULL: none */
    sbit__params *params;
    sbit_value_id *captures; /* of its bodies */
    size_t capture_count;
    sbit__exec_late *late;
    sbit__exec_body *bodies;
    sbit__body_result *results; /* newest first */
    uint64_t body_calls;
    uint64_t nanoseconds, runs;
} sbit__exec_node;

/* One action of a plan. */
typedef struct sbit__step {
    sbit_session *session;
    sbit__exec_node *data;
    uint32_t alias; /* the input whose memory output 0 has; 0: none */
    bool copies;    /* a view of something that is no tensor: copied by the executor */
    bool resolve;   /* output shapes are found while running */
    bool late;      /* prepare is called while running */
    bool tapped;
    bool asked;       /* prepare asked for a parameter block */
    bool has_scratch; /* in the block; else the session's own is used */
    size_t scratch_bytes;
    sbit__life scratch;
} sbit__step;

/* The arrays of a session's call, with room for any of its nodes. */
typedef struct sbit__call_arrays {
    const sbit_type **in_type;
    sbit_type **out_type;
    const sbit_tensor **in, **constant_in; /* constant_in: `in` of prepare and pack */
    sbit_tensor **out;
    const sbit_value **in_value;
    sbit_value **out_value;
} sbit__call_arrays;

/* What a row gives while it packs. */
typedef struct sbit__packing {
    sbit__exec_block *block;
    uint32_t released; /* inputs (bits) that are not read again */
} sbit__packing;

/* What the constants of one graph of a program make. */
typedef struct sbit__made {
    bool done;
    sbit__exec_value **values; /* by value; NULL: not constant. Without data: all have packed it */
    bool *folded;              /* by node: the outputs are constant */
    const void **packed;       /* by node */
    uint32_t *released;        /* by node: inputs (bits) that it does not read */
} sbit__made;

/* Memory that a program took over. */
typedef struct sbit__taken {
    struct sbit__taken *next;
    void *data;
    size_t bytes;
} sbit__taken;

/* What is run; nothing changes it. */
struct sbit_program {
    sbit_ctx *ctx;
    sbit__arena arena;
    sbit_graph *graph;     /* a clone of the caller's, lowered */
    sbit__lowered *graphs; /* by index in the family */
    size_t graph_count;
    sbit__made *made; /* likewise, with the bodies that expanding made */
    bool *kept;       /* by value of the root: looked at from outside */
    uint32_t kept_limit;
    sbit_session_desc desc;   /* for its sessions; its arrays are the program's */
    bool halfway;             /* packing has freed constants and is not through */
    bool all_inputs;          /* every declared input is one of the sessions' */
    sbit__exec_block *blocks; /* packed constants */
    sbit__taken *taken;       /* folded ones */
    size_t packed_bytes;      /* of both */
};

/* A state: its input is fed from `memory`. */
typedef struct sbit__exec_state {
    sbit_value_id output, input;
    sbit__dynamic memory;
    sbit__dynamic passing; /* an output that lies in the memory of an input waits here */
    const void *from;      /* what the last run gave */
    bool set;
} sbit__exec_state;

/* Counts what a session takes, bodies and itself included. */
typedef struct sbit__meter {
    sbit_allocator base;
    size_t bytes, peak;
    size_t limit; /* 0: none */
    bool refused; /* the limit was met */
} sbit__meter;

struct sbit_session {
    sbit_ctx *ctx;
    sbit_allocator allocator; /* of what is planned: the root's meter */
    sbit_allocator dynamic;   /* of what is found while running: passes through `allocator` */
    sbit__meter meter, dynamic_meter; /* of the root */
    const sbit_program *program;
    sbit_program *owned;      /* `program`, if nobody else has it; else NULL */
    const sbit_graph *graph;  /* what is run: the program's, or a body of it */
    const sbit_graph *source; /* what the caller knows it as */
    sbit_session *parent;
    sbit__exec_node *parent_node;

    sbit_tap_fn tap_fn;
    void *tap_user;
    bool has_taps, tap_bodies, keep_values, profile;

    sbit__arena arena; /* as long as the session */
    uint32_t value_limit, node_limit;
    sbit__exec_value **values; /* by value; NULL: not needed */
    uint32_t *tapped;          /* by value: which of `source` it is shown as; 0: it is not */
    bool *wanted;              /* by value: a result of the session */
    sbit__exec_node *nodes;    /* that are needed, in order */
    size_t node_count;
    uint32_t *node_at; /* by node: where it is in `nodes`, plus 1; 0: nothing needs it */
    sbit_op_call call; /* of the step that runs */
    sbit__call_arrays arrays;
    sbit__packing *packing; /* NULL: nothing is packed now */
    sbit_value_id *inputs, *outputs, *captures;
    size_t input_count, output_count, capture_count;
    sbit__exec_state *states;
    size_t state_count;
    sbit_value *results; /* what sbit_session_output shows */
    sbit__dynamic *result_blocks;

    sbit__arena plan_arena;
    sbit__arena
        infer_arena; /* arrays of `infer`; only steps that resolve need them after planning */
    bool planned, ran;
    bool stale;        /* inputs were set that the plan does not hold for */
    bool told_symbols; /* that a name contradicts itself */
    uint64_t plan_serial, parent_serial;
    sbit__infer infer;
    sbit__step *steps;
    size_t step_count;
    void *block, *scratch;
    size_t block_bytes, scratch_bytes, unshared_bytes, live_bytes;
    size_t state_bytes;
    sbit__exec_block *text;                     /* of string outputs, until the next run */
    sbit__exec_block *spare[SBIT__SPARE_LISTS]; /* of the root: what was given back, by size */
};

/* >>storage (storage.c) */
/* The session's own memory of a value, made if there is none; NULL: out of memory. */
SBIT__FN sbit__exec_value *sbit__exec_own(sbit_session *session, uint32_t idx);
SBIT__FN sbit__place sbit__exec_place(const sbit_session *session, uint32_t idx);
/* An allocator that counts and limits. */
SBIT__FN void sbit__meter_init(sbit__meter *meter, const sbit_allocator *base, size_t limit,
                               sbit_allocator *out);
/* Out of memory because of the limit is LIMIT. */
SBIT__FN sbit_status sbit__meter_explain(const sbit_session *session, sbit_status status,
                                         sbit_error *error);
/* Blocks are not zeroed; NULL: out of memory. */
SBIT__FN sbit__exec_block *sbit__block_make(const sbit_allocator *allocator, size_t bytes);
SBIT__FN void *sbit__block_add(sbit_session *session, sbit__exec_block **list, size_t bytes);
SBIT__FN void sbit__block_free_all(sbit_session *session, sbit__exec_block **list);
SBIT__FN void sbit__block_free_spare(sbit_session *root);
SBIT__FN void *sbit__block_data(sbit__exec_block *block);
/* Elements of a static type; INT64_MAX: too many. */
SBIT__FN int64_t sbit__type_elements(const sbit_type *type);
SBIT__FN void sbit__tensor_of_type(const sbit_type *type, sbit_tensor *out); /* without data */
/* Bytes of a tensor's elements, strings included; false on overflow. */
SBIT__FN bool sbit__exec_bytes(sbit_dtype dtype, int64_t count, size_t *bytes);
/* Fills in a shape; the bytes that its elements take. */
SBIT__FN sbit_status sbit__exec_shape(sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                      sbit_tensor *tensor, size_t *bytes, sbit_error *error);
/* Makes `tensor` one of this shape with memory of `dynamic`. */
SBIT__FN sbit_status sbit__dynamic_tensor(sbit_session *session, sbit__dynamic *dynamic,
                                          sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                          sbit_tensor *tensor, sbit_error *error);
SBIT__FN void sbit__dynamic_free(sbit_session *session, sbit__dynamic *dynamic);
SBIT__FN void sbit__dynamic_set_constant(sbit_session *session, sbit__dynamic *dynamic,
                                         bool constant);
/* A deep copy with all memory in `list`. */
SBIT__FN sbit_status sbit__value_copy(sbit_session *session, sbit__exec_block **list,
                                      const sbit_value *value, sbit_value *out, sbit_error *error);
SBIT__FN sbit_type sbit__type_of_value(const sbit_value *value, const sbit_type *declared);
/* Whether the memory of a value is the session's, so that it outlives the run. */
SBIT__FN bool sbit__exec_owns(const sbit_session *session, uint32_t idx);

/* What an input is declared as, in the shape that it is expected to have. */
SBIT__FN sbit_type sbit__session_expected(const sbit_session *s, const sbit_value_info *input);
/* The type that a value is fed with from now on. */
SBIT__FN sbit_status sbit__session_set_type(sbit_session *s, sbit__exec_value *value,
                                            const sbit_type *type, sbit_error *error);
SBIT__FN sbit__body_result *sbit__body_result_make(sbit_session *session); /* NULL: no memory */
SBIT__FN void sbit__body_result_free(sbit_session *session, sbit__body_result *result);
SBIT__FN void sbit__body_results_free(sbit_session *session, sbit__exec_node *node);

/* >>steps (step.c, run.c) */
/* What all calls of a session's rows have, and room for the inputs and outputs of one. */
SBIT__FN sbit_status sbit__session_make_call(sbit_session *session, size_t ins, size_t outs,
                                             sbit_error *error);
/* Makes session->call that of the step: one runs at a time. */
SBIT__FN sbit_op_call *sbit__step_call(sbit__step *step);
/* What prepare and pack are given: data of constants alone. */
SBIT__FN sbit_op_call sbit__step_constant_call(sbit__step *step);
SBIT__FN sbit_status sbit__step_prepare(sbit__step *step, sbit_error *error);
SBIT__FN sbit_status sbit__step_run(sbit__step *step, sbit_error *error);
/* Runs one node now; the outputs lie in their dynamic blocks. */
SBIT__FN sbit_status sbit__step_evaluate(sbit_session *session, sbit__exec_node *node,
                                         sbit_error *error);
SBIT__FN sbit_status sbit__exec_scratch(sbit_session *session, size_t bytes, sbit_error *error);
SBIT__FN void sbit__exec_free_params(sbit_session *session, sbit__exec_node *node);
/* Runs the plan's steps on the values as they are set. */
SBIT__FN sbit_status sbit__exec_steps(sbit_session *session, sbit_error *error);

/* >>program (program.c) */
SBIT__FN sbit_status sbit__program_make(const sbit_graph *source, const sbit_session_desc *desc,
                                        sbit_program **out, sbit_error *error);
/* SHAPE, if the input is declared otherwise. */
SBIT__FN sbit_status sbit__program_check_input(const sbit_graph *graph,
                                               const sbit_value_info *info, const sbit_type *type,
                                               sbit_error *error);
/* What lowering says of a graph of the program; NULL: it was made while expanding operators. */
SBIT__FN const sbit__lowered *sbit__program_lowered(const sbit_program *program,
                                                    const sbit_graph *graph);
SBIT__FN const sbit__made *sbit__program_made(const sbit_program *program, const sbit_graph *graph);
/* The constant of a value, once constants are folded; NULL: it is none. */
SBIT__FN sbit__exec_value *sbit__program_constant(const sbit_program *program,
                                                  const sbit_graph *graph, uint32_t idx);
/* Takes over the memory. */
SBIT__FN sbit_status sbit__program_take(sbit_program *program, sbit__dynamic *dynamic,
                                        sbit_error *error);
/* >>plan (plan.c, memory.c) */
SBIT__FN sbit_status sbit__plan_make(sbit_session *session, sbit_error *error);
SBIT__FN void sbit__plan_drop(sbit_session *session);
/* Gives lives, in this order, the lowest offsets where none meets another of the same steps;
 * *bytes: where the last of them ends. */
SBIT__FN sbit_status sbit__memory_fit(sbit__life **lives, size_t count, size_t steps,
                                      sbit__arena *arena, size_t *bytes, sbit_error *error);
SBIT__FN sbit_status sbit__plan_memory(sbit_session *session, sbit_error *error);

/* >>states (states.c) */
SBIT__FN sbit__exec_state *sbit__state_find(const sbit_session *s, sbit_value_id input);
SBIT__FN bool sbit__session_has_input(const sbit_session *s, sbit_value_id id); /* is fed */
/* The state becomes a copy of `tensor`; zeros, if that has no data. */
SBIT__FN sbit_status sbit__state_set(sbit_session *s, sbit__exec_state *state,
                                     const sbit_tensor *tensor, sbit_error *error);
/* What states are before anybody sets them. */
SBIT__FN sbit_status sbit__state_begin_all(sbit_session *s, sbit_error *error);
/* Memory for what has to be put aside on the way. */
SBIT__FN sbit_status sbit__state_reserve_all(sbit_session *s, sbit_error *error);
/* After a run: outputs go into the inputs that they are carried to. */
SBIT__FN sbit_status sbit__state_carry_all(sbit_session *s, sbit_error *error);

/* >>sessions (session.c, body.c, constants.c) */
SBIT__FN sbit_status sbit__session_make(const sbit_program *program, const sbit_graph *graph,
                                        const sbit_session_desc *desc, sbit_session *parent,
                                        sbit__exec_node *parent_node, bool late, sbit_session **out,
                                        sbit_error *error);
/* Computes and packs constants, if that is not done yet: before the first plan. */
SBIT__FN sbit_status sbit__program_fold(sbit_program *program, sbit_error *error);
SBIT__FN sbit_status sbit__exec_plan_body(const sbit_op_call *call, const sbit_graph *body,
                                          const sbit_type *const *inputs, size_t input_count,
                                          sbit_error *error);
SBIT__FN sbit_status sbit__exec_run_body(const sbit_op_call *call, const sbit_graph *body,
                                         const sbit_value *const *inputs, size_t input_count,
                                         sbit_value *outputs, size_t output_count,
                                         sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_EXEC_PRIVATE_H */
