/* lower_heads.c: attention in pieces becomes the operator. >>lower-heads
 *
 * Called by: lower. Calls: graph.
 * x [N, L, 3 H D] - Reshape [N, L, 3, H, D] - Transpose [3, N, H, L, D] holds queries, keys and values. Where
 * MatMul(Softmax(scale * MatMul(q, Transpose(k))), v) - Transpose - Reshape [N, L, H D] is made of them,
 * sbit Attention reads all three where they lie in x (attribute packed). The scale may stand at q, k or
 * the product, more than once; a part is a Slice and Squeeze or a Gather. Only float32.
 */
#include "lower_private.h"

#if !SPARSEBIT_NO_OPS_ATTENTION

#define SBIT__HEADS_NODES 24

typedef struct sbit__heads {
    const sbit__lowering *lower;
    sbit_node_id nodes[SBIT__HEADS_NODES];
    size_t count;
    float scale;
    sbit_value_id parts; /* [3, N, H, L, D] */
} sbit__heads;

/* The node that makes `id`, if it is that operator; it is listed. */
static const sbit_node *sbit__heads_back(sbit__heads *heads, sbit_value_id id, const char *op_type)
{
    const sbit_node *node = sbit__lower_producer(heads->lower, id);
    if (node == NULL || !sbit__lower_is(heads->lower, node, op_type) || node->input_count == 0 ||
        heads->count == SBIT__HEADS_NODES) {
        return NULL;
    }
    heads->nodes[heads->count++] = node->id;
    return node;
}

/* The node that alone reads `id`, likewise. */
static const sbit_node *sbit__heads_on(sbit__heads *heads, sbit_value_id id, const char *op_type)
{
    const sbit_node *node = sbit__lower_user(heads->lower, id);
    if (node == NULL || !sbit__lower_is(heads->lower, node, op_type) || node->output_count != 1 ||
        node->inputs[0].idx != id.idx || heads->count == SBIT__HEADS_NODES) {
        return NULL;
    }
    heads->nodes[heads->count++] = node->id;
    return node;
}

static bool sbit__heads_turns(const sbit_node *node, const char *digits)
{
    const sbit_attr *perm = node != NULL ? sbit_node_attr(node, "perm") : NULL;
    bool same = perm != NULL && perm->count == strlen(digits);
    for (size_t i = 0; same && i < perm->count; i++) {
        same = perm->ints[i] == digits[i] - '0';
    }
    return same;
}

/* A constant of one integer. */
static int64_t sbit__heads_number(const sbit__heads *heads, sbit_value_id id, int64_t otherwise)
{
    const sbit_tensor *tensor = sbit__lower_constant(heads->lower, id);
    return tensor != NULL && tensor->dtype == SBIT_I64 && sbit_tensor_count(tensor) == 1
               ? sbit__tensor_i64_at(tensor, 0)
               : otherwise;
}

/* Goes back over factors that are constants. */
static sbit_value_id sbit__heads_scaled(sbit__heads *heads, sbit_value_id id)
{
    float factor = 0.0f;
    for (;;) {
        const sbit_node *node = sbit__lower_producer(heads->lower, id);
        const bool div = node != NULL && sbit__lower_is(heads->lower, node, "Div");
        if (node == NULL || (!div && !sbit__lower_is(heads->lower, node, "Mul")) ||
            heads->count == SBIT__HEADS_NODES) {
            return id;
        }
        const size_t at = sbit__lower_scalar(heads->lower, node->inputs[1], &factor) ? 1 : 0;
        if ((at == 0 && (div || !sbit__lower_scalar(heads->lower, node->inputs[0], &factor))) ||
            sbit__lower_type(heads->lower, node->inputs[1 - at])->rank != 4) {
            return id;
        }
        heads->scale = div ? heads->scale / factor : heads->scale * factor;
        heads->nodes[heads->count++] = node->id;
        id = node->inputs[1 - at];
    }
}

/* `id` is part `index` of one tensor, the same for all parts. */
static bool sbit__heads_part(sbit__heads *heads, sbit_value_id id, int64_t index)
{
    sbit_value_id parts = {0};
    if (sbit__lower_type(heads->lower, id)->rank != 4) {
        return false;
    }
    const sbit_node *node = sbit__heads_back(heads, id, "Squeeze");
    if (node != NULL) {
        const sbit_attr *axes = sbit_node_attr(node, "axes");
        const bool first = axes != NULL ? axes->count == 1 && axes->ints[0] == 0
                                        : sbit__heads_number(heads, sbit__lower_in(node, 1), -1) == 0;
        node = first ? sbit__heads_back(heads, node->inputs[0], "Slice") : NULL;
        if (node != NULL && sbit__heads_number(heads, sbit__lower_in(node, 1), -1) == index &&
            sbit__heads_number(heads, sbit__lower_in(node, 2), -1) == index + 1 &&
            sbit__heads_number(heads, sbit__lower_in(node, 3), -1) == 0 &&
            (sbit__lower_in(node, 4).idx == 0 ||
             sbit__heads_number(heads, node->inputs[4], 0) == 1)) {
            parts = node->inputs[0];
        }
    } else {
        node = sbit__heads_back(heads, id, "Gather");
        if (node != NULL && sbit_node_int(node, "axis", 0) == 0 &&
            sbit__heads_number(heads, node->inputs[1], -1) == index) {
            parts = node->inputs[0];
        }
    }
    heads->parts = heads->parts.idx != 0 ? heads->parts : parts;
    return parts.idx != 0 && parts.idx == heads->parts.idx;
}

