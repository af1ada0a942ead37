/* follow.c: attributes and index inputs follow the new shapes. >>follow
 *
 * What says how many channels there are, or divides by it: group, scales of means of squares, num_groups and hidden_size, the shapes of Reshape,
 * Expand and Resize, sizes of Split, bounds of Slice, indices of Gather, amounts of Pad. Everything
 * else gets its shapes from its inputs.
 */
#include "../ops/window_private.h"
#include "../passes/passes_private.h"
#include "sparse_private.h"

#include <math.h> /* sqrt */

typedef struct sbit__follow {
    sbit_sparse *sparse;
    sbit_graph *graph;
    const sbit_node *node; /* of the graph that is cut */
    sbit__arena *arena;
} sbit__follow;

typedef sbit_status (*sbit__follow_fn)(const sbit__follow *f, sbit_error *error);

static const sbit__channel_labels *sbit__follow_in(const sbit__follow *f, size_t input)
{
    return &f->sparse->labeler.of[f->node->inputs[input].idx];
}

static const sbit__channel_labels *sbit__follow_out(const sbit__follow *f, size_t output)
{
    return &f->sparse->labeler.of[f->node->outputs[output].idx];
}

/* The axis of a value that loses indices; -1: none. */
static int32_t sbit__follow_axis(const sbit__follow *f, sbit_value_id id)
{
    const sbit__channel_labels *labels = &f->sparse->labeler.of[id.idx];
    return labels->form == SBIT__LABELS_AXIS && sbit__cut_touches(f->sparse, id, labels->axis)
               ? labels->axis
               : -1;
}

static sbit_status sbit__follow_int(const sbit__follow *f, const char *name, int64_t value,
                                    sbit_error *error)
{
    const sbit_attr attr = sbit__attr_int(name, value);
    return sbit_graph_set_attr(f->graph, f->node->id, &attr, error);
}

/* The integers of an attribute or a constant input, in the arena; *count -1: neither is there. */
static sbit_status sbit__follow_ints(const sbit__follow *f, const char *name, size_t input,
                                     int64_t **out, int64_t *count, sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(f->node, name);
    const sbit_tensor *tensor = input < f->node->input_count && f->node->inputs[input].idx != 0
                                    ? sbit__graph_constant(f->graph, f->node->inputs[input])
                                    : NULL;
    *count = attr != NULL ? (int64_t)attr->count : tensor != NULL ? sbit_tensor_count(tensor) : -1;
    *out = (int64_t *)sbit__arena_array(f->arena, (size_t)(*count > 0 ? *count : 0) + 1,
                                        sizeof(int64_t));
    if (*out == NULL) {
        return sbit__fail_oom(error, (size_t)*count * sizeof(int64_t));
    }
    for (int64_t i = 0; i < *count; i++) {
        (*out)[i] = attr != NULL ? attr->ints[i] : sbit__tensor_i64_at(tensor, i);
    }
    return SBIT_OK;
}

/* Writes them back to where they were, as the type they had. */
static sbit_status sbit__follow_set(const sbit__follow *f, const char *name, size_t input,
                                    const int64_t *values, int64_t count, sbit_error *error)
{
    if (sbit_node_attr(f->node, name) != NULL) {
        const sbit_attr attr = sbit__attr_ints(name, values, (size_t)count);
        return sbit_graph_set_attr(f->graph, f->node->id, &attr, error);
    }
    const bool there = input < f->node->input_count && f->node->inputs[input].idx != 0;
    const sbit_tensor *old = there ? sbit__graph_constant(f->graph, f->node->inputs[input]) : NULL;
    int64_t dims[1];
    sbit_tensor tensor;
    sbit_value_id id;
    dims[0] = count;
    SBIT__TRY(sbit_tensor_alloc(f->sparse->ctx, old != NULL ? old->dtype : SBIT_I64,
                                old != NULL && old->rank == 0 ? 0 : 1, dims, &tensor, error));
    for (int64_t i = 0; i < count; i++) {
        sbit__tensor_set_f64(&tensor, i, (double)values[i]);
    }
    const sbit_status status = sbit_graph_add_constant(f->graph, name, &tensor, &id, error);
    sbit_tensor_free(f->sparse->ctx, &tensor);
    SBIT__TRY(status);
    return sbit_graph_set_node_input(f->graph, f->node->id, input, id, error);
}

