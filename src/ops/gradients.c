/* gradients.c: the rules of differentiation: for each operator the nodes that compute the gradients
 * of its inputs. >>gradients
 *
 * Called by: grad, through the column `gradient` of the rows. Calls: graph.
 * dy is the gradient of output 0; "fit" sums a gradient to an input's shape where broadcasting has
 * spread the input. Functions that add nodes remember the first failure in g->status and give none
 * from then on, so that rules read as formulas.
 */
#include "gradient_private.h"
#include "elements_private.h"

#include <stdio.h> /* vsnprintf */

/* >>adding nodes */

SPARSEBIT_API void sbit_gradient_fail(sbit_gradient *g, sbit_status status, const char *format, ...)
{
    char node[160], text[sizeof(((sbit_error *)0)->message)];
    va_list args;
    if (g->status != SBIT_OK) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sbit_graph_describe(g->graph, g->node->id, node, sizeof node);
    g->status = sbit__fail(g->error, status, g->node->name, "%s: %s", node, text);
}

/* outputs[i] is made anew where `made` (NULL: all) says so, else omitted. */
SBIT__FN void sbit__g_add_node(sbit_gradient *g, const char *domain, const char *op_type,
                               const sbit_value_id *inputs, size_t input_count,
                               const sbit_attr *attrs, size_t attr_count, const bool *made,
                               sbit_value_id *outputs, size_t output_count)
{
    sbit_node_desc desc;
    sbit_node_id id;
    char name[160];
    memset(&desc, 0, sizeof desc);
    snprintf(name, sizeof name, "%s_grad", g->node->name[0] != '\0' ? g->node->name : op_type);
    for (size_t i = 0; i < output_count; i++) {
        outputs[i].idx = 0;
        if (g->status == SBIT_OK && (made == NULL || made[i])) {
            const sbit_type type = sbit__type_unknown();
            g->status = sbit_graph_add_value(g->graph, name, &type, &outputs[i], g->error);
        }
    }
    desc.op_type = op_type;
    desc.domain = domain;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = outputs;
    desc.output_count = output_count;
    desc.attrs = attrs;
    desc.attr_count = attr_count;
    if (g->status == SBIT_OK) {
        g->status = sbit_graph_add_node(g->graph, &desc, &id, g->error);
    }
}

/* An internal node whose `count` outputs are the gradients of the inputs, where `wanted` says so. */
SBIT__FN void sbit__g_node(sbit_gradient *g, const char *op_type, const sbit_value_id *inputs, size_t input_count,
                           const sbit_attr *attrs, size_t attr_count, const bool *wanted, size_t count)
{
    sbit_value_id outputs[8];
    sbit__g_add_node(g, SBIT__GRAD_DOMAIN, op_type, inputs, input_count, attrs, attr_count, wanted, outputs, count);
    for (size_t i = 0; i < count; i++) {
        if (wanted[i]) {
            g->input_grads[i] = outputs[i];
        }
    }
}

SPARSEBIT_API sbit_value_id sbit_gradient_add(sbit_gradient *g, const char *domain,
                                              const char *op_type, const sbit_value_id *inputs,
                                              size_t input_count, const sbit_attr *attrs,
                                              size_t attr_count)
{
    sbit_value_id output = {0};
    sbit__g_add_node(g, domain, op_type, inputs, input_count, attrs, attr_count, NULL, &output, 1);
    return output;
}

SBIT__FN sbit_value_id sbit__g_1(sbit_gradient *g, const char *op_type, sbit_value_id a)
{
    return sbit_gradient_add(g, "", op_type, &a, 1, NULL, 0);
}

SBIT__FN sbit_value_id sbit__g_2(sbit_gradient *g, const char *op_type, sbit_value_id a,
                                 sbit_value_id b)
{
    const sbit_value_id inputs[2] = {a, b};
    return sbit_gradient_add(g, "", op_type, inputs, 2, NULL, 0);
}

/* A node with the attributes of the forward node, except `without` (NULL: all); `of`: and its
 * operator. */
SBIT__FN sbit_value_id sbit__g_add_like(sbit_gradient *g, const char *domain, const char *op_type,
                                        const sbit_value_id *inputs, size_t input_count, bool of,
                                        const char *without)
{
    const sbit_allocator *a = sbit_ctx_allocator(sbit_graph_ctx(g->graph));
    const size_t room = g->node->attr_count + 1;
    sbit_attr *attrs = (sbit_attr *)sbit__calloc(a, room, sizeof *attrs);
    sbit_value_id out = {0};
    size_t count = 0;
    if (attrs == NULL) {
        sbit_gradient_fail(g, SBIT_ERR_OUT_OF_MEMORY, "no memory for its attributes");
        return out;
    }
    if (of) {
        attrs[count++] = sbit__attr_string("of", g->node->op_type);
    }
    for (size_t i = 0; i < g->node->attr_count; i++) {
        if (without == NULL || !sbit__streq(g->node->attrs[i].name, without)) {
            attrs[count++] = g->node->attrs[i];
        }
    }
    out = sbit_gradient_add(g, domain, op_type, inputs, input_count, attrs, count);
    sbit__free(a, attrs, room * sizeof *attrs);
    return out;
}

/* >>what is known of values */

SBIT__FN const sbit_type *sbit__g_type(const sbit_gradient *g, sbit_value_id id)
{
    return &sbit_graph_value(g->graph, id)->type;
}

SBIT__FN int32_t sbit__g_rank(sbit_gradient *g, sbit_value_id id)
{
    const int32_t rank = sbit__g_type(g, id)->rank;
    if (rank < 0) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED,
                           "the rank of '%s' must be known for its gradient",
                           sbit_graph_value(g->graph, id)->name);
    }
    return rank;
}

SBIT__FN bool sbit__g_wanted(const sbit_gradient *g, int32_t i)
{
    return i < g->input_count && g->wanted[i];
}

SBIT__FN sbit_value_id sbit__g_shape(sbit_gradient *g, sbit_value_id id)
{
    return sbit__g_1(g, "Shape", id);
}

/* A number of the element type that the node computes in. */
SBIT__FN sbit_value_id sbit__g_number(sbit_gradient *g, double value)
{
    const sbit_dtype dtype = sbit__g_type(g, g->outputs[0])->dtype;
    sbit_value_id id = {0};
    sbit_tensor tensor;
    double data = 0.0;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = dtype;
    tensor.data = &data;
    sbit__tensor_set_f64(&tensor, 0, value);
    if (g->status == SBIT_OK) {
        g->status = sbit_graph_add_constant(g->graph, "number", &tensor, &id, g->error);
    }
    return id;
}

