/* base/text.h: text that grows.
 */
#ifndef SBIT_CLI_TEXT_H
#define SBIT_CLI_TEXT_H

#include "base/cli.h"

/* {0} starts. After a failed append `failed` stays set and nothing more is appended. */
typedef struct cli_text {
    char *data; /* NUL-terminated once something was appended */
    size_t size, capacity;
    bool failed;
} cli_text;

void cli_text_put(const char *data, size_t size, void *text); /* as sbit_json and others call it */
void cli_text_free(cli_text *text);

#endif /* SBIT_CLI_TEXT_H */
