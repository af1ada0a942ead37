/* proof.c: what a quantized file proves by itself. >>proof
 *
 * Accumulators: |sum_k (w_k - zw)(x_k - zx) + b| <= max|x - zx| sum_k |w_k - zw| + |b| for every x
 * of its type. Requantization: y = round((float)sum * M) + zp with M = s_x s_w / s_y in float32 has
 * four roundings of at most 2^-24 each, so before rounding it is within 4.0000008 * 2^-24 of the
 * exact value v; beyond the range of y both saturate, so |v| is at most that range and one more.
 */
#include "proof_api.h"
#include "quant_private.h"

#include <float.h>  /* FLT_MIN */
#include <stdlib.h> /* atoi */

#define SBIT__PROOF_ROUNDINGS (4.000001 * 5.9604644775390625e-8)

/* Inputs of operators that are products of integers themselves; -1: it has none. */
typedef struct sbit__proof_roles {
    const char *op_type;
    int8_t x, x_scale, x_zero, w, w_scale, w_zero, bias, y_scale, y_zero;
    int8_t axis;   /* of the weight's output channels */
    bool product;  /* a matrix product: leading dims of w are a stack */
} sbit__proof_roles;

static const sbit__proof_roles sbit__proof_integer_ops[] = {
    {"QLinearConv", 0, 1, 2, 3, 4, 5, 8, 6, 7, 0, false},
    {"ConvInteger", 0, -1, 2, 1, -1, 3, -1, -1, -1, 0, false},
    {"QLinearMatMul", 0, 1, 2, 3, 4, 5, -1, 6, 7, -1, true},
    {"MatMulInteger", 0, -1, 2, 1, -1, 3, -1, -1, -1, -1, true},
    {"QGemm", 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, true},
};

/* Integers, and the constants that say what they mean; NULL: there are none. */
typedef struct sbit__proof_operand {
    sbit_value_id value;
    sbit_dtype dtype;
    const sbit_tensor *integers; /* of a constant */
    const sbit_tensor *scale, *zero;
    const sbit_node *dequantize; /* NULL: an input of an integer operator */
    bool open;                   /* scale or zero point are computed */
} sbit__proof_operand;

typedef struct sbit__proof_product {
    const sbit_graph *graph;
    const sbit_node *node;
    sbit__proof_operand x, w, y;
    const sbit_tensor *bias; /* int32; NULL: none */
    int32_t axis;            /* of w's output channels, from 0 */
    bool stack;              /* dims of w in front of the last two are a stack of matrices */
    bool requantized;
} sbit__proof_product;

/* >>proof products */
static const sbit_value_info *sbit__proof_input(const sbit_graph *graph, const sbit_node *node,
                                                int input)
{
    return input >= 0 && (size_t)input < node->input_count && node->inputs[input].idx != 0
               ? sbit_graph_value(graph, node->inputs[input])
               : NULL;
}

static const sbit_tensor *sbit__proof_constant(const sbit_graph *graph, const sbit_node *node,
                                               int input, bool *open)
{
    const sbit_value_info *value = sbit__proof_input(graph, node, input);
    *open = *open || (value != NULL && !value->is_constant);
    return value != NULL && value->is_constant ? &value->constant : NULL;
}

static bool sbit__proof_operand_at(const sbit_graph *graph, const sbit_node *node, int integers,
                                   int scale, int zero, sbit__proof_operand *out)
{
    const sbit_value_info *value = sbit__proof_input(graph, node, integers);
    memset(out, 0, sizeof *out);
    if (value == NULL) {
        return false;
    }
    out->value = value->id;
    out->dtype = value->is_constant ? value->constant.dtype : value->type.dtype;
    out->integers = value->is_constant ? &value->constant : NULL;
    out->scale = sbit__proof_constant(graph, node, scale, &out->open);
    out->zero = sbit__proof_constant(graph, node, zero, &out->open);
    return true;
}

static const sbit_node *sbit__proof_producer(const sbit_graph *graph, const sbit_node *node,
                                             int input, const char *op_type)
{
    const sbit_value_info *value = sbit__proof_input(graph, node, input);
    const sbit_node *from = value != NULL && value->producer.idx != 0
                                ? sbit_graph_node(graph, value->producer)
                                : NULL;
    return from != NULL && sbit__streq(from->op_type, op_type) ? from : NULL;
}

