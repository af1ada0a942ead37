/* edit.c: changing a graph. >>edit
 *
 * Called by: users' passes and every layer that transforms models. Calls: ir.
 * Every function first prepares all that can fail (names, room, copies), then changes the graph,
 * so a failure leaves it as it was. Pieces that were prepared and not used stay in the family's
 * arena until the graph is destroyed.
 */
#include "graph_private.h"

#include <stdio.h> /* snprintf for messages */

/* >>arguments */
static sbit_status sbit__edit_need_value(const sbit_graph *graph, sbit_value_id id,
                                         sbit_error *error)
{
    if (sbit_graph_value_alive(graph, id)) {
        return SBIT_OK;
    }
    return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "value %lu does not exist",
                      (unsigned long)id.idx);
}

static sbit_status sbit__edit_need_node(const sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    if (sbit_graph_node_alive(graph, id)) {
        return SBIT_OK;
    }
    return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "node %lu does not exist",
                      (unsigned long)id.idx);
}

/* A value that a node may start to produce. */
static sbit_status sbit__edit_need_free(const sbit_graph *graph, sbit_value_id id,
                                        sbit_error *error)
{
    SBIT__TRY(sbit__edit_need_value(graph, id, error));
    const sbit_value_info *value = sbit_graph_value(graph, id);
    const char *already = value->producer.idx != 0 ? "has a producer"
                          : value->is_input        ? "is an input of the graph"
                          : value->is_constant     ? "is a constant"
                          : value->outer.idx != 0  ? "comes from the outer graph"
                                                   : NULL;
    if (already == NULL) {
        return SBIT_OK;
    }
    return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, value->name,
                      "'%s' cannot become a node's output: it %s", value->name, already);
}

/* >>copies of attributes */
static sbit_status sbit__edit_copy_bytes(sbit_graph *graph, const void *data, size_t bytes,
                                         const void **out, sbit_error *error)
{
    void *copy = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, bytes, 1, &copy, error));
    if (bytes != 0) {
        memcpy(copy, data, bytes);
    }
    *out = copy;
    return SBIT_OK;
}

static sbit_status sbit__edit_copy_strings(sbit_graph *graph, const sbit_str *strings, size_t count,
                                           sbit_str **out, sbit_error *error)
{
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, count, sizeof(sbit_str), &block, error));
    sbit_str *copies = (sbit_str *)block;
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(
            sbit__graph_text(graph, strings[i].data, strings[i].size, &copies[i].data, error));
        copies[i].size = strings[i].size;
    }
    *out = copies;
    return SBIT_OK;
}

static sbit_status sbit__edit_copy_tensor(sbit_graph *graph, const sbit_tensor *tensor,
                                          sbit_tensor *out, sbit_error *error)
{
    const int64_t count = sbit_tensor_count(tensor);
    *out = *tensor;
    if (tensor->dtype == SBIT_STRING) {
        sbit_str *copies = NULL;
        SBIT__TRY(sbit__edit_copy_strings(graph, (const sbit_str *)tensor->data, (size_t)count,
                                          &copies, error));
        out->data = copies;
        return SBIT_OK;
    }
    const size_t bytes = sbit_tensor_bytes(tensor);
    SBIT__TRY(sbit__graph_alloc(graph, bytes, 1, &out->data, error));
    if (bytes != 0) {
        memcpy(out->data, tensor->data, bytes);
    }
    return SBIT_OK;
}

