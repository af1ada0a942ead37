/* json_api.h: writing JSON (RFC 8259). >>json
 *
 * Called by: users, whatever writes reports. Calls: base.
 * Text goes out piece by piece; nothing is allocated. Reading: sbit_yaml_parse takes JSON too.
 */
#ifndef SBIT_JSON_API_H
#define SBIT_JSON_API_H

#include "core_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Commas are put where they belong; brackets are the caller's to balance. {put_fn, user} starts. */
typedef struct sbit_json {
    void (*put_fn)(const char *text, size_t size, void *user); /* pieces have no NUL */
    void *user;
    bool comma; /* internal: something stands before */
} sbit_json;

/* `key` is NULL in arrays and for the outermost value. bracket: '{' or '[', '}' or ']'. */
SPARSEBIT_API void sbit_json_open(sbit_json *json, const char *key, char bracket);
SPARSEBIT_API void sbit_json_close(sbit_json *json, char bracket);
/* NULL becomes null; a byte that is not UTF-8 becomes U+FFFD. */
SPARSEBIT_API void sbit_json_text(sbit_json *json, const char *key, const char *value);
SPARSEBIT_API void sbit_json_int(sbit_json *json, const char *key, int64_t value);
/* As few digits as read back equal; what is not finite becomes null. */
SPARSEBIT_API void sbit_json_number(sbit_json *json, const char *key, double value);
SPARSEBIT_API void sbit_json_bool(sbit_json *json, const char *key, bool value);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_JSON_API_H */
