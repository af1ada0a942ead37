/* sparse_api.h: pruning: masks, and the channels that live and die together. >>sparse
 *
 * Called by: users, tools, train. Calls: sconfig, sparsers, ops (row->channel), passes, exec.
 *
 *     sbit_prune(graph, config, feed, &out, &error)     all at once: score, choose, cut, prove
 *
 *     create -> calc_params (a mask for every layer by itself, as Sparsebit gives it)
 *            or select (channels of all layers together: what can be cut)
 *            -> repair (from data, without training)
 *            -> masked: a graph of the same shapes; shrink: without the channels; export_onnx
 *
 * A sbit_sparse owns a simplified copy of the graph, with BatchNormalization as it is. A channel is
 * all that holds one output channel of a layer, wherever it goes: rows of weights that are added
 * up, biases, normalizations, columns of the layers behind. What cannot be cut exactly is kept, and
 * its group says why. One thread at a time.
 *
 * Models that are quantized already are pruned as they are: integers of a constant behind a
 * DequantizeLinear, of QLinearConv and its kind, of MatMulNBits are floats inside (scores, masks, cuts),
 * and become integers again by their own scales and zero points, which lose what their channels lose:
 * what stays has the integers it had. Where a scale is of a block of inputs, all of a block goes or
 * nothing of it. Scales of activations stay. PERMUTE and repairs are for floats only.
 */
#ifndef SBIT_SPARSE_API_H
#define SBIT_SPARSE_API_H

#include "sconfig_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_sparse sbit_sparse;

/* The graph and the settings are copied; patterns of SPECIFIC that match nothing are warned of.
 * Errors: SHAPE if no input size gives every operator a shape. Free with sbit_sparse_destroy. */
SPARSEBIT_API sbit_status sbit_sparse_create(const sbit_graph *graph, sbit_sconfig *config,
                                             sbit_sparse **out, sbit_error *error);
SPARSEBIT_API void sbit_sparse_destroy(sbit_sparse *sparse); /* NULL is fine */

/* PERMUTE of the configuration, before all else: channels change places, inputs of layers with N_OF_M
 * and whatever makes them, so that N_OF_M keeps more of the scores (Pool and Yu 2021). The model
 * computes what it did, which is tried on random inputs; sbit_sparse_graph is the model with the new
 * places. feed may be NULL unless a sparser looks at data. out may be NULL; without PERMUTE all 0.
 * Errors: STATE if there is a start mask: it is of the old places; UNSUPPORTED: weights are integers. */
typedef struct sbit_sparse_permuted {
    double before, after; /* part of the sum of scores that N_OF_M keeps */
    int64_t channels;     /* that have another place */
} sbit_sparse_permuted;
SPARSEBIT_API sbit_status sbit_sparse_permute(sbit_sparse *sparse, const sbit_feed *feed,
                                              sbit_sparse_permuted *out, sbit_error *error);

/* Ratios of single layers, before calc_params or select: of those that match the pattern (see layer
 * names). Errors: NOT_FOUND with the nearest names, INVALID_ARGUMENT outside of 0 to 1. */
SPARSEBIT_API sbit_status sbit_sparse_set_ratio(sbit_sparse *sparse, const char *pattern,
                                                double ratio, sbit_error *error);
/* Ratio 0 for every layer whose output reaches an Add or Sum before another layer reads it. */
SPARSEBIT_API void sbit_sparse_disable_sparse_before_add(sbit_sparse *sparse);

/* A mask for every layer by itself, as its settings say; masks of before are forgotten. Rows of LSTM,
 * GRU and RNN are ranked within each gate, as torch's LSTMSaliencyPruner does it (sbit_sparse_select
 * chooses whole hidden units: rows of all gates, columns of R, biases; only these can be cut). feed may be
 * NULL unless a sparser looks at data (STATE). */
SPARSEBIT_API sbit_status sbit_sparse_calc_params(sbit_sparse *sparse, const sbit_feed *feed,
                                                  sbit_error *error);
/* The same for single elements; channels are chosen in groups by the sum of their scores, exactly
 * floor(ratio * channels) of each group (the smallest ratio of its layers), fewer where groups of a
 * convolution must stay equal, ALIGN or MIN_KEPT say so. */
