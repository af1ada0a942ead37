/* cli_simplify.c: `sparsebit simplify` and `sparsebit graph`.
 */
#include "cli.h"

/* ---- simplify */

static int cli_check_passes(const cli_args *args, const char *option, const cli_list *list)
{
    const char *words[128];
    size_t count = 0;
    while (count < CLI_COUNT_OF(words) && sbit_pass_at(count) != NULL) {
        words[count] = sbit_pass_at(count)->name;
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
            const char *near = cli_nearest(list->items[i], words, count);
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

static void cli_json_side(cli_json *json, const char *key, const sbit_graph_cost *cost,
                          int64_t nodes, uint64_t bytes)
{
    cli_json_open(json, key, '{');
    cli_json_int(json, "nodes", nodes);
    cli_json_int(json, "params", cost->params);
    cli_json_int(json, "macs", cost->macs);
    cli_json_int(json, "bytes", (int64_t)bytes);
    cli_json_close(json, '}');
}

static int cli_show_simplified(const cli_args *args, const cli_simplified *s)
{
    if (args->json) {
        cli_json json;
        memset(&json, 0, sizeof json);
        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "model", args->operands[0]);
        cli_json_text(&json, "out", args->out);
        cli_json_side(&json, "before", &s->before, s->stats.nodes_before, s->bytes_before);
        cli_json_side(&json, "after", &s->after, s->stats.nodes_after, s->bytes_after);
        cli_json_int(&json, "rounds", s->stats.rounds);
        cli_json_int(&json, "changes", s->stats.changes);
        cli_json_number(&json, "seconds", s->seconds);
        cli_json_close(&json, '}');
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
    CLI_TRY(cli_check_writable("-o", args->out));
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

/* ---- graph */

typedef struct cli_drawing {
    const sbit_graph *graph;
    bool dot;
} cli_drawing;

/* Prints text inside double quotes of the language. */
static void cli_draw_text(const cli_drawing *drawing, const char *text)
{
    for (; *text != '\0'; text++) {
        const unsigned char ch = (unsigned char)*text;
        if (drawing->dot && (ch == '"' || ch == '\\')) {
            printf("\\%c", ch);
        } else if (ch == '"' || ch == '#' || ch == '<' || ch == '>' || ch == '&' || ch < 0x20) {
            printf(drawing->dot ? "&#%u;" : "#%u;", (unsigned)ch);
        } else {
            putchar(ch);
        }
    }
}

static void cli_draw_box(const cli_drawing *drawing, char kind, uint32_t idx, const char *first,
                         const char *second)
{
    printf(drawing->dot ? "  %c%u [label=\"" : "  %c%u%s\"", kind, (unsigned)idx,
           kind == 'n' ? "[" : "([");
    cli_draw_text(drawing, first);
    if (second[0] != '\0') {
        fputs(drawing->dot ? "\\n" : "<br>", stdout);
        cli_draw_text(drawing, second);
    }
    if (drawing->dot) {
        printf("\"%s];\n", kind == 'n' ? ", shape=box" : ", shape=ellipse");
    } else {
        printf("\"%s\n", kind == 'n' ? "]" : "])");
    }
}

static void cli_draw_edge(const cli_drawing *drawing, char from, uint32_t a, char to, uint32_t b,
                          const sbit_value_info *value)
{
    char text[300];
    cli_type_text(drawing->graph, &value->type, text, sizeof text);
    if (drawing->dot) {
        printf("  %c%u -> %c%u [label=\"", from, (unsigned)a, to, (unsigned)b);
        cli_draw_text(drawing, text);
        printf("\"];\n");
    } else {
        printf("  %c%u -->|\"", from, (unsigned)a);
        cli_draw_text(drawing, text);
        printf("\"| %c%u\n", to, (unsigned)b);
    }
}

static void cli_draw_node(const cli_drawing *drawing, const sbit_node *node)
{
    char constants[160] = "";
    for (size_t i = 0; i < node->input_count; i++) {
        const size_t at = strlen(constants);
        if (node->inputs[i].idx == 0) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(drawing->graph, node->inputs[i]);
        if (value->is_constant && at < sizeof constants) {
            char shape[120];
            sbit_tensor_describe(&value->constant, shape, sizeof shape);
            snprintf(constants + at, sizeof constants - at, "%s%s", at > 0 ? " " : "",
                     strchr(shape, '[') != NULL ? strchr(shape, '[') : shape);
        }
    }
    char title[200];
    snprintf(title, sizeof title, "%s%s%s", node->op_type, node->name[0] != '\0' ? " " : "",
             node->name);
    cli_draw_box(drawing, 'n', node->id.idx, title, constants);
    for (size_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i].idx == 0) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(drawing->graph, node->inputs[i]);
        if (value->producer.idx != 0) {
            cli_draw_edge(drawing, 'n', value->producer.idx, 'n', node->id.idx, value);
        } else if (value->is_input && !value->is_constant) {
            cli_draw_edge(drawing, 'v', value->id.idx, 'n', node->id.idx, value);
        }
    }
}

static void cli_draw(const cli_model *model, bool dot)
{
    cli_drawing drawing;
    drawing.graph = model->graph;
    drawing.dot = dot;
    fputs(dot ? "digraph model {\n  rankdir=TB;\n" : "flowchart TD\n", stdout);
    for (size_t i = 0; i < model->input_count; i++) {
        cli_draw_box(&drawing, 'v', model->inputs[i].idx, cli_model_input(model, i)->name, "input");
    }
    for (sbit_node_id id = sbit_graph_first(model->graph); id.idx != 0;
         id = sbit_graph_next(model->graph, id)) {
        cli_draw_node(&drawing, sbit_graph_node(model->graph, id));
    }
    for (size_t i = 0; i < sbit_graph_output_count(model->graph); i++) {
        const sbit_value_info *value =
            sbit_graph_value(model->graph, sbit_graph_output(model->graph, i));
        cli_draw_box(&drawing, 'o', (uint32_t)i, value->name, "output");
        if (value->producer.idx != 0) {
            cli_draw_edge(&drawing, 'n', value->producer.idx, 'o', (uint32_t)i, value);
        } else if (value->is_input) {
            cli_draw_edge(&drawing, 'v', value->id.idx, 'o', (uint32_t)i, value);
        }
    }
    fputs(dot ? "}\n" : "", stdout);
}

int cli_graph(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_model model;
    CLI_TRY(cli_context_create(args, 1, &ctx));
    const int code = cli_model_load(ctx, args->operands[0], &model);
    if (code == CLI_OK) {
        cli_draw(&model, args->format != NULL && strcmp(args->format, "dot") == 0);
        cli_model_free(&model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
