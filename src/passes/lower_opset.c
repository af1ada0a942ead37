/* lower_opset.c: lowers the ai.onnx opset of a model. >>lower-opset
 *
 * Called by: users. Calls: opset.c, graph, infer, ops (the table).
 * An operator goes down if its row of the lower opset takes the element types, if attributes that
 * are newer have their default (A2.10), and if inputs that were attributes are constants. Three
 * tables say so; what needs more has a function.
 */
#include "passes_private.h"

#include <math.h>  /* fabs, floor */
#include <stdio.h> /* snprintf */

enum {
    SBIT__LOWER_LOWEST = 7 /* below, elementwise operators broadcast by attributes */
};

static bool sbit__down_over(const sbit__opset *down, int64_t version)
{
    return down->from >= version && down->to < version;
}

static sbit_status sbit__down_problem(sbit__opset *down, const sbit_node *node, const char *format,
                                      const char *what)
{
    char why[160];
    snprintf(why, sizeof why, format, what);
    return sbit__opset_problem(down, node, why);
}

static const sbit_type *sbit__down_type(const sbit__opset *down, sbit_value_id id)
{
    return id.idx != 0 ? &sbit_graph_value(down->graph, id)->type : NULL;
}

static int32_t sbit__down_rank(const sbit__opset *down, const sbit_node *node)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    return x != NULL ? x->rank : -1;
}

/* >>attributes that came later: below `since` they may only have the value that was meant before */

typedef struct sbit__down_attr {
    const char *op_type, *name;
    int64_t since;
    int64_t i;     /* of an integer, and of every element of a list */
    const char *s; /* of a string; NULL: numbers */
} sbit__down_attr;

#define SBIT__DOWN_NEVER INT64_MIN  /* may not be there */
#define SBIT__DOWN_ALWAYS INT64_MAX /* may be dropped whatever it is */

static const sbit__down_attr sbit__down_attrs[] = {
    {"ArgMax", "select_last_index", 12, 0, NULL},
    {"ArgMin", "select_last_index", 12, 0, NULL},
    {"Attention", "left_window_size", 25, -1, NULL},
    {"Attention", "right_window_size", 25, -1, NULL},
    {"AveragePool", "dilations", 19, 1, NULL},
    {"BatchNormalization", "training_mode", 14, 0, NULL},
    {"Cast", "round_mode", 24, 0, "up"},
    {"Cast", "saturate", 19, 1, NULL},
    {"CastLike", "round_mode", 24, 0, "up"},
    {"CastLike", "saturate", 19, 1, NULL},
    {"DepthToSpace", "mode", 11, 0, "DCR"},
    {"DequantizeLinear", "block_size", 21, 0, NULL},
    {"DequantizeLinear", "output_dtype", 23, 0, NULL},
    {"Dropout", "seed", 12, SBIT__DOWN_ALWAYS, NULL},
    {"GRU", "layout", 14, 0, NULL},
    {"GatherND", "batch_dims", 12, 0, NULL},
    {"LSTM", "layout", 14, 0, NULL},
    {"LpPool", "dilations", 18, 1, NULL},
    {"MaxPool", "dilations", 10, 1, NULL},
    {"MaxPool", "storage_order", 8, 0, NULL},
    {"QuantizeLinear", "block_size", 21, 0, NULL},
    {"QuantizeLinear", "output_dtype", 21, 0, NULL},
    {"QuantizeLinear", "precision", 23, 0, NULL},
    {"QuantizeLinear", "saturate", 19, 1, NULL},
    {"RNN", "layout", 14, 0, NULL},
    {"Range", "stash_type", 27, SBIT__DOWN_ALWAYS, NULL},
    {"ReduceL1", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceL2", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceLogSum", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceLogSumExp", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceMax", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceMean", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceMin", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceProd", "noop_with_empty_axes", 18, 0, NULL},
    {"ReduceSum", "noop_with_empty_axes", 13, 0, NULL},
    {"ReduceSumSquare", "noop_with_empty_axes", 18, 0, NULL},
    {"Resize", "antialias", 18, 0, NULL},
    {"Resize", "axes", 18, SBIT__DOWN_NEVER, NULL},
    {"Resize", "keep_aspect_ratio_policy", 18, 0, "stretch"},
    {"ScatterElements", "reduction", 16, 0, "none"},
    {"ScatterND", "reduction", 16, 0, "none"},
    {"SpaceToDepth", "mode", 28, 0, "DCR"},
    {"TopK", "largest", 11, 1, NULL},
    {"TopK", "sorted", 11, 1, NULL},
};

static bool sbit__down_attr_is(const sbit__down_attr *row, const sbit_attr *attr)
{
    if (row->i == SBIT__DOWN_NEVER || row->i == SBIT__DOWN_ALWAYS) {
        return row->i == SBIT__DOWN_ALWAYS;
    }
    if (row->s != NULL) {
        return attr->type == SBIT_ONNX_ATTR_STRING && attr->s.size == strlen(row->s) &&
               memcmp(attr->s.data, row->s, attr->s.size) == 0;
    }
    bool same =
        attr->type == SBIT_ONNX_ATTR_INT ? attr->i == row->i : attr->type == SBIT_ONNX_ATTR_INTS;
    for (size_t i = 0; attr->type == SBIT_ONNX_ATTR_INTS && i < attr->count; i++) {
        same = same && attr->ints[i] == row->i;
    }
    return same;
}

static sbit_status sbit__down_later_attrs(sbit__opset *down, const sbit_node *node)
{
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__down_attrs); i++) {
        const sbit__down_attr *row = &sbit__down_attrs[i];
        const sbit_attr *attr =
            strcmp(row->op_type, node->op_type) == 0 && sbit__down_over(down, row->since)
                ? sbit_node_attr(node, row->name)
                : NULL;
        if (attr != NULL && !sbit__down_attr_is(row, attr)) {
            SBIT__TRY(sbit__down_problem(down, node, "its attribute %s came in a later opset",
                                         row->name));
        } else if (attr != NULL && down->change) {
            sbit_graph_remove_attr(down->graph, node->id, row->name);
        }
    }
    return SBIT_OK;
}

/* >>inputs that were attributes: below `since`, constants of input `input` become the attribute */

