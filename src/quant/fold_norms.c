/* fold_norms.c: BatchNormalization behind a quantized Conv goes into scales and bias. >>fold-norms
 *
 * Called by: quant_build (EXPORT.FOLD_BN). Calls: passes.
 * y = r (conv + bias) + shift for each channel: the weight's scale takes in |r|, the bias r and
 * shift; integers stay as they were trained, but for the sign of channels with r < 0. Left as it
 * is: where something stands between, where r is 0, where a sign would leave the grid, and behind a
 * weight with one scale for all channels, which was asked for.
 */
#include "quant_private.h"

typedef struct sbit__norm_fold {
    sbit_graph *graph;
    sbit__arena arena;
    const sbit_node *conv, *weight, *norm; /* weight: its DequantizeLinear */
    int64_t channels, each;                /* integers of a channel */
    double *ratio, *shift;
    float *scale, *bias; /* as they become */
} sbit__norm_fold;

/* A vector of the normalization, of float32. */
static const float *sbit__norm_fold_vector(const sbit__norm_fold *f, size_t input)
{
    const sbit_tensor *t = sbit__const_in(f->graph, f->norm, input);
    return t != NULL && t->dtype == SBIT_F32 && t->rank == 1 && t->dims[0] == f->channels
               ? (const float *)t->data
               : NULL;
}

/* The DequantizeLinear that makes a node's input. */
static const sbit_node *sbit__norm_fold_dequantize(const sbit__norm_fold *f, size_t input)
{
    const sbit_node *made = sbit__producer(f->graph, sbit__node_in(f->conv, input));
    const sbit_tensor *scale =
        made != NULL && sbit__is_op(made, "DequantizeLinear") ? sbit__const_in(f->graph, made, 1)
                                                              : NULL;
    return scale != NULL && scale->dtype == SBIT_F32 ? made : NULL;
}

/* Whether the pattern is there; fills in what belongs to it. */
static bool sbit__norm_fold_match(sbit__norm_fold *f, const sbit_node *norm)
{
    f->norm = norm;
    f->conv = sbit__producer(f->graph, norm->inputs[0]);
    if (norm->input_count != 5 || sbit_node_int(norm, "training_mode", 0) != 0 ||
        !sbit__single_output(f->graph, norm) || f->conv == NULL || !sbit__is_op(f->conv, "Conv") ||
        !sbit__sole_use(f->graph, norm->inputs[0])) {
        return false;
    }
    f->weight = sbit__norm_fold_dequantize(f, 1);
    const sbit_tensor *q = f->weight != NULL ? sbit__const_in(f->graph, f->weight, 0) : NULL;
    if (q == NULL || q->rank < 2 || q->dims[0] < 1 ||
        !sbit__sole_use(f->graph, f->weight->outputs[0]) ||
        sbit_node_int(f->weight, "block_size", 0) != 0) {
        return false;
    }
    f->channels = q->dims[0];
    f->each = sbit_tensor_count(q) / f->channels;
    const sbit_tensor *scale = sbit__const_in(f->graph, f->weight, 1);
    const bool rows = f->channels == 1 || sbit_node_int(f->weight, "axis", 1) == 0;
    return rows && sbit_tensor_count(scale) == f->channels && sbit__norm_fold_vector(f, 1) != NULL &&
           sbit__norm_fold_vector(f, 2) != NULL && sbit__norm_fold_vector(f, 3) != NULL &&
           sbit__norm_fold_vector(f, 4) != NULL;
}

/* The bias that the convolution has so far; false: it is computed. */
static bool sbit__norm_fold_bias(const sbit__norm_fold *f, double *bias)
{
    const sbit_value_id id = sbit__node_in(f->conv, 2);
    const sbit_tensor *own = sbit__const_in(f->graph, f->conv, 2);
    const sbit_node *made = id.idx != 0 && own == NULL ? sbit__norm_fold_dequantize(f, 2) : NULL;
    const sbit_tensor *q = made != NULL ? sbit__const_in(f->graph, made, 0) : own;
    const sbit_tensor *scale = made != NULL ? sbit__const_in(f->graph, made, 1) : NULL;
    if (id.idx != 0 && (q == NULL || sbit_tensor_count(q) != f->channels)) {
        return false;
    }
    for (int64_t c = 0; c < f->channels; c++) {
        const int64_t at = scale != NULL && sbit_tensor_count(scale) > 1 ? c : 0;
        bias[c] = q != NULL ? sbit__tensor_f64_at(q, c) : 0.0;
        bias[c] *= scale != NULL ? sbit__tensor_f64_at(scale, at) : 1.0;
    }
    return true;
}

