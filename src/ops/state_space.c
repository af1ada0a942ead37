/* state_space.c: LinearAttention, CausalConvWithState, SwiGLU. >>state_space
 *
 * Called by: infer, exec. Calls: ops/common.c, threads.
 * LinearAttention-27 keeps a matrix S [d_k, d_v] for each sample and key head and goes through the
 * tokens: S = exp(g) S; then S += k (x) v, or with an update rate S += b k (x) (v - S' k); each
 * query head gives scale q' S. LinearAttentionGrad goes back through the states, which it makes
 * again, in float64. CausalConvWithState-27 is a depthwise convolution over the past k-1
 * positions and the present one. Sums in float32, in order; a sample's head or channel is one piece
 * of work, so that threads change nothing.
 */
#include "elements_private.h"
#include "expand_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* exp, expf, sqrt */

#if !SPARSEBIT_NO_OPS_ATTENTION

#define SBIT__STATE_TYPES (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16))

static sbit_status sbit__state_bad(const sbit_op_call *call, const char *what, sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%s", what);
}

/* >>linear attention */

typedef struct sbit__linear_attention {
    int64_t batch, length, q_heads, kv_heads, size, v_size;
    int64_t decay_size; /* numbers of a head and token: 1 or size; 0: no decay */
    int64_t rate_heads; /* 1 or kv_heads; 0: no rate */
    float scale;
    const float *q, *k, *v, *past, *decay, *rate;
    float *y, *state;
} sbit__linear_attention;

static sbit_status sbit__linear_heads(const sbit_op_call *call, int64_t *q_heads, int64_t *kv_heads,
                                      bool *decays, bool *rates, sbit_error *error)
{
    static const char *const rules[] = {"gated_delta", "gated", "delta", "linear"};
    int32_t rule = 0;
    SBIT__TRY(sbit__op_word(call, "update_rule", rules, 4, &rule, error));
    *q_heads = sbit_node_int(call->node, "q_num_heads", 0);
    *kv_heads = sbit_node_int(call->node, "kv_num_heads", 0);
    *decays = rule == 0 || rule == 1;
    *rates = rule == 0 || rule == 2;
    if (*kv_heads < 1 || *q_heads < 1 || *q_heads % *kv_heads != 0) {
        return sbit__state_bad(call, "q_num_heads is a multiple of kv_num_heads", error);
    }
    if ((*decays && !sbit__op_has(call, 4)) || (*rates && !sbit__op_has(call, 5))) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "update_rule='%s' needs input %s",
                            rules[rule], *decays && !sbit__op_has(call, 4) ? "decay" : "beta");
    }
    return SBIT_OK;
}

static sbit_status sbit__linear_infer(const sbit_op_call *call, sbit_error *error)
{
    int64_t q_heads = 0, kv_heads = 0;
    bool decays = false, rates = false;
    SBIT__TRY(sbit__op_inputs(call, 3, 6, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x3f, SBIT__STATE_TYPES, error));
    SBIT__TRY(sbit__linear_heads(call, &q_heads, &kv_heads, &decays, &rates, error));
    const sbit_type *q = call->in_type[0], *v = call->in_type[2];
    for (int32_t i = 0; i < 3; i++) {
        const int32_t rank = call->in_type[i]->rank;
        const sbit_dim last = rank == 3 ? call->in_type[i]->dims[2] : sbit__dim_any();
        if ((rank >= 0 && rank != 3) ||
            (sbit__dim_known(last) && last.value % (i == 0 ? q_heads : kv_heads) != 0)) {
            return sbit__state_bad(call, "query, key and value are [B, T, heads * size]", error);
        }
    }
    sbit_type *out = sbit__op_out(call, 0, q->dtype, 3);
    const sbit_type *past = sbit__in_type(call, 3);
    sbit_type *state = sbit__op_out(call, 1, past != NULL ? past->dtype : q->dtype, 4);
    const bool known = v->rank == 3 && sbit__dim_known(v->dims[2]);
    const sbit_dim v_size = known ? sbit__dim(v->dims[2].value / kv_heads) : sbit__dim_any();
    if (out != NULL && q->rank == 3) {
        out->dims[0] = q->dims[0];
        out->dims[1] = q->dims[1];
        out->dims[2] = sbit__dim_mul(v_size, sbit__dim(q_heads));
    }
    if (state != NULL && q->rank == 3) {
        state->dims[0] = q->dims[0];
        state->dims[1] = sbit__dim(kv_heads);
        state->dims[2] =
            sbit__dim_known(q->dims[2]) ? sbit__dim(q->dims[2].value / q_heads) : sbit__dim_any();
        state->dims[3] = v_size;
    }
    return SBIT_OK;
}

