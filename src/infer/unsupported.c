/* unsupported.c: what of a model this build cannot execute, all at once. >>unsupported
 *
 * Called by: users, exec, tools. Calls: ops (the table).
 * An operator that is only written with others (row->expand) counts as supported.
 */
#include "infer_private.h"

#include <stdio.h> /* snprintf */

SBIT__FN bool sbit__node_unsupported(const sbit_graph *graph, const sbit_node *node, char *reason,
                                     size_t size)
{
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, node, &opset);
    const sbit_value_id *ids = node->input_count > 0 ? node->inputs : node->outputs;
    const size_t count = node->input_count > 0 ? node->input_count : node->output_count;
    const sbit_type *type = NULL;
    if (row == NULL) {
        bool out = false;
        const char *macro = sbit_operator_switch(node->domain, node->op_type, &out);
        const bool any = sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                                            INT32_MAX) != NULL;
        if (out) {
            snprintf(reason, size, "compiled out by %s", macro);
        } else {
            snprintf(reason, size, any ? "not in opset %d" : "no such operator", (int)opset);
        }
        return true;
    }
    if (row->run == NULL && row->expand == NULL) {
        snprintf(reason, size, "cannot be executed");
        return true;
    }
    if (count == 0 || ids[0].idx == 0) {
        return false;
    }
    type = &sbit_graph_value(graph, ids[0])->type;
    if (type->dtype == SBIT_UNDEFINED || (row->types & SBIT_T(type->dtype)) != 0) {
        return false;
    }
    snprintf(reason, size, "element type %s", sbit_dtype_name((int32_t)type->dtype));
    return true;
}

typedef struct sbit__unsupported_search {
    void (*found)(const sbit_unsupported *item, void *user);
    void *user;
    size_t count;
} sbit__unsupported_search;

static sbit_status sbit__unsupported_in(const sbit_graph *graph, void *user)
{
    sbit__unsupported_search *search = (sbit__unsupported_search *)user;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        char reason[64];
        if (sbit__node_unsupported(graph, sbit_graph_node(graph, id), reason, sizeof reason)) {
            sbit_unsupported item;
            item.graph = graph;
            item.node = id;
            item.reason = reason;
            search->count++;
            if (search->found != NULL) {
                search->found(&item, search->user);
            }
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API size_t sbit_graph_unsupported(const sbit_graph *graph,
                                            void (*found)(const sbit_unsupported *, void *user),
                                            void *user)
{
    sbit__unsupported_search search;
    search.found = found;
    search.user = user;
    search.count = 0;
    sbit_graph_each(graph, sbit__unsupported_in, &search);
    return search.count;
}

/* >>in one message: by operator and reason, with the first nodes */

enum {
    SBIT__UNSUPPORTED_OPS = 6,
    SBIT__UNSUPPORTED_NODES = 3
};

typedef struct sbit__unsupported_op {
    const sbit_node *first;
    char reason[64];
    char names[100];
    size_t count;
} sbit__unsupported_op;

typedef struct sbit__unsupported_ops {
    sbit__unsupported_op items[SBIT__UNSUPPORTED_OPS];
    size_t count, others; /* operators; nodes of operators that found no room */
} sbit__unsupported_ops;

static void sbit__unsupported_add(const sbit_unsupported *item, void *user)
{
    sbit__unsupported_ops *ops = (sbit__unsupported_ops *)user;
    const sbit_node *node = sbit_graph_node(item->graph, item->node);
    size_t i = 0;
    while (i < ops->count && (!sbit__streq(ops->items[i].first->op_type, node->op_type) ||
                              !sbit__streq(ops->items[i].first->domain, node->domain) ||
                              !sbit__streq(ops->items[i].reason, item->reason))) {
        i++;
    }
    if (i == SBIT__UNSUPPORTED_OPS) {
        ops->others++;
        return;
    }
    sbit__unsupported_op *op = &ops->items[i];
    if (i == ops->count) {
        ops->count++;
        memset(op, 0, sizeof *op);
        op->first = node;
        snprintf(op->reason, sizeof op->reason, "%s", item->reason);
    }
    if (op->count++ < SBIT__UNSUPPORTED_NODES) {
        const bool named = node->name[0] != '\0' || node->output_count == 0 ||
                           node->outputs[0].idx == 0; /* an omitted output has no name either */
        const char *name =
            named ? node->name : sbit_graph_value(item->graph, node->outputs[0])->name;
        const size_t used = strlen(op->names);
        snprintf(op->names + used, sizeof op->names - used, "%s'%.24s'", used > 0 ? ", " : "",
                 name);
    }
}

SBIT__FN sbit_status sbit__unsupported_fail(const sbit_graph *graph, sbit_error *error)
{
    sbit__unsupported_ops ops;
    char text[400] = "";
    size_t used = 0, shown = 0;
    ops.count = ops.others = 0;
    const size_t nodes = sbit_graph_unsupported(graph, sbit__unsupported_add, &ops);
    if (nodes == 0) {
        return SBIT_OK;
    }
    for (; shown < ops.count; shown++) {
        const sbit__unsupported_op *op = &ops.items[shown];
        const bool ai_onnx = op->first->domain[0] == '\0';
        const int64_t opset = sbit_graph_opset(graph, op->first->domain);
        char version[24] = "";
        if (opset > 0) {
            snprintf(version, sizeof version, "-%lld", (long long)opset);
        }
        const int n = snprintf(text + used, sizeof text - used, "%s%s%s%s%s: %s (%lu: %s%s)",
                               shown > 0 ? "; " : "", op->first->domain, ai_onnx ? "" : ".",
                               op->first->op_type, version, op->reason, (unsigned long)op->count,
                               op->names, op->count > SBIT__UNSUPPORTED_NODES ? " ..." : "");
        if (n < 0 || used + (size_t)n >= sizeof text) {
            text[used] = '\0';
            break;
        }
        used += (size_t)n;
    }
    const bool more = shown < ops.count || ops.others > 0;
    return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL, "%lu %s cannot be executed: %s%s",
                      (unsigned long)nodes, nodes == 1 ? "node" : "nodes", text,
                      more ? "; and more (sbit_graph_unsupported lists them all)" : "");
}
