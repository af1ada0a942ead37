/* commands/export.h: how a quantized model is written.
 */
#ifndef SBIT_CLI_EXPORT_H
#define SBIT_CLI_EXPORT_H

#include "base/args.h"

/* Writes `built` to -o with the names, dims and opset that were asked for; it stays as it is. */
int cli_export_graph(const cli_args *args, const sbit_graph *built);

#endif /* SBIT_CLI_EXPORT_H */