static sbit_status sbit__edit_copy_tensors(sbit_graph *graph, sbit_attr *copy, sbit_error *error)
{
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, copy->count, sizeof(sbit_tensor), &block, error));
    sbit_tensor *tensors = (sbit_tensor *)block;
    for (size_t i = 0; i < copy->count; i++) {
        SBIT__TRY(sbit__edit_copy_tensor(graph, &copy->tensors[i], &tensors[i], error));
    }
    copy->tensors = tensors;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_copy_attr(sbit_graph *graph, const sbit_attr *attr, sbit_attr *out,
                                           sbit_error *error)
{
    const void *block = NULL;
    sbit_attr copy = *attr;
    SBIT__TRY(sbit__graph_text(graph, attr->name, strlen(attr->name), &copy.name, error));
    switch (attr->type) {
    case SBIT_ONNX_ATTR_STRING:
        SBIT__TRY(sbit__graph_text(graph, attr->s.data, attr->s.size, &copy.s.data, error));
        break;
    case SBIT_ONNX_ATTR_TENSOR:
        SBIT__TRY(sbit__edit_copy_tensor(graph, &attr->t, &copy.t, error));
        break;
    case SBIT_ONNX_ATTR_FLOATS:
        SBIT__TRY(
            sbit__edit_copy_bytes(graph, attr->floats, attr->count * sizeof(float), &block, error));
        copy.floats = (const float *)block;
        break;
    case SBIT_ONNX_ATTR_INTS:
        SBIT__TRY(
            sbit__edit_copy_bytes(graph, attr->ints, attr->count * sizeof(int64_t), &block, error));
        copy.ints = (const int64_t *)block;
        break;
    case SBIT_ONNX_ATTR_STRINGS: {
        sbit_str *strings = NULL;
        SBIT__TRY(sbit__edit_copy_strings(graph, attr->strings, attr->count, &strings, error));
        copy.strings = strings;
        break;
    }
    case SBIT_ONNX_ATTR_TENSORS:
        SBIT__TRY(sbit__edit_copy_tensors(graph, &copy, error));
        break;
    case SBIT_ONNX_ATTR_GRAPHS:
        SBIT__TRY(sbit__edit_copy_bytes(graph, (const void *)attr->graphs,
                                        attr->count * sizeof(attr->graphs[0]), &block, error));
        copy.graphs = (sbit_graph *const *)block;
        break;
    default: /* plain numbers, one body, and what is carried unchanged */
        break;
    }
    *out = copy;
    return SBIT_OK;
}

/* >>attributes to make nodes with */

static sbit_attr sbit__attr_named(const char *name, sbit_onnx_attribute_type type)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = type;
    return attr;
}

SBIT__FN sbit_attr sbit__attr_int(const char *name, int64_t value)
{
    sbit_attr attr = sbit__attr_named(name, SBIT_ONNX_ATTR_INT);
    attr.i = value;
    return attr;
}

SBIT__FN sbit_attr sbit__attr_float(const char *name, float value)
{
    sbit_attr attr = sbit__attr_named(name, SBIT_ONNX_ATTR_FLOAT);
    attr.f = value;
    return attr;
}

SBIT__FN sbit_attr sbit__attr_ints(const char *name, const int64_t *values, size_t count)
{
    sbit_attr attr = sbit__attr_named(name, SBIT_ONNX_ATTR_INTS);
    attr.ints = values;
    attr.count = count;
    return attr;
}

SBIT__FN sbit_attr sbit__attr_string(const char *name, const char *value)
{
    sbit_attr attr = sbit__attr_named(name, SBIT_ONNX_ATTR_STRING);
    attr.s = sbit__str(value);
    return attr;
}

/* >>bodies */
static sbit_status sbit__edit_check_bodies(const sbit_graph *graph, const sbit_attr *attr,
                                           sbit_error *error)
{
    const sbit_graph *body = NULL;
    for (size_t i = 0; (body = sbit__graph_attr_body(attr, i)) != NULL; i++) {
        if (body->parent != graph || !body->alive) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, attr->name,
                              "the body of attribute '%s' belongs to another graph", attr->name);
        }
    }
    return SBIT_OK;
}

static void sbit__edit_hold_bodies(sbit_graph *graph, const sbit_attr *attr, sbit_node_id holder)
{
    sbit_graph *body = NULL;
    for (size_t i = 0; (body = sbit__graph_attr_body(attr, i)) != NULL; i++) {
        body->holder = holder;
        for (size_t v = 1; v < body->value_count && body->capture_count != 0; v++) {
            const sbit__graph_value *value = body->values[v];
            if (!value->alive || value->info.outer.idx == 0) {
                continue;
            }
            sbit__graph_value *outer = graph->values[value->info.outer.idx];
            for (uint32_t u = 0; u < outer->info.use_count; u++) {
                if (outer->uses[u].body == body) {
                    outer->uses[u].node = holder;
                }
            }
        }
    }
}