static bool sbit__g_same_shape(const sbit_type *a, const sbit_type *b)
{
    bool same = a->rank == b->rank && a->rank >= 0;
    for (int32_t i = 0; same && i < a->rank; i++) {
        same = sbit__dim_equal(a->dims[i], b->dims[i]);
    }
    return same;
}

SBIT__FN sbit_value_id sbit__g_reduce(sbit_gradient *g, sbit_value_id grad, sbit_value_id like,
                                      int32_t align)
{
    const sbit_attr attr = sbit__attr_int("align", align);
    const sbit_value_id inputs[2] = {grad, sbit__g_shape(g, like)};
    return sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ReduceTo", inputs, 2, &attr, 1);
}

/* A gradient of output 0's shape becomes that of input i. */
SBIT__FN void sbit__g_fit(sbit_gradient *g, int32_t i, sbit_value_id grad)
{
    const bool same =
        sbit__g_same_shape(sbit__g_type(g, g->inputs[i]), sbit__g_type(g, g->outputs[0]));
    g->input_grads[i] = same ? grad : sbit__g_reduce(g, grad, g->inputs[i], -1);
}

SBIT__FN sbit_value_id sbit__g_where(sbit_gradient *g, sbit_value_id condition, sbit_value_id yes,
                                     sbit_value_id no)
{
    const sbit_value_id inputs[3] = {condition, yes, no};
    return sbit_gradient_add(g, "", "Where", inputs, 3, NULL, 0);
}

/* >>elementwise */

SBIT__FN void sbit__grad_zero(sbit_gradient *g)
{
    (void)g;
}

SBIT__FN void sbit__grad_identity(sbit_gradient *g)
{
    g->input_grads[0] = g->output_grads[0];
}

static void sbit__g_activation(sbit_gradient *g, sbit_value_id from)
{
    sbit_value_id inputs[4];
    int32_t n = 2;
    inputs[0] = g->output_grads[0];
    inputs[1] = from;
    for (int32_t i = 1; i < g->input_count && i < 3; i++) { /* Clip's limits */
        inputs[n++] = g->inputs[i];
    }
    g->input_grads[0] =
        sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "ActivationGrad", inputs, (size_t)n, true, NULL);
}

SBIT__FN void sbit__grad_from_input(sbit_gradient *g)
{
    sbit__g_activation(g, g->inputs[0]);
}

SBIT__FN void sbit__grad_from_output(sbit_gradient *g)
{
    sbit__g_activation(g, g->outputs[0]);
}

SBIT__FN void sbit__grad_clip(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], zero = sbit__g_number(g, 0.0);
    const bool has_low = g->input_count > 1 && g->inputs[1].idx != 0;
    const bool has_high = g->input_count > 2 && g->inputs[2].idx != 0;
    if (sbit__g_wanted(g, 1)) { /* what it holds back, unless the other limit does */
        const sbit_value_id below = sbit__g_2(g, "Less", g->inputs[0], g->inputs[1]);
        const sbit_value_id part = sbit__g_where(g, below, dy, zero);
        sbit__g_fit(g, 1,
                    has_high ? sbit__g_where(g, sbit__g_2(g, "Less", g->inputs[2], g->inputs[1]),
                                             zero, part)
                             : part);
    }
    if (sbit__g_wanted(g, 2)) {
        const sbit_value_id raised =
            has_low ? sbit__g_2(g, "Max", g->inputs[0], g->inputs[1]) : g->inputs[0];
        const sbit_value_id above = sbit__g_2(g, "Less", g->inputs[2], raised);
        sbit__g_fit(g, 2, sbit__g_where(g, above, dy, zero));
    }
    if (g->wanted[0]) {
        sbit__g_activation(g, g->inputs[0]);
    }
}

SBIT__FN void sbit__grad_neg(sbit_gradient *g)
{
    g->input_grads[0] = sbit__g_1(g, "Neg", g->output_grads[0]);
}

SBIT__FN void sbit__grad_add(sbit_gradient *g)
{
    for (int32_t i = 0; i < g->input_count; i++) {
        if (g->wanted[i]) {
            sbit__g_fit(g, i, g->output_grads[0]);
        }
    }
}

SBIT__FN void sbit__grad_sub(sbit_gradient *g)
{
    if (g->wanted[0]) {
        sbit__g_fit(g, 0, g->output_grads[0]);
    }
    if (g->wanted[1]) {
        sbit__g_fit(g, 1, sbit__g_1(g, "Neg", g->output_grads[0]));
    }
}

SBIT__FN void sbit__grad_mul(sbit_gradient *g)
{
    for (int32_t i = 0; i < 2; i++) {
        if (g->wanted[i]) {
            sbit__g_fit(g, i, sbit__g_2(g, "Mul", g->output_grads[0], g->inputs[1 - i]));
        }
    }
}

/* d(a/b): dy / b; - dy * y / b */
SBIT__FN void sbit__grad_div(sbit_gradient *g)
{
    const sbit_value_id part = sbit__g_2(g, "Div", g->output_grads[0], g->inputs[1]);
    if (g->wanted[0]) {
        sbit__g_fit(g, 0, part);
    }
    if (g->wanted[1]) {
        sbit__g_fit(g, 1, sbit__g_1(g, "Neg", sbit__g_2(g, "Mul", part, g->outputs[0])));
    }
}

/* d(a^b): dy * b * a^(b-1); dy * y * log(a) */
SBIT__FN void sbit__grad_pow(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], a = g->inputs[0], b = g->inputs[1];
    if (g->wanted[0]) {
        const sbit_dtype dtype = sbit__g_type(g, a)->dtype;
        const sbit_attr to = sbit__attr_int("to", (int64_t)dtype);
        const sbit_value_id power = sbit__g_type(g, b)->dtype == dtype
                                        ? b
                                        : sbit_gradient_add(g, "", "Cast", &b, 1, &to, 1);
        const sbit_value_id less = sbit__g_2(g, "Sub", power, sbit__g_number(g, 1.0));
        const sbit_value_id slope = sbit__g_2(g, "Mul", power, sbit__g_2(g, "Pow", a, less));
        sbit__g_fit(g, 0, sbit__g_2(g, "Mul", dy, slope));
    }
    if (g->wanted[1]) {
        const sbit_value_id slope = sbit__g_2(g, "Mul", g->outputs[0], sbit__g_1(g, "Log", a));
        sbit__g_fit(g, 1, sbit__g_2(g, "Mul", dy, slope));
    }
}

