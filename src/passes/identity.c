/* identity.c: nodes that change nothing go; two in a row that are one become one. >>pass-identity
 *
 * A shape counts as the same only if inference proves it (numbers or symbols), never because the
 * model declares it.
 */
#include "passes_private.h"

static const sbit_type *sbit__ident_type(const sbit__rewrite *rw, sbit_value_id id)
{
    return sbit__facts_type(&rw->facts, id);
}

static bool sbit__ident_same_shape(const sbit__rewrite *rw, const sbit_node *node)
{
    return node->input_count > 0 && node->output_count > 0 &&
           sbit__same_dims(sbit__ident_type(rw, node->inputs[0]),
                           sbit__ident_type(rw, node->outputs[0]));
}

static sbit_status sbit__ident_always(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    return sbit__bypass(rw, node, sbit__node_in(node, 0), error);
}

/* Reshape, Flatten, Squeeze, Unsqueeze, Expand, Resize and Slice keep every element in its place
 * when the shape stays. (Slice with negative steps reverses.) */
static sbit_status sbit__ident_if_same_shape(sbit__rewrite *rw, const sbit_node *node,
                                             sbit_error *error)
{
    return sbit__ident_same_shape(rw, node) ? sbit__bypass(rw, node, node->inputs[0], error)
                                            : SBIT_OK;
}

/* >>Dropout: at inference the input, unless training_mode is, or may be, true; kept for training. */
static sbit_status sbit__ident_dropout(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_value_id training = sbit__node_in(node, 2);
    const sbit_tensor *mode = sbit__const_in(rw->graph, node, 2);
    if (training.idx != 0 && (mode == NULL || sbit__tensor_f64_at(mode, 0) != 0.0)) {
        return SBIT_OK;
    }
    if (rw->desc->keep_dropout || (rw->opset < 7 && sbit_node_int(node, "is_test", 0) == 0)) {
        return SBIT_OK;
    }
    return sbit__bypass(rw, node, sbit__node_in(node, 0), error);
}

/* >>Cast */

/* Every value of `from` is one of `to`. */
static bool sbit__ident_lossless(sbit_dtype from, sbit_dtype to)
{
    static const struct {
        sbit_dtype from;
        uint32_t to;
    } rows[] = {
        {SBIT_BOOL, SBIT_T_NUMBERS},
        {SBIT_U8, SBIT_T_FLOATS | SBIT_T(SBIT_U16) | SBIT_T(SBIT_I16) | SBIT_T(SBIT_U32) |
                      SBIT_T(SBIT_I32) | SBIT_T(SBIT_U64) | SBIT_T(SBIT_I64)},
        {SBIT_I8, SBIT_T_FLOATS | SBIT_T(SBIT_I16) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64)},
        {SBIT_U16, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT_T(SBIT_U32) | SBIT_T(SBIT_I32) |
                       SBIT_T(SBIT_U64) | SBIT_T(SBIT_I64)},
        {SBIT_I16, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64)},
        {SBIT_U32, SBIT_T(SBIT_F64) | SBIT_T(SBIT_U64) | SBIT_T(SBIT_I64)},
        {SBIT_I32, SBIT_T(SBIT_F64) | SBIT_T(SBIT_I64)},
        {SBIT_F16, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64)},
        {SBIT_BF16, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64)},
        {SBIT_F32, SBIT_T(SBIT_F64)},
    };
    if (from == to) {
        return true;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(rows); i++) {
        if (rows[i].from == from) {
            return (rows[i].to & SBIT_T(to)) != 0;
        }
    }
    return false;
}

static sbit_status sbit__ident_cast(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_value_id x = sbit__node_in(node, 0);
    const sbit_dtype from = sbit__ident_type(rw, x)->dtype;
    const sbit_dtype to = (sbit_dtype)sbit_node_int(node, "to", 0);
    const sbit_node *before = sbit__producer(rw->graph, x);
    if (rw->opset < 6 || to == SBIT_UNDEFINED || from == SBIT_UNDEFINED) {
        return SBIT_OK;
    }
    if (from == to) {
        return sbit__bypass(rw, node, x, error);
    }
    /* a -> b -> c is a -> c if nothing is lost on the way to b. */
    if (sbit__is_op(before, "Cast") && before->input_count == 1) {
        const sbit_dtype first = sbit__ident_type(rw, before->inputs[0])->dtype;
        if (first != SBIT_UNDEFINED && sbit__ident_lossless(first, from)) {
            SBIT__TRY(sbit_graph_set_node_input(rw->graph, node->id, 0, before->inputs[0], error));
            rw->changes++;
        }
    }
    return SBIT_OK;
}

