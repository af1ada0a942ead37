/* test_field_reports.c: what users of other tools ran into, on graphs built here. The blocks'
 * numbers are those of the notes that the tests follow; more of them are answered where their
 * subject is tested: grep -r 'A4\.' tests. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

#include <locale.h>

/* ---- quantizing a graph that was built */

static sbit_quant *report_quant(build *b, const char *profile, const char *key, const char *value)
{
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    if (!b->failed && key != NULL) {
        build_do(b, sbit_qconfig_set(config, key, value, &b->error), key);
    }
    if (!b->failed) {
        build_do(b, sbit_quant_create(b->graph, config, &quant, &b->error), "quant");
    }
    if (quant != NULL) {
        build_do(b, sbit_quant_prepare_calibration(quant, &b->error), "prepare");
    }
    sbit_qconfig_destroy(config);
    return quant;
}

static void report_fill(float *data, size_t count, uint64_t seed)
{
    sbit_rng rng = sbit_rng_seed(seed);
    for (size_t i = 0; i < count; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
}

static bool report_feed(build *b, sbit_quant *quant, const char *dims, const float *data)
{
    const sbit_tensor x = build_tensor(SBIT_F32, dims, data);
    return quant != NULL && !b->failed &&
           build_do(b, sbit_quant_forward(quant, NULL, &x, 1, &b->error), dims);
}

static bool report_site(sbit_quant *quant, const char *tensor, sbit_site *out)
{
    for (size_t i = 0; quant != NULL && i < sbit_quant_site_count(quant); i++) {
        if (sbit_quant_site(quant, i, out) == SBIT_OK && strcmp(out->tensor, tensor) == 0) {
            return true;
        }
    }
    return false;
}

static bool report_calc(build *b, sbit_quant *quant)
{
    return quant != NULL && !b->failed &&
           build_do(b, sbit_quant_calc_qparams(quant, false, false, false, &b->error), "calc");
}

static sbit_value_id report_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                 uint64_t seed)
{
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    const sbit_value_id inputs[2] = {x, build_weights(b, text, dims, seed)};
    return build_node(b, "Conv", name, inputs, 2, NULL, 0);
}

/* ---- A1.7: a large model, written field by field (onnx.proto) */

typedef struct report_message {
    unsigned char bytes[600];
    size_t size;
} report_message;

static void report_int(report_message *m, int field, uint64_t value)
{
    uint64_t rest[2];
    rest[0] = (uint64_t)field << 3;
    rest[1] = value;
    for (int i = 0; i < 2; i++) {
        for (; rest[i] > 127; rest[i] >>= 7) {
            m->bytes[m->size++] = (unsigned char)(rest[i] | 128);
        }
        m->bytes[m->size++] = (unsigned char)rest[i];
    }
}

