/* layer_norm.c: finds LayerNormalization written with primitives. >>layer-norm
 *
 * Called by: fuse_patterns, quant (which keeps the pattern in float, A3.17). Calls: graph.
 *     mean = ReduceMean(x, last axes)             d = Sub(x, mean)
 *     var = ReduceMean(Pow(d, 2) or Mul(d, d))    s = Sqrt(Add(var, epsilon))
 *     y = Div(d, s) or Mul(d, Reciprocal(s)) or Mul(d, Pow(Add(var, epsilon), -0.5))
 *     [Mul(y, scale)] [Add(y, bias)]
 * d may be computed twice. Everything but the output must be used inside only.
 */
#include "passes_private.h"

typedef struct sbit__ln_match {
    const sbit_graph *graph;
    const sbit__facts *facts;
    sbit__layer_norm *out;
    int64_t axes[SBIT_MAX_RANK];
    int64_t axis_count;
} sbit__ln_match;

static const sbit_type *sbit__ln_type(const sbit__ln_match *m, sbit_value_id id)
{
    return m->facts != NULL ? sbit__facts_type(m->facts, id)
                            : &sbit_graph_value(m->graph, id)->type;
}

static void sbit__ln_add(sbit__ln_match *m, const sbit_node *node)
{
    for (size_t i = 0; i < m->out->node_count; i++) {
        if (m->out->nodes[i].idx == node->id.idx) {
            return;
        }
    }
    if (m->out->node_count < SBIT__LAYER_NORM_NODES) {
        m->out->nodes[m->out->node_count++] = node->id;
    }
}

/* A ReduceMean over the last axes of x that keeps them as 1. */
static const sbit_node *sbit__ln_mean(sbit__ln_match *m, sbit_value_id id)
{
    const sbit_node *node = sbit__producer(m->graph, id);
    int64_t axes[SBIT_MAX_RANK], count = 0;
    int32_t rank = 0;
    if (!sbit__is_op(node, "ReduceMean") || sbit_node_int(node, "keepdims", 1) == 0 ||
        node->inputs[0].idx == 0 ||
        !sbit__node_ints(m->graph, node, "axes", 1, axes, SBIT_MAX_RANK, &count) || count == 0) {
        return NULL;
    }
    rank = sbit__ln_type(m, node->inputs[0])->rank;
    for (int64_t i = 0; i < count; i++) {
        bool found = false;
        axes[i] += axes[i] < 0 ? (rank > 0 ? rank : SBIT_MAX_RANK) : 0;
        for (int64_t k = 0; k < i; k++) {
            found = found || axes[k] == axes[i];
        }
        if (found || rank <= 0 || axes[i] < rank - count || axes[i] >= rank) {
            return NULL;
        }
    }
    if (m->out->rank != 0 && (m->out->rank != rank || m->axis_count != count)) {
        return NULL;
    }
    m->out->rank = rank;
    m->axis_count = count;
    sbit__ln_add(m, node);
    return node;
}

/* Sub(x, ReduceMean(x)) with that x (none: any). */
static bool sbit__ln_centred(sbit__ln_match *m, sbit_value_id id)
{
    const sbit_node *node = sbit__producer(m->graph, id), *mean = NULL;
    if (!sbit__is_op(node, "Sub") || node->input_count != 2) {
        return false;
    }
    mean = sbit__ln_mean(m, node->inputs[1]);
    if (mean == NULL || mean->inputs[0].idx != node->inputs[0].idx ||
        (m->out->x.idx != 0 && m->out->x.idx != node->inputs[0].idx)) {
        return false;
    }
    m->out->x = node->inputs[0];
    sbit__ln_add(m, node);
    return true;
}

/* ReduceMean of the square of the centred x. */
static bool sbit__ln_variance(sbit__ln_match *m, sbit_value_id id)
{
    const sbit_node *mean = sbit__ln_mean(m, id);
    const sbit_node *square = mean != NULL ? sbit__producer(m->graph, mean->inputs[0]) : NULL;
    double two = 0.0;
    if (sbit__is_op(square, "Pow")) {
        if (!sbit__scalar_const(m->graph, square->inputs[1], &two) || two != 2.0) {
            return false;
        }
    } else if (!sbit__is_op(square, "Mul") || square->inputs[0].idx != square->inputs[1].idx) {
        return false;
    }
    sbit__ln_add(m, square);
    return sbit__ln_centred(m, square->inputs[0]);
}

/* Add(variance, epsilon) */
static bool sbit__ln_sum(sbit__ln_match *m, sbit_value_id id)
{
    const sbit_node *add = sbit__producer(m->graph, id);
    if (!sbit__is_op(add, "Add") || add->input_count != 2) {
        return false;
    }
    for (size_t side = 0; side < 2; side++) {
        if (sbit__scalar_const(m->graph, add->inputs[side], &m->out->epsilon) &&
            m->out->epsilon > 0.0) {
            sbit__ln_add(m, add);
            return sbit__ln_variance(m, add->inputs[1 - side]);
        }
    }
    return false;
}

static bool sbit__ln_deviation(sbit__ln_match *m, sbit_value_id id)
{
    const sbit_node *node = sbit__producer(m->graph, id);
    if (!sbit__is_op(node, "Sqrt")) {
        return false;
    }
    sbit__ln_add(m, node);
    return sbit__ln_sum(m, node->inputs[0]);
}

