/* ml_classic.c: of ai.onnx.ml: Scaler, Imputer, Normalizer, OneHotEncoder, FeatureVectorizer, linear
 * models and support vector machines. >>ml-classic
 *
 * Called by: infer, exec. Calls: ops/ml.c, ops/elements.c.
 * All of them compute in double and round once, where the output is written. What the specification
 * leaves open (classes that share one score, pairs of classes) is as in ONNX Runtime.
 */
#include "ml_private.h"

#include <math.h> /* exp, fabs, isnan, pow, sqrt, tanh */

#if !SPARSEBIT_NO_OPS_ML

/* >>ml-classic features: Scaler, Imputer, Normalizer */

/* A list that has one entry, or one for each feature (the last axis). */
static sbit_status sbit__ml_per_feature(const sbit_op_call *call, const sbit__ml_list *list,
                                        const char *name, sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    const sbit_dim last = x->rank > 0 ? x->dims[x->rank - 1] : sbit__dim_any();
    const bool fits = list->count == 1 || x->rank < 0 ||
                      (x->rank > 0 && (!sbit__dim_known(last) || last.value == list->count));
    return list->count >= 1 && fits
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                              "%s has %lld entries: one, or one for each feature", name,
                              (long long)list->count);
}

static double sbit__ml_of_feature(const sbit__ml_list *list, int64_t i)
{
    return sbit__ml_number(list, list->count == 1 ? 0 : i % list->count);
}

/* The output has the input's shape, in float32. */
static void sbit__ml_float_like(const sbit_op_call *call)
{
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = SBIT_F32;
    }
}

static sbit_status sbit__scaler_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit__ml_list offset = sbit__ml_list_of(call, "offset");
    const sbit__ml_list scale = sbit__ml_list_of(call, "scale");
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__ml_per_feature(call, &offset, "offset", error));
    SBIT__TRY(sbit__ml_per_feature(call, &scale, "scale", error));
    sbit__ml_float_like(call);
    return SBIT_OK;
}

static sbit_status sbit__scaler_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__ml_list offset = sbit__ml_list_of(call, "offset");
    const sbit__ml_list scale = sbit__ml_list_of(call, "scale");
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(call->in[0]); i++) {
        const double x = sbit__tensor_f64_at(call->in[0], i) - sbit__ml_of_feature(&offset, i);
        sbit__tensor_set_f64(call->out[0], i, x * sbit__ml_of_feature(&scale, i));
    }
    return SBIT_OK;
}

static bool sbit__imputer_floats(const sbit_op_call *call)
{
    return (SBIT_T(call->in_type[0]->dtype) & SBIT_T_FLOATS) != 0;
}

static sbit_status sbit__imputer_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    if (call->in_type[0]->dtype != SBIT_UNDEFINED) {
        const char *name =
            sbit__imputer_floats(call) ? "imputed_value_floats" : "imputed_value_int64s";
        const sbit__ml_list values = sbit__ml_list_of(call, name);
        SBIT__TRY(sbit__ml_per_feature(call, &values, name, error));
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

/* NaN stands for NaN; integers are compared and copied as such. */
static sbit_status sbit__imputer_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const bool floats = sbit__imputer_floats(call);
    const sbit__ml_list values =
        sbit__ml_list_of(call, floats ? "imputed_value_floats" : "imputed_value_int64s");
    const double missing = (double)sbit_node_float(call->node, "replaced_value_float", 0.0f);
    const int64_t number = sbit_node_int(call->node, "replaced_value_int64", 0);
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        const double value = floats ? sbit__tensor_f64_at(x, i) : 0.0;
        const bool replaced = !floats ? sbit__tensor_i64_at(x, i) == number
                              : isnan(missing) ? isnan(value)
                                               : !isnan(value) && !(value < missing || value > missing);
        const int64_t k = values.count == 1 ? 0 : i % values.count;
        if (!replaced) {
            sbit__elem_copy(x->dtype, call->out[0]->data, i, x->data, i, 1);
        } else if (x->dtype == SBIT_I64) {
            ((int64_t *)call->out[0]->data)[i] = values.ints[k];
        } else {
            sbit__tensor_set_f64(call->out[0], i, sbit__ml_number(&values, k));
        }
    }
    return SBIT_OK;
}

