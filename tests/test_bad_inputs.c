/* test_bad_inputs.c: what is broken gives a clear error: no crash, no hang, no leak, nothing half
 * written. Counts are printed.
 *
 * Damaged models (cut at every byte, every bit flipped) go through everything: read, import, infer,
 * simplify, export, session, two runs on random inputs and, for models made here, quantization. The
 * memory comes from an allocator with a limit, the time is limited too, and a crash ends only the
 * child process that works on one model.
 *
 *   SBIT_BAD_STRIDE   every how many-th damage of the ONNX backend's models is tried (default 61)
 *   SBIT_BAD_MODELS   only backend models whose path contains this
 *   SBIT_BAD_DAMAGE   only this damage, and in this process: for a debugger
 *   SPARSEBIT_CLI     another tool (such as one with sanitizers) than ../tools/sparsebit
 */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* fork, setitimer, opendir */
#endif
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#endif
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define TMP SBIT_TEST_TMP "/bad-"

enum {
    BAD_SECONDS = 10,        /* processor time for one damaged model; sanitizers are slow */
    BAD_LOOP_CALLS = 200000, /* what the progress callback allows a run */
    BAD_ELEMENTS = 1 << 14   /* inputs that are declared larger are not fed */
};
#define BAD_BYTES ((int64_t)64 << 20)

/* ---- the whole pipeline on one model in memory */

typedef enum bad_outcome {
    BAD_READ,
    BAD_INFER,
    BAD_SIMPLIFY,
    BAD_SESSION,
    BAD_FEED,
    BAD_RUN,
    BAD_NONE, /* it ran */
    BAD_OUTCOMES
} bad_outcome;
static const char *const bad_outcome_names[BAD_OUTCOMES] = {
    "read/import", "infer", "simplify", "session", "feed", "run", "ran"};

/* Shared by the parent and its child. */
typedef struct bad_shared {
    volatile int64_t at; /* the damage that is being tried */
    int64_t outcomes[BAD_OUTCOMES], leaks, silent, quantized;
} bad_shared;

typedef struct bad_work {
    test_heap heap;
    int64_t calls; /* of the progress callback */
    sbit_ctx *ctx;
    sbit_rng rng;
    bool quantize;
    bad_shared *shared;
    sbit_error error;
} bad_work;

static void *bad_alloc(size_t bytes, void *user)
{
    bad_work *work = (bad_work *)user;
    const bool fits = (int64_t)bytes >= 0 && (int64_t)bytes < BAD_BYTES - work->heap.live_bytes;
    return fits ? test_heap_alloc(bytes, &work->heap) : NULL;
}

static void bad_free(void *ptr, size_t bytes, void *user)
{
    test_heap_free(ptr, bytes, &((bad_work *)user)->heap);
}