/* 1 / deviation, in three spellings. */
static bool sbit__ln_reciprocal(sbit__ln_match *m, sbit_value_id id)
{
    const sbit_node *node = sbit__producer(m->graph, id);
    double value = 0.0;
    if (sbit__is_op(node, "Reciprocal")) {
        sbit__ln_add(m, node);
        return sbit__ln_deviation(m, node->inputs[0]);
    }
    if (sbit__is_op(node, "Div") && sbit__scalar_const(m->graph, node->inputs[0], &value) &&
        value == 1.0) {
        sbit__ln_add(m, node);
        return sbit__ln_deviation(m, node->inputs[1]);
    }
    if (sbit__is_op(node, "Pow") && sbit__scalar_const(m->graph, node->inputs[1], &value) &&
        value == -0.5) {
        sbit__ln_add(m, node);
        return sbit__ln_sum(m, node->inputs[0]);
    }
    return false;
}

static void sbit__ln_restart(sbit__ln_match *m)
{
    memset(m->out, 0, sizeof *m->out);
    m->axis_count = 0;
}

static bool sbit__ln_normalized(sbit__ln_match *m, const sbit_node *node)
{
    if (sbit__is_op(node, "Div") && node->input_count == 2) {
        sbit__ln_restart(m);
        return sbit__ln_deviation(m, node->inputs[1]) && sbit__ln_centred(m, node->inputs[0]);
    }
    for (size_t side = 0; sbit__is_op(node, "Mul") && node->input_count == 2 && side < 2; side++) {
        sbit__ln_restart(m);
        if (sbit__ln_reciprocal(m, node->inputs[side]) &&
            sbit__ln_centred(m, node->inputs[1 - side])) {
            return true;
        }
    }
    return false;
}

/* The one node that uses the value, if it is that operator with a constant of the normalized
 * axes on its other side. */
static const sbit_node *sbit__ln_tail(sbit__ln_match *m, sbit_value_id id, const char *op_type,
                                      sbit_value_id *other)
{
    const sbit_type *x = sbit__ln_type(m, m->out->x);
    const sbit_tensor *tensor = NULL;
    const sbit_node *node = NULL;
    sbit_use use;
    if (!sbit__sole_use(m->graph, id) || sbit_graph_uses(m->graph, id, &use, 1) != 1) {
        return NULL;
    }
    node = sbit_graph_node(m->graph, use.node);
    if (!sbit__is_op(node, op_type) || node->input_count != 2) {
        return NULL;
    }
    tensor = sbit__const_in(m->graph, node, 1 - use.index);
    if (tensor == NULL || tensor->rank != m->axis_count) {
        return NULL;
    }
    for (int32_t i = 0; i < tensor->rank; i++) {
        const sbit_dim dim = x->dims[x->rank - tensor->rank + i];
        if (!sbit__dim_known(dim) || dim.value != tensor->dims[i]) {
            return NULL;
        }
    }
    *other = node->inputs[1 - use.index];
    return node;
}

static bool sbit__ln_inside(const sbit__layer_norm *out, sbit_node_id id)
{
    for (size_t i = 0; i < out->node_count; i++) {
        if (out->nodes[i].idx == id.idx) {
            return true;
        }
    }
    return false;
}

/* No value but the output is used from outside. */
static bool sbit__ln_closed(const sbit_graph *graph, const sbit__layer_norm *out)
{
    for (size_t i = 0; i < out->node_count; i++) {
        const sbit_node *node = sbit_graph_node(graph, out->nodes[i]);
        const sbit_value_id id = node->outputs[0];
        sbit_use uses[8];
        const size_t count = sbit_graph_uses(graph, id, uses, SBIT__COUNT_OF(uses));
        if (id.idx == out->output.idx) {
            continue;
        }
        if (count > SBIT__COUNT_OF(uses)) {
            return false;
        }
        for (size_t k = 0; k < count; k++) {
            if (uses[k].body != NULL || uses[k].node.idx == 0 ||
                !sbit__ln_inside(out, uses[k].node)) {
                return false;
            }
        }
    }
    return true;
}

SBIT__FN bool sbit__match_layer_norm(const sbit_graph *graph, sbit_node_id id,
                                     const sbit__facts *facts, sbit__layer_norm *out)
{
    const sbit_node *node = sbit_graph_node(graph, id), *tail = NULL;
    sbit_value_id other = {0};
    sbit__ln_match m;
    memset(&m, 0, sizeof m);
    m.graph = graph;
    m.facts = facts;
    m.out = out;
    if (!sbit__ln_normalized(&m, node)) {
        return false;
    }
    sbit__ln_add(&m, node);
    out->output = node->outputs[0];
    out->axis = out->rank - (int32_t)m.axis_count;
    tail = sbit__ln_tail(&m, out->output, "Mul", &other);
    if (tail != NULL) {
        out->scale = other;
        out->output = tail->outputs[0];
        sbit__ln_add(&m, tail);
    }
    tail = sbit__ln_tail(&m, out->output, "Add", &other);
    if (tail != NULL) {
        out->bias = other;
        out->output = tail->outputs[0];
        sbit__ln_add(&m, tail);
    }
    return sbit__ln_closed(graph, out);
}
