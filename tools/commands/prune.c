/* commands/prune.c: `sparsebit prune`: channels are removed, and the result is proven.
 *
 * The order: everything is checked - channels are labelled and scored - what goes is chosen, by a
 * ratio or a budget - the smaller graph is made and compared with the masked one, inside the
 * library
 * - written - reported.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"
#include "data/data.h"
#include "report/masks.h"
#include "report/quantize.h"

#include <stdlib.h> /* strtod, malloc, free */

enum {
    CLI_SPARSITY_SAMPLES = 64, /* of analyze --sparsity, without --limit */
    CLI_SPARSITY_RATIOS = 5
};

typedef struct cli_pruning {
    const cli_args *args;
    cli_model model;
    sbit_sconfig *config;
    sbit_sparse *sparse;
    sbit_graph *out;
    cli_data data;
    cli_source_feed source;
    sbit_feed feed;
    bool has_data, unchanged;
    sbit_graph_cost before, after;
    sbit_sparse_permuted permuted;
    sbit_sparse_repaired repaired;
    uint64_t bytes_after;
    sbit_sparse_budget budget;
    bool has_budget;
    sbit_latency *times;
    double us_before, us_after; /* with --latency */
    double seconds;
} cli_pruning;

/* ---- configuration */

static int cli_prune_set(cli_pruning *p, const char *key, const char *value, const char *flag)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    return sbit_sconfig_set(p->config, key, value, &error) == SBIT_OK
               ? CLI_OK
               : cli_fail_library(&error, "%s %s", flag, value);
}

static int cli_prune_set_pair(cli_pruning *p, const char *text)
{
    char key[200];
    const size_t size = strcspn(text, "=");
    if (text[size] != '=' || size == 0 || size >= sizeof key) {
        return cli_fail_usage(p->args->command,
                              "--set '%s': KEY=VALUE is wanted, such as SPARSER.RATIO=0.5", text);
    }
    snprintf(key, sizeof key, "%.*s", (int)size, text);
    return cli_prune_set(p, key, text + size + 1, "--set");
}

