/* export.c: from a graph to an ONNX document. >>export
 *
 * Called by: users. Calls: the codec.
 * Messages that were read are written again with their doc strings, metadata and unknown fields;
 * what the graph knows (names, lists, types, data) replaces what they said. Text and weights are
 * borrowed from the graph. Functions were inlined and are gone; sparse initializers are dense.
 *
 * Two things that a graph may hold and a file may not get an Identity node:
 *  - a constant that is an output of the root: the initializer gets another name, the Identity
 * makes the output's, first of all nodes, so that every reader finds it;
 *  - a body's output that is a constant or comes from outside, and an output that is listed twice:
 *    the Identity stands last and makes a new name.
 */
#include "graph_private.h"

#include <stdio.h> /* snprintf */

typedef struct sbit__exporter {
    sbit_onnx_doc *doc;
    sbit__map made; /* names made here; those of the graph are in its register */
    int64_t ir_version;
    bool drop_default_inputs;
    sbit_error *error;
} sbit__exporter;

/* >>small helpers */
static sbit_status sbit__export_alloc(sbit__exporter *exporter, size_t count, size_t bytes_each,
                                      void **out)
{
    *out = sbit_onnx_alloc(exporter->doc, count == 0 ? 1 : count, bytes_each);
    return *out != NULL ? SBIT_OK : sbit__fail_oom(exporter->error, bytes_each);
}

/* "base_suffix", or with a number behind, that no value of the family has. */
static sbit_status sbit__export_name(sbit__exporter *exporter, const sbit_graph *graph,
                                     const char *base, const char *suffix, const char **out)
{
    void *block = NULL;
    const size_t room = strlen(base) + strlen(suffix) + 32;
    SBIT__TRY(sbit__export_alloc(exporter, room, 1, &block));
    char *name = (char *)block;
    snprintf(name, room, "%s_%s", base, suffix);
    for (unsigned long number = 1;
         sbit__graph_name_taken(graph, name) || sbit__map_find(&exporter->made, name, NULL);
         number++) {
        snprintf(name, room, "%s_%s_%lu", base, suffix, number);
    }
    *out = name;
    return sbit__map_set(&exporter->made, name, 1, exporter->error);
}

static sbit_status sbit__export_names(sbit__exporter *exporter, const sbit_graph *graph,
                                      const sbit_value_id *ids, size_t count, sbit_str **out)
{
    void *block = NULL;
    SBIT__TRY(sbit__export_alloc(exporter, count, sizeof(sbit_str), &block));
    *out = (sbit_str *)block;
    for (size_t i = 0; i < count; i++) {
        (*out)[i] = sbit__str(ids[i].idx != 0 ? graph->values[ids[i].idx]->info.name : "");
    }
    return SBIT_OK;
}

/* >>descriptions of values */
static sbit_status sbit__export_type(sbit__exporter *exporter, const sbit_graph *graph,
                                     const sbit__graph_value *value, sbit_onnx_type **out)
{
    const sbit_onnx_value_info *source = value->info.source;
    const sbit_type *type = &value->info.type;
    if (source != NULL && source->type != NULL) {
        sbit_type said;
        SBIT__TRY(sbit__graph_type_from_onnx(graph, NULL, value->info.name, source->type, &said,
                                             exporter->error));
        if (sbit__graph_type_equal(&said, type) || type->kind >= SBIT_KIND_MAP) {
            *out = source->type; /* with its denotations */
            return SBIT_OK;
        }
    }
    *out = NULL;
    if (type->dtype == SBIT_UNDEFINED || type->kind >= SBIT_KIND_MAP) {
        return SBIT_OK;
    }
    return sbit__graph_type_to_onnx(graph, exporter->doc, type, out, exporter->error);
}

static sbit_status sbit__export_value_info(sbit__exporter *exporter, const sbit_graph *graph,
                                           const sbit__graph_value *value, const char *name,
                                           sbit_onnx_value_info *out)
{
    memset(out, 0, sizeof(*out));
    if (value->info.source != NULL) {
        *out = *value->info.source;
    }
    SBIT_ONNX_SET(out, SBIT_ONNX_VALUE_INFO_NAME, name, sbit__str(name));
    return sbit__export_type(exporter, graph, value, &out->type);
}