typedef enum sbit__down_kind {
    SBIT__DOWN_INTS,
    SBIT__DOWN_INT,
    SBIT__DOWN_FLOAT,
    SBIT__DOWN_FLOATS,
    SBIT__DOWN_ONES, /* a list of ones, which may be dropped: there was no attribute */
    SBIT__DOWN_FALSE /* likewise false */
} sbit__down_kind;

typedef struct sbit__down_input {
    const char *op_type;
    size_t input;
    const char *name;
    int64_t since;
    sbit__down_kind kind;
} sbit__down_input;

static const sbit__down_input sbit__down_inputs[] = {
    {"Clip", 1, "min", 11, SBIT__DOWN_FLOAT},
    {"Clip", 2, "max", 11, SBIT__DOWN_FLOAT},
    {"Dropout", 1, "ratio", 12, SBIT__DOWN_FLOAT},
    {"Dropout", 2, "training_mode", 12, SBIT__DOWN_FALSE},
    {"Pad", 1, "pads", 11, SBIT__DOWN_INTS},
    {"Pad", 2, "value", 11, SBIT__DOWN_FLOAT},
    {"ReduceL1", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceL2", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceLogSum", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceLogSumExp", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceMax", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceMean", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceMin", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceProd", 1, "axes", 18, SBIT__DOWN_INTS},
    {"ReduceSum", 1, "axes", 13, SBIT__DOWN_INTS},
    {"ReduceSumSquare", 1, "axes", 18, SBIT__DOWN_INTS},
    {"Slice", 1, "starts", 10, SBIT__DOWN_INTS},
    {"Slice", 2, "ends", 10, SBIT__DOWN_INTS},
    {"Slice", 3, "axes", 10, SBIT__DOWN_INTS},
    {"Slice", 4, "steps", 10, SBIT__DOWN_ONES},
    {"Split", 1, "split", 13, SBIT__DOWN_INTS},
    {"Squeeze", 1, "axes", 13, SBIT__DOWN_INTS},
    {"TopK", 1, "k", 10, SBIT__DOWN_INT},
    {"Unsqueeze", 1, "axes", 13, SBIT__DOWN_INTS},
    {"Upsample", 1, "scales", 9, SBIT__DOWN_FLOATS},
};

#define SBIT__DOWN_LIST 64

static sbit_status sbit__down_set(sbit__opset *down, const sbit_node *node,
                                  const sbit__down_input *row, const sbit_tensor *tensor,
                                  sbit_error *error)
{
    int64_t ints[SBIT__DOWN_LIST];
    float floats[SBIT__DOWN_LIST];
    const int64_t count = sbit_tensor_count(tensor);
    const sbit_value_id none = {0};
    sbit_attr attr;
    for (int64_t i = 0; i < count && i < SBIT__DOWN_LIST; i++) {
        const double value = sbit__tensor_f64_at(tensor, i);
        const bool whole = row->kind != SBIT__DOWN_FLOAT && row->kind != SBIT__DOWN_FLOATS;
        ints[i] = whole ? sbit__tensor_i64_at(tensor, i) : 0;
        floats[i] = (float)value;
    }
    memset(&attr, 0, sizeof attr);
    if (row->kind == SBIT__DOWN_INTS) {
        attr = sbit__attr_ints(row->name, ints, (size_t)count);
    } else if (row->kind == SBIT__DOWN_INT) {
        attr = sbit__attr_int(row->name, ints[0]);
    } else if (row->kind == SBIT__DOWN_FLOAT) {
        attr = sbit__attr_float(row->name, floats[0]);
    } else if (row->kind == SBIT__DOWN_FLOATS) {
        attr.name = row->name;
        attr.type = SBIT_ONNX_ATTR_FLOATS;
        attr.floats = floats;
        attr.count = (size_t)count;
    }
    if (attr.name != NULL) {
        SBIT__TRY(sbit_graph_set_attr(down->graph, node->id, &attr, error));
    }
    return sbit_graph_set_node_input(down->graph, node->id, row->input, none, error);
}

/* True if the constant can be what the row wants. */
static bool sbit__down_fits(const sbit__down_input *row, const sbit_tensor *tensor)
{
    const int64_t count = tensor != NULL ? sbit_tensor_count(tensor) : -1;
    const bool one = row->kind == SBIT__DOWN_INT || row->kind == SBIT__DOWN_FLOAT ||
                     row->kind == SBIT__DOWN_FALSE;
    bool fits = count >= 0 && count <= SBIT__DOWN_LIST && (!one || count == 1);
    for (int64_t i = 0; fits && i < count; i++) {
        const double value = sbit__tensor_f64_at(tensor, i);
        fits = row->kind == SBIT__DOWN_ONES    ? !(value < 1.0 || value > 1.0)
               : row->kind == SBIT__DOWN_FALSE ? !(value < 0.0 || value > 0.0)
               : row->kind == SBIT__DOWN_FLOAT ? !(fabs((double)(float)value - value) > 0.0)
                                               : true;
    }
    return fits;
}

static sbit_status sbit__down_attributes(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__down_inputs); i++) {
        const sbit__down_input *row = &sbit__down_inputs[i];
        if (strcmp(row->op_type, node->op_type) != 0 || !sbit__down_over(down, row->since) ||
            sbit__node_in(node, row->input).idx == 0) {
            continue;
        }
        const sbit_tensor *tensor = sbit__const_in(down->graph, node, row->input);
        const bool from_end = strcmp(row->name, "axes") == 0 && sbit__down_over(down, 11) &&
                              sbit__down_rank(down, node) < 0; /* see sbit__down_axes */
        if (from_end || !sbit__down_fits(row, tensor)) {
            SBIT__TRY(sbit__down_problem(down, node,
                                         "its %s is not a constant that fits into an "
                                         "attribute",
                                         row->name));
        } else if (down->change) {
            SBIT__TRY(sbit__down_set(down, node, row, tensor, error));
        }
    }
    return SBIT_OK;
}

/* Inputs that are left out at the end are not written: old schemas do not know them. */
static sbit_status sbit__down_trim(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    size_t count = node->input_count;
    while (count > 0 && node->inputs[count - 1].idx == 0) {
        count--;
    }
    if (!down->change || count == node->input_count || sbit_node_body(node, 0) != NULL) {
        return SBIT_OK;
    }
    return sbit__replace_node(down->graph, node, node->op_type, node->inputs, count, node->attrs,
                              node->attr_count, node->output_count, error);
}

