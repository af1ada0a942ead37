/* quant_private.h: quantization's insides: resolved settings, sites, the graph with Q and DQ.
 *
 * Called by: the files of quant/, train (QAT). Calls: qconfig, passes, exec.
 *
 *   qconfig.c     the configuration tree, settings of one layer
 *   profiles.c    the placement profiles
 *   site.c        tensors with a quantizer: look-ups, weights, biases
 *   flow.c        which values depend on data, which must stay exact
 *   curve.c       operators that are one function of one tensor
 *   place.c       which tensors get one: fills quant->sites
 *   calibrate.c   what they observe; statistics.c: to and from a file
 *   scales.c      scale and zero point of all of them
 *   build.c       the graph with QuantizeLinear and DequantizeLinear
 *   formats.c     other ways to write it; format_*.c
 *   dequantize_running.c  the same for models of float activations
 *   dequantize.c  floats and scales of models that are quantized already
 *   encodings.c   scales in the files of other tools
 *   quant.c       the public functions
 *   lint.c        why a node is quantized or not
 *   reestimate.c  statistics of BatchNormalization anew
 *   walk.c        a run of the model that stops between layers
 *   blocks.c      parts of the model between two tensors; quantizers as nodes of a clone
 *   steps.c       the steps of a recipe; step_*.c: one each; layer.c: what they share
 *   compensate_beside.c  operators beside blocks that step compensate fits
 *   proof.c       what a quantized file proves by itself
 *   trials.c      how far outputs move when some sites are quantized: analyze.c and steps that
 *                 search
 */
#ifndef SBIT_QUANT_PRIVATE_H
#define SBIT_QUANT_PRIVATE_H

#include "../grad/grad_private.h"
#include "../ops/gradient_private.h"
#include "../ops/ops_private.h"
#include "../passes/passes_private.h"
#include "../quantizers/quantizers_private.h"
#include "steps_api.h"

#include <math.h> /* floor, nearbyint, log2, exp2 */

