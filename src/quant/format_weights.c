/* format_weights.c: formats in which weights alone are quantized beforehand. >>formats-weights
 *
 *   dynamic       DynamicQuantizeLinear of what a layer reads, MatMulInteger or ConvInteger with
 * its 8-bit weight, (float)acc * (s_x * s_w) + bias. Layers that read one tensor share its
 * quantization. ConvInteger's weights are uint8: ONNX Runtime knows no others. matmul_nbits
 * com.microsoft MatMulNBits for matrices in blocks (GROUP_SIZE 16, 32 ... 256) of up to 8 bits:
 * codes of 4 bits if all are that small, else of 8 Layers that these operators do not know keep
 * their DequantizeLinear.
 */
#include "quant_private.h"

/* >>formats layers */

/* A layer whose weight comes out of DequantizeLinear of a constant. */
typedef struct sbit__wlayer {
    sbit_graph *graph;
    const sbit_node *node, *dq;
    const sbit_tensor *q, *scale, *zero; /* zero NULL: none */
    bool conv, rows_first;               /* rows_first: the weight is [outputs, inputs ...] */
    int64_t block, axis;                 /* of dq; block 0: none, axis -1: one scale */
    sbit_value_id bias;                  /* none: none */
    double alpha;                        /* factor of the product */
} sbit__wlayer;

static bool sbit__wlayer_of(sbit_graph *graph, const sbit_node *node, sbit__wlayer *out)
{
    memset(out, 0, sizeof *out);
    const bool gemm = sbit__format_is(node, "Gemm"), matmul = sbit__format_is(node, "MatMul");
    out->conv = sbit__format_is(node, "Conv");
    if (!(gemm || matmul || out->conv) || node->input_count < 2) {
        return false;
    }
    const sbit_node *dq = sbit__format_producer(graph, node->inputs[1]);
    if (!sbit__format_is(dq, "DequantizeLinear") ||
        sbit_graph_value(graph, node->inputs[0])->type.dtype != SBIT_F32) {
        return false;
    }
    out->graph = graph;
    out->node = node;
    out->dq = dq;
    out->q = sbit__format_constant(graph, dq, 0);
    out->scale = sbit__format_constant(graph, dq, 1);
    out->zero = sbit__format_constant(graph, dq, 2);
    out->rows_first = out->conv || (gemm && sbit_node_int(node, "transB", 0) != 0);
    out->alpha = gemm ? (double)sbit_node_float(node, "alpha", 1.0f) : 1.0;
    if (node->input_count > 2) {
        out->bias = node->inputs[2];
    }
    if (out->q == NULL || out->scale == NULL || out->scale->dtype != SBIT_F32) {
        return false;
    }
    out->block = sbit_node_int(dq, "block_size", 0);
    out->axis = sbit_tensor_count(out->scale) == 1 ? -1 : sbit_node_int(dq, "axis", 1);
    out->axis = out->axis < -1 ? out->axis + out->q->rank : out->axis;
    const float beta = sbit_node_float(node, "beta", 1.0f);
    return !gemm || (sbit_node_int(node, "transA", 0) == 0 && out->q->rank == 2 &&
                     (out->bias.idx == 0 || (beta >= 1.0f && beta <= 1.0f)));
}

static sbit_status sbit__wlayer_binary(const sbit__wlayer *w, const char *op, sbit_value_id a,
                                       sbit_value_id b, sbit_value_id *out, sbit_error *error)
{
    const sbit_value_id inputs[2] = {a, b};
    return sbit__format_add(w->graph, w->node, "", op, inputs, 2, NULL, 0, out, 1, error);
}

/* The layer is `y` from now on. */
static sbit_status sbit__wlayer_finish(const sbit__wlayer *w, sbit_value_id y, sbit_error *error)
{
    const sbit_node_id id = w->node->id;
    const sbit_value_id old = w->node->outputs[0];
    sbit_graph_set_type(w->graph, y, &sbit_graph_value(w->graph, old)->type);
    SBIT__TRY(sbit_graph_replace_uses(w->graph, old, y, error));
    sbit_graph_erase_node(w->graph, id);
    sbit_graph_erase_value(w->graph, old);
    return SBIT_OK;
}

