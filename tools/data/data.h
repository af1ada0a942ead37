/* data/data.h: data sets.
 */
#ifndef SBIT_CLI_DATA_H
#define SBIT_CLI_DATA_H

#include "model/model.h"

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
    int64_t limit;  /* only so many at the front of the file are used; 0: all */
    int64_t count;  /* of samples used */
    int64_t *order; /* NULL: file order */
    int64_t from;   /* place in the order of the first one used */
    bool has_labels, has_outputs;
    int64_t classes;  /* of the labels found: largest + 1 */
    int64_t batch;    /* samples per run */
    bool fixed_batch; /* the model demands it: the last batch is padded */
    size_t input_count;
    sbit_value_id inputs[CLI_MAX_INPUTS];
    sbit_tensor samples[CLI_MAX_INPUTS]; /* type and shape with batch 1; data NULL */
    void *state;                         /* of the source */
};

/* Which samples of a set: `limit` of them (0: all) from place `from` on, in the order of the file or
 * in that of --seed. */
typedef struct cli_choice {
    int64_t limit, from;
    bool shuffle;
} cli_choice;
/* --limit, --from and --shuffle: what eval, compare and validate look at. */
cli_choice cli_choice_of(const cli_args *args);
/* The first `limit`, in the order of the file. */
cli_choice cli_first(int64_t limit);
/* Checks all that can be checked. `what` names the set: "calibration set". */
int cli_data_open(const cli_args *args, const cli_model *model, const char *what, const char *spec,
                  cli_choice choice, cli_data *out);
/* The number in its file of sample `at`, 0 <= at < count. */
int64_t cli_data_number(const cli_data *data, int64_t at);
void cli_data_close(cli_data *data);
int cli_data_batch(cli_data *data, int64_t first, cli_batch *batch);
void cli_batch_free(sbit_ctx *ctx, cli_batch *batch);

/* A data set as a feed of the library's. Zeroed but for seen_fn and user. */
typedef struct cli_source_feed {
    cli_data *data;
    cli_batch batch;
    sbit_tensor labels;
    bool failed; /* a message was printed already */
    void (*seen_fn)(struct cli_source_feed *feed, const cli_batch *batch,
                    void *user); /* NULL: none */
    int64_t numbers[SBIT_FEED_MOST]; /* of the samples of the last batch, in the file */
    void *user;
} cli_source_feed;
/* Borrows both until sbit_feed_close. */
sbit_feed cli_feed_of(cli_data *data, cli_source_feed *feed);
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

#endif /* SBIT_CLI_DATA_H */
