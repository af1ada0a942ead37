/* report/masks.c: masks of a pruned model in files.
 */
#include "report/masks.h"
#include "base/json.h"
#include "formats/npy.h"

#include <stdlib.h> /* malloc, free */

enum {
    CLI_MASK_NAME = 128
};

/* The layer that reads a constant, and as what: "weight", "bias"; NULL: no layer. */
static const char *cli_mask_of(const sbit_sparse *sparse, sbit_value_id value,
                               sbit_sparse_layer *layer)
{
    for (size_t i = 0; i < sbit_sparse_layer_count(sparse); i++) {
        sbit_sparse_layer_at(sparse, i, layer);
        const sbit_node *node = sbit_graph_node(sbit_sparse_graph(sparse), layer->node);
        for (size_t k = 1; k < node->input_count && k < 3; k++) {
            if (node->inputs[k].idx == value.idx) {
                return k == 1 ? "weight" : "bias";
            }
        }
    }
    return NULL;
}

/* The constant that an array's name stands for. */
static const char *cli_mask_constant(const sbit_sparse *sparse, const char *name)
{
    const sbit_graph *graph = sbit_sparse_graph(sparse);
    for (size_t i = 0; i < sbit_sparse_layer_count(sparse); i++) {
        sbit_sparse_layer layer;
        sbit_sparse_layer_at(sparse, i, &layer);
        const sbit_node *node = sbit_graph_node(graph, layer.node);
        const size_t size = strlen(layer.name);
        for (size_t k = 1; k < node->input_count && k < 3; k++) {
            if (strncmp(name, layer.name, size) == 0 && node->inputs[k].idx != 0 &&
                strcmp(name + size, k == 1 ? ".weight" : ".bias") == 0) {
                return sbit_graph_value(graph, node->inputs[k])->name;
            }
        }
    }
    return name;
}

/* ---- saving */

static void cli_mask_runs(sbit_json *to, const sbit_mask *mask, const sbit_tensor *tensor)
{
    sbit_json_open(to, "shape", '[');
    for (int32_t d = 0; d < tensor->rank; d++) {
        sbit_json_int(to, NULL, tensor->dims[d]);
    }
    sbit_json_close(to, ']');
    sbit_json_open(to, "runs", '[');
    uint8_t now = 1;
    int64_t run = 0;
    for (int64_t i = 0; i <= mask->count; i++) {
        if (i == mask->count || (mask->keep[i] != 0) != (now != 0)) {
            sbit_json_int(to, NULL, run);
            now = (uint8_t)!now;
            run = 0;
        }
        run++;
    }
    sbit_json_close(to, ']');
}

static void cli_mask_put(sbit_json *to, const sbit_sparse *sparse, const sbit_mask *mask, const char *what)
{
    sbit_json_open(to, what, '{');
    cli_mask_runs(to, mask, &sbit_graph_value(sbit_sparse_graph(sparse), mask->value)->constant);
    sbit_json_close(to, '}');
}

/* An object for each layer, then those of masks that no layer reads. */
static void cli_masks_put(sbit_json *to, const sbit_sparse *sparse)
{
    sbit_sparse_layer layer, of;
    sbit_mask mask;
    for (size_t l = 0; l < sbit_sparse_layer_count(sparse); l++) {
        bool open = false;
        sbit_sparse_layer_at(sparse, l, &layer);
        for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
            sbit_sparse_mask(sparse, i, &mask);
            const char *what = cli_mask_of(sparse, mask.value, &of);
            if (what == NULL || of.node.idx != layer.node.idx) {
                continue;
            }
            if (!open) {
                sbit_json_open(to, layer.name, '{');
                open = true;
            }
            cli_mask_put(to, sparse, &mask, what);
        }
        if (open) {
            sbit_json_close(to, '}');
        }
    }
    for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
        sbit_sparse_mask(sparse, i, &mask);
        if (cli_mask_of(sparse, mask.value, &of) == NULL) {
            sbit_json_open(to, mask.name, '{');
            cli_mask_put(to, sparse, &mask, "constant");
            sbit_json_close(to, '}');
        }
    }
}

