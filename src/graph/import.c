/* import.c: from an ONNX document to a graph. >>import
 *
 * Called by: users. Calls: the codec for elements of tensors, functions.c for model-local
 * functions, scopes.c for names. Spec: onnx/docs/IR.md, "Names within a graph", "Static tensor shapes", "Functions".
 *
 * Each graph is read in two steps, so that nodes may stand in any order: first every name that the
 * graph defines (inputs, initializers, outputs of nodes), then the nodes, whose inputs are looked
 * up in the graph and then in the graphs around it. A name found outside becomes a captured value
 * in each graph on the way. A body that defines a name again which is in use outside means its own
 * value from then on; that value gets a new name here, so that names are unique along every path.
 * Constant nodes and sparse initializers become plain constants.
 */
#include "graph_private.h"

#include <stdio.h> /* snprintf */

/* Dense size that a sparse tensor may have: a few bytes can name a tensor of any size. */
#define SBIT__IMPORT_MAX_SPARSE_BYTES ((size_t)1 << 30)

/* >>sparse tensors */
static void sbit__import_scatter(const char *values, size_t each, const int64_t *positions,
                                 int64_t count, char *dense)
{
    for (int64_t i = 0; i < count; i++) {
        memcpy(dense + (size_t)positions[i] * each, values + (size_t)i * each, each);
    }
}

/* Position of entry i in the dense tensor: indices are [NNZ] linear, or [NNZ, rank]. */
static bool sbit__import_position(const sbit_tensor *indices, int64_t i, const sbit_tensor *dense,
                                  int64_t *out)
{
    const int64_t *index = (const int64_t *)indices->data;
    if (indices->rank == 1) {
        *out = index[i];
        return index[i] >= 0 && index[i] < sbit_tensor_count(dense);
    }
    int64_t position = 0;
    for (int32_t d = 0; d < dense->rank; d++) {
        const int64_t at = index[i * dense->rank + d];
        if (at < 0 || at >= dense->dims[d]) {
            return false;
        }
        position = position * dense->dims[d] + at;
    }
    *out = position;
    return true;
}

static sbit_status sbit__import_fill_dense(sbit_ctx *ctx, const char *name,
                                           const sbit_tensor *values, const sbit_tensor *indices,
                                           sbit_tensor *dense, sbit_error *error)
{
    const int64_t count = sbit_tensor_count(values);
    const size_t each = (size_t)sbit_dtype_bits((int32_t)values->dtype) / 8;
    const bool fits =
        values->rank == 1 && indices->dtype == SBIT_I64 &&
        ((indices->rank == 1 && indices->dims[0] == count) ||
         (indices->rank == 2 && indices->dims[0] == count && indices->dims[1] == dense->rank));
    if (!fits || each == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                          "sparse tensor '%s': values and indices do not fit together", name);
    }
    const size_t bytes = (size_t)count * sizeof(int64_t);
    int64_t *positions = (int64_t *)sbit__alloc(&ctx->allocator, bytes);
    if (positions == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    int64_t i = 0;
    while (i < count && sbit__import_position(indices, i, dense, &positions[i])) {
        i++;
    }
    if (i == count) {
        sbit__import_scatter((const char *)values->data, each, positions, count,
                             (char *)dense->data);
    }
    sbit__free(&ctx->allocator, positions, bytes);
    if (i != count) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                          "sparse tensor '%s': index %lld is outside its shape", name,
                          (long long)i);
    }
    return SBIT_OK;
}

/* The dense form, in a block of its own. */
static sbit_status sbit__import_densify(sbit_ctx *ctx, const char *name,
                                        const sbit_onnx_sparse_tensor *source,
                                        const sbit_tensor *values, const sbit_tensor *indices,
                                        sbit_tensor *out, sbit_error *error)
{
    int64_t count = 0;
    size_t bytes = 0;
    if (source->dims_count > SBIT_MAX_RANK) {
        return sbit__fail(error, SBIT_ERR_LIMIT, name,
                          "sparse tensor '%s' has rank %llu, at most %d work", name,
                          (unsigned long long)source->dims_count, SBIT_MAX_RANK);
    }
    if (!sbit__dims_count(source->dims, source->dims_count, &count) || count < 0 ||
        !sbit_dtype_bytes((int32_t)values->dtype, count, &bytes) ||
        bytes > SBIT__IMPORT_MAX_SPARSE_BYTES) {
        return sbit__fail(error, SBIT_ERR_LIMIT, name,
                          "sparse tensor '%s' is too large to be made dense", name);
    }
    SBIT__TRY(sbit_tensor_alloc(ctx, values->dtype, (int32_t)source->dims_count, source->dims, out,
                                error));
    const sbit_status status = sbit__import_fill_dense(ctx, name, values, indices, out, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(ctx, out);
    }
    return status;
}

