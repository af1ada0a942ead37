/* generate.c: operators that make tensors from little: Constant, ConstantOfShape, Range, EyeLike,
 * OneHot, Trilu, random numbers, NonZero, Unique, NonMaxSuppression. >>generate
 *
 * Called by: exec through the rows. Calls: core's PCG32, elements.
 * Does: all element types ONNX lists; followed integers for ConstantOfShape and Range, from which
 * exporters build shapes. Random rows are seeded by their attribute, else by the node's name: each
 * run of a model gives the same numbers.
 * Does not: the sparse form of Constant.
 */
#include "elements_private.h"
#include "gradient_private.h"

#include <math.h> /* ceil, log, exp */

/* >>Constant */

/* The attribute that holds the value, as a tensor; texts and numbers become a tensor's data. */
static sbit_status sbit__constant_value(const sbit_op_call *call, sbit_tensor *out,
                                        sbit_error *error)
{
    for (size_t i = 0; i < call->node->attr_count; i++) {
        const sbit_attr *attr = &call->node->attrs[i];
        const bool list = attr->type == SBIT_ONNX_ATTR_INTS ||
                          attr->type == SBIT_ONNX_ATTR_FLOATS ||
                          attr->type == SBIT_ONNX_ATTR_STRINGS;
        memset(out, 0, sizeof *out);
        if (strncmp(attr->name, "value", 5) != 0) {
            continue;
        }
        if (attr->type == SBIT_ONNX_ATTR_TENSOR) {
            *out = attr->t;
            return SBIT_OK;
        }
        const bool is_int = attr->type == SBIT_ONNX_ATTR_INT || attr->type == SBIT_ONNX_ATTR_INTS;
        const bool is_float =
            attr->type == SBIT_ONNX_ATTR_FLOAT || attr->type == SBIT_ONNX_ATTR_FLOATS;
        const void *from = is_int     ? (list ? (const void *)attr->ints : (const void *)&attr->i)
                           : is_float ? (list ? (const void *)attr->floats : (const void *)&attr->f)
                           : list     ? (const void *)attr->strings
                                      : (const void *)&attr->s;
        out->dtype = is_int ? SBIT_I64 : is_float ? SBIT_F32 : SBIT_STRING;
        out->rank = list ? 1 : 0;
        out->dims[0] = list ? (int64_t)attr->count : 0;
        memcpy(&out->data, &from, sizeof from); /* borrowed, and only read */
        return SBIT_OK;
    }
    return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error,
                        "it has no value that is a dense tensor");
}

static sbit_status sbit__constant_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_tensor value;
    SBIT__TRY(sbit__constant_value(call, &value, error));
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        *call->out_type[0] = sbit__type_of_tensor(&value);
    }
    return SBIT_OK;
}

static sbit_status sbit__constant_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_tensor value;
    SBIT__TRY(sbit__constant_value(call, &value, error));
    if (call->out[0] != NULL) {
        sbit__elem_copy_all(&value, call->out[0]);
    }
    return SBIT_OK;
}

/* >>ConstantOfShape */

static const sbit_attr *sbit__fill_value(const sbit_op_call *call)
{
    const sbit_attr *attr = sbit_node_attr(call->node, "value");
    return attr != NULL && attr->type == SBIT_ONNX_ATTR_TENSOR && attr->t.data != NULL &&
                   sbit_tensor_count(&attr->t) == 1
               ? attr
               : NULL;
}

/* The output's shape from the elements of input 0. */
static sbit_status sbit__fill_type(const sbit_op_call *call, sbit_type *out, sbit_error *error)
{
    sbit_dim shape[SBIT_MAX_RANK];
    int64_t count = 0;
    const sbit_type *type = sbit__in_type(call, 0);
    if (!sbit__op_elems(call, 0, shape, SBIT_MAX_RANK, &count)) {
        if (type->rank == 1 && sbit__dim_known(type->dims[0])) {
            if (type->dims[0].value > SBIT_MAX_RANK) {
                return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "a shape of rank %lld",
                                    (long long)type->dims[0].value);
            }
            out->rank = (int32_t)type->dims[0].value;
        }
        return SBIT_OK;
    }
    out->rank = (int32_t)count;
    for (int64_t i = 0; i < count; i++) {
        if (sbit__dim_known(shape[i]) && shape[i].value < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the shape holds %lld",
                                (long long)shape[i].value);
        }
        out->dims[i] = shape[i];
    }
    return SBIT_OK;
}

static sbit_status sbit__fill_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_attr *value = sbit__fill_value(call);
    const sbit_dtype dtype = value != NULL ? value->t.dtype : SBIT_F32;
    sbit_dim elems[SBIT__ELEMS_MAX];
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    out = sbit__op_out(call, 0, dtype, -1);
    if (out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__fill_type(call, out, error));
    if ((dtype != SBIT_I64 && dtype != SBIT_I32) || out->rank < 0 || out->rank > 1 ||
        (out->rank == 1 &&
         (!sbit__dim_known(out->dims[0]) || out->dims[0].value > SBIT__ELEMS_MAX))) {
        return SBIT_OK;
    }
    const int64_t count = out->rank == 0 ? 1 : out->dims[0].value;
    for (int64_t i = 0; i < count; i++) {
        elems[i] = sbit__dim(sbit__tensor_i64_at(&value->t, 0));
    }
    sbit__op_set_elems(call, 0, elems, count);
    return SBIT_OK;
}

static sbit_status sbit__fill_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_attr *value = sbit__fill_value(call);
    sbit_type type = sbit__type_unknown();
    sbit_tensor *out = NULL;
    const float zero = 0.0f;
    type.dtype = value != NULL ? value->t.dtype : SBIT_F32;
    SBIT__TRY(sbit__fill_type(call, &type, error));
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &out, error));
    if (out != NULL) {
        sbit__elem_fill(type.dtype, out->data, 0, sbit_tensor_count(out),
                        value != NULL ? value->t.data : (const void *)&zero, 0);
    }
    return SBIT_OK;
}

/* >>Range */

