/* curve.c: operators that together are a function of one tensor, element by element. >>curve
 *
 * Exporters write Gelu, SiLU, HardSwish with others: x * (1 + erf(x / sqrt(2))) / 2. To a quantizer
 * that is one operator, as it is to who runs it (a table of 256): it has one argument and one
 * result, and what is between stays float. A curve begins where one value is read by operators that
 * meet again in a sum or a product, is elementwise from there, has numbers as its only other
 * operands, and nobody else looks at what is inside; scaling by a number behind it belongs to it.
 * With reductions on the way it normalizes (LayerNormalization, RMSNormalization written with
 * others: x - mean(x) is one, its division by the deviation another) and stays float as a whole.
 */
#include "quant_private.h"

#define SBIT__CURVE_VALUES 24 /* inside; Gelu by tanh has 8 */

typedef struct sbit__curve {
    const sbit_quant *quant;
    const sbit__site_graph *facts;
    const sbit_graph *graph;
    const sbit_node *last;
    sbit_value_id inside[SBIT__CURVE_VALUES], open[SBIT__CURVE_VALUES];
    size_t inside_count, open_count; /* open: what has not been followed further back */
    bool normalizes;
} sbit__curve;

static bool sbit__curve_elementwise(const sbit__curve *c, const sbit_node *node)
{
    const sbit_op_row *row = node == NULL
                                 ? NULL
                                 : sbit_operator_find(c->quant->ctx, node->domain, node->op_type,
                                                      sbit_graph_opset(c->graph, node->domain));
    return row != NULL && row->channel != NULL && row->channel->kind == SBIT_CHANNEL_ELEMENTWISE &&
           (row->flags & SBIT_OP_RANDOM) == 0 && node->output_count == 1;
}

/* Its output broadcasts back to its input. */
static bool sbit__curve_reduces(const sbit_node *node)
{
    return node != NULL && node->domain[0] == '\0' && strncmp(node->op_type, "Reduce", 6) == 0 &&
           sbit_node_int(node, "keepdims", 1) != 0;
}

static bool sbit__curve_number(const sbit__curve *c, sbit_value_id id)
{
    double value = 0.0;
    return id.idx == 0 || sbit__scalar_const(c->graph, id, &value);
}

/* The node's operands that are no numbers become open; false if there are too many. */
static bool sbit__curve_open(sbit__curve *c, const sbit_node *node)
{
    const size_t count = sbit__curve_reduces(node) ? 1 : node->input_count; /* without axes */
    for (size_t i = 0; i < count; i++) {
        const sbit_value_id id = node->inputs[i];
        bool there = sbit__curve_number(c, id);
        for (size_t k = 0; k < c->open_count; k++) {
            there = there || c->open[k].idx == id.idx;
        }
        if (!there && c->open_count == SBIT__CURVE_VALUES) {
            return false;
        }
        if (!there) {
            c->open[c->open_count++] = id;
        }
    }
    return true;
}

/* Follows the open value that is made last. */
static bool sbit__curve_follow(sbit__curve *c)
{
    size_t at = 0;
    uint64_t latest = 0;
    for (size_t i = 0; i < c->open_count; i++) {
        const sbit_node *maker = sbit__producer(c->graph, c->open[i]);
        const uint64_t order =
            maker != NULL ? sbit__graph_node_at(c->graph, maker->id)->order + 1 : 0;
        if (order > latest) {
            latest = order;
            at = i;
        }
    }
    const sbit_value_id id = c->open[at];
    const sbit_node *node = sbit__producer(c->graph, id);
    if (latest == 0 || c->inside_count == SBIT__CURVE_VALUES ||
        (!sbit__curve_reduces(node) && !sbit__curve_elementwise(c, node))) {
        return false;
    }
    c->normalizes = c->normalizes || sbit__curve_reduces(node);
    c->open[at] = c->open[--c->open_count];
    c->inside[c->inside_count++] = id;
    return sbit__curve_open(c, node);
}

static size_t sbit__curve_reads(const sbit_node *node, sbit_value_id id)
{
    size_t count = 0;
    for (size_t i = 0; i < node->input_count; i++) {
        count += node->inputs[i].idx == id.idx ? 1 : 0;
    }
    return count;
}

