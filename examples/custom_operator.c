/* custom_operator.c: an operator that the library does not have, registered from outside.
 *
 *     cc -O2 -I.. custom_operator.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * Models exported with operators of one's own name a domain of their own: here Softclip of
 * com.example, y = x / (1 + |x| / limit). One const row makes the library load, check, run, save,
 * quantize around it and prune through it: infer says the output's type, run computes it, channel
 * says that a channel that goes in comes out where it was.
 */
#include "sparsebit.h"

#include <math.h>  /* fabsf */
#include <stdio.h> /* printf */

/* ---- the operator */

/* The output is like the input; nothing is read of it, so symbolic dims go through. */
static sbit_status softclip_infer(const sbit_op_call *call, sbit_error *error)
{
    if (call->input_count != 1) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "one input is wanted, not %d",
                            (int)call->input_count);
    }
    if (call->out_type[0] != NULL) {
        *call->out_type[0] = *call->in_type[0];
    }
    return SBIT_OK;
}

static sbit_status softclip_run(const sbit_op_call *call, sbit_error *error)
{
    const float limit = sbit_node_float(call->node, "limit", 1.0f);
    const float *x = (const float *)call->in[0]->data;
    float *y = (float *)call->out[0]->data;
    const int64_t count = sbit_tensor_count(call->in[0]);
    if (!(limit > 0.0f)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "limit %g is not positive",
                            (double)limit);
    }
    for (int64_t i = 0; i < count; i++) {
        y[i] = x[i] / (1.0f + fabsf(x[i]) / limit);
    }
    return SBIT_OK;
}

static const sbit_op_channel softclip_channel = {.kind = SBIT_CHANNEL_ELEMENTWISE, .inputs = 1};

static const sbit_op_row softclip = {
    .domain = "com.example",
    .op_type = "Softclip",
    .since_version = 1,
    .types = SBIT_T(SBIT_F32),
    .flags = SBIT_OP_IN_PLACE,
    .infer = softclip_infer,
    .run = softclip_run,
    .channel = &softclip_channel,
};

/* ---- a model with it: y = Softclip(Add(x, x), limit 4) */

static sbit_status add_node(sbit_graph *graph, const char *domain, const char *op_type,
                            const sbit_value_id *inputs, size_t input_count, sbit_value_id output,
                            const sbit_attr *attr, sbit_error *error)
{
    const sbit_node_desc desc = {.domain = domain,
                                 .op_type = op_type,
                                 .inputs = inputs,
                                 .input_count = input_count,
                                 .outputs = &output,
                                 .output_count = 1,
                                 .attrs = attr,
                                 .attr_count = attr != NULL};
    sbit_node_id node;
    return sbit_graph_add_node(graph, &desc, &node, error);
}

static int make_model(sbit_graph *graph, sbit_error *error)
{
    sbit_type type = {.dtype = SBIT_F32, .rank = 1};
    const sbit_attr limit = {.name = "limit", .type = SBIT_ONNX_ATTR_FLOAT, .f = 4.0f};
    sbit_value_id x, sum, y;
    if (sbit_graph_set_opset(graph, "com.example", 1, error) ||
        sbit_graph_symbol(graph, "N", &type.dims[0].symbol, error) ||
        sbit_graph_add_value(graph, "x", &type, &x, error) ||
        sbit_graph_set_input(graph, x, true, error) ||
        sbit_graph_add_value(graph, "sum", &type, &sum, error) ||
        sbit_graph_add_value(graph, "y", &type, &y, error)) {
        return 1;
    }
    const sbit_value_id twice[2] = {x, x};
    return add_node(graph, NULL, "Add", twice, 2, sum, NULL, error) ||
           add_node(graph, "com.example", "Softclip", &sum, 1, y, &limit, error) ||
           sbit_graph_add_output(graph, y, error) || sbit_infer(graph, error);
}