static sbit_status sbit__linear_of(const sbit_op_call *call, sbit__linear_attention *l,
                                   sbit_error *error)
{
    bool decays = false, rates = false;
    memset(l, 0, sizeof *l);
    SBIT__TRY(sbit__linear_heads(call, &l->q_heads, &l->kv_heads, &decays, &rates, error));
    const sbit_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
    const sbit_tensor *past = sbit__in(call, 3);
    const sbit_tensor *decay = decays ? call->in[4] : NULL, *rate = rates ? call->in[5] : NULL;
    l->batch = q->dims[0];
    l->length = q->dims[1];
    l->size = q->dims[2] / l->q_heads;
    l->v_size = v->dims[2] / l->kv_heads;
    const int64_t tokens = l->batch * l->length, states = l->size * l->v_size;
    l->scale = sbit_node_float(call->node, "scale", 0.0f);
    if (l->scale == 0.0f && l->size > 0) {
        l->scale = (float)(1.0 / sqrt((double)l->size));
    }
    if (sbit_tensor_count(k) != tokens * l->kv_heads * l->size ||
        sbit_tensor_count(v) != tokens * l->kv_heads * l->v_size ||
        (past != NULL && sbit_tensor_count(past) != l->batch * l->kv_heads * states)) {
        return sbit__state_bad(call, "query, key, value and past_state do not fit", error);
    }
    if (decay != NULL) {
        l->decay_size = sbit_tensor_count(decay) == tokens * l->kv_heads ? 1 : l->size;
        if (sbit_tensor_count(decay) != tokens * l->kv_heads * l->decay_size) {
            return sbit__state_bad(call, "decay is [B, T, heads] or [B, T, heads * d_k]", error);
        }
        l->decay = (const float *)decay->data;
    }
    if (rate != NULL) {
        l->rate_heads = sbit_tensor_count(rate) == tokens ? 1 : l->kv_heads;
        if (sbit_tensor_count(rate) != tokens * l->rate_heads) {
            return sbit__state_bad(call, "beta is [B, T, heads] or [B, T, 1]", error);
        }
        l->rate = (const float *)rate->data;
    }
    l->q = (const float *)q->data;
    l->k = (const float *)k->data;
    l->v = (const float *)v->data;
    l->past = past != NULL ? (const float *)past->data : NULL;
    return SBIT_OK;
}

/* One token of one key head: the state, then its queries. `seen` [v_size] is scratch. */
static void sbit__linear_token(const sbit__linear_attention *l, int64_t token, int64_t head,
                               float *state, float *seen)
{
    const int64_t share = l->q_heads / l->kv_heads, dv = l->v_size;
    const float *k = l->k + (token * l->kv_heads + head) * l->size;
    const float *v = l->v + (token * l->kv_heads + head) * dv;
    const float *decay =
        l->decay != NULL ? l->decay + (token * l->kv_heads + head) * l->decay_size : NULL;
    memset(seen, 0, (size_t)dv * sizeof seen[0]);
    for (int64_t i = 0; i < l->size; i++) {
        const float keep = decay != NULL ? expf(decay[l->decay_size > 1 ? i : 0]) : 1.0f;
        for (int64_t j = 0; j < dv; j++) {
            state[i * dv + j] *= keep;
            seen[j] += l->rate != NULL ? state[i * dv + j] * k[i] : 0.0f;
        }
    }
    const float rate =
        l->rate != NULL ? l->rate[token * l->rate_heads + (l->rate_heads > 1 ? head : 0)] : 1.0f;
    for (int64_t i = 0; i < l->size; i++) {
        for (int64_t j = 0; j < dv; j++) {
            state[i * dv + j] += k[i] * (rate * (v[j] - seen[j]));
        }
    }
    for (int64_t h = head * share; h < (head + 1) * share; h++) {
        const float *q = l->q + (token * l->q_heads + h) * l->size;
        float *y = l->y + (token * l->q_heads + h) * dv;
        memset(y, 0, (size_t)dv * sizeof y[0]);
        for (int64_t i = 0; i < l->size; i++) {
            for (int64_t j = 0; j < dv; j++) {
                y[j] += q[i] * state[i * dv + j];
            }
        }
        for (int64_t j = 0; j < dv; j++) {
            y[j] *= l->scale;
        }
    }
}

