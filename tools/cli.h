/* cli.h: what the files of the command line tool share.
 *
 * sparsebit.c       main, the table of commands, help
 * cli_args.c        the table of options, parsing
 * cli_text.c        messages, suggestions, sizes as text, files and folders, clock, memory
 * cli_progress.c    the progress bar
 * cli_json.c        JSON writer
 * cli_table.c       aligned tables
 * cli_model.c       loading a model, its inputs, sessions, cost
 * cli_npy.c cli_zip.c cli_image.c    file formats
 * cli_data.c cli_data_pixels.c cli_data_arrays.c cli_data_pb.c    data sets
 * cli_measure.c     accuracy, differences between tensors, ranges of inputs
 * cli_<command>.c   one command each, or two; cli_report.c: the report of quantize
 *
 * Only the public functions of the library are used. Functions that can fail return 0 or the exit
 * code; the message is printed where the failure is seen.
 */
#ifndef SBIT_CLI_H
#define SBIT_CLI_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* POSIX 2008 and getrusage */
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include "../sparsebit.h"

#include <stdio.h>  /* FILE */
#include <string.h> /* memset, strcmp */

enum {
    CLI_OK = 0,
    CLI_BAD = 1,  /* bad input, or a check that failed */
    CLI_USAGE = 2 /* wrong usage */
};

#define CLI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define CLI_TRY(expression)                                                                        \
    do {                                                                                           \
        const int cli_try_code = (expression);                                                     \
        if (cli_try_code != CLI_OK) {                                                              \
            return cli_try_code;                                                                   \
        }                                                                                          \
    } while (0)
#if defined(__GNUC__)
#define CLI_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define CLI_PRINTF(at, first)
#endif

/* ---- cli_text.c */

int cli_fail(const char *format, ...) CLI_PRINTF(1, 2); /* prints, returns CLI_BAD */
int cli_fail_usage(const char *command, const char *format, ...) CLI_PRINTF(2, 3);
/* A failure of the library: "<doing>: <message>", and what to try next. Returns CLI_BAD. */
int cli_fail_library(const sbit_error *error, const char *format, ...) CLI_PRINTF(2, 3);
int cli_fail_memory(size_t bytes);
void cli_warn(const char *format, ...) CLI_PRINTF(1, 2); /* the same text only once */
void cli_note(const char *format, ...) CLI_PRINTF(1, 2);

/* The word of the list that `text` was probably meant to be; NULL: none is near. */
const char *cli_nearest(const char *text, const char *const *words, size_t count);

/* "1.40 MB" into text. Gives text back. */
const char *cli_bytes_text(double bytes, char *text, size_t size);
const char *cli_count_text(double count, char *text, size_t size); /* "41.2 M" */

double cli_seconds(void);          /* a monotonic clock */
double cli_peak_bytes(void);       /* the largest memory this process had */
int32_t cli_processor_count(void); /* that are online, 1..64 */

const char *cli_base_name(const char *path);
bool cli_has_suffix(const char *text, const char *suffix); /* any case */
bool cli_is_folder(const char *path);
/* The file can be made or replaced; says why not. */
int cli_check_writable(const char *option, const char *path);
/* Makes the folder if its parent exists; checks that files can be made in it. */
int cli_make_folder(const char *option, const char *path);
int cli_file_bytes(const char *path, uint64_t *bytes);

/* A sorted list of a folder's entries that `keep` accepts; free with cli_names_free. */
typedef struct cli_names {
    char **items;
    size_t count, capacity;
} cli_names;
int cli_folder_list(const char *path, bool (*keep)(const char *name), cli_names *out);
int cli_names_add(cli_names *names, const char *text, size_t size);
void cli_names_free(cli_names *names);
/* folder + "/" + name, to be freed; NULL: out of memory, already told. */
char *cli_path_join(const char *folder, const char *name);

/* ---- cli_args.c */

#define CLI_MAX_LIST 64
#define CLI_MAX_CHANNELS 64

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
    bool json, keep_bn, shuffle, as_is, profile, help;
    const char *out, *config, *target, *data, *eval, *format, *isa, *output;
    int64_t limit, batch, threads, calib, seed, iters;
    cli_list set, skip, only, input, shape;
    /* preprocessing: x = (byte * scale - mean) / std */
    cli_numbers scale, mean, std;
    const char *layout;
    int64_t size[2]; /* height, width */
} cli_args;

typedef struct cli_command {
    const char *name;
    const char *operands; /* "MODEL", "A B" */
    const char *summary;  /* one line */
    const char *options;  /* names, separated by spaces */
    const char *required; /* likewise */
    const char *about;    /* paragraphs for the help text */
    const char *examples;
    int (*run)(const cli_args *args);
} cli_command;

int cli_args_parse(const cli_command *command, int argc, char **argv, cli_args *out);
void cli_args_help(const cli_command *command, FILE *to);
/* "1x3x224x224" -> dims; false if it is no such text. */
bool cli_parse_dims(const char *text, int64_t *dims, int32_t *rank);
/* "NAME=VALUE", or "VALUE" when there is no '='; the last '=' counts. Name length 0: none. */
void cli_split_pair(const char *text, size_t *name_size, const char **value);