/* ceil((limit - start) / delta), at least 0. */
static sbit_status sbit__range_count(const sbit_op_call *call, int64_t *count, sbit_error *error)
{
    const sbit_tensor *start = call->in[0], *limit = call->in[1], *delta = call->in[2];
    *count = 0;
    if (sbit_tensor_count(start) != 1 || sbit_tensor_count(limit) != 1 ||
        sbit_tensor_count(delta) != 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "start, limit and delta must be scalars");
    }
    if (sbit__tensor_f64_at(delta, 0) == 0.0) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "delta is 0");
    }
    if ((SBIT_T(start->dtype) & SBIT_T_INTS) != 0) {
        const int64_t a = sbit__tensor_i64_at(start, 0), b = sbit__tensor_i64_at(limit, 0);
        const int64_t d = sbit__tensor_i64_at(delta, 0);
        const uint64_t span = d > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
        const uint64_t step = d > 0 ? (uint64_t)d : 0u - (uint64_t)d;
        const uint64_t n = (d > 0 ? b > a : a > b) ? (span - 1) / step + 1 : 0;
        if (n > INT64_MAX / 16) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "a range that long");
        }
        *count = (int64_t)n;
        return SBIT_OK;
    }
    const double n = ceil((sbit__tensor_f64_at(limit, 0) - sbit__tensor_f64_at(start, 0)) /
                          sbit__tensor_f64_at(delta, 0));
    if (!(n < 1e15)) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "a range that long");
    }
    *count = n > 0.0 ? (int64_t)n : 0;
    return SBIT_OK;
}

/* Integer i of it; i * delta may lie beyond 64 bits though the sum does not. */
static int64_t sbit__range_at(const sbit_op_call *call, int64_t i)
{
    return (int64_t)((uint64_t)sbit__tensor_i64_at(call->in[0], 0) +
                     (uint64_t)i * (uint64_t)sbit__tensor_i64_at(call->in[2], 0));
}

static sbit_status sbit__range_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim ends[3], elems[SBIT__ELEMS_MAX];
    int64_t count = 0;
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    SBIT__TRY(sbit__op_one_dtype(call, 0, 2, error));
    out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), 1);
    if (out == NULL) {
        return SBIT_OK;
    }
    if (sbit__in(call, 0) == NULL || sbit__in(call, 1) == NULL || sbit__in(call, 2) == NULL) {
        const bool from_zero = sbit__op_elems(call, 0, &ends[0], 1, &count) &&
                               sbit__op_elems(call, 1, &ends[1], 1, &count) &&
                               sbit__op_elems(call, 2, &ends[2], 1, &count) &&
                               sbit__dim_equal(ends[0], sbit__dim(0)) &&
                               sbit__dim_equal(ends[2], sbit__dim(1));
        if (from_zero) {
            out->dims[0] = ends[1]; /* a symbol: Range(0, length, 1) */
        }
        return SBIT_OK;
    }
    SBIT__TRY(sbit__range_count(call, &count, error));
    out->dims[0] = sbit__dim(count);
    if ((out->dtype != SBIT_I64 && out->dtype != SBIT_I32) || count > SBIT__ELEMS_MAX) {
        return SBIT_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        elems[i] = sbit__dim(sbit__range_at(call, i));
    }
    sbit__op_set_elems(call, 0, elems, count);
    return SBIT_OK;
}

static sbit_status sbit__range_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *start = call->in[0], *delta = call->in[2];
    sbit_tensor *out = NULL;
    int64_t count = 0;
    SBIT__TRY(sbit__range_count(call, &count, error));
    SBIT__TRY(sbit__op_output(call, 0, start->dtype, 1, &count, &out, error));
    if (out == NULL) {
        return SBIT_OK;
    }
    const bool ints = (SBIT_T(start->dtype) & SBIT_T_INTS) != 0;
    const double f = sbit__tensor_f64_at(start, 0), step = sbit__tensor_f64_at(delta, 0);
    for (int64_t i = 0; i < count; i++) {
        if (ints) {
            const int64_t v = sbit__range_at(call, i);
            sbit__convert(SBIT_I64, &v, out->dtype, sbit__elem_at(out->dtype, out->data, i), 1);
        } else {
            sbit__tensor_set_f64(out, i, f + (double)i * step);
        }
    }
    return SBIT_OK;
}

/* >>EyeLike, Trilu */

static sbit_status sbit__generate_dtype(const sbit_op_call *call, int64_t otherwise,
                                        sbit_dtype *dtype, sbit_error *error)
{
    const int64_t asked = sbit_node_int(call->node, "dtype", otherwise);
    const bool listed = asked >= 0 && asked < (int64_t)SBIT_DTYPE_COUNT;
    if (!listed || asked == (int64_t)SBIT_STRING || asked == (int64_t)SBIT_C64 ||
        asked == (int64_t)SBIT_C128) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "dtype %lld is no number type",
                            (long long)asked);
    }
    *dtype = (sbit_dtype)asked;
    return SBIT_OK;
}

static sbit_status sbit__eye_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dtype dtype = SBIT_F32;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__generate_dtype(call, (int64_t)sbit__in_dtype(call, 0), &dtype, error));
    if (call->in_type[0]->rank >= 0 && call->in_type[0]->rank != 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "an input of rank %d, not 2",
                            (int)call->in_type[0]->rank);
    }
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = dtype;
    }
    return SBIT_OK;
}

