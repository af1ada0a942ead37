/* commands/graph.c: `sparsebit graph`: a model as a drawing in text, for Mermaid or Graphviz.
 */
#include "commands/commands.h"
#include "model/model.h"

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
    const bool dot = args->format != NULL && strcmp(args->format, "dot") == 0;
    if (args->format != NULL && !dot && strcmp(args->format, "mermaid") != 0) {
        return cli_fail_usage(args->command, "--format '%s' must be one of mermaid|dot",
                              args->format);
    }
    CLI_TRY(cli_context_create(args, 1, &ctx));
    const int code = cli_model_load(ctx, args->operands[0], &model);
    if (code == CLI_OK) {
        cli_draw(&model, dot);
        cli_model_free(&model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
