/* commands/keys.c: `sparsebit keys`: what a quantization configuration may say.
 */
#include "commands/commands.h"

static void cli_keys_put(const char *text, size_t size, void *user)
{
    fwrite(text, 1, size, (FILE *)user);
}

int cli_keys(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    sbit_qconfig *config = NULL;
    sbit_error error;
    (void)args;
    sbit_status status = sbit_ctx_create(NULL, &ctx, &error);
    status = status == SBIT_OK ? sbit_qconfig_create(ctx, NULL, &config, &error) : status;
    status =
        status == SBIT_OK ? sbit_qconfig_describe(config, cli_keys_put, stdout, &error) : status;
    sbit_qconfig_destroy(config);
    sbit_ctx_destroy(ctx);
    return status == SBIT_OK ? CLI_OK : cli_fail_library(&error, "keys");
}
