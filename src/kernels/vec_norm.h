/* vec_norm.h: rows of LayerNormalization; what BatchNormalization needs while training, over the vector operations of one
 * instruction set. >>vec_norm
 *
 * last_private.h says what the kernels do. Floats are added up in a block, doubles over the blocks.
 */

/* Adds what the lanes hold to sums, and empties them. */
SBIT__V_TARGET static void SBIT__V(norm_flush)(SBIT__V(vf) *lanes, double *sums)
{
    float part[SBIT__V(lanes)];
    for (int k = 0; k < 4; k++) {
        SBIT__V(store_f32)(part, SBIT__V(lanes), lanes[k]);
        for (int i = 0; i < SBIT__V(lanes); i++) {
            sums[k / 2] += (double)part[i];
        }
        lanes[k] = SBIT__V(set_f32)(0.0f);
    }
}

SBIT__V_INLINE void SBIT__V(norm_block)(int64_t n, const float *x, const float *b, float center,
                                        bool own, SBIT__V(vf) *lanes, double *sums)
{
    const SBIT__V(vf) c = SBIT__V(set_f32)(center);
    SBIT__V(vf) s0 = lanes[0], s1 = lanes[1], p0 = lanes[2], p1 = lanes[3];
    int64_t i = 0;
    for (; i + 2 * SBIT__V(lanes) <= n; i += 2 * SBIT__V(lanes)) {
        const int64_t next = i + SBIT__V(lanes);
        const SBIT__V(vf) u0 = SBIT__V(sub_f32)(SBIT__V(load_f32)(x + i, SBIT__V(lanes)), c);
        const SBIT__V(vf) u1 = SBIT__V(sub_f32)(SBIT__V(load_f32)(x + next, SBIT__V(lanes)), c);
        const SBIT__V(vf) v0 = own ? u0 : SBIT__V(load_f32)(b + i, SBIT__V(lanes));
        const SBIT__V(vf) v1 = own ? u1 : SBIT__V(load_f32)(b + next, SBIT__V(lanes));
        s0 = SBIT__V(add_f32)(s0, v0);
        s1 = SBIT__V(add_f32)(s1, v1);
        p0 = SBIT__V(fma_f32)(v0, u0, p0);
        p1 = SBIT__V(fma_f32)(v1, u1, p1);
    }
    if (i + SBIT__V(lanes) <= n) {
        const SBIT__V(vf) u = SBIT__V(sub_f32)(SBIT__V(load_f32)(x + i, SBIT__V(lanes)), c);
        const SBIT__V(vf) v = own ? u : SBIT__V(load_f32)(b + i, SBIT__V(lanes));
        s0 = SBIT__V(add_f32)(s0, v);
        p0 = SBIT__V(fma_f32)(v, u, p0);
        i += SBIT__V(lanes);
    }
    for (; i < n; i++) {
        const double u = (double)(x[i] - center), v = own ? u : (double)b[i];
        sums[0] += v;
        sums[1] += v * u;
    }
    lanes[0] = s0;
    lanes[1] = s1;
    lanes[2] = p0;
    lanes[3] = p1;
}

SBIT__V_TARGET static void SBIT__V(norm_sums)(int64_t rows, int64_t step, int64_t n, const float *x,
                                              const float *b, float center, double *sums)
{
    const SBIT__V(vf) zero = SBIT__V(set_f32)(0.0f);
    SBIT__V(vf) lanes[4];
    int64_t seen = 0; /* elements in the lanes */
    lanes[0] = lanes[1] = lanes[2] = lanes[3] = zero;
    sums[0] = sums[1] = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i += SBIT__NORM_BLOCK) {
            const int64_t count = sbit__smaller(n - i, SBIT__NORM_BLOCK);
            const int64_t at = r * step + i;
            if (b == NULL) {
                SBIT__V(norm_block)(count, x + at, NULL, center, true, lanes, sums);
            } else {
                SBIT__V(norm_block)(count, x + at, b + at, center, false, lanes, sums);
            }
            seen += count;
            if (seen >= SBIT__NORM_BLOCK) {
                SBIT__V(norm_flush)(lanes, sums);
                seen = 0;
            }
        }
    }
    SBIT__V(norm_flush)(lanes, sums);
}

