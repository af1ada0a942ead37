/* sensitivity.c: what the outputs lose when one group of channels, or the elements of one layer, is
 * pruned alone. >>sparse-sensitivity
 */
#include "sparse_private.h"

/* What is pruned alone: a group, or one layer whose settings say single elements. */
typedef struct sbit__alone {
    int32_t group; /* -1: a layer */
    size_t layer;
} sbit__alone;

SBIT__FN bool sbit__layer_in_group(const sbit_sparse *sparse, const sbit__sparse_layer *layer,
                                   int32_t group)
{
    const sbit__member *member = &sparse->labeler.members[layer->member];
    for (int64_t r = 0; layer->settings.structured && r < member->count; r++) {
        const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, member->labels[r]);
        if (c >= 0 && sparse->groups.classes[c].group == group) {
            return true;
        }
    }
    return false;
}

static bool sbit__alone_has(const sbit_sparse *sparse, const sbit__alone *alone, size_t index)
{
    return alone->group < 0
               ? index == alone->layer
               : sbit__layer_in_group(sparse, &sparse->layers[index], alone->group);
}

/* One of them can be pruned: it has a channel that may go, and a layer that chooses among them. */
static bool sbit__alone_can(const sbit_sparse *sparse, const sbit__alone *alone)
{
    if (alone->group < 0) {
        return !sparse->layers[alone->layer].settings.structured;
    }
    for (size_t i = 0; sparse->groups.groups[alone->group].reason == NULL && i < sparse->layer_count;
         i++) {
        if (sbit__alone_has(sparse, alone, i)) {
            return true;
        }
    }
    return false;
}

static int64_t sbit__alone_kept(const sbit_sparse *sparse, const sbit__alone *alone, int64_t *all)
{
    int64_t kept = 0;
    if (alone->group < 0) {
        const uint8_t *keep =
            sparse->keep[sparse->labeler.members[sparse->layers[alone->layer].member].value.idx];
        *all = sparse->layers[alone->layer].units.count;
        for (int64_t i = 0; i < *all; i++) {
            kept += keep == NULL || keep[i] != 0 ? 1 : 0;
        }
        return kept;
    }
    const sbit__group *group = &sparse->groups.groups[alone->group];
    *all = group->class_count;
    for (int32_t i = 0; i < group->class_count; i++) {
        kept += sparse->removed[group->classes[i]] ? 0 : 1;
    }
    return kept;
}

static sbit_status sbit__alone_point(sbit_sparse *sparse, const sbit__alone *alone,
                                     const sbit_feed *feed, sbit_graph *before,
                                     sbit_sparse_loss *out, sbit_error *error)
{
    sbit_graph *now = NULL;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sparse->layers[i].settings.ratio = sbit__alone_has(sparse, alone, i) ? out->ratio : 0.0;
    }
    SBIT__TRY(sbit_sparse_select(sparse, feed, error));
    out->kept = sbit__alone_kept(sparse, alone, &out->count);
    SBIT__TRY(sbit_sparse_masked(sparse, &now, error));
    const sbit_status status = sbit__repair_compare(sparse, feed, before, now, &out->sqnr, error);
    sbit_graph_destroy(now);
    return status;
}

static sbit_status sbit__alone_all(sbit_sparse *sparse, const sbit_feed *feed,
                                   const double *ratios, size_t ratio_count, sbit_graph *before,
                                   sbit_sparse_loss *out, size_t capacity, size_t *count,
                                   sbit_error *error)
{
    const size_t groups = (size_t)sparse->groups.group_count;
    for (size_t i = 0; i < groups + sparse->layer_count; i++) {
        sbit__alone alone;
        alone.group = i < groups ? (int32_t)i : -1;
        alone.layer = i < groups ? 0 : i - groups;
        for (size_t r = 0; sbit__alone_can(sparse, &alone) && r < ratio_count; r++) {
            if (*count == capacity) {
                return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "more than %lu points",
                                  (unsigned long)capacity);
            }
            sbit_sparse_loss *point = &out[(*count)++];
            point->layers =
                i < groups ? sparse->group_names[i] : sparse->layers[alone.layer].name;
            point->ratio = ratios[r];
            SBIT__TRY(sbit__alone_point(sparse, &alone, feed, before, point, error));
        }
        SBIT__TRY(sbit__progress(sparse->ctx, "analyze", (int64_t)i + 1,
                                 (int64_t)(groups + sparse->layer_count), error));
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sparse_analyze(sbit_sparse *sparse, const sbit_feed *feed,
                                              const double *ratios, size_t ratio_count,
                                              sbit_sparse_loss *out, size_t capacity,
                                              size_t *count, sbit_error *error)
{
    sbit_graph *before = NULL;
    if (feed == NULL || ratios == NULL || out == NULL || count == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "feed, ratios, out or count is NULL");
    }
    *count = 0;
    SBIT__TRY(sbit__sparse_restore(sparse, error));
    SBIT__TRY(sbit_graph_clone(sparse->graph, &before, error));
    const sbit_status status = sbit__alone_all(sparse, feed, ratios, ratio_count, before, out,
                                               capacity, count, error);
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sparse->layers[i].settings.ratio = sparse->layers[i].target;
    }
    sbit__masks_clear(sparse);
    sbit__groups_limit(sparse);
    sbit_graph_destroy(before);
    return status;
}