/* Drops the bodies of an attribute that `node` loses, but for those that `kept` goes on holding or
 * that another node has taken over. */
static void sbit__edit_drop_bodies(const sbit_attr *attr, sbit_node_id node, const sbit_attr *kept)
{
    sbit_graph *body = NULL;
    for (size_t i = 0; (body = sbit__graph_attr_body(attr, i)) != NULL; i++) {
        const sbit_graph *other = NULL;
        bool keep = body->holder.idx != node.idx || !body->alive;
        for (size_t k = 0; kept != NULL && (other = sbit__graph_attr_body(kept, k)) != NULL; k++) {
            keep = keep || other == body;
        }
        if (!keep) {
            sbit__graph_drop_body(body);
        }
    }
}

/* >>values */
SPARSEBIT_API sbit_status sbit_graph_add_value(sbit_graph *graph, const char *name,
                                               const sbit_type *type, sbit_value_id *out,
                                               sbit_error *error)
{
    const char *unique = NULL;
    sbit_value_id id = {0};
    const char *base = name == NULL || name[0] == '\0' ? "value" : name;
    SBIT__TRY(sbit__graph_unique_name(graph, false, base, &unique, error));
    SBIT__TRY(sbit__graph_new_value(graph, unique, type, &id, error));
    *out = id;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_take_constant(sbit_graph *graph, const char *name,
                                               const sbit_tensor *tensor, sbit_value_id *out,
                                               sbit_error *error)
{
    sbit_value_id id = {0};
    SBIT__TRY(sbit_graph_add_value(graph, name, NULL, &id, error));
    sbit__graph_put_constant(graph, id, tensor, true, NULL);
    *out = id;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_add_constant(sbit_graph *graph, const char *name,
                                                  const sbit_tensor *tensor, sbit_value_id *out,
                                                  sbit_error *error)
{
    sbit_tensor copy;
    SBIT__TRY(sbit__tensor_copy(graph->family->ctx, tensor, &copy, error));
    const sbit_status status = sbit__graph_take_constant(graph, name, &copy, out, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(graph->family->ctx, &copy);
    }
    return status;
}

SPARSEBIT_API sbit_status sbit_graph_set_constant(sbit_graph *graph, sbit_value_id id,
                                                  const sbit_tensor *tensor, sbit_error *error)
{
    sbit_tensor copy;
    SBIT__TRY(sbit__edit_need_value(graph, id, error));
    const sbit__graph_value *value = graph->values[id.idx];
    if (value->info.outer.idx != 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, value->info.name,
                          "'%s' cannot become a constant: it comes from the outer graph",
                          value->info.name);
    }
    SBIT__TRY(sbit__tensor_copy(graph->family->ctx, tensor, &copy, error));
    const sbit_onnx_tensor *source = value->tensor; /* keeps the doc string of changed weights */
    sbit__graph_put_constant(graph, id, &copy, true, source);
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_set_input(sbit_graph *graph, sbit_value_id id, bool is_input,
                                               sbit_error *error)
{
    SBIT__TRY(sbit__edit_need_value(graph, id, error));
    sbit__graph_value *value = graph->values[id.idx];
    if (value->info.is_input == is_input) {
        return SBIT_OK;
    }
    if (!is_input) {
        size_t kept = 0;
        for (size_t i = 0; i < graph->input_count; i++) {
            if (graph->inputs[i].idx != id.idx) {
                graph->inputs[kept++] = graph->inputs[i];
            }
        }
        graph->input_count = kept;
        value->info.is_input = false;
        if (value->info.has_default) { /* which nobody can replace any more */
            sbit_type type;
            sbit__graph_type_of_tensor(&value->info.constant, &type);
            value->info.has_default = false;
            value->info.is_constant = true;
            sbit_graph_set_type(graph, id, &type);
        }
        return SBIT_OK;
    }
    if (value->info.producer.idx != 0 || value->info.outer.idx != 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, value->info.name,
                          "'%s' cannot become an input: it %s", value->info.name,
                          value->info.outer.idx != 0 ? "comes from the outer graph"
                                                     : "has a producer");
    }
    SBIT__TRY(sbit__graph_append_id(graph, &graph->inputs, &graph->input_count,
                                    &graph->input_capacity, id, error));
    value->info.is_input = true;
    value->info.has_default = value->info.is_constant && graph->family->ir_version >= 4;
    value->info.is_constant = value->info.is_constant && !value->info.has_default;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_add_output(sbit_graph *graph, sbit_value_id id,
                                                sbit_error *error)
{
    sbit_node_id none = {0};
    SBIT__TRY(sbit__edit_need_value(graph, id, error));
    SBIT__TRY(sbit__graph_reserve_uses(graph, id, 1, error));
    SBIT__TRY(sbit__graph_append_id(graph, &graph->outputs, &graph->output_count,
                                    &graph->output_capacity, id, error));
    sbit__graph_put_use(graph, id, none, (uint32_t)(graph->output_count - 1), NULL);
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_set_output(sbit_graph *graph, size_t index, sbit_value_id id,
                                                sbit_error *error)
{
    sbit_node_id none = {0};
    SBIT__TRY(sbit__edit_need_value(graph, id, error));
    if (index >= graph->output_count) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "the graph has no output %llu",
                          (unsigned long long)index);
    }
    SBIT__TRY(sbit__graph_reserve_uses(graph, id, 1, error));
    sbit__graph_take_use(graph, graph->outputs[index], none, (uint32_t)index, NULL);
    graph->outputs[index] = id;
    sbit__graph_put_use(graph, id, none, (uint32_t)index, NULL);
    return SBIT_OK;
}

SBIT__FN void sbit__graph_remove_output(sbit_graph *graph, size_t index)
{
    sbit_node_id none = {0};
    sbit__graph_take_use(graph, graph->outputs[index], none, (uint32_t)index, NULL);
    for (size_t i = index + 1; i < graph->output_count; i++) {
        sbit__graph_value *value = graph->values[graph->outputs[i].idx];
        for (uint32_t u = 0; u < value->info.use_count; u++) {
            sbit_use *use = &value->uses[u];
            if (use->node.idx == 0 && use->body == NULL && use->index == i) {
                use->index--;
            }
        }
        graph->outputs[i - 1] = graph->outputs[i];
    }
    graph->output_count--;
}

SPARSEBIT_API sbit_status sbit_graph_rename_value(sbit_graph *graph, sbit_value_id id,
                                                  const char *name, sbit_error *error)
{
    SBIT__TRY(sbit__edit_need_value(graph, id, error));
    sbit__graph_value *value = graph->values[id.idx];
    if (sbit__streq(value->info.name, name)) {
        return SBIT_OK;
    }
    if (name == NULL || name[0] == '\0' || value->info.outer.idx != 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, value->info.name,
                          "'%s' cannot be renamed: %s", value->info.name,
                          value->info.outer.idx != 0 ? "it comes from the outer graph"
                                                     : "the new name is empty");
    }
    if (sbit__graph_name_taken(graph, name)) {
        return sbit__fail(error, SBIT_ERR_DUPLICATE, name,
                          "'%s' cannot be renamed to '%s': that name is taken", value->info.name,
                          name);
    }
    const char *copy = NULL;
    SBIT__TRY(sbit__graph_text(graph, name, strlen(name), &copy, error));
    SBIT__TRY(sbit__graph_hold_name(graph, false, copy, id.idx, error));
    sbit__graph_release_name(graph, false, value->info.name, id.idx);
    value->info.name = copy;
    sbit__graph_spread_name(graph, id);
    return SBIT_OK;
}

