/* strategies.c: finding and adding the rows that users register. >>strategies
 */
#include "config_private.h"

/* The name that every strategy row begins with. */
static const char *sbit__strategy_name(const void *row)
{
    return *(const char *const *)row;
}

SBIT__FN const void *sbit__strategy_find(const sbit_ctx *ctx, enum sbit__registry_kind kind,
                                         const char *name)
{
    size_t count = 0;
    const void *const *rows = sbit__registry_rows(ctx, kind, &count);
    for (size_t i = 0; i < count; i++) {
        if (sbit__same_word(sbit__strategy_name(rows[i]), name)) {
            return rows[i];
        }
    }
    return NULL;
}

SBIT__FN sbit_status sbit__strategy_register(sbit_ctx *ctx, enum sbit__registry_kind kind,
                                             const char *what, const void *row, bool taken,
                                             bool complete, sbit_error *error)
{
    const char *name = sbit__strategy_name(row);
    if (name == NULL || name[0] == '\0') {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "%s: the row has no name", what);
    }
    if (!complete) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, name,
                          "%s '%s' lacks a function that is not optional", what, name);
    }
    if (taken) {
        return sbit__fail(error, SBIT_ERR_DUPLICATE, name, "%s '%s' exists already", what, name);
    }
    return sbit__registry_add(ctx, kind, row, error);
}
