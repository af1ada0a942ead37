/* formats.c: how a quantized graph is written. >>formats
 *
 * The builder makes Q/DQ. A format is a row that rewrites it:
 *   qdq        stays so
 *   weights    integer weights through DequantizeLinear, activations float; format_weights.c has
 *              others of this kind
 *   qoperator  DQ - operator - Q becomes one operator on integers: QLinearConv, QLinearMatMul of
 *              ai.onnx, QGemm, QLinearAdd ... of com.microsoft. A clamp in between goes where the
 *              integers' own range does the same. What has no such operator keeps its Q and DQ.
 */
#include "quant_private.h"

/* >>formats qoperator */
typedef struct sbit__qop {
    const char *op, *to, *domain;
    const char *layout; /* inputs: x y activations, w weight, b bias, s the output's scale and zero
                           point, * all inputs */
} sbit__qop;

static const sbit__qop sbit__qops[] = {
    {"Conv", "QLinearConv", "", "xwsb"},
    {"MatMul", "QLinearMatMul", "", "xws"},
    {"Gemm", "QGemm", "com.microsoft", "xwbs"},
    {"Add", "QLinearAdd", "com.microsoft", "xys"},
    {"Mul", "QLinearMul", "com.microsoft", "xys"},
    {"LeakyRelu", "QLinearLeakyRelu", "com.microsoft", "xs"},
    {"Sigmoid", "QLinearSigmoid", "com.microsoft", "xs"},
    {"AveragePool", "QLinearAveragePool", "com.microsoft", "xs"},
    {"GlobalAveragePool", "QLinearGlobalAveragePool", "com.microsoft", "xs"},
    {"Concat", "QLinearConcat", "com.microsoft", "s*"},
};

/* A node at work: what it reads and what it is to write. */
typedef struct sbit__qop_match {
    sbit_graph *graph;
    const sbit__qop *row;
    const sbit_node *node, *clamp, *quantize; /* clamp NULL: none */
    sbit_value_id inputs[64];
    size_t count;
} sbit__qop_match;

SBIT__FN const sbit_node *sbit__format_producer(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *value = id.idx != 0 ? sbit_graph_value(graph, id) : NULL;
    return value != NULL && value->producer.idx != 0 ? sbit_graph_node(graph, value->producer)
                                                     : NULL;
}

SBIT__FN const sbit_tensor *sbit__format_constant(const sbit_graph *graph, const sbit_node *node,
                                                  size_t input)
{
    const sbit_value_info *value = input < node->input_count && node->inputs[input].idx != 0
                                       ? sbit_graph_value(graph, node->inputs[input])
                                       : NULL;
    return value != NULL && value->is_constant ? &value->constant : NULL;
}

SBIT__FN sbit_status sbit__format_add(sbit_graph *graph, const sbit_node *old, const char *domain,
                                      const char *op, const sbit_value_id *inputs,
                                      size_t input_count, const sbit_attr *attrs, size_t attr_count,
                                      sbit_value_id *outputs, size_t output_count,
                                      sbit_error *error)
{
    const sbit_type unknown = sbit__type_unknown();
    sbit_node_desc desc;
    char name[256];
    memset(&desc, 0, sizeof desc);
    snprintf(name, sizeof name, "%.200s_%s", old->name, op);
    for (size_t i = 0; i < output_count; i++) {
        SBIT__TRY(sbit_graph_add_value(graph, name, &unknown, &outputs[i], error));
    }
    desc.domain = domain;
    desc.op_type = op;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = outputs;
    desc.output_count = output_count;
    desc.attrs = attrs;
    desc.attr_count = attr_count;
    desc.before = old->id;
    return sbit_graph_add_node(graph, &desc, NULL, error);
}

