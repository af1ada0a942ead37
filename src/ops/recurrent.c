/* recurrent.c: LSTM, GRU, RNN. >>recurrent
 *
 * Called by: infer, exec. Calls: kernels (gemm driver, rows of floats).
 * For each direction: one gemm makes X * W^T + bias for the whole sequence, then each time step
 * adds H(t-1) * R^T and goes through the gates, one image of the batch after the other. With gates
 * G = 4 (i o f c), 3 (z r h) or 1, and hidden size H:
 *   W [D, G*H, I]  R [D, G*H, H]  B [D, 2*G*H] (for W, then for R)  P [D, 3*H] (i o f)
 *   layout 0: X [T, N, I]  Y [T, D, N, H]  states [D, N, H]
 *   layout 1: X [N, T, I]  Y [N, T, D, H]  states [N, D, H]
 * A sequence shorter than T is done after its own length: Y is 0 behind it, and Y_h, Y_c are those
 * of its last step; the reverse direction begins at its own last element. `clip` bounds what goes
 * into every activation. activation_alpha and _beta are consumed by the functions that use them.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* expf, exp, tanhf, tanh, log1pf, log1p, fabsf, fabs */

#if !SPARSEBIT_NO_OPS_RNN

typedef enum sbit__rnn_act {
    SBIT__RNN_SIGMOID,
    SBIT__RNN_TANH,
    SBIT__RNN_RELU,
    SBIT__RNN_AFFINE,
    SBIT__RNN_LEAKY,
    SBIT__RNN_THRESHOLDED,
    SBIT__RNN_SCALED_TANH,
    SBIT__RNN_HARD_SIGMOID,
    SBIT__RNN_ELU,
    SBIT__RNN_SOFTSIGN,
    SBIT__RNN_SOFTPLUS
} sbit__rnn_act;

typedef struct sbit__rnn_function {
    const char *name;
    sbit__rnn_act act;
    bool uses_alpha, uses_beta;
    float alpha, beta; /* defaults */
} sbit__rnn_function;

static const sbit__rnn_function sbit__rnn_functions[] = {
    {"Sigmoid", SBIT__RNN_SIGMOID, false, false, 0, 0},
    {"Tanh", SBIT__RNN_TANH, false, false, 0, 0},
    {"Relu", SBIT__RNN_RELU, false, false, 0, 0},
    {"Affine", SBIT__RNN_AFFINE, true, true, 1, 0},
    {"LeakyRelu", SBIT__RNN_LEAKY, true, false, 0.01f, 0},
    {"ThresholdedRelu", SBIT__RNN_THRESHOLDED, true, false, 1, 0},
    {"ScaledTanh", SBIT__RNN_SCALED_TANH, true, true, 1, 1},
    {"HardSigmoid", SBIT__RNN_HARD_SIGMOID, true, true, 0.2f, 0.5f},
    {"Elu", SBIT__RNN_ELU, true, false, 1, 0},
    {"Softsign", SBIT__RNN_SOFTSIGN, false, false, 0, 0},
    {"Softplus", SBIT__RNN_SOFTPLUS, false, false, 0, 0},
};

typedef enum sbit__rnn_kind {
    SBIT__RNN_LSTM,
    SBIT__RNN_GRU,
    SBIT__RNN_PLAIN
} sbit__rnn_kind;

#define SBIT__RNN_MAX_FUNCTIONS 3 /* of one direction */

typedef struct sbit__rnn {
    sbit__rnn_kind kind;
    int64_t gates, functions; /* per direction */
    int64_t dirs, steps, batch, inputs, hidden;
    bool reverse_only, batch_first, input_forget, linear_before_reset;
    float clip; /* 0: none */
    sbit__rnn_function act[2][SBIT__RNN_MAX_FUNCTIONS];
    int64_t first; /* rows of R in the first gemm of a step; the rest needs the reset gate */
} sbit__rnn;

/* ---- attributes */

static bool sbit__rnn_same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        const char x = *a >= 'A' && *a <= 'Z' ? (char)(*a - 'A' + 'a') : *a;
        const char y = *b >= 'A' && *b <= 'Z' ? (char)(*b - 'A' + 'a') : *b;
        if (x != y) {
            return false;
        }
    }
    return *a == *b;
}

static sbit_status sbit__rnn_find_function(const sbit_op_call *call, const char *name,
                                           sbit__rnn_function *out, sbit_error *error)
{
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__rnn_functions); i++) {
        if (sbit__rnn_same_name(sbit__rnn_functions[i].name, name)) {
            *out = sbit__rnn_functions[i];
            return SBIT_OK;
        }
    }
    return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "unknown activation '%s'", name);
}

static sbit_status sbit__rnn_activations(const sbit_op_call *call, sbit__rnn *rnn,
                                         sbit_error *error)
{
    static const char *const defaults[3][SBIT__RNN_MAX_FUNCTIONS] = {
        {"Sigmoid", "Tanh", "Tanh"}, {"Sigmoid", "Tanh", NULL}, {"Tanh", NULL, NULL}};
    const sbit_attr *names = sbit_node_attr(call->node, "activations");
    float alpha[2 * SBIT__RNN_MAX_FUNCTIONS], beta[2 * SBIT__RNN_MAX_FUNCTIONS];
    int64_t alphas = -1, betas = -1, next_alpha = 0, next_beta = 0;
    SBIT__TRY(sbit__op_floats(call, "activation_alpha", -1, alpha, 2 * SBIT__RNN_MAX_FUNCTIONS,
                              &alphas, error));
    SBIT__TRY(sbit__op_floats(call, "activation_beta", -1, beta, 2 * SBIT__RNN_MAX_FUNCTIONS,
                              &betas, error));
    const bool listed = names != NULL && names->type == SBIT_ONNX_ATTR_STRINGS && names->count > 0;
    /* RNN's default is a list of two names whatever the direction is. */
    if (listed && (int64_t)names->count < rnn->dirs * rnn->functions) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "activations has %d entries, needs %lld", (int)names->count,
                            (long long)(rnn->dirs * rnn->functions));
    }
    for (int64_t i = 0; i < rnn->dirs * rnn->functions; i++) {
        sbit__rnn_function *act = &rnn->act[i / rnn->functions][i % rnn->functions];
        SBIT__TRY(sbit__rnn_find_function(
            call, listed ? names->strings[i].data : defaults[rnn->kind][i % rnn->functions], act,
            error));
        if (act->uses_alpha && next_alpha < alphas) {
            act->alpha = alpha[next_alpha++];
        }
        if (act->uses_beta && next_beta < betas) {
            act->beta = beta[next_beta++];
        }
    }
    return SBIT_OK;
}

static bool sbit__rnn_is_gradient(const sbit_op_call *call)
{
    return sbit__streq(call->row->op_type, "RecurrentGrad");
}

static sbit__rnn_kind sbit__rnn_kind_of(const sbit_op_call *call)
{
    const char *of =
        sbit__rnn_is_gradient(call) ? sbit_node_string(call->node, "of", "") : call->row->op_type;
    return sbit__streq(of, "LSTM")  ? SBIT__RNN_LSTM
           : sbit__streq(of, "GRU") ? SBIT__RNN_GRU
                                    : SBIT__RNN_PLAIN;
}

/* Everything that attributes say; sizes are left 0. */
static sbit_status sbit__rnn_read(const sbit_op_call *call, sbit__rnn *rnn, sbit_error *error)
{
    /* "foward": how GRU-1 and LSTM-1 spelled their default */
    static const char *const directions[] = {"forward", "reverse", "bidirectional", "foward"};
    int32_t direction = 0;
    SBIT__TRY(sbit__op_word(call, "direction", directions, 4, &direction, error));
    memset(rnn, 0, sizeof *rnn);
    rnn->kind = sbit__rnn_kind_of(call);
    rnn->gates = rnn->kind == SBIT__RNN_LSTM ? 4 : rnn->kind == SBIT__RNN_GRU ? 3 : 1;
    rnn->functions = rnn->kind == SBIT__RNN_LSTM ? 3 : rnn->kind == SBIT__RNN_GRU ? 2 : 1;
    rnn->dirs = direction == 2 ? 2 : 1;
    rnn->reverse_only = direction == 1;
    rnn->batch_first = sbit_node_int(call->node, "layout", 0) != 0;
    rnn->input_forget = sbit_node_int(call->node, "input_forget", 0) != 0;
    rnn->linear_before_reset = sbit_node_int(call->node, "linear_before_reset", 0) != 0;
    rnn->clip = sbit_node_float(call->node, "clip", 0.0f);
    if (!(rnn->clip >= 0.0f)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "clip is negative");
    }
    return sbit__rnn_activations(call, rnn, error);
}

/* ---- shapes */

/* Input i, if present, has the shape dims[0..rank-1]; unknown dims fit anything. */
static sbit_status sbit__rnn_check(const sbit_op_call *call, int32_t i, int32_t rank,
                                   const sbit_dim *dims, sbit_error *error)
{
    int32_t have = -1;
    SBIT__TRY(sbit__op_rank(call, i, &have, error));
    if (have < 0) {
        return SBIT_OK;
    }
    if (have != rank) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d has rank %d, must be %d", (int)i,
                            (int)have, (int)rank);
    }
    for (int32_t k = 0; k < rank; k++) {
        const sbit_dim dim = call->in_type[i]->dims[k];
        if (sbit__dim_known(dim) && sbit__dim_known(dims[k]) && dim.value != dims[k].value) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "dimension %d of input %d is %lld, must be %lld", (int)k, (int)i,
                                (long long)dim.value, (long long)dims[k].value);
        }
    }
    return SBIT_OK;
}

