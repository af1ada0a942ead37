/* gradient_private.h: what the rules of gradients (ops/gradients.c) and their rows share.
 *
 * Called by: the families (their column `gradient`), ops/grad_*.c, grad. Calls: graph.
 *
 * A rule adds nodes: rows of ai.onnx whose form is the same in every opset (Add, Mul, MatMul,
 * Transpose, Reshape, Shape ...) and internal rows of domain "sbit" (ops/grad_*.c) for the rest:
 *     ActivationGrad(dy, x or y [, min, max]) {of, alpha, beta}   of one elementwise function
 *     ReduceTo(dy, shape) {align}           sums what broadcasting has spread; align: of a bias
 *     Spread(dy, shape [, axes]) {axes, mean}   the opposite: a reduction's gradient, given back
 *     ScatterBack(dy, index, shape) {first} dx[index] += dy: of operators that only move elements
 *     IndexLike(x) {first}                  first, first + 1 ... in x's shape, moved as x was
 *     Piece(x) {axis, begin, length}        ZerosLike(x)
 *     ConvDataGrad(dy, w, shape)            ConvWeightGrad(x, dy, shape)      attributes as Conv
 *     PoolGrad(dy, x) {of}                  attributes as the pool
 *     BatchNormTrain(x, scale, bias, mean, var [, fixed]) -> y, new mean, new var, batch mean,
 * batch var; BatchNormGrad(dy, x, scale, mean, var [, fixed]) {training} -> dx, dscale, dbias;
 *         fixed: a number, not 0: as in inference
 *     NormGrad(dy, x) {axis, epsilon, rms} -> dx, normalized x
 *     LayerNormGrad(dy, x, scale) {axis, epsilon, rms} -> dx, dscale, dbias
 *     SoftmaxGrad(dy, y) {axis, log, flat}
 *     CrossEntropy(logits, targets) -> loss, dlogits; Distillation likewise
 *     DropoutTrain(x, draw) {ratio, seed}   gradient: itself
 *     LrnGrad(dy, x)                        CumProdGrad(dy, x, axis)
 *     DetGrad(x, dy)   Col2ImGrad(x, image, block, dy)   RoiAlignGrad(x, rois, batch, dy)
 *     MaxRoiPoolGrad(x, rois, dy)
 *     GridSampleGrad(x, grid, dy) -> dx, dgrid
 *     ResizeGrad(x, roi, scales, sizes, dy) {of, version}
 *     LabelLossGrad(dy, scores, labels, weights) {of}
 *     AttentionGrad(q, k, v, mask, past k, past v, lengths, dy) -> dq, dk, dv, dmask, dpast k,
 * dpast v RecurrentGrad(x, W, R, B, lengths, h0, c0, P, dY, dYh, dYc) {of} -> their gradients
 *     DeformConvGrad(x, w, offset, mask, dy) -> dx, dw, doffset, dmask
 *     LinearAttentionGrad(q, k, v, past, decay, beta, dy, dstate) -> the gradients of the first six
 *     LstmGrad(x, W, R, B, h0, c0, Y, dY, dYh, dYc, kept) -> dx, dW, dR, dB, dh0, dc0
 * All take float32 and float64, which they compute in float64.
 */
#ifndef SBIT_GRADIENT_PRIVATE_H
#define SBIT_GRADIENT_PRIVATE_H

#include "ops_private.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__GRAD_DOMAIN "sbit"
#define SBIT__RNN_ATTRIBUTES 9 /* one more than the operators have */
#define SBIT__T_GRAD (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64))

/* X(name): a rule is void sbit__grad_<name>(sbit_gradient *g) */
#define SBIT__GRADIENTS(X)                                                                         \
    X(zero)         /* steps: Round, Floor, Sign: their gradient is 0 */                           \
    X(identity)     /* the gradient passes unchanged */                                            \
    X(from_input)   /* elementwise, computed from the input */                                     \
    X(from_output)  /* elementwise, computed from the output, so that the input may go */          \
    X(moves)        /* moves elements: the same move of indices says where from */                 \
    X(resize)       /* as moves, or by the weights of its mode */                                  \
    X(reduce_other) /* ReduceL1, L2, SumSquare, LogSumExp, Max, Min */                             \
    X(extreme)      /* Max and Min of several tensors */                                           \
    X(external)     /* functions of the caller */                                                  \
    X(neg)                                                                                         \
    X(add)                                                                                         \
    X(sub) X(mul) X(div) X(pow) X(prelu) X(mean) X(clip) X(where) X(cast) X(reduce_sum)            \
        X(reduce_mean) X(reshape) X(transpose) X(concat) X(split) X(expand) X(pad) X(matmul)       \
            X(gemm) X(einsum) X(conv) X(conv_transpose) X(pool) X(lstm) X(batch_norm)              \
                X(batch_norm_train) X(layer_norm) X(group_norm) X(softmax)                         \
                    X(cross_entropy) /* ops/gradients_more.c */                                    \
        X(reduce_log_sum) X(reduce_prod) X(lp_normalization) X(mean_variance) X(lrn) X(mod)        \
            X(one_hot) X(det) X(col2im) X(grid_sample) X(roi_align) X(roi_pool) X(trilu) X(cum_sum) X(cum_prod) X(dft) X(stft) X(dropout) X(dropout_train) X(scatter_elements) X(scatter_nd) X(compress) X(center_crop_pad)   \
                X(max_unpool) X(top_k) X(rotary) X(swiglu) X(lp_pool) X(global_lp_pool)            \
                    X(label_loss) X(attention) X(rnn) X(deform) X(linear_attention)

