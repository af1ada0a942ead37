/* gradients_more.c: rules of differentiation of the less common operators. >>gradients-more
 *
 * Called by: grad, through the column `gradient` of the rows. Calls: ops/gradients.c.
 * As there, dy is the gradient of output 0.
 */
#include "gradient_private.h"

#include <math.h> /* cos, sin */

/* The first output only; the others are indices, statistics or copies. */
static bool sbit__g_only_first(sbit_gradient *g)
{
    for (int32_t i = 1; i < g->output_count; i++) {
        if (g->output_grads[i].idx != 0) {
            sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "output %d has no gradient", (int)i);
        }
    }
    return g->status == SBIT_OK && g->output_grads[0].idx != 0;
}

/* >>reductions */

/* y = log sum x: dx = dy / sum x = dy exp(-y) */
SBIT__FN void sbit__grad_reduce_log_sum(sbit_gradient *g)
{
    const sbit_value_id slope = sbit__g_1(g, "Exp", sbit__g_1(g, "Neg", g->outputs[0]));
    const sbit_value_id part = sbit__g_2(g, "Mul", g->output_grads[0], slope);
    g->input_grads[0] = sbit__g_spread(g, part, sbit_node_attr(g->node, "axes"), false);
}

/* dx is dy times the product of the other elements: with p that of those that are not 0,
 *     no zero: p / x      one zero: p there, else 0      more: 0 */
SBIT__FN void sbit__grad_reduce_prod(sbit_gradient *g)
{
    const sbit_attr *axes = sbit_node_attr(g->node, "axes");
    const sbit_value_id x = g->inputs[0], zero = sbit__g_number(g, 0.0);
    const sbit_value_id one = sbit__g_number(g, 1.0), half = sbit__g_number(g, 0.5);
    sbit_value_id inputs[2];
    inputs[1].idx = g->input_count > 1 ? g->inputs[1].idx : 0;
    const size_t count = inputs[1].idx != 0 ? 2 : 1;
    const sbit_value_id is_zero =
        sbit__g_2(g, "Less", sbit__g_1(g, "Abs", sbit__g_1(g, "Sign", x)), half);
    inputs[0] = sbit__g_where(g, is_zero, one, zero);
    const sbit_value_id zeros = sbit__g_spread(
        g, sbit__g_add_like(g, "", "ReduceL1", inputs, count, false, NULL), axes, false);
    inputs[0] = sbit__g_where(g, is_zero, one, x);
    const sbit_value_id others = inputs[0];
    const sbit_value_id product = sbit__g_spread(
        g, sbit__g_add_like(g, "", "ReduceProd", inputs, count, false, NULL), axes, false);
    const sbit_value_id at_zero =
        sbit__g_where(g, sbit__g_2(g, "Less", sbit__g_number(g, 1.5), zeros), zero, product);
    const sbit_value_id elsewhere = sbit__g_where(g, sbit__g_2(g, "Less", half, zeros), zero,
                                                  sbit__g_2(g, "Div", product, others));
    const sbit_value_id dy = sbit__g_spread(g, g->output_grads[0], axes, false);
    g->input_grads[0] = sbit__g_2(g, "Mul", dy, sbit__g_where(g, is_zero, at_zero, elsewhere));
}

/* Sum of x over axes, which stay with length 1: axes became an input in opset 13. */
static sbit_value_id sbit__g_sum(sbit_gradient *g, sbit_value_id x, const int64_t *axes,
                                 size_t count)
{
    sbit_value_id inputs[2];
    const sbit_attr attr = sbit__attr_ints("axes", axes, count);
    const bool listed = sbit_graph_opset(g->graph, "") >= 13;
    inputs[0] = x;
    inputs[1] = listed ? sbit__g_shape_of(g, axes, (int64_t)count) : inputs[0];
    return sbit_gradient_add(g, "", "ReduceSum", inputs, listed ? 2 : 1, &attr, listed ? 0 : 1);
}

/* y = x / n, n the norm along an axis: dx = (dy - s sum(dy y)) / n, s = y (p = 2), sign x (p = 1)
 */