static sbit_status sbit__import_sparse(sbit__importer *importer, const char *name,
                                       const sbit_onnx_sparse_tensor *source, sbit_tensor *out,
                                       sbit_error *error)
{
    sbit_ctx *ctx = importer->ctx;
    sbit_tensor values, indices;
    bool owns_values = false, owns_indices = false;
    if (source->values == NULL || source->indices == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                          "sparse tensor '%s' lacks values or indices", name);
    }
    SBIT__TRY(
        sbit__tensor_from_onnx(ctx, importer->doc, source->values, &values, &owns_values, error));
    sbit_status status =
        sbit__tensor_from_onnx(ctx, importer->doc, source->indices, &indices, &owns_indices, error);
    if (status == SBIT_OK) {
        status = sbit__import_densify(ctx, name, source, &values, &indices, out, error);
        if (owns_indices) {
            sbit_tensor_free(ctx, &indices);
        }
    }
    if (owns_values) {
        sbit_tensor_free(ctx, &values);
    }
    return status;
}

/* >>constants */

/* Before anything is built on a value, so that a block is owned by it from the start. */
static sbit_status sbit__import_tensor_constant(sbit__importer *importer, sbit_graph *graph,
                                                sbit_value_id id, const sbit_onnx_tensor *source,
                                                sbit_error *error)
{
    sbit_tensor tensor;
    bool owned = false;
    SBIT__TRY(sbit__tensor_from_onnx(importer->ctx, importer->doc, source, &tensor, &owned, error));
    sbit__graph_put_constant(graph, id, &tensor, owned, source);
    return SBIT_OK;
}

static bool sbit__import_has_data(const sbit__import_scope *scope, sbit_value_id id)
{
    const sbit_value_info *info = &scope->graph->values[id.idx]->info;
    return info->is_constant || info->has_default;
}

static sbit_status sbit__import_initializers(sbit__importer *importer, sbit__import_scope *scope,
                                             const sbit_onnx_graph *source, sbit_error *error)
{
    for (size_t i = 0; i < source->initializer_count; i++) {
        const sbit_onnx_tensor *tensor = &source->initializer[i];
        const char *name = sbit__import_text(tensor->name);
        sbit_value_id id = {0};
        const bool known = name[0] != '\0' && sbit__map_find(&scope->names, name, &id.idx);
        if (!known || sbit__import_has_data(scope, id)) {
            SBIT__TRY(sbit__import_define(scope, name, "an initializer", &id, error));
        }
        SBIT__TRY(sbit__import_tensor_constant(importer, scope->graph, id, tensor, error));
    }
    for (size_t i = 0; i < source->sparse_initializer_count; i++) {
        const sbit_onnx_sparse_tensor *sparse = &source->sparse_initializer[i];
        const char *name = sparse->values != NULL ? sbit__import_text(sparse->values->name) : "";
        sbit_value_id id = {0};
        sbit_tensor tensor;
        const bool known = name[0] != '\0' && sbit__map_find(&scope->names, name, &id.idx);
        if (!known || sbit__import_has_data(scope, id)) {
            SBIT__TRY(sbit__import_define(scope, name, "a sparse initializer", &id, error));
        }
        SBIT__TRY(sbit__import_sparse(importer, name, sparse, &tensor, error));
        sbit__graph_put_constant(scope->graph, id, &tensor, true, NULL);
    }
    return SBIT_OK;
}