/* The one node that alone reads a value, NULL: none. */
static const sbit_node *sbit__qop_reader(const sbit_graph *graph, sbit_value_id id)
{
    sbit_use use;
    const sbit_value_info *value = sbit_graph_value(graph, id);
    return value->use_count == 1 && !value->is_output && sbit_graph_uses(graph, id, &use, 1) == 1 &&
                   use.node.idx != 0 && use.body == NULL && use.index == 0
               ? sbit_graph_node(graph, use.node)
               : NULL;
}

SBIT__FN bool sbit__format_is(const sbit_node *node, const char *op)
{
    return node != NULL && node->domain[0] == '\0' && sbit__streq(node->op_type, op);
}

/* Eight bits, and a scale and zero point for the whole tensor, or (not `whole`) a row of them. */
static bool sbit__qop_plain(const sbit_graph *graph, const sbit_node *node, bool whole)
{
    if (node->input_count < 3 || node->inputs[0].idx == 0 || node->inputs[1].idx == 0 ||
        node->inputs[2].idx == 0 || sbit_node_int(node, "block_size", 0) != 0) {
        return false;
    }
    const sbit_value_info *scale = sbit_graph_value(graph, node->inputs[1]);
    const sbit_value_info *zero = sbit_graph_value(graph, node->inputs[2]);
    return scale->is_constant && zero->is_constant && scale->constant.dtype == SBIT_F32 &&
           (zero->constant.dtype == SBIT_U8 || zero->constant.dtype == SBIT_I8) &&
           (!whole || sbit_tensor_count(&scale->constant) == 1);
}

static bool sbit__qop_add(sbit__qop_match *m, sbit_value_id id)
{
    m->inputs[m->count++] = id;
    return m->count < SBIT__COUNT_OF(m->inputs);
}

/* An input that comes out of DequantizeLinear: its integers, scale and zero point. */
static bool sbit__qop_input(sbit__qop_match *m, size_t input, bool whole)
{
    const sbit_node *dq = input < m->node->input_count
                              ? sbit__format_producer(m->graph, m->node->inputs[input])
                              : NULL;
    return sbit__format_is(dq, "DequantizeLinear") && sbit__qop_plain(m->graph, dq, whole) &&
           sbit__qop_add(m, dq->inputs[0]) && sbit__qop_add(m, dq->inputs[1]) &&
           sbit__qop_add(m, dq->inputs[2]);
}

/* An integer operator's bias is in units of scale_x scale_w, whoever wrote the pairs. */
static bool sbit__qop_bias_scale(const sbit__qop_match *m, const sbit_node *dq)
{
    const sbit_tensor *s = sbit__format_constant(m->graph, dq, 1);
    const sbit_tensor *zero = sbit__format_constant(m->graph, dq, 2);
    const sbit_tensor *x = &sbit_graph_value(m->graph, m->inputs[1])->constant;
    const sbit_tensor *w = &sbit_graph_value(m->graph, m->inputs[4])->constant;
    const int64_t given = s != NULL ? sbit_tensor_count(s) : 0, parts = sbit_tensor_count(w);
    bool same = given == 1 || (given > 1 && (parts == given || parts == 1));
    for (int64_t i = 0; same && i < (given > parts ? given : parts); i++) {
        const double unit = sbit__tensor_f64_at(x, 0) * sbit__tensor_f64_at(w, i % parts);
        same = fabs(sbit__tensor_f64_at(s, i % given) - unit) <= 1e-6 * unit;
    }
    for (int64_t i = 0; same && zero != NULL && i < sbit_tensor_count(zero); i++) {
        same = sbit__tensor_i64_at(zero, i) == 0;
    }
    return same;
}

/* Scales of a weight lie along the output's channels, or there is one. */
static bool sbit__qop_weight(sbit__qop_match *m)
{
    if (!sbit__qop_input(m, 1, false)) {
        return false;
    }
    const sbit_node *dq = sbit__format_producer(m->graph, m->node->inputs[1]);
    const sbit_tensor *scale = sbit__format_constant(m->graph, dq, 1);
    const int64_t rank = sbit_graph_value(m->graph, dq->inputs[0])->type.rank;
    const int64_t given = sbit_node_int(dq, "axis", 1);
    const bool first = sbit__format_is(m->node, "Conv") || sbit_node_int(m->node, "transB", 0) != 0;
    return sbit_tensor_count(scale) == 1 ||
           (given < 0 ? given + rank : given) == (first ? 0 : rank - 1);
}

