/* rows.c: finding, listing and adding the rows of strategies of any kind. >>rows
 *
 * Called by: the layers that own a kind. Calls: the context's registry.
 */
#include "config_private.h"

SBIT__FN const sbit_head *sbit__row_at(const sbit_ctx *ctx, const sbit__kind *kind, size_t index)
{
    for (size_t i = 0;; i++) {
        const sbit_head *row = kind->at(i);
        if (row == NULL || i == index) {
            return row != NULL ? row : (const sbit_head *)sbit__registry_at(ctx, kind, index - i);
        }
    }
}

SBIT__FN const sbit_head *sbit__row_find(const sbit_ctx *ctx, const sbit__kind *kind,
                                         const char *name)
{
    const sbit_head *row;
    for (size_t i = 0; (row = sbit__row_at(ctx, kind, i)) != NULL; i++) {
        if (sbit__same_word(row->name, name)) {
            return row;
        }
    }
    return NULL;
}

SBIT__FN void sbit__row_names(const sbit_ctx *ctx, const sbit__kind *kind, uint32_t target,
                              const char *between, sbit__text *out)
{
    const sbit_head *row;
    bool any = false;
    for (size_t i = 0; (row = sbit__row_at(ctx, kind, i)) != NULL; i++) {
        if (target == 0 || (row->targets & target) != 0) {
            sbit__text_printf(out, "%s%s", any ? between : "", row->name);
            any = true;
        }
    }
}

SBIT__FN sbit_status sbit__row_register(sbit_ctx *ctx, const sbit__kind *kind, const sbit_head *row,
                                        bool complete, sbit_error *error)
{
    if (row == NULL || row->name == NULL || row->name[0] == '\0') {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "%s: the row has no name",
                          kind->what);
    }
    if (!complete) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, row->name,
                          "%s '%s' lacks a function that is not optional", kind->what, row->name);
    }
    if (sbit__row_find(ctx, kind, row->name) != NULL) {
        return sbit__fail(error, SBIT_ERR_DUPLICATE, row->name, "%s '%s' exists already",
                          kind->what, row->name);
    }
    return sbit__registry_add(ctx, kind, row, error);
}
