/* passes_api.h: graph rewrites: simplifiers and fusions. >>passes
 *
 * Called by: users, quant, sparse. Calls: graph, infer, exec (constant folding).
 * A pass is a row; a new one is a file with the row and one line in the table, or a row that the
 * user registers, which then runs with the others.
 */
#ifndef SBIT_PASSES_API_H
#define SBIT_PASSES_API_H

#include "../config/config_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_simplify_desc {
    size_t max_fold_bytes;     /* 0: 1 MiB; larger constants are not created by folding unless they
                                  are no larger than what they replace */
    bool keep_batch_norm;      /* do not fold BatchNormalization into its neighbour */
    bool keep_dropout;         /* Dropout stays, for training */
    bool fix_defaults;         /* inputs that have a default (IR >= 4), are declared with its shape
                                  and only serve as weights become constants; else they stay inputs
                                  and nothing is folded from them */
    const char *const *skip;   /* pass names not to run */
    size_t skip_count;
    const char *const *only;   /* NULL: all default passes */
    size_t only_count;
} sbit_simplify_desc;

/* >>extend */

typedef struct sbit_pass_row {
    sbit_head head; /* "fold_constants" */
    bool opt_in;    /* runs only when named in `only` */
    /* Rewrites the graph (one level; bodies are visited by the driver), adds the number of changes
     * to *changes. Types are inferred on entry; a pass keeps them right for what it adds. */
    sbit_status (*run)(sbit_graph *graph, const sbit_simplify_desc *desc, int64_t *changes,
                       sbit_error *error);
} sbit_pass_row;

/* The row must outlive ctx. In configurations of quantization that are read afterwards, SCHEDULE.NAME
 * (true where it is not set) switches it. Errors: DUPLICATE, INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_pass_register(sbit_ctx *ctx, const sbit_pass_row *row,
                                             sbit_error *error);
SPARSEBIT_API const sbit_pass_row *sbit_pass_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_pass_row *sbit_pass_at(size_t index); /* built-in; NULL past the end */

/* >>users */

typedef struct sbit_simplify_stats {
    int64_t nodes_before, nodes_after, rounds, changes;
} sbit_simplify_stats;

/* Runs the passes over the graph and its bodies, in table order, again and again until nothing
 * changes (at most 50 rounds), then sorts and infers. desc and stats may be NULL. On failure the
 * graph is valid and computes the same, partly simplified. Errors: NOT_FOUND (unknown pass name,
 * lists the known), those of infer. */
SPARSEBIT_API sbit_status sbit_simplify(sbit_graph *graph, const sbit_simplify_desc *desc,
                                        sbit_simplify_stats *stats, sbit_error *error);

/* Raises the ai.onnx opset to `version`, converting every node whose schema changed in between
 * (Upsample to Resize, attributes to inputs, ...), to 28 at most. Lifting only; bodies included.
 * What nodes compute from constants is folded if only then all can be converted. A failure leaves
 * the graph as it is, but for OUT_OF_MEMORY. Errors: UNSUPPORTED naming the nodes that cannot be
 * converted (all at once). */
SPARSEBIT_API sbit_status sbit_graph_lift_opset(sbit_graph *graph, int64_t version,
                                                sbit_error *error);

/* Lowers it, to 7 at least, if every node can be written so: attributes that came later have their
 * default, inputs that were attributes are constants, element types were known. Bodies, folding and
 * failures as above. Errors: UNSUPPORTED naming the nodes that cannot (all at once). */
SPARSEBIT_API sbit_status sbit_graph_lower_opset(sbit_graph *graph, int64_t version,
                                                 sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_PASSES_API_H */