SBIT__V_TARGET static void SBIT__V(norm_scale)(int64_t rows, int64_t step, int64_t n,
                                               const float *x, float a, float c, float *y)
{
    const SBIT__V(vf) va = SBIT__V(set_f32)(a), vc = SBIT__V(set_f32)(c);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i += SBIT__V(lanes)) {
            const int64_t at = r * step + i;
            SBIT__V(store_f32)
            (y + at, n - i, SBIT__V(fma_f32)(SBIT__V(load_f32)(x + at, n - i), va, vc));
        }
    }
}

SBIT__V_TARGET static void SBIT__V(norm_combine)(int64_t rows, int64_t step, int64_t n,
                                                 const float *x, const float *dy, float a, float b,
                                                 float c, float *dx)
{
    const SBIT__V(vf) va = SBIT__V(set_f32)(a), vb = SBIT__V(set_f32)(b), vc = SBIT__V(set_f32)(c);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i += SBIT__V(lanes)) {
            const int64_t at = r * step + i;
            const SBIT__V(vf) t = SBIT__V(fma_f32)(SBIT__V(load_f32)(x + at, n - i), vb, vc);
            SBIT__V(store_f32)
            (dx + at, n - i, SBIT__V(fma_f32)(SBIT__V(load_f32)(dy + at, n - i), va, t));
        }
    }
}

/* The sum of all lanes. */
SBIT__V_INLINE float SBIT__V(norm_all)(SBIT__V(vf) v)
{
    float part[SBIT__V(lanes)], sum = 0.0f;
    SBIT__V(store_f32)(part, SBIT__V(lanes), v);
    for (int i = 0; i < SBIT__V(lanes); i += 4) {
        sum += (part[i] + part[i + 1]) + (part[i + 2] + part[i + 3]);
    }
    return sum;
}

/* The sum of x, or of (x - center)^2. */
SBIT__V_INLINE double SBIT__V(norm_total)(int64_t n, const float *x, float center, bool squares)
{
    const int64_t lanes = SBIT__V(lanes);
    const SBIT__V(vf) m = SBIT__V(set_f32)(center);
    double total = 0.0;
    for (int64_t at = 0; at < n; at += SBIT__NORM_BLOCK) {
        const int64_t end = at + sbit__smaller(n - at, SBIT__NORM_BLOCK);
        SBIT__V(vf) a = SBIT__V(set_f32)(0.0f), b = a;
        int64_t i = at;
        for (; i + 2 * lanes <= end; i += 2 * lanes) {
            const SBIT__V(vf) u = SBIT__V(sub_f32)(SBIT__V(load_f32)(x + i, lanes), m);
            const SBIT__V(vf) v = SBIT__V(sub_f32)(SBIT__V(load_f32)(x + i + lanes, lanes), m);
            a = squares ? SBIT__V(fma_f32)(u, u, a) : SBIT__V(add_f32)(a, u);
            b = squares ? SBIT__V(fma_f32)(v, v, b) : SBIT__V(add_f32)(b, v);
        }
        total += (double)SBIT__V(norm_all)(SBIT__V(add_f32)(a, b));
        for (; i < end; i++) {
            const double u = (double)(x[i] - center);
            total += squares ? u * u : u;
        }
    }
    return total;
}