SBIT__FN void sbit__grad_lp_normalization(sbit_gradient *g)
{
    const int64_t axis = sbit__g_axis(g, -1, sbit__g_rank(g, g->inputs[0]));
    const bool first = sbit_node_int(g->node, "p", 2) == 1;
    const sbit_value_id x = g->inputs[0], y = g->outputs[0], dy = g->output_grads[0];
    const sbit_value_id size = first ? sbit__g_1(g, "Abs", x) : sbit__g_2(g, "Mul", x, x);
    const sbit_value_id sum = sbit__g_sum(g, size, &axis, 1);
    const sbit_value_id norm = first ? sum : sbit__g_1(g, "Sqrt", sum);
    const sbit_value_id along = sbit__g_sum(g, sbit__g_2(g, "Mul", dy, y), &axis, 1);
    const sbit_value_id part = sbit__g_2(g, "Mul", first ? sbit__g_1(g, "Sign", x) : y, along);
    g->input_grads[0] = sbit__g_2(g, "Div", sbit__g_2(g, "Sub", dy, part), norm);
}

/* With c = x less its mean, d the deviation, M elements, e = 1e-9, y = c / (d + e):
 *     dx = (dy - mean dy) / (d + e) - c sum(dy c) / (M d (d + e)^2) */
SBIT__FN void sbit__grad_mean_variance(sbit_gradient *g)
{
    static const int64_t usual[] = {0, 2, 3};
    const sbit_attr *attr = sbit_node_attr(g->node, "axes");
    const int64_t *axes = attr != NULL ? attr->ints : usual;
    const size_t count = attr != NULL ? attr->count : SBIT__COUNT_OF(usual);
    const int32_t rank = sbit__g_rank(g, g->inputs[0]);
    const sbit_value_id x = g->inputs[0], dy = g->output_grads[0];
    double m = 1.0;
    for (size_t i = 0; i < count; i++) {
        m *= (double)sbit__g_length(g, x, axes[i] < 0 ? axes[i] + rank : axes[i]);
    }
    const sbit_value_id share = sbit__g_number(g, m > 0.0 ? 1.0 / m : 0.0);
    const sbit_value_id mean = sbit__g_2(g, "Mul", sbit__g_sum(g, x, axes, count), share);
    const sbit_value_id c = sbit__g_2(g, "Sub", x, mean);
    const sbit_value_id squares = sbit__g_sum(g, sbit__g_2(g, "Mul", c, c), axes, count);
    const sbit_value_id d = sbit__g_1(g, "Sqrt", sbit__g_2(g, "Mul", squares, share));
    const sbit_value_id wide = sbit__g_2(g, "Add", d, sbit__g_number(g, 1e-9));
    const sbit_value_id even = sbit__g_2(g, "Mul", sbit__g_sum(g, dy, axes, count), share);
    const sbit_value_id along = sbit__g_sum(g, sbit__g_2(g, "Mul", dy, c), axes, count);
    const sbit_value_id below = sbit__g_2(g, "Mul", d, sbit__g_2(g, "Mul", wide, wide));
    const sbit_value_id slope = sbit__g_2(g, "Div", sbit__g_2(g, "Mul", along, share), below);
    g->input_grads[0] =
        sbit__g_2(g, "Sub", sbit__g_2(g, "Div", sbit__g_2(g, "Sub", dy, even), wide),
                  sbit__g_2(g, "Mul", c, slope));
}

SBIT__FN void sbit__grad_lrn(sbit_gradient *g)
{
    const sbit_value_id inputs[2] = {g->output_grads[0], g->inputs[0]};
    g->input_grads[0] = sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "LrnGrad", inputs, 2, false, NULL);
}

/* y = a - b q, q the whole part of a / b: da = dy, db = -q dy, where b q = a - y */
SBIT__FN void sbit__grad_mod(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0];
    if (g->wanted[0]) {
        sbit__g_fit(g, 0, dy);
    }
    if (g->wanted[1]) {
        const sbit_value_id whole = sbit__g_2(g, "Sub", g->outputs[0], g->inputs[0]);
        sbit__g_fit(g, 1, sbit__g_2(g, "Mul", dy, sbit__g_2(g, "Div", whole, g->inputs[1])));
    }
}

