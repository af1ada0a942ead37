/* split */
/* test_steps.c: the steps of a recipe, the walk through the model, layers as matrix products. */
#include "../src/quant/layer_private.h"
#include "test.h"
#include "build_graph.h"
#include "build_quantized.h"

/* A network of three layers with Relu6 between them: 3x3, depthwise with a stride, 1x1. Channels of
 * very different size, so that per-tensor weights suffer. */
#define STEPS_BATCH 4
#define STEPS_COUNT (STEPS_BATCH * 3 * 9 * 9)

typedef struct steps {
    build b;
    sbit_quant *quant;
    sbit_feed feed;
    float data[3 * STEPS_COUNT];
    sbit_tensor all;
} steps;

static bool steps_pruned; /* every second weight is zero */

static sbit_value_id steps_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                int group, int stride, double spread)
{
    const int64_t pads[4] = {1, 0, 1, 2}, strides[2] = {stride, 1};
    const bool wide = strstr(dims, "3,3") != NULL;
    sbit_attr attrs[3];
    char text[64];
    sbit_value_id inputs[3];
    attrs[0] = build_int("group", group);
    attrs[1] = build_ints("strides", strides, 2);
    attrs[2] = build_ints("pads", pads, 4);
    snprintf(text, sizeof text, "%s.weight", name);
    sbit_tensor w = build_tensor(SBIT_F32, dims, NULL);
    const int64_t count = sbit_tensor_count(&w), per = count / w.dims[0];
    float *values = (float *)malloc((size_t)count * sizeof *values);
    float bias[64];
    sbit_rng rng = sbit_rng_seed((uint64_t)(count + name[0]));
    for (int64_t i = 0; i < count; i++) {
        values[i] = sbit_rng_normal(&rng) * (float)(pow(spread, (double)(i / per % 5)) / 3.0);
        values[i] = steps_pruned && i % 2 == 0 ? 0.0f : values[i];
    }
    for (int64_t i = 0; i < w.dims[0]; i++) {
        bias[i] = sbit_rng_normal(&rng) * 0.2f;
    }
    inputs[0] = x;
    inputs[1] = build_constant(b, text, SBIT_F32, dims, values);
    snprintf(text, sizeof text, "%lld", (long long)w.dims[0]);
    char bias_name[64];
    snprintf(bias_name, sizeof bias_name, "%s.bias", name);
    inputs[2] = build_constant(b, bias_name, SBIT_F32, text, bias);
    free(values);
    return build_node(b, "Conv", name, inputs, 3, attrs, wide ? 3 : 2);
}

static sbit_value_id steps_relu6(build *b, const char *name, sbit_value_id x)
{
    const float low = 0.0f, high = 6.0f;
    char text[64];
    sbit_value_id inputs[3];
    inputs[0] = x;
    snprintf(text, sizeof text, "%s.min", name);
    inputs[1] = build_constant(b, text, SBIT_F32, "", &low);
    snprintf(text, sizeof text, "%s.max", name);
    inputs[2] = build_constant(b, text, SBIT_F32, "", &high);
    return build_node(b, "Clip", name, inputs, 3, NULL, 0);
}

static void steps_begin(steps *s, const char *profile, const char *const set[][2])
{
    sbit_qconfig *config = NULL;
    sbit_feed_desc desc;
    sbit_rng rng = sbit_rng_seed(2);
    memset(s, 0, sizeof *s);
    build_begin(&s->b, 13);
    const sbit_value_id x = build_input(&s->b, "x", SBIT_F32, "N,3,9,9");
    sbit_value_id y = steps_conv(&s->b, "a", x, "10,3,3,3", 1, 1, 1.9);
    y = steps_conv(&s->b, "b", steps_relu6(&s->b, "ra", y), "10,1,3,3", 10, 2, 0.6);
    y = steps_conv(&s->b, "c", steps_relu6(&s->b, "rb", y), "6,10,1,1", 1, 1, 1.0);
    build_output(&s->b, y);
    for (int i = 0; i < 3 * STEPS_COUNT; i++) {
        const float before = i % 81 > 8 ? s->data[i - 9] : i % 9 > 0 ? s->data[i - 1] : 0.3f;
        s->data[i] = 0.9f * before + 0.4f * sbit_rng_normal(&rng); /* like its neighbours */
    }
    build_do(&s->b, sbit_qconfig_create(s->b.ctx, profile, &config, &s->b.error), "config");
    for (size_t i = 0; !s->b.failed && set != NULL && set[i][0] != NULL; i++) {
        build_do(&s->b, sbit_qconfig_set(config, set[i][0], set[i][1], &s->b.error), set[i][0]);
    }
    if (!s->b.failed) {
        build_do(&s->b, sbit_quant_create(s->b.graph, config, &s->quant, &s->b.error), "quant");
    }
    sbit_qconfig_destroy(config);
    s->all = build_tensor(SBIT_F32, "11,3,9,9", s->data); /* batches of 4, 4, 3 */
    memset(&desc, 0, sizeof desc);
    desc.inputs = &s->all;
    desc.input_count = 1;
    desc.batch = STEPS_BATCH;
    build_do(&s->b, sbit_feed_of_tensors(s->b.ctx, &desc, &s->feed, &s->b.error), "feed");
}

static void steps_end(steps *s)
{
    sbit_feed_close(&s->feed);
    sbit_quant_destroy(s->quant);
    build_end(&s->b);
}

/* The quantization of any graph. */
typedef struct steps_of {
    sbit_quant *quant;
    sbit_feed feed;
    sbit_graph *q; /* once built */
} steps_of;

/* Takes the configuration; `batch` samples at a time (0: the default). */
static void steps_open(steps_of *s, build *b, sbit_qconfig *config, const sbit_tensor *all, int64_t batch)
{
    sbit_feed_desc desc;
    memset(s, 0, sizeof *s);
    memset(&desc, 0, sizeof desc);
    desc.inputs = all;
    desc.input_count = 1;
    desc.batch = batch;
    if (!b->failed) {
        build_do(b, sbit_quant_create(b->graph, config, &s->quant, &b->error), "quant");
        build_do(b, sbit_feed_of_tensors(b->ctx, &desc, &s->feed, &b->error), "feed");
    }
    sbit_qconfig_destroy(config);
}

static void steps_read(steps_of *s, build *b, const char *text, const sbit_tensor *all, int64_t batch)
{
    sbit_qconfig *config = NULL;
    build_do(b, sbit_qconfig_read(b->ctx, text, strlen(text), &config, &b->error), "config");
    steps_open(s, b, config, all, batch);
}

static bool steps_build(steps_of *s, build *b)
{
    return !b->failed && build_do(b, sbit_quant_calibrate(s->quant, &s->feed, &b->error), "calibrate") &&
           build_do(b, sbit_quant_calc_qparams(s->quant, false, false, false, &b->error), "calc") &&
           build_do(b, sbit_quant_build(s->quant, NULL, &s->q, &b->error), "build");
}

static void steps_close(steps_of *s)
{
    sbit_graph_destroy(s->q);
    sbit_quant_destroy(s->quant);
    sbit_feed_close(&s->feed);
}

/* Output 0 of a graph with the input x. */
static void steps_output(build *b, sbit_graph *graph, const sbit_tensor *all, float *out, size_t count)
{
    sbit_session *session = NULL;
    if (build_do(b, sbit_session_create(graph, NULL, &session, &b->error), "session") &&
        build_do(b, sbit_session_set_input(session, "x", all, &b->error), "x") &&
        build_do(b, sbit_session_run(session, &b->error), "run")) {
        memcpy(out, sbit_session_output(session, 0)->tensor.data, count * sizeof *out);
    }
    sbit_session_destroy(session);
}

/* Of the graph as given, after the float steps, and quantized. */
static void steps_three(const steps_of *s, build *b, const sbit_tensor *all, float *given, float *moved, float *quantized,
                        size_t count)
{
    steps_output(b, b->graph, all, given, count);
    steps_output(b, sbit_quant_float_graph(s->quant), all, moved, count);
    steps_output(b, s->q, all, quantized, count);
}

static bool steps_calc(steps *s, bool asym)
{
    return !s->b.failed &&
           build_do(&s->b, sbit_quant_calibrate(s->quant, &s->feed, &s->b.error), "calibrate") &&
           build_do(&s->b, sbit_quant_calc_qparams(s->quant, asym, asym, asym, &s->b.error),
                    "calc");
}

/* Output 0 of a graph for the first batch; free() it. */
static float *steps_run(steps *s, sbit_graph *graph, size_t *count)
{
    sbit_session *session = NULL;
    sbit_tensor x = s->all;
    float *out = NULL;
    x.dims[0] = STEPS_BATCH;
    *count = 0;
    build_do(&s->b, sbit_session_create(graph, NULL, &session, &s->b.error), "session");
    if (!s->b.failed) {
        build_do(&s->b, sbit_session_set_input(session, "x", &x, &s->b.error), "input");
        build_do(&s->b, sbit_session_run(session, &s->b.error), "run");
    }
    if (!s->b.failed) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        *count = (size_t)sbit_tensor_count(y);
        out = (float *)malloc(*count * sizeof *out);
        memcpy(out, y->data, *count * sizeof *out);
    }
    sbit_session_destroy(session);
    return out;
}