static sbit_dim sbit__rnn_times(sbit_dim dim, int64_t factor)
{
    int64_t product = 0;
    if (!sbit__dim_known(dim) || !sbit__mul_i64(dim.value, factor, &product)) {
        return sbit__dim_any();
    }
    return sbit__dim(product);
}

/* The sizes as far as the inputs' types tell, after checking that they agree. */
static sbit_status sbit__rnn_dims(const sbit_op_call *call, const sbit__rnn *rnn, sbit_dim *steps,
                                  sbit_dim *batch, sbit_dim *hidden, sbit_error *error)
{
    const int32_t most = sbit__rnn_is_gradient(call) ? 11 : rnn->kind == SBIT__RNN_LSTM ? 8 : 6;
    const int64_t attr_hidden = sbit_node_int(call->node, "hidden_size", 0);
    const sbit_dim dirs = sbit__dim(rnn->dirs), any = sbit__dim_any();
    sbit_dim inputs = any;
    sbit_dim shape[3] = {any, any, any};
    SBIT__TRY(sbit__op_inputs(call, 3, most, error));
    SBIT__TRY(sbit__op_dtypes(call, 0xee, 0, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x10, SBIT_T(SBIT_I32), error));
    SBIT__TRY(sbit__rnn_check(call, 0, 3, shape, error));
    *steps = *batch = *hidden = any;
    if (call->in_type[0]->rank == 3) {
        *steps = call->in_type[0]->dims[rnn->batch_first ? 1 : 0];
        *batch = call->in_type[0]->dims[rnn->batch_first ? 0 : 1];
        inputs = call->in_type[0]->dims[2];
    }
    if (attr_hidden > 0 && attr_hidden <= INT32_MAX) {
        *hidden = sbit__dim(attr_hidden);
    } else if (call->in_type[2]->rank == 3) {
        *hidden = call->in_type[2]->dims[2];
    }
    shape[0] = dirs;
    shape[1] = sbit__rnn_times(*hidden, rnn->gates);
    shape[2] = inputs;
    SBIT__TRY(sbit__rnn_check(call, 1, 3, shape, error));
    shape[2] = *hidden;
    SBIT__TRY(sbit__rnn_check(call, 2, 3, shape, error));
    shape[1] = sbit__rnn_times(*hidden, 2 * rnn->gates);
    SBIT__TRY(sbit__rnn_check(call, 3, 2, shape, error));
    SBIT__TRY(sbit__rnn_check(call, 4, 1, batch, error));
    shape[1] = sbit__rnn_times(*hidden, 3);
    SBIT__TRY(sbit__rnn_check(call, 7, 2, shape, error));
    shape[0] = rnn->batch_first ? *batch : dirs;
    shape[1] = rnn->batch_first ? dirs : *batch;
    SBIT__TRY(sbit__rnn_check(call, 5, 3, shape, error));
    return sbit__rnn_check(call, 6, 3, shape, error);
}

static sbit_status sbit__rnn_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__rnn rnn;
    sbit_dim steps, batch, hidden;
    SBIT__TRY(sbit__op_inputs(call, 3, 8, error));
    SBIT__TRY(sbit__rnn_read(call, &rnn, error));
    SBIT__TRY(sbit__rnn_dims(call, &rnn, &steps, &batch, &hidden, error));
    const sbit_dim dirs = sbit__dim(rnn.dirs);
    sbit_type *y = sbit__op_out(call, 0, call->in_type[0]->dtype, 4);
    if (y != NULL) {
        y->dims[0] = rnn.batch_first ? batch : steps;
        y->dims[1] = rnn.batch_first ? steps : dirs;
        y->dims[2] = rnn.batch_first ? dirs : batch;
        y->dims[3] = hidden;
    }
    sbit_type *kept = sbit__op_is_internal(call) ? sbit__op_out(call, 3, SBIT_F32, 5) : NULL;
    if (kept != NULL) {
        kept->dims[0] = sbit__dim(SBIT__LSTM_KEPT);
        kept->dims[1] = steps;
        kept->dims[2] = dirs;
        kept->dims[3] = batch;
        kept->dims[4] = hidden;
    }
    for (int32_t i = 1; i < 3; i++) {
        sbit_type *state = sbit__op_out(call, i, call->in_type[0]->dtype, 3);
        if (state != NULL) {
            state->dims[0] = rnn.batch_first ? batch : dirs;
            state->dims[1] = rnn.batch_first ? dirs : batch;
            state->dims[2] = hidden;
        }
    }
    return SBIT_OK;
}

/* Attributes and sizes, all known. */
static sbit_status sbit__rnn_of(const sbit_op_call *call, sbit__rnn *rnn, sbit_error *error)
{
    sbit_dim steps, batch, hidden;
    int64_t floats = 0;
    SBIT__TRY(sbit__rnn_read(call, rnn, error));
    SBIT__TRY(sbit__rnn_dims(call, rnn, &steps, &batch, &hidden, error));
    rnn->steps = steps.value;
    rnn->batch = batch.value;
    rnn->hidden = hidden.value;
    rnn->inputs = call->in_type[0]->dims[2].value;
    rnn->first = rnn->gates * rnn->hidden;
    if (rnn->kind == SBIT__RNN_GRU && !rnn->linear_before_reset) {
        rnn->first = 2 * rnn->hidden;
    }
    if (!sbit__mul_i64(rnn->steps + 4, rnn->batch + 1, &floats) ||
        !sbit__mul_i64(floats, rnn->gates * rnn->hidden, &floats) || floats > INT64_MAX / 64) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
    }
    return SBIT_OK;
}

/* ---- prepare */

/* Packed weights of one direction lie behind each other: W, R's first rows, R's other rows. */
typedef struct sbit__rnn_params {
    sbit__rnn rnn;
    size_t part_bytes[3];
    int64_t blocks;    /* of images that go through the steps by themselves, each on one thread */
    bool packs;        /* weights that change: packed in scratch memory by each run */
    size_t gemm_bytes; /* scratch of the gemms before the steps, then of those of one block */
    size_t step_bytes;
} sbit__rnn_params;

/* Columns, inner length and first weight row of part 0 (W), 1 (R, first gemm), 2 (R, second). */
static void sbit__rnn_part(const sbit__rnn *rnn, int32_t part, int64_t *n, int64_t *k, int64_t *row)
{
    const int64_t all = rnn->gates * rnn->hidden;
    *n = part == 0 ? all : part == 1 ? rnn->first : all - rnn->first;
    *k = part == 0 ? rnn->inputs : rnn->hidden;
    *row = part == 2 ? rnn->first : 0;
}

/* Bytes of the parts of one direction; together. */
static size_t sbit__rnn_part_bytes(const sbit_op_call *call, const sbit__rnn *rnn, size_t bytes[3])
{
    size_t total = 0;
    for (int32_t part = 0; part < 3; part++) {
        int64_t n = 0, k = 0, row = 0;
        sbit__rnn_part(rnn, part, &n, &k, &row);
        bytes[part] = n > 0 && k > 0 ? sbit__align64(sbit__gemm_pack_b_bytes(call->ctx, n, k)) : 0;
        total += bytes[part];
    }
    return total;
}

static size_t sbit__rnn_packed_at(const size_t bytes[3], int64_t dir, int32_t part)
{
    size_t at = (size_t)dir * (bytes[0] + bytes[1] + bytes[2]);
    for (int32_t i = 0; i < part; i++) {
        at += bytes[i];
    }
    return at;
}

static void sbit__rnn_gemm(const sbit__rnn *rnn, int32_t part, int64_t m, sbit__gemm *gemm)
{
    int64_t row = 0;
    memset(gemm, 0, sizeof *gemm);
    sbit__rnn_part(rnn, part, &gemm->n, &gemm->k, &row);
    gemm->m = m;
    gemm->lda = gemm->ldb = gemm->k;
    gemm->ldc = rnn->gates * rnn->hidden;
    gemm->trans_b = true;
    gemm->alpha = 1.0f;
}

/* What packing needs to know, from the weights. False: they are not to be packed. */
static bool sbit__rnn_weights(const sbit_op_call *call, sbit__rnn *rnn)
{
    const sbit_tensor *w = sbit__in(call, 1), *r = sbit__in(call, 2);
    if (w == NULL || r == NULL || w->dtype != SBIT_F32 || r->dtype != SBIT_F32 || w->rank != 3 ||
        r->rank != 3 || sbit__rnn_read(call, rnn, NULL) != SBIT_OK) {
        return false;
    }
    rnn->hidden = r->dims[2];
    rnn->inputs = w->dims[2];
    rnn->first = rnn->gates * rnn->hidden;
    if (rnn->kind == SBIT__RNN_GRU && !rnn->linear_before_reset) {
        rnn->first = 2 * rnn->hidden;
    }
    return w->dims[0] == rnn->dirs && r->dims[0] == rnn->dirs && rnn->hidden < INT32_MAX &&
           w->dims[1] == rnn->gates * rnn->hidden && r->dims[1] == w->dims[1];
}

static void sbit__rnn_pack_to(const sbit_op_call *call, const sbit__rnn *rnn, const size_t bytes[3],
                              char *packed)
{
    for (int64_t dir = 0; dir < rnn->dirs; dir++) {
        for (int32_t part = 0; part < 3; part++) {
            int64_t n = 0, k = 0, row = 0;
            sbit__rnn_part(rnn, part, &n, &k, &row);
            const float *from = (const float *)call->in[part == 0 ? 1 : 2]->data +
                                (dir * rnn->gates * rnn->hidden + row) * k;
            if (n > 0 && k > 0) {
                sbit__gemm_pack_b(
                    call->ctx, n, k, from, k, true, 1.0f,
                    (float *)(void *)(packed + sbit__rnn_packed_at(bytes, dir, part)));
            }
        }
    }
}

