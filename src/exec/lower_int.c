/* lower_int.c: nodes between DequantizeLinear and QuantizeLinear, computed on integers. >>lower-int
 *
 * Called by: lower. Calls: graph, rows (for tables).
 *   DQ(x), DQ(weight) [, DQ(bias)] -> Conv, Gemm, MatMul [-> Mul by a number, or Add a constant
 *       vector, behind MatMul] [-> Relu, Clip] -> Q      QConv, QGemm, QMatMul
 *       without the Q                                    the same with a float result
 *   the same with ConvTranspose, windows side by side    QConv and DepthToSpace
 *   DQ, DQ -> Add, Sub, Mul [-> Relu, Clip] -> Q         QAdd, QSub, QMul
 *   one of those three products -> QAdd with a tensor of the same shape     the product, which adds
 *   DQ ... -> Concat -> Q                                QConcat
 *   DQ -> AveragePool, GlobalAveragePool, ReduceMean over positions, Softmax -> Q      Q...
 *   DQ(x) -> elementwise operators on x and numbers -> Q QTable: Gelu in pieces, or none at all
 *   DQ -> PRelu with a slope for each channel -> Q       QTables
 *   DQ -> Pad with a number -> Q of the same scale       itself, or the padding of the Conv behind it
 *   DQ -> operator that only moves values -> Q of the same scale and zero point        itself
 *   operator that only moves values, or MaxPool -> Q     Q before it (sparsebit's placement)
 * Scales and zero points are constants, one per tensor; weights have one, or one for each output
 * channel. Types of 8 bits; weights of fewer are unpacked, x of 16 bits is split into bytes. Relu
 * and Clip become bounds: rounding is monotone, so that
 * Q(clip(v, a, b)) = clamp(Q(v), Q(a), Q(b)). An int32 bias is added to the sum if its scale is
 * s_x * s_w to the bit and the sum cannot overflow, else it is a float one.
 */
#include "../ops/window_private.h"
#include "lower_private.h"

#include <math.h> /* INFINITY */

#define SBIT__INT_INPUTS 64 /* of a Concat: 2 and 3 for each tensor */
#define SBIT__INT_NODES 56
#define SBIT__INT_ATTRS 16
#define SBIT__INT_UNIT 24 /* nodes that become a table */
#define SBIT__INT_OPERANDS 4

/* DQ or Q of a whole tensor of 8 bits (16, where asked for). */
typedef struct sbit__int_param {
    const sbit_node *node;
    sbit_value_id x, scale, zero; /* x: the integers; zero may be none */
    sbit_dtype dtype;
    float s;
    int32_t z;
} sbit__int_param;

/* What is put together for sbit__lower_replace. */
typedef struct sbit__int_build {
    sbit_value_id inputs[SBIT__INT_INPUTS];
    sbit_node_id nodes[SBIT__INT_NODES];
    sbit_attr attrs[SBIT__INT_ATTRS];
    size_t input_count, node_count, attr_count;
} sbit__int_build;
typedef char sbit__int_build_fits[sizeof(sbit__int_build) <= SBIT__LOWER_WORK_BYTES ? 1 : -1];

/* One at a time, in the lowering's own memory: it is too large for the stack. */
static sbit__int_build *sbit__int_begin(const sbit__lowering *lower)
{
    sbit__int_build *build = (sbit__int_build *)lower->work;
    memset(build, 0, sizeof *build);
    return build;
}

/* >>looking */

static sbit_value_id sbit__int_none(void)
{
    sbit_value_id none;
    none.idx = 0;
    return none;
}

/* Scale and zero point of a Q or DQ node: constants, one element. */
static bool sbit__int_constants(const sbit__lowering *lower, const sbit_node *node,
                                sbit__int_param *out)
{
    const sbit_tensor *zero = sbit__lower_constant(lower, sbit__lower_in(node, 2));
    if (sbit_node_attr(node, "precision") != NULL || sbit_node_int(node, "block_size", 0) != 0 ||
        !sbit__lower_scalar(lower, sbit__lower_in(node, 1), &out->s) || !(out->s > 0.0f) ||
        (sbit__lower_in(node, 2).idx != 0 && (zero == NULL || sbit_tensor_count(zero) != 1))) {
        return false;
    }
    out->node = node;
    out->scale = node->inputs[1];
    out->zero = sbit__lower_in(node, 2);
    out->z = zero != NULL ? (int32_t)sbit__tensor_i64_at(zero, 0) : 0;
    return true;
}

static bool sbit__int_is_8(sbit_dtype dtype)
{
    return dtype == SBIT_U8 || dtype == SBIT_I8;
}

static bool sbit__int_is_16(sbit_dtype dtype)
{
    return dtype == SBIT_U16 || dtype == SBIT_I16;
}

/* The value is DQ of a tensor with one scale. */
static bool sbit__int_dq_any(const sbit__lowering *lower, sbit_value_id id, sbit__int_param *out)
{
    const sbit_node *node = sbit__lower_producer(lower, id);
    memset(out, 0, sizeof *out);
    if (!sbit__lower_is(lower, node, "DequantizeLinear") ||
        sbit__lower_type(lower, id)->dtype != SBIT_F32 || !sbit__int_constants(lower, node, out)) {
        return false;
    }
    out->x = node->inputs[0];
    out->dtype = sbit__lower_type(lower, out->x)->dtype;
    return true;
}

/* The same of 8 bits. */
static bool sbit__int_dq(const sbit__lowering *lower, sbit_value_id id, sbit__int_param *out)
{
    return sbit__int_dq_any(lower, id, out) && sbit__int_is_8(out->dtype);
}

/* The only thing that looks at the value is a Q with one scale. */
static bool sbit__int_q_any(const sbit__lowering *lower, sbit_value_id id, sbit__int_param *out)
{
    const sbit_node *node = sbit__lower_user(lower, id);
    memset(out, 0, sizeof *out);
    if (!sbit__lower_is(lower, node, "QuantizeLinear") || node->inputs[0].idx != id.idx ||
        sbit__lower_type(lower, id)->dtype != SBIT_F32 || !sbit__int_constants(lower, node, out)) {
        return false;
    }
    out->x = node->outputs[0];
    out->dtype = sbit__lower_type(lower, out->x)->dtype;
    return true;
}

/* The same to 8 bits. */
static bool sbit__int_q(const sbit__lowering *lower, sbit_value_id id, sbit__int_param *out)
{
    return sbit__int_q_any(lower, id, out) && sbit__int_is_8(out->dtype);
}

static bool sbit__int_same(const sbit__int_param *a, const sbit__int_param *b)
{
    return a->dtype == b->dtype && a->z == b->z && memcmp(&a->s, &b->s, sizeof a->s) == 0;
}

/* What stands behind an operator. */
typedef struct sbit__int_tail {
    sbit__int_param q; /* node NULL: no Q */
    float lo, hi;      /* before it */
    float factor;      /* before that: Mul by a number */
    sbit_value_id bias, output;
    sbit_node_id nodes[6];
    size_t count;
    bool wide; /* Q may be to 16 bits */
} sbit__int_tail;

static bool sbit__int_clip(const sbit__lowering *lower, const sbit_node *node, sbit__int_tail *tail)
{
    float lo = 0.0f, hi = 0.0f;
    if (!sbit__lower_clamp(lower, node, &lo, &hi) || !(lo <= hi) || hi < tail->lo ||
        lo > tail->hi) {
        return false;
    }
    tail->lo = tail->lo > lo ? tail->lo : lo;
    tail->hi = tail->hi < hi ? tail->hi : hi;
    return true;
}

/* Follows Relu and Clip from tail->output to a Q; true if there is one. */
static bool sbit__int_follow(const sbit__lowering *lower, sbit__int_tail *tail)
{
    sbit__int_tail at = *tail;
    while (!sbit__int_q_any(lower, at.output, &at.q) ||
           !(sbit__int_is_8(at.q.dtype) || (at.wide && sbit__int_is_16(at.q.dtype)))) {
        const sbit_node *node = sbit__lower_user(lower, at.output);
        if (node == NULL || at.count + 2 > SBIT__COUNT_OF(at.nodes) ||
            sbit__lower_in(node, 0).idx != at.output.idx || !sbit__int_clip(lower, node, &at)) {
            return false;
        }
        at.nodes[at.count++] = node->id;
        at.output = node->outputs[0];
    }
    at.nodes[at.count++] = at.q.node->id;
    at.output = at.q.x;
    *tail = at;
    return true;
}

static void sbit__int_tail_init(sbit__int_tail *tail, sbit_value_id output)
{
    memset(tail, 0, sizeof *tail);
    tail->output = output;
    tail->lo = -INFINITY;
    tail->hi = INFINITY;
    tail->factor = 1.0f;
}

/* >>building */

static void sbit__int_node(sbit__int_build *build, sbit_node_id id)
{
    if (build->node_count < SBIT__INT_NODES) {
        build->nodes[build->node_count++] = id;
    }
}

/* A vector; count 0: a number. */
static sbit_status sbit__int_constant(sbit__lowering *lower, const char *name, sbit_dtype dtype,
                                      int64_t count, const void *data, sbit_value_id *out,
                                      sbit_error *error)
{
    sbit_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = dtype;
    tensor.rank = count == 0 ? 0 : 1;
    tensor.dims[0] = count;
    memcpy(&tensor.data, &data, sizeof data); /* only read */
    return sbit_graph_add_constant(lower->graph, name, &tensor, out, error);
}

/* Adds scale and zero point (made if there is none), as three inputs with x if that is given. */
static sbit_status sbit__int_put(sbit__lowering *lower, sbit__int_build *build, bool with_x,
                                 const sbit__int_param *param, sbit_error *error)
{
    static const uint8_t nothing[2] = {0, 0};
    sbit_value_id zero = param->zero;
    if (zero.idx == 0) {
        SBIT__TRY(sbit__int_constant(lower, "zero_point", param->dtype, 0, nothing, &zero, error));
    }
    if (with_x) {
        build->inputs[build->input_count++] = param->x;
    }
    build->inputs[build->input_count++] = param->scale;
    build->inputs[build->input_count++] = zero;
    return SBIT_OK;
}

