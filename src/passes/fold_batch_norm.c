/* fold_batch_norm.c: BatchNormalization into the linear node beside it. >>pass-fold-batch-norm
 *
 * y = gamma * (x - mean) / sqrt(var + epsilon) + beta is a scale and a shift per channel. It goes
 * into the Conv, ConvTranspose, Gemm or MatMul (with its Add) that makes x, if nothing else uses
 * x; else into a Conv without padding that alone uses y. Left as it is: in training mode, or with
 * parameters that are not constant.
 */
#include "passes_private.h"

/* Parameter `input` of the normalization, if it is a constant with `count` numbers. */
static const sbit_tensor *sbit__bn_parameter(const sbit__rewrite *rw, const sbit_node *node,
                                             size_t input, int64_t count)
{
    const sbit_tensor *tensor = sbit__const_in(rw->graph, node, input);
    return tensor != NULL && sbit__is_float(tensor->dtype) && tensor->rank == 1 &&
                   (count < 0 || tensor->dims[0] == count)
               ? tensor
               : NULL;
}

static bool sbit__bn_inference(const sbit__rewrite *rw, const sbit_node *node)
{
    if (rw->opset < 7 && sbit_node_int(node, "is_test", 0) == 0) {
        return false;
    }
    return sbit__single_output(rw->graph, node) && sbit_node_int(node, "training_mode", 0) == 0 &&
           sbit_node_int(node, "spatial", 1) != 0;
}

/* Fills the affine; *ok false if the parameters do not allow it. */
static sbit_status sbit__bn_affine(sbit__rewrite *rw, const sbit_node *node, sbit__affine *affine,
                                   bool *ok, sbit_error *error)
{
    const sbit_tensor *gamma = sbit__bn_parameter(rw, node, 1, -1);
    const int64_t count = gamma != NULL ? gamma->dims[0] : 0;
    const sbit_tensor *beta = sbit__bn_parameter(rw, node, 2, count);
    const sbit_tensor *mean = sbit__bn_parameter(rw, node, 3, count);
    const sbit_tensor *var = sbit__bn_parameter(rw, node, 4, count);
    const double epsilon = (double)sbit_node_float(node, "epsilon", 1e-5f);
    *ok = false;
    if (gamma == NULL || beta == NULL || mean == NULL || var == NULL || count == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__affine_init(rw, affine, count, error));
    for (int64_t c = 0; c < count; c++) {
        const double spread = sbit__tensor_f64_at(var, c) + epsilon;
        if (!(spread > 0.0)) {
            return SBIT_OK;
        }
        affine->scale[c] = sbit__tensor_f64_at(gamma, c) / sqrt(spread);
        affine->shift[c] =
            sbit__tensor_f64_at(beta, c) - sbit__tensor_f64_at(mean, c) * affine->scale[c];
    }
    *ok = true;
    return SBIT_OK;
}

static sbit_status sbit__bn_fold(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_node *before = sbit__producer(rw->graph, sbit__node_in(node, 0));
    const int64_t changes = rw->changes;
    sbit__affine affine;
    sbit_use use;
    bool ok = false;
    if (!sbit__bn_inference(rw, node)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__bn_affine(rw, node, &affine, &ok, error));
    if (!ok) {
        return SBIT_OK;
    }
    if (before != NULL) {
        SBIT__TRY(sbit__affine_into(rw, before, node, &affine, false, error));
    }
    if (rw->changes != changes || !sbit__sole_use(rw->graph, node->outputs[0]) ||
        sbit_graph_uses(rw->graph, node->outputs[0], &use, 1) != 1 || use.index != 0) {
        return SBIT_OK;
    }
    return sbit__affine_from(rw, node, node->inputs[0], sbit_graph_node(rw->graph, use.node),
                             &affine, error);
}

/* In front of a normalization that is kept a bias of zeros is an exporter's: trained, its gradient
 * would be 0, and forward and backward would pass over all elements for it. */
static sbit_status sbit__bn_drop_zeros(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_node *conv = sbit__producer(rw->graph, sbit__node_in(node, 0));
    const sbit_tensor *bias =
        sbit__is_op(conv, "Conv") || sbit__is_op(conv, "ConvTranspose")
            ? sbit__const_in(rw->graph, conv, 2)
            : NULL;
    const sbit_value_id none = {0};
    bool zeros = bias != NULL && sbit__is_float(bias->dtype);
    for (int64_t i = 0; zeros && i < sbit_tensor_count(bias); i++) {
        zeros = sbit__tensor_f64_at(bias, i) == 0.0;
    }
    if (zeros && sbit__sole_use(rw->graph, conv->outputs[0])) {
        rw->changes++;
        return sbit_graph_set_node_input(rw->graph, conv->id, 2, none, error);
    }
    return SBIT_OK;
}

static sbit_status sbit__bn_run(sbit_graph *graph, const sbit_simplify_desc *desc, int64_t *changes,
                                sbit_error *error)
{
    static const sbit__rule fold[] = {{"BatchNormalization", sbit__bn_fold}};
    static const sbit__rule keep[] = {{"BatchNormalization", sbit__bn_drop_zeros}};
    return sbit__apply_rules(graph, desc, desc->keep_batch_norm ? keep : fold, 1, changes, error);
}

SBIT__FN const sbit_pass_row *sbit__pass_fold_batch_norm(void)
{
    static const sbit_pass_row row = {
        {"fold_batch_norm",
         "BatchNormalization into the Conv, ConvTranspose, Gemm or MatMul beside it", 0, NULL, 0},
        false,
        sbit__bn_run};
    return &row;
}
