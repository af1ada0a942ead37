/* ml.c: of ai.onnx.ml: ArrayFeatureExtractor, Binarizer, LabelEncoder, TreeEnsemble. >>ml
 *
 * Called by: infer, exec. Calls: ops/elements.c.
 */
#include "elements_private.h"
#include "window_private.h"

#include <math.h> /* exp, isnan, isinf */

#if !SPARSEBIT_NO_OPS_ML

#define SBIT__ML_DOMAIN "ai.onnx.ml"

static sbit_status sbit__ml_bad(const sbit_op_call *call, const char *what, sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "%s", what);
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
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
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

/* Version 1: classes_strings are keys or values, their numbers the other side (no tensor). */
static sbit_status sbit__labels_of(const sbit_op_call *call, sbit__labels *labels,
                                   sbit_error *error)
{
    static const char *const keys[4] = {"keys_strings", "keys_int64s", "keys_floats",
                                        "keys_tensor"};
    static const char *const values[4] = {"values_strings", "values_int64s", "values_floats",
                                          "values_tensor"};
    static const char *const classes[4] = {"classes_strings", "", "", ""};
    if (call->row->since_version == 1) {
        sbit_tensor *side =
            sbit__in_dtype(call, 0) == SBIT_STRING ? &labels->keys : &labels->values;
        memset(labels, 0, sizeof *labels);
        return sbit__labels_side(call, classes, side)
                   ? SBIT_OK
                   : sbit__ml_bad(call, "attribute classes_strings is missing", error);
    }
    if (!sbit__labels_side(call, keys, &labels->keys) ||
        !sbit__labels_side(call, values, &labels->values) ||
        sbit_tensor_count(&labels->keys) != sbit_tensor_count(&labels->values)) {
        return sbit__ml_bad(call, "keys_* and values_* have the same number of entries", error);
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
        call->out_type[0]->dtype = call->row->since_version == 1 ? first : labels.values.dtype;
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
    const bool numbers = call->row->since_version == 1;
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

/* >>ml trees (version 5): nodes with two branches, each another node or a leaf */

typedef struct sbit__trees {
    const sbit_attr *roots, *features, *true_ids, *false_ids, *true_leaf, *false_leaf, *targets;
    const sbit_attr *nan_true; /* NULL: false everywhere */
    const sbit_tensor *splits, *modes, *weights, *members;
    int64_t nodes, leaves, n_targets, aggregate, post;
} sbit__trees;

static const sbit_attr *sbit__trees_ints(const sbit_op_call *call, const char *name, int64_t count)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    return attr != NULL && (count < 0 || (int64_t)attr->count == count) ? attr : NULL;
}

static const sbit_tensor *sbit__trees_tensor(const sbit_op_call *call, const char *name)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    return attr != NULL ? &attr->t : NULL;
}

static sbit_status sbit__trees_of(const sbit_op_call *call, sbit__trees *t, sbit_error *error)
{
    memset(t, 0, sizeof *t);
    t->splits = sbit__trees_tensor(call, "nodes_splits");
    t->modes = sbit__trees_tensor(call, "nodes_modes");
    t->weights = sbit__trees_tensor(call, "leaf_weights");
    t->members = sbit__trees_tensor(call, "membership_values");
    t->n_targets = sbit_node_int(call->node, "n_targets", 1);
    t->aggregate = sbit_node_int(call->node, "aggregate_function", 1);
    t->post = sbit_node_int(call->node, "post_transform", 0);
    if (t->splits == NULL || t->modes == NULL || t->weights == NULL) {
        return sbit__ml_bad(call, "nodes_splits, nodes_modes or leaf_weights is missing", error);
    }
    t->nodes = sbit_tensor_count(t->splits);
    t->leaves = sbit_tensor_count(t->weights);
    t->roots = sbit__trees_ints(call, "tree_roots", -1);
    t->features = sbit__trees_ints(call, "nodes_featureids", t->nodes);
    t->true_ids = sbit__trees_ints(call, "nodes_truenodeids", t->nodes);
    t->false_ids = sbit__trees_ints(call, "nodes_falsenodeids", t->nodes);
    t->true_leaf = sbit__trees_ints(call, "nodes_trueleafs", t->nodes);
    t->false_leaf = sbit__trees_ints(call, "nodes_falseleafs", t->nodes);
    t->targets = sbit__trees_ints(call, "leaf_targetids", t->leaves);
    t->nan_true = sbit__trees_ints(call, "nodes_missing_value_tracks_true", t->nodes);
    bool good = t->roots != NULL && t->features != NULL && t->true_ids != NULL &&
                t->false_ids != NULL && t->true_leaf != NULL && t->false_leaf != NULL &&
                t->targets != NULL && sbit_tensor_count(t->modes) == t->nodes &&
                t->n_targets >= 1 && t->n_targets < INT32_MAX && t->aggregate >= 0 &&
                t->aggregate <= 3 && t->post >= 0 && t->post <= 4;
    for (int64_t i = 0; good && i < t->nodes; i++) {
        const int64_t yes = t->true_ids->ints[i], no = t->false_ids->ints[i];
        good = t->features->ints[i] >= 0 && yes >= 0 && no >= 0 &&
               yes < (t->true_leaf->ints[i] != 0 ? t->leaves : t->nodes) &&
               no < (t->false_leaf->ints[i] != 0 ? t->leaves : t->nodes);
    }
    for (int64_t i = 0; good && i < t->leaves; i++) {
        good = t->targets->ints[i] >= 0 && t->targets->ints[i] < t->n_targets;
    }
    for (size_t i = 0; good && i < t->roots->count; i++) {
        good = t->roots->ints[i] >= 0 && t->roots->ints[i] < t->nodes;
    }
    return good ? SBIT_OK : sbit__ml_bad(call, "the attributes of its trees do not fit", error);
}

