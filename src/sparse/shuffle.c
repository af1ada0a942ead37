/* shuffle.c: channel shuffles become one Gather, and constants get one user each. >>shuffle
 *
 * Reshape, Transpose, Reshape of an axis in blocks permutes it. As three operators it can only be
 * cut where all blocks lose as many; as a Gather with constant indices any channel can go. (A
 * Gather is no slower: it copies whole planes, once.)
 */
#include "../passes/passes_private.h"
#include "sparse_private.h"

typedef struct sbit__shuffle {
    const sbit_node *first, *swap, *last;
    int32_t axis;
    int64_t outer, inner; /* index o * inner + i goes to i * outer + o */
} sbit__shuffle;

static bool sbit__shuffle_number(const sbit_type *type, int32_t axis, int64_t *value)
{
    *value = type->rank > axis ? type->dims[axis].value : 0;
    return type->rank > axis && sbit__dim_known(type->dims[axis]);
}

/* `wide` is `narrow` with its axis `axis` as two. */
static bool sbit__shuffle_splits(const sbit_type *narrow, const sbit_type *wide, int32_t axis)
{
    int64_t n = 0, a = 0, b = 0;
    if (narrow->rank < 0 || wide->rank != narrow->rank + 1 || axis >= narrow->rank ||
        !sbit__shuffle_number(narrow, axis, &n) || !sbit__shuffle_number(wide, axis, &a) ||
        !sbit__shuffle_number(wide, axis + 1, &b) || a * b != n) {
        return false;
    }
    for (int32_t i = 0; i < narrow->rank; i++) {
        const int32_t j = i < axis ? i : i + 1;
        if (i != axis && !sbit__dim_equal(narrow->dims[i], wide->dims[j])) {
            return false;
        }
    }
    return true;
}

static bool sbit__shuffle_match(const sbit_graph *graph, sbit_node_id id, sbit__shuffle *out)
{
    out->last = sbit_graph_node(graph, id);
    if (!sbit__is_op(out->last, "Reshape")) {
        return false;
    }
    out->swap = sbit__sole_producer(graph, out->last->inputs[0], "Transpose");
    out->first =
        out->swap != NULL ? sbit__sole_producer(graph, out->swap->inputs[0], "Reshape") : NULL;
    const sbit_attr *perm = out->first != NULL ? sbit_node_attr(out->swap, "perm") : NULL;
    if (perm == NULL || perm->count < 3) {
        return false;
    }
    out->axis = -1;
    for (size_t i = 0; i < perm->count; i++) {
        if (perm->ints[i] != (int64_t)i) {
            out->axis = (int32_t)i;
            break;
        }
    }
    const size_t axis = (size_t)(out->axis < 0 ? 0 : out->axis);
    if (out->axis < 0 || axis + 1 >= perm->count || perm->ints[axis] != (int64_t)axis + 1 ||
        perm->ints[axis + 1] != (int64_t)axis) {
        return false;
    }
    for (size_t i = axis + 2; i < perm->count; i++) {
        if (perm->ints[i] != (int64_t)i) {
            return false;
        }
    }
    const sbit_type *x = &sbit_graph_value(graph, out->first->inputs[0])->type;
    const sbit_type *wide = &sbit_graph_value(graph, out->first->outputs[0])->type;
    const sbit_type *y = &sbit_graph_value(graph, out->last->outputs[0])->type;
    const sbit_type *swapped = &sbit_graph_value(graph, out->swap->outputs[0])->type;
    return sbit__shuffle_splits(x, wide, out->axis) &&
           sbit__shuffle_splits(y, swapped, out->axis) &&
           sbit__shuffle_number(wide, out->axis, &out->outer) &&
           sbit__shuffle_number(wide, out->axis + 1, &out->inner);
}