/* dB of b against a. */
static double steps_sqnr(const float *a, const float *b, size_t count)
{
    double signal = 0.0, noise = 0.0;
    for (size_t i = 0; a != NULL && b != NULL && i < count; i++) {
        signal += (double)a[i] * (double)a[i];
        noise += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return 10.0 * log10((signal + 1e-300) / (noise + 1e-300));
}

/* dB of the quantized model against the float model as it was given. */
static double steps_quality(steps *s)
{
    size_t n = 0, m = 0;
    sbit_graph *q = NULL;
    build_do(&s->b, sbit_quant_build(s->quant, NULL, &q, &s->b.error), "build");
    if (s->b.failed) {
        return 0.0;
    }
    float *a = steps_run(s, s->b.graph, &n), *b = steps_run(s, q, &m);
    const double db = CHECK(n == m) ? steps_sqnr(a, b, n) : 0.0;
    free(a);
    free(b);
    sbit_graph_destroy(q);
    return db;
}

/* ---- cross-layer equalization */

TEST(cross_layer_keeps_the_float_model_and_helps_per_tensor_weights)
{
    static const char *const plain[][2] = {
        {"W.QSCHEME", "per-tensor-symmetric"}, {"A.QUANTIZER.BIT", "16"}, {NULL, NULL}};
    static const char *const equal[][2] = {{"W.QSCHEME", "per-tensor-symmetric"},
                                           {"A.QUANTIZER.BIT", "16"},
                                           {"STEPS", "[cross_layer]"},
                                           {NULL, NULL}};
    static steps a, b;
    size_t n = 0, m = 0;
    steps_begin(&a, "generic", plain);
    steps_begin(&b, "generic", equal);
    if (steps_calc(&a, false) && steps_calc(&b, false)) {
        float *x = steps_run(&b, b.b.graph, &n);
        float *y = steps_run(&b, sbit_quant_float_graph(b.quant), &m);
        CHECK(n == m);
        CHECK(steps_sqnr(x, y, n) > 110.0);
        free(x);
        free(y);
        const double before = steps_quality(&a), after = steps_quality(&b);
        CHECK_MSG(after > before + 6.0, "%.1f dB, equalized %.1f dB", before, after);
        /* ranges of rows of a against columns of b, which AMPLIFY alone keeps apart */
        int relu = 0, min = 0, clip = 0;
        const sbit_graph *g = sbit_quant_graph(b.quant);
        for (sbit_node_id id = sbit_graph_first(g); id.idx != 0; id = sbit_graph_next(g, id)) {
            const char *op = sbit_graph_node(g, id)->op_type;
            relu += strcmp(op, "Relu") == 0;
            min += strcmp(op, "Min") == 0;
            clip += strcmp(op, "Clip") == 0;
        }
        CHECK(relu == 2 && min == 2 && clip == 0);
    }
    steps_end(&a);
    steps_end(&b);
}

TEST(cross_layer_leaves_clip_alone_if_told)
{
    static const char *const set[][2] = {
        {"STEPS", "[cross_layer]"}, {"STEP.CROSS_LAYER.CLIP", "skip"}, {NULL, NULL}};
    static steps s;
    steps_begin(&s, "generic", set);
    const sbit_value_id w = sbit_graph_find_value(sbit_quant_graph(s.quant), "a.weight");
    const sbit_value_id v = sbit_graph_find_value(s.b.graph, "a.weight");
    CHECK_MEM(sbit_graph_value(sbit_quant_graph(s.quant), w)->constant.data,
              sbit_graph_value(s.b.graph, v)->constant.data, 270 * sizeof(float));
    steps_end(&s);
}

/* ---- bias absorption */

/* a -> Clip(0, 40) -> b (depthwise, 1x1) -> Relu -> c (padded) -> Relu -> d: a and c give much more
 * than varies of it. */
static void absorb_model(build *b, float *data, sbit_tensor *all)
{
    static const char *const names[4] = {"a", "b", "c", "d"};
    static const char *const dims[4] = {"6,3,1,1", "6,1,1,1", "5,6,3,3", "4,5,1,1"};
    const int64_t pads[4] = {1, 1, 1, 1};
    sbit_rng rng = sbit_rng_seed(5);
    build_begin(b, 13);
    sbit_value_id y = build_input(b, "x", SBIT_F32, "N,3,4,4");
    for (int i = 0; i < 4; i++) {
        const sbit_attr attrs[2] = {build_int("group", i == 1 ? 6 : 1), build_ints("pads", pads, 4)};
        float bias[6], high = 40.0f, low = 0.0f;
        char text[40];
        sbit_value_id inputs[3];
        inputs[0] = y;
        snprintf(text, sizeof text, "%s.weight", names[i]);
        inputs[1] = build_weights(b, text, dims[i], 3u + (uint64_t)i);
        if (b->failed) {
            return;
        }
        const sbit_tensor *w = &sbit_graph_value(b->graph, inputs[1])->constant;
        const int count = (int)w->dims[0], per = (int)(sbit_tensor_count(w) / count);
        for (int k = 0; k < 6; k++) { /* two channels cross 0, one is above 40 */
            bias[k] = i % 2 != 0 || k < 2 ? 0.3f : k == 5 ? 60.0f : 20.0f + (float)k;
            for (int n = 0; n < per && i % 2 != 0 && k < count; n++) { /* less what comes in */
                const int from = i == 1 ? k : n;
                bias[k] -= ((const float *)w->data)[k * per + n] * (from < 2 ? 0.3f : from == 5 ? 40.0f : 20.0f + (float)from);
            }
        }
        snprintf(text, sizeof text, "%s.bias", names[i]);
        inputs[2] = build_constant(b, text, SBIT_F32, i < 2 ? "6" : i == 2 ? "5" : "4", bias);
        y = build_node(b, "Conv", names[i], inputs, 3, attrs, i == 2 ? 2 : 1);
        if (i == 0) {
            inputs[0] = y;
            inputs[1] = build_constant(b, "low", SBIT_F32, "", &low);
            inputs[2] = build_constant(b, "high", SBIT_F32, "", &high);
            y = build_node(b, "Clip", "clip", inputs, 3, NULL, 0);
        } else if (i < 3) {
            snprintf(text, sizeof text, "r%s", names[i]);
            y = build_unary(b, "Relu", text, y);
        }
    }
    build_output(b, y);
    for (int i = 0; i < 16 * 48; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    *all = build_tensor(SBIT_F32, "16,3,4,4", data);
}

static double absorb_bias(const sbit_graph *graph, const char *name, int channel)
{
    const sbit_value_id id = sbit_graph_find_value(graph, name);
    return (double)((const float *)sbit_graph_value(graph, id)->constant.data)[channel];
}

/* What channels always have above 0 is in the next bias, the float model the same; not in front of
 * padding, with or without equalization before it. The range between is smaller, and its error. */
TEST(biases_are_absorbed_by_the_layer_behind)
{
    static float data[16 * 48], y[3][16 * 64];
    double db[4] = {0.0, 0.0, 0.0, 0.0};
    for (int k = 0; k < 4; k++) {
        static const char *const recipes[4] = {"", "bias_absorption", "cross_layer", "cross_layer, bias_absorption"};
        build b;
        steps_of s;
        sbit_tensor all;
        char text[300];
        absorb_model(&b, data, &all);
        snprintf(text, sizeof text,
                 "STEPS: [%s]\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 6}}\n",
                 recipes[k]);
        steps_read(&s, &b, text, &all, 5); /* the last batch is smaller */
        if (steps_build(&s, &b)) {
            const sbit_graph *graph = sbit_quant_graph(s.quant);
            steps_three(&s, &b, &all, y[0], y[1], y[2], 16 * 64);
            CHECK_MSG(steps_sqnr(y[0], y[1], 16 * 64) > 100.0, "%d: %.1f dB", k, steps_sqnr(y[0], y[1], 16 * 64));
            db[k] = steps_sqnr(y[0], y[2], 16 * 64);
            if (k < 2) { /* b gives nothing to c, which is padded; nor does what crosses 0 */
                CHECK_NEAR(absorb_bias(graph, "a.bias", 0), (double)0.3f, 0.0);
                CHECK((absorb_bias(graph, "a.bias", 3) < 10.0) == (k == 1));
                CHECK((absorb_bias(graph, "a.bias", 5) < 30.0) == (k == 1)); /* all of the bound */
                CHECK((absorb_bias(graph, "c.bias", 3) < 20.0) == (k == 1));
                CHECK((absorb_bias(graph, "c.bias", 2) == 22.0) == (k == 0));
            }
        }
        steps_close(&s);
        build_end(&b);
    }
    CHECK_MSG(db[1] > db[0] + 6.0 && db[3] > db[2] + 6.0, "%.1f dB, absorbed %.1f, equalized %.1f, both %.1f", db[0],
              db[1], db[2], db[3]);
}

/* Gemm with factors, or Conv and bounds along the width, which has as many as there are channels. */
static void absorb_odd_model(build *b, bool gemm)
{
    static const float bias[4] = {30.0f, 31.0f, 32.0f, 33.0f}, bound[4] = {1.0f, 40.0f, 50.0f, 60.0f};
    const sbit_attr attrs[2] = {build_float("alpha", 2.0f), build_float("beta", 0.5f)};
    build_begin(b, 13);
    sbit_value_id y = build_input(b, "x", SBIT_F32, gemm ? "N,4" : "N,4,4,4");
    for (int i = 0; i < 2; i++) {
        const sbit_value_id inputs[3] = {
            y, build_weights(b, i == 0 ? "a.weight" : "b.weight", gemm ? "4,4" : "4,4,1,1", 3u + (uint64_t)i),
            build_constant(b, i == 0 ? "a.bias" : "b.bias", SBIT_F32, "4", bias)};
        y = build_node(b, gemm ? "Gemm" : "Conv", i == 0 ? "a" : "b", inputs, 3, attrs, gemm ? 2 : 0);
        if (i == 0) {
            y = build_unary(b, "Relu", "relu", y);
            y = gemm ? y : build_binary(b, "Min", "min", y, build_constant(b, "bound", SBIT_F32, "4", bound));
        }
    }
    build_output(b, y);
}

TEST(bias_absorption_keeps_the_float_model_of_odd_layers)
{
    static float data[8 * 64], y[2][8 * 64];
    sbit_rng rng = sbit_rng_seed(5);
    for (int i = 0; i < 8 * 64; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    for (int gemm = 0; gemm < 2; gemm++) {
        static const char text[] = "STEPS: [bias_absorption]\n"
                                   "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                                   "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
        const size_t count = gemm != 0 ? 8 * 4 : 8 * 64;
        build b;
        steps_of s;
        memset(y, 0, sizeof y);
        absorb_odd_model(&b, gemm != 0);
        const sbit_tensor all = build_tensor(SBIT_F32, gemm != 0 ? "8,4" : "8,4,4,4", data);
        steps_read(&s, &b, text, &all, 0);
        if (steps_build(&s, &b)) {
            steps_output(&b, b.graph, &all, y[0], count);
            steps_output(&b, sbit_quant_float_graph(s.quant), &all, y[1], count);
            CHECK_MSG(y[0][0] != 0.0f && steps_sqnr(y[0], y[1], count) > 100.0, "gemm %d: %.1f dB", gemm,
                      steps_sqnr(y[0], y[1], count));
        }
        steps_close(&s);
        build_end(&b);
    }
}

/* ---- AdaRound */

static const char *const steps_narrow[][2] = {
    {"W.QUANTIZER.BIT", "3"}, {"STEP.ADAROUND.ITERATIONS", "300"}, {NULL, NULL}};
static const char *const steps_ada[][2] = {{"W.QUANTIZER.BIT", "3"},
                                           {"W.QUANTIZER.TYPE", "adaround"},
                                           {"STEP.ADAROUND.ITERATIONS", "300"},
                                           {"STEP.ADAROUND.POSITIONS", "0"},
                                           {NULL, NULL}};

static const int8_t *steps_integers(sbit_graph *q, const char *name, int64_t *count)
{
    const sbit_value_id id = sbit_graph_find_value(q, name);
    if (!CHECK(id.idx != 0)) {
        return NULL;
    }
    *count = sbit_tensor_count(&sbit_graph_value(q, id)->constant);
    return (const int8_t *)sbit_graph_value(q, id)->constant.data;
}

TEST(adaround_rounds_up_or_down_and_better_than_nearest)
{
    static steps near, ada, asym;
    steps_begin(&near, "generic", steps_narrow);
    steps_begin(&ada, "generic", steps_ada);
    steps_begin(&asym, "generic", steps_ada);
    if (steps_calc(&near, false) && steps_calc(&ada, false) && steps_calc(&asym, true)) {
        const double before = steps_quality(&near), after = steps_quality(&ada);
        const double again = steps_quality(&asym);
        CHECK_MSG(after > before + 1.0 && again > before + 1.0, "%.1f dB, %.1f dB, asym %.1f dB",
                  before, after, again);
        sbit_graph *p = NULL, *q = NULL;
        build_do(&near.b, sbit_quant_build(near.quant, NULL, &p, &near.b.error), "build");
        build_do(&ada.b, sbit_quant_build(ada.quant, NULL, &q, &ada.b.error), "build");
        int64_t n = 0, m = 0;
        const int8_t *a = steps_integers(p, "a.weight_quantized", &n);
        const int8_t *b = steps_integers(q, "a.weight_quantized", &m);
        int moved = 0, far = 0;
        for (int64_t i = 0; a != NULL && b != NULL && i < n && n == m; i++) {
            moved += a[i] != b[i];
            far += abs(a[i] - b[i]) > 1 || b[i] < -4 || b[i] > 3;
        }
        CHECK_MSG(moved > 5 && far == 0, "%d of %d moved, %d too far", moved, (int)n, far);
        sbit_graph_destroy(p);
        sbit_graph_destroy(q);
    }
    steps_end(&near);
    steps_end(&ada);
    steps_end(&asym);
}

/* No weight and no two weights of an output that go to the other of the two integers beside them
 * bring the output nearer to the float one, however few iterations there were. */
static void adaround_is_settled(uint64_t seed)
{
    enum {
        ROWS = 80,
        IN = 20,
        OUT = 3
    };
    static const char *const text =
        "STEP: {ADAROUND: {ITERATIONS: 40}}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3, TYPE: adaround}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 16}}\n";
    static float x[ROWS * IN];
    double gram[IN][IN];
    build b;
    float w[IN * OUT];
    sbit_rng rng = sbit_rng_seed(seed);
    memset(gram, 0, sizeof gram);
    for (int i = 0; i < ROWS * IN; i++) {
        x[i] = sbit_rng_normal(&rng) + (i % IN > 0 ? 0.9f * x[i - 1] : 0.0f);
    }
    for (int i = 0; i < IN * OUT; i++) {
        w[i] = i % 7 == 3 ? 0.0f : sbit_rng_normal(&rng);
    }
    for (int i = 0; i < ROWS * IN * IN; i++) {
        const int n = i / (IN * IN), k = i / IN % IN, j = i % IN;
        gram[k][j] += (double)x[n * IN + k] * (double)x[n * IN + j];
    }
    build_begin(&b, 13);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,20");
    build_output(&b,
                 build_binary(&b, "MatMul", "y", in, build_constant(&b, "w", SBIT_F32, "20,3", w)));
    const sbit_tensor all = build_tensor(SBIT_F32, "80,20", x);
    sbit_graph *q = build_quantized(&b, text, &all, 0, 0);
    int64_t n = 0;
    const int8_t *got = b.failed ? NULL : steps_integers(q, "w_quantized", &n);
    for (int r = 0; r < OUT && got != NULL; r++) {
        const double scale = (double)((const float *)sbit_graph_value(
            q, sbit_graph_find_value(q, "w_scale"))->constant.data)[r];
        double off[IN], step[IN], slope[IN], form = 0.0;
        for (int k = 0; k < IN; k++) {
            const double ratio = (double)w[k * OUT + r] / scale, own = (double)got[k * OUT + r];
            const double low = floor(ratio), other = own > low ? low : low + 1.0;
            off[k] = scale * (own - ratio);
            step[k] = w[k * OUT + r] == 0.0f || other < -4.0 || other > 3.0 ? 0.0 : scale * (other - own);
            CHECK_MSG(own == low || own == low + 1.0 || own == 3.0 || own == -4.0, "%g for %g", own, ratio);
        }
        for (int k = 0; k < IN; k++) {
            slope[k] = 0.0;
            for (int j = 0; j < IN; j++) {
                slope[k] += gram[k][j] * off[j];
            }
            form += off[k] * slope[k];
        }
        for (int i = 0; i < IN * IN; i++) {
            const int k = i / IN, j = i % IN;
            const double one = step[k] * (2.0 * slope[k] + step[k] * gram[k][k]);
            const double two = step[j] * (2.0 * slope[j] + step[j] * gram[j][j]);
            const double rise = k == j ? one : one + two + 2.0 * step[k] * step[j] * gram[k][j];
            CHECK_MSG(rise >= -1e-4 * form, "output %d: %d and %d take %g off %g", r, k, j, -rise, form);
        }
    }
    sbit_graph_destroy(q);
    build_end(&b);
}

TEST(adaround_leaves_no_pair_that_would_be_better_elsewhere)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        adaround_is_settled(seed);
    }
}

TEST(adaround_once_more_gives_the_same)
{
    static steps s;
    int64_t n = 0;
    steps_begin(&s, "generic", steps_ada);
    sbit_graph *p = NULL, *q = NULL;
    if (steps_calc(&s, false)) {
        build_do(&s.b, sbit_quant_build(s.quant, NULL, &p, &s.b.error), "build");
        build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), "calc");
        build_do(&s.b, sbit_quant_build(s.quant, NULL, &q, &s.b.error), "build");
        const int8_t *a = steps_integers(p, "c.weight_quantized", &n);
        const int8_t *b = steps_integers(q, "c.weight_quantized", &n);
        CHECK_MEM(a, b, (size_t)n);
    }
    sbit_graph_destroy(p);
    sbit_graph_destroy(q);
    steps_end(&s);
}

