/* accept_train.c: what training reaches on the shared CIFAR-10 networks, by the tool: quantization-
 * aware training, pruning with finetuning, both with distillation, blocks without labels, networks
 * from nothing. A run leaves its result in a folder (tests/build/accept-train) and a line in
 * table.txt there: what is there is not run again, and what was interrupted goes on from its
 * checkpoint. A point compares runs: quantized and pruned networks with the best of the original
 * and the one finetuned by the same recipe, data and epochs (the control).
 *
 * LONG=1 asks for the numbers. The short form (an eighth of the data, two epochs, one seed)
 * cannot reach them: it asks that training made of a model more than it was given, or, where the
 * masks come while training, for a limit that one run of it was seen to keep (`seen`).
 *
 * Environment (see test.h, too: SPARSEBIT_CLI, SPARSEBIT_SHARED)
 *   SBIT_ACCEPT_RUN      only the runs with this part in their name NET-RECIPE-SEED are run;
 *                        points whose runs are not all there are left out
 *   SBIT_ACCEPT_HOME     the folder
 *   SBIT_ACCEPT_THREADS  of the tool (default: all processors)
 *   SBIT_ACCEPT_SECONDS  no run goes on for longer: it leaves a checkpoint
 *   SBIT_ACCEPT_EPOCHS, SBIT_ACCEPT_LIMIT  other epochs and training images, under names of their own
 *
 * The LSQ family has Sparsebit's placement, as in the papers: what layers read is quantized, not
 * what Add reads. A sum's operand has a sign; of its four integers at 2 bits one is positive.
 */
#include "../sparsebit.h"
#include "test.h"

#include <sys/stat.h> /* mkdir */
#include <sys/wait.h> /* WEXITSTATUS */
#include <time.h>     /* time */
#include <unistd.h>   /* getpid */

#define ACCEPT_SGD "--lr 0.01 --decay 0.0001"
/* The teacher alone: what 20,000 of its 50,000 images' labels add is worth less (tried: 0.9, 0.5, none);
 * what was cut comes back slowly (0.001, 0.03, 0.1 are worse), what grows masks needs to move. */
#define ACCEPT_TAUGHT(RATE) "--lr " RATE " --decay 0.0001 --teacher '%s' --distill 1"
/* For long: pictures that exchange parts, named by two teachers, are as good as new ones. */
#define ACCEPT_MIXED(RATE)                                                                         \
    ACCEPT_TAUGHT(RATE) " --teacher '%s/resnet18w32.onnx' --mixup 1 --cutmix 1"
/* What each block gives is learned from the teacher's, too. Blocks' sums keep their channels. */
#define ACCEPT_LIKE(RATE, GLOB, WEIGHT) ACCEPT_TAUGHT(RATE) " --features '" GLOB "' --feature-weight " WEIGHT
#define ACCEPT_INNER                                                                               \
    "SPARSER: {TYPE: structured, STRATEGY: fpgm, REPAIR: both, SPECIFIC: [{\"stem*\": [RATIO, "     \
    "0]}, {\"*c2*\": [RATIO, 0]}, {\"*sc*\": [RATIO, 0]}, {fc: [RATIO, 0]}]}\n"
#define ACCEPT_FROM_NOTHING "--lr 0.1 --decay 0.0005 --warmup 100"
#define ACCEPT_PICTURES "--mean 0.4914,0.4822,0.4465 --std 0.247,0.2435,0.2616"
#define ACCEPT_LSQ(W, A, BITS)                                                                     \
    "PLACEMENT: sparsebit\n"                                                                       \
    "W: {QSCHEME: per-channel-symmetric, OBSERVER: {TYPE: mse}, QUANTIZER: {TYPE: " W              \
    ", BIT: " BITS "}, " ACCEPT_8BIT "}\n"                                                         \
    "A: {QSCHEME: per-tensor-affine, OBSERVER: {TYPE: mse}, QUANTIZER: {TYPE: " A ", BIT: " BITS   \
    "}, " ACCEPT_8BIT "}\n"
#define ACCEPT_OBSERVED "lsq, LSQ: {FROM_OBSERVER: true}"
#define ACCEPT_8BIT                                                                                \
    "SPECIFIC: [{\"stem.0\": [QUANTIZER.BIT, 8], \"fc\": [QUANTIZER.BIT, 8], \"f.0.0\": "          \
    "[QUANTIZER.BIT, 8], \"cls*\": [QUANTIZER.BIT, 8]}]"
