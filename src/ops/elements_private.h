/* elements_private.h: what the families that move and combine elements share: sets of types per
 * opset, access to optional inputs, symbolic arithmetic, strided loops, copies of elements.
 *
 * Called by: ops/unary.c ... ops/quantize.c. Calls: ops/common.c.
 */
#ifndef SBIT_ELEMENTS_PRIVATE_H
#define SBIT_ELEMENTS_PRIVATE_H

#include "ops_private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types by the opset that let them in: "all types" of the structural operators. */
#define SBIT__T_FLOATS1 (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F16) | SBIT_T(SBIT_F64)) /* no bfloat16 */
#define SBIT__T_NUMBERS1 (SBIT__T_FLOATS1 | SBIT_T_INTS)
#define SBIT__T_WORDS (SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64) | SBIT_T(SBIT_U32) | SBIT_T(SBIT_U64))
#define SBIT__T_F8                                                                                 \
    (SBIT_T(SBIT_F8E4M3FN) | SBIT_T(SBIT_F8E4M3FNUZ) | SBIT_T(SBIT_F8E5M2) |                       \
     SBIT_T(SBIT_F8E5M2FNUZ))
#define SBIT__T_ALL1                                                                               \
    (SBIT__T_NUMBERS1 | SBIT_T(SBIT_BOOL) | SBIT_T(SBIT_STRING) | SBIT_T(SBIT_C64) |               \
     SBIT_T(SBIT_C128))
#define SBIT__T_ALL13 (SBIT__T_ALL1 | SBIT_T(SBIT_BF16))
#define SBIT__T_ALL19 (SBIT__T_ALL13 | SBIT__T_F8)
#define SBIT__T_ALL21 (SBIT__T_ALL19 | SBIT_T(SBIT_I4) | SBIT_T(SBIT_U4))
#define SBIT__T_ALL23 (SBIT__T_ALL21 | SBIT_T(SBIT_F4E2M1))
#define SBIT__T_ALL24 (SBIT__T_ALL23 | SBIT_T(SBIT_F8E8M0))
#define SBIT__T_ALL25 (SBIT__T_ALL24 | SBIT_T(SBIT_I2) | SBIT_T(SBIT_U2))
#define SBIT__T_F6 (SBIT_T(SBIT_F6E2M3) | SBIT_T(SBIT_F6E3M2))
#define SBIT__T_ALL28 (SBIT__T_ALL25 | SBIT__T_F6)

/* >>inputs and outputs; an index past the end is an omitted one */
SBIT__FN const sbit_type *sbit__in_type(const sbit_op_call *call, int32_t i);
SBIT__FN const sbit_tensor *sbit__in(const sbit_op_call *call, int32_t i); /* NULL: not known */
SBIT__FN sbit_tensor *sbit__out(const sbit_op_call *call, int32_t i);      /* NULL: not wanted */
/* infer: the elements of input i are known. */
SBIT__FN bool sbit__op_constant(const sbit_op_call *call, int32_t i);
SBIT__FN sbit_dtype sbit__in_dtype(const sbit_op_call *call, int32_t i);
/* Fails if two of the inputs first..last that are present have different known element types. */
SBIT__FN sbit_status sbit__op_one_dtype(const sbit_op_call *call, int32_t first, int32_t last,
                                        sbit_error *error);
/* run: output i with this type and shape: as planned, or allocated if the plan did not know it.
 * *out is NULL if the output is not wanted. */
SBIT__FN sbit_status sbit__op_output(const sbit_op_call *call, int32_t i, sbit_dtype dtype,
                                     int32_t rank, const int64_t *dims, sbit_tensor **out,
                                     sbit_error *error);
/* run: one integer from input i (rank 0 or one element); `otherwise` if it is omitted. */
SBIT__FN sbit_status sbit__op_scalar(const sbit_op_call *call, int32_t i, int64_t otherwise,
                                     int64_t *out, sbit_error *error);
/* run: the same for a type whose dims are all numbers, as infer functions make them. */
SBIT__FN sbit_status sbit__op_output_type(const sbit_op_call *call, int32_t i,
                                          const sbit_type *type, sbit_tensor **out,
                                          sbit_error *error);
/* infer: the elements of a small integer input as numbers and symbols; false: not known. */
SBIT__FN bool sbit__op_elems(const sbit_op_call *call, int32_t i, sbit_dim *elems, int64_t capacity,
                             int64_t *count);
