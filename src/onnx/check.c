/* check.c: the rules of the format that need no operator knowledge. >>check
 *
 * Called by: users, import. Calls: tensor, external, hash maps.
 * Rules (IR.md and onnx.proto's comments):
 *     model       ir_version >= 1, a graph, from IR 3 on opset imports, each domain once
 *     graph       names of inputs, initializers and node outputs are defined once in the graph (an
 *                 initializer may give an input its default); an input of a node or a graph output
 *                 is defined before, in this graph or an outer one; "" is an absent optional input
 *     node        op_type; its domain is imported; attribute names are unique
 *     attribute   a name and either ref_attr_name or one value, of the kind that `type` says
 *     function    name, unique with domain and overload; its body sees its own inputs only
 *     tensor      the data field holds what dims and type need; external locations are safe
 * Does not: look at node names (empty and repeated ones are common and harmless), at operators,
 * types or shapes, nor open external files. ONNX forbids shadowing of outer names in subgraphs,
 * exporters do it: the innermost definition counts.
 */
#include "onnx_private.h"

/* The names that are visible; a chain from the innermost graph outwards. */
typedef struct sbit__check_scope {
    const struct sbit__check_scope *up;
    sbit__map names; /* value: sbit__check_origin */
} sbit__check_scope;

enum {
    SBIT__CHECK_INPUT = 0,
    SBIT__CHECK_INITIALIZER = 1,
    SBIT__CHECK_OUTPUT = 2
};

typedef struct sbit__check_state {
    const sbit_allocator *allocator;
    const sbit_onnx_opset_id *opsets; /* of the model, or of the function that is checked */
    size_t opset_count;
    bool needs_opsets; /* IR version 3 and later */
    sbit_error *error;
} sbit__check_state;

static sbit_status sbit__check_graph(sbit__check_state *state, const sbit_onnx_graph *graph,
                                     const sbit__check_scope *up);

static const char *sbit__check_text(sbit_str text)
{
    return text.data != NULL ? text.data : "";
}

/* ---- names ---- */

static const char *sbit__check_origin_text(uint32_t origin)
{
    return origin == SBIT__CHECK_INPUT         ? "an input"
           : origin == SBIT__CHECK_INITIALIZER ? "an initializer"
                                               : "the output of a node";
}

static sbit_status sbit__check_name(const sbit__check_state *state, sbit_str name)
{
    if (name.size != 0 && memchr(name.data, '\0', name.size) != NULL) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name.data,
                          "the name '%s' contains a NUL byte", name.data);
    }
    return SBIT_OK;
}

static sbit_status sbit__check_define(const sbit__check_state *state, sbit__check_scope *scope,
                                      sbit_str name, uint32_t origin)
{
    uint32_t old = 0;
    SBIT__TRY(sbit__check_name(state, name));
    if (name.size == 0) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "", "%s has no name",
                          sbit__check_origin_text(origin));
    }
    if (sbit__map_find(&scope->names, name.data, &old) &&
        !(origin == SBIT__CHECK_INITIALIZER && old == SBIT__CHECK_INPUT)) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name.data,
                          "'%s' is defined twice: as %s and as %s", name.data,
                          sbit__check_origin_text(old), sbit__check_origin_text(origin));
    }
    return sbit__map_set(&scope->names, name.data, origin, state->error);
}

static bool sbit__check_is_defined(const sbit__check_scope *scope, const char *name)
{
    for (; scope != NULL; scope = scope->up) {
        if (sbit__map_find(&scope->names, name, NULL)) {
            return true;
        }
    }
    return false;
}

/* "" and "ai.onnx" are two spellings of the default domain. */
static const char *sbit__check_domain(sbit_str domain)
{
    const char *text = sbit__check_text(domain);
    return strcmp(text, "ai.onnx") == 0 ? "" : text;
}

/* Adds a name to a set; NULL stands for "there was no memory to make it". */
static sbit_status sbit__check_once(const sbit__check_state *state, sbit__map *set,
                                    const char *name, const char *what)
{
    if (name == NULL) {
        return sbit__fail_oom(state->error, 0);
    }
    if (sbit__map_find(set, name, NULL)) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name, "%s '%s' is given twice",
                          what, name);
    }
    return sbit__map_set(set, name, 0, state->error);
}

