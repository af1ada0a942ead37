/* lower_layout.c: operators with channels last. >>lower-layout
 *
 * Called by: lower. Calls: graph.
 * An operator whose kernel wants channels last is put between ToLast and ToFirst. ToFirst then
 * wanders behind all operators that do not care (elementwise ones, quantizers, Concat and Split
 * with their axis moved, channel shuffles), until it meets ToLast and both go, or a result. So a
 * region of integer operators has these at its borders only. int8 becomes uint8 on the way (zero
 * point + 128), because kernels multiply uint8 with int8.
 */
#include "../ops/gradient_private.h"
#include "lower_private.h"

#define SBIT__LAYOUT_INPUTS 64
#define SBIT__LAYOUT_OUTPUTS 24
#define SBIT__LAYOUT_ATTRS 16
#define SBIT__LAYOUT_WINOGRAD 16             /* channels, at least */
#define SBIT__LAYOUT_WINOGRAD_OUT 8          /* the same of those that come out: a vector takes as long */
#define SBIT__LAYOUT_LARGE (768 * 1024)       /* bytes that had better not lie in memory */
#define SBIT__LAYOUT_QLARGE (64 * 1024)      /* bytes of integers, which would be copied, too */
#define SBIT__LAYOUT_USES 64                  /* of weights, among which a gradient is looked for */
#define SBIT__LAYOUT_FEW 8                   /* channels, at most, that a Conv puts last itself */
#define SBIT__LAYOUT_OWN (1536 * 1024)        /* of weights that stay in a core's cache */
#define SBIT__LAYOUT_CACHE (8 * 1024 * 1024)  /* bytes of weights that may come from memory */

/* >>looking */

static bool sbit__layout_is(const sbit_node *node, const char *op_type)
{
    return node != NULL && strcmp(node->domain, "sbit") == 0 && strcmp(node->op_type, op_type) == 0;
}

static bool sbit__layout_in(const sbit_node *node, const char *domain, const char *const *names)
{
    for (; strcmp(node->domain, domain) == 0 && *names != NULL; names++) {
        if (strcmp(node->op_type, *names) == 0) {
            return true;
        }
    }
    return false;
}

/* The value with channels last that `id` was made of by ToFirst; none. */
static sbit_value_id sbit__layout_source(const sbit__lowering *lower, sbit_value_id id)
{
    const sbit_node *node = sbit__lower_producer(lower, id);
    const sbit_value_id none = {0};
    return sbit__layout_is(node, "ToFirst") ? node->inputs[0] : none;
}

static void sbit__layout_type(sbit_type *type, bool to_last)
{
    const int32_t from = to_last ? 1 : type->rank - 1, to = to_last ? type->rank - 1 : 1;
    const sbit_dim channels = type->dims[from];
    for (int32_t i = from; i != to; i += to > from ? 1 : -1) {
        type->dims[i] = type->dims[i + (to > from ? 1 : -1)];
    }
    type->dims[to] = channels;
}

/* >>making */

/* A new value: `like` with channels last, int8 as uint8. */
static sbit_status sbit__layout_value(sbit__lowering *lower, sbit_value_id like, sbit_value_id *out,
                                      sbit_error *error)
{
    sbit_type type = *sbit__lower_type(lower, like);
    sbit__layout_type(&type, true);
    type.dtype = type.dtype == SBIT_I8 ? SBIT_U8 : type.dtype;
    return sbit_graph_add_value(lower->graph, sbit_graph_value(lower->graph, like)->name, &type,
                                out, error);
}

/* What a ToLast has made of `id` already; none. */
static sbit_value_id sbit__layout_made(const sbit__lowering *lower, sbit_value_id id)
{
    const sbit_value_id none = {0};
    const sbit_node *node = id.idx < lower->last_limit && lower->lasts[id.idx].idx != 0
                                ? sbit__lower_producer(lower, lower->lasts[id.idx])
                                : NULL;
    return sbit__layout_is(node, "ToLast") && node->inputs[0].idx == id.idx ? node->outputs[0] : none;
}

/* `id` with channels last: where it came from, or by a ToLast behind its maker or, of an input of the
 * graph, in front of the user. */
static sbit_status sbit__layout_last(sbit__lowering *lower, sbit_value_id id, const sbit_node *user,
                                     sbit_value_id *out, sbit_error *error)
{
    const sbit_node *maker = sbit__lower_producer(lower, id);
    sbit__lower_desc desc;
    *out = sbit__layout_source(lower, id);
    if (out->idx != 0) {
        return SBIT_OK;
    }
    *out = sbit__layout_made(lower, id);
    if (out->idx != 0 && sbit__lower_before(lower, sbit__lower_producer(lower, *out), user)) {
        return SBIT_OK;
    }
    const size_t known = lower->last_limit;
    SBIT__TRY(sbit__grow(&lower->ctx->allocator, (void **)&lower->lasts, &lower->last_limit,
                         (size_t)id.idx + 1, sizeof *lower->lasts, error));
    memset(lower->lasts + known, 0, (lower->last_limit - known) * sizeof *lower->lasts);
    SBIT__TRY(sbit__layout_value(lower, id, out, error));
    lower->lasts[id.idx] = *out;
    memset(&desc, 0, sizeof desc);
    desc.op_type = "ToLast";
    desc.inputs = &id;
    desc.input_count = 1;
    desc.outputs = out;
    desc.output_count = 1;
    desc.nodes = maker != NULL ? &maker->id : &user->id;
    desc.node_count = 1;
    desc.at = maker != NULL ? sbit_graph_next(lower->graph, maker->id) : user->id;
    return sbit__lower_insert(lower, &desc, NULL, error);
}

/* A zero point as uint8. */
static sbit_status sbit__layout_zero(sbit__lowering *lower, sbit_value_id *zero, sbit_error *error)
{
    const sbit_tensor *tensor = sbit__lower_constant(lower, *zero);
    sbit_tensor shifted;
    uint8_t octet = 0;
    if (tensor == NULL || tensor->dtype != SBIT_I8) {
        return SBIT_OK;
    }
    shifted = *tensor;
    octet = (uint8_t)(((const uint8_t *)tensor->data)[0] ^ 0x80u);
    shifted.dtype = SBIT_U8;
    shifted.data = &octet;
    return sbit_graph_add_constant(lower->graph, "zero_point", &shifted, zero, error);
}

