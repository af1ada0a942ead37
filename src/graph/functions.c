/* functions.c: inlining of model-local functions while a model is read. >>functions
 *
 * Called by: import.c, which then reads the function's nodes in the call's scope. Calls: scopes.c.
 * Spec: onnx.proto, FunctionProto: a function is named by (domain, name, overload); it sees its own
 * inputs only; an attribute with ref_attr_name takes the value of the call's attribute of that
 * name, else the default in attribute_proto, and is absent without both. Functions call functions,
 * never themselves.
 *
 * Each call opens a scope in the graph where it stands: formal inputs name the call's arguments,
 * formal outputs the values that the call defines, all else gets new values and nodes whose names
 * start with the call's name.
 */
#include "graph_private.h"

#include <stdio.h> /* snprintf */

enum {
    SBIT__FUNCTIONS_MAX_DEPTH = 100,
    SBIT__FUNCTIONS_MAX_NODES = 1 << 20
};

SBIT__FN const sbit_onnx_function *sbit__functions_named(const sbit__importer *importer,
                                                         const sbit_onnx_node *node)
{
    const sbit_onnx_model *model = importer->model;
    for (size_t i = 0; i < model->functions_count; i++) {
        const sbit_onnx_function *function = &model->functions[i];
        if (sbit__str_eq(function->name, node->op_type) &&
            sbit__streq(sbit__graph_domain(function->domain), sbit__graph_domain(node->domain)) &&
            sbit__streq(sbit__import_text(function->overload),
                        sbit__import_text(node->overload))) {
            return function;
        }
    }
    return NULL;
}

/* >>attributes */

/* What an attribute of a node stands for: itself, or what the call gives for its reference. */
static const sbit__import_attr *sbit__functions_find(const sbit__import_call *call, sbit_str name)
{
    for (size_t i = 0; call != NULL && i < call->attr_count; i++) {
        if (sbit__streq(call->attrs[i].name, name.data)) {
            return &call->attrs[i];
        }
    }
    return NULL;
}

SBIT__FN sbit_status sbit__import_attrs(sbit__import_scope *scope, const sbit_onnx_node *node,
                                        sbit__import_attr **out, size_t *count, sbit_error *error)
{
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(scope->graph, node->attribute_count, sizeof(sbit__import_attr),
                                &block, error));
    sbit__import_attr *attrs = (sbit__import_attr *)block;
    size_t kept = 0;
    for (size_t i = 0; i < node->attribute_count; i++) {
        const sbit_onnx_attribute *source = &node->attribute[i];
        attrs[kept].name = sbit__import_text(source->name);
        attrs[kept].source = source;
        attrs[kept].scope = scope;
        if (source->ref_attr_name.size != 0) {
            const sbit__import_attr *given =
                sbit__functions_find(scope->call, source->ref_attr_name);
            if (given == NULL) {
                continue; /* the call gives none: the operator's own default holds */
            }
            attrs[kept].source = given->source;
            attrs[kept].scope = given->scope;
        }
        kept++;
    }
    *out = attrs;
    *count = kept;
    return SBIT_OK;
}

/* The call's attributes, then the defaults that it leaves. */
static sbit_status sbit__functions_bind_attrs(sbit__import_scope *caller, sbit__import_scope *scope,
                                              const sbit_onnx_node *node, sbit__import_call *call,
                                              sbit_error *error)
{
    const sbit_onnx_function *function = call->function;
    sbit__import_attr *given = NULL;
    size_t given_count = 0;
    void *block = NULL;
    SBIT__TRY(sbit__import_attrs(caller, node, &given, &given_count, error));
    SBIT__TRY(sbit__graph_alloc(scope->graph, given_count + function->attribute_proto_count,
                                sizeof(sbit__import_attr), &block, error));
    call->attrs = (sbit__import_attr *)block;
    for (size_t i = 0; i < given_count; i++) {
        call->attrs[call->attr_count++] = given[i];
    }
    for (size_t i = 0; i < function->attribute_proto_count; i++) {
        const sbit_onnx_attribute *source = &function->attribute_proto[i];
        if (sbit__functions_find(call, source->name) == NULL) {
            sbit__import_attr *attr = &call->attrs[call->attr_count++];
            attr->name = sbit__import_text(source->name);
            attr->source = source;
            attr->scope = scope;
        }
    }
    return SBIT_OK;
}