#define ACCEPT_W4A8(STEPS)                                                                         \
    "SCHEDULE: {FUSE_BN: true, ASYM: true}\nSTEPS: [" STEPS "]\n"                                  \
    "STEP: {RECONSTRUCT: {FINETUNE: true, ITERATIONS: 200}}\n"                                    \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}, OBSERVER: {TYPE: MSE}}\n"            \
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n"
#define ACCEPT_POWER(STEPS)                                                                        \
    "SCHEDULE: {FUSE_BN: true, ASYM: true}\nSTEPS: [" STEPS "]\n"                                  \
    "STEP: {RECONSTRUCT: {FINETUNE: true, ITERATIONS: 200}}\n"                                    \
    "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8, POWER_OF_TWO: true}, OBSERVER: "       \
    "{TYPE: MSE}}\n"                                                                               \
    "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8, POWER_OF_TWO: true}, OBSERVER: "       \
    "{TYPE: MSE}}\n"

/* A recipe for a network. */
typedef struct accept_run {
    const char *net, *name;
    int epochs;           /* of the long form; 0: quantized on 512 images, no training */
    const char *flags;    /* of the tool; first %s: the model's path, second: its folder */
    const char *quantize; /* -c */
    const char *prune;    /* -s */
} accept_run;

static const accept_run accept_runs[] = {
    {"resnet20", "control", 15, ACCEPT_SGD, NULL, NULL},
    {"resnet20", "lsq", 10, ACCEPT_LIKE("0.01", "*relu*", "10"),
     ACCEPT_LSQ(ACCEPT_OBSERVED, ACCEPT_OBSERVED, "4"), NULL},
    {"resnet20", "lsqplus", 15, ACCEPT_SGD, ACCEPT_LSQ("lsq+", "lsq+", "4"), NULL},
    {"resnet20", "pact", 15, ACCEPT_SGD, 
     ACCEPT_LSQ(ACCEPT_OBSERVED, "pact, PACT: {ALPHA_VALUE: 0}", "4"), NULL},
    {"resnet20", "dorefa", 15, ACCEPT_SGD, ACCEPT_LSQ("dorefa", ACCEPT_OBSERVED, "4"), NULL},
    {"resnet20", "w2a2", 15, ACCEPT_SGD, ACCEPT_LSQ(ACCEPT_OBSERVED, ACCEPT_OBSERVED, "2"), NULL},
    {"resnet20", "agp-mixed", 60, ACCEPT_MIXED("0.1") " --features '*relu*' --feature-weight 2", NULL,
     "SPARSER: {TYPE: unstructured, STRATEGY: l1norm, RATIO: 0.9, SCHEDULE: agp, SCOPE: model, "
     "MAX_RATIO: 0.98}\n"},
    {"resnet20", "mixed", 60, ACCEPT_MIXED("0.1") " --features '*relu*' --feature-weight 2", NULL, NULL},
    {"mobilenetv2", "control", 8, ACCEPT_SGD, NULL, NULL},
    {"mobilenetv2", "lsq", 8, ACCEPT_SGD, ACCEPT_LSQ(ACCEPT_OBSERVED, ACCEPT_OBSERVED, "4"), NULL},
    {"resnet18w32", "control", 10, ACCEPT_SGD, NULL, NULL},
    {"resnet18w32", "macs", 10, ACCEPT_LIKE("0.01", "*relu*", "100") " --macs 0.5x", NULL,
     ACCEPT_INNER},
    {"resnet18w32", "both", 10, ACCEPT_LIKE("0.01", "*relu*", "100") " --macs 0.5x",
     "PLACEMENT: generic\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 8}}\n"
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 8}}\n",
     ACCEPT_INNER},
    {"vggsmall", "mixed", 110, ACCEPT_MIXED("0.05"), NULL, NULL},
    {"vggsmall", "params-mixed", 110, ACCEPT_MIXED("0.05") " --bytes 0.3x", NULL,
     "SPARSER: {TYPE: structured, STRATEGY: l1norm, SEARCH: greedy}\n"},
    {"vit_tiny", "control", 5, "--optimizer adamw --lr 0.0003 --decay 0.05", NULL, NULL},
    {"vit_tiny", "2of4", 5, "--optimizer adamw --lr 0.0003 --decay 0.05", NULL,
     "SPARSER: {TYPE: unstructured, STRATEGY: l1norm, N_OF_M: \"2:4\"}\n"},
    {"mobilenetv2", "w4a8", 0, "", ACCEPT_W4A8("gptq, bias_correction"), NULL},
    {"mobilenetv2", "w4a8-blocks", 0, "", ACCEPT_W4A8("gptq, reconstruct"), NULL},
    {"mobilenetv2", "power", 0, "", ACCEPT_POWER("cross_layer, bias_correction"), NULL},
    {"mobilenetv2", "power-blocks", 0, "", ACCEPT_POWER("cross_layer, reconstruct"), NULL},
    {"residual", "scratch", 15, ACCEPT_FROM_NOTHING, NULL, NULL},
    {"separable", "scratch", 15, ACCEPT_FROM_NOTHING, NULL, NULL},
};

