/* base/json.c: what the library's JSON writer is given to write to, and dims.
 */
#include "base/json.h"

void cli_json_begin(cli_json *json)
{
    memset(json, 0, sizeof *json);
    json->to.put_fn = cli_text_put;
    json->to.user = &json->text;
}

void cli_json_dims(sbit_json *to, const char *key, const sbit_graph *graph, const sbit_type *type)
{
    sbit_json_open(to, key, '[');
    for (int32_t i = 0; i < type->rank; i++) {
        if (type->dims[i].symbol == 0) {
            sbit_json_int(to, NULL, type->dims[i].value);
        } else if (type->dims[i].symbol == SBIT_SYMBOL_ANY) {
            sbit_json_text(to, NULL, "?");
        } else {
            sbit_json_text(to, NULL, sbit_graph_symbol_name(graph, type->dims[i].symbol));
        }
    }
    sbit_json_close(to, ']');
}

int cli_json_print(cli_json *json)
{
    cli_text_put("\n", 1, &json->text);
    const bool failed = json->text.failed;
    const size_t size = json->text.size;
    const bool written = !failed && fwrite(json->text.data, 1, size, stdout) == size;
    cli_text_free(&json->text);
    return failed ? cli_fail_memory(size) : written ? CLI_OK : cli_fail("stdout cannot be written");
}
