/* table.c: the built-in quantizers and those of the user. >>quantizer-table
 */
#include "quantizers_private.h"

typedef const sbit_quantizer_row *(*sbit__quantizer_fn)(void);

static const sbit__quantizer_fn sbit__quantizer_table[] = {
#define SBIT__QUANTIZER_ENTRY(name) sbit__quantizer_##name,
    SBIT__QUANTIZERS(SBIT__QUANTIZER_ENTRY)
#undef SBIT__QUANTIZER_ENTRY
};

SPARSEBIT_API const sbit_quantizer_row *sbit_quantizer_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__quantizer_table) ? sbit__quantizer_table[index]() : NULL;
}

static const sbit_head *sbit__quantizer_head(size_t index)
{
    return (const sbit_head *)sbit_quantizer_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_quantizer(void)
{
    static const sbit__kind kind = {"quantizer", sbit__quantizer_head};
    return &kind;
}

SPARSEBIT_API const sbit_quantizer_row *sbit_quantizer_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_quantizer_row *)(const void *)sbit__row_find(ctx, sbit__kind_quantizer(),
                                                                    name);
}

SBIT__FN const sbit_observer_row *sbit__quantizer_statistics(const sbit_quantizer_row *row,
                                                             uint32_t target,
                                                             const sbit_options *options)
{
    return row->statistics != NULL ? row->statistics(target, options) : NULL;
}

SPARSEBIT_API sbit_status sbit_quantizer_register(sbit_ctx *ctx, const sbit_quantizer_row *row,
                                                  sbit_error *error)
{
    const bool complete =
        row != NULL && row->state_bytes != NULL && row->init != NULL && row->forward != NULL;
    return sbit__row_register(ctx, sbit__kind_quantizer(), (const sbit_head *)row, complete, error);
}