/* A new node in the place of `node`: inputs are ready, outputs come with channels last and go
 * through ToFirst. */
typedef struct sbit__layout_build {
    const char *domain, *op_type;
    sbit_value_id inputs[SBIT__LAYOUT_INPUTS];
    sbit_attr attrs[SBIT__LAYOUT_ATTRS];
    size_t input_count, attr_count;
} sbit__layout_build;
typedef char sbit__layout_build_fits[sizeof(sbit__layout_build) <= SBIT__LOWER_WORK_BYTES ? 1 : -1];

static bool sbit__layout_copy(const sbit_node *node, sbit__layout_build *build)
{
    memset(build, 0, sizeof *build);
    if (node->input_count > SBIT__LAYOUT_INPUTS || node->attr_count + 2 > SBIT__LAYOUT_ATTRS ||
        node->output_count > SBIT__LAYOUT_OUTPUTS) {
        return false;
    }
    build->domain = node->domain;
    build->op_type = node->op_type;
    memcpy(build->inputs, node->inputs, node->input_count * sizeof build->inputs[0]);
    if (node->attr_count > 0) {
        memcpy(build->attrs, node->attrs, node->attr_count * sizeof build->attrs[0]);
    }
    build->input_count = node->input_count;
    build->attr_count = node->attr_count;
    return true;
}

static void sbit__layout_set(sbit__layout_build *build, const char *name, int64_t value)
{
    for (size_t i = 0; i < build->attr_count; i++) {
        if (strcmp(build->attrs[i].name, name) == 0) {
            build->attrs[i].i = value;
            return;
        }
    }
    build->attrs[build->attr_count++] = sbit__attr_int(name, value);
}

static sbit_status sbit__layout_first(sbit__lowering *lower, sbit_node_id node, sbit_value_id from,
                                      sbit_value_id to, sbit_error *error)
{
    sbit__lower_desc desc;
    sbit_attr attr = sbit__attr_int("to", (int64_t)sbit__lower_type(lower, to)->dtype);
    memset(&desc, 0, sizeof desc);
    desc.op_type = "ToFirst";
    desc.inputs = &from;
    desc.input_count = 1;
    desc.outputs = &to;
    desc.output_count = 1;
    desc.attrs = &attr;
    desc.attr_count = 1;
    desc.nodes = &node;
    desc.node_count = 1;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

static sbit_status sbit__layout_finish(sbit__lowering *lower, sbit_node_id id,
                                       const sbit__layout_build *build, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(lower->graph, id);
    sbit_value_id outputs[SBIT__LAYOUT_OUTPUTS], old[SBIT__LAYOUT_OUTPUTS];
    const size_t count = node->output_count;
    sbit__lower_desc desc;
    sbit_node_id made, last;
    for (size_t i = 0; i < count; i++) {
        old[i] = node->outputs[i];
        SBIT__TRY(sbit__layout_value(lower, old[i], &outputs[i], error));
    }
    memset(&desc, 0, sizeof desc);
    desc.domain = build->domain;
    desc.op_type = build->op_type;
    desc.inputs = build->inputs;
    desc.input_count = build->input_count;
    desc.outputs = outputs;
    desc.output_count = count;
    desc.attrs = build->attrs;
    desc.attr_count = build->attr_count;
    desc.nodes = &id;
    desc.node_count = 1;
    desc.at = id;
    SBIT__TRY(sbit__lower_insert(lower, &desc, &made, error));
    SBIT__TRY(sbit__layout_first(lower, id, outputs[0], old[0], error));
    for (size_t i = 1; i < count; i++) { /* the node is gone: they have its successor's origin */
        sbit_attr attr = sbit__attr_int("to", (int64_t)sbit__lower_type(lower, old[i])->dtype);
        last = sbit_graph_next(lower->graph, made);
        memset(&desc, 0, sizeof desc);
        desc.op_type = "ToFirst";
        desc.inputs = &outputs[i];
        desc.input_count = 1;
        desc.outputs = &old[i];
        desc.output_count = 1;
        desc.attrs = &attr;
        desc.attr_count = 1;
        desc.nodes = &made;
        desc.node_count = 1;
        desc.at = last;
        SBIT__TRY(sbit__lower_insert(lower, &desc, NULL, error));
    }
    return SBIT_OK;
}

static int64_t sbit__layout_dim(const sbit_type *type, int32_t axis, int64_t otherwise)
{
    return sbit__dim_known(type->dims[axis]) ? type->dims[axis].value : otherwise;
}

/* Of a value as it is expected, where elements have so many; 0: not known. */
static int64_t sbit__layout_size(const sbit__lowering *lower, sbit_value_id id, int64_t bytes)
{
    const sbit_type *type = sbit__lower_expected(lower, id);
    for (int32_t i = 0; i < type->rank; i++) {
        if (!sbit__mul_i64(bytes, sbit__layout_dim(type, i, i == 0 ? 1 : 0), &bytes)) {
            return 0;
        }
    }
    return bytes;
}

/* >>operators that want channels last */

static sbit_status sbit__layout_want(sbit__lowering *lower, const sbit_node *node,
                                     sbit_error *error)
{
    static const size_t zeros_of_conv[] = {2, 7, 11, 13}, zeros_of_pool[] = {2, 4};
    const bool conv = strcmp(node->op_type, "QConv") == 0;
    const bool max = strcmp(node->op_type, "QMaxPool") == 0;
    const size_t *zeros = conv ? zeros_of_conv : zeros_of_pool;
    const sbit_node_id id = node->id;
    sbit__layout_build *build = (sbit__layout_build *)lower->work;
    const int32_t rank = sbit__lower_type(lower, node->inputs[0])->rank;
    if (sbit_node_int(node, "channels_last", 0) != 0 || rank < 3 ||
        sbit__lower_type(lower, node->outputs[0])->rank != rank ||
        !sbit__layout_copy(node, build)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__layout_last(lower, node->inputs[0], node, &build->inputs[0], error));
    if (conv && sbit__lower_in(node, 9).idx != 0) { /* what is added */
        SBIT__TRY(sbit__layout_last(lower, node->inputs[9], node, &build->inputs[9], error));
    }
    for (size_t i = 0; !max && i < (conv ? 4 : 2) && zeros[i] < build->input_count; i++) {
        SBIT__TRY(sbit__layout_zero(lower, &build->inputs[zeros[i]], error));
    }
    build->attrs[build->attr_count++] = sbit__attr_int("channels_last", 1);
    if (conv && sbit__layout_size(lower, node->outputs[0], 1) >= SBIT__LAYOUT_QLARGE) {
        build->attrs[build->attr_count++] = sbit__attr_int("large", 1); /* see lower_strips.c */
    }
    return sbit__layout_finish(lower, id, build, error);
}

/* >>operators that do not care */

/* Input i of the node is a tensor of the output's rank that is not one of its parameters. */
static bool sbit__layout_is_data(const sbit__lowering *lower, const sbit_node *node, size_t i,
                                 int32_t rank)
{
    const sbit_value_id id = node->inputs[i];
    return id.idx != 0 && sbit__lower_type(lower, id)->rank == rank && rank >= 3;
}

/* Parameters are one number, but for these. */
static bool sbit__layout_takes_vector(const sbit_node *node)
{
    return sbit__layout_is(node, "QTable") || strcmp(node->op_type, "Split") == 0;
}

/* All data comes from ToFirst or can be brought in order, and one does come from there. */
static bool sbit__layout_ready(const sbit__lowering *lower, const sbit_node *node)
{
    const int32_t rank = sbit__lower_type(lower, node->outputs[0])->rank;
    bool found = false;
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_value_id id = node->inputs[i];
        if (id.idx == 0) {
            continue;
        }
        if (sbit__layout_is_data(lower, node, i, rank)) {
            const bool source = sbit__layout_source(lower, id).idx != 0;
            if (!source && sbit__lower_constant(lower, id) != NULL) {
                return false;
            }
            found = found || source;
        } else if (sbit__lower_constant(lower, id) == NULL ||
                   (sbit_tensor_count(sbit__lower_constant(lower, id)) != 1 &&
                    !sbit__layout_takes_vector(node))) {
            return false;
        }
    }
    return found;
}

