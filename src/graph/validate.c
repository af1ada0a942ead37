/* validate.c: every invariant of a graph, checked. >>validate
 *
 * Called by: tests, and users after their own passes. Calls: ir.
 * Reads each list from both sides: what a node names must know of the node, and what a value knows
 * must be named. Costs one look at each entry; uses of one value are compared pairwise.
 */
#include "graph_private.h"

static sbit_status sbit__validate_fail(sbit_error *error, const char *where, const char *what)
{
    return sbit__fail(error, SBIT_ERR_INVALID_MODEL, where, "%s: %s", where, what);
}

/* True if the use is named where it says, once. */
static bool sbit__validate_use(const sbit_graph *graph, sbit_value_id id, const sbit_use *use)
{
    if (use->body != NULL) {
        const sbit_value_id inner = {use->index};
        const sbit_value_info *value = sbit_graph_value(use->body, inner);
        return use->body->alive && use->body->parent == graph && value != NULL &&
               value->outer.idx == id.idx && use->node.idx == use->body->holder.idx;
    }
    if (use->node.idx == 0) {
        return use->index < graph->output_count && graph->outputs[use->index].idx == id.idx;
    }
    const sbit_node *node = sbit_graph_node(graph, use->node);
    return node != NULL && use->index < node->input_count && node->inputs[use->index].idx == id.idx;
}

static sbit_status sbit__validate_uses(const sbit_graph *graph, const sbit__graph_value *value,
                                       sbit_error *error)
{
    bool is_output = false;
    for (uint32_t i = 0; i < value->info.use_count; i++) {
        const sbit_use *use = &value->uses[i];
        if (!sbit__validate_use(graph, value->info.id, use)) {
            return sbit__validate_fail(error, value->info.name, "has a use that does not name it");
        }
        is_output = is_output || (use->node.idx == 0 && use->body == NULL);
        for (uint32_t j = 0; j < i; j++) {
            const sbit_use *other = &value->uses[j];
            if (other->node.idx == use->node.idx && other->index == use->index &&
                other->body == use->body) {
                return sbit__validate_fail(error, value->info.name, "counts one use twice");
            }
        }
    }
    if (is_output != value->info.is_output) {
        return sbit__validate_fail(error, value->info.name, "is_output is wrong");
    }
    return SBIT_OK;
}

