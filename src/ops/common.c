/* common.c: what the operator families share: failing, attributes and inputs as numbers, types,
 * broadcasting, computing in float32. >>ops-common
 *
 * Called by: the families, infer, exec. Calls: graph.
 * Does not: know any operator. Works in every phase; what a phase does not have is simply unknown.
 */
#include "ops_private.h"

#include <stdio.h> /* vsnprintf */

/* >>failing */

SPARSEBIT_API sbit_status sbit_op_fail(const sbit_op_call *call, sbit_status status,
                                       sbit_error *error, const char *format, ...)
{
    char node[160] = "", text[sizeof(((sbit_error *)0)->message)];
    const char *where = "";
    va_list args;
    if (error == NULL) {
        return status;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (call->graph != NULL && call->node != NULL) {
        sbit_graph_describe(call->graph, call->node->id, node, sizeof node);
        where = call->node->name;
    } else if (call->row != NULL) {
        snprintf(node, sizeof node, "%s", call->row->op_type);
    }
    return sbit__fail(error, status, where, "%s: %s", node, text);
}

SBIT__FN sbit_status sbit__op_inputs(const sbit_op_call *call, int32_t min, int32_t max,
                                     sbit_error *error)
{
    if (call->input_count < min || call->input_count > max) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has %d inputs, but needs %s%d",
                            (int)call->input_count,
                            call->input_count < min ? "at least " : "at most ",
                            (int)(call->input_count < min ? min : max));
    }
    for (int32_t i = 0; i < min; i++) {
        if (call->in_type[i] == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
    }
    return SBIT_OK;
}

/* >>types */

SBIT__FN sbit_dim sbit__dim(int64_t value)
{
    sbit_dim dim;
    dim.value = value;
    dim.symbol = 0;
    return dim;
}

SBIT__FN sbit_dim sbit__dim_any(void)
{
    sbit_dim dim;
    dim.value = 0;
    dim.symbol = SBIT_SYMBOL_ANY;
    return dim;
}

SBIT__FN bool sbit__dim_known(sbit_dim dim)
{
    return dim.symbol == 0;
}

SBIT__FN bool sbit__dim_equal(sbit_dim a, sbit_dim b)
{
    return a.symbol == b.symbol && a.symbol != SBIT_SYMBOL_ANY &&
           (a.symbol != 0 || a.value == b.value);
}

SBIT__FN sbit_type sbit__type_unknown(void)
{
    sbit_type type;
    memset(&type, 0, sizeof type);
    type.kind = SBIT_KIND_TENSOR;
    type.dtype = SBIT_UNDEFINED;
    type.rank = -1;
    for (int32_t i = 0; i < SBIT_MAX_RANK; i++) {
        type.dims[i] = sbit__dim_any();
    }
    return type;
}

SBIT__FN bool sbit__type_static(const sbit_type *type)
{
    if (type->kind != SBIT_KIND_TENSOR || type->dtype == SBIT_UNDEFINED || type->rank < 0) {
        return false;
    }
    for (int32_t i = 0; i < type->rank; i++) {
        if (!sbit__dim_known(type->dims[i])) {
            return false;
        }
    }
    return true;
}

SBIT__FN sbit_type *sbit__op_out(const sbit_op_call *call, int32_t i, sbit_dtype dtype,
                                 int32_t rank)
{
    sbit_type *type = i < call->output_count ? call->out_type[i] : NULL;
    if (type == NULL) {
        return NULL;
    }
    *type = sbit__type_unknown();
    type->dtype = dtype;
    type->rank = rank;
    return type;
}

SBIT__FN void sbit__op_same_type(const sbit_op_call *call, int32_t output, int32_t input)
{
    if (output < call->output_count && call->out_type[output] != NULL &&
        input < call->input_count && call->in_type[input] != NULL) {
        *call->out_type[output] = *call->in_type[input];
    }
}

SBIT__FN sbit_type sbit__type_of_tensor(const sbit_tensor *tensor)
{
    sbit_type type = sbit__type_unknown();
    type.dtype = tensor->dtype;
    type.rank = tensor->rank;
    for (int32_t i = 0; i < tensor->rank; i++) {
        type.dims[i] = sbit__dim(tensor->dims[i]);
    }
    return type;
}

