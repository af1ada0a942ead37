/* qlinear.c: integer convolutions and matrix products. >>qlinear
 *
 * Called by: exec through the rows. Calls: the integer driver, loops here for rare forms.
 * ai.onnx QLinearConv, ConvInteger, QLinearMatMul, MatMulInteger; com.microsoft QLinearConv, QGemm,
 * MatMulIntegerToFloat; sbit QConv, QMatMul, QGemm, QStrip.
 *   y = saturate(round_half_even((float)acc * (s_x * s_w / s_y)) + zp_y)
 * acc is an int32 sum that wraps, with an int32 bias in it; the multiplier is computed in float32
 * in that order. Without s_y the result is (float)acc * (s_x * s_w), + a float bias.
 * Behind it QConv, QMatMul and QGemm may add another tensor, by the formula of QAdd: five inputs
 * more (sbit__q_added), attributes sum_lo and sum_hi.
 * The driver works on uint8, channels last: others are flipped and transposed through scratch
 * memory. Scales and zero points per row of a left matrix, a bias matrix, or float8 (which
 * QLinearMatMul-21 takes for any of its tensors) are computed by loops; sums of float8 in double.
 */
#include "elements_private.h"
#include "qlinear_private.h"

#include <math.h> /* rintf */

/* >>roles: which input is what; -1: the operator has no such input */
typedef struct sbit__q_roles {
    const char *op_type;
    int32_t x, x_scale, x_zero, w, w_scale, w_zero, bias, y_scale, y_zero;
    const char *shape_as; /* the float operator */
    int32_t version;
} sbit__q_roles;

static const sbit__q_roles sbit__q_all_roles[] = {
    {"QLinearConv", 0, 1, 2, 3, 4, 5, 8, 6, 7, "Conv", 11},
    {"QConv", 0, 1, 2, 3, 4, 5, 8, 6, 7, "Conv", 11},
    {"ConvInteger", 0, -1, 2, 1, -1, 3, -1, -1, -1, "Conv", 11},
    {"QLinearMatMul", 0, 1, 2, 3, 4, 5, -1, 6, 7, "MatMul", 13},
    {"QMatMul", 0, 1, 2, 3, 4, 5, 8, 6, 7, "MatMul", 13},
    {"MatMulInteger", 0, -1, 2, 1, -1, 3, -1, -1, -1, "MatMul", 13},
    {"MatMulIntegerToFloat", 0, 2, 4, 1, 3, 5, 6, -1, -1, "MatMul", 13},
    {"QGemm", 0, 1, 2, 3, 4, 5, 6, 7, 8, "Gemm", 13},
};

/* Inputs behind those of a row of the domain sbit. */
enum {
    SBIT__Q_OTHER = 9,
    SBIT__Q_OTHER_SCALE,
    SBIT__Q_OTHER_ZERO,
    SBIT__Q_SUM_SCALE,
    SBIT__Q_SUM_ZERO,
    SBIT__Q_INPUTS
};

/* The row adds another tensor. */
static bool sbit__q_adds(const sbit_op_call *call)
{
    return sbit__streq(call->row->domain, "sbit") && sbit__in_type(call, SBIT__Q_OTHER) != NULL;
}

static const sbit__q_roles *sbit__q_roles_of(const sbit_op_call *call)
{
    size_t i = 0;
    while (strcmp(sbit__q_all_roles[i].op_type, call->row->op_type) != 0) {
        i++; /* every row of this file is listed */
    }
    return &sbit__q_all_roles[i];
}

static sbit__q8_kind sbit__q_kind(const sbit_op_call *call, const sbit__q_roles *roles)
{
    return roles->x_scale < 0                            ? SBIT__Q8_I32
           : sbit__in_type(call, roles->y_scale) == NULL ? SBIT__Q8_F32
                                                         : SBIT__Q8_U8;
}

/* Of a result with this zero point, or none. */
static sbit_dtype sbit__q_own_dtype(const sbit_op_call *call, int32_t zero,
                                    const sbit__q_roles *roles)
{
    return sbit__in_dtype(call, sbit__in_type(call, zero) != NULL ? zero : roles->x);
}

static sbit_dtype sbit__q_out_dtype(const sbit_op_call *call, const sbit__q_roles *roles)
{
    const sbit__q8_kind kind = sbit__q_kind(call, roles);
    if (kind != SBIT__Q8_U8) {
        return kind == SBIT__Q8_I32 ? SBIT_I32 : SBIT_F32;
    }
    return sbit__q_own_dtype(
        call, sbit__q_adds(call) ? (int32_t)SBIT__Q_SUM_ZERO : roles->y_zero, roles);
}

/* The last input that any role has, and one. */
static int32_t sbit__q_role_limit(const sbit_op_call *call, const sbit__q_roles *roles)
{
    if (sbit__q_adds(call)) {
        return SBIT__Q_INPUTS;
    }
    const int32_t last[4] = {roles->w_zero, roles->bias, roles->y_scale, roles->y_zero};
    int32_t most = roles->w;
    for (int32_t i = 0; i < 4; i++) {
        most = last[i] > most ? last[i] : most;
    }
    return most + 1;
}

static uint32_t sbit__q_bit(int32_t input)
{
    return input >= 0 ? 1u << input : 0u;
}

