/* report/unsupported.c: the nodes that this build cannot run, by operator: a network of 60 nodes of
 * one unknown operator lacks one operator.
 */
#include "report/unsupported.h"

#include <stdlib.h> /* realloc, free */

enum {
    CLI_MISSING_SHOWN = 3 /* names of nodes in a line */
};

static cli_missing_op *cli_missing_at(cli_missing *missing, const sbit_unsupported *found)
{
    const sbit_node *node = sbit_graph_node(found->graph, found->node);
    for (size_t i = 0; i < missing->count; i++) {
        cli_missing_op *op = &missing->items[i];
        if (strcmp(op->op_type, node->op_type) == 0 && strcmp(op->domain, node->domain) == 0 &&
            strcmp(op->reason, found->reason) == 0) {
            return op;
        }
    }
    const size_t bytes = (missing->count + 1) * sizeof *missing->items;
    cli_missing_op *items = (cli_missing_op *)realloc(missing->items, bytes);
    if (items == NULL) {
        cli_fail_memory(bytes);
        return NULL;
    }
    missing->items = items;
    cli_missing_op *op = &items[missing->count++];
    memset(op, 0, sizeof *op);
    op->domain = node->domain;
    op->op_type = node->op_type;
    op->opset = sbit_graph_opset(found->graph, node->domain);
    snprintf(op->reason, sizeof op->reason, "%s", found->reason);
    return op;
}

static void cli_missing_add(const sbit_unsupported *found, void *user)
{
    cli_missing *missing = (cli_missing *)user;
    cli_missing_op *op = missing->failed ? NULL : cli_missing_at(missing, found);
    const char *name = cli_node_name(found->graph, sbit_graph_node(found->graph, found->node));
    if (op == NULL || cli_names_add(&op->nodes, name, strlen(name)) != CLI_OK) {
        missing->failed = true;
        return;
    }
    missing->node_count++;
}

int cli_missing_find(const sbit_graph *graph, cli_missing *out)
{
    memset(out, 0, sizeof *out);
    sbit_graph_unsupported(graph, cli_missing_add, out);
    return out->failed ? CLI_BAD : CLI_OK;
}

void cli_missing_free(cli_missing *missing)
{
    for (size_t i = 0; i < missing->count; i++) {
        cli_names_free(&missing->items[i].nodes);
    }
    free(missing->items);
    memset(missing, 0, sizeof *missing);
}

const char *cli_missing_text(const cli_missing_op *op, char *text, size_t size)
{
    const size_t count = op->nodes.count;
    size_t at = (size_t)snprintf(text, size, "%s%s%s", op->domain, op->domain[0] != '\0' ? "." : "",
                                 op->op_type);
    if (op->opset > 0 && at < size) {
        at += (size_t)snprintf(text + at, size - at, "-%lld", (long long)op->opset);
    }
    if (at < size) {
        at += (size_t)snprintf(text + at, size - at, ": %s: %lu node%s:", op->reason,
                               (unsigned long)count, count == 1 ? "" : "s");
    }
    for (size_t i = 0; i < count && i < CLI_MISSING_SHOWN && at < size; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s '%.60s'", i > 0 ? "," : "",
                               op->nodes.items[i]);
    }
    if (count > CLI_MISSING_SHOWN && at < size) {
        snprintf(text + at, size - at, " and %lu more", (unsigned long)(count - CLI_MISSING_SHOWN));
    }
    return text;
}

void cli_missing_json(sbit_json *to, const cli_missing *missing)
{
    sbit_json_open(to, "unsupported", '[');
    for (size_t i = 0; i < missing->count; i++) {
        const cli_missing_op *op = &missing->items[i];
        sbit_json_open(to, NULL, '{');
        sbit_json_text(to, "op_type", op->op_type);
        sbit_json_text(to, "domain", op->domain);
        sbit_json_int(to, "opset", op->opset);
        sbit_json_text(to, "reason", op->reason);
        sbit_json_int(to, "count", (int64_t)op->nodes.count);
        sbit_json_open(to, "nodes", '[');
        for (size_t k = 0; k < op->nodes.count; k++) {
            sbit_json_text(to, NULL, op->nodes.items[k]);
        }
        sbit_json_close(to, ']');
        sbit_json_close(to, '}');
    }
    sbit_json_close(to, ']');
}

int cli_model_check_runs(const cli_model *model)
{
    cli_missing missing;
    int code = cli_missing_find(model->graph, &missing);
    for (size_t i = 0; i < missing.count && code == CLI_OK; i++) {
        char text[600];
        cli_fail("cannot run %s", cli_missing_text(&missing.items[i], text, sizeof text));
    }
    if (missing.node_count > 0 && code == CLI_OK) {
        code = cli_fail("'%s' cannot run: %lu of its nodes are not supported; register a row for "
                        "them with sbit_operator_register, or cut the model before them",
                        model->path, (unsigned long)missing.node_count);
    }
    cli_missing_free(&missing);
    return code;
}
