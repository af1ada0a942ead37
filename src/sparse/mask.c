/* mask.c: masks of constants: from scores of single layers, or from the classes that go. >>masks
 */
#include "../passes/passes_private.h"
#include "sparse_private.h"

#include <math.h> /* floor, HUGE_VAL */

SBIT__FN void sbit__masks_clear(sbit_sparse *sparse)
{
    for (uint32_t v = 0; v < sbit_graph_value_limit(sparse->graph); v++) {
        if (sparse->keep[v] != NULL) {
            sbit_value_id id;
            id.idx = v;
            memset(sparse->keep[v], 1,
                   (size_t)sbit_tensor_count(&sbit_graph_value(sparse->graph, id)->constant));
        }
    }
    memset(sparse->removed, 0, (size_t)sparse->groups.class_count * sizeof *sparse->removed);
}

SBIT__FN sbit_status sbit__mask_of(sbit_sparse *sparse, sbit_value_id value, uint8_t **keep,
                                   sbit_error *error)
{
    if (sparse->keep[value.idx] == NULL) {
        const size_t count =
            (size_t)sbit_tensor_count(&sbit_graph_value(sparse->graph, value)->constant);
        uint8_t *mask = (uint8_t *)sbit__arena_alloc(&sparse->arena, count + 1);
        if (mask == NULL) {
            return sbit__fail_oom(error, count);
        }
        memset(mask, 1, count);
        sparse->keep[value.idx] = mask;
    }
    *keep = sparse->keep[value.idx];
    return SBIT_OK;
}

/* Index `index` of an axis (in part `index / length` of axis 0, if there are several). */
static bool sbit__mask_element_is(const sbit_tensor *tensor, const sbit__member *member,
                                  int64_t element, int64_t index)
{
    const int64_t length = member->count / member->parts;
    int64_t inner = 1;
    for (int32_t i = member->axis + 1; i < tensor->rank; i++) {
        inner *= tensor->dims[i];
    }
    const int64_t part = member->parts > 1
                             ? element / (sbit_tensor_count(tensor) / tensor->dims[0]) /
                                   (tensor->dims[0] / member->parts)
                             : 0;
    return part * length + element / inner % tensor->dims[member->axis] == index;
}

static sbit_status sbit__mask_index(sbit_sparse *sparse, const sbit__member *member, int64_t index,
                                    sbit_error *error)
{
    const sbit_tensor *tensor = &sbit_graph_value(sparse->graph, member->value)->constant;
    const sbit_parts parts = sbit_parts_of(tensor, member->axis, 0);
    uint8_t *keep = NULL;
    SBIT__TRY(sbit__mask_of(sparse, member->value, &keep, error));
    if (member->parts > 1) {
        for (int64_t e = 0; e < sbit_tensor_count(tensor); e++) {
            keep[e] = sbit__mask_element_is(tensor, member, e, index) ? 0 : keep[e];
        }
        return SBIT_OK;
    }
    const int64_t outer = parts.dims[0], inner = sbit_tensor_count(tensor) / outer / parts.dims[1];
    for (int64_t o = 0; o < outer; o++) {
        memset(keep + (o * parts.dims[1] + index) * inner, 0, (size_t)inner);
    }
    return SBIT_OK;
}

/* >>of single layers */

