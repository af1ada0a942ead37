/* report/recipes.c: the search for a recipe that keeps the accuracy.
 *
 * Recipes are rows, the cheapest to make first: keys on top of what the user configured. The first
 * that loses no more than --max-drop points is taken; with --prefer all are tried while
 * --time-budget lasts, and the fastest or the smallest of those that keep it is. If none does, the
 * most accurate is written and the command fails.
 */
#include "report/recipes.h"
#include "base/json.h"
#include "base/table.h"

#define CLI_ROUNDED                                                                                \
    {"SCHEDULE.ASYM", "true"}, {"W.OBSERVER.TYPE", "mse"}, {"STEP.GPTQ.SCALES", "10"},             \
        {"STEP.GPTQ.BIAS", "true"}

typedef struct cli_recipe {
    const char *name;
    bool narrow;          /* 4-bit weights: only with --prefer bytes, and then first */
    const char *op_type;  /* only for models that have it; NULL: for all */
    const char *steps[3]; /* added to STEPS; ends with NULL */
    const char *keys[6][2];
} cli_recipe;

static const cli_recipe cli_recipe_rows[] = {
    {"4-bit weights, mse, bias_correction", true, NULL, {"bias_correction"},
     {{"W.QUANTIZER.BIT", "4"}, {"EXPORT.INT4", "true"}, {"W.OBSERVER.TYPE", "mse"}}},
    {"4-bit weights, gptq", true, NULL, {"gptq"},
     {{"W.QUANTIZER.BIT", "4"}, {"EXPORT.INT4", "true"}, CLI_ROUNDED}},
    {"as configured", false, NULL, {NULL}, {{NULL, NULL}}},
    {"mse ranges", false, NULL, {NULL}, {{"A.OBSERVER.TYPE", "mse"}}},
    {"bias_correction", false, NULL, {"bias_correction"}, {{NULL, NULL}}},
    {"auto ranges", false, NULL, {NULL}, {{"A.OBSERVER.TYPE", "auto"}}},
    {"cross_layer, auto ranges", false, "Conv", {"cross_layer"}, {{"A.OBSERVER.TYPE", "auto"}}},
    {"smooth_quant, auto ranges", false, "LayerNormalization", {"smooth_quant"}, {{"A.OBSERVER.TYPE", "auto"}}},
    {"auto ranges, gptq", false, NULL, {"gptq"},
     {{"A.OBSERVER.TYPE", "auto"}, CLI_ROUNDED}},
    {"auto ranges, auto_exclude", false, NULL, {"auto_exclude"}, {{"A.OBSERVER.TYPE", "auto"}}},
};

static int cli_recipe_config(cli_job *job, const cli_recipe *recipe)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    sbit_qconfig_destroy(job->config);
    job->config = NULL;
    CLI_TRY(cli_config_make(job));
    sbit_status status = SBIT_OK;
    for (size_t i = 0; i < CLI_COUNT_OF(recipe->keys) && recipe->keys[i][0] != NULL; i++) {
        status = status == SBIT_OK ? sbit_qconfig_set(job->config, recipe->keys[i][0],
                                                      recipe->keys[i][1], &error)
                                   : status;
    }
    for (size_t i = 0; i < CLI_COUNT_OF(recipe->steps) && recipe->steps[i] != NULL; i++) {
        status = status == SBIT_OK ? sbit_qconfig_add_step(job->config, recipe->steps[i], &error)
                                   : status;
    }
    sbit_quant_destroy(job->quant);
    job->quant = NULL;
    status = status == SBIT_OK
                 ? sbit_quant_create(job->model.graph, job->config, &job->quant, &error)
                 : status;
    return status == SBIT_OK ? CLI_OK : cli_fail_library(&error, "recipe '%s'", recipe->name);
}

/* Makes and measures it; the job holds it afterwards. */
static int cli_recipe_make(cli_job *job, const cli_recipe *recipe, cli_recipe_result *out)
{
    sbit_error error;
    sbit_graph_cost cost;
    memset(&error, 0, sizeof error);
    sbit_graph_destroy(job->built);
    job->built = NULL;
    CLI_TRY(cli_recipe_config(job, recipe));
    CLI_TRY(cli_calibrate(job));
    if (sbit_quant_build(job->quant, NULL, &job->built, &error) != SBIT_OK ||
        sbit_graph_cost_of(job->built, &cost, &error) != SBIT_OK) {
        return cli_fail_library(&error, "recipe '%s'", recipe->name);
    }
    CLI_TRY(cli_evaluate(&job->eval, job->built, job->args->out, false, NULL, &out->score));
    out->name = recipe->name;
    out->weight_bytes = cost.weight_bytes;
    out->drop = 100.0 * (double)(job->before.score.top1 - out->score.top1) /
                (double)out->score.samples;
    out->keeps = out->drop <= job->args->max_drop.items[0];
    return CLI_OK;
}

static double cli_recipe_ms(const cli_recipe_result *r)
{
    return 1000.0 * r->score.seconds / (double)r->score.samples;
}

