/* tensor.c: element types, and the elements of a TensorProto. >>tensor
 *
 * Called by: users, import, write, check. Calls: external, arena.
 * Does: give the elements as one block, whichever field they are stored in, after its length was
 * checked against dims. onnx.proto, TensorProto:
 *     raw_data      every type but string; little-endian, 2 and 4 bit types packed low bits first
 *     float_data    float32; complex64 as pairs
 *     double_data   float64; complex128 as pairs
 *     int32_data    int32 and everything narrower, one value an element; float16 and bfloat16 as
 *                   their bits; of 4 and 2 bit types one packed byte an element
 *     int64_data    int64
 *     uint64_data   uint64, uint32
 *     string_data   string
 */
#include "onnx_private.h"

typedef struct sbit__tensor_dtype_row {
    const char *name;
    int bits;
} sbit__tensor_dtype_row;

static const sbit__tensor_dtype_row sbit__tensor_dtypes[] = {
#define SBIT__TENSOR_DTYPE_ROW(name, number, bits, text) {text, bits},
    SBIT_DTYPE_LIST(SBIT__TENSOR_DTYPE_ROW)
#undef SBIT__TENSOR_DTYPE_ROW
};

SPARSEBIT_API const char *sbit_dtype_name(int32_t dtype)
{
    return dtype >= 0 && dtype < (int32_t)SBIT_DTYPE_COUNT ? sbit__tensor_dtypes[dtype].name
                                                           : "unknown";
}

SPARSEBIT_API int sbit_dtype_bits(int32_t dtype)
{
    return dtype >= 0 && dtype < (int32_t)SBIT_DTYPE_COUNT ? sbit__tensor_dtypes[dtype].bits : 0;
}

SPARSEBIT_API bool sbit_dtype_bytes(int32_t dtype, int64_t count, size_t *bytes)
{
    const int bits = sbit_dtype_bits(dtype);
    if (bits == 0 || count < 0 || (uint64_t)count > SIZE_MAX) {
        return false;
    }
    if (bits < 8) {
        *bytes = (size_t)count / 8 * (size_t)bits + ((size_t)count % 8 * (size_t)bits + 7) / 8;
        return true;
    }
    return sbit__mul_size((size_t)count, (size_t)bits / 8, bytes);
}

SBIT__FN bool sbit__onnx_host_is_little(void)
{
    const uint16_t probe = 1;
    unsigned char first = 0;
    memcpy(&first, &probe, 1);
    return first == 1;
}

SBIT__FN const char *sbit__onnx_tensor_label(const sbit_onnx_tensor *tensor)
{
    return tensor->name.size != 0 ? tensor->name.data : "(unnamed)";
}

SBIT__FN bool sbit__onnx_is_external(const sbit_onnx_tensor *tensor)
{
    return SBIT_ONNX_HAS(tensor, SBIT_ONNX_TENSOR_DATA_LOCATION) != 0 &&
           tensor->data_location == SBIT__ONNX_EXTERNAL;
}

SPARSEBIT_API sbit_status sbit_onnx_tensor_count(const sbit_onnx_tensor *tensor, int64_t *count,
                                                 sbit_error *error)
{
    const char *label = sbit__onnx_tensor_label(tensor);
    for (size_t i = 0; i < tensor->dims_count; i++) {
        if (tensor->dims[i] < 0) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                              "tensor '%s': dimension %llu is %lld", label, (unsigned long long)i,
                              (long long)tensor->dims[i]);
        }
    }
    if (!sbit__dims_count(tensor->dims, tensor->dims_count, count)) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': the product of its dimensions overflows", label);
    }
    return SBIT_OK;
}

/* The typed field that onnx.proto assigns to an element type. */
typedef struct sbit__tensor_store {
    const char *field;
    const void *data;
    size_t count;      /* elements of the field */
    size_t each_bytes; /* of one element of the field */
    size_t used_bytes; /* low bytes of each that raw_data would hold */
} sbit__tensor_store;

