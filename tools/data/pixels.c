/* data/pixels.c: data sets of pictures: CIFAR-10's binary format, and folders of files.
 *
 * CIFAR-10 record, 3073 bytes:  0 label   1 red 32x32   1025 green   2049 blue, row by row
 * Both become float32 inputs (byte * scale - mean) / std, or bytes for uint8 inputs.
 */
#include "data/data.h"
#include "formats/image.h"

#include <errno.h>  /* the reason a call failed */
#include <stdlib.h> /* malloc */

enum {
    CLI_CIFAR_SIDE = 32,
    CLI_CIFAR_PLANE = CLI_CIFAR_SIDE * CLI_CIFAR_SIDE,
    CLI_CIFAR_RECORD = 1 + 3 * CLI_CIFAR_PLANE
};

typedef struct cli_pixels {
    FILE *file;      /* cifar10 */
    cli_names names; /* images */
    int64_t *labels;
    int64_t height, width, channels;     /* that the model is fed with */
    bool resizes;                        /* pictures of other sizes are made to fit */
    float values[CLI_MAX_CHANNELS][256]; /* of each byte after preprocessing */
} cli_pixels;

static void cli_pixels_close(cli_data *data)
{
    cli_pixels *pixels = (cli_pixels *)data->state;
    if (pixels->file != NULL) {
        fclose(pixels->file);
    }
    cli_names_free(&pixels->names);
    free(pixels->labels);
    free(pixels);
    data->state = NULL;
}

/* ---- fitting pictures to the model's input */

static int cli_pixels_types(cli_data *data, const sbit_type *type, cli_pixels *pixels)
{
    const char *name = cli_model_input(data->model, 0)->name;
    char text[200];
    cli_type_text(data->model->graph, type, text, sizeof text);
    if (type->kind != SBIT_KIND_TENSOR || (type->rank >= 0 && type->rank != 4)) {
        return cli_fail("input '%s' is %s; pictures need four dims: batch, channels, height, width",
                        name, text);
    }
    const bool bytes = type->dtype == SBIT_U8;
    if (!bytes && type->dtype != SBIT_F32 && type->dtype != SBIT_F16) {
        return cli_fail("input '%s' is %s; pictures can be fed as float32, float16 or uint8", name,
                        text);
    }
    CLI_TRY(cli_prep_fill(&data->prep, data->args, 1.0 / 255.0, pixels->channels));
    data->prep.active = !bytes;
    if (bytes && data->prep.given) {
        return cli_fail("input '%s' is uint8 and gets the bytes as they are: leave --scale, --mean "
                        "and --std away",
                        name);
    }
    for (int64_t c = 0; c < pixels->channels; c++) {
        for (int b = 0; b < 256; b++) {
            pixels->values[c][b] =
                (float)(((double)b * data->prep.scale - data->prep.mean[c]) / data->prep.std[c]);
        }
    }
    return CLI_OK;
}

/* A fixed dim of the input, or 0. */
static int64_t cli_fixed_dim(const sbit_type *type, int32_t index)
{
    return type->rank > index && type->dims[index].symbol == 0 ? type->dims[index].value : 0;
}

static int cli_pixels_check_channels(cli_data *data, const sbit_type *type, cli_pixels *pixels)
{
    const bool nhwc = data->prep.nhwc;
    const int64_t wanted = cli_fixed_dim(type, nhwc ? 3 : 1);
    const int64_t other = cli_fixed_dim(type, nhwc ? 1 : 3);
    if (wanted == 0 || wanted == pixels->channels) {
        return CLI_OK;
    }
    if (pixels->channels == 1 && wanted == 3) {
        pixels->channels = 3; /* grey pictures are repeated */
        return CLI_OK;
    }
    return cli_fail("the pictures have %lld channels, input '%s' has %lld%s",
                    (long long)pixels->channels, cli_model_input(data->model, 0)->name,
                    (long long)wanted,
                    other == pixels->channels
                        ? (nhwc ? "; did you mean --layout NCHW?" : "; did you mean --layout NHWC?")
                        : "; convert the pictures");
}

/* height and width are the data's; the model and --size decide what is fed. */
static int cli_pixels_check_size(cli_data *data, const sbit_type *type, int64_t height,
                                 int64_t width, cli_pixels *pixels)
{
    const int64_t *asked = data->args->size;
    const int64_t tall = cli_fixed_dim(type, data->prep.nhwc ? 1 : 2);
    const int64_t wide = cli_fixed_dim(type, data->prep.nhwc ? 2 : 3);
    const bool images = data->source == &cli_source_images;
    if (asked[0] > 0 && ((tall > 0 && tall != asked[0]) || (wide > 0 && wide != asked[1]))) {
        return cli_fail("--size %lldx%lld does not fit input '%s', which is %lldx%lld",
                        (long long)asked[0], (long long)asked[1],
                        cli_model_input(data->model, 0)->name, (long long)tall, (long long)wide);
    }
    pixels->height = asked[0] > 0 ? asked[0] : tall > 0 ? tall : height;
    pixels->width = asked[0] > 0 ? asked[1] : wide > 0 ? wide : width;
    pixels->resizes = asked[0] > 0 || (images && (tall > 0 || wide > 0));
    if (pixels->height == height && pixels->width == width) {
        return CLI_OK;
    }
    if (!pixels->resizes) {
        return cli_fail("the pictures are %lldx%lld, input '%s' is %lldx%lld; --size %lldx%lld "
                        "resizes them",
                        (long long)height, (long long)width, cli_model_input(data->model, 0)->name,
                        (long long)pixels->height, (long long)pixels->width,
                        (long long)pixels->height, (long long)pixels->width);
    }
    cli_note("pictures are resized to %lldx%lld", (long long)pixels->height,
             (long long)pixels->width);
    return CLI_OK;
}