/* >>negative axes came with opset 11 */

static sbit_status sbit__down_axes(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_attr *axis = sbit_node_attr(node, "axis"), *axes = sbit_node_attr(node, "axes");
    int64_t values[SBIT__DOWN_LIST];
    int32_t rank = sbit__down_rank(down, node);
    bool negative = axis != NULL && axis->type == SBIT_ONNX_ATTR_INT && axis->i < 0;
    const bool list =
        axes != NULL && axes->type == SBIT_ONNX_ATTR_INTS && axes->count <= SBIT__DOWN_LIST;
    const bool longer = strcmp(node->op_type, "Unsqueeze") == 0 && list && rank >= 0;
    rank += longer ? (int32_t)axes->count : 0;
    rank += strcmp(node->op_type, "OneHot") == 0 && rank >= 0 ? 1 : 0; /* of the output */
    for (size_t i = 0; list && i < axes->count; i++) {
        negative = negative || axes->ints[i] < 0;
        values[i] = axes->ints[i] + (axes->ints[i] < 0 ? rank : 0);
    }
    if (!sbit__down_over(down, 11) || !negative) {
        return SBIT_OK;
    }
    if (rank < 0) {
        return sbit__down_problem(down, node, "%s", "its negative axis needs a known rank");
    }
    if (down->change && list) {
        const sbit_attr attr = sbit__attr_ints("axes", values, axes->count);
        return sbit_graph_set_attr(down->graph, node->id, &attr, error);
    }
    const sbit_attr attr = sbit__attr_int("axis", axis != NULL ? axis->i + rank : 0);
    return down->change && !list ? sbit_graph_set_attr(down->graph, node->id, &attr, error)
                                 : SBIT_OK;
}

/* >>operators that need more */

typedef sbit_status (*sbit__down_fn)(sbit__opset *down, const sbit_node *node, sbit_error *error);

/* Before opset 13 all axes from `axis` on were one: the axis is brought to the end. */
static sbit_status sbit__down_softmax(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const int32_t rank = sbit__down_rank(down, node);
    int64_t axis = sbit_node_int(node, "axis", -1), order[SBIT_MAX_RANK];
    if (!sbit__down_over(down, 13)) {
        return SBIT_OK;
    }
    if (rank < 1) {
        return sbit__down_problem(down, node, "%s", "the rank of its input is not known");
    }
    axis += axis < 0 ? rank : 0;
    const sbit_attr last = sbit__attr_int("axis", rank - 1);
    if (!down->change) {
        return SBIT_OK;
    }
    if (axis == rank - 1) {
        return sbit_graph_set_attr(down->graph, node->id, &last, error);
    }
    for (int32_t i = 0; i < rank; i++) {
        order[i] = i;
    }
    order[axis] = rank - 1;
    order[rank - 1] = axis;
    const sbit_attr perm = sbit__attr_ints("perm", order, (size_t)rank);
    sbit_value_id x = node->inputs[0];
    const char *name = sbit_graph_value(down->graph, node->outputs[0])->name;
    SBIT__TRY(sbit__emit(down->graph, node->id, "Transpose", name, &x, 1, &perm, 1, &x, error));
    SBIT__TRY(sbit__emit(down->graph, node->id, node->op_type, name, &x, 1, &last, 1, &x, error));
    return sbit__replace_node(down->graph, node, "Transpose", &x, 1, &perm, 1, 1, error);
}

/* num_outputs: below opset 18, equal parts alone. */
static sbit_status sbit__down_split(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    const int64_t parts = (int64_t)node->output_count;
    int64_t axis = sbit_node_int(node, "axis", 0);
    (void)error;
    if (!sbit__down_over(down, 18) || sbit_node_attr(node, "num_outputs") == NULL) {
        return SBIT_OK;
    }
    axis += axis < 0 && x != NULL && x->rank > 0 ? x->rank : 0;
    if (x == NULL || axis < 0 || axis >= x->rank || !sbit__dim_known(x->dims[axis]) || parts == 0 ||
        x->dims[axis].value % parts != 0) {
        return sbit__down_problem(down, node, "%s", "its parts are not known to be equal");
    }
    if (down->change) {
        sbit_graph_remove_attr(down->graph, node->id, "num_outputs");
    }
    return SBIT_OK;
}

static sbit_status sbit__down_grid_sample(sbit__opset *down, const sbit_node *node,
                                          sbit_error *error)
{
    const char *mode = sbit_node_string(node, "mode", "linear");
    const sbit_attr attr = sbit__attr_string("mode", strcmp(mode, "linear") == 0  ? "bilinear"
                                                     : strcmp(mode, "cubic") == 0 ? "bicubic"
                                                                                  : mode);
    if (!sbit__down_over(down, 20)) {
        return SBIT_OK;
    }
    if (sbit__down_rank(down, node) != 4) {
        return sbit__down_problem(down, node, "%s", "only four dimensions are known there");
    }
    return down->change ? sbit_graph_set_attr(down->graph, node->id, &attr, error) : SBIT_OK;
}

static sbit_status sbit__down_roi_align(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    static const char name[] = "coordinate_transformation_mode";
    (void)error;
    if (!sbit__down_over(down, 16)) {
        return SBIT_OK;
    }
    if (strcmp(sbit_node_string(node, name, "half_pixel"), "output_half_pixel") != 0) {
        return sbit__down_problem(down, node, "%s", "half_pixel coordinates came with opset 16");
    }
    if (down->change) {
        sbit_graph_remove_attr(down->graph, node->id, name);
    }
    return SBIT_OK;
}