/* Types of scales and zero points, none of which is empty. */
static sbit_status sbit__q_product_params(const sbit_op_call *call, const sbit__q_roles *roles,
                                          sbit_error *error)
{
    const uint32_t scales =
        sbit__q_bit(roles->x_scale) | sbit__q_bit(roles->w_scale) | sbit__q_bit(roles->y_scale);
    const uint32_t zeros =
        sbit__q_bit(roles->x_zero) | sbit__q_bit(roles->w_zero) | sbit__q_bit(roles->y_zero);
    SBIT__TRY(sbit__op_dtypes(call, scales, SBIT_T_FLOATS, error));
    SBIT__TRY(sbit__op_dtypes(call, zeros, call->row->types, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        const bool param = ((scales | zeros | sbit__q_bit(roles->bias)) >> i & 1u) != 0;
        if (param && call->in_type[i] != NULL && call->in_type[i]->rank >= 0 &&
            sbit__type_size(call->in_type[i]) == 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d is empty", (int)i);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__q_product_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_roles *roles = sbit__q_roles_of(call);
    const bool conv = sbit__streq(roles->shape_as, "Conv");
    const bool to_int = strncmp(roles->op_type, "QLinear", 7) == 0; /* others may give floats */
    const int32_t inputs[3] = {roles->x, roles->w, conv ? roles->bias : -1};
    const int32_t scales[3] = {roles->x_scale, roles->w_scale, to_int ? roles->y_scale : -1};
    SBIT__TRY(sbit__op_inputs(call, roles->w + 1, sbit__q_role_limit(call, roles), error));
    for (int32_t i = 0; i < 3; i++) {
        if (scales[i] >= 0 && !sbit__op_has(call, scales[i])) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing",
                                (int)scales[i]);
        }
    }
    SBIT__TRY(sbit__op_dtypes(call, 1u << roles->w, call->row->types, error));
    SBIT__TRY(sbit__q_product_params(call, roles, error));
    if (sbit__q_adds(call)) {
        SBIT__TRY(sbit__op_dtypes(call, 1u << SBIT__Q_OTHER | 1u << SBIT__Q_OTHER_ZERO |
                                            1u << SBIT__Q_SUM_ZERO,
                                  SBIT__T_Q8, error));
    }
    return sbit__q_infer_as(call, roles->shape_as, roles->version, inputs, 3,
                            sbit__q_out_dtype(call, roles), error);
}

/* >>plan */

typedef struct sbit__q_state {
    sbit__q8_conv conv;
    bool matrix;              /* not a convolution */
    bool plain;               /* loops */
    bool floats;              /* some tensor is float8 */
    bool wide;                /* sums of 64 bits: lowering did not know how many terms there are */
    bool fixed;               /* everything but x is constant: packed with the program */
    bool trans_x, trans_w;    /* QGemm */
    bool last;                /* channels last */
    bool shared;              /* threads share products, not each of them */
    float alpha;              /* of all products */
    int32_t role;             /* in sbit__q_all_roles */
    int64_t m, k, n;          /* matrices */
    int64_t batches, w_count; /* results; right matrices */
    int32_t batch_rank;
    int64_t batch[SBIT_MAX_RANK], x_step[SBIT_MAX_RANK], w_step[SBIT_MAX_RANK];
    size_t x_bytes, other_bytes, y_bytes, array_bytes, packed_bytes; /* parts of scratch */
} sbit__q_state;

/* The one zero point or all of them: true if the kernels need row sums. */
static bool sbit__q_has_zeros(const sbit_op_call *call, const sbit__q_roles *roles)
{
    const sbit_tensor *zero = sbit__in(call, roles->w_zero);
    const int64_t middle = sbit__in_dtype(call, roles->w) == SBIT_U8 ? 128 : 0;
    if (sbit__in_type(call, roles->w_zero) == NULL) {
        return middle != 0;
    }
    if (zero == NULL || zero->data == NULL) {
        return true;
    }
    for (int64_t i = 0; i < sbit_tensor_count(zero); i++) {
        if (sbit__tensor_i64_at(zero, i) != middle) {
            return true;
        }
    }
    return false;
}

/* Whether x has a zero point that is known before running, and 0 when flipped to uint8. */
static bool sbit__q_zero_is_0(const sbit_op_call *call, const sbit__q_roles *roles)
{
    const int64_t least = sbit__in_dtype(call, roles->x) == SBIT_I8 ? -128 : 0;
    const sbit_tensor *zero = sbit__in(call, roles->x_zero);
    if (sbit__in_type(call, roles->x_zero) == NULL) {
        return least == 0;
    }
    return zero != NULL && zero->data != NULL && sbit_tensor_count(zero) == 1 &&
           sbit__tensor_i64_at(zero, 0) == least;
}

/* Elements of an input: 0 if it is omitted. */
static int64_t sbit__q_elements(const sbit_op_call *call, int32_t input)
{
    const sbit_type *type = sbit__in_type(call, input);
    return type != NULL ? sbit__type_size(type) : 0;
}

static bool sbit__q_one_or(int64_t elements, int64_t n)
{
    return elements <= 1 || elements == n;
}

static sbit_status sbit__q_plan_conv(const sbit_op_call *call, const sbit__q_roles *roles,
                                     sbit__q_state *state, sbit_error *error)
{
    const int32_t inputs[3] = {roles->x, roles->w, roles->bias};
    sbit__q_view view;
    sbit__q_view_init(call, "Conv", 11, inputs, 3, sbit__q_channels_last(call), &view);
    SBIT__TRY(sbit__conv_shape_of(&view.call, &state->conv.shape, error));
    const int64_t n = state->conv.shape.out_channels;
    if (!sbit__q_one_or(sbit__q_elements(call, roles->w_scale), n) ||
        !sbit__q_one_or(sbit__q_elements(call, roles->w_zero), n) ||
        sbit__q_elements(call, roles->x_zero) > 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "scales and zero points of the weight must have 1 or %lld elements, "
                            "those of the input 1",
                            (long long)n);
    }
    state->batches = 1;
    return SBIT_OK;
}

/* Scale and zero point (inputs `scale`, `zero`) are one number, or one for each of `size` rows or
 * columns, of each of so many matrices. */
static sbit_status sbit__q_check_params(const sbit_op_call *call, int32_t scale, int32_t zero,
                                        int64_t size, int64_t matrices, sbit_error *error)
{
    for (int32_t i = 0; i < 2; i++) {
        const int64_t count = sbit__q_elements(call, i == 0 ? scale : zero);
        if (!sbit__q_one_or(count, size) && count != sbit__saturating_mul(size, matrices)) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "input %d has %lld numbers for %lld rows or columns",
                                (int)(i == 0 ? scale : zero), (long long)count, (long long)size);
        }
    }
    return SBIT_OK;
}

/* Leading dims of a matrix stack: steps in matrices, 0 where it is repeated. */
static void sbit__q_steps(const sbit_type *type, int32_t batch_rank, int64_t *step)
{
    const int32_t own = type->rank > 2 ? type->rank - 2 : 0;
    int64_t distance = 1;
    for (int32_t i = batch_rank - 1; i >= 0; i--) {
        const int32_t at = i - (batch_rank - own);
        const int64_t dim = at >= 0 ? type->dims[at].value : 1;
        step[i] = dim > 1 ? distance : 0;
        distance *= dim;
    }
}