TEST(steps_without_data_are_refused)
{
    static steps s;
    steps_begin(&s, "generic", steps_ada);
    sbit_tensor x = s.all;
    x.dims[0] = 4;
    CHECK(sbit_quant_needs_data(s.quant));
    build_do(&s.b, sbit_quant_prepare_calibration(s.quant, &s.b.error), "prepare");
    build_do(&s.b, sbit_quant_forward(s.quant, NULL, &x, 1, &s.b.error), "forward");
    CHECK_STATUS(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), SBIT_ERR_STATE,
                 s.b.error);
    CHECK_CONTAINS(s.b.error.message, "'adaround'");
    sbit_qconfig *config = NULL;
    static const char *const text = "STEPS: [cros_layer]\n"
                                    "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n"
                                    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    CHECK_STATUS(sbit_qconfig_read(s.b.ctx, text, strlen(text), &config, &s.b.error),
                 SBIT_ERR_CONFIG, s.b.error);
    CHECK_CONTAINS(s.b.error.message, "cross_layer");
    steps_end(&s);
}

/* ---- the walk */

typedef struct steps_seen {
    float *values;
    size_t count;
    int64_t batches, samples;
} steps_seen;

static sbit_status steps_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    steps_seen *seen = (steps_seen *)user;
    const size_t count = (size_t)sbit_tensor_count(batch->x);
    (void)error;
    CHECK(batch->index == seen->batches && batch->rows == batch->samples);
    seen->values = (float *)realloc(seen->values, (seen->count + count) * sizeof(float));
    memcpy(seen->values + seen->count, batch->x->data, count * sizeof(float));
    seen->count += count;
    seen->batches++;
    seen->samples += batch->samples;
    return SBIT_OK;
}

/* Layer after layer, in any order, with any memory: what a plain run of the same graph has there.
 */
TEST(a_walk_sees_what_a_run_computes)
{
    static steps s;
    steps_begin(&s, "generic", NULL);
    if (!steps_calc(&s, false)) {
        steps_end(&s);
        return;
    }
    sbit_unit units[4];
    CHECK_EQ_I64(sbit_quant_units(s.quant, NULL, units, 4), 3);
    for (int quantized = 0; quantized < 2; quantized++) {
        for (int little = 0; little < 2; little++) {
            static const size_t order[] = {0, 1, 2, 1, 0, 2};
            sbit_walk *walk = NULL;
            sbit_walk_desc desc;
            sbit_graph *built = NULL;
            memset(&desc, 0, sizeof desc);
            desc.quantized = quantized == 1;
            desc.max_bytes = little ? 64 : 0;
            build_do(&s.b, sbit_walk_create(s.quant, &s.feed, &desc, &walk, &s.b.error), "walk");
            build_do(&s.b, sbit_quant_build(s.quant, NULL, &built, &s.b.error), "build");
            sbit_graph *graph = quantized ? built : sbit_quant_float_graph(s.quant);
            for (size_t i = 0; i < 6 && !s.b.failed; i++) {
                const sbit_unit unit = units[order[i]];
                steps_seen seen;
                sbit_session *session = NULL;
                sbit_session_desc run;
                const sbit_value_id want = sbit_graph_node(graph, unit.node)->inputs[unit.input];
                memset(&seen, 0, sizeof seen);
                memset(&run, 0, sizeof run);
                build_do(&s.b,
                         sbit_walk_to(walk, unit.node, unit.input, steps_see, &seen, &s.b.error),
                         "walk");
                run.outputs = &want;
                run.output_count = 1;
                build_do(&s.b, sbit_session_create(graph, &run, &session, &s.b.error), "session");
                build_do(&s.b, sbit_session_set_input(session, "x", &s.all, &s.b.error), "x");
                build_do(&s.b, sbit_session_run(session, &s.b.error), "run");
                const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
                CHECK(seen.batches == 3 && seen.samples == 11);
                if (CHECK_EQ_I64(seen.count, sbit_tensor_count(y))) {
                    CHECK_MEM(seen.values, y->data, seen.count * sizeof(float));
                }
                free(seen.values);
                sbit_session_destroy(session);
            }
            sbit_graph_destroy(built);
            sbit_walk_destroy(walk);
        }
    }
    steps_end(&s);
}

/* ---- layers as matrix products: y from the sums' own columns equals the operator */

static sbit_attr steps_text(const char *name, const char *text)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_STRING;
    attr.s.data = text;
    attr.s.size = strlen(text);
    return attr;
}

/* Checks sum x x^T against plain double arithmetic through the operator itself: for random rows w,
 * sum over positions of (w x)^2 = w G w^T. */
static void steps_gram_case(const char *op, const char *x_dims, const char *w_dims,
                            const sbit_attr *attrs, size_t attr_count)
{
    build b;
    sbit__layer layer;
    sbit__gram gram;
    sbit_session *session = NULL;
    static float data[4000];
    build_begin(&b, 13);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, x_dims);
    sbit_value_id inputs[2];
    inputs[0] = in;
    inputs[1] = build_weights(&b, "w", w_dims, 7);
    build_output(&b, build_node(&b, op, "y", inputs, 2, attrs, attr_count));
    const sbit_node_id node = sbit_graph_find_node(b.graph, "y");
    const sbit_tensor x = build_tensor(SBIT_F32, x_dims, data);
    sbit_rng rng = sbit_rng_seed(9);
    for (int64_t i = 0; i < sbit_tensor_count(&x); i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    build_do(&b, sbit_session_create(b.graph, NULL, &session, &b.error), "session");
    build_do(&b, sbit_session_set_input(session, "x", &x, &b.error), "x");
    build_do(&b, sbit_session_run(session, &b.error), "run");
    if (!b.failed && CHECK(sbit__layer_of(b.graph, node, &layer))) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        const float *w = (const float *)sbit_graph_value(b.graph, inputs[1])->constant.data;
        const int64_t channels = layer.groups * layer.rows;
        const int64_t inner = layer.conv ? sbit_tensor_count(y) / y->dims[0] / channels : 1;
        build_do(&b, sbit__gram_init(b.ctx, &layer, true, 0, 1, &gram, &b.error), "gram");
        build_do(&b, sbit__gram_add(&gram, &x, &x, x.dims[0], 0, x.dims[0], &b.error), "add");
        CHECK_NEAR(gram.count, (double)(sbit_tensor_count(y) / channels), 0.0);
        for (int64_t c = 0; c < channels; c++) {
            const int64_t g = c / layer.rows, d = layer.depth;
            double want = 0.0, sums = 0.0, mixed = 0.0, mean = 0.0, total = 0.0;
            for (int64_t i = 0; i < sbit_tensor_count(y); i++) {
                const double value = (double)((const float *)y->data)[i];
                want += i / inner % channels == c ? value * value : 0.0;
                total += i / inner % channels == c ? value : 0.0;
            }
            for (int64_t i = 0; i < d; i++) {
                const double wi = (double)w[c * layer.row_step + i * layer.depth_step];
                mean += wi * (double)gram.mean_a[g * d + i];
                for (int64_t j = 0; j < d; j++) {
                    const double wj = (double)w[c * layer.row_step + j * layer.depth_step];
                    sums += wi * wj * (double)gram.sums[(g * d + i) * d + j];
                    mixed += wi * wj * (double)gram.mixed[(g * d + i) * d + j];
                }
            }
            CHECK_NEAR(sums, want, want * 1e-4);
            CHECK_NEAR(mixed, want, want * 1e-4);
            CHECK_NEAR(mean, total, 1e-3 * (1.0 + fabs(total)));
        }
        sbit__gram_deinit(&gram);
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(layers_are_matrix_products)
{
    const int64_t pads[4] = {1, 0, 2, 1}, strides[2] = {2, 1}, dilations[2] = {1, 2};
    const int64_t line[2] = {2, 1};
    sbit_attr a[4];
    steps_gram_case("Conv", "2,4,7,6", "5,4,3,3", NULL, 0);
    a[0] = build_ints("pads", pads, 4);
    a[1] = build_ints("strides", strides, 2);
    a[2] = build_ints("dilations", dilations, 2);
    a[3] = build_int("group", 2);
    steps_gram_case("Conv", "2,4,7,6", "6,2,3,2", a, 4);
    a[3] = build_int("group", 4);
    steps_gram_case("Conv", "3,4,7,6", "4,1,2,2", a, 4); /* depthwise: depth 4 */
    a[0] = steps_text("auto_pad", "SAME_UPPER");
    steps_gram_case("Conv", "2,4,7,6", "5,4,3,2", a, 2);
    a[0] = steps_text("auto_pad", "SAME_LOWER");
    steps_gram_case("Conv", "2,4,7,6", "5,4,2,2", a, 2);
    a[0] = build_ints("pads", line, 2);
    steps_gram_case("Conv", "2,3,11", "4,3,5", a, 1);
    steps_gram_case("Conv", "1,2,4,5,3", "3,2,2,3,1", NULL, 0);
    steps_gram_case("Gemm", "9,20", "20,3", NULL, 0);
    a[0] = build_int("transB", 1);
    steps_gram_case("Gemm", "9,20", "3,20", a, 1);
    steps_gram_case("MatMul", "2,5,7", "7,4", NULL, 0);
}

/* ---- a step of the user's */

static sbit_status halve_run(void *state, const sbit_options *options, const sbit_feed *feed,
                             sbit_error *error)
{
    sbit_quant *quant = (sbit_quant *)state;
    sbit_graph *graph = sbit_quant_float_graph(quant);
    const sbit_value_id id = sbit_graph_find_value(graph, "c.weight");
    const double factor = sbit_options_float(options, "STEP.HALVE.FACTOR");
    sbit_tensor w = sbit_graph_value(graph, id)->constant;
    float values[60];
    if (feed == NULL || feed->count != 11) {
        return SBIT_ERR_INVALID_ARGUMENT;
    }
    for (int i = 0; i < 60; i++) {
        values[i] = (float)(factor * (double)((const float *)w.data)[i]);
    }
    w.data = values;
    return sbit_graph_set_constant(graph, id, &w, error);
}

static const sbit_key halve_keys[] = {
    {"HALVE.FACTOR", SBIT_KEY_FLOAT, "0.5", 0.0, 1.0, NULL, "what is left of the last layer"},
};
static const sbit_step_row halve_row = {
    {"halve", "halves the last layer", SBIT_TARGET_WEIGHT, halve_keys, 1},
    SBIT_STAGE_FLOAT_GRAPH,
    true,
    halve_run,
};

TEST(step_registered_from_outside)
{
    static steps s;
    static const char *const text =
        "STEPS: [halve]\nSTEP: {HALVE: {FACTOR: 0.25}}\nPLACEMENT: generic\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    steps_begin(&s, "generic", NULL);
    CHECK_OK(sbit_step_register(s.b.ctx, &halve_row, &s.b.error), s.b.error);
    CHECK_STATUS(sbit_step_register(s.b.ctx, &halve_row, &s.b.error), SBIT_ERR_DUPLICATE,
                 s.b.error);
    build_do(&s.b, sbit_qconfig_read(s.b.ctx, text, strlen(text), &config, &s.b.error), "config");
    build_do(&s.b, sbit_quant_create(s.b.graph, config, &quant, &s.b.error), "quant");
    if (!s.b.failed) {
        const float *before =
            (const float *)sbit_graph_value(s.b.graph, sbit_graph_find_value(s.b.graph, "c.weight"))
                ->constant.data;
        CHECK_STATUS(sbit_quant_prepare_calibration(quant, &s.b.error), SBIT_ERR_STATE, s.b.error);
        build_do(&s.b, sbit_quant_calibrate(quant, &s.feed, &s.b.error), "calibrate");
        build_do(&s.b, sbit_quant_calibrate(quant, &s.feed, &s.b.error), "once only");
        const sbit_graph *g = sbit_quant_graph(quant);
        const float *after =
            (const float *)sbit_graph_value(g, sbit_graph_find_value(g, "c.weight"))->constant.data;
        for (int i = 0; i < 60; i++) {
            CHECK_NEAR(after[i], 0.25 * (double)before[i], 0.0);
        }
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    steps_end(&s);
}

/* ---- asym: observers see what the model quantized so far computes */

/* Two layers of factor 1 with a coarse grid between them: the second layer's input is the first
 * one's output of coarse input. By hand: x in 0..1 on 2 bits has steps of 1/3, so that y = 0.49 x
 * reaches 0.49 in float, and the same of coarse inputs; of x in 0..0.4 it reaches 1/3 * 0.49 only
 * where the grid is fixed at 0..1. */
TEST(asym_ranges_are_those_of_quantized_inputs)
{
    static const float w[1] = {0.49f}, one[1] = {1.0f}, scale = 1.0f / 3.0f;
    static const int32_t zero = 0;
    static float data[8] = {0.0f, 0.1f, 0.2f, 0.3f, 0.35f, 0.38f, 0.39f, 0.4f};
    for (int asym = 0; asym < 2; asym++) {
        static const char *const text = "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 16}}\n"
                                        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 2}}\n";
        build b;
        steps_of s;
        sbit_site site;
        sbit_site_change change;
        build_begin(&b, 13);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,1");
        const sbit_value_id m =
            build_binary(&b, "MatMul", "m", x, build_constant(&b, "w", SBIT_F32, "1,1", w));
        build_output(
            &b, build_binary(&b, "MatMul", "y", m, build_constant(&b, "v", SBIT_F32, "1,1", one)));
        const sbit_tensor all = build_tensor(SBIT_F32, "8,1", data);
        steps_read(&s, &b, text, &all, 0);
        memset(&change, 0, sizeof change);
        change.scale = &scale;
        change.zero_point = &zero;
        for (size_t i = 0; !b.failed && i < sbit_quant_site_count(s.quant); i++) {
            CHECK(sbit_quant_site(s.quant, i, &site) == SBIT_OK);
            if (strcmp(site.tensor, "x") == 0) {
                CHECK_OK(sbit_quant_set_site(s.quant, i, &change, &b.error), b.error);
            }
        }
        build_do(&b, sbit_quant_calibrate(s.quant, &s.feed, &b.error), "calibrate");
        for (int again = 0; again < 2; again++) { /* float statistics survive an asym calculation */
            const bool now = asym == 1 && again == 0;
            build_do(&b, sbit_quant_calc_qparams(s.quant, now, now, now, &b.error), "calc");
            for (size_t i = 0; !b.failed && i < sbit_quant_site_count(s.quant); i++) {
                CHECK(sbit_quant_site(s.quant, i, &site) == SBIT_OK);
                if (strcmp(site.tensor, "m") == 0) {
                    CHECK_NEAR(site.max, now ? 0.49 / 3.0 : 0.49 * 0.4, 1e-4);
                }
            }
        }
        steps_close(&s);
        build_end(&b);
    }
}

