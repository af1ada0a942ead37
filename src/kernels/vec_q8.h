/* vec_q8.h: the integer kernels over the vector operations of one instruction set. >>vec_q8
 *
 * q8_private.h says what they do. Included once for each set, behind its vec_*.h.
 * A tile's sums are an array whose bounds are constants in each of its copies, so that unrolled
 * loops keep it in registers; gcc and clang each want a pragma of their own for that.
 */

/* >>storing */

/* What bytes are made with. */
typedef struct SBIT__V(q8_bounds) {
    SBIT__V(vb) zero, lo, hi; /* zero: of 16 bits */
    bool plain;               /* no zero point, and bounds that bytes have anyway */
} SBIT__V(q8_bounds);

SBIT__V_INLINE SBIT__V(q8_bounds) SBIT__V(q8_bounds_of)(const sbit__q8_store *store)
{
    SBIT__V(q8_bounds) bounds;
    bounds.zero = SBIT__V(set_words)((int16_t)store->zero);
    bounds.lo = SBIT__V(set_bytes)((uint8_t)store->lo);
    bounds.hi = SBIT__V(set_bytes)((uint8_t)store->hi);
    bounds.plain = store->zero == 0 && store->lo == 0 && store->hi == 255;
    return bounds;
}

/* Integers without their zero point to bytes in narrow's order. */
SBIT__V_INLINE SBIT__V(vb) SBIT__V(q8_narrow)(const SBIT__V(q8_bounds) * bounds, const SBIT__V(vi) * q)
{
    if (bounds->plain) {
        return SBIT__V(narrow)(q[0], q[1], q[2], q[3], SBIT__V(set_words)(0));
    }
    const SBIT__V(vb) bytes = SBIT__V(narrow)(q[0], q[1], q[2], q[3], bounds->zero);
    return SBIT__V(max_bytes)(bounds->lo, SBIT__V(min_bytes)(bounds->hi, bytes));
}

/* Four vectors, of rows of 4 or 2, times scale, + shift unless NULL, to bytes in narrow's order.
 * Nothing has to be bounded before that: store->fits. */
SBIT__V_INLINE SBIT__V(vb)
    SBIT__V(q8_bytes)(const SBIT__V(q8_bounds) * bounds, int vectors, const SBIT__V(vf) * scale,
                      const float *shift, const SBIT__V(vi) * sum)
{
    const int64_t lanes = SBIT__V(lanes);
    SBIT__V(vi) q[4];
    SBIT__UNROLL for (int j = 0; j < 4; j++)
    {
        SBIT__V(vf) f = SBIT__V(mul_f32)(SBIT__V(to_f32)(sum[j]), scale[j % vectors]);
        if (shift != NULL) {
            f = SBIT__V(add_f32)(f, SBIT__V(load_f32)(shift + j % vectors * lanes, lanes));
        }
        q[j] = SBIT__V(round)(f);
    }
    return SBIT__V(q8_narrow)(bounds, q);
}

/* One vector of columns c.. of one row, in every case. */
SBIT__V_INLINE void SBIT__V(q8_put)(const sbit__q8_store *store, int64_t n, SBIT__V(vi) sum,
                                    const float *scale, const float *shift, void *out, int64_t at)
{
    if (store->kind == SBIT__Q8_I32) {
        SBIT__V(store_i32)((int32_t *)out + at, n, sum);
        return;
    }
    const int64_t all = SBIT__V(lanes);
    SBIT__V(vf) f = SBIT__V(mul_f32)(SBIT__V(to_f32)(sum), SBIT__V(load_f32)(scale, all));
    if (shift != NULL) {
        f = SBIT__V(add_f32)(f, SBIT__V(load_f32)(shift, all));
    }
    if (store->kind == SBIT__Q8_F32) {
        SBIT__V(store_f32)((float *)out + at, n, f);
        return;
    }
    f = SBIT__V(clamp_f32)(f, SBIT__V(set_f32)((float)(store->lo - store->zero)),
                           SBIT__V(set_f32)((float)(store->hi - store->zero)));
    SBIT__V(store_u8)
    ((uint8_t *)out + at, n, SBIT__V(add_i32)(SBIT__V(round)(f), SBIT__V(set_i32)(store->zero)));
}

