/* type.c: sbit_type from and to TypeProto. >>type
 *
 * Called by: import, export, edit. Calls: ir (symbols).
 * A dimension with a negative number, as some exporters write for "unknown", is taken as unknown.
 * Maps, sparse tensors, opaque types and nested sequences are carried: their sbit_type says only
 * the kind, and export writes the TypeProto that was read.
 */
#include "graph_private.h"

/* >>from TypeProto */

/* What converters write where they have no name: "?", "-1", "*", "None", "unknown". */
static bool sbit__type_is_no_name(const char *name)
{
    static const char *const words[] = {"none", "unknown", "unk", "null", "dynamic"};
    char lower[16] = "";
    bool letters = false;
    for (size_t i = 0; name[i] != '\0'; i++) {
        const char c = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
        letters = letters || (c >= 'a' && c <= 'z') || (unsigned char)c >= 128;
        lower[i < sizeof lower - 1 ? i : sizeof lower - 2] = c;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(words); i++) {
        if (sbit__streq(lower, words[i])) {
            return true;
        }
    }
    return !letters;
}

static sbit_status sbit__type_read_dim(const sbit_graph *graph, sbit_graph *maker,
                                       const sbit_onnx_dimension *source, sbit_dim *out,
                                       sbit_error *error)
{
    out->value = 0;
    out->symbol = SBIT_SYMBOL_ANY;
    if (SBIT_ONNX_HAS(source, SBIT_ONNX_DIMENSION_DIM_VALUE)) {
        if (source->dim_value >= 0) {
            out->value = source->dim_value;
            out->symbol = 0;
        }
        return SBIT_OK;
    }
    if (source->dim_param.size == 0 || sbit__type_is_no_name(source->dim_param.data)) {
        return SBIT_OK;
    }
    if (maker != NULL) {
        return sbit_graph_symbol(maker, source->dim_param.data, &out->symbol, error);
    }
    sbit__map_find(&graph->family->symbol_of, source->dim_param.data, &out->symbol);
    return SBIT_OK;
}

