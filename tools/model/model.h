/* model/model.h: a model, its inputs, sessions, elements of tensors.
 */
#ifndef SBIT_CLI_MODEL_H
#define SBIT_CLI_MODEL_H

#include "base/args.h"
#include "base/system.h"

#define CLI_MAX_INPUTS 32

typedef struct cli_model {
    sbit_ctx *ctx; /* borrowed */
    const char *path;
    sbit_onnx_doc *doc; /* owned by graph */
    sbit_graph *graph;
    uint64_t file_bytes;                  /* with external data */
    sbit_value_id inputs[CLI_MAX_INPUTS]; /* that must be fed */
    size_t input_count;
} cli_model;

/* A context with the arguments' threads (0: otherwise) and ISA, and our messages and progress. */
int cli_context_create(const cli_args *args, int32_t otherwise, sbit_ctx **out);
int cli_model_load(sbit_ctx *ctx, const char *path, cli_model *out); /* and infers types */
/* Simplifies the graph unless --as-is was given; inputs and outputs keep their ids. */
int cli_model_prepare(const cli_args *args, cli_model *model);
void cli_model_free(cli_model *model);
const sbit_value_info *cli_model_input(const cli_model *model, size_t index);
const char *cli_model_metadata(const cli_model *model, const char *key); /* NULL: none */
/* Sets symbolic dims of the inputs from --shape and infers again. close_rest: the others become 1.
 */
int cli_model_apply_shapes(cli_model *model, const cli_list *shapes, bool close_rest);
/* The dims of the inputs that are open, each name once ("?": without a name), to be freed. */
int cli_model_open_dims(const cli_model *model, cli_names *out);
/* The node's name, or its first output's. */
const char *cli_node_name(const sbit_graph *graph, const sbit_node *node);
/* The input that "NAME=VALUE" names ("VALUE": the only one), or a failure that lists the names. */
int cli_input_index(cli_model *model, const char *option, const char *text, size_t *index,
                    const char **value);
/* "float32[N,3,32,32]" */
const char *cli_type_text(const sbit_graph *graph, const sbit_type *type, char *text, size_t size);
/* "float32[1,3,32,32] does not fit ..." rules: false with a sentence in `why`. */
bool cli_type_takes(const sbit_graph *graph, const sbit_type *type, const sbit_tensor *tensor,
                    char *why, size_t size);
int cli_session_create(sbit_graph *graph, const sbit_session_desc *desc, const char *path,
                       sbit_session **out);
/* "0.5x": a share. `cost`, of what has a size: of the file; or a size, "1MB", "300k", becomes a share of
 * the weights that `cost` has (NULL: sizes are refused). */
int cli_model_share(const cli_model *model, const cli_args *args, const char *flag, const char *text,
                    const sbit_graph_cost *cost, double *share);
int cli_random_tensor(sbit_ctx *ctx, const sbit_value_info *info, sbit_rng *rng, sbit_tensor *out);

#endif /* SBIT_CLI_MODEL_H */