/* Row `row` of a layer, its bias, and the BatchNormalization that alone reads the layer. */
static sbit_status sbit__mask_row(sbit_sparse *sparse, const sbit__sparse_layer *layer, int64_t row,
                                  sbit_error *error)
{
    const sbit_graph *graph = sparse->graph;
    const sbit_node *node = sbit_graph_node(graph, sparse->labeler.members[layer->member].node);
    const sbit_node *norm = NULL;
    sbit_use use;
    SBIT__TRY(sbit__mask_index(sparse, &sparse->labeler.members[layer->member], row, error));
    if (!layer->settings.prune_bias) {
        return SBIT_OK;
    }
    if (layer->gamma != NULL && sbit_graph_uses(graph, node->outputs[0], &use, 1) == 1) {
        norm = sbit_graph_node(graph, use.node);
    }
    sbit_value_id none;
    none.idx = 0;
    const sbit_value_id values[3] = {
        node->input_count > 2 ? node->inputs[2] : none,
        norm != NULL ? norm->inputs[1] : none,
        norm != NULL ? norm->inputs[2] : none,
    };
    for (size_t i = 0; i < 3; i++) {
        const sbit_tensor *tensor =
            values[i].idx != 0 ? sbit__graph_constant(graph, values[i]) : NULL;
        uint8_t *keep = NULL;
        if (tensor != NULL && tensor->rank == 1 && tensor->dims[0] > row) {
            SBIT__TRY(sbit__mask_of(sparse, values[i], &keep, error));
            keep[row] = 0;
        }
    }
    return SBIT_OK;
}

/* Sets of rows that are ranked by themselves: the gates of LSTM, GRU and RNN; 0: the layer's rows are
 * no rows there, but columns of R, which its rows make. */
static int64_t sbit__mask_gates(const sbit_sparse *sparse, const sbit__sparse_layer *layer)
{
    const sbit__member *member = &sparse->labeler.members[layer->member];
    const sbit_node *node = sbit_graph_node(sparse->graph, member->node);
    if (!sbit__is_op(node, "LSTM") && !sbit__is_op(node, "GRU") && !sbit__is_op(node, "RNN")) {
        return 1;
    }
    const sbit_tensor *r = sbit__graph_constant(sparse->graph, node->inputs[2]);
    return member->axis != 1 ? 0 : r != NULL ? r->dims[1] / r->dims[2] : 1;
}

