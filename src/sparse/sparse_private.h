/* sparse_private.h: labels of channels, groups, masks: what the files of sparse share.
 *
 * Called by: sparse. Calls: sparsers, ops (row->channel), infer, exec, passes.
 *
 * From a graph to what may be cut:
 *   shuffle.c    the graph is made easy to cut
 *   packed.c     weights that are integers: their floats, and back
 *   labels.c     what every position is called: labels, joining, the labels of one value
 *   elements.c   elementwise operators: equal positions, after broadcasting, are one channel
 *   contract.c   products of two activations
 *   propagate.c  the other kinds of rows; every node in order, again until nothing changes
 *   groups.c     classes of labels: which constants they cut, what keeps them, who makes them
 * and from there to a smaller graph:
 *   layers.c     weights, their settings and scores
 *   observe.c    data for sparsers
 *   gradients.c  and gradients
 *   permute.c    channels change places so that N of M keeps more
 *   select.c     which classes go: exact counts, balanced
 *   elements_mask.c  masks of single elements, blocks, N of M
 *   mask.c       masks of constants, from layers or from classes
 *   masks_file.c and what they are called, as JSON
 *   repair.c     layers make up for what goes
 *   folded.c     what a removed channel is: a constant that the layers behind it take up
 *   cut.c        constants lose indices; follow.c: attributes and shapes follow
 *   verify.c     the masked and the smaller graph are run and compared
 *   sensitivity.c  what is lost with each group alone
 *   search.c     a budget is met; searches.c: how; latency.c: what time is left
 *   sparse.c     the public steps
 */
#ifndef SBIT_SPARSE_PRIVATE_H
#define SBIT_SPARSE_PRIVATE_H

#include "../config/config_private.h"
#include "../core/json_api.h"
#include "../exec/exec_api.h"
#include "../infer/infer_private.h"
#include "../sparsers/sparsers_private.h"
#include "search_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* shuffle.c: makes a graph easy to cut without changing what it computes: shuffles are Gathers, and
 * each constant that is no shared weight has one user. */
SBIT__FN sbit_status sbit__sparse_prepare(sbit_graph *graph, sbit__arena *arena, sbit_error *error);

/* >>labels. A label is a positive number; 0 is none: a position that is cut with what lies around
 * it (padding). Joined labels have one root. */
enum {
    SBIT__LABEL_FIXED = 1, /* may not be removed */
    SBIT__LABEL_FREE = 2   /* only constants' elements so far: no layer makes it */
};

typedef enum sbit__label_form {
    SBIT__LABELS_NONE,    /* no labels */
    SBIT__LABELS_UNIFORM, /* at[0] everywhere */
    SBIT__LABELS_AXIS,    /* at[i] wherever the index along `axis` is i */
    SBIT__LABELS_FULL     /* at[position] */
} sbit__label_form;

/* The labels of one value, with the shape that it was labelled at. */
typedef struct sbit__channel_labels {
    sbit__label_form form;
    int32_t axis, rank;
    int64_t dims[SBIT_MAX_RANK];
    int32_t *at;
} sbit__channel_labels;

/* One axis of one constant; with parts > 1 the axis is counted once for each part of axis 0. */
typedef struct sbit__member {
    sbit_value_id value;
    int32_t axis;
    int64_t parts, count; /* labels: parts times the axis' length */
    uint32_t roles;       /* bit: sbit_channel_role */
    sbit_node_id node;    /* the first that reads it */
    int32_t *labels;
} sbit__member;

/* Equal runs of labels that must keep as many each. */
typedef struct sbit__balance {
    int64_t count, blocks;
    const int32_t *labels;
} sbit__balance;

