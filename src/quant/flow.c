/* flow.c: what values are made of: data, shapes, layers, masks. >>flow
 *
 * data      what depends on the model's inputs, or is random. The rest follows from shapes and
 *           constants and is another at every size: it is never calibrated.
 * layered   a layer with weights, a product of activations or a body has had part in it
 * scored    a Softmax reads it, behind nothing but sums, factors and what passes values on
 * exact     attention scores with a mask in them, and the mask. In front of a Softmax an Add (Sub,
 *           Sum) of something that is not layered - a mask is made of inputs, shapes and constants
 *           - or of a constant that reaches below -20, or a Where that chooses such a thing, can
 *           make sentinels: -1e4, -inf. No range serves them and the scores, so that their sum
 *           stays float, whether calibration saw a mask or not.
 */
#include "quant_private.h"

/* exp(-20) is 2e-9: nothing of such a score is left behind Softmax. */
#define SBIT__FLOW_FAR 20.0

typedef struct sbit__flow {
    sbit_quant *quant;
    const sbit__site_graph *facts;
    const sbit_graph *graph;
} sbit__flow;

static const sbit_op_row *sbit__flow_row(const sbit__flow *f, const sbit_node *node)
{
    return sbit_operator_find(f->quant->ctx, node->domain, node->op_type,
                              sbit_graph_opset(f->quant->graph, node->domain));
}

/* >>flow forwards */
static void sbit__flow_take(const sbit__flow *f, sbit_value_id id, bool *data, bool *layered)
{
    *data = *data || (id.idx != 0 && f->facts->data[id.idx]);
    *layered = *layered || (id.idx != 0 && f->facts->layered[id.idx]);
}

static void sbit__flow_node(const sbit__flow *f, const sbit_node *node)
{
    const sbit_op_row *row = sbit__flow_row(f, node);
    const sbit_op_quant *q = row != NULL ? row->quant : NULL;
    const uint32_t flags = row != NULL ? row->flags : 0;
    bool data = (flags & SBIT_OP_RANDOM) != 0, layered = q != NULL && q->weight >= 0;
    for (size_t i = 0; i < node->input_count && (flags & SBIT_OP_SHAPE_ONLY) == 0; i++) {
        sbit__flow_take(f, node->inputs[i], &data, &layered);
    }
    if ((flags & SBIT_OP_BODY) != 0) {
        sbit_value_id captured[64];
        const size_t count =
            sbit_graph_captures(f->graph, node->id, captured, SBIT__COUNT_OF(captured));
        for (size_t i = 0; i < count && i < SBIT__COUNT_OF(captured); i++) {
            sbit__flow_take(f, captured[i], &data, &layered);
        }
        data = data || count > SBIT__COUNT_OF(captured);
        layered = true; /* what is in the body may be */
    }
    for (size_t i = 0; i < node->output_count; i++) {
        f->facts->data[node->outputs[i].idx] = data;
        f->facts->layered[node->outputs[i].idx] = layered;
    }
    f->facts->data[0] = f->facts->layered[0] = false; /* omitted outputs */
}

/* Inputs, and what a body captures. */
static void sbit__flow_start(const sbit__flow *f)
{
    const sbit__site_graph *parent = sbit__site_graph_of(f->quant, sbit_graph_parent(f->graph));
    for (uint32_t i = 1; i < sbit_graph_value_limit(f->graph); i++) {
        const sbit_value_id id = {i};
        if (!sbit_graph_value_alive(f->graph, id)) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(f->graph, id);
        f->facts->data[i] = value->is_input && !value->is_constant;
        if (value->outer.idx != 0 && parent != NULL) {
            f->facts->data[i] = parent->data[value->outer.idx];
            f->facts->layered[i] = parent->layered[value->outer.idx];
        }
    }
}

/* >>flow masks */
static const sbit_value_info *sbit__flow_origin(const sbit__flow *f, sbit_value_id id)
{
    const sbit_graph *graph = f->graph;
    const sbit_value_info *value = sbit_graph_value(graph, id);
    while (value->outer.idx != 0) {
        graph = sbit_graph_parent(graph);
        value = sbit_graph_value(graph, value->outer);
    }
    return value;
}

/* True for what may hold sentinels when it is added (sign 1) or subtracted (-1). */
static bool sbit__flow_is_mask(const sbit__flow *f, sbit_value_id id, double sign)
{
    if (id.idx == 0 || f->facts->layered[id.idx]) {
        return false;
    }
    const sbit_value_info *value = sbit__flow_origin(f, id);
    if (!value->is_constant) {
        return true;
    }
    const int64_t count = sbit_tensor_count(&value->constant);
    for (int64_t i = 0; i < count; i++) {
        if (!(sign * sbit__tensor_f64_at(&value->constant, i) > -SBIT__FLOW_FAR)) {
            return true;
        }
    }
    return false;
}