/* Before opset 13 one scale for the whole tensor; element types are those of DequantizeLinear. */
static sbit_status sbit__down_quantize(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *scale = sbit__down_type(down, sbit__node_in(node, 1));
    const sbit_type *q = sbit__down_type(down, node->outputs[0]);
    const sbit_op_row *row =
        sbit_operator_find(sbit_graph_ctx(down->graph), "", "DequantizeLinear", down->to);
    (void)error;
    if (strcmp(node->op_type, "QuantizeLinear") == 0 && row != NULL && q != NULL &&
        (row->types & SBIT_T(q->dtype)) == 0) {
        SBIT__TRY(sbit__down_problem(down, node, "element type %s came in a later opset",
                                     sbit_dtype_name((int32_t)q->dtype)));
    }
    if (sbit__down_over(down, 19) && scale != NULL && scale->dtype != SBIT_F32 &&
        scale->dtype != SBIT_UNDEFINED) {
        return sbit__down_problem(down, node, "%s", "scales were of float32 before opset 19");
    }
    if (!sbit__down_over(down, 13)) {
        return SBIT_OK;
    }
    if (scale == NULL || scale->rank < 0 || sbit__known_product(scale, 0, scale->rank) != 1) {
        return sbit__down_problem(down, node, "%s", "scales for each channel came with opset 13");
    }
    if (down->change) {
        sbit_graph_remove_attr(down->graph, node->id, "axis");
    }
    return SBIT_OK;
}

static sbit_status sbit__down_cast(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *y = sbit__down_type(down, node->outputs[0]);
    const sbit_op_row *row =
        sbit_operator_find(sbit_graph_ctx(down->graph), "", node->op_type, down->to);
    (void)error;
    return row != NULL && y != NULL && (row->types & SBIT_T(y->dtype)) == 0
               ? sbit__down_problem(down, node, "element type %s came in a later opset",
                                    sbit_dtype_name((int32_t)y->dtype))
               : SBIT_OK;
}

/* x * HardSigmoid(x) with slope 1/6 (opset 14). */
static sbit_status sbit__down_hard_swish(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_attr attrs[2] = {sbit__attr_float("alpha", 1.0f / 6.0f),
                                sbit__attr_float("beta", 0.5f)};
    sbit_value_id inputs[2];
    if (!sbit__down_over(down, 14) || !down->change) {
        return SBIT_OK;
    }
    inputs[0] = node->inputs[0];
    SBIT__TRY(sbit__emit(down->graph, node->id, "HardSigmoid",
                         sbit_graph_value(down->graph, node->outputs[0])->name, inputs, 1, attrs, 2,
                         &inputs[1], error));
    return sbit__replace_node(down->graph, node, "Mul", inputs, 2, NULL, 0, 1, error);
}

/* x * Sigmoid(alpha * x) (opset 24). */
static sbit_status sbit__down_swish(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const float alpha = sbit_node_float(node, "alpha", 1.0f);
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    const char *name = sbit_graph_value(down->graph, node->outputs[0])->name;
    sbit_value_id inputs[2], scaled;
    if (!sbit__down_over(down, 24)) {
        return SBIT_OK;
    }
    if (x == NULL || x->dtype == SBIT_UNDEFINED) {
        return sbit__down_problem(down, node, "%s", "its element type is not known");
    }
    if (!down->change) {
        return SBIT_OK;
    }
    inputs[0] = scaled = node->inputs[0];
    if (alpha < 1.0f || alpha > 1.0f) {
        SBIT__TRY(sbit__add_scalar(down->graph, "alpha", x->dtype, 0, (double)alpha, &inputs[1],
                                   error));
        SBIT__TRY(
            sbit__emit(down->graph, node->id, "Mul", name, inputs, 2, NULL, 0, &scaled, error));
    }
    SBIT__TRY(sbit__emit(down->graph, node->id, "Sigmoid", name, &scaled, 1, NULL, 0, &inputs[1],
                         error));
    return sbit__replace_node(down->graph, node, "Mul", inputs, 2, NULL, 0, 1, error);
}

/* x * Tanh(Softplus(x)) (opset 18). */
static sbit_status sbit__down_mish(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const char *name = sbit_graph_value(down->graph, node->outputs[0])->name;
    sbit_value_id inputs[2];
    if (!sbit__down_over(down, 18) || !down->change) {
        return SBIT_OK;
    }
    inputs[0] = node->inputs[0];
    SBIT__TRY(sbit__emit(down->graph, node->id, "Softplus", name, inputs, 1, NULL, 0, &inputs[1],
                         error));
    SBIT__TRY(sbit__emit(down->graph, node->id, "Tanh", name, &inputs[1], 1, NULL, 0, &inputs[1],
                         error));
    return sbit__replace_node(down->graph, node, "Mul", inputs, 2, NULL, 0, 1, error);
}

/* (x - mean) / sqrt(mean of squares + epsilon) * scale + bias, over the axes from `axis` on
 * (opset 17). */
static sbit_status sbit__down_layer_norm(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    static const char *const last[] = {"Div", "Mul", "Add"};
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    const char *name = sbit_graph_value(down->graph, node->outputs[0])->name;
    int64_t axis = sbit_node_int(node, "axis", -1), axes[SBIT_MAX_RANK];
    sbit_value_id in[2], squares[2];
    const size_t steps = sbit__node_in(node, 2).idx != 0 ? 3 : 2;
    if (!sbit__down_over(down, 17)) {
        return SBIT_OK;
    }
    axis += axis < 0 && x != NULL ? x->rank : 0;
    if (x == NULL || x->dtype != SBIT_F32 || axis < 0 || axis >= x->rank ||
        !sbit__single_output(down->graph, node)) {
        return sbit__down_problem(down, node, "%s", "LayerNormalization came in a later opset, and it "
                                                    "is not of float32 with one output");
    }
    for (int64_t i = axis; i < x->rank; i++) {
        axes[i - axis] = i;
    }
    const sbit_attr over = sbit__attr_ints("axes", axes, (size_t)(x->rank - axis));
    if (!down->change) {
        return SBIT_OK;
    }
    in[0] = node->inputs[0];
    SBIT__TRY(
        sbit__emit(down->graph, node->id, "ReduceMean", name, in, 1, &over, 1, &in[1], error));
    SBIT__TRY(sbit__emit(down->graph, node->id, "Sub", name, in, 2, NULL, 0, &in[0], error));
    squares[0] = squares[1] = in[0];
    SBIT__TRY(sbit__emit(down->graph, node->id, "Mul", name, squares, 2, NULL, 0, squares, error));
    SBIT__TRY(sbit__emit(down->graph, node->id, "ReduceMean", name, squares, 1, &over, 1, squares,
                         error));
    SBIT__TRY(sbit__add_scalar(down->graph, "epsilon", SBIT_F32, 0,
                               (double)sbit_node_float(node, "epsilon", 1e-5f), &squares[1], error));
    SBIT__TRY(sbit__emit(down->graph, node->id, "Add", name, squares, 2, NULL, 0, squares, error));
    SBIT__TRY(sbit__emit(down->graph, node->id, "Sqrt", name, squares, 1, NULL, 0, &in[1], error));
    for (size_t i = 0; i + 1 < steps; i++) {
        SBIT__TRY(sbit__emit(down->graph, node->id, last[i], name, in, 2, NULL, 0, &in[0], error));
        in[1] = node->inputs[i + 1];
    }
    return sbit__replace_node(down->graph, node, last[steps - 1], in, 2, NULL, 0, 1, error);
}

