/* base/json.h: JSON is collected and printed at the end, so that a failure prints none.
 */
#ifndef SBIT_CLI_JSON_H
#define SBIT_CLI_JSON_H

#include "base/cli.h"

typedef struct cli_json {
    char *text;
    size_t size, capacity;
    bool failed, comma;
} cli_json;

void cli_json_open(cli_json *json, const char *key, char bracket); /* '{' or '['; key may be NULL */
void cli_json_close(cli_json *json, char bracket);                 /* '}' or ']' */
void cli_json_text(cli_json *json, const char *key, const char *value);
void cli_json_int(cli_json *json, const char *key, int64_t value);
void cli_json_number(cli_json *json, const char *key, double value); /* not finite: null */
void cli_json_bool(cli_json *json, const char *key, bool value);
void cli_json_dims(cli_json *json, const char *key, const sbit_graph *graph, const sbit_type *type);
int cli_json_print(cli_json *json); /* and frees */
void cli_json_free(cli_json *json);

#endif /* SBIT_CLI_JSON_H */