static const char *const sbit__normalizer_words[] = {"MAX", "L1", "L2"};

static sbit_status sbit__normalizer_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t norm = 0;
    sbit_dim rows, features;
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__op_word(call, "norm", sbit__normalizer_words, 3, &norm, error));
    sbit__ml_float_like(call);
    return SBIT_OK;
}

static sbit_status sbit__normalizer_run(const sbit_op_call *call, sbit_error *error)
{
    int32_t norm = 0;
    int64_t rows, features;
    SBIT__TRY(sbit__op_word(call, "norm", sbit__normalizer_words, 3, &norm, error));
    sbit__ml_size(call->in[0], &rows, &features);
    for (int64_t row = 0; row < rows; row++) {
        double by = norm == 0 ? -(double)INFINITY : 0.0;
        for (int64_t i = row * features; i < (row + 1) * features; i++) {
            const double x = sbit__tensor_f64_at(call->in[0], i);
            by = norm == 0 ? (x > by ? x : by) : by + (norm == 1 ? fabs(x) : x * x);
        }
        by = norm == 2 ? sqrt(by) : by;
        for (int64_t i = row * features; i < (row + 1) * features; i++) {
            const double x = sbit__tensor_f64_at(call->in[0], i);
            sbit__tensor_set_f64(call->out[0], i, by < 0.0 || by > 0.0 ? x / by : x);
        }
    }
    return SBIT_OK;
}

/* >>ml-classic OneHotEncoder */

static sbit_status sbit__categories_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    const sbit_type *x = call->in_type[0];
    const sbit_attr *texts = sbit_node_attr(call->node, "cats_strings");
    const int64_t numbers = sbit__ml_list_of(call, "cats_int64s").count;
    const int64_t strings = texts != NULL ? (int64_t)texts->count : 0;
    const int64_t count = numbers > 0 ? numbers : strings;
    const bool text = x->dtype == SBIT_STRING;
    if (count == 0 || (numbers > 0 && strings > 0) ||
        (x->dtype != SBIT_UNDEFINED && text != (strings > 0)) || x->rank >= SBIT_MAX_RANK) {
        return sbit__ml_bad(call, "its categories are cats_strings for strings, else cats_int64s",
                            error);
    }
    sbit_type *out = sbit__op_out(call, 0, SBIT_F32, x->rank < 0 ? -1 : x->rank + 1);
    for (int32_t i = 0; out != NULL && i < x->rank; i++) {
        out->dims[i] = x->dims[i];
    }
    if (out != NULL && x->rank >= 0) {
        out->dims[x->rank] = sbit__dim(count);
    }
    return SBIT_OK;
}

static bool sbit__category_is(const sbit_tensor *x, int64_t i, const sbit_attr *texts,
                              const sbit__ml_list *numbers, int64_t k)
{
    if (numbers->count > 0) {
        return sbit__tensor_i64_at(x, i) == numbers->ints[k];
    }
    const sbit_str a = ((const sbit_str *)x->data)[i], b = texts->strings[k];
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static sbit_status sbit__categories_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const sbit_attr *texts = sbit_node_attr(call->node, "cats_strings");
    const sbit__ml_list numbers = sbit__ml_list_of(call, "cats_int64s");
    const int64_t count = numbers.count > 0 ? numbers.count : (int64_t)texts->count;
    const bool zeros = sbit_node_int(call->node, "zeros", 1) != 0;
    float *y = (float *)call->out[0]->data;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++, y += count) {
        int64_t found = count - 1; /* the last of equal categories */
        while (found >= 0 && !sbit__category_is(x, i, texts, &numbers, found)) {
            found--;
        }
        if (found < 0 && !zeros) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_ARGUMENT, error,
                                "element %lld is of no category, and zeros=0", (long long)i);
        }
        memset(y, 0, (size_t)count * sizeof *y);
        if (found >= 0) {
            y[found] = 1.0f;
        }
    }
    return SBIT_OK;
}

