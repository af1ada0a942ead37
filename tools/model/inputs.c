/* model/inputs.c: inputs for one run: from files, else random numbers, always the same.
 */
#include "model/inputs.h"
#include "formats/npy.h"
#include "report/unsupported.h"

static int cli_inputs_file(cli_inputs *inputs, const char *text)
{
    const char *path = NULL;
    size_t index = 0;
    char why[600];
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_input_index(&inputs->model, "--input", text, &index, &path));
    const sbit_value_info *info = cli_model_input(&inputs->model, index);
    sbit_tensor *tensor = &inputs->tensors[index];
    if (tensor->data != NULL) {
        return cli_fail("--input '%s': input '%s' is given twice", text, info->name);
    }
    if (cli_has_suffix(path, ".pb")) {
        if (sbit_tensor_load_pb(inputs->model.ctx, path, tensor, &error) != SBIT_OK) {
            return cli_fail_library(&error, "--input '%s'", text);
        }
    } else if (cli_has_suffix(path, ".npy")) {
        CLI_TRY(cli_npy_load(inputs->model.ctx, path, tensor));
    } else {
        return cli_fail("--input '%s': the file must be .npy (np.save) or .pb (TensorProto)", text);
    }
    if (!cli_type_takes(inputs->model.graph, &info->type, tensor, why, sizeof why)) {
        return cli_fail("--input '%s' does not fit input '%s': %s", text, info->name, why);
    }
    return CLI_OK;
}

/* An input from a file says what the symbols of its dims are. */
static void cli_inputs_types(cli_inputs *inputs)
{
    for (size_t i = 0; i < inputs->model.input_count; i++) {
        const sbit_tensor *tensor = &inputs->tensors[i];
        sbit_type type = cli_model_input(&inputs->model, i)->type;
        if (tensor->data == NULL) {
            continue;
        }
        type.dtype = tensor->dtype;
        type.rank = tensor->rank;
        for (int32_t d = 0; d < tensor->rank; d++) {
            type.dims[d].symbol = 0;
            type.dims[d].value = tensor->dims[d];
        }
        sbit_graph_set_type(inputs->model.graph, inputs->model.inputs[i], &type);
    }
}

static int cli_inputs_fill(cli_inputs *inputs, const cli_args *args)
{
    sbit_rng rng = sbit_rng_seed(0);
    for (size_t i = 0; i < args->input.count; i++) {
        CLI_TRY(cli_inputs_file(inputs, args->input.items[i]));
    }
    cli_inputs_types(inputs);
    CLI_TRY(cli_model_apply_shapes(&inputs->model, &args->shape, true));
    CLI_TRY(cli_model_check_runs(&inputs->model));
    for (size_t i = 0; i < inputs->model.input_count; i++) {
        const sbit_value_info *info = cli_model_input(&inputs->model, i);
        if (inputs->tensors[i].data == NULL) {
            CLI_TRY(cli_random_tensor(inputs->model.ctx, info, &rng, &inputs->tensors[i]));
            if (strcmp(args->command, "run") == 0) {
                char text[200];
                sbit_tensor_describe(&inputs->tensors[i], text, sizeof text);
                cli_note("input '%s' gets random numbers: %s", info->name, text);
            }
        }
    }
    return CLI_OK;
}

static int cli_inputs_set(cli_inputs *inputs, sbit_session *session)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    for (size_t i = 0; i < inputs->model.input_count; i++) {
        const char *name = cli_model_input(&inputs->model, i)->name;
        if (sbit_session_set_input(session, name, &inputs->tensors[i], &error) != SBIT_OK) {
            return cli_fail_library(&error, "'%s'", inputs->model.path);
        }
    }
    return CLI_OK;
}

int cli_inputs_run(cli_inputs *inputs, sbit_session *session, double *seconds)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_inputs_set(inputs, session));
    if (sbit_session_plan(session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' cannot run with these inputs", inputs->model.path);
    }
    const double begin = cli_seconds();
    if (sbit_session_run(session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' failed", inputs->model.path);
    }
    *seconds = cli_seconds() - begin;
    return CLI_OK;
}

void cli_inputs_free(cli_inputs *inputs)
{
    sbit_ctx *ctx = inputs->model.ctx;
    for (size_t i = 0; i < CLI_MAX_INPUTS; i++) {
        if (inputs->tensors[i].data != NULL) {
            sbit_tensor_free(ctx, &inputs->tensors[i]);
        }
    }
    cli_model_free(&inputs->model);
    sbit_ctx_destroy(ctx);
}

int cli_inputs_begin(cli_inputs *inputs, const cli_args *args, int32_t threads)
{
    sbit_ctx *ctx = NULL;
    memset(inputs, 0, sizeof *inputs);
    CLI_TRY(cli_context_create(args, threads, &ctx));
    const int code = cli_model_load(ctx, args->operands[0], &inputs->model);
    if (code != CLI_OK) {
        sbit_ctx_destroy(ctx);
        return code;
    }
    return cli_inputs_fill(inputs, args);
}