SBIT__FN void sbit__type_describe(const sbit_graph *graph, const sbit_type *type, char *text,
                                  size_t size)
{
    size_t used = 0;
    int written = snprintf(text, size, "%s%s[",
                           type->kind == SBIT_KIND_SEQUENCE   ? "sequence of "
                           : type->kind == SBIT_KIND_OPTIONAL ? "optional "
                                                              : "",
                           sbit_dtype_name((int32_t)type->dtype));
    used = written < 0 ? 0 : (size_t)written;
    if (type->rank < 0 && used < size) {
        snprintf(text + used, size - used, "any shape]");
        return;
    }
    for (int32_t i = 0; i < type->rank && used < size; i++) {
        const char *comma = i > 0 ? "," : "";
        const uint32_t symbol = type->dims[i].symbol;
        if (symbol == 0) {
            written =
                snprintf(text + used, size - used, "%s%lld", comma, (long long)type->dims[i].value);
        } else {
            const char *name =
                symbol != SBIT_SYMBOL_ANY ? sbit_graph_symbol_name(graph, symbol) : NULL;
            written = snprintf(text + used, size - used, "%s%s", comma, name != NULL ? name : "?");
        }
        used += written < 0 ? 0 : (size_t)written;
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

static sbit_dim sbit__broadcast_dim(sbit_dim a, sbit_dim b, bool *fits)
{
    if (sbit__dim_known(a) && a.value == 1) {
        return b;
    }
    if ((sbit__dim_known(b) && b.value == 1) || sbit__dim_equal(a, b)) {
        return a;
    }
    if (sbit__dim_known(a) && sbit__dim_known(b)) {
        *fits = false;
    }
    /* A number other than 1 wins: the unknown one must be 1 or the same number. */
    return sbit__dim_known(a) ? a : sbit__dim_known(b) ? b : sbit__dim_any();
}

SBIT__FN sbit_status sbit__op_broadcast(const sbit_op_call *call, const sbit_type *const *in,
                                        int32_t count, sbit_type *out, sbit_error *error)
{
    sbit_dim dims[SBIT_MAX_RANK];
    int32_t rank = 0;
    bool fits = true;
    for (int32_t k = 0; k < count; k++) {
        if (in[k] == NULL || in[k]->rank < 0) {
            out->rank = -1;
            return SBIT_OK;
        }
        rank = in[k]->rank > rank ? in[k]->rank : rank;
    }
    for (int32_t i = 0; i < rank; i++) {
        dims[i] = sbit__dim(1);
    }
    for (int32_t k = 0; k < count; k++) {
        for (int32_t i = 0; i < in[k]->rank; i++) {
            sbit_dim *dim = &dims[rank - in[k]->rank + i];
            *dim = sbit__broadcast_dim(*dim, in[k]->dims[i], &fits);
        }
        if (!fits) {
            char a[96], b[96];
            sbit__type_describe(call->graph, in[0], a, sizeof a);
            sbit__type_describe(call->graph, in[k], b, sizeof b);
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%s and %s do not broadcast", a, b);
        }
    }
    out->rank = rank;
    memcpy(out->dims, dims, (size_t)rank * sizeof dims[0]);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_axis(const sbit_op_call *call, int64_t axis, int32_t rank,
                                   int32_t *out, sbit_error *error)
{
    if (axis < -(int64_t)rank || axis >= rank) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "axis %lld is outside of a tensor of rank %d", (long long)axis,
                            (int)rank);
    }
    *out = (int32_t)(axis < 0 ? axis + rank : axis);
    return SBIT_OK;
}

/* >>numbers from attributes and inputs */

static sbit_status sbit__op_too_many(const sbit_op_call *call, const char *name, int32_t input,
                                     int64_t count, int64_t capacity, sbit_error *error)
{
    if (name != NULL) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "%s has %lld entries, at most %lld make sense", name, (long long)count,
                            (long long)capacity);
    }
    return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                        "input %d has %lld entries, at most %lld make sense", (int)input,
                        (long long)count, (long long)capacity);
}

static const sbit_tensor *sbit__op_known_input(const sbit_op_call *call, int32_t input)
{
    if (input < 0 || input >= call->input_count || call->in == NULL) {
        return NULL;
    }
    return call->in[input];
}

static sbit_status sbit__op_bad_attr(const sbit_op_call *call, const char *name, const char *what,
                                     sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "attribute '%s' is no list of %s",
                        name, what);
}