/* Ratios, new scales and biases; *ok false: it cannot be folded. */
static sbit_status sbit__norm_fold_compute(sbit__norm_fold *f, bool *ok, sbit_error *error)
{
    const size_t n = (size_t)f->channels;
    const double epsilon = (double)sbit_node_float(f->norm, "epsilon", 1e-5f);
    const sbit_tensor *scale = sbit__const_in(f->graph, f->weight, 1);
    const sbit_tensor *zero = sbit__const_in(f->graph, f->weight, 2);
    f->ratio = (double *)sbit__arena_array(&f->arena, 2 * n, sizeof(double));
    f->scale = (float *)sbit__arena_array(&f->arena, 2 * n, sizeof(float));
    if (f->ratio == NULL || f->scale == NULL) {
        return sbit__fail_oom(error, n * sizeof(double));
    }
    f->shift = f->ratio + n;
    f->bias = f->scale + n;
    *ok = sbit__norm_fold_bias(f, f->shift);
    for (int64_t i = 0; *ok && zero != NULL && i < sbit_tensor_count(zero); i++) {
        *ok = sbit__tensor_f64_at(zero, i) == 0.0;
    }
    for (size_t c = 0; *ok && c < n; c++) {
        const double spread = (double)sbit__norm_fold_vector(f, 4)[c] + epsilon;
        const double r = (double)sbit__norm_fold_vector(f, 1)[c] / sqrt(spread);
        const double old = sbit__tensor_f64_at(scale, (int64_t)c);
        f->ratio[c] = r;
        f->scale[c] = (float)(old * fabs(r));
        f->bias[c] = (float)((f->shift[c] - (double)sbit__norm_fold_vector(f, 3)[c]) * r +
                             (double)sbit__norm_fold_vector(f, 2)[c]);
        *ok = spread > 0.0 && f->scale[c] >= FLT_MIN && f->scale[c] <= FLT_MAX;
    }
    return SBIT_OK;
}

/* Integers with the signs of the ratios; *ok false: -8 of -8..7 would become 8. */
static sbit_status sbit__norm_fold_signs(sbit__norm_fold *f, sbit_value_id *out, bool *ok, sbit_error *error)
{
    const sbit_tensor *q = sbit__const_in(f->graph, f->weight, 0);
    sbit_tensor turned = *q;
    const int64_t count = sbit_tensor_count(q);
    int8_t *to = (int8_t *)sbit__arena_array(&f->arena, (size_t)count, 1);
    bool any = false;
    int least = 0;
    if (to == NULL) {
        return sbit__fail_oom(error, (size_t)count);
    }
    *out = sbit__node_in(f->weight, 0);
    for (int64_t c = 0; c < f->channels; c++) {
        any = any || f->ratio[c] < 0.0;
    }
    *ok = !any || q->dtype == SBIT_I8;
    if (!any || !*ok) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        const int own = ((const int8_t *)q->data)[i];
        least = own < least ? own : least;
    }
    const bool edge = (-least & (-least - 1)) == 0; /* a power of two: perhaps the grid's end */
    for (int64_t i = 0; i < count; i++) {
        const int own = ((const int8_t *)q->data)[i];
        const bool turn = f->ratio[i / f->each] < 0.0;
        *ok = *ok && !(turn && edge && own == least && least < 0);
        to[i] = (int8_t)(turn ? -own : own);
    }
    turned.data = to;
    return *ok ? sbit_graph_add_constant(f->graph, sbit_graph_value(f->graph, *out)->name, &turned,
                                         out, error)
               : SBIT_OK;
}

static sbit_status sbit__norm_fold_floats(sbit__norm_fold *f, const char *name, const float *values,
                                     sbit_value_id *out, sbit_error *error)
{
    sbit_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = SBIT_F32;
    t.rank = 1;
    t.dims[0] = f->channels;
    t.data = (void *)(uintptr_t)values;
    return sbit_graph_add_constant(f->graph, name, &t, out, error);
}

