/* report/quantize.c: the report of `sparsebit quantize`: what became of each node, what it cost.
 */
#include "report/quantize.h"
#include "base/json.h"
#include "base/table.h"
#include "report/recipes.h"

#include <stdlib.h> /* realloc, free */

/* ---- what became of each node */

typedef enum cli_fate {
    CLI_FATE_NONE,      /* Q, DQ, or nothing float: not counted */
    CLI_FATE_QUANTIZED, /* its weight or all activations it reads, or fused into such a node */
    CLI_FATE_FLOAT,
    CLI_FATE_MOVES /* moves float values without computing */
} cli_fate;

typedef struct cli_count {
    const char *op_type;
    int64_t quantized;
} cli_count;

typedef struct cli_float {
    const sbit_graph *graph; /* the built one, or one of its bodies */
    sbit_node_id node;
    const char *reason;
} cli_float;

typedef struct cli_report {
    cli_count counts[200];
    size_t count;
    cli_float *floats;
    size_t float_count, float_capacity;
    int64_t moves;
} cli_report;

bool cli_is_quantize(const sbit_node *node)
{
    return strcmp(node->op_type, "QuantizeLinear") == 0;
}

static bool cli_is_dequantize(const sbit_node *node)
{
    return strcmp(node->op_type, "DequantizeLinear") == 0;
}

static const sbit_op_row *cli_row_of(const cli_job *job, const sbit_node *node)
{
    return sbit_operator_find(job->model.ctx, node->domain, node->op_type,
                              sbit_graph_opset(job->built, node->domain));
}

static bool cli_is_float(const sbit_graph *graph, sbit_value_id id)
{
    return id.idx != 0 && sbit_graph_value(graph, id)->type.dtype == SBIT_F32;
}

static const sbit_node *cli_producer(const sbit_graph *graph, sbit_value_id id)
{
    if (id.idx == 0 || sbit_graph_value(graph, id)->producer.idx == 0) {
        return NULL;
    }
    return sbit_graph_node(graph, sbit_graph_value(graph, id)->producer);
}

static bool cli_is_dequantized(const sbit_graph *graph, const sbit_node *node, int32_t input)
{
    if (input < 0 || (size_t)input >= node->input_count) {
        return false;
    }
    const sbit_node *from = cli_producer(graph, node->inputs[input]);
    return from != NULL && cli_is_dequantize(from);
}

/* Float inputs that are computed: 0 none, 1 all are dequantized, -1 some are not. A constant
 * beside them counts as not dequantized where the operator is quantized for tensors only. */
static int cli_activations(const sbit_graph *graph, const sbit_node *node, const sbit_op_row *row)
{
    int found = 0;
    for (size_t i = 0; i < node->input_count && i < 32; i++) {
        const bool listed = ((row->quant->activations >> i) & 1u) != 0;
        if (!listed || !cli_is_float(graph, node->inputs[i])) {
            continue;
        }
        const bool constant = sbit_graph_value(graph, node->inputs[i])->is_constant;
        if (constant && (row->quant->flags & SBIT_QUANT_TENSOR_ONLY) == 0) {
            continue;
        }
        if (!cli_is_dequantized(graph, node, (int32_t)i)) {
            return -1;
        }
        found = 1;
    }
    return found;
}

/* A quantizer reads its output, perhaps behind an activation function. */
static bool cli_feeds_quantizer(const sbit_graph *graph, const sbit_node *node, int depth)
{
    sbit_use uses[16];
    const size_t count =
        node->output_count > 0 ? sbit_graph_uses(graph, node->outputs[0], uses, 16) : 0;
    for (size_t i = 0; i < count && i < 16; i++) {
        if (uses[i].node.idx == 0) {
            continue;
        }
        const sbit_node *user = sbit_graph_node(graph, uses[i].node);
        const bool activation =
            strcmp(user->op_type, "Relu") == 0 || strcmp(user->op_type, "Clip") == 0;
        if (cli_is_quantize(user) ||
            (depth > 0 && activation && cli_feeds_quantizer(graph, user, depth - 1))) {
            return true;
        }
    }
    return false;
}

