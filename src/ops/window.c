/* window.c: sliding windows of convolutions and pools, and small things that operator families
 * share. >>window
 *
 * Lengths, with extent e = (kernel - 1) * dilation + 1 and p = pad_begin + pad_end:
 *   NOTSET       floor((in + p - e) / stride) + 1
 *   ... with ceil_mode: ceil instead of floor; a last window that would start behind the input and
 *                its front padding is dropped, as it would see nothing but padding
 *   VALID        the same with p = 0
 *   SAME_*       ceil(in / stride), p = (out - 1) * stride + e - in; for convolutions at least 0
 */
#include "window_private.h"

#define SBIT__CHECK_OUTPUTS 8         /* more than any operator of these families has */
#define SBIT__WINDOW_LIMIT 0x7fffffff /* of every attribute: keeps sums and products in range */

SBIT__FN bool sbit__op_has(const sbit_op_call *call, int32_t input)
{
    return input < call->input_count && call->in_type[input] != NULL;
}

SBIT__FN bool sbit__op_wants(const sbit_op_call *call, int32_t output)
{
    return output < call->output_count && call->out_type[output] != NULL;
}

SBIT__FN sbit_status sbit__op_rank(const sbit_op_call *call, int32_t input, int32_t *rank,
                                   sbit_error *error)
{
    *rank = -1;
    if (!sbit__op_has(call, input)) {
        return SBIT_OK;
    }
    if (call->in_type[input]->kind != SBIT_KIND_TENSOR) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d is not a tensor", (int)input);
    }
    *rank = call->in_type[input]->rank;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_dtypes(const sbit_op_call *call, uint32_t mask, uint32_t types,
                                     sbit_error *error)
{
    const sbit_dtype first = call->in_type[0]->dtype;
    for (int32_t i = 0; i < call->input_count && i < 32; i++) {
        if ((mask >> i & 1) == 0 || !sbit__op_has(call, i) ||
            call->in_type[i]->dtype == SBIT_UNDEFINED) {
            continue;
        }
        const sbit_dtype dtype = call->in_type[i]->dtype;
        const bool fits =
            types != 0 ? (types & SBIT_T(dtype)) != 0 : dtype == first || first == SBIT_UNDEFINED;
        if (!fits) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "element type %s of input %d does not fit, input 0 is %s",
                                sbit_dtype_name((int32_t)dtype), (int)i,
                                sbit_dtype_name((int32_t)first));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_check(const sbit_op_call *call, sbit_error *error)
{
    sbit_type types[SBIT__CHECK_OUTPUTS];
    sbit_type *out[SBIT__CHECK_OUTPUTS] = {NULL};
    sbit_op_call copy = *call;
    if (call->output_count > SBIT__CHECK_OUTPUTS) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has %d outputs",
                            (int)call->output_count);
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        types[i] = sbit__type_unknown();
        out[i] = call->out_type[i] != NULL ? &types[i] : NULL;
    }
    copy.out_type = out;
    return call->row->infer(&copy, error);
}

SBIT__FN sbit_status sbit__op_prepare_check(const sbit_op_call *call, sbit_error *error)
{
    *call->scratch_bytes = 0;
    return sbit__op_check(call, error);
}

SBIT__FN sbit_status sbit__op_prepare_f32(const sbit_op_call *call, sbit_error *error)
{
    *call->scratch_bytes = sbit__op_in_float_scratch(call);
    return sbit__op_check(call, error);
}

SBIT__FN sbit_status sbit__op_no_memory(const sbit_op_call *call, sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_OUT_OF_MEMORY, error, "out of memory");
}

SBIT__FN size_t sbit__align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

SBIT__FN int64_t sbit__type_count(const sbit_type *type, int32_t begin, int32_t end)
{
    int64_t count = 1;
    for (int32_t i = begin; i < end; i++) {
        if (!sbit__dim_known(type->dims[i]) || !sbit__mul_i64(count, type->dims[i].value, &count)) {
            return -1;
        }
    }
    return count;
}

SBIT__FN int64_t sbit__saturating_mul(int64_t a, int64_t b)
{
    int64_t product = 0;
    return sbit__mul_i64(a, b, &product) ? product : INT64_MAX;
}

