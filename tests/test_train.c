/* test_train.c: whole networks against PyTorch's float64 gradients (../shared/golden, group H,
 * whose conventions are in H.md), optimizer steps, and training itself. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"
#include "golden.h"

enum {
    IMAGE = 3 * 32 * 32,
    DIGEST = 27
};

static sbit_ctx *train_ctx(void)
{
    sbit_ctx_desc desc;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    desc.threads = test_threads();
    CHECK(sbit_ctx_create(&desc, &ctx, &error) == SBIT_OK);
    return ctx;
}

/* ---- CIFAR-10: records first..first+count-1 of train-20k.bin, normalized as H.md says */

typedef struct cifar {
    int64_t count;
    float *images;
    int64_t *labels;
    sbit_tensor x, y;
    sbit_batch batch;
} cifar;

static bool cifar_load(cifar *c, const char *file, int64_t first, int64_t count)
{
    static const double mean[3] = {.4914, .4822, .4465}, std[3] = {.2470, .2435, .2616};
    char path[512], name[128];
    unsigned char record[IMAGE + 1];
    memset(c, 0, sizeof *c);
    snprintf(name, sizeof name, "data/cifar10/%s", file);
    FILE *f = test_shared(name, path, sizeof path) ? fopen(path, "rb") : NULL;
    if (f == NULL) {
        return false;
    }
    c->count = count;
    c->images = (float *)malloc((size_t)(count * IMAGE) * sizeof(float));
    c->labels = (int64_t *)malloc((size_t)count * sizeof(int64_t));
    fseek(f, (long)(first * (IMAGE + 1)), SEEK_SET);
    for (int64_t n = 0; n < count; n++) {
        if (fread(record, 1, sizeof record, f) != sizeof record) {
            c->count = n;
            break;
        }
        c->labels[n] = record[0];
        for (int i = 0; i < IMAGE; i++) {
            c->images[n * IMAGE + i] =
                (float)(((double)record[1 + i] / 255.0 - mean[i / 1024]) / std[i / 1024]);
        }
    }
    fclose(f);
    c->x.dtype = SBIT_F32;
    c->x.rank = 4;
    c->x.dims[0] = c->y.dims[0] = c->count;
    c->x.dims[1] = 3;
    c->x.dims[2] = c->x.dims[3] = 32;
    c->x.data = c->images;
    c->y.dtype = SBIT_I64;
    c->y.rank = 1;
    c->y.data = c->labels;
    c->batch.samples = c->count;
    c->batch.input_count = c->batch.target_count = 1;
    c->batch.inputs = &c->x;
    c->batch.targets = &c->y;
    return true;
}

static void cifar_free(cifar *c)
{
    free(c->images);
    free(c->labels);
}

/* ---- golden H */

typedef struct golden_h {
    sbit_ctx *ctx;
    golden g;
    sbit_yaml_doc *doc; /* of one network */
    const sbit_yaml *net;
    const char *name;
} golden_h;

/* The part of the index that describes one network. */
static bool golden_h_open(golden_h *h, const char *network)
{
    char key[64];
    sbit_error error;
    memset(h, 0, sizeof *h);
    h->name = network;
    h->ctx = train_ctx();
    if (!golden_open(&h->g, h->ctx, "H_gradients")) {
        return false;
    }
    snprintf(key, sizeof key, "\n  \"%s\": {", network);
    char *begin = strstr((char *)h->g.index.data, key);
    if (!CHECK(begin != NULL)) {
        return false;
    }
    begin = strchr(begin, '{');
    size_t depth = 0, size = 0;
    do {
        depth += begin[size] == '{' ? 1 : 0;
        depth -= begin[size] == '}' ? 1 : 0;
        size++;
    } while (depth > 0);
    if (sbit_yaml_parse(h->ctx, begin, size, &h->doc, &error) != SBIT_OK) {
        return CHECK_MSG(false, "%s: %s", network, error.message);
    }
    h->net = sbit_yaml_root(h->doc);
    return true;
}

static void golden_h_close(golden_h *h)
{
    sbit_yaml_destroy(h->doc);
    golden_close(&h->g);
    sbit_ctx_destroy(h->ctx);
}

static const double *golden_f64(golden_h *h, const char *name, golden_array_view *view)
{
    char full[160];
    snprintf(full, sizeof full, "%s/%s", h->name, name);
    return CHECK_MSG(golden_array(&h->g, full, view), "golden has no %s", full)
               ? (const double *)(const void *)view->u8
               : NULL;
}

/* Projections on sines: turned from element to element, worked out anew every 256 (drift < 1e-13). */
static void digest_of(const float *g, int64_t count, double out[DIGEST])
{
    double s[8] = {0}, c[8] = {0}, turn[8][2];
    memset(out, 0, DIGEST * sizeof out[0]);
    for (int k = 0; k < 8; k++) {
        turn[k][0] = sin(0.37 * (k + 1));
        turn[k][1] = cos(0.37 * (k + 1));
    }
    for (int64_t i = 0; i < count; i++) {
        const double v = (double)g[i];
        out[0] += v * v;
        out[1] += v;
        out[2] = fabs(v) > out[2] ? fabs(v) : out[2];
        if (i < 16) {
            out[3 + i] = v;
        }
        for (int k = 0; k < 8; k++) {
            const double at = 0.37 * (k + 1) * (double)i + 0.11 * k;
            const double turned = s[k] * turn[k][1] + c[k] * turn[k][0];
            c[k] = i % 256 == 0 ? cos(at) : c[k] * turn[k][1] - s[k] * turn[k][0];
            s[k] = i % 256 == 0 ? sin(at) : turned;
            out[19 + k] += v * s[k];
        }
    }
    out[0] = sqrt(out[0]);
}

/* ||g - g'|| <= bound * ||g'|| + 1e-6 * max ||g'||, read off a digest: sum and projections are sums
 * of many elements, which H.md allows ten times as much. */
static void digest_check(const char *what, const char *name, const double *got, const double *want,
                         double bound, double largest)
{
    const double allowed = bound * want[0] + 1e-6 * largest;
    for (int i = 0; i < DIGEST; i++) {
        const double factor = i == 1 || i >= 19 ? 10.0 : 1.0;
        if (!(fabs(got[i] - want[i]) <= factor * allowed)) {
            CHECK_MSG(false, "%s: %s: column %d is %.8g, golden has %.8g (norm %.6g, allowed %.2g)",
                      what, name, i, got[i], want[i], want[0], factor * allowed);
            return;
        }
    }
}

static bool train_load(golden_h *h, sbit_graph **graph)
{
    char path[512], name[128];
    sbit_error error;
    snprintf(name, sizeof name, "models/cifar10/%s.onnx", h->name);
    return CHECK(test_shared(name, path, sizeof path)) &&
           CHECK_MSG(sbit_graph_load(h->ctx, path, graph, &error) == SBIT_OK, "%s: %s", name,
                     error.message);
}

static void gradients_check(golden_h *h, bool training, bool small)
{
    char what[64], array[64];
    cifar c;
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_graph *graph = NULL;
    sbit_trainer *t = NULL;
    sbit_error error;
    const sbit_yaml *names = golden_get(h->net, "parameters");
    const sbit_yaml *b4 = golden_get(h->net, "b4");
    const sbit_yaml *records = golden_get(b4, "records");
    const double want_loss =
        small ? golden_value(b4, training ? "train_loss" : "eval_loss")
              : golden_value(golden_get(h->net, training ? "train" : "eval"), "loss");
    memset(&desc, 0, sizeof desc);
    desc.fixed_statistics = !training;
    snprintf(what, sizeof what, "%s %s %s", h->name, training ? "train" : "eval",
             small ? "b4" : "64");
    snprintf(array, sizeof array, "%sdigest_%s", small ? "b4_" : "", training ? "train" : "eval");
    golden_array_view view;
    const double *digests = golden_f64(h, array, &view);
    if (digests == NULL || !train_load(h, &graph)) {
        return;
    }
    const bool ok = CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s: %s",
                              what, error.message) &&
                    CHECK(cifar_load(&c, "train-20k.bin", small ? atoi(records->items[0].text) : 0,
                                     small ? 4 : 64)) &&
                    CHECK_MSG(sbit_trainer_backward(t, &c.batch, &report, &error) == SBIT_OK,
                              "%s: %s", what, error.message);
    double largest = 0.0;
    for (size_t i = 0; i < names->count; i++) {
        largest = digests[i * DIGEST] > largest ? digests[i * DIGEST] : largest;
    }
    if (ok) {
        CHECK_NEAR(report.loss, want_loss, 2e-6);
    }
    for (size_t i = 0; ok && i < names->count; i++) {
        const char *name = golden_text(&names->items[i], "name");
        double got[DIGEST] = {0};
        bool found = false;
        for (size_t p = 0; p < sbit_trainer_parameter_count(t) && !found; p++) {
            const sbit_train_parameter parameter = sbit_trainer_parameter(t, p);
            if (strcmp(parameter.name, name) == 0) {
                digest_of(parameter.gradient, sbit_tensor_count(&parameter.data), got);
                found = true;
            }
        }
        CHECK_MSG(found, "%s: %s is not trained", what, name);
        digest_check(what, name, got, digests + i * DIGEST, small ? 1e-4 : 1e-2, largest);
    }
    if (ok) {
        cifar_free(&c);
    }
    sbit_trainer_destroy(t);
    sbit_graph_destroy(graph);
}

static void network_check(const char *network)
{
    golden_h h;
    const bool quick = getenv("SBIT_TEST_QUICK") != NULL;
    if (!golden_h_open(&h, network)) {
        golden_h_close(&h);
        SBIT_TEST_SKIP("no golden data");
    }
    const bool has_bn = strcmp(golden_text(h.net, "has_bn"), "true") == 0;
    for (int mode = 0; mode < (quick ? 2 : 4); mode++) {
        if (mode % 2 == 0 || has_bn) { /* else training is inference */
            gradients_check(&h, mode % 2 == 1, mode < 2);
        }
    }
    golden_h_close(&h);
}

/* desc.checkpoint: the same bits, in half of the memory; and what a trainer takes of the heap. */
static void checkpoint_check(const char *network, int64_t every, int samples)
{
    test_heap heap = {0};
    golden_h h;
    cifar c;
    sbit_graph *graph = NULL;
    sbit_error error;
    sbit_train_memory memory[2];
    float *all = NULL;
    if (!golden_h_open(&h, network)) {
        golden_h_close(&h);
        SBIT_TEST_SKIP("no golden data");
    }
    sbit_ctx_desc ctx_desc;
    sbit_ctx *ctx = NULL, *plain = h.ctx;
    memset(&ctx_desc, 0, sizeof ctx_desc);
    ctx_desc.allocator = test_heap_allocator(&heap);
    ctx_desc.threads = 2;
    CHECK(sbit_ctx_create(&ctx_desc, &ctx, &error) == SBIT_OK);
    h.ctx = ctx;
    sbit_simplify_desc simplify;
    memset(&simplify, 0, sizeof simplify);
    simplify.keep_batch_norm = true;
    bool ok = train_load(&h, &graph) && CHECK(cifar_load(&c, "train-20k.bin", 0, samples));
    ok = ok && CHECK(sbit_simplify(graph, &simplify, NULL, &error) == SBIT_OK);
    const int64_t loaded = heap.live_bytes;
    for (int i = 0; ok && i < 2; i++) {
        sbit_train_desc desc;
        sbit_train_report report;
        sbit_trainer *t = NULL;
        memset(&desc, 0, sizeof desc);
        desc.learning_rate = 0.01f;
        desc.optimizer_options = "MOMENTUM: 0.9";
        desc.checkpoint = i == 0 ? 0 : every;
        CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message);
        heap.peak_bytes = heap.live_bytes;
        ok = CHECK_MSG(sbit_trainer_step(t, &c.batch, &report, &error) == SBIT_OK, "%s",
                       error.message);
        memory[i] = sbit_trainer_memory(t);
        const sbit_train_memory *m = &memory[i];
        const double bound = 2.0 * (double)m->parameter_bytes + (double)m->optimizer_bytes +
                             1.15 * (double)m->live_bytes;
        CHECK_EQ_I64(m->optimizer_bytes, m->parameter_bytes);
        CHECK(m->live_bytes > m->parameter_bytes && m->planned_bytes >= m->live_bytes);
        CHECK_MSG((double)(heap.peak_bytes - loaded) <= bound, "%s: %.2f MB, at most %.2f",
                  network, (double)(heap.peak_bytes - loaded) / 1e6, bound / 1e6);
        all = all != NULL ? all : (float *)calloc(1, m->parameter_bytes);
        for (size_t p = 0, at = 0; ok && p < sbit_trainer_parameter_count(t); p++) {
            const sbit_train_parameter parameter = sbit_trainer_parameter(t, p);
            const size_t bytes = sbit_tensor_bytes(&parameter.data);
            if (i == 0) {
                memcpy((char *)all + at, parameter.data.data, bytes);
            }
            CHECK_MSG(memcmp((char *)all + at, parameter.data.data, bytes) == 0, "%s: %s differs",
                      network, parameter.name);
            at += bytes;
        }
        sbit_trainer_destroy(t);
    }
    if (ok) {
        const double whole = (double)(memory[0].live_bytes - memory[0].parameter_bytes);
        const double part = (double)(memory[1].live_bytes - memory[1].parameter_bytes);
        CHECK_MSG(part <= 0.5 * whole, "%s: %.2f MB of values with checkpoints, %.2f without",
                  network, part / 1e6, whole / 1e6);
        cifar_free(&c);
    }
    free(all);
    sbit_graph_destroy(graph);
    h.ctx = plain;
    golden_h_close(&h);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

TEST(values_are_computed_again_in_half_of_the_memory)
{
    checkpoint_check("resnet20", 9, 32);
    checkpoint_check("vit_tiny", 20, 4);
    checkpoint_check("rowlstm", 4, 16);
}

/* A step of whole networks with one thread and with two: the same bits. */
TEST(networks_train_the_same_with_any_threads)
{
    static const char *const networks[] = {"rowlstm", "mobilenetv2", "resnet20", "vit_tiny"};
    const size_t count = getenv("SBIT_TEST_QUICK") != NULL ? 2 : 4;
    for (size_t n = 0; n < count; n++) {
        double sums[2] = {0.0};
        for (int run = 0; run < 2; run++) {
            sbit_ctx_desc ctx_desc;
            sbit_train_desc desc;
            sbit_trainer *t = NULL;
            sbit_graph *graph = NULL;
            sbit_error error;
            golden_h h;
            cifar c;
            memset(&ctx_desc, 0, sizeof ctx_desc);
            memset(&desc, 0, sizeof desc);
            memset(&h, 0, sizeof h);
            h.name = networks[n];
            ctx_desc.threads = 1 + run;
            desc.learning_rate = 0.01f;
            CHECK(sbit_ctx_create(&ctx_desc, &h.ctx, &error) == SBIT_OK);
            if (!cifar_load(&c, "train-20k.bin", 0, 2)) {
                sbit_ctx_destroy(h.ctx);
                SBIT_TEST_SKIP("no CIFAR-10");
            }
            if (train_load(&h, &graph) &&
                CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK &&
                              sbit_trainer_step(t, &c.batch, NULL, &error) == SBIT_OK,
                          "%s", error.message)) {
                for (size_t p = 0; p < sbit_trainer_parameter_count(t); p++) {
                    const sbit_tensor w = sbit_trainer_parameter(t, p).data;
                    for (int64_t i = 0; i < sbit_tensor_count(&w); i++) { /* one order: exact */
                        sums[run] += (double)((const float *)w.data)[i] * (double)(i % 97 + 1);
                    }
                }
            }
            sbit_trainer_destroy(t);
            sbit_graph_destroy(graph);
            cifar_free(&c);
            sbit_ctx_destroy(h.ctx);
        }
        CHECK_MSG(sums[0] != 0.0 && sums[0] == sums[1], "%s: %.17g, %.17g", networks[n], sums[0],
                  sums[1]);
    }
}

