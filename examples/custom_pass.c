/* custom_pass.c: a rewrite that the library does not have, registered from outside: sbit_simplify
 * runs it with its own.
 *
 *     cc -O2 -I.. custom_pass.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * The pass makes x * 0.25 of x / 4, which many accelerators prefer.
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf */
#include <string.h> /* strcmp */

/* ---- the pass: x / c becomes x * (1 / c) where 1 / c is exact, that is: c is a power of two */

static bool power_of_two(const sbit_value_info *value)
{
    if (!value->is_constant || value->constant.dtype != SBIT_F32 ||
        sbit_tensor_count(&value->constant) != 1) {
        return false;
    }
    float factor = *(const float *)value->constant.data;
    while (factor >= 2.0f) {
        factor /= 2.0f;
    }
    return factor == 1.0f;
}

static sbit_status divide_node(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    const sbit_value_info *divisor = sbit_graph_value(graph, sbit_graph_node(graph, id)->inputs[1]);
    float factor = 1.0f / *(const float *)divisor->constant.data;
    const sbit_tensor tensor = {.dtype = SBIT_F32, .data = &factor};
    sbit_value_id constant;
    sbit_status status = sbit_graph_add_constant(graph, "reciprocal", &tensor, &constant, error);
    if (status == SBIT_OK) {
        status = sbit_graph_set_op(graph, id, "", "Mul", error);
    }
    return status == SBIT_OK ? sbit_graph_set_node_input(graph, id, 1, constant, error) : status;
}

static sbit_status divide_run(sbit_graph *graph, const sbit_simplify_desc *desc, int64_t *changes,
                              sbit_error *error)
{
    (void)desc;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (strcmp(node->op_type, "Div") == 0 && node->domain[0] == '\0' &&
            power_of_two(sbit_graph_value(graph, node->inputs[1]))) {
            const sbit_status status = divide_node(graph, id, error);
            if (status != SBIT_OK) {
                return status;
            }
            ++*changes;
        }
    }
    return SBIT_OK;
}

static const sbit_pass_row divide = {
    .head = {.name = "divide_to_multiply", .doc = "x / 2^k becomes x * 2^-k"},
    .run = divide_run,
};

/* ---- a model: y = (x / 4) + 1 */

static int add_node(sbit_graph *graph, const char *op, sbit_value_id a, sbit_value_id b,
                    sbit_value_id output, sbit_error *error)
{
    const sbit_value_id inputs[2] = {a, b};
    const sbit_node_desc desc = {
        .op_type = op, .inputs = inputs, .input_count = 2, .outputs = &output, .output_count = 1};
    sbit_node_id node;
    return sbit_graph_add_node(graph, &desc, &node, error) != SBIT_OK;
}

static int make_model(sbit_graph *graph, sbit_error *error)
{
    const sbit_type type = {.dtype = SBIT_F32, .rank = 1, .dims = {{.value = 3}}};
    float four = 4.0f, one = 1.0f;
    const sbit_tensor by = {.dtype = SBIT_F32, .data = &four};
    const sbit_tensor plus = {.dtype = SBIT_F32, .data = &one};
    sbit_value_id x, divisor, quotient, offset, y;
    return sbit_graph_add_value(graph, "x", &type, &x, error) ||
           sbit_graph_set_input(graph, x, true, error) ||
           sbit_graph_add_constant(graph, "four", &by, &divisor, error) ||
           sbit_graph_add_constant(graph, "one", &plus, &offset, error) ||
           sbit_graph_add_value(graph, "quotient", &type, &quotient, error) ||
           sbit_graph_add_value(graph, "y", &type, &y, error) ||
           add_node(graph, "Div", x, divisor, quotient, error) ||
           add_node(graph, "Add", quotient, offset, y, error) ||
           sbit_graph_add_output(graph, y, error) || sbit_infer(graph, error);
}

static int run(sbit_ctx *ctx, sbit_error *error)
{
    sbit_graph *graph = NULL;
    sbit_simplify_stats stats = {0};
    int failed = sbit_graph_create(ctx, 17, &graph, error) || make_model(graph, error) ||
                 sbit_simplify(graph, NULL, &stats, error);
    if (!failed) {
        const sbit_node *first = sbit_graph_node(graph, sbit_graph_first(graph));
        printf("%d change: the first node is %s\n", (int)stats.changes, first->op_type);
        failed = strcmp(first->op_type, "Mul") != 0;
    }
    sbit_graph_destroy(graph);
    return failed;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "the pass did not run", ""};
    const int failed = sbit_ctx_create(NULL, &ctx, &error) ||
                       sbit_pass_register(ctx, &divide, &error) || run(ctx, &error);
    if (failed) {
        fprintf(stderr, "%s\n", error.message);
    }
    sbit_ctx_destroy(ctx);
    return failed;
}