static sbit_status sbit__rnn_pack(const sbit_op_call *call, sbit_error *error)
{
    sbit__rnn rnn;
    size_t bytes[3];
    if (!sbit__rnn_weights(call, &rnn)) {
        return SBIT_OK;
    }
    const size_t total = sbit__rnn_part_bytes(call, &rnn, bytes) * (size_t)rnn.dirs;
    char *packed = total > 0 ? (char *)call->alloc_packed(call, total) : NULL;
    if (packed == NULL) {
        return total > 0 ? sbit__op_no_memory(call, error) : SBIT_OK;
    }
    sbit__rnn_pack_to(call, &rnn, bytes, packed);
    call->release_input(call, 1);
    call->release_input(call, 2);
    return SBIT_OK;
}

static size_t sbit__rnn_scratch_floats(const sbit__rnn *rnn)
{
    const int64_t all = rnn->gates * rnn->hidden;
    return (size_t)(rnn->steps * rnn->batch * all /* X * W^T */ + rnn->batch * all /* gates */ +
                    3 * rnn->batch * rnn->hidden /* H, C, r * H */ + 2 * all /* bias */ + 64);
}

/* Images do not meet, nor do directions: both are spread over the threads. */
static int64_t sbit__rnn_blocks(const sbit_op_call *call, const sbit__rnn *rnn)
{
    const int64_t threads = sbit_ctx_threads(call->ctx);
    const int64_t blocks = rnn->dirs > 0 ? (threads + rnn->dirs - 1) / rnn->dirs : 1;
    return blocks < rnn->batch ? blocks : rnn->batch > 0 ? rnn->batch : 1;
}

static bool sbit__rnn_serial(const sbit__rnn *rnn, const sbit__rnn_params *params)
{
    return rnn->dirs * params->blocks > 1;
}

static sbit_status sbit__rnn_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__rnn rnn;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    for (int32_t i = 0; i < 3; i++) {
        if (!sbit__type_static(call->in_type[i])) {
            return SBIT_OK;
        }
    }
    SBIT__TRY(sbit__rnn_of(call, &rnn, error));
    sbit__rnn_params *params = (sbit__rnn_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    params->rnn = rnn;
    const size_t weights = sbit__rnn_part_bytes(call, &rnn, params->part_bytes) * (size_t)rnn.dirs;
    params->packs = call->packed == NULL;
    params->blocks = sbit__rnn_blocks(call, &rnn);
    params->gemm_bytes = params->step_bytes = 0;
    for (int32_t part = 0; part < 3; part++) {
        sbit__gemm gemm;
        sbit__rnn_gemm(&rnn, part, part == 0 ? rnn.steps * rnn.batch : rnn.batch, &gemm);
        gemm.packed_b = params->packs ? sbit__gemm_any() : (const float *)call->packed;
        gemm.serial = part > 0 && sbit__rnn_serial(&rnn, params);
        if (gemm.m > 0 && gemm.n > 0 && gemm.k > 0) {
            const size_t bytes = sbit__align64(sbit__gemm_scratch_bytes(call->ctx, &gemm));
            size_t *most = part == 0 ? &params->gemm_bytes : &params->step_bytes;
            *most = bytes > *most ? bytes : *most;
        }
    }
    const size_t workers = sbit__rnn_serial(&rnn, params) ? (size_t)sbit_ctx_threads(call->ctx) : 1;
    if (params->gemm_bytes < workers * params->step_bytes) {
        params->gemm_bytes = workers * params->step_bytes;
    }
    *call->scratch_bytes =
        sbit__op_in_float_scratch(call) + params->gemm_bytes + (params->packs ? weights : 0) +
        (size_t)rnn.dirs * sbit__rnn_scratch_floats(&rnn) *
            (call->in_type[0]->dtype == SBIT_F64 ? sizeof(double) : sizeof(float));
    return SBIT_OK;
}

/* ---- run */

static float sbit__rnn_activate_one(const sbit__rnn_function *act, float x)
{
    switch (act->act) {
    case SBIT__RNN_RELU:
        return x > 0.0f ? x : 0.0f;
    case SBIT__RNN_AFFINE:
        return act->alpha * x + act->beta;
    case SBIT__RNN_LEAKY:
        return x >= 0.0f ? x : act->alpha * x;
    case SBIT__RNN_THRESHOLDED:
        return x >= act->alpha ? x : 0.0f;
    case SBIT__RNN_SCALED_TANH:
        return act->alpha * tanhf(act->beta * x);
    case SBIT__RNN_HARD_SIGMOID:
        x = act->alpha * x + act->beta;
        return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x;
    case SBIT__RNN_ELU:
        return x >= 0.0f ? x : act->alpha * (expf(x) - 1.0f);
    case SBIT__RNN_SOFTSIGN:
        return x / (1.0f + fabsf(x));
    case SBIT__RNN_SOFTPLUS:
        return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
    default:
        return x;
    }
}

/* One direction at work. */
typedef struct sbit__rnn_run {
    const sbit__rnn *rnn;
    const sbit_kernels *kernels;
    const sbit__rnn_function *act; /* of the direction */
    int64_t dir;
    float *gates;          /* [batch][gates * hidden] */
    float *h, *c, *rh;     /* [batch][hidden] */
    float *xw;             /* rows of X * W^T + bias */
    float *bias;           /* [gates * hidden] */
    float *reset_bias;     /* GRU: R's bias of the hidden gate, apart if linear_before_reset */
    const float *peephole; /* [3 * hidden] i o f, or NULL */
    const char *packed;    /* of the weights */
    float *kept;           /* LSTM: output 3, or NULL */
} sbit__rnn_run;

static void sbit__rnn_activate(const sbit__rnn_run *run, int32_t function, float *x)
{
    const sbit__rnn_function *act = &run->act[function];
    const int64_t n = run->rnn->hidden;
    const float clip = run->rnn->clip;
    for (int64_t i = 0; clip > 0.0f && i < n; i++) {
        x[i] = x[i] > clip ? clip : x[i] < -clip ? -clip : x[i];
    }
    if (act->act == SBIT__RNN_SIGMOID || act->act == SBIT__RNN_TANH) {
        run->kernels->f32_unary(
            act->act == SBIT__RNN_SIGMOID ? SBIT__UNARY_SIGMOID : SBIT__UNARY_TANH, n, x, x);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = sbit__rnn_activate_one(act, x[i]);
    }
}

/* LSTM, one image: gates hold H(t-1) * R^T, with what x gives if xw is NULL. Writes C and H of this step;
 * cell, top: where C and its tanh are kept, or NULL. */
static void sbit__rnn_lstm_step(const sbit__rnn_run *run, int64_t b, const float *xw, float *gates,
                                float *cell, float *top)
{
    const int64_t n = run->rnn->hidden;
    float *i = gates, *o = i + n, *f = o + n, *g = f + n;
    float *c = run->c + b * n, *h = run->h + b * n;
    const float *p = run->peephole;
    if (xw != NULL) {
        run->kernels->f32_binary(SBIT__BINARY_ADD, 4 * n, i, 1, xw, 1, i);
    }
    for (int64_t k = 0; p != NULL && k < n; k++) {
        i[k] += p[k] * c[k];
        f[k] += p[2 * n + k] * c[k];
    }
    sbit__rnn_activate(run, 0, i);
    sbit__rnn_activate(run, 0, f);
    sbit__rnn_activate(run, 1, g);
    for (int64_t k = 0; k < n; k++) {
        const float forget = run->rnn->input_forget ? 1.0f - i[k] : f[k];
        c[k] = forget * c[k] + i[k] * g[k];
        h[k] = c[k];
        o[k] += p != NULL ? p[n + k] * c[k] : 0.0f;
    }
    sbit__rnn_activate(run, 0, o);
    sbit__rnn_activate(run, 2, h);
    if (cell != NULL) {
        memcpy(cell, c, (size_t)n * sizeof *c);
        memcpy(top, h, (size_t)n * sizeof *h);
    }
    run->kernels->f32_binary(SBIT__BINARY_MUL, n, h, 1, o, 1, h);
}

/* GRU, first half: update and reset gates, and what the reset gate acts on. */
static void sbit__rnn_gru_reset(const sbit__rnn_run *run, int64_t b, const float *xw)
{
    const int64_t n = run->rnn->hidden;
    float *z = run->gates + b * 3 * n, *r = z + n, *g = r + n;
    run->kernels->f32_binary(SBIT__BINARY_ADD, 2 * n, z, 1, xw, 1, z);
    sbit__rnn_activate(run, 0, z);
    sbit__rnn_activate(run, 0, r);
    for (int64_t k = 0; k < n; k++) {
        if (run->rnn->linear_before_reset) {
            g[k] = r[k] * (g[k] + run->reset_bias[k]);
        } else {
            run->rh[b * n + k] = r[k] * run->h[b * n + k];
        }
    }
}

static void sbit__rnn_gru_finish(const sbit__rnn_run *run, int64_t b, const float *xw)
{
    const int64_t n = run->rnn->hidden;
    const float *z = run->gates + b * 3 * n;
    float *g = run->gates + b * 3 * n + 2 * n, *h = run->h + b * n;
    run->kernels->f32_binary(SBIT__BINARY_ADD, n, g, 1, xw + 2 * n, 1, g);
    sbit__rnn_activate(run, 1, g);
    for (int64_t k = 0; k < n; k++) {
        h[k] = (1.0f - z[k]) * g[k] + z[k] * h[k];
    }
}

