/* ops_private.h: the families of built-in operators, and helpers that their files share.
 *
 * Called by: the families, infer, exec, passes. Calls: graph, kernels.
 * A family is one file that ends with a static const array of rows and the function that returns
 * it. A new family: its file, one line in SBIT__OP_FAMILIES, one line in src/MANIFEST.
 */
#ifndef SBIT_OPS_PRIVATE_H
#define SBIT_OPS_PRIVATE_H

#include "../graph/graph_private.h"
#include "../kernels/kernels_private.h"
#include "ops_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>switches: operators that can be compiled out, by macros that are 0 or 1. Their files and lines
 * of the list below depend on them; ops/table.c says which operators are of which. */
#ifndef SPARSEBIT_NO_OPS_RNN
#define SPARSEBIT_NO_OPS_RNN 0
#endif
#ifndef SPARSEBIT_NO_OPS_CONTROL
#define SPARSEBIT_NO_OPS_CONTROL 0
#endif
#ifndef SPARSEBIT_NO_OPS_STRING
#define SPARSEBIT_NO_OPS_STRING 0
#endif
#ifndef SPARSEBIT_NO_OPS_SIGNAL
#define SPARSEBIT_NO_OPS_SIGNAL 0
#endif
#ifndef SPARSEBIT_NO_OPS_ML
#define SPARSEBIT_NO_OPS_ML 0
#endif
#ifndef SPARSEBIT_NO_OPS_ATTENTION
#define SPARSEBIT_NO_OPS_ATTENTION 0
#endif
#ifndef SPARSEBIT_NO_OPS_VISION
#define SPARSEBIT_NO_OPS_VISION 0
#endif
#ifndef SPARSEBIT_NO_OPS_MICROSOFT
#define SPARSEBIT_NO_OPS_MICROSOFT 0
#endif
#ifndef SPARSEBIT_NO_OPS_TRAINING
#define SPARSEBIT_NO_OPS_TRAINING 0
#endif

#define SBIT__OP_FAMILIES(X)                                                                       \
    X(conv)      /* Conv, ConvTranspose */                                                         \
    X(matmul)    /* Gemm, MatMul */                                                                \
    X(pool)      /* MaxPool, AveragePool, LpPool, Global*Pool */                                   \
    X(norm)      /* BatchNormalization, Layer-, Instance-, Group-, LpNormalization, LRN */         \
    X(softmax)   /* Softmax, LogSoftmax, Hardmax */                                                \
    X(resize)    /* Resize, Upsample */                                                            \
    X(unary)     /* Relu ... Erf, activations */                                                   \
    X(binary)    /* Add ... Pow, comparisons, logic, Where, variadic Sum/Max/Min/Mean, Clip */     \
    X(reduce)    /* Reduce*, ArgMax, ArgMin, CumSum, TopK */                                       \
    X(shape)     /* Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout, Cast */  \
    X(move)      /* Transpose, Concat, Split, Slice, Expand, Tile, Pad, ReverseSequence, ... */    \
    X(gather)    /* Gather*, Scatter*, Compress: places that data decides */                       \
    X(generate)  /* ConstantOfShape, Range, EyeLike, OneHot, Random*, NonZero, Unique, Trilu */    \
    X(quantize)  /* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear */                     \
    X(qlinear)   /* QLinearConv, QLinearMatMul, ConvInteger, MatMulInteger, QGemm */               \
    X(qlinear_elements) /* QLinearAdd, QLinearMul, QLinearConcat, pools, tables, Softmax */        \
    X(qlinear_layout)   /* sbit: ToLast, ToFirst, QMaxPool, QShuffle, QTable */                    \
    X(qlinear_wide)     /* sbit: QSplit, QJoin */                                                  \
    X(last)             /* sbit: ConvLast, pools */                                                \
    X(einsum)           /* Einsum, Det, misc. */                                                   \
    X(external)         /* functions of the caller, in private clones */                           \
    SBIT__OPS_RNN(X)                                                                               \
    SBIT__OPS_CONTROL(X)                                                                           \
    SBIT__OPS_STRING(X)                                                                            \
    SBIT__OPS_SIGNAL(X)                                                                            \
    SBIT__OPS_ML(X)                                                                                \
    SBIT__OPS_ATTENTION(X)                                                                         \
    SBIT__OPS_VISION(X)                                                                            \
    SBIT__OPS_MICROSOFT(X)                                                                         \
    SBIT__OPS_TRAINING(X)