SBIT__FN sbit_status sbit__op_ints(const sbit_op_call *call, const char *name, int32_t input,
                                   int64_t *values, int64_t capacity, int64_t *count,
                                   sbit_error *error)
{
    const sbit_attr *attr = name != NULL ? sbit_node_attr(call->node, name) : NULL;
    const sbit_tensor *tensor = NULL;
    const bool single = attr != NULL && attr->type == SBIT_ONNX_ATTR_INT;
    const int64_t listed = attr == NULL ? -1 : single ? 1 : (int64_t)attr->count;
    *count = -1;
    if (attr != NULL && (single || attr->type == SBIT_ONNX_ATTR_INTS)) {
        if (listed > capacity) {
            return sbit__op_too_many(call, name, input, listed, capacity, error);
        }
        for (int64_t i = 0; i < listed; i++) {
            values[i] = single ? attr->i : attr->ints[i];
        }
        *count = listed;
        return SBIT_OK;
    }
    if (attr != NULL) {
        return sbit__op_bad_attr(call, name, "integers", error);
    }
    tensor = sbit__op_known_input(call, input);
    if (tensor != NULL) {
        const int64_t n = sbit_tensor_count(tensor);
        if (n > capacity) {
            return sbit__op_too_many(call, NULL, input, n, capacity, error);
        }
        for (int64_t i = 0; i < n; i++) {
            values[i] = sbit__tensor_i64_at(tensor, i);
        }
        *count = n;
        return SBIT_OK;
    }
    if (input < 0 || input >= call->input_count || call->in_elems == NULL ||
        call->in_elems[input] == NULL || call->in_elem_count[input] > capacity) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < call->in_elem_count[input]; i++) {
        if (!sbit__dim_known(call->in_elems[input][i])) {
            return SBIT_OK;
        }
        values[i] = call->in_elems[input][i].value;
    }
    *count = call->in_elem_count[input];
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_floats(const sbit_op_call *call, const char *name, int32_t input,
                                     float *values, int64_t capacity, int64_t *count,
                                     sbit_error *error)
{
    const sbit_attr *attr = name != NULL ? sbit_node_attr(call->node, name) : NULL;
    const sbit_tensor *tensor = NULL;
    const bool single = attr != NULL && attr->type == SBIT_ONNX_ATTR_FLOAT;
    const int64_t listed = attr == NULL ? -1 : single ? 1 : (int64_t)attr->count;
    *count = -1;
    if (attr != NULL && (single || attr->type == SBIT_ONNX_ATTR_FLOATS)) {
        if (listed > capacity) {
            return sbit__op_too_many(call, name, input, listed, capacity, error);
        }
        for (int64_t i = 0; i < listed; i++) {
            values[i] = single ? attr->f : attr->floats[i];
        }
        *count = listed;
        return SBIT_OK;
    }
    if (attr != NULL) {
        return sbit__op_bad_attr(call, name, "numbers", error);
    }
    tensor = sbit__op_known_input(call, input);
    if (tensor != NULL) {
        const int64_t n = sbit_tensor_count(tensor);
        if (n > capacity) {
            return sbit__op_too_many(call, NULL, input, n, capacity, error);
        }
        for (int64_t i = 0; i < n; i++) {
            values[i] = (float)sbit__tensor_f64_at(tensor, i);
        }
        *count = n;
    }
    return SBIT_OK;
}

/* >>strides */

SBIT__FN void sbit__tensor_strides(const sbit_tensor *tensor, int64_t strides[SBIT_MAX_RANK])
{
    int64_t stride = 1;
    memset(strides, 0, SBIT_MAX_RANK * sizeof strides[0]);
    for (int32_t i = tensor->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= tensor->dims[i];
    }
}

/* >>float32 for the other float types. Scratch holds, each part 64-byte aligned: the pointer
 * arrays and tensors of the converted call, the converted elements, then what run32 asked for. */

typedef struct sbit__as_f32 {
    const sbit_tensor **in;
    sbit_tensor **out;
    const sbit_type **in_type;
    sbit_type **out_type;
    sbit_tensor *tensors;
    sbit_type *types;
} sbit__as_f32;

static bool sbit__as_f32_converts(sbit_dtype dtype)
{
    return dtype == SBIT_F16 || dtype == SBIT_BF16 || dtype == SBIT_F64;
}

static size_t sbit__as_f32_align(size_t bytes)
{
    return (bytes + 63u) & ~(size_t)63u;
}