typedef struct sbit__labeler {
    sbit_ctx *ctx;
    const sbit_graph *graph;
    sbit__arena *arena;
    sbit__infer infer;        /* types at the size that labels are run with */
    sbit__channel_labels *of; /* by value */
    int32_t *parent;          /* by label; [0] is not used */
    uint8_t *flags;
    const char **reasons; /* of fixed labels */
    int32_t label_count;
    size_t label_capacity;
    sbit__member *members;
    size_t member_count, member_capacity;
    sbit__balance *balances;
    size_t balance_count, balance_capacity;
    sbit_node_id *elementwise; /* nodes to look at again when labels were joined */
    size_t elementwise_count, elementwise_capacity;
    sbit_node_id *computed; /* data-moving nodes whose places are no constants */
    size_t computed_count, computed_capacity;
    bool changed; /* labels were joined */
    const char *outputs; /* names of graph outputs that may lose channels, "a,b" or "all" */
    bool inexact;        /* normalized axes may lose channels */
} sbit__labeler;

/* The name is one of the list. */
SBIT__FN bool sbit__label_listed(const char *list, const char *name);

/* The node that is being labelled; call->user of a sbit_channel_call. */
typedef struct sbit__label_frame {
    sbit__labeler *labeler;
    const sbit_node *node;
    sbit_op_call op;
    const sbit_type **in_type;
    sbit_type **out_type;
    const sbit_tensor **in;
    const sbit_dim **in_elems;
    int64_t *in_elem_counts;
} sbit__label_frame;

/* Labels of all values of a graph (not of its bodies), at the smallest size that it accepts, batch
 * 2; outputs: as above, or ""; inexact: as above. Lives in `arena`, but for what sbit__labeler_deinit frees (also after a failure). */
SBIT__FN sbit_status sbit__labeler_run(sbit__labeler *labeler, const sbit_graph *graph,
                                       const char *outputs, bool inexact, sbit__arena *arena,
                                       sbit_error *error);
SBIT__FN void sbit__labeler_deinit(sbit__labeler *labeler);

/* labels.c */
SBIT__FN int32_t sbit__label_root(const sbit__labeler *labeler, int32_t label);
/* `count` new labels, the first of which is *first. */
SBIT__FN sbit_status sbit__label_new(sbit__labeler *labeler, int64_t count, uint32_t flags,
                                     const char *reason, int32_t *first, sbit_error *error);
SBIT__FN void sbit__label_join(sbit__labeler *labeler, int32_t a, int32_t b); /* 0: does nothing */
SBIT__FN void sbit__label_fix(sbit__labeler *labeler, int32_t label, const char *reason);
SBIT__FN bool sbit__label_is(const sbit__labeler *labeler, int32_t label, uint32_t flag);
/* "Conv 'conv1' reason", in the arena. */
SBIT__FN const char *sbit__node_reason(const sbit_graph *graph, sbit__arena *arena,
                                       sbit_node_id node, const char *reason);
SBIT__FN const char *sbit__label_reason(sbit__labeler *labeler, sbit_node_id node,
                                        const char *reason);
SBIT__FN int64_t sbit__channel_labels_count(const sbit__channel_labels *labels); /* positions */
SBIT__FN int32_t sbit__channel_labels_at(const sbit__channel_labels *labels, int64_t position);
/* How far apart, and how many, positions with neighbouring indices along an axis are. */
SBIT__FN int64_t sbit__channel_labels_inner(const sbit__channel_labels *labels, int32_t axis);
SBIT__FN sbit_status sbit__channel_labels_make(sbit__labeler *labeler, const sbit_type *type,
                                               sbit__label_form form, int32_t axis,
                                               sbit__channel_labels *out, sbit_error *error);
/* All positions, whatever the form; in the arena. */
SBIT__FN sbit_status sbit__channel_labels_expand(sbit__labeler *labeler,
                                                 const sbit__channel_labels *labels, int32_t **out,
                                                 sbit_error *error);
/* Gives labels that depend on one axis only that form; what is constant in a slice of it joins. */
SBIT__FN void sbit__channel_labels_settle(sbit__labeler *labeler, sbit__channel_labels *labels);
/* Joins all labels with the same index along an axis; at[dims[axis]] gets one for each (0: none).
 */
SBIT__FN void sbit__channel_labels_slices(sbit__labeler *labeler,
                                          const sbit__channel_labels *labels, int32_t axis,
                                          int32_t *at);
