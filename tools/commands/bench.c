/* commands/bench.c: `sparsebit bench`: the time of a run, and of each node.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/system.h"
#include "base/table.h"
#include "model/inputs.h"
#include "report/explain.h"

#include <stdlib.h> /* qsort, free */

/* ---- time */

typedef struct cli_bench_result {
    double *times; /* seconds, sorted */
    int64_t count;
    double median, mean;
    double load, plan, first; /* the file with its passes, program and session, the first run */
    int64_t macs;
    size_t memory_bytes; /* activations, and values whose shape depends on data */
    size_t session_bytes, packed_bytes;
} cli_bench_result;

static int cli_double_order(const void *a, const void *b)
{
    const double p = *(const double *)a, q = *(const double *)b;
    return p < q ? -1 : p > q;
}

enum {
    CLI_BENCH_MAX = 1000,
    CLI_BENCH_MIN = 10
};

static int cli_bench_measure(const cli_args *args, cli_inputs *inputs, sbit_session *session,
                             cli_bench_result *out)
{
    const int64_t most = args->iters > 0 ? args->iters : (int64_t)CLI_BENCH_MAX;
    double seconds = 0.0, total = 0.0;
    out->times = (double *)malloc((size_t)most * sizeof *out->times);
    if (out->times == NULL) {
        return cli_fail_memory((size_t)most * sizeof *out->times);
    }
    for (int i = 0; i < 3; i++) { /* caches, page faults, clock rate */
        CLI_TRY(cli_inputs_run(inputs, session, &seconds));
        out->first = i == 0 ? seconds : out->first;
        total += seconds;
        if (total > 1.0) {
            break;
        }
    }
    total = 0.0;
    while (out->count < most && (args->iters > 0 || out->count < CLI_BENCH_MIN || total < 2.0)) {
        cli_progress("bench", out->count, most);
        CLI_TRY(cli_inputs_run(inputs, session, &seconds));
        out->times[out->count++] = seconds;
        total += seconds;
    }
    cli_progress("bench", most, most);
    qsort(out->times, (size_t)out->count, sizeof *out->times, cli_double_order);
    const int64_t half = out->count / 2;
    out->median =
        out->count % 2 == 1 ? out->times[half] : (out->times[half - 1] + out->times[half]) / 2.0;
    out->mean = total / (double)out->count;
    return CLI_OK;
}

/* ---- profile */

typedef struct cli_profile {
    sbit_node_profile *nodes;
    size_t count;
    double *macs;          /* by node: its and those of what became part of it, as they stand in the graph */
    double total;          /* nanoseconds per run */
    double peak[2];        /* multiply-adds a nanosecond of all threads: floats, bytes */
    sbit_session *session; /* that `nodes` speak of */
} cli_profile;

static int cli_profile_order(const void *a, const void *b)
{
    const sbit_node_profile *p = (const sbit_node_profile *)a, *q = (const sbit_node_profile *)b;
    const double x = p->runs > 0 ? (double)p->nanoseconds / (double)p->runs : 0.0;
    const double y = q->runs > 0 ? (double)q->nanoseconds / (double)q->runs : 0.0;
    return x > y ? -1 : x < y ? 1 : p->node.idx < q->node.idx ? -1 : 1;
}

static double cli_profile_ns(const sbit_node_profile *node)
{
    return node->runs > 0 ? (double)node->nanoseconds / (double)node->runs : 0.0;
}

static int cli_profile_macs(const sbit_graph *graph, cli_profile *profile)
{
    size_t limit = 1;
    for (size_t i = 0; i < profile->count; i++) {
        limit = profile->nodes[i].node.idx >= limit ? profile->nodes[i].node.idx + 1 : limit;
    }
    profile->macs = (double *)calloc(limit, sizeof *profile->macs);
    if (profile->macs == NULL) {
        return cli_fail_memory(limit * sizeof *profile->macs);
    }
    for (size_t i = 0; i < profile->count; i++) {
        const sbit_node_profile *at = &profile->nodes[i];
        const size_t owner = at->fused_into.idx != 0 ? at->fused_into.idx : at->node.idx;
        if (owner < limit && sbit_graph_node_alive(graph, at->node)) {
            profile->macs[owner] += (double)sbit_graph_node_macs(graph, at->node);
        }
    }
    return CLI_OK;
}

