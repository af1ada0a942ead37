/* base/table.c: tables with aligned columns. The first row is the heading.
 */
#include "base/table.h"

#include <stdarg.h> /* va_list */

void cli_table_begin(cli_table *table, const char *align)
{
    memset(table, 0, sizeof *table);
    table->align = align;
}

void cli_table_cell(cli_table *table, const char *format, ...)
{
    va_list args;
    char text[200];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    table->failed = table->failed || cli_names_add(&table->cells, text, strlen(text)) != CLI_OK;
}

/* Columns a text takes on a terminal, counting a UTF-8 sequence as one. */
static size_t cli_table_width(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static void cli_table_pad(size_t count, FILE *to)
{
    for (size_t i = 0; i < count; i++) {
        fputc(' ', to);
    }
}

static void cli_table_row(const cli_table *table, char *const *cells, const size_t *widths,
                          FILE *to)
{
    const size_t columns = strlen(table->align);
    size_t owed = 0; /* spaces are held back, so that none stand at the end of a line */
    for (size_t i = 0; i < columns; i++) {
        const size_t width = cli_table_width(cells[i]);
        const size_t pad = widths[i] - width;
        owed += i > 0 ? 2 : 0;
        owed += table->align[i] == '>' ? pad : 0;
        if (width > 0) {
            cli_table_pad(owed, to);
            fputs(cells[i], to);
            owed = 0;
        }
        owed += table->align[i] == '>' ? 0 : pad;
    }
    fputc('\n', to);
}

int cli_table_print(cli_table *table, FILE *to)
{
    const size_t columns = strlen(table->align);
    size_t widths[16] = {0};
    int code = table->failed ? CLI_BAD : CLI_OK;
    if (code == CLI_OK) {
        for (size_t i = 0; i < table->cells.count; i++) {
            const size_t width = cli_table_width(table->cells.items[i]);
            widths[i % columns] = width > widths[i % columns] ? width : widths[i % columns];
        }
        for (size_t i = 0; i + columns <= table->cells.count; i += columns) {
            cli_table_row(table, table->cells.items + i, widths, to);
        }
    }
    cli_names_free(&table->cells);
    return code;
}