static int cli_prune_configure(cli_pruning *p)
{
    static const char plain[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n";
    const cli_args *args = p->args;
    sbit_error error;
    memset(&error, 0, sizeof error);
    p->has_budget = args->macs != NULL || args->bytes != NULL || args->latency != NULL;
    if (args->config == NULL && args->ratio == NULL && !p->has_budget && args->set.count == 0 &&
        args->masks == NULL &&
        !args->sparsity) {
        return cli_fail_usage(args->command,
                              "how much is to go? Give --ratio, --macs, --bytes, --latency or a "
                              "configuration (-c)");
    }
    const sbit_status status =
        args->config != NULL
            ? sbit_sconfig_load(p->model.ctx, args->config, &p->config, &error)
            : sbit_sconfig_read(p->model.ctx, plain, sizeof plain - 1, &p->config, &error);
    if (status != SBIT_OK) {
        return cli_fail_library(&error, "configuration '%s'", args->config);
    }
    for (size_t i = 0; i < args->set.count; i++) {
        CLI_TRY(cli_prune_set_pair(p, args->set.items[i]));
    }
    if (args->ratio != NULL) {
        CLI_TRY(cli_prune_set(p, "SPARSER.RATIO", args->ratio, "--ratio"));
    }
    if (args->prune_outputs != NULL) {
        CLI_TRY(cli_prune_set(p, "SPARSER.PRUNE_OUTPUTS", args->prune_outputs, "--prune-outputs"));
    }
    if (args->inexact_norm) {
        CLI_TRY(cli_prune_set(p, "SPARSER.INEXACT_NORM", "true", "--inexact-norm"));
    }
    if (args->search != NULL) {
        CLI_TRY(cli_prune_set(p, "SPARSER.SEARCH", args->search, "--search"));
    }
    return args->repair != NULL ? cli_prune_set(p, "SPARSER.REPAIR", args->repair, "--repair")
                                : CLI_OK;
}

/* ---- the work */

static int cli_prune_budget(cli_pruning *p)
{
    const cli_args *args = p->args;
    const struct {
        const char *flag, *text;
        bool is_size;
        double *share;
    } limits[] = {{"--macs", args->macs, false, &p->budget.macs},
                  {"--bytes", args->bytes, true, &p->budget.bytes},
                  {"--latency", args->latency, false, &p->budget.latency}};
    if (p->has_budget && args->ratio != NULL) {
        return cli_fail_usage(args->command, "--ratio and a budget exclude each other");
    }
    if (args->search != NULL && !p->has_budget && strcmp(args->search, "admm_training") == 0) {
        p->has_budget = true; /* to what RATIO says */
    } else if (args->search != NULL && !p->has_budget) {
        return cli_fail_usage(args->command,
                              "--search needs a budget: --macs, --bytes or --latency");
    }
    if (args->latency_table != NULL && args->latency == NULL) {
        return cli_fail_usage(args->command, "--latency-table needs --latency");
    }
    for (size_t i = 0; i < CLI_COUNT_OF(limits); i++) {
        if (limits[i].text != NULL) {
            CLI_TRY(cli_model_share(&p->model, args, limits[i].flag, limits[i].text,
                                    limits[i].is_size ? &p->before : NULL, limits[i].share));
        }
    }
    return CLI_OK;
}

/* The table of --latency-table, or a new one. */
static int cli_prune_times(cli_pruning *p, const sbit_feed *feed, bool *made)
{
    const char *path = p->args->latency_table;
    sbit_error error;
    memset(&error, 0, sizeof error);
    *made = path == NULL || !cli_same_file(path, path);
    error.status = *made ? sbit_latency_measure(p->sparse, feed, &p->times, &error)
                         : sbit_latency_load(p->model.ctx, path, &p->times, &error);
    p->budget.times = p->times;
    return error.status == SBIT_OK ? CLI_OK
           : *made ? cli_fail_library(&error, "the time of '%s' cannot be measured", p->model.path)
                   : cli_fail_library(&error, "--latency-table %s", path);
}

static int cli_prune_fit(cli_pruning *p, const sbit_feed *feed)
{
    sbit_error error;
    bool made = false;
    memset(&error, 0, sizeof error);
    if (p->args->latency != NULL) {
        CLI_TRY(cli_prune_times(p, feed, &made));
    }
    p->budget.tune = sbit_trainer_tune;
    error.status = sbit_sparse_fit(p->sparse, &p->budget, feed, &error);
    if (error.status == SBIT_OK && p->args->latency != NULL) {
        error.status = sbit_latency_now(p->sparse, &p->us_before, &p->us_after, &error);
    }
    if (error.status != SBIT_OK) {
        return p->source.failed ? CLI_BAD
                                : cli_fail_library(&error, "cannot prune '%s'", p->model.path);
    }
    const double share = p->us_before > 0.0 ? p->us_after / p->us_before : 0.0;
    if (p->args->latency != NULL && !made && share > 1.1 * p->budget.latency) {
        cli_warn("the result takes %.2f of the time at present, not %.2f: by the times of %s, which were measured before", share,
                 p->budget.latency, p->args->latency_table);
    }
    if (made && p->args->latency_table != NULL &&
        sbit_latency_save(p->times, p->args->latency_table, &error) != SBIT_OK) {
        return cli_fail_library(&error, "--latency-table %s", p->args->latency_table);
    }
    return CLI_OK;
}

static int cli_prune_choose(cli_pruning *p)
{
    const sbit_feed *feed = p->has_data ? &p->feed : NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_prune_budget(p));
    if (sbit_sparse_create(p->model.graph, p->config, &p->sparse, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot prune '%s'", p->model.path);
    }
    if (p->args->start_masks != NULL) {
        CLI_TRY(cli_masks_load(p->sparse, p->args->start_masks, true));
    }
    if (p->args->masks != NULL) {
        CLI_TRY(cli_masks_load(p->sparse, p->args->masks, false));
    } else if (sbit_sparse_permute(p->sparse, feed, &p->permuted, &error) != SBIT_OK) {
        return p->source.failed ? CLI_BAD : cli_fail_library(&error, "cannot prune '%s'", p->model.path);
    } else if (p->has_budget) {
        CLI_TRY(cli_prune_fit(p, feed));
    } else {
        error.status = sbit_sparse_select(p->sparse, feed, &error);
    }
    if (error.status == SBIT_OK) {
        error.status = sbit_sparse_repair(p->sparse, feed, &p->repaired, &error);
    }
    return error.status == SBIT_OK || p->source.failed
               ? (p->source.failed ? CLI_BAD : CLI_OK)
               : cli_fail_library(&error, "cannot prune '%s'", p->model.path);
}

/* Some element is masked. */
static bool cli_prune_any(const cli_pruning *p)
{
    for (size_t i = 0; i < sbit_sparse_mask_count(p->sparse); i++) {
        sbit_mask mask;
        if (sbit_sparse_mask(p->sparse, i, &mask) == SBIT_OK && mask.kept < mask.count) {
            return true;
        }
    }
    return false;
}

static int cli_prune_make(cli_pruning *p)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    p->unchanged = !cli_prune_any(p);
    if (p->unchanged) {
        cli_warn(
            "nothing was pruned: the ratio leaves every channel, or none can be cut (--explain "
            "says why); the model is written unchanged");
        error.status = sbit_graph_clone(p->model.graph, &p->out, &error);
    } else if (p->args->mask_only) {
        error.status = sbit_sparse_masked(p->sparse, &p->out, &error);
    } else {
        error.status =
            sbit_sparse_shrink(p->sparse, p->has_data ? &p->feed : NULL, &p->out, &error);
    }
    if (error.status != SBIT_OK) {
        return p->source.failed ? CLI_BAD
                                : cli_fail_library(&error, "cannot prune '%s'", p->model.path);
    }
    if (p->unchanged) {
        p->after = p->before;
    } else if (sbit_graph_cost_of(p->out, &p->after, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot prune '%s'", p->model.path);
    }
    if (p->args->strict && sbit_sparse_check_cut(p->sparse, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot prune '%s'", p->model.path);
    }
    if (p->args->save_masks != NULL) {
        CLI_TRY(cli_masks_save(p->sparse, p->args->save_masks));
    }
    return CLI_OK;
}

static int cli_prune_save(cli_pruning *p)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_graph_validate(p->out, &error) != SBIT_OK ||
        sbit_graph_save(p->out, p->args->out, NULL, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot write '%s'", p->args->out);
    }
    return cli_file_bytes(p->args->out, &p->bytes_after);
}

static int cli_prune_open(cli_pruning *p)
{
    const cli_args *args = p->args;
    sbit_error error;
    sbit_graph *simple = NULL;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_prune_configure(p));
    if (args->data != NULL) {
        CLI_TRY(cli_data_open(args, &p->model, "data set", args->data,
                              cli_first(args->limit > 0  ? args->limit
                                        : args->sparsity ? CLI_SPARSITY_SAMPLES
                                                         : 256),
                              &p->data));
        p->feed = cli_feed_of(&p->data, &p->source);
        p->has_data = true;
    }
    /* what exporters leave behind is no cost of the model */
    error.status = sbit_graph_clone(p->model.graph, &simple, &error);
    if (error.status == SBIT_OK) {
        sbit_simplify_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.keep_batch_norm = true;
        error.status = sbit_simplify(simple, &desc, NULL, &error);
        error.status =
            error.status == SBIT_OK ? sbit_graph_cost_of(simple, &p->before, &error) : error.status;
    }
    sbit_graph_destroy(simple);
    return error.status == SBIT_OK ? CLI_OK
                                   : cli_fail_library(&error, "cannot prune '%s'", p->model.path);
}

