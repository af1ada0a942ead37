/* table.c: the built-in sparsers and those of the user. >>sparser-table
 */
#include "sparsers_private.h"

typedef const sbit_sparser_row *(*sbit__sparser_fn)(void);

static const sbit__sparser_fn sbit__sparser_table[] = {
#define SBIT__SPARSER_ENTRY(name) sbit__sparser_##name,
    SBIT__SPARSERS(SBIT__SPARSER_ENTRY)
#undef SBIT__SPARSER_ENTRY
};

SPARSEBIT_API const sbit_sparser_row *sbit_sparser_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__sparser_table) ? sbit__sparser_table[index]() : NULL;
}

static const sbit_head *sbit__sparser_head(size_t index)
{
    return (const sbit_head *)sbit_sparser_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_sparser(void)
{
    static const sbit__kind kind = {"sparser", sbit__sparser_head};
    return &kind;
}

SPARSEBIT_API const sbit_sparser_row *sbit_sparser_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_sparser_row *)(const void *)sbit__row_find(ctx, sbit__kind_sparser(), name);
}

SPARSEBIT_API sbit_status sbit_sparser_register(sbit_ctx *ctx, const sbit_sparser_row *row,
                                                sbit_error *error)
{
    const bool complete = row != NULL && row->score != NULL && row->granularities != 0 &&
                          ((row->needs & ~(uint32_t)SBIT_NEEDS_GAMMA) == 0 ||
                           (row->observe != NULL && row->state_bytes != NULL));
    return sbit__row_register(ctx, sbit__kind_sparser(), (const sbit_head *)row, complete, error);
}