static sbit_status sbit__q_plan_matrix(const sbit_op_call *call, const sbit__q_roles *roles,
                                       sbit__q_state *state, sbit_error *error)
{
    const sbit_type *x = call->in_type[roles->x], *w = call->in_type[roles->w];
    const sbit_type *y = call->out_type[0];
    const int32_t left = x->rank > 2 ? x->rank - 2 : 0, right = w->rank > 2 ? w->rank - 2 : 0;
    state->matrix = true;
    state->trans_x = sbit_node_int(call->node, "transA", 0) != 0;
    state->trans_w = sbit_node_int(call->node, "transB", 0) != 0;
    state->m = x->rank < 2 ? 1 : x->dims[x->rank - (state->trans_x ? 1 : 2)].value;
    state->k = x->dims[x->rank - (state->trans_x ? 2 : 1)].value;
    state->n = w->rank < 2 ? 1 : w->dims[w->rank - (state->trans_w ? 2 : 1)].value;
    state->batch_rank = left > right ? left : right;
    state->batches = state->w_count = 1;
    for (int32_t i = 0; i < right; i++) {
        state->w_count *= w->dims[i].value;
    }
    for (int32_t i = 0; i < state->batch_rank; i++) {
        state->batch[i] = y->dims[i].value;
        state->batches *= state->batch[i];
    }
    const int64_t x_count = left > 0 ? sbit__type_count(x, 0, left) : 1;
    SBIT__TRY(sbit__q_check_params(call, roles->x_scale, roles->x_zero, state->m, x_count, error));
    SBIT__TRY(sbit__q_check_params(call, roles->w_scale, roles->w_zero, state->n, state->w_count,
                                   error));
    SBIT__TRY(sbit__q_check_params(call, roles->y_scale, roles->y_zero, state->m, state->batches,
                                   error));
    sbit__q_steps(x, state->batch_rank, state->x_step);
    sbit__q_steps(w, state->batch_rank, state->w_step);
    const int64_t bias = sbit__q_elements(call, roles->bias);
    const int64_t at_bias = bias > 0 ? call->in_type[roles->bias]->rank : 0;
    const bool bias_columns =
        bias <= 1 || (bias == state->n && (at_bias == 1 || state->m == 1 ||
                                           call->in_type[roles->bias]->dims[0].value == 1));
    state->wide = sbit__streq(call->row->domain, "sbit") && sbit__in(call, roles->w) == NULL &&
                  state->k > INT32_MAX / (255 * 255);
    state->floats = ((SBIT_T(x->dtype) | SBIT_T(w->dtype) | SBIT_T(y->dtype)) & SBIT__T_F8) != 0;
    state->plain = state->wide || state->floats || sbit__q_elements(call, roles->x_scale) > 1 ||
                   sbit__q_elements(call, roles->x_zero) > 1 ||
                   sbit__q_elements(call, roles->y_scale) > 1 || !bias_columns ||
                   !sbit__q_one_or(sbit__q_elements(call, roles->w_scale), state->n) ||
                   !sbit__q_one_or(sbit__q_elements(call, roles->w_zero), state->n);
    if (state->w_count == 1 && !state->plain) { /* one matrix for all rows */
        state->m *= state->batches;
        state->batches = 1;
        state->batch_rank = 0;
    }
    sbit__conv_shape *shape = &state->conv.shape;
    memset(shape, 0, sizeof *shape);
    shape->batch = shape->groups = 1;
    shape->in_channels = state->k;
    shape->out_channels = state->n;
    for (int i = 0; i < 3; i++) {
        shape->in[i] = shape->out[i] = i == 1 ? state->m : 1;
        shape->kernel[i] = shape->stride[i] = shape->dilation[i] = 1;
    }
    return SBIT_OK;
}

static bool sbit__q_fixed(const sbit_op_call *call, const sbit__q_roles *roles)
{
    for (int32_t i = 0; i < call->input_count; i++) {
        if (i != roles->x && i != SBIT__Q_OTHER && call->in_type[i] != NULL && call->in[i] == NULL) {
            return false;
        }
    }
    return true;
}

/* Whether padded input and sums stay far from what 64 bits hold. */
static sbit_status sbit__q_check_size(const sbit_op_call *call, const sbit__conv_shape *shape,
                                      sbit_error *error)
{
    int64_t bytes = shape->in_channels;
    bool fits = true;
    for (int i = 0; i < 3; i++) {
        const int64_t reach = (shape->out[i] - 1) * shape->stride[i] +
                              (shape->kernel[i] - 1) * shape->dilation[i] + 1;
        fits = fits && sbit__mul_i64(bytes, reach > 1 ? reach : 1, &bytes);
    }
    fits = fits && bytes < INT64_MAX / 1024;
    return fits ? SBIT_OK : sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
}

static size_t sbit__q_type_bytes(const sbit_type *type)
{
    const int64_t count = sbit__type_count(type, 0, type->rank);
    return sbit__align64((size_t)(count > 0 ? count : 0) *
                         (sbit_dtype_bits((int32_t)type->dtype) > 8 ? 4 : 1));
}

/* What prepare and packing agree on; the types are static. */
static sbit_status sbit__q_plan(const sbit_op_call *call, const sbit__q_roles *roles,
                                sbit__q_state *state, sbit_error *error)
{
    memset(state, 0, sizeof *state);
    state->conv.has_factor = sbit__q_has_zeros(call, roles);
    state->conv.has_shift =
        sbit__q_elements(call, roles->bias) > 0 && sbit__in_dtype(call, roles->bias) != SBIT_I32;
    if (sbit__streq(roles->shape_as, "Conv")) {
        SBIT__TRY(sbit__q_plan_conv(call, roles, state, error));
    } else {
        SBIT__TRY(sbit__q_plan_matrix(call, roles, state, error));
    }
    SBIT__TRY(sbit__q_check_size(call, &state->conv.shape, error));
    state->conv.store = sbit__q_store_of(call, "lo", "hi");
    state->conv.store.kind = sbit__q_kind(call, roles);
    state->conv.zero_pads = sbit__q_zero_is_0(call, roles);
    state->conv.adds = sbit__q_adds(call);
    state->conv.added.store = sbit__q_store_of(call, "sum_lo", "sum_hi");
    state->alpha = sbit_node_float(call->node, "alpha", 1.0f);
    state->role = (int32_t)(roles - sbit__q_all_roles);
    state->last = sbit__q_channels_last(call);
    state->array_bytes = sbit__align64((size_t)state->conv.shape.out_channels * 16);
    sbit__q8_conv_plan(call->ctx, &state->conv);
    state->packed_bytes = sbit__align64(state->conv.packed_bytes);
    return SBIT_OK;
}

static sbit_status sbit__q_product_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_roles *roles = sbit__q_roles_of(call);
    sbit__q_state next;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[roles->x]) ||
        !sbit__type_static(call->in_type[roles->w])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__q_plan(call, roles, &next, error));
    next.fixed = call->packed != NULL;
    next.x_bytes = sbit__q_type_bytes(call->in_type[roles->x]);
    next.y_bytes = sbit__q_type_bytes(call->out_type[0]);
    if (next.conv.adds) {
        if (next.plain || next.conv.store.kind != SBIT__Q8_U8 ||
            sbit__type_size(call->in_type[SBIT__Q_OTHER]) != sbit__type_size(call->out_type[0])) {
            return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "cannot add input %d",
                                (int)SBIT__Q_OTHER);
        }
        next.other_bytes = sbit__q_type_bytes(call->in_type[SBIT__Q_OTHER]);
    }
    sbit__q_state *state = (sbit__q_state *)call->alloc_params(call, sizeof *state);
    if (state == NULL) {
        return sbit__op_no_memory(call, error);
    }
    *state = next;
    state->shared = next.batches >= 2 * (int64_t)sbit_ctx_threads(call->ctx);
    *call->scratch_bytes =
        next.x_bytes + next.other_bytes + next.y_bytes + next.array_bytes +
        sbit__align64(next.conv.scratch_bytes) +
        (next.fixed ? 0 : next.packed_bytes * (state->shared ? (size_t)sbit_ctx_threads(call->ctx) : 1));
    return SBIT_OK;
}

/* >>pack */

typedef struct sbit__q_params {
    sbit__q_param x, y, other, sum; /* sum: of what is stored */
} sbit__q_params;