static sbit_status sbit__trees_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__trees trees;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__trees_of(call, &trees, error));
    const sbit_type *x = call->in_type[0];
    if (x->rank >= 0 && x->rank != 2) {
        return sbit__ml_bad(call, "its input is [N, features]", error);
    }
    sbit_type *out = sbit__op_out(call, 0, x->dtype, 2);
    if (out != NULL && x->rank == 2) {
        out->dims[0] = x->dims[0];
    }
    if (out != NULL) {
        out->dims[1] = sbit__dim(trees.n_targets);
    }
    return SBIT_OK;
}

/* Whether x is in the set of a node: sets follow each other in the order of such nodes, each ended
 * by a NaN. */
static bool sbit__trees_member(const sbit__trees *t, int64_t node, double x)
{
    int64_t at = 0;
    const int64_t end = t->members != NULL ? sbit_tensor_count(t->members) : 0;
    for (int64_t i = 0; i < node; i++) {
        if (sbit__tensor_i64_at(t->modes, i) == 6) {
            while (at < end && !isnan(sbit__tensor_f64_at(t->members, at))) {
                at++;
            }
            at++;
        }
    }
    for (; at < end && !isnan(sbit__tensor_f64_at(t->members, at)); at++) {
        const double member = sbit__tensor_f64_at(t->members, at);
        if (!(x < member || x > member) && !isnan(x)) {
            return true;
        }
    }
    return false;
}

static bool sbit__trees_goes_true(const sbit__trees *t, int64_t node, double x)
{
    const double split = sbit__tensor_f64_at(t->splits, node);
    if (isnan(x)) {
        return t->nan_true != NULL && t->nan_true->ints[node] != 0;
    }
    switch (sbit__tensor_i64_at(t->modes, node)) {
    case 0:
        return x <= split;
    case 1:
        return x < split;
    case 2:
        return x >= split;
    case 3:
        return x > split;
    case 4:
        return !(x < split || x > split);
    case 5:
        return x < split || x > split;
    default:
        return sbit__trees_member(t, node, x);
    }
}

/* The leaf that a row reaches; -1: the nodes run in a circle. */
static int64_t sbit__trees_leaf(const sbit__trees *t, int64_t root, const sbit_tensor *x,
                                int64_t row)
{
    int64_t node = root;
    for (int64_t steps = 0; steps < t->nodes; steps++) {
        const double value = sbit__tensor_f64_at(x, row * x->dims[1] + t->features->ints[node]);
        const bool yes = sbit__trees_goes_true(t, node, value);
        const int64_t next = yes ? t->true_ids->ints[node] : t->false_ids->ints[node];
        if ((yes ? t->true_leaf : t->false_leaf)->ints[node] != 0) {
            return next;
        }
        node = next;
    }
    return -1;
}

/* The inverse of the normal distribution's integral, by Winitzki's formula as ONNX Runtime uses. */
static double sbit__trees_probit(double p)
{
    const double x = 2.0 * p - 1.0, half = 0.5 * log((1.0 - x) * (1.0 + x));
    const double a = 2.0 / (3.14159265358979 * 0.147) + half;
    const double root = sqrt(sqrt(a * a - 2.0 * half / 0.147) - a);
    return 1.41421356237310 * (x < 0.0 ? -root : root);
}

