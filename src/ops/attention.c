/* attention.c: Attention, RotaryEmbedding. >>attention
 *
 * Called by: infer, exec. Calls: kernels (gemm driver, softmax, threads).
 * Attention (ONNX 23, 24): softmax(softcap(scale Q K') + bias) V for each query head, where the
 * bias is the mask, minus infinity where it is false, and minus infinity where causality, the
 * window or the padding forbid a key. A query that may see no key gives zeros. Tensors are
 * [N, heads, length, size] or [N, length, heads * size]; the keys of `past_key` come first.
 * sbit Attention with attribute packed reads three times the same [N, length, 3 * heads * size]: queries,
 * then keys, then values.
 * AttentionGrad(q, k, v, mask, past k, past v, lengths, dy) gives the gradients of the first six; packed, of the one.
 * Work is cut into pieces of one head and some queries, so many that a product of any piece adds its
 * terms in the same order.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* INFINITY, expf, sqrt, tanh */

#if !SPARSEBIT_NO_OPS_ATTENTION

enum {
    SBIT__ATTENTION_ROWS = 96, /* queries of a piece, at most */
    SBIT__ATTENTION_LEAST = 32 /* where one of a head would do */
};

typedef struct sbit__attention {
    int64_t batch, q_heads, kv_heads, q_length, kv_length, past, total;
    int64_t size, v_size;                               /* of a head's query and value */
    int64_t q_step[3], k_step[3], v_step[3], y_step[3]; /* elements from sample to sample, head to
                                                           head, row to row */
    int64_t pieces; /* of a head */
    int64_t parts;  /* tensors that input 0 holds side by side: 3, or 1 */
    bool copies;    /* keys and values are put together behind the past ones */
    double scale; /* 1 / sqrt(size) unless the attribute says another */
    float softcap;
    bool causal;
    int64_t left, right; /* window; -1: open */
    int64_t mode;        /* what output 3 shows */
} sbit__attention;

static sbit_status sbit__attention_bad(const sbit_op_call *call, const char *what,
                                       sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%s", what);
}

/* >>attention types */

static int64_t sbit__attention_parts(const sbit_op_call *call)
{
    return sbit_node_int(call->node, "packed", 0) != 0 ? 3 : 1;
}

/* Heads and the size of one: dims of a 4-D tensor, or attribute `heads` and the last dim by it. */
static sbit_status sbit__attention_heads(const sbit_op_call *call, int32_t input, int64_t attribute,
                                         sbit_dim *heads, sbit_dim *length, sbit_dim *size,
                                         sbit_error *error)
{
    const sbit_type *type = call->in_type[input];
    *heads = *length = *size = sbit__dim_any();
    if (type->rank < 0) {
        return SBIT_OK;
    }
    if (type->rank == 4) {
        *heads = type->dims[1];
        *length = type->dims[2];
        *size = type->dims[3];
        return SBIT_OK;
    }
    if (type->rank != 3) {
        return sbit__attention_bad(call, "query, key and value have rank 3 or 4", error);
    }
    if (attribute < 1) {
        return sbit__attention_bad(
            call, "inputs of rank 3 need attributes q_num_heads and kv_num_heads", error);
    }
    *heads = sbit__dim(attribute);
    *length = type->dims[1];
    if (sbit__dim_known(type->dims[2])) {
        const int64_t sizes = sbit__saturating_mul(attribute, sbit__attention_parts(call));
        if (type->dims[2].value % sizes != 0) {
            return sbit__attention_bad(call, "a last dimension is no multiple of its heads", error);
        }
        *size = sbit__dim(type->dims[2].value / sizes);
    }
    return SBIT_OK;
}

typedef struct sbit__attention_dims {
    sbit_dim batch, q_heads, q_length, size, kv_heads, kv_length, v_size, past, total;
} sbit__attention_dims;

static bool sbit__attention_differ(sbit_dim a, sbit_dim b)
{
    return sbit__dim_known(a) && sbit__dim_known(b) && a.value != b.value;
}

static sbit_status sbit__attention_check(const sbit_op_call *call, const sbit__attention_dims *d,
                                         sbit_dim v_heads, sbit_dim v_length, sbit_dim k_size,
                                         sbit_error *error)
{
    if (sbit__attention_differ(d->size, k_size)) {
        return sbit__attention_bad(call, "queries and keys have different sizes", error);
    }
    if (sbit__attention_differ(d->kv_heads, v_heads) ||
        sbit__attention_differ(d->kv_length, v_length)) {
        return sbit__attention_bad(call, "keys and values do not fit together", error);
    }
    if (sbit__dim_known(d->q_heads) && sbit__dim_known(d->kv_heads) &&
        (d->kv_heads.value < 1 || d->q_heads.value % d->kv_heads.value != 0)) {
        return sbit__attention_bad(call, "the query heads are no multiple of the key heads", error);
    }
    for (int32_t i = 4; i <= 5; i++) { /* the past */
        const sbit_type *past = sbit__in_type(call, i);
        if (past == NULL || past->rank < 0) {
            continue;
        }
        if (past->rank != 4 || sbit__attention_differ(past->dims[0], d->batch) ||
            sbit__attention_differ(past->dims[1], d->kv_heads) ||
            sbit__attention_differ(past->dims[2], d->past) ||
            sbit__attention_differ(past->dims[3], i == 4 ? d->size : d->v_size)) {
            return sbit__attention_bad(call, "past keys or values do not fit the new ones", error);
        }
    }
    const int64_t shown = sbit_node_int(call->node, "qk_matmul_output_mode", 0);
    if (shown < 0 || shown > 3) {
        return sbit__attention_bad(call, "qk_matmul_output_mode is none of 0 to 3", error);
    }
    const sbit_type *mask = sbit__in_type(call, 3);
    if (mask != NULL && mask->rank > 4) {
        return sbit__attention_bad(call, "the mask has more than four dimensions", error);
    }
    return SBIT_OK;
}

static sbit_status sbit__attention_read(const sbit_op_call *call, sbit__attention_dims *d,
                                        sbit_error *error)
{
    const int64_t q_heads = sbit_node_int(call->node, "q_num_heads", 0);
    const int64_t kv_heads = sbit_node_int(call->node, "kv_num_heads", 0);
    sbit_dim v_heads, v_length, k_size;
    SBIT__TRY(
        sbit__op_inputs(call, 3,
                        !sbit__streq(call->row->op_type, "Attention") ? 8
                        : call->row->since_version == 23              ? 6
                                                                      : 7,
                        error));
    SBIT__TRY(sbit__op_dtypes(call, 0x12, 0, error)); /* keys, past keys: as queries */
    SBIT__TRY(sbit__op_dtypes(call, 0x24, SBIT_T_FLOATS, error));
    if (sbit__op_has(call, 4) != sbit__op_has(call, 5)) {
        return sbit__attention_bad(call, "past_key and past_value come together", error);
    }
    SBIT__TRY(sbit__attention_heads(call, 0, q_heads, &d->q_heads, &d->q_length, &d->size, error));
    SBIT__TRY(
        sbit__attention_heads(call, 1, kv_heads, &d->kv_heads, &d->kv_length, &k_size, error));
    SBIT__TRY(sbit__attention_heads(call, 2, kv_heads, &v_heads, &v_length, &d->v_size, error));
    d->batch = call->in_type[0]->rank > 0 ? call->in_type[0]->dims[0] : sbit__dim_any();
    d->past = sbit__dim(0);
    if (sbit__op_has(call, 4)) {
        d->past = call->in_type[4]->rank == 4 ? call->in_type[4]->dims[2] : sbit__dim_any();
    }
    d->total = sbit__dim_add(d->past, d->kv_length);
    for (int32_t i = 1; i < 3; i++) {
        const sbit_type *type = call->in_type[i];
        if (type->rank > 0 &&
            (sbit__attention_differ(type->dims[0], d->batch) ||
             (call->in_type[0]->rank > 0 && type->rank != call->in_type[0]->rank))) {
            return sbit__attention_bad(call, "query, key and value differ in batch or rank", error);
        }
    }
    return sbit__attention_check(call, d, v_heads, v_length, k_size, error);
}

