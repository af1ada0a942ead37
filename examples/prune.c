/* prune.c: a network gets smaller: channels are removed, and what is left computes what the masked
 * network does.
 *
 *     cc -O2 -I.. prune.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out [MODEL.onnx [RATIO]]
 *
 * Without a model it builds one: Conv, Relu, a residual block, global average, Gemm.
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf */
#include <stdlib.h> /* atof */
#include <string.h> /* memset */

/* ---- a small network */

static sbit_status weights(sbit_graph *graph, const char *name, int32_t rank, const int64_t *dims,
                           sbit_value_id *out, sbit_error *error)
{
    sbit_rng rng = sbit_rng_seed((uint64_t)name[0] * 31 + (uint64_t)name[1]);
    sbit_tensor tensor;
    sbit_status status =
        sbit_tensor_alloc(sbit_graph_ctx(graph), SBIT_F32, rank, dims, &tensor, error);
    if (status == SBIT_OK) {
        for (int64_t i = 0; i < sbit_tensor_count(&tensor); i++) {
            ((float *)tensor.data)[i] = 0.3f * sbit_rng_normal(&rng);
        }
        status = sbit_graph_add_constant(graph, name, &tensor, out, error);
        sbit_tensor_free(sbit_graph_ctx(graph), &tensor);
    }
    return status;
}

static sbit_status node(sbit_graph *graph, const char *op_type, const char *name, sbit_value_id a,
                        sbit_value_id b, sbit_value_id *out, sbit_error *error)
{
    const sbit_value_id inputs[2] = {a, b};
    const sbit_type unknown = {.rank = -1};
    sbit_node_desc desc;
    sbit_node_id id;
    memset(&desc, 0, sizeof desc);
    desc.op_type = op_type;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = b.idx != 0 ? 2 : 1;
    desc.outputs = out;
    desc.output_count = 1;
    const sbit_status status = sbit_graph_add_value(graph, name, &unknown, out, error);
    return status == SBIT_OK ? sbit_graph_add_node(graph, &desc, &id, error) : status;
}

static sbit_status make_network(sbit_graph *graph, sbit_error *error)
{
    const sbit_value_id none = {0};
    sbit_value_id x, w, y, skip;
    sbit_type type = {.dtype = SBIT_F32, .rank = 4};
    const int64_t stem[] = {16, 3, 3, 3}, inner[] = {32, 16, 1, 1}, back[] = {16, 32, 1, 1};
    const int64_t head[] = {16, 10};
    type.dims[0].value = 1;
    type.dims[1].value = 3;
    type.dims[2].value = type.dims[3].value = 16;
    sbit_status s = sbit_graph_add_value(graph, "image", &type, &x, error);
    s = s ? s : sbit_graph_set_input(graph, x, true, error);
    s = s ? s : weights(graph, "stem.weight", 4, stem, &w, error);
    s = s ? s : node(graph, "Conv", "stem", x, w, &y, error);
    s = s ? s : node(graph, "Relu", "relu", y, none, &skip, error);
    s = s ? s : weights(graph, "up.weight", 4, inner, &w, error);
    s = s ? s : node(graph, "Conv", "up", skip, w, &y, error);
    s = s ? s : node(graph, "Relu", "relu2", y, none, &y, error);
    s = s ? s : weights(graph, "back.weight", 4, back, &w, error);
    s = s ? s : node(graph, "Conv", "back", y, w, &y, error);
    s = s ? s : node(graph, "Add", "add", skip, y, &y, error);
    s = s ? s : node(graph, "GlobalAveragePool", "pool", y, none, &y, error);
    s = s ? s : node(graph, "Flatten", "flatten", y, none, &y, error);
    s = s ? s : weights(graph, "head.weight", 2, head, &w, error);
    s = s ? s : node(graph, "MatMul", "logits", y, w, &y, error);
    s = s ? s : sbit_graph_add_output(graph, y, error);
    return s ? s : sbit_infer(graph, error);
}

/* ---- pruning */

static sbit_status prune(sbit_ctx *ctx, const char *path, const char *ratio, sbit_error *error)
{
    static const char text[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n";
    sbit_graph *graph = NULL, *small = NULL;
    sbit_sconfig *config = NULL;
    sbit_graph_cost before, after;
    sbit_status s = path != NULL ? sbit_graph_load(ctx, path, &graph, error)
                                 : sbit_graph_create(ctx, 17, &graph, error);
    s = s || path != NULL ? s : make_network(graph, error);
    s = s ? s : sbit_sconfig_read(ctx, text, sizeof text - 1, &config, error);
    s = s ? s : sbit_sconfig_set(config, "SPARSER.RATIO", ratio, error);
    s = s ? s : sbit_prune(graph, config, NULL, &small, error);
    s = s ? s : sbit_graph_cost_of(graph, &before, error);
    s = s ? s : sbit_graph_cost_of(small, &after, error);
    s = s ? s : sbit_graph_save(small, "pruned.onnx", NULL, error);
    if (s == SBIT_OK) {
        printf("%lld parameters, %lld left; %lld multiply-accumulates, %lld left: pruned.onnx\n",
               (long long)before.params, (long long)after.params, (long long)before.macs,
               (long long)after.macs);
    }
    sbit_graph_destroy(small);
    sbit_sconfig_destroy(config);
    sbit_graph_destroy(graph);
    return s;
}

int main(int argc, char **argv)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "", ""};
    sbit_status status = sbit_ctx_create(NULL, &ctx, &error);
    if (status == SBIT_OK) {
        status = prune(ctx, argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : "0.5", &error);
    }
    if (status != SBIT_OK) {
        fprintf(stderr, "%s\n", error.message);
    }
    sbit_ctx_destroy(ctx);
    return status == SBIT_OK ? 0 : 1;
}
