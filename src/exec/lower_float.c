/* lower_float.c: float operators whose kernel does more than one of them. >>lower-float
 *
 * Called by: lower. Calls: graph.
 *   - MatMul with an Add of a vector behind it, its bias: input 2.
 *   - Conv, ConvTranspose, Gemm, MatMul with an Add of a tensor of the same shape behind it, then
 * one activation: Relu, Gelu, Clip, HardSwish, LeakyRelu, Sigmoid, x * Sigmoid(x), x * HardSigmoid(x)
 * with HardSwish's constants. The internal row has the operator's name; its inputs are those of the
 *     operator, input 3 is what is added; attributes activation, lo and hi (sbit__epilogue) come
 *     behind the operator's own.
 *   - Gemm of a weight's gradient with the sums of its right operand's columns, a bias's gradient: output 1.
 *   - x / sqrt(2), Erf, + 1, times x and 0.5, in the orders that exporters write: Gelu.
 *   - Pad with zeros in front of a Conv: part of its padding.
 *   - QuantizeLinear with DequantizeLinear of the same constant scale and zero point per tensor
 *     behind it: FakeQuantize, inputs x, scale and zero point, attribute to (the integers' type).
 * Only float32.
 */
#include "lower_private.h"

#include <math.h> /* INFINITY, fabsf */

#define SBIT__LOWER_SPATIAL 3
#define SBIT__LOWER_NODES 8  /* Gelu: sum, Erf, Div, Add, Mul, Mul */
#define SBIT__LOWER_USES 16  /* of Y, among which a gradient is looked for */
#define SBIT__LOWER_ATTRS 16 /* of a node with what is added; a Conv has at most 6 */

/* What is found behind a sum. */
typedef struct sbit__lower_tail {
    sbit_node_id nodes[SBIT__LOWER_NODES];
    size_t count;
    sbit_value_id output, bias, residual;
    sbit__activation activation;
    float lo, hi;
} sbit__lower_tail;

static void sbit__lower_join(sbit__lower_tail *tail, const sbit_node *node)
{
    tail->nodes[tail->count++] = node->id;
    tail->output = node->outputs[0];
}

static bool sbit__lower_is_f32(const sbit__lowering *lower, sbit_value_id id)
{
    const sbit_type *type = sbit__lower_type(lower, id);
    return type->kind == SBIT_KIND_TENSOR && type->dtype == SBIT_F32;
}

/* The node that alone uses `id` and has one output. */
static const sbit_node *sbit__lower_follower(const sbit__lowering *lower, sbit_value_id id)
{
    const sbit_node *node = sbit__lower_user(lower, id);
    return node != NULL && node->output_count == 1 && node->outputs[0].idx != 0 ? node : NULL;
}

/* >>bias */

/* An Add of one number for each column of a product; in training it is fed. */
static void sbit__lower_bias(const sbit__lowering *lower, const sbit_node *product,
                             sbit__lower_tail *tail)
{
    const sbit_type *w = sbit__lower_type(lower, product->inputs[1]);
    const sbit_node *add = sbit__lower_follower(lower, tail->output);
    if (add == NULL || !sbit__lower_is(lower, add, "Add") || add->input_count != 2) {
        return;
    }
    const sbit_value_id bias = add->inputs[add->inputs[0].idx == tail->output.idx ? 1 : 0];
    const sbit_type *vector = sbit__lower_type(lower, bias);
    const sbit_type *y = sbit__lower_type(lower, tail->output);
    if (sbit__lower_is_f32(lower, bias) && vector->rank == 1 && w->rank >= 2 && y->rank >= 1 &&
        sbit__dim_known(vector->dims[0]) && vector->dims[0].value > 1 &&
        sbit__dim_known(w->dims[w->rank - 2]) && w->dims[w->rank - 2].value > 0 &&
        sbit__dim_known(w->dims[w->rank - 1]) &&
        w->dims[w->rank - 1].value == vector->dims[0].value &&
        (sbit__lower_constant(lower, bias) != NULL || !sbit__lower_in_loop(lower->graph))) {
        tail->bias = bias;
        sbit__lower_join(tail, add);
    }
}

/* >>residual */

