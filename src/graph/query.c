/* query.c: reading a graph. >>query
 *
 * Called by: everything. Calls: ir. Nothing here changes anything.
 */
#include "graph_private.h"

#include <stdio.h> /* snprintf */

SPARSEBIT_API sbit_ctx *sbit_graph_ctx(const sbit_graph *graph)
{
    return graph->family->ctx;
}

SPARSEBIT_API sbit_graph *sbit_graph_parent(const sbit_graph *graph)
{
    return graph->parent;
}

SPARSEBIT_API const char *sbit_graph_name(const sbit_graph *graph)
{
    return graph->name;
}

SPARSEBIT_API int64_t sbit_graph_opset(const sbit_graph *graph, const char *domain)
{
    const char *wanted = sbit__graph_domain(sbit__str(domain));
    for (size_t i = 0; i < graph->family->opset_count; i++) {
        if (sbit__streq(graph->family->opsets[i].domain, wanted)) {
            return graph->family->opsets[i].version;
        }
    }
    return 0;
}

SPARSEBIT_API int64_t sbit_graph_ir_version(const sbit_graph *graph)
{
    return graph->family->ir_version;
}

SPARSEBIT_API const sbit_node *sbit_graph_node(const sbit_graph *graph, sbit_node_id id)
{
    return sbit_graph_node_alive(graph, id) ? &graph->nodes[id.idx]->info : NULL;
}

SPARSEBIT_API const sbit_value_info *sbit_graph_value(const sbit_graph *graph, sbit_value_id id)
{
    return sbit_graph_value_alive(graph, id) ? &graph->values[id.idx]->info : NULL;
}

SPARSEBIT_API uint32_t sbit_graph_node_limit(const sbit_graph *graph)
{
    return (uint32_t)graph->node_count;
}

SPARSEBIT_API uint32_t sbit_graph_value_limit(const sbit_graph *graph)
{
    return (uint32_t)graph->value_count;
}

SPARSEBIT_API sbit_node_id sbit_graph_first(const sbit_graph *graph)
{
    sbit_node_id id;
    id.idx = graph->first;
    return id;
}

SPARSEBIT_API sbit_node_id sbit_graph_next(const sbit_graph *graph, sbit_node_id id)
{
    id.idx = sbit_graph_node_alive(graph, id) ? graph->nodes[id.idx]->next : 0;
    return id;
}

SPARSEBIT_API size_t sbit_graph_input_count(const sbit_graph *graph)
{
    return graph->input_count;
}

SPARSEBIT_API sbit_value_id sbit_graph_input(const sbit_graph *graph, size_t index)
{
    sbit_value_id none = {0};
    return index < graph->input_count ? graph->inputs[index] : none;
}

SPARSEBIT_API size_t sbit_graph_output_count(const sbit_graph *graph)
{
    return graph->output_count;
}

SPARSEBIT_API sbit_value_id sbit_graph_output(const sbit_graph *graph, size_t index)
{
    sbit_value_id none = {0};
    return index < graph->output_count ? graph->outputs[index] : none;
}

SPARSEBIT_API sbit_value_id sbit_graph_find_value(const sbit_graph *graph, const char *name)
{
    sbit_value_id id = {0};
    if (name == NULL || sbit__map_find(&graph->value_of, name, &id.idx) || graph->parent == NULL) {
        return id;
    }
    const sbit_value_id outer = sbit_graph_find_value(graph->parent, name);
    return outer.idx != 0 ? sbit__graph_find_capture(graph, outer) : id;
}

SPARSEBIT_API sbit_node_id sbit_graph_find_node(const sbit_graph *graph, const char *name)
{
    sbit_node_id id = {0};
    if (name != NULL) {
        sbit__map_find(&graph->node_of, name, &id.idx);
    }
    return id;
}

/* Node order, then inputs before bodies, then index; outputs of the graph last. */
static bool sbit__graph_use_before(const sbit_graph *graph, const sbit_use *a, const sbit_use *b)
{
    const uint64_t order_a = a->node.idx != 0 ? graph->nodes[a->node.idx]->order : UINT64_MAX;
    const uint64_t order_b = b->node.idx != 0 ? graph->nodes[b->node.idx]->order : UINT64_MAX;
    if (order_a != order_b) {
        return order_a < order_b;
    }
    if ((a->body == NULL) != (b->body == NULL)) {
        return a->body == NULL;
    }
    return a->index < b->index;
}

SPARSEBIT_API size_t sbit_graph_uses(const sbit_graph *graph, sbit_value_id id, sbit_use *uses,
                                     size_t capacity)
{
    if (!sbit_graph_value_alive(graph, id)) {
        return 0;
    }
    const sbit__graph_value *value = graph->values[id.idx];
    size_t kept = 0;
    for (uint32_t i = 0; i < value->info.use_count; i++) {
        const sbit_use *use = &value->uses[i];
        size_t place = kept;
        while (place > 0 && sbit__graph_use_before(graph, use, &uses[place - 1])) {
            place--;
        }
        if (place >= capacity) {
            continue;
        }
        kept += kept < capacity ? 1 : 0;
        for (size_t j = kept - 1; j > place; j--) {
            uses[j] = uses[j - 1];
        }
        uses[place] = *use;
    }
    return value->info.use_count;
}