SBIT__V_INLINE SBIT__V(vf)
    SBIT__V(q8_dequantize)(const uint8_t *x, int64_t n, SBIT__V(vi) zero, SBIT__V(vf) scale)
{
    const SBIT__V(vi) q = SBIT__V(sub_i32)(SBIT__V(load_u8)(x, n), zero);
    return SBIT__V(mul_f32)(SBIT__V(to_f32)(q), scale);
}

typedef struct SBIT__V(q8_factors) {
    SBIT__V(vf) a, b, y;
    SBIT__V(vi) zero_b;
    float inverse; /* of y; 0: quotients could leave the usual range */
} SBIT__V(q8_factors);

SBIT__V_INLINE SBIT__V(q8_factors) SBIT__V(q8_factors_of)(const sbit__q8_pair *pair)
{
    const bool usual = pair->scale_a > 1e-9f && pair->scale_b > 1e-9f && pair->scale_y > 1e-9f &&
                       pair->scale_a < 1e9f && pair->scale_b < 1e9f && pair->scale_y < 1e9f;
    SBIT__V(q8_factors) by;
    by.a = SBIT__V(set_f32)(pair->scale_a);
    by.b = SBIT__V(set_f32)(pair->scale_b);
    by.y = SBIT__V(set_f32)(pair->scale_y);
    by.zero_b = SBIT__V(set_i32)(pair->zero_b);
    by.inverse = usual ? 1.0f / pair->scale_y : 0.0f;
    return by;
}

/* >>tile */

/* Where a row's output begins; to: the tile's list, or NULL. */
SBIT__V_INLINE int64_t SBIT__V(q8_place)(const int64_t *to, int64_t stride, int64_t row)
{
    return to != NULL ? to[row] : row * stride;
}

/* Rows that q8_body does not store itself: `vectors` sums each. */
SBIT__V_TARGET static void SBIT__V(q8_put_rows)(const sbit__q8_tile *tile, int64_t rows,
                                                const int32_t *sums, void *out, int64_t at)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < tile->width; c += SBIT__V(lanes)) {
            SBIT__V(q8_put)
            (&tile->store, tile->columns - c, SBIT__V(load_i32)(sums + i * tile->width + c),
             tile->scale != NULL ? tile->scale + c : NULL, tile->shift != NULL ? tile->shift + c : NULL, out,
             SBIT__V(q8_place)(tile->to, tile->out_stride, at + i) + c);
        }
    }
}

/* Bytes of all sums of m rows. Called once with a list and once without: what is decided, or read again,
 * for each row is felt in products of few terms. */
SBIT__V_INLINE void SBIT__V(q8_put_bytes)(int m, int vectors, const sbit__q8_tile *tile, const int64_t *to,
                                          const SBIT__V(vi) * sum, uint8_t *out, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes), stride = tile->out_stride, columns = tile->columns;
    const float *shift = tile->shift;
    const SBIT__V(q8_bounds) bounds = SBIT__V(q8_bounds_of)(&tile->store);
    SBIT__V(vf) scale[4]; /* read once: loads are what a tile of few terms waits for */
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        scale[j] = SBIT__V(load_f32)(tile->scale + j * lanes, lanes);
    }
    SBIT__UNROLL16 for (int i = 0; i < m; i += 4 / vectors)
    {
        const SBIT__V(vb) bytes = SBIT__V(in_order)(
            SBIT__V(q8_bytes)(&bounds, vectors, scale, shift, sum + i * vectors));
        uint8_t part[4 * SBIT__V(lanes)];
        int64_t place[4]; /* of the rows that are in these bytes */
        SBIT__UNROLL for (int r = 0; r < 4; r++)
        {
            place[r] = r < 4 / vectors ? SBIT__V(q8_place)(to, stride, at + i + r) : 0;
        }
        if (vectors == 4) {
            SBIT__V(store_bytes)(out + place[0], columns, bytes);
        } else if (vectors == 2) {
            SBIT__V(store_half)(out + place[0], columns, false, bytes);
            SBIT__V(store_half)(out + place[1], columns, true, bytes);
        } else if (to == NULL ? stride == lanes
                              : place[1] - place[0] == lanes && place[2] - place[1] == lanes &&
                                    place[3] - place[2] == lanes) {
            SBIT__V(store_bytes)(out + place[0], 4 * lanes, bytes);
        } else {
            SBIT__V(store_bytes)(part, 4 * lanes, bytes);
            SBIT__UNROLL for (int r = 0; r < 4; r++)
            {
                memcpy(out + place[r], part + r * lanes, SBIT__V(lanes));
            }
        }
    }
}

