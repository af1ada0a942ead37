/* steps_api.h: what a recipe is made of: steps, and what they are made with. >>steps
 *
 * Called by: users who write steps, quant, sparse, train. Calls: quant.
 *
 * A step changes weights, ranges or the float graph: cross-layer equalization, AdaRound, bias
 * correction ... The key STEPS lists those of a recipe; QUANTIZER.TYPE: adaround (a step of stage
 * WEIGHTS) and OBSERVER.TYPE: auto (of RANGES) name one for single layers. sbit_quant_calibrate and sbit_quant_calc_qparams run them when their stage comes.
 */
#ifndef SBIT_STEPS_API_H
#define SBIT_STEPS_API_H

#include "quant_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>extend */

/* When a step runs; those of one stage in the order in which they are listed. */
typedef enum sbit_stage {
    SBIT_STAGE_FLOAT_GRAPH, /* before sites are found: edits the float model, which stays the same
                               function */
    SBIT_STAGE_SELECT,      /* before scales: which sites, which widths (sbit_quant_set_site) */
    SBIT_STAGE_RANGES,      /* with scales known: sets others, then all are calculated again */
    SBIT_STAGE_WEIGHTS,     /* rounding, with all scales known */
    SBIT_STAGE_SEARCH,      /* with ranges known: tries layers in float, widths; as RANGES */
    SBIT_STAGE_AFTER        /* repairs what is left: biases, statistics */
} sbit_stage;

typedef struct sbit_step_row {
    sbit_head head; /* its keys hang below "STEP." */
    sbit_stage stage;
    bool needs_data;
    /* state: the sbit_quant (sbit_sparse, trainer) that it works on; options: the top of the
     * configuration; feed: calibration data, NULL if there is none. What it has done before must
     * not matter: it is run again when scales are calculated again. */
    sbit_status (*run)(void *state, const sbit_options *options, const sbit_feed *feed,
                       sbit_error *error);
} sbit_step_row;

/* The row must outlive ctx. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_step_register(sbit_ctx *ctx, const sbit_step_row *row,
                                             sbit_error *error);
SPARSEBIT_API const sbit_step_row *sbit_step_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_step_row *sbit_step_at(size_t index); /* NULL past the end */

/* >>services */
/* The float graph, for steps of stage FLOAT_GRAPH. */
SPARSEBIT_API sbit_graph *sbit_quant_float_graph(sbit_quant *quant);

/* A layer with a weight: what rounding works on. */
typedef struct sbit_unit {
    sbit_node_id node; /* of sbit_quant_graph */
    size_t site;       /* of its weight */
    size_t input;      /* the input number of its activation */
} sbit_unit;
/* Layers of the root graph with a quantized weight of their own that `step` is to round (NULL:
 * all), in the order in which they run. Returns how many there are; fills at most `capacity`. */
SPARSEBIT_API size_t sbit_quant_units(const sbit_quant *quant, const sbit_step_row *step,
                                      sbit_unit *units, size_t capacity);
/* Weights on the grid of a site, in place of the nearest: [elements of the weight], copied; they
 * are put on the grid once more. Until scales are calculated again. */
SPARSEBIT_API sbit_status sbit_quant_set_weight(sbit_quant *quant, size_t site, const float *values,
                                                sbit_error *error);
/* >>walk: one run over all samples that stops at layers, in float or with what is quantized so far;
 * visiting all layers in order costs one forward pass. One thread at a time. */
typedef struct sbit_walk sbit_walk;
typedef struct sbit_walk_desc {
    bool quantized;                        /* else the float model */
    bool float_weights, float_activations; /* quantized: leave them as they are */
    const bool *sites; /* [site count] quantized: those that are done; NULL: all. Read at each stop,
                          so that a step marks a weight when it is rounded. */
    size_t max_bytes;  /* for values kept between stops; 0: 1 GiB. Less costs time. */
} sbit_walk_desc;
/* True if weights are to be rounded for what the model quantized so far computes (asym), and not
 * for float inputs; desc then says what that model is. */
SPARSEBIT_API bool sbit_quant_asym(const sbit_quant *quant, sbit_walk_desc *desc);
typedef struct sbit_walk_batch {
    int64_t index;         /* of the batch, from 0 */
    int64_t rows, samples; /* rows of the model's inputs; those beyond `samples` are padding */
    size_t output;         /* sbit_walk_finish: which output of the model x is; else 0 */
    const sbit_tensor *x;  /* borrowed until the function returns */
} sbit_walk_batch;
typedef sbit_status (*sbit_walk_fn)(const sbit_walk_batch *batch, void *user, sbit_error *error);
/* Borrows quant and feed; desc may be NULL. Free with sbit_walk_destroy. */
SPARSEBIT_API sbit_status sbit_walk_create(sbit_quant *quant, const sbit_feed *feed,
                                           const sbit_walk_desc *desc, sbit_walk **out,
                                           sbit_error *error);
SPARSEBIT_API void sbit_walk_destroy(sbit_walk *walk); /* NULL is fine */
/* Calls fn with what input `input` of a node of sbit_quant_graph reads, batch after batch. Nodes
 * are visited in any order; forwards is what costs little. */
SPARSEBIT_API sbit_status sbit_walk_to(sbit_walk *walk, sbit_node_id node, size_t input,
                                       sbit_walk_fn fn, void *user, sbit_error *error);
/* From where the walk stands to the model's outputs, under a build of its own (NULL: float), without
 * moving: many builds that differ behind this place cost what lies behind it each. Calls fn with
 * each output that is a tensor made behind it, batch after batch. */
SPARSEBIT_API sbit_status sbit_walk_finish(sbit_walk *walk, const sbit_quant_build_desc *build,
                                           sbit_walk_fn fn, void *user, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_STEPS_API_H */