/* Axes along which labels vary that may be removed, as bits. */
SBIT__FN uint32_t sbit__channel_labels_varies(const sbit__labeler *labeler,
                                              const sbit__channel_labels *labels);
SBIT__FN void sbit__channel_labels_fix(sbit__labeler *labeler, const sbit__channel_labels *labels,
                                       const char *reason);

/* elements.c: labels of the output of an elementwise operator, and what it joins. `first`: the
 * output has none yet; `last`: what meets several channels is fixed. */
SBIT__FN sbit_status sbit__label_elementwise(sbit__label_frame *frame, uint32_t inputs, bool first,
                                             bool last, sbit_error *error);
/* contract.c: products of two activations */
SBIT__FN sbit_status sbit__label_contract(sbit__label_frame *frame, sbit_error *error);

/* >>groups */
/* The labels of one root: they live and die together. */
typedef struct sbit__class {
    int32_t root;
    bool removable;
    const char *reason; /* why not */
    int32_t group;      /* index; -1: none */
} sbit__class;

/* Classes that the same layers make. */
typedef struct sbit__group {
    int32_t *classes; /* indices, ascending by first row */
    int32_t class_count;
    int32_t *makers; /* members with rows, indices */
    int32_t maker_count;
    const char *reason; /* why it is kept whole; NULL: it can be cut */
    /* the strictest settings of the layers that hold a class of it: sbit__groups_limit */
    double ratio, max_ratio;
    int64_t min_kept, align;
    bool whole_model, prune_bias;
} sbit__group;

typedef struct sbit__groups {
    sbit__class *classes;
    int32_t class_count;
    int32_t *class_of; /* by label root */
    sbit__group *groups;
    int32_t group_count;
} sbit__groups;

SBIT__FN sbit_status sbit__groups_make(sbit__labeler *labeler, sbit__groups *out,
                                       sbit_error *error);
/* Index of the class of a label; -1: no layer makes it. */
SBIT__FN int32_t sbit__class_of(const sbit__labeler *labeler, const sbit__groups *groups,
                                int32_t label);
/* The member makes channels (rows of a layer), or makes them smaller (depthwise too). */
SBIT__FN bool sbit__member_makes(const sbit__member *member);
SBIT__FN bool sbit__member_prunes(const sbit__member *member);

/* >>pruning */
/* A weight whose units are scored: a member with rows. */
typedef struct sbit__sparse_layer {
    int32_t member;
    char name[128];
    sbit_sparse_settings settings;
    double target; /* the ratio in the end; settings.ratio is that of now */
    double threshold, min_ratio; /* likewise */
    bool spared;   /* its ratio was set to 0: no search changes that */
    bool given;    /* its ratio was set, by code or a search, or to 0: THRESHOLD makes none */
    const sbit_sparser_row *row;
    sbit_options options;
    sbit_tensor weight; /* float32; owned if the graph's is of another type */
    bool owns_weight;
    const float *gamma; /* of the BatchNormalization behind it */
    sbit_parts units;
    sbit_sparser_call call;
    void *state;
    size_t state_bytes;
    double *scores; /* [units.count], in the arena; NULL: not yet */
} sbit__sparse_layer;

/* What removed channels are: smallest and largest seen. */
typedef struct sbit__folded {
    sbit__arena arena;   /* of what follows; emptied by every run */
    float **low, **high; /* by value: by index of its labels' axis; NULL: nothing removed there */
} sbit__folded;

/* Integers that are a constant: packed.c. */
typedef struct sbit__packed {
    sbit_node_id node;    /* their DequantizeLinear, which nothing reads while ... */
    sbit_value_id floats; /* ... this takes its place */
    int32_t axis;         /* of the scales; -1: one */
    int64_t block;        /* of indices along it; 0: none */
} sbit__packed;

typedef struct sbit__collector {
    sbit_sparse_collector is; /* pattern: in this block of memory */
    int32_t id;
    size_t bytes;
    struct sbit__collector *next;
} sbit__collector;