/* >>attributes */
static const sbit_onnx_attribute *sbit__export_attr_source(const sbit_onnx_node *node,
                                                           const char *name)
{
    for (size_t i = 0; node != NULL && i < node->attribute_count; i++) {
        if (sbit__streq(node->attribute[i].name.data, name)) {
            return &node->attribute[i];
        }
    }
    return NULL;
}

static sbit_status sbit__export_graph(sbit__exporter *exporter, const sbit_graph *graph,
                                      sbit_onnx_graph *out);

static sbit_status sbit__export_copy(sbit__exporter *exporter, const void *data, size_t count,
                                     size_t bytes_each, void **out)
{
    SBIT__TRY(sbit__export_alloc(exporter, count, bytes_each, out));
    if (count != 0) {
        memcpy(*out, data, count * bytes_each);
    }
    return SBIT_OK;
}

static sbit_status sbit__export_attr_tensors(sbit__exporter *exporter, const sbit_attr *attr,
                                             const sbit_onnx_attribute *source,
                                             sbit_onnx_attribute *out)
{
    const bool one = attr->type == SBIT_ONNX_ATTR_TENSOR;
    const size_t count = one ? 1 : attr->count;
    const char *name = one && source != NULL && source->t != NULL ? source->t->name.data : NULL;
    void *block = NULL;
    SBIT__TRY(sbit__export_alloc(exporter, count, sizeof(sbit_onnx_tensor), &block));
    sbit_onnx_tensor *tensors = (sbit_onnx_tensor *)block;
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(sbit__tensor_to_onnx(exporter->doc, name, one ? &attr->t : &attr->tensors[i],
                                       &tensors[i], exporter->error));
    }
    if (one) {
        out->t = tensors;
    } else {
        out->tensors = tensors;
        out->tensors_count = count;
    }
    return SBIT_OK;
}

static sbit_status sbit__export_attr_graphs(sbit__exporter *exporter, const sbit_attr *attr,
                                            sbit_onnx_attribute *out)
{
    const bool one = attr->type == SBIT_ONNX_ATTR_GRAPH;
    const size_t count = one ? 1 : attr->count;
    void *block = NULL;
    SBIT__TRY(sbit__export_alloc(exporter, count, sizeof(sbit_onnx_graph), &block));
    sbit_onnx_graph *graphs = (sbit_onnx_graph *)block;
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(sbit__export_graph(exporter, sbit__graph_attr_body(attr, i), &graphs[i]));
    }
    if (one) {
        out->g = graphs;
    } else {
        out->graphs = graphs;
        out->graphs_count = count;
    }
    return SBIT_OK;
}

static sbit_status sbit__export_attr_value(sbit__exporter *exporter, const sbit_attr *attr,
                                           const sbit_onnx_attribute *source,
                                           sbit_onnx_attribute *out)
{
    void *block = NULL;
    switch (attr->type) {
    case SBIT_ONNX_ATTR_FLOAT:
        SBIT_ONNX_SET(out, SBIT_ONNX_ATTRIBUTE_F, f, attr->f);
        return SBIT_OK;
    case SBIT_ONNX_ATTR_INT:
        SBIT_ONNX_SET(out, SBIT_ONNX_ATTRIBUTE_I, i, attr->i);
        return SBIT_OK;
    case SBIT_ONNX_ATTR_STRING:
        SBIT_ONNX_SET(out, SBIT_ONNX_ATTRIBUTE_S, s, attr->s);
        return SBIT_OK;
    case SBIT_ONNX_ATTR_TENSOR:
    case SBIT_ONNX_ATTR_TENSORS:
        return sbit__export_attr_tensors(exporter, attr, source, out);
    case SBIT_ONNX_ATTR_GRAPH:
    case SBIT_ONNX_ATTR_GRAPHS:
        return sbit__export_attr_graphs(exporter, attr, out);
    case SBIT_ONNX_ATTR_FLOATS:
        SBIT__TRY(sbit__export_copy(exporter, attr->floats, attr->count, sizeof(float), &block));
        out->floats = (float *)block;
        out->floats_count = attr->count;
        return SBIT_OK;
    case SBIT_ONNX_ATTR_INTS:
        SBIT__TRY(sbit__export_copy(exporter, attr->ints, attr->count, sizeof(int64_t), &block));
        out->ints = (int64_t *)block;
        out->ints_count = attr->count;
        return SBIT_OK;
    case SBIT_ONNX_ATTR_STRINGS:
        SBIT__TRY(
            sbit__export_copy(exporter, attr->strings, attr->count, sizeof(sbit_str), &block));
        out->strings = (sbit_str *)block;
        out->strings_count = attr->count;
        return SBIT_OK;
    default:
        return SBIT_OK;
    }
}

