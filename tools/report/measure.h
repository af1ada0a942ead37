/* report/measure.h: accuracy, differences between tensors, ranges of inputs.
 */
#ifndef SBIT_CLI_MEASURE_H
#define SBIT_CLI_MEASURE_H

#include "data/data.h"

/* Elements of the tensor that belong to the first `used` of `slots` samples: where its first dim
 * is `slots`; else all. */
int64_t cli_used_count(const sbit_tensor *tensor, int64_t used, int64_t slots);

/* Smallest, mean and largest value of each input, over all batches. */
typedef struct cli_range {
    double min, max, sum, outside, low, high;
    int64_t count;
    bool bounded; /* low..high is known: values outside are counted */
} cli_range;

void cli_range_add(cli_range *range, const sbit_tensor *tensor, int64_t used, int64_t slots);

typedef struct cli_score {
    int64_t samples, top1, top5, classes;
    double seconds;        /* in the executor alone */
    size_t peak_bytes;     /* of activations and scratch memory for one batch */
    int64_t matched, sets; /* of sets with expected outputs */
    double worst;          /* relative error */
} cli_score;

/* The output whose values are the logits: --output or the first. */
int cli_find_output(const cli_args *args, const sbit_graph *graph, size_t *index);
/* The logits of a sample as floats; *classes values. NULL: the output is not [N, classes]. */
const float *cli_logits(const sbit_tensor *output, int64_t slot, int64_t slots, float *room,
                        int64_t room_count, int64_t *classes);
/* Runs the graph on all data. ranges (NULL: none) has one entry for each input. simulate: what lies
 * between DequantizeLinear and QuantizeLinear in float. */
int cli_evaluate(cli_data *data, sbit_graph *graph, const char *name, bool simulate,
                 cli_range *ranges, cli_score *out);
int cli_set_inputs(sbit_session *session, const cli_batch *batch, const char *name);
/* Warns when the flags differ from the preprocessing stored in the model. */
void cli_check_stored_prep(const cli_data *data, const cli_model *model);
/* Ranges of the inputs that the model was calibrated with, where it has them; zeroed first. */
void cli_ranges_stored(const cli_data *data, const cli_model *model, cli_range *ranges);
void cli_ranges_warn(const cli_data *data, const cli_range *ranges);
/* Peak bytes of one run with one sample (or the fixed batch). */
int cli_peak_of(cli_data *data, sbit_graph *graph, const char *name, size_t *bytes);

#define CLI_KEY_PREP "sparsebit.preprocess"
#define CLI_KEY_CALIBRATION "sparsebit.calibration"
#define CLI_KEY_RANGE "sparsebit.input_range." /* + name of the input: "min max" */

#endif /* SBIT_CLI_MEASURE_H */
