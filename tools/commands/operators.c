/* commands/operators.c: `sparsebit operators`: what this build can run, quantize and differentiate;
 * with --missing, what of the ONNX standard it cannot run, and why.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"
#include "model/model.h"
#include "report/standard.h"

#include <stdlib.h> /* qsort, strtol */

enum {
    CLI_ROWS_MAX = 2000
};

typedef struct cli_rows {
    const sbit_op_row *items[CLI_ROWS_MAX];
    size_t count;
} cli_rows;

static int cli_row_order(const void *a, const void *b)
{
    const sbit_op_row *p = *(const sbit_op_row *const *)a, *q = *(const sbit_op_row *const *)b;
    const char *x = p->domain != NULL ? p->domain : "", *y = q->domain != NULL ? q->domain : "";
    int order = strcmp(x, y);
    order = order != 0 ? order : strcmp(p->op_type, q->op_type);
    return order != 0 ? order : (int)(p->since_version - q->since_version);
}

static bool cli_same_operator(const sbit_op_row *a, const sbit_op_row *b)
{
    const char *x = a->domain != NULL ? a->domain : "", *y = b->domain != NULL ? b->domain : "";
    return strcmp(x, y) == 0 && strcmp(a->op_type, b->op_type) == 0;
}

/* How many rows, from `first` on, are of one operator. */
static size_t cli_versions(const cli_rows *rows, size_t first)
{
    size_t count = 1;
    while (first + count < rows->count &&
           cli_same_operator(rows->items[first], rows->items[first + count])) {
        count++;
    }
    return count;
}

static void cli_types_json(const sbit_op_row *row, sbit_json *to)
{
    sbit_json_open(to, "types", '[');
    for (int32_t d = 1; d < SBIT_DTYPE_COUNT; d++) {
        if ((row->types & SBIT_T(d)) != 0 && row->types != SBIT_T_ANY) {
            sbit_json_text(to, NULL, sbit_dtype_name(d));
        }
    }
    sbit_json_close(to, ']');
    sbit_json_bool(to, "any_type", row->types == SBIT_T_ANY);
}

static void cli_operators_json(const cli_rows *rows, sbit_json *to)
{
    sbit_json_open(to, NULL, '{');
    sbit_json_open(to, "operators", '[');
    for (size_t i = 0; i < rows->count; i += cli_versions(rows, i)) {
        const sbit_op_row *last = rows->items[i + cli_versions(rows, i) - 1];
        sbit_json_open(to, NULL, '{');
        sbit_json_text(to, "domain", last->domain != NULL ? last->domain : "");
        sbit_json_text(to, "op_type", last->op_type);
        sbit_json_open(to, "versions", '[');
        for (size_t k = i; k < i + cli_versions(rows, i); k++) {
            sbit_json_open(to, NULL, '{');
            sbit_json_int(to, "since", rows->items[k]->since_version);
            cli_types_json(rows->items[k], to);
            sbit_json_close(to, '}');
        }
        sbit_json_close(to, ']');
        sbit_json_bool(to, "quantized", last->quant != NULL);
        sbit_json_bool(to, "differentiable", sbit_operator_has_gradient(last));
        sbit_json_close(to, '}');
    }
    sbit_json_close(to, ']');
    sbit_json_close(to, '}');
}

static int cli_operators_table(const cli_rows *rows)
{
    static const char *const heads[] = {"operator", "quantizers", "gradient", "opset versions"};
    cli_table table;
    cli_table_begin(&table, "<<<<");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (size_t i = 0; i < rows->count; i += cli_versions(rows, i)) {
        const size_t count = cli_versions(rows, i);
        const sbit_op_row *last = rows->items[i + count - 1];
        const char *domain = last->domain != NULL ? last->domain : "";
        char versions[200] = "";
        for (size_t k = i; k < i + count; k++) {
            const size_t at = strlen(versions);
            snprintf(versions + at, sizeof versions - at, "%s%d", k > i ? " " : "",
                     (int)rows->items[k]->since_version);
        }
        cli_table_cell(&table, "%s%s%s", domain, domain[0] != '\0' ? "." : "", last->op_type);
        cli_table_cell(&table, "%s", last->quant != NULL ? "yes" : "");
        cli_table_cell(&table, "%s", sbit_operator_has_gradient(last) ? "yes" : "");
        cli_table_cell(&table, "%s", versions);
    }
    return cli_table_print(&table, stdout);
}

