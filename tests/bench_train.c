/* bench_train.c: time of a training step (forward, backward, SGD with momentum) of the shared
 * CIFAR-10 networks, on random images; bench/train_step.py compares it with PyTorch.
 *
 *     bench_train [NET [BATCH [SECONDS [QUANTIZER]]]]     without: all four, batch 64, one second each
 *
 * QUANTIZER: quantization-aware, weights and activations of 4 bits by this one (lsq, lsq+); pact takes
 * activations and dorefa weights, with lsq for the other.
 * Prints "NET MS", the median of the steps after the first. Threads: SPARSEBIT_TEST_THREADS.
 */
#include "../sparsebit.h"

#define SBIT_TEST_NO_MAIN
#include "test.h"

#include <time.h> /* clock_gettime */

static double bench_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int bench_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* A trainer of the graph; quantized, with sites calibrated on x: *quant, else NULL. */
static sbit_status bench_trainer(sbit_graph *graph, const char *quantizer, const sbit_tensor *x,
                                 const sbit_train_desc *desc, sbit_quant **quant,
                                 sbit_trainer **out, sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    const char *weights = strcmp(quantizer, "pact") == 0 ? "lsq" : quantizer;
    const char *activations = strcmp(quantizer, "dorefa") == 0 ? "lsq" : quantizer;
    sbit_qconfig *config = NULL;
    sbit_feed_desc feed_desc;
    sbit_feed feed;
    char text[400];
    if (quantizer[0] == '\0') {
        return sbit_trainer_create(graph, desc, out, error);
    }
    snprintf(text, sizeof text,
             "PLACEMENT: sparsebit\n"
             "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: %.20s, BIT: 4}}\n"
             "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: %.20s, BIT: 4}}\n",
             weights, activations);
    memset(&feed_desc, 0, sizeof feed_desc);
    memset(&feed, 0, sizeof feed);
    feed_desc.inputs = x;
    feed_desc.input_count = 1;
    feed_desc.batch = x->dims[0];
    sbit_status status = sbit_feed_of_tensors(ctx, &feed_desc, &feed, error);
    status = status == SBIT_OK ? sbit_qconfig_read(ctx, text, strlen(text), &config, error) : status;
    status = status == SBIT_OK ? sbit_quant_create(graph, config, quant, error) : status;
    status = status == SBIT_OK ? sbit_quant_calibrate(*quant, &feed, error) : status;
    status = status == SBIT_OK ? sbit_quant_calc_qparams(*quant, false, true, true, error) : status;
    status = status == SBIT_OK ? sbit_trainer_create_qat(*quant, desc, out, error) : status;
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    return status;
}

/* The median time of a step; -1: it failed. */
static double bench_step(sbit_graph *graph, int64_t count, double seconds, const char *quantizer,
                         sbit_error *error)
{
    enum {
        MOST = 1000
    };
    static double ms[MOST];
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    sbit_rng rng = sbit_rng_seed(1);
    sbit_train_desc desc;
    sbit_trainer *trainer = NULL;
    sbit_quant *quant = NULL;
    sbit_tensor x, y;
    sbit_batch batch;
    const int64_t dims[4] = {count, 3, 32, 32};
    int steps = 0;
    memset(&desc, 0, sizeof desc);
    memset(&batch, 0, sizeof batch);
    memset(&x, 0, sizeof x);
    memset(&y, 0, sizeof y);
    desc.learning_rate = 1e-4f;
    desc.weight_decay = 1e-4f;
    desc.optimizer_options = "MOMENTUM: 0.9";
    sbit_status status = sbit_tensor_alloc(ctx, SBIT_F32, 4, dims, &x, error);
    status = status == SBIT_OK ? sbit_tensor_alloc(ctx, SBIT_I64, 1, dims, &y, error) : status;
    for (int64_t i = 0; status == SBIT_OK && i < count * 3072; i++) {
        ((float *)x.data)[i] = sbit_rng_normal(&rng);
    }
    for (int64_t i = 0; status == SBIT_OK && i < count; i++) {
        ((int64_t *)y.data)[i] = i % 10;
    }
    batch.inputs = &x;
    batch.targets = &y;
    batch.input_count = batch.target_count = 1;
    batch.samples = count;
    status = status == SBIT_OK
                 ? bench_trainer(graph, quantizer, &x, &desc, &quant, &trainer, error)
                 : status;
    status = status == SBIT_OK ? sbit_trainer_step(trainer, &batch, NULL, error) : status;
    const double begin = bench_ms();
    while (status == SBIT_OK && steps < MOST &&
           (steps < 3 || bench_ms() - begin < seconds * 1e3)) {
        const double at = bench_ms();
        status = sbit_trainer_step(trainer, &batch, NULL, error);
        ms[steps++] = bench_ms() - at;
    }
    sbit_trainer_destroy(trainer);
    sbit_quant_destroy(quant);
    sbit_tensor_free(ctx, &x);
    sbit_tensor_free(ctx, &y);
    qsort(ms, (size_t)steps, sizeof ms[0], bench_order);
    return status == SBIT_OK ? ms[steps / 2] : -1.0;
}

static int bench_net(const char *net, int64_t count, double seconds, const char *quantizer)
{
    char relative[64], path[512];
    sbit_ctx *ctx = NULL;
    sbit_ctx_desc desc;
    sbit_graph *graph = NULL;
    sbit_simplify_desc simplify;
    sbit_error error;
    double ms = -1.0;
    memset(&desc, 0, sizeof desc);
    memset(&simplify, 0, sizeof simplify);
    memset(&error, 0, sizeof error);
    desc.threads = test_threads();
    simplify.keep_batch_norm = simplify.keep_dropout = true;
    snprintf(relative, sizeof relative, "models/cifar10/%.40s.onnx", net);
    if (!test_shared(relative, path, sizeof path)) {
        printf("%s is not there\n", net);
        return 0;
    }
    if (sbit_ctx_create(&desc, &ctx, &error) == SBIT_OK &&
        sbit_graph_load(ctx, path, &graph, &error) == SBIT_OK &&
        sbit_simplify(graph, &simplify, NULL, &error) == SBIT_OK) {
        ms = bench_step(graph, count, seconds, quantizer, &error);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    if (ms < 0.0) {
        printf("%s: %s\n", net, error.message);
        return 1;
    }
    printf("%s %.3f\n", net, ms);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const nets[] = {"resnet20", "mobilenetv2", "vit_tiny", "rowlstm"};
    const int64_t count = argc > 2 ? atol(argv[2]) : 64;
    const double seconds = argc > 3 ? atof(argv[3]) : 1.0;
    int failed = 0;
    for (size_t i = 0; i < (argc > 1 ? 1 : sizeof nets / sizeof nets[0]); i++) {
        failed += bench_net(argc > 1 ? argv[1] : nets[i], count, seconds, argc > 4 ? argv[4] : "");
    }
    return failed != 0;
}
