/* data/data.c: data sets: "KIND:PATH[,labels=FILE]", batches, labels, preprocessing.
 *
 * Everything that can be checked is checked when a set is opened: that it is there, not empty, fits
 * the model's inputs, and that its labels are numbers. A new kind is a row (cli_source).
 */
#include "data/data.h"
#include "formats/npy.h"

#include <stdarg.h> /* va_list */
#include <stdlib.h> /* malloc */

static const cli_source *const cli_sources[] = {
    &cli_source_cifar10, &cli_source_npy, &cli_source_npz, &cli_source_pb, &cli_source_images,
};

/* ---- opening */

static int cli_fail_spec(const cli_args *args, const char *spec)
{
    const char *words[CLI_COUNT_OF(cli_sources)];
    char forms[300] = "", kind[40];
    for (size_t i = 0; i < CLI_COUNT_OF(cli_sources); i++) {
        const size_t at = strlen(forms);
        words[i] = cli_sources[i]->name;
        snprintf(forms + at, sizeof forms - at, "%s%s", i > 0 ? ", " : "", cli_sources[i]->form);
    }
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(spec, ":"), spec);
    const char *near = sbit_word_nearest(kind, words, CLI_COUNT_OF(words));
    return cli_fail_usage(args->command,
                          "data '%s': the kind is missing or unknown%s%s%s; known: %s", spec,
                          near != NULL ? ", did you mean '" : "", near != NULL ? near : "",
                          near != NULL ? ":'?" : "", forms);
}

