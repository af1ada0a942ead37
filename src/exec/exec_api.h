/* exec_api.h: the one executor: a program is what a graph is run as, a session a plan for it plus
 * memory. >>exec
 *
 * Called by: users, calibration, verification, training. Calls: infer, ops.
 * A program is made once: a clone of the graph in which operators are fused (lowered), with packed
 * weights (row->pack). It borrows the constants of the graph, which must not be edited while
 * program and sessions live. A session plans before it runs on inputs of new shapes (run does
 * it, or sbit_session_plan beforehand): types, kernels (row->prepare), and offsets in one block of
 * memory that values share when their lives do not overlap. One thread at a time per session;
 * several sessions of one program or graph may run at once.
 */
#ifndef SBIT_EXEC_API_H
#define SBIT_EXEC_API_H

#include "../infer/infer_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A program is what a session runs: the graph cut to what is asked for and lowered, its constants
 * computed and packed. Nothing changes it, so that any number of sessions, in any threads, may run
 * one; each then costs its activations and some bookkeeping. It borrows the graph's constants: the
 * graph must outlive it. */
typedef struct sbit_program sbit_program;
typedef struct sbit_session sbit_session;

/* A look at a value just after it was computed (graph inputs, and what a body captures: just before
 * the first node); borrowed until the callback returns. `graph` is that of the value: the
 * session's, or one of its bodies. Anything but SBIT_OK ends the run with that status. */
typedef sbit_status (*sbit_tap_fn)(const sbit_graph *graph, sbit_value_id id,
                                   const sbit_value *value, void *user, sbit_error *error);

/* After each run the session carries the value `output` into the value `input`, which the next run
 * reads: states of recurrent networks, parameters in training, moments of optimizers, counters. */
typedef struct sbit_session_state {
    sbit_value_id output, input;
} sbit_session_state;

/* {0} is valid. Of a program, all but tap_fn, tap_user, profile, max_bytes and dynamic_bytes counts
 * (taps only if tap_fn is set); of its sessions, only these five. */
typedef struct sbit_session_desc {
    sbit_tap_fn tap_fn; /* NULL: none; taps without it are INVALID_ARGUMENT */
    void *tap_user;
    const sbit_value_id *taps; /* of the root graph; kept from being fused away */
    size_t tap_count;
    size_t taps_as_they_lie;      /* the first so many of taps are looked at as they were computed:
                                     maybe with channels last (N, ..., C), which costs no copy */
    bool tap_all;                 /* every value of the root graph; turns fusion off */
    bool tap_bodies;              /* every value of every body, in each run of it; likewise there */
    const sbit_value_id *outputs; /* NULL: the graph's outputs; only what they need is run */
    size_t output_count;
    /* Values that the caller feeds, in this order: inner ones (what only they need is not run) and
     * constants too. Declared inputs that are still needed come behind them. NULL: as declared. */
    const sbit_value_id *inputs;
    size_t input_count;
    /* Inputs of states need not be fed: a state begins as the constant that its input is in the
     * graph, else as zeros, if the declared shape is fixed; else it has to be set. */
    const sbit_session_state *states;
    size_t state_count;
    /* Shapes that inputs with open dims are expected to have, whole ones: what depends on sizes is
     * chosen for them (Winograd), and sbit_session_plan takes them where nothing is set yet. Inputs
     * of other shapes run, too. */
    const sbit_value_shape *shapes;
    size_t shape_count;
    bool keep_values;      /* nothing shares memory, nothing is fused: see
                              sbit_session_value */
    bool disable_fusion;   /* no lowering: every operator by itself, as ONNX defines it */
    bool disable_integers; /* what lies between DequantizeLinear and QuantizeLinear is
                              computed in float32, without Winograd: a simulation. Its sums
                              are rounded each 1,024 terms with force_isa SBIT_ISA_SCALAR */
    bool exact;            /* no Winograd, which adds and subtracts neighbours: its error is up to
                              1e-5 of the largest sum of |terms| among 4 x 4 outputs */
    bool release_weights;  /* constants that were packed are freed in the graph as well: after
                              that it can only be run, by sessions of this program; if packing
                              fails half way, not at all */
    bool profile;          /* measure each node */
    size_t max_bytes;      /* 0: no limit on the session's memory: total_bytes below */
    size_t dynamic_bytes;  /* 0: no limit on the part of it that is found while running */
} sbit_session_desc;

/* Errors: UNSUPPORTED, naming every node that has no row (all at once), SHAPE, if desc.shapes do not
 * fit the model, and those of infer and prepare. desc may be NULL. Free with sbit_session_destroy before the graph. */
SPARSEBIT_API sbit_status sbit_session_create(sbit_graph *graph, const sbit_session_desc *desc,
                                              sbit_session **out, sbit_error *error);
SPARSEBIT_API void sbit_session_destroy(sbit_session *session); /* NULL is fine */

/* The same in two steps, for several sessions of one graph. Constants are packed here, with the
 * context's threads. desc may be NULL. */
SPARSEBIT_API sbit_status sbit_program_create(sbit_graph *graph, const sbit_session_desc *desc,
                                              sbit_program **out, sbit_error *error);