/* ---- counts */

static sbit_status sbit__follow_group(const sbit__follow *f, sbit_error *error)
{
    const int64_t groups = sbit_node_int(f->node, "group", 1);
    const sbit__channel_labels *x = sbit__follow_in(f, 0);
    const int64_t channels = x->dims[1], kept = sbit__cut_kept(f->sparse, f->node->inputs[0], 1);
    /* one input channel a group: groups go with their channels; else they all get smaller */
    return groups > 1 && groups == channels && kept != channels
               ? sbit__follow_int(f, "group", kept, error)
               : SBIT_OK;
}

static sbit_status sbit__follow_num_groups(const sbit__follow *f, sbit_error *error)
{
    const int64_t channels = sbit__follow_in(f, 0)->dims[1];
    const int64_t kept = sbit__cut_kept(f->sparse, f->node->inputs[0], 1);
    return kept == channels
               ? SBIT_OK
               : sbit__follow_int(f, "num_groups",
                                  sbit_node_int(f->node, "num_groups", 1) * kept / channels, error);
}

static sbit_status sbit__follow_hidden(const sbit__follow *f, sbit_error *error)
{
    const sbit_tensor *r = sbit__graph_constant(f->graph, f->node->inputs[2]);
    return r != NULL ? sbit__follow_int(f, "hidden_size", r->dims[2], error) : SBIT_OK;
}

/* ---- shapes */

/* A target shape: the number on the axis that lost indices becomes what is left. 0 and -1 stay. */
static sbit_status sbit__follow_target(const sbit__follow *f, const char *name, size_t input,
                                       sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->outputs[0]);
    const sbit__channel_labels *y = sbit__follow_out(f, 0);
    int64_t *shape = NULL, count = 0;
    SBIT__TRY(sbit__follow_ints(f, name, input, &shape, &count, error));
    const int64_t at = axis - (y->rank - count); /* of Expand: may be shorter */
    if (axis < 0 || count < 0 || at < 0 || shape[at] <= 0 || shape[at] == 1) {
        return SBIT_OK;
    }
    shape[at] = sbit__cut_kept(f->sparse, f->node->outputs[0], axis);
    return sbit__follow_set(f, name, input, shape, count, error);
}

/* Reshape's 0 copies the input's size at that place, which may not be what is left here. */
static sbit_status sbit__follow_reshape(const sbit__follow *f, sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->outputs[0]);
    const int32_t from = sbit__follow_axis(f, f->node->inputs[0]);
    int64_t *shape = NULL, count = 0;
    if (axis < 0 && from < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__follow_ints(f, "shape", 1, &shape, &count, error));
    for (int64_t i = 0; i < count; i++) {
        if (shape[i] == 0 && sbit_node_int(f->node, "allowzero", 0) == 0 &&
            (i == axis) != (i == from)) {
            shape[i] = i == axis ? sbit__cut_kept(f->sparse, f->node->outputs[0], axis)
                                 : sbit__follow_out(f, 0)->dims[i];
            SBIT__TRY(sbit__follow_set(f, "shape", 1, shape, count, error));
        }
    }
    return sbit__follow_target(f, "shape", 1, error);
}

