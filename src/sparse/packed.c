/* packed.c: models that are quantized already. >>sparse-packed
 *
 * Activations keep their QuantizeLinear and DequantizeLinear: labels go through them. Weights are
 * taken as the floats that their integers stand for, while everything is chosen, masked and cut;
 * then they are integers again, with the scales and zero points of the channels that stay: of what
 * nobody changed the same integers. With scales for blocks of inputs, whole blocks go: the channels
 * that one block reads are one.
 * Operators on integers and MatMulNBits become pairs first, and are written again at the end.
 */
#include "../passes/passes_private.h"
#include "../quant/quant_private.h"
#include "sparse_private.h"

#include <math.h> /* nearbyint */

/* >>packed open */

static sbit_status sbit__packed_kinds(const sbit_graph *graph, void *user)
{
    bool *integers = (bool *)user;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const char *op = sbit_graph_node(graph, id)->op_type;
        *integers = *integers || strncmp(op, "QLinear", 7) == 0 || sbit__streq(op, "QGemm");
    }
    return SBIT_OK;
}

/* Products of integers whose ranges are found while running, and blocks in an order of their own (g_idx): no rule
 * for channels, and no floats to be pruned in their place. */
static sbit_status sbit__packed_left(const sbit_graph *graph, void *user)
{
    static const char *const ops[] = {"MatMulInteger", "ConvInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul",
                                      "DynamicQuantizeLSTM", "MatMulNBits"};
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        for (size_t i = 0; i < SBIT__COUNT_OF(ops); i++) {
            if (sbit__streq(node->op_type, ops[i])) {
                sbit__log((sbit_ctx *)user, SBIT_LOG_WARNING,
                          "%s '%s' and others like it keep all their channels: prune the float model, then quantize it",
                          node->op_type, node->name[0] != '\0' ? node->name : sbit_graph_value(graph, node->outputs[0])->name);
                return SBIT_ERR_LIMIT; /* one is enough */
            }
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__packed_unpack(sbit_sparse *sparse, sbit_error *error)
{
    bool integers = false, blocks = false;
    (void)sbit_graph_each(sparse->graph, sbit__packed_kinds, &integers);
    if (integers) {
        SBIT__TRY(sbit__format_qdq(sparse->graph, error));
    }
    SBIT__TRY(sbit__format_undo_nbits(sparse->graph, &blocks, error));
    sparse->format = integers ? "qoperator" : blocks ? "matmul_nbits" : NULL;
    (void)sbit_graph_each(sparse->graph, sbit__packed_left, sparse->ctx);
    if (integers || blocks) {
        SBIT__TRY(sbit_graph_sort(sparse->graph, error));
        return sbit_infer(sparse->graph, error);
    }
    return SBIT_OK;
}

static sbit_parts sbit__packed_parts(const sbit__packed *p, const sbit_tensor *shape)
{
    return sbit_parts_of(shape, p->axis, p->block);
}

/* A DequantizeLinear of constants whose floats can take its place. */
static bool sbit__packed_of(const sbit_graph *graph, const sbit_node *node, sbit__packed *out)
{
    memset(out, 0, sizeof *out);
    if (!sbit__dequantize_is(node, "DequantizeLinear") || node->output_count != 1 ||
        sbit_graph_value(graph, node->outputs[0])->is_output) {
        return false;
    }
    const sbit_tensor *q = sbit__format_constant(graph, node, 0), *scale = sbit__format_constant(graph, node, 1);
    const sbit_tensor *zero = sbit__format_constant(graph, node, 2);
    const bool has_zero = node->input_count > 2 && node->inputs[2].idx != 0;
    if (q == NULL || scale == NULL || (has_zero && zero == NULL) || scale->dtype != SBIT_F32 ||
        sbit_graph_value(graph, node->outputs[0])->type.dtype != SBIT_F32) {
        return false;
    }
    const int64_t axis = sbit_node_int(node, "axis", 1);
    out->node = node->id;
    out->block = sbit_node_int(node, "block_size", 0);
    out->axis = sbit_tensor_count(scale) == 1 && out->block == 0 ? -1 : (int32_t)(axis < 0 ? axis + q->rank : axis);
    if (out->axis >= q->rank || out->axis < -1) {
        return false;
    }
    const int64_t parts = sbit__packed_parts(out, q).count;
    return sbit_tensor_count(scale) == parts && (zero == NULL || sbit_tensor_count(zero) == parts);
}

static sbit_status sbit__packed_floats(sbit_sparse *sparse, sbit__packed *p, sbit_error *error)
{
    sbit_graph *graph = sparse->graph;
    const sbit_node *node = sbit_graph_node(graph, p->node);
    const sbit_tensor *q = sbit__format_constant(graph, node, 0), *scale = sbit__format_constant(graph, node, 1);
    const sbit_tensor *zero = sbit__format_constant(graph, node, 2);
    const sbit_parts parts = sbit__packed_parts(p, q);
    sbit_runs runs = sbit_runs_of(&parts);
    char given[256], name[256];
    sbit_tensor floats;
    SBIT__TRY(sbit_tensor_alloc(sparse->ctx, SBIT_F32, q->rank, q->dims, &floats, error));
    while (sbit_runs_next(&runs)) {
        const float s = ((const float *)scale->data)[runs.part];
        const float z = zero != NULL ? (float)sbit__tensor_f64_at(zero, runs.part) : 0.0f;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            ((float *)floats.data)[i] = ((float)sbit__tensor_f64_at(q, i) - z) * s;
        }
    }
    snprintf(given, sizeof given, "%.250s", sbit_graph_value(graph, node->inputs[0])->name);
    sbit__dequantize_name(given, name, sizeof name);
    const sbit_status status = sbit__graph_take_constant(graph, name, &floats, &p->floats, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(sparse->ctx, &floats);
        return status;
    }
    return sbit_graph_replace_uses(graph, sbit_graph_node(graph, p->node)->outputs[0], p->floats, error);
}

SBIT__FN sbit_status sbit__packed_open(sbit_sparse *sparse, sbit_error *error)
{
    size_t count = 0;
    sbit__packed p;
    for (sbit_node_id id = sbit_graph_first(sparse->graph); id.idx != 0; id = sbit_graph_next(sparse->graph, id)) {
        count += sbit__packed_of(sparse->graph, sbit_graph_node(sparse->graph, id), &p) ? 1u : 0u;
    }
    sparse->packed = (sbit__packed *)sbit__arena_array(&sparse->arena, count + 1, sizeof p);
    if (sparse->packed == NULL) {
        return sbit__fail_oom(error, count * sizeof p);
    }
    for (sbit_node_id id = sbit_graph_first(sparse->graph); id.idx != 0; id = sbit_graph_next(sparse->graph, id)) {
        if (sbit__packed_of(sparse->graph, sbit_graph_node(sparse->graph, id), &p)) {
            SBIT__TRY(sbit__packed_floats(sparse, &p, error));
            sparse->packed[sparse->packed_count++] = p;
        }
    }
    return count > 0 ? sbit_infer(sparse->graph, error) : SBIT_OK;
}

SBIT__FN void sbit__packed_join(sbit_sparse *sparse)
{
    sbit__labeler *labeler = &sparse->labeler;
    for (size_t i = 0; i < sparse->packed_count; i++) {
        const sbit__packed *p = &sparse->packed[i];
        for (size_t m = 0; m < labeler->member_count && p->block > 0; m++) {
            const sbit__member *member = &labeler->members[m];
            const int64_t length = member->count / member->parts;
            for (int64_t k = 0; member->value.idx == p->floats.idx && member->axis == p->axis && k < member->count; k++) {
                const int64_t first = k - k % length % p->block;
                sbit__label_join(labeler, member->labels[first], member->labels[k]);
            }
        }
    }
}

/* >>packed close */

/* Scales or zero points of what stays. */
static sbit_status sbit__packed_cut(const sbit_sparse *sparse, const sbit__packed *p, const sbit_tensor *now,
                                    const sbit_tensor *from, sbit__arena *arena, sbit_tensor *out, sbit_error *error)
{
    const sbit_tensor *was = &sbit_graph_value(sparse->graph, p->floats)->constant;
    const sbit_tensor whole = *from;
    if (p->axis < 0 || sbit_tensor_same_shape(was, now)) {
        return sbit__tensor_copy(sparse->ctx, from, out, error);
    }
    return sbit__cut_like(sparse, p->floats, p->block > 0 ? -1 : p->axis, p->block > 0 ? p->axis : -1,
                          p->block > 0 ? p->block : 1, &whole, arena, out, error);
}

/* By way of floats: integers may share bytes. */
static sbit_status sbit__packed_cut_zero(const sbit_sparse *sparse, const sbit__packed *p, const sbit_tensor *now,
                                         const sbit_tensor *zero, sbit__arena *arena, sbit_tensor *out,
                                         sbit_error *error)
{
    sbit_tensor all, left;
    memset(&left, 0, sizeof left);
    SBIT__TRY(sbit_tensor_alloc(sparse->ctx, SBIT_F32, zero->rank, zero->dims, &all, error));
    for (int64_t i = 0; i < sbit_tensor_count(zero); i++) {
        ((float *)all.data)[i] = (float)sbit__tensor_f64_at(zero, i);
    }
    sbit_status status = sbit__packed_cut(sparse, p, now, &all, arena, &left, error);
    status = status == SBIT_OK ? sbit_tensor_alloc(sparse->ctx, zero->dtype, left.rank, left.dims, out, error) : status;
    for (int64_t i = 0; status == SBIT_OK && i < sbit_tensor_count(&left); i++) {
        sbit__tensor_set_f64(out, i, (double)((const float *)left.data)[i]);
    }
    sbit_tensor_free(sparse->ctx, &all);
    sbit_tensor_free(sparse->ctx, &left);
    return status;
}

static sbit_status sbit__packed_put(sbit_graph *graph, const sbit__packed *p, size_t input, sbit_tensor *tensor,
                                    sbit_error *error)
{
    const sbit_value_id old = sbit_graph_node(graph, p->node)->inputs[input];
    sbit_value_id id;
    const sbit_status status =
        sbit__graph_take_constant(graph, sbit_graph_value(graph, old)->name, tensor, &id, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(sbit_graph_ctx(graph), tensor);
    }
    memset(tensor, 0, sizeof *tensor);
    return status == SBIT_OK ? sbit_graph_set_node_input(graph, p->node, input, id, error) : status;
}

/* The nearest integers; exactly those that there were, where a float is still what they stood for. */
static void sbit__packed_round(const sbit__packed *p, const sbit_tensor *floats, const sbit_tensor *scale,
                               const sbit_tensor *zero, sbit_tensor *q)
{
    const sbit_parts parts = sbit__packed_parts(p, floats);
    sbit_runs runs = sbit_runs_of(&parts);
    const int32_t bits = (int32_t)sbit_dtype_bits((int32_t)q->dtype);
    const bool is_float = q->dtype == SBIT_F8E4M3FN || q->dtype == SBIT_F8E5M2 || q->dtype == SBIT_F8E4M3FNUZ ||
                          q->dtype == SBIT_F8E5M2FNUZ || q->dtype == SBIT_F4E2M1;
    const bool is_signed = (SBIT_T(q->dtype) & (SBIT_T_SIGNED | SBIT_T(SBIT_I4) | SBIT_T(SBIT_I2))) != 0;
    const double least = is_signed ? -(double)((int64_t)1 << (bits - 1)) : 0.0;
    const double most = (double)((int64_t)1 << (is_signed ? bits - 1 : bits)) - 1.0;
    while (sbit_runs_next(&runs)) {
        const double s = sbit__tensor_f64_at(scale, runs.part);
        const double z = zero != NULL ? sbit__tensor_f64_at(zero, runs.part) : 0.0;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double x = (double)((const float *)floats->data)[i] / s;
            const double y = is_float ? x : nearbyint(x) + z;
            sbit__tensor_set_f64(q, i, is_float ? y : y < least ? least : y > most ? most : y);
        }
    }
}