static sbit_status sbit__eye_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_tensor *y = call->out[0];
    const int64_t k = sbit_node_int(call->node, "k", 0);
    (void)error;
    if (y == NULL) {
        return SBIT_OK;
    }
    const int64_t rows = y->dims[0], columns = y->dims[1];
    sbit__elem_zero(y->dtype, y->data, 0, rows * columns);
    for (int64_t i = 0; i < rows; i++) {
        if (k >= -i && k < columns - i) {
            sbit__tensor_set_f64(y, i * columns + i + k, 1.0);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__trilu_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 2, error));
    if (call->in_type[0]->rank >= 0 && call->in_type[0]->rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "an input of rank %d, not 2 or more",
                            (int)call->in_type[0]->rank);
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__trilu_run(const sbit_op_call *call, sbit_error *error)
{
    const bool upper = sbit_node_int(call->node, "upper", 1) != 0;
    sbit_tensor *y = call->out[0];
    int64_t k = 0;
    SBIT__TRY(sbit__op_scalar(call, 1, 0, &k, error));
    if (y == NULL) {
        return SBIT_OK;
    }
    const int64_t columns = y->dims[y->rank - 1], rows = y->dims[y->rank - 2];
    const int64_t all = sbit__dims_product(y->dims, 0, y->rank - 1);
    k = k < -rows ? -rows : k > columns ? columns : k; /* beyond these nothing changes */
    sbit__elem_copy_all(call->in[0], y);
    for (int64_t r = 0; r < all; r++) {
        const int64_t diagonal = r % rows + k;
        int64_t first = upper ? 0 : diagonal + 1, end = upper ? diagonal : columns;
        first = first < 0 ? 0 : first;
        end = end > columns ? columns : end;
        sbit__elem_zero(y->dtype, y->data, r * columns + first, end - first);
    }
    return SBIT_OK;
}

/* >>OneHot */

static sbit_status sbit__one_hot_type(const sbit_op_call *call, const sbit_type *indices,
                                      sbit_type *out, int32_t *axis, sbit_error *error)
{
    sbit_dim depth = sbit__dim_any();
    const sbit_tensor *known = sbit__in(call, 1);
    int64_t count = 0;
    if (known != NULL && sbit_tensor_count(known) == 1) { /* may be a float */
        depth = sbit__dim(sbit__tensor_i64_at(known, 0));
    } else if (!sbit__op_elems(call, 1, &depth, 1, &count) || count != 1) {
        depth = sbit__dim_any();
    }
    if (sbit__dim_known(depth) && depth.value < 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "a depth of %lld", (long long)depth.value);
    }
    if (indices->rank < 0) {
        return SBIT_OK;
    }
    if (indices->rank + 1 > SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "the output's rank is above %d",
                            SBIT_MAX_RANK);
    }
    out->rank = indices->rank + 1;
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), out->rank, axis, error));
    for (int32_t i = 0; i < out->rank; i++) {
        out->dims[i] = i == *axis ? depth : indices->dims[i < *axis ? i : i - 1];
    }
    return SBIT_OK;
}

static sbit_status sbit__one_hot_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type ignored = sbit__type_unknown();
    sbit_type *out = NULL;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    out = sbit__op_out(call, 0, sbit__in_dtype(call, 2), -1);
    return sbit__one_hot_type(call, call->in_type[0], out != NULL ? out : &ignored, &axis, error);
}

static sbit_status sbit__one_hot_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *indices = call->in[0], *values = call->in[2];
    const sbit_type indices_type = sbit__type_of_tensor(indices);
    sbit_type type = sbit__type_unknown();
    sbit_tensor *y = NULL;
    int32_t axis = 0;
    type.dtype = values->dtype;
    SBIT__TRY(sbit__one_hot_type(call, &indices_type, &type, &axis, error));
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &y, error));
    if (sbit_tensor_count(values) != 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld values, not 2",
                            (long long)sbit_tensor_count(values));
    }
    if (y == NULL) {
        return SBIT_OK;
    }
    const int64_t depth = y->dims[axis], inner = sbit__dims_product(y->dims, axis + 1, y->rank);
    sbit__elem_fill(y->dtype, y->data, 0, sbit_tensor_count(y), values->data, 0);
    for (int64_t i = 0; i < sbit_tensor_count(indices); i++) {
        int64_t index = sbit__tensor_i64_at(indices, i);
        if (index < -depth || index >= depth) {
            continue; /* such a row is all off; negative ones below opset 11 as ONNX Runtime has them */
        }
        index += index < 0 ? depth : 0;
        sbit__elem_copy(y->dtype, y->data, (i / inner * depth + index) * inner + i % inner,
                        values->data, 1, 1);
    }
    return SBIT_OK;
}

/* >>random numbers */

static sbit_rng sbit__random_seed(const sbit_op_call *call)
{
    const sbit_attr *attr = sbit_node_attr(call->node, "seed");
    if (attr != NULL) {
        uint32_t bits = 0;
        memcpy(&bits, &attr->f, sizeof bits);
        return sbit_rng_seed(bits);
    }
    return sbit_rng_seed(sbit__hash_bytes(call->node->name, strlen(call->node->name)));
}

/* Shape from the attribute (no inputs) or from input 0. */
static sbit_status sbit__random_infer(const sbit_op_call *call, sbit_error *error)
{
    const bool like =
        strstr(call->row->op_type, "Random") == NULL || strstr(call->row->op_type, "Like") != NULL;
    sbit_dtype dtype = SBIT_F32;
    int64_t shape[SBIT_MAX_RANK], count = -1;
    SBIT__TRY(sbit__op_inputs(call, like ? 1 : 0, like ? 1 : 0, error));
    SBIT__TRY(sbit__generate_dtype(
        call, like ? (int64_t)sbit__in_dtype(call, 0) : (int64_t)SBIT_F32, &dtype, error));
    if (like) {
        sbit__op_same_type(call, 0, 0);
        if (call->output_count > 0 && call->out_type[0] != NULL) {
            call->out_type[0]->dtype = dtype;
        }
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_ints(call, "shape", -1, shape, SBIT_MAX_RANK, &count, error));
    if (count < 0) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no shape");
    }
    sbit_type *out = sbit__op_out(call, 0, dtype, (int32_t)count);
    for (int64_t i = 0; out != NULL && i < count; i++) {
        if (shape[i] < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the shape holds %lld",
                                (long long)shape[i]);
        }
        out->dims[i] = sbit__dim(shape[i]);
    }
    return SBIT_OK;
}

