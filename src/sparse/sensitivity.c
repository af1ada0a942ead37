/* sensitivity.c: what the outputs lose when one group of channels, or the elements of one layer, is
 * pruned alone. >>sparse-sensitivity
 */
#include "sparse_private.h"

static bool sbit__layer_in_group(const sbit_sparse *sparse, const sbit__sparse_layer *layer,
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

SBIT__FN bool sbit__alone_has(const sbit_sparse *sparse, const sbit__alone *alone, size_t index)
{
    return alone->group < 0
               ? index == alone->layer
               : sbit__layer_in_group(sparse, &sparse->layers[index], alone->group);
}

/* It can be pruned: it has a channel that may go, a layer chooses among them, and none is spared. */
static bool sbit__alone_can(const sbit_sparse *sparse, const sbit__alone *alone)
{
    bool any = false;
    if (alone->group < 0) {
        const sbit__sparse_layer *layer = &sparse->layers[alone->layer];
        return !layer->settings.structured && !layer->spared;
    }
    for (size_t i = 0; sparse->groups.groups[alone->group].reason == NULL && i < sparse->layer_count;
         i++) {
        if (sbit__alone_has(sparse, alone, i)) {
            any = true;
            if (sparse->layers[i].spared) {
                return false;
            }
        }
    }
    return any;
}

SBIT__FN sbit_status sbit__alone_list(const sbit_sparse *sparse, sbit__arena *arena,
                                      sbit__alone **out, size_t *count, sbit_error *error)
{
    const size_t groups = (size_t)sparse->groups.group_count, all = groups + sparse->layer_count;
    *count = 0;
    *out = (sbit__alone *)sbit__arena_array(arena, all + 1, sizeof **out);
    if (*out == NULL) {
        return sbit__fail_oom(error, all * sizeof **out);
    }
    for (size_t i = 0; i < all; i++) {
        sbit__alone *alone = &(*out)[*count];
        alone->group = i < groups ? (int32_t)i : -1;
        alone->layer = i < groups ? 0 : i - groups;
        *count += sbit__alone_can(sparse, alone) ? 1u : 0u;
    }
    return SBIT_OK;
}

SBIT__FN const char *sbit__alone_name(const sbit_sparse *sparse, const sbit__alone *alone)
{
    return alone->group >= 0 ? sparse->group_names[alone->group] : sparse->layers[alone->layer].name;
}

SBIT__FN void sbit__alone_set(sbit_sparse *sparse, const sbit__alone *units, size_t count,
                              const double *ratios)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        double ratio = 0.0;
        for (size_t u = 0; u < count; u++) {
            const bool more = ratios[u] > ratio && sbit__alone_has(sparse, &units[u], i);
            ratio = more ? ratios[u] : ratio;
        }
        sparse->layers[i].settings.ratio = ratio;
    }
    sparse->trying = true;
}

SBIT__FN sbit_status sbit__alone_forget(sbit_sparse *sparse, sbit_error *error)
{
    sparse->trying = false;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sparse->layers[i].settings.ratio = sparse->layers[i].target;
    }
    sbit__masks_clear(sparse);
    sbit__groups_limit(sparse);
    return sbit__sparse_restore(sparse, error);
}

SBIT__FN int64_t sbit__alone_kept(const sbit_sparse *sparse, const sbit__alone *alone, int64_t *all)
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
    sbit__alone_set(sparse, alone, 1, &out->ratio);
    SBIT__TRY(sbit_sparse_select(sparse, feed, error));
    out->kept = sbit__alone_kept(sparse, alone, &out->count);
    SBIT__TRY(sbit_sparse_masked(sparse, &now, error));
    const sbit_status status = sbit__repair_compare(sparse, feed, before, now, &out->sqnr, error);
    sbit_graph_destroy(now);
    return status;
}

static sbit_status sbit__alone_all(sbit_sparse *sparse, const sbit_feed *feed,
                                   const double *ratios, size_t ratio_count, sbit_graph *before,
                                   sbit__arena *arena, sbit_sparse_loss *out, size_t capacity,
                                   size_t *count, sbit_error *error)
{
    sbit__alone *units = NULL;
    size_t unit_count = 0;
    SBIT__TRY(sbit__alone_list(sparse, arena, &units, &unit_count, error));
    for (size_t i = 0; i < unit_count; i++) {
        for (size_t r = 0; r < ratio_count; r++) {
            if (*count == capacity) {
                return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "more than %lu points",
                                  (unsigned long)capacity);
            }
            sbit_sparse_loss *point = &out[(*count)++];
            point->layers = sbit__alone_name(sparse, &units[i]);
            point->ratio = ratios[r];
            SBIT__TRY(sbit__alone_point(sparse, &units[i], feed, before, point, error));
        }
        SBIT__TRY(sbit__progress(sparse->ctx, "analyze", (int64_t)i + 1, (int64_t)unit_count, error));
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sparse_analyze(sbit_sparse *sparse, const sbit_feed *feed,
                                              const double *ratios, size_t ratio_count,
                                              sbit_sparse_loss *out, size_t capacity,
                                              size_t *count, sbit_error *error)
{
    sbit_graph *before = NULL;
    sbit__arena arena;
    if (feed == NULL || ratios == NULL || out == NULL || count == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "feed, ratios, out or count is NULL");
    }
    *count = 0;
    SBIT__TRY(sbit__sparse_restore(sparse, error));
    SBIT__TRY(sbit_graph_clone(sparse->graph, &before, error));
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    const sbit_status status = sbit__alone_all(sparse, feed, ratios, ratio_count, before, &arena, out,
                                               capacity, count, error);
    sbit__arena_deinit(&arena);
    const sbit_status back = sbit__alone_forget(sparse, status == SBIT_OK ? error : NULL);
    sbit_graph_destroy(before);
    return status == SBIT_OK ? back : status;
}
