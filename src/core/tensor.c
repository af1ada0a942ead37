/* tensor.c: dense tensors, half precision, TensorProto files. >>tensor
 *
 * Called by: users and every later layer. Calls: the codec for .pb files and model tensors.
 * Does: allocate, measure, copy and describe tensors; convert float16 and bfloat16; move elements
 * between TensorProto and memory.
 * Does not: know strides or views: a tensor is always dense and row-major.
 *
 * Blocks of sbit_tensor_alloc are 64-byte aligned. A string tensor's block has 64 bytes in front
 * that hold its size, since text of any length may follow the elements:
 *     [size_t bytes | pad to 64][sbit_str x count][text]      data points at the first sbit_str
 * binary16: sign 1, exponent 5 (bias 15), fraction 10. bfloat16: the upper half of binary32.
 */
#include "../onnx/onnx_private.h"
#include "core_private.h"

#include <stdio.h> /* snprintf */

enum {
    SBIT__TENSOR_STRING_HEADER = 64
};

/* >>measure */
SPARSEBIT_API int64_t sbit_tensor_count(const sbit_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++) {
        count *= tensor->dims[i];
    }
    return count;
}

SPARSEBIT_API size_t sbit_tensor_bytes(const sbit_tensor *tensor)
{
    size_t bytes = 0;
    const int64_t count = sbit_tensor_count(tensor);
    if (tensor->dtype == SBIT_STRING) {
        return (size_t)count * sizeof(sbit_str);
    }
    return sbit_dtype_bytes((int32_t)tensor->dtype, count, &bytes) ? bytes : 0;
}

SPARSEBIT_API bool sbit_tensor_same_shape(const sbit_tensor *a, const sbit_tensor *b)
{
    if (a->rank != b->rank) {
        return false;
    }
    for (int32_t i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[i]) {
            return false;
        }
    }
    return true;
}