/* CastLike only needs the type of its second input. */
static sbit_status sbit__ident_cast_like(sbit__rewrite *rw, const sbit_node *node,
                                         sbit_error *error)
{
    const sbit_dtype to = sbit__ident_type(rw, sbit__node_in(node, 1))->dtype;
    const sbit_attr *saturate = sbit_node_attr(node, "saturate");
    sbit_attr attrs[2];
    if (to == SBIT_UNDEFINED) {
        return SBIT_OK;
    }
    attrs[0] = sbit__attr_int("to", (int64_t)to);
    attrs[1] = saturate != NULL ? *saturate : attrs[0];
    SBIT__TRY(sbit__replace_node(rw->graph, node, "Cast", node->inputs, 1, attrs,
                                 saturate != NULL ? 2 : 1, 1, error));
    rw->changes++;
    return SBIT_OK;
}

/* >>Transpose */

/* The permutation; false if it cannot be told. */
static bool sbit__ident_perm(const sbit__rewrite *rw, const sbit_node *node, int64_t *perm,
                             int64_t *rank)
{
    const sbit_type *type = sbit__ident_type(rw, sbit__node_in(node, 0));
    if (sbit__node_ints(rw->graph, node, "perm", SIZE_MAX, perm, SBIT_MAX_RANK, rank)) {
        return type->rank < 0 || type->rank == *rank;
    }
    if (sbit_node_attr(node, "perm") != NULL || type->rank < 0) {
        return false;
    }
    *rank = type->rank;
    for (int64_t i = 0; i < *rank; i++) {
        perm[i] = *rank - 1 - i;
    }
    return true;
}

/* Axes that hold more than one index keep their order, so no element moves. */
static bool sbit__ident_perm_is_reshape(const sbit_type *type, const int64_t *perm, int64_t rank)
{
    int64_t last = -1;
    for (int64_t i = 0; i < rank; i++) {
        const bool one = type->rank == rank && sbit__dim_known(type->dims[perm[i]]) &&
                         type->dims[perm[i]].value == 1;
        if (!one && perm[i] < last) {
            return false;
        }
        last = one ? last : perm[i];
    }
    return true;
}

static sbit_status sbit__ident_transpose(sbit__rewrite *rw, const sbit_node *node,
                                         sbit_error *error)
{
    const sbit_value_id x = sbit__node_in(node, 0);
    const sbit_node *before = sbit__producer(rw->graph, x);
    int64_t perm[SBIT_MAX_RANK], inner[SBIT_MAX_RANK], rank = 0, inner_rank = 0;
    sbit_attr attr;
    bool straight = true;
    if (!sbit__ident_perm(rw, node, perm, &rank)) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < rank; i++) {
        straight = straight && perm[i] == i;
        if (perm[i] < 0 || perm[i] >= rank) {
            return SBIT_OK;
        }
    }
    if (straight || (sbit__ident_same_shape(rw, node) &&
                     sbit__ident_perm_is_reshape(sbit__ident_type(rw, x), perm, rank))) {
        return sbit__bypass(rw, node, x, error);
    }
    if (!sbit__is_op(before, "Transpose") || !sbit__ident_perm(rw, before, inner, &inner_rank) ||
        inner_rank != rank) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < rank; i++) {
        perm[i] = inner[perm[i]];
    }
    attr = sbit__attr_ints("perm", perm, (size_t)rank);
    SBIT__TRY(
        sbit__replace_node(rw->graph, node, "Transpose", before->inputs, 1, &attr, 1, 1, error));
    rw->changes++;
    return SBIT_OK;
}

/* >>Reshape */

static bool sbit__ident_is_view(const sbit_node *node)
{
    return sbit__is_op(node, "Reshape") || sbit__is_op(node, "Flatten") ||
           sbit__is_op(node, "Squeeze") || sbit__is_op(node, "Unsqueeze");
}

/* The target shape `to` of a Reshape of `x`, with 0 for dims that are copied and at most one -1;
 * false if that cannot be said. */
