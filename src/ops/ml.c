/* ml.c: of ai.onnx.ml: ArrayFeatureExtractor, Binarizer, LabelEncoder, CategoryMapper, and what
 * the other files of this domain share. >>ml
 *
 * Called by: infer, exec, ops/ml_classic.c, ops/ml_trees.c. Calls: ops/elements.c.
 */
#include "ml_private.h"

#include <math.h>  /* exp, fabs, log, sqrt */
#include <stdio.h> /* snprintf */

#if !SPARSEBIT_NO_OPS_ML

SBIT__FN sbit_status sbit__ml_bad(const sbit_op_call *call, const char *what, sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "%s", what);
}

/* >>ml lists, words, labels */

SBIT__FN sbit__ml_list sbit__ml_list_of(const sbit_op_call *call, const char *name)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    sbit__ml_list list;
    memset(&list, 0, sizeof list);
    if (attr != NULL && attr->type == SBIT_ONNX_ATTR_FLOATS) {
        list.floats = attr->floats;
        list.count = (int64_t)attr->count;
    } else if (attr != NULL && attr->type == SBIT_ONNX_ATTR_INTS) {
        list.ints = attr->ints;
        list.count = (int64_t)attr->count;
    } else if (attr != NULL && attr->type == SBIT_ONNX_ATTR_FLOAT) {
        list.floats = &attr->f;
        list.count = 1;
    } else if (attr != NULL && attr->type == SBIT_ONNX_ATTR_INT) {
        list.ints = &attr->i;
        list.count = 1;
    }
    return list;
}

SBIT__FN sbit__ml_list sbit__ml_list_or_tensor(const sbit_op_call *call, const char *name)
{
    char other[80];
    sbit__ml_list list = sbit__ml_list_of(call, name);
    snprintf(other, sizeof other, "%s_as_tensor", name);
    const sbit_attr *attr = list.count == 0 ? sbit_node_attr(call->node, other) : NULL;
    if (attr != NULL && attr->type == SBIT_ONNX_ATTR_TENSOR && attr->t.dtype != SBIT_STRING) {
        list.tensor = &attr->t;
        list.count = sbit_tensor_count(&attr->t);
    }
    return list;
}

SBIT__FN double sbit__ml_number(const sbit__ml_list *list, int64_t i)
{
    return list->floats != NULL ? (double)list->floats[i]
           : list->ints != NULL ? (double)list->ints[i]
                                : sbit__tensor_f64_at(list->tensor, i);
}

SBIT__FN sbit_status sbit__ml_input(const sbit_op_call *call, sbit_dim *rows, sbit_dim *features,
                                    sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    const sbit_type *x = call->in_type[0];
    *rows = x->rank == 1 ? sbit__dim(1) : x->rank == 2 ? x->dims[0] : sbit__dim_any();
    *features = x->rank == 1 || x->rank == 2 ? x->dims[x->rank - 1] : sbit__dim_any();
    return x->rank < 0 || x->rank == 1 || x->rank == 2
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_SHAPE, error, "its input is [N, features]");
}

SBIT__FN void sbit__ml_rows_type(const sbit_op_call *call, sbit_dtype dtype, sbit_dim rows,
                                 int64_t width)
{
    sbit_type *out = sbit__op_out(call, 0, dtype, 2);
    if (out != NULL) {
        out->dims[0] = rows;
        out->dims[1] = sbit__dim(width);
    }
}

SBIT__FN void sbit__ml_size(const sbit_tensor *x, int64_t *rows, int64_t *features)
{
    *rows = x->rank == 2 ? x->dims[0] : 1;
    *features = x->dims[x->rank - 1];
}

SBIT__FN sbit_status sbit__ml_classes_of(const sbit_op_call *call, const char *ints,
                                         sbit__ml_classes *out, sbit_error *error)
{
    const sbit_attr *attr = sbit_node_attr(call->node, "classlabels_strings");
    const sbit__ml_list list = sbit__ml_list_of(call, ints);
    memset(out, 0, sizeof *out);
    if (attr != NULL && attr->type == SBIT_ONNX_ATTR_STRINGS && attr->count > 0) {
        out->strings = attr->strings;
        out->count = (int64_t)attr->count;
    } else {
        out->ints = list.ints;
        out->count = list.count;
    }
    return out->count > 0 && out->count < 65536
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                              "it needs classlabels_strings or %s, 65535 at most", ints);
}