SPARSEBIT_API void sbit_graph_erase_value(sbit_graph *graph, sbit_value_id id)
{
    if (!sbit_graph_value_alive(graph, id)) {
        return;
    }
    sbit__graph_value *value = graph->values[id.idx];
    const bool in_use =
        value->info.producer.idx != 0 || value->info.use_count != 0 || value->info.is_input;
    SPARSEBIT_ASSERT(!in_use);
    if (in_use) {
        return;
    }
    if (value->info.outer.idx != 0) {
        sbit__graph_take_use(graph->parent, value->info.outer, graph->holder, id.idx, graph);
        graph->capture_count--;
    } else {
        sbit__graph_release_name(graph, false, value->info.name, id.idx);
    }
    sbit__graph_drop_constant(graph, id);
    value->alive = false;
}

SBIT__FN sbit_status sbit__graph_set_outputs(sbit_graph *graph, const sbit_value_id *ids,
                                             size_t count, sbit_error *error)
{
    const sbit_node_id none = {0};
    for (size_t i = graph->output_count; i-- > 0;) {
        sbit__graph_take_use(graph, graph->outputs[i], none, (uint32_t)i, NULL);
    }
    graph->output_count = 0;
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(sbit_graph_add_output(graph, ids[i], error));
    }
    return SBIT_OK;
}