/* A mask stays as it is, and what it alone is made of. */
static void sbit__flow_keep(const sbit__flow *f, sbit_value_id id)
{
    while (id.idx != 0) {
        const sbit_value_info *value = sbit_graph_value(f->graph, id);
        if (value->is_constant || value->is_input || f->facts->layered[id.idx] ||
            value->use_count != 1 || value->producer.idx == 0) {
            return;
        }
        f->facts->exact[id.idx] = true;
        const sbit_node *node = sbit_graph_node(f->graph, value->producer);
        id.idx = 0;
        for (size_t i = 0; i < node->input_count && id.idx == 0; i++) {
            const bool constant =
                node->inputs[i].idx == 0 || sbit__flow_origin(f, node->inputs[i])->is_constant;
            id = constant ? id : node->inputs[i];
        }
    }
}

SBIT__FN bool sbit__flow_is_softmax(const sbit_node *node)
{
    return node->domain[0] == '\0' &&
           (sbit__streq(node->op_type, "Softmax") || sbit__streq(node->op_type, "LogSoftmax"));
}

static bool sbit__flow_sums(const sbit_node *node)
{
    return sbit__streq(node->op_type, "Add") || sbit__streq(node->op_type, "Sub") ||
           sbit__streq(node->op_type, "Sum");
}

/* Which inputs of a node go on towards its output as they are, or as a sum: from *first up to what
 * is returned. */
static size_t sbit__flow_scores(const sbit__flow *f, const sbit_node *node, size_t *first)
{
    const sbit_op_row *row = sbit__flow_row(f, node);
    const bool where = sbit__streq(node->op_type, "Where");
    const bool passes =
        row != NULL && row->quant != NULL && (row->quant->flags & SBIT_QUANT_PASS_SCALE) != 0;
    *first = where ? 1 : 0;
    return where || sbit__flow_sums(node) || sbit__streq(node->op_type, "Mul") ||
                   sbit__streq(node->op_type, "Div")
               ? node->input_count
           : passes && node->input_count > 0 ? 1
                                             : 0;
}

static bool sbit__flow_goes_on(const sbit_node *node, size_t input, const bool *scored,
                               const void *user)
{
    const sbit__flow *f = (const sbit__flow *)user;
    size_t first;
    if (sbit__flow_is_softmax(node)) {
        return input == 0;
    }
    return node->output_count > 0 && scored[node->outputs[0].idx] &&
           f->facts->layered[node->outputs[0].idx] && input < sbit__flow_scores(f, node, &first) &&
           input >= first;
}

/* A node that makes scores: they are exact if some of its inputs are, or if it masks them. */
static void sbit__flow_mask(const sbit__flow *f, const sbit_node *node)
{
    const bool sub = sbit__streq(node->op_type, "Sub");
    size_t first;
    if (node->output_count == 0) {
        return;
    }
    const sbit_value_id out = node->outputs[0];
    if (!f->facts->scored[out.idx] || !f->facts->layered[out.idx]) {
        return;
    }
    const size_t count = sbit__flow_scores(f, node, &first);
    for (size_t i = first; i < count; i++) {
        const sbit_value_id id = node->inputs[i];
        const bool mask = (first > 0 || sbit__flow_sums(node)) &&
                          sbit__flow_is_mask(f, id, sub && i == 1 ? -1.0 : 1.0);
        if (mask) {
            sbit__flow_keep(f, id);
        }
        f->facts->exact[out.idx] = f->facts->exact[out.idx] || mask ||
                                   (f->facts->exact[id.idx] && f->facts->layered[id.idx]);
    }
}

SBIT__FN void sbit__flow_find(sbit_quant *quant)
{
    for (size_t g = 0; g < quant->graph_count; g++) { /* the graph around a body comes before it */
        sbit__flow f;
        f.quant = quant;
        f.facts = &quant->graphs[g];
        f.graph = f.facts->graph;
        sbit__flow_start(&f);
        for (sbit_node_id id = sbit_graph_first(f.graph); id.idx != 0;
             id = sbit_graph_next(f.graph, id)) {
            sbit__flow_node(&f, sbit_graph_node(f.graph, id));
        }
        sbit__graph_mark_back(f.graph, f.facts->scored, sbit__flow_goes_on, &f);
        for (sbit_node_id id = sbit_graph_first(f.graph); id.idx != 0;
             id = sbit_graph_next(f.graph, id)) {
            sbit__flow_mask(&f, sbit_graph_node(f.graph, id));
        }
    }
    for (size_t i = 0; i < quant->beside_count; i++) { /* of the root */
        quant->graphs[0].exact[quant->beside[i].y.idx] = true;
        quant->graphs[0].exact[quant->beside[i].made.idx] = true;
    }
}