static void sbit__rnn_plain_step(const sbit__rnn_run *run, int64_t b, const float *xw)
{
    const int64_t n = run->rnn->hidden;
    float *h = run->h + b * n;
    run->kernels->f32_binary(SBIT__BINARY_ADD, n, run->gates + b * n, 1, xw, 1, h);
    sbit__rnn_activate(run, 0, h);
}

/* How long sequence b is. */
static int64_t sbit__rnn_length(const sbit_op_call *call, const sbit__rnn *rnn, int64_t b)
{
    const sbit_tensor *lengths = sbit__in(call, 4);
    return lengths != NULL ? ((const int32_t *)lengths->data)[b] : rnn->steps;
}

/* Which time index image b is at in step `step`; -1: done. */
static int64_t sbit__rnn_time(const sbit_op_call *call, const sbit__rnn *rnn, bool reverse,
                              int64_t b, int64_t step)
{
    const int64_t length = sbit__rnn_length(call, rnn, b);
    return step >= length ? -1 : reverse ? length - 1 - step : step;
}

static const float *sbit__rnn_xw_row(const sbit__rnn_run *run, int64_t b, int64_t time)
{
    const sbit__rnn *rnn = run->rnn;
    const int64_t row = rnn->batch_first ? b * rnn->steps + time : time * rnn->batch + b;
    return run->xw + row * rnn->gates * rnn->hidden;
}

/* c = a * (part of the weights)^T + bias for m rows; then ep, or NULL. */
static void sbit__rnn_multiply(const sbit_op_call *call, const sbit__rnn_run *run, int32_t part,
                               const float *a, int64_t m, const float *bias,
                               const sbit__epilogue *ep, float *c, void *scratch)
{
    const sbit__rnn *rnn = run->rnn;
    const sbit__rnn_params *params = (const sbit__rnn_params *)call->params;
    int64_t n = 0, k = 0, row = 0;
    sbit__gemm gemm;
    sbit__rnn_gemm(rnn, part, m, &gemm);
    sbit__rnn_part(rnn, part, &n, &k, &row);
    if (m == 0 || n == 0) {
        return;
    }
    if (k == 0) { /* of x only: hidden is not 0 */
        for (int64_t i = 0; i < m * n; i++) {
            c[i / n * gemm.ldc + i % n] = bias != NULL ? bias[i % n] : 0.0f;
        }
        return;
    }
    gemm.a = a;
    gemm.packed_b =
        (const float *)(const void *)(run->packed +
                                      sbit__rnn_packed_at(params->part_bytes, run->dir, part));
    gemm.serial = part > 0 && sbit__rnn_serial(rnn, params);
    gemm.bias = bias;
    gemm.epilogue = ep;
    gemm.c = c + row;
    sbit__gemm_run(call->ctx, &gemm, scratch);
}

/* One step of images b0..b1. */
static void sbit__rnn_step(const sbit_op_call *call, const sbit__rnn_run *run, int64_t b0,
                           int64_t b1, int64_t step, void *scratch)
{
    const sbit__rnn *rnn = run->rnn;
    const bool reverse = run->dir == 1 || rnn->reverse_only;
    const int64_t hidden = rnn->hidden, cells = rnn->steps * rnn->dirs * rnn->batch * hidden;
    /* what is kept has no lengths: all are at the same time */
    const int64_t row0 = run->kept != NULL
                             ? (sbit__rnn_time(call, rnn, reverse, 0, step) * rnn->dirs + run->dir) * rnn->batch
                             : 0;
    float *all = run->kept != NULL ? run->kept + row0 * 4 * hidden : run->gates;
    float *gates = all + b0 * rnn->gates * hidden;
    sbit__epilogue of_x;
    memset(&of_x, 0, sizeof of_x);
    if (run->kept != NULL) {
        of_x.residual = sbit__rnn_xw_row(run, b0, sbit__rnn_time(call, rnn, reverse, 0, step));
    }
    sbit__rnn_multiply(call, run, 1, run->h + b0 * hidden, b1 - b0, NULL,
                       run->kept != NULL ? &of_x : NULL, gates, scratch);
    if (rnn->kind == SBIT__RNN_GRU) {
        for (int64_t b = b0; b < b1; b++) {
            const int64_t time = sbit__rnn_time(call, rnn, reverse, b, step);
            if (time >= 0) {
                sbit__rnn_gru_reset(run, b, sbit__rnn_xw_row(run, b, time));
            }
        }
        if (!rnn->linear_before_reset) {
            sbit__rnn_multiply(call, run, 2, run->rh + b0 * hidden, b1 - b0, NULL, NULL, gates,
                               scratch);
        }
    }
    for (int64_t b = b0; b < b1; b++) {
        const int64_t time = sbit__rnn_time(call, rnn, reverse, b, step);
        if (time < 0) {
            continue;
        }
        const float *xw = sbit__rnn_xw_row(run, b, time);
        if (rnn->kind == SBIT__RNN_LSTM) {
            float *cell = run->kept != NULL ? run->kept + 4 * cells + (row0 + b) * hidden : NULL;
            sbit__rnn_lstm_step(run, b, run->kept != NULL ? NULL : xw, all + b * 4 * hidden, cell,
                                cell != NULL ? cell + cells : NULL);
        } else if (rnn->kind == SBIT__RNN_GRU) {
            sbit__rnn_gru_finish(run, b, xw);
        } else {
            sbit__rnn_plain_step(run, b, xw);
        }
        if (sbit__out(call, 0) != NULL) {
            const int64_t row = rnn->batch_first ? (b * rnn->steps + time) * rnn->dirs + run->dir
                                                 : (time * rnn->dirs + run->dir) * rnn->batch + b;
            memcpy((float *)call->out[0]->data + row * hidden, run->h + b * hidden,
                   (size_t)hidden * sizeof(float));
        }
    }
}

/* Row of image b in an initial or last state. */
static int64_t sbit__rnn_state_row(const sbit__rnn *rnn, int64_t dir, int64_t b)
{
    return rnn->batch_first ? b * rnn->dirs + dir : dir * rnn->batch + b;
}

static void sbit__rnn_load_state(const sbit__rnn *rnn, const sbit_tensor *from, int64_t dir,
                                 float *to)
{
    const size_t bytes = (size_t)rnn->hidden * sizeof(float);
    for (int64_t b = 0; b < rnn->batch; b++) {
        if (from == NULL) {
            memset(to + b * rnn->hidden, 0, bytes);
        } else {
            memcpy(to + b * rnn->hidden,
                   (const float *)from->data + sbit__rnn_state_row(rnn, dir, b) * rnn->hidden,
                   bytes);
        }
    }
}

static void sbit__rnn_store_state(const sbit__rnn *rnn, const float *from, int64_t dir,
                                  sbit_tensor *to)
{
    for (int64_t b = 0; to != NULL && b < rnn->batch; b++) {
        memcpy((float *)to->data + sbit__rnn_state_row(rnn, dir, b) * rnn->hidden,
               from + b * rnn->hidden, (size_t)rnn->hidden * sizeof(float));
    }
}

/* The bias that X * W^T gets: W's plus R's, except for what the reset gate has to see alone. */
static void sbit__rnn_bias(const sbit_op_call *call, const sbit__rnn_run *run)
{
    const sbit__rnn *rnn = run->rnn;
    const int64_t all = rnn->gates * rnn->hidden;
    const sbit_tensor *given = sbit__in(call, 3);
    const float *from = given != NULL ? (const float *)given->data + run->dir * 2 * all : NULL;
    for (int64_t i = 0; i < all; i++) {
        const bool apart =
            rnn->kind == SBIT__RNN_GRU && rnn->linear_before_reset && i >= 2 * rnn->hidden;
        const float recurrent = from != NULL ? from[all + i] : 0.0f;
        run->bias[i] = (from != NULL ? from[i] : 0.0f) + (apart ? 0.0f : recurrent);
        if (i >= 2 * rnn->hidden && rnn->kind == SBIT__RNN_GRU) {
            run->reset_bias[i - 2 * rnn->hidden] = recurrent;
        }
    }
}

/* Hands out the memory of a direction; returns what lies behind it. */
static float *sbit__rnn_begin(const sbit_op_call *call, const sbit__rnn *rnn, int64_t dir,
                              float *memory, sbit__rnn_run *run)
{
    const int64_t all = rnn->gates * rnn->hidden;
    const sbit_tensor *peephole = sbit__in(call, 7);
    float *next = memory;
    memset(run, 0, sizeof *run);
    run->rnn = rnn;
    run->kernels = call->kernels;
    run->act = rnn->act[dir];
    run->dir = dir;
    run->kept = sbit__out(call, 3) != NULL ? (float *)call->out[3]->data : NULL;
    run->peephole = peephole != NULL ? (const float *)peephole->data + dir * 3 * rnn->hidden : NULL;
    run->xw = next;
    next += rnn->steps * rnn->batch * all;
    run->gates = next;
    next += rnn->batch * all;
    run->h = next;
    next += rnn->batch * rnn->hidden;
    run->c = next;
    next += rnn->batch * rnn->hidden;
    run->rh = next;
    run->bias = next + rnn->batch * rnn->hidden;
    run->reset_bias = run->bias + all;
    return memory + sbit__rnn_scratch_floats(rnn);
}

