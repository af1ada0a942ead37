/* cut.c: the channels that go are taken out of a masked copy of the graph. >>cut
 *
 * Constants lose indices along the axes that their labels lie on; then attributes and index inputs
 * follow (follow.c), and all types are inferred again. The order of what stays never changes.
 */
#include "sparse_private.h"

/* >>labels */

SBIT__FN bool sbit__class_is_removed(const sbit_sparse *sparse, int32_t label)
{
    const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, label);
    return c >= 0 && sparse->removed[c];
}

SBIT__FN bool sbit__cut_touches(const sbit_sparse *sparse, sbit_value_id value, int32_t axis)
{
    const sbit__channel_labels *labels = &sparse->labeler.of[value.idx];
    for (int64_t i = 0;
         labels->form == SBIT__LABELS_AXIS && labels->axis == axis && i < labels->dims[axis]; i++) {
        if (sbit__class_is_removed(sparse, labels->at[i])) {
            return true;
        }
    }
    return false;
}

SBIT__FN int64_t sbit__cut_kept(const sbit_sparse *sparse, sbit_value_id value, int32_t axis)
{
    const sbit__channel_labels *labels = &sparse->labeler.of[value.idx];
    int64_t kept = labels->dims[axis];
    for (int64_t i = 0;
         labels->form == SBIT__LABELS_AXIS && labels->axis == axis && i < labels->dims[axis]; i++) {
        kept -= sbit__class_is_removed(sparse, labels->at[i]) ? 1 : 0;
    }
    return kept;
}

SBIT__FN sbit_status sbit__cut_stays(const sbit_sparse *sparse, sbit_value_id value, int32_t axis,
                                     sbit__arena *arena, bool **out, sbit_error *error)
{
    const sbit__channel_labels *labels = &sparse->labeler.of[value.idx];
    const int64_t n = labels->dims[axis];
    bool *stays = (bool *)sbit__arena_array(arena, (size_t)n + 1, sizeof *stays);
    if (stays == NULL) {
        return sbit__fail_oom(error, (size_t)n);
    }
    for (int64_t i = 0; i < n; i++) {
        stays[i] = labels->form != SBIT__LABELS_AXIS || labels->axis != axis ||
                   !sbit__class_is_removed(sparse, labels->at[i]);
    }
    *out = stays;
    return SBIT_OK;
}

/* >>constants */

/* What goes of one constant: one list for each axis, for some axis one for each part of axis 0. */
typedef struct sbit__slicer {
    const sbit_tensor *from;
    const bool *stays[SBIT_MAX_RANK]; /* NULL: all */
    int64_t parts[SBIT_MAX_RANK];
    int64_t kept[SBIT_MAX_RANK];
    bool any;
} sbit__slicer;

static sbit_status sbit__slicer_add(const sbit_sparse *sparse, sbit__slicer *slicer, int32_t axis,
                                    const int32_t *labels, int64_t parts, sbit__arena *arena,
                                    sbit_error *error)
{
    const int64_t length = slicer->from->dims[axis], n = parts * length;
    bool *stays = (bool *)sbit__arena_array(arena, (size_t)n + 1, sizeof *stays);
    int64_t kept = 0;
    bool all = true;
    if (stays == NULL) {
        return sbit__fail_oom(error, (size_t)n);
    }
    for (int64_t i = 0; i < n; i++) {
        stays[i] = !sbit__class_is_removed(sparse, labels[i]);
        all = all && stays[i];
        kept += stays[i] ? 1 : 0;
    }
    if (all) {
        return SBIT_OK;
    }
    for (int64_t p = 0, each = kept / parts; p < parts; p++) {
        int64_t here = 0;
        for (int64_t i = 0; i < length; i++) {
            here += stays[p * length + i] ? 1 : 0;
        }
        if (here != each || each == 0) {
            return sbit__fail(error, SBIT_ERR_STATE, NULL,
                              "groups of a convolution would keep unequal numbers of channels");
        }
    }
    slicer->stays[axis] = stays;
    slicer->parts[axis] = parts;
    slicer->kept[axis] = kept / parts;
    slicer->any = true;
    return SBIT_OK;
}

static bool sbit__slicer_keeps(const sbit__slicer *slicer, const int64_t *index, int32_t axis)
{
    const bool *stays = slicer->stays[axis];
    const int64_t parts = slicer->parts[axis];
    if (stays == NULL) {
        return true;
    }
    const int64_t part = parts > 1 ? index[0] / (slicer->from->dims[0] / parts) : 0;
    return stays[part * slicer->from->dims[axis] + index[axis]];
}

/* Copies what stays, in runs along the axes behind the last one that is cut. */
static void sbit__slicer_copy(const sbit__slicer *slicer, sbit_tensor *to)
{
    const sbit_tensor *from = slicer->from;
    const int64_t count = sbit_tensor_count(from);
    const size_t each = count > 0 ? sbit_tensor_bytes(from) / (size_t)count : 0;
    int64_t index[SBIT_MAX_RANK] = {0}, run = 1;
    int32_t last = from->rank - 1;
    char *out = (char *)to->data;
    while (last >= 0 && slicer->stays[last] == NULL) {
        run *= from->dims[last--];
    }
    for (int64_t at = 0; at < count; at += run) {
        bool keeps = true;
        for (int32_t axis = 0; keeps && axis <= last; axis++) {
            keeps = sbit__slicer_keeps(slicer, index, axis);
        }
        if (keeps) {
            memcpy(out, (const char *)from->data + (size_t)at * each, (size_t)run * each);
            out += (size_t)run * each;
        }
        for (int32_t axis = last; axis >= 0 && ++index[axis] == from->dims[axis]; axis--) {
            index[axis] = 0;
        }
    }
}