#if SPARSEBIT_NO_OPS_RNN
#define SBIT__OPS_RNN(X)
#else
#define SBIT__OPS_RNN(X) X(recurrent) /* LSTM, GRU, RNN */
#endif
#if SPARSEBIT_NO_OPS_CONTROL
#define SBIT__OPS_CONTROL(X)
#else
#define SBIT__OPS_CONTROL(X) X(control) /* If, Loop, Scan, Sequence*, Optional* */
#endif
#if SPARSEBIT_NO_OPS_STRING
#define SBIT__OPS_STRING(X)
#else
#define SBIT__OPS_STRING(X) X(text) /* StringConcat, StringSplit, StringNormalizer, TfIdfVectorizer */
#endif
#if SPARSEBIT_NO_OPS_SIGNAL
#define SBIT__OPS_SIGNAL(X)
#else
#define SBIT__OPS_SIGNAL(X) X(signal) /* DFT, STFT, windows, MelWeightMatrix */
#endif
#if SPARSEBIT_NO_OPS_ML
#define SBIT__OPS_ML(X)
#else
#define SBIT__OPS_ML(X)                                                                            \
    X(ml) /* ai.onnx.ml: LabelEncoder ... */                                                       \
    X(ml_classic) /* scalers, linear models, support vector machines */                            \
    X(ml_trees)   /* TreeEnsemble* */
#endif
#if SPARSEBIT_NO_OPS_ATTENTION
#define SBIT__OPS_ATTENTION(X)
#else
#define SBIT__OPS_ATTENTION(X)                                                                     \
    X(attention) /* Attention, RotaryEmbedding */                                                  \
    X(flex_attention) /* FlexAttention */                                                          \
    X(state_space) /* LinearAttention, CausalConvWithState, SwiGLU */
#endif
#if SPARSEBIT_NO_OPS_VISION
#define SBIT__OPS_VISION(X)
#else
#define SBIT__OPS_VISION(X)                                                                        \
    X(deform) /* DeformConv */                                                                     \
    X(grid) /* DepthToSpace, SpaceToDepth, GridSample, AffineGrid */                               \
    X(col2im) /* Col2Im */
#endif
#if SPARSEBIT_NO_OPS_MICROSOFT
#define SBIT__OPS_MICROSOFT(X)
#else
#define SBIT__OPS_MICROSOFT(X)                                                                     \
    X(microsoft) /* com.microsoft: fused operators, written with others */                         \
    X(nbits) /* MatMulNBits, DynamicQuantizeMatMul */
#endif
#if SPARSEBIT_NO_OPS_TRAINING
#define SBIT__OPS_TRAINING(X)
#else
#define SBIT__OPS_TRAINING(X)                                                                      \
    X(loss) /* NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss, optimizers */                   \
    X(grad_elements) /* internal rows of gradients (ops/gradient_private.h says which) */          \
    X(grad_conv)                                                                                   \
    X(grad_pool)                                                                                   \
    X(grad_norm)                                                                                   \
    X(grad_recurrent)
#endif

#define SBIT__OP_FAMILY_DECLARE(name)                                                              \
    SBIT__FN const sbit_op_row *sbit__op_rows_##name(size_t *count);
SBIT__OP_FAMILIES(SBIT__OP_FAMILY_DECLARE)
#undef SBIT__OP_FAMILY_DECLARE

/* The row that executes a node, with the version of its domain in *opset; NULL: unknown. A domain
 * that the graph does not import counts as version 1. */
SBIT__FN const sbit_op_row *sbit__op_row(const sbit_graph *graph, const sbit_node *node,
                                         int32_t *opset);
/* Of all nodes of a graph and its family: attributes have the types that their names say, those that
 * no version does without are there, and so is output 0; no outputs are too many. What each inference
 * of a body need not look at again. Errors: INVALID_MODEL. */
SBIT__FN sbit_status sbit__op_check_forms(const sbit_graph *graph, sbit_error *error);
/* False: a user registered it. */
SBIT__FN bool sbit__op_row_is_built_in(const sbit_ctx *ctx, const sbit_op_row *row);

/* Integers that internal FakeQuantize rounds to. */
#define SBIT__T_FAKE_QUANTIZE                                                                      \
    (SBIT_T(SBIT_U8) | SBIT_T(SBIT_I8) | SBIT_T(SBIT_U16) | SBIT_T(SBIT_I16) | SBIT_T(SBIT_U4) |   \
     SBIT_T(SBIT_I4))

/* >>helpers, in ops/common.c */
/* Fails unless min <= input_count <= max and inputs 0..min-1 are present. */
SBIT__FN sbit_status sbit__op_inputs(const sbit_op_call *call, int32_t min, int32_t max,
                                     sbit_error *error);
/* prepare: the parameter block becomes a copy of `plan`; run: `plan` becomes a copy of the block,
 * and it is an error if there is none. */
SBIT__FN sbit_status sbit__op_keep(const sbit_op_call *call, const void *plan, size_t bytes,
                                   sbit_error *error);