static bool sbit__proof_dequantized(const sbit_graph *graph, const sbit_node *node, int input,
                                    sbit__proof_operand *out)
{
    const sbit_node *from = sbit__proof_producer(graph, node, input, "DequantizeLinear");
    if (from == NULL || !sbit__proof_operand_at(graph, from, 0, 1, 2, out)) {
        return false;
    }
    out->dequantize = from;
    return true;
}

/* The QuantizeLinear behind a node, perhaps behind one that clamps. */
static const sbit_node *sbit__proof_quantize(const sbit_graph *graph, const sbit_node *node)
{
    sbit_use use;
    for (int depth = 0; depth < 2; depth++) {
        const sbit_value_info *value = sbit_graph_value(graph, node->outputs[0]);
        if (value->use_count != 1 || sbit_graph_uses(graph, value->id, &use, 1) != 1 ||
            use.node.idx == 0 || use.body != NULL || use.index != 0) {
            return NULL;
        }
        node = sbit_graph_node(graph, use.node);
        if (sbit__streq(node->op_type, "QuantizeLinear")) {
            return node;
        }
        if (!sbit__streq(node->op_type, "Relu") && !sbit__streq(node->op_type, "Clip")) {
            return NULL;
        }
    }
    return NULL;
}

/* A layer whose weight comes from integers, and perhaps what it reads and makes too. */
static bool sbit__proof_layer(const sbit_graph *graph, const sbit_node *node,
                              sbit__proof_product *out)
{
    const sbit_op_row *row = sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                                                sbit_graph_opset(graph, node->domain));
    const sbit_op_quant *facts = row != NULL ? row->quant : NULL;
    sbit__proof_operand bias;
    if (facts == NULL || facts->weight < 0 || (facts->activations & 1u) == 0 ||
        node->output_count == 0 || !sbit__proof_dequantized(graph, node, facts->weight, &out->w)) {
        return false;
    }
    const bool turned =
        facts->transpose_attr != NULL && sbit_node_int(node, facts->transpose_attr, 0) != 0;
    const sbit_node *quantize = sbit__proof_quantize(graph, node);
    out->axis = turned ? facts->in_axis : facts->out_axis;
    out->stack = facts->out_axis < 0; /* MatMul's counts from the end */
    sbit__proof_dequantized(graph, node, 0, &out->x);
    if (facts->bias >= 0 && sbit__proof_dequantized(graph, node, facts->bias, &bias)) {
        out->bias = bias.integers;
    }
    out->requantized = quantize != NULL;
    if (quantize != NULL && sbit__proof_operand_at(graph, quantize, 0, 1, 2, &out->y)) {
        out->y.dtype = sbit_graph_value(graph, quantize->outputs[0])->type.dtype;
    }
    return true;
}

static bool sbit__proof_operator(const sbit_graph *graph, const sbit_node *node,
                                 sbit__proof_product *out)
{
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__proof_integer_ops); i++) {
        const sbit__proof_roles *r = &sbit__proof_integer_ops[i];
        bool open = false;
        if (!sbit__streq(node->op_type, r->op_type)) {
            continue;
        }
        const bool turned = sbit_node_int(node, "transB", 0) != 0; /* QGemm's */
        out->axis = turned ? 0 : r->axis;
        out->stack = r->product && !turned;
        out->bias = sbit__proof_constant(graph, node, r->bias, &open);
        out->requantized = r->y_scale >= 0 && sbit__proof_input(graph, node, r->y_scale) != NULL;
        if (out->requantized) {
            sbit__proof_operand_at(graph, node, r->y_scale, r->y_scale, r->y_zero, &out->y);
            out->y.dtype = sbit_graph_value(graph, node->outputs[0])->type.dtype;
        }
        return sbit__proof_operand_at(graph, node, r->x, r->x_scale, r->x_zero, &out->x) &&
               sbit__proof_operand_at(graph, node, r->w, r->w_scale, r->w_zero, &out->w);
    }
    return false;
}

/* The range of integers of a type that are `bits` wide (0: the type's own); false: they are none. */
static bool sbit__proof_range(sbit_dtype dtype, int bits, double *low, double *high)
{
    bits = bits > 0 ? bits : sbit_dtype_bits((int32_t)dtype);
    const bool s = dtype == SBIT_I2 || dtype == SBIT_I4 || dtype == SBIT_I8 || dtype == SBIT_I16;
    const bool u = dtype == SBIT_U2 || dtype == SBIT_U4 || dtype == SBIT_U8 || dtype == SBIT_U16;
    *low = s ? -ldexp(1.0, bits - 1) : 0.0;
    *high = s ? ldexp(1.0, bits - 1) - 1.0 : ldexp(1.0, bits) - 1.0;
    return s || u;
}

