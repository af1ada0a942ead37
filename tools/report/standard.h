/* report/standard.h: the operators of the ONNX standard, and what of them is left out.
 */
#ifndef SBIT_CLI_STANDARD_H
#define SBIT_CLI_STANDARD_H

#include "base/cli.h"

enum {
    CLI_STANDARD_OPSET = 28
};

typedef struct cli_standard_op {
    const char *domain, *op_type;
    const char *versions; /* "1 6 13": where its definition changed, the deprecated ones left out */
} cli_standard_op;

typedef struct cli_left_out {
    const char *domain, *op_type;
    const char *types; /* "": all of it; else only these element types */
    const char *reason;
} cli_left_out;

const cli_standard_op *cli_standard_at(size_t index); /* NULL past the end */
const cli_left_out *cli_left_out_at(size_t index);    /* NULL past the end */

#endif /* SBIT_CLI_STANDARD_H */
