/* vec_q8.h: the integer kernels over the vector operations of one instruction set. >>vec_q8
 *
 * q8_private.h says what they do. Included once for each set, behind its vec_*.h.
 * A tile's sums are an array whose bounds are constants in each of its copies, so that unrolled
 * loops keep it in registers; gcc and clang each want a pragma of their own for that.
 */

/* >>storing */

/* Vector v of columns c.. of one row. */
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

/* >>tile */

/* One row of a tile in every case; the usual one is stored by q8_body itself. */
SBIT__V_TARGET static void SBIT__V(q8_put_row)(const sbit__q8_tile *tile, const SBIT__V(vi) * sum,
                                               int32_t row_sum, void *out, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    for (int64_t c = 0; c < tile->width; c += lanes) {
        SBIT__V(vi) v = sum[c / lanes];
        if (tile->factor != NULL) {
            v = SBIT__V(add_i32)(v, SBIT__V(mul_i32)(SBIT__V(set_i32)(row_sum),
                                                     SBIT__V(load_i32)(tile->factor + c)));
        }
        SBIT__V(q8_put)
        (&tile->store, tile->columns - c, v, tile->scale + c,
         tile->shift != NULL ? tile->shift + c : NULL, out, at + c);
    }
}

SBIT__V_INLINE void SBIT__V(q8_body)(int m, int vectors, const sbit__q8_tile *tile,
                                     const uint8_t *const *row, const int32_t *row_sums, void *out,
                                     int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    const uint8_t *w = (const uint8_t *)(const void *)tile->weights;
    SBIT__V(vi) sum[20]; /* row after row */
    SBIT__UNROLL for (int i = 0; i < m; i++)
    {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            sum[i * vectors + j] = SBIT__V(load_i32)(tile->bias + j * lanes);
        }
    }
    for (int64_t t = 0; t < tile->taps; t++) {
        const uint8_t *x[8];
        SBIT__UNROLL for (int i = 0; i < m; i++)
        {
            x[i] = row[i] + tile->offsets[t];
        }
        for (int64_t k = 0; k < tile->depth; k += 4) {
            SBIT__V(s4) s[4];
            SBIT__UNROLL for (int j = 0; j < vectors; j++)
            {
                s[j] = SBIT__V(s4_of)(SBIT__V(load_bytes)(w + j * 4 * lanes, 4 * lanes));
            }
            w += vectors * 4 * lanes;
            SBIT__UNROLL for (int i = 0; i < m; i++)
            {
                const SBIT__V(u4) u = SBIT__V(u4_of)(SBIT__V(repeat4)(x[i] + k));
                SBIT__UNROLL for (int j = 0; j < vectors; j++)
                {
                    sum[i * vectors + j] = SBIT__V(dot4)(sum[i * vectors + j], u, s[j]);
                }
            }
        }
    }
    if (tile->store.kind != SBIT__Q8_I32) {
        const SBIT__V(vf) lo = SBIT__V(set_f32)((float)(tile->store.lo - tile->store.zero));
        const SBIT__V(vf) hi = SBIT__V(set_f32)((float)(tile->store.hi - tile->store.zero));
        const SBIT__V(vi) zero = SBIT__V(set_i32)(tile->store.zero);
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            const int64_t c = j * lanes, left = tile->columns - c;
            const SBIT__V(vf) scale = SBIT__V(load_f32)(tile->scale + c, lanes);
            SBIT__V(vf) shift = SBIT__V(set_f32)(0.0f);
            if (tile->shift != NULL) {
                shift = SBIT__V(load_f32)(tile->shift + c, lanes);
            }
            if (tile->factor != NULL) {
                const SBIT__V(vi) factor = SBIT__V(load_i32)(tile->factor + c);
                SBIT__UNROLL for (int i = 0; i < m; i++)
                {
                    sum[i * vectors + j] = SBIT__V(add_i32)(
                        sum[i * vectors + j],
                        SBIT__V(mul_i32)(SBIT__V(set_i32)(row_sums[i]), factor));
                }
            }
            SBIT__UNROLL for (int i = 0; i < m; i++)
            {
                SBIT__V(vf) f = SBIT__V(mul_f32)(SBIT__V(to_f32)(sum[i * vectors + j]), scale);
                if (tile->shift != NULL) {
                    f = SBIT__V(add_f32)(f, shift);
                }
                if (tile->store.kind == SBIT__Q8_F32) {
                    SBIT__V(store_f32)((float *)out + at + i * tile->out_stride + c, left, f);
                    continue;
                }
                const SBIT__V(vi) q = SBIT__V(round)(SBIT__V(clamp_f32)(f, lo, hi));
                SBIT__V(store_u8)
                ((uint8_t *)out + at + i * tile->out_stride + c, left, SBIT__V(add_i32)(q, zero));
            }
        }
        return;
    }
    SBIT__UNROLL for (int i = 0; i < m; i++)
    {
        SBIT__V(vi) row_sum[4];
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            row_sum[j] = sum[i * vectors + j];
        }
        SBIT__V(q8_put_row)
        (tile, row_sum, row_sums != NULL ? row_sums[i] : 0, out, at + i * tile->out_stride);
    }
}