static sbit_status sbit__mask_rows(sbit_sparse *sparse, const sbit__sparse_layer *layer,
                                   sbit__arena *scratch, sbit_error *error)
{
    const int64_t gates = sbit__mask_gates(sparse, layer);
    for (int64_t g = 0; g < gates; g++) {
        const int64_t n = layer->units.count / gates;
        const int64_t count = (int64_t)floor(layer->settings.ratio * (double)n + 1e-9);
        sbit__rank *ranks = NULL;
        SBIT__TRY(sbit__ranks_of(layer->scores + g * n, n, scratch, &ranks, error));
        for (int64_t i = 0; i < n && (i < count || ranks[i].score == -HUGE_VAL); i++) {
            SBIT__TRY(sbit__mask_row(sparse, layer, g * n + ranks[i].index, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__mask_layer(sbit_sparse *sparse, const sbit__sparse_layer *layer,
                                    sbit__arena *scratch, sbit_error *error)
{
    uint8_t *keep = NULL;
    if (layer->settings.structured) {
        return sbit__mask_rows(sparse, layer, scratch, error);
    }
    SBIT__TRY(sbit__mask_of(sparse, sparse->labeler.members[layer->member].value, &keep, error));
    return sbit__mask_elements(layer, keep, scratch, error);
}

/* Layers that are ranked together, rows or elements: as many go as their ratios add up to, the
 * smallest first, but of no layer more than its MAX_RATIO. */
static sbit_status sbit__mask_together(sbit_sparse *sparse, bool structured, sbit__arena *scratch,
                                       sbit_error *error)
{
    int64_t total = 0, done = 0;
    double share = 0.0;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit__sparse_layer *layer = &sparse->layers[i];
        if (sbit__sparse_layer_together(layer, structured)) {
            total += layer->units.count;
            share += layer->settings.ratio * (double)layer->units.count;
        }
    }
    double *scores = (double *)sbit__arena_array(scratch, (size_t)total + 1, sizeof *scores);
    int32_t *from = (int32_t *)sbit__arena_array(scratch, (size_t)total + 1, sizeof *from);
    int64_t *gone =
        (int64_t *)sbit__arena_array(scratch, 2 * sparse->layer_count + 1, sizeof *gone);
    sbit__rank *ranks = NULL;
    if (scores == NULL || from == NULL || gone == NULL) {
        return sbit__fail_oom(error, (size_t)total * sizeof *scores);
    }
    int64_t *first = gone + sparse->layer_count, n = 0;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit__sparse_layer *layer = &sparse->layers[i];
        first[i] = n;
        for (int64_t k = 0;
             sbit__sparse_layer_together(layer, structured) && k < layer->units.count; k++) {
            from[n] = (int32_t)i;
            scores[n++] = layer->scores[k];
        }
    }
    SBIT__TRY(sbit__ranks_of(scores, n, scratch, &ranks, error));
    const int64_t wanted = (int64_t)floor(share + 1e-6);
    for (int64_t r = 0; r < n && done < wanted; r++) {
        const int32_t i = from[ranks[r].index];
        const sbit__sparse_layer *layer = &sparse->layers[i];
        const int64_t k = ranks[r].index - first[i];
        uint8_t *keep = NULL;
        if ((double)(gone[i] + 1) >
            layer->settings.max_ratio * (double)layer->units.count + 1e-9) {
            continue;
        }
        gone[i]++;
        done++;
        if (structured) {
            SBIT__TRY(sbit__mask_row(sparse, layer, k, error));
        } else {
            SBIT__TRY(
                sbit__mask_of(sparse, sparse->labeler.members[layer->member].value, &keep, error));
            keep[k] = 0;
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__masks_by_layer(sbit_sparse *sparse, bool channels, sbit_error *error)
{
    sbit__arena scratch;
    sbit_status status = SBIT_OK;
    sbit__arena_init(&scratch, sbit_ctx_allocator(sparse->ctx));
    for (size_t i = 0; status == SBIT_OK && i < sparse->layer_count; i++) {
        const sbit__sparse_layer *layer = &sparse->layers[i];
        if (sbit__sparse_layer_active(layer) && layer->row->update == NULL &&
            !layer->settings.whole_model && (channels || !layer->settings.structured)) {
            status = sbit__mask_layer(sparse, layer, &scratch, error);
        }
    }
    status = status == SBIT_OK ? sbit__mask_together(sparse, false, &scratch, error) : status;
    if (status == SBIT_OK && channels) {
        status = sbit__mask_together(sparse, true, &scratch, error);
    }
    sbit__arena_deinit(&scratch);
    return status;
}

/* >>of classes */

/* What is added to a layer's output is its bias. */
static bool sbit__mask_is_added(const sbit_graph *graph, sbit_value_id value)
{
    sbit_use use;
    if (sbit_graph_uses(graph, value, &use, 1) == 0 || use.node.idx == 0 || use.body != NULL) {
        return false;
    }
    const sbit_node *node = sbit_graph_node(graph, use.node);
    return sbit__streq(node->op_type, "Add") || sbit__streq(node->op_type, "Sum") ||
           (sbit__streq(node->op_type, "Sub") && use.index == 1);
}

/* The label goes; zeroed: and what is added there becomes 0 too (PRUNE_BIAS of its group). */
static bool sbit__mask_goes(const sbit_sparse *sparse, int32_t label, bool zeroed)
{
    const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, label);
    return c >= 0 && sparse->removed[c] &&
           (!zeroed || sparse->groups.groups[sparse->groups.classes[c].group].prune_bias);
}

SBIT__FN sbit_status sbit__masks_by_class(sbit_sparse *sparse, sbit_error *error)
{
    const sbit__labeler *labeler = &sparse->labeler;
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        const uint32_t zeroed = 1u << SBIT_ROLE_BIAS | 1u << SBIT_ROLE_SCALE;
        const bool prunes = sbit__member_prunes(member);
        for (int64_t i = 0; (prunes || (member->roles & zeroed) != 0) && i < member->count; i++) {
            if (sbit__mask_goes(sparse, member->labels[i], !prunes)) {
                SBIT__TRY(sbit__mask_index(sparse, member, i, error));
            }
        }
    }
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        const sbit__channel_labels *labels = &labeler->of[v];
        sbit__member member;
        sbit_value_id id;
        id.idx = v;
        if (labels->form != SBIT__LABELS_AXIS || !sbit_graph_value_alive(sparse->graph, id) ||
            !sbit_graph_value(sparse->graph, id)->is_constant ||
            !sbit__mask_is_added(sparse->graph, id)) {
            continue;
        }
        memset(&member, 0, sizeof member);
        member.value = id;
        member.axis = labels->axis;
        member.parts = 1;
        member.count = labels->dims[labels->axis];
        for (int64_t i = 0; i < member.count; i++) {
            if (sbit__mask_goes(sparse, labels->at[i], true)) {
                SBIT__TRY(sbit__mask_index(sparse, &member, i, error));
            }
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__masks_start(sbit_sparse *sparse, sbit_error *error)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        sbit_value_id id;
        uint8_t *keep = NULL;
        id.idx = v;
        if (sparse->start[v] != NULL) {
            SBIT__TRY(sbit__mask_of(sparse, id, &keep, error));
            const int64_t n = sbit_tensor_count(&sbit_graph_value(sparse->graph, id)->constant);
            for (int64_t i = 0; i < n; i++) {
                keep[i] = sparse->start[v][i] != 0 ? keep[i] : 0;
            }
        }
    }
    return SBIT_OK;
}

SBIT__FN bool sbit__mask_is_empty(const sbit_sparse *sparse, const sbit__member *member,
                                  int64_t index)
{
    const sbit_tensor *tensor = &sbit_graph_value(sparse->graph, member->value)->constant;
    const sbit_parts parts = sbit_parts_of(tensor, member->axis, 0);
    const uint8_t *keep = sparse->keep[member->value.idx];
    const int64_t outer = parts.dims[0], inner = sbit_tensor_count(tensor) / outer / parts.dims[1];
    for (int64_t o = 0; keep != NULL && o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            if (keep[(o * parts.dims[1] + index) * inner + i] != 0) {
                return false;
            }
        }
    }
    return keep != NULL;
}

SBIT__FN void sbit__masks_to_classes(sbit_sparse *sparse)
{
    const sbit__labeler *labeler = &sparse->labeler;
    for (int32_t c = 0; c < sparse->groups.class_count; c++) {
        sparse->removed[c] = sparse->groups.classes[c].removable && sparse->kept_why[c] == NULL;
    }
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        for (int64_t i = 0; sbit__member_prunes(member) && i < member->count; i++) {
            const int32_t c = sbit__class_of(labeler, &sparse->groups, member->labels[i]);
            if (c >= 0 && sparse->removed[c]) {
                sparse->removed[c] = sbit__mask_is_empty(sparse, member, i);
            }
        }
    }
}

SBIT__FN sbit_status sbit__masks_apply(const sbit_sparse *sparse, sbit_graph *graph,
                                       sbit_error *error)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        const uint8_t *keep = sparse->keep[v];
        sbit_value_id id;
        sbit_tensor copy;
        bool all = true;
        id.idx = v;
        if (keep == NULL || sparse->masks_off) {
            continue;
        }
        const sbit_tensor *constant = &sbit_graph_value(graph, id)->constant;
        const int64_t count = sbit_tensor_count(constant);
        const size_t each = count > 0 ? sbit_tensor_bytes(constant) / (size_t)count : 0;
        for (int64_t i = 0; all && i < count; i++) {
            all = keep[i] != 0;
        }
        if (all) {
            continue;
        }
        SBIT__TRY(sbit__tensor_copy(sparse->ctx, constant, &copy, error));
        for (int64_t i = 0; i < count; i++) {
            if (keep[i] == 0) {
                memset((uint8_t *)copy.data + (size_t)i * each, 0, each);
            }
        }
        const sbit_status status = sbit_graph_set_constant(graph, id, &copy, error);
        sbit_tensor_free(sparse->ctx, &copy);
        SBIT__TRY(status);
    }
    return SBIT_OK;
}
