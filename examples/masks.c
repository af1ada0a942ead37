/* masks.c: single weights pruned, step by step, by a schedule of one's own, and a mask that is set
 * by hand.
 *
 *     cc -O2 -I.. masks.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * Between the steps a real program trains; here every weight that is kept grows a little, which is
 * enough to see that what was pruned may come back.
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf */
#include <string.h> /* strlen, strcmp */

/* ---- a schedule: half at once, the rest evenly */

static double half_first(const sbit_options *options, int64_t step, int64_t total, double from,
                         double to)
{
    (void)options;
    const double part = total > 0 ? (double)step / (double)total : 1.0;
    return from + (to - from) * (0.5 + 0.5 * part);
}

static const sbit_sparsity_row half_at_once = {
    .head = {.name = "half_first", .doc = "half at once, the rest evenly"},
    .at = half_first,
};

/* ---- a small network */

static sbit_status make_model(sbit_graph *graph, sbit_error *error)
{
    const int64_t dims[3] = {3, 8, 8};
    const sbit_value_id none = {0};
    const sbit_conv_desc conv = {.channels = 8};
    sbit_builder b = sbit_builder_init(graph, 1, error);
    sbit_value_id x = sbit_builder_input(&b, "x", 3, dims);
    x = sbit_builder_op(&b, "Relu", sbit_builder_conv(&b, "first", x, &conv), none);
    x = sbit_builder_op(&b, "Add", x, sbit_builder_conv(&b, "branch", x, &conv));
    x = sbit_builder_op(&b, "Flatten", sbit_builder_pool(&b, "GlobalAveragePool", x, 0), none);
    return sbit_builder_output(&b, "y", sbit_builder_linear(&b, "head", x, 4));
}

static void put(const char *text, size_t size, void *user)
{
    fwrite(text, 1, size, (FILE *)user);
}

static sbit_status show_settings(sbit_sconfig *config, const sbit_graph *graph, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    sbit_sconfig_print(config, true, put, stdout);
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && status == SBIT_OK;
         id = sbit_graph_next(graph, id)) {
        sbit_sparse_settings settings;
        char name[100];
        if (strcmp(sbit_graph_node(graph, id)->op_type, "Conv") == 0) {
            status = sbit_sconfig_layer(config, graph, id, &settings, error);
            sbit_layer_name(graph, id, name, sizeof name);
            printf("%s: %s, ratio %g\n", name, settings.strategy, settings.ratio);
        }
    }
    return status;
}

static double kept(const sbit_sparse *sparse)
{
    double count = 0.0, left = 0.0;
    for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
        sbit_mask mask;
        if (sbit_sparse_mask(sparse, i, &mask) == SBIT_OK) {
            count += (double)mask.count;
            left += (double)mask.kept;
        }
    }
    return count > 0.0 ? left / count : 1.0;
}

/* What training would do: weights move, and the sparse is told. */
static sbit_status move_weights(sbit_sparse *sparse, const char *name, sbit_error *error)
{
    const sbit_graph *graph = sbit_sparse_graph(sparse);
    const sbit_tensor *old = &sbit_graph_value(graph, sbit_graph_find_value(graph, name))->constant;
    sbit_tensor weight;
    sbit_status status =
        sbit_tensor_alloc(sbit_graph_ctx(graph), old->dtype, old->rank, old->dims, &weight, error);
    if (status == SBIT_OK) {
        for (int64_t i = 0; i < sbit_tensor_count(old); i++) {
            ((float *)weight.data)[i] = 1.01f * ((const float *)old->data)[i];
        }
        status = sbit_sparse_set_weight(sparse, name, &weight, error);
        sbit_tensor_free(sbit_graph_ctx(graph), &weight);
    }
    return status;
}

static int step_by_step(sbit_sparse *sparse, sbit_error *error)
{
    double before = 1.0;
    for (int64_t step = 0; step <= 3; step++) {
        if (sbit_sparse_step(sparse, step, 3, NULL, error) ||
            move_weights(sparse, "first.weight", error)) {
            return 1;
        }
        printf("step %d: %.0f %% of the weights are left\n", (int)step, 100.0 * kept(sparse));
        if (kept(sparse) > before) {
            return 1;
        }
        before = kept(sparse);
    }
    return 0;
}