static sbit_status sbit__export_attr(sbit__exporter *exporter, const sbit_attr *attr,
                                     const sbit_onnx_node *node, sbit_onnx_attribute *out)
{
    const sbit_onnx_attribute *source = sbit__export_attr_source(node, attr->name);
    memset(out, 0, sizeof(*out));
    if (attr->other != NULL) {
        *out = *attr->other;
        out->ref_attr_name.size = 0;
        SBIT_ONNX_CLEAR(out, SBIT_ONNX_ATTRIBUTE_REF_ATTR_NAME);
    } else if (source != NULL) {
        out->msg.unknown = source->msg.unknown;
        if (SBIT_ONNX_HAS(source, SBIT_ONNX_ATTRIBUTE_DOC_STRING)) {
            SBIT_ONNX_SET(out, SBIT_ONNX_ATTRIBUTE_DOC_STRING, doc_string, source->doc_string);
        }
    }
    SBIT_ONNX_SET(out, SBIT_ONNX_ATTRIBUTE_NAME, name, sbit__str(attr->name));
    SBIT_ONNX_SET(out, SBIT_ONNX_ATTRIBUTE_TYPE, type, (int32_t)attr->type);
    return sbit__export_attr_value(exporter, attr, source, out);
}

/* >>nodes */
static sbit_status sbit__export_node(sbit__exporter *exporter, const sbit_graph *graph,
                                     const sbit__graph_node *node, sbit_onnx_node *out)
{
    const sbit_onnx_node *source = node->info.source;
    void *block = NULL;
    memset(out, 0, sizeof(*out));
    if (source != NULL) {
        *out = *source;
    }
    out->input_count = node->info.input_count;
    out->output_count = node->info.output_count;
    SBIT__TRY(sbit__export_names(exporter, graph, node->inputs, out->input_count, &out->input));
    SBIT__TRY(sbit__export_names(exporter, graph, node->outputs, out->output_count, &out->output));
    if (node->info.name[0] != '\0') {
        SBIT_ONNX_SET(out, SBIT_ONNX_NODE_NAME, name, sbit__str(node->info.name));
    }
    SBIT_ONNX_SET(out, SBIT_ONNX_NODE_OP_TYPE, op_type, sbit__str(node->info.op_type));
    if (!sbit__streq(sbit__graph_domain(out->domain), node->info.domain)) {
        SBIT_ONNX_SET(out, SBIT_ONNX_NODE_DOMAIN, domain, sbit__str(node->info.domain));
    }
    out->metadata_props = node->metadata;
    out->metadata_props_count = node->metadata_count;
    SBIT__TRY(
        sbit__export_alloc(exporter, node->info.attr_count, sizeof(sbit_onnx_attribute), &block));
    out->attribute = (sbit_onnx_attribute *)block;
    out->attribute_count = node->info.attr_count;
    for (size_t i = 0; i < node->info.attr_count; i++) {
        SBIT__TRY(sbit__export_attr(exporter, &node->attrs[i], source, &out->attribute[i]));
    }
    return SBIT_OK;
}

static sbit_status sbit__export_identity(sbit__exporter *exporter, const char *input,
                                         const char *output, sbit_onnx_node *out)
{
    void *block = NULL;
    SBIT__TRY(sbit__export_alloc(exporter, 2, sizeof(sbit_str), &block));
    memset(out, 0, sizeof(*out));
    out->input = (sbit_str *)block;
    out->output = out->input + 1;
    out->input[0] = sbit__str(input);
    out->output[0] = sbit__str(output);
    out->input_count = out->output_count = 1;
    SBIT_ONNX_SET(out, SBIT_ONNX_NODE_OP_TYPE, op_type, sbit__str("Identity"));
    return SBIT_OK;
}

