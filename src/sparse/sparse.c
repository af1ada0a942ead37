/* sparse.c: the public steps of pruning. >>sparse
 */
#include "../passes/passes_api.h"
#include "sparse_private.h"

#include <math.h> /* isfinite */

/* >>create */

/* Names of the layers that make a group's channels. */
static const char *sbit__sparse_group_name(sbit_sparse *sparse, const sbit__group *group)
{
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(sparse->ctx));
    for (int32_t i = 0; i < group->maker_count; i++) {
        const sbit__member *member = &sparse->labeler.members[group->makers[i]];
        char name[128];
        sbit_layer_name(sparse->graph, member->node, name, sizeof name);
        bool known = false; /* an LSTM has several members */
        for (int32_t k = 0; k < i; k++) {
            known = known || sparse->labeler.members[group->makers[k]].node.idx == member->node.idx;
        }
        if (!known) {
            sbit__text_printf(&text, "%s%s", text.size > 0 ? ", " : "", name);
        }
    }
    const char *out = text.failed || text.data == NULL
                          ? NULL
                          : sbit__arena_printf(&sparse->arena, "%s", text.data);
    sbit__text_deinit(&text);
    return out;
}

static sbit_status sbit__sparse_arrays(sbit_sparse *sparse, sbit_error *error)
{
    const size_t values = sbit_graph_value_limit(sparse->graph);
    const size_t classes = (size_t)sparse->groups.class_count + 1;
    const size_t groups = (size_t)sparse->groups.group_count + 1;
    sbit__arena *arena = &sparse->arena;
    sparse->keep = (uint8_t **)sbit__arena_array(arena, values, sizeof(uint8_t *));
    sparse->start = (uint8_t **)sbit__arena_array(arena, values, sizeof(uint8_t *));
    sparse->was = (sbit_tensor *)sbit__arena_array(arena, values, sizeof(sbit_tensor));
    sparse->in_original = (bool *)sbit__arena_array(arena, values, sizeof(bool));
    sparse->marks = (bool *)sbit__arena_array(arena, values, sizeof(bool));
    sparse->removed = (bool *)sbit__arena_array(arena, classes, sizeof(bool));
    sparse->kept_why = (const char **)sbit__arena_array(arena, classes, sizeof(char *));
    sparse->group_names = (const char **)sbit__arena_array(arena, groups, sizeof(char *));
    if (sparse->keep == NULL || sparse->start == NULL || sparse->was == NULL || sparse->in_original == NULL ||
        sparse->marks == NULL || sparse->removed == NULL || sparse->kept_why == NULL ||
        sparse->group_names == NULL) {
        return sbit__fail_oom(error, values * sizeof(uint8_t *));
    }
    for (int32_t g = 0; g < sparse->groups.group_count; g++) {
        sparse->group_names[g] = sbit__sparse_group_name(sparse, &sparse->groups.groups[g]);
        if (sparse->group_names[g] == NULL) {
            return sbit__fail_oom(error, 128);
        }
    }
    return SBIT_OK;
}

/* PRUNE_OUTPUTS, each of which is an output. */
static sbit_status sbit__sparse_outputs(sbit_sparse *sparse, const sbit_sconfig *config,
                                        sbit_error *error)
{
    const char *list = sbit_options_string(sbit__sconfig_options(config), "PRUNE_OUTPUTS");
    sparse->outputs = sbit__arena_printf(&sparse->arena, "%s", list);
    if (sparse->outputs == NULL) {
        return sbit__fail_oom(error, strlen(list));
    }
    for (const char *at = list; *at != '\0';) {
        const size_t size = strcspn(at, ",");
        bool found = size == 3 && strncmp(at, "all", 3) == 0;
        for (size_t i = 0; i < sbit_graph_output_count(sparse->graph) && !found; i++) {
            const char *name =
                sbit_graph_value(sparse->graph, sbit_graph_output(sparse->graph, i))->name;
            found = size == strlen(name) && strncmp(at, name, size) == 0;
        }
        if (!found) {
            return sbit__fail(error, SBIT_ERR_CONFIG, list,
                              "SPARSER.PRUNE_OUTPUTS: the model has no output '%.*s'", (int)size,
                              at);
        }
        at += size + (at[size] == ',' ? 1 : 0);
    }
    return SBIT_OK;
}

