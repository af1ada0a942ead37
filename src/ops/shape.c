/* shape.c: operators that look at shapes, change shapes, or change element types. >>shape
 *
 * Called by: exec through the rows. Calls: sbit__convert.
 * Does: Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout, Cast, CastLike,
 * BitCast for every opset and element type. One function per operator makes the output's type from
 * the input's, with symbols; infer calls it with what is known, run with the real shapes.
 * Does not: move elements (move.c).
 */
#include "elements_private.h"
#include "gradient_private.h"

#include <stdio.h> /* snprintf: integers as text */

/* >>common */

/* A "view": output 0 has the elements of input 0 and the given type. */
static sbit_status sbit__shape_view(const sbit_op_call *call, const sbit_type *type,
                                    sbit_error *error)
{
    sbit_tensor *out = NULL;
    SBIT__TRY(sbit__op_output_type(call, 0, type, &out, error));
    if (out != NULL) {
        if (sbit_tensor_count(out) != sbit_tensor_count(call->in[0])) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "the output has another number of elements than the input");
        }
        sbit__elem_copy_all(call->in[0], out);
    }
    return SBIT_OK;
}

/* Followed integers keep their elements when only the shape changes. */
static void sbit__shape_keep_elems(const sbit_op_call *call)
{
    sbit_dim elems[SBIT__ELEMS_MAX];
    int64_t count = 0;
    const sbit_type *out = call->out_type[0];
    if (out != NULL && out->rank >= 0 && out->rank <= 1 &&
        sbit__op_elems(call, 0, elems, SBIT__ELEMS_MAX, &count)) {
        sbit__op_set_elems(call, 0, elems, count);
    }
}

typedef sbit_status (*sbit__shape_type_fn)(const sbit_op_call *call, const sbit_type *x,
                                           sbit_type *out, sbit_error *error);

static sbit_status sbit__shape_infer_with(const sbit_op_call *call, sbit__shape_type_fn fn,
                                          sbit_error *error)
{
    sbit_type *out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), -1);
    sbit_type ignored = sbit__type_unknown();
    SBIT__TRY(fn(call, call->in_type[0], out != NULL ? out : &ignored, error));
    if (out != NULL) {
        sbit__shape_keep_elems(call);
    }
    return SBIT_OK;
}

static sbit_status sbit__shape_run_with(const sbit_op_call *call, sbit__shape_type_fn fn,
                                        sbit_error *error)
{
    const sbit_type x = sbit__type_of_tensor(call->in[0]);
    sbit_type type = sbit__type_unknown();
    type.dtype = x.dtype;
    SBIT__TRY(fn(call, &x, &type, error));
    return sbit__shape_view(call, &type, error);
}

/* >>Shape, Size */

/* The dims that Shape-15 selects; earlier versions have no such attributes. */
static void sbit__shape_range(const sbit_op_call *call, int32_t rank, int32_t *begin, int32_t *end)
{
    int64_t start = sbit_node_int(call->node, "start", 0);
    int64_t stop = sbit_node_int(call->node, "end", INT64_MAX);
    start += start < 0 ? rank : 0;
    stop += stop < 0 ? rank : 0;
    start = start < 0 ? 0 : start > rank ? rank : start;
    stop = stop < start ? start : stop > rank ? rank : stop;
    *begin = (int32_t)start;
    *end = (int32_t)stop;
}

static sbit_status sbit__shape_shape_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type *out = NULL;
    const sbit_type *x = NULL;
    int32_t begin = 0, end = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    x = call->in_type[0];
    out = sbit__op_out(call, 0, SBIT_I64, 1);
    if (out == NULL || x->rank < 0) {
        return SBIT_OK;
    }
    sbit__shape_range(call, x->rank, &begin, &end);
    out->dims[0] = sbit__dim(end - begin);
    sbit__op_set_elems(call, 0, x->dims + begin, end - begin);
    return SBIT_OK;
}

static sbit_status sbit__shape_shape_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_tensor *out = NULL;
    int32_t begin = 0, end = 0;
    int64_t count = 0;
    sbit__shape_range(call, call->in[0]->rank, &begin, &end);
    count = end - begin;
    SBIT__TRY(sbit__op_output(call, 0, SBIT_I64, 1, &count, &out, error));
    if (out != NULL && count > 0) {
        memcpy(out->data, call->in[0]->dims + begin, (size_t)count * sizeof(int64_t));
    }
    return SBIT_OK;
}

static sbit_status sbit__shape_size_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_out(call, 0, SBIT_I64, 0);
    if (call->in_type[0]->rank >= 0) {
        const sbit_dim size = sbit__dim_product(call->in_type[0]->dims, call->in_type[0]->rank);
        sbit__op_set_elems(call, 0, &size, 1);
    }
    return SBIT_OK;
}

static sbit_status sbit__shape_size_run(const sbit_op_call *call, sbit_error *error)
{
    const int64_t count = sbit_tensor_count(call->in[0]);
    (void)error;
    if (call->out[0] != NULL) {
        memcpy(call->out[0]->data, &count, sizeof count);
    }
    return SBIT_OK;
}