SBIT__FN void sbit__grad_prelu(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], x = g->inputs[0], zero = sbit__g_number(g, 0.0);
    const sbit_value_id below = sbit__g_2(g, "Less", x, zero);
    if (g->wanted[0]) {
        sbit__g_fit(g, 0, sbit__g_where(g, below, sbit__g_2(g, "Mul", dy, g->inputs[1]), dy));
    }
    if (g->wanted[1]) {
        sbit__g_fit(g, 1, sbit__g_where(g, below, sbit__g_2(g, "Mul", dy, x), zero));
    }
}

/* Max and Min of several tensors: dy to every input that is the result. */
SBIT__FN void sbit__grad_extreme(sbit_gradient *g)
{
    const sbit_value_id zero = sbit__g_number(g, 0.0), y = g->outputs[0];
    const bool most = sbit__streq(g->node->op_type, "Max");
    for (int32_t i = 0; i < g->input_count; i++) {
        if (g->wanted[i]) {
            const sbit_value_id x = g->inputs[i];
            const sbit_value_id other = sbit__g_2(g, "Less", most ? x : y, most ? y : x);
            sbit__g_fit(g, i, sbit__g_where(g, other, zero, g->output_grads[0]));
        }
    }
}

SBIT__FN void sbit__grad_mean(sbit_gradient *g)
{
    const sbit_value_id part =
        sbit__g_2(g, "Mul", g->output_grads[0], sbit__g_number(g, 1.0 / (double)g->input_count));
    for (int32_t i = 0; i < g->input_count; i++) {
        if (g->wanted[i]) {
            sbit__g_fit(g, i, part);
        }
    }
}

SBIT__FN void sbit__grad_where(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], zero = sbit__g_number(g, 0.0);
    if (g->wanted[1]) {
        sbit__g_fit(g, 1, sbit__g_where(g, g->inputs[0], dy, zero));
    }
    if (g->wanted[2]) {
        sbit__g_fit(g, 2, sbit__g_where(g, g->inputs[0], zero, dy));
    }
}

SBIT__FN void sbit__grad_cast(sbit_gradient *g)
{
    const sbit_attr to = sbit__attr_int("to", (int64_t)sbit__g_type(g, g->inputs[0])->dtype);
    const bool same = sbit__g_type(g, g->inputs[0])->dtype == sbit__g_type(g, g->outputs[0])->dtype;
    g->input_grads[0] =
        same ? g->output_grads[0] : sbit_gradient_add(g, "", "Cast", g->output_grads, 1, &to, 1);
}

/* >>reductions and moves */

/* A value of the shape of a reduction's output, given to all that it was made of; `list` (NULL:
 * none) states the axes, else an input of the node does. */
SBIT__FN sbit_value_id sbit__g_spread(sbit_gradient *g, sbit_value_id from, const sbit_attr *list,
                                      bool mean)
{
    const bool from_input = list == NULL && g->input_count > 1 && g->inputs[1].idx != 0;
    sbit_value_id inputs[3];
    sbit_attr attrs[3];
    inputs[0] = from;
    inputs[1] = sbit__g_shape(g, g->inputs[0]);
    inputs[2] = from_input ? g->inputs[1] : inputs[1];
    attrs[0] = sbit__attr_int("mean", mean ? 1 : 0);
    attrs[1] =
        sbit__attr_int("noop_with_empty_axes", sbit_node_int(g->node, "noop_with_empty_axes", 0));
    attrs[2] = list != NULL ? *list : attrs[1];
    return sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "Spread", inputs, from_input ? 3 : 2, attrs,
                             list != NULL ? 3 : 2);
}

static void sbit__g_reduction(sbit_gradient *g, bool mean)
{
    g->input_grads[0] =
        sbit__g_spread(g, g->output_grads[0], sbit_node_attr(g->node, "axes"), mean);
}

SBIT__FN void sbit__grad_reduce_sum(sbit_gradient *g)
{
    sbit__g_reduction(g, false);
}

SBIT__FN void sbit__grad_reduce_mean(sbit_gradient *g)
{
    sbit__g_reduction(g, true);
}

/* dx of the other reductions, with y and dy given to all elements again:
 *     SumSquare 2 x dy    L2 x / y dy    L1 sign(x) dy    LogSumExp exp(x - y) dy
 *     Max, Min: dy to every element that is the largest (smallest) */
SBIT__FN void sbit__grad_reduce_other(sbit_gradient *g)
{
    const char *op = g->node->op_type;
    const sbit_attr *axes = sbit_node_attr(g->node, "axes");
    const sbit_value_id x = g->inputs[0], dy = sbit__g_spread(g, g->output_grads[0], axes, false);
    if (sbit__streq(op, "ReduceSumSquare")) {
        const sbit_value_id twice = sbit__g_2(g, "Add", x, x);
        g->input_grads[0] = sbit__g_2(g, "Mul", twice, dy);
        return;
    }
    if (sbit__streq(op, "ReduceL1")) {
        g->input_grads[0] = sbit__g_2(g, "Mul", sbit__g_1(g, "Sign", x), dy);
        return;
    }
    const sbit_value_id y = sbit__g_spread(g, g->outputs[0], axes, false);
    if (sbit__streq(op, "ReduceL2")) {
        g->input_grads[0] = sbit__g_2(g, "Mul", sbit__g_2(g, "Div", x, y), dy);
    } else if (sbit__streq(op, "ReduceLogSumExp")) {
        const sbit_value_id part = sbit__g_1(g, "Exp", sbit__g_2(g, "Sub", x, y));
        g->input_grads[0] = sbit__g_2(g, "Mul", part, dy);
    } else {
        const bool most = sbit__streq(op, "ReduceMax");
        const sbit_value_id other = sbit__g_2(g, "Less", most ? x : y, most ? y : x);
        g->input_grads[0] = sbit__g_where(g, other, sbit__g_number(g, 0.0), dy);
    }
}

SBIT__FN void sbit__grad_reshape(sbit_gradient *g)
{
    g->input_grads[0] = sbit__g_2(g, "Reshape", g->output_grads[0], sbit__g_shape(g, g->inputs[0]));
}

