/* train_api.h: what training shows to its caller. >>train
 *
 * Called by: users. Calls: grad, quant (QAT: quantizer rows' forward and backward), sparse (masks).
 * A trainer runs the same executor forward, the rows' backward, and optimizer rows per parameter.
 */
#ifndef SBIT_TRAIN_API_H
#define SBIT_TRAIN_API_H

#include "../quant/quant_api.h"
#include "../sparse/sparse_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a step reports. */
typedef struct sbit_train_report {
    int64_t step, epoch;
    double loss;
    float learning_rate, sparsity;
} sbit_train_report;

/* The learning rate of a step as a factor of the base rate; rows like those of schedules. */
typedef struct sbit_rate_row {
    const char *name; /* "constant", "cosine", "step" */
    const char *doc;
    const sbit_key *keys;
    size_t key_count;
    double (*factor)(const sbit_options *options, int64_t step, int64_t total);
} sbit_rate_row;

#ifdef __cplusplus
}
#endif

#endif /* SBIT_TRAIN_API_H */