static sbit_status sbit__shuffle_replace(sbit_graph *graph, const sbit__shuffle *shuffle,
                                         sbit__arena *arena, sbit_error *error)
{
    const int64_t n = shuffle->outer * shuffle->inner;
    int64_t *index = (int64_t *)sbit__arena_array(arena, (size_t)n + 1, sizeof *index);
    const sbit_node_id last = shuffle->last->id, swap = shuffle->swap->id,
                       first = shuffle->first->id;
    sbit_attr axis = sbit__attr_int("axis", shuffle->axis);
    sbit_value_id inputs[2];
    if (index == NULL) {
        return sbit__fail_oom(error, (size_t)n * sizeof *index);
    }
    for (int64_t i = 0; i < n; i++) {
        index[i / shuffle->inner + i % shuffle->inner * shuffle->outer] = i;
    }
    inputs[0] = shuffle->first->inputs[0];
    SBIT__TRY(sbit__add_ints(graph, "shuffle", index, n, &inputs[1], error));
    SBIT__TRY(sbit_graph_set_node_input(graph, last, 0, inputs[0], error));
    SBIT__TRY(sbit_graph_set_node_input(graph, last, 1, inputs[1], error));
    SBIT__TRY(sbit_graph_set_op(graph, last, "", "Gather", error));
    sbit_graph_remove_attr(graph, last, "allowzero");
    SBIT__TRY(sbit_graph_set_attr(graph, last, &axis, error));
    sbit__erase_unused(graph, sbit_graph_node(graph, swap));
    sbit__erase_unused(graph, sbit_graph_node(graph, first));
    return SBIT_OK;
}

/* Weights that several layers share stay shared: those layers have the same channels. */
static bool sbit__constant_is_tied(const sbit_graph *graph, const sbit_value_info *info,
                                   const sbit_use *uses, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const sbit_node *node = uses[i].node.idx != 0 ? sbit_graph_node(graph, uses[i].node) : NULL;
        const bool weight =
            node != NULL && uses[i].body == NULL &&
            (sbit__is_op(node, "Gather")
                 ? uses[i].index == 0
                 : uses[i].index == 1 &&
                       (sbit__is_op(node, "Conv") || sbit__is_op(node, "ConvTranspose") ||
                        sbit__is_op(node, "Gemm") || sbit__is_op(node, "MatMul")));
        if (!weight) {
            return false;
        }
    }
    return info->constant.rank >= 2;
}

static sbit_status sbit__constant_own(sbit_graph *graph, sbit_value_id id, sbit__arena *arena,
                                      sbit_error *error)
{
    const size_t count = sbit_graph_uses(graph, id, NULL, 0);
    sbit_use *uses = (sbit_use *)sbit__arena_array(arena, count + 1, sizeof *uses);
    if (uses == NULL) {
        return sbit__fail_oom(error, count * sizeof *uses);
    }
    sbit_graph_uses(graph, id, uses, count);
    if (sbit__constant_is_tied(graph, sbit_graph_value(graph, id), uses, count)) {
        return SBIT_OK;
    }
    for (size_t i = 1; i < count; i++) {
        const sbit_value_info *info = sbit_graph_value(graph, id);
        sbit_value_id copy;
        if (uses[i].node.idx == 0 || uses[i].body != NULL) {
            continue;
        }
        const sbit_tensor constant = info->constant;
        SBIT__TRY(sbit_graph_add_constant(graph, info->name, &constant, &copy, error));
        SBIT__TRY(sbit_graph_set_node_input(graph, uses[i].node, uses[i].index, copy, error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__sparse_prepare(sbit_graph *graph, sbit__arena *arena, sbit_error *error)
{
    sbit_node_id *ids = NULL;
    size_t count = 0;
    SBIT__TRY(sbit__node_list(graph, arena, &ids, &count, error));
    for (size_t i = 0; i < count; i++) {
        sbit__shuffle shuffle;
        if (sbit_graph_node_alive(graph, ids[i]) && sbit__shuffle_match(graph, ids[i], &shuffle)) {
            SBIT__TRY(sbit__shuffle_replace(graph, &shuffle, arena, error));
        }
    }
    const uint32_t limit = sbit_graph_value_limit(graph);
    for (uint32_t v = 1; v < limit; v++) {
        sbit_value_id id;
        id.idx = v;
        if (sbit_graph_value_alive(graph, id) && sbit_graph_value(graph, id)->is_constant &&
            sbit_graph_value(graph, id)->use_count > 1) {
            SBIT__TRY(sbit__constant_own(graph, id, arena, error));
        }
    }
    SBIT__TRY(sbit_graph_sort(graph, error));
    return sbit_infer(graph, error);
}
