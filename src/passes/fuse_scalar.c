/* fuse_scalar.c: Mul, Add, Sub and Div by constants per channel into the linear node before, or
 * the Conv behind; MatMul with a bias as Gemm. >>pass-fuse-scalar
 *
 * Behind Conv and ConvTranspose the constant must vary along axis 1 only ([1,C,1,1], [C,1,1], one
 * number), behind Gemm and MatMul along the last axis. Weights that other nodes use too are left
 * alone: they would be stored twice.
 */
#include "passes_private.h"

/* >>constants per channel */

/* The one axis along which the constant varies, counted from the right (0: the last); -1: it is
 * one number; -2: there are several. */
static int32_t sbit__scalar_axis(const sbit_tensor *tensor)
{
    int32_t axis = -1;
    for (int32_t i = 0; i < tensor->rank; i++) {
        if (tensor->dims[i] != 1) {
            if (axis != -1) {
                return -2;
            }
            axis = tensor->rank - 1 - i;
        }
    }
    return axis;
}

/* y op c or c op y as scale and shift; false for c / y. */
static bool sbit__scalar_pair(const sbit_node *node, size_t side, double c, double *scale,
                              double *shift)
{
    if (sbit__is_op(node, "Mul")) {
        *scale = c;
    } else if (sbit__is_op(node, "Add")) {
        *shift = c;
    } else if (sbit__is_op(node, "Sub")) { /* side: where y is */
        *scale = side == 0 ? 1.0 : -1.0;
        *shift = side == 0 ? -c : c;
    } else if (side == 0 && c != 0.0) {
        *scale = 1.0 / c;
    } else {
        return false;
    }
    return *scale <= DBL_MAX && *scale >= -DBL_MAX && *shift <= DBL_MAX && *shift >= -DBL_MAX;
}

static bool sbit__scalar_linear(const sbit__rewrite *rw, const sbit_node *node)
{
    const char *const names[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    for (size_t i = 0; i < SBIT__COUNT_OF(names); i++) {
        if (sbit__is_op(node, names[i])) {
            return sbit__const_in(rw->graph, node, 1) != NULL &&
                   sbit__sole_use(rw->graph, node->inputs[1]);
        }
    }
    /* MatMul, Add: the Add is the bias. */
    for (size_t i = 0; sbit__is_op(node, "Add") && i < 2 && node->input_count == 2; i++) {
        const sbit_node *inner = sbit__sole_producer(rw->graph, node->inputs[i], "MatMul");
        if (inner != NULL && sbit__const_in(rw->graph, node, 1 - i) != NULL) {
            return sbit__const_in(rw->graph, inner, 1) != NULL &&
                   sbit__sole_use(rw->graph, inner->inputs[1]);
        }
    }
    return false;
}

/* Where the channels of the linear node's output lie, counted from the right; -1: not known. */
static int32_t sbit__scalar_channel_axis(const sbit__rewrite *rw, const sbit_node *linear)
{
    if (sbit__is_op(linear, "Conv") || sbit__is_op(linear, "ConvTranspose")) {
        return sbit__const_in(rw->graph, linear, 1)->rank - 2;
    }
    return 0;
}

static sbit_status sbit__scalar_side(sbit__rewrite *rw, const sbit_node *node, size_t side,
                                     sbit_error *error)
{
    const sbit_node *linear = sbit__producer(rw->graph, node->inputs[side]);
    const sbit_tensor *c = sbit__const_in(rw->graph, node, 1 - side);
    const sbit_type *type = sbit__facts_type(&rw->facts, node->inputs[side]);
    sbit__affine affine;
    int32_t axis = 0;
    if (c == NULL || linear == NULL || !sbit__is_float(c->dtype) || sbit_tensor_count(c) == 0 ||
        type->rank < 0 || c->rank > type->rank || !sbit__scalar_linear(rw, linear)) {
        return SBIT_OK;
    }
    axis = sbit__scalar_axis(c);
    if (axis != -1 && axis != sbit__scalar_channel_axis(rw, linear)) {
        return SBIT_OK;
    }
    /* A bias of a bare MatMul is an Add already. */
    if (sbit__is_op(linear, "MatMul") && (sbit__is_op(node, "Add") || sbit__is_op(node, "Sub"))) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__affine_init(rw, &affine, sbit_tensor_count(c), error));
    for (int64_t i = 0; i < affine.count; i++) {
        if (!sbit__scalar_pair(node, side, sbit__tensor_f64_at(c, i), &affine.scale[i],
                               &affine.shift[i])) {
            return SBIT_OK;
        }
    }
    return sbit__affine_into(rw, linear, node, &affine, sbit__scalar_channel_axis(rw, linear) == 0,
                             error);
}

/* x * clip(x + 3, 0, 6) / 6 should be found as HardSwish, now or after the opset is raised: the
 * factor behind a product of two activations stays with it. */