typedef struct sbit__linear_task {
    const sbit__linear_attention *l;
    float *seen; /* [batch * kv_heads][v_size] */
} sbit__linear_task;

static void sbit__linear_head(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__linear_task *task = (const sbit__linear_task *)user;
    const sbit__linear_attention *l = task->l;
    const int64_t states = l->size * l->v_size;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *state = l->state + i * states;
        if (l->past != NULL) {
            memcpy(state, l->past + i * states, (size_t)states * sizeof state[0]);
        } else {
            memset(state, 0, (size_t)states * sizeof state[0]);
        }
        for (int64_t t = 0; t < l->length; t++) {
            sbit__linear_token(l, i / l->kv_heads * l->length + t, i % l->kv_heads, state,
                               task->seen + i * l->v_size);
        }
    }
}

/* Scratch: what was seen, and the states if nobody wants them. */
static size_t sbit__linear_seen_bytes(int64_t batch, int64_t heads, int64_t v_size)
{
    return sbit__align64((size_t)(batch * heads * v_size) * sizeof(float));
}

static sbit_status sbit__linear_prepare(const sbit_op_call *call, sbit_error *error)
{
    int64_t bytes = 0;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    const sbit_type *q = call->in_type[0], *v = call->in_type[2];
    if (!sbit__type_static(q) || !sbit__type_static(v)) {
        return SBIT_OK;
    }
    const int64_t heads = sbit_node_int(call->node, "kv_num_heads", 1);
    const int64_t size = q->dims[2].value / sbit_node_int(call->node, "q_num_heads", 1);
    const int64_t v_size = v->dims[2].value / heads;
    if (!sbit__mul_i64(q->dims[0].value, heads, &bytes) || !sbit__mul_i64(bytes, v_size, &bytes) ||
        !sbit__mul_i64(bytes, (size + 1) * (int64_t)sizeof(float), &bytes)) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
    }
    *call->scratch_bytes = sbit__op_in_float_scratch(call) +
                           sbit__linear_seen_bytes(q->dims[0].value, heads, v_size) +
                           sbit__align64((size_t)bytes);
    return SBIT_OK;
}

static sbit_status sbit__linear_run32(const sbit_op_call *call, sbit_error *error)
{
    sbit__linear_attention l;
    sbit__linear_task task;
    SBIT__TRY(sbit__linear_of(call, &l, error));
    l.y = (float *)call->out[0]->data;
    task.l = &l;
    task.seen = (float *)call->scratch;
    l.state = sbit__out(call, 1) != NULL
                  ? (float *)call->out[1]->data
                  : (float *)(void *)((char *)call->scratch +
                                      sbit__linear_seen_bytes(l.batch, l.kv_heads, l.v_size));
    sbit__parallel_range(call->ctx, l.batch * l.kv_heads, 1, sbit__linear_head, &task);
    return SBIT_OK;
}

static sbit_status sbit__linear_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__linear_run32, sbit__linear_run32, error);
}

/* >>linear attention: gradient. Of one token, with e = exp(g), A = e S_before, r = A' k (delta
 * rules), u = b (v - r), S = A + k (x) u and D the gradient of S:
 *     D += scale q (x) dy, dq = scale S dy;  dk = D u, du = D' k;  db = du (v - r), dv = b du;
 *     dk -= A dv, D -= k (x) dv (delta rules);  dg = sum D A over what g counts for;  D = e D */