static void sbit__attention_out(const sbit_op_call *call, int32_t output, sbit_dtype dtype,
                                sbit_dim a, sbit_dim b, sbit_dim c, sbit_dim e)
{
    sbit_type *out = sbit__op_out(call, output, dtype, 4);
    if (out != NULL) {
        out->dims[0] = a;
        out->dims[1] = b;
        out->dims[2] = c;
        out->dims[3] = e;
    }
}

static sbit_status sbit__attention_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__attention_dims d;
    SBIT__TRY(sbit__attention_read(call, &d, error));
    const sbit_dtype dtype = call->in_type[0]->dtype;
    if (call->in_type[0]->rank == 3) {
        sbit_type *out = sbit__op_out(call, 0, dtype, 3);
        if (out != NULL) {
            out->dims[0] = d.batch;
            out->dims[1] = d.q_length;
            out->dims[2] = sbit__dim_mul(d.q_heads, d.v_size);
        }
    } else if (call->in_type[0]->rank == 4) {
        sbit__attention_out(call, 0, dtype, d.batch, d.q_heads, d.q_length, d.v_size);
    } else {
        (void)sbit__op_out(call, 0, dtype, -1);
    }
    sbit__attention_out(call, 1, dtype, d.batch, d.kv_heads, d.total, d.size);
    sbit__attention_out(call, 2, call->in_type[2]->dtype, d.batch, d.kv_heads, d.total, d.v_size);
    sbit__attention_out(call, 3, dtype, d.batch, d.q_heads, d.q_length, d.total);
    return SBIT_OK;
}

/* >>attention sizes */

/* rank 3: of `parts` tensors side by side. */
static void sbit__attention_steps(int32_t rank, int64_t heads, int64_t length, int64_t size,
                                  int64_t parts, int64_t steps[3])
{
    steps[0] = parts * heads * length * size;
    steps[1] = rank == 4 ? length * size : size;
    steps[2] = rank == 4 ? size : parts * heads * size;
}

/* How many pieces a head is cut into: two for a thread, if there are queries enough. */
static int64_t sbit__attention_pieces(const sbit_op_call *call, const sbit__attention *a)
{
    const int64_t threads = sbit_ctx_threads(call->ctx), heads = a->batch * a->q_heads;
    const int64_t least = (a->q_length + SBIT__ATTENTION_ROWS - 1) / SBIT__ATTENTION_ROWS;
    const int64_t wanted = threads > 1 && heads > 0 ? (2 * threads + heads - 1) / heads : 1;
    const int64_t most = a->q_length / SBIT__ATTENTION_LEAST, pieces = wanted < most ? wanted : most;
    return pieces > least ? pieces : least > 0 ? least : 1;
}

/* All dims are numbers, checked by infer. */
static sbit_status sbit__attention_of(const sbit_op_call *call, sbit__attention *a,
                                      sbit_error *error)
{
    sbit__attention_dims d;
    const int32_t rank = call->in_type[0]->rank;
    int64_t scores = 0;
    memset(a, 0, sizeof *a);
    SBIT__TRY(sbit__attention_read(call, &d, error));
    a->batch = d.batch.value;
    a->q_heads = d.q_heads.value;
    a->kv_heads = d.kv_heads.value;
    a->q_length = d.q_length.value;
    a->kv_length = d.kv_length.value;
    a->past = d.past.value;
    a->total = d.total.value;
    a->size = d.size.value;
    a->v_size = d.v_size.value;
    a->copies = a->past > 0;
    a->parts = sbit__attention_parts(call);
    a->pieces = sbit__attention_pieces(call, a);
    const int32_t joined = a->copies ? 4 : rank;
    sbit__attention_steps(rank, a->q_heads, a->q_length, a->size, a->parts, a->q_step);
    sbit__attention_steps(joined, a->kv_heads, a->total, a->size, a->parts, a->k_step);
    sbit__attention_steps(joined, a->kv_heads, a->total, a->v_size, a->parts, a->v_step);
    sbit__attention_steps(rank, a->q_heads, a->q_length, a->v_size, 1, a->y_step);
    a->scale = a->size > 0 ? 1.0 / sqrt((double)a->size) : 1.0;
    if (sbit_node_attr(call->node, "scale") != NULL) {
        a->scale = (double)sbit_node_float(call->node, "scale", 1.0f);
    }
    a->softcap = sbit_node_float(call->node, "softcap", 0.0f);
    a->causal = sbit_node_int(call->node, "is_causal", 0) != 0;
    a->left = sbit_node_int(call->node, "left_window_size", -1);
    a->right = sbit_node_int(call->node, "right_window_size", -1);
    a->mode = sbit_node_int(call->node, "qk_matmul_output_mode", 0);
    if (!sbit__mul_i64(a->total + a->size + a->v_size + 64, SBIT__ATTENTION_ROWS * 64, &scores) ||
        !sbit__mul_i64(scores, sbit_ctx_threads(call->ctx), &scores)) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
    }
    return SBIT_OK;
}

/* Queries of a piece, at most. */
static int64_t sbit__attention_rows(const sbit__attention *a)
{
    return (a->q_length + a->pieces - 1) / a->pieces;
}

static void sbit__attention_products(const sbit__attention *a, int64_t rows, sbit__gemm *scores,
                                     sbit__gemm *values)
{
    memset(scores, 0, sizeof *scores);
    scores->m = rows;
    scores->n = a->total;
    scores->k = a->size;
    scores->lda = a->q_step[2];
    scores->ldb = a->k_step[2];
    scores->ldc = a->total;
    scores->trans_b = true;
    scores->alpha = (float)a->scale;
    scores->serial = true;
    memset(values, 0, sizeof *values);
    values->m = rows;
    values->n = a->v_size;
    values->k = a->total;
    values->lda = a->total;
    values->ldb = a->v_step[2];
    values->ldc = a->y_step[2];
    values->alpha = 1.0f;
    values->serial = true;
}

/* Scratch memory of one worker: scores, a row of bias, what the products need. */
static size_t sbit__attention_worker_bytes(const sbit_op_call *call, const sbit__attention *a)
{
    sbit__gemm scores, values;
    size_t most = 0;
    for (int i = 0; i < 2; i++) { /* pieces of both lengths */
        const int64_t rows = i == 0 ? sbit__attention_rows(a) : a->q_length / a->pieces;
        sbit__attention_products(a, rows, &scores, &values);
        const size_t first = sbit__gemm_scratch_bytes(call->ctx, &scores);
        const size_t second = sbit__gemm_scratch_bytes(call->ctx, &values);
        most = first > most ? first : most;
        most = second > most ? second : most;
    }
    return sbit__align64((size_t)(sbit__attention_rows(a) * a->total) * sizeof(double)) +
           sbit__align64((size_t)a->total * sizeof(double)) + sbit__align64(most);
}

static size_t sbit__attention_past_bytes(const sbit_op_call *call, const sbit__attention *a,
                                         int32_t output)
{
    const int64_t size = output == 1 ? a->size : a->v_size;
    return a->copies && !sbit__op_wants(call, output)
               ? sbit__align64((size_t)(a->batch * a->kv_heads * a->total * size) * sizeof(double))
               : 0;
}