typedef struct sbit__rnn_task {
    const sbit_op_call *call;
    const sbit__rnn_run *runs; /* of the directions */
} sbit__rnn_task;

/* All steps of block `index`: a direction, and its share of the images. */
static void sbit__rnn_block(void *data, int64_t index, int32_t worker)
{
    const sbit__rnn_task *task = (const sbit__rnn_task *)data;
    const sbit__rnn_params *params = (const sbit__rnn_params *)task->call->params;
    const sbit__rnn_run *run = &task->runs[index / params->blocks];
    const int64_t block = index % params->blocks, batch = run->rnn->batch;
    void *scratch = (char *)task->call->scratch + (size_t)worker * params->step_bytes;
    for (int64_t step = 0; step < run->rnn->steps; step++) {
        sbit__rnn_step(task->call, run, block * batch / params->blocks,
                       (block + 1) * batch / params->blocks, step, scratch);
    }
}

static void sbit__rnn_directions(const sbit_op_call *call, const sbit__rnn *rnn)
{
    const sbit__rnn_params *params = (const sbit__rnn_params *)call->params;
    const int64_t dirs = rnn->dirs;
    char *weights = (char *)call->scratch + params->gemm_bytes;
    const size_t *bytes = params->part_bytes;
    const size_t taken = params->packs ? (bytes[0] + bytes[1] + bytes[2]) * (size_t)dirs : 0;
    float *memory = (float *)(void *)(weights + taken);
    sbit__rnn_run runs[2];
    sbit__rnn_task task;
    if (params->packs) {
        sbit__rnn_pack_to(call, rnn, bytes, weights);
    }
    for (int64_t dir = 0; dir < dirs; dir++) {
        sbit__rnn_run *run = &runs[dir];
        memory = sbit__rnn_begin(call, rnn, dir, memory, run);
        run->packed = params->packs ? weights : (const char *)call->packed;
        sbit__rnn_bias(call, run);
        sbit__rnn_load_state(rnn, sbit__in(call, 5), dir, run->h);
        sbit__rnn_load_state(rnn, sbit__in(call, 6), dir, run->c);
        memset(run->rh, 0, (size_t)(rnn->batch * rnn->hidden) * sizeof(float));
        sbit__rnn_multiply(call, run, 0, (const float *)call->in[0]->data, rnn->steps * rnn->batch,
                           run->bias, NULL, run->xw, call->scratch);
    }
    task.call = call;
    task.runs = runs;
    if (sbit__rnn_serial(rnn, params)) {
        sbit_ctx_parallel(call->ctx, dirs * params->blocks, sbit__rnn_block, &task);
    } else {
        sbit__rnn_block(&task, 0, 0);
    }
    for (int64_t dir = 0; dir < dirs; dir++) {
        sbit__rnn_store_state(rnn, runs[dir].h, dir, sbit__out(call, 1));
        sbit__rnn_store_state(rnn, runs[dir].c, dir, sbit__out(call, 2));
    }
}

/* Checks the lengths of the sequences and, if there are any, clears Y: what lies behind a short one is 0. */
static sbit_status sbit__rnn_start(const sbit_op_call *call, const sbit__rnn *rnn,
                                   sbit_error *error)
{
    for (int64_t b = 0; b < rnn->batch; b++) {
        const int64_t length = sbit__rnn_length(call, rnn, b);
        if (length < 0 || length > rnn->steps) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "sequence_lens[%lld] is %lld, the input has %lld steps",
                                (long long)b, (long long)length, (long long)rnn->steps);
        }
    }
    if (sbit__in(call, 4) != NULL && sbit__out(call, 0) != NULL && call->out[0]->data != NULL) {
        memset(call->out[0]->data, 0, sbit_tensor_bytes(call->out[0]));
    }
    return SBIT_OK;
}

/* ---- in double: one image after the other, by the formulas */

typedef struct sbit__rnn_run64 {
    const sbit_op_call *call;
    const sbit__rnn *rnn;
    const double *x, *peephole; /* of the step; of the direction */
    double *gates, *h, *c, *rh; /* of the image */
    int64_t dir;
} sbit__rnn_run64;

static double sbit__rnn_activate64(const sbit__rnn *rnn, const sbit__rnn_function *act, double x)
{
    const double a = (double)act->alpha, b = (double)act->beta, clip = (double)rnn->clip;
    if (clip > 0.0) {
        x = x > clip ? clip : x < -clip ? -clip : x;
    }
    switch (act->act) {
    case SBIT__RNN_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case SBIT__RNN_TANH:
        return tanh(x);
    case SBIT__RNN_RELU:
        return x > 0.0 ? x : 0.0;
    case SBIT__RNN_AFFINE:
        return a * x + b;
    case SBIT__RNN_LEAKY:
        return x >= 0.0 ? x : a * x;
    case SBIT__RNN_THRESHOLDED:
        return x >= a ? x : 0.0;
    case SBIT__RNN_SCALED_TANH:
        return a * tanh(b * x);
    case SBIT__RNN_HARD_SIGMOID:
        return a * x + b < 0.0 ? 0.0 : a * x + b > 1.0 ? 1.0 : a * x + b; /* NaN stays */
    case SBIT__RNN_ELU:
        return x >= 0.0 ? x : a * expm1(x);
    case SBIT__RNN_SOFTSIGN:
        return x / (1.0 + fabs(x));
    case SBIT__RNN_SOFTPLUS:
        return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
    }
    return x;
}

/* Row `row` of W times x, or of R times `state`, with its bias. */
static double sbit__rnn_dot64(const sbit__rnn_run64 *run, int64_t row, const double *state)
{
    const sbit__rnn *rnn = run->rnn;
    const int64_t all = rnn->gates * rnn->hidden;
    const int64_t n = state != NULL ? rnn->hidden : rnn->inputs;
    const sbit_tensor *bias = sbit__in(run->call, 3);
    const double *with = state != NULL ? state : run->x;
    const double *weights =
        (const double *)run->call->in[state != NULL ? 2 : 1]->data + (run->dir * all + row) * n;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i] * with[i];
    }
    if (bias != NULL) {
        sum += ((const double *)bias->data)[(2 * run->dir + (state != NULL ? 1 : 0)) * all + row];
    }
    return sum;
}

static void sbit__rnn_lstm_step64(const sbit__rnn_run64 *run)
{
    const sbit__rnn *rnn = run->rnn;
    const int64_t n = rnn->hidden;
    const sbit__rnn_function *act = rnn->act[run->dir];
    const double *p = run->peephole;
    for (int64_t row = 0; row < 4 * n; row++) {
        run->gates[row] = sbit__rnn_dot64(run, row, NULL) + sbit__rnn_dot64(run, row, run->h);
    }
    for (int64_t k = 0; k < n; k++) {
        const double old = run->c[k];
        const double in = run->gates[k] + (p != NULL ? p[k] * old : 0.0);
        const double forget = run->gates[2 * n + k] + (p != NULL ? p[2 * n + k] * old : 0.0);
        const double i = sbit__rnn_activate64(rnn, &act[0], in);
        const double f = rnn->input_forget ? 1.0 - i : sbit__rnn_activate64(rnn, &act[0], forget);
        run->c[k] = f * old + i * sbit__rnn_activate64(rnn, &act[1], run->gates[3 * n + k]);
        const double out = run->gates[n + k] + (p != NULL ? p[n + k] * run->c[k] : 0.0);
        run->h[k] =
            sbit__rnn_activate64(rnn, &act[0], out) * sbit__rnn_activate64(rnn, &act[2], run->c[k]);
    }
}

static void sbit__rnn_gru_step64(const sbit__rnn_run64 *run)
{
    const sbit__rnn *rnn = run->rnn;
    const int64_t n = rnn->hidden;
    const sbit__rnn_function *act = rnn->act[run->dir];
    double *z = run->gates, *r = z + n, *g = r + n;
    for (int64_t row = 0; row < 2 * n; row++) {
        run->gates[row] = sbit__rnn_activate64(
            rnn, &act[0], sbit__rnn_dot64(run, row, NULL) + sbit__rnn_dot64(run, row, run->h));
    }
    for (int64_t k = 0; k < n; k++) {
        run->rh[k] = r[k] * run->h[k];
    }
    for (int64_t k = 0; k < n; k++) {
        const double recurrent = rnn->linear_before_reset
                                     ? r[k] * sbit__rnn_dot64(run, 2 * n + k, run->h)
                                     : sbit__rnn_dot64(run, 2 * n + k, run->rh);
        g[k] =
            sbit__rnn_activate64(rnn, &act[1], sbit__rnn_dot64(run, 2 * n + k, NULL) + recurrent);
    }
    for (int64_t k = 0; k < n; k++) {
        run->h[k] = (1.0 - z[k]) * g[k] + z[k] * run->h[k];
    }
}

static void sbit__rnn_plain_step64(const sbit__rnn_run64 *run)
{
    const sbit__rnn *rnn = run->rnn;
    for (int64_t k = 0; k < rnn->hidden; k++) {
        run->gates[k] = sbit__rnn_dot64(run, k, NULL) + sbit__rnn_dot64(run, k, run->h);
    }
    for (int64_t k = 0; k < rnn->hidden; k++) {
        run->h[k] = sbit__rnn_activate64(rnn, &rnn->act[run->dir][0], run->gates[k]);
    }
}

