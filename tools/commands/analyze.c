/* commands/analyze.c: `sparsebit analyze`: which layers suffer most from being quantized.
 */
#include "base/json.h"
#include "base/table.h"
#include "commands/commands.h"
#include "report/quantize.h"
#include "report/unsupported.h"

#include <math.h>   /* isfinite */
#include <stdlib.h> /* malloc, free */

enum {
    CLI_ANALYZE_SAMPLES = 64, /* without --limit */
    CLI_ANALYZE_ROWS = 30     /* shown without --json */
};

static void cli_analyze_diff(cli_json *json, const char *what, const sbit_diff *diff)
{
    const double numbers[] = {sbit_diff_sqnr(diff), sbit_diff_cosine(diff),
                              diff->error2 / (double)diff->count};
    static const char *const names[] = {"sqnr_db", "cosine", "mse"};
    char name[40];
    for (size_t i = 0; i < CLI_COUNT_OF(names); i++) {
        snprintf(name, sizeof name, "%s_%s", what, names[i]);
        sbit_json_number(&json->to, name, numbers[i]);
    }
}

static int cli_analyze_json(const cli_job *job, int64_t samples, const sbit_sensitivity *layers,
                            size_t count)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", job->model.path);
    sbit_json_int(&json.to, "samples", samples);
    sbit_json_open(&json.to, "layers", '[');
    for (size_t i = 0; i < count; i++) {
        const sbit_sensitivity *s = &layers[i];
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "layer", s->layer);
        sbit_json_text(&json.to, "op_type", s->op_type);
        sbit_json_int(&json.to, "weight_bits", s->weight_bits);
        sbit_json_int(&json.to, "activation_bits", s->activation_bits);
        sbit_json_int(&json.to, "params", s->params);
        sbit_json_int(&json.to, "macs", s->macs);
        sbit_json_number(&json.to, "noise", s->noise);
        sbit_json_number(&json.to, "sqnr_db", s->sqnr);
        sbit_json_number(&json.to, "mse", s->mse);
        sbit_json_number(&json.to, "agreement", s->agreement);
        if (s->own.count > 0) {
            cli_analyze_diff(&json, "own", &s->own);
            cli_analyze_diff(&json, "accumulated", &s->accumulated);
        }
        if (isfinite(s->fisher)) {
            sbit_json_number(&json.to, "taylor", s->taylor);
            sbit_json_number(&json.to, "fisher", s->fisher);
        }
        sbit_json_close(&json.to, '}');
    }
    sbit_json_close(&json.to, ']');
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

/* NaN: not known. */
static void cli_analyze_db(cli_table *table, double sqnr)
{
    if (isfinite(sqnr)) {
        cli_table_cell(table, "%.1f dB", sqnr);
    } else {
        cli_table_cell(table, "%s", isnan(sqnr) ? "-" : "equal");
    }
}

static int cli_analyze_print(int64_t samples, const sbit_sensitivity *layers, size_t count)
{
    static const char *const heads[] = {"layer alone quantized, worst first", "operator", "bits",
                                        "params", "MACs", "own SQNR", "so far", "SQNR",
                                        "agreement", "Taylor", "Fisher"};
    cli_table table;
    char text[40];
    const bool labels = count > 0 && isfinite(layers[0].fisher);
    cli_table_begin(&table, labels ? "<<>>>>>>>>>" : "<<>>>>>>>");
    for (size_t i = 0; i < CLI_COUNT_OF(heads) - (labels ? 0 : 2); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (size_t i = 0; i < count && i < CLI_ANALYZE_ROWS; i++) {
        const sbit_sensitivity *s = &layers[i];
        cli_table_cell(&table, "%s", s->layer);
        cli_table_cell(&table, "%s", s->op_type);
        if (s->weight_bits > 0 && s->activation_bits > 0) {
            cli_table_cell(&table, "W%d A%d", (int)s->weight_bits, (int)s->activation_bits);
        } else {
            cli_table_cell(&table, "%c%d", s->weight_bits > 0 ? 'W' : 'A',
                           (int)(s->weight_bits > 0 ? s->weight_bits : s->activation_bits));
        }
        cli_table_cell(&table, "%s", cli_count_text((double)s->params, text, sizeof text));
        cli_table_cell(&table, "%s", cli_count_text((double)s->macs, text, sizeof text));
        cli_analyze_db(&table, s->own.count > 0 ? sbit_diff_sqnr(&s->own) : (double)NAN);
        cli_analyze_db(&table, s->own.count > 0 ? sbit_diff_sqnr(&s->accumulated) : (double)NAN);
        cli_analyze_db(&table, s->sqnr);
        cli_table_cell(&table, "%.2f %%", 100.0 * s->agreement);
        if (labels) {
            cli_table_cell(&table, "%.2g", s->taylor);
            cli_table_cell(&table, "%.2g", s->fisher);
        }
    }
    CLI_TRY(cli_table_print(&table, stdout));
    if (count > CLI_ANALYZE_ROWS) {
        printf("and %lu more (--json has them all)\n", (unsigned long)(count - CLI_ANALYZE_ROWS));
    }
    printf("%lld samples\n", (long long)samples);
    return CLI_OK;
}

static int cli_analyze_data(cli_job *job, cli_data *data)
{
    cli_source_feed source;
    sbit_error error;
    size_t count = 0, capacity = sbit_quant_site_count(job->quant) + 1;
    sbit_sensitivity *layers = (sbit_sensitivity *)malloc(capacity * sizeof *layers);
    if (layers == NULL) {
        return cli_fail_memory(capacity * sizeof *layers);
    }
    memset(&source, 0, sizeof source);
    memset(&error, 0, sizeof error);
    sbit_feed feed = cli_feed_of(data, &source);
    const sbit_status status =
        sbit_quant_analyze(job->quant, &feed, layers, capacity, &count, &error);
    sbit_feed_close(&feed);
    int code = CLI_OK;
    if (status != SBIT_OK) {
        code = source.failed ? CLI_BAD
                             : cli_fail_library(&error, "cannot analyze '%s'", job->model.path);
    } else if (job->args->json) {
        code = cli_analyze_json(job, data->count, layers, count);
    } else {
        code = cli_analyze_print(data->count, layers, count);
    }
    free(layers);
    return code;
}

static int cli_analyze_run(cli_job *job)
{
    const cli_args *args = job->args;
    const cli_choice choice = {args->limit > 0 ? args->limit : CLI_ANALYZE_SAMPLES, args->from,
                               args->shuffle};
    cli_data data;
    CLI_TRY(cli_config_make(job));
    CLI_TRY(cli_model_check_runs(&job->model));
    CLI_TRY(cli_calibration_open(job));
    CLI_TRY(cli_data_open(args, &job->model, "data set", args->data, choice, &data));
    int code = cli_calibrate(job);
    code = code == CLI_OK ? cli_analyze_data(job, &data) : code;
    cli_data_close(&data);
    return code;
}

int cli_analyze(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_job job;
    if (args->sparsity) {
        return cli_analyze_sparsity(args);
    }
    memset(&job, 0, sizeof job);
    job.args = args;
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &job.model);
    code = code == CLI_OK ? cli_analyze_run(&job) : code;
    cli_job_free(&job);
    sbit_ctx_destroy(ctx);
    return code;
}
