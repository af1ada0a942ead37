/* ml_private.h: what the operators of ai.onnx.ml share: attributes that are lists, labels of
 * classes, post_transform. >>ml
 *
 * Called by: ops/ml*.c. Calls: ops/elements.c.
 */
#ifndef SBIT_ML_PRIVATE_H
#define SBIT_ML_PRIVATE_H

#include "elements_private.h"
#include "window_private.h"

#if !SPARSEBIT_NO_OPS_ML
#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__ML_DOMAIN "ai.onnx.ml"
#define SBIT__ML_ROW(name, version, types, infer, prepare, run)                                    \
    {                                                                                              \
        SBIT__ML_DOMAIN, name, version, types, 0, 0, infer, prepare, run, NULL, NULL, NULL, NULL,  \
            NULL                                                                                   \
    }
#define SBIT__ML_NUMBERS (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT_T(SBIT_I64) | SBIT_T(SBIT_I32))

SBIT__FN sbit_status sbit__ml_bad(const sbit_op_call *call, const char *what, sbit_error *error);

/* A list of numbers: an attribute, or one number that stands for a list. count 0: not given. */
typedef struct sbit__ml_list {
    const float *floats;
    const int64_t *ints;
    const sbit_tensor *tensor;
    int64_t count;
} sbit__ml_list;
SBIT__FN sbit__ml_list sbit__ml_list_of(const sbit_op_call *call, const char *name);
/* The same, or the tensor in attribute NAME_as_tensor. */
SBIT__FN sbit__ml_list sbit__ml_list_or_tensor(const sbit_op_call *call, const char *name);
SBIT__FN double sbit__ml_number(const sbit__ml_list *list, int64_t i);

/* The only input [N, features], or [features] for N = 1; dims that are not known stay so. */
SBIT__FN sbit_status sbit__ml_input(const sbit_op_call *call, sbit_dim *rows, sbit_dim *features,
                                    sbit_error *error);
/* infer: output 0 is [rows, width]. */
SBIT__FN void sbit__ml_rows_type(const sbit_op_call *call, sbit_dtype dtype, sbit_dim rows,
                                 int64_t width);
/* run: the same of a tensor. */
SBIT__FN void sbit__ml_size(const sbit_tensor *x, int64_t *rows, int64_t *features);

/* Labels of classes: strings, or the integers in the attribute `ints`. */
typedef struct sbit__ml_classes {
    const sbit_str *strings; /* NULL: ints */
    const int64_t *ints;
    int64_t count;
} sbit__ml_classes;
SBIT__FN sbit_status sbit__ml_classes_of(const sbit_op_call *call, const char *ints,
                                         sbit__ml_classes *out, sbit_error *error);
/* infer: outputs of a classifier: labels [N], scores [N, width]. */
SBIT__FN void sbit__ml_classifier_types(const sbit_op_call *call, sbit_dim rows,
                                        const sbit__ml_classes *classes, int64_t width);
SBIT__FN void sbit__ml_set_label(const sbit_op_call *call, const sbit__ml_classes *classes,
                                 int64_t row, int64_t which);
SBIT__FN int64_t sbit__ml_top(const double *y, int64_t n); /* the first of the largest */

/* >>ml post_transform, numbered as in TreeEnsemble */
typedef enum sbit__ml_post {
    SBIT__ML_NONE,
    SBIT__ML_SOFTMAX,
    SBIT__ML_LOGISTIC,
    SBIT__ML_SOFTMAX_ZERO,
    SBIT__ML_PROBIT
} sbit__ml_post;
SBIT__FN sbit_status sbit__ml_post_of(const sbit_op_call *call, int32_t *out, sbit_error *error);
SBIT__FN void sbit__ml_transform(int32_t post, double *y, int64_t n);
/* Two classes that have one score, which speaks for the second: what the specification leaves open
 * is as in ONNX Runtime. LOGISTIC gives both probabilities; else the first score is 1 - score if
 * `complement`, or -score, and only PROBIT transforms them. */
SBIT__FN void sbit__ml_pair(int32_t post, bool complement, double score, double y[2]);

/* run: row i of x in double. */
SBIT__FN void sbit__ml_load(const sbit_tensor *x, int64_t row, int64_t features, double *out);
/* run: row i of a float output. */
SBIT__FN void sbit__ml_store(sbit_tensor *out, int64_t row, const double *y, int64_t n);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_NO_OPS_ML */

#endif /* SBIT_ML_PRIVATE_H */
