/* vec_exchange.h: rows become columns, over the vector operations of a set of 128 bits. >>vec_exchange
 */
SBIT__V_TARGET static void SBIT__V(last_zip)(int64_t n, const float *a, const float *b, float *y)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        SBIT__V(vf) v[2];
        SBIT__V(zip)(SBIT__V(load_f32)(a + i, 4), SBIT__V(load_f32)(b + i, 4), v);
        SBIT__V(store_f32)(y + 2 * i, 4, v[0]);
        SBIT__V(store_f32)(y + 2 * i + 4, 4, v[1]);
    }
    for (; i < n; i++) {
        y[2 * i] = a[i];
        y[2 * i + 1] = b[i];
    }
}

/* Three rows, as an image has: what is written too far is written again by the next column. */
SBIT__V_TARGET static int64_t SBIT__V(exchange3)(int64_t columns, const float *x, int64_t x_step,
                                                 float *y)
{
    int64_t j = 0;
    for (; j + 4 < columns; j += 4) {
        SBIT__V(vf) v[4];
        SBIT__UNROLL for (int k = 0; k < 4; k++)
        {
            v[k] = SBIT__V(load_f32)(x + (k < 3 ? k : 0) * x_step + j, 4);
        }
        SBIT__V(transpose4)(v);
        SBIT__UNROLL for (int k = 0; k < 4; k++)
        {
            SBIT__V(store_f32)(y + (j + k) * 3, 4, v[k]);
        }
    }
    return j;
}

SBIT__V_TARGET static void SBIT__V(last_exchange)(int64_t rows, int64_t columns, const float *x,
                                                  int64_t x_step, float *y, int64_t y_step)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        int64_t j = 0;
        for (; j + 4 <= columns; j += 4) {
            SBIT__V(vf) v[4];
            SBIT__UNROLL for (int k = 0; k < 4; k++)
            {
                v[k] = SBIT__V(load_f32)(x + (i + k) * x_step + j, 4);
            }
            SBIT__V(transpose4)(v);
            SBIT__UNROLL for (int k = 0; k < 4; k++)
            {
                SBIT__V(store_f32)(y + (j + k) * y_step + i, 4, v[k]);
            }
        }
        for (; j < columns; j++) {
            for (int k = 0; k < 4; k++) {
                y[j * y_step + i + k] = x[(i + k) * x_step + j];
            }
        }
    }
    const bool three = rows == 3 && y_step == 3;
    for (int64_t j = three ? SBIT__V(exchange3)(columns, x, x_step, y) : 0; j < columns; j++) {
        for (int64_t k = i; k < rows; k++) {
            y[j * y_step + k] = x[k * x_step + j];
        }
    }
}
