/* shape_folding.c: integers that follow from shapes become constants. >>pass-shape-folding
 *
 * Inference follows small integer tensors element by element: numbers, symbols (the batch), or
 * unknown. Where all are numbers the value becomes a constant. Where a Reshape's target has
 * unknown elements, the two special numbers of Reshape can say the same: 0 (this dim of the input)
 * where input and target have the same symbol at the same place, and one -1 (what is left). So
 * Shape - Gather - Unsqueeze - Concat - Reshape becomes a Reshape with a constant.
 */
#include "passes_private.h"

/* >>values that are known */

static sbit_status sbit__shapes_fold_value(sbit__rewrite *rw, const sbit_node *node,
                                           sbit_error *error)
{
    const sbit_tensor *known = NULL;
    bool ok = true;
    if (!sbit__single_output(rw->graph, node) || node->outputs[0].idx >= rw->facts.limit ||
        sbit_graph_value(rw->graph, node->outputs[0])->use_count == 0 ||
        sbit_graph_value(rw->graph, node->outputs[0])->is_output) {
        return SBIT_OK;
    }
    known = sbit__infer_known(rw->facts.state, node->outputs[0], &ok);
    if (!ok) {
        return sbit__fail_oom(error, sizeof(sbit_tensor));
    }
    if (known == NULL || (known->dtype != SBIT_I64 && known->dtype != SBIT_I32)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_graph_set_constant(rw->graph, node->outputs[0], known, error));
    sbit__erase_unused(rw->graph, node);
    rw->changes++;
    return SBIT_OK;
}

/* >>Reshape */

/* Replaces input 1 of a Reshape by a constant. Where it has a 0 that copies, allowzero goes. */
static sbit_status sbit__shapes_set_target(sbit__rewrite *rw, const sbit_node *node,
                                           const int64_t *target, int64_t count, sbit_error *error)
{
    char name[128];
    sbit_value_id id;
    snprintf(name, sizeof name, "%.100s_shape",
             sbit_graph_value(rw->graph, node->outputs[0])->name);
    SBIT__TRY(sbit__add_ints(rw->graph, name, target, count, &id, error));
    SBIT__TRY(sbit_graph_set_node_input(rw->graph, node->id, 1, id, error));
    sbit_graph_remove_attr(rw->graph, node->id, "allowzero");
    rw->changes++;
    return SBIT_OK;
}

/* The target with 0 and -1 for what is unknown; false if that cannot say it. */
static bool sbit__shapes_target(const sbit_type *data, const sbit_dim *elems, int64_t count,
                                bool zero_is_zero, int64_t *target)
{
    int64_t unknown = 0;
    bool has_rest = false;
    for (int64_t i = 0; i < count; i++) {
        const bool known = sbit__dim_known(elems[i]);
        /* An element 0 means "copy" without allowzero, and an empty dim with it. */
        if (known && elems[i].value == 0 && zero_is_zero) {
            return false;
        }
        target[i] = known ? elems[i].value : 0;
        has_rest = has_rest || (known && elems[i].value == -1);
        if (!known && !(i < data->rank && sbit__dim_equal(elems[i], data->dims[i]))) {
            target[i] = -1;
            unknown++;
        }
    }
    return unknown == 0 || (unknown == 1 && !has_rest);
}

/* Flatten: a Reshape to [batch, all the rest] with known numbers. [0, -1] says so whatever the
 * numbers are, which they are not after pruning. */
static bool sbit__shapes_is_flatten(const sbit_type *data, const sbit_type *out)
{
    const int64_t rest = data->rank > 1 ? sbit__known_product(data, 1, data->rank) : -1;
    return rest > 0 && out->rank == 2 && sbit__dim_equal(out->dims[0], data->dims[0]) &&
           sbit__dim_known(out->dims[1]) && out->dims[1].value == rest;
}

static sbit_status sbit__shapes_reshape(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_value_id shape = sbit__node_in(node, 1), data_id = sbit__node_in(node, 0);
    const sbit_type *data = sbit__facts_type(&rw->facts, data_id);
    const sbit_tensor *now = sbit__const_in(rw->graph, node, 1);
    const bool zero_is_zero = sbit_node_int(node, "allowzero", 0) != 0;
    int64_t count = 0, target[SBIT_MAX_RANK];
    const sbit_dim *elems = NULL;
    if (shape.idx == 0 || rw->opset < 5 || node->output_count != 1 || node->outputs[0].idx == 0) {
        return SBIT_OK;
    }
    if (sbit__shapes_is_flatten(data, sbit__facts_type(&rw->facts, node->outputs[0]))) {
        const bool done = now != NULL && sbit_tensor_count(now) == 2 && !zero_is_zero &&
                          sbit__tensor_i64_at(now, 0) == 0 && sbit__tensor_i64_at(now, 1) == -1;
        target[0] = 0;
        target[1] = -1;
        return done ? SBIT_OK : sbit__shapes_set_target(rw, node, target, 2, error);
    }
    elems = sbit__facts_elems(&rw->facts, shape, &count);
    if (now != NULL || elems == NULL || count > SBIT_MAX_RANK || data->rank < 0 ||
        !sbit__shapes_target(data, elems, count, zero_is_zero, target)) {
        return SBIT_OK;
    }
    return sbit__shapes_set_target(rw, node, target, count, error);
}

