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

/* Adds rows of `columns` floats, `step` apart, to rows of sums. */
SBIT__V_INLINE void SBIT__V(last_add)(int m, int vectors, const float *from, int64_t columns,
                                      int64_t step, SBIT__V(vf) * sum)
{
    const int64_t lanes = SBIT__V(lanes), end = columns - (vectors - 1) * lanes;
    SBIT__UNROLL16 for (int i = 0; i < m; i++)
    {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            const float *at = from + i * step + j * lanes;
            const SBIT__V(vf) v = SBIT__V(load_f32)(at, j < vectors - 1 ? lanes : end);
            sum[i * vectors + j] = SBIT__V(add_f32)(sum[i * vectors + j], v);
        }
    }
}

/* What becomes of rows of sums: + residual, activation, to out + at. `columns` of a row are stored. */
SBIT__V_INLINE void SBIT__V(last_put)(int m, int vectors, const sbit__last_store *store,
                                      const float *residual, int64_t columns, int64_t step,
                                      SBIT__V(vf) * sum, float *out, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes), end = columns - (vectors - 1) * lanes;
    const SBIT__V(vf) lo = SBIT__V(last_bound)(store, false);
    const SBIT__V(vf) hi = SBIT__V(last_bound)(store, true);
    if (residual != NULL) {
        SBIT__V(last_add)(m, vectors, residual + at, columns, step, sum);
    }
    if (store->activation == SBIT__ACT_HARDSWISH) {
        const SBIT__V(vf) zero = SBIT__V(set_f32)(0.0f), one = SBIT__V(set_f32)(1.0f);
        const SBIT__V(vf) sixth = SBIT__V(set_f32)(1.0f / 6.0f), half = SBIT__V(set_f32)(0.5f);
        SBIT__UNROLL16 for (int i = 0; i < m; i++)
        {
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                const SBIT__V(vf) v = sum[i * vectors + j];
                const SBIT__V(vf) g = SBIT__V(max_f32)(zero, SBIT__V(fma_f32)(v, sixth, half));
                sum[i * vectors + j] = SBIT__V(mul_f32)(v, SBIT__V(min_f32)(one, g));
            }
        }
    }
    SBIT__UNROLL16 for (int i = 0; i < m; i++)
    {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            const SBIT__V(vf) v = SBIT__V(max_f32)(lo, sum[i * vectors + j]);
            SBIT__V(store_f32)
            (out + at + i * step + j * lanes, j < vectors - 1 ? lanes : end, SBIT__V(min_f32)(hi, v));
        }
    }
}

/* >>tile */

enum {
    SBIT__V(last_narrow) = 8, /* rows of a tile with one vector: sums enough to wait for none */
    SBIT__V(last_terms) = 8   /* between two fetches, of several lines if need be */
};

/* sum: m * vectors, row after row. Meanwhile what stands from `ahead` to `end` is fetched, `step`
 * floats at a time, and a row at a time where the next tile puts its sums and what it adds to them, up to
 * out + soon_end. */
