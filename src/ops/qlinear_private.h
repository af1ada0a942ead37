/* qlinear_private.h: what the files of integer operators share. >>qlinear
 *
 * Called by: ops/qlinear*.c. Calls: integer kernels, ops/common.c.
 * The domain "sbit" holds the operators that lowering puts in: those of com.microsoft, channels
 * last, with attributes lo and hi (bounds of the result as uint8) for an activation behind.
 */
#ifndef SBIT_QLINEAR_PRIVATE_H
#define SBIT_QLINEAR_PRIVATE_H

#include "../kernels/q8_private.h"
#include "elements_private.h"
#include "window_private.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__T_Q8 (SBIT_T(SBIT_U8) | SBIT_T(SBIT_I8))

/* One tensor's quantization as the kernels see it: uint8, flipped where the tensor is int8. */
typedef struct sbit__q_param {
    float scale;
    int32_t zero;
    uint8_t flip; /* 0 or 0x80 */
} sbit__q_param;

/* run: from inputs `scale` and `zero` (which may be omitted), for a tensor of this type. */
SBIT__FN sbit_status sbit__q_param_of(const sbit_op_call *call, int32_t scale, int32_t zero,
                                      sbit_dtype dtype, sbit__q_param *out, sbit_error *error);
/* prepare: the bounds of a uint8 result, of these attributes; run adds the zero point. */
SBIT__FN sbit__q8_store sbit__q_store_of(const sbit_op_call *call, const char *lo, const char *hi);
SBIT__FN bool sbit__q_channels_last(const sbit_op_call *call);

/* The row is the operator `name`, whatever stands in front: QLinearAdd and QAdd are Add. */
SBIT__FN bool sbit__q_is(const sbit_op_call *call, const char *name);

/* The call as the float operator sees it: chosen inputs as float32. */
#define SBIT__Q_VIEW_INPUTS 8
typedef struct sbit__q_view {
    sbit_op_call call;
    const sbit_type *in_type[SBIT__Q_VIEW_INPUTS];
    sbit_type *out_type[1];
    sbit_type types[SBIT__Q_VIEW_INPUTS], out;
    const sbit_tensor *in[SBIT__Q_VIEW_INPUTS];
} sbit__q_view;

/* `inputs`: numbers of the call's inputs, -1: omitted. channels_last: dims of inputs 0 are put
 * in the order N, C, positions. The view must stay where it is. */
SBIT__FN void sbit__q_view_init(const sbit_op_call *call, const char *op_type, int32_t version,
                                const int32_t *inputs, int32_t count, bool channels_last,
                                sbit__q_view *view);
/* infer: output 0 gets the float operator's shape and this type. */
SBIT__FN sbit_status sbit__q_infer_as(const sbit_op_call *call, const char *op_type,
                                      int32_t version, const int32_t *inputs, int32_t count,
                                      sbit_dtype dtype, sbit_error *error);

/* The dims of N, positions..., C in the order N, C, positions..., and back. */
SBIT__FN void sbit__q_type_to_first(sbit_type *type);
SBIT__FN void sbit__q_type_to_last(sbit_type *type);

/* y[position][channel] = x[channel][position] ^ flip for each of n images, and back. */
SBIT__FN void sbit__q_to_last(int64_t n, int64_t channels, int64_t positions, const uint8_t *x,
                              uint8_t flip, uint8_t *y);
SBIT__FN void sbit__q_to_first(int64_t n, int64_t channels, int64_t positions, const uint8_t *x,
                               uint8_t flip, uint8_t *y);
SBIT__FN void sbit__q_flip(int64_t n, const uint8_t *x, uint8_t flip, uint8_t *y); /* in place ok */

/* table[byte] = Q(op(DQ(byte))), by the scalar kernels, so that it is the same everywhere. op NULL:
 * another scale and zero point only; `alpha` is LeakyRelu's. */
typedef void (*sbit__q_unary_fn)(const sbit_kernels *scalar, float alpha, int64_t n, float *values);
SBIT__FN void sbit__q_table(const sbit__q_param *x, const sbit__q_param *y, sbit__q_unary_fn op,
                            float alpha, uint8_t table[256]);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QLINEAR_PRIVATE_H */