static sbit_status sbit__type_read_tensor(const sbit_graph *graph, sbit_graph *maker,
                                          const char *name, int32_t elem_type,
                                          const sbit_onnx_shape *shape, sbit_type *out,
                                          sbit_error *error)
{
    if (elem_type < 0 || elem_type >= SBIT_DTYPE_COUNT) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, name,
                          "'%s' has the unknown element type %ld", name, (long)elem_type);
    }
    out->dtype = (sbit_dtype)elem_type;
    if (shape == NULL) {
        return SBIT_OK;
    }
    if (shape->dim_count > SBIT_MAX_RANK) {
        return sbit__fail(error, SBIT_ERR_LIMIT, name, "'%s' has rank %llu, at most %d work", name,
                          (unsigned long long)shape->dim_count, SBIT_MAX_RANK);
    }
    out->rank = (int32_t)shape->dim_count;
    for (size_t i = 0; i < shape->dim_count; i++) {
        SBIT__TRY(sbit__type_read_dim(graph, maker, &shape->dim[i], &out->dims[i], error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_type_from_onnx(const sbit_graph *graph, sbit_graph *maker,
                                                const char *name, const sbit_onnx_type *source,
                                                sbit_type *out, sbit_error *error)
{
    sbit__graph_type_unknown(out);
    if (source == NULL) {
        return SBIT_OK;
    }
    if (source->optional_type != NULL) {
        out->kind = SBIT_KIND_OPTIONAL;
        source = source->optional_type->elem_type;
    }
    if (source != NULL && source->sequence_type != NULL) {
        if (out->kind == SBIT_KIND_OPTIONAL) {
            out->of = SBIT_KIND_SEQUENCE;
        } else {
            out->kind = SBIT_KIND_SEQUENCE;
        }
        source = source->sequence_type->elem_type;
    }
    if (source == NULL) {
        return SBIT_OK;
    }
    if (source->tensor_type != NULL) {
        return sbit__type_read_tensor(graph, maker, name, source->tensor_type->elem_type,
                                      source->tensor_type->shape, out, error);
    }
    if (out->kind != SBIT_KIND_TENSOR) {
        return SBIT_OK; /* a sequence or optional of something that is only carried */
    }
    if (source->sparse_tensor_type != NULL) {
        out->kind = SBIT_KIND_SPARSE;
    } else if (source->map_type != NULL) {
        out->kind = SBIT_KIND_MAP;
    } else if (source->opaque_type != NULL) {
        out->kind = SBIT_KIND_OPAQUE;
    }
    return SBIT_OK;
}

/* >>to TypeProto */
static sbit_status sbit__type_write_shape(const sbit_graph *graph, sbit_onnx_doc *doc,
                                          const sbit_type *type, sbit_onnx_shape **out,
                                          sbit_error *error)
{
    const size_t rank = (size_t)type->rank;
    sbit_onnx_shape *shape = (sbit_onnx_shape *)sbit_onnx_alloc(doc, 1, sizeof(*shape));
    sbit_onnx_dimension *dims =
        (sbit_onnx_dimension *)sbit_onnx_alloc(doc, rank == 0 ? 1 : rank, sizeof(*dims));
    if (shape == NULL || dims == NULL) {
        return sbit__fail_oom(error, rank * sizeof(*dims));
    }
    for (size_t i = 0; i < rank; i++) {
        const sbit_dim *dim = &type->dims[i];
        if (dim->symbol == 0) {
            SBIT_ONNX_SET(&dims[i], SBIT_ONNX_DIMENSION_DIM_VALUE, dim_value, dim->value);
        } else if (dim->symbol != SBIT_SYMBOL_ANY) {
            SBIT_ONNX_SET(&dims[i], SBIT_ONNX_DIMENSION_DIM_PARAM, dim_param,
                          sbit__str(sbit_graph_symbol_name(graph, dim->symbol)));
        }
    }
    shape->dim = dims;
    shape->dim_count = rank;
    *out = shape;
    return SBIT_OK;
}

/* *inner gets a TypeProto inside an optional or sequence. */
static sbit_status sbit__type_wrap(sbit_onnx_doc *doc, sbit_value_kind kind, sbit_onnx_type *outer,
                                   sbit_onnx_type **inner, sbit_error *error)
{
    sbit_onnx_type *type = (sbit_onnx_type *)sbit_onnx_alloc(doc, 1, sizeof(*type));
    if (kind == SBIT_KIND_OPTIONAL) {
        outer->optional_type =
            (sbit_onnx_type_optional *)sbit_onnx_alloc(doc, 1, sizeof(*outer->optional_type));
    } else {
        outer->sequence_type =
            (sbit_onnx_type_sequence *)sbit_onnx_alloc(doc, 1, sizeof(*outer->sequence_type));
    }
    if (type == NULL || (outer->optional_type == NULL && outer->sequence_type == NULL)) {
        return sbit__fail_oom(error, sizeof(*type));
    }
    if (outer->optional_type != NULL) {
        outer->optional_type->elem_type = type;
    } else {
        outer->sequence_type->elem_type = type;
    }
    *inner = type;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_type_to_onnx(const sbit_graph *graph, sbit_onnx_doc *doc,
                                              const sbit_type *type, sbit_onnx_type **out,
                                              sbit_error *error)
{
    sbit_onnx_type *root = (sbit_onnx_type *)sbit_onnx_alloc(doc, 1, sizeof(*root));
    sbit_onnx_type *inner = root;
    if (root == NULL) {
        return sbit__fail_oom(error, sizeof(*root));
    }
    if (type->kind == SBIT_KIND_OPTIONAL) {
        SBIT__TRY(sbit__type_wrap(doc, SBIT_KIND_OPTIONAL, inner, &inner, error));
    }
    if (type->kind == SBIT_KIND_SEQUENCE || type->of == SBIT_KIND_SEQUENCE) {
        SBIT__TRY(sbit__type_wrap(doc, SBIT_KIND_SEQUENCE, inner, &inner, error));
    }
    inner->tensor_type =
        (sbit_onnx_type_tensor *)sbit_onnx_alloc(doc, 1, sizeof(*inner->tensor_type));
    if (inner->tensor_type == NULL) {
        return sbit__fail_oom(error, sizeof(*inner->tensor_type));
    }
    SBIT_ONNX_SET(inner->tensor_type, SBIT_ONNX_TYPE_TENSOR_ELEM_TYPE, elem_type,
                  (int32_t)type->dtype);
    if (type->rank >= 0) {
        SBIT__TRY(sbit__type_write_shape(graph, doc, type, &inner->tensor_type->shape, error));
    }
    *out = root;
    return SBIT_OK;
}