/* The int32 bias; none is fine. */
static bool sbit__qop_bias(sbit__qop_match *m)
{
    const sbit_value_id none = {0};
    if (m->node->input_count < 3 || m->node->inputs[2].idx == 0) {
        return sbit__format_is(m->node, "Gemm") ? sbit__qop_add(m, none) : true;
    }
    const sbit_node *dq = sbit__format_producer(m->graph, m->node->inputs[2]);
    return sbit__format_is(dq, "DequantizeLinear") &&
           sbit_graph_value(m->graph, dq->inputs[0])->constant.dtype == SBIT_I32 &&
           sbit__qop_bias_scale(m, dq) && sbit__qop_add(m, dq->inputs[0]);
}

/* True if the output's integers cannot say what the clamp takes away. */
static bool sbit__qop_clamp_goes(const sbit__qop_match *m, const sbit_node *clamp)
{
    const sbit_tensor *scale = &sbit_graph_value(m->graph, m->quantize->inputs[1])->constant;
    const sbit_tensor *zero = &sbit_graph_value(m->graph, m->quantize->inputs[2])->constant;
    const double s = sbit__tensor_f64_at(scale, 0), z = sbit__tensor_f64_at(zero, 0);
    const double least = zero->dtype == SBIT_U8 ? 0.0 : -128.0;
    double low = 0.0, high = HUGE_VAL;
    for (size_t i = 1; i < 3 && sbit__format_is(clamp, "Clip"); i++) {
        const sbit_value_info *limit = i < clamp->input_count && clamp->inputs[i].idx != 0
                                           ? sbit_graph_value(m->graph, clamp->inputs[i])
                                           : NULL;
        if (limit != NULL && (!limit->is_constant || sbit_tensor_count(&limit->constant) != 1)) {
            return false;
        }
        double *bound = i == 1 ? &low : &high;
        *bound = limit != NULL ? sbit__tensor_f64_at(&limit->constant, 0)
                 : i == 1      ? -HUGE_VAL
                               : HUGE_VAL;
    }
    return low < (least - z + 0.5) * s && high > (least + 255.0 - z - 0.5) * s;
}

/* The Q behind the node, straight or behind a clamp that the integers make unnecessary. */
static bool sbit__qop_output(sbit__qop_match *m)
{
    const sbit_node *next = sbit__qop_reader(m->graph, m->node->outputs[0]);
    const sbit_node *clamp =
        sbit__format_is(next, "Relu") || sbit__format_is(next, "Clip") ? next : NULL;
    m->quantize = clamp != NULL ? sbit__qop_reader(m->graph, clamp->outputs[0]) : next;
    m->clamp = clamp;
    return sbit__format_is(m->quantize, "QuantizeLinear") &&
           sbit__qop_plain(m->graph, m->quantize, true) &&
           (clamp == NULL || sbit__qop_clamp_goes(m, clamp));
}

static bool sbit__qop_matches(sbit__qop_match *m)
{
    bool ok = m->node->output_count >= 1 && sbit__qop_output(m);
    for (const char *at = m->row->layout; ok && *at != '\0'; at++) {
        switch (*at) {
        case 'x':
            ok = sbit__qop_input(m, 0, true);
            break;
        case 'y':
            ok = sbit__qop_input(m, 1, true);
            break;
        case 'w':
            ok = sbit__qop_weight(m);
            break;
        case 'b':
            ok = sbit__qop_bias(m);
            break;
        case 's':
            ok = sbit__qop_add(m, m->quantize->inputs[1]) &&
                 sbit__qop_add(m, m->quantize->inputs[2]);
            break;
        default:
            for (size_t i = 0; ok && i < m->node->input_count; i++) {
                ok = sbit__qop_input(m, i, true);
            }
            break;
        }
    }
    return ok;
}