/* A tensor that Constant's short forms describe; a block of its own. */
static sbit_status sbit__import_numbers(sbit__importer *importer, sbit_dtype dtype, bool scalar,
                                        const void *data, size_t count, sbit_tensor *out,
                                        sbit_error *error)
{
    sbit_tensor borrowed;
    memset(&borrowed, 0, sizeof(borrowed));
    borrowed.dtype = dtype;
    borrowed.rank = scalar ? 0 : 1;
    borrowed.dims[0] = scalar ? 0 : (int64_t)count;
    memcpy(&borrowed.data, &data, sizeof(borrowed.data));
    return sbit__tensor_copy(importer->ctx, &borrowed, out, error);
}

static sbit_status sbit__import_constant_value(sbit__importer *importer, const char *label,
                                               const sbit__import_attr *attr, sbit_tensor *out,
                                               sbit_error *error)
{
    static const struct {
        const char *name;
        int32_t type;
    } forms[] = {{"value_float", SBIT_ONNX_ATTR_FLOAT},     {"value_int", SBIT_ONNX_ATTR_INT},
                 {"value_string", SBIT_ONNX_ATTR_STRING},   {"value_floats", SBIT_ONNX_ATTR_FLOATS},
                 {"value_ints", SBIT_ONNX_ATTR_INTS},       {"value_strings", SBIT_ONNX_ATTR_STRINGS},
                 {"sparse_value", SBIT_ONNX_ATTR_SPARSE_TENSOR}};
    const sbit_onnx_attribute *source = attr->source;
    int32_t type = 0;
    for (size_t i = 0; i < SBIT__COUNT_OF(forms); i++) { /* files older than IR 2 do not say the type */
        if (sbit__streq(attr->name, forms[i].name) &&
            (source->type == 0 || source->type == forms[i].type)) {
            type = forms[i].type;
        }
    }
    switch (type) {
    case SBIT_ONNX_ATTR_FLOAT:
        return sbit__import_numbers(importer, SBIT_F32, true, &source->f, 1, out, error);
    case SBIT_ONNX_ATTR_INT:
        return sbit__import_numbers(importer, SBIT_I64, true, &source->i, 1, out, error);
    case SBIT_ONNX_ATTR_STRING:
        return sbit__import_numbers(importer, SBIT_STRING, true, &source->s, 1, out, error);
    case SBIT_ONNX_ATTR_FLOATS:
        return sbit__import_numbers(importer, SBIT_F32, false, source->floats, source->floats_count,
                                    out, error);
    case SBIT_ONNX_ATTR_INTS:
        return sbit__import_numbers(importer, SBIT_I64, false, source->ints, source->ints_count,
                                    out, error);
    case SBIT_ONNX_ATTR_STRINGS:
        return sbit__import_numbers(importer, SBIT_STRING, false, source->strings,
                                    source->strings_count, out, error);
    case SBIT_ONNX_ATTR_SPARSE_TENSOR:
        if (source->sparse_tensor != NULL) {
            return sbit__import_sparse(importer, label, source->sparse_tensor, out, error);
        }
        break;
    default:
        break;
    }
    return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                      "node %s has no value that can be read (attribute '%s')", label, attr->name);
}

static sbit_status sbit__import_constant_node(sbit__importer *importer, sbit__import_scope *scope,
                                              const sbit_onnx_node *node, sbit_error *error)
{
    char label[160];
    sbit__import_attr *attrs = NULL;
    size_t count = 0;
    sbit_value_id id = {0};
    sbit_tensor tensor;
    sbit__import_label(node, label, sizeof(label));
    SBIT__TRY(sbit__import_attrs(scope, node, &attrs, &count, error));
    if (count != 1 || node->output_count != 1 || node->input_count != 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "node %s needs one output and one attribute with its value, and no input",
                          label);
    }
    SBIT__TRY(sbit__import_resolve(scope, sbit__import_text(node->output[0]), node, &id, error));
    if (id.idx == 0) {
        return SBIT_OK;
    }
    if (sbit__streq(attrs[0].name, "value") && attrs[0].source->t != NULL) {
        return sbit__import_tensor_constant(importer, scope->graph, id, attrs[0].source->t, error);
    }
    SBIT__TRY(sbit__import_constant_value(importer, label, &attrs[0], &tensor, error));
    sbit__graph_put_constant(scope->graph, id, &tensor, true, NULL);
    return SBIT_OK;
}

