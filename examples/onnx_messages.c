/* onnx_messages.c: a model built, checked, written, read and printed as messages, without any of
 * the quantizing part: sparsebit_onnx.h alone is enough.
 *
 *     cc -O2 -I.. -DSPARSEBIT_ONNX_IMPLEMENTATION onnx_messages.c && ./a.out
 *
 * Every message of onnx.proto is a plain struct; all memory belongs to the document.
 */
#include "sparsebit_onnx.h"

#include <stdio.h>  /* printf */
#include <stdlib.h> /* malloc */

static int set_text(sbit_onnx_doc *doc, const char *text, sbit_str *out, sbit_error *error)
{
    size_t size = 0;
    while (text[size] != '\0') {
        size++;
    }
    return sbit_onnx_text(doc, text, size, out, error) != SBIT_OK;
}

/* A graph input or output: name, float32, one dim of unknown length N. */
static int set_value(sbit_onnx_doc *doc, const char *name, sbit_onnx_value_info *value,
                     sbit_error *error)
{
    sbit_onnx_type *type = (sbit_onnx_type *)sbit_onnx_alloc(doc, 1, sizeof *type);
    sbit_onnx_type_tensor *tensor =
        (sbit_onnx_type_tensor *)sbit_onnx_alloc(doc, 1, sizeof *tensor);
    sbit_onnx_shape *shape = (sbit_onnx_shape *)sbit_onnx_alloc(doc, 1, sizeof *shape);
    sbit_onnx_dimension *dim = (sbit_onnx_dimension *)sbit_onnx_alloc(doc, 1, sizeof *dim);
    sbit_str text, symbol;
    if (type == NULL || tensor == NULL || shape == NULL || dim == NULL ||
        set_text(doc, name, &text, error) || set_text(doc, "N", &symbol, error)) {
        return 1;
    }
    SBIT_ONNX_SET(dim, SBIT_ONNX_DIMENSION_DIM_PARAM, dim_param, symbol);
    shape->dim = dim;
    shape->dim_count = 1;
    SBIT_ONNX_SET(tensor, SBIT_ONNX_TYPE_TENSOR_ELEM_TYPE, elem_type, SBIT_F32);
    SBIT_ONNX_SET(tensor, SBIT_ONNX_TYPE_TENSOR_SHAPE, shape, shape);
    SBIT_ONNX_SET(type, SBIT_ONNX_TYPE_TENSOR_TYPE, tensor_type, tensor);
    SBIT_ONNX_SET(value, SBIT_ONNX_VALUE_INFO_NAME, name, text);
    SBIT_ONNX_SET(value, SBIT_ONNX_VALUE_INFO_TYPE, type, type);
    return 0;
}

/* y = Relu(x) */
static int make_model(sbit_onnx_doc *doc, sbit_error *error)
{
    sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    sbit_onnx_graph *graph = (sbit_onnx_graph *)sbit_onnx_alloc(doc, 1, sizeof *graph);
    sbit_onnx_node *node = (sbit_onnx_node *)sbit_onnx_alloc(doc, 1, sizeof *node);
    sbit_onnx_value_info *ends = (sbit_onnx_value_info *)sbit_onnx_alloc(doc, 2, sizeof *ends);
    sbit_onnx_opset_id *opset = (sbit_onnx_opset_id *)sbit_onnx_alloc(doc, 1, sizeof *opset);
    sbit_str *names = (sbit_str *)sbit_onnx_alloc(doc, 2, sizeof *names);
    sbit_str relu, title;
    if (graph == NULL || node == NULL || ends == NULL || opset == NULL || names == NULL ||
        set_value(doc, "x", &ends[0], error) || set_value(doc, "y", &ends[1], error) ||
        set_text(doc, "Relu", &relu, error) || set_text(doc, "one_relu", &title, error)) {
        return 1;
    }
    names[0] = ends[0].name;
    names[1] = ends[1].name;
    SBIT_ONNX_SET(node, SBIT_ONNX_NODE_OP_TYPE, op_type, relu);
    node->input = &names[0];
    node->output = &names[1];
    node->input_count = node->output_count = 1;
    SBIT_ONNX_SET(graph, SBIT_ONNX_GRAPH_NAME, name, title);
    graph->node = node;
    graph->input = &ends[0];
    graph->output = &ends[1];
    graph->node_count = graph->input_count = graph->output_count = 1;
    SBIT_ONNX_SET(opset, SBIT_ONNX_OPSET_ID_VERSION, version, 17);
    SBIT_ONNX_SET(model, SBIT_ONNX_MODEL_IR_VERSION, ir_version, 8);
    SBIT_ONNX_SET(model, SBIT_ONNX_MODEL_GRAPH, graph, graph);
    model->opset_import = opset;
    model->opset_import_count = 1;
    return sbit_onnx_check(doc, error) != SBIT_OK;
}

static void put(const char *text, size_t size, void *user)
{
    fwrite(text, 1, size, (FILE *)user);
}

/* Writes to memory and reads that: the same message, of the same kind. */
static int round_trip(sbit_onnx_doc *doc, sbit_error *error)
{
    const sbit_onnx_kind kind = sbit_onnx_doc_kind(doc);
    const size_t size = (size_t)sbit_onnx_measure(kind, sbit_onnx_doc_root(doc));
    void *bytes = malloc(size);
    sbit_onnx_doc *again = NULL;
    sbit_onnx_node copy;
    size_t written = 0;
    int failed = bytes == NULL ||
                 sbit_onnx_write(kind, sbit_onnx_doc_root(doc), bytes, size, &written, error) ||
                 sbit_onnx_read(bytes, written, NULL, &again, error);
    if (!failed) {
        const sbit_onnx_node *node = sbit_onnx_doc_model(again)->graph->node;
        failed = !sbit_onnx_equal(kind, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(again)) ||
                 sbit_onnx_copy(doc, SBIT_ONNX_NODE, node, &copy, true, error); /* outlives again */
    }
    sbit_onnx_destroy(again);
    free(bytes);
    printf("%lu bytes, %s\n", (unsigned long)written, failed ? "not the same" : "read back equal");
    return failed || sbit_onnx_measure(SBIT_ONNX_NODE, &copy) == 0;
}

int main(void)
{
    sbit_onnx_doc *doc = NULL;
    sbit_error error = {SBIT_OK, "out of memory, or not equal", ""};
    const int failed =
        sbit_onnx_create(NULL, &doc, &error) || make_model(doc, &error) || round_trip(doc, &error);
    if (failed) {
        fprintf(stderr, "%s\n", error.message);
    } else {
        sbit_onnx_print(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), 8, put, stdout);
    }
    sbit_onnx_destroy(doc);
    return failed;
}