SBIT__V_TARGET static void SBIT__V(norm_row)(int64_t n, const float *x, const float *scale,
                                             const float *bias, bool centered, float epsilon,
                                             float *y, float stats[2])
{
    const int64_t lanes = SBIT__V(lanes);
    const float mean =
        centered ? (float)(SBIT__V(norm_total)(n, x, 0.0f, false) / (double)n) : 0.0f;
    const double squares = SBIT__V(norm_total)(n, x, mean, true) / (double)n;
    const SBIT__V(vf) m = SBIT__V(set_f32)(mean);
    const float factor = 1.0f / sqrtf((float)squares + epsilon);
    const SBIT__V(vf) f = SBIT__V(set_f32)(factor);
    for (int64_t i = 0; i < n; i += lanes) {
        const int64_t left = n - i;
        SBIT__V(vf) v = SBIT__V(mul_f32)(SBIT__V(sub_f32)(SBIT__V(load_f32)(x + i, left), m), f);
        v = scale != NULL ? SBIT__V(mul_f32)(v, SBIT__V(load_f32)(scale + i, left)) : v;
        v = bias != NULL ? SBIT__V(add_f32)(v, SBIT__V(load_f32)(bias + i, left)) : v;
        SBIT__V(store_f32)(y + i, left, v);
    }
    stats[0] = mean;
    stats[1] = factor;
}

SBIT__V_TARGET static void SBIT__V(norm_dots)(int64_t images, int64_t n, const float *const *rows,
                                              int64_t a_image, int64_t b_image, float *sums)
{
    const SBIT__V(vf) zero = SBIT__V(set_f32)(0.0f);
    SBIT__V(vf) s0 = zero, s1 = zero, s2 = zero, s3 = zero; /* with row 4 */
    SBIT__V(vf) t0 = zero, t1 = zero, t2 = zero, t3 = zero; /* with row 5 */
    for (int64_t image = 0; image < images; image++) {
        const float *a0 = rows[0] + image * a_image, *a1 = rows[1] + image * a_image;
        const float *a2 = rows[2] + image * a_image, *a3 = rows[3] + image * a_image;
        const float *b0 = rows[4] + image * b_image, *b1 = rows[5] + image * b_image;
        for (int64_t i = 0; i < n; i += SBIT__V(lanes)) {
            const int64_t m = n - i;
            const SBIT__V(vf) b = SBIT__V(load_f32)(b0 + i, m), c = SBIT__V(load_f32)(b1 + i, m);
            const SBIT__V(vf) v0 = SBIT__V(load_f32)(a0 + i, m), v1 = SBIT__V(load_f32)(a1 + i, m);
            s0 = SBIT__V(fma_f32)(v0, b, s0);
            t0 = SBIT__V(fma_f32)(v0, c, t0);
            s1 = SBIT__V(fma_f32)(v1, b, s1);
            t1 = SBIT__V(fma_f32)(v1, c, t1);
            const SBIT__V(vf) v2 = SBIT__V(load_f32)(a2 + i, m), v3 = SBIT__V(load_f32)(a3 + i, m);
            s2 = SBIT__V(fma_f32)(v2, b, s2);
            t2 = SBIT__V(fma_f32)(v2, c, t2);
            s3 = SBIT__V(fma_f32)(v3, b, s3);
            t3 = SBIT__V(fma_f32)(v3, c, t3);
        }
    }
    sums[0] = SBIT__V(norm_all)(s0);
    sums[1] = SBIT__V(norm_all)(t0);
    sums[2] = SBIT__V(norm_all)(s1);
    sums[3] = SBIT__V(norm_all)(t1);
    sums[4] = SBIT__V(norm_all)(s2);
    sums[5] = SBIT__V(norm_all)(t2);
    sums[6] = SBIT__V(norm_all)(s3);
    sums[7] = SBIT__V(norm_all)(t3);
}

/* >>with channels last: vectors hold channels */