typedef struct sbit__linear_back {
    sbit__linear_attention l;
    bool wide;             /* the tensors are double, else float */
    const void *in[8];     /* as the node's inputs; NULL: none */
    void *out[6];
    double *rates;         /* [batch * kv_heads][length]: gradients of the rate */
    double *states;        /* for each worker: see _back_size */
    int64_t worker_size;
} sbit__linear_back;

static double sbit__linear_in(const sbit__linear_back *b, int32_t input, int64_t at)
{
    return sbit__real_at(b->wide, b->in[input], at);
}

static void sbit__linear_put(const sbit__linear_back *b, int32_t output, int64_t at, double value)
{
    if (b->out[output] != NULL) {
        sbit__real_set(b->wide, b->out[output], at, value);
    }
}

/* Place of a token's head among numbers of `size` a head. */
static int64_t sbit__linear_at(const sbit__linear_back *b, int64_t token, int64_t head, int64_t size)
{
    return (token * b->l.kv_heads + head) * size;
}

static double sbit__linear_keep(const sbit__linear_back *b, int64_t token, int64_t head, int64_t i)
{
    const int64_t size = b->l.decay_size;
    return size == 0 ? 1.0
                     : exp(sbit__linear_in(b, 4, sbit__linear_at(b, token, head, size) +
                                                     (size > 1 ? i : 0)));
}

static int64_t sbit__linear_rate_at(const sbit__linear_back *b, int64_t token, int64_t head)
{
    return token * b->l.rate_heads + (b->l.rate_heads > 1 ? head : 0);
}

/* `state` becomes A; r [d_v] */
static void sbit__linear_decayed(const sbit__linear_back *b, int64_t token, int64_t head,
                                 double *state, double *r)
{
    const int64_t dv = b->l.v_size;
    memset(r, 0, (size_t)dv * sizeof *r);
    for (int64_t i = 0; i < b->l.size; i++) {
        const double keep = sbit__linear_keep(b, token, head, i);
        const double k = sbit__linear_in(b, 1, sbit__linear_at(b, token, head, b->l.size) + i);
        for (int64_t j = 0; j < dv; j++) {
            state[i * dv + j] *= keep;
            r[j] += b->l.rate_heads > 0 ? state[i * dv + j] * k : 0.0;
        }
    }
}

/* The query heads of a token: D += scale q (x) dy, dq = scale S dy. */
static void sbit__linear_back_queries(const sbit__linear_back *b, int64_t token, int64_t head,
                                      const double *state, double *d)
{
    const sbit__linear_attention *l = &b->l;
    const int64_t share = l->q_heads / l->kv_heads, dv = l->v_size;
    for (int64_t h = head * share; b->in[6] != NULL && h < (head + 1) * share; h++) {
        const int64_t q = (token * l->q_heads + h) * l->size, y = (token * l->q_heads + h) * dv;
        for (int64_t i = 0; i < l->size; i++) {
            const double own = (double)l->scale * sbit__linear_in(b, 0, q + i);
            double sum = 0.0;
            for (int64_t j = 0; j < dv; j++) {
                const double dy = sbit__linear_in(b, 6, y + j);
                d[i * dv + j] += own * dy;
                sum += state[i * dv + j] * dy;
            }
            sbit__linear_put(b, 0, q + i, (double)l->scale * sum);
        }
    }
}