/* >>ml-classic FeatureVectorizer: features side by side, cut or filled with zeros to their sizes */

static sbit_status sbit__vectorizer_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit__ml_list sizes = sbit__ml_list_of(call, "inputdimensions");
    sbit_dim rows = sbit__dim_any();
    int64_t width = 0;
    bool good = sizes.ints != NULL && sizes.count == call->input_count;
    SBIT__TRY(sbit__op_inputs(call, 1, INT32_MAX, error));
    SBIT__TRY(sbit__op_one_dtype(call, 0, call->input_count - 1, error));
    for (int32_t i = 0; good && i < call->input_count; i++) {
        const sbit_type *x = call->in_type[i];
        const sbit_dim n = x == NULL || x->rank < 0 ? sbit__dim_any()
                           : x->rank == 1           ? sbit__dim(1)
                                                    : x->dims[0];
        good = x != NULL && (x->rank < 0 || x->rank == 1 || x->rank == 2) && sizes.ints[i] >= 0 &&
               sizes.ints[i] <= INT32_MAX &&
               (!sbit__dim_known(n) || !sbit__dim_known(rows) || n.value == rows.value);
        width += good ? sizes.ints[i] : 0;
        rows = sbit__dim_known(rows) ? rows : n;
    }
    if (!good) {
        return sbit__ml_bad(
            call, "its inputs are [N, features], and inputdimensions has a size for each", error);
    }
    sbit_type *out = sbit__op_out(call, 0, SBIT_F32, 2);
    if (out != NULL) {
        out->dims[0] = rows;
        out->dims[1] = sbit__dim(width);
    }
    return SBIT_OK;
}

static sbit_status sbit__vectorizer_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__ml_list sizes = sbit__ml_list_of(call, "inputdimensions");
    const int64_t width = call->out[0]->dims[1];
    int64_t at = 0;
    (void)error;
    for (int32_t i = 0; i < call->input_count; i++) {
        int64_t rows, features;
        sbit__ml_size(call->in[i], &rows, &features);
        for (int64_t k = 0; k < rows * sizes.ints[i]; k++) {
            const int64_t row = k / sizes.ints[i], column = k % sizes.ints[i];
            sbit__tensor_set_f64(call->out[0], row * width + at + column,
                                 column < features
                                     ? sbit__tensor_f64_at(call->in[i], row * features + column)
                                     : 0.0);
        }
        at += sizes.ints[i];
    }
    return SBIT_OK;
}

/* >>ml-classic linear models: y = W x + b */

typedef struct sbit__ml_linear {
    sbit__ml_list weights, bias;
    sbit__ml_classes classes; /* LinearClassifier */
    int64_t rows, features;   /* of W */
    int32_t post;
} sbit__ml_linear;

static double sbit__ml_dot(const double *x, const sbit__ml_list *w, int64_t from, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * sbit__ml_number(w, from + i);
    }
    return sum;
}

/* Two classes may share one row. */
static sbit_status sbit__ml_linear_of(const sbit_op_call *call, bool classifies, sbit_dim features,
                                   sbit__ml_linear *m, sbit_error *error)
{
    memset(m, 0, sizeof *m);
    m->weights = sbit__ml_list_of(call, "coefficients");
    m->bias = sbit__ml_list_of(call, "intercepts");
    m->rows = sbit_node_int(call->node, "targets", 1);
    if (classifies) {
        SBIT__TRY(sbit__ml_classes_of(call, "classlabels_ints", &m->classes, error));
        const bool one = m->classes.count == 2 &&
                         (m->bias.count == 1 || (m->bias.count == 0 && sbit__dim_known(features) &&
                                                 features.value == m->weights.count));
        m->rows = one ? 1 : m->classes.count;
    }
    SBIT__TRY(sbit__ml_post_of(call, &m->post, error));
    if (m->rows < 1 || m->rows > INT32_MAX || m->weights.count == 0 ||
        m->weights.count % m->rows != 0 || (m->bias.count != 0 && m->bias.count != m->rows)) {
        return sbit__ml_bad(call, "coefficients, intercepts and outputs do not fit together", error);
    }
    m->features = m->weights.count / m->rows;
    return sbit__dim_known(features) && features.value != m->features
               ? sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                              "it has coefficients for %lld features, the input has %lld",
                              (long long)m->features, (long long)features.value)
               : SBIT_OK;
}

