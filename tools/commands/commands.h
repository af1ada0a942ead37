/* commands/commands.h: the commands.
 */
#ifndef SBIT_CLI_COMMANDS_H
#define SBIT_CLI_COMMANDS_H

#include "base/args.h"

const cli_command *cli_command_at(size_t index); /* NULL past the end */

int cli_info(const cli_args *args);
int cli_simplify(const cli_args *args);
int cli_run(const cli_args *args);
int cli_eval(const cli_args *args);
int cli_quantize(const cli_args *args);
int cli_convert(const cli_args *args); /* dequantize, convert */
int cli_prune(const cli_args *args);
int cli_compress(const cli_args *args); /* prune, then quantize: in prune.c */
int cli_train(const cli_args *args);
int cli_compare(const cli_args *args);
int cli_analyze(const cli_args *args);
int cli_analyze_sparsity(const cli_args *args); /* with --sparsity: in prune.c */
int cli_validate(const cli_args *args);
int cli_lint(const cli_args *args);
int cli_bench(const cli_args *args);
int cli_graph(const cli_args *args);
int cli_check(const cli_args *args);
int cli_convert_opset(const cli_args *args);
int cli_operators(const cli_args *args);
int cli_strategies(const cli_args *args);
/* Prints what a strategy of that name does and its keys; false: there is none. */
bool cli_help_strategy(const char *name);
int cli_keys(const cli_args *args);

#endif /* SBIT_CLI_COMMANDS_H */
