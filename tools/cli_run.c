/* cli_run.c: `sparsebit run` and `sparsebit bench`.
 */
#include "cli.h"

#include <math.h>   /* isnan */
#include <stdlib.h> /* qsort, free */

/* The tensors that are fed: from files, else random numbers, always the same. */
typedef struct cli_feed {
    cli_model model;
    sbit_tensor tensors[CLI_MAX_INPUTS];
} cli_feed;

static int cli_feed_file(cli_feed *feed, const char *text)
{
    const char *path = NULL;
    size_t index = 0;
    char why[600];
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_input_index(&feed->model, "--input", text, &index, &path));
    const sbit_value_info *info = cli_model_input(&feed->model, index);
    sbit_tensor *tensor = &feed->tensors[index];
    if (tensor->data != NULL) {
        return cli_fail("--input '%s': input '%s' is given twice", text, info->name);
    }
    if (cli_has_suffix(path, ".pb")) {
        if (sbit_tensor_load_pb(feed->model.ctx, path, tensor, &error) != SBIT_OK) {
            return cli_fail_library(&error, "--input '%s'", text);
        }
    } else if (cli_has_suffix(path, ".npy")) {
        CLI_TRY(cli_npy_load(feed->model.ctx, path, tensor));
    } else {
        return cli_fail("--input '%s': the file must be .npy (np.save) or .pb (TensorProto)", text);
    }
    if (!cli_type_takes(feed->model.graph, &info->type, tensor, why, sizeof why)) {
        return cli_fail("--input '%s' does not fit input '%s': %s", text, info->name, why);
    }
    return CLI_OK;
}

/* An input from a file says what the symbols of its dims are. */
static void cli_feed_types(cli_feed *feed)
{
    for (size_t i = 0; i < feed->model.input_count; i++) {
        const sbit_tensor *tensor = &feed->tensors[i];
        sbit_type type = cli_model_input(&feed->model, i)->type;
        if (tensor->data == NULL) {
            continue;
        }
        type.dtype = tensor->dtype;
        type.rank = tensor->rank;
        for (int32_t d = 0; d < tensor->rank; d++) {
            type.dims[d].symbol = 0;
            type.dims[d].value = tensor->dims[d];
        }
        sbit_graph_set_type(feed->model.graph, feed->model.inputs[i], &type);
    }
}

static int cli_feed_fill(cli_feed *feed, const cli_args *args)
{
    sbit_rng rng = sbit_rng_seed(0);
    for (size_t i = 0; i < args->input.count; i++) {
        CLI_TRY(cli_feed_file(feed, args->input.items[i]));
    }
    cli_feed_types(feed);
    CLI_TRY(cli_model_apply_shapes(&feed->model, &args->shape));
    CLI_TRY(cli_model_check_runs(&feed->model));
    for (size_t i = 0; i < feed->model.input_count; i++) {
        const sbit_value_info *info = cli_model_input(&feed->model, i);
        if (feed->tensors[i].data == NULL) {
            CLI_TRY(cli_random_tensor(feed->model.ctx, info, &rng, &feed->tensors[i]));
            if (strcmp(args->command, "run") == 0) {
                char text[200];
                sbit_tensor_describe(&feed->tensors[i], text, sizeof text);
                cli_note("input '%s' gets random numbers: %s", info->name, text);
            }
        }
    }
    return CLI_OK;
}

static int cli_feed_set(cli_feed *feed, sbit_session *session)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    for (size_t i = 0; i < feed->model.input_count; i++) {
        const char *name = cli_model_input(&feed->model, i)->name;
        if (sbit_session_set_input(session, name, &feed->tensors[i], &error) != SBIT_OK) {
            return cli_fail_library(&error, "'%s'", feed->model.path);
        }
    }
    return CLI_OK;
}

