/* test_kept.c: every group of channels of every shared model that keeps more than its ratio says, with
 * the reason: exactly these, by rule (contracts, section 7), and no others. Ratios 0.5 and 0.9 (quick:
 * 0.5, and no model of the bench); SPARSEBIT_CHECK_ALL=1: 0.1, 0.3, 0.5, 0.7, 0.9. tests/interop/check_prune.py runs the files. */
#include "../sparsebit.h"
#include "test.h"

enum {
    ZERO = 1,   /* PRUNE_BIAS: true */
    FOLDED = 2, /* false */
    BOTH = 3
};
enum {
    SOME,  /* what a channel is depends on its numbers: which ones stay, and at which ratio */
    ALWAYS /* at every ratio */
};

/* `layers`: the first of those that make the channels. Behind "zero padding" and "not zero" stands a
 * constant that a removed channel is: a bias that is kept, or one that all channels share. */
static const struct {
    const char *model, *layers, *reason;
    int policies, when;
} kept[] = {
    /* clang-format off */
    {"mobilenet_v2", "classifier.1", "reaches the graph's output 'output'", BOTH, ALWAYS},
    {"mobilenet_v3_small", "classifier.3", "reaches the graph's output 'output'", BOTH, ALWAYS},
    {"squeezenet1_1", "classifier.1", "reaches the graph's output 'output'", BOTH, ALWAYS},
    {"mobilenetv2", "fc", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"mobilenetv3s", "c.3", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"resnet18w32", "fc", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"resnet18w32", "stem.0", "Conv 'node_conv2d_3' reads a constant through zero padding", FOLDED, ALWAYS},
    {"resnet18w32", "body.0.c1.0", "Conv 'node_conv2d_2' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.2.c2.0", "Conv 'node_conv2d_8' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.4.c1.0", "Conv 'node_conv2d_11' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.4.c2.0", "Conv 'node_conv2d_13' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.6.c1.0", "Conv 'node_conv2d_16' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.7.c1.0", "Conv 'node_conv2d_19' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.1.c1.0", "Conv 'node_conv2d_4' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.2.c1.0", "Conv 'node_conv2d_6' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.3.c1.0", "Conv 'node_conv2d_9' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.5.c1.0", "Conv 'node_conv2d_14' reads a constant through zero padding", FOLDED, SOME},
    {"resnet18w32", "body.6.c2.0", "Conv 'node_conv2d_18' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "fc", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"resnet20", "stem.0", "Conv 'node_conv2d_1' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.0.c1.0", "Conv 'node_conv2d_2' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.1.c1.0", "Conv 'node_conv2d_4' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.3.c1.0", "Conv 'node_conv2d_8' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.3.c2.0", "Conv 'node_conv2d_10' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.6.c1.0", "Conv 'node_conv2d_15' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.6.c2.0", "Conv 'node_conv2d_17' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.8.c1.0", "Conv 'node_conv2d_20' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.2.c1.0", "Conv 'node_conv2d_6' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.4.c1.0", "Conv 'node_conv2d_11' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.5.c1.0", "Conv 'node_conv2d_13' reads a constant through zero padding", FOLDED, SOME},
    {"resnet20", "body.7.c1.0", "Conv 'node_conv2d_18' reads a constant through zero padding", FOLDED, SOME},
    {"rowlstm", "fc", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"rowlstm", "/l/LSTM", "LSTM '/l/LSTM_1' reads channels that are not constant when masked", FOLDED, ALWAYS},
    {"shufflenetv2", "fc", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"shufflenetv2", "f.1.b2.2.0", "a tensor of the network keeps its last channel", BOTH, SOME},
    {"shufflenetv2", "f.5.b1.1.0", "a tensor of the network keeps its last channel", BOTH, SOME},
    {"vggsmall", "c.5", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"vggsmall", "f.0.0", "Conv 'node_conv2d_1' reads a constant through zero padding", FOLDED, SOME},
    {"vggsmall", "f.2.0", "Conv 'node_conv2d_2' reads a constant through zero padding", FOLDED, SOME},
    {"vggsmall", "f.4.0", "Conv 'node_conv2d_3' reads a constant through zero padding", FOLDED, SOME},
    {"vggsmall", "f.5.0", "Conv 'node_conv2d_4' reads a constant through zero padding", FOLDED, SOME},
    {"vggsmall", "f.7.0", "Conv 'node_conv2d_5' reads a constant through zero padding", FOLDED, SOME},
    {"vit_tiny", "e", "LayerNormalization 'node_layer_norm' normalizes over the channels", BOTH, ALWAYS},
    {"vit_tiny", "fc", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"efficientnet_lite0", "_fc", "reaches the graph's output 'logits'", BOTH, ALWAYS},
    {"mnist_8", "Plus214", "reaches the graph's output 'Plus214_Output_0'", BOTH, ALWAYS},
    {"mnist_8", "Convolution28", "Conv 'Convolution110' reads a constant through zero padding", FOLDED, SOME},
    {"ppocr_cls", "p2o.Add.86", "Softmax 'p2o.Softmax.0' normalizes over the channels", BOTH, ALWAYS},
    {"ppocrv4_det", "p2o.ConvTranspose.0",
     "ConvTranspose 'p2o.ConvTranspose.2' reads channels that are not zero when masked", FOLDED, SOME},
    {"ppocrv4_det", "p2o.Conv.61",
     "ConvTranspose 'p2o.ConvTranspose.0' reads channels that are not zero when masked", FOLDED, SOME},
    {"ppocrv4_rec", "p2o.Conv.32", "Conv 'p2o.Conv.33' reads a constant through zero padding", BOTH, ALWAYS},
    {"ppocrv4_rec", "p2o.Conv.34", "ReduceMean 'p2o.ReduceMean.0' reduces over the channels", BOTH, ALWAYS},
    {"ppocrv4_rec", "p2o.MatMul.24", "Softmax 'p2o.Softmax.2' normalizes over the channels", BOTH, ALWAYS},
    {"ppocrv4_rec", "p2o.Conv.35", "Conv 'p2o.Conv.36' reads a constant through zero padding", FOLDED, ALWAYS},
    {"yunet_n_dynamic", "bbox_head.multi_level_bbox.0.conv1", "reaches the graph's output 'bbox_8'", BOTH, ALWAYS},
    {"yunet_n_dynamic", "bbox_head.multi_level_bbox.1.conv1", "reaches the graph's output 'bbox_16'", BOTH, ALWAYS},
    {"yunet_n_dynamic", "bbox_head.multi_level_bbox.2.conv1", "reaches the graph's output 'bbox_32'", BOTH, ALWAYS},
    {"yunet_n_dynamic", "bbox_head.multi_level_kps.0.conv1", "reaches the graph's output 'kps_8'", BOTH, ALWAYS},
    {"yunet_n_dynamic", "bbox_head.multi_level_kps.1.conv1", "reaches the graph's output 'kps_16'", BOTH, ALWAYS},
    {"yunet_n_dynamic", "bbox_head.multi_level_kps.2.conv1", "reaches the graph's output 'kps_32'", BOTH, ALWAYS},
    /* clang-format on */
};
#define KEPT (sizeof kept / sizeof kept[0])

static const char *const models[] = {
    "bench/mobilenet_v2",  "bench/mobilenet_v3_small", "bench/squeezenet1_1",  "cifar10/mobilenetv2",
    "cifar10/mobilenetv3s", "cifar10/resnet18w32",      "cifar10/resnet20",     "cifar10/rowlstm",
    "cifar10/shufflenetv2", "cifar10/vggsmall",         "cifar10/vit_tiny",     "zoo/efficientnet_lite0",
    "zoo/mnist_8",          "zoo/ppocr_cls",            "zoo/ppocrv4_det",      "zoo/ppocrv4_rec",
    "zoo/silero_vad_v4",    "zoo/silero_vad_v5",        "zoo/super_resolution_10",
    "zoo/ultraface_rfb320", "zoo/yunet_n_dynamic"};

static int seen[KEPT]; /* policies, at ratio 0.5 */

/* The large ones, whose patterns the others have too. */
static bool left_out(const char *path)
{
    return getenv("SBIT_TEST_QUICK") != NULL && strncmp(path, "bench/", 6) == 0;
}

static void kept_group(const char *model, const sbit_sparse_group *group, int policy, double ratio)
{
    const int64_t most = (int64_t)ceil((1.0 - ratio) * (double)group->channels - 1e-9);
    const size_t first = strcspn(group->layers, ",");
    bool found = group->kept <= most;
    for (size_t i = 0; i < KEPT && !found; i++) {
        found = strcmp(kept[i].model, model) == 0 && strncmp(kept[i].layers, group->layers, first) == 0 &&
                kept[i].layers[first] == '\0' && strcmp(kept[i].reason, group->reason) == 0 &&
                (kept[i].policies & policy) != 0;
        seen[i] |= found && ratio == 0.5 ? policy : 0;
    }
    CHECK_MSG(found, "%s, ratio %g, policy %d: {\"%s\"} keeps %d of %d: \"%s\"", model, ratio, policy,
              group->layers, (int)group->kept, (int)group->channels, group->reason);
}

static bool kept_model(const char *path, const char *model)
{
    static const double all[] = {0.5, 0.9, 0.1, 0.3, 0.7};
    const size_t ratios = getenv("SPARSEBIT_CHECK_ALL") != NULL ? 5
                          : getenv("SBIT_TEST_QUICK") != NULL   ? 1
                                                                : 2;
    char file[80], full[1024];
    snprintf(file, sizeof file, "models/%s.onnx", path);
    if (!test_shared(file, full, sizeof full)) {
        return false;
    }
    for (int policy = ZERO; policy <= FOLDED; policy++) {
        const char *text = policy == ZERO
                               ? "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n"
                               : "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: false}\n";
        sbit_error error;
        sbit_ctx *ctx = NULL;
        sbit_graph *graph = NULL;
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        memset(&error, 0, sizeof error);
        if (CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error) &&
            CHECK_OK(sbit_graph_load(ctx, full, &graph, &error), error) &&
            CHECK_OK(sbit_sconfig_read(ctx, text, strlen(text), &config, &error), error) &&
            CHECK_OK(sbit_sparse_create(graph, config, &sparse, &error), error)) {
            const bool any = sbit_sparse_group_count(sparse) > 0;
            for (size_t r = 0; r < ratios && any; r++) {
                CHECK_OK(sbit_sparse_set_ratio(sparse, "*", all[r], &error), error);
                CHECK_OK(sbit_sparse_select(sparse, NULL, &error), error);
                for (size_t i = 0; i < sbit_sparse_group_count(sparse); i++) {
                    sbit_sparse_group group;
                    CHECK_EQ_I64(sbit_sparse_group_at(sparse, i, &group), SBIT_OK);
                    kept_group(model, &group, policy, all[r]);
                }
            }
        }
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
    }
    return true;
}

TEST(groups_that_are_kept_have_these_reasons)
{
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        const char *model = strchr(models[m], '/') + 1;
        for (size_t i = 0; left_out(models[m]) && i < KEPT; i++) {
            seen[i] = strcmp(kept[i].model, model) == 0 ? kept[i].policies : seen[i];
        }
        if (!left_out(models[m]) && !kept_model(models[m], model)) {
            SBIT_TEST_SKIP("no shared models");
        }
    }
    for (size_t i = 0; i < KEPT; i++) {
        CHECK_MSG(kept[i].when == SOME || seen[i] == kept[i].policies, "%s: %s was not kept: %s",
                  kept[i].model, kept[i].layers, kept[i].reason);
    }
}