static sbit_status sbit__sparse_fill(sbit_sparse *sparse, const sbit_graph *graph,
                                     sbit_sconfig *config, sbit_error *error)
{
    static const char *const skipped[] = {"merge_duplicates"};
    sbit_simplify_desc simplify;
    memset(&simplify, 0, sizeof simplify);
    simplify.keep_batch_norm = true;
    simplify.skip = skipped;
    simplify.skip_count = 1;
    SBIT__TRY(sbit_graph_clone(graph, &sparse->original, error));
    SBIT__TRY(sbit_graph_clone(graph, &sparse->graph, error));
    SBIT__TRY(sbit__packed_unpack(sparse, error));
    SBIT__TRY(sbit_simplify(sparse->graph, &simplify, NULL, error));
    SBIT__TRY(sbit__sparse_prepare(sparse->graph, &sparse->arena, error));
    SBIT__TRY(sbit__packed_open(sparse, error));
    SBIT__TRY(sbit__options_copy(&sparse->arena, sbit__sconfig_options(config), &sparse->options,
                                 error));
    SBIT__TRY(sbit__sparse_outputs(sparse, config, error));
    SBIT__TRY(sbit__labeler_run(&sparse->labeler, sparse->graph, sparse->outputs,
                                sbit_options_bool(&sparse->options, "INEXACT_NORM"), &sparse->arena,
                                error));
    sbit__packed_join(sparse);
    SBIT__TRY(sbit__groups_make(&sparse->labeler, &sparse->groups, error));
    SBIT__TRY(sbit__sparse_arrays(sparse, error));
    sbit__originals_find(sparse);
    SBIT__TRY(sbit__layers_make(sparse, config, error));
    sbit__groups_limit(sparse);
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sparse_create(const sbit_graph *graph, sbit_sconfig *config,
                                             sbit_sparse **out, sbit_error *error)
{
    if (graph == NULL || config == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "graph, config or out is NULL");
    }
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    const sbit_allocator *a = sbit_ctx_allocator(ctx);
    sbit_sparse *sparse = (sbit_sparse *)sbit__calloc(a, 1, sizeof *sparse);
    if (sparse == NULL) {
        return sbit__fail_oom(error, sizeof *sparse);
    }
    sparse->ctx = ctx;
    sparse->config = sbit__sconfig_hold(config);
    sbit__arena_init(&sparse->arena, a);
    sbit__arena_init(&sparse->folded.arena, a);
    sbit__arena_init(&sparse->reasons, a);
    const sbit_status status = sbit__sparse_fill(sparse, graph, config, error);
    if (status != SBIT_OK) {
        sbit_sparse_destroy(sparse);
        return status;
    }
    *out = sparse;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_sparse_destroy(sbit_sparse *sparse)
{
    if (sparse != NULL) {
        for (uint32_t v = 1; sparse->was != NULL && v < sbit_graph_value_limit(sparse->graph); v++) {
            sbit_tensor_free(sparse->ctx, &sparse->was[v]);
        }
        while (sparse->collectors != NULL) {
            sbit_sparse_remove_collector(sparse, sparse->collectors->id);
        }
        sbit__layers_free(sparse);
        sbit__labeler_deinit(&sparse->labeler);
        sbit__arena_deinit(&sparse->arena);
        sbit__arena_deinit(&sparse->folded.arena);
        sbit__arena_deinit(&sparse->reasons);
        sbit_graph_destroy(sparse->graph);
        sbit_graph_destroy(sparse->original);
        sbit_sconfig_destroy(sparse->config);
        sbit__free(sbit_ctx_allocator(sparse->ctx), sparse, sizeof *sparse);
    }
}

SPARSEBIT_API const sbit_graph *sbit_sparse_graph(const sbit_sparse *sparse)
{
    return sparse->graph;
}

/* >>ratios */

SPARSEBIT_API sbit_status sbit_sparse_set_ratio(sbit_sparse *sparse, const char *pattern,
                                                double ratio, sbit_error *error)
{
    size_t found = 0;
    if (pattern == NULL || !(ratio >= 0.0 && ratio <= 1.0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, pattern, "ratio %g is not in 0 to 1",
                          ratio);
    }
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        const sbit__member *member = &sparse->labeler.members[layer->member];
        if (sbit_layer_matches(sparse->graph, member->node, pattern)) {
            layer->settings.ratio = layer->target = ratio;
            layer->spared = ratio == 0.0;
            layer->given = true;
            found++;
        }
    }
    if (found == 0) {
        char nearest[200];
        sbit_layer_suggest(sparse->graph, pattern, nearest, sizeof nearest);
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, pattern, "no layer matches '%s'%s%s", pattern,
                          nearest[0] != '\0' ? "; near to it: " : "", nearest);
    }
    sbit__groups_limit(sparse);
    return SBIT_OK;
}