/* What is asked of runs. */
typedef struct accept_point {
    const char *point, *net, *name;
    const char *against; /* a run; NULL: nothing, the number is reported */
    bool half;           /* points are counted from half way between `against` and the float model;
                            else: from the better of `against` and the original */
    double limit;        /* points that may be lost */
    double seen;         /* the same in the short form; 0: better than before training */
} accept_point;

static const accept_point accept_points[] = {
    {"train.qat-lsq", "resnet20", "lsq", "control", false, 1.0, 0.0},
    {"train.qat-lsq+", "resnet20", "lsqplus", "control", false, 2.0, 0.0},
    {"train.qat-pact", "resnet20", "pact", "control", false, 2.0, 0.0},
    {"train.qat-dorefa", "resnet20", "dorefa", "control", false, 2.0, 0.0},
    {"train.qat-w2a2", "resnet20", "w2a2", NULL, false, 0.0, 0.0},
    {"train.qat-mobilenetv2", "mobilenetv2", "lsq", "control", false, 2.5, 0.0},
    {"train.agp-90", "resnet20", "agp-mixed", "mixed", false, 1.5, 30.0},
    {"train.prune-macs-50", "resnet18w32", "macs", "control", false, 0.3, 0.0},
    {"train.prune-params-70", "vggsmall", "params-mixed", "mixed", false, 0.5, 0.0},
    {"train.two-of-four", "vit_tiny", "2of4", "control", false, 0.5, 6.0},
    {"train.prune-and-qat", "resnet18w32", "both", "control", false, 0.7, 0.0},
    {"train.blocks-w4a8", "mobilenetv2", "w4a8-blocks", "w4a8", true, 0.0, 0.5},
    {"train.blocks-power-of-two", "mobilenetv2", "power-blocks", "power", true, 0.0, 0.5},
    {"train.scratch-residual", "residual", "scratch", NULL, false, 0.0, 0.0},
    {"train.scratch-separable", "separable", "scratch", NULL, false, 0.0, 0.0},
};

typedef struct accept_result {
    double top1, before; /* in percent */
} accept_result;

static struct {
    bool is_long;
    const char *only;   /* a part of a run's name; NULL: all */
    const char *folder; /* SBIT_ACCEPT_HOME */
    long seconds;       /* 0: any time */
    long epochs, limit; /* 0: the form's */
    time_t begin;
} accept_set;

static long accept_env(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? atol(text) : 0;
}

static void accept_settings(void)
{
    const char *text = getenv("LONG"), *folder = getenv("SBIT_ACCEPT_HOME");
    accept_set.is_long = text != NULL && text[0] == '1';
    accept_set.only = getenv("SBIT_ACCEPT_RUN");
    accept_set.folder = folder != NULL ? folder : SBIT_TEST_TMP "/../accept-train";
    accept_set.seconds = accept_env("SBIT_ACCEPT_SECONDS");
    accept_set.epochs = accept_env("SBIT_ACCEPT_EPOCHS");
    accept_set.limit = accept_env("SBIT_ACCEPT_LIMIT");
    accept_set.begin = time(NULL);
    mkdir(accept_set.folder, 0777);
}

/* ---- files; others may be making the same at the same time */

static bool accept_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_size > 0;
}

static bool accept_put(const char *path, const char *text)
{
    char part[800];
    snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
    FILE *file = fopen(part, "w");
    const bool ok = file != NULL && fputs(text, file) >= 0;
    return file != NULL && fclose(file) == 0 && ok && rename(part, path) == 0;
}

