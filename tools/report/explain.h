/* report/explain.h: what became of each node of a model: which kernel runs it, on integers or
 * floats, and why.
 */
#ifndef SBIT_CLI_EXPLAIN_H
#define SBIT_CLI_EXPLAIN_H

#include "base/cli.h"
#include "base/json.h"

/* "integer", "float" or "constant" (known before a run). */
const char *cli_explain_kind(const sbit_node_profile *node);
/* One line a node, in the order of the graph, then the sums. `nodes` come from a session that ran.
 */
int cli_explain_table(const sbit_graph *graph, const sbit_node_profile *nodes, size_t count);
void cli_explain_json(sbit_json *json, const sbit_node_profile *node);

#endif /* SBIT_CLI_EXPLAIN_H */