/* state: S before the token, which becomes A; D goes from behind the token to before it. */
static void sbit__linear_back_token(const sbit__linear_back *b, int64_t token, int64_t head,
                                    double *state, double *d, double *r, double *du, double *rate)
{
    const sbit__linear_attention *l = &b->l;
    const int64_t dv = l->v_size, size = l->size, k = sbit__linear_at(b, token, head, size);
    const int64_t v = sbit__linear_at(b, token, head, dv);
    const int64_t g = sbit__linear_at(b, token, head, l->decay_size);
    const bool delta = l->rate_heads > 0;
    const double own = delta ? sbit__linear_in(b, 5, sbit__linear_rate_at(b, token, head)) : 1.0;
    double slope = 0.0;
    sbit__linear_decayed(b, token, head, state, r);
    memset(du, 0, (size_t)dv * sizeof *du);
    for (int64_t i = 0; i < size; i++) {
        for (int64_t j = 0; j < dv; j++) {
            du[j] += d[i * dv + j] * sbit__linear_in(b, 1, k + i);
        }
    }
    *rate = 0.0;
    for (int64_t j = 0; j < dv; j++) {
        r[j] = sbit__linear_in(b, 2, v + j) - r[j];
        *rate += du[j] * r[j];
        sbit__linear_put(b, 2, v + j, own * du[j]);
    }
    for (int64_t i = 0; i < size; i++) {
        const double at = sbit__linear_in(b, 1, k + i), keep = sbit__linear_keep(b, token, head, i);
        double dk = 0.0;
        for (int64_t j = 0; j < dv; j++) {
            double *one = &d[i * dv + j];
            dk += *one * own * r[j] - (delta ? state[i * dv + j] * own * du[j] : 0.0);
            *one -= delta ? at * own * du[j] : 0.0;
            slope += *one * state[i * dv + j];
            *one *= keep;
        }
        sbit__linear_put(b, 1, k + i, dk);
        if (l->decay_size > 1) {
            sbit__linear_put(b, 4, g + i, slope);
            slope = 0.0;
        }
    }
    if (l->decay_size == 1) {
        sbit__linear_put(b, 4, g, slope);
    }
}

/* Tokens of a block: states in front of each block are kept, and those inside of the one at hand. */
static int64_t sbit__linear_back_block(int64_t length)
{
    int64_t block = 1;
    while (block * block < length) {
        block++;
    }
    return block;
}

/* `state` from before the token to behind it; r [d_v] */
static void sbit__linear_back_step(const sbit__linear_back *b, int64_t token, int64_t head,
                                   double *state, double *r)
{
    const int64_t dv = b->l.v_size, k = sbit__linear_at(b, token, head, b->l.size);
    const int64_t v = sbit__linear_at(b, token, head, dv);
    const double own =
        b->l.rate_heads > 0 ? sbit__linear_in(b, 5, sbit__linear_rate_at(b, token, head)) : 1.0;
    sbit__linear_decayed(b, token, head, state, r);
    for (int64_t i = 0; i < b->l.size * dv; i++) {
        state[i] +=
            sbit__linear_in(b, 1, k + i / dv) * own * (sbit__linear_in(b, 2, v + i % dv) - r[i % dv]);
    }
}

static void sbit__linear_back_head(void *user, int64_t index, int32_t worker)
{
    const sbit__linear_back *b = (const sbit__linear_back *)user;
    const sbit__linear_attention *l = &b->l;
    const int64_t dv = l->v_size, n = l->size * dv, head = index % l->kv_heads;
    const int64_t first = index / l->kv_heads * l->length, block = sbit__linear_back_block(l->length);
    const size_t bytes = (size_t)n * sizeof(double);
    double *kept = b->states + worker * b->worker_size, *states = kept + (block + 1) * n;
    double *d = states + (block + 1) * n, *r = d + n, *du = r + dv;
    for (int64_t i = 0; i < n; i++) {
        states[i] = b->in[3] != NULL ? sbit__linear_in(b, 3, index * n + i) : 0.0;
        d[i] = b->in[7] != NULL ? sbit__linear_in(b, 7, index * n + i) : 0.0;
    }
    for (int64_t t = 0; t < l->length; t++) {
        if (t % block == 0) {
            memcpy(kept + t / block * n, states, bytes);
        }
        sbit__linear_back_step(b, first + t, head, states, r);
    }
    for (int64_t end = l->length, begin = 0; end > 0; end = begin) {
        begin = (end - 1) / block * block;
        memcpy(states, kept + begin / block * n, bytes);
        for (int64_t t = begin; t < end; t++) {
            double *state = states + (t - begin + 1) * n;
            memcpy(state, state - n, bytes);
            sbit__linear_back_step(b, first + t, head, state, r);
        }
        for (int64_t t = end; t-- > begin;) {
            double *state = states + (t - begin) * n;
            sbit__linear_back_queries(b, first + t, head, state + n, d);
            memcpy(state + n, state, bytes);
            sbit__linear_back_token(b, first + t, head, state + n, d, r, du,
                                    &b->rates[index * l->length + t]);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        sbit__linear_put(b, 3, index * n + i, d[i]);
    }
}

static sbit_status sbit__linear_back_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 8, error));
    for (int32_t i = 0; i < 6; i++) {
        if (sbit__op_has(call, i)) {
            sbit__op_same_type(call, i, i);
        }
    }
    return SBIT_OK;
}