/* >>arguments */
static sbit_status sbit__functions_bind_inputs(sbit__import_scope *caller,
                                               sbit__import_scope *scope,
                                               const sbit_onnx_node *node,
                                               const sbit_onnx_function *function,
                                               sbit_error *error)
{
    char label[160];
    if (node->input_count > function->input_count || node->output_count > function->output_count) {
        sbit__import_label(node, label, sizeof(label));
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "node %s has more inputs or outputs than the function it calls", label);
    }
    for (size_t i = 0; i < function->input_count; i++) {
        const char *formal = sbit__import_text(function->input[i]);
        sbit_value_id id = {0};
        if (i < node->input_count) {
            SBIT__TRY(sbit__import_resolve(caller, sbit__import_text(node->input[i]), node, &id,
                                           error));
        }
        if (sbit__map_find(&scope->names, formal, NULL)) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, formal,
                              "function '%s' has the input '%s' twice",
                              sbit__import_text(function->name), formal);
        }
        SBIT__TRY(sbit__map_set(&scope->names, formal, id.idx, error));
    }
    return SBIT_OK;
}

/* A formal output that is a formal input too: the function hands an argument through. */
static sbit_status sbit__functions_pass_through(sbit__import_scope *scope, const char *formal,
                                                sbit_value_id to, sbit_error *error)
{
    sbit_node_desc desc;
    sbit_value_id from = {0};
    sbit__map_find(&scope->names, formal, &from.idx);
    if (from.idx == 0 || to.idx == 0) {
        return SBIT_OK;
    }
    memset(&desc, 0, sizeof(desc));
    desc.op_type = "Identity";
    desc.inputs = &from;
    desc.input_count = 1;
    desc.outputs = &to;
    desc.output_count = 1;
    return sbit_graph_add_node(scope->graph, &desc, NULL, error);
}

static sbit_status sbit__functions_bind_outputs(sbit__import_scope *caller,
                                                sbit__import_scope *scope,
                                                const sbit_onnx_node *node,
                                                const sbit_onnx_function *function,
                                                sbit_error *error)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const char *formal = sbit__import_text(function->output[i]);
        sbit_value_id id = {0};
        SBIT__TRY(
            sbit__import_resolve(caller, sbit__import_text(node->output[i]), node, &id, error));
        if (sbit__map_find(&scope->names, formal, NULL)) {
            SBIT__TRY(sbit__functions_pass_through(scope, formal, id, error));
        } else if (id.idx != 0) {
            SBIT__TRY(sbit__map_set(&scope->names, formal, id.idx, error));
        }
    }
    return SBIT_OK;
}

/* >>bodies */