static sbit_status sbit__random_run(const sbit_op_call *call, sbit_error *error)
{
    const bool normal = strncmp(call->row->op_type, "RandomNormal", 12) == 0;
    const double mean = (double)sbit_node_float(call->node, "mean", 0.0f);
    const double scale = (double)sbit_node_float(call->node, "scale", 1.0f);
    const double low = (double)sbit_node_float(call->node, "low", 0.0f);
    const double high = (double)sbit_node_float(call->node, "high", 1.0f);
    sbit_rng rng = sbit__random_seed(call);
    sbit_tensor *y = call->out[0];
    (void)error;
    for (int64_t i = 0; y != NULL && i < sbit_tensor_count(y); i++) {
        const double value = normal ? mean + scale * (double)sbit_rng_normal(&rng)
                                    : low + (high - low) * (double)sbit_rng_uniform(&rng);
        sbit__tensor_set_f64(y, i, value);
    }
    return SBIT_OK;
}

static sbit_status sbit__bernoulli_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_rng rng = sbit__random_seed(call);
    sbit_tensor *y = call->out[0];
    (void)error;
    for (int64_t i = 0; y != NULL && i < sbit_tensor_count(y); i++) {
        const double p = sbit__tensor_f64_at(call->in[0], i);
        sbit__tensor_set_f64(y, i, (double)sbit_rng_uniform(&rng) < p ? 1.0 : 0.0);
    }
    return SBIT_OK;
}

static sbit_status sbit__multinomial_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t samples = sbit_node_int(call->node, "sample_size", 1);
    sbit_dtype dtype = SBIT_I32;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__generate_dtype(call, (int64_t)SBIT_I32, &dtype, error));
    const sbit_type *x = call->in_type[0];
    if ((dtype != SBIT_I32 && dtype != SBIT_I64) || samples < 0 || (x->rank >= 0 && x->rank != 2)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "it needs an input of rank 2, sample_size >= 0, dtype int32 or int64");
    }
    sbit_type *out = sbit__op_out(call, 0, dtype, 2);
    if (out != NULL) {
        out->dims[0] = x->rank == 2 ? x->dims[0] : sbit__dim_any();
        out->dims[1] = sbit__dim(samples);
    }
    return SBIT_OK;
}

/* Draws from softmax(x): inputs are unnormalized log-probabilities. */
static sbit_status sbit__multinomial_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit_rng rng = sbit__random_seed(call);
    sbit_tensor *y = call->out[0];
    const int64_t classes = x->dims[1];
    (void)error;
    for (int64_t i = 0; y != NULL && i < sbit_tensor_count(y); i++) {
        const int64_t row = i / y->dims[1] * classes;
        double most = -(double)INFINITY, sum = 0.0, at = 0.0;
        int64_t pick = 0;
        for (int64_t c = 0; c < classes; c++) {
            const double v = sbit__tensor_f64_at(x, row + c);
            most = v > most ? v : most;
        }
        for (int64_t c = 0; c < classes; c++) {
            sum += exp(sbit__tensor_f64_at(x, row + c) - most);
        }
        const double target = (double)sbit_rng_uniform(&rng) * sum;
        for (int64_t c = 0; c < classes; c++) {
            at += exp(sbit__tensor_f64_at(x, row + c) - most);
            pick = c;
            if (target < at) {
                break;
            }
        }
        sbit__tensor_set_f64(y, i, (double)pick);
    }
    return SBIT_OK;
}

/* >>NonZero */

static bool sbit__nonzero_at(const sbit_tensor *x, int64_t i)
{
    if (x->dtype == SBIT_STRING) {
        return ((const sbit_str *)x->data)[i].size != 0;
    }
    if (x->dtype == SBIT_C64) {
        const float *f = (const float *)x->data + 2 * i;
        return f[0] != 0.0f || f[1] != 0.0f;
    }
    if (x->dtype == SBIT_C128) {
        const double *f = (const double *)x->data + 2 * i;
        return f[0] != 0.0 || f[1] != 0.0;
    }
    return sbit__tensor_f64_at(x, i) != 0.0;
}

static int64_t sbit__nonzero_count(const sbit_tensor *x)
{
    const int64_t n = sbit_tensor_count(x);
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        found += sbit__nonzero_at(x, i) ? 1 : 0;
    }
    return found;
}

static sbit_status sbit__nonzero_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    const int32_t rank = call->in_type[0]->rank;
    sbit_type *out = sbit__op_out(call, 0, SBIT_I64, 2);
    if (out != NULL && rank >= 0) {
        out->dims[0] = sbit__dim(rank == 0 ? 1 : rank);
        out->dims[1] = sbit__op_constant(call, 0) ? sbit__dim(sbit__nonzero_count(call->in[0]))
                                                  : sbit__dim_any();
    }
    return SBIT_OK;
}

static sbit_status sbit__nonzero_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int64_t n = sbit_tensor_count(x), rank = x->rank == 0 ? 1 : x->rank;
    const int64_t found = sbit__nonzero_count(x);
    int64_t dims[2], strides[SBIT_MAX_RANK];
    dims[0] = rank;
    dims[1] = found;
    SBIT__TRY(call->alloc_output(call, 0, -1, SBIT_I64, 2, dims, error));
    int64_t *y = (int64_t *)call->out[0]->data, at = 0;
    sbit__tensor_strides(x, strides);
    for (int64_t i = 0; i < n; i++) {
        if (!sbit__nonzero_at(x, i)) {
            continue;
        }
        for (int32_t d = 0; d < (int32_t)rank; d++) {
            y[d * found + at] = x->rank == 0 ? 0 : i / strides[d] % x->dims[d];
        }
        at++;
    }
    return SBIT_OK;
}

/* >>Unique. Slices (elements, if there is no axis) are sorted by index with a heap, equal ones in
 * order of occurrence; neighbours that are equal form a group. */

typedef struct sbit__unique {
    const sbit_tensor *x;
    int64_t outer, size, inner;     /* slice i: all outer and inner elements with index i */
    int64_t *order;                 /* slices, then groups in the order of the output */
    int64_t *group, *first, *count; /* by slice: its group; by group: first slice, size */
} sbit__unique;

static int sbit__unique_compare_text(sbit_str a, sbit_str b)
{
    const size_t n = a.size < b.size ? a.size : b.size;
    const int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size;
}

static int sbit__unique_compare_numbers(double a, double b)
{
    if (a != a || b != b) { /* NaN is last, and equal to itself */
        return a == a ? -1 : b == b ? 1 : 0;
    }
    return a < b ? -1 : a > b;
}

