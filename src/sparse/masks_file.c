/* masks_file.c: masks as JSON. >>masks-file
 *
 *     {"conv1": {"weight": {"shape": [8, 3, 3, 3], "runs": [kept, pruned, kept ...]}, "bias": {...}}}
 *
 * NNI's {layer: {weight, bias}}; a mask that no layer reads is the "constant" of its own name.
 */
#include "../passes/passes_private.h"
#include "sparse_private.h"

/* >>files */

static void sbit__json_file_put(const char *text, size_t size, void *user)
{
    sbit__json_file *file = (sbit__json_file *)user;
    if (file->status == SBIT_OK) {
        file->status = sbit__writer_put(&file->writer, text, size, file->error);
    }
}

SBIT__FN sbit_status sbit__json_file_open(sbit__json_file *file, sbit_ctx *ctx, const char *path,
                                          sbit_json *json, sbit_error *error)
{
    memset(file, 0, sizeof *file);
    memset(json, 0, sizeof *json);
    file->error = error;
    json->put_fn = sbit__json_file_put;
    json->user = file;
    return sbit__writer_open(sbit_ctx_allocator(ctx), path, &file->writer, error);
}

SBIT__FN sbit_status sbit__json_file_close(sbit__json_file *file)
{
    sbit__json_file_put("\n", 1, file);
    if (file->status != SBIT_OK) {
        sbit__writer_abort(&file->writer);
        return file->status;
    }
    return sbit__writer_commit(&file->writer, file->error);
}

/* >>names */

static const char *sbit__mask_part(const sbit_node *node, size_t input)
{
    if (sbit__is_op(node, "Gather")) { /* of an embedding's table */
        return input == 0 ? "weight" : NULL;
    }
    static const char *const parts[2][4] = {{NULL, "weight", "bias", NULL},
                                            {NULL, "weight_ih", "weight_hh", "bias"}};
    const bool rnn = sbit__is_op(node, "LSTM") || sbit__is_op(node, "GRU") || sbit__is_op(node, "RNN");
    return input < 4 ? parts[rnn ? 1 : 0][input] : NULL;
}

SBIT__FN const char *sbit__mask_reader(const sbit_sparse *sparse, sbit_value_id value, const char **part)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_node *node =
            sbit_graph_node(sparse->graph, sparse->labeler.members[sparse->layers[i].member].node);
        for (size_t k = 0; k < node->input_count; k++) {
            *part = node->inputs[k].idx == value.idx ? sbit__mask_part(node, k) : NULL;
            if (*part != NULL) {
                return sparse->layers[i].name;
            }
        }
    }
    return NULL;
}

SBIT__FN sbit_value_id sbit__mask_find(const sbit_sparse *sparse, const char *name)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_node *node =
            sbit_graph_node(sparse->graph, sparse->labeler.members[sparse->layers[i].member].node);
        const size_t size = strlen(sparse->layers[i].name);
        for (size_t k = 0; k < node->input_count; k++) {
            const char *part = sbit__mask_part(node, k);
            if (part != NULL && node->inputs[k].idx != 0 &&
                sbit_graph_value(sparse->graph, node->inputs[k])->is_constant && strncmp(name, sparse->layers[i].name, size) == 0 &&
                name[size] == '.' && sbit__streq(name + size + 1, part)) {
                return node->inputs[k];
            }
        }
    }
    return sbit_graph_find_value(sparse->graph, name);
}

/* >>writing */

static void sbit__mask_put(sbit_json *to, const sbit_sparse *sparse, const sbit_mask *mask)
{
    const sbit_tensor *tensor = &sbit_graph_value(sparse->graph, mask->value)->constant;
    bool now = true;
    int64_t run = 0;
    sbit_json_open(to, mask->part != NULL ? mask->part : "constant", '{');
    sbit_json_open(to, "shape", '[');
    for (int32_t d = 0; d < tensor->rank; d++) {
        sbit_json_int(to, NULL, tensor->dims[d]);
    }
    sbit_json_close(to, ']');
    sbit_json_open(to, "runs", '[');
    for (int64_t i = 0; i <= mask->count; i++) {
        if (i == mask->count || (mask->keep[i] != 0) != now) {
            sbit_json_int(to, NULL, run);
            now = !now;
            run = 0;
        }
        run++;
    }
    sbit_json_close(to, ']');
    sbit_json_close(to, '}');
}

SBIT__FN void sbit__masks_print(const sbit_sparse *sparse, sbit_json *to)
{
    const size_t count = sbit_sparse_mask_count(sparse);
    sbit_json_open(to, NULL, '{');
    for (size_t i = 0; i < count; i++) {
        sbit_mask first, mask;
        bool again = false; /* an object was made for its layer */
        sbit_sparse_mask(sparse, i, &first);
        for (size_t k = 0; k < i && first.layer != NULL && !again; k++) {
            sbit_sparse_mask(sparse, k, &mask);
            again = mask.layer == first.layer;
        }
        if (again) {
            continue;
        }
        sbit_json_open(to, first.layer != NULL ? first.layer : first.name, '{');
        sbit__mask_put(to, sparse, &first);
        for (size_t k = i + 1; k < count && first.layer != NULL; k++) {
            sbit_sparse_mask(sparse, k, &mask);
            if (mask.layer == first.layer) {
                sbit__mask_put(to, sparse, &mask);
            }
        }
        sbit_json_close(to, '}');
    }
    sbit_json_close(to, '}');
}