/* The next rows, as many as one tile takes; gives their number. */
SBIT__V_TARGET static int64_t SBIT__V(q8_rows)(int64_t rows, const sbit__q8_tile *tile,
                                               const uint8_t *const *row, const int32_t *row_sums,
                                               void *out, int64_t at)
{
    const int64_t vectors = tile->width / SBIT__V(lanes);
    const int64_t most = vectors == SBIT__V(tile_v) ? SBIT__V(tile_m)
                         : vectors == 1             ? SBIT__V(tile_m_narrow)
                                                    : 4;
    const int64_t m = rows >= 2 * most || rows == most ? most : rows > most ? (rows + 1) / 2 : rows;
#define SBIT__Q8_CASE(n, v)                                                                        \
    if (m >= n) {                                                                                  \
        SBIT__V(q8_body)(n, v, tile, row, row_sums, out, at);                                      \
        return n;                                                                                  \
    }
    if (vectors == 1) {
        SBIT__Q8_CASE(8, 1)
        SBIT__Q8_CASE(4, 1)
        SBIT__Q8_CASE(2, 1)
        SBIT__Q8_CASE(1, 1)
    } else if (vectors == 2 || SBIT__V(tile_v) == 2) {
        SBIT__Q8_CASE(4, 2)
        SBIT__Q8_CASE(3, 2)
        SBIT__Q8_CASE(2, 2)
        SBIT__Q8_CASE(1, 2)
    } else {
        if (SBIT__V(tile_m) >= 5) {
            SBIT__Q8_CASE(5, 4)
        }
        SBIT__Q8_CASE(4, 4)
        SBIT__Q8_CASE(3, 4)
        SBIT__Q8_CASE(2, 4)
        SBIT__Q8_CASE(1, 4)
    }
#undef SBIT__Q8_CASE
    return rows;
}

SBIT__V_TARGET static void SBIT__V(q8_tile)(const sbit__q8_tile *tile, int64_t rows,
                                            const uint8_t *const *row, const int32_t *row_sums,
                                            void *out)
{
    for (int64_t i = 0; i < rows;) {
        i += SBIT__V(q8_rows)(rows - i, tile, row + i, row_sums != NULL ? row_sums + i : NULL, out,
                              i * tile->out_stride);
    }
}

/* >>depthwise: bytes of 4 taps are transposed to groups of 4 */

SBIT__V_INLINE void SBIT__V(q8_quad)(const uint8_t *x, const int64_t *offsets, int64_t n,
                                     const int8_t *weights, SBIT__V(vi) sum[4])
{
    const int64_t lanes = SBIT__V(lanes);
    const uint8_t *w = (const uint8_t *)(const void *)weights;
    const SBIT__V(vb) a = SBIT__V(load_bytes)(x + offsets[0], n);
    const SBIT__V(vb) b = SBIT__V(load_bytes)(x + offsets[1], n);
    const SBIT__V(vb) c = SBIT__V(load_bytes)(x + offsets[2], n);
    const SBIT__V(vb) d = SBIT__V(load_bytes)(x + offsets[3], n);
    const SBIT__V(vb) ab0 = SBIT__V(low8)(a, b), ab1 = SBIT__V(high8)(a, b);
    const SBIT__V(vb) cd0 = SBIT__V(low8)(c, d), cd1 = SBIT__V(high8)(c, d);
    SBIT__V(vb) u[4];
    u[0] = SBIT__V(low16)(ab0, cd0);
    u[1] = SBIT__V(high16)(ab0, cd0);
    u[2] = SBIT__V(low16)(ab1, cd1);
    u[3] = SBIT__V(high16)(ab1, cd1);
    SBIT__UNROLL for (int j = 0; j < 4; j++)
    {
        sum[j] = SBIT__V(dot4)(sum[j], SBIT__V(u4_of)(u[j]),
                               SBIT__V(s4_of)(SBIT__V(load_bytes)(w + j * 4 * lanes, 4 * lanes)));
    }
}

/* F32 and I32: not often, so through memory. */
SBIT__V_INLINE void SBIT__V(q8_depthwise_put)(const sbit__q8_depthwise *d, int64_t first,
                                              const SBIT__V(vi) sum[4], void *y, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes), n = d->channels - first;
    float part[4 * SBIT__V(lanes)]; /* or int32 */
    for (int j = 0; j < 4; j++) {
        const int64_t c = first + j * lanes;
        SBIT__V(q8_put)
        (&d->store, lanes, sum[j], d->scale + c, d->shift != NULL ? d->shift + c : NULL, part,
         j * lanes);
    }
    for (int64_t place = 0; place < 4 * lanes; place++) {
        const int64_t c = sbit__q8_lane(4 * lanes, place);
        if (c < n) {
            memcpy((float *)y + at + c, part + place, sizeof part[0]);
        }
    }
}