/* ---- sparsebit.c */

const cli_command *cli_command_at(size_t index); /* NULL past the end */

int cli_info(const cli_args *args);
int cli_simplify(const cli_args *args);
int cli_run(const cli_args *args);
int cli_eval(const cli_args *args);
int cli_quantize(const cli_args *args);
int cli_compare(const cli_args *args);
int cli_bench(const cli_args *args);
int cli_graph(const cli_args *args);

/* ---- cli_progress.c: one bar at a time */

void cli_progress(const char *what, int64_t done, int64_t total); /* done == total ends it */
void cli_progress_clear(void);                                    /* before other output */

/* ---- cli_json.c: text is collected and printed at the end, so that a failure prints none */

typedef struct cli_json {
    char *text;
    size_t size, capacity;
    bool failed, comma;
} cli_json;

void cli_json_open(cli_json *json, const char *key, char bracket); /* '{' or '['; key may be NULL */
void cli_json_close(cli_json *json, char bracket);                 /* '}' or ']' */
void cli_json_text(cli_json *json, const char *key, const char *value);
void cli_json_int(cli_json *json, const char *key, int64_t value);
void cli_json_number(cli_json *json, const char *key, double value); /* not finite: null */
void cli_json_bool(cli_json *json, const char *key, bool value);
void cli_json_dims(cli_json *json, const char *key, const sbit_graph *graph, const sbit_type *type);
int cli_json_print(cli_json *json); /* and frees */
void cli_json_free(cli_json *json);

/* ---- cli_table.c: columns as wide as needed; "<" left, ">" right per column in `align` */

typedef struct cli_table {
    cli_names cells;
    const char *align;
    bool failed;
} cli_table;

void cli_table_begin(cli_table *table, const char *align);
void cli_table_cell(cli_table *table, const char *format, ...) CLI_PRINTF(2, 3);
/* Prints and frees. */
int cli_table_print(cli_table *table, FILE *to);

/* ---- cli_model.c */

#define CLI_MAX_INPUTS 32

typedef struct cli_model {
    sbit_ctx *ctx; /* borrowed */
    const char *path;
    sbit_onnx_doc *doc; /* owned by graph */
    sbit_graph *graph;
    uint64_t file_bytes;                  /* with external data */
    sbit_value_id inputs[CLI_MAX_INPUTS]; /* that must be fed */
    size_t input_count;
} cli_model;

/* A context with the arguments' threads (0: otherwise) and ISA, and our messages and progress. */
int cli_context_create(const cli_args *args, int32_t otherwise, sbit_ctx **out);
int cli_model_load(sbit_ctx *ctx, const char *path, cli_model *out); /* and infers types */
/* Simplifies the graph unless --as-is was given; inputs and outputs keep their ids. */
int cli_model_prepare(const cli_args *args, cli_model *model);
void cli_model_free(cli_model *model);
const sbit_value_info *cli_model_input(const cli_model *model, size_t index);
/* Fails with the list of all nodes that cannot run. */
int cli_model_check_runs(const cli_model *model);
const char *cli_model_metadata(const cli_model *model, const char *key); /* NULL: none */
/* Sets symbolic dims of the inputs from --shape (the rest to 1) and infers again. */
int cli_model_apply_shapes(cli_model *model, const cli_list *shapes);
/* The input that "NAME=VALUE" names ("VALUE": the only one), or a failure that lists the names. */
int cli_input_index(const cli_model *model, const char *option, const char *text, size_t *index,
                    const char **value);
/* "float32[N,3,32,32]" */
const char *cli_type_text(const sbit_graph *graph, const sbit_type *type, char *text, size_t size);
/* "float32[1,3,32,32] does not fit ..." rules: false with a sentence in `why`. */
bool cli_type_takes(const sbit_graph *graph, const sbit_type *type, const sbit_tensor *tensor,
                    char *why, size_t size);
int cli_session_create(sbit_graph *graph, const sbit_session_desc *desc, const char *path,
                       sbit_session **out);
double cli_tensor_at(const sbit_tensor *tensor, int64_t index); /* an element as a number */
bool cli_dtype_is_number(sbit_dtype dtype);                     /* that cli_tensor_at knows */
int cli_random_tensor(sbit_ctx *ctx, const sbit_value_info *info, sbit_rng *rng, sbit_tensor *out);

/* ---- cli_npy.c, cli_zip.c */

/* An array in a file, or (from a compressed .npz) in memory. */
typedef struct cli_array {
    FILE *file; /* owned */
    unsigned char *memory;
    uint64_t start, bytes; /* of the elements in the file; in memory */
    sbit_tensor shape;     /* data NULL */
    const char *path;      /* for messages, borrowed */
    char name[128];        /* in the .npz */
} cli_array;