SPARSEBIT_API void sbit_tensor_describe(const sbit_tensor *tensor, char *text, size_t size)
{
    if (size == 0) {
        return;
    }
    int wrote = snprintf(text, size, "%s[", sbit_dtype_name((int32_t)tensor->dtype));
    size_t used = wrote > 0 ? (size_t)wrote : 0;
    for (int32_t i = 0; i < tensor->rank && used < size; i++) {
        wrote = snprintf(text + used, size - used, "%s%lld", i == 0 ? "" : ",",
                         (long long)tensor->dims[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

SBIT__FN size_t sbit__dtype_align(sbit_dtype dtype)
{
    if (dtype == SBIT_STRING) {
        return sizeof(void *);
    }
    switch (sbit_dtype_bits((int32_t)dtype)) {
    case 16:
        return 2;
    case 32:
        return 4;
    case 64:
    case 128:
        return dtype == SBIT_C64 ? 4 : 8;
    default:
        return 1;
    }
}

/* >>allocate */

/* Fills dtype, rank and dims after checking them; *count gets the number of elements. */
static sbit_status sbit__tensor_set_shape(sbit_tensor *tensor, sbit_dtype dtype, int32_t rank,
                                          const int64_t *dims, int64_t *count, sbit_error *error)
{
    if (rank < 0 || rank > SBIT_MAX_RANK) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "rank %ld is not in 0..%d", (long)rank,
                          SBIT_MAX_RANK);
    }
    memset(tensor, 0, sizeof(*tensor));
    tensor->dtype = dtype;
    tensor->rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return sbit__fail(error, SBIT_ERR_SHAPE, NULL, "dimension %ld is negative: %lld",
                              (long)i, (long long)dims[i]);
        }
        tensor->dims[i] = dims[i];
    }
    if (!sbit__dims_count(tensor->dims, (size_t)rank, count)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the number of elements of a tensor of rank %ld overflows", (long)rank);
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_alloc_strings(sbit_ctx *ctx, int32_t rank, const int64_t *dims,
                                                size_t text_bytes, sbit_tensor *out, char **text,
                                                sbit_error *error)
{
    sbit_tensor tensor;
    int64_t count = 0;
    size_t bytes = 0;
    SBIT__TRY(sbit__tensor_set_shape(&tensor, SBIT_STRING, rank, dims, &count, error));
    if ((uint64_t)count > SIZE_MAX / sizeof(sbit_str) ||
        !sbit__add_size((size_t)count * sizeof(sbit_str), text_bytes, &bytes) ||
        !sbit__add_size(bytes, SBIT__TENSOR_STRING_HEADER, &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a tensor of %lld strings is too large",
                          (long long)count);
    }
    char *block = (char *)sbit__alloc_aligned(&ctx->allocator, bytes);
    if (block == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memset(block, 0, bytes);
    memcpy(block, &bytes, sizeof(bytes));
    tensor.data = block + SBIT__TENSOR_STRING_HEADER;
    *text = block + SBIT__TENSOR_STRING_HEADER + (size_t)count * sizeof(sbit_str);
    *out = tensor;
    return SBIT_OK;
}

/* The elements are not set yet. */
static sbit_status sbit__tensor_alloc_plain(sbit_ctx *ctx, sbit_dtype dtype, int32_t rank,
                                            const int64_t *dims, sbit_tensor *out, size_t *size,
                                            sbit_error *error)
{
    sbit_tensor tensor;
    int64_t count = 0;
    size_t bytes = 0;
    SBIT__TRY(sbit__tensor_set_shape(&tensor, dtype, rank, dims, &count, error));
    if (sbit_dtype_bits((int32_t)dtype) == 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL, "a tensor of type %s has no size",
                          sbit_dtype_name((int32_t)dtype));
    }
    if (!sbit_dtype_bytes((int32_t)dtype, count, &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a tensor of %lld elements is too large",
                          (long long)count);
    }
    tensor.data = sbit__alloc_aligned(&ctx->allocator, bytes);
    if (tensor.data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    *out = tensor;
    *size = bytes;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_tensor_alloc(sbit_ctx *ctx, sbit_dtype dtype, int32_t rank,
                                            const int64_t *dims, sbit_tensor *out,
                                            sbit_error *error)
{
    size_t bytes = 0;
    char *text = NULL;
    if (dtype == SBIT_STRING) {
        return sbit__tensor_alloc_strings(ctx, rank, dims, 0, out, &text, error);
    }
    SBIT__TRY(sbit__tensor_alloc_plain(ctx, dtype, rank, dims, out, &bytes, error));
    memset(out->data, 0, bytes);
    return SBIT_OK;
}

SPARSEBIT_API void sbit_tensor_free(sbit_ctx *ctx, sbit_tensor *tensor)
{
    if (tensor == NULL) {
        return;
    }
    if (tensor->data != NULL && tensor->dtype == SBIT_STRING) {
        char *block = (char *)tensor->data - SBIT__TENSOR_STRING_HEADER;
        size_t bytes = 0;
        memcpy(&bytes, block, sizeof(bytes));
        sbit__free_aligned(&ctx->allocator, block, bytes);
    } else if (tensor->data != NULL) {
        sbit__free_aligned(&ctx->allocator, tensor->data, sbit_tensor_bytes(tensor));
    }
    memset(tensor, 0, sizeof(*tensor));
}

/* A string tensor holding copies of `count` texts, each followed by a NUL. */
static sbit_status sbit__tensor_copy_strings(sbit_ctx *ctx, int32_t rank, const int64_t *dims,
                                             const sbit_str *strings, int64_t count,
                                             sbit_tensor *out, sbit_error *error)
{
    size_t text_bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!sbit__add_size(text_bytes, strings[i].size, &text_bytes) ||
            !sbit__add_size(text_bytes, 1, &text_bytes)) {
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "the text of a tensor is too large");
        }
    }
    char *text = NULL;
    SBIT__TRY(sbit__tensor_alloc_strings(ctx, rank, dims, text_bytes, out, &text, error));
    sbit_str *copies = (sbit_str *)out->data;
    for (int64_t i = 0; i < count; i++) {
        if (strings[i].size != 0) {
            memcpy(text, strings[i].data, strings[i].size);
        }
        copies[i].data = text;
        copies[i].size = strings[i].size;
        text += strings[i].size + 1;
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_copy(sbit_ctx *ctx, const sbit_tensor *tensor, sbit_tensor *out,
                                       sbit_error *error)
{
    sbit_tensor copy;
    if (tensor->dtype == SBIT_STRING) {
        return sbit__tensor_copy_strings(ctx, tensor->rank, tensor->dims,
                                         (const sbit_str *)tensor->data, sbit_tensor_count(tensor),
                                         out, error);
    }
    size_t bytes = 0;
    SBIT__TRY(sbit__tensor_alloc_plain(ctx, tensor->dtype, tensor->rank, tensor->dims, &copy, &bytes,
                                       error));
    if (bytes != 0) {
        memcpy(copy.data, tensor->data, bytes);
    }
    *out = copy;
    return SBIT_OK;
}

/* >>TensorProto */
static sbit_status sbit__tensor_strings_from_onnx(sbit_ctx *ctx, const sbit_onnx_tensor *source,
                                                  sbit_tensor *out, bool *owned, sbit_error *error)
{
    int64_t count = 0;
    SBIT__TRY(sbit_onnx_tensor_count(source, &count, error));
    if ((uint64_t)count != source->string_data_count) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, source->name.data,
                          "tensor '%s' has %llu strings, its dims say %lld", source->name.data,
                          (unsigned long long)source->string_data_count, (long long)count);
    }
    SBIT__TRY(sbit__tensor_copy_strings(ctx, (int32_t)source->dims_count, source->dims,
                                        source->string_data, count, out, error));
    *owned = true;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_from_onnx(sbit_ctx *ctx, sbit_onnx_doc *doc,
                                            const sbit_onnx_tensor *source, sbit_tensor *out,
                                            bool *owned, sbit_error *error)
{
    const char *name = source->name.data != NULL ? source->name.data : "";
    sbit_tensor tensor;
    int64_t count = 0;
    sbit_str bytes = {NULL, 0};
    if (source->dims_count > SBIT_MAX_RANK) {
        return sbit__fail(error, SBIT_ERR_LIMIT, name, "tensor '%s' has rank %llu, at most %d work",
                          name, (unsigned long long)source->dims_count, SBIT_MAX_RANK);
    }
    if (source->data_type == SBIT_STRING) {
        return sbit__tensor_strings_from_onnx(ctx, source, out, owned, error);
    }
    if (sbit_dtype_bits(source->data_type) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                          "tensor '%s' has the unknown element type %ld", name,
                          (long)source->data_type);
    }
    const sbit_dtype dtype = (sbit_dtype)source->data_type;
    SBIT__TRY(sbit_onnx_tensor_data(doc, source, &bytes, error));
    SBIT__TRY(sbit__tensor_set_shape(&tensor, dtype, (int32_t)source->dims_count, source->dims,
                                     &count, error));
    if (bytes.size == 0 || (uintptr_t)bytes.data % sbit__dtype_align(dtype) == 0) {
        /* Constants are never written through; data is not const so that owners can fill it. */
        memcpy(&tensor.data, &bytes.data, sizeof(tensor.data));
        *owned = false;
    } else {
        size_t size = 0;
        SBIT__TRY(sbit__tensor_alloc_plain(ctx, dtype, tensor.rank, tensor.dims, &tensor, &size,
                                           error));
        memcpy(tensor.data, bytes.data, bytes.size);
        sbit__onnx_forget(doc, bytes.data, bytes.size);
        *owned = true;
    }
    *out = tensor;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tensor_to_onnx(sbit_onnx_doc *doc, const char *name,
                                          const sbit_tensor *tensor, sbit_onnx_tensor *out,
                                          sbit_error *error)
{
    const size_t rank = (size_t)tensor->rank;
    memset(out, 0, sizeof(*out));
    if (rank != 0) {
        out->dims = (int64_t *)sbit_onnx_alloc(doc, rank, sizeof(int64_t));
        if (out->dims == NULL) {
            return sbit__fail_oom(error, rank * sizeof(int64_t));
        }
        memcpy(out->dims, tensor->dims, rank * sizeof(int64_t));
        out->dims_count = rank;
    }
    SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, (int32_t)tensor->dtype);
    if (name != NULL && name[0] != '\0') {
        sbit_str copy = {NULL, 0};
        SBIT__TRY(sbit_onnx_text(doc, name, strlen(name), &copy, error));
        SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_NAME, name, copy);
    }
    if (tensor->dtype == SBIT_STRING) {
        out->string_data = (sbit_str *)tensor->data;
        out->string_data_count = (size_t)sbit_tensor_count(tensor);
        return SBIT_OK;
    }
    sbit_str bytes;
    bytes.data = (const char *)tensor->data;
    bytes.size = sbit_tensor_bytes(tensor);
    if (!sbit__onnx_host_is_little()) {
        SBIT__TRY(sbit__onnx_swapped(&doc->arena, (int32_t)tensor->dtype, &bytes, error));
    }
    SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_RAW_DATA, raw_data, bytes);
    return SBIT_OK;
}

