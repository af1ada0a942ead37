/* commands/check.c: `sparsebit check` and `sparsebit convert-opset`.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "model/model.h"
#include "report/unsupported.h"

#include <stdlib.h> /* realloc, free */
#include <string.h> /* strncmp */

typedef struct cli_finding {
    bool error; /* else a warning */
    char text[700];
} cli_finding;

typedef struct cli_findings {
    cli_finding *items;
    size_t count, errors;
    bool failed; /* out of memory */
} cli_findings;

static void cli_find(cli_findings *f, bool error, const char *about, const char *text)
{
    cli_finding *items = (cli_finding *)realloc(f->items, (f->count + 1) * sizeof *items);
    if (items == NULL) {
        f->failed = true;
        return;
    }
    f->items = items;
    items[f->count].error = error;
    snprintf(items[f->count].text, sizeof items[0].text, "%s%s%s", about,
             about[0] != '\0' ? ": " : "", text);
    f->count++;
    f->errors += error ? 1 : 0;
}

static void cli_find_log(sbit_log_level level, const char *message, void *user)
{
    if (level == SBIT_LOG_WARNING) {
        cli_find((cli_findings *)user, false, "", message);
    }
}

/* The node that an error of inference begins with; none: it is of a body, or of no node. */
static sbit_node_id cli_check_node(const sbit_graph *graph, const char *message)
{
    char text[400];
    sbit_node_id id = sbit_graph_first(graph);
    for (; id.idx != 0; id = sbit_graph_next(graph, id)) {
        sbit_graph_describe(graph, id, text, sizeof text);
        const size_t size = strlen(text);
        if (strncmp(message, text, size) == 0 && message[size] == ':') {
            return id;
        }
    }
    return id;
}

/* What the graph itself tells: operators, shapes. Inference stops at its first error, so a node that
 * has one becomes an operator that nobody knows, behind which shapes are not known. */
static int cli_check_graph(sbit_graph *graph, cli_findings *f)
{
    enum { MOST = 100 };
    cli_missing missing;
    int code = cli_missing_find(graph, &missing);
    for (size_t i = 0; code == CLI_OK && i < missing.count; i++) {
        char text[600];
        cli_find(f, true, "operator", cli_missing_text(&missing.items[i], text, sizeof text));
    }
    cli_missing_free(&missing);
    for (int i = 0; code == CLI_OK && i < MOST; i++) {
        sbit_error error, other;
        char type[128];
        memset(&error, 0, sizeof error);
        if (sbit_infer(graph, &error) == SBIT_OK) {
            break;
        }
        cli_find(f, true, "shapes", error.message);
        const sbit_node_id id = cli_check_node(graph, error.message);
        if (id.idx == 0) {
            break;
        }
        snprintf(type, sizeof type, "%s", sbit_graph_node(graph, id)->op_type);
        if (sbit_graph_set_op(graph, id, "sparsebit.broken", type, &other) != SBIT_OK) {
            break;
        }
    }
    return code;
}

/* Each stage that the ones before make possible; the format's own rules hinder none of them. */
static int cli_check_file(sbit_ctx *ctx, const char *path, cli_findings *f)
{
    sbit_onnx_doc *doc = NULL;
    sbit_graph *graph = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_onnx_load(path, NULL, &doc, &error) != SBIT_OK) {
        cli_find(f, true, "file", error.message);
        return CLI_OK;
    }
    if (sbit_onnx_check(doc, &error) != SBIT_OK) {
        cli_find(f, true, "format", error.message);
    }
    if (sbit_graph_import(ctx, doc, &graph, &error) != SBIT_OK) {
        cli_find(f, true, "graph", error.message);
        return CLI_OK;
    }
    const int code = cli_check_graph(graph, f);
    sbit_graph_destroy(graph);
    return code;
}

static int cli_show_findings(const cli_args *args, const cli_findings *f)
{
    if (args->json) {
        cli_json json;
        cli_json_begin(&json);
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "model", args->operands[0]);
        sbit_json_bool(&json.to, "ok", f->errors == 0);
        sbit_json_open(&json.to, "findings", '[');
        for (size_t i = 0; i < f->count; i++) {
            sbit_json_open(&json.to, NULL, '{');
            sbit_json_text(&json.to, "level", f->items[i].error ? "error" : "warning");
            sbit_json_text(&json.to, "text", f->items[i].text);
            sbit_json_close(&json.to, '}');
        }
        sbit_json_close(&json.to, ']');
        sbit_json_close(&json.to, '}');
        return cli_json_print(&json);
    }
    for (size_t i = 0; i < f->count; i++) {
        printf("%s: %s\n", f->items[i].error ? "error" : "warning", f->items[i].text);
    }
    printf("%zu errors, %zu warnings\n", f->errors, f->count - f->errors);
    return CLI_OK;
}

int cli_check(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    sbit_ctx_desc desc;
    sbit_error error;
    cli_findings f;
    memset(&f, 0, sizeof f);
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.logger.log_fn = cli_find_log;
    desc.logger.user = &f;
    if (sbit_ctx_create(&desc, &ctx, &error) != SBIT_OK) {
        return cli_fail_library(&error, "no context");
    }
    int code = cli_check_file(ctx, args->operands[0], &f);
    code = code == CLI_OK && f.failed ? cli_fail_memory(sizeof(cli_finding)) : code;
    code = code == CLI_OK ? cli_show_findings(args, &f) : code;
    sbit_ctx_destroy(ctx);
    free(f.items);
    return code != CLI_OK ? code : f.errors > 0 ? CLI_BAD : CLI_OK;
}

int cli_convert_opset(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_model model;
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_check_out(args));
    CLI_TRY(cli_context_create(args, 1, &ctx));
    int code = cli_model_load(ctx, args->operands[0], &model);
    if (code == CLI_OK) {
        const int64_t from = sbit_graph_opset(model.graph, "");
        const sbit_status status = args->to < from
                                       ? sbit_graph_lower_opset(model.graph, args->to, &error)
                                       : sbit_graph_lift_opset(model.graph, args->to, &error);
        if (status != SBIT_OK ||
            sbit_graph_save(model.graph, args->out, NULL, &error) != SBIT_OK) {
            code = cli_fail_library(&error, "cannot convert '%s'", model.path);
        } else {
            printf("opset %lld to %lld: %s\n", (long long)from, (long long)args->to, args->out);
        }
        cli_model_free(&model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