/* >>nodes */
static sbit_status sbit__edit_check_node(const sbit_graph *graph, const sbit_node_desc *desc,
                                         sbit_error *error)
{
    const char *op_type = desc->op_type;
    if (op_type == NULL || op_type[0] == '\0') {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a new node has no op_type");
    }
    if (desc->before.idx != 0) {
        SBIT__TRY(sbit__edit_need_node(graph, desc->before, error));
    }
    for (size_t i = 0; i < desc->input_count; i++) {
        if (desc->inputs[i].idx != 0) {
            SBIT__TRY(sbit__edit_need_value(graph, desc->inputs[i], error));
        }
    }
    for (size_t i = 0; i < desc->output_count; i++) {
        if (desc->outputs[i].idx == 0) {
            continue;
        }
        SBIT__TRY(sbit__edit_need_free(graph, desc->outputs[i], error));
        for (size_t j = 0; j < i; j++) {
            if (desc->outputs[j].idx == desc->outputs[i].idx) {
                return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                                  "a new %s node has the same output twice", op_type);
            }
        }
    }
    for (size_t i = 0; i < desc->attr_count; i++) {
        SBIT__TRY(sbit__edit_check_bodies(graph, &desc->attrs[i], error));
    }
    return SBIT_OK;
}

static sbit_status sbit__edit_fill_node(sbit_graph *graph, const sbit_node_desc *desc,
                                        sbit__graph_node *node, sbit_error *error)
{
    const char *domain = sbit__graph_domain(sbit__str(desc->domain));
    void *inputs = NULL, *outputs = NULL, *attrs = NULL;
    SBIT__TRY(
        sbit__graph_text(graph, desc->op_type, strlen(desc->op_type), &node->info.op_type, error));
    SBIT__TRY(sbit__graph_text(graph, domain, strlen(domain), &node->info.domain, error));
    SBIT__TRY(sbit__graph_alloc(graph, desc->input_count, sizeof(sbit_value_id), &inputs, error));
    SBIT__TRY(sbit__graph_alloc(graph, desc->output_count, sizeof(sbit_value_id), &outputs, error));
    SBIT__TRY(sbit__graph_alloc(graph, desc->attr_count, sizeof(sbit_attr), &attrs, error));
    node->inputs = (sbit_value_id *)inputs;
    node->outputs = (sbit_value_id *)outputs;
    node->attrs = (sbit_attr *)attrs;
    for (size_t i = 0; i < desc->input_count; i++) {
        node->inputs[i] = desc->inputs[i];
    }
    SBIT__TRY(sbit__graph_reserve_inputs(graph, node->inputs, desc->input_count, error));
    for (size_t i = 0; i < desc->output_count; i++) {
        node->outputs[i] = desc->outputs[i];
    }
    for (size_t i = 0; i < desc->attr_count; i++) {
        SBIT__TRY(sbit__graph_copy_attr(graph, &desc->attrs[i], &node->attrs[i], error));
    }
    node->input_capacity = node->info.input_count = desc->input_count;
    node->output_capacity = node->info.output_count = desc->output_count;
    node->attr_capacity = node->info.attr_count = desc->attr_count;
    const char *base = desc->name != NULL ? desc->name : desc->op_type;
    if (base[0] != '\0') {
        SBIT__TRY(sbit__graph_unique_name(graph, true, base, &node->info.name, error));
    }
    return sbit__graph_hold_name(graph, true, node->info.name, node->info.id.idx, error);
}

