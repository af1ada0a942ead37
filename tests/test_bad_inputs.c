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

#include "bad.h"

#define TMP SBIT_TEST_TMP "/bad-"

/* ---- the whole pipeline on one model in memory */

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

enum {
    BAD_INPUTS = 16
};

typedef struct bad_inputs { /* what is fed, until the runs are over */
    sbit_tensor tensors[BAD_INPUTS];
    sbit_value items[BAD_INPUTS]; /* of sequences and optionals: one each */
} bad_inputs;

static sbit_status bad_feed(bad_work *work, sbit_session *session, bad_inputs *inputs)
{
    for (size_t i = 0; i < sbit_session_input_count(session); i++) {
        const sbit_value_info *info = sbit_session_input_info(session, i);
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
            inputs->items[i].kind =
                info->type.kind == SBIT_KIND_OPTIONAL ? info->type.of : SBIT_KIND_TENSOR;
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
        CHECK(bytes == NULL || sbit_onnx_write(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), bytes,
                                               (size_t)size + 1, &written, NULL) == SBIT_OK);
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
        sbit_quant_calc_qparams(quant, false, false, false, &work->error) == SBIT_OK &&
        sbit_quant_build(quant, NULL, &built, &work->error) == SBIT_OK) {
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
        outcome =
            sbit_simplify(graph, NULL, NULL, &work->error) == SBIT_OK ? BAD_NONE : BAD_SIMPLIFY;
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

typedef struct bad_model {
    const unsigned char *bytes;
    size_t size;
} bad_model;

static bad_outcome bad_damaged(bad_work *work, void *user, int64_t at)
{
    const bad_model *model = (const bad_model *)user;
    size_t used = 0;
    unsigned char *damaged = bad_damage(model->bytes, model->size, at, &used);
    const bad_outcome outcome = bad_pipeline(work, damaged, used);
    free(damaged);
    return outcome;
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
        CHECK_MSG(bad_pipeline(&work, bytes, size) == BAD_NONE, "%s: %s", name, work.error.message);
        CHECK_EQ_I64(shared.quantized, 1);
        sbit_ctx_destroy(work.ctx);
        CHECK_EQ_I64(work.heap.live_bytes, 0);
        bad_model model = {bytes, size};
        bad_sweep(totals, name, bad_damaged, &model, (int64_t)size * 9, 0, stride, true);
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
    CHECK(totals.tried < 1000 || (totals.outcomes[BAD_NONE] > 0 && totals.outcomes[BAD_READ] > 0));
}

static void bad_sweep_folder(bad_totals *totals, const char *folder, int64_t stride)
{
    const char *only = getenv("SBIT_BAD_MODELS");
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        char path[1600];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s/model.onnx", folder, e->d_name);
        if (e->d_name[0] == '.' || (only != NULL && strstr(path, only) == NULL)) {
            continue;
        }
        unsigned char *bytes = test_read_file(path, &size);
        if (bytes != NULL && size <= 4096) { /* the name decides which damages are tried */
            const int64_t first = (int64_t)((size_t)e->d_name[strlen(e->d_name) - 1] + size);
            bad_model model = {bytes, size};
            bad_sweep(totals, e->d_name, bad_damaged, &model, (int64_t)size * 9, first % stride,
                      stride, false);
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
    CHECK(totals.tried < 1000 || (totals.outcomes[BAD_NONE] > 0 && totals.outcomes[BAD_READ] > 0));
}

/* ---- models that are whole, but wrong: one message each, from the library and from the tool */

static sbit_str bad_text(const char *text)
{
    sbit_str view;
    view.data = text;
    view.size = strlen(text);
    return view;
}

static sbit_onnx_tensor *bad_initializer(sbit_onnx_model *model, const char *name)
{
    for (size_t i = 0; i < model->graph->initializer_count; i++) {
        if (strcmp(model->graph->initializer[i].name.data, name) == 0) {
            return &model->graph->initializer[i];
        }
    }
    return NULL;
}

static sbit_onnx_node *bad_node(sbit_onnx_model *model, const char *op)
{
    for (size_t i = 0; i < model->graph->node_count; i++) {
        if (strcmp(model->graph->node[i].op_type.data, op) == 0) {
            return &model->graph->node[i];
        }
    }
    return NULL;
}

static void bad_external(sbit_onnx_doc *doc, sbit_onnx_tensor *tensor, const char *location)
{
    sbit_onnx_string_entry *entry =
        (sbit_onnx_string_entry *)sbit_onnx_alloc(doc, 1, sizeof *entry);
    SBIT_ONNX_SET(entry, SBIT_ONNX_STRING_ENTRY_KEY, key, bad_text("location"));
    SBIT_ONNX_SET(entry, SBIT_ONNX_STRING_ENTRY_VALUE, value, bad_text(location));
    tensor->external_data = entry;
    tensor->external_data_count = 1;
    tensor->raw_data.size = 0;
    SBIT_ONNX_SET(tensor, SBIT_ONNX_TENSOR_DATA_LOCATION, data_location, 1);
}

typedef struct bad_case {
    const char *name;
    const char *says; /* part of the message */
} bad_case;

static const bad_case bad_cases[] = {
    {"dims_too_large", "c.weight"},      {"dims_negative", "c.weight"},
    {"dims_overflow", "c.weight"},       {"data_of_odd_size", "c.weight"},
    {"no_element_type", "c.weight"},     {"unknown_element_type", "c.weight"},
    {"external_missing", "bad-nothing"}, {"external_escapes", "../"},
    {"external_absolute", "/etc"},       {"cycle", "cycle"},
    {"unknown_operator", "Frobnicate"},  {"unknown_domain", "com.acme"},
    {"missing_input", "nowhere"},        {"weight_of_rank_1", "Conv"},
    {"weight_of_rank_5", "Conv"},        {"channels_differ", "Conv"},
    {"output_twice", "twice"},           {"gemm_shapes", "Gemm"},
};

static void bad_dims(sbit_onnx_doc *doc, sbit_onnx_tensor *tensor, const int64_t *dims, size_t n)
{
    tensor->dims = (int64_t *)sbit_onnx_alloc(doc, n, sizeof *dims);
    memcpy(tensor->dims, dims, n * sizeof *dims);
    tensor->dims_count = n;
}

/* Changes the good model as the case's name says. */
static void bad_apply(sbit_onnx_doc *doc, const char *name)
{
    static const int64_t large[4] = {1000, 2, 3, 3}, negative[4] = {-2, 2, 3, 3};
    static const int64_t huge[4] = {INT64_MAX / 2, INT64_MAX / 3, 7, 9}, one[1] = {36};
    static const int64_t five[5] = {2, 2, 3, 3, 1}, three[4] = {2, 1, 3, 6}, gemm[2] = {6, 4};
    sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    sbit_onnx_tensor *w = bad_initializer(model, "c.weight");
    sbit_onnx_node *conv = bad_node(model, "Conv");
    if (strcmp(name, "dims_too_large") == 0) {
        bad_dims(doc, w, large, 4);
    } else if (strcmp(name, "dims_negative") == 0) {
        bad_dims(doc, w, negative, 4);
    } else if (strcmp(name, "dims_overflow") == 0) {
        bad_dims(doc, w, huge, 4);
    } else if (strcmp(name, "data_of_odd_size") == 0) {
        w->raw_data.size--;
    } else if (strcmp(name, "no_element_type") == 0) {
        w->data_type = 0;
    } else if (strcmp(name, "unknown_element_type") == 0) {
        w->data_type = 99;
    } else if (strcmp(name, "external_missing") == 0) {
        bad_external(doc, w, "bad-nothing.bin");
    } else if (strcmp(name, "external_escapes") == 0) {
        bad_external(doc, w, "../bad-good.onnx");
    } else if (strcmp(name, "external_absolute") == 0) {
        bad_external(doc, w, "/etc/passwd");
    } else if (strcmp(name, "cycle") == 0) {
        conv->input[0] = bad_node(model, "Relu")->output[0];
    } else if (strcmp(name, "unknown_operator") == 0) {
        conv->op_type = bad_text("Frobnicate");
    } else if (strcmp(name, "unknown_domain") == 0) {
        SBIT_ONNX_SET(conv, SBIT_ONNX_NODE_DOMAIN, domain, bad_text("com.acme"));
    } else if (strcmp(name, "missing_input") == 0) {
        conv->input[0] = bad_text("nowhere");
    } else if (strcmp(name, "weight_of_rank_1") == 0) {
        bad_dims(doc, w, one, 1);
    } else if (strcmp(name, "weight_of_rank_5") == 0) {
        bad_dims(doc, w, five, 5);
    } else if (strcmp(name, "channels_differ") == 0) {
        bad_dims(doc, w, three, 4);
    } else if (strcmp(name, "output_twice") == 0) {
        bad_node(model, "Relu")->output[0] = conv->output[0];
    } else if (strcmp(name, "gemm_shapes") == 0) {
        bad_dims(doc, bad_initializer(model, "w"), gemm, 2);
    }
}

static bool bad_put(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    const bool ok = file != NULL && fwrite(bytes, 1, size, file) == size;
    return (file == NULL || fclose(file) == 0) && CHECK_MSG(ok, "%s cannot be written", path);
}

/* Writes the good model to `path`, changed by the case unless it is NULL. */
static void bad_write(const char *path, const char *name)
{
    build b;
    sbit_onnx_doc *doc = NULL;
    size_t size = 0;
    unsigned char *bytes = bad_make_images(&b, &size);
    build_end(&b);
    if (bytes != NULL && CHECK_OK(sbit_onnx_read(bytes, size, NULL, &doc, &b.error), b.error)) {
        if (name != NULL) {
            bad_apply(doc, name);
        }
        const size_t room = (size_t)sbit_onnx_measure(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc));
        unsigned char *out = (unsigned char *)malloc(room + 1);
        size_t written = 0;
        CHECK_OK(sbit_onnx_write(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), out, room, &written,
                                 &b.error),
                 b.error);
        bad_put(path, out, written);
        free(out);
    }
    sbit_onnx_destroy(doc);
    free(bytes);
}

