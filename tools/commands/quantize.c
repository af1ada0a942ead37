/* commands/quantize.c: `sparsebit quantize`: calibration, export, and the report of what was done.
 *
 * The order: everything is checked (output folder, configuration, data) - the float model is
 * measured if --eval is given - calibration - the model with Q and DQ nodes is built, gets its
 * metadata (preprocessing, input ranges, how it was calibrated) and is written - measured again -
 * reported (report/quantize.c).
 */
#include "commands/commands.h"
#include "commands/export.h"
#include "base/text.h"
#include "report/quantize.h"
#include "report/recipes.h"
#include "report/unsupported.h"

#include <stdlib.h> /* malloc */

/* ---- configuration */

static int cli_check_target(const cli_args *args, sbit_ctx *ctx)
{
    const char *words[64];
    size_t count = 0;
    sbit_qconfig *none = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (args->target == NULL || sbit_profile_find(ctx, args->target) != NULL) {
        return CLI_OK;
    }
    while (count < CLI_COUNT_OF(words) && sbit_profile_at(count) != NULL) {
        words[count] = sbit_profile_at(count)->head.name;
        count++;
    }
    const char *near = sbit_word_nearest(args->target, words, count);
    sbit_qconfig_create(ctx, args->target, &none, &error); /* its message lists what there is */
    return cli_fail_usage(args->command, "--target: %s%s%s%s", error.message,
                          near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                          near != NULL ? "'?" : "");
}

/* --set KEY=VALUE; the key has no '=', the value may. */
static int cli_config_set(cli_job *job, const char *text)
{
    char key[200];
    sbit_error error;
    const size_t size = strcspn(text, "=");
    memset(&error, 0, sizeof error);
    if (text[size] != '=' || size == 0 || size >= sizeof key) {
        return cli_fail_usage(job->args->command,
                              "--set '%s': KEY=VALUE is wanted, such as W.QUANTIZER.BIT=4", text);
    }
    snprintf(key, sizeof key, "%.*s", (int)size, text);
    if (sbit_qconfig_set(job->config, key, text + size + 1, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--set %s", text);
    }
    return CLI_OK;
}

/* What a profile chooses when no YAML does: shown, so that it can be copied and changed. */
static int cli_config_show(const cli_job *job)
{
    cli_text text;
    memset(&text, 0, sizeof text);
    sbit_qconfig_print(job->config, true, cli_text_put, &text);
    if (text.failed) {
        const size_t size = text.size;
        cli_text_free(&text);
        return cli_fail_memory(size);
    }
    fputs("configuration (no -c was given):\n", stderr);
    for (const char *line = text.data; line != NULL && *line != '\0';) {
        const size_t size = strcspn(line, "\n");
        if (line[strspn(line, " ")] != '#' && size > 0) { /* defaults are printed as comments */
            fprintf(stderr, "  %.*s\n", (int)size, line);
        }
        line += size + (line[size] == '\n');
    }
    cli_text_free(&text);
    return CLI_OK;
}

/* A file for pruning is a common mistake. */
static int cli_fail_config(const cli_args *args, sbit_ctx *ctx, const sbit_error *error)
{
    sbit_sconfig *pruning = NULL;
    sbit_error ignored;
    if (strstr(error->message, "SPARSER") != NULL &&
        sbit_sconfig_load(ctx, args->config, &pruning, &ignored) == SBIT_OK) {
        sbit_sconfig_destroy(pruning);
        return cli_fail("'%s' is a pruning configuration; -c of quantize wants a quantization "
                        "configuration (QSCHEME, QUANTIZER ...)",
                        args->config);
    }
    return cli_fail_library(error, "configuration '%s'", args->config);
}

/* A key from a flag, as --set has it; text NULL: not given. */
static int cli_config_flag(cli_job *job, const char *flag, const char *key, const char *text)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    return text == NULL || sbit_qconfig_set(job->config, key, text, &error) == SBIT_OK
               ? CLI_OK
               : cli_fail_library(&error, "%s %s", flag, text);
}