static void *bad_realloc(void *ptr, size_t old_bytes, size_t new_bytes, void *user)
{
    void *moved = bad_alloc(new_bytes, user);
    if (moved != NULL && ptr != NULL) {
        memcpy(moved, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
        bad_free(ptr, old_bytes, user);
    }
    return moved;
}

static bool bad_progress(const char *what, int64_t done, int64_t total, void *user)
{
    (void)what, (void)done, (void)total;
    return ++((bad_work *)user)->calls < BAD_LOOP_CALLS;
}

static bool bad_begin(bad_work *work, bad_shared *shared, bool quantize)
{
    sbit_ctx_desc desc;
    memset(work, 0, sizeof *work);
    memset(&desc, 0, sizeof desc);
    work->shared = shared;
    work->quantize = quantize;
    desc.allocator.alloc_fn = bad_alloc;
    desc.allocator.realloc_fn = bad_realloc;
    desc.allocator.free_fn = bad_free;
    desc.allocator.user = work;
    desc.progress.progress_fn = bad_progress;
    desc.progress.user = work;
    desc.threads = 1;
    return CHECK_OK(sbit_ctx_create(&desc, &work->ctx, &work->error), work->error);
}

/* A tensor of the declared type with small random numbers; unknown dims become 2. False: too large,
 * or out of memory. */
static bool bad_tensor(bad_work *work, const sbit_type *type, sbit_tensor *out)
{
    static const sbit_str words[2] = {{"a", 1}, {"", 0}};
    int64_t dims[SBIT_MAX_RANK] = {2, 3}, count = 1;
    const sbit_dtype dtype = type->dtype == SBIT_UNDEFINED ? SBIT_F32 : type->dtype;
    const int32_t rank = type->rank < 0 ? 2 : type->rank;
    for (int32_t i = 0; i < rank; i++) {
        if (type->rank >= 0) {
            dims[i] = type->dims[i].symbol != 0 ? 2 : type->dims[i].value;
        }
        if (dims[i] < 0 || dims[i] > BAD_ELEMENTS || (count *= dims[i]) > BAD_ELEMENTS) {
            return false;
        }
    }
    if (sbit_tensor_alloc(work->ctx, dtype, rank, dims, out, NULL) != SBIT_OK) {
        return false;
    }
    const size_t bytes = sbit_tensor_bytes(out);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == SBIT_F32) {
            ((float *)out->data)[i] = sbit_rng_normal(&work->rng);
        } else if (dtype == SBIT_F64) {
            ((double *)out->data)[i] = (double)sbit_rng_normal(&work->rng);
        } else if (dtype == SBIT_STRING) {
            ((sbit_str *)out->data)[i] = words[sbit_rng_below(&work->rng, 2)];
        } else if (dtype == SBIT_F16) {
            ((uint16_t *)out->data)[i] = sbit_f32_to_f16(sbit_rng_normal(&work->rng));
        } else if (dtype == SBIT_I64) {
            ((int64_t *)out->data)[i] = (int64_t)sbit_rng_below(&work->rng, 4) - 1;
        } else if (dtype == SBIT_I32) {
            ((int32_t *)out->data)[i] = (int32_t)sbit_rng_below(&work->rng, 4) - 1;
        } else if ((size_t)i < bytes) {
            ((unsigned char *)out->data)[i] = (unsigned char)sbit_rng_below(&work->rng, 2);
        }
    }
    return true;
}

enum { BAD_INPUTS = 16 };

typedef struct bad_inputs { /* what is fed, until the runs are over */
    sbit_tensor tensors[BAD_INPUTS];
    sbit_value items[BAD_INPUTS]; /* of sequences and optionals: one each */
} bad_inputs;

static sbit_status bad_feed(bad_work *work, sbit_session *session, bad_inputs *inputs)
{
    for (size_t i = 0; i < sbit_session_input_count(session); i++) {
        const sbit_value_info *info = sbit_session_input(session, i);
        sbit_value value;
        if (i >= BAD_INPUTS || !bad_tensor(work, &info->type, &inputs->tensors[i])) {
            snprintf(work->error.message, sizeof work->error.message, "too large for this test");
            return SBIT_ERR_LIMIT;
        }
        memset(&value, 0, sizeof value);
        value.kind = info->type.kind;
        value.tensor = inputs->tensors[i];
        if (value.kind == SBIT_KIND_SEQUENCE || value.kind == SBIT_KIND_OPTIONAL) {
            inputs->items[i].tensor = inputs->tensors[i];
            inputs->items[i].kind = info->type.kind == SBIT_KIND_OPTIONAL ? info->type.of
                                                                          : SBIT_KIND_TENSOR;
            memset(&value.tensor, 0, sizeof value.tensor);
            value.items = &inputs->items[i];
            value.item_count = 1;
        }
        const sbit_status status =
            sbit_session_set_value(session, info->name, &value, &work->error);
        if (status != SBIT_OK) {
            return status;
        }
    }
    return SBIT_OK;
}

