/* propagate.c: labels through every kind of row, node by node. >>labels-propagate
 *
 * Each node gives its outputs labels once; joining goes on until nothing changes, because a
 * constant that all meet as one channel may only be known as one after later nodes. Data-moving
 * rows are run, by themselves, on tensors of labels: what they do to data they do to labels.
 */
#include "../exec/exec_api.h"
#include "../ops/window_private.h"
#include "../passes/passes_private.h"
#include "sparse_private.h"

#include <stdio.h> /* snprintf */

#define SBIT__LABEL_MAX_CONSTANT ((int64_t)1 << 22) /* elements that get labels of their own */
#define SBIT__RUNTIME_PLACES "has a shape or places that are known only while running"
#define SBIT__LABEL_MAX_MOVED ((int64_t)1 << 27) /* positions of one value */

/* ---- the node in question */

static sbit__channel_labels *sbit__frame_in(const sbit__label_frame *frame, int32_t input)
{
    const bool there = input >= 0 && (size_t)input < frame->node->input_count &&
                       frame->node->inputs[input].idx != 0;
    return there ? &frame->labeler->of[frame->node->inputs[input].idx] : NULL;
}

static sbit__label_frame *sbit__frame_of(const sbit_channel_call *call)
{
    return (sbit__label_frame *)call->user;
}

static sbit_status sbit__frame_arrays(sbit__label_frame *frame, sbit_error *error)
{
    sbit__arena *arena = frame->labeler->arena;
    const size_t in = frame->node->input_count + 1, out = frame->node->output_count + 1;
    frame->in_type = (const sbit_type **)sbit__arena_array(arena, in, sizeof(void *));
    frame->out_type = (sbit_type **)sbit__arena_array(arena, out, sizeof(void *));
    frame->in = (const sbit_tensor **)sbit__arena_array(arena, in, sizeof(void *));
    frame->in_elems = (const sbit_dim **)sbit__arena_array(arena, in, sizeof(void *));
    frame->in_elem_counts = (int64_t *)sbit__arena_array(arena, in, sizeof(int64_t));
    return frame->in_type == NULL || frame->out_type == NULL || frame->in == NULL ||
                   frame->in_elems == NULL || frame->in_elem_counts == NULL
               ? sbit__fail_oom(error, in * sizeof(void *))
               : SBIT_OK;
}

/* *ready false: some shape is not known, or the row is not. */
static sbit_status sbit__frame_open(sbit__labeler *labeler, sbit_node_id id,
                                    sbit__label_frame *frame, bool *ready, sbit_error *error)
{
    bool ok = true;
    memset(frame, 0, sizeof *frame);
    frame->labeler = labeler;
    frame->node = sbit_graph_node(labeler->graph, id);
    SBIT__TRY(sbit__frame_arrays(frame, error));
    sbit_op_call *op = &frame->op;
    op->ctx = labeler->ctx;
    op->graph = labeler->graph;
    op->node = frame->node;
    op->row = sbit__op_row(labeler->graph, frame->node, &op->opset);
    op->input_count = (int32_t)frame->node->input_count;
    op->output_count = (int32_t)frame->node->output_count;
    *ready = op->row != NULL;
    for (size_t i = 0; i < frame->node->input_count; i++) {
        const uint32_t idx = frame->node->inputs[i].idx;
        if (idx != 0) {
            frame->in_type[i] = labeler->infer.types[idx];
            frame->in[i] = sbit__infer_known(&labeler->infer, frame->node->inputs[i], &ok);
            frame->in_elems[i] = labeler->infer.elems[idx];
            frame->in_elem_counts[i] = labeler->infer.elem_counts[idx];
            *ready = *ready && sbit__type_static(frame->in_type[i]);
        }
    }
    for (size_t i = 0; i < frame->node->output_count; i++) {
        const uint32_t idx = frame->node->outputs[i].idx;
        frame->out_type[i] = idx != 0 ? labeler->infer.types[idx] : NULL;
        *ready = *ready && (idx == 0 || sbit__type_static(frame->out_type[i]));
    }
    op->in_type = frame->in_type;
    op->out_type = frame->out_type;
    op->in = frame->in;
    op->in_elems = frame->in_elems;
    op->in_elem_count = frame->in_elem_counts;
    return ok ? SBIT_OK : sbit__fail_oom(error, sizeof(sbit_tensor));
}

/* ---- constants */

/* A constant among activations: each element may become part of a channel. */
static sbit_status sbit__label_constant(sbit__labeler *labeler, sbit_value_id id, sbit_error *error)
{
    sbit__channel_labels *labels = &labeler->of[id.idx];
    const sbit_value_info *info = sbit_graph_value(labeler->graph, id);
    const int64_t count = info->is_constant ? sbit_tensor_count(&info->constant) : 0;
    int32_t axis = 0, first = 0, longer = 0;
    if (!info->is_constant || labels->form != SBIT__LABELS_NONE || count <= 1) {
        return SBIT_OK;
    }
    const sbit_type type = sbit__type_of_tensor(&info->constant);
    for (int32_t i = 0; i < type.rank; i++) {
        axis = type.dims[i].value > 1 ? i : axis;
        longer += type.dims[i].value > 1 ? 1 : 0;
    }
    if (count > SBIT__LABEL_MAX_CONSTANT) {
        SBIT__TRY(
            sbit__channel_labels_make(labeler, &type, SBIT__LABELS_UNIFORM, 0, labels, error));
        return sbit__label_new(labeler, 1, SBIT__LABEL_FIXED, "a large constant is added to it",
                               labels->at, error);
    }
    SBIT__TRY(sbit__channel_labels_make(
        labeler, &type, longer == 1 ? SBIT__LABELS_AXIS : SBIT__LABELS_FULL, axis, labels, error));
    SBIT__TRY(sbit__label_new(labeler, count, SBIT__LABEL_FREE, NULL, &first, error));
    for (int64_t i = 0; i < count; i++) {
        labels->at[i] = first + (int32_t)i;
    }
    return SBIT_OK;
}

/* ---- what a row's label() may call */

