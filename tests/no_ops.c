/* no_ops.c: the implementation with every switchable family of operators compiled out: what is left
 * runs, and a model that needs more is told the macro. compile_matrix.sh compiles and runs it.
 */
#define SPARSEBIT_NO_OPS_RNN 1
#define SPARSEBIT_NO_OPS_CONTROL 1
#define SPARSEBIT_NO_OPS_STRING 1
#define SPARSEBIT_NO_OPS_SIGNAL 1
#define SPARSEBIT_NO_OPS_ML 1
#define SPARSEBIT_NO_OPS_ATTENTION 1
#define SPARSEBIT_NO_OPS_VISION 1
#define SPARSEBIT_NO_OPS_MICROSOFT 1
#define SPARSEBIT_NO_OPS_TRAINING 1
#define SPARSEBIT_IMPLEMENTATION
#include "sparsebit.h"

#include <stdio.h> /* printf */

/* y = OP(x); the status of making a session, and of running it where one was made. */
static sbit_status try_operator(const char *domain, const char *op_type, sbit_error *error)
{
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    sbit_value_id x, y;
    sbit_node_id node;
    sbit_node_desc desc;
    sbit_type type;
    memset(&type, 0, sizeof type);
    memset(&desc, 0, sizeof desc);
    type.dtype = SBIT_F32;
    type.rank = 1;
    type.dims[0].value = 3;
    float values[3] = {-1.0f, 0.0f, 2.0f};
    sbit_tensor input;
    memset(&input, 0, sizeof input);
    input.dtype = SBIT_F32;
    input.rank = 1;
    input.dims[0] = 3;
    input.data = values;
    desc.domain = domain;
    desc.op_type = op_type;
    desc.inputs = &x;
    desc.outputs = &y;
    desc.input_count = desc.output_count = 1;
    sbit_status status = sbit_ctx_create(NULL, &ctx, error);
    status = status == SBIT_OK ? sbit_graph_create(ctx, 17, &graph, error) : status;
    status = status == SBIT_OK && domain[0] != '\0' ? sbit_graph_set_opset(graph, domain, 1, error)
                                                    : status;
    status = status == SBIT_OK ? sbit_graph_add_value(graph, "x", &type, &x, error) : status;
    status = status == SBIT_OK ? sbit_graph_set_input(graph, x, true, error) : status;
    status = status == SBIT_OK ? sbit_graph_add_value(graph, "y", NULL, &y, error) : status;
    status = status == SBIT_OK ? sbit_graph_add_node(graph, &desc, &node, error) : status;
    status = status == SBIT_OK ? sbit_graph_add_output(graph, y, error) : status;
    status = status == SBIT_OK ? sbit_session_create(graph, NULL, &session, error) : status;
    status = status == SBIT_OK ? sbit_session_set_input(session, "x", &input, error) : status;
    status = status == SBIT_OK ? sbit_session_run(session, error) : status;
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return status;
}

int main(void)
{
    static const struct {
        const char *domain, *op_type, *macro;
    } gone[] = {
        {"", "LSTM", "SPARSEBIT_NO_OPS_RNN"},
        {"", "Loop", "SPARSEBIT_NO_OPS_CONTROL"},
        {"", "StringSplit", "SPARSEBIT_NO_OPS_STRING"},
        {"", "DFT", "SPARSEBIT_NO_OPS_SIGNAL"},
        {"ai.onnx.ml", "Binarizer", "SPARSEBIT_NO_OPS_ML"},
        {"", "Attention", "SPARSEBIT_NO_OPS_ATTENTION"},
        {"", "GridSample", "SPARSEBIT_NO_OPS_VISION"},
        {"com.microsoft", "BiasGelu", "SPARSEBIT_NO_OPS_MICROSOFT"},
        {"", "SoftmaxCrossEntropyLoss", "SPARSEBIT_NO_OPS_TRAINING"},
    };
    sbit_error error;
    int wrong = 0;
    memset(&error, 0, sizeof error);
    if (try_operator("", "Relu", &error) != SBIT_OK) {
        printf("Relu: %s\n", error.message);
        wrong++;
    }
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        char wanted[100];
        snprintf(wanted, sizeof wanted, "compiled out by %s (1: ", gone[i].macro);
        if (try_operator(gone[i].domain, gone[i].op_type, &error) != SBIT_ERR_UNSUPPORTED ||
            strstr(error.message, wanted) == NULL) {
            printf("%s: %s\n", gone[i].op_type, error.message);
            wrong++;
        }
    }
    if (try_operator("sbit", "DropoutTrain", &error) != SBIT_ERR_UNSUPPORTED ||
        try_operator("sbit", "CumProdGrad", &error) != SBIT_ERR_UNSUPPORTED) {
        printf("internal operators of training are there: %s\n", error.message);
        wrong++;
    }
    return wrong != 0;
}
