/* backend_values.h: the values that the ONNX project's backend tests are run with:
 * test_data_set_N/input_K.pb. Include after sparsebit.h and test.h. A value lives in *memory, the
 * document it was read into. */
#ifndef SBIT_BACKEND_VALUES_H
#define SBIT_BACKEND_VALUES_H

TEST_FN bool tensor_of(sbit_onnx_doc *doc, const sbit_onnx_tensor *source, sbit_value *out,
                       sbit_error *error)
{
    sbit_str bytes = {NULL, 0};
    memset(out, 0, sizeof *out);
    out->tensor.dtype = (sbit_dtype)source->data_type;
    out->tensor.rank = (int32_t)source->dims_count;
    for (size_t i = 0; i < source->dims_count && i < SBIT_MAX_RANK; i++) {
        out->tensor.dims[i] = source->dims[i];
    }
    if (source->data_type == SBIT_STRING) {
        out->tensor.data = source->string_data;
        return true;
    }
    if (sbit_onnx_tensor_data(doc, source, &bytes, error) != SBIT_OK) {
        return false;
    }
    out->tensor.data = sbit_onnx_alloc(doc, bytes.size + 1, 1);
    if (bytes.size > 0) {
        memcpy(out->tensor.data, bytes.data, bytes.size);
    }
    return true;
}

TEST_FN bool items_of(sbit_onnx_doc *doc, const sbit_onnx_sequence *source, sbit_value *out,
                      sbit_error *error)
{
    memset(out, 0, sizeof *out);
    out->kind = SBIT_KIND_SEQUENCE;
    out->item_count = (int64_t)source->tensor_values_count;
    out->items =
        (sbit_value *)sbit_onnx_alloc(doc, source->tensor_values_count + 1, sizeof(sbit_value));
    for (size_t i = 0; i < source->tensor_values_count; i++) {
        if (!tensor_of(doc, &source->tensor_values[i], &out->items[i], error)) {
            return false;
        }
    }
    return true;
}

TEST_FN bool load_value(const char *path, const sbit_type *type, sbit_onnx_doc **memory,
                        sbit_value *out, sbit_error *error)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    memset(&desc, 0, sizeof desc);
    desc.kind = type->kind == SBIT_KIND_SEQUENCE   ? SBIT_ONNX_SEQUENCE
                : type->kind == SBIT_KIND_OPTIONAL ? SBIT_ONNX_OPTIONAL
                                                   : SBIT_ONNX_TENSOR;
    if (sbit_onnx_load(path, &desc, &doc, error) != SBIT_OK) {
        return false;
    }
    *memory = doc;
    if (desc.kind == SBIT_ONNX_TENSOR) {
        return tensor_of(doc, (const sbit_onnx_tensor *)sbit_onnx_doc_root(doc), out, error);
    }
    if (desc.kind == SBIT_ONNX_SEQUENCE) {
        return items_of(doc, (const sbit_onnx_sequence *)sbit_onnx_doc_root(doc), out, error);
    }
    const sbit_onnx_optional *optional = (const sbit_onnx_optional *)sbit_onnx_doc_root(doc);
    memset(out, 0, sizeof *out);
    out->kind = SBIT_KIND_OPTIONAL;
    out->items = (sbit_value *)sbit_onnx_alloc(doc, 1, sizeof(sbit_value));
    out->item_count = optional->tensor_value != NULL || optional->sequence_value != NULL;
    return optional->tensor_value != NULL
               ? tensor_of(doc, optional->tensor_value, out->items, error)
               : optional->sequence_value == NULL ||
                     items_of(doc, optional->sequence_value, out->items, error);
}

#endif /* SBIT_BACKEND_VALUES_H */