static void sbit__tensor_store_set(sbit__tensor_store *store, const char *field, const void *data,
                                   size_t count, size_t each_bytes, size_t used_bytes)
{
    store->field = field;
    store->data = data;
    store->count = count;
    store->each_bytes = each_bytes;
    store->used_bytes = used_bytes;
}

static void sbit__tensor_store_of(const sbit_onnx_tensor *t, sbit__tensor_store *store)
{
    switch (t->data_type) {
    case SBIT_F32:
    case SBIT_C64:
        sbit__tensor_store_set(store, "float_data", t->float_data, t->float_data_count, 4, 4);
        return;
    case SBIT_F64:
    case SBIT_C128:
        sbit__tensor_store_set(store, "double_data", t->double_data, t->double_data_count, 8, 8);
        return;
    case SBIT_I64:
        sbit__tensor_store_set(store, "int64_data", t->int64_data, t->int64_data_count, 8, 8);
        return;
    case SBIT_U32:
    case SBIT_U64:
        sbit__tensor_store_set(store, "uint64_data", t->uint64_data, t->uint64_data_count, 8,
                               t->data_type == SBIT_U32 ? 4 : 8);
        return;
    default: {
        const int bits = sbit_dtype_bits(t->data_type);
        sbit__tensor_store_set(store, "int32_data", t->int32_data, t->int32_data_count, 4,
                               bits <= 8 ? 1 : (size_t)bits / 8);
        return;
    }
    }
}

/* raw_data counts unless it is empty beside a typed field with elements, as some tools write. */
static bool sbit__tensor_is_raw(const sbit_onnx_tensor *tensor, const sbit__tensor_store *store)
{
    return SBIT_ONNX_HAS(tensor, SBIT_ONNX_TENSOR_RAW_DATA) != 0 &&
           (tensor->raw_data.size != 0 || store->count == 0);
}

/* Entries that the typed field has: float6 has one for each element, narrower types one a byte. */
static size_t sbit__tensor_entries(const sbit_onnx_tensor *tensor, const sbit__tensor_store *store,
                                   int64_t count, size_t bytes)
{
    return sbit_dtype_bits(tensor->data_type) == 6 ? (size_t)count : bytes / store->used_bytes;
}

SBIT__FN sbit_status sbit__onnx_tensor_bytes(const sbit_onnx_tensor *tensor, size_t *bytes,
                                             sbit_error *error)
{
    const char *label = sbit__onnx_tensor_label(tensor);
    const char *dtype = sbit_dtype_name(tensor->data_type);
    int64_t count = 0;
    size_t wanted = 0;
    sbit__tensor_store store;
    SBIT__TRY(sbit_onnx_tensor_count(tensor, &count, error));
    if (sbit_dtype_bits(tensor->data_type) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': element type %d (%s) has no fixed size", label,
                          (int)tensor->data_type, dtype);
    }
    if (tensor->segment != NULL) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, label,
                          "tensor '%s': data in segments is not supported", label);
    }
    if (!sbit_dtype_bytes(tensor->data_type, count, &wanted)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, label,
                          "tensor '%s': %lld elements exceed the address space", label,
                          (long long)count);
    }
    if (sbit__onnx_is_external(tensor)) {
        sbit__onnx_external external;
        SBIT__TRY(sbit__onnx_external_info(tensor, &external, error));
        if (external.length != UINT64_MAX && external.length != wanted) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                              "tensor '%s': external data has length %llu, dims and type (%s) "
                              "need %llu bytes",
                              label, (unsigned long long)external.length, dtype,
                              (unsigned long long)wanted);
        }
        *bytes = wanted;
        return SBIT_OK;
    }
    sbit__tensor_store_of(tensor, &store);
    if (sbit__tensor_is_raw(tensor, &store)) {
        if (tensor->raw_data.size != wanted) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                              "tensor '%s': raw_data has %llu bytes, dims and type (%s) need %llu",
                              label, (unsigned long long)tensor->raw_data.size, dtype,
                              (unsigned long long)wanted);
        }
    } else if (store.count != sbit__tensor_entries(tensor, &store, count, wanted)) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': %s has %llu elements, dims and type (%s) need %llu", label,
                          store.field, (unsigned long long)store.count, dtype,
                          (unsigned long long)sbit__tensor_entries(tensor, &store, count, wanted));
    }
    *bytes = wanted;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_swapped(sbit__arena *arena, int32_t dtype, sbit_str *view,
                                        sbit_error *error)
{
    const size_t bytes = (size_t)sbit_dtype_bits(dtype) / 8;
    const size_t unit = dtype == SBIT_C64 || dtype == SBIT_C128 ? bytes / 2 : bytes;
    if (unit <= 1 || view->size == 0) {
        return SBIT_OK;
    }
    char *copy = (char *)sbit__arena_alloc(arena, view->size);
    if (copy == NULL) {
        return sbit__onnx_arena_fail(arena, view->size, error);
    }
    for (size_t i = 0; i < view->size; i += unit) {
        for (size_t j = 0; j < unit; j++) {
            copy[i + j] = view->data[i + unit - 1 - j];
        }
    }
    view->data = copy;
    return SBIT_OK;
}