TEST(gradients_resnet20)
{
    network_check("resnet20");
}
TEST(gradients_mobilenetv2)
{
    network_check("mobilenetv2");
}
TEST(gradients_mobilenetv3s)
{
    network_check("mobilenetv3s");
}
TEST(gradients_resnet18w32)
{
    network_check("resnet18w32");
}
TEST(gradients_vggsmall)
{
    network_check("vggsmall");
}
TEST(gradients_shufflenetv2)
{
    network_check("shufflenetv2");
}
TEST(gradients_vit_tiny)
{
    network_check("vit_tiny");
}
TEST(gradients_rowlstm)
{
    network_check("rowlstm");
}

/* ---- optimizers: three steps on batches 0, 1, 2, then the loss of batch 3 */

static double eval_loss(golden_h *h, sbit_graph *graph, const sbit_batch *batch)
{
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_trainer *t = NULL;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&report, 0, sizeof report);
    desc.fixed_statistics = true;
    CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK &&
                  sbit_trainer_backward(t, batch, &report, &error) == SBIT_OK,
              "%s: %s", h->name, error.message);
    sbit_trainer_destroy(t);
    return report.loss;
}

static void optimizer_check(golden_h *h, const char *name, double bound)
{
    const sbit_yaml *want = golden_get(golden_get(h->net, "optimizers"), name);
    const sbit_yaml *losses = golden_get(want, "losses");
    sbit_graph *graph = NULL;
    sbit_trainer *t = NULL;
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_error error;
    cifar c;
    memset(&desc, 0, sizeof desc);
    desc.optimizer = name;
    desc.learning_rate = strcmp(name, "sgd") == 0 ? 0.05f : 1e-3f;
    desc.optimizer_options = strcmp(name, "sgd") == 0 ? "MOMENTUM: 0.9" : NULL;
    desc.weight_decay = strcmp(name, "sgd") == 0 ? 5e-4f : strcmp(name, "adamw") == 0 ? 0.05f : 0;
    if (!train_load(h, &graph) ||
        !CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s: %s", h->name,
                   error.message)) {
        sbit_graph_destroy(graph);
        return;
    }
    for (int step = 0; step < 4; step++) {
        CHECK(cifar_load(&c, "train-20k.bin", 64 * step, 64));
        const sbit_status status = step < 3 ? sbit_trainer_step(t, &c.batch, &report, &error)
                                            : sbit_trainer_backward(t, &c.batch, &report, &error);
        CHECK_MSG(status == SBIT_OK, "%s %s: %s", h->name, name, error.message);
        const double loss =
            step < 3 ? atof(losses->items[step].text) : golden_value(want, "loss_4");
        CHECK_NEAR(report.loss, loss, bound);
        CHECK_EQ_I64(report.step, step < 3 ? step + 1 : 3);
        cifar_free(&c);
        if (step == 2) { /* with the running statistics of three batches */
            CHECK(cifar_load(&c, "train-20k.bin", 0, 64));
            CHECK_MSG(sbit_trainer_store(t, graph, &error) == SBIT_OK, "%s", error.message);
            CHECK_NEAR(eval_loss(h, graph, &c.batch), golden_value(want, "eval_loss_after_3"),
                       bound);
            cifar_free(&c);
        }
    }
    sbit_trainer_destroy(t);
    sbit_graph_destroy(graph);
}

TEST(optimizers_against_pytorch)
{
    static const char *const networks[] = {"resnet20", "mobilenetv2", "vit_tiny"};
    const int count = getenv("SBIT_TEST_QUICK") != NULL ? 1 : 3;
    for (int i = 0; i < count; i++) {
        golden_h h;
        if (!golden_h_open(&h, networks[i])) {
            golden_h_close(&h);
            SBIT_TEST_SKIP("no golden data");
        }
        if (count > 1) {
            optimizer_check(&h, "sgd", 1e-3);
            optimizer_check(&h, "adam", 5e-3);
        }
        optimizer_check(&h, "adamw", 5e-3);
        golden_h_close(&h);
    }
}

/* ---- the loop */

typedef struct loop_seen {
    int64_t before, after, epochs, samples;
    double first, last;
} loop_seen;

static sbit_status loop_before(sbit_trainer *t, const sbit_train_report *r, void *user,
                               sbit_error *error)
{
    (void)t;
    (void)error;
    CHECK_EQ_I64(r->step, ((loop_seen *)user)->before);
    ((loop_seen *)user)->before++;
    return SBIT_OK;
}

static sbit_status loop_after(sbit_trainer *t, const sbit_train_report *r, void *user,
                              sbit_error *error)
{
    loop_seen *seen = (loop_seen *)user;
    (void)error;
    seen->after++;
    seen->samples += r->samples;
    CHECK_EQ_I64(sbit_trainer_output(t, 0)->dims[0], r->samples);
    return SBIT_OK;
}

static sbit_status loop_epoch(sbit_trainer *t, const sbit_train_report *r, void *user,
                              sbit_error *error)
{
    loop_seen *seen = (loop_seen *)user;
    (void)t;
    (void)error;
    seen->epochs++;
    seen->first = seen->epochs == 1 ? r->loss : seen->first;
    seen->last = r->loss;
    return SBIT_OK;
}

/* Forgets part of what it knows, and learns it again: an epoch of SGD lowers the loss, by the same
 * bits with one and three threads; masked weights stay zero; hooks see every step. */
TEST(an_epoch_lowers_the_loss)
{
    golden_h h;
    cifar c;
    float *weights[2] = {NULL, NULL};
    const bool quick = getenv("SBIT_TEST_QUICK") != NULL;
    const int64_t count = quick ? 5 * 16 + 5 : 20 * 64 + 5;
    memset(&h, 0, sizeof h);
    h.name = "resnet20";
    if (!cifar_load(&c, "train-20k.bin", 1000, count)) {
        SBIT_TEST_SKIP("no CIFAR-10");
    }
    for (int run = 0; run < 2; run++) {
        sbit_ctx_desc ctx_desc;
        sbit_graph *graph = NULL;
        sbit_trainer *t = NULL;
        sbit_train_desc desc;
        sbit_fit_desc fit;
        sbit_feed_desc data;
        sbit_feed feed;
        sbit_error error;
        sbit_train_report report;
        loop_seen seen;
        uint8_t keep[32 * 32 * 9];
        memset(&ctx_desc, 0, sizeof ctx_desc);
        memset(&desc, 0, sizeof desc);
        memset(&fit, 0, sizeof fit);
        memset(&data, 0, sizeof data);
        memset(&seen, 0, sizeof seen);
        ctx_desc.threads = run == 0 ? 1 : 3;
        CHECK(sbit_ctx_create(&ctx_desc, &h.ctx, &error) == SBIT_OK);
        data.inputs = &c.x;
        data.input_count = 1;
        data.targets = &c.y;
        data.target_count = 1;
        CHECK(sbit_feed_of_tensors(h.ctx, &data, &feed, &error) == SBIT_OK);
        desc.learning_rate = 0.02f;
        desc.weight_decay = 5e-4f;
        desc.optimizer_options = "{MOMENTUM: 0.9, NESTEROV: true}";
        desc.clip_norm = 5.0f;
        fit.epochs = 2;
        fit.batch = quick ? 16 : 64;
        fit.seed = 3;
        fit.rate = "cosine";
        fit.warmup = 2;
        fit.before_step = loop_before;
        fit.after_step = loop_after;
        fit.after_epoch = loop_epoch;
        fit.user = &seen;
        for (size_t i = 0; i < sizeof keep; i++) {
            keep[i] = i % 3 != 0;
        }
        if (!train_load(&h, &graph) ||
            !CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s",
                       error.message)) {
            break;
        }
        const size_t params = sbit_trainer_parameter_count(t);
        CHECK_EQ_I64((int64_t)params, 65);
        for (size_t p = 0; p < params; p++) { /* noise on the later layers */
            const sbit_train_parameter w = sbit_trainer_parameter(t, p);
            sbit_rng rng = sbit_rng_seed(p);
            for (int64_t i = 0; p > 30 && w.data.rank == 4 && i < sbit_tensor_count(&w.data); i++) {
                ((float *)w.data.data)[i] *= 0.5f + sbit_rng_uniform(&rng);
            }
        }
        CHECK(sbit_trainer_set_mask(t, "body.4.c1.0.weight", keep, &error) == SBIT_OK);
        CHECK(sbit_trainer_set_mask(t, "nobody", keep, &error) == SBIT_ERR_NOT_FOUND);
        CHECK_MSG(sbit_trainer_fit(t, &feed, &fit, &report, &error) == SBIT_OK, "%s",
                  error.message);
        CHECK_EQ_I64(seen.before, seen.after);
        CHECK_EQ_I64(seen.samples, 2 * count);
        CHECK_EQ_I64(seen.epochs, 2);
        CHECK_MSG(seen.last < 0.7 * seen.first, "loss %g, then %g", seen.first, seen.last);
        for (size_t p = 0; p < params; p++) {
            const sbit_train_parameter w = sbit_trainer_parameter(t, p);
            for (size_t i = 0; strcmp(w.name, "body.4.c1.0.weight") == 0 && i < sizeof keep; i++) {
                CHECK(keep[i] != 0 || ((const float *)w.data.data)[i] == 0.0f);
            }
            if (strcmp(w.name, "body.8.c2.0.weight") == 0) {
                weights[run] = (float *)malloc(sbit_tensor_bytes(&w.data));
                memcpy(weights[run], w.data.data, sbit_tensor_bytes(&w.data));
            }
        }
        sbit_trainer_destroy(t);
        sbit_feed_close(&feed);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(h.ctx);
    }
    if (CHECK(weights[0] != NULL && weights[1] != NULL)) {
        CHECK(memcmp(weights[0], weights[1], 64 * 64 * 9 * sizeof(float)) == 0);
    }
    free(weights[0]);
    free(weights[1]);
    cifar_free(&c);
}

/* ---- normalization that was trained goes into what is exported */

static size_t fold_count(const sbit_graph *graph, const char *op_type)
{
    size_t count = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        count += strcmp(sbit_graph_node(graph, id)->op_type, op_type) == 0;
    }
    return count;
}

/* What a quantized resnet20 says of the images; `fold`: with EXPORT.FOLD_BN, for weights of the
 * scheme. */
static void fold_run(golden_h *h, const cifar *c, const char *placement, const char *scheme,
                     bool fold, bool floats, float *out)
{
    char text[400];
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *graph = NULL, *built = NULL;
    sbit_session *session = NULL;
    sbit_session_desc plain;
    sbit_quant_build_desc desc;
    sbit_feed_desc data;
    sbit_feed feed;
    sbit_error error;
    memset(&plain, 0, sizeof plain);
    memset(&desc, 0, sizeof desc);
    memset(&data, 0, sizeof data);
    plain.disable_fusion = true;
    desc.float_activations = floats;
    data.inputs = &c->x;
    data.input_count = 1;
    snprintf(text, sizeof text,
             "PLACEMENT: %s\nSCHEDULE: {FUSE_BN: false}\nEXPORT: {FOLD_BN: %s}\n"
             "W: {QSCHEME: %s, QUANTIZER: {BIT: 8}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
             placement, fold ? "true" : "false",
             scheme);
    if (train_load(h, &graph) &&
        CHECK_MSG(sbit_qconfig_read(h->ctx, text, strlen(text), &config, &error) == SBIT_OK &&
                      sbit_feed_of_tensors(h->ctx, &data, &feed, &error) == SBIT_OK &&
                      sbit_quant_create(graph, config, &quant, &error) == SBIT_OK &&
                      sbit_quant_calibrate(quant, &feed, &error) == SBIT_OK &&
                      sbit_quant_calc_qparams(quant, false, false, false, &error) == SBIT_OK &&
                      sbit_quant_build(quant, &desc, &built, &error) == SBIT_OK &&
                      sbit_graph_validate(built, &error) == SBIT_OK &&
                      sbit_session_create(built, &plain, &session, &error) == SBIT_OK &&
                      sbit_session_set_input(session, "input", &c->x, &error) == SBIT_OK &&
                      sbit_session_run(session, &error) == SBIT_OK,
                  "%s", error.message)) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        memcpy(out, y->data, sbit_tensor_bytes(y));
        const size_t left = fold_count(built, "BatchNormalization");
        const bool all = fold && strcmp(scheme, "per-channel-symmetric") == 0;
        CHECK_MSG(all ? left <= 1 : left == 21, "%d are left", (int)left);
        sbit_feed_close(&feed);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(built);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_graph_destroy(graph);
}

/* One of its 784 factors is negative. With float activations only sums are rounded otherwise. One
 * scale for a whole weight stays one. */
TEST(normalization_goes_into_scales)
{
    static const char *const placements[] = {"sparsebit", "sparsebit", "generic"};
    golden_h h;
    cifar c;
    memset(&h, 0, sizeof h);
    h.name = "resnet20";
    h.ctx = train_ctx();
    if (!cifar_load(&c, "train-20k.bin", 0, 8)) {
        sbit_ctx_destroy(h.ctx);
        SBIT_TEST_SKIP("no CIFAR-10");
    }
    for (int form = 0; form < 3; form++) {
        float plain[80] = {0}, folded[80] = {0};
        double most = 0.0, off = 0.0;
        fold_run(&h, &c, placements[form], "per-channel-symmetric", false, form == 0, plain);
        fold_run(&h, &c, placements[form], "per-channel-symmetric", true, form == 0, folded);
        for (int i = 0; i < 80; i++) {
            const double d = fabs((double)plain[i] - (double)folded[i]);
            most = fabs((double)plain[i]) > most ? fabs((double)plain[i]) : most;
            off = d > off ? d : off;
        }
        CHECK_MSG(most > 1.0 && off <= (form == 0 ? 1e-5 : 0.03) * most, "%d: off by %g of %g",
                  form, off, most);
    }
    float whole[80] = {0};
    fold_run(&h, &c, "sparsebit", "per-tensor-symmetric", true, false, whole);
    cifar_free(&c);
    sbit_ctx_destroy(h.ctx);
}

/* ---- quantization-aware training */

static const char qat_config[] =
    "BACKEND: virtual\n"
    "PLACEMENT: generic\n"
    "W:\n"
    "  QSCHEME: per-channel-symmetric\n"
    "  QUANTIZER: {TYPE: lsq, BIT: 4}\n"
    "  OBSERVER: {TYPE: MINMAX}\n"
    "  SPECIFIC: [{\"stem.0\": [QUANTIZER.BIT, 8], \"fc\": [QUANTIZER.BIT, 8]}]\n"
    "A:\n"
    "  QSCHEME: per-tensor-affine\n"
    "  QUANTIZER: {TYPE: lsq, BIT: 4}\n"
    "  OBSERVER: {TYPE: MINMAX}\n"
    "  SPECIFIC: [{\"stem.0\": [QUANTIZER.BIT, 8], \"fc\": [QUANTIZER.BIT, 8]}]\n";