/* What goes of a constant, of the size that `from` has. */
static sbit_status sbit__slicer_of(const sbit_sparse *sparse, sbit_value_id id, const sbit_tensor *from,
                                   sbit__arena *arena, sbit__slicer *slicer, sbit_error *error)
{
    const sbit__labeler *labeler = &sparse->labeler;
    const sbit__channel_labels *labels = &labeler->of[id.idx];
    memset(slicer, 0, sizeof *slicer);
    slicer->from = from;
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        if (member->value.idx == id.idx) {
            SBIT__TRY(sbit__slicer_add(sparse, slicer, member->axis, member->labels, member->parts,
                                       arena, error));
        }
    }
    return labels->form == SBIT__LABELS_AXIS
               ? sbit__slicer_add(sparse, slicer, labels->axis, labels->at, 1, arena, error)
               : SBIT_OK;
}

static sbit_status sbit__slicer_cut(const sbit_sparse *sparse, const sbit__slicer *slicer, sbit_tensor *out,
                                    sbit_error *error)
{
    int64_t dims[SBIT_MAX_RANK];
    for (int32_t axis = 0; axis < slicer->from->rank; axis++) {
        dims[axis] = slicer->stays[axis] != NULL ? slicer->kept[axis] : slicer->from->dims[axis];
    }
    SBIT__TRY(sbit_tensor_alloc(sparse->ctx, slicer->from->dtype, slicer->from->rank, dims, out, error));
    sbit__slicer_copy(slicer, out);
    return SBIT_OK;
}

/* One entry stands for `block` indices of an axis, of which all or none go. */
static sbit_status sbit__slicer_block(sbit__slicer *slicer, int32_t axis, int64_t block, int64_t length,
                                      sbit__arena *arena, sbit_error *error)
{
    const int64_t n = (length + block - 1) / block;
    bool *stays = (bool *)sbit__arena_array(arena, (size_t)n + 1, sizeof *stays);
    if (stays == NULL) {
        return sbit__fail_oom(error, (size_t)n);
    }
    slicer->kept[axis] = 0;
    for (int64_t i = 0; i < n; i++) {
        stays[i] = slicer->stays[axis][i * block];
        slicer->kept[axis] += stays[i] ? 1 : 0;
    }
    slicer->stays[axis] = stays;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__cut_like(const sbit_sparse *sparse, sbit_value_id constant, int32_t only,
                                    int32_t blocked, int64_t block, const sbit_tensor *from,
                                    sbit__arena *arena, sbit_tensor *out, sbit_error *error)
{
    const sbit_tensor *whole = &sbit_graph_value(sparse->graph, constant)->constant;
    sbit__slicer slicer;
    SBIT__TRY(sbit__slicer_of(sparse, constant, whole, arena, &slicer, error));
    if (only >= 0) {
        slicer.stays[0] = slicer.stays[only];
        slicer.kept[0] = slicer.kept[only];
    } else if (slicer.stays[blocked] != NULL) {
        SBIT__TRY(sbit__slicer_block(&slicer, blocked, block, whole->dims[blocked], arena, error));
    }
    for (int32_t i = 0; i < SBIT_MAX_RANK; i++) {
        slicer.parts[i] = 1;
        slicer.stays[i] = i < from->rank ? slicer.stays[i] : NULL;
    }
    slicer.from = from;
    return sbit__slicer_cut(sparse, &slicer, out, error);
}

static sbit_status sbit__cut_constant(const sbit_sparse *sparse, sbit_graph *graph,
                                      sbit_value_id id, sbit__arena *arena, sbit_error *error)
{
    sbit__slicer slicer;
    sbit_tensor cut;
    SBIT__TRY(sbit__slicer_of(sparse, id, &sbit_graph_value(graph, id)->constant, arena, &slicer, error));
    if (!slicer.any) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__slicer_cut(sparse, &slicer, &cut, error));
    const sbit_status status = sbit_graph_set_constant(graph, id, &cut, error);
    sbit_tensor_free(sparse->ctx, &cut);
    return status;
}

SBIT__FN sbit_status sbit__cut(sbit_sparse *sparse, sbit_graph *graph, sbit_error *error)
{
    const uint32_t limit = sbit_graph_value_limit(sparse->graph);
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    for (uint32_t v = 1; status == SBIT_OK && v < limit; v++) {
        sbit_value_id id;
        id.idx = v;
        if (sbit_graph_value_alive(graph, id) && sbit_graph_value(graph, id)->is_constant) {
            status = sbit__cut_constant(sparse, graph, id, &arena, error);
        }
    }
    for (sbit_node_id id = sbit_graph_first(sparse->graph); status == SBIT_OK && id.idx != 0;
         id = sbit_graph_next(sparse->graph, id)) {
        status = sbit__cut_follow(sparse, graph, id, &arena, error);
    }
    sbit__arena_deinit(&arena);
    for (uint32_t v = 1; v < sbit_graph_value_limit(graph);
         v++) { /* declared sizes are of before */
        const sbit_type unknown = sbit__type_unknown();
        sbit_value_id id;
        id.idx = v;
        if (sbit_graph_value_alive(graph, id) && sbit_graph_value(graph, id)->producer.idx != 0 &&
            (!sbit_graph_value(graph, id)->is_output ||
             sbit__label_listed(sparse->outputs, sbit_graph_value(graph, id)->name))) {
            sbit_graph_set_type(graph, id, &unknown);
        }
    }
    return status == SBIT_OK ? sbit_infer(graph, error) : status;
}
