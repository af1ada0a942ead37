/* train.c: a network from nothing: built in C, trained, pruned, quantized, exported.
 *
 *     cc -O2 -I.. train.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * The task: which of three figures - disc, square, cross - is in a noisy 16 x 16 picture. A small
 * residual network learns it in a few seconds. Half of its weights are then pruned by size and the
 * rest is trained a little more under the mask; at last weights and activations go down to 4 bits
 * by learned step sizes (LSQ), and the quantized model is written to shapes_w4a4.onnx.
 */
#include "sparsebit.h"

#include <math.h>   /* fabsf */
#include <stdio.h>  /* printf */
#include <stdlib.h> /* malloc, qsort */

enum {
    SIDE = 16,
    CLASSES = 3,
    TRAIN = 1536,
    TEST = 512
};

/* ---- data */

static void draw(sbit_rng *rng, int64_t figure, float *picture)
{
    const int cx = 5 + (int)sbit_rng_below(rng, 6), cy = 5 + (int)sbit_rng_below(rng, 6);
    const int r = 3 + (int)sbit_rng_below(rng, 2);
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            const int dx = abs(x - cx), dy = abs(y - cy);
            const int inside = figure == 0   ? dx * dx + dy * dy <= r * r
                               : figure == 1 ? dx < r && dy < r
                                             : (dx <= r && dy == 0) || (dy <= r && dx == 0);
            picture[y * SIDE + x] = (inside ? 1.0f : 0.0f) + 0.3f * sbit_rng_normal(rng);
        }
    }
}

typedef struct pictures {
    float *x;
    int64_t *y;
    sbit_tensor inputs, targets;
    sbit_feed feed;
} pictures;

static sbit_status pictures_make(sbit_ctx *ctx, int64_t count, uint64_t seed, pictures *out,
                                 sbit_error *error)
{
    sbit_rng rng = sbit_rng_seed(seed);
    const int64_t dims[4] = {count, 1, SIDE, SIDE};
    sbit_status status = sbit_tensor_alloc(ctx, SBIT_F32, 4, dims, &out->inputs, error);
    status = status == SBIT_OK ? sbit_tensor_alloc(ctx, SBIT_I64, 1, dims, &out->targets, error)
                               : status;
    for (int64_t i = 0; status == SBIT_OK && i < count; i++) {
        ((int64_t *)out->targets.data)[i] = i % CLASSES;
        draw(&rng, i % CLASSES, (float *)out->inputs.data + i * SIDE * SIDE);
    }
    const sbit_feed_desc desc = {
        .inputs = &out->inputs, .input_count = 1, .targets = &out->targets, .target_count = 1};
    return status == SBIT_OK ? sbit_feed_of_tensors(ctx, &desc, &out->feed, error) : status;
}

static void pictures_free(sbit_ctx *ctx, pictures *p)
{
    sbit_feed_close(&p->feed);
    sbit_tensor_free(ctx, &p->inputs);
    sbit_tensor_free(ctx, &p->targets);
}

/* ---- the network */

static sbit_value_id block(sbit_builder *b, sbit_value_id x, int64_t channels, int64_t stride,
                           const char *conv, const char *norm)
{
    const sbit_value_id none = {0};
    const sbit_conv_desc desc = {.channels = channels, .stride = stride};
    x = sbit_builder_conv(b, conv, x, &desc);
    x = sbit_builder_batch_norm(b, norm, x);
    return sbit_builder_op(b, "Relu", x, none);
}

static sbit_status network(sbit_graph *graph, sbit_error *error)
{
    const int64_t dims[3] = {1, SIDE, SIDE};
    const sbit_value_id none = {0};
    sbit_builder b = sbit_builder_init(graph, 1, error);
    sbit_value_id x = sbit_builder_input(&b, "input", 3, dims);
    x = block(&b, x, 8, 1, "conv1", "norm1");
    x = block(&b, x, 16, 2, "conv2", "norm2");
    x = sbit_builder_op(&b, "Add", x, block(&b, x, 16, 1, "conv3", "norm3"));
    x = block(&b, x, 32, 2, "conv4", "norm4");
    x = sbit_builder_pool(&b, "GlobalAveragePool", x, 0);
    x = sbit_builder_op(&b, "Flatten", x, none);
    return sbit_builder_output(&b, "logits", sbit_builder_linear(&b, "fc", x, CLASSES));
}

