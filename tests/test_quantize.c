/* test_quantize.c: the short way through quantization; BatchNormalization statistics from data. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

#define SAMPLES 10
#define PLANE (5 * 6)

static float quantize_data[SAMPLES * 3 * PLANE];

static void quantize_fill(void)
{
    sbit_rng rng = sbit_rng_seed(21);
    for (int i = 0; i < SAMPLES * 3 * PLANE; i++) {
        quantize_data[i] = sbit_rng_normal(&rng) * (1.0f + 0.1f * (float)(i % 3));
    }
}

static sbit_value_id quantize_norm(build *b, const char *name, sbit_value_id x, float mean,
                                   float var)
{
    static const char *const parts[4] = {"gamma", "beta", "mean", "var"};
    sbit_value_id in[5];
    in[0] = x;
    for (int i = 0; i < 4; i++) {
        float values[4];
        char text[64];
        for (int c = 0; c < 4; c++) {
            values[c] = i == 0 ? 1.0f + 0.2f * (float)c : i == 1 ? 0.1f : i == 2 ? mean : var;
        }
        snprintf(text, sizeof text, "%s.%s", name, parts[i]);
        in[i + 1] = build_constant(b, text, SBIT_F32, "4", values);
    }
    return build_node(b, "BatchNormalization", name, in, 5, NULL, 0);
}

/* Conv, BatchNormalization, Relu, twice. */
static void quantize_network(build *b, int64_t opset)
{
    build_begin(b, opset);
    sbit_value_id x = build_input(b, "x", SBIT_F32, "N,3,5,6");
    x = build_binary(b, "Conv", "c1", x, build_weights(b, "c1.weight", "4,3,1,1", 1));
    x = build_unary(b, "Relu", "r1", quantize_norm(b, "n1", x, 0.7f, 3.0f));
    x = build_binary(b, "Conv", "c2", x, build_weights(b, "c2.weight", "4,4,1,1", 2));
    build_output(b, build_unary(b, "Relu", "r2", quantize_norm(b, "n2", x, -0.4f, 0.2f)));
}

static sbit_feed quantize_feed(build *b, sbit_tensor *all, int64_t batch)
{
    sbit_feed feed;
    sbit_feed_desc desc;
    memset(&feed, 0, sizeof feed);
    memset(&desc, 0, sizeof desc);
    quantize_fill();
    *all = build_tensor(SBIT_F32, "10,3,5,6", quantize_data);
    desc.inputs = all;
    desc.input_count = 1;
    desc.batch = batch;
    build_do(b, sbit_feed_of_tensors(b->ctx, &desc, &feed, &b->error), "feed");
    return feed;
}

static const float *quantize_values(const build *b, const sbit_graph *graph, const char *name)
{
    const sbit_value_id id = sbit_graph_find_value(graph, name);
    return CHECK(id.idx != 0 && !b->failed)
               ? (const float *)sbit_graph_value(graph, id)->constant.data
               : NULL;
}

/* The first normalization sees what does not depend on statistics: mean and variance of 1x1
 * convolutions by plain double arithmetic; batches of 4, 4 and 2 together give that of all ten. */
TEST(bn_statistics_are_those_of_the_data)
{
    for (int64_t opset = 13; opset <= 15; opset += 2) {
        for (int64_t batch = 4; batch <= 10; batch += 6) {
            build b;
            sbit_tensor all;
            quantize_network(&b, opset);
            sbit_feed feed = quantize_feed(&b, &all, batch);
            build_do(&b, sbit_reestimate_bn(b.graph, &feed, &b.error), "reestimate");
            const float *w = quantize_values(&b, b.graph, "c1.weight");
            const float *mean = quantize_values(&b, b.graph, "n1.mean");
            const float *var = quantize_values(&b, b.graph, "n1.var");
            for (int c = 0; c < 4 && w != NULL && mean != NULL && var != NULL; c++) {
                double sum = 0.0, squares = 0.0;
                for (int i = 0; i < SAMPLES * PLANE; i++) {
                    double y = 0.0;
                    for (int k = 0; k < 3; k++) {
                        y += (double)w[c * 3 + k] *
                             (double)quantize_data[(i / PLANE * 3 + k) * PLANE + i % PLANE];
                    }
                    sum += y;
                    squares += y * y;
                }
                const double m = sum / (SAMPLES * PLANE);
                CHECK_NEAR(mean[c], m, 1e-5);
                CHECK_NEAR(var[c], squares / (SAMPLES * PLANE) - m * m, 1e-4);
            }
            /* the second one's output has mean beta and deviation gamma when all is one batch */
            if (batch == 10) {
                sbit_session *session = NULL;
                sbit_session_desc desc;
                const sbit_value_id out = sbit_graph_find_value(b.graph, "n2");
                memset(&desc, 0, sizeof desc);
                desc.outputs = &out;
                desc.output_count = 1;
                build_do(&b, sbit_session_create(b.graph, &desc, &session, &b.error), "session");
                build_do(&b, sbit_session_set_input(session, "x", &all, &b.error), "x");
                build_do(&b, sbit_session_run(session, &b.error), "run");
                const float *y =
                    b.failed ? NULL : (const float *)sbit_session_output(session, 0)->tensor.data;
                for (int c = 0; c < 4 && y != NULL; c++) {
                    double sum = 0.0, squares = 0.0;
                    for (int i = 0; i < SAMPLES * PLANE; i++) {
                        const double v = (double)y[(i / PLANE * 4 + c) * PLANE + i % PLANE];
                        sum += v;
                        squares += v * v;
                    }
                    const double m = sum / (SAMPLES * PLANE);
                    CHECK_NEAR(m, 0.1, 1e-4);
                    CHECK_NEAR(sqrt(squares / (SAMPLES * PLANE) - m * m), 1.0 + 0.2 * c, 1e-2);
                }
                sbit_session_destroy(session);
            }
            sbit_feed_close(&feed);
            build_end(&b);
        }
    }
}

