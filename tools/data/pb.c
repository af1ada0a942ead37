/* data/pb.c: data sets as in the ONNX project's backend tests: folders test_data_set_* with
 * input_K.pb and output_K.pb (TensorProto), K counting the model's inputs and outputs; or one such
 * folder. Each set is one run of its own, whatever its first dim is.
 */
#include "data/data.h"

#include <stdlib.h> /* malloc */

static bool cli_pb_is_set(const char *name)
{
    return strncmp(name, "test_data_set_", 14) == 0;
}

static bool cli_pb_is_input(const char *name)
{
    return strncmp(name, "input_", 6) == 0 && cli_has_suffix(name, ".pb");
}

static bool cli_pb_is_output(const char *name)
{
    return strncmp(name, "output_", 7) == 0 && cli_has_suffix(name, ".pb");
}

static void cli_pb_close(cli_data *data)
{
    cli_names *sets = (cli_names *)data->state;
    cli_names_free(sets);
    free(sets);
    data->state = NULL;
}

/* Counts the files of a kind in the folder of a set. */
static int cli_pb_count(const char *folder, bool (*keep)(const char *name), size_t *count)
{
    cli_names files;
    CLI_TRY(cli_folder_list(folder, keep, &files));
    *count = files.count;
    cli_names_free(&files);
    return CLI_OK;
}

static int cli_pb_load(const cli_data *data, const char *folder, const char *kind, size_t index,
                       sbit_tensor *out)
{
    char name[40];
    sbit_error error;
    memset(&error, 0, sizeof error);
    snprintf(name, sizeof name, "%s_%lu.pb", kind, (unsigned long)index);
    char *path = cli_path_join(folder, name);
    if (path == NULL) {
        return CLI_BAD;
    }
    int code = CLI_OK;
    if (sbit_tensor_load_pb(data->model->ctx, path, out, &error) != SBIT_OK) {
        code = cli_fail_library(&error, "cannot read '%s'", path);
    }
    free(path);
    return code;
}

static int cli_pb_input(const cli_data *data, int64_t sample, size_t index, sbit_tensor *out)
{
    const cli_names *sets = (const cli_names *)data->state;
    const sbit_value_info *info = cli_model_input(data->model, index);
    char why[600];
    CLI_TRY(cli_pb_load(data, sets->items[sample], "input", index, out));
    if (!cli_type_takes(data->model->graph, &info->type, out, why, sizeof why)) {
        sbit_tensor_free(data->model->ctx, out);
        return cli_fail("'%s/input_%lu.pb' does not fit input '%s': %s", sets->items[sample],
                        (unsigned long)index, info->name, why);
    }
    return CLI_OK;
}

static int cli_pb_find_sets(cli_data *data, cli_names *sets)
{
    cli_names names;
    size_t inputs = 0;
    CLI_TRY(cli_pb_count(data->path, cli_pb_is_input, &inputs));
    if (inputs > 0) {
        return cli_names_add(sets, data->path, strlen(data->path));
    }
    CLI_TRY(cli_folder_list(data->path, cli_pb_is_set, &names));
    int code = CLI_OK;
    for (size_t i = 0; i < names.count && code == CLI_OK; i++) {
        char *path = cli_path_join(data->path, names.items[i]);
        code = path != NULL ? cli_names_add(sets, path, strlen(path)) : CLI_BAD;
        free(path);
    }
    cli_names_free(&names);
    return code;
}

static int cli_pb_check(cli_data *data, const cli_names *sets)
{
    for (size_t i = 0; i < sets->count; i++) {
        size_t inputs = 0, outputs = 0;
        CLI_TRY(cli_pb_count(sets->items[i], cli_pb_is_input, &inputs));
        CLI_TRY(cli_pb_count(sets->items[i], cli_pb_is_output, &outputs));
        if (inputs < data->model->input_count) {
            return cli_fail("'%s' has %lu input_K.pb files, '%s' has %lu inputs", sets->items[i],
                            (unsigned long)inputs, data->model->path,
                            (unsigned long)data->model->input_count);
        }
        data->has_outputs = outputs > 0;
        for (size_t k = 0; k < data->model->input_count; k++) {
            sbit_tensor tensor;
            CLI_TRY(cli_pb_input(data, (int64_t)i, k, &tensor));
            if (i == 0) {
                data->samples[k] = tensor;
                data->samples[k].data = NULL;
            }
            sbit_tensor_free(data->model->ctx, &tensor);
        }
    }
    return CLI_OK;
}

static int cli_pb_open(cli_data *data)
{
    cli_names *sets = (cli_names *)calloc(1, sizeof *sets);
    data->state = sets;
    if (sets == NULL) {
        return cli_fail_memory(sizeof *sets);
    }
    if (data->args->batch > 1) {
        return cli_fail_usage(data->args->command,
                              "--batch: the sets of pb:DIR are run one by one");
    }
    CLI_TRY(cli_prep_fill(&data->prep, data->args, 1.0, 1));
    if (data->prep.given || data->args->size[0] > 0 || data->args->layout != NULL) {
        return cli_fail_usage(
            data->args->command,
            "pb:DIR is fed as it is: leave --scale, --mean, --std, --layout, --size away");
    }
    CLI_TRY(cli_pb_find_sets(data, sets));
    data->count = (int64_t)sets->count;
    data->batch = 1;
    data->input_count = data->model->input_count;
    for (size_t i = 0; i < data->input_count; i++) {
        data->inputs[i] = data->model->inputs[i];
    }
    if (data->count == 0) {
        return cli_fail_empty(data, "0 folders matched 'test_data_set_*' in '%s'", data->path);
    }
    return cli_pb_check(data, sets);
}

static int cli_pb_read(cli_data *data, int64_t sample, int64_t slot, cli_batch *batch)
{
    (void)slot;
    for (size_t i = 0; i < data->model->input_count; i++) {
        CLI_TRY(cli_pb_input(data, sample, i, &batch->inputs[i]));
        batch->names[i] = cli_model_input(data->model, i)->name;
        batch->input_count = i + 1;
    }
    return CLI_OK;
}

int cli_pb_outputs(cli_data *data, int64_t sample, sbit_tensor *out, size_t capacity, size_t *count)
{
    const cli_names *sets = (const cli_names *)data->state;
    const int64_t at = cli_data_number(data, sample);
    size_t wanted = 0;
    *count = 0;
    CLI_TRY(cli_pb_count(sets->items[at], cli_pb_is_output, &wanted));
    while (*count < wanted && *count < capacity) {
        CLI_TRY(cli_pb_load(data, sets->items[at], "output", *count, &out[*count]));
        (*count)++;
    }
    return CLI_OK;
}

const cli_source cli_source_pb = {"pb", "pb:DIR", cli_pb_open, cli_pb_read, true, cli_pb_close};