static char *cli_copy_text(const char *text, size_t size)
{
    char *copy = (char *)malloc(size + 1);
    if (copy == NULL) {
        cli_fail_memory(size + 1);
        return NULL;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

static int cli_parse_spec(cli_data *data, const char *spec)
{
    const char *colon = strchr(spec, ':');
    for (size_t i = 0; i < CLI_COUNT_OF(cli_sources) && colon != NULL; i++) {
        const char *name = cli_sources[i]->name;
        if (strlen(name) == (size_t)(colon - spec) && strncmp(name, spec, strlen(name)) == 0) {
            data->source = cli_sources[i];
        }
    }
    if (data->source == NULL || colon[1] == '\0') {
        return cli_fail_spec(data->args, spec);
    }
    const char *path = colon + 1;
    const char *labels = strstr(path, ",labels=");
    const size_t size = labels != NULL ? (size_t)(labels - path) : strlen(path);
    if (labels != NULL && strstr(data->source->form, "labels=") == NULL) {
        return cli_fail_usage(data->args->command, "data '%s': %s takes no labels= part", spec,
                              data->source->name);
    }
    data->path = cli_copy_text(path, size);
    if (labels != NULL) {
        data->labels_path = cli_copy_text(labels + 8, strlen(labels + 8));
    }
    return data->path == NULL || (labels != NULL && data->labels_path == NULL) ? CLI_BAD : CLI_OK;
}

int cli_fail_empty(const cli_data *data, const char *format, ...)
{
    va_list args;
    char text[600];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return cli_fail("%s is empty: %s", data->what, text);
}

/* The `count` samples in random order. */
static int cli_shuffle(cli_data *data, int64_t count)
{
    sbit_rng rng = sbit_rng_seed((uint64_t)data->args->seed);
    const size_t bytes = (size_t)count * sizeof *data->order;
    if (count > INT32_MAX) {
        return cli_fail("--shuffle works for up to 2147483647 samples");
    }
    data->order = (int64_t *)malloc(bytes);
    if (data->order == NULL) {
        return cli_fail_memory(bytes);
    }
    for (int64_t i = 0; i < count; i++) {
        data->order[i] = i;
    }
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t k = (int64_t)sbit_rng_below(&rng, (uint32_t)i + 1);
        const int64_t kept = data->order[i];
        data->order[i] = data->order[k];
        data->order[k] = kept;
    }
    return CLI_OK;
}

static int cli_data_start(cli_data *data, const char *spec, cli_choice choice)
{
    CLI_TRY(cli_parse_spec(data, spec));
    CLI_TRY(data->source->open(data));
    if (data->count == 0) {
        return cli_fail_empty(data, "'%s' holds no samples", data->path);
    }
    if (choice.shuffle) {
        CLI_TRY(cli_shuffle(data, data->count));
    }
    if (choice.from >= data->count) {
        return cli_fail_empty(data, "'%s' holds %lld samples, --from %lld leaves none", data->path,
                              (long long)data->count, (long long)choice.from);
    }
    data->from = choice.from;
    data->count -= choice.from;
    if (choice.limit > data->count) {
        cli_note("%s: all %lld samples are used (%lld were asked for)", data->what,
                 (long long)data->count, (long long)choice.limit);
    } else if (choice.limit > 0) {
        data->count = choice.limit;
    }
    return CLI_OK;
}

cli_choice cli_choice_of(const cli_args *args)
{
    const cli_choice choice = {args->limit, args->from, args->shuffle};
    return choice;
}

cli_choice cli_first(int64_t limit)
{
    const cli_choice choice = {limit, 0, false};
    return choice;
}

int64_t cli_data_number(const cli_data *data, int64_t at)
{
    return data->order != NULL ? data->order[data->from + at] : data->from + at;
}

int cli_data_open(const cli_args *args, const cli_model *model, const char *what, const char *spec,
                  cli_choice choice, cli_data *out)
{
    memset(out, 0, sizeof *out);
    out->args = args;
    out->model = model;
    out->what = what;
    out->limit = choice.shuffle || choice.limit == 0 ? 0 : choice.from + choice.limit;
    const int code = cli_data_start(out, spec, choice);
    if (code != CLI_OK) {
        cli_data_close(out);
    }
    return code;
}

void cli_data_close(cli_data *data)
{
    if (data->source != NULL && data->state != NULL) {
        data->source->close(data);
    }
    free(data->order);
    free(data->path);
    free(data->labels_path);
    memset(data, 0, sizeof *data);
}

int cli_data_only_input(cli_data *data, const char *form, const sbit_type **type)
{
    if (data->model->input_count != 1) {
        return cli_fail("'%s' has %lu inputs, %s feeds one; use npz:FILE with one array per input",
                        data->model->path, (unsigned long)data->model->input_count, form);
    }
    data->input_count = 1;
    data->inputs[0] = data->model->inputs[0];
    *type = &cli_model_input(data->model, 0)->type;
    return CLI_OK;
}

/* The first dim of every input is the batch, but of scalars. */
int cli_data_set_batch(cli_data *data)
{
    const int64_t asked = data->args->batch;
    data->batch = asked > 0 ? asked : 32;
    for (size_t i = 0; i < data->input_count; i++) {
        const sbit_value_info *info = sbit_graph_value(data->model->graph, data->inputs[i]);
        if (info->type.rank < 1 || info->type.dims[0].symbol != 0 || data->samples[i].rank == 0) {
            continue;
        }
        const int64_t fixed = info->type.dims[0].value;
        if (fixed < 1 || (asked > 0 && asked != fixed) ||
            (data->fixed_batch && fixed != data->batch)) {
            return cli_fail("input '%s' of '%s' has a fixed batch of %lld%s", info->name,
                            data->model->path, (long long)fixed,
                            asked > 0 ? "; leave --batch away" : ", which cannot be fed");
        }
        data->batch = fixed;
        data->fixed_batch = true;
    }
    return CLI_OK;
}

/* ---- preprocessing */

/* One number per channel from a flag that gives one for all, or one for each. */
static int cli_prep_spread(const char *command, const char *flag, const cli_numbers *numbers,
                           double otherwise, int64_t channels, double *out)
{
    if (numbers->count > 1 && (int64_t)numbers->count != channels) {
        return cli_fail_usage(command, "%s has %lu numbers, the data has %lld channels", flag,
                              (unsigned long)numbers->count, (long long)channels);
    }
    for (size_t c = 0; c < CLI_MAX_CHANNELS; c++) {
        out[c] = numbers->count == 0   ? otherwise
                 : numbers->count == 1 ? numbers->items[0]
                 : c < numbers->count  ? numbers->items[c]
                                       : otherwise;
    }
    return CLI_OK;
}

int cli_prep_fill(cli_prep *prep, const cli_args *args, double scale, int64_t channels)
{
    prep->given = args->scale.count + args->mean.count + args->std.count > 0;
    prep->nhwc = args->layout != NULL && strcmp(args->layout, "NHWC") == 0;
    prep->scale = args->scale.count > 0 ? args->scale.items[0] : scale;
    if (args->scale.count > 1) {
        return cli_fail_usage(args->command, "--scale takes one number");
    }
    CLI_TRY(cli_prep_spread(args->command, "--mean", &args->mean, 0.0, channels, prep->mean));
    CLI_TRY(cli_prep_spread(args->command, "--std", &args->std, 1.0, channels, prep->std));
    for (size_t c = 0; c < CLI_MAX_CHANNELS; c++) {
        if (prep->std[c] == 0.0) {
            return cli_fail_usage(args->command, "--std must not be 0: values are divided by it");
        }
    }
    return CLI_OK;
}

static void cli_prep_list(const char *key, const double *values, int64_t channels, char *text,
                          size_t size)
{
    size_t at = strlen(text);
    int64_t count = 1;
    for (int64_t c = 1; c < channels && c < CLI_MAX_CHANNELS; c++) {
        count = values[c] != values[0] ? channels : count;
    }
    for (int64_t c = 0; c < count && c < CLI_MAX_CHANNELS && at < size; c++) {
        snprintf(text + at, size - at, c == 0 ? " %s=%.9g" : "%s%.9g", c == 0 ? key : ",",
                 values[c]);
        at = strlen(text);
    }
}

const char *cli_data_prep_text(const cli_data *data, char *text, size_t size)
{
    if (!data->prep.active) {
        snprintf(text, size, "none");
        return text;
    }
    const sbit_tensor *sample = &data->samples[0];
    const int64_t channels =
        sample->rank < 2 ? 1 : sample->dims[data->prep.nhwc ? sample->rank - 1 : 1];
    snprintf(text, size, "scale=%.9g", data->prep.scale);
    cli_prep_list("mean", data->prep.mean, channels, text, size);
    cli_prep_list("std", data->prep.std, channels, text, size);
    const size_t at = strlen(text);
    snprintf(text + at, size - at, " layout=%s", data->prep.nhwc ? "NHWC" : "NCHW");
    return text;
}

/* ---- batches */

void cli_batch_free(sbit_ctx *ctx, cli_batch *batch)
{
    for (size_t i = 0; i < batch->input_count; i++) {
        sbit_tensor_free(ctx, &batch->inputs[i]);
    }
    free(batch->labels);
    memset(batch, 0, sizeof *batch);
}

static int cli_batch_shape(const cli_data *data, int64_t slots, cli_batch *batch)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    sbit_ctx *ctx = data->model->ctx;
    batch->input_count = data->input_count;
    for (size_t i = 0; i < data->input_count; i++) {
        sbit_tensor wanted = data->samples[i];
        sbit_tensor *tensor = &batch->inputs[i];
        if (wanted.rank > 0) {
            wanted.dims[0] = slots;
        }
        batch->names[i] = sbit_graph_value(data->model->graph, data->inputs[i])->name;
        if (tensor->data != NULL && sbit_tensor_same_shape(tensor, &wanted)) {
            continue;
        }
        sbit_tensor_free(ctx, tensor);
        if (sbit_tensor_alloc(ctx, wanted.dtype, wanted.rank, wanted.dims, tensor, &error) !=
            SBIT_OK) {
            return cli_fail_library(&error, "a batch of %lld samples", (long long)slots);
        }
    }
    if (data->has_labels && batch->label_capacity < slots) {
        free(batch->labels);
        batch->labels = (int64_t *)malloc((size_t)slots * sizeof *batch->labels);
        batch->label_capacity = batch->labels != NULL ? slots : 0;
        if (batch->labels == NULL) {
            return cli_fail_memory((size_t)slots * sizeof *batch->labels);
        }
    }
    return CLI_OK;
}

