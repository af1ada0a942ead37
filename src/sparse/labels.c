/* labels.c: labels of positions: which are one channel, and the labels of one value. >>labels
 *
 * Does: union-find over labels with what is known of a root (fixed, free), and the four forms in
 * which a value's labels are held. Most values have one label for each index of one axis; only
 * where heads and blocks are on two axes is there one for each position.
 */
#include "sparse_private.h"

/* >>joining */

SBIT__FN int32_t sbit__label_root(const sbit__labeler *labeler, int32_t label)
{
    int32_t *parent = labeler->parent;
    while (parent[label] != label) {
        parent[label] = parent[parent[label]];
        label = parent[label];
    }
    return label;
}

static void sbit__label_free(sbit__labeler *labeler)
{
    const sbit_allocator *a = sbit_ctx_allocator(labeler->ctx);
    sbit__free(a, labeler->parent, labeler->label_capacity * sizeof *labeler->parent);
    sbit__free(a, labeler->flags, labeler->label_capacity);
    sbit__free(a, (void *)labeler->reasons, labeler->label_capacity * sizeof *labeler->reasons);
}

SBIT__FN void sbit__labeler_deinit(sbit__labeler *labeler)
{
    if (labeler->ctx != NULL) {
        const sbit_allocator *a = sbit_ctx_allocator(labeler->ctx);
        sbit__label_free(labeler);
        sbit__free(a, labeler->members, labeler->member_capacity * sizeof *labeler->members);
        sbit__free(a, labeler->balances, labeler->balance_capacity * sizeof *labeler->balances);
        sbit__free(a, labeler->elementwise,
                   labeler->elementwise_capacity * sizeof *labeler->elementwise);
        sbit__free(a, labeler->computed, labeler->computed_capacity * sizeof *labeler->computed);
        memset(labeler, 0, sizeof *labeler);
    }
}

static sbit_status sbit__label_reserve(sbit__labeler *labeler, size_t needed, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(labeler->ctx);
    const size_t held = labeler->label_capacity;
    if (needed <= held) {
        return SBIT_OK;
    }
    needed = needed < 2 * held ? 2 * held : needed;
    needed = needed < 1024 ? 1024 : needed;
    int32_t *parent = (int32_t *)sbit__alloc(a, needed * sizeof *parent);
    uint8_t *flag = (uint8_t *)sbit__alloc(a, needed);
    const char **reason = (const char **)sbit__alloc(a, needed * sizeof *reason);
    if (parent == NULL || flag == NULL || reason == NULL) {
        sbit__free(a, parent, needed * sizeof *parent);
        sbit__free(a, flag, needed);
        sbit__free(a, (void *)reason, needed * sizeof *reason);
        return sbit__fail_oom(error, needed * sizeof *reason);
    }
    if (held > 0) {
        memcpy(parent, labeler->parent, held * sizeof *parent);
        memcpy(flag, labeler->flags, held);
        memcpy((void *)reason, (const void *)labeler->reasons, held * sizeof *reason);
    }
    sbit__label_free(labeler);
    labeler->parent = parent;
    labeler->flags = flag;
    labeler->reasons = reason;
    labeler->label_capacity = needed;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__label_new(sbit__labeler *labeler, int64_t count, uint32_t flags,
                                     const char *reason, int32_t *first, sbit_error *error)
{
    if (count > INT32_MAX / 4 - labeler->label_count) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "more than %d channels to label",
                          (int)(INT32_MAX / 4));
    }
    SBIT__TRY(sbit__label_reserve(labeler, (size_t)(labeler->label_count + count + 1), error));
    *first = labeler->label_count + 1;
    for (int64_t i = 0; i < count; i++) {
        const int32_t label = *first + (int32_t)i;
        labeler->parent[label] = label;
        labeler->flags[label] = (uint8_t)flags;
        labeler->reasons[label] = reason;
    }
    labeler->label_count += (int32_t)count;
    return SBIT_OK;
}