SPARSEBIT_API void sbit_program_destroy(sbit_program *program); /* after its sessions */
SPARSEBIT_API sbit_status sbit_session_create_for(const sbit_program *program,
                                                  const sbit_session_desc *desc, sbit_session **out,
                                                  sbit_error *error);

/* Inputs the caller must feed: desc.inputs, declared inputs without a default value. */
SPARSEBIT_API size_t sbit_session_input_count(const sbit_session *session);
SPARSEBIT_API const sbit_value_info *sbit_session_input_info(const sbit_session *session,
                                                             size_t index);
SPARSEBIT_API size_t sbit_session_output_count(const sbit_session *session);
SPARSEBIT_API const sbit_value_info *sbit_session_output_info(const sbit_session *session,
                                                              size_t index);

/* Lends a tensor until the next sbit_session_run returns; set it again or keep its memory for the
 * runs after that, which read it again. name NULL: the only input. By name also inputs with a
 * default value can be set, and inputs of states, which are copied. Errors: NOT_FOUND (lists the
 * names), SHAPE (element type, rank or a fixed dim differs from the declaration; says both). */
SPARSEBIT_API sbit_status sbit_session_set_input(sbit_session *session, const char *name,
                                                 const sbit_tensor *tensor, sbit_error *error);
SPARSEBIT_API sbit_status sbit_session_set_value(sbit_session *session, const char *name,
                                                 const sbit_value *value, sbit_error *error);
/* The same by number, as in sbit_session_input_info, without looking for a name. */
SPARSEBIT_API sbit_status sbit_session_set_input_at(sbit_session *session, size_t index,
                                                    const sbit_tensor *tensor, sbit_error *error);

/* Plans for the inputs set so far without running; sbit_session_run does it by itself. Inputs of a
 * fixed or expected (desc.shapes) shape need not be set. */
SPARSEBIT_API sbit_status sbit_session_plan(sbit_session *session, sbit_error *error);
/* What the current plan takes. All zero before the first plan. */
typedef struct sbit_session_memory {
    size_t activation_bytes; /* the shared block: peak of live values and scratch memory */
    size_t unshared_bytes;   /* the values without reuse */
    size_t live_bytes;       /* the most that lives in one step: no block can be smaller */
    size_t scratch_bytes;    /* the largest of one node; in the block, if shapes are known */
    size_t state_bytes;      /* parameter blocks, values known for the shapes at hand, states */
    size_t dynamic_bytes;    /* what runs took for values whose shape depends on data, and for
                                bodies that could not be planned; the largest sum so far */
    size_t packed_bytes;     /* of the program: packed weights and values made of constants */
    size_t total_bytes;      /* all that the session takes of its allocator, the largest sum so far,
                                its own objects and dynamic_bytes included; not the program's. A
                                run without dynamic nodes takes no more than is told before it, and
                                max_bytes of exactly this suffices */
} sbit_session_memory;
SPARSEBIT_API void sbit_session_memory_of(const sbit_session *session, sbit_session_memory *out);

SPARSEBIT_API sbit_status sbit_session_run(sbit_session *session, sbit_error *error);
/* Output `index`, borrowed until the next run, plan or destroy. NULL before the first run. */
SPARSEBIT_API const sbit_value *sbit_session_output(const sbit_session *session, size_t index);
/* State `index` as the next run reads it, borrowed until the next run or destroy; NULL if it is not
 * set yet. A run that fails leaves states as they were. */
SPARSEBIT_API const sbit_value *sbit_session_state_at(const sbit_session *session, size_t index);
/* With desc.keep_values: a value of the root graph as the last run left it, borrowed like outputs.
 * NULL: not computed. */
SPARSEBIT_API const sbit_value *sbit_session_value(const sbit_session *session, sbit_value_id id);

/* What became of each node of the root graph that the results need, in order; returns how many
 * there are. With desc.profile, nanoseconds and runs are counted since creation; a node whose
 * outputs are known when the session plans (made of constants or of shapes) has no runs. */
typedef struct sbit_node_profile {
    sbit_node_id node; /* of the caller's graph */
    uint64_t nanoseconds, runs;
    sbit_node_id fused_into;  /* the node of the caller's graph that its time is counted at; none:
                                 it is counted here */
    const sbit_node *lowered; /* what does its work: a node of the session's own graph, borrowed
                                 from it; internal operators have domain "sbit" */
    bool on_integers;         /* it works on 8-bit integers; known once the session has planned */
    bool is_dynamic;          /* the memory of its outputs is found while running; likewise */
    const char *reason;       /* why it was left as it is, where something better exists; or NULL */
} sbit_node_profile;
SPARSEBIT_API size_t sbit_session_profile(const sbit_session *session, sbit_node_profile *nodes,
                                          size_t capacity);

/* The most multiply-adds a second that one thread of the context's instruction set can do, of floats
 * or of bytes (integers): measured in about 10 ms on registers alone, the best of several tries. What
 * a node's rate is compared with. Thread-safe. */
SPARSEBIT_API double sbit_measure_peak(const sbit_ctx *ctx, bool integers);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_EXEC_API_H */
