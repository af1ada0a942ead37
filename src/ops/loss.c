/* loss.c: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss; Adagrad, Adam, Momentum. >>loss
 *
 * Called by: infer, exec. Calls: ops/common.c.
 * Losses: scores [N, C, d...], labels [N, d...], one weight for each class; everything is computed
 * in float64 and rounded once. ONNX leaves open what a label outside 0..C-1 does that is not
 * ignore_index: here it is an error that names it.
 * Optimizers (ai.onnx.preview.training): inputs rate, step, then for n tensors the values, the
 * gradients and the one or two kept states, n of each; outputs likewise without the gradients.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* exp, log, sqrt, pow */

#if !SPARSEBIT_NO_OPS_TRAINING

/* >>loss types */

static const char *sbit__loss_reduction(const sbit_op_call *call)
{
    return sbit_node_string(call->node, "reduction", "mean");
}

static sbit_status sbit__loss_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *scores = call->in_type[0];
    const char *reduction = sbit__loss_reduction(call);
    const bool none = strcmp(reduction, "none") == 0;
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x2, SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64), error));
    if (!none && strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "reduction='%s' is not one of none, sum, mean", reduction);
    }
    if (scores->rank >= 0 && scores->rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "scores have at least two dimensions");
    }
    if (scores->rank >= 0 && call->in_type[1]->rank >= 0) {
        bool differ = call->in_type[1]->rank != scores->rank - 1;
        for (int32_t i = 0; !differ && i < scores->rank; i++) {
            const sbit_dim label = call->in_type[1]->dims[i == 0 ? 0 : i - 1];
            differ = i != 1 && sbit__dim_known(scores->dims[i]) && sbit__dim_known(label) &&
                     scores->dims[i].value != label.value;
        }
        if (differ) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "labels do not have the scores' shape without the classes");
        }
    }
    const int32_t rank = !none ? 0 : scores->rank < 0 ? -1 : scores->rank - 1;
    sbit_type *out = sbit__op_out(call, 0, scores->dtype, rank);
    for (int32_t i = 0; out != NULL && i < rank; i++) {
        out->dims[i] = scores->dims[i == 0 ? 0 : i + 1];
    }
    if (call->output_count > 1) {
        sbit__op_same_type(call, 1, 0);
    }
    return SBIT_OK;
}

/* >>loss work */

typedef struct sbit__loss {
    int64_t outer, classes, inner; /* of the scores */
    bool ignores;
    int64_t ignored;
    const sbit_tensor *scores, *labels, *weights;
    sbit_tensor *log_prob; /* NULL: scores are log-probabilities, or nobody wants them */
    bool softmax;
} sbit__loss;

static sbit_status sbit__loss_of(const sbit_op_call *call, bool softmax, sbit__loss *loss,
                                 sbit_error *error)
{
    const sbit_attr *ignored = sbit_node_attr(call->node, "ignore_index");
    memset(loss, 0, sizeof *loss);
    loss->softmax = softmax;
    loss->scores = call->in[0];
    loss->labels = call->in[1];
    loss->weights = sbit__in(call, 2);
    loss->log_prob = softmax ? sbit__out(call, 1) : NULL;
    loss->outer = loss->scores->dims[0];
    loss->classes = loss->scores->dims[1];
    loss->inner = sbit__tensor_span(loss->scores, 2, loss->scores->rank);
    loss->ignores = ignored != NULL;
    loss->ignored = sbit_node_int(call->node, "ignore_index", 0);
    if (loss->weights != NULL && sbit_tensor_count(loss->weights) != loss->classes) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "one weight for each of %lld classes",
                            (long long)loss->classes);
    }
    return sbit_tensor_count(loss->labels) == loss->outer * loss->inner
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_SHAPE, error, "scores and labels do not fit");
}

/* What is taken from a score to make it a log-probability: the log of the sum of exponentials. */
static double sbit__loss_shift(const sbit__loss *loss, int64_t at)
{
    double most = -(double)INFINITY, sum = 0.0;
    for (int64_t c = 0; c < loss->classes; c++) {
        const double score = sbit__tensor_f64_at(loss->scores, at + c * loss->inner);
        most = score > most ? score : most;
    }
    for (int64_t c = 0; c < loss->classes; c++) {
        sum += exp(sbit__tensor_f64_at(loss->scores, at + c * loss->inner) - most);
    }
    return most + log(sum);
}