/* Doubles of a worker: states of two block lengths, D, r and du. */
static int64_t sbit__linear_back_size(int64_t length, int64_t size, int64_t v_size)
{
    return (2 * sbit__linear_back_block(length) + 3) * size * v_size + 2 * v_size;
}

static sbit_status sbit__linear_back_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *q = call->in_type[0], *v = call->in_type[2];
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(q) || !sbit__type_static(v)) {
        return SBIT_OK;
    }
    const int64_t heads = sbit_node_int(call->node, "kv_num_heads", 1);
    const int64_t size = q->dims[2].value / sbit_node_int(call->node, "q_num_heads", 1);
    const int64_t own = sbit__linear_back_size(q->dims[1].value, size, v->dims[2].value / heads);
    *call->scratch_bytes = sbit__align64((size_t)(q->dims[0].value * heads * q->dims[1].value +
                                                  own * sbit_ctx_threads(call->ctx)) *
                                         sizeof(double));
    return SBIT_OK;
}

static sbit_status sbit__linear_back_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__linear_back b;
    memset(&b, 0, sizeof b);
    SBIT__TRY(sbit__linear_of(call, &b.l, error));
    const int64_t heads = b.l.batch * b.l.kv_heads, tokens = b.l.batch * b.l.length;
    b.wide = call->in[0]->dtype == SBIT_F64;
    for (int32_t i = 0; i < 8; i++) {
        b.in[i] = sbit__in(call, i) != NULL ? call->in[i]->data : NULL;
    }
    for (int32_t i = 0; i < 6; i++) {
        b.out[i] = sbit__out(call, i) != NULL ? call->out[i]->data : NULL;
        if (b.out[i] != NULL) { /* what the update rule does not read has no part in it */
            memset(b.out[i], 0, sbit_tensor_bytes(call->out[i]));
        }
    }
    b.rates = (double *)call->scratch;
    b.states = b.rates + heads * b.l.length;
    b.worker_size = sbit__linear_back_size(b.l.length, b.l.size, b.l.v_size);
    sbit_ctx_parallel(call->ctx, heads, sbit__linear_back_head, &b);
    for (int64_t i = 0; b.l.rate_heads > 0 && i < tokens * b.l.rate_heads; i++) {
        const int64_t token = i / b.l.rate_heads, n = token / b.l.length;
        double sum = 0.0;
        for (int64_t h = 0; h < b.l.kv_heads; h++) { /* one rate for all heads: their sum */
            sum += b.l.rate_heads == 1 || h == i % b.l.rate_heads
                       ? b.rates[(n * b.l.kv_heads + h) * b.l.length + token % b.l.length]
                       : 0.0;
        }
        sbit__linear_put(&b, 5, i, sum);
    }
    return SBIT_OK;
}

/* >>causal convolution */

static sbit_status sbit__causal_infer(const sbit_op_call *call, sbit_error *error)
{
    static const char *const activations[] = {"none", "silu", "swish"};
    int32_t activation = 0;
    SBIT__TRY(sbit__op_inputs(call, 2, 4, error));
    SBIT__TRY(sbit__op_word(call, "activation", activations, 3, &activation, error));
    SBIT__TRY(sbit__op_dtypes(call, 0xe, 0, error));
    const sbit_type *x = call->in_type[0], *w = call->in_type[1];
    if ((x->rank >= 0 && x->rank != 3) || (w->rank >= 0 && w->rank != 3)) {
        return sbit__state_bad(call, "input and weight have rank 3", error);
    }
    sbit__op_same_type(call, 0, 0);
    sbit_type *state = sbit__op_out(call, 1, x->dtype, 3);
    if (state != NULL && x->rank == 3) {
        state->dims[0] = x->dims[0];
        state->dims[1] = x->dims[1];
        state->dims[2] = w->rank == 3 ? sbit__dim_sub(w->dims[2], sbit__dim(1)) : sbit__dim_any();
    }
    return SBIT_OK;
}

