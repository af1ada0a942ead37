/* report/unsupported.h: the nodes that this build cannot run, by operator.
 */
#ifndef SBIT_CLI_UNSUPPORTED_H
#define SBIT_CLI_UNSUPPORTED_H

#include "model/model.h"

/* The nodes of one operator with one reason. */
typedef struct cli_missing_op {
    const char *domain, *op_type;
    int64_t opset;
    char reason[64];
    cli_names nodes;
} cli_missing_op;

typedef struct cli_missing {
    cli_missing_op *items; /* in the order of their first nodes */
    size_t count, node_count;
    bool failed; /* out of memory, already told */
} cli_missing;

/* Fails with the list of all operators that cannot run. */
int cli_model_check_runs(const cli_model *model);

int cli_missing_find(const sbit_graph *graph, cli_missing *out); /* free in any case */
void cli_missing_free(cli_missing *missing);
/* "com.acme.Spin: no such operator: 12 nodes: 'spin', 'spin_1', 'spin_2' and 9 more" */
const char *cli_missing_text(const cli_missing_op *op, char *text, size_t size);
void cli_missing_json(sbit_json *to, const cli_missing *missing);

#endif /* SBIT_CLI_UNSUPPORTED_H */