static sbit_status sbit__q_read_params(const sbit_op_call *call, const sbit__q_roles *roles,
                                       sbit__q_state *state, sbit__q_params *params,
                                       sbit_error *error)
{
    const sbit_dtype dtype = sbit__in_dtype(call, roles->x);
    memset(params, 0, sizeof *params);
    if (roles->x_scale >= 0) {
        SBIT__TRY(sbit__q_param_of(call, roles->x_scale, roles->x_zero, dtype, &params->x, error));
    } else {
        const sbit_tensor *zero = sbit__in(call, roles->x_zero);
        params->x.zero = zero != NULL ? (int32_t)sbit__tensor_i64_at(zero, 0) : 0;
        params->x.zero += dtype == SBIT_I8 ? 128 : 0;
        params->x.flip = dtype == SBIT_I8 ? 0x80 : 0;
    }
    state->conv.zero_x = params->x.zero;
    if (state->conv.store.kind == SBIT__Q8_U8) {
        SBIT__TRY(sbit__q_param_of(call, roles->y_scale, roles->y_zero,
                                   sbit__q_own_dtype(call, roles->y_zero, roles), &params->y, error));
        state->conv.store.zero = params->y.zero;
        params->sum = params->y;
    }
    if (state->conv.adds) {
        sbit__q8_pair *added = &state->conv.added;
        SBIT__TRY(sbit__q_param_of(call, SBIT__Q_OTHER_SCALE, SBIT__Q_OTHER_ZERO,
                                   sbit__in_dtype(call, SBIT__Q_OTHER), &params->other, error));
        SBIT__TRY(sbit__q_param_of(call, SBIT__Q_SUM_SCALE, SBIT__Q_SUM_ZERO,
                                   sbit__q_out_dtype(call, roles), &params->sum, error));
        added->op = SBIT__BINARY_ADD;
        added->scale_a = params->y.scale;
        added->zero_a = params->y.zero;
        added->scale_b = params->other.scale;
        added->zero_b = params->other.zero;
        added->scale_y = params->sum.scale;
        added->store.zero = params->sum.zero;
    }
    return SBIT_OK;
}

/* s_x * s_w / s_y, with alpha in front */
static float sbit__q_multiplier(const sbit__q_params *params, float alpha, float w_scale,
                                bool to_int)
{
    const float product =
        alpha == 1.0f ? params->x.scale * w_scale : alpha * params->x.scale * w_scale;
    return to_int ? product / params->y.scale : product;
}

/* Fills the arrays that packing reads; one entry for each output channel. */
static void sbit__q_arrays(const sbit_op_call *call, const sbit__q_roles *roles,
                           const sbit__q_state *state, const sbit__q_params *params, char *memory,
                           sbit__q8_weights *weights)
{
    const int64_t n = state->conv.shape.out_channels;
    const sbit_tensor *scale = sbit__in(call, roles->w_scale);
    const sbit_tensor *zero = sbit__in(call, roles->w_zero), *b = sbit__in(call, roles->bias);
    const bool to_int = state->conv.store.kind == SBIT__Q8_U8;
    float *scales = (float *)(void *)memory, *shifts = scales + n;
    int32_t *zeros = (int32_t *)(void *)(shifts + n), *biases = zeros + n;
    for (int64_t c = 0; c < n; c++) {
        const int64_t one_scale = scale != NULL && sbit_tensor_count(scale) > 1 ? c : 0;
        const int64_t one_zero = zero != NULL && sbit_tensor_count(zero) > 1 ? c : 0;
        const int64_t one_bias = b != NULL && sbit_tensor_count(b) > 1 ? c : 0;
        scales[c] = scale != NULL
                        ? sbit__q_multiplier(params, state->alpha,
                                             (float)sbit__tensor_f64_at(scale, one_scale), to_int)
                        : 0.0f;
        zeros[c] = zero != NULL ? (int32_t)sbit__tensor_i64_at(zero, one_zero) : 0;
        biases[c] = b != NULL && b->dtype == SBIT_I32 ? ((const int32_t *)b->data)[one_bias] : 0;
        shifts[c] = b != NULL && b->dtype != SBIT_I32 ? (float)sbit__tensor_f64_at(b, one_bias) /
                                                            (to_int ? params->y.scale : 1.0f)
                                                      : 0.0f;
    }
    weights->scale = scales;
    weights->shift = shifts;
    weights->zero = zeros;
    weights->bias = biases;
}

/* Weights, of a stack its first matrix; all have the arrays that are made in `memory`. */
static void sbit__q_weights_of(const sbit_op_call *call, const sbit__q_roles *roles,
                               const sbit__q_state *state, const sbit__q_params *params,
                               char *memory, sbit__q8_weights *weights)
{
    const sbit_tensor *w = call->in[roles->w];
    const sbit__conv_shape *shape = &state->conv.shape;
    const int64_t taps = shape->kernel[0] * shape->kernel[1] * shape->kernel[2];
    memset(weights, 0, sizeof *weights);
    sbit__q_arrays(call, roles, state, params, memory, weights);
    weights->once = state->fixed;
    weights->data = w->data;
    weights->is_unsigned = w->dtype == SBIT_U8;
    if (!state->matrix) {
        weights->out_stride = shape->in_channels / shape->groups * taps;
        weights->in_stride = taps;
        weights->tap_stride = 1;
    } else {
        weights->out_stride = state->trans_w ? state->k : 1;
        weights->in_stride = state->trans_w ? 1 : state->n;
    }
}

/* Weights number `index` of a stack. */
static void sbit__q_pack(const sbit_ctx *ctx, const sbit__q_state *state,
                         const sbit__q8_weights *weights, int64_t index, void *packed)
{
    sbit__q8_weights one = *weights;
    one.data = (const char *)weights->data + index * state->k * state->n;
    sbit__q8_conv_pack(ctx, &state->conv, &one, packed);
}

/* A small input that fits the weights stands for all: the packed form does not depend on it. */
static bool sbit__q_small_types(const sbit_op_call *call, const sbit__q_roles *roles, sbit_type *x,
                                sbit_type *y)
{
    const sbit_type *w = call->in_type[roles->w];
    int64_t dilations[2 * SBIT__MAX_SPATIAL], count = -1;
    const bool conv = sbit__streq(roles->shape_as, "Conv");
    if (conv ? w->rank < 3 || w->rank > 2 + SBIT__MAX_SPATIAL : w->rank < 1) {
        return false;
    }
    *x = *y = *w;
    x->dtype = sbit__in_dtype(call, roles->x);
    y->dtype = sbit__q_out_dtype(call, roles);
    if (!conv) {
        const int32_t rank = w->rank < 2 ? 2 : w->rank;
        const bool trans_x = sbit_node_int(call->node, "transA", 0) != 0;
        const bool trans_w = sbit_node_int(call->node, "transB", 0) != 0;
        x->rank = y->rank = rank;
        const sbit_dim k = w->rank < 2 ? w->dims[0] : w->dims[rank - (trans_w ? 1 : 2)];
        x->dims[rank - (trans_x ? 1 : 2)] = y->dims[rank - 2] = sbit__dim(2);
        x->dims[rank - (trans_x ? 2 : 1)] = k;
        y->dims[rank - 1] = w->rank < 2 ? sbit__dim(1) : w->dims[rank - (trans_w ? 2 : 1)];
        return true;
    }
    if (sbit__op_ints(call, "dilations", -1, dilations, 2 * SBIT__MAX_SPATIAL, &count, NULL) !=
        SBIT_OK) {
        return false;
    }
    x->dims[0] = sbit__dim(1);
    for (int32_t i = 2; i < w->rank; i++) {
        const int64_t dilation = i - 2 < count ? dilations[i - 2] : 1;
        int64_t reach = 0;
        if (!sbit__mul_i64(w->dims[i].value - 1, dilation, &reach) || reach < 0 ||
            reach > INT32_MAX) {
            return false;
        }
        x->dims[i] = sbit__dim(reach + 1);
    }
    return sbit__mul_i64(w->dims[1].value, sbit_node_int(call->node, "group", 1),
                         &x->dims[1].value);
}