/* >>outputs */

/* What has to be done about one output; names are NULL where nothing has. */
typedef struct sbit__export_output {
    const char *initializer; /* the constant's other name; Identity first of all nodes */
    const char *name;        /* the output's new name; Identity behind all nodes */
} sbit__export_output;

static sbit_status sbit__export_plan_outputs(sbit__exporter *exporter, const sbit_graph *graph,
                                             sbit__export_output *plan)
{
    for (size_t i = 0; i < graph->output_count; i++) {
        const sbit__graph_value *value = graph->values[graph->outputs[i].idx];
        const bool constant = value->info.is_constant && !value->info.is_input;
        bool repeated = false;
        for (size_t j = 0; j < i && value->info.use_count > 1; j++) {
            repeated = repeated || graph->outputs[j].idx == graph->outputs[i].idx;
        }
        if (repeated || (graph->parent != NULL && (constant || value->info.outer.idx != 0))) {
            SBIT__TRY(
                sbit__export_name(exporter, graph, value->info.name, "output", &plan[i].name));
        } else if (constant) {
            SBIT__TRY(sbit__export_name(exporter, graph, value->info.name, "value",
                                        &plan[i].initializer));
        }
    }
    return SBIT_OK;
}

static const char *sbit__export_initializer_name(const sbit_graph *graph,
                                                 const sbit__export_output *plan,
                                                 const sbit__graph_value *value)
{
    for (size_t i = 0; value->info.is_output && i < graph->output_count; i++) {
        if (graph->outputs[i].idx == value->info.id.idx && plan[i].initializer != NULL) {
            return plan[i].initializer;
        }
    }
    return value->info.name;
}

/* >>the parts of a GraphProto */
static sbit_status sbit__export_nodes(sbit__exporter *exporter, const sbit_graph *graph,
                                      const sbit__export_output *plan, sbit_onnx_graph *out)
{
    size_t count = 0;
    void *block = NULL;
    for (uint32_t i = graph->first; i != 0; i = graph->nodes[i]->next) {
        count++;
    }
    SBIT__TRY(
        sbit__export_alloc(exporter, count + graph->output_count, sizeof(sbit_onnx_node), &block));
    sbit_onnx_node *next = (sbit_onnx_node *)block;
    out->node = next;
    for (size_t i = 0; i < graph->output_count; i++) {
        if (plan[i].initializer != NULL) {
            SBIT__TRY(sbit__export_identity(exporter, plan[i].initializer,
                                            graph->values[graph->outputs[i].idx]->info.name,
                                            next++));
        }
    }
    for (uint32_t i = graph->first; i != 0; i = graph->nodes[i]->next) {
        SBIT__TRY(sbit__export_node(exporter, graph, graph->nodes[i], next++));
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        if (plan[i].name != NULL) {
            SBIT__TRY(sbit__export_identity(
                exporter, graph->values[graph->outputs[i].idx]->info.name, plan[i].name, next++));
        }
    }
    out->node_count = (size_t)(next - out->node);
    return SBIT_OK;
}

static bool sbit__export_is_initializer(const sbit__graph_value *value)
{
    return value->alive && (value->info.is_constant || value->info.has_default) &&
           value->info.producer.idx == 0;
}

