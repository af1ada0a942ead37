/* commands/compare.c: `sparsebit compare`: how much model B differs from model A, the reference.
 */
#include "commands/commands.h"
#include "report/difference.h"

enum {
    CLI_COMPARE_ROWS = 20 /* inner tensors shown without --json */
};

static int cli_compare_show(cli_comparison *c)
{
    cli_json json;
    if (!c->args->json) {
        return cli_compare_print(c, CLI_COMPARE_ROWS);
    }
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "a", c->a.path);
    sbit_json_text(&json.to, "b", c->b.path);
    cli_compare_json(&json, c);
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

int cli_compare(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_comparison c;
    memset(&c, 0, sizeof c);
    c.args = args;
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &c.a);
    code = code == CLI_OK ? cli_model_load(ctx, args->operands[1], &c.b) : code;
    code = code == CLI_OK ? cli_compare_run(&c) : code;
    code = code == CLI_OK ? cli_compare_show(&c) : code;
    cli_compare_free(&c);
    sbit_ctx_destroy(ctx);
    return code;
}