/* ---- accuracy of a graph on pictures */

static sbit_status accuracy(sbit_graph *graph, const pictures *p, double *out, sbit_error *error)
{
    sbit_session *session = NULL;
    int64_t right = 0;
    sbit_status status = sbit_session_create(graph, NULL, &session, error);
    status =
        status == SBIT_OK ? sbit_session_set_input(session, "input", &p->inputs, error) : status;
    status = status == SBIT_OK ? sbit_session_run(session, error) : status;
    if (status == SBIT_OK) {
        const float *logits = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int64_t i = 0; i < p->inputs.dims[0]; i++) {
            const int64_t label = ((const int64_t *)p->targets.data)[i];
            right += sbit_rank_of(logits + i * CLASSES, CLASSES, label) == 0 ? 1 : 0;
        }
        *out = (double)right / (double)p->inputs.dims[0];
    }
    sbit_session_destroy(session);
    return status;
}

/* ---- training */

static sbit_status fit(sbit_trainer *trainer, const pictures *p, int64_t epochs, sbit_error *error)
{
    sbit_train_report report;
    const sbit_fit_desc desc = {
        .epochs = epochs, .batch = 32, .seed = 7, .rate = "cosine", .warmup = 4};
    const sbit_status status = sbit_trainer_fit(trainer, &p->feed, &desc, &report, error);
    if (status == SBIT_OK) {
        printf("  %lld steps, loss of the last epoch %.4f\n", (long long)report.step, report.loss);
    }
    return status;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Prunes the half of each convolution's weights that is nearest to zero. */
static sbit_status prune(sbit_trainer *trainer, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    for (size_t i = 0; status == SBIT_OK && i < sbit_trainer_parameter_count(trainer); i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(trainer, i);
        const int64_t count = sbit_tensor_count(&p.data);
        const float *w = (const float *)p.data.data;
        if (p.data.rank != 4) {
            continue;
        }
        float *sizes = (float *)malloc((size_t)count * sizeof *sizes);
        unsigned char *keep = (unsigned char *)malloc((size_t)count);
        for (int64_t k = 0; k < count; k++) {
            sizes[k] = fabsf(w[k]);
        }
        qsort(sizes, (size_t)count, sizeof *sizes, by_size);
        for (int64_t k = 0; k < count; k++) {
            keep[k] = fabsf(w[k]) >= sizes[count / 2];
        }
        status = sbit_trainer_set_mask(trainer, p.name, keep, error);
        free(sizes);
        free(keep);
    }
    return status;
}

static const char w4a4[] =
    "PLACEMENT: generic\n"
    "SCHEDULE: {FUSE_BN: true}\n"
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}, OBSERVER: {TYPE: "
    "minmax}}\n"
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 4}, OBSERVER: {TYPE: minmax}}\n";