/* >>Slice: an end that is the size of the axis is "to the end". */
static sbit_status sbit__shapes_slice(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_type *data = sbit__facts_type(&rw->facts, sbit__node_in(node, 0));
    int64_t axes[SBIT_MAX_RANK], steps[SBIT_MAX_RANK], ends[SBIT_MAX_RANK];
    int64_t axis_count = 0, step_count = 0, count = 0;
    const sbit_dim *elems = sbit__facts_elems(&rw->facts, sbit__node_in(node, 2), &count);
    const bool has_axes = sbit__node_in(node, 3).idx != 0,
               has_steps = sbit__node_in(node, 4).idx != 0;
    sbit_value_id id;
    if (rw->opset < 10 || elems == NULL || count > SBIT_MAX_RANK || data->rank < 0 ||
        sbit__const_in(rw->graph, node, 2) != NULL ||
        (has_axes &&
         !sbit__node_ints(rw->graph, node, NULL, 3, axes, SBIT_MAX_RANK, &axis_count)) ||
        (has_steps &&
         !sbit__node_ints(rw->graph, node, NULL, 4, steps, SBIT_MAX_RANK, &step_count))) {
        return SBIT_OK;
    }
    if ((has_axes && axis_count != count) || (has_steps && step_count != count)) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t axis = has_axes ? axes[i] : i;
        axis += axis < 0 ? data->rank : 0;
        ends[i] = elems[i].value;
        if (axis < 0 || axis >= data->rank) {
            return SBIT_OK;
        }
        if (!sbit__dim_known(elems[i])) {
            if (!sbit__dim_equal(elems[i], data->dims[axis]) || (has_steps && steps[i] < 0)) {
                return SBIT_OK;
            }
            ends[i] = INT64_MAX;
        }
    }
    {
        const sbit_tensor *starts = sbit__const_in(rw->graph, node, 1);
        if (starts != NULL && starts->dtype != SBIT_I64) {
            return SBIT_OK; /* starts and ends share one type */
        }
        if (starts == NULL && sbit__facts_type(&rw->facts, node->inputs[1])->dtype != SBIT_I64) {
            return SBIT_OK;
        }
    }
    SBIT__TRY(sbit__add_ints(rw->graph, "slice_ends", ends, count, &id, error));
    SBIT__TRY(sbit_graph_set_node_input(rw->graph, node->id, 2, id, error));
    rw->changes++;
    return SBIT_OK;
}

/* >>Expand: a target of 1 leaves a dim as it is, which a dim equal to the input's may say too. */
static sbit_status sbit__shapes_expand(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_type *data = sbit__facts_type(&rw->facts, sbit__node_in(node, 0));
    int64_t count = 0, target[SBIT_MAX_RANK];
    const sbit_dim *elems = sbit__facts_elems(&rw->facts, sbit__node_in(node, 1), &count);
    sbit_value_id id;
    if (elems == NULL || count > SBIT_MAX_RANK || data->rank < 0 ||
        sbit__const_in(rw->graph, node, 1) != NULL) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t axis = i + data->rank - count;
        target[i] = elems[i].value;
        if (!sbit__dim_known(elems[i])) {
            if (axis < 0 || !sbit__dim_equal(elems[i], data->dims[axis])) {
                return SBIT_OK;
            }
            target[i] = 1;
        }
    }
    SBIT__TRY(sbit__add_ints(rw->graph, "expand_shape", target, count, &id, error));
    SBIT__TRY(sbit_graph_set_node_input(rw->graph, node->id, 1, id, error));
    rw->changes++;
    return SBIT_OK;
}

/* Spares bodies without shape arithmetic the inference. */
static bool sbit__shapes_any(const sbit_graph *graph)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        const sbit_value_id out =
            node->output_count > 0 ? node->outputs[0] : sbit__node_in(node, 0);
        const sbit_dtype dtype =
            out.idx != 0 ? sbit_graph_value(graph, out)->type.dtype : SBIT_UNDEFINED;
        if (dtype == SBIT_I64 || dtype == SBIT_I32 || sbit__is_op(node, "Reshape")) {
            return true;
        }
    }
    return false;
}

static sbit_status sbit__shapes_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                    int64_t *changes, sbit_error *error)
{
    static const sbit__rule rules[] = {
        {NULL, sbit__shapes_fold_value},
        {"Reshape", sbit__shapes_reshape},
        {"Slice", sbit__shapes_slice},
        {"Expand", sbit__shapes_expand},
    };
    if (!sbit__shapes_any(graph)) {
        return SBIT_OK;
    }
    return sbit__apply_rules(graph, desc, rules, SBIT__COUNT_OF(rules), changes, error);
}

SBIT__FN const sbit_pass_row *sbit__pass_shape_folding(void)
{
    static const sbit_pass_row row = {
        {"shape_folding", "integers that follow from shapes become constants", 0, NULL, 0},
        false,
        sbit__shapes_run};
    return &row;
}