/* An Add or Sum of computed values reads the input, maybe behind nodes that are no layers. */
static bool sbit__sparse_reaches_add(const sbit_node *node, size_t input, const bool *reaches,
                                     const void *user)
{
    const sbit_sparse *sparse = (const sbit_sparse *)user;
    const bool sum = sbit__streq(node->op_type, "Add") || sbit__streq(node->op_type, "Sum");
    bool constant = false, layer = false;
    (void)input;
    for (size_t k = 0; k < node->input_count; k++) {
        constant = constant || (node->inputs[k].idx != 0 &&
                                sbit_graph_value(sparse->graph, node->inputs[k])->is_constant);
    }
    for (size_t k = 0; k < sparse->layer_count; k++) {
        layer = layer || sparse->labeler.members[sparse->layers[k].member].node.idx == node->id.idx;
    }
    return (sum && !constant) ||
           (!layer && node->output_count > 0 && reaches[node->outputs[0].idx]);
}

SPARSEBIT_API void sbit_sparse_disable_sparse_before_add(sbit_sparse *sparse)
{
    bool *reaches = sparse->marks;
    memset(reaches, 0, sbit_graph_value_limit(sparse->graph) * sizeof *reaches);
    sbit__graph_mark_back(sparse->graph, reaches, sbit__sparse_reaches_add, sparse);
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit__member *member = &sparse->labeler.members[sparse->layers[i].member];
        if (reaches[sbit_graph_node(sparse->graph, member->node)->outputs[0].idx]) {
            sparse->layers[i].settings.ratio = sparse->layers[i].target = 0.0;
            sparse->layers[i].spared = sparse->layers[i].given = true;
        }
    }
    sbit__groups_limit(sparse);
}

/* >>masks */

SPARSEBIT_API sbit_status sbit_sparse_calc_params(sbit_sparse *sparse, const sbit_feed *feed,
                                                  sbit_error *error)
{
    SBIT__TRY(sbit__sparse_restore(sparse, error));
    SBIT__TRY(sbit__layers_score(sparse, feed, error));
    sbit__masks_clear(sparse);
    sparse->masks_fit = false;
    SBIT__TRY(sbit__masks_by_layer(sparse, true, error));
    SBIT__TRY(sbit__masks_start(sparse, error));
    return sbit__layers_update(sparse, feed, error);
}

static sbit_status sbit__sparse_masked_graph(const sbit_sparse *sparse, sbit_graph **out,
                                             sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit_graph_clone(sparse->graph, &graph, error));
    const sbit_status status = sbit__masks_apply(sparse, graph, error);
    if (status != SBIT_OK) {
        sbit_graph_destroy(graph);
        return status;
    }
    *out = graph;
    return SBIT_OK;
}

static bool sbit__sparse_removes(const sbit_sparse *sparse)
{
    for (int32_t c = 0; c < sparse->groups.class_count; c++) {
        if (sparse->removed[c]) {
            return true;
        }
    }
    return false;
}

static void sbit__sparse_forget_reasons(sbit_sparse *sparse)
{
    memset((void *)sparse->kept_why, 0,
           (size_t)sparse->groups.class_count * sizeof *sparse->kept_why);
    sbit__arena_deinit(&sparse->reasons);
    sbit__arena_init(&sparse->reasons, sbit_ctx_allocator(sparse->ctx));
}