static sbit_status sbit__ml_linear_scratch(const sbit_op_call *call, bool classifies, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__ml_linear m;
    SBIT__TRY(sbit__op_check(call, error));
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__ml_linear_of(call, classifies, features, &m, error));
    *call->scratch_bytes = (size_t)(m.features + m.rows + 2) * sizeof(double);
    return SBIT_OK;
}

/* Row `row` of W x + b, in scratch memory. */
static double *sbit__ml_linear_row(const sbit_op_call *call, const sbit__ml_linear *m, int64_t row)
{
    double *x = (double *)call->scratch, *y = x + m->features;
    sbit__ml_load(call->in[0], row, m->features, x);
    for (int64_t k = 0; k < m->rows; k++) {
        y[k] = sbit__ml_dot(x, &m->weights, k * m->features, m->features) +
               (m->bias.count > 0 ? sbit__ml_number(&m->bias, k) : 0.0);
    }
    return y;
}

static sbit_status sbit__ml_linear_regressor_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__ml_linear m;
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__ml_linear_of(call, false, features, &m, error));
    sbit__ml_rows_type(call, SBIT_F32, rows, m.rows);
    return SBIT_OK;
}

static sbit_status sbit__ml_linear_regressor_prepare(const sbit_op_call *call, sbit_error *error)
{
    return sbit__ml_linear_scratch(call, false, error);
}

static sbit_status sbit__ml_linear_regressor_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__ml_linear m;
    int64_t rows, features;
    sbit__ml_size(call->in[0], &rows, &features);
    SBIT__TRY(sbit__ml_linear_of(call, false, sbit__dim(features), &m, error));
    for (int64_t row = 0; row < rows; row++) {
        double *y = sbit__ml_linear_row(call, &m, row);
        sbit__ml_transform(m.post, y, m.rows);
        sbit__ml_store(call->out[0], row, y, m.rows);
    }
    return SBIT_OK;
}

static sbit_status sbit__ml_linear_classifier_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__ml_linear m;
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__ml_linear_of(call, true, features, &m, error));
    sbit__ml_classifier_types(call, rows, &m.classes, m.classes.count);
    return SBIT_OK;
}

static sbit_status sbit__ml_linear_classifier_prepare(const sbit_op_call *call, sbit_error *error)
{
    return sbit__ml_linear_scratch(call, true, error);
}

static sbit_status sbit__ml_linear_classifier_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__ml_linear m;
    int64_t rows, features;
    sbit__ml_size(call->in[0], &rows, &features);
    SBIT__TRY(sbit__ml_linear_of(call, true, sbit__dim(features), &m, error));
    for (int64_t row = 0; row < rows; row++) {
        double *y = sbit__ml_linear_row(call, &m, row);
        const bool one = m.rows < m.classes.count;
        sbit__ml_set_label(call, &m.classes, row, one ? y[0] > 0.0 : sbit__ml_top(y, m.rows));
        if (one) {
            sbit__ml_pair(m.post, true, y[0], y);
        } else {
            sbit__ml_transform(m.post, y, m.rows);
        }
        sbit__ml_store(sbit__out(call, 1), row, y, m.classes.count);
    }
    return SBIT_OK;
}

/* >>ml-classic support vector machines. Without support vectors they are linear models. */

typedef struct sbit__svm {
    sbit__ml_list weights, rho, vectors, prob_a, prob_b, per_class;
    sbit__ml_classes classes;
    int64_t count, features, rows, pairs; /* support vectors; outputs of a linear model */
    double gamma, coef0, degree;
    int32_t kernel, post;
    int64_t width; /* of the scores */
} sbit__svm;

enum {
    SBIT__SVM_LINEAR,
    SBIT__SVM_POLY,
    SBIT__SVM_RBF,
    SBIT__SVM_SIGMOID
};

