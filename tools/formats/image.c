/* formats/image.c: pictures: PPM and PGM always, PNG and JPEG through stb_image where it was found.
 *
 * PPM/PGM (Netpbm): "P6" or "P5", width, height and largest value in decimal, separated by white
 * space with "#" comments, one white space, then the pixels, one byte per channel. Values are
 * scaled to 0..255.
 * Resizing is bilinear; when it makes smaller, the triangle is widened, so that every pixel counts.
 */
#include "formats/image.h"
#include "base/system.h"

#include <errno.h>  /* the reason a call failed */
#include <math.h>   /* floor, fabs */
#include <stdlib.h> /* malloc */

#ifdef SBIT_HAVE_STB
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_FAILURE_USERMSG
#define STBI_MAX_DIMENSIONS 32768
#include <stb/stb_image.h>
#define CLI_STB true
#else
#define CLI_STB false
#endif

enum {
    CLI_SIDE_MAX = 32768
};

static bool cli_image_is_netpbm(const char *name)
{
    return cli_has_suffix(name, ".ppm") || cli_has_suffix(name, ".pgm");
}

static bool cli_image_is_stb(const char *name)
{
    return cli_has_suffix(name, ".jpg") || cli_has_suffix(name, ".jpeg") ||
           cli_has_suffix(name, ".png");
}

bool cli_image_is_name(const char *name)
{
    return name[0] != '.' && (cli_image_is_netpbm(name) || (CLI_STB && cli_image_is_stb(name)));
}

bool cli_image_is_unread(const char *name)
{
    return name[0] != '.' && !CLI_STB && cli_image_is_stb(name);
}

const char *cli_image_kinds(void)
{
    return CLI_STB ? "PPM, PGM, PNG and JPEG" : "PPM and PGM";
}

/* ---- Netpbm */

typedef struct cli_netpbm {
    int64_t width, height, largest, channels;
} cli_netpbm;

static bool cli_netpbm_number(FILE *file, int64_t *out)
{
    int ch = fgetc(file);
    while (ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r' || ch == '#') {
        while (ch == '#' && (ch = fgetc(file)) != EOF && ch != '\n') {
            ch = '#';
        }
        ch = ch == EOF ? EOF : fgetc(file);
    }
    int64_t value = -1;
    for (; ch >= '0' && ch <= '9' && value <= CLI_SIDE_MAX * 4; ch = fgetc(file)) {
        value = (value < 0 ? 0 : value * 10) + (ch - '0');
    }
    *out = value;
    return value > 0 && (ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r');
}

/* Leaves the file at the first pixel. */
static int cli_netpbm_header(FILE *file, const char *path, cli_netpbm *out)
{
    const int p = fgetc(file), kind = fgetc(file);
    if (p != 'P' || (kind != '5' && kind != '6')) {
        return cli_fail("'%s' is no binary PPM (P6) or PGM (P5) picture", path);
    }
    out->channels = kind == '6' ? 3 : 1;
    if (!cli_netpbm_number(file, &out->width) || !cli_netpbm_number(file, &out->height) ||
        !cli_netpbm_number(file, &out->largest) || out->largest > 255 ||
        out->width > CLI_SIDE_MAX || out->height > CLI_SIDE_MAX) {
        return cli_fail("'%s' has a damaged header, or more than 255 levels", path);
    }
    return CLI_OK;
}

static int cli_netpbm_load(FILE *file, const char *path, cli_image *out)
{
    cli_netpbm head;
    CLI_TRY(cli_netpbm_header(file, path, &head));
    const size_t bytes = (size_t)head.width * (size_t)head.height * (size_t)head.channels;
    out->data = (unsigned char *)malloc(bytes);
    if (out->data == NULL) {
        return cli_fail_memory(bytes);
    }
    out->width = head.width;
    out->height = head.height;
    out->channels = head.channels;
    if (fread(out->data, 1, bytes, file) != bytes) {
        return cli_fail("'%s' is cut short: %lu bytes of pixels are wanted", path,
                        (unsigned long)bytes);
    }
    for (size_t i = 0; head.largest != 255 && i < bytes; i++) {
        const int64_t value = out->data[i] < head.largest ? out->data[i] : head.largest;
        out->data[i] = (unsigned char)((value * 255 + head.largest / 2) / head.largest);
    }
    return CLI_OK;
}

/* ---- any format */

/* Grey pictures become three equal channels; colours are not made grey. */
static int cli_image_channels(cli_image *image, const char *path, int64_t channels)
{
    const size_t pixels = (size_t)image->width * (size_t)image->height;
    if (channels == 0 || image->channels == channels) {
        return CLI_OK;
    }
    if (image->channels != 1 || channels != 3) {
        return cli_fail("'%s' has %lld channels, the model input has %lld; convert the pictures",
                        path, (long long)image->channels, (long long)channels);
    }
    unsigned char *wide = (unsigned char *)malloc(pixels * 3);
    if (wide == NULL) {
        return cli_fail_memory(pixels * 3);
    }
    for (size_t i = 0; i < pixels; i++) {
        memset(wide + 3 * i, image->data[i], 3);
    }
    free(image->data);
    image->data = wide;
    image->channels = 3;
    return CLI_OK;
}

#ifdef SBIT_HAVE_STB
static int cli_stb_load(FILE *file, const char *path, int64_t channels, cli_image *out)
{
    int width = 0, height = 0, found = 0;
    out->data = stbi_load_from_file(file, &width, &height, &found, channels == 3 ? 3 : 0);
    if (out->data == NULL) {
        return cli_fail("'%s' cannot be read: %s", path, stbi_failure_reason());
    }
    out->width = width;
    out->height = height;
    out->channels = channels == 3 ? 3 : found;
    return CLI_OK;
}
#endif

int cli_image_load(const char *path, int64_t channels, cli_image *out)
{
    memset(out, 0, sizeof *out);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return cli_fail("'%s' cannot be read: %s", path, strerror(errno));
    }
    int code = CLI_BAD;
    if (cli_image_is_netpbm(path)) {
        code = cli_netpbm_load(file, path, out);
    } else {
#ifdef SBIT_HAVE_STB
        code = cli_stb_load(file, path, channels, out);
#else
        code = cli_fail("'%s': this build reads PPM and PGM only; " CLI_IMAGE_ADVICE, path);
#endif
    }
    fclose(file);
    code = code == CLI_OK ? cli_image_channels(out, path, channels) : code;
    if (code != CLI_OK) {
        free(out->data);
        out->data = NULL;
    }
    return code;
}