static void sbit__trees_post(const sbit__trees *t, double *y)
{
    double most = y[0], sum = 0.0;
    for (int64_t k = 0; k < t->n_targets; k++) {
        most = y[k] > most ? y[k] : most;
    }
    for (int64_t k = 0; k < t->n_targets; k++) {
        if (t->post == 2) {
            y[k] = 1.0 / (1.0 + exp(-y[k]));
        } else if (t->post == 4) {
            y[k] = sbit__trees_probit(y[k]);
        } else if (t->post == 1 || (t->post == 3 && (y[k] < 0.0 || y[k] > 0.0))) {
            y[k] = exp(y[k] - most);
            sum += y[k];
        }
    }
    for (int64_t k = 0; (t->post == 1 || t->post == 3) && sum > 0.0 && k < t->n_targets; k++) {
        y[k] /= sum;
    }
}

static sbit_status sbit__trees_row(const sbit_op_call *call, const sbit__trees *t, int64_t row,
                                   double *y, sbit_error *error)
{
    for (int64_t k = 0; k < t->n_targets; k++) {
        y[k] = t->aggregate < 2 ? 0.0 : t->aggregate == 2 ? (double)INFINITY : -(double)INFINITY;
    }
    for (size_t i = 0; i < t->roots->count; i++) {
        const int64_t leaf = sbit__trees_leaf(t, t->roots->ints[i], call->in[0], row);
        if (leaf < 0) {
            return sbit__ml_bad(call, "a tree runs in a circle", error);
        }
        const double weight = sbit__tensor_f64_at(t->weights, leaf);
        double *to = &y[t->targets->ints[leaf]];
        if (t->aggregate < 2) {
            *to += weight;
        } else {
            *to = (t->aggregate == 2 ? weight < *to : weight > *to) ? weight : *to;
        }
    }
    for (int64_t k = 0; k < t->n_targets; k++) {
        y[k] = t->aggregate == 0 ? y[k] / (double)t->roots->count : y[k];
        y[k] = isinf(y[k]) ? 0.0 : y[k];
    }
    sbit__trees_post(t, y);
    return SBIT_OK;
}

static sbit_status sbit__trees_prepare(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_check(call, error));
    *call->scratch_bytes = (size_t)sbit_node_int(call->node, "n_targets", 1) * sizeof(double);
    return SBIT_OK;
}

static sbit_status sbit__trees_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__trees t;
    double *y = (double *)call->scratch;
    SBIT__TRY(sbit__trees_of(call, &t, error));
    for (int64_t i = 0; i < t.nodes; i++) {
        if (t.features->ints[i] >= call->in[0]->dims[1]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "a tree asks for feature %lld, the input has %lld",
                                (long long)t.features->ints[i], (long long)call->in[0]->dims[1]);
        }
    }
    for (int64_t row = 0; row < call->in[0]->dims[0]; row++) {
        SBIT__TRY(sbit__trees_row(call, &t, row, y, error));
        for (int64_t k = 0; k < t.n_targets; k++) {
            sbit__tensor_set_f64(call->out[0], row * t.n_targets + k, y[k]);
        }
    }
    return SBIT_OK;
}

/* ---- rows */

#define SBIT__ML_ROW(name, version, types, infer, prepare, run)                                    \
    {                                                                                              \
        SBIT__ML_DOMAIN, name, version, types, 0, 0, infer, prepare, run, NULL, NULL, NULL, NULL,  \
            NULL                                                                                   \
    }
#define SBIT__ML_NUMBERS (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT_T(SBIT_I64) | SBIT_T(SBIT_I32))

static const sbit_op_row sbit__ml_table[] = {
    SBIT__ML_ROW("ArrayFeatureExtractor", 1, SBIT__ML_NUMBERS | SBIT_T(SBIT_STRING),
                 sbit__features_infer, NULL, sbit__features_run),
    SBIT__ML_ROW("Binarizer", 1, SBIT__ML_NUMBERS, sbit__binarizer_infer, NULL,
                 sbit__binarizer_run),
    SBIT__ML_ROW("LabelEncoder", 1, SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I64), sbit__labels_infer,
                 NULL, sbit__labels_run),
    SBIT__ML_ROW("LabelEncoder", 2, SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I64) | SBIT_T(SBIT_F32),
                 sbit__labels_infer, NULL, sbit__labels_run),
    SBIT__ML_ROW("LabelEncoder", 4, SBIT__ML_NUMBERS | SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I16),
                 sbit__labels_infer, NULL, sbit__labels_run),
    SBIT__ML_ROW("TreeEnsemble", 5, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT_T(SBIT_F16),
                 sbit__trees_infer, sbit__trees_prepare, sbit__trees_run),
};

#undef SBIT__ML_ROW
#undef SBIT__ML_NUMBERS
#undef SBIT__ML_DOMAIN

SBIT__FN const sbit_op_row *sbit__op_rows_ml(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__ml_table);
    return sbit__ml_table;
}

#endif /* SPARSEBIT_NO_OPS_ML */