static sbit_status sbit__attention_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__attention a;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        if (call->in_type[i] != NULL && !sbit__type_static(call->in_type[i])) {
            return SBIT_OK; /* again when it is known */
        }
    }
    SBIT__TRY(sbit__attention_of(call, &a, error));
    SBIT__TRY(sbit__op_keep(call, &a, sizeof a, error));
    *call->scratch_bytes =
        sbit__op_in_float_scratch(call) + sbit__attention_past_bytes(call, &a, 1) +
        sbit__attention_past_bytes(call, &a, 2) +
        sbit__attention_worker_bytes(call, &a) * (size_t)sbit_ctx_threads(call->ctx);
    return SBIT_OK;
}

/* >>attention work */

typedef struct sbit__attention_task {
    const sbit_op_call *call;
    const sbit__attention *a;
    const void *q, *k, *v; /* float, or double if `wide` */
    void *y, *shown;       /* shown: output 3; NULL if not wanted */
    bool wide;
    const sbit_tensor *mask;
    int64_t mask_step[4]; /* 0 where it is broadcast */
    int64_t mask_length;  /* keys that the mask speaks of */
    const int64_t *valid; /* keys of each sample that are no padding; NULL: all */
    bool open;            /* every query sees every key, and nobody looks at scores */
    char *scratch;
    size_t worker_bytes;
} sbit__attention_task;

/* What is added to the scores of one query; false if it may see no key. */
static bool sbit__attention_bias(const sbit__attention_task *t, int64_t n, int64_t head,
                                 int64_t row, double *bias)
{
    const sbit__attention *a = t->a;
    const int64_t valid = t->valid != NULL ? t->valid[n] : a->total;
    const int64_t at = row + (t->valid != NULL ? valid - a->q_length : a->past);
    const int64_t from = n * t->mask_step[0] + head * t->mask_step[1] + row * t->mask_step[2];
    bool sees = false;
    for (int64_t j = 0; j < a->total; j++) {
        double value = 0.0;
        if (j >= valid || (a->causal && j > at) || (a->left >= 0 && at - j > a->left) ||
            (a->right >= 0 && j - at > a->right) || (t->mask != NULL && j >= t->mask_length)) {
            value = -(double)INFINITY;
        } else if (t->mask != NULL) {
            value = sbit__tensor_f64_at(t->mask, from + j * t->mask_step[3]);
            if (t->mask->dtype == SBIT_BOOL) {
                value = value != 0.0 ? 0.0 : -(double)INFINITY;
            }
        }
        bias[j] = value;
        sees = sees || value > -(double)INFINITY;
    }
    return sees;
}

static void sbit__attention_show(const sbit__attention_task *t, int64_t stage, int64_t at,
                                 const void *scores)
{
    const size_t bytes = t->wide ? sizeof(double) : sizeof(float);
    if (t->shown != NULL && t->a->mode == stage) {
        memcpy((char *)t->shown + (size_t)at * bytes, scores, (size_t)t->a->total * bytes);
    }
}

/* One row of scores to weights. `at`: of the row in output 3. */
static void sbit__attention_row32(const sbit__attention_task *t, const double *bias, bool sees,
                                  int64_t at, float *s)
{
    const int64_t n = t->a->total;
    const float cap = t->a->softcap;
    sbit__attention_show(t, 0, at, s);
    for (int64_t j = 0; cap != 0.0f && j < n; j++) {
        s[j] = cap * tanhf(s[j] / cap);
    }
    sbit__attention_show(t, 1, at, s);
    for (int64_t j = 0; j < n; j++) { /* a key that may not be seen may hold anything */
        s[j] = bias[j] > -(double)INFINITY ? s[j] + (float)bias[j] : -INFINITY;
    }
    sbit__attention_show(t, 2, at, s);
    if (sees) {
        t->call->kernels->f32_softmax(n, s, s);
    } else {
        memset(s, 0, (size_t)n * sizeof s[0]);
    }
    sbit__attention_show(t, 3, at, s);
}

static void sbit__attention_row64(const sbit__attention_task *t, const double *bias, bool sees,
                                  int64_t at, double *s)
{
    const int64_t n = t->a->total;
    const double cap = (double)t->a->softcap;
    double most = -(double)INFINITY, sum = 0.0;
    sbit__attention_show(t, 0, at, s);
    for (int64_t j = 0; cap != 0.0 && j < n; j++) {
        s[j] = cap * tanh(s[j] / cap);
    }
    sbit__attention_show(t, 1, at, s);
    for (int64_t j = 0; j < n; j++) {
        s[j] = bias[j] > -(double)INFINITY ? s[j] + bias[j] : -(double)INFINITY;
        most = s[j] > most ? s[j] : most;
    }
    sbit__attention_show(t, 2, at, s);
    for (int64_t j = 0; j < n; j++) {
        s[j] = sees ? exp(s[j] - most) : 0.0;
        sum += s[j];
    }
    for (int64_t j = 0; sees && j < n; j++) {
        s[j] /= sum;
    }
    sbit__attention_show(t, 3, at, s);
}

/* Queries row..row+rows-1 of one head in float64: sums in order. */
static void sbit__attention_piece64(const sbit__attention_task *t, int64_t n, int64_t head,
                                    int64_t row, int64_t rows, char *scratch)
{
    const sbit__attention *a = t->a;
    const int64_t kv = head / (a->q_heads / a->kv_heads);
    const double *q = (const double *)t->q + n * a->q_step[0] + head * a->q_step[1];
    const double *k = (const double *)t->k + n * a->k_step[0] + kv * a->k_step[1];
    const double *v = (const double *)t->v + n * a->v_step[0] + kv * a->v_step[1];
    double *y = (double *)t->y + n * a->y_step[0] + head * a->y_step[1];
    double *s = (double *)(void *)scratch, *bias = s + a->total;
    for (int64_t i = row; i < row + rows; i++) {
        const bool sees = sbit__attention_bias(t, n, head, i, bias);
        for (int64_t j = 0; j < a->total; j++) {
            double sum = 0.0;
            for (int64_t c = 0; c < a->size; c++) {
                sum += q[i * a->q_step[2] + c] * k[j * a->k_step[2] + c];
            }
            s[j] = sum * a->scale;
        }
        sbit__attention_row64(t, bias, sees, ((n * a->q_heads + head) * a->q_length + i) * a->total,
                              s);
        for (int64_t c = 0; c < a->v_size; c++) {
            double sum = 0.0;
            for (int64_t j = 0; j < a->total; j++) {
                sum += s[j] != 0.0 ? s[j] * v[j * a->v_step[2] + c] : 0.0;
            }
            y[i * a->y_step[2] + c] = sum;
        }
    }
}

/* Scores of some queries to weights. */
static void sbit__attention_weights32(const sbit__attention_task *t, int64_t n, int64_t head,
                                      int64_t row, int64_t rows, double *bias, float *s)
{
    const sbit__attention *a = t->a;
    for (int64_t i = 0; i < rows; i++) {
        float *line = s + i * a->total;
        if (t->open) {
            t->call->kernels->f32_softmax(a->total, line, line);
            continue;
        }
        const bool sees = sbit__attention_bias(t, n, head, row + i, bias);
        sbit__attention_row32(t, bias, sees,
                              ((n * a->q_heads + head) * a->q_length + row + i) * a->total, line);
    }
}