/* "300KB", "1.5MB", "0.5x" -> the number that a budget's key takes; NULL: none was given. */
static int cli_budget_text(const cli_args *args, const char *flag, const char *text, char *out,
                           size_t size, const char **value)
{
    static const char *const units[] = {"", "B", "KB", "MB", "GB", "x"};
    static const double factors[] = {1.0, 1.0, 1e3, 1e6, 1e9, 1.0};
    char *end = NULL;
    *value = NULL;
    if (text == NULL) {
        return CLI_OK;
    }
    const double number = strtod(text, &end);
    for (size_t i = 0; i < CLI_COUNT_OF(units) && end != text && number > 0.0; i++) {
        const bool part = strcmp(units[i], "x") == 0;
        if (strcmp(end, units[i]) == 0 && (part ? number <= 1.0 : number * factors[i] > 1.0)) {
            snprintf(out, size, "%.17g", number * factors[i]);
            *value = out;
            return CLI_OK;
        }
    }
    return cli_fail_usage(args->command, "%s '%s': such as 300KB, 1.5MB, or 0.5x is wanted", flag,
                          text);
}

static const char *cli_number_text(const cli_numbers *numbers, char *out, size_t size)
{
    snprintf(out, size, "%.17g", numbers->items[0]);
    return numbers->count > 0 ? out : NULL;
}

/* The steps that flags ask for. */
static int cli_config_steps(cli_job *job)
{
    const cli_args *args = job->args;
    const bool steps[] = {args->auto_exclude, args->by_time, args->mixed_precision,
                          args->percent.count > 0};
    static const char *const names[] = {"auto_exclude", "by_time", "mixed_precision", "widen"};
    char text[40], to[24];
    const char *value = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if ((args->size_budget != NULL || args->bops_budget != NULL) != args->mixed_precision) {
        return cli_fail_usage(args->command, "--mixed-precision goes with --size-budget or "
                                             "--bops-budget");
    }
    if (args->latency_table != NULL && args->latency == NULL && !args->by_time) {
        return cli_fail_usage(args->command, "--latency-table goes with --by-time");
    }
    if (args->to > 0 && args->percent.count == 0) {
        return cli_fail_usage(args->command, "--to goes with --percent");
    }
    for (size_t i = 0; i < CLI_COUNT_OF(steps); i++) {
        if (steps[i] && sbit_qconfig_add_step(job->config, names[i], &error) != SBIT_OK) {
            return cli_fail_library(&error, "step %s", names[i]);
        }
    }
    CLI_TRY(cli_config_flag(job, "--max-drop", "STEP.AUTO_EXCLUDE.MAX_DROP",
                            cli_number_text(&args->max_drop, text, sizeof text)));
    CLI_TRY(cli_config_flag(job, "--latency-table", "STEP.BY_TIME.TABLE",
                            args->by_time ? args->latency_table : NULL));
    CLI_TRY(cli_config_flag(job, "--percent", "STEP.WIDEN.PERCENT",
                            cli_number_text(&args->percent, text, sizeof text)));
    snprintf(to, sizeof to, "%lld", (long long)args->to);
    CLI_TRY(cli_config_flag(job, "--to", "STEP.WIDEN.BITS", args->to > 0 ? to : NULL));
    CLI_TRY(cli_budget_text(args, "--size-budget", args->size_budget, text, sizeof text, &value));
    CLI_TRY(cli_config_flag(job, "--size-budget", "STEP.MIXED_PRECISION.SIZE_BUDGET", value));
    CLI_TRY(cli_budget_text(args, "--bops-budget", args->bops_budget, text, sizeof text, &value));
    return cli_config_flag(job, "--bops-budget", "STEP.MIXED_PRECISION.BOPS_BUDGET", value);
}