static double parameter_sum(const sbit_trainer *t, size_t index)
{
    const sbit_tensor data = sbit_trainer_parameter(t, index).data;
    double sum = 0;
    for (int64_t i = 0; i < sbit_tensor_count(&data); i++) {
        sum += (double)((const float *)data.data)[i];
    }
    return sum;
}

/* W4A4 of resnet20 by learned step sizes: training lowers the loss; what is exported computes what
 * was trained. */
TEST(lsq_trains_scales_and_weights)
{
    golden_h h;
    cifar c;
    sbit_graph *graph = NULL, *built = NULL;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_trainer *t = NULL;
    sbit_session *session = NULL;
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_fit_desc fit;
    sbit_feed_desc data;
    sbit_feed feed;
    sbit_error error;
    loop_seen seen;
    const bool quick = getenv("SBIT_TEST_QUICK") != NULL;
    const int64_t count = quick ? 96 : 1600;
    memset(&h, 0, sizeof h);
    h.name = "resnet20";
    h.ctx = train_ctx();
    memset(&desc, 0, sizeof desc);
    memset(&fit, 0, sizeof fit);
    memset(&data, 0, sizeof data);
    memset(&seen, 0, sizeof seen);
    if (!cifar_load(&c, "train-20k.bin", 0, count)) {
        sbit_ctx_destroy(h.ctx);
        SBIT_TEST_SKIP("no CIFAR-10");
    }
    data.inputs = &c.x;
    data.input_count = 1;
    data.targets = &c.y;
    data.target_count = 1;
    desc.learning_rate = 0.01f;
    desc.weight_decay = 1e-4f;
    desc.optimizer_options = "MOMENTUM: 0.9";
    fit.epochs = 2;
    fit.batch = quick ? 32 : 64;
    fit.after_epoch = loop_epoch;
    fit.user = &seen;
    const bool ok =
        CHECK(sbit_feed_of_tensors(h.ctx, &data, &feed, &error) == SBIT_OK) &&
        train_load(&h, &graph) &&
        CHECK_MSG(sbit_qconfig_read(h.ctx, qat_config, strlen(qat_config), &config, &error) ==
                      SBIT_OK,
                  "%s %s", error.message, error.where) &&
        CHECK_MSG(sbit_quant_create(graph, config, &quant, &error) == SBIT_OK &&
                      sbit_quant_calibrate(quant, &feed, &error) == SBIT_OK &&
                      sbit_quant_calc_qparams(quant, false, false, false, &error) == SBIT_OK &&
                      sbit_trainer_create_qat(quant, &desc, &t, &error) == SBIT_OK,
                  "%s", error.message);
    if (ok) {
        size_t scales = 0, moved = 0;
        double before[400];
        const size_t params = sbit_trainer_parameter_count(t);
        for (size_t p = 0; p < params && p < 400; p++) {
            before[p] = parameter_sum(t, p);
        }
        CHECK_MSG(sbit_trainer_fit(t, &feed, &fit, &report, &error) == SBIT_OK, "%s",
                  error.message);
        for (size_t p = 0; p < params && p < 400; p++) {
            const sbit_train_parameter w = sbit_trainer_parameter(t, p);
            const char *dot = strrchr(w.name, '.');
            if (dot != NULL && strcmp(dot, ".scale") == 0) {
                scales++;
                moved += parameter_sum(t, p) != before[p] ? 1 : 0;
            }
        }
        /* a gradient may be smaller than what rounding keeps */
        CHECK_MSG(scales > 50 && moved + 3 > scales, "%d scales, %d changed", (int)scales,
                  (int)moved);
        CHECK_MSG(seen.last < 0.9 * seen.first, "loss %g, then %g", seen.first, seen.last);
    }
    if (ok && CHECK_MSG(sbit_trainer_finish_qat(t, &error) == SBIT_OK &&
                            sbit_quant_build(quant, NULL, &built, &error) == SBIT_OK,
                        "%s", error.message)) {
        sbit_session_desc plain;
        memset(&plain, 0, sizeof plain);
        plain.disable_fusion = true;
        sbit_trainer_destroy(t); /* and one that normalizes as inference does */
        t = NULL;
        desc.fixed_statistics = true;
        c.batch.samples = 32;
        c.x.dims[0] = c.y.dims[0] = 32;
        if (CHECK_MSG(sbit_trainer_create_qat(quant, &desc, &t, &error) == SBIT_OK &&
                          sbit_session_create(built, &plain, &session, &error) == SBIT_OK &&
                          sbit_session_set_input(session, "input", &c.x, &error) == SBIT_OK &&
                          sbit_session_run(session, &error) == SBIT_OK &&
                          sbit_trainer_backward(t, &c.batch, &report, &error) == SBIT_OK,
                      "%s", error.message)) {
            const sbit_tensor *a = &sbit_session_output(session, 0)->tensor;
            const sbit_tensor *b = sbit_trainer_output(t, 0);
            double most = 0, off = 0;
            for (int64_t i = 0; i < sbit_tensor_count(a); i++) {
                const double x = (double)((const float *)a->data)[i];
                const double y = (double)((const float *)b->data)[i];
                most = fabs(y) > most ? fabs(y) : most;
                off = fabs(x - y) > off ? fabs(x - y) : off;
            }
            CHECK_MSG(off <= 1e-4 * most, "exported and trained differ by %g of %g", off, most);
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(built);
    sbit_trainer_destroy(t);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_graph_destroy(graph);
    sbit_feed_close(&feed);
    cifar_free(&c);
    sbit_ctx_destroy(h.ctx);
}

/* ---- golden: resnet20 with 4-bit weights, batch 0, inference statistics: straight-through
 * gradients of weights and scales (ste4: nothing clipped, clip4: some), and distillation from the
 * float model */

static const char weights_only[] = "BACKEND: virtual\nPLACEMENT: generic\n"
                                   "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, "
                                   "BIT: 4}, OBSERVER: {TYPE: MINMAX}}\n"
                                   "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: uniform, "
                                   "BIT: 8, DISABLE: true}, OBSERVER: {TYPE: MINMAX}}\n";

static double relative_norm(const float *a, const float *b, int64_t count)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(off) / (sqrt(norm) + 1e-30);
}

/* Scale gradients: the row's factor is 1 / sqrt(elements of a part * 7). */
static void scale_gradient_check(golden_h *h, const char *which, const char *suffix,
                                 const sbit_train_parameter *scale, const sbit_tensor *weight)
{
    char name[160];
    golden_array_view view;
    const int64_t parts = scale->data.dims[0];
    const double each = (double)(sbit_tensor_count(weight) / parts);
    snprintf(name, sizeof name, "%s/grad_scale%s/%.*s", which, suffix,
             (int)(strlen(scale->name) - 6), scale->name);
    const double *want = golden_f64(h, name, &view);
    double top = 0;
    for (int64_t c = 0; want != NULL && c < parts; c++) {
        top = fabs(want[c]) > top ? fabs(want[c]) : top;
    }
    for (int64_t c = 0; want != NULL && c < parts; c++) {
        const double got = (double)scale->gradient[c] * sqrt(each * 7.0);
        if (!CHECK_NEAR(got, want[c], 2e-3 * top + 1e-6)) {
            printf("    %s %s [%d]\n", which, name, (int)c);
            return;
        }
    }
}

static void quantized_check(golden_h *h, sbit_quant *quant, const cifar *c, const char *which,
                            const char *suffix)
{
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_trainer *t = NULL;
    sbit_error error;
    char name[160];
    golden_array_view view;
    memset(&desc, 0, sizeof desc);
    desc.fixed_statistics = true;
    if (!CHECK_MSG(sbit_trainer_create_qat(quant, &desc, &t, &error) == SBIT_OK, "%s",
                   error.message)) {
        return;
    }
    for (int pass = 0; pass < 2; pass++) { /* set scales, then look */
        size_t seen = 0;
        for (size_t p = 0; p < sbit_trainer_parameter_count(t); p++) {
            const sbit_train_parameter w = sbit_trainer_parameter(t, p);
            const size_t length = strlen(w.name);
            const bool is_scale = length > 6 && strcmp(w.name + length - 6, ".scale") == 0;
            snprintf(name, sizeof name, "%s/%s/%s%.*s", h->name, which,
                     is_scale ? "scale/" : "grad_weight/", (int)(is_scale ? length - 6 : length),
                     w.name);
            if (is_scale && pass == 0 && CHECK(golden_array(&h->g, name, &view))) {
                memcpy(w.data.data, view.f, sbit_tensor_bytes(&w.data));
                seen++;
            }
            if (pass == 0) {
                continue;
            }
            if (!is_scale && suffix[0] == 0 && golden_array(&h->g, name, &view)) {
                CHECK_MSG(relative_norm(w.gradient, view.f, view.count) < 1e-4, "%s: off by %g",
                          name, relative_norm(w.gradient, view.f, view.count));
            }
            for (size_t k = 0; is_scale && k < sbit_trainer_parameter_count(t); k++) {
                const sbit_train_parameter weight = sbit_trainer_parameter(t, k);
                if (strlen(weight.name) == length - 6 &&
                    strncmp(weight.name, w.name, length - 6) == 0) {
                    scale_gradient_check(h, which, suffix, &w, &weight.data);
                }
            }
        }
        if (pass == 0) {
            CHECK_EQ_I64((int64_t)seen, 22);
            CHECK_MSG(sbit_trainer_backward(t, &c->batch, &report, &error) == SBIT_OK, "%s",
                      error.message);
            CHECK_NEAR(report.loss,
                       strcmp(which, "ste4") == 0 ? 0.2591813602740691 : 0.5359636596931179, 1e-5);
        }
    }
    sbit_trainer_destroy(t);
}

static void distillation_check(golden_h *h, sbit_quant *quant, const cifar *c,
                               const sbit_tensor *teacher)
{
    static const char *const names[] = {"stem.0.weight", "body.4.c1.0.weight", "fc.weight"};
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_trainer *t = NULL;
    sbit_error error;
    sbit_batch batch = c->batch;
    golden_array_view view;
    char name[160];
    memset(&desc, 0, sizeof desc);
    desc.fixed_statistics = true;
    desc.loss = "kl";
    desc.loss_options = "TEMPERATURE: 4";
    batch.targets = teacher;
    if (!CHECK_MSG(sbit_trainer_create_qat(quant, &desc, &t, &error) == SBIT_OK, "%s",
                   error.message)) {
        return;
    }
    for (size_t p = 0; p < sbit_trainer_parameter_count(t); p++) {
        const sbit_train_parameter w = sbit_trainer_parameter(t, p);
        const int length = (int)strlen(w.name);
        snprintf(name, sizeof name, "%s/ste4/scale/%.*s", h->name, length - 6, w.name);
        if (length > 6 && golden_array(&h->g, name, &view)) {
            memcpy(w.data.data, view.f, sbit_tensor_bytes(&w.data));
        }
    }
    if (CHECK_MSG(sbit_trainer_backward(t, &batch, &report, &error) == SBIT_OK, "%s",
                  error.message)) {
        CHECK_NEAR(report.loss, 0.08483674125009698, 1e-5);
    }
    for (size_t p = 0; p < sbit_trainer_parameter_count(t); p++) {
        const sbit_train_parameter w = sbit_trainer_parameter(t, p);
        for (size_t i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%s/kd/grad_weight/%s", h->name, names[i]);
            if (strcmp(w.name, names[i]) == 0 && CHECK(golden_array(&h->g, name, &view))) {
                CHECK_MSG(relative_norm(w.gradient, view.f, view.count) < 1e-3, "%s: off by %g",
                          name, relative_norm(w.gradient, view.f, view.count));
            }
        }
    }
    sbit_trainer_destroy(t);
}

TEST(quantized_gradients_resnet20)
{
    golden_h h;
    cifar c;
    sbit_graph *graph = NULL;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_session *session = NULL;
    sbit_error error;
    if (!golden_h_open(&h, "resnet20") || !cifar_load(&c, "train-20k.bin", 0, 64)) {
        golden_h_close(&h);
        SBIT_TEST_SKIP("no golden data");
    }
    if (train_load(&h, &graph) &&
        CHECK_MSG(sbit_qconfig_read(h.ctx, weights_only, strlen(weights_only), &config, &error) ==
                          SBIT_OK &&
                      sbit_quant_create(graph, config, &quant, &error) == SBIT_OK &&
                      sbit_quant_prepare_calibration(quant, &error) == SBIT_OK &&
                      sbit_quant_calc_qparams(quant, false, false, false, &error) == SBIT_OK &&
                      sbit_session_create(graph, NULL, &session, &error) == SBIT_OK &&
                      sbit_session_set_input(session, "input", &c.x, &error) == SBIT_OK &&
                      sbit_session_run(session, &error) == SBIT_OK,
                  "%s", error.message)) {
        quantized_check(&h, quant, &c, "ste4", "");
        quantized_check(&h, quant, &c, "clip4", "_rounded");
        distillation_check(&h, quant, &c, &sbit_session_output(session, 0)->tensor);
    }
    sbit_session_destroy(session);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_graph_destroy(graph);
    cifar_free(&c);
    golden_h_close(&h);
}

/* ---- a small network of its own: builder, checkpoints, augmentation, teacher, losses */

enum {
    SMALL = 12,
    SMALL_COUNT = 70
};

/* [count, channels, side, side], as far as the rank goes */
static sbit_tensor build_like(sbit_dtype dtype, int32_t rank, int64_t count, int64_t channels,
                              int64_t side, void *data)
{
    sbit_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.rank = rank;
    t.dims[0] = count;
    t.dims[1] = channels;
    t.dims[2] = t.dims[3] = side;
    t.data = data;
    return t;
}

static sbit_graph *small_network(sbit_ctx *ctx, uint64_t seed)
{
    static const int64_t dims[3] = {2, SMALL, SMALL};
    const sbit_value_id none = {0};
    sbit_conv_desc conv;
    sbit_graph *graph = NULL;
    sbit_error error;
    memset(&conv, 0, sizeof conv);
    conv.channels = 4;
    CHECK(sbit_graph_create(ctx, 17, &graph, &error) == SBIT_OK);
    sbit_builder b = sbit_builder_init(graph, seed, &error);
    sbit_value_id x = sbit_builder_input(&b, "input", 3, dims);
    x = sbit_builder_batch_norm(&b, "n1", sbit_builder_conv(&b, "c1", x, &conv));
    x = sbit_builder_op(&b, "Relu", x, none);
    conv.groups = 4;
    conv.bias = true;
    x = sbit_builder_op(&b, "Add", x, sbit_builder_conv(&b, "c2", x, &conv));
    x = sbit_builder_pool(&b, "MaxPool", x, 2);
    x = sbit_builder_pool(&b, "GlobalAveragePool", x, 0);
    x = sbit_builder_linear(&b, "fc", sbit_builder_op(&b, "Flatten", x, none), 3);
    CHECK_MSG(sbit_builder_output(&b, "logits", x) == SBIT_OK, "%s", error.message);
    conv.groups = 3; /* does not divide: an error that names the layer, and nothing after it */
    x = sbit_builder_conv(&b, "bad", x, &conv);
    CHECK(b.status != SBIT_OK && x.idx == 0);
    return graph;
}

typedef struct small_data {
    float x[SMALL_COUNT * 2 * SMALL * SMALL];
    int64_t y[SMALL_COUNT];
    sbit_tensor inputs, targets;
    sbit_batch batch; /* of all */
    sbit_feed feed;
} small_data;

static void small_data_make(sbit_ctx *ctx, small_data *d)
{
    sbit_rng rng = sbit_rng_seed(5);
    sbit_feed_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    for (int i = 0; i < SMALL_COUNT; i++) {
        d->y[i] = i % 3;
        for (int k = 0; k < 2 * SMALL * SMALL; k++) {
            d->x[i * 2 * SMALL * SMALL + k] =
                sbit_rng_normal(&rng) * (k % SMALL < 4 * (i % 3 + 1) ? 1.0f : 0.2f);
        }
    }
    d->inputs = build_like(SBIT_F32, 4, SMALL_COUNT, 2, SMALL, d->x);
    d->targets = build_like(SBIT_I64, 1, SMALL_COUNT, 0, 0, d->y);
    memset(&d->batch, 0, sizeof d->batch);
    d->batch.samples = SMALL_COUNT;
    d->batch.inputs = &d->inputs;
    d->batch.targets = &d->targets;
    d->batch.input_count = d->batch.target_count = 1;
    desc.inputs = &d->inputs;
    desc.targets = &d->targets;
    desc.input_count = desc.target_count = 1;
    CHECK(sbit_feed_of_tensors(ctx, &desc, &d->feed, &error) == SBIT_OK);
}

static sbit_status stop_after(sbit_trainer *t, const sbit_train_report *r, void *user,
                              sbit_error *error)
{
    (void)t;
    (void)error;
    return r->step == *(const int64_t *)user ? SBIT_ERR_CANCELLED : SBIT_OK;
}

/* Stopped in the middle of an epoch, saved, loaded into a new trainer and gone on: the same bits as
 * without the break, with momentum, running statistics, augmentation, pieces of batches, and teachers. */
TEST(resuming_gives_the_same_bits)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3), *teacher = small_network(ctx, 4);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_fit_desc fit;
    sbit_error error;
    sbit_trainer *t[2] = {NULL, NULL};
    const char *path = SBIT_TEST_TMP "/train.checkpoint";
    int64_t stop = 4;
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    memset(&fit, 0, sizeof fit);
    desc.learning_rate = 0.02f;
    desc.optimizer = "adamw";
    desc.weight_decay = 0.01f;
    sbit_graph *const teachers[2] = {teacher, graph};
    desc.teachers = teachers;
    desc.teacher_count = 2;
    desc.distill = 0.3f;
    fit.epochs = 2;
    fit.batch = 16;
    fit.seed = 9;
    fit.rate = "one_cycle";
    fit.flip = true;
    fit.shift = 2;
    fit.cutout = 3;
    fit.mixup = 0.5f;
    fit.cutmix = 1.0f;
    fit.micro = 5;
    for (int run = 0; run < 2; run++) {
        CHECK_MSG(sbit_trainer_create(graph, &desc, &t[run], &error) == SBIT_OK, "%s",
                  error.message);
    }
    CHECK_MSG(sbit_trainer_fit(t[0], &d->feed, &fit, NULL, &error) == SBIT_OK, "%s", error.message);
    fit.after_step = stop_after;
    fit.user = &stop;
    CHECK(sbit_trainer_fit(t[1], &d->feed, &fit, NULL, &error) == SBIT_ERR_CANCELLED);
    CHECK_MSG(sbit_trainer_save(t[1], path, &error) == SBIT_OK, "%s", error.message);
    sbit_trainer_destroy(t[1]);
    fit.after_step = NULL;
    fit.resume = true;
    if (CHECK(sbit_trainer_create(graph, &desc, &t[1], &error) == SBIT_OK) &&
        CHECK_MSG(sbit_trainer_load(t[1], path, &error) == SBIT_OK, "%s", error.message) &&
        CHECK_MSG(sbit_trainer_fit(t[1], &d->feed, &fit, NULL, &error) == SBIT_OK, "%s",
                  error.message)) {
        for (size_t i = 0; i < sbit_trainer_parameter_count(t[0]); i++) {
            const sbit_train_parameter a = sbit_trainer_parameter(t[0], i);
            const sbit_train_parameter b = sbit_trainer_parameter(t[1], i);
            CHECK_MSG(memcmp(a.data.data, b.data.data, sbit_tensor_bytes(&a.data)) == 0,
                      "%s differs", a.name);
        }
    }
    sbit_trainer_destroy(t[1]);
    desc.optimizer = "sgd"; /* another optimizer: refused, and nothing changes */
    if (CHECK(sbit_trainer_create(graph, &desc, &t[1], &error) == SBIT_OK)) {
        const float before = ((const float *)sbit_trainer_parameter(t[1], 0).data.data)[0];
        CHECK(sbit_trainer_load(t[1], path, &error) == SBIT_ERR_PARSE);
        CHECK_CONTAINS(error.message, "optimizer");
        CHECK(((const float *)sbit_trainer_parameter(t[1], 0).data.data)[0] == before);
    }
    sbit_trainer_destroy(t[0]);
    sbit_trainer_destroy(t[1]);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_graph_destroy(teacher);
    sbit_ctx_destroy(ctx);
}