/* values = off, on: what they get is the sum of dy where the output is off, where it is on. */
SBIT__FN void sbit__grad_one_hot(sbit_gradient *g)
{
    const int32_t rank = sbit__g_rank(g, g->outputs[0]);
    const sbit_attr axis = sbit__attr_int("axis", sbit_node_int(g->node, "axis", -1));
    const sbit_attr first = sbit__attr_int("axis", 0);
    const int64_t one = 1;
    int64_t axes[SBIT_MAX_RANK];
    double data[2] = {0.0, 0.0};
    sbit_value_id inputs[3], parts[2];
    sbit_tensor ends;
    if (g->status != SBIT_OK || !g->wanted[2]) {
        return;
    }
    for (int32_t i = 0; i < rank; i++) {
        axes[i] = i;
    }
    memset(&ends, 0, sizeof ends);
    ends.dtype = sbit__g_type(g, g->inputs[2])->dtype;
    ends.rank = 1;
    ends.dims[0] = 2;
    ends.data = data;
    sbit__tensor_set_f64(&ends, 1, 1.0);
    memcpy(inputs, g->inputs, sizeof inputs);
    g->status = sbit_graph_add_constant(g->graph, "off_on", &ends, &inputs[2], g->error);
    const sbit_value_id dy = g->output_grads[0], shape = sbit__g_shape_of(g, &one, 1);
    const sbit_value_id hot = sbit_gradient_add(g, "", "OneHot", inputs, 3, &axis, 1);
    const sbit_value_id on = sbit__g_sum(g, sbit__g_2(g, "Mul", dy, hot), axes, (size_t)rank);
    const sbit_value_id off = sbit__g_2(g, "Sub", sbit__g_sum(g, dy, axes, (size_t)rank), on);
    parts[0] = sbit__g_2(g, "Reshape", off, shape);
    parts[1] = sbit__g_2(g, "Reshape", on, shape);
    g->input_grads[2] = sbit_gradient_add(g, "", "Concat", parts, 2, &first, 1);
}

SBIT__FN void sbit__grad_det(sbit_gradient *g)
{
    const sbit_value_id inputs[2] = {g->inputs[0], g->output_grads[0]};
    g->input_grads[0] = sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "DetGrad", inputs, 2, NULL, 0);
}

SBIT__FN void sbit__grad_col2im(sbit_gradient *g)
{
    const sbit_value_id inputs[4] = {g->inputs[0], g->inputs[1], g->inputs[2], g->output_grads[0]};
    if (g->wanted[0]) {
        g->input_grads[0] =
            sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "Col2ImGrad", inputs, 4, false, NULL);
    }
}

/* Of the picture alone: regions count as constants, as in PyTorch. */
SBIT__FN void sbit__grad_roi_align(sbit_gradient *g)
{
    static const char *const names[] = {"mode", "sampling_ratio", "spatial_scale",
                                        "coordinate_transformation_mode"};
    const sbit_value_id inputs[4] = {g->inputs[0], g->inputs[1], g->inputs[2], g->output_grads[0]};
    sbit_attr attrs[5];
    size_t count = 0;
    if (!g->wanted[0]) {
        return;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(names); i++) {
        const sbit_attr *attr = sbit_node_attr(g->node, names[i]);
        if (attr != NULL) {
            attrs[count++] = *attr;
        }
    }
    attrs[count++] = sbit__attr_int("version", g->opset);
    g->input_grads[0] =
        sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "RoiAlignGrad", inputs, 4, attrs, count);
}

/* Where the regions lie is rounded: they have no gradient. */
SBIT__FN void sbit__grad_roi_pool(sbit_gradient *g)
{
    const sbit_value_id inputs[3] = {g->inputs[0], g->inputs[1], g->output_grads[0]};
    g->input_grads[0] =
        sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "MaxRoiPoolGrad", inputs, 3, false, NULL);
}

SBIT__FN void sbit__grad_grid_sample(sbit_gradient *g)
{
    static const char *const names[] = {"mode", "padding_mode", "align_corners"};
    const sbit_value_id inputs[3] = {g->inputs[0], g->inputs[1], g->output_grads[0]};
    const bool made[2] = {g->wanted[0], g->wanted[1]};
    sbit_attr attrs[3];
    size_t count = 0;
    for (size_t i = 0; i < SBIT__COUNT_OF(names); i++) {
        const sbit_attr *attr = sbit_node_attr(g->node, names[i]);
        if (attr != NULL) {
            attrs[count++] = *attr;
        }
    }
    sbit__g_add_node(g, SBIT__GRAD_DOMAIN, "GridSampleGrad", inputs, 3, attrs, count, made,
                     g->input_grads, 2);
}

SBIT__FN void sbit__grad_trilu(sbit_gradient *g)
{
    sbit_value_id inputs[2];
    inputs[0] = g->output_grads[0];
    inputs[1].idx = g->input_count > 1 ? g->inputs[1].idx : 0;
    g->input_grads[0] =
        sbit__g_add_like(g, "", "Trilu", inputs, inputs[1].idx != 0 ? 2 : 1, false, NULL);
}

