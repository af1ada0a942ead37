/* report/measure.h: accuracy, differences between tensors, ranges of inputs.
 */
#ifndef SBIT_CLI_MEASURE_H
#define SBIT_CLI_MEASURE_H

#include "data/data.h"

/* Differences between a tensor and its reference, over all batches. */
typedef struct cli_diff {
    double error2, reference2, other2, product; /* sums of squares and products */
    double max_error, max_reference;
    int64_t count;
    bool broken; /* shapes differed, or a value was not finite */
} cli_diff;

/* Of tensors whose first dim is `slots`, only the first `used` samples count. */
void cli_diff_add(cli_diff *diff, const sbit_tensor *reference, const sbit_tensor *other,
                  int64_t used, int64_t slots);
double cli_diff_sqnr(const cli_diff *diff); /* dB; infinite: equal */
double cli_diff_cosine(const cli_diff *diff);
double cli_diff_relative(const cli_diff *diff); /* contracts: max|a-b| / max(max|b|, 1e-6) */

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
int64_t cli_best_class(const float *logits, int64_t classes); /* ties: the lower index */
/* Runs the graph on all data. ranges (NULL: none) has one entry for each input. */
int cli_evaluate(cli_data *data, sbit_graph *graph, const char *name, cli_range *ranges,
                 cli_score *out);
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
