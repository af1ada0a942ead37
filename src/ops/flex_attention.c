/* flex_attention.c: FlexAttention of ai.onnx.preview. >>flex_attention
 *
 * Called by: infer, exec. Calls: bodies through call->run_body and call->infer_body.
 * Y = prob_mod(Softmax(score_mod(scale Q K'))) V, all of rank 4; the two changes are bodies that
 * see the whole matrix [N, heads, L, S] in the softmax's type. Everything else is computed in
 * float64 and rounded to that type where a body sees it. What is trained becomes those operators.
 */
#include "elements_private.h"
#include "expand_private.h"
#include "window_private.h"

#include <math.h> /* exp, sqrt */

#if !SPARSEBIT_NO_OPS_ATTENTION

typedef struct sbit__flex {
    int64_t batch, q_heads, kv_heads, length, keys, size, v_size;
    double scale;
    sbit_dtype precision; /* of the softmax */
} sbit__flex;

static sbit_dtype sbit__flex_precision(const sbit_op_call *call)
{
    const sbit_dtype dtype = call->in_type[0]->dtype;
    const int64_t wanted = sbit_node_int(call->node, "softmax_precision", 0);
    return wanted != 0 ? (sbit_dtype)wanted : dtype == SBIT_F64 ? SBIT_F64 : SBIT_F32;
}

/* The body of a change; NULL if there is none. */
static sbit_status sbit__flex_body(const sbit_op_call *call, const char *name,
                                   const sbit_graph **body, sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    *body = attr != NULL ? attr->g : NULL;
    return *body == NULL ||
                   (sbit_graph_input_count(*body) == 1 && sbit_graph_output_count(*body) == 1)
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                              "%s has one input and one output", name);
}

static sbit_status sbit__flex_check(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *q = call->in_type[0], *k = call->in_type[1];
    /* pairs of inputs and axes that have the same length */
    static const int8_t same[5][4] = {
        {0, 0, 1, 0}, {0, 0, 2, 0}, {0, 3, 1, 3}, {1, 1, 2, 1}, {1, 2, 2, 2}};
    SBIT__TRY(sbit__op_dtypes(call, 0x6, 0, error));
    const int64_t precision = (int64_t)sbit__flex_precision(call);
    if (precision < 0 || precision > 31 || (SBIT_T_FLOATS >> precision & 1u) == 0) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "softmax_precision is a float type");
    }
    for (int32_t i = 0; i < 3; i++) {
        if (call->in_type[i]->rank >= 0 && call->in_type[i]->rank != 4) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "Q, K and V have rank 4");
        }
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(same); i++) {
        const sbit_type *a = call->in_type[same[i][0]], *b = call->in_type[same[i][2]];
        if (a->rank == 4 && b->rank == 4) {
            const sbit_dim x = a->dims[same[i][1]], y = b->dims[same[i][3]];
            if (sbit__dim_known(x) && sbit__dim_known(y) && x.value != y.value) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "Q, K and V do not fit together");
            }
        }
    }
    if (q->rank == 4 && k->rank == 4 && sbit__dim_known(q->dims[1]) &&
        sbit__dim_known(k->dims[1]) &&
        (k->dims[1].value < 1 || q->dims[1].value % k->dims[1].value != 0)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the query heads are no multiple of the key heads");
    }
    return SBIT_OK;
}