/* Load, infer, session and run of a file: the first failure. */
static sbit_status bad_run_file(bad_work *work, const char *path)
{
    sbit_graph *graph = NULL;
    sbit_status status = sbit_graph_load(work->ctx, path, &graph, &work->error);
    if (status == SBIT_OK) {
        status = sbit_infer(graph, &work->error);
    }
    if (status == SBIT_OK && bad_execute(work, graph) != BAD_NONE) {
        status = SBIT_ERR_STATE;
    }
    sbit_graph_destroy(graph);
    return status;
}

TEST(wrong_models_are_refused_with_a_name)
{
    char path[1000];
    int count = 0;
    bad_shared shared;
    memset(&shared, 0, sizeof shared);
    bad_write(TMP "good.onnx", NULL);
    for (size_t i = 0; i < sizeof bad_cases / sizeof bad_cases[0]; i++) {
        bad_work work;
        snprintf(path, sizeof path, "%s%s.onnx", TMP, bad_cases[i].name);
        bad_write(path, bad_cases[i].name);
        if (!bad_begin(&work, &shared, false)) {
            return;
        }
        const sbit_status status = bad_run_file(&work, path);
        CHECK_MSG(status != SBIT_OK, "%s runs", bad_cases[i].name);
        CHECK_MSG(strstr(work.error.message, bad_cases[i].says) != NULL, "%s: \"%s\" lacks \"%s\"",
                  bad_cases[i].name, work.error.message, bad_cases[i].says);
        sbit_ctx_destroy(work.ctx);
        CHECK_EQ_I64(work.heap.live_bytes, 0);
        count += status != SBIT_OK;
    }
    printf("wrong models: %d of %d refused with a message that names the thing\n", count,
           (int)(sizeof bad_cases / sizeof bad_cases[0]));
}