/* A Cast to the type of input 1 (opset 15). */
static sbit_status sbit__down_cast_like(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *y = sbit__down_type(down, node->outputs[0]);
    const sbit_op_row *cast = sbit_operator_find(sbit_graph_ctx(down->graph), "", "Cast", down->to);
    if (y == NULL || y->dtype == SBIT_UNDEFINED) {
        return sbit__down_problem(down, node, "%s", "the type that it casts to is not known");
    }
    if (cast == NULL || (cast->types & SBIT_T(y->dtype)) == 0) {
        return sbit__down_problem(down, node, "element type %s came in a later opset",
                                  sbit_dtype_name((int32_t)y->dtype));
    }
    if (!sbit__down_over(down, 15) || !down->change) {
        return SBIT_OK;
    }
    const sbit_attr to = sbit__attr_int("to", (int64_t)y->dtype);
    return sbit__replace_node(down->graph, node, "Cast", node->inputs, 1, &to, 1, 1, error);
}

/* A part of the shape is a Slice of it (start and end: opset 15). */
static sbit_status sbit__down_shape(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const int64_t start = sbit_node_int(node, "start", 0);
    const int64_t end = sbit_node_int(node, "end", INT64_MAX), zero = 0;
    const sbit_attr attrs[3] = {sbit__attr_ints("starts", &start, 1),
                                sbit__attr_ints("ends", &end, 1), sbit__attr_ints("axes", &zero, 1)};
    const bool inputs_there = down->to >= 10;
    sbit_value_id inputs[3];
    if (!sbit__down_over(down, 15) || !down->change) {
        return SBIT_OK;
    }
    if (start == 0 && end == INT64_MAX) {
        sbit_graph_remove_attr(down->graph, node->id, "start");
        return SBIT_OK;
    }
    SBIT__TRY(sbit__emit(down->graph, node->id, "Shape",
                         sbit_graph_value(down->graph, node->outputs[0])->name, node->inputs, 1,
                         NULL, 0, &inputs[0], error));
    if (inputs_there) {
        SBIT__TRY(sbit__add_ints(down->graph, "shape_start", &start, 1, &inputs[1], error));
        SBIT__TRY(sbit__add_ints(down->graph, "shape_end", &end, 1, &inputs[2], error));
    }
    return sbit__replace_node(down->graph, node, "Slice", inputs, inputs_there ? 3 : 1, attrs,
                              inputs_there ? 0 : 3, 1, error);
}

/* allowzero (opset 14) means nothing if no length is 0. */
static sbit_status sbit__down_reshape(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_tensor *shape = sbit__const_in(down->graph, node, 1);
    bool zero = shape == NULL;
    (void)error;
    if (!sbit__down_over(down, 14) || sbit_node_attr(node, "allowzero") == NULL) {
        return SBIT_OK;
    }
    for (int64_t i = 0; shape != NULL && i < sbit_tensor_count(shape); i++) {
        zero = zero || sbit__tensor_i64_at(shape, i) == 0;
    }
    if (zero && sbit_node_int(node, "allowzero", 0) != 0) {
        return sbit__down_problem(down, node, "%s", "its attribute allowzero came in a later opset");
    }
    if (down->change) {
        sbit_graph_remove_attr(down->graph, node->id, "allowzero");
    }
    return SBIT_OK;
}

/* ceil_mode (opset 10; of LpPool 18) is padding behind, where the sizes are known: padding is no
 * part of a maximum or norm, nor of a mean that leaves it out. */
static sbit_status sbit__down_pool(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    const sbit_type *y = sbit__down_type(down, node->outputs[0]);
    const int64_t version = strcmp(node->op_type, "LpPool") == 0 ? 18 : 10;
    int64_t kernel[SBIT_MAX_RANK], steps[SBIT_MAX_RANK], n = 0, step_count = 0, pad_count = 0;
    int64_t values[2 * SBIT_MAX_RANK] = {0};
    if (!sbit__down_over(down, version) || sbit_node_attr(node, "ceil_mode") == NULL) {
        return SBIT_OK;
    }
    sbit__node_ints(down->graph, node, "kernel_shape", SIZE_MAX, kernel, SBIT_MAX_RANK, &n);
    const bool moves = sbit__node_ints(down->graph, node, "strides", SIZE_MAX, steps, SBIT_MAX_RANK,
                                       &step_count);
    const bool pads = sbit__node_ints(down->graph, node, "pads", SIZE_MAX, values,
                                      2 * SBIT_MAX_RANK, &pad_count);
    const char *padding = sbit_node_string(node, "auto_pad", "NOTSET");
    const bool ceils = sbit_node_int(node, "ceil_mode", 0) != 0 && strcmp(padding, "NOTSET") == 0;
    bool known = x != NULL && y != NULL && n > 0 && n + 2 <= SBIT_MAX_RANK && x->rank == n + 2 &&
                 y->rank == n + 2 && moves == (sbit_node_attr(node, "strides") != NULL) &&
                 pads == (sbit_node_attr(node, "pads") != NULL) && (!moves || step_count == n) &&
                 (!pads || pad_count == 2 * n) && sbit_node_int(node, "count_include_pad", 0) == 0;
    for (int64_t i = 0; known && ceils && i < n; i++) {
        const sbit_dim in = x->dims[i + 2], out = y->dims[i + 2];
        known = sbit__dim_known(in) && sbit__dim_known(out);
        const int64_t reach =
            (out.value - 1) * (moves ? steps[i] : 1) + kernel[i] - in.value - values[i];
        values[n + i] = reach > values[n + i] ? reach : values[n + i];
    }
    if (ceils && !known) {
        return sbit__down_problem(down, node, "%s",
                                  "its attribute ceil_mode came in a later opset, and its sizes are "
                                  "not known");
    }
    if (!down->change) {
        return SBIT_OK;
    }
    if (ceils) {
        const sbit_attr attr = sbit__attr_ints("pads", values, 2 * (size_t)n);
        SBIT__TRY(sbit_graph_set_attr(down->graph, node->id, &attr, error));
    }
    sbit_graph_remove_attr(down->graph, node->id, "ceil_mode");
    return SBIT_OK;
}