/* Below 0: a is better. What keeps the accuracy comes first, then what is preferred. */
static int cli_recipe_order(const cli_job *job, const cli_recipe_result *a,
                            const cli_recipe_result *b)
{
    const char *prefer = job->args->prefer;
    double x = a->drop, y = b->drop;
    if (a->keeps != b->keeps) {
        return a->keeps ? -1 : 1;
    }
    if (a->keeps && prefer != NULL) {
        const bool time = strcmp(prefer, "time") == 0;
        x = time ? cli_recipe_ms(a) : (double)a->weight_bytes;
        y = time ? cli_recipe_ms(b) : (double)b->weight_bytes;
    }
    return x < y ? -1 : x > y ? 1 : a->number < b->number ? -1 : 1;
}

static void cli_recipes_rank(cli_job *job)
{
    for (size_t i = 1; i < job->recipe_count; i++) {
        const cli_recipe_result one = job->recipes[i];
        size_t at = i;
        for (; at > 0 && cli_recipe_order(job, &one, &job->recipes[at - 1]) < 0; at--) {
            job->recipes[at] = job->recipes[at - 1];
        }
        job->recipes[at] = one;
    }
}

static bool cli_recipe_fits(const cli_job *job, const cli_recipe *recipe, bool bytes)
{
    const sbit_graph *graph = sbit_quant_graph(job->quant);
    bool found = recipe->op_type == NULL;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && !found;
         id = sbit_graph_next(graph, id)) {
        found = strcmp(sbit_graph_node(graph, id)->op_type, recipe->op_type) == 0;
    }
    return found && (bytes || !recipe->narrow);
}

int cli_recipes_search(cli_job *job)
{
    const cli_args *args = job->args;
    const bool bytes = args->prefer != NULL && strcmp(args->prefer, "bytes") == 0;
    const double begin = cli_seconds();
    size_t held = CLI_COUNT_OF(cli_recipe_rows);
    for (size_t i = 0; i < CLI_COUNT_OF(cli_recipe_rows); i++) {
        const double spent = cli_seconds() - begin;
        const bool late = args->time_budget > 0 && spent > (double)args->time_budget;
        if (!cli_recipe_fits(job, &cli_recipe_rows[i], bytes) || (late && job->recipe_count > 0)) {
            continue;
        }
        cli_recipe_result *one = &job->recipes[job->recipe_count];
        CLI_TRY(cli_recipe_make(job, &cli_recipe_rows[i], one));
        one->number = held = i;
        job->recipe_count++;
        cli_note("recipe '%s': %.2f points lost", one->name, one->drop);
        if (one->keeps && args->prefer == NULL) {
            break;
        }
    }
    cli_recipes_rank(job);
    const size_t best = job->recipes[0].number;
    if (best != held) { /* the same again: everything is deterministic */
        cli_recipe_result again;
        CLI_TRY(cli_recipe_make(job, &cli_recipe_rows[best], &again));
    }
    sbit_graph_destroy(job->built);
    job->built = NULL;
    return CLI_OK;
}

int cli_recipes_print(const cli_job *job)
{
    static const char *const heads[] = {"recipe, best first", "top-1", "lost", "ms", "weights", ""};
    cli_table table;
    char text[40];
    if (job->recipe_count == 0) {
        return CLI_OK;
    }
    cli_table_begin(&table, "<>>>><");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (size_t i = 0; i < job->recipe_count; i++) {
        const cli_recipe_result *r = &job->recipes[i];
        cli_table_cell(&table, "%s", r->name);
        cli_table_cell(&table, "%.2f %%", 100.0 * (double)r->score.top1 / (double)r->score.samples);
        cli_table_cell(&table, "%.2f", r->drop);
        cli_table_cell(&table, "%.4f", cli_recipe_ms(r));
        cli_table_cell(&table, "%s", cli_bytes_text((double)r->weight_bytes, text, sizeof text));
        cli_table_cell(&table, "%s", r->keeps ? "" : "loses too much");
    }
    return cli_table_print(&table, stdout);
}

void cli_recipes_json(sbit_json *json, const cli_job *job)
{
    if (job->recipe_count == 0) {
        return;
    }
    sbit_json_open(json, "recipes", '[');
    for (size_t i = 0; i < job->recipe_count; i++) {
        const cli_recipe_result *r = &job->recipes[i];
        sbit_json_open(json, NULL, '{');
        sbit_json_text(json, "recipe", r->name);
        sbit_json_number(json, "top1", (double)r->score.top1 / (double)r->score.samples);
        sbit_json_number(json, "points_lost", r->drop);
        sbit_json_number(json, "ms_per_sample", cli_recipe_ms(r));
        sbit_json_int(json, "weight_bytes", (int64_t)r->weight_bytes);
        sbit_json_bool(json, "keeps_accuracy", r->keeps);
        sbit_json_close(json, '}');
    }
    sbit_json_close(json, ']');
}
