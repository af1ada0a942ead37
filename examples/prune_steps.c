/* prune_steps.c: pruning inside a loop of one's own, with a schedule of one's own.
 *
 *     cc -O2 -I.. prune_steps.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * A training loop changes weights; after every few steps the sparsity grows and the masks are made
 * anew. Here the "training" only lets weights decay. The schedule is a row registered from outside:
 * a staircase. In the end the channels are cut and the file is written; and, the other way round,
 * masks that were made elsewhere are brought in.
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf */
#include <string.h> /* memset */

enum {
    STEPS = 8,
    CHANNELS = 16
};

/* Half of the way after half of the steps, the rest at the end. */
static double staircase(const sbit_options *options, int64_t step, int64_t total, double from,
                        double to)
{
    (void)options;
    return step >= total ? to : step * 2 >= total ? 0.5 * (from + to) : from;
}

static const sbit_sparsity_row staircase_row = {
    .head = {"staircase", "in two stairs", 0, NULL, 0},
    .at = staircase,
};

/* ---- x [N,3,8,8] -> Conv 16 -> Relu -> Conv 4 */

static sbit_status conv(sbit_graph *graph, const char *name, int64_t out, int64_t in, float *data,
                        sbit_value_id x, sbit_value_id *y, sbit_error *error)
{
    const sbit_type unknown = {.rank = -1};
    const sbit_tensor weight = {SBIT_F32, 4, {out, in, 1, 1}, data};
    sbit_value_id inputs[2] = {x, {0}};
    sbit_node_desc desc;
    sbit_node_id node;
    char text[40];
    snprintf(text, sizeof text, "%s.weight", name);
    memset(&desc, 0, sizeof desc);
    desc.op_type = "Conv";
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = y;
    desc.output_count = 1;
    sbit_status s = sbit_graph_add_constant(graph, text, &weight, &inputs[1], error);
    s = s ? s : sbit_graph_add_value(graph, name, &unknown, y, error);
    return s ? s : sbit_graph_add_node(graph, &desc, &node, error);
}

static sbit_status make_network(sbit_graph *graph, float *first, float *second, sbit_error *error)
{
    sbit_type type = {.dtype = SBIT_F32, .rank = 4};
    sbit_value_id x, y, z;
    const int64_t dims[4] = {2, 3, 8, 8};
    for (int i = 0; i < 4; i++) {
        type.dims[i].value = dims[i];
    }
    sbit_status s = sbit_graph_add_value(graph, "x", &type, &x, error);
    s = s ? s : sbit_graph_set_input(graph, x, true, error);
    s = s ? s : conv(graph, "first", CHANNELS, 3, first, x, &y, error);
    s = s ? s : conv(graph, "second", 4, CHANNELS, second, y, &z, error);
    s = s ? s : sbit_graph_add_output(graph, z, error);
    return s ? s : sbit_infer(graph, error);
}

/* ---- the loop */

static sbit_status loop(sbit_sparse *sparse, float *first, sbit_error *error)
{
    const sbit_tensor weight = {SBIT_F32, 4, {CHANNELS, 3, 1, 1}, first};
    sbit_sparse_group group;
    sbit_status s = sbit_sparse_set_ratio(sparse, "second", 0.0, error); /* the network's output */
    sbit_sparse_disable_sparse_before_add(sparse); /* layers in front of an Add: there is none */
    for (int step = 0; step <= STEPS && s == SBIT_OK; step++) {
        for (int i = 0; i < CHANNELS * 3; i++) {
            first[i] *= 1.0f - 0.01f * (float)(i % 7); /* what a training step would do */
        }
        s = sbit_sparse_set_weight(sparse, "first.weight", &weight, error);
        s = s ? s : sbit_sparse_step(sparse, step, STEPS, NULL, error);
        s = s ? s : sbit_sparse_group_at(sparse, 0, &group);
        if (s == SBIT_OK) {
            printf("step %d: %d of %d channels of %s\n", step, (int)group.kept, (int)group.channels,
                   group.layers);
        }
    }
    return s ? s : sbit_sparse_export_onnx(sparse, "steps.onnx", NULL, error);
}

/* Masks made elsewhere: every second channel. */
static sbit_status bring_masks(sbit_sparse *sparse, sbit_error *error)
{
    uint8_t keep[CHANNELS * 3];
    sbit_graph *small = NULL;
    for (int i = 0; i < CHANNELS * 3; i++) {
        keep[i] = i / 3 % 2 == 0;
    }
    sbit_status s =
        sbit_sparse_calc_params(sparse, NULL, error); /* layer by layer, to be replaced */
    s = s ? s : sbit_sparse_set_mask(sparse, "first.weight", keep, CHANNELS * 3, error);
    s = s ? s : sbit_sparse_shrink(sparse, NULL, &small, error);
    if (s == SBIT_OK) {
        const sbit_value_id id = sbit_graph_find_value(small, "first.weight");
        printf("with the masks brought in: %d channels\n",
               (int)sbit_graph_value(small, id)->constant.dims[0]);
    }
    sbit_graph_destroy(small);
    return s;
}

static sbit_status prune(sbit_ctx *ctx, sbit_error *error)
{
    static const char text[] = "SPARSER: {TYPE: structured, STRATEGY: l2norm, RATIO: 0.75, "
                               "SCHEDULE: staircase}\n";
    float first[CHANNELS * 3], second[4 * CHANNELS];
    sbit_rng rng = sbit_rng_seed(1);
    sbit_graph *graph = NULL;
    sbit_sconfig *config = NULL;
    sbit_sparse *sparse = NULL;
    for (int i = 0; i < CHANNELS * 3; i++) {
        first[i] = sbit_rng_normal(&rng);
    }
    for (int i = 0; i < 4 * CHANNELS; i++) {
        second[i] = sbit_rng_normal(&rng);
    }
    sbit_status s = sbit_sparsity_register(ctx, &staircase_row, error);
    s = s ? s : sbit_graph_create(ctx, 17, &graph, error);
    s = s ? s : make_network(graph, first, second, error);
    s = s ? s : sbit_sconfig_read(ctx, text, sizeof text - 1, &config, error);
    s = s ? s : sbit_sparse_create(graph, config, &sparse, error);
    s = s ? s : loop(sparse, first, error);
    s = s ? s : bring_masks(sparse, error);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    sbit_graph_destroy(graph);
    return s;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "", ""};
    sbit_status status = sbit_ctx_create(NULL, &ctx, &error);
    status = status == SBIT_OK ? prune(ctx, &error) : status;
    if (status != SBIT_OK) {
        fprintf(stderr, "%s\n", error.message);
    }
    sbit_ctx_destroy(ctx);
    return status == SBIT_OK ? 0 : 1;
}
