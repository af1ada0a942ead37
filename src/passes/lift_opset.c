/* lift_opset.c: raises the ai.onnx opset of a model. >>lift-opset
 *
 * Called by: users, quant. Calls: opset.c, graph.
 * One row for each operator whose definition changed by more than wider types; its function takes
 * a node from any version to any later one (A2.9, A2.10). All others mean the same in every opset
 * and are left alone, as are operators of other domains.
 */
#include "passes_private.h"

#define SBIT__LIFT_NEWEST 28

typedef sbit_status (*sbit__lift_fn)(sbit__opset *lift, const sbit_node *node, sbit_error *error);

/* The definition changed in `version`, and the model goes over that. */
static bool sbit__lift_over(const sbit__opset *lift, int64_t version)
{
    return lift->from < version && lift->to >= version;
}

static const char *sbit__lift_name(const sbit__opset *lift, const sbit_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0) {
            return sbit_graph_value(lift->graph, node->outputs[i])->name;
        }
    }
    return node->op_type;
}

static const sbit_type *sbit__lift_type(const sbit__opset *lift, const sbit_node *node, size_t input)
{
    return node->input_count > input && node->inputs[input].idx != 0
               ? &sbit_graph_value(lift->graph, node->inputs[input])->type
               : NULL;
}

/* >>attributes to inputs */

/* An attribute that is a list of integers becomes input `index`; nothing if it is not there. */
static sbit_status sbit__lift_ints(sbit__opset *lift, const sbit_node *node, const char *name,
                                   size_t index, sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(node, name);
    sbit_value_id id;
    char text[256];
    if (attr == NULL || !lift->change) {
        return SBIT_OK;
    }
    snprintf(text, sizeof text, "%.200s_%s", sbit__lift_name(lift, node), name);
    SBIT__TRY(
        sbit__add_ints(lift->graph, text, attr->type == SBIT_ONNX_ATTR_INT ? &attr->i : attr->ints,
                       attr->type == SBIT_ONNX_ATTR_INT ? 1 : (int64_t)attr->count, &id, error));
    SBIT__TRY(sbit_graph_set_node_input(lift->graph, node->id, index, id, error));
    sbit_graph_remove_attr(lift->graph, node->id, name);
    return SBIT_OK;
}

/* A number becomes input `index`, of that type. */
static sbit_status sbit__lift_number(sbit__opset *lift, const sbit_node *node, const char *name,
                                     double value, size_t index, sbit_dtype dtype,
                                     sbit_error *error)
{
    sbit_value_id id;
    char text[256];
    snprintf(text, sizeof text, "%.200s_%s", sbit__lift_name(lift, node), name);
    SBIT__TRY(sbit__add_scalar(lift->graph, text, dtype, 0, value, &id, error));
    SBIT__TRY(sbit_graph_set_node_input(lift->graph, node->id, index, id, error));
    sbit_graph_remove_attr(lift->graph, node->id, name);
    return SBIT_OK;
}

static sbit_status sbit__lift_floats(sbit__opset *lift, const char *name, const float *values,
                                     int64_t count, sbit_value_id *out, sbit_error *error)
{
    sbit_tensor tensor;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(lift->graph), SBIT_F32, 1, &count, &tensor, error));
    if (count > 0) {
        memcpy(tensor.data, values, (size_t)count * sizeof *values);
    }
    status = sbit_graph_add_constant(lift->graph, name, &tensor, out, error);
    sbit_tensor_free(sbit_graph_ctx(lift->graph), &tensor);
    return status;
}

static void sbit__lift_drop(sbit__opset *lift, const sbit_node *node, const char *name)
{
    if (lift->change) {
        sbit_graph_remove_attr(lift->graph, node->id, name);
    }
}

/* >>elementwise operators of before opset 7 */

/* With broadcast=1, input 1 was laid on consecutive axes of input 0, from `axis`; now shapes are
 * aligned at the end, so it gets dims of 1 behind. */