SPARSEBIT_API sbit_status sbit_sparse_select(sbit_sparse *sparse, const sbit_feed *feed,
                                             sbit_error *error);

/* For loops of one's own: new weights (by the constant's name, same type and shape; copied), then
 * as sbit_sparse_select with the ratios (and THRESHOLD, MIN_RATIO) that SCHEDULE gives for this step of
 * `total`. Ratios are of the original, so steps do not add up; sparsers that add up what they see
 * (movement) go on from step to step, and begin anew at step 0. Errors: NOT_FOUND, SHAPE. */
SPARSEBIT_API sbit_status sbit_sparse_set_weight(sbit_sparse *sparse, const char *name,
                                                 const sbit_tensor *weight, sbit_error *error);
SPARSEBIT_API sbit_status sbit_sparse_step(sbit_sparse *sparse, int64_t step, int64_t total,
                                           const sbit_feed *feed, sbit_error *error);

/* Ratios that leave at most these shares of the original, as SEARCH of the configuration says
 * (search_api.h), for all but those that were set to 0; then as sbit_sparse_select. admm_training needs
 * no budget: RATIO is one. Errors: LIMIT,
 * saying what is left at best, STATE if the search needs a feed. */
/* What trains inside of a search (NETADAPT.STEPS, autocompress): sbit_trainer_tune, or one's own. */
typedef struct sbit_sparse_tuning {
    sbit_graph *graph;         /* masked: float32 weights and statistics are changed in place ... */
    const sbit_sparse *sparse; /* ... but what these masks prune stays 0 */
    const sbit_feed *feed;     /* with targets */
    const char *loss;          /* name of a loss row, on the first output */
    int64_t steps, batch;      /* of so many samples each */
    double rate;
    /* by value of the graph: before each step w goes this part of the way to pull[value], and masks do
     * not hold; NULL: masks do, and nothing is pulled */
    const float *const *pull;
    double rho;
} sbit_sparse_tuning;
typedef struct sbit_sparse_budget {
    double params, macs, bytes; /* of the weights; 0.5: half; 0: no limit */
    double latency;             /* of one run on this machine ... */
    struct sbit_latency *times; /* ... by this table: sbit_latency_measure; it may grow */
    /* how good a masked model is, more is better; NULL: how near its outputs on the feed are */
    sbit_status (*measure)(sbit_graph *masked, void *user, double *score, sbit_error *error);
    void *user;
    /* NULL: nothing trains. A search that does leaves its weights in the sparse, for good. */
    sbit_status (*tune)(const sbit_sparse_tuning *tuning, sbit_error *error);
} sbit_sparse_budget;
SPARSEBIT_API sbit_status sbit_sparse_fit(sbit_sparse *sparse, const sbit_sparse_budget *budget,
                                          const sbit_feed *feed, sbit_error *error);

/* REPAIR of the configuration, after select (or masks of one's own) and before masked or shrink:
 * ridge changes the weights that stay of the layers behind what went, one after the other, so that
 * they compute on the feed what they did before anything was pruned (Conv without groups or with,
 * Gemm, MatMul; rows of at most 6,912 weights; SPECIFIC with [REPAIR, none] leaves a layer out);
 * a layer without a bias has the mean of the BatchNormalization behind it for one. batch_norm then
 * takes the statistics of every BatchNormalization anew - but beside ridge not of those in front of
 * all that was cut, nor right behind a layer that ridge repaired: what least squares cannot predict they leave out, and a variance that is taken anew
 * would scale the rest up to where it was, noise and all. The next select starts from the original
 * weights. Both models go from layer to layer together, keeping at most 1 GiB each of what is in front
 * (more is computed again). out may be NULL; without REPAIR it is all 0. Errors: STATE without a feed. */
typedef struct sbit_sparse_repaired {
    double before, ridge, after; /* SQNR of the float outputs on the feed, dB: masked, after ridge,
                                    after both */
    int64_t layers, norms;       /* that were repaired */
} sbit_sparse_repaired;
SPARSEBIT_API sbit_status sbit_sparse_repair(sbit_sparse *sparse, const sbit_feed *feed,
                                             sbit_sparse_repaired *out, sbit_error *error);