static bool sbit__lower_is_sum(const sbit__lowering *lower, const sbit_node *node)
{
    return sbit__lower_is(lower, node, "Conv") || sbit__lower_is(lower, node, "ConvTranspose") ||
           sbit__lower_is(lower, node, "Gemm") || sbit__lower_is(lower, node, "MatMul");
}

/* The other operand of an Add, if it surely has the same type. */
static sbit_value_id sbit__lower_other(const sbit__lowering *lower, const sbit_node *add,
                                       sbit_value_id id)
{
    static const sbit_value_id none = {0};
    sbit_value_id other;
    if (!sbit__lower_is(lower, add, "Add") || add->input_count != 2 ||
        sbit__lower_in_loop(lower->graph)) {
        return none;
    }
    other = add->inputs[add->inputs[0].idx == id.idx ? 1 : 0];
    if (other.idx == id.idx || other.idx == 0 || !sbit__lower_is_f32(lower, other) ||
        !sbit__same_dims(sbit__lower_type(lower, other), sbit__lower_type(lower, id))) {
        return none;
    }
    return other;
}

static void sbit__lower_residual(const sbit__lowering *lower, const sbit_node *node,
                                 sbit__lower_tail *tail)
{
    const sbit_node *add = sbit__lower_follower(lower, tail->output);
    const sbit_node *maker = NULL;
    sbit_value_id other;
    if (add == NULL) {
        return;
    }
    other = sbit__lower_other(lower, add, tail->output);
    if (other.idx == 0) {
        return;
    }
    /* Of two branches that an Add joins, the one that is computed last takes the Add. */
    maker = sbit__lower_producer(lower, other);
    if (maker != NULL && sbit__lower_is_sum(lower, maker) && sbit__lower_inner(lower, other, 1) &&
        sbit__lower_before(lower, node, maker)) {
        return;
    }
    tail->residual = other;
    sbit__lower_join(tail, add);
}

/* >>activations */

static bool sbit__lower_activation(const sbit__lowering *lower, const sbit_node *node,
                                   sbit__lower_tail *tail)
{
    sbit__activation activation = SBIT__ACT_NONE;
    if (node->inputs[0].idx == tail->output.idx &&
        sbit__lower_clamp(lower, node, &tail->lo, &tail->hi)) {
        activation = SBIT__ACT_CLAMP;
    } else if (sbit__lower_is(lower, node, "LeakyRelu")) {
        activation = SBIT__ACT_LEAKY;
        tail->lo = sbit_node_float(node, "alpha", 0.01f);
    } else if (sbit__lower_is(lower, node, "HardSwish")) {
        activation = SBIT__ACT_HARDSWISH;
    } else if (sbit__lower_is(lower, node, "Sigmoid")) {
        activation = SBIT__ACT_SIGMOID;
    } else if (sbit__lower_is(lower, node, "Gelu") &&
               sbit__streq(sbit_node_string(node, "approximate", "none"), "none")) {
        activation = SBIT__ACT_GELU;
    }
    tail->activation = activation;
    return activation != SBIT__ACT_NONE;
}

static bool sbit__lower_is_sixth(const sbit__lowering *lower, const sbit_node *node)
{
    return sbit__lower_is(lower, node, "HardSigmoid") &&
           fabsf(sbit_node_float(node, "alpha", 0.2f) - 1.0f / 6.0f) < 1e-7f &&
           sbit_node_float(node, "beta", 0.5f) == 0.5f;
}

/* x * g(x), where g is Sigmoid or HardSigmoid: x has exactly the two uses. */
static bool sbit__lower_gate(const sbit__lowering *lower, sbit__lower_tail *tail)
{
    sbit_use uses[3];
    const sbit_node *gate = NULL, *product = NULL;
    if (!sbit__lower_inner(lower, tail->output, 2) ||
        sbit_graph_uses(lower->graph, tail->output, uses, 3) != 2 || uses[0].body != NULL ||
        uses[1].body != NULL || uses[0].node.idx == 0 || uses[1].node.idx == 0) {
        return false;
    }
    gate = sbit_graph_node(lower->graph, uses[0].node); /* uses come in execution order */
    product = sbit_graph_node(lower->graph, uses[1].node);
    if (sbit__lower_is(lower, gate, "Sigmoid")) {
        tail->activation = SBIT__ACT_SILU;
    } else if (sbit__lower_is_sixth(lower, gate)) {
        tail->activation = SBIT__ACT_HARDSWISH;
    } else {
        return false;
    }
    if (!sbit__lower_is(lower, product, "Mul") || product->input_count != 2 ||
        sbit__lower_follower(lower, gate->outputs[0]) != product) {
        tail->activation = SBIT__ACT_NONE;
        return false;
    }
    sbit__lower_join(tail, gate);
    sbit__lower_join(tail, product);
    return true;
}