int cli_config_make(cli_job *job)
{
    const cli_args *args = job->args;
    sbit_ctx *ctx = job->model.ctx;
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_check_target(args, ctx));
    if (args->config == NULL) {
        if (sbit_qconfig_create(ctx, args->target, &job->config, &error) != SBIT_OK) {
            return cli_fail_library(&error, "configuration");
        }
    } else if (sbit_qconfig_load(ctx, args->config, &job->config, &error) != SBIT_OK) {
        return cli_fail_config(args, ctx, &error);
    } else if (args->target != NULL &&
               sbit_qconfig_set(job->config, "PLACEMENT", args->target, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--target %s", args->target);
    }
    if (args->format != NULL &&
        sbit_qconfig_set(job->config, "EXPORT.FORMAT", args->format, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--format %s", args->format);
    }
    for (size_t i = 0; i < args->set.count; i++) {
        CLI_TRY(cli_config_set(job, args->set.items[i]));
    }
    CLI_TRY(cli_config_steps(job));
    if (sbit_qconfig_validate(job->config, &error) != SBIT_OK) {
        return cli_fail_library(&error, "configuration");
    }
    return CLI_OK;
}

/* ---- calibration */

static void cli_check_scale(const cli_job *job, size_t index)
{
    const cli_range *range = &job->ranges[index];
    const sbit_tensor *sample = &job->calib.samples[index];
    if (sample->rank == 4 && sample->dtype == SBIT_F32 && range->min >= 0.0 && range->max > 64.0) {
        cli_warn("input '%s' reaches from %g to %g, which looks like bytes; is --scale missing "
                 "(such as 0.00392157 for 1/255)?",
                 sbit_graph_value(job->model.graph, job->calib.inputs[index])->name, range->min,
                 range->max);
    }
}

/* The ranges of the inputs, which go into the file. */
static void cli_calibrate_seen(cli_source_feed *feed, const cli_batch *batch, void *user)
{
    cli_job *job = (cli_job *)user;
    const int64_t slots = feed->data->fixed_batch ? feed->data->batch : batch->count;
    for (size_t i = 0; i < batch->input_count; i++) {
        cli_range_add(&job->ranges[i], &batch->inputs[i], batch->count, slots);
    }
}

/* Feeds the observers, or takes what they saw from a file. */
static sbit_status cli_observe(cli_job *job, const sbit_feed *feed, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    sbit_batch batch;
    const cli_list *stats = &job->args->stats;
    if (job->has_calib) {
        status = sbit_quant_calibrate(job->quant, feed, error);
    } else if (stats->count == 0) {
        return sbit_quant_prepare_calibration(job->quant, error);
    }
    for (size_t i = 0; status == SBIT_OK && i < stats->count; i++) {
        status = i == 0 ? sbit_quant_load_statistics(job->quant, stats->items[i], error)
                        : sbit_quant_merge_statistics(job->quant, stats->items[i], error);
    }
    for (int64_t at = 0; job->has_calib && status == SBIT_OK && !sbit_quant_needs_data(job->quant) && at < feed->count;
         at += batch.samples) { /* for the ranges alone */
        status = sbit_feed_read(feed, at, 0, &batch, error);
    }
    if (status == SBIT_OK && job->args->save_stats != NULL) {
        status = sbit_quant_save_statistics(job->quant, job->args->save_stats, error);
    }
    return status;
}

int cli_calibrate(cli_job *job)
{
    sbit_error error;
    cli_source_feed source;
    memset(&error, 0, sizeof error);
    memset(&source, 0, sizeof source);
    source.seen_fn = cli_calibrate_seen;
    source.user = job;
    sbit_feed feed = cli_feed_of(&job->calib, &source);
    const double begin = cli_seconds();
    sbit_status status = cli_observe(job, &feed, &error);
    if (status == SBIT_OK) { /* steps read the data again */
        status = sbit_quant_calc_qparams(job->quant, false, false, false, &error);
    }
    if (job->has_calib) {
        sbit_feed_close(&feed);
    }
    if (status != SBIT_OK) {
        return source.failed ? CLI_BAD
                             : cli_fail_library(&error, "cannot quantize '%s'", job->model.path);
    }
    for (size_t i = 0; i < job->calib.input_count; i++) {
        cli_check_scale(job, i);
    }
    job->calibrate_seconds = cli_seconds() - begin;
    return CLI_OK;
}

/* ---- writing */

/* Facts that a later `eval` checks, and that tell how the file was made. No paths, no times: the
 * same input gives the same bytes. */
static sbit_status cli_describe(cli_job *job, sbit_error *error)
{
    char text[4096], key[300];
    const cli_data *data = &job->calib;
    cli_data_prep_text(data, text, sizeof text);
    sbit_status status = sbit_graph_add_metadata(job->built, CLI_KEY_PREP, text, error);
    if (status == SBIT_OK) {
        snprintf(text, sizeof text, "samples=%lld data=%s:%s", (long long)data->count,
                 job->has_calib ? data->source->name : "none",
                 job->has_calib ? cli_base_name(data->path) : "");
        if (data->order != NULL) {
            const size_t at = strlen(text);
            snprintf(text + at, sizeof text - at, " seed=%lld", (long long)job->args->seed);
        }
        status = sbit_graph_add_metadata(job->built, CLI_KEY_CALIBRATION, text, error);
    }
    for (size_t i = 0; i < data->input_count && status == SBIT_OK; i++) {
        snprintf(key, sizeof key, CLI_KEY_RANGE "%s",
                 sbit_graph_value(job->model.graph, data->inputs[i])->name);
        snprintf(text, sizeof text, "%.9g %.9g", job->ranges[i].min, job->ranges[i].max);
        status = sbit_graph_add_metadata(job->built, key, text, error);
    }
    return status;
}

static int cli_save_encodings(const cli_job *job)
{
    char kind[40];
    sbit_error error;
    const char *text = job->args->save_encodings;
    const size_t size = strcspn(text, ":");
    memset(&error, 0, sizeof error);
    if (text[size] != ':' || size >= sizeof kind) {
        return cli_fail_usage(job->args->command,
                              "--save-encodings '%s': KIND:FILE is wanted, KIND tensorrt, aimet or "
                              "nni",
                              text);
    }
    snprintf(kind, sizeof kind, "%.*s", (int)size, text);
    if (sbit_quant_save_encodings(job->quant, text + size + 1, kind, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--save-encodings %s", text);
    }
    return CLI_OK;
}

static int cli_export(cli_job *job)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(job->args->save_encodings != NULL ? cli_save_encodings(job) : CLI_OK);
    if (sbit_quant_build(job->quant, NULL, &job->built, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot quantize '%s'", job->model.path);
    }
    error.status = cli_describe(job, &error);
    if (error.status != SBIT_OK) {
        return cli_fail_library(&error, "cannot describe '%s'", job->args->out);
    }
    CLI_TRY(cli_export_graph(job->args, job->built));
    return cli_file_bytes(job->args->out, &job->after.file_bytes);
}

/* ---- cost before and after */

/* For one sample of the calibration data, whose shapes say what the model leaves open. */
static sbit_status cli_cost_of_sample(cli_job *job, const sbit_graph *graph, sbit_graph_cost *out,
                                      sbit_error *error)
{
    const cli_data *data = &job->calib;
    sbit_graph *sized = NULL;
    sbit_status status = sbit_graph_clone(graph, &sized, error);
    for (size_t i = 0; i < data->input_count && status == SBIT_OK; i++) {
        const char *name = sbit_graph_value(job->model.graph, data->inputs[i])->name;
        const sbit_value_id id = sbit_graph_find_value(sized, name);
        sbit_type type = sbit_graph_value(sized, id)->type;
        const bool known = type.rank >= 0;
        type.rank = data->samples[i].rank;
        for (int32_t d = 0; d < type.rank; d++) {
            if (!known || type.dims[d].symbol != 0) {
                type.dims[d].symbol = 0;
                type.dims[d].value = data->samples[i].dims[d];
            }
        }
        sbit_graph_set_type(sized, id, &type);
    }
    status = status == SBIT_OK ? sbit_infer(sized, error) : status;
    status = status == SBIT_OK ? sbit_graph_cost_of(sized, out, error) : status;
    sbit_graph_destroy(sized);
    return status;
}

static int cli_measure_cost(cli_job *job, sbit_graph *graph, const char *name, cli_cost *out)
{
    sbit_graph_cost cost;
    sbit_error error;
    memset(&error, 0, sizeof error);
    error.status = job->has_calib ? cli_cost_of_sample(job, graph, &cost, &error)
                                  : sbit_graph_cost_of(graph, &cost, &error);
    if (error.status != SBIT_OK) {
        return cli_fail_library(&error, "'%s'", name);
    }
    out->params = cost.params;
    out->macs = cost.macs;
    if (job->has_calib) {
        CLI_TRY(cli_peak_of(&job->calib, graph, name, &out->peak_bytes));
    }
    if (job->has_eval) {
        CLI_TRY(cli_evaluate(&job->eval, graph, name, true, NULL, &out->score));
    }
    return CLI_OK;
}

/* ---- the command */

int cli_calibration_open(cli_job *job)
{
    const cli_args *args = job->args;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (args->stats.count > 0 && args->data != NULL) {
        return cli_fail_usage(args->command, "--stats FILE takes the place of --data; give one");
    }
    if (args->save_stats != NULL && args->data == NULL && args->stats.count == 0) {
        return cli_fail_usage(args->command, "--save-stats is for what --data shows, or several "
                                             "--stats say; they are missing");
    }
    CLI_TRY(args->save_stats != NULL ? cli_check_writable("--save-stats", args->save_stats)
                                     : CLI_OK);
    job->has_calib = args->data != NULL;
    if (job->has_calib) {
        const cli_choice choice = {args->calib > 0 ? args->calib : 256, 0, args->shuffle};
        CLI_TRY(cli_data_open(args, &job->model, "calibration set", args->data, choice,
                              &job->calib));
    }
    if (sbit_quant_create(job->model.graph, job->config, &job->quant, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot quantize '%s'", job->model.path);
    }
    if (args->encodings != NULL) {
        int64_t taken = 0;
        if (sbit_quant_load_encodings(job->quant, args->encodings, &taken, &error) != SBIT_OK) {
            return cli_fail_library(&error, "--encodings %s", args->encodings);
        }
        cli_note("%s gives the scales of %lld of %lld tensors", args->encodings, (long long)taken,
                 (long long)sbit_quant_site_count(job->quant));
    }
    if (!job->has_calib && args->stats.count == 0 && sbit_quant_needs_data(job->quant)) {
        return cli_fail_usage(args->command,
                              "--data SPEC is missing: the ranges of activations are measured on "
                              "data, for example:\n"
                              "  sparsebit quantize %s --data npy:inputs.npy --calib 256 -o %s",
                              job->model.path, args->out);
    }
    return CLI_OK;
}

/* --max-drop without --auto-exclude: for the whole recipe. */
static bool cli_searches(const cli_args *args)
{
    return args->max_drop.count > 0 && !args->auto_exclude;
}

static int cli_check_search(const cli_args *args)
{
    if (cli_searches(args) && (args->eval == NULL || args->data == NULL)) {
        return cli_fail_usage(args->command,
                              "--max-drop goes with --auto-exclude, or with --data and --eval");
    }
    if ((args->prefer != NULL || args->time_budget > 0) && !cli_searches(args)) {
        return cli_fail_usage(args->command, "--prefer and --time-budget go with --eval and "
                                             "--max-drop");
    }
    return CLI_OK;
}

static int cli_quantize_open(cli_job *job)
{
    const cli_args *args = job->args;
    CLI_TRY(cli_check_search(args));
    CLI_TRY(cli_config_make(job));
    CLI_TRY(cli_calibration_open(job));
    if (job->has_calib || args->eval != NULL) { /* weights alone need no run */
        CLI_TRY(cli_model_check_runs(&job->model));
    }
    if (args->eval != NULL) {
        CLI_TRY(cli_data_open(args, &job->model, "data set", args->eval, cli_first(args->limit),
                              &job->eval));
        job->has_eval = true;
        if (!job->eval.has_labels) {
            return cli_fail("--eval '%s' has no labels: add ,labels=FILE, or leave --eval away",
                            args->eval);
        }
    }
    return args->config == NULL ? cli_config_show(job) : CLI_OK;
}

int cli_quantize_run(cli_job *job)
{
    const double begin = cli_seconds();
    CLI_TRY(cli_quantize_open(job));
    job->before.file_bytes = job->model.file_bytes;
    const bool search = cli_searches(job->args);
    CLI_TRY(cli_measure_cost(job, job->model.graph, job->model.path, &job->before));
    CLI_TRY(search ? cli_recipes_search(job) : cli_calibrate(job));
    CLI_TRY(cli_export(job));
    CLI_TRY(cli_measure_cost(job, job->built, job->args->out, &job->after));
    job->seconds = cli_seconds() - begin;
    CLI_TRY(cli_report_show(job));
    return !search || job->recipes[0].keeps
               ? CLI_OK
               : cli_fail("no recipe loses less than %g points; '%s' is the most accurate",
                          job->args->max_drop.items[0], job->args->out);
}

void cli_job_free(cli_job *job)
{
    sbit_graph_destroy(job->built);
    sbit_quant_destroy(job->quant);
    sbit_qconfig_destroy(job->config);
    cli_data_close(&job->calib);
    cli_data_close(&job->eval);
    cli_model_free(&job->model);
}

int cli_quantize(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_job job;
    memset(&job, 0, sizeof job);
    job.args = args;
    CLI_TRY(cli_check_out(args));
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &job.model);
    code = code == CLI_OK ? cli_quantize_run(&job) : code;
    cli_job_free(&job);
    sbit_ctx_destroy(ctx);
    return code;
}