/* Floats take part in the floor modulo since opset 28. */
static sbit_status sbit__down_mod(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    (void)error;
    return sbit__down_over(down, 28) && sbit_node_int(node, "fmod", 0) == 0 &&
                   (x == NULL || (SBIT_T(x->dtype) & SBIT_T_FLOATS) != 0)
               ? sbit__down_problem(down, node, "%s", "floats with fmod=0 came with opset 28")
               : SBIT_OK;
}

/* Rows say what input 0 is; of these the output counts. bfloat16 and float8 came to ConstantOfShape
 * with opset 20. */
static sbit_status sbit__down_constant(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *y = sbit__down_type(down, node->outputs[0]);
    const sbit_op_row *row =
        sbit_operator_find(sbit_graph_ctx(down->graph), "", "Constant", down->to);
    const uint32_t without = strcmp(node->op_type, "Constant") != 0 && sbit__down_over(down, 20)
                                 ? SBIT_T(SBIT_BF16) | SBIT_T(SBIT_F8E4M3FN) |
                                       SBIT_T(SBIT_F8E4M3FNUZ) | SBIT_T(SBIT_F8E5M2) |
                                       SBIT_T(SBIT_F8E5M2FNUZ)
                                 : 0;
    (void)error;
    return row != NULL && y != NULL && y->dtype != SBIT_UNDEFINED &&
                   (row->types & ~without & SBIT_T(y->dtype)) == 0
               ? sbit__down_problem(down, node, "element type %s came in a later opset",
                                    sbit_dtype_name((int32_t)y->dtype))
               : SBIT_OK;
}

/* Integers in constant input `input` that count from the end (opset 11) get `limit` added. */
static sbit_status sbit__down_from_end(sbit__opset *down, const sbit_node *node, size_t input,
                                       int64_t limit, sbit_error *error)
{
    const sbit_tensor *old = sbit__const_in(down->graph, node, input);
    sbit_tensor made;
    sbit_value_id id;
    bool negative = false;
    for (int64_t i = 0; old != NULL && i < sbit_tensor_count(old); i++) {
        negative = negative || sbit__tensor_i64_at(old, i) < 0;
    }
    if (!negative) {
        return SBIT_OK;
    }
    if (limit < 0) {
        return sbit__down_problem(down, node, "%s", "what its negative indices count from is not known");
    }
    if (!down->change) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(down->graph), old->dtype, old->rank, old->dims, &made,
                                error));
    for (int64_t i = 0; i < sbit_tensor_count(old); i++) {
        const int64_t value = sbit__tensor_i64_at(old, i);
        sbit__tensor_set_f64(&made, i, (double)(value + (value < 0 ? limit : 0)));
    }
    const sbit_status status =
        sbit_graph_add_constant(down->graph, "from_front", &made, &id, error);
    sbit_tensor_free(sbit_graph_ctx(down->graph), &made);
    return status == SBIT_OK ? sbit_graph_set_node_input(down->graph, node->id, input, id, error)
                             : status;
}

/* What is chosen may be of bfloat16 since these versions; rows tell the type of input 0 only. */
static sbit_status sbit__down_bfloat(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const bool where = strcmp(node->op_type, "Where") == 0; /* else OneHot */
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, where ? 1 : 2));
    (void)error;
    return sbit__down_over(down, where ? 16 : 28) && x != NULL && x->dtype == SBIT_BF16
               ? sbit__down_problem(down, node, "element type %s came in a later opset", "bfloat16")
               : SBIT_OK;
}

/* Indices of OneHot count from the end since opset 11. Below, what is negative is nothing to the
 * definition, and counts from the end in ONNX Runtime and here; so no index stays negative. */
static sbit_status sbit__down_one_hot(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    const char *name = sbit_graph_value(down->graph, node->outputs[0])->name;
    const sbit_attr to = sbit__attr_int("to", (int64_t)SBIT_I64);
    sbit_value_id in[3], depth[2], zero, below[2];
    SBIT__TRY(sbit__down_bfloat(down, node, error));
    if (!sbit__down_over(down, 11) || !down->change ||
        (x != NULL && (SBIT_T(x->dtype) & SBIT_T_UNSIGNED) != 0)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__emit(down->graph, node->id, "Cast", name, &node->inputs[0], 1, &to, 1, &in[2],
                         error));
    SBIT__TRY(sbit__emit(down->graph, node->id, "Cast", name, &node->inputs[1], 1, &to, 1,
                         &depth[0], error));
    SBIT__TRY(sbit__add_ints(down->graph, "scalar", NULL, 0, &depth[1], error)); /* or of rank 1 */
    SBIT__TRY(sbit__emit(down->graph, node->id, "Reshape", name, depth, 2, NULL, 0, &in[1], error));
    SBIT__TRY(sbit__add_scalar(down->graph, "zero", SBIT_I64, 0, 0.0, &zero, error));
    depth[0] = in[1];
    for (int i = 0; i < 2; i++) { /* from the end; what is before the first becomes depth */
        below[0] = depth[1] = in[2];
        below[1] = zero;
        SBIT__TRY(sbit__emit(down->graph, node->id, "Less", name, below, 2, NULL, 0, &in[0], error));
        if (i == 0) {
            SBIT__TRY(
                sbit__emit(down->graph, node->id, "Add", name, depth, 2, NULL, 0, &in[1], error));
        }
        SBIT__TRY(sbit__emit(down->graph, node->id, "Where", name, in, 3, NULL, 0, &in[2], error));
        in[1] = depth[0];
    }
    return sbit_graph_set_node_input(down->graph, node->id, 0, in[2], error);
}

static sbit_status sbit__down_attention(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    (void)error;
    return sbit__down_over(down, 24) && sbit__node_in(node, 6).idx != 0
               ? sbit__down_problem(down, node, "%s", "nonpad_kv_seqlen came with opset 24")
               : SBIT_OK;
}