SBIT__FN void sbit__ml_classifier_types(const sbit_op_call *call, sbit_dim rows,
                                        const sbit__ml_classes *classes, int64_t width)
{
    sbit_type *label = sbit__op_out(call, 0, classes->strings != NULL ? SBIT_STRING : SBIT_I64, 1);
    sbit_type *scores = sbit__op_out(call, 1, SBIT_F32, 2);
    if (label != NULL) {
        label->dims[0] = rows;
    }
    if (scores != NULL) {
        scores->dims[0] = rows;
        scores->dims[1] = sbit__dim(width);
    }
}

SBIT__FN void sbit__ml_set_label(const sbit_op_call *call, const sbit__ml_classes *classes,
                                 int64_t row, int64_t which)
{
    if (classes->strings != NULL) {
        ((sbit_str *)call->out[0]->data)[row] = classes->strings[which];
    } else {
        ((int64_t *)call->out[0]->data)[row] = classes->ints[which];
    }
}

SBIT__FN int64_t sbit__ml_top(const double *y, int64_t n)
{
    int64_t top = 0;
    for (int64_t i = 1; i < n; i++) {
        top = y[i] > y[top] ? i : top;
    }
    return top;
}

/* >>ml post_transform */

SBIT__FN sbit_status sbit__ml_post_of(const sbit_op_call *call, int32_t *out, sbit_error *error)
{
    static const char *const words[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    return sbit__op_word(call, "post_transform", words, 5, out, error);
}

static double sbit__ml_logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The inverse of the normal distribution's integral, by Winitzki's formula as ONNX Runtime uses. */
static double sbit__ml_probit(double p)
{
    const double x = 2.0 * p - 1.0, half = 0.5 * log((1.0 - x) * (1.0 + x));
    const double a = 2.0 / (3.14159265358979 * 0.147) + half;
    const double root = sqrt(sqrt(a * a - 2.0 * half / 0.147) - a);
    return 1.41421356237310 * (x < 0.0 ? -root : root);
}

SBIT__FN void sbit__ml_transform(int32_t post, double *y, int64_t n)
{
    const bool softmax = post == SBIT__ML_SOFTMAX || post == SBIT__ML_SOFTMAX_ZERO;
    const double most = n > 0 ? y[sbit__ml_top(y, n)] : 0.0;
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++) {
        if (post == SBIT__ML_LOGISTIC) {
            y[k] = sbit__ml_logistic(y[k]);
        } else if (post == SBIT__ML_PROBIT) {
            y[k] = sbit__ml_probit(y[k]);
        } else if (softmax && (post == SBIT__ML_SOFTMAX || fabs(y[k]) > 1e-7)) {
            y[k] = exp(y[k] - most);
            sum += y[k];
        } else if (softmax) { /* scores of zero stay */
            y[k] *= exp(-most);
        }
    }
    for (int64_t k = 0; softmax && sum > 0.0 && k < n; k++) {
        y[k] /= sum;
    }
}

SBIT__FN void sbit__ml_pair(int32_t post, bool complement, double score, double y[2])
{
    y[1] = score;
    y[0] = complement && post != SBIT__ML_LOGISTIC ? 1.0 - score : -score;
    if (post == SBIT__ML_PROBIT) {
        y[0] = 1.0 - score;
    }
    if (post == SBIT__ML_PROBIT || post == SBIT__ML_LOGISTIC) {
        sbit__ml_transform(post, y, 2);
    }
}

SBIT__FN void sbit__ml_load(const sbit_tensor *x, int64_t row, int64_t features, double *out)
{
    for (int64_t i = 0; i < features; i++) {
        out[i] = sbit__tensor_f64_at(x, row * features + i);
    }
}

SBIT__FN void sbit__ml_store(sbit_tensor *out, int64_t row, const double *y, int64_t n)
{
    for (int64_t k = 0; out != NULL && k < n; k++) {
        sbit__tensor_set_f64(out, row * n + k, y[k]);
    }
}

/* >>ml features: elements of the last axis by number */

static sbit_status sbit__features_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x2, SBIT_T(SBIT_I64), error));
    const sbit_type *x = call->in_type[0], *y = call->in_type[1];
    if (x->rank == 0) {
        return sbit__ml_bad(call, "its input has at least one dimension", error);
    }
    sbit_type *out = sbit__op_out(call, 0, x->dtype, x->rank == 1 ? 2 : x->rank);
    for (int32_t i = 0; out != NULL && i < x->rank - 1; i++) {
        out->dims[i] = x->dims[i];
    }
    if (out != NULL && x->rank == 1) {
        out->dims[0] = sbit__dim(1);
    }
    if (out != NULL && x->rank > 0 && y->rank >= 0) {
        out->dims[out->rank - 1] = sbit__dim_product(y->dims, y->rank);
    }
    return SBIT_OK;
}

