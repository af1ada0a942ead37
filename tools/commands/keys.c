/* commands/keys.c: `sparsebit keys`: what a configuration of quantize or prune may say.
 */
#include "commands/commands.h"

static void cli_keys_put(const char *text, size_t size, void *user)
{
    fwrite(text, 1, size, (FILE *)user);
}

int cli_keys(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    static const char plain[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n";
    sbit_qconfig *config = NULL;
    sbit_sconfig *sparse = NULL;
    sbit_error error;
    (void)args;
    sbit_status status = sbit_ctx_create(NULL, &ctx, &error);
    status = status == SBIT_OK ? sbit_qconfig_create(ctx, NULL, &config, &error) : status;
    status =
        status == SBIT_OK ? sbit_qconfig_describe(config, cli_keys_put, stdout, &error) : status;
    status = status == SBIT_OK ? sbit_sconfig_read(ctx, plain, sizeof plain - 1, &sparse, &error) : status;
    if (status == SBIT_OK) {
        printf("\nPruning\n");
        status = sbit_sconfig_describe(sparse, cli_keys_put, stdout, &error);
    }
    sbit_sconfig_destroy(sparse);
    sbit_qconfig_destroy(config);
    sbit_ctx_destroy(ctx);
    return status == SBIT_OK ? CLI_OK : cli_fail_library(&error, "keys");
}