/* Axes of Slice-10 and indices of Gather-1 are not negative. */
static sbit_status sbit__down_slice(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    if (!sbit__down_over(down, 11) || sbit__node_in(node, 3).idx == 0) {
        return SBIT_OK; /* below 10 they are an attribute */
    }
    return sbit__const_in(down->graph, node, 3) == NULL
               ? sbit__down_problem(down, node, "%s",
                                    "its axes are not constant, and could be negative")
               : sbit__down_from_end(down, node, 3, sbit__down_rank(down, node), error);
}

static sbit_status sbit__down_gather(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    int64_t axis = sbit_node_int(node, "axis", 0), limit = -1;
    if (x != NULL && x->rank > 0) {
        axis += axis < 0 ? x->rank : 0;
        limit = axis >= 0 && axis < x->rank && sbit__dim_known(x->dims[axis]) ? x->dims[axis].value
                                                                             : -1;
    }
    return sbit__down_over(down, 11) ? sbit__down_from_end(down, node, 1, limit, error) : SBIT_OK;
}

/* Base and exponent had one type before opset 12. */
static sbit_status sbit__down_pow(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    const sbit_type *y = sbit__down_type(down, sbit__node_in(node, 1));
    (void)error;
    return sbit__down_over(down, 12) && x != NULL && y != NULL && x->dtype != y->dtype
               ? sbit__down_problem(down, node, "%s", "its exponent is of another type than its base")
               : SBIT_OK;
}

/* Broadcasting came with opset 8. */
static sbit_status sbit__down_many(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    bool same = true;
    (void)error;
    for (size_t i = 1; i < node->input_count; i++) {
        const sbit_type *other = sbit__down_type(down, node->inputs[i]);
        same = same && x != NULL && other != NULL && sbit__same_dims(x, other);
    }
    return sbit__down_over(down, 8) && !same
               ? sbit__down_problem(down, node, "%s", "its inputs are broadcast, since opset 8")
               : SBIT_OK;
}

static sbit_status sbit__down_gemm(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    (void)error;
    return sbit__down_over(down, 11) && sbit__node_in(node, 2).idx == 0
               ? sbit__down_problem(down, node, "%s", "it has no C, which was required")
               : SBIT_OK;
}

static sbit_status sbit__down_pad(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    (void)error;
    if (sbit__down_over(down, 18) && sbit__node_in(node, 3).idx != 0) {
        return sbit__down_problem(down, node, "%s", "its axes came with opset 18");
    }
    return sbit__down_over(down, 19) &&
                   strcmp(sbit_node_string(node, "mode", "constant"), "wrap") == 0
               ? sbit__down_problem(down, node, "%s", "mode wrap came with opset 19")
               : SBIT_OK;
}

/* Scatter with max and min came later than with add and mul. */
static sbit_status sbit__down_scatter(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const char *how = sbit_node_string(node, "reduction", "none");
    (void)error;
    return sbit__down_over(down, 18) && (strcmp(how, "max") == 0 || strcmp(how, "min") == 0)
               ? sbit__down_problem(down, node, "reduction %s came with opset 18", how)
               : SBIT_OK;
}

/* Their definitions differ in more than can be written with attributes. */
static sbit_status sbit__down_stays_21(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    (void)error;
    return sbit__down_over(down, 21)
               ? sbit__down_problem(down, node, "%s", "its scale has one number for each channel")
               : SBIT_OK;
}

static sbit_status sbit__down_stays_20(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    (void)error;
    return sbit__down_over(down, 20)
               ? sbit__down_problem(down, node, "%s", "its axis is an input since opset 20")
               : SBIT_OK;
}

static sbit_status sbit__down_stays_9(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    (void)error;
    return sbit__down_over(down, 9)
               ? sbit__down_problem(down, node, "%s", "Scan of opset 8 has another form")
               : SBIT_OK;
}

/* Positions up to opset 10 are x / scale, rounded down where an axis grows. Whole scales give the
 * same nearest pixels from their middles. Upsample of before opset 10 only grows. */
static bool sbit__down_resize_fits(const sbit__opset *down, const sbit_node *node)
{
    const char *mode = sbit_node_string(node, "mode", "nearest");
    const char *place = sbit_node_string(node, "coordinate_transformation_mode", "half_pixel");
    const char *nearest = sbit_node_string(node, "nearest_mode", "round_prefer_floor");
    const sbit_tensor *scales = sbit__const_in(down->graph, node, 2);
    const bool middles = strcmp(place, "half_pixel") == 0 || strcmp(place, "pytorch_half_pixel") == 0;
    const bool corners = strcmp(place, "asymmetric") == 0;
    if (scales == NULL || scales->dtype != SBIT_F32 || scales->rank != 1 || scales->dims[0] == 0 ||
        scales->dims[0] > SBIT_MAX_RANK || sbit__node_in(node, 3).idx != 0) {
        return false;
    }
    bool whole = true, grows = true;
    for (int64_t i = 0; i < scales->dims[0]; i++) {
        const double scale = sbit__tensor_f64_at(scales, i);
        grows = grows && scale >= 1.0;
        whole = whole && !(fabs(scale - floor(scale)) > 0.0);
    }
    if (strcmp(mode, "linear") == 0) {
        return corners && (grows || down->to >= 10);
    }
    return strcmp(mode, "nearest") == 0 && grows &&
           ((corners && strcmp(nearest, "floor") == 0) ||
            (middles && whole && strncmp(nearest, "round_", 6) == 0));
}

static sbit_status sbit__down_resize_10(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    const sbit_tensor *scales = sbit__const_in(down->graph, node, 2);
    const char *mode = sbit_node_string(node, "mode", "nearest");
    sbit_attr attrs[2] = {sbit__attr_string("mode", mode), sbit__attr_string("scales", "")};
    sbit_value_id inputs[2];
    if (!sbit__down_resize_fits(down, node)) {
        return sbit__down_problem(down, node, "%s", "Resize of opset 10 has other coordinates");
    }
    if (!down->change) {
        return SBIT_OK;
    }
    inputs[0] = node->inputs[0];
    inputs[1] = node->inputs[2];
    memset(&attrs[1], 0, sizeof attrs[1]);
    attrs[1].name = "scales";
    attrs[1].type = SBIT_ONNX_ATTR_FLOATS;
    attrs[1].floats = (const float *)scales->data;
    attrs[1].count = (size_t)scales->dims[0];
    return sbit__replace_node(down->graph, node, down->to >= 10 ? "Resize" : "Upsample", inputs,
                              down->to >= 9 ? 2 : 1, attrs, down->to >= 9 ? 1 : 2, 1, error);
}