/* ---- --missing */

/* A part of an operator of the standard: versions without a row, or element types. */
typedef struct cli_gap {
    const char *domain, *op_type, *types;
    char versions[80];
    char reason[100];
} cli_gap;

typedef struct cli_gaps {
    cli_gap items[300];
    size_t count, unexplained, operators, versions, operators_run, versions_run;
} cli_gaps;

static bool cli_runs(const sbit_ctx *ctx, const cli_standard_op *op, long version)
{
    const sbit_op_row *row = sbit_operator_find(ctx, op->domain, op->op_type, version);
    return row != NULL && (row->run != NULL || row->expand != NULL);
}

static const char *cli_why_missing(const cli_standard_op *op, char *text, size_t size)
{
    bool out = false;
    const char *macro = sbit_operator_switch(op->domain, op->op_type, &out);
    const cli_left_out *left = NULL;
    if (out) {
        snprintf(text, size, "compiled out by %s", macro);
        return text;
    }
    for (size_t i = 0; (left = cli_left_out_at(i)) != NULL; i++) {
        if (strcmp(left->domain, op->domain) == 0 && strcmp(left->op_type, op->op_type) == 0 &&
            left->types[0] == '\0') {
            return left->reason;
        }
    }
    return NULL;
}

/* The versions of an operator without a row. */
static void cli_find_versions(const sbit_ctx *ctx, const cli_standard_op *op, cli_gaps *gaps)
{
    cli_gap *gap = &gaps->items[gaps->count];
    char text[100];
    char *end = NULL;
    size_t used = 0;
    for (const char *at = op->versions; *at != '\0'; at = end) {
        const long version = strtol(at, &end, 10);
        const bool runs = cli_runs(ctx, op, version);
        gaps->versions++;
        gaps->versions_run += runs ? 1 : 0;
        if (!runs) {
            used += (size_t)snprintf(gap->versions + used, sizeof gap->versions - used, "%s%ld",
                                     used > 0 ? " " : "", version);
        }
    }
    gaps->operators++;
    if (used == 0) {
        gaps->operators_run++;
        return;
    }
    const char *why = cli_why_missing(op, text, sizeof text);
    gap->domain = op->domain;
    gap->op_type = op->op_type;
    gap->types = "";
    snprintf(gap->reason, sizeof gap->reason, "%s", why != NULL ? why : "not built yet");
    gaps->unexplained += why == NULL ? 1 : 0;
    gaps->count++;
}

static void cli_find_gaps(const sbit_ctx *ctx, cli_gaps *gaps)
{
    const cli_standard_op *op = NULL;
    const cli_left_out *left = NULL;
    for (size_t i = 0; (op = cli_standard_at(i)) != NULL && gaps->count < 250; i++) {
        cli_find_versions(ctx, op, gaps);
    }
    for (size_t i = 0; (left = cli_left_out_at(i)) != NULL && gaps->count < 300; i++) {
        if (left->types[0] != '\0') {
            cli_gap *gap = &gaps->items[gaps->count++];
            gap->domain = left->domain;
            gap->op_type = left->op_type;
            gap->types = left->types;
            snprintf(gap->reason, sizeof gap->reason, "%s", left->reason);
        }
    }
}