SBIT__FN sbit_status sbit__op_kept(const sbit_op_call *call, void *plan, size_t bytes,
                                   sbit_error *error);
/* Output i gets dtype and rank; dims arrive unknown (SBIT_SYMBOL_ANY). NULL if not wanted. */
SBIT__FN sbit_type *sbit__op_out(const sbit_op_call *call, int32_t i, sbit_dtype dtype,
                                 int32_t rank);
SBIT__FN void sbit__op_same_type(const sbit_op_call *call, int32_t output, int32_t input);
/* infer: min..max inputs; output 0 has the type of input `like`. */
SBIT__FN sbit_status sbit__op_infer_like(const sbit_op_call *call, int32_t min, int32_t max,
                                         int32_t like, sbit_error *error);
SBIT__FN sbit_dim sbit__dim(int64_t value);
SBIT__FN sbit_dim sbit__dim_any(void);
SBIT__FN bool sbit__dim_known(sbit_dim dim);           /* a number */
SBIT__FN bool sbit__dim_equal(sbit_dim a, sbit_dim b); /* the same number or the same symbol */
SBIT__FN sbit_type sbit__type_unknown(void);
SBIT__FN bool sbit__type_static(const sbit_type *type); /* tensor, dtype and all dims known */
SBIT__FN sbit_type sbit__type_of_tensor(const sbit_tensor *tensor);
/* Writes "float32[batch,3,?]"; always NUL-terminated. */
SBIT__FN void sbit__type_describe(const sbit_graph *graph, const sbit_type *type, char *text,
                                  size_t size);
/* NumPy broadcasting of the types' shapes into out (rank and dims; dtype untouched). */
SBIT__FN sbit_status sbit__op_broadcast(const sbit_op_call *call, const sbit_type *const *in,
                                        int32_t count, sbit_type *out, sbit_error *error);
/* axis (may be negative) of a tensor of `rank` -> 0..rank-1; error naming the attribute. */
SBIT__FN sbit_status sbit__op_axis(const sbit_op_call *call, int64_t axis, int32_t rank,
                                   int32_t *out, sbit_error *error);
/* The integers of an attribute or a constant/run-time int32/int64 input (axes, pads, sizes...), in
 * that order of trying: attribute `name` (may be NULL), then input `input` (-1: none). Sets
 * *count -1 if neither is given or known; error if there are more than `capacity`. */
SBIT__FN sbit_status sbit__op_ints(const sbit_op_call *call, const char *name, int32_t input,
                                   int64_t *values, int64_t capacity, int64_t *count,
                                   sbit_error *error);
SBIT__FN sbit_status sbit__op_floats(const sbit_op_call *call, const char *name, int32_t input,
                                     float *values, int64_t capacity, int64_t *count,
                                     sbit_error *error);
/* *out: which of the words a string attribute is, words[0] if it is not there; fails if it is none. */
SBIT__FN sbit_status sbit__op_word(const sbit_op_call *call, const char *name,
                                   const char *const *words, int32_t count, int32_t *out,
                                   sbit_error *error);
/* Row-major strides in elements. */
SBIT__FN void sbit__tensor_strides(const sbit_tensor *tensor, int64_t strides[SBIT_MAX_RANK]);
/* For operators that compute in one float type: runs `run64` if some operand is float64, else
 * `run32`, with operands of other float types converted through scratch memory; prepare must have
 * asked for sbit__op_in_float_scratch bytes. */
SBIT__FN size_t sbit__op_in_float_scratch(const sbit_op_call *call);
SBIT__FN sbit_status sbit__op_in_float(const sbit_op_call *call,
                                       sbit_status (*run32)(const sbit_op_call *, sbit_error *),
                                       sbit_status (*run64)(const sbit_op_call *, sbit_error *),
                                       sbit_error *error);

/* What a float32 operation gives of float32 operands, from its result in double; `wide`: double. */
SBIT__INLINE double sbit__real(bool wide, double value)
{
    return wide ? value : (double)(float)value;
}
/* Elements of arrays that are float, or double if `wide`. */
SBIT__INLINE double sbit__real_at(bool wide, const void *data, int64_t index)
{
    return wide ? ((const double *)data)[index] : (double)((const float *)data)[index];
}
SBIT__INLINE void sbit__real_set(bool wide, void *data, int64_t index, double value)
{
    if (wide) {
        ((double *)data)[index] = value;
    } else {
        ((float *)data)[index] = (float)value;
    }
}

/* move.c: a Pad is known to add and cut nothing along this axis. */
SBIT__FN bool sbit__pads_spare(const sbit_op_call *call, int32_t rank, int32_t axis);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_OPS_PRIVATE_H */