/* Its weight, or all activations that it reads, are dequantized integers. */
static bool cli_computes_quantized(const cli_job *job, const sbit_graph *graph,
                                   const sbit_node *node)
{
    const sbit_op_row *row = cli_row_of(job, node);
    if (row == NULL || row->quant == NULL || (row->quant->flags & SBIT_QUANT_KEEP_FLOAT) != 0) {
        return false;
    }
    return cli_is_dequantized(graph, node, row->quant->weight) ||
           cli_is_dequantized(graph, node, row->quant->weight2) ||
           cli_activations(graph, node, row) == 1;
}

/* All that it reads is dequantized, but one value from a node that computes quantized, or follows
 * one: a runtime fuses it with that node (Conv + Add + Relu). */
static bool cli_follows_quantized(const cli_job *job, const sbit_graph *graph,
                                  const sbit_node *node, int depth)
{
    const sbit_op_row *row = cli_row_of(job, node);
    const sbit_node *leader = NULL;
    if (row == NULL || row->quant == NULL || (row->quant->flags & SBIT_QUANT_KEEP_FLOAT) != 0) {
        return false;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_value_id id = node->inputs[i];
        const sbit_node *from = cli_producer(graph, id);
        if (!cli_is_float(graph, id) || sbit_graph_value(graph, id)->is_constant ||
            (from != NULL && cli_is_dequantize(from))) {
            continue;
        }
        if (from == NULL || leader != NULL) {
            return false;
        }
        leader = from;
    }
    return leader != NULL && (cli_computes_quantized(job, graph, leader) ||
                              (depth > 0 && cli_follows_quantized(job, graph, leader, depth - 1)));
}

static cli_fate cli_fate_of(const cli_job *job, const sbit_graph *graph, const sbit_node *node)
{
    const sbit_op_row *row = cli_row_of(job, node);
    const bool makes_float = node->output_count > 0 && cli_is_float(graph, node->outputs[0]);
    if (cli_is_quantize(node) || cli_is_dequantize(node) || !makes_float) {
        return CLI_FATE_NONE;
    }
    if (row != NULL && (row->flags & SBIT_OP_BODY) != 0) {
        return CLI_FATE_NONE; /* its bodies are looked at */
    }
    if (row == NULL || row->quant == NULL) {
        return row != NULL && (row->flags & SBIT_OP_VIEW) != 0 ? CLI_FATE_MOVES : CLI_FATE_FLOAT;
    }
    if ((row->quant->flags & SBIT_QUANT_KEEP_FLOAT) != 0) {
        return CLI_FATE_FLOAT;
    }
    if ((row->quant->flags & SBIT_QUANT_PASS_SCALE) != 0 &&
        !cli_is_dequantized(graph, node, row->quant->weight)) {
        return CLI_FATE_MOVES;
    }
    if (cli_computes_quantized(job, graph, node)) {
        return CLI_FATE_QUANTIZED;
    }
    const bool fused =
        cli_feeds_quantizer(graph, node, 1) && cli_follows_quantized(job, graph, node, 2);
    return fused ? CLI_FATE_QUANTIZED : CLI_FATE_FLOAT;
}

static void cli_report_count(cli_report *report, const char *op_type)
{
    size_t i = 0;
    while (i < report->count && strcmp(report->counts[i].op_type, op_type) != 0) {
        i++;
    }
    if (i == report->count && i < CLI_COUNT_OF(report->counts)) {
        report->counts[report->count++].op_type = op_type;
    }
    if (i < report->count) {
        report->counts[i].quantized++;
    }
}

/* Sites name their layers by the float graph; what is disabled says why. */
static const char *cli_site_reason(const cli_job *job, const sbit_graph *plain, sbit_node_id id)
{
    char name[300];
    if (id.idx >= sbit_graph_node_limit(plain)) {
        return NULL;
    }
    sbit_layer_name(plain, id, name, sizeof name);
    for (size_t i = 0; i < sbit_quant_site_count(job->quant); i++) {
        sbit_site site;
        if (sbit_quant_site(job->quant, i, &site) == SBIT_OK && !site.enabled &&
            site.reason[0] != '\0' && strcmp(site.layer, name) == 0) {
            return site.reason;
        }
    }
    return NULL;
}

