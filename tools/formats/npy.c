/* formats/npy.c: NumPy's .npy files, read and written.
 *
 *   offset 0  "\x93NUMPY"   6  major version 1..3   7  minor   8  header size (2 bytes; 4 from
 *   version 2), little-endian; then the header, a Python dict padded with spaces and a newline:
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 32, 32), }
 *   then the elements, row-major.
 * Not read: column-major, structured, text, object and big-endian arrays.
 */
#include "formats/npy.h"
#include "model/model.h"

#include <errno.h>  /* the reason a call failed */
#include <stdlib.h> /* malloc */

typedef struct cli_npy_type {
    const char *descr; /* without byte order */
    sbit_dtype dtype;
} cli_npy_type;

static const cli_npy_type cli_npy_types[] = {
    {"f4", SBIT_F32}, {"f8", SBIT_F64}, {"f2", SBIT_F16}, {"i1", SBIT_I8},
    {"i2", SBIT_I16}, {"i4", SBIT_I32}, {"i8", SBIT_I64}, {"u1", SBIT_U8},
    {"u2", SBIT_U16}, {"u4", SBIT_U32}, {"u8", SBIT_U64}, {"b1", SBIT_BOOL},
};

enum {
    CLI_NPY_HEADER_MAX = 65536
};

void cli_array_close(cli_array *array)
{
    if (array->file != NULL) {
        fclose(array->file);
    }
    free(array->memory);
    memset(array, 0, sizeof *array);
}

/* `offset` counts from the beginning of the file or memory. */
static int cli_npy_bytes(const cli_array *array, uint64_t offset, void *to, size_t bytes)
{
    if (array->memory != NULL) {
        memcpy(to, array->memory + offset, bytes);
        return CLI_OK;
    }
    FILE *file = array->file != NULL ? array->file : fopen(array->path, "rb");
    if (file == NULL) {
        return cli_fail("'%s' cannot be read: %s", array->path, strerror(errno));
    }
    const bool fine = cli_read_at(file, offset, to, bytes);
    const int code = fine ? CLI_OK
                          : cli_fail("'%s' cannot be read to its end: %s", array->path,
                                     ferror(file) ? strerror(errno) : "it became shorter");
    if (file != array->file) {
        fclose(file);
    }
    return code;
}

int cli_npy_read(const cli_array *array, uint64_t offset, void *to, size_t bytes)
{
    if (offset > array->bytes || bytes > array->bytes - offset) {
        return cli_fail("'%s' ends too early", array->path);
    }
    return bytes > 0 ? cli_npy_bytes(array, array->start + offset, to, bytes) : CLI_OK;
}

/* The text behind 'key': in the header; NULL: not there. */
static const char *cli_npy_find(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at != NULL ? strchr(at + strlen(key), ':') : NULL;
    return at != NULL ? at + 1 + strspn(at + 1, " ") : NULL;
}

static int cli_npy_descr(cli_array *array, const char *header)
{
    const char *at = cli_npy_find(header, "'descr'");
    if (at == NULL || *at != '\'' || strchr(at + 1, '\'') == NULL) {
        return cli_fail("'%s': arrays of records cannot be read; save one plain array",
                        array->path);
    }
    const uint16_t probe = 1;
    const bool big_host = *(const unsigned char *)&probe == 0;
    const char order = at[1];
    const size_t size = strcspn(at + 1, "'");
    const bool swapped = (order == '>' && !big_host) || (order == '<' && big_host);
    for (size_t i = 0; i < CLI_COUNT_OF(cli_npy_types) && size == 3; i++) {
        if (strncmp(at + 2, cli_npy_types[i].descr, 2) != 0) {
            continue;
        }
        if (swapped && cli_npy_types[i].descr[1] != '1') {
            return cli_fail("'%s' has the other byte order ('%.3s'); save it with x.astype('=%s')",
                            array->path, at + 1, cli_npy_types[i].descr);
        }
        array->shape.dtype = cli_npy_types[i].dtype;
        return CLI_OK;
    }
    return cli_fail("'%s': element type '%.*s' cannot be read; save it as float32, for example: "
                    "np.save(file, x.astype(np.float32))",
                    array->path, (int)(size < 40 ? size : 40), at + 1);
}

static int cli_npy_shape(cli_array *array, const char *header)
{
    const char *order = cli_npy_find(header, "'fortran_order'");
    const char *at = cli_npy_find(header, "'shape'");
    if (at == NULL || *at != '(' || order == NULL) {
        return cli_fail("'%s' has a damaged .npy header", array->path);
    }
    if (strncmp(order, "True", 4) == 0) {
        return cli_fail("'%s' is stored column by column; save np.ascontiguousarray(x)",
                        array->path);
    }
    at += 1 + strspn(at + 1, " ");
    while (*at >= '0' && *at <= '9') {
        char *end = NULL;
        errno = 0;
        const long long dim = strtoll(at, &end, 10);
        if (array->shape.rank == SBIT_MAX_RANK) {
            return cli_fail("'%s' has more than %d dims", array->path, SBIT_MAX_RANK);
        }
        if (errno != 0) {
            return cli_fail("'%s' has a damaged shape", array->path);
        }
        array->shape.dims[array->shape.rank++] = (int64_t)dim;
        at = end + strspn(end, "L, ");
    }
    return *at == ')' ? CLI_OK : cli_fail("'%s' has a damaged shape", array->path);
}

