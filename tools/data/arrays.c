/* data/arrays.c: data sets in NumPy files: one array (npy), or one per input (npz).
 *
 * The first dim counts the samples; arrays without dims are fed to every run. Elements are fed as
 * they are; with --scale, --mean or --std any type of number becomes float32.
 */
#include "data/data.h"
#include "formats/npy.h"

#include <stdlib.h> /* malloc */

typedef struct cli_arrays {
    cli_array *items; /* in the order of data->inputs */
    size_t count;
    int64_t *labels;
    unsigned char *raw; /* one sample before conversion */
    size_t raw_bytes;
} cli_arrays;

static void cli_arrays_close(cli_data *data)
{
    cli_arrays *arrays = (cli_arrays *)data->state;
    for (size_t i = 0; i < arrays->count; i++) {
        cli_array_close(&arrays->items[i]);
    }
    free(arrays->items);
    free(arrays->labels);
    free(arrays->raw);
    free(arrays);
    data->state = NULL;
}

static size_t cli_sample_bytes(const cli_array *array)
{
    const int64_t samples = array->shape.rank > 0 ? array->shape.dims[0] : 1;
    return samples > 0 ? (size_t)(array->bytes / (uint64_t)samples) : 0;
}

/* The element type: as stored, or float32 when preprocessing was asked for. */
static int cli_array_check_type(const cli_data *data, const cli_array *array,
                                const sbit_value_info *info, sbit_dtype *out)
{
    const bool converts = data->prep.given && array->shape.dtype != SBIT_BOOL;
    const sbit_dtype wanted = info->type.dtype;
    *out = converts ? SBIT_F32 : array->shape.dtype;
    if (wanted == SBIT_UNDEFINED || wanted == *out) {
        return CLI_OK;
    }
    if (converts) {
        return cli_fail("input '%s' is %s; --scale, --mean and --std make float32: leave them away",
                        info->name, sbit_dtype_name((int32_t)wanted));
    }
    return cli_fail("'%s' holds %s, input '%s' is %s; save it with x.astype('%s')%s", array->path,
                    sbit_dtype_name((int32_t)array->shape.dtype), info->name,
                    sbit_dtype_name((int32_t)wanted), sbit_dtype_name((int32_t)wanted),
                    wanted == SBIT_F32 ? ", or give --scale (--scale 1 converts only)" : "");
}

static int cli_array_check(cli_data *data, size_t index, cli_array *array)
{
    const sbit_value_info *info = sbit_graph_value(data->model->graph, data->inputs[index]);
    char why[600];
    sbit_tensor sample = array->shape;
    sbit_type type = info->type;
    CLI_TRY(cli_array_check_type(data, array, info, &sample.dtype));
    if (type.rank > 0 && sample.rank == type.rank - 1) {
        return cli_fail("'%s' has %d dims, input '%s' has %d: the first dim counts the samples; "
                        "save x[np.newaxis] if it is one sample",
                        array->path, (int)sample.rank, info->name, (int)type.rank);
    }
    if (sample.rank > 0) {
        sample.dims[0] = 1;
        type.dims[0].symbol = SBIT_SYMBOL_ANY; /* cli_data_set_batch looks at it */
    }
    if (!cli_type_takes(data->model->graph, &type, &sample, why, sizeof why)) {
        return cli_fail("'%s' does not fit input '%s': %s", array->path, info->name, why);
    }
    data->samples[index] = sample;
    if (sample.rank > 0 && data->count >= 0 && data->count != array->shape.dims[0]) {
        return cli_fail("'%s': '%s' has %lld samples, the others have %lld", array->path,
                        array->name, (long long)array->shape.dims[0], (long long)data->count);
    }
    data->count = sample.rank > 0 ? array->shape.dims[0] : data->count;
    return CLI_OK;
}

static int cli_arrays_begin(cli_data *data, cli_arrays *arrays)
{
    const sbit_tensor *first = &arrays->items[0].shape;
    const bool nhwc = data->args->layout != NULL && strcmp(data->args->layout, "NHWC") == 0;
    const int64_t channels = first->rank < 2 ? 1 : first->dims[nhwc ? first->rank - 1 : 1];
    CLI_TRY(cli_prep_fill(&data->prep, data->args, 1.0, channels));
    data->prep.active = data->prep.given;
    if (data->args->layout != NULL && !data->prep.given) {
        return cli_fail_usage(data->args->command,
                              "--layout is for pictures, or for the channels that --scale, --mean "
                              "and --std are for; arrays are fed as they are stored");
    }
    if (data->args->size[0] > 0) {
        return cli_fail_usage(data->args->command, "--size is for pictures, not for arrays");
    }
    data->count = -1;
    for (size_t i = 0; i < arrays->count; i++) {
        CLI_TRY(cli_array_check(data, i, &arrays->items[i]));
        const size_t bytes = cli_sample_bytes(&arrays->items[i]);
        arrays->raw_bytes = bytes > arrays->raw_bytes ? bytes : arrays->raw_bytes;
    }
    if (data->count < 0) {
        return cli_fail("'%s' holds scalars only; one array needs a first dim that counts samples",
                        data->path);
    }
    if (data->count == 0) {
        return cli_fail_empty(data, "the first dim in '%s' is 0", data->path);
    }
    arrays->raw = (unsigned char *)malloc(arrays->raw_bytes + 1);
    if (arrays->raw == NULL) {
        return cli_fail_memory(arrays->raw_bytes);
    }
    if (data->labels_path != NULL) {
        CLI_TRY(cli_labels_load(data, data->count, NULL, &arrays->labels));
    }
    return cli_data_set_batch(data);
}