/* x.value none: what it reads is float. */
static bool sbit__proof_find(const sbit_graph *graph, const sbit_node *node,
                             sbit__proof_product *out)
{
    double low, high;
    memset(out, 0, sizeof *out);
    out->graph = graph;
    out->node = node;
    if (!(sbit__proof_operator(graph, node, out) || sbit__proof_layer(graph, node, out)) ||
        !sbit__proof_range(out->w.dtype, 0, &low, &high)) {
        return false;
    }
    if (!sbit__proof_range(out->x.dtype, 0, &low, &high)) { /* float8 */
        out->x.value.idx = 0;
    }
    const int32_t rank = out->w.integers != NULL ? out->w.integers->rank : 0;
    out->axis = out->axis < 0 ? out->axis + rank : out->axis;
    return out->w.integers == NULL || (out->axis >= 0 && out->axis < rank);
}

/* >>proof sums */
static double sbit__proof_zero(const sbit__proof_operand *operand, int64_t i)
{
    const int64_t count = operand->zero != NULL ? sbit_tensor_count(operand->zero) : 0;
    return count > 0 ? sbit__tensor_f64_at(operand->zero, i < count ? i : 0) : 0.0;
}

/* The largest |q - zero point| that the type allows. */
static double sbit__proof_most(const sbit__proof_operand *operand)
{
    const int64_t count = operand->zero != NULL ? sbit_tensor_count(operand->zero) : 1;
    double low, high, most = 0.0;
    sbit__proof_range(operand->dtype, 0, &low, &high);
    for (int64_t i = 0; i < count; i++) {
        const double zero = sbit__proof_zero(operand, i);
        most = fmax(most, fmax(zero - low, high - zero));
    }
    return operand->open ? high - low : most;
}

/* How many terms a sum of two activations has; 0: not known. */
static double sbit__proof_length(const sbit__proof_product *p)
{
    const sbit_type *type = &sbit_graph_value(p->graph, p->x.value)->type;
    const int32_t last = type->rank - 1;
    return p->stack && last >= 0 && type->dims[last].symbol == 0
               ? (double)type->dims[last].value
               : 0.0;
}

/* sum |w - zw| of one output channel. */
static double sbit__proof_channel(const sbit__proof_product *p, int64_t stack, int64_t channel)
{
    const sbit_tensor *w = p->w.integers;
    const int64_t channels = w->dims[p->axis];
    const int64_t zeros = p->w.zero != NULL ? sbit_tensor_count(p->w.zero) : 0;
    int64_t outer = 1, inner = 1;
    double sum = 0.0;
    for (int32_t d = 0; d < w->rank; d++) {
        outer *= d < p->axis && !(p->stack && d < p->axis - 1) ? w->dims[d] : 1;
        inner *= d > p->axis ? w->dims[d] : 1;
    }
    const double zero = sbit__proof_zero(&p->w, zeros == channels ? channel : 0);
    const double slack = zeros > 1 && zeros != channels ? sbit__proof_most(&p->w) : -1.0;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            const int64_t at = ((stack * outer + o) * channels + channel) * inner + i;
            sum += slack >= 0.0 ? slack : fabs(sbit__tensor_f64_at(w, at) - zero);
        }
    }
    return sum;
}

static double sbit__proof_sum(const sbit__proof_product *p)
{
    const double x = sbit__proof_most(&p->x);
    const sbit_tensor *w = p->w.integers;
    double most = 0.0;
    if (w == NULL) {
        const double length = sbit__proof_length(p);
        return length > 0.0 ? length * x * sbit__proof_most(&p->w) : HUGE_VAL;
    }
    const int64_t channels = w->dims[p->axis];
    int64_t stacks = 1;
    for (int32_t d = 0; p->stack && d < p->axis - 1; d++) {
        stacks *= w->dims[d];
    }
    const int64_t biases = p->bias != NULL ? sbit_tensor_count(p->bias) : 0;
    for (int64_t s = 0; s < stacks; s++) {
        for (int64_t c = 0; c < channels; c++) {
            const double bias =
                biases > 0 ? fabs(sbit__tensor_f64_at(p->bias, c % biases)) : 0.0;
            most = fmax(most, x * sbit__proof_channel(p, s, c) + bias);
        }
    }
    return most;
}