/* One try at what goes; *again: some of it cannot. */
static sbit_status sbit__sparse_try(sbit_sparse *sparse, bool *again, sbit_error *error)
{
    sbit_graph *masked = NULL;
    *again = false;
    sbit__masks_clear(sparse);
    SBIT__TRY(sbit__select_classes(sparse, error));
    SBIT__TRY(sbit__masks_by_layer(sparse, false, error));
    SBIT__TRY(sbit__masks_by_class(sparse, error));
    SBIT__TRY(sbit__masks_start(sparse, error));
    if (!sbit__sparse_removes(sparse)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__sparse_masked_graph(sparse, &masked, error));
    const sbit_status status =
        sbit__folded_run(sparse, masked, &sparse->folded, error);
    *again = status == SBIT_OK && sbit__folded_check(sparse, masked, &sparse->folded);
    sbit_graph_destroy(masked);
    return status;
}

SBIT__FN sbit_status sbit__sparse_choose(sbit_sparse *sparse, const sbit_feed *feed,
                                         sbit_error *error)
{
    SBIT__TRY(sbit__sparse_restore(sparse, error));
    sbit__sparse_forget_reasons(sparse);
    sparse->masks_fit = true;
    for (bool again = true; again;) { /* each turn keeps a class for good: it ends */
        SBIT__TRY(sbit__sparse_try(sparse, &again, error));
    }
    return sbit__layers_update(sparse, feed, error);
}

SPARSEBIT_API sbit_status sbit_sparse_select(sbit_sparse *sparse, const sbit_feed *feed,
                                             sbit_error *error)
{
    SBIT__TRY(sbit__sparse_restore(sparse, error));
    SBIT__TRY(sbit__layers_score(sparse, feed, error));
    return sbit__sparse_choose(sparse, feed, error);
}

SPARSEBIT_API sbit_status sbit_sparse_set_weight(sbit_sparse *sparse, const char *name,
                                                 const sbit_tensor *weight, sbit_error *error)
{
    if (name == NULL || weight == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "name or weight is NULL");
    }
    const sbit_value_id id = sbit_graph_find_value(sparse->graph, name);
    if (id.idx == 0 || !sbit_graph_value(sparse->graph, id)->is_constant) {
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, name, "no constant is called '%s'", name);
    }
    const sbit_tensor *old = &sbit_graph_value(sparse->graph, id)->constant;
    if (old->dtype != weight->dtype || !sbit_tensor_same_shape(old, weight)) {
        char had[80], has[80];
        sbit_tensor_describe(old, had, sizeof had);
        sbit_tensor_describe(weight, has, sizeof has);
        return sbit__fail(error, SBIT_ERR_SHAPE, name, "'%s' is %s, not %s", name, had, has);
    }
    sparse->masks_fit = false; /* what removed channels are may have changed */
    sbit_tensor_free(sparse->ctx, &sparse->was[id.idx]);
    if (sparse->original != NULL && sparse->in_original[id.idx]) {
        SBIT__TRY(sbit__originals_put(sparse, sparse->original, id, weight, error));
    } else {
        sbit_graph_destroy(sparse->original);
        sparse->original = NULL;
    }
    return sbit_graph_set_constant(sparse->graph, id, weight, error);
}

SPARSEBIT_API sbit_status sbit_sparse_step(sbit_sparse *sparse, int64_t step, int64_t total,
                                           const sbit_feed *feed, sbit_error *error)
{
    sbit_status status;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        const sbit_sparsity_row *row =
            sbit_sparsity_find(sparse->ctx, sbit_options_string(&layer->options, "SCHEDULE"));
        const double from = sbit_options_float(&layer->options, "INITIAL");
        const double to = layer->target;
        layer->settings.ratio =
            to > 0.0 ? row->at(&layer->options, step, total, from < to ? from : to, to) : 0.0;
        layer->call.progress = row->at(&layer->options, step, total, 0.0, 1.0);
        layer->settings.threshold = layer->call.progress * layer->threshold;
        layer->settings.min_ratio = layer->call.progress * layer->min_ratio;
    }
    sparse->stepping = step > 0 ? 2 : 1;
    status = sbit_sparse_select(sparse, feed, error);
    sparse->stepping = 0;
    return status;
}