SBIT__V_INLINE void SBIT__V(last_body)(int m, int vectors, SBIT__V(vf) * sum,
                                       const sbit__last_tile *tile, const float *const *row,
                                       int64_t first, float *out, const float *ahead,
                                       const float *end, int64_t step, int64_t soon_end)
{
    const int64_t lanes = SBIT__V(lanes), at = first * tile->out_step;
    const float *w = tile->weights, *const residual = tile->store.residual;
    int64_t soon = at + m * tile->out_step;
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        SBIT__V(vf) bias = SBIT__V(set_f32)(0.0f);
        if (tile->store.bias != NULL && !tile->goes_on) {
            bias = SBIT__V(load_f32)(tile->store.bias + j * lanes, tile->columns - j * lanes);
        }
        SBIT__UNROLL16 for (int i = 0; i < m; i++)
        {
            sum[i * vectors + j] = bias;
        }
    }
    if (tile->goes_on) {
        SBIT__UNROLL16 for (int i = 0; i < m; i++)
        {
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                const float *from = out + at + i * tile->out_step + j * lanes;
                sum[i * vectors + j] = SBIT__V(load_f32)(from, tile->columns - j * lanes);
            }
        }
    }
    for (int64_t t = 0; t < tile->taps; t++) {
        const float *x[SBIT__V(last_narrow)];
        SBIT__UNROLL16 for (int i = 0; i < m; i++)
        {
            x[i] = row != NULL ? row[t * tile->pitch + first + i] + tile->shift
                               : tile->x + (first + i) * tile->x_step;
        }
        for (int64_t k = 0; k < tile->depth; k++) {
            if (k % SBIT__V(last_terms) == 0) {
                for (const float *last = ahead + step; ahead < end && ahead < last; ahead += 16) {
                    SBIT__PREFETCH(ahead);
                }
                if (soon < soon_end) {
                    SBIT__UNROLL for (int j = 0; j < vectors; j++)
                    {
                        SBIT__PREFETCH(out + soon + j * lanes);
                        if (residual != NULL) {
                            SBIT__PREFETCH(residual + soon + j * lanes);
                        }
                    }
                    soon += tile->out_step;
                }
            }
            SBIT__V(vf) s[SBIT__V(last_v)];
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                s[j] = SBIT__V(load_f32)(w + j * lanes, lanes);
            }
            w += tile->width;
            SBIT__UNROLL16 for (int i = 0; i < m; i++)
            {
                const SBIT__V(vf) u = SBIT__V(set_f32)(x[i][k]);
                SBIT__UNROLL for (int j = 0; j < vectors; j++)
                {
                    sum[i * vectors + j] = SBIT__V(fma_f32)(u, s[j], sum[i * vectors + j]);
                }
            }
        }
    }
    if (tile->adds) {
        SBIT__V(last_add)(m, vectors, out + at, tile->columns, tile->out_step, sum);
    }
    if (tile->behind != NULL) {
        SBIT__V(last_add)(m, vectors, tile->behind, tile->columns, 0, sum);
    }
    SBIT__V(last_put)
    (m, vectors, &tile->store, tile->store.residual, tile->columns, tile->out_step, sum, out, at);
}

/* One copy for each size. Rows are cut into nearly equal tiles, so that all are large. */
#define SBIT__LAST_CASE(m, v)                                                                      \
    case m: {                                                                                      \
        SBIT__V(vf) sum[(m) * (v)];                                                                \
        SBIT__V(last_body)(m, v, sum, tile, row, first, out, ahead, end, step, soon_end);          \
        break;                                                                                     \
    }
#define SBIT__LAST_ROWS(v, most, more)                                                             \
    SBIT__V_TARGET static void SBIT__V(last_rows##v)(int64_t m, const sbit__last_tile *tile,       \
                                                     const float *const *row, int64_t first,       \
                                                     float *out, const float *ahead,               \
                                                     const float *end, int64_t step,               \
                                                     int64_t soon_end)                             \
    {                                                                                              \
        switch (m) {                                                                               \
            SBIT__LAST_CASE(1, v)                                                                  \
            SBIT__LAST_CASE(2, v)                                                                  \
            SBIT__LAST_CASE(3, v)                                                                  \
            SBIT__LAST_CASE(4, v)                                                                  \
            SBIT__LAST_CASE(5, v)                                                                  \
            SBIT__LAST_CASE(6, v)                                                                  \
            more                                                                                   \
        default: {                                                                                 \
            SBIT__V(vf) sum[(most) * (v)];                                                         \
            SBIT__V(last_body)(most, v, sum, tile, row, first, out, ahead, end, step, soon_end);   \
        }                                                                                          \
        }                                                                                          \
    }
SBIT__LAST_ROWS(1, SBIT__V(last_narrow), SBIT__LAST_CASE(7, 1))
SBIT__LAST_ROWS(2, SBIT__V(last_m), )
#if SBIT__V_LAST > 2
SBIT__LAST_ROWS(3, SBIT__V(last_m), )
SBIT__LAST_ROWS(4, SBIT__V(last_m), )
#endif
#undef SBIT__LAST_CASE
#undef SBIT__LAST_ROWS