/* ---- the report */

static void cli_prune_row(cli_table *table, const char *what, const char *a, const char *b,
                          double share)
{
    cli_table_cell(table, "%s", what);
    cli_table_cell(table, "%s", a);
    cli_table_cell(table, "%s", b);
    cli_table_cell(table, "%.3fx", share);
}

static double cli_prune_part(double after, double before)
{
    return before > 0.0 ? after / before : 1.0;
}

/* Which entry of the configuration every layer got. */
static int cli_prune_layers(const cli_pruning *p)
{
    cli_table table;
    cli_table_begin(&table, "<<<><");
    cli_table_cell(&table, "layer");
    cli_table_cell(&table, "operator");
    cli_table_cell(&table, "scored by");
    cli_table_cell(&table, "ratio");
    cli_table_cell(&table, "entry of SPECIFIC");
    for (size_t i = 0; i < sbit_sparse_layer_count(p->sparse); i++) {
        sbit_sparse_layer layer;
        if (sbit_sparse_layer_at(p->sparse, i, &layer) == SBIT_OK) {
            cli_table_cell(&table, "%s", layer.name);
            cli_table_cell(&table, "%s",
                           sbit_graph_node(sbit_sparse_graph(p->sparse), layer.node)->op_type);
            cli_table_cell(&table, "%s%s", layer.settings.strategy,
                           layer.settings.structured ? "" : ", elements");
            cli_table_cell(&table, "%.3g", layer.settings.ratio);
            cli_table_cell(&table, "%s", layer.settings.from);
        }
    }
    CLI_TRY(cli_table_print(&table, stdout));
    printf("\n");
    return CLI_OK;
}