/* The low bytes of each element of the field, in the host's byte order. */
static sbit_status sbit__tensor_narrow(sbit__arena *arena, const sbit_onnx_tensor *tensor,
                                       const sbit__tensor_store *store, size_t bytes, sbit_str *out,
                                       sbit_error *error)
{
    const size_t skip = sbit__onnx_host_is_little() ? 0 : store->each_bytes - store->used_bytes;
    const unsigned char *from = (const unsigned char *)store->data + skip;
    unsigned char *to = (unsigned char *)sbit__arena_alloc(arena, bytes);
    if (to == NULL) {
        return sbit__onnx_arena_fail(arena, bytes, error);
    }
    out->data = (const char *)to;
    out->size = bytes;
    if (sbit_dtype_bits(tensor->data_type) == 6) {
        memset(to, 0, bytes);
        for (size_t i = 0; i < store->count; i++) {
            sbit__packed_set(to, (int64_t)i, 6, tensor->int32_data[i] & 63);
        }
        return SBIT_OK;
    }
    for (size_t i = 0; i < store->count; i++) {
        memcpy(to, from, store->used_bytes);
        to += store->used_bytes;
        from += store->each_bytes;
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_tensor_view(sbit__arena *arena, const sbit_onnx_tensor *tensor,
                                            bool little_endian, sbit_str *out, sbit_error *error)
{
    size_t bytes = 0;
    bool is_little = true; /* of the view so far */
    sbit__tensor_store store;
    sbit_str view;
    SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
    sbit__tensor_store_of(tensor, &store);
    view.data = "";
    view.size = 0;
    if (bytes == 0) {
        *out = view;
        return SBIT_OK;
    }
    if (sbit__tensor_is_raw(tensor, &store)) {
        view = tensor->raw_data;
    } else if (store.used_bytes == store.each_bytes) {
        view.data = (const char *)store.data;
        view.size = bytes;
        is_little = sbit__onnx_host_is_little();
    } else {
        SBIT__TRY(sbit__tensor_narrow(arena, tensor, &store, bytes, &view, error));
        is_little = sbit__onnx_host_is_little();
    }
    if (is_little != (little_endian || sbit__onnx_host_is_little())) {
        SBIT__TRY(sbit__onnx_swapped(arena, tensor->data_type, &view, error));
    }
    *out = view;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_onnx_tensor_data(sbit_onnx_doc *doc, const sbit_onnx_tensor *tensor,
                                                sbit_str *out, sbit_error *error)
{
    if (tensor->data_type == SBIT_STRING) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, label,
                          "tensor '%s' holds strings: read its string_data", label);
    }
    if (!sbit__onnx_is_external(tensor)) {
        return sbit__onnx_tensor_view(&doc->arena, tensor, false, out, error);
    }
    sbit_str view;
    SBIT__TRY(sbit__onnx_external_view(doc, tensor, &view, error));
    if (!sbit__onnx_host_is_little()) {
        SBIT__TRY(sbit__onnx_swapped(&doc->arena, tensor->data_type, &view, error));
    }
    *out = view;
    return SBIT_OK;
}