static bool sbit__ident_target(const sbit_type *x, const sbit_type *to, int64_t *target)
{
    int64_t unknown = 0;
    if (x->rank < 0 || to->rank < 0 || to->rank > SBIT_MAX_RANK) {
        return false;
    }
    for (int32_t i = 0; i < to->rank; i++) {
        if (sbit__dim_known(to->dims[i])) {
            target[i] = to->dims[i].value;
            if (target[i] == 0) {
                return false;
            }
        } else if (i < x->rank && sbit__dim_equal(x->dims[i], to->dims[i])) {
            target[i] = 0;
        } else {
            target[i] = -1;
            unknown++;
        }
    }
    return unknown <= 1;
}

/* Reshape, Flatten, Squeeze or Unsqueeze behind another of them is one Reshape. Only where the
 * first one has no other use, so that nothing is kept alive for longer. */
static sbit_status sbit__ident_view_chain(sbit__rewrite *rw, const sbit_node *node,
                                          sbit_error *error)
{
    const sbit_node *before = sbit__producer(rw->graph, sbit__node_in(node, 0));
    const sbit_type *x = NULL, *to = NULL;
    int64_t target[SBIT_MAX_RANK];
    sbit_value_id inputs[2];
    if (sbit__ident_same_shape(rw, node)) {
        return sbit__bypass(rw, node, node->inputs[0], error);
    }
    if (rw->opset < 5 || !sbit__ident_is_view(before) || node->output_count != 1 ||
        !sbit__sole_use(rw->graph, before->outputs[0])) {
        return SBIT_OK;
    }
    x = sbit__ident_type(rw, before->inputs[0]);
    to = sbit__ident_type(rw, node->outputs[0]);
    if (sbit__same_dims(x, to)) {
        return sbit__bypass(rw, node, before->inputs[0], error);
    }
    if (!sbit__ident_target(x, to, target)) {
        return SBIT_OK;
    }
    inputs[0] = before->inputs[0];
    SBIT__TRY(sbit__add_ints(rw->graph, "shape", target, to->rank, &inputs[1], error));
    SBIT__TRY(sbit__replace_node(rw->graph, node, "Reshape", inputs, 2, NULL, 0, 1, error));
    rw->changes++;
    return SBIT_OK;
}

/* >>Slice, Pad, Concat, Resize */

static sbit_status sbit__ident_slice(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    int64_t values[SBIT_MAX_RANK], ends[SBIT_MAX_RANK], count = 0, end_count = 0;
    const bool has_steps = rw->opset >= 10 && sbit__node_in(node, 4).idx != 0;
    if (has_steps) {
        if (!sbit__node_ints(rw->graph, node, NULL, 4, values, SBIT_MAX_RANK, &count)) {
            return SBIT_OK;
        }
        for (int64_t i = 0; i < count; i++) {
            if (values[i] != 1) {
                return SBIT_OK;
            }
        }
    }
    if (sbit__ident_same_shape(rw, node)) {
        return sbit__bypass(rw, node, node->inputs[0], error);
    }
    /* From 0 to "the end", whatever that is. */
    if (rw->opset < 10 ||
        !sbit__node_ints(rw->graph, node, NULL, 1, values, SBIT_MAX_RANK, &count) ||
        !sbit__node_ints(rw->graph, node, NULL, 2, ends, SBIT_MAX_RANK, &end_count) ||
        end_count != count) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        if (values[i] != 0 || ends[i] < INT32_MAX) {
            return SBIT_OK;
        }
    }
    return sbit__bypass(rw, node, node->inputs[0], error);
}

static sbit_status sbit__ident_pad(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    int64_t pads[4 * SBIT_MAX_RANK], count = 0;
    if (!sbit__node_ints(rw->graph, node, rw->opset < 11 ? "pads" : NULL,
                         rw->opset < 11 ? SIZE_MAX : 1, pads, 2 * SBIT_MAX_RANK, &count)) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        if (pads[i] != 0) {
            return SBIT_OK;
        }
    }
    return sbit__bypass(rw, node, node->inputs[0], error);
}

static sbit_status sbit__ident_single(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    return node->input_count == 1 && node->inputs[0].idx != 0
               ? sbit__bypass(rw, node, node->inputs[0], error)
               : SBIT_OK;
}