struct sbit_sparse {
    sbit_ctx *ctx;
    sbit__collector *collectors;
    int32_t collector_ids; /* that were given */
    sbit__arena arena;
    sbit_sconfig *config; /* held: options of layers borrow from it */
    sbit_graph *graph;    /* simplified */
    sbit_graph *original; /* the user's; NULL: weights were set that it has not */
    const char *outputs;  /* that may lose channels: sbit__labeler */
    const char *format;   /* that the model had, and gets again; NULL: it was no other */
    sbit__packed *packed;
    size_t packed_count;
    sbit_options options; /* of no layer: SEARCH and its rows' keys */
    bool *in_original;    /* by value: a constant that the same nodes read in the user's graph */
    sbit__labeler labeler;
    sbit__groups groups;
    sbit__sparse_layer *layers;
    size_t layer_count;
    sbit_tensor *was;      /* by value: before a sparser or a repair changed it; no data: as it is */
    uint8_t **keep;        /* by value; NULL: all kept; in the arena */
    uint8_t **start;       /* likewise: what was pruned before */
    bool masks_off;
    int stepping;          /* 1: in step 0 of sbit_sparse_step, 2: in a later one */
    bool trying;           /* ratios are those of sbit__alone_set */
    bool *marks;           /* by value: memory for sbit__graph_mark_back */
    bool *removed;         /* by class */
    bool masks_fit;        /* masks are those of select: all removed classes can go ... */
    sbit__folded folded;   /* ... as these constants */
    const char **kept_why; /* by class: why a channel that was chosen stays */
    sbit__arena reasons;   /* of kept_why; emptied with it */
    const char **group_names;
    int64_t *group_kept;
};

/* packed.c */
/* Operators on integers become pairs; format says what they were. */
SBIT__FN sbit_status sbit__packed_unpack(sbit_sparse *sparse, sbit_error *error);
/* Constant integers become floats: packed. */
SBIT__FN sbit_status sbit__packed_open(sbit_sparse *sparse, sbit_error *error);
/* The channels that share a scale of a block are one. After labels, before groups. */
SBIT__FN void sbit__packed_join(sbit_sparse *sparse);
/* A copy of the graph, cut or not, gets integers again, and its format. */
SBIT__FN sbit_status sbit__packed_close(const sbit_sparse *sparse, sbit_graph *graph, sbit_error *error);

/* A copy of the user's graph gets the integers of changed floats; *has false: it has no such node. */
SBIT__FN sbit_status sbit__packed_original(const sbit_sparse *sparse, sbit_value_id floats,
                                           const sbit_tensor *now, sbit_graph *copy, bool *has,
                                           sbit_error *error);

/* layers.c: weights, their settings and scores */
SBIT__FN sbit_status sbit__layers_make(sbit_sparse *sparse, sbit_sconfig *config,
                                       sbit_error *error);
SBIT__FN void sbit__layers_free(sbit_sparse *sparse);
/* A constant gets another tensor until the masks are made again. */
SBIT__FN sbit_status sbit__sparse_change(sbit_sparse *sparse, sbit_value_id id,
                                         const sbit_tensor *tensor, sbit_error *error);
/* A copy of the graph gets what was there before all changes. */
SBIT__FN sbit_status sbit__sparse_unchanged(const sbit_sparse *sparse, sbit_graph *copy,
                                            sbit_error *error);
/* All changes are taken back. */
SBIT__FN sbit_status sbit__sparse_restore(sbit_sparse *sparse, sbit_error *error);
/* Masks, and new weights, of the layers whose sparsers give them, one after the other. */
SBIT__FN sbit_status sbit__layers_update(sbit_sparse *sparse, const sbit_feed *feed,
                                         sbit_error *error);
/* Scores of all layers with a ratio; the model runs on the feed where a sparser asks for data. */
SBIT__FN sbit_status sbit__layers_score(sbit_sparse *sparse, const sbit_feed *feed,
                                        sbit_error *error);

/* Something of it is to be pruned. */
SBIT__FN bool sbit__sparse_layer_active(const sbit__sparse_layer *layer);

/* It is ranked together with others of SCOPE model. */
SBIT__FN bool sbit__sparse_layer_together(const sbit__sparse_layer *layer, bool structured);