/* >>attributes */
static sbit_onnx_attribute_type sbit__import_attr_type(const sbit_onnx_attribute *source)
{
    if (source->type > 0 && source->type <= (int32_t)SBIT_ONNX_ATTR_TYPE_PROTOS) {
        return (sbit_onnx_attribute_type)source->type;
    }
    /* Files older than IR 2 do not say. */
    return SBIT_ONNX_HAS(source, SBIT_ONNX_ATTRIBUTE_F)   ? SBIT_ONNX_ATTR_FLOAT
           : SBIT_ONNX_HAS(source, SBIT_ONNX_ATTRIBUTE_I) ? SBIT_ONNX_ATTR_INT
           : SBIT_ONNX_HAS(source, SBIT_ONNX_ATTRIBUTE_S) ? SBIT_ONNX_ATTR_STRING
           : source->t != NULL                            ? SBIT_ONNX_ATTR_TENSOR
           : source->g != NULL                            ? SBIT_ONNX_ATTR_GRAPH
           : source->floats_count != 0                    ? SBIT_ONNX_ATTR_FLOATS
           : source->strings_count != 0                   ? SBIT_ONNX_ATTR_STRINGS
           : source->tensors_count != 0                   ? SBIT_ONNX_ATTR_TENSORS
           : source->graphs_count != 0                    ? SBIT_ONNX_ATTR_GRAPHS
                                                          : SBIT_ONNX_ATTR_INTS;
}