static sbit_status sbit__tensor_read_doc(sbit_ctx *ctx, sbit_onnx_doc *doc, sbit_tensor *out,
                                         sbit_error *error)
{
    sbit_tensor tensor;
    bool owned = false;
    const sbit_onnx_tensor *source = (const sbit_onnx_tensor *)sbit_onnx_doc_root(doc);
    SBIT__TRY(sbit__tensor_from_onnx(ctx, doc, source, &tensor, &owned, error));
    if (!owned) {
        const sbit_tensor borrowed = tensor;
        SBIT__TRY(sbit__tensor_copy(ctx, &borrowed, &tensor, error));
    }
    *out = tensor;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_tensor_load_pb(sbit_ctx *ctx, const char *path, sbit_tensor *out,
                                              sbit_error *error)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    memset(&desc, 0, sizeof(desc));
    desc.allocator = ctx->allocator;
    desc.kind = SBIT_ONNX_TENSOR;
    SBIT__TRY(sbit_onnx_load(path, &desc, &doc, error));
    const sbit_status status = sbit__tensor_read_doc(ctx, doc, out, error);
    sbit_onnx_destroy(doc);
    return status;
}

SPARSEBIT_API sbit_status sbit_tensor_save_pb(sbit_ctx *ctx, const char *path, const char *name,
                                              const sbit_tensor *tensor, sbit_error *error)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    memset(&desc, 0, sizeof(desc));
    desc.allocator = ctx->allocator;
    desc.kind = SBIT_ONNX_TENSOR;
    SBIT__TRY(sbit_onnx_create(&desc, &doc, error));
    sbit_status status =
        sbit__tensor_to_onnx(doc, name, tensor, (sbit_onnx_tensor *)sbit_onnx_doc_root(doc), error);
    if (status == SBIT_OK) {
        status = sbit_onnx_save(doc, path, NULL, error);
    }
    sbit_onnx_destroy(doc);
    return status;
}

