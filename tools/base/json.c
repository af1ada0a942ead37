/* base/json.c: JSON (RFC 8259) in memory, printed when all of it is there.
 *
 * Text that is not UTF-8 becomes U+FFFD per byte; numbers that are not finite become null.
 */
#include "base/json.h"

#include <math.h>   /* isfinite */
#include <stdlib.h> /* realloc */

static void cli_json_put(cli_json *json, const char *text, size_t size)
{
    if (json->failed) {
        return;
    }
    if (json->size + size > json->capacity) {
        const size_t capacity = (json->size + size) * 2 + 256;
        char *moved = (char *)realloc(json->text, capacity);
        if (moved == NULL) {
            json->failed = true;
            return;
        }
        json->text = moved;
        json->capacity = capacity;
    }
    memcpy(json->text + json->size, text, size);
    json->size += size;
}

/* Bytes of the valid UTF-8 sequence at `text`; 0: invalid. */
static size_t cli_utf8_size(const unsigned char *text)
{
    const unsigned char lead = text[0];
    const size_t size = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xf0 && text[1] < 0x90);
    const bool outside = (lead == 0xed && text[1] > 0x9f) || (lead == 0xf4 && text[1] > 0x8f);
    return overlong || outside ? 0 : size;
}

static void cli_json_quote(cli_json *json, const char *text)
{
    cli_json_put(json, "\"", 1);
    while (*text != '\0') {
        char escape[8];
        const unsigned char ch = (unsigned char)*text;
        const size_t size = cli_utf8_size((const unsigned char *)text);
        if (ch == '"' || ch == '\\') {
            snprintf(escape, sizeof escape, "\\%c", ch);
            cli_json_put(json, escape, 2);
        } else if (ch < 0x20 || ch == 0x7f || size == 0) {
            snprintf(escape, sizeof escape, "\\u%04x", size == 0 ? 0xfffdu : (unsigned)ch);
            cli_json_put(json, escape, 6);
        } else {
            cli_json_put(json, text, size);
        }
        text += size > 0 ? size : 1;
    }
    cli_json_put(json, "\"", 1);
}

static void cli_json_key(cli_json *json, const char *key)
{
    if (json->comma) {
        cli_json_put(json, ", ", 2);
    }
    if (key != NULL) {
        cli_json_quote(json, key);
        cli_json_put(json, ": ", 2);
    }
    json->comma = true;
}

void cli_json_open(cli_json *json, const char *key, char bracket)
{
    cli_json_key(json, key);
    cli_json_put(json, &bracket, 1);
    json->comma = false;
}

void cli_json_close(cli_json *json, char bracket)
{
    cli_json_put(json, &bracket, 1);
    json->comma = true;
}

void cli_json_text(cli_json *json, const char *key, const char *value)
{
    cli_json_key(json, key);
    cli_json_quote(json, value);
}

void cli_json_int(cli_json *json, const char *key, int64_t value)
{
    char text[32];
    cli_json_key(json, key);
    snprintf(text, sizeof text, "%lld", (long long)value);
    cli_json_put(json, text, strlen(text));
}

void cli_json_number(cli_json *json, const char *key, double value)
{
    char text[40];
    cli_json_key(json, key);
    if (isfinite(value)) {
        snprintf(text, sizeof text, "%.9g", value);
    } else {
        snprintf(text, sizeof text, "null");
    }
    cli_json_put(json, text, strlen(text));
}

void cli_json_bool(cli_json *json, const char *key, bool value)
{
    cli_json_key(json, key);
    cli_json_put(json, value ? "true" : "false", value ? 4 : 5);
}

void cli_json_dims(cli_json *json, const char *key, const sbit_graph *graph, const sbit_type *type)
{
    cli_json_open(json, key, '[');
    for (int32_t i = 0; i < type->rank; i++) {
        if (type->dims[i].symbol == 0) {
            cli_json_int(json, NULL, type->dims[i].value);
        } else if (type->dims[i].symbol == SBIT_SYMBOL_ANY) {
            cli_json_text(json, NULL, "?");
        } else {
            cli_json_text(json, NULL, sbit_graph_symbol_name(graph, type->dims[i].symbol));
        }
    }
    cli_json_close(json, ']');
}

int cli_json_print(cli_json *json)
{
    cli_json_put(json, "\n", 1);
    const bool failed = json->failed;
    const size_t wanted = json->size;
    const bool written = !failed && fwrite(json->text, 1, json->size, stdout) == json->size;
    cli_json_free(json);
    return failed    ? cli_fail_memory(wanted)
           : written ? CLI_OK
                     : cli_fail("stdout cannot be written");
}

void cli_json_free(cli_json *json)
{
    free(json->text);
    memset(json, 0, sizeof *json);
}