static sbit_status sbit__svm_kernel(const sbit_op_call *call, sbit__svm *m, sbit_error *error)
{
    static const char *const words[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
    const sbit__ml_list params = sbit__ml_list_of(call, "kernel_params");
    SBIT__TRY(sbit__op_word(call, "kernel_type", words, 4, &m->kernel, error));
    SBIT__TRY(sbit__ml_post_of(call, &m->post, error));
    if (params.count != 0 && params.count != 3) {
        return sbit__ml_bad(call, "kernel_params are gamma, coef0 and degree", error);
    }
    m->gamma = params.count > 0 ? sbit__ml_number(&params, 0) : 0.0;
    m->coef0 = params.count > 0 ? sbit__ml_number(&params, 1) : 0.0;
    m->degree = params.count > 0 ? sbit__ml_number(&params, 2) : 0.0;
    m->kernel = m->count > 0 ? m->kernel : SBIT__SVM_LINEAR;
    return SBIT_OK;
}

/* The number of support vectors; false: it makes no sense. */
static bool sbit__svm_count(const sbit_op_call *call, bool classifies, sbit__svm *m)
{
    if (!classifies) {
        m->count = sbit_node_int(call->node, "n_supports", 0);
        return m->count >= 0;
    }
    bool good = m->per_class.count == 0 || m->per_class.count == m->classes.count;
    for (int64_t i = 0; good && i < m->per_class.count; i++) {
        good = m->per_class.ints[i] >= 0 && m->per_class.ints[i] <= m->vectors.count - m->count;
        m->count += good ? m->per_class.ints[i] : 0;
    }
    return good;
}

static sbit_status sbit__svm_of(const sbit_op_call *call, bool classifies, sbit_dim features,
                                sbit__svm *m, sbit_error *error)
{
    memset(m, 0, sizeof *m);
    m->weights = sbit__ml_list_of(call, "coefficients");
    m->rho = sbit__ml_list_of(call, "rho");
    m->vectors = sbit__ml_list_of(call, "support_vectors");
    m->prob_a = sbit__ml_list_of(call, "prob_a");
    m->prob_b = sbit__ml_list_of(call, "prob_b");
    m->per_class = sbit__ml_list_of(call, "vectors_per_class");
    if (classifies) {
        SBIT__TRY(sbit__ml_classes_of(call, "classlabels_ints", &m->classes, error));
    }
    const int64_t classes = m->classes.count;
    m->rows = classifies ? classes : 1;
    m->pairs = classifies ? classes * (classes - 1) / 2 : 1;
    bool good = sbit__svm_count(call, classifies, m) && m->weights.count > 0;
    SBIT__TRY(sbit__svm_kernel(call, m, error));
    if (good && m->count > 0) {
        const int64_t each = classifies ? classes - 1 : 1; /* coefficients of a support vector */
        good = m->vectors.count % m->count == 0 && each > 0 && m->weights.count % each == 0 &&
               m->weights.count / each == m->count && m->rho.count >= m->pairs &&
               m->prob_a.count == m->prob_b.count &&
               (m->prob_a.count == 0 || m->prob_a.count >= m->pairs);
        m->features = good ? m->vectors.count / m->count : 0;
        m->width = m->prob_a.count > 0 || classes == 2 ? classes : m->pairs;
    } else if (good) {
        good = m->weights.count % m->rows == 0 && m->rho.count >= 1;
        m->features = m->weights.count / m->rows;
        m->width = m->rows;
    }
    if (!good || m->features < 1) {
        return sbit__ml_bad(call, "its coefficients, support vectors, rho, prob_a, prob_b and "
                                  "counts do not fit together", error);
    }
    return sbit__dim_known(features) && features.value != m->features
               ? sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                              "its vectors have %lld features, the input has %lld",
                              (long long)m->features, (long long)features.value)
               : SBIT_OK;
}