static sbit_status sbit__validate_name(const sbit_graph *graph, const sbit__graph_value *value,
                                       sbit_error *error)
{
    const char *name = value->info.name;
    uint32_t idx = 0;
    if (!sbit__map_find(&graph->value_of, name, &idx) || idx != value->info.id.idx) {
        return sbit__validate_fail(error, name, "is not found by its name");
    }
    if (!sbit__graph_name_taken(graph, name)) {
        return sbit__validate_fail(error, name, "its name is not registered");
    }
    for (const sbit_graph *outer = graph->parent; outer != NULL; outer = outer->parent) {
        if (sbit__map_find(&outer->value_of, name, NULL)) {
            return sbit__validate_fail(error, name, "hides a value of an outer graph");
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__validate_captured(const sbit_graph *graph, const sbit__graph_value *value,
                                           sbit_error *error)
{
    const sbit_value_info *outer =
        graph->parent != NULL ? sbit_graph_value(graph->parent, value->info.outer) : NULL;
    if (outer == NULL) {
        return sbit__validate_fail(error, value->info.name, "captures a value that is gone");
    }
    if (!sbit__streq(outer->name, value->info.name)) {
        return sbit__validate_fail(error, value->info.name, "has another name outside");
    }
    if (value->info.producer.idx != 0 || value->info.is_input || value->info.is_constant) {
        return sbit__validate_fail(error, value->info.name, "is captured and defined here too");
    }
    const sbit__graph_value *source = graph->parent->values[value->info.outer.idx];
    for (uint32_t i = 0; i < source->info.use_count; i++) {
        if (source->uses[i].body == graph && source->uses[i].index == value->info.id.idx) {
            return SBIT_OK;
        }
    }
    return sbit__validate_fail(error, value->info.name, "is captured without being used outside");
}

static sbit_status sbit__validate_value(const sbit_graph *graph, const sbit__graph_value *value,
                                        sbit_error *error)
{
    SBIT__TRY(sbit__validate_uses(graph, value, error));
    const sbit_value_info *info = &value->info;
    if (info->outer.idx != 0) {
        return sbit__validate_captured(graph, value, error);
    }
    SBIT__TRY(sbit__validate_name(graph, value, error));
    if (info->producer.idx != 0) {
        const sbit_node *node = sbit_graph_node(graph, info->producer);
        if (node == NULL || info->producer_output >= node->output_count ||
            node->outputs[info->producer_output].idx != info->id.idx) {
            return sbit__validate_fail(error, info->name, "its producer does not name it");
        }
        if (info->is_input || info->is_constant) {
            return sbit__validate_fail(error, info->name,
                                       "has a producer and is an input or constant");
        }
    } else if (!info->is_input && !info->is_constant && info->use_count != 0) {
        return sbit__validate_fail(error, info->name, "is used, but nothing produces it");
    }
    if (info->has_default && (!info->is_input || info->is_constant)) {
        return sbit__validate_fail(error, info->name, "has a default and is no input");
    }
    if ((info->is_constant || info->has_default) && info->constant.data == NULL &&
        sbit_tensor_count(&info->constant) != 0) {
        return sbit__validate_fail(error, info->name, "is a constant without data");
    }
    return SBIT_OK;
}

static sbit_status sbit__validate_input(const sbit_graph *graph, const sbit__graph_node *node,
                                        sbit_value_id id, uint32_t index, const char *text,
                                        sbit_error *error)
{
    const sbit_value_info *info = sbit_graph_value(graph, id);
    if (info == NULL) {
        return sbit__validate_fail(error, text, "reads a value that is gone");
    }
    if (info->producer.idx != 0 && graph->nodes[info->producer.idx]->order >= node->order) {
        return sbit__validate_fail(error, text, "stands before what it reads");
    }
    const sbit__graph_value *value = graph->values[id.idx];
    for (uint32_t u = 0; u < value->info.use_count; u++) {
        const sbit_use *use = &value->uses[u];
        if (use->node.idx == node->info.id.idx && use->body == NULL && use->index == index) {
            return SBIT_OK;
        }
    }
    return sbit__validate_fail(error, text, "reads a value that does not know of it");
}

static sbit_status sbit__validate_bodies(const sbit_graph *graph, const sbit__graph_node *node,
                                         const char *text, sbit_error *error)
{
    const sbit_graph *body = NULL;
    for (size_t b = 0; (body = sbit_node_body(&node->info, b)) != NULL; b++) {
        if (!body->alive || body->parent != graph || body->holder.idx != node->info.id.idx) {
            return sbit__validate_fail(error, text, "has a body that belongs elsewhere");
        }
        SBIT__TRY(sbit_graph_validate(body, error));
        for (size_t i = 1; i < body->value_count; i++) {
            const sbit__graph_value *value = body->values[i];
            if (!value->alive || value->info.outer.idx == 0) {
                continue;
            }
            const sbit_node_id producer = graph->values[value->info.outer.idx]->info.producer;
            if (producer.idx != 0 && graph->nodes[producer.idx]->order >= node->order) {
                return sbit__validate_fail(error, text, "stands before what its body reads");
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__validate_node(const sbit_graph *graph, const sbit__graph_node *node,
                                       sbit_error *error)
{
    char text[160];
    sbit_graph_describe(graph, node->info.id, text, sizeof(text));
    if (node->info.inputs != node->inputs || node->info.outputs != node->outputs ||
        node->info.attrs != node->attrs) {
        return sbit__validate_fail(error, text, "shows lists that are not its own");
    }
    for (size_t i = 0; i < node->info.input_count; i++) {
        if (node->inputs[i].idx != 0) {
            SBIT__TRY(sbit__validate_input(graph, node, node->inputs[i], (uint32_t)i, text, error));
        }
    }
    for (size_t i = 0; i < node->info.output_count; i++) {
        if (node->outputs[i].idx == 0) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(graph, node->outputs[i]);
        if (value == NULL || value->producer.idx != node->info.id.idx ||
            value->producer_output != i) {
            return sbit__validate_fail(error, text, "an output does not know its producer");
        }
    }
    return sbit__validate_bodies(graph, node, text, error);
}

static sbit_status sbit__validate_list(const sbit_graph *graph, sbit_error *error)
{
    size_t alive = 0, listed = 0;
    uint32_t prev = 0;
    uint64_t order = 0;
    for (size_t i = 1; i < graph->node_count; i++) {
        alive += graph->nodes[i]->alive ? 1u : 0u;
    }
    for (uint32_t i = graph->first; i != 0 && listed <= alive; i = graph->nodes[i]->next) {
        const sbit__graph_node *node = graph->nodes[i];
        if (!node->alive || node->prev != prev || node->order <= order) {
            return sbit__validate_fail(error, graph->name, "the list of nodes is broken");
        }
        prev = i;
        order = node->order;
        listed++;
    }
    if (listed != alive || graph->last != prev) {
        return sbit__validate_fail(error, graph->name, "the list of nodes is not complete");
    }
    return SBIT_OK;
}

static sbit_status sbit__validate_interface(const sbit_graph *graph, sbit_error *error)
{
    size_t inputs = 0;
    for (size_t i = 0; i < graph->input_count; i++) {
        const sbit_value_info *value = sbit_graph_value(graph, graph->inputs[i]);
        if (value == NULL || !value->is_input) {
            return sbit__validate_fail(error, graph->name, "an input does not know that it is one");
        }
    }
    for (size_t i = 1; i < graph->value_count; i++) {
        const sbit__graph_value *value = graph->values[i];
        inputs += value->alive && value->info.is_input ? 1u : 0u;
    }
    if (inputs != graph->input_count) {
        return sbit__validate_fail(error, graph->name,
                                   "inputs are missing from the list, or twice");
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        if (!sbit_graph_value_alive(graph, graph->outputs[i])) {
            return sbit__validate_fail(error, graph->name, "an output is gone");
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_validate(const sbit_graph *graph, sbit_error *error)
{
    size_t captures = 0;
    SBIT__TRY(sbit__validate_list(graph, error));
    SBIT__TRY(sbit__validate_interface(graph, error));
    for (size_t i = 1; i < graph->value_count; i++) {
        if (graph->values[i]->alive) {
            SBIT__TRY(sbit__validate_value(graph, graph->values[i], error));
            captures += graph->values[i]->info.outer.idx != 0 ? 1u : 0u;
        }
    }
    if (captures != graph->capture_count) {
        return sbit__validate_fail(error, graph->name, "the number of captured values is wrong");
    }
    for (size_t i = 1; i < graph->node_count; i++) {
        if (graph->nodes[i]->alive) {
            SBIT__TRY(sbit__validate_node(graph, graph->nodes[i], error));
        }
    }
    return SBIT_OK;
}