static bad_outcome bad_execute(bad_work *work, sbit_graph *graph)
{
    bad_inputs inputs;
    sbit_session *session = NULL;
    sbit_session_desc desc;
    bad_outcome outcome = BAD_NONE;
    memset(&inputs, 0, sizeof inputs);
    memset(&desc, 0, sizeof desc);
    desc.max_bytes = (size_t)BAD_BYTES;
    if (sbit_session_create(graph, &desc, &session, &work->error) != SBIT_OK) {
        return BAD_SESSION;
    }
    if (bad_feed(work, session, &inputs) != SBIT_OK) {
        outcome = BAD_FEED;
    } else if (sbit_session_run(session, &work->error) != SBIT_OK ||
               sbit_session_run(session, &work->error) != SBIT_OK) {
        outcome = BAD_RUN;
    }
    sbit_session_destroy(session);
    for (size_t i = 0; i < BAD_INPUTS; i++) {
        sbit_tensor_free(work->ctx, &inputs.tensors[i]);
    }
    return outcome;
}

/* What was read and simplified can also be written. */
static void bad_export(bad_work *work, const sbit_graph *graph)
{
    sbit_onnx_doc *doc = NULL;
    if (sbit_graph_export(graph, &doc, &work->error) == SBIT_OK) {
        const uint64_t size = sbit_onnx_measure(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc));
        size_t written = 0;
        void *bytes = size < (1u << 24) ? malloc((size_t)size + 1) : NULL;
        CHECK(bytes == NULL ||
              sbit_onnx_write(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), bytes, (size_t)size + 1,
                              &written, NULL) == SBIT_OK);
        CHECK(bytes == NULL || written == size);
        free(bytes);
        sbit_onnx_destroy(doc);
    }
}

static bool bad_quantize_one(bad_work *work, const sbit_graph *graph, sbit_quant *quant)
{
    sbit_tensor x;
    sbit_graph *built = NULL;
    bool done = false;
    if (sbit_graph_input_count(graph) == 0 ||
        sbit_quant_prepare_calibration(quant, &work->error) != SBIT_OK) {
        return false;
    }
    const sbit_value_info *info = sbit_graph_value(graph, sbit_graph_input(graph, 0));
    memset(&x, 0, sizeof x);
    if (bad_tensor(work, &info->type, &x) &&
        sbit_quant_forward(quant, &info->name, &x, 1, &work->error) == SBIT_OK &&
        sbit_quant_calc_qparams(quant, &work->error) == SBIT_OK &&
        sbit_quant_build(quant, true, true, &built, &work->error) == SBIT_OK) {
        bad_export(work, built);
        done = bad_execute(work, built) == BAD_NONE;
    }
    sbit_graph_destroy(built);
    sbit_tensor_free(work->ctx, &x);
    return done;
}

