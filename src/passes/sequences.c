/* sequences.c: sequences that are known while looking become plain tensors. >>pass-sequences
 *
 * SplitToSequence with a known number of pieces becomes Split (and Squeeze for keepdims 0) behind
 * a SequenceConstruct; what is in a sequence made by SequenceConstruct, SequenceEmpty and
 * SequenceInsert is then known, so SequenceAt, SequenceLength and ConcatFromSequence need no
 * sequence any more. A Split of which one output is used becomes a Slice.
 */
#include "passes_private.h"

#define SBIT__SEQ_MAX 96

/* >>what is in a sequence */

typedef struct sbit__seq_items {
    sbit_value_id ids[SBIT__SEQ_MAX];
    int64_t count;
} sbit__seq_items;

static bool sbit__seq_insert(const sbit_graph *graph, const sbit_node *node, sbit__seq_items *items)
{
    const sbit_tensor *position = sbit__const_in(graph, node, 2);
    int64_t at = items->count;
    if (sbit__node_in(node, 2).idx != 0) {
        if (position == NULL) {
            return false;
        }
        at = sbit__tensor_i64_at(position, 0);
        at += at < 0 ? items->count : 0;
    }
    if (at < 0 || at > items->count || items->count >= SBIT__SEQ_MAX) {
        return false;
    }
    for (int64_t i = items->count; i > at; i--) {
        items->ids[i] = items->ids[i - 1];
    }
    items->ids[at] = sbit__node_in(node, 1);
    items->count++;
    return items->ids[at].idx != 0;
}

/* The tensors of a sequence; false if they cannot be told. */
static bool sbit__seq_known(const sbit_graph *graph, sbit_value_id id, int32_t depth,
                            sbit__seq_items *items)
{
    const sbit_node *node = sbit__producer(graph, id);
    items->count = 0;
    if (node == NULL || depth > SBIT__SEQ_MAX) {
        return false;
    }
    if (sbit__is_op(node, "SequenceEmpty")) {
        return true;
    }
    if (sbit__is_op(node, "SequenceConstruct") && node->input_count <= SBIT__SEQ_MAX) {
        for (size_t i = 0; i < node->input_count; i++) {
            items->ids[i] = node->inputs[i];
        }
        items->count = (int64_t)node->input_count;
        return true;
    }
    if (sbit__is_op(node, "Identity")) {
        return sbit__seq_known(graph, sbit__node_in(node, 0), depth + 1, items);
    }
    return sbit__is_op(node, "SequenceInsert") &&
           sbit__seq_known(graph, sbit__node_in(node, 0), depth + 1, items) &&
           sbit__seq_insert(graph, node, items);
}

/* >>its users */

static sbit_status sbit__seq_at(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_tensor *position = sbit__const_in(rw->graph, node, 1);
    sbit__seq_items items;
    int64_t at = 0;
    if (position == NULL || sbit_tensor_count(position) != 1 ||
        !sbit__seq_known(rw->graph, sbit__node_in(node, 0), 0, &items)) {
        return SBIT_OK;
    }
    at = sbit__tensor_i64_at(position, 0);
    at += at < 0 ? items.count : 0;
    return at >= 0 && at < items.count ? sbit__bypass(rw, node, items.ids[at], error) : SBIT_OK;
}

static sbit_status sbit__seq_length(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    sbit__seq_items items;
    sbit_tensor length;
    if (!sbit__seq_known(rw->graph, sbit__node_in(node, 0), 0, &items) ||
        sbit_graph_value(rw->graph, node->outputs[0])->is_output) {
        return SBIT_OK;
    }
    memset(&length, 0, sizeof length);
    length.dtype = SBIT_I64;
    length.data = &items.count;
    SBIT__TRY(sbit_graph_set_constant(rw->graph, node->outputs[0], &length, error));
    sbit__erase_unused(rw->graph, node);
    rw->changes++;
    return SBIT_OK;
}

/* Squeeze or Unsqueeze of one axis, in the opset's form. */
static sbit_status sbit__seq_axis_node(sbit__rewrite *rw, const sbit_node *before,
                                       const char *op_type, sbit_value_id x, int64_t axis,
                                       sbit_value_id *out, sbit_error *error)
{
    const char *name = sbit_graph_value(rw->graph, x)->name;
    const sbit_attr attr = sbit__attr_ints("axes", &axis, 1);
    sbit_value_id inputs[2];
    inputs[0] = x;
    if (rw->opset < 13) {
        return sbit__emit(rw->graph, before->id, op_type, name, inputs, 1, &attr, 1, out, error);
    }
    SBIT__TRY(sbit__add_ints(rw->graph, "axes", &axis, 1, &inputs[1], error));
    return sbit__emit(rw->graph, before->id, op_type, name, inputs, 2, NULL, 0, out, error);
}