static bool sbit__call_is_constant(const sbit_channel_call *call, int32_t input)
{
    const sbit__label_frame *frame = sbit__frame_of(call);
    return sbit__frame_in(frame, input) != NULL &&
           sbit_graph_value(frame->labeler->graph, frame->node->inputs[input])->is_constant;
}

/* The labels of a constant's axis: found, or made. */
static sbit_status sbit__label_member(sbit__labeler *labeler, sbit_node_id node, sbit_value_id id,
                                      int32_t axis, int64_t parts, sbit_channel_role role,
                                      const int32_t **out, sbit_error *error)
{
    const sbit_tensor *constant = &sbit_graph_value(labeler->graph, id)->constant;
    int32_t first = 0;
    for (size_t i = 0; i < labeler->member_count; i++) {
        sbit__member *member = &labeler->members[i];
        if (member->value.idx == id.idx && member->axis == axis && member->parts == parts) {
            member->roles |= 1u << (uint32_t)role;
            *out = member->labels;
            return SBIT_OK;
        }
    }
    SBIT__TRY(sbit__grow(sbit_ctx_allocator(labeler->ctx), (void **)&labeler->members,
                         &labeler->member_capacity, labeler->member_count + 1,
                         sizeof *labeler->members, error));
    sbit__member *member = &labeler->members[labeler->member_count];
    memset(member, 0, sizeof *member);
    member->value = id;
    member->node = node;
    member->axis = axis;
    member->parts = parts;
    member->count = parts * constant->dims[axis];
    member->roles = 1u << (uint32_t)role;
    member->labels =
        (int32_t *)sbit__arena_array(labeler->arena, (size_t)member->count + 1, sizeof(int32_t));
    if (member->labels == NULL) {
        return sbit__fail_oom(error, (size_t)member->count * sizeof(int32_t));
    }
    SBIT__TRY(sbit__label_new(
        labeler, member->count,
        role == SBIT_ROLE_ROWS || role == SBIT_ROLE_FILTER ? 0u : (uint32_t)SBIT__LABEL_FREE, NULL,
        &first, error));
    for (int64_t i = 0; i < member->count; i++) {
        member->labels[i] = first + (int32_t)i;
    }
    labeler->member_count++;
    *out = member->labels;
    return SBIT_OK;
}

static sbit_status sbit__call_labels(const sbit_channel_call *call, int32_t input, int32_t axis,
                                     int64_t parts, sbit_channel_role role, const int32_t **out,
                                     sbit_error *error)
{
    sbit__label_frame *frame = sbit__frame_of(call);
    const sbit__channel_labels *labels = sbit__frame_in(frame, input);
    if (labels == NULL || axis < 0 || axis >= frame->in_type[input]->rank) {
        return sbit_op_fail(&frame->op, SBIT_ERR_INVALID_ARGUMENT, error,
                            "label() asks for axis %d of input %d", (int)axis, (int)input);
    }
    if (sbit__call_is_constant(call, input)) {
        return sbit__label_member(frame->labeler, frame->node->id, frame->node->inputs[input], axis,
                                  parts, role, out, error);
    }
    const size_t n = (size_t)frame->in_type[input]->dims[axis].value;
    int32_t *at = (int32_t *)sbit__arena_array(frame->labeler->arena, n + 1, sizeof *at);
    if (at == NULL) {
        return sbit__fail_oom(error, n * sizeof *at);
    }
    sbit__channel_labels_slices(frame->labeler, labels, axis, at);
    *out = at;
    return SBIT_OK;
}

static sbit_status sbit__call_produce(const sbit_channel_call *call, int32_t output, int32_t axis,
                                      const int32_t *labels, sbit_error *error)
{
    sbit__label_frame *frame = sbit__frame_of(call);
    if ((size_t)output >= frame->node->output_count || frame->node->outputs[output].idx == 0) {
        return SBIT_OK;
    }
    sbit__channel_labels *out = &frame->labeler->of[frame->node->outputs[output].idx];
    SBIT__TRY(sbit__channel_labels_make(frame->labeler, frame->out_type[output], SBIT__LABELS_AXIS,
                                        axis, out, error));
    if (out->dims[axis] > 0) {
        memcpy(out->at, labels, (size_t)out->dims[axis] * sizeof *labels);
    }
    return SBIT_OK;
}

static void sbit__call_join(const sbit_channel_call *call, int32_t a, int32_t b)
{
    sbit__label_join(sbit__frame_of(call)->labeler, a, b);
}

static void sbit__call_fix(const sbit_channel_call *call, int32_t label, const char *reason)
{
    sbit__label_frame *frame = sbit__frame_of(call);
    sbit__label_fix(frame->labeler, label,
                    sbit__label_reason(frame->labeler, frame->node->id, reason));
}

static sbit_status sbit__call_balance(const sbit_channel_call *call, const int32_t *labels,
                                      int64_t count, int64_t blocks, sbit_error *error)
{
    sbit__labeler *labeler = sbit__frame_of(call)->labeler;
    int32_t *copy = (int32_t *)sbit__arena_array(labeler->arena, (size_t)count + 1, sizeof *copy);
    SBIT__TRY(sbit__grow(sbit_ctx_allocator(labeler->ctx), (void **)&labeler->balances,
                         &labeler->balance_capacity, labeler->balance_count + 1,
                         sizeof *labeler->balances, error));
    if (copy == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof *copy);
    }
    memcpy(copy, labels, (size_t)count * sizeof *copy);
    sbit__balance *balance = &labeler->balances[labeler->balance_count++];
    balance->count = count;
    balance->blocks = blocks;
    balance->labels = copy;
    return SBIT_OK;
}