/* A quantized trainer of a small network, half of whose first weight is masked. */
static bool qat_small(const sbit_graph *graph, small_data *d, const sbit_train_desc *desc,
                      sbit_quant **quant, sbit_trainer **t, sbit_error *error)
{
    sbit_qconfig *config = NULL;
    const bool ok =
        CHECK_MSG(sbit_qconfig_read(sbit_graph_ctx(graph), qat_config, strlen(qat_config), &config,
                                    error) == SBIT_OK &&
                      sbit_quant_create(graph, config, quant, error) == SBIT_OK &&
                      sbit_quant_calibrate(*quant, &d->feed, error) == SBIT_OK &&
                      sbit_quant_calc_qparams(*quant, false, false, false, error) == SBIT_OK &&
                      sbit_trainer_create_qat(*quant, desc, t, error) == SBIT_OK,
                  "%s", error->message);
    sbit_qconfig_destroy(config);
    return ok;
}

/* The same with quantizers that learn, a mask, micro-batches, and averages or bits that are lost. */
TEST(resuming_quantized_gives_the_same_bits)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    const char *path = SBIT_TEST_TMP "/qat.checkpoint";
    small_data_make(ctx, d);
    for (int form = 0; form < 2; form++) {
        sbit_quant *quant[2] = {NULL, NULL};
        sbit_trainer *t[2] = {NULL, NULL};
        sbit_train_desc desc;
        sbit_fit_desc fit;
        sbit_error error;
        int64_t stop = 3;
        memset(&desc, 0, sizeof desc);
        memset(&fit, 0, sizeof fit);
        desc.learning_rate = 0.02f;
        desc.optimizer_options = "MOMENTUM: 0.9";
        desc.ema = form == 0 ? 0.9f : 0.0f;
        desc.dampening = 1e-3f;
        fit.epochs = 2;
        fit.batch = 16;
        fit.micro = 8;
        fit.anneal = form == 0 ? 0 : 8;
        fit.anneal_steps = form == 0 ? 0 : 1;
        for (int run = 0; run < 3; run++) { /* whole; stopped; gone on */
            const int to = run > 0;
            if (run == 2) {
                CHECK_MSG(sbit_trainer_save(t[1], path, &error) == SBIT_OK, "%s", error.message);
                sbit_trainer_destroy(t[1]);
                sbit_quant_destroy(quant[1]);
                quant[1] = NULL;
                t[1] = NULL;
            }
            if (!qat_small(graph, d, &desc, &quant[to], &t[to], &error)) {
                break;
            }
            const sbit_train_parameter first = sbit_trainer_parameter(t[to], 0);
            uint8_t keep[4096];
            for (int64_t i = 0; i < sbit_tensor_count(&first.data); i++) {
                keep[i] = i % 2 == 0;
            }
            fit.after_step = run == 1 ? stop_after : NULL;
            fit.user = &stop;
            fit.resume = run == 2;
            CHECK(run == 2 ? sbit_trainer_load(t[1], path, &error) == SBIT_OK
                           : sbit_trainer_set_mask(t[to], first.name, keep, &error) == SBIT_OK);
            const sbit_status status = sbit_trainer_fit(t[to], &d->feed, &fit, NULL, &error);
            CHECK_MSG(status == (run == 1 ? SBIT_ERR_CANCELLED : SBIT_OK), "%s", error.message);
        }
        for (size_t i = 0; t[0] != NULL && t[1] != NULL && i < sbit_trainer_parameter_count(t[0]);
             i++) {
            sbit_train_parameter a = sbit_trainer_parameter(t[0], i);
            sbit_train_parameter b = sbit_trainer_parameter(t[1], i);
            const size_t bytes = sbit_tensor_bytes(&a.data);
            CHECK_MSG(memcmp(a.data.data, b.data.data, bytes) == 0, "%d: %s differs", form, a.name);
            CHECK(i > 0 || ((const float *)a.data.data)[1] == 0.0f);
            sbit_trainer_swap_average(t[0]);
            sbit_trainer_swap_average(t[1]);
            a = sbit_trainer_parameter(t[0], i);
            b = sbit_trainer_parameter(t[1], i);
            CHECK_MSG(memcmp(a.data.data, b.data.data, bytes) == 0, "%d: mean of %s", form, a.name);
            sbit_trainer_swap_average(t[0]);
            sbit_trainer_swap_average(t[1]);
        }
        if (t[0] != NULL && t[1] != NULL) { /* without quantizers: the loss and gradients of float */
            const sbit_train_parameter w = sbit_trainer_parameter(t[0], 0);
            sbit_train_report report[3];
            for (int k = 0; k < 3; k++) {
                sbit_trainer_enable_qat(t[0], k != 1);
                CHECK(sbit_trainer_backward(t[0], &d->batch, &report[k], &error) == SBIT_OK);
            }
            CHECK(report[0].loss == report[2].loss && report[0].loss != report[1].loss);
            sbit_trainer *plain = NULL;
            sbit_graph *same = NULL;
            CHECK(sbit_graph_clone(graph, &same, &error) == SBIT_OK &&
                  sbit_trainer_create(same, &desc, &plain, &error) == SBIT_OK);
            for (size_t i = 0; plain != NULL && i < sbit_trainer_parameter_count(plain); i++) {
                const sbit_train_parameter p = sbit_trainer_parameter(plain, i);
                for (size_t k = 0; k < sbit_trainer_parameter_count(t[0]); k++) {
                    const sbit_train_parameter from = sbit_trainer_parameter(t[0], k);
                    if (strcmp(p.name, from.name) == 0) {
                        memcpy(p.data.data, from.data.data, sbit_tensor_bytes(&p.data));
                    }
                }
            }
            sbit_trainer_enable_qat(t[0], false);
            CHECK(w.data.data != NULL &&
                  sbit_trainer_backward(t[0], &d->batch, &report[0], &error) == SBIT_OK &&
                  sbit_trainer_backward(plain, &d->batch, &report[1], &error) == SBIT_OK);
            CHECK_NEAR(report[0].loss, report[1].loss, 1e-6);
            sbit_trainer_destroy(plain);
            sbit_graph_destroy(same);
        }
        for (int i = 0; i < 2; i++) {
            sbit_trainer_destroy(t[i]);
            sbit_quant_destroy(quant[i]);
        }
    }
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* Every loss falls in a few steps on one batch; wrong names are told. */
TEST(losses_and_settings)
{
    static const char *const names[] = {"cross_entropy", "mse", "l1", "huber", "bce", "kl"};
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_error error;
    sbit_trainer *t = NULL;
    float like[SMALL_COUNT * 3];
    small_data_make(ctx, d);
    for (int i = 0; i < SMALL_COUNT * 3; i++) {
        like[i] = i % 3 == (i / 3) % 3 ? 1.0f : 0.0f;
    }
    const sbit_tensor wanted = build_like(SBIT_F32, 2, SMALL_COUNT, 3, 0, like);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sbit_batch batch = d->batch;
        sbit_train_report report;
        double first = 0;
        memset(&desc, 0, sizeof desc);
        desc.loss = names[i];
        desc.learning_rate = 0.05f;
        desc.clip_value = 1.0f;
        batch.targets = i == 0 ? &d->targets : &wanted;
        if (!CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s: %s", names[i],
                       error.message)) {
            continue;
        }
        for (int step = 0; step < 12; step++) {
            CHECK_MSG(sbit_trainer_step(t, &batch, &report, &error) == SBIT_OK, "%s: %s", names[i],
                      error.message);
            first = step == 0 ? report.loss : first;
        }
        CHECK_MSG(report.loss < first, "%s: %g, then %g", names[i], first, report.loss);
        CHECK(sbit_trainer_update(t, NULL, &error) == SBIT_ERR_STATE); /* no gradients wait */
        sbit_trainer_destroy(t);
    }
    memset(&desc, 0, sizeof desc);
    desc.optimizer = "sdg";
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "sgd, adam, adamw");
    desc.optimizer = "sgd";
    desc.optimizer_options = "MOMENTOM: 0.9";
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) != SBIT_OK);
    CHECK_CONTAINS(error.message, "MOMENTUM");
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* Operators that become others before they are differentiated are of the forward pass, too: what
 * they compute is computed again, with the same bits. */
TEST(values_of_written_out_operators_are_computed_again)
{
    sbit_ctx *ctx = NULL; /* one thread: what each of more packs is more than the values here */
    sbit_graph *graph = NULL;
    small_data *d = (small_data *)malloc(sizeof *d);
    const int64_t dims[3] = {2, SMALL, SMALL};
    const sbit_value_id none = {0};
    sbit_train_desc desc;
    sbit_train_memory memory[2];
    sbit_train_report report[2];
    sbit_error error;
    CHECK(sbit_ctx_create(NULL, &ctx, &error) == SBIT_OK);
    small_data_make(ctx, d);
    CHECK(sbit_graph_create(ctx, 17, &graph, &error) == SBIT_OK);
    sbit_builder b = sbit_builder_init(graph, 5, &error);
    sbit_value_id x = sbit_builder_input(&b, "input", 3, dims);
    x = sbit_builder_linear(&b, "first", sbit_builder_op(&b, "Flatten", x, none), 64);
    for (int i = 0; i < 16; i++) {
        sbit_value_id y = {0};
        sbit_node_desc node;
        sbit_node_id id;
        memset(&node, 0, sizeof node);
        node.op_type = "QuickGelu";
        node.domain = "com.microsoft";
        node.name = "gelu";
        node.inputs = &x;
        node.outputs = &y;
        node.input_count = node.output_count = 1;
        CHECK(sbit_graph_add_value(graph, "gelu", NULL, &y, &error) == SBIT_OK);
        CHECK(sbit_graph_add_node(graph, &node, &id, &error) == SBIT_OK);
        x = y;
    }
    CHECK(sbit_infer(graph, &error) == SBIT_OK);
    x = sbit_builder_linear(&b, "fc", x, 3);
    CHECK_MSG(sbit_builder_output(&b, "logits", x) == SBIT_OK, "%s", error.message);
    memset(&desc, 0, sizeof desc);
    desc.learning_rate = 0.1f;
    for (int i = 0; i < 2; i++) {
        sbit_trainer *t = NULL;
        desc.checkpoint = i == 0 ? 0 : 8;
        CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message);
        CHECK(sbit_trainer_step(t, &d->batch, &report[i], &error) == SBIT_OK);
        CHECK(sbit_trainer_step(t, &d->batch, &report[i], &error) == SBIT_OK);
        memory[i] = sbit_trainer_memory(t);
        sbit_trainer_destroy(t);
    }
    CHECK(report[0].loss == report[1].loss);
    CHECK_MSG(2 * memory[1].live_bytes < memory[0].live_bytes, "%d of %d bytes",
              (int)memory[1].live_bytes, (int)memory[0].live_bytes);
    sbit_graph_destroy(graph);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_ctx_destroy(ctx);
}