static void sbit__attention_piece32(const sbit__attention_task *t, int64_t n, int64_t head,
                                    int64_t row, int64_t rows, char *scratch)
{
    const sbit__attention *a = t->a;
    const int64_t kv = head / (a->q_heads / a->kv_heads);
    float *s = (float *)(void *)scratch;
    scratch += sbit__align64((size_t)(sbit__attention_rows(a) * a->total) * sizeof(double));
    double *bias = (double *)(void *)scratch;
    scratch += sbit__align64((size_t)a->total * sizeof(double));
    sbit__gemm scores, values;
    sbit__attention_products(a, rows, &scores, &values);
    scores.a = (const float *)t->q + n * a->q_step[0] + head * a->q_step[1] + row * a->q_step[2];
    scores.b = (const float *)t->k + n * a->k_step[0] + kv * a->k_step[1];
    scores.c = s;
    sbit__gemm_run(t->call->ctx, &scores, scratch);
    sbit__attention_weights32(t, n, head, row, rows, bias, s);
    values.a = s;
    values.b = (const float *)t->v + n * a->v_step[0] + kv * a->v_step[1];
    values.c = (float *)t->y + n * a->y_step[0] + head * a->y_step[1] + row * a->y_step[2];
    sbit__gemm_run(t->call->ctx, &values, scratch);
}

static void sbit__attention_piece(void *user, int64_t index, int32_t worker)
{
    const sbit__attention_task *t = (const sbit__attention_task *)user;
    const int64_t pieces = t->a->pieces, piece = index % pieces;
    const int64_t head = index / pieces % t->a->q_heads;
    const int64_t n = index / pieces / t->a->q_heads;
    const int64_t row = piece * t->a->q_length / pieces;
    const int64_t rows = (piece + 1) * t->a->q_length / pieces - row;
    char *scratch = t->scratch + t->worker_bytes * (size_t)worker;
    if (t->wide) {
        sbit__attention_piece64(t, n, head, row, rows, scratch);
    } else {
        sbit__attention_piece32(t, n, head, row, rows, scratch);
    }
}

/* The past rows, then the new ones, as [N, heads, total, size]. */
static void sbit__attention_join(const sbit__attention *a, int32_t rank, int64_t size,
                                 const sbit_tensor *past, const sbit_tensor *fresh, void *out)
{
    int64_t step[3];
    const sbit_dtype dtype = fresh->dtype;
    sbit__attention_steps(rank, a->kv_heads, a->kv_length, size, 1, step);
    for (int64_t n = 0; n < a->batch; n++) {
        for (int64_t head = 0; head < a->kv_heads; head++) {
            const int64_t to = (n * a->kv_heads + head) * a->total * size;
            if (a->past > 0) {
                sbit__elem_copy(dtype, out, to, past->data,
                                (n * a->kv_heads + head) * a->past * size, a->past * size);
            }
            for (int64_t j = 0; j < a->kv_length; j++) {
                sbit__elem_copy(dtype, out, to + (a->past + j) * size, fresh->data,
                                n * step[0] + head * step[1] + j * step[2], size);
            }
        }
    }
}

static sbit_status sbit__attention_mask(const sbit_op_call *call, sbit__attention_task *t,
                                        sbit_error *error)
{
    const sbit__attention *a = t->a;
    const int64_t want[4] = {a->batch, a->q_heads, a->q_length, a->total};
    int64_t step = 1;
    t->mask = sbit__in(call, 3);
    if (t->mask == NULL) {
        return SBIT_OK;
    }
    t->mask_length = a->total;
    for (int32_t i = 3; i >= 0; i--) {
        const int32_t axis = i - 4 + t->mask->rank;
        const int64_t dim = axis >= 0 ? t->mask->dims[axis] : 1;
        const bool shorter = i == 3 && dim > 1 && dim < want[i];
        if (dim != 1 && dim != want[i] && !shorter) {
            return sbit__attention_bad(call, "the mask does not broadcast to the scores", error);
        }
        t->mask_length = shorter ? dim : t->mask_length;
        t->mask_step[i] = dim == 1 ? 0 : step;
        step *= dim;
    }
    return SBIT_OK;
}

static sbit_status sbit__attention_valid(const sbit_op_call *call, sbit__attention_task *t,
                                         sbit_error *error)
{
    const sbit_tensor *valid = sbit__in(call, 6);
    if (valid == NULL) {
        return SBIT_OK;
    }
    if (valid->dtype != SBIT_I64 || sbit_tensor_count(valid) != t->a->batch) {
        return sbit__attention_bad(call, "nonpad_kv_seqlen has one int64 for each sample", error);
    }
    t->valid = (const int64_t *)valid->data;
    for (int64_t n = 0; n < t->a->batch; n++) {
        if (t->valid[n] < 0 || t->valid[n] > t->a->total) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "nonpad_kv_seqlen is %lld for sample %lld, which has %lld keys",
                                (long long)t->valid[n], (long long)n, (long long)t->a->total);
        }
    }
    return SBIT_OK;
}

/* Every query sees every key, and nobody looks at scores. */
static bool sbit__attention_open(const sbit__attention_task *t)
{
    const sbit__attention *a = t->a;
    return t->mask == NULL && t->valid == NULL && t->shown == NULL && !a->causal && a->left < 0 &&
           a->right < 0 && a->softcap == 0.0f;
}

static sbit_status sbit__attention_run_on(const sbit_op_call *call, bool wide, sbit_error *error)
{
    sbit__attention a;
    sbit__attention_task t;
    char *scratch = (char *)call->scratch;
    const int32_t rank = call->in_type[0]->rank;
    SBIT__TRY(sbit__op_kept(call, &a, sizeof a, error));
    memset(&t, 0, sizeof t);
    t.call = call;
    t.a = &a;
    t.wide = wide;
    SBIT__TRY(sbit__attention_mask(call, &t, error));
    SBIT__TRY(sbit__attention_valid(call, &t, error));
    const size_t part = a.parts == 1 ? 0
                                     : (size_t)(a.q_heads * a.size) *
                                           (wide ? sizeof(double) : sizeof(float));
    t.q = call->in[0]->data;
    t.k = (const char *)call->in[1]->data + part;
    t.v = (const char *)call->in[2]->data + 2 * part;
    for (int32_t i = 1; i <= 2; i++) {
        const size_t own = sbit__attention_past_bytes(call, &a, i);
        void *joined = own > 0 ? scratch : sbit__out(call, i) != NULL ? call->out[i]->data : NULL;
        if (joined != NULL) {
            sbit__attention_join(&a, rank, i == 1 ? a.size : a.v_size, sbit__in(call, i + 3),
                                 call->in[i], joined);
        }
        if (a.copies) {
            *(i == 1 ? &t.k : &t.v) = joined;
        }
        scratch += own;
    }
    t.y = call->out[0]->data;
    t.shown = sbit__out(call, 3) != NULL ? call->out[3]->data : NULL;
    t.open = sbit__attention_open(&t);
    t.scratch = scratch;
    t.worker_bytes = sbit__attention_worker_bytes(call, &a);
    if (sbit_tensor_count(call->out[0]) > 0 && a.total == 0) {
        memset(t.y, 0, sbit_tensor_bytes(call->out[0]));
    } else if (sbit_tensor_count(call->out[0]) > 0) {
        sbit_ctx_parallel(call->ctx, a.batch * a.q_heads * a.pieces, sbit__attention_piece, &t);
    }
    return SBIT_OK;
}

static sbit_status sbit__attention_run32(const sbit_op_call *call, sbit_error *error)
{
    return sbit__attention_run_on(call, false, error);
}

static sbit_status sbit__attention_run64(const sbit_op_call *call, sbit_error *error)
{
    return sbit__attention_run_on(call, true, error);
}