/* All steps of one image in one direction. */
static void sbit__rnn_image64(sbit__rnn_run64 *run, int64_t b)
{
    const sbit_op_call *call = run->call;
    const sbit__rnn *rnn = run->rnn;
    const int64_t state = sbit__rnn_state_row(rnn, run->dir, b) * rnn->hidden;
    const size_t bytes = (size_t)rnn->hidden * sizeof(double);
    double *const states[2] = {run->h, run->c};
    for (int32_t i = 0; i < 2; i++) {
        const sbit_tensor *given = sbit__in(call, 5 + i);
        memset(states[i], 0, bytes);
        if (given != NULL) {
            memcpy(states[i], (const double *)given->data + state, bytes);
        }
    }
    for (int64_t step = 0; step < sbit__rnn_length(call, rnn, b); step++) {
        const int64_t time = sbit__rnn_time(call, rnn, run->dir == 1 || rnn->reverse_only, b, step);
        const int64_t x_row = rnn->batch_first ? b * rnn->steps + time : time * rnn->batch + b;
        const int64_t y_row = rnn->batch_first ? (b * rnn->steps + time) * rnn->dirs + run->dir
                                               : (time * rnn->dirs + run->dir) * rnn->batch + b;
        run->x = (const double *)call->in[0]->data + x_row * rnn->inputs;
        if (rnn->kind == SBIT__RNN_LSTM) {
            sbit__rnn_lstm_step64(run);
        } else if (rnn->kind == SBIT__RNN_GRU) {
            sbit__rnn_gru_step64(run);
        } else {
            sbit__rnn_plain_step64(run);
        }
        if (sbit__out(call, 0) != NULL) {
            memcpy((double *)call->out[0]->data + y_row * rnn->hidden, run->h, bytes);
        }
    }
    for (int32_t i = 0; i < 2; i++) {
        if (sbit__out(call, 1 + i) != NULL) {
            memcpy((double *)call->out[1 + i]->data + state, states[i], bytes);
        }
    }
}

static sbit_status sbit__rnn_kept(const sbit_op_call *call, sbit__rnn *rnn, sbit_error *error)
{
    sbit__rnn_params params;
    SBIT__TRY(sbit__op_kept(call, &params, sizeof params, error));
    *rnn = params.rnn;
    return SBIT_OK;
}

static sbit_status sbit__rnn_run_f64(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *peephole = sbit__in(call, 7);
    sbit__rnn rnn;
    sbit__rnn_run64 run;
    SBIT__TRY(sbit__rnn_kept(call, &rnn, error));
    SBIT__TRY(sbit__rnn_start(call, &rnn, error));
    memset(&run, 0, sizeof run);
    run.call = call;
    run.rnn = &rnn;
    run.gates = (double *)call->scratch; /* prepare asked for more */
    run.h = run.gates + rnn.gates * rnn.hidden;
    run.c = run.h + rnn.hidden;
    run.rh = run.c + rnn.hidden;
    for (run.dir = 0; rnn.hidden > 0 && run.dir < rnn.dirs; run.dir++) {
        run.peephole =
            peephole != NULL ? (const double *)peephole->data + run.dir * 3 * rnn.hidden : NULL;
        for (int64_t b = 0; b < rnn.batch; b++) {
            sbit__rnn_image64(&run, b);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__rnn_run32(const sbit_op_call *call, sbit_error *error)
{
    sbit__rnn rnn;
    SBIT__TRY(sbit__rnn_kept(call, &rnn, error));
    SBIT__TRY(sbit__rnn_start(call, &rnn, error));
    if (rnn.hidden > 0) {
        sbit__rnn_directions(call, &rnn);
    }
    return SBIT_OK;
}

static sbit_status sbit__rnn_op_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__rnn_run32, sbit__rnn_run_f64, error);
}

/* >>RecurrentGrad(x, W, R, B, lengths, h0, c0, P, dY, dYh, dYc) -> dx, dW, dR, dB, -, dh0, dc0, dP
 * {of, and the node's attributes}: every form, image by image in double. The steps are computed
 * again and kept (gates before their functions, states); then, from the last step to the first, the
 * gradients of what goes into the gates: `w` for what W and its bias give, `r` for R and its bias
 * (they differ in GRU only). LSTM and GRU in their usual form have faster rows (grad_recurrent.c).
 */

/* The slope of a function where x goes in. */
static double sbit__rnn_slope(const sbit__rnn *rnn, const sbit__rnn_function *act, double x)
{
    const double a = (double)act->alpha, b = (double)act->beta, clip = (double)rnn->clip;
    if (clip > 0.0 && (x > clip || x < -clip)) {
        return 0.0;
    }
    const double y = sbit__rnn_activate64(rnn, act, x), t = tanh(b * x);
    switch (act->act) {
    case SBIT__RNN_SIGMOID:
        return y * (1.0 - y);
    case SBIT__RNN_TANH:
        return 1.0 - y * y;
    case SBIT__RNN_RELU:
        return x > 0.0 ? 1.0 : 0.0;
    case SBIT__RNN_AFFINE:
        return a;
    case SBIT__RNN_LEAKY:
        return x >= 0.0 ? 1.0 : a;
    case SBIT__RNN_THRESHOLDED:
        return x >= a ? 1.0 : 0.0;
    case SBIT__RNN_SCALED_TANH:
        return a * b * (1.0 - t * t);
    case SBIT__RNN_HARD_SIGMOID:
        return a * x + b > 0.0 && a * x + b < 1.0 ? a : 0.0;
    case SBIT__RNN_ELU:
        return x >= 0.0 ? 1.0 : a * exp(x);
    case SBIT__RNN_SOFTSIGN:
        return 1.0 / ((1.0 + fabs(x)) * (1.0 + fabs(x)));
    case SBIT__RNN_SOFTPLUS:
        return 1.0 / (1.0 + exp(-x));
    }
    return 0.0;
}

enum {
    SBIT__RNN_IN_DY = 8
};

typedef struct sbit__rnn_back {
    const sbit_op_call *call;
    const sbit__rnn *rnn;
    bool wide, reverse;
    int64_t dir, image, times;           /* times: steps of this image */
    double *sums[8];                     /* of each output; NULL: not wanted */
    double *gates, *more, *h, *c;        /* [times][G*H], GRU's R h of the hidden gate [times][H],
                                            states [times + 1][H] */
    double *w, *r, *dh, *dc, *old, *mid; /* of the step at hand */
} sbit__rnn_back;

static double sbit__rnn_back_in(const sbit__rnn_back *b, int32_t input, int64_t at)
{
    const sbit_tensor *in = sbit__in(b->call, input);
    return in != NULL ? sbit__real_at(b->wide, in->data, at) : 0.0;
}

static void sbit__rnn_back_add(const sbit__rnn_back *b, int32_t output, int64_t at, double value)
{
    if (b->sums[output] != NULL) {
        b->sums[output][at] += value;
    }
}

static int64_t sbit__rnn_back_x(const sbit__rnn_back *b, int64_t step)
{
    const sbit__rnn *rnn = b->rnn;
    const int64_t time = sbit__rnn_time(b->call, rnn, b->reverse, b->image, step);
    return (rnn->batch_first ? b->image * rnn->steps + time : time * rnn->batch + b->image) *
           rnn->inputs;
}

/* Row `row` of W x + its bias, or (state not NULL) of R state + its bias. */
static double sbit__rnn_back_dot(const sbit__rnn_back *b, int64_t row, int64_t x,
                                 const double *state)
{
    const sbit__rnn *rnn = b->rnn;
    const int64_t all = rnn->gates * rnn->hidden, n = state != NULL ? rnn->hidden : rnn->inputs;
    const int32_t input = state != NULL ? 2 : 1;
    double sum = sbit__rnn_back_in(b, 3, (2 * b->dir + (state != NULL ? 1 : 0)) * all + row);
    for (int64_t i = 0; i < n; i++) {
        sum += sbit__rnn_back_in(b, input, (b->dir * all + row) * n + i) *
               (state != NULL ? state[i] : sbit__rnn_back_in(b, 0, x + i));
    }
    return sum;
}

/* Gate k of unit i: what goes into its function; LSTM's peepholes are in it. */
static void sbit__rnn_back_forward(const sbit__rnn_back *b, int64_t step)
{
    const sbit__rnn *rnn = b->rnn;
    const sbit__rnn_function *act = rnn->act[b->dir];
    const int64_t n = rnn->hidden, x = sbit__rnn_back_x(b, step), p = b->dir * 3 * n;
    const double *h = b->h + step * n, *c = b->c + step * n;
    double *g = b->gates + step * rnn->gates * n, *h1 = b->h + (step + 1) * n;
    double *c1 = b->c + (step + 1) * n;
    const bool gru = rnn->kind == SBIT__RNN_GRU, linear = rnn->linear_before_reset;
    for (int64_t row = 0; row < rnn->gates * n; row++) {
        g[row] = sbit__rnn_back_dot(b, row, x, NULL);
        g[row] += gru && row >= 2 * n ? 0.0 : sbit__rnn_back_dot(b, row, 0, h);
    }
    for (int64_t i = 0; gru && i < n; i++) {
        b->mid[i] = linear ? h[i] : sbit__rnn_activate64(rnn, &act[0], g[n + i]) * h[i];
    }
    for (int64_t i = 0; i < n; i++) {
        if (rnn->kind == SBIT__RNN_PLAIN) {
            h1[i] = sbit__rnn_activate64(rnn, &act[0], g[i]);
        } else if (gru) {
            const double own = sbit__rnn_back_dot(b, 2 * n + i, 0, b->mid);
            const double z = sbit__rnn_activate64(rnn, &act[0], g[i]);
            b->more[step * n + i] = own;
            g[2 * n + i] += linear ? sbit__rnn_activate64(rnn, &act[0], g[n + i]) * own : own;
            h1[i] = (1.0 - z) * sbit__rnn_activate64(rnn, &act[1], g[2 * n + i]) + z * h[i];
        } else {
            g[i] += sbit__rnn_back_in(b, 7, p + i) * c[i];
            g[2 * n + i] += sbit__rnn_back_in(b, 7, p + 2 * n + i) * c[i];
            const double in = sbit__rnn_activate64(rnn, &act[0], g[i]);
            const double keep =
                rnn->input_forget ? 1.0 - in : sbit__rnn_activate64(rnn, &act[0], g[2 * n + i]);
            c1[i] = keep * c[i] + in * sbit__rnn_activate64(rnn, &act[1], g[3 * n + i]);
            g[n + i] += sbit__rnn_back_in(b, 7, p + n + i) * c1[i];
            h1[i] = sbit__rnn_activate64(rnn, &act[0], g[n + i]) *
                    sbit__rnn_activate64(rnn, &act[2], c1[i]);
        }
    }
}

/* dh, dc behind the step become w, r; dc that in front of it; old: dh past the gates. */
static void sbit__rnn_back_lstm(const sbit__rnn_back *b, int64_t step)
{
    const sbit__rnn *rnn = b->rnn;
    const sbit__rnn_function *act = rnn->act[b->dir];
    const int64_t n = rnn->hidden, p = b->dir * 3 * n;
    const double *g = b->gates + step * 4 * n, *c0 = b->c + step * n, *c1 = c0 + n;
    for (int64_t i = 0; i < n; i++) {
        const double in = sbit__rnn_activate64(rnn, &act[0], g[i]);
        const double out = sbit__rnn_activate64(rnn, &act[0], g[n + i]);
        const double value = sbit__rnn_activate64(rnn, &act[1], g[3 * n + i]);
        const double keep =
            rnn->input_forget ? 1.0 - in : sbit__rnn_activate64(rnn, &act[0], g[2 * n + i]);
        const double dout = b->dh[i] * sbit__rnn_activate64(rnn, &act[2], c1[i]) *
                            sbit__rnn_slope(rnn, &act[0], g[n + i]);
        const double dc = b->dc[i] + b->dh[i] * out * sbit__rnn_slope(rnn, &act[2], c1[i]) +
                          dout * sbit__rnn_back_in(b, 7, p + n + i);
        const double dkeep = dc * c0[i];
        const double din =
            (dc * value - (rnn->input_forget ? dkeep : 0.0)) * sbit__rnn_slope(rnn, &act[0], g[i]);
        const double dforget =
            rnn->input_forget ? 0.0 : dkeep * sbit__rnn_slope(rnn, &act[0], g[2 * n + i]);
        b->w[i] = din;
        b->w[n + i] = dout;
        b->w[2 * n + i] = dforget;
        b->w[3 * n + i] = dc * in * sbit__rnn_slope(rnn, &act[1], g[3 * n + i]);
        b->dc[i] = dc * keep + din * sbit__rnn_back_in(b, 7, p + i) +
                   dforget * sbit__rnn_back_in(b, 7, p + 2 * n + i);
        b->old[i] = 0.0;
        sbit__rnn_back_add(b, 7, p + i, din * c0[i]);
        sbit__rnn_back_add(b, 7, p + n + i, dout * c1[i]);
        sbit__rnn_back_add(b, 7, p + 2 * n + i, dforget * c0[i]);
    }
    memcpy(b->r, b->w, (size_t)(4 * n) * sizeof *b->r);
}

static void sbit__rnn_back_gru(const sbit__rnn_back *b, int64_t step)
{
    const sbit__rnn *rnn = b->rnn;
    const sbit__rnn_function *act = rnn->act[b->dir];
    const int64_t n = rnn->hidden, all = 3 * n;
    const double *g = b->gates + step * all, *h = b->h + step * n;
    const bool linear = rnn->linear_before_reset;
    for (int64_t i = 0; i < n; i++) {
        const double z = sbit__rnn_activate64(rnn, &act[0], g[i]);
        const double reset = sbit__rnn_activate64(rnn, &act[0], g[n + i]);
        const double value = sbit__rnn_activate64(rnn, &act[1], g[2 * n + i]);
        const double dn = b->dh[i] * (1.0 - z) * sbit__rnn_slope(rnn, &act[1], g[2 * n + i]);
        b->w[i] = b->dh[i] * (h[i] - value) * sbit__rnn_slope(rnn, &act[0], g[i]);
        b->w[2 * n + i] = dn;
        b->r[2 * n + i] = linear ? dn * reset : dn;
        b->w[n + i] = linear ? dn * b->more[step * n + i] : 0.0;
        b->mid[i] = linear ? h[i] : reset * h[i]; /* what R's hidden rows were multiplied with */
        b->old[i] = b->dh[i] * z;
    }
    for (int64_t i = 0; !linear && i < n; i++) { /* the gradient of reset * h */
        double sum = 0.0;
        for (int64_t k = 0; k < n; k++) {
            sum += b->r[2 * n + k] * sbit__rnn_back_in(b, 2, (b->dir * all + 2 * n + k) * n + i);
        }
        b->w[n + i] = sum * h[i];
        b->old[i] += sum * sbit__rnn_activate64(rnn, &act[0], g[n + i]);
    }
    for (int64_t i = 0; i < n; i++) {
        b->w[n + i] *= sbit__rnn_slope(rnn, &act[0], g[n + i]);
        b->r[i] = b->w[i];
        b->r[n + i] = b->w[n + i];
    }
}

/* What w and r give the weights, biases, x, and the state in front of the step. */
static void sbit__rnn_back_spread(const sbit__rnn_back *b, int64_t step)
{
    const sbit__rnn *rnn = b->rnn;
    const int64_t n = rnn->hidden, all = rnn->gates * n, m = rnn->inputs;
    const int64_t x = sbit__rnn_back_x(b, step);
    const bool gru = rnn->kind == SBIT__RNN_GRU;
    for (int64_t row = 0; row < all; row++) {
        const bool hidden = gru && row >= 2 * n;
        const double *with = hidden ? b->mid : b->h + step * n;
        const bool done = hidden && !rnn->linear_before_reset; /* through reset * h already */
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = (b->dir * all + row) * m + i;
            sbit__rnn_back_add(b, 1, at, b->w[row] * sbit__rnn_back_in(b, 0, x + i));
            sbit__rnn_back_add(b, 0, x + i, b->w[row] * sbit__rnn_back_in(b, 1, at));
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = (b->dir * all + row) * n + i;
            sbit__rnn_back_add(b, 2, at, b->r[row] * with[i]);
            b->old[i] += done ? 0.0 : b->r[row] * sbit__rnn_back_in(b, 2, at);
        }
        sbit__rnn_back_add(b, 3, 2 * b->dir * all + row, b->w[row]);
        sbit__rnn_back_add(b, 3, (2 * b->dir + 1) * all + row, b->r[row]);
    }
    memcpy(b->dh, b->old, (size_t)n * sizeof *b->dh);
}