/* All scales 1, or sizes equal to the input's: every mode gives the input back, but cropping. */
static sbit_status sbit__ident_resize(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const char *mode = sbit_node_string(node, "coordinate_transformation_mode", "half_pixel");
    const sbit_tensor *scales = NULL;
    const bool upsample = sbit__is_op(node, "Upsample");
    if (rw->opset < 10 && !upsample) {
        return SBIT_OK;
    }
    if (strcmp(mode, "tf_crop_and_resize") == 0 || strcmp(mode, "tf_half_pixel_for_nn") == 0 ||
        sbit_node_int(node, "exclude_outside", 0) != 0) {
        return SBIT_OK;
    }
    scales = sbit__const_in(rw->graph, node, upsample || rw->opset == 10 ? 1 : 2);
    for (int64_t i = 0; scales != NULL && i < sbit_tensor_count(scales); i++) {
        if (sbit__tensor_f64_at(scales, i) != 1.0) {
            return SBIT_OK;
        }
    }
    if (scales != NULL && sbit_tensor_count(scales) > 0) {
        return sbit__bypass(rw, node, node->inputs[0], error);
    }
    return !upsample && sbit__node_in(node, 3).idx != 0 ? sbit__ident_if_same_shape(rw, node, error)
                                                        : SBIT_OK;
}

/* >>arithmetic with a neutral element */

/* x op c, where c is a constant all of whose elements are `neutral` and that does not make the
 * result larger. c op x only if the operator commutes. */
static sbit_status sbit__ident_neutral(sbit__rewrite *rw, const sbit_node *node, double neutral,
                                       bool commutes, sbit_error *error)
{
    if (rw->opset < 7 || node->input_count != 2 || node->output_count != 1) {
        return SBIT_OK;
    }
    for (size_t side = 0; side < 2; side++) {
        const sbit_tensor *c = sbit__const_in(rw->graph, node, side);
        const sbit_value_id x = node->inputs[1 - side];
        const int64_t count = c != NULL ? sbit_tensor_count(c) : 0;
        bool same = count > 0 && count <= 65536 && (side == 1 || commutes) &&
                    c->dtype != SBIT_STRING && c->dtype != SBIT_BOOL;
        same = same && x.idx != 0 &&
               (sbit__same_dims(sbit__ident_type(rw, x), sbit__ident_type(rw, node->outputs[0])) ||
                (c->rank == 0));
        for (int64_t i = 0; same && i < count; i++) {
            same = sbit__tensor_f64_at(c, i) == neutral;
        }
        if (same) {
            return sbit__bypass(rw, node, x, error);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__ident_add(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    return sbit__ident_neutral(rw, node, 0.0, true, error);
}

static sbit_status sbit__ident_sub(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    return sbit__ident_neutral(rw, node, 0.0, false, error);
}

static sbit_status sbit__ident_mul(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    return sbit__ident_neutral(rw, node, 1.0, true, error);
}

static sbit_status sbit__ident_div(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    return sbit__ident_neutral(rw, node, 1.0, false, error);
}

static sbit_status sbit__ident_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                   int64_t *changes, sbit_error *error)
{
    static const sbit__rule rules[] = {
        {"Identity", sbit__ident_always},
        {"Dropout", sbit__ident_dropout},
        {"Cast", sbit__ident_cast},
        {"CastLike", sbit__ident_cast_like},
        {"Expand", sbit__ident_if_same_shape},
        {"Tile", sbit__ident_if_same_shape},
        {"Reshape", sbit__ident_view_chain},
        {"Flatten", sbit__ident_view_chain},
        {"Squeeze", sbit__ident_view_chain},
        {"Unsqueeze", sbit__ident_view_chain},
        {"Transpose", sbit__ident_transpose},
        {"Slice", sbit__ident_slice},
        {"Pad", sbit__ident_pad},
        {"Concat", sbit__ident_single},
        {"Sum", sbit__ident_single},
        {"Max", sbit__ident_single},
        {"Min", sbit__ident_single},
        {"Mean", sbit__ident_single},
        {"Resize", sbit__ident_resize},
        {"Upsample", sbit__ident_resize},
        {"Add", sbit__ident_add},
        {"Sub", sbit__ident_sub},
        {"Mul", sbit__ident_mul},
        {"Div", sbit__ident_div},
    };
    return sbit__apply_rules(graph, desc, rules, SBIT__COUNT_OF(rules), changes, error);
}

SBIT__FN const sbit_pass_row *sbit__pass_identity(void)
{
    static const sbit_pass_row row = {
        {"identity", "removes nodes that change nothing, joins two that are one", 0, NULL, 0},
        false,
        sbit__ident_run};
    return &row;
}
