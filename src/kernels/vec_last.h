/* vec_last.h: the float kernels with channels last over the vector operations of one instruction
 * set. >>vec_last
 *
 * last_private.h says what they do. Included once for each set, behind its vec_*.h. The sums of a
 * tile are an array whose bounds are constants in each copy of last_body: see vec_q8.h.
 */

/* >>storing */

/* Bounds of an activation that is a clamp or none. */
SBIT__V_INLINE SBIT__V(vf) SBIT__V(last_bound)(const sbit__last_store *store, bool upper)
{
    const bool clamp = store->activation == SBIT__ACT_CLAMP;
    return SBIT__V(set_f32)(upper ? (clamp ? store->hi : INFINITY)
                                  : (clamp ? store->lo : -INFINITY));
}

/* Rows of sums that already lie in the output, `columns` of each: + residual, activation. */
SBIT__V_TARGET static void SBIT__V(last_finish)(const sbit__last_store *store, int64_t rows,
                                                int64_t columns, int64_t step, float *out,
                                                int64_t first)
{
    const SBIT__V(vf) lo = SBIT__V(last_bound)(store, false);
    const SBIT__V(vf) hi = SBIT__V(last_bound)(store, true);
    const SBIT__V(vf) zero = SBIT__V(set_f32)(0.0f), one = SBIT__V(set_f32)(1.0f);
    const bool gate = store->activation == SBIT__ACT_HARDSWISH;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < columns; c += SBIT__V(lanes)) {
            const int64_t at = first + i * step + c, n = columns - c;
            SBIT__V(vf) v = SBIT__V(load_f32)(out + at, n);
            if (store->residual != NULL) {
                v = SBIT__V(add_f32)(v, SBIT__V(load_f32)(store->residual + at, n));
            }
            if (gate) {
                const SBIT__V(vf) g = SBIT__V(fma_f32)(v, SBIT__V(set_f32)(1.0f / 6.0f),
                                                       SBIT__V(set_f32)(0.5f));
                v = SBIT__V(mul_f32)(v, SBIT__V(min_f32)(one, SBIT__V(max_f32)(zero, g)));
            }
            v = SBIT__V(min_f32)(hi, SBIT__V(max_f32)(lo, v));
            SBIT__V(store_f32)(out + at, n, v);
        }
    }
}

/* >>tile */

SBIT__V_INLINE void SBIT__V(last_body)(int m, int vectors, const sbit__last_tile *tile,
                                       const float *const *row, float *out, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    const float *w = tile->weights;
    SBIT__V(vf) sum[SBIT__V(last_m)][SBIT__V(last_v)];
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        SBIT__V(vf) bias = SBIT__V(set_f32)(0.0f);
        if (tile->store.bias != NULL) {
            bias = SBIT__V(load_f32)(tile->store.bias + j * lanes, tile->columns - j * lanes);
        }
        SBIT__UNROLL for (int i = 0; i < m; i++)
        {
            sum[i][j] = bias;
        }
    }
    for (int64_t t = 0; t < tile->taps; t++) {
        const float *x[SBIT__V(last_m)];
        SBIT__UNROLL for (int i = 0; i < m; i++)
        {
            x[i] = row[t * tile->pitch + i];
        }
        for (int64_t k = 0; k < tile->depth; k++) {
            SBIT__V(vf) s[SBIT__V(last_v)];
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                s[j] = SBIT__V(load_f32)(w + j * lanes, lanes);
            }
            w += vectors * lanes;
            SBIT__UNROLL for (int i = 0; i < m; i++)
            {
                const SBIT__V(vf) u = SBIT__V(set_f32)(x[i][k]);
                SBIT__UNROLL for (int j = 0; j < vectors; j++)
                {
                    sum[i][j] = SBIT__V(fma_f32)(u, s[j], sum[i][j]);
                }
            }
        }
    }
    if (tile->columns < tile->width || tile->store.activation == SBIT__ACT_HARDSWISH) {
        SBIT__UNROLL for (int i = 0; i < m; i++)
        {
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                SBIT__V(store_f32)
                (out + at + i * tile->out_step + j * lanes, tile->columns - j * lanes, sum[i][j]);
            }
        }
        SBIT__V(last_finish)(&tile->store, m, tile->columns, tile->out_step, out, at);
        return;
    }
    const SBIT__V(vf) lo = SBIT__V(last_bound)(&tile->store, false);
    const SBIT__V(vf) hi = SBIT__V(last_bound)(&tile->store, true);
    const float *residual = tile->store.residual;
    if (residual != NULL) {
        SBIT__UNROLL for (int i = 0; i < m; i++)
        {
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                const float *from = residual + at + i * tile->out_step + j * lanes;
                sum[i][j] = SBIT__V(add_f32)(sum[i][j], SBIT__V(load_f32)(from, lanes));
            }
        }
    }
    SBIT__UNROLL for (int i = 0; i < m; i++)
    {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            SBIT__V(store_f32)
            (out + at + i * tile->out_step + j * lanes, lanes,
             SBIT__V(min_f32)(hi, SBIT__V(max_f32)(lo, sum[i][j])));
        }
    }
}