/* ---- the tool: exit code 1, one message, no file left behind */

static struct {
    int tried, clean;
    char err[1 << 14];
} bad_tool;

/* Whether anything but what was there before lies in the folder of outputs. */
static bool bad_left_over(const char *folder)
{
    bool found = false;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        found = found || e->d_name[0] != '.';
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

/* Runs the tool and checks that it fails as it should; `folder` is where its outputs would lie. */
__attribute__((format(printf, 3, 4))) static void bad_refused(const char *folder, const char *says,
                                                              const char *format, ...)
{
    char arguments[2000], command[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(command, sizeof command, "timeout 60 '%s' %s >'%sout' 2>'%serr' </dev/null",
             test_tool(), arguments, TMP, TMP);
    const int status = system(command);
    FILE *file = fopen(TMP "err", "rb");
    const size_t got = file != NULL ? fread(bad_tool.err, 1, sizeof bad_tool.err - 1, file) : 0;
    bad_tool.err[got] = '\0';
    if (file != NULL) {
        fclose(file);
    }
    bool ok = CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s: exit status %d\n%s",
                        arguments, WIFEXITED(status) ? WEXITSTATUS(status) : -1, bad_tool.err);
    ok = CHECK_MSG(strstr(bad_tool.err, says) != NULL, "%s: without \"%s\":\n%s", arguments, says,
                   bad_tool.err) &&
         ok;
    ok = CHECK_MSG(strstr(bad_tool.err, "error: ") != NULL, "%s: no error", arguments) && ok;
    ok = CHECK_MSG(!bad_left_over(folder), "%s: left a file behind", arguments) && ok;
    bad_tool.tried++;
    bad_tool.clean += ok;
}

static void bad_npy(const char *path, const char *descr, const char *shape, size_t bytes)
{
    char file[4096] = {0};
    const int n = snprintf(
        file + 10, 200, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    memcpy(file, "\x93NUMPY\x01\0", 8);
    file[8] = (char)n;
    bad_put(path, file, 10 + (size_t)n + bytes);
}

TEST(the_tool_refuses_bad_inputs)
{
    const char *out = TMP "out-dir";
    char text[1200];
    mkdir(out, 0777);
    bad_tool.tried = bad_tool.clean = 0;
    bad_write(TMP "good.onnx", NULL);
    bad_npy(TMP "good.npy", "<f4", "(4, 2, 5, 5)", 800);
    for (size_t i = 0; i < sizeof bad_cases / sizeof bad_cases[0]; i++) {
        snprintf(text, sizeof text, "%s%s.onnx", TMP, bad_cases[i].name);
        bad_write(text, bad_cases[i].name);
        bad_refused(out, bad_cases[i].says, "run %s -o %s/run", text, out);
        bad_refused(out, bad_cases[i].says, "quantize %s --data npy:%sgood.npy -o %s/q.onnx", text,
                    TMP, out);
    }
    const char *q = "-o " TMP "out-dir/q.onnx";
    bad_put(TMP "empty.onnx", "", 0);
    bad_refused(out, "empty.onnx", "simplify %sempty.onnx -o %s/s.onnx", TMP, out);
    bad_refused(out, "No such file", "simplify %sgone.onnx -o %s/s.onnx", TMP, out);
    bad_npy(TMP "bad.npy", "<f4", "(4, 3, 5, 5)", 1200);
    bad_refused(out, "float32[", "quantize %sgood.onnx --data npy:%sbad.npy %s", TMP, TMP, q);
    bad_npy(TMP "bad.npy", "<i8", "(4, 2, 5, 5)", 1600);
    bad_refused(out, "int64", "quantize %sgood.onnx --data npy:%sbad.npy %s", TMP, TMP, q);
    bad_npy(TMP "bad.npy", "<f4", "(4, 2, 5, 5)", 400);
    bad_refused(out, "cut short", "quantize %sgood.onnx --data npy:%sbad.npy %s", TMP, TMP, q);
    bad_npy(TMP "bad.npy", "<f4", "(0, 2, 5, 5)", 0);
    bad_refused(out, "calibration set is empty", "quantize %sgood.onnx --data npy:%sbad.npy %s",
                TMP, TMP, q);
    bad_npy(TMP "bad.npy", "<f4", "(99999999999, 99999999999, 5, 5)", 4);
    bad_refused(out, "bad.npy", "quantize %sgood.onnx --data npy:%sbad.npy %s", TMP, TMP, q);
    bad_put(TMP "nan.npy", "", 0);
    bad_refused(out, "nan.npy", "quantize %sgood.onnx --data npy:%snan.npy %s", TMP, TMP, q);
    bad_put(TMP "typo.yaml", "BACKEND: virtual\nWW: {}\n", 24);
    bad_refused(out, "2:1", "quantize %sgood.onnx -c %stypo.yaml --data npy:%sgood.npy %s", TMP,
                TMP, TMP, q);
    bad_refused(out, "no folder", "quantize %sgood.onnx --data npy:%sgood.npy -o %s/a/b.onnx", TMP,
                TMP, out);
    printf("the tool: %d bad inputs, %d refused cleanly (exit code 1, a message, no file left)\n",
           bad_tool.tried, bad_tool.clean);
    rmdir(out);
}

/* A file system of 4 KiB; only root may make one. */
TEST(a_full_disk_leaves_nothing)
{
    const char *folder = TMP "full";
    char text[2000];
    mkdir(folder, 0777);
    snprintf(text, sizeof text, "mount -t tmpfs -o size=4k none '%s' 2>/dev/null", folder);
    if (geteuid() != 0 || system(text) != 0) {
        rmdir(folder);
        printf("no right to mount a small file system; test_cli.c limits the size of files\n");
        return;
    }
    bad_write(TMP "good.onnx", NULL);
    bad_npy(TMP "good.npy", "<f4", "(4, 2, 5, 5)", 800);
    snprintf(text, sizeof text, "head -c 4096 /dev/zero >'%s/.fill' 2>/dev/null", folder);
    CHECK(system(text) == 0);
    bad_tool.tried = bad_tool.clean = 0;
    bad_refused(folder, "no space", "quantize %sgood.onnx --data npy:%sgood.npy -o %s/q.onnx", TMP,
                TMP, folder);
    bad_refused(folder, "no space", "simplify %sgood.onnx -o %s/s.onnx", TMP, folder);
    bad_refused(folder, "o space left", "run %sgood.onnx -o %s", TMP, folder);
    printf("full disk: %d outputs, %d refused cleanly\n", bad_tool.tried, bad_tool.clean);
    snprintf(text, sizeof text, "umount '%s'", folder);
    CHECK(system(text) == 0);
    rmdir(folder);
}

/* ---- configuration: each key with one letter wrong, each value replaced */

static const char bad_yaml[] = "BACKEND: virtual\n"
                               "PLACEMENT: generic\n"
                               "SKIP_TRACE_MODULES: []\n"
                               "SCHEDULE:\n"
                               "  FUSE_BN: true\n"
                               "  BN_TUNING: false\n"
                               "  DISABLE_UNNECESSARY_QUANT: true\n"
                               "EXPORT:\n"
                               "  INT4: false\n"
                               "  SHARE_LIMIT: 16\n"
                               "W:\n"
                               "  QSCHEME: per-channel-symmetric\n"
                               "  QUANTIZER:\n"
                               "    TYPE: uniform\n"
                               "    BIT: 8\n"
                               "    DISABLE: false\n"
                               "  OBSERVER:\n"
                               "    TYPE: minmax\n"
                               "A:\n"
                               "  QSCHEME: per-tensor-affine\n"
                               "  QUANTIZER:\n"
                               "    TYPE: uniform\n"
                               "    BIT: 8\n"
                               "  OBSERVER:\n"
                               "    TYPE: minmax\n"
                               "    LAYOUT: NCHW\n"
                               "  QADD:\n"
                               "    ENABLE_QUANT: false\n";

/* Reads a text; the status. Leaks are checked. */
static sbit_status bad_config(const char *text, size_t size, sbit_error *error)
{
    bad_shared shared;
    bad_work work;
    sbit_qconfig *config = NULL;
    memset(&shared, 0, sizeof shared);
    memset(error, 0, sizeof *error);
    if (!bad_begin(&work, &shared, false)) {
        return SBIT_ERR_STATE;
    }
    const sbit_status status = sbit_qconfig_read(work.ctx, text, size, &config, error);
    sbit_qconfig_destroy(config);
    sbit_ctx_destroy(work.ctx);
    CHECK_EQ_I64(work.heap.live_bytes, 0);
    return status;
}

TEST(typing_errors_in_yaml_are_located)
{
    char text[sizeof bad_yaml + 8];
    sbit_error error;
    int tried = 0, located = 0, line = 1;
    const size_t size = sizeof bad_yaml - 1;
    CHECK_OK(bad_config(bad_yaml, size, &error), error);
    for (size_t i = 0; i < size; i++) {
        const char c = bad_yaml[i];
        line += c == '\n';
        const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!letter || c == 'q' || c == 'Q') {
            continue;
        }
        char place[32];
        memcpy(text, bad_yaml, size + 1);
        text[i] = 'q'; /* case does not matter in keys and choices */
        snprintf(place, sizeof place, "%d:", line);
        const sbit_status status = bad_config(text, size, &error);
        const bool good = status == SBIT_ERR_CONFIG && error.message[0] != '\0' &&
                          strncmp(error.where, place, strlen(place)) == 0;
        CHECK_MSG(good, "'%.20s' at line %d: status %d at %s: %s", text + i, line, (int)status,
                  error.where, error.message);
        tried++;
        located += good;
    }
    printf("yaml: %d typing errors, %d refused with their line\n", tried, located);
}