SBIT__FN int64_t sbit__window_macs(const sbit_type *at, const sbit_type *weight)
{
    int64_t per_element = 1;
    for (int32_t i = 1; i < weight->rank; i++) {
        const sbit_dim dim = weight->dims[i];
        per_element = sbit__saturating_mul(per_element, sbit__dim_known(dim) ? dim.value : 1);
    }
    return sbit__saturating_mul(sbit__type_size(at), per_element);
}

SBIT__FN int64_t sbit__type_size(const sbit_type *type)
{
    int64_t count = 1;
    for (int32_t i = 0; i < type->rank; i++) {
        count =
            sbit__saturating_mul(count, sbit__dim_known(type->dims[i]) ? type->dims[i].value : 1);
    }
    return count;
}

SBIT__FN int64_t sbit__tensor_span(const sbit_tensor *tensor, int32_t begin, int32_t end)
{
    int64_t count = 1;
    for (int32_t i = begin; i < end; i++) {
        count *= tensor->dims[i];
    }
    return count;
}

SBIT__FN bool sbit__op_is_internal(const sbit_op_call *call)
{
    return strcmp(call->node->domain, "sbit") == 0;
}

SBIT__FN sbit_status sbit__epilogue_check(const sbit_op_call *call, int32_t residual,
                                          sbit_error *error)
{
    const sbit_type *out = call->out_type[0];
    if (!sbit__op_is_internal(call)) {
        return SBIT_OK;
    }
    const int64_t activation = sbit_node_int(call->node, "activation", 0);
    if (activation < SBIT__ACT_NONE || activation > SBIT__ACT_GELU) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "activation is %lld",
                            (long long)activation);
    }
    if (sbit__op_has(call, residual) && out != NULL && sbit__type_static(out) &&
        sbit__type_static(call->in_type[residual]) &&
        !sbit__graph_type_equal(out, call->in_type[residual])) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "what is added must have the result's shape");
    }
    return SBIT_OK;
}

SBIT__FN void sbit__epilogue_read_as(const sbit_op_call *call, const char *const names[3], sbit__epilogue *out)
{
    memset(out, 0, sizeof *out);
    if (sbit__op_is_internal(call)) {
        out->activation = (sbit__activation)sbit_node_int(call->node, names[0], 0);
        out->lo = sbit_node_float(call->node, names[1], 0.0f);
        out->hi = sbit_node_float(call->node, names[2], 0.0f);
    }
}

SBIT__FN void sbit__epilogue_read(const sbit_op_call *call, sbit__epilogue *out)
{
    static const char *const names[3] = {"activation", "lo", "hi"};
    sbit__epilogue_read_as(call, names, out);
}

SBIT__FN const sbit__epilogue *sbit__epilogue_of(const sbit_op_call *call,
                                                 const sbit__epilogue *read, int32_t residual,
                                                 sbit__epilogue *out)
{
    *out = *read;
    out->residual = residual < call->input_count && call->in[residual] != NULL
                        ? (const float *)call->in[residual]->data
                        : NULL;
    return out->residual != NULL || out->activation != SBIT__ACT_NONE ? out : NULL;
}

SBIT__FN void sbit__epilogue_apply(const sbit_kernels *kernels, const sbit__epilogue *ep,
                                   int64_t offset, int64_t n, float *y)
{
    if (ep == NULL || n <= 0) {
        return;
    }
    if (ep->residual != NULL) {
        kernels->f32_binary(SBIT__BINARY_ADD, n, y, 1, ep->residual + offset, 1, y);
    }
    if (ep->activation != SBIT__ACT_NONE) {
        kernels->f32_activate(n, y, ep);
    }
}

SBIT__FN int64_t sbit__window_extent(const sbit__window *window, int32_t axis)
{
    return (window->kernel[axis] - 1) * window->dilation[axis] + 1;
}