TEST(bn_statistics_need_a_normalization)
{
    build b;
    sbit_tensor all;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,5,6");
    build_output(&b, build_unary(&b, "Relu", "r", x));
    sbit_feed feed = quantize_feed(&b, &all, 4);
    CHECK_STATUS(sbit_reestimate_bn(b.graph, &feed, &b.error), SBIT_ERR_NOT_FOUND, b.error);
    sbit_feed_close(&feed);
    build_end(&b);
}

static int quantize_count(const sbit_graph *g, const char *op)
{
    int count = 0;
    for (sbit_node_id id = sbit_graph_first(g); id.idx != 0; id = sbit_graph_next(g, id)) {
        count += strcmp(sbit_graph_node(g, id)->op_type, op) == 0;
    }
    return count;
}

/* SCHEDULE.BN_TUNING: with statistics that are far off the data, the float model is another one
 * than the data's; after tuning the quantized model normalizes. */
TEST(bn_tuning_follows_the_data_and_folds)
{
    static const char *const text = "SCHEDULE: {BN_TUNING: true}\nPLACEMENT: generic\n"
                                    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                                    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    build b;
    sbit_tensor all;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *q = NULL, *tuned = NULL;
    quantize_network(&b, 13);
    sbit_feed feed = quantize_feed(&b, &all, 10);
    build_do(&b, sbit_qconfig_read(b.ctx, text, strlen(text), &config, &b.error), "config");
    build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant");
    if (!b.failed) {
        CHECK_STATUS(sbit_quant_prepare_calibration(quant, &b.error), SBIT_ERR_STATE, b.error);
        CHECK_CONTAINS(b.error.message, "BN_TUNING");
    }
    build_do(&b, sbit_quantize(b.graph, config, &feed, &q, &b.error), "quantize");
    build_do(&b, sbit_graph_clone(b.graph, &tuned, &b.error), "clone");
    build_do(&b, sbit_reestimate_bn(tuned, &feed, &b.error), "reestimate");
    if (!b.failed) {
        CHECK_EQ_I64(quantize_count(q, "BatchNormalization"), 0);
        sbit_graph *const graphs[2] = {tuned, q};
        float kept[SAMPLES * 4 * PLANE];
        double signal = 0.0, noise = 0.0;
        for (int k = 0; k < 2; k++) {
            sbit_session *session = NULL;
            build_do(&b, sbit_session_create(graphs[k], NULL, &session, &b.error), "session");
            build_do(&b, sbit_session_set_input(session, "x", &all, &b.error), "x");
            build_do(&b, sbit_session_run(session, &b.error), "run");
            const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
            for (int i = 0; i < SAMPLES * 4 * PLANE; i++) {
                signal += k == 1 ? (double)kept[i] * (double)kept[i] : 0.0;
                noise += k == 1 ? pow((double)kept[i] - (double)y[i], 2.0) : 0.0;
                kept[i] = y[i];
            }
            sbit_session_destroy(session);
        }
        CHECK_MSG(10.0 * log10(signal / noise) > 35.0, "%.1f dB", 10.0 * log10(signal / noise));
    }
    sbit_graph_destroy(q);
    sbit_graph_destroy(tuned);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    build_end(&b);
}

