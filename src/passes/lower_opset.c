/* lower_opset.c: lowers the ai.onnx opset of a model. >>lower-opset
 *
 * Called by: users. Calls: opset.c, graph, infer, ops (the table).
 * An operator goes down if its row of the lower opset takes the element types, if attributes that
 * are newer have their default (A2.10), and if inputs that were attributes are constants. Three
 * tables say so; what needs more has a function.
 */
#include "passes_private.h"

#include <math.h>  /* fabs */
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
    {"AveragePool", "ceil_mode", 10, 0, NULL},
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
    {"LpPool", "ceil_mode", 18, 0, NULL},
    {"LpPool", "dilations", 18, 1, NULL},
    {"MaxPool", "ceil_mode", 10, 0, NULL},
    {"MaxPool", "dilations", 10, 1, NULL},
    {"MaxPool", "storage_order", 8, 0, NULL},
    {"QuantizeLinear", "block_size", 21, 0, NULL},
    {"QuantizeLinear", "output_dtype", 21, 0, NULL},
    {"QuantizeLinear", "precision", 23, 0, NULL},
    {"QuantizeLinear", "saturate", 19, 1, NULL},
    {"RNN", "layout", 14, 0, NULL},
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
    {"Reshape", "allowzero", 14, 0, NULL},
    {"Resize", "antialias", 18, 0, NULL},
    {"Resize", "axes", 18, SBIT__DOWN_NEVER, NULL},
    {"Resize", "keep_aspect_ratio_policy", 18, 0, "stretch"},
    {"ScatterElements", "reduction", 16, 0, "none"},
    {"ScatterND", "reduction", 16, 0, "none"},
    {"Shape", "end", 15, SBIT__DOWN_NEVER, NULL},
    {"Shape", "start", 15, 0, NULL},
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

static sbit_status sbit__down_resize(sbit__opset *down, const sbit_node *node, sbit_error *error)
{
    sbit_value_id empty;
    if (sbit__down_over(down, 19) && strcmp(sbit_node_string(node, "coordinate_transformation_mode", ""),
                                            "half_pixel_symmetric") == 0) {
        return sbit__down_problem(down, node, "%s", "half_pixel_symmetric came with opset 19");
    }
    if (sbit__down_over(down, 11)) {
        return sbit__down_problem(down, node, "%s", "Resize of opset 10 has other coordinates");
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
    {"Cast", sbit__down_cast},
    {"CastLike", sbit__down_cast},
    {"DFT", sbit__down_stays_20},
    {"DequantizeLinear", sbit__down_quantize},
    {"Gemm", sbit__down_gemm},
    {"GridSample", sbit__down_grid_sample},
    {"GroupNormalization", sbit__down_stays_21},
    {"HardSwish", sbit__down_hard_swish},
    {"Hardmax", sbit__down_softmax},
    {"LogSoftmax", sbit__down_softmax},
    {"Max", sbit__down_many},
    {"Mean", sbit__down_many},
    {"Min", sbit__down_many},
    {"Pad", sbit__down_pad},
    {"Pow", sbit__down_pow},
    {"QuantizeLinear", sbit__down_quantize},
    {"Resize", sbit__down_resize},
    {"RoiAlign", sbit__down_roi_align},
    {"Scan", sbit__down_stays_9},
    {"ScatterElements", sbit__down_scatter},
    {"ScatterND", sbit__down_scatter},
    {"Softmax", sbit__down_softmax},
    {"Split", sbit__down_split},
    {"Sum", sbit__down_many},
};

/* The operator is there in the lower opset (HardSwish is written with others), and takes the type
 * of input 0. */
static sbit_status sbit__down_exists(sbit__opset *down, const sbit_node *node)
{
    const sbit_op_row *row =
        sbit_operator_find(sbit_graph_ctx(down->graph), "", node->op_type, down->to);
    const sbit_type *x = sbit__down_type(down, sbit__node_in(node, 0));
    if (row == NULL) {
        return strcmp(node->op_type, "HardSwish") == 0
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
    SBIT__TRY(sbit__opset_convert(&down, graph, "lowered", error));
    sbit__graph_lower_opset(graph, version);
    return sbit_infer(graph, error);
}

#undef SBIT__DOWN_NEVER
#undef SBIT__DOWN_ALWAYS
#undef SBIT__DOWN_LIST
