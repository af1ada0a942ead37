/* commands/info.c: `sparsebit info`: what a model contains and whether it can run.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"
#include "model/model.h"
#include "report/unsupported.h"

#include <stdlib.h> /* calloc, qsort */

typedef struct cli_op_count {
    const char *domain, *op_type;
    int64_t count;
} cli_op_count;

typedef struct cli_inventory {
    const cli_model *model;
    sbit_graph_cost cost;
    cli_op_count *ops;
    size_t op_count, op_capacity;
    uint64_t bytes[SBIT_DTYPE_COUNT];
    cli_missing missing;
    cli_names open; /* dims of the inputs */
    bool planned;   /* for its shapes: what follows is known */
    sbit_session_memory memory;
    cli_names dynamic; /* nodes that find their memory while running */
} cli_inventory;

static int cli_count_op(cli_inventory *inventory, const sbit_node *node)
{
    for (size_t i = 0; i < inventory->op_count; i++) {
        cli_op_count *op = &inventory->ops[i];
        if (strcmp(op->op_type, node->op_type) == 0 && strcmp(op->domain, node->domain) == 0) {
            op->count++;
            return CLI_OK;
        }
    }
    if (inventory->op_count == inventory->op_capacity) {
        const size_t capacity = inventory->op_capacity * 2 + 32;
        cli_op_count *ops = (cli_op_count *)realloc(inventory->ops, capacity * sizeof *ops);
        if (ops == NULL) {
            return cli_fail_memory(capacity * sizeof *ops);
        }
        inventory->ops = ops;
        inventory->op_capacity = capacity;
    }
    cli_op_count *op = &inventory->ops[inventory->op_count++];
    op->op_type = node->op_type;
    op->domain = node->domain;
    op->count = 1;
    return CLI_OK;
}

static sbit_status cli_take_graph(const sbit_graph *graph, void *user)
{
    cli_inventory *inventory = (cli_inventory *)user;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        if (cli_count_op(inventory, sbit_graph_node(graph, id)) != CLI_OK) {
            return SBIT_ERR_OUT_OF_MEMORY; /* already told */
        }
    }
    for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
        sbit_value_id id;
        id.idx = i;
        if (!sbit_graph_value_alive(graph, id)) {
            continue;
        }
        const sbit_value_info *info = sbit_graph_value(graph, id);
        if (info->is_constant && info->use_count > 0) {
            inventory->bytes[info->constant.dtype] += sbit_tensor_bytes(&info->constant);
        }
    }
    return SBIT_OK;
}

static int cli_op_order(const void *a, const void *b)
{
    const cli_op_count *p = (const cli_op_count *)a, *q = (const cli_op_count *)b;
    const int order = p->count != q->count ? (p->count < q->count ? 1 : -1) : 0;
    return order != 0 ? order : strcmp(p->op_type, q->op_type);
}

static int cli_take_inventory(cli_inventory *inventory)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_graph_each(inventory->model->graph, cli_take_graph, inventory) != SBIT_OK) {
        return CLI_BAD;
    }
    if (inventory->op_count > 1) {
        qsort(inventory->ops, inventory->op_count, sizeof *inventory->ops, cli_op_order);
    }
    if (sbit_graph_cost_of(inventory->model->graph, &inventory->cost, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s'", inventory->model->path);
    }
    CLI_TRY(cli_model_open_dims(inventory->model, &inventory->open));
    return cli_missing_find(inventory->model->graph, &inventory->missing);
}

/* ---- memory of a session */

static int cli_take_dynamic(cli_inventory *inventory, const sbit_session *session)
{
    const size_t count = sbit_session_profile(session, NULL, 0);
    sbit_node_profile *nodes = (sbit_node_profile *)calloc(count + 1, sizeof *nodes);
    int code = nodes != NULL ? CLI_OK : cli_fail_memory(count * sizeof *nodes);
    for (size_t i = 0; code == CLI_OK && i < sbit_session_profile(session, nodes, count); i++) {
        const sbit_node *node = sbit_graph_node(inventory->model->graph, nodes[i].node);
        if (nodes[i].is_dynamic && nodes[i].fused_into.idx == 0) {
            const char *name = cli_node_name(inventory->model->graph, node);
            code = cli_names_add(&inventory->dynamic, name, strlen(name));
        }
    }
    free(nodes);
    return code;
}