/* ---- GPTQ and bias correction */

static const char *const steps_gptq[][2] = {{"W.QUANTIZER.BIT", "3"},
                                            {"W.QUANTIZER.TYPE", "gptq"},
                                            {"STEP.GPTQ.POSITIONS", "0"},
                                            {NULL, NULL}};

TEST(gptq_makes_errors_good)
{
    static steps near, gptq, asym;
    steps_begin(&near, "generic", steps_narrow);
    steps_begin(&gptq, "generic", steps_gptq);
    steps_begin(&asym, "generic", steps_gptq);
    if (steps_calc(&near, false) && steps_calc(&gptq, false) && steps_calc(&asym, true)) {
        const double before = steps_quality(&near), after = steps_quality(&gptq);
        const double again = steps_quality(&asym);
        CHECK_MSG(after > before + 2.0 && again > before + 2.0, "%.1f dB, %.1f dB, asym %.1f dB",
                  before, after, again);
        sbit_graph *q = NULL;
        int64_t n = 0;
        build_do(&gptq.b, sbit_quant_build(gptq.quant, NULL, &q, &gptq.b.error), "build");
        const int8_t *a = steps_integers(q, "a.weight_quantized", &n);
        for (int64_t i = 0; a != NULL && i < n; i++) {
            CHECK(a[i] >= -4 && a[i] <= 3);
        }
        sbit_graph_destroy(q);
    }
    steps_end(&near);
    steps_end(&gptq);
    steps_end(&asym);
}

/* y = x w, w [4,1] on 2 bits: of all 4^4 choices the best is not far. */
static double steps_form(const float *x, int count, const float *w, const double *q)
{
    double sum = 0.0;
    for (int n = 0; n < count; n++) {
        double off = 0.0;
        for (int k = 0; k < 4; k++) {
            off += ((double)w[k] - q[k]) * (double)x[n * 4 + k];
        }
        sum += off * off;
    }
    return sum;
}

TEST(gptq_is_near_the_best_of_all_roundings)
{
    static const char *const text =
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 2, TYPE: gptq}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 16}}\n";
    static float x[40 * 4];
    for (uint64_t seed = 1; seed <= 12; seed++) {
        build b;
        float w[4];
        sbit_rng rng = sbit_rng_seed(seed);
        for (int i = 0; i < 160; i++) {
            x[i] = sbit_rng_normal(&rng) + (i % 4 > 0 ? 0.9f * x[i - 1] : 0.0f);
        }
        for (int i = 0; i < 4; i++) {
            w[i] = sbit_rng_normal(&rng);
        }
        build_begin(&b, 13);
        const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,4");
        build_output(
            &b, build_binary(&b, "MatMul", "y", in, build_constant(&b, "w", SBIT_F32, "4,1", w)));
        const sbit_tensor all = build_tensor(SBIT_F32, "40,4", x);
        sbit_graph *q = build_quantized(&b, text, &all, 0, 0);
        int64_t n = 0;
        const int8_t *got = b.failed ? NULL : steps_integers(q, "w_quantized", &n);
        if (got != NULL) {
            const double scale =
                (double)*(const float *)sbit_graph_value(q, sbit_graph_find_value(q, "w_scale"))
                    ->constant.data;
            double best = 1e30, nearest = 0.0, v[4];
            for (int choice = 0; choice < 256; choice++) {
                for (int k = 0; k < 4; k++) {
                    v[k] = scale * (double)((choice >> (2 * k)) % 4 - 2);
                }
                const double form = steps_form(x, 40, w, v);
                best = form < best ? form : best;
            }
            for (int k = 0; k < 4; k++) {
                v[k] = scale * fmin(fmax(nearbyint((double)w[k] / scale), -2.0), 1.0);
            }
            nearest = steps_form(x, 40, w, v);
            for (int k = 0; k < 4; k++) {
                v[k] = scale * (double)got[k];
            }
            const double form = steps_form(x, 40, w, v);
            CHECK_MSG(form <= nearest * 1.0001 && form <= best * 1.6 + 1e-9,
                      "%g, nearest %g, best %g", form, nearest, best);
        }
        sbit_graph_destroy(q);
        build_end(&b);
    }
}

/* What outputs for `all` are off by when the graph is quantized by a configuration, calibrated on `first`. */
static void quantized_off(build *b, const char *text, const sbit_tensor *first, const sbit_tensor *all, double *off,
                          int count)
{
    sbit_graph *q = build_quantized(b, text, first, 0, 0);
    for (int pass = 0; pass < 2 && !b->failed; pass++) {
        sbit_session *session = NULL;
        build_do(b, sbit_session_create(pass == 0 ? b->graph : q, NULL, &session, &b->error), "session");
        build_do(b, sbit_session_set_input_at(session, 0, all, &b->error), "input");
        build_do(b, sbit_session_run(session, &b->error), "run");
        const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int i = 0; i < count; i++) {
            off[i] = pass == 0 ? -(double)y[i] : off[i] + (double)y[i];
        }
        sbit_session_destroy(session);
    }
    sbit_graph_destroy(q);
}

/* One Gemm whose inputs have means; activations all but exact. Mean square of what the output is off
 * by; *mean: the largest mean of one output's. */
static double gptq_means(const char *recipe, uint64_t seed, double *mean)
{
    enum {
        ROWS = 96,
        IN = 24,
        OUT = 3
    };
    static float x[ROWS * IN];
    static double off[ROWS * OUT];
    char text[500];
    build b;
    sbit_rng rng = sbit_rng_seed(seed);
    double sums[OUT] = {0.0, 0.0, 0.0}, all_of_it = 0.0;
    snprintf(text, sizeof text,
             "%s\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n"
             "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 16}}\n",
             recipe);
    for (int i = 0; i < ROWS * IN; i++) {
        x[i] = sbit_rng_normal(&rng) + (float)(i % IN % 5) + (i % IN > 0 ? 0.4f * x[i - 1] : 0.0f);
    }
    build_begin(&b, 13);
    sbit_value_id in[3];
    in[0] = build_input(&b, "x", SBIT_F32, "N,24");
    in[1] = build_weights(&b, "w", "24,3", seed);
    in[2] = build_weights(&b, "c", "3", seed + 1);
    build_output(&b, build_node(&b, "Gemm", "y", in, 3, NULL, 0));
    const sbit_tensor all = build_tensor(SBIT_F32, "96,24", x);
    quantized_off(&b, text, &all, &all, off, ROWS * OUT);
    for (int i = 0; i < ROWS * OUT; i++) {
        sums[i % OUT] += off[i] / ROWS;
        all_of_it += off[i] * off[i] / (ROWS * OUT);
    }
    for (int i = 0; i < OUT; i++) {
        *mean = fabs(sums[i]) > *mean ? fabs(sums[i]) : *mean;
    }
    build_end(&b);
    return all_of_it;
}

/* Inputs whose squares float32 does not hold: gptq and compensate say that they keep the nearest weights. */
TEST(steps_that_keep_the_nearest_say_who_they_are)
{
    static const char *const names[] = {"gptq", "compensate"};
    for (int k = 0; k < 2; k++) {
        build b;
        char text[300];
        static float x[40 * 4];
        sbit_rng rng = sbit_rng_seed(1);
        for (int i = 0; i < 160; i++) {
            x[i] = 1e20f * sbit_rng_normal(&rng);
        }
        snprintf(text, sizeof text,
                 "PLACEMENT: residual\nSTEPS: [%s]\n"
                 "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n"
                 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
                 names[k]);
        build_begin(&b, 13);
        const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,4");
        build_output(&b, build_binary(&b, "MatMul", "y", in, build_weights(&b, "w", "4,3", 5)));
        const sbit_tensor all = build_tensor(SBIT_F32, "40,4", x);
        sbit_graph_destroy(build_quantized(&b, text, &all, 0, 0));
        CHECK_EQ_I64(b.warnings, 1);
        CHECK_MSG(strncmp(b.warning, names[k], strlen(names[k])) == 0, "%s: %s", names[k], b.warning);
        build_end(&b);
    }
}

/* Where the bias takes up the means, weights need not: less is lost than with a bias corrected
 * afterwards, with the float inputs' sums and those of both streams. */
TEST(gptq_about_the_means)
{
    for (int asym = 0; asym < 2; asym++) {
        double behind = 0.0, about = 0.0, mean = 0.0, other = 0.0;
        char text[2][200];
        for (int k = 0; k < 2; k++) {
            snprintf(text[k], sizeof text[k],
                     "SCHEDULE: {ASYM: %s}\nSTEPS: [gptq%s]\nSTEP: {GPTQ: {BIAS: %s}}",
                     asym ? "true" : "false", k == 0 ? ", bias_correction" : "",
                     k == 0 ? "false" : "true");
        }
        for (uint64_t seed = 1; seed <= 6; seed++) {
            behind += gptq_means(text[0], seed, &other);
            about += gptq_means(text[1], seed, &mean);
        }
        CHECK_MSG(about < 0.9 * behind, "asym %d: %g, corrected afterwards %g", asym, about, behind);
        CHECK_MSG(mean < 1e-3, "asym %d: a mean of %g is left", asym, mean);
    }
}

/* Mean square of what products of 96 inputs, one behind the other, are off by, on 100 samples behind
 * those calibrated with. */
static double gptq_on_others(const char *recipe, int products, int bits, int samples)
{
    enum {
        IN = 96,
        OUT = 16,
        ALL = 148
    };
    static float x[ALL * IN];
    static double off[ALL * OUT];
    char text[300];
    build b;
    sbit_rng rng = sbit_rng_seed(4);
    double sum = 0.0;
    snprintf(text, sizeof text,
             "%s\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n"
             "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: %d}}\n",
             recipe, bits);
    for (int i = 0; i < ALL; i++) {
        float shared[4];
        for (int k = 0; k < 4; k++) {
            shared[k] = sbit_rng_normal(&rng);
        }
        for (int k = 0; k < IN; k++) {
            x[i * IN + k] = sbit_rng_normal(&rng) + shared[k % 4];
        }
    }
    build_begin(&b, 13);
    sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,96");
    for (int k = 1; k < products; k++) {
        in = build_binary(&b, "MatMul", "h", in, build_weights(&b, "v", "96,96", 6));
    }
    build_output(&b, build_binary(&b, "MatMul", "y", in, build_weights(&b, "w", "96,16", 5)));
    sbit_tensor first = build_tensor(SBIT_F32, "148,96", x);
    const sbit_tensor all = first;
    first.dims[0] = samples;
    quantized_off(&b, text, &first, &all, off, ALL * OUT);
    for (int i = 48 * OUT; i < ALL * OUT; i++) {
        sum += off[i] * off[i] / ((ALL - 48) * OUT);
    }
    build_end(&b);
    return sum;
}

/* Fewer positions than columns: sums of them say little, and are damped more. */
TEST(gptq_with_few_samples_is_better_than_the_nearest_on_others)
{
    const double nearest = gptq_on_others("", 1, 16, 48), gptq = gptq_on_others("STEPS: [gptq]", 1, 16, 48);
    CHECK_MSG(gptq < nearest, "%.3g, nearest %.3g", gptq, nearest);
}

/* What few samples say of the error in front is not made good where one half of them does not teach
 * the other. */
TEST(gptq_asym_with_few_samples_does_no_harm_on_others)
{
    for (int products = 1; products < 3; products++) {
        for (int samples = 24; samples <= 48; samples += 24) { /* one batch and two */
            const double own = gptq_on_others("STEPS: [gptq]", products, 3, samples);
            const double asym = gptq_on_others("SCHEDULE: {ASYM: true}\nSTEPS: [gptq]", products, 3, samples);
            CHECK_MSG(asym < 1.2 * own, "%d products, %d samples: %.3g, for float inputs %.3g", products, samples, asym, own);
        }
    }
}

/* Large blocks have a field behind them that must stay as it is. */
enum {
    GUARD_FROM = 1 << 18,
    GUARD_BYTES = 1 << 16
};

static void *guard_alloc(size_t bytes, void *user)
{
    const size_t field = bytes >= GUARD_FROM ? GUARD_BYTES : 0;
    char *block = (char *)malloc(bytes + field + 1);
    (void)user;
    if (block != NULL) {
        memset(block + bytes, 0xA5, field);
    }
    return block;
}