SPARSEBIT_API size_t sbit_graph_captures(const sbit_graph *graph, sbit_node_id id,
                                         sbit_value_id *values, size_t capacity)
{
    size_t count = 0;
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_graph *body = NULL;
    for (size_t b = 0; node != NULL && (body = sbit_node_body(node, b)) != NULL; b++) {
        for (size_t i = 1; i < body->value_count && body->capture_count != 0; i++) {
            const sbit__graph_value *value = body->values[i];
            if (!value->alive || value->info.outer.idx == 0) {
                continue;
            }
            if (count < capacity) {
                values[count] = value->info.outer;
            }
            count++;
        }
    }
    return count;
}

SPARSEBIT_API sbit_status sbit_graph_each(const sbit_graph *root,
                                          sbit_status (*fn)(const sbit_graph *graph, void *user),
                                          void *user)
{
    SBIT__TRY(fn(root, user));
    for (sbit_node_id id = sbit_graph_first(root); id.idx != 0; id = sbit_graph_next(root, id)) {
        const sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(sbit_graph_node(root, id), b)) != NULL; b++) {
            SBIT__TRY(sbit_graph_each(body, fn, user));
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API const char *sbit_graph_symbol_name(const sbit_graph *graph, uint32_t symbol)
{
    const sbit__graph_family *family = graph->family;
    return symbol != 0 && symbol < family->symbol_count ? family->symbols[symbol] : "";
}

SPARSEBIT_API const sbit_attr *sbit_node_attr(const sbit_node *node, const char *name)
{
    for (size_t i = 0; i < node->attr_count; i++) {
        if (sbit__streq(node->attrs[i].name, name)) {
            return &node->attrs[i];
        }
    }
    return NULL;
}

SPARSEBIT_API int64_t sbit_node_int(const sbit_node *node, const char *name, int64_t otherwise)
{
    const sbit_attr *attr = sbit_node_attr(node, name);
    return attr != NULL && attr->type == SBIT_ONNX_ATTR_INT ? attr->i : otherwise;
}

SPARSEBIT_API float sbit_node_float(const sbit_node *node, const char *name, float otherwise)
{
    const sbit_attr *attr = sbit_node_attr(node, name);
    return attr != NULL && attr->type == SBIT_ONNX_ATTR_FLOAT ? attr->f : otherwise;
}

SPARSEBIT_API const char *sbit_node_string(const sbit_node *node, const char *name,
                                           const char *otherwise)
{
    const sbit_attr *attr = sbit_node_attr(node, name);
    return attr != NULL && attr->type == SBIT_ONNX_ATTR_STRING ? attr->s.data : otherwise;
}

SPARSEBIT_API void sbit_graph_describe(const sbit_graph *graph, sbit_node_id id, char *text,
                                       size_t size)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    if (size == 0) {
        return;
    }
    if (node == NULL) {
        snprintf(text, size, "(no node)");
        return;
    }
    const char *name = node->name;
    for (size_t i = 0; i < node->output_count && name[0] == '\0'; i++) {
        const sbit_value_info *output = sbit_graph_value(graph, node->outputs[i]);
        name = output != NULL ? output->name : "";
    }
    /* internal operators are known by the operator that they stand for */
    const bool plain = node->domain[0] == '\0' || strcmp(node->domain, "sbit") == 0;
    snprintf(text, size, "%s%s%s '%s'", plain ? "" : node->domain, plain ? "" : "::", node->op_type,
             name);
}

SBIT__FN const char *sbit__graph_node_metadata(const sbit_graph *graph, sbit_node_id id,
                                               const char *key)
{
    const sbit__graph_node *node = graph->nodes[id.idx];
    for (size_t i = 0; i < node->metadata_count; i++) {
        if (sbit__streq(node->metadata[i].key.data, key)) {
            return node->metadata[i].value.data;
        }
    }
    return NULL;
}

SBIT__FN void sbit__graph_mark_back(const sbit_graph *graph, bool *marks, sbit__mark_fn fn,
                                    const void *user)
{
    for (uint32_t i = graph->last; i != 0; i = graph->nodes[i]->prev) {
        const sbit_node *node = &graph->nodes[i]->info;
        for (size_t k = 0; k < node->input_count; k++) {
            if (node->inputs[k].idx != 0 && fn(node, k, marks, user)) {
                marks[node->inputs[k].idx] = true;
            }
        }
    }
}

SBIT__FN const sbit_tensor *sbit__graph_constant(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *value = sbit_graph_value(graph, id);
    while (value != NULL && value->outer.idx != 0) {
        graph = graph->parent;
        value = sbit_graph_value(graph, value->outer);
    }
    return value != NULL && value->is_constant ? &value->constant : NULL;
}

#undef SBIT__GRAPH_ORDER_GAP