static sbit_status sbit__frame_stop(sbit__label_frame *frame, const char *reason, sbit_error *error)
{
    sbit__labeler *labeler = frame->labeler;
    const char *text = sbit__label_reason(labeler, frame->node->id, reason);
    for (size_t i = 0; i < frame->node->input_count; i++) {
        if (frame->node->inputs[i].idx != 0) {
            sbit__channel_labels_fix(labeler, &labeler->of[frame->node->inputs[i].idx], text);
        }
    }
    for (size_t i = 0; i < frame->node->output_count; i++) {
        const uint32_t idx = frame->node->outputs[i].idx;
        if (idx != 0) {
            SBIT__TRY(sbit__channel_labels_make(labeler, labeler->infer.types[idx],
                                                SBIT__LABELS_UNIFORM, 0, &labeler->of[idx], error));
            SBIT__TRY(
                sbit__label_new(labeler, 1, SBIT__LABEL_FIXED, text, labeler->of[idx].at, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__call_stop(const sbit_channel_call *call, const char *reason,
                                   sbit_error *error)
{
    return sbit__frame_stop(sbit__frame_of(call), reason, error);
}

/* ---- going through, but for the axes that are mixed */

/* The output's axis for an axis of the input that is not mixed; -1: shapes do not fit. */
static int32_t sbit__pass_axis(const sbit__channel_labels *x, const sbit_type *y, uint32_t mixed,
                               int32_t axis)
{
    int32_t removed = 0, before = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        removed += (mixed >> (uint32_t)i & 1u) != 0 ? 1 : 0;
        before += (mixed >> (uint32_t)i & 1u) != 0 && i < axis ? 1 : 0;
    }
    const int32_t to = y->rank == x->rank             ? axis
                       : y->rank == x->rank - removed ? axis - before
                                                      : -1;
    return to >= 0 && y->dims[to].value == x->dims[axis] ? to : -1;
}

/* Joins what is mixed; at[m] gets the label of index m of the axes that are not mixed. */
static void sbit__pass_mix(sbit__labeler *labeler, const sbit__channel_labels *x, uint32_t mixed,
                           int32_t *at)
{
    const int64_t count = sbit__channel_labels_count(x);
    for (int64_t p = 0; p < count; p++) {
        int64_t rest = p, index = 0, stride = 1;
        for (int32_t i = x->rank; i-- > 0;) {
            if ((mixed >> (uint32_t)i & 1u) == 0) {
                index += rest % x->dims[i] * stride;
                stride *= x->dims[i];
            }
            rest /= x->dims[i];
        }
        sbit__label_join(labeler, at[index], x->at[p]);
        at[index] = at[index] != 0 ? at[index] : x->at[p];
    }
}

/* x has a label for each position: the output gets those of the axes that are not mixed. */
static sbit_status sbit__pass_full(sbit__label_frame *frame, const sbit__channel_labels *x,
                                   uint32_t mixed, sbit__channel_labels *out, sbit_error *error)
{
    sbit__labeler *labeler = frame->labeler;
    const bool keeps = out->rank == x->rank;
    int32_t *at = (int32_t *)sbit__arena_array(
        labeler->arena, (size_t)sbit__channel_labels_count(x) + 1, sizeof *at);
    if (at == NULL) {
        return sbit__fail_oom(error, (size_t)sbit__channel_labels_count(x) * sizeof *at);
    }
    sbit__pass_mix(labeler, x, mixed, at);
    for (int64_t p = 0; p < sbit__channel_labels_count(out); p++) {
        int64_t rest = p, index = 0, stride = 1;
        for (int32_t i = out->rank; i-- > 0;) {
            if (!keeps || (mixed >> (uint32_t)i & 1u) == 0) {
                index += rest % out->dims[i] * stride;
                stride *= out->dims[i];
            }
            rest /= out->dims[i];
        }
        out->at[p] = at[index];
    }
    sbit__channel_labels_settle(labeler, out);
    return SBIT_OK;
}

static sbit_status sbit__frame_pass(sbit__label_frame *frame, uint32_t mixed, const char *reason,
                                    sbit_error *error)
{
    sbit__labeler *labeler = frame->labeler;
    const sbit__channel_labels *x = sbit__frame_in(frame, 0);
    const sbit_type *type = frame->out_type[0];
    sbit__channel_labels *out = &labeler->of[frame->node->outputs[0].idx];
    if (x->form == SBIT__LABELS_AXIS && (mixed >> (uint32_t)x->axis & 1u) == 0) {
        const int32_t axis = sbit__pass_axis(x, type, mixed, x->axis);
        if (axis < 0) {
            return sbit__frame_stop(frame, "changes the axis of the channels", error);
        }
        SBIT__TRY(sbit__channel_labels_make(labeler, type, SBIT__LABELS_AXIS, axis, out, error));
        memcpy(out->at, x->at, (size_t)x->dims[x->axis] * sizeof *out->at);
        return SBIT_OK;
    }
    if (x->form == SBIT__LABELS_FULL) {
        for (int32_t i = 0; i < x->rank; i++) {
            if ((mixed >> (uint32_t)i & 1u) == 0 && sbit__pass_axis(x, type, mixed, i) < 0) {
                return sbit__frame_stop(frame, "changes the axis of the channels", error);
            }
        }
        SBIT__TRY(sbit__channel_labels_make(labeler, type, SBIT__LABELS_FULL, 0, out, error));
        return sbit__pass_full(frame, x, mixed, out, error);
    }
    if (x->form == SBIT__LABELS_AXIS) { /* along a mixed axis */
        sbit__channel_labels_fix(labeler, x, sbit__label_reason(labeler, frame->node->id, reason));
        if (type->rank == x->rank && type->dims[x->axis].value == x->dims[x->axis]) {
            SBIT__TRY(
                sbit__channel_labels_make(labeler, type, SBIT__LABELS_AXIS, x->axis, out, error));
            memcpy(out->at, x->at, (size_t)x->dims[x->axis] * sizeof *out->at);
            return SBIT_OK;
        }
    }
    SBIT__TRY(sbit__channel_labels_make(
        labeler, type, x->form == SBIT__LABELS_NONE ? SBIT__LABELS_NONE : SBIT__LABELS_UNIFORM, 0,
        out, error));
    if (out->form == SBIT__LABELS_UNIFORM) {
        out->at[0] = x->at[0];
    }
    return SBIT_OK;
}

static sbit_status sbit__call_pass(const sbit_channel_call *call, uint32_t mixed,
                                   const char *reason, sbit_error *error)
{
    return sbit__frame_pass(sbit__frame_of(call), mixed, reason, error);
}

static sbit_status sbit__call_contract(const sbit_channel_call *call, sbit_error *error)
{
    return sbit__label_contract(sbit__frame_of(call), error);
}

/* ---- data-moving rows: run on labels */

/* A graph with the one node in it, its data inputs fed with labels. */
typedef struct sbit__mover {
    sbit__label_frame *frame;
    uint32_t inputs; /* that carry labels */
    sbit_dtype dtype;
    sbit_graph *graph;
    sbit_session *session;
    sbit_tensor *fed; /* by input */
} sbit__mover;

static bool sbit__mover_moves(const sbit__mover *mover, size_t input)
{
    return mover->inputs == ~0u || (input < 32 && (mover->inputs >> input & 1u) != 0);
}

static sbit_status sbit__mover_feed(sbit__mover *mover, size_t input, sbit_value_id *id,
                                    sbit_error *error)
{
    sbit__label_frame *frame = mover->frame;
    const sbit__channel_labels *labels = sbit__frame_in(frame, (int32_t)input);
    sbit_type type = *frame->in_type[input];
    int64_t dims[SBIT_MAX_RANK];
    char name[32];
    type.dtype = mover->dtype;
    for (int32_t i = 0; i < type.rank; i++) {
        dims[i] = type.dims[i].value;
    }
    sbit_tensor *tensor = &mover->fed[input];
    SBIT__TRY(sbit_tensor_alloc(frame->labeler->ctx, mover->dtype, type.rank, dims, tensor, error));
    const int64_t count = sbit_tensor_count(tensor);
    for (int64_t p = 0; p < count; p++) {
        const int32_t label =
            labels->form == SBIT__LABELS_NONE ? 0 : sbit__channel_labels_at(labels, p);
        if (mover->dtype == SBIT_F32) {
            ((float *)tensor->data)[p] = (float)label;
        } else {
            ((int32_t *)tensor->data)[p] = label;
        }
    }
    snprintf(name, sizeof name, "x%u", (unsigned)input);
    SBIT__TRY(sbit_graph_add_value(mover->graph, name, &type, id, error));
    return sbit_graph_set_input(mover->graph, *id, true, error);
}

static sbit_status sbit__mover_node(sbit__mover *mover, sbit_error *error)
{
    sbit__label_frame *frame = mover->frame;
    const sbit_node *node = frame->node;
    sbit_value_id *in = (sbit_value_id *)sbit__arena_array(
        frame->labeler->arena, node->input_count + node->output_count + 1, sizeof *in);
    sbit_value_id *out = in + node->input_count;
    sbit_node_desc desc;
    sbit_node_id id;
    if (in == NULL) {
        return sbit__fail_oom(error, node->input_count * sizeof *in);
    }
    for (size_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i].idx == 0) {
            continue;
        }
        if (sbit__mover_moves(mover, i)) {
            SBIT__TRY(sbit__mover_feed(mover, i, &in[i], error));
        } else if (frame->in[i]->dtype == SBIT_I64 || frame->in[i]->dtype == SBIT_I32) {
            SBIT__TRY(sbit_graph_add_constant(mover->graph, "c", frame->in[i], &in[i], error));
        } /* else: what Pad pads with; left out it is 0, which is no label */
    }
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0) {
            sbit_type type = sbit__type_unknown();
            SBIT__TRY(sbit_graph_add_value(mover->graph, "y", &type, &out[i], error));
        }
    }
    memset(&desc, 0, sizeof desc);
    desc.op_type = node->op_type;
    desc.domain = node->domain;
    desc.inputs = in;
    desc.input_count = node->input_count;
    while (desc.input_count > 0 && in[desc.input_count - 1].idx == 0) {
        desc.input_count--;
    }
    desc.outputs = out;
    desc.output_count = node->output_count;
    desc.attrs = node->attrs;
    desc.attr_count = node->attr_count;
    SBIT__TRY(sbit_graph_add_node(mover->graph, &desc, &id, error));
    for (size_t i = 0; i < node->output_count; i++) {
        if (out[i].idx != 0) {
            SBIT__TRY(sbit_graph_add_output(mover->graph, out[i], error));
        }
    }
    return SBIT_OK;
}