int cli_image_stat(const char *path, int64_t *height, int64_t *width, int64_t *channels)
{
    cli_netpbm head;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return cli_fail("'%s' cannot be read: %s", path, strerror(errno));
    }
    int code = CLI_BAD;
    memset(&head, 0, sizeof head);
    if (cli_image_is_netpbm(path)) {
        code = cli_netpbm_header(file, path, &head);
    } else {
#ifdef SBIT_HAVE_STB
        int w = 0, h = 0, c = 0;
        code = stbi_info_from_file(file, &w, &h, &c)
                   ? CLI_OK
                   : cli_fail("'%s' cannot be read: %s", path, stbi_failure_reason());
        head.width = w;
        head.height = h;
        head.channels = c;
#endif
    }
    fclose(file);
    *height = head.height;
    *width = head.width;
    *channels = head.channels;
    return code;
}

/* ---- resizing */

/* Resizes one line of `from` pixels (at `step` bytes) to the pixels first..first+count-1 of `to`
 * pixels: pixel i covers the source around (i + 0.5) * from / to. */
static void cli_resize_line(const float *in, int64_t from, int64_t in_step, float *out, int64_t to,
                            int64_t first, int64_t count, int64_t out_step)
{
    const double ratio = (double)from / (double)to;
    const double reach = ratio > 1.0 ? ratio : 1.0;
    for (int64_t i = 0; i < count; i++) {
        const double centre = ((double)(first + i) + 0.5) * ratio;
        int64_t low = (int64_t)floor(centre - reach), high = (int64_t)floor(centre + reach) + 1;
        double sum = 0.0, weights = 0.0;
        low = low < 0 ? 0 : low;
        high = high > from ? from : high;
        for (int64_t k = low; k < high; k++) {
            const double weight = 1.0 - fabs((double)k + 0.5 - centre) / reach;
            if (weight > 0.0) {
                sum += weight * (double)in[k * in_step];
                weights += weight;
            }
        }
        out[i * out_step] = (float)(sum / weights);
    }
}

static unsigned char cli_to_byte(float value)
{
    return (unsigned char)(value <= 0.0f ? 0 : value >= 255.0f ? 255 : (int)(value + 0.5f));
}

/* The middle height x width of the picture resized to full_height x full_width. */
static int cli_image_resize(cli_image *image, int64_t full_height, int64_t full_width,
                            int64_t height, int64_t width)
{
    const int64_t channels = image->channels;
    const int64_t top = (full_height - height) / 2, left = (full_width - width) / 2;
    const size_t lines = (size_t)(image->height * width * channels);
    const size_t pixels = (size_t)(height * width * channels);
    const size_t row = (size_t)(image->width * channels);
    const size_t floats = lines + pixels + row;
    float *memory = (float *)malloc(floats * sizeof *memory);
    unsigned char *data = (unsigned char *)malloc(pixels);
    if (memory == NULL || data == NULL) {
        free(memory);
        free(data);
        return cli_fail_memory(floats * sizeof *memory);
    }
    float *narrow = memory, *result = memory + lines, *line = memory + lines + pixels;
    for (int64_t y = 0; y < image->height; y++) {
        for (size_t i = 0; i < row; i++) {
            line[i] = (float)image->data[(size_t)y * row + i];
        }
        for (int64_t c = 0; c < channels; c++) {
            cli_resize_line(line + c, image->width, channels, narrow + y * width * channels + c,
                            full_width, left, width, channels);
        }
    }
    for (int64_t x = 0; x < width * channels; x++) {
        cli_resize_line(narrow + x, image->height, width * channels, result + x, full_height, top,
                        height, width * channels);
    }
    for (size_t i = 0; i < pixels; i++) {
        data[i] = cli_to_byte(result[i]);
    }
    free(memory);
    free(image->data);
    image->data = data;
    image->height = height;
    image->width = width;
    return CLI_OK;
}

int cli_image_fit(cli_image *image, int64_t height, int64_t width)
{
    if (image->height == height && image->width == width) {
        return CLI_OK;
    }
    /* the side that is relatively smaller decides: it fits exactly, the other one is cut */
    const double tall = (double)height / (double)image->height;
    const double wide = (double)width / (double)image->width;
    int64_t full_height = height, full_width = width;
    if (tall > wide) {
        full_width = (int64_t)floor((double)image->width * tall + 0.5);
        full_width = full_width < width ? width : full_width;
    } else {
        full_height = (int64_t)floor((double)image->height * wide + 0.5);
        full_height = full_height < height ? height : full_height;
    }
    return cli_image_resize(image, full_height, full_width, height, width);
}