SBIT__FN void sbit__grad_transpose(sbit_gradient *g)
{
    const sbit_attr *perm = sbit_node_attr(g->node, "perm");
    int64_t back[SBIT_MAX_RANK] = {0};
    for (size_t i = 0; perm != NULL && i < perm->count && i < SBIT_MAX_RANK; i++) {
        const int64_t given = perm->ints[i], at = given < 0 ? given + (int64_t)perm->count : given;
        back[at >= 0 && at < SBIT_MAX_RANK ? at : 0] = (int64_t)i;
    }
    const sbit_attr attr = sbit__attr_ints("perm", back, perm != NULL ? perm->count : 0);
    g->input_grads[0] =
        sbit_gradient_add(g, "", "Transpose", g->output_grads, 1, &attr, perm != NULL ? 1 : 0);
}

static sbit_value_id sbit__g_piece(sbit_gradient *g, sbit_value_id from, int64_t axis,
                                   int64_t begin, int64_t length)
{
    sbit_attr attrs[3];
    attrs[0] = sbit__attr_int("axis", axis);
    attrs[1] = sbit__attr_int("begin", begin);
    attrs[2] = sbit__attr_int("length", length);
    return sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "Piece", &from, 1, attrs, 3);
}

/* The length of an axis, which must be known. */
SBIT__FN int64_t sbit__g_length(sbit_gradient *g, sbit_value_id id, int64_t axis)
{
    const sbit_type *type = sbit__g_type(g, id);
    if (axis < 0 || axis >= type->rank || !sbit__dim_known(type->dims[axis])) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED,
                           "axis %d of '%s' must be known for its gradient", (int)axis,
                           sbit_graph_value(g->graph, id)->name);
        return 0;
    }
    return type->dims[axis].value;
}

SBIT__FN int64_t sbit__g_axis(sbit_gradient *g, int64_t otherwise, int32_t rank)
{
    const int64_t axis = sbit_node_int(g->node, "axis", otherwise);
    return axis < 0 ? axis + rank : axis;
}

SBIT__FN void sbit__grad_concat(sbit_gradient *g)
{
    const int64_t axis = sbit__g_axis(g, 1, sbit__g_rank(g, g->outputs[0]));
    int64_t begin = 0;
    for (int32_t i = 0; i < g->input_count && g->status == SBIT_OK; i++) {
        const int64_t length = sbit__g_length(g, g->inputs[i], axis);
        if (g->wanted[i]) {
            g->input_grads[i] = sbit__g_piece(g, g->output_grads[0], axis, begin, length);
        }
        begin += length;
    }
}

SBIT__FN void sbit__grad_split(sbit_gradient *g)
{
    const sbit_attr axis = sbit__attr_int("axis", sbit_node_int(g->node, "axis", 0));
    sbit_value_id *parts = NULL;
    void *block = NULL;
    if (g->status == SBIT_OK) {
        g->status =
            sbit__graph_alloc(g->graph, (size_t)g->output_count, sizeof *parts, &block, g->error);
    }
    parts = (sbit_value_id *)block;
    for (int32_t i = 0; i < g->output_count && g->status == SBIT_OK; i++) {
        parts[i] =
            g->output_grads[i].idx != 0
                ? g->output_grads[i]
                : sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ZerosLike", &g->outputs[i], 1, NULL, 0);
    }
    g->input_grads[0] =
        sbit_gradient_add(g, "", "Concat", parts, (size_t)g->output_count, &axis, 1);
}

SBIT__FN void sbit__grad_expand(sbit_gradient *g)
{
    sbit__g_fit(g, 0, g->output_grads[0]);
}

/* Constant pads by at least 0 are cut off again; else the indices say where elements came from. */
SBIT__FN void sbit__grad_pad(sbit_gradient *g)
{
    const sbit_attr *attr = sbit_node_attr(g->node, "pads");
    const sbit_tensor *list =
        attr == NULL && g->input_count > 1 ? sbit__graph_constant(g->graph, g->inputs[1]) : NULL;
    const int32_t rank = sbit__g_rank(g, g->inputs[0]);
    const bool constant = sbit__streq(sbit_node_string(g->node, "mode", "constant"), "constant");
    int64_t pads[2 * SBIT_MAX_RANK] = {0};
    bool cut = constant && (g->input_count < 4 || g->inputs[3].idx == 0) &&
               ((attr != NULL && (int64_t)attr->count == 2 * rank) ||
                (list != NULL && sbit_tensor_count(list) == 2 * rank));
    for (int32_t i = 0; cut && i < 2 * rank; i++) {
        pads[i] = attr != NULL ? attr->ints[i] : sbit__tensor_i64_at(list, i);
        cut = pads[i] >= 0 && sbit__dim_known(sbit__g_type(g, g->inputs[0])->dims[i % rank]);
    }
    if (!cut) {
        sbit_value_id inputs[4];
        memset(inputs, 0, sizeof inputs);
        for (int32_t i = 0; i < g->input_count && i < 4; i++) {
            inputs[i] = g->inputs[i];
        }
        inputs[2].idx = 0; /* the number to pad with: of indices, the default 0 */
        sbit__g_moves(g, inputs, g->input_count == 3 ? 2 : g->input_count, constant);
        return;
    }
    sbit_value_id grad = g->output_grads[0];
    for (int32_t i = 0; i < rank; i++) {
        if (pads[i] > 0 || pads[i + rank] > 0) {
            grad = sbit__g_piece(g, grad, i, pads[i], sbit__g_length(g, g->inputs[0], i));
        }
    }
    g->input_grads[0] = grad;
}

/* The indices of the elements are moved as the elements were; padded: index 0 is none, and they
 * begin with 1. */
SBIT__FN void sbit__g_moves(sbit_gradient *g, const sbit_value_id *inputs, int32_t count,
                            bool padded)
{
    const sbit_attr first = sbit__attr_int("first", padded ? 1 : 0);
    sbit_value_id *all = NULL;
    void *block = NULL;
    if (g->status == SBIT_OK) {
        g->status = sbit__graph_alloc(g->graph, (size_t)count + 1, sizeof *all, &block, g->error);
    }
    if (g->status != SBIT_OK) {
        return;
    }
    all = (sbit_value_id *)block;
    memcpy(all, inputs, (size_t)count * sizeof *all);
    all[0] = sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "IndexLike", inputs, 1, &first, 1);
    const sbit_value_id moved = sbit__g_add_like(g, g->node->domain, g->node->op_type, all,
                                                 (size_t)count, false, "value"); /* an old Pad's */
    const sbit_value_id three[3] = {g->output_grads[0], moved, sbit__g_shape(g, g->inputs[0])};
    g->input_grads[0] = sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ScatterBack", three, 3, &first, 1);
}