/* A shape that is computed becomes Min(shape, [..., the channels that stay, ...]). */
static sbit_status sbit__follow_bound(const sbit__follow *f, int32_t axis, sbit_error *error)
{
    const sbit_type *shape = f->sparse->labeler.infer.types[f->node->inputs[1].idx];
    const sbit_node_id id = f->node->id;
    const int64_t count = shape->dims[0].value, at = axis - (sbit__follow_out(f, 0)->rank - count);
    int64_t *bounds = (int64_t *)sbit__arena_array(f->arena, (size_t)count + 1, sizeof *bounds);
    sbit_value_id inputs[2], bounded;
    sbit_node_desc desc;
    sbit_node_id made;
    sbit_type type = *shape;
    sbit_tensor tensor;
    if (at < 0) {
        return SBIT_OK;
    }
    if (bounds == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof *bounds);
    }
    for (int64_t i = 0; i < count; i++) {
        bounds[i] = i == at ? sbit__cut_kept(f->sparse, f->node->outputs[0], axis) : INT64_MAX;
    }
    memset(&tensor, 0, sizeof tensor);
    memset(&desc, 0, sizeof desc);
    tensor.dtype = SBIT_I64;
    tensor.rank = 1;
    tensor.dims[0] = count;
    tensor.data = bounds;
    inputs[0] = f->node->inputs[1];
    SBIT__TRY(sbit_graph_add_constant(f->graph, "bounds", &tensor, &inputs[1], error));
    SBIT__TRY(sbit_graph_add_value(f->graph, "bounded_shape", &type, &bounded, error));
    desc.op_type = "Min";
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = &bounded;
    desc.output_count = 1;
    desc.before = id;
    SBIT__TRY(sbit_graph_add_node(f->graph, &desc, &made, error));
    return sbit_graph_set_node_input(f->graph, id, 1, bounded, error);
}

static sbit_status sbit__follow_expand(const sbit__follow *f, sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->outputs[0]);
    return axis >= 0 && sbit__graph_constant(f->graph, f->node->inputs[1]) == NULL
               ? sbit__follow_bound(f, axis, error)
               : sbit__follow_target(f, "", 1, error);
}

/* Sizes of Resize: for all axes, or those of the attribute. */
static sbit_status sbit__follow_resize(const sbit__follow *f, sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->outputs[0]);
    const sbit_attr *axes = sbit_node_attr(f->node, "axes");
    int64_t *sizes = NULL, count = 0;
    SBIT__TRY(sbit__follow_ints(f, "", 3, &sizes, &count, error));
    for (int64_t i = 0; axis >= 0 && i < count; i++) {
        const int64_t at = axes != NULL && i < (int64_t)axes->count ? axes->ints[i] : i;
        if (at == axis || at == axis - sbit__follow_out(f, 0)->rank) {
            sizes[i] = sbit__cut_kept(f->sparse, f->node->outputs[0], axis);
            return sbit__follow_set(f, "", 3, sizes, count, error);
        }
    }
    return SBIT_OK;
}

/* ---- places */

static sbit_status sbit__follow_split(const sbit__follow *f, sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->inputs[0]);
    const sbit__channel_labels *x = sbit__follow_in(f, 0);
    int64_t along = sbit_node_int(f->node, "axis", 0);
    along += along < 0 ? x->rank : 0;
    if (axis < 0 || along != axis) {
        return SBIT_OK;
    }
    int64_t *sizes =
        (int64_t *)sbit__arena_array(f->arena, f->node->output_count + 1, sizeof *sizes);
    if (sizes == NULL) {
        return sbit__fail_oom(error, f->node->output_count * sizeof *sizes);
    }
    for (size_t i = 0; i < f->node->output_count; i++) {
        if (f->node->outputs[i].idx == 0) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, f->node->name,
                              "a Split with an omitted output cannot be cut");
        }
        sizes[i] = sbit__cut_kept(f->sparse, f->node->outputs[i], axis);
    }
    if (sbit_graph_opset(f->graph, "") < 13) {
        const sbit_attr attr = sbit__attr_ints("split", sizes, f->node->output_count);
        return sbit_graph_set_attr(f->graph, f->node->id, &attr, error);
    }
    sbit_graph_remove_attr(f->graph, f->node->id, "num_outputs");
    return sbit__follow_set(f, "split", 1, sizes, (int64_t)f->node->output_count, error);
}