/* Summed from the other end. */
SBIT__FN void sbit__grad_cum_sum(sbit_gradient *g)
{
    const sbit_value_id inputs[2] = {g->output_grads[0], g->inputs[1]};
    sbit_attr attrs[2];
    attrs[0] = sbit__attr_int("exclusive", sbit_node_int(g->node, "exclusive", 0));
    attrs[1] = sbit__attr_int("reverse", sbit_node_int(g->node, "reverse", 0) != 0 ? 0 : 1);
    g->input_grads[0] = sbit_gradient_add(g, "", "CumSum", inputs, 2, attrs, 2);
}

SBIT__FN void sbit__grad_cum_prod(sbit_gradient *g)
{
    const sbit_value_id inputs[3] = {g->output_grads[0], g->inputs[0], g->inputs[1]};
    g->input_grads[0] =
        sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "CumProdGrad", inputs, 3, false, NULL);
}

/* y = F x, sums of N points: dx = N F^-1 dy, of a real x its real part; what a one-sided transform
 * leaves out is 0. y = F^-1 x: dx = F dy / N. */
SBIT__FN void sbit__grad_dft(sbit_gradient *g)
{
    const bool inverse = sbit_node_int(g->node, "inverse", 0) != 0, listed = g->opset >= 20;
    const int32_t rank = sbit__g_rank(g, g->inputs[0]);
    int64_t axis = listed ? -2 : sbit_node_int(g->node, "axis", 1);
    const sbit_value_info *given =
        listed && g->input_count > 2 ? sbit_graph_value(g->graph, g->inputs[2]) : NULL;
    if (given != NULL && g->inputs[2].idx != 0) {
        axis = given->is_constant ? sbit__tensor_i64_at(&given->constant, 0) : rank;
    }
    axis += axis < 0 ? rank : 0;
    if (g->status != SBIT_OK || axis < 0 || axis >= rank - 1 || sbit__g_wanted(g, 1) ||
        (inverse && sbit_node_int(g->node, "onesided", 0) != 0) ||
        (g->input_count > 1 && g->inputs[1].idx != 0)) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED,
                           "only transforms of all points along a fixed axis have a gradient, and "
                           "no inverse one-sided ones");
        return;
    }
    const int64_t points = sbit__g_length(g, g->inputs[0], axis);
    sbit_value_id inputs[3];
    sbit_attr attrs[2];
    attrs[0] = sbit__attr_int("inverse", inverse ? 0 : 1);
    attrs[1] = sbit__attr_int("axis", axis);
    inputs[0] = g->output_grads[0];
    inputs[1] = sbit__g_shape_of(g, &points, 1);
    inputs[2] = sbit__g_shape_of(g, &axis, 1);
    for (size_t i = 1; i < 3; i++) { /* scalars */
        const sbit_value_id both[2] = {inputs[i], sbit__g_shape_of(g, &axis, 0)};
        inputs[i] = sbit_gradient_add(g, "", "Reshape", both, 2, NULL, 0);
    }
    const sbit_value_id back =
        sbit_gradient_add(g, "", "DFT", inputs, listed ? 3 : 2, attrs, listed ? 1 : 2);
    const double n = (double)points;
    const sbit_value_id dx = sbit__g_2(g, "Mul", back, sbit__g_number(g, inverse ? 1.0 / n : n));
    const bool real = sbit__g_length(g, g->inputs[0], rank - 1) == 1;
    const sbit_attr piece[3] = {sbit__attr_int("axis", rank - 1), sbit__attr_int("begin", 0),
                                sbit__attr_int("length", 1)};
    g->input_grads[0] =
        real ? sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "Piece", &dx, 1, piece, 3) : dx;
}

/* w [2 * bins][1][length]: a frame's cosines and negative sines. */
static sbit_value_id sbit__g_stft_basis(sbit_gradient *g, int64_t bins, int64_t length)
{
    const int64_t dims[3] = {2 * bins, 1, length};
    sbit_ctx *ctx = sbit_graph_ctx(g->graph);
    sbit_value_id id = {0};
    sbit_tensor basis;
    g->status = sbit_tensor_alloc(ctx, sbit__g_type(g, g->outputs[0])->dtype, 3, dims, &basis, g->error);
    if (g->status != SBIT_OK) {
        return id;
    }
    for (int64_t i = 0; i < bins * length; i++) {
        const int64_t k = i / length, n = i % length;
        const double angle = 6.283185307179586477 * (double)(k * n % length) / (double)length;
        sbit__tensor_set_f64(&basis, 2 * k * length + n, cos(angle));
        sbit__tensor_set_f64(&basis, (2 * k + 1) * length + n, -sin(angle));
    }
    g->status = sbit_graph_add_constant(g->graph, "stft", &basis, &id, g->error);
    sbit_tensor_free(ctx, &basis);
    return id;
}

