/* microsoft.c: operators of com.microsoft that are others put together. >>microsoft
 *
 * Called by: infer (types), exec (expand). Calls: graph.
 * Files that ONNX Runtime has optimized hold them. A session replaces each by nodes of ai.onnx whose
 * form does not depend on the opset, and by internal rows; so everything that is known of those
 * (kernels, fusion, threads) serves these. Rows that are one of ai.onnx by another name stand in its family.
 * Attention adds mask_filter_value to the score of a masked key, as ONNX Runtime does.
 */
#include "elements_private.h"
#include "expand_private.h"
#include "window_private.h"

#include <float.h> /* FLT_MAX */
#include <math.h>  /* INFINITY */
#include <stdio.h> /* snprintf */

#if !SPARSEBIT_NO_OPS_MICROSOFT

#define SBIT__MS "com.microsoft"

/* >>building */

static int32_t sbit__expand_rank(const sbit__expand *e, size_t i)
{
    const sbit_type *type = sbit__expand_in_type(e, i);
    return type != NULL ? type->rank : -1;
}

/* x without the axis, at an index of it. */
static sbit_value_id sbit__expand_pick(sbit__expand *e, sbit_value_id x, int64_t axis,
                                       int64_t index)
{
    const sbit_attr attr = sbit__attr_int("axis", axis);
    sbit_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = SBIT_I64;
    tensor.data = &index;
    return sbit__expand_op(e, "Gather", x, sbit__expand_constant(e, &tensor), &attr,
                           sbit__expand_none);
}

static sbit_value_id sbit__expand_unsqueeze(sbit__expand *e, sbit_value_id x, int64_t axis)
{
    const sbit_attr axes = sbit__attr_ints("axes", &axis, 1);
    const bool input = e->opset >= 13;
    return sbit__expand_op(e, "Unsqueeze", x,
                           input ? sbit__expand_ints(e, &axis, 1) : sbit__expand_none,
                           input ? NULL : &axes, sbit__expand_none);
}

/* Dim `axis` of x as a scalar. */
static sbit_value_id sbit__expand_length(sbit__expand *e, sbit_value_id x, int64_t axis)
{
    const sbit_value_id none = sbit__expand_none;
    return sbit__expand_pick(e, sbit__expand_op(e, "Shape", x, none, NULL, none), 0, axis);
}

/* 0, 1 ... n - 1 for a scalar n. */
static sbit_value_id sbit__expand_range(sbit__expand *e, sbit_value_id n)
{
    sbit_value_id inputs[3], out = sbit__expand_value(e, "range");
    sbit_tensor tensor;
    int64_t value = 0;
    sbit__expand_needs(e, 11);
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = SBIT_I64;
    tensor.data = &value;
    inputs[0] = sbit__expand_constant(e, &tensor);
    inputs[1] = n;
    value = 1;
    inputs[2] = sbit__expand_constant(e, &tensor);
    sbit__expand_node(e, "", "Range", inputs, 3, &out, 1, NULL, 0);
    return out;
}

/* a + b, or the one that is there. */
static sbit_value_id sbit__expand_sum(sbit__expand *e, sbit_value_id a, sbit_value_id b)
{
    return a.idx == 0   ? b
           : b.idx == 0 ? a
                        : sbit__expand_op(e, "Add", a, b, NULL, sbit__expand_none);
}

enum {
    SBIT__MS_ATTRIBUTES = 7 /* of an operator that hands them on, at most */
};

/* The node's attributes but for those that `drop` lists. */
static size_t sbit__expand_attrs(sbit__expand *e, const char *const *drop,
                                 sbit_attr out[SBIT__MS_ATTRIBUTES])
{
    size_t count = 0;
    for (size_t i = 0; i < e->node.attr_count; i++) {
        bool listed = false;
        for (size_t k = 0; drop[k] != NULL; k++) {
            listed = listed || sbit__streq(drop[k], e->node.attrs[i].name);
        }
        if (!listed && count < SBIT__MS_ATTRIBUTES) {
            out[count++] = e->node.attrs[i];
        } else if (!listed) {
            sbit__expand_fail(e, SBIT_ERR_INVALID_MODEL, "it has attributes that are not its own");
        }
    }
    return count;
}

/* >>types */

/* What the row of ai.onnx says of the inputs; `count` of them. */
static sbit_status sbit__ms_infer_as(const sbit_op_call *call, const char *op_type, int32_t version,
                                     int32_t count, sbit_error *error)
{
    sbit_op_call as = *call;
    as.row = sbit_operator_find(call->ctx, "", op_type, version);
    as.opset = version;
    as.input_count = count < call->input_count ? count : call->input_count;
    return as.row->infer(&as, error);
}

static sbit_status sbit__ms_infer_same(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 1, 4, 0, error);
}

/* >>FusedConv, FusedGemm: an activation behind */

/* Parameter i of the activation, from FusedConv's list or FusedGemm's attribute. */
static float sbit__fused_parameter(const sbit__expand *e, size_t i, float otherwise)
{
    static const char *const names[] = {"activation_alpha", "activation_beta"};
    const sbit_attr *list = sbit_node_attr(&e->node, "activation_params");
    if (list != NULL && list->type == SBIT_ONNX_ATTR_FLOATS) {
        return i < list->count ? list->floats[i] : otherwise;
    }
    return sbit_node_float(&e->node, names[i], otherwise);
}

static void sbit__fused_activation(sbit__expand *e, sbit_value_id x)
{
    const char *name = sbit_node_string(&e->node, "activation", "");
    const sbit_value_id out = sbit__expand_out(e, 0);
    sbit_attr attrs[2];
    if (sbit__streq(name, "Clip") && e->opset < 11) {
        attrs[0] = sbit__attr_float("min", sbit__fused_parameter(e, 0, -FLT_MAX));
        attrs[1] = sbit__attr_float("max", sbit__fused_parameter(e, 1, FLT_MAX));
        sbit__expand_node(e, "", name, &x, 1, &out, 1, attrs, 2);
    } else if (sbit__streq(name, "Clip")) {
        sbit_value_id inputs[3];
        inputs[0] = x;
        inputs[1] = sbit__expand_scalar(e, (double)sbit__fused_parameter(e, 0, -FLT_MAX));
        inputs[2] = sbit__expand_scalar(e, (double)sbit__fused_parameter(e, 1, FLT_MAX));
        sbit__expand_node(e, "", name, inputs, 3, &out, 1, NULL, 0);
    } else if (sbit__streq(name, "LeakyRelu") || sbit__streq(name, "HardSigmoid")) {
        const bool leaky = sbit__streq(name, "LeakyRelu");
        attrs[0] = sbit__attr_float("alpha", sbit__fused_parameter(e, 0, leaky ? 0.01f : 0.2f));
        attrs[1] = sbit__attr_float("beta", sbit__fused_parameter(e, 1, 0.5f));
        sbit__expand_node(e, "", name, &x, 1, &out, 1, attrs, leaky ? 1 : 2);
    } else if (sbit__streq(name, "Relu") || sbit__streq(name, "Sigmoid") ||
               sbit__streq(name, "Tanh") || name[0] == '\0') {
        sbit__expand_node(e, "", name[0] != '\0' ? name : "Identity", &x, 1, &out, 1, NULL, 0);
    } else {
        sbit__expand_fail(e, SBIT_ERR_UNSUPPORTED, "its activation is not known");
    }
}