/* A table for bytes that are flipped on one side or both. */
static sbit_status sbit__layout_table(sbit__lowering *lower, bool flip_x, bool flip_y,
                                      sbit_value_id *table, sbit_error *error)
{
    const sbit_tensor *old = sbit__lower_constant(lower, *table);
    sbit_tensor tensor;
    uint8_t bytes[256];
    if (old == NULL || (!flip_x && !flip_y)) {
        return SBIT_OK;
    }
    for (int i = 0; i < 256; i++) {
        const uint8_t octet = ((const uint8_t *)old->data)[flip_x ? i ^ 0x80 : i];
        bytes[i] = (uint8_t)(flip_y ? octet ^ 0x80u : octet);
    }
    tensor = *old;
    tensor.data = bytes;
    return sbit_graph_add_constant(lower->graph, "table", &tensor, table, error);
}

/* Numbers of the inputs that are zero points of 8-bit tensors. */
static size_t sbit__layout_zeros(const sbit_node *node, size_t *zeros)
{
    static const char *const pairs[] = {"QAdd", "QSub", "QMul", NULL};
    static const char *const quantizers[] = {"QuantizeLinear", "DequantizeLinear", NULL};
    size_t count = 0;
    if (sbit__layout_in(node, "sbit", pairs)) {
        zeros[0] = 2;
        zeros[1] = 5;
        zeros[2] = 7;
        count = 3;
    } else if (sbit__layout_in(node, "", quantizers)) {
        zeros[count++] = 2;
    } else if (sbit__layout_is(node, "QConcat")) {
        for (size_t i = 1; i < node->input_count; i += 3) {
            zeros[count++] = i;
        }
    }
    return count;
}

static sbit_status sbit__layout_pass(sbit__lowering *lower, const sbit_node *node,
                                     sbit_error *error)
{
    const sbit_node_id id = node->id;
    const int32_t rank = sbit__lower_type(lower, node->outputs[0])->rank;
    const bool flip_x = sbit__lower_type(lower, node->inputs[0])->dtype == SBIT_I8;
    const bool flip_y = sbit__lower_type(lower, node->outputs[0])->dtype == SBIT_I8;
    size_t zeros[SBIT__LAYOUT_INPUTS];
    const size_t zero_count = sbit__layout_zeros(node, zeros);
    sbit__layout_build *build = (sbit__layout_build *)lower->work;
    if (!sbit__layout_ready(lower, node) || !sbit__layout_copy(node, build)) {
        return SBIT_OK;
    }
    if (sbit__lower_is(lower, node, "QuantizeLinear") && flip_y && node->input_count < 3) {
        return SBIT_OK; /* output_dtype */
    }
    for (size_t i = 0; i < node->input_count; i++) {
        if (sbit__layout_is_data(lower, node, i, rank)) {
            SBIT__TRY(sbit__layout_last(lower, node->inputs[i], node, &build->inputs[i], error));
        }
    }
    for (size_t i = 0; i < zero_count && i < SBIT__LAYOUT_INPUTS; i++) {
        if (zeros[i] < build->input_count) {
            SBIT__TRY(sbit__layout_zero(lower, &build->inputs[zeros[i]], error));
        }
    }
    if (sbit__layout_is(node, "QTable")) {
        SBIT__TRY(sbit__layout_table(lower, flip_x, flip_y, &build->inputs[1], error));
        sbit__layout_set(build, "to", SBIT_U8);
    }
    const bool split = sbit__lower_is(lower, node, "Split");
    if (split || sbit__layout_is(node, "QConcat") || sbit__lower_is(lower, node, "Concat")) {
        int64_t axis = sbit_node_int(node, "axis", split ? 0 : 1);
        axis = axis < 0 ? axis + rank : axis;
        sbit__layout_set(build, "axis", axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1);
    }
    return sbit__layout_finish(lower, id, build, error);
}

/* Dequantizing puts 4 bytes where 1 was: only if what follows takes channels last, too. */
static bool sbit__layout_may_dequantize(const sbit__lowering *lower, const sbit_node *node)
{
    static const char *const takes[] = {
        "Relu", "Clip", "HardSwish", "HardSigmoid",    "Sigmoid", "Add",
        "Mul",  "Sub",  "LeakyRelu", "QuantizeLinear", "GlobalAveragePool", NULL};
    sbit_use uses[8];
    const size_t count =
        sbit_graph_uses(lower->graph, node->outputs[0], uses, SBIT__COUNT_OF(uses));
    bool all = count > 0 && count <= SBIT__COUNT_OF(uses) &&
               sbit__lower_inner(lower, node->outputs[0], count);
    for (size_t i = 0; all && i < count; i++) {
        all = uses[i].body == NULL && uses[i].node.idx != 0 &&
              sbit__layout_in(sbit_graph_node(lower->graph, uses[i].node), "", takes);
    }
    return all;
}

