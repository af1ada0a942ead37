/* cut_graph.c: a part of a network as a network of its own: everything up to a node, with that
 * node's result as the output, under a name of one's choice.
 *
 *     cc -O2 -I.. cut_graph.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out [MODEL NODE]
 *
 * Without arguments it makes a small model first: x -> Mul by 3 -> "inner" Add 1 -> Relu.
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf, fopen */
#include <stdlib.h> /* malloc */

static int add_node(sbit_graph *graph, const char *op, const char *name, sbit_value_id a,
                    sbit_value_id b, sbit_value_id output, sbit_error *error)
{
    const sbit_value_id inputs[2] = {a, b};
    const sbit_node_desc desc = {.op_type = op,
                                 .name = name,
                                 .inputs = inputs,
                                 .input_count = b.idx != 0 ? 2 : 1,
                                 .outputs = &output,
                                 .output_count = 1};
    sbit_node_id node;
    return sbit_graph_add_node(graph, &desc, &node, error) != SBIT_OK;
}

static int make_model(sbit_ctx *ctx, const char *path, sbit_error *error)
{
    const sbit_type type = {.dtype = SBIT_F32, .rank = 1, .dims = {{.value = 4}}};
    const sbit_value_id none = {0};
    float three = 3.0f, one = 1.0f;
    sbit_tensor number = {.dtype = SBIT_F32, .data = &three};
    sbit_graph *graph = NULL;
    sbit_value_id x, scale, product, offset, sum, y;
    int failed = sbit_graph_create(ctx, 17, &graph, error) ||
                 sbit_graph_add_value(graph, "x", &type, &x, error) ||
                 sbit_graph_set_input(graph, x, true, error) ||
                 sbit_graph_add_constant(graph, "scale", &number, &scale, error);
    number.data = &one;
    failed = failed || sbit_graph_add_constant(graph, "offset", &number, &offset, error) ||
             sbit_graph_add_value(graph, "product", &type, &product, error) ||
             sbit_graph_add_value(graph, "sum", &type, &sum, error) ||
             sbit_graph_add_value(graph, "y", &type, &y, error) ||
             add_node(graph, "Mul", "outer", x, scale, product, error) ||
             add_node(graph, "Add", "inner", product, offset, sum, error) ||
             add_node(graph, "Relu", "last", sum, none, y, error) ||
             sbit_graph_add_output(graph, y, error) || sbit_graph_save(graph, path, NULL, error);
    sbit_graph_destroy(graph);
    return failed;
}

/* The node's first result becomes the first output, called `name`; what nothing reads goes away. */
static int cut(sbit_graph *graph, const char *node_name, const char *name, sbit_error *error)
{
    const sbit_node_id id = sbit_graph_find_node(graph, node_name);
    const char *const passes[] = {"dead_code"};
    const sbit_simplify_desc only = {.only = passes, .only_count = 1};
    if (id.idx == 0) {
        snprintf(error->message, sizeof error->message, "there is no node '%s'", node_name);
        return 1;
    }
    const sbit_value_id result = sbit_graph_node(graph, id)->outputs[0];
    return sbit_graph_set_output(graph, 0, result, error) ||
           sbit_graph_rename_value(graph, result, name, error) ||
           sbit_simplify(graph, &only, NULL, error);
}

/* Runs a model that lies in memory, on 0, 1, 2 ..., and writes the result as a TensorProto. */
static int run(sbit_ctx *ctx, const void *bytes, size_t size, const char *path, sbit_error *error)
{
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    const sbit_session_desc desc = {.keep_values = true}; /* any value can be looked at */
    sbit_tensor x = {SBIT_UNDEFINED, 0, {0}, NULL};
    int failed = sbit_graph_read(ctx, bytes, size, &graph, error) ||
                 sbit_session_create(graph, &desc, &session, error);
    if (!failed) {
        const sbit_type *type = &sbit_session_input_info(session, 0)->type;
        int64_t dims[SBIT_MAX_RANK];
        for (int32_t d = 0; d < type->rank; d++) {
            dims[d] = type->dims[d].symbol == 0 ? type->dims[d].value : 1;
        }
        failed = sbit_tensor_alloc(ctx, type->dtype, type->rank, dims, &x, error);
    }
    for (int64_t i = 0; !failed && x.dtype == SBIT_F32 && i < sbit_tensor_count(&x); i++) {
        ((float *)x.data)[i] = (float)i;
    }
    failed = failed || sbit_session_set_input(session, NULL, &x, error) ||
             sbit_session_run(session, error);
    if (!failed) {
        const sbit_value *result = sbit_session_value(session, sbit_graph_find_value(graph, "cut"));
        char text[200];
        sbit_tensor_describe(&result->tensor, text, sizeof text);
        printf("%s:", text);
        for (int64_t i = 0; i < sbit_tensor_count(&result->tensor) && i < 8; i++) {
            printf(" %g", sbit_tensor_f64_at(&result->tensor, i));
        }
        printf("\n");
        failed = sbit_tensor_save_pb(ctx, path, "cut", &result->tensor, error);
    }
    sbit_tensor_free(ctx, &x);
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    return failed;
}

static void *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    void *bytes = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        *size = (size_t)ftell(file);
        rewind(file);
        bytes = malloc(*size + 1);
        *size = bytes != NULL ? fread(bytes, 1, *size, file) : 0;
        fclose(file);
    }
    return bytes;
}

int main(int argc, char **argv)
{
    const char *model = argc > 2 ? argv[1] : "model.onnx", *node = argc > 2 ? argv[2] : "inner";
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    void *bytes = NULL;
    size_t size = 0;
    sbit_error error = {SBIT_OK, "", ""};
    int failed = sbit_ctx_create(NULL, &ctx, &error) ||
                 (argc <= 2 && make_model(ctx, model, &error)) ||
                 sbit_graph_load(ctx, model, &graph, &error) || cut(graph, node, "cut", &error) ||
                 sbit_graph_save(graph, "cut.onnx", NULL, &error);
    bytes = failed ? NULL : read_file("cut.onnx", &size);
    failed = failed || run(ctx, bytes, size, "cut.pb", &error);
    printf("%s\n", failed ? error.message : "wrote cut.onnx and cut.pb");
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes);
    return failed;
}