/* observe.c: runs the model for the sparsers that look at data */
SBIT__FN sbit_status sbit__layers_observe(sbit_sparse *sparse, const sbit__sparse_layer *only,
                                          const sbit_feed *feed, sbit_error *error);

/* gradients.c: the same with the gradients of the loss */
SBIT__FN sbit_status sbit__layers_gradients(sbit_sparse *sparse, const sbit_feed *feed,
                                            sbit_error *error);

/* elements_mask.c */
typedef struct sbit__rank {
    double score;
    int64_t index;
} sbit__rank;
/* Ascending, equal scores by index; in scratch. */
SBIT__FN sbit_status sbit__ranks_of(const double *scores, int64_t n, sbit__arena *scratch,
                                    sbit__rank **out, sbit_error *error);
SBIT__FN sbit_status sbit__mask_elements(const sbit__sparse_layer *layer, uint8_t *keep,
                                         sbit__arena *scratch, sbit_error *error);

/* mask.c */
SBIT__FN void sbit__masks_clear(sbit_sparse *sparse);
SBIT__FN sbit_status sbit__mask_of(sbit_sparse *sparse, sbit_value_id value, uint8_t **keep,
                                   sbit_error *error);
SBIT__FN sbit_status sbit__masks_by_layer(sbit_sparse *sparse, bool channels, sbit_error *error);
/* What was pruned before stays so. */
SBIT__FN sbit_status sbit__masks_start(sbit_sparse *sparse, sbit_error *error);
/* Masks of all that makes the removed classes. */
SBIT__FN sbit_status sbit__masks_by_class(sbit_sparse *sparse, sbit_error *error);
/* Index `index` of the member is masked, all of it. */
SBIT__FN bool sbit__mask_is_empty(const sbit_sparse *sparse, const sbit__member *member,
                                  int64_t index);
/* Marks the classes that are masked everywhere, and can go, as removed. */
SBIT__FN void sbit__masks_to_classes(sbit_sparse *sparse);
SBIT__FN sbit_status sbit__masks_apply(const sbit_sparse *sparse, sbit_graph *graph,
                                       sbit_error *error);

SBIT__FN void sbit__masks_print(const sbit_sparse *sparse, sbit_json *to);
/* the layer that reads a constant as *part; NULL: none. */
SBIT__FN const char *sbit__mask_reader(const sbit_sparse *sparse, sbit_value_id value, const char **part);
/* "layer.part" or the name of a value; 0: there is none. */
SBIT__FN sbit_value_id sbit__mask_find(const sbit_sparse *sparse, const char *name);

/* select.c */
/* Changes cells[classes]: equal for classes that are in the same run of every balanced set. */
SBIT__FN void sbit__class_cells(const sbit_sparse *sparse, uint64_t *cells);
/* Of each group the strictest settings of the layers that hold a class of it, as they are now. */
SBIT__FN void sbit__groups_limit(sbit_sparse *sparse);
/* Fills removed. */
SBIT__FN sbit_status sbit__select_classes(sbit_sparse *sparse, sbit_error *error);
/* Gives classes back until balanced sets are equal, groups keep what MIN_KEPT and ALIGN say, and
 * something is left everywhere. scores may be NULL: the last ones first. */
SBIT__FN void sbit__select_repair(sbit_sparse *sparse, const double *scores);

/* folded.c: what removed channels are, once their layers are masked */
/* Runs the masked graph on random inputs. */
SBIT__FN sbit_status sbit__folded_run(sbit_sparse *sparse, sbit_graph *masked,
                                      sbit__folded *folded, sbit_error *error);
/* Gives classes back that are no constant where a layer reads them, or one that it cannot take up
 * (kept_why says so); true if there were any. */
SBIT__FN bool sbit__folded_check(sbit_sparse *sparse, const sbit_graph *masked,
                                 const sbit__folded *folded);
/* Adds what the removed channels contribute to the biases of the layers that read them. */
SBIT__FN sbit_status sbit__folded_apply(sbit_sparse *sparse, sbit_graph *graph,
                                        const sbit__folded *folded, sbit_error *error);