static sbit_status sbit__check_opsets(const sbit__check_state *state)
{
    sbit__map seen;
    sbit_status status = SBIT_OK;
    sbit__map_init(&seen, state->allocator);
    for (size_t i = 0; i < state->opset_count && status == SBIT_OK; i++) {
        status = sbit__check_once(state, &seen, sbit__check_domain(state->opsets[i].domain),
                                  "the opset import of domain");
    }
    sbit__map_deinit(&seen);
    return status;
}

/* ---- tensors ---- */

static sbit_status sbit__check_tensor(const sbit__check_state *state,
                                      const sbit_onnx_tensor *tensor)
{
    size_t bytes = 0;
    int64_t count = 0;
    if (tensor->data_type != SBIT_STRING) {
        return sbit__onnx_tensor_bytes(tensor, &bytes, state->error);
    }
    SBIT__TRY(sbit_onnx_tensor_count(tensor, &count, state->error));
    if ((uint64_t)count != tensor->string_data_count) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': string_data has %llu elements, dims need %lld", label,
                          (unsigned long long)tensor->string_data_count, (long long)count);
    }
    return SBIT_OK;
}

static sbit_status sbit__check_sparse(const sbit__check_state *state,
                                      const sbit_onnx_sparse_tensor *sparse)
{
    int64_t dense = 0;
    if (sparse->values == NULL) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "",
                          "a sparse tensor has no values");
    }
    const char *label = sbit__onnx_tensor_label(sparse->values);
    SBIT__TRY(sbit__check_tensor(state, sparse->values));
    if (!sbit__dims_count(sparse->dims, sparse->dims_count, &dense) ||
        sparse->values->dims_count != 1 || sparse->values->dims[0] > dense) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                          "sparse tensor '%s': its values are not a list that fits its dims",
                          label);
    }
    const int64_t count = sparse->values->dims[0];
    const sbit_onnx_tensor *indices = sparse->indices;
    if (indices == NULL) {
        return count == 0 ? SBIT_OK
                          : sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                                       "sparse tensor '%s' has no indices", label);
    }
    SBIT__TRY(sbit__check_tensor(state, indices));
    const bool linear = indices->dims_count == 1 && indices->dims[0] == count;
    const bool coordinates = indices->dims_count == 2 && indices->dims[0] == count &&
                             (uint64_t)indices->dims[1] == sparse->dims_count;
    if (indices->data_type != SBIT_I64 || (!linear && !coordinates)) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                          "sparse tensor '%s': indices must be int64 of shape [%lld] or "
                          "[%lld,%llu]",
                          label, (long long)count, (long long)count,
                          (unsigned long long)sparse->dims_count);
    }
    return SBIT_OK;
}

/* ---- attributes ---- */

static sbit_status sbit__check_attribute_fail(const sbit__check_state *state,
                                              const sbit_onnx_attribute *attribute,
                                              const char *problem)
{
    return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, sbit__check_text(attribute->name),
                      "attribute '%s' %s", sbit__check_text(attribute->name), problem);
}