/* What `run` takes, told by planning without running: for models whose shapes are known. The graph
 * is simplified on the way, as `run` does. */
static int cli_take_memory(const cli_args *args, cli_model *model, cli_inventory *inventory)
{
    sbit_session *session = NULL;
    sbit_error error;
    int code = CLI_OK;
    if (inventory->open.count > 0 || inventory->missing.count > 0) {
        return CLI_OK;
    }
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_model_prepare(args, model));
    if (sbit_session_create(model->graph, NULL, &session, &error) == SBIT_OK &&
        sbit_session_plan(session, &error) == SBIT_OK) {
        inventory->planned = true;
        sbit_session_memory_of(session, &inventory->memory);
        code = cli_take_dynamic(inventory, session);
    }
    sbit_session_destroy(session);
    return code;
}

/* " (N, H count as 1; --shape gives them)"; empty if the number is the true one. */
static void cli_open_text(const cli_names *open, size_t open_nodes, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < open->count && at < size; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s%s", i > 0 ? ", " : " (", open->items[i]);
    }
    if (at == 0 && open_nodes > 0) {
        snprintf(text, size, " (dims of %lu nodes depend on data and count as 1)",
                 (unsigned long)open_nodes);
    } else if (at > 0 && at < size) {
        snprintf(text + at, size - at, " count%s as 1; --shape gives %s)",
                 open->count == 1 ? "s" : "", open->count == 1 ? "it" : "them");
    }
}

/* ---- as a table */

static void cli_print_values(const cli_model *model, const char *title, bool inputs)
{
    const sbit_graph *graph = model->graph;
    const size_t count = inputs ? model->input_count : sbit_graph_output_count(graph);
    for (size_t i = 0; i < count; i++) {
        const sbit_value_info *info =
            sbit_graph_value(graph, inputs ? model->inputs[i] : sbit_graph_output(graph, i));
        char text[300];
        printf("%-12s %s  %s\n", i == 0 ? title : "", info->name,
               cli_type_text(graph, &info->type, text, sizeof text));
    }
}

static void cli_print_opsets(const sbit_onnx_model *source)
{
    printf("%-12s ", "opsets");
    for (size_t i = 0; i < source->opset_import_count; i++) {
        const sbit_onnx_opset_id *opset = &source->opset_import[i];
        const bool main_set = opset->domain.data == NULL || opset->domain.size == 0;
        printf("%s%s %lld", i > 0 ? ", " : "", main_set ? "ai.onnx" : opset->domain.data,
               (long long)opset->version);
    }
    printf("\n");
}

static void cli_print_operators(const cli_inventory *inventory)
{
    size_t column = 0;
    printf("%-12s", "operators");
    for (size_t i = 0; i < inventory->op_count; i++) {
        const cli_op_count *op = &inventory->ops[i];
        char text[160];
        snprintf(text, sizeof text, " %s%s%s %lld%s", op->domain, op->domain[0] != '\0' ? "." : "",
                 op->op_type, (long long)op->count, i + 1 < inventory->op_count ? "," : "");
        if (column + strlen(text) > 86 && column > 0) {
            printf("\n%-12s", "");
            column = 0;
        }
        printf("%s", text);
        column += strlen(text);
    }
    printf("\n");
}

static void cli_print_memory(const cli_inventory *inventory)
{
    char all[40], activations[40], packed[40];
    if (!inventory->planned) {
        return;
    }
    printf(
        "%-12s %s a session, %s of it activations; %s packed weights\n", "memory",
        cli_bytes_text((double)inventory->memory.total_bytes, all, sizeof all),
        cli_bytes_text((double)inventory->memory.activation_bytes, activations, sizeof activations),
        cli_bytes_text((double)inventory->memory.packed_bytes, packed, sizeof packed));
    for (size_t i = 0; i < inventory->dynamic.count && i < 8; i++) {
        printf("%-12s %s%s\n", i == 0 ? "dynamic" : "", inventory->dynamic.items[i],
               i == 7 && inventory->dynamic.count > 8 ? " ..." : "");
    }
}

