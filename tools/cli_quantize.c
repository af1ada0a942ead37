/* cli_quantize.c: `sparsebit quantize`: calibration, export, and the report of what was done.
 *
 * The order: everything is checked (output folder, configuration, data) - the float model is
 * measured if --eval is given - calibration - the model with Q and DQ nodes is built, gets its
 * metadata (preprocessing, input ranges, how it was calibrated) and is written - measured again.
 */
#include "cli.h"

#include <stdlib.h> /* malloc */

typedef struct cli_cost {
    int64_t params, macs;
    uint64_t file_bytes;
    size_t peak_bytes;
    cli_score score; /* with --eval */
} cli_cost;

typedef struct cli_job {
    const cli_args *args;
    cli_model model;
    sbit_qconfig *config;
    cli_data calib, eval;
    bool has_eval;
    cli_range ranges[CLI_MAX_INPUTS];
    sbit_quant *quant;
    sbit_graph *built;
    cli_cost before, after;
    double calibrate_seconds, seconds;
} cli_job;

/* ---- configuration */

typedef struct cli_growing {
    char *text;
    size_t size, capacity;
    bool failed;
} cli_growing;

static void cli_growing_put(const char *text, size_t size, void *user)
{
    cli_growing *to = (cli_growing *)user;
    if (to->size + size + 1 > to->capacity && !to->failed) {
        const size_t capacity = (to->size + size) * 2 + 256;
        char *moved = (char *)realloc(to->text, capacity);
        to->failed = moved == NULL;
        to->text = moved != NULL ? moved : to->text;
        to->capacity = moved != NULL ? capacity : to->capacity;
    }
    if (!to->failed) {
        memcpy(to->text + to->size, text, size);
        to->size += size;
        to->text[to->size] = '\0';
    }
}

static int cli_check_target(const cli_args *args, const sbit_ctx *ctx)
{
    const char *words[64];
    char known[400] = "";
    size_t count = 0;
    if (args->target == NULL || sbit_lookup_profile(ctx, args->target) != NULL) {
        return CLI_OK;
    }
    while (count < CLI_COUNT_OF(words) && sbit_profile_at(count) != NULL) {
        const size_t at = strlen(known);
        words[count] = sbit_profile_at(count)->name;
        snprintf(known + at, sizeof known - at, "%s%s", count > 0 ? ", " : "", words[count]);
        count++;
    }
    const char *near = cli_nearest(args->target, words, count);
    return cli_fail_usage(args->command, "--target '%s': no such profile%s%s%s; known: %s",
                          args->target, near != NULL ? ", did you mean '" : "",
                          near != NULL ? near : "", near != NULL ? "'?" : "", known);
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
    cli_growing text;
    memset(&text, 0, sizeof text);
    sbit_qconfig_print(job->config, true, cli_growing_put, &text);
    if (text.failed) {
        free(text.text);
        return cli_fail_memory(text.size);
    }
    fputs("configuration (no -c was given):\n", stderr);
    for (const char *line = text.text; line != NULL && *line != '\0';) {
        const size_t size = strcspn(line, "\n");
        if (line[strspn(line, " ")] != '#' && size > 0) { /* defaults are printed as comments */
            fprintf(stderr, "  %.*s\n", (int)size, line);
        }
        line += size + (line[size] == '\n');
    }
    free(text.text);
    return CLI_OK;
}

static int cli_config_make(cli_job *job)
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
        return cli_fail_library(&error, "configuration '%s'", args->config);
    } else if (args->target != NULL &&
               sbit_qconfig_set(job->config, "PLACEMENT", args->target, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--target %s", args->target);
    }
    for (size_t i = 0; i < args->set.count; i++) {
        CLI_TRY(cli_config_set(job, args->set.items[i]));
    }
    if (sbit_qconfig_validate(job->config, &error) != SBIT_OK) {
        return cli_fail_library(&error, "configuration");
    }
    return args->config == NULL ? cli_config_show(job) : CLI_OK;
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

static int cli_calibrate_batch(cli_job *job, int64_t first, cli_batch *batch)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_data_batch(&job->calib, first, batch));
    const int64_t slots = job->calib.fixed_batch ? job->calib.batch : batch->count;
    for (size_t i = 0; i < batch->input_count; i++) {
        cli_range_add(&job->ranges[i], &batch->inputs[i], batch->count, slots);
    }
    if (sbit_quant_forward(job->quant, batch->names, batch->inputs, batch->input_count, &error) !=
        SBIT_OK) {
        return cli_fail_library(&error, "calibration failed at sample %lld", (long long)first);
    }
    return CLI_OK;
}