/* >>sums */

static sbit_status sbit__lower_make_sum(sbit__lowering *lower, const sbit_node *node,
                                        const sbit__lower_tail *tail, sbit_error *error)
{
    sbit_value_id inputs[4];
    sbit_attr *attrs = (sbit_attr *)lower->work; /* SBIT__LOWER_ATTRS of them */
    sbit__lower_desc desc;
    memset(&desc, 0, sizeof desc);
    for (size_t i = 0; i < 3; i++) {
        inputs[i] = sbit__lower_in(node, i);
    }
    inputs[2] = tail->bias.idx != 0 ? tail->bias : inputs[2];
    inputs[3] = tail->residual;
    desc.attr_count = node->attr_count - (node->domain[0] != '\0' ? 3 : 0);
    memcpy(attrs, node->attrs, desc.attr_count * sizeof attrs[0]);
    attrs[desc.attr_count++] = sbit__attr_int("activation", (int64_t)tail->activation);
    attrs[desc.attr_count++] = sbit__attr_float("lo", tail->lo);
    attrs[desc.attr_count++] = sbit__attr_float("hi", tail->hi);
    desc.op_type = node->op_type;
    desc.inputs = inputs;
    desc.input_count = tail->residual.idx != 0 ? 4 : 3;
    desc.outputs = &tail->output;
    desc.output_count = 1;
    desc.attrs = attrs;
    desc.nodes = tail->nodes;
    desc.node_count = tail->count;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

static sbit_status sbit__lower_sum(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    sbit__lower_tail tail;
    const sbit_node *next = NULL;
    memset(&tail, 0, sizeof tail);
    if (node->output_count != 1 || node->input_count < 2 || node->input_count > 3 ||
        node->attr_count + 3 > SBIT__LOWER_ATTRS || !sbit__lower_is_f32(lower, node->outputs[0])) {
        return SBIT_OK;
    }
    sbit__lower_join(&tail, node);
    if (sbit__lower_is(lower, node, "MatMul")) {
        sbit__lower_bias(lower, node, &tail);
    }
    sbit__lower_residual(lower, node, &tail);
    next = sbit__lower_follower(lower, tail.output);
    if (next != NULL && sbit__lower_activation(lower, next, &tail)) {
        sbit__lower_join(&tail, next);
    } else {
        tail.lo = tail.hi = 0.0f;
        (void)sbit__lower_gate(lower, &tail);
    }
    return tail.count > 1 ? sbit__lower_make_sum(lower, node, &tail, error) : SBIT_OK;
}

/* >>gradients of a weight and a bias */

/* The node ReduceTo that adds up the rows of `id` to a vector of n that no node reads; NULL: none. */
static const sbit_node *sbit__lower_bias_sum(const sbit__lowering *lower, sbit_value_id id,
                                             sbit_dim n)
{
    sbit_use uses[8];
    const size_t count = sbit_graph_uses(lower->graph, id, uses, SBIT__COUNT_OF(uses));
    for (size_t i = 0; i < count && i < SBIT__COUNT_OF(uses); i++) {
        const sbit_node *node = uses[i].body == NULL && uses[i].node.idx != 0
                                    ? sbit_graph_node(lower->graph, uses[i].node)
                                    : NULL;
        const sbit_type *y = node != NULL ? sbit__lower_type(lower, node->outputs[0]) : NULL;
        const sbit_value_info *info =
            node != NULL ? sbit_graph_value(lower->graph, node->outputs[0]) : NULL;
        if (node != NULL && sbit__streq(node->domain, "sbit") &&
            sbit__streq(node->op_type, "ReduceTo") && node->inputs[0].idx == id.idx &&
            sbit_node_int(node, "align", -1) == -1 && y->rank == 1 && sbit__dim_known(n) &&
            sbit__dim_equal(y->dims[0], n) &&
            info->use_count == (info->is_output ? 1 : 0)) {
            return node;
        }
    }
    return NULL;
}

/* x' dy with dy as it is or with its rows joined. */
static sbit_status sbit__lower_weight_gradient(sbit__lowering *lower, const sbit_node *gemm,
                                               sbit_error *error)
{
    sbit_value_id inputs[2], outputs[2];
    sbit_node_id nodes[2];
    sbit_attr *attrs = (sbit_attr *)lower->work; /* SBIT__LOWER_ATTRS of them */
    sbit__lower_desc desc;
    if (gemm->attr_count > SBIT__LOWER_ATTRS || gemm->input_count != 2 || sbit_node_int(gemm, "transA", 0) == 0 ||
        sbit_node_int(gemm, "transB", 0) != 0 || !sbit__lower_is_f32(lower, gemm->inputs[1]) ||
        sbit__lower_in_loop(lower->graph)) {
        return SBIT_OK;
    }
    const sbit_type *b = sbit__lower_type(lower, gemm->inputs[1]);
    const sbit_node *rows = sbit__lower_producer(lower, gemm->inputs[1]);
    const bool joined = rows != NULL && sbit__lower_is(lower, rows, "Reshape");
    const sbit_value_id dy = joined ? rows->inputs[0] : gemm->inputs[1];
    const sbit_type *whole = sbit__lower_type(lower, dy);
    if (b->rank != 2 || whole->rank < 2 || !sbit__dim_equal(whole->dims[whole->rank - 1], b->dims[1])) {
        return SBIT_OK;
    }
    const sbit_node *sum = sbit__lower_bias_sum(lower, dy, b->dims[1]);
    if (sum == NULL) {
        return SBIT_OK;
    }
    memcpy(inputs, gemm->inputs, sizeof inputs);
    memcpy(attrs, gemm->attrs, gemm->attr_count * sizeof attrs[0]);
    outputs[0] = gemm->outputs[0];
    outputs[1] = sum->outputs[0];
    nodes[0] = gemm->id;
    nodes[1] = sum->id;
    memset(&desc, 0, sizeof desc);
    desc.op_type = "Gemm";
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = outputs;
    desc.output_count = 2;
    desc.attrs = attrs;
    desc.attr_count = gemm->attr_count;
    desc.nodes = nodes;
    desc.node_count = 2;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>gelu */

/* Steps an operator of two inputs back from *id, one of which is the constant `value`. */
static bool sbit__lower_back(const sbit__lowering *lower, const char *op_type, float value,
                             sbit_value_id *id, sbit__lower_tail *tail)
{
    const sbit_node *node = sbit__lower_producer(lower, *id);
    float found = 0.0f;
    if (node == NULL || !sbit__lower_is(lower, node, op_type) || node->input_count != 2) {
        return false;
    }
    const size_t last = sbit__streq(op_type, "Div") ? 1 : 2; /* operands of Div keep their order */
    for (size_t i = last == 1 ? 1 : 0; i < 2; i++) {
        if (sbit__lower_scalar(lower, node->inputs[i], &found) && fabsf(found - value) < 1e-6f) {
            *id = node->inputs[1 - i];
            tail->nodes[tail->count++] = node->id;
            return true;
        }
    }
    return false;
}

/* The sum that x is, if it has no activation yet and nobody else reads it. */
static const sbit_node *sbit__lower_before_gelu(const sbit__lowering *lower, sbit_value_id x)
{
    const sbit_node *node = sbit__lower_inner(lower, x, 2) ? sbit__lower_producer(lower, x) : NULL;
    if (node == NULL || node->attr_count + 3 > SBIT__LOWER_ATTRS ||
        (!sbit__lower_is_sum(lower, node) &&
         (!sbit__streq(node->domain, "sbit") || sbit_node_attr(node, "activation") == NULL ||
          sbit_node_int(node, "activation", 0) != SBIT__ACT_NONE))) {
        return NULL;
    }
    return node;
}

/* Begins at the Erf: its input is x / sqrt(2); what comes behind it is (erf + 1) times x and 0.5. */
static sbit_status sbit__lower_gelu(sbit__lowering *lower, const sbit_node *erf, sbit_error *error)
{
    sbit__lower_tail tail;
    sbit__lower_desc desc;
    memset(&tail, 0, sizeof tail);
    sbit_value_id x = erf->inputs[0];
    sbit__lower_join(&tail, erf);
    if (!sbit__lower_is_f32(lower, x) || !sbit__lower_inner(lower, x, 1) ||
        (!sbit__lower_back(lower, "Div", 1.41421356f, &x, &tail) &&
         !sbit__lower_back(lower, "Mul", 0.70710678f, &x, &tail))) {
        return SBIT_OK;
    }
    float found = 0.0f;
    bool half = false, times = false;
    const sbit_node *next = sbit__lower_follower(lower, tail.output);
    if (next == NULL || !sbit__lower_is(lower, next, "Add") || next->input_count != 2 ||
        !sbit__lower_scalar(lower, next->inputs[next->inputs[0].idx == tail.output.idx], &found) ||
        found != 1.0f) {
        return SBIT_OK;
    }
    sbit__lower_join(&tail, next);
    for (int i = 0; i < 2; i++) { /* times 0.5, times x or x / 2 */
        next = sbit__lower_follower(lower, tail.output);
        if (next == NULL || !sbit__lower_is(lower, next, "Mul") || next->input_count != 2) {
            return SBIT_OK;
        }
        sbit_value_id other = next->inputs[next->inputs[0].idx == tail.output.idx];
        if (!half && sbit__lower_scalar(lower, other, &found) && found == 0.5f) {
            half = true;
        } else if (!times && other.idx == x.idx) {
            times = true;
        } else if (!half && !times && sbit__lower_inner(lower, other, 1) &&
                   sbit__lower_back(lower, "Mul", 0.5f, &other, &tail) && other.idx == x.idx) {
            half = times = true;
        } else {
            return SBIT_OK;
        }
        sbit__lower_join(&tail, next);
        if (half && times) {
            break;
        }
    }
    if (!half || !times ||
        sbit__lower_type(lower, tail.output)->rank != sbit__lower_type(lower, x)->rank) {
        return SBIT_OK; /* the last: constants of more dims than x */
    }
    const sbit_node *sum = sbit__lower_before_gelu(lower, x);
    if (sum != NULL) {
        memmove(tail.nodes + 1, tail.nodes, tail.count++ * sizeof tail.nodes[0]);
        tail.nodes[0] = sum->id;
        tail.residual = sbit__lower_in(sum, 3);
        tail.activation = SBIT__ACT_GELU;
        return sbit__lower_make_sum(lower, sum, &tail, error);
    }
    memset(&desc, 0, sizeof desc);
    desc.domain = "com.microsoft";
    desc.op_type = "Gelu";
    desc.inputs = &x;
    desc.input_count = 1;
    desc.outputs = &tail.output;
    desc.output_count = 1;
    desc.nodes = tail.nodes;
    desc.node_count = tail.count;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>padding */

/* What a Pad with constant zeros adds in front of and behind spatial axes, as Conv's pads. */
static bool sbit__lower_pads(const sbit__lowering *lower, const sbit_node *pad, int64_t *pads)
{
    const sbit_attr *mode = sbit_node_attr(pad, "mode");
    const sbit_tensor *amounts = sbit__lower_constant(lower, sbit__lower_in(pad, 1));
    const int32_t rank = sbit__lower_type(lower, pad->inputs[0])->rank;
    float value = 0.0f;
    if (!sbit__lower_is(lower, pad, "Pad") || rank < 3 || rank > 2 + SBIT__LOWER_SPATIAL ||
        (mode != NULL && (mode->s.size != 8 || memcmp(mode->s.data, "constant", 8) != 0)) ||
        amounts == NULL || amounts->dtype != SBIT_I64 || sbit__lower_in(pad, 3).idx != 0 ||
        sbit_tensor_count(amounts) != 2 * rank ||
        (sbit__lower_in(pad, 2).idx != 0 &&
         !sbit__lower_scalar(lower, sbit__lower_in(pad, 2), &value)) ||
        value != 0.0f) {
        return false;
    }
    for (int32_t i = 0; i < 2 * rank; i++) {
        const int32_t axis = i % rank;
        const int64_t amount = sbit__tensor_i64_at(amounts, i);
        if (amount < 0 || amount > INT32_MAX || (axis < 2 && amount != 0)) {
            return false;
        }
        if (axis >= 2) {
            pads[(i < rank ? 0 : rank - 2) + axis - 2] = amount;
        }
    }
    return true;
}

static sbit_status sbit__lower_pad(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    const sbit_node *pad = sbit__lower_producer(lower, node->inputs[0]);
    const sbit_attr *own = sbit_node_attr(node, "pads"), *kind = sbit_node_attr(node, "auto_pad");
    sbit_attr *attrs = (sbit_attr *)lower->work;
    int64_t pads[2 * SBIT__LOWER_SPATIAL];
    sbit_value_id inputs[3];
    sbit_node_id nodes[2];
    sbit__lower_desc desc;
    if (pad == NULL || node->input_count > 3 || node->attr_count + 1 > SBIT__LOWER_ATTRS ||
        (kind != NULL && (kind->s.size != 6 || memcmp(kind->s.data, "NOTSET", 6) != 0)) ||
        !sbit__lower_is_f32(lower, node->inputs[0]) || !sbit__lower_inner(lower, node->inputs[0], 1) ||
        !sbit__lower_pads(lower, pad, pads)) {
        return SBIT_OK;
    }
    const size_t count = 2 * (size_t)(sbit__lower_type(lower, pad->inputs[0])->rank - 2);
    if (own != NULL && own->count != count) {
        return SBIT_OK;
    }
    memset(&desc, 0, sizeof desc);
    for (size_t i = 0; i < node->attr_count; i++) {
        if (&node->attrs[i] != own) {
            attrs[desc.attr_count++] = node->attrs[i];
        }
    }
    for (size_t i = 0; own != NULL && i < count; i++) {
        pads[i] += own->ints[i];
    }
    memset(&attrs[desc.attr_count], 0, sizeof attrs[0]);
    attrs[desc.attr_count].name = "pads";
    attrs[desc.attr_count].type = SBIT_ONNX_ATTR_INTS;
    attrs[desc.attr_count].ints = pads;
    attrs[desc.attr_count++].count = count;
    memcpy(inputs, node->inputs, node->input_count * sizeof inputs[0]);
    inputs[0] = pad->inputs[0];
    nodes[0] = node->id;
    nodes[1] = pad->id;
    desc.domain = "";
    desc.op_type = "Conv";
    desc.inputs = inputs;
    desc.input_count = node->input_count;
    desc.outputs = node->outputs;
    desc.output_count = 1;
    desc.attrs = attrs;
    desc.nodes = nodes;
    desc.node_count = 2;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>fake quantization */

/* Input `i` of both nodes is the same constant, or missing in both. */
static bool sbit__lower_same_constant(const sbit__lowering *lower, const sbit_node *a,
                                      const sbit_node *b, size_t i)
{
    const sbit_value_id x = sbit__lower_in(a, i), y = sbit__lower_in(b, i);
    const sbit_tensor *s = sbit__lower_constant(lower, x), *t = sbit__lower_constant(lower, y);
    if (x.idx == 0 || y.idx == 0) {
        return x.idx == y.idx;
    }
    return s != NULL && t != NULL && s->dtype == t->dtype && sbit_tensor_count(s) == 1 &&
           sbit_tensor_count(t) == 1 && memcmp(s->data, t->data, sbit_tensor_bytes(s)) == 0;
}

static sbit_status sbit__lower_fake_quantize(sbit__lowering *lower, const sbit_node *q,
                                             sbit_error *error)
{
    const sbit_node *dq = q->output_count == 1 ? sbit__lower_follower(lower, q->outputs[0]) : NULL;
    const sbit_dtype dtype =
        dq != NULL ? sbit__lower_type(lower, q->outputs[0])->dtype : SBIT_UNDEFINED;
    sbit_node_id nodes[2];
    sbit__lower_desc desc;
    sbit_attr to;
    float scale = 0.0f;
    if (dq == NULL || !sbit__lower_is(lower, dq, "DequantizeLinear") || q->input_count < 2 ||
        dq->inputs[0].idx != q->outputs[0].idx || !sbit__lower_is_f32(lower, q->inputs[0]) ||
        !sbit__lower_is_f32(lower, dq->outputs[0]) || sbit_node_attr(q, "precision") != NULL ||
        (SBIT_T(dtype) & SBIT__T_FAKE_QUANTIZE) == 0 ||
        !sbit__lower_scalar(lower, q->inputs[1], &scale) ||
        !sbit__lower_same_constant(lower, q, dq, 1) ||
        !sbit__lower_same_constant(lower, q, dq, 2)) {
        return SBIT_OK;
    }
    memset(&desc, 0, sizeof desc);
    nodes[0] = q->id;
    nodes[1] = dq->id;
    to = sbit__attr_int("to", (int64_t)dtype);
    desc.op_type = "FakeQuantize";
    desc.inputs = q->inputs;
    desc.input_count = q->input_count;
    desc.outputs = dq->outputs;
    desc.output_count = 1;
    desc.attrs = &to;
    desc.attr_count = 1;
    desc.nodes = nodes;
    desc.node_count = 2;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* LSTM whose gradient is computed keeps for it what it had computed. */
static sbit_status sbit__lower_lstm(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    enum {
        GRADIENT_Y = 6,
        GRADIENT_KEPT = 10
    };
    static const size_t places[] = {0, 1, 2, 3, 5, 6}; /* of LstmGrad's first inputs among the node's */
    const sbit_value_id y = node->outputs[0], none = {0};
    const sbit_node_id id = node->id;
    sbit_use uses[SBIT__LOWER_USES];
    sbit_value_id outputs[4] = {y, none, none, none};
    sbit__lower_desc desc;
    sbit_type type;
    sbit_node_id gradient = {0};
    const size_t count = y.idx != 0 ? sbit_graph_uses(lower->graph, y, uses, SBIT__LOWER_USES) : 0;
    for (size_t i = 0; i < count && i < SBIT__LOWER_USES; i++) {
        const sbit_node *user = uses[i].body == NULL && uses[i].node.idx != 0
                                    ? sbit_graph_node(lower->graph, uses[i].node)
                                    : NULL;
        bool same = user != NULL && uses[i].index == GRADIENT_Y && strcmp(user->domain, "sbit") == 0 &&
                    strcmp(user->op_type, "LstmGrad") == 0 && sbit_node_int(user, "again", 0) == 0;
        for (size_t k = 0; same && k < SBIT__COUNT_OF(places); k++) {
            same = sbit__lower_in(user, k).idx == sbit__lower_in(node, places[k]).idx;
        }
        gradient = same ? user->id : gradient;
    }
    if (gradient.idx == 0 || !sbit__lower_is_f32(lower, y)) {
        return SBIT_OK;
    }
    for (size_t i = 1; i < node->output_count && i < 3; i++) {
        outputs[i] = node->outputs[i];
    }
    memset(&type, 0, sizeof type);
    type.kind = SBIT_KIND_TENSOR;
    type.dtype = SBIT_F32;
    type.rank = 5;
    for (int32_t i = 0; i < type.rank; i++) {
        type.dims[i] = sbit__dim_any();
    }
    SBIT__TRY(sbit_graph_add_value(lower->graph, "kept", &type, &outputs[3], error));
    SBIT__TRY(sbit_graph_set_node_input(lower->graph, gradient, GRADIENT_KEPT, outputs[3], error));
    memset(&desc, 0, sizeof desc);
    desc.op_type = "LSTM";
    desc.inputs = node->inputs;
    desc.input_count = node->input_count;
    desc.outputs = outputs;
    desc.output_count = 4;
    desc.attrs = node->attrs;
    desc.attr_count = node->attr_count;
    desc.nodes = &id;
    desc.node_count = 1;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>table */

static const sbit__lower_entry sbit__lower_float_table[] = {
    {"LSTM", sbit__lower_lstm},
    {"Conv", sbit__lower_pad},
    {"Conv", sbit__lower_sum},
    {"ConvTranspose", sbit__lower_sum},
    {"Gemm", sbit__lower_weight_gradient},
    {"Gemm", sbit__lower_sum},
    {"MatMul", sbit__lower_sum},
    {"Erf", sbit__lower_gelu},
    {"QuantizeLinear", sbit__lower_fake_quantize},
};

SBIT__FN const sbit__lower_entry *sbit__lower_entries_float(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__lower_float_table);
    return sbit__lower_float_table;
}