/* One attribute: `count` integers of at least `least`, or `otherwise` for all. */
static sbit_status sbit__window_ints(const sbit_op_call *call, const char *name, int64_t count,
                                     int64_t least, int64_t otherwise, int64_t *values,
                                     sbit_error *error)
{
    int64_t given = -1;
    SBIT__TRY(sbit__op_ints(call, name, -1, values, 2 * SBIT__MAX_SPATIAL, &given, error));
    if (given < 0) {
        for (int64_t i = 0; i < count; i++) {
            values[i] = otherwise;
        }
        return SBIT_OK;
    }
    if (given != count) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "%s has %lld entries, but the input's rank asks for %lld", name,
                            (long long)given, (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        if (values[i] < least || values[i] > SBIT__WINDOW_LIMIT) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "%s[%lld] is %lld, allowed are %lld to %d", name, (long long)i,
                                (long long)values[i], (long long)least, SBIT__WINDOW_LIMIT);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__window_auto_pad(const sbit_op_call *call, sbit__auto_pad *out,
                                         sbit_error *error)
{
    static const char *const words[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""};
    int32_t word = 0;
    SBIT__TRY(sbit__op_word(call, "auto_pad", words, 5, &word, error));
    *out = (sbit__auto_pad)(word % 4); /* some exporters write the attribute empty */
    return SBIT_OK;
}

static sbit_status sbit__window_kernel(const sbit_op_call *call, const sbit_dim *kernel,
                                       sbit__window *out, sbit_error *error)
{
    const int32_t n = out->spatial;
    int64_t values[2 * SBIT__MAX_SPATIAL] = {0};
    const bool given = sbit_node_attr(call->node, "kernel_shape") != NULL;
    if (!given && kernel == NULL) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "kernel_shape is missing");
    }
    SBIT__TRY(sbit__window_ints(call, "kernel_shape", n, 1, 0, values, error));
    for (int32_t i = 0; i < n; i++) {
        if (kernel != NULL && sbit__dim_known(kernel[i])) {
            if (given && values[i] != kernel[i].value) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "kernel_shape[%d] is %lld, but the weight's dimension is %lld",
                                    (int)i, (long long)values[i], (long long)kernel[i].value);
            }
            if (kernel[i].value < 1 || kernel[i].value > SBIT__WINDOW_LIMIT) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "the weight's spatial dimension %d is %lld", (int)i,
                                    (long long)kernel[i].value);
            }
            values[i] = kernel[i].value;
        }
        out->kernel[i] = values[i];
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__window_read(const sbit_op_call *call, int32_t spatial,
                                       const sbit_dim *kernel, sbit__window *out, sbit_error *error)
{
    int64_t values[2 * SBIT__MAX_SPATIAL];
    memset(out, 0, sizeof *out);
    if (spatial < 1 || spatial > SBIT__MAX_SPATIAL) {
        return sbit_op_fail(call, spatial < 1 ? SBIT_ERR_SHAPE : SBIT_ERR_UNSUPPORTED, error,
                            "input rank %d: 1 to 3 spatial dimensions are supported, behind batch "
                            "and channel",
                            (int)spatial + 2);
    }
    out->spatial = spatial;
    SBIT__TRY(sbit__window_kernel(call, kernel, out, error));
    SBIT__TRY(sbit__window_ints(call, "strides", spatial, 1, 1, values, error));
    memcpy(out->stride, values, (size_t)spatial * sizeof values[0]);
    SBIT__TRY(sbit__window_ints(call, "dilations", spatial, 1, 1, values, error));
    memcpy(out->dilation, values, (size_t)spatial * sizeof values[0]);
    SBIT__TRY(sbit__window_auto_pad(call, &out->auto_pad, error));
    SBIT__TRY(sbit__window_ints(call, "pads", 2 * (int64_t)spatial, 0, 0, values, error));
    if (out->auto_pad == SBIT__PAD_NOTSET) {
        memcpy(out->pad_begin, values, (size_t)spatial * sizeof values[0]);
        memcpy(out->pad_end, values + spatial, (size_t)spatial * sizeof values[0]);
    }
    out->ceil_mode = sbit_node_int(call->node, "ceil_mode", 0) != 0;
    return SBIT_OK;
}

SBIT__FN void sbit__window_split_pad(sbit__window *window, int32_t axis, int64_t total)
{
    const bool lower = window->auto_pad == SBIT__PAD_SAME_LOWER;
    window->pad_begin[axis] = (total + (lower ? 1 : 0)) / 2;
    window->pad_end[axis] = total - window->pad_begin[axis];
}