/* What the outputs lose when one group of channels (or the elements of one layer, where its settings
 * say so) is pruned alone, at each of the ratios: select, masked, and the float outputs on the feed
 * against the unpruned model. Groups that are kept whole are left out. Writes group by group, at
 * most groups and layers times ratios; masks are forgotten, ratios are what they were. Errors: LIMIT
 * if out is too small, those of select. */
typedef struct sbit_sparse_loss {
    const char *layers; /* that make the channels; borrowed from sparse */
    double ratio;
    int64_t count, kept; /* channels or elements */
    double sqnr;         /* dB; HUGE_VAL: equal */
} sbit_sparse_loss;
SPARSEBIT_API sbit_status sbit_sparse_analyze(sbit_sparse *sparse, const sbit_feed *feed,
                                              const double *ratios, size_t ratio_count,
                                              sbit_sparse_loss *out, size_t capacity,
                                              size_t *count, sbit_error *error);

/* >>masks: of the constants of sbit_sparse_graph. One byte an element, 1 keep, 0 pruned. */
typedef struct sbit_mask {
    sbit_value_id value; /* the weight or bias */
    const char *name;    /* of the constant */
    const char *layer;   /* that reads it; NULL: none */
    const char *part;    /* of the layer: "weight", "bias"; of LSTM, GRU, RNN "weight_ih", "weight_hh", "bias" */
    int64_t count, kept; /* elements */
    const uint8_t *keep; /* borrowed until masks change */
} sbit_mask;
SPARSEBIT_API const sbit_graph *sbit_sparse_graph(const sbit_sparse *sparse);
SPARSEBIT_API size_t sbit_sparse_mask_count(const sbit_sparse *sparse);
SPARSEBIT_API sbit_status sbit_sparse_mask(const sbit_sparse *sparse, size_t index, sbit_mask *out);
/* Sets the mask of a constant, by its name or as "layer.part"; count must be its number of elements. Copied. */
SPARSEBIT_API sbit_status sbit_sparse_set_mask(sbit_sparse *sparse, const char *name,
                                               const uint8_t *keep, int64_t count,
                                               sbit_error *error);
/* sbit_sparse_set_mask of all of these: name, keep and count are read. `start`: masks to begin with. What they
 * prune counts as zero when layers are scored, and stays pruned in every mask that is made from then on, besides
 * what the ratios ask for. Sets none after an error: CONFIG if two are of one constant, NOT_FOUND, SHAPE. */
SPARSEBIT_API sbit_status sbit_sparse_set_masks(sbit_sparse *sparse, const sbit_mask *masks, size_t count,
                                                bool start, sbit_error *error);
/* Likewise all that a JSON file of sbit_sparse_export has: IO, CONFIG with the line, NOT_FOUND, SHAPE. */
SPARSEBIT_API sbit_status sbit_sparse_load_masks(sbit_sparse *sparse, const char *path, bool start,
                                                 sbit_error *error);
/* What is masked is 0 in sbit_sparse_graph from now on, changes of sparsers and repairs are its weights
 * too, and masks are forgotten (start masks are not). */
SPARSEBIT_API sbit_status sbit_sparse_squash(sbit_sparse *sparse, sbit_error *error);
/* Masks do nothing while they are off: sbit_sparse_masked then gives the model as it was. */
SPARSEBIT_API void sbit_sparse_switch_masks(sbit_sparse *sparse, bool on);
/* STATE with the names of all layers that have masked rows which no cut removes; they stay, as zeros. */
SPARSEBIT_API sbit_status sbit_sparse_check_cut(sbit_sparse *sparse, sbit_error *error);

/* >>results. Free with sbit_graph_destroy before the sparse. */
/* The graph with what is pruned set to zero, shapes as they were. */
SPARSEBIT_API sbit_status sbit_sparse_masked(sbit_sparse *sparse, sbit_graph **out,
                                             sbit_error *error);
/* The graph without the channels that are masked everywhere; what cannot be cut stays, as zeros.
 * Run against the masked graph on random inputs, and on the first samples of feed if there is one;
 * and against the graph that sparse was made from, with the same masks (where it does not hold what
 * is masked - a weight behind a Transpose, a scale that was fused - that graph is compared with the
 * simplified one, before masks).
 * Errors: NUMERIC if they differ by more than 1e-4 of the output's largest value (1e-3 beyond 50
 * layers): a fault of this library, and nothing is given. */