SBIT__FN bool sbit__label_is(const sbit__labeler *labeler, int32_t label, uint32_t flag)
{
    return (labeler->flags[sbit__label_root(labeler, label)] & flag) != 0;
}

SBIT__FN void sbit__label_join(sbit__labeler *labeler, int32_t a, int32_t b)
{
    if (a == 0 || b == 0) {
        return;
    }
    a = sbit__label_root(labeler, a);
    b = sbit__label_root(labeler, b);
    if (a == b) {
        return;
    }
    const int32_t to = a < b ? a : b, from = a < b ? b : a;
    const unsigned fixed = (labeler->flags[a] | labeler->flags[b]) & SBIT__LABEL_FIXED;
    const unsigned free_ = (labeler->flags[a] & labeler->flags[b]) & SBIT__LABEL_FREE;
    if (labeler->reasons[to] == NULL) {
        labeler->reasons[to] = labeler->reasons[from];
    }
    labeler->parent[from] = to;
    labeler->flags[to] = (uint8_t)(fixed | free_);
    labeler->changed = true;
}

SBIT__FN void sbit__label_fix(sbit__labeler *labeler, int32_t label, const char *reason)
{
    if (label != 0) {
        label = sbit__label_root(labeler, label);
        labeler->flags[label] |= SBIT__LABEL_FIXED;
        if (labeler->reasons[label] == NULL) {
            labeler->reasons[label] = reason;
        }
    }
}

SBIT__FN const char *sbit__node_reason(const sbit_graph *graph, sbit__arena *arena,
                                       sbit_node_id node, const char *reason)
{
    char name[160];
    sbit_graph_describe(graph, node, name, sizeof name);
    const char *text = sbit__arena_printf(arena, "%s %s", name, reason);
    return text != NULL ? text : "out of memory";
}

SBIT__FN const char *sbit__label_reason(sbit__labeler *labeler, sbit_node_id node,
                                        const char *reason)
{
    return sbit__node_reason(labeler->graph, labeler->arena, node, reason);
}

/* >>labels of a value */

SBIT__FN int64_t sbit__channel_labels_inner(const sbit__channel_labels *labels, int32_t axis)
{
    int64_t inner = 1;
    for (int32_t i = axis + 1; i < labels->rank; i++) {
        inner *= labels->dims[i];
    }
    return inner;
}

SBIT__FN int64_t sbit__channel_labels_count(const sbit__channel_labels *labels)
{
    return sbit__channel_labels_inner(labels, -1);
}

SBIT__FN int32_t sbit__channel_labels_at(const sbit__channel_labels *labels, int64_t position)
{
    switch (labels->form) {
    case SBIT__LABELS_UNIFORM:
        return labels->at[0];
    case SBIT__LABELS_AXIS:
        return labels->at[position / sbit__channel_labels_inner(labels, labels->axis) %
                          labels->dims[labels->axis]];
    case SBIT__LABELS_FULL:
        return labels->at[position];
    default:
        return 0;
    }
}