static sbit_status sbit__packed_close_one(const sbit_sparse *sparse, sbit_graph *graph, const sbit__packed *p,
                                          sbit__arena *arena, sbit_tensor t[3], sbit_error *error)
{
    const sbit_node *was = sbit_graph_node(sparse->graph, p->node);
    const sbit_tensor *floats = &sbit_graph_value(graph, p->floats)->constant;
    const sbit_tensor *zero = sbit__format_constant(sparse->graph, was, 2);
    const sbit_dtype dtype = sbit__format_constant(sparse->graph, was, 0)->dtype;
    SBIT__TRY(sbit__packed_cut(sparse, p, floats, sbit__format_constant(sparse->graph, was, 1), arena, &t[1], error));
    if (zero != NULL) {
        SBIT__TRY(sbit__packed_cut_zero(sparse, p, floats, zero, arena, &t[2], error));
    }
    SBIT__TRY(sbit_tensor_alloc(sparse->ctx, dtype, floats->rank, floats->dims, &t[0], error));
    sbit__packed_round(p, floats, &t[1], zero != NULL ? &t[2] : NULL, &t[0]);
    for (size_t i = 0; i < (zero != NULL ? 3u : 2u); i++) {
        SBIT__TRY(sbit__packed_put(graph, p, i, &t[i], error));
    }
    const sbit_type type = sbit__type_of_tensor(floats);
    const sbit_value_id y = sbit_graph_node(graph, p->node)->outputs[0];
    sbit_graph_set_type(graph, y, &type);
    return sbit_graph_replace_uses(graph, p->floats, y, error);
}