static int cli_arrays_new(cli_data *data, size_t count, cli_arrays **out)
{
    *out = (cli_arrays *)calloc(1, sizeof **out);
    data->state = *out;
    if (*out != NULL) {
        (*out)->items = (cli_array *)calloc(count + 1, sizeof *(*out)->items);
    }
    return *out != NULL && (*out)->items != NULL ? CLI_OK : cli_fail_memory(sizeof **out);
}

static int cli_npy_source_open(cli_data *data)
{
    cli_arrays *arrays = NULL;
    const sbit_type *type = NULL;
    CLI_TRY(cli_arrays_new(data, 1, &arrays));
    CLI_TRY(cli_data_only_input(data, "npy:FILE", &type));
    CLI_TRY(cli_npy_open(data->path, &arrays->items[0]));
    arrays->count = 1;
    snprintf(arrays->items[0].name, sizeof arrays->items[0].name, "%s", cli_base_name(data->path));
    return cli_arrays_begin(data, arrays);
}

static void cli_array_names(const cli_array *found, size_t count, char *names, size_t size)
{
    names[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const size_t at = strlen(names);
        snprintf(names + at, size - at, "%s%s", i > 0 ? ", " : "", found[i].name);
    }
}

/* Moves the array for each input from `found` into place; the rest is closed by the caller. */
static int cli_npz_match(cli_data *data, cli_array *found, size_t count, cli_arrays *arrays)
{
    for (size_t i = 0; i < data->model->input_count; i++) {
        const char *name = cli_model_input(data->model, i)->name;
        size_t at = 0;
        while (at < count && strcmp(found[at].name, name) != 0) {
            at++;
        }
        if (at == count && count == 1 && data->model->input_count == 1) {
            at = 0; /* np.savez(file, x) calls it arr_0 */
        }
        if (at == count) {
            char names[400];
            cli_array_names(found, count, names, sizeof names);
            return cli_fail("'%s' has no array '%s' (it has: %s); save it with np.savez(file, "
                            "**{'%s': x})",
                            data->path, name, names, name);
        }
        data->inputs[data->input_count++] = data->model->inputs[i];
        arrays->items[arrays->count++] = found[at];
        memset(&found[at], 0, sizeof found[at]);
    }
    return CLI_OK;
}

static int cli_npz_source_open(cli_data *data)
{
    cli_arrays *arrays = NULL;
    cli_array *found = NULL;
    size_t count = 0;
    CLI_TRY(cli_arrays_new(data, data->model->input_count, &arrays));
    CLI_TRY(cli_npz_open(data->path, &found, &count));
    const int code = cli_npz_match(data, found, count, arrays);
    for (size_t i = 0; i < count; i++) {
        cli_array_close(&found[i]);
    }
    free(found);
    CLI_TRY(code);
    return cli_arrays_begin(data, arrays);
}

/* raw numbers -> float32 (x * scale - mean[c]) / std[c] */
static void cli_array_convert(const cli_data *data, const cli_array *array, const void *raw,
                              float *out)
{
    const cli_prep *prep = &data->prep;
    sbit_tensor tensor = array->shape;
    const int32_t rank = tensor.rank;
    int64_t channels = 1, inner = 1;
    tensor.data = (void *)(uintptr_t)raw;
    if (rank >= 2) {
        channels = tensor.dims[prep->nhwc ? rank - 1 : 1];
        for (int32_t i = 2; i < rank && !prep->nhwc; i++) {
            inner *= tensor.dims[i];
        }
    }
    tensor.dims[0] = rank > 0 ? 1 : 0;
    const int64_t count = sbit_tensor_count(&tensor);
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = (i / inner) % channels;
        const int64_t at = c < CLI_MAX_CHANNELS ? c : 0; /* more channels: one number for all */
        out[i] = (float)((sbit_tensor_f64_at(&tensor, i) * prep->scale - prep->mean[at]) /
                         prep->std[at]);
    }
}

static int cli_arrays_read(cli_data *data, int64_t sample, int64_t slot, cli_batch *batch)
{
    const cli_arrays *arrays = (const cli_arrays *)data->state;
    for (size_t i = 0; i < arrays->count; i++) {
        const cli_array *array = &arrays->items[i];
        const sbit_tensor *tensor = &batch->inputs[i];
        const int64_t at = array->shape.rank > 0 ? sample : 0;
        const int64_t place = array->shape.rank > 0 ? slot : 0;
        const size_t bytes = cli_sample_bytes(array);
        const bool converts = data->prep.given && array->shape.dtype != SBIT_BOOL;
        const int64_t slots = tensor->rank > 0 ? tensor->dims[0] : 1;
        char *to = (char *)tensor->data + sbit_tensor_bytes(tensor) / (size_t)slots * (size_t)place;
        CLI_TRY(
            cli_npy_read(array, (uint64_t)at * bytes, converts ? arrays->raw : (void *)to, bytes));
        if (converts) {
            cli_array_convert(data, array, arrays->raw, (float *)(void *)to);
        }
    }
    if (batch->labels != NULL) {
        batch->labels[slot] = arrays->labels[sample];
    }
    return CLI_OK;
}

const cli_source cli_source_npy = {
    "npy", "npy:FILE[,labels=FILE]", cli_npy_source_open, cli_arrays_read, false, cli_arrays_close};
const cli_source cli_source_npz = {
    "npz", "npz:FILE[,labels=FILE]", cli_npz_source_open, cli_arrays_read, false, cli_arrays_close};