/* What the row puts where it has nothing to move (Pad) may become channels of whatever it is added
 * to: along the axis of the labels each index gets one. */
static sbit_status sbit__mover_fill(sbit__labeler *labeler, const sbit__channel_labels *x,
                                    sbit__channel_labels *out, sbit_error *error)
{
    if (x->form != SBIT__LABELS_AXIS || out->rank != x->rank ||
        out->dims[x->axis] <= x->dims[x->axis]) {
        return SBIT_OK;
    }
    const int64_t inner = sbit__channel_labels_inner(out, x->axis), n = out->dims[x->axis];
    for (int64_t i = 0; i < n; i++) {
        int32_t label = 0;
        bool empty = true;
        for (int64_t p = 0; empty && p < sbit__channel_labels_count(out); p++) {
            empty = p / inner % n != i || out->at[p] == 0;
        }
        if (!empty) {
            continue;
        }
        SBIT__TRY(sbit__label_new(labeler, 1, SBIT__LABEL_FREE, NULL, &label, error));
        for (int64_t p = 0; p < sbit__channel_labels_count(out); p++) {
            out->at[p] = p / inner % n == i ? label : out->at[p];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__mover_take(sbit__mover *mover, sbit_error *error)
{
    sbit__label_frame *frame = mover->frame;
    size_t result = 0;
    for (size_t i = 0; i < frame->node->output_count; i++) {
        const uint32_t idx = frame->node->outputs[i].idx;
        if (idx == 0) {
            continue;
        }
        sbit__channel_labels *out = &frame->labeler->of[idx];
        const sbit_tensor *y = &sbit_session_output(mover->session, result++)->tensor;
        SBIT__TRY(sbit__channel_labels_make(frame->labeler, frame->out_type[i], SBIT__LABELS_FULL,
                                            0, out, error));
        if (sbit_tensor_count(y) != sbit__channel_labels_count(out)) {
            return sbit_op_fail(&frame->op, SBIT_ERR_SHAPE, error,
                                "it gives labels another shape than data");
        }
        for (int64_t p = 0; p < sbit_tensor_count(y); p++) {
            out->at[p] = mover->dtype == SBIT_F32 ? (int32_t)((const float *)y->data)[p]
                                                  : ((const int32_t *)y->data)[p];
        }
        SBIT__TRY(sbit__mover_fill(frame->labeler, sbit__frame_in(frame, 0), out, error));
        sbit__channel_labels_settle(frame->labeler, out);
    }
    return SBIT_OK;
}

static sbit_status sbit__mover_run(sbit__mover *mover, sbit_error *error)
{
    sbit__label_frame *frame = mover->frame;
    const int64_t opset = sbit_graph_opset(frame->labeler->graph, "");
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.disable_fusion = true;
    SBIT__TRY(sbit_graph_create(frame->labeler->ctx, opset, &mover->graph, error));
    if (frame->node->domain[0] != '\0') {
        SBIT__TRY(sbit_graph_set_opset(mover->graph, frame->node->domain, frame->op.opset, error));
    }
    SBIT__TRY(sbit__mover_node(mover, error));
    SBIT__TRY(sbit_session_create(mover->graph, &desc, &mover->session, error));
    for (size_t i = 0; i < sbit_session_input_count(mover->session); i++) {
        const char *name = sbit_session_input_info(mover->session, i)->name;
        int64_t input = 0;
        if (sbit__parse_i64(name + 1, &input)) {
            SBIT__TRY(sbit_session_set_input(mover->session, name, &mover->fed[input], error));
        }
    }
    SBIT__TRY(sbit_session_run(mover->session, error));
    return sbit__mover_take(mover, error);
}

/* Shapes and places that come from the inputs' shapes are numbers now, but no constants that could
 * be changed: what such a node moves stays whole, unless something else says so first. */
static bool sbit__mover_computes(const sbit__mover *mover)
{
    const sbit__label_frame *frame = mover->frame;
    if (frame->node->domain[0] == '\0' && sbit__streq(frame->node->op_type, "Expand") &&
        sbit_graph_opset(frame->labeler->graph, "") >= 12) {
        return false; /* a computed shape is bounded when channels go: sbit__follow_expand */
    }
    for (size_t i = 0; i < frame->node->input_count; i++) {
        if (frame->node->inputs[i].idx != 0 && !sbit__mover_moves(mover, i) &&
            !sbit_graph_value(frame->labeler->graph, frame->node->inputs[i])->is_constant) {
            return true;
        }
    }
    return false;
}

/* Why the row cannot be run on labels; NULL: it can. */
static const char *sbit__mover_refuses(const sbit__mover *mover)
{
    const sbit__label_frame *frame = mover->frame;
    for (size_t i = 0; i < frame->node->input_count; i++) {
        const sbit__channel_labels *labels = sbit__frame_in(frame, (int32_t)i);
        if (labels == NULL) {
            continue;
        }
        if (sbit__mover_moves(mover, i)) {
            if (sbit__type_size(frame->in_type[i]) > SBIT__LABEL_MAX_MOVED) {
                return "moves more than can be followed";
            }
        } else if (frame->in[i] == NULL) {
            return SBIT__RUNTIME_PLACES;
        }
    }
    if (frame->op.row->run == NULL ||
        (frame->op.row->types & (SBIT_T(SBIT_I32) | SBIT_T(SBIT_F32))) == 0) {
        return "cannot be run on labels";
    }
    return NULL;
}

/* Pad beside the axis of the channels, in front of many convolutions: labels stay, nothing is moved. */
static bool sbit__frame_only_pads(const sbit__label_frame *frame)
{
    const sbit__channel_labels *x = sbit__frame_in(frame, 0);
    if (!sbit__is_op(frame->node, "Pad") || x == NULL || x->form != SBIT__LABELS_AXIS ||
        !sbit__pads_spare(&frame->op, x->rank, x->axis)) {
        return false;
    }
    for (int64_t i = 1; i < x->dims[x->axis]; i++) {
        if (sbit__label_root(frame->labeler, x->at[i]) != sbit__label_root(frame->labeler, x->at[0])) {
            return true;
        }
    }
    return false;
}

static sbit_status sbit__frame_moves(sbit__label_frame *frame, uint32_t inputs, sbit_error *error)
{
    sbit__mover mover;
    memset(&mover, 0, sizeof mover);
    mover.frame = frame;
    mover.inputs = inputs;
    const char *refuses = sbit__mover_refuses(&mover);
    if (refuses != NULL) {
        return sbit__frame_stop(frame, refuses, error);
    }
    if (sbit__mover_computes(&mover)) {
        SBIT__TRY(sbit__grow(sbit_ctx_allocator(frame->labeler->ctx),
                             (void **)&frame->labeler->computed, &frame->labeler->computed_capacity,
                             frame->labeler->computed_count + 1, sizeof *frame->labeler->computed,
                             error));
        frame->labeler->computed[frame->labeler->computed_count++] = frame->node->id;
    }
    if (sbit__frame_only_pads(frame)) {
        const sbit__channel_labels *x = sbit__frame_in(frame, 0);
        sbit__channel_labels *y = &frame->labeler->of[frame->node->outputs[0].idx];
        SBIT__TRY(sbit__channel_labels_make(frame->labeler, frame->out_type[0], SBIT__LABELS_AXIS, x->axis, y, error));
        memcpy(y->at, x->at, (size_t)x->dims[x->axis] * sizeof *y->at);
        return SBIT_OK;
    }
    for (size_t i = 0; i < frame->node->input_count; i++) {
        if (sbit__mover_moves(&mover, i) && frame->node->inputs[i].idx != 0) {
            SBIT__TRY(sbit__label_constant(frame->labeler, frame->node->inputs[i], error));
        }
    }
    mover.dtype = (frame->op.row->types & SBIT_T(SBIT_I32)) != 0 ? SBIT_I32 : SBIT_F32;
    mover.fed = (sbit_tensor *)sbit__arena_array(frame->labeler->arena,
                                                 frame->node->input_count + 1, sizeof *mover.fed);
    sbit_status status = mover.fed != NULL
                             ? sbit__mover_run(&mover, error)
                             : sbit__fail_oom(error, frame->node->input_count * sizeof *mover.fed);
    for (size_t i = 0; mover.fed != NULL && i < frame->node->input_count; i++) {
        sbit_tensor_free(frame->labeler->ctx, &mover.fed[i]);
    }
    sbit_session_destroy(mover.session);
    sbit_graph_destroy(mover.graph);
    return status;
}

static sbit_status sbit__call_moves(const sbit_channel_call *call, sbit_error *error)
{
    sbit__label_frame *frame = sbit__frame_of(call);
    return sbit__frame_moves(frame, frame->op.row->channel->inputs, error);
}

/* ---- the kinds */

static void sbit__frame_call(sbit__label_frame *frame, sbit_channel_call *call)
{
    call->op = &frame->op;
    call->is_constant = sbit__call_is_constant;
    call->inexact = frame->labeler->inexact;
    call->labels = sbit__call_labels;
    call->produce = sbit__call_produce;
    call->join = sbit__call_join;
    call->fix = sbit__call_fix;
    call->balance = sbit__call_balance;
    call->pass = sbit__call_pass;
    call->contract = sbit__call_contract;
    call->moves = sbit__call_moves;
    call->stop = sbit__call_stop;
    call->user = frame;
}

static sbit_status sbit__frame_per_channel(sbit__label_frame *frame, sbit_error *error)
{
    const sbit_op_channel *channel = frame->op.row->channel;
    const int64_t channels = frame->in_type[0]->rank > 1 ? frame->in_type[0]->dims[1].value : 0;
    const int32_t *x = NULL;
    sbit_channel_call call;
    sbit__frame_call(frame, &call);
    for (int32_t i = 1; channels > 0 && i < frame->op.input_count; i++) {
        if ((channel->params >> (uint32_t)i & 1u) != 0 && !sbit__call_is_constant(&call, i)) {
            return sbit__frame_stop(frame, "has parameters that are computed", error);
        }
    }
    if (channels == 0 || (frame->node->output_count > 1 && frame->node->outputs[1].idx != 0)) {
        return sbit__frame_stop(frame, "computes statistics", error);
    }
    SBIT__TRY(sbit__call_labels(&call, 0, 1, 1, SBIT_ROLE_PARAM, &x, error));
    for (int32_t i = 1; i < frame->op.input_count; i++) {
        const uint32_t bit = 1u << (uint32_t)i;
        const int32_t *param = NULL;
        if ((channel->params & bit) == 0) {
            continue;
        }
        SBIT__TRY(sbit__call_labels(&call, i, 0, 1,
                                    (channel->scales & bit) != 0   ? SBIT_ROLE_SCALE
                                    : (channel->biases & bit) != 0 ? SBIT_ROLE_BIAS
                                                                   : SBIT_ROLE_PARAM,
                                    &param, error));
        for (int64_t c = 0; c < channels; c++) {
            sbit__label_join(frame->labeler, x[c], param[c]);
        }
    }
    return sbit__call_produce(&call, 0, 1, x, error);
}

/* Operators from before NumPy's broadcasting line up their inputs by attributes. */
static bool sbit__frame_aligns(const sbit__label_frame *frame)
{
    return sbit_node_int(frame->node, "broadcast", 0) != 0 ||
           (sbit__streq(frame->node->op_type, "PRelu") && frame->op.row->since_version < 7 &&
            sbit__type_size(frame->in_type[1]) > 1);
}

static sbit_status sbit__frame_elementwise(sbit__label_frame *frame, bool first, bool last,
                                           sbit_error *error)
{
    sbit__labeler *labeler = frame->labeler;
    const uint32_t inputs = frame->op.row->channel->inputs;
    if (first && sbit__frame_aligns(frame)) {
        return sbit__frame_stop(frame, "broadcasts in the way of old opsets", error);
    }
    for (size_t i = 0; first && i < frame->node->input_count; i++) {
        if (frame->node->inputs[i].idx != 0 && (inputs == ~0u || (i < 32 && (inputs >> i & 1u)))) {
            SBIT__TRY(sbit__label_constant(labeler, frame->node->inputs[i], error));
        }
    }
    SBIT__TRY(sbit__label_elementwise(frame, inputs, first, last, error));
    if (first) {
        SBIT__TRY(sbit__grow(sbit_ctx_allocator(labeler->ctx), (void **)&labeler->elementwise,
                             &labeler->elementwise_capacity, labeler->elementwise_count + 1,
                             sizeof *labeler->elementwise, error));
        labeler->elementwise[labeler->elementwise_count++] = frame->node->id;
    }
    return SBIT_OK;
}

/* A shape is read: labels along an axis whose size someone may use cannot go. */
static bool sbit__shape_is_harmless(const sbit__label_frame *frame)
{
    const sbit__channel_labels *x = sbit__frame_in(frame, 0);
    int64_t begin = sbit_node_int(frame->node, "start", 0);
    int64_t end = sbit_node_int(frame->node, "end", INT64_MAX);
    if (x->form != SBIT__LABELS_AXIS || sbit__streq(frame->node->op_type, "Size")) {
        return x->form == SBIT__LABELS_NONE;
    }
    begin += begin < 0 ? x->rank : 0;
    end += end < 0 ? x->rank : 0;
    return x->axis < begin || x->axis >= end;
}

static sbit_status sbit__frame_kind(sbit__label_frame *frame, sbit_error *error)
{
    const sbit_op_channel *channel = frame->op.row->channel;
    sbit_channel_call call;
    if ((frame->op.row->flags & SBIT_OP_SHAPE_ONLY) != 0 && sbit__shape_is_harmless(frame)) {
        return SBIT_OK;
    }
    switch (channel != NULL ? channel->kind : SBIT_CHANNEL_STOPS) {
    case SBIT_CHANNEL_MOVES:
        return sbit__frame_moves(frame, channel->inputs, error);
    case SBIT_CHANNEL_ELEMENTWISE:
        return sbit__frame_elementwise(frame, true, false, error);
    case SBIT_CHANNEL_KEEPS:
        if (frame->node->output_count > 1 && frame->node->outputs[1].idx != 0) {
            return sbit__frame_stop(frame, "tells places", error);
        }
        for (int32_t i = 1; i < frame->op.input_count; i++) {
            if (sbit__frame_in(frame, i) != NULL) {
                sbit__channel_labels_fix(
                    frame->labeler, sbit__frame_in(frame, i),
                    sbit__label_reason(frame->labeler, frame->node->id, "reads it"));
            }
        }
        return sbit__frame_pass(frame, 0xfffffffcu, "mixes the axis of the channels", error);
    case SBIT_CHANNEL_PER_CHANNEL:
        return sbit__frame_per_channel(frame, error);
    case SBIT_CHANNEL_OWN:
        sbit__frame_call(frame, &call);
        return channel->label(&call, error);
    default:
        return sbit__frame_stop(frame, "has no rule for channels", error);
    }
}

/* Nodes that compute with constants and shapes only have no channels. */
static bool sbit__frame_is_idle(const sbit__label_frame *frame)
{
    for (size_t i = 0; i < frame->node->input_count; i++) {
        const sbit__channel_labels *labels = sbit__frame_in(frame, (int32_t)i);
        if (labels != NULL && labels->form != SBIT__LABELS_NONE) {
            return false;
        }
        if (labels != NULL) {
            const sbit_value_info *info =
                sbit_graph_value(frame->labeler->graph, frame->node->inputs[i]);
            if (info->is_constant &&
                ((SBIT_T_FLOATS >> (uint32_t)info->constant.dtype & 1u) != 0)) {
                return false;
            }
        }
    }
    return true;
}

/* Their outputs are shapes, which have no labels, or data whose shape nothing here can change. */
static sbit_status sbit__frame_idle(sbit__label_frame *frame, sbit_error *error)
{
    for (size_t i = 0; i < frame->node->output_count; i++) {
        const uint32_t idx = frame->node->outputs[i].idx;
        if (idx != 0 && sbit__type_size(frame->out_type[i]) > 1 &&
            frame->labeler->infer.elems[idx] == NULL && frame->labeler->infer.known[idx] == NULL) {
            return sbit__frame_stop(frame, "makes a tensor of its own shape", error);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__label_node(sbit__labeler *labeler, sbit_node_id id, sbit_error *error)
{
    sbit__label_frame frame;
    sbit_value_id captures[64];
    bool ready = false;
    SBIT__TRY(sbit__frame_open(labeler, id, &frame, &ready, error));
    const size_t captured = sbit_graph_captures(labeler->graph, id, captures, 64);
    for (uint32_t i = 1; captured > 0 && i < sbit_graph_value_limit(labeler->graph); i++) {
        bool is_captured = captured > 64; /* too many to tell: all */
        for (size_t k = 0; k < captured && k < 64; k++) {
            is_captured = is_captured || captures[k].idx == i;
        }
        if (is_captured) {
            sbit__channel_labels_fix(labeler, &labeler->of[i],
                                     sbit__label_reason(labeler, id, "reads it in a body"));
        }
    }
    if (!ready) {
        return sbit__frame_stop(&frame, "has shapes that are known only while running", error);
    }
    return sbit__frame_is_idle(&frame) ? sbit__frame_idle(&frame, error)
                                       : sbit__frame_kind(&frame, error);
}

/* ---- the graph */

static sbit_status sbit__label_input(sbit__labeler *labeler, sbit_value_id id, sbit_error *error)
{
    sbit__channel_labels *labels = &labeler->of[id.idx];
    const sbit_type *type = labeler->infer.types[id.idx];
    const sbit_value_info *info = sbit_graph_value(labeler->graph, id);
    if (info->is_constant || type->rank < 0) {
        return SBIT_OK;
    }
    const char *reason =
        sbit__arena_printf(labeler->arena, "reaches the graph's input '%s'", info->name);
    SBIT__TRY(sbit__channel_labels_make(labeler, type, SBIT__LABELS_UNIFORM, 0, labels, error));
    return sbit__label_new(labeler, 1, SBIT__LABEL_FIXED, reason, labels->at, error);
}

SBIT__FN bool sbit__label_listed(const char *list, const char *name)
{
    for (const char *at = list; *at != '\0';) {
        const size_t size = strcspn(at, ",");
        if ((size == 3 && strncmp(at, "all", 3) == 0) || (size == strlen(name) && strncmp(at, name, size) == 0)) {
            return true;
        }
        at += size + (at[size] == ',' ? 1 : 0);
    }
    return false;
}

static void sbit__label_outputs(sbit__labeler *labeler)
{
    for (size_t i = 0; i < sbit_graph_output_count(labeler->graph); i++) {
        const sbit_value_id id = sbit_graph_output(labeler->graph, i);
        const char *name = sbit_graph_value(labeler->graph, id)->name;
        if (sbit__label_listed(labeler->outputs, name)) {
            continue;
        }
        const char *reason =
            sbit__arena_printf(labeler->arena, "reaches the graph's output '%s'", name);
        sbit__channel_labels_fix(labeler, &labeler->of[id.idx],
                                 reason != NULL ? reason : "reaches an output");
    }
}

/* Elementwise nodes once more, and values whose channels lie on several axes: a head, not an index
 * in every head, is what can be cut, so all but the outermost of these axes are joined. */
static sbit_status sbit__label_again(sbit__labeler *labeler, bool last, sbit_error *error)
{
    for (size_t i = 0; i < labeler->elementwise_count; i++) {
        sbit__label_frame frame;
        bool ready = false;
        SBIT__TRY(sbit__frame_open(labeler, labeler->elementwise[i], &frame, &ready, error));
        if (labeler->of[frame.node->outputs[0].idx].form != SBIT__LABELS_NONE) {
            SBIT__TRY(sbit__frame_elementwise(&frame, false, last, error));
        }
    }
    return SBIT_OK;
}

static void sbit__label_unfold(sbit__labeler *labeler, uint32_t most_axes)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(labeler->graph); v++) {
        sbit__channel_labels *labels = &labeler->of[v];
        if (labels->form != SBIT__LABELS_FULL) {
            continue;
        }
        const uint32_t varies = sbit__channel_labels_varies(labeler, labels);
        uint32_t axes = 0, first = SBIT_MAX_RANK;
        for (uint32_t i = 0; i < SBIT_MAX_RANK; i++) {
            axes += varies >> i & 1u;
            first = (varies >> i & 1u) != 0 && first == SBIT_MAX_RANK ? i : first;
        }
        if (axes == 0 || axes > most_axes) {
            continue;
        }
        int32_t *at = (int32_t *)sbit__arena_array(labeler->arena, (size_t)labels->dims[first] + 1,
                                                   sizeof *at);
        if (at != NULL) { /* else: it stays as it is, and groups.c keeps it whole */
            sbit__channel_labels_slices(labeler, labels, (int32_t)first, at);
            labels->form = SBIT__LABELS_AXIS;
            labels->axis = (int32_t)first;
            labels->at = at;
            labeler->changed = true;
            if (most_axes > 1) {
                return; /* what it joined may unfold others */
            }
        }
    }
}

static sbit_status sbit__label_all(sbit__labeler *labeler, sbit_error *error)
{
    for (size_t i = 0; i < sbit_graph_input_count(labeler->graph); i++) {
        SBIT__TRY(sbit__label_input(labeler, sbit_graph_input(labeler->graph, i), error));
    }
    for (sbit_node_id id = sbit_graph_first(labeler->graph); id.idx != 0;
         id = sbit_graph_next(labeler->graph, id)) {
        SBIT__TRY(sbit__label_node(labeler, id, error));
    }
    sbit__label_outputs(labeler);
    for (size_t i = 0; i < labeler->computed_count; i++) {
        const sbit_node *node = sbit_graph_node(labeler->graph, labeler->computed[i]);
        const char *reason = sbit__label_reason(labeler, node->id, SBIT__RUNTIME_PLACES);
        for (size_t k = 0; k < node->input_count + node->output_count; k++) {
            const sbit_value_id id =
                k < node->input_count ? node->inputs[k] : node->outputs[k - node->input_count];
            if (id.idx != 0) {
                sbit__channel_labels_fix(labeler, &labeler->of[id.idx], reason);
            }
        }
    }
    for (uint32_t axes = 1; axes <= SBIT_MAX_RANK;) {
        labeler->changed = false;
        SBIT__TRY(sbit__label_again(labeler, false, error));
        if (!labeler->changed) {
            sbit__label_unfold(labeler, axes);
        }
        axes = labeler->changed ? 1 : axes + 1;
    }
    return sbit__label_again(labeler, true, error);
}

/* ---- sizes */

/* An input's first dimension is its batch, and so is the second of a state [layers, batch, units]
 * (`states`); and whatever has the symbol of one. */
static bool sbit__label_is_batch(const sbit_type *type, int32_t d, bool states)
{
    return d == 0 || (states && d == 1 && type->rank == 3 && type->dims[0].symbol == 0);
}

static void sbit__label_sizes(sbit__labeler *labeler, int64_t size, bool states)
{
    uint32_t batch = 0; /* the symbol of the first batch */
    for (size_t i = 0; i < sbit_graph_input_count(labeler->graph); i++) {
        const sbit_type *type = labeler->infer.types[sbit_graph_input(labeler->graph, i).idx];
        if (batch == 0 && type->rank > 0 && type->dims[0].symbol != SBIT_SYMBOL_ANY) {
            batch = type->dims[0].symbol;
        }
    }
    for (size_t i = 0; i < sbit_graph_input_count(labeler->graph); i++) {
        sbit_type *type = labeler->infer.types[sbit_graph_input(labeler->graph, i).idx];
        for (int32_t d = 0; d < type->rank; d++) {
            const uint32_t symbol = type->dims[d].symbol;
            const bool is_batch =
                (batch != 0 && symbol == batch) || sbit__label_is_batch(type, d, states);
            if (symbol != 0) {
                type->dims[d] = sbit__dim(is_batch ? 2 : size);
            }
        }
    }
}

static bool sbit__label_sizes_fit(const sbit__labeler *labeler)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(labeler->graph); v++) {
        const sbit_type *type = labeler->infer.types[v];
        sbit_value_id id;
        id.idx = v;
        if (!sbit_graph_value_alive(labeler->graph, id) ||
            sbit_graph_value(labeler->graph, id)->producer.idx == 0) {
            continue;
        }
        for (int32_t d = 0; type->kind == SBIT_KIND_TENSOR && d < type->rank; d++) {
            if (type->dims[d].symbol == 0 && type->dims[d].value <= 0) {
                return false;
            }
        }
    }
    return true;
}

/* The smallest size that gives every node a shape. Without one nothing is known to be the same
 * channel, and all of them stay. */
static sbit_status sbit__label_infer(sbit__labeler *labeler, sbit_error *error)
{
    static const int64_t sizes[] = {8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 512, 640};
    const size_t count = SBIT__COUNT_OF(sizes);
    for (size_t i = 0; i < 2 * count; i++) {
        SBIT__TRY(sbit__infer_init(&labeler->infer, labeler->graph, NULL, labeler->arena, error));
        sbit__label_sizes(labeler, sizes[i / 2], i % 2 == 0);
        const sbit_status status = sbit__infer_run(&labeler->infer, error);
        if (status == SBIT_ERR_OUT_OF_MEMORY) {
            return status;
        }
        if (status == SBIT_OK && sbit__label_sizes_fit(labeler)) {
            return SBIT_OK;
        }
    }
    sbit__log(labeler->ctx, SBIT_LOG_WARNING,
              "no size of the inputs from %d to %d gives every operator a shape: all channels stay",
              8, 640);
    SBIT__TRY(sbit__infer_init(&labeler->infer, labeler->graph, NULL, labeler->arena, error));
    return sbit__infer_run(&labeler->infer, error);
}

SBIT__FN sbit_status sbit__labeler_run(sbit__labeler *labeler, const sbit_graph *graph,
                                       const char *outputs, bool inexact, sbit__arena *arena,
                                       sbit_error *error)
{
    memset(labeler, 0, sizeof *labeler);
    labeler->ctx = sbit_graph_ctx(graph);
    labeler->graph = graph;
    labeler->outputs = outputs;
    labeler->inexact = inexact;
    labeler->arena = arena;
    labeler->of = (sbit__channel_labels *)sbit__arena_array(arena, sbit_graph_value_limit(graph),
                                                            sizeof *labeler->of);
    if (labeler->of == NULL) {
        return sbit__fail_oom(error, sbit_graph_value_limit(graph) * sizeof *labeler->of);
    }
    SBIT__TRY(sbit__label_infer(labeler, error));
    return sbit__label_all(labeler, error);
}