static sbit_status sbit__features_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *y = call->in[1];
    const int64_t n = sbit_tensor_count(y), width = x->dims[x->rank - 1];
    const int64_t rows = sbit__tensor_span(x, 0, x->rank - 1);
    const int64_t *index = (const int64_t *)y->data;
    int64_t dims[SBIT_MAX_RANK] = {1, 0};
    sbit_tensor *out = NULL;
    const int32_t rank = x->rank == 1 ? 2 : x->rank;
    for (int32_t i = 0; i < x->rank - 1; i++) {
        dims[i] = x->dims[i];
    }
    dims[rank - 1] = n;
    SBIT__TRY(sbit__op_output(call, 0, x->dtype, rank, dims, &out, error));
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= width) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "index %lld is not in 0..%lld",
                                (long long)index[i], (long long)(width - 1));
        }
        for (int64_t row = 0; out != NULL && row < rows; row++) {
            sbit__elem_copy(x->dtype, out->data, row * n + i, x->data, row * width + index[i], 1);
        }
    }
    return SBIT_OK;
}

/* >>ml binarizer */

static sbit_status sbit__binarizer_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 1, 1, 0, error);
}

static sbit_status sbit__binarizer_run(const sbit_op_call *call, sbit_error *error)
{
    const double threshold = (double)sbit_node_float(call->node, "threshold", 0.0f);
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(call->in[0]); i++) {
        const bool above = sbit__tensor_f64_at(call->in[0], i) > threshold;
        sbit__tensor_set_f64(call->out[0], i, above ? 1.0 : 0.0);
    }
    return SBIT_OK;
}

/* >>ml label encoder: keys and values stand in parallel attributes, of one type each */

/* One side of the table: the attribute as a tensor that borrows its data. False: not given. */
static bool sbit__labels_side(const sbit_op_call *call, const char *const names[4],
                              sbit_tensor *out)
{
    static const sbit_dtype types[3] = {SBIT_STRING, SBIT_I64, SBIT_F32};
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < 3; i++) {
        const sbit_attr *attr = sbit_node_attr(call->node, names[i]);
        if (attr != NULL) {
            const void *data = i == 0   ? (const void *)attr->strings
                               : i == 1 ? (const void *)attr->ints
                                        : (const void *)attr->floats;
            out->dtype = types[i];
            out->rank = 1;
            out->dims[0] = (int64_t)attr->count;
            memcpy(&out->data, &data, sizeof data); /* borrowed, read only */
            return true;
        }
    }
    const sbit_attr *tensor = sbit_node_attr(call->node, names[3]);
    if (tensor != NULL) {
        *out = tensor->t;
    }
    return tensor != NULL;
}

typedef struct sbit__labels {
    sbit_tensor keys, values;
} sbit__labels;

/* LabelEncoder-1: classes_strings are keys or values, their numbers the other side (no tensor). */
static bool sbit__labels_by_place(const sbit_op_call *call)
{
    return call->row->since_version == 1 && call->row->op_type[0] == 'L';
}

static sbit_status sbit__labels_of(const sbit_op_call *call, sbit__labels *labels,
                                   sbit_error *error)
{
    static const char *const keys[4] = {"keys_strings", "keys_int64s", "keys_floats",
                                        "keys_tensor"};
    static const char *const values[4] = {"values_strings", "values_int64s", "values_floats",
                                          "values_tensor"};
    static const char *const classes[4] = {"classes_strings", "", "", ""};
    static const char *const texts[4] = {"cats_strings", "", "", ""};
    static const char *const numbers[4] = {"", "cats_int64s", "", ""};
    const bool mapper = call->row->op_type[0] == 'C'; /* CategoryMapper: to what the input is not */
    const bool to_text = mapper && sbit__in_dtype(call, 0) != SBIT_STRING;
    if (sbit__labels_by_place(call)) {
        sbit_tensor *side =
            sbit__in_dtype(call, 0) == SBIT_STRING ? &labels->keys : &labels->values;
        memset(labels, 0, sizeof *labels);
        return sbit__labels_side(call, classes, side)
                   ? SBIT_OK
                   : sbit__ml_bad(call, "attribute classes_strings is missing", error);
    }
    if (!sbit__labels_side(call, to_text ? numbers : mapper ? texts : keys, &labels->keys) ||
        !sbit__labels_side(call, to_text ? texts : mapper ? numbers : values, &labels->values) ||
        sbit_tensor_count(&labels->keys) != sbit_tensor_count(&labels->values)) {
        return sbit__ml_bad(call, "its keys and values have the same number of entries", error);
    }
    return sbit__in_dtype(call, 0) == SBIT_UNDEFINED ||
                   sbit__in_dtype(call, 0) == labels->keys.dtype
               ? SBIT_OK
               : sbit__ml_bad(call, "its input does not have the type of the keys", error);
}