static int cli_prune_explain(const cli_pruning *p)
{
    cli_table table;
    CLI_TRY(cli_prune_layers(p));
    cli_table_begin(&table, "<>><");
    cli_table_cell(&table, "channels of");
    cli_table_cell(&table, "had");
    cli_table_cell(&table, "kept");
    cli_table_cell(&table, "because");
    for (size_t i = 0; i < sbit_sparse_group_count(p->sparse); i++) {
        sbit_sparse_group group;
        if (sbit_sparse_group_at(p->sparse, i, &group) == SBIT_OK) {
            cli_table_cell(&table, "%.60s%s", group.layers,
                           strlen(group.layers) > 60 ? " ..." : "");
            cli_table_cell(&table, "%lld", (long long)group.channels);
            cli_table_cell(&table, "%lld", (long long)group.kept);
            cli_table_cell(&table, "%s", group.reason);
        }
    }
    return cli_table_print(&table, stdout);
}

static int cli_prune_show(const cli_pruning *p)
{
    cli_table table;
    char a[40], b[40];
    if (p->args->explain) {
        CLI_TRY(cli_prune_explain(p));
    }
    cli_table_begin(&table, "<>>>");
    cli_prune_row(&table, "parameters", cli_count_text((double)p->before.params, a, sizeof a),
                  cli_count_text((double)p->after.params, b, sizeof b),
                  cli_prune_part((double)p->after.params, (double)p->before.params));
    cli_prune_row(&table, "MACs", cli_count_text((double)p->before.macs, a, sizeof a),
                  cli_count_text((double)p->after.macs, b, sizeof b),
                  cli_prune_part((double)p->after.macs, (double)p->before.macs));
    if (p->bytes_after > 0) {
        cli_prune_row(&table, "file", cli_bytes_text((double)p->model.file_bytes, a, sizeof a),
                      cli_bytes_text((double)p->bytes_after, b, sizeof b),
                      cli_prune_part((double)p->bytes_after, (double)p->model.file_bytes));
    }
    if (p->us_before > 0.0) {
        snprintf(a, sizeof a, "%.3f ms", 1e-3 * p->us_before);
        snprintf(b, sizeof b, "%.3f ms", 1e-3 * p->us_after);
        cli_prune_row(&table, "one run", a, b, p->us_after / p->us_before);
    }
    CLI_TRY(cli_table_print(&table, stdout));
    if (p->permuted.after > 0.0) {
        printf("N of M keeps %.2f %% of the scores, %.2f %% with %lld channels in other places\n",
               1e2 * p->permuted.before, 1e2 * p->permuted.after, (long long)p->permuted.channels);
    }
    if (p->repaired.layers + p->repaired.norms > 0) {
        printf("outputs on the data (SQNR): %.1f dB pruned", p->repaired.before);
        if (p->repaired.layers > 0) {
            printf(", %.1f dB with %lld layers repaired", p->repaired.ridge,
                   (long long)p->repaired.layers);
        }
        if (p->repaired.norms > 0) {
            printf(", %.1f dB with %lld BatchNormalizations re-estimated", p->repaired.after,
                   (long long)p->repaired.norms);
        }
        printf("\n");
    }
    printf("%s", p->unchanged                         ? "unchanged"
                 : p->args->mask_only                 ? "masked"
                 : !sbit_sparse_is_exact(p->sparse) ? "not compared: a normalized axis lost channels"
                                                      : "equal to the masked model");
    if (p->bytes_after > 0) {
        printf(", %.2f s: %s", p->seconds, p->args->out);
    }
    printf("\n");
    return CLI_OK;
}

