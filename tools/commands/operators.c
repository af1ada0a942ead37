/* commands/operators.c: `sparsebit operators`: what this build can run, quantize and differentiate.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"

#include <stdlib.h> /* qsort */

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
            sbit_json_int(to, NULL, rows->items[k]->since_version);
        }
        sbit_json_close(to, ']');
        sbit_json_open(to, "types", '[');
        for (int32_t d = 1; d < SBIT_DTYPE_COUNT; d++) {
            if ((last->types & SBIT_T(d)) != 0 && last->types != SBIT_T_ANY) {
                sbit_json_text(to, NULL, sbit_dtype_name(d));
            }
        }
        sbit_json_close(to, ']');
        sbit_json_bool(to, "any_type", last->types == SBIT_T_ANY);
        sbit_json_bool(to, "quantized", last->quant != NULL);
        sbit_json_bool(to, "differentiable", last->gradient != NULL);
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
        cli_table_cell(&table, "%s", last->gradient != NULL ? "yes" : "");
        cli_table_cell(&table, "%s", versions);
    }
    return cli_table_print(&table, stdout);
}

int cli_operators(const cli_args *args)
{
    static cli_rows rows; /* too large for the stack */
    const sbit_op_row *row = NULL;
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