static void report_bytes(report_message *m, int field, const void *bytes, size_t size)
{
    report_int(m, field, size); /* the same, but for the wire type of the key */
    m->bytes[m->size - (size > 127 ? 3 : 2)] |= 2;
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void report_text(report_message *m, int field, const char *text)
{
    report_bytes(m, field, text, strlen(text));
}

static void report_external(report_message *tensor, const char *key, const char *value)
{
    report_message entry = {{0}, 0};
    report_text(&entry, 1, key);
    report_text(&entry, 2, value);
    report_bytes(tensor, 13, entry.bytes, entry.size);
}

static void report_value(report_message *graph, int field, const char *name, int64_t width)
{
    report_message dims[2] = {{{0}, 0}, {{0}, 0}}, shape = {{0}, 0}, tensor = {{0}, 0};
    report_message type = {{0}, 0}, value = {{0}, 0};
    report_int(&dims[0], 1, 1);
    report_int(&dims[1], 1, (uint64_t)width);
    report_bytes(&shape, 1, dims[0].bytes, dims[0].size);
    report_bytes(&shape, 1, dims[1].bytes, dims[1].size);
    report_int(&tensor, 1, SBIT_F32);
    report_bytes(&tensor, 2, shape.bytes, shape.size);
    report_bytes(&type, 1, tensor.bytes, tensor.size);
    report_text(&value, 1, name);
    report_bytes(&value, 2, type.bytes, type.size);
    report_bytes(graph, field, value.bytes, value.size);
}

/* y = x w, w [width, width] in large.bin, all zero but for the last element, which is 3. */
static bool report_large_model(const char *path, const char *data_path, int64_t width)
{
    static const float last = 3.0f;
    report_message node = {{0}, 0}, tensor = {{0}, 0}, graph = {{0}, 0}, model = {{0}, 0};
    report_message opset = {{0}, 0};
    report_text(&node, 1, "x");
    report_text(&node, 1, "w");
    report_text(&node, 2, "y");
    report_text(&node, 4, "MatMul");
    report_int(&tensor, 1, (uint64_t)width);
    report_int(&tensor, 1, (uint64_t)width);
    report_int(&tensor, 2, SBIT_F32);
    report_text(&tensor, 8, "w");
    report_external(&tensor, "location", "large.bin");
    report_int(&tensor, 14, 1);
    report_bytes(&graph, 1, node.bytes, node.size);
    report_text(&graph, 2, "large");
    report_bytes(&graph, 5, tensor.bytes, tensor.size);
    report_value(&graph, 11, "x", width);
    report_value(&graph, 12, "y", width);
    report_int(&opset, 2, 17);
    report_int(&model, 1, 8);
    report_bytes(&model, 7, graph.bytes, graph.size);
    report_bytes(&model, 8, opset.bytes, opset.size);
    FILE *file = fopen(path, "wb"), *data = fopen(data_path, "wb");
    bool ok = file != NULL && data != NULL;
    ok = ok && fwrite(model.bytes, 1, model.size, file) == model.size;
    ok = ok && fseek(data, (long)(width * width * 4 - 4), SEEK_SET) == 0;
    ok = ok && fwrite(&last, 1, 4, data) == 4;
    ok = (file == NULL || fclose(file) == 0) && ok;
    return CHECK((data == NULL || fclose(data) == 0) && ok);
}

static void report_check_large(const char *path, int64_t width)
{
    sbit_ctx *ctx = test_ctx();
    sbit_graph *graph = NULL;
    sbit_error error;
    if (CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error)) {
        const sbit_value_id id = sbit_graph_find_value(graph, "w_quantized");
        if (CHECK(id.idx != 0)) {
            const sbit_tensor *w = &sbit_graph_value(graph, id)->constant;
            CHECK_EQ_I64(sbit_tensor_count(w), width * width);
            CHECK_EQ_I64(w->dtype, SBIT_I8);
            CHECK_EQ_I64(((const int8_t *)w->data)[width * width - 1], 127);
            CHECK_EQ_I64(((const int8_t *)w->data)[0], 0);
        }
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* A1.7: a model of 2.4 GB, whose weights lie in a sparse file beside it, gets int8 weights with
 * little more memory than these take; what is read comes from the file. */
TEST(a_model_over_2_gb_is_quantized_in_bounded_memory)
{
#ifdef __SANITIZE_ADDRESS__
    const bool small = true; /* the sanitizer takes its time */
#else
    const bool small = getenv("SBIT_TEST_QUICK") != NULL;
#endif
    const int64_t width = small ? 4000 : 24500; /* 64 MB, or 2.4 GB */
    const int64_t bytes = width * width * 4;
    char path[400], data_path[400], out[400];
    test_tmp_path("large.onnx", path, sizeof path);
    test_tmp_path("large.bin", data_path, sizeof data_path);
    test_tmp_path("large_int8.onnx", out, sizeof out);
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx_desc desc;
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    desc.allocator = test_heap_allocator(&heap);
    if (!report_large_model(path, data_path, width) ||
        !CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error)) {
        return;
    }
    if (CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error) &&
        CHECK_OK(sbit_qconfig_create(ctx, "generic", &config, &error), error) &&
        CHECK_OK(sbit_qconfig_set(config, "A.QUANTIZER.DISABLE", "true", &error), error) &&
        CHECK_OK(sbit_quant_create(graph, config, &quant, &error), error) &&
        CHECK(!sbit_quant_needs_data(quant)) &&
        CHECK_OK(sbit_quant_prepare_calibration(quant, &error), error) &&
        CHECK_OK(sbit_quant_calc_qparams(quant, false, false, false, &error), error) &&
        CHECK_OK(sbit_quant_export_onnx(quant, out, NULL, &error), error)) {
        CHECK_MSG(heap.peak_bytes < bytes / 4 + bytes / 32 + (1 << 20),
                  "%.1f MB for weights of %.1f", (double)heap.peak_bytes / 1e6,
                  (double)bytes / 1e6);
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
    report_check_large(out, width);
    remove(path);
    remove(data_path);
    remove(out);
}

/* A1.10: no node has a name; what is added is named, each name once, and a layer is left out by its
 * output's name. */
TEST(nodes_without_names)
{
    static float data[75];
    build b;
    build_begin(&b, 13);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,5,5");
    for (int i = 0; i < 5; i++) {
        char name[16];
        sbit_node_desc desc;
        sbit_type unknown;
        sbit_node_id id;
        memset(&desc, 0, sizeof desc);
        memset(&unknown, 0, sizeof unknown);
        unknown.rank = -1;
        snprintf(name, sizeof name, "w%d", i);
        const sbit_value_id inputs[2] = {x, build_weights(&b, name, "3,3,1,1", (uint64_t)i + 1)};
        snprintf(name, sizeof name, "t%d", i);
        const sbit_value_id output = build_value(&b, name, &unknown);
        desc.op_type = "Conv";
        desc.name = "";
        desc.inputs = inputs;
        desc.input_count = 2;
        desc.outputs = &output;
        desc.output_count = 1;
        if (!b.failed) {
            build_do(&b, sbit_graph_add_node(b.graph, &desc, &id, &b.error), name);
        }
        x = output;
    }
    build_output(&b, x);
    sbit_quant *quant = report_quant(&b, "generic", "SKIP_TRACE_MODULES", "[\"t2\"]");
    sbit_graph *q = NULL;
    report_fill(data, 75, 1);
    if (report_feed(&b, quant, "1,3,5,5", data) && report_calc(&b, quant) &&
        build_do(&b, sbit_quant_build(quant, NULL, &q, &b.error), "build")) {
        sbit_site site;
        CHECK(report_site(quant, "w1", &site) && site.enabled);
        CHECK(!report_site(quant, "w2", &site) || !site.enabled);
        for (sbit_node_id a = sbit_graph_first(q); a.idx != 0; a = sbit_graph_next(q, a)) {
            const char *name = sbit_graph_node(q, a)->name;
            for (sbit_node_id c = sbit_graph_next(q, a); c.idx != 0; c = sbit_graph_next(q, c)) {
                CHECK_MSG(name[0] == '\0' || strcmp(name, sbit_graph_node(q, c)->name) != 0,
                          "two nodes are called '%s'", name);
            }
        }
    }
    sbit_graph_destroy(q);
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* A1.14: a foreign operator is refused before any calibration, with operator and domain. */
TEST(foreign_operators_are_named_before_work_begins)
{
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_value_id y;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,3,5,5");
    const sbit_value_id a = report_conv(&b, "first", x, "4,3,3,3", 1);
    build_do(&b, sbit_graph_set_opset(b.graph, "com.acme", 1, &b.error), "opset");
    build_node_outputs(&b, "com.acme", "Foo", "foo", &a, 1, NULL, 0, &y, 1);
    build_output(&b, report_conv(&b, "second", y, "2,4,1,1", 2));
    build_do(&b, sbit_qconfig_create(b.ctx, "generic", &config, &b.error), "config");
    CHECK(sbit_quant_create(b.graph, config, &quant, &b.error) != SBIT_OK);
    CHECK_CONTAINS(b.error.message, "Foo");
    CHECK_CONTAINS(b.error.message, "com.acme");
    CHECK(quant == NULL);
    sbit_qconfig_destroy(config);
    build_end(&b);
}

/* A2.2: batches of other lengths and sizes observe what one joined batch observes. */
TEST(statistics_do_not_depend_on_the_batches)
{
    static const char *const parts[3] = {"1,3,4", "4,7,4", "2,128,4"};
    static const size_t counts[3] = {12, 112, 1024};
    static float data[1148];
    float scale[2][2] = {{0.0f, 0.0f}, {1.0f, 1.0f}};
    report_fill(data, 1148, 4);
    for (int joined = 0; joined < 2; joined++) {
        build b;
        build_begin(&b, 13);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,L,4");
        const sbit_value_id m =
            build_binary(&b, "MatMul", "m", x, build_weights(&b, "w", "4,6", 3));
        build_output(&b, build_binary(&b, "MatMul", "y", build_unary(&b, "Relu", "r", m),
                                      build_weights(&b, "v", "6,2", 5)));
        sbit_quant *quant = report_quant(&b, "generic", NULL, NULL);
        bool fed = joined != 0 && report_feed(&b, quant, "1,287,4", data);
        const float *part = data;
        for (int i = 0; i < 3 && joined == 0; i++) {
            fed = report_feed(&b, quant, parts[i], part);
            part += counts[i];
        }
        sbit_site site;
        if (fed && report_calc(&b, quant) && CHECK(report_site(quant, "x", &site))) {
            scale[joined][0] = site.qparams.scale[0];
            CHECK(report_site(quant, "r", &site));
            scale[joined][1] = site.qparams.scale[0];
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
    CHECK_NEAR(scale[0][0], scale[1][0], 0.0);
    CHECK_NEAR(scale[0][1], scale[1][1], 1e-6 * (double)scale[0][1]);
}

/* A2.11: a shape error names the node and both shapes. */
TEST(shapes_that_do_not_meet_are_both_named)
{
    static float data[2 * 18 * 18];
    static const int64_t two[2] = {2, 2};
    static const float scales[4] = {1.0f, 1.0f, 2.0f, 2.0f};
    const sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
    const sbit_attr axis = build_int("axis", 1);
    for (int size = 16; size <= 18; size += 2) {
        build b;
        sbit_session *session = NULL;
        sbit_value_id in[3] = {{0}, {0}, {0}};
        build_begin(&b, 13);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,2,H,W");
        const sbit_value_id d1 = build_node(&b, "MaxPool", "d1", &x, 1, pool, 2);
        in[0] = build_node(&b, "MaxPool", "d2", &d1, 1, pool, 2);
        in[2] = build_constant(&b, "s", SBIT_F32, "4", scales);
        in[0] = build_node(&b, "Resize", "up", in, 3, NULL, 0);
        in[1] = d1;
        build_output(&b, build_node(&b, "Concat", "Concat_8", in, 2, &axis, 1));
        build_do(&b, sbit_session_create(b.graph, NULL, &session, &b.error), "session");
        const sbit_tensor image =
            build_tensor(SBIT_F32, size == 16 ? "1,2,16,16" : "1,2,18,18", data);
        if (!b.failed && CHECK(sbit_session_set_input(session, "x", &image, &b.error) == SBIT_OK)) {
            const sbit_status status = sbit_session_run(session, &b.error);
            CHECK(size == 16 ? status == SBIT_OK : status != SBIT_OK);
            if (size == 18) { /* 9 rows from the skip, 8 from above */
                CHECK_CONTAINS(b.error.message, "Concat_8");
                CHECK_CONTAINS(b.error.message, "8");
                CHECK_CONTAINS(b.error.message, "9");
            }
        }
        sbit_session_destroy(session);
        build_end(&b);
    }
}

/* A4.8: Softmax, Sigmoid and Tanh have their range from the definition, not from the data, whether
 * the profile quantizes outputs or the inputs of the next layer. */
TEST(known_ranges_are_not_measured)
{
    static const struct {
        const char *op, *profile;
        double scale;
        int zero_point;
    } cases[] = {
        {"Softmax", "generic", 1.0 / 255.0, 0},
        {"Softmax", "mcu", 1.0 / 255.0, -128},
        {"Softmax", "tensorrt", 2.0 / 255.0, 0},
        {"Sigmoid", "generic", 1.0 / 255.0, 0},
        {"Sigmoid", "mcu", 1.0 / 255.0, -128},
        {"Sigmoid", "tensorrt", 2.0 / 255.0, 0},
        {"HardSigmoid", "mcu", 1.0 / 255.0, -128},
        {"Tanh", "generic", 2.0 / 255.0, 127}, /* float32: 1 / scale = 127.49999 */
        {"Tanh", "tensorrt", 2.0 / 255.0, 0},
    };
    static float data[75];
    report_fill(data, 75, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_site site;
        build_begin(&b, 13);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,3,5,5");
        const sbit_value_id s =
            build_unary(&b, cases[i].op, "s", report_conv(&b, "a", x, "4,3,1,1", 1));
        build_output(&b, report_conv(&b, "y", s, "2,4,1,1", 2));
        sbit_quant *quant = report_quant(&b, cases[i].profile, NULL, NULL);
        if (report_feed(&b, quant, "1,3,5,5", data) && report_calc(&b, quant) &&
            CHECK(report_site(quant, "s", &site))) {
            const double scale = (double)site.qparams.scale[0];
            const double other = cases[i].scale * 255.0 / 256.0; /* 1/256 is as good */
            CHECK_MSG(fabs(scale - cases[i].scale) < 1e-7 || fabs(scale - other) < 1e-7,
                      "%s, %s: scale 1/%.3f", cases[i].op, cases[i].profile, 1.0 / scale);
            CHECK_EQ_I64(site.qparams.zero_point[0], cases[i].zero_point);
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* A4.15: an embedding that is also the last layer, through a Transpose: the table is stored once.
 */
TEST(a_tied_embedding_is_stored_once)
{
    enum {
        ROWS = 9000,
        WIDTH = 32
    }; /* more than the simplifier folds */
    static const int64_t ids[6] = {1, 2, 8999, 0, 4, 3};
    build b;
    build_begin(&b, 13);
    const sbit_value_id table = build_weights(&b, "emb", "9000,32", 1);
    const sbit_value_id pick[2] = {table, build_input(&b, "ids", SBIT_I64, "N,3")};
    const sbit_value_id e = build_node(&b, "Gather", "e", pick, 2, NULL, 0);
    const sbit_value_id t = build_unary(&b, "Transpose", "t", table);
    build_output(&b, build_binary(&b, "MatMul", "y", build_unary(&b, "Relu", "r", e), t));
    sbit_quant *quant = report_quant(&b, "generic", NULL, NULL);
    const sbit_tensor x = build_tensor(SBIT_I64, "2,3", ids);
    sbit_graph *q = NULL;
    if (quant != NULL &&
        build_do(&b, sbit_quant_forward(quant, NULL, &x, 1, &b.error), "forward") &&
        report_calc(&b, quant) &&
        build_do(&b, sbit_quant_build(quant, NULL, &q, &b.error), "build")) {
        size_t bytes = 0;
        for (uint32_t i = 1; i < sbit_graph_value_limit(q); i++) {
            const sbit_value_id id = {i};
            if (sbit_graph_value_alive(q, id) && sbit_graph_value(q, id)->is_constant) {
                bytes += sbit_tensor_bytes(&sbit_graph_value(q, id)->constant);
            }
        }
        CHECK_MSG(bytes < (size_t)ROWS * WIDTH * 4 * 35 / 100, "%lu bytes of constants",
                  (unsigned long)bytes);
    }
    sbit_graph_destroy(q);
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* A4.21: 64 filters of 7x7 have 64 scales. */
TEST(one_scale_for_each_filter)
{
    static float data[3 * 9 * 9];
    build b;
    sbit_site site;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,3,9,9");
    build_output(&b, build_unary(&b, "Relu", "y", report_conv(&b, "c", x, "64,3,7,7", 1)));
    sbit_quant *quant = report_quant(&b, "generic", NULL, NULL);
    report_fill(data, 243, 3);
    if (report_feed(&b, quant, "1,3,9,9", data) && report_calc(&b, quant) &&
        CHECK(report_site(quant, "c.weight", &site))) {
        CHECK_EQ_I64(site.qparams.grid.parts.count, 64);
        CHECK_EQ_I64(site.qparams.axis, 0);
    }
    sbit_quant_destroy(quant);
    build_end(&b);
}

/* A9.3, A9.8: a layer is left out by glob, weight, node or tensor; a pattern that matches nothing
 * is said, with the nearest names. */
TEST(layers_are_left_out_by_many_names)
{
    static const char *const patterns[] = {"[\"con*\"]",   "[\"conv_1\"]", "[\"conv.1.weight\"]",
                                           "[\"conv.1\"]", "[\"conv/1\"]", "[\"cnov1\"]"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        const bool matches = i < 5;
        build b;
        sbit_site site;
        build_begin(&b, 13);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,3,9,9");
        const sbit_value_id c = report_conv(&b, "conv.1", x, "4,3,3,3", 1);
        build_output(&b, report_conv(&b, "other", c, "2,4,1,1", 2));
        sbit_quant *quant = report_quant(&b, "generic", "SKIP_TRACE_MODULES", patterns[i]);
        const bool quantized = report_site(quant, "conv.1.weight", &site) && site.enabled;
        CHECK_MSG(quantized != matches, "%s: %s", patterns[i], quantized ? "int8" : "float");
        CHECK_EQ_I64(b.warnings, matches ? 0 : 1);
        if (!matches) {
            CHECK_CONTAINS(b.warning, "cnov1");
            CHECK_CONTAINS(b.warning, "conv.1");
        }
        sbit_quant_destroy(quant);
        build_end(&b);
    }
}

/* A10.8: numbers in a configuration do not follow the locale's decimal comma. */
TEST(numbers_do_not_depend_on_the_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ru_RU.UTF-8"};
    static const char yaml[] = "PLACEMENT: generic\nEXPORT: {SHARE_LIMIT: 2.5}\n"
                               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                               "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    const char *set = NULL;
    sbit_ctx *ctx = test_ctx();
    sbit_qconfig *config = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && set == NULL; i++) {
        set = setlocale(LC_ALL, names[i]);
    }
    if (set == NULL) {
        printf("no locale with a decimal comma is installed; only \"C\" is tried\n");
    }
    CHECK_OK(sbit_qconfig_read(ctx, yaml, sizeof yaml - 1, &config, &error), error);
    sbit_qconfig_destroy(config);
    CHECK_STATUS(sbit_qconfig_read(ctx, "EXPORT: {SHARE_LIMIT: 2,5}\n", 27, &config, &error),
                 SBIT_ERR_CONFIG, error);
    setlocale(LC_ALL, "C");
    sbit_ctx_destroy(ctx);
}