static sbit_status sbit__fused_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    static const char *const drop[] = {"activation",      "activation_params", "activation_alpha",
                                       "activation_beta", "activation_gamma",  NULL};
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const bool conv = sbit__streq(e.node.op_type, "FusedConv");
    const size_t count = e.node.input_count < 3 ? e.node.input_count : 3;
    sbit_attr attrs[SBIT__MS_ATTRIBUTES];
    const size_t attr_count = sbit__expand_attrs(&e, drop, attrs);
    const sbit_value_id y = sbit__expand_value(&e, "sum");
    sbit__expand_node(&e, "", conv ? "Conv" : "Gemm", e.node.inputs, count, &y, 1, attrs,
                      attr_count);
    sbit__fused_activation(&e, sbit__expand_sum(&e, y, sbit__expand_in(&e, 3)));
    return e.status;
}

static sbit_status sbit__fused_conv_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 4, error));
    return sbit__ms_infer_as(call, "Conv", 11, 3, error);
}

static sbit_status sbit__fused_gemm_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__ms_infer_as(call, "Gemm", 13, 3, error);
}

/* >>FusedMatMul: alpha op(A) op(B); transBatchX: the first axis of X becomes its last but one. */

/* Where X's axes come from; false: unchanged. */
static bool sbit__fused_perm(const sbit_node *node, int32_t operand, int32_t rank, int64_t *perm)
{
    static const char *const names[2][2] = {{"transA", "transBatchA"}, {"transB", "transBatchB"}};
    const bool last = sbit_node_int(node, names[operand][0], 0) != 0 && rank >= 2;
    const bool batch = sbit_node_int(node, names[operand][1], 0) != 0 && rank >= 3;
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = i;
    }
    for (int32_t i = 0; batch && i < rank - 1; i++) {
        perm[i] = i < rank - 2 ? i + 1 : 0;
    }
    if (last) {
        const int64_t other = perm[rank - 1];
        perm[rank - 1] = perm[rank - 2];
        perm[rank - 2] = other;
    }
    return last || batch;
}

static sbit_status sbit__fused_matmul_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type types[2];
    const sbit_type *in[2];
    sbit_op_call as = *call;
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    for (int32_t i = 0; i < 2; i++) {
        int64_t perm[SBIT_MAX_RANK];
        types[i] = *call->in_type[i];
        if (types[i].rank > 0) {
            (void)sbit__fused_perm(call->node, i, types[i].rank, perm);
            for (int32_t k = 0; k < types[i].rank; k++) {
                types[i].dims[k] = call->in_type[i]->dims[perm[k]];
            }
        }
        in[i] = &types[i];
    }
    as.in_type = in;
    return sbit__ms_infer_as(&as, "MatMul", 13, 2, error);
}

static sbit_status sbit__fused_matmul_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const float alpha = sbit_node_float(&e.node, "alpha", 1.0f);
    const bool scaled = alpha < 1.0f || alpha > 1.0f;
    sbit_value_id operands[2];
    for (int32_t i = 0; i < 2; i++) {
        int64_t perm[SBIT_MAX_RANK];
        const int32_t rank = sbit__expand_rank(&e, (size_t)i);
        operands[i] = e.node.inputs[i];
        if (rank < 0) {
            sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "the rank of an operand is not known");
        } else if (sbit__fused_perm(&e.node, i, rank, perm)) {
            operands[i] =
                sbit__expand_transpose(&e, operands[i], perm, rank, sbit__expand_none);
        }
    }
    const sbit_value_id y = sbit__expand_op(&e, "MatMul", operands[0], operands[1], NULL,
                                            scaled ? sbit__expand_none : sbit__expand_out(&e, 0));
    if (scaled) {
        const sbit_value_id factor = sbit__expand_scalar(&e, (double)alpha);
        (void)sbit__expand_op(&e, "Mul", y, factor, NULL, sbit__expand_out(&e, 0));
    }
    return e.status;
}

/* >>activations */

/* BiasGelu(x, bias), FastGelu(x[, bias]): the latter by the approximation with tanh. */
static sbit_status sbit__bias_gelu_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id x = sbit__expand_sum(&e, e.node.inputs[0], sbit__expand_in(&e, 1));
    const sbit_value_id out = sbit__expand_out(&e, 0);
    const sbit_attr attr = sbit__attr_string("approximate", "tanh");
    sbit__expand_node(&e, SBIT__MS, "Gelu", &x, 1, &out, 1, &attr,
                      sbit__streq(e.node.op_type, "FastGelu") ? 1 : 0);
    return e.status;
}

/* QuickGelu: x * sigmoid(alpha x) */
static sbit_status sbit__quick_gelu_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id x = e.node.inputs[0], none = sbit__expand_none;
    const double alpha = (double)sbit_node_float(&e.node, "alpha", 1.702f);
    sbit_value_id y = sbit__expand_op(&e, "Mul", x, sbit__expand_scalar(&e, alpha), NULL, none);
    y = sbit__expand_op(&e, "Sigmoid", y, none, NULL, none);
    (void)sbit__expand_op(&e, "Mul", x, y, NULL, sbit__expand_out(&e, 0));
    return e.status;
}

/* BiasSoftmax: Softmax of x + bias from an axis on. A bias of x's rank is broadcast as ever; of a
 * lower one it lacks the axes in front (is_inner_broadcast) or those between. */
static sbit_status sbit__bias_softmax_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const int32_t rank = sbit__expand_rank(&e, 0);
    const int64_t axis = sbit_node_int(&e.node, "axis", 1);
    const sbit_attr attr = sbit__attr_int("axis", -1);
    if (rank < 1 || sbit__expand_rank(&e, 1) != rank || (axis != -1 && axis != rank - 1)) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED,
                          "only a bias of the same rank and the last axis are supported");
    }
    (void)sbit__expand_op(&e, "Softmax", sbit__expand_sum(&e, e.node.inputs[0], e.node.inputs[1]),
                          sbit__expand_none, &attr, sbit__expand_out(&e, 0));
    return e.status;
}

/* >>normalizations */

static sbit_status sbit__skip_norm_infer(const sbit_op_call *call, sbit_error *error)
{
    const bool simple = sbit__streq(call->row->op_type, "SkipSimplifiedLayerNormalization");
    SBIT__TRY(sbit__op_inputs(call, 3, simple ? 4 : 5, error));
    sbit__op_same_type(call, 0, 0);
    for (int32_t i = 1; i < 3; i++) {
        (void)sbit__op_out(call, i, SBIT_F32, -1);
    }
    if (sbit__op_wants(call, 3)) {
        sbit__op_same_type(call, 3, 0);
    }
    return SBIT_OK;
}

/* Layer normalization of x into outputs `norm` and, if they are wanted, mean and deviation. */
static void sbit__expand_norm(sbit__expand *e, bool simple, sbit_value_id x, sbit_value_id scale,
                              sbit_value_id bias, float epsilon)
{
    sbit_value_id inputs[3], outputs[3];
    const sbit_attr attr = sbit__attr_float("epsilon", epsilon);
    const bool deviates = sbit__expand_out(e, 1).idx != 0 || sbit__expand_out(e, 2).idx != 0;
    if (simple && sbit__expand_out(e, 1).idx != 0) {
        sbit__expand_fail(e, SBIT_ERR_UNSUPPORTED, "it takes no mean that could be output 1");
    }
    inputs[0] = x;
    inputs[1] = scale;
    inputs[2] = bias;
    for (size_t i = 0; i < 3; i++) {
        outputs[i] = sbit__expand_out(e, simple && i == 1 ? 2 : i);
    }
    sbit__expand_node(e, "", simple ? "SimplifiedLayerNormalization" : "LayerNormalization", inputs,
                      bias.idx != 0 ? 3 : 2, outputs, !deviates ? 1 : simple ? 2 : 3, &attr, 1);
}