/* cut.c: removes the classes from a masked copy of the graph */
SBIT__FN sbit_status sbit__cut(sbit_sparse *sparse, sbit_graph *graph, sbit_error *error);
/* How many of the indices along an axis of a value stay. */
SBIT__FN int64_t sbit__cut_kept(const sbit_sparse *sparse, sbit_value_id value, int32_t axis);
/* The labels along that axis have removed ones among them. */
SBIT__FN bool sbit__cut_touches(const sbit_sparse *sparse, sbit_value_id value, int32_t axis);
/* One for each index, in the arena. */
SBIT__FN sbit_status sbit__cut_stays(const sbit_sparse *sparse, sbit_value_id value, int32_t axis,
                                     sbit__arena *arena, bool **out, sbit_error *error);
SBIT__FN bool sbit__class_is_removed(const sbit_sparse *sparse, int32_t label);
/* Another tensor loses what a constant loses: along its only axis what `only` of the constant does, or
 * (only -1) along all axes, of which one entry stands for `block` indices of `blocked`. Allocated. */
SBIT__FN sbit_status sbit__cut_like(const sbit_sparse *sparse, sbit_value_id constant, int32_t only,
                                    int32_t blocked, int64_t block, const sbit_tensor *from,
                                    sbit__arena *arena, sbit_tensor *out, sbit_error *error);

/* follow.c: attributes and index inputs follow the new shapes */
SBIT__FN sbit_status sbit__cut_follow(sbit_sparse *sparse, sbit_graph *graph, sbit_node_id node,
                                      sbit__arena *arena, sbit_error *error);

/* verify.c */
/* The type that an input was labelled with; one: with an open first dim of 1. */
SBIT__FN void sbit__sparse_input_type(const sbit_sparse *sparse, sbit_value_id id, bool one,
                                      sbit_type *out);
/* Random numbers of these types, always the same for a seed. */
SBIT__FN sbit_status sbit__sparse_inputs(const sbit_sparse *sparse, sbit_session *session, bool one,
                                         uint64_t seed, sbit__arena *arena, sbit_error *error);
/* Fills in_original. */
SBIT__FN void sbit__originals_find(sbit_sparse *sparse);
/* Nodes of the user's graph, or a copy of it, get another tensor in place of such a constant. */
SBIT__FN sbit_status sbit__originals_put(const sbit_sparse *sparse, sbit_graph *copy,
                                         sbit_value_id id, const sbit_tensor *tensor,
                                         sbit_error *error);
/* repair.c: SQNR of the float outputs of two graphs on the feed, dB. */
SBIT__FN sbit_status sbit__repair_compare(sbit_sparse *sparse, const sbit_feed *feed,
                                          sbit_graph *before, sbit_graph *now, double *sqnr,
                                          sbit_error *error);
/* >>alone: sensitivity.c: what can be pruned by itself: a group, or one layer whose settings say
 * single elements. */
typedef struct sbit__alone {
    int32_t group; /* -1: a layer */
    size_t layer;
} sbit__alone;

/* All of them, in the arena; without what is spared. */
SBIT__FN sbit_status sbit__alone_list(const sbit_sparse *sparse, sbit__arena *arena,
                                      sbit__alone **out, size_t *count, sbit_error *error);
SBIT__FN const char *sbit__alone_name(const sbit_sparse *sparse, const sbit__alone *alone);
/* Layer `index` scores something of it. */
SBIT__FN bool sbit__alone_has(const sbit_sparse *sparse, const sbit__alone *alone, size_t index);
SBIT__FN int64_t sbit__alone_kept(const sbit_sparse *sparse, const sbit__alone *alone, int64_t *all);
/* Ratios of layers: the largest of what they score something of, else 0. THRESHOLD waits. */
SBIT__FN void sbit__alone_set(sbit_sparse *sparse, const sbit__alone *units, size_t count,
                              const double *ratios);
/* Ends trying ratios: layers have their own again, weights are as they were, nothing is masked. */
SBIT__FN sbit_status sbit__alone_forget(sbit_sparse *sparse, sbit_error *error);