static sbit_status sbit__lift_align(sbit__opset *lift, const sbit_node *node, int64_t axis,
                                    sbit_error *error)
{
    const sbit_type *a = sbit__lift_type(lift, node, 0), *b = sbit__lift_type(lift, node, 1);
    int64_t axes[SBIT_MAX_RANK], count = 0;
    sbit_value_id inputs[2];
    sbit_attr attr;
    if (a == NULL || b == NULL || a->rank < 0 || b->rank < 0 || axis + b->rank > a->rank ||
        axis < 0) {
        return sbit__opset_problem(lift, node, "its axis cannot be applied to unknown ranks");
    }
    for (int64_t i = axis + b->rank; i < a->rank; i++) {
        axes[count] = b->rank + count;
        count++;
    }
    if (count == 0 || !lift->change) {
        return SBIT_OK;
    }
    inputs[0] = node->inputs[1];
    attr = sbit__attr_ints("axes", axes, (size_t)count);
    if (lift->to >= 13) {
        SBIT__TRY(sbit__add_ints(lift->graph, "axes", axes, count, &inputs[1], error));
    }
    SBIT__TRY(sbit__emit(lift->graph, node->id, "Unsqueeze", sbit__lift_name(lift, node), inputs,
                         lift->to >= 13 ? 2 : 1, &attr, lift->to >= 13 ? 0 : 1, &inputs[0], error));
    return sbit_graph_set_node_input(lift->graph, node->id, 1, inputs[0], error);
}

static sbit_status sbit__lift_elementwise(sbit__opset *lift, const sbit_node *node,
                                          sbit_error *error)
{
    const sbit_attr *axis = sbit_node_attr(node, "axis");
    if (!sbit__lift_over(lift, 7)) {
        return SBIT_OK;
    }
    if (axis != NULL && sbit_node_int(node, "broadcast", 0) != 0) {
        const sbit_type *a = sbit__lift_type(lift, node, 0);
        SBIT__TRY(sbit__lift_align(
            lift, node, axis->i + (axis->i < 0 && a != NULL && a->rank > 0 ? a->rank : 0), error));
    }
    sbit__lift_drop(lift, node, "axis");
    sbit__lift_drop(lift, node, "broadcast");
    return SBIT_OK;
}

/* PRelu had one slope for each channel (axis 1), which is now broadcast like any operand. */
static sbit_status sbit__lift_prelu(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_type *slope = sbit__lift_type(lift, node, 1);
    const bool one =
        slope != NULL && slope->rank >= 0 && sbit__known_product(slope, 0, slope->rank) == 1;
    if (!sbit__lift_over(lift, 7) || one) {
        return SBIT_OK;
    }
    if (slope == NULL || slope->rank != 1) {
        return sbit__opset_problem(lift, node, "the shape of its slope is not known");
    }
    return sbit__lift_align(lift, node, 1, error);
}

/* >>operators with parameters */

static sbit_status sbit__lift_batch_norm(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    if (sbit__lift_over(lift, 9) && sbit_node_int(node, "spatial", 1) == 0) {
        return sbit__opset_problem(lift, node, "spatial=0 has no later equivalent");
    }
    if (sbit__lift_over(lift, 7) && sbit_node_int(node, "is_test", 0) == 0 &&
        !sbit__single_output(lift->graph, node)) { /* one output means test mode in any version */
        return sbit__opset_problem(lift, node, "it is in training mode (is_test=0)");
    }
    if (sbit__lift_over(lift, 14) && !sbit__single_output(lift->graph, node)) {
        return sbit__opset_problem(lift, node, "its statistics are used, as in training");
    }
    sbit__lift_drop(lift, node, "spatial");
    sbit__lift_drop(lift, node, "is_test");
    if (lift->change && sbit__lift_over(lift, 14) && node->output_count > 1) {
        return sbit__replace_node(lift->graph, node, node->op_type, node->inputs, node->input_count,
                                  node->attrs, node->attr_count, 1, error);
    }
    return SBIT_OK;
}

static sbit_status sbit__lift_cast(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_attr *to = sbit_node_attr(node, "to");
    static const char *const names[] = {"UNDEFINED", "FLOAT",  "UINT8",  "INT8",   "UINT16",
                                        "INT16",     "INT32",  "INT64",  "STRING", "BOOL",
                                        "FLOAT16",   "DOUBLE", "UINT32", "UINT64"};
    if (!sbit__lift_over(lift, 6) || to == NULL || to->type != SBIT_ONNX_ATTR_STRING) {
        return SBIT_OK;
    }
    for (size_t i = 1; i < SBIT__COUNT_OF(names); i++) {
        if (to->s.size == strlen(names[i]) && memcmp(to->s.data, names[i], to->s.size) == 0) {
            const sbit_attr attr = sbit__attr_int("to", (int64_t)i);
            return lift->change ? sbit_graph_set_attr(lift->graph, node->id, &attr, error)
                                : SBIT_OK;
        }
    }
    return sbit__opset_problem(lift, node, "the element type it casts to is not known");
}