/* >>channel shuffle: Reshape to N, groups, C / groups, ...; exchange them; Reshape back */

static sbit_status sbit__layout_shuffle(sbit__lowering *lower, const sbit_node *node, bool floats,
                                        sbit_error *error)
{
    const sbit_node *before = sbit__lower_producer(lower, node->inputs[0]);
    const sbit_node *behind = sbit__lower_user(lower, node->outputs[0]);
    const sbit_attr *perm = sbit_node_attr(node, "perm");
    const sbit_type *from = NULL, *middle = NULL, *to = NULL;
    sbit_value_id inputs[1], output;
    sbit_node_id nodes[3];
    sbit_attr attr;
    sbit__lower_desc desc;
    if (!sbit__lower_is(lower, before, "Reshape") || !sbit__lower_is(lower, behind, "Reshape") ||
        !sbit__lower_inner(lower, node->inputs[0], 1) || perm == NULL || perm->count < 4) {
        return SBIT_OK;
    }
    from = sbit__lower_type(lower, before->inputs[0]);
    middle = sbit__lower_type(lower, node->inputs[0]);
    to = sbit__lower_type(lower, behind->outputs[0]);
    bool fits = (floats ? from->dtype == SBIT_F32 &&
                              sbit__layout_source(lower, before->inputs[0]).idx != 0
                        : from->dtype == SBIT_U8 || from->dtype == SBIT_I8) &&
                middle->rank == from->rank + 1 && (int32_t)perm->count == middle->rank &&
                sbit__same_dims(from, to) && from->rank >= 3 && sbit__dim_known(middle->dims[1]) &&
                sbit__dim_known(middle->dims[2]) && sbit__dim_known(from->dims[1]) &&
                middle->dims[1].value * middle->dims[2].value == from->dims[1].value &&
                sbit__dim_equal(from->dims[0], middle->dims[0]);
    for (int32_t i = 0; fits && i < middle->rank; i++) {
        fits = perm->ints[i] == (i == 1   ? 2
                                 : i == 2 ? 1
                                          : i) &&
               (i < 3 || sbit__dim_equal(middle->dims[i], from->dims[i - 1]));
    }
    if (!fits) {
        return SBIT_OK;
    }
    attr = sbit__attr_int("groups", middle->dims[1].value);
    nodes[0] = before->id;
    nodes[1] = node->id;
    nodes[2] = behind->id;
    const sbit_value_id source = before->inputs[0], result = behind->outputs[0];
    SBIT__TRY(sbit__layout_last(lower, source, before, &inputs[0], error));
    SBIT__TRY(sbit__layout_value(lower, result, &output, error));
    memset(&desc, 0, sizeof desc);
    desc.op_type = "QShuffle";
    desc.inputs = inputs;
    desc.input_count = 1;
    desc.outputs = &output;
    desc.output_count = 1;
    desc.attrs = &attr;
    desc.attr_count = 1;
    desc.nodes = nodes;
    desc.node_count = 3;
    desc.at = nodes[2];
    SBIT__TRY(sbit__lower_insert(lower, &desc, NULL, error));
    attr = sbit__attr_int("to", (int64_t)sbit__lower_type(lower, result)->dtype);
    desc.op_type = "ToFirst";
    desc.inputs = &output;
    desc.outputs = &result;
    desc.at.idx = 0;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* Concat of two halves, QShuffle of two groups, Split in halves: ShuffleLast. Each step is one
 * replacement, when what is in front or behind has its channels last. */
static sbit_status sbit__layout_zip(sbit__lowering *lower, const sbit_node *node,
                                    sbit_error *error)
{
    const bool shuffle = sbit__layout_is(node, "QShuffle");
    const sbit_node *other = shuffle ? sbit__lower_producer(lower, node->inputs[0])
                                     : sbit__lower_user(lower, node->outputs[0]);
    const sbit_type *x = sbit__lower_type(lower, node->inputs[0]);
    const int32_t last = x->rank - 1;
    sbit__lower_desc desc;
    if (!sbit__lower_is(lower, other, shuffle ? "Concat" : "Split") || x->dtype != SBIT_F32 ||
        (sbit_node_int(other, "axis", 0) != last && sbit_node_int(other, "axis", 0) != -1)) {
        return SBIT_OK;
    }
    const sbit_value_id *parts = shuffle ? other->inputs : other->outputs;
    if ((shuffle ? other->input_count : other->output_count) != 2 || parts[0].idx == 0 ||
        parts[1].idx == 0 || node->output_count != 1 ||
        (shuffle && (sbit_node_int(node, "groups", 1) != 2 ||
                     !sbit__lower_inner(lower, node->inputs[0], 1)))) {
        return SBIT_OK;
    }
    const sbit_type *a = sbit__lower_type(lower, parts[0]), *b = sbit__lower_type(lower, parts[1]);
    if (!sbit__same_dims(a, b) || !sbit__dim_known(a->dims[last]) ||
        (!shuffle && (a->dims[last].value % 2 != 0 || !sbit__same_dims(a, x)))) {
        return SBIT_OK;
    }
    const sbit_node_id nodes[2] = {node->id, other->id};
    memset(&desc, 0, sizeof desc);
    desc.op_type = "ShuffleLast";
    desc.inputs = shuffle ? parts : node->inputs;
    desc.input_count = 2;
    desc.outputs = shuffle ? node->outputs : parts;
    desc.output_count = shuffle ? 1 : 2;
    desc.nodes = nodes;
    desc.node_count = 2;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>all nodes */

/* Bytes behind ToLast are uint8 whatever they stood for: what computes takes floats only, what
 * quantizes gives 8 bits; Split and Concat move anything. */
static bool sbit__layout_plain_types(const sbit__lowering *lower, const sbit_node *node)
{
    const sbit_dtype out = sbit__lower_type(lower, node->outputs[0])->dtype;
    if (sbit__streq(node->op_type, "QuantizeLinear")) {
        return out == SBIT_U8 || out == SBIT_I8;
    }
    return out == SBIT_F32 || sbit__streq(node->op_type, "Split") ||
           sbit__streq(node->op_type, "Concat");
}

static sbit_status sbit__layout_node(sbit__lowering *lower, const sbit_node *node,
                                     sbit_error *error)
{
    static const char *const wants[] = {"QConv", "QAveragePool", "QGlobalAveragePool", "QMaxPool",
                                        NULL};
    static const char *const passes[] = {"QAdd", "QSub", "QMul", "QTable", "QConcat", NULL};
    static const char *const plain[] = {
        "Relu", "Clip",      "HardSwish",      "HardSigmoid", "Sigmoid", "Add", "Mul",
        "Sub",  "LeakyRelu", "QuantizeLinear", "Split",       "Concat",  NULL};
    static const char *const layouts[] = {"ToFirst", "ToLast", NULL};
    if (sbit__layout_in(node, "sbit", layouts)) {
        if (sbit__lower_inner(lower, node->outputs[0], 0)) {
            sbit_graph_erase_node(lower->graph, node->id);
            lower->changes++;
        }
        return SBIT_OK;
    }
    if (sbit__layout_in(node, "sbit", wants)) {
        return sbit__layout_want(lower, node, error);
    }
    if (sbit__layout_in(node, "sbit", passes)) {
        return sbit__layout_pass(lower, node, error);
    }
    if (sbit__layout_in(node, "", plain) && sbit__lower_is(lower, node, node->op_type) &&
        sbit__layout_plain_types(lower, node)) {
        return sbit__layout_pass(lower, node, error);
    }
    if (sbit__lower_is(lower, node, "DequantizeLinear") &&
        sbit__layout_may_dequantize(lower, node)) {
        return sbit__layout_pass(lower, node, error);
    }
    return sbit__lower_is(lower, node, "Transpose") ? sbit__layout_shuffle(lower, node, false, error)
                                                    : SBIT_OK;
}

static const sbit__lower_entry sbit__lower_layout_table[] = {
    {NULL, sbit__layout_node},
};

/* >>float operators with channels last: once they have their activations */

/* Made of constants alone, so that it is packed with the program. */
static bool sbit__layout_fixed(const sbit__lowering *lower, sbit_value_id id, int depth)
{
    const sbit_node *maker = sbit__lower_producer(lower, id);
    if (sbit__lower_constant(lower, id) != NULL) {
        return true;
    }
    if (depth == 0 || maker == NULL || maker->input_count == 0) {
        return false;
    }
    for (size_t i = 0; i < maker->input_count; i++) {
        if (maker->inputs[i].idx != 0 && !sbit__layout_fixed(lower, maker->inputs[i], depth - 1)) {
            return false;
        }
    }
    return true;
}

/* Weights that are fed, or quantized by training, and have a gradient, which reads them or their shape. */
static bool sbit__layout_trained(const sbit__lowering *lower, sbit_value_id weights)
{
    const sbit_value_info *info = sbit_graph_value(lower->graph, weights);
    sbit_use uses[SBIT__LAYOUT_USES];
    if ((!info->is_input && !sbit__layout_is(sbit__lower_producer(lower, weights), "External")) ||
        sbit__lower_type(lower, weights)->rank > 4) {
        return false;
    }
    const size_t count = sbit_graph_uses(lower->graph, weights, uses, SBIT__LAYOUT_USES);
    for (size_t i = 0; i < count && i < SBIT__LAYOUT_USES; i++) {
        const sbit_node *node = uses[i].body == NULL && uses[i].node.idx != 0
                                    ? sbit_graph_node(lower->graph, uses[i].node)
                                    : NULL;
        if (node != NULL && sbit__lower_is(lower, node, "Shape")) {
            node = sbit__lower_user(lower, node->outputs[0]);
        }
        if (node != NULL &&
            (sbit__layout_is(node, "ConvDataGrad") || sbit__layout_is(node, "ConvWeightGrad"))) {
            return true;
        }
    }
    return false;
}

static bool sbit__layout_is_f32(const sbit__lowering *lower, sbit_value_id id)
{
    const sbit_type *type = sbit__lower_type(lower, id);
    return type->kind == SBIT_KIND_TENSOR && type->dtype == SBIT_F32 && type->rank >= 3 &&
           type->rank <= 5;
}

/* Measured: a transform needs some tiles to share its weights, more of them where these are not in a
 * core's own cache, and where they come from memory. */
typedef struct sbit__layout_method {
    int64_t outputs, tiles, tiles_shared, tiles_from_memory; /* at least */
} sbit__layout_method;

static const sbit__layout_method sbit__layout_methods[] = {{4, 12, 12, 28}, {2, 4, 8, 28}};

/* 3 x 3 without stride, dilation and groups: 4 or 2 outputs at once along an axis, or 0. A gradient of x takes
 * the weights the other way. */
static int64_t sbit__layout_winograd(const sbit__lowering *lower, const sbit_node *node)
{
    static const char *const ones[] = {"strides", "dilations"};
    const sbit_type *x = sbit__lower_type(lower, node->inputs[0]);
    const sbit_type *w = sbit__lower_type(lower, node->inputs[1]);
    const int32_t in = sbit__layout_is(node, "ConvDataGrad") ? 0 : 1, out = 1 - in;
    if (lower->exact || x->rank != 4 || w->rank != 4 || sbit_node_int(node, "group", 1) != 1 ||
        sbit__layout_dim(w, 2, 0) != 3 || sbit__layout_dim(w, 3, 0) != 3 ||
        sbit__layout_dim(w, in, 0) < SBIT__LAYOUT_WINOGRAD || sbit__layout_dim(w, out, 0) < SBIT__LAYOUT_WINOGRAD_OUT) {
        return 0;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(ones); i++) {
        const sbit_attr *attr = sbit_node_attr(node, ones[i]);
        for (size_t k = 0; attr != NULL && k < attr->count; k++) {
            if (attr->ints[k] != 1) {
                return 0;
            }
        }
    }
    const sbit_type *y = sbit__lower_expected(lower, node->outputs[0]);
    const int64_t channels = w->dims[0].value * w->dims[1].value;
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__layout_methods); i++) {
        const sbit__layout_method *method = &sbit__layout_methods[i];
        const int64_t m = method->outputs;
        const int64_t bytes = (m + 2) * (m + 2) * channels * (int64_t)sizeof(float);
        const int64_t high = (sbit__layout_dim(y, 2, 16) + m - 1) / m;
        const int64_t wide = (sbit__layout_dim(y, 3, 16) + m - 1) / m;
        const int64_t least = bytes > SBIT__LAYOUT_CACHE  ? method->tiles_from_memory
                              : bytes > SBIT__LAYOUT_OWN ? method->tiles_shared
                                                         : method->tiles;
        if (high * wide > 0 && sbit__layout_dim(y, 0, 1) >= (least + high * wide - 1) / (high * wide)) {
            return m;
        }
    }
    return 0;
}