/* Adds a tensor as a constant that takes its data over; then zeroed. */
static sbit_status sbit__wlayer_take(const sbit__wlayer *w, const char *what, sbit_tensor *tensor,
                                     sbit_value_id *out, sbit_error *error)
{
    char name[256];
    snprintf(name, sizeof name, "%.200s_%s", w->node->name, what);
    const sbit_status status = sbit__graph_take_constant(w->graph, name, tensor, out, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(sbit_graph_ctx(w->graph), tensor);
    }
    memset(tensor, 0, sizeof *tensor);
    return status;
}

/* Runs `rewrite` for every node of a graph. */
static sbit_status sbit__wlayer_each(sbit_graph *graph, bool (*possible)(const sbit__wlayer *layer),
                                     sbit_status (*rewrite)(const sbit__wlayer *layer,
                                                            sbit_error *error),
                                     sbit_error *error)
{
    const uint32_t limit = sbit_graph_node_limit(graph);
    for (uint32_t i = 1; i < limit; i++) {
        const sbit_node_id id = {i};
        sbit__wlayer layer;
        if (sbit_graph_node_alive(graph, id) &&
            sbit__wlayer_of(graph, sbit_graph_node(graph, id), &layer) && possible(&layer)) {
            SBIT__TRY(rewrite(&layer, error));
        }
    }
    sbit__format_clean(graph);
    SBIT__TRY(sbit_graph_sort(graph, error));
    return sbit_graph_parent(graph) == NULL ? sbit_infer(graph, error) : SBIT_OK;
}

/* >>formats dynamic */

/* A row of numbers along the channels of an output: as it is, or [n, 1, 1] behind a Conv. */
static sbit_status sbit__dynamic_row(const sbit__wlayer *w, const char *what, const sbit_tensor *x,
                                     double factor, sbit_value_id *out, sbit_error *error)
{
    sbit_tensor row;
    int64_t dims[SBIT_MAX_RANK] = {0};
    const int64_t count = sbit_tensor_count(x);
    int32_t rank = x->rank;
    memcpy(dims, x->dims, sizeof dims);
    if (w->conv && count > 1) {
        rank = w->q->rank - 1;
        for (int32_t i = 0; i < rank; i++) {
            dims[i] = i == 0 ? count : 1;
        }
    }
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(w->graph), SBIT_F32, rank, dims, &row, error));
    for (int64_t i = 0; i < count; i++) {
        sbit__tensor_set_f64(&row, i, sbit__tensor_f64_at(x, i) * factor);
    }
    return sbit__wlayer_take(w, what, &row, out, error);
}

/* Weights as MatMulInteger ([inputs, outputs]) and ConvInteger (uint8) take them; *shift: what was
 * added to make them so. */
static sbit_status sbit__dynamic_weight(const sbit__wlayer *w, int64_t *shift, sbit_value_id *out,
                                        sbit_error *error)
{
    sbit_tensor t;
    const bool turn = w->rows_first && !w->conv;
    const sbit_dtype dtype = w->conv ? SBIT_U8 : w->q->dtype;
    int64_t dims[SBIT_MAX_RANK];
    memcpy(dims, w->q->dims, sizeof dims);
    if (turn) {
        dims[0] = w->q->dims[1];
        dims[1] = w->q->dims[0];
    }
    *shift = w->q->dtype == SBIT_I8 && dtype == SBIT_U8 ? 128 : 0;
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(w->graph), dtype, w->q->rank, dims, &t, error));
    for (int64_t i = 0; i < sbit_tensor_count(&t); i++) {
        const int64_t from = turn ? i % dims[1] * dims[0] + i / dims[1] : i;
        sbit__tensor_set_f64(&t, i, sbit__tensor_f64_at(w->q, from) + (double)*shift);
    }
    return sbit__wlayer_take(w, "weight_quantized", &t, out, error);
}

/* Zero points of the weight; none: all are 0. One number if they are equal. */
static sbit_status sbit__dynamic_zero(const sbit__wlayer *w, int64_t shift, sbit_value_id *out,
                                      sbit_error *error)
{
    sbit_tensor t;
    const int64_t given = w->zero != NULL ? sbit_tensor_count(w->zero) : 0;
    const int64_t first = (given > 0 ? sbit__tensor_i64_at(w->zero, 0) : 0) + shift;
    int64_t count = 1;
    for (int64_t i = 1; i < given; i++) {
        count = sbit__tensor_i64_at(w->zero, i) + shift != first ? given : count;
    }
    out->idx = 0;
    if (first == 0 && count == 1) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_tensor_alloc(sbit_graph_ctx(w->graph), w->conv ? SBIT_U8 : w->q->dtype,
                                count > 1 ? 1 : 0, &count, &t, error));
    for (int64_t i = 0; i < count; i++) {
        const int64_t zero = count > 1 ? sbit__tensor_i64_at(w->zero, i) + shift : first;
        sbit__tensor_set_f64(&t, i, (double)zero);
    }
    return sbit__wlayer_take(w, "weight_zero_point", &t, out, error);
}

