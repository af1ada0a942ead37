/* clone.c: deep copies of graphs. >>clone
 *
 * Called by: users and passes that try something out. Calls: ir, edit.
 * Ids stay the same, so all tables are copied entry by entry, erased ones included. Text, lists,
 * attributes and the constants that a value owns are copied (a clone that only computes borrows
 * them); what lies in the document (weights, messages that export starts from) is shared, so the
 * original has to outlive the clone.
 */
#include "graph_private.h"

typedef struct sbit__clone {
    sbit_graph **copies; /* by index in the family */
    size_t count;
    bool borrow; /* constants stay the original's */
} sbit__clone;

static sbit_status sbit__clone_text(sbit_graph *graph, const char *text, const char **out,
                                    sbit_error *error)
{
    return sbit__graph_text(graph, text, strlen(text), out, error);
}

/* >>values */
static sbit_status sbit__clone_uses(const sbit__clone *clone, sbit_graph *graph,
                                    const sbit__graph_value *old, sbit__graph_value *value,
                                    sbit_error *error)
{
    void *uses = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, old->info.use_count, sizeof(sbit_use), &uses, error));
    value->uses = (sbit_use *)uses;
    value->use_capacity = old->info.use_count;
    for (uint32_t i = 0; i < old->info.use_count; i++) {
        value->uses[i] = old->uses[i];
        if (old->uses[i].body != NULL) {
            value->uses[i].body = clone->copies[old->uses[i].body->index];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__clone_name(sbit_graph *graph, const sbit__graph_value *old,
                                    sbit__graph_value *value, sbit_error *error)
{
    if (old->info.outer.idx != 0) { /* parents are copied before bodies */
        value->info.name = graph->parent->values[old->info.outer.idx]->info.name;
        return SBIT_OK;
    }
    SBIT__TRY(sbit__clone_text(graph, old->info.name, &value->info.name, error));
    return sbit__graph_hold_name(graph, false, value->info.name, old->info.id.idx, error);
}

static sbit_status sbit__clone_value(const sbit__clone *clone, sbit_graph *graph,
                                     const sbit__graph_value *old, sbit_error *error)
{
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, 1, sizeof(sbit__graph_value), &block, error));
    sbit__graph_value *value = (sbit__graph_value *)block;
    value->info.id = old->info.id;
    value->info.name = "";
    graph->values[graph->value_count++] = value;
    if (!old->alive) {
        return SBIT_OK;
    }
    *value = *old;
    value->info.name = "";
    value->owns_constant = false;
    value->uses = NULL;
    SBIT__TRY(sbit__clone_name(graph, old, value, error));
    SBIT__TRY(sbit__clone_uses(clone, graph, old, value, error));
    if (old->owns_constant && !clone->borrow) {
        SBIT__TRY(sbit__tensor_copy(graph->family->ctx, &old->info.constant, &value->info.constant,
                                    error));
        value->owns_constant = true;
    }
    return SBIT_OK;
}

/* >>nodes */
static sbit_status sbit__clone_ids(sbit_graph *graph, const sbit_value_id *ids, size_t count,
                                   sbit_value_id **out, size_t *capacity, sbit_error *error)
{
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, count, sizeof(*ids), &block, error));
    if (count != 0) {
        memcpy(block, ids, count * sizeof(*ids));
    }
    *out = (sbit_value_id *)block;
    *capacity = count;
    return SBIT_OK;
}

static sbit_status sbit__clone_attr(const sbit__clone *clone, sbit_graph *graph,
                                    const sbit_attr *old, sbit_attr *attr, sbit_error *error)
{
    SBIT__TRY(sbit__graph_copy_attr(graph, old, attr, error));
    if (old->type == SBIT_ONNX_ATTR_GRAPH) {
        attr->g = clone->copies[old->g->index];
    }
    if (old->type == SBIT_ONNX_ATTR_GRAPHS) {
        void *block = NULL;
        SBIT__TRY(sbit__graph_alloc(graph, old->count, sizeof(sbit_graph *), &block, error));
        sbit_graph **graphs = (sbit_graph **)block;
        for (size_t i = 0; i < old->count; i++) {
            graphs[i] = clone->copies[old->graphs[i]->index];
        }
        attr->graphs = graphs;
    }
    return SBIT_OK;
}

static sbit_status sbit__clone_node(const sbit__clone *clone, sbit_graph *graph,
                                    const sbit__graph_node *old, sbit_error *error)
{
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, 1, sizeof(sbit__graph_node), &block, error));
    sbit__graph_node *node = (sbit__graph_node *)block;
    node->info.id = old->info.id;
    graph->nodes[graph->node_count++] = node;
    if (!old->alive) {
        return SBIT_OK;
    }
    *node = *old;
    SBIT__TRY(sbit__clone_text(graph, old->info.name, &node->info.name, error));
    SBIT__TRY(sbit__clone_text(graph, old->info.domain, &node->info.domain, error));
    SBIT__TRY(sbit__clone_text(graph, old->info.op_type, &node->info.op_type, error));
    SBIT__TRY(sbit__graph_hold_name(graph, true, node->info.name, old->info.id.idx, error));
    SBIT__TRY(sbit__clone_ids(graph, old->inputs, old->info.input_count, &node->inputs,
                              &node->input_capacity, error));
    SBIT__TRY(sbit__clone_ids(graph, old->outputs, old->info.output_count, &node->outputs,
                              &node->output_capacity, error));
    SBIT__TRY(sbit__graph_alloc(graph, old->info.attr_count, sizeof(sbit_attr), &block, error));
    node->attrs = (sbit_attr *)block;
    node->attr_capacity = old->info.attr_count;
    for (size_t i = 0; i < old->info.attr_count; i++) {
        SBIT__TRY(sbit__clone_attr(clone, graph, &old->attrs[i], &node->attrs[i], error));
    }
    node->info.inputs = node->inputs;
    node->info.outputs = node->outputs;
    node->info.attrs = node->attrs;
    return SBIT_OK;
}

