/* external.c: an operator of which the caller brings the functions. >>external
 *
 * Called by: infer, exec; the nodes are added by train (quantizers that learn). Domain "sbit", in
 * private clones only: models from files cannot have such nodes (import refuses the domain).
 *     External(x, p...) -> y                y has the type of x; what p is, only the functions know
 *     ExternalGrad(dy, x, p...) -> dx, dp...
 * The attribute "functions" is a sbit__external that outlives the graph.
 */
#include "gradient_private.h"
#include "elements_private.h"
#include "window_private.h"

SBIT__FN const sbit__external *sbit__external_of(const sbit_node *node)
{
    const sbit_attr *attr = sbit_node_attr(node, "functions");
    return attr != NULL && attr->type == SBIT_ONNX_ATTR_UNDEFINED
               ? (const sbit__external *)(const void *)attr->other
               : NULL;
}

SBIT__FN sbit_attr sbit__external_attr(const sbit__external *functions)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = "functions";
    attr.type = SBIT_ONNX_ATTR_UNDEFINED; /* no attribute of a file has this type */
    attr.other = (const sbit_onnx_attribute *)(const void *)functions;
    return attr;
}

static sbit_status sbit__external_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, INT32_MAX, error));
    if (sbit__external_of(call->node) == NULL) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no functions");
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__external_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__external *functions = sbit__external_of(call->node);
    return functions->forward(functions->user, call, error);
}

static sbit_status sbit__external_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, INT32_MAX, error));
    if (sbit__external_of(call->node) == NULL) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no functions");
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        sbit__op_same_type(call, i, i + 1);
    }
    return SBIT_OK;
}

static sbit_status sbit__external_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    const int64_t count = sbit__type_count(call->in_type[1], 0, call->in_type[1]->rank);
    (void)error;
    *call->scratch_bytes = call->out_type[0] == NULL && count > 0
                               ? (size_t)count * sizeof(float)
                               : 0; /* for a dx that nobody wants */
    return SBIT_OK;
}

static sbit_status sbit__external_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__external *functions = sbit__external_of(call->node);
    return functions->backward(functions->user, call, error);
}

static const sbit_op_row sbit__external_rows[] = {
    {SBIT__GRAD_DOMAIN, "External", 1, SBIT_T(SBIT_F32), 0, 0, sbit__external_infer, NULL,
     sbit__external_run, sbit__grad_external, NULL, NULL, NULL, NULL},
    {SBIT__GRAD_DOMAIN, "ExternalGrad", 1, SBIT_T(SBIT_F32), 0, 0, sbit__external_grad_infer,
     sbit__external_grad_prepare, sbit__external_grad_run, NULL, NULL, NULL, NULL, NULL},
};

SBIT__FN const sbit_op_row *sbit__op_rows_external(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__external_rows);
    return sbit__external_rows;
}