#define SBIT__GRADIENT_DECLARE(name) SBIT__FN void sbit__grad_##name(sbit_gradient *g);
SBIT__GRADIENTS(SBIT__GRADIENT_DECLARE)
#undef SBIT__GRADIENT_DECLARE

/* >>what rules are made of (ops/gradients.c, which says what they do) */
SBIT__FN void sbit__g_add_node(sbit_gradient *g, const char *domain, const char *op_type,
                               const sbit_value_id *inputs, size_t input_count,
                               const sbit_attr *attrs, size_t attr_count, const bool *made,
                               sbit_value_id *outputs, size_t output_count);
SBIT__FN void sbit__g_node(sbit_gradient *g, const char *op_type, const sbit_value_id *inputs, size_t input_count,
                           const sbit_attr *attrs, size_t attr_count, const bool *wanted, size_t count);
SBIT__FN sbit_value_id sbit__g_1(sbit_gradient *g, const char *op_type, sbit_value_id a);
SBIT__FN sbit_value_id sbit__g_2(sbit_gradient *g, const char *op_type, sbit_value_id a,
                                 sbit_value_id b);
SBIT__FN sbit_value_id sbit__g_add_like(sbit_gradient *g, const char *domain, const char *op_type,
                                        const sbit_value_id *inputs, size_t input_count, bool of,
                                        const char *without);
SBIT__FN const sbit_type *sbit__g_type(const sbit_gradient *g, sbit_value_id id);
SBIT__FN int32_t sbit__g_rank(sbit_gradient *g, sbit_value_id id);
SBIT__FN bool sbit__g_wanted(const sbit_gradient *g, int32_t i);
SBIT__FN sbit_value_id sbit__g_shape(sbit_gradient *g, sbit_value_id id);
SBIT__FN sbit_value_id sbit__g_number(sbit_gradient *g, double value);
SBIT__FN sbit_value_id sbit__g_reduce(sbit_gradient *g, sbit_value_id grad, sbit_value_id like,
                                      int32_t align);
SBIT__FN void sbit__g_fit(sbit_gradient *g, int32_t i, sbit_value_id grad);
SBIT__FN sbit_value_id sbit__g_where(sbit_gradient *g, sbit_value_id condition, sbit_value_id yes,
                                     sbit_value_id no);
SBIT__FN sbit_value_id sbit__g_spread(sbit_gradient *g, sbit_value_id from, const sbit_attr *list,
                                      bool mean);
SBIT__FN int64_t sbit__g_length(sbit_gradient *g, sbit_value_id id, int64_t axis);
SBIT__FN int64_t sbit__g_axis(sbit_gradient *g, int64_t otherwise, int32_t rank);
SBIT__FN sbit_value_id sbit__g_shape_of(sbit_gradient *g, const int64_t *dims, int64_t count);
SBIT__FN void sbit__g_moves(sbit_gradient *g, const sbit_value_id *inputs, int32_t count,
                            bool padded);

/* Output 3 of sbit LSTM (ops/recurrent.c), which LstmGrad reads: [6, T, D, N, H], of which 4 are the gates
 * [T, D, N, 4 H], then come the cells and their tanh. */
enum {
    SBIT__LSTM_KEPT = 6
};

/* What an External node runs; see ops/external.c. backward gets scratch memory of x's size if dx is
 * not wanted. elementwise: it does not matter where the elements of x lie. */
typedef struct sbit__external {
    sbit_status (*forward)(void *user, const sbit_op_call *call, sbit_error *error);
    sbit_status (*backward)(void *user, const sbit_op_call *call, sbit_error *error);
    void *user;
    bool elementwise;
} sbit__external;
SBIT__FN const sbit__external *sbit__external_of(const sbit_node *node); /* NULL: it has none */
SBIT__FN sbit_attr sbit__external_attr(const sbit__external *functions);

/* run: the dims that an int64 input states; fails unless it is a list of at most 8. */
SBIT__FN sbit_status sbit__grad_dims(const sbit_op_call *call, int32_t input, int32_t *rank,
                                     int64_t dims[SBIT_MAX_RANK], sbit_error *error);
/* infer: output 0 has input 0's element type and the shape that input `input` states. */
SBIT__FN sbit_status sbit__grad_infer_shape(const sbit_op_call *call, int32_t input,
                                            sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_GRADIENT_PRIVATE_H */