/* Writes a node's lists into the values they name; nothing here can fail. */
SBIT__FN void sbit__graph_commit_node(sbit_graph *graph, sbit__graph_node *node, uint32_t before)
{
    const sbit_node_id id = node->info.id;
    node->info.inputs = node->inputs;
    node->info.outputs = node->outputs;
    node->info.attrs = node->attrs;
    node->alive = true;
    for (size_t i = 0; i < node->info.input_count; i++) {
        if (node->inputs[i].idx != 0) {
            sbit__graph_put_use(graph, node->inputs[i], id, (uint32_t)i, NULL);
        }
    }
    for (size_t i = 0; i < node->info.output_count; i++) {
        if (node->outputs[i].idx != 0) {
            graph->values[node->outputs[i].idx]->info.producer = id;
            graph->values[node->outputs[i].idx]->info.producer_output = (uint32_t)i;
        }
    }
    for (size_t i = 0; i < node->info.attr_count; i++) {
        sbit__edit_hold_bodies(graph, &node->attrs[i], id);
    }
    sbit__graph_link_node(graph, id.idx, before);
}

SPARSEBIT_API sbit_status sbit_graph_add_node(sbit_graph *graph, const sbit_node_desc *desc,
                                              sbit_node_id *out, sbit_error *error)
{
    sbit__graph_node *node = NULL;
    SBIT__TRY(sbit__edit_check_node(graph, desc, error));
    SBIT__TRY(sbit__graph_new_node(graph, &node, error));
    node->alive = false; /* until it is complete */
    SBIT__TRY(sbit__edit_fill_node(graph, desc, node, error));
    sbit__graph_commit_node(graph, node, desc->before.idx);
    if (out != NULL) {
        *out = node->info.id;
    }
    return SBIT_OK;
}

SPARSEBIT_API void sbit_graph_erase_node(sbit_graph *graph, sbit_node_id id)
{
    if (!sbit_graph_node_alive(graph, id)) {
        return;
    }
    sbit__graph_node *node = graph->nodes[id.idx];
    for (size_t i = 0; i < node->info.input_count; i++) {
        if (node->inputs[i].idx != 0) {
            sbit__graph_take_use(graph, node->inputs[i], id, (uint32_t)i, NULL);
        }
    }
    for (size_t i = 0; i < node->info.output_count; i++) {
        if (node->outputs[i].idx != 0) {
            graph->values[node->outputs[i].idx]->info.producer.idx = 0;
            graph->values[node->outputs[i].idx]->info.producer_output = 0;
        }
    }
    for (size_t i = 0; i < node->info.attr_count; i++) {
        sbit__edit_drop_bodies(&node->attrs[i], id, NULL);
    }
    sbit__graph_release_name(graph, true, node->info.name, id.idx);
    sbit__graph_unlink_node(graph, id.idx);
    node->alive = false;
}

