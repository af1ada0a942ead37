/* commands/run.c: `sparsebit run`: a model on given or random inputs, once.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"
#include "formats/npy.h"
#include "model/inputs.h"
#include "report/measure.h"

#include <math.h>   /* isnan */
#include <stdlib.h> /* free */

/* DIR/NAME.npy with letters that file names cannot have replaced; to be freed. */
static char *cli_output_path(const char *folder, const char *name)
{
    char file[200];
    size_t i = 0;
    for (; name[i] != '\0' && i < sizeof file - 8; i++) {
        const char ch = name[i];
        file[i] = strchr("/\\:*?\"<>|", ch) != NULL || (unsigned char)ch < 0x20 ? '_' : ch;
    }
    if (i > 0 && file[0] == '.') {
        file[0] = '_';
    }
    snprintf(file + i, sizeof file - i, ".npy");
    return cli_path_join(folder, file);
}

static int cli_save_output(const cli_args *args, const char *name, const sbit_value *value)
{
    if (args->out == NULL) {
        return CLI_OK;
    }
    if (value->kind != SBIT_KIND_TENSOR || !sbit_dtype_is_number(value->tensor.dtype)) {
        cli_warn("output '%s' is no tensor of numbers and is not written", name);
        return CLI_OK;
    }
    char *path = cli_output_path(args->out, name);
    const int code = path != NULL ? cli_npy_save(path, &value->tensor) : CLI_BAD;
    free(path);
    return code;
}

static void cli_value_text(const sbit_value *value, char *text, size_t size)
{
    if (value->kind == SBIT_KIND_TENSOR) {
        sbit_tensor_describe(&value->tensor, text, size);
    } else {
        snprintf(text, size, "%s of %lld",
                 value->kind == SBIT_KIND_SEQUENCE ? "sequence" : "optional",
                 (long long)value->item_count);
    }
}

static void cli_first_values(const sbit_tensor *tensor, char *text, size_t size)
{
    const int64_t count = sbit_tensor_count(tensor);
    text[0] = '\0';
    for (int64_t i = 0; i < count && i < 5; i++) {
        const size_t at = strlen(text);
        snprintf(text + at, size - at, "%s%.6g", i > 0 ? " " : "", sbit_tensor_f64_at(tensor, i));
    }
    const size_t at = strlen(text);
    snprintf(text + at, size - at, "%s", count > 5 ? " ..." : "");
}

typedef struct cli_summary {
    cli_range range;
    int64_t nan;
    bool numbers;
} cli_summary;

static cli_summary cli_summarize(const sbit_value *value)
{
    cli_summary summary;
    memset(&summary, 0, sizeof summary);
    summary.numbers = value->kind == SBIT_KIND_TENSOR && sbit_dtype_is_number(value->tensor.dtype);
    if (!summary.numbers) {
        return summary;
    }
    cli_range_add(&summary.range, &value->tensor, 0, 0);
    for (int64_t i = 0; i < sbit_tensor_count(&value->tensor); i++) {
        summary.nan += isnan(sbit_tensor_f64_at(&value->tensor, i)) != 0;
    }
    return summary;
}

static void cli_json_output(sbit_json *json, const char *name, const sbit_value *value)
{
    const cli_summary s = cli_summarize(value);
    const sbit_tensor *tensor = &value->tensor;
    sbit_json_open(json, NULL, '{');
    sbit_json_text(json, "name", name);
    if (value->kind == SBIT_KIND_TENSOR) {
        sbit_json_text(json, "dtype", sbit_dtype_name((int32_t)tensor->dtype));
        sbit_json_open(json, "shape", '[');
        for (int32_t i = 0; i < tensor->rank; i++) {
            sbit_json_int(json, NULL, tensor->dims[i]);
        }
        sbit_json_close(json, ']');
    }
    if (s.numbers) {
        const int64_t count = sbit_tensor_count(tensor);
        sbit_json_number(json, "min", s.range.min);
        sbit_json_number(json, "mean",
                         s.range.count > 0 ? s.range.sum / (double)s.range.count : 0.0);
        sbit_json_number(json, "max", s.range.max);
        sbit_json_int(json, "nan", s.nan);
        sbit_json_open(json, "first", '[');
        for (int64_t i = 0; i < count && i < 10; i++) {
            sbit_json_number(json, NULL, sbit_tensor_f64_at(tensor, i));
        }
        sbit_json_close(json, ']');
    }
    sbit_json_close(json, '}');
}