/* Nodes of the float graph `plain` keep their ids in the built one. */
static const char *cli_float_reason(const cli_job *job, const sbit_graph *built,
                                    const sbit_graph *plain, const sbit_node *node)
{
    const char *reason = cli_site_reason(job, plain, node->id);
    const sbit_op_row *row = cli_row_of(job, node);
    if (reason != NULL) {
        return reason;
    }
    if (row == NULL || row->quant == NULL) {
        return "this operator is never quantized";
    }
    if ((row->quant->flags & SBIT_QUANT_KEEP_FLOAT) != 0) {
        return "this operator is kept float";
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_value_id id = node->inputs[i];
        if ((row->quant->flags & SBIT_QUANT_TENSOR_ONLY) != 0 && id.idx != 0 &&
            sbit_graph_value(built, id)->is_constant) {
            return "one input is a constant";
        }
    }
    return "the profile does not quantize it here";
}

static int cli_add_float(cli_report *report, const sbit_graph *graph, sbit_node_id node,
                         const char *reason)
{
    if (report->float_count == report->float_capacity) {
        const size_t capacity = report->float_capacity * 2 + 64;
        cli_float *moved = (cli_float *)realloc(report->floats, capacity * sizeof *moved);
        if (moved == NULL) {
            return cli_fail_memory(capacity * sizeof *moved);
        }
        report->floats = moved;
        report->float_capacity = capacity;
    }
    report->floats[report->float_count].graph = graph;
    report->floats[report->float_count].node = node;
    report->floats[report->float_count++].reason = reason;
    return CLI_OK;
}

/* A graph with quantizers, and the float one that it was made of. */
static int cli_take_graph(const cli_job *job, const sbit_graph *built, const sbit_graph *plain,
                          cli_report *report)
{
    for (sbit_node_id id = sbit_graph_first(built); id.idx != 0; id = sbit_graph_next(built, id)) {
        const sbit_node *node = sbit_graph_node(built, id);
        const cli_fate fate = cli_fate_of(job, built, node);
        if (fate == CLI_FATE_QUANTIZED) {
            cli_report_count(report, node->op_type);
        } else if (fate == CLI_FATE_FLOAT) {
            CLI_TRY(cli_add_float(report, built, id, cli_float_reason(job, built, plain, node)));
        }
        report->moves += fate == CLI_FATE_MOVES;
        for (size_t i = 0; i < node->attr_count; i++) {
            if (node->attrs[i].type == SBIT_ONNX_ATTR_GRAPH) {
                CLI_TRY(cli_take_graph(job, node->attrs[i].g,
                                       sbit_graph_node(plain, id)->attrs[i].g, report));
            }
        }
    }
    return CLI_OK;
}

static int cli_take_report(const cli_job *job, cli_report *report)
{
    memset(report, 0, sizeof *report);
    return cli_take_graph(job, job->built, sbit_quant_graph(job->quant), report);
}

/* ---- as text */

static void cli_print_summary(const cli_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        printf("%s%lld %s", i > 0 ? ", " : "", (long long)report->counts[i].quantized,
               report->counts[i].op_type);
    }
    printf("%s quantized; %lld node%s float", report->count > 0 ? "" : "nothing",
           (long long)report->float_count, report->float_count == 1 ? "" : "s");
    if (report->moves > 0) {
        printf(" (and %lld that only move values)", (long long)report->moves);
    }
    printf("\n");
    for (size_t i = 0; i < report->float_count && i < 20; i++) {
        char name[300];
        sbit_graph_describe(report->floats[i].graph, report->floats[i].node, name, sizeof name);
        printf("  %s: %s\n", name, report->floats[i].reason);
    }
    if (report->float_count > 20) {
        printf("  and %lld more\n", (long long)report->float_count - 20);
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
    if (job->has_calib) { /* which says the shapes */
        cli_cost_row(&table, "peak of activations",
                     cli_bytes_text((double)x->peak_bytes, a, sizeof a),
                     cli_bytes_text((double)y->peak_bytes, b, sizeof b));
    }
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
    if (job->has_calib) {
        CLI_TRY(cli_print_inputs(job));
    }
    cli_print_summary(report);
    CLI_TRY(cli_recipes_print(job));
    CLI_TRY(cli_print_costs(job));
    printf("%lld samples, profile %s, %.1f s (calibration %.1f s), peak memory %s: %s\n",
           (long long)job->calib.count, sbit_qconfig_profile(job->config)->head.name, job->seconds,
           job->calibrate_seconds, cli_bytes_text(cli_peak_bytes(), bytes, sizeof bytes),
           job->args->out);
    return CLI_OK;
}

