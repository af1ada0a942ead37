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

SBIT__FN sbit_status sbit__op_keep(const sbit_op_call *call, const void *plan, size_t bytes,
                                   sbit_error *error)
{
    void *block = call->alloc_params(call, bytes);
    if (block == NULL) {
        return sbit_op_fail(call, SBIT_ERR_OUT_OF_MEMORY, error, "out of memory");
    }
    memcpy(block, plan, bytes);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_kept(const sbit_op_call *call, void *plan, size_t bytes,
                                   sbit_error *error)
{
    if (call->params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    memcpy(plan, call->params, bytes);
    return SBIT_OK;
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

SBIT__FN sbit_status sbit__op_infer_like(const sbit_op_call *call, int32_t min, int32_t max,
                                         int32_t like, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, min, max, error));
    sbit__op_same_type(call, 0, like);
    return SBIT_OK;
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

/* Where a list comes from: *attr, or *tensor, or neither (count -1). `single`: one number may stand
 * for a list. */
static sbit_status sbit__op_list(const sbit_op_call *call, const char *name, int32_t input,
                                 sbit_onnx_attribute_type single, sbit_onnx_attribute_type list,
                                 int64_t capacity, const sbit_attr **attr,
                                 const sbit_tensor **tensor, int64_t *count, sbit_error *error)
{
    *attr = name != NULL ? sbit_node_attr(call->node, name) : NULL;
    *tensor = *attr == NULL ? sbit__op_known_input(call, input) : NULL;
    *count = -1;
    if (*attr != NULL && (*attr)->type != single && (*attr)->type != list) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "attribute '%s' is no list of %s",
                            name, single == SBIT_ONNX_ATTR_INT ? "integers" : "numbers");
    }
    const int64_t n = *attr == NULL            ? *tensor != NULL ? sbit_tensor_count(*tensor) : -1
                      : (*attr)->type == single ? 1
                                                : (int64_t)(*attr)->count;
    if (n > capacity) {
        return sbit__op_too_many(call, *attr != NULL ? name : NULL, input, n, capacity, error);
    }
    *count = n;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_ints(const sbit_op_call *call, const char *name, int32_t input,
                                   int64_t *values, int64_t capacity, int64_t *count,
                                   sbit_error *error)
{
    const sbit_attr *attr = NULL;
    const sbit_tensor *tensor = NULL;
    SBIT__TRY(sbit__op_list(call, name, input, SBIT_ONNX_ATTR_INT, SBIT_ONNX_ATTR_INTS, capacity,
                            &attr, &tensor, count, error));
    for (int64_t i = 0; i < *count; i++) {
        values[i] = tensor != NULL                     ? sbit__tensor_i64_at(tensor, i)
                    : attr->type == SBIT_ONNX_ATTR_INT ? attr->i
                                                       : attr->ints[i];
    }
    if (*count >= 0 || input < 0 || input >= call->input_count || call->in_elems == NULL ||
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
    const sbit_attr *attr = NULL;
    const sbit_tensor *tensor = NULL;
    SBIT__TRY(sbit__op_list(call, name, input, SBIT_ONNX_ATTR_FLOAT, SBIT_ONNX_ATTR_FLOATS, capacity,
                            &attr, &tensor, count, error));
    for (int64_t i = 0; i < *count; i++) {
        values[i] = tensor != NULL                       ? (float)sbit__tensor_f64_at(tensor, i)
                    : attr->type == SBIT_ONNX_ATTR_FLOAT ? attr->f
                                                         : attr->floats[i];
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_word(const sbit_op_call *call, const char *name,
                                   const char *const *words, int32_t count, int32_t *out,
                                   sbit_error *error)
{
    const char *text = sbit_node_string(call->node, name, words[0]);
    char known[160] = "";
    size_t used = 0;
    for (*out = 0; *out < count; (*out)++) {
        if (strcmp(text, words[*out]) == 0) {
            return SBIT_OK;
        }
    }
    for (int32_t i = 0; i < count && used < sizeof known; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                                 words[i]);
    }
    return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "%s='%.40s' is not one of %s", name,
                        text, known);
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

/* >>one float type for all operands. Scratch holds, each part 64-byte aligned: the pointer arrays
 * and tensors of the converted call, the converted elements, then what the run asked for. */

typedef struct sbit__in_float {
    const sbit_tensor **in;
    sbit_tensor **out;
    const sbit_type **in_type;
    sbit_type **out_type;
    sbit_tensor *tensors;
    sbit_type *types;
} sbit__in_float;

/* float64 if anything is: nothing else holds it. */
static sbit_dtype sbit__in_float_type(const sbit_op_call *call)
{
    for (int32_t i = 0; i < call->input_count + call->output_count; i++) {
        const sbit_type *type =
            i < call->input_count ? call->in_type[i] : call->out_type[i - call->input_count];
        if (type != NULL && type->dtype == SBIT_F64) {
            return SBIT_F64;
        }
    }
    return SBIT_F32;
}

static bool sbit__in_float_converts(sbit_dtype dtype, sbit_dtype to)
{
    return dtype != to && (SBIT_T(dtype) & SBIT_T_FLOATS) != 0;
}

static size_t sbit__in_float_align(size_t bytes)
{
    return (bytes + 63u) & ~(size_t)63u;
}

static size_t sbit__in_float_head(const sbit_op_call *call)
{
    const size_t count = (size_t)call->input_count + (size_t)call->output_count;
    return sbit__in_float_align(
        count * (2 * sizeof(void *) + sizeof(sbit_tensor) + sizeof(sbit_type)) + 64);
}

static size_t sbit__in_float_bytes(const sbit_type *type, sbit_dtype to)
{
    int64_t count = 1;
    if (type == NULL || !sbit__in_float_converts(type->dtype, to) || type->rank < 0) {
        return 0;
    }
    for (int32_t i = 0; i < type->rank; i++) {
        count *= type->dims[i].value;
    }
    return sbit__in_float_align((size_t)count * (to == SBIT_F64 ? sizeof(double) : sizeof(float)));
}

SBIT__FN size_t sbit__op_in_float_scratch(const sbit_op_call *call)
{
    const sbit_dtype to = sbit__in_float_type(call);
    size_t bytes = 0;
    for (int32_t i = 0; i < call->input_count; i++) {
        bytes += sbit__in_float_bytes(call->in_type[i], to);
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        bytes += sbit__in_float_bytes(call->out_type[i], to);
    }
    return bytes == 0 ? 0 : bytes + sbit__in_float_head(call);
}

/* Cuts the head of the scratch memory into the arrays. */
static sbit__in_float sbit__in_float_place(const sbit_op_call *call, char *head)
{
    const size_t ins = (size_t)call->input_count, outs = (size_t)call->output_count;
    sbit__in_float place;
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

/* Operand i of the converted call (inputs, then outputs); its elements go to `data`. */
static void sbit__in_float_operand(const sbit_op_call *call, const sbit__in_float *place, int32_t i,
                                   sbit_dtype to, void *data)
{
    const bool is_in = i < call->input_count;
    const int32_t k = is_in ? i : i - call->input_count;
    const sbit_tensor *source = is_in ? call->in[k] : call->out[k];
    const sbit_type *type = is_in ? call->in_type[k] : call->out_type[k];
    sbit_tensor *tensor = source != NULL ? &place->tensors[i] : NULL;
    sbit_type *float_type = type != NULL ? &place->types[i] : NULL;
    if (float_type != NULL) {
        *float_type = *type;
        float_type->dtype = sbit__in_float_converts(type->dtype, to) ? to : type->dtype;
    }
    if (tensor != NULL) {
        *tensor = *source;
    }
    if (tensor != NULL && sbit__in_float_converts(source->dtype, to)) {
        tensor->dtype = to;
        tensor->data = data;
        if (is_in) {
            sbit__convert(source->dtype, source->data, to, data, sbit_tensor_count(source));
        }
    }
    if (is_in) {
        place->in[k] = tensor;
        place->in_type[k] = float_type;
    } else {
        place->out[k] = tensor;
        place->out_type[k] = float_type;
    }
}

SBIT__FN sbit_status sbit__op_in_float(const sbit_op_call *call,
                                       sbit_status (*run32)(const sbit_op_call *, sbit_error *),
                                       sbit_status (*run64)(const sbit_op_call *, sbit_error *),
                                       sbit_error *error)
{
    const sbit_dtype to = sbit__in_float_type(call);
    sbit_op_call converted = *call;
    sbit__in_float place;
    char *next = (char *)call->scratch;
    if (sbit__op_in_float_scratch(call) == 0) {
        return to == SBIT_F64 ? run64(call, error) : run32(call, error);
    }
    place = sbit__in_float_place(call, next);
    next += sbit__in_float_head(call);
    for (int32_t i = 0; i < call->input_count + call->output_count; i++) {
        const bool is_in = i < call->input_count;
        sbit__in_float_operand(call, &place, i, to, next);
        next += sbit__in_float_bytes(
            is_in ? call->in_type[i] : call->out_type[i - call->input_count], to);
    }
    converted.in = place.in;
    converted.out = place.out;
    converted.in_type = place.in_type;
    converted.out_type = place.out_type;
    converted.scratch = next;
    SBIT__TRY(to == SBIT_F64 ? run64(&converted, error) : run32(&converted, error));
    for (int32_t k = 0; k < call->output_count; k++) {
        if (call->out[k] != NULL && sbit__in_float_converts(call->out[k]->dtype, to)) {
            sbit__convert(to, place.out[k]->data, call->out[k]->dtype, call->out[k]->data,
                          sbit_tensor_count(call->out[k]));
        }
    }
    return SBIT_OK;
}
