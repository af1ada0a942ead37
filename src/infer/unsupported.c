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
        const bool any = sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                                            INT32_MAX) != NULL;
        snprintf(reason, size, any ? "not in opset %d" : "no such operator", (int)opset);
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
