/* base/args.h: the options of all commands and how they are parsed.
 */
#ifndef SBIT_CLI_ARGS_H
#define SBIT_CLI_ARGS_H

#include "base/cli.h"

#define CLI_MAX_LIST 64
#define CLI_MAX_CHANNELS 64
#define CLI_MAX_OPTIONS 128

typedef struct cli_list {
    const char *items[CLI_MAX_LIST];
    size_t count;
} cli_list;

typedef struct cli_numbers {
    double items[CLI_MAX_CHANNELS];
    size_t count; /* 0: not given */
} cli_numbers;

/* All options of all commands; a command gets only those it lists. 0/NULL: not given. */
typedef struct cli_args {
    const char *command;
    const char *operands[2];
    bool json, keep_bn, fix_defaults, shuffle, as_is, profile, force, help, mask_only, explain, sparsity,
        inexact_norm;
    bool flip, rewind, keep_zeros, simulate, strict, missing, auto_exclude, by_time, mixed_precision;
    cli_list stats;         /* files of what observers saw, to read */
    const char *save_stats; /* to write */
    const char *encodings, *save_encodings;
    const char *input_names, *output_names;
    cli_list dynamic;
    int64_t opset;
    bool extra_info;
    const char *out, *config, *target, *data, *eval, *format, *isa, *output;
    const char *ratio, *macs, *bytes, *repair, *search, *prune_outputs, *latency, *latency_table, *masks, *start_masks,
        *save_masks;
    const char *val, *optimizer, *schedule, *features, *resume, *log;
    int64_t limit, from, batch, threads, calib, seed, iters, epochs, warmup, shift, cutout;
    int64_t anneal, freeze_statistics, patience, micro, checkpoint;
    const char *sconfig;
    cli_numbers ema, mixup, cutmix, smoothing, clip, slim, dampening, observe;
    cli_list set, skip, only, input, shape, freeze, teacher;
    /* preprocessing: x = (byte * scale - mean) / std */
    cli_numbers scale, mean, std, lr, decay, momentum, distill, feature_weight;
    cli_numbers agreement, max_drop, percent;
    const char *size_budget, *bops_budget, *prefer;
    int64_t to, time_budget;
    const char *layout;
    int64_t size[2];             /* height, width */
    bool given[CLI_MAX_OPTIONS]; /* by the index of the option in base/args.c */
} cli_args;

typedef struct cli_command {
    const char *name;
    const char *operands; /* "MODEL", "A B" */
    const char *summary;  /* one line */
    const char *options;  /* names, separated by spaces */
    const char *required; /* likewise; "?--x": named too when another is missing */
    const char *about;    /* paragraphs for the help text */
    const char *examples;
    int (*run)(const cli_args *args);
} cli_command;

int cli_args_parse(const cli_command *command, int argc, char **argv, cli_args *out);
/* The result can be written to -o: a file that can be made or replaced, and (without --force) is
 * not one of the models that are read. */
int cli_check_out(const cli_args *args);
void cli_args_help(const cli_command *command, FILE *to);
/* "1x3x224x224" -> dims; false if it is no such text. */
bool cli_parse_dims(const char *text, int64_t *dims, int32_t *rank);
/* "NAME=VALUE", or "VALUE" when there is no '='; the last '=' counts. Name length 0: none. */
void cli_split_pair(const char *text, size_t *name_size, const char **value);

#endif /* SBIT_CLI_ARGS_H */