static void cli_prune_json_side(sbit_json *json, const char *key, const sbit_graph_cost *cost,
                                uint64_t bytes)
{
    sbit_json_open(json, key, '{');
    sbit_json_int(json, "params", cost->params);
    sbit_json_int(json, "macs", cost->macs);
    sbit_json_int(json, "bytes", (int64_t)bytes);
    sbit_json_close(json, '}');
}

static int cli_prune_json(const cli_pruning *p)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", p->args->operands[0]);
    sbit_json_text(&json.to, "out", p->args->out);
    cli_prune_json_side(&json.to, "before", &p->before, p->model.file_bytes);
    cli_prune_json_side(&json.to, "after", &p->after, p->bytes_after);
    sbit_json_open(&json.to, "groups", '[');
    for (size_t i = 0; i < sbit_sparse_group_count(p->sparse); i++) {
        sbit_sparse_group group;
        if (sbit_sparse_group_at(p->sparse, i, &group) == SBIT_OK) {
            sbit_json_open(&json.to, NULL, '{');
            sbit_json_text(&json.to, "layers", group.layers);
            sbit_json_int(&json.to, "channels", group.channels);
            sbit_json_int(&json.to, "kept", group.kept);
            sbit_json_number(&json.to, "ratio", group.ratio);
            sbit_json_text(&json.to, "reason", group.reason);
            sbit_json_close(&json.to, '}');
        }
    }
    sbit_json_close(&json.to, ']');
    if (p->permuted.after > 0.0) {
        sbit_json_open(&json.to, "permuted", '{');
        sbit_json_number(&json.to, "kept_before", p->permuted.before);
        sbit_json_number(&json.to, "kept_after", p->permuted.after);
        sbit_json_int(&json.to, "channels", p->permuted.channels);
        sbit_json_close(&json.to, '}');
    }
    if (p->repaired.layers + p->repaired.norms > 0) {
        sbit_json_open(&json.to, "repair", '{');
        sbit_json_number(&json.to, "sqnr_pruned", p->repaired.before);
        sbit_json_number(&json.to, "sqnr_ridge", p->repaired.ridge);
        sbit_json_number(&json.to, "sqnr_repaired", p->repaired.after);
        sbit_json_int(&json.to, "layers", p->repaired.layers);
        sbit_json_int(&json.to, "batch_norms", p->repaired.norms);
        sbit_json_close(&json.to, '}');
    }
    if (p->us_before > 0.0) {
        sbit_json_number(&json.to, "microseconds_before", p->us_before);
        sbit_json_number(&json.to, "microseconds_after", p->us_after);
    }
    sbit_json_number(&json.to, "seconds", p->seconds);
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

static int cli_prune_run(cli_pruning *p)
{
    const double begin = cli_seconds();
    CLI_TRY(cli_prune_open(p));
    CLI_TRY(cli_prune_choose(p));
    CLI_TRY(cli_prune_make(p));
    CLI_TRY(cli_prune_save(p));
    p->seconds = cli_seconds() - begin;
    return p->args->json ? cli_prune_json(p) : cli_prune_show(p);
}

static void cli_prune_free(cli_pruning *p)
{
    if (p->has_data) {
        sbit_feed_close(&p->feed);
    }
    sbit_graph_destroy(p->out);
    sbit_latency_destroy(p->times);
    sbit_sparse_destroy(p->sparse);
    sbit_sconfig_destroy(p->config);
    cli_data_close(&p->data);
    cli_model_free(&p->model);
}

/* `run`, on the model that the command names. */
static int cli_prune_with(const cli_args *args, int (*run)(cli_pruning *p))
{
    sbit_ctx *ctx = NULL;
    cli_pruning p;
    memset(&p, 0, sizeof p);
    p.args = args;
    CLI_TRY(cli_check_out(args));
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &p.model);
    if (code == CLI_OK) {
        code = run(&p);
        cli_prune_free(&p);
    }
    sbit_ctx_destroy(ctx);
    return code;
}

int cli_prune(const cli_args *args)
{
    return cli_prune_with(args, cli_prune_run);
}

/* ---- compress */

/* The pruned graph stands in for the model; it borrows from p. */
static int cli_compress_quantize(cli_pruning *p)
{
    cli_job job;
    memset(&job, 0, sizeof job);
    job.args = p->args;
    job.model = p->model;
    job.model.graph = p->out;
    p->out = NULL;
    const int code = cli_quantize_run(&job);
    cli_job_free(&job);
    return code;
}

