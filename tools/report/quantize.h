/* report/quantize.h: what the files of `sparsebit quantize` share: the job and the report about it.
 */
#ifndef SBIT_CLI_QUANTIZE_H
#define SBIT_CLI_QUANTIZE_H

#include "report/measure.h"

typedef struct cli_cost {
    int64_t params, macs;
    uint64_t file_bytes;
    size_t peak_bytes;
    cli_score score; /* with --eval */
} cli_cost;

/* A recipe that the search tried (report/recipes.h). */
typedef struct cli_recipe_result {
    const char *name;
    cli_score score;
    size_t weight_bytes, number;
    double drop; /* points of top-1 lost */
    bool keeps;  /* no more than --max-drop */
} cli_recipe_result;

enum {
    CLI_MAX_RECIPES = 16
};

typedef struct cli_job {
    const cli_args *args;
    cli_model model;
    sbit_qconfig *config;
    cli_data calib, eval;
    bool has_calib, has_eval; /* --data, --eval */
    cli_range ranges[CLI_MAX_INPUTS];
    sbit_quant *quant;
    sbit_graph *built;
    cli_cost before, after;
    cli_recipe_result recipes[CLI_MAX_RECIPES]; /* the best first */
    size_t recipe_count;
    double calibrate_seconds, seconds;
} cli_job;

/* Of the job of `quantize`, for `train` and `analyze`: the configuration of -c, --target and --set; the quantizers
 * and the calibration set; calibrating. */
int cli_config_make(cli_job *job);
int cli_calibration_open(cli_job *job);
int cli_calibrate(cli_job *job);
/* The whole command, with the job's model loaded. */
int cli_quantize_run(cli_job *job);
void cli_job_free(cli_job *job);

bool cli_is_quantize(const sbit_node *node); /* QuantizeLinear */
/* Prints what was done, as text or JSON. */
int cli_report_show(const cli_job *job);

#endif /* SBIT_CLI_QUANTIZE_H */