/* The first 2,000 test images for the short form, all of them for the long one. */
static bool accept_test_set(char *path, size_t size)
{
    static char buffer[3073 * 100];
    char whole[512], part[800];
    if (!test_shared("data/cifar10/test-10k.bin", whole, sizeof whole)) {
        return false;
    }
    snprintf(path, size, "%s", whole);
    if (accept_set.is_long) {
        return true;
    }
    snprintf(path, size, "%s/test.bin", accept_set.folder);
    if (accept_exists(path)) {
        return true;
    }
    snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
    FILE *from = fopen(whole, "rb"), *to = fopen(part, "wb");
    bool ok = from != NULL && to != NULL;
    for (int i = 0; ok && i < 20; i++) {
        ok =
            fread(buffer, sizeof buffer, 1, from) == 1 && fwrite(buffer, sizeof buffer, 1, to) == 1;
    }
    if (from != NULL) {
        fclose(from);
    }
    return to != NULL && fclose(to) == 0 && ok && rename(part, path) == 0;
}

/* A number of the tool's JSON, such as "top1", behind the key `part`; -1: it is not there. */
static double accept_number(const char *path, const char *part, const char *key)
{
    char text[8192] = "", quoted[64];
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    snprintf(quoted, sizeof quoted, "\"%s\": ", part);
    const char *at = strstr(text, quoted);
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    at = at != NULL ? strstr(at, quoted) : NULL;
    return at != NULL ? atof(at + strlen(quoted)) : -1.0;
}

/* ---- networks from nothing */

static sbit_value_id accept_conv(sbit_builder *b, const char *name, sbit_value_id x,
                                 int64_t channels, int64_t kernel, int64_t stride, int64_t groups,
                                 const char *act)
{
    const sbit_value_id none = {0};
    sbit_conv_desc desc;
    char norm[64];
    memset(&desc, 0, sizeof desc);
    desc.channels = channels;
    desc.kernel = kernel;
    desc.stride = stride;
    desc.groups = groups;
    snprintf(norm, sizeof norm, "%s.norm", name);
    x = sbit_builder_batch_norm(b, norm, sbit_builder_conv(b, name, x, &desc));
    return act != NULL ? sbit_builder_op(b, act, x, none) : x;
}