/* The constant that a node reads there is the one that it reads here. */
static bool sbit__packed_same(const sbit_sparse *sparse, const sbit_node *node, size_t input)
{
    const sbit_node *was = sbit_graph_node(sparse->original, node->id);
    const sbit_tensor *a = sbit__format_constant(sparse->graph, node, input);
    const sbit_tensor *b = sbit__format_constant(sparse->original, was, input);
    return (a == NULL && b == NULL && input >= was->input_count) ||
           (a != NULL && b != NULL && a->dtype == b->dtype && sbit_tensor_same_shape(a, b) &&
            memcmp(a->data, b->data, sbit_tensor_bytes(a)) == 0);
}

SBIT__FN sbit_status sbit__packed_original(const sbit_sparse *sparse, sbit_value_id floats,
                                           const sbit_tensor *now, sbit_graph *copy, bool *has,
                                           sbit_error *error)
{
    *has = false;
    for (size_t i = 0; i < sparse->packed_count; i++) {
        const sbit__packed *p = &sparse->packed[i];
        const sbit_node *node = sbit_graph_node(sparse->graph, p->node);
        sbit_tensor q;
        if (p->floats.idx != floats.idx || !sbit_graph_node_alive(sparse->original, p->node) ||
            !sbit__dequantize_is(sbit_graph_node(sparse->original, p->node), "DequantizeLinear") ||
            !sbit__packed_same(sparse, node, 0) || !sbit__packed_same(sparse, node, 1) ||
            !sbit__packed_same(sparse, node, 2)) {
            continue;
        }
        *has = true;
        SBIT__TRY(sbit_tensor_alloc(sparse->ctx, sbit__format_constant(sparse->graph, node, 0)->dtype, now->rank,
                                    now->dims, &q, error));
        sbit__packed_round(p, now, sbit__format_constant(sparse->graph, node, 1),
                           sbit__format_constant(sparse->graph, node, 2), &q);
        SBIT__TRY(sbit__packed_put(copy, p, 0, &q, error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__packed_close(const sbit_sparse *sparse, sbit_graph *graph, sbit_error *error)
{
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    if (sparse->packed_count == 0 && sparse->format == NULL) {
        return SBIT_OK;
    }
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    for (size_t i = 0; i < sparse->packed_count && status == SBIT_OK; i++) {
        sbit_tensor t[3];
        memset(t, 0, sizeof t);
        status = sbit__packed_close_one(sparse, graph, &sparse->packed[i], &arena, t, error);
        for (int k = 0; k < 3; k++) {
            sbit_tensor_free(sparse->ctx, &t[k]);
        }
    }
    sbit__arena_deinit(&arena);
    sbit__format_clean(graph);
    const sbit_format_row *row = sparse->format != NULL ? sbit_format_find(sparse->ctx, sparse->format) : NULL;
    status = status == SBIT_OK ? sbit_infer(graph, error) : status;
    if (status == SBIT_OK && row != NULL) {
        status = row->write(graph, error);
        status = status == SBIT_OK ? sbit_infer(graph, error) : status;
    }
    return status;
}