static sbit_status sbit__loss_run_kind(const sbit_op_call *call, bool softmax, sbit_error *error)
{
    sbit__loss loss;
    sbit_tensor *out = call->out[0];
    const char *reduction = sbit__loss_reduction(call);
    double sum = 0.0, weight_sum = 0.0;
    SBIT__TRY(sbit__loss_of(call, softmax, &loss, error));
    for (int64_t i = 0; i < loss.outer * loss.inner; i++) {
        const int64_t at = i / loss.inner * loss.classes * loss.inner + i % loss.inner;
        const int64_t label = sbit__tensor_i64_at(loss.labels, i);
        const bool ignored = loss.ignores && label == loss.ignored;
        const double shift = softmax ? sbit__loss_shift(&loss, at) : 0.0;
        double weight = 0.0, value = 0.0;
        for (int64_t c = 0; loss.log_prob != NULL && c < loss.classes; c++) {
            const int64_t k = at + c * loss.inner;
            sbit__tensor_set_f64(loss.log_prob, k, sbit__tensor_f64_at(loss.scores, k) - shift);
        }
        if (!ignored && (label < 0 || label >= loss.classes)) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "label %lld (element %lld) is not in 0..%lld", (long long)label,
                                (long long)i, (long long)(loss.classes - 1));
        }
        if (!ignored) {
            weight = loss.weights != NULL ? sbit__tensor_f64_at(loss.weights, label) : 1.0;
            value = (shift - sbit__tensor_f64_at(loss.scores, at + label * loss.inner)) * weight;
        }
        if (strcmp(reduction, "none") == 0) {
            sbit__tensor_set_f64(out, i, value);
        }
        sum += value;
        weight_sum += weight;
    }
    if (strcmp(reduction, "none") != 0) {
        sbit__tensor_set_f64(out, 0, strcmp(reduction, "sum") == 0 ? sum : sum / weight_sum);
    }
    return SBIT_OK;
}

static sbit_status sbit__loss_run_nll(const sbit_op_call *call, sbit_error *error)
{
    return sbit__loss_run_kind(call, false, error);
}

static sbit_status sbit__loss_run_softmax(const sbit_op_call *call, sbit_error *error)
{
    return sbit__loss_run_kind(call, true, error);
}

/* LabelLossGrad(dy, scores, labels, weights) {of, reduction, ignore_index}: with w the label's
 * weight, W the sum of all (reduction mean), else 1: dscore = dy w / W (softmax - 1 at the label),
 * or of log-probabilities -dy w / W there. */
static sbit_status sbit__loss_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 3, 4, 1, error);
}

/* The weight of element i; 0: ignored. */
static double sbit__loss_weight(const sbit__loss *loss, int64_t i)
{
    const int64_t label = sbit__tensor_i64_at(loss->labels, i);
    const bool counts = !(loss->ignores && label == loss->ignored) && label >= 0 &&
                        label < loss->classes; /* the loss itself refuses others */
    return !counts ? 0.0 : loss->weights != NULL ? sbit__tensor_f64_at(loss->weights, label) : 1.0;
}

static sbit_status sbit__loss_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const bool softmax =
        strcmp(sbit_node_string(call->node, "of", ""), "SoftmaxCrossEntropyLoss") == 0;
    const char *reduction = sbit__loss_reduction(call);
    const bool none = strcmp(reduction, "none") == 0;
    sbit_op_call forward = *call;
    sbit__loss loss;
    double all = 0.0;
    forward.in = call->in + 1;
    forward.input_count = call->input_count - 1;
    forward.output_count = 1;
    SBIT__TRY(sbit__loss_of(&forward, softmax, &loss, error));
    for (int64_t i = 0; i < loss.outer * loss.inner; i++) {
        all += sbit__loss_weight(&loss, i);
    }
    all = strcmp(reduction, "mean") == 0 ? all : 1.0;
    for (int64_t i = 0; i < loss.outer * loss.inner; i++) {
        const int64_t at = i / loss.inner * loss.classes * loss.inner + i % loss.inner;
        const double weight = sbit__loss_weight(&loss, i);
        const double up = sbit__tensor_f64_at(call->in[0], none ? i : 0) * weight / all;
        const double shift = softmax ? sbit__loss_shift(&loss, at) : 0.0;
        for (int64_t c = 0; c < loss.classes; c++) {
            const int64_t k = at + c * loss.inner;
            const bool hit = weight != 0.0 && c == sbit__tensor_i64_at(loss.labels, i);
            const double share = softmax ? exp(sbit__tensor_f64_at(loss.scores, k) - shift) : 0.0;
            sbit__tensor_set_f64(call->out[0], k,
                                 weight != 0.0 ? up * (share - (hit ? 1.0 : 0.0)) : 0.0);
        }
    }
    return SBIT_OK;
}