static void bad_quantize(bad_work *work, const sbit_graph *graph)
{
    static const char *const profiles[] = {"generic", "sparsebit", "tensorrt"};
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    const char *profile = profiles[sbit_rng_below(&work->rng, 3)];
    if (sbit_qconfig_create(work->ctx, profile, &config, &work->error) == SBIT_OK &&
        sbit_quant_create(graph, config, &quant, &work->error) == SBIT_OK) {
        work->shared->quantized += bad_quantize_one(work, graph, quant);
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
}

static bad_outcome bad_pipeline(bad_work *work, const void *bytes, size_t size)
{
    sbit_graph *graph = NULL;
    bad_outcome outcome = BAD_INFER;
    if (sbit_graph_read(work->ctx, bytes, size, &graph, &work->error) != SBIT_OK) {
        return BAD_READ;
    }
    if (work->quantize) {
        bad_quantize(work, graph);
    }
    memset(&work->error, 0, sizeof work->error);
    if (sbit_infer(graph, &work->error) == SBIT_OK) {
        outcome = sbit_simplify(graph, NULL, NULL, &work->error) == SBIT_OK ? BAD_NONE
                                                                            : BAD_SIMPLIFY;
    }
    const sbit_error first = work->error;
    bad_export(work, graph); /* whatever happened, the graph is valid */
    work->error = first;
    outcome = outcome == BAD_NONE ? bad_execute(work, graph) : outcome;
    sbit_graph_destroy(graph);
    return outcome;
}

/* ---- damage: number d cuts after d bytes, or flips bit d - size */

static unsigned char *bad_damage(const unsigned char *bytes, size_t size, int64_t d, size_t *out)
{
    *out = d < (int64_t)size ? (size_t)d : size;
    unsigned char *copy = (unsigned char *)malloc(*out > 0 ? *out : 1); /* its own: ASan's fence */
    memcpy(copy, bytes, *out);
    if (d >= (int64_t)size) {
        const int64_t bit = d - (int64_t)size;
        copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    return copy;
}

static void bad_child(bad_shared *shared, const unsigned char *bytes, size_t size, int64_t stride,
                      bool quantize)
{
    bad_work work;
    struct itimerval timer;
    memset(&timer, 0, sizeof timer);
    test_state.checks_failed = 0; /* the parent's */
    if (!bad_begin(&work, shared, quantize)) {
        _exit(9);
    }
    const int64_t base = work.heap.live_bytes;
    for (; shared->at < (int64_t)size * 9; shared->at += stride) {
        size_t used = 0;
        unsigned char *damaged = bad_damage(bytes, size, shared->at, &used);
        timer.it_value.tv_sec = BAD_SECONDS;
        setitimer(ITIMER_PROF, &timer, NULL);
        work.calls = 0;
        work.rng = sbit_rng_seed((uint64_t)shared->at);
        memset(&work.error, 0, sizeof work.error);
        const bad_outcome outcome = bad_pipeline(&work, damaged, used);
        shared->outcomes[outcome]++;
        shared->silent += outcome != BAD_NONE && work.error.message[0] == '\0';
        if (work.heap.live_bytes != base) {
            shared->leaks++;
            printf("damage %lld: %lld bytes leaked\n", (long long)shared->at,
                   (long long)(work.heap.live_bytes - base));
            work.heap.live_bytes = base;
        }
        free(damaged);
    }
    sbit_ctx_destroy(work.ctx);
    _exit(test_state.checks_failed != 0 || work.heap.live_bytes != 0 ? 8 : 0);
}

typedef struct bad_totals {
    int64_t models, tried, crashes, hangs, leaks, silent, quantized, outcomes[BAD_OUTCOMES];
} bad_totals;

/* Tries every `stride`-th damage of a model in child processes. */
static void bad_sweep(bad_totals *totals, const char *name, const unsigned char *bytes, size_t size,
                      int64_t first, int64_t stride, bool quantize)
{
    bad_shared *shared = (bad_shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(shared != (bad_shared *)MAP_FAILED)) {
        return;
    }
    shared->at = first;
    if (getenv("SBIT_BAD_DAMAGE") != NULL) {
        shared->at = atoi(getenv("SBIT_BAD_DAMAGE"));
        bad_child(shared, bytes, size, INT32_MAX, quantize);
    }
    while (shared->at < (int64_t)size * 9) {
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            bad_child(shared, bytes, size, stride, quantize);
        }
        if (!CHECK(child > 0 && waitpid(child, &status, 0) == child)) {
            break;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            break;
        }
        const bool hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF;
        totals->hangs += hang;
        totals->crashes += !hang;
        CHECK_MSG(false, "%s, damage %lld of %lld: %s %d", name, (long long)shared->at,
                  (long long)size * 9, WIFSIGNALED(status) ? "signal" : "exit status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        shared->at += stride;
    }
    totals->models++;
    totals->leaks += shared->leaks;
    totals->silent += shared->silent;
    totals->quantized += shared->quantized;
    for (int i = 0; i < BAD_OUTCOMES; i++) {
        totals->outcomes[i] += shared->outcomes[i];
        totals->tried += shared->outcomes[i];
    }
    CHECK_MSG(shared->leaks == 0, "%s: %lld leaks", name, (long long)shared->leaks);
    CHECK_MSG(shared->silent == 0, "%s: %lld errors without a message", name,
              (long long)shared->silent);
    munmap(shared, sizeof *shared);
}

static void bad_print(const char *what, const bad_totals *totals)
{
    printf("%s: %lld models, %lld damaged inputs: %lld crashes, %lld hangs, %lld leaks;", what,
           (long long)totals->models, (long long)totals->tried, (long long)totals->crashes,
           (long long)totals->hangs, (long long)totals->leaks);
    for (int i = 0; i < BAD_OUTCOMES; i++) {
        printf(" %s%s %lld", i < BAD_NONE ? "refused by " : "", bad_outcome_names[i],
               (long long)totals->outcomes[i]);
    }
    printf(", quantized and ran %lld\n", (long long)totals->quantized);
}

/* The bytes of a graph; free() them. */
static unsigned char *bad_bytes(build *b, size_t *size)
{
    sbit_onnx_doc *doc = NULL;
    unsigned char *bytes = NULL;
    *size = 0;
    if (!b->failed && build_do(b, sbit_graph_export(b->graph, &doc, &b->error), "export")) {
        *size = (size_t)sbit_onnx_measure(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc));
        bytes = (unsigned char *)malloc(*size);
        CHECK_OK(sbit_onnx_write(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), bytes, *size, size,
                                 &b->error),
                 b->error);
    }
    sbit_onnx_destroy(doc);
    return bytes;
}