static int run_model(sbit_session *session, sbit_error *error)
{
    float values[5] = {-100.0f, -1.0f, 0.0f, 2.0f, 100.0f};
    const sbit_tensor x = {.dtype = SBIT_F32, .rank = 1, .dims = {5}, .data = values};
    int wrong = 0;
    if (sbit_session_set_input(session, "x", &x, error) || sbit_session_run(session, error)) {
        return 1;
    }
    const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
    for (int i = 0; i < 5; i++) {
        const double twice = 2.0 * (double)values[i], wanted = twice / (1.0 + fabs(twice) / 4.0);
        const double got = (double)((const float *)y->data)[i];
        printf("Softclip(2 * %g) = %.6f\n", (double)values[i], got);
        wrong += fabs(got - wanted) > 1e-6 * fabs(wanted);
    }
    printf("%s\n", wrong == 0 ? "as computed by hand" : "WRONG");
    return wrong != 0;
}

/* ---- pruned: y = second * Softclip(first * x), of whose 4 channels the 2 smaller go */

static int prune_model(sbit_ctx *ctx, sbit_error *error)
{
    static const char yaml[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n";
    float first[8] = {5, 1, 2, 6, 5, 1, 2, 6}, second[4] = {1, -1, 1, -1};
    const sbit_tensor weights[2] = {{.dtype = SBIT_F32, .rank = 2, .dims = {2, 4}, .data = first},
                                    {.dtype = SBIT_F32, .rank = 2, .dims = {4, 1}, .data = second}};
    sbit_type type = {.dtype = SBIT_F32, .rank = 2, .dims = {{.value = 3}, {.value = 2}}};
    sbit_graph *graph = NULL, *small = NULL;
    sbit_sconfig *config = NULL;
    sbit_value_id x, w[2], a, h, y;
    int failed = sbit_graph_create(ctx, 17, &graph, error) || sbit_graph_set_opset(graph, "com.example", 1, error) ||
                 sbit_graph_add_value(graph, "x", &type, &x, error) || sbit_graph_set_input(graph, x, true, error) ||
                 sbit_graph_add_constant(graph, "first", &weights[0], &w[0], error) ||
                 sbit_graph_add_constant(graph, "second", &weights[1], &w[1], error);
    type.dims[1].value = 4;
    failed = failed || sbit_graph_add_value(graph, "a", &type, &a, error) || sbit_graph_add_value(graph, "h", &type, &h, error);
    type.dims[1].value = 1;
    failed = failed || sbit_graph_add_value(graph, "y", &type, &y, error);
    if (!failed) {
        const sbit_value_id in[2] = {x, w[0]}, behind[2] = {h, w[1]};
        failed = add_node(graph, NULL, "MatMul", in, 2, a, NULL, error) ||
                 add_node(graph, "com.example", "Softclip", &a, 1, h, NULL, error) ||
                 add_node(graph, NULL, "MatMul", behind, 2, y, NULL, error) || sbit_graph_add_output(graph, y, error) ||
                 sbit_sconfig_read(ctx, yaml, sizeof yaml - 1, &config, error) ||
                 sbit_prune(graph, config, NULL, &small, error);
    }
    if (!failed) {
        const sbit_tensor *left = &sbit_graph_value(small, sbit_graph_find_value(small, "first"))->constant;
        printf("pruned: %d of 4 channels are left\n", (int)left->dims[1]);
        failed = left->dims[1] != 2;
    }
    sbit_graph_destroy(small);
    sbit_sconfig_destroy(config);
    sbit_graph_destroy(graph);
    return failed;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    sbit_error error = {SBIT_OK, "the values are wrong", ""};
    const int failed =
        sbit_ctx_create(NULL, &ctx, &error) || sbit_operator_register(ctx, &softclip, &error) ||
        sbit_graph_create(ctx, 17, &graph, &error) || make_model(graph, &error) ||
        sbit_session_create(graph, NULL, &session, &error) || run_model(session, &error) ||
        prune_model(ctx, &error);
    if (failed) {
        fprintf(stderr, "%s\n", error.message);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return failed;
}