static sbit_status sbit__seq_concat(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    sbit__seq_items items;
    const sbit_attr *axis = sbit_node_attr(node, "axis");
    if (axis == NULL || !sbit__seq_known(rw->graph, sbit__node_in(node, 0), 0, &items) ||
        items.count == 0) {
        return SBIT_OK;
    }
    for (int64_t i = 0; sbit_node_int(node, "new_axis", 0) != 0 && i < items.count; i++) {
        SBIT__TRY(sbit__seq_axis_node(rw, node, "Unsqueeze", items.ids[i], axis->i, &items.ids[i],
                                      error));
    }
    SBIT__TRY(sbit__replace_node(rw->graph, node, "Concat", items.ids, (size_t)items.count, axis, 1,
                                 1, error));
    rw->changes++;
    return SBIT_OK;
}

/* >>SplitToSequence */

/* All uses look at known places, so that no sequence is left over. */
static bool sbit__seq_resolves(sbit__rewrite *rw, sbit_value_id id)
{
    const size_t count = sbit_graph_uses(rw->graph, id, NULL, 0);
    sbit_use *uses = (sbit_use *)sbit__arena_array(&rw->facts.arena, count + 1, sizeof *uses);
    if (uses == NULL) {
        return false;
    }
    (void)sbit_graph_uses(rw->graph, id, uses, count);
    for (size_t i = 0; i < count; i++) {
        const sbit_node *user = NULL;
        if (uses[i].node.idx == 0 || uses[i].body != NULL) {
            return false;
        }
        user = sbit_graph_node(rw->graph, uses[i].node);
        if (!sbit__is_op(user, "ConcatFromSequence") && !sbit__is_op(user, "SequenceLength") &&
            !(sbit__is_op(user, "SequenceAt") && sbit__const_in(rw->graph, user, 1) != NULL)) {
            return false;
        }
    }
    return count != 0;
}

/* The sizes of the pieces; 0 if they are not known. */
static int64_t sbit__seq_sizes(const sbit__rewrite *rw, const sbit_node *node, int64_t dim,
                               int64_t *sizes)
{
    const sbit_tensor *split = sbit__const_in(rw->graph, node, 1);
    int64_t count = 0, each = 1, left = dim;
    if (sbit__node_in(node, 1).idx != 0) {
        if (split == NULL || split->rank > 1) {
            return 0;
        }
        if (split->rank == 1) {
            for (count = 0; count < split->dims[0] && count < SBIT__SEQ_MAX; count++) {
                sizes[count] = sbit__tensor_i64_at(split, count);
            }
            return count == split->dims[0] ? count : 0;
        }
        each = sbit__tensor_i64_at(split, 0);
    }
    if (dim < 0 || each <= 0) {
        return 0;
    }
    while (left > 0 && count < SBIT__SEQ_MAX) {
        sizes[count++] = left < each ? left : each;
        left -= each;
    }
    return left <= 0 ? count : 0;
}

static sbit_status sbit__seq_add_split(sbit__rewrite *rw, const sbit_node *node, int64_t axis,
                                       const int64_t *sizes, sbit__seq_items *items,
                                       sbit_error *error)
{
    const sbit_type unknown = sbit__type_unknown();
    const sbit_attr attrs[2] = {sbit__attr_int("axis", axis),
                                sbit__attr_ints("split", sizes, (size_t)items->count)};
    sbit_value_id inputs[2];
    sbit_node_desc desc;
    memset(&desc, 0, sizeof desc);
    inputs[0] = node->inputs[0];
    if (rw->opset >= 13) {
        SBIT__TRY(sbit__add_ints(rw->graph, "split", sizes, items->count, &inputs[1], error));
    }
    for (int64_t i = 0; i < items->count; i++) {
        SBIT__TRY(sbit_graph_add_value(rw->graph,
                                       sbit_graph_value(rw->graph, node->outputs[0])->name,
                                       &unknown, &items->ids[i], error));
    }
    desc.op_type = "Split";
    desc.name = node->name;
    desc.inputs = inputs;
    desc.input_count = rw->opset >= 13 ? 2 : 1;
    desc.outputs = items->ids;
    desc.output_count = (size_t)items->count;
    desc.attrs = attrs;
    desc.attr_count = rw->opset >= 13 ? 1 : 2;
    desc.before = node->id;
    return sbit_graph_add_node(rw->graph, &desc, NULL, error);
}

