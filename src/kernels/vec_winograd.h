/* vec_winograd.h: transforms of Winograd's convolution, over vectors of channels. >>vec_winograd
 *
 * last_winograd.c has the mathematics. Each is done along columns, then along rows; what is between
 * lies in `middle`, which the caller lends: it would be a large stack frame.
 */

/* n = m + 2 inputs become n products' left factors. */
SBIT__V_INLINE void SBIT__V(winograd_in)(int m, const SBIT__V(vf) * d, SBIT__V(vf) * t)
{
    if (m == 2) {
        t[0] = SBIT__V(sub_f32)(d[0], d[2]);
        t[1] = SBIT__V(add_f32)(d[1], d[2]);
        t[2] = SBIT__V(sub_f32)(d[2], d[1]);
        t[3] = SBIT__V(sub_f32)(d[3], d[1]);
        return;
    }
    const SBIT__V(vf) a = SBIT__V(set_f32)(SBIT__WINOGRAD_A), b = SBIT__V(set_f32)(SBIT__WINOGRAD_B);
    const SBIT__V(vf) c = SBIT__V(set_f32)(-2.5f);
    const SBIT__V(vf) p = SBIT__V(fma_f32)(d[2], SBIT__V(set_f32)(-2.0f), d[4]);
    const SBIT__V(vf) q = SBIT__V(sub_f32)(SBIT__V(mul_f32)(a, d[3]), SBIT__V(mul_f32)(b, d[1]));
    const SBIT__V(vf) r = SBIT__V(fma_f32)(d[2], SBIT__V(set_f32)(-0.5f), d[4]);
    const SBIT__V(vf) s = SBIT__V(sub_f32)(SBIT__V(mul_f32)(b, d[3]), SBIT__V(mul_f32)(a, d[1]));
    t[0] = SBIT__V(fma_f32)(c, d[2], SBIT__V(add_f32)(d[0], d[4]));
    t[1] = SBIT__V(add_f32)(p, q);
    t[2] = SBIT__V(sub_f32)(p, q);
    t[3] = SBIT__V(add_f32)(r, s);
    t[4] = SBIT__V(sub_f32)(r, s);
    t[5] = SBIT__V(fma_f32)(c, d[3], SBIT__V(add_f32)(d[1], d[5]));
}

/* n sums become m outputs. */
SBIT__V_INLINE void SBIT__V(winograd_out)(int m, const SBIT__V(vf) * s, SBIT__V(vf) * y)
{
    if (m == 2) {
        y[0] = SBIT__V(add_f32)(s[0], SBIT__V(add_f32)(s[1], s[2]));
        y[1] = SBIT__V(add_f32)(s[3], SBIT__V(sub_f32)(s[1], s[2]));
        return;
    }
    const SBIT__V(vf) a = SBIT__V(set_f32)(SBIT__WINOGRAD_A), b = SBIT__V(set_f32)(SBIT__WINOGRAD_B);
    const SBIT__V(vf) half = SBIT__V(set_f32)(0.5f), two = SBIT__V(set_f32)(2.0f);
    const SBIT__V(vf) p = SBIT__V(add_f32)(s[1], s[2]), q = SBIT__V(add_f32)(s[3], s[4]);
    const SBIT__V(vf) u = SBIT__V(mul_f32)(a, SBIT__V(sub_f32)(s[1], s[2]));
    const SBIT__V(vf) v = SBIT__V(mul_f32)(b, SBIT__V(sub_f32)(s[3], s[4]));
    y[0] = SBIT__V(add_f32)(s[0], SBIT__V(add_f32)(p, q));
    y[1] = SBIT__V(add_f32)(u, v);
    y[2] = SBIT__V(fma_f32)(half, p, SBIT__V(mul_f32)(two, q));
    y[3] = SBIT__V(fma_f32)(half, u, SBIT__V(fma_f32)(two, v, s[5]));
}