static double sbit__svm_similar(const sbit__svm *m, const double *x, int64_t vector)
{
    const int64_t from = vector * m->features;
    if (m->kernel == SBIT__SVM_RBF) {
        double sum = 0.0;
        for (int64_t i = 0; i < m->features; i++) {
            const double d = x[i] - sbit__ml_number(&m->vectors, from + i);
            sum += d * d;
        }
        return exp(-m->gamma * sum);
    }
    const double dot = sbit__ml_dot(x, &m->vectors, from, m->features);
    const double inner = m->gamma * dot + m->coef0;
    return m->kernel == SBIT__SVM_LINEAR ? dot
           : m->kernel == SBIT__SVM_POLY ? pow(inner, m->degree)
                                         : tanh(inner);
}

/* Scratch: the row, kernels, one score for each pair, votes, and what probabilities need. */
typedef struct sbit__svm_memory {
    double *x, *kernels, *pairs, *y, *votes, *r, *q, *qp;
} sbit__svm_memory;

static size_t sbit__svm_place(const sbit__svm *m, double *at, sbit__svm_memory *memory)
{
    const size_t n = (size_t)m->classes.count, square = m->prob_a.count > 0 ? n * n : 0;
    const size_t sizes[8] = {(size_t)m->features, (size_t)m->count,
                             m->count > 0 ? (size_t)m->pairs : 0, (size_t)m->width + 2, n, square,
                             square, n};
    double **parts[8];
    size_t used = 0;
    parts[0] = &memory->x;
    parts[1] = &memory->kernels;
    parts[2] = &memory->pairs;
    parts[3] = &memory->y;
    parts[4] = &memory->votes;
    parts[5] = &memory->r;
    parts[6] = &memory->q;
    parts[7] = &memory->qp;
    for (size_t i = 0; i < 8; i++) {
        *parts[i] = at != NULL ? at + used : NULL;
        used += sizes[i];
    }
    return used * sizeof(double);
}

static sbit_status sbit__svm_scratch(const sbit_op_call *call, bool classifies, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__svm_memory memory;
    sbit__svm m;
    SBIT__TRY(sbit__op_check(call, error));
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__svm_of(call, classifies, features, &m, error));
    *call->scratch_bytes = sbit__svm_place(&m, NULL, &memory);
    return SBIT_OK;
}

/* The row's kernels with all support vectors, or the scores of a linear model. */
static void sbit__svm_row(const sbit_op_call *call, const sbit__svm *m,
                          const sbit__svm_memory *memory, int64_t row)
{
    sbit__ml_load(call->in[0], row, m->features, memory->x);
    for (int64_t i = 0; i < m->count; i++) {
        memory->kernels[i] = sbit__svm_similar(m, memory->x, i);
    }
    for (int64_t k = 0; m->count == 0 && k < m->rows; k++) {
        memory->y[k] = sbit__ml_dot(memory->x, &m->weights, k * m->features, m->features) +
                       sbit__ml_number(&m->rho, 0);
    }
}

static sbit_status sbit__svm_regressor_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__svm m;
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__svm_of(call, false, features, &m, error));
    sbit__ml_rows_type(call, SBIT_F32, rows, 1);
    return SBIT_OK;
}

static sbit_status sbit__svm_regressor_prepare(const sbit_op_call *call, sbit_error *error)
{
    return sbit__svm_scratch(call, false, error);
}

static sbit_status sbit__svm_regressor_run(const sbit_op_call *call, sbit_error *error)
{
    const bool one_class = sbit_node_int(call->node, "one_class", 0) != 0;
    sbit__svm_memory memory;
    sbit__svm m;
    int64_t rows, features;
    sbit__ml_size(call->in[0], &rows, &features);
    SBIT__TRY(sbit__svm_of(call, false, sbit__dim(features), &m, error));
    sbit__svm_place(&m, (double *)call->scratch, &memory);
    for (int64_t row = 0; row < rows; row++) {
        sbit__svm_row(call, &m, &memory, row);
        if (m.count > 0) {
            memory.y[0] = sbit__ml_dot(memory.kernels, &m.weights, 0, m.count) +
                          sbit__ml_number(&m.rho, 0);
        }
        if (one_class) {
            memory.y[0] = memory.y[0] > 0.0 ? 1.0 : -1.0;
        } else {
            sbit__ml_transform(m.post, memory.y, 1);
        }
        sbit__ml_store(call->out[0], row, memory.y, 1);
    }
    return SBIT_OK;
}

