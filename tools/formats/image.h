/* formats/image.h: pictures in files.
 */
#ifndef SBIT_CLI_IMAGE_H
#define SBIT_CLI_IMAGE_H

#include "base/cli.h"

/* Pixels row by row, channels together: RGBRGB... */
typedef struct cli_image {
    unsigned char *data; /* free() */
    int64_t height, width, channels;
} cli_image;

bool cli_image_is_name(const char *name);   /* by its ending; only formats that can be read */
bool cli_image_is_unread(const char *name); /* a picture that this build cannot read */
const char *cli_image_kinds(void);          /* that this build reads: "PPM and PGM" */
#define CLI_IMAGE_ADVICE                                                                           \
    "for PNG and JPEG install stb_image.h (Debian, Ubuntu: libstb-dev) and run 'make -C tools'"
int cli_image_load(const char *path, int64_t channels, cli_image *out); /* 1 or 3; 0: as it is */
int cli_image_stat(const char *path, int64_t *height, int64_t *width, int64_t *channels);
/* Resized until it covers height x width, then cut out of the middle. */
int cli_image_fit(cli_image *image, int64_t height, int64_t width);

#endif /* SBIT_CLI_IMAGE_H */