SBIT__V_INLINE void SBIT__V(q8_body)(int m, int vectors, const sbit__q8_tile *tile,
                                     const uint8_t *const *row, const int32_t *row_sums, void *out,
                                     int64_t at, const int8_t *ahead, int64_t step)
{
    const int64_t lanes = SBIT__V(lanes);
    const uint8_t *w = (const uint8_t *)(const void *)tile->weights;
    const int own = m % 8 == 0 ? 4 : m; /* rows that need a register each */
    const int64_t apart = own < m ? row[own] - row[0] : 0; /* from these to the next as many */
    SBIT__V(vi) sum[20]; /* row after row */
    SBIT__UNROLL16 for (int i = 0; i < m; i++)
    {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            sum[i * vectors + j] = SBIT__V(load_i32)(tile->bias + j * lanes);
        }
    }
    for (int64_t t = 0; t < tile->taps; t++) {
        const int64_t first = tile->offsets[t], end = first + tile->depth;
        for (int64_t k = first; k < end; k += 4) {
            SBIT__V(s4) s[4];
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                s[j] = SBIT__V(s4_of)(SBIT__V(load_bytes)(w + j * 4 * lanes, 4 * lanes));
            }
            w += vectors * 4 * lanes;
            SBIT__PREFETCH(ahead);
            ahead += step;
            SBIT__UNROLL16 for (int i = 0; i < m; i++)
            {
                const uint8_t *x = row[i % own] + (k + i / own * apart);
                const SBIT__V(u4) u = SBIT__V(u4_of)(SBIT__V(repeat4)(x));
                SBIT__UNROLL for (int j = 0; j < vectors; j++)
                {
                    sum[i * vectors + j] = SBIT__V(dot4)(sum[i * vectors + j], u, s[j]);
                }
            }
        }
        w += tile->between;
    }
    if (tile->factor != NULL) {
        SBIT__UNROLL16 for (int i = 0; i < m; i++)
        {
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                sum[i * vectors + j] =
                    SBIT__V(add_i32)(sum[i * vectors + j],
                                     SBIT__V(mul_i32)(SBIT__V(set_i32)(row_sums[i]),
                                                      SBIT__V(load_i32)(tile->factor + j * lanes)));
            }
        }
    }
    const bool bytes_only = tile->store.kind == SBIT__Q8_U8 && tile->store.fits;
    if (bytes_only && (vectors == 4 || (vectors == 2 && m % 2 == 0) ||
                       (vectors == 1 && m % 4 == 0 && tile->columns == lanes))) {
        if (tile->to == NULL) {
            SBIT__V(q8_put_bytes)(m, vectors, tile, NULL, sum, (uint8_t *)out, at);
        } else {
            SBIT__V(q8_put_bytes)(m, vectors, tile, tile->to, sum, (uint8_t *)out, at);
        }
        return;
    }
    if (bytes_only) {
        const SBIT__V(vf) lo = SBIT__V(set_f32)((float)(tile->store.lo - tile->store.zero));
        const SBIT__V(vf) hi = SBIT__V(set_f32)((float)(tile->store.hi - tile->store.zero));
        const SBIT__V(vi) zero = SBIT__V(set_i32)(tile->store.zero);
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            const int64_t c = j * lanes;
            const SBIT__V(vf) scale = SBIT__V(load_f32)(tile->scale + c, lanes);
            SBIT__UNROLL16 for (int i = 0; i < m; i++)
            {
                SBIT__V(vf) f = SBIT__V(mul_f32)(SBIT__V(to_f32)(sum[i * vectors + j]), scale);
                if (tile->shift != NULL) {
                    f = SBIT__V(add_f32)(f, SBIT__V(load_f32)(tile->shift + c, lanes));
                }
                const SBIT__V(vi) q = SBIT__V(round)(SBIT__V(clamp_f32)(f, lo, hi));
                SBIT__V(store_u8)
                ((uint8_t *)out + SBIT__V(q8_place)(tile->to, tile->out_stride, at + i) + c, tile->columns - c,
                 SBIT__V(add_i32)(q, zero));
            }
        }
        return;
    }
    int32_t space[20 * SBIT__V(lanes)];
    SBIT__UNROLL16 for (int i = 0; i < m; i++)
    {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            SBIT__V(store_i32)(space + (i * vectors + j) * lanes, lanes, sum[i * vectors + j]);
        }
    }
    SBIT__V(q8_put_rows)(tile, m, space, out, at);
}

