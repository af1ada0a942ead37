/* json.c: the JSON writer. >>json
 *
 * Called by: the layers above, users. Calls: sbit__format_f64.
 */
#include "core_private.h"
#include "json_api.h"

#include <math.h>  /* isfinite */
#include <stdio.h> /* snprintf */

static void sbit__json_put(sbit_json *json, const char *text, size_t size)
{
    json->put_fn(text, size, json->user);
}

/* Bytes of the UTF-8 sequence at `text` (RFC 3629: no overlong forms, no surrogates); 0: invalid.
 */
static size_t sbit__utf8_size(const unsigned char *text)
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

static void sbit__json_quote(sbit_json *json, const char *text)
{
    sbit__json_put(json, "\"", 1);
    while (*text != '\0') {
        char escape[8];
        const unsigned char ch = (unsigned char)*text;
        const size_t size = sbit__utf8_size((const unsigned char *)text);
        if (ch == '"' || ch == '\\') {
            snprintf(escape, sizeof escape, "\\%c", ch);
            sbit__json_put(json, escape, 2);
        } else if (ch < 0x20 || ch == 0x7f || size == 0) {
            snprintf(escape, sizeof escape, "\\u%04x", size == 0 ? 0xfffdu : (unsigned)ch);
            sbit__json_put(json, escape, 6);
        } else {
            sbit__json_put(json, text, size);
        }
        text += size > 0 ? size : 1;
    }
    sbit__json_put(json, "\"", 1);
}

/* What stands in front of a value. */
static void sbit__json_key(sbit_json *json, const char *key)
{
    if (json->comma) {
        sbit__json_put(json, ", ", 2);
    }
    if (key != NULL) {
        sbit__json_quote(json, key);
        sbit__json_put(json, ": ", 2);
    }
    json->comma = true;
}

SPARSEBIT_API void sbit_json_open(sbit_json *json, const char *key, char bracket)
{
    sbit__json_key(json, key);
    sbit__json_put(json, &bracket, 1);
    json->comma = false;
}

SPARSEBIT_API void sbit_json_close(sbit_json *json, char bracket)
{
    sbit__json_put(json, &bracket, 1);
    json->comma = true;
}

SPARSEBIT_API void sbit_json_text(sbit_json *json, const char *key, const char *value)
{
    sbit__json_key(json, key);
    if (value == NULL) {
        sbit__json_put(json, "null", 4);
    } else {
        sbit__json_quote(json, value);
    }
}

SPARSEBIT_API void sbit_json_int(sbit_json *json, const char *key, int64_t value)
{
    char text[32];
    sbit__json_key(json, key);
    snprintf(text, sizeof text, "%lld", (long long)value);
    sbit__json_put(json, text, strlen(text));
}

SPARSEBIT_API void sbit_json_number(sbit_json *json, const char *key, double value)
{
    char text[40];
    sbit__json_key(json, key);
    if (isfinite(value)) {
        sbit__json_put(json, text, sbit__format_f64(value, false, text));
    } else {
        sbit__json_put(json, "null", 4);
    }
}

SPARSEBIT_API void sbit_json_bool(sbit_json *json, const char *key, bool value)
{
    sbit__json_key(json, key);
    sbit__json_put(json, value ? "true" : "false", value ? 4 : 5);
}

/* >>json files */

static void sbit__json_file_put(const char *text, size_t size, void *user)
{
    sbit__json_file *file = (sbit__json_file *)user;
    if (file->status == SBIT_OK) {
        file->status = sbit__writer_put(&file->writer, text, size, file->error);
    }
}

SBIT__FN sbit_status sbit__json_file_open(sbit__json_file *file, sbit_ctx *ctx, const char *path,
                                          sbit_json *json, sbit_error *error)
{
    memset(file, 0, sizeof *file);
    memset(json, 0, sizeof *json);
    file->error = error;
    json->put_fn = sbit__json_file_put;
    json->user = file;
    return sbit__writer_open(sbit_ctx_allocator(ctx), path, &file->writer, error);
}

SBIT__FN sbit_status sbit__json_file_close(sbit__json_file *file)
{
    sbit__json_file_put("\n", 1, file);
    if (file->status != SBIT_OK) {
        sbit__writer_abort(&file->writer);
        return file->status;
    }
    return sbit__writer_commit(&file->writer, file->error);
}