/* The bias as int32 at scale_x * scale_w, if it fits, else as float. */
static sbit_status sbit__norm_fold_place_bias(sbit__norm_fold *f, bool integers, sbit_value_id *out,
                                         sbit_error *error)
{
    const sbit_node *x = integers ? sbit__norm_fold_dequantize(f, 0) : NULL;
    const sbit_tensor *x_scale = x != NULL ? sbit__const_in(f->graph, x, 1) : NULL;
    const sbit_attr axis = sbit__attr_int("axis", 0);
    const size_t n = (size_t)f->channels;
    float *scale = (float *)sbit__arena_array(&f->arena, n, sizeof *scale);
    int32_t *q = (int32_t *)sbit__arena_array(&f->arena, n, sizeof *q);
    bool fits = x_scale != NULL && sbit_tensor_count(x_scale) == 1;
    sbit_value_id inputs[2];
    sbit_tensor t;
    if (scale == NULL || q == NULL) {
        return sbit__fail_oom(error, n * sizeof *q);
    }
    for (size_t c = 0; fits && c < n; c++) {
        scale[c] = (float)sbit__tensor_f64_at(x_scale, 0) * f->scale[c];
        const double at = nearbyint((double)f->bias[c] / (double)scale[c]);
        fits = at >= -2147483648.0 && at <= 2147483647.0;
        q[c] = fits ? (int32_t)at : 0;
    }
    if (!fits) {
        return sbit__norm_fold_floats(f, "folded_bias", f->bias, out, error);
    }
    memset(&t, 0, sizeof t);
    t.dtype = SBIT_I32;
    t.rank = 1;
    t.dims[0] = f->channels;
    t.data = q;
    SBIT__TRY(sbit_graph_add_constant(f->graph, "folded_bias_quantized", &t, &inputs[0], error));
    SBIT__TRY(sbit__norm_fold_floats(f, "folded_bias_scale", scale, &inputs[1], error));
    out->idx = 0;
    return sbit__emit(f->graph, f->conv->id, "DequantizeLinear", "folded_bias", inputs, 2, &axis, 1,
                      out, error);
}

static sbit_status sbit__norm_fold_one(sbit__norm_fold *f, bool integers, sbit_error *error)
{
    const sbit_node_id conv = f->conv->id, weight = f->weight->id, norm = f->norm->id;
    const sbit_value_id y = f->norm->outputs[0], inner = f->norm->inputs[0];
    const sbit_value_id scale = sbit__node_in(f->weight, 1), zero = sbit__node_in(f->weight, 2);
    const sbit_value_id old = sbit__node_in(f->conv, 2);
    const sbit_attr axis = sbit__attr_int("axis", 0);
    sbit_value_id q = {0}, scales = {0}, bias = {0};
    bool ok = false;
    SBIT__TRY(sbit__norm_fold_compute(f, &ok, error));
    if (ok) {
        SBIT__TRY(sbit__norm_fold_signs(f, &q, &ok, error));
    }
    if (!ok) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__norm_fold_place_bias(f, integers, &bias, error));
    SBIT__TRY(sbit__norm_fold_floats(f, sbit_graph_value(f->graph, scale)->name, f->scale, &scales,
                                error));
    SBIT__TRY(sbit_graph_set_node_input(f->graph, weight, 0, q, error));
    SBIT__TRY(sbit_graph_set_node_input(f->graph, weight, 1, scales, error));
    if (zero.idx != 0) {
        sbit_tensor t = sbit_graph_value(f->graph, zero)->constant;
        sbit_value_id zeros = {0};
        t.rank = 1;
        t.dims[0] = f->channels;
        t.data = sbit__arena_array(&f->arena, (size_t)f->channels, 4);
        if (t.data == NULL) {
            return sbit__fail_oom(error, (size_t)f->channels);
        }
        memset(t.data, 0, (size_t)f->channels * 4);
        SBIT__TRY(sbit_graph_add_constant(f->graph, sbit_graph_value(f->graph, zero)->name, &t,
                                          &zeros, error));
        SBIT__TRY(sbit_graph_set_node_input(f->graph, weight, 2, zeros, error));
    }
    SBIT__TRY(sbit_graph_set_attr(f->graph, weight, &axis, error));
    SBIT__TRY(sbit_graph_set_node_input(f->graph, conv, 2, bias, error));
    const sbit_node *dead = old.idx != 0 ? sbit__producer(f->graph, old) : NULL;
    if (dead != NULL) {
        sbit__erase_unused(f->graph, dead);
    }
    sbit_graph_erase_node(f->graph, norm);
    SBIT__TRY(sbit_graph_set_node_output(f->graph, conv, 0, y, error));
    sbit__erase_dead_value(f->graph, inner);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__fold_norms(sbit_graph *graph, bool integers, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    for (sbit_node_id id = sbit_graph_first(graph); status == SBIT_OK && id.idx != 0;) {
        const sbit_node_id next = sbit_graph_next(graph, id);
        sbit__norm_fold f;
        memset(&f, 0, sizeof f);
        f.graph = graph;
        sbit__arena_init(&f.arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
        if (sbit__is_op(sbit_graph_node(graph, id), "BatchNormalization") &&
            sbit__norm_fold_match(&f, sbit_graph_node(graph, id))) {
            status = sbit__norm_fold_one(&f, integers, error);
        }
        sbit__arena_deinit(&f.arena);
        id = next;
    }
    return status;
}
