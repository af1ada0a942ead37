/* float8.c: 8-bit floats in place of integers: float8_e4m3fn, float8_e5m2. >>quantizer-float8
 *
 * y = f8(x / s) * s with f8 ONNX's saturating Cast; s puts the largest size of the range at the
 * type's largest number, zero points are 0. The grid of such a site says that: qmin and qmax are
 * that number. backward: straight-through where nothing saturates.
 */
#include "quantizers_private.h"

static size_t sbit__float8_state_bytes(const sbit_quantizer_call *call)
{
    (void)call;
    return 0;
}

static sbit_status sbit__float8_init(void *state, const sbit_quantizer_call *call,
                                     const sbit_observation *x, sbit_error *error)
{
    (void)state;
    (void)call; /* the scale stays as it came */
    (void)x;
    (void)error;
    return SBIT_OK;
}

static sbit_status sbit__float8_forward(void *state, const sbit_quantizer_call *call,
                                        const sbit_observation *x, float *y, sbit_error *error)
{
    const sbit_dtype dtype = call->grid->dtype;
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)state;
    (void)error;
    while (sbit_runs_next(&runs)) {
        const float s = call->scale[runs.part];
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            y[i] = sbit__f8_to_f32(dtype, sbit__f32_to_f8(dtype, x->data[i] / s, true)) * s;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__float8_backward(void *state, const sbit_quantizer_call *call,
                                         const sbit_observation *x, const float *dy, float *dx,
                                         sbit_error *error)
{
    const float most = (float)call->grid->qmax;
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)state;
    (void)error;
    while (sbit_runs_next(&runs)) {
        const float s = call->scale[runs.part];
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const float ratio = x->data[i] / s;
            dx[i] = ratio >= -most && ratio <= most ? dy[i] : 0.0f;
        }
    }
    return SBIT_OK;
}

#define SBIT__FLOAT8_ROW(name, doc)                                                                \
    {                                                                                              \
        {name, doc, SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, NULL, 0},                         \
            sbit__float8_state_bytes, NULL, NULL, NULL, sbit__float8_init, sbit__float8_forward,   \
            sbit__float8_backward, NULL, NULL, NULL, NULL                                          \
    }

static const sbit_quantizer_row sbit__float8_rows[] = {
    SBIT__FLOAT8_ROW("float8_e4m3fn", "8-bit floats, 3 bits of mantissa (opset 19)"),
    SBIT__FLOAT8_ROW("float8_e5m2", "8-bit floats, 2 bits of mantissa (opset 19)"),
};
#undef SBIT__FLOAT8_ROW

SBIT__FN const sbit_quantizer_row *sbit__quantizer_float8_e4m3fn(void)
{
    return &sbit__float8_rows[0];
}

SBIT__FN const sbit_quantizer_row *sbit__quantizer_float8_e5m2(void)
{
    return &sbit__float8_rows[1];
}

SBIT__FN sbit_dtype sbit__quantizer_float8(const sbit_quantizer_row *row, int32_t *largest)
{
    const bool wide = row == sbit__quantizer_float8_e5m2();
    *largest = wide ? 57344 : 448;
    return wide                                     ? SBIT_F8E5M2
           : row == sbit__quantizer_float8_e4m3fn() ? SBIT_F8E4M3FN
                                                    : SBIT_UNDEFINED;
}