static sbit_status sbit__export_initializers(sbit__exporter *exporter, const sbit_graph *graph,
                                             const sbit__export_output *plan, sbit_onnx_graph *out)
{
    size_t count = 0;
    void *block = NULL;
    for (size_t i = 1; i < graph->value_count; i++) {
        if (sbit__export_is_initializer(graph->values[i])) {
            count++;
        }
    }
    SBIT__TRY(sbit__export_alloc(exporter, count, sizeof(sbit_onnx_tensor), &block));
    out->initializer = (sbit_onnx_tensor *)block;
    out->initializer_count = 0;
    for (size_t i = 1; i < graph->value_count; i++) {
        const sbit__graph_value *value = graph->values[i];
        if (!sbit__export_is_initializer(value)) {
            continue;
        }
        sbit_onnx_tensor *tensor = &out->initializer[out->initializer_count++];
        SBIT__TRY(sbit__tensor_to_onnx(exporter->doc,
                                       sbit__export_initializer_name(graph, plan, value),
                                       &value->info.constant, tensor, exporter->error));
        if (value->tensor != NULL) {
            tensor->msg.unknown = value->tensor->msg.unknown;
            tensor->metadata_props = value->tensor->metadata_props;
            tensor->metadata_props_count = value->tensor->metadata_props_count;
            if (SBIT_ONNX_HAS(value->tensor, SBIT_ONNX_TENSOR_DOC_STRING)) {
                SBIT_ONNX_SET(tensor, SBIT_ONNX_TENSOR_DOC_STRING, doc_string,
                              value->tensor->doc_string);
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__export_inputs(sbit__exporter *exporter, const sbit_graph *graph,
                                       sbit_onnx_graph *out)
{
    void *block = NULL;
    SBIT__TRY(
        sbit__export_alloc(exporter, graph->input_count, sizeof(sbit_onnx_value_info), &block));
    out->input = (sbit_onnx_value_info *)block;
    out->input_count = 0;
    for (size_t i = 0; i < graph->input_count; i++) {
        const sbit__graph_value *value = graph->values[graph->inputs[i].idx];
        if (!value->info.is_constant || !exporter->drop_default_inputs) {
            SBIT__TRY(sbit__export_value_info(exporter, graph, value, value->info.name,
                                              &out->input[out->input_count++]));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__export_outputs(sbit__exporter *exporter, const sbit_graph *graph,
                                        const sbit__export_output *plan, sbit_onnx_graph *out)
{
    void *block = NULL;
    SBIT__TRY(
        sbit__export_alloc(exporter, graph->output_count, sizeof(sbit_onnx_value_info), &block));
    out->output = (sbit_onnx_value_info *)block;
    out->output_count = graph->output_count;
    for (size_t i = 0; i < graph->output_count; i++) {
        const sbit__graph_value *value = graph->values[graph->outputs[i].idx];
        const char *name = plan[i].name != NULL ? plan[i].name : value->info.name;
        SBIT__TRY(sbit__export_value_info(exporter, graph, value, name, &out->output[i]));
    }
    return SBIT_OK;
}

static bool sbit__export_wants_info(const sbit__graph_value *value)
{
    return value->alive && value->info.producer.idx != 0 && !value->info.is_output &&
           (value->info.type.dtype != SBIT_UNDEFINED || value->info.source != NULL);
}

static sbit_status sbit__export_infos(sbit__exporter *exporter, const sbit_graph *graph,
                                      sbit_onnx_graph *out)
{
    size_t count = 0;
    void *block = NULL;
    for (size_t i = 1; i < graph->value_count; i++) {
        if (sbit__export_wants_info(graph->values[i])) {
            count++;
        }
    }
    SBIT__TRY(sbit__export_alloc(exporter, count, sizeof(sbit_onnx_value_info), &block));
    out->value_info = (sbit_onnx_value_info *)block;
    out->value_info_count = 0;
    for (size_t i = 1; i < graph->value_count; i++) {
        const sbit__graph_value *value = graph->values[i];
        if (sbit__export_wants_info(value)) {
            SBIT__TRY(sbit__export_value_info(exporter, graph, value, value->info.name,
                                              &out->value_info[out->value_info_count++]));
        }
    }
    return SBIT_OK;
}

static bool sbit__export_annotation_holds(const sbit_graph *graph,
                                          const sbit_onnx_tensor_annotation *annotation)
{
    if (sbit_graph_find_value(graph, annotation->tensor_name.data).idx == 0) {
        return false;
    }
    for (size_t i = 0; i < annotation->quant_parameter_tensor_names_count; i++) {
        const sbit_onnx_string_entry *entry = &annotation->quant_parameter_tensor_names[i];
        if (sbit_graph_find_value(graph, entry->value.data).idx == 0) {
            return false;
        }
    }
    return true;
}

static sbit_status sbit__export_annotations(sbit__exporter *exporter, const sbit_graph *graph,
                                            sbit_onnx_graph *out)
{
    const size_t count = out->quantization_annotation_count;
    const sbit_onnx_tensor_annotation *sources = out->quantization_annotation;
    void *block = NULL;
    SBIT__TRY(sbit__export_alloc(exporter, count, sizeof(*sources), &block));
    out->quantization_annotation = (sbit_onnx_tensor_annotation *)block;
    out->quantization_annotation_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (sbit__export_annotation_holds(graph, &sources[i])) {
            out->quantization_annotation[out->quantization_annotation_count++] = sources[i];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__export_graph(sbit__exporter *exporter, const sbit_graph *graph,
                                      sbit_onnx_graph *out)
{
    void *block = NULL;
    memset(out, 0, sizeof(*out));
    if (graph->source != NULL) {
        *out = *graph->source;
    }
    out->sparse_initializer = NULL;
    out->sparse_initializer_count = 0;
    if (graph->name[0] != '\0') {
        SBIT_ONNX_SET(out, SBIT_ONNX_GRAPH_NAME, name, sbit__str(graph->name));
    }
    SBIT__TRY(
        sbit__export_alloc(exporter, graph->output_count, sizeof(sbit__export_output), &block));
    sbit__export_output *plan = (sbit__export_output *)block;
    SBIT__TRY(sbit__export_plan_outputs(exporter, graph, plan));
    SBIT__TRY(sbit__export_nodes(exporter, graph, plan, out));
    SBIT__TRY(sbit__export_initializers(exporter, graph, plan, out));
    SBIT__TRY(sbit__export_inputs(exporter, graph, out));
    SBIT__TRY(sbit__export_outputs(exporter, graph, plan, out));
    SBIT__TRY(sbit__export_infos(exporter, graph, out));
    return sbit__export_annotations(exporter, graph, out);
}

/* >>IR version */

/* The IR version that was current when an ai.onnx opset was released (onnx/docs/Versioning.md). */
static int64_t sbit__export_ir_of_opset(int64_t opset)
{
    static const struct {
        int64_t opset, ir;
    } rows[] = {{25, 13}, {24, 12}, {23, 11}, {21, 10}, {19, 9}, {15, 8},
                {12, 7},  {11, 6},  {10, 5},  {9, 4},   {1, 3}};
    for (size_t i = 0; i < SBIT__COUNT_OF(rows); i++) {
        if (opset >= rows[i].opset) {
            return rows[i].ir;
        }
    }
    return 3;
}

/* The IR version that brought an element type. */
static int64_t sbit__export_ir_of_dtype(sbit_dtype dtype)
{
    switch (dtype) {
    case SBIT_F8E4M3FN:
    case SBIT_F8E4M3FNUZ:
    case SBIT_F8E5M2:
    case SBIT_F8E5M2FNUZ:
        return 9;
    case SBIT_U4:
    case SBIT_I4:
        return 10;
    case SBIT_F4E2M1:
        return 11;
    case SBIT_F8E8M0:
        return 12;
    case SBIT_U2:
    case SBIT_I2:
        return 13;
    case SBIT_F6E2M3:
    case SBIT_F6E3M2:
        return 14;
    default:
        return 1;
    }
}

/* The lowest version, not below the model's own, that has all that the graph uses. */
static int64_t sbit__export_ir_version(const sbit_graph *root)
{
    const sbit__graph_family *family = root->family;
    int64_t version = family->ir_version;
    if (family->opset_raised) {
        const int64_t needed = sbit__export_ir_of_opset(sbit_graph_opset(root, ""));
        version = needed > version ? needed : version;
    }
    for (const sbit_graph *graph = family->graphs; graph != NULL; graph = graph->next_graph) {
        for (size_t i = 1; i < graph->value_count && graph->alive; i++) {
            const sbit__graph_value *value = graph->values[i];
            /* IR 4: initializers that are not inputs */
            const bool plain = value->info.is_constant && !value->info.is_input && graph == root;
            const int64_t needed = sbit__export_ir_of_dtype(value->info.type.dtype);
            if (value->alive) {
                version = needed > version ? needed : version;
                version = plain && version < 4 ? 4 : version;
            }
        }
        for (size_t i = 1; i < graph->node_count && graph->alive; i++) {
            const sbit__graph_node *node = graph->nodes[i];
            if (node->alive && node->metadata_count != 0 && version < 10) {
                version = 10; /* NodeProto.metadata_props */
            }
        }
    }
    return version;
}

/* >>models */
static sbit_status sbit__export_opsets(sbit__exporter *exporter, const sbit__graph_family *family,
                                       sbit_onnx_model *out)
{
    void *block = NULL;
    SBIT__TRY(
        sbit__export_alloc(exporter, family->opset_count, sizeof(sbit_onnx_opset_id), &block));
    out->opset_import = (sbit_onnx_opset_id *)block;
    out->opset_import_count = family->opset_count;
    for (size_t i = 0; i < family->opset_count; i++) {
        const sbit__graph_opset *opset = &family->opsets[i];
        sbit_onnx_opset_id *id = &out->opset_import[i];
        if (opset->source != NULL) {
            *id = *opset->source;
        } else {
            SBIT_ONNX_SET(id, SBIT_ONNX_OPSET_ID_DOMAIN, domain, sbit__str(opset->domain));
        }
        SBIT_ONNX_SET(id, SBIT_ONNX_OPSET_ID_VERSION, version, opset->version);
    }
    return SBIT_OK;
}

static sbit_status sbit__export_model(sbit__exporter *exporter, const sbit_graph *graph,
                                      sbit_onnx_model *out)
{
    const sbit__graph_family *family = graph->family;
    void *block = NULL;
    if (family->model != NULL) {
        *out = *family->model;
    } else {
        SBIT_ONNX_SET(out, SBIT_ONNX_MODEL_PRODUCER_NAME, producer_name, sbit__str("sparsebit"));
        SBIT_ONNX_SET(out, SBIT_ONNX_MODEL_PRODUCER_VERSION, producer_version,
                      sbit__str(SPARSEBIT_VERSION));
    }
    const int64_t version = sbit__export_ir_version(graph);
    exporter->drop_default_inputs = family->ir_version < 4 && version >= 4;
    SBIT_ONNX_SET(out, SBIT_ONNX_MODEL_IR_VERSION, ir_version, version);
    out->functions = NULL;
    out->functions_count = 0;
    out->metadata_props = family->metadata;
    out->metadata_props_count = family->metadata_count;
    SBIT__TRY(sbit__export_opsets(exporter, family, out));
    SBIT__TRY(sbit__export_alloc(exporter, 1, sizeof(sbit_onnx_graph), &block));
    out->graph = (sbit_onnx_graph *)block;
    return sbit__export_graph(exporter, graph, out->graph);
}

SPARSEBIT_API sbit_status sbit_graph_export(const sbit_graph *graph, sbit_onnx_doc **out,
                                            sbit_error *error)
{
    sbit__exporter exporter;
    sbit_onnx_read_desc desc;
    if (graph->parent != NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, graph->name,
                          "'%s' is the body of a node: only a root graph can be exported",
                          graph->name);
    }
    memset(&exporter, 0, sizeof(exporter));
    memset(&desc, 0, sizeof(desc));
    exporter.error = error;
    desc.allocator = graph->family->ctx->allocator;
    SBIT__TRY(sbit_onnx_create(&desc, &exporter.doc, error));
    sbit__map_init(&exporter.made, &desc.allocator);
    const sbit_status status =
        sbit__export_model(&exporter, graph, sbit_onnx_doc_model(exporter.doc));
    sbit__map_deinit(&exporter.made);
    if (status != SBIT_OK) {
        sbit_onnx_destroy(exporter.doc);
        return status;
    }
    *out = exporter.doc;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_save(const sbit_graph *graph, const char *path,
                                          const sbit_onnx_write_desc *desc, sbit_error *error)
{
    sbit_onnx_doc *doc = NULL;
    SBIT__TRY(sbit_graph_export(graph, &doc, error));
    const sbit_status status = sbit_onnx_save(doc, path, desc, error);
    sbit_onnx_destroy(doc);
    return status;
}
