/* status.c: status texts and error details. >>status
 *
 * Called by: everything that fails. Calls: libc's vsnprintf.
 * Does: one text a status (from the X-macro list) and the three ways to fill a sbit_error.
 * Does not: keep any state, print, or allocate.
 */
#include "base_private.h"

#include <stdio.h> /* vsnprintf, snprintf */

SPARSEBIT_API const char *sbit_status_text(sbit_status status)
{
    static const struct {
        int value;
        const char *text;
    } rows[] = {
#define SBIT__STATUS_ROW(name, value, text) {value, text},
        SBIT_STATUS_LIST(SBIT__STATUS_ROW)
#undef SBIT__STATUS_ROW
    };
    for (size_t i = 0; i < SBIT__COUNT_OF(rows); i++) {
        if (rows[i].value == (int)status) {
            return rows[i].text;
        }
    }
    return "unknown status";
}

/* Formats into a buffer of its own first: arguments may be the old texts of `error` itself. */
static void sbit__status_fill(sbit_error *error, sbit_status status, const char *where,
                              const char *format, va_list args)
{
    char message[sizeof(error->message)];
    char place[sizeof(error->where)];
    size_t place_size = where != NULL ? strlen(where) : 0;
    if (place_size >= sizeof(place)) {
        place_size = sizeof(place) - 1;
    }
    if (place_size != 0) {
        memcpy(place, where, place_size);
    }
    place[place_size] = '\0';
    if (vsnprintf(message, sizeof(message), format, args) < 0) {
        message[0] = '\0';
    }
    error->status = status;
    memcpy(error->message, message, strlen(message) + 1);
    memcpy(error->where, place, place_size + 1);
}

SBIT__FN sbit_status sbit__fail(sbit_error *error, sbit_status status, const char *where,
                                const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        sbit__status_fill(error, status, where, format, args);
        va_end(args);
    }
    return status;
}

SBIT__FN sbit_status sbit__fail_at(sbit_error *error, sbit_status status, uint64_t byte_offset,
                                   const char *format, ...)
{
    if (error != NULL) {
        char where[32];
        va_list args;
        snprintf(where, sizeof(where), "byte %llu", (unsigned long long)byte_offset);
        va_start(args, format);
        sbit__status_fill(error, status, where, format, args);
        va_end(args);
    }
    return status;
}

SBIT__FN sbit_status sbit__fail_oom(sbit_error *error, size_t bytes)
{
    return sbit__fail(error, SBIT_ERR_OUT_OF_MEMORY, NULL,
                      "out of memory: %llu bytes could not be allocated",
                      (unsigned long long)bytes);
}