static sbit_status sbit__attention_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__attention_run32, sbit__attention_run64, error);
}

static int64_t sbit__attention_macs(const sbit_op_call *call)
{
    sbit__attention_dims d;
    if (sbit__attention_read(call, &d, NULL) != SBIT_OK) {
        return 0;
    }
    const sbit_dim all[5] = {d.batch, d.q_heads, d.q_length, d.total,
                             sbit__dim_add(d.size, d.v_size)};
    int64_t macs = 1;
    for (size_t i = 0; i < SBIT__COUNT_OF(all); i++) {
        macs = sbit__saturating_mul(macs, sbit__dim_known(all[i]) ? all[i].value : 1);
    }
    return macs;
}

/* >>attention gradient: with p the weights of a query:
 *     dv_j += p_j dy   dp_j = dy v_j   ds = p (dp - sum(p dp)), which is the mask's gradient
 *     dr = ds (softcap's slope)   dq = scale sum(dr_j k_j)   dk_j += scale dr_j q
 * One thread does all query heads of a key head, whose dk and dv it owns. In float32, without past
 * keys, softcap and a mask that learns, these are five products of matrices for some queries at a
 * time; else a row in double after the other. */

static sbit_status sbit__attention_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 8, error));
    if (!sbit__op_has(call, 7)) {
        return sbit__attention_bad(call, "the output's gradient is missing", error);
    }
    for (int32_t i = 0; i < 6; i++) {
        if (sbit__op_has(call, i)) {
            sbit__op_same_type(call, i, i);
        }
    }
    return SBIT_OK;
}

/* By products of matrices. */
static bool sbit__attention_grad_fast(const sbit_op_call *call, const sbit__attention *a)
{
    return call->in_type[0]->dtype == SBIT_F32 && a->past == 0 && a->softcap == 0.0f &&
           a->q_length > 0 && a->total > 0 && !sbit__op_wants(call, 3);
}

enum { SBIT__ATTENTION_GRAD_ROWS = 128 }; /* queries at a time */

typedef enum sbit__attention_product {
    SBIT__ATTENTION_SCORES, /* scale q k' */
    SBIT__ATTENTION_DP,     /* dy v' */
    SBIT__ATTENTION_DV,     /* p' dy */
    SBIT__ATTENTION_DQ,     /* dr k */
    SBIT__ATTENTION_DK,     /* dr' q */
    SBIT__ATTENTION_PRODUCTS
} sbit__attention_product;

/* Sizes of a product for so many queries; s and dp lie densely, dk and dv as the keys and values. */
static void sbit__attention_grad_gemm(const sbit__attention *a, sbit__attention_product which,
                                      int64_t rows, sbit__gemm *gemm)
{
    const bool values = which == SBIT__ATTENTION_DP || which == SBIT__ATTENTION_DV;
    const bool square = which == SBIT__ATTENTION_SCORES || which == SBIT__ATTENTION_DP;
    const int64_t size = values ? a->v_size : a->size;
    const int64_t wide = values ? a->y_step[2] : a->q_step[2]; /* rows of dy or q and dq */
    const int64_t keys = values ? a->v_step[2] : a->k_step[2];
    memset(gemm, 0, sizeof *gemm);
    gemm->m = square || which == SBIT__ATTENTION_DQ ? rows : a->total;
    gemm->n = square ? a->total : size;
    gemm->k = square ? size : which == SBIT__ATTENTION_DQ ? a->total : rows;
    gemm->lda = square ? wide : a->total;
    gemm->ldb = square || which == SBIT__ATTENTION_DQ ? keys : wide;
    gemm->ldc = square ? a->total : which == SBIT__ATTENTION_DQ ? wide : keys;
    gemm->trans_a = !square && which != SBIT__ATTENTION_DQ;
    gemm->trans_b = square;
    gemm->alpha = which == SBIT__ATTENTION_SCORES ? (float)a->scale : 1.0f;
    gemm->serial = true;
}

/* What the products of a worker need, at most. */
static size_t sbit__attention_grad_gemms(const sbit_op_call *call, const sbit__attention *a)
{
    const int64_t rest = a->q_length % SBIT__ATTENTION_GRAD_ROWS;
    const int64_t counts[2] = {SBIT__ATTENTION_GRAD_ROWS, rest};
    size_t most = 0;
    for (int i = a->q_length < SBIT__ATTENTION_GRAD_ROWS ? 1 : 0; i < 2; i++) {
        for (int which = 0; which < SBIT__ATTENTION_PRODUCTS; which++) {
            sbit__gemm gemm;
            sbit__attention_grad_gemm(a, (sbit__attention_product)which, counts[i], &gemm);
            const size_t bytes = sbit__gemm_scratch_bytes(call->ctx, &gemm);
            most = bytes > most ? bytes : most;
        }
    }
    return sbit__align64(most);
}

static int64_t sbit__attention_grad_rows(const sbit__attention *a)
{
    return a->q_length < SBIT__ATTENTION_GRAD_ROWS ? a->q_length : (int64_t)SBIT__ATTENTION_GRAD_ROWS;
}

/* Of one worker: fast: weights, dp, a part of dk or dv, a row of bias, what the products need. */
static size_t sbit__attention_grad_bytes(const sbit_op_call *call, const sbit__attention *a)
{
    if (!sbit__attention_grad_fast(call, a)) {
        return sbit__align64((size_t)(a->total * (a->size + a->v_size + 4)) * sizeof(double));
    }
    const int64_t floats = a->total * (2 * sbit__attention_grad_rows(a) + a->size + a->v_size);
    return sbit__align64((size_t)floats * sizeof(float)) +
           sbit__align64((size_t)a->total * sizeof(double)) + sbit__attention_grad_gemms(call, a);
}

static sbit_status sbit__attention_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__attention a;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        if (call->in_type[i] != NULL && !sbit__type_static(call->in_type[i])) {
            return SBIT_OK;
        }
    }
    SBIT__TRY(sbit__attention_of(call, &a, error));
    SBIT__TRY(sbit__op_keep(call, &a, sizeof a, error));
    *call->scratch_bytes = sbit__attention_grad_bytes(call, &a) * (size_t)sbit_ctx_threads(call->ctx);
    return SBIT_OK;
}

typedef struct sbit__attention_grad {
    sbit__attention_task t; /* mask and lengths */
    const sbit__attention *a;
    bool wide;
    int64_t k_step[3], v_step[3]; /* of the new keys and values */
    const void *in[8];            /* as the node's inputs */
    void *out[6];
} sbit__attention_grad;

/* Where row j of keys (1) or values (2) of a head begins: among the new ones, or the past ones. */
static int64_t sbit__attention_grad_row(const sbit__attention_grad *g, int32_t which, int64_t n,
                                        int64_t kv, int64_t j, int32_t *input)
{
    const sbit__attention *a = g->a;
    const int64_t size = which == 1 ? a->size : a->v_size;
    const int64_t *step = which == 1 ? g->k_step : g->v_step;
    *input = j < a->past ? which + 3 : which;
    return j < a->past ? ((n * a->kv_heads + kv) * a->past + j) * size
                       : n * step[0] + kv * step[1] + (j - a->past) * step[2];
}