/* Of a real signal it is a convolution with strides by cosines and sines times the window. */
SBIT__FN void sbit__grad_stft(sbit_gradient *g)
{
    const bool windowed = g->input_count > 2 && g->inputs[2].idx != 0;
    const sbit_value_info *step = sbit_graph_value(g->graph, g->inputs[1]);
    const sbit_value_info *given = g->input_count > 3 && g->inputs[3].idx != 0
                                       ? sbit_graph_value(g->graph, g->inputs[3])
                                       : NULL;
    if (!step->is_constant || (given != NULL && !given->is_constant) ||
        sbit__g_length(g, g->inputs[0], 2) != 1) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED,
                           "only of a real signal, with a fixed step and length, is there a gradient");
        return;
    }
    const int64_t stride = sbit__tensor_i64_at(&step->constant, 0);
    const int64_t length = given != NULL ? sbit__tensor_i64_at(&given->constant, 0)
                                         : sbit__g_length(g, g->inputs[windowed ? 2 : 0], windowed ? 0 : 1);
    const int64_t bins = sbit_node_int(g->node, "onesided", 1) != 0 ? length / 2 + 1 : length;
    const int64_t frames[3] = {0, 0, 2 * bins}, line[3] = {0, 1, -1}, last[3] = {0, 2, 1};
    const sbit_attr strides = sbit__attr_ints("strides", &stride, 1);
    const sbit_attr perm = sbit__attr_ints("perm", last, 3);
    if (g->status != SBIT_OK) {
        return;
    }
    const sbit_value_id basis = sbit__g_stft_basis(g, bins, length);
    const sbit_value_id rows =
        sbit__g_2(g, "Reshape", g->output_grads[0], sbit__g_shape_of(g, frames, 3));
    const sbit_value_id dy = sbit_gradient_add(g, "", "Transpose", &rows, 1, &perm, 1);
    const sbit_value_id x = sbit__g_2(g, "Reshape", g->inputs[0], sbit__g_shape_of(g, line, 3));
    if (g->wanted[0]) {
        const sbit_value_id three[3] = {
            dy, windowed ? sbit__g_2(g, "Mul", basis, g->inputs[2]) : basis, sbit__g_shape(g, x)};
        const sbit_value_id dx =
            sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ConvDataGrad", three, 3, &strides, 1);
        g->input_grads[0] = sbit__g_2(g, "Reshape", dx, sbit__g_shape(g, g->inputs[0]));
    }
    if (sbit__g_wanted(g, 2)) {
        const sbit_value_id three[3] = {x, dy, sbit__g_shape(g, basis)};
        const sbit_value_id dw =
            sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ConvWeightGrad", three, 3, &strides, 1);
        sbit__g_fit(g, 2, sbit__g_2(g, "Mul", dw, basis));
    }
}

/* At inference nothing is dropped. What is dropped while training only the training form knows. */
SBIT__FN void sbit__grad_dropout(sbit_gradient *g)
{
    const sbit_value_info *mode = g->input_count > 2 && g->inputs[2].idx != 0
                                      ? sbit_graph_value(g->graph, g->inputs[2])
                                      : NULL;
    if (mode != NULL && (!mode->is_constant || sbit__tensor_f64_at(&mode->constant, 0) != 0.0)) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "in training mode it has no gradient");
        return;
    }
    g->input_grads[0] = g->output_grads[0];
}

SBIT__FN void sbit__grad_dropout_train(sbit_gradient *g)
{
    const sbit_value_id inputs[2] = {g->output_grads[0], g->inputs[1]};
    g->input_grads[0] =
        sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "DropoutTrain", inputs, 2, false, NULL);
}

/* >>moves */

static sbit_value_id sbit__g_gather(sbit_gradient *g, bool nd, sbit_value_id from)
{
    const sbit_value_id inputs[2] = {from, g->inputs[1]};
    const sbit_attr axis = sbit__attr_int("axis", sbit_node_int(g->node, "axis", 0));
    return sbit_gradient_add(g, "", nd ? "GatherND" : "GatherElements", inputs, 2, &axis,
                             nd ? 0 : 1);
}

