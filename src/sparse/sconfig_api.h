/* sconfig_api.h: the pruning configuration (Sparsebit's sparse YAML tree). >>sconfig
 *
 * Called by: users, sparse, tools. Calls: config (YAML, key tables).
 *
 *     SPARSER:
 *       TYPE: unstructured      # elements; structured: channels ("unstructed", "structed" too)
 *       STRATEGY: l1norm
 *       RATIO: 0.5              # part of every layer that goes, 0 to 1
 *       SPECIFIC: [{"fc": [RATIO, 0.0]}]
 *       SCOPE: layer            # model: layers are ranked together, as many go as their ratios add
 *                               # up to, of each MAX_RATIO at most
 *       PRUNE_BIAS: true        # false: what biases make of pruned channels is folded
 *       THRESHOLD: 0.0          # what scores less goes, in place of RATIO
 *       MIN_KEPT: 1             # channels of a layer that stay
 *       ALIGN: 1                # channels kept are a multiple of it
 *       BLOCK: 1x4              # elements in blocks of rows x columns
 *       WITHIN: 1x8             # RATIO of every block of rows x columns
 *       DIAGONAL: 3             # all but a band along the diagonal goes
 *       SPECIFIC: [{"fc": [MASK, "1011"]}]  # pruned from the start: a digit for each row or element
 *       RANK: layer             # elements against all of the layer, or those of their row
 *       N_OF_M: "2:4"           # two of every four neighbours along the inputs
 *       PERMUTE: 32             # channels change places so that N_OF_M keeps more: so many tries each
 *       PRUNE_OUTPUTS: "logits" # outputs of the model that may lose channels
 *       INEXACT_NORM: false     # true: what LayerNormalization normalizes may lose channels
 *       REPAIR: both            # ridge: the layers behind what goes make up for it (least squares
 *                               # on data); batch_norm: statistics anew; both
 *       SCHEDULE: agp           # for sbit_sparse_step, from INITIAL to RATIO
 *       SEARCH: greedy          # for sbit_sparse_fit: uniform, sensitivity, netadapt, annealing ...
 *
 * Sparsers have keys of their own (ACTIVATION, FPGM.P ...): `sparsebit strategies`.
 *
 * TYPE and STRATEGY may stand the other way round, as Sparsebit's own documents have them.
 *
 * A file may hold a quantization too (W, A and its other keys): both trees read it, each its part.
 *
 * Lists of entries are read too: NNI's config_list of all its versions, torch.ao.pruning's
 * {tensor_fqn: ...}; with what these have in code as {pruner: L1FilterPruner, config_list: [...]}.
 * The last entry that matches a layer is the one that counts.
 */
#ifndef SBIT_SCONFIG_API_H
#define SBIT_SCONFIG_API_H

#include "../sparsers/sparsers_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_sconfig sbit_sconfig;

/* From a YAML file or text. Sparsebit's files load unchanged (DEVICE is accepted with a notice).
 * Errors: CONFIG with the key's path and line:column. Free with sbit_sconfig_destroy. */
SPARSEBIT_API sbit_status sbit_sconfig_load(sbit_ctx *ctx, const char *path, sbit_sconfig **out,
                                            sbit_error *error);
SPARSEBIT_API sbit_status sbit_sconfig_read(sbit_ctx *ctx, const char *text, size_t size,
                                            sbit_sconfig **out, sbit_error *error);
SPARSEBIT_API void sbit_sconfig_destroy(sbit_sconfig *config); /* NULL is fine */

/* Sets one key as if it had been written in the file: "SPARSER.RATIO", "0.3". */
SPARSEBIT_API sbit_status sbit_sconfig_set(sbit_sconfig *config, const char *path,
                                           const char *value, sbit_error *error);
/* The whole tree, or what was set, as YAML that reads back equal, in pieces to `put`. */
SPARSEBIT_API void sbit_sconfig_print(const sbit_sconfig *config, bool only_set,
                                      void (*put)(const char *text, size_t size, void *user),
                                      void *user);

/* Every key with its default, what it takes and means, and every sparser, schedule and search by name,
 * the user's rows too: the tables of the manual. The text goes to `put` in one piece. */
SPARSEBIT_API sbit_status sbit_sconfig_describe(const sbit_sconfig *config,
                                                void (*put)(const char *text, size_t size,
                                                            void *user),
                                                void *user, sbit_error *error);

/* What pruning spoiled is made up for with, as bits: see sbit_sparse_repair. */
enum {
    SBIT_REPAIR_RIDGE = 1,
    SBIT_REPAIR_BATCH_NORM = 2
};

/* What one layer gets, after SPECIFIC (the first glob that matches wins; see >>layer names). */
typedef struct sbit_sparse_settings {
    bool structured;      /* whole output channels; else single elements */
    const char *strategy; /* name of the sparser */
    double ratio;         /* part to prune, 0 to 1 */
    bool whole_model;     /* all such layers are ranked together ... */
    double max_ratio;     /* ... and no one loses more than this part */
    double threshold;     /* what scores less goes ... */
    double min_ratio;     /* ... at least this part, and at most max_ratio; 0: ratio says how much */
    const char *from;     /* pattern of SPECIFIC that matched first; "": none */
    bool prune_bias;      /* pruned channels are 0; else biases stay and are folded */
    uint32_t repair;      /* of SBIT_REPAIR_* */
    int64_t min_kept, align;
    int64_t block[3];  /* of elements: rows, columns, places of a kernel; 0: none, -1: all */
    int64_t within[2]; /* blocks that each lose the ratio of their elements; as block */
    int64_t diagonal;  /* all but a band of this width goes; 0: none */
    int64_t n_of_m[2]; /* {2, 4}: two of four neighbours go; 0: none */
    bool by_row;       /* elements are ranked within each row */
} sbit_sparse_settings;
/* Not thread-safe: notes which globs matched. */
SPARSEBIT_API sbit_status sbit_sconfig_layer(sbit_sconfig *config, const sbit_graph *graph,
                                             sbit_node_id node, sbit_sparse_settings *out,
                                             sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SCONFIG_API_H */