/* The same without a copy: element k is sbit__elems_at(&elems, k). */
typedef struct sbit__elems {
    const sbit_dim *dims;      /* NULL: numbers of the tensor */
    const sbit_tensor *tensor;
    int64_t count;
} sbit__elems;
SBIT__FN bool sbit__op_elems_view(const sbit_op_call *call, int32_t i, sbit__elems *out);
SBIT__FN sbit_dim sbit__elems_at(const sbit__elems *elems, int64_t k);
SBIT__FN void sbit__op_set_elems(const sbit_op_call *call, int32_t output, const sbit_dim *elems,
                                 int64_t count);
#define SBIT__ELEMS_MAX 64

/* >>symbolic arithmetic: numbers are exact (overflow: unknown); symbols stand for dims >= 0 */
SBIT__FN sbit_dim sbit__dim_add(sbit_dim a, sbit_dim b);
SBIT__FN sbit_dim sbit__dim_sub(sbit_dim a, sbit_dim b);
SBIT__FN sbit_dim sbit__dim_mul(sbit_dim a, sbit_dim b);
SBIT__FN sbit_dim sbit__dim_div(sbit_dim a, sbit_dim b); /* towards zero */
/* The product of dims; unknown if two factors are, or on overflow. */
SBIT__FN sbit_dim sbit__dim_product(const sbit_dim *dims, int32_t count);

/* >>elements */
/* Bytes of one element; a sbit_str for strings; 0 for types below 8 bits. */
SBIT__FN size_t sbit__elem_bytes(sbit_dtype dtype);
/* Copies n elements from src[from..] to dst[to..]; any type. */
SBIT__FN void sbit__elem_copy(sbit_dtype dtype, void *dst, int64_t to, const void *src,
                              int64_t from, int64_t n);
/* Sets n elements to copies of src[from]. */
SBIT__FN void sbit__elem_fill(sbit_dtype dtype, void *dst, int64_t to, int64_t n, const void *src,
                              int64_t from);
SBIT__FN void sbit__elem_zero(sbit_dtype dtype, void *dst, int64_t to, int64_t n); /* "" */
SBIT__FN void *sbit__elem_at(sbit_dtype dtype, void *data, int64_t index); /* not below 8 bits */
SBIT__FN const void *sbit__elem_at_const(sbit_dtype dtype, const void *data, int64_t index);
/* Copies a whole tensor's elements unless they are the same memory. */
SBIT__FN void sbit__elem_copy_all(const sbit_tensor *from, sbit_tensor *to);

/* >>loops: operands walked over one shape, each with its own strides (elements). Dims of 1 are
 * dropped and dims that lie together for every operand are merged, so that `inner` is long. */
#define SBIT__LOOP_OPERANDS 4
typedef struct sbit__loop {
    int32_t rank, operands; /* rank >= 1 */
    int64_t dims[SBIT_MAX_RANK];
    int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK];
    int64_t inner, outer; /* dims[rank - 1], product of the others */
} sbit__loop;
/* Every strides[k] has `rank` entries. */
SBIT__FN void sbit__loop_init(sbit__loop *loop, int32_t rank, const int64_t *dims, int32_t operands,
                              const int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK]);
/* Where the operands' rows number `row` (0..outer-1) begin. */
SBIT__FN void sbit__loop_row(const sbit__loop *loop, int64_t row,
                             int64_t offsets[SBIT__LOOP_OPERANDS]);
/* Strides of `tensor` broadcast to the shape; its dims start at `align` (-1: right-aligned, as in
 * NumPy). Fails if it does not broadcast. */
SBIT__FN sbit_status sbit__op_strides(const sbit_op_call *call, const sbit_tensor *tensor,
                                      int32_t align, int32_t rank, const int64_t *dims,
                                      int64_t strides[SBIT_MAX_RANK], sbit_error *error);
/* The product of dims[begin..end-1] of a tensor that was checked before. */
SBIT__FN int64_t sbit__dims_product(const int64_t *dims, int32_t begin, int32_t end);

/* Work for threads in blocks that depend on the size only, so that results never depend on the
 * number of threads: fn(task, begin, end) with begin a multiple of SBIT__BLOCK. */
#define SBIT__BLOCK 8192
typedef void (*sbit__block_fn)(void *task, int64_t begin, int64_t end);
SBIT__FN void sbit__parallel_blocks(sbit_ctx *ctx, int64_t n, sbit__block_fn fn, void *task);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_ELEMENTS_PRIVATE_H */