/* The weights that are not 0, if they are so few that a list of them is faster; -1: they are not. Measured:
 * one of the list costs as much as two in panels, and turning an input or a sum as much as 50. */
static int64_t sbit__layout_nonzeros(const sbit__lowering *lower, const sbit_node *node, int64_t winograd)
{
    const sbit_tensor *w = sbit__lower_constant(lower, node->inputs[1]);
    const int64_t count = w != NULL ? sbit_tensor_count(w) : 0;
    if (lower->exact || w == NULL || w->dtype != SBIT_F32 || sbit_node_int(node, "group", 1) != 1 || w->rank < 3 ||
        w->dims[0] < SBIT__LAYOUT_WINOGRAD || w->dims[1] < SBIT__LAYOUT_WINOGRAD || count > INT32_MAX) {
        return -1;
    }
    const int64_t turned = w->dims[0] + count / w->dims[0];
    const int64_t most = (count / (winograd == 4 ? 4 : winograd == 2 ? 2 : 1) - 50 * turned) / 2 * 4 / 5;
    const float *from = (const float *)w->data;
    int64_t seen = 0, nonzeros = 0;
    for (int64_t i = 0; i < 512; i++) { /* a look before all are counted */
        seen += from[i * 7919 % count] != 0.0f ? 1 : 0;
    }
    for (int64_t i = 0; seen <= 256 && i < count; i++) {
        nonzeros += from[i] != 0.0f ? 1 : 0;
    }
    return seen <= 256 && nonzeros <= most ? nonzeros : -1;
}

