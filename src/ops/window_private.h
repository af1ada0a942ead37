/* window_private.h: sliding windows: what convolutions and pools share. >>window
 *
 * Called by: ops/conv.c, ops/pool.c, and whoever else reads kernel_shape, strides, dilations, pads
 * and auto_pad. Calls: ops/common.c.
 */
#ifndef SBIT_WINDOW_PRIVATE_H
#define SBIT_WINDOW_PRIVATE_H

#include "ops_private.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__MAX_SPATIAL 3 /* dimensions behind batch and channel */

typedef enum sbit__auto_pad {
    SBIT__PAD_NOTSET,
    SBIT__PAD_VALID,
    SBIT__PAD_SAME_UPPER,
    SBIT__PAD_SAME_LOWER
} sbit__auto_pad;

typedef struct sbit__window {
    int32_t spatial;                   /* 1..3 */
    int64_t kernel[SBIT__MAX_SPATIAL]; /* 0: not known yet (infer only) */
    int64_t stride[SBIT__MAX_SPATIAL], dilation[SBIT__MAX_SPATIAL];
    int64_t pad_begin[SBIT__MAX_SPATIAL], pad_end[SBIT__MAX_SPATIAL];
    sbit__auto_pad auto_pad;
    bool ceil_mode;
    bool may_cut; /* pools: where a stride is longer than the window, SAME_* pads less than 0 */
} sbit__window;

/* Reads and checks the attributes of a node with `spatial` spatial dimensions. `kernel`: the
 * spatial dims of the weight, which kernel_shape must agree with; NULL: kernel_shape is required.
 */
SBIT__FN sbit_status sbit__window_read(const sbit_op_call *call, int32_t spatial,
                                       const sbit_dim *kernel, sbit__window *out,
                                       sbit_error *error);
/* (kernel - 1) * dilation + 1: how far a window reaches. */
SBIT__FN int64_t sbit__window_extent(const sbit__window *window, int32_t axis);
/* Output length of a forward window over `in` elements along spatial `axis`; writes the padding
 * that auto_pad stands for into the window. */
SBIT__FN sbit_status sbit__window_length(const sbit_op_call *call, sbit__window *window,
                                         int32_t axis, int64_t in, int64_t *out, sbit_error *error);
/* The same for dims that may be unknown; an unknown dim that a window leaves as it is stays. */
SBIT__FN sbit_status sbit__window_dims(const sbit_op_call *call, sbit__window *window,
                                       const sbit_dim *in, sbit_dim *out, sbit_error *error);
/* Windows of a pool over N, C, positions...: the axes are the last of three, one that is not there is
 * 1 long. */
typedef struct sbit__pool_shape {
    int64_t batch, channels, in_size, out_size; /* sizes: of a plane */
    int64_t in[SBIT__MAX_SPATIAL], out[SBIT__MAX_SPATIAL];
    int64_t kernel[SBIT__MAX_SPATIAL], stride[SBIT__MAX_SPATIAL], dilation[SBIT__MAX_SPATIAL];
    int64_t pad_begin[SBIT__MAX_SPATIAL], pad_end[SBIT__MAX_SPATIAL];
} sbit__pool_shape;
/* From the node's attributes, for an input of type x, whose dims are numbers. `global`: one window,
 * the whole plane as one axis, whatever x's rank is. */
SBIT__FN sbit_status sbit__pool_shape_of(const sbit_op_call *call, const sbit_type *x, bool global,
                                         sbit__pool_shape *out, sbit_error *error);
/* The taps begin..end-1 of window number `at` along an axis lie inside of the input, the first
 * `padded` ones before the end of its padding; the first tap would be at `start`. */
typedef struct sbit__pool_taps {
    int64_t start, begin, end, padded;
} sbit__pool_taps;
SBIT__FN sbit__pool_taps sbit__pool_taps_of(const sbit__pool_shape *shape, int32_t axis,
                                            int64_t at);
/* Splits `total` cells of padding as auto_pad asks; SAME_LOWER puts the odd one in front. */
SBIT__FN void sbit__window_split_pad(sbit__window *window, int32_t axis, int64_t total);

