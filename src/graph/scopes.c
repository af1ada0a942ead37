/* scopes.c: where a model's names are looked up while it is read. >>scopes
 *
 * Called by: functions.c, import.c. Calls: ir.
 * One scope for each graph, and one for each call of a function. import.c says what names mean.
 */
#include "graph_private.h"

#include <stdio.h> /* snprintf */

/* >>text of the document */
SBIT__FN const char *sbit__import_text(sbit_str text)
{
    return text.size == 0 || text.data == NULL ? "" : text.data;
}

/* What a message calls a node of the document. */
SBIT__FN const char *sbit__import_label(const sbit_onnx_node *node, char *text, size_t size)
{
    const char *name = sbit__import_text(node->name);
    for (size_t i = 0; i < node->output_count && name[0] == '\0'; i++) {
        name = sbit__import_text(node->output[i]);
    }
    snprintf(text, size, "%s '%s'", sbit__import_text(node->op_type), name);
    return text;
}

/* >>scopes */
SBIT__FN void sbit__import_open_scope(sbit__importer *importer, sbit__import_scope *scope,
                                      sbit_graph *graph, sbit__import_scope *outer,
                                      const sbit__import_call *call)
{
    scope->graph = graph;
    scope->outer = outer;
    scope->call = call;
    scope->prefix = outer != NULL ? outer->prefix : "";
    sbit__map_init(&scope->names, &importer->ctx->allocator);
}

SBIT__FN void sbit__import_close_scope(sbit__import_scope *scope)
{
    sbit__map_deinit(&scope->names);
}

/* The name itself where nothing in a graph around has it, else one made from it. Names of inlined
 * functions carry the call's name in front. */
static sbit_status sbit__import_pick_name(sbit__import_scope *scope, const char *name,
                                          const char **out, sbit_error *error)
{
    sbit_graph *graph = scope->graph;
    if (scope->prefix[0] != '\0') {
        const char *long_name =
            sbit__arena_printf(&graph->family->arena, "%s/%s", scope->prefix, name);
        if (long_name == NULL) {
            return sbit__fail_oom(error, strlen(name));
        }
        return sbit__graph_unique_name(graph, false, long_name, out, error);
    }
    bool taken = sbit__map_find(&graph->value_of, name, NULL);
    for (const sbit_graph *around = graph->parent; around != NULL && !taken;
         around = around->parent) {
        taken = sbit__map_find(&around->value_of, name, NULL);
    }
    if (taken) {
        return sbit__graph_unique_name(graph, false, name, out, error);
    }
    *out = name; /* lives in the document */
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__import_define(sbit__import_scope *scope, const char *name,
                                         const char *what, sbit_value_id *out, sbit_error *error)
{
    const char *unique = NULL;
    if (name[0] == '\0') {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, NULL, "%s has no name", what);
    }
    if (sbit__map_find(&scope->names, name, NULL)) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name, "'%s' is defined twice (as %s)",
                          name, what);
    }
    SBIT__TRY(sbit__import_pick_name(scope, name, &unique, error));
    SBIT__TRY(sbit__graph_new_value(scope->graph, unique, NULL, out, error));
    return sbit__map_set(&scope->names, name, out->idx, error);
}

/* Brings a value of `found`, an outer graph, into `graph` through all graphs between. */
static sbit_status sbit__import_capture(sbit_graph *graph, const sbit_graph *found,
                                        sbit_value_id id, sbit_value_id *out, sbit_error *error)
{
    if (graph == found) {
        *out = id;
        return SBIT_OK;
    }
    sbit_value_id outer = {0};
    SBIT__TRY(sbit__import_capture(graph->parent, found, id, &outer, error));
    return sbit__graph_capture(graph, outer, out, error);
}

SBIT__FN sbit_status sbit__import_resolve(sbit__import_scope *scope, const char *name,
                                          const sbit_onnx_node *reader, sbit_value_id *out,
                                          sbit_error *error)
{
    out->idx = 0;
    if (name[0] == '\0') {
        return SBIT_OK;
    }
    for (sbit__import_scope *around = scope; around != NULL; around = around->outer) {
        sbit_value_id found = {0};
        if (!sbit__map_find(&around->names, name, &found.idx)) {
            continue;
        }
        if (around == scope || found.idx == 0) {
            *out = found;
            return SBIT_OK;
        }
        SBIT__TRY(sbit__import_capture(scope->graph, around->graph, found, out, error));
        return sbit__map_set(&scope->names, name, out->idx, error);
    }
    char label[160];
    if (reader == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                          "the output '%s' is produced by nothing", name);
    }
    return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                      "node %s reads '%s', which nothing produces",
                      sbit__import_label(reader, label, sizeof(label)), name);
}