static int sbit__unique_compare_at(const sbit_tensor *x, int64_t i, int64_t j)
{
    if (x->dtype == SBIT_STRING) {
        const sbit_str *text = (const sbit_str *)x->data;
        return sbit__unique_compare_text(text[i], text[j]);
    }
    if ((SBIT_T(x->dtype) & SBIT_T_INTS) != 0) {
        const int64_t a = sbit__tensor_i64_at(x, i), b = sbit__tensor_i64_at(x, j);
        const bool below = x->dtype == SBIT_U64 ? (uint64_t)a < (uint64_t)b : a < b;
        return a == b ? 0 : below ? -1 : 1;
    }
    if (x->dtype == SBIT_C64 || x->dtype == SBIT_C128) { /* as numpy: the real part first */
        const bool wide = x->dtype == SBIT_C128;
        const float *f = (const float *)x->data;
        const double *d = (const double *)x->data;
        int order = 0;
        for (int64_t part = 0; part < 2 && order == 0; part++) {
            const int64_t a = 2 * i + part, b = 2 * j + part;
            order = wide ? sbit__unique_compare_numbers(d[a], d[b])
                         : sbit__unique_compare_numbers((double)f[a], (double)f[b]);
        }
        return order;
    }
    return sbit__unique_compare_numbers(sbit__tensor_f64_at(x, i), sbit__tensor_f64_at(x, j));
}

static int sbit__unique_compare(const sbit__unique *u, int64_t i, int64_t j)
{
    for (int64_t o = 0; o < u->outer; o++) {
        for (int64_t k = 0; k < u->inner; k++) {
            const int order = sbit__unique_compare_at(u->x, (o * u->size + i) * u->inner + k,
                                                      (o * u->size + j) * u->inner + k);
            if (order != 0) {
                return order;
            }
        }
    }
    return 0;
}

/* a before b: by content, then by occurrence; groups by their first occurrence alone. */
static bool sbit__unique_before(const sbit__unique *u, bool groups, int64_t a, int64_t b)
{
    const int order = groups ? 0 : sbit__unique_compare(u, a, b);
    return order < 0 || (order == 0 && (groups ? u->first[a] < u->first[b] : a < b));
}

static void sbit__unique_sift(const sbit__unique *u, bool groups, int64_t at, int64_t n)
{
    int64_t *v = u->order;
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && sbit__unique_before(u, groups, v[child], v[child + 1])) {
            child++;
        }
        if (!sbit__unique_before(u, groups, v[at], v[child])) {
            return;
        }
        const int64_t swapped = v[at];
        v[at] = v[child];
        v[child] = swapped;
        at = child;
    }
}

static void sbit__unique_sort(const sbit__unique *u, bool groups, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        u->order[i] = i;
    }
    for (int64_t i = n / 2 - 1; i >= 0; i--) {
        sbit__unique_sift(u, groups, i, n);
    }
    for (int64_t left = n - 1; left > 0; left--) {
        const int64_t largest = u->order[0];
        u->order[0] = u->order[left];
        u->order[left] = largest;
        sbit__unique_sift(u, groups, 0, left);
    }
}

/* Groups numbered in the order of the output; their number. */
static int64_t sbit__unique_groups(const sbit__unique *u, bool sorted)
{
    int64_t groups = 0;
    sbit__unique_sort(u, false, u->size);
    for (int64_t i = 0; i < u->size; i++) {
        const int64_t slice = u->order[i];
        if (i == 0 || sbit__unique_compare(u, u->order[i - 1], slice) != 0) {
            u->first[groups] = slice;
            u->count[groups] = 0;
            groups++;
        }
        u->group[slice] = groups - 1;
        u->count[groups - 1]++;
    }
    if (sorted) {
        for (int64_t i = 0; i < groups; i++) {
            u->order[i] = i;
        }
    } else {
        sbit__unique_sort(u, true, groups);
    }
    return groups;
}

static sbit_status sbit__unique_axis(const sbit_op_call *call, int32_t rank, int32_t *axis,
                                     sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(call->node, "axis");
    *axis = -1;
    return attr == NULL ? SBIT_OK : sbit__op_axis(call, attr->i, rank, axis, error);
}

/* The slices of x, with their groups in `scratch`; how many groups there are. */
static int64_t sbit__unique_of(const sbit_op_call *call, const sbit_tensor *x, int32_t axis,
                               void *scratch, sbit__unique *u)
{
    u->x = x;
    u->outer = axis < 0 ? 1 : sbit__dims_product(x->dims, 0, axis);
    u->size = axis < 0 ? sbit_tensor_count(x) : x->dims[axis];
    u->inner = axis < 0 ? 1 : sbit__dims_product(x->dims, axis + 1, x->rank);
    u->order = (int64_t *)scratch;
    u->group = u->order + u->size + 1;
    u->first = u->group + u->size + 1;
    u->count = u->first + u->size + 1;
    return sbit__unique_groups(u, sbit_node_int(call->node, "sorted", 1) != 0);
}

static sbit_status sbit__unique_scratch(const sbit_op_call *call, int32_t axis, size_t *bytes,
                                        sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    const sbit_dim slices = axis < 0 ? sbit__dim_product(x->dims, x->rank) : x->dims[axis];
    *bytes = 0;
    return !sbit__dim_known(slices) ||
                   sbit__mul_size((size_t)slices.value + 1, 4 * sizeof(int64_t), bytes)
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_LIMIT, error, "its input is too large");
}

