/* commands/lint.c: `sparsebit lint`: what a target would quantize and fuse of a model, node by
 * node, and why not the rest. Scales come from one run on the inputs (random numbers if none are
 * given); they do not matter for what is told.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"
#include "model/inputs.h"
#include "report/explain.h"
#include "report/quantize.h"

#include <stdlib.h> /* malloc, free */

typedef struct cli_lint_job {
    const cli_args *args;
    cli_inputs inputs;
    sbit_qconfig *config;
    sbit_quant *quant;
    sbit_graph *built;
    sbit_session *session;
    sbit_node_profile *nodes;
    size_t count;
} cli_lint_job;

static int cli_lint_quant(cli_lint_job *job)
{
    sbit_quant_build_desc build;
    sbit_session_desc session;
    const cli_model *model = &job->inputs.model;
    const char *names[CLI_MAX_INPUTS];
    sbit_error error;
    memset(&error, 0, sizeof error);
    memset(&build, 0, sizeof build);
    memset(&session, 0, sizeof session);
    session.profile = true;
    build.format = "qdq";
    for (size_t i = 0; i < model->input_count; i++) {
        names[i] = cli_model_input(model, i)->name;
    }
    cli_job whole; /* of quantize: for its configuration alone */
    memset(&whole, 0, sizeof whole);
    whole.args = job->args;
    whole.model.ctx = model->ctx;
    const int code = cli_config_make(&whole);
    job->config = whole.config;
    CLI_TRY(code);
    if (sbit_quant_create(model->graph, job->config, &job->quant, &error) != SBIT_OK ||
        sbit_quant_prepare_calibration(job->quant, &error) != SBIT_OK ||
        sbit_quant_forward(job->quant, names, job->inputs.tensors, model->input_count, &error) !=
            SBIT_OK ||
        sbit_quant_calc_qparams(job->quant, false, false, false, &error) != SBIT_OK ||
        sbit_quant_build(job->quant, &build, &job->built, &error) != SBIT_OK ||
        sbit_session_create(job->built, &session, &job->session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s'", model->path);
    }
    return CLI_OK;
}

static int cli_lint_profile(cli_lint_job *job)
{
    double seconds = 0.0;
    CLI_TRY(cli_inputs_run(&job->inputs, job->session, &seconds));
    job->count = sbit_session_profile(job->session, NULL, 0);
    job->nodes = (sbit_node_profile *)malloc((job->count + 1) * sizeof *job->nodes);
    if (job->nodes == NULL) {
        return cli_fail_memory(job->count * sizeof *job->nodes);
    }
    sbit_session_profile(job->session, job->nodes, job->count);
    return CLI_OK;
}

static const sbit_node_profile *cli_lint_find(const cli_lint_job *job, sbit_node_id id)
{
    for (size_t i = 0; i < job->count; i++) {
        if (job->nodes[i].node.idx == id.idx) {
            return &job->nodes[i];
        }
    }
    return NULL;
}

typedef struct cli_lint_line {
    const char *name, *op, *quantized, *as, *part, *why;
} cli_lint_line;

static cli_lint_line cli_lint_of(const cli_lint_job *job, sbit_node_id id)
{
    const sbit_graph *graph = sbit_quant_graph(job->quant);
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_node_profile *at = cli_lint_find(job, id);
    const char *reason = sbit_quant_reason(job->quant, id);
    cli_lint_line line;
    line.name = cli_node_name(graph, node);
    line.op = node->op_type;
    line.quantized = reason[0] == '\0' ? "yes" : "no";
    line.as = at != NULL ? cli_explain_kind(at) : "constant";
    line.part = at != NULL && at->fused_into.idx != 0
                    ? cli_node_name(job->built, sbit_graph_node(job->built, at->fused_into))
                    : "";
    line.why = reason[0] != '\0' ? reason : at != NULL && at->reason != NULL ? at->reason : "";
    return line;
}

static const char *cli_lint_target(const cli_lint_job *job)
{
    return sbit_qconfig_profile(job->config)->head.name;
}

static int cli_lint_table(const cli_lint_job *job)
{
    static const char *const heads[] = {"node",    "operator", "quantized",
                                        "runs as", "part of",  "because"};
    const sbit_graph *graph = sbit_quant_graph(job->quant);
    unsigned quantized = 0, integers = 0, count = 0;
    cli_table table;
    cli_table_begin(&table, "<<<<<<");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const cli_lint_line line = cli_lint_of(job, id);
        count++;
        quantized += line.quantized[0] == 'y';
        integers += line.as[0] == 'i';
        cli_table_cell(&table, "%s", line.name);
        cli_table_cell(&table, "%s", line.op);
        cli_table_cell(&table, "%s", line.quantized);
        cli_table_cell(&table, "%s", line.as);
        cli_table_cell(&table, "%s", line.part);
        cli_table_cell(&table, "%s", line.why);
    }
    CLI_TRY(cli_table_print(&table, stdout));
    printf("%s: %u of %u nodes are quantized, %u run on integers here; 'sparsebit help %s' shows "
           "what this target wants\n",
           cli_lint_target(job), quantized, count, integers, cli_lint_target(job));
    return CLI_OK;
}

static int cli_lint_json(const cli_lint_job *job)
{
    const sbit_graph *graph = sbit_quant_graph(job->quant);
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", job->args->operands[0]);
    sbit_json_text(&json.to, "target", cli_lint_target(job));
    sbit_json_open(&json.to, "nodes", '[');
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const cli_lint_line line = cli_lint_of(job, id);
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "name", line.name);
        sbit_json_text(&json.to, "op_type", line.op);
        sbit_json_bool(&json.to, "quantized", line.quantized[0] == 'y');
        sbit_json_text(&json.to, "as", line.as);
        sbit_json_text(&json.to, "part_of", line.part);
        sbit_json_text(&json.to, "reason", line.why);
        sbit_json_close(&json.to, '}');
    }
    sbit_json_close(&json.to, ']');
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

int cli_lint(const cli_args *args)
{
    cli_lint_job job;
    memset(&job, 0, sizeof job);
    job.args = args;
    int code = cli_inputs_begin(&job.inputs, args, 1);
    code = code == CLI_OK ? cli_lint_quant(&job) : code;
    code = code == CLI_OK ? cli_lint_profile(&job) : code;
    if (code == CLI_OK) {
        code = args->json ? cli_lint_json(&job) : cli_lint_table(&job);
    }
    free(job.nodes);
    sbit_session_destroy(job.session);
    sbit_graph_destroy(job.built);
    sbit_quant_destroy(job.quant);
    sbit_qconfig_destroy(job.config);
    cli_inputs_free(&job.inputs);
    return code;
}