/* Integers, scale and zero point of a value, made once. */
static sbit_status sbit__dynamic_input(const sbit__wlayer *w, sbit_value_id out[3],
                                       sbit_error *error)
{
    const sbit_value_id x = w->node->inputs[0];
    sbit_use uses[64];
    const size_t count = sbit_graph_uses(w->graph, x, uses, SBIT__COUNT_OF(uses));
    for (size_t i = 0; i < count && i < SBIT__COUNT_OF(uses); i++) {
        const sbit_node *node = uses[i].node.idx != 0 && uses[i].body == NULL
                                    ? sbit_graph_node(w->graph, uses[i].node)
                                    : NULL;
        if (sbit__format_is(node, "DynamicQuantizeLinear")) {
            memcpy(out, node->outputs, 3 * sizeof *out);
            return SBIT_OK;
        }
    }
    return sbit__format_add(w->graph, w->node, "", "DynamicQuantizeLinear", &x, 1, NULL, 0, out, 3,
                            error);
}

static bool sbit__dynamic_possible(const sbit__wlayer *w)
{
    const int64_t outputs = w->rows_first ? 0 : w->q->rank - 1;
    const sbit_tensor *bias =
        w->bias.idx != 0 ? &sbit_graph_value(w->graph, w->bias)->constant : NULL;
    const bool eight = w->q->dtype == SBIT_I8 || w->q->dtype == SBIT_U8;
    return eight && w->block == 0 && (w->axis == -1 || w->axis == outputs) &&
           (!w->conv || bias == NULL || sbit_graph_value(w->graph, w->bias)->is_constant) &&
           (w->q->rank == 2 || w->conv || w->axis == -1);
}

static sbit_status sbit__dynamic_rewrite(const sbit__wlayer *w, sbit_error *error)
{
    sbit_value_id x[3], inputs[4], acc, y, scale, bias = w->bias;
    const sbit_attr to = sbit__attr_int("to", SBIT_F32);
    int64_t shift = 0;
    SBIT__TRY(sbit__dynamic_input(w, x, error));
    inputs[0] = x[0];
    inputs[2] = x[2];
    SBIT__TRY(sbit__dynamic_weight(w, &shift, &inputs[1], error));
    SBIT__TRY(sbit__dynamic_zero(w, shift, &inputs[3], error));
    SBIT__TRY(sbit__format_add(w->graph, w->node, "", w->conv ? "ConvInteger" : "MatMulInteger",
                               inputs, inputs[3].idx != 0 ? 4 : 3, w->conv ? w->node->attrs : NULL,
                               w->conv ? w->node->attr_count : 0, &acc, 1, error));
    SBIT__TRY(sbit__format_add(w->graph, w->node, "", "Cast", &acc, 1, &to, 1, &y, 1, error));
    SBIT__TRY(sbit__dynamic_row(w, "weight_scale", w->scale, w->alpha, &scale, error));
    SBIT__TRY(sbit__wlayer_binary(w, "Mul", x[1], scale, &scale, error));
    SBIT__TRY(sbit__wlayer_binary(w, "Mul", y, scale, &y, error));
    if (bias.idx != 0) {
        if (w->conv) {
            SBIT__TRY(sbit__dynamic_row(w, "bias", &sbit_graph_value(w->graph, bias)->constant, 1.0,
                                        &bias, error));
        }
        SBIT__TRY(sbit__wlayer_binary(w, "Add", y, bias, &y, error));
    }
    return sbit__wlayer_finish(w, y, error);
}

SBIT__FN sbit_status sbit__format_dynamic(sbit_graph *graph, sbit_error *error)
{
    SBIT__TRY(sbit__format_bodies(graph, sbit__format_dynamic, error));
    return sbit__wlayer_each(graph, sbit__dynamic_possible, sbit__dynamic_rewrite, error);
}

