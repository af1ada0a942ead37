/* vec_exchange.h: rows become columns, over the vector operations of a set of 128 bits. >>vec_exchange
 */
SBIT__V_TARGET static void SBIT__V(last_exchange)(int64_t rows, int64_t columns, const float *x,
                                                  int64_t x_step, float *y, int64_t y_step)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        int64_t j = 0;
        for (; j + 4 <= columns; j += 4) {
            SBIT__V(vf) v[4];
            for (int k = 0; k < 4; k++) {
                v[k] = SBIT__V(load_f32)(x + (i + k) * x_step + j, 4);
            }
            SBIT__V(transpose4)(v);
            for (int k = 0; k < 4; k++) {
                SBIT__V(store_f32)(y + (j + k) * y_step + i, 4, v[k]);
            }
        }
        for (; j < columns; j++) {
            for (int k = 0; k < 4; k++) {
                y[j * y_step + i + k] = x[(i + k) * x_step + j];
            }
        }
    }
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t k = i; k < rows; k++) {
            y[j * y_step + k] = x[k * x_step + j];
        }
    }
}