/* One copy for each size: rows are cut into nearly equal tiles, so that all are large. */
#define SBIT__LAST_CASE(m, v)                                                                      \
    case m:                                                                                        \
        SBIT__V(last_body)(m, v, tile, row, out, at);                                              \
        break;
#define SBIT__LAST_ROWS(v)                                                                         \
    SBIT__V_TARGET static void SBIT__V(last_rows##v)(int64_t m, const sbit__last_tile *tile,       \
                                                     const float *const *row, float *out,          \
                                                     int64_t at)                                   \
    {                                                                                              \
        switch (m) {                                                                               \
            SBIT__LAST_CASE(1, v)                                                                  \
            SBIT__LAST_CASE(2, v)                                                                  \
            SBIT__LAST_CASE(3, v)                                                                  \
            SBIT__LAST_CASE(4, v)                                                                  \
            SBIT__LAST_CASE(5, v)                                                                  \
            SBIT__LAST_CASE(6, v)                                                                  \
        default:                                                                                   \
            SBIT__V(last_body)(SBIT__V(last_m), v, tile, row, out, at);                            \
        }                                                                                          \
    }
SBIT__LAST_ROWS(1)
SBIT__LAST_ROWS(2)
#if SBIT__V_LAST > 2
SBIT__LAST_ROWS(3)
SBIT__LAST_ROWS(4)
#endif
#undef SBIT__LAST_CASE
#undef SBIT__LAST_ROWS

SBIT__V_TARGET static void SBIT__V(last_tile)(const sbit__last_tile *tile, int64_t rows,
                                              const float *const *row, float *out)
{
    const int64_t vectors = tile->width / SBIT__V(lanes);
    int64_t tiles = (rows + SBIT__V(last_m) - 1) / SBIT__V(last_m), i = 0;
    for (; tiles > 0; tiles--) {
        const int64_t m = (rows - i + tiles - 1) / tiles, at = i * tile->out_step;
        switch (vectors) {
        case 1:
            SBIT__V(last_rows1)(m, tile, row + i, out, at);
            break;
#if SBIT__V_LAST > 2
        case 3:
            SBIT__V(last_rows3)(m, tile, row + i, out, at);
            break;
        case 4:
            SBIT__V(last_rows4)(m, tile, row + i, out, at);
            break;
#endif
        default:
            SBIT__V(last_rows2)(m, tile, row + i, out, at);
        }
        i += m;
    }
}

/* >>depthwise */