static int cli_run_json(const cli_args *args, const cli_inputs *inputs, const sbit_session *session,
                        double seconds)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", args->operands[0]);
    sbit_json_number(&json.to, "ms", 1000.0 * seconds);
    sbit_json_int(&json.to, "threads", sbit_ctx_threads(inputs->model.ctx));
    sbit_json_open(&json.to, "outputs", '[');
    for (size_t i = 0; i < sbit_session_output_count(session); i++) {
        cli_json_output(&json.to, sbit_session_output_info(session, i)->name,
                        sbit_session_output(session, i));
    }
    sbit_json_close(&json.to, ']');
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

static int cli_run_table(const cli_args *args, const cli_inputs *inputs,
                         const sbit_session *session, double seconds)
{
    cli_table table;
    static const char *const heads[] = {"output", "type", "min", "mean", "max", "first values"};
    cli_table_begin(&table, "<<>>><");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (size_t i = 0; i < sbit_session_output_count(session); i++) {
        const sbit_value *value = sbit_session_output(session, i);
        const cli_summary s = cli_summarize(value);
        char text[160] = "";
        cli_table_cell(&table, "%s", sbit_session_output_info(session, i)->name);
        cli_value_text(value, text, sizeof text);
        cli_table_cell(&table, "%s", text);
        if (!s.numbers || s.range.count == 0) {
            for (int k = 0; k < 4; k++) {
                cli_table_cell(&table, "%s", "");
            }
            continue;
        }
        cli_table_cell(&table, "%.5g", s.range.min);
        cli_table_cell(&table, "%.5g", s.range.sum / (double)s.range.count);
        cli_table_cell(&table, "%.5g", s.range.max);
        cli_first_values(&value->tensor, text, sizeof text);
        cli_table_cell(&table, "%s", text);
        if (s.nan > 0) {
            cli_warn("output '%s' has %lld values that are not numbers (NaN)",
                     sbit_session_output_info(session, i)->name, (long long)s.nan);
        }
    }
    CLI_TRY(cli_table_print(&table, stdout));
    printf("%.3f ms, %d thread%s%s%s\n", 1000.0 * seconds, (int)sbit_ctx_threads(inputs->model.ctx),
           sbit_ctx_threads(inputs->model.ctx) > 1 ? "s" : "",
           args->out != NULL ? "; written to " : "", args->out != NULL ? args->out : "");
    return CLI_OK;
}

static int cli_run_session(const cli_args *args, cli_inputs *inputs)
{
    sbit_session *session = NULL;
    sbit_session_desc desc;
    double seconds = 0.0;
    memset(&desc, 0, sizeof desc);
    desc.disable_integers = args->simulate;
    CLI_TRY(cli_session_create(inputs->model.graph, &desc, inputs->model.path, &session));
    int code = cli_inputs_run(inputs, session, &seconds);
    for (size_t i = 0; i < sbit_session_output_count(session) && code == CLI_OK; i++) {
        code = cli_save_output(args, sbit_session_output_info(session, i)->name,
                               sbit_session_output(session, i));
    }
    if (code == CLI_OK) {
        code = args->json ? cli_run_json(args, inputs, session, seconds)
                          : cli_run_table(args, inputs, session, seconds);
    }
    sbit_session_destroy(session);
    return code;
}

int cli_run(const cli_args *args)
{
    cli_inputs inputs;
    int code = cli_inputs_begin(&inputs, args, cli_processor_count());
    if (code == CLI_OK && args->out != NULL) {
        code = cli_make_folder("-o", args->out);
    }
    code = code == CLI_OK ? cli_run_session(args, &inputs) : code;
    cli_inputs_free(&inputs);
    return code;
}
