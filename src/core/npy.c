/* npy.c: NumPy's .npy files as tensors. >>npy
 *
 * Called by: users who have data in NumPy. Calls: files, tensors.
 *     "\x93NUMPY", u8 major, u8 minor, u16 (major 1) or u32 size of the header, little-endian,
 *     header: a Python dict as text: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *     elements
 */
#include "core_private.h"

#include <stdlib.h> /* strtoll */

static const struct {
    char kind, size; /* of descr behind the byte order */
    sbit_dtype dtype;
} sbit__npy_types[] = {
    {'f', '4', SBIT_F32}, {'f', '8', SBIT_F64}, {'f', '2', SBIT_F16}, {'u', '1', SBIT_U8},
    {'i', '1', SBIT_I8},  {'u', '2', SBIT_U16}, {'i', '2', SBIT_I16}, {'u', '4', SBIT_U32},
    {'i', '4', SBIT_I32}, {'u', '8', SBIT_U64}, {'i', '8', SBIT_I64}, {'b', '1', SBIT_BOOL},
};

/* What stands behind 'key': in the header; NULL: nothing. */
static const char *sbit__npy_find(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at != NULL ? strchr(at + strlen(key), ':') : NULL;
    return at != NULL ? at + 1 + strspn(at + 1, " ") : NULL;
}

static bool sbit__npy_shape(const char *at, sbit_tensor *shape)
{
    if (at == NULL || *at != '(') {
        return false;
    }
    at += 1 + strspn(at + 1, " ");
    while (*at >= '0' && *at <= '9' && shape->rank < SBIT_MAX_RANK) {
        char *end = NULL;
        shape->dims[shape->rank++] = (int64_t)strtoll(at, &end, 10);
        at = end + strspn(end, "L, ");
    }
    return *at == ')';
}

/* Type and shape; false: not one that can be read as it is. */
static bool sbit__npy_header(const char *header, sbit_tensor *shape)
{
    const char *descr = sbit__npy_find(header, "'descr'");
    const char *order = sbit__npy_find(header, "'fortran_order'");
    const uint16_t probe = 1;
    const char own = *(const unsigned char *)&probe == 1 ? '<' : '>';
    memset(shape, 0, sizeof *shape);
    if (descr == NULL || order == NULL || strncmp(order, "False", 5) != 0 || descr[0] != '\'' ||
        strlen(descr) < 5 || descr[4] != '\'') {
        return false;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__npy_types); i++) {
        if (descr[2] == sbit__npy_types[i].kind && descr[3] == sbit__npy_types[i].size &&
            (descr[1] == own || descr[3] == '1')) {
            shape->dtype = sbit__npy_types[i].dtype;
        }
    }
    return shape->dtype != SBIT_UNDEFINED &&
           sbit__npy_shape(sbit__npy_find(header, "'shape'"), shape);
}

static sbit_status sbit__npy_read(sbit_ctx *ctx, const char *path, const sbit__file *file,
                                  sbit_tensor *out, sbit_error *error)
{
    char header[1024];
    sbit_tensor shape;
    const unsigned char *data = file->data;
    const bool magic = file->size >= 12 && memcmp(data, "\x93NUMPY", 6) == 0;
    const size_t start = magic && data[6] > 1 ? 12 : 10;
    const size_t size =
        !magic ? 0
               : (size_t)data[8] | (size_t)data[9] << 8 |
                     (start == 12 ? (size_t)data[10] << 16 | (size_t)data[11] << 24 : 0);
    if (!magic || size >= sizeof header || size > file->size - start) {
        return sbit__fail(error, SBIT_ERR_PARSE, path, "'%s' is not a .npy file of NumPy", path);
    }
    memcpy(header, data + start, size);
    header[size] = '\0';
    if (!sbit__npy_header(header, &shape)) {
        return sbit__fail(
            error, SBIT_ERR_UNSUPPORTED, path,
            "'%s' cannot be read as it is; save one plain array, such as np.save(file, "
            "np.ascontiguousarray(x, np.float32))",
            path);
    }
    SBIT__TRY(sbit_tensor_alloc(ctx, shape.dtype, shape.rank, shape.dims, out, error));
    const size_t bytes = sbit_tensor_bytes(out);
    if (bytes > file->size - start - size) {
        sbit_tensor_free(ctx, out);
        return sbit__fail(error, SBIT_ERR_PARSE, path, "'%s' ends before its last element", path);
    }
    if (bytes > 0) {
        memcpy(out->data, data + start + size, bytes);
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_tensor_load_npy(sbit_ctx *ctx, const char *path, sbit_tensor *out,
                                               sbit_error *error)
{
    sbit__file file;
    if (ctx == NULL || path == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx, path or out is NULL");
    }
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(ctx), path, &file, error));
    const sbit_status status = sbit__npy_read(ctx, path, &file, out, error);
    sbit__file_close(&file);
    return status;
}