/* >>optimizers */

/* Groups of n inputs behind rate and step: values, gradients and `states` of them. */
static sbit_status sbit__optimizer_count(const sbit_op_call *call, int32_t states, int32_t *n,
                                         sbit_error *error)
{
    *n = (call->input_count - 2) / (2 + states);
    if (call->input_count < 4 + states || call->input_count != 2 + *n * (2 + states) ||
        call->output_count != *n * (1 + states)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "its inputs are rate, step, then values, gradients and %d states of "
                            "the same number of tensors",
                            (int)states);
    }
    return SBIT_OK;
}

static int32_t sbit__optimizer_states(const sbit_op_call *call)
{
    return strcmp(call->row->op_type, "Adam") == 0 ? 2 : 1;
}

static sbit_status sbit__optimizer_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t states = sbit__optimizer_states(call);
    int32_t n = 0;
    SBIT__TRY(sbit__optimizer_count(call, states, &n, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        if (call->in_type[i] == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
        const sbit_dtype dtype = call->in_type[i]->dtype;
        const uint32_t fits = i == 1 ? SBIT_T(SBIT_I64) : SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64);
        if (dtype != SBIT_UNDEFINED && (SBIT_T(dtype) & fits) == 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d is %s", (int)i,
                                sbit_dtype_name((int32_t)dtype));
        }
    }
    for (int32_t i = 0; i < n * (1 + states); i++) { /* no gradients among the outputs */
        sbit__op_same_type(call, i, 2 + (i < n ? i : i + n));
    }
    return SBIT_OK;
}

/* One tensor: value x, gradient g, states in[0..1] to out[0..1]. */
typedef struct sbit__optimizer {
    const sbit_op_call *call;
    double rate, norm, norm_post, epsilon, alpha, beta;
    int64_t step;
    bool nesterov;
} sbit__optimizer;

static double sbit__optimizer_float(const sbit__optimizer *o, const char *name, double otherwise)
{
    return (double)sbit_node_float(o->call->node, name, (float)otherwise);
}

/* New value; states in and out. Per kind: */
typedef double (*sbit__optimizer_fn)(const sbit__optimizer *o, double x, double g, double *first,
                                     double *second);

static double sbit__optimizer_adagrad(const sbit__optimizer *o, double x, double g, double *first,
                                      double *second)
{
    (void)second;
    *first += g * g;
    return x - o->rate * g / (sqrt(*first) + o->epsilon);
}

static double sbit__optimizer_adam(const sbit__optimizer *o, double x, double g, double *first,
                                   double *second)
{
    *first = o->alpha * *first + (1.0 - o->alpha) * g;
    *second = o->beta * *second + (1.0 - o->beta) * g * g;
    return (1.0 - o->norm_post) * (x - o->rate * *first / (sqrt(*second) + o->epsilon));
}

static double sbit__optimizer_momentum(const sbit__optimizer *o, double x, double g, double *first,
                                       double *second)
{
    (void)second;
    *first = o->alpha * *first + (o->step > 0 ? o->beta : 1.0) * g;
    return x - o->rate * (o->nesterov ? g + o->alpha * *first : *first);
}

static sbit_status sbit__optimizer_run(const sbit__optimizer *o, sbit__optimizer_fn fn,
                                       sbit_error *error)
{
    const sbit_op_call *call = o->call;
    const int32_t states = sbit__optimizer_states(call);
    int32_t n = 0;
    SBIT__TRY(sbit__optimizer_count(call, states, &n, error));
    for (int32_t t = 0; t < n; t++) {
        const sbit_tensor *x = call->in[2 + t], *g = call->in[2 + n + t];
        for (int32_t s = 0; s < 1 + states; s++) {
            if (!sbit_tensor_same_shape(x, call->in[2 + (1 + s) * n + t])) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "a gradient or state does not have its tensor's shape");
            }
        }
        for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
            const double value = sbit__tensor_f64_at(x, i);
            const double slope = o->norm * value + sbit__tensor_f64_at(g, i);
            double kept[2] = {0.0, 0.0};
            for (int32_t s = 0; s < states; s++) {
                kept[s] = sbit__tensor_f64_at(call->in[2 + (2 + s) * n + t], i);
            }
            const double next = fn(o, value, slope, &kept[0], &kept[1]);
            if (sbit__out(call, t) != NULL) {
                sbit__tensor_set_f64(call->out[t], i, next);
            }
            for (int32_t s = 0; s < states; s++) {
                if (sbit__out(call, (1 + s) * n + t) != NULL) {
                    sbit__tensor_set_f64(call->out[(1 + s) * n + t], i, kept[s]);
                }
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__optimizer_init(const sbit_op_call *call, sbit__optimizer *o,
                                        sbit_error *error)
{
    static const char *const modes[] = {"standard", "nesterov"}; /* of Momentum */
    int32_t mode = 0;
    memset(o, 0, sizeof *o);
    SBIT__TRY(sbit__op_word(call, "mode", modes, 2, &mode, error));
    if (sbit_tensor_count(call->in[0]) != 1 || sbit_tensor_count(call->in[1]) != 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "rate and step are one number each");
    }
    o->nesterov = mode == 1;
    o->call = call;
    o->rate = sbit__tensor_f64_at(call->in[0], 0);
    o->step = sbit__tensor_i64_at(call->in[1], 0);
    o->norm = sbit__optimizer_float(o, "norm_coefficient", 0.0);
    o->norm_post = sbit__optimizer_float(o, "norm_coefficient_post", 0.0);
    o->epsilon = sbit__optimizer_float(o, "epsilon", 1e-6);
    o->alpha = sbit__optimizer_float(o, "alpha", 0.9);
    o->beta = sbit__optimizer_float(o, "beta", 0.999);
    return SBIT_OK;
}