/* Formal outputs are in the scope already; every other output of the nodes is defined here. */
static sbit_status sbit__functions_define(sbit__import_scope *scope, sbit__map *defined,
                                          const sbit_onnx_function *function,
                                          const sbit_onnx_node *node, sbit_error *error)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const char *name = sbit__import_text(node->output[i]);
        sbit_value_id id = {0};
        if (name[0] == '\0') {
            continue;
        }
        if (sbit__map_find(defined, name, NULL)) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                              "function '%s' defines '%s' twice",
                              sbit__import_text(function->name), name);
        }
        SBIT__TRY(sbit__map_set(defined, name, 1, error));
        if (!sbit__map_find(&scope->names, name, NULL)) {
            SBIT__TRY(
                sbit__import_define(scope, name, "an output of a function's node", &id, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__functions_define_all(sbit__importer *importer, sbit__import_scope *scope,
                                              const sbit_onnx_function *function, sbit_error *error)
{
    sbit__map defined;
    sbit_status status = SBIT_OK;
    sbit__map_init(&defined, &importer->ctx->allocator);
    for (size_t i = 0; i < function->input_count && status == SBIT_OK; i++) {
        status = sbit__map_set(&defined, sbit__import_text(function->input[i]), 1, error);
    }
    for (size_t i = 0; i < function->node_count && status == SBIT_OK; i++) {
        status = sbit__functions_define(scope, &defined, function, &function->node[i], error);
    }
    for (size_t i = 0; i < function->output_count && status == SBIT_OK; i++) {
        const char *formal = sbit__import_text(function->output[i]);
        if (!sbit__map_find(&defined, formal, NULL)) {
            status = sbit__fail(error, SBIT_ERR_INVALID_MODEL, formal,
                                "function '%s' does not produce its output '%s'",
                                sbit__import_text(function->name), formal);
        }
    }
    sbit__map_deinit(&defined);
    return status;
}

/* Domains that only the function imports are imported by the model from now on. Where both import
 * one, the spec wants the operators used to mean the same in both versions. */
static sbit_status sbit__functions_opsets(sbit_graph *graph, const sbit_onnx_function *function,
                                          sbit_error *error)
{
    for (size_t i = 0; i < function->opset_import_count; i++) {
        const char *domain = sbit__graph_domain(function->opset_import[i].domain);
        if (sbit_graph_opset(graph, domain) == 0) {
            SBIT__TRY(
                sbit_graph_set_opset(graph, domain, function->opset_import[i].version, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__functions_check_call(sbit__importer *importer, const sbit_onnx_node *node,
                                              const sbit__import_call *call, sbit_error *error)
{
    const char *name = sbit__import_text(call->function->name);
    for (const sbit__import_call *around = call->outer; around != NULL; around = around->outer) {
        if (around->function == call->function) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                              "function '%s' calls itself, directly or through others", name);
        }
    }
    importer->inlined_nodes += call->function->node_count;
    if (call->depth > SBIT__FUNCTIONS_MAX_DEPTH ||
        importer->inlined_nodes > SBIT__FUNCTIONS_MAX_NODES) {
        char label[160];
        return sbit__fail(error, SBIT_ERR_LIMIT, name,
                          "node %s: more than %d nested calls or %d nodes from functions",
                          sbit__import_label(node, label, sizeof(label)),
                          (int)SBIT__FUNCTIONS_MAX_DEPTH, (int)SBIT__FUNCTIONS_MAX_NODES);
    }
    return SBIT_OK;
}

static sbit_status sbit__functions_bind(sbit__importer *importer, sbit__import_scope *caller,
                                        sbit__import_scope *scope, const sbit_onnx_node *node,
                                        sbit__import_call *call, sbit_error *error)
{
    const sbit_onnx_function *function = call->function;
    SBIT__TRY(sbit__functions_check_call(importer, node, call, error));
    SBIT__TRY(sbit__functions_bind_attrs(caller, scope, node, call, error));
    SBIT__TRY(sbit__functions_bind_inputs(caller, scope, node, function, error));
    SBIT__TRY(sbit__functions_bind_outputs(caller, scope, node, function, error));
    SBIT__TRY(sbit__functions_define_all(importer, scope, function, error));
    return sbit__functions_opsets(scope->graph, function, error);
}

SBIT__FN sbit_status sbit__functions_enter(sbit__importer *importer, sbit__import_scope *caller,
                                           const sbit_onnx_node *node,
                                           const sbit_onnx_function *function,
                                           sbit__import_call *call, sbit__import_scope *scope,
                                           sbit_error *error)
{
    const char *own = node->name.size != 0 ? node->name.data : node->op_type.data;
    memset(call, 0, sizeof(*call));
    call->function = function;
    call->outer = caller->call;
    call->depth = caller->call != NULL ? caller->call->depth + 1 : 1;
    sbit__import_open_scope(importer, scope, caller->graph, NULL, call);
    scope->prefix = caller->prefix[0] == '\0' ? own
                                              : sbit__arena_printf(&caller->graph->family->arena,
                                                                   "%s/%s", caller->prefix, own);
    return scope->prefix == NULL ? sbit__fail_oom(error, strlen(own))
                                 : sbit__functions_bind(importer, caller, scope, node, call, error);
}