static sbit_value_id sbit__g_scatter(sbit_gradient *g, sbit_value_id into, sbit_value_id updates)
{
    const sbit_value_id inputs[3] = {into, g->inputs[1], updates};
    return sbit__g_add_like(g, "", g->node->op_type, inputs, 3, false, NULL);
}

/* Scatter of updates u into data x at places i: y = x with y[i] = u, x[i] + u, x[i] * u ...
 *     none      dx = dy with 0 at i      du = dy[i]
 *     add       dx = dy                  du = dy[i]
 *     mul       dx = dy scattered by u   du = (dy y)[i] / u
 *     max, min  dx = dy where y is x     du = dy[i] where y[i] is u */
static void sbit__g_scatter_rule(sbit_gradient *g, bool nd)
{
    const char *how = sbit_node_string(g->node, "reduction", "none");
    const sbit_value_id dy = g->output_grads[0], x = g->inputs[0], u = g->inputs[2];
    const sbit_value_id y = g->outputs[0], zero = sbit__g_number(g, 0.0);
    const bool none = sbit__streq(how, "none"), add = sbit__streq(how, "add");
    const bool mul = sbit__streq(how, "mul"), most = sbit__streq(how, "max");
    if (g->wanted[0]) {
        const sbit_value_id nothing =
            none ? sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ZerosLike", &u, 1, NULL, 0) : u;
        g->input_grads[0] =
            add ? dy
            : none || mul
                ? sbit__g_scatter(g, dy, nothing)
                : sbit__g_where(g, sbit__g_2(g, "Less", most ? x : y, most ? y : x), zero, dy);
    }
    if (!g->wanted[2]) {
        return;
    }
    if (none || add) {
        g->input_grads[2] = sbit__g_gather(g, nd, dy);
    } else if (mul) {
        const sbit_value_id all = sbit__g_gather(g, nd, sbit__g_2(g, "Mul", dy, y));
        g->input_grads[2] = sbit__g_2(g, "Div", all, u);
    } else {
        const sbit_value_id kept = sbit__g_gather(g, nd, y), part = sbit__g_gather(g, nd, dy);
        g->input_grads[2] =
            sbit__g_where(g, sbit__g_2(g, "Less", most ? u : kept, most ? kept : u), zero, part);
    }
}

SBIT__FN void sbit__grad_scatter_elements(sbit_gradient *g)
{
    sbit__g_scatter_rule(g, false);
}

SBIT__FN void sbit__grad_scatter_nd(sbit_gradient *g)
{
    sbit__g_scatter_rule(g, true);
}

SBIT__FN void sbit__grad_compress(sbit_gradient *g)
{
    sbit__g_moves(g, g->inputs, g->input_count, false);
}

SBIT__FN void sbit__grad_center_crop_pad(sbit_gradient *g)
{
    sbit__g_moves(g, g->inputs, g->input_count, true);
}

/* The indices are places of the flat output. */
SBIT__FN void sbit__grad_max_unpool(sbit_gradient *g)
{
    static const int64_t flat[] = {-1};
    sbit_value_id inputs[2];
    inputs[0] = sbit__g_2(g, "Reshape", g->output_grads[0], sbit__g_shape_of(g, flat, 1));
    inputs[1] = g->inputs[1];
    g->input_grads[0] = sbit_gradient_add(g, "", "Gather", inputs, 2, NULL, 0);
}

/* The indices of the elements of x, taken along the axis, say where each value came from. */
SBIT__FN void sbit__grad_top_k(sbit_gradient *g)
{
    const sbit_attr axis = sbit__attr_int("axis", sbit_node_int(g->node, "axis", -1));
    const sbit_attr first = sbit__attr_int("first", 0);
    sbit_value_id two[2], three[3];
    if (!sbit__g_only_first(g)) {
        return;
    }
    if (g->output_count < 2 || g->outputs[1].idx == 0) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "without its indices it has no gradient");
        return;
    }
    two[0] = sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "IndexLike", g->inputs, 1, &first, 1);
    two[1] = g->outputs[1];
    three[0] = g->output_grads[0];
    three[1] = sbit_gradient_add(g, "", "GatherElements", two, 2, &axis, 1);
    three[2] = sbit__g_shape(g, g->inputs[0]);
    g->input_grads[0] = sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ScatterBack", three, 3, &first, 1);
}