/* >>Reshape */

/* The one unknown (-1) dim of `out`: the input's size over the product of the others, where equal
 * symbols cancel. */
static sbit_dim sbit__shape_missing_dim(const sbit_type *x, const sbit_type *out, int32_t missing)
{
    bool used[SBIT_MAX_RANK] = {false};
    sbit_dim above = sbit__dim(1), below = sbit__dim(1);
    for (int32_t j = 0; j < out->rank; j++) {
        bool cancels = false;
        for (int32_t i = 0; j != missing && i < x->rank && !cancels; i++) {
            cancels = !used[i] && !sbit__dim_known(x->dims[i]) &&
                      sbit__dim_equal(x->dims[i], out->dims[j]);
            used[i] = used[i] || cancels;
        }
        if (j != missing && !cancels) {
            below = sbit__dim_mul(below, out->dims[j]);
        }
    }
    sbit_dim symbol = sbit__dim(1);
    for (int32_t i = 0; i < x->rank; i++) {
        if (!used[i] && sbit__dim_known(x->dims[i])) {
            above = sbit__dim_mul(above, x->dims[i]);
        } else if (!used[i]) {
            symbol = sbit__dim_mul(symbol, x->dims[i]);
        }
    }
    if (!sbit__dim_known(above) || !sbit__dim_known(below) || below.value == 0) {
        return sbit__dim_any();
    }
    if (sbit__dim_known(symbol)) {
        return above.value % below.value == 0 ? sbit__dim(above.value / below.value)
                                              : sbit__dim(-1);
    }
    return above.value % below.value == 0
               ? sbit__dim_mul(symbol, sbit__dim(above.value / below.value))
               : sbit__dim_any();
}

static sbit_status sbit__shape_reshape_mismatch(const sbit_op_call *call, const sbit_type *x,
                                                sbit_error *error)
{
    char text[96];
    sbit__type_describe(call->graph, x, text, sizeof text);
    return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                        "%s has another number of elements than the shape asks for", text);
}

/* out's dims from the elements of the shape: 0 copies the input's dim (unless allowzero), -1 is
 * what remains. */
static sbit_status sbit__shape_reshape_dims(const sbit_op_call *call, const sbit_type *x,
                                            const sbit_dim *shape, sbit_type *out,
                                            sbit_error *error)
{
    const bool allow_zero = sbit_node_int(call->node, "allowzero", 0) != 0;
    int32_t missing = -1;
    for (int32_t i = 0; i < out->rank; i++) {
        out->dims[i] = shape[i];
        if (!sbit__dim_known(shape[i]) || shape[i].value > 0) {
            continue;
        }
        if (shape[i].value < -1 || (shape[i].value == -1 && missing >= 0)) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "the shape has more than one -1, or a negative number");
        }
        if (shape[i].value == -1) {
            missing = i;
        } else if (!allow_zero && x->rank >= 0) {
            if (i >= x->rank) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "the shape copies dim %d of an input of rank %d", (int)i,
                                    (int)x->rank);
            }
            out->dims[i] = x->dims[i];
        } else if (!allow_zero) {
            out->dims[i] = sbit__dim_any();
        }
    }
    if (x->rank < 0) {
        if (missing >= 0) {
            out->dims[missing] = sbit__dim_any();
        }
        return SBIT_OK;
    }
    if (missing >= 0) {
        out->dims[missing] = sbit__shape_missing_dim(x, out, missing);
        if (sbit__dim_known(out->dims[missing]) && out->dims[missing].value < 0) {
            return sbit__shape_reshape_mismatch(call, x, error);
        }
        return SBIT_OK;
    }
    const sbit_dim before = sbit__dim_product(x->dims, x->rank);
    const sbit_dim after = sbit__dim_product(out->dims, out->rank);
    if (sbit__dim_known(before) && sbit__dim_known(after) && before.value != after.value) {
        return sbit__shape_reshape_mismatch(call, x, error);
    }
    return SBIT_OK;
}

static sbit_status sbit__shape_reshape_type(const sbit_op_call *call, const sbit_type *x,
                                            sbit_type *out, sbit_error *error)
{
    sbit_dim shape[SBIT_MAX_RANK];
    int64_t values[SBIT_MAX_RANK], count = -1;
    const sbit_type *shape_type = sbit__in_type(call, 1);
    if (call->row->since_version < 5) {
        SBIT__TRY(sbit__op_ints(call, "shape", -1, values, SBIT_MAX_RANK, &count, error));
        if (count < 0) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no shape");
        }
        for (int64_t i = 0; i < count; i++) {
            shape[i] = sbit__dim(values[i]);
        }
    } else if (!sbit__op_elems(call, 1, shape, SBIT_MAX_RANK, &count)) {
        if (shape_type != NULL && shape_type->rank == 1 && sbit__dim_known(shape_type->dims[0])) {
            const int64_t rank = shape_type->dims[0].value;
            if (rank < 0 || rank > SBIT_MAX_RANK) {
                return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "a shape of rank %lld",
                                    (long long)rank);
            }
            out->rank = (int32_t)rank;
        }
        return SBIT_OK;
    }
    out->rank = (int32_t)count;
    return sbit__shape_reshape_dims(call, x, shape, out, error);
}