int cli_npy_open(const char *path, cli_array *out);
/* Reads the header of an array that starts at `start` of array->file or in array->memory. */
int cli_npy_header(cli_array *array, uint64_t start, uint64_t end);
int cli_npy_read(const cli_array *array, uint64_t offset, void *to, size_t bytes);
void cli_array_close(cli_array *array);
int cli_npy_load(sbit_ctx *ctx, const char *path, sbit_tensor *out);
int cli_npy_save(const char *path, const sbit_tensor *tensor);
int cli_npz_open(const char *path, cli_array **out, size_t *count); /* free(*out) after closing */

/* ---- cli_image.c */

/* Pixels row by row, channels together: RGBRGB... */
typedef struct cli_image {
    unsigned char *data; /* free() */
    int64_t height, width, channels;
} cli_image;

bool cli_image_is_name(const char *name); /* by its ending; only formats that can be read */
int cli_image_load(const char *path, int64_t channels, cli_image *out); /* 1 or 3; 0: as it is */
int cli_image_stat(const char *path, int64_t *height, int64_t *width, int64_t *channels);
/* Resized until it covers height x width, then cut out of the middle. */
int cli_image_fit(cli_image *image, int64_t height, int64_t width);

/* ---- cli_data*.c */

/* Samples first..first+count-1 (after shuffling), ready to be fed. */
typedef struct cli_batch {
    int64_t count; /* of samples that count */
    size_t input_count;
    const char *names[CLI_MAX_INPUTS];
    sbit_tensor inputs[CLI_MAX_INPUTS];
    int64_t *labels; /* NULL: no labels */
    int64_t label_capacity;
} cli_batch;

typedef struct cli_data cli_data;

typedef struct cli_source {
    const char *name; /* "cifar10" */
    const char *form; /* "cifar10:FILE" */
    int (*open)(cli_data *data);
    /* Writes one sample to slot `slot` of the batch, whose tensors are allocated. */
    int (*read)(cli_data *data, int64_t sample, int64_t slot, cli_batch *batch);
    bool one_by_one; /* shapes differ from sample to sample: read() makes a batch of one itself */
    void (*close)(cli_data *data);
} cli_source;

/* How samples become input values. */
typedef struct cli_prep {
    double scale;
    double mean[CLI_MAX_CHANNELS], std[CLI_MAX_CHANNELS];
    bool given;  /* some flag was */
    bool active; /* values are changed (else they are fed as they are) */
    bool nhwc;
} cli_prep;

struct cli_data {
    const cli_source *source;
    const cli_args *args;
    const cli_model *model;
    const char *what;  /* "calibration set", for messages */
    char *path;        /* owned */
    char *labels_path; /* owned; NULL: none given */
    cli_prep prep;
    int64_t limit;  /* of samples to use; 0: all */
    int64_t count;  /* of samples used */
    int64_t *order; /* NULL: file order */
    bool has_labels, has_outputs;
    int64_t classes;  /* of the labels found: largest + 1 */
    int64_t batch;    /* samples per run */
    bool fixed_batch; /* the model demands it: the last batch is padded */
    size_t input_count;
    sbit_value_id inputs[CLI_MAX_INPUTS];
    sbit_tensor samples[CLI_MAX_INPUTS]; /* type and shape with batch 1; data NULL */
    void *state;                         /* of the source */
};

/* Checks all that can be checked. `what` names the set: "calibration set". limit 0: all. */
int cli_data_open(const cli_args *args, const cli_model *model, const char *what, const char *spec,
                  int64_t limit, bool shuffle, cli_data *out);
void cli_data_close(cli_data *data);
int cli_data_batch(cli_data *data, int64_t first, cli_batch *batch);
void cli_batch_free(sbit_ctx *ctx, cli_batch *batch);
/* "scale=... mean=... std=... layout=NCHW" */
const char *cli_data_prep_text(const cli_data *data, char *text, size_t size);
/* For the sources: the batch size from the model and --batch; data->samples must be filled. */
int cli_data_set_batch(cli_data *data);
int cli_fail_empty(const cli_data *data, const char *format, ...) CLI_PRINTF(2, 3);
/* Class numbers of all samples: from a .npy of integers, or lines "name, class" or "class". With
 * names, lines are found by name. */
int cli_labels_load(cli_data *data, int64_t count, const cli_names *names, int64_t **out);
int cli_prep_fill(cli_prep *prep, const cli_args *args, double scale, int64_t channels);
/* The model's only input, as type; fails when there are more. */
int cli_data_only_input(cli_data *data, const char *form, const sbit_type **type);

extern const cli_source cli_source_cifar10, cli_source_images, cli_source_npy, cli_source_npz,
    cli_source_pb;
/* The expected outputs of a sample of pb:DIR; *out has `*count` tensors to be freed one by one. */
int cli_pb_outputs(cli_data *data, int64_t sample, sbit_tensor *out, size_t capacity,
                   size_t *count);

/* ---- cli_measure.c */

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

#endif /* SBIT_CLI_H */
