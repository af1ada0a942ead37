/* elements.c: labels through elementwise operators. >>labels-elements
 *
 * Equal positions are one channel. An element that broadcasting makes meet different channels (a
 * spatial map that all channels are multiplied with, a constant that all share) is joined with none
 * of them: it stays whole, and if a layer makes it, its channel may not be removed.
 */
#include "sparse_private.h"

#define SBIT__MEETS_NONE 0
#define SBIT__MEETS_MANY (-1)

/* One operand, laid out over the output's positions. */
typedef struct sbit__operand {
    const sbit__channel_labels *labels;
    int64_t strides[SBIT_MAX_RANK]; /* 0 along what is broadcast */
    int32_t *meets;                 /* by element: MEETS_NONE, a root, or MEETS_MANY */
} sbit__operand;

typedef struct sbit__elementwise {
    sbit__label_frame *frame;
    sbit__labeler *labeler;
    sbit__channel_labels out; /* shape; labels if `first` */
    sbit__operand *operands;
    size_t count;
    const char *reason;
} sbit__elementwise;

static bool sbit__operand_is_real(const sbit__labeler *labeler, int32_t label)
{
    return label != 0 && !sbit__label_is(labeler, label, SBIT__LABEL_FREE);
}

static void sbit__operand_meet(const sbit__labeler *labeler, int32_t *meets, int32_t label)
{
    if (sbit__operand_is_real(labeler, label) && *meets != SBIT__MEETS_MANY) {
        const int32_t root = sbit__label_root(labeler, label);
        *meets = *meets == SBIT__MEETS_NONE || *meets == root ? root : SBIT__MEETS_MANY;
    }
}

/* ---- labels along one axis, the same for all: the usual case */

/* The operand's axis that lies on the output's `axis`; its length, 1 if it has none. */
static int64_t sbit__operand_length(const sbit__elementwise *e, const sbit__operand *operand,
                                    int32_t axis)
{
    axis -= e->out.rank - operand->labels->rank;
    return axis < 0 ? 1 : operand->labels->dims[axis];
}

/* The axis of the output that all labels lie along; -1: none has any; -2: they differ. */
static int32_t sbit__elementwise_axis(const sbit__elementwise *e)
{
    int32_t axis = -1;
    for (size_t i = 0; i < e->count; i++) {
        const sbit__channel_labels *labels = e->operands[i].labels;
        if (labels->form == SBIT__LABELS_FULL) {
            return -2;
        }
        if (labels->form == SBIT__LABELS_AXIS && labels->dims[labels->axis] > 1) {
            const int32_t at = labels->axis + e->out.rank - labels->rank;
            if (axis >= 0 && at != axis) {
                return -2;
            }
            axis = at;
        }
    }
    return axis;
}

/* Label of an operand at index i of the axis. */
static int32_t sbit__operand_along(const sbit__operand *operand, int64_t length, int64_t i)
{
    const sbit__channel_labels *labels = operand->labels;
    if (labels->form == SBIT__LABELS_AXIS && labels->dims[labels->axis] > 1 && length > 1) {
        return labels->at[i];
    }
    return labels->form == SBIT__LABELS_NONE ? 0 : labels->at[0];
}

/* True if the operand's one element meets different channels of the others along the axis. */
static bool sbit__operand_spreads(const sbit__elementwise *e, size_t which, int32_t axis, int64_t n)
{
    int32_t meets = SBIT__MEETS_NONE;
    if (axis < 0 || sbit__operand_length(e, &e->operands[which], axis) == n) {
        return false;
    }
    for (size_t k = 0; k < e->count; k++) {
        const int64_t length = sbit__operand_length(e, &e->operands[k], axis);
        for (int64_t i = 0; k != which && i < length; i++) {
            sbit__operand_meet(e->labeler, &meets, sbit__operand_along(&e->operands[k], length, i));
        }
    }
    return meets == SBIT__MEETS_MANY;
}

static void sbit__elementwise_along(sbit__elementwise *e, int32_t axis, bool last)
{
    const int64_t n = axis >= 0 ? e->out.dims[axis] : 1;
    for (size_t k = 0; k < e->count; k++) {
        const sbit__operand *operand = &e->operands[k];
        const int64_t length = axis >= 0 ? sbit__operand_length(e, operand, axis) : 1;
        const bool spreads = sbit__operand_spreads(e, k, axis, n);
        if (spreads && last && operand->labels->form != SBIT__LABELS_NONE &&
            sbit__operand_is_real(e->labeler, operand->labels->at[0])) {
            sbit__label_fix(e->labeler, operand->labels->at[0], e->reason);
        }
        for (int64_t i = 0; !spreads && i < n; i++) {
            const int32_t label = sbit__operand_along(operand, length, i);
            if (e->out.at[i] != 0) {
                sbit__label_join(e->labeler, e->out.at[i], label);
            } else {
                e->out.at[i] = label;
            }
        }
    }
    for (size_t k = 0; k < e->count; k++) { /* what spreads names only what nothing else names */
        for (int64_t i = 0; i < n; i++) {
            const int64_t length = axis >= 0 ? sbit__operand_length(e, &e->operands[k], axis) : 1;
            e->out.at[i] =
                e->out.at[i] != 0 ? e->out.at[i] : sbit__operand_along(&e->operands[k], length, i);
        }
    }
}

/* ---- one label for each position */