static sbit_status sbit__import_attr_tensor(sbit__importer *importer, sbit_graph *graph,
                                            const sbit_onnx_tensor *source, sbit_tensor *out,
                                            sbit_error *error)
{
    bool owned = false;
    SBIT__TRY(sbit__tensor_from_onnx(importer->ctx, importer->doc, source, out, &owned, error));
    if (owned) {
        const sbit_status status = sbit__graph_keep_tensor(graph, out, error);
        if (status != SBIT_OK) {
            sbit_tensor_free(importer->ctx, out);
            return status;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__import_graph(sbit__importer *importer, sbit__import_scope *scope,
                                      const sbit_onnx_graph *source, sbit_error *error);

static sbit_status sbit__import_body(sbit__importer *importer, sbit__import_scope *scope,
                                     const sbit__import_attr *attr, const sbit_onnx_graph *source,
                                     sbit_node_id holder, sbit_graph **out, sbit_error *error)
{
    sbit__import_scope inner;
    SBIT__TRY(sbit__graph_new_body(scope->graph, out, error));
    (*out)->holder = holder;
    sbit__import_open_scope(importer, &inner, *out, attr->scope, attr->scope->call);
    const sbit_status status = sbit__import_graph(importer, &inner, source, error);
    sbit__import_close_scope(&inner);
    return status;
}

static sbit_status sbit__import_attr_lists(sbit__importer *importer, sbit__import_scope *scope,
                                           const sbit__import_attr *attr, sbit_node_id holder,
                                           sbit_attr *out, sbit_error *error)
{
    const sbit_onnx_attribute *source = attr->source;
    void *block = NULL;
    switch (out->type) {
    case SBIT_ONNX_ATTR_STRINGS: {
        out->count = source->strings_count;
        SBIT__TRY(sbit__graph_alloc(scope->graph, out->count, sizeof(sbit_str), &block, error));
        sbit_str *strings = (sbit_str *)block;
        out->strings = strings;
        for (size_t i = 0; i < out->count; i++) {
            strings[i].size = source->strings[i].size;
            SBIT__TRY(sbit__graph_text(scope->graph, source->strings[i].data, strings[i].size,
                                       &strings[i].data, error));
        }
        return SBIT_OK;
    }
    case SBIT_ONNX_ATTR_TENSORS: {
        out->count = source->tensors_count;
        SBIT__TRY(sbit__graph_alloc(scope->graph, out->count, sizeof(sbit_tensor), &block, error));
        sbit_tensor *tensors = (sbit_tensor *)block;
        out->tensors = tensors;
        for (size_t i = 0; i < out->count; i++) {
            SBIT__TRY(sbit__import_attr_tensor(importer, scope->graph, &source->tensors[i],
                                               &tensors[i], error));
        }
        return SBIT_OK;
    }
    default: {
        out->count = source->graphs_count;
        SBIT__TRY(sbit__graph_alloc(scope->graph, out->count, sizeof(sbit_graph *), &block, error));
        sbit_graph **graphs = (sbit_graph **)block;
        out->graphs = graphs;
        for (size_t i = 0; i < out->count; i++) {
            SBIT__TRY(sbit__import_body(importer, scope, attr, &source->graphs[i], holder,
                                        &graphs[i], error));
        }
        return SBIT_OK;
    }
    }
}

static sbit_status sbit__import_attr_value(sbit__importer *importer, sbit__import_scope *scope,
                                           const sbit__import_attr *attr, sbit_node_id holder,
                                           sbit_attr *out, sbit_error *error)
{
    const sbit_onnx_attribute *source = attr->source;
    memset(out, 0, sizeof(*out));
    out->name = attr->name;
    out->type = sbit__import_attr_type(source);
    switch (out->type) {
    case SBIT_ONNX_ATTR_FLOAT:
        out->f = source->f;
        return SBIT_OK;
    case SBIT_ONNX_ATTR_INT:
        out->i = source->i;
        return SBIT_OK;
    case SBIT_ONNX_ATTR_STRING: /* bytes in the file: a copy gives them their NUL */
        out->s.size = source->s.size;
        return sbit__graph_text(scope->graph, source->s.data, source->s.size, &out->s.data, error);
    case SBIT_ONNX_ATTR_FLOATS:
        out->floats = source->floats;
        out->count = source->floats_count;
        return SBIT_OK;
    case SBIT_ONNX_ATTR_INTS:
        out->ints = source->ints;
        out->count = source->ints_count;
        return SBIT_OK;
    case SBIT_ONNX_ATTR_TENSOR:
        if (source->t != NULL) {
            return sbit__import_attr_tensor(importer, scope->graph, source->t, &out->t, error);
        }
        break;
    case SBIT_ONNX_ATTR_GRAPH:
        if (source->g != NULL) {
            return sbit__import_body(importer, scope, attr, source->g, holder, &out->g, error);
        }
        break;
    case SBIT_ONNX_ATTR_STRINGS:
    case SBIT_ONNX_ATTR_TENSORS:
    case SBIT_ONNX_ATTR_GRAPHS:
        return sbit__import_attr_lists(importer, scope, attr, holder, out, error);
    default:
        out->other = source;
        return SBIT_OK;
    }
    return sbit__fail(error, SBIT_ERR_INVALID_MODEL, attr->name,
                      "attribute '%s' says it is a %s and holds none", attr->name,
                      out->type == SBIT_ONNX_ATTR_TENSOR ? "tensor" : "graph");
}

/* >>nodes */

/* Defines the outputs of a node before any node is built. */
static sbit_status sbit__import_outputs(sbit__import_scope *scope, const sbit_onnx_node *node,
                                        sbit_error *error)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const char *name = sbit__import_text(node->output[i]);
        if (name[0] != '\0') {
            char what[200], label[160];
            sbit_value_id id = {0};
            snprintf(what, sizeof(what), "an output of node %s",
                     sbit__import_label(node, label, sizeof(label)));
            SBIT__TRY(sbit__import_define(scope, name, what, &id, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__import_node_ids(sbit__import_scope *scope, const sbit_onnx_node *source,
                                         sbit__graph_node *node, sbit_error *error)
{
    sbit_graph *graph = scope->graph;
    void *inputs = NULL, *outputs = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, source->input_count, sizeof(sbit_value_id), &inputs, error));
    SBIT__TRY(
        sbit__graph_alloc(graph, source->output_count, sizeof(sbit_value_id), &outputs, error));
    node->inputs = (sbit_value_id *)inputs;
    node->outputs = (sbit_value_id *)outputs;
    for (size_t i = 0; i < source->input_count; i++) {
        SBIT__TRY(sbit__import_resolve(scope, sbit__import_text(source->input[i]), source,
                                       &node->inputs[i], error));
    }
    SBIT__TRY(sbit__graph_reserve_inputs(graph, node->inputs, source->input_count, error));
    for (size_t i = 0; i < source->output_count; i++) {
        SBIT__TRY(sbit__import_resolve(scope, sbit__import_text(source->output[i]), source,
                                       &node->outputs[i], error));
    }
    node->input_capacity = node->info.input_count = source->input_count;
    node->output_capacity = node->info.output_count = source->output_count;
    return SBIT_OK;
}

static sbit_status sbit__import_node_name(sbit__import_scope *scope, const sbit_onnx_node *source,
                                          sbit__graph_node *node, sbit_error *error)
{
    sbit_graph *graph = scope->graph;
    const char *name = sbit__import_text(source->name);
    if (scope->prefix[0] != '\0') { /* a node of a function: one for each call */
        const char *long_name = sbit__arena_printf(&graph->family->arena, "%s/%s", scope->prefix,
                                                   name[0] != '\0' ? name : source->op_type.data);
        if (long_name == NULL) {
            return sbit__fail_oom(error, strlen(name));
        }
        SBIT__TRY(sbit__graph_unique_name(graph, true, long_name, &name, error));
    }
    node->info.name = name;
    return sbit__graph_hold_name(graph, true, name, node->info.id.idx, error);
}

static sbit_status sbit__import_plain_node(sbit__importer *importer, sbit__import_scope *scope,
                                           const sbit_onnx_node *source, sbit_error *error)
{
    sbit_graph *graph = scope->graph;
    sbit__graph_node *node = NULL;
    sbit__import_attr *attrs = NULL;
    size_t attr_count = 0;
    void *block = NULL;
    if (sbit__streq(sbit__graph_domain(source->domain), "sbit")) { /* what these say is trusted */
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, sbit__import_text(source->name),
                          "operator '%.80s' of domain 'sbit' is internal: no model can contain it",
                          source->op_type.data);
    }
    SBIT__TRY(sbit__graph_new_node(graph, &node, error));
    SBIT__TRY(sbit__import_node_name(scope, source, node, error));
    SBIT__TRY(sbit__import_node_ids(scope, source, node, error));
    node->info.domain = sbit__graph_domain(source->domain);
    node->info.op_type = source->op_type.data;
    node->info.source = source;
    node->metadata = source->metadata_props;
    node->metadata_count = source->metadata_props_count;
    SBIT__TRY(sbit__import_attrs(scope, source, &attrs, &attr_count, error));
    SBIT__TRY(sbit__graph_alloc(graph, attr_count, sizeof(sbit_attr), &block, error));
    node->attrs = (sbit_attr *)block;
    for (size_t i = 0; i < attr_count; i++) {
        SBIT__TRY(sbit__import_attr_value(importer, scope, &attrs[i], node->info.id,
                                          &node->attrs[i], error));
        node->attr_capacity = node->info.attr_count = i + 1;
    }
    sbit__graph_commit_node(graph, node, 0);
    return SBIT_OK;
}

static sbit_status sbit__import_node(sbit__importer *importer, sbit__import_scope *scope,
                                     const sbit_onnx_node *source, sbit_error *error);

/* The nodes of the function in place of the call. */
static sbit_status sbit__import_inline(sbit__importer *importer, sbit__import_scope *caller,
                                       const sbit_onnx_node *node,
                                       const sbit_onnx_function *function, sbit_error *error)
{
    sbit__import_scope scope;
    sbit__import_call call;
    sbit_status status = sbit__functions_enter(importer, caller, node, function, &call, &scope, error);
    for (size_t i = 0; i < function->node_count && status == SBIT_OK; i++) {
        status = sbit__import_node(importer, &scope, &function->node[i], error);
    }
    sbit__import_close_scope(&scope);
    return status;
}

static sbit_status sbit__import_node(sbit__importer *importer, sbit__import_scope *scope,
                                     const sbit_onnx_node *source, sbit_error *error)
{
    char label[160];
    if (source->op_type.size == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, sbit__import_text(source->name),
                          "node %s has no op_type",
                          sbit__import_label(source, label, sizeof(label)));
    }
    const sbit_onnx_function *function = sbit__functions_named(importer, source);
    if (function != NULL) {
        return sbit__import_inline(importer, scope, source, function, error);
    }
    if (sbit__streq(source->op_type.data, "Constant") &&
        sbit__graph_domain(source->domain)[0] == '\0') {
        return sbit__import_constant_node(importer, scope, source, error);
    }
    return sbit__import_plain_node(importer, scope, source, error);
}

/* >>graphs */
static sbit_status sbit__import_inputs(sbit__import_scope *scope, const sbit_onnx_graph *source,
                                       sbit_error *error)
{
    sbit_graph *graph = scope->graph;
    for (size_t i = 0; i < source->input_count; i++) {
        const char *name = sbit__import_text(source->input[i].name);
        sbit_value_id id = {0};
        SBIT__TRY(sbit__import_define(scope, name, "an input of the graph", &id, error));
        sbit__graph_value *value = graph->values[id.idx];
        SBIT__TRY(sbit__graph_type_from_onnx(graph, graph, name, source->input[i].type,
                                             &value->info.type, error));
        SBIT__TRY(sbit__graph_append_id(graph, &graph->inputs, &graph->input_count,
                                        &graph->input_capacity, id, error));
        value->info.is_input = true;
        value->info.source = &source->input[i];
    }
    return SBIT_OK;
}

/* Types and texts that value_info and the outputs' descriptions give. */
static sbit_status sbit__import_descriptions(sbit__import_scope *scope,
                                             const sbit_onnx_value_info *infos, size_t count,
                                             sbit_error *error)
{
    sbit_graph *graph = scope->graph;
    for (size_t i = 0; i < count; i++) {
        const char *name = sbit__import_text(infos[i].name);
        sbit_value_id id = {0};
        if (name[0] == '\0' || !sbit__map_find(&scope->names, name, &id.idx)) {
            continue; /* a body may return an outer value; stale value_info says nothing */
        }
        sbit__graph_value *value = graph->values[id.idx];
        sbit_type type;
        SBIT__TRY(sbit__graph_type_from_onnx(graph, graph, name, infos[i].type, &type, error));
        if (value->info.source == NULL) {
            value->info.source = &infos[i];
        }
        const bool better = value->info.type.dtype == SBIT_UNDEFINED || value->info.type.rank < 0;
        if (!value->info.is_constant && better) {
            value->info.type = type;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__import_graph_outputs(sbit__import_scope *scope,
                                              const sbit_onnx_graph *source, sbit_error *error)
{
    for (size_t i = 0; i < source->output_count; i++) {
        const char *name = sbit__import_text(source->output[i].name);
        sbit_value_id id = {0};
        if (name[0] == '\0') {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, NULL,
                              "output %llu of the graph has no name", (unsigned long long)i);
        }
        SBIT__TRY(sbit__import_resolve(scope, name, NULL, &id, error));
        SBIT__TRY(sbit_graph_add_output(scope->graph, id, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__import_graph(sbit__importer *importer, sbit__import_scope *scope,
                                      const sbit_onnx_graph *source, sbit_error *error)
{
    scope->graph->source = source;
    scope->graph->name = sbit__import_text(source->name);
    SBIT__TRY(sbit__import_inputs(scope, source, error));
    SBIT__TRY(sbit__import_initializers(importer, scope, source, error));
    for (size_t i = 0; i < source->node_count; i++) {
        SBIT__TRY(sbit__import_outputs(scope, &source->node[i], error));
    }
    SBIT__TRY(sbit__import_descriptions(scope, source->output, source->output_count, error));
    SBIT__TRY(
        sbit__import_descriptions(scope, source->value_info, source->value_info_count, error));
    for (size_t i = 0; i < source->node_count; i++) {
        SBIT__TRY(sbit__import_node(importer, scope, &source->node[i], error));
    }
    return sbit__import_graph_outputs(scope, source, error);
}

/* >>models */
static sbit_status sbit__import_opsets(sbit_graph *graph, const sbit_onnx_model *model,
                                       sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    for (size_t i = 0; i < model->opset_import_count; i++) {
        const sbit_onnx_opset_id *source = &model->opset_import[i];
        const size_t before = family->opset_count;
        SBIT__TRY(sbit_graph_set_opset(graph, sbit__graph_domain(source->domain), source->version,
                                       error));
        if (family->opset_count != before) {
            family->opsets[before].source = source;
        }
    }
    if (family->opset_count == 0) { /* IR 1 and 2 have no opset_import: version 1 is meant */
        SBIT__TRY(sbit_graph_set_opset(graph, "", 1, error));
    }
    family->opset_raised = false;
    return SBIT_OK;
}

static sbit_status sbit__import_reserve(sbit__map *names, sbit_str text, sbit_error *error)
{
    const char *name = sbit__import_text(text);
    if (name[0] == '\0' || sbit__map_find(names, name, NULL)) {
        return SBIT_OK;
    }
    return sbit__map_set(names, name, 1, error);
}

static sbit_status sbit__import_reserve_graph(sbit__map *names, const sbit_onnx_graph *source,
                                              sbit_error *error)
{
    for (size_t i = 0; source != NULL && i < source->initializer_count; i++) {
        SBIT__TRY(sbit__import_reserve(names, source->initializer[i].name, error));
    }
    for (size_t i = 0; source != NULL && i < source->node_count; i++) {
        for (size_t j = 0; j < source->node[i].output_count; j++) {
            SBIT__TRY(sbit__import_reserve(names, source->node[i].output[j], error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__import_reserve_names(sbit_graph *graph, sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    const size_t count = family->model != NULL ? family->model->training_info_count : 0;
    for (size_t i = 0; i < count; i++) {
        const sbit_onnx_training_info *info = &family->model->training_info[i];
        SBIT__TRY(sbit__import_reserve_graph(&family->value_names, info->initialization, error));
        SBIT__TRY(sbit__import_reserve_graph(&family->value_names, info->algorithm, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__import_model(sbit_graph *graph, sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    sbit__importer importer;
    sbit__import_scope scope;
    memset(&importer, 0, sizeof(importer));
    importer.ctx = family->ctx;
    importer.doc = family->doc;
    importer.model = family->model;
    family->ir_version = family->model->ir_version;
    family->metadata = family->model->metadata_props;
    family->metadata_count = family->model->metadata_props_count;
    SBIT__TRY(sbit__import_opsets(graph, family->model, error));
    sbit__import_open_scope(&importer, &scope, graph, NULL, NULL);
    const sbit_status status = sbit__import_graph(&importer, &scope, family->model->graph, error);
    sbit__import_close_scope(&scope);
    SBIT__TRY(status);
    SBIT__TRY(sbit__import_reserve_names(graph, error));
    return sbit_graph_sort(graph, error);
}

SPARSEBIT_API sbit_status sbit_graph_import(sbit_ctx *ctx, sbit_onnx_doc *doc, sbit_graph **out,
                                            sbit_error *error)
{
    sbit_graph *graph = NULL;
    const sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    sbit_status status = SBIT_OK;
    if (model == NULL || model->graph == NULL) {
        status = sbit__fail(error, SBIT_ERR_INVALID_MODEL, NULL, "the document holds no graph");
    } else {
        status = sbit__graph_new_family(ctx, &graph, error);
    }
    if (status != SBIT_OK) {
        sbit_onnx_destroy(doc);
        return status;
    }
    graph->family->doc = doc;
    graph->family->owns_doc = true;
    graph->family->model = model;
    status = sbit__import_model(graph, error);
    if (status != SBIT_OK) {
        sbit_graph_destroy(graph);
        return status;
    }
    sbit__graph_notices(graph);
    *out = graph;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_load(sbit_ctx *ctx, const char *path, sbit_graph **out,
                                          sbit_error *error)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    memset(&desc, 0, sizeof(desc));
    desc.allocator = ctx->allocator;
    SBIT__TRY(sbit_onnx_load(path, &desc, &doc, error));
    return sbit_graph_import(ctx, doc, out, error);
}

SPARSEBIT_API sbit_status sbit_graph_read(sbit_ctx *ctx, const void *bytes, size_t size,
                                          sbit_graph **out, sbit_error *error)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    memset(&desc, 0, sizeof(desc));
    desc.allocator = ctx->allocator;
    SBIT__TRY(sbit_onnx_read(bytes, size, &desc, &doc, error));
    return sbit_graph_import(ctx, doc, out, error);
}

#undef SBIT__IMPORT_MAX_SPARSE_BYTES