static sbit_status sbit__down_resize(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    sbit_value_id empty;
    if (sbit__down_over(down, 11)) {
        return sbit__down_resize_10(down, node, error);
    }
    if (sbit__down_over(down, 19) && strcmp(sbit_node_string(node, "coordinate_transformation_mode", ""),
                                            "half_pixel_symmetric") == 0) {
        return sbit__down_problem(down, node, "%s", "half_pixel_symmetric came with opset 19");
    }
    /* what opset 13 leaves out was an empty tensor */
    for (size_t i = 1; down->change && sbit__down_over(down, 13) && i <= 2; i++) {
        const int64_t none = 0;
        sbit_tensor tensor;
        if (sbit__node_in(node, i).idx != 0) {
            continue;
        }
        memset(&tensor, 0, sizeof tensor);
        SBIT__TRY(
            sbit_tensor_alloc(sbit_graph_ctx(down->graph), SBIT_F32, 1, &none, &tensor, error));
        const sbit_status status =
            sbit_graph_add_constant(down->graph, "no_scales", &tensor, &empty, error);
        sbit_tensor_free(sbit_graph_ctx(down->graph), &tensor);
        SBIT__TRY(status);
        SBIT__TRY(sbit_graph_set_node_input(down->graph, node->id, i, empty, error));
    }
    return SBIT_OK;
}

static const struct {
    const char *op_type;
    sbit__down_fn convert;
} sbit__down_rows[] = {
    {"Attention", sbit__down_attention},
    {"AveragePool", sbit__down_pool},
    {"Cast", sbit__down_cast},
    {"CastLike", sbit__down_cast_like},
    {"Constant", sbit__down_constant},
    {"ConstantOfShape", sbit__down_constant},
    {"DFT", sbit__down_stays_20},
    {"DequantizeLinear", sbit__down_quantize},
    {"Gather", sbit__down_gather},
    {"Gemm", sbit__down_gemm},
    {"GridSample", sbit__down_grid_sample},
    {"GroupNormalization", sbit__down_stays_21},
    {"HardSwish", sbit__down_hard_swish},
    {"Hardmax", sbit__down_softmax},
    {"LayerNormalization", sbit__down_layer_norm},
    {"LogSoftmax", sbit__down_softmax},
    {"LpPool", sbit__down_pool},
    {"Max", sbit__down_many},
    {"MaxPool", sbit__down_pool},
    {"Mean", sbit__down_many},
    {"Min", sbit__down_many},
    {"Mish", sbit__down_mish},
    {"Mod", sbit__down_mod},
    {"OneHot", sbit__down_one_hot},
    {"Pad", sbit__down_pad},
    {"Pow", sbit__down_pow},
    {"QuantizeLinear", sbit__down_quantize},
    {"Reshape", sbit__down_reshape},
    {"Resize", sbit__down_resize},
    {"RoiAlign", sbit__down_roi_align},
    {"Scan", sbit__down_stays_9},
    {"ScatterElements", sbit__down_scatter},
    {"ScatterND", sbit__down_scatter},
    {"Shape", sbit__down_shape},
    {"Slice", sbit__down_slice},
    {"Softmax", sbit__down_softmax},
    {"Split", sbit__down_split},
    {"Sum", sbit__down_many},
    {"Swish", sbit__down_swish},
    {"Where", sbit__down_bfloat},
};

/* Functions of these write them with others where they are not there yet. */
static bool sbit__down_is_written(const char *op_type)
{
    static const char *const names[] = {"CastLike", "HardSwish", "Mish", "Resize", "Swish"};
    for (size_t i = 0; i < SBIT__COUNT_OF(names); i++) {
        if (strcmp(names[i], op_type) == 0) {
            return true;
        }
    }
    return false;
}

/* The operator is there in the lower opset, or can be written, and takes the type of input 0. */
static sbit_status sbit__down_exists(sbit__opset *down, const sbit_node *node)
{
    const sbit_op_row *row =
        sbit_operator_find(sbit_graph_ctx(down->graph), "", node->op_type, down->to);
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    if (row == NULL) {
        return sbit__down_is_written(node->op_type)
                   ? SBIT_OK
                   : sbit__down_problem(down, node, "%s came in a later opset", node->op_type);
    }
    return x != NULL && x->dtype != SBIT_UNDEFINED && (row->types & SBIT_T(x->dtype)) == 0
               ? sbit__down_problem(down, node, "element type %s came in a later opset",
                                    sbit_dtype_name((int32_t)x->dtype))
               : SBIT_OK;
}

static sbit_status sbit__down_node(sbit__opset *down, sbit_node_id id, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(down->graph, id);
    if (node->domain[0] != '\0') {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__down_exists(down, node));
    SBIT__TRY(sbit__down_later_attrs(down, node));
    SBIT__TRY(sbit__down_attributes(down, node, error));
    SBIT__TRY(sbit__down_axes(down, sbit_graph_node(down->graph, id), error));
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__down_rows); i++) {
        if (strcmp(sbit__down_rows[i].op_type, node->op_type) == 0) {
            SBIT__TRY(sbit__down_rows[i].convert(down, sbit_graph_node(down->graph, id), error));
            break;
        }
    }
    node = sbit_graph_node(down->graph, id);
    return node != NULL ? sbit__down_trim(down, node, error) : SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_lower_opset(sbit_graph *graph, int64_t version,
                                                 sbit_error *error)
{
    sbit__opset down;
    memset(&down, 0, sizeof down);
    down.to = version;
    down.convert = sbit__down_node;
    SBIT__TRY(sbit__opset_from(graph, &down.from, error));
    if (version >= down.from) {
        return SBIT_OK;
    }
    if (version < SBIT__LOWER_LOWEST) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "opset %lld is older than %d, the oldest that models can be lowered to",
                          (long long)version, (int)SBIT__LOWER_LOWEST);
    }
    return sbit__opset_convert(&down, graph, "lowered", error);
}

#undef SBIT__DOWN_NEVER
#undef SBIT__DOWN_ALWAYS
#undef SBIT__DOWN_LIST