static sbit_status sbit__q_product_pack(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_roles *roles = sbit__q_roles_of(call);
    const sbit_type *in_type[SBIT__Q_INPUTS];
    sbit_type x, y, *out_type = &y;
    sbit_op_call part = *call;
    sbit__q_params params;
    sbit__q_state state;
    if (call->input_count <= roles->w || call->input_count > SBIT__Q_INPUTS || !sbit__q_fixed(call, roles) ||
        sbit_tensor_count(call->in[roles->w]) == 0 ||
        sbit__in_dtype(call, roles->x) == SBIT_UNDEFINED ||
        !sbit__q_small_types(call, roles, &x, &y)) {
        return SBIT_OK;
    }
    memcpy(in_type, call->in_type, (size_t)call->input_count * sizeof in_type[0]);
    if (sbit__q_channels_last(call) && sbit__streq(roles->shape_as, "Conv")) {
        const sbit_dim channels = x.dims[1];
        memmove(&x.dims[1], &x.dims[2], (size_t)(x.rank - 2) * sizeof x.dims[0]);
        x.dims[x.rank - 1] = channels;
    }
    in_type[roles->x] = &x;
    part.in_type = in_type;
    part.out_type = &out_type;
    if (sbit__q_product_infer(&part, NULL) != SBIT_OK ||
        sbit__q_plan(&part, roles, &state, NULL) != SBIT_OK || state.plain ||
        sbit__q_read_params(&part, roles, &state, &params, NULL) != SBIT_OK) {
        return SBIT_OK; /* prepare says what is wrong */
    }
    const int64_t count = state.matrix ? state.w_count : 1;
    const size_t bytes = (size_t)count * state.packed_bytes;
    state.fixed = true;
    char *packed = (char *)call->alloc_packed(call, bytes + state.array_bytes);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__q8_weights weights;
    sbit__q_weights_of(&part, roles, &state, &params, packed + bytes, &weights);
    for (int64_t i = 0; i < count; i++) {
        sbit__q_pack(call->ctx, &state, &weights, i, packed + (size_t)i * state.packed_bytes);
    }
    call->release_input(call, roles->w);
    return SBIT_OK;
}

/* >>run */

/* A tensor as the driver reads it: itself, or a copy at `memory`. */
static const uint8_t *sbit__q_input(const sbit__q_state *state, const sbit_tensor *x, bool trans,
                                    uint8_t flip, uint8_t *memory)
{
    const uint8_t *data = (const uint8_t *)x->data;
    if (trans) {
        sbit__q_to_last(1, state->k, state->m, data, flip, memory);
    } else if (!state->matrix && !state->last) {
        sbit__q_to_last(x->dims[0], x->dims[1], sbit__tensor_span(x, 2, x->rank), data, flip,
                        memory);
    } else if (flip != 0) {
        sbit__q_flip(sbit_tensor_count(x), data, flip, memory);
    } else {
        return data;
    }
    return memory;
}

/* Whether the driver may write into the output itself. */
static bool sbit__q_direct(const sbit__q_state *state)
{
    return state->matrix || state->last;
}

/* y[channel][position] = x[position][channel]; of int32, too */
static void sbit__q_words_to_first(int64_t channels, int64_t positions, const float *x, float *y)
{
    const int64_t side = 16;
    for (int64_t p0 = 0; p0 < positions; p0 += side) {
        const int64_t p1 = p0 + side < positions ? p0 + side : positions;
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t p = p0; p < p1; p++) {
                memcpy(y + c * positions + p, x + p * channels + c, sizeof *y);
            }
        }
    }
}

static void sbit__q_output(const sbit_op_call *call, const sbit__q_state *state,
                           const sbit__q_params *params, const void *from)
{
    sbit_tensor *y = call->out[0];
    const int64_t count = sbit_tensor_count(y);
    if (sbit__q_direct(state)) {
        if (params->sum.flip != 0) {
            sbit__q_flip(count, (const uint8_t *)y->data, params->sum.flip, (uint8_t *)y->data);
        }
        return;
    }
    const int64_t positions = sbit__tensor_span(y, 2, y->rank);
    if (state->conv.store.kind == SBIT__Q8_U8) {
        sbit__q_to_first(y->dims[0], y->dims[1], positions, (const uint8_t *)from, params->sum.flip,
                         (uint8_t *)y->data);
        return;
    }
    for (int64_t i = 0; i < y->dims[0]; i++) {
        const int64_t at = i * y->dims[1] * positions;
        sbit__q_words_to_first(y->dims[1], positions, (const float *)from + at,
                               (float *)y->data + at);
    }
}

static void sbit__q_batch_at(const sbit__q_state *state, int64_t batch, int64_t *x, int64_t *w)
{
    *x = *w = 0;
    for (int32_t i = state->batch_rank - 1; i >= 0; i--) {
        *x += batch % state->batch[i] * state->x_step[i];
        *w += batch % state->batch[i] * state->w_step[i];
        batch /= state->batch[i];
    }
}

/* Products of a stack. */
typedef struct sbit__q_stack {
    sbit_ctx *ctx;
    const sbit__q_state *state;
    sbit__q8_weights weights; /* unless they are packed */
    const uint8_t *x, *other;
    const char *packed; /* all; or room for one, of each worker */
    char *y, *work;
} sbit__q_stack;

static void sbit__q_stack_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_stack *stack = (const sbit__q_stack *)task;
    const sbit__q_state *state = stack->state;
    const int64_t element = state->conv.store.kind == SBIT__Q8_U8 ? 1 : 4;
    const int64_t results = state->m * state->n;
    char *here = (char *)(uintptr_t)stack->packed + (size_t)worker * state->packed_bytes;
    for (int64_t batch = begin, last = -1; batch < end; batch++) {
        int64_t x_at = 0, w_at = 0;
        sbit__q_batch_at(state, batch, &x_at, &w_at);
        if (!state->fixed && w_at != last) {
            sbit__q_pack(stack->ctx, state, &stack->weights, w_at, here);
            last = w_at;
        }
        const uint8_t *x = stack->x + x_at * state->m * state->k;
        const char *packed = state->fixed ? stack->packed + (size_t)w_at * state->packed_bytes : here;
        const uint8_t *other = stack->other != NULL ? stack->other + batch * results : NULL;
        char *y = stack->y + batch * results * element;
        if (state->shared) {
            sbit__q8_conv_run_alone(stack->ctx, &state->conv, x, packed, other, y,
                                    stack->work + worker * state->conv.worker_bytes);
        } else {
            sbit__q8_conv_run(stack->ctx, &state->conv, x, packed, other, y, stack->work);
        }
    }
}