/* Bit t: the field for attribute type t is filled. */
static uint32_t sbit__check_attribute_values(const sbit_onnx_attribute *a)
{
    uint32_t found = 0;
    found |= SBIT_ONNX_HAS(a, SBIT_ONNX_ATTRIBUTE_F) << SBIT_ONNX_ATTR_FLOAT;
    found |= SBIT_ONNX_HAS(a, SBIT_ONNX_ATTRIBUTE_I) << SBIT_ONNX_ATTR_INT;
    found |= SBIT_ONNX_HAS(a, SBIT_ONNX_ATTRIBUTE_S) << SBIT_ONNX_ATTR_STRING;
    found |= (a->t != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_TENSOR;
    found |= (a->g != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_GRAPH;
    found |= (a->floats_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_FLOATS;
    found |= (a->ints_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_INTS;
    found |= (a->strings_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_STRINGS;
    found |= (a->tensors_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_TENSORS;
    found |= (a->graphs_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_GRAPHS;
    found |= (a->sparse_tensor != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_SPARSE_TENSOR;
    found |= (a->sparse_tensors_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_SPARSE_TENSORS;
    found |= (a->tp != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_TYPE_PROTO;
    found |= (a->type_protos_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_TYPE_PROTOS;
    return found;
}

/* Types whose empty value looks like no value: lists, and scalars that a proto3-style writer left
 * out because they are zero. */
static bool sbit__check_may_be_empty(int32_t type)
{
    const uint32_t must_be_filled = 1u << SBIT_ONNX_ATTR_TENSOR | 1u << SBIT_ONNX_ATTR_GRAPH |
                                    1u << SBIT_ONNX_ATTR_SPARSE_TENSOR |
                                    1u << SBIT_ONNX_ATTR_TYPE_PROTO;
    return (must_be_filled >> type & 1u) == 0;
}

static sbit_status sbit__check_attribute(sbit__check_state *state, const sbit_onnx_attribute *a,
                                         const sbit__check_scope *scope)
{
    const uint32_t found = sbit__check_attribute_values(a);
    if (a->name.size == 0) {
        return sbit__check_attribute_fail(state, a, "has no name");
    }
    if (a->ref_attr_name.size != 0) {
        return found == 0 ? SBIT_OK
                          : sbit__check_attribute_fail(
                                state, a, "has both a value and a reference (ref_attr_name)");
    }
    if ((found & (found - 1)) != 0) {
        return sbit__check_attribute_fail(state, a, "has more than one value");
    }
    if (a->type < 0 || a->type > SBIT_ONNX_ATTR_TYPE_PROTOS) {
        return sbit__check_attribute_fail(state, a, "is of a type that is not known");
    }
    if (a->type != SBIT_ONNX_ATTR_UNDEFINED && /* IR version 1 had no `type` */
        found != 1u << a->type && !(found == 0 && sbit__check_may_be_empty(a->type))) {
        return sbit__check_attribute_fail(state, a, "has no value of the type it declares");
    }
    if (a->t != NULL) {
        SBIT__TRY(sbit__check_tensor(state, a->t));
    }
    for (size_t i = 0; i < a->tensors_count; i++) {
        SBIT__TRY(sbit__check_tensor(state, &a->tensors[i]));
    }
    if (a->sparse_tensor != NULL) {
        SBIT__TRY(sbit__check_sparse(state, a->sparse_tensor));
    }
    for (size_t i = 0; i < a->sparse_tensors_count; i++) {
        SBIT__TRY(sbit__check_sparse(state, &a->sparse_tensors[i]));
    }
    if (a->g != NULL) {
        SBIT__TRY(sbit__check_graph(state, a->g, scope));
    }
    for (size_t i = 0; i < a->graphs_count; i++) {
        SBIT__TRY(sbit__check_graph(state, &a->graphs[i], scope));
    }
    return SBIT_OK;
}

/* ---- nodes ---- */

static sbit_status sbit__check_node_head(const sbit__check_state *state, const sbit_onnx_node *node)
{
    bool imported = !state->needs_opsets && state->opset_count == 0;
    if (node->op_type.size == 0) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "", "it has no op_type");
    }
    for (size_t i = 0; i < state->opset_count && !imported; i++) {
        imported = strcmp(sbit__check_domain(state->opsets[i].domain),
                          sbit__check_domain(node->domain)) == 0;
    }
    if (!imported) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "",
                          "its domain '%s' is not among the opset imports",
                          sbit__check_text(node->domain));
    }
    return SBIT_OK;
}

static sbit_status sbit__check_attribute_names(const sbit__check_state *state,
                                               const sbit_onnx_node *node)
{
    sbit__map seen;
    sbit_status status = SBIT_OK;
    if (node->attribute_count < 2) {
        return SBIT_OK;
    }
    sbit__map_init(&seen, state->allocator);
    for (size_t i = 0; i < node->attribute_count && status == SBIT_OK; i++) {
        status =
            sbit__check_once(state, &seen, sbit__check_text(node->attribute[i].name), "attribute");
    }
    sbit__map_deinit(&seen);
    return status;
}

static sbit_status sbit__check_node_body(sbit__check_state *state, const sbit_onnx_node *node,
                                         sbit__check_scope *scope)
{
    SBIT__TRY(sbit__check_node_head(state, node));
    SBIT__TRY(sbit__check_attribute_names(state, node));
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_str name = node->input[i];
        SBIT__TRY(sbit__check_name(state, name));
        if (name.size != 0 && !sbit__check_is_defined(scope, name.data)) {
            return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name.data,
                              "its input '%s' is not defined before it is used", name.data);
        }
    }
    for (size_t i = 0; i < node->attribute_count; i++) {
        SBIT__TRY(sbit__check_attribute(state, &node->attribute[i], scope));
    }
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->output[i].size != 0) {
            SBIT__TRY(sbit__check_define(state, scope, node->output[i], SBIT__CHECK_OUTPUT));
        }
    }
    return SBIT_OK;
}

/* Puts the node's place in front of what went wrong inside it. */
static sbit_status sbit__check_node(sbit__check_state *state, const sbit_onnx_node *node,
                                    size_t idx, sbit__check_scope *scope)
{
    const sbit_status status = sbit__check_node_body(state, node, scope);
    if (status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY || state->error == NULL) {
        return status;
    }
    const char *name = sbit__check_text(node->name);
    const char *first_output = node->output_count != 0 ? sbit__check_text(node->output[0]) : "";
    return sbit__fail(state->error, status, name[0] != '\0' ? name : first_output,
                      "node %llu '%s' (%s): %s", (unsigned long long)idx, name,
                      sbit__check_text(node->op_type), state->error->message);
}

/* ---- graphs ---- */

static sbit_status sbit__check_graph_body(sbit__check_state *state, const sbit_onnx_graph *graph,
                                          sbit__check_scope *scope)
{
    for (size_t i = 0; i < graph->input_count; i++) {
        SBIT__TRY(sbit__check_define(state, scope, graph->input[i].name, SBIT__CHECK_INPUT));
    }
    for (size_t i = 0; i < graph->initializer_count; i++) {
        const sbit_onnx_tensor *tensor = &graph->initializer[i];
        SBIT__TRY(sbit__check_define(state, scope, tensor->name, SBIT__CHECK_INITIALIZER));
        SBIT__TRY(sbit__check_tensor(state, tensor));
    }
    for (size_t i = 0; i < graph->sparse_initializer_count; i++) {
        const sbit_onnx_sparse_tensor *sparse = &graph->sparse_initializer[i];
        SBIT__TRY(sbit__check_sparse(state, sparse));
        SBIT__TRY(sbit__check_define(state, scope, sparse->values->name, SBIT__CHECK_INITIALIZER));
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        SBIT__TRY(sbit__check_node(state, &graph->node[i], i, scope));
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        const sbit_str name = graph->output[i].name;
        SBIT__TRY(sbit__check_name(state, name));
        if (name.size == 0 || !sbit__check_is_defined(scope, name.data)) {
            return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, sbit__check_text(name),
                              "output '%s' of graph '%s' is not defined", sbit__check_text(name),
                              sbit__check_text(graph->name));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__check_graph(sbit__check_state *state, const sbit_onnx_graph *graph,
                                     const sbit__check_scope *up)
{
    sbit__check_scope scope;
    scope.up = up;
    sbit__map_init(&scope.names, state->allocator);
    const sbit_status status = sbit__check_graph_body(state, graph, &scope);
    sbit__map_deinit(&scope.names);
    return status;
}

/* ---- functions ---- */

static sbit_status sbit__check_function_body(sbit__check_state *state,
                                             const sbit_onnx_function *function,
                                             sbit__check_scope *scope)
{
    for (size_t i = 0; i < function->input_count; i++) {
        SBIT__TRY(sbit__check_define(state, scope, function->input[i], SBIT__CHECK_INPUT));
    }
    for (size_t i = 0; i < function->node_count; i++) {
        SBIT__TRY(sbit__check_node(state, &function->node[i], i, scope));
    }
    for (size_t i = 0; i < function->output_count; i++) {
        const sbit_str name = function->output[i];
        SBIT__TRY(sbit__check_name(state, name));
        if (name.size == 0 || !sbit__check_is_defined(scope, name.data)) {
            return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, sbit__check_text(name),
                              "its output '%s' is not defined", sbit__check_text(name));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__check_function(const sbit__check_state *model,
                                        const sbit_onnx_function *function)
{
    const char *name = sbit__check_text(function->name);
    sbit__check_state state = *model;
    sbit__check_scope scope;
    if (function->name.size == 0) {
        return sbit__fail(state.error, SBIT_ERR_INVALID_MODEL, "", "a function has no name");
    }
    state.opsets = function->opset_import;
    state.opset_count = function->opset_import_count;
    SBIT__TRY(sbit__check_opsets(&state));
    scope.up = NULL;
    sbit__map_init(&scope.names, state.allocator);
    const sbit_status status = sbit__check_function_body(&state, function, &scope);
    sbit__map_deinit(&scope.names);
    if (status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY || state.error == NULL) {
        return status;
    }
    return sbit__fail(state.error, status, state.error->where, "function '%s': %s", name,
                      state.error->message);
}

static sbit_status sbit__check_function_list(const sbit__check_state *state,
                                             const sbit_onnx_model *model, sbit__map *seen,
                                             sbit__arena *keys)
{
    for (size_t i = 0; i < model->functions_count; i++) {
        const sbit_onnx_function *function = &model->functions[i];
        const char *key = sbit__arena_printf(
            keys, "%s::%s%s%s", sbit__check_domain(function->domain),
            sbit__check_text(function->name), function->overload.size != 0 ? ":" : "",
            sbit__check_text(function->overload));
        SBIT__TRY(sbit__check_once(state, seen, key, "function"));
        SBIT__TRY(sbit__check_function(state, function));
    }
    return SBIT_OK;
}

static sbit_status sbit__check_functions(const sbit__check_state *state,
                                         const sbit_onnx_model *model)
{
    sbit__map seen;
    sbit__arena keys;
    sbit__map_init(&seen, state->allocator);
    sbit__arena_init(&keys, state->allocator);
    const sbit_status status = sbit__check_function_list(state, model, &seen, &keys);
    sbit__arena_deinit(&keys);
    sbit__map_deinit(&seen);
    return status;
}

/* ---- the model ---- */

/* Training graphs extend the inference graph: they see what it defines. */
static sbit_status sbit__check_model_graphs(sbit__check_state *state, const sbit_onnx_model *model,
                                            sbit__check_scope *scope)
{
    SBIT__TRY(sbit__check_graph_body(state, model->graph, scope));
    for (size_t i = 0; i < model->training_info_count; i++) {
        const sbit_onnx_training_info *info = &model->training_info[i];
        if (info->initialization != NULL) {
            SBIT__TRY(sbit__check_graph(state, info->initialization, scope));
        }
        if (info->algorithm != NULL) {
            SBIT__TRY(sbit__check_graph(state, info->algorithm, scope));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__check_model(sbit__check_state *state, const sbit_onnx_model *model)
{
    sbit__check_scope scope;
    if (SBIT_ONNX_HAS(model, SBIT_ONNX_MODEL_IR_VERSION) == 0 || model->ir_version < 1) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "ir_version",
                          "the model has no valid ir_version");
    }
    if (model->graph == NULL) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "graph", "the model has no graph");
    }
    state->opsets = model->opset_import;
    state->opset_count = model->opset_import_count;
    state->needs_opsets = model->ir_version >= 3;
    if (state->needs_opsets && state->opset_count == 0) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "opset_import",
                          "the model imports no operator set");
    }
    SBIT__TRY(sbit__check_opsets(state));
    SBIT__TRY(sbit__check_functions(state, model));
    scope.up = NULL;
    sbit__map_init(&scope.names, state->allocator);
    const sbit_status status = sbit__check_model_graphs(state, model, &scope);
    sbit__map_deinit(&scope.names);
    return status;
}

static sbit_status sbit__check_visit(const sbit_onnx_tensor *tensor, const sbit__onnx_field *parent,
                                     void *user, sbit_error *error)
{
    (void)parent;
    (void)error;
    return sbit__check_tensor((const sbit__check_state *)user, tensor);
}

SPARSEBIT_API sbit_status sbit_onnx_check(sbit_onnx_doc *doc, sbit_error *error)
{
    sbit_error local; /* prefixes are put in front of a message, so there has to be one */
    sbit__check_state state;
    memset(&state, 0, sizeof(state));
    memset(&local, 0, sizeof(local));
    state.allocator = &doc->arena.allocator;
    state.error = error != NULL ? error : &local;
    if (doc->kind == SBIT_ONNX_MODEL) {
        return sbit__check_model(&state, (const sbit_onnx_model *)doc->root);
    }
    return sbit__onnx_visit_tensors(doc->kind, doc->root, sbit__check_visit, &state, error);
}