static void sbit__rnn_back_image(const sbit__rnn_back *b)
{
    const sbit__rnn *rnn = b->rnn;
    const int64_t n = rnn->hidden, state = sbit__rnn_state_row(rnn, b->dir, b->image) * n;
    for (int64_t i = 0; i < n; i++) {
        b->h[i] = sbit__rnn_back_in(b, 5, state + i);
        b->c[i] = sbit__rnn_back_in(b, 6, state + i);
        b->dh[i] = sbit__rnn_back_in(b, SBIT__RNN_IN_DY + 1, state + i);
        b->dc[i] = sbit__rnn_back_in(b, SBIT__RNN_IN_DY + 2, state + i);
    }
    for (int64_t step = 0; step < b->times; step++) {
        sbit__rnn_back_forward(b, step);
    }
    for (int64_t step = b->times - 1; step >= 0; step--) {
        const int64_t time = sbit__rnn_time(b->call, rnn, b->reverse, b->image, step);
        const int64_t y = rnn->batch_first ? (b->image * rnn->steps + time) * rnn->dirs + b->dir
                                           : (time * rnn->dirs + b->dir) * rnn->batch + b->image;
        for (int64_t i = 0; i < n; i++) {
            b->dh[i] += sbit__rnn_back_in(b, SBIT__RNN_IN_DY, y * n + i);
        }
        if (rnn->kind == SBIT__RNN_LSTM) {
            sbit__rnn_back_lstm(b, step);
        } else if (rnn->kind == SBIT__RNN_GRU) {
            sbit__rnn_back_gru(b, step);
        }
        for (int64_t i = 0; rnn->kind == SBIT__RNN_PLAIN && i < n; i++) {
            b->w[i] = b->r[i] =
                b->dh[i] * sbit__rnn_slope(rnn, rnn->act[b->dir], b->gates[step * n + i]);
            b->old[i] = 0.0;
        }
        sbit__rnn_back_spread(b, step);
    }
    for (int64_t i = 0; i < n; i++) {
        sbit__rnn_back_add(b, 5, state + i, b->dh[i]);
        sbit__rnn_back_add(b, 6, state + i, b->dc[i]);
    }
}

static sbit_status sbit__rnn_back_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 11, error));
    for (int32_t i = 0; i < 8; i++) {
        if (i != 4 && sbit__op_has(call, i)) {
            sbit__op_same_type(call, i, i);
        }
    }
    return SBIT_OK;
}