static sbit_status sbit__lift_clip(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__lift_type(lift, node, 0);
    static const char *const names[] = {"min", "max"};
    /* the defaults of version 6 bound float64, too */
    const bool defaults = lift->from >= 6 && x != NULL && x->dtype == SBIT_F64;
    if (!sbit__lift_over(lift, 11) ||
        (!defaults && sbit_node_attr(node, "min") == NULL && sbit_node_attr(node, "max") == NULL)) {
        return SBIT_OK;
    }
    if (x == NULL || x->dtype == SBIT_UNDEFINED) {
        return sbit__opset_problem(lift, node, "the element type of its input is not known");
    }
    for (size_t i = 0; lift->change && i < 2; i++) {
        const double otherwise = i == 0 ? -(double)FLT_MAX : (double)FLT_MAX;
        const sbit_attr *attr = sbit_node_attr(node, names[i]);
        if (attr != NULL || defaults) {
            SBIT__TRY(sbit__lift_number(lift, node, names[i],
                                        attr != NULL ? (double)attr->f : otherwise, i + 1,
                                        x->dtype, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__lift_dropout(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    if (sbit__lift_over(lift, 7) && sbit_node_int(node, "is_test", 0) == 0) {
        return sbit__opset_problem(lift, node, "it is in training mode (is_test=0)");
    }
    if (sbit__lift_over(lift, 10) && sbit__output_used(lift->graph, node, 1)) {
        return sbit__opset_problem(lift, node, "its mask is used, whose type changed in opset 10");
    }
    sbit__lift_drop(lift, node, "is_test");
    if (!lift->change || !sbit__lift_over(lift, 12) || sbit_node_attr(node, "ratio") == NULL) {
        return SBIT_OK;
    }
    return sbit__lift_number(lift, node, "ratio", (double)sbit_node_float(node, "ratio", 0.5f), 1,
                             SBIT_F32, error);
}

static sbit_status sbit__lift_gemm(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    (void)error;
    if (sbit__lift_over(lift, 7)) {
        sbit__lift_drop(lift, node, "broadcast");
    }
    return SBIT_OK;
}

static sbit_status sbit__lift_concat(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_attr axis = sbit__attr_int("axis", 1);
    if (!sbit__lift_over(lift, 4) || sbit_node_attr(node, "axis") != NULL || !lift->change) {
        return SBIT_OK;
    }
    return sbit_graph_set_attr(lift->graph, node->id, &axis, error);
}

static sbit_status sbit__lift_selu(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_attr alpha = sbit__attr_float("alpha", 1.6732f);
    const sbit_attr gamma = sbit__attr_float("gamma", 1.0507f);
    if (!sbit__lift_over(lift, 6) || !lift->change) {
        return SBIT_OK;
    }
    if (sbit_node_attr(node, "alpha") == NULL) {
        SBIT__TRY(sbit_graph_set_attr(lift->graph, node->id, &alpha, error));
    }
    if (sbit_node_attr(node, "gamma") == NULL) {
        SBIT__TRY(sbit_graph_set_attr(lift->graph, node->id, &gamma, error));
    }
    return SBIT_OK;
}

/* The exponent became an integer. */
static sbit_status sbit__lift_lp_pool(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_attr *p = sbit_node_attr(node, "p");
    sbit_attr attr;
    if (!sbit__lift_over(lift, 2) || p == NULL || p->type != SBIT_ONNX_ATTR_FLOAT) {
        return SBIT_OK;
    }
    attr = sbit__attr_int("p", (int64_t)p->f);
    if ((float)attr.i != p->f) {
        return sbit__opset_problem(lift, node, "p must be a whole number");
    }
    return lift->change ? sbit_graph_set_attr(lift->graph, node->id, &attr, error) : SBIT_OK;
}

/* >>shape operators */

static sbit_status sbit__lift_axes_13(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    return sbit__lift_over(lift, 13) ? sbit__lift_ints(lift, node, "axes", 1, error) : SBIT_OK;
}

static sbit_status sbit__lift_axes_18(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    return sbit__lift_over(lift, 18) ? sbit__lift_ints(lift, node, "axes", 1, error) : SBIT_OK;
}

/* Opset 28 left integers out. */
static sbit_status sbit__lift_log_sum(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__lift_type(lift, node, 0);
    if (sbit__lift_over(lift, 28) && (x == NULL || (SBIT_T(x->dtype) & SBIT_T_FLOATS) == 0)) {
        return sbit__opset_problem(lift, node, "opset 28 knows it for floats only");
    }
    return sbit__lift_axes_18(lift, node, error);
}

static sbit_status sbit__lift_reshape(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    return sbit__lift_over(lift, 5) ? sbit__lift_ints(lift, node, "shape", 1, error) : SBIT_OK;
}

static sbit_status sbit__lift_slice(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    if (!sbit__lift_over(lift, 10)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__lift_ints(lift, node, "starts", 1, error));
    SBIT__TRY(sbit__lift_ints(lift, node, "ends", 2, error));
    return sbit__lift_ints(lift, node, "axes", 3, error);
}

static sbit_status sbit__lift_top_k(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    return sbit__lift_over(lift, 10) ? sbit__lift_ints(lift, node, "k", 1, error) : SBIT_OK;
}

static sbit_status sbit__lift_split(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_attr outputs = sbit__attr_int("num_outputs", (int64_t)node->output_count);
    if (sbit__lift_over(lift, 2) && node->input_count > 1) {
        return sbit__opset_problem(lift, node, "its sizes are an input, as in opset 1 only");
    }
    if (sbit__lift_over(lift, 13)) {
        SBIT__TRY(sbit__lift_ints(lift, node, "split", 1, error));
    }
    if (!sbit__lift_over(lift, 18) || !lift->change || sbit__node_in(node, 1).idx != 0) {
        return SBIT_OK;
    }
    return sbit_graph_set_attr(lift->graph, node->id, &outputs, error);
}

static sbit_status sbit__lift_pad(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__lift_type(lift, node, 0);
    const sbit_attr *old = sbit_node_attr(node, "paddings");
    const float value = sbit_node_float(node, "value", 0.0f);
    if (sbit__lift_over(lift, 2) && old != NULL && lift->change) {
        const sbit_attr pads = sbit__attr_ints("pads", old->ints, old->count);
        SBIT__TRY(sbit_graph_set_attr(lift->graph, node->id, &pads, error));
        sbit_graph_remove_attr(lift->graph, node->id, "paddings");
    }
    if (!sbit__lift_over(lift, 11)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__lift_ints(lift, node, "pads", 1, error));
    if (value == 0.0f) {
        sbit__lift_drop(lift, node, "value");
        return SBIT_OK;
    }
    if (x == NULL || x->dtype == SBIT_UNDEFINED) {
        return sbit__opset_problem(lift, node, "the element type of its input is not known");
    }
    return lift->change ? sbit__lift_number(lift, node, "value", (double)value, 2, x->dtype, error)
                        : SBIT_OK;
}

/* Inputs tiles and axis, of any type, become one number for each axis: 1, but for that one. */
static sbit_status sbit__lift_tile(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__lift_type(lift, node, 0);
    const sbit_tensor *axis = sbit__const_in(lift->graph, node, 2);
    const int64_t ones[SBIT_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1}, one = 1;
    const sbit_attr to = sbit__attr_int("to", SBIT_I64), along = sbit__attr_int("axis", 0);
    sbit_value_id parts[3], inputs[2];
    size_t count = 0;
    if (!sbit__lift_over(lift, 6)) {
        return SBIT_OK;
    }
    if (x == NULL || x->rank < 1 || axis == NULL || sbit_tensor_count(axis) != 1) {
        return sbit__opset_problem(lift, node, "its axis is no constant, or its rank not known");
    }
    int64_t at = sbit__tensor_i64_at(axis, 0);
    at += at < 0 ? x->rank : 0;
    if (at < 0 || at >= x->rank) {
        return sbit__opset_problem(lift, node, "its axis is out of range");
    }
    if (!lift->change) {
        return SBIT_OK;
    }
    const char *name = sbit__lift_name(lift, node);
    if (at > 0) {
        SBIT__TRY(sbit__add_ints(lift->graph, "tile_front", ones, at, &parts[count++], error));
    }
    SBIT__TRY(sbit__add_ints(lift->graph, "tile_shape", &one, 1, &inputs[1], error));
    SBIT__TRY(sbit__emit(lift->graph, node->id, "Cast", name, &node->inputs[1], 1, &to, 1,
                         &inputs[0], error));
    SBIT__TRY(sbit__emit(lift->graph, node->id, "Reshape", name, inputs, 2, NULL, 0,
                         &parts[count++], error));
    if (at + 1 < x->rank) {
        SBIT__TRY(sbit__add_ints(lift->graph, "tile_behind", ones, x->rank - at - 1,
                                 &parts[count++], error));
    }
    inputs[0] = node->inputs[0];
    SBIT__TRY(sbit__emit(lift->graph, node->id, "Concat", name, parts, count, &along, 1,
                         &inputs[1], error));
    return sbit__replace_node(lift->graph, node, "Tile", inputs, 2, NULL, 0, 1, error);
}

static sbit_status sbit__lift_scatter(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    if (!sbit__lift_over(lift, 11) || !lift->change) {
        return SBIT_OK;
    }
    return sbit_graph_set_op(lift->graph, node->id, "", "ScatterElements", error);
}

/* >>Upsample, Resize */

/* Up to opset 10 source positions were x / scale. The nearest one was rounded down, but up on axes
 * that shrink: two rules that are two nodes now, if both kinds of axes are there. */

/* The scales of the axes that shrink (or of the others), 1 for the rest; false: there are none. */
static bool sbit__lift_scales_of(const sbit_tensor *scales, bool shrinks, float *out)
{
    bool any = false;
    for (int64_t i = 0; i < scales->dims[0]; i++) {
        const float scale = ((const float *)scales->data)[i];
        out[i] = (scale < 1.0f) == shrinks ? scale : 1.0f;
        any = any || out[i] != 1.0f;
    }
    return any;
}

/* The inputs and attributes of Resize-11 in the place of an older node. */
static sbit_status sbit__lift_resize_form(sbit__opset *lift, const sbit_node *node,
                                          sbit_value_id scales, const char *nearest,
                                          sbit_value_id inputs[3], sbit_attr attrs[3],
                                          size_t *attr_count, sbit_error *error)
{
    const char *mode = sbit_node_string(node, "mode", "nearest");
    inputs[1].idx = 0;
    inputs[2] = scales;
    if (lift->to < 13) { /* roi was not optional */
        SBIT__TRY(sbit__lift_floats(lift, "roi", NULL, 0, &inputs[1], error));
    }
    attrs[0] = sbit__attr_string("mode", strcmp(mode, "bilinear") == 0 ? "linear" : mode);
    attrs[1] = sbit__attr_string("coordinate_transformation_mode", "asymmetric");
    attrs[2] = sbit__attr_string("nearest_mode", nearest);
    *attr_count = strcmp(mode, "nearest") == 0 ? 3 : 2;
    return SBIT_OK;
}

static sbit_status sbit__lift_resize_to(sbit__opset *lift, const sbit_node *node,
                                        sbit_value_id scales, sbit_error *error)
{
    const char *mode = sbit_node_string(node, "mode", "nearest");
    const sbit_tensor *known = sbit__graph_constant(lift->graph, scales);
    const char *name = sbit__lift_name(lift, node);
    float shrinking[SBIT_MAX_RANK], growing[SBIT_MAX_RANK];
    sbit_value_id inputs[3];
    sbit_attr attrs[3];
    size_t count = 1;
    inputs[0] = node->inputs[0];
    if (lift->to < 11) {
        attrs[0] = sbit__attr_string("mode", strcmp(mode, "bilinear") == 0 ? "linear" : mode);
        inputs[1] = scales;
        return sbit__replace_node(lift->graph, node, "Resize", inputs, 2, attrs, 1, 1, error);
    }
    const bool shrinks = strcmp(mode, "nearest") == 0 && known != NULL &&
                         sbit__lift_scales_of(known, true, shrinking);
    if (shrinks && sbit__lift_scales_of(known, false, growing)) {
        sbit_value_id part;
        SBIT__TRY(sbit__lift_floats(lift, "scales", shrinking, known->dims[0], &part, error));
        SBIT__TRY(sbit__lift_floats(lift, "scales", growing, known->dims[0], &scales, error));
        SBIT__TRY(sbit__lift_resize_form(lift, node, part, "ceil", inputs, attrs, &count, error));
        SBIT__TRY(sbit__emit(lift->graph, node->id, "Resize", name, inputs, 3, attrs, count,
                             &inputs[0], error));
        SBIT__TRY(
            sbit__lift_resize_form(lift, node, scales, "floor", inputs, attrs, &count, error));
    } else {
        SBIT__TRY(sbit__lift_resize_form(lift, node, scales, shrinks ? "ceil" : "floor", inputs,
                                         attrs, &count, error));
    }
    return sbit__replace_node(lift->graph, node, "Resize", inputs, 3, attrs, count, 1, error);
}

/* Whether the nearest rule is known: the scales (input `index`) are constants. */
static bool sbit__lift_resize_known(const sbit__opset *lift, const sbit_node *node, size_t index)
{
    const sbit_tensor *scales = sbit__const_in(lift->graph, node, index);
    return !sbit__lift_over(lift, 11) ||
           strcmp(sbit_node_string(node, "mode", "nearest"), "nearest") != 0 ||
           (scales != NULL && scales->dtype == SBIT_F32 && scales->rank == 1 &&
            scales->dims[0] <= SBIT_MAX_RANK);
}

static const char sbit__lift_scales_unknown[] =
    "its scales are not constant: whether its nearest pixels are rounded up depends on them";

static sbit_status sbit__lift_upsample(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_attr *list = sbit_node_attr(node, "scales");
    float scales[SBIT_MAX_RANK] = {1.0f, 1.0f, 1.0f, 1.0f};
    int64_t count = 4;
    sbit_value_id id = sbit__node_in(node, 1);
    if (!sbit__lift_over(lift, 7) && !sbit__lift_over(lift, 9) && !sbit__lift_over(lift, 10)) {
        return SBIT_OK;
    }
    if (id.idx == 0 && list != NULL && list->count <= SBIT_MAX_RANK) {
        count = (int64_t)list->count;
        memcpy(scales, list->floats, list->count * sizeof *scales);
    } else if (id.idx == 0) {
        scales[2] = sbit_node_float(node, "height_scale", 0.0f);
        scales[3] = sbit_node_float(node, "width_scale", 0.0f);
        if (scales[2] <= 0.0f || scales[3] <= 0.0f) {
            return sbit__opset_problem(lift, node, "it has no scales");
        }
    }
    if (id.idx != 0 && !sbit__lift_resize_known(lift, node, 1)) {
        return sbit__opset_problem(lift, node, sbit__lift_scales_unknown);
    }
    if (lift->to < 9) {
        return sbit__lift_over(lift, 7)
                   ? sbit__opset_problem(lift, node, "raise the opset to 9 or more")
                   : SBIT_OK;
    }
    if (!lift->change) {
        return SBIT_OK;
    }
    if (id.idx == 0) {
        SBIT__TRY(sbit__lift_floats(lift, "scales", scales, count, &id, error));
    }
    if (lift->to >= 10) {
        return sbit__lift_resize_to(lift, node, id, error);
    }
    if (strcmp(sbit_node_string(node, "mode", "nearest"), "bilinear") == 0) { /* of opset 1 */
        const sbit_attr mode = sbit__attr_string("mode", "linear");
        SBIT__TRY(sbit_graph_set_attr(lift->graph, node->id, &mode, error));
    }
    sbit_graph_remove_attr(lift->graph, node->id, "scales");
    sbit_graph_remove_attr(lift->graph, node->id, "height_scale");
    sbit_graph_remove_attr(lift->graph, node->id, "width_scale");
    return sbit_graph_set_node_input(lift->graph, node->id, 1, id, error);
}

static sbit_status sbit__lift_resize(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const char *mode = sbit_node_string(node, "coordinate_transformation_mode", "half_pixel");
    const sbit_value_id none = {0};
    if (lift->from == 10 && lift->to >= 11 && !sbit__lift_resize_known(lift, node, 1)) {
        return sbit__opset_problem(lift, node, sbit__lift_scales_unknown);
    }
    if (lift->from == 10 && lift->to >= 11) {
        return lift->change ? sbit__lift_resize_to(lift, node, sbit__node_in(node, 1), error)
                            : SBIT_OK;
    }
    if (!sbit__lift_over(lift, 13)) {
        return SBIT_OK;
    }
    if (strcmp(mode, "tf_half_pixel_for_nn") == 0) {
        return sbit__opset_problem(lift, node, "tf_half_pixel_for_nn was removed in opset 13");
    }
    /* Empty tensors stood for inputs that were not given. */
    for (size_t i = 1; lift->change && i <= 2; i++) {
        const sbit_tensor *tensor = sbit__const_in(lift->graph, node, i);
        if (tensor != NULL && sbit_tensor_count(tensor) == 0) {
            SBIT__TRY(sbit_graph_set_node_input(lift->graph, node->id, i, none, error));
        }
    }
    return SBIT_OK;
}

/* >>Softmax, LogSoftmax, Hardmax: before opset 13 all axes from `axis` on were one. */

/* Only one of these axes is longer than 1, and it is `axis`. */
static bool sbit__lift_one_axis(const sbit_type *x, int64_t axis)
{
    if (x == NULL || x->rank < 0) {
        return false;
    }
    axis += axis < 0 ? x->rank : 0;
    for (int64_t i = axis + 1; i < x->rank; i++) {
        if (!sbit__dim_known(x->dims[i]) || x->dims[i].value != 1) {
            return false;
        }
    }
    return axis >= 0 && axis < x->rank;
}

static sbit_status sbit__lift_softmax(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const int64_t axis = sbit_node_int(node, "axis", 1);
    const sbit_attr last = sbit__attr_int("axis", -1), from = sbit__attr_int("axis", axis);
    const char *name = sbit__lift_name(lift, node);
    sbit_value_id x, shape, inputs[2];
    if (!sbit__lift_over(lift, 13) || !lift->change) {
        return SBIT_OK;
    }
    x = node->inputs[0];
    if (sbit__lift_one_axis(sbit__lift_type(lift, node, 0), axis)) {
        return sbit_graph_set_attr(lift->graph, node->id, &from, error);
    }
    SBIT__TRY(sbit__emit(lift->graph, node->id, "Shape", name, &x, 1, NULL, 0, &shape, error));
    SBIT__TRY(
        sbit__emit(lift->graph, node->id, "Flatten", name, &x, 1, &from, 1, &inputs[0], error));
    SBIT__TRY(sbit__emit(lift->graph, node->id, node->op_type, name, inputs, 1, &last, 1,
                         &inputs[0], error));
    inputs[1] = shape;
    return sbit__replace_node(lift->graph, node, "Reshape", inputs, 2, NULL, 0, 1, error);
}

/* >>others */

static sbit_status sbit__lift_recurrent(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    (void)error;
    if (sbit__lift_over(lift, 7)) {
        sbit__lift_drop(lift, node, "output_sequence");
    }
    return SBIT_OK;
}

static sbit_status sbit__lift_grid_sample(sbit__opset *lift, const sbit_node *node,
                                          sbit_error *error)
{
    const char *mode = sbit_node_string(node, "mode", "bilinear");
    const sbit_attr attr = sbit__attr_string("mode", strcmp(mode, "bilinear") == 0  ? "linear"
                                                     : strcmp(mode, "bicubic") == 0 ? "cubic"
                                                                                    : mode);
    if (!sbit__lift_over(lift, 20) || !lift->change) {
        return SBIT_OK;
    }
    return sbit_graph_set_attr(lift->graph, node->id, &attr, error);
}

static sbit_status sbit__lift_roi_align(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_attr attr = sbit__attr_string("coordinate_transformation_mode", "output_half_pixel");
    if (!sbit__lift_over(lift, 16) || !lift->change) {
        return SBIT_OK;
    }
    return sbit_graph_set_attr(lift->graph, node->id, &attr, error);
}

static sbit_status sbit__lift_dft(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    if (!sbit__lift_over(lift, 20) || !lift->change) {
        return SBIT_OK;
    }
    return sbit__lift_number(lift, node, "axis", (double)sbit_node_int(node, "axis", 1), 2,
                             SBIT_I64, error);
}

/* Scale and bias had one number for each group; now for each channel. */
static sbit_status sbit__lift_group_parameter(sbit__opset *lift, const sbit_node *node, size_t index,
                                              int64_t channels, sbit_error *error)
{
    const sbit_tensor *old = sbit__const_in(lift->graph, node, index);
    const int64_t each = channels / old->dims[0];
    const char *name = sbit_graph_value(lift->graph, node->inputs[index])->name;
    sbit_value_id id;
    sbit_tensor made;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(lift->graph), old->dtype, 1, &channels, &made, error));
    for (int64_t c = 0; c < channels; c++) {
        sbit__tensor_set_f64(&made, c, sbit__tensor_f64_at(old, c / each));
    }
    status = sbit_graph_add_constant(lift->graph, name, &made, &id, error);
    sbit_tensor_free(sbit_graph_ctx(lift->graph), &made);
    return status == SBIT_OK ? sbit_graph_set_node_input(lift->graph, node->id, index, id, error)
                             : status;
}

static sbit_status sbit__lift_group_norm(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__lift_type(lift, node, 0);
    const int64_t groups = sbit_node_int(node, "num_groups", 0);
    int64_t channels = 0;
    if (!sbit__lift_over(lift, 21)) {
        return SBIT_OK;
    }
    channels = x != NULL && x->rank >= 2 && sbit__dim_known(x->dims[1]) ? x->dims[1].value : 0;
    for (size_t i = 1; i <= 2; i++) {
        const sbit_tensor *tensor = sbit__const_in(lift->graph, node, i);
        if (tensor == NULL || tensor->rank != 1 || tensor->dims[0] != groups || groups < 1 ||
            channels == 0 || channels % groups != 0) {
            return sbit__opset_problem(
                lift, node, "its scale and bias are not constants, or its channels are not known");
        }
    }
    for (size_t i = 1; lift->change && i <= 2; i++) {
        SBIT__TRY(sbit__lift_group_parameter(lift, node, i, channels, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__lift_scan(sbit__opset *lift, const sbit_node *node, sbit_error *error)
{
    (void)error;
    return sbit__lift_over(lift, 9)
               ? sbit__opset_problem(lift, node, "Scan of opset 8 has another form")
               : SBIT_OK;
}

/* >>table */

typedef struct sbit__lift_row {
    const char *op_type;
    sbit__lift_fn convert;
} sbit__lift_row;

static const sbit__lift_row sbit__lift_rows[] = {
    {"Add", sbit__lift_elementwise},
    {"And", sbit__lift_elementwise},
    {"BatchNormalization", sbit__lift_batch_norm},
    {"Cast", sbit__lift_cast},
    {"Clip", sbit__lift_clip},
    {"Concat", sbit__lift_concat},
    {"DFT", sbit__lift_dft},
    {"Div", sbit__lift_elementwise},
    {"Dropout", sbit__lift_dropout},
    {"Equal", sbit__lift_elementwise},
    {"GRU", sbit__lift_recurrent},
    {"Gemm", sbit__lift_gemm},
    {"GlobalLpPool", sbit__lift_lp_pool},
    {"Greater", sbit__lift_elementwise},
    {"GridSample", sbit__lift_grid_sample},
    {"GroupNormalization", sbit__lift_group_norm},
    {"Hardmax", sbit__lift_softmax},
    {"LSTM", sbit__lift_recurrent},
    {"Less", sbit__lift_elementwise},
    {"LogSoftmax", sbit__lift_softmax},
    {"LpPool", sbit__lift_lp_pool},
    {"Mul", sbit__lift_elementwise},
    {"Or", sbit__lift_elementwise},
    {"PRelu", sbit__lift_prelu},
    {"Pad", sbit__lift_pad},
    {"Pow", sbit__lift_elementwise},
    {"RNN", sbit__lift_recurrent},
    {"ReduceL1", sbit__lift_axes_18},
    {"ReduceL2", sbit__lift_axes_18},
    {"ReduceLogSum", sbit__lift_log_sum},
    {"ReduceLogSumExp", sbit__lift_log_sum},
    {"ReduceMax", sbit__lift_axes_18},
    {"ReduceMean", sbit__lift_axes_18},
    {"ReduceMin", sbit__lift_axes_18},
    {"ReduceProd", sbit__lift_axes_18},
    {"ReduceSum", sbit__lift_axes_13},
    {"ReduceSumSquare", sbit__lift_axes_18},
    {"Reshape", sbit__lift_reshape},
    {"Resize", sbit__lift_resize},
    {"RoiAlign", sbit__lift_roi_align},
    {"Scan", sbit__lift_scan},
    {"Scatter", sbit__lift_scatter},
    {"Selu", sbit__lift_selu},
    {"Slice", sbit__lift_slice},
    {"Softmax", sbit__lift_softmax},
    {"Split", sbit__lift_split},
    {"Squeeze", sbit__lift_axes_13},
    {"Sub", sbit__lift_elementwise},
    {"Tile", sbit__lift_tile},
    {"TopK", sbit__lift_top_k},
    {"Unsqueeze", sbit__lift_axes_13},
    {"Upsample", sbit__lift_upsample},
    {"Xor", sbit__lift_elementwise},
};

static sbit_status sbit__lift_node(sbit__opset *lift, sbit_node_id id, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(lift->graph, id);
    if (node->domain[0] != '\0') {
        return SBIT_OK;
    }
    if (sbit__lift_over(lift, 6)) {
        sbit__lift_drop(lift, node, "consumed_inputs");
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__lift_rows); i++) {
        if (strcmp(sbit__lift_rows[i].op_type, node->op_type) == 0) {
            return sbit__lift_rows[i].convert(lift, node, error);
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_lift_opset(sbit_graph *graph, int64_t version,
                                                sbit_error *error)
{
    sbit__opset lift;
    memset(&lift, 0, sizeof lift);
    lift.to = version;
    lift.convert = sbit__lift_node;
    SBIT__TRY(sbit__opset_from(graph, &lift.from, error));
    if (version > SBIT__LIFT_NEWEST) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "opset %lld is newer than %d, the newest that models can be raised to",
                          (long long)version, SBIT__LIFT_NEWEST);
    }
    if (version <= lift.from) {
        return SBIT_OK;
    }
    return sbit__opset_convert(&lift, graph, "raised", error);
}

#undef SBIT__LIFT_NEWEST