/* Nobody outside looks at what is inside. */
static bool sbit__curve_closed(const sbit__curve *c)
{
    for (size_t i = 0; i < c->inside_count; i++) {
        const sbit_value_info *value = sbit_graph_value(c->graph, c->inside[i]);
        size_t count = sbit__curve_reads(c->last, value->id);
        for (size_t k = 0; k < c->inside_count; k++) {
            count += sbit__curve_reads(sbit__producer(c->graph, c->inside[k]), value->id);
        }
        if (value->is_output || value->use_count != count) {
            return false;
        }
    }
    return true;
}

/* x and y are data of one shape, as far as their ranks say. */
static bool sbit__curve_fits(const sbit__curve *c, sbit_value_id x, sbit_value_id y)
{
    const sbit_type *a = &sbit_graph_value(c->graph, x)->type;
    const sbit_type *b = &sbit_graph_value(c->graph, y)->type;
    return c->facts->data[x.idx] && a->rank >= 0 && a->rank == b->rank && a->dtype == b->dtype;
}

static void sbit__curve_set(const sbit__curve *c, sbit_value_id x)
{
    const uint32_t result = c->last->outputs[0].idx;
    for (size_t i = 0; i < c->inside_count; i++) {
        const uint32_t inside = c->inside[i].idx;
        c->facts->exact[inside] = true;
        c->facts->curve[inside] = result;
        c->facts->argument[inside] = 0; /* it may have ended a smaller curve */
    }
    c->facts->argument[result] = x.idx;
    c->facts->normalizes[result] = c->normalizes;
}

/* Operands of `last` that meet again further back. */
static void sbit__curve_join(sbit__curve *c, const sbit_node *last)
{
    c->last = last;
    c->inside_count = c->open_count = 0;
    c->normalizes = false;
    if (!sbit__curve_elementwise(c, last) || !sbit__curve_open(c, last) || c->open_count < 2) {
        return;
    }
    while (c->open_count > 1) {
        if (!sbit__curve_follow(c)) {
            return;
        }
    }
    if (c->open_count == 1 && sbit__curve_closed(c) &&
        sbit__curve_fits(c, c->open[0], last->outputs[0])) {
        sbit__curve_set(c, c->open[0]);
    }
}

/* Add, Sub, Mul, Div of the curve's result and a number. */
static void sbit__curve_extend(sbit__curve *c, const sbit_node *node)
{
    const sbit_op_row *row = sbit_operator_find(c->quant->ctx, node->domain, node->op_type,
                                                sbit_graph_opset(c->graph, node->domain));
    const bool arithmetic = row != NULL && row->quant != NULL && node->input_count == 2 &&
                            (row->quant->flags & SBIT_QUANT_TENSOR_ONLY) != 0;
    for (size_t side = 0; arithmetic && side < 2; side++) {
        const sbit_value_id id = node->inputs[side];
        const sbit_value_info *value = sbit_graph_value(c->graph, id);
        const sbit_value_id x = {c->facts->argument[id.idx]};
        if (x.idx == 0 || c->facts->normalizes[id.idx] || value->use_count != 1 ||
            value->is_output || !sbit__curve_number(c, node->inputs[1 - side]) ||
            !sbit__curve_fits(c, x, node->outputs[0])) {
            continue;
        }
        c->last = node;
        c->inside_count = 0;
        c->normalizes = false;
        for (uint32_t i = 1; i < sbit_graph_value_limit(c->graph); i++) {
            if (c->facts->curve[i] == id.idx) {
                c->facts->curve[i] = node->outputs[0].idx;
            }
        }
        c->inside[c->inside_count++] = id;
        sbit__curve_set(c, x);
        return;
    }
}

SBIT__FN void sbit__curve_find(sbit_quant *quant)
{
    for (size_t g = 0; g < quant->graph_count; g++) {
        sbit__curve c;
        memset(&c, 0, sizeof c);
        c.quant = quant;
        c.facts = &quant->graphs[g];
        c.graph = c.facts->graph;
        for (sbit_node_id id = sbit_graph_first(c.graph); id.idx != 0;
             id = sbit_graph_next(c.graph, id)) {
            sbit__curve_join(&c, sbit_graph_node(c.graph, id));
        }
        for (sbit_node_id id = sbit_graph_first(c.graph); id.idx != 0;
             id = sbit_graph_next(c.graph, id)) {
            sbit__curve_extend(&c, sbit_graph_node(c.graph, id));
        }
    }
}

#undef SBIT__CURVE_VALUES