/* >>proof requantization */
static bool sbit__proof_normal(float x)
{
    return x >= FLT_MIN && x <= FLT_MAX;
}

static double sbit__proof_deviation(const sbit__proof_product *p)
{
    double low, high;
    if (!p->requantized) {
        return -1.0;
    }
    if (p->x.scale == NULL || p->w.scale == NULL || p->y.scale == NULL || p->x.open || p->w.open ||
        p->y.open || sbit_tensor_count(p->x.scale) != 1 || sbit_tensor_count(p->y.scale) != 1 ||
        !sbit__proof_range(p->y.dtype, 0, &low, &high)) {
        return HUGE_VAL;
    }
    const float x = (float)sbit__tensor_f64_at(p->x.scale, 0);
    const float y = (float)sbit__tensor_f64_at(p->y.scale, 0);
    for (int64_t i = 0; i < sbit_tensor_count(p->w.scale); i++) {
        const float product = x * (float)sbit__tensor_f64_at(p->w.scale, i);
        if (!sbit__proof_normal(product) || !sbit__proof_normal(product / y)) {
            return HUGE_VAL;
        }
    }
    return (high - low + 1.0) * SBIT__PROOF_ROUNDINGS;
}

/* >>proof weights */
static const char *sbit__proof_name(const sbit_graph *graph, const sbit_node *node)
{
    return node->name[0] != '\0' ? node->name : sbit_graph_value(graph, node->outputs[0])->name;
}

static bool sbit__proof_alike(const sbit_value_info *plain, const sbit_tensor *w)
{
    const sbit_tensor *x = &plain->constant;
    return plain->is_constant &&
           (x->dtype == SBIT_F32 || x->dtype == SBIT_F16 || x->dtype == SBIT_BF16) &&
           sbit_tensor_same_shape(x, w);
}

/* The constant "W" whose integers are called "W_quantized", as this library and ONNX Runtime do. */
static const sbit_tensor *sbit__proof_named(const sbit_graph *plain, const sbit__proof_product *p)
{
    const char *name = sbit_graph_value(p->graph, p->w.value)->name;
    const char *end = strstr(name, "_quantized");
    char text[512];
    if (end == NULL || (size_t)(end - name) >= sizeof text) {
        return NULL;
    }
    memcpy(text, name, (size_t)(end - name));
    text[end - name] = '\0';
    const sbit_value_id id = sbit_graph_find_value(plain, text);
    const sbit_value_info *value = id.idx != 0 ? sbit_graph_value(plain, id) : NULL;
    return value != NULL && sbit__proof_alike(value, p->w.integers) ? &value->constant : NULL;
}

/* The float weight of the layer in the other graph; NULL: none of this shape. */
static const sbit_tensor *sbit__proof_partner(const sbit_graph *plain,
                                              const sbit__proof_product *p)
{
    const char *output = sbit_graph_value(p->graph, p->node->outputs[0])->name;
    const sbit_value_id value = sbit_graph_find_value(plain, output);
    const sbit_tensor *named = sbit__proof_named(plain, p);
    sbit_node_id ids[2];
    ids[0] = sbit_graph_find_node(plain, p->node->name);
    ids[1].idx = value.idx != 0 ? sbit_graph_value(plain, value)->producer.idx : 0;
    for (size_t i = 0; i < 2 && named == NULL; i++) {
        const sbit_node *node = ids[i].idx != 0 ? sbit_graph_node(plain, ids[i]) : NULL;
        for (size_t k = 0; node != NULL && k < node->input_count; k++) {
            const sbit_value_info *w = sbit__proof_input(plain, node, (int)k);
            if (w != NULL && sbit__proof_alike(w, p->w.integers)) {
                return &w->constant;
            }
        }
    }
    return named;
}

/* The true width of a weight that is stored in a wider type: the builder notes it; 0: that of the
 * type. */
static int sbit__proof_bits(const sbit__proof_product *p)
{
    const sbit_node_id id = p->w.dequantize != NULL ? p->w.dequantize->id : p->node->id;
    const sbit__graph_node *node = p->graph->nodes[id.idx];
    for (size_t i = 0; i < node->metadata_count; i++) {
        const sbit_str value = node->metadata[i].value;
        if (sbit__streq(node->metadata[i].key.data, "bits") && value.size > 0) {
            return atoi(value.data);
        }
    }
    return 0;
}