/* "residual": 3 stages of one block each; "separable": the quickstart's kind, depthwise and 1x1. */
static bool accept_network(const char *net, int seed, const char *path)
{
    const int64_t dims[3] = {3, 32, 32};
    const sbit_value_id none = {0};
    const bool residual = strcmp(net, "residual") == 0;
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_error error;
    char name[32], part[800];
    memset(&error, 0, sizeof error);
    snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
    if (sbit_ctx_create(NULL, &ctx, &error) != SBIT_OK ||
        sbit_graph_create(ctx, 17, &graph, &error) != SBIT_OK) {
        sbit_ctx_destroy(ctx);
        return false;
    }
    sbit_builder b = sbit_builder_init(graph, (uint64_t)seed, &error);
    sbit_value_id x = sbit_builder_input(&b, "input", 3, dims);
    x = accept_conv(&b, "stem", x, 16, 3, 1, 1, "Relu");
    for (int stage = 0; stage < 3; stage++) {
        const int64_t width = 16 << stage, stride = residual && stage == 0 ? 1 : 2;
        sbit_value_id y = x, side = x;
        snprintf(name, sizeof name, "s%d.a", stage);
        y = residual ? accept_conv(&b, name, y, width, 3, stride, 1, "Relu")
                     : accept_conv(&b, name, y, width, 3, stride, width, "Relu");
        snprintf(name, sizeof name, "s%d.b", stage);
        y = residual ? accept_conv(&b, name, y, width, 3, 1, 1, NULL)
                     : accept_conv(&b, name, y, 2 * width, 1, 1, 1, "Relu");
        snprintf(name, sizeof name, "s%d.side", stage);
        side = residual && stage > 0 ? accept_conv(&b, name, x, width, 1, stride, 1, NULL) : x;
        x = residual ? sbit_builder_op(&b, "Relu", sbit_builder_op(&b, "Add", y, side), none) : y;
    }
    x = sbit_builder_op(&b, "Flatten", sbit_builder_pool(&b, "GlobalAveragePool", x, 0), none);
    const bool ok =
        sbit_builder_output(&b, "logits", sbit_builder_linear(&b, "fc", x, 10)) == SBIT_OK &&
        sbit_graph_save(graph, part, NULL, &error) == SBIT_OK && rename(part, path) == 0;
    if (!ok) {
        printf("%s: %s\n", net, error.message);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return ok;
}

static bool accept_model(const accept_run *run, int seed, char *path, size_t size)
{
    char relative[64];
    if (strcmp(run->name, "scratch") == 0) {
        snprintf(path, size, "%s/%s-%d.untrained.onnx", accept_set.folder, run->net, seed);
        return accept_exists(path) || accept_network(run->net, seed, path);
    }
    snprintf(relative, sizeof relative, "models/cifar10/%s.onnx", run->net);
    return test_shared(relative, path, size);
}

/* ---- running */

static void accept_name(const char *net, const char *name, int seed, char *text, size_t size)
{
    const int at = snprintf(text, size, "%s-%s-%d%s", net, name, seed,
                            accept_set.is_long ? "-long" : "");
    if (accept_set.epochs > 0 || accept_set.limit > 0) {
        snprintf(text + at, size - (size_t)at, "-%ldx%ld", accept_set.epochs, accept_set.limit);
    }
}

/* Writes -c or -s beside the result and adds the flag. */
static bool accept_config(const char *flag, const char *out, const char *text, char *flags,
                          size_t size)
{
    char path[760];
    const size_t at = strlen(flags);
    if (text == NULL) {
        return true;
    }
    snprintf(path, sizeof path, "%s.%s.yaml", out, flag);
    snprintf(flags + at, size - at, " -%s '%s'", flag, path);
    return accept_put(path, text);
}

/* The tool's command line, up to where its output goes. */
static bool accept_command(const accept_run *run, int seed, const char *out, char *text,
                           size_t size)
{
    char model[512], folder[512], data[512], test[600], flags[3000], more[400] = "";
    const long epochs = accept_set.epochs > 0 ? accept_set.epochs
                                              : accept_set.is_long ? run->epochs : 2;
    const long limit = accept_set.limit > 0 ? accept_set.limit : accept_set.is_long ? 0 : 2500;
    const long threads = accept_env("SBIT_ACCEPT_THREADS");
    if (!accept_model(run, seed, model, sizeof model) ||
        !test_shared("data/cifar10/train-20k.bin", data, sizeof data) ||
        !accept_test_set(test, sizeof test)) {
        return false;
    }
    snprintf(folder, sizeof folder, "%s", model);
    *strrchr(folder, '/') = '\0';
    snprintf(flags, sizeof flags, run->flags, model, folder);
    if (!accept_config("c", out, run->quantize, flags, sizeof flags) ||
        !accept_config("s", out, run->prune, flags, sizeof flags)) {
        return false;
    }
    if (threads > 0) {
        snprintf(more, sizeof more, " --threads %ld", threads);
    }
    if (limit > 0 && run->epochs > 0) {
        snprintf(more + strlen(more), sizeof more - strlen(more), " --limit %ld", limit);
    }
    if (run->epochs == 0) {
        snprintf(text, size,
                 "'%s' quantize '%s' --data 'cifar10:%s' --eval 'cifar10:%s' --calib 512 "
                 ACCEPT_PICTURES " %s%s --json -o '%s'",
                 test_tool(), model, data, test, flags, more, out);
        return true;
    }
    snprintf(text, size,
             "'%s' train '%s' --data 'cifar10:%s' --val 'cifar10:%s' --epochs %ld --batch 64 "
             "--seed %d --flip --shift 4 " ACCEPT_PICTURES " --calib 256 %s%s --json -o '%s' "
             "--log '%s.csv'",
             test_tool(), model, data, test, epochs, seed, flags, more, out, out);
    snprintf(more, sizeof more, "%.380s.checkpoint", out);
    if (accept_exists(more)) {
        snprintf(text + strlen(text), size - strlen(text), " --resume '%s'", more);
    }
    return true;
}

/* Top-1 in percent of what a run left in `json`; false: it is not there. */
static bool accept_read(const char *json, accept_result *out)
{
    const bool trained = accept_number(json, "epochs", "epochs") >= 0.0;
    out->top1 = 100.0 * accept_number(json, trained ? "epochs" : "after", "top1");
    out->before = 100.0 * accept_number(json, "before", trained ? "before" : "top1");
    return out->top1 > 0.0;
}

/* One line of the table, in one write. */
static void accept_note(const char *name, const char *json, const accept_result *r)
{
    char path[700], line[300];
    snprintf(path, sizeof path, "%s/table.txt", accept_set.folder);
    FILE *file = fopen(path, "a");
    snprintf(line, sizeof line,
             "%-32s top1 %6.2f  before %6.2f  best epoch %2.0f  loss %.4f  last run %.0f s\n", name,
             r->top1, r->before, accept_number(json, "epochs", "best_epoch"),
             accept_number(json, "epochs", "loss"), accept_number(json, "model", "seconds"));
    fputs(line, stdout);
    if (file != NULL) {
        fputs(line, file);
        fclose(file);
    }
}

/* Runs it if it is wanted and not done; false: its result is not there. */
static bool accept_result_of(const accept_run *run, int seed, accept_result *out)
{
    char name[128], path[512], json[600], text[9000], command[11000];
    accept_name(run->net, run->name, seed, name, sizeof name);
    snprintf(path, sizeof path, "%.300s/%s.onnx", accept_set.folder, name);
    snprintf(json, sizeof json, "%s.json", path);
    if (accept_read(json, out)) {
        return true;
    }
    if (accept_set.only != NULL && strstr(name, accept_set.only) == NULL) {
        return false;
    }
    const long left =
        accept_set.seconds > 0 ? accept_set.seconds - (long)(time(NULL) - accept_set.begin) : 0;
    if ((accept_set.seconds > 0 && left < 1) ||
        !CHECK(accept_command(run, seed, path, text, sizeof text))) {
        return false;
    }
    snprintf(command, sizeof command, "%s%.0ld %s >'%s.part' && mv '%s.part' '%s'",
             left > 0 ? "timeout -s INT " : "", left, text, json, json, json);
    const int status = system(command);
    if (left > 0 && WEXITSTATUS(status) == 124) {
        printf("%s: not finished, run it again\n", name);
        return false;
    }
    if (CHECK_EQ_I64(status, 0) && CHECK(accept_read(json, out))) {
        accept_note(name, json, out);
        return true;
    }
    return false;
}

static const accept_run *accept_find(const char *net, const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof accept_runs / sizeof accept_runs[0]; i++) {
        if (strcmp(accept_runs[i].net, net) == 0 && strcmp(accept_runs[i].name, name) == 0) {
            return &accept_runs[i];
        }
    }
    return NULL;
}