static int cli_profile_take(cli_inputs *inputs, const cli_args *args, const sbit_program *program,
                            cli_profile *out)
{
    sbit_session_desc desc;
    sbit_error error;
    double seconds = 0.0;
    const int64_t runs = args->iters > 0 ? args->iters : 20;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.profile = true;
    if (sbit_session_create_for(program, &desc, &out->session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' cannot run", inputs->model.path);
    }
    int code = CLI_OK;
    for (int64_t i = 0; i < runs && code == CLI_OK; i++) {
        cli_progress("profile", i, runs);
        code = cli_inputs_run(inputs, out->session, &seconds);
    }
    cli_progress("profile", runs, runs);
    const size_t count = sbit_session_profile(out->session, NULL, 0);
    out->nodes = (sbit_node_profile *)malloc((count + 1) * sizeof *out->nodes);
    if (out->nodes == NULL) {
        code = cli_fail_memory(count * sizeof *out->nodes);
    } else {
        out->count = sbit_session_profile(out->session, out->nodes, count);
        if (args->profile) { /* else in the order of the graph */
            qsort(out->nodes, out->count, sizeof *out->nodes, cli_profile_order);
        }
    }
    code = code == CLI_OK ? cli_profile_macs(inputs->model.graph, out) : code;
    for (size_t i = 0; i < out->count; i++) {
        out->total += cli_profile_ns(&out->nodes[i]);
    }
    for (int integers = 0; integers < 2; integers++) {
        out->peak[integers] = 1e-9 * sbit_measure_peak(inputs->model.ctx, integers != 0) *
                              (double)sbit_ctx_threads(inputs->model.ctx);
    }
    return code;
}

/* Multiply-adds in a node's time (Winograd does fewer: its share can exceed 1); share of the peak of what it
 * ran on. 0: no products. */
static double cli_profile_rate(const cli_profile *profile, const sbit_node_profile *at, double *share)
{
    const double ns = cli_profile_ns(at), peak = profile->peak[at->on_integers ? 1 : 0];
    const double rate = ns > 0.0 ? profile->macs[at->node.idx] / ns : 0.0;
    *share = peak > 0.0 ? rate / peak : 0.0;
    return 2.0 * rate;
}

static int cli_profile_table(const cli_inputs *inputs, const cli_profile *profile)
{
    const sbit_graph *graph = inputs->model.graph;
    static const char *const heads[] = {"node", "operator", "ms",      "share",
                                        "MACs", "GFLOP/s",  "of peak", "fused into"};
    cli_table table;
    cli_table_begin(&table, "<<>>>>><");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    int64_t idle = 0; /* computed when the session was made */
    for (size_t i = 0; i < profile->count; i++) {
        const sbit_node_profile *at = &profile->nodes[i];
        const double ns = cli_profile_ns(at);
        if (!sbit_graph_node_alive(graph, at->node) || (ns <= 0.0 && at->fused_into.idx == 0)) {
            idle += sbit_graph_node_alive(graph, at->node);
            continue;
        }
        const sbit_node *node = sbit_graph_node(graph, at->node);
        char text[40];
        const bool fused = at->fused_into.idx != 0;
        cli_table_cell(&table, "%s", cli_node_name(graph, node));
        cli_table_cell(&table, "%s", node->op_type);
        cli_table_cell(&table, "%.4f", ns / 1e6);
        cli_table_cell(&table, "%.1f %%", profile->total > 0.0 ? 100.0 * ns / profile->total : 0.0);
        cli_table_cell(
            &table, "%s",
            cli_count_text((double)sbit_graph_node_macs(graph, at->node), text, sizeof text));
        double share = 0.0;
        const double rate = cli_profile_rate(profile, at, &share);
        snprintf(text, sizeof text, "%.1f", rate);
        cli_table_cell(&table, "%s", rate > 0.0 ? text : "");
        snprintf(text, sizeof text, "%.0f %%", 100.0 * share);
        cli_table_cell(&table, "%s", rate > 0.0 ? text : "");
        cli_table_cell(&table, "%s",
                       fused ? cli_node_name(graph, sbit_graph_node(graph, at->fused_into)) : "");
    }
    CLI_TRY(cli_table_print(&table, stdout));
    printf("%-10s %.0f GFLOP/s of floats, %.0f GOP/s of 8-bit integers (registers alone)\n", "peak",
           2.0 * profile->peak[0], 2.0 * profile->peak[1]);
    if (idle > 0) {
        printf("%lld nodes took no time: their results are constants\n", (long long)idle);
    }
    return CLI_OK;
}

static void cli_profile_json(sbit_json *json, const cli_inputs *inputs, const cli_profile *profile)
{
    const sbit_graph *graph = inputs->model.graph;
    sbit_json_open(json, "nodes", '[');
    for (size_t i = 0; i < profile->count; i++) {
        const sbit_node_profile *at = &profile->nodes[i];
        if (!sbit_graph_node_alive(graph, at->node)) {
            continue;
        }
        const sbit_node *node = sbit_graph_node(graph, at->node);
        const double ns = cli_profile_ns(at);
        sbit_json_open(json, NULL, '{');
        sbit_json_text(json, "name", cli_node_name(graph, node));
        sbit_json_text(json, "op_type", node->op_type);
        sbit_json_number(json, "ms", ns / 1e6);
        sbit_json_number(json, "share", profile->total > 0.0 ? ns / profile->total : 0.0);
        sbit_json_int(json, "macs", sbit_graph_node_macs(graph, at->node));
        double of_peak = 0.0;
        sbit_json_number(json, "gflops", cli_profile_rate(profile, at, &of_peak));
        sbit_json_number(json, "of_peak", of_peak);
        sbit_json_text(json, "fused_into",
                       at->fused_into.idx != 0
                           ? cli_node_name(graph, sbit_graph_node(graph, at->fused_into))
                           : "");
        cli_explain_json(json, at);
        sbit_json_close(json, '}');
    }
    sbit_json_close(json, ']');
}

static int cli_bench_json(const cli_args *args, const cli_inputs *inputs, const cli_bench_result *r,
                          const cli_profile *profile)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", args->operands[0]);
    sbit_json_text(&json.to, "isa", sbit_isa_name(sbit_ctx_isa(inputs->model.ctx)));
    sbit_json_int(&json.to, "threads", sbit_ctx_threads(inputs->model.ctx));
    sbit_json_int(&json.to, "iters", r->count);
    sbit_json_number(&json.to, "median_ms", 1000.0 * r->median);
    sbit_json_number(&json.to, "min_ms", 1000.0 * r->times[0]);
    sbit_json_number(&json.to, "mean_ms", 1000.0 * r->mean);
    sbit_json_number(&json.to, "load_ms", 1000.0 * r->load);
    sbit_json_number(&json.to, "plan_ms", 1000.0 * r->plan);
    sbit_json_number(&json.to, "first_ms", 1000.0 * r->first);
    sbit_json_int(&json.to, "macs", r->macs);
    sbit_json_number(&json.to, "gflops", 2e-9 * (double)r->macs / r->median);
    sbit_json_int(&json.to, "memory_bytes", (int64_t)r->memory_bytes);
    sbit_json_int(&json.to, "session_bytes", (int64_t)r->session_bytes);
    sbit_json_int(&json.to, "packed_bytes", (int64_t)r->packed_bytes);
    if (args->profile || args->explain) {
        cli_profile_json(&json.to, inputs, profile);
    }
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

static int cli_bench_show(const cli_args *args, const cli_inputs *inputs, const cli_bench_result *r,
                          const cli_profile *profile)
{
    char macs[40], bytes[40], all[40], packed[40];
    if (args->json) {
        return cli_bench_json(args, inputs, r, profile);
    }
    if (args->profile) {
        CLI_TRY(cli_profile_table(inputs, profile));
    }
    if (args->explain) {
        CLI_TRY(cli_explain_table(inputs->model.graph, profile->nodes, profile->count));
    }
    printf("%-10s %.3f ms median, %.3f ms min, %.3f ms mean of %lld runs\n", "time",
           1000.0 * r->median, 1000.0 * r->times[0], 1000.0 * r->mean, (long long)r->count);
    printf("%-10s %.1f ms to load%s, %.1f ms to plan and pack, %.3f ms the first run\n", "before",
           1000.0 * r->load, args->as_is ? "" : " and simplify", 1000.0 * r->plan, 1000.0 * r->first);
    printf("%-10s %s MACs, %.1f GFLOP/s\n", "work",
           cli_count_text((double)r->macs, macs, sizeof macs), 2e-9 * (double)r->macs / r->median);
    printf("%-10s %s, %d thread%s\n", "machine", sbit_isa_name(sbit_ctx_isa(inputs->model.ctx)),
           (int)sbit_ctx_threads(inputs->model.ctx),
           sbit_ctx_threads(inputs->model.ctx) > 1 ? "s" : "");
    printf("%-10s %s for activations, %s a session, %s packed weights for all sessions\n",
           "memory",
           cli_bytes_text((double)r->memory_bytes, bytes, sizeof bytes),
           cli_bytes_text((double)r->session_bytes, all, sizeof all),
           cli_bytes_text((double)r->packed_bytes, packed, sizeof packed));
    return CLI_OK;
}

/* `result` has `load` and the time when planning began. */
static int cli_bench_program(const cli_args *args, cli_inputs *inputs, const sbit_program *program,
                             cli_bench_result result)
{
    sbit_session *session = NULL;
    sbit_session_memory memory;
    sbit_graph_cost cost;
    cli_profile profile;
    sbit_error error;
    memset(&profile, 0, sizeof profile);
    memset(&error, 0, sizeof error);
    if (sbit_session_create_for(program, NULL, &session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' cannot run", inputs->model.path);
    }
    result.plan = cli_seconds() - result.plan;
    if (sbit_graph_cost_of(inputs->model.graph, &cost, &error) != SBIT_OK) {
        sbit_session_destroy(session);
        return cli_fail_library(&error, "'%s'", inputs->model.path);
    }
    result.macs = cost.macs;
    int code = cli_bench_measure(args, inputs, session, &result);
    sbit_session_memory_of(session, &memory);
    result.memory_bytes = memory.activation_bytes + memory.dynamic_bytes;
    result.session_bytes = memory.total_bytes;
    result.packed_bytes = memory.packed_bytes;
    sbit_session_destroy(session);
    if (code == CLI_OK && (args->profile || args->explain)) {
        code = cli_profile_take(inputs, args, program, &profile);
    }
    code = code == CLI_OK ? cli_bench_show(args, inputs, &result, &profile) : code;
    free(result.times);
    free(profile.nodes);
    free(profile.macs);
    sbit_session_destroy(profile.session);
    return code;
}

/* Weights are packed once for all sessions. */
static int cli_bench_model(const cli_args *args, cli_inputs *inputs, double load)
{
    cli_bench_result result;
    sbit_program *program = NULL;
    sbit_session_desc desc;
    sbit_error error;
    memset(&error, 0, sizeof error);
    memset(&desc, 0, sizeof desc);
    desc.disable_integers = args->simulate;
    desc.release_weights = true;
    memset(&result, 0, sizeof result);
    result.load = load;
    result.plan = cli_seconds();
    if (sbit_program_create(inputs->model.graph, &desc, &program, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' cannot run", inputs->model.path);
    }
    const int code = cli_bench_program(args, inputs, program, result);
    sbit_program_destroy(program);
    return code;
}

int cli_bench(const cli_args *args)
{
    cli_inputs inputs;
    const double begin = cli_seconds();
    int code = cli_inputs_begin(&inputs, args, 1);
    code = code == CLI_OK ? cli_model_prepare(args, &inputs.model) : code;
    code = code == CLI_OK ? cli_bench_model(args, &inputs, cli_seconds() - begin) : code;
    cli_inputs_free(&inputs);
    return code;
}
