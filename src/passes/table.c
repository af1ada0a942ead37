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

static const sbit_head *sbit__pass_head(size_t index)
{
    return (const sbit_head *)sbit_pass_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_pass(void)
{
    static const sbit__kind kind = {"pass", sbit__pass_head};
    return &kind;
}

SPARSEBIT_API const sbit_pass_row *sbit_pass_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_pass_row *)(const void *)sbit__row_find(ctx, sbit__kind_pass(), name);
}

SPARSEBIT_API sbit_status sbit_pass_register(sbit_ctx *ctx, const sbit_pass_row *row,
                                             sbit_error *error)
{
    const bool complete = row != NULL && row->run != NULL;
    return sbit__row_register(ctx, sbit__kind_pass(), (const sbit_head *)row, complete, error);
}