/* Few input channels, which come first: the kernel gathers windows from their planes. */
static bool sbit__layout_from_first(const sbit__lowering *lower, const sbit_node *node)
{
    const sbit_type *w = sbit__lower_type(lower, node->inputs[1]);
    const sbit_attr *dilations = sbit_node_attr(node, "dilations");
    return sbit__layout_source(lower, node->inputs[0]).idx == 0 &&
           sbit_node_int(node, "group", 1) == 1 && w->rank >= 3 &&
           sbit__layout_dim(w, 1, INT64_MAX) <= SBIT__LAYOUT_FEW &&
           sbit__layout_dim(w, w->rank - 1, 1) > 1 &&
           (dilations == NULL || dilations->count == 0 || dilations->ints[dilations->count - 1] == 1);
}

static sbit_status sbit__layout_conv(sbit__lowering *lower, const sbit_node *node,
                                     sbit_error *error)
{
    const sbit_node_id id = node->id;
    /* forward near to other trainers: Winograd only for gradients of x (sbit__layout_turn) */
    const bool trained = sbit__layout_trained(lower, node->inputs[1]);
    const int64_t winograd = trained ? 0 : sbit__layout_winograd(lower, node);
    sbit__layout_build *build = (sbit__layout_build *)lower->work;
    if (!sbit__layout_is_f32(lower, node->inputs[0]) ||
        !sbit__layout_is_f32(lower, node->outputs[0]) ||
        !(trained || sbit__layout_fixed(lower, node->inputs[1], 4)) ||
        !sbit__layout_copy(node, build)) {
        return SBIT_OK;
    }
    if (sbit__layout_from_first(lower, node)) {
        build->attrs[build->attr_count++] = sbit__attr_int("first", 1);
    } else {
        SBIT__TRY(sbit__layout_last(lower, node->inputs[0], node, &build->inputs[0], error));
    }
    if (node->input_count > 3) {
        SBIT__TRY(sbit__layout_last(lower, node->inputs[3], node, &build->inputs[3], error));
    }
    build->domain = "sbit";
    build->op_type = "ConvLast";
    const int64_t nonzeros = trained ? -1 : sbit__layout_nonzeros(lower, node, winograd);
    if (nonzeros >= 0) {
        build->attrs[build->attr_count++] = sbit__attr_int("nonzeros", nonzeros);
    } else if (winograd != 0) {
        build->attrs[build->attr_count++] = sbit__attr_int("winograd", winograd);
    }
    if (sbit__layout_size(lower, node->outputs[0], (int64_t)sizeof(float)) /
            sbit_ctx_threads(lower->ctx) >= SBIT__LAYOUT_LARGE) { /* each has a part of it */
        build->attrs[build->attr_count++] = sbit__attr_int("large", 1); /* see lower_strips.c */
    }
    return sbit__layout_finish(lower, id, build, error);
}

static sbit_status sbit__layout_pool(sbit__lowering *lower, const sbit_node *node,
                                     const char *op_type, sbit_error *error)
{
    const sbit_node_id id = node->id;
    sbit__layout_build *build = (sbit__layout_build *)lower->work;
    if (node->output_count != 1 || !sbit__layout_is_f32(lower, node->outputs[0]) ||
        sbit__layout_source(lower, node->inputs[0]).idx == 0 || !sbit__layout_copy(node, build)) {
        return SBIT_OK;
    }
    build->inputs[0] = sbit__layout_source(lower, node->inputs[0]);
    build->domain = "sbit";
    build->op_type = op_type;
    return sbit__layout_finish(lower, id, build, error);
}

/* ReduceMean over all positions is a global pool. */
static sbit_status sbit__layout_mean(sbit__lowering *lower, const sbit_node *node,
                                     sbit_error *error)
{
    const int32_t rank = sbit__lower_type(lower, node->inputs[0])->rank;
    const sbit_node_id id = node->id;
    sbit__layout_build *build = (sbit__layout_build *)lower->work;
    const sbit_value_id source = sbit__layout_source(lower, node->inputs[0]);
    if (source.idx == 0 || rank < 3 || sbit_node_int(node, "keepdims", 1) == 0 ||
        !sbit__layout_is_f32(lower, node->outputs[0]) ||
        sbit__lower_axes(lower, node, rank) != (((1u << rank) - 1u) & ~3u)) {
        return SBIT_OK;
    }
    memset(build, 0, sizeof *build);
    build->inputs[0] = source;
    build->input_count = 1;
    build->domain = "sbit";
    build->op_type = "GlobalAveragePoolLast";
    return sbit__layout_finish(lower, id, build, error);
}