static sbit_status sbit__labels_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__labels labels;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__labels_of(call, &labels, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        const sbit_dtype first = sbit__in_dtype(call, 0) == SBIT_STRING ? SBIT_I64 : SBIT_STRING;
        call->out_type[0]->dtype = sbit__labels_by_place(call) ? first : labels.values.dtype;
    }
    return SBIT_OK;
}

static bool sbit__labels_same(const sbit_tensor *a, int64_t i, const sbit_tensor *b, int64_t k)
{
    if (a->dtype == SBIT_STRING) {
        const sbit_str x = ((const sbit_str *)a->data)[i], y = ((const sbit_str *)b->data)[k];
        return x.size == y.size && (x.size == 0 || memcmp(x.data, y.data, x.size) == 0);
    }
    if ((SBIT_T(a->dtype) & SBIT_T_FLOATS) != 0) {
        const double x = sbit__tensor_f64_at(a, i), y = sbit__tensor_f64_at(b, k);
        return !(x < y || x > y) && (x != x) == (y != y);
    }
    return sbit__tensor_i64_at(a, i) == sbit__tensor_i64_at(b, k);
}

static void sbit__labels_default(const sbit_op_call *call, sbit_tensor *out, int64_t i)
{
    const sbit_attr *tensor = sbit_node_attr(call->node, "default_tensor");
    if (tensor != NULL && tensor->t.dtype == out->dtype && sbit_tensor_count(&tensor->t) > 0) {
        sbit__elem_copy(out->dtype, out->data, i, tensor->t.data, 0, 1);
    } else if (out->dtype == SBIT_STRING) {
        ((sbit_str *)out->data)[i] =
            sbit__str(sbit_node_string(call->node, "default_string", "_Unused"));
    } else if ((SBIT_T(out->dtype) & SBIT_T_FLOATS) != 0) {
        sbit__tensor_set_f64(out, i, (double)sbit_node_float(call->node, "default_float", -0.0f));
    } else {
        sbit__tensor_set_f64(out, i, (double)sbit_node_int(call->node, "default_int64", -1));
    }
}

static sbit_status sbit__labels_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit_tensor *out = call->out[0];
    sbit__labels labels;
    SBIT__TRY(sbit__labels_of(call, &labels, error));
    const bool numbers = sbit__labels_by_place(call);
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        int64_t found = -1;
        if (numbers && x->dtype != SBIT_STRING) { /* the number is the place */
            found = sbit__tensor_i64_at(x, i);
            found = found < sbit_tensor_count(&labels.values) ? found : -1;
        } else {
            for (int64_t k = sbit_tensor_count(&labels.keys) - 1; k >= 0 && found < 0; k--) {
                found = sbit__labels_same(x, i, &labels.keys, k) ? k : -1;
            }
        }
        if (found < 0) {
            sbit__labels_default(call, out, i);
        } else if (numbers && x->dtype == SBIT_STRING) {
            ((int64_t *)out->data)[i] = found;
        } else {
            sbit__elem_copy(out->dtype, out->data, i, labels.values.data, found, 1);
        }
    }
    return SBIT_OK;
}

/* ---- rows */

static const sbit_op_row sbit__ml_table[] = {
    SBIT__ML_ROW("ArrayFeatureExtractor", 1, SBIT__ML_NUMBERS | SBIT_T(SBIT_STRING),
                 sbit__features_infer, NULL, sbit__features_run),
    SBIT__ML_ROW("Binarizer", 1, SBIT__ML_NUMBERS, sbit__binarizer_infer, NULL,
                 sbit__binarizer_run),
    SBIT__ML_ROW("CategoryMapper", 1, SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I64), sbit__labels_infer,
                 NULL, sbit__labels_run),
    SBIT__ML_ROW("LabelEncoder", 1, SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I64), sbit__labels_infer,
                 NULL, sbit__labels_run),
    SBIT__ML_ROW("LabelEncoder", 2, SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I64) | SBIT_T(SBIT_F32),
                 sbit__labels_infer, NULL, sbit__labels_run),
    SBIT__ML_ROW("LabelEncoder", 4, SBIT__ML_NUMBERS | SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I16),
                 sbit__labels_infer, NULL, sbit__labels_run),
};

SBIT__FN const sbit_op_row *sbit__op_rows_ml(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__ml_table);
    return sbit__ml_table;
}

#endif /* SPARSEBIT_NO_OPS_ML */