/* From the float graph to a file with 4-bit weights and activations. */
static sbit_status quantize(sbit_graph *graph, const pictures *train, const pictures *test,
                            const char *path, sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_trainer *trainer = NULL;
    sbit_graph *built = NULL;
    double before = 0.0, after = 0.0;
    const sbit_train_desc desc = {.learning_rate = 0.001f, .optimizer_options = "MOMENTUM: 0.9"};
    sbit_status status = sbit_qconfig_read(ctx, w4a4, sizeof w4a4 - 1, &config, error);
    status = status == SBIT_OK ? sbit_quant_create(graph, config, &quant, error) : status;
    status = status == SBIT_OK ? sbit_quant_calibrate(quant, &train->feed, error) : status;
    status =
        status == SBIT_OK ? sbit_quant_calc_qparams(quant, false, false, false, error) : status;
    status = status == SBIT_OK ? sbit_quant_build(quant, NULL, &built, error) : status;
    status = status == SBIT_OK ? accuracy(built, test, &before, error) : status;
    sbit_graph_destroy(built);
    built = NULL;
    status = status == SBIT_OK ? sbit_trainer_create_qat(quant, &desc, &trainer, error) : status;
    if (status == SBIT_OK) { /* one epoch in float, then with the quantizers */
        sbit_trainer_enable_qat(trainer, false);
        status = fit(trainer, train, 1, error);
        sbit_trainer_enable_qat(trainer, true);
    }
    status = status == SBIT_OK ? fit(trainer, train, 4, error) : status;
    status = status == SBIT_OK ? sbit_trainer_finish_qat(trainer, error) : status;
    status = status == SBIT_OK ? sbit_quant_export_onnx(quant, path, NULL, error) : status;
    status = status == SBIT_OK ? sbit_graph_load(ctx, path, &built, error) : status;
    status = status == SBIT_OK ? accuracy(built, test, &after, error) : status;
    if (status == SBIT_OK) {
        printf("4 bits: %.1f %% after calibration, %.1f %% after training (%s)\n", 100.0 * before,
               100.0 * after, path);
        if (after < 0.9) {
            status = SBIT_ERR_STATE;
        }
    }
    sbit_graph_destroy(built);
    sbit_trainer_destroy(trainer);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    return status;
}

static sbit_status run(sbit_ctx *ctx, sbit_graph *graph, const pictures *train,
                       const pictures *test, sbit_error *error)
{
    static const sbit_train_group groups[] = {{.pattern = "norm*", .no_decay = true},
                                              {.pattern = "*.bias", .no_decay = true}};
    const sbit_train_desc desc = {.optimizer = "sgd",
                                  .optimizer_options = "{MOMENTUM: 0.9, NESTEROV: true}",
                                  .learning_rate = 0.05f,
                                  .weight_decay = 1e-3f,
                                  .groups = groups,
                                  .group_count = 2};
    sbit_trainer *trainer = NULL;
    double trained = 0.0, pruned = 0.0;
    (void)ctx;
    sbit_status status = network(graph, error);
    status = status == SBIT_OK ? sbit_trainer_create(graph, &desc, &trainer, error) : status;
    status = status == SBIT_OK ? fit(trainer, train, 6, error) : status;
    status = status == SBIT_OK ? sbit_trainer_store(trainer, graph, error) : status;
    status = status == SBIT_OK ? accuracy(graph, test, &trained, error) : status;
    status = status == SBIT_OK ? prune(trainer, error) : status;
    status = status == SBIT_OK ? fit(trainer, train, 3, error) : status;
    status = status == SBIT_OK ? sbit_trainer_store(trainer, graph, error) : status;
    status = status == SBIT_OK ? accuracy(graph, test, &pruned, error) : status;
    sbit_trainer_destroy(trainer);
    if (status == SBIT_OK) {
        printf("float: %.1f %%, with half of the weights %.1f %%\n", 100.0 * trained,
               100.0 * pruned);
        status = trained < 0.95 || pruned < 0.95
                     ? SBIT_ERR_STATE
                     : quantize(graph, train, test, "shapes_w4a4.onnx", error);
    }
    return status;
}

int main(void)
{
    sbit_error error = {SBIT_OK, "", ""};
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    pictures train = {0}, test = {0};
    sbit_status status = sbit_ctx_create(NULL, &ctx, &error);
    status = status == SBIT_OK ? sbit_graph_create(ctx, 17, &graph, &error) : status;
    status = status == SBIT_OK ? pictures_make(ctx, TRAIN, 1, &train, &error) : status;
    status = status == SBIT_OK ? pictures_make(ctx, TEST, 2, &test, &error) : status;
    status = status == SBIT_OK ? run(ctx, graph, &train, &test, &error) : status;
    if (status != SBIT_OK) {
        printf("failed: %s\n", error.message[0] != '\0' ? error.message : "accuracy is too low");
    }
    pictures_free(ctx, &train);
    pictures_free(ctx, &test);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return status == SBIT_OK ? 0 : 1;
}