static sbit_status sbit__shape_reshape_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs = call->row->since_version < 5 ? 1 : 2;
    SBIT__TRY(sbit__op_inputs(call, inputs, inputs, error));
    return sbit__shape_infer_with(call, sbit__shape_reshape_type, error);
}

static sbit_status sbit__shape_reshape_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__shape_run_with(call, sbit__shape_reshape_type, error);
}

/* >>Flatten, Squeeze, Unsqueeze */

static sbit_status sbit__shape_flatten_type(const sbit_op_call *call, const sbit_type *x,
                                            sbit_type *out, sbit_error *error)
{
    int64_t axis = sbit_node_int(call->node, "axis", 1);
    out->rank = 2;
    if (x->rank < 0) {
        return SBIT_OK;
    }
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis > x->rank) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "axis %lld is outside of a tensor of rank %d", (long long)axis,
                            (int)x->rank);
    }
    out->dims[0] = sbit__dim_product(x->dims, (int32_t)axis);
    out->dims[1] = sbit__dim_product(x->dims + axis, x->rank - (int32_t)axis);
    return SBIT_OK;
}

static sbit_status sbit__shape_flatten_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    return sbit__shape_infer_with(call, sbit__shape_flatten_type, error);
}

static sbit_status sbit__shape_flatten_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__shape_run_with(call, sbit__shape_flatten_type, error);
}

/* The axes as flags for a tensor of `rank`; *known false: they are computed. *given false: there
 * are none. */
static sbit_status sbit__shape_axes(const sbit_op_call *call, int32_t rank,
                                    bool flags[SBIT_MAX_RANK], bool *given, bool *known,
                                    int64_t *count, sbit_error *error)
{
    int64_t axes[SBIT_MAX_RANK];
    const bool is_attr = call->row->since_version < 13;
    memset(flags, 0, SBIT_MAX_RANK * sizeof flags[0]);
    SBIT__TRY(sbit__op_ints(call, is_attr ? "axes" : NULL, is_attr ? -1 : 1, axes, SBIT_MAX_RANK,
                            count, error));
    *given = is_attr ? *count >= 0 : sbit__in_type(call, 1) != NULL;
    *known = !*given || *count >= 0;
    for (int64_t i = 0; rank >= 0 && i < *count; i++) {
        int32_t axis = 0;
        SBIT__TRY(sbit__op_axis(call, axes[i], rank, &axis, error));
        if (flags[axis]) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "axis %d is named twice",
                                (int)axis);
        }
        flags[axis] = true;
    }
    return SBIT_OK;
}

static sbit_status sbit__shape_squeeze_type(const sbit_op_call *call, const sbit_type *x,
                                            sbit_type *out, sbit_error *error)
{
    bool flags[SBIT_MAX_RANK], given = false, known = false;
    int64_t count = 0;
    int32_t rank = 0;
    SBIT__TRY(sbit__shape_axes(call, x->rank, flags, &given, &known, &count, error));
    if (x->rank < 0 || !known) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < x->rank; i++) {
        const sbit_dim dim = x->dims[i];
        if (!given && !sbit__dim_known(dim)) {
            return SBIT_OK; /* whether it goes is not known, so neither is the rank */
        }
        if (given && flags[i] && sbit__dim_known(dim) && dim.value != 1) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "axis %d has size %lld, not 1", (int)i,
                                (long long)dim.value);
        }
        if (given ? !flags[i] : dim.value != 1) {
            out->dims[rank++] = dim;
        }
    }
    out->rank = rank;
    return SBIT_OK;
}

static sbit_status sbit__shape_squeeze_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, call->row->since_version < 13 ? 1 : 2, error));
    return sbit__shape_infer_with(call, sbit__shape_squeeze_type, error);
}

static sbit_status sbit__shape_squeeze_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__shape_run_with(call, sbit__shape_squeeze_type, error);
}

static sbit_status sbit__shape_unsqueeze_type(const sbit_op_call *call, const sbit_type *x,
                                              sbit_type *out, sbit_error *error)
{
    bool flags[SBIT_MAX_RANK], given = false, known = false;
    int64_t count = 0;
    int32_t from = 0;
    SBIT__TRY(sbit__shape_axes(call, -1, flags, &given, &known, &count, error));
    if (!given) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no axes");
    }
    if (x->rank < 0 || !known) {
        return SBIT_OK;
    }
    if (x->rank + count > SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "the output's rank is above %d",
                            SBIT_MAX_RANK);
    }
    out->rank = x->rank + (int32_t)count;
    SBIT__TRY(sbit__shape_axes(call, out->rank, flags, &given, &known, &count, error));
    for (int32_t i = 0; i < out->rank; i++) {
        out->dims[i] = flags[i] ? sbit__dim(1) : x->dims[from++];
    }
    return SBIT_OK;
}