SBIT__FN sbit_status sbit__window_length(const sbit_op_call *call, sbit__window *window,
                                         int32_t axis, int64_t in, int64_t *out, sbit_error *error)
{
    const int64_t stride = window->stride[axis];
    const int64_t extent = sbit__window_extent(window, axis);
    if (in < 0 || in > INT64_MAX / 4) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "spatial dimension %d is %lld", (int)axis,
                            (long long)in);
    }
    if (window->auto_pad == SBIT__PAD_SAME_UPPER || window->auto_pad == SBIT__PAD_SAME_LOWER) {
        *out = in / stride + (in % stride != 0 ? 1 : 0);
        const int64_t total = (*out - 1) * stride + extent - in;
        sbit__window_split_pad(window, axis, in > 0 && (total > 0 || window->may_cut) ? total : 0);
        return SBIT_OK;
    }
    const int64_t room = in + window->pad_begin[axis] + window->pad_end[axis] - extent;
    if (room < 0 && in > 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the window reaches over %lld elements of spatial dimension %d, which "
                            "has %lld with padding",
                            (long long)extent, (int)axis, (long long)(room + extent));
    }
    if (room < 0) { /* nothing in, nothing out */
        *out = 0;
        return SBIT_OK;
    }
    *out = room / stride + 1;
    if (window->ceil_mode && room % stride != 0 && *out * stride < in + window->pad_begin[axis]) {
        *out += 1;
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__window_dims(const sbit_op_call *call, sbit__window *window,
                                       const sbit_dim *in, sbit_dim *out, sbit_error *error)
{
    for (int32_t i = 0; i < window->spatial; i++) {
        out[i] = sbit__dim_any();
        if (window->auto_pad >= SBIT__PAD_SAME_UPPER && window->stride[i] == 1) {
            out[i] = in[i];
        }
        if (window->kernel[i] == 0) {
            continue;
        }
        if (sbit__dim_known(in[i])) {
            int64_t length = 0;
            SBIT__TRY(sbit__window_length(call, window, i, in[i].value, &length, error));
            out[i] = sbit__dim(length);
        } else if (window->auto_pad < SBIT__PAD_SAME_UPPER && window->stride[i] == 1 &&
                   window->pad_begin[i] + window->pad_end[i] + 1 ==
                       sbit__window_extent(window, i)) {
            out[i] = in[i];
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__pool_shape_of(const sbit_op_call *call, const sbit_type *x, bool global,
                                         sbit__pool_shape *out, sbit_error *error)
{
    sbit__window window;
    memset(out, 0, sizeof *out);
    memset(&window, 0, sizeof window);
    if (!global) {
        SBIT__TRY(sbit__window_read(call, x->rank - 2, NULL, &window, error));
        window.may_cut = true;
    }
    out->batch = x->dims[0].value;
    out->channels = x->dims[1].value;
    out->in_size = out->out_size = 1;
    for (int32_t i = 2; i < x->rank; i++) {
        out->in_size *= x->dims[i].value;
    }
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        const int32_t from = i - (SBIT__MAX_SPATIAL - window.spatial);
        out->in[i] = out->out[i] = out->kernel[i] = out->stride[i] = out->dilation[i] = 1;
        if (from < 0) {
            continue;
        }
        out->in[i] = x->dims[from + 2].value;
        SBIT__TRY(sbit__window_length(call, &window, from, out->in[i], &out->out[i], error));
        out->kernel[i] = window.kernel[from];
        out->stride[i] = window.stride[from];
        out->dilation[i] = window.dilation[from];
        out->pad_begin[i] = window.pad_begin[from];
        out->pad_end[i] = window.pad_end[from];
        out->out_size *= out->out[i];
    }
    if (global) {
        out->in[SBIT__MAX_SPATIAL - 1] = out->kernel[SBIT__MAX_SPATIAL - 1] = out->in_size;
    }
    return SBIT_OK;
}

/* How many of n taps at start, start + step, ... are below `limit`. */
static int64_t sbit__pool_below(int64_t start, int64_t step, int64_t n, int64_t limit)
{
    const int64_t count = limit > start ? (limit - start - 1) / step + 1 : 0;
    return count < n ? count : n;
}

SBIT__FN sbit__pool_taps sbit__pool_taps_of(const sbit__pool_shape *shape, int32_t axis, int64_t at)
{
    const int64_t step = shape->dilation[axis], n = shape->kernel[axis], in = shape->in[axis];
    sbit__pool_taps taps;
    taps.start = at * shape->stride[axis] - shape->pad_begin[axis];
    taps.begin = sbit__pool_below(taps.start, step, n, 0);
    taps.end = sbit__pool_below(taps.start, step, n, in);
    taps.padded = sbit__pool_below(taps.start, step, n, in + shape->pad_end[axis]);
    return taps;
}