static sbit_status sbit__q_run_driver(const sbit_op_call *call, const sbit__q_roles *roles,
                                      sbit__q_state *state, sbit_error *error)
{
    sbit__q_params params;
    char *at = (char *)call->scratch;
    SBIT__TRY(sbit__q_read_params(call, roles, state, &params, error));
    const uint8_t *x = sbit__q_input(state, call->in[roles->x], state->trans_x, params.x.flip,
                                     (uint8_t *)(void *)at);
    const uint8_t *other = NULL;
    at += state->x_bytes;
    if (state->conv.adds) {
        other = sbit__q_input(state, call->in[SBIT__Q_OTHER], false, params.other.flip,
                              (uint8_t *)(void *)at);
    }
    at += state->other_bytes;
    char *y = sbit__q_direct(state) ? (char *)call->out[0]->data : at;
    char *arrays = at + state->y_bytes;
    char *work = arrays + state->array_bytes;
    char *here = work + sbit__align64(state->conv.scratch_bytes);
    sbit__q_stack stack;
    memset(&stack, 0, sizeof stack);
    stack.ctx = call->ctx;
    stack.state = state;
    stack.x = x;
    stack.other = other;
    stack.packed = state->fixed ? (const char *)call->packed : here;
    stack.y = y;
    stack.work = work;
    if (!state->fixed) {
        sbit__q_weights_of(call, roles, state, &params, arrays, &stack.weights);
    }
    if (state->shared) {
        sbit__parallel_range(call->ctx, state->batches, 1, sbit__q_stack_range, &stack);
    } else {
        sbit__q_stack_range(&stack, 0, state->batches, 0);
    }
    sbit__q_output(call, state, &params, y);
    return SBIT_OK;
}

/* >>loops: one result at a time, scales and zero points for each row */

static double sbit__q_pick(const sbit_tensor *tensor, int64_t matrix, int64_t size, int64_t index)
{
    const int64_t count = tensor != NULL ? sbit_tensor_count(tensor) : 0;
    return count == 0      ? 0.0
           : count == 1    ? sbit__tensor_f64_at(tensor, 0)
           : count == size ? sbit__tensor_f64_at(tensor, index)
                           : sbit__tensor_f64_at(tensor, (matrix * size + index) % count);
}

/* C of QGemm, broadcast to [m, n]. */
static int64_t sbit__q_bias_at(const sbit_tensor *bias, int64_t n, int64_t i, int64_t j)
{
    const int64_t columns = bias->rank > 0 ? bias->dims[bias->rank - 1] : 1;
    const int64_t rows = sbit_tensor_count(bias) / columns;
    return (rows > 1 ? i : 0) * columns + (columns == n && columns > 1 ? j : 0);
}

/* The sum with its int32 bias; wraps unless it is a wide one. */
static int64_t sbit__q_plain_sum(const sbit_op_call *call, const sbit__q_roles *roles,
                                 const sbit__q_state *state, int64_t x_at, int64_t w_at, int64_t i,
                                 int64_t j)
{
    const sbit_tensor *bias = sbit__in(call, roles->bias);
    const int32_t zx = (int32_t)sbit__q_pick(sbit__in(call, roles->x_zero), x_at, state->m, i);
    const int32_t zw = (int32_t)sbit__q_pick(sbit__in(call, roles->w_zero), w_at, state->n, j);
    int64_t sum = bias != NULL && bias->dtype == SBIT_I32
                      ? ((const int32_t *)bias->data)[sbit__q_bias_at(bias, state->n, i, j)]
                      : 0;
    for (int64_t p = 0; p < state->k; p++) {
        const int64_t a =
            x_at * state->m * state->k + (state->trans_x ? p * state->m + i : i * state->k + p);
        const int64_t b =
            w_at * state->k * state->n + (state->trans_w ? j * state->k + p : p * state->n + j);
        sum += (sbit__tensor_i64_at(call->in[roles->x], a) - zx) *
               (sbit__tensor_i64_at(call->in[roles->w], b) - zw);
    }
    return state->wide ? sum : (int32_t)(uint32_t)(uint64_t)sum;
}

/* The same of float8, which has no bias. */
static double sbit__q_plain_float_sum(const sbit_op_call *call, const sbit__q_roles *roles,
                                      const sbit__q_state *state, int64_t x_at, int64_t w_at,
                                      int64_t i, int64_t j)
{
    const double zx = sbit__q_pick(sbit__in(call, roles->x_zero), x_at, state->m, i);
    const double zw = sbit__q_pick(sbit__in(call, roles->w_zero), w_at, state->n, j);
    double sum = 0.0;
    for (int64_t p = 0; p < state->k; p++) {
        const int64_t a = (x_at * state->m + i) * state->k + p;
        const int64_t b = (w_at * state->k + p) * state->n + j;
        sum += (sbit__tensor_f64_at(call->in[roles->x], a) - zx) *
               (sbit__tensor_f64_at(call->in[roles->w], b) - zw);
    }
    return sum;
}

static void sbit__q_plain_store(const sbit_op_call *call, const sbit__q_roles *roles,
                                const sbit__q_state *state, int64_t x_at, int64_t w_at, int64_t to,
                                int64_t i, int64_t j)
{
    const sbit_tensor *bias = sbit__in(call, roles->bias);
    sbit_tensor *y = call->out[0];
    const int64_t sum =
        state->floats ? 0 : sbit__q_plain_sum(call, roles, state, x_at, w_at, i, j);
    const float shift =
        bias != NULL && bias->dtype != SBIT_I32
            ? (float)sbit__tensor_f64_at(bias, sbit__q_bias_at(bias, state->n, i, j))
            : 0.0f;
    if (y->dtype == SBIT_I32) {
        ((int32_t *)y->data)[to] = (int32_t)sum;
        return;
    }
    const float alpha = state->alpha;
    const float sx = (float)sbit__q_pick(sbit__in(call, roles->x_scale), x_at, state->m, i);
    const float sw = (float)sbit__q_pick(sbit__in(call, roles->w_scale), w_at, state->n, j);
    const float scale = alpha == 1.0f ? sx * sw : alpha * sx * sw;
    if (y->dtype == SBIT_F32) {
        ((float *)y->data)[to] = (float)sum * scale + shift;
        return;
    }
    const float sy = (float)sbit__q_pick(sbit__in(call, roles->y_scale), x_at, state->m, i);
    const float zy = (float)sbit__q_pick(sbit__in(call, roles->y_zero), x_at, state->m, i);
    const int32_t flip = y->dtype == SBIT_I8 ? -128 : 0;
    const float exact =
        state->floats ? (float)sbit__q_plain_float_sum(call, roles, state, x_at, w_at, i, j)
                      : (float)sum;
    if ((SBIT_T(y->dtype) & SBIT__T_F8) != 0) {
        sbit__tensor_set_f64(y, to, (double)(exact * (scale / sy) + zy)); /* saturates */
        return;
    }
    const float lo = (float)(state->conv.store.lo + flip), hi = (float)(state->conv.store.hi + flip);
    float q = rintf(exact * (scale / sy) + shift / sy) + zy;
    q = q > lo ? q : lo;
    q = q < hi ? q : hi;
    ((uint8_t *)y->data)[to] = (uint8_t)(int32_t)q;
}