SBIT__FN void sbit__grad_moves(sbit_gradient *g)
{
    sbit__g_moves(g, g->inputs, g->input_count, false);
}

/* Nearest neighbours are moves; the other modes mix elements, with weights that do not depend on
 * them: inputs x, roi, scales, sizes of the forward node, then dy. */
SBIT__FN void sbit__grad_resize(sbit_gradient *g)
{
    sbit_value_id inputs[5];
    sbit_attr attrs[9]; /* two of ResizeGrad's own and those of Resize that its slope depends on */
    size_t count = 2;
    if (sbit__streq(sbit_node_string(g->node, "mode", "nearest"), "nearest")) {
        sbit__grad_moves(g);
        return;
    }
    memset(inputs, 0, sizeof inputs);
    memcpy(inputs, g->inputs, (size_t)(g->input_count < 4 ? g->input_count : 4) * sizeof *inputs);
    inputs[4] = g->output_grads[0];
    attrs[0] = sbit__attr_string("of", g->node->op_type);
    attrs[1] = sbit__attr_int("version", g->opset);
    for (size_t i = 0; i < g->node->attr_count && count < SBIT__COUNT_OF(attrs); i++) {
        const char *name = g->node->attrs[i].name;
        if (!sbit__streq(name, "nearest_mode") && !sbit__streq(name, "extrapolation_value")) {
            attrs[count++] = g->node->attrs[i];
        }
    }
    g->input_grads[0] =
        sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ResizeGrad", inputs, 5, attrs, count);
}

/* >>matrices */

/* The two last axes exchanged. */
static sbit_value_id sbit__g_flip(sbit_gradient *g, sbit_value_id id)
{
    const int32_t rank = sbit__g_rank(g, id);
    int64_t perm[SBIT_MAX_RANK];
    if (rank < 2) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "its operands must be matrices");
        return id;
    }
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    }
    const sbit_attr attr = sbit__attr_ints("perm", perm, (size_t)rank);
    return sbit_gradient_add(g, "", "Transpose", &id, 1, &attr, 1);
}

SBIT__FN sbit_value_id sbit__g_shape_of(sbit_gradient *g, const int64_t *dims, int64_t count)
{
    sbit_value_id shape = {0};
    sbit_tensor tensor;
    int64_t copy[SBIT_MAX_RANK];
    memset(&tensor, 0, sizeof tensor);
    memcpy(copy, dims, (size_t)count * sizeof *dims);
    tensor.dtype = SBIT_I64;
    tensor.rank = 1;
    tensor.dims[0] = count;
    tensor.data = copy;
    if (g->status == SBIT_OK) {
        g->status = sbit_graph_add_constant(g->graph, "shape", &tensor, &shape, g->error);
    }
    return shape;
}

/* rows x columns, however many axes the rows have */
static sbit_value_id sbit__g_rows(sbit_gradient *g, sbit_value_id id, int64_t columns)
{
    const int64_t dims[2] = {-1, columns};
    return sbit__g_2(g, "Reshape", id, sbit__g_shape_of(g, dims, 2));
}

static sbit_value_id sbit__g_gemm(sbit_gradient *g, sbit_value_id a, bool trans_a, sbit_value_id b,
                                  bool trans_b, float alpha)
{
    const sbit_value_id inputs[2] = {a, b};
    sbit_attr attrs[3];
    attrs[0] = sbit__attr_int("transA", trans_a ? 1 : 0);
    attrs[1] = sbit__attr_int("transB", trans_b ? 1 : 0);
    attrs[2] = sbit__attr_float("alpha", alpha);
    return sbit_gradient_add(g, "", "Gemm", inputs, 2, attrs, 3);
}

/* The matrices' axes in front are spread by no one: those of input i are the result's. */
static bool sbit__g_same_batch(const sbit_gradient *g, int32_t i)
{
    const sbit_type *x = sbit__g_type(g, g->inputs[i]), *y = sbit__g_type(g, g->outputs[0]);
    bool same = x->rank == y->rank && x->rank >= 2;
    for (int32_t k = 0; same && k < x->rank - 2; k++) {
        same = sbit__dim_equal(x->dims[k], y->dims[k]);
    }
    return same;
}

SBIT__FN void sbit__grad_matmul(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], a = g->inputs[0], b = g->inputs[1];
    const int32_t rank_a = sbit__g_rank(g, a), rank_b = sbit__g_rank(g, b);
    if (g->status != SBIT_OK) {
        return;
    }
    if (g->wanted[0]) {
        const sbit_value_id grad = sbit__g_2(g, "MatMul", dy, sbit__g_flip(g, b));
        g->input_grads[0] =
            rank_b == 2 || sbit__g_same_batch(g, 0) ? grad : sbit__g_reduce(g, grad, a, -1);
    }
    if (g->wanted[1] && rank_b == 2) { /* one matrix for all: one product over all rows */
        const int64_t k = sbit__g_length(g, b, 0), n = sbit__g_length(g, b, 1);
        const sbit_value_id left = rank_a == 2 ? a : sbit__g_rows(g, a, k);
        const sbit_value_id right = rank_a == 2 ? dy : sbit__g_rows(g, dy, n);
        g->input_grads[1] = sbit__g_gemm(g, left, true, right, false, 1.0f);
    } else if (g->wanted[1]) {
        const sbit_value_id grad = sbit__g_2(g, "MatMul", sbit__g_flip(g, a), dy);
        g->input_grads[1] = sbit__g_same_batch(g, 1) ? grad : sbit__g_reduce(g, grad, b, -1);
    }
}