static void accept_judge(const accept_point *p)
{
    const accept_run *run = accept_find(p->net, p->name);
    const accept_run *against = accept_find(p->net, p->against);
    const int seeds = accept_set.is_long && run->epochs > 0 ? p->against == NULL ? 3 : 2 : 1;
    double worst = 0.0, limit = p->limit;
    for (int seed = 1; seed <= seeds; seed++) {
        accept_result own, other = {0.0, 0.0};
        const bool have = against == NULL || accept_result_of(against, seed, &other);
        if (!accept_result_of(run, seed, &own) || !have) {
            return;
        }
        const double best = against == NULL ? 100.0
                            : p->half       ? (other.top1 + other.before) / 2.0
                                            : fmax(other.top1, other.before);
        const double lost = best - own.top1;
        worst = seed == 1 || lost > worst ? lost : worst;
        printf("%s %s seed %d: this %.2f, %.2f before, %s %.2f\n", p->point, p->net, seed,
               own.top1, own.before, against != NULL ? against->name : "at most", best);
        if (!accept_set.is_long || against == NULL) {
            limit = p->seen > 0.0 ? p->seen : best - own.before;
        }
    }
    test_accept(p->point, worst, limit, worst <= limit,
                p->half              ? "points below half way to the float model"
                : against != NULL ? "points below the control"
                                  : "points below 100");
}

TEST(training_reaches_its_numbers)
{
    char data[512];
    if (!test_shared("data/cifar10/train-20k.bin", data, sizeof data)) {
        SBIT_TEST_SKIP("the shared networks and images are missing");
    }
    accept_settings();
    for (size_t i = 0; i < sizeof accept_points / sizeof accept_points[0]; i++) {
        accept_judge(&accept_points[i]);
    }
}
