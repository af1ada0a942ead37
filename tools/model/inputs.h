/* model/inputs.h: the tensors that one run of a model is fed.
 */
#ifndef SBIT_CLI_INPUTS_H
#define SBIT_CLI_INPUTS_H

#include "model/model.h"

/* The tensors that are fed: from files, else random numbers, always the same. */
typedef struct cli_inputs {
    cli_model model;
    sbit_tensor tensors[CLI_MAX_INPUTS];
} cli_inputs;

/* Loads the model and makes its inputs; they must be freed in any case. */
int cli_inputs_begin(cli_inputs *inputs, const cli_args *args, int32_t threads);
/* Feeds them and runs once. */
int cli_inputs_run(cli_inputs *inputs, sbit_session *session, double *seconds);
void cli_inputs_free(cli_inputs *inputs);

#endif /* SBIT_CLI_INPUTS_H */