#ifdef __cplusplus
extern "C" {
#endif

/* >>qconfig */
enum {
    SBIT__QCONFIG_W,
    SBIT__QCONFIG_A
}; /* the tree's sections */

struct sbit_qconfig {
    sbit__tree tree;
};

/* Settings of one quantizer after SPECIFIC: the options, and what follows from them. */
typedef struct sbit__settings {
    sbit_options options;
    const sbit_observer_row *observer;
    const sbit_quantizer_row *quantizer;
    const sbit_step_row *step; /* that QUANTIZER.TYPE named instead; NULL: none */
    const sbit_step_row *range_step; /* that OBSERVER.TYPE named instead; NULL: none */
    bool per_channel, disabled;
    sbit_grid grid;          /* of a site: with its parts */
    int32_t activation_axis; /* channel axis of activations (LAYOUT) */
    int64_t block;           /* of a matrix' inputs that share a scale (GROUP_SIZE); 0: none */
} sbit__settings;

/* The settings of a layer's weight or activations; options live in `arena`. */
SBIT__FN sbit_status sbit__qconfig_resolve(sbit_qconfig *config, uint32_t target,
                                           const sbit_graph *graph, sbit_node_id node,
                                           sbit__arena *arena, sbit__settings *out,
                                           sbit_error *error);
/* Another width: range and storage type follow. */
SBIT__FN void sbit__settings_bits(const sbit_qconfig *config, uint32_t target, int32_t bits,
                                  sbit__settings *settings);
/* The same values for all keys that begin with `prefix` ("": all). */
SBIT__FN bool sbit__same_options(const sbit_options *a, const sbit_options *b, const char *prefix);
/* The passes that users registered and SCHEDULE switches off are desc->skip, in `arena`. */
SBIT__FN sbit_status sbit__qconfig_skip(const sbit_qconfig *config, sbit__arena *arena,
                                        sbit_simplify_desc *desc, sbit_error *error);
SBIT__FN sbit_status sbit__qconfig_clone(const sbit_qconfig *config, sbit_qconfig **out,
                                         sbit_error *error);

SBIT__FN bool sbit__word_listed(const char *const *list, const char *word); /* ends with NULL */
SBIT__FN const sbit__kind *sbit__kind_profile(void);
SBIT__FN bool sbit__profile_is(const sbit_profile_row *profile, uint32_t flag);
/* "sparsebit, generic, ...": all profiles, for messages; returns text. */
SBIT__FN const char *sbit__profile_names(const sbit_ctx *ctx, char *text, size_t size);

/* >>sites */
typedef struct sbit__site_use {
    sbit_node_id node;
    uint32_t input;
    struct sbit__site_use *next;
} sbit__site_use;

/* A tensor with a quantizer. */
typedef struct sbit__site {
    /* the plan */
    uint32_t body;           /* number of the graph that `value` belongs to: see sbit__quant_body */
    const sbit_graph *graph; /* that graph in quant->graph */
    sbit_value_id value;
    uint32_t next;    /* number + 1 of the next site on the same value; 0: none */
    sbit_dtype dtype; /* of the tensor: float32, float16 or bfloat16 */
    uint32_t target;
    sbit_node_id layer; /* the node whose settings these are */
    const char *layer_name;
    sbit__settings settings;
    int32_t axis;  /* of channels; -1: per tensor */
    int64_t block; /* of indices along it that share a scale; 0: none */
    bool all_uses; /* stands behind the producer: every use reads the quantized value */
    bool captured; /* a constant of the root that layers of bodies have as their weight too */
    sbit__site_use *uses; /* in the order added; not for all_uses */
    bool fixed_range;
    float fixed_min, fixed_max;
    const char *tensor;         /* the value's name: a copy, the graph may change */
    bool softmax, softmax_rest; /* Softmax alone reads it; over all dims from its axis on */
    int32_t softmax_axis;
    uint32_t plan_group;     /* sites with one number pass one scale on */
    sbit_site_change change; /* what sbit_quant_set_site asked for; its arrays are the quant's */
    bool learned;            /* it holds a scale of the quantized model that was given */
    /* what steps of this calculation decided, beyond that */
    const char *search_float;         /* why it stays float; NULL: it need not */
    int32_t search_bits;              /* another width; 0: as configured */
    const sbit_observer_row *ranged;  /* the observer whose range was chosen; NULL: its own */
    float *range;                     /* [2 * parts]: min, max */
    /* statistics */
    void *observer_state, *quantizer_state;
    size_t observer_bytes, quantizer_bytes;
    bool observed, waiting; /* saw something; wants to see the data of this pass */
    float *weight;          /* weights: the values as float32; see sbit__site_weight */
    float *piece;           /* [2 * parts]: min and max of one piece of data */
    /* of activations, from some of their values: the largest size and how often it was, exactly; the
     * largest below it; the sum of the others' sizes and how many they are */
    float extreme, second;
    double rest;
    int64_t extreme_count, rest_count;
    bool warned; /* of an extreme that leaves the others no steps */
    /* what sbit__quant_calc made of them */
    bool enabled;
    const char *reason;       /* why not */
    uint32_t group;           /* sites with one number share scale and zero point */
    uint32_t leader;          /* number + 1 of the site that learned them for the group; 0: none */
    float *own_min, *own_max; /* [parts] what its observer says */
    float *min, *max, *scale; /* [parts] joined with those that share its scale */
    int32_t *zero_point;
    float *rounded; /* weights: values on the grid that a step chose; NULL: the nearest */
    size_t rounded_bytes;
    bool raw;       /* weights: `rounded` is stored as it is, in float */
    float *shift; /* weights: added to the layer's bias, [channels of its output]; NULL: nothing */
    size_t shift_bytes;
} sbit__site;

/* One graph of the model, and the sites on its values. */
typedef struct sbit__site_graph {
    const sbit_graph *graph;
    bool *data;      /* by value: it depends on data, not on shapes and constants alone */
    bool *layered;   /* by value: a layer with weights, or a product, has had part in it */
    bool *scored;    /* by value: a Softmax reads it as its scores */
    bool *exact;     /* by value: stays float whatever the profile: masks, and what they mask,
                        and what is inside of curves */
    uint32_t *first; /* by value: number + 1 of its first site; 0: none */
    uint32_t *curve, *argument; /* by value: the result of the curve that it is inside of; the
                                   argument of the curve whose result it is; 0: none */
    bool *normalizes;           /* by value: the curve whose result it is has reductions inside */
} sbit__site_graph;

/* >>dequantize: scales that a quantized model brings along */
typedef struct sbit__learned {
    const char *name; /* of the float tensor */
    uint32_t target;
    sbit_dtype dtype;
    int32_t bits, axis; /* axis -1: one scale */
    int64_t block, count;
    const float *scale;
    const int32_t *zero_point;
    struct sbit__learned *next;
} sbit__learned;

typedef struct sbit__learned_list {
    sbit__arena *arena;
    sbit__learned *first;
    size_t count;
} sbit__learned_list;

/* A Dropout of the model, which simplification removes: training puts it back (train/qat.c). */
typedef struct sbit__quant_dropout {
    const char *from, *to; /* its input, which nothing else read, and its output: one of them stays */
    float ratio;
} sbit__quant_dropout;

/* A linear operator that was put beside a block. */
typedef struct sbit__beside {
    sbit_node_id node;     /* Conv or MatMul; weights of 0 in the float graph */
    sbit_value_id y, made; /* what the block computes, and what is added to it: both without quantizers */
    sbit_value_id sum;     /* of both: what reads y otherwise reads this */
} sbit__beside;

struct sbit_quant {
    sbit_ctx *ctx;
    sbit_graph *graph; /* simplified, float */
    sbit_qconfig *config;
    const sbit_profile_row *profile;
    sbit__arena arena; /* sites' arrays and options */
    sbit__site *sites;
    size_t site_count, site_capacity;
    sbit__site_graph *graphs; /* in the order of sbit__quant_body */
    size_t graph_count;
    sbit_session *session; /* of the current mode */
    sbit_graph *simulated; /* the graph of the current mode, NULL: `graph` itself */
    bool prepared;         /* observers have states */
    bool calibrating;      /* forward feeds them */
    bool fed, pass_open;   /* some data came; the pass over it has not ended */
    bool calibrated;       /* sites have scales */
    bool use_weights, use_activations;
    bool asym, asym_weights, asym_activations; /* of the calculation that runs */
    bool bn_done, tuning;                      /* SCHEDULE.BN_TUNING has run; runs */
    bool float_done;                           /* steps of stage FLOAT_GRAPH have run */
    sbit__learned_list learned;                /* scales of the model, if it was quantized */
    sbit__quant_dropout *dropouts;
    size_t dropout_count;
    sbit__beside *beside;
    size_t beside_count;
    sbit_feed feed;                            /* that calibrated; read NULL: none */
    int64_t rows, samples; /* of the batch that runs: rows beyond `samples` are padding */
    const int64_t *index;  /* numbers of its samples; NULL: unknown */
};

SBIT__FN sbit_status sbit__quant_place(sbit_quant *quant, sbit_error *error);
/* Graph number `index` of a model: 0 the root, then the bodies depth first in node and attribute
 * order; the same in every clone. NULL past the last. */
SBIT__FN sbit_graph *sbit__quant_body(sbit_graph *root, uint32_t index);
/* Empty tables for the graphs of quant->graph; then each new site is put into its chain. */
SBIT__FN sbit_status sbit__sites_begin(sbit_quant *quant, sbit_error *error);
SBIT__FN void sbit__site_link(sbit_quant *quant, uint32_t index);
/* The tables of a graph; NULL: it is none of the model's. */
SBIT__FN const sbit__site_graph *sbit__site_graph_of(const sbit_quant *quant,
                                                     const sbit_graph *graph);
/* Fills in data, layered, scored and exact of all graphs. */
SBIT__FN void sbit__flow_find(sbit_quant *quant);
SBIT__FN bool sbit__flow_is_softmax(const sbit_node *node);
/* Behind that: fills in curve, argument and normalizes; what is inside is exact. */
SBIT__FN void sbit__curve_find(sbit_quant *quant);
/* The first site of a target on a value, and the one after it; NULL: none (more). */
SBIT__FN sbit__site *sbit__site_on(sbit_quant *quant, const sbit_graph *graph, sbit_value_id value,
                                   uint32_t target);
SBIT__FN sbit__site *sbit__site_after(sbit_quant *quant, const sbit__site *site);
/* The value of a site in its own graph. */
SBIT__FN const sbit_value_info *sbit__site_value(const sbit__site *site);
/* The constant of a weight site as a float32 tensor, converted once if need be. */
SBIT__FN sbit_status sbit__site_weight(sbit_quant *quant, sbit__site *site, sbit_tensor *out,
                                       sbit_error *error);

SBIT__FN sbit_observer_call sbit__site_observer(const sbit_quant *quant, const sbit__site *site);
SBIT__FN sbit_quantizer_call sbit__site_quantizer(const sbit_quant *quant, const sbit__site *site);
/* How many ranges, scales and zero points a site has. */
SBIT__FN int64_t sbit__site_parts(const sbit__site *site);
SBIT__FN bool sbit__site_same_grid(const sbit__site *a, const sbit__site *b);
SBIT__FN bool sbit__site_is_float8(const sbit__site *site);
/* The lowest integer of its width, in a narrow range too. */
SBIT__FN int32_t sbit__site_lowest(const sbit__site *site);
/* True if the site can share its scale: an activation with one that nobody fixed. */
SBIT__FN bool sbit__site_shares(const sbit__site *site);
/* A tensor as the site's quantizer and observer take it; measured by sbit__site_observe. */
SBIT__FN sbit_observation sbit__site_observation(const sbit__site *site, const sbit_tensor *shape,
                                                 const float *data);
/* The arrays of ranges and scales, once. */
SBIT__FN sbit_status sbit__site_arrays(sbit_quant *quant, sbit__site *site, sbit_error *error);
/* Fresh states: of the quantizer alone; of quantizer and observer. */
SBIT__FN sbit_status sbit__site_fresh_quantizer(sbit_quant *quant, sbit__site *site,
                                                sbit_error *error);
SBIT__FN sbit_status sbit__site_prepare(sbit_quant *quant, sbit__site *site, sbit_error *error);
SBIT__FN void sbit__site_release(sbit_quant *quant, sbit__site *site);
/* Frees what a weight's observer saw, which can be seen again, unless its quantizer reads it. */
SBIT__FN void sbit__site_forget_weight(sbit_quant *quant, sbit__site *site);
/* Feeds one tensor to a site's observer, without padding; the error names the tensor. */
SBIT__FN sbit_status sbit__site_observe(sbit_quant *quant, sbit__site *site,
                                        const sbit_tensor *tensor, sbit_error *error);
/* Ends a pass over the data: *wanted if the site's observer asks for another. */
SBIT__FN sbit_status sbit__site_again(sbit_quant *quant, sbit__site *site, bool *wanted,
                                      sbit_error *error);
SBIT__FN sbit_status sbit__quant_calc(sbit_quant *quant, sbit_error *error);
/* QUANTIZER.BIT of a side of the configuration. */
SBIT__FN int32_t sbit__quant_bits(const sbit_quant *quant, uint32_t target);
/* Another width for this calculation; 0: as configured. */
SBIT__FN void sbit__site_search_bits(sbit_quant *quant, sbit__site *site, int32_t bits);
/* A range of another observer for this calculation: [parts] each. */
SBIT__FN sbit_status sbit__site_search_range(sbit_quant *quant, sbit__site *site,
                                             const sbit_observer_row *observer, const float *min,
                                             const float *max, sbit_error *error);
/* Forgets both, and search_float. */
SBIT__FN void sbit__site_search_forget(sbit_quant *quant, sbit__site *site);
/* A session that feeds the observers of all sites that wait, and a pass of the feed through it. */
SBIT__FN sbit_status sbit__quant_calibration_session(sbit_quant *quant, sbit_session **out,
                                                     sbit_error *error);
SBIT__FN sbit_status sbit__calibrate_pass(sbit_quant *quant, const sbit_feed *feed,
                                          sbit_error *error);
/* True if configuration and wishes want the site quantized. */
SBIT__FN bool sbit__site_wanted(const sbit__site *site);
/* True if calibration data decides about the site. */
SBIT__FN bool sbit__quant_observes(const sbit__site *site);
/* Ranges once more, of what the model quantized so far computes (asym): layer after layer, into
 * own_min and own_max; statistics of float inputs are kept. */
SBIT__FN sbit_status sbit__calibrate_asym(sbit_quant *quant, sbit_error *error);
/* Scale and zero point of one site from min and max. */
SBIT__FN sbit_status sbit__calc_site(sbit_quant *quant, sbit__site *site, sbit_error *error);
/* What a step adds to the bias of the layer that has this weight; copied. */
SBIT__FN sbit_status sbit__site_set_shift(sbit_quant *quant, sbit__site *site, const float *shift,
                                          size_t count, sbit_error *error);
/* The weights of a site as they come out of their integers; float32, as many as there are. */
SBIT__FN sbit_status sbit__site_dequantized(sbit_quant *quant, sbit__site *site, float *out,
                                            sbit_error *error);
/* Sites with a leader get the leader's scale and zero point. */
SBIT__FN void sbit__quant_follow(sbit_quant *quant);
/* Forgets what steps did to it. */
SBIT__FN void sbit__site_forget_rounding(sbit_quant *quant, sbit__site *site);
/* Ends a pass over the data of all sites; *wanted if some observer asks for another. */
SBIT__FN sbit_status sbit__calibrate_again(sbit_quant *quant, bool *wanted, sbit_error *error);
/* A session of one of the quant's graphs; NULL if this build lacks an operator and nothing has to
 * run, because only weights are quantized. */
SBIT__FN sbit_status sbit__quant_session(sbit_quant *quant, sbit_graph *graph,
                                         const sbit_session_desc *desc, sbit_session **out,
                                         sbit_error *error);
SBIT__FN void sbit__quant_drop_session(sbit_quant *quant);
/* BatchNormalization behind quantized Conv goes into scales and biases (of int32 if `integers`). */
SBIT__FN sbit_status sbit__fold_norms(sbit_graph *graph, bool integers, sbit_error *error);
/* As sbit_reestimate_bn, but what reads a value with fixed[value] stays as it is (NULL: nothing does, and
 * a model without BatchNormalization is an error). */
SBIT__FN sbit_status sbit__reestimate_bn(sbit_graph *graph, const bool *fixed,
                                         const sbit_feed *feed, sbit_error *error);
/* SCHEDULE.BN_TUNING, once, with a calibrated quant; what it leaves has to be calibrated again. */
SBIT__FN sbit_status sbit__quant_tune_bn(sbit_quant *quant, const sbit_feed *feed,
                                         sbit_error *error);
/* Runs the steps of the float graph once, then finds the sites anew. */
SBIT__FN sbit_status sbit__quant_float_steps(sbit_quant *quant, const sbit_feed *feed,
                                             sbit_error *error);
/* >>biases: a layer's bias as int32 at scale_x * scale_w: the one rule of scales, export, QAT. */
typedef struct sbit__bias {
    const sbit_value_info *value; /* of the graph that was asked: one row of `given` numbers */
    const sbit__site *x, *weight;
    int64_t given, parts, count; /* numbers, scales of the weight, integers: the larger of both */
} sbit__bias;
/* The constant that is the node's bias, one row of numbers; NULL: none. */
SBIT__FN const sbit_value_info *sbit__bias_value(const sbit_quant *quant, const sbit_graph *graph,
                                                 sbit_node_id id);
/* False if the layer has no such bias: none, no constant row, no one scale of its input, or scales
 * of the weight that do not go with it (blocks). Of a clone `graph`: its node and constant. */
SBIT__FN bool sbit__bias_of(sbit_quant *quant, const sbit_graph *graph, sbit_node_id node,
                            const sbit__site *weight, sbit__bias *out);
SBIT__FN float sbit__bias_scale(const sbit__bias *bias, int64_t i);
/* Integer i of a bias that is `value` there; false: it does not fit in 31 bits. */
SBIT__FN bool sbit__bias_round(const sbit__bias *bias, int64_t i, float value, int32_t *out);
/* The opset that the Q/DQ nodes of the sites need. */
SBIT__FN int64_t sbit__quant_opset(const sbit_quant *quant);
/* The site of a node's activation input, NULL if that stays float. */
SBIT__FN sbit__site *sbit__quant_input_site(sbit_quant *quant, const sbit_graph *graph,
                                            sbit_node_id node, uint32_t input);

/* >>formats */
SBIT__FN bool sbit__format_is(const sbit_node *node, const char *op); /* of ai.onnx; NULL is none */
SBIT__FN const sbit_node *sbit__format_producer(const sbit_graph *graph, sbit_value_id id);
/* Erases DequantizeLinear nodes, Clip limits and constants that nothing reads any more. */
SBIT__FN void sbit__format_clean(sbit_graph *graph);
/* The tensor that an input is; NULL: none, or no constant. */
SBIT__FN const sbit_tensor *sbit__format_constant(const sbit_graph *graph, const sbit_node *node,
                                                  size_t input);
/* A node in front of `old`, with new outputs named after it. */
SBIT__FN sbit_status sbit__format_add(sbit_graph *graph, const sbit_node *old, const char *domain,
                                      const char *op, const sbit_value_id *inputs,
                                      size_t input_count, const sbit_attr *attrs, size_t attr_count,
                                      sbit_value_id *outputs, size_t output_count,
                                      sbit_error *error);
/* Runs `write` for the bodies of a graph's nodes; `write` does the same for theirs. */
SBIT__FN sbit_status sbit__format_bodies(sbit_graph *graph,
                                         sbit_status (*write)(sbit_graph *graph, sbit_error *error),
                                         sbit_error *error);
/* Operators on integers become Q/DQ pairs around float operators. */
SBIT__FN sbit_status sbit__format_qdq(sbit_graph *graph, sbit_error *error);
SBIT__FN sbit_status sbit__format_dynamic(sbit_graph *graph, sbit_error *error);
SBIT__FN sbit_status sbit__format_nbits(sbit_graph *graph, sbit_error *error);
/* MatMulNBits of one graph (not of its bodies) becomes MatMul of DequantizeLinear in blocks. */
SBIT__FN sbit_status sbit__format_undo_nbits(sbit_graph *graph, bool *any, sbit_error *error);
/* The row of a format; an error that names the known ones. */
SBIT__FN sbit_status sbit__format_get(const sbit_ctx *ctx, const char *name,
                                      const sbit_format_row **out, sbit_error *error);

/* That operator, of ai.onnx or com.microsoft. */
SBIT__FN bool sbit__dequantize_is(const sbit_node *node, const char *op);
/* "w_quantized" (ours), "w_quantized_1" are w again. */
SBIT__FN void sbit__dequantize_name(const char *name, char *text, size_t size);
/* Floats in place of what is quantized while running, and of MatMulNBits' weights. */
SBIT__FN sbit_status sbit__dequantize_running(sbit_graph *graph, sbit_error *error);
/* Makes a quantized graph float; list NULL: scales are not wanted. */
SBIT__FN sbit_status sbit__dequantize(sbit_graph *graph, sbit__learned_list *list,
                                      sbit_error *error);
/* Fixes a site's scales, if its grid can say the same. */
SBIT__FN sbit_status sbit__learned_fix(sbit_quant *quant, sbit__site *site, const sbit__learned *l,
                                       bool *fixed, sbit_error *error);
/* Fixes the scales of the sites that the list names and whose grid can say the same. */
SBIT__FN sbit_status sbit__learned_apply(sbit_quant *quant, const sbit__learned_list *list,
                                         sbit_error *error);

/* >>blocks */
typedef struct sbit__block {
    sbit_value_id entry, exit; /* of quant->graph */
    uint32_t begin, end;       /* nodes in places begin + 1 .. end */
    const uint32_t *place;     /* by node */
} sbit__block;
/* The root graph in blocks of at least `layers` of the units, in their order; in `arena`. */
SBIT__FN sbit_status sbit__blocks_find(const sbit_quant *quant, const sbit_unit *units,
                                       size_t unit_count, size_t layers, sbit__arena *arena,
                                       sbit__block **out, size_t *count, sbit_error *error);
/* An External node in a clone of quant->graph that stands where the quantizer of a site does:
 * inputs[0] becomes the site's value, the others are its parameters. */
SBIT__FN sbit_status sbit__site_insert(sbit_graph *graph, const sbit__site *site,
                                       const sbit__external *functions, sbit_value_id *inputs,
                                       size_t input_count, sbit__arena *arena, sbit_error *error);
/* As sbit_walk_to, with a value as it is in front of its quantizers: one that is made before
 * `node`, or an input of the model. */
SBIT__FN sbit_status sbit__walk_to_value(sbit_walk *walk, sbit_node_id node, sbit_value_id value,
                                         sbit_walk_fn fn, void *user, sbit_error *error);
/* Of any graph, as it is when the walk moves on. */
SBIT__FN sbit_status sbit__walk_on(sbit_ctx *ctx, sbit_graph *graph, const sbit_feed *feed, sbit_walk **out,
                                   sbit_error *error);
/* Two walks of the same feed and ids, together: fn gets a batch of the first, and at [1] the second's. */
SBIT__FN sbit_status sbit__walk_both(sbit_walk *const *walks, sbit_node_id node, size_t input, sbit_walk_fn fn,
                                     void *user, sbit_error *error);

/* A batch as the session's inputs, by number or by name; names that the graph lacks are left out. */
SBIT__FN sbit_status sbit__batch_set(const sbit_batch *batch, const sbit_graph *graph,
                                     sbit_session *session, sbit_error *error);

/* sbit_quant_build; `whole`: with all nodes and values of the float graph, for walks and taps, not for files. */
SBIT__FN sbit_status sbit__quant_build(sbit_quant *quant, const sbit_quant_build_desc *desc, bool whole,
                                       sbit_graph **out, sbit_error *error);

/* >>compensate-beside */
/* Puts an operator with weights of 0 beside every block of two layers or more. */
SBIT__FN sbit_status sbit__beside_add(sbit_quant *quant, sbit_error *error);
SBIT__FN const sbit__beside *sbit__beside_of(const sbit_quant *quant, sbit_node_id node); /* NULL: none */

/* >>steps: a new one is its file with one const row, one line here, one in src/MANIFEST. */
#define SBIT__STEPS(X)                                                                             \
    X(cross_layer)                                                                                 \
    X(bias_absorption)                                                                             \
    X(auto)                                                                                        \
    X(auto_exclude)                                                                                \
    X(by_time)                                                                                     \
    X(mixed_precision)                                                                             \
    X(widen)                                                                                       \
    X(smooth_quant)                                                                                \
    X(awq)                                                                                         \
    X(hadamard)                                                                                    \
    X(adaround)                                                                                    \
    X(adaquant)                                                                                    \
    X(gptq)                                                                                        \
    X(reconstruct)                                                                                 \
    X(compensate)                                                                                  \
    X(bias_correction)

#define SBIT__STEP_DECLARE(name) SBIT__FN const sbit_step_row *sbit__step_##name(void);
SBIT__STEPS(SBIT__STEP_DECLARE)
#undef SBIT__STEP_DECLARE

SBIT__FN const sbit__kind *sbit__kind_step(void);
/* Runs the steps of a stage; feed NULL or without read: an error if one needs data. */
SBIT__FN sbit_status sbit__steps_run(sbit_quant *quant, sbit_stage stage, const sbit_feed *feed,
                                     sbit_error *error);
SBIT__FN bool sbit__steps_any(const sbit_quant *quant, sbit_stage stage);
SBIT__FN bool sbit__steps_need_data(const sbit_quant *quant, sbit_stage stage);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QUANT_PRIVATE_H */