/* conv.c: the driver's description of a Conv for the shapes in call->in_type, which must be
 * numbers. */
SBIT__FN sbit_status sbit__conv_shape_of(const sbit_op_call *call, sbit__conv_shape *shape,
                                         sbit_error *error);
/* As far as packing needs it: the weights, in one place of an image. False: not to be packed. */
SBIT__FN bool sbit__conv_weights(const sbit_op_call *call, sbit__conv_shape *shape);

/* Fails unless input i, if present, is a tensor; *rank -1: unknown. */
SBIT__FN sbit_status sbit__op_rank(const sbit_op_call *call, int32_t input, int32_t *rank,
                                   sbit_error *error);
/* Fails unless the present inputs of `mask` have a type of the set `types` (0: the type of input
 * 0). Types that are not known yet pass. */
SBIT__FN sbit_status sbit__op_dtypes(const sbit_op_call *call, uint32_t mask, uint32_t types,
                                     sbit_error *error);
SBIT__FN bool sbit__op_has(const sbit_op_call *call, int32_t input); /* input is there */
SBIT__FN bool sbit__op_wants(const sbit_op_call *call, int32_t output);
/* Infers once more and throws the result away: in prepare, where shapes are known that infer may
 * not have seen, so that run() can rely on what infer checks. */
SBIT__FN sbit_status sbit__op_check(const sbit_op_call *call, sbit_error *error);
SBIT__FN sbit_status sbit__op_prepare_check(const sbit_op_call *call, sbit_error *error);
/* prepare of rows that need sbit__op_in_float's memory and nothing else. */
SBIT__FN sbit_status sbit__op_prepare_f32(const sbit_op_call *call, sbit_error *error);
SBIT__FN sbit_status sbit__op_no_memory(const sbit_op_call *call, sbit_error *error);
/* Bytes rounded up to 64, so that what follows in scratch memory is aligned. */
SBIT__FN size_t sbit__align64(size_t bytes);
/* Product of dims[begin..end-1]; -1 if one is unknown or the product overflows. */
SBIT__FN int64_t sbit__type_count(const sbit_type *type, int32_t begin, int32_t end);
/* Elements for cost estimates: unknown dims count as 1, huge products saturate. */
SBIT__FN int64_t sbit__type_size(const sbit_type *type);
SBIT__FN int64_t sbit__saturating_mul(int64_t a, int64_t b);
/* Multiply-accumulates of a convolution: one weight[0] slice for each element of `at` (the output;
 * the input of a transposed one). Unknown dims count as 1. */
SBIT__FN int64_t sbit__window_macs(const sbit_type *at, const sbit_type *weight);
SBIT__FN int64_t sbit__tensor_span(const sbit_tensor *tensor, int32_t begin, int32_t end);
/* Internal rows (domain "sbit"): an input after those of the operator is added to the result, then
 * an activation follows (attributes activation, lo, hi). */
SBIT__FN bool sbit__op_is_internal(const sbit_op_call *call);
/* infer: the type of what is added must be that of output 0. */
SBIT__FN sbit_status sbit__epilogue_check(const sbit_op_call *call, int32_t residual,
                                          sbit_error *error);
/* prepare: what is done to the result, for the parameter block; zeros: nothing. */
SBIT__FN void sbit__epilogue_read(const sbit_op_call *call, sbit__epilogue *out);
/* Likewise, of attributes with other names: activation, lower and upper bound. */
SBIT__FN void sbit__epilogue_read_as(const sbit_op_call *call, const char *const names[3], sbit__epilogue *out);
/* run: `read` with what is added; NULL: nothing is done. */
SBIT__FN const sbit__epilogue *sbit__epilogue_of(const sbit_op_call *call,
                                                 const sbit__epilogue *read, int32_t residual,
                                                 sbit__epilogue *out);
/* Does to n finished values at y what the kernels do while they store: + residual, activation.
 * `offset`: of y[0] in the output. ep may be NULL. */
SBIT__FN void sbit__epilogue_apply(const sbit_kernels *kernels, const sbit__epilogue *ep,
                                   int64_t offset, int64_t n, float *y);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_WINDOW_PRIVATE_H */