SPARSEBIT_API size_t sbit_sparse_mask_count(const sbit_sparse *sparse)
{
    size_t count = 0;
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        count += sparse->keep[v] != NULL ? 1 : 0;
    }
    return count;
}

SPARSEBIT_API sbit_status sbit_sparse_mask(const sbit_sparse *sparse, size_t index, sbit_mask *out)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        if (sparse->keep[v] == NULL || index-- > 0) {
            continue;
        }
        out->value.idx = v;
        out->name = sbit_graph_value(sparse->graph, out->value)->name;
        out->layer = sbit__mask_reader(sparse, out->value, &out->part);
        out->count = sbit_tensor_count(&sbit_graph_value(sparse->graph, out->value)->constant);
        out->keep = sparse->keep[v];
        out->kept = 0;
        for (int64_t i = 0; i < out->count; i++) {
            out->kept += out->keep[i] != 0 ? 1 : 0;
        }
        return SBIT_OK;
    }
    return SBIT_ERR_NOT_FOUND;
}

SPARSEBIT_API sbit_status sbit_sparse_set_mask(sbit_sparse *sparse, const char *name,
                                               const uint8_t *keep, int64_t count,
                                               sbit_error *error)
{
    sbit_mask mask;
    memset(&mask, 0, sizeof mask);
    mask.name = name;
    mask.keep = keep;
    mask.count = count;
    return sbit_sparse_set_masks(sparse, &mask, 1, false, error);
}

SPARSEBIT_API sbit_status sbit_sparse_squash(sbit_sparse *sparse, sbit_error *error)
{
    sbit_graph *masked = NULL;
    const bool off = sparse->masks_off;
    sparse->masks_off = false;
    sbit_status status = sbit__sparse_masked_graph(sparse, &masked, error);
    sparse->masks_off = off;
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph) && status == SBIT_OK; v++) {
        sbit_value_id id;
        id.idx = v;
        if (sparse->keep[v] != NULL || sparse->was[v].data != NULL) {
            status = sbit_sparse_set_weight(sparse, sbit_graph_value(sparse->graph, id)->name,
                                            &sbit_graph_value(masked, id)->constant, error);
        }
    }
    sbit_graph_destroy(masked);
    if (status == SBIT_OK) {
        sbit__masks_clear(sparse);
    }
    return status;
}

SPARSEBIT_API void sbit_sparse_switch_masks(sbit_sparse *sparse, bool on)
{
    sparse->masks_off = !on;
}

/* The layer has a masked row that stays. */
static bool sbit__sparse_is_uncut(const sbit_sparse *sparse, const sbit__sparse_layer *layer)
{
    const sbit__member *member = &sparse->labeler.members[layer->member];
    for (int64_t r = 0; r < member->count; r++) {
        if (sbit__mask_is_empty(sparse, member, r) &&
            !sbit__class_is_removed(sparse, member->labels[r])) {
            return true;
        }
    }
    return false;
}

SPARSEBIT_API sbit_status sbit_sparse_check_cut(sbit_sparse *sparse, sbit_error *error)
{
    sbit__text text;
    sbit_graph *out = NULL;
    SBIT__TRY(sbit_sparse_shrink(sparse, NULL, &out, error)); /* says which can go */
    sbit_graph_destroy(out);
    sbit__text_init(&text, sbit_ctx_allocator(sparse->ctx));
    for (size_t i = 0; i < sparse->layer_count; i++) {
        if (sbit__sparse_is_uncut(sparse, &sparse->layers[i])) {
            sbit__text_printf(&text, "%s%s", text.size > 0 ? ", " : "", sparse->layers[i].name);
        }
    }
    const sbit_status status =
        text.failed      ? sbit__fail_oom(error, text.size)
        : text.size == 0 ? SBIT_OK
                         : sbit__fail(error, SBIT_ERR_STATE, NULL,
                                      "masked rows stay, as zeros, in: %s", text.data);
    sbit__text_deinit(&text);
    return status;
}

