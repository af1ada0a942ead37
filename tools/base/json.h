/* base/json.h: JSON is collected and printed at the end, so that a failure prints none of it.
 */
#ifndef SBIT_CLI_JSON_H
#define SBIT_CLI_JSON_H

#include "base/text.h"

typedef struct cli_json {
    sbit_json to; /* for sbit_json_open, sbit_json_text ... */
    cli_text text;
} cli_json;

void cli_json_begin(cli_json *json); /* must stay where it is */
int cli_json_print(cli_json *json);  /* and frees */
/* Under --json, a failure that printed no object prints {"error": {...}}: the first call says
 * whether --json is among the arguments, the second is made at the end. */
void cli_json_failures(int argc, char **argv);
void cli_json_fail(int code);
void cli_json_dims(sbit_json *to, const char *key, const sbit_graph *graph, const sbit_type *type);

#endif /* SBIT_CLI_JSON_H */