/* What a target operator cannot say. */
static bool sbit__qop_possible(const sbit_node *node)
{
    const float beta = sbit_node_float(node, "beta", 1.0f);
    if (sbit__format_is(node, "Gemm")) { /* the unit of QGemm's bias is alpha scale_x scale_w */
        const float alpha = sbit_node_float(node, "alpha", 1.0f);
        return node->input_count < 3 || node->inputs[2].idx == 0 ||
               (beta >= 1.0f && beta <= 1.0f && alpha >= 1.0f && alpha <= 1.0f);
    }
    return !sbit__format_is(node, "AveragePool") || sbit_node_attr(node, "dilations") == NULL;
}

static sbit_status sbit__qop_replace(sbit__qop_match *m, sbit_error *error)
{
    const sbit_value_id old = m->quantize->outputs[0];
    const sbit_type type = sbit_graph_value(m->graph, old)->type;
    const sbit_node_id ids[3] = {m->quantize->id, m->node->id,
                                 m->clamp != NULL ? m->clamp->id : m->node->id};
    const sbit_value_id between = m->node->outputs[0];
    const sbit_value_id clamped = m->clamp != NULL ? m->clamp->outputs[0] : between;
    sbit_node_desc desc;
    sbit_value_id y;
    sbit_node_id added;
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(
        sbit_graph_add_value(m->graph, sbit_graph_value(m->graph, old)->name, &type, &y, error));
    desc.op_type = m->row->to;
    desc.domain = m->row->domain;
    desc.name = m->node->name;
    desc.inputs = m->inputs;
    desc.input_count = m->count;
    desc.outputs = &y;
    desc.output_count = 1;
    desc.before = m->quantize->id;
    SBIT__TRY(sbit_graph_add_node(m->graph, &desc, &added, error));
    for (size_t i = 0; i < sbit_graph_node(m->graph, ids[1])->attr_count; i++) {
        const sbit_attr attr = sbit_graph_node(m->graph, ids[1])->attrs[i];
        if (!sbit__streq(attr.name, "beta")) {
            SBIT__TRY(sbit_graph_set_attr(m->graph, added, &attr, error));
        }
    }
    SBIT__TRY(sbit_graph_replace_uses(m->graph, old, y, error));
    sbit_graph_erase_node(m->graph, ids[0]);
    sbit_graph_erase_value(m->graph, old);
    if (m->clamp != NULL) {
        sbit_graph_erase_node(m->graph, ids[2]);
        sbit_graph_erase_value(m->graph, clamped);
    }
    sbit_graph_erase_node(m->graph, ids[1]);
    sbit_graph_erase_value(m->graph, between);
    return m->row->domain[0] != '\0' ? sbit_graph_set_opset(m->graph, m->row->domain, 1, error)
                                     : SBIT_OK;
}

SBIT__FN void sbit__format_clean(sbit_graph *graph)
{
    for (uint32_t i = 1; i < sbit_graph_node_limit(graph); i++) {
        const sbit_node_id id = {i};
        if (!sbit_graph_node_alive(graph, id)) {
            continue;
        }
        const sbit_node *node = sbit_graph_node(graph, id);
        const sbit_value_id out = node->output_count > 0 ? node->outputs[0] : node->inputs[0];
        const sbit_value_info *value = sbit_graph_value(graph, out);
        if (sbit__format_is(node, "DequantizeLinear") && value->use_count == 0 &&
            !value->is_output) {
            sbit_graph_erase_node(graph, id);
            sbit_graph_erase_value(graph, out);
        }
    }
    for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
        const sbit_value_id id = {i};
        if (sbit_graph_value_alive(graph, id)) {
            const sbit_value_info *value = sbit_graph_value(graph, id);
            if (value->is_constant && value->use_count == 0 && !value->is_input) {
                sbit_graph_erase_value(graph, id);
            }
        }
    }
}