/* ---- as JSON */

static void cli_json_cost(sbit_json *json, const char *key, const cli_job *job,
                          const cli_cost *cost)
{
    sbit_json_open(json, key, '{');
    sbit_json_int(json, "params", cost->params);
    sbit_json_int(json, "macs", cost->macs);
    sbit_json_int(json, "bytes", (int64_t)cost->file_bytes);
    sbit_json_int(json, "peak_bytes", (int64_t)cost->peak_bytes);
    if (job->has_eval) {
        const double n = (double)cost->score.samples;
        sbit_json_number(json, "top1", (double)cost->score.top1 / n);
        sbit_json_number(json, "top5", (double)cost->score.top5 / n);
        sbit_json_number(json, "ms_per_sample", 1000.0 * cost->score.seconds / n);
    }
    sbit_json_close(json, '}');
}

static void cli_json_site(sbit_json *json, const sbit_site *site)
{
    char scheme[60];
    const bool channels = site->qparams.axis >= 0;
    snprintf(scheme, sizeof scheme, "per-%s-%s", channels ? "channel" : "tensor",
             site->qparams.grid.symmetric ? "symmetric" : "affine");
    sbit_json_open(json, NULL, '{');
    sbit_json_text(json, "name", site->layer);
    sbit_json_text(json, "tensor", site->tensor);
    sbit_json_text(json, "target", site->target == SBIT_TARGET_WEIGHT ? "weight" : "activation");
    sbit_json_int(json, "bits", site->qparams.grid.bits);
    sbit_json_text(json, "dtype", sbit_dtype_name((int32_t)site->qparams.grid.dtype));
    sbit_json_text(json, "scheme", scheme);
    sbit_json_text(json, "observer", site->observer != NULL ? site->observer : "");
    sbit_json_text(json, "quantizer", site->quantizer != NULL ? site->quantizer : "");
    sbit_json_bool(json, "enabled", site->enabled);
    sbit_json_text(json, "reason", site->reason != NULL ? site->reason : "");
    if (site->enabled && site->qparams.scale != NULL) {
        double low = (double)site->qparams.scale[0], high = low;
        for (int64_t c = 1; c < site->qparams.grid.parts.count; c++) {
            const double scale = (double)site->qparams.scale[c];
            low = scale < low ? scale : low;
            high = scale > high ? scale : high;
        }
        sbit_json_int(json, "channels", site->qparams.grid.parts.count);
        sbit_json_number(json, "min", (double)site->min);
        sbit_json_number(json, "max", (double)site->max);
        sbit_json_number(json, "scale_min", low);
        sbit_json_number(json, "scale_max", high);
        sbit_json_int(json, "zero_point", site->qparams.zero_point[0]);
    }
    sbit_json_close(json, '}');
}

static void cli_json_inputs(sbit_json *json, const cli_job *job)
{
    sbit_json_open(json, "inputs", '[');
    for (size_t i = 0; i < job->calib.input_count; i++) {
        const cli_range *r = &job->ranges[i];
        sbit_json_open(json, NULL, '{');
        sbit_json_text(json, "name",
                       sbit_graph_value(job->model.graph, job->calib.inputs[i])->name);
        sbit_json_number(json, "min", r->min);
        sbit_json_number(json, "mean", r->count > 0 ? r->sum / (double)r->count : 0.0);
        sbit_json_number(json, "max", r->max);
        sbit_json_close(json, '}');
    }
    sbit_json_close(json, ']');
}