static void guard_free(void *block, size_t bytes, void *user)
{
    for (size_t i = 0; block != NULL && bytes >= GUARD_FROM && i < GUARD_BYTES; i++) {
        *(int *)user += ((const unsigned char *)block)[bytes + i] != 0xA5;
    }
    free(block);
}

static void *guard_realloc(void *block, size_t old_bytes, size_t new_bytes, void *user)
{
    void *copy = guard_alloc(new_bytes, user);
    if (copy != NULL && block != NULL) {
        memcpy(copy, block, old_bytes < new_bytes ? old_bytes : new_bytes);
        guard_free(block, old_bytes, user);
    }
    return copy;
}

/* Bytes behind large blocks that a quantization on 64 x `width` inputs wrote. */
static int guard_touched(const char *text, int width, bool normalized, const char *const dims[2])
{
    static float x[64 * 1024];
    int touched = 0;
    build b;
    char shape[32];
    sbit_ctx_desc ctx;
    memset(&b, 0, sizeof b);
    memset(&ctx, 0, sizeof ctx);
    ctx.threads = 1;
    ctx.allocator.alloc_fn = guard_alloc;
    ctx.allocator.realloc_fn = guard_realloc;
    ctx.allocator.free_fn = guard_free;
    ctx.allocator.user = &touched;
    build_do(&b, sbit_ctx_create(&ctx, &b.ctx, &b.error), "context");
    build_do(&b, sbit_graph_create(b.ctx, 17, &b.graph, &b.error), "graph");
    sbit_rng rng = sbit_rng_seed(1);
    for (int i = 0; i < 64 * width; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    snprintf(shape, sizeof shape, "N,%d", width);
    sbit_value_id in[2] = {build_input(&b, "x", SBIT_F32, shape), {0}};
    if (normalized) {
        snprintf(shape, sizeof shape, "%d", width);
        in[1] = build_weights(&b, "s", shape, 3);
        in[0] = build_node(&b, "LayerNormalization", "n", in, 2, NULL, 0);
    }
    for (int i = 0; i < 2 && dims[i] != NULL; i++) {
        in[1] = build_weights(&b, i == 0 ? "w" : "v", dims[i], 1);
        build_output(&b, build_node(&b, "MatMul", i == 0 ? "y" : "z", in, 2, NULL, 0));
    }
    snprintf(shape, sizeof shape, "64,%d", width);
    const sbit_tensor all = build_tensor(SBIT_F32, shape, x);
    sbit_graph_destroy(build_quantized(&b, text, &all, 0, 0));
    build_end(&b);
    return touched;
}

/* 592 inputs: the last 16 columns' product takes more room than one of 64 or 592 columns; 8 columns
 * take more than 96. */
TEST(steps_stay_in_their_memory)
{
    static const char *const gptq[2] = {"592,144", NULL}, *const smooth[2] = {"1024,96", "1024,8"};
    CHECK_EQ_I64(guard_touched("SCHEDULE: {ASYM: true}\nSTEPS: [gptq]\nSTEP: {GPTQ: {SWEEPS: 0}}\n"
                               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
                               "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
                               592, false, gptq),
                 0);
    CHECK_EQ_I64(guard_touched("PLACEMENT: residual\nSTEPS: [smooth_quant]\n"
                               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                               "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
                               1024, true, smooth),
                 0);
}

/* Blocks have scales of their own: the error of the product is that of those scales' grid, and
 * smaller than the nearest's. */
TEST(gptq_in_blocks_is_better_than_the_nearest)
{
    enum {
        ROWS = 128,
        IN = 64,
        OUT = 6
    };
    static float x[ROWS * IN], w[IN * OUT];
    double form[2] = {0.0, 0.0};
    sbit_rng rng = sbit_rng_seed(21);
    for (int i = 0; i < ROWS * IN; i++) {
        x[i] = sbit_rng_normal(&rng) + (i % IN > 0 ? 0.8f * x[i - 1] : 0.0f);
    }
    for (int i = 0; i < IN * OUT; i++) { /* blocks of very different size */
        w[i] = sbit_rng_normal(&rng) * (i / OUT / 16 % 2 == 0 ? 0.05f : 1.0f);
    }
    for (int k = 0; k < 2; k++) {
        build b;
        steps_of s;
        float q[IN * OUT];
        char text[300];
        snprintf(text, sizeof text,
                 "STEPS: [%s]\nSTEP: {GPTQ: {POSITIONS: 0}}\n"
                 "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3, GROUP_SIZE: 16}}\n"
                 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 16}}\n",
                 k == 0 ? "" : "gptq");
        build_begin(&b, 21);
        const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,64");
        build_output(
            &b, build_binary(&b, "MatMul", "y", in, build_constant(&b, "w", SBIT_F32, "64,6", w)));
        const sbit_tensor all = build_tensor(SBIT_F32, "128,64", x);
        steps_read(&s, &b, text, &all, 0);
        if (steps_build(&s, &b)) {
            sbit_unit unit;
            CHECK_EQ_I64(sbit_quant_units(s.quant, NULL, &unit, 1), 1);
            build_do(&b, sbit__site_dequantized(s.quant, &s.quant->sites[unit.site], q, &b.error), "q");
            for (int n = 0; n < ROWS * OUT; n++) {
                double off = 0.0;
                for (int i = 0; i < IN; i++) {
                    const int at = i * OUT + n % OUT;
                    off += ((double)w[at] - (double)q[at]) * (double)x[n / OUT * IN + i];
                }
                form[k] += off * off;
            }
        }
        steps_close(&s);
        build_end(&b);
    }
    CHECK_MSG(form[1] < 0.7 * form[0], "%g, nearest %g", form[1], form[0]);
}

/* After correction the mean of each output channel over the calibration data is that of the float
 * model: Conv with and without a bias, Gemm, MatMul with the Add behind it. */
TEST(bias_correction_restores_the_mean)
{
    static const char *const text = "PLACEMENT: generic\nSTEPS: [bias_correction]\n"
                                    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 2}}\n"
                                    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 16}}\n";
    static float x[12 * 2 * 9];
    sbit_rng rng = sbit_rng_seed(31);
    for (int i = 0; i < 12 * 2 * 9; i++) {
        x[i] = sbit_rng_normal(&rng) + 1.0f;
    }
    for (int kind = 0; kind < 4; kind++) {
        const bool conv = kind < 2;
        build b;
        const int64_t pads[4] = {1, 1, 0, 1};
        const sbit_attr attr = build_ints("pads", pads, 4);
        sbit_value_id in[3];
        build_begin(&b, 13);
        in[0] = build_input(&b, "x", SBIT_F32, conv ? "N,2,3,3" : "N,18");
        in[1] = build_weights(&b, "w", conv ? "3,2,2,3" : "18,3", 4);
        in[2] = build_weights(&b, "b", "3", 5);
        sbit_value_id y;
        if (conv) {
            y = build_node(&b, "Conv", "y", in, kind == 0 ? 3 : 2, &attr, 1);
        } else if (kind == 2) {
            y = build_node(&b, "Gemm", "y", in, 3, NULL, 0);
        } else {
            y = build_binary(&b, "Add", "y", build_binary(&b, "MatMul", "m", in[0], in[1]), in[2]);
        }
        build_output(&b, y);
        const sbit_tensor all = build_tensor(SBIT_F32, conv ? "12,2,3,3" : "12,18", x);
        sbit_graph *q = build_quantized(&b, text, &all, 5, 0);
        sbit_graph *const graphs[2] = {b.graph, q};
        double mean[2][3] = {{0.0}}, spread = 0.0;
        for (int g = 0; g < 2 && !b.failed; g++) {
            sbit_session *session = NULL;
            build_do(&b, sbit_session_create(graphs[g], NULL, &session, &b.error), "session");
            build_do(&b, sbit_session_set_input(session, "x", &all, &b.error), "x");
            build_do(&b, sbit_session_run(session, &b.error), "run");
            const sbit_tensor *out = &sbit_session_output(session, 0)->tensor;
            const int64_t count = sbit_tensor_count(out), inner = count / 12 / 3;
            for (int64_t i = 0; i < count; i++) {
                const double value = (double)((const float *)out->data)[i];
                mean[g][i / inner % 3] += value / (double)(12 * inner);
                spread = fmax(spread, fabs(value));
            }
            sbit_session_destroy(session);
        }
        for (int c = 0; c < 3; c++) {
            CHECK_MSG(fabs(mean[0][c] - mean[1][c]) < 2e-4 * spread, "%d: %g and %g", kind,
                      mean[0][c], mean[1][c]);
        }
        sbit_graph_destroy(q);
        build_end(&b);
    }
}

/* ---- Hadamard: a small transformer without attention, with large channels in its stream */
enum {
    ROTATED = 12,
    ROTATED_MOST = 20 /* outputs of a layer */
};

static float rotated_scale(int channel)
{
    return channel % 5 == 2 ? 100.0f : 1.0f + 0.1f * (float)channel;
}

/* behind: of a normalization, whose scales it takes off again. */
static sbit_value_id rotated_layer(build *b, sbit_value_id x, int ins, int outs, bool behind,
                                   sbit_value_id bias, uint64_t seed)
{
    float w[ROTATED_MOST * ROTATED_MOST];
    char dims[16];
    sbit_rng rng = sbit_rng_seed(seed);
    snprintf(dims, sizeof dims, "%d,%d", ins, outs);
    for (int i = 0; i < ins * outs; i++) {
        w[i] = 0.3f * sbit_rng_normal(&rng) / (behind ? rotated_scale(i / outs) : 1.0f);
    }
    return build_binary(b, "Add", "layer",
                        build_binary(b, "MatMul", "product", x,
                                     build_constant(b, "w", SBIT_F32, dims, w)),
                        bias);
}

/* norm_last: the second normalization's output joins the stream, so that nothing can be turned. */
static sbit_value_id rotated_model(build *b, const char *norm, bool norm_last)
{
    static float scale[ROTATED], shift[ROTATED];
    const sbit_attr axis = build_int("axis", 1), turned = build_int("transB", 1);
    const int64_t front[3] = {0, 2, 1};
    const sbit_attr perm = build_ints("perm", front, 3);
    const bool layer_norm = strcmp(norm, "LayerNormalization") == 0;
    static const int64_t zero = 0;
    static float head[5 * ROTATED];
    sbit_value_id in[3];
    for (int i = 0; i < ROTATED; i++) {
        scale[i] = rotated_scale(i);
        shift[i] = 0.3f * scale[i];
    }
    in[0] = build_input(b, "x", SBIT_F32, "N,6,4");
    sbit_value_id x = build_node(b, "Transpose", "turned", in, 1, &perm, 1);
    x = rotated_layer(b, x, 6, ROTATED, false, build_weights(b, "position", "4,12", 2), 3);
    for (int k = 0; k < 2; k++) {
        in[0] = x;
        in[1] = build_constant(b, "scale", SBIT_F32, "12", scale);
        in[2] = build_constant(b, "shift", SBIT_F32, "12", shift);
        const sbit_value_id n = build_node(b, norm, "n", in, layer_norm ? 3 : 2, NULL, 0);
        sbit_value_id y = rotated_layer(b, n, ROTATED, 20, true, build_weights(b, "c", "20", 5),
                                        6 + (uint64_t)k);
        y = build_node(b, "Tanh", "t", &y, 1, NULL, 0);
        y = rotated_layer(b, y, 20, ROTATED, false, build_weights(b, "c", "12", 8), 9 + (uint64_t)k);
        x = build_binary(b, "Add", "sum", k == 1 && norm_last ? n : x, y);
    }
    in[0] = x;
    in[1] = build_constant(b, "scale", SBIT_F32, "12", scale);
    in[0] = build_node(b, norm, "n", in, 2, NULL, 0);
    in[1] = build_constant(b, "first", SBIT_I64, "", &zero);
    in[0] = build_node(b, "Gather", "token", in, 2, &axis, 1);
    for (int i = 0; i < 5 * ROTATED; i++) {
        head[i] = (float)(i % 7 - 3) / rotated_scale(i % ROTATED);
    }
    in[1] = build_constant(b, "head", SBIT_F32, "5,12", head);
    in[2] = build_weights(b, "bias", "5", 13);
    return build_node(b, "Gemm", "y", in, 3, &turned, 1);
}

enum { ROTATED_OUT = 5, ROTATED_ROWS = 64 };

/* SQNR of the quantized model; *same: of the float model after the steps. */
static double rotated_sqnr(build *b, const char *recipe, const char *dims, const float *x, size_t rows,
                           double *same)
{
    sbit_qconfig *config = NULL;
    steps_of s;
    static float y[3][ROTATED_ROWS * 4 * ROTATED_OUT];
    build_do(b, sbit_qconfig_create(b->ctx, "generic", &config, &b->error), "config");
    build_do(b, sbit_qconfig_set(config, "STEPS", recipe, &b->error), "set");
    const sbit_tensor all = build_tensor(SBIT_F32, dims, x);
    steps_open(&s, b, config, &all, 0);
    if (steps_build(&s, b)) {
        steps_three(&s, b, &all, y[0], y[1], y[2], rows * ROTATED_OUT);
    }
    steps_close(&s);
    *same = steps_sqnr(y[0], y[1], rows * ROTATED_OUT);
    return steps_sqnr(y[0], y[2], rows * ROTATED_OUT);
}