/* Everything about the model's input, for pictures of this size. */
static int cli_pixels_begin(cli_data *data, int64_t height, int64_t width, int64_t channels)
{
    cli_pixels *pixels = (cli_pixels *)data->state;
    const sbit_type *type = NULL;
    sbit_tensor *sample = &data->samples[0];
    CLI_TRY(cli_data_only_input(data, data->source->form, &type));
    data->prep.nhwc = data->args->layout != NULL && strcmp(data->args->layout, "NHWC") == 0;
    pixels->channels = channels;
    CLI_TRY(cli_pixels_check_channels(data, type, pixels));
    CLI_TRY(cli_pixels_types(data, type, pixels));
    CLI_TRY(cli_pixels_check_size(data, type, height, width, pixels));
    sample->dtype = type->dtype;
    sample->rank = 4;
    sample->dims[0] = 1;
    sample->dims[data->prep.nhwc ? 1 : 2] = pixels->height;
    sample->dims[data->prep.nhwc ? 2 : 3] = pixels->width;
    sample->dims[data->prep.nhwc ? 3 : 1] = pixels->channels;
    return cli_data_set_batch(data);
}

/* Puts a picture of the right size into a slot of the batch. */
static void cli_pixels_store(const cli_data *data, const cli_image *image, int64_t slot,
                             cli_batch *batch)
{
    const cli_pixels *pixels = (const cli_pixels *)data->state;
    const sbit_tensor *tensor = &batch->inputs[0];
    const int64_t channels = image->channels, area = image->height * image->width;
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t i = 0; i < area; i++) {
            const int64_t inner = data->prep.nhwc ? i * channels + c : c * area + i;
            const int64_t at = slot * channels * area + inner;
            const unsigned char byte = image->data[i * channels + c];
            if (tensor->dtype == SBIT_F32) {
                ((float *)tensor->data)[at] = pixels->values[c][byte];
            } else if (tensor->dtype == SBIT_F16) {
                ((uint16_t *)tensor->data)[at] = sbit_f32_to_f16(pixels->values[c][byte]);
            } else {
                ((uint8_t *)tensor->data)[at] = byte;
            }
        }
    }
}

static int cli_pixels_new(cli_data *data, cli_pixels **out)
{
    *out = (cli_pixels *)calloc(1, sizeof **out);
    data->state = *out;
    return *out != NULL ? CLI_OK : cli_fail_memory(sizeof **out);
}

/* ---- cifar10:FILE */

static int cli_cifar_labels(cli_data *data, cli_pixels *pixels)
{
    const int64_t used = data->limit > 0 && data->limit < data->count ? data->limit : data->count;
    for (int64_t i = 0; i < used; i++) {
        unsigned char label = 0;
        if (!cli_read_at(pixels->file, (uint64_t)(i * CLI_CIFAR_RECORD), &label, 1)) {
            return cli_fail("'%s' cannot be read: %s", data->path, strerror(errno));
        }
        data->classes = label + 1 > data->classes ? label + 1 : data->classes;
    }
    data->has_labels = true;
    return CLI_OK;
}

static int cli_cifar_open(cli_data *data)
{
    cli_pixels *pixels = NULL;
    uint64_t bytes = 0;
    CLI_TRY(cli_pixels_new(data, &pixels));
    CLI_TRY(cli_file_bytes(data->path, &bytes));
    if (bytes == 0) {
        return cli_fail_empty(data, "'%s' has no bytes", data->path);
    }
    if (bytes % CLI_CIFAR_RECORD != 0) {
        return cli_fail("'%s' has %llu bytes, which is not a multiple of %d (1 label and 3x32x32 "
                        "bytes); is it a CIFAR-10 binary file, and complete?",
                        data->path, (unsigned long long)bytes, CLI_CIFAR_RECORD);
    }
    data->count = (int64_t)(bytes / CLI_CIFAR_RECORD);
    pixels->file = fopen(data->path, "rb");
    if (pixels->file == NULL) {
        return cli_fail("'%s' cannot be read: %s", data->path, strerror(errno));
    }
    CLI_TRY(cli_pixels_begin(data, CLI_CIFAR_SIDE, CLI_CIFAR_SIDE, 3));
    return cli_cifar_labels(data, pixels);
}