/* Sample i of a batch is index[i], or first + i where index is NULL. */
static int cli_data_read(cli_data *data, const int64_t *index, int64_t first, int64_t count,
                         cli_batch *batch)
{
    const int64_t slots = data->fixed_batch ? data->batch : count;
    batch->count = count;
    if (data->source->one_by_one) {
        sbit_ctx *ctx = data->model->ctx;
        cli_batch_free(ctx, batch);
        batch->count = 1;
    } else {
        CLI_TRY(cli_batch_shape(data, slots, batch));
    }
    for (int64_t slot = 0; slot < (data->source->one_by_one ? 1 : slots); slot++) {
        const int64_t i = slot < batch->count ? slot : batch->count - 1;
        const int64_t at = index != NULL ? index[i] : first + i;
        CLI_TRY(data->source->read(data, cli_data_number(data, at), slot, batch));
    }
    return CLI_OK;
}

int cli_data_batch(cli_data *data, int64_t first, cli_batch *batch)
{
    const int64_t left = data->count - first;
    return cli_data_read(data, NULL, first, left < data->batch ? left : data->batch, batch);
}

/* ---- the set as the library reads it */

static sbit_status cli_feed_read(void *user, const int64_t *index, int64_t count, sbit_batch *out,
                                 sbit_error *error)
{
    cli_source_feed *feed = (cli_source_feed *)user;
    (void)error; /* the tool's own messages are printed where the fault is found */
    if (cli_data_read(feed->data, index, 0, count, &feed->batch) != CLI_OK) {
        feed->failed = true;
        return SBIT_ERR_IO;
    }
    feed->labels.dtype = SBIT_I64;
    feed->labels.rank = 1;
    feed->labels.dims[0] = count;
    feed->labels.data = feed->batch.labels;
    out->samples = count;
    out->whole = feed->data->source->one_by_one;
    out->input_count = feed->batch.input_count;
    out->inputs = feed->batch.inputs;
    out->names = feed->batch.names;
    out->target_count = feed->data->has_labels ? 1 : 0;
    out->targets = &feed->labels;
    for (int64_t i = 0; i < count; i++) { /* `index` is gone when this returns */
        feed->numbers[i] = feed->data->order != NULL ? feed->data->order[index[i]] : index[i];
    }
    out->index = feed->numbers;
    if (feed->seen_fn != NULL) {
        feed->seen_fn(feed, &feed->batch, feed->user);
    }
    return SBIT_OK;
}