static void cli_json_report(sbit_json *json, const cli_report *report)
{
    sbit_json_open(json, "quantized", '{');
    for (size_t i = 0; i < report->count; i++) {
        sbit_json_int(json, report->counts[i].op_type, report->counts[i].quantized);
    }
    sbit_json_close(json, '}');
    sbit_json_open(json, "float", '[');
    for (size_t i = 0; i < report->float_count; i++) {
        const cli_float *at = &report->floats[i];
        char name[300];
        sbit_layer_name(at->graph, at->node, name, sizeof name);
        sbit_json_open(json, NULL, '{');
        sbit_json_text(json, "name", name);
        sbit_json_text(json, "op_type", sbit_graph_node(at->graph, at->node)->op_type);
        sbit_json_text(json, "reason", at->reason);
        sbit_json_close(json, '}');
    }
    sbit_json_close(json, ']');
}

static int cli_json_job(const cli_job *job, const cli_report *report)
{
    cli_json json;
    char prep[4096];
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", job->model.path);
    sbit_json_text(&json.to, "out", job->args->out);
    sbit_json_text(&json.to, "target", sbit_qconfig_profile(job->config)->head.name);
    sbit_json_int(&json.to, "calibration_samples", job->calib.count);
    sbit_json_text(&json.to, "preprocess", cli_data_prep_text(&job->calib, prep, sizeof prep));
    cli_json_inputs(&json.to, job);
    cli_json_cost(&json.to, "before", job, &job->before);
    cli_json_cost(&json.to, "after", job, &job->after);
    if (job->has_eval) {
        sbit_json_int(&json.to, "eval_samples", job->before.score.samples);
    }
    cli_recipes_json(&json.to, job);
    cli_json_report(&json.to, report);
    sbit_json_open(&json.to, "layers", '[');
    for (size_t i = 0; i < sbit_quant_site_count(job->quant); i++) {
        sbit_site site;
        if (sbit_quant_site(job->quant, i, &site) == SBIT_OK) {
            cli_json_site(&json.to, &site);
        }
    }
    sbit_json_close(&json.to, ']');
    sbit_json_number(&json.to, "seconds", job->seconds);
    sbit_json_number(&json.to, "calibrate_seconds", job->calibrate_seconds);
    sbit_json_number(&json.to, "peak_memory_bytes", cli_peak_bytes());
    sbit_json_int(&json.to, "threads", sbit_ctx_threads(job->model.ctx));
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

/* Int8 saves three bytes an element; scales, zero points and nodes take more where a weight is
 * small. */
static bool cli_loses(const cli_job *job, const sbit_site *site)
{
    if (site->target != SBIT_TARGET_WEIGHT || !site->enabled || site->value.idx == 0) {
        return false;
    }
    const sbit_value_info *info = sbit_graph_value(sbit_quant_graph(job->quant), site->value);
    return info->is_constant &&
           3 * sbit_tensor_count(&info->constant) < 600 + 5 * site->qparams.grid.parts.count;
}

/* A file that grew: says why, and what to leave float. */
static void cli_warn_larger(const cli_job *job)
{
    char names[600] = "", before[40], after[40];
    size_t count = 0, at = 0;
    if (job->after.file_bytes <= job->before.file_bytes) {
        return;
    }
    for (size_t i = 0; i < sbit_quant_site_count(job->quant); i++) {
        sbit_site site;
        if (sbit_quant_site(job->quant, i, &site) != SBIT_OK || !cli_loses(job, &site)) {
            continue;
        }
        if (count++ < 8 && at < sizeof names) {
            at += (size_t)snprintf(names + at, sizeof names - at, "%s\"%.60s\"", at > 0 ? ", " : "",
                                   site.layer);
        }
    }
    cli_warn("the quantized file is larger than the float one (%s, %s before): %lu weights are so "
             "small that scales and nodes take more than int8 saves; leave them float, for example "
             "with --set EXPORT.SMALLEST_WEIGHT=350 or --set 'SKIP_TRACE_MODULES=[%s]'%s",
             cli_bytes_text((double)job->after.file_bytes, after, sizeof after),
             cli_bytes_text((double)job->before.file_bytes, before, sizeof before),
             (unsigned long)count, names,
             count > 8 ? " and the others (--json lists all layers)" : "");
}

int cli_report_show(const cli_job *job)
{
    cli_report report;
    int code = cli_take_report(job, &report);
    cli_warn_larger(job);
    if (code == CLI_OK) {
        code = job->args->json ? cli_json_job(job, &report) : cli_print_job(job, &report);
    }
    free(report.floats);
    return code;
}