static void sbit__operand_place(const sbit__elementwise *e, sbit__operand *operand)
{
    const sbit__channel_labels *labels = operand->labels;
    for (int32_t i = 0; i < e->out.rank; i++) {
        const int32_t axis = i - (e->out.rank - labels->rank);
        operand->strides[i] =
            axis < 0 || labels->dims[axis] == 1 ? 0 : sbit__channel_labels_inner(labels, axis);
    }
}

/* The operand's element at a position of the output. */
static int64_t sbit__operand_element(const sbit__elementwise *e, const sbit__operand *operand,
                                     int64_t position)
{
    int64_t element = 0;
    for (int32_t i = e->out.rank; i-- > 0;) {
        element += position % e->out.dims[i] * operand->strides[i];
        position /= e->out.dims[i];
    }
    return element;
}

static void sbit__elementwise_meet(sbit__elementwise *e, int64_t count)
{
    for (size_t a = 0; a < e->count; a++) {
        for (size_t b = 0; b < e->count; b++) {
            for (int64_t p = 0; a != b && p < count; p++) {
                const int64_t other = sbit__operand_element(e, &e->operands[b], p);
                sbit__operand_meet(
                    e->labeler, &e->operands[a].meets[sbit__operand_element(e, &e->operands[a], p)],
                    sbit__channel_labels_at(e->operands[b].labels, other));
            }
        }
    }
}

static void sbit__elementwise_positions(sbit__elementwise *e, int64_t count, bool last)
{
    sbit__elementwise_meet(e, count);
    for (int64_t p = 0; p < count; p++) {
        int32_t best = 0, spread = 0;
        for (size_t k = 0; k < e->count; k++) {
            const int64_t element = sbit__operand_element(e, &e->operands[k], p);
            const int32_t label = sbit__channel_labels_at(e->operands[k].labels, element);
            if (e->operands[k].meets[element] == SBIT__MEETS_MANY) {
                if (last && sbit__operand_is_real(e->labeler, label)) {
                    sbit__label_fix(e->labeler, label, e->reason);
                }
                spread = spread != 0 ? spread : label;
            } else if (best == 0) {
                best = label;
            } else {
                sbit__label_join(e->labeler, best, label);
            }
        }
        e->out.at[p] = best != 0 ? best : spread;
    }
}

static sbit_status sbit__elementwise_full(sbit__elementwise *e, bool last, sbit_error *error)
{
    const int64_t count = sbit__channel_labels_count(&e->out);
    for (size_t k = 0; k < e->count; k++) {
        sbit__operand *operand = &e->operands[k];
        const size_t elements = (size_t)sbit__channel_labels_count(operand->labels);
        sbit__operand_place(e, operand);
        operand->meets =
            (int32_t *)sbit__arena_array(e->labeler->arena, elements + 1, sizeof(int32_t));
        if (operand->meets == NULL) {
            return sbit__fail_oom(error, elements * sizeof(int32_t));
        }
    }
    sbit__elementwise_positions(e, count, last);
    return SBIT_OK;
}

static sbit_status sbit__elementwise_operands(sbit__elementwise *e, uint32_t inputs,
                                              sbit_error *error)
{
    const sbit_node *node = e->frame->node;
    e->operands = (sbit__operand *)sbit__arena_array(e->labeler->arena, node->input_count + 1,
                                                     sizeof *e->operands);
    if (e->operands == NULL) {
        return sbit__fail_oom(error, node->input_count * sizeof *e->operands);
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const bool wanted = i < 32 ? (inputs >> i & 1u) != 0 : inputs == ~0u;
        if (wanted && node->inputs[i].idx != 0) {
            e->operands[e->count++].labels = &e->labeler->of[node->inputs[i].idx];
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__label_elementwise(sbit__label_frame *frame, uint32_t inputs, bool first,
                                             bool last, sbit_error *error)
{
    sbit__elementwise e;
    memset(&e, 0, sizeof e);
    e.frame = frame;
    e.labeler = frame->labeler;
    e.reason =
        last ? sbit__label_reason(e.labeler, frame->node->id, "spreads it over channels") : NULL;
    SBIT__TRY(sbit__elementwise_operands(&e, inputs, error));
    const sbit_type *type = frame->out_type[0];
    e.out.rank = type->rank;
    for (int32_t i = 0; i < type->rank; i++) {
        e.out.dims[i] = type->dims[i].value;
    }
    const int32_t axis = sbit__elementwise_axis(&e);
    SBIT__TRY(sbit__channel_labels_make(e.labeler, type,
                                        axis == -2   ? SBIT__LABELS_FULL
                                        : axis == -1 ? SBIT__LABELS_UNIFORM
                                                     : SBIT__LABELS_AXIS,
                                        axis, &e.out, error));
    if (axis == -2) {
        SBIT__TRY(sbit__elementwise_full(&e, last, error));
    } else {
        sbit__elementwise_along(&e, axis, last);
    }
    if (axis == -1 && e.out.at[0] == 0) {
        e.out.form = SBIT__LABELS_NONE;
    }
    for (size_t i = 0; first && i < frame->node->output_count; i++) {
        sbit__channel_labels *out = &e.labeler->of[frame->node->outputs[i].idx];
        if (frame->node->outputs[i].idx != 0) {
            *out = e.out;
            sbit__channel_labels_settle(e.labeler, out);
        }
    }
    return SBIT_OK;
}