SBIT__V_TARGET static void SBIT__V(last_tile)(const sbit__last_tile *tile, int64_t rows,
                                              const float *const *row, float *out)
{
    const int64_t vectors = (tile->columns + SBIT__V(lanes) - 1) / SBIT__V(lanes);
    const int64_t narrow = SBIT__V(last_narrow), wide = SBIT__V(last_m);
    const int64_t most = vectors == 1 ? narrow : wide;
    const int64_t tiles = rows > 0 ? (rows + most - 1) / most : 1, more = rows % tiles;
    const int64_t part = tile->ahead / tiles; /* a tile's share of what is fetched */
    const int64_t step =
        part == 0 ? 0 : 16 * (part * SBIT__V(last_terms) / (16 * tile->taps * tile->depth + 1) + 1);
    int64_t m = rows / tiles + (more > 0 ? 1 : 0);
    for (int64_t i = 0, t = 0; i < rows; i += m, t++) {
        const float *ahead = part > 0 ? tile->next + t * part : tile->weights;
        const float *end = part == 0 || t + 1 < tiles ? ahead + part : tile->next + tile->ahead;
        m -= more > 0 && t == more ? 1 : 0;
        const int64_t next = i + 2 * m < rows ? i + 2 * m : rows;
        const int64_t soon_end = tile->fetches ? next * tile->out_step : 0;
        switch (vectors) {
        case 1:
            SBIT__V(last_rows1)(m, tile, row, i, out, ahead, end, step, soon_end);
            break;
#if SBIT__V_LAST > 2
        case 3:
            SBIT__V(last_rows3)(m, tile, row, i, out, ahead, end, step, soon_end);
            break;
        case 4:
            SBIT__V(last_rows4)(m, tile, row, i, out, ahead, end, step, soon_end);
            break;
#endif
        default:
            SBIT__V(last_rows2)(m, tile, row, i, out, ahead, end, step, soon_end);
        }
    }
}

/* >>stem: all broadcasts of a tile are at constant places behind one pointer */

SBIT__V_INLINE void SBIT__V(last_stem_body)(int pixels, int vectors, int stride, const sbit__last_stem *stem,
                                            const float *const *x, int64_t first, float *out)
{
    const int64_t lanes = SBIT__V(lanes), shift = stem->shift + first * stride;
    const float *w = stem->weights;
    SBIT__V(vf) sum[16];
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        SBIT__V(vf) bias = SBIT__V(set_f32)(0.0f);
        if (stem->store.bias != NULL) {
            bias = SBIT__V(load_f32)(stem->store.bias + j * lanes, stem->columns - j * lanes);
        }
        SBIT__UNROLL16 for (int i = 0; i < pixels; i++)
        {
            sum[i * vectors + j] = bias;
        }
    }
    for (int64_t t = 0; t < stem->taps; t++, x += stem->channels) {
        for (int64_t k = 0; k < stem->kernel; k++) {
            for (int64_t c = 0; c < stem->channels; c++, w += stem->width) {
                const float *from = x[c] + (shift + k);
                SBIT__OPAQUE(from);
                SBIT__V(vf) s[SBIT__V(last_v)];
                SBIT__UNROLL for (int j = 0; j < vectors; j++)
                {
                    s[j] = SBIT__V(load_f32)(w + j * lanes, lanes);
                }
                SBIT__UNROLL16 for (int i = 0; i < pixels; i++)
                {
                    const SBIT__V(vf) u = SBIT__V(set_f32)(from[i * stride]);
                    SBIT__UNROLL for (int j = 0; j < vectors; j++)
                    {
                        sum[i * vectors + j] = SBIT__V(fma_f32)(u, s[j], sum[i * vectors + j]);
                    }
                }
            }
        }
    }
    SBIT__V(last_put)
    (pixels, vectors, &stem->store, NULL, stem->columns, stem->out_step, sum, out, first * stem->out_step);
}