SBIT__V_INLINE void SBIT__V(norm_last_part)(int vectors, bool own, int64_t rows, int64_t n,
                                            int64_t count, const float *x, const float *b,
                                            const float *center, float *sums)
{
    const int64_t lanes = SBIT__V(lanes);
    SBIT__V(vf) c[4], s[4], p[4];
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        c[j] = SBIT__V(load_f32)(center + j * lanes, count);
        s[j] = p[j] = SBIT__V(set_f32)(0.0f);
    }
    for (int64_t r = 0; r < rows; r++) {
        SBIT__UNROLL for (int j = 0; j < vectors; j++)
        {
            const int64_t at = r * n + j * lanes;
            const SBIT__V(vf) u = SBIT__V(sub_f32)(SBIT__V(load_f32)(x + at, count), c[j]);
            const SBIT__V(vf) v = own ? u : SBIT__V(load_f32)(b + at, count);
            s[j] = SBIT__V(add_f32)(s[j], v);
            p[j] = SBIT__V(fma_f32)(v, u, p[j]);
        }
    }
    SBIT__UNROLL for (int j = 0; j < vectors; j++)
    {
        SBIT__V(store_f32)(sums + j * lanes, count, s[j]);
        SBIT__V(store_f32)(sums + n + j * lanes, count, p[j]);
    }
}

SBIT__V_TARGET static void SBIT__V(norm_last_sums)(int64_t rows, int64_t n, const float *x,
                                                   const float *b, const float *center, float *sums)
{
    const int64_t lanes = SBIT__V(lanes);
    for (int64_t c = 0; c < n;) {
        const bool wide = n - c >= 4 * lanes;
        const int64_t count = n - c < lanes ? n - c : lanes;
        if (wide && b == NULL) {
            SBIT__V(norm_last_part)(4, true, rows, n, lanes, x + c, NULL, center + c, sums + c);
        } else if (wide) {
            SBIT__V(norm_last_part)(4, false, rows, n, lanes, x + c, b + c, center + c, sums + c);
        } else if (b == NULL) {
            SBIT__V(norm_last_part)(1, true, rows, n, count, x + c, NULL, center + c, sums + c);
        } else {
            SBIT__V(norm_last_part)(1, false, rows, n, count, x + c, b + c, center + c, sums + c);
        }
        c += wide ? 4 * lanes : lanes;
    }
}

SBIT__V_TARGET static void SBIT__V(norm_last_scale)(int64_t rows, int64_t n, const float *x,
                                                    const float *dy, const float *f, float *y)
{
    for (int64_t c = 0; c < n; c += SBIT__V(lanes)) {
        const int64_t count = n - c;
        const SBIT__V(vf) a = SBIT__V(load_f32)(f + c, count);
        const SBIT__V(vf) mean = SBIT__V(load_f32)(f + n + c, count);
        const SBIT__V(vf) shift = SBIT__V(load_f32)(f + 2 * n + c, count);
        const SBIT__V(vf) k = dy != NULL ? SBIT__V(load_f32)(f + 3 * n + c, count) : a;
        for (int64_t at = c; at < rows * n; at += n) {
            const SBIT__V(vf) u = SBIT__V(sub_f32)(SBIT__V(load_f32)(x + at, count), mean);
            SBIT__V(vf) v = SBIT__V(fma_f32)(u, a, shift);
            if (dy != NULL) {
                v = SBIT__V(fma_f32)(SBIT__V(load_f32)(dy + at, count), k, v);
            }
            SBIT__V(store_f32)(y + at, count, v);
        }
    }
}

SBIT__V_TARGET static void SBIT__V(slope_inside)(int64_t n, const float *dy, const float *v,
                                                 float lo, float hi, float *dx)
{
    const SBIT__V(vf) low = SBIT__V(set_f32)(lo), high = SBIT__V(set_f32)(hi);
    for (int64_t i = 0; i < n; i += SBIT__V(lanes)) {
        const SBIT__V(vf) d = SBIT__V(load_f32)(dy + i, n - i), u = SBIT__V(load_f32)(v + i, n - i);
        SBIT__V(store_f32)(dx + i, n - i, SBIT__V(inside_f32)(d, u, low, high));
    }
}

/* lanes[0]: what sums[0] takes, lanes[2]: sums[1]. Rounded within a step of the limits only, so that
 * integers hold it. */