static sbit_status sbit__flex_infer(const sbit_op_call *call, sbit_error *error)
{
    static const char *const names[2] = {"score_mod", "prob_mod"};
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    SBIT__TRY(sbit__flex_check(call, error));
    const sbit_type *q = call->in_type[0], *k = call->in_type[1], *v = call->in_type[2];
    sbit_type *out = sbit__op_out(call, 0, q->dtype, 4);
    for (int32_t i = 0; out != NULL && q->rank == 4 && i < 3; i++) {
        out->dims[i] = q->dims[i];
    }
    if (out != NULL && v->rank == 4) {
        out->dims[3] = v->dims[3];
    }
    for (size_t i = 0; i < 2; i++) {
        const sbit_graph *body = NULL;
        sbit_type scores = sbit__type_unknown(), result = sbit__type_unknown();
        const sbit_type *inputs[1];
        SBIT__TRY(sbit__flex_body(call, names[i], &body, error));
        if (body == NULL || call->infer_body == NULL || q->rank != 4 || k->rank != 4) {
            continue;
        }
        scores.kind = SBIT_KIND_TENSOR;
        scores.dtype = sbit__flex_precision(call);
        scores.rank = 4;
        for (int32_t d = 0; d < 3; d++) {
            scores.dims[d] = q->dims[d];
        }
        scores.dims[3] = k->dims[2];
        inputs[0] = &scores;
        SBIT__TRY(call->infer_body(call, body, inputs, &result, error));
    }
    return SBIT_OK;
}

static void sbit__flex_of(const sbit_op_call *call, sbit__flex *f)
{
    const sbit_type *q = call->in_type[0], *k = call->in_type[1], *v = call->in_type[2];
    f->batch = q->dims[0].value;
    f->q_heads = q->dims[1].value;
    f->length = q->dims[2].value;
    f->size = q->dims[3].value;
    f->kv_heads = k->dims[1].value;
    f->keys = k->dims[2].value;
    f->v_size = v->dims[3].value;
    f->scale = (double)sbit_node_float(call->node, "scale", 0.0f);
    if (sbit_node_attr(call->node, "scale") == NULL) {
        f->scale = f->size > 0 ? 1.0 / sqrt((double)f->size) : 1.0;
    }
    f->precision = sbit__flex_precision(call);
}

static sbit_status sbit__flex_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__flex f;
    int64_t bytes = 0;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    for (int32_t i = 0; i < 3; i++) {
        if (!sbit__type_static(call->in_type[i])) {
            return SBIT_OK;
        }
    }
    sbit__flex_of(call, &f);
    if (!sbit__mul_i64(f.batch * f.q_heads, f.length, &bytes) ||
        !sbit__mul_i64(bytes, f.keys, &bytes) || !sbit__mul_i64(bytes, 8, &bytes)) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
    }
    *call->scratch_bytes = sbit__align64((size_t)bytes);
    return SBIT_OK;
}

/* Runs a change on `matrix`; what comes out has its type and shape, in the session's memory. */
static sbit_status sbit__flex_change(const sbit_op_call *call, const char *name,
                                     sbit_tensor *matrix, sbit_error *error)
{
    const sbit_graph *body = NULL;
    sbit_value in, out;
    const sbit_value *inputs[1];
    SBIT__TRY(sbit__flex_body(call, name, &body, error));
    if (body == NULL) {
        return SBIT_OK;
    }
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    in.kind = SBIT_KIND_TENSOR;
    in.tensor = *matrix;
    inputs[0] = &in;
    SBIT__TRY(call->run_body(call, body, inputs, 1, &out, 1, error));
    if (out.kind != SBIT_KIND_TENSOR || out.tensor.dtype != matrix->dtype ||
        !sbit_tensor_same_shape(&out.tensor, matrix)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%s changes the type or shape", name);
    }
    *matrix = out.tensor;
    return SBIT_OK;
}

/* The key head, of all samples, that row `row` of the matrix looks at. */
static int64_t sbit__flex_kv(const sbit__flex *f, int64_t row)
{
    const int64_t head = row / f->length, share = f->q_heads / f->kv_heads;
    return head / f->q_heads * f->kv_heads + head % f->q_heads / share;
}

static void sbit__flex_scores(const sbit_op_call *call, const sbit__flex *f, sbit_tensor *scores)
{
    for (int64_t row = 0; row < f->batch * f->q_heads * f->length; row++) {
        const int64_t kv = sbit__flex_kv(f, row);
        for (int64_t j = 0; j < f->keys; j++) {
            double sum = 0.0;
            for (int64_t c = 0; c < f->size; c++) {
                sum += sbit__tensor_f64_at(call->in[0], row * f->size + c) *
                       sbit__tensor_f64_at(call->in[1], (kv * f->keys + j) * f->size + c);
            }
            sbit__tensor_set_f64(scores, row * f->keys + j, sum * f->scale);
        }
    }
}