/* Normalizes input + skip + bias, which is output 3. */
static sbit_status sbit__skip_norm_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const bool simple = sbit__streq(e.node.op_type, "SkipSimplifiedLayerNormalization");
    const sbit_value_id bias = sbit__expand_in(&e, simple ? 3 : 4);
    const sbit_value_id total = sbit__expand_out(&e, 3);
    sbit_value_id sum = sbit__expand_op(&e, "Add", e.node.inputs[0], e.node.inputs[1], NULL,
                                        bias.idx == 0 ? total : sbit__expand_none);
    if (bias.idx != 0) {
        sum = sbit__expand_op(&e, "Add", sum, bias, NULL, total);
    }
    sbit__expand_norm(&e, simple, sum, e.node.inputs[2],
                      simple ? sbit__expand_none : sbit__expand_in(&e, 3),
                      sbit_node_float(&e.node, "epsilon", simple ? 1e-5f : 1e-12f));
    return e.status;
}

/* EmbedLayerNormalization(ids, segments?, words, positions, segment words?, gamma, beta, mask?,
 * position ids?) -> y, number of tokens in the mask, sum of the embeddings. */
static sbit_status sbit__embed_norm_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 9, error));
    for (int32_t i = 2; i < 7; i++) {
        if (i != 4 && !sbit__op_has(call, i)) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
    }
    const sbit_type *ids = call->in_type[0], *words = call->in_type[2];
    for (int32_t i = 0; i < 3; i++) {
        sbit_type *out = sbit__op_out(call, i, i == 1 ? SBIT_I32 : words->dtype, i == 1 ? 1 : 3);
        if (out != NULL && ids->rank == 2) {
            out->dims[0] = ids->dims[0];
        }
        if (out != NULL && i != 1 && ids->rank == 2 && words->rank == 2) {
            out->dims[1] = ids->dims[1];
            out->dims[2] = words->dims[1];
        }
    }
    return SBIT_OK;
}

/* How many tokens of each sample the mask lets through; 0 without a mask. */
static void sbit__embed_norm_mask(sbit__expand *e, sbit_value_id out)
{
    const sbit_value_id mask = sbit__expand_in(e, 7), none = sbit__expand_none;
    const int64_t axis = 1;
    sbit_attr attrs[2];
    sbit_value_id inputs[2];
    inputs[0] = mask;
    if (mask.idx == 0) {
        inputs[0] = sbit__expand_op(e, "Sub", e->node.inputs[0], e->node.inputs[0], NULL, none);
    }
    inputs[0] = sbit__expand_cast(e, inputs[0], SBIT_I32);
    inputs[1] = e->opset >= 13 ? sbit__expand_ints(e, &axis, 1) : none;
    attrs[0] = sbit__attr_int("keepdims", 0);
    attrs[1] = sbit__attr_ints("axes", &axis, 1);
    sbit__expand_node(e, "", "ReduceSum", inputs, e->opset >= 13 ? 2 : 1, &out, 1, attrs,
                      e->opset >= 13 ? 1 : 2);
}

static sbit_status sbit__embed_norm_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id none = sbit__expand_none, ids = e.node.inputs[0];
    const sbit_value_id segments = sbit__expand_in(&e, 1), positions = sbit__expand_in(&e, 8);
    const sbit_type *words = sbit__expand_in_type(&e, 2);
    const sbit_value_id total = sbit__expand_out(&e, 2), counted = sbit__expand_out(&e, 1);
    const sbit_value_id out = sbit__expand_out(&e, 0);
    sbit_value_id sum[3], at = positions;
    e.dtype = words != NULL ? words->dtype : SBIT_F32;
    if (at.idx == 0) {
        at = sbit__expand_range(&e, sbit__expand_length(&e, ids, 1));
    }
    sum[0] = sbit__expand_op(&e, "Gather", e.node.inputs[2], ids, NULL, none);
    sum[1] = sbit__expand_op(&e, "Gather", e.node.inputs[3], at, NULL, none);
    sum[2] = none;
    if (segments.idx != 0) {
        sum[2] = sbit__expand_op(&e, "Gather", e.node.inputs[4], segments, NULL, none);
    }
    sbit_value_id x = sbit__expand_op(&e, "Add", sum[0], sum[1], NULL,
                                      segments.idx == 0 ? total : none);
    if (segments.idx != 0) {
        x = sbit__expand_op(&e, "Add", x, sum[2], NULL, total);
    }
    const sbit_attr attr =
        sbit__attr_float("epsilon", sbit_node_float(&e.node, "epsilon", 1e-12f));
    sum[0] = x;
    sum[1] = e.node.inputs[5];
    sum[2] = e.node.inputs[6];
    sbit__expand_node(&e, "", "LayerNormalization", sum, 3, &out, 1, &attr, 1);
    if (counted.idx != 0) {
        sbit__embed_norm_mask(&e, counted);
    }
    return e.status;
}

/* >>attention */

/* [B, heads, L, size] to [B, L, heads * size], which `Attention` takes at rank 3. */
static sbit_value_id sbit__expand_flat(sbit__expand *e, sbit_value_id x, bool heads_first)
{
    static const int64_t perm[4] = {0, 2, 1, 3}, flat[3] = {0, 0, -1};
    if (heads_first) {
        x = sbit__expand_transpose(e, x, perm, 4, sbit__expand_none);
    }
    return sbit__expand_reshape(e, x, flat, 3);
}

/* 0 where a condition (bool) holds, mask_filter_value elsewhere. */
static sbit_value_id sbit__expand_filter(sbit__expand *e, sbit_value_id condition)
{
    const double filter = (double)sbit_node_float(&e->node, "mask_filter_value", -10000.0f);
    sbit_value_id inputs[3], out = sbit__expand_value(e, "mask");
    inputs[0] = condition;
    inputs[1] = sbit__expand_scalar(e, 0.0);
    inputs[2] = sbit__expand_scalar(e, filter);
    sbit__expand_node(e, "", "Where", inputs, 3, &out, 1, NULL, 0);
    return out;
}

/* A mask as what is added to scores: [B, keys] or [B, queries, keys] of 0 and 1; [B]: how many keys
 * count, [2 B]: behind these, the first ones. `total`: the number of keys, a scalar. */
static sbit_value_id sbit__expand_mask(sbit__expand *e, size_t input, sbit_value_id total)
{
    const sbit_value_id none = sbit__expand_none;
    const sbit_value_id mask = sbit__expand_in(e, input);
    static const int64_t over_rows[4] = {0, 1, 1, -1}, column[2] = {-1, 1};
    const int32_t rank = sbit__expand_rank(e, input);
    const int64_t count = sbit__expand_dim(e, input, 0), batch = sbit__expand_dim(e, 0, 0);
    if (mask.idx == 0) {
        return none;
    }
    if (rank == 1) {
        const bool both = count > 0 && count == 2 * batch;
        sbit_value_id at = sbit__expand_range(e, total);
        sbit_value_id ends = sbit__expand_cast(e, mask, SBIT_I64), starts = none;
        if (count < 0 || batch < 0 || (count != batch && !both)) {
            sbit__expand_fail(e, SBIT_ERR_UNSUPPORTED,
                              "a mask of rank 1 has one or two entries for each sample, whose "
                              "number must be known");
        }
        if (both) {
            starts = sbit__expand_slice(e, ends, 0, batch, 2 * batch);
            ends = sbit__expand_slice(e, ends, 0, 0, batch);
        }
        ends = sbit__expand_reshape(e, ends, column, 2);
        sbit_value_id sees = sbit__expand_op(e, "Less", at, ends, NULL, none);
        if (both) {
            starts = sbit__expand_reshape(e, starts, column, 2);
            starts = sbit__expand_op(e, "Less", at, starts, NULL, none);
            starts = sbit__expand_op(e, "Not", starts, none, NULL, none);
            sees = sbit__expand_op(e, "And", sees, starts, NULL, none);
        }
        return sbit__expand_reshape(e, sbit__expand_filter(e, sees), over_rows, 4);
    }
    const sbit_value_id sees =
        sbit__expand_filter(e, sbit__expand_cast(e, mask, SBIT_BOOL));
    if (rank == 2) {
        return sbit__expand_reshape(e, sees, over_rows, 4);
    }
    if (rank == 3) {
        return sbit__expand_unsqueeze(e, sees, 1); /* the same for all heads */
    }
    sbit__expand_fail(e, SBIT_ERR_UNSUPPORTED, "a mask has rank 1, 2 or 3, which must be known");
    return none;
}