/* Tiles of 8 or 16 rows have every 4 as far behind those before, all of them: there are too few
 * registers for as many pointers. */
SBIT__V_INLINE bool SBIT__V(q8_fours)(int m, int64_t line, int64_t rows, const uint8_t *const *row)
{
    bool same = true;
    if (line >= rows || (line > 0 && line % m == 0 && rows % line == 0)) {
        return true; /* each lies in one line */
    }
    for (int64_t i = 0; i < rows; i += m) {
        const uint8_t *const *at = row + sbit__smaller(i, rows - m);
        for (int j = 4; j < m; j++) {
            same = same && at[j] - at[j - 4] == at[4] - at[0];
        }
    }
    return same;
}

/* Rows that tiles of m compute. */
SBIT__V_INLINE int64_t SBIT__V(q8_whole)(int64_t rows, int64_t m)
{
    return (rows + m - 1) / m * m;
}

/* All rows by tiles of m. A rest is made up to a whole tile by rows before it, which get the same
 * values again. Each is a function of its own: what else is alive would take registers. */
#define SBIT__Q8_ROWS(name, m, vectors)                                                            \
    SBIT__V_TARGET SBIT__APART static void SBIT__V(name)(const sbit__q8_tile *tile, int64_t rows,  \
                                                         const uint8_t *const *row,                \
                                                         const int32_t *row_sums, void *out)       \
    {                                                                                              \
        const int64_t step = vectors * 4 * SBIT__V(lanes) / ((rows + m - 1) / m);                  \
        const int64_t more = step * tile->taps * ((tile->depth + 3) / 4);                          \
        const int8_t *ahead = tile->next;                                                          \
        for (int64_t i = 0; i < rows; i += m, ahead += more) {                                     \
            const int64_t at = i + m <= rows ? i : rows - m;                                       \
            SBIT__V(q8_body)                                                                       \
            (m, vectors, tile, row + at, row_sums != NULL ? row_sums + at : NULL, out,             \
             at, ahead, step);                                                                     \
        }                                                                                          \
    }
SBIT__Q8_ROWS(q8_rows, SBIT__V(tile_m), SBIT__V(tile_v))
SBIT__Q8_ROWS(q8_rows_4, 4, SBIT__V(tile_v))
SBIT__Q8_ROWS(q8_rows_3, 3, SBIT__V(tile_v))
SBIT__Q8_ROWS(q8_rows_1, 1, SBIT__V(tile_v))
SBIT__Q8_ROWS(q8_rows_8_2, 8, 2)
SBIT__Q8_ROWS(q8_rows_4_2, 4, 2)
SBIT__Q8_ROWS(q8_rows_1_2, 1, 2)
SBIT__Q8_ROWS(q8_rows_16_1, 16, 1)
SBIT__Q8_ROWS(q8_rows_8_1, 8, 1)
SBIT__Q8_ROWS(q8_rows_4_1, 4, 1)
SBIT__Q8_ROWS(q8_rows_1_1, 1, 1)
#undef SBIT__Q8_ROWS