static void sbit__q_run_plain(const sbit_op_call *call, const sbit__q_roles *roles,
                              const sbit__q_state *state)
{
    for (int64_t batch = 0; batch < state->batches; batch++) {
        int64_t x_at = 0, w_at = 0;
        sbit__q_batch_at(state, batch, &x_at, &w_at);
        for (int64_t i = 0; i < state->m * state->n; i++) {
            sbit__q_plain_store(call, roles, state, x_at, w_at, batch * state->m * state->n + i,
                                i / state->n, i % state->n);
        }
    }
}

static sbit_status sbit__q_product_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_state state;
    if (call->params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    state = *(const sbit__q_state *)call->params; /* to be completed with scales */
    const sbit__q_roles *roles = &sbit__q_all_roles[state.role];
    if (call->out[0] == NULL || sbit_tensor_count(call->out[0]) == 0) {
        return SBIT_OK;
    }
    if (state.plain) {
        sbit__q_run_plain(call, roles, &state);
        return SBIT_OK;
    }
    return sbit__q_run_driver(call, roles, &state, error);
}

static int64_t sbit__q_product_macs(const sbit_op_call *call)
{
    const sbit__q_roles *roles = sbit__q_roles_of(call);
    const sbit_type *x = call->in_type[roles->x], *w = call->in_type[roles->w];
    if (sbit__streq(roles->shape_as, "Conv")) {
        return sbit__window_macs(call->out_type[0], w);
    }
    const bool trans = sbit_node_int(call->node, "transA", 0) != 0;
    const int32_t at = x->rank - (trans && x->rank > 1 ? 2 : 1);
    return sbit__saturating_mul(sbit__type_size(call->out_type[0]),
                                at >= 0 && sbit__dim_known(x->dims[at]) ? x->dims[at].value : 1);
}

/* >>strips: QStrip has the inputs of three sbit QConv behind each other - one that expands channels,
 * a depthwise one, and one that projects them, which may be left out - but that x of the second and the
 * third are omitted: they are what the one before makes. Attributes are the second's; lo0, hi0 the
 * first's, lo2, hi2, sum_lo, sum_hi the third's. All have their channels last. */

enum {
    SBIT__Q_STRIP_INPUTS = 2 * SBIT__Q_OTHER + SBIT__Q_INPUTS
};

/* One of the three as a call of QConv. Must stay where it is. */
typedef struct sbit__q_strip_part {
    sbit_op_call call;
    sbit_node node;
    sbit_attr last; /* what a 1x1 has of attributes, beside bounds */
    const sbit_type *in_type[SBIT__Q_INPUTS];
    const sbit_tensor *in[SBIT__Q_INPUTS];
    sbit_type x, y, *out_type[1];
} sbit__q_strip_part;

static bool sbit__q_strip_has(const sbit_op_call *call, int32_t i)
{
    return sbit__in_type(call, i * SBIT__Q_OTHER + 3) != NULL;
}

/* x: its input's type, of the first the call's. */
static void sbit__q_strip_part_of(const sbit_op_call *call, int32_t i, const sbit_type *x,
                                  sbit__q_strip_part *part)
{
    const int32_t first = i * SBIT__Q_OTHER;
    const bool adds = i == 2 && sbit__in_type(call, first + SBIT__Q_OTHER) != NULL;
    const int32_t count = adds ? (int32_t)SBIT__Q_INPUTS : (int32_t)SBIT__Q_OTHER;
    memset(part, 0, sizeof *part);
    part->node = *call->node;
    if (i != 1) {
        part->last = sbit__attr_int("channels_last", 1);
        part->node.attrs = &part->last;
        part->node.attr_count = 1;
    }
    part->call = *call;
    part->call.node = &part->node;
    part->call.row = sbit_operator_find(call->ctx, "sbit", "QConv", 1);
    part->x = *x;
    part->y = sbit__type_unknown();
    part->out_type[0] = &part->y;
    for (int32_t k = 0; k < count; k++) {
        part->in_type[k] = k == 0 ? &part->x : sbit__in_type(call, first + k);
        part->in[k] = k == 0 ? NULL : sbit__in(call, first + k);
    }
    part->call.in_type = part->in_type;
    part->call.in = part->in;
    part->call.input_count = count;
    part->call.out_type = part->out_type;
    part->call.output_count = 1;
}

static sbit_status sbit__q_strip_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_strip_part part;
    sbit_type x;
    SBIT__TRY(sbit__op_inputs(call, 4, SBIT__Q_STRIP_INPUTS, error));
    x = *call->in_type[0];
    for (int32_t i = 0; i < 3; i++) {
        if (sbit__q_strip_has(call, i)) {
            sbit__q_strip_part_of(call, i, &x, &part);
            SBIT__TRY(sbit__q_product_infer(&part.call, error));
            x = part.y;
        }
    }
    *call->out_type[0] = x;
    return SBIT_OK;
}

typedef struct sbit__q_strip_params {
    sbit__q_state state[3];
    sbit__q8_strip strip;
    bool there[3];
    size_t packed_bytes, array_bytes;
} sbit__q_strip_params;

/* 1 x 1, whose pixels can be read where they lie. */
static bool sbit__q_strip_is_product(const sbit__q8_conv *conv)
{
    const sbit__conv_shape *s = &conv->shape;
    return s->groups == 1 && !conv->copies && !conv->has_factor && conv->taps == 1 &&
           conv->depth == s->in_channels && s->stride[1] == 1 && s->stride[2] == 1;
}

/* The plan of a part, for *x, or a small x for packing; *x becomes what it makes. */
static sbit_status sbit__q_strip_state(const sbit_op_call *call, int32_t i, bool packing,
                                       sbit_type *x, sbit__q_state *state, sbit_error *error)
{
    static const char *const names[3][4] = {{"lo0", "hi0", "lo0", "hi0"},
                                            {"lo", "hi", "lo", "hi"},
                                            {"lo2", "hi2", "sum_lo", "sum_hi"}};
    sbit__q_strip_part part;
    sbit__q_strip_part_of(call, i, x, &part);
    const sbit__q_roles *roles = sbit__q_roles_of(&part.call);
    if (packing) {
        if (!sbit__q_small_types(&part.call, roles, &part.x, &part.y)) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "part %d has weights of no Conv", (int)i);
        }
        sbit__q_type_to_last(&part.x);
    }
    SBIT__TRY(sbit__q_product_infer(&part.call, error));
    SBIT__TRY(sbit__q_plan(&part.call, roles, state, error));
    if (state->plain || state->conv.store.kind != SBIT__Q8_U8 ||
        state->conv.depthwise != (i == 1) ||
        (i != 1 && !sbit__q_strip_is_product(&state->conv))) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "part %d is no part of a strip",
                            (int)i);
    }
    state->conv.store = sbit__q_store_of(call, names[i][0], names[i][1]);
    state->conv.added.store = sbit__q_store_of(call, names[i][2], names[i][3]);
    *x = part.y;
    return SBIT_OK;
}

/* Scales of a part, which planning does not look at, and its packed weights unless `packed` is
 * NULL; `memory` is for arrays. */