typedef struct sbit__expand_heads {
    sbit_value_id query, key, value; /* rank 3 */
    sbit_value_id mask, past_key, past_value;
    sbit_value_id out, present_key, present_value;
    bool causal; /* query i sees keys 0..past + i */
} sbit__expand_heads;

static void sbit__expand_attend(sbit__expand *e, const sbit__expand_heads *h)
{
    const int64_t heads = sbit_node_int(&e->node, "num_heads", 0);
    const float scale = sbit_node_float(&e->node, "scale", 0.0f);
    sbit_value_id inputs[6], outputs[3];
    sbit_attr attrs[4];
    size_t count = 0;
    inputs[0] = h->query;
    inputs[1] = h->key;
    inputs[2] = h->value;
    inputs[3] = h->mask;
    inputs[4] = h->past_key;
    inputs[5] = h->past_value;
    outputs[0] = h->out;
    outputs[1] = h->present_key;
    outputs[2] = h->present_value;
    attrs[count++] = sbit__attr_int("q_num_heads", heads);
    attrs[count++] = sbit__attr_int("kv_num_heads", heads);
    attrs[count++] = sbit__attr_int("is_causal", h->causal ? 1 : 0);
    if (scale > 0.0f) {
        attrs[count++] = sbit__attr_float("scale", scale);
    }
    sbit__expand_node(e, "sbit", "Attention", inputs,
                      h->past_key.idx != 0 ? 6 : h->mask.idx != 0 ? 4 : 3, outputs,
                      h->present_value.idx != 0 ? 3 : h->present_key.idx != 0 ? 2 : 1, attrs, count);
}

static sbit_status sbit__attention_ms_shape(const sbit_op_call *call, int32_t output,
                                            sbit_dtype dtype, sbit_dim batch, sbit_dim length,
                                            sbit_dim size)
{
    sbit_type *out = sbit__op_out(call, output, dtype, 3);
    if (out != NULL) {
        out->dims[0] = batch;
        out->dims[1] = length;
        out->dims[2] = size;
    }
    return SBIT_OK;
}

static sbit_status sbit__heads_check(const sbit_op_call *call, sbit_error *error)
{
    if (sbit_node_int(call->node, "num_heads", 0) < 1) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "num_heads must be positive");
    }
    return SBIT_OK;
}

/* Attention(x, weights, bias?, mask?, past?, bias of scores?): one matrix makes queries, keys and
 * values; QAttention: with x and weights as integers and (.., scale, scale, mask?, zero, zero,
 * past?). */
static bool sbit__attention_ms_integers(const sbit_node *node)
{
    return sbit__streq(node->op_type, "QAttention");
}

/* Sizes of queries (and keys), and of values, -1 if not known. */
static void sbit__attention_ms_sizes(const sbit_node *node, int64_t columns, int64_t sizes[3])
{
    const sbit_attr *given = sbit_node_attr(node, "qkv_hidden_sizes");
    for (size_t i = 0; i < 3; i++) {
        sizes[i] = given != NULL && given->type == SBIT_ONNX_ATTR_INTS && given->count == 3
                       ? given->ints[i]
                   : columns < 0 ? -1
                                 : columns / 3;
    }
}

static sbit_status sbit__attention_ms_infer(const sbit_op_call *call, sbit_error *error)
{
    const bool integers = sbit__attention_ms_integers(call->node);
    int64_t sizes[3];
    SBIT__TRY(sbit__op_inputs(call, integers ? 5 : 2, integers ? 9 : 7, error));
    SBIT__TRY(sbit__heads_check(call, error));
    const sbit_type *x = call->in_type[0], *w = call->in_type[1];
    const sbit_dtype dtype = integers ? call->in_type[3]->dtype : x->dtype;
    const bool known = w->rank == 2 && sbit__dim_known(w->dims[1]);
    if ((x->rank >= 0 && x->rank != 3) || (w->rank >= 0 && w->rank != 2)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "its input has rank 3 and its weights rank 2");
    }
    sbit__attention_ms_sizes(call->node, known ? w->dims[1].value : -1, sizes);
    const int64_t heads = sbit_node_int(call->node, "num_heads", 0);
    if (known && (sizes[0] + sizes[1] + sizes[2] != w->dims[1].value || sizes[0] != sizes[1] ||
                  sizes[0] % heads != 0 || sizes[2] % heads != 0)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "weights of %lld columns do not fit %lld heads",
                            (long long)w->dims[1].value, (long long)heads);
    }
    const bool rank = x->rank == 3;
    SBIT__TRY(sbit__attention_ms_shape(call, 0, dtype, rank ? x->dims[0] : sbit__dim_any(),
                                       rank ? x->dims[1] : sbit__dim_any(),
                                       sizes[2] >= 0 ? sbit__dim(sizes[2]) : sbit__dim_any()));
    (void)sbit__op_out(call, 1, dtype, 5);
    return SBIT_OK;
}

/* x W of integers, as floats. */
static sbit_value_id sbit__attention_ms_product(sbit__expand *e)
{
    const sbit_value_id none = sbit__expand_none;
    sbit_value_id inputs[4], out = sbit__expand_value(e, "product"), scale;
    inputs[0] = e->node.inputs[0];
    inputs[1] = e->node.inputs[1];
    inputs[2] = sbit__expand_in(e, 6);
    inputs[3] = sbit__expand_in(e, 7);
    sbit__expand_node(e, "", "MatMulInteger", inputs, 4, &out, 1, NULL, 0);
    scale = sbit__expand_op(e, "Mul", e->node.inputs[3], e->node.inputs[4], NULL, none);
    return sbit__expand_op(e, "Mul", sbit__expand_cast(e, out, e->dtype), scale, NULL, none);
}

static sbit_status sbit__attention_ms_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const bool integers = sbit__attention_ms_integers(&e.node);
    const sbit_value_id none = sbit__expand_none;
    const sbit_value_id past = sbit__expand_in(&e, integers ? 8 : 4);
    const sbit_value_id present = sbit__expand_out(&e, 1);
    sbit__expand_heads h;
    int64_t sizes[3];
    memset(&h, 0, sizeof h);
    sbit__attention_ms_sizes(&e.node, sbit__expand_dim(&e, 1, 1), sizes);
    if (sizes[0] < 0) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "the shape of its weights is not known");
    }
    if (sbit_node_int(&e.node, "do_rotary", 0) != 0 ||
        sbit_node_int(&e.node, "past_present_share_buffer", 0) != 0) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED,
                          "do_rotary and past_present_share_buffer are not supported");
    }
    if (integers) {
        e.dtype = sbit__expand_in_type(&e, 3)->dtype;
    }
    sbit_value_id x = integers ? sbit__attention_ms_product(&e)
                               : sbit__expand_op(&e, "MatMul", e.node.inputs[0], e.node.inputs[1],
                                                 NULL, none);
    x = sbit__expand_sum(&e, x, sbit__expand_in(&e, 2));
    h.query = sbit__expand_slice(&e, x, 2, 0, sizes[0]);
    h.key = sbit__expand_slice(&e, x, 2, sizes[0], 2 * sizes[0]);
    h.value = sbit__expand_slice(&e, x, 2, 2 * sizes[0], 2 * sizes[0] + sizes[2]);
    sbit_value_id total = sbit__expand_length(&e, e.node.inputs[0], 1);
    if (past.idx != 0) {
        h.past_key = sbit__expand_pick(&e, past, 0, 0);
        h.past_value = sbit__expand_pick(&e, past, 0, 1);
        total = sbit__expand_sum(&e, total, sbit__expand_length(&e, past, 3));
    }
    h.causal = sbit_node_int(&e.node, "unidirectional", 0) != 0;
    h.mask = sbit__expand_mask(&e, integers ? 5 : 3, total);
    h.mask = sbit__expand_sum(&e, h.mask, integers ? none : sbit__expand_in(&e, 5));
    h.out = sbit__expand_out(&e, 0);
    if (present.idx != 0) {
        h.present_key = sbit__expand_value(&e, "present_key");
        h.present_value = sbit__expand_value(&e, "present_value");
    }
    sbit__expand_attend(&e, &h);
    if (present.idx != 0) {
        const sbit_attr axis = sbit__attr_int("axis", 0);
        const sbit_value_id key = sbit__expand_unsqueeze(&e, h.present_key, 0);
        const sbit_value_id value = sbit__expand_unsqueeze(&e, h.present_value, 0);
        (void)sbit__expand_op(&e, "Concat", key, value, &axis, present);
    }
    return e.status;
}