/* >>half precision */
static uint32_t sbit__f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float sbit__f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

SPARSEBIT_API float sbit_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = (uint32_t)(bits >> 10) & 0x1fu;
    const uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1fu) { /* infinity and NaN */
        return sbit__f32_from_bits(sign | 0x7f800000u | (fraction << 13));
    }
    if (exponent == 0) { /* zero and subnormal: fraction * 2^-24, exact in binary32 */
        const float magnitude = (float)fraction * (1.0f / 16777216.0f);
        return sbit__f32_from_bits(sign | sbit__f32_bits(magnitude));
    }
    return sbit__f32_from_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

/* `value` >> `shift`, rounded half to even; shift 1..31. */
static uint32_t sbit__shift_round_even(uint32_t value, uint32_t shift)
{
    const uint32_t half = 1u << (shift - 1u);
    const uint32_t rest = value & ((half << 1) - 1u);
    const uint32_t floor = value >> shift;
    return floor + ((rest > half || (rest == half && (floor & 1u) != 0)) ? 1u : 0u);
}

SPARSEBIT_API uint16_t sbit_f32_to_f16(float value)
{
    const uint32_t bits = sbit__f32_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { /* NaN: keep what fits of the payload, stay quiet */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x47800000u) { /* 65536 and above, infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        const uint32_t exponent = magnitude >> 23;
        if (exponent < 102u) { /* below 2^-25 */
            return (uint16_t)sign;
        }
        const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        return (uint16_t)(sign | sbit__shift_round_even(mantissa, 126u - exponent));
    }
    /* A carry out of the fraction raises the exponent, up to infinity: that is the rounding. */
    return (uint16_t)(sign | sbit__shift_round_even(magnitude - (112u << 23), 13u));
}

SPARSEBIT_API float sbit_bf16_to_f32(uint16_t bits)
{
    return sbit__f32_from_bits((uint32_t)bits << 16);
}

SPARSEBIT_API uint16_t sbit_f32_to_bf16(float value)
{
    const uint32_t bits = sbit__f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { /* NaN: rounding could turn it into infinity */
        return (uint16_t)((bits >> 16) | 0x40u);
    }
    return (uint16_t)sbit__shift_round_even(bits, 16u);
}