/* Bits that fall from 8 to those that were asked for: nearer to the float model at first; a way
 * forth and back changes no bit; a run that is resumed in between ends like one that is not. */
TEST(bits_are_annealed)
{
    static const char *const types[][2] = {
        {"lsq", "lsq"}, {"lsq", "lsq+"}, {"dorefa", "pact"}, {"uniform", "uniform"}};
    const char *path = SBIT_TEST_TMP "/anneal.checkpoint";
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_error error;
    small_data_make(ctx, d);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char text[400];
        sbit_qconfig *config = NULL;
        sbit_quant *quant[3] = {NULL, NULL, NULL};
        sbit_trainer *t[3] = {NULL, NULL, NULL};
        sbit_train_desc desc;
        sbit_fit_desc fit;
        sbit_train_report report;
        double loss[3], exact = 0.0;
        int64_t stop = 5;
        memset(&desc, 0, sizeof desc);
        memset(&fit, 0, sizeof fit);
        desc.learning_rate = 0.005f;
        desc.fixed_statistics = true;
        desc.optimizer_options = "MOMENTUM: 0.9";
        snprintf(text, sizeof text,
                 "SCHEDULE: {FUSE_BN: true}\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: "
                 "%s, BIT: 2}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: %s, BIT: 3}}\n",
                 types[i][0], types[i][1]);
        CHECK(sbit_qconfig_read(ctx, text, strlen(text), &config, &error) == SBIT_OK);
        for (int k = 0; k < 3; k++) {
            CHECK_MSG(sbit_quant_create(graph, config, &quant[k], &error) == SBIT_OK &&
                          sbit_quant_calibrate(quant[k], &d->feed, &error) == SBIT_OK &&
                          sbit_quant_calc_qparams(quant[k], false, false, false, &error) ==
                              SBIT_OK &&
                          sbit_trainer_create_qat(quant[k], &desc, &t[k], &error) == SBIT_OK,
                      "%s", error.message);
        }
        for (int k = 0; k < 3; k++) { /* 2 and 3 bits, 8, and back */
            CHECK(sbit_trainer_set_bits(t[2], k == 1 ? 8 : 0, &error) == SBIT_OK);
            CHECK(sbit_trainer_backward(t[2], &d->batch, &report, &error) == SBIT_OK);
            loss[k] = report.loss;
        }
        sbit_trainer *plain = NULL;
        CHECK(sbit_trainer_create(graph, &desc, &plain, &error) == SBIT_OK);
        CHECK(sbit_trainer_backward(plain, &d->batch, &report, &error) == SBIT_OK);
        exact = report.loss;
        sbit_trainer_destroy(plain);
        CHECK_MSG(loss[0] == loss[2] && loss[0] != loss[1], "%s: %.9g, %.9g, %.9g", types[i][1],
                  loss[0], loss[1], loss[2]);
        CHECK_MSG(strcmp(types[i][0], "dorefa") == 0 ||
                      fabs(loss[1] - exact) < 0.5 * fabs(loss[0] - exact),
                  "%s: %g with few bits, %g with 8, %g in float", types[i][1], loss[0], loss[1],
                  exact);
        fit.epochs = 2;
        fit.batch = 16;
        fit.anneal = 8;
        CHECK(sbit_trainer_fit(t[0], &d->feed, &fit, NULL, &error) == SBIT_OK);
        fit.after_step = stop_after;
        fit.user = &stop;
        CHECK(sbit_trainer_fit(t[1], &d->feed, &fit, NULL, &error) == SBIT_ERR_CANCELLED);
        CHECK(sbit_trainer_save(t[1], path, &error) == SBIT_OK);
        fit.after_step = NULL;
        fit.resume = true;
        CHECK(sbit_trainer_load(t[2], path, &error) == SBIT_OK);
        CHECK(sbit_trainer_fit(t[2], &d->feed, &fit, NULL, &error) == SBIT_OK);
        for (size_t p = 0; p < sbit_trainer_parameter_count(t[0]); p++) {
            const sbit_train_parameter a = sbit_trainer_parameter(t[0], p);
            const sbit_train_parameter b = sbit_trainer_parameter(t[2], p);
            CHECK_MSG(memcmp(a.data.data, b.data.data, sbit_tensor_bytes(&a.data)) == 0, "%s: %s",
                      types[i][1], a.name);
        }
        CHECK(sbit_trainer_finish_qat(t[0], &error) == SBIT_OK);
        for (int k = 0; k < 3; k++) {
            sbit_trainer_destroy(t[k]);
            sbit_quant_destroy(quant[k]);
        }
        sbit_qconfig_destroy(config);
    }
    sbit_graph_destroy(graph);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_ctx_destroy(ctx);
}

/* Ranges that follow the batches come near to what calibration with more samples gives, stop with
 * the statistics, and go through a checkpoint. */
TEST(ranges_follow_the_batches)
{
    static const char text[] =
        "PLACEMENT: sparsebit\nSCHEDULE: {FUSE_BN: true}\nW: {QSCHEME: per-channel-symmetric, "
        "QUANTIZER: {BIT: 8}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n";
    const char *path = SBIT_TEST_TMP "/ranges.checkpoint";
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_qconfig *config = NULL;
    sbit_quant *quant[4] = {NULL, NULL, NULL, NULL}; /* all samples, small ones, the same twice */
    sbit_trainer *t[4] = {NULL, NULL, NULL, NULL};
    float *little = (float *)malloc(sizeof d->x);
    double loss[4] = {0}, first = 0.0;
    sbit_feed_desc few;
    sbit_feed feed;
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_error error;
    small_data_make(ctx, d);
    memset(&few, 0, sizeof few);
    memset(&desc, 0, sizeof desc);
    for (size_t i = 0; i < sizeof d->x / sizeof d->x[0]; i++) {
        little[i] = 0.05f * d->x[i];
    }
    sbit_tensor x = d->inputs;
    x.data = little;
    few.inputs = &x;
    few.input_count = 1;
    CHECK(sbit_feed_of_tensors(ctx, &few, &feed, &error) == SBIT_OK);
    CHECK(sbit_qconfig_read(ctx, text, strlen(text), &config, &error) == SBIT_OK);
    desc.learning_rate = 1e-9f;
    desc.fixed_statistics = true;
    for (int k = 0; k < 4; k++) {
        desc.observe = k == 0 ? 0.0f : 0.5f;
        CHECK_MSG(sbit_quant_create(graph, config, &quant[k], &error) == SBIT_OK &&
                      sbit_quant_calibrate(quant[k], k == 0 ? &d->feed : &feed, &error) ==
                          SBIT_OK &&
                      sbit_quant_calc_qparams(quant[k], false, false, false, &error) == SBIT_OK &&
                      sbit_trainer_create_qat(quant[k], &desc, &t[k], &error) == SBIT_OK,
                  "%s", error.message);
    }
    CHECK(sbit_trainer_step(t[0], &d->batch, &report, &error) == SBIT_OK);
    loss[0] = report.loss;
    for (int step = 0; step < 24; step++) {
        CHECK(sbit_trainer_step(t[1], &d->batch, &report, &error) == SBIT_OK);
        first = step == 0 ? report.loss : first;
        if (step == 3) {
            CHECK(sbit_trainer_save(t[1], path, &error) == SBIT_OK);
            CHECK(sbit_trainer_load(t[2], path, &error) == SBIT_OK);
        }
        if (step > 3) {
            loss[1] = report.loss;
            CHECK(sbit_trainer_step(t[2], &d->batch, &report, &error) == SBIT_OK);
            CHECK(report.loss == loss[1]);
        }
    }
    CHECK_MSG(fabs(loss[1] - loss[0]) < 0.02 * fabs(first - loss[0]), "%g at first, %g, wanted %g",
              first, loss[1], loss[0]);
    sbit_trainer_freeze_statistics(t[3], true);
    for (int step = 0; step < 3; step++) {
        CHECK(sbit_trainer_step(t[3], &d->batch, &report, &error) == SBIT_OK);
        CHECK_NEAR(report.loss, first, 1e-6);
    }
    for (int k = 0; k < 4; k++) {
        sbit_trainer_destroy(t[k]);
        sbit_quant_destroy(quant[k]);
    }
    sbit_feed_close(&feed);
    free(little);
    sbit_qconfig_destroy(config);
    sbit_graph_destroy(graph);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_ctx_destroy(ctx);
}

/* Dropout drops other elements in each step, the same ones in each run of the same step. */
TEST(dropout_is_counted)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = NULL;
    small_data *d = (small_data *)malloc(sizeof *d);
    const int64_t dims[3] = {2, SMALL, SMALL};
    const sbit_value_id none = {0};
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_trainer *t[2] = {NULL, NULL};
    sbit_error error;
    double loss[2][3] = {{0}};
    const char *path = SBIT_TEST_TMP "/dropout.checkpoint";
    small_data_make(ctx, d);
    CHECK(sbit_graph_create(ctx, 17, &graph, &error) == SBIT_OK);
    sbit_builder b = sbit_builder_init(graph, 5, &error);
    sbit_value_id x = sbit_builder_input(&b, "input", 3, dims);
    x = sbit_builder_op(&b, "Flatten", x, none);
    x = sbit_builder_op(&b, "Dropout", x, none);
    x = sbit_builder_linear(&b, "fc", x, 3);
    CHECK_MSG(sbit_builder_output(&b, "logits", x) == SBIT_OK, "%s", error.message);
    memset(&desc, 0, sizeof desc);
    desc.learning_rate = 1e-9f;
    for (int i = 0; i < 2; i++) {
        CHECK(sbit_trainer_create(graph, &desc, &t[i], &error) == SBIT_OK);
        for (int step = 0; step < 3; step++) {
            CHECK(sbit_trainer_step(t[i], &d->batch, &report, &error) == SBIT_OK);
            loss[i][step] = report.loss;
            if (i == 0 && step == 0) {
                CHECK(sbit_trainer_save(t[0], path, &error) == SBIT_OK);
            }
            CHECK(loss[0][step] == loss[i][step]);
        }
    }
    CHECK(loss[0][0] != loss[0][1] && loss[0][1] != loss[0][2]);
    CHECK(sbit_trainer_load(t[1], path, &error) == SBIT_OK);
    CHECK(sbit_trainer_backward(t[1], &d->batch, &report, &error) == SBIT_OK);
    CHECK(report.loss == loss[0][1]);
    CHECK(sbit_trainer_accumulate(t[1], &d->batch, &report, &error) == SBIT_OK);
    CHECK(report.loss != loss[0][1]); /* the mean with another draw */
    sbit_trainer_destroy(t[0]);
    sbit_trainer_destroy(t[1]);
    sbit_graph_destroy(graph);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_ctx_destroy(ctx);
}

/* Quantization removes Dropout; training quantized has it again, what is exported has not. */
TEST(dropout_is_trained_quantized)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = NULL, *built = NULL;
    small_data *d = (small_data *)malloc(sizeof *d);
    const int64_t dims[3] = {2, SMALL, SMALL};
    const sbit_value_id none = {0};
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_trainer *t = NULL;
    sbit_train_desc desc;
    sbit_train_report first, second;
    sbit_error error;
    small_data_make(ctx, d);
    CHECK(sbit_graph_create(ctx, 17, &graph, &error) == SBIT_OK);
    sbit_builder b = sbit_builder_init(graph, 5, &error);
    sbit_value_id x = sbit_builder_op(&b, "Flatten", sbit_builder_input(&b, "input", 3, dims), none);
    x = sbit_builder_op(&b, "Relu", sbit_builder_linear(&b, "fc1", x, 8), none);
    x = sbit_builder_linear(&b, "fc2", sbit_builder_op(&b, "Dropout", x, none), 3);
    CHECK_MSG(sbit_builder_output(&b, "logits", x) == SBIT_OK, "%s", error.message);
    CHECK(sbit_qconfig_read(ctx, qat_config, strlen(qat_config), &config, &error) == SBIT_OK);
    CHECK_MSG(sbit_quant_create(graph, config, &quant, &error) == SBIT_OK &&
                  sbit_quant_calibrate(quant, &d->feed, &error) == SBIT_OK &&
                  sbit_quant_calc_qparams(quant, false, false, false, &error) == SBIT_OK,
              "%s", error.message);
    memset(&desc, 0, sizeof desc);
    desc.learning_rate = 1e-9f;
    CHECK_MSG(sbit_trainer_create_qat(quant, &desc, &t, &error) == SBIT_OK &&
                  sbit_trainer_step(t, &d->batch, &first, &error) == SBIT_OK &&
                  sbit_trainer_step(t, &d->batch, &second, &error) == SBIT_OK &&
                  sbit_trainer_finish_qat(t, &error) == SBIT_OK &&
                  sbit_quant_build(quant, NULL, &built, &error) == SBIT_OK,
              "%s", error.message);
    CHECK(first.loss != second.loss); /* other elements are dropped */
    size_t dropouts = 0;
    for (sbit_node_id id = sbit_graph_first(built); id.idx != 0; id = sbit_graph_next(built, id)) {
        dropouts += strcmp(sbit_graph_node(built, id)->op_type, "Dropout") == 0;
    }
    CHECK_EQ_I64(dropouts, 0);
    sbit_trainer_destroy(t);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_graph_destroy(built);
    sbit_graph_destroy(graph);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_ctx_destroy(ctx);
}

/* A batch in pieces gives the gradients of the whole; a value that is not finite is traced to its
 * node, and nothing has changed. */
TEST(micro_batches_and_not_finite_values)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_train_report whole, parts;
    sbit_trainer *t[2] = {NULL, NULL};
    sbit_error error;
    sbit_batch batch;
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    desc.learning_rate = 0.1f;
    desc.fixed_statistics = true;
    for (int i = 0; i < 2; i++) {
        CHECK(sbit_trainer_create(graph, &desc, &t[i], &error) == SBIT_OK);
    }
    batch = d->batch;
    CHECK(sbit_trainer_backward(t[0], &batch, &whole, &error) == SBIT_OK);
    for (int64_t at = 0; at < SMALL_COUNT; at += 30) {
        sbit_tensor x = d->inputs, y = d->targets;
        batch.samples = SMALL_COUNT - at < 30 ? SMALL_COUNT - at : 30;
        x.dims[0] = y.dims[0] = batch.samples;
        x.data = d->x + at * 2 * SMALL * SMALL;
        y.data = d->y + at;
        batch.inputs = &x;
        batch.targets = &y;
        CHECK_MSG(sbit_trainer_accumulate(t[1], &batch, &parts, &error) == SBIT_OK, "%s",
                  error.message);
    }
    CHECK_EQ_I64(parts.samples, SMALL_COUNT);
    CHECK_NEAR(parts.loss, whole.loss, 1e-6);
    for (size_t p = 0; p < sbit_trainer_parameter_count(t[0]); p++) {
        const sbit_train_parameter a = sbit_trainer_parameter(t[0], p);
        const sbit_train_parameter b = sbit_trainer_parameter(t[1], p);
        CHECK_MSG(relative_norm(b.gradient, a.gradient, sbit_tensor_count(&a.data)) < 1e-4, "%s",
                  a.name);
    }
    sbit_trainer_destroy(t[0]);
    sbit_trainer_destroy(t[1]);
    desc.fixed_statistics = false;
    CHECK(sbit_trainer_create(graph, &desc, &t[0], &error) == SBIT_OK);
    batch = d->batch;
    CHECK(sbit_trainer_step(t[0], &batch, NULL, &error) == SBIT_OK);
    CHECK(sbit_trainer_store(t[0], graph, &error) == SBIT_OK);
    const sbit_value_id mean = sbit_graph_find_value(graph, "n1.running_mean");
    const float before = ((const float *)sbit_graph_value(graph, mean)->constant.data)[0];
    for (size_t p = 0; p < sbit_trainer_parameter_count(t[0]); p++) {
        const sbit_train_parameter w = sbit_trainer_parameter(t[0], p);
        if (strcmp(w.name, "c1.weight") == 0) {
            ((float *)w.data.data)[3] = INFINITY;
        }
    }
    CHECK(sbit_trainer_step(t[0], &batch, NULL, &error) == SBIT_ERR_NUMERIC);
    CHECK_CONTAINS(error.message, "first in Conv 'c1'");
    CHECK(sbit_trainer_update(t[0], NULL, &error) == SBIT_ERR_STATE);
    sbit_trainer_store(t[0], graph, &error);
    CHECK(((const float *)sbit_graph_value(graph, mean)->constant.data)[0] == before);
    sbit_trainer_destroy(t[0]);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* ---- rows from outside: a loss of nodes, an optimizer, a schedule */