/* >>graphs */
static sbit_status sbit__clone_tables(const sbit__clone *clone, const sbit_graph *old,
                                      sbit_graph *graph, sbit_error *error)
{
    void *values = (void *)graph->values, *nodes = (void *)graph->nodes;
    SBIT__TRY(sbit__graph_grow(graph, &values, graph->value_count, &graph->value_capacity,
                               old->value_count, sizeof(graph->values[0]), error));
    graph->values = (sbit__graph_value **)values;
    SBIT__TRY(sbit__graph_grow(graph, &nodes, graph->node_count, &graph->node_capacity,
                               old->node_count, sizeof(graph->nodes[0]), error));
    graph->nodes = (sbit__graph_node **)nodes;
    for (size_t i = 1; i < old->value_count; i++) {
        SBIT__TRY(sbit__clone_value(clone, graph, old->values[i], error));
    }
    for (size_t i = 1; i < old->node_count; i++) {
        SBIT__TRY(sbit__clone_node(clone, graph, old->nodes[i], error));
    }
    return SBIT_OK;
}

static sbit_status sbit__clone_graph(const sbit__clone *clone, const sbit_graph *old,
                                     sbit_graph *graph, sbit_error *error)
{
    graph->parent = old->parent != NULL ? clone->copies[old->parent->index] : NULL;
    graph->holder = old->holder;
    graph->source = old->source;
    graph->alive = old->alive;
    graph->first = old->first;
    graph->last = old->last;
    graph->capture_count = old->capture_count;
    SBIT__TRY(sbit__clone_text(graph, old->name, &graph->name, error));
    SBIT__TRY(sbit__clone_tables(clone, old, graph, error));
    SBIT__TRY(sbit__clone_ids(graph, old->inputs, old->input_count, &graph->inputs,
                              &graph->input_capacity, error));
    SBIT__TRY(sbit__clone_ids(graph, old->outputs, old->output_count, &graph->outputs,
                              &graph->output_capacity, error));
    graph->input_count = old->input_count;
    graph->output_count = old->output_count;
    return SBIT_OK;
}

static sbit_status sbit__clone_model(const sbit__graph_family *old, sbit_graph *root,
                                     sbit_error *error)
{
    sbit__graph_family *family = root->family;
    family->doc = old->doc;
    family->model = old->model;
    family->ir_version = old->ir_version;
    family->metadata = old->metadata;
    family->metadata_count = old->metadata_count;
    for (size_t i = 0; i < old->opset_count; i++) {
        SBIT__TRY(sbit_graph_set_opset(root, old->opsets[i].domain, old->opsets[i].version, error));
        family->opsets[i].source = old->opsets[i].source;
    }
    family->opset_raised = old->opset_raised;
    for (size_t i = 1; i < old->symbol_count; i++) { /* in the same order: the same numbers */
        uint32_t symbol = 0;
        SBIT__TRY(sbit_graph_symbol(root, old->symbols[i], &symbol, error));
    }
    return sbit__import_reserve_names(root, error);
}

static sbit_status sbit__clone_all(sbit__clone *clone, const sbit__graph_family *old,
                                   sbit_graph *root, sbit_error *error)
{
    clone->copies[0] = root;
    for (size_t i = 1; i < clone->count; i++) { /* parents follow below */
        SBIT__TRY(sbit__graph_new_body(root, &clone->copies[i], error));
    }
    SBIT__TRY(sbit__clone_model(old, root, error));
    for (size_t i = 0; i < clone->count; i++) {
        const sbit_graph *graph = old->graphs;
        while (graph->index != i) {
            graph = graph->next_graph;
        }
        SBIT__TRY(sbit__clone_graph(clone, graph, clone->copies[i], error));
    }
    return SBIT_OK;
}

static sbit_status sbit__clone_family(const sbit_graph *graph, bool borrow, sbit_graph **out,
                                      sbit_error *error)
{
    const sbit__graph_family *old = graph->family;
    const sbit_allocator *allocator = &old->ctx->allocator;
    sbit_graph *root = NULL;
    sbit__clone clone;
    if (graph->parent != NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, graph->name,
                          "'%s' is the body of a node: only a root graph can be cloned",
                          graph->name);
    }
    clone.borrow = borrow;
    clone.count = old->graph_count;
    clone.copies = (sbit_graph **)sbit__calloc(allocator, clone.count, sizeof(clone.copies[0]));
    if (clone.copies == NULL) {
        return sbit__fail_oom(error, clone.count * sizeof(clone.copies[0]));
    }
    sbit_status status = sbit__graph_new_family(old->ctx, &root, error);
    if (status == SBIT_OK) {
        status = sbit__clone_all(&clone, old, root, error);
        if (status != SBIT_OK) {
            sbit_graph_destroy(root);
        }
    }
    sbit__free(allocator, (void *)clone.copies, clone.count * sizeof(clone.copies[0]));
    if (status == SBIT_OK) {
        *out = root;
    }
    return status;
}

SPARSEBIT_API sbit_status sbit_graph_clone(const sbit_graph *graph, sbit_graph **out,
                                           sbit_error *error)
{
    return sbit__clone_family(graph, false, out, error);
}

SBIT__FN sbit_status sbit__graph_clone_borrowing(const sbit_graph *graph, sbit_graph **out,
                                                 sbit_error *error)
{
    return sbit__clone_family(graph, true, out, error);
}