/* Weights of one query: p, and what the raw scores became by softcap: top. */
static void sbit__attention_grad_weights(const sbit__attention_grad *g, int64_t n, int64_t head,
                                         int64_t i, double *bias, double *top, double *p)
{
    const sbit__attention *a = g->a;
    const int64_t kv = head / (a->q_heads / a->kv_heads);
    const int64_t q = n * a->q_step[0] + head * a->q_step[1] + i * a->q_step[2];
    const bool sees = sbit__attention_bias(&g->t, n, head, i, bias);
    const double cap = (double)a->softcap;
    double most = -(double)INFINITY, sum = 0.0;
    for (int64_t j = 0; j < a->total; j++) {
        int32_t input = 0;
        const int64_t k = sbit__attention_grad_row(g, 1, n, kv, j, &input);
        double score = 0.0;
        for (int64_t c = 0; c < a->size; c++) {
            score += sbit__real_at(g->wide, g->in[0], q + c) *
                     sbit__real_at(g->wide, g->in[input], k + c);
        }
        score *= a->scale;
        top[j] = cap != 0.0 ? cap * tanh(score / cap) : score;
        p[j] = bias[j] > -(double)INFINITY ? top[j] + bias[j] : -(double)INFINITY;
        most = p[j] > most ? p[j] : most;
    }
    for (int64_t j = 0; j < a->total; j++) {
        p[j] = sees ? exp(p[j] - most) : 0.0;
        sum += p[j];
    }
    for (int64_t j = 0; sees && j < a->total; j++) {
        p[j] /= sum;
    }
}

/* ds of one query in place of p, its dq, and what it gives dk, dv and the mask. */
static void sbit__attention_grad_query(const sbit__attention_grad *g, int64_t n, int64_t head,
                                       int64_t i, double *top, double *p, double *dp, double *dk,
                                       double *dv)
{
    const sbit__attention *a = g->a;
    const int64_t kv = head / (a->q_heads / a->kv_heads);
    const int64_t q = n * a->q_step[0] + head * a->q_step[1] + i * a->q_step[2];
    const int64_t y = n * a->y_step[0] + head * a->y_step[1] + i * a->y_step[2];
    const int64_t mask = n * g->t.mask_step[0] + head * g->t.mask_step[1] + i * g->t.mask_step[2];
    const double cap = (double)a->softcap;
    double along = 0.0;
    int32_t input = 0;
    for (int64_t j = 0; j < a->total; j++) {
        const int64_t v = sbit__attention_grad_row(g, 2, n, kv, j, &input);
        dp[j] = 0.0;
        for (int64_t c = 0; c < a->v_size; c++) {
            const double dy = sbit__real_at(g->wide, g->in[7], y + c);
            dv[j * a->v_size + c] += p[j] * dy;
            dp[j] += dy * sbit__real_at(g->wide, g->in[input], v + c);
        }
        along += p[j] * dp[j];
    }
    for (int64_t j = 0; j < a->total; j++) {
        const double ds = p[j] * (dp[j] - along);
        const int64_t at = mask + j * g->t.mask_step[3];
        if (g->out[3] != NULL && j < g->t.mask_length) {
            sbit__real_set(g->wide, g->out[3], at, sbit__real_at(g->wide, g->out[3], at) + ds);
        }
        dp[j] = a->scale * ds * (cap != 0.0 ? 1.0 - top[j] * top[j] / (cap * cap) : 1.0);
    }
    for (int64_t c = 0; c < a->size; c++) {
        const double own = sbit__real_at(g->wide, g->in[0], q + c);
        double dq = 0.0;
        for (int64_t j = 0; j < a->total; j++) {
            const int64_t k = sbit__attention_grad_row(g, 1, n, kv, j, &input);
            dq += dp[j] * sbit__real_at(g->wide, g->in[input], k + c);
            dk[j * a->size + c] += dp[j] * own;
        }
        if (g->out[0] != NULL) {
            sbit__real_set(g->wide, g->out[0], q + c, dq);
        }
    }
}

static void sbit__attention_grad_head(void *user, int64_t index, int32_t worker)
{
    const sbit__attention_grad *g = (const sbit__attention_grad *)user;
    const sbit__attention *a = g->a;
    const int64_t n = index / a->kv_heads, kv = index % a->kv_heads;
    const int64_t heads = a->q_heads / a->kv_heads, total = a->total;
    double *own = (double *)(void *)(g->t.scratch + g->t.worker_bytes * (size_t)worker);
    double *p = own + total, *top = p + total, *dp = top + total, *dk = dp + total;
    double *const rows[3] = {NULL, dk, dk + total * a->size};
    memset(dk, 0, (size_t)(total * (a->size + a->v_size)) * sizeof *dk);
    for (int64_t head = kv * heads; head < (kv + 1) * heads; head++) {
        for (int64_t i = 0; i < a->q_length; i++) {
            sbit__attention_grad_weights(g, n, head, i, own, top, p);
            sbit__attention_grad_query(g, n, head, i, top, p, dp, dk, rows[2]);
        }
    }
    for (int32_t which = 1; which < 3; which++) {
        const int64_t size = which == 1 ? a->size : a->v_size;
        for (int64_t j = 0; j < total; j++) {
            int32_t input = 0;
            const int64_t at = sbit__attention_grad_row(g, which, n, kv, j, &input);
            for (int64_t c = 0; g->out[input] != NULL && c < size; c++) {
                sbit__real_set(g->wide, g->out[input], at + c, rows[which][j * size + c]);
            }
        }
    }
}

/* A product into `to`, or added to what is there, through `part`; they lie alike. */
static void sbit__attention_grad_sum(const sbit__attention_grad *g, sbit__gemm *gemm, bool adds,
                                     float *to, float *part, void *scratch)
{
    const int64_t step = gemm->ldc;
    gemm->c = adds ? part : to;
    gemm->ldc = adds ? gemm->n : step;
    sbit__gemm_run(g->t.call->ctx, gemm, scratch);
    for (int64_t i = 0; adds && i < gemm->m; i++) {
        g->t.call->kernels->f32_binary(SBIT__BINARY_ADD, gemm->n, to + i * step, 1,
                                       part + i * gemm->n, 1, to + i * step);
    }
}

/* Some queries of one head; adds: dk and dv hold what others gave. */
static void sbit__attention_grad_piece(const sbit__attention_grad *g, int64_t n, int64_t head,
                                       int64_t row, int64_t rows, bool adds, char *scratch)
{
    const sbit__attention *a = g->a;
    const sbit_kernels *kernels = g->t.call->kernels;
    const int64_t kv = head / (a->q_heads / a->kv_heads), most = sbit__attention_grad_rows(a);
    const int64_t q = n * a->q_step[0] + head * a->q_step[1] + row * a->q_step[2];
    const int64_t k = n * a->k_step[0] + kv * a->k_step[1];
    const int64_t v = n * a->v_step[0] + kv * a->v_step[1];
    const int64_t y = n * a->y_step[0] + head * a->y_step[1] + row * a->y_step[2];
    const float *dy = (const float *)g->in[7] + y;
    float *s = (float *)(void *)scratch, *dp = s + most * a->total, *part = dp + most * a->total;
    scratch += sbit__align64((size_t)(a->total * (2 * most + a->size + a->v_size)) * sizeof(float));
    double *bias = (double *)(void *)scratch;
    scratch += sbit__align64((size_t)a->total * sizeof(double));
    sbit__gemm gemm;
    sbit__attention_grad_gemm(a, SBIT__ATTENTION_SCORES, rows, &gemm);
    gemm.a = (const float *)g->in[0] + q;
    gemm.b = (const float *)g->in[1] + k;
    gemm.c = s;
    sbit__gemm_run(g->t.call->ctx, &gemm, scratch);
    sbit__attention_weights32(&g->t, n, head, row, rows, bias, s);
    if (g->out[2] != NULL) {
        sbit__attention_grad_gemm(a, SBIT__ATTENTION_DV, rows, &gemm);
        gemm.a = s;
        gemm.b = dy;
        sbit__attention_grad_sum(g, &gemm, adds, (float *)g->out[2] + v, part, scratch);
    }
    sbit__attention_grad_gemm(a, SBIT__ATTENTION_DP, rows, &gemm);
    gemm.a = dy;
    gemm.b = (const float *)g->in[2] + v;
    gemm.c = dp;
    sbit__gemm_run(g->t.call->ctx, &gemm, scratch);
    for (int64_t i = 0; i < rows; i++) {
        float *line = dp + i * a->total;
        const float *p = s + i * a->total, scale = (float)a->scale;
        const float along = kernels->f32_dot(a->total, p, line);
        kernels->f32_scale_add(a->total, line, scale, -scale * along, line);
        kernels->f32_binary(SBIT__BINARY_MUL, a->total, p, 1, line, 1, line);
    }
    if (g->out[0] != NULL) {
        sbit__attention_grad_gemm(a, SBIT__ATTENTION_DQ, rows, &gemm);
        gemm.a = dp;
        gemm.b = (const float *)g->in[1] + k;
        gemm.c = (float *)g->out[0] + q;
        sbit__gemm_run(g->t.call->ctx, &gemm, scratch);
    }
    if (g->out[1] != NULL) {
        sbit__attention_grad_gemm(a, SBIT__ATTENTION_DK, rows, &gemm);
        gemm.a = dp;
        gemm.b = (const float *)g->in[0] + q;
        sbit__attention_grad_sum(g, &gemm, adds, (float *)g->out[1] + k, part, scratch);
    }
}