static int cli_calibrate(cli_job *job)
{
    sbit_error error;
    cli_batch batch;
    int code = CLI_OK;
    memset(&error, 0, sizeof error);
    memset(&batch, 0, sizeof batch);
    const double begin = cli_seconds();
    if (sbit_quant_create(job->model.graph, job->config, &job->quant, &error) != SBIT_OK ||
        sbit_quant_prepare_calibration(job->quant, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot quantize '%s'", job->model.path);
    }
    for (int64_t i = 0; i < job->calib.count && code == CLI_OK; i += job->calib.batch) {
        cli_progress("calibrate", i, job->calib.count);
        code = cli_calibrate_batch(job, i, &batch);
    }
    cli_progress("calibrate", job->calib.count, job->calib.count);
    cli_batch_free(job->model.ctx, &batch);
    if (code == CLI_OK && sbit_quant_calc_qparams(job->quant, &error) != SBIT_OK) {
        code = cli_fail_library(&error, "cannot quantize '%s'", job->model.path);
    }
    for (size_t i = 0; i < job->calib.input_count && code == CLI_OK; i++) {
        cli_check_scale(job, i);
    }
    job->calibrate_seconds = cli_seconds() - begin;
    return code;
}

/* ---- writing */

/* Facts that a later `eval` checks, and that tell how the file was made. No paths, no times: the
 * same input gives the same bytes. */
static sbit_status cli_describe(cli_job *job, sbit_error *error)
{
    char text[4096], key[300];
    cli_growing config;
    const cli_data *data = &job->calib;
    memset(&config, 0, sizeof config);
    sbit_qconfig_print(job->config, true, cli_growing_put, &config);
    if (config.failed) {
        free(config.text);
        return SBIT_ERR_OUT_OF_MEMORY;
    }
    sbit_status status = sbit_graph_add_metadata(
        job->built, "sparsebit.qconfig", config.text != NULL ? config.text : "", error);
    free(config.text);
    if (status == SBIT_OK) {
        status = sbit_graph_add_metadata(job->built, "sparsebit.version", SPARSEBIT_VERSION, error);
    }
    if (status == SBIT_OK) {
        cli_data_prep_text(data, text, sizeof text);
        status = sbit_graph_add_metadata(job->built, CLI_KEY_PREP, text, error);
    }
    if (status == SBIT_OK) {
        snprintf(text, sizeof text, "samples=%lld data=%s:%s", (long long)data->count,
                 data->source->name, cli_base_name(data->path));
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

static int cli_export(cli_job *job)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_quant_build(job->quant, true, true, &job->built, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot quantize '%s'", job->model.path);
    }
    error.status = cli_describe(job, &error);
    if (error.status != SBIT_OK) {
        return cli_fail_library(&error, "cannot describe '%s'", job->args->out);
    }
    if (sbit_graph_validate(job->built, &error) != SBIT_OK ||
        sbit_graph_save(job->built, job->args->out, NULL, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot write '%s'", job->args->out);
    }
    return cli_file_bytes(job->args->out, &job->after.file_bytes);
}

/* ---- cost before and after */

static int cli_measure_cost(cli_job *job, sbit_graph *graph, const char *name, cli_cost *out)
{
    sbit_graph_cost cost;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_graph_cost_of(graph, &cost, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s'", name);
    }
    out->params = cost.params;
    out->macs = cost.macs;
    CLI_TRY(cli_peak_of(&job->calib, graph, name, &out->peak_bytes));
    if (job->has_eval) {
        CLI_TRY(cli_evaluate(&job->eval, graph, name, NULL, &out->score));
    }
    return CLI_OK;
}

/* ---- report: what became of each node */

typedef struct cli_fate {
    bool weight, feature; /* a site of this node is enabled */
    const char *reason;   /* of a disabled site; NULL: none */
} cli_fate;

/* Fills fate[node idx] from the sites, which name their layers. */
static void cli_take_fates(const cli_job *job, cli_fate *fates)
{
    const sbit_graph *graph = sbit_quant_graph(job->quant);
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        char name[300];
        sbit_layer_name(graph, id, name, sizeof name);
        for (size_t i = 0; i < sbit_quant_site_count(job->quant); i++) {
            sbit_site site;
            if (sbit_quant_site(job->quant, i, &site) != SBIT_OK ||
                strcmp(site.layer, name) != 0) {
                continue;
            }
            cli_fate *fate = &fates[id.idx];
            if (!site.enabled) {
                fate->reason = site.reason;
            } else if (site.target == SBIT_TARGET_WEIGHT) {
                fate->weight = true;
            } else {
                fate->feature = true;
            }
        }
    }
}

static bool cli_is_quantize(const sbit_node *node)
{
    return strcmp(node->op_type, "QuantizeLinear") == 0;
}

static bool cli_is_dequantize(const sbit_node *node)
{
    return strcmp(node->op_type, "DequantizeLinear") == 0;
}

static bool cli_is_float(const sbit_graph *graph, sbit_value_id id)
{
    return id.idx != 0 && sbit_graph_value(graph, id)->type.dtype == SBIT_F32;
}

/* In the built graph: the node reads dequantized values, or a quantizer reads what it computes. */
static bool cli_runs_quantized(const sbit_graph *graph, const sbit_node *node)
{
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_value_id id = node->inputs[i];
        const sbit_node_id from = id.idx != 0 ? sbit_graph_value(graph, id)->producer : node->id;
        if (from.idx != 0 && from.idx != node->id.idx &&
            cli_is_dequantize(sbit_graph_node(graph, from))) {
            return true;
        }
    }
    for (size_t i = 0; i < node->output_count; i++) {
        sbit_use uses[8];
        const size_t count =
            node->outputs[i].idx != 0 ? sbit_graph_uses(graph, node->outputs[i], uses, 8) : 0;
        for (size_t k = 0; k < count && k < 8; k++) {
            if (uses[k].node.idx != 0 && cli_is_quantize(sbit_graph_node(graph, uses[k].node))) {
                return true;
            }
        }
    }
    return false;
}

static bool cli_has_float(const sbit_graph *graph, const sbit_node *node)
{
    for (size_t i = 0; i < node->input_count; i++) {
        if (cli_is_float(graph, node->inputs[i])) {
            return true;
        }
    }
    return node->output_count > 0 && cli_is_float(graph, node->outputs[0]);
}

typedef struct cli_count {
    const char *op_type;
    int64_t quantized, kept; /* kept float */
} cli_count;

typedef struct cli_report {
    cli_count counts[200];
    size_t count;
    int64_t floats;
    cli_fate *fates;
} cli_report;

static void cli_report_count(cli_report *report, const char *op_type, bool quantized)
{
    size_t i = 0;
    while (i < report->count && strcmp(report->counts[i].op_type, op_type) != 0) {
        i++;
    }
    if (i == report->count && i < CLI_COUNT_OF(report->counts)) {
        report->counts[report->count++].op_type = op_type;
    }
    if (i < report->count) {
        report->counts[i].quantized += quantized;
        report->counts[i].kept += !quantized;
    }
    report->floats += !quantized;
}

static const char *cli_float_reason(const cli_job *job, const cli_report *report,
                                    const sbit_node *node)
{
    const uint32_t limit = sbit_graph_node_limit(sbit_quant_graph(job->quant));
    const char *reason = node->id.idx < limit ? report->fates[node->id.idx].reason : NULL;
    const sbit_op_row *row =
        sbit_lookup_operator(job->model.ctx, node->domain, node->op_type,
                             sbit_graph_opset(job->built, node->domain));
    if (reason != NULL && reason[0] != '\0') {
        return reason;
    }
    if (row != NULL && row->quant != NULL && (row->quant->flags & SBIT_QUANT_KEEP_FLOAT) != 0) {
        return "this operator is kept float";
    }
    return row == NULL || row->quant == NULL ? "this operator is never quantized"
                                             : "the profile does not quantize it here";
}

static int cli_take_report(const cli_job *job, cli_report *report)
{
    const uint32_t limit = sbit_graph_node_limit(sbit_quant_graph(job->quant));
    memset(report, 0, sizeof *report);
    report->fates = (cli_fate *)calloc((size_t)limit + 1, sizeof *report->fates);
    if (report->fates == NULL) {
        return cli_fail_memory((size_t)limit * sizeof *report->fates);
    }
    cli_take_fates(job, report->fates);
    for (sbit_node_id id = sbit_graph_first(job->built); id.idx != 0;
         id = sbit_graph_next(job->built, id)) {
        const sbit_node *node = sbit_graph_node(job->built, id);
        if (!cli_is_quantize(node) && !cli_is_dequantize(node) &&
            cli_has_float(job->built, node)) {
            cli_report_count(report, node->op_type, cli_runs_quantized(job->built, node));
        }
    }
    return CLI_OK;
}

/* ---- as text */

static void cli_print_summary(const cli_job *job, const cli_report *report)
{
    const char *comma = "";
    for (size_t i = 0; i < report->count; i++) {
        if (report->counts[i].quantized > 0) {
            printf("%s%lld %s", comma, (long long)report->counts[i].quantized,
                   report->counts[i].op_type);
            comma = ", ";
        }
    }
    printf("%s quantized; %lld node%s float\n", comma[0] != '\0' ? "" : "nothing",
           (long long)report->floats, report->floats == 1 ? "" : "s");
    int64_t shown = 0;
    for (sbit_node_id id = sbit_graph_first(job->built); id.idx != 0 && report->floats > 0;
         id = sbit_graph_next(job->built, id)) {
        const sbit_node *node = sbit_graph_node(job->built, id);
        if (cli_is_quantize(node) || cli_is_dequantize(node) ||
            !cli_has_float(job->built, node) || cli_runs_quantized(job->built, node)) {
            continue;
        }
        char name[300];
        sbit_graph_describe(job->built, id, name, sizeof name);
        if (++shown <= 20) {
            printf("  %s: %s\n", name, cli_float_reason(job, report, node));
        }
    }
    if (shown > 20) {
        printf("  and %lld more\n", (long long)shown - 20);
    }
}

static void cli_cost_row(cli_table *table, const char *name, const char *a, const char *b)
{
    cli_table_cell(table, "%s", name);
    cli_table_cell(table, "%s", a);
    cli_table_cell(table, "%s", b);
}

static int cli_print_costs(const cli_job *job)
{
    cli_table table;
    char a[40], b[40];
    const cli_cost *x = &job->before, *y = &job->after;
    cli_table_begin(&table, "<>>");
    cli_cost_row(&table, "", "before", "after");
    cli_cost_row(&table, "file", cli_bytes_text((double)x->file_bytes, a, sizeof a),
                 cli_bytes_text((double)y->file_bytes, b, sizeof b));
    cli_cost_row(&table, "peak of activations", cli_bytes_text((double)x->peak_bytes, a, sizeof a),
                 cli_bytes_text((double)y->peak_bytes, b, sizeof b));
    cli_cost_row(&table, "MACs", cli_count_text((double)x->macs, a, sizeof a),
                 cli_count_text((double)y->macs, b, sizeof b));
    if (job->has_eval) {
        const double n = (double)x->score.samples;
        snprintf(a, sizeof a, "%.2f %%", 100.0 * (double)x->score.top1 / n);
        snprintf(b, sizeof b, "%.2f %%", 100.0 * (double)y->score.top1 / n);
        cli_cost_row(&table, "top-1", a, b);
        snprintf(a, sizeof a, "%.2f %%", 100.0 * (double)x->score.top5 / n);
        snprintf(b, sizeof b, "%.2f %%", 100.0 * (double)y->score.top5 / n);
        cli_cost_row(&table, "top-5", a, b);
        snprintf(a, sizeof a, "%.4f", 1000.0 * x->score.seconds / n);
        snprintf(b, sizeof b, "%.4f", 1000.0 * y->score.seconds / n);
        cli_cost_row(&table, "ms a sample", a, b);
    }
    return cli_table_print(&table, stdout);
}

static int cli_print_inputs(const cli_job *job)
{
    cli_table table;
    static const char *const heads[] = {"input", "min", "mean", "max"};
    cli_table_begin(&table, "<>>>");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (size_t i = 0; i < job->calib.input_count; i++) {
        const cli_range *r = &job->ranges[i];
        cli_table_cell(&table, "%s",
                       sbit_graph_value(job->model.graph, job->calib.inputs[i])->name);
        cli_table_cell(&table, "%.4g", r->min);
        cli_table_cell(&table, "%.4g", r->count > 0 ? r->sum / (double)r->count : 0.0);
        cli_table_cell(&table, "%.4g", r->max);
    }
    return cli_table_print(&table, stdout);
}

static int cli_print_job(const cli_job *job, const cli_report *report)
{
    char bytes[40];
    CLI_TRY(cli_print_inputs(job));
    cli_print_summary(job, report);
    CLI_TRY(cli_print_costs(job));
    printf("%lld samples, profile %s, %.1f s (calibration %.1f s), peak memory %s: %s\n",
           (long long)job->calib.count, sbit_qconfig_profile(job->config)->name, job->seconds,
           job->calibrate_seconds, cli_bytes_text(cli_peak_bytes(), bytes, sizeof bytes),
           job->args->out);
    return CLI_OK;
}

/* ---- as JSON */

static void cli_json_cost(cli_json *json, const char *key, const cli_job *job, const cli_cost *cost)
{
    cli_json_open(json, key, '{');
    cli_json_int(json, "params", cost->params);
    cli_json_int(json, "macs", cost->macs);
    cli_json_int(json, "bytes", (int64_t)cost->file_bytes);
    cli_json_int(json, "peak_bytes", (int64_t)cost->peak_bytes);
    if (job->has_eval) {
        const double n = (double)cost->score.samples;
        cli_json_number(json, "top1", (double)cost->score.top1 / n);
        cli_json_number(json, "top5", (double)cost->score.top5 / n);
        cli_json_number(json, "ms_per_sample", 1000.0 * cost->score.seconds / n);
    }
    cli_json_close(json, '}');
}

static void cli_json_site(cli_json *json, const sbit_site *site)
{
    char scheme[60];
    const bool channels = site->qparams.axis >= 0;
    snprintf(scheme, sizeof scheme, "per-%s-%s", channels ? "channel" : "tensor",
             site->symmetric ? "symmetric" : "affine");
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", site->layer);
    cli_json_text(json, "tensor", site->tensor);
    cli_json_text(json, "target", site->target == SBIT_TARGET_WEIGHT ? "weight" : "feature");
    cli_json_int(json, "bits", site->qparams.bits);
    cli_json_text(json, "dtype", sbit_dtype_name((int32_t)site->qparams.dtype));
    cli_json_text(json, "scheme", scheme);
    cli_json_text(json, "observer", site->observer != NULL ? site->observer : "");
    cli_json_text(json, "quantizer", site->quantizer != NULL ? site->quantizer : "");
    cli_json_bool(json, "enabled", site->enabled);
    cli_json_text(json, "reason", site->reason != NULL ? site->reason : "");
    if (site->enabled && site->qparams.count > 0) {
        double low = (double)site->qparams.scale[0], high = low;
        for (int64_t c = 1; c < site->qparams.count; c++) {
            const double scale = (double)site->qparams.scale[c];
            low = scale < low ? scale : low;
            high = scale > high ? scale : high;
        }
        cli_json_int(json, "channels", site->qparams.count);
        cli_json_number(json, "min", (double)site->min);
        cli_json_number(json, "max", (double)site->max);
        cli_json_number(json, "scale_min", low);
        cli_json_number(json, "scale_max", high);
        cli_json_int(json, "zero_point", site->qparams.zero_point[0]);
    }
    cli_json_close(json, '}');
}

static void cli_json_inputs(cli_json *json, const cli_job *job)
{
    cli_json_open(json, "inputs", '[');
    for (size_t i = 0; i < job->calib.input_count; i++) {
        const cli_range *r = &job->ranges[i];
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "name",
                      sbit_graph_value(job->model.graph, job->calib.inputs[i])->name);
        cli_json_number(json, "min", r->min);
        cli_json_number(json, "mean", r->count > 0 ? r->sum / (double)r->count : 0.0);
        cli_json_number(json, "max", r->max);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void cli_json_report(cli_json *json, const cli_job *job, const cli_report *report)
{
    cli_json_open(json, "quantized", '{');
    for (size_t i = 0; i < report->count; i++) {
        if (report->counts[i].quantized > 0) {
            cli_json_int(json, report->counts[i].op_type, report->counts[i].quantized);
        }
    }
    cli_json_close(json, '}');
    cli_json_open(json, "float", '[');
    for (sbit_node_id id = sbit_graph_first(job->built); id.idx != 0;
         id = sbit_graph_next(job->built, id)) {
        const sbit_node *node = sbit_graph_node(job->built, id);
        if (cli_is_quantize(node) || cli_is_dequantize(node) ||
            !cli_has_float(job->built, node) || cli_runs_quantized(job->built, node)) {
            continue;
        }
        char name[300];
        sbit_layer_name(job->built, id, name, sizeof name);
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "name", name);
        cli_json_text(json, "op_type", node->op_type);
        cli_json_text(json, "reason", cli_float_reason(job, report, node));
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static int cli_json_job(const cli_job *job, const cli_report *report)
{
    cli_json json;
    char prep[4096];
    memset(&json, 0, sizeof json);
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "model", job->model.path);
    cli_json_text(&json, "out", job->args->out);
    cli_json_text(&json, "target", sbit_qconfig_profile(job->config)->name);
    cli_json_int(&json, "calibration_samples", job->calib.count);
    cli_json_text(&json, "preprocess", cli_data_prep_text(&job->calib, prep, sizeof prep));
    cli_json_inputs(&json, job);
    cli_json_cost(&json, "before", job, &job->before);
    cli_json_cost(&json, "after", job, &job->after);
    if (job->has_eval) {
        cli_json_int(&json, "eval_samples", job->before.score.samples);
    }
    cli_json_report(&json, job, report);
    cli_json_open(&json, "layers", '[');
    for (size_t i = 0; i < sbit_quant_site_count(job->quant); i++) {
        sbit_site site;
        if (sbit_quant_site(job->quant, i, &site) == SBIT_OK) {
            cli_json_site(&json, &site);
        }
    }
    cli_json_close(&json, ']');
    cli_json_number(&json, "seconds", job->seconds);
    cli_json_number(&json, "calibrate_seconds", job->calibrate_seconds);
    cli_json_number(&json, "peak_memory_bytes", cli_peak_bytes());
    cli_json_int(&json, "threads", sbit_ctx_threads(job->model.ctx));
    cli_json_close(&json, '}');
    return cli_json_print(&json);
}

/* ---- the command */

static void cli_warn_quantized(const cli_job *job)
{
    for (sbit_node_id id = sbit_graph_first(job->model.graph); id.idx != 0;
         id = sbit_graph_next(job->model.graph, id)) {
        if (cli_is_quantize(sbit_graph_node(job->model.graph, id))) {
            cli_warn("'%s' has QuantizeLinear nodes already; quantize the float model instead",
                     job->model.path);
            return;
        }
    }
}

static int cli_quantize_open(cli_job *job)
{
    const cli_args *args = job->args;
    CLI_TRY(cli_config_make(job));
    CLI_TRY(cli_model_check_runs(&job->model));
    CLI_TRY(cli_data_open(args, &job->model, "calibration set", args->data,
                          args->calib > 0 ? args->calib : 256, args->shuffle, &job->calib));
    if (args->eval != NULL) {
        CLI_TRY(cli_data_open(args, &job->model, "data set", args->eval, args->limit, false,
                              &job->eval));
        job->has_eval = true;
        if (!job->eval.has_labels) {
            return cli_fail("--eval '%s' has no labels: add ,labels=FILE, or leave --eval away",
                            args->eval);
        }
    }
    cli_warn_quantized(job);
    return CLI_OK;
}

static int cli_quantize_run(cli_job *job)
{
    cli_report report;
    const double begin = cli_seconds();
    CLI_TRY(cli_quantize_open(job));
    job->before.file_bytes = job->model.file_bytes;
    CLI_TRY(cli_measure_cost(job, job->model.graph, job->model.path, &job->before));
    CLI_TRY(cli_calibrate(job));
    CLI_TRY(cli_export(job));
    CLI_TRY(cli_measure_cost(job, job->built, job->args->out, &job->after));
    job->seconds = cli_seconds() - begin;
    int code = cli_take_report(job, &report);
    if (code == CLI_OK) {
        code = job->args->json ? cli_json_job(job, &report) : cli_print_job(job, &report);
    }
    free(report.fates);
    return code;
}

int cli_quantize(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_job job;
    memset(&job, 0, sizeof job);
    job.args = args;
    CLI_TRY(cli_check_writable("-o", args->out));
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &job.model);
    if (code == CLI_OK) {
        code = cli_quantize_run(&job);
        sbit_graph_destroy(job.built);
        sbit_quant_destroy(job.quant);
        sbit_qconfig_destroy(job.config);
        cli_data_close(&job.calib);
        cli_data_close(&job.eval);
        cli_model_free(&job.model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