/* How the integers lie to w / s; the operator's own weights are scaled on their output axis. */
static void sbit__proof_compare(const sbit__proof_product *p, const sbit_tensor *plain,
                                sbit_rounding *out)
{
    const sbit_tensor *w = p->w.integers;
    const sbit_node *dq = p->w.dequantize;
    const int64_t scales = sbit_tensor_count(p->w.scale);
    const int64_t block = dq != NULL ? sbit_node_int(dq, "block_size", 0) : 0;
    int32_t axis = dq != NULL ? (int32_t)sbit_node_int(dq, "axis", 1) : p->axis;
    double low, high;
    axis = axis < 0 ? axis + w->rank : axis;
    sbit_parts parts = sbit_parts_of(w, scales > 1 ? axis : -1, block);
    sbit__proof_range(w->dtype, sbit__proof_bits(p), &low, &high);
    out->count = sbit_tensor_count(w);
    if (parts.count != scales) {
        out->worst = HUGE_VAL;
        return;
    }
    sbit_runs runs = sbit_runs_of(&parts);
    while (sbit_runs_next(&runs)) {
        const float scale = (float)sbit__tensor_f64_at(p->w.scale, runs.part);
        const double zero = sbit__proof_zero(&p->w, runs.part);
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double q = sbit__tensor_f64_at(w, i);
            const double at = (double)((float)sbit__tensor_f64_at(plain, i) / scale);
            const double inside = fmin(fmax(at + zero, low), high), apart = fabs(q - inside);
            const double nearest = fmin(fmax(nearbyint(at) + zero, low), high);
            const bool same = fabs(q - nearest) < 0.5;
            out->nearest += same ? 1 : 0;
            out->other += !same && apart < 1.0 ? 1 : 0;
            out->worst = apart > out->worst ? apart : out->worst;
        }
    }
}

/* >>proof public */
typedef struct sbit__proof_search {
    const sbit_graph *plain;
    void (*found)(const sbit_proof *proof, void *user);
    void (*rounding)(const sbit_rounding *rounding, void *user);
    void *user;
    size_t count; /* of products; of weights without a partner */
} sbit__proof_search;

static sbit_status sbit__proof_in(const sbit_graph *graph, void *user)
{
    sbit__proof_search *s = (sbit__proof_search *)user;
    sbit__proof_product p;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        if (!sbit__proof_find(graph, sbit_graph_node(graph, id), &p) || p.x.value.idx == 0) {
            continue;
        }
        s->count++;
        if (s->found != NULL) {
            sbit_proof proof;
            proof.graph = graph;
            proof.node = id;
            proof.sum = sbit__proof_sum(&p);
            proof.fits = proof.sum < 2147483648.0;
            proof.deviation = sbit__proof_deviation(&p);
            s->found(&proof, s->user);
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API size_t sbit_graph_prove(const sbit_graph *graph,
                                      void (*found)(const sbit_proof *, void *user), void *user)
{
    sbit__proof_search s;
    memset(&s, 0, sizeof s);
    s.found = found;
    s.user = user;
    sbit_graph_each(graph, sbit__proof_in, &s);
    return s.count;
}

static sbit_status sbit__proof_weights_in(const sbit_graph *graph, void *user)
{
    sbit__proof_search *s = (sbit__proof_search *)user;
    sbit__proof_product p;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        sbit_rounding rounding;
        if (!sbit__proof_find(graph, sbit_graph_node(graph, id), &p) || p.w.integers == NULL) {
            continue;
        }
        const sbit_tensor *plain = sbit__proof_partner(s->plain, &p);
        if (plain == NULL) {
            s->count++;
            continue;
        }
        memset(&rounding, 0, sizeof rounding);
        rounding.layer = sbit__proof_name(graph, p.node);
        sbit__proof_compare(&p, plain, &rounding);
        s->rounding(&rounding, s->user);
    }
    return SBIT_OK;
}

SPARSEBIT_API size_t sbit_graph_roundings(const sbit_graph *plain, const sbit_graph *quantized,
                                          void (*found)(const sbit_rounding *, void *user),
                                          void *user)
{
    sbit__proof_search s;
    memset(&s, 0, sizeof s);
    s.plain = plain;
    s.rounding = found;
    s.user = user;
    sbit_graph_each(quantized, sbit__proof_weights_in, &s);
    return s.count;
}