/* A nearest Resize copies runs of channels: its numbers by axis are put in order. */
static sbit_status sbit__layout_resize(sbit__lowering *lower, const sbit_node *node,
                                       sbit_error *error)
{
    const sbit_value_id source = sbit__layout_source(lower, node->inputs[0]);
    const sbit_node_id id = node->id;
    sbit__layout_build *build = (sbit__layout_build *)lower->work;
    const int32_t rank = sbit__lower_type(lower, node->inputs[0])->rank;
    if (source.idx == 0 || !sbit__layout_is_f32(lower, node->outputs[0]) ||
        !sbit__streq(sbit_node_string(node, "mode", "nearest"), "nearest") ||
        sbit__streq(sbit_node_string(node, "coordinate_transformation_mode", ""),
                    "tf_crop_and_resize") ||
        sbit_node_attr(node, "axes") != NULL || node->input_count < 3 ||
        !sbit__layout_copy(node, build)) {
        return SBIT_OK;
    }
    for (size_t i = 1; i < build->input_count; i++) {
        const sbit_tensor *numbers = sbit__lower_constant(lower, node->inputs[i]);
        unsigned char bytes[SBIT_MAX_RANK * 8];
        sbit_tensor ordered;
        if (i == 1 || (numbers != NULL && sbit_tensor_count(numbers) == 0)) {
            build->inputs[i].idx = 0; /* roi, or nothing */
            continue;
        }
        if (node->inputs[i].idx == 0) {
            continue;
        }
        if (numbers == NULL || sbit_tensor_count(numbers) != rank) {
            return SBIT_OK;
        }
        const size_t each = sbit_tensor_bytes(numbers) / (size_t)rank;
        const unsigned char *from = (const unsigned char *)numbers->data;
        memcpy(bytes, from, each);
        memcpy(bytes + each, from + 2 * each, (size_t)(rank - 2) * each);
        memcpy(bytes + (size_t)(rank - 1) * each, from + each, each);
        ordered = *numbers;
        ordered.data = bytes;
        SBIT__TRY(sbit_graph_add_constant(lower->graph, "sizes", &ordered, &build->inputs[i],
                                          error));
    }
    build->inputs[0] = source;
    return sbit__layout_finish(lower, id, build, error);
}

/* The caller's own way to channels last: there they are. */
static sbit_status sbit__layout_transpose(sbit__lowering *lower, const sbit_node *node,
                                          sbit_error *error)
{
    const sbit_value_id source = sbit__layout_source(lower, node->inputs[0]);
    const sbit_attr *perm = sbit_node_attr(node, "perm");
    const int32_t rank = sbit__lower_type(lower, node->inputs[0])->rank;
    sbit__lower_desc desc;
    bool same = source.idx != 0 && perm != NULL && (int32_t)perm->count == rank && rank >= 3 &&
                sbit__lower_type(lower, node->inputs[0])->dtype == SBIT_F32;
    for (int32_t i = 0; same && i < rank; i++) {
        same = perm->ints[i] == (i == 0 ? 0 : i == rank - 1 ? 1 : i + 1);
    }
    if (!same) {
        return sbit__layout_shuffle(lower, node, true, error);
    }
    const sbit_node_id id = node->id;
    memset(&desc, 0, sizeof desc);
    desc.domain = "";
    desc.op_type = "Identity";
    desc.inputs = &source;
    desc.input_count = 1;
    desc.outputs = node->outputs;
    desc.output_count = 1;
    desc.nodes = &id;
    desc.node_count = 1;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>training: what gradients and BatchNormalization do with channels last, beside what does not care */

/* The inputs of a mask, and output 0 if it is like them, get their channels last. */
static sbit_status sbit__layout_turn(sbit__lowering *lower, const sbit_node *node, uint32_t inputs,
                                     bool output, sbit_error *error)
{
    const int64_t winograd = sbit__layout_is(node, "ConvDataGrad") ? sbit__layout_winograd(lower, node) : 0;
    const sbit_attr attrs[2] = {sbit__attr_int("channels_last", 1), sbit__attr_int("winograd", winograd)};
    const sbit_node_id id = node->id;
    const sbit_value_id old = node->outputs[0];
    sbit_value_id last = {0};
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        const sbit_value_id in = sbit__lower_in(node, i);
        if ((inputs >> i & 1u) != 0) {
            found = found || sbit__layout_source(lower, in).idx != 0 ||
                    sbit__layout_made(lower, in).idx != 0;
            if (!sbit__layout_is_f32(lower, in) || sbit__lower_type(lower, in)->rank > 4) {
                return SBIT_OK;
            }
        }
    }
    if (!found || sbit_node_int(node, "channels_last", 0) != 0) {
        return SBIT_OK;
    }
    for (size_t i = 0; i < 2; i++) {
        if ((inputs >> i & 1u) != 0) {
            node = sbit_graph_node(lower->graph, id);
            SBIT__TRY(sbit__layout_last(lower, node->inputs[i], node, &last, error));
            SBIT__TRY(sbit_graph_set_node_input(lower->graph, id, i, last, error));
        }
    }
    lower->changes++;
    if (output && old.idx != 0) {
        sbit__lower_desc desc;
        SBIT__TRY(sbit__layout_value(lower, old, &last, error));
        SBIT__TRY(sbit_graph_set_node_output(lower->graph, id, 0, last, error));
        memset(&desc, 0, sizeof desc);
        desc.op_type = "ToFirst";
        desc.inputs = &last;
        desc.outputs = &old;
        desc.nodes = &id;
        desc.input_count = desc.output_count = desc.node_count = 1;
        desc.at = sbit_graph_next(lower->graph, id);
        SBIT__TRY(sbit__lower_insert(lower, &desc, NULL, error));
    }
    if (winograd != 0) {
        SBIT__TRY(sbit_graph_set_attr(lower->graph, id, &attrs[1], error));
    }
    return sbit_graph_set_attr(lower->graph, id, &attrs[0], error);
}

