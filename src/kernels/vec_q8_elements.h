/* vec_q8_elements.h: the integer kernels without products, which no set needs twice: those with
 * VNNI have them of the set without. >>vec_q8_elements
 */

SBIT__V_TARGET static void SBIT__V(q8_linear)(const sbit__q8_pair *pair, int64_t n,
                                              const uint8_t *a, const uint8_t *b, uint8_t *y)
{
    const SBIT__V(q8_bounds) bounds = SBIT__V(q8_bounds_of)(&pair->store);
    const SBIT__V(vf) by_a = SBIT__V(set_f32)(pair->by_a), by_b = SBIT__V(set_f32)(pair->by_b);
    const SBIT__V(vf) base = SBIT__V(set_f32)(pair->base);
    for (int64_t i = 0; i < n; i += 4 * SBIT__V(lanes)) {
        SBIT__V(vi) q[4];
        SBIT__UNROLL for (int j = 0; j < 4; j++)
        {
            const int64_t at = i + j * SBIT__V(lanes);
            const SBIT__V(vf) u = SBIT__V(to_f32)(SBIT__V(load_u8)(a + at, n - at));
            const SBIT__V(vf) v = SBIT__V(to_f32)(SBIT__V(load_u8)(b + at, n - at));
            q[j] = SBIT__V(round)(SBIT__V(fma_f32)(v, by_b, SBIT__V(fma_f32)(u, by_a, base)));
        }
        SBIT__V(store_bytes)(y + i, n - i, SBIT__V(in_order)(SBIT__V(q8_narrow)(&bounds, q)));
    }
}

SBIT__V_TARGET static void SBIT__V(q8_binary)(const sbit__q8_pair *pair, int64_t n,
                                              const uint8_t *a, const uint8_t *b, uint8_t *y)
{
    if (pair->linear) {
        SBIT__V(q8_linear)(pair, n, a, b, y);
        return;
    }
    const SBIT__V(vi) zero_a = SBIT__V(set_i32)(pair->zero_a);
    const SBIT__V(q8_bounds) bounds = SBIT__V(q8_bounds_of)(&pair->store);
    const SBIT__V(vf) top = SBIT__V(set_f32)((float)(pair->store.hi - pair->store.zero));
    const SBIT__V(q8_factors) by = SBIT__V(q8_factors_of)(pair);
    for (int64_t i = 0; i < n; i += 4 * SBIT__V(lanes)) {
        SBIT__V(vi) q[4];
        SBIT__UNROLL for (int j = 0; j < 4; j++)
        {
            const int64_t at = i + j * SBIT__V(lanes);
            const SBIT__V(vf) u = SBIT__V(q8_dequantize)(a + at, n - at, zero_a, by.a);
            const SBIT__V(vf) v = SBIT__V(q8_dequantize)(b + at, n - at, by.zero_b, by.b);
            const SBIT__V(vf) f = pair->op == SBIT__BINARY_ADD   ? SBIT__V(add_f32)(u, v)
                                  : pair->op == SBIT__BINARY_SUB ? SBIT__V(sub_f32)(u, v)
                                                                 : SBIT__V(mul_f32)(u, v);
            q[j] = SBIT__V(round_below)(SBIT__V(quotient)(f, by.y, by.inverse), top);
        }
        SBIT__V(store_bytes)(y + i, n - i, SBIT__V(in_order)(SBIT__V(q8_narrow)(&bounds, q)));
    }
}

SBIT__V_TARGET static void SBIT__V(q8_max)(int64_t n, int64_t count, int64_t step, int64_t taps,
                                           const int64_t *offsets, const uint8_t *x, uint8_t *y)
{
    if (step == n) { /* all runs are one */
        n *= count;
        count = 1;
    }
    for (int64_t p = 0; p < count; p++) {
        for (int64_t i = 0; i < n; i += 4 * SBIT__V(lanes)) {
            SBIT__V(vb) most = SBIT__V(load_bytes)(y + p * n + i, n - i);
            for (int64_t t = 0; t < taps; t++) {
                const uint8_t *from = x + (p * step + offsets[t] + i);
                most = SBIT__V(max_bytes)(most, SBIT__V(load_bytes)(from, n - i));
            }
            SBIT__V(store_bytes)(y + p * n + i, n - i, most);
        }
    }
}

/* 16 at a time: joining works within 16 bytes. */
SBIT__V_TARGET static void SBIT__V(q8_interleave)(int64_t n, const uint8_t *a, const uint8_t *b,
                                                  uint8_t *y)
{
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t left = n - i < 16 ? n - i : 16;
        const SBIT__V(vb) even = SBIT__V(load_bytes)(a + i, n - i);
        const SBIT__V(vb) odd = SBIT__V(load_bytes)(b + i, n - i);
        SBIT__V(store_bytes)(y + 2 * i, left < 8 ? 2 * left : 16, SBIT__V(low8)(even, odd));
        if (left > 8) {
            SBIT__V(store_bytes)(y + 2 * i + 16, 2 * left - 16, SBIT__V(high8)(even, odd));
        }
    }
}

SBIT__V_TARGET static void SBIT__V(q8_lookup)(int64_t n, const uint8_t *table, const uint8_t *x,
                                              uint8_t *y)
{
    const int64_t block = 4 * SBIT__V(lanes);
    int64_t i = 0;
    for (; i < n - n % block; i += block) {
        SBIT__V(store_bytes)
        (y + i, block, SBIT__V(lookup)(table, SBIT__V(load_bytes)(x + i, block)));
    }
    for (; i < n; i++) {
        y[i] = table[x[i]];
    }
}

SBIT__V_TARGET static void SBIT__V(q8_accumulate)(int64_t n, int64_t rows, int64_t stride,
                                                  const uint8_t *x, int32_t zero, float scale,
                                                  float *sums)
{
    const SBIT__V(vi) zeros = SBIT__V(set_i32)(zero);
    const SBIT__V(vf) scales = SBIT__V(set_f32)(scale);
    for (int64_t i = 0; i < n; i += SBIT__V(lanes)) {
        SBIT__V(vf) sum = SBIT__V(load_f32)(sums + i, n - i);
        for (int64_t row = 0; row < rows; row++) {
            sum = SBIT__V(add_f32)(
                sum, SBIT__V(q8_dequantize)(x + row * stride + i, n - i, zeros, scales));
        }
        SBIT__V(store_f32)(sums + i, n - i, sum);
    }
}