static bool cli_masks_write(FILE *file, const void *user)
{
    const cli_text *text = (const cli_text *)user;
    return fwrite(text->data, 1, text->size, file) == text->size;
}

static int cli_masks_json(const sbit_sparse *sparse, const char *path)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    cli_masks_put(&json.to, sparse);
    sbit_json_close(&json.to, '}');
    const int code = json.text.failed ? cli_fail_memory(json.text.size)
                                      : cli_file_replace(path, cli_masks_write, &json.text);
    cli_text_free(&json.text);
    return code;
}

static int cli_masks_npz(const sbit_sparse *sparse, const char *path)
{
    const size_t count = sbit_sparse_mask_count(sparse);
    char(*names)[CLI_MASK_NAME] = (char(*)[CLI_MASK_NAME])calloc(count + 1, CLI_MASK_NAME);
    sbit_tensor *tensors = (sbit_tensor *)calloc(count + 1, sizeof *tensors);
    int code = CLI_OK;
    for (size_t i = 0; names != NULL && tensors != NULL && i < count; i++) {
        sbit_mask mask;
        sbit_sparse_layer layer;
        sbit_sparse_mask(sparse, i, &mask);
        const char *what = cli_mask_of(sparse, mask.value, &layer);
        tensors[i] = sbit_graph_value(sbit_sparse_graph(sparse), mask.value)->constant;
        tensors[i].dtype = SBIT_U8;
        tensors[i].data = (void *)(uintptr_t)mask.keep;
        const int size = snprintf(names[i], CLI_MASK_NAME, "%s%s%s", what != NULL ? layer.name : mask.name,
                                  what != NULL ? "." : "", what != NULL ? what : "");
        if (size >= CLI_MASK_NAME) {
            code = cli_fail("'%s': the name '%s...' is too long for a .npz file; give a .json file", path,
                            names[i]);
            break;
        }
    }
    if (code == CLI_OK) {
        code = names == NULL || tensors == NULL
                   ? cli_fail_memory(count * CLI_MASK_NAME)
                   : cli_npz_save(path, count, (const char *)names, CLI_MASK_NAME, tensors);
    }
    free(names);
    free(tensors);
    return code;
}

int cli_masks_save(const sbit_sparse *sparse, const char *path)
{
    return cli_has_suffix(path, ".json") ? cli_masks_json(sparse, path)
                                         : cli_masks_npz(sparse, path);
}

/* ---- loading */

/* Any type: what is not 0 is kept. */
static int cli_mask_take(sbit_sparse *sparse, const cli_array *array, bool start)
{
    const int64_t n = sbit_tensor_count(&array->shape);
    sbit_tensor whole = array->shape;
    sbit_error error;
    memset(&error, 0, sizeof error);
    whole.data = malloc(sbit_tensor_bytes(&whole) + 8);
    uint8_t *keep = (uint8_t *)malloc((size_t)n + 1);
    int code = whole.data == NULL || keep == NULL ? cli_fail_memory((size_t)n)
                                                  : cli_npy_read(array, 0, whole.data, sbit_tensor_bytes(&whole));
    for (int64_t i = 0; code == CLI_OK && i < n; i++) {
        keep[i] = sbit_tensor_f64_at(&whole, i) != 0.0 ? 1 : 0;
    }
    if (code == CLI_OK) {
        const char *name = cli_mask_constant(sparse, array->name);
        const sbit_status status = start ? sbit_sparse_start_mask(sparse, name, keep, n, &error)
                                         : sbit_sparse_set_mask(sparse, name, keep, n, &error);
        code = status == SBIT_OK ? CLI_OK
                                 : cli_fail_library(&error, "'%s': '%s'", array->path, array->name);
    }
    free(whole.data);
    free(keep);
    return code;
}

int cli_masks_load(sbit_sparse *sparse, const char *path, bool start)
{
    cli_array *arrays = NULL;
    size_t count = 0;
    CLI_TRY(cli_npz_open(path, &arrays, &count));
    int code = CLI_OK;
    for (size_t i = 0; i < count; i++) {
        code = code == CLI_OK ? cli_mask_take(sparse, &arrays[i], start) : code;
        cli_array_close(&arrays[i]);
    }
    free(arrays);
    return code;
}