/* >>results */

SPARSEBIT_API sbit_status sbit_sparse_masked(sbit_sparse *sparse, sbit_graph **out,
                                             sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit__sparse_masked_graph(sparse, &graph, error));
    const sbit_status status = sbit__packed_close(sparse, graph, error);
    if (status != SBIT_OK) {
        sbit_graph_destroy(graph);
        return status;
    }
    *out = graph;
    return SBIT_OK;
}

/* From masks that anyone made: what is masked everywhere, stays balanced, and is a constant. */
static sbit_status sbit__sparse_classes(sbit_sparse *sparse, sbit_graph *masked, sbit_error *error)
{
    if (sparse->masks_fit) {
        return SBIT_OK;
    }
    sbit__sparse_forget_reasons(sparse);
    sbit__masks_to_classes(sparse);
    sbit__select_repair(sparse, NULL);
    if (sbit__sparse_removes(sparse)) {
        SBIT__TRY(sbit__folded_run(sparse, masked, &sparse->folded, error));
    }
    while (sbit__sparse_removes(sparse) && sbit__folded_check(sparse, masked, &sparse->folded)) {
        sbit__select_repair(sparse, NULL);
    }
    return SBIT_OK;
}

static sbit_status sbit__sparse_cut(sbit_sparse *sparse, sbit_graph *masked, sbit_graph **shrunk,
                                    sbit_error *error)
{
    static const char *const passes[] = {"dead_code", "merge_duplicates"};
    sbit_simplify_desc simplify;
    memset(&simplify, 0, sizeof simplify);
    simplify.only = passes;
    simplify.only_count = 2;
    SBIT__TRY(sbit__sparse_classes(sparse, masked, error));
    SBIT__TRY(sbit_graph_clone(masked, shrunk, error));
    if (sbit__sparse_removes(sparse)) {
        SBIT__TRY(sbit__folded_apply(sparse, *shrunk, &sparse->folded, error));
        SBIT__TRY(sbit__cut(sparse, *shrunk, error));
    }
    SBIT__TRY(sbit__packed_close(sparse, *shrunk, error));
    return sbit_simplify(*shrunk, &simplify, NULL, error);
}

SPARSEBIT_API sbit_status sbit_sparse_shrink(sbit_sparse *sparse, const sbit_feed *feed,
                                             sbit_graph **out, sbit_error *error)
{
    sbit_graph *masked = NULL, *shrunk = NULL;
    SBIT__TRY(sbit__sparse_masked_graph(sparse, &masked, error));
    sbit_status status = sbit__sparse_cut(sparse, masked, &shrunk, error);
    if (status == SBIT_OK && sbit__sparse_removes(sparse)) {
        status = sbit__sparse_verify(sparse, masked, shrunk, feed, error);
    }
    sbit_graph_destroy(masked);
    if (status != SBIT_OK) {
        sbit_graph_destroy(shrunk);
        return status;
    }
    *out = shrunk;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sparse_export_onnx(sbit_sparse *sparse, const char *path,
                                                  const sbit_onnx_write_desc *desc,
                                                  sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit_sparse_shrink(sparse, NULL, &graph, error));
    const sbit_status status = sbit_graph_save(graph, path, desc, error);
    sbit_graph_destroy(graph);
    return status;
}

static sbit_status sbit__sparse_save_masks(const sbit_sparse *sparse, const char *path, sbit_error *error)
{
    sbit__json_file file;
    sbit_json json;
    SBIT__TRY(sbit__json_file_open(&file, sparse->ctx, path, &json, error));
    sbit__masks_print(sparse, &json);
    return sbit__json_file_close(&file);
}

SPARSEBIT_API sbit_status sbit_sparse_export(sbit_sparse *sparse, const sbit_sparse_files *files,
                                             sbit_error *error)
{
    sbit_graph *masked = NULL;
    sbit_status status = SBIT_OK;
    if (files->shrunk != NULL) {
        status = sbit_sparse_export_onnx(sparse, files->shrunk, files->desc, error);
    }
    if (status == SBIT_OK && files->masked != NULL) {
        status = sbit_sparse_masked(sparse, &masked, error);
        status = status == SBIT_OK ? sbit_graph_save(masked, files->masked, files->desc, error) : status;
        sbit_graph_destroy(masked);
    }
    return status == SBIT_OK && files->masks != NULL ? sbit__sparse_save_masks(sparse, files->masks, error) : status;
}