/* The shape of what has its channels last, put in order: nobody needs it with channels first. */
static sbit_status sbit__layout_shape(sbit__lowering *lower, const sbit_node *node,
                                      sbit_error *error)
{
    static const int64_t orders[SBIT_MAX_RANK] = {0, 0, 1, 2, 3, 4, 5, 6};
    const sbit_value_id source = sbit__layout_source(lower, node->inputs[0]);
    const int32_t rank = sbit__lower_type(lower, node->inputs[0])->rank;
    const sbit_node_id id = node->id;
    sbit_value_id inputs[2];
    sbit__lower_desc desc;
    sbit_tensor order;
    sbit_type type;
    int64_t at[SBIT_MAX_RANK];
    if (source.idx == 0 || node->attr_count > 0 || rank < 3) {
        return SBIT_OK;
    }
    memcpy(at, orders, sizeof at);
    at[1] = rank - 1;
    memset(&order, 0, sizeof order);
    order.dtype = SBIT_I64;
    order.rank = 1;
    order.dims[0] = rank;
    order.data = at;
    type = *sbit__lower_type(lower, node->outputs[0]);
    SBIT__TRY(sbit_graph_add_value(lower->graph, "shape", &type, &inputs[0], error));
    SBIT__TRY(sbit_graph_add_constant(lower->graph, "order", &order, &inputs[1], error));
    memset(&desc, 0, sizeof desc);
    desc.domain = "";
    desc.op_type = "Shape";
    desc.inputs = &source;
    desc.outputs = &inputs[0];
    desc.nodes = &id;
    desc.input_count = desc.output_count = desc.node_count = 1;
    desc.at = id;
    SBIT__TRY(sbit__lower_insert(lower, &desc, NULL, error));
    desc.op_type = "Gather";
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = node->outputs;
    desc.at.idx = 0;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* *done: it was one of these. */
static sbit_status sbit__layout_training(sbit__lowering *lower, const sbit_node *node, bool *done,
                                         sbit_error *error)
{
    static const struct {
        const char *op_type;
        uint32_t inputs;
        bool output;
    } turned[] = {{"ConvDataGrad", 1u, true},
                  {"ConvWeightGrad", 3u, false},
                  {"BatchNormTrain", 1u, true},
                  {"BatchNormGrad", 3u, true},
                  {"PoolGrad", 3u, true},
                  {"External", 1u, true},
                  {"ExternalGrad", 3u, true}};
    const sbit__external *functions = sbit__external_of(node);
    for (size_t i = 0; i < SBIT__COUNT_OF(turned); i++) {
        *done = sbit__layout_is(node, turned[i].op_type);
        if (*done && functions != NULL && !functions->elementwise) {
            return SBIT_OK;
        }
        if (*done) {
            return sbit__layout_turn(lower, node, turned[i].inputs, turned[i].output, error);
        }
    }
    *done = sbit__lower_is(lower, node, "Shape");
    return *done ? sbit__layout_shape(lower, node, error) : SBIT_OK;
}

static sbit_status sbit__layout_float(sbit__lowering *lower, const sbit_node *node,
                                      sbit_error *error)
{
    static const char *const layouts[] = {"ToFirst", "ToLast", NULL};
    static const char *const passes[] = {"FakeQuantize", "ActivationGrad", NULL};
    static const char *const plain[] = {
        "Relu", "Clip", "HardSwish", "HardSigmoid", "Sigmoid",  "Tanh", "Elu",  "Selu",   "Gelu",
        "Mish", "Exp",  "Sqrt",      "Abs",         "Neg",      "Erf",  "Add",  "Mul",    "Sub",
        "Div",  "Max",  "Min",       "LeakyRelu",   "Softplus", "Split", "Concat", "Identity", NULL};
    static const char *const pools[][2] = {{"MaxPool", "MaxPoolLast"},
                                           {"AveragePool", "AveragePoolLast"},
                                           {"GlobalAveragePool", "GlobalAveragePoolLast"}};
    if (sbit__layout_in(node, "sbit", layouts)) {
        if (sbit__lower_inner(lower, node->outputs[0], 0)) {
            sbit_graph_erase_node(lower->graph, node->id);
            lower->changes++;
        }
        return SBIT_OK;
    }
    if (sbit__lower_is(lower, node, "Conv") || sbit__layout_is(node, "Conv")) {
        return sbit__layout_conv(lower, node, error);
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(pools); i++) {
        if (sbit__lower_is(lower, node, pools[i][0])) {
            return sbit__layout_pool(lower, node, pools[i][1], error);
        }
    }
    if (sbit__layout_is(node, "QShuffle") || sbit__layout_is(node, "ShuffleLast")) {
        return sbit__layout_zip(lower, node, error);
    }
    bool done = false;
    SBIT__TRY(sbit__layout_training(lower, node, &done, error));
    if (done) {
        return SBIT_OK;
    }
    if (sbit__lower_is(lower, node, "Transpose")) {
        return sbit__layout_transpose(lower, node, error);
    }
    if (sbit__lower_is(lower, node, "ReduceMean")) {
        return sbit__layout_mean(lower, node, error);
    }
    if (sbit__lower_is(lower, node, "Resize")) {
        return sbit__layout_resize(lower, node, error);
    }
    if (sbit__layout_in(node, "sbit", passes) ||
        (sbit__layout_in(node, "", plain) && sbit__lower_is(lower, node, node->op_type) &&
         sbit__lower_type(lower, node->outputs[0])->dtype == SBIT_F32)) {
        return sbit__layout_pass(lower, node, error);
    }
    return SBIT_OK;
}

static const sbit__lower_entry sbit__lower_last_table[] = {
    {NULL, sbit__layout_float},
};

#undef SBIT__LAYOUT_INPUTS
#undef SBIT__LAYOUT_OUTPUTS
#undef SBIT__LAYOUT_ATTRS
#undef SBIT__LAYOUT_WINOGRAD
#undef SBIT__LAYOUT_WINOGRAD_OUT
#undef SBIT__LAYOUT_LARGE
#undef SBIT__LAYOUT_QLARGE
#undef SBIT__LAYOUT_USES
#undef SBIT__LAYOUT_FEW
#undef SBIT__LAYOUT_OWN
#undef SBIT__LAYOUT_CACHE

SBIT__FN const sbit__lower_entry *sbit__lower_entries_layout(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__lower_layout_table);
    return sbit__lower_layout_table;
}

SBIT__FN const sbit__lower_entry *sbit__lower_entries_last(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__lower_last_table);
    return sbit__lower_last_table;
}
