/* trials_private.h: how far outputs move when some sites are quantized. >>trials
 *
 * Called by: analysis, steps that search. Calls: walk.
 */
#ifndef SBIT_QUANT_TRIALS_PRIVATE_H
#define SBIT_QUANT_TRIALS_PRIVATE_H

#include "quant_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Samples first .. first + count - 1 of a feed, as a feed that borrows both. */
typedef struct sbit__feed_part {
    sbit_feed feed;
    int64_t first;
} sbit__feed_part;
SBIT__FN sbit_feed sbit__feed_part_of(sbit__feed_part *part, const sbit_feed *feed, int64_t first,
                                      int64_t count);

/* Layers: the sites that have one node's settings. A site belongs to one layer. */
typedef struct sbit__search_layer {
    sbit_node_id node;  /* of the root graph; of a body's site: none */
    const char *name;
    sbit_node_id start; /* the first node that its sites change what it reads; none: the feed */
    uint32_t place;     /* of start, in execution order from 1; 0: the feed */
    int64_t params;     /* of its weights */
    bool weights;       /* it has some */
} sbit__search_layer;
typedef struct sbit__search_layers {
    sbit__search_layer *items; /* in the order of start */
    size_t count;
    uint32_t *of_site; /* [site count] */
    size_t bytes;
} sbit__search_layers;
SBIT__FN sbit_status sbit__search_layers_find(sbit_quant *quant, sbit__search_layers *out,
                                              sbit_error *error);
SBIT__FN void sbit__search_layers_free(sbit_quant *quant, sbit__search_layers *layers);

/* What the model computes in float, to compare with. */
typedef struct sbit__trials {
    sbit_quant *quant;
    sbit_walk *front, *walk; /* at the feed; where the last trial began */
    sbit_node_id at;         /* where walk stands; none: at the feed */
    int64_t batches, samples; /* of the feed */
    size_t outputs;
    sbit_tensor *reference; /* [batches][outputs] */
    int64_t *labels;        /* [samples]; NULL: the feed has none */
    size_t bytes;           /* of both */
} sbit__trials;
typedef struct sbit__trial {
    double noise;           /* sum over outputs of error^2 / reference^2 */
    double error2;
    int64_t elements;
    int64_t ranked, agreed; /* samples with logits; those with the same class first */
    int64_t right;          /* with labels: samples whose class is the label */
} sbit__trial;
SBIT__FN sbit_status sbit__trials_begin(sbit_quant *quant, const sbit_feed *feed,
                                        sbit__trials *out, sbit_error *error);
SBIT__FN void sbit__trials_end(sbit__trials *trials);
/* The model with `sites` quantized, which change nothing in front of node `start` (none: from the
 * feed on). Starts that follow each other in execution order cost one float pass together, and each
 * what lies behind it. */
SBIT__FN sbit_status sbit__trials_run(sbit__trials *trials, const bool *sites, sbit_node_id start,
                                      sbit__trial *out, sbit_error *error);
/* With labels: sums over the samples of the slope of the loss along the quantization of each layer,
 * and of its square: sums[2 l], sums[2 l + 1]. *able: false, and no error, where the model has no
 * such gradients. */
SBIT__FN sbit_status sbit__analyze_slopes(sbit_quant *quant, const sbit_feed *feed,
                                          const sbit__search_layers *layers, double *sums,
                                          bool *able, sbit_error *error);
/* Points of accuracy that it loses against float: of labels, else of equal predictions; without
 * logits: of noise (1 % of noise is one point). */
SBIT__FN double sbit__trials_drop(const sbit__trials *trials, const sbit__trial *plain,
                                  const sbit__trial *trial);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QUANT_TRIALS_PRIVATE_H */