static sbit_status sbit__shape_unsqueeze_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs = call->row->since_version < 13 ? 1 : 2;
    SBIT__TRY(sbit__op_inputs(call, inputs, inputs, error));
    return sbit__shape_infer_with(call, sbit__shape_unsqueeze_type, error);
}

static sbit_status sbit__shape_unsqueeze_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__shape_run_with(call, sbit__shape_unsqueeze_type, error);
}

/* >>Identity, Dropout */

static sbit_status sbit__shape_identity_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->in_type[0]->kind == SBIT_KIND_TENSOR) {
        sbit__shape_keep_elems(call);
    }
    return SBIT_OK;
}

static sbit_status sbit__shape_identity_run(const sbit_op_call *call, sbit_error *error)
{
    (void)error; /* sequences and optionals are copied by the executor */
    if (call->out[0] != NULL) {
        sbit__elem_copy_all(call->in[0], call->out[0]);
    }
    return SBIT_OK;
}

/* The mask has the data's type before opset 10, bool from then on. */
static sbit_status sbit__shape_dropout_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t version = call->row->since_version;
    SBIT__TRY(sbit__op_inputs(call, 1, version < 12 ? 1 : 3, error));
    sbit__op_same_type(call, 0, 0);
    sbit__op_same_type(call, 1, 0);
    if (version >= 10 && call->output_count > 1 && call->out_type[1] != NULL) {
        call->out_type[1]->dtype = SBIT_BOOL;
    }
    return SBIT_OK;
}

/* Training: each element is dropped with probability `ratio`, the others are scaled up. */
static void sbit__shape_dropout_train(const sbit_op_call *call, float ratio)
{
    const sbit_tensor *x = call->in[0];
    sbit_tensor *y = call->out[0], *mask = sbit__out(call, 1);
    const double scale = ratio < 1.0f ? 1.0 / (1.0 - (double)ratio) : 0.0;
    sbit_rng rng = sbit_rng_seed((uint64_t)sbit_node_int(call->node, "seed", 0));
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        const bool keep = sbit_rng_uniform(&rng) >= ratio;
        if (y != NULL) {
            sbit__tensor_set_f64(y, i, keep ? sbit__tensor_f64_at(x, i) * scale : 0.0);
        }
        if (mask != NULL) {
            sbit__tensor_set_f64(mask, i, keep ? 1.0 : 0.0);
        }
    }
}

static sbit_status sbit__shape_dropout_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *ratio = sbit__in(call, 1);
    sbit_tensor *mask = sbit__out(call, 1);
    int64_t training = 0;
    SBIT__TRY(sbit__op_scalar(call, 2, 0, &training, error));
    if (training != 0) {
        const float p = ratio != NULL && sbit_tensor_count(ratio) == 1
                            ? (float)sbit__tensor_f64_at(ratio, 0)
                            : 0.5f;
        sbit__shape_dropout_train(call, p);
        return SBIT_OK;
    }
    if (call->out[0] != NULL) {
        sbit__elem_copy_all(call->in[0], call->out[0]);
    }
    for (int64_t i = 0; mask != NULL && i < sbit_tensor_count(mask); i++) {
        sbit__tensor_set_f64(mask, i, 1.0);
    }
    return SBIT_OK;
}

/* >>Cast */

/* Cast-1 names the type as text: the enum's names in TensorProto. */
static sbit_dtype sbit__cast_named(const char *name)
{
    static const struct {
        const char *name;
        sbit_dtype dtype;
    } names[] = {{"FLOAT", SBIT_F32},    {"DOUBLE", SBIT_F64}, {"FLOAT16", SBIT_F16},
                 {"UINT8", SBIT_U8},     {"INT8", SBIT_I8},    {"UINT16", SBIT_U16},
                 {"INT16", SBIT_I16},    {"INT32", SBIT_I32},  {"INT64", SBIT_I64},
                 {"UINT32", SBIT_U32},   {"UINT64", SBIT_U64}, {"BOOL", SBIT_BOOL},
                 {"STRING", SBIT_STRING}};
    for (size_t i = 0; i < SBIT__COUNT_OF(names); i++) {
        if (strcmp(names[i].name, name) == 0) {
            return names[i].dtype;
        }
    }
    return SBIT_UNDEFINED;
}

static sbit_status sbit__cast_target(const sbit_op_call *call, sbit_dtype *to, sbit_error *error)
{
    const bool like = strcmp(call->node->op_type, "CastLike") == 0;
    const sbit_attr *attr = like ? NULL : sbit_node_attr(call->node, "to");
    *to = like ? sbit__in_dtype(call, 1) : SBIT_UNDEFINED;
    if (attr != NULL && attr->type == SBIT_ONNX_ATTR_STRING && attr->s.data != NULL) {
        *to = sbit__cast_named(attr->s.data);
    } else if (attr != NULL && attr->i > 0 && attr->i < (int64_t)SBIT_DTYPE_COUNT) {
        *to = (sbit_dtype)attr->i;
    }
    if ((*to == SBIT_UNDEFINED && !like) || *to == SBIT_C64 || *to == SBIT_C128) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "casting to element type %lld",
                            attr != NULL ? (long long)attr->i : (long long)*to);
    }
    return SBIT_OK;
}