SBIT__V_INLINE void SBIT__V(slope_grid_part)(int64_t n, const float *dy, const float *x, float scale,
                                             float least, float most, float *dx, SBIT__V(vf) *lanes)
{
    const SBIT__V(vf) s = SBIT__V(set_f32)(scale);
    const SBIT__V(vf) lo = SBIT__V(set_f32)(least), hi = SBIT__V(set_f32)(most);
    const SBIT__V(vf) below = SBIT__V(set_f32)(least - 1.0f), above = SBIT__V(set_f32)(most + 1.0f);
    const SBIT__V(vf) from = SBIT__V(set_f32)(least - 0.5f), to = SBIT__V(set_f32)(most + 0.5f);
    const SBIT__V(vf) g = SBIT__V(load_f32)(dy, n);
    const SBIT__V(vf) ratio = SBIT__V(quotient)(SBIT__V(load_f32)(x, n), s, 0.0f);
    const SBIT__V(vf) q =
        SBIT__V(to_f32)(SBIT__V(round)(SBIT__V(clamp_f32)(ratio, below, above)));
    const SBIT__V(vf) passed = SBIT__V(inside_f32)(g, q, from, to);
    const SBIT__V(vf) off = SBIT__V(sub_f32)(SBIT__V(clamp_f32)(q, lo, hi),
                                             SBIT__V(inside_f32)(ratio, q, from, to));
    lanes[0] = SBIT__V(fma_f32)(g, off, lanes[0]);
    lanes[2] = SBIT__V(add_f32)(lanes[2], SBIT__V(sub_f32)(g, passed));
    SBIT__V(store_f32)(dx, n, passed);
}

SBIT__V_TARGET static void SBIT__V(slope_grid)(int64_t n, const float *dy, const float *x,
                                               float scale, float zero, float lo, float hi,
                                               float *dx, double *sums)
{
    const int64_t step = SBIT__V(lanes);
    SBIT__V(vf) even[4], odd[4];
    for (int k = 0; k < 4; k++) {
        even[k] = odd[k] = SBIT__V(set_f32)(0.0f);
    }
    sums[0] = sums[1] = 0.0;
    for (int64_t at = 0; at < n; at += SBIT__NORM_BLOCK) {
        const int64_t end = at + sbit__smaller(n - at, SBIT__NORM_BLOCK);
        int64_t i = at;
        for (; i + 2 * step <= end; i += 2 * step) {
            const int64_t next = i + step;
            SBIT__V(slope_grid_part)(step, dy + i, x + i, scale, lo - zero, hi - zero, dx + i, even);
            SBIT__V(slope_grid_part)
            (step, dy + next, x + next, scale, lo - zero, hi - zero, dx + next, odd);
        }
        for (; i < end; i += step) {
            SBIT__V(slope_grid_part)
            (end - i, dy + i, x + i, scale, lo - zero, hi - zero, dx + i, even);
        }
        SBIT__V(norm_flush)(even, sums);
        SBIT__V(norm_flush)(odd, sums);
    }
}