static sbit_status sbit__unique_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t axis = -1;
    sbit_dim groups = sbit__dim_any();
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    const sbit_type *x = call->in_type[0];
    if (x->rank >= 0) {
        SBIT__TRY(sbit__unique_axis(call, x->rank, &axis, error));
    }
    if (sbit__op_constant(call, 0)) {
        const sbit_allocator *allocator = sbit_ctx_allocator(call->ctx);
        size_t bytes = 0;
        sbit__unique u;
        SBIT__TRY(sbit__unique_scratch(call, axis, &bytes, error));
        void *scratch = sbit__alloc(allocator, bytes);
        if (scratch == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        groups = sbit__dim(sbit__unique_of(call, call->in[0], axis, scratch, &u));
        sbit__free(allocator, scratch, bytes);
    }
    for (int32_t i = 0; i < 4; i++) {
        const bool whole = i == 0 && sbit_node_attr(call->node, "axis") != NULL; /* slices */
        sbit_type *out = sbit__op_out(call, i, i == 0 ? x->dtype : SBIT_I64, whole ? x->rank : 1);
        for (int32_t d = 0; out != NULL && d < out->rank; d++) {
            out->dims[d] = i != 2 && (!whole || d == axis) ? groups
                           : whole                         ? x->dims[d]
                           : x->rank < 0                   ? sbit__dim_any()
                           : axis < 0 ? sbit__dim_product(x->dims, x->rank)
                                      : x->dims[axis];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__unique_prepare(const sbit_op_call *call, sbit_error *error)
{
    int32_t axis = -1;
    if (call->in_type[0]->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__unique_axis(call, call->in_type[0]->rank, &axis, error));
    return sbit__unique_scratch(call, axis, call->scratch_bytes, error);
}

static sbit_status sbit__unique_write(const sbit_op_call *call, const sbit__unique *u,
                                      int64_t groups, int32_t axis, sbit_error *error)
{
    int64_t dims[SBIT_MAX_RANK];
    memcpy(dims, u->x->dims, sizeof dims);
    dims[axis < 0 ? 0 : axis] = groups;
    for (int32_t i = 0; i < 4 && i < call->output_count; i++) {
        const int64_t length = i == 2 ? u->size : groups;
        if (call->out[i] == NULL) {
            continue;
        }
        SBIT__TRY(call->alloc_output(call, i, -1, i == 0 ? u->x->dtype : SBIT_I64,
                                     i == 0 && axis >= 0 ? u->x->rank : 1, i == 0 ? dims : &length,
                                     error));
    }
    sbit_tensor *y = sbit__out(call, 0), *first = sbit__out(call, 1);
    sbit_tensor *inverse = sbit__out(call, 2), *counts = sbit__out(call, 3);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t from = u->order[g];
        for (int64_t o = 0; y != NULL && o < u->outer; o++) {
            sbit__elem_copy(y->dtype, y->data, (o * groups + g) * u->inner, u->x->data,
                            (o * u->size + u->first[from]) * u->inner, u->inner);
        }
        if (first != NULL) {
            ((int64_t *)first->data)[g] = u->first[from];
        }
        if (counts != NULL) {
            ((int64_t *)counts->data)[g] = u->count[from];
        }
    }
    if (inverse == NULL) {
        return SBIT_OK;
    }
    for (int64_t g = 0; g < groups; g++) { /* `first` is free now: where each group went */
        u->first[u->order[g]] = g;
    }
    for (int64_t i = 0; i < u->size; i++) {
        ((int64_t *)inverse->data)[i] = u->first[u->group[i]];
    }
    return SBIT_OK;
}

static sbit_status sbit__unique_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__unique u;
    int32_t axis = -1;
    SBIT__TRY(sbit__unique_axis(call, call->in[0]->rank, &axis, error));
    const int64_t groups = sbit__unique_of(call, call->in[0], axis, call->scratch, &u);
    return sbit__unique_write(call, &u, groups, axis, error);
}

/* >>NonMaxSuppression */

typedef struct sbit__nms {
    const float *boxes, *scores; /* of the batch; of the class */
    int64_t count;               /* boxes */
    int64_t most;                /* selected per class */
    float iou, score;
    bool has_score, center;
    int64_t *order, *picked;
} sbit__nms;

/* Corners in order: y1 <= y2, x1 <= x2. */
static void sbit__nms_corners(const sbit__nms *nms, int64_t i, float corner[4])
{
    const float *b = nms->boxes + 4 * i;
    for (int k = 0; k < 2; k++) {
        /* center form is x, y, width, height; the other y1, x1, y2, x2 */
        const float lo = nms->center ? b[k] - b[k + 2] / 2.0f : b[k];
        const float hi = nms->center ? b[k] + b[k + 2] / 2.0f : b[k + 2];
        corner[k] = lo < hi ? lo : hi;
        corner[k + 2] = lo < hi ? hi : lo;
    }
}

static bool sbit__nms_overlap(const sbit__nms *nms, int64_t i, int64_t j)
{
    float a[4], b[4], inside = 1.0f;
    sbit__nms_corners(nms, i, a);
    sbit__nms_corners(nms, j, b);
    for (int k = 0; k < 2; k++) {
        const float lo = a[k] > b[k] ? a[k] : b[k];
        const float hi = a[k + 2] < b[k + 2] ? a[k + 2] : b[k + 2];
        inside *= hi > lo ? hi - lo : 0.0f;
    }
    const float both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside;
    return inside > 0.0f && both > 0.0f && inside / both > nms->iou;
}

/* a is looked at before b: the higher score, then the lower index. */
static bool sbit__nms_before(const sbit__nms *nms, int64_t a, int64_t b)
{
    return nms->scores[a] > nms->scores[b] || (nms->scores[a] == nms->scores[b] && a < b);
}

/* A heap with the box to look at next at its root. */
static void sbit__nms_sift(const sbit__nms *nms, int64_t at, int64_t n)
{
    int64_t *v = nms->order;
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && sbit__nms_before(nms, v[child + 1], v[child])) {
            child++;
        }
        if (!sbit__nms_before(nms, v[child], v[at])) {
            return;
        }
        const int64_t swapped = v[at];
        v[at] = v[child];
        v[child] = swapped;
        at = child;
    }
}

/* The boxes of one class that stay, in `picked`; how many. */
static int64_t sbit__nms_class(const sbit__nms *nms)
{
    int64_t left = 0, picked = 0;
    for (int64_t i = 0; i < nms->count; i++) {
        if (!nms->has_score || nms->scores[i] > nms->score) {
            nms->order[left++] = i;
        }
    }
    for (int64_t i = left / 2 - 1; i >= 0; i--) {
        sbit__nms_sift(nms, i, left);
    }
    while (left > 0 && picked < nms->most) {
        const int64_t box = nms->order[0];
        bool keep = true;
        for (int64_t k = 0; keep && k < picked; k++) {
            keep = !sbit__nms_overlap(nms, box, nms->picked[k]);
        }
        if (keep) {
            nms->picked[picked++] = box;
        }
        nms->order[0] = nms->order[--left];
        sbit__nms_sift(nms, 0, left);
    }
    return picked;
}