/* The short way gives what the steps give, and outlives them. */
TEST(one_call_equals_the_steps)
{
    static const char *const paths[2] = {SBIT_TEST_TMP "/short.onnx", SBIT_TEST_TMP "/long.onnx"};
    build b;
    sbit_tensor all;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *q = NULL;
    quantize_network(&b, 13);
    sbit_feed feed = quantize_feed(&b, &all, 4);
    build_do(&b, sbit_quantize(b.graph, NULL, &feed, &q, &b.error), "quantize");
    if (!b.failed) {
        build_do(&b, sbit_graph_save(q, paths[0], NULL, &b.error), "save");
    }
    build_do(&b, sbit_qconfig_create(b.ctx, NULL, &config, &b.error), "config");
    build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant");
    if (!b.failed) {
        build_do(&b, sbit_quant_calibrate(quant, &feed, &b.error), "calibrate");
        build_do(&b, sbit_quant_calc_qparams(quant, false, false, false, &b.error), "calc");
        build_do(&b, sbit_quant_export_onnx(quant, paths[1], NULL, &b.error), "export");
    }
    char *bytes[2] = {NULL, NULL};
    long size[2] = {0, 0};
    for (int i = 0; i < 2 && !b.failed; i++) {
        FILE *file = fopen(paths[i], "rb");
        if (CHECK(file != NULL)) {
            fseek(file, 0, SEEK_END);
            size[i] = ftell(file);
            rewind(file);
            bytes[i] = (char *)malloc((size_t)size[i]);
            CHECK(fread(bytes[i], 1, (size_t)size[i], file) == (size_t)size[i]);
            fclose(file);
        }
    }
    if (CHECK(size[0] > 0 && size[0] == size[1])) {
        CHECK_MEM(bytes[0], bytes[1], (size_t)size[0]);
    }
    free(bytes[0]);
    free(bytes[1]);
    sbit_graph_destroy(q);
    q = NULL;
    CHECK_STATUS(sbit_quantize(b.graph, NULL, NULL, &q, &b.error), SBIT_ERR_STATE, b.error);
    CHECK(q == NULL);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    build_end(&b);
}

/* ---- formats */

static double quantize_distance(build *b, sbit_graph *p, sbit_graph *q, const sbit_tensor *x,
                                double *largest)
{
    sbit_graph *const graphs[2] = {p, q};
    float *kept = NULL;
    double worst = 0.0;
    *largest = 0.0;
    for (int k = 0; k < 2 && !b->failed; k++) {
        sbit_session *session = NULL;
        build_do(b, sbit_session_create(graphs[k], NULL, &session, &b->error), "session");
        build_do(b, sbit_session_set_input(session, "x", x, &b->error), "x");
        build_do(b, sbit_session_run(session, &b->error), "run");
        const sbit_tensor *y = b->failed ? NULL : &sbit_session_output(session, 0)->tensor;
        const int64_t n = y != NULL ? sbit_tensor_count(y) : 0;
        if (k == 0 && n > 0) {
            kept = (float *)malloc((size_t)n * sizeof *kept);
            memcpy(kept, y->data, (size_t)n * sizeof *kept);
        }
        for (int64_t i = 0; k == 1 && i < n; i++) {
            const double value = (double)((const float *)y->data)[i];
            worst = fmax(worst, fabs(value - (double)kept[i]));
            *largest = fmax(*largest, fabs(value));
        }
        sbit_session_destroy(session);
    }
    free(kept);
    return worst;
}

/* Two convolutions, a Relu6, a sum, a Concat, a pool, a classifier. */
static void formats_network(build *b)
{
    const float low = 0.0f, high = 6.0f;
    const sbit_attr axis = build_int("axis", 1);
    sbit_value_id in[3];
    build_begin(b, 13);
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,3,5,6");
    in[0] = x;
    in[1] = build_weights(b, "c1.weight", "4,3,3,3", 1);
    in[2] = build_weights(b, "c1.bias", "4", 2);
    sbit_value_id y = build_unary(b, "Relu", "r1", build_node(b, "Conv", "c1", in, 3, NULL, 0));
    in[0] = y;
    in[1] = build_weights(b, "c2.weight", "4,4,1,1", 3);
    in[2] = build_weights(b, "c2.bias", "4", 4);
    in[0] = build_node(b, "Conv", "c2", in, 3, NULL, 0);
    in[1] = build_constant(b, "low", SBIT_F32, "", &low);
    in[2] = build_constant(b, "high", SBIT_F32, "", &high);
    const sbit_value_id z = build_node(b, "Clip", "r2", in, 3, NULL, 0);
    in[0] = build_binary(b, "Add", "sum", y, z);
    in[1] = z;
    y = build_node(b, "Concat", "both", in, 2, &axis, 1);
    y = build_unary(b, "GlobalAveragePool", "pool", y);
    y = build_unary(b, "Flatten", "flat", y);
    in[0] = y;
    in[1] = build_weights(b, "fc.weight", "8,5", 5);
    build_output(b, build_node(b, "MatMul", "y", in, 2, NULL, 0));
}