/* One score for each pair of classes i < j, positive for i, which votes. Coefficients of a support
 * vector of class i against class j stand in row j - 1 (i < j), against i in row i (of one of j). */
static void sbit__svm_pairs(const sbit__svm *m, const sbit__svm_memory *memory)
{
    int64_t pair = 0, from_i = 0;
    for (int64_t i = 0; i < m->classes.count; i++) {
        memory->votes[i] = 0.0;
    }
    for (int64_t i = 0; i < m->classes.count; from_i += m->per_class.ints[i], i++) {
        int64_t from_j = from_i + m->per_class.ints[i];
        for (int64_t j = i + 1; j < m->classes.count; from_j += m->per_class.ints[j], j++, pair++) {
            const double sum =
                sbit__ml_dot(memory->kernels + from_i, &m->weights, (j - 1) * m->count + from_i,
                             m->per_class.ints[i]) +
                sbit__ml_dot(memory->kernels + from_j, &m->weights, i * m->count + from_j,
                             m->per_class.ints[j]) +
                sbit__ml_number(&m->rho, pair);
            memory->pairs[pair] = sum;
            memory->votes[sum > 0.0 ? i : j] += 1.0;
        }
    }
}

/* Probabilities of classes from those of pairs: Wu, Lin and Weng, "Probability estimates for
 * multi-class classification by pairwise coupling" (2004), algorithm 2, with LIBSVM's stop. */
static void sbit__svm_couple(int64_t n, const sbit__svm_memory *memory)
{
    const double *r = memory->r;
    double *q = memory->q, *qp = memory->qp, *p = memory->y;
    for (int64_t t = 0; t < n; t++) {
        p[t] = 1.0 / (double)n;
        q[t * n + t] = 0.0;
        for (int64_t j = 0; j < n; j++) {
            if (j != t) {
                q[t * n + t] += r[j * n + t] * r[j * n + t];
                q[t * n + j] = -r[j * n + t] * r[t * n + j];
            }
        }
    }
    for (int64_t round = 0; round < 100 || round < n; round++) {
        double pqp = 0.0, worst = 0.0;
        for (int64_t t = 0; t < n; t++) {
            qp[t] = 0.0;
            for (int64_t j = 0; j < n; j++) {
                qp[t] += q[t * n + j] * p[j];
            }
            pqp += p[t] * qp[t];
        }
        for (int64_t t = 0; t < n; t++) {
            worst = fabs(qp[t] - pqp) > worst ? fabs(qp[t] - pqp) : worst;
        }
        if (worst < 0.005 / (double)n) {
            return;
        }
        for (int64_t t = 0; t < n; t++) {
            const double step = (pqp - qp[t]) / q[t * n + t];
            p[t] += step;
            pqp = (pqp + step * (step * q[t * n + t] + 2.0 * qp[t])) / ((1.0 + step) * (1.0 + step));
            for (int64_t j = 0; j < n; j++) {
                qp[j] = (qp[j] + step * q[t * n + j]) / (1.0 + step);
                p[j] /= 1.0 + step;
            }
        }
    }
}

/* Platt's sigmoid makes a probability of a pair's score. */
static void sbit__svm_probabilities(const sbit__svm *m, const sbit__svm_memory *memory)
{
    const int64_t n = m->classes.count;
    int64_t pair = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = i + 1; j < n; j++, pair++) {
            const double value = memory->pairs[pair] * sbit__ml_number(&m->prob_a, pair) +
                                 sbit__ml_number(&m->prob_b, pair);
            double p = 1.0 / (1.0 + exp(value));
            p = p < 1e-7 ? 1e-7 : p > 1.0 - 1e-7 ? 1.0 - 1e-7 : p;
            memory->r[i * n + j] = p;
            memory->r[j * n + i] = 1.0 - p;
        }
    }
    sbit__svm_couple(n, memory);
}