SBIT__FN sbit_status sbit__format_bodies(sbit_graph *graph,
                                         sbit_status (*write)(sbit_graph *graph, sbit_error *error),
                                         sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(sbit_graph_node(graph, id), b)) != NULL; b++) {
            SBIT__TRY(write(body, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__format_qoperator(sbit_graph *graph, sbit_error *error)
{
    SBIT__TRY(sbit__format_bodies(graph, sbit__format_qoperator, error));
    const uint32_t limit = sbit_graph_node_limit(graph);
    for (uint32_t i = 1; i < limit; i++) {
        const sbit_node_id id = {i};
        for (size_t k = 0; k < SBIT__COUNT_OF(sbit__qops); k++) {
            sbit__qop_match m;
            if (!sbit_graph_node_alive(graph, id)) {
                break;
            }
            memset(&m, 0, sizeof m);
            m.graph = graph;
            m.row = &sbit__qops[k];
            m.node = sbit_graph_node(graph, id);
            if (sbit__format_is(m.node, m.row->op) && sbit__qop_possible(m.node) &&
                sbit__qop_matches(&m)) {
                SBIT__TRY(sbit__qop_replace(&m, error));
            }
        }
    }
    sbit__format_clean(graph);
    return sbit_graph_sort(graph, error);
}

/* >>formats qdq: operators on integers become pairs around float operators again */

/* The axis along which a weight has a scale each; -1: one for all. */
static int32_t sbit__qop_axis(const sbit_graph *graph, const sbit_node *node, size_t scale)
{
    const sbit_tensor *s = sbit__format_constant(graph, node, scale);
    const sbit_value_info *w = sbit_graph_value(graph, node->inputs[scale - 1]);
    if (s == NULL || sbit_tensor_count(s) == 1) {
        return -1;
    }
    return sbit__streq(node->op_type, "QLinearConv") || sbit_node_int(node, "transB", 0) != 0
               ? 0
               : w->type.rank - 1;
}

/* DequantizeLinear of inputs at, at + 1, at + 2 of an operator on integers. */
static sbit_status sbit__qop_undo_input(sbit_graph *graph, const sbit_node *node, size_t at,
                                        sbit_value_id *out, sbit_error *error)
{
    const bool zero = at + 2 < node->input_count && node->inputs[at + 2].idx != 0;
    const int32_t axis = sbit__qop_axis(graph, node, at + 1);
    const sbit_attr attr = sbit__attr_int("axis", axis);
    return sbit__format_add(graph, node, "", "DequantizeLinear", node->inputs + at, zero ? 3 : 2,
                            &attr, axis >= 0 ? 1 : 0, out, 1, error);
}

/* The int32 bias, in units of alpha scale_x scale_w. */
static sbit_status sbit__qop_undo_bias(sbit_graph *graph, const sbit_node *node, size_t at,
                                       sbit_value_id *out, sbit_error *error)
{
    const sbit_tensor *x = sbit__format_constant(graph, node, 1);
    const sbit_tensor *w = sbit__format_constant(graph, node, 4);
    const sbit_value_info *bias = sbit_graph_value(graph, node->inputs[at]);
    const double alpha = (double)sbit_node_float(node, "alpha", 1.0f);
    const int64_t count = sbit_tensor_count(w);
    const sbit_attr attr = sbit__attr_int("axis", bias->type.rank > 0 ? bias->type.rank - 1 : 0);
    sbit_tensor scale;
    sbit_value_id inputs[2];
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(graph), SBIT_F32, count > 1 ? 1 : 0, &count, &scale,
                                error));
    for (int64_t i = 0; i < count; i++) {
        const float product = (float)sbit__tensor_f64_at(x, 0) * (float)sbit__tensor_f64_at(w, i);
        sbit__tensor_set_f64(&scale, i, alpha * (double)product);
    }
    const sbit_status status =
        sbit__graph_take_constant(graph, "bias_scale", &scale, &inputs[1], error);
    if (status != SBIT_OK) {
        sbit_tensor_free(sbit_graph_ctx(graph), &scale);
        return status;
    }
    inputs[0] = node->inputs[at];
    return sbit__format_add(graph, node, "", "DequantizeLinear", inputs, 2, &attr,
                            count > 1 ? 1 : 0, out, 1, error);
}

/* True if scales are constants and nothing else is in the way. */
static bool sbit__qop_undoable(const sbit_graph *graph, const sbit_node *node, const sbit__qop *row)
{
    const bool known = sbit__streq(node->op_type, row->to) &&
                       (node->domain[0] == '\0' || sbit__streq(node->domain, "com.microsoft"));
    const size_t least = row->layout[0] == 's' ? 5 : row->layout[1] == 's' ? 4 : 7;
    for (size_t i = 0; i < node->input_count && i < least; i++) {
        if (node->inputs[i].idx == 0 && (row->layout[0] == 's' || i % 3 != 2)) {
            return false; /* zero points may be left out */
        }
    }
    return known && node->input_count >= least && node->output_count == 1 &&
           sbit_node_int(node, "channels_last", 0) == 0 &&
           (strchr(row->layout, 'w') == NULL || (sbit__format_constant(graph, node, 1) != NULL &&
                                                 sbit__format_constant(graph, node, 4) != NULL));
}

static sbit_status sbit__qop_undo(sbit_graph *graph, const sbit_node *node, const sbit__qop *row,
                                  sbit_error *error)
{
    sbit_value_id inputs[64], y, pair[3], q;
    size_t at = 0, count = 0, scale = 0;
    for (const char *letter = row->layout; *letter != '\0'; letter++) {
        const size_t size = *letter == 's' ? 2 : *letter == 'b' ? 1 : 3;
        if (*letter == 's') {
            scale = at;
        } else if (*letter == 'b' && at < node->input_count && node->inputs[at].idx != 0) {
            SBIT__TRY(sbit__qop_undo_bias(graph, node, at, &inputs[count++], error));
        }
        for (size_t i = at; size == 3 && i + 1 < node->input_count &&
                            count < SBIT__COUNT_OF(inputs) && (i == at || *letter == '*');
             i += 3) {
            SBIT__TRY(sbit__qop_undo_input(graph, node, i, &inputs[count++], error));
        }
        at += size;
    }
    SBIT__TRY(sbit__format_add(graph, node, "", row->op, inputs, count, NULL, 0, &y, 1, error));
    for (size_t i = 0; i < node->attr_count; i++) {
        if (!sbit__streq(node->attrs[i].name, "channels_last")) { /* 0: what all others mean */
            SBIT__TRY(sbit_graph_set_attr(graph, sbit_graph_value(graph, y)->producer,
                                          &node->attrs[i], error));
        }
    }
    pair[0] = y;
    pair[1] = node->inputs[scale];
    pair[2] = scale + 1 < node->input_count ? node->inputs[scale + 1] : y;
    const bool zero = scale + 1 < node->input_count && pair[2].idx != 0;
    SBIT__TRY(sbit__format_add(graph, node, "", "QuantizeLinear", pair, zero ? 3 : 2, NULL, 0, &q,
                               1, error));
    const sbit_node_id id = node->id;
    const sbit_value_id old = node->outputs[0];
    sbit_graph_set_type(graph, q, &sbit_graph_value(graph, old)->type);
    SBIT__TRY(sbit_graph_replace_uses(graph, old, q, error));
    sbit_graph_erase_node(graph, id);
    sbit_graph_erase_value(graph, old);
    return SBIT_OK;
}

/* One graph and its bodies; opsets are the whole model's. */
static sbit_status sbit__qop_undo_all(sbit_graph *graph, sbit_error *error)
{
    SBIT__TRY(sbit__format_bodies(graph, sbit__qop_undo_all, error));
    const uint32_t limit = sbit_graph_node_limit(graph);
    for (uint32_t i = 1; i < limit; i++) {
        const sbit_node_id id = {i};
        for (size_t k = 0; sbit_graph_node_alive(graph, id) && k < SBIT__COUNT_OF(sbit__qops);
             k++) {
            const sbit_node *node = sbit_graph_node(graph, id);
            if (sbit__qop_undoable(graph, node, &sbit__qops[k])) {
                SBIT__TRY(sbit__qop_undo(graph, node, &sbit__qops[k], error));
                break;
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__qop_seen(const sbit_graph *graph, void *user)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        for (size_t k = 0; k < SBIT__COUNT_OF(sbit__qops); k++) {
            *(bool *)user = *(bool *)user ||
                            sbit__qop_undoable(graph, sbit_graph_node(graph, id), &sbit__qops[k]);
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__format_qdq(sbit_graph *graph, sbit_error *error)
{
    bool any = false;
    (void)sbit_graph_each(graph, sbit__qop_seen, &any);
    SBIT__TRY(sbit__qop_undo_all(graph, error));
    if (any && sbit_graph_parent(graph) == NULL && sbit_graph_opset(graph, "") < 13) {
        SBIT__TRY(sbit_graph_lift_opset(graph, 13, error));
    }
    return SBIT_OK;
}

/* >>formats table */
static const sbit_format_row sbit__formats[] = {
    {{"qdq", "QuantizeLinear and DequantizeLinear around float operators", 0, NULL, 0},
     false,
     NULL},
    {{"weights", "integer weights through DequantizeLinear, float activations", 0, NULL, 0},
     true,
     NULL},
    {{"qoperator", "operators on integers: QLinearConv, QLinearMatMul, com.microsoft's", 0, NULL,
      0},
     false,
     sbit__format_qoperator},
    {{"dynamic", "activations quantized while running: MatMulInteger, ConvInteger", 0, NULL, 0},
     true,
     sbit__format_dynamic},
    {{"matmul_nbits", "weights in blocks (GROUP_SIZE) as com.microsoft MatMulNBits", 0, NULL, 0},
     true,
     sbit__format_nbits},
};

SPARSEBIT_API const sbit_format_row *sbit_format_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__formats) ? &sbit__formats[index] : NULL;
}

static const sbit_head *sbit__format_head(size_t index)
{
    return (const sbit_head *)sbit_format_at(index); /* the first member */
}

static const sbit__kind sbit__format_kind = {"format", sbit__format_head};

SPARSEBIT_API const sbit_format_row *sbit_format_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_format_row *)(const void *)sbit__row_find(ctx, &sbit__format_kind, name);
}

SPARSEBIT_API sbit_status sbit_format_register(sbit_ctx *ctx, const sbit_format_row *row,
                                               sbit_error *error)
{
    return sbit__row_register(ctx, &sbit__format_kind, (const sbit_head *)row, true, error);
}

SBIT__FN sbit_status sbit__format_get(const sbit_ctx *ctx, const char *name,
                                      const sbit_format_row **out, sbit_error *error)
{
    sbit__text known;
    *out = sbit_format_find(ctx, name);
    if (*out != NULL) {
        return SBIT_OK;
    }
    sbit__text_init(&known, sbit_ctx_allocator(ctx));
    sbit__row_names(ctx, &sbit__format_kind, 0, ", ", &known);
    const sbit_status status =
        sbit__fail(error, SBIT_ERR_CONFIG, "EXPORT.FORMAT", "unknown format '%s'; known: %s", name,
                   known.failed ? "" : known.data);
    sbit__text_deinit(&known);
    return status;
}