/* `most` pixels at a time, the last ones together with some that are made already, or one by one. */
#define SBIT__LAST_STEM(vectors, most)                                                             \
    SBIT__V_TARGET static void SBIT__V(last_stem##vectors)(const sbit__last_stem *stem,            \
                                                           int64_t pixels, const float *const *x,  \
                                                           float *out)                             \
    {                                                                                              \
        for (int64_t i = 0; i < pixels; i += pixels < (most) ? 1 : (most)) {                       \
            const int64_t at = i + (most) > pixels && pixels >= (most) ? pixels - (most) : i;      \
            if (pixels < (most) && stem->stride == 1) {                                            \
                SBIT__V(last_stem_body)(1, vectors, 1, stem, x, at, out);                          \
            } else if (pixels < (most)) {                                                          \
                SBIT__V(last_stem_body)(1, vectors, 2, stem, x, at, out);                          \
            } else if (stem->stride == 1) {                                                        \
                SBIT__V(last_stem_body)(most, vectors, 1, stem, x, at, out);                       \
            } else {                                                                               \
                SBIT__V(last_stem_body)(most, vectors, 2, stem, x, at, out);                       \
            }                                                                                      \
        }                                                                                          \
    }
#if SBIT__V_LAST > 2
SBIT__LAST_STEM(1, 16)
SBIT__LAST_STEM(2, 8)
SBIT__LAST_STEM(3, 5)
SBIT__LAST_STEM(4, 4)
#else
SBIT__LAST_STEM(1, 8)
SBIT__LAST_STEM(2, 4)
#endif
#undef SBIT__LAST_STEM

SBIT__V_TARGET static void SBIT__V(last_stem)(const sbit__last_stem *stem, int64_t pixels,
                                              const float *const *x, float *out)
{
    switch ((stem->columns + SBIT__V(lanes) - 1) / SBIT__V(lanes)) {
    case 1:
        SBIT__V(last_stem1)(stem, pixels, x, out);
        break;
#if SBIT__V_LAST > 2
    case 3:
        SBIT__V(last_stem3)(stem, pixels, x, out);
        break;
    case 4:
        SBIT__V(last_stem4)(stem, pixels, x, out);
        break;
#endif
    default:
        SBIT__V(last_stem2)(stem, pixels, x, out);
    }
}

/* >>sparse */

SBIT__V_TARGET static void SBIT__V(last_sparse)(int64_t columns, const int32_t *end, const int32_t *place,
                                                const float *weight, const float *x, const float *bias,
                                                float *sums)
{
    const int64_t lanes = SBIT__V(lanes);
    for (int64_t j = 0; j < columns; j++, sums += 4 * lanes) {
        SBIT__V(vf) s[4];
        SBIT__UNROLL for (int v = 0; v < 4; v++)
        {
            s[v] = bias != NULL ? SBIT__V(set_f32)(bias[j]) : SBIT__V(load_f32)(sums + v * lanes, lanes);
        }
        for (int64_t i = end[j]; i < end[j + 1]; i++) {
            const SBIT__V(vf) w = SBIT__V(set_f32)(weight[i]);
            const float *from = x + place[i];
            SBIT__UNROLL for (int v = 0; v < 4; v++)
            {
                s[v] = SBIT__V(fma_f32)(w, SBIT__V(load_f32)(from + v * lanes, lanes), s[v]);
            }
        }
        SBIT__UNROLL for (int v = 0; v < 4; v++)
        {
            SBIT__V(store_f32)(sums + v * lanes, lanes, s[v]);
        }
    }
}

/* >>depthwise */

/* n: channels of the last vector */
SBIT__V_INLINE SBIT__V(vf) SBIT__V(last_window_bias)(const sbit__last_window *d, int64_t c,
                                                     int64_t n)
{
    return d->store.bias != NULL ? SBIT__V(load_f32)(d->store.bias + c, n)
                                 : SBIT__V(set_f32)(0.0f);
}