SBIT__FN sbit_status sbit__channel_labels_make(sbit__labeler *labeler, const sbit_type *type,
                                               sbit__label_form form, int32_t axis,
                                               sbit__channel_labels *out, sbit_error *error)
{
    int64_t count = 0;
    memset(out, 0, sizeof *out);
    out->form = form;
    out->axis = axis;
    out->rank = type->rank;
    for (int32_t i = 0; i < type->rank; i++) {
        out->dims[i] = type->dims[i].value;
    }
    count = form == SBIT__LABELS_UNIFORM ? 1
            : form == SBIT__LABELS_AXIS  ? out->dims[axis]
            : form == SBIT__LABELS_FULL  ? sbit__channel_labels_count(out)
                                         : 0;
    if (count > 0) {
        out->at = (int32_t *)sbit__arena_array(labeler->arena, (size_t)count, sizeof *out->at);
        if (out->at == NULL) {
            return sbit__fail_oom(error, (size_t)count * sizeof *out->at);
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__channel_labels_expand(sbit__labeler *labeler,
                                                 const sbit__channel_labels *labels, int32_t **out,
                                                 sbit_error *error)
{
    const int64_t count = sbit__channel_labels_count(labels);
    if (labels->form == SBIT__LABELS_FULL) {
        *out = labels->at;
        return SBIT_OK;
    }
    int32_t *at = (int32_t *)sbit__arena_array(labeler->arena, (size_t)count + 1, sizeof *at);
    if (at == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof *at);
    }
    const bool by_axis = labels->form == SBIT__LABELS_AXIS;
    const int64_t inner = by_axis ? sbit__channel_labels_inner(labels, labels->axis) : count;
    const int64_t n = by_axis ? labels->dims[labels->axis] : 1;
    for (int64_t first = 0, slice = 0; first < count;
         first += inner, slice = slice + 1 < n ? slice + 1 : 0) {
        const int32_t label = labels->form != SBIT__LABELS_NONE ? labels->at[slice] : 0;
        for (int64_t p = first; p < first + inner; p++) {
            at[p] = label;
        }
    }
    *out = at;
    return SBIT_OK;
}

/* True if, for every index of the axis, what layers make there is one channel; at[i] gets it, else
 * what constants have there, else 0. *kinds counts up to two different channels. */
static bool sbit__channel_labels_by_axis(const sbit__labeler *labeler,
                                         const sbit__channel_labels *labels, int32_t axis,
                                         int32_t *at, int *kinds)
{
    const int64_t inner = sbit__channel_labels_inner(labels, axis), n = labels->dims[axis];
    const int64_t count = sbit__channel_labels_count(labels);
    int32_t some = 0;
    memset(at, 0, (size_t)n * sizeof *at);
    *kinds = 0;
    for (int64_t p = 0, left = 0, slice = -1; p < count; p++, left--) {
        const int32_t label = labels->at[p];
        if (left == 0) {
            left = inner;
            slice = slice + 1 < n ? slice + 1 : 0;
        }
        int32_t *to = &at[slice];
        if (label == 0 || label == *to) {
            continue;
        }
        const int32_t root = sbit__label_root(labeler, label);
        const bool is_free = (labeler->flags[root] & SBIT__LABEL_FREE) != 0;
        if (!is_free && *to != 0 && !sbit__label_is(labeler, *to, SBIT__LABEL_FREE) &&
            sbit__label_root(labeler, *to) != root) {
            return false;
        }
        if (*to == 0 || !is_free) {
            *to = label;
        }
        if (!is_free && some != root) {
            *kinds = some == 0 ? 1 : 2;
            some = root;
        }
    }
    return true;
}

SBIT__FN void sbit__channel_labels_settle(sbit__labeler *labeler, sbit__channel_labels *labels)
{
    int64_t longest = 1;
    int kinds = 0;
    for (int32_t i = 0; i < labels->rank; i++) {
        longest = labels->dims[i] > longest ? labels->dims[i] : longest;
    }
    int32_t *at = (int32_t *)sbit__arena_array(labeler->arena, (size_t)longest, sizeof *at);
    if (labels->form != SBIT__LABELS_FULL || at == NULL ||
        sbit__channel_labels_count(labels) == 0) {
        return;
    }
    for (int32_t axis = 0; axis < labels->rank; axis++) {
        if (sbit__channel_labels_by_axis(labeler, labels, axis, at, &kinds) && kinds > 1) {
            sbit__channel_labels_slices(labeler, labels, axis, at);
            labels->form = SBIT__LABELS_AXIS;
            labels->axis = axis;
            labels->at = at;
            return;
        }
        if (kinds == 0) {
            break; /* constants only: left as they are */
        }
    }
    for (int64_t p = 0; kinds > 0 && p < sbit__channel_labels_count(labels); p++) {
        if (labels->at[p] == 0 || sbit__label_is(labeler, labels->at[p], SBIT__LABEL_FREE) ||
            sbit__label_root(labeler, labels->at[p]) != sbit__label_root(labeler, labels->at[0])) {
            return;
        }
    }
    labels->form = kinds > 0 ? SBIT__LABELS_UNIFORM : labels->form;
}

SBIT__FN void sbit__channel_labels_slices(sbit__labeler *labeler,
                                          const sbit__channel_labels *labels, int32_t axis,
                                          int32_t *at)
{
    const int64_t inner = sbit__channel_labels_inner(labels, axis), n = labels->dims[axis];
    const int64_t count = sbit__channel_labels_count(labels);
    if (labels->form == SBIT__LABELS_AXIS && labels->axis == axis) {
        memcpy(at, labels->at, (size_t)n * sizeof *at);
        return;
    }
    memset(at, 0, (size_t)n * sizeof *at);
    if (labels->form == SBIT__LABELS_AXIS || labels->form == SBIT__LABELS_UNIFORM) {
        const int64_t m = labels->form == SBIT__LABELS_AXIS ? labels->dims[labels->axis] : 1;
        for (int64_t i = 1; i < m; i++) {
            sbit__label_join(labeler, labels->at[0], labels->at[i]);
        }
        for (int64_t i = 0; i < n; i++) {
            at[i] = labels->at[0];
        }
        return;
    }
    for (int64_t first = 0, slice = 0; labels->form == SBIT__LABELS_FULL && first < count;
         first += inner, slice = slice + 1 < n ? slice + 1 : 0) {
        int32_t *to = &at[slice];
        for (int64_t p = first; p < first + inner; p++) {
            if (*to == 0) {
                *to = labels->at[p];
            } else if (labels->at[p] != *to) {
                sbit__label_join(labeler, *to, labels->at[p]);
            }
        }
    }
}

/* What a position counts as: 0 for what is never removed by itself. */
static int32_t sbit__channel_labels_kind(const sbit__labeler *labeler, int32_t label)
{
    if (label == 0) {
        return 0;
    }
    label = sbit__label_root(labeler, label);
    return labeler->flags[label] != 0 ? 0 : label;
}

SBIT__FN uint32_t sbit__channel_labels_varies(const sbit__labeler *labeler,
                                              const sbit__channel_labels *labels)
{
    uint32_t axes = 0;
    if (labels->form == SBIT__LABELS_AXIS) {
        for (int64_t i = 1; i < labels->dims[labels->axis]; i++) {
            if (sbit__channel_labels_kind(labeler, labels->at[i]) !=
                sbit__channel_labels_kind(labeler, labels->at[0])) {
                return 1u << (uint32_t)labels->axis;
            }
        }
        return 0;
    }
    for (int32_t axis = 0; labels->form == SBIT__LABELS_FULL && axis < labels->rank; axis++) {
        const int64_t inner = sbit__channel_labels_inner(labels, axis), n = labels->dims[axis];
        const int64_t count = sbit__channel_labels_count(labels), block = inner * n;
        bool varies = false;
        for (int64_t first = 0; !varies && first < count; first += block) {
            for (int64_t p = first + inner; !varies && p < first + block; p++) {
                varies = labels->at[p] != labels->at[p - inner] &&
                         sbit__channel_labels_kind(labeler, labels->at[p]) !=
                             sbit__channel_labels_kind(labeler, labels->at[p - inner]);
            }
        }
        axes |= varies ? 1u << (uint32_t)axis : 0u;
    }
    return axes;
}

SBIT__FN void sbit__channel_labels_fix(sbit__labeler *labeler, const sbit__channel_labels *labels,
                                       const char *reason)
{
    const int64_t count = labels->form == SBIT__LABELS_FULL   ? sbit__channel_labels_count(labels)
                          : labels->form == SBIT__LABELS_AXIS ? labels->dims[labels->axis]
                          : labels->form == SBIT__LABELS_NONE ? 0
                                                              : 1;
    for (int64_t i = 0; i < count; i++) {
        sbit__label_fix(labeler, labels->at[i], reason);
    }
}