/* >>formats matmul_nbits */

/* All codes and zero points, from 0 on, fit in 4 bits; *middle: the code of 0. */
static bool sbit__nbits_four(const sbit__wlayer *w, int64_t *low)
{
    const bool is_signed = w->q->dtype == SBIT_I8 || w->q->dtype == SBIT_I4;
    const sbit_tensor *const tensors[2] = {w->q, w->zero};
    bool four = true;
    for (size_t t = 0; t < 2; t++) {
        for (int64_t i = 0; tensors[t] != NULL && i < sbit_tensor_count(tensors[t]); i++) {
            const int64_t q = sbit__tensor_i64_at(tensors[t], i) + (is_signed ? 8 : 0);
            four = four && q >= 0 && q < 16;
        }
    }
    *low = is_signed ? (four ? 8 : 128) : 0;
    return four;
}

static bool sbit__nbits_possible(const sbit__wlayer *w)
{
    const uint32_t codes = SBIT_T(SBIT_I8) | SBIT_T(SBIT_U8) | SBIT_T(SBIT_I4) | SBIT_T(SBIT_U4);
    return !w->conv && w->q->rank == 2 && (SBIT_T(w->q->dtype) & codes) != 0 && w->block >= 16 &&
           (w->block & (w->block - 1)) == 0 && w->axis == (w->rows_first ? 1 : 0) &&
           w->alpha >= 1.0 && w->alpha <= 1.0;
}

/* Codes, scales and zero points in the operator's order; B and zeros are zeroed. */
static void sbit__nbits_fill(const sbit__wlayer *w, int64_t bits, int64_t low, int64_t blocks,
                             sbit_tensor *b, sbit_tensor *scales, sbit_tensor *zeros)
{
    const int64_t n = w->q->dims[w->rows_first ? 0 : 1], k = w->q->dims[w->rows_first ? 1 : 0];
    const int64_t row_bytes = (blocks * bits + 7) / 8;
    uint8_t *codes = (uint8_t *)b->data, *zero = (uint8_t *)zeros->data;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < k; i++) {
            const int64_t q = sbit__tensor_i64_at(w->q, w->rows_first ? r * k + i : i * n + r);
            const int64_t at = (r * blocks * w->block + i) * bits;
            codes[at / 8] = (uint8_t)(codes[at / 8] | (uint32_t)(q + low) << at % 8);
        }
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t from = w->rows_first ? r * blocks + i : i * n + r;
            const int64_t z = (w->zero != NULL ? sbit__tensor_i64_at(w->zero, from) : 0) + low;
            uint8_t *to = &zero[r * row_bytes + i * bits / 8];
            ((float *)scales->data)[r * blocks + i] = ((const float *)w->scale->data)[from];
            *to = (uint8_t)(*to | (uint32_t)z << i * bits % 8);
        }
    }
}

/* True if all zero points are the operator's own. */
static bool sbit__nbits_plain(const sbit__wlayer *w, int64_t bits, int64_t low)
{
    bool plain = w->zero != NULL || low == (int64_t)1 << (bits - 1);
    for (int64_t i = 0; w->zero != NULL && i < sbit_tensor_count(w->zero); i++) {
        plain = plain && sbit__tensor_i64_at(w->zero, i) + low == (int64_t)1 << (bits - 1);
    }
    return plain;
}

static sbit_status sbit__nbits_tensors(const sbit__wlayer *w, int64_t bits, int64_t low,
                                       sbit_value_id inputs[4], sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(w->graph);
    const int64_t n = w->q->dims[w->rows_first ? 0 : 1], k = w->q->dims[w->rows_first ? 1 : 0];
    const int64_t blocks = (k + w->block - 1) / w->block;
    const int64_t dims[3] = {n, blocks, w->block * bits / 8}, count = n * blocks;
    const int64_t zero_count = n * ((blocks * bits + 7) / 8);
    sbit_tensor b, scales, zeros;
    memset(&b, 0, sizeof b);
    memset(&scales, 0, sizeof scales);
    memset(&zeros, 0, sizeof zeros);
    sbit_status status = sbit_tensor_alloc(ctx, SBIT_U8, 3, dims, &b, error);
    status =
        status == SBIT_OK ? sbit_tensor_alloc(ctx, SBIT_F32, 1, &count, &scales, error) : status;
    status =
        status == SBIT_OK ? sbit_tensor_alloc(ctx, SBIT_U8, 1, &zero_count, &zeros, error) : status;
    if (status == SBIT_OK) {
        sbit__nbits_fill(w, bits, low, blocks, &b, &scales, &zeros);
        status = sbit__wlayer_take(w, "codes", &b, &inputs[1], error);
    }
    status =
        status == SBIT_OK ? sbit__wlayer_take(w, "scales", &scales, &inputs[2], error) : status;
    inputs[3].idx = 0;
    if (status == SBIT_OK && !sbit__nbits_plain(w, bits, low)) {
        status = sbit__wlayer_take(w, "zero_points", &zeros, &inputs[3], error);
    }
    sbit_tensor_free(ctx, &b);
    sbit_tensor_free(ctx, &scales);
    sbit_tensor_free(ctx, &zeros);
    return status;
}