SBIT__V_TARGET static void SBIT__V(q8_tile)(const sbit__q8_tile *tile, int64_t rows,
                                            const uint8_t *const *row, const int32_t *row_sums,
                                            void *out)
{
    const int64_t vectors = tile->width / SBIT__V(lanes);
#define SBIT__Q8_CASE(name, n, v)                                                                  \
    if (vectors == v && rows >= n && (n < 8 || SBIT__V(q8_fours)(n, tile->line, rows, row))) {     \
        SBIT__V(name)(tile, rows, row, row_sums, out);                                             \
        return;                                                                                    \
    }
    if (SBIT__V(tile_m) <= 4 || SBIT__V(q8_whole)(rows, SBIT__V(tile_m)) <= SBIT__V(q8_whole)(rows, 4)) {
        SBIT__Q8_CASE(q8_rows, SBIT__V(tile_m), SBIT__V(tile_v))
    }
    if (SBIT__V(tile_m) > 4) {
        SBIT__Q8_CASE(q8_rows_4, 4, SBIT__V(tile_v))
    }
    SBIT__Q8_CASE(q8_rows_3, 3, SBIT__V(tile_v))
    SBIT__Q8_CASE(q8_rows_1, 1, SBIT__V(tile_v))
    if (SBIT__V(tile_v) > 2) {
        SBIT__Q8_CASE(q8_rows_8_2, 8, 2)
        SBIT__Q8_CASE(q8_rows_4_2, 4, 2)
        SBIT__Q8_CASE(q8_rows_1_2, 1, 2)
    }
    if (SBIT__V(tile_v) > 2) {
        SBIT__Q8_CASE(q8_rows_16_1, 16, 1)
    }
    SBIT__Q8_CASE(q8_rows_8_1, 8, 1)
    SBIT__Q8_CASE(q8_rows_4_1, 4, 1)
    SBIT__Q8_CASE(q8_rows_1_1, 1, 1)
#undef SBIT__Q8_CASE
}

/* >>depthwise: bytes of 4 taps are transposed to groups of 4 */

/* Not often. sums: of a block */
SBIT__V_TARGET static void SBIT__V(q8_depthwise_put)(const sbit__q8_depthwise *d, int64_t first,
                                                     const int32_t *sums, void *y, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    const size_t each = d->store.kind == SBIT__Q8_U8 ? 1 : 4;
    char part[16 * SBIT__V(lanes)];
    for (int64_t j = 0; j < 4 * lanes; j += lanes) {
        SBIT__V(q8_put)
        (&d->store, lanes, SBIT__V(load_i32)(sums + j), d->scale + first + j,
         d->shift != NULL ? d->shift + first + j : NULL, part, j);
    }
    for (int64_t place = 0; place < 4 * lanes; place++) {
        const int64_t c = first + sbit__q8_lane(4 * lanes, place);
        if (c < d->channels) {
            memcpy((char *)y + (size_t)(at + c) * each, part + (size_t)place * each, each);
        }
    }
}

typedef struct SBIT__V(q8_quads) {
    SBIT__V(vb) part[4];
} SBIT__V(q8_quads);

/* The 4 taps of a block. */
SBIT__V_INLINE SBIT__V(q8_quads) SBIT__V(q8_turn)(const uint8_t *x, const int64_t *offsets)
{
    const int64_t all = 4 * SBIT__V(lanes);
    const SBIT__V(vb) a = SBIT__V(load_bytes)(x + offsets[0], all);
    const SBIT__V(vb) b = SBIT__V(load_bytes)(x + offsets[1], all);
    const SBIT__V(vb) c = SBIT__V(load_bytes)(x + offsets[2], all);
    const SBIT__V(vb) e = SBIT__V(load_bytes)(x + offsets[3], all);
    const SBIT__V(vb) ab0 = SBIT__V(low8)(a, b), ab1 = SBIT__V(high8)(a, b);
    const SBIT__V(vb) ce0 = SBIT__V(low8)(c, e), ce1 = SBIT__V(high8)(c, e);
    SBIT__V(q8_quads) q;
    q.part[0] = SBIT__V(low16)(ab0, ce0);
    q.part[1] = SBIT__V(high16)(ab0, ce0);
    q.part[2] = SBIT__V(low16)(ab1, ce1);
    q.part[3] = SBIT__V(high16)(ab1, ce1);
    return q;
}

/* One or two `pixels` side by side, which share what is read of the weights: loads are what this waits for.
 * a, b: of the one or both; sum: pixel after pixel, share after share */
SBIT__V_INLINE void SBIT__V(q8_quad)(int pixels, int shares, const sbit__q8_depthwise *d, int64_t first,
                                     int64_t quad, int j, SBIT__V(vb) a, SBIT__V(vb) b,
                                     SBIT__V(vi) * sum)
{
    const int64_t all = 4 * SBIT__V(lanes);
    const int8_t *weights = d->weights + (first * d->quads + quad * all) * shares * 4;
    SBIT__UNROLL for (int s = j; s < 4 * shares; s += 4)
    {
        const uint8_t *w = (const uint8_t *)(const void *)weights + s * all;
        const SBIT__V(s4) by = SBIT__V(s4_of)(SBIT__V(load_bytes)(w, all));
        sum[s] = SBIT__V(dot4)(sum[s], SBIT__V(u4_of)(a), by);
        if (pixels == 2) {
            sum[s + 4 * shares] = SBIT__V(dot4)(sum[s + 4 * shares], SBIT__V(u4_of)(b), by);
        }
    }
}