static sbit_status sbit__cast_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs = strcmp(call->node->op_type, "CastLike") == 0 ? 2 : 1;
    sbit_dtype to = SBIT_UNDEFINED;
    SBIT__TRY(sbit__op_inputs(call, inputs, inputs, error));
    SBIT__TRY(sbit__cast_target(call, &to, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = to;
        if (to == SBIT_I64 || to == SBIT_I32) {
            sbit__shape_keep_elems(call);
        }
    }
    return SBIT_OK;
}

#define SBIT__CAST_TEXT_BYTES 40 /* of one number, as sbit__format_f64 writes it */

static sbit_status sbit__cast_to_text(const sbit_op_call *call, const sbit_tensor *x, sbit_str *out,
                                      sbit_error *error)
{
    const int64_t n = sbit_tensor_count(x);
    const bool is_int = (SBIT_T(x->dtype) & (SBIT_T_INTS | SBIT_T(SBIT_BOOL))) != 0;
    char *text = (char *)call->alloc_text(call, (size_t)(n + 1) * SBIT__CAST_TEXT_BYTES);
    if (text == NULL) {
        return sbit__fail_oom(error, (size_t)(n + 1) * SBIT__CAST_TEXT_BYTES);
    }
    for (int64_t i = 0; i < n; i++, text += SBIT__CAST_TEXT_BYTES) {
        if (is_int && x->dtype == SBIT_U64) {
            snprintf(text, SBIT__CAST_TEXT_BYTES, "%llu",
                     (unsigned long long)sbit__tensor_i64_at(x, i));
        } else if (is_int) {
            snprintf(text, SBIT__CAST_TEXT_BYTES, "%lld", (long long)sbit__tensor_i64_at(x, i));
        } else {
            sbit__format_f64(sbit__tensor_f64_at(x, i), x->dtype != SBIT_F64, text);
        }
        out[i] = sbit__str(text);
    }
    return SBIT_OK;
}

static bool sbit__cast_same_text(sbit_str text, const char *lower)
{
    const size_t size = strlen(lower);
    for (size_t i = 0; text.size == size && i < size; i++) {
        const char c = text.data[i];
        if ((c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c) != lower[i]) {
            return false;
        }
    }
    return text.size == size;
}

static double sbit__cast_parse(sbit_str text)
{
    char copy[64];
    double value = 0.0;
    const double infinite = 1e308 * 10.0;
    if (sbit__cast_same_text(text, "inf") || sbit__cast_same_text(text, "+inf")) {
        return infinite;
    }
    if (sbit__cast_same_text(text, "-inf")) {
        return -infinite;
    }
    if (sbit__cast_same_text(text, "nan")) {
        return infinite - infinite;
    }
    if (text.size >= sizeof copy) {
        return 0.0;
    }
    memcpy(copy, text.size > 0 ? text.data : "", text.size);
    copy[text.size] = '\0';
    return sbit__parse_f64(copy[0] == '+' ? copy + 1 : copy, &value) ? value : 0.0;
}

/* An integer to the bit, where a double would round it; false: it is none. `text` is cut. */
static bool sbit__cast_whole(char *text, sbit_dtype dtype, uint64_t *out)
{
    const size_t size = strlen(text);
    int64_t head = 0;
    if (sbit__parse_i64(text, &head) && (dtype == SBIT_I64 || head >= 0)) {
        *out = (uint64_t)head;
        return dtype == SBIT_I64 || dtype == SBIT_U64;
    }
    if (dtype != SBIT_U64 || size < 2) {
        return false;
    }
    const uint64_t last = (uint64_t)(text[size - 1] - '0'); /* beyond 2^63: all digits but one fit */
    text[size - 1] = '\0';
    if (last > 9 || !sbit__parse_i64(text, &head) || head < 0 || (uint64_t)head > (UINT64_MAX - last) / 10) {
        return false;
    }
    *out = (uint64_t)head * 10 + last;
    return true;
}

static void sbit__cast_from_text(const sbit_tensor *x, sbit_tensor *y)
{
    const sbit_str *text = (const sbit_str *)x->data;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        char copy[32];
        uint64_t whole = 0;
        const bool fits = text[i].size > 0 && text[i].size < sizeof copy;
        if (fits) {
            memcpy(copy, text[i].data, text[i].size);
            copy[text[i].size] = '\0';
        }
        if (fits && sbit__cast_whole(copy, y->dtype, &whole)) {
            memcpy((uint64_t *)y->data + i, &whole, sizeof whole);
        } else {
            sbit__tensor_set_f64(y, i, sbit__cast_parse(text[i]));
        }
    }
}

