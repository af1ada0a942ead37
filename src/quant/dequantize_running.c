/* dequantize_running.c: models whose activations are floats: quantized while running, or not at
 * all. >>dequantize-running
 *
 * Called by: dequantize.c, in front of everything else.
 *   MatMulNBits, DynamicQuantizeMatMul   become what they are written with (row->expand)
 *   DynamicQuantizeLinear                vanishes: its integers are x, its scale is 1, so that
 *   MatMulInteger, ConvInteger,          are MatMul and Conv of x with w - zero point, of which
 *   MatMulIntegerToFloat                 what follows makes the same numbers: Cast, times scales
 *                                        (a scale of x that is not its DynamicQuantizeLinear's, too)
 * Afterwards constant factors go into the weights (pass fuse_scalar).
 */
#include "quant_private.h"

/* Output `i` of a DynamicQuantizeLinear: integers, scale, zero point; none: it is left out. */
static sbit_value_id sbit__running_output(const sbit_node *dynamic, size_t i)
{
    const sbit_value_id none = {0};
    return i < dynamic->output_count ? dynamic->outputs[i] : none;
}

/* Operators that are written with others and have a weight of their own. */
static sbit_status sbit__running_expand(sbit_graph *graph, bool *changed, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(graph), next; id.idx != 0; id = next) {
        const sbit_node *node = sbit_graph_node(graph, id);
        next = sbit_graph_next(graph, id);
        if (!sbit__streq(node->domain, "com.microsoft") ||
            !(sbit__dequantize_is(node, "MatMulNBits") ||
              sbit__dequantize_is(node, "DynamicQuantizeMatMul"))) {
            continue;
        }
        const sbit_op_row *row =
            sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                               sbit_graph_opset(graph, node->domain));
        if (row != NULL && row->expand != NULL) {
            SBIT__TRY(row->expand(graph, id, error));
            *changed = true;
        }
    }
    return SBIT_OK;
}

/* The float operand behind an integer one: what DynamicQuantizeLinear read, or a constant minus its
 * zero point, times scales (NULL: 1; one, or one for each index of `axis`). None: there is none. */
static sbit_status sbit__running_operand(sbit_graph *graph, const sbit_node *node, size_t at,
                                         size_t zero_at, const sbit_tensor *scale, int32_t axis,
                                         sbit_value_id *out, sbit_error *error)
{
    const sbit_node *dynamic = sbit__format_producer(graph, node->inputs[at]);
    const sbit_tensor *q = sbit__format_constant(graph, node, at);
    const sbit_tensor *zero = sbit__format_constant(graph, node, zero_at);
    const bool one = zero == NULL || sbit_tensor_count(zero) == 1;
    char name[256], given[256];
    sbit_tensor w;
    out->idx = 0;
    if (sbit__format_is(dynamic, "DynamicQuantizeLinear")) {
        if (scale == NULL &&
            sbit__node_in(node, zero_at).idx == sbit__running_output(dynamic, 2).idx) {
            *out = dynamic->inputs[0];
        }
        return SBIT_OK;
    }
    if (q == NULL || q->rank < 1 || (zero == NULL && sbit__node_in(node, zero_at).idx != 0)) {
        return SBIT_OK;
    }
    axis = axis < 0 ? axis + q->rank : axis;
    const sbit_parts parts = sbit_parts_of(q, axis, 0);
    if ((!one && sbit_tensor_count(zero) != parts.count) ||
        (scale != NULL && sbit_tensor_count(scale) != 1 &&
         sbit_tensor_count(scale) != parts.count)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(graph), SBIT_F32, q->rank, q->dims, &w, error));
    sbit_runs runs = sbit_runs_of(&parts);
    while (sbit_runs_next(&runs)) {
        const double z = zero == NULL ? 0.0 : sbit__tensor_f64_at(zero, one ? 0 : runs.part);
        const double s =
            scale == NULL
                ? 1.0
                : sbit__tensor_f64_at(scale, sbit_tensor_count(scale) == 1 ? 0 : runs.part);
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            ((float *)w.data)[i] = (float)(sbit__tensor_f64_at(q, i) - z) * (float)s;
        }
    }
    snprintf(given, sizeof given, "%.250s", sbit_graph_value(graph, node->inputs[at])->name);
    sbit__dequantize_name(given, name, sizeof name);
    const sbit_status status = sbit__graph_take_constant(graph, name, &w, out, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(sbit_graph_ctx(graph), &w);
    }
    return status;
}

