/* fuzz_yaml.c: libFuzzer target for the YAML parser and the configuration on top of it.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -I.. fuzz_yaml.c ../tools/sparsebit_impl.c -lm
 */
#include "../sparsebit.h"

#include <string.h> /* memset */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sbit_ctx *ctx = NULL;
    sbit_yaml_doc *doc = NULL;
    sbit_qconfig *config = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_ctx_create(NULL, &ctx, &error) != SBIT_OK) {
        return 0;
    }
    if (sbit_yaml_parse(ctx, (const char *)data, size, &doc, &error) == SBIT_OK) {
        sbit_yaml_destroy(doc);
    }
    if (sbit_qconfig_read(ctx, (const char *)data, size, &config, &error) == SBIT_OK) {
        sbit_qconfig_destroy(config);
    }
    sbit_ctx_destroy(ctx);
    return 0;
}