/* float8 without saturation, and float8e8m0 with its rounding modes: element by element. */
static sbit_status sbit__cast_small(const sbit_op_call *call, const sbit_tensor *x, sbit_tensor *y,
                                    sbit_error *error)
{
    static const char *const modes[] = {"up", "down", "nearest"}; /* as sbit__e8m0_round */
    const bool saturate = sbit_node_int(call->node, "saturate", 1) != 0;
    int32_t round = 0;
    uint8_t *out = (uint8_t *)y->data;
    SBIT__TRY(sbit__op_word(call, "round_mode", modes, 3, &round, error));
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        const float value = (float)sbit__tensor_f64_at(x, i);
        out[i] = y->dtype == SBIT_F8E8M0 ? sbit__f32_to_e8m0(value, (sbit__e8m0_round)round, saturate)
                                         : sbit__f32_to_f8(y->dtype, value, saturate);
    }
    return SBIT_OK;
}

typedef struct sbit__cast_task {
    const sbit_tensor *x;
    sbit_tensor *y;
} sbit__cast_task;

/* Blocks begin at whole bytes also for packed types: SBIT__BLOCK is a multiple of 4. */
static void sbit__cast_block(void *data, int64_t begin, int64_t end)
{
    const sbit__cast_task *task = (const sbit__cast_task *)data;
    const size_t from = (size_t)sbit_dtype_bits((int32_t)task->x->dtype);
    const size_t to = (size_t)sbit_dtype_bits((int32_t)task->y->dtype);
    sbit__convert(task->x->dtype, (const uint8_t *)task->x->data + (size_t)begin * from / 8,
                  task->y->dtype, (uint8_t *)task->y->data + (size_t)begin * to / 8, end - begin);
}

static sbit_status sbit__cast_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit_tensor *y = call->out[0];
    sbit__cast_task task;
    if (y == NULL) {
        return SBIT_OK;
    }
    if (x->dtype == y->dtype) {
        sbit__elem_copy_all(x, y);
        return SBIT_OK;
    }
    if (y->dtype == SBIT_STRING) {
        return sbit__cast_to_text(call, x, (sbit_str *)y->data, error);
    }
    if (x->dtype == SBIT_STRING) {
        sbit__cast_from_text(x, y);
        return SBIT_OK;
    }
    if (y->dtype == SBIT_F8E8M0 ||
        ((SBIT_T(y->dtype) & SBIT__T_F8) != 0 && sbit_node_int(call->node, "saturate", 1) == 0)) {
        return sbit__cast_small(call, x, y, error);
    }
    task.x = x;
    task.y = y;
    sbit__parallel_blocks(call->ctx, sbit_tensor_count(x), sbit__cast_block, &task);
    return SBIT_OK;
}

static sbit_status sbit__bitcast_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t to = sbit_node_int(call->node, "to", 0);
    const sbit_dtype from = sbit__in_dtype(call, 0);
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    if (to <= 0 || to >= (int64_t)SBIT_DTYPE_COUNT || sbit_dtype_bits((int32_t)to) == 0 ||
        (from != SBIT_UNDEFINED &&
         sbit_dtype_bits((int32_t)from) != sbit_dtype_bits((int32_t)to))) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the elements of %s and of type %lld differ in width",
                            sbit_dtype_name((int32_t)from), (long long)to);
    }
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = (sbit_dtype)to;
    }
    return SBIT_OK;
}

/* >>rows */

static const sbit_op_channel sbit__shape_channel_same = {
    SBIT_CHANNEL_ELEMENTWISE, 1, 0, 0, 0, NULL};
static const sbit_op_channel sbit__shape_channel_moves = {SBIT_CHANNEL_MOVES, 1, 0, 0, 0, NULL};
static const sbit_op_quant sbit__shape_quant_pass = {
    SBIT_QUANT_PASS_SCALE, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
/* Sparsebit's QIdentity */
static const sbit_op_quant sbit__shape_quant_identity = {
    SBIT_QUANT_PASS_SCALE, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};

#define SBIT__SHAPE_ROW(name, version, types, flags, fn, gradient, quant, channel)                 \
    {                                                                                              \
        "", name, version, types, flags, 0, sbit__shape_##fn##_infer, NULL,                        \
            sbit__shape_##fn##_run, gradient, NULL, quant, channel, NULL                           \
    }
#define SBIT__SHAPE_LOOK(name, version, types, fn)                                                 \
    SBIT__SHAPE_ROW(name, version, types, SBIT_OP_SHAPE_ONLY, fn, NULL, NULL, NULL)
#define SBIT__SHAPE_VIEW(name, version, types, fn)                                                 \
    SBIT__SHAPE_ROW(name, version, types, SBIT_OP_VIEW, fn, sbit__grad_reshape,                    \
                    &sbit__shape_quant_pass, &sbit__shape_channel_moves)
#define SBIT__SHAPE_IDENTITY(version, types)                                                       \
    SBIT__SHAPE_ROW("Identity", version, types, SBIT_OP_VIEW | SBIT_OP_KINDS, identity,            \
                    sbit__grad_identity, &sbit__shape_quant_identity, &sbit__shape_channel_same)
#define SBIT__SHAPE_DROPOUT(version, types)                                                        \
    SBIT__SHAPE_ROW("Dropout", version, types, SBIT_OP_IN_PLACE | SBIT_OP_RANDOM, dropout,         \
                    sbit__grad_dropout, &sbit__shape_quant_pass, &sbit__shape_channel_same)
#define SBIT__CAST_ROW(name, version, types)                                                       \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__cast_infer, NULL, sbit__cast_run, sbit__grad_cast,   \
            NULL, NULL, &sbit__shape_channel_same, NULL                                            \
    }