typedef struct sbit__causal {
    int64_t channels, length, taps;
    bool silu;
    const float *x, *weight, *bias, *past;
    float *y, *state;
} sbit__causal;

/* Position i of a row whose first taps - 1 values are the past ones. */
static float sbit__causal_value(const sbit__causal *c, int64_t row, int64_t i)
{
    if (i >= c->taps - 1) {
        return c->x[row * c->length + i - (c->taps - 1)];
    }
    return c->past != NULL ? c->past[row * (c->taps - 1) + i] : 0.0f;
}

static void sbit__causal_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__causal *c = (const sbit__causal *)user;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *w = c->weight + row % c->channels * c->taps;
        for (int64_t i = 0; i < c->length; i++) {
            float sum = c->bias != NULL ? c->bias[row % c->channels] : 0.0f;
            for (int64_t k = 0; k < c->taps; k++) {
                sum += w[k] * sbit__causal_value(c, row, i + k);
            }
            c->y[row * c->length + i] = c->silu ? sum / (1.0f + expf(-sum)) : sum;
        }
        for (int64_t i = 0; c->state != NULL && i < c->taps - 1; i++) {
            c->state[row * (c->taps - 1) + i] = sbit__causal_value(c, row, c->length + i);
        }
    }
}

static sbit_status sbit__causal_run32(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *w = call->in[1];
    const sbit_tensor *bias = sbit__in(call, 2), *past = sbit__in(call, 3);
    sbit__causal c;
    memset(&c, 0, sizeof c);
    c.channels = x->dims[1];
    c.length = x->dims[2];
    c.taps = w->dims[2];
    if (w->dims[0] != c.channels || w->dims[1] != 1 || c.taps < 1 ||
        (bias != NULL && sbit_tensor_count(bias) != c.channels) ||
        (past != NULL && sbit_tensor_count(past) != x->dims[0] * c.channels * (c.taps - 1))) {
        return sbit__state_bad(call,
                               "weight [C, 1, k], bias [C] or past_state [B, C, k - 1] does "
                               "not fit the input",
                               error);
    }
    c.silu = sbit_node_string(call->node, "activation", "none")[0] == 's';
    c.x = (const float *)x->data;
    c.weight = (const float *)w->data;
    c.bias = bias != NULL ? (const float *)bias->data : NULL;
    c.past = past != NULL ? (const float *)past->data : NULL;
    c.y = (float *)call->out[0]->data;
    c.state = sbit__out(call, 1) != NULL ? (float *)call->out[1]->data : NULL;
    sbit__parallel_range(call->ctx, x->dims[0] * c.channels, 1 + 16384 / (c.length * c.taps + 1),
                         sbit__causal_rows, &c);
    return SBIT_OK;
}

static sbit_status sbit__causal_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__causal_run32, sbit__causal_run32, error);
}

