/* report/difference.h: how much one model differs from another, on data: outputs, predictions, inner
 * tensors, time.
 */
#ifndef SBIT_CLI_DIFFERENCE_H
#define SBIT_CLI_DIFFERENCE_H

#include "base/json.h"
#include "report/measure.h"

/* An inner tensor that has the same name in both models. */
typedef struct cli_pair {
    const char *name;
    sbit_value_id a, b;
    sbit_tensor kept; /* A's values in this batch; data NULL: none */
    sbit_diff diff;
} cli_pair;

typedef struct cli_comparison {
    const cli_args *args;
    cli_model a, b; /* a: the reference */
    cli_data data;
    cli_batch batch;
    sbit_diff outputs[CLI_MAX_INPUTS];
    size_t output_count;
    int64_t samples, ranked, agreed; /* of output 0 */
    double seconds_a, seconds_b;     /* in the executor, without the first batch */
    int64_t timed;                   /* samples in that time */
    cli_pair *pairs;
    size_t pair_count;
    uint32_t *slot_a, *slot_b; /* by value: index of the pair + 1 */
    int64_t slots;             /* of the batch that runs */
} cli_comparison;

/* With args set and both models loaded: opens --data, runs both on it. */
int cli_compare_run(cli_comparison *c);
void cli_compare_free(cli_comparison *c); /* the models too */
/* Members of an object that is open: samples, top1_agreement, outputs, tensors. */
void cli_compare_json(cli_json *json, const cli_comparison *c);
/* As tables; of inner tensors the `rows` worst. */
int cli_compare_print(cli_comparison *c, size_t rows);

#endif /* SBIT_CLI_DIFFERENCE_H */
