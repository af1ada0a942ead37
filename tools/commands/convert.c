/* commands/convert.c: `sparsebit dequantize` and `convert`: quantized models as float models, and
 * in other formats.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/text.h"
#include "model/model.h"

static int cli_convert_write(const cli_args *args, const cli_model *model, sbit_graph *graph)
{
    sbit_error error;
    uint64_t bytes = 0;
    memset(&error, 0, sizeof error);
    if (sbit_graph_validate(graph, &error) != SBIT_OK ||
        sbit_graph_save(graph, args->out, NULL, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot write '%s'", args->out);
    }
    CLI_TRY(cli_file_bytes(args->out, &bytes));
    if (args->json) {
        cli_json json;
        cli_json_begin(&json);
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "model", args->operands[0]);
        sbit_json_text(&json.to, "out", args->out);
        sbit_json_text(&json.to, "format", args->format != NULL ? args->format : "float");
        sbit_json_int(&json.to, "bytes_before", (int64_t)model->file_bytes);
        sbit_json_int(&json.to, "bytes", (int64_t)bytes);
        sbit_json_close(&json.to, '}');
        return cli_json_print(&json);
    }
    char a[40], b[40];
    printf("%s, %s: %s, %s\n", args->operands[0],
           cli_bytes_text((double)model->file_bytes, a, sizeof a), args->out,
           cli_bytes_text((double)bytes, b, sizeof b));
    return CLI_OK;
}

static int cli_convert_model(const cli_args *args, const cli_model *model)
{
    sbit_graph *graph = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (!sbit_graph_is_quantized(model->graph)) {
        return cli_fail("'%s' is a float model: there is nothing to %s", model->path,
                        args->command);
    }
    error.status = args->format != NULL
                       ? sbit_format_convert(model->graph, args->format, &graph, &error)
                       : sbit_dequantize(model->graph, &graph, &error);
    if (error.status != SBIT_OK) {
        return cli_fail_library(&error, "cannot %s '%s'", args->command, model->path);
    }
    const int code = cli_convert_write(args, model, graph);
    sbit_graph_destroy(graph);
    return code;
}

int cli_convert(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_model model;
    CLI_TRY(cli_check_out(args));
    CLI_TRY(cli_context_create(args, 1, &ctx));
    int code = cli_model_load(ctx, args->operands[0], &model);
    if (code == CLI_OK) {
        code = cli_convert_model(args, &model);
        cli_model_free(&model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