static int cli_cifar_read(cli_data *data, int64_t sample, int64_t slot, cli_batch *batch)
{
    const cli_pixels *pixels = (const cli_pixels *)data->state;
    unsigned char record[CLI_CIFAR_RECORD];
    cli_image image;
    memset(&image, 0, sizeof image);
    if (!cli_read_at(pixels->file, (uint64_t)(sample * CLI_CIFAR_RECORD), record, sizeof record)) {
        return cli_fail("'%s' cannot be read at sample %lld", data->path, (long long)sample);
    }
    batch->labels[slot] = record[0];
    image.data = (unsigned char *)malloc(sizeof record);
    if (image.data == NULL) {
        return cli_fail_memory(sizeof record);
    }
    image.height = image.width = CLI_CIFAR_SIDE;
    image.channels = 3;
    for (int i = 0; i < CLI_CIFAR_PLANE; i++) {
        for (int c = 0; c < 3; c++) {
            image.data[3 * i + c] = record[1 + c * CLI_CIFAR_PLANE + i];
        }
    }
    const int code = cli_image_fit(&image, pixels->height, pixels->width);
    if (code == CLI_OK) {
        cli_pixels_store(data, &image, slot, batch);
    }
    free(image.data);
    return code;
}

/* ---- images:DIR */

static int cli_images_check(cli_data *data, cli_pixels *pixels)
{
    const int64_t used = data->limit > 0 && data->limit < data->count ? data->limit : data->count;
    for (int64_t i = 0; i < used; i++) {
        int64_t height = 0, width = 0, channels = 0;
        char *path = cli_path_join(data->path, pixels->names.items[i]);
        int code = path != NULL ? cli_image_stat(path, &height, &width, &channels) : CLI_BAD;
        if (code == CLI_OK && i == 0) {
            const bool colours = channels >= 3;
            code = cli_pixels_begin(data, height, width, colours ? 3 : 1);
        }
        if (code == CLI_OK && pixels->channels == 1 && channels > 1) {
            code = cli_fail("'%s' has %lld channels, input '%s' has 1; convert the pictures", path,
                            (long long)channels, cli_model_input(data->model, 0)->name);
        }
        if (code == CLI_OK && !pixels->resizes &&
            (height != pixels->height || width != pixels->width)) {
            code = cli_fail("'%s' is %lldx%lld, '%s' is %lldx%lld; --size HxW makes them equal",
                            path, (long long)height, (long long)width, pixels->names.items[0],
                            (long long)pixels->height, (long long)pixels->width);
        }
        free(path);
        CLI_TRY(code);
    }
    return CLI_OK;
}

static int cli_fail_no_pictures(const cli_data *data)
{
    cli_names unread;
    CLI_TRY(cli_folder_list(data->path, cli_image_is_unread, &unread));
    const size_t count = unread.count;
    cli_names_free(&unread);
    if (count > 0) {
        return cli_fail_empty(
            data,
            "'%s' has %lu PNG and JPEG files, but this build reads %s only; " CLI_IMAGE_ADVICE,
            data->path, (unsigned long)count, cli_image_kinds());
    }
    return cli_fail_empty(data, "'%s' has no pictures (%s)", data->path, cli_image_kinds());
}

static int cli_images_open(cli_data *data)
{
    cli_pixels *pixels = NULL;
    CLI_TRY(cli_pixels_new(data, &pixels));
    CLI_TRY(cli_folder_list(data->path, cli_image_is_name, &pixels->names));
    data->count = (int64_t)pixels->names.count;
    if (data->count == 0) {
        return cli_fail_no_pictures(data);
    }
    if (data->labels_path != NULL) {
        CLI_TRY(cli_labels_load(data, data->count, &pixels->names, &pixels->labels));
    }
    return cli_images_check(data, pixels);
}

static int cli_images_read(cli_data *data, int64_t sample, int64_t slot, cli_batch *batch)
{
    const cli_pixels *pixels = (const cli_pixels *)data->state;
    cli_image image;
    char *path = cli_path_join(data->path, pixels->names.items[sample]);
    if (path == NULL) {
        return CLI_BAD;
    }
    int code = cli_image_load(path, pixels->channels, &image);
    if (code == CLI_OK) {
        code = cli_image_fit(&image, pixels->height, pixels->width);
        if (code == CLI_OK) {
            cli_pixels_store(data, &image, slot, batch);
        }
        free(image.data);
    }
    free(path);
    if (batch->labels != NULL) {
        batch->labels[slot] = pixels->labels[sample];
    }
    return code;
}

const cli_source cli_source_cifar10 = {"cifar10",      "cifar10:FILE", cli_cifar_open,
                                       cli_cifar_read, false,          cli_pixels_close};
const cli_source cli_source_images = {"images",        "images:DIR[,labels=FILE]",
                                      cli_images_open, cli_images_read,
                                      false,           cli_pixels_close};
