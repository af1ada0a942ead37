/* formats/npy.h: arrays in NumPy files: .npy, and .npz (a ZIP archive of them).
 */
#ifndef SBIT_CLI_NPY_H
#define SBIT_CLI_NPY_H

#include "base/cli.h"

enum {
    CLI_NPZ_NAME = 160 /* bytes of an array's name in a .npz, and the 0 */
};

/* An array in a file, or (from a compressed .npz) in memory. */
typedef struct cli_array {
    FILE *file; /* owned; NULL: opened for each read */
    unsigned char *memory;
    uint64_t start, bytes; /* of the elements in the file; in memory */
    sbit_tensor shape;     /* data NULL */
    const char *path;      /* for messages, borrowed */
    char name[CLI_NPZ_NAME]; /* in the .npz */
} cli_array;

int cli_npy_open(const char *path, cli_array *out);
/* Reads the header of an array that starts at `start` of array->file or in array->memory. */
int cli_npy_header(cli_array *array, uint64_t start, uint64_t end);
int cli_npy_read(const cli_array *array, uint64_t offset, void *to, size_t bytes);
void cli_array_close(cli_array *array);
int cli_npy_load(sbit_ctx *ctx, const char *path, sbit_tensor *out);
int cli_npy_save(const char *path, const sbit_tensor *tensor);
bool cli_npy_write(FILE *file, const sbit_tensor *tensor); /* errno says why not */
/* Stored, not deflated. Name i stands at names + i * stride. */
int cli_npz_save(const char *path, size_t count, const char *names, size_t stride,
                 const sbit_tensor *tensors);
int cli_npz_open(const char *path, cli_array **out, size_t *count); /* free(*out) after closing */

#endif /* SBIT_CLI_NPY_H */