static void sbit__attention_grad_products(void *user, int64_t index, int32_t worker)
{
    const sbit__attention_grad *g = (const sbit__attention_grad *)user;
    const sbit__attention *a = g->a;
    const int64_t n = index / a->kv_heads, heads = a->q_heads / a->kv_heads;
    const int64_t first = index % a->kv_heads * heads, most = sbit__attention_grad_rows(a);
    char *scratch = g->t.scratch + g->t.worker_bytes * (size_t)worker;
    for (int64_t head = first; head < first + heads; head++) {
        for (int64_t row = 0; row < a->q_length; row += most) {
            const int64_t rest = a->q_length - row;
            sbit__attention_grad_piece(g, n, head, row, rest < most ? rest : most,
                                       head > first || row > 0, scratch);
        }
    }
}

static sbit_status sbit__attention_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__attention a;
    sbit__attention_grad g;
    const int32_t rank = call->in_type[0]->rank;
    SBIT__TRY(sbit__op_kept(call, &a, sizeof a, error));
    memset(&g, 0, sizeof g);
    g.a = g.t.a = &a;
    g.t.call = call;
    SBIT__TRY(sbit__attention_mask(call, &g.t, error));
    SBIT__TRY(sbit__attention_valid(call, &g.t, error));
    sbit__attention_steps(rank, a.kv_heads, a.kv_length, a.size, 1, g.k_step);
    sbit__attention_steps(rank, a.kv_heads, a.kv_length, a.v_size, 1, g.v_step);
    g.wide = call->in[0]->dtype == SBIT_F64;
    const bool fast = sbit__attention_grad_fast(call, &a);
    for (int32_t i = 0; i < 8; i++) {
        g.in[i] = sbit__in(call, i) != NULL ? call->in[i]->data : NULL;
    }
    for (int32_t i = 0; i < 6; i++) {
        g.out[i] = sbit__out(call, i) != NULL ? call->out[i]->data : NULL;
        if (g.out[i] != NULL && !fast) {
            memset(g.out[i], 0, sbit_tensor_bytes(call->out[i]));
        }
    }
    for (int32_t i = 1; i < 3 && a.parts > 1; i++) { /* packed: only float32, and fast */
        g.in[i] = (const float *)g.in[i] + i * a.q_heads * a.size;
        g.out[i] = (float *)g.out[0] + i * a.q_heads * a.size;
    }
    g.t.open = sbit__attention_open(&g.t);
    g.t.scratch = (char *)call->scratch;
    g.t.worker_bytes = sbit__attention_grad_bytes(call, &a);
    if (fast) {
        sbit_ctx_parallel(call->ctx, a.batch * a.kv_heads, sbit__attention_grad_products, &g);
        return SBIT_OK;
    }
    for (int64_t i = 0; g.out[3] != NULL && i < a.batch * a.kv_heads; i++) {
        sbit__attention_grad_head(&g, i, 0); /* heads and samples may share the mask */
    }
    if (g.out[3] == NULL) {
        sbit_ctx_parallel(call->ctx, a.batch * a.kv_heads, sbit__attention_grad_head, &g);
    }
    return SBIT_OK;
}

/* >>rotary: RotaryEmbedding: pairs of a head's first `rotated` elements are turned by the angle
 * whose cosine and sine stand in the caches, at the token's position. */

static sbit_status sbit__rotary_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 3, 4, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x6, 0, error));
    const int32_t rank = call->in_type[0]->rank;
    if (rank >= 0 && rank != 3 && rank != 4) {
        return sbit__attention_bad(call, "its input has rank 3 or 4", error);
    }
    if (rank == 3 && sbit_node_int(call->node, "num_heads", 0) < 1) {
        return sbit__attention_bad(call, "an input of rank 3 needs attribute num_heads", error);
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

typedef struct sbit__rotary {
    int64_t batch, heads, length, size, rotated, step[3];
    int64_t cache_rows; /* of the caches, if there are positions */
    bool interleaved;
    const float *x, *cosine, *sine;
    const int64_t *positions; /* NULL: the caches have a row for each token of each sample */
    float *y;
} sbit__rotary;

static sbit_status sbit__rotary_of(const sbit_op_call *call, sbit__rotary *r, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *cosine = call->in[1], *sine = call->in[2];
    const sbit_tensor *positions = sbit__in(call, 3);
    memset(r, 0, sizeof *r);
    r->batch = x->dims[0];
    r->heads = x->rank == 4 ? x->dims[1] : sbit_node_int(call->node, "num_heads", 0);
    r->length = x->dims[x->rank - 2];
    r->size = x->rank == 4 ? x->dims[3] : x->dims[2] / r->heads;
    r->rotated = sbit_node_int(call->node, "rotary_embedding_dim", 0);
    r->rotated = r->rotated == 0 ? r->size : r->rotated;
    r->interleaved = sbit_node_int(call->node, "interleaved", 0) != 0;
    if ((x->rank == 3 && (x->dims[2] % r->heads != 0 || x->dims[2] < r->heads)) || r->rotated < 0 ||
        r->rotated % 2 != 0 || r->rotated > r->size) {
        return sbit__attention_bad(call,
                                   "heads of even size that hold rotary_embedding_dim are "
                                   "wanted",
                                   error);
    }
    sbit__attention_steps(x->rank, r->heads, r->length, r->size, 1, r->step);
    const int32_t rank = positions != NULL ? 2 : 3;
    const int64_t rows = positions != NULL ? cosine->dims[0] : r->batch * r->length;
    if (cosine->rank != rank || !sbit_tensor_same_shape(cosine, sine) ||
        cosine->dims[rank - 1] != r->rotated / 2 ||
        sbit_tensor_count(cosine) != rows * (r->rotated / 2)) {
        return sbit__attention_bad(call, "the caches of cosines and sines do not fit", error);
    }
    if (positions != NULL &&
        (positions->dtype != SBIT_I64 || sbit_tensor_count(positions) != r->batch * r->length)) {
        return sbit__attention_bad(call, "position_ids has one int64 for each token", error);
    }
    r->positions = positions != NULL ? (const int64_t *)positions->data : NULL;
    for (int64_t i = 0; r->positions != NULL && i < r->batch * r->length; i++) {
        if (r->positions[i] < 0 || r->positions[i] >= rows) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "position %lld is outside the caches, which have %lld rows",
                                (long long)r->positions[i], (long long)rows);
        }
    }
    r->x = (const float *)x->data;
    r->cosine = (const float *)cosine->data;
    r->sine = (const float *)sine->data;
    r->y = (float *)call->out[0]->data;
    return SBIT_OK;
}