static sbit_status sbit__nbits_rewrite(const sbit__wlayer *w, sbit_error *error)
{
    sbit_value_id inputs[4], y;
    int64_t low = 0;
    const int64_t bits = sbit__nbits_four(w, &low) ? 4 : 8;
    const sbit_attr attrs[4] = {sbit__attr_int("K", w->q->dims[w->rows_first ? 1 : 0]),
                                sbit__attr_int("N", w->q->dims[w->rows_first ? 0 : 1]),
                                sbit__attr_int("bits", bits),
                                sbit__attr_int("block_size", w->block)};
    inputs[0] = w->node->inputs[0];
    SBIT__TRY(sbit__nbits_tensors(w, bits, low, inputs, error));
    SBIT__TRY(sbit_graph_set_opset(w->graph, "com.microsoft", 1, error));
    SBIT__TRY(sbit__format_add(w->graph, w->node, "com.microsoft", "MatMulNBits", inputs,
                               inputs[3].idx != 0 ? 4 : 3, attrs, 4, &y, 1, error));
    if (w->bias.idx != 0) {
        SBIT__TRY(sbit__wlayer_binary(w, "Add", y, w->bias, &y, error));
    }
    return sbit__wlayer_finish(w, y, error);
}

SBIT__FN sbit_status sbit__format_nbits(sbit_graph *graph, sbit_error *error)
{
    SBIT__TRY(sbit__format_bodies(graph, sbit__format_nbits, error));
    return sbit__wlayer_each(graph, sbit__nbits_possible, sbit__nbits_rewrite, error);
}

/* ---- and back: codes of 4 or 8 bits in blocks of consecutive inputs, scales in float32 */

static int64_t sbit__nbits_code(const sbit_tensor *packed, int64_t row_bytes, int64_t bits, int64_t row, int64_t i)
{
    const uint8_t *bytes = (const uint8_t *)packed->data + row * row_bytes + i * bits / 8;
    return *bytes >> i * bits % 8 & (((int64_t)1 << bits) - 1);
}

static bool sbit__nbits_undoable(const sbit_graph *graph, const sbit_node *node)
{
    const sbit_tensor *b = sbit__format_constant(graph, node, 1), *scales = sbit__format_constant(graph, node, 2);
    const sbit_tensor *zeros = sbit__format_constant(graph, node, 3);
    const int64_t bits = sbit_node_int(node, "bits", 4), block = sbit_node_int(node, "block_size", 0);
    const int64_t n = sbit_node_int(node, "N", 0), k = sbit_node_int(node, "K", 0);
    if (!sbit__streq(node->domain, "com.microsoft") || !sbit__streq(node->op_type, "MatMulNBits") || b == NULL ||
        scales == NULL || scales->dtype != SBIT_F32 || (bits != 4 && bits != 8) || block < 16 || n < 1 || k < 1 ||
        (zeros != NULL && zeros->dtype != SBIT_U8) ||
        (zeros == NULL && node->input_count > 3 && node->inputs[3].idx != 0) ||
        (node->input_count > 4 && node->inputs[4].idx != 0)) {
        return false;
    }
    const int64_t blocks = (k + block - 1) / block;
    return sbit_tensor_bytes(b) == (size_t)(n * blocks * block * bits / 8) &&
           sbit_tensor_count(scales) == n * blocks &&
           (zeros == NULL || sbit_tensor_count(zeros) == n * ((blocks * bits + 7) / 8));
}