static size_t sbit__as_f32_head(const sbit_op_call *call)
{
    const size_t count = (size_t)call->input_count + (size_t)call->output_count;
    return sbit__as_f32_align(
        count * (2 * sizeof(void *) + sizeof(sbit_tensor) + sizeof(sbit_type)) + 64);
}

static size_t sbit__as_f32_bytes(const sbit_type *type)
{
    int64_t count = 1;
    if (type == NULL || !sbit__as_f32_converts(type->dtype) || type->rank < 0) {
        return 0;
    }
    for (int32_t i = 0; i < type->rank; i++) {
        count *= type->dims[i].value;
    }
    return sbit__as_f32_align((size_t)count * sizeof(float));
}

SBIT__FN size_t sbit__op_as_f32_scratch(const sbit_op_call *call)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < call->input_count; i++) {
        bytes += sbit__as_f32_bytes(call->in_type[i]);
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        bytes += sbit__as_f32_bytes(call->out_type[i]);
    }
    return bytes == 0 ? 0 : bytes + sbit__as_f32_head(call);
}

/* Cuts the head of the scratch memory into the arrays. */
static sbit__as_f32 sbit__as_f32_place(const sbit_op_call *call, char *head)
{
    const size_t ins = (size_t)call->input_count, outs = (size_t)call->output_count;
    sbit__as_f32 place;
    place.types = (sbit_type *)(void *)head;
    head += (ins + outs) * sizeof(sbit_type);
    place.tensors = (sbit_tensor *)(void *)head;
    head += (ins + outs) * sizeof(sbit_tensor);
    place.in = (const sbit_tensor **)(void *)head;
    head += ins * sizeof(void *);
    place.out = (sbit_tensor **)(void *)head;
    head += outs * sizeof(void *);
    place.in_type = (const sbit_type **)(void *)head;
    head += ins * sizeof(void *);
    place.out_type = (sbit_type **)(void *)head;
    return place;
}

SBIT__FN sbit_status sbit__op_as_f32(const sbit_op_call *call,
                                     sbit_status (*run32)(const sbit_op_call *, sbit_error *),
                                     sbit_error *error)
{
    sbit_op_call call32 = *call;
    sbit__as_f32 place;
    char *next = (char *)call->scratch;
    if (sbit__op_as_f32_scratch(call) == 0) {
        return run32(call, error);
    }
    place = sbit__as_f32_place(call, next);
    next += sbit__as_f32_head(call);
    for (int32_t i = 0; i < call->input_count + call->output_count; i++) {
        const bool is_in = i < call->input_count;
        const int32_t k = is_in ? i : i - call->input_count;
        const sbit_tensor *source = is_in ? call->in[k] : call->out[k];
        const sbit_type *type = is_in ? call->in_type[k] : call->out_type[k];
        sbit_tensor *tensor = source != NULL ? &place.tensors[i] : NULL;
        sbit_type *type32 = type != NULL ? &place.types[i] : NULL;
        if (type32 != NULL) {
            *type32 = *type;
            type32->dtype = sbit__as_f32_converts(type->dtype) ? SBIT_F32 : type->dtype;
        }
        if (tensor != NULL) {
            *tensor = *source;
        }
        if (tensor != NULL && sbit__as_f32_converts(source->dtype)) {
            tensor->dtype = SBIT_F32;
            tensor->data = next;
            if (is_in) {
                sbit__convert(source->dtype, source->data, SBIT_F32, next,
                              sbit_tensor_count(source));
            }
        }
        next += sbit__as_f32_bytes(type);
        if (is_in) {
            place.in[k] = tensor;
            place.in_type[k] = type32;
        } else {
            place.out[k] = tensor;
            place.out_type[k] = type32;
        }
    }
    call32.in = place.in;
    call32.out = place.out;
    call32.in_type = place.in_type;
    call32.out_type = place.out_type;
    call32.scratch = next;
    SBIT__TRY(run32(&call32, error));
    for (int32_t k = 0; k < call->output_count; k++) {
        if (call->out[k] != NULL && sbit__as_f32_converts(call->out[k]->dtype)) {
            sbit__convert(SBIT_F32, place.out[k]->data, call->out[k]->dtype, call->out[k]->data,
                          sbit_tensor_count(call->out[k]));
        }
    }
    return SBIT_OK;
}