/* What Q makes of a number, from the type's least one. */
static float sbit__int_bound(float value, const sbit__int_param *q)
{
    const float top = sbit__int_is_16(q->dtype) ? 65535.0f : 255.0f;
    const float low = q->dtype == SBIT_I8 ? -128.0f : q->dtype == SBIT_I16 ? -32768.0f : 0.0f;
    const float rounded = rintf(value / q->s) + (float)q->z;
    return (rounded < low ? low : rounded > low + top ? low + top : rounded) - low;
}

/* Bounds of the result as unsigned integers. */
static void sbit__int_bounds(sbit__int_build *build, const sbit__int_tail *tail)
{
    if (tail->q.node != NULL && tail->lo > -INFINITY) {
        build->attrs[build->attr_count++] =
            sbit__attr_int("lo", (int64_t)sbit__int_bound(tail->lo, &tail->q));
    }
    if (tail->q.node != NULL && tail->hi < INFINITY) {
        build->attrs[build->attr_count++] =
            sbit__attr_int("hi", (int64_t)sbit__int_bound(tail->hi, &tail->q));
    }
}

static bool sbit__int_attrs(sbit__int_build *build, const sbit_node *node)
{
    if (node->attr_count + 4 > SBIT__INT_ATTRS) {
        return false;
    }
    if (node->attr_count > 0) {
        memcpy(build->attrs, node->attrs, node->attr_count * sizeof build->attrs[0]);
    }
    build->attr_count = node->attr_count;
    return true;
}

static sbit__lower_desc sbit__int_desc(const sbit__int_build *build, const char *domain, const char *op_type,
                                       const sbit_value_id *outputs, size_t output_count)
{
    sbit__lower_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.domain = domain;
    desc.op_type = op_type;
    desc.inputs = build->inputs;
    desc.input_count = build->input_count;
    desc.outputs = outputs;
    desc.output_count = output_count;
    desc.attrs = build->attrs;
    desc.attr_count = build->attr_count;
    desc.nodes = build->nodes;
    desc.node_count = build->node_count;
    return desc;
}