SBIT__V_INLINE void SBIT__V(q8_pixel_bias)(int outputs, const sbit__q8_depthwise *d, int64_t first,
                                           SBIT__V(vi) * sum)
{
    SBIT__UNROLL16 for (int j = 0; j < 4 * outputs; j++)
    {
        sum[j] = SBIT__V(load_i32)(d->bias + first + j % 4 * SBIT__V(lanes));
    }
}

SBIT__V_INLINE void SBIT__V(q8_pixel_put)(int shares, const sbit__q8_depthwise *d,
                                          const SBIT__V(q8_bounds) * bounds, int64_t first,
                                          const SBIT__V(vi) * sum, void *y, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    SBIT__UNROLL for (int s = shares - 1; s >= 0; s--) /* the first output last */
    {
        const int64_t to = at + s * d->below;
        if (d->store.kind == SBIT__Q8_U8 && d->store.fits) {
            SBIT__V(vf) scale[4];
            SBIT__UNROLL for (int j = 0; j < 4; j++)
            {
                scale[j] = SBIT__V(load_f32)(d->scale + first + j * lanes, lanes);
            }
            SBIT__V(store_bytes)
            ((uint8_t *)y + to + first, d->channels - first,
             SBIT__V(q8_bytes)(bounds, 4, scale, d->shift != NULL ? d->shift + first : NULL, sum + 4 * s));
            continue;
        }
        int32_t space[4 * SBIT__V(lanes)];
        SBIT__UNROLL for (int j = 0; j < 4; j++)
        {
            SBIT__V(store_i32)(space + j * lanes, lanes, sum[4 * s + j]);
        }
        SBIT__V(q8_depthwise_put)(d, first, space, y, to);
    }
}

/* Pixels from `begin` on, one at a time: two were slower where no column is shared. */
SBIT__V_INLINE void SBIT__V(q8_pixels)(int shares, const sbit__q8_depthwise *d,
                                       const SBIT__V(q8_bounds) * bounds, int64_t begin,
                                       int64_t pixels, int64_t first, const uint8_t *x, void *y)
{
    for (int64_t p = begin; p < pixels; p++) {
        SBIT__V(vi) sum[8];
        SBIT__V(q8_pixel_bias)(shares, d, first, sum);
        for (int64_t q = 0; q < d->quads; q++) {
            const SBIT__V(q8_quads) turned =
                SBIT__V(q8_turn)(x + p * d->in_stride, d->offsets + 4 * q);
            SBIT__UNROLL for (int j = 0; j < 4; j++)
            {
                SBIT__V(q8_quad)
                (1, shares, d, first, q, j, turned.part[j], turned.part[j], sum);
            }
        }
        SBIT__V(q8_pixel_put)(shares, d, bounds, first, sum, y, p * d->out_stride);
    }
}

/* Two shares of 3 columns, each of which is also one of the next pixels: turned once. `wide` pixels at
 * a time. */
SBIT__V_INLINE void SBIT__V(q8_line)(int wide, const sbit__q8_depthwise *d,
                                     const SBIT__V(q8_bounds) * bounds, int64_t pixels,
                                     int64_t first, const uint8_t *x, void *y)
{
    SBIT__V(q8_quads) column[4];
    column[0] = SBIT__V(q8_turn)(x, d->offsets);
    column[1] = SBIT__V(q8_turn)(x, d->offsets + 4);
    for (int64_t p = 0; p + wide <= pixels; p += wide) {
        SBIT__V(vi) sum[16];
        SBIT__UNROLL for (int k = 0; k < wide; k++)
        {
            column[2 + k] = SBIT__V(q8_turn)(x + (p + k) * d->in_stride, d->offsets + 8);
        }
        SBIT__V(q8_pixel_bias)(2 * wide, d, first, sum);
        SBIT__UNROLL for (int j = 0; j < 4; j++)
        {
            SBIT__UNROLL for (int q = 0; q < 3; q++)
            {
                SBIT__V(q8_quad)
                (wide, 2, d, first, q, j, column[q].part[j], column[q + wide - 1].part[j], sum);
            }
        }
        SBIT__UNROLL for (int k = 0; k < wide; k++)
        {
            SBIT__V(q8_pixel_put)(2, d, bounds, first, sum + 8 * k, y, (p + k) * d->out_stride);
        }
        column[0] = column[wide];
        column[1] = column[1 + wide];
    }
    if (pixels % wide > 0) {
        SBIT__V(q8_pixels)(2, d, bounds, pixels - 1, pixels, first, x, y);
    }
}