/* Turned back: the same with the sines negated. */
SBIT__FN void sbit__grad_rotary(sbit_gradient *g)
{
    sbit_value_id inputs[4];
    if (sbit__g_wanted(g, 1) || sbit__g_wanted(g, 2)) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "its caches have no gradient");
        return;
    }
    memcpy(inputs, g->inputs, (size_t)g->input_count * sizeof *inputs);
    inputs[0] = g->output_grads[0];
    inputs[2] = sbit__g_1(g, "Neg", g->inputs[2]);
    g->input_grads[0] =
        sbit__g_add_like(g, "", "RotaryEmbedding", inputs, (size_t)g->input_count, false, NULL);
}

/* >>activations and pools */

/* y = swish(a) b */
SBIT__FN void sbit__grad_swiglu(sbit_gradient *g)
{
    const sbit_value_id dy = g->output_grads[0], a = g->inputs[0], b = g->inputs[1];
    const float alpha = sbit_node_float(g->node, "alpha", 1.0f);
    if (g->wanted[0]) {
        const sbit_value_id inputs[2] = {sbit__g_2(g, "Mul", dy, b), a};
        sbit_attr attrs[2];
        attrs[0] = sbit__attr_string("of", "Swish");
        attrs[1] = sbit__attr_float("alpha", alpha);
        g->input_grads[0] =
            sbit_gradient_add(g, SBIT__GRAD_DOMAIN, "ActivationGrad", inputs, 2, attrs, 2);
    }
    if (g->wanted[1]) {
        const sbit_value_id bent = sbit__g_2(g, "Mul", a, sbit__g_number(g, (double)alpha));
        const sbit_value_id gate = sbit__g_2(g, "Mul", a, sbit__g_1(g, "Sigmoid", bent));
        g->input_grads[1] = sbit__g_2(g, "Mul", dy, gate);
    }
}

/* y = (sum |x|^p)^(1/p): dx = sign(x) |x|^(p-1) times what comes back of dy y^(1-p) */
static void sbit__g_lp(sbit_gradient *g, bool global)
{
    const int64_t p = sbit_node_int(g->node, "p", 2);
    const sbit_value_id x = g->inputs[0], y = g->outputs[0], zero = sbit__g_number(g, 0.0);
    sbit_value_id inputs[2], slope = x, back;
    const sbit_value_id power = sbit__g_2(g, "Pow", y, sbit__g_number(g, (double)(p - 1)));
    const sbit_value_id up = sbit__g_2(g, "Div", g->output_grads[0], power);
    inputs[0] = sbit__g_where(g, sbit__g_2(g, "Less", zero, y), up, zero);
    inputs[1] = x;
    if (p == 1) {
        slope = sbit__g_1(g, "Sign", x);
    } else if (p != 2) {
        const sbit_value_id size =
            sbit__g_2(g, "Pow", sbit__g_1(g, "Abs", x), sbit__g_number(g, (double)(p - 1)));
        slope = sbit__g_2(g, "Mul", sbit__g_1(g, "Sign", x), size);
    }
    if (global) {
        int64_t axes[SBIT_MAX_RANK] = {0};
        const int32_t rank = sbit__g_rank(g, x);
        for (int32_t i = 2; i < rank; i++) {
            axes[i - 2] = i;
        }
        const sbit_attr list = sbit__attr_ints("axes", axes, rank > 2 ? (size_t)rank - 2 : 0);
        back = sbit__g_spread(g, inputs[0], &list, false);
    } else {
        back = sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "PoolGrad", inputs, 2, true, NULL);
    }
    g->input_grads[0] = sbit__g_2(g, "Mul", slope, back);
}

SBIT__FN void sbit__grad_lp_pool(sbit_gradient *g)
{
    sbit__g_lp(g, false);
}

SBIT__FN void sbit__grad_global_lp_pool(sbit_gradient *g)
{
    sbit__g_lp(g, true);
}

/* >>operators with a row of their own for the gradient */

SBIT__FN void sbit__grad_label_loss(sbit_gradient *g)
{
    sbit_value_id inputs[4];
    memset(inputs, 0, sizeof inputs);
    if (!sbit__g_only_first(g)) {
        return;
    }
    if (sbit__g_wanted(g, 2)) {
        sbit_gradient_fail(g, SBIT_ERR_UNSUPPORTED, "its class weights have no gradient");
        return;
    }
    inputs[0] = g->output_grads[0];
    memcpy(inputs + 1, g->inputs, (size_t)g->input_count * sizeof *inputs);
    g->input_grads[0] = sbit__g_add_like(g, SBIT__GRAD_DOMAIN, "LabelLossGrad", inputs,
                                         (size_t)g->input_count + 1, true, NULL);
}