static sbit_status sbit__optimizer_run_adagrad(const sbit_op_call *call, sbit_error *error)
{
    sbit__optimizer o;
    SBIT__TRY(sbit__optimizer_init(call, &o, error));
    o.rate /= 1.0 + (double)o.step * sbit__optimizer_float(&o, "decay_factor", 0.0);
    return sbit__optimizer_run(&o, sbit__optimizer_adagrad, error);
}

static sbit_status sbit__optimizer_run_adam(const sbit_op_call *call, sbit_error *error)
{
    sbit__optimizer o;
    SBIT__TRY(sbit__optimizer_init(call, &o, error));
    if (o.step > 0) {
        o.rate *= sqrt(1.0 - pow(o.beta, (double)o.step)) / (1.0 - pow(o.alpha, (double)o.step));
    }
    return sbit__optimizer_run(&o, sbit__optimizer_adam, error);
}

static sbit_status sbit__optimizer_run_momentum(const sbit_op_call *call, sbit_error *error)
{
    sbit__optimizer o;
    SBIT__TRY(sbit__optimizer_init(call, &o, error));
    return sbit__optimizer_run(&o, sbit__optimizer_momentum, error);
}

/* ---- rows */

#define SBIT__LOSS_ROW(name, version, types, run)                                                  \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__loss_infer, sbit__op_prepare_check, run,             \
            sbit__grad_label_loss, NULL, NULL, NULL, NULL                                          \
    }
#define SBIT__OPTIMIZER_ROW(name, run)                                                             \
    {                                                                                              \
        "ai.onnx.preview.training", name, 1, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64), SBIT_OP_OMITS,   \
            0, sbit__optimizer_infer, sbit__op_prepare_check, run, NULL, NULL, NULL, NULL, NULL    \
    }

static const sbit_op_row sbit__loss_table[] = {
    SBIT__LOSS_ROW("NegativeLogLikelihoodLoss", 12, SBIT__T_FLOATS1, sbit__loss_run_nll),
    SBIT__LOSS_ROW("NegativeLogLikelihoodLoss", 13, SBIT__T_FLOATS1, sbit__loss_run_nll),
    SBIT__LOSS_ROW("NegativeLogLikelihoodLoss", 22, SBIT_T_FLOATS, sbit__loss_run_nll),
    SBIT__LOSS_ROW("SoftmaxCrossEntropyLoss", 12, SBIT__T_FLOATS1, sbit__loss_run_softmax),
    SBIT__LOSS_ROW("SoftmaxCrossEntropyLoss", 13, SBIT_T_FLOATS, sbit__loss_run_softmax),
    {SBIT__GRAD_DOMAIN, "LabelLossGrad", 1, SBIT__T_GRAD, 0, 0, sbit__loss_grad_infer, NULL,
     sbit__loss_grad_run, NULL, NULL, NULL, NULL, NULL},
    SBIT__OPTIMIZER_ROW("Adagrad", sbit__optimizer_run_adagrad),
    SBIT__OPTIMIZER_ROW("Adam", sbit__optimizer_run_adam),
    SBIT__OPTIMIZER_ROW("Momentum", sbit__optimizer_run_momentum),
};

#undef SBIT__LOSS_ROW
#undef SBIT__OPTIMIZER_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_loss(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__loss_table);
    return sbit__loss_table;
}

#endif /* SPARSEBIT_NO_OPS_TRAINING */