/* Memory for one image and for the sums of all outputs; scratch NULL: only the bytes. */
static size_t sbit__rnn_back_place(const sbit_op_call *call, const sbit__rnn *rnn, char *scratch,
                                   sbit__rnn_back *b)
{
    const int64_t n = rnn->hidden, all = rnn->gates * n;
    const int64_t counts[10] = {rnn->steps * all,
                                rnn->steps * n,
                                (rnn->steps + 1) * n,
                                (rnn->steps + 1) * n,
                                all,
                                all,
                                n,
                                n,
                                n,
                                n};
    double **const places[10] = {&b->gates, &b->more, &b->h,  &b->c,   &b->w,
                                 &b->r,     &b->dh,   &b->dc, &b->old, &b->mid};
    size_t used = 0;
    for (int32_t i = 0; i < 10; i++) {
        *places[i] = scratch != NULL ? (double *)(void *)(scratch + used) : NULL;
        used += sbit__align64((size_t)counts[i] * sizeof(double));
    }
    for (int32_t i = 0; i < 8; i++) {
        const bool wanted = i < call->output_count && call->out_type[i] != NULL && i != 4 &&
                            call->in_type[i] != NULL;
        const int64_t count =
            wanted ? sbit__type_count(call->in_type[i], 0, call->in_type[i]->rank) : 0;
        b->sums[i] = wanted && scratch != NULL ? (double *)(void *)(scratch + used) : NULL;
        used += sbit__align64((size_t)count * sizeof(double));
    }
    return used;
}

static sbit_status sbit__rnn_back_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__rnn rnn;
    sbit__rnn_back b;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    for (int32_t i = 0; i < 8; i++) {
        if (call->in_type[i] != NULL && !sbit__type_static(call->in_type[i])) {
            return SBIT_OK;
        }
    }
    SBIT__TRY(sbit__rnn_of(call, &rnn, error));
    SBIT__TRY(sbit__op_keep(call, &rnn, sizeof rnn, error));
    *call->scratch_bytes = sbit__rnn_back_place(call, &rnn, NULL, &b);
    return SBIT_OK;
}

static sbit_status sbit__rnn_back_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__rnn rnn;
    sbit__rnn_back b;
    memset(&b, 0, sizeof b);
    SBIT__TRY(sbit__op_kept(call, &rnn, sizeof rnn, error));
    b.call = call;
    b.rnn = &rnn;
    b.wide = call->in[0]->dtype == SBIT_F64;
    const size_t bytes = sbit__rnn_back_place(call, &rnn, (char *)call->scratch, &b);
    memset(call->scratch, 0, bytes);
    for (b.dir = 0; b.dir < rnn.dirs; b.dir++) {
        b.reverse = b.dir == 1 || rnn.reverse_only;
        for (b.image = 0; b.image < rnn.batch; b.image++) {
            b.times = sbit__rnn_length(call, &rnn, b.image);
            sbit__rnn_back_image(&b);
        }
    }
    for (int32_t i = 0; i < 8; i++) {
        const int64_t count = b.sums[i] != NULL ? sbit_tensor_count(call->out[i]) : 0;
        for (int64_t k = 0; k < count; k++) {
            sbit__real_set(b.wide, call->out[i]->data, k, b.sums[i][k]);
        }
    }
    return SBIT_OK;
}

static int64_t sbit__rnn_macs(const sbit_op_call *call)
{
    const sbit_type *x = call->in_type[0];
    int64_t per_row = 0, rows = 1;
    if (!sbit__add_i64(sbit__type_size(call->in_type[1]), sbit__type_size(call->in_type[2]),
                       &per_row)) {
        return INT64_MAX;
    }
    for (int32_t i = 0; i < 2 && i < x->rank; i++) {
        rows = sbit__saturating_mul(rows, sbit__dim_known(x->dims[i]) ? x->dims[i].value : 1);
    }
    return sbit__saturating_mul(rows, per_row);
}

/* ---- channels */

/* The units of one input or output: index g * units + u of the axis is unit u, in every gate. */
static sbit_status sbit__rnn_label_axis(const sbit_channel_call *call, int32_t input, int32_t axis,
                                        sbit_channel_role role, const int32_t *units, int64_t count,
                                        sbit_error *error)
{
    const int32_t *labels = NULL;
    if (!sbit__op_has(call->op, input)) {
        return SBIT_OK;
    }
    SBIT__TRY(call->labels(call, input, axis, 1, role, &labels, error));
    for (int64_t i = 0; i < call->op->in_type[input]->dims[axis].value; i++) {
        call->join(call, labels[i], units[i % count]);
    }
    return SBIT_OK;
}

/* A hidden unit is a row in every gate of W, R and B, a column of R, an entry of the states, and of
 * both directions. */
static sbit_status sbit__rnn_label(const sbit_channel_call *call, sbit_error *error)
{
    const int64_t units = call->op->in_type[2]->dims[2].value;
    const int32_t *x = NULL, *columns = NULL, *r = NULL;
    if (!call->is_constant(call, 1) || !call->is_constant(call, 2) ||
        (sbit__op_has(call->op, 3) && !call->is_constant(call, 3)) ||
        sbit_node_int(call->op->node, "layout", 0) != 0) {
        return call->stop(call, "has weights that are computed, or layout 1", error);
    }
    SBIT__TRY(call->labels(call, 0, 2, 1, SBIT_ROLE_PARAM, &x, error));
    SBIT__TRY(call->labels(call, 1, 2, 1, SBIT_ROLE_COLUMNS, &columns, error));
    for (int64_t i = 0; i < call->op->in_type[1]->dims[2].value; i++) {
        call->join(call, x[i], columns[i]);
    }
    SBIT__TRY(call->labels(call, 2, 2, 1, SBIT_ROLE_ROWS, &r, error));
    SBIT__TRY(sbit__rnn_label_axis(call, 1, 1, SBIT_ROLE_ROWS, r, units, error));
    SBIT__TRY(sbit__rnn_label_axis(call, 2, 1, SBIT_ROLE_ROWS, r, units, error));
    SBIT__TRY(sbit__rnn_label_axis(call, 3, 1, SBIT_ROLE_BIAS, r, units, error));
    SBIT__TRY(sbit__rnn_label_axis(call, 5, 2, SBIT_ROLE_BIAS, r, units, error));
    SBIT__TRY(sbit__rnn_label_axis(call, 6, 2, SBIT_ROLE_BIAS, r, units, error));
    SBIT__TRY(sbit__rnn_label_axis(call, 7, 1, SBIT_ROLE_PARAM, r, units, error));
    SBIT__TRY(call->produce(call, 0, 3, r, error));
    SBIT__TRY(call->produce(call, 1, 2, r, error));
    return call->produce(call, 2, 2, r, error);
}

/* ---- rows */

static const sbit_op_channel sbit__rnn_channel = {SBIT_CHANNEL_OWN, 1, 0, 0, 0, sbit__rnn_label};
static const sbit_op_quant sbit__rnn_quant = {SBIT_QUANT_RECURRENT, 0, 1, 2, -1, 1, 2, NULL, 0, 0};

#define SBIT__RNN_ROW(name, version, types, gradient)                                              \
    {                                                                                              \
        "", name, version, types, SBIT_OP_OMITS, sbit__rnn_pack, sbit__rnn_infer, sbit__rnn_prepare,           \
            sbit__rnn_op_run, gradient, NULL, &sbit__rnn_quant, &sbit__rnn_channel, sbit__rnn_macs \
    }

static const sbit_op_row sbit__rnn_rows[] = {
    {"sbit", "LSTM", 1, SBIT_T(SBIT_F32), SBIT_OP_OMITS, sbit__rnn_pack, sbit__rnn_infer, sbit__rnn_prepare,
     sbit__rnn_op_run, NULL, NULL, NULL, NULL, sbit__rnn_macs},
    SBIT__RNN_ROW("LSTM", 1, SBIT__T_FLOATS1, sbit__grad_lstm),
    SBIT__RNN_ROW("LSTM", 7, SBIT__T_FLOATS1, sbit__grad_lstm),
    SBIT__RNN_ROW("LSTM", 14, SBIT__T_FLOATS1, sbit__grad_lstm),
    SBIT__RNN_ROW("LSTM", 22, SBIT_T_FLOATS, sbit__grad_lstm),
    SBIT__RNN_ROW("GRU", 1, SBIT__T_FLOATS1, sbit__grad_lstm),
    SBIT__RNN_ROW("GRU", 3, SBIT__T_FLOATS1, sbit__grad_lstm),
    SBIT__RNN_ROW("GRU", 7, SBIT__T_FLOATS1, sbit__grad_lstm),
    SBIT__RNN_ROW("GRU", 14, SBIT__T_FLOATS1, sbit__grad_lstm),
    SBIT__RNN_ROW("GRU", 22, SBIT_T_FLOATS, sbit__grad_lstm),
    SBIT__RNN_ROW("RNN", 1, SBIT__T_FLOATS1, sbit__grad_rnn),
    SBIT__RNN_ROW("RNN", 7, SBIT__T_FLOATS1, sbit__grad_rnn),
    SBIT__RNN_ROW("RNN", 14, SBIT__T_FLOATS1, sbit__grad_rnn),
    SBIT__RNN_ROW("RNN", 22, SBIT_T_FLOATS, sbit__grad_rnn),
    {SBIT__GRAD_DOMAIN, "RecurrentGrad", 1, SBIT__T_GRAD, 0, 0, sbit__rnn_back_infer,
     sbit__rnn_back_prepare, sbit__rnn_back_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__RNN_MAX_FUNCTIONS
#undef SBIT__RNN_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_recurrent(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__rnn_rows);
    return sbit__rnn_rows;
}

#endif /* SPARSEBIT_NO_OPS_RNN */