SBIT__V_TARGET static void SBIT__V(lstm_back)(int64_t n, const float *g, const float *top,
                                              const float *c0, const float *dh, const float *dy,
                                              float *dc, float *dg)
{
    const SBIT__V(vf) one = SBIT__V(set_f32)(1.0f), zero = SBIT__V(set_f32)(0.0f);
    for (int64_t i = 0; i < n; i += SBIT__V(lanes)) {
        const int64_t left = n - i;
        const SBIT__V(vf) in = SBIT__V(load_f32)(g + i, left);
        const SBIT__V(vf) out = SBIT__V(load_f32)(g + n + i, left);
        const SBIT__V(vf) keep = SBIT__V(load_f32)(g + 2 * n + i, left);
        const SBIT__V(vf) value = SBIT__V(load_f32)(g + 3 * n + i, left);
        const SBIT__V(vf) t = SBIT__V(load_f32)(top + i, left);
        const SBIT__V(vf) before = c0 != NULL ? SBIT__V(load_f32)(c0 + i, left) : zero;
        const SBIT__V(vf) from = SBIT__V(load_f32)(dh + i, left);
        const SBIT__V(vf) up = dy != NULL ? SBIT__V(add_f32)(from, SBIT__V(load_f32)(dy + i, left)) : from;
        const SBIT__V(vf) slope = SBIT__V(sub_f32)(one, SBIT__V(mul_f32)(t, t));
        const SBIT__V(vf) down = SBIT__V(fma_f32)(SBIT__V(mul_f32)(up, out), slope,
                                                  SBIT__V(load_f32)(dc + i, left));
        const SBIT__V(vf) of_in = SBIT__V(mul_f32)(in, SBIT__V(sub_f32)(one, in));
        const SBIT__V(vf) of_out = SBIT__V(mul_f32)(out, SBIT__V(sub_f32)(one, out));
        const SBIT__V(vf) of_keep = SBIT__V(mul_f32)(keep, SBIT__V(sub_f32)(one, keep));
        const SBIT__V(vf) of_value = SBIT__V(sub_f32)(one, SBIT__V(mul_f32)(value, value));
        SBIT__V(store_f32)(dg + i, left, SBIT__V(mul_f32)(SBIT__V(mul_f32)(down, value), of_in));
        SBIT__V(store_f32)(dg + n + i, left, SBIT__V(mul_f32)(SBIT__V(mul_f32)(up, t), of_out));
        SBIT__V(store_f32)
        (dg + 2 * n + i, left, SBIT__V(mul_f32)(SBIT__V(mul_f32)(down, before), of_keep));
        SBIT__V(store_f32)(dg + 3 * n + i, left, SBIT__V(mul_f32)(SBIT__V(mul_f32)(down, in), of_value));
        SBIT__V(store_f32)(dc + i, left, SBIT__V(mul_f32)(down, keep));
    }
}

SBIT__V_INLINE void SBIT__V(last_dots_part)(int taps, int64_t pixels, int64_t count, int64_t step,
                                            const float *dy, int64_t pixel_step, int64_t tap_step,
                                            const float *x, float *sums)
{
    SBIT__V(vf) s[3];
    SBIT__UNROLL for (int t = 0; t < taps; t++)
    {
        s[t] = SBIT__V(load_f32)(sums + t * step, count);
    }
    for (int64_t p = 0; p < pixels; p++) {
        const SBIT__V(vf) v = SBIT__V(load_f32)(dy + p * step, count);
        SBIT__UNROLL for (int t = 0; t < taps; t++)
        {
            const float *at = x + p * pixel_step + t * tap_step;
            s[t] = SBIT__V(fma_f32)(SBIT__V(load_f32)(at, count), v, s[t]);
        }
    }
    SBIT__UNROLL for (int t = 0; t < taps; t++)
    {
        SBIT__V(store_f32)(sums + t * step, count, s[t]);
    }
}

SBIT__V_TARGET static void SBIT__V(last_depthwise_dots)(int64_t pixels, int64_t channels,
                                                        int64_t taps, int64_t step, const float *dy,
                                                        int64_t pixel_step, int64_t tap_step,
                                                        const float *x, float *sums)
{
    for (int64_t c = 0; c < channels; c += SBIT__V(lanes)) {
        const int64_t n = channels - c;
        int64_t t = 0;
        for (; t + 3 <= taps; t += 3) {
            SBIT__V(last_dots_part)
            (3, pixels, n, step, dy + c, pixel_step, tap_step, x + t * tap_step + c,
             sums + t * step + c);
        }
        for (; t < taps; t++) {
            SBIT__V(last_dots_part)
            (1, pixels, n, step, dy + c, pixel_step, tap_step, x + t * tap_step + c,
             sums + t * step + c);
        }
    }
}