TEST(hadamard_turns_the_stream)
{
    static float x[ROTATED_ROWS * 24];
    static const char *const norms[] = {"LayerNormalization", "RMSNormalization"};
    sbit_rng rng = sbit_rng_seed(44);
    for (int i = 0; i < ROTATED_ROWS * 24; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    for (int kind = 0; kind < 3; kind++) { /* 2: nothing can be turned */
        double db[2] = {0.0, 0.0}, same = 0.0;
        for (int turn = 0; turn < 2; turn++) {
            build b;
            build_begin(&b, 23);
            build_output(&b, rotated_model(&b, norms[kind % 2], kind == 2));
            db[turn] =
                rotated_sqnr(&b, turn ? "[hadamard]" : "[]", "64,6,4", x, ROTATED_ROWS, &same);
            CHECK(same > 100.0); /* the same function */
            build_end(&b);
        }
        CHECK_MSG(kind == 2 ? db[1] >= db[0] && db[1] <= db[0] : db[1] > db[0] + 6.0,
                  "%s: %.1f dB, turned %.1f dB", norms[kind % 2], db[0], db[1]);
    }
}

/* Attention of 2 heads of 4 channels, of which one in each has large values. */
enum {
    HEADS_FUSED,    /* q, k and v by one matrix, cut as PyTorch does */
    HEADS_APART,    /* one matrix each; Gemm-like order of V's reshape */
    HEADS_OPERATOR, /* the operator Attention, both heads with the same v */
    HEADS_SEEN,     /* something else reads v */
    HEADS_KINDS
};

static sbit_value_id heads_shape(build *b, sbit_value_id x, const int64_t *dims, int rank,
                                 const int64_t *perm)
{
    char text[8];
    snprintf(text, sizeof text, "%d", rank);
    const sbit_value_id in[2] = {x, build_constant(b, "shape", SBIT_I64, text, dims)};
    const sbit_value_id y = build_node(b, "Reshape", "shaped", in, 2, NULL, 0);
    const sbit_attr order = build_ints("perm", perm, (size_t)rank);
    return perm != NULL ? build_node(b, "Transpose", "ordered", &y, 1, &order, 1) : y;
}

/* Columns (of outs) or rows that hold v's large channel times `by`. */
static sbit_value_id heads_weight(build *b, int ins, int outs, int first, bool columns, float by,
                                  uint64_t seed)
{
    float w[8 * 24];
    char dims[16];
    sbit_rng rng = sbit_rng_seed(seed);
    snprintf(dims, sizeof dims, "%d,%d", ins, outs);
    for (int i = 0; i < ins * outs; i++) {
        const int at = columns ? i % outs : i / outs;
        w[i] = 0.4f * sbit_rng_normal(&rng) * (at >= first && at % 4 == 1 ? by : 1.0f);
    }
    return build_constant(b, "w", SBIT_F32, dims, w);
}

static sbit_value_id heads_model(build *b, int kind)
{
    static const int64_t fused[5] = {0, 3, 3, 2, 4}, fused_order[5] = {2, 0, 3, 1, 4},
                         apart[4] = {0, 3, 2, 4}, order[4] = {0, 2, 1, 3}, back[3] = {0, 3, 8},
                         turned[4] = {0, 1, 3, 2}, numbers[4] = {0, 1, 2, 3};
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,3,8");
    sbit_value_id qkv[3], in[3], y = {0}, more = {0};
    if (kind == HEADS_FUSED) {
        in[0] = build_binary(b, "MatMul", "m", x, heads_weight(b, 8, 24, 16, true, 60.0f, 1));
        in[0] = build_binary(b, "Add", "a", in[0], build_weights(b, "c", "24", 2));
        const sbit_value_id cut = heads_shape(b, in[0], fused, 5, fused_order);
        for (int i = 0; i < 3; i++) {
            const sbit_value_id slice[4] = {
                cut, build_constant(b, "from", SBIT_I64, "1", numbers + i),
                build_constant(b, "to", SBIT_I64, "1", numbers + i + 1),
                build_constant(b, "axis", SBIT_I64, "1", numbers)};
            in[0] = build_node(b, "Slice", "slice", slice, 4, NULL, 0);
            in[1] = slice[3];
            qkv[i] = build_node(b, "Squeeze", "one", in, 2, NULL, 0);
        }
    } else {
        for (int i = 0; i < 3; i++) {
            const int outs = kind == HEADS_OPERATOR && i > 0 ? 4 : 8;
            qkv[i] = build_binary(b, "MatMul", "m", x,
                                  heads_weight(b, 8, outs, i == 2 ? 0 : 99, true, 60.0f,
                                               3 + (uint64_t)i));
            more = qkv[i];
            if (kind != HEADS_OPERATOR) {
                qkv[i] = heads_shape(b, qkv[i], apart, 4, order);
            }
        }
    }
    if (kind == HEADS_OPERATOR) {
        const sbit_attr attrs[2] = {build_int("q_num_heads", 2), build_int("kv_num_heads", 1)};
        y = build_node(b, "Attention", "attention", qkv, 3, attrs, 2);
    } else {
        const sbit_attr perm = build_ints("perm", turned, 4);
        const sbit_value_id k = build_node(b, "Transpose", "k", &qkv[1], 1, &perm, 1);
        const sbit_value_id scores = build_binary(b, "MatMul", "scores", qkv[0], k);
        const sbit_value_id p = build_unary(b, "Softmax", "p", scores);
        const sbit_attr again = build_ints("perm", order, 4);
        y = build_binary(b, "MatMul", "pv", p, qkv[2]);
        y = build_node(b, "Transpose", "heads", &y, 1, &again, 1);
        y = heads_shape(b, y, back, 3, NULL);
    }
    y = build_binary(b, "MatMul", "o", y, heads_weight(b, 8, ROTATED_OUT, 0, false, 1.0f / 60.0f, 9));
    if (kind == HEADS_SEEN) {
        y = build_binary(b, "Add", "sum", y,
                         build_binary(b, "MatMul", "seen", build_unary(b, "Tanh", "tanh", more),
                                      build_weights(b, "s", "8,5", 11)));
    }
    return y;
}

TEST(hadamard_turns_heads)
{
    static float x[ROTATED_ROWS * 24];
    sbit_rng rng = sbit_rng_seed(45);
    for (int i = 0; i < ROTATED_ROWS * 24; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    for (int kind = 0; kind < HEADS_KINDS; kind++) {
        double db[2] = {0.0, 0.0}, same = 0.0;
        for (int turn = 0; turn < 2; turn++) {
            build b;
            build_begin(&b, 23);
            build_output(&b, heads_model(&b, kind));
            db[turn] =
                rotated_sqnr(&b, turn ? "[hadamard]" : "[]", "64,3,8", x, ROTATED_ROWS * 3, &same);
            CHECK_MSG(same > 100.0, "%d: %.1f dB", kind, same);
            build_end(&b);
        }
        CHECK_MSG(kind == HEADS_SEEN ? db[1] >= db[0] && db[1] <= db[0] : db[1] > db[0] + 2.0,
                  "%d: %.1f dB, turned %.1f dB", kind, db[0], db[1]);
    }
}

/* ---- compensate: operators beside blocks */
enum { BESIDE_ROWS = 24, BESIDE_VALUES = BESIDE_ROWS * 4 * 64 };

static sbit_value_id beside_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                 int stride)
{
    const bool wide = strstr(dims, "3,3") != NULL;
    const int64_t pads[4] = {1, 1, 1, 1}, strides[2] = {stride, stride};
    const sbit_attr attrs[2] = {build_ints("strides", strides, 2), build_ints("pads", pads, 4)};
    char text[64];
    sbit_value_id in[2];
    snprintf(text, sizeof text, "%s.weight", name);
    in[0] = x;
    in[1] = build_weights(b, text, dims, (uint64_t)name[0]);
    return build_node(b, "Conv", name, in, 2, attrs, wide ? 2 : 1);
}

static sbit_value_id beside_product(build *b, const char *name, sbit_value_id x, const char *dims,
                                    const char *outs)
{
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    x = build_binary(b, "MatMul", name, x, build_weights(b, text, dims, (uint64_t)name[0]));
    return build_binary(b, "Add", "add", x, build_weights(b, "bias", outs, (uint64_t)name[0] + 7));
}

/* A residual block, and a layer behind it. */
static void beside_model(build *b, bool conv)
{
    if (conv) {
        const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,4,8,8");
        sbit_value_id y = build_unary(b, "Relu", "r", beside_conv(b, "a", x, "6,4,3,3", 2));
        y = build_binary(b, "Add", "sum", beside_conv(b, "b", y, "5,6,3,3", 1),
                         beside_conv(b, "c", x, "5,4,1,1", 2));
        build_output(b, beside_conv(b, "d", build_unary(b, "Relu", "s", y), "3,5,1,1", 1));
    } else {
        const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,64,4");
        sbit_value_id y = build_unary(b, "Relu", "r", beside_product(b, "a", x, "4,8", "8"));
        y = build_binary(b, "Add", "sum", beside_product(b, "b", y, "8,4", "4"), x);
        build_output(b, beside_product(b, "d", y, "4,3", "3"));
    }
}

/* A value of a graph for all samples, copied. */
static void beside_value(build *b, sbit_graph *graph, const char *name, const sbit_tensor *x,
                         float *out)
{
    sbit_session *session = NULL;
    sbit_session_desc desc;
    const sbit_value_id id = sbit_graph_find_value(graph, name);
    memset(&desc, 0, sizeof desc);
    desc.outputs = &id;
    desc.output_count = 1;
    if (!CHECK_MSG(id.idx != 0, "there is no '%s'", name)) {
        b->failed = true;
    }
    if (!b->failed && build_do(b, sbit_session_create(graph, &desc, &session, &b->error), "session") &&
        build_do(b, sbit_session_set_input(session, "x", x, &b->error), "x") &&
        build_do(b, sbit_session_run(session, &b->error), "run")) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        memcpy(out, y->data, sbit_tensor_bytes(y));
    }
    sbit_session_destroy(session);
}

/* The largest correlation of what is left, y - z, with a column of x or with 1. */
static double beside_left(const float *y, const float *z, const float *x, bool conv)
{
    const int ins = 4, outs = conv ? 5 : 4, positions = conv ? 16 : 64;
    double worst = 0.0;
    for (int o = 0; o < outs; o++) {
        for (int c = 0; c <= ins; c++) { /* the last: 1 */
            double sums[3] = {0.0, 0.0, 0.0};
            for (int i = 0; i < BESIDE_ROWS * positions; i++) {
                const int n = i / positions, p = i % positions;
                const int at = conv ? (n * outs + o) * 16 + p : i * outs + o;
                const int from = conv ? (n * ins + c) * 64 + p / 4 * 16 + p % 4 * 2 : i * ins + c;
                const double r = (double)y[at] - (double)z[at], u = c < ins ? (double)x[from] : 1.0;
                sums[0] += r * u;
                sums[1] += r * r;
                sums[2] += u * u;
            }
            const double here = fabs(sums[0]) / sqrt(sums[1] * sums[2]);
            worst = here > worst ? here : worst;
        }
    }
    return worst;
}

/* The number of a weight's site. */
static size_t beside_site(const sbit_quant *quant, const char *tensor)
{
    sbit_site site;
    for (size_t i = 0; i < sbit_quant_site_count(quant); i++) {
        if (sbit_quant_site(quant, i, &site) == SBIT_OK && strcmp(site.tensor, tensor) == 0) {
            return i;
        }
    }
    CHECK_MSG(false, "'%s' has no site", tensor);
    return 0;
}

/* ---- compensate: what samples that it did not see say */
enum {
    UNSEEN_SEEN = 64,
    UNSEEN_ALL = UNSEEN_SEEN + 400,
    UNSEEN_IN = 64,
    UNSEEN_OUT = 6
};

/* Mean square error of the other samples: nearest; gains and biases; weights, too. */
static double unseen_error(const float *x, const float *w, const char *recipe, const char *weights)
{
    build b;
    static float y[UNSEEN_ALL * UNSEEN_OUT];
    char text[400];
    double sum = 0.0;
    snprintf(text, sizeof text,
             "PLACEMENT: residual\nSTEPS: [%s]\nSTEP: {COMPENSATE: {WEIGHTS: %s}}\n"
             "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
             "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 3}}\n",
             recipe, weights);
    build_begin(&b, 21);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,64");
    build_output(
        &b, build_binary(&b, "MatMul", "y", in, build_constant(&b, "w", SBIT_F32, "64,6", w)));
    const sbit_tensor seen = build_tensor(SBIT_F32, "64,64", x), all = build_tensor(SBIT_F32, "464,64", x);
    sbit_graph *q = build_quantized(&b, text, &seen, 0, 0);
    if (!b.failed) {
        beside_value(&b, q, "y", &all, y);
    }
    for (int n = UNSEEN_SEEN * UNSEEN_OUT; n < UNSEEN_ALL * UNSEEN_OUT; n++) {
        double off = -(double)y[n];
        for (int i = 0; i < UNSEEN_IN; i++) {
            off += (double)w[i * UNSEEN_OUT + n % UNSEEN_OUT] *
                   (double)x[n / UNSEEN_OUT * UNSEEN_IN + i];
        }
        sum += off * off / ((UNSEEN_ALL - UNSEEN_SEEN) * UNSEEN_OUT);
    }
    sbit_graph_destroy(q);
    build_end(&b);
    return sum;
}