/* Writes triples (batch, class, box) to `out` unless it is NULL; how many there are. */
static int64_t sbit__nms_all(const sbit_op_call *call, sbit__nms *nms, int64_t *out)
{
    const sbit_tensor *boxes = call->in[0], *scores = call->in[1];
    int64_t total = 0;
    for (int64_t b = 0; b < scores->dims[0]; b++) {
        for (int64_t c = 0; c < scores->dims[1]; c++) {
            nms->boxes = (const float *)boxes->data + b * nms->count * 4;
            nms->scores = (const float *)scores->data + (b * scores->dims[1] + c) * nms->count;
            const int64_t picked = sbit__nms_class(nms);
            for (int64_t k = 0; out != NULL && k < picked; k++) {
                out[3 * (total + k)] = b;
                out[3 * (total + k) + 1] = c;
                out[3 * (total + k) + 2] = nms->picked[k];
            }
            total += picked;
        }
    }
    return total;
}

/* Checks the inputs and counts what is selected, with memory for the boxes of a class in `scratch`. */
static sbit_status sbit__nms_of(const sbit_op_call *call, void *scratch, sbit__nms *nms,
                                int64_t *selected, sbit_error *error)
{
    const sbit_tensor *boxes = call->in[0], *scores = call->in[1];
    const sbit_tensor *iou = sbit__in(call, 3), *score = sbit__in(call, 4);
    memset(nms, 0, sizeof *nms);
    SBIT__TRY(sbit__op_scalar(call, 2, 0, &nms->most, error));
    if (boxes->dtype != SBIT_F32 || scores->dtype != SBIT_F32) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "boxes are %s, scores %s; not float32",
                            sbit_dtype_name((int32_t)boxes->dtype),
                            sbit_dtype_name((int32_t)scores->dtype));
    }
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2] ||
        (iou != NULL && sbit_tensor_count(iou) != 1) ||
        (score != NULL && sbit_tensor_count(score) != 1)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "it needs boxes [batch,n,4], scores [batch,classes,n], scalar limits");
    }
    nms->count = boxes->dims[1];
    nms->iou = iou != NULL ? (float)sbit__tensor_f64_at(iou, 0) : 0.0f;
    nms->has_score = score != NULL;
    nms->score = score != NULL ? (float)sbit__tensor_f64_at(score, 0) : 0.0f;
    nms->center = sbit_node_int(call->node, "center_point_box", 0) != 0;
    nms->order = (int64_t *)scratch;
    nms->picked = nms->order + nms->count + 1;
    *selected = sbit__nms_all(call, nms, NULL);
    return SBIT_OK;
}

static sbit_status sbit__nms_scratch(const sbit_op_call *call, size_t *bytes, sbit_error *error)
{
    const sbit_type *boxes = call->in_type[0];
    *bytes = 0;
    return boxes->rank != 3 || !sbit__dim_known(boxes->dims[1]) ||
                   sbit__mul_size((size_t)boxes->dims[1].value + 1, 2 * sizeof(int64_t), bytes)
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_LIMIT, error, "its input is too large");
}

static sbit_status sbit__nms_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 5, error));
    sbit_type *out = sbit__op_out(call, 0, SBIT_I64, 2);
    bool known = true;
    for (int32_t i = 0; i < call->input_count; i++) {
        known = known && (call->in_type[i] == NULL || sbit__op_constant(call, i));
        if (i < 2 && call->in_type[i]->rank >= 0 && call->in_type[i]->rank != 3) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d has rank %d, not 3", (int)i,
                                (int)call->in_type[i]->rank);
        }
    }
    if (out == NULL) {
        return SBIT_OK;
    }
    out->dims[1] = sbit__dim(3);
    if (known) {
        const sbit_allocator *allocator = sbit_ctx_allocator(call->ctx);
        sbit__nms nms;
        int64_t selected = 0;
        size_t bytes = 0;
        SBIT__TRY(sbit__nms_scratch(call, &bytes, error));
        void *scratch = sbit__alloc(allocator, bytes);
        if (scratch == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        const sbit_status status = sbit__nms_of(call, scratch, &nms, &selected, error);
        sbit__free(allocator, scratch, bytes);
        SBIT__TRY(status);
        out->dims[0] = sbit__dim(selected);
    }
    return SBIT_OK;
}

static sbit_status sbit__nms_prepare(const sbit_op_call *call, sbit_error *error)
{
    return sbit__nms_scratch(call, call->scratch_bytes, error);
}

static sbit_status sbit__nms_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__nms nms;
    int64_t dims[2] = {0, 3};
    SBIT__TRY(sbit__nms_of(call, call->scratch, &nms, &dims[0], error));
    SBIT__TRY(call->alloc_output(call, 0, -1, SBIT_I64, 2, dims, error));
    sbit__nms_all(call, &nms, (int64_t *)call->out[0]->data);
    return SBIT_OK;
}

/* >>rows */

#define SBIT__GENERATE_ROW(name, version, types, flags, infer, prepare, run)                       \
    {                                                                                              \
        "", name, version, types, flags, 0, sbit__##infer##_infer, prepare, sbit__##run##_run,     \
            NULL, NULL, NULL, NULL, NULL                                                           \
    }
#define SBIT__GENERATE_SIMPLE(name, version, types, fn)                                            \
    SBIT__GENERATE_ROW(name, version, types, 0, fn, NULL, fn)
#define SBIT__GENERATE_RANDOM(name, version, types, infer, run)                                    \
    SBIT__GENERATE_ROW(name, version, types, SBIT_OP_RANDOM, infer, NULL, run)
#define SBIT__GENERATE_EYE (SBIT__T_NUMBERS1 | SBIT_T(SBIT_BOOL))
#define SBIT__GENERATE_RANGE                                                                       \
    (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT_T(SBIT_I16) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64))