static void cli_feed_close(void *user)
{
    cli_source_feed *feed = (cli_source_feed *)user;
    cli_batch_free(feed->data->model->ctx, &feed->batch);
}

sbit_feed cli_feed_of(cli_data *data, cli_source_feed *feed)
{
    sbit_feed out;
    feed->data = data;
    out.count = data->count;
    out.batch = data->batch;
    out.read = cli_feed_read;
    out.close = cli_feed_close;
    out.user = feed;
    return out;
}

/* ---- labels */

static int cli_labels_npy(cli_data *data, int64_t count, int64_t *labels)
{
    sbit_tensor tensor;
    CLI_TRY(cli_npy_load(data->model->ctx, data->labels_path, &tensor));
    const bool integers =
        tensor.dtype != SBIT_F32 && tensor.dtype != SBIT_F64 && tensor.dtype != SBIT_F16;
    int code = CLI_OK;
    if (!integers || tensor.rank != 1 || tensor.dims[0] < count) {
        char text[200];
        sbit_tensor_describe(&tensor, text, sizeof text);
        code = cli_fail("labels '%s' are %s; integers [%lld] are wanted", data->labels_path, text,
                        (long long)count);
    }
    for (int64_t i = 0; i < count && code == CLI_OK; i++) {
        labels[i] = (int64_t)sbit_tensor_f64_at(&tensor, i);
    }
    sbit_tensor_free(data->model->ctx, &tensor);
    return code;
}