static bool sbit__scalar_of_product(const sbit__rewrite *rw, sbit_value_id id)
{
    const sbit_node *node = sbit__producer(rw->graph, id);
    return sbit__is_op(node, "Mul") && sbit__const_in(rw->graph, node, 0) == NULL &&
           sbit__const_in(rw->graph, node, 1) == NULL;
}

/* The same for the Conv behind, if it alone uses the result. */
static sbit_status sbit__scalar_front(sbit__rewrite *rw, const sbit_node *node, size_t side,
                                      sbit_error *error)
{
    const sbit_tensor *c = sbit__const_in(rw->graph, node, 1 - side);
    const sbit_type *type = sbit__facts_type(&rw->facts, node->inputs[side]);
    const sbit_node *conv = NULL;
    sbit__affine affine;
    sbit_use use;
    if (c == NULL || !sbit__is_float(c->dtype) || sbit_tensor_count(c) == 0 || type->rank < 3 ||
        c->rank > type->rank || !sbit__sole_use(rw->graph, node->outputs[0]) ||
        sbit_graph_uses(rw->graph, node->outputs[0], &use, 1) != 1 || use.index != 0) {
        return SBIT_OK;
    }
    conv = sbit_graph_node(rw->graph, use.node);
    if (!sbit__is_op(conv, "Conv") || !sbit__scalar_linear(rw, conv) ||
        sbit__scalar_of_product(rw, node->inputs[side]) ||
        (sbit__scalar_axis(c) != -1 && (sbit__scalar_axis(c) != type->rank - 2 ||
                                        sbit__known_product(type, 1, 2) != sbit_tensor_count(c)))) {
        return SBIT_OK; /* also where the constant has more channels than x */
    }
    SBIT__TRY(sbit__affine_init(rw, &affine, sbit_tensor_count(c), error));
    for (int64_t i = 0; i < affine.count; i++) {
        if (!sbit__scalar_pair(node, side, sbit__tensor_f64_at(c, i), &affine.scale[i],
                               &affine.shift[i])) {
            return SBIT_OK;
        }
    }
    return sbit__affine_from(rw, node, node->inputs[side], conv, &affine, error);
}

static sbit_status sbit__scalar_fold(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const int64_t changes = rw->changes;
    if (rw->opset < 7 || node->input_count != 2 || node->inputs[0].idx == 0 ||
        node->inputs[1].idx == 0) {
        return SBIT_OK;
    }
    for (size_t side = 0; side < 2 && rw->changes == changes; side++) {
        SBIT__TRY(sbit__scalar_side(rw, node, side, error));
    }
    for (size_t side = 0; side < 2 && rw->changes == changes; side++) {
        SBIT__TRY(sbit__scalar_front(rw, node, side, error));
    }
    return SBIT_OK;
}

/* >>Gemm */

/* Add(MatMul(A[M,K], B[K,N]), c) with constants B and c[N] is Gemm(A, B, c). */
static sbit_status sbit__scalar_gemm(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    for (size_t side = 0; side < 2 && rw->opset >= 7 && node->input_count == 2; side++) {
        const sbit_node *matmul = sbit__sole_producer(rw->graph, node->inputs[side], "MatMul");
        const sbit_tensor *c = sbit__const_in(rw->graph, node, 1 - side);
        const sbit_tensor *b = matmul != NULL ? sbit__const_in(rw->graph, matmul, 1) : NULL;
        sbit_value_id inputs[3];
        if (b == NULL || c == NULL || b->rank != 2 || c->dtype != b->dtype ||
            !sbit__is_float(b->dtype) || c->rank < 1 || c->rank > 2 ||
            sbit_tensor_count(c) != b->dims[1] || c->dims[c->rank - 1] != b->dims[1] ||
            sbit__facts_type(&rw->facts, matmul->inputs[0])->rank != 2) {
            continue;
        }
        inputs[0] = matmul->inputs[0];
        inputs[1] = matmul->inputs[1];
        inputs[2] = node->inputs[1 - side];
        SBIT__TRY(sbit__replace_node(rw->graph, node, "Gemm", inputs, 3, NULL, 0, 1, error));
        sbit__erase_unused(rw->graph, matmul);
        rw->changes++;
        return SBIT_OK;
    }
    return SBIT_OK;
}

static sbit_status sbit__scalar_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                    int64_t *changes, sbit_error *error)
{
    static const sbit__rule rules[] = {
        {"Add", sbit__scalar_gemm}, {"Mul", sbit__scalar_fold}, {"Add", sbit__scalar_fold},
        {"Sub", sbit__scalar_fold}, {"Div", sbit__scalar_fold},
    };
    return sbit__apply_rules(graph, desc, rules, SBIT__COUNT_OF(rules), changes, error);
}

SBIT__FN const sbit_pass_row *sbit__pass_fuse_scalar(void)
{
    static const sbit_pass_row row = {
        {"fuse_scalar", "constant factors and terms per channel into the linear node beside", 0,
         NULL, 0},
        false,
        sbit__scalar_run};
    return &row;
}
