/* base/table.h: tables whose columns are as wide as needed.
 */
#ifndef SBIT_CLI_TABLE_H
#define SBIT_CLI_TABLE_H

#include "base/system.h"

/* align: "<" left, ">" right, one character a column. */
typedef struct cli_table {
    cli_names cells;
    const char *align;
    bool failed;
} cli_table;

void cli_table_begin(cli_table *table, const char *align);
void cli_table_cell(cli_table *table, const char *format, ...) CLI_PRINTF(2, 3);
/* Prints and frees. */
int cli_table_print(cli_table *table, FILE *to);

#endif /* SBIT_CLI_TABLE_H */