static void sbit__rotary_tokens(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__rotary *r = (const sbit__rotary *)user;
    const int64_t half = r->rotated / 2;
    (void)worker;
    for (int64_t token = begin; token < end; token++) {
        const int64_t row = r->positions != NULL ? r->positions[token] : token;
        const float *cosine = r->cosine + row * half, *sine = r->sine + row * half;
        for (int64_t head = 0; head < r->heads; head++) {
            const int64_t at =
                token / r->length * r->step[0] + head * r->step[1] + token % r->length * r->step[2];
            const float *x = r->x + at;
            float *y = r->y + at;
            for (int64_t i = 0; i < half; i++) {
                const int64_t a = r->interleaved ? 2 * i : i;
                const int64_t b = r->interleaved ? 2 * i + 1 : i + half;
                const float left = x[a], right = x[b];
                y[a] = cosine[i] * left - sine[i] * right;
                y[b] = sine[i] * left + cosine[i] * right;
            }
            for (int64_t i = r->rotated; i < r->size; i++) {
                y[i] = x[i];
            }
        }
    }
}

static sbit_status sbit__rotary_run32(const sbit_op_call *call, sbit_error *error)
{
    sbit__rotary rotary;
    SBIT__TRY(sbit__rotary_of(call, &rotary, error));
    if (sbit_tensor_count(call->in[0]) > 0) {
        sbit__parallel_range(call->ctx, rotary.batch * rotary.length,
                             1 + 16384 / (rotary.heads * rotary.size), sbit__rotary_tokens,
                             &rotary);
    }
    return SBIT_OK;
}

static sbit_status sbit__rotary_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__rotary_run32, sbit__rotary_run32, error);
}

/* >>append: sbit AppendKeys(past?, fresh, first, most) {heads}: [batch, heads, room, size] with the
 * first[n] past rows of each sample, the new ones behind them and zeros; room is `most`, or that of
 * the past if it is larger. What GroupQueryAttention keeps. */

static sbit_status sbit__append_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t heads = sbit_node_int(call->node, "heads", 0);
    SBIT__TRY(sbit__op_inputs(call, 0, 4, error));
    for (int32_t i = 0; i < 4; i++) {
        const sbit_type *type = sbit__in_type(call, i);
        if ((type == NULL && i > 0) ||
            (type != NULL && i < 2 && type->rank >= 0 && type->rank != 4 - i)) {
            return sbit__attention_bad(call, "the past has rank 4, what is new rank 3", error);
        }
    }
    const sbit_type *fresh = call->in_type[1];
    sbit_type *out = sbit__op_out(call, 0, fresh->dtype, 4);
    if (out != NULL && fresh->rank == 3 && heads > 0) {
        out->dims[0] = fresh->dims[0];
        out->dims[1] = sbit__dim(heads);
        out->dims[3] = sbit__dim_div(fresh->dims[2], sbit__dim(heads));
    }
    return SBIT_OK;
}

static sbit_status sbit__append_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *past = sbit__in(call, 0), *fresh = call->in[1], *first = call->in[2];
    const int64_t heads = sbit_node_int(call->node, "heads", 0);
    const int64_t batch = fresh->dims[0], length = fresh->dims[1];
    const int64_t size = heads > 0 ? fresh->dims[2] / heads : 0;
    const int64_t had = past != NULL ? past->dims[2] : 0;
    if (size < 1 || fresh->dims[2] != heads * size || first->dtype != SBIT_I64 ||
        sbit_tensor_count(first) != batch || sbit_tensor_count(call->in[3]) != 1 ||
        (past != NULL && (past->dtype != fresh->dtype || past->dims[0] != batch ||
                          past->dims[1] != heads || past->dims[3] != size))) {
        return sbit__attention_bad(call, "past and new keys do not fit together", error);
    }
    const int64_t most = sbit__tensor_i64_at(call->in[3], 0);
    const int64_t dims[4] = {batch, heads, had > most ? had : most, size};
    const int64_t *at = (const int64_t *)first->data;
    sbit_tensor *out = NULL;
    for (int64_t n = 0; n < batch; n++) {
        if (at[n] < 0 || at[n] > had || length > dims[2] || at[n] > dims[2] - length) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "sample %lld has %lld past keys of %lld, and room for %lld",
                                (long long)n, (long long)at[n], (long long)had,
                                (long long)dims[2]);
        }
    }
    SBIT__TRY(sbit__op_output(call, 0, fresh->dtype, 4, dims, &out, error));
    if (out == NULL) {
        return SBIT_OK;
    }
    memset(out->data, 0, sbit_tensor_bytes(out));
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t head = 0; head < heads; head++) {
            const int64_t to = (n * heads + head) * dims[2] * size;
            if (at[n] > 0) {
                sbit__elem_copy(fresh->dtype, out->data, to, past->data,
                                (n * heads + head) * had * size, at[n] * size);
            }
            for (int64_t j = 0; j < length; j++) {
                sbit__elem_copy(fresh->dtype, out->data, to + (at[n] + j) * size, fresh->data,
                                ((n * length + j) * heads + head) * size, size);
            }
        }
    }
    return SBIT_OK;
}

/* ---- rows */

#define SBIT__ATTENTION_ROW(domain, version)                                                       \
    {                                                                                              \
        domain, "Attention", version, SBIT_T_FLOATS, 0, 0, sbit__attention_infer,                  \
            sbit__attention_prepare, sbit__attention_run, sbit__grad_attention, NULL, NULL, NULL,  \
            sbit__attention_macs                                                                   \
    }

#define SBIT__ROTARY_ROW(domain, version)                                                          \
    {                                                                                              \
        domain, "RotaryEmbedding", version,                                                        \
            SBIT_T(SBIT_F32) | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16), 0, 0, sbit__rotary_infer,      \
            sbit__op_prepare_f32, sbit__rotary_run, sbit__grad_rotary, NULL, NULL, NULL, NULL      \
    }

static const sbit_op_row sbit__attention_table[] = {
    SBIT__ATTENTION_ROW("", 23),
    SBIT__ATTENTION_ROW("", 24),
    SBIT__ATTENTION_ROW("", 25),
    SBIT__ATTENTION_ROW("sbit", 1), /* of any opset: what operators of com.microsoft become */
    SBIT__ROTARY_ROW("", 23),
    SBIT__ROTARY_ROW("sbit", 1),
    {SBIT__GRAD_DOMAIN, "AttentionGrad", 1, SBIT__T_GRAD, 0, 0, sbit__attention_grad_infer,
     sbit__attention_grad_prepare, sbit__attention_grad_run, NULL, NULL, NULL, NULL, NULL},
    {"sbit", "AppendKeys", 1, SBIT_T_FLOATS, SBIT_OP_DYNAMIC, 0, sbit__append_infer, NULL,
     sbit__append_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__ATTENTION_ROW
#undef SBIT__ROTARY_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_attention(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__attention_table);
    return sbit__attention_table;
}

#endif /* SPARSEBIT_NO_OPS_ATTENTION */