SBIT__V_TARGET static void SBIT__V(q8_depthwise)(const sbit__q8_depthwise *d, int64_t pixels,
                                                 const uint8_t *x, void *y)
{
    const SBIT__V(q8_bounds) bounds = SBIT__V(q8_bounds_of)(&d->store);
    const int64_t *offsets = d->offsets;
    const bool line = sizeof(SBIT__V(u4)) == sizeof(SBIT__V(vb)) && /* else registers are too few */
                      d->shares == 2 && d->quads == 3 && pixels > 1 &&
                      offsets[4] - offsets[0] == d->in_stride &&
                      offsets[8] - offsets[4] == d->in_stride; /* rows of a quad are alike */
    /* twice as many sums, where there are 32 registers */
    const int wide = sizeof(SBIT__V(u4)) == sizeof(SBIT__V(vb)) && SBIT__V(lanes) >= 16 ? 2 : 1;
    for (int64_t first = 0; first < d->channels; first += 4 * SBIT__V(lanes)) {
        if (line) {
            SBIT__V(q8_line)(wide, d, &bounds, pixels, first, x + first, y);
        } else if (d->shares == 2) {
            SBIT__V(q8_pixels)(2, d, &bounds, 0, pixels, first, x + first, y);
        } else {
            SBIT__V(q8_pixels)(1, d, &bounds, 0, pixels, first, x + first, y);
        }
    }
}

/* >>peak: five pixels by two vectors of weights, which any set has registers for, or six or eight where a
 * product is one instruction: ten sums are as many as are under way, and any that waits is felt. The
 * pixels are loaded, or exact sets would have their products before the loop; within lines of the cache. */
SBIT__V_TARGET static int64_t SBIT__V(q8_peak)(int64_t loops, int32_t *sum)
{
    const int64_t all = 4 * SBIT__V(lanes);
    const int pixels = sizeof(SBIT__V(u4)) != sizeof(SBIT__V(vb)) ? 5 : SBIT__V(tile_m) > 4 ? 8 : 6;
    uint8_t space[10 * 4 * SBIT__V(lanes)];
    uint8_t *bytes = space + (size_t)(-(intptr_t)space & (intptr_t)(all - 1));
    int32_t part[SBIT__V(lanes)];
    SBIT__V(vi) s[16];
    SBIT__V(s4) w[2];
    for (int j = 0; j < 9; j++) {
        memset(bytes + j * all, (sum[0] + j) & 7, (size_t)all);
    }
    w[0] = SBIT__V(s4_of)(SBIT__V(load_bytes)(bytes, all));
    w[1] = SBIT__V(s4_of)(SBIT__V(load_bytes)(bytes + all, all));
    SBIT__UNROLL16 for (int j = 0; j < 2 * pixels; j++)
    {
        s[j] = SBIT__V(set_i32)(j);
    }
    for (int64_t i = 0; i < loops; i++) {
        const uint8_t *x = bytes + (i & 1) * all;
        SBIT__UNROLL16 for (int p = 0; p < 2 * pixels; p++)
        {
            const int at = p % pixels;
            const SBIT__V(u4) u = SBIT__V(u4_of)(SBIT__V(load_bytes)(x + at * all, all));
            s[2 * at] = SBIT__V(dot4)(s[2 * at], u, w[0]);
            s[2 * at + 1] = SBIT__V(dot4)(s[2 * at + 1], u, w[1]);
        }
    }
    SBIT__UNROLL16 for (int j = 1; j < 2 * pixels; j++)
    {
        s[0] = SBIT__V(add_i32)(s[0], s[j]);
    }
    SBIT__V(store_i32)(part, SBIT__V(lanes), s[0]);
    sum[0] = part[0];
    return loops * 4 * pixels * all;
}