/* Index of a name in a sorted list; count: not there. */
static size_t cli_names_find(const cli_names *names, const char *text)
{
    size_t low = 0, high = names->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(names->items[middle], text);
        if (order == 0) {
            return middle;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return names->count;
}

/* A whole number that ends where a field ends. */
static bool cli_label_number(const char *text, int64_t *label)
{
    char *end = NULL;
    const long long value = strtoll(text, &end, 10);
    *label = (int64_t)value;
    return end != text && strchr(", \t\r\n", *end) != NULL; /* finds the NUL too */
}

/* "file, class, name", "file class name" or "class"; cuts the line behind the file's name. */
static bool cli_label_line(char *line, char **name, int64_t *label)
{
    static const char *const separators[] = {",", ", \t"};
    for (size_t i = 0; i < CLI_COUNT_OF(separators); i++) { /* names may hold spaces and commas */
        const size_t size = strcspn(line, separators[i]);
        if (size > 0 && line[size] != '\0' && cli_label_number(line + size + 1, label)) {
            line[size] = '\0';
            for (size_t end = size; end > 0 && line[end - 1] == ' '; end--) {
                line[end - 1] = '\0';
            }
            *name = line;
            return true;
        }
    }
    *name = NULL;
    return cli_label_number(line, label);
}

static int cli_labels_lines(cli_data *data, FILE *file, const cli_names *names, int64_t count,
                            int64_t *labels)
{
    char line[1024];
    int64_t next = 0;
    for (int64_t number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        char *name = NULL;
        int64_t label = 0;
        if (line[strspn(line, " \t\r\n")] == '\0' || line[0] == '#') {
            continue;
        }
        if (!cli_label_line(line, &name, &label) || label < 0) {
            return cli_fail("labels '%s', line %lld: \"file, class\" is wanted, class 0 or more",
                            data->labels_path, (long long)number);
        }
        size_t at = (size_t)next++;
        if (names != NULL && name != NULL) {
            at = cli_names_find(names, cli_base_name(name));
        }
        if (at < (size_t)count) {
            labels[at] = label;
        }
    }
    return CLI_OK;
}

int cli_labels_load(cli_data *data, int64_t count, const cli_names *names, int64_t **out)
{
    uint64_t bytes = 0;
    int64_t *labels = (int64_t *)malloc((size_t)(count + 1) * sizeof *labels);
    *out = labels; /* the caller frees it, also after a failure */
    if (labels == NULL) {
        return cli_fail_memory((size_t)(count + 1) * sizeof *labels);
    }
    for (int64_t i = 0; i < count; i++) {
        labels[i] = -1;
    }
    CLI_TRY(cli_file_bytes(data->labels_path, &bytes));
    if (cli_has_suffix(data->labels_path, ".npy")) {
        CLI_TRY(cli_labels_npy(data, count, labels));
    } else {
        FILE *file = fopen(data->labels_path, "r");
        if (file == NULL) {
            return cli_fail("labels '%s' cannot be read", data->labels_path);
        }
        const int code = cli_labels_lines(data, file, names, count, labels);
        fclose(file);
        CLI_TRY(code);
    }
    for (int64_t i = 0; i < count; i++) {
        if (labels[i] < 0 && names != NULL) {
            return cli_fail("labels '%s' say nothing about '%s'", data->labels_path,
                            names->items[i]);
        }
        if (labels[i] < 0) {
            return cli_fail("labels '%s' have no label for sample %lld of %lld", data->labels_path,
                            (long long)i, (long long)count);
        }
        data->classes = labels[i] + 1 > data->classes ? labels[i] + 1 : data->classes;
    }
    data->has_labels = true;
    return CLI_OK;
}