SBIT__V_INLINE void SBIT__V(q8_depthwise_store)(const sbit__q8_depthwise *d, int64_t first,
                                                SBIT__V(vi) sum[4], void *y, int64_t at)
{
    const int64_t lanes = SBIT__V(lanes);
    if (d->store.kind != SBIT__Q8_U8) {
        SBIT__V(q8_depthwise_put)(d, first, sum, y, at);
        return;
    }
    const SBIT__V(vf) lo = SBIT__V(set_f32)((float)(d->store.lo - d->store.zero));
    const SBIT__V(vf) hi = SBIT__V(set_f32)((float)(d->store.hi - d->store.zero));
    const SBIT__V(vi) zero = SBIT__V(set_i32)(d->store.zero);
    SBIT__UNROLL for (int j = 0; j < 4; j++)
    {
        const int64_t c = first + j * lanes;
        SBIT__V(vf)
        f = SBIT__V(mul_f32)(SBIT__V(to_f32)(sum[j]), SBIT__V(load_f32)(d->scale + c, lanes));
        if (d->shift != NULL) {
            f = SBIT__V(add_f32)(f, SBIT__V(load_f32)(d->shift + c, lanes));
        }
        sum[j] = SBIT__V(add_i32)(SBIT__V(round)(SBIT__V(clamp_f32)(f, lo, hi)), zero);
    }
    SBIT__V(store_bytes)
    ((uint8_t *)y + at, d->channels - first, SBIT__V(narrow)(sum[0], sum[1], sum[2], sum[3]));
}

SBIT__V_TARGET static void SBIT__V(q8_depthwise)(const sbit__q8_depthwise *d, int64_t pixels,
                                                 const uint8_t *x, void *y)
{
    const int64_t lanes = SBIT__V(lanes), block = 4 * lanes;
    for (int64_t first = 0; first < d->channels; first += block) {
        const int8_t *weights = d->weights + first * d->quads * 4;
        for (int64_t p = 0; p < pixels; p++) {
            SBIT__V(vi) sum[4];
            SBIT__UNROLL for (int j = 0; j < 4; j++)
            {
                sum[j] = SBIT__V(load_i32)(d->bias + first + j * lanes);
            }
            for (int64_t q = 0; q < d->quads; q++) {
                SBIT__V(q8_quad)
                (x + p * d->in_stride + first, d->offsets + 4 * q, d->channels - first,
                 weights + q * block * 4, sum);
            }
            SBIT__V(q8_depthwise_store)(d, first, sum, y, p * d->out_stride + first);
        }
    }
}

/* >>peak: five pixels by two vectors of weights, which any set has registers for. The pixels are
 * loaded, or exact sets would have their products before the loop; within lines of the cache. */
SBIT__V_TARGET static int64_t SBIT__V(q8_peak)(int64_t loops, int32_t *sum)
{
    const int64_t all = 4 * SBIT__V(lanes);
    uint8_t space[7 * 4 * SBIT__V(lanes)];
    uint8_t *bytes = space + (size_t)(-(intptr_t)space & (intptr_t)(all - 1));
    int32_t part[SBIT__V(lanes)];
    SBIT__V(vi) s[10];
    SBIT__V(s4) w[2];
    for (int j = 0; j < 6; j++) {
        memset(bytes + j * all, (sum[0] + j) & 7, (size_t)all);
    }
    w[0] = SBIT__V(s4_of)(SBIT__V(load_bytes)(bytes, all));
    w[1] = SBIT__V(s4_of)(SBIT__V(load_bytes)(bytes + all, all));
    SBIT__UNROLL16 for (int j = 0; j < 10; j++)
    {
        s[j] = SBIT__V(set_i32)(j);
    }
    for (int64_t i = 0; i < loops; i++) {
        const uint8_t *x = bytes + (i & 1) * all;
        SBIT__UNROLL16 for (int p = 0; p < 10; p++)
        {
            const SBIT__V(u4) u = SBIT__V(u4_of)(SBIT__V(load_bytes)(x + p % 5 * all, all));
            s[p % 5 * 2] = SBIT__V(dot4)(s[p % 5 * 2], u, w[0]);
            s[p % 5 * 2 + 1] = SBIT__V(dot4)(s[p % 5 * 2 + 1], u, w[1]);
        }
    }
    SBIT__UNROLL16 for (int j = 1; j < 10; j++)
    {
        s[0] = SBIT__V(add_i32)(s[0], s[j]);
    }
    SBIT__V(store_i32)(part, SBIT__V(lanes), s[0]);
    sum[0] = part[0];
    return loops * 20 * all;
}