/* Codes [K,N], scales and zero points [blocks,N]. */
static void sbit__nbits_unpack(const sbit_graph *graph, const sbit_node *node, sbit_tensor t[3])
{
    const sbit_tensor *b = sbit__format_constant(graph, node, 1), *scales = sbit__format_constant(graph, node, 2);
    const sbit_tensor *zeros = sbit__format_constant(graph, node, 3);
    const int64_t bits = sbit_node_int(node, "bits", 4), block = sbit_node_int(node, "block_size", 0);
    const int64_t k = t[0].dims[0], n = t[0].dims[1], blocks = t[1].dims[0];
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < k; i++) {
            const int64_t q = sbit__nbits_code(b, blocks * block * bits / 8, bits, r, i);
            sbit__tensor_set_f64(&t[0], i * n + r, (double)q);
        }
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t z = zeros != NULL ? sbit__nbits_code(zeros, (blocks * bits + 7) / 8, bits, r, i)
                                            : (int64_t)1 << (bits - 1);
            sbit__tensor_set_f64(&t[1], i * n + r, sbit__tensor_f64_at(scales, r * blocks + i));
            sbit__tensor_set_f64(&t[2], i * n + r, (double)z);
        }
    }
}

static sbit_status sbit__nbits_undo(sbit_graph *graph, const sbit_node *node, sbit_error *error)
{
    static const char *const what[] = {"codes", "scales", "zero_points"};
    const int64_t block = sbit_node_int(node, "block_size", 0), k = sbit_node_int(node, "K", 0);
    const int64_t dims[2] = {k, sbit_node_int(node, "N", 0)}, parts[2] = {(k + block - 1) / block, dims[1]};
    const sbit_dtype codes = sbit_node_int(node, "bits", 4) == 4 ? SBIT_U4 : SBIT_U8;
    const sbit_attr attrs[2] = {sbit__attr_int("axis", 0), sbit__attr_int("block_size", block)};
    const sbit_value_id bias = sbit__node_in(node, 5);
    sbit_tensor t[3];
    sbit__wlayer w;
    sbit_value_id inputs[3], y;
    sbit_status status = SBIT_OK;
    memset(t, 0, sizeof t);
    memset(&w, 0, sizeof w);
    w.graph = graph;
    w.node = node;
    for (int i = 0; i < 3 && status == SBIT_OK; i++) {
        status = sbit_tensor_alloc(sbit_graph_ctx(graph), i == 1 ? SBIT_F32 : codes, 2, i == 0 ? dims : parts, &t[i], error);
    }
    if (status == SBIT_OK) {
        sbit__nbits_unpack(graph, node, t);
    }
    for (int i = 0; i < 3 && status == SBIT_OK; i++) {
        status = sbit__wlayer_take(&w, what[i], &t[i], &inputs[i], error);
    }
    for (int i = 0; i < 3; i++) {
        sbit_tensor_free(sbit_graph_ctx(graph), &t[i]);
    }
    SBIT__TRY(status);
    SBIT__TRY(sbit__format_add(graph, node, "", "DequantizeLinear", inputs, 3, attrs, 2, &y, 1, error));
    SBIT__TRY(sbit__wlayer_binary(&w, "MatMul", node->inputs[0], y, &y, error));
    if (bias.idx != 0) {
        SBIT__TRY(sbit__wlayer_binary(&w, "Add", y, bias, &y, error));
    }
    return sbit__wlayer_finish(&w, y, error);
}

SBIT__FN sbit_status sbit__format_undo_nbits(sbit_graph *graph, bool *any, sbit_error *error)
{
    const uint32_t limit = sbit_graph_node_limit(graph);
    *any = false;
    for (uint32_t i = 1; i < limit; i++) {
        const sbit_node_id id = {i};
        if (sbit_graph_node_alive(graph, id) && sbit__nbits_undoable(graph, sbit_graph_node(graph, id))) {
            if (!*any && sbit_graph_opset(graph, "") < 21) { /* DequantizeLinear in blocks */
                SBIT__TRY(sbit_graph_lift_opset(graph, 21, error));
            }
            *any = true;
            SBIT__TRY(sbit__nbits_undo(graph, sbit_graph_node(graph, id), error));
        }
    }
    sbit__format_clean(graph);
    return SBIT_OK;
}