static sbit_status sbit__svm_classifier_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__svm m;
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__svm_of(call, true, features, &m, error));
    sbit__ml_classifier_types(call, rows, &m.classes, m.width);
    return SBIT_OK;
}

static sbit_status sbit__svm_classifier_prepare(const sbit_op_call *call, sbit_error *error)
{
    return sbit__svm_scratch(call, true, error);
}

static sbit_status sbit__svm_classifier_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__svm_memory memory;
    sbit__svm m;
    int64_t rows, features;
    sbit__ml_size(call->in[0], &rows, &features);
    SBIT__TRY(sbit__svm_of(call, true, sbit__dim(features), &m, error));
    sbit__svm_place(&m, (double *)call->scratch, &memory);
    for (int64_t row = 0; row < rows; row++) {
        const bool pair = m.count > 0 && m.prob_a.count == 0 && m.classes.count == 2;
        sbit__svm_row(call, &m, &memory, row);
        if (m.count > 0) {
            sbit__svm_pairs(&m, &memory);
        }
        const double *top = m.count > 0 ? memory.votes : memory.y;
        sbit__ml_set_label(call, &m.classes, row, sbit__ml_top(top, m.classes.count));
        if (pair) {
            sbit__ml_pair(m.post, m.post != SBIT__ML_NONE, memory.pairs[0], memory.y);
        } else if (m.count > 0 && m.prob_a.count > 0) {
            sbit__svm_probabilities(&m, &memory);
        } else if (m.count > 0) {
            memcpy(memory.y, memory.pairs, (size_t)m.pairs * sizeof(double));
        }
        if (!pair) {
            sbit__ml_transform(m.post, memory.y, m.width);
        }
        sbit__ml_store(sbit__out(call, 1), row, memory.y, m.width);
    }
    return SBIT_OK;
}

/* ---- rows */

static const sbit_op_row sbit__ml_classic_table[] = {
    SBIT__ML_ROW("FeatureVectorizer", 1, SBIT__ML_NUMBERS, sbit__vectorizer_infer,
                 sbit__op_prepare_check, sbit__vectorizer_run),
    SBIT__ML_ROW("Imputer", 1, SBIT__ML_NUMBERS, sbit__imputer_infer, sbit__op_prepare_check,
                 sbit__imputer_run),
    SBIT__ML_ROW("LinearClassifier", 1, SBIT__ML_NUMBERS, sbit__ml_linear_classifier_infer,
                 sbit__ml_linear_classifier_prepare, sbit__ml_linear_classifier_run),
    SBIT__ML_ROW("LinearRegressor", 1, SBIT__ML_NUMBERS, sbit__ml_linear_regressor_infer,
                 sbit__ml_linear_regressor_prepare, sbit__ml_linear_regressor_run),
    SBIT__ML_ROW("Normalizer", 1, SBIT__ML_NUMBERS, sbit__normalizer_infer, sbit__op_prepare_check,
                 sbit__normalizer_run),
    SBIT__ML_ROW("OneHotEncoder", 1, SBIT__ML_NUMBERS | SBIT_T(SBIT_STRING),
                 sbit__categories_infer, sbit__op_prepare_check, sbit__categories_run),
    SBIT__ML_ROW("SVMClassifier", 1, SBIT__ML_NUMBERS, sbit__svm_classifier_infer,
                 sbit__svm_classifier_prepare, sbit__svm_classifier_run),
    SBIT__ML_ROW("SVMRegressor", 1, SBIT__ML_NUMBERS, sbit__svm_regressor_infer,
                 sbit__svm_regressor_prepare, sbit__svm_regressor_run),
    SBIT__ML_ROW("Scaler", 1, SBIT__ML_NUMBERS, sbit__scaler_infer, sbit__op_prepare_check,
                 sbit__scaler_run),
};

SBIT__FN const sbit_op_row *sbit__op_rows_ml_classic(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__ml_classic_table);
    return sbit__ml_classic_table;
}

#endif /* SPARSEBIT_NO_OPS_ML */