#define SBIT__GENERATE_ONE_HOT(version)                                                            \
    {                                                                                              \
        "", "OneHot", version, SBIT__T_NUMBERS1, 0, 0, sbit__one_hot_infer, NULL,                  \
            sbit__one_hot_run, sbit__grad_one_hot, NULL, NULL, NULL, NULL                          \
    }

static const sbit_op_row sbit__generate_rows[] = {
    SBIT__GENERATE_SIMPLE("Constant", 1, SBIT__T_FLOATS1, constant),
    SBIT__GENERATE_SIMPLE("Constant", 9, SBIT__T_ALL1, constant),
    SBIT__GENERATE_SIMPLE("Constant", 11, SBIT__T_ALL1, constant),
    SBIT__GENERATE_SIMPLE("Constant", 12, SBIT__T_ALL1, constant),
    SBIT__GENERATE_SIMPLE("Constant", 13, SBIT__T_ALL13, constant),
    SBIT__GENERATE_SIMPLE("Constant", 19, SBIT__T_ALL19, constant),
    SBIT__GENERATE_SIMPLE("Constant", 21, SBIT__T_ALL21, constant),
    SBIT__GENERATE_SIMPLE("Constant", 23, SBIT__T_ALL23, constant),
    SBIT__GENERATE_SIMPLE("Constant", 24, SBIT__T_ALL24, constant),
    SBIT__GENERATE_SIMPLE("Constant", 25, SBIT__T_ALL25, constant),
    SBIT__GENERATE_SIMPLE("ConstantOfShape", 9, SBIT_T(SBIT_I64), fill),
    SBIT__GENERATE_SIMPLE("ConstantOfShape", 20, SBIT_T(SBIT_I64), fill),
    SBIT__GENERATE_SIMPLE("ConstantOfShape", 21, SBIT_T(SBIT_I64), fill),
    SBIT__GENERATE_SIMPLE("ConstantOfShape", 23, SBIT_T(SBIT_I64), fill),
    SBIT__GENERATE_SIMPLE("ConstantOfShape", 24, SBIT_T(SBIT_I64), fill),
    SBIT__GENERATE_SIMPLE("ConstantOfShape", 25, SBIT_T(SBIT_I64), fill),
    SBIT__GENERATE_SIMPLE("Range", 11, SBIT__GENERATE_RANGE, range),
    SBIT__GENERATE_SIMPLE("Range", 27, SBIT__GENERATE_RANGE | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16),
                          range),
    SBIT__GENERATE_SIMPLE("EyeLike", 9, SBIT__GENERATE_EYE, eye),
    SBIT__GENERATE_SIMPLE("EyeLike", 22, SBIT__GENERATE_EYE | SBIT_T(SBIT_BF16), eye),
    SBIT__GENERATE_ONE_HOT(9),
    SBIT__GENERATE_ONE_HOT(11),
    SBIT__GENERATE_ONE_HOT(28),
    {"", "Trilu", 14, SBIT__T_ALL13, SBIT_OP_IN_PLACE, 0, sbit__trilu_infer, NULL, sbit__trilu_run,
     sbit__grad_trilu, NULL, NULL, NULL, NULL},

    SBIT__GENERATE_RANDOM("RandomNormal", 1, SBIT__T_FLOATS1, random, random),
    SBIT__GENERATE_RANDOM("RandomNormal", 22, SBIT_T_FLOATS, random, random),
    SBIT__GENERATE_RANDOM("RandomUniform", 1, SBIT__T_FLOATS1, random, random),
    SBIT__GENERATE_RANDOM("RandomUniform", 22, SBIT_T_FLOATS, random, random),
    SBIT__GENERATE_RANDOM("RandomNormalLike", 1, SBIT__T_ALL1, random, random),
    SBIT__GENERATE_RANDOM("RandomNormalLike", 22, SBIT__T_ALL13, random, random),
    SBIT__GENERATE_RANDOM("RandomUniformLike", 1, SBIT__T_ALL1, random, random),
    SBIT__GENERATE_RANDOM("RandomUniformLike", 22, SBIT__T_ALL13, random, random),
    SBIT__GENERATE_RANDOM("Bernoulli", 15, SBIT__T_FLOATS1, random, bernoulli),
    SBIT__GENERATE_RANDOM("Bernoulli", 22, SBIT_T_FLOATS, random, bernoulli),
    SBIT__GENERATE_RANDOM("Multinomial", 7, SBIT__T_FLOATS1, multinomial, multinomial),
    SBIT__GENERATE_RANDOM("Multinomial", 22, SBIT_T_FLOATS, multinomial, multinomial),

    SBIT__GENERATE_ROW("NonZero", 9, SBIT__T_ALL1, SBIT_OP_DYNAMIC, nonzero, NULL, nonzero),
    SBIT__GENERATE_ROW("NonZero", 13, SBIT__T_ALL13, SBIT_OP_DYNAMIC, nonzero, NULL, nonzero),
    SBIT__GENERATE_ROW("Unique", 11, SBIT__T_ALL1, SBIT_OP_DYNAMIC, unique, sbit__unique_prepare,
                       unique),
    SBIT__GENERATE_ROW("Unique", 28, SBIT__T_ALL13, SBIT_OP_DYNAMIC, unique, sbit__unique_prepare,
                       unique),
    SBIT__GENERATE_ROW("NonMaxSuppression", 10, SBIT_T(SBIT_F32), SBIT_OP_DYNAMIC, nms,
                       sbit__nms_prepare, nms),
    SBIT__GENERATE_ROW("NonMaxSuppression", 11, SBIT_T(SBIT_F32), SBIT_OP_DYNAMIC, nms,
                       sbit__nms_prepare, nms),
};

#undef SBIT__GENERATE_ROW
#undef SBIT__GENERATE_SIMPLE
#undef SBIT__GENERATE_RANDOM
#undef SBIT__GENERATE_EYE
#undef SBIT__GENERATE_RANGE

SBIT__FN const sbit_op_row *sbit__op_rows_generate(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__generate_rows);
    return sbit__generate_rows;
}