/* MultiHeadAttention(query, key?, value?, bias?, mask?, bias of scores?, past key?, past value?):
 * queries [B, L, D], or with keys and values as [B, L, heads, 3, size]; keys [B, L, D], with values
 * [B, L, heads, 2, size], or as [B, heads, L, size]. */
static sbit_status sbit__mha_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 10, error));
    SBIT__TRY(sbit__heads_check(call, error));
    const sbit_type *q = call->in_type[0];
    const sbit_type *k = sbit__in_type(call, 1), *v = sbit__in_type(call, 2);
    if (q->rank >= 0 && q->rank != 3 && q->rank != 5) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "queries have rank 3 or 5");
    }
    if ((q->rank == 5) != (k == NULL) && q->rank >= 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "queries of rank 5 hold keys and values, others need them");
    }
    sbit_dim size = sbit__dim_any();
    if (q->rank == 5) {
        size = sbit__dim_mul(q->dims[2], q->dims[4]);
    } else if (v != NULL && v->rank == 3) {
        size = v->dims[2];
    } else if (v != NULL && v->rank == 4) {
        size = sbit__dim_mul(v->dims[1], v->dims[3]);
    } else if (q->rank == 3) {
        size = q->dims[2];
    }
    SBIT__TRY(sbit__attention_ms_shape(call, 0, q->dtype,
                                       q->rank > 0 ? q->dims[0] : sbit__dim_any(),
                                       q->rank > 1 ? q->dims[1] : sbit__dim_any(), size));
    for (int32_t i = 1; i < 4; i++) {
        (void)sbit__op_out(call, i, q->dtype, 4);
    }
    return SBIT_OK;
}

/* Queries, keys and values at rank 3. */
static void sbit__mha_inputs(sbit__expand *e, sbit__expand_heads *h)
{
    const int32_t q = sbit__expand_rank(e, 0), k = sbit__expand_rank(e, 1);
    sbit_value_id *parts[3];
    parts[0] = &h->query;
    parts[1] = &h->key;
    parts[2] = &h->value;
    for (size_t i = 0; i < 3; i++) {
        const sbit_value_id in = sbit__expand_in(e, i);
        *parts[i] = in;
        if (q == 5) {
            *parts[i] =
                sbit__expand_flat(e, sbit__expand_pick(e, e->node.inputs[0], 3, (int64_t)i), false);
        } else if (i > 0 && k == 5) {
            *parts[i] = sbit__expand_flat(
                e, sbit__expand_pick(e, e->node.inputs[1], 3, (int64_t)i - 1), false);
        } else if (i > 0 && sbit__expand_rank(e, i) == 4) {
            *parts[i] = sbit__expand_flat(e, in, true);
        } else if (in.idx == 0 || sbit__expand_rank(e, i) != 3) {
            sbit__expand_fail(e, SBIT_ERR_UNSUPPORTED,
                              "the ranks of its queries, keys and values are not known");
        }
    }
}

/* unidirectional where there are not as many new keys as queries: "every token can only attend to
 * previous tokens" leaves open which key is a query's own. As in ONNX Runtime query i sees keys
 * 0..past + i, and the last one all. */
static sbit_value_id sbit__mha_causal(sbit__expand *e, sbit_value_id query, sbit_value_id past,
                                      sbit_value_id total)
{
    static const int64_t column[2] = {-1, 1}, one = 1;
    const sbit_value_id none = sbit__expand_none;
    const sbit_value_id length = sbit__expand_length(e, query, 1);
    const sbit_value_id row = sbit__expand_reshape(e, sbit__expand_range(e, length), column, 2);
    const sbit_value_id own = past.idx != 0 ? sbit__expand_sum(e, row, past) : row;
    const sbit_value_id last = sbit__expand_op(e, "Sub", length, sbit__expand_ints(e, &one, 1), NULL, none);
    sbit_value_id inputs[3], out = sbit__expand_value(e, "causal");
    inputs[0] = sbit__expand_op(e, "Less", own, sbit__expand_range(e, total), NULL, none);
    inputs[0] = sbit__expand_op(e, "And", inputs[0],
                                sbit__expand_op(e, "Less", row, last, NULL, none), NULL, none);
    inputs[1] = sbit__expand_scalar(e, -(double)INFINITY);
    inputs[2] = sbit__expand_scalar(e, 0.0);
    sbit__expand_node(e, "", "Where", inputs, 3, &out, 1, NULL, 0);
    return out;
}

static sbit_status sbit__mha_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id bias = sbit__expand_in(&e, 3), past = sbit__expand_in(&e, 6);
    const int64_t wide = sbit__expand_dim(&e, 0, 2);
    sbit__expand_heads h;
    memset(&h, 0, sizeof h);
    sbit__mha_inputs(&e, &h);
    if (bias.idx != 0) {
        const int64_t size = sbit__expand_rank(&e, 0) == 5
                                 ? sbit__expand_dim(&e, 0, 2) * sbit__expand_dim(&e, 0, 4)
                                 : wide;
        if (size < 1) {
            sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "the size of its queries is not known");
        }
        h.query = sbit__expand_sum(&e, h.query, sbit__expand_slice(&e, bias, 0, 0, size));
        if (sbit__expand_rank(&e, 1) != 4) {
            h.key = sbit__expand_sum(&e, h.key, sbit__expand_slice(&e, bias, 0, size, 2 * size));
            h.value =
                sbit__expand_sum(&e, h.value, sbit__expand_slice(&e, bias, 0, 2 * size, INT64_MAX));
        }
    }
    if (sbit__expand_in(&e, 8).idx != 0 || sbit__expand_in(&e, 9).idx != 0 ||
        sbit__expand_out(&e, 3).idx != 0) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED,
                          "past_sequence_length, cache_indirection and output qk are not supported");
    }
    sbit_value_id total = sbit__expand_length(&e, h.key, 1), before = sbit__expand_none;
    if (past.idx != 0) {
        h.past_key = past;
        h.past_value = sbit__expand_in(&e, 7);
        before = sbit__expand_length(&e, past, 2);
        total = sbit__expand_sum(&e, total, before);
    }
    h.mask = sbit__expand_sum(&e, sbit__expand_mask(&e, 4, total), sbit__expand_in(&e, 5));
    if (sbit_node_int(&e.node, "unidirectional", 0) != 0) {
        const sbit_type *q = sbit__expand_in_type(&e, 0), *k = sbit__expand_in_type(&e, 1);
        h.causal = k == NULL || sbit__dim_equal(q->dims[1], k->dims[k->rank == 4 ? 2 : 1]);
        if (!h.causal) {
            h.mask = sbit__expand_sum(&e, h.mask, sbit__mha_causal(&e, h.query, before, total));
        }
    }
    h.out = sbit__expand_out(&e, 0);
    h.present_key = sbit__expand_out(&e, 1);
    h.present_value = sbit__expand_out(&e, 2);
    sbit__expand_attend(&e, &h);
    return e.status;
}