/* All at once, the branch in front of the Add left alone; the first filter is taken out by hand. */
static int by_hand(sbit_sparse *sparse, sbit_error *error)
{
    sbit_mask mask;
    uint8_t keep[8 * 3 * 3 * 3];
    sbit_sparse_disable_sparse_before_add(sparse);
    if (sbit_sparse_set_ratio(sparse, "first", 0.25, error) ||
        sbit_sparse_calc_params(sparse, NULL, error)) {
        return 1;
    }
    for (size_t i = 0; i < sizeof keep; i++) {
        keep[i] = i >= 27;
    }
    if (sbit_sparse_set_mask(sparse, "first.weight", keep, (int64_t)sizeof keep, error) ||
        sbit_sparse_mask(sparse, 0, &mask)) {
        return 1;
    }
    printf("%s: %d of %d by hand\n", mask.name, (int)mask.kept, (int)mask.count);
    const sbit_sparse_files files = {.masked = "masked.onnx", .masks = "masks.json"};
    return mask.kept != 7 * 27 || sbit_sparse_export(sparse, &files, error) ||
           sbit_sparse_load_masks(sparse, "masks.json", false, error);
}

/* ---- a collector: how large what a layer reads is */

static sbit_status largest(const char *layer, const sbit_sparser_sample *sample, void *user,
                           sbit_error *error)
{
    float *most = (float *)user;
    (void)layer;
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(&sample->tensor); i++) {
        const float x = ((const float *)sample->tensor.data)[i];
        *most = x > *most ? x : *most;
    }
    return SBIT_OK;
}

static int collect(sbit_ctx *ctx, sbit_sparse *sparse, sbit_error *error)
{
    static float image[3 * 8 * 8] = {-2.0f, 5.0f};
    sbit_tensor x = {.dtype = SBIT_F32, .rank = 4, .dims = {1, 3, 8, 8}, .data = image};
    const sbit_feed_desc desc = {.inputs = &x, .input_count = 1};
    float most = 0.0f;
    const sbit_sparse_collector collector = {"first", SBIT_NEEDS_INPUT, largest, &most};
    sbit_feed feed;
    int32_t id = 0;
    if (sbit_feed_of_tensors(ctx, &desc, &feed, error)) {
        return 1;
    }
    const int failed = sbit_sparse_add_collector(sparse, &collector, &id, error) ||
                       sbit_sparse_collect(sparse, &feed, error) ||
                       !sbit_sparse_remove_collector(sparse, id) || most != 5.0f;
    printf("first reads numbers up to %g\n", (double)most);
    sbit_feed_close(&feed);
    return failed;
}

/* Zeros among the weights of the first layer, with masks or without. */
static int zeros(sbit_sparse *sparse, bool on, sbit_error *error)
{
    sbit_graph *graph = NULL;
    int count = 0;
    sbit_sparse_switch_masks(sparse, on);
    if (sbit_sparse_masked(sparse, &graph, error)) {
        return -1;
    }
    const sbit_value_id id = sbit_graph_find_value(graph, "first.weight");
    const sbit_tensor *w = &sbit_graph_value(graph, id)->constant;
    for (int64_t i = 0; i < sbit_tensor_count(w); i++) {
        count += ((const float *)w->data)[i] == 0.0f;
    }
    sbit_graph_destroy(graph);
    sbit_sparse_switch_masks(sparse, true);
    return count;
}

int main(void)
{
    static const char yaml[] = "SPARSER: {TYPE: unstructured, STRATEGY: l1norm, RATIO: 0.8, "
                               "SCHEDULE: half_first}\n";
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_sconfig *config = NULL;
    sbit_sparse *sparse = NULL;
    sbit_error error = {SBIT_OK, "masks are not as wanted", ""};
    const int failed = sbit_ctx_create(NULL, &ctx, &error) ||
                       sbit_sparsity_register(ctx, &half_at_once, &error) ||
                       sbit_graph_create(ctx, 17, &graph, &error) || make_model(graph, &error) ||
                       sbit_sconfig_read(ctx, yaml, strlen(yaml), &config, &error) ||
                       show_settings(config, graph, &error) ||
                       sbit_sparse_create(graph, config, &sparse, &error) ||
                       step_by_step(sparse, &error) || by_hand(sparse, &error) ||
                       zeros(sparse, true, &error) < 27 || zeros(sparse, false, &error) != 0 ||
                       collect(ctx, sparse, &error) || sbit_sparse_squash(sparse, &error) ||
                       zeros(sparse, false, &error) < 27; /* weights are zero for good */
    printf("%s\n", failed ? error.message : "wrote masked.onnx");
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return failed;
}