static sbit_status sbit__int_replace(sbit__lowering *lower, sbit__int_build *build,
                                     const char *domain, const char *op_type,
                                     const sbit_value_id *outputs, size_t output_count,
                                     sbit_error *error)
{
    const sbit__lower_desc desc = sbit__int_desc(build, domain, op_type, outputs, output_count);
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* What was built, as a node of its own in front of `at`, which stays. */
static sbit_status sbit__int_insert(sbit__lowering *lower, const sbit__int_build *build,
                                    const char *domain, const char *op_type, sbit_node_id at,
                                    const sbit_value_id *outputs, size_t output_count,
                                    sbit_error *error)
{
    sbit__lower_desc desc = sbit__int_desc(build, domain, op_type, outputs, output_count);
    desc.nodes = &at;
    desc.node_count = 1;
    desc.at = at;
    return sbit__lower_insert(lower, &desc, NULL, error);
}

/* >>products: Conv, Gemm, MatMul */

typedef struct sbit__int_product {
    const char *op_type; /* of the new node */
    int64_t columns;     /* output channels; 0: not known */
    int32_t axis;        /* of them in the weight */
    sbit__int_param x, w;
    const sbit_tensor *w_scale; /* of a constant weight; NULL: w is an activation */
    int64_t largest;            /* |sum| without bias */
    sbit_value_id bias;
    sbit_node_id pad; /* in front of a Conv, and the pads of both; none: no Pad */
    int64_t pads[2 * SBIT__MAX_SPATIAL];
    size_t pad_count;
} sbit__int_product;

/* Several in a byte. */
static bool sbit__int_is_packed(sbit_dtype dtype)
{
    return dtype == SBIT_I4 || dtype == SBIT_U4 || dtype == SBIT_I2 || dtype == SBIT_U2;
}

/* A constant of such a type becomes one of int8 with the same numbers; none stays none. */
static sbit_status sbit__int_unpack(sbit__lowering *lower, sbit_value_id *id, sbit_error *error)
{
    const sbit_tensor *from = sbit__lower_constant(lower, *id);
    if (from == NULL || !sbit__int_is_packed(from->dtype)) {
        return SBIT_OK;
    }
    sbit_tensor to = *from;
    const size_t bytes = (size_t)sbit_tensor_count(from);
    int8_t *data = (int8_t *)sbit__alloc(&lower->ctx->allocator, bytes);
    if (data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (int8_t)sbit__tensor_i64_at(from, (int64_t)i);
    }
    to.dtype = SBIT_I8;
    to.data = data;
    const sbit_status status = sbit_graph_add_constant(lower->graph, "unpacked", &to, id, error);
    sbit__free(&lower->ctx->allocator, data, bytes);
    return status;
}

/* Kernels know weights of 8 bits. */
static sbit_status sbit__int_unpack_weight(sbit__lowering *lower, sbit__int_param *w,
                                           sbit_error *error)
{
    w->dtype = sbit__int_is_packed(w->dtype) ? SBIT_I8 : w->dtype;
    SBIT__TRY(sbit__int_unpack(lower, &w->x, error));
    return sbit__int_unpack(lower, &w->zero, error);
}

/* DQ of a constant weight, one scale or one for each index of its output axis. */
static bool sbit__int_weight(const sbit__lowering *lower, sbit_value_id id,
                             sbit__int_product *product)
{
    const sbit_node *node = sbit__lower_producer(lower, id);
    const sbit_tensor *q = NULL, *scale = NULL, *zero = NULL;
    if (!sbit__lower_is(lower, node, "DequantizeLinear") ||
        sbit__lower_type(lower, id)->dtype != SBIT_F32 ||
        sbit_node_int(node, "block_size", 0) != 0) {
        return false;
    }
    q = sbit__lower_constant(lower, node->inputs[0]);
    scale = sbit__lower_constant(lower, node->inputs[1]);
    zero = sbit__lower_constant(lower, sbit__lower_in(node, 2));
    if (q == NULL || scale == NULL || !(sbit__int_is_8(q->dtype) || sbit__int_is_packed(q->dtype)) ||
        scale->dtype != SBIT_F32 || (sbit__lower_in(node, 2).idx != 0 && zero == NULL) ||
        q->rank < 2 ||
        product->axis >= q->rank) { /* a vector has no output channels */
        return false;
    }
    const int32_t axis = product->axis < 0 ? product->axis + q->rank : product->axis;
    const int64_t given = sbit_node_int(node, "axis", 1);
    const int64_t count = sbit_tensor_count(scale);
    product->columns = axis >= 0 ? q->dims[axis] : 0;
    if (axis < 0 ||
        (count != 1 &&
         (count != product->columns || (given < 0 ? given + q->rank : given) != axis)) ||
        (zero != NULL && sbit_tensor_count(zero) != count)) {
        return false;
    }
    product->largest =
        product->columns > 0 ? sbit_tensor_count(q) / product->columns * (255 * 255) : 0;
    if (zero == NULL && q->dtype == SBIT_I8) {
        product->largest = product->largest / 255 * 128;
    }
    product->w.node = node;
    product->w.x = node->inputs[0];
    product->w.scale = node->inputs[1];
    product->w.zero = sbit__lower_in(node, 2);
    product->w.dtype = q->dtype;
    product->w_scale = scale;
    return true;
}

/* int32 with the scale of the sums: is added to them, unless that could be too much for int32. */
static bool sbit__int_bias_fits(const sbit__int_product *product, const sbit_tensor *q,
                                const sbit_tensor *scale, const sbit_tensor *zero)
{
    const int64_t n = sbit_tensor_count(scale), weights = sbit_tensor_count(product->w_scale);
    if (q->dtype != SBIT_I32 || (zero != NULL && sbit__tensor_i64_at(zero, 0) != 0)) {
        return false;
    }
    for (int64_t c = 0; c < product->columns; c++) {
        const int64_t bias = ((const int32_t *)q->data)[c];
        if ((bias < 0 ? -bias : bias) > INT32_MAX - product->largest) {
            return false;
        }
    }
    for (int64_t c = 0; c < (n > weights ? n : weights); c++) {
        const float sum =
            product->x.s * ((const float *)product->w_scale->data)[weights > 1 ? c : 0];
        if (((const float *)scale->data)[n > 1 ? c : 0] != sum) {
            return false;
        }
    }
    return true;
}

/* A constant bias of `columns` elements: itself, its integers, or its floats as a new constant. */
static sbit_status sbit__int_bias(sbit__lowering *lower, const sbit__int_product *product,
                                  sbit_value_id id, sbit_value_id *out, sbit_error *error)
{
    const sbit_tensor *constant = sbit__lower_constant(lower, id);
    const sbit_node *node = sbit__lower_producer(lower, id);
    *out = sbit__int_none();
    if (constant != NULL && constant->dtype == SBIT_F32) {
        const int64_t n = product->columns, last = constant->rank - 1; /* Gemm: or one per row */
        const bool fits = sbit_tensor_count(constant) == n && (n == 1 || constant->dims[last] == n);
        *out = fits ? id : *out;
        return SBIT_OK;
    }
    if (!sbit__lower_is(lower, node, "DequantizeLinear")) {
        return SBIT_OK;
    }
    const sbit_tensor *q = sbit__lower_constant(lower, node->inputs[0]);
    const sbit_tensor *scale = sbit__lower_constant(lower, node->inputs[1]);
    const sbit_tensor *zero = sbit__lower_constant(lower, sbit__lower_in(node, 2));
    if (q == NULL || scale == NULL || scale->dtype != SBIT_F32 || q->rank != 1 ||
        q->dims[0] != product->columns || (sbit__lower_in(node, 2).idx != 0 && zero == NULL) ||
        (sbit_tensor_count(scale) != 1 && sbit_tensor_count(scale) != product->columns) ||
        (zero != NULL && sbit_tensor_count(zero) != sbit_tensor_count(scale))) {
        return SBIT_OK;
    }
    if (sbit__int_bias_fits(product, q, scale, zero)) {
        *out = node->inputs[0];
        return SBIT_OK;
    }
    const size_t bytes = (size_t)product->columns * sizeof(float);
    float *values = (float *)sbit__calloc(&lower->ctx->allocator, 1, bytes);
    if (values == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int64_t c = 0; c < product->columns; c++) {
        const int64_t at = sbit_tensor_count(scale) > 1 ? c : 0;
        const int64_t z = zero != NULL ? sbit__tensor_i64_at(zero, at) : 0;
        values[c] = (float)(sbit__tensor_i64_at(q, c) - z) * ((const float *)scale->data)[at];
    }
    const sbit_status status =
        sbit__int_constant(lower, "bias", SBIT_F32, product->columns, values, out, error);
    sbit__free(&lower->ctx->allocator, values, bytes);
    return status;
}

static void sbit__int_set_pads(sbit__int_build *build, const int64_t *pads, size_t count)
{
    size_t at = 0;
    while (at < build->attr_count && strcmp(build->attrs[at].name, "pads") != 0) {
        at++;
    }
    build->attrs[at] = sbit__attr_ints("pads", pads, count);
    build->attr_count += at == build->attr_count ? 1 : 0;
}

/* The pads of a Pad: two numbers for each axis, all known; NULL: not that, or of chosen axes. */
static const int64_t *sbit__int_pads(const sbit__lowering *lower, const sbit_node *pad,
                                     int32_t rank)
{
    const sbit_tensor *pads = sbit__lower_constant(lower, sbit__lower_in(pad, 1));
    return rank > 0 && pads != NULL && pads->dtype == SBIT_I64 &&
                   sbit_tensor_count(pads) == 2 * (int64_t)rank &&
                   sbit__lower_in(pad, 3).idx == 0 &&
                   strcmp(sbit_node_string(pad, "mode", "constant"), "constant") == 0
               ? (const int64_t *)pads->data
               : NULL;
}

/* A Pad of integers with the zero point in front of a Conv, along positions: the Conv pads. */
static void sbit__int_take_pad(const sbit__lowering *lower, const sbit_node *node,
                               sbit__int_product *product)
{
    const sbit_node *pad = sbit__lower_producer(lower, product->x.x);
    const int32_t rank = sbit__lower_type(lower, product->x.x)->rank, spatial = rank - 2;
    const sbit_tensor *value = NULL;
    const int64_t *pads = NULL;
    const sbit_attr *own = sbit_node_attr(node, "pads");
    if (!sbit__lower_is(lower, pad, "Pad") || rank < 3 || spatial > SBIT__MAX_SPATIAL ||
        strcmp(sbit_node_string(node, "auto_pad", "NOTSET"), "NOTSET") != 0 ||
        (own != NULL && own->count != 2 * (size_t)spatial)) {
        return;
    }
    value = sbit__lower_constant(lower, sbit__lower_in(pad, 2));
    pads = sbit__int_pads(lower, pad, rank);
    if (value == NULL || pads == NULL || sbit__tensor_i64_at(value, 0) != product->x.z) {
        return;
    }
    for (int32_t i = 0; i < 2 * rank; i++) {
        const int32_t axis = i % rank - 2, at = axis + i / rank * spatial;
        if (pads[i] < 0 || pads[i] > INT32_MAX || (axis < 0 && pads[i] != 0)) {
            return;
        }
        if (axis >= 0) {
            product->pads[at] = pads[i] + (own != NULL ? own->ints[at] : 0);
        }
    }
    product->pad_count = 2 * (size_t)spatial;
    product->pad = pad->id;
    product->x.x = pad->inputs[0];
}

/* The nodes that a product does the work of. */
static void sbit__int_product_nodes(const sbit__lowering *lower, const sbit_node *node,
                                    const sbit__int_product *product, const sbit__int_tail *tail,
                                    sbit__int_build *build)
{
    sbit__int_node(build, node->id);
    if (product->pad.idx != 0) {
        sbit__int_node(build, product->pad);
    }
    for (size_t i = 0; i < tail->count; i++) {
        sbit__int_node(build, tail->nodes[i]);
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_node *maker = sbit__lower_producer(lower, node->inputs[i]);
        if (sbit__lower_is(lower, maker, "DequantizeLinear")) {
            sbit__int_node(build, maker->id);
        }
    }
}

static sbit_status sbit__int_product_inputs(sbit__lowering *lower, sbit__int_build *build,
                                            const sbit__int_product *product,
                                            const sbit__int_tail *tail, sbit_error *error)
{
    const bool gemm = strcmp(product->op_type, "QGemm") == 0;
    SBIT__TRY(sbit__int_put(lower, build, true, &product->x, error));
    SBIT__TRY(sbit__int_put(lower, build, true, &product->w, error));
    if (gemm) {
        build->inputs[build->input_count++] = product->bias;
    }
    if (tail->q.node != NULL) {
        SBIT__TRY(sbit__int_put(lower, build, false, &tail->q, error));
    } else {
        build->input_count += 2;
    }
    if (!gemm) {
        build->inputs[build->input_count++] = product->bias;
    }
    while (build->input_count > 0 && build->inputs[build->input_count - 1].idx == 0) {
        build->input_count--;
    }
    sbit__int_bounds(build, tail);
    if (tail->factor != 1.0f) {
        build->attrs[build->attr_count++] = sbit__attr_float("alpha", tail->factor);
    }
    return SBIT_OK;
}

static sbit_status sbit__int_emit_product(sbit__lowering *lower, const sbit_node *node,
                                          const sbit__int_product *product,
                                          const sbit__int_tail *tail, sbit_error *error)
{
    sbit__int_build *build = sbit__int_begin(lower);
    if (!sbit__int_attrs(build, node)) {
        return SBIT_OK;
    }
    if (product->pad.idx != 0) {
        sbit__int_set_pads(build, product->pads, product->pad_count);
    }
    sbit__int_product_nodes(lower, node, product, tail, build);
    SBIT__TRY(sbit__int_product_inputs(lower, build, product, tail, error));
    return sbit__int_replace(lower, build, NULL, product->op_type, &tail->output, 1, error);
}

/* The first node whose output's only user is asked for; with one output. */
static const sbit_node *sbit__int_next(const sbit__lowering *lower, sbit_value_id id,
                                       const char *op_type)
{
    const sbit_node *node = sbit__lower_user(lower, id);
    return sbit__lower_is(lower, node, op_type) && node->input_count == 2 ? node : NULL;
}

static sbit_value_id sbit__int_other(const sbit_node *node, sbit_value_id id)
{
    return node->inputs[node->inputs[0].idx == id.idx ? 1 : 0];
}

/* MatMul: a number times the result, then a bias over the last axis. */
static sbit_status sbit__int_matmul_tail(sbit__lowering *lower, sbit__int_product *product,
                                         sbit__int_tail *tail, sbit_error *error)
{
    sbit__int_tail at = *tail;
    const sbit_node *node = sbit__int_next(lower, at.output, "Mul");
    if (node != NULL && sbit__lower_scalar(lower, sbit__int_other(node, at.output), &at.factor) &&
        sbit__lower_type(lower, node->outputs[0])->rank ==
            sbit__lower_type(lower, at.output)->rank) {
        at.nodes[at.count++] = node->id;
        at.output = node->outputs[0];
    } else {
        at.factor = 1.0f;
    }
    node = at.factor == 1.0f && product->w_scale != NULL ? sbit__int_next(lower, at.output, "Add")
                                                         : NULL;
    const sbit_value_id other = node != NULL ? sbit__int_other(node, at.output) : sbit__int_none();
    const sbit_tensor *vector = sbit__lower_constant(lower, other);
    const bool is_dq =
        sbit__lower_is(lower, sbit__lower_producer(lower, other), "DequantizeLinear");
    if (node != NULL && ((vector != NULL && vector->rank == 1) || is_dq) &&
        sbit__lower_type(lower, other)->rank == 1) {
        SBIT__TRY(sbit__int_bias(lower, product, other, &product->bias, error));
        if (product->bias.idx != 0) {
            at.nodes[at.count++] = node->id;
            at.output = node->outputs[0];
        }
    }
    const bool quantized = sbit__int_follow(lower, &at);
    if (at.factor != 1.0f && !quantized) { /* (float)acc * s, then the number: two roundings */
        return SBIT_OK;
    }
    *tail = at;
    return SBIT_OK;
}

/* |sum| of a product of activations. Where nobody says how many terms it has, what the row does
 * with many holds: they are added up in 64 bits. */
static int64_t sbit__int_largest(const sbit__lowering *lower, const sbit_node *node)
{
    const sbit_type *x = sbit__lower_type(lower, node->inputs[0]);
    const sbit_type *w = sbit__lower_type(lower, node->inputs[1]);
    const sbit_dim *k = x->rank > 0 ? &x->dims[x->rank - 1] : NULL;
    if ((k == NULL || !sbit__dim_known(*k)) && w->rank > 0) {
        k = &w->dims[w->rank > 1 ? w->rank - 2 : 0];
    }
    return k != NULL && sbit__dim_known(*k) ? sbit__saturating_mul(k->value, 255 * 255) : 0;
}

/* >>products of 16 bits: those of the high and of the low bytes, joined (ops/qlinear_wide.c) */

/* W [k, n] of a weight [n, k] of bytes. */
static sbit_status sbit__int_turn(sbit__lowering *lower, sbit_value_id *id, sbit_error *error)
{
    const sbit_tensor *from = sbit__lower_constant(lower, *id);
    const size_t bytes = (size_t)sbit_tensor_count(from);
    uint8_t *data = (uint8_t *)sbit__alloc(&lower->ctx->allocator, bytes);
    sbit_tensor to = *from;
    if (data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int64_t i = 0; i < (int64_t)bytes; i++) {
        const int64_t n = i / from->dims[1], k = i % from->dims[1];
        data[k * from->dims[0] + n] = ((const uint8_t *)from->data)[i];
    }
    to.data = data;
    to.dims[0] = from->dims[1];
    to.dims[1] = from->dims[0];
    const sbit_status status = sbit_graph_add_constant(lower->graph, "turned", &to, id, error);
    sbit__free(&lower->ctx->allocator, data, bytes);
    return status;
}

/* A value beside `like`, of another type of elements. */
static sbit_status sbit__int_value(sbit__lowering *lower, sbit_value_id like, const char *name,
                                   sbit_dtype dtype, sbit_value_id *out, sbit_error *error)
{
    sbit_type type = *sbit__lower_type(lower, like);
    type.dtype = dtype;
    return sbit_graph_add_value(lower->graph, name, &type, out, error);
}

static sbit_status sbit__int_emit_wide(sbit__lowering *lower, const sbit_node *node,
                                       const sbit__int_product *product, const sbit__int_tail *tail,
                                       sbit_error *error)
{
    const bool conv = strcmp(product->op_type, "QConv") == 0;
    const int32_t z = product->x.z + (product->x.dtype == SBIT_I16 ? 32768 : 0);
    const uint8_t zeros[2] = {(uint8_t)(z / 256), (uint8_t)(z % 256)};
    sbit_value_id bytes[2], sums[2], zero;
    SBIT__TRY(sbit__int_value(lower, product->x.x, "high", SBIT_U8, &bytes[0], error));
    SBIT__TRY(sbit__int_value(lower, product->x.x, "low", SBIT_U8, &bytes[1], error));
    sbit__int_build *build = sbit__int_begin(lower);
    build->inputs[build->input_count++] = product->x.x;
    SBIT__TRY(sbit__int_insert(lower, build, NULL, "QSplit", node->id, bytes, 2, error));
    for (int i = 0; i < 2; i++) {
        SBIT__TRY(sbit__int_constant(lower, "zero_point", SBIT_U8, 0, &zeros[i], &zero, error));
        SBIT__TRY(sbit__int_value(lower, node->outputs[0], "sums", SBIT_I32, &sums[i], error));
        build = sbit__int_begin(lower);
        if (conv) {
            (void)sbit__int_attrs(build, node); /* few enough: asked before */
        }
        build->inputs[build->input_count++] = bytes[i];
        build->inputs[build->input_count++] = product->w.x;
        build->inputs[build->input_count++] = zero;
        build->inputs[build->input_count] = product->w.zero;
        build->input_count += product->w.zero.idx != 0 ? 1 : 0;
        SBIT__TRY(sbit__int_insert(lower, build, "", conv ? "ConvInteger" : "MatMulInteger",
                                   node->id, &sums[i], 1, error));
    }
    build = sbit__int_begin(lower);
    build->inputs[build->input_count++] = sums[0];
    build->inputs[build->input_count++] = sums[1];
    build->inputs[build->input_count++] = product->x.scale;
    build->inputs[build->input_count++] = product->w.scale;
    build->inputs[build->input_count++] = product->bias;
    if (tail->q.node != NULL) {
        SBIT__TRY(sbit__int_put(lower, build, false, &tail->q, error));
    } else {
        build->input_count -= product->bias.idx == 0 ? 1 : 0;
    }
    build->attrs[build->attr_count++] = sbit__attr_int("axis", conv ? 1 : -1);
    build->attrs[build->attr_count++] = sbit__attr_float("alpha", tail->factor);
    sbit__int_bounds(build, tail);
    sbit__int_product_nodes(lower, node, product, tail, build);
    return sbit__int_replace(lower, build, NULL, "QJoin", &tail->output, 1, error);
}

static sbit_status sbit__int_wide(sbit__lowering *lower, const sbit_node *node,
                                  sbit__int_product *product, sbit_error *error)
{
    const bool gemm = strcmp(product->op_type, "QGemm") == 0;
    sbit__int_tail tail;
    if (!sbit__int_weight(lower, node->inputs[1], product) ||
        sbit__lower_type(lower, product->x.x)->rank < 2 ||
        (gemm && sbit_node_int(node, "transA", 0) != 0) ||
        !sbit__int_attrs(sbit__int_begin(lower), node)) {
        return sbit__lower_reason(lower, node->id,
                                  "float: integers of 16 bits are multiplied with constant weights "
                                  "of 2 to 8 bits only",
                                  error);
    }
    if (sbit__lower_in(node, 2).idx != 0) {
        SBIT__TRY(sbit__int_bias(lower, product, node->inputs[2], &product->bias, error));
    }
    if (product->largest > INT32_MAX ||
        (sbit__lower_in(node, 2).idx != 0 && product->bias.idx == 0)) {
        return sbit__lower_reason(lower, node->id,
                                  "float: its sums may not fit in int32, or its bias is no constant "
                                  "of one element for each output channel",
                                  error);
    }
    SBIT__TRY(sbit__int_unpack_weight(lower, &product->w, error));
    if (gemm && product->axis == 0) {
        SBIT__TRY(sbit__int_turn(lower, &product->w.x, error));
    }
    sbit__int_tail_init(&tail, node->outputs[0]);
    tail.wide = true;
    if (strcmp(product->op_type, "QMatMul") == 0) {
        SBIT__TRY(sbit__int_matmul_tail(lower, product, &tail, error));
    } else {
        (void)sbit__int_follow(lower, &tail);
    }
    return sbit__int_emit_wide(lower, node, product, &tail, error);
}

static sbit_status sbit__int_product_entry(sbit__lowering *lower, const sbit_node *node,
                                           const char *op_type, int32_t axis, sbit_error *error)
{
    sbit__int_product product;
    sbit__int_tail tail;
    memset(&product, 0, sizeof product);
    product.op_type = op_type;
    product.axis = axis;
    const bool matmul = strcmp(op_type, "QMatMul") == 0;
    if (node->input_count < 2 || node->output_count != 1 ||
        !sbit__int_dq_any(lower, node->inputs[0], &product.x)) {
        return SBIT_OK;
    }
    if (!sbit__int_is_8(product.x.dtype)) {
        return sbit__int_is_16(product.x.dtype) ? sbit__int_wide(lower, node, &product, error)
                                                : SBIT_OK;
    }
    if (!sbit__int_weight(lower, node->inputs[1], &product) &&
        !(matmul && sbit__int_dq(lower, node->inputs[1], &product.w))) {
        return sbit__lower_reason(lower, node->id,
                                  "float: the weight is no constant of 2 to 8 bits with one scale or "
                                  "one for each output channel",
                                  error);
    }
    if (sbit__lower_in(node, 2).idx != 0) {
        SBIT__TRY(sbit__int_bias(lower, &product, node->inputs[2], &product.bias, error));
        if (product.bias.idx == 0) {
            return sbit__lower_reason(lower, node->id,
                                      "float: the bias is no constant of one element for each "
                                      "output channel",
                                      error);
        }
    }
    if (product.w_scale == NULL) {
        product.largest = sbit__int_largest(lower, node);
    }
    if (product.largest > INT32_MAX) {
        return sbit__lower_reason(lower, node->id, "float: its sums may not fit in int32", error);
    }
    SBIT__TRY(sbit__int_unpack_weight(lower, &product.w, error));
    sbit__int_tail_init(&tail, node->outputs[0]);
    if (strcmp(op_type, "QConv") == 0) {
        sbit__int_take_pad(lower, node, &product);
    }
    if (matmul) {
        SBIT__TRY(sbit__int_matmul_tail(lower, &product, &tail, error));
    } else {
        (void)sbit__int_follow(lower, &tail);
    }
    return sbit__int_emit_product(lower, node, &product, &tail, error);
}

static sbit_status sbit__int_conv(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    return sbit__int_product_entry(lower, node, "QConv", 0, error);
}

/* >>ConvTranspose whose windows lie side by side: a Conv of 1 x 1 makes all pixels of a window, and
 * DepthToSpace puts them in their places */

/* The side of the windows; 0: they overlap, or leave gaps. */
static int64_t sbit__int_side(const sbit__lowering *lower, const sbit_node *node)
{
    static const char *const zeros[] = {"pads", "output_padding"};
    const sbit_type *w = sbit__lower_type(lower, node->inputs[1]);
    const sbit_attr *strides = sbit_node_attr(node, "strides");
    const sbit_attr *dilations = sbit_node_attr(node, "dilations");
    const sbit_attr *padding = sbit_node_attr(node, "auto_pad");
    bool fits = w->rank == 4 && sbit__dim_known(w->dims[2]) && strides != NULL &&
                strides->count == 2 && sbit_node_int(node, "group", 1) == 1 &&
                sbit_node_attr(node, "output_shape") == NULL &&
                (padding == NULL || strcmp(sbit_node_string(node, "auto_pad", ""), "NOTSET") == 0);
    for (int32_t i = 0; fits && i < 2; i++) {
        const sbit_attr *attr = sbit_node_attr(node, zeros[i]);
        fits = sbit__dim_known(w->dims[i + 2]) && w->dims[i + 2].value == strides->ints[i] &&
               strides->ints[i] == strides->ints[0] &&
               (dilations == NULL || ((size_t)i < dilations->count && dilations->ints[i] == 1));
        for (size_t k = 0; attr != NULL && k < attr->count; k++) {
            fits = fits && attr->ints[k] == 0;
        }
    }
    return fits ? w->dims[2].value : 0;
}

/* A constant with one element for each of `columns`, `times` times; one number stays as it is.
 * columns 0: W [in, out, side, side] becomes [side, side, out, in] instead. */
static sbit_status sbit__int_spread(sbit__lowering *lower, sbit_value_id *id, int64_t columns,
                                    int64_t times, sbit_error *error)
{
    const sbit_tensor *from = sbit__lower_constant(lower, *id);
    const bool order = columns == 0;
    const int64_t count = from != NULL ? sbit_tensor_count(from) : 0;
    if (from == NULL || (!order && (from->rank != 1 || count != columns))) {
        return SBIT_OK;
    }
    sbit_tensor to = *from;
    const size_t each = (size_t)sbit_dtype_bits((int32_t)from->dtype) / 8;
    const size_t bytes = (size_t)(order ? count : count * times) * each;
    char *data = (char *)sbit__alloc(&lower->ctx->allocator, bytes);
    if (data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    to.data = data;
    if (order) {
        const int64_t in = from->dims[0], out = from->dims[1];
        for (int64_t i = 0; i < count; i++) { /* i = (c * out + o) * times + t */
            const int64_t c = i / times / out, o = i / times % out, t = i % times;
            data[(t * out + o) * in + c] = ((const char *)from->data)[i];
        }
        to.dims[0] = times * out;
        to.dims[1] = in;
        to.dims[2] = to.dims[3] = 1;
    } else {
        for (int64_t t = 0; t < times; t++) {
            memcpy(data + (size_t)(t * count) * each, from->data, (size_t)count * each);
        }
        to.rank = 1;
        to.dims[0] = count * times;
    }
    const sbit_status status = sbit_graph_add_constant(lower->graph, "pixels", &to, id, error);
    sbit__free(&lower->ctx->allocator, data, bytes);
    return status;
}

static sbit_status sbit__int_conv_transpose(sbit__lowering *lower, const sbit_node *node,
                                            sbit_error *error)
{
    sbit__int_product product;
    sbit__int_tail tail;
    memset(&product, 0, sizeof product);
    product.op_type = "QConv";
    product.axis = 1;
    if (node->input_count < 2 || node->output_count != 1 ||
        !sbit__int_dq(lower, node->inputs[0], &product.x)) {
        return SBIT_OK;
    }
    const int64_t side = sbit__int_side(lower, node);
    if (side == 0 || !sbit__int_weight(lower, node->inputs[1], &product)) {
        return sbit__lower_reason(lower, node->id,
                                  "float: integer ConvTranspose has one group, a constant weight "
                                  "of 2 to 8 bits and windows side by side",
                                  error);
    }
    if (sbit__lower_in(node, 2).idx != 0) {
        SBIT__TRY(sbit__int_bias(lower, &product, node->inputs[2], &product.bias, error));
        if (product.bias.idx == 0) {
            return SBIT_OK;
        }
    }
    if (product.largest / (side * side) > INT32_MAX) {
        return sbit__lower_reason(lower, node->id, "float: its sums may not fit in int32", error);
    }
    SBIT__TRY(sbit__int_unpack_weight(lower, &product.w, error));
    sbit__int_tail_init(&tail, node->outputs[0]);
    (void)sbit__int_follow(lower, &tail);
    SBIT__TRY(sbit__int_spread(lower, &product.w.x, 0, side * side, error));
    SBIT__TRY(sbit__int_spread(lower, &product.w.scale, product.columns, side * side, error));
    SBIT__TRY(sbit__int_spread(lower, &product.w.zero, product.columns, side * side, error));
    SBIT__TRY(sbit__int_spread(lower, &product.bias, product.columns, side * side, error));
    sbit_type type = *sbit__lower_type(lower, product.x.x);
    type.dtype = tail.q.node != NULL ? tail.q.dtype : SBIT_F32;
    type.dims[1] = sbit__dim(product.columns * side * side);
    sbit_value_id pixels;
    SBIT__TRY(sbit_graph_add_value(lower->graph, "pixels", &type, &pixels, error));
    sbit__int_build *build = sbit__int_begin(lower);
    SBIT__TRY(sbit__int_product_inputs(lower, build, &product, &tail, error));
    SBIT__TRY(sbit__int_insert(lower, build, NULL, "QConv", node->id, &pixels, 1, error));
    build = sbit__int_begin(lower);
    sbit__int_product_nodes(lower, node, &product, &tail, build);
    build->inputs[build->input_count++] = pixels;
    build->attrs[build->attr_count++] = sbit__attr_int("blocksize", side);
    return sbit__int_replace(lower, build, "", "DepthToSpace", &tail.output, 1, error);
}

static sbit_status sbit__int_gemm(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    const bool plain = sbit_node_float(node, "alpha", 1.0f) == 1.0f &&
                       (sbit_node_float(node, "beta", 1.0f) == 1.0f || node->input_count < 3);
    return plain ? sbit__int_product_entry(lower, node, "QGemm",
                                           sbit_node_int(node, "transB", 0) != 0 ? 0 : 1, error)
                 : SBIT_OK;
}

static sbit_status sbit__int_matmul(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    return sbit__int_product_entry(lower, node, "QMatMul", -1, error);
}

/* >>elements */

static sbit_status sbit__int_binary(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    sbit__int_param a, b;
    sbit__int_tail tail;
    sbit__int_build *build = sbit__int_begin(lower);
    if (node->input_count != 2 || !sbit__int_dq(lower, node->inputs[0], &a) ||
        !sbit__int_dq(lower, node->inputs[1], &b)) {
        return SBIT_OK;
    }
    sbit__int_tail_init(&tail, node->outputs[0]);
    if (!sbit__int_follow(lower, &tail)) {
        return sbit__lower_reason(lower, node->id, "float: its result is not quantized", error);
    }
    sbit__int_node(build, node->id);
    for (size_t i = 0; i < tail.count; i++) {
        sbit__int_node(build, tail.nodes[i]);
    }
    sbit__int_node(build, a.node->id);
    sbit__int_node(build, b.node->id);
    SBIT__TRY(sbit__int_put(lower, build, true, &a, error));
    SBIT__TRY(sbit__int_put(lower, build, true, &b, error));
    SBIT__TRY(sbit__int_put(lower, build, false, &tail.q, error));
    sbit__int_bounds(build, &tail);
    const char *op_type = strcmp(node->op_type, "Add") == 0   ? "QAdd"
                          : strcmp(node->op_type, "Sub") == 0 ? "QSub"
                                                              : "QMul";
    return sbit__int_replace(lower, build, NULL, op_type, &tail.output, 1, error);
}

/* The product that makes input i of a QAdd, for it alone, and could add what stands beside. */
static const sbit_node *sbit__int_adder(const sbit__lowering *lower, const sbit_node *add, size_t i)
{
    static const char *const products[] = {"QConv", "QMatMul", "QGemm"};
    const sbit_value_id own = add->inputs[i], other = add->inputs[3 - i];
    const sbit_node *node = sbit__lower_producer(lower, own);
    float made = 0.0f, read = 0.0f;
    size_t at = 0;
    while (node != NULL && at < 3 && !sbit__streq(node->op_type, products[at])) {
        at++;
    }
    if (node == NULL || at == 3 || !sbit__streq(node->domain, "sbit") || node->input_count > 9 ||
        sbit__lower_user(lower, own) != add || own.idx == other.idx ||
        sbit__lower_constant(lower, node->inputs[3]) == NULL || sbit__lower_in_loop(lower->graph) ||
        !sbit__same_dims(sbit__lower_type(lower, own), sbit__lower_type(lower, other)) ||
        !sbit__lower_scalar(lower, node->inputs[at == 2 ? 7 : 6], &made) ||
        !sbit__lower_scalar(lower, add->inputs[i + 1], &read) || made != read) {
        return NULL;
    }
    const sbit_tensor *zero_made = sbit__lower_constant(lower, node->inputs[at == 2 ? 8 : 7]);
    const sbit_tensor *zero_read = sbit__lower_constant(lower, add->inputs[i + 2]);
    return sbit__tensor_i64_at(zero_made, 0) == sbit__tensor_i64_at(zero_read, 0) ? node : NULL;
}

static sbit_status sbit__int_residual(sbit__lowering *lower, const sbit_node *node,
                                      sbit_error *error)
{
    sbit__int_build *build = sbit__int_begin(lower);
    if (!sbit__streq(node->domain, "sbit") || !sbit__streq(node->op_type, "QAdd")) {
        return SBIT_OK;
    }
    const sbit_node *first = sbit__int_adder(lower, node, 0);
    const sbit_node *second = sbit__int_adder(lower, node, 3);
    const bool later = /* of two the one that is computed last */
        first == NULL || (second != NULL && sbit__lower_before(lower, first, second));
    const sbit_node *product = later ? second : first;
    if (product == NULL || !sbit__int_attrs(build, product)) {
        return SBIT_OK;
    }
    memcpy(build->inputs, product->inputs, product->input_count * sizeof build->inputs[0]);
    memcpy(build->inputs + 9, node->inputs + (later ? 0 : 3), 3 * sizeof build->inputs[0]);
    memcpy(build->inputs + 12, node->inputs + 6, 2 * sizeof build->inputs[0]);
    build->input_count = 14;
    build->attrs[build->attr_count++] = sbit__attr_int("sum_lo", sbit_node_int(node, "lo", 0));
    build->attrs[build->attr_count++] = sbit__attr_int("sum_hi", sbit_node_int(node, "hi", 255));
    sbit__int_node(build, product->id);
    sbit__int_node(build, node->id);
    return sbit__int_replace(lower, build, NULL, product->op_type, node->outputs, 1, error);
}

static sbit_status sbit__int_concat(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    sbit__int_param x, q;
    sbit__int_build *build = sbit__int_begin(lower);
    if (3 * node->input_count + 2 > SBIT__INT_INPUTS) {
        return SBIT_OK;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        if (!sbit__int_dq(lower, node->inputs[i], &x)) {
            return SBIT_OK;
        }
    }
    if (!sbit__int_q(lower, node->outputs[0], &q)) {
        return sbit__lower_reason(lower, node->id, "float: its result is not quantized", error);
    }
    sbit__int_node(build, node->id);
    sbit__int_node(build, q.node->id);
    SBIT__TRY(sbit__int_put(lower, build, false, &q, error));
    for (size_t i = 0; i < node->input_count; i++) {
        (void)sbit__int_dq(lower, node->inputs[i], &x);
        sbit__int_node(build, x.node->id);
        SBIT__TRY(sbit__int_put(lower, build, true, &x, error));
    }
    build->attrs[build->attr_count++] = sbit__attr_int("axis", sbit_node_int(node, "axis", 1));
    return sbit__int_replace(lower, build, NULL, "QConcat", &q.x, 1, error);
}

/* One tensor in, one out: x, its parameters, the result's. */
static sbit_status sbit__int_single(sbit__lowering *lower, const sbit_node *node,
                                    const char *op_type, const sbit__int_param *x,
                                    const sbit__int_param *q, sbit__int_build *build,
                                    sbit_value_id output, sbit_error *error)
{
    sbit__int_node(build, node->id);
    sbit__int_node(build, q->node->id);
    sbit__int_node(build, x->node->id);
    SBIT__TRY(sbit__int_put(lower, build, true, x, error));
    SBIT__TRY(sbit__int_put(lower, build, false, q, error));
    return sbit__int_replace(lower, build, NULL, op_type, &output, 1, error);
}

/* DQ in front and Q behind; says why not if only the second is missing. */
static sbit_status sbit__int_between(sbit__lowering *lower, const sbit_node *node,
                                     sbit__int_param *x, sbit__int_param *q, bool *found,
                                     sbit_error *error)
{
    *found = node->output_count == 1 && sbit__int_dq(lower, sbit__lower_in(node, 0), x);
    if (*found && !sbit__int_q(lower, node->outputs[0], q)) {
        *found = false;
        return sbit__lower_reason(lower, node->id, "float: its result is not quantized", error);
    }
    return SBIT_OK;
}

static sbit_status sbit__int_pool(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    sbit__int_param x, q;
    sbit__int_build *build = sbit__int_begin(lower);
    bool found = false;
    SBIT__TRY(sbit__int_between(lower, node, &x, &q, &found, error));
    if (!found || !sbit__int_attrs(build, node)) {
        return SBIT_OK;
    }
    return sbit__int_single(lower, node,
                            strcmp(node->op_type, "AveragePool") == 0 ? "QAveragePool"
                                                                      : "QGlobalAveragePool",
                            &x, &q, build, q.x, error);
}

static sbit_status sbit__int_softmax(sbit__lowering *lower, const sbit_node *node,
                                     sbit_error *error)
{
    const int64_t opset = sbit_graph_opset(lower->graph, "");
    sbit__int_param x, q;
    sbit__int_build *build = sbit__int_begin(lower);
    bool found = false;
    SBIT__TRY(sbit__int_between(lower, node, &x, &q, &found, error));
    if (!found) {
        return SBIT_OK;
    }
    build->attrs[build->attr_count++] =
        sbit__attr_int("axis", sbit_node_int(node, "axis", opset < 13 ? 1 : -1));
    build->attrs[build->attr_count++] = sbit__attr_int("opset", opset);
    return sbit__int_single(lower, node, "QSoftmax", &x, &q, build, q.x, error);
}

/* ReduceMean over all positions is a global average pool; without keepdims, flattened. Positions
 * are the axes behind N and C, or those between N and C (tokens). */
static sbit_status sbit__int_mean(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    sbit__int_param x, q;
    sbit__int_build *build = sbit__int_begin(lower);
    bool found = false;
    SBIT__TRY(sbit__int_between(lower, node, &x, &q, &found, error));
    if (!found) {
        return SBIT_OK;
    }
    const sbit_type *type = sbit__lower_type(lower, node->inputs[0]);
    const uint32_t axes = sbit__lower_axes(lower, node, type->rank);
    const uint32_t all = type->rank >= 3 ? (1u << type->rank) - 1u : 0;
    const bool last = axes == (all >> 1 & ~1u) && all != 0; /* N, positions, C */
    if (all == 0 || (!last && axes != (all & ~3u))) {
        return sbit__lower_reason(
            lower, node->id, "float: integer means are over all positions of N, C, ...", error);
    }
    if (last) {
        build->attrs[build->attr_count++] = sbit__attr_int("channels_last", 1);
    }
    if (sbit_node_int(node, "keepdims", 1) != 0) {
        return sbit__int_single(lower, node, "QGlobalAveragePool", &x, &q, build, q.x, error);
    }
    sbit_value_id pooled;
    sbit_type shape = *type;
    shape.dtype = q.dtype;
    for (int32_t i = 0; i < shape.rank; i++) {
        shape.dims[i] = (axes >> i & 1u) != 0 ? sbit__dim(1) : shape.dims[i];
    }
    SBIT__TRY(sbit_graph_add_value(lower->graph, "pooled", &shape, &pooled, error));
    SBIT__TRY(sbit__int_put(lower, build, true, &x, error));
    SBIT__TRY(sbit__int_put(lower, build, false, &q, error));
    SBIT__TRY(sbit__int_insert(lower, build, NULL, "QGlobalAveragePool", node->id, &pooled, 1, error));
    build->inputs[0] = pooled;
    build->input_count = 1;
    build->attr_count = 0;
    sbit__int_node(build, node->id);
    sbit__int_node(build, q.node->id);
    sbit__int_node(build, x.node->id);
    return sbit__int_replace(lower, build, "", "Flatten", &q.x, 1, error);
}

/* >>tables: the nodes between a Q and DQs of one tensor */

typedef struct sbit__int_unit {
    const sbit_node *nodes[SBIT__INT_UNIT]; /* each behind those that it reads */
    sbit_node_id dq[SBIT__INT_UNIT];
    size_t count, dq_count;
    sbit__int_param x; /* node NULL: none found yet */
} sbit__int_unit;

/* One number: a float, or DQ of one. */
static bool sbit__int_number(const sbit__lowering *lower, sbit_value_id id, float *out)
{
    sbit__int_param q;
    const sbit_tensor *tensor = NULL;
    if (sbit__lower_scalar(lower, id, out)) {
        return true;
    }
    tensor = sbit__int_dq(lower, id, &q) ? sbit__lower_constant(lower, q.x) : NULL;
    if (tensor == NULL || sbit_tensor_count(tensor) != 1) {
        return false;
    }
    *out = (float)(sbit__tensor_i64_at(tensor, 0) - q.z) * q.s;
    return true;
}

/* An operator on elements whose result depends on nothing else. */
static bool sbit__int_elementwise(const sbit__lowering *lower, const sbit_node *node)
{
    int32_t opset = 0;
    const sbit_op_row *row = node != NULL ? sbit__op_row(lower->graph, node, &opset) : NULL;
    return row != NULL && sbit__op_row_is_built_in(lower->ctx, row) && row->channel != NULL &&
           row->channel->kind == SBIT_CHANNEL_ELEMENTWISE && (row->flags & SBIT_OP_RANDOM) == 0 &&
           node->output_count == 1 && node->input_count <= SBIT__INT_OPERANDS;
}

/* Takes in what `id` is made of, back to DQs of one tensor; false if it is not made of that. */
static bool sbit__int_collect(const sbit__lowering *lower, sbit_value_id id, sbit__int_unit *unit)
{
    sbit__int_param x;
    float number = 0.0f;
    const sbit_node *node = sbit__lower_producer(lower, id);
    const bool is_number = id.idx == 0 || sbit__int_number(lower, id, &number);
    const bool is_dq = sbit__int_dq(lower, id, &x);
    if (is_dq && unit->dq_count < SBIT__INT_UNIT) {
        unit->dq[unit->dq_count++] = x.node->id;
    }
    if (is_number) {
        return true;
    }
    if (is_dq) {
        const bool first = unit->x.node == NULL;
        unit->x = first ? x : unit->x;
        return first || (x.x.idx == unit->x.x.idx && sbit__int_same(&x, &unit->x));
    }
    for (size_t i = 0; i < unit->count; i++) {
        if (unit->nodes[i] == node) {
            return true;
        }
    }
    if (!sbit__int_elementwise(lower, node)) {
        return false;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        if (!sbit__int_collect(lower, node->inputs[i], unit)) {
            return false;
        }
    }
    if (unit->count == SBIT__INT_UNIT) {
        return false;
    }
    unit->nodes[unit->count++] = node;
    return true;
}

/* Nobody else looks at what is inside. */
static bool sbit__int_closed(const sbit__lowering *lower, const sbit__int_unit *unit)
{
    for (size_t i = 0; i + 1 < unit->count; i++) {
        const sbit_value_id id = unit->nodes[i]->outputs[0];
        size_t reads = 0;
        for (size_t k = i + 1; k < unit->count; k++) {
            for (size_t n = 0; n < unit->nodes[k]->input_count; n++) {
                reads += unit->nodes[k]->inputs[n].idx == id.idx ? 1 : 0;
            }
        }
        if (!sbit__lower_inner(lower, id, reads)) {
            return false;
        }
    }
    return true;
}

/* Runs a row's functions outside of a session. It lies in the lowering's own memory. */
typedef struct sbit__int_call {
    sbit_op_call call;
    sbit_allocator allocator;
    void *params;
    size_t params_bytes, scratch_bytes;
    const sbit_tensor *in[SBIT__INT_OPERANDS];
    const sbit_type *in_type[SBIT__INT_OPERANDS];
    sbit_type *out_type[1];
    sbit_tensor operands[SBIT__INT_OPERANDS];
    sbit_type types[SBIT__INT_OPERANDS], type;
    float numbers[SBIT__INT_OPERANDS];
} sbit__int_call;
typedef char sbit__int_call_fits[sizeof(sbit__int_call) <= SBIT__LOWER_WORK_BYTES ? 1 : -1];

static void *sbit__int_alloc_params(const sbit_op_call *call, size_t bytes)
{
    sbit__int_call *run = (sbit__int_call *)call->session;
    sbit__free_aligned(&run->allocator, run->params, run->params_bytes);
    run->params = sbit__alloc_aligned(&run->allocator, bytes);
    run->params_bytes = bytes;
    if (run->params != NULL) {
        memset(run->params, 0, bytes);
    }
    return run->params;
}

static sbit_status sbit__int_call_run(sbit__int_call *run, sbit_tensor *out, sbit_error *error)
{
    sbit_op_call *call = &run->call;
    sbit_status status = SBIT_OK;
    call->alloc_params = sbit__int_alloc_params;
    call->session = run;
    call->scratch_bytes = &run->scratch_bytes;
    call->in = run->in;
    call->in_type = run->in_type;
    call->out_type = run->out_type;
    if (call->row->prepare != NULL) {
        status = call->row->prepare(call, error);
    }
    call->params = run->params;
    if (status == SBIT_OK && run->scratch_bytes > 0) {
        call->scratch = sbit__alloc_aligned(&run->allocator, run->scratch_bytes);
        status = call->scratch != NULL ? SBIT_OK : sbit__fail_oom(error, run->scratch_bytes);
    }
    if (status == SBIT_OK) {
        call->out = &out;
        status = call->row->run(call, error);
    }
    sbit__free_aligned(&run->allocator, call->scratch, run->scratch_bytes);
    sbit__free_aligned(&run->allocator, run->params, run->params_bytes);
    return status;
}

/* What the unit computes is kept for each node, 256 elements of at most 8 bytes. */
#define SBIT__INT_KEPT (256 * sizeof(double))

static sbit_tensor sbit__int_results(sbit_dtype dtype, char *data)
{
    sbit_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = dtype;
    tensor.rank = 1;
    tensor.dims[0] = 256;
    tensor.data = data;
    return tensor;
}

/* Node n of the unit, by its own row on the scalar kernels; x stands first in `kept`. */
static sbit_status sbit__int_apply(const sbit__lowering *lower, const sbit__int_unit *unit,
                                   size_t n, char *kept, sbit_error *error)
{
    const sbit_node *node = unit->nodes[n];
    sbit__int_call *run = (sbit__int_call *)lower->work; /* nothing is being put together yet */
    memset(run, 0, sizeof *run);
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_value_id id = node->inputs[i];
        sbit_tensor *operand = &run->operands[i];
        size_t at = 0;
        if (id.idx == 0) {
            continue;
        }
        while (at < n && unit->nodes[at]->outputs[0].idx != id.idx) {
            at++;
        }
        *operand = at < n ? sbit__int_results(sbit__lower_type(lower, id)->dtype,
                                              kept + (at + 1) * SBIT__INT_KEPT)
                          : sbit__int_results(SBIT_F32, kept);
        if (at == n && sbit__int_number(lower, id, &run->numbers[i])) {
            operand->rank = 0;
            operand->data = &run->numbers[i];
        }
        run->types[i] = sbit__type_of_tensor(operand);
        run->in[i] = operand;
        run->in_type[i] = &run->types[i];
    }
    sbit_tensor result = sbit__int_results(sbit__lower_type(lower, node->outputs[0])->dtype,
                                           kept + (n + 1) * SBIT__INT_KEPT);
    run->type = sbit__type_of_tensor(&result);
    run->out_type[0] = &run->type;
    run->allocator = lower->ctx->allocator;
    run->call.ctx = lower->ctx;
    run->call.kernels = sbit__kernels_of(SBIT_ISA_SCALAR);
    run->call.graph = lower->graph;
    run->call.node = node;
    run->call.row = sbit__op_row(lower->graph, node, &run->call.opset);
    run->call.input_count = (int32_t)node->input_count;
    run->call.output_count = 1;
    return sbit__int_call_run(run, &result, error);
}

/* Table from bytes of x to bytes of q, with the unit between them. */
static sbit_status sbit__int_table(const sbit__lowering *lower, const sbit__int_unit *unit,
                                   const sbit__int_param *q, uint8_t table[256], sbit_error *error)
{
    const sbit_kernels *scalar = sbit__kernels_of(SBIT_ISA_SCALAR);
    const sbit__int_param *x = &unit->x;
    const int32_t shift_x = x->dtype == SBIT_I8 ? 128 : 0, shift_q = q->dtype == SBIT_I8 ? 128 : 0;
    const size_t bytes = (unit->count + 1) * SBIT__INT_KEPT;
    sbit_status status = SBIT_OK;
    uint8_t octets[256];
    char *kept = (char *)sbit__alloc_aligned(&lower->ctx->allocator, bytes);
    if (kept == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int32_t i = 0; i < 256; i++) {
        octets[i] = (uint8_t)i;
    }
    scalar->f32_dequantize_u8(256, octets, x->s, x->z + shift_x, (float *)(void *)kept);
    for (size_t i = 0; status == SBIT_OK && i < unit->count; i++) {
        status = sbit__int_apply(lower, unit, i, kept, error);
    }
    if (status == SBIT_OK) {
        const float *last = (const float *)(void *)(kept + unit->count * SBIT__INT_KEPT);
        scalar->f32_quantize_u8(256, last, q->s, q->z + shift_q, 0, 255, octets);
        for (int32_t i = 0; i < 256; i++) {
            table[i ^ shift_x] = (uint8_t)(octets[i] ^ shift_q);
        }
    }
    sbit__free_aligned(&lower->ctx->allocator, kept, bytes);
    return status;
}

static bool sbit__int_find_unit(const sbit__lowering *lower, const sbit_node *node,
                                sbit__int_param *q, sbit__int_unit *unit)
{
    const sbit_value_id from = node->inputs[0];
    memset(unit, 0, sizeof *unit);
    memset(q, 0, sizeof *q);
    q->node = node;
    q->x = node->outputs[0];
    q->dtype = sbit__lower_type(lower, q->x)->dtype;
    if (!sbit__int_is_8(q->dtype) || !sbit__int_constants(lower, node, q) ||
        sbit__lower_type(lower, from)->dtype != SBIT_F32 || !sbit__int_collect(lower, from, unit) ||
        unit->x.node == NULL) {
        return false;
    }
    const sbit_type *x = sbit__lower_type(lower, unit->x.x), *y = sbit__lower_type(lower, from);
    return x->rank >= 0 && x->rank == y->rank && sbit__int_closed(lower, unit) &&
           (unit->count == 0 || sbit__lower_user(lower, from) == node);
}

/* The float at `index` of a constant, or of DQ of one. */
static float sbit__int_float_at(const sbit_tensor *constant, const sbit__int_param *q,
                                int64_t index)
{
    return q->node != NULL ? (float)(sbit__tensor_i64_at(constant, index) - q->z) * q->s
                           : ((const float *)constant->data)[index];
}

/* The constant with one element for each channel (axis 1) of x; q: how it is quantized, node NULL:
 * not at all. NULL: it is no such thing. */
static const sbit_tensor *sbit__int_per_channel(const sbit__lowering *lower, sbit_value_id id,
                                                const sbit_type *x, sbit__int_param *q)
{
    const bool quantized = sbit__int_dq(lower, id, q);
    const sbit_tensor *constant = sbit__lower_constant(lower, quantized ? q->x : id);
    const int32_t axis = constant != NULL ? constant->rank - (x->rank - 1) : -1;
    q->node = quantized ? q->node : NULL;
    if (axis < 0 || axis > 1 || x->rank < 2 || !sbit__dim_known(x->dims[1]) ||
        (!quantized && constant->dtype != SBIT_F32) || constant->dims[axis] != x->dims[1].value ||
        sbit_tensor_count(constant) != x->dims[1].value) {
        return NULL;
    }
    return constant;
}

/* PRelu with a slope for each channel; with one slope it is a table like others. */
static sbit_status sbit__int_prelu(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    const sbit_kernels *scalar = sbit__kernels_of(SBIT_ISA_SCALAR);
    sbit__int_param x, q, s;
    sbit_tensor tables;
    sbit_value_id id;
    if (node->input_count != 2 || node->output_count != 1 ||
        !sbit__int_dq(lower, node->inputs[0], &x) || !sbit__int_q(lower, node->outputs[0], &q)) {
        return SBIT_OK;
    }
    const sbit_type *type = sbit__lower_type(lower, x.x);
    const sbit_tensor *slope = sbit__int_per_channel(lower, node->inputs[1], type, &s);
    if (slope == NULL || sbit_tensor_count(slope) == 1) {
        return SBIT_OK;
    }
    const int32_t shift_x = x.dtype == SBIT_I8 ? 128 : 0, shift_q = q.dtype == SBIT_I8 ? 128 : 0;
    memset(&tables, 0, sizeof tables);
    tables.dtype = SBIT_U8;
    tables.rank = 2;
    tables.dims[0] = type->dims[1].value;
    tables.dims[1] = 256;
    const size_t bytes = (size_t)tables.dims[0] * 256;
    uint8_t *data = (uint8_t *)sbit__alloc(&lower->ctx->allocator, bytes);
    if (data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int64_t c = 0; c < tables.dims[0]; c++) {
        const float slope_c = sbit__int_float_at(slope, &s, c);
        for (int32_t i = 0; i < 256; i++) {
            const uint8_t octet = (uint8_t)i;
            uint8_t result = 0;
            float value = 0.0f;
            scalar->f32_dequantize_u8(1, &octet, x.s, x.z + shift_x, &value);
            value = value < 0.0f ? slope_c * value : value;
            scalar->f32_quantize_u8(1, &value, q.s, q.z + shift_q, 0, 255, &result);
            data[c * 256 + (i ^ shift_x)] = (uint8_t)(result ^ shift_q);
        }
    }
    tables.data = data;
    const sbit_status status = sbit_graph_add_constant(lower->graph, "tables", &tables, &id, error);
    sbit__free(&lower->ctx->allocator, data, bytes);
    SBIT__TRY(status);
    sbit__int_build *build = sbit__int_begin(lower);
    build->inputs[0] = x.x;
    build->inputs[1] = id;
    build->input_count = 2;
    sbit__int_node(build, node->id);
    sbit__int_node(build, q.node->id);
    sbit__int_node(build, x.node->id);
    if (s.node != NULL) {
        sbit__int_node(build, s.node->id);
    }
    build->attrs[build->attr_count++] = sbit__attr_int("to", (int64_t)q.dtype);
    return sbit__int_replace(lower, build, NULL, "QTables", &q.x, 1, error);
}

/* A Q: what is in front of it, if it is a unit. */
static sbit_status sbit__int_quantize(sbit__lowering *lower, const sbit_node *node,
                                      sbit_error *error)
{
    uint8_t table[256];
    sbit_value_id id;
    sbit__int_unit unit;
    sbit__int_param q;
    if (!sbit__int_find_unit(lower, node, &q, &unit)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__int_table(lower, &unit, &q, table, error));
    SBIT__TRY(sbit__int_constant(lower, "table", SBIT_U8, 256, table, &id, error));
    sbit__int_build *build = sbit__int_begin(lower);
    build->inputs[0] = unit.x.x;
    build->inputs[1] = id;
    build->input_count = 2;
    for (size_t i = unit.count; i-- > 0;) { /* the last names it */
        sbit__int_node(build, unit.nodes[i]->id);
    }
    sbit__int_node(build, q.node->id);
    for (size_t i = 0; i < unit.dq_count; i++) {
        sbit__int_node(build, unit.dq[i]);
    }
    build->attrs[build->attr_count++] = sbit__attr_int("to", (int64_t)q.dtype);
    return sbit__int_replace(lower, build, NULL, "QTable", &q.x, 1, error);
}

/* >>operators that move values */

/* All outputs that are used go to a Q like `x` alone. */
static bool sbit__int_moved(const sbit__lowering *lower, const sbit_node *node,
                            const sbit__int_param *x, sbit_value_id *outputs,
                            sbit__int_build *build)
{
    sbit__int_param q;
    if (node->output_count > SBIT__INT_NODES / 2) {
        return false;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        outputs[i] = sbit__int_none();
        if (node->outputs[i].idx == 0 || sbit__lower_inner(lower, node->outputs[i], 0)) {
            return false; /* an output that nobody uses: not worth the trouble */
        }
        if (!sbit__int_q(lower, node->outputs[i], &q) || (x != NULL && !sbit__int_same(x, &q))) {
            return false;
        }
        outputs[i] = q.x;
        sbit__int_node(build, q.node->id);
    }
    return true;
}

/* Puts the Q behind a node of one output in front of it, as a new node. */
static sbit_status sbit__int_lift(sbit__lowering *lower, const sbit_node *node,
                                  const sbit__int_param *q, sbit_value_id *out, sbit_error *error)
{
    sbit_type type = *sbit__lower_type(lower, node->inputs[0]);
    sbit__lower_desc desc;
    sbit_value_id inputs[3];
    type.dtype = q->dtype;
    inputs[0] = node->inputs[0];
    inputs[1] = q->scale;
    inputs[2] = q->zero;
    SBIT__TRY(sbit_graph_add_value(lower->graph, "quantized", &type, out, error));
    memset(&desc, 0, sizeof desc);
    desc.domain = "";
    desc.op_type = "QuantizeLinear";
    desc.inputs = inputs;
    desc.input_count = q->zero.idx != 0 ? 3 : 2;
    desc.outputs = out;
    desc.output_count = 1;
    desc.attrs = q->node->attrs; /* output_dtype says the type where there is no zero point */
    desc.attr_count = q->node->attr_count;
    desc.nodes = &q->node->id;
    desc.node_count = 1;
    desc.at = node->id;
    return sbit__lower_insert(lower, &desc, NULL, error);
}

/* x, float, comes from outside or from what integers may come from; nobody else looks at it. */
static bool sbit__int_may_lift(const sbit__lowering *lower, const sbit_node *node,
                               const sbit__int_param *q)
{
    const sbit_value_id x = node->inputs[0];
    const sbit_node *maker = sbit__lower_producer(lower, x);
    const int64_t before = sbit__type_size(sbit__lower_type(lower, x));
    const int64_t after = sbit__type_size(sbit__lower_type(lower, q->x));
    sbit_use use;
    return !sbit__lower_is(lower, maker, "DequantizeLinear") &&
           (maker != NULL ? sbit__lower_user(lower, x) == node
                          : sbit__lower_constant(lower, x) == NULL &&
                                sbit_graph_uses(lower->graph, x, &use, 1) == 1) &&
           before <= 16 * after &&
           sbit__lower_type(lower, x)->dtype == SBIT_F32;
}

static sbit_status sbit__int_move(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    const bool pool = strcmp(node->op_type, "MaxPool") == 0;
    sbit_value_id outputs[SBIT__INT_NODES];
    sbit__int_param x, q;
    sbit__int_build *build = sbit__int_begin(lower);
    const bool quantized = sbit__int_dq(lower, sbit__lower_in(node, 0), &x);
    sbit__int_node(build, node->id);
    if (node->input_count > SBIT__INT_INPUTS || !sbit__int_attrs(build, node) ||
        !sbit__int_moved(lower, node, quantized ? &x : NULL, outputs, build)) {
        return SBIT_OK;
    }
    memcpy(build->inputs, node->inputs, node->input_count * sizeof build->inputs[0]);
    build->input_count = node->input_count;
    if (pool && (node->output_count != 1 || sbit__lower_type(lower, node->inputs[0])->rank < 3)) {
        return SBIT_OK;
    }
    if (quantized) {
        build->inputs[0] = x.x;
        sbit__int_node(build, x.node->id);
    } else if (node->output_count != 1 || !sbit__int_q(lower, node->outputs[0], &q) ||
               !sbit__int_may_lift(lower, node, &q)) {
        return SBIT_OK;
    } else {
        SBIT__TRY(sbit__int_lift(lower, node, &q, &build->inputs[0], error));
    }
    return sbit__int_replace(lower, build, pool ? NULL : "", pool ? "QMaxPool" : node->op_type,
                             outputs, node->output_count, error);
}

/* Pad with a constant: with what Q makes of it. */
static sbit_status sbit__int_pad(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    const sbit_value_id x_id = sbit__lower_in(node, 0);
    sbit__int_param x, q;
    float value = 0.0f;
    const bool quantized = sbit__int_dq(lower, x_id, &x);
    if (sbit_graph_opset(lower->graph, "") < 11 || node->output_count != 1 ||
        sbit__int_pads(lower, node, sbit__lower_type(lower, x_id)->rank) == NULL ||
        (sbit__lower_in(node, 2).idx != 0 && !sbit__lower_scalar(lower, node->inputs[2], &value)) ||
        !sbit__int_q(lower, node->outputs[0], &q) ||
        !(quantized ? sbit__int_same(&x, &q) : sbit__int_may_lift(lower, node, &q))) {
        return SBIT_OK;
    }
    sbit_value_id from = x.x, constant;
    const uint8_t octet =
        (uint8_t)((int32_t)sbit__int_bound(value, &q) + (q.dtype == SBIT_I8 ? -128 : 0));
    SBIT__TRY(sbit__int_constant(lower, "pad_value", q.dtype, 0, &octet, &constant, error));
    if (!quantized) {
        SBIT__TRY(sbit__int_lift(lower, node, &q, &from, error));
    }
    sbit__int_build *build = sbit__int_begin(lower);
    sbit__int_node(build, node->id);
    sbit__int_node(build, q.node->id);
    if (quantized) {
        sbit__int_node(build, x.node->id);
    }
    build->inputs[0] = from;
    build->inputs[1] = node->inputs[1];
    build->inputs[2] = constant;
    build->input_count = 3;
    return sbit__int_replace(lower, build, "", "Pad", &q.x, 1, error);
}

static sbit_status sbit__int_resize(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    return strcmp(sbit_node_string(node, "mode", "nearest"), "nearest") == 0
               ? sbit__int_move(lower, node, error)
               : SBIT_OK;
}

/* >>reasons */

/* A node next to quantizers that no entry above took. */
static sbit_status sbit__int_why(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    const sbit__lowered *result = lower->result;
    const uint32_t idx = sbit__lowered_origin(result, node->id).idx;
    sbit__int_param x;
    bool in = false, out = false, other = false; /* other: quantizers that no entry knows */
    if (node->domain[0] != '\0' || strcmp(node->op_type, "QuantizeLinear") == 0 ||
        strcmp(node->op_type, "DequantizeLinear") == 0 ||
        (result->reason != NULL && idx < result->reason_limit && result->reason[idx] != NULL)) {
        return SBIT_OK;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_node *maker = sbit__lower_producer(lower, node->inputs[i]);
        const bool moving = sbit__lower_is(lower, maker, "DequantizeLinear") &&
                            sbit__lower_constant(lower, maker->inputs[0]) == NULL;
        const bool known = moving && sbit__int_dq(lower, node->inputs[i], &x);
        in = in || known;
        other = other || (moving && !known);
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const bool known = sbit__int_q(lower, node->outputs[i], &x);
        out = out || known;
        other = other || (!known && sbit__lower_is(lower, sbit__lower_user(lower, node->outputs[i]),
                                                   "QuantizeLinear"));
    }
    if (!in && !out && !other) {
        return SBIT_OK;
    }
    return sbit__lower_reason(lower, node->id,
                              other  ? "float: it has no form on integers of other than 8 bits, or "
                                       "with several scales"
                              : !in  ? "float: its input is not quantized"
                              : !out ? "float: its result is not quantized"
                                     : "float: it has no integer form",
                              error);
}

/* >>table */

static const sbit__lower_entry sbit__lower_int_table[] = {
    {"Conv", sbit__int_conv},
    {"ConvTranspose", sbit__int_conv_transpose},
    {"Gemm", sbit__int_gemm},
    {"MatMul", sbit__int_matmul},
    {"Add", sbit__int_binary},
    {"Sub", sbit__int_binary},
    {"Mul", sbit__int_binary},
    {"Concat", sbit__int_concat},
    {"AveragePool", sbit__int_pool},
    {"GlobalAveragePool", sbit__int_pool},
    {"ReduceMean", sbit__int_mean},
    {"Softmax", sbit__int_softmax},
    {"PRelu", sbit__int_prelu},
    {"QuantizeLinear", sbit__int_quantize},
    {"Reshape", sbit__int_move},
    {"Transpose", sbit__int_move},
    {"Flatten", sbit__int_move},
    {"Squeeze", sbit__int_move},
    {"Unsqueeze", sbit__int_move},
    {"Slice", sbit__int_move},
    {"Split", sbit__int_move},
    {"Gather", sbit__int_move},
    {"Expand", sbit__int_move},
    {"Tile", sbit__int_move},
    {"DepthToSpace", sbit__int_move},
    {"SpaceToDepth", sbit__int_move},
    {"MaxPool", sbit__int_move},
    {"Pad", sbit__int_pad},
    {"Resize", sbit__int_resize},
    {"Upsample", sbit__int_resize},
    {NULL, sbit__int_residual},
    {NULL, sbit__int_why},
};

#undef SBIT__INT_INPUTS
#undef SBIT__INT_NODES
#undef SBIT__INT_ATTRS
#undef SBIT__INT_UNIT
#undef SBIT__INT_OPERANDS
#undef SBIT__INT_KEPT

SBIT__FN const sbit__lower_entry *sbit__lower_entries_int(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__lower_int_table);
    return sbit__lower_int_table;
}