/* Convolutions, a residual sum, pooling, a classifier. */
static unsigned char *bad_make_images(build *b, size_t *size)
{
    static const int64_t pads[4] = {1, 1, 1, 1}, two[2] = {2, 2};
    const sbit_attr conv = build_ints("pads", pads, 4);
    const sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
    sbit_value_id in[5];
    build_begin(b, 13);
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,2,5,5");
    in[0] = x;
    in[1] = build_weights(b, "c.weight", "2,2,3,3", 1);
    in[2] = build_weights(b, "c.bias", "2", 2);
    in[0] = build_node(b, "Conv", "c", in, 3, &conv, 1);
    in[1] = build_weights(b, "gamma", "2", 3);
    in[2] = build_weights(b, "beta", "2", 4);
    in[3] = build_weights(b, "mean", "2", 5);
    in[4] = build_constant(b, "var", SBIT_F32, "2", "\0\0\x80\x3f\0\0\0\x40");
    in[0] = build_unary(b, "Relu", "r", build_node(b, "BatchNormalization", "bn", in, 5, NULL, 0));
    in[0] = build_binary(b, "Add", "a", in[0], x);
    in[0] = build_node(b, "MaxPool", "p", in, 1, pool, 2);
    in[0] = build_unary(b, "Flatten", "f", in[0]);
    in[0] = build_binary(b, "Gemm", "g", in[0], build_weights(b, "w", "8,3", 6));
    build_output(b, build_unary(b, "Softmax", "s", in[0]));
    return bad_bytes(b, size);
}