/* As many samples as inputs: weights that fit them all are worse than the nearest on others. */
TEST(compensate_does_not_learn_samples_by_heart)
{
    static float x[UNSEEN_ALL * UNSEEN_IN], w[UNSEEN_IN * UNSEEN_OUT];
    double error[3] = {0.0, 0.0, 0.0};
    for (uint64_t seed = 0; seed < 4; seed++) {
        sbit_rng rng = sbit_rng_seed(seed);
        for (int i = 0; i < UNSEEN_ALL * UNSEEN_IN; i++) {
            const float before = i % UNSEEN_IN > 0 ? x[i - 1] : 0.0f, one = sbit_rng_normal(&rng) + 0.4f * before;
            x[i] = one > 0.0f ? one : 0.0f;
        }
        for (int i = 0; i < UNSEEN_IN * UNSEEN_OUT; i++) {
            w[i] = sbit_rng_normal(&rng);
        }
        error[0] += unseen_error(x, w, "", "true");
        error[1] += unseen_error(x, w, "compensate", "false");
        error[2] += unseen_error(x, w, "compensate", "true");
    }
    CHECK_MSG(error[1] < error[0] && error[2] < 1.05 * error[1], "nearest %g, compensated %g, with weights %g",
              error[0], error[1], error[2]);
}

/* Least squares: what is left is orthogonal to what the operator reads. */
TEST(compensate_fits_operators_beside_blocks)
{
    static float data[BESIDE_VALUES], y[BESIDE_VALUES], z[BESIDE_VALUES], x[BESIDE_VALUES];
    static const char *const kinds[3] = {"none", "float", "int8"};
    sbit_rng rng = sbit_rng_seed(46);
    for (int i = 0; i < BESIDE_VALUES; i++) {
        data[i] = sbit_rng_normal(&rng) + 0.3f;
    }
    for (int k = 0; k < 6; k++) {
        const bool conv = k < 3;
        static double db[3];
        build b;
        steps_of s;
        char text[300];
        const sbit_tensor all = build_tensor(SBIT_F32, conv ? "24,4,8,8" : "24,64,4", data);
        build_begin(&b, 13);
        beside_model(&b, conv);
        snprintf(text, sizeof text,
                 "PLACEMENT: residual\nSTEPS: [compensate]\nSTEP: {COMPENSATE: {OPERATOR: %s, "
                 "GAIN: false, BIAS: false, WEIGHTS: false, POSITIONS: 0}}\n"
                 "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n"
                 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n",
                 kinds[k % 3]);
        steps_read(&s, &b, text, &all, 0);
        if (steps_build(&s, &b)) {
            const size_t count = conv ? BESIDE_ROWS * 5 * 16 : BESIDE_ROWS * 64 * 4;
            beside_value(&b, b.graph, "sum", &all, y);
            beside_value(&b, sbit_quant_float_graph(s.quant), k % 3 == 0 ? "sum" : "sum_beside_sum",
                         &all, z);
            CHECK(steps_sqnr(y, z, count) > 110.0); /* in float nothing is added */
            beside_value(&b, s.q, k % 3 == 0 ? "sum" : "sum_beside_sum", &all, z);
            beside_value(&b, s.q, "x_dequantized", &all, x);
            db[k % 3] = steps_sqnr(y, z, count);
            CHECK_EQ_I64((int64_t)(sbit_graph_find_node(s.q, "sum_beside").idx != 0), k % 3 != 0);
            for (int r = 0; r < (conv ? 5 : 4) && k % 3 > 0; r++) { /* the scale of what the float one has */
                static float most[5];
                sbit_site site;
                const sbit_value_info *w = sbit_graph_value(s.q, sbit_graph_find_value(s.q, "sum_beside.weight"));
                CHECK_OK(sbit_quant_site(s.quant, beside_site(s.quant, "sum_beside.weight"), &site), b.error);
                for (int c = 0; c < 4 && k % 3 == 1; c++) {
                    const float size = fabsf(((const float *)w->constant.data)[conv ? r * 4 + c : c * 4 + r]);
                    most[r] = c == 0 || size > most[r] ? size : most[r];
                }
                CHECK(k % 3 == 1 || fabs((double)site.qparams.scale[r] / ((double)most[r] / 127.5) - 1.0) < 1e-5);
            }
            const double left = beside_left(y, z, x, conv);
            CHECK_MSG(k % 3 == 0 ? left > 0.05 : left < (k % 3 == 1 ? 0.002 : 0.02), "%d: %g", k, left);
        }
        CHECK_MSG(k % 3 == 0 || db[k % 3] > db[0] + 0.3, "%d: %.2f dB, before %.2f", k, db[k % 3],
                  db[0]);
        steps_close(&s);
        build_end(&b);
    }
}

/* Blocks of MatMul one behind the other; `mean`: one, that ends in a mean over its first axis. */
static void beside_chain(build *b, bool mean)
{
    const int64_t first = 0;
    const sbit_attr axes = build_ints("axes", &first, 1);
    sbit_value_id y = build_input(b, "x", SBIT_F32, "4,8,4");
    for (int i = 0; i < (mean ? 1 : 2); i++) {
        const sbit_value_id x = y;
        y = build_unary(b, "Relu", "r", beside_product(b, i == 0 ? "a" : "c", x, "4,8", "8"));
        y = beside_product(b, i == 0 ? "b" : "d", y, "8,4", "4");
        y = build_binary(b, "Add", i == 0 ? "sum" : "sum2", y, x);
    }
    y = mean ? build_node(b, "ReduceMean", "mean", &y, 1, &axes, 1) : y;
    build_output(b, beside_product(b, "e", y, "4,3", "3"));
}

TEST(compensate_puts_operators_where_they_fit)
{
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const char *const text = "PLACEMENT: residual\nSTEPS: [compensate]\n"
                                    "STEP: {COMPENSATE: {OPERATOR: float}}\n"
                                    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                                    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    static float x[4 * 8 * 4];
    char path[400];
    sbit_rng rng = sbit_rng_seed(4);
    for (int i = 0; i < 4 * 8 * 4; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    test_tmp_path("beside.json", path, sizeof path);
    for (int k = 0; k < 4; k++) {
        build b;
        sbit_qconfig *config = NULL;
        sbit_graph *other = NULL;
        steps_of s;
        const sbit_tensor all = build_tensor(SBIT_F32, "4,8,4", x);
        build_begin(&b, 13);
        beside_chain(&b, k == 1);
        build_do(&b, sbit_qconfig_read(b.ctx, text, strlen(text), &config, &b.error), "config");
        build_do(&b, sbit_qconfig_set(config, "EXPORT.SMALLEST_WEIGHT", k == 2 ? "20" : "0", &b.error),
                 "smallest");
        build_do(&b, sbit_qconfig_set(config, "SKIP_TRACE_MODULES", k == 3 ? "[sum2_beside]" : "[]", &b.error), "skip");
        steps_open(&s, &b, config, &all, 0);
        if (!steps_build(&s, &b)) {
        } else if (k == 1) { /* 4 rows do not go into 1 */
            CHECK_EQ_I64(sbit_graph_find_node(s.q, "mean_beside").idx, 0);
        } else if (k == 2) { /* 16 weights, that would stay float and 0 */
            CHECK_EQ_I64(sbit_graph_find_node(s.q, "sum_beside").idx, 0);
        } else if (k == 3) { /* nor does a setting leave weights of 0 in the file */
            CHECK(sbit_graph_find_node(s.q, "sum_beside").idx != 0);
            CHECK_EQ_I64(sbit_graph_find_node(s.q, "sum2_beside").idx, 0);
            CHECK_EQ_I64(sbit_graph_find_value(s.q, "sum2_beside_sum").idx, 0);
            CHECK_OK(sbit_graph_validate(s.q, &b.error), b.error);
            CHECK_OK(sbit_quant_set_quant(s.quant, true, true, &b.error), b.error); /* taps find all values */
        } else {
            const sbit_node_id id = sbit_graph_find_node(s.q, "sum2_beside");
            const sbit_node_id layer = sbit_graph_find_node(s.q, "c");
            if (CHECK(id.idx != 0 && layer.idx != 0)) { /* it reads what its block reads */
                CHECK_EQ_I64(sbit_graph_node(s.q, id)->inputs[0].idx,
                             sbit_graph_node(s.q, layer)->inputs[0].idx);
            }
            /* a weight that is float has no encoding - until it is given values of its grid */
            size_t size = 0;
            float w[16], kept[16];
            sbit__site *site = &s.quant->sites[beside_site(s.quant, "sum2_beside.weight")];
            build_do(&b, sbit_quant_save_encodings(s.quant, path, "aimet", &b.error), "save");
            char *json = (char *)test_read_file(path, &size);
            remove(path);
            CHECK(json != NULL && strstr(json, "a.weight") != NULL &&
                  strstr(json, "sum2_beside.weight") == NULL);
            free(json);
            memset(kept, 0, sizeof kept);
            if (CHECK(site->rounded_bytes == sizeof kept)) {
                memcpy(kept, site->rounded, sizeof kept);
            }
            build_do(&b, sbit__site_dequantized(s.quant, site, w, &b.error), "dequantized");
            CHECK(memcmp(w, kept, sizeof w) == 0 && w[1] * w[1] > 0.0f);
            CHECK_EQ_I64(sbit_graph_find_value(s.q, "sum2_beside.weight_quantized").idx, 0);
            build_do(&b, sbit_quant_set_weight(s.quant, (size_t)(site - s.quant->sites), ones, &b.error),
                     "weight");
            build_do(&b, sbit_quant_build(s.quant, NULL, &other, &b.error), "build");
            CHECK(b.failed ||
                  sbit_graph_find_value(other, "sum2_beside.weight_quantized").idx != 0);
        }
        sbit_graph_destroy(other);
        steps_close(&s);
        build_end(&b);
    }
}

/* Memory ends while operators are put beside two blocks, and is there at the second try. */
typedef struct beside_heap {
    test_heap heap;
    int64_t n;
    bool wrong;
} beside_heap;

static void beside_log(sbit_log_level level, const char *message, void *user)
{
    beside_heap *h = (beside_heap *)user;
    unsigned count = 0;
    (void)level;
    if (h->heap.fail_at == 0 && strstr(message, "normalizations") != NULL) {
        h->heap.fail_at = h->heap.count + h->n;
    }
    h->wrong = h->wrong || (sscanf(message, "compensate: operators beside %u", &count) == 1 &&
                            count > 2);
}

/* A context and beside_chain with its quantization, calibrated by `batch` rows of `all` at a time (0: the default). */
typedef struct beside_run {
    build b;
    steps_of of;
} beside_run;

static void beside_begin(beside_run *s, const sbit_ctx_desc *ctx, const char *text, const sbit_tensor *all, int64_t batch)
{
    build *b = &s->b;
    memset(s, 0, sizeof *s);
    build_do(b, sbit_ctx_create(ctx, &b->ctx, &b->error), "context");
    build_do(b, sbit_graph_create(b->ctx, 13, &b->graph, &b->error), "graph");
    beside_chain(b, false);
    steps_read(&s->of, b, text, all, batch);
}

static void beside_end(beside_run *s)
{
    steps_close(&s->of);
    build_end(&s->b);
}

TEST(compensate_counts_operators_anew)
{
    static const char *const text = "PLACEMENT: residual\nSTEPS: [smooth_quant, compensate]\n"
                                    "STEP: {COMPENSATE: {OPERATOR: int8}}\n"
                                    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                                    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    static float x[4 * 8 * 4];
    const sbit_tensor all = build_tensor(SBIT_F32, "4,8,4", x);
    bool more = true;
    for (int64_t n = 1; n < 12 && more; n++) {
        beside_heap h;
        beside_run s;
        sbit_ctx_desc ctx;
        memset(&h, 0, sizeof h);
        memset(&ctx, 0, sizeof ctx);
        h.n = n;
        ctx.threads = 1;
        ctx.allocator = test_heap_allocator(&h.heap);
        ctx.logger.log_fn = beside_log;
        ctx.logger.user = &h;
        beside_begin(&s, &ctx, text, &all, 0);
        more = !s.b.failed && sbit_quant_calibrate(s.of.quant, &s.of.feed, &s.b.error) == SBIT_ERR_OUT_OF_MEMORY;
        if (more) {
            sbit_quant_calibrate(s.of.quant, &s.of.feed, &s.b.error);
        }
        CHECK_MSG(!h.wrong, "allocation %d", (int)n);
        more = more && !h.wrong;
        beside_end(&s);
    }
}

/* ---- by_time: a table says what integers make slower */
static const char *by_time_reason(const steps *s, const char *tensor)
{
    sbit_site site;
    for (size_t i = 0; i < sbit_quant_site_count(s->quant); i++) {
        if (sbit_quant_site(s->quant, i, &site) == SBIT_OK && strcmp(site.tensor, tensor) == 0) {
            return site.reason;
        }
    }
    return "there is no such site";
}

TEST(by_time_leaves_float_what_integers_make_slower)
{
    static const char table[] = "{\"microseconds\": {\"a\": [1, 10], \"a (integers)\": [1, 12], "
                                "\"b\": [1, 10], \"b (integers)\": [1, 5], "
                                "\"c\": [1, 10], \"c (integers)\": [1, 10.3]}}";
    char path[400];
    test_tmp_path("by_time.json", path, sizeof path);
    for (int k = 0; k < 3; k++) { /* 1: without a margin; 2: of another model */
        const char *const set[][2] = {{"STEPS", "[by_time]"},
                                      {"STEP.BY_TIME.TABLE", path},
                                      {"STEP.BY_TIME.MARGIN", k == 1 ? "0" : "5"},
                                      {NULL, NULL}};
        steps s;
        FILE *file = fopen(path, "wb");
        if (!CHECK(file != NULL)) {
            return;
        }
        fputs(k == 2 ? "{\"microseconds\": {\"a\": [1, 10], \"z (integers)\": [1, 12]}}" : table, file);
        fclose(file);
        steps_begin(&s, "residual", set);
        if (k == 2) {
            build_do(&s.b, sbit_quant_calibrate(s.quant, &s.feed, &s.b.error), "calibrate");
            CHECK_STATUS(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error),
                         SBIT_ERR_CONFIG, s.b.error);
            CHECK_CONTAINS(s.b.error.message, "no times");
        } else if (steps_calc(&s, false)) {
            CHECK_CONTAINS(by_time_reason(&s, "a.weight"), "by_time");
            CHECK_CONTAINS(by_time_reason(&s, "x"), "by_time"); /* that `a` alone reads */
            CHECK_STR(by_time_reason(&s, "ra"), "");
            CHECK_STR(by_time_reason(&s, "b.weight"), "");
            CHECK_EQ_I64(strcmp(by_time_reason(&s, "rb"), "") == 0, k == 0);
            CHECK_EQ_I64(strcmp(by_time_reason(&s, "c.weight"), "") == 0, k == 0);
        }
        steps_end(&s);
        remove(path);
    }
}

