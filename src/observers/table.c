/* table.c: the built-in observers and those of the user; what every piece of data is measured for.
 * >>observer-table
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

static const sbit_head *sbit__observer_head(size_t index)
{
    return (const sbit_head *)sbit_observer_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_observer(void)
{
    static const sbit__kind kind = {"observer", sbit__observer_head};
    return &kind;
}

SPARSEBIT_API const sbit_observer_row *sbit_observer_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_observer_row *)(const void *)sbit__row_find(ctx, sbit__kind_observer(),
                                                                   name);
}

SPARSEBIT_API sbit_status sbit_observer_register(sbit_ctx *ctx, const sbit_observer_row *row,
                                                 sbit_error *error)
{
    const bool complete = row != NULL && row->state_bytes != NULL && row->init != NULL &&
                          row->observe != NULL && row->range != NULL &&
                          (row->save == NULL) == (row->load == NULL);
    return sbit__row_register(ctx, sbit__kind_observer(), (const sbit_head *)row, complete, error);
}

SBIT__FN bool sbit__observation_measure(sbit_ctx *ctx, const float *data, const sbit_parts *parts,
                                        float *min, float *max)
{
    const sbit_kernels *kernels = sbit__kernels(ctx);
    sbit_runs runs = sbit_runs_of(parts);
    bool all_finite = true;
    for (int64_t p = 0; p < parts->count; p++) {
        min[p] = INFINITY;
        max[p] = -INFINITY;
    }
    while (sbit_runs_next(&runs)) {
        float lo = data[runs.at], hi = lo;
        bool finite = lo - lo == 0.0f;
        if (runs.count > 1) {
            kernels->f32_minmax(runs.count, data + runs.at, &lo, &hi, &finite);
        }
        min[runs.part] = lo < min[runs.part] ? lo : min[runs.part];
        max[runs.part] = hi > max[runs.part] ? hi : max[runs.part];
        all_finite = all_finite && finite;
    }
    return all_finite;
}
