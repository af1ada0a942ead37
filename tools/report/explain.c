/* report/explain.c: what became of each node of a model.
 */
#include "report/explain.h"
#include "base/table.h"
#include "model/model.h"

const char *cli_explain_kind(const sbit_node_profile *node)
{
    if (node->runs == 0 && node->fused_into.idx == 0) {
        return "constant";
    }
    return node->on_integers ? "integer" : "float";
}

static const char *cli_explain_reason(const sbit_node_profile *node)
{
    return node->reason != NULL ? node->reason
           : node->is_dynamic   ? "its memory is found while running"
                                : "";
}

int cli_explain_table(const sbit_graph *graph, const sbit_node_profile *nodes, size_t count)
{
    static const char *const heads[] = {"node", "operator", "as", "ms", "part of", "because"};
    size_t integers = 0, floats = 0, constants = 0;
    double integer_ns = 0.0, total_ns = 0.0;
    cli_table table;
    cli_table_begin(&table, "<<<><<");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (size_t i = 0; i < count; i++) {
        const sbit_node *node = sbit_graph_node(graph, nodes[i].node);
        const char *kind = cli_explain_kind(&nodes[i]);
        const bool part = nodes[i].fused_into.idx != 0;
        const double ns =
            nodes[i].runs > 0 ? (double)nodes[i].nanoseconds / (double)nodes[i].runs : 0.0;
        integers += kind[0] == 'i';
        floats += kind[0] == 'f';
        constants += kind[0] == 'c';
        integer_ns += kind[0] == 'i' ? ns : 0.0;
        total_ns += ns;
        cli_table_cell(&table, "%s", cli_node_name(graph, node));
        cli_table_cell(&table, "%s", node->op_type);
        cli_table_cell(&table, "%s", kind);
        char ms[40] = "";
        if (ns > 0.0) {
            snprintf(ms, sizeof ms, "%.4f", ns / 1e6);
        }
        cli_table_cell(&table, "%s", ms);
        cli_table_cell(&table, "%s",
                       part ? cli_node_name(graph, sbit_graph_node(graph, nodes[i].fused_into))
                            : "");
        cli_table_cell(&table, "%s", cli_explain_reason(&nodes[i]));
    }
    CLI_TRY(cli_table_print(&table, stdout));
    printf("%-10s %lu integer (%.0f %% of the time), %lu float, %lu constant\n", "nodes",
           (unsigned long)integers, total_ns > 0.0 ? 100.0 * integer_ns / total_ns : 0.0,
           (unsigned long)floats, (unsigned long)constants);
    return CLI_OK;
}

void cli_explain_json(sbit_json *json, const sbit_node_profile *node)
{
    sbit_json_text(json, "as", cli_explain_kind(node));
    sbit_json_text(json, "kernel", node->lowered->op_type);
    sbit_json_text(json, "reason", cli_explain_reason(node));
    sbit_json_bool(json, "dynamic", node->is_dynamic);
}
