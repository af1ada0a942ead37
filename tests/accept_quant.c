/* accept_quant.c: what quantization recipes reach on the shared CIFAR-10 networks: correct images
 * of the first 2,000 test images (golden C's set-up: the first 256 images of the training file). */
#include "../sparsebit.h"
#include "test.h"

enum {
    CALIB = 256,
    TESTED = 2000,
    PIXELS = 3 * 32 * 32
};
static uint8_t accept_raw[TESTED][1 + PIXELS];
static uint8_t accept_bytes[TESTED][PIXELS];
static const double accept_mean[3] = {0.4914, 0.4822, 0.4465},
                    accept_std[3] = {0.2470, 0.2435, 0.2616};

/* The first `count` images of a CIFAR file as a feed of bytes that are normalized on the way. */
static bool accept_feed(sbit_ctx *ctx, const char *name, int count, sbit_feed *feed,
                        sbit_tensor *all)
{
    char path[512];
    sbit_feed_desc desc;
    sbit_error error;
    FILE *file = test_shared(name, path, sizeof path) ? fopen(path, "rb") : NULL;
    if (file == NULL) {
        return false;
    }
    const size_t read = fread(accept_raw, sizeof accept_raw[0], (size_t)count, file);
    fclose(file);
    for (int i = 0; i < count; i++) {
        memcpy(accept_bytes[i], accept_raw[i] + 1, PIXELS);
    }
    memset(all, 0, sizeof *all);
    all->dtype = SBIT_U8;
    all->rank = 4;
    all->dims[0] = count;
    all->dims[1] = 3;
    all->dims[2] = all->dims[3] = 32;
    all->data = accept_bytes;
    memset(&desc, 0, sizeof desc);
    desc.inputs = all;
    desc.input_count = 1;
    desc.batch = 64;
    desc.normalize.scale = 1.0 / 255.0;
    desc.normalize.mean = accept_mean;
    desc.normalize.std = accept_std;
    desc.normalize.channels = 3;
    return read == (size_t)count && sbit_feed_of_tensors(ctx, &desc, feed, &error) == SBIT_OK;
}

/* How many of the 2,000 are right; -1: something failed. */
static int accept_correct(sbit_ctx *ctx, sbit_graph *graph)
{
    sbit_feed feed;
    sbit_tensor all;
    sbit_batch batch;
    sbit_session *session = NULL;
    sbit_error error;
    int right = 0;
    if (!accept_feed(ctx, "data/cifar10/test-10k.bin", TESTED, &feed, &all) ||
        sbit_session_create(graph, NULL, &session, &error) != SBIT_OK) {
        return -1;
    }
    for (int64_t at = 0; at < feed.count; at += batch.samples) {
        if (sbit_feed_read(&feed, at, 0, &batch, &error) != SBIT_OK ||
            sbit_session_set_input_at(session, 0, batch.inputs, &error) != SBIT_OK ||
            sbit_session_run(session, &error) != SBIT_OK) {
            right = -1;
            break;
        }
        const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int64_t i = 0; i < batch.samples; i++) {
            right += sbit_rank_of(y + 10 * i, 10, accept_raw[at + i][0]) == 0 ? 1 : 0;
        }
    }
    sbit_session_destroy(session);
    sbit_feed_close(&feed);
    return right;
}

typedef struct accept_case {
    const char *point, *net, *config;
    int least;
} accept_case;

#define ACCEPT_ADAROUND(asym, steps)                                                               \
    "SCHEDULE: {FUSE_BN: true, ASYM: " asym "}\nSTEP: {ADAROUND: {ITERATIONS: " steps "}}\n"       \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: adaround, BIT: 4}, "                    \
    "OBSERVER: {TYPE: MSE}}\n"                                                                     \
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n"

/* AdaRound: golden C's 1746 and 1754 less 16. Equalized mobilenetv2, per tensor: 2 points below its
 * float 1703. */
static const accept_case accept_cases[] = {
    {"walls.adaround", "resnet20", ACCEPT_ADAROUND("false", "500"), 1730},
    {"walls.adaround-asym", "resnet20", ACCEPT_ADAROUND("true", "500"), 1738},
    {"walls.cross-layer", "mobilenetv2",
     "PLACEMENT: generic\nSCHEDULE: {FUSE_BN: true}\nSTEPS: [cross_layer]\n"
     "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n"
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
     1663},
    {"quant.gptq-w4a8", "mobilenetv2",
     "SCHEDULE: {FUSE_BN: true, ASYM: true}\nSTEPS: [gptq, bias_correction]\n"
     "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}, OBSERVER: {TYPE: MSE}}\n"
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
     1690},
    {"quant.compensate-w4a4", "resnet20", /* nearest: 1719, float: 1763 */
     "PLACEMENT: generic\nSCHEDULE: {FUSE_BN: true}\nSTEPS: [compensate]\n"
     "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}, OBSERVER: {TYPE: MSE}, "
     "SPECIFIC: [{\"stem.0\": [QUANTIZER.BIT, 8]}, {\"fc\": [QUANTIZER.BIT, 8]}]}\n"
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}, OBSERVER: {TYPE: MSE}, "
     "SPECIFIC: [{\"stem.0\": [QUANTIZER.BIT, 8]}, {\"fc\": [QUANTIZER.BIT, 8]}]}\n",
     1709},
};

TEST(recipes_reach_their_numbers)
{
    for (size_t i = 0; i < sizeof accept_cases / sizeof accept_cases[0]; i++) {
        const accept_case *c = &accept_cases[i];
        char name[64], path[512];
        sbit_ctx *ctx = NULL;
        sbit_ctx_desc desc;
        sbit_graph *graph = NULL, *q = NULL;
        sbit_qconfig *config = NULL;
        sbit_feed feed;
        sbit_tensor all;
        sbit_error error;
        memset(&desc, 0, sizeof desc);
        memset(&error, 0, sizeof error);
        memset(&feed, 0, sizeof feed);
        desc.threads = 2;
        snprintf(name, sizeof name, "models/cifar10/%s.onnx", c->net);
        CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
        if (!test_shared(name, path, sizeof path) ||
            !accept_feed(ctx, "data/cifar10/train-20k.bin", CALIB, &feed, &all)) {
            sbit_ctx_destroy(ctx);
            SBIT_TEST_SKIP("the shared networks and images are missing");
        }
        CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error);
        CHECK_OK(sbit_qconfig_read(ctx, c->config, strlen(c->config), &config, &error), error);
        if (CHECK_OK(sbit_quantize(graph, config, &feed, &q, &error), error)) {
            const int right = accept_correct(ctx, q);
            test_accept(c->point, right, c->least, right >= c->least, "of 2000");
        }
        sbit_graph_destroy(q);
        sbit_qconfig_destroy(config);
        sbit_feed_close(&feed);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
    }
}
