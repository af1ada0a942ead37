/* commands/export.c: how a quantized model is written: names, dims, opset, the file of its bits.
 */
#include "commands/export.h"
#include "commands/commands.h"

#include <stdlib.h> /* strtol */

/* Inputs or outputs get the names of "A,B,..." in order; the rest keeps its own. */
static int cli_export_names(sbit_graph *graph, const char *option, const char *names, bool inputs)
{
    sbit_error error;
    const size_t count = inputs ? sbit_graph_input_count(graph) : sbit_graph_output_count(graph);
    size_t i = 0;
    memset(&error, 0, sizeof error);
    for (const char *at = names; at != NULL && *at != '\0'; i++) {
        char name[256];
        const size_t size = strcspn(at, ",");
        if (i >= count || size == 0 || size >= sizeof name) {
            return cli_fail("%s '%s': the model has %lu, each gets a name", option, names,
                            (unsigned long)count);
        }
        snprintf(name, sizeof name, "%.*s", (int)size, at);
        const sbit_value_id id = inputs ? sbit_graph_input(graph, i) : sbit_graph_output(graph, i);
        if (sbit_graph_rename_value(graph, id, name, &error) != SBIT_OK) {
            return cli_fail_library(&error, "%s '%s'", option, names);
        }
        at += size + (at[size] == ',' ? 1 : 0);
    }
    return CLI_OK;
}

/* NAME:AXIS=SYMBOL: a dim of an input or output that may differ from run to run. */
static int cli_export_dynamic(sbit_graph *graph, const char *text)
{
    const char *equals = strrchr(text, '=');
    const char *colon = NULL;
    char name[256], *end = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    for (const char *at = text; equals != NULL && at < equals; at++) {
        colon = *at == ':' ? at : colon;
    }
    const long axis = colon != NULL ? strtol(colon + 1, &end, 10) : 0;
    if (colon == NULL || end != equals || end == colon + 1 || equals[1] == '\0' ||
        (size_t)(colon - text) >= sizeof name) {
        return cli_fail_usage("quantize",
                              "--dynamic '%s': NAME:AXIS=SYMBOL is wanted, such as "
                              "input:0=batch",
                              text);
    }
    snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
    const sbit_value_id id = sbit_graph_find_value(graph, name);
    const sbit_value_info *value = id.idx != 0 ? sbit_graph_value(graph, id) : NULL;
    if (value == NULL || !(value->is_input || value->is_output)) {
        return cli_fail("--dynamic '%s': '%s' is no input or output of the model", text, name);
    }
    sbit_type type = value->type;
    if (axis < 0 || axis >= type.rank) {
        return cli_fail("--dynamic '%s': '%s' has %d dims", text, name, (int)type.rank);
    }
    if (sbit_graph_symbol(graph, equals + 1, &type.dims[axis].symbol, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--dynamic '%s'", text);
    }
    type.dims[axis].value = 0;
    sbit_graph_set_type(graph, id, &type);
    return CLI_OK;
}

static int cli_export_apply(const cli_args *args, sbit_graph *graph)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (args->opset > 0) {
        const int64_t have = sbit_graph_opset(graph, "");
        if (args->opset < have) {
            return cli_fail("--opset %lld: what is quantized needs opset %lld",
                            (long long)args->opset, (long long)have);
        }
        if (sbit_graph_lift_opset(graph, args->opset, &error) != SBIT_OK) {
            return cli_fail_library(&error, "--opset %lld", (long long)args->opset);
        }
    }
    CLI_TRY(cli_export_names(graph, "--input-names", args->input_names, true));
    CLI_TRY(cli_export_names(graph, "--output-names", args->output_names, false));
    for (size_t i = 0; i < args->dynamic.count; i++) {
        CLI_TRY(cli_export_dynamic(graph, args->dynamic.items[i]));
    }
    if (args->dynamic.count > 0 && sbit_infer(graph, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--dynamic: the model does not work at other sizes");
    }
    return CLI_OK;
}

static int cli_export_save(sbit_graph *graph, const char *path)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_graph_validate(graph, &error) != SBIT_OK ||
        sbit_graph_save(graph, path, NULL, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot write '%s'", path);
    }
    return CLI_OK;
}

/* OUT without .onnx, with _extra.onnx: the model with the attribute `bits` at Q and DQ nodes. */
static int cli_export_extra(const cli_args *args, sbit_graph *graph)
{
    char path[4096];
    sbit_error error;
    const size_t size = strlen(args->out);
    const bool suffix = size > 5 && strcmp(args->out + size - 5, ".onnx") == 0;
    memset(&error, 0, sizeof error);
    snprintf(path, sizeof path, "%.*s_extra.onnx", (int)(suffix ? size - 5 : size), args->out);
    if (sbit_quant_add_bits(graph, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--extra-info");
    }
    return cli_export_save(graph, path);
}

int cli_export_graph(const cli_args *args, const sbit_graph *built)
{
    sbit_graph *graph = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_graph_clone(built, &graph, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot write '%s'", args->out);
    }
    int code = cli_export_apply(args, graph);
    code = code == CLI_OK ? cli_export_save(graph, args->out) : code;
    code = code == CLI_OK && args->extra_info ? cli_export_extra(args, graph) : code;
    sbit_graph_destroy(graph);
    return code;
}