/* A product of integers as one of floats; left alone where an operand has no float. */
static sbit_status sbit__running_product(sbit_graph *graph, const sbit_node *node, bool *changed,
                                         sbit_error *error)
{
    const bool conv = sbit__dequantize_is(node, "ConvInteger");
    const bool scaled = sbit__dequantize_is(node, "MatMulIntegerToFloat");
    const sbit_tensor *scale = scaled ? sbit__format_constant(graph, node, 3) : NULL;
    const size_t zero = scaled ? 4 : 2;
    const sbit_node *dynamic = sbit__format_producer(graph, node->inputs[0]);
    sbit_value_id inputs[2], y, bias = {0}, factor = {0};
    if (scaled && (scale == NULL || !sbit__format_is(dynamic, "DynamicQuantizeLinear"))) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__running_operand(graph, node, 0, zero, NULL, -2, &inputs[0], error));
    SBIT__TRY(
        sbit__running_operand(graph, node, 1, zero + 1, scale, conv ? 0 : -1, &inputs[1], error));
    if (inputs[0].idx == 0 || inputs[1].idx == 0) {
        return SBIT_OK;
    }
    if (scaled) {
        bias = sbit__node_in(node, 6);
        if (node->inputs[2].idx != sbit__running_output(dynamic, 1).idx) {
            factor = node->inputs[2];
        }
    }
    SBIT__TRY(sbit__format_add(graph, node, "", conv ? "Conv" : "MatMul", inputs, 2,
                               conv ? node->attrs : NULL, conv ? node->attr_count : 0, &y, 1,
                               error));
    if (factor.idx != 0) {
        inputs[0] = y;
        inputs[1] = factor;
        SBIT__TRY(sbit__format_add(graph, node, "", "Mul", inputs, 2, NULL, 0, &y, 1, error));
    }
    if (bias.idx != 0) {
        inputs[0] = y;
        inputs[1] = bias;
        SBIT__TRY(sbit__format_add(graph, node, "", "Add", inputs, 2, NULL, 0, &y, 1, error));
    }
    const sbit_value_id old = node->outputs[0];
    SBIT__TRY(sbit_graph_replace_uses(graph, old, y, error));
    sbit_graph_erase_node(graph, node->id);
    sbit_graph_erase_value(graph, old);
    *changed = true;
    return SBIT_OK;
}

/* Its integers and zero point have no reader left; its scale, if that has, is 1. */
static sbit_status sbit__running_forget(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    sbit_value_id outputs[3], one;
    for (size_t i = 0; i < 3; i++) {
        outputs[i] = sbit__running_output(node, i);
        if (i != 1 && outputs[i].idx != 0 && sbit_graph_uses(graph, outputs[i], NULL, 0) > 0) {
            return SBIT_OK; /* the check behind names the operator */
        }
    }
    if (outputs[1].idx != 0 && sbit_graph_uses(graph, outputs[1], NULL, 0) > 0) {
        SBIT__TRY(sbit__add_scalar(graph, "scale", SBIT_F32, 0, 1.0, &one, error));
        SBIT__TRY(sbit_graph_replace_uses(graph, outputs[1], one, error));
    }
    sbit_graph_erase_node(graph, id);
    for (size_t i = 0; i < 3; i++) {
        if (outputs[i].idx != 0) {
            sbit_graph_erase_value(graph, outputs[i]);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__running_graph(sbit_graph *graph, bool *changed, sbit_error *error)
{
    sbit_node_id next;
    SBIT__TRY(sbit__running_expand(graph, changed, error));
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = next) {
        const sbit_node *node = sbit_graph_node(graph, id);
        next = sbit_graph_next(graph, id);
        if (sbit__dequantize_is(node, "MatMulInteger") || sbit__dequantize_is(node, "ConvInteger") ||
            sbit__dequantize_is(node, "MatMulIntegerToFloat")) {
            SBIT__TRY(sbit__running_product(graph, node, changed, error));
        }
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = next) {
        next = sbit_graph_next(graph, id);
        if (sbit__format_is(sbit_graph_node(graph, id), "DynamicQuantizeLinear")) {
            SBIT__TRY(sbit__running_forget(graph, id, error));
        }
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(sbit_graph_node(graph, id), b)) != NULL; b++) {
            SBIT__TRY(sbit__running_graph(body, changed, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__dequantize_running(sbit_graph *graph, sbit_error *error)
{
    static const char *const only[] = {"fold_constants", "identity", "fuse_scalar", "dead_code"};
    sbit_simplify_desc desc;
    bool changed = false;
    SBIT__TRY(sbit__running_graph(graph, &changed, error));
    if (!changed) {
        return SBIT_OK;
    }
    memset(&desc, 0, sizeof desc);
    desc.only = only;
    desc.only_count = SBIT__COUNT_OF(only);
    SBIT__TRY(sbit_graph_sort(graph, error));
    return sbit_simplify(graph, &desc, NULL, error);
}