static sbit_status own_loss(sbit_graph *graph, const sbit_options *options, sbit_value_id output,
                            sbit_value_id target, sbit_value_id *loss, sbit_error *error)
{
    return sbit_loss_find(sbit_graph_ctx(graph), "mse")
        ->build(graph, options, output, target, loss, error);
}

/* mse again: what fails leaves *loss as it was. */
static sbit_status own_loss_kept(sbit_graph *graph, const sbit_options *options, sbit_value_id output,
                                 sbit_value_id target, sbit_value_id *loss, sbit_error *error)
{
    loss->idx = 12345;
    const sbit_status status = own_loss(graph, options, output, target, loss, error);
    CHECK_EQ_I64(loss->idx == 12345, status != SBIT_OK);
    return status;
}

/* Wherever memory ends while a trainer of a small network is made (with a loss of the user's, unless
 * NULL, and desc's number of teachers), no session, graph or value is left. */
static void create_without_memory(sbit_train_desc desc, const sbit_loss_row *row)
{
    bool more = true;
    for (int64_t n = 1; more; n++) {
        test_heap heap = {0, 0, 0, 0};
        sbit_ctx_desc ctx_desc;
        sbit_ctx *ctx = NULL;
        sbit_graph *graphs[3];
        sbit_trainer *t = NULL;
        sbit_error error;
        memset(&ctx_desc, 0, sizeof ctx_desc);
        ctx_desc.allocator = test_heap_allocator(&heap);
        CHECK(sbit_ctx_create(&ctx_desc, &ctx, &error) == SBIT_OK);
        CHECK(row == NULL || sbit_loss_register(ctx, row, &error) == SBIT_OK);
        for (size_t k = 0; k <= desc.teacher_count; k++) {
            graphs[k] = small_network(ctx, 3 + k);
        }
        desc.teachers = graphs + 1;
        heap.fail_at = heap.count + n;
        const sbit_status status = sbit_trainer_create(graphs[0], &desc, &t, &error);
        more = heap.count >= heap.fail_at;
        CHECK_EQ_I64(status, more ? SBIT_ERR_OUT_OF_MEMORY : SBIT_OK);
        sbit_trainer_destroy(t);
        for (size_t k = 0; k <= desc.teacher_count; k++) {
            sbit_graph_destroy(graphs[k]);
        }
        sbit_ctx_destroy(ctx);
        CHECK_EQ_I64(heap.live_bytes, 0);
    }
}

TEST(losses_leave_their_output_alone_when_they_fail)
{
    const sbit_loss_row row = {{"kept", "as mse", 0, sbit_loss_find(NULL, "mse")->head.keys, 1}, true, own_loss_kept};
    sbit_train_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.loss = "kept";
    desc.loss_options = "RELATIVE: true";
    create_without_memory(desc, &row);
}

static size_t own_bytes(const sbit_optimizer_call *call)
{
    return (size_t)call->count; /* not needed: zeroed memory is checked */
}

static sbit_status own_update(void *state, const sbit_optimizer_call *call, const float *gradient,
                              float *parameter, sbit_error *error)
{
    const float step = call->learning_rate * (float)sbit_options_float(call->options, "FACTOR");
    (void)error;
    for (int64_t i = 0; i < call->count; i++) {
        if (((uint8_t *)state)[i]++ != (uint8_t)(call->step - 1)) {
            return SBIT_ERR_STATE;
        }
        parameter[i] -= gradient[i] > 0.0f ? step : gradient[i] < 0.0f ? -step : 0.0f;
    }
    return SBIT_OK;
}

static double own_rate(const sbit_options *options, int64_t step, int64_t total)
{
    (void)options;
    return step < total / 2 ? 1.0 : 0.5;
}

TEST(rows_from_outside)
{
    static const sbit_key keys[] = {{"FACTOR", SBIT_KEY_FLOAT, "1", 0, 10, NULL, "of the step"}};
    static const sbit_loss_row loss = {{"own_loss", "as mse", 0, NULL, 0}, true, own_loss};
    static const sbit_optimizer_row optimizer = {
        {"signs", "by the gradient's sign", 0, keys, 1}, own_bytes, own_update};
    static const sbit_rate_row rate = {{"halves", "full, then half", 0, NULL, 0}, own_rate};
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    static float wanted[SMALL_COUNT * 3];
    sbit_train_desc desc;
    sbit_fit_desc fit;
    sbit_feed_desc data;
    sbit_feed feed;
    sbit_error error;
    sbit_trainer *t = NULL;
    loop_seen seen;
    small_data_make(ctx, d);
    for (int i = 0; i < SMALL_COUNT * 3; i++) {
        wanted[i] = (float)(i % 3);
    }
    const sbit_tensor like = build_like(SBIT_F32, 2, SMALL_COUNT, 3, 0, wanted);
    CHECK(sbit_loss_register(ctx, &loss, &error) == SBIT_OK);
    CHECK(sbit_loss_register(ctx, &loss, &error) == SBIT_ERR_DUPLICATE);
    CHECK(sbit_optimizer_register(ctx, &optimizer, &error) == SBIT_OK);
    CHECK(sbit_rate_register(ctx, &rate, &error) == SBIT_OK);
    memset(&desc, 0, sizeof desc);
    memset(&fit, 0, sizeof fit);
    memset(&data, 0, sizeof data);
    memset(&seen, 0, sizeof seen);
    data.inputs = &d->inputs;
    data.targets = &like;
    data.input_count = data.target_count = 1;
    desc.loss = "own_loss";
    desc.optimizer = "signs";
    desc.optimizer_options = "FACTOR: 2";
    desc.learning_rate = 0.005f;
    fit.epochs = 6;
    fit.batch = 35;
    fit.micro = 20;
    fit.rate = "halves";
    fit.after_epoch = loop_epoch;
    fit.user = &seen;
    if (CHECK(sbit_feed_of_tensors(ctx, &data, &feed, &error) == SBIT_OK) &&
        CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK &&
                      sbit_trainer_fit(t, &feed, &fit, NULL, &error) == SBIT_OK,
                  "%s", error.message)) {
        CHECK_MSG(seen.last < seen.first, "%g, then %g", seen.first, seen.last);
    }
    sbit_trainer_destroy(t);
    sbit_feed_close(&feed);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* ---- what is frozen, and what a checkpoint keeps */

static sbit_status refusing_update(void *state, const sbit_optimizer_call *call,
                                   const float *gradient, float *parameter, sbit_error *error)
{
    (void)state;
    (void)gradient;
    (void)parameter;
    (void)error;
    return strcmp(call->name, "c1.weight") == 0 ? SBIT_OK : SBIT_ERR_STATE;
}

/* Of several parameters whose update fails, the first is named, whatever thread was last. */
TEST(the_first_failed_update_is_named)
{
    static const sbit_optimizer_row optimizer = {
        {"refusing", "fails", 0, NULL, 0}, own_bytes, refusing_update};
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_error error;
    sbit_trainer *t = NULL;
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    desc.optimizer = "refusing";
    CHECK(sbit_optimizer_register(ctx, &optimizer, &error) == SBIT_OK);
    if (CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message)) {
        CHECK(sbit_trainer_step(t, &d->batch, NULL, &error) == SBIT_ERR_STATE);
        CHECK(strcmp(sbit_trainer_parameter(t, 0).name, "c1.weight") == 0);
        CHECK_CONTAINS(error.message, sbit_trainer_parameter(t, 1).name);
    }
    sbit_trainer_destroy(t);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

static float *parameter_copy(const sbit_trainer *t, const char *name)
{
    for (size_t i = 0; i < sbit_trainer_parameter_count(t); i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(t, i);
        if (strcmp(p.name, name) == 0) {
            float *copy = (float *)malloc(sbit_tensor_bytes(&p.data));
            memcpy(copy, p.data.data, sbit_tensor_bytes(&p.data));
            return copy;
        }
    }
    CHECK_MSG(false, "no parameter '%s'", name);
    return (float *)calloc(1 << 16, 1);
}

/* Frozen parameters and statistics stay as they are; with frozen statistics the gradients are those
 * of inference; rate, masks and what is frozen go through a checkpoint. */
TEST(frozen_parts_stay)
{
    const char *path = SBIT_TEST_TMP "/frozen.checkpoint";
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_train_report report, fixed;
    sbit_error error;
    sbit_trainer *t = NULL, *other = NULL;
    uint8_t keep[4 * 2 * 9];
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    memset(keep, 1, sizeof keep);
    keep[5] = 0;
    desc.learning_rate = 0.1f;
    desc.optimizer_options = "MOMENTUM: 0.9";
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
    CHECK(sbit_trainer_step(t, &d->batch, NULL, &error) == SBIT_OK);
    CHECK_EQ_I64((int64_t)sbit_trainer_freeze(t, "c*.weight", true), 2);
    CHECK_EQ_I64((int64_t)sbit_trainer_freeze(t, "nothing*", true), 0);
    CHECK(sbit_trainer_parameter(t, 0).frozen);
    sbit_trainer_freeze_statistics(t, true);
    CHECK(sbit_trainer_set_mask(t, "c1.weight", keep, &error) == SBIT_OK);
    CHECK(sbit_trainer_store(t, graph, &error) == SBIT_OK); /* with the statistics of one step */
    const sbit_value_id mean = sbit_graph_find_value(graph, "n1.running_mean");
    const float before = ((const float *)sbit_graph_value(graph, mean)->constant.data)[0];
    desc.fixed_statistics = true;
    CHECK(sbit_trainer_create(graph, &desc, &other, &error) == SBIT_OK);
    CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
    CHECK(sbit_trainer_backward(other, &d->batch, &fixed, &error) == SBIT_OK);
    CHECK_NEAR(report.loss, fixed.loss, 1e-6);
    for (size_t i = 0; i < sbit_trainer_parameter_count(t); i++) {
        const sbit_train_parameter a = sbit_trainer_parameter(t, i);
        const sbit_train_parameter b = sbit_trainer_parameter(other, i);
        CHECK_MSG(relative_norm(a.gradient, b.gradient, sbit_tensor_count(&a.data)) < 1e-5, "%s",
                  a.name);
    }
    sbit_trainer_destroy(other);
    float *c1 = parameter_copy(t, "c1.weight"), *fc = parameter_copy(t, "fc.weight");
    sbit_trainer_set_rate(t, 0.03);
    CHECK(sbit_trainer_update(t, NULL, &error) == SBIT_OK);
    CHECK(sbit_trainer_save(t, path, &error) == SBIT_OK);
    float *c1_after = parameter_copy(t, "c1.weight"), *fc_after = parameter_copy(t, "fc.weight");
    CHECK(memcmp(c1, c1_after, 4 * 2 * 9 * sizeof(float)) == 0);
    CHECK(memcmp(fc, fc_after, 3 * 4 * sizeof(float)) != 0);
    CHECK(sbit_trainer_store(t, graph, &error) == SBIT_OK);
    CHECK(((const float *)sbit_graph_value(graph, mean)->constant.data)[0] == before);
    desc.fixed_statistics = false; /* a new one goes on as the old one does */
    CHECK(sbit_trainer_create(graph, &desc, &other, &error) == SBIT_OK);
    CHECK_MSG(sbit_trainer_load(other, path, &error) == SBIT_OK, "%s", error.message);
    CHECK(sbit_trainer_parameter(other, 0).frozen);
    for (int k = 0; k < 2; k++) {
        sbit_trainer *one = k == 0 ? t : other;
        CHECK_EQ_I64((int64_t)sbit_trainer_freeze(one, "c*.weight", false), 2);
        CHECK(sbit_trainer_step(one, &d->batch, &report, &error) == SBIT_OK);
        CHECK_NEAR(report.learning_rate, 0.03, 1e-9);
    }
    for (size_t i = 0; i < sbit_trainer_parameter_count(t); i++) {
        const sbit_train_parameter a = sbit_trainer_parameter(t, i);
        const sbit_train_parameter b = sbit_trainer_parameter(other, i);
        CHECK_MSG(memcmp(a.data.data, b.data.data, sbit_tensor_bytes(&a.data)) == 0, "%s", a.name);
    }
    CHECK(((const float *)sbit_trainer_parameter(other, 0).data.data)[5] == 0.0f);
    free(c1);
    free(fc);
    free(c1_after);
    free(fc_after);
    sbit_trainer_destroy(t);
    sbit_trainer_destroy(other);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* ---- averages, mixup, the best model, pruning while training, distillation of features */

/* The average is what is stored; swapped in, it is what the trainer runs on. */
TEST(averages_of_the_weights)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_error error;
    sbit_trainer *t = NULL;
    float mean[12];
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    desc.learning_rate = 0.1f;
    desc.ema = 0.75f;
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
    float *w = parameter_copy(t, "fc.weight");
    memcpy(mean, w, sizeof mean);
    free(w);
    for (int step = 0; step < 4; step++) {
        CHECK(sbit_trainer_step(t, &d->batch, NULL, &error) == SBIT_OK);
        w = parameter_copy(t, "fc.weight");
        for (int i = 0; i < 12; i++) {
            mean[i] = 0.75f * mean[i] + 0.25f * w[i];
        }
        free(w);
    }
    CHECK(sbit_trainer_store(t, graph, &error) == SBIT_OK);
    const sbit_value_id id = sbit_graph_find_value(graph, "fc.weight");
    const float *stored = (const float *)sbit_graph_value(graph, id)->constant.data;
    for (int i = 0; i < 12; i++) {
        CHECK_NEAR((double)stored[i], (double)mean[i], 1e-6);
    }
    for (int k = 0; k < 2; k++) { /* in place, then back */
        sbit_trainer_swap_average(t);
        w = parameter_copy(t, "fc.weight");
        CHECK((fabsf(w[0] - mean[0]) < 1e-6f) == (k == 0));
        free(w);
    }
    sbit_trainer_destroy(t);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

static sbit_status scores(sbit_trainer *t, const sbit_train_report *report, void *user,
                          double *score, sbit_error *error)
{
    static const double list[] = {0.3, 0.5, 0.4, 0.45, 0.2, 0.9};
    float **kept = (float **)user;
    (void)error;
    *score = list[report->epoch];
    if (report->epoch == 1) {
        free(*kept);
        *kept = parameter_copy(t, "fc.weight");
    }
    return SBIT_OK;
}

static sbit_status stop_at_epoch(sbit_trainer *t, const sbit_train_report *r, void *user,
                                 sbit_error *error)
{
    (void)t;
    (void)user;
    (void)error;
    return r->epoch == 2 ? SBIT_ERR_CANCELLED : SBIT_OK;
}

/* Behind the last step of the second epoch, before its score. */
static sbit_status stop_before_score(sbit_trainer *t, const sbit_train_report *r, void *user,
                                     sbit_error *error)
{
    (void)t;
    (void)user;
    (void)error;
    return r->step == 2 * ((SMALL_COUNT + 15) / 16) ? SBIT_ERR_CANCELLED : SBIT_OK;
}

/* Ends after two epochs that were not better, with the best epoch's weights - also when it was
 * interrupted and resumed on the way. */
TEST(the_best_epoch_is_kept)
{
    const char *path = SBIT_TEST_TMP "/best.checkpoint";
    for (int broken = 0; broken < 3; broken++) {
        sbit_ctx *ctx = train_ctx();
        sbit_graph *graph = small_network(ctx, 3);
        small_data *d = (small_data *)malloc(sizeof *d);
        float *kept = NULL;
        sbit_train_desc desc;
        sbit_train_report report;
        sbit_fit_desc fit;
        sbit_error error;
        sbit_trainer *t = NULL;
        small_data_make(ctx, d);
        memset(&desc, 0, sizeof desc);
        memset(&fit, 0, sizeof fit);
        desc.learning_rate = 0.05f;
        desc.ema = 0.5f;
        fit.epochs = 6;
        fit.batch = 16;
        fit.patience = 2;
        fit.measure = scores;
        fit.user = &kept;
        fit.mixup = 0.4f;
        CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
        if (broken > 0) {
            fit.after_epoch = broken == 1 ? stop_at_epoch : NULL;
            fit.after_step = broken == 2 ? stop_before_score : NULL;
            CHECK(sbit_trainer_fit(t, &d->feed, &fit, &report, &error) == SBIT_ERR_CANCELLED);
            CHECK(sbit_trainer_save(t, path, &error) == SBIT_OK);
            sbit_trainer_destroy(t);
            CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
            CHECK_MSG(sbit_trainer_load(t, path, &error) == SBIT_OK, "%s", error.message);
            fit.after_epoch = NULL;
            fit.after_step = NULL;
            fit.resume = true;
        }
        CHECK_MSG(sbit_trainer_fit(t, &d->feed, &fit, &report, &error) == SBIT_OK, "%s",
                  error.message);
        CHECK_EQ_I64(report.epoch, 3);
        CHECK_EQ_I64(report.best_epoch, 1);
        CHECK(report.best == 0.5);
        float *now = parameter_copy(t, "fc.weight");
        CHECK(kept != NULL && memcmp(now, kept, 12 * sizeof(float)) == 0);
        free(now);
        free(kept);
        sbit_trainer_destroy(t);
        sbit_feed_close(&d->feed);
        free(d);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
    }
}

static const char sparse_config[] = "SPARSER: {TYPE: unstructured, STRATEGY: l1norm, RATIO: 0.5, "
                                    "SCHEDULE: agp}\n";

static int64_t zeros_of(const sbit_trainer *t, const char *name, int64_t count)
{
    float *w = parameter_copy(t, name);
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++) {
        zeros += w[i] == 0.0f ? 1 : 0;
    }
    free(w);
    return zeros;
}