SPARSEBIT_API bool sbit_sparse_is_exact(const sbit_sparse *sparse)
{
    for (sbit_node_id id = sbit_graph_first(sparse->graph); id.idx != 0;
         id = sbit_graph_next(sparse->graph, id)) {
        const sbit_node *node = sbit_graph_node(sparse->graph, id);
        if (node->domain[0] == '\0' && sbit__streq(node->op_type, "LayerNormalization") &&
            sbit__cut_touches(sparse, node->inputs[0],
                              sparse->labeler.of[node->inputs[0].idx].rank - 1)) {
            return false;
        }
    }
    return true;
}

static bool sbit__sparse_masks_any(const sbit_sparse *sparse)
{
    for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
        sbit_mask mask;
        if (sbit_sparse_mask(sparse, i, &mask) == SBIT_OK && mask.kept < mask.count) {
            return true;
        }
    }
    return false;
}

SPARSEBIT_API sbit_status sbit_prune(const sbit_graph *graph, sbit_sconfig *config,
                                     const sbit_feed *feed, sbit_graph **out, sbit_error *error)
{
    sbit_sparse *sparse = NULL;
    if (out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "out is NULL");
    }
    SBIT__TRY(sbit_sparse_create(graph, config, &sparse, error));
    sbit_status status = sbit_sparse_permute(sparse, feed, NULL, error);
    status = status == SBIT_OK ? sbit_sparse_select(sparse, feed, error) : status;
    status = status == SBIT_OK ? sbit_sparse_repair(sparse, feed, NULL, error) : status;
    if (status == SBIT_OK && sbit__sparse_masks_any(sparse)) {
        status = sbit_sparse_shrink(sparse, feed, out, error);
    } else if (status == SBIT_OK) {
        sbit__log(sparse->ctx, SBIT_LOG_WARNING,
                  "nothing was pruned: the ratios leave every channel, or none can be cut");
        status = sbit_graph_clone(graph, out, error);
    }
    sbit_sparse_destroy(sparse);
    return status;
}

/* >>layers */

SPARSEBIT_API size_t sbit_sparse_layer_count(const sbit_sparse *sparse)
{
    return sparse->layer_count;
}

SPARSEBIT_API sbit_status sbit_sparse_layer_at(const sbit_sparse *sparse, size_t index,
                                               sbit_sparse_layer *out)
{
    if (index >= sparse->layer_count) {
        return SBIT_ERR_NOT_FOUND;
    }
    out->name = sparse->layers[index].name;
    out->node = sparse->labeler.members[sparse->layers[index].member].node;
    out->settings = sparse->layers[index].settings;
    return SBIT_OK;
}

/* >>groups */

SPARSEBIT_API size_t sbit_sparse_group_count(const sbit_sparse *sparse)
{
    return (size_t)sparse->groups.group_count;
}

SPARSEBIT_API sbit_status sbit_sparse_group_at(const sbit_sparse *sparse, size_t index,
                                               sbit_sparse_group *out)
{
    if (index >= (size_t)sparse->groups.group_count) {
        return SBIT_ERR_NOT_FOUND;
    }
    const sbit__group *group = &sparse->groups.groups[index];
    out->layers = sparse->group_names[index];
    out->channels = out->kept = group->class_count;
    out->exact = false;
    out->reason = "";
    out->ratio = group->ratio;
    for (int32_t i = 0; i < group->class_count; i++) {
        const int32_t c = group->classes[i];
        const char *why = sparse->groups.classes[c].removable ? sparse->kept_why[c]
                                                              : sparse->groups.classes[c].reason;
        out->kept -= sparse->removed[c] ? 1 : 0;
        out->exact = out->exact || why == NULL;
        out->reason = why != NULL ? why : out->reason;
    }
    return SBIT_OK;
}