/* A recurrent layer, shape arithmetic, a concatenation. */
static unsigned char *bad_make_sequence(build *b, size_t *size)
{
    static const int64_t zero = 0, minus_one = -1;
    const sbit_attr hidden = build_int("hidden_size", 2), axis = build_int("axis", 0);
    const sbit_attr last = build_int("axis", 2);
    sbit_value_id in[3], out[2];
    build_begin(b, 14);
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "T,1,3");
    in[0] = x;
    in[1] = build_weights(b, "W", "1,8,3", 1);
    in[2] = build_weights(b, "R", "1,8,2", 2);
    build_node_outputs(b, "", "LSTM", "l", in, 3, &hidden, 1, out, 2);
    const sbit_value_id parts[2] = {build_unary(b, "Tanh", "t", out[1]), out[1]};
    const sbit_value_id joined = build_node(b, "Concat", "j", parts, 2, &last, 1);
    in[0] = build_unary(b, "Shape", "sh", x);
    in[1] = build_constant(b, "i", SBIT_I64, "1", &zero);
    in[0] = build_node(b, "Gather", "ga", in, 2, &axis, 1);
    const sbit_value_id shape[2] = {build_constant(b, "m", SBIT_I64, "1", &minus_one), in[1]};
    in[1] = build_node(b, "Concat", "sc", shape, 2, &axis, 1);
    build_output(b, build_binary(b, "Reshape", "y", joined, in[1]));
    build_output(b, build_binary(b, "Add", "n", in[0], in[0]));
    return bad_bytes(b, size);
}

static void bad_sweep_made(bad_totals *totals, const char *name,
                           unsigned char *(*make)(build *b, size_t *size), int64_t stride)
{
    build b;
    bad_work work;
    bad_shared shared;
    size_t size = 0;
    unsigned char *bytes = make(&b, &size);
    build_end(&b);
    memset(&shared, 0, sizeof shared);
    if (bytes != NULL && bad_begin(&work, &shared, true)) { /* undamaged it runs */
        CHECK_MSG(bad_pipeline(&work, bytes, size) == BAD_NONE, "%s: %s", name,
                  work.error.message);
        CHECK_EQ_I64(shared.quantized, 1);
        sbit_ctx_destroy(work.ctx);
        CHECK_EQ_I64(work.heap.live_bytes, 0);
        bad_sweep(totals, name, bytes, size, 0, stride, true);
    }
    free(bytes);
}

TEST(damaged_models_made_here)
{
    const char *text = getenv("SBIT_BAD_STRIDE");
    const int64_t stride = text != NULL && atoi(text) > 0 ? atoi(text) : 1;
    bad_totals totals;
    memset(&totals, 0, sizeof totals);
    bad_sweep_made(&totals, "images", bad_make_images, stride);
    bad_sweep_made(&totals, "sequence", bad_make_sequence, stride);
    bad_print("made here", &totals);
    CHECK(totals.outcomes[BAD_NONE] > 0 && totals.outcomes[BAD_READ] > 0);
}

static void bad_sweep_folder(bad_totals *totals, const char *folder, int64_t stride)
{
    const char *only = getenv("SBIT_BAD_MODELS");
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        char path[1200];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s/model.onnx", folder, e->d_name);
        if (e->d_name[0] == '.' || (only != NULL && strstr(path, only) == NULL)) {
            continue;
        }
        unsigned char *bytes = test_read_file(path, &size);
        if (bytes != NULL && size <= 4096) { /* the name decides which damages are tried */
            const int64_t first = (int64_t)((size_t)e->d_name[strlen(e->d_name) - 1] + size);
            bad_sweep(totals, e->d_name, bytes, size, first % stride, stride, false);
        }
        free(bytes);
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

TEST(damaged_models_of_every_operator)
{
    static const char *const folders[] = {"node", "pytorch-converted", "pytorch-operator",
                                          "simple"};
    const char *text = getenv("SBIT_BAD_STRIDE");
    const int64_t stride = text != NULL && atoi(text) > 0 ? atoi(text) : 61;
    char path[1000];
    bad_totals totals;
    memset(&totals, 0, sizeof totals);
    if (!test_backend("node/test_add/model.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no ONNX backend data");
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", SBIT_TEST_BACKEND, folders[i]);
        bad_sweep_folder(&totals, path, stride);
    }
    bad_print("ONNX backend", &totals);
    CHECK(totals.models > 1000 || getenv("SBIT_BAD_MODELS") != NULL);
    CHECK(totals.outcomes[BAD_NONE] > 0 && totals.outcomes[BAD_READ] > 0);
}