/* >>budgets */
enum {
    SBIT__BUDGET_PARAMS,
    SBIT__BUDGET_MACS,
    SBIT__BUDGET_BYTES,
    SBIT__BUDGET_TIME,
    SBIT__BUDGETS
};

struct sbit_search {
    sbit_sparse *sparse;
    const sbit_search_row *row;
    const sbit_sparse_budget *budget;
    const sbit_feed *feed; /* NULL: none */
    sbit_latency *times;   /* NULL: none */
    sbit__arena arena;
    sbit__alone *units;
    size_t unit_count;
    sbit_graph *before;                          /* unmasked */
    sbit_sparse_tuning tuning;                   /* steps 0: scores are of weights as they are */
    const double *floor;                         /* least ratios; NULL: 0 */
    sbit_graph *tuned, *best;                    /* what was scored last; what a step keeps */
    double limits[SBIT__BUDGETS];                /* shares; 0: none */
    double whole[SBIT__BUDGETS], left[SBIT__BUDGETS]; /* costs; shares of them, at the last try */
    double by_nodes;                             /* the share of time, before it is corrected */
};

SBIT__FN const sbit__kind *sbit__kind_search(void);
/* sparse.c: as sbit_sparse_select, with the scores of before. */
SBIT__FN sbit_status sbit__sparse_choose(sbit_sparse *sparse, const sbit_feed *feed,
                                         sbit_error *error);
/* search.c: from now on what is scored is trained before. */
SBIT__FN sbit_status sbit__search_tunes(sbit_search *search, int64_t steps, int64_t batch,
                                        double rate, sbit_error *error);
/* What was scored last becomes `best`. */
SBIT__FN void sbit__search_keep(sbit_search *search);
/* The weights of `best` become those of the sparse: what it prunes is 0 there, so that it stays the
 * least. Layers are scored anew. */
SBIT__FN sbit_status sbit__search_adopt(sbit_search *search, sbit_error *error);
/* the graph without what is pruned at present; weights are not masked. */
SBIT__FN sbit_status sbit__sparse_left(sbit_sparse *sparse, sbit_graph **out, sbit_error *error);
/* latency.c: microseconds of a graph, by the table. */
SBIT__FN sbit_status sbit__latency_of(const sbit_latency *latency, const sbit_sparse *sparse,
                                      const sbit_graph *graph, double *us, sbit_error *error);
/* Runs the user's graph too: masked as well if it holds all masked constants, else before anything
 * was masked, next to the simplified one. */
SBIT__FN sbit_status sbit__sparse_verify(sbit_sparse *sparse, sbit_graph *masked,
                                         sbit_graph *shrunk, const sbit_feed *feed,
                                         sbit_error *error);

/* Both graphs compute the same on random inputs, to the bound; NUMERIC: they do not. */
SBIT__FN sbit_status sbit__sparse_same(const sbit_sparse *sparse, sbit_graph *a, sbit_graph *b, sbit_error *error);

/* sconfig_nni.c: our YAML of a list of entries; nothing if it is none. */
SBIT__FN sbit_status sbit__nni_translate(sbit_ctx *ctx, const sbit_yaml *root, sbit__text *out,
                                         sbit_error *error);
/* sconfig.c: keeps it, as it is, until it was destroyed once more: options are borrowed from it */
SBIT__FN sbit_sconfig *sbit__sconfig_hold(sbit_sconfig *config);
/* the options of no single layer */
SBIT__FN const sbit_options *sbit__sconfig_options(const sbit_sconfig *config);
/* the settings of a layer, with its options in the arena */
SBIT__FN sbit_status sbit__sconfig_resolve(sbit_sconfig *config, const sbit_graph *graph,
                                           sbit_node_id node, sbit__arena *arena,
                                           sbit_options *options, sbit_sparse_settings *out,
                                           sbit_error *error);
SBIT__FN void sbit__sconfig_warn_unmatched(const sbit_sconfig *config, const sbit_graph *graph);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSE_PRIVATE_H */