static int cli_feed_run(cli_feed *feed, sbit_session *session, double *seconds)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_feed_set(feed, session));
    if (sbit_session_plan(session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' cannot run with these inputs", feed->model.path);
    }
    const double begin = cli_seconds();
    if (sbit_session_run(session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' failed", feed->model.path);
    }
    *seconds = cli_seconds() - begin;
    return CLI_OK;
}

static void cli_feed_free(cli_feed *feed)
{
    sbit_ctx *ctx = feed->model.ctx;
    for (size_t i = 0; i < CLI_MAX_INPUTS; i++) {
        if (feed->tensors[i].data != NULL) {
            sbit_tensor_free(ctx, &feed->tensors[i]);
        }
    }
    cli_model_free(&feed->model);
    sbit_ctx_destroy(ctx);
}

/* Loads the model and makes its inputs; the feed must be freed in any case. */
static int cli_feed_begin(cli_feed *feed, const cli_args *args, int32_t threads)
{
    sbit_ctx *ctx = NULL;
    memset(feed, 0, sizeof *feed);
    CLI_TRY(cli_context_create(args, threads, &ctx));
    const int code = cli_model_load(ctx, args->operands[0], &feed->model);
    if (code != CLI_OK) {
        sbit_ctx_destroy(ctx);
        return code;
    }
    return cli_feed_fill(feed, args);
}

/* ---- run */

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
    if (value->kind != SBIT_KIND_TENSOR || !cli_dtype_is_number(value->tensor.dtype)) {
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
        snprintf(text + at, size - at, "%s%.6g", i > 0 ? " " : "", cli_tensor_at(tensor, i));
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
    summary.numbers = value->kind == SBIT_KIND_TENSOR && cli_dtype_is_number(value->tensor.dtype);
    if (!summary.numbers) {
        return summary;
    }
    cli_range_add(&summary.range, &value->tensor, 0, 0);
    for (int64_t i = 0; i < sbit_tensor_count(&value->tensor); i++) {
        summary.nan += isnan(cli_tensor_at(&value->tensor, i)) != 0;
    }
    return summary;
}

static void cli_json_output(cli_json *json, const char *name, const sbit_value *value)
{
    const cli_summary s = cli_summarize(value);
    const sbit_tensor *tensor = &value->tensor;
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", name);
    if (value->kind == SBIT_KIND_TENSOR) {
        cli_json_text(json, "dtype", sbit_dtype_name((int32_t)tensor->dtype));
        cli_json_open(json, "shape", '[');
        for (int32_t i = 0; i < tensor->rank; i++) {
            cli_json_int(json, NULL, tensor->dims[i]);
        }
        cli_json_close(json, ']');
    }
    if (s.numbers) {
        const int64_t count = sbit_tensor_count(tensor);
        cli_json_number(json, "min", s.range.min);
        cli_json_number(json, "mean",
                        s.range.count > 0 ? s.range.sum / (double)s.range.count : 0.0);
        cli_json_number(json, "max", s.range.max);
        cli_json_int(json, "nan", s.nan);
        cli_json_open(json, "first", '[');
        for (int64_t i = 0; i < count && i < 10; i++) {
            cli_json_number(json, NULL, cli_tensor_at(tensor, i));
        }
        cli_json_close(json, ']');
    }
    cli_json_close(json, '}');
}

static int cli_run_json(const cli_args *args, const cli_feed *feed, const sbit_session *session,
                        double seconds)
{
    cli_json json;
    memset(&json, 0, sizeof json);
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "model", args->operands[0]);
    cli_json_number(&json, "ms", 1000.0 * seconds);
    cli_json_int(&json, "threads", sbit_ctx_threads(feed->model.ctx));
    cli_json_open(&json, "outputs", '[');
    for (size_t i = 0; i < sbit_session_output_count(session); i++) {
        cli_json_output(&json, sbit_session_output_info(session, i)->name,
                        sbit_session_output(session, i));
    }
    cli_json_close(&json, ']');
    cli_json_close(&json, '}');
    return cli_json_print(&json);
}

static int cli_run_table(const cli_args *args, const cli_feed *feed, const sbit_session *session,
                         double seconds)
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
    printf("%.3f ms, %d thread%s%s%s\n", 1000.0 * seconds, (int)sbit_ctx_threads(feed->model.ctx),
           sbit_ctx_threads(feed->model.ctx) > 1 ? "s" : "",
           args->out != NULL ? "; written to " : "", args->out != NULL ? args->out : "");
    return CLI_OK;
}

static int cli_run_session(const cli_args *args, cli_feed *feed)
{
    sbit_session *session = NULL;
    double seconds = 0.0;
    CLI_TRY(cli_session_create(feed->model.graph, NULL, feed->model.path, &session));
    int code = cli_feed_run(feed, session, &seconds);
    for (size_t i = 0; i < sbit_session_output_count(session) && code == CLI_OK; i++) {
        code = cli_save_output(args, sbit_session_output_info(session, i)->name,
                               sbit_session_output(session, i));
    }
    if (code == CLI_OK) {
        code = args->json ? cli_run_json(args, feed, session, seconds)
                          : cli_run_table(args, feed, session, seconds);
    }
    sbit_session_destroy(session);
    return code;
}

