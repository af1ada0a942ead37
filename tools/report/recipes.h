/* report/recipes.h: the search for a recipe that keeps the accuracy: `quantize --eval --max-drop`.
 */
#ifndef SBIT_CLI_RECIPES_H
#define SBIT_CLI_RECIPES_H

#include "report/quantize.h"

/* With the float model measured (job->before): tries recipes on the calibration data until one keeps
 * to --max-drop (with --prefer: all of them), measures each on --eval. Leaves configuration and
 * quant of the best in the job. */
int cli_recipes_search(cli_job *job);
int cli_recipes_print(const cli_job *job); /* the ranked table; nothing if there was no search */
void cli_recipes_json(sbit_json *json, const cli_job *job);

#endif /* SBIT_CLI_RECIPES_H */