static void cli_print_info(cli_inventory *inventory)
{
    const cli_model *model = inventory->model;
    const sbit_onnx_model *source = sbit_onnx_doc_model(model->doc);
    char text[40], more[40];
    printf("%-12s %s, %s\n", "file", model->path,
           cli_bytes_text((double)model->file_bytes, text, sizeof text));
    printf("%-12s IR %lld, made by %s %s\n", "format",
           (long long)sbit_graph_ir_version(model->graph),
           source->producer_name.size > 0 ? source->producer_name.data : "?",
           source->producer_version.size > 0 ? source->producer_version.data : "");
    cli_print_opsets(source);
    cli_print_values(model, "inputs", true);
    cli_print_values(model, "outputs", false);
    printf("%-12s %lu\n", "nodes", (unsigned long)inventory->cost.node_count);
    cli_print_operators(inventory);
    printf("%-12s %s\n", "parameters",
           cli_count_text((double)inventory->cost.params, text, sizeof text));
    char open[400];
    cli_open_text(&inventory->open, inventory->cost.open_nodes, open, sizeof open);
    printf("%-12s %s%s\n", "MACs", cli_count_text((double)inventory->cost.macs, more, sizeof more),
           open);
    printf("%-12s", "weights");
    const char *comma = " ";
    for (int i = 0; i < SBIT_DTYPE_COUNT; i++) {
        if (inventory->bytes[i] > 0) {
            printf("%s%s %s", comma, sbit_dtype_name(i),
                   cli_bytes_text((double)inventory->bytes[i], text, sizeof text));
            comma = ", ";
        }
    }
    printf("\n");
    cli_print_memory(inventory);
    for (size_t i = 0; i < source->metadata_props_count; i++) {
        const sbit_onnx_string_entry *entry = &source->metadata_props[i];
        const char *value = entry->value.data != NULL ? entry->value.data : "";
        if (strlen(value) <= 200 && strchr(value, '\n') == NULL) {
            printf("%-12s %s = %s\n", i == 0 ? "metadata" : "", entry->key.data, value);
        } else {
            printf("%-12s %s = (%lu characters)\n", i == 0 ? "metadata" : "", entry->key.data,
                   (unsigned long)strlen(value));
        }
    }
    if (inventory->missing.count == 0) {
        printf("%-12s yes\n", "can run");
        return;
    }
    printf("not supported by this build:\n");
    for (size_t i = 0; i < inventory->missing.count; i++) {
        char line[600];
        printf("  %s\n", cli_missing_text(&inventory->missing.items[i], line, sizeof line));
    }
}

/* ---- as JSON */

static void cli_json_values(sbit_json *json, const char *key, const cli_model *model, bool inputs)
{
    const sbit_graph *graph = model->graph;
    const size_t count = inputs ? model->input_count : sbit_graph_output_count(graph);
    sbit_json_open(json, key, '[');
    for (size_t i = 0; i < count; i++) {
        const sbit_value_info *info =
            sbit_graph_value(graph, inputs ? model->inputs[i] : sbit_graph_output(graph, i));
        sbit_json_open(json, NULL, '{');
        sbit_json_text(json, "name", info->name);
        sbit_json_text(json, "dtype", sbit_dtype_name((int32_t)info->type.dtype));
        cli_json_dims(json, "shape", graph, &info->type);
        sbit_json_close(json, '}');
    }
    sbit_json_close(json, ']');
}