SBIT__V_INLINE void SBIT__V(last_window)(int pixels, const sbit__last_window *d, int64_t n,
                                         int64_t c, const float *weights, const float *x, float *y,
                                         int64_t at)
{
    SBIT__V(vf) sum[8], bias = SBIT__V(set_f32)(0.0f);
    if (d->store.bias != NULL) {
        bias = SBIT__V(load_f32)(d->store.bias + c, n);
    }
    SBIT__UNROLL for (int i = 0; i < pixels; i++)
    {
        sum[i] = bias;
    }
    for (int64_t r = 0; r < d->rows; r++) {
        const float *from = x + r * d->row_step, *w = weights + r * d->weight_row;
        for (int64_t t = 0; t < d->taps; t++) {
            const SBIT__V(vf) s = SBIT__V(load_f32)(w + t * SBIT__V(lanes), SBIT__V(lanes));
            SBIT__UNROLL for (int i = 0; i < pixels; i++)
            {
                sum[i] = SBIT__V(fma_f32)(SBIT__V(load_f32)(from + i * d->pixel_step, n), s, sum[i]);
            }
            from += d->tap_step;
        }
    }
    const SBIT__V(vf) lo = SBIT__V(last_bound)(&d->store, false);
    const SBIT__V(vf) hi = SBIT__V(last_bound)(&d->store, true);
    const bool plain = d->store.activation != SBIT__ACT_HARDSWISH && d->store.residual == NULL;
    SBIT__UNROLL for (int i = 0; i < pixels; i++)
    {
        SBIT__V(store_f32)
        (y + at + i * d->out_step, n,
         plain ? SBIT__V(min_f32)(hi, SBIT__V(max_f32)(lo, sum[i])) : sum[i]);
    }
    if (!plain) {
        const int64_t lanes = SBIT__V(lanes);
        SBIT__V(last_finish)(&d->store, pixels, n < lanes ? n : lanes, d->out_step, y, at);
    }
}

SBIT__V_TARGET static void SBIT__V(last_depthwise)(const sbit__last_window *d, int64_t pixels,
                                                   const float *x, float *y)
{
    const int64_t lanes = SBIT__V(lanes);
    for (int64_t c = 0; c < d->channels; c += lanes) {
        const int64_t left = d->channels - c;
        const float *weights = d->weights + c / lanes * d->block_step;
        int64_t p = 0;
#define SBIT__LAST_PIXELS(count, n)                                                                \
    for (; p + count <= pixels; p += count) {                                                      \
        SBIT__V(last_window)                                                                       \
        (count, d, n, c, weights, x + p * d->pixel_step + c, y, p * d->out_step + c);              \
    }
        if (left >= lanes) {
            SBIT__LAST_PIXELS(7, lanes)
            SBIT__LAST_PIXELS(4, lanes)
            SBIT__LAST_PIXELS(2, lanes)
            SBIT__LAST_PIXELS(1, lanes)
        } else {
            SBIT__LAST_PIXELS(4, left)
            SBIT__LAST_PIXELS(1, left)
        }
#undef SBIT__LAST_PIXELS
    }
}

/* >>pools */

SBIT__V_INLINE void SBIT__V(last_pooled)(int vectors, int64_t n, int64_t c, int64_t count,
                                         const float *const *x, bool sum, float scale, float *y)
{
    const int64_t lanes = SBIT__V(lanes);
    SBIT__V(vf) v[4];
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        v[j] = SBIT__V(load_f32)(x[0] + c + j * lanes, n);
    }
    for (int64_t i = 1; i < count; i++) {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            const SBIT__V(vf) u = SBIT__V(load_f32)(x[i] + c + j * lanes, n);
            v[j] = sum ? SBIT__V(add_f32)(v[j], u) : SBIT__V(max_f32)(u, v[j]);
        }
    }
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        if (sum) {
            v[j] = SBIT__V(mul_f32)(v[j], SBIT__V(set_f32)(scale));
        }
        SBIT__V(store_f32)(y + c + j * lanes, n, v[j]);
    }
}

SBIT__V_TARGET static void SBIT__V(last_pool)(int64_t channels, int64_t count,
                                              const float *const *x, bool sum, float scale,
                                              float *y)
{
    const int64_t lanes = SBIT__V(lanes);
    int64_t c = 0;
    for (; c + 4 * lanes <= channels; c += 4 * lanes) {
        SBIT__V(last_pooled)(4, lanes, c, count, x, sum, scale, y);
    }
    for (; c + lanes <= channels; c += lanes) {
        SBIT__V(last_pooled)(1, lanes, c, count, x, sum, scale, y);
    }
    if (c < channels) {
        SBIT__V(last_pooled)(1, channels - c, c, count, x, sum, scale, y);
    }
}