static sbit_status sbit__q_strip_fill(const sbit_op_call *call, int32_t i, sbit__q_state *state,
                                      char *packed, char *memory, sbit_error *error)
{
    sbit__q_strip_part part;
    sbit__q_params scales;
    sbit__q_strip_part_of(call, i, call->in_type[0], &part);
    const sbit__q_roles *roles = sbit__q_roles_of(&part.call);
    SBIT__TRY(sbit__q_read_params(&part.call, roles, state, &scales, error));
    if (packed != NULL) {
        sbit__q8_weights weights;
        sbit__q_weights_of(&part.call, roles, state, &scales, memory, &weights);
        sbit__q_pack(call->ctx, state, &weights, 0, packed);
    }
    return SBIT_OK;
}

static sbit_status sbit__q_strip_pack(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_state state;
    sbit_type x = *call->in_type[0];
    size_t bytes = 0, arrays = 0;
    for (int32_t i = 1; i < call->input_count; i++) {
        if (i != 3 * SBIT__Q_OTHER && call->in_type[i] != NULL && call->in[i] == NULL) {
            return SBIT_OK;
        }
    }
    for (int32_t i = 0; i < 3; i++) {
        if (sbit__q_strip_has(call, i)) {
            if (sbit__q_strip_state(call, i, true, &x, &state, NULL) != SBIT_OK) {
                return SBIT_OK; /* prepare says what is wrong */
            }
            bytes += state.packed_bytes;
            arrays = state.array_bytes > arrays ? state.array_bytes : arrays;
        }
    }
    char *packed = (char *)call->alloc_packed(call, bytes + arrays);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    char *memory = packed + bytes;
    for (int32_t i = 0; i < 3; i++) {
        if (sbit__q_strip_has(call, i)) {
            SBIT__TRY(sbit__q_strip_state(call, i, true, &x, &state, error));
            state.fixed = true;
            SBIT__TRY(sbit__q_strip_fill(call, i, &state, packed, memory, error));
            packed += state.packed_bytes;
            call->release_input(call, i * SBIT__Q_OTHER + 3);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__q_strip_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit_type x = *call->in_type[0];
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        if (call->in_type[i] != NULL && !sbit__type_static(call->in_type[i])) {
            return SBIT_OK;
        }
    }
    sbit__q_strip_params *params =
        (sbit__q_strip_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    memset(params, 0, sizeof *params);
    for (int32_t i = 0; i < 3; i++) {
        sbit__q_state *state = &params->state[i];
        params->there[i] = sbit__q_strip_has(call, i);
        if (params->there[i]) {
            SBIT__TRY(sbit__q_strip_state(call, i, false, &x, state, error));
            params->strip.conv[i] = state->conv;
            params->packed_bytes += state->packed_bytes;
            params->array_bytes = state->array_bytes > params->array_bytes ? state->array_bytes
                                                                           : params->array_bytes;
        }
    }
    sbit__q8_strip_plan(call->ctx, &params->strip);
    *call->scratch_bytes = sbit__align64(params->strip.scratch_bytes) +
                           sbit__align64(sizeof *params) +
                           (call->packed != NULL ? 0 : params->packed_bytes + params->array_bytes);
    return SBIT_OK;
}

static sbit_status sbit__q_strip_run(const sbit_op_call *call, sbit_error *error)
{
    const void *packed[3] = {NULL, NULL, NULL};
    if (call->params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (sbit_tensor_count(call->out[0]) == 0) {
        return SBIT_OK;
    }
    const sbit__q_strip_params *plan = (const sbit__q_strip_params *)call->params;
    char *here = (char *)call->scratch + sbit__align64(plan->strip.scratch_bytes);
    sbit__q_strip_params *params = (sbit__q_strip_params *)(void *)here; /* with scales */
    *params = *plan;
    here += sbit__align64(sizeof *params);
    char *memory = here + params->packed_bytes;
    const char *at = call->packed != NULL ? (const char *)call->packed : here;
    for (int32_t i = 0; i < 3; i++) {
        sbit__q_state *state = &params->state[i];
        if (params->there[i]) {
            SBIT__TRY(sbit__q_strip_fill(call, i, state, call->packed != NULL ? NULL : here, memory,
                                         error));
            params->strip.conv[i].zero_x = state->conv.zero_x;
            params->strip.conv[i].store.zero = state->conv.store.zero;
            params->strip.conv[i].added = state->conv.added;
            packed[i] = at;
            at += state->packed_bytes;
            here += state->packed_bytes;
        }
    }
    const sbit_tensor *other = sbit__in(call, 3 * SBIT__Q_OTHER);
    sbit__q8_strip_run(call->ctx, &params->strip, (const uint8_t *)call->in[0]->data, packed,
                       other != NULL ? (const uint8_t *)other->data : NULL,
                       (uint8_t *)call->out[0]->data, call->scratch);
    return SBIT_OK;
}

static int64_t sbit__q_strip_macs(const sbit_op_call *call)
{
    sbit__q_strip_part part;
    sbit_type x = *call->in_type[0];
    int64_t macs = 0;
    for (int32_t i = 0; i < 3; i++) {
        if (sbit__q_strip_has(call, i)) {
            sbit__q_strip_part_of(call, i, &x, &part);
            if (sbit__q_product_infer(&part.call, NULL) != SBIT_OK) {
                return macs;
            }
            const int64_t more = sbit__window_macs(&part.y, part.in_type[3]);
            macs = more > INT64_MAX - macs ? INT64_MAX : macs + more;
            x = part.y;
        }
    }
    return macs;
}

/* >>rows */
#define SBIT__Q_ROW(domain, name, version) SBIT__Q_TYPED_ROW(domain, name, version, SBIT__T_Q8)
#define SBIT__Q_TYPED_ROW(domain, name, version, types)                                            \
    {                                                                                              \
        domain, name, version, types, 0, sbit__q_product_pack, sbit__q_product_infer,         \
            sbit__q_product_prepare, sbit__q_product_run, NULL, NULL, NULL, NULL,                  \
            sbit__q_product_macs                                                                   \
    }

static const sbit_op_row sbit__q_rows[] = {
    SBIT__Q_ROW("", "QLinearConv", 10),
    SBIT__Q_ROW("", "ConvInteger", 10),
    SBIT__Q_ROW("", "QLinearMatMul", 10),
    SBIT__Q_TYPED_ROW("", "QLinearMatMul", 21, SBIT__T_Q8 | SBIT__T_F8),
    SBIT__Q_ROW("", "MatMulInteger", 10),
    SBIT__Q_ROW("com.microsoft", "QLinearConv", 1),
    SBIT__Q_ROW("com.microsoft", "QGemm", 1),
    SBIT__Q_ROW("com.microsoft", "MatMulIntegerToFloat", 1),
    SBIT__Q_ROW("sbit", "QConv", 1),
    SBIT__Q_ROW("sbit", "QMatMul", 1),
    SBIT__Q_ROW("sbit", "QGemm", 1),
    {"sbit", "QStrip", 1, SBIT_T(SBIT_U8), 0, sbit__q_strip_pack, sbit__q_strip_infer,
     sbit__q_strip_prepare, sbit__q_strip_run, NULL, NULL, NULL, NULL, sbit__q_strip_macs},
};

#undef SBIT__Q_ROW
#undef SBIT__Q_TYPED_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_qlinear(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__q_rows);
    return sbit__q_rows;
}