static sbit_status sbit__seq_split(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_type *x = sbit__facts_type(&rw->facts, sbit__node_in(node, 0));
    int64_t axis = sbit_node_int(node, "axis", 0), sizes[SBIT__SEQ_MAX], dim = -1;
    sbit__seq_items items;
    if (rw->opset < 11 || !sbit__seq_resolves(rw, node->outputs[0])) {
        return SBIT_OK;
    }
    if (x->rank >= 0) {
        axis += axis < 0 ? x->rank : 0;
        if (axis < 0 || axis >= x->rank) {
            return SBIT_OK;
        }
        dim = sbit__dim_known(x->dims[axis]) ? x->dims[axis].value : -1;
    }
    items.count = sbit__seq_sizes(rw, node, dim, sizes);
    if (items.count == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__seq_add_split(rw, node, axis, sizes, &items, error));
    for (int64_t i = 0; sbit__node_in(node, 1).idx == 0 && i < items.count &&
                        sbit_node_int(node, "keepdims", 1) == 0;
         i++) {
        SBIT__TRY(
            sbit__seq_axis_node(rw, node, "Squeeze", items.ids[i], axis, &items.ids[i], error));
    }
    SBIT__TRY(sbit__replace_node(rw->graph, node, "SequenceConstruct", items.ids,
                                 (size_t)items.count, NULL, 0, 1, error));
    rw->changes++;
    return SBIT_OK;
}

/* >>Split of which one piece is used */

static sbit_status sbit__seq_one_piece(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    int64_t sizes[SBIT__SEQ_MAX], count = 0, bounds[2] = {0, 0}, axis = 0;
    size_t used = node->output_count;
    sbit_value_id inputs[4], out;
    for (size_t i = 0; i < node->output_count; i++) {
        if (sbit__output_used(rw->graph, node, i)) {
            if (used != node->output_count) {
                return SBIT_OK;
            }
            used = i;
        }
    }
    if (used == node->output_count || rw->opset < 10 || node->output_count < 2 ||
        !sbit__node_ints(rw->graph, node, rw->opset < 13 ? "split" : NULL,
                         rw->opset < 13 ? SIZE_MAX : 1, sizes, SBIT__SEQ_MAX, &count) ||
        count != (int64_t)node->output_count) {
        return SBIT_OK;
    }
    axis = sbit_node_int(node, "axis", 0);
    for (size_t i = 0; i < used; i++) {
        bounds[0] += sizes[i];
    }
    bounds[1] = bounds[0] + sizes[used];
    if (sbit_graph_value(rw->graph, node->outputs[used])->is_output) {
        return SBIT_OK;
    }
    inputs[0] = node->inputs[0];
    SBIT__TRY(sbit__add_ints(rw->graph, "starts", &bounds[0], 1, &inputs[1], error));
    SBIT__TRY(sbit__add_ints(rw->graph, "ends", &bounds[1], 1, &inputs[2], error));
    SBIT__TRY(sbit__add_ints(rw->graph, "axes", &axis, 1, &inputs[3], error));
    SBIT__TRY(sbit__emit(rw->graph, node->id, "Slice",
                         sbit_graph_value(rw->graph, node->outputs[used])->name, inputs, 4, NULL, 0,
                         &out, error));
    SBIT__TRY(sbit_graph_replace_uses(rw->graph, node->outputs[used], out, error));
    sbit__erase_unused(rw->graph, node);
    rw->changes++;
    return SBIT_OK;
}

static sbit_status sbit__seq_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                 int64_t *changes, sbit_error *error)
{
    static const sbit__rule rules[] = {
        {"SplitToSequence", sbit__seq_split}, {"SequenceAt", sbit__seq_at},
        {"SequenceLength", sbit__seq_length}, {"ConcatFromSequence", sbit__seq_concat},
        {"Split", sbit__seq_one_piece},
    };
    return sbit__apply_rules(graph, desc, rules, SBIT__COUNT_OF(rules), changes, error);
}

SBIT__FN const sbit_pass_row *sbit__pass_sequence_to_split(void)
{
    static const sbit_pass_row row = {
        {"sequence_to_split", "sequences whose items are known become Split, Concat and tensors", 0,
         NULL, 0},
        false,
        sbit__seq_run};
    return &row;
}

#undef SBIT__SEQ_MAX