SBIT__FN void sbit__grad_gemm(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], a = g->inputs[0], b = g->inputs[1];
    const bool ta = sbit_node_int(g->node, "transA", 0) != 0;
    const bool tb = sbit_node_int(g->node, "transB", 0) != 0;
    const float alpha = sbit_node_float(g->node, "alpha", 1.0f);
    const float beta = sbit_node_float(g->node, "beta", 1.0f);
    if (g->wanted[0]) {
        g->input_grads[0] = ta ? sbit__g_gemm(g, b, tb, dy, true, alpha)
                               : sbit__g_gemm(g, dy, false, b, !tb, alpha);
    }
    if (g->wanted[1]) {
        g->input_grads[1] = tb ? sbit__g_gemm(g, dy, true, a, ta, alpha)
                               : sbit__g_gemm(g, a, !ta, dy, false, alpha);
    }
    if (sbit__g_wanted(g, 2)) {
        const sbit_value_id part =
            beta == 1.0f ? dy : sbit__g_2(g, "Mul", dy, sbit__g_number(g, (double)beta));
        sbit__g_fit(g, 2, part);
    }
}

/* One letter of an equation: in `term`, which is `size` long. */
static bool sbit__g_has(const char *term, size_t size, char letter)
{
    return memchr(term, letter, size) != NULL;
}

/* An ellipsis of a term stands for as many dims as in the result, or the term begins with it, so
 * that broadcasting is summed as usual. */
static bool sbit__g_ellipsis_fits(sbit_gradient *g, const char *term, size_t size, sbit_value_id x,
                                  const char *result, sbit_value_id y)
{
    const bool own = sbit__g_has(term, size, '.');
    if (!own || *term == '.') {
        return true;
    }
    return strchr(result, '.') != NULL &&
           sbit__g_rank(g, x) - (int32_t)size == sbit__g_rank(g, y) - (int32_t)strlen(result);
}

/* d operand i = Einsum("y,others->term i")(dy, others): for explicit equations in which no term has
 * a letter twice, and each letter of i, and its ellipsis, stands in another term or the result. */
SBIT__FN void sbit__grad_einsum(sbit_gradient *g)
{
    enum {
        MOST = 8,
        TEXT = 128
    };
    const char *given = sbit_node_string(g->node, "equation", "");
    char equation[TEXT], text[TEXT];
    const char *terms[MOST + 1], *arrow = NULL;
    size_t sizes[MOST + 1], used = 0;
    bool fits = strlen(given) < TEXT - 8 && g->input_count <= MOST;
    for (size_t i = 0; fits && given[i] != '\0'; i++) {
        equation[used] = given[i];
        used += given[i] != ' ' ? 1 : 0;
    }
    equation[used] = '\0';
    arrow = strstr(equation, "->");
    const char *at = equation;
    for (int32_t i = 0; arrow != NULL && i < g->input_count && fits; i++) {
        terms[i] = at;
        sizes[i] = (size_t)strcspn(at, ",-");
        at += sizes[i] + 1;
    }
    terms[g->input_count <= MOST ? g->input_count : 0] = arrow != NULL ? arrow + 2 : equation;
    sizes[g->input_count <= MOST ? g->input_count : 0] = arrow != NULL ? strlen(arrow + 2) : 0;
    for (int32_t i = 0; fits && arrow != NULL && i < g->input_count; i++) {
        sbit_value_id inputs[MOST];
        const char *result = terms[g->input_count];
        int32_t n = 1;
        if (!g->wanted[i]) {
            continue;
        }
        inputs[0] = g->output_grads[0];
        int size = snprintf(text, sizeof text, "%s", result);
        for (int32_t k = 0; k < g->input_count; k++) {
            if (k != i) {
                inputs[n++] = g->inputs[k];
                size += snprintf(text + size, sizeof text - (size_t)size, ",%.*s", (int)sizes[k],
                                 terms[k]);
            }
        }
        for (size_t c = 0; c < sizes[i]; c++) {
            const char letter = terms[i][c];
            fits = fits && sbit__g_has(text, (size_t)size, letter) &&
                   (letter == '.' ||
                    !sbit__g_has(terms[i] + c + 1, sizes[i] - c - 1, letter));
        }
        const bool spreads = sbit__g_has(text, (size_t)size, '.');
        const char *dots = spreads && !sbit__g_has(terms[i], sizes[i], '.') ? "..." : "";
        fits = fits && sbit__g_ellipsis_fits(g, terms[i], sizes[i], g->inputs[i], result,
                                             g->outputs[0]);
        snprintf(text + size, sizeof text - (size_t)size, "->%s%.*s", dots, (int)sizes[i],
                 terms[i]);
        const sbit_attr attr = sbit__attr_string("equation", text);
        if (fits) {
            const sbit_value_id dx =
                sbit_gradient_add(g, "", "Einsum", inputs, (size_t)n, &attr, 1);
            if (spreads) {
                sbit__g_fit(g, i, dx);
            } else {
                g->input_grads[i] = dx;
            }
        }
    }
    if (!fits || arrow == NULL) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED,
                           "equation '%s' is of a form that has no gradient", given);
    }
}

/* >>convolutions and pools */

static sbit_value_id sbit__g_conv(sbit_gradient *g, const char *op_type, sbit_value_id a,
                                  sbit_value_id b, sbit_value_id like)
{
    const sbit_value_id inputs[3] = {a, b, sbit__g_shape(g, like)};
    return sbit_gradient_add(g, SBIT__GRAD_DOMAIN, op_type, inputs, 3, g->node->attrs,
                             g->node->attr_count);
}

SBIT__FN void sbit__grad_conv(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], x = g->inputs[0], w = g->inputs[1];
    if (g->wanted[0]) {
        g->input_grads[0] = sbit__g_conv(g, "ConvDataGrad", dy, w, x);
    }
    if (g->wanted[1]) {
        g->input_grads[1] = sbit__g_conv(g, "ConvWeightGrad", x, dy, w);
    }
    if (sbit__g_wanted(g, 2)) {
        g->input_grads[2] = sbit__g_reduce(g, dy, g->inputs[2], 1);
    }
}

/* The roles of Conv's input and output change places. */
SBIT__FN void sbit__grad_conv_transpose(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], x = g->inputs[0], w = g->inputs[1];
    const char *pad = sbit_node_string(g->node, "auto_pad", "NOTSET");
    if (sbit_node_attr(g->node, "output_shape") != NULL ||
        (!sbit__streq(pad, "NOTSET") && pad[0] != '\0')) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED,
                           "with output_shape or auto_pad it has no gradient: state its pads");
        return;
    }
    if (g->wanted[0]) {
        const sbit_value_id inputs[2] = {dy, w};
        g->input_grads[0] = sbit__g_add_like(g, "", "Conv", inputs, 2, false, "output_padding");
    }
    if (g->wanted[1]) {
        const sbit_value_id inputs[3] = {dy, x, sbit__g_shape(g, w)};
        g->input_grads[1] = sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "ConvWeightGrad", inputs, 3,
                                             false, "output_padding");
    }
    if (sbit__g_wanted(g, 2)) {
        g->input_grads[2] = sbit__g_reduce(g, dy, g->inputs[2], 1);
    }
}