/* RotaryEmbedding(x, positions, cosines, sines): positions [B, L], or one number that is added to
 * 0, 1 ... L - 1. */
static sbit_status sbit__rotary_ms_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 4, 4, 0, error);
}

static sbit_status sbit__rotary_ms_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id none = sbit__expand_none, out = sbit__expand_out(&e, 0);
    const int32_t rank = sbit__expand_rank(&e, 0);
    const int64_t rotated = sbit_node_int(&e.node, "rotary_embedding_dim", 0);
    const int64_t size = rotated > 0 ? -1 : 2 * sbit__expand_dim(&e, 2, 1);
    int64_t heads = sbit_node_int(&e.node, "num_heads", 0);
    sbit_value_id inputs[4];
    sbit_attr attrs[3];
    if (rank == 3 && heads == 0 && size > 0 && sbit__expand_dim(&e, 0, 2) > 0) {
        heads = sbit__expand_dim(&e, 0, 2) / size;
    }
    if (rank < 3 || (rank == 3 && heads < 1)) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "its number of heads is not known");
    }
    inputs[0] = e.node.inputs[0];
    inputs[1] = e.node.inputs[2];
    inputs[2] = e.node.inputs[3];
    inputs[3] = e.node.inputs[1];
    if (sbit__expand_rank(&e, 1) == 1) {
        static const int64_t one = 1;
        const sbit_value_id shape = sbit__expand_op(&e, "Shape", e.node.inputs[0], none, NULL, none);
        const int64_t length = rank == 4 ? 2 : 1;
        const sbit_attr axis = sbit__attr_int("axis", 0);
        sbit_value_id at = sbit__expand_range(&e, sbit__expand_pick(&e, shape, 0, length));
        const sbit_value_id batch = sbit__expand_slice(&e, shape, 0, 0, 1);
        const sbit_value_id ones = sbit__expand_ints(&e, &one, 1);
        at = sbit__expand_op(&e, "Add", at, inputs[3], NULL, none);
        inputs[3] = sbit__expand_op(&e, "Expand", at,
                                    sbit__expand_op(&e, "Concat", batch, ones, &axis, none), NULL,
                                    none);
    }
    attrs[0] = sbit__attr_int("interleaved", sbit_node_int(&e.node, "interleaved", 0));
    attrs[1] = sbit__attr_int("rotary_embedding_dim", rotated);
    attrs[2] = sbit__attr_int("num_heads", heads);
    sbit__expand_node(&e, "sbit", "RotaryEmbedding", inputs, 4, &out, 1, attrs, 3);
    return e.status;
}

/* GroupQueryAttention(query, key?, value?, past key?, past value?, keys of each sample - 1, most keys
 * of a sample, cosines?, sines?, positions?, bias of scores?): queries may hold keys and values
 * behind them. New keys follow a sample's past ones, whose number differs; where there are as many
 * queries as keys there is no past. A query sees the keys up to its own, the last
 * `local_window_size` of them. */

static sbit_status sbit__gqa_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t heads = sbit_node_int(call->node, "num_heads", 0);
    const int64_t kv_heads = sbit_node_int(call->node, "kv_num_heads", 0);
    SBIT__TRY(sbit__op_inputs(call, 1, 14, error));
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "num_heads must be a multiple of kv_num_heads");
    }
    if (sbit__op_has(call, 1) != sbit__op_has(call, 2) ||
        sbit__op_has(call, 3) != sbit__op_has(call, 4) ||
        sbit__op_has(call, 7) != sbit__op_has(call, 8) || !sbit__op_has(call, 5) ||
        !sbit__op_has(call, 6)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "seqlens_k and total_sequence_length are wanted; keys and values, and "
                            "the caches, come together");
    }
    const sbit_type *q = call->in_type[0];
    if (q->rank >= 0 && q->rank != 3) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "queries have rank 3");
    }
    const int64_t parts = sbit__op_has(call, 1) ? heads : heads + 2 * kv_heads;
    const bool rank = q->rank == 3;
    const sbit_dim size =
        rank ? sbit__dim_div(q->dims[2], sbit__dim(parts)) : sbit__dim_any();
    SBIT__TRY(sbit__attention_ms_shape(call, 0, q->dtype, rank ? q->dims[0] : sbit__dim_any(),
                                       rank ? q->dims[1] : sbit__dim_any(),
                                       sbit__dim_mul(size, sbit__dim(heads))));
    for (int32_t i = 1; i < 3; i++) {
        sbit_type *out = sbit__op_out(call, i, q->dtype, 4);
        if (out != NULL) {
            out->dims[0] = rank ? q->dims[0] : sbit__dim_any();
            out->dims[1] = sbit__dim(kv_heads);
            out->dims[3] = size;
        }
    }
    return SBIT_OK;
}

typedef struct sbit__gqa {
    int64_t heads, kv_heads, size;
    sbit_value_id part[3]; /* queries, keys, values: [B, L, heads * size] */
    sbit_value_id first;   /* [B]: past keys of each sample */
    sbit_value_id places;  /* [B, L]: of the queries among the keys */
    sbit_value_id present[2];
} sbit__gqa;

static void sbit__gqa_parts(sbit__expand *e, sbit__gqa *g)
{
    const int64_t wide = sbit__expand_dim(e, 0, 2);
    const bool packed = sbit__expand_in(e, 1).idx == 0;
    const int64_t parts = packed ? g->heads + 2 * g->kv_heads : g->heads;
    if (wide < 1 || wide % parts != 0) {
        sbit__expand_fail(e, SBIT_ERR_UNSUPPORTED,
                          "the size of its queries is not known, or no multiple of its heads");
        return;
    }
    g->size = wide / parts;
    for (int64_t i = 0, at = 0; i < 3; i++) {
        const int64_t to = at + (i == 0 ? g->heads : g->kv_heads) * g->size;
        g->part[i] = packed ? sbit__expand_slice(e, e->node.inputs[0], 2, at, to)
                            : sbit__expand_in(e, (size_t)i);
        at = to;
    }
}

/* Where the queries stand: behind seqlens_k + 1 - L past keys, or none. */
static void sbit__gqa_places(sbit__expand *e, sbit__gqa *g)
{
    static const int64_t flat[1] = {-1}, column[2] = {-1, 1};
    const sbit_value_id none = sbit__expand_none;
    const sbit_value_id length = sbit__expand_length(e, e->node.inputs[0], 1);
    const sbit_value_id total = sbit__expand_cast(e, sbit__expand_in(e, 6), SBIT_I64);
    const int64_t one = 1, zero = 0;
    sbit_value_id keys = sbit__expand_cast(e, sbit__expand_in(e, 5), SBIT_I64), inputs[3];
    keys = sbit__expand_reshape(e, keys, flat, 1);
    keys = sbit__expand_op(e, "Add", keys, sbit__expand_ints(e, &one, 1), NULL, none);
    inputs[0] = sbit__expand_op(e, "Equal", length, total, NULL, none);
    inputs[1] = sbit__expand_ints(e, &zero, 1);
    inputs[2] = sbit__expand_op(e, "Sub", keys, length, NULL, none);
    g->first = sbit__expand_value(e, "first");
    sbit__expand_node(e, "", "Where", inputs, 3, &g->first, 1, NULL, 0);
    inputs[0] = sbit__expand_op(e, "Mul", keys, sbit__expand_ints(e, &zero, 1), NULL, none);
    g->first = sbit__expand_op(e, "Add", g->first, inputs[0], NULL, none); /* one for each sample */
    inputs[0] = sbit__expand_range(e, length);
    inputs[1] = sbit__expand_reshape(e, g->first, column, 2);
    g->places = sbit__expand_op(e, "Add", inputs[1], inputs[0], NULL, none);
}