/* Softmax of the rows of `from` to `to`, which may be the same; a row of -inf gives zeros. */
static void sbit__flex_softmax(const sbit__flex *f, const sbit_tensor *from, sbit_tensor *to)
{
    for (int64_t row = 0; row < f->batch * f->q_heads * f->length; row++) {
        const int64_t at = row * f->keys;
        double most = -(double)INFINITY, sum = 0.0;
        for (int64_t j = 0; j < f->keys; j++) {
            const double score = sbit__tensor_f64_at(from, at + j);
            most = score > most ? score : most;
        }
        for (int64_t j = 0; j < f->keys; j++) {
            sum += exp(sbit__tensor_f64_at(from, at + j) - most);
        }
        for (int64_t j = 0; j < f->keys; j++) {
            const double score = sbit__tensor_f64_at(from, at + j);
            sbit__tensor_set_f64(to, at + j,
                                 most > -(double)INFINITY ? exp(score - most) / sum : 0.0);
        }
    }
}

static void sbit__flex_values(const sbit_op_call *call, const sbit__flex *f,
                              const sbit_tensor *probs)
{
    for (int64_t row = 0; row < f->batch * f->q_heads * f->length; row++) {
        const int64_t kv = sbit__flex_kv(f, row);
        for (int64_t c = 0; c < f->v_size; c++) {
            double sum = 0.0;
            for (int64_t j = 0; j < f->keys; j++) {
                sum += sbit__tensor_f64_at(probs, row * f->keys + j) *
                       sbit__tensor_f64_at(call->in[2], (kv * f->keys + j) * f->v_size + c);
            }
            sbit__tensor_set_f64(call->out[0], row * f->v_size + c, sum);
        }
    }
}

static sbit_status sbit__flex_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__flex f;
    sbit_tensor matrix, probs;
    sbit__flex_of(call, &f);
    memset(&matrix, 0, sizeof matrix);
    matrix.dtype = f.precision;
    matrix.rank = 4;
    matrix.dims[0] = f.batch;
    matrix.dims[1] = f.q_heads;
    matrix.dims[2] = f.length;
    matrix.dims[3] = f.keys;
    matrix.data = call->scratch;
    probs = matrix;
    if (sbit_tensor_count(call->out[0]) == 0) {
        return SBIT_OK;
    }
    sbit__flex_scores(call, &f, &matrix);
    SBIT__TRY(sbit__flex_change(call, "score_mod", &matrix, error));
    sbit__flex_softmax(&f, &matrix, &probs);
    SBIT__TRY(sbit__flex_change(call, "prob_mod", &probs, error));
    sbit__flex_values(call, &f, &probs);
    return SBIT_OK;
}

/* >>written with others */

/* The nodes of a change, in front of the node that has it. */
static sbit_value_id sbit__flex_inline(sbit__expand *e, const char *name, sbit_value_id matrix)
{
    const sbit_attr *attr = sbit_node_attr(sbit_graph_node(e->graph, e->node.id), name);
    if (attr != NULL && attr->g != NULL && e->status == SBIT_OK) {
        const sbit_value_id in = matrix;
        e->status = sbit__graph_inline_body(attr->g, e->before, &in, &matrix, e->error);
    }
    return matrix;
}

/* Query heads that share keys become rows of one matrix, and back: [0, heads, -1, last]. */
static sbit_value_id sbit__flex_heads(sbit__expand *e, bool shared, sbit_value_id x, int64_t heads,
                                      int64_t last, sbit_value_id out)
{
    const int64_t dims[4] = {0, heads, -1, last};
    return shared ? sbit__expand_op(e, "Reshape", x, sbit__expand_ints(e, dims, 4), NULL, out) : x;
}