/* Cast takes numbers, bool and (9 on) strings; complex numbers never. */
#define SBIT__CAST_T(all) ((all) & ~(SBIT_T(SBIT_C64) | SBIT_T(SBIT_C128)))

static const sbit_op_row sbit__shape_rows[] = {
    SBIT__SHAPE_LOOK("Shape", 1, SBIT__T_ALL1, shape),
    SBIT__SHAPE_LOOK("Shape", 13, SBIT__T_ALL13, shape),
    SBIT__SHAPE_LOOK("Shape", 15, SBIT__T_ALL13, shape),
    SBIT__SHAPE_LOOK("Shape", 19, SBIT__T_ALL19, shape),
    SBIT__SHAPE_LOOK("Shape", 21, SBIT__T_ALL21, shape),
    SBIT__SHAPE_LOOK("Shape", 23, SBIT__T_ALL23, shape),
    SBIT__SHAPE_LOOK("Shape", 24, SBIT__T_ALL24, shape),
    SBIT__SHAPE_LOOK("Shape", 25, SBIT__T_ALL25, shape),
    SBIT__SHAPE_LOOK("Size", 1, SBIT__T_ALL1, size),
    SBIT__SHAPE_LOOK("Size", 13, SBIT__T_ALL13, size),
    SBIT__SHAPE_LOOK("Size", 19, SBIT__T_ALL19, size),
    SBIT__SHAPE_LOOK("Size", 21, SBIT__T_ALL21, size),
    SBIT__SHAPE_LOOK("Size", 23, SBIT__T_ALL23, size),
    SBIT__SHAPE_LOOK("Size", 24, SBIT__T_ALL24, size),
    SBIT__SHAPE_LOOK("Size", 25, SBIT__T_ALL25, size),

    SBIT__SHAPE_VIEW("Reshape", 1, SBIT__T_FLOATS1, reshape),
    SBIT__SHAPE_VIEW("Reshape", 5, SBIT__T_ALL1, reshape),
    SBIT__SHAPE_VIEW("Reshape", 13, SBIT__T_ALL13, reshape),
    SBIT__SHAPE_VIEW("Reshape", 14, SBIT__T_ALL13, reshape),
    SBIT__SHAPE_VIEW("Reshape", 19, SBIT__T_ALL19, reshape),
    SBIT__SHAPE_VIEW("Reshape", 21, SBIT__T_ALL21, reshape),
    SBIT__SHAPE_VIEW("Reshape", 23, SBIT__T_ALL23, reshape),
    SBIT__SHAPE_VIEW("Reshape", 24, SBIT__T_ALL24, reshape),
    SBIT__SHAPE_VIEW("Reshape", 25, SBIT__T_ALL25, reshape),
    SBIT__SHAPE_VIEW("Flatten", 1, SBIT__T_FLOATS1, flatten),
    SBIT__SHAPE_VIEW("Flatten", 9, SBIT__T_ALL1, flatten),
    SBIT__SHAPE_VIEW("Flatten", 11, SBIT__T_ALL1, flatten),
    SBIT__SHAPE_VIEW("Flatten", 13, SBIT__T_ALL13, flatten),
    SBIT__SHAPE_VIEW("Flatten", 21, SBIT__T_ALL21, flatten),
    SBIT__SHAPE_VIEW("Flatten", 23, SBIT__T_ALL23, flatten),
    SBIT__SHAPE_VIEW("Flatten", 24, SBIT__T_ALL24, flatten),
    SBIT__SHAPE_VIEW("Flatten", 25, SBIT__T_ALL25, flatten),
    SBIT__SHAPE_VIEW("Squeeze", 1, SBIT__T_ALL1, squeeze),
    SBIT__SHAPE_VIEW("Squeeze", 11, SBIT__T_ALL1, squeeze),
    SBIT__SHAPE_VIEW("Squeeze", 13, SBIT__T_ALL13, squeeze),
    SBIT__SHAPE_VIEW("Squeeze", 21, SBIT__T_ALL21, squeeze),
    SBIT__SHAPE_VIEW("Squeeze", 23, SBIT__T_ALL23, squeeze),
    SBIT__SHAPE_VIEW("Squeeze", 24, SBIT__T_ALL24, squeeze),
    SBIT__SHAPE_VIEW("Squeeze", 25, SBIT__T_ALL25, squeeze),
    SBIT__SHAPE_VIEW("Unsqueeze", 1, SBIT__T_ALL1, unsqueeze),
    SBIT__SHAPE_VIEW("Unsqueeze", 11, SBIT__T_ALL1, unsqueeze),
    SBIT__SHAPE_VIEW("Unsqueeze", 13, SBIT__T_ALL13, unsqueeze),
    SBIT__SHAPE_VIEW("Unsqueeze", 21, SBIT__T_ALL21, unsqueeze),
    SBIT__SHAPE_VIEW("Unsqueeze", 23, SBIT__T_ALL23, unsqueeze),
    SBIT__SHAPE_VIEW("Unsqueeze", 24, SBIT__T_ALL24, unsqueeze),
    SBIT__SHAPE_VIEW("Unsqueeze", 25, SBIT__T_ALL25, unsqueeze),

    SBIT__SHAPE_IDENTITY(1, SBIT__T_ALL1),
    SBIT__SHAPE_IDENTITY(13, SBIT__T_ALL13),
    SBIT__SHAPE_IDENTITY(14, SBIT__T_ALL13),
    SBIT__SHAPE_IDENTITY(16, SBIT__T_ALL13),
    SBIT__SHAPE_IDENTITY(19, SBIT__T_ALL19),
    SBIT__SHAPE_IDENTITY(21, SBIT__T_ALL21),
    SBIT__SHAPE_IDENTITY(23, SBIT__T_ALL23),
    SBIT__SHAPE_IDENTITY(24, SBIT__T_ALL24),
    SBIT__SHAPE_IDENTITY(25, SBIT__T_ALL25),
    SBIT__SHAPE_DROPOUT(1, SBIT__T_FLOATS1),
    SBIT__SHAPE_DROPOUT(6, SBIT__T_FLOATS1),
    SBIT__SHAPE_DROPOUT(7, SBIT__T_FLOATS1),
    SBIT__SHAPE_DROPOUT(10, SBIT__T_FLOATS1),
    SBIT__SHAPE_DROPOUT(12, SBIT__T_FLOATS1),
    SBIT__SHAPE_DROPOUT(13, SBIT_T_FLOATS),
    SBIT__SHAPE_DROPOUT(22, SBIT_T_FLOATS | SBIT__T_F8),

    SBIT__CAST_ROW("Cast", 1, SBIT__T_NUMBERS1 | SBIT_T(SBIT_BOOL)),
    SBIT__CAST_ROW("Cast", 6, SBIT__T_NUMBERS1 | SBIT_T(SBIT_BOOL)),
    SBIT__CAST_ROW("Cast", 9, SBIT__CAST_T(SBIT__T_ALL1)),
    SBIT__CAST_ROW("Cast", 13, SBIT__CAST_T(SBIT__T_ALL13)),
    SBIT__CAST_ROW("Cast", 19, SBIT__CAST_T(SBIT__T_ALL19)),
    SBIT__CAST_ROW("Cast", 21, SBIT__CAST_T(SBIT__T_ALL21)),
    SBIT__CAST_ROW("Cast", 23, SBIT__CAST_T(SBIT__T_ALL23)),
    SBIT__CAST_ROW("Cast", 24, SBIT__CAST_T(SBIT__T_ALL24)),
    SBIT__CAST_ROW("Cast", 25, SBIT__CAST_T(SBIT__T_ALL25)),
    SBIT__CAST_ROW("Cast", 28, SBIT__CAST_T(SBIT__T_ALL28)),
    SBIT__CAST_ROW("CastLike", 15, SBIT__CAST_T(SBIT__T_ALL13)),
    SBIT__CAST_ROW("CastLike", 19, SBIT__CAST_T(SBIT__T_ALL19)),
    SBIT__CAST_ROW("CastLike", 21, SBIT__CAST_T(SBIT__T_ALL21)),
    SBIT__CAST_ROW("CastLike", 23, SBIT__CAST_T(SBIT__T_ALL23)),
    SBIT__CAST_ROW("CastLike", 24, SBIT__CAST_T(SBIT__T_ALL24)),
    SBIT__CAST_ROW("CastLike", 25, SBIT__CAST_T(SBIT__T_ALL25)),
    {"", "BitCast", 26, SBIT__T_ALL25 & ~SBIT_T(SBIT_STRING), 0, 0, sbit__bitcast_infer, NULL,
     sbit__shape_identity_run, NULL, NULL, NULL, &sbit__shape_channel_same, NULL},
};

#undef SBIT__SHAPE_ROW
#undef SBIT__SHAPE_LOOK
#undef SBIT__SHAPE_VIEW
#undef SBIT__SHAPE_IDENTITY
#undef SBIT__SHAPE_DROPOUT
#undef SBIT__CAST_ROW
#undef SBIT__CAST_T
#undef SBIT__CAST_TEXT_BYTES

SBIT__FN const sbit_op_row *sbit__op_rows_shape(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__shape_rows);
    return sbit__shape_rows;
}