/* starts and ends on the axis become places among what is left. */
static sbit_status sbit__follow_slice(const sbit__follow *f, sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->inputs[0]);
    const sbit__channel_labels *x = sbit__follow_in(f, 0);
    int64_t *starts = NULL, *ends = NULL, *axes = NULL, *steps = NULL, counts[4];
    bool *stays = NULL;
    if (axis < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__follow_ints(f, "starts", 1, &starts, &counts[0], error));
    SBIT__TRY(sbit__follow_ints(f, "ends", 2, &ends, &counts[1], error));
    SBIT__TRY(sbit__follow_ints(f, "axes", 3, &axes, &counts[2], error));
    SBIT__TRY(sbit__follow_ints(f, "steps", 4, &steps, &counts[3], error));
    SBIT__TRY(sbit__cut_stays(f->sparse, f->node->inputs[0], axis, f->arena, &stays, error));
    for (int64_t i = 0; i < counts[0]; i++) {
        const int64_t at = counts[2] > 0 ? axes[i] : i, n = x->dims[axis];
        int64_t first = 0, last = 0;
        if (at != axis && at != axis - x->rank) {
            continue;
        }
        if (counts[3] > 0 && steps[i] != 1) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, f->node->name,
                              "a Slice of channels in steps cannot be cut");
        }
        const int64_t begin = starts[i] < 0 ? starts[i] + n : starts[i];
        const int64_t end = ends[i] < 0 ? ends[i] + n : ends[i];
        for (int64_t k = 0; k < n; k++) {
            first += k < begin && stays[k] ? 1 : 0;
            last += k < end && stays[k] ? 1 : 0;
        }
        starts[i] = first;
        ends[i] = last;
        SBIT__TRY(sbit__follow_set(f, "starts", 1, starts, counts[0], error));
        return sbit__follow_set(f, "ends", 2, ends, counts[1], error);
    }
    return SBIT_OK;
}

static sbit_status sbit__follow_gather(const sbit__follow *f, sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->inputs[0]);
    const sbit__channel_labels *x = sbit__follow_in(f, 0);
    const sbit_tensor *index = sbit__graph_constant(f->graph, f->node->inputs[1]);
    int64_t along = sbit_node_int(f->node, "axis", 0), *places = NULL, count = 0, kept = 0;
    bool *stays = NULL;
    along += along < 0 ? x->rank : 0;
    if (axis < 0 || along != axis || index == NULL) {
        return SBIT_OK;
    }
    if (index->rank > 1) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, f->node->name,
                          "a Gather of channels with a table of indices cannot be cut");
    }
    SBIT__TRY(sbit__follow_ints(f, "", 1, &places, &count, error));
    SBIT__TRY(sbit__cut_stays(f->sparse, f->node->inputs[0], axis, f->arena, &stays, error));
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = places[i] < 0 ? places[i] + x->dims[axis] : places[i];
        int64_t to = 0;
        for (int64_t k = 0; k < from; k++) {
            to += stays[k] ? 1 : 0;
        }
        if (stays[from]) {
            places[kept++] = to;
        }
    }
    return sbit__follow_set(f, "", 1, places, kept, error);
}