/* >>reading */

static sbit_status sbit__masks_fail(const sbit_yaml *at, const char *what, sbit_error *error)
{
    return sbit__fail(error, SBIT_ERR_CONFIG, NULL, "masks, line %d: %s", (int)at->line, what);
}

static const sbit_yaml *sbit__masks_list(const sbit_yaml *map, const char *key)
{
    for (size_t i = 0; map->kind == SBIT_YAML_MAP && i < map->count; i++) {
        if (sbit__streq(map->items[i].key, key) && map->items[i].kind == SBIT_YAML_LIST) {
            return &map->items[i];
        }
    }
    return NULL;
}

static sbit_status sbit__masks_take(sbit_sparse *sparse, const char *name, const sbit_yaml *at, bool start,
                                    sbit_error *error)
{
    const sbit_yaml *shape = sbit__masks_list(at, "shape"), *runs = sbit__masks_list(at, "runs");
    const sbit_value_id id = sbit__mask_find(sparse, name);
    const sbit_tensor *tensor =
        id.idx != 0 && sbit_graph_value(sparse->graph, id)->is_constant ? &sbit_graph_value(sparse->graph, id)->constant : NULL;
    if (shape == NULL || runs == NULL) {
        return sbit__masks_fail(at, "{\"shape\": [...], \"runs\": [...]} is expected", error);
    }
    bool same = tensor != NULL && shape->count == (size_t)tensor->rank;
    for (size_t d = 0; same && d < shape->count; d++) {
        int64_t dim = 0;
        same = shape->items[d].kind == SBIT_YAML_SCALAR &&
               sbit__parse_i64(shape->items[d].text, &dim) && dim == tensor->dims[d];
    }
    if (!same) {
        return sbit__fail(error, tensor == NULL ? SBIT_ERR_NOT_FOUND : SBIT_ERR_SHAPE, name,
                          tensor == NULL ? "masks: nothing is called '%s'" : "masks: '%s' has another shape", name);
    }
    const int64_t count = sbit_tensor_count(tensor);
    const sbit_allocator *a = sbit_ctx_allocator(sparse->ctx);
    uint8_t *keep = (uint8_t *)sbit__alloc(a, (size_t)count + 1);
    int64_t done = 0;
    if (keep == NULL) {
        return sbit__fail_oom(error, (size_t)count);
    }
    for (size_t i = 0; i < runs->count && done >= 0; i++) {
        int64_t run = -1;
        if (runs->items[i].kind != SBIT_YAML_SCALAR || !sbit__parse_i64(runs->items[i].text, &run) || run < 0 ||
            run > count - done) {
            done = -1;
        } else {
            memset(keep + done, i % 2 == 0, (size_t)run);
            done += run;
        }
    }
    const sbit_status status = done != count ? sbit__masks_fail(runs, "runs do not add up to the shape", error)
                               : start       ? sbit_sparse_start_mask(sparse, name, keep, count, error)
                                             : sbit_sparse_set_mask(sparse, name, keep, count, error);
    sbit__free(a, keep, (size_t)count + 1);
    return status;
}

static sbit_status sbit__masks_layer(sbit_sparse *sparse, const sbit_yaml *layer, bool start, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(sparse->ctx);
    sbit_status status = layer->kind == SBIT_YAML_MAP ? SBIT_OK
                                                      : sbit__masks_fail(layer, "{layer: {weight: {...}}} is expected", error);
    for (size_t i = 0; i < layer->count && status == SBIT_OK; i++) {
        const sbit_yaml *at = &layer->items[i];
        sbit__text name;
        sbit__text_init(&name, a);
        if (sbit__streq(at->key, "constant")) {
            sbit__text_printf(&name, "%s", layer->key);
        } else {
            sbit__text_printf(&name, "%s.%s", layer->key, at->key);
        }
        status = name.failed ? sbit__fail_oom(error, name.size) : sbit__masks_take(sparse, name.data, at, start, error);
        sbit__text_deinit(&name);
    }
    return status;
}

SPARSEBIT_API sbit_status sbit_sparse_load_masks(sbit_sparse *sparse, const char *path, bool start,
                                                 sbit_error *error)
{
    sbit__file file;
    sbit_yaml_doc *doc = NULL;
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(sparse->ctx), path, &file, error));
    sbit_status status = sbit_yaml_parse(sparse->ctx, (const char *)file.data, file.size, &doc, error);
    sbit__file_close(&file);
    SBIT__TRY(status);
    const sbit_yaml *root = sbit_yaml_root(doc);
    status = root->kind == SBIT_YAML_MAP ? SBIT_OK : sbit__masks_fail(root, "an object is expected", error);
    for (size_t i = 0; i < root->count && status == SBIT_OK; i++) {
        status = sbit__masks_layer(sparse, &root->items[i], start, error);
    }
    sbit_yaml_destroy(doc);
    return status;
}