/* DeformConvGrad(x, w, offset, mask, dy) -> dx, dw, doffset, dmask */
SBIT__FN void sbit__grad_deform(sbit_gradient *g)
{
    sbit_value_id inputs[5], outputs[4];
    bool wanted[4];
    memset(inputs, 0, sizeof inputs);
    for (int32_t i = 0; i < 4; i++) { /* x, w, offset, mask: all but the bias */
        const int32_t from = i < 3 ? i : 4;
        inputs[i].idx = from < g->input_count ? g->inputs[from].idx : 0;
        wanted[i] = sbit__g_wanted(g, from);
    }
    inputs[4] = g->output_grads[0];
    sbit__g_add_node(g, SBIT__GRAD_DOMAIN, "DeformConvGrad", inputs, 5, g->node->attrs,
                     g->node->attr_count, wanted, outputs, 4);
    for (int32_t i = 0; i < 4; i++) {
        if (wanted[i]) {
            g->input_grads[i < 3 ? i : 4] = outputs[i];
        }
    }
    if (sbit__g_wanted(g, 3)) {
        g->input_grads[3] = sbit__g_reduce(g, inputs[4], g->inputs[3], 1);
    }
}

/* (q, k, v, past, decay, beta, dy, dstate) -> what the six inputs get */
SBIT__FN void sbit__grad_linear_attention(sbit_gradient *g)
{
    sbit_value_id inputs[8];
    bool wanted[6];
    memset(inputs, 0, sizeof inputs);
    memcpy(inputs, g->inputs, (size_t)g->input_count * sizeof *inputs);
    for (int32_t i = 0; i < 2 && i < g->output_count; i++) {
        inputs[6 + i] = g->output_grads[i];
    }
    for (int32_t i = 0; i < 6; i++) {
        wanted[i] = sbit__g_wanted(g, i);
    }
    sbit__g_node(g, "LinearAttentionGrad", inputs, 8, g->node->attrs, g->node->attr_count, wanted, 6);
}

/* AttentionGrad(q, k, v, mask, past k, past v, lengths, dy) -> dq, dk, dv, dmask, dpast k, dpast v
 */
SBIT__FN void sbit__grad_attention(sbit_gradient *g)
{
    sbit_value_id inputs[8];
    bool wanted[6];
    memset(inputs, 0, sizeof inputs);
    if (!sbit__g_only_first(g)) {
        return;
    }
    memcpy(inputs, g->inputs, (size_t)g->input_count * sizeof *inputs);
    inputs[7] = g->output_grads[0];
    const bool packed = sbit_node_int(g->node, "packed", 0) != 0; /* one gradient of all three */
    for (int32_t i = 0; i < 6; i++) {
        wanted[i] = sbit__g_wanted(g, i) && (i == 0 || !packed);
    }
    sbit__g_node(g, "AttentionGrad", inputs, 8, g->node->attrs, g->node->attr_count, wanted, 6);
}

/* RecurrentGrad(x, W, R, B, lengths, h0, c0, P, dY, dYh, dYc) -> dx, dW, dR, dB, -, dh0, dc0, dP:
 * LSTM, GRU and RNN in every form. */
SBIT__FN void sbit__grad_rnn(sbit_gradient *g)
{
    sbit_value_id inputs[11];
    sbit_attr attrs[SBIT__RNN_ATTRIBUTES];
    bool wanted[8];
    size_t count = 1;
    memset(inputs, 0, sizeof inputs);
    memcpy(inputs, g->inputs, (size_t)g->input_count * sizeof *inputs);
    for (int32_t i = 0; i < 8; i++) {
        wanted[i] = i != 4 && sbit__g_wanted(g, i);
    }
    for (int32_t i = 0; i < 3 && i < g->output_count; i++) {
        inputs[8 + i] = g->output_grads[i];
    }
    attrs[0] = sbit__attr_string("of", g->node->op_type);
    for (size_t i = 0; i < g->node->attr_count && count < SBIT__RNN_ATTRIBUTES; i++) {
        attrs[count++] = g->node->attrs[i];
    }
    sbit__g_node(g, "RecurrentGrad", inputs, 11, attrs, count, wanted, 8);
}