static sbit_status sbit__edit_grow_ids(sbit_graph *graph, sbit_value_id **ids, size_t count,
                                       size_t *capacity, size_t needed, sbit_error *error)
{
    void *items = *ids;
    SBIT__TRY(sbit__graph_grow(graph, &items, count, capacity, needed, sizeof(**ids), error));
    *ids = (sbit_value_id *)items;
    for (size_t i = count; i < needed; i++) {
        (*ids)[i].idx = 0;
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_set_node_input(sbit_graph *graph, sbit_node_id id,
                                                    size_t index, sbit_value_id value,
                                                    sbit_error *error)
{
    SBIT__TRY(sbit__edit_need_node(graph, id, error));
    if (value.idx != 0) {
        SBIT__TRY(sbit__edit_need_value(graph, value, error));
        SBIT__TRY(sbit__graph_reserve_uses(graph, value, 1, error));
    }
    sbit__graph_node *node = graph->nodes[id.idx];
    if (index >= node->info.input_count) {
        SBIT__TRY(sbit__edit_grow_ids(graph, &node->inputs, node->info.input_count,
                                      &node->input_capacity, index + 1, error));
        node->info.inputs = node->inputs;
        node->info.input_count = index + 1;
    }
    if (node->inputs[index].idx != 0) {
        sbit__graph_take_use(graph, node->inputs[index], id, (uint32_t)index, NULL);
    }
    node->inputs[index] = value;
    if (value.idx != 0) {
        sbit__graph_put_use(graph, value, id, (uint32_t)index, NULL);
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_set_node_output(sbit_graph *graph, sbit_node_id id,
                                                     size_t index, sbit_value_id value,
                                                     sbit_error *error)
{
    SBIT__TRY(sbit__edit_need_node(graph, id, error));
    if (value.idx != 0) {
        SBIT__TRY(sbit__edit_need_free(graph, value, error));
    }
    sbit__graph_node *node = graph->nodes[id.idx];
    if (index >= node->info.output_count) {
        SBIT__TRY(sbit__edit_grow_ids(graph, &node->outputs, node->info.output_count,
                                      &node->output_capacity, index + 1, error));
        node->info.outputs = node->outputs;
        node->info.output_count = index + 1;
    }
    if (node->outputs[index].idx != 0) {
        graph->values[node->outputs[index].idx]->info.producer.idx = 0;
        graph->values[node->outputs[index].idx]->info.producer_output = 0;
    }
    node->outputs[index] = value;
    if (value.idx != 0) {
        graph->values[value.idx]->info.producer = id;
        graph->values[value.idx]->info.producer_output = (uint32_t)index;
    }
    return SBIT_OK;
}

/* >>attributes and operators */
static size_t sbit__edit_find_attr(const sbit__graph_node *node, const char *name)
{
    size_t i = 0;
    while (i < node->info.attr_count && !sbit__streq(node->attrs[i].name, name)) {
        i++;
    }
    return i;
}

SPARSEBIT_API sbit_status sbit_graph_set_attr(sbit_graph *graph, sbit_node_id id,
                                              const sbit_attr *attr, sbit_error *error)
{
    sbit_attr copy;
    SBIT__TRY(sbit__edit_need_node(graph, id, error));
    SBIT__TRY(sbit__edit_check_bodies(graph, attr, error));
    SBIT__TRY(sbit__graph_copy_attr(graph, attr, &copy, error));
    sbit__graph_node *node = graph->nodes[id.idx];
    const size_t index = sbit__edit_find_attr(node, attr->name);
    if (index == node->info.attr_count) {
        void *items = node->attrs;
        SBIT__TRY(sbit__graph_grow(graph, &items, node->info.attr_count, &node->attr_capacity,
                                   index + 1, sizeof(copy), error));
        node->attrs = (sbit_attr *)items;
        node->info.attrs = node->attrs;
        node->info.attr_count++;
    } else {
        sbit__edit_drop_bodies(&node->attrs[index], id, &copy);
    }
    node->attrs[index] = copy;
    sbit__edit_hold_bodies(graph, &copy, id);
    return SBIT_OK;
}

SPARSEBIT_API void sbit_graph_remove_attr(sbit_graph *graph, sbit_node_id id, const char *name)
{
    if (!sbit_graph_node_alive(graph, id)) {
        return;
    }
    sbit__graph_node *node = graph->nodes[id.idx];
    const size_t index = sbit__edit_find_attr(node, name);
    if (index == node->info.attr_count) {
        return;
    }
    sbit__edit_drop_bodies(&node->attrs[index], id, NULL);
    node->info.attr_count--;
    for (size_t i = index; i < node->info.attr_count; i++) {
        node->attrs[i] = node->attrs[i + 1];
    }
}

SPARSEBIT_API sbit_status sbit_graph_set_op(sbit_graph *graph, sbit_node_id id, const char *domain,
                                            const char *op_type, sbit_error *error)
{
    const char *domain_copy = NULL, *type_copy = NULL;
    const char *normal = sbit__graph_domain(sbit__str(domain));
    SBIT__TRY(sbit__edit_need_node(graph, id, error));
    if (op_type == NULL || op_type[0] == '\0') {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "the new op_type is empty");
    }
    SBIT__TRY(sbit__graph_text(graph, normal, strlen(normal), &domain_copy, error));
    SBIT__TRY(sbit__graph_text(graph, op_type, strlen(op_type), &type_copy, error));
    graph->nodes[id.idx]->info.domain = domain_copy;
    graph->nodes[id.idx]->info.op_type = type_copy;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_add_node_metadata(sbit_graph *graph, sbit_node_id id,
                                                       const char *key, const char *value,
                                                       sbit_error *error)
{
    SBIT__TRY(sbit__edit_need_node(graph, id, error));
    sbit__graph_node *node = graph->nodes[id.idx];
    return sbit__graph_put_metadata(graph, &node->metadata, &node->metadata_count, key, value,
                                    error);
}

SPARSEBIT_API sbit_status sbit_graph_drop_node_metadata(sbit_graph *graph, sbit_node_id id,
                                                        const char *prefix, sbit_error *error)
{
    SBIT__TRY(sbit__edit_need_node(graph, id, error));
    sbit__graph_node *node = graph->nodes[id.idx];
    void *block = NULL;
    size_t kept = 0;
    if (node->metadata_count == 0) {
        return SBIT_OK;
    }
    /* a new list, because this one may be the document's */
    SBIT__TRY(
        sbit__graph_alloc(graph, node->metadata_count, sizeof(*node->metadata), &block, error));
    sbit_onnx_string_entry *entries = (sbit_onnx_string_entry *)block;
    for (size_t i = 0; i < node->metadata_count; i++) {
        const char *key = node->metadata[i].key.data;
        if (key == NULL || strncmp(key, prefix, strlen(prefix)) != 0) {
            entries[kept++] = node->metadata[i];
        }
    }
    node->metadata = entries;
    node->metadata_count = kept;
    return SBIT_OK;
}

/* >>the model */
SPARSEBIT_API sbit_status sbit_graph_add_metadata(sbit_graph *graph, const char *key,
                                                  const char *value, sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    return sbit__graph_put_metadata(graph, &family->metadata, &family->metadata_count, key, value,
                                    error);
}

SPARSEBIT_API sbit_status sbit_graph_set_opset(sbit_graph *graph, const char *domain,
                                               int64_t version, sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    const char *normal = sbit__graph_domain(sbit__str(domain)), *copy = NULL;
    for (size_t i = 0; i < family->opset_count; i++) {
        if (sbit__streq(family->opsets[i].domain, normal)) {
            if (version > family->opsets[i].version) {
                family->opsets[i].version = version;
                family->opset_raised = family->opset_raised || normal[0] == '\0';
            }
            return SBIT_OK;
        }
    }
    void *items = family->opsets;
    SBIT__TRY(sbit__graph_text(graph, normal, strlen(normal), &copy, error));
    SBIT__TRY(sbit__graph_grow(graph, &items, family->opset_count, &family->opset_capacity,
                               family->opset_count + 1, sizeof(family->opsets[0]), error));
    family->opsets = (sbit__graph_opset *)items;
    sbit__graph_opset *opset = &family->opsets[family->opset_count++];
    opset->domain = copy;
    opset->version = version;
    opset->source = NULL;
    family->opset_raised = family->opset_raised || normal[0] == '\0';
    return SBIT_OK;
}

SBIT__FN void sbit__graph_lower_opset(sbit_graph *graph, int64_t version)
{
    sbit__graph_family *family = graph->family;
    for (size_t i = 0; i < family->opset_count; i++) {
        if (family->opsets[i].domain[0] == '\0' && family->opsets[i].version > version) {
            family->opsets[i].version = version;
        }
    }
}

SPARSEBIT_API sbit_status sbit_graph_create(sbit_ctx *ctx, int64_t opset, sbit_graph **out,
                                            sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit__graph_new_family(ctx, &graph, error));
    const sbit_status status = sbit_graph_set_opset(graph, "", opset, error);
    if (status != SBIT_OK) {
        sbit_graph_destroy(graph);
        return status;
    }
    graph->name = "graph"; /* ONNX wants a name */
    graph->family->ir_version = 4;
    *out = graph;
    return SBIT_OK;
}
