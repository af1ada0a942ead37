/* strategy_rows.h: rows of observers and quantizers called by hand, as the quantization does it.
 * Shared by test_strategies.c and test_golden.c, which are split tests.
 */
#ifndef SBIT_TEST_STRATEGY_ROWS_H
#define SBIT_TEST_STRATEGY_ROWS_H

#include "../src/quant/quant_private.h"
#include "test.h"

/* A row at work on tensors of one kind; zero it, then rows_begin. */
typedef struct rows {
    sbit_ctx *ctx;
    sbit__arena arena;
    sbit_options options;
    sbit_grid grid;
    uint32_t target;
    int32_t axis;
    int64_t block;
} rows;

TEST_FN sbit_tensor rows_tensor(const float *data, int rank, const int64_t *dims)
{
    sbit_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = SBIT_F32;
    t.rank = rank;
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    t.data = (void *)(uintptr_t)data;
    return t;
}

/* The grid of a scheme, as qconfig.c makes it. */
TEST_FN void rows_begin(rows *r, sbit_ctx *ctx, const sbit_head *row, const char *prefix,
                        uint32_t target, bool symmetric, int bits, const sbit_tensor *shape,
                        int32_t axis, int64_t block)
{
    sbit_error error;
    const sbit__key_table table = {prefix, row->keys, row->key_count};
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    sbit__arena_init(&r->arena, sbit_ctx_allocator(ctx));
    CHECK_OK(sbit__options_init(&r->arena, &table, row->key_count > 0 ? 1 : 0, &r->options, &error),
             error);
    r->target = target;
    r->axis = axis;
    r->block = block;
    r->grid.bits = bits;
    r->grid.symmetric = symmetric;
    r->grid.qmin = symmetric ? -(1 << (bits - 1)) : 0;
    r->grid.qmax = symmetric ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    r->grid.dtype = bits > 8 ? symmetric ? SBIT_I16 : SBIT_U16 : symmetric ? SBIT_I8 : SBIT_U8;
    r->grid.parts = sbit_parts_of(shape, axis, block);
}

TEST_FN void rows_set(rows *r, const char *path, const char *value)
{
    sbit_error error;
    sbit_yaml scalar;
    memset(&scalar, 0, sizeof scalar);
    scalar.kind = SBIT_YAML_SCALAR;
    scalar.text = value;
    CHECK_OK(sbit__options_set(&r->arena, &r->options, path, &scalar, "", &error), error);
}

TEST_FN void rows_end(rows *r)
{
    sbit__arena_deinit(&r->arena);
}

TEST_FN sbit_observer_call rows_observer_call(const rows *r)
{
    sbit_observer_call call;
    call.ctx = r->ctx;
    call.name = "x";
    call.target = r->target;
    call.grid = &r->grid;
    call.options = &r->options;
    return call;
}

/* One piece of data; `range` has room for two numbers a part. */
TEST_FN bool rows_observe(const rows *r, const sbit_observer_row *row, void *state,
                          const sbit_tensor *piece, float *range)
{
    sbit_error error;
    sbit_observation x;
    const sbit_observer_call call = rows_observer_call(r);
    memset(&x, 0, sizeof x);
    x.data = (const float *)piece->data;
    x.parts = sbit_parts_of(piece, r->axis, r->block);
    x.samples = r->axis != 0 && piece->rank > 0 ? piece->dims[0] : 1;
    x.min = range;
    x.max = range + x.parts.count;
    return CHECK(
               sbit__observation_measure(r->ctx, x.data, &x.parts, range, range + x.parts.count)) &&
           CHECK_OK(row->observe(state, &call, &x, &error), error);
}

TEST_FN void *rows_state(const rows *r, const sbit_observer_row *row)
{
    sbit_error error;
    const sbit_observer_call call = rows_observer_call(r);
    void *state = calloc(1, row->state_bytes(&call) + 1);
    CHECK_OK(row->init(state, &call, &error), error);
    return state;
}

TEST_FN void rows_free(const rows *r, const sbit_observer_row *row, void *state)
{
    const sbit_observer_call call = rows_observer_call(r);
    if (row->deinit != NULL) {
        row->deinit(state, &call);
    }
    free(state);
}

/* Feeds a tensor cut along dim 0 into pieces of the given lengths, pass after pass. */
TEST_FN void rows_feed(const rows *r, const sbit_observer_row *row, void *state,
                       const sbit_tensor *x, const int64_t *cuts, size_t count)
{
    const sbit_observer_call call = rows_observer_call(r);
    float *range = (float *)malloc((size_t)r->grid.parts.count * 2 * sizeof(float));
    sbit_error error;
    bool wanted = true;
    for (int pass = 0; wanted && CHECK(pass < 64); pass++) {
        int64_t first = 0;
        for (size_t i = 0; i < count; i++) {
            sbit_tensor piece = *x;
            const int64_t each = sbit_tensor_count(x) / (x->dims[0] > 0 ? x->dims[0] : 1);
            piece.dims[0] = cuts[i];
            piece.data = (float *)x->data + first * each;
            first += cuts[i];
            if (cuts[i] > 0) {
                rows_observe(r, row, state, &piece, range);
            }
        }
        wanted = false;
        if (row->again != NULL) {
            CHECK_OK(row->again(state, &call, &wanted, &error), error);
        }
    }
    free(range);
}

/* Ranges of data seen in pieces. */
TEST_FN void rows_range(const rows *r, const sbit_observer_row *row, const sbit_tensor *x,
                        const int64_t *cuts, size_t count, float *min, float *max)
{
    const sbit_observer_call call = rows_observer_call(r);
    void *state = rows_state(r, row);
    sbit_error error;
    rows_feed(r, row, state, x, cuts, count);
    CHECK_OK(row->range(state, &call, min, max, &error), error);
    rows_free(r, row, state);
}

#endif /* SBIT_TEST_STRATEGY_ROWS_H */