static int cli_npy_measure(cli_array *array, uint64_t available)
{
    uint64_t count = 1;
    size_t bytes = 0;
    for (int32_t i = 0; i < array->shape.rank; i++) {
        const uint64_t dim = (uint64_t)array->shape.dims[i];
        if (dim != 0 && count > (uint64_t)INT64_MAX / dim) {
            return cli_fail("'%s': the shape is larger than any file", array->path);
        }
        count *= dim;
    }
    if (!sbit_dtype_bytes((int32_t)array->shape.dtype, (int64_t)count, &bytes) ||
        bytes > available) {
        char text[200];
        sbit_tensor_describe(&array->shape, text, sizeof text);
        return cli_fail("'%s' is cut short: %s needs %llu bytes, %llu are there", array->path, text,
                        (unsigned long long)bytes, (unsigned long long)available);
    }
    array->bytes = bytes;
    return CLI_OK;
}

int cli_npy_header(cli_array *array, uint64_t start, uint64_t end)
{
    unsigned char head[12] = {0};
    const size_t fixed = 10;
    if (end - start < fixed) {
        return cli_fail("'%s' is no .npy array (%llu bytes); make one with np.save", array->path,
                        (unsigned long long)(end - start));
    }
    CLI_TRY(cli_npy_bytes(array, start, head, end - start < 12 ? fixed : 12));
    if (memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3) {
        return cli_fail("'%s' is no .npy array; make one with np.save", array->path);
    }
    uint64_t size = (uint64_t)head[8] | (uint64_t)head[9] << 8;
    if (head[6] > 1) {
        size |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    }
    const uint64_t data = start + (head[6] > 1 ? 12 : 10) + size;
    if (size > CLI_NPY_HEADER_MAX || data > end) {
        return cli_fail("'%s' has a damaged .npy header", array->path);
    }
    char *header = (char *)malloc((size_t)size + 1);
    if (header == NULL) {
        return cli_fail_memory((size_t)size + 1);
    }
    int code = cli_npy_bytes(array, data - size, header, (size_t)size);
    header[size] = '\0';
    array->start = data;
    code = code == CLI_OK ? cli_npy_descr(array, header) : code;
    code = code == CLI_OK ? cli_npy_shape(array, header) : code;
    free(header);
    return code == CLI_OK ? cli_npy_measure(array, end - data) : code;
}

int cli_npy_open(const char *path, cli_array *out)
{
    uint64_t bytes = 0;
    memset(out, 0, sizeof *out);
    out->path = path;
    CLI_TRY(cli_file_bytes(path, &bytes));
    out->file = fopen(path, "rb");
    if (out->file == NULL) {
        return cli_fail("'%s' cannot be read: %s", path, strerror(errno));
    }
    const int code = cli_npy_header(out, 0, bytes);
    if (code != CLI_OK) {
        cli_array_close(out);
    }
    return code;
}

int cli_npy_load(sbit_ctx *ctx, const char *path, sbit_tensor *out)
{
    cli_array array;
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_npy_open(path, &array));
    int code = CLI_OK;
    if (sbit_tensor_alloc(ctx, array.shape.dtype, array.shape.rank, array.shape.dims, out,
                          &error) != SBIT_OK) {
        code = cli_fail_library(&error, "'%s'", path);
    } else {
        code = cli_npy_read(&array, 0, out->data, (size_t)array.bytes);
        if (code != CLI_OK) {
            sbit_tensor_free(ctx, out);
        }
    }
    cli_array_close(&array);
    return code;
}

/* ---- writing */

static bool cli_npy_write_header(FILE *file, const char *descr, const sbit_tensor *tensor)
{
    char dims[200] = "", header[400];
    for (int32_t i = 0; i < tensor->rank; i++) {
        const size_t at = strlen(dims);
        snprintf(dims + at, sizeof dims - at, "%lld%s", (long long)tensor->dims[i],
                 i + 1 < tensor->rank ? ", "
                 : tensor->rank == 1  ? ","
                                      : "");
    }
    const uint16_t probe = 1;
    const char order = descr[1] == '1' ? '|' : *(const unsigned char *)&probe == 1 ? '<' : '>';
    int size =
        snprintf(header, sizeof header - 64,
                 "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }", order, descr, dims);
    while ((10 + size + 1) % 64 != 0) { /* elements begin at a multiple of 64 */
        header[size++] = ' ';
    }
    header[size++] = '\n';
    const unsigned char head[10] = {0x93,
                                    'N',
                                    'U',
                                    'M',
                                    'P',
                                    'Y',
                                    1,
                                    0,
                                    (unsigned char)(size & 255),
                                    (unsigned char)(size >> 8)};
    return fwrite(head, 1, sizeof head, file) == sizeof head &&
           fwrite(header, 1, (size_t)size, file) == (size_t)size;
}

/* Types that NumPy does not have become float32. */
bool cli_npy_write(FILE *file, const sbit_tensor *tensor)
{
    const int64_t count = sbit_tensor_count(tensor);
    for (size_t i = 0; i < CLI_COUNT_OF(cli_npy_types); i++) {
        if (cli_npy_types[i].dtype == tensor->dtype) {
            const size_t bytes = sbit_tensor_bytes(tensor);
            return cli_npy_write_header(file, cli_npy_types[i].descr, tensor) &&
                   (bytes == 0 || fwrite(tensor->data, 1, bytes, file) == bytes);
        }
    }
    bool good = cli_npy_write_header(file, "f4", tensor);
    for (int64_t i = 0; i < count && good; i++) {
        const float value = (float)sbit_tensor_f64_at(tensor, i);
        good = fwrite(&value, sizeof value, 1, file) == 1;
    }
    return good;
}

static bool cli_npy_put(FILE *file, const void *tensor)
{
    return cli_npy_write(file, (const sbit_tensor *)tensor);
}

int cli_npy_save(const char *path, const sbit_tensor *tensor)
{
    return cli_file_replace(path, cli_npy_put, tensor);
}
