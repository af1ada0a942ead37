/* commands/simplify.c: `sparsebit simplify`: a smaller graph that computes the same.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"
#include "model/model.h"

static int cli_check_passes(const cli_args *args, const char *option, const cli_list *list)
{
    const char *words[128];
    size_t count = 0;
    while (count < CLI_COUNT_OF(words) && sbit_pass_at(count) != NULL) {
        words[count] = sbit_pass_at(count)->head.name;
        count++;
    }
    for (size_t i = 0; i < list->count; i++) {
        size_t k = 0;
        char known[1500] = "";
        while (k < count && strcmp(words[k], list->items[i]) != 0) {
            const size_t at = strlen(known);
            snprintf(known + at, sizeof known - at, "%s%s", k > 0 ? ", " : "", words[k]);
            k++;
        }
        if (k == count) {
            const char *near = sbit_word_nearest(list->items[i], words, count);
            return cli_fail_usage(args->command, "%s '%s': no such pass%s%s%s; known: %s", option,
                                  list->items[i], near != NULL ? ", did you mean '" : "",
                                  near != NULL ? near : "", near != NULL ? "'?" : "", known);
        }
    }
    return CLI_OK;
}

typedef struct cli_simplified {
    sbit_simplify_stats stats;
    sbit_graph_cost before, after;
    uint64_t bytes_before, bytes_after;
    double seconds;
} cli_simplified;

static int cli_simplify_model(const cli_args *args, cli_model *model, cli_simplified *out)
{
    sbit_simplify_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.keep_batch_norm = args->keep_bn;
    desc.fix_defaults = args->fix_defaults;
    desc.skip = args->skip.items;
    desc.skip_count = args->skip.count;
    desc.only = args->only.count > 0 ? args->only.items : NULL;
    desc.only_count = args->only.count;
    const double begin = cli_seconds();
    out->bytes_before = model->file_bytes;
    if (sbit_graph_cost_of(model->graph, &out->before, &error) != SBIT_OK ||
        sbit_simplify(model->graph, &desc, &out->stats, &error) != SBIT_OK ||
        sbit_graph_cost_of(model->graph, &out->after, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot simplify '%s'", model->path);
    }
    if (sbit_graph_save(model->graph, args->out, NULL, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot write '%s'", args->out);
    }
    out->seconds = cli_seconds() - begin;
    return cli_file_bytes(args->out, &out->bytes_after);
}

static void cli_json_side(sbit_json *json, const char *key, const sbit_graph_cost *cost,
                          int64_t nodes, uint64_t bytes)
{
    sbit_json_open(json, key, '{');
    sbit_json_int(json, "nodes", nodes);
    sbit_json_int(json, "params", cost->params);
    sbit_json_int(json, "macs", cost->macs);
    sbit_json_int(json, "bytes", (int64_t)bytes);
    sbit_json_close(json, '}');
}

static int cli_show_simplified(const cli_args *args, const cli_simplified *s)
{
    if (args->json) {
        cli_json json;
        cli_json_begin(&json);
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "model", args->operands[0]);
        sbit_json_text(&json.to, "out", args->out);
        cli_json_side(&json.to, "before", &s->before, s->stats.nodes_before, s->bytes_before);
        cli_json_side(&json.to, "after", &s->after, s->stats.nodes_after, s->bytes_after);
        sbit_json_int(&json.to, "rounds", s->stats.rounds);
        sbit_json_int(&json.to, "changes", s->stats.changes);
        sbit_json_number(&json.to, "seconds", s->seconds);
        sbit_json_close(&json.to, '}');
        return cli_json_print(&json);
    }
    cli_table table;
    char a[40], b[40];
    cli_table_begin(&table, "<>>");
    cli_table_cell(&table, "%s", "");
    cli_table_cell(&table, "before");
    cli_table_cell(&table, "after");
    cli_table_cell(&table, "nodes");
    cli_table_cell(&table, "%lld", (long long)s->stats.nodes_before);
    cli_table_cell(&table, "%lld", (long long)s->stats.nodes_after);
    cli_table_cell(&table, "parameters");
    cli_table_cell(&table, "%s", cli_count_text((double)s->before.params, a, sizeof a));
    cli_table_cell(&table, "%s", cli_count_text((double)s->after.params, b, sizeof b));
    cli_table_cell(&table, "MACs");
    cli_table_cell(&table, "%s", cli_count_text((double)s->before.macs, a, sizeof a));
    cli_table_cell(&table, "%s", cli_count_text((double)s->after.macs, b, sizeof b));
    cli_table_cell(&table, "file");
    cli_table_cell(&table, "%s", cli_bytes_text((double)s->bytes_before, a, sizeof a));
    cli_table_cell(&table, "%s", cli_bytes_text((double)s->bytes_after, b, sizeof b));
    CLI_TRY(cli_table_print(&table, stdout));
    printf("%lld changes in %lld rounds, %.2f s: %s\n", (long long)s->stats.changes,
           (long long)s->stats.rounds, s->seconds, args->out);
    return CLI_OK;
}

int cli_simplify(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_model model;
    cli_simplified simplified;
    memset(&simplified, 0, sizeof simplified);
    CLI_TRY(cli_check_passes(args, "--skip", &args->skip));
    CLI_TRY(cli_check_passes(args, "--only", &args->only));
    CLI_TRY(cli_check_out(args));
    CLI_TRY(cli_context_create(args, 1, &ctx));
    int code = cli_model_load(ctx, args->operands[0], &model);
    if (code == CLI_OK) {
        code = cli_simplify_model(args, &model, &simplified);
        code = code == CLI_OK ? cli_show_simplified(args, &simplified) : code;
        cli_model_free(&model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
