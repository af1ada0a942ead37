/* base/json.c: what the library's JSON writer is given to write to, dims, failures.
 */
#include "base/json.h"

static struct {
    bool wanted, printed;
} cli_json_state;

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
    cli_json_state.printed = true;
    return failed ? cli_fail_memory(size) : written ? CLI_OK : cli_fail("stdout cannot be written");
}

void cli_json_failures(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        cli_json_state.wanted = cli_json_state.wanted || strcmp(argv[i], "--json") == 0;
    }
}

void cli_json_fail(int code)
{
    cli_json json;
    if (code == CLI_OK || !cli_json_state.wanted || cli_json_state.printed) {
        return;
    }
    const size_t count = cli_failure_count();
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_open(&json.to, "error", '{');
    sbit_json_text(&json.to, "message", count > 0 ? cli_failure_at(count - 1) : "");
    sbit_json_int(&json.to, "exit_code", code);
    sbit_json_open(&json.to, "before", '['); /* what was said before it */
    for (size_t i = 0; i + 1 < count; i++) {
        sbit_json_text(&json.to, NULL, cli_failure_at(i));
    }
    sbit_json_close(&json.to, ']');
    sbit_json_close(&json.to, '}');
    sbit_json_close(&json.to, '}');
    cli_json_print(&json);
}
