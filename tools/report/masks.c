/* report/masks.c: masks of a pruned model in files.
 */
#include "report/masks.h"
#include "formats/npy.h"

#include <stdlib.h> /* malloc, free */

enum {
    CLI_MASK_NAME = 160
};

/* ---- saving */

static int cli_masks_json(sbit_sparse *sparse, const char *path)
{
    const sbit_sparse_files files = {NULL, NULL, path, NULL};
    sbit_error error;
    memset(&error, 0, sizeof error);
    return sbit_sparse_export(sparse, &files, &error) == SBIT_OK ? CLI_OK
                                                                 : cli_fail_library(&error, "masks '%s'", path);
}

static int cli_masks_npz(const sbit_sparse *sparse, const char *path)
{
    const size_t count = sbit_sparse_mask_count(sparse);
    char(*names)[CLI_MASK_NAME] = (char(*)[CLI_MASK_NAME])calloc(count + 1, CLI_MASK_NAME);
    sbit_tensor *tensors = (sbit_tensor *)calloc(count + 1, sizeof *tensors);
    int code = CLI_OK;
    for (size_t i = 0; names != NULL && tensors != NULL && i < count; i++) {
        sbit_mask mask;
        sbit_sparse_mask(sparse, i, &mask);
        tensors[i] = sbit_graph_value(sbit_sparse_graph(sparse), mask.value)->constant;
        tensors[i].dtype = SBIT_U8;
        tensors[i].data = (void *)(uintptr_t)mask.keep;
        const int size = snprintf(names[i], CLI_MASK_NAME, "%s%s%s", mask.layer != NULL ? mask.layer : mask.name,
                                  mask.layer != NULL ? "." : "", mask.layer != NULL ? mask.part : "");
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

int cli_masks_save(sbit_sparse *sparse, const char *path)
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
        const sbit_status status = start ? sbit_sparse_start_mask(sparse, array->name, keep, n, &error)
                                         : sbit_sparse_set_mask(sparse, array->name, keep, n, &error);
        code = status == SBIT_OK ? CLI_OK
                                 : cli_fail_library(&error, "'%s': '%s'", array->path, array->name);
    }
    free(whole.data);
    free(keep);
    return code;
}

static int cli_masks_load_json(sbit_sparse *sparse, const char *path, bool start)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    return sbit_sparse_load_masks(sparse, path, start, &error) == SBIT_OK
               ? CLI_OK
               : cli_fail_library(&error, "masks '%s'", path);
}

int cli_masks_load(sbit_sparse *sparse, const char *path, bool start)
{
    cli_array *arrays = NULL;
    size_t count = 0;
    if (cli_has_suffix(path, ".json")) {
        return cli_masks_load_json(sparse, path, start);
    }
    CLI_TRY(cli_npz_open(path, &arrays, &count));
    int code = CLI_OK;
    for (size_t i = 0; i < count; i++) {
        code = code == CLI_OK ? cli_mask_take(sparse, &arrays[i], start) : code;
        cli_array_close(&arrays[i]);
    }
    free(arrays);
    return code;
}