static void sbit__gqa_turn(sbit__expand *e, sbit__gqa *g)
{
    for (size_t i = 0; i < 2 && sbit_node_int(&e->node, "do_rotary", 0) != 0; i++) {
        sbit_value_id inputs[4], out = sbit__expand_value(e, "turned");
        sbit_attr attrs[3];
        inputs[0] = g->part[i];
        inputs[1] = sbit__expand_in(e, 7);
        inputs[2] = sbit__expand_in(e, 8);
        inputs[3] = sbit__expand_in(e, 9).idx != 0 ? sbit__expand_in(e, 9) : g->places;
        attrs[0] = sbit__attr_int("num_heads", i == 0 ? g->heads : g->kv_heads);
        attrs[1] =
            sbit__attr_int("interleaved", sbit_node_int(&e->node, "rotary_interleaved", 0));
        attrs[2] = sbit__attr_int("rotary_embedding_dim",
                                  sbit__expand_dim(e, 7, 1) > 0 ? 2 * sbit__expand_dim(e, 7, 1) : 0);
        sbit__expand_node(e, "sbit", "RotaryEmbedding", inputs, 4, &out, 1, attrs, 3);
        g->part[i] = out;
    }
}

static void sbit__gqa_append(sbit__expand *e, sbit__gqa *g)
{
    const sbit_attr heads = sbit__attr_int("heads", g->kv_heads);
    for (size_t i = 0; i < 2; i++) {
        sbit_value_id inputs[4];
        const sbit_value_id out = sbit__expand_out(e, 1 + i);
        g->present[i] = out.idx != 0 ? out : sbit__expand_value(e, "present");
        inputs[0] = sbit__expand_in(e, 3 + i);
        inputs[1] = g->part[1 + i];
        inputs[2] = g->first;
        inputs[3] = sbit__expand_in(e, 6);
        sbit__expand_node(e, "sbit", "AppendKeys", inputs, 4, &g->present[i], 1, &heads, 1);
    }
}

/* [B, 1, L, keys]: which keys a query sees, as what is added to scores if these have a bias. */
static sbit_value_id sbit__gqa_mask(sbit__expand *e, const sbit__gqa *g)
{
    const sbit_value_id none = sbit__expand_none, bias = sbit__expand_in(e, 10);
    const int64_t window = sbit_node_int(&e->node, "local_window_size", -1);
    const sbit_value_id keys = sbit__expand_range(e, sbit__expand_length(e, g->present[0], 2));
    sbit_value_id at = sbit__expand_unsqueeze(e, sbit__expand_unsqueeze(e, g->places, 2), 1);
    sbit_value_id sees = sbit__expand_op(e, "Less", at, keys, NULL, none);
    sees = sbit__expand_op(e, "Not", sees, none, NULL, none);
    if (window > 0) {
        at = sbit__expand_op(e, "Sub", at, sbit__expand_ints(e, &window, 1), NULL, none);
        at = sbit__expand_op(e, "Less", at, keys, NULL, none);
        sees = sbit__expand_op(e, "And", sees, at, NULL, none);
    }
    if (bias.idx != 0) {
        sbit_value_id inputs[3], out = sbit__expand_value(e, "mask");
        inputs[0] = sees;
        inputs[1] = bias;
        inputs[2] = sbit__expand_scalar(e, -(double)INFINITY);
        sbit__expand_node(e, "", "Where", inputs, 3, &out, 1, NULL, 0);
        return out;
    }
    return sees;
}

static void sbit__gqa_attend(sbit__expand *e, const sbit__gqa *g)
{
    static const int64_t perm[4] = {0, 2, 1, 3}, flat[3] = {0, 0, -1};
    const sbit_value_id none = sbit__expand_none;
    const int64_t apart[4] = {0, 0, g->heads, g->size};
    const float scale = sbit_node_float(&e->node, "scale", 0.0f);
    sbit_value_id inputs[4], y = sbit__expand_value(e, "heads");
    sbit_attr attrs[2];
    inputs[3] = sbit__gqa_mask(e, g);
    inputs[0] = sbit__expand_transpose(e, sbit__expand_reshape(e, g->part[0], apart, 4), perm, 4, none);
    inputs[1] = g->present[0];
    inputs[2] = g->present[1];
    attrs[0] = sbit__attr_float("softcap", sbit_node_float(&e->node, "softcap", 0.0f));
    attrs[1] = sbit__attr_float("scale", scale);
    sbit__expand_node(e, "sbit", "Attention", inputs, 4, &y, 1, attrs, scale > 0.0f ? 2 : 1);
    y = sbit__expand_transpose(e, y, perm, 4, none);
    (void)sbit__expand_op(e, "Reshape", y, sbit__expand_ints(e, flat, 3), NULL,
                          sbit__expand_out(e, 0));
}

static sbit_status sbit__gqa_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_begin(graph, id, error);
    sbit__gqa g;
    memset(&g, 0, sizeof g);
    g.heads = sbit_node_int(&e.node, "num_heads", 1);
    g.kv_heads = sbit_node_int(&e.node, "kv_num_heads", 1);
    for (size_t i = 11; i < 14; i++) {
        if (sbit__expand_in(&e, i).idx != 0) {
            sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "inputs behind the bias are not supported");
        }
    }
    if (sbit_node_int(&e.node, "smooth_softmax", 0) > 0 || sbit__expand_out(&e, 3).idx != 0 ||
        sbit_node_string(&e.node, "k_quant_type", "NONE")[0] != 'N') {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED,
                          "smooth_softmax, quantized keys and output qk are not supported");
    }
    sbit__gqa_parts(&e, &g);
    sbit__gqa_places(&e, &g);
    sbit__gqa_turn(&e, &g);
    sbit__gqa_append(&e, &g);
    sbit__gqa_attend(&e, &g);
    return e.status;
}

/* >>NhwcMaxPool: MaxPool with channels last */

static sbit_status sbit__nhwc_pool_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type in, out;
    const sbit_type *ins[1];
    sbit_type *outs[1];
    sbit_op_call as = *call;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    in = *call->in_type[0];
    for (int32_t i = 1; i < in.rank; i++) {
        in.dims[i] = call->in_type[0]->dims[i == 1 ? in.rank - 1 : i - 1];
    }
    out = sbit__type_unknown();
    ins[0] = &in;
    outs[0] = &out;
    as.in_type = ins;
    as.out_type = outs;
    as.output_count = 1;
    SBIT__TRY(sbit__ms_infer_as(&as, "MaxPool", 12, 1, error));
    sbit_type *y = sbit__op_out(call, 0, in.dtype, out.rank);
    for (int32_t i = 1; y != NULL && i < out.rank; i++) {
        y->dims[i] = out.dims[i == out.rank - 1 ? 1 : i + 1];
    }
    if (y != NULL && out.rank > 0) {
        y->dims[0] = out.dims[0];
    }
    return SBIT_OK;
}

static sbit_status sbit__nhwc_pool_expand(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    static const char *const drop[] = {NULL};
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const int32_t rank = sbit__expand_rank(&e, 0);
    int64_t first[SBIT_MAX_RANK] = {0}, last[SBIT_MAX_RANK] = {0};
    sbit_attr attrs[SBIT__MS_ATTRIBUTES];
    const size_t attr_count = sbit__expand_attrs(&e, drop, attrs);
    const sbit_value_id y = sbit__expand_value(&e, "pooled");
    if (rank < 3) {
        sbit__expand_fail(&e, SBIT_ERR_UNSUPPORTED, "the rank of its input is not known");
    }
    for (int32_t i = 1; i < rank; i++) {
        first[i] = i == 1 ? rank - 1 : i - 1;
        last[i] = i == rank - 1 ? 1 : i + 1;
    }
    const sbit_value_id x =
        sbit__expand_transpose(&e, e.node.inputs[0], first, rank, sbit__expand_none);
    sbit__expand_node(&e, "", "MaxPool", &x, 1, &y, 1, attrs, attr_count);
    (void)sbit__expand_transpose(&e, y, last, rank, sbit__expand_out(&e, 0));
    return e.status;
}