SBIT__FN void sbit__grad_pool(sbit_gradient *g)
{
    int64_t axes[SBIT_MAX_RANK];
    const sbit_value_id inputs[2] = {g->output_grads[0], g->inputs[0]};
    if (g->output_count > 1 && g->output_grads[1].idx != 0) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "its indices have no gradient");
    }
    if (sbit__streq(g->node->op_type, "GlobalAveragePool")) {
        const int32_t rank = sbit__g_rank(g, g->inputs[0]);
        for (int32_t i = 2; i < rank; i++) {
            axes[i - 2] = i;
        }
        const sbit_attr list = sbit__attr_ints("axes", axes, rank > 2 ? (size_t)rank - 2 : 0);
        g->input_grads[0] = sbit__g_spread(g, g->output_grads[0], &list, true);
        return;
    }
    g->input_grads[0] = sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "PoolGrad", inputs, 2, true, NULL);
}

/* >>recurrent */

/* LSTM and GRU in their usual form; Y is needed for the states between steps. */
SBIT__FN void sbit__grad_lstm(sbit_gradient *g)
{
    static const int32_t places[] = {0, 1, 2, 3, 5, 6}; /* x, W, R, B, h0, c0 among the inputs */
    const bool gru = sbit__streq(g->node->op_type, "GRU");
    sbit_value_id inputs[11], outputs[6];
    sbit_attr attrs[2];
    bool wanted[6];
    const bool other =
        sbit_node_attr(g->node, "activations") != NULL || sbit_node_attr(g->node, "clip") != NULL ||
        sbit_node_int(g->node, "input_forget", 0) != 0 || sbit_node_int(g->node, "layout", 0) != 0;
    if (other || (g->input_count > 4 && g->inputs[4].idx != 0) ||
        (g->input_count > 7 && g->inputs[7].idx != 0) || g->outputs[0].idx == 0) {
        sbit__grad_rnn(g);
        return;
    }
    memset(inputs, 0, sizeof inputs);
    for (int32_t i = 0; i < 6; i++) {
        inputs[i].idx = places[i] < g->input_count ? g->inputs[places[i]].idx : 0;
        wanted[i] = sbit__g_wanted(g, places[i]);
    }
    inputs[6] = g->outputs[0];
    for (int32_t i = 0; i < 3 && i < g->output_count; i++) {
        inputs[7 + i] = g->output_grads[i];
    }
    attrs[0] = sbit__attr_string("direction", sbit_node_string(g->node, "direction", "forward"));
    attrs[1] =
        sbit__attr_int("linear_before_reset", sbit_node_int(g->node, "linear_before_reset", 0));
    sbit__g_add_node(g, SBIT__GRAD_DOMAIN, gru ? "GruGrad" : "LstmGrad", inputs, gru ? 9 : 11,
                     attrs, gru ? 2 : 1, wanted, outputs, gru ? 5 : 6);
    for (int32_t i = 0; i < 6; i++) {
        if (wanted[i]) {
            g->input_grads[places[i]] = outputs[i];
        }
    }
}

/* >>normalization and losses */

static void sbit__g_batch_norm(sbit_gradient *g, bool training, sbit_value_id mean,
                               sbit_value_id var)
{
    const sbit_value_id none = {0};
    const sbit_value_id inputs[6] = {g->output_grads[0],
                                     g->inputs[0],
                                     g->inputs[1],
                                     mean,
                                     var,
                                     training && g->input_count > 5 ? g->inputs[5] : none};
    sbit_attr attrs[2];
    attrs[0] = sbit__attr_float("epsilon", sbit_node_float(g->node, "epsilon", 1e-5f));
    attrs[1] = sbit__attr_int("training", training ? 1 : 0);
    sbit__g_node(g, "BatchNormGrad", inputs, inputs[5].idx != 0 ? 6 : 5, attrs, 2, g->wanted, 3);
}

SBIT__FN void sbit__grad_batch_norm(sbit_gradient *g)
{
    bool trains = sbit_node_int(g->node, "training_mode", 0) != 0;
    for (int32_t i = 1; i < g->output_count; i++) {
        trains = trains || g->outputs[i].idx != 0;
    }
    if (trains || (g->opset < 9 && sbit_node_int(g->node, "spatial", 1) == 0)) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED,
                           "only inference mode has a gradient; ask for training instead");
        return;
    }
    sbit__g_batch_norm(g, false, g->inputs[3], g->inputs[4]);
}

SBIT__FN void sbit__grad_batch_norm_train(sbit_gradient *g)
{
    sbit__g_batch_norm(g, true, g->outputs[3], g->outputs[4]);
}

/* Input i has surely the shape of x's axes from `axis` on. */
static bool sbit__g_is_row(const sbit_gradient *g, int32_t i, int64_t axis)
{
    const sbit_type *x = sbit__g_type(g, g->inputs[0]), *v = sbit__g_type(g, g->inputs[i]);
    const int64_t first = axis < 0 ? axis + x->rank : axis;
    bool same = x->rank >= 0 && first >= 0 && v->rank == x->rank - first;
    for (int32_t k = 0; same && k < v->rank; k++) {
        same = sbit__dim_equal(v->dims[k], x->dims[first + k]);
    }
    return same;
}