SBIT__V_INLINE void SBIT__V(winograd_load)(int m, int64_t channels, const sbit__last_patch *x,
                                           float *middle, float *v, int64_t step)
{
    const int64_t lanes = SBIT__V(lanes);
    const int n = m + 2;
    SBIT__V(vf) d[6], t[6];
    for (int64_t c = 0; c < channels; c += lanes) {
        const float *row[6];
        SBIT__UNROLL for (int i = 0; i < n; i++)
        {
            row[i] = x->row[i] + c;
        }
        for (int j = 0; j < n; j++) {
            const bool inside = j >= x->left && j < x->right;
            SBIT__UNROLL for (int i = 0; i < n; i++)
            {
                t[i] = SBIT__V(set_f32)(0.0f);
            }
            if (inside) {
                SBIT__UNROLL for (int i = 0; i < n; i++)
                {
                    d[i] = SBIT__V(load_f32)(row[i], channels - c);
                    row[i] += x->step[i];
                }
                SBIT__V(winograd_in)(m, d, t);
            }
            SBIT__UNROLL for (int i = 0; i < n; i++)
            {
                SBIT__V(store_f32)(middle + (i * n + j) * lanes, lanes, t[i]);
            }
        }
        for (int i = 0; i < n; i++) {
            SBIT__UNROLL for (int j = 0; j < n; j++)
            {
                d[j] = SBIT__V(load_f32)(middle + (i * n + j) * lanes, lanes);
            }
            SBIT__V(winograd_in)(m, d, t);
            SBIT__UNROLL for (int j = 0; j < n; j++)
            {
                SBIT__V(store_f32)(v + (i * n + j) * step + c, channels - c, t[j]);
            }
        }
    }
}

SBIT__V_TARGET static void SBIT__V(last_winograd_load)(int m, int64_t channels,
                                                       const sbit__last_patch *x, float *middle,
                                                       float *v, int64_t step)
{
    if (m == 2) {
        SBIT__V(winograd_load)(2, channels, x, middle, v, step);
    } else {
        SBIT__V(winograd_load)(4, channels, x, middle, v, step);
    }
}

SBIT__V_INLINE void SBIT__V(winograd_store)(int m, const sbit__last_cell *cell, const float *sums,
                                            int64_t step, float *middle, float *y)
{
    const int64_t lanes = SBIT__V(lanes);
    const int n = m + 2;
    SBIT__V(vf) s[6], t[4];
    for (int64_t c = 0; c < cell->columns; c += lanes) {
        const int64_t left = cell->columns - c;
        SBIT__V(vf) bias = SBIT__V(set_f32)(0.0f);
        if (cell->store.bias != NULL) {
            bias = SBIT__V(load_f32)(cell->store.bias + c, left);
        }
        for (int j = 0; j < n; j++) {
            SBIT__UNROLL for (int i = 0; i < n; i++)
            {
                s[i] = SBIT__V(load_f32)(sums + (i * n + j) * step + c, lanes);
            }
            SBIT__V(winograd_out)(m, s, t);
            SBIT__UNROLL for (int i = 0; i < m; i++)
            {
                SBIT__V(store_f32)(middle + (i * n + j) * lanes, lanes, t[i]);
            }
        }
        for (int i = 0; i < cell->rows; i++) {
            SBIT__UNROLL for (int j = 0; j < n; j++)
            {
                s[j] = SBIT__V(load_f32)(middle + (i * n + j) * lanes, lanes);
            }
            SBIT__V(winograd_out)(m, s, t);
            SBIT__UNROLL for (int j = 0; j < m; j++)
            {
                t[j] = SBIT__V(add_f32)(t[j], bias);
            }
            const int64_t at = i * cell->row_step + c;
            if (cell->pixels == m) {
                SBIT__V(last_put)
                (m, 1, &cell->store, cell->store.residual, left, cell->pixel_step, t, y, at);
                continue;
            }
            SBIT__UNROLL for (int j = 0; j < m; j++)
            {
                if (j < cell->pixels) {
                    SBIT__V(last_put)
                    (1, 1, &cell->store, cell->store.residual, left, 0, &t[j], y,
                     at + j * cell->pixel_step);
                }
            }
        }
    }
}

SBIT__V_TARGET static void SBIT__V(last_winograd_store)(int m, const sbit__last_cell *cell,
                                                        const float *sums, int64_t step,
                                                        float *middle, float *y)
{
    if (m == 2) {
        SBIT__V(winograd_store)(2, cell, sums, step, middle, y);
    } else {
        SBIT__V(winograd_store)(4, cell, sums, step, middle, y);
    }
}
