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

SPARSEBIT_API const sbit_quantizer_row *sbit_quantizer_find(const sbit_ctx *ctx, const char *name)
{
    const void *row = sbit__strategy_find(ctx, SBIT__REG_QUANTIZER, name);
    for (size_t i = 0; row == NULL && i < SBIT__COUNT_OF(sbit__quantizer_table); i++) {
        const sbit_quantizer_row *built_in = sbit__quantizer_table[i]();
        row = sbit__same_word(built_in->name, name) ? built_in : NULL;
    }
    return (const sbit_quantizer_row *)row;
}

SPARSEBIT_API sbit_status sbit_quantizer_register(sbit_ctx *ctx, const sbit_quantizer_row *row,
                                                  sbit_error *error)
{
    const bool complete = row->state_bytes != NULL && row->init != NULL && row->forward != NULL;
    return sbit__strategy_register(ctx, SBIT__REG_QUANTIZER, "quantizer", row,
                                   sbit_quantizer_find(ctx, row->name) != NULL, complete, error);
}