static void by_time_log(sbit_log_level level, const char *message, void *user)
{
    int *warned = (int *)user;
    *warned += level == SBIT_LOG_WARNING && strstr(message, "by_time: the table has no times of '") != NULL &&
               strstr(message, "5 other layers") != NULL;
}

/* A model of batches of 4, and operators beside its blocks: layers like others. What was measured is read
 * again for the same result; a table of a few layers says which others stay integers. */
TEST(by_time_knows_operators_beside_blocks)
{
    static float x[8 * 8 * 4];
    const sbit_tensor all = build_tensor(SBIT_F32, "8,8,4", x);
    char path[400], text[900], reasons[2][2000];
    int warned = 0;
    memset(reasons, 0, sizeof reasons);
    test_tmp_path("by_time_beside.json", path, sizeof path);
    remove(path);
    for (int i = 0; i < 8 * 8 * 4; i++) {
        x[i] = 0.01f * (float)(i * 37 % 101 - 50);
    }
    snprintf(text, sizeof text,
             "PLACEMENT: residual\nSTEPS: [by_time, compensate]\n"
             "STEP: {COMPENSATE: {OPERATOR: int8}, BY_TIME: {TABLE: '%s'}}\n"
             "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
             "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n", path);
    for (int k = 0; k < 3; k++) { /* measures, reads, reads a few */
        beside_run s;
        sbit_ctx_desc ctx;
        memset(&ctx, 0, sizeof ctx);
        ctx.threads = 1;
        ctx.logger.log_fn = by_time_log;
        ctx.logger.user = &warned;
        beside_begin(&s, &ctx, text, &all, 4);
        if (!s.b.failed && build_do(&s.b, sbit_quant_calibrate(s.of.quant, &s.of.feed, &s.b.error), "calibrate") &&
            build_do(&s.b, sbit_quant_calc_qparams(s.of.quant, false, false, false, &s.b.error), "calc")) {
            size_t used = 0, size = 0;
            for (size_t i = 0; i < sbit_quant_site_count(s.of.quant) && k < 2; i++) {
                sbit_site site;
                CHECK_OK(sbit_quant_site(s.of.quant, i, &site), s.b.error);
                used += (size_t)snprintf(reasons[k] + used, sizeof reasons[k] - used, "%.1s;", site.reason);
            }
            char *json = (char *)test_read_file(path, &size);
            CHECK(json != NULL && strstr(json, "\"sum_beside (integers)\"") != NULL && (k == 2 || strstr(json, "\"sum2_beside (integers)\"") != NULL));
            if (k == 1 && json != NULL) { /* the first node alone */
                FILE *file = fopen(path, "wb");
                if (CHECK(file != NULL)) {
                    fputs("{\"microseconds\": {\"sum_beside\": [1, 2], \"sum_beside (integers)\": [1, 2]}}", file);
                    fclose(file);
                }
            }
            free(json);
        }
        beside_end(&s);
    }
    remove(path);
    CHECK_STR(reasons[0], reasons[1]);
    CHECK_EQ_I64(warned, 1);
}

TEST(by_time_refuses_a_table_that_cannot_be_read)
{
    static const char *const set[][2] = {{"STEPS", "[by_time]"}, {"STEP.BY_TIME.TABLE", SBIT_TEST_TMP}, {NULL, NULL}};
    steps s;
    steps_begin(&s, "residual", set);
    build_do(&s.b, sbit_quant_calibrate(s.quant, &s.feed, &s.b.error), "calibrate");
    CHECK_STATUS(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), SBIT_ERR_IO, s.b.error);
    CHECK_CONTAINS(s.b.error.message, "cannot be read"); /* before anything was measured */
    CHECK_CONTAINS(s.b.error.message, SBIT_TEST_TMP);
    steps_end(&s);
}

/* ---- SmoothQuant: two channels of a LayerNormalization a hundred times too large, their weights a
 * hundred times too small */
TEST(smooth_quant_moves_outliers_into_weights)
{
    static float x[48 * 12];
    sbit_rng rng = sbit_rng_seed(17);
    double db[2] = {0.0, 0.0};
    for (int i = 0; i < 48 * 12; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    for (int smooth = 0; smooth < 2; smooth++) {
        float scale[12], shift[12], w[2][12 * 9];
        build b;
        sbit_qconfig *config = NULL;
        steps_of s;
        sbit_value_id in[3];
        const sbit_attr turned = build_int("transB", 1);
        rng = sbit_rng_seed(5);
        for (int i = 0; i < 12; i++) {
            const float large = i % 7 == 3 ? 100.0f : 1.0f;
            scale[i] = (1.0f + 0.1f * (float)i) * large;
            shift[i] = 0.1f * large;
            for (int c = 0; c < 9; c++) { /* [12,9] and [9,12] */
                w[0][i * 9 + c] = sbit_rng_normal(&rng) / large;
                w[1][c * 12 + i] = sbit_rng_normal(&rng) / large;
            }
        }
        build_begin(&b, 17);
        in[0] = build_input(&b, "x", SBIT_F32, "N,12");
        in[1] = build_constant(&b, "scale", SBIT_F32, "12", scale);
        in[2] = build_constant(&b, "shift", SBIT_F32, "12", shift);
        const sbit_value_id n = build_node(&b, "LayerNormalization", "n", in, 3, NULL, 0);
        build_output(&b, build_binary(&b, "MatMul", "y", n,
                                      build_constant(&b, "w", SBIT_F32, "12,9", w[0])));
        in[0] = n;
        in[1] = build_constant(&b, "v", SBIT_F32, "9,12", w[1]);
        build_output(&b, build_node(&b, "Gemm", "z", in, 2, &turned, 1));
        build_do(&b, sbit_qconfig_create(b.ctx, "generic", &config, &b.error), "config");
        if (smooth == 1) {
            build_do(&b, sbit_qconfig_set(config, "STEPS", "[smooth_quant]", &b.error), "set");
        }
        const sbit_tensor all = build_tensor(SBIT_F32, "48,12", x);
        steps_open(&s, &b, config, &all, 0);
        float y[3][48 * 9];
        if (steps_build(&s, &b)) {
            steps_three(&s, &b, &all, y[0], y[1], y[2], 48 * 9);
        }
        CHECK(steps_sqnr(y[0], y[1], 48 * 9) > 100.0); /* the same function */
        db[smooth] = steps_sqnr(y[0], y[2], 48 * 9);
        steps_close(&s);
        build_end(&b);
    }
    CHECK_MSG(db[1] > db[0] + 15.0 && db[1] > 35.0, "%.1f dB, smoothed %.1f dB", db[0], db[1]);
}

/* Two channels carry large inputs: their weights count most, at 3 bits in blocks of 6. */
TEST(awq_gives_fine_steps_to_weights_with_large_inputs)
{
    static float x[48 * 12];
    double db[2] = {0.0, 0.0};
    sbit_rng rng = sbit_rng_seed(23);
    for (int i = 0; i < 48 * 12; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    for (int awq = 0; awq < 2; awq++) {
        float scale[12], w[12 * 9], y[3][48 * 9];
        build b;
        sbit_qconfig *config = NULL;
        steps_of s;
        sbit_value_id in[3];
        rng = sbit_rng_seed(6);
        for (int i = 0; i < 12; i++) {
            scale[i] = i % 6 == 2 ? 8.0f : 1.0f;
            for (int c = 0; c < 9; c++) {
                w[i * 9 + c] = sbit_rng_normal(&rng);
            }
        }
        build_begin(&b, 21);
        in[0] = build_input(&b, "x", SBIT_F32, "N,12");
        in[1] = build_constant(&b, "scale", SBIT_F32, "12", scale);
        in[0] = build_node(&b, "LayerNormalization", "n", in, 2, NULL, 0);
        in[1] = build_constant(&b, "w", SBIT_F32, "12,9", w);
        build_output(&b, build_node(&b, "MatMul", "y", in, 2, NULL, 0));
        build_do(&b, sbit_qconfig_create(b.ctx, "generic", &config, &b.error), "config");
        build_do(&b, sbit_qconfig_set(config, "A.QUANTIZER.DISABLE", "true", &b.error), "set");
        build_do(&b, sbit_qconfig_set(config, "W.QUANTIZER.BIT", "3", &b.error), "set");
        build_do(&b, sbit_qconfig_set(config, "W.QUANTIZER.GROUP_SIZE", "6", &b.error), "set");
        if (awq == 1) {
            build_do(&b, sbit_qconfig_set(config, "STEPS", "[awq]", &b.error), "set");
        }
        const sbit_tensor all = build_tensor(SBIT_F32, "48,12", x);
        steps_open(&s, &b, config, &all, 0);
        if (steps_build(&s, &b)) {
            steps_three(&s, &b, &all, y[0], y[1], y[2], 48 * 9);
        }
        CHECK(steps_sqnr(y[0], y[1], 48 * 9) > 100.0); /* the same function */
        db[awq] = steps_sqnr(y[0], y[2], 48 * 9);
        steps_close(&s);
        build_end(&b);
    }
    CHECK_MSG(db[1] > db[0] + 1.0, "%.1f dB, with awq %.1f dB", db[0], db[1]);
}

/* ---- steps that choose: before scales, and with scales known */

static sbit_status choose_run(void *state, const sbit_options *options, const sbit_feed *feed,
                              sbit_error *error)
{
    sbit_site_change change;
    sbit_unit unit;
    (void)options;
    (void)feed;
    memset(&change, 0, sizeof change);
    change.bits = 5;
    CHECK(sbit_quant_units((sbit_quant *)state, NULL, &unit, 1) == 3);
    return sbit_quant_set_site((sbit_quant *)state, unit.site, &change, error);
}

static const sbit_step_row choose_rows[2] = {
    {{"choose", "", SBIT_TARGET_WEIGHT, NULL, 0}, SBIT_STAGE_SELECT, false, choose_run},
    {{"measure", "", SBIT_TARGET_WEIGHT, NULL, 0}, SBIT_STAGE_RANGES, false, choose_run},
};

TEST(steps_choose_widths)
{
    for (int i = 0; i < 2; i++) {
        static steps s;
        sbit_site site;
        steps_begin(&s, "generic", NULL);
        CHECK_OK(sbit_step_register(s.b.ctx, &choose_rows[i], &s.b.error), s.b.error);
        build_do(&s.b,
                 sbit_quant_set(s.quant, "STEPS", i == 0 ? "[choose]" : "[measure]", &s.b.error),
                 "set");
        for (int again = 0; again < 2; again++) {
            CHECK(again == 0 ? steps_calc(&s, false)
                             : sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error) ==
                                   SBIT_OK);
            for (size_t k = 0; k < sbit_quant_site_count(s.quant); k++) {
                CHECK(sbit_quant_site(s.quant, k, &site) == SBIT_OK);
                if (site.target == SBIT_TARGET_WEIGHT) {
                    CHECK_EQ_I64(site.qparams.grid.bits,
                                 strcmp(site.tensor, "a.weight") == 0 ? 5 : 8);
                }
            }
        }
        CHECK(steps_quality(&s) > 15.0);
        steps_end(&s);
    }
}

/* What was pruned stays zero, whatever rounds the others: masks, 2:4. */
TEST(rounding_keeps_zeros)
{
    static const char *const recipes[] = {"[gptq]", "[adaround]", "[adaquant]", "[reconstruct]",
                                          "[gptq, compensate, bias_correction]"};
    steps_pruned = true;
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++) {
        const char *const set[][2] = {
            {"W.QUANTIZER.BIT", "3"},           {"STEPS", recipes[r]},
            {"STEP.ADAROUND.ITERATIONS", "100"}, {"STEP.ADAQUANT.ITERATIONS", "100"},
            {"STEP.RECONSTRUCT.ITERATIONS", "30"}, {NULL, NULL}};
        static steps s;
        steps_begin(&s, "generic", set);
        if (CHECK(steps_calc(&s, false))) {
            static const char *const names[] = {"a.weight_quantized", "b.weight_quantized",
                                                "c.weight_quantized"};
            sbit_graph *q = NULL;
            int64_t alive = 0, woken = 0;
            build_do(&s.b, sbit_quant_build(s.quant, NULL, &q, &s.b.error), "build");
            for (int k = 0; k < 3; k++) {
                int64_t n = 0;
                const int8_t *w = steps_integers(q, names[k], &n);
                for (int64_t i = 0; w != NULL && i < n; i++) {
                    alive += i % 2 == 1 && w[i] != 0;
                    woken += i % 2 == 0 && w[i] != 0;
                }
            }
            CHECK_MSG(woken == 0 && alive > 100, "%s: %d zeros are none any more, %d others",
                      recipes[r], (int)woken, (int)alive);
            sbit_graph_destroy(q);
        }
        steps_end(&s);
    }
    steps_pruned = false;
}
