/* table.c: the built-in passes and those of the user. >>passes-table
 */
#include "passes_private.h"

typedef const sbit_pass_row *(*sbit__pass_fn)(void);

static const sbit__pass_fn sbit__pass_table[] = {
#define SBIT__PASS_ENTRY(name) sbit__pass_##name,
    SBIT__PASSES(SBIT__PASS_ENTRY)
#undef SBIT__PASS_ENTRY
};

SPARSEBIT_API const sbit_pass_row *sbit_pass_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__pass_table) ? sbit__pass_table[index]() : NULL;
}

SPARSEBIT_API const sbit_pass_row *sbit_pass_find(const sbit_ctx *ctx, const char *name)
{
    const void *row = sbit__strategy_find(ctx, SBIT__REG_PASS, name);
    for (size_t i = 0; row == NULL && i < SBIT__COUNT_OF(sbit__pass_table); i++) {
        const sbit_pass_row *built_in = sbit__pass_table[i]();
        row = sbit__same_word(built_in->name, name) ? built_in : NULL;
    }
    return (const sbit_pass_row *)row;
}

SPARSEBIT_API sbit_status sbit_pass_register(sbit_ctx *ctx, const sbit_pass_row *row,
                                             sbit_error *error)
{
    if (row == NULL || row->name == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "pass: the row has no name");
    }
    return sbit__strategy_register(ctx, SBIT__REG_PASS, "pass", row,
                                   sbit_pass_find(ctx, row->name) != NULL, row->run != NULL, error);
}