/* Pixels x vectors of channels. */
SBIT__V_INLINE void SBIT__V(last_window)(int pixels, int vectors, const sbit__last_window *d,
                                         int64_t n, int64_t c, const float *weights, const float *x,
                                         float *y, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    SBIT__V(vf) sum[8];
    SBIT__UNROLL for (int i = 0; i < pixels * vectors; i++)
    {
        sum[i] = SBIT__V(last_window_bias)(d, c + i % vectors * lanes, n);
    }
    for (int64_t r = 0; r < d->rows; r++) {
        const float *from = x + r * d->row_step, *w = weights + r * d->weight_row;
        for (int64_t t = 0; t < d->taps; t++) {
            SBIT__UNROLL for (int i = 0; i < pixels * vectors; i++)
            {
                const SBIT__V(vf) s = SBIT__V(load_f32)(w + i % vectors * d->block_step, lanes);
                const float *at_x = from + i / vectors * d->pixel_step + i % vectors * lanes;
                sum[i] = SBIT__V(fma_f32)(SBIT__V(load_f32)(at_x, n), s, sum[i]);
            }
            from += d->tap_step;
            w += lanes;
        }
    }
    SBIT__V(last_put)
    (pixels, vectors, &d->store, NULL, (vectors - 1) * lanes + n, d->out_step, sum, y, at);
}

/* The same for whole rows of `taps` without dilation, one vector: an input pixel is read once for
 * all outputs that see it. */
SBIT__V_INLINE void SBIT__V(last_line)(int pixels, int taps, int stride, const sbit__last_window *d,
                                       int64_t c, const float *weights, const float *x, float *y,
                                       int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    SBIT__V(vf) sum[8];
    SBIT__UNROLL for (int i = 0; i < pixels; i++)
    {
        sum[i] = SBIT__V(last_window_bias)(d, c, lanes);
    }
    for (int64_t r = 0; r < d->rows; r++) {
        const float *from = x + r * d->row_step, *w = weights + r * d->weight_row;
        SBIT__V(vf) s[5];
        SBIT__UNROLL for (int t = 0; t < taps; t++)
        {
            s[t] = SBIT__V(load_f32)(w + t * lanes, lanes);
        }
        SBIT__UNROLL16 for (int j = 0; j < (pixels - 1) * stride + taps; j++)
        {
            SBIT__V(vf) v = SBIT__V(load_f32)(from + j * d->tap_step, lanes);
            SBIT__HELD(v);
            SBIT__UNROLL for (int t = 0; t < taps; t++)
            {
                const int i = (j - t) / stride;
                if (j >= t && i < pixels && i * stride == j - t) {
                    sum[i] = SBIT__V(fma_f32)(v, s[t], sum[i]);
                }
            }
        }
    }
    SBIT__V(last_put)(pixels, 1, &d->store, NULL, lanes, d->out_step, sum, y, at);
}

#define SBIT__LAST_LINE(pixels, taps, stride)                                                      \
    SBIT__V_TARGET static void SBIT__V(last_line_##pixels##_##taps##_##stride)(                    \
        const sbit__last_window *d, const float *x, float *y)                                      \
    {                                                                                              \
        const int64_t lanes = SBIT__V(lanes);                                                      \
        for (int64_t c = 0; c + lanes <= d->channels; c += lanes) {                                \
            SBIT__V(last_line)                                                                     \
            (pixels, taps, stride, d, c, d->weights + c / lanes * d->block_step, x + c, y, c);     \
        }                                                                                          \
    }
SBIT__LAST_LINE(7, 3, 1)
SBIT__LAST_LINE(4, 3, 1)
SBIT__LAST_LINE(7, 5, 1)
SBIT__LAST_LINE(4, 5, 1)
SBIT__LAST_LINE(7, 3, 2)
SBIT__LAST_LINE(4, 3, 2)
SBIT__LAST_LINE(4, 5, 2)
#undef SBIT__LAST_LINE

