/* report/masks.c: masks of a pruned model in files.
 */
#include "report/masks.h"
#include "formats/npy.h"

#include <stdlib.h> /* malloc, free */

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
    char(*names)[CLI_NPZ_NAME] = (char(*)[CLI_NPZ_NAME])calloc(count + 1, CLI_NPZ_NAME);
    sbit_tensor *tensors = (sbit_tensor *)calloc(count + 1, sizeof *tensors);
    int code = CLI_OK;
    for (size_t i = 0; names != NULL && tensors != NULL && i < count; i++) {
        sbit_mask mask;
        sbit_sparse_mask(sparse, i, &mask);
        tensors[i] = sbit_graph_value(sbit_sparse_graph(sparse), mask.value)->constant;
        tensors[i].dtype = SBIT_U8;
        tensors[i].data = (void *)(uintptr_t)mask.keep;
        const int size = snprintf(names[i], CLI_NPZ_NAME, "%s%s%s", mask.layer != NULL ? mask.layer : mask.name,
                                  mask.layer != NULL ? "." : "", mask.layer != NULL ? mask.part : "");
        if (size >= CLI_NPZ_NAME) {
            code = cli_fail("'%s': the name '%s...' is too long for a .npz file; give a .json file", path,
                            names[i]);
            break;
        }
    }
    if (code == CLI_OK) {
        code = names == NULL || tensors == NULL
                   ? cli_fail_memory(count * CLI_NPZ_NAME)
                   : cli_npz_save(path, count, (const char *)names, CLI_NPZ_NAME, tensors);
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

/* Any type: what is not 0 is kept; free(out->keep). */
static int cli_mask_read(const cli_array *array, sbit_mask *out)
{
    const int64_t n = sbit_tensor_count(&array->shape);
    sbit_tensor whole = array->shape;
    whole.data = malloc(sbit_tensor_bytes(&whole) + 8);
    uint8_t *keep = (uint8_t *)malloc((size_t)n + 1);
    const int code = whole.data == NULL || keep == NULL
                         ? cli_fail_memory((size_t)n)
                         : cli_npy_read(array, 0, whole.data, sbit_tensor_bytes(&whole));
    for (int64_t i = 0; code == CLI_OK && i < n; i++) {
        keep[i] = sbit_tensor_f64_at(&whole, i) != 0.0 ? 1 : 0;
    }
    free(whole.data);
    out->name = array->name;
    out->count = n;
    out->keep = keep;
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
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (cli_has_suffix(path, ".json")) {
        return cli_masks_load_json(sparse, path, start);
    }
    CLI_TRY(cli_npz_open(path, &arrays, &count));
    sbit_mask *masks = (sbit_mask *)calloc(count + 1, sizeof *masks);
    int code = masks != NULL ? CLI_OK : cli_fail_memory(count * sizeof *masks);
    for (size_t i = 0; i < count && code == CLI_OK; i++) {
        code = cli_mask_read(&arrays[i], &masks[i]);
    }
    if (code == CLI_OK && sbit_sparse_set_masks(sparse, masks, count, start, &error) != SBIT_OK) {
        code = cli_fail_library(&error, "'%s'", path);
    }
    for (size_t i = 0; i < count; i++) {
        free(masks != NULL ? (void *)(uintptr_t)masks[i].keep : NULL);
        cli_array_close(&arrays[i]);
    }
    free(masks);
    free(arrays);
    return code;
}