static bool sbit__heads_dim(sbit_dim dim, int64_t value)
{
    return sbit__dim_known(dim) && dim.value == value;
}

/* x, if the parts are made of it and `y` has the heads side by side; *count: of heads. */
static sbit_value_id sbit__heads_source(sbit__heads *heads, sbit_value_id y, int64_t *count)
{
    static const sbit_value_id none = {0};
    const sbit_node *turn = sbit__heads_back(heads, heads->parts, "Transpose");
    const sbit_node *split =
        sbit__heads_turns(turn, "20314") ? sbit__heads_back(heads, turn->inputs[0], "Reshape") : NULL;
    if (split == NULL) {
        return none;
    }
    const sbit_type *x = sbit__lower_type(heads->lower, split->inputs[0]);
    const sbit_type *apart = sbit__lower_type(heads->lower, split->outputs[0]);
    const sbit_type *out = sbit__lower_type(heads->lower, y);
    if (x->rank != 3 || apart->rank != 5 || out->rank != 3 || x->dtype != SBIT_F32 ||
        !sbit__dim_equal(x->dims[1], apart->dims[1]) ||
        !sbit__dim_equal(x->dims[1], out->dims[1]) || !sbit__heads_dim(apart->dims[2], 3) ||
        !sbit__dim_known(apart->dims[3]) || !sbit__dim_known(apart->dims[4])) {
        return none;
    }
    *count = apart->dims[3].value;
    const int64_t width = *count * apart->dims[4].value;
    return width > 0 && sbit__heads_dim(x->dims[2], 3 * width) && sbit__heads_dim(out->dims[2], width)
               ? split->inputs[0]
               : none;
}

static sbit_status sbit__lower_heads(sbit__lowering *lower, const sbit_node *softmax,
                                     sbit_error *error)
{
    sbit_value_id inputs[3];
    sbit__heads heads;
    sbit__lower_desc desc;
    sbit_attr attrs[4];
    int64_t count = 0;
    int32_t opset = 0;
    (void)sbit__op_row(lower->graph, softmax, &opset);
    const int64_t axis = sbit_node_int(softmax, "axis", opset >= 13 ? -1 : 1);
    memset(&heads, 0, sizeof heads);
    heads.lower = lower;
    heads.scale = 1.0f;
    heads.nodes[heads.count++] = softmax->id;
    const sbit_node *values = sbit__heads_on(&heads, softmax->outputs[0], "MatMul");
    if (values == NULL || (axis != -1 && axis != 3) ||
        sbit__lower_type(lower, softmax->outputs[0])->rank != 4) {
        return SBIT_OK;
    }
    const sbit_node *turn = sbit__heads_on(&heads, values->outputs[0], "Transpose");
    const sbit_node *join =
        sbit__heads_turns(turn, "0213") ? sbit__heads_on(&heads, turn->outputs[0], "Reshape") : NULL;
    const sbit_value_id scores = sbit__heads_scaled(&heads, softmax->inputs[0]);
    const sbit_node *product =
        join != NULL && sbit__lower_inner(lower, scores, 1) ? sbit__heads_back(&heads, scores, "MatMul") : NULL;
    const sbit_node *keys =
        product != NULL
            ? sbit__heads_back(&heads, sbit__heads_scaled(&heads, product->inputs[1]), "Transpose")
            : NULL;
    if (!sbit__heads_turns(keys, "0132") ||
        !sbit__heads_part(&heads, sbit__heads_scaled(&heads, product->inputs[0]), 0) ||
        !sbit__heads_part(&heads, sbit__heads_scaled(&heads, keys->inputs[0]), 1) ||
        !sbit__heads_part(&heads, values->inputs[1], 2)) {
        return SBIT_OK;
    }
    inputs[0] = inputs[1] = inputs[2] = sbit__heads_source(&heads, join->outputs[0], &count);
    if (inputs[0].idx == 0) {
        return SBIT_OK;
    }
    attrs[0] = sbit__attr_int("packed", 1);
    attrs[1] = sbit__attr_int("q_num_heads", count);
    attrs[2] = sbit__attr_int("kv_num_heads", count);
    attrs[3] = sbit__attr_float("scale", heads.scale);
    memset(&desc, 0, sizeof desc);
    desc.op_type = "Attention";
    desc.inputs = inputs;
    desc.input_count = 3;
    desc.outputs = join->outputs;
    desc.output_count = 1;
    desc.attrs = attrs;
    desc.attr_count = 4;
    desc.nodes = heads.nodes;
    desc.node_count = heads.count;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

#undef SBIT__HEADS_NODES

static const sbit__lower_entry sbit__lower_heads_table[] = {
    {"Softmax", sbit__lower_heads},
};

SBIT__FN const sbit__lower_entry *sbit__lower_entries_heads(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__lower_heads_table);
    return sbit__lower_heads_table;
}

#else

SBIT__FN const sbit__lower_entry *sbit__lower_entries_heads(size_t *count)
{
    *count = 0;
    return NULL;
}

#endif