/* Each epoch is worse than the one before it, as when masks grow. */
static sbit_status falls(sbit_trainer *t, const sbit_train_report *r, void *user, double *score,
                         sbit_error *error)
{
    (void)t;
    (void)user;
    (void)error;
    *score = 1.0 - 0.1 * (double)r->epoch;
    return SBIT_OK;
}

/* Half of every weight is masked step by step and stays zero under momentum and decay; a lottery
 * ticket has the first weights, where they are kept. The best epoch is one with the last masks. */
TEST(pruned_while_training)
{
    for (int rewind = 0; rewind < 2; rewind++) {
        sbit_ctx *ctx = train_ctx();
        sbit_graph *graph = small_network(ctx, 3);
        small_data *d = (small_data *)malloc(sizeof *d);
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        sbit_train_desc desc;
        sbit_train_report report;
        sbit_fit_desc fit;
        sbit_error error;
        sbit_trainer *t = NULL;
        small_data_make(ctx, d);
        memset(&desc, 0, sizeof desc);
        memset(&fit, 0, sizeof fit);
        desc.learning_rate = 0.05f;
        desc.weight_decay = 1e-3f;
        desc.optimizer_options = "MOMENTUM: 0.9";
        fit.epochs = rewind == 1 ? 3 : 4;
        fit.batch = 16;
        fit.measure = rewind == 1 ? NULL : falls;
        fit.patience = 2;
        fit.rewind = rewind == 1;
        fit.sparse_end = rewind == 1 ? 14 : 0; /* the last step: nothing is trained after it */
        CHECK_MSG(sbit_sconfig_read(ctx, sparse_config, sizeof sparse_config - 1, &config,
                                    &error) == SBIT_OK,
                  "%s", error.message);
        CHECK_MSG(sbit_sparse_create(graph, config, &sparse, &error) == SBIT_OK, "%s",
                  error.message);
        CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
        fit.sparse = sparse;
        float *first = parameter_copy(t, "c1.weight");
        CHECK_MSG(sbit_trainer_fit(t, &d->feed, &fit, &report, &error) == SBIT_OK, "%s",
                  error.message);
        CHECK_EQ_I64(report.best_epoch, rewind == 1 ? -1 : 2); /* step 13 of 20 is in the third */
        CHECK_EQ_I64(zeros_of(t, "c1.weight", 72), 37); /* Sparsebit: floor(ratio n) + 1 */
        CHECK_EQ_I64(zeros_of(t, "fc.weight", 12), 7);
        float *last = parameter_copy(t, "c1.weight");
        int64_t near = 0, kept = 0;
        for (int i = 0; i < 72; i++) { /* one step from the first, or fifteen */
            kept += last[i] != 0.0f ? 1 : 0;
            near += last[i] != 0.0f && fabsf(last[i] - first[i]) < 0.02f ? 1 : 0;
        }
        CHECK_MSG((near == kept) == (rewind == 1), "%d of %d near", (int)near, (int)kept);
        free(first);
        free(last);
        sbit_trainer_destroy(t);
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        sbit_feed_close(&d->feed);
        free(d);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
    }
}

/* v = Relu(x or y), logits = Relu(x) w; the dims of x and y. */
static void features_open(build *b, const char *x_dims, const char *y_dims, bool from_y)
{
    build_begin(b, 17);
    const sbit_value_id x = build_input(b, "x", SBIT_F32, x_dims), y = build_input(b, "y", SBIT_F32, y_dims);
    sbit_value_id v = build_node(b, "Relu", "v", from_y ? &y : &x, 1, NULL, 0);
    sbit_value_id u = build_node(b, "Relu", "u", from_y ? &x : &y, 1, NULL, 0);
    build_output(b, build_binary(b, "MatMul", "logits", from_y ? u : v, build_weights(b, "w", "4,1", 3)));
    build_output(b, from_y ? v : u);
}

/* Dims that are open in both are one by their name or by the input they come from, not because they are open. */
TEST(features_of_open_shapes)
{
    static const struct {
        const char *x, *y;
        bool from_y, shared;
    } teachers[] = {{"A,4", "B,4", false, true}, {"M,4", "K,4", false, true}, {"A,4", "B,4", true, false},
                    {"M,4", "K,4", true, false}, {"?,4", "K,4", false, false}};
    for (size_t i = 0; i < sizeof teachers / sizeof teachers[0]; i++) {
        build student, teacher;
        sbit_train_desc desc;
        sbit_train_feature feature = {"v", NULL, 0.0f};
        sbit_error error;
        sbit_trainer *t = NULL;
        memset(&desc, 0, sizeof desc);
        memset(&error, 0, sizeof error);
        features_open(&student, "A,4", "B,4", false);
        features_open(&teacher, teachers[i].x, teachers[i].y, teachers[i].from_y);
        desc.teachers = &teacher.graph;
        desc.teacher_count = 1;
        desc.features = &feature;
        desc.feature_count = 1;
        CHECK_STATUS(sbit_trainer_create(student.graph, &desc, &t, &error), teachers[i].shared ? SBIT_OK : SBIT_ERR_NOT_FOUND,
                     error);
        sbit_trainer_destroy(t);
        t = NULL;
        feature.student = "logits"; /* [A,1] would learn from each of four */
        feature.teacher = "v";
        if (CHECK(sbit_trainer_create(student.graph, &desc, &t, &error) == SBIT_ERR_SHAPE)) {
            CHECK_CONTAINS(error.message, "'logits' is float32[A,1] and cannot learn from teacher 0's 'v', float32[");
        }
        sbit_trainer_destroy(t);
        build_end(&student);
        build_end(&teacher);
    }
}

/* logits = (x transposed twice) w; v, in between, is [4, N]. */
static void turned_open(build *b, const char *dims, const char *weights, bool given)
{
    build_begin(b, 17);
    const sbit_value_id x = build_input(b, "x", SBIT_F32, dims), w = build_weights(b, "w", weights, 3);
    const sbit_value_id v = build_node(b, "Transpose", "v", &x, 1, NULL, 0);
    build_output(b, build_binary(b, "MatMul", "logits", build_node(b, "Transpose", "back", &v, 1, NULL, 0), w));
    if (given) {
        build_do(b, sbit_graph_set_input(b->graph, w, true, &b->error), "w");
    }
}

/* An epoch of 10 samples in batches of 4 ends with one of 2, unless the model or a teacher has a fixed
 * batch: not for a feature that begins with another dim, nor for a weight that may be given. */
TEST(short_batches_are_left_out_for_fixed_models_only)
{
    static const struct {
        const char *x, *second;
        bool given, feature;
        int64_t steps;
    } cases[] = {{"N,4", NULL, false, false, 3}, {"4,4", NULL, false, false, 2}, {"N,4", "N,4", false, true, 3},
                 {"N,4", "4,4", false, false, 2}, {"N,4", NULL, true, false, 3}};
    float data[10 * 4] = {0.0f};
    int64_t labels[10] = {0};
    const sbit_tensor x = build_tensor(SBIT_F32, "10,4", data), y = build_tensor(SBIT_I64, "10", labels);
    for (int i = 0; i < 40; i++) {
        data[i] = (float)(i % 7) - 3.0f;
        labels[i / 4] = i / 4 % 3;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const sbit_train_feature feature = {"v", NULL, 0.0f};
        build student, teacher[2];
        sbit_graph *graphs[2];
        sbit_feed feed;
        sbit_feed_desc feed_desc;
        sbit_train_desc desc;
        sbit_fit_desc fit;
        sbit_train_report report;
        sbit_error error;
        sbit_trainer *t = NULL;
        memset(&feed_desc, 0, sizeof feed_desc);
        memset(&desc, 0, sizeof desc);
        memset(&fit, 0, sizeof fit);
        memset(&report, 0, sizeof report);
        memset(&error, 0, sizeof error);
        turned_open(&student, cases[i].x, "4,3", cases[i].given);
        for (int k = 0; k < 2; k++) {
            turned_open(&teacher[k], k == 1 && cases[i].second != NULL ? cases[i].second : "N,4", "4,3", false);
            graphs[k] = teacher[k].graph;
        }
        feed_desc.inputs = &x;
        feed_desc.targets = &y;
        feed_desc.input_count = feed_desc.target_count = 1;
        desc.learning_rate = 0.1f;
        desc.teachers = graphs;
        desc.teacher_count = cases[i].second != NULL ? 2 : 0;
        desc.features = &feature;
        desc.feature_count = cases[i].feature ? 1 : 0;
        fit.batch = 4;
        CHECK_OK(sbit_feed_of_tensors(student.ctx, &feed_desc, &feed, &error), error);
        CHECK_OK(sbit_trainer_create(student.graph, &desc, &t, &error), error);
        CHECK_OK(sbit_trainer_fit(t, &feed, &fit, &report, &error), error);
        CHECK_EQ_I64(report.step, cases[i].steps);
        sbit_trainer_destroy(t);
        sbit_feed_close(&feed);
        build_end(&student);
        build_end(&teacher[0]);
        build_end(&teacher[1]);
    }
}

TEST(teachers_without_memory_leave_nothing)
{
    static const sbit_train_feature feature = {"*", NULL, 1.0f};
    sbit_train_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.teacher_count = 2;
    desc.features = &feature;
    desc.feature_count = 1;
    create_without_memory(desc, NULL);
}

/* A second teacher of other classes or types is refused at once, and named. */
TEST(teachers_say_what_the_model_says)
{
    static const char *const says[2] = {"'logits' is float32[N,3] and cannot learn from teacher 1's 'logits', float32[N,5]",
                                        "'logits' is float32[N,3] and cannot learn from teacher 1's 'top', int64["};
    for (int k = 0; k < 2; k++) {
        build student, teacher[2];
        sbit_train_desc desc;
        sbit_error error;
        sbit_trainer *t = NULL;
        memset(&desc, 0, sizeof desc);
        memset(&error, 0, sizeof error);
        turned_open(&student, "N,4", "4,3", false);
        turned_open(&teacher[0], "N,4", "4,3", false);
        if (k == 0) {
            turned_open(&teacher[1], "N,4", "4,5", false);
        } else {
            build_begin(&teacher[1], 17);
            const sbit_value_id x = build_input(&teacher[1], "x", SBIT_F32, "N,4");
            build_output(&teacher[1], build_node(&teacher[1], "ArgMax", "top", &x, 1, NULL, 0));
        }
        sbit_graph *const graphs[2] = {teacher[0].graph, teacher[1].graph};
        desc.teachers = graphs;
        desc.teacher_count = 2;
        if (CHECK(sbit_trainer_create(student.graph, &desc, &t, &error) == SBIT_ERR_SHAPE)) {
            CHECK_CONTAINS(error.message, says[k]);
        }
        sbit_trainer_destroy(t);
        build_end(&student);
        build_end(&teacher[0]);
        build_end(&teacher[1]);
    }
}

/* Two teachers: the slopes are the means of those that each gives alone, and so is the loss, whatever
 * their order; features are the first one's. */