int cli_run(const cli_args *args)
{
    cli_feed feed;
    int code = cli_feed_begin(&feed, args, cli_processor_count());
    if (code == CLI_OK && args->out != NULL) {
        code = cli_make_folder("-o", args->out);
    }
    code = code == CLI_OK ? cli_run_session(args, &feed) : code;
    cli_feed_free(&feed);
    return code;
}

/* ---- bench */

typedef struct cli_bench_result {
    double *times; /* seconds, sorted */
    int64_t count;
    double median, mean;
    int64_t macs;
    size_t memory_bytes;
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

static int cli_bench_measure(const cli_args *args, cli_feed *feed, sbit_session *session,
                             cli_bench_result *out)
{
    const int64_t most = args->iters > 0 ? args->iters : CLI_BENCH_MAX;
    double seconds = 0.0, total = 0.0;
    out->times = (double *)malloc((size_t)most * sizeof *out->times);
    if (out->times == NULL) {
        return cli_fail_memory((size_t)most * sizeof *out->times);
    }
    for (int i = 0; i < 3; i++) { /* caches, page faults, clock rate */
        CLI_TRY(cli_feed_run(feed, session, &seconds));
        total += seconds;
        if (total > 1.0) {
            break;
        }
    }
    total = 0.0;
    while (out->count < most && (args->iters > 0 || out->count < CLI_BENCH_MIN || total < 2.0)) {
        cli_progress("bench", out->count, most);
        CLI_TRY(cli_feed_run(feed, session, &seconds));
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
    double total; /* nanoseconds per run */
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

static int cli_profile_take(cli_feed *feed, const cli_args *args, cli_profile *out)
{
    sbit_session_desc desc;
    sbit_session *session = NULL;
    double seconds = 0.0;
    const int64_t runs = args->iters > 0 ? args->iters : 20;
    memset(&desc, 0, sizeof desc);
    desc.profile = true;
    CLI_TRY(cli_session_create(feed->model.graph, &desc, feed->model.path, &session));
    int code = CLI_OK;
    for (int64_t i = 0; i < runs && code == CLI_OK; i++) {
        cli_progress("profile", i, runs);
        code = cli_feed_run(feed, session, &seconds);
    }
    cli_progress("profile", runs, runs);
    const size_t count = sbit_session_profile(session, NULL, 0);
    out->nodes = (sbit_node_profile *)malloc((count + 1) * sizeof *out->nodes);
    if (out->nodes == NULL) {
        code = cli_fail_memory(count * sizeof *out->nodes);
    } else {
        out->count = sbit_session_profile(session, out->nodes, count);
        qsort(out->nodes, out->count, sizeof *out->nodes, cli_profile_order);
    }
    for (size_t i = 0; i < out->count; i++) {
        out->total += cli_profile_ns(&out->nodes[i]);
    }
    sbit_session_destroy(session);
    return code;
}

static const char *cli_node_name(const sbit_graph *graph, const sbit_node *node)
{
    if (node->name[0] != '\0' || node->output_count == 0 || node->outputs[0].idx == 0) {
        return node->name;
    }
    return sbit_graph_value(graph, node->outputs[0])->name;
}

static int cli_profile_table(const cli_feed *feed, const cli_profile *profile)
{
    const sbit_graph *graph = feed->model.graph;
    static const char *const heads[] = {"node", "operator", "ms", "share", "MACs", "fused into"};
    cli_table table;
    cli_table_begin(&table, "<<>>><");
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
        cli_table_cell(&table, "%s",
                       fused ? cli_node_name(graph, sbit_graph_node(graph, at->fused_into)) : "");
    }
    CLI_TRY(cli_table_print(&table, stdout));
    if (idle > 0) {
        printf("%lld nodes took no time: their results are constants\n", (long long)idle);
    }
    return CLI_OK;
}

static void cli_profile_json(cli_json *json, const cli_feed *feed, const cli_profile *profile)
{
    const sbit_graph *graph = feed->model.graph;
    cli_json_open(json, "nodes", '[');
    for (size_t i = 0; i < profile->count; i++) {
        const sbit_node_profile *at = &profile->nodes[i];
        if (!sbit_graph_node_alive(graph, at->node)) {
            continue;
        }
        const sbit_node *node = sbit_graph_node(graph, at->node);
        const double ns = cli_profile_ns(at);
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "name", cli_node_name(graph, node));
        cli_json_text(json, "op_type", node->op_type);
        cli_json_number(json, "ms", ns / 1e6);
        cli_json_number(json, "share", profile->total > 0.0 ? ns / profile->total : 0.0);
        cli_json_int(json, "macs", sbit_graph_node_macs(graph, at->node));
        cli_json_text(json, "fused_into",
                      at->fused_into.idx != 0
                          ? cli_node_name(graph, sbit_graph_node(graph, at->fused_into))
                          : "");
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static int cli_bench_json(const cli_args *args, const cli_feed *feed, const cli_bench_result *r,
                          const cli_profile *profile)
{
    cli_json json;
    memset(&json, 0, sizeof json);
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "model", args->operands[0]);
    cli_json_text(&json, "isa", sbit_isa_name(sbit_ctx_isa(feed->model.ctx)));
    cli_json_int(&json, "threads", sbit_ctx_threads(feed->model.ctx));
    cli_json_int(&json, "iters", r->count);
    cli_json_number(&json, "median_ms", 1000.0 * r->median);
    cli_json_number(&json, "min_ms", 1000.0 * r->times[0]);
    cli_json_number(&json, "mean_ms", 1000.0 * r->mean);
    cli_json_int(&json, "macs", r->macs);
    cli_json_number(&json, "gflops", 2e-9 * (double)r->macs / r->median);
    cli_json_int(&json, "memory_bytes", (int64_t)r->memory_bytes);
    if (args->profile) {
        cli_profile_json(&json, feed, profile);
    }
    cli_json_close(&json, '}');
    return cli_json_print(&json);
}

static int cli_bench_show(const cli_args *args, const cli_feed *feed, const cli_bench_result *r,
                          const cli_profile *profile)
{
    char macs[40], bytes[40];
    if (args->json) {
        return cli_bench_json(args, feed, r, profile);
    }
    if (args->profile) {
        CLI_TRY(cli_profile_table(feed, profile));
    }
    printf("%-10s %.3f ms median, %.3f ms min, %.3f ms mean of %lld runs\n", "time",
           1000.0 * r->median, 1000.0 * r->times[0], 1000.0 * r->mean, (long long)r->count);
    printf("%-10s %s MACs, %.1f GFLOP/s\n", "work",
           cli_count_text((double)r->macs, macs, sizeof macs), 2e-9 * (double)r->macs / r->median);
    printf("%-10s %s, %d thread%s\n", "machine", sbit_isa_name(sbit_ctx_isa(feed->model.ctx)),
           (int)sbit_ctx_threads(feed->model.ctx),
           sbit_ctx_threads(feed->model.ctx) > 1 ? "s" : "");
    printf("%-10s %s for activations\n", "memory",
           cli_bytes_text((double)r->memory_bytes, bytes, sizeof bytes));
    return CLI_OK;
}

static int cli_bench_session(const cli_args *args, cli_feed *feed)
{
    sbit_session *session = NULL;
    sbit_session_memory memory;
    sbit_graph_cost cost;
    cli_bench_result result;
    cli_profile profile;
    sbit_error error;
    memset(&result, 0, sizeof result);
    memset(&profile, 0, sizeof profile);
    memset(&error, 0, sizeof error);
    if (sbit_graph_cost_of(feed->model.graph, &cost, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s'", feed->model.path);
    }
    CLI_TRY(cli_session_create(feed->model.graph, NULL, feed->model.path, &session));
    result.macs = cost.macs;
    int code = cli_bench_measure(args, feed, session, &result);
    sbit_session_memory_of(session, &memory);
    result.memory_bytes = memory.activation_bytes + memory.scratch_bytes + memory.dynamic_bytes;
    sbit_session_destroy(session);
    if (code == CLI_OK && args->profile) {
        code = cli_profile_take(feed, args, &profile);
    }
    code = code == CLI_OK ? cli_bench_show(args, feed, &result, &profile) : code;
    free(result.times);
    free(profile.nodes);
    return code;
}

int cli_bench(const cli_args *args)
{
    cli_feed feed;
    int code = cli_feed_begin(&feed, args, 1);
    code = code == CLI_OK ? cli_model_prepare(args, &feed.model) : code;
    code = code == CLI_OK ? cli_bench_session(args, &feed) : code;
    cli_feed_free(&feed);
    return code;
}