/* What is trained is a depthwise Conv of the past positions and the present ones. */
static sbit_status sbit__causal_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    const sbit_value_id none = sbit__expand_none;
    const sbit_attr axis = sbit__attr_int("axis", 2);
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const int64_t channels = sbit__expand_dim(&e, 1, 0), taps = sbit__expand_dim(&e, 1, 2);
    const int64_t pads[6] = {0, 0, taps - 1, 0, 0, 0};
    const sbit_attr group = sbit__attr_int("group", channels);
    const sbit_value_id y = sbit__expand_out(&e, 0), state = sbit__expand_out(&e, 1);
    const bool silu = sbit_node_string(&e.node, "activation", "none")[0] == 's';
    sbit_value_id inputs[3];
    sbit__expand_needs(&e, 11);
    if (channels < 1 || taps < 1) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "the shape of its weight must be known");
        return e.status;
    }
    inputs[0] =
        sbit__expand_in(&e, 3).idx != 0
            ? sbit__expand_op(&e, "Concat", e.node.inputs[3], e.node.inputs[0], &axis, none)
            : sbit__expand_op(&e, "Pad", e.node.inputs[0], sbit__expand_ints(&e, pads, 6), NULL,
                              none);
    inputs[1] = e.node.inputs[1];
    inputs[2] = sbit__expand_in(&e, 2);
    const sbit_value_id sum = silu || y.idx == 0 ? sbit__expand_value(&e, "sum") : y;
    sbit__expand_node(&e, "", "Conv", inputs, inputs[2].idx != 0 ? 3 : 2, &sum, 1, &group, 1);
    if (silu && y.idx != 0) {
        (void)sbit__expand_op(&e, "Mul", sum, sbit__expand_op(&e, "Sigmoid", sum, none, NULL, none),
                              NULL, y);
    }
    if (state.idx != 0) {
        const int64_t from = taps > 1 ? 1 - taps : INT64_MAX;
        (void)sbit__expand_op(&e, "Identity",
                              sbit__expand_slice(&e, inputs[0], 2, from, INT64_MAX), none, NULL,
                              state);
    }
    return e.status;
}

/* >>gated unit */

static sbit_status sbit__swiglu_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x2, 0, error));
    const sbit_type *a = call->in_type[0], *b = call->in_type[1];
    bool differ = a->rank >= 0 && b->rank >= 0 && a->rank != b->rank;
    for (int32_t i = 0; !differ && a->rank == b->rank && i < a->rank; i++) {
        differ = sbit__dim_known(a->dims[i]) && sbit__dim_known(b->dims[i]) &&
                 a->dims[i].value != b->dims[i].value;
    }
    if (differ) {
        return sbit__state_bad(call, "both inputs have the same shape", error);
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

/* In float64, rounded once: right for every type it takes. */
static sbit_status sbit__swiglu_run(const sbit_op_call *call, sbit_error *error)
{
    const double alpha = (double)sbit_node_float(call->node, "alpha", 1.0f);
    if (!sbit_tensor_same_shape(call->in[0], call->in[1])) {
        return sbit__state_bad(call, "both inputs have the same shape", error);
    }
    for (int64_t i = 0; i < sbit_tensor_count(call->in[0]); i++) {
        const double a = sbit__tensor_f64_at(call->in[0], i);
        const double b = sbit__tensor_f64_at(call->in[1], i);
        sbit__tensor_set_f64(call->out[0], i, a / (1.0 + exp(-alpha * a)) * b);
    }
    return SBIT_OK;
}

/* ---- rows */

static const sbit_op_row sbit__state_space_table[] = {
    {"", "LinearAttention", 27, SBIT__STATE_TYPES, 0, 0, sbit__linear_infer, sbit__linear_prepare,
     sbit__linear_run, sbit__grad_linear_attention, NULL, NULL, NULL, NULL},
    {SBIT__GRAD_DOMAIN, "LinearAttentionGrad", 1, SBIT__T_GRAD, 0, 0, sbit__linear_back_infer,
     sbit__linear_back_prepare, sbit__linear_back_run, NULL, NULL, NULL, NULL, NULL},
    {"", "CausalConvWithState", 27, SBIT__STATE_TYPES, 0, 0, sbit__causal_infer,
     sbit__op_prepare_f32, sbit__causal_run, NULL, sbit__causal_expand, NULL, NULL, NULL},
    {"", "SwiGLU", 28, SBIT_T_FLOATS, 0, 0, sbit__swiglu_infer, sbit__op_prepare_check,
     sbit__swiglu_run, sbit__grad_swiglu, NULL, NULL, NULL, NULL},
};

#undef SBIT__STATE_TYPES

SBIT__FN const sbit_op_row *sbit__op_rows_state_space(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__state_space_table);
    return sbit__state_space_table;
}

#endif /* SPARSEBIT_NO_OPS_ATTENTION */
