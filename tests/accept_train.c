/* accept_train.c: what training reaches on the shared CIFAR-10 networks, by the tool: quantization-
 * aware training, pruning with finetuning, both with distillation, each against the float network
 * and the float network that was finetuned with the same data (the control).
 *
 * LONG=1 asks for the numbers. The short form (an eighth of the data, two epochs, one seed)
 * cannot reach them: it asks that training made of a model more than it was given, or, where the
 * masks come while training, for a limit that one run of it was seen to keep (`seen`).
 * Runs leave their result in tests/build/accept-train/: what is there is not run again, and what
 * was interrupted goes on from its checkpoint.
 *
 * The LSQ family has Sparsebit's placement, as in the papers: what layers read is quantized, not
 * what Add reads. A sum's operand has a sign; of its four integers at 2 bits one is positive.
 */
#include "../sparsebit.h"
#include "test.h"

#include <sys/stat.h> /* mkdir */

#define HOME SBIT_TEST_TMP "/../accept-train"

static bool accept_long(void)
{
    const char *text = getenv("LONG");
    return text != NULL && text[0] == '1';
}

static bool accept_put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    const bool ok = file != NULL && fputs(text, file) >= 0;
    return file != NULL && fclose(file) == 0 && ok;
}

static bool accept_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_size > 0;
}

/* The first 2,000 test images for the short form, all of them for the long one. */
static bool accept_test_set(char *path, size_t size)
{
    static char buffer[3073 * 100];
    char whole[512];
    if (!test_shared("data/cifar10/test-10k.bin", whole, sizeof whole)) {
        return false;
    }
    snprintf(path, size, "%s", whole);
    if (accept_long()) {
        return true;
    }
    snprintf(path, size, "%s/test.bin", HOME);
    FILE *from = fopen(whole, "rb"), *to = fopen(path, "wb");
    bool ok = from != NULL && to != NULL;
    for (int i = 0; ok && i < 20; i++) {
        ok =
            fread(buffer, sizeof buffer, 1, from) == 1 && fwrite(buffer, sizeof buffer, 1, to) == 1;
    }
    if (from != NULL) {
        fclose(from);
    }
    return to != NULL && fclose(to) == 0 && ok;
}

/* A number of the tool's JSON, such as "top1"; -1: it is not there. */
static double accept_number(const char *path, const char *key)
{
    char text[4096] = "", quoted[64];
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(text, quoted);
    return at != NULL ? atof(at + strlen(quoted)) : -1.0;
}

/* Trains `net` with more arguments: the best top-1 and the original's, in percent; false: failed.
 */
static bool accept_train(const char *name, const char *net, int epochs, int seed, const char *more,
                         double *top1, double *before)
{
    char model[512], data[512], test[600], result[720], out[700], resume[800] = "", command[9000];
    char relative[64];
    snprintf(relative, sizeof relative, "models/cifar10/%s.onnx", net);
    if (!test_shared(relative, model, sizeof model) ||
        !test_shared("data/cifar10/train-20k.bin", data, sizeof data) ||
        !accept_test_set(test, sizeof test)) {
        return false;
    }
    snprintf(out, sizeof out, "%s/%s-%s-%d%s.onnx", HOME, net, name, seed,
             accept_long() ? "-long" : "");
    snprintf(result, sizeof result, "%s.json", out);
    snprintf(resume, sizeof resume, "%s.checkpoint", out);
    const bool goes_on = !accept_exists(result) && accept_exists(resume);
    if (!accept_exists(result)) {
        snprintf(command, sizeof command,
                 "'%s' train '%s' --data 'cifar10:%s' --val 'cifar10:%s' --epochs %d --batch 64 "
                 "--seed %d --flip --shift 4 --mean 0.4914,0.4822,0.4465 --std "
                 "0.247,0.2435,0.2616 %s %s --json -o '%s' %s%s%s >'%s.part' && mv '%s.part' '%s'",
                 test_tool(), model, data, test, epochs, seed, more,
                 accept_long() ? "" : "--limit 2500", out, goes_on ? "--resume '" : "",
                 goes_on ? resume : "", goes_on ? "'" : "", result, result, result);
        if (!CHECK_EQ_I64(system(command), 0)) {
            return false;
        }
    }
    *top1 = 100.0 * accept_number(result, "top1");
    *before = 100.0 * accept_number(result, "before");
    return CHECK(*top1 > 0.0);
}

typedef struct accept_case {
    const char *point, *net, *name;
    int epochs;         /* of the long form */
    double limit;       /* points below the control */
    double seen;        /* the same in the short form; 0: fewer than before training */
    const char *recipe; /* of the control, too */
    const char *more;   /* arguments; %s: the folder of configurations, up to twice */
} accept_case;

#define ACCEPT_SGD "--lr 0.01 --decay 0.0001"