/* y = n * scale + bias with n = NormGrad's second output; one operator where neither is spread */
SBIT__FN void sbit__grad_layer_norm(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], x = g->inputs[0];
    const bool rms = sbit__streq(g->node->op_type, "RMSNormalization");
    const int64_t axis = sbit_node_int(g->node, "axis", -1);
    sbit_value_id inputs[3], outputs[3];
    bool wanted[3];
    sbit_attr attrs[3];
    for (int32_t i = 1; i < g->output_count; i++) {
        if (g->output_grads[i].idx != 0) {
            sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "its statistics have no gradient");
        }
    }
    attrs[0] = sbit__attr_int("axis", axis);
    attrs[1] = sbit__attr_float("epsilon", sbit_node_float(g->node, "epsilon", 1e-5f));
    attrs[2] = sbit__attr_int("rms", rms ? 1 : 0);
    inputs[0] = dy;
    inputs[1] = x;
    inputs[2] = g->inputs[1];
    if (sbit__g_is_row(g, 1, axis) && (!sbit__g_wanted(g, 2) || sbit__g_is_row(g, 2, axis))) {
        for (int32_t i = 0; i < 3; i++) {
            wanted[i] = sbit__g_wanted(g, i);
        }
        sbit__g_node(g, "LayerNormGrad", inputs, 3, attrs, 3, wanted, 3);
        return;
    }
    inputs[0] = sbit__g_2(g, "Mul", dy, g->inputs[1]);
    sbit__g_add_node(g, SBIT__GRAD_DOMAIN, "NormGrad", inputs, 2, attrs, 3, NULL, outputs, 2);
    g->input_grads[0] = outputs[0];
    if (g->wanted[1]) {
        sbit__g_fit(g, 1, sbit__g_2(g, "Mul", dy, outputs[1]));
    }
    if (sbit__g_wanted(g, 2)) {
        sbit__g_fit(g, 2, dy);
    }
}

/* The elements behind axis 0; 0: not known. */
static int64_t sbit__g_per_sample(const sbit_gradient *g, sbit_value_id id)
{
    const sbit_type *type = sbit__g_type(g, id);
    int64_t count = 1;
    for (int32_t i = 1; i < type->rank; i++) {
        count = sbit__dim_known(type->dims[i]) ? count * type->dims[i].value : 0;
    }
    return count;
}

/* The last axis of [0, parts, ?] for Reshape: stated where it is known, since -1 stands for nothing
 * if there are no samples. */
static int64_t sbit__g_share(int64_t per_sample, int64_t parts)
{
    return per_sample > 0 && parts > 0 ? per_sample / parts : -1;
}

/* Group and instance normalization: x as [N, groups, the rest], of which the rest is normalized;
 * the scale belongs to channels, in GroupNormalization before 21 to groups. */
SBIT__FN void sbit__grad_group_norm(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], x = g->inputs[0], scale = g->inputs[1];
    const int32_t rank = sbit__g_rank(g, x);
    const bool instance = sbit__streq(g->node->op_type, "InstanceNormalization");
    const int64_t channels = sbit__g_length(g, x, 1), length = sbit__g_length(g, scale, 0);
    const int64_t groups = instance ? channels : sbit_node_int(g->node, "num_groups", 1);
    const int64_t per_sample = sbit__g_per_sample(g, x);
    const int64_t grouped[3] = {0, groups, sbit__g_share(per_sample, groups)};
    const int64_t by_channel[3] = {0, length, sbit__g_share(per_sample, length)};
    const int64_t column[2] = {length, 1};
    const sbit_value_id rows = sbit__g_shape_of(g, grouped, 3);
    const sbit_value_id scaled_rows = sbit__g_shape_of(g, by_channel, 3);
    const sbit_value_id own = sbit__g_shape(g, x);
    sbit_value_id inputs[2], outputs[2];
    sbit_attr attrs[3];
    if (g->status != SBIT_OK || rank < 3 || groups < 1) {
        return;
    }
    /* everything per scale entry is done on [N, entries, rest] */
    const sbit_value_id dy3 = sbit__g_2(g, "Reshape", dy, scaled_rows);
    const sbit_value_id factor = sbit__g_2(g, "Reshape", scale, sbit__g_shape_of(g, column, 2));
    const sbit_value_id product = sbit__g_2(g, "Mul", dy3, factor);
    inputs[0] = sbit__g_2(g, "Reshape", product, rows);
    inputs[1] = sbit__g_2(g, "Reshape", x, rows);
    attrs[0] = sbit__attr_int("axis", 2);
    attrs[1] = sbit__attr_float("epsilon", sbit_node_float(g->node, "epsilon", 1e-5f));
    attrs[2] = sbit__attr_int("rms", 0);
    sbit__g_add_node(g, SBIT__GRAD_DOMAIN, "NormGrad", inputs, 2, attrs, 3, NULL, outputs, 2);
    g->input_grads[0] = sbit__g_2(g, "Reshape", outputs[0], own);
    if (g->wanted[1]) {
        const sbit_value_id n3 = sbit__g_2(g, "Reshape", outputs[1], scaled_rows);
        g->input_grads[1] = sbit__g_reduce(g, sbit__g_2(g, "Mul", dy3, n3), scale, 1);
    }
    if (sbit__g_wanted(g, 2)) {
        g->input_grads[2] = sbit__g_reduce(g, dy3, g->inputs[2], 1);
    }
}

SBIT__FN void sbit__grad_softmax(sbit_gradient *g)
{
    const sbit_value_id inputs[2] = {g->output_grads[0], g->outputs[0]};
    sbit_attr attrs[3];
    attrs[0] = sbit__attr_int("axis", sbit_node_int(g->node, "axis", g->opset < 13 ? 1 : -1));
    attrs[1] = sbit__attr_int("log", sbit__streq(g->node->op_type, "LogSoftmax") ? 1 : 0);
    attrs[2] = sbit__attr_int("flat", g->opset < 13 ? 1 : 0);
    g->input_grads[0] = sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "SoftmaxGrad", inputs, 2, attrs, 3);
}

/* The forward node has the gradient ready, for a loss whose own gradient is 1. */
SBIT__FN void sbit__grad_cross_entropy(sbit_gradient *g)
{
    g->input_grads[0] = sbit__g_2(g, "Mul", g->outputs[1], g->output_grads[0]);
}

/* >>functions of the caller */

SBIT__FN void sbit__grad_external(sbit_gradient *g)
{
    enum {
        MOST = 8
    };
    sbit_value_id inputs[MOST + 1], outputs[MOST];
    const sbit_attr *functions = sbit_node_attr(g->node, "functions");
    if (g->input_count > MOST || functions == NULL) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "at most %d inputs have a gradient", (int)MOST);
        return;
    }
    inputs[0] = g->output_grads[0];
    memcpy(inputs + 1, g->inputs, (size_t)g->input_count * sizeof inputs[0]);
    sbit__g_add_node(g, SBIT__GRAD_DOMAIN, "ExternalGrad", inputs, (size_t)g->input_count + 1,
                     functions, 1, g->wanted, outputs, (size_t)g->input_count);
    memcpy(g->input_grads, outputs, (size_t)g->input_count * sizeof outputs[0]);
}