static int cli_compress_run(cli_pruning *p)
{
    sbit_qconfig *config = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_qconfig_load(p->model.ctx, p->args->config, &config, &error) != SBIT_OK) {
        return cli_fail_library(&error, "configuration '%s'", p->args->config);
    }
    sbit_qconfig_destroy(config);
    CLI_TRY(cli_prune_open(p));
    CLI_TRY(cli_prune_choose(p));
    CLI_TRY(cli_prune_make(p));
    if (!p->args->json) {
        CLI_TRY(cli_prune_show(p));
        printf("\n");
    }
    return cli_compress_quantize(p);
}

int cli_compress(const cli_args *args)
{
    return cli_prune_with(args, cli_compress_run);
}

/* ---- analyze --sparsity */

static const double cli_sparsity_ratios[CLI_SPARSITY_RATIOS] = {0.1, 0.3, 0.5, 0.7, 0.9};

static int cli_sparsity_json(const cli_pruning *p, const sbit_sparse_loss *points, size_t count)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", p->args->operands[0]);
    sbit_json_int(&json.to, "samples", p->data.count);
    sbit_json_open(&json.to, "points", '[');
    for (size_t i = 0; i < count; i++) {
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "layers", points[i].layers);
        sbit_json_number(&json.to, "ratio", points[i].ratio);
        sbit_json_int(&json.to, "count", points[i].count);
        sbit_json_int(&json.to, "kept", points[i].kept);
        sbit_json_number(&json.to, "sqnr_db", points[i].sqnr);
        sbit_json_close(&json.to, '}');
    }
    sbit_json_close(&json.to, ']');
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

static int cli_sparsity_print(const cli_pruning *p, const sbit_sparse_loss *points, size_t count)
{
    cli_table table;
    cli_table_begin(&table, "<>>>>>>");
    cli_table_cell(&table, "pruned alone: SQNR of the outputs, dB");
    cli_table_cell(&table, "of");
    for (size_t r = 0; r < CLI_SPARSITY_RATIOS; r++) {
        cli_table_cell(&table, "%g", cli_sparsity_ratios[r]);
    }
    for (size_t i = 0; i < count; i++) {
        if (i % CLI_SPARSITY_RATIOS == 0) {
            cli_table_cell(&table, "%.60s%s", points[i].layers,
                           strlen(points[i].layers) > 60 ? " ..." : "");
            cli_table_cell(&table, "%lld", (long long)points[i].count);
        }
        if (points[i].kept == points[i].count) {
            cli_table_cell(&table, "all kept");
        } else {
            cli_table_cell(&table, "%.1f", points[i].sqnr);
        }
    }
    CLI_TRY(cli_table_print(&table, stdout));
    printf("%lld samples\n", (long long)p->data.count);
    return CLI_OK;
}

static int cli_sparsity_points(cli_pruning *p)
{
    sbit_error error;
    size_t count = 0;
    memset(&error, 0, sizeof error);
    if (sbit_sparse_create(p->model.graph, p->config, &p->sparse, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot analyze '%s'", p->model.path);
    }
    /* as many layers as nodes, and no more groups */
    const size_t capacity = CLI_SPARSITY_RATIOS * (sbit_sparse_group_count(p->sparse) +
                                                   sbit_graph_node_limit(p->model.graph));
    sbit_sparse_loss *points = (sbit_sparse_loss *)malloc(capacity * sizeof *points);
    if (points == NULL) {
        return cli_fail_memory(capacity * sizeof *points);
    }
    const sbit_status status =
        sbit_sparse_analyze(p->sparse, &p->feed, cli_sparsity_ratios, CLI_SPARSITY_RATIOS, points,
                            capacity, &count, &error);
    const int code = p->source.failed       ? CLI_BAD
                     : status != SBIT_OK    ? cli_fail_library(&error, "cannot analyze '%s'",
                                                               p->model.path)
                     : p->args->json        ? cli_sparsity_json(p, points, count)
                                            : cli_sparsity_print(p, points, count);
    free(points);
    return code;
}

int cli_analyze_sparsity(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_pruning p;
    memset(&p, 0, sizeof p);
    p.args = args;
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &p.model);
    if (code == CLI_OK) {
        code = cli_prune_open(&p);
        code = code == CLI_OK ? cli_sparsity_points(&p) : code;
        cli_prune_free(&p);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