static const accept_case accept_cases[] = {
    {"train.qat-lsq", "resnet20", "lsq", 15, 1.0, 0.0, ACCEPT_SGD, "-c %1$s/lsq.yaml"},
    {"train.qat-lsq+", "resnet20", "lsqplus", 15, 2.0, 0.0, ACCEPT_SGD, "-c %1$s/lsqplus.yaml"},
    {"train.qat-pact", "resnet20", "pact", 15, 2.0, 0.0, ACCEPT_SGD, "-c %1$s/pact.yaml"},
    {"train.qat-dorefa", "resnet20", "dorefa", 15, 2.0, 0.0, ACCEPT_SGD, "-c %1$s/dorefa.yaml"},
    {"train.qat-mobilenetv2", "mobilenetv2", "lsq", 8, 2.5, 0.0, ACCEPT_SGD, "-c %1$s/lsq.yaml"},
    {"train.agp-90", "resnet20", "agp", 15, 1.5, 30.0, ACCEPT_SGD, "-s %1$s/agp.yaml"},
    {"train.prune-macs-50", "resnet18w32", "macs", 10, 0.3, 0.0, ACCEPT_SGD,
     "-s %1$s/l1.yaml --macs 0.5x"},
    {"train.prune-params-70", "vggsmall", "params", 10, 0.5, 0.0, ACCEPT_SGD,
     "-s %1$s/l1-45.yaml"},
    {"train.two-of-four", "vit_tiny", "2of4", 5, 0.5, 6.0,
     "--optimizer adamw --lr 0.0003 --decay 0.05", "-s %1$s/2of4.yaml"},
    {"train.prune-and-qat", "resnet18w32", "both", 10, 0.7, 0.0, ACCEPT_SGD,
     "-s %1$s/l1.yaml --macs 0.5x -c %1$s/int8.yaml --teacher %2$s"},
};

static bool accept_configs(void)
{
    static const char *const files[][3] = {{"lsq.yaml", "lsq", "lsq"},
                                           {"lsqplus.yaml", "lsq+", "lsq+"},
                                           {"pact.yaml", "lsq", "pact"},
                                           {"dorefa.yaml", "dorefa", "lsq"}};
    static const char first_last[] =
        "SPECIFIC: [{\"stem.0\": [QUANTIZER.BIT, 8], \"fc\": [QUANTIZER.BIT, 8], \"f.0.0\": "
        "[QUANTIZER.BIT, 8], \"cls*\": [QUANTIZER.BIT, 8]}]";
    char path[700], text[2000];
    bool ok = true;
    mkdir(HOME, 0777);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", HOME, files[i][0]);
        snprintf(text, sizeof text,
                 "PLACEMENT: sparsebit\nW:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER: {TYPE: "
                 "%s, BIT: 4}\n  %s\nA:\n  QSCHEME: per-tensor-affine\n  OBSERVER: {TYPE: mse}\n"
                 "  QUANTIZER: {TYPE: %s, BIT: 4}\n  %s\n",
                 files[i][1], first_last, files[i][2], first_last);
        ok = accept_put(path, text) && ok;
    }
    static const char *const others[][2] = {
        {HOME "/agp.yaml",
         "SPARSER: {TYPE: unstructured, STRATEGY: l1norm, RATIO: 0.9, SCHEDULE: agp}\n"},
        {HOME "/l1.yaml", "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n"},
        {HOME "/l1-45.yaml", "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.46}\n"},
        {HOME "/2of4.yaml", "SPARSER: {TYPE: unstructured, STRATEGY: l1norm, N_OF_M: \"2:4\"}\n"},
        {HOME "/int8.yaml",
         "PLACEMENT: generic\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: "
         "8}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 8}}\n"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ok = accept_put(others[i][0], others[i][1]) && ok;
    }
    return ok;
}

TEST(training_reaches_its_numbers)
{
    const int seeds = accept_long() ? 2 : 1;
    const char *only = getenv("SBIT_ACCEPT_ONLY"); /* a part of a point's name */
    char data[512];
    if (!test_shared("data/cifar10/train-20k.bin", data, sizeof data)) {
        SBIT_TEST_SKIP("the shared networks and images are missing");
    }
    CHECK(accept_configs());
    for (size_t i = 0; i < sizeof accept_cases / sizeof accept_cases[0]; i++) {
        const accept_case *c = &accept_cases[i];
        const int epochs = accept_long() ? c->epochs : 2;
        char format[500], more[2000], relative[64], model[512];
        double worst = 0.0, limit = 0.0;
        bool ok = true;
        if (only != NULL && strstr(c->point, only) == NULL) {
            continue;
        }
        snprintf(relative, sizeof relative, "models/cifar10/%s.onnx", c->net);
        ok = test_shared(relative, model, sizeof model);
        snprintf(format, sizeof format, "%s --calib 256 %s", c->recipe, c->more);
        snprintf(more, sizeof more, format, HOME, model);
        for (int seed = 1; ok && seed <= seeds; seed++) {
            double control = 0, top1 = 0, original = 0, before = 0;
            ok = accept_train("control", c->net, epochs, seed, c->recipe, &control, &original) &&
                 accept_train(c->name, c->net, epochs, seed, more, &top1, &before);
            const double best = control > original ? control : original, lost = best - top1;
            printf("%s %s seed %d: original %.2f control %.2f this %.2f, %.2f before training\n",
                   c->point, c->net, seed, original, control, top1, before);
            worst = seed == 1 || lost > worst ? lost : worst;
            limit = accept_long() ? c->limit : c->seen > 0.0 ? c->seen : best - before;
        }
        test_accept(c->point, worst, limit, ok && worst <= limit, "points below the control");
    }
}