static void cli_words_json(sbit_json *to, const char *name, const char *words, bool numbers)
{
    sbit_json_open(to, name, '[');
    while (*words != '\0') {
        const size_t length = strcspn(words, " ");
        char word[40];
        snprintf(word, sizeof word, "%.*s", (int)length, words);
        if (numbers) {
            sbit_json_int(to, NULL, strtol(word, NULL, 10));
        } else {
            sbit_json_text(to, NULL, word);
        }
        words += length + (words[length] == ' ' ? 1 : 0);
    }
    sbit_json_close(to, ']');
}

static int cli_gaps_json(const cli_gaps *gaps)
{
    const cli_standard_op *op = NULL;
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_int(&json.to, "opset", CLI_STANDARD_OPSET);
    sbit_json_open(&json.to, "missing", '[');
    for (size_t i = 0; i < gaps->count; i++) {
        const cli_gap *gap = &gaps->items[i];
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "domain", gap->domain);
        sbit_json_text(&json.to, "op_type", gap->op_type);
        cli_words_json(&json.to, "versions", gap->versions, true);
        cli_words_json(&json.to, "types", gap->types, false);
        sbit_json_text(&json.to, "reason", gap->reason);
        sbit_json_close(&json.to, '}');
    }
    sbit_json_close(&json.to, ']');
    sbit_json_open(&json.to, "standard", '[');
    for (size_t i = 0; (op = cli_standard_at(i)) != NULL; i++) {
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "domain", op->domain);
        sbit_json_text(&json.to, "op_type", op->op_type);
        cli_words_json(&json.to, "versions", op->versions, true);
        sbit_json_close(&json.to, '}');
    }
    sbit_json_close(&json.to, ']');
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

static int cli_gaps_table(const cli_gaps *gaps)
{
    static const char *const heads[] = {"missing", "opset versions", "element types", "why"};
    cli_table table;
    cli_table_begin(&table, "<<<<");
    for (size_t i = 0; i < CLI_COUNT_OF(heads); i++) {
        cli_table_cell(&table, "%s", heads[i]);
    }
    for (size_t i = 0; i < gaps->count; i++) {
        const cli_gap *gap = &gaps->items[i];
        cli_table_cell(&table, "%s%s%s", gap->domain, gap->domain[0] != '\0' ? "." : "",
                       gap->op_type);
        cli_table_cell(&table, "%s", gap->versions[0] != '\0' ? gap->versions : "all");
        cli_table_cell(&table, "%s", gap->types[0] != '\0' ? gap->types : "all");
        cli_table_cell(&table, "%s", gap->reason);
    }
    CLI_TRY(cli_table_print(&table, stdout));
    printf("%zu of %zu operators and %zu of %zu versions up to opset %d run\n", gaps->operators_run,
           gaps->operators, gaps->versions_run, gaps->versions, CLI_STANDARD_OPSET);
    return CLI_OK;
}

static int cli_operators_missing(const cli_args *args)
{
    static cli_gaps gaps; /* too large for the stack */
    sbit_ctx *ctx = NULL;
    CLI_TRY(cli_context_create(args, 1, &ctx));
    cli_find_gaps(ctx, &gaps);
    sbit_ctx_destroy(ctx);
    CLI_TRY(args->json ? cli_gaps_json(&gaps) : cli_gaps_table(&gaps));
    return gaps.unexplained > 0 ? CLI_BAD : CLI_OK;
}

int cli_operators(const cli_args *args)
{
    static cli_rows rows; /* too large for the stack */
    const sbit_op_row *row = NULL;
    if (args->missing) {
        return cli_operators_missing(args);
    }
    for (size_t i = 0; (row = sbit_operator_at(i)) != NULL && rows.count < CLI_ROWS_MAX; i++) {
        if (row->run != NULL || row->expand != NULL) {
            rows.items[rows.count++] = row;
        }
    }
    qsort(rows.items, rows.count, sizeof rows.items[0], cli_row_order);
    if (args->json) {
        cli_json json;
        cli_json_begin(&json);
        cli_operators_json(&rows, &json.to);
        return cli_json_print(&json);
    }
    return cli_operators_table(&rows);
}