static int cli_json_info(cli_inventory *inventory)
{
    cli_json json;
    const cli_model *model = inventory->model;
    const sbit_onnx_model *source = sbit_onnx_doc_model(model->doc);
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_text(&json.to, "model", model->path);
    sbit_json_int(&json.to, "bytes", (int64_t)model->file_bytes);
    sbit_json_int(&json.to, "ir_version", sbit_graph_ir_version(model->graph));
    sbit_json_text(&json.to, "producer",
                   source->producer_name.size > 0 ? source->producer_name.data : "");
    sbit_json_open(&json.to, "opsets", '{');
    for (size_t i = 0; i < source->opset_import_count; i++) {
        const sbit_onnx_opset_id *opset = &source->opset_import[i];
        sbit_json_int(&json.to, opset->domain.size > 0 ? opset->domain.data : "ai.onnx",
                      opset->version);
    }
    sbit_json_close(&json.to, '}');
    cli_json_values(&json.to, "inputs", model, true);
    cli_json_values(&json.to, "outputs", model, false);
    sbit_json_int(&json.to, "nodes", (int64_t)inventory->cost.node_count);
    sbit_json_open(&json.to, "operators", '{');
    for (size_t i = 0; i < inventory->op_count; i++) {
        const cli_op_count *op = &inventory->ops[i];
        char name[200];
        snprintf(name, sizeof name, "%s%s%s", op->domain, op->domain[0] != '\0' ? "." : "",
                 op->op_type);
        sbit_json_int(&json.to, name, op->count);
    }
    sbit_json_close(&json.to, '}');
    sbit_json_int(&json.to, "params", inventory->cost.params);
    sbit_json_int(&json.to, "macs", inventory->cost.macs);
    sbit_json_int(&json.to, "open_nodes", (int64_t)inventory->cost.open_nodes);
    sbit_json_open(&json.to, "open_dims", '['); /* which count as 1 there */
    for (size_t i = 0; i < inventory->open.count; i++) {
        sbit_json_text(&json.to, NULL, inventory->open.items[i]);
    }
    sbit_json_close(&json.to, ']');
    sbit_json_open(&json.to, "weight_bytes", '{');
    for (int i = 0; i < SBIT_DTYPE_COUNT; i++) {
        if (inventory->bytes[i] > 0) {
            sbit_json_int(&json.to, sbit_dtype_name(i), (int64_t)inventory->bytes[i]);
        }
    }
    sbit_json_close(&json.to, '}');
    if (inventory->planned) {
        sbit_json_open(&json.to, "memory", '{');
        sbit_json_int(&json.to, "session_bytes", (int64_t)inventory->memory.total_bytes);
        sbit_json_int(&json.to, "activation_bytes", (int64_t)inventory->memory.activation_bytes);
        sbit_json_int(&json.to, "packed_bytes", (int64_t)inventory->memory.packed_bytes);
        sbit_json_open(&json.to, "dynamic_nodes", '['); /* they take more while running */
        for (size_t i = 0; i < inventory->dynamic.count; i++) {
            sbit_json_text(&json.to, NULL, inventory->dynamic.items[i]);
        }
        sbit_json_close(&json.to, ']');
        sbit_json_close(&json.to, '}');
    }
    sbit_json_open(&json.to, "metadata", '{');
    for (size_t i = 0; i < source->metadata_props_count; i++) {
        const sbit_onnx_string_entry *entry = &source->metadata_props[i];
        sbit_json_text(&json.to, entry->key.data != NULL ? entry->key.data : "",
                       entry->value.data != NULL ? entry->value.data : "");
    }
    sbit_json_close(&json.to, '}');
    cli_missing_json(&json.to, &inventory->missing);
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

int cli_info(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_model model;
    cli_inventory inventory;
    memset(&inventory, 0, sizeof inventory);
    CLI_TRY(cli_context_create(args, 1, &ctx));
    int code = cli_model_load(ctx, args->operands[0], &model);
    if (code == CLI_OK) {
        inventory.model = &model;
        code = args->shape.count > 0 ? cli_model_apply_shapes(&model, &args->shape, false) : code;
        code = code == CLI_OK ? cli_take_inventory(&inventory) : code;
        code = code == CLI_OK ? cli_take_memory(args, &model, &inventory) : code;
        if (code == CLI_OK && args->json) {
            code = cli_json_info(&inventory);
        } else if (code == CLI_OK) {
            cli_print_info(&inventory);
        }
        cli_missing_free(&inventory.missing);
        cli_names_free(&inventory.open);
        cli_names_free(&inventory.dynamic);
        free(inventory.ops);
        cli_model_free(&model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