/* All whole vectors of some pixels; false: there is no copy for this window. */
SBIT__V_TARGET static bool SBIT__V(last_lines)(const sbit__last_window *d, int64_t pixels,
                                               const float *x, float *y)
{
    const int64_t stride = d->pixel_step / d->tap_step;
    if (stride * d->tap_step != d->pixel_step || stride > 2 || (d->taps != 3 && d->taps != 5)) {
        return false;
    }
    switch (pixels * 100 + d->taps * 10 + stride) {
    case 731:
        SBIT__V(last_line_7_3_1)(d, x, y);
        return true;
    case 431:
        SBIT__V(last_line_4_3_1)(d, x, y);
        return true;
    case 751:
        SBIT__V(last_line_7_5_1)(d, x, y);
        return true;
    case 451:
        SBIT__V(last_line_4_5_1)(d, x, y);
        return true;
    case 732:
        SBIT__V(last_line_7_3_2)(d, x, y);
        return true;
    case 432:
        SBIT__V(last_line_4_3_2)(d, x, y);
        return true;
    case 452:
        SBIT__V(last_line_4_5_2)(d, x, y);
        return true;
    default:
        return false;
    }
}

/* 7, 4 or 1 pixels, from channel c on. */
SBIT__V_TARGET static void SBIT__V(last_depthwise_few)(const sbit__last_window *d, int64_t pixels,
                                                       int64_t c, const float *x, float *y)
{
    const int64_t lanes = SBIT__V(lanes);
    for (int64_t step = lanes; c < d->channels; c += step) {
        const int64_t left = d->channels - c, n = left < lanes ? left : lanes;
        const float *weights = d->weights + c / lanes * d->block_step;
        if (pixels == 7) {
            SBIT__V(last_window)(7, 1, d, n, c, weights, x + c, y, c);
        } else if (pixels == 4) {
            SBIT__V(last_window)(4, 1, d, n, c, weights, x + c, y, c);
        } else if (left >= 4 * lanes) {
            SBIT__V(last_window)(1, 4, d, lanes, c, weights, x + c, y, c);
            step = 4 * lanes;
        } else {
            SBIT__V(last_window)(1, 1, d, n, c, weights, x + c, y, c);
            step = lanes;
        }
    }
}

SBIT__V_TARGET static void SBIT__V(last_depthwise)(const sbit__last_window *window, int64_t pixels,
                                                   const float *x, float *y)
{
    const int64_t lanes = SBIT__V(lanes), whole = window->channels / lanes * lanes;
    const bool wide = window->taps != 5 || window->pixel_step != 2 * window->tap_step;
    for (int64_t at = 0; at < pixels;) { /* the last few are computed together with others again */
        const int64_t left = pixels - at;
        const int64_t count = wide && pixels >= 7 && left >= 6 ? 7 : pixels >= 4 && left >= 2 ? 4 : 1;
        at -= left < count ? count - left : 0;
        const float *from = x + at * window->pixel_step;
        float *to = y + at * window->out_step;
        const bool done = count > 1 && SBIT__V(last_lines)(window, count, from, to);
        SBIT__V(last_depthwise_few)(window, count, done ? whole : 0, from, to);
        at += count;
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

/* >>peak: enough sums that none waits for the one before it. Equal ones would be computed once. */
SBIT__V_TARGET static int64_t SBIT__V(last_peak)(int64_t loops, float *sum)
{
    const SBIT__V(vf) a = SBIT__V(set_f32)(0.999f), b = SBIT__V(set_f32)(sum[0]);
    SBIT__V(vf) s[10];
    float part[SBIT__V(lanes)];
    SBIT__UNROLL16 for (int j = 0; j < 10; j++)
    {
        s[j] = SBIT__V(set_f32)((float)j);
    }
    for (int64_t i = 0; i < loops; i++) {
        SBIT__UNROLL16 for (int j = 0; j < 10; j++)
        {
            s[j] = SBIT__V(fma_f32)(s[j], a, b);
        }
    }
    SBIT__UNROLL16 for (int j = 1; j < 10; j++)
    {
        s[0] = SBIT__V(add_f32)(s[0], s[j]);
    }
    SBIT__V(store_f32)(part, SBIT__V(lanes), s[0]);
    sum[0] = part[0];
    return loops * 10 * SBIT__V(lanes);
}