TEST(several_teachers)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    sbit_graph *both[4] = {small_network(ctx, 4), small_network(ctx, 5), NULL, NULL};
    static const sbit_train_feature feature = {"*", NULL, 1.0f};
    small_data *d = (small_data *)malloc(sizeof *d);
    double loss[4], apart[2] = {0.0, 0.0};
    float slope[4][12] = {{0.0f}};
    sbit_train_desc desc;
    sbit_train_report report;
    sbit_train_parameter w;
    sbit_error error;
    sbit_trainer *t = NULL;
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    desc.fixed_statistics = true;
    desc.distill = 0.75f;
    both[2] = both[0];
    for (int k = 0; k < 4; k++) { /* the first, the second, both, both from the other end */
        desc.teachers = both + (k == 3 ? 1 : k % 2);
        desc.teacher_count = k < 2 ? 1 : 2;
        CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message);
        CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
        for (size_t i = 0; i < sbit_trainer_parameter_count(t); i++) {
            w = sbit_trainer_parameter(t, i);
            if (strcmp(w.name, "fc.weight") == 0) {
                memcpy(slope[k], w.gradient, sizeof slope[k]);
            }
        }
        loss[k] = report.loss;
        sbit_trainer_destroy(t);
    }
    CHECK_NEAR(loss[2], 0.5 * (loss[0] + loss[1]), 1e-6);
    CHECK_NEAR(loss[3], loss[2], 1e-6);
    CHECK(fabs(loss[0] - loss[1]) > 1e-4);
    for (int i = 0; i < 12; i++) {
        CHECK_NEAR((double)slope[2][i], 0.5 * ((double)slope[0][i] + (double)slope[1][i]), 1e-5);
        CHECK_NEAR((double)slope[3][i], (double)slope[2][i], 1e-5);
    }
    desc.features = &feature;
    desc.feature_count = 1;
    for (int k = 0; k < 3; k++) { /* the first alone, then in front, then behind */
        desc.teachers = both + (k == 2 ? 1 : 0);
        desc.teacher_count = k == 0 ? 1 : 2;
        CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
        CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
        if (k == 0) {
            apart[0] = report.loss - loss[0];
        } else {
            apart[1] = report.loss - loss[2];
            CHECK((fabs(apart[1] - apart[0]) < 1e-5) == (k == 1));
        }
        sbit_trainer_destroy(t);
    }
    desc.teachers = both + 2; /* and one that is NULL */
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_INVALID_ARGUMENT);
    CHECK_CONTAINS(error.message, "teacher 1 is NULL");
    desc.teachers = both;
    desc.distill = 1.5f;
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_INVALID_ARGUMENT);
    CHECK_CONTAINS(error.message, "distill is 1.5, not 0 to 1");
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(both[0]);
    sbit_graph_destroy(both[1]);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* A student learns a teacher's inner value; the slope of slimming; class weights as PyTorch. */
TEST(features_slimming_class_weights)
{
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3), *teacher = small_network(ctx, 4);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_train_report plain, report;
    sbit_error error;
    sbit_trainer *t = NULL;
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    /* the loss without features, and the inner values of both networks */
    char inner[100];
    const sbit_node *fc = sbit_graph_node(graph, sbit_graph_find_node(graph, "fc"));
    snprintf(inner, sizeof inner, "%s", sbit_graph_value(graph, fc->inputs[0])->name);
    sbit_train_feature named = {inner, inner, 2.0f};
    desc.teachers = &teacher;
    desc.teacher_count = 1;
    desc.fixed_statistics = true;
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
    CHECK(sbit_trainer_backward(t, &d->batch, &plain, &error) == SBIT_OK);
    sbit_trainer_destroy(t);
    desc.features = &named;
    desc.feature_count = 1;
    CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message);
    CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
    double distance = 0, power = 0;
    sbit_session *sessions[2];
    for (int k = 0; k < 2; k++) {
        sbit_session_desc plain_desc;
        sbit_graph *g = k == 0 ? graph : teacher;
        const sbit_value_id id = sbit_graph_find_value(g, inner);
        memset(&plain_desc, 0, sizeof plain_desc);
        plain_desc.outputs = &id;
        plain_desc.output_count = 1;
        CHECK(sbit_session_create(g, &plain_desc, &sessions[k], &error) == SBIT_OK);
        CHECK(sbit_session_set_input(sessions[k], NULL, &d->inputs, &error) == SBIT_OK);
        CHECK(sbit_session_run(sessions[k], &error) == SBIT_OK);
    }
    const sbit_tensor *a = &sbit_session_output(sessions[0], 0)->tensor;
    const sbit_tensor *b = &sbit_session_output(sessions[1], 0)->tensor;
    for (int64_t i = 0; i < sbit_tensor_count(a); i++) {
        const double off =
            (double)((const float *)a->data)[i] - (double)((const float *)b->data)[i];
        distance += off * off;
        power += (double)((const float *)b->data)[i] * (double)((const float *)b->data)[i];
    }
    CHECK_NEAR(report.loss, plain.loss + 2.0 * distance / power, 1e-5);
    sbit_session_destroy(sessions[0]);
    sbit_session_destroy(sessions[1]);
    sbit_trainer_destroy(t);
    /* values of one name and shape, by a glob: that one alone as before, all of them share the weight */
    named.teacher = NULL;
    CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message);
    CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
    CHECK_NEAR(report.loss, plain.loss + 2.0 * distance / power, 1e-5);
    sbit_trainer_destroy(t);
    double total = 0, shared = 0;
    named.weight = 1.0f;
    for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
        const sbit_value_id id = {i};
        const sbit_value_info *value = sbit_graph_value(graph, id);
        named.student = value != NULL ? value->name : "";
        if (value != NULL && sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK) {
            CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
            total += report.loss - plain.loss;
            shared += 1;
            sbit_trainer_destroy(t);
        }
    }
    CHECK(shared >= 6);
    named.student = "*";
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
    CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
    CHECK_NEAR(report.loss, plain.loss + total / shared, 1e-5);
    sbit_trainer_destroy(t);
    named.student = "no*thing";
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "one shape in the model and the teacher");
    named.teacher = inner;
    named.student = "nothing";
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "nothing");
    named.student = inner;
    named.weight = -1.0f;
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_INVALID_ARGUMENT);
    named.weight = 0.0f;
    named.student = named.teacher = NULL;
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_INVALID_ARGUMENT);
    named.student = inner;
    desc.teacher_count = 0;
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_ERR_INVALID_ARGUMENT);
    CHECK_CONTAINS(error.message, "teacher");
    /* one step of SGD with and without slimming differs by rate * slim * sign */
    float *scale[2];
    for (int k = 0; k < 2; k++) {
        memset(&desc, 0, sizeof desc);
        desc.learning_rate = 0.5f;
        desc.slim = k == 0 ? 0.0f : 0.01f;
        CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
        CHECK(sbit_trainer_step(t, &d->batch, NULL, &error) == SBIT_OK);
        scale[k] = parameter_copy(t, "n1.weight");
        sbit_trainer_destroy(t);
    }
    for (int i = 0; i < 4; i++) { /* scales begin as 1 */
        CHECK_NEAR((double)(scale[0][i] - scale[1][i]), 0.005, 1e-6);
    }
    free(scale[0]);
    free(scale[1]);
    /* PyTorch: sum of w[y] nll / sum of w[y]: from the losses of single classes; the mean of those
     * that are not ignored */
    double single[3], weight[3] = {1.0, 2.5, 0.0}, sum = 0, all = 0;
    memset(&desc, 0, sizeof desc);
    desc.fixed_statistics = true;
    for (int k = 0; k < 5; k++) {
        static const char *const options[] = {"WEIGHTS: [1, 0, 0]", "WEIGHTS: [0, 1, 0]",
                                              "WEIGHTS: [0, 0, 1]", "WEIGHTS: [1, 2.5, 0]",
                                              "IGNORE: 2"};
        desc.loss_options = options[k];
        CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message);
        CHECK(sbit_trainer_backward(t, &d->batch, &report, &error) == SBIT_OK);
        if (k < 3) {
            const double count = (SMALL_COUNT + 2 - k) / 3;
            single[k] = report.loss;
            sum += weight[k] * count * single[k];
            all += weight[k] * count;
        } else if (k == 3) {
            CHECK_NEAR(report.loss, sum / all, 1e-6);
        } else {
            const double zeros = (SMALL_COUNT + 2) / 3, ones = (SMALL_COUNT + 1) / 3;
            CHECK_NEAR(report.loss, (zeros * single[0] + ones * single[1]) / (zeros + ones), 1e-6);
        }
        sbit_trainer_destroy(t);
    }
    desc.loss_options = "WEIGHTS: [1, 2]";
    CHECK(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK);
    CHECK(sbit_trainer_backward(t, &d->batch, NULL, &error) == SBIT_ERR_SHAPE);
    CHECK_CONTAINS(error.message, "3 classes, but 2 weights");
    sbit_trainer_destroy(t);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_graph_destroy(teacher);
    sbit_ctx_destroy(ctx);
}

/* One step of SGD by hand: w - rate factor (g + decay w), each parameter by the first group that matches. */
TEST(groups_have_rates_and_decay)
{
    static const sbit_train_group groups[] = {
        {"c2.weight", true, 0.0f, false}, {"fc.weight", false, 0.25f, false}, {"*.bias", false, 2.0f, true}};
    sbit_ctx *ctx = train_ctx();
    sbit_graph *graph = small_network(ctx, 3);
    small_data *d = (small_data *)malloc(sizeof *d);
    sbit_train_desc desc;
    sbit_error error;
    sbit_trainer *t = NULL;
    int seen[4] = {0, 0, 0, 0};
    small_data_make(ctx, d);
    memset(&desc, 0, sizeof desc);
    desc.learning_rate = 0.5f;
    desc.weight_decay = 0.125f;
    desc.optimizer_options = "MOMENTUM: 0";
    desc.groups = groups;
    desc.group_count = 3;
    CHECK_MSG(sbit_trainer_create(graph, &desc, &t, &error) == SBIT_OK, "%s", error.message);
    for (size_t i = 0; i < sbit_trainer_parameter_count(t); i++) { /* what a bias of 0 would hide */
        const sbit_train_parameter p = sbit_trainer_parameter(t, i);
        ((float *)p.data.data)[0] = 1.0f;
    }
    CHECK(sbit_trainer_backward(t, &d->batch, NULL, &error) == SBIT_OK);
    const size_t count = sbit_trainer_parameter_count(t);
    float before[16], gradient[16];
    for (size_t i = 0; i < count && i < 16; i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(t, i);
        before[i] = ((const float *)p.data.data)[0];
        gradient[i] = p.gradient != NULL ? p.gradient[0] : 0.0f;
    }
    CHECK(count <= 16 && sbit_trainer_update(t, NULL, &error) == SBIT_OK);
    for (size_t i = 0; i < count && i < 16; i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(t, i);
        const double now = (double)((const float *)p.data.data)[0], w = (double)before[i];
        const size_t length = strlen(p.name);
        const bool bias = length > 5 && strcmp(p.name + length - 5, ".bias") == 0;
        const int which = strcmp(p.name, "c2.weight") == 0 ? 0 : strcmp(p.name, "fc.weight") == 0 ? 1 : bias ? 2 : 3;
        static const double rate[4] = {0.0, 0.125, 1.0, 0.5}, decay[4] = {0.0, 0.125, 0.0, 0.125};
        seen[which]++;
        CHECK_MSG(fabs(now - (w - rate[which] * ((double)gradient[i] + decay[which] * w))) < 1e-6,
                  "%s: %.7g from %.7g, gradient %.7g", p.name, now, w, (double)gradient[i]);
    }
    CHECK(seen[1] == 1 && seen[2] >= 2 && seen[3] >= 2);
    sbit_trainer_destroy(t);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* Deviations of weights: He, Glorot; of so many numbers within 3 %. */
TEST(builder_weights_begin_as_he_or_xavier)
{
    static const int64_t dims[3] = {32, 8, 8};
    static const double expected[2][2] = {{0.0833333, 0.015625}, {0.0481125, 0.0217597}};
    const sbit_value_id none = {0};
    for (int k = 0; k < 2; k++) {
        sbit_ctx *ctx = train_ctx();
        sbit_graph *graph = NULL;
        sbit_conv_desc conv;
        sbit_error error;
        memset(&conv, 0, sizeof conv);
        conv.channels = 64; /* fans of 32 x 9 and 64 x 9; 64 x 64 and 128 */
        CHECK(sbit_graph_create(ctx, 17, &graph, &error) == SBIT_OK);
        sbit_builder b = sbit_builder_init(graph, 7, &error);
        b.xavier = k == 1;
        sbit_value_id x = sbit_builder_conv(&b, "c", sbit_builder_input(&b, "input", 3, dims), &conv);
        x = sbit_builder_linear(&b, "fc", sbit_builder_op(&b, "Flatten", x, none), 128);
        CHECK_MSG(sbit_builder_output(&b, "logits", x) == SBIT_OK, "%s", error.message);
        for (int layer = 0; layer < 2; layer++) {
            const sbit_value_info *w = sbit_graph_value(
                graph, sbit_graph_find_value(graph, layer == 0 ? "c.weight" : "fc.weight"));
            double sum = 0, squares = 0;
            const double n = (double)sbit_tensor_count(&w->constant);
            for (int64_t i = 0; i < sbit_tensor_count(&w->constant); i++) {
                const double v = (double)((const float *)w->constant.data)[i];
                sum += v;
                squares += v * v;
            }
            CHECK_NEAR(sqrt(squares / n) / expected[k][layer], 1.0, 0.03);
            CHECK_NEAR(sum / n / expected[k][layer], 0.0, 0.05);
        }
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
    }
}

/* Dampening: one step differs by rate * 2 dampening * (w - q(w)), q by hand. */
TEST(weights_are_dampened)
{
    static const char config_text[] =
        "PLACEMENT: generic\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: uniform, BIT: 4}, OBSERVER: "
        "{TYPE: MINMAX}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: uniform, BIT: 8}, OBSERVER: {TYPE: "
        "MINMAX}}\n";
    sbit_ctx *ctx = train_ctx();
    small_data *d = (small_data *)malloc(sizeof *d);
    float *before = NULL, *after[2] = {NULL, NULL};
    sbit_error error;
    small_data_make(ctx, d);
    for (int k = 0; k < 2; k++) {
        sbit_graph *graph = small_network(ctx, 3);
        sbit_qconfig *config = NULL;
        sbit_quant *quant = NULL;
        sbit_train_desc desc;
        sbit_trainer *t = NULL;
        memset(&desc, 0, sizeof desc);
        desc.learning_rate = 0.5f;
        desc.dampening = k == 0 ? 0.0f : 0.1f;
        if (CHECK_MSG(sbit_qconfig_read(ctx, config_text, strlen(config_text), &config, &error) ==
                              SBIT_OK &&
                          sbit_quant_create(graph, config, &quant, &error) == SBIT_OK &&
                          sbit_quant_calibrate(quant, &d->feed, &error) == SBIT_OK &&
                          sbit_quant_calc_qparams(quant, false, false, false, &error) == SBIT_OK &&
                          sbit_trainer_create_qat(quant, &desc, &t, &error) == SBIT_OK,
                      "%s", error.message)) {
            before = k == 0 ? parameter_copy(t, "fc.weight") : before;
            CHECK_MSG(sbit_trainer_step(t, &d->batch, NULL, &error) == SBIT_OK, "%s", error.message);
            after[k] = parameter_copy(t, "fc.weight");
        }
        sbit_trainer_destroy(t);
        sbit_quant_destroy(quant);
        sbit_qconfig_destroy(config);
        sbit_graph_destroy(graph);
    }
    for (int row = 0; before != NULL && after[1] != NULL && row < 3; row++) { /* fc: [3, 4] */
        float most = 0;
        for (int i = 0; i < 4; i++) {
            most = fabsf(before[row * 4 + i]) > most ? fabsf(before[row * 4 + i]) : most;
        }
        for (int i = 0; i < 4; i++) {
            const float s = 2.0f * most / 15.0f, w = before[row * 4 + i];
            const float r = nearbyintf(w / s), q = s * (r > 7 ? 7 : r < -8 ? -8 : r);
            const float want = fabsf(w - q) <= 0.5001f * s ? 0.5f * 2.0f * 0.1f * (w - q) : 0.0f;
            CHECK_NEAR((double)(after[0][row * 4 + i] - after[1][row * 4 + i]), (double)want, 1e-6);
        }
    }
    free(before);
    free(after[0]);
    free(after[1]);
    sbit_feed_close(&d->feed);
    free(d);
    sbit_ctx_destroy(ctx);
}