TEST(operators_on_integers_compute_what_the_pairs_do)
{
    static const char *const profiles[] = {"onnxruntime", "mcu", "openvino"};
    for (size_t p = 0; p < 3; p++) {
        build b;
        sbit_tensor all;
        sbit_qconfig *config = NULL;
        sbit_graph *graphs[2] = {NULL, NULL};
        formats_network(&b);
        sbit_feed feed = quantize_feed(&b, &all, 5);
        build_do(&b, sbit_qconfig_create(b.ctx, profiles[p], &config, &b.error), "config");
        /* sharing a wider scale with the sum would make the Clip necessary */
        build_do(&b, sbit_qconfig_set(config, "EXPORT.SHARE_SCALE", "none", &b.error), "set");
        build_do(&b, sbit_quantize(b.graph, config, &feed, &graphs[0], &b.error), "qdq");
        build_do(&b, sbit_qconfig_set(config, "EXPORT.FORMAT", "qoperator", &b.error), "set");
        build_do(&b, sbit_quantize(b.graph, config, &feed, &graphs[1], &b.error), "qoperator");
        if (!b.failed) {
            double largest = 0.0;
            const double worst = quantize_distance(&b, graphs[0], graphs[1], &all, &largest);
            CHECK_MSG(worst < 0.03 * largest, "%s: %g of %g", profiles[p], worst, largest);
            const bool bias = strcmp(profiles[p], "openvino") != 0; /* there it is float */
            CHECK_EQ_I64(quantize_count(graphs[1], "QLinearConv"), bias ? 2 : 0);
            CHECK_EQ_I64(quantize_count(graphs[1], "Clip"), bias ? 0 : 1);
            CHECK_EQ_I64(quantize_count(graphs[1], "QLinearAdd"), 1);
            CHECK_EQ_I64(quantize_count(graphs[1], "QLinearConcat"), 1);
            CHECK_EQ_I64(quantize_count(graphs[1], "QLinearGlobalAveragePool"), 1);
            CHECK_OK(sbit_graph_validate(graphs[1], &b.error), b.error);
        }
        sbit_graph_destroy(graphs[0]);
        sbit_graph_destroy(graphs[1]);
        sbit_qconfig_destroy(config);
        sbit_feed_close(&feed);
        build_end(&b);
    }
}

static sbit_status named_write(sbit_graph *graph, sbit_error *error)
{
    return sbit_graph_add_metadata(graph, "written.by", "named", error);
}

static const sbit_format_row named_row = {
    {"named", "Q/DQ with a name", 0, NULL, 0}, false, named_write};

TEST(formats_weights_alone_and_from_outside)
{
    build b;
    sbit_qconfig *config = NULL;
    sbit_graph *q = NULL;
    sbit_tensor all;
    formats_network(&b);
    sbit_feed feed = quantize_feed(&b, &all, 5);
    build_do(&b, sbit_qconfig_create(b.ctx, NULL, &config, &b.error), "config");
    build_do(&b, sbit_qconfig_set(config, "EXPORT.FORMAT", "weights", &b.error), "set");
    build_do(&b, sbit_quantize(b.graph, config, NULL, &q, &b.error), "without data");
    if (!b.failed) {
        CHECK_EQ_I64(quantize_count(q, "QuantizeLinear"), 0);
        CHECK_EQ_I64(quantize_count(q, "DequantizeLinear"), 3);
    }
    sbit_graph_destroy(q);
    q = NULL;
    CHECK_OK(sbit_format_register(b.ctx, &named_row, &b.error), b.error);
    build_do(&b, sbit_qconfig_set(config, "EXPORT.FORMAT", "named", &b.error), "set");
    build_do(&b, sbit_quantize(b.graph, config, &feed, &q, &b.error), "named");
    sbit_graph_destroy(q);
    build_do(&b, sbit_qconfig_set(config, "EXPORT.FORMAT", "qdqd", &b.error), "set");
    q = NULL;
    CHECK_STATUS(sbit_quantize(b.graph, config, &feed, &q, &b.error), SBIT_ERR_CONFIG, b.error);
    CHECK_CONTAINS(b.error.message, "qoperator");
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    build_end(&b);
}