/* >>DynamicQuantizeLSTM(x, W, R, B?, lengths?, h?, c?, P?, W scale, W zero point, R scale, R zero
 * point): W and R are transposed integers. Computed in float: without the error that ONNX Runtime
 * makes in rounding x and h. */

static sbit_status sbit__quantized_lstm_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t hidden = sbit_node_int(call->node, "hidden_size", 0);
    SBIT__TRY(sbit__op_inputs(call, 3, 12, error));
    for (int32_t i = 8; i < 12; i++) {
        if (!sbit__op_has(call, i)) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
    }
    const sbit_type *x = call->in_type[0], *w = call->in_type[1];
    for (int32_t i = 0; i < 3; i++) {
        sbit_type *out = sbit__op_out(call, i, x->dtype, i == 0 ? 4 : 3);
        if (out == NULL || x->rank != 3 || w->rank != 3) {
            continue;
        }
        if (i == 0) {
            out->dims[0] = x->dims[0];
        }
        out->dims[i == 0 ? 1 : 0] = w->dims[0];
        out->dims[i == 0 ? 2 : 1] = x->dims[1];
        out->dims[i == 0 ? 3 : 2] = hidden > 0 ? sbit__dim(hidden) : sbit__dim_any();
    }
    return SBIT_OK;
}

/* (q - zero point) scale, transposed as LSTM has it. */
static sbit_value_id sbit__quantized_lstm_weights(sbit__expand *e, size_t input, size_t scale)
{
    static const int64_t row[3] = {0, 1, -1}, perm[3] = {0, 2, 1};
    const sbit_value_id none = sbit__expand_none;
    sbit_value_id zero = sbit__expand_cast(e, e->node.inputs[scale + 1], SBIT_F32);
    sbit_value_id w = sbit__expand_cast(e, e->node.inputs[input], SBIT_F32);
    zero = sbit__expand_reshape(e, zero, row, 3);
    w = sbit__expand_op(e, "Sub", w, zero, NULL, none);
    w = sbit__expand_op(e, "Mul", w, sbit__expand_reshape(e, e->node.inputs[scale], row, 3), NULL,
                        none);
    return sbit__expand_transpose(e, w, perm, 3, none);
}

static sbit_status sbit__quantized_lstm_expand(sbit_graph *graph, sbit_node_id id,
                                               sbit_error *error)
{
    static const char *const drop[] = {NULL};
    sbit__expand e = sbit__expand_begin(graph, id, error);
    sbit_value_id inputs[8];
    sbit_attr attrs[SBIT__MS_ATTRIBUTES];
    const size_t attr_count = sbit__expand_attrs(&e, drop, attrs);
    for (size_t i = 0; i < 8; i++) {
        inputs[i] = sbit__expand_in(&e, i);
    }
    inputs[1] = sbit__quantized_lstm_weights(&e, 1, 8);
    inputs[2] = sbit__quantized_lstm_weights(&e, 2, 10);
    sbit__expand_node(&e, "", "LSTM", inputs, 8, e.node.outputs, e.node.output_count, attrs,
                      attr_count);
    return e.status;
}

/* ---- rows */

#define SBIT__MS_ROTARY (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16))
#define SBIT__MS_FLOATS (SBIT__MS_ROTARY | SBIT_T(SBIT_F64))
#define SBIT__MS_IDS (SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64))
#define SBIT__MS_BYTES (SBIT_T(SBIT_U8) | SBIT_T(SBIT_I8))
#define SBIT__MS_ROW(name, types, infer, expand)                                                   \
    {                                                                                              \
        SBIT__MS, name, 1, types, (types) == SBIT__MS_BYTES ? SBIT_OP_INTEGERS : 0, 0, infer,      \
            NULL, NULL, NULL, expand, NULL, NULL, NULL                                             \
    }

static const sbit_op_row sbit__ms_rows[] = {
    SBIT__MS_ROW("FusedConv", SBIT__MS_FLOATS, sbit__fused_conv_infer, sbit__fused_expand),
    SBIT__MS_ROW("FusedGemm", SBIT__MS_FLOATS, sbit__fused_gemm_infer, sbit__fused_expand),
    SBIT__MS_ROW("FusedMatMul", SBIT__MS_FLOATS, sbit__fused_matmul_infer,
                 sbit__fused_matmul_expand),
    SBIT__MS_ROW("TransposeMatMul", SBIT__MS_FLOATS, sbit__fused_matmul_infer,
                 sbit__fused_matmul_expand),
    SBIT__MS_ROW("BiasGelu", SBIT__MS_FLOATS, sbit__ms_infer_same, sbit__bias_gelu_expand),
    SBIT__MS_ROW("FastGelu", SBIT__MS_FLOATS, sbit__ms_infer_same, sbit__bias_gelu_expand),
    SBIT__MS_ROW("QuickGelu", SBIT__MS_FLOATS, sbit__ms_infer_same, sbit__quick_gelu_expand),
    SBIT__MS_ROW("BiasSoftmax", SBIT__MS_FLOATS, sbit__ms_infer_same, sbit__bias_softmax_expand),
    SBIT__MS_ROW("SkipLayerNormalization", SBIT__MS_FLOATS, sbit__skip_norm_infer,
                 sbit__skip_norm_expand),
    SBIT__MS_ROW("SkipSimplifiedLayerNormalization", SBIT__MS_FLOATS, sbit__skip_norm_infer,
                 sbit__skip_norm_expand),
    SBIT__MS_ROW("EmbedLayerNormalization", SBIT__MS_IDS, sbit__embed_norm_infer,
                 sbit__embed_norm_expand),
    SBIT__MS_ROW("Attention", SBIT__MS_FLOATS, sbit__attention_ms_infer, sbit__attention_ms_expand),
    SBIT__MS_ROW("QAttention", SBIT__MS_BYTES, sbit__attention_ms_infer, sbit__attention_ms_expand),
    SBIT__MS_ROW("MultiHeadAttention", SBIT__MS_FLOATS, sbit__mha_infer, sbit__mha_expand),
    SBIT__MS_ROW("GroupQueryAttention", SBIT__MS_ROTARY, sbit__gqa_infer, sbit__gqa_expand),
    SBIT__MS_ROW("RotaryEmbedding", SBIT__MS_ROTARY, sbit__rotary_ms_infer, sbit__rotary_ms_expand),
    SBIT__MS_ROW("NhwcMaxPool", SBIT__MS_BYTES, sbit__nhwc_pool_infer, sbit__nhwc_pool_expand),
    {SBIT__MS, "DynamicQuantizeLSTM", 1, SBIT_T(SBIT_F32), SBIT_OP_OMITS, 0,
     sbit__quantized_lstm_infer, NULL, NULL, NULL, sbit__quantized_lstm_expand, NULL, NULL, NULL},
};

#undef SBIT__MS_ROW
#undef SBIT__MS_FLOATS
#undef SBIT__MS_ROTARY
#undef SBIT__MS_IDS
#undef SBIT__MS_BYTES
#undef SBIT__MS

SBIT__FN const sbit_op_row *sbit__op_rows_microsoft(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__ms_rows);
    return sbit__ms_rows;
}

#endif /* SPARSEBIT_NO_OPS_MICROSOFT */