/* Padded channels that are not left. pads: begins of all axes, then ends; or of input 3's axes. */
static sbit_status sbit__follow_pad(const sbit__follow *f, sbit_error *error)
{
    const int32_t axis = sbit__follow_axis(f, f->node->outputs[0]);
    const sbit__channel_labels *x = sbit__follow_in(f, 0), *y = sbit__follow_out(f, 0);
    int64_t *pads = NULL, *axes = NULL, count = 0, axis_count = 0, before = 0, after = 0;
    bool *stays = NULL;
    if (axis < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__follow_ints(f, "pads", 1, &pads, &count, error));
    SBIT__TRY(sbit__follow_ints(f, "", 3, &axes, &axis_count, error));
    SBIT__TRY(sbit__cut_stays(f->sparse, f->node->outputs[0], axis, f->arena, &stays, error));
    for (int64_t i = 0; i < count / 2; i++) {
        const int64_t at = axis_count > 0 ? axes[i] : i;
        if (at != axis && at != axis - x->rank) {
            continue;
        }
        for (int64_t k = 0; k < y->dims[axis]; k++) {
            before += k < pads[i] && stays[k] ? 1 : 0;
            after += k >= pads[i] + x->dims[axis] && stays[k] ? 1 : 0;
        }
        pads[i] = before;
        pads[i + count / 2] = after;
        return sbit__follow_set(f, "pads", 1, pads, count, error);
    }
    return SBIT_OK;
}

/* A mean of squares over C' of C channels, of which the others were 0, is C / C' times as large. */
static sbit_status sbit__follow_mean_square(const sbit__follow *f, sbit_error *error)
{
    const sbit__channel_labels *x = sbit__follow_in(f, 0);
    const int32_t axis = sbit__follow_axis(f, f->node->inputs[0]);
    if (axis < 0 || axis != x->rank - 1) {
        return SBIT_OK;
    }
    const double more =
        (double)x->dims[axis] / (double)sbit__cut_kept(f->sparse, f->node->inputs[0], axis);
    const sbit_attr attr = sbit__attr_float(
        "epsilon", (float)((double)sbit_node_float(f->node, "epsilon", 1e-5f) * more));
    const sbit_value_id id = f->node->inputs[1];
    sbit_tensor scale;
    SBIT__TRY(sbit_graph_set_attr(f->graph, f->node->id, &attr, error));
    SBIT__TRY(sbit__tensor_copy(sbit_graph_ctx(f->graph), &sbit_graph_value(f->graph, id)->constant,
                                &scale, error));
    for (int64_t i = 0; i < sbit_tensor_count(&scale); i++) {
        sbit__tensor_set_f64(&scale, i, sbit__tensor_f64_at(&scale, i) * sqrt(more));
    }
    const sbit_status status = sbit_graph_set_constant(f->graph, id, &scale, error);
    sbit_tensor_free(sbit_graph_ctx(f->graph), &scale);
    return status;
}

/* ---- table */

static const struct {
    const char *op_type;
    sbit__follow_fn follow;
} sbit__follow_table[] = {
    {"Conv", sbit__follow_group},
    {"ConvTranspose", sbit__follow_group},
    {"GroupNormalization", sbit__follow_num_groups},
    {"RMSNormalization", sbit__follow_mean_square},
    {"SimplifiedLayerNormalization", sbit__follow_mean_square},
    {"LSTM", sbit__follow_hidden},
    {"GRU", sbit__follow_hidden},
    {"RNN", sbit__follow_hidden},
    {"Reshape", sbit__follow_reshape},
    {"Expand", sbit__follow_expand},
    {"Resize", sbit__follow_resize},
    {"Split", sbit__follow_split},
    {"Slice", sbit__follow_slice},
    {"Gather", sbit__follow_gather},
    {"Pad", sbit__follow_pad},
};

SBIT__FN sbit_status sbit__cut_follow(sbit_sparse *sparse, sbit_graph *graph, sbit_node_id node,
                                      sbit__arena *arena, sbit_error *error)
{
    sbit__follow f;
    f.sparse = sparse;
    f.graph = graph;
    f.node = sbit_graph_node(graph, node);
    f.arena = arena;
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__follow_table); i++) {
        if (sbit__is_op(f.node, sbit__follow_table[i].op_type)) {
            return sbit__follow_table[i].follow(&f, error);
        }
    }
    return SBIT_OK;
}