static sbit_status sbit__flex_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    static const int64_t flip[] = {0, 1, 3, 2}, last[] = {-1};
    const sbit_value_id none = sbit__expand_none;
    const sbit_attr axis = sbit__attr_int("axis", -1), low = sbit__attr_int("detect_positive", 0);
    sbit__expand e = sbit__expand_of(graph, id, error);
    const int64_t heads = sbit__expand_dim(&e, 0, 1), kv = sbit__expand_dim(&e, 1, 1);
    const int64_t size = sbit__expand_dim(&e, 0, 3), keys = sbit__expand_dim(&e, 1, 2);
    const int64_t v_size = sbit__expand_dim(&e, 2, 3);
    const sbit_attr *scale = sbit_node_attr(&e.node, "scale");
    const sbit_dtype dtype = e.dtype, usual = dtype == SBIT_F64 ? SBIT_F64 : SBIT_F32;
    const int64_t wanted = sbit_node_int(&e.node, "softmax_precision", 0);
    const bool shared = heads != kv;
    sbit_value_id inputs[3];
    sbit__expand_needs(&e, 20);
    if (heads < 1 || kv < 1 || size < 1 || (shared && (keys < 1 || v_size < 1))) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "the sizes of its heads must be known");
        return e.status;
    }
    const double factor = scale != NULL ? (double)scale->f : 1.0 / sqrt((double)size);
    sbit_value_id x = sbit__flex_heads(&e, shared, e.node.inputs[0], kv, size, none);
    x = sbit__expand_op(&e, "MatMul", x,
                        sbit__expand_transpose(&e, e.node.inputs[1], flip, 4, none), NULL, none);
    x = sbit__expand_op(&e, "Mul", x, sbit__expand_scalar(&e, factor), NULL, none);
    e.dtype = wanted != 0 ? (sbit_dtype)wanted : usual;
    x = sbit__expand_cast(&e, sbit__flex_heads(&e, shared, x, heads, keys, none), e.dtype);
    x = sbit__flex_inline(&e, "score_mod", x);
    /* a row of -inf gives zeros, and has the gradient 0 */
    const sbit_value_id zero = sbit__expand_scalar(&e, 0.0);
    const sbit_value_id most =
        sbit__expand_op(&e, "ReduceMax", x, sbit__expand_ints(&e, last, 1), NULL, none);
    inputs[0] = sbit__expand_op(&e, "IsInf", most, none, &low, none);
    inputs[1] = zero;
    for (int pass = 0; pass < 2; pass++) {
        inputs[2] = pass == 0 ? x : sbit__expand_op(&e, "Softmax", x, none, &axis, none);
        x = sbit__expand_value(&e, "matrix");
        sbit__expand_node(&e, "", "Where", inputs, 3, &x, 1, NULL, 0);
    }
    x = sbit__expand_cast(&e, sbit__flex_inline(&e, "prob_mod", x), dtype);
    x = sbit__flex_heads(&e, shared, x, kv, keys, none);
    if (e.status == SBIT_OK) {
        sbit__expand_erase(&e);
    }
    const sbit_value_id out = sbit__expand_out(&e, 0);
    x = sbit__expand_op(&e, "MatMul", x, e.node.inputs[2], NULL, shared ? none : out);
    (void)sbit__flex_heads(&e, shared, x, heads, v_size, out);
    return e.status;
}

static const sbit_op_row sbit__flex_table[] = {
    {"ai.onnx.preview", "FlexAttention", 1, SBIT_T_FLOATS, SBIT_OP_BODY, 0, sbit__flex_infer,
     sbit__flex_prepare, sbit__flex_run, NULL, sbit__flex_expand, NULL, NULL, NULL},
};

SBIT__FN const sbit_op_row *sbit__op_rows_flex_attention(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__flex_table);
    return sbit__flex_table;
}

#endif /* SPARSEBIT_NO_OPS_ATTENTION */
