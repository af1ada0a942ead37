/* table.c: the built-in observers and those of the user. >>observer-table
 */
#include "observers_private.h"

typedef const sbit_observer_row *(*sbit__observer_fn)(void);

static const sbit__observer_fn sbit__observer_table[] = {
#define SBIT__OBSERVER_ENTRY(name) sbit__observer_##name,
    SBIT__OBSERVERS(SBIT__OBSERVER_ENTRY)
#undef SBIT__OBSERVER_ENTRY
};

SPARSEBIT_API const sbit_observer_row *sbit_observer_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__observer_table) ? sbit__observer_table[index]() : NULL;
}

SPARSEBIT_API const sbit_observer_row *sbit_observer_find(const sbit_ctx *ctx, const char *name)
{
    const void *row = sbit__strategy_find(ctx, SBIT__REG_OBSERVER, name);
    for (size_t i = 0; row == NULL && i < SBIT__COUNT_OF(sbit__observer_table); i++) {
        const sbit_observer_row *built_in = sbit__observer_table[i]();
        row = sbit__same_word(built_in->name, name) ? built_in : NULL;
    }
    return (const sbit_observer_row *)row;
}

SPARSEBIT_API sbit_status sbit_observer_register(sbit_ctx *ctx, const sbit_observer_row *row,
                                                 sbit_error *error)
{
    const bool complete =
        row->state_bytes != NULL && row->init != NULL && row->observe != NULL && row->range != NULL;
    return sbit__strategy_register(ctx, SBIT__REG_OBSERVER, "observer", row,
                                   sbit_observer_find(ctx, row->name) != NULL, complete, error);
}