SPARSEBIT_API sbit_status sbit_sparse_shrink(sbit_sparse *sparse, const sbit_feed *feed,
                                             sbit_graph **out, sbit_error *error);
/* False: INEXACT_NORM let a LayerNormalization lose channels, so that what sbit_sparse_shrink gives
 * is no masked graph's equal: it was run, not compared. After shrink. */
SPARSEBIT_API bool sbit_sparse_is_exact(const sbit_sparse *sparse);
/* Shrinks, checks and saves. */
SPARSEBIT_API sbit_status sbit_sparse_export_onnx(sbit_sparse *sparse, const char *path,
                                                  const sbit_onnx_write_desc *desc,
                                                  sbit_error *error);
/* The results in files, in one call; NULL: that one is not written. With `shrunk` nothing is, if the
 * smaller model is not the masked one's equal. */
typedef struct sbit_sparse_files {
    const char *shrunk, *masked; /* ONNX; ONNX of the same shapes: the masked weights */
    /* JSON: {"conv1": {"weight": {"shape": [8, 3, 3, 3], "runs": [kept, pruned, kept ...]}}}, as NNI's
     * {layer: {weight, bias}}; what no layer reads is the "constant" of its own name */
    const char *masks;
    const sbit_onnx_write_desc *desc; /* of both models; NULL: all defaults */
} sbit_sparse_files;
SPARSEBIT_API sbit_status sbit_sparse_export(sbit_sparse *sparse, const sbit_sparse_files *files,
                                             sbit_error *error);
/* create, permute, select, repair, shrink. Where nothing can be cut the result is a copy of the graph, with a
 * warning. feed may be NULL unless a sparser looks at data. */
SPARSEBIT_API sbit_status sbit_prune(const sbit_graph *graph, sbit_sconfig *config,
                                     const sbit_feed *feed, sbit_graph **out, sbit_error *error);

/* >>layers: weights that are scored. */
typedef struct sbit_sparse_layer {
    const char *name;              /* borrowed, as all of it */
    sbit_node_id node;             /* of sbit_sparse_graph */
    sbit_sparse_settings settings; /* ratio: as it is at present */
} sbit_sparse_layer;
SPARSEBIT_API size_t sbit_sparse_layer_count(const sbit_sparse *sparse);
SPARSEBIT_API sbit_status sbit_sparse_layer_at(const sbit_sparse *sparse, size_t index,
                                               sbit_sparse_layer *out);

/* >>groups: what is chosen among; channels that the same layers make. */
typedef struct sbit_sparse_group {
    const char *layers;     /* "conv1, conv3": shown names of those that make the channels */
    int64_t channels, kept; /* kept: after select or shrink */
    bool exact;             /* false: cannot be cut, because of `reason` */
    const char *reason;     /* why some or all are kept; "" */
    double ratio;           /* asked for */
} sbit_sparse_group;
SPARSEBIT_API size_t sbit_sparse_group_count(const sbit_sparse *sparse);
SPARSEBIT_API sbit_status sbit_sparse_group_at(const sbit_sparse *sparse, size_t index,
                                               sbit_sparse_group *out);

/* >>extend */

/* >>collectors: what goes into and comes out of layers, while the model runs on a feed: for sparsers that
 * look at data (in calc_params, select, step ...), or by sbit_sparse_collect for nothing else. */
typedef struct sbit_sparse_collector {
    const char *pattern; /* of layers (see layer names); "" or NULL: all. Copied */
    uint32_t what;       /* SBIT_NEEDS_INPUT, _OUTPUT, _ACTIVATED, as bits */
    /* a batch of a layer; the sample is borrowed */
    sbit_status (*see)(const char *layer, const sbit_sparser_sample *sample, void *user,
                       sbit_error *error);
    void *user;
} sbit_sparse_collector;
/* *id is never 0, and never given again. Errors: NOT_FOUND: no layer matches; INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_sparse_add_collector(sbit_sparse *sparse,
                                                    const sbit_sparse_collector *collector,
                                                    int32_t *id, sbit_error *error);
SPARSEBIT_API bool sbit_sparse_remove_collector(sbit_sparse *sparse, int32_t id); /* false: no such */
SPARSEBIT_API sbit_status sbit_sparse_collect(sbit_sparse *sparse, const sbit_feed *feed,
                                              sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSE_API_H */
