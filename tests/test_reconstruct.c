/* split */
/* test_reconstruct.c: the model in blocks, and their reconstruction (BRECQ, QDrop). */
#include "../src/quant/layer_private.h"
#include "test.h"
#include "build_graph.h"
#include "build_quantized.h"

#define BLOCKS_ROWS 24
#define BLOCKS_PIXELS (2 * 5 * 5)

/* stem -> Relu -> [b -> Relu -> c] + itself -> Relu -> pool -> fc: a residual block in the middle.
 */
typedef struct blocks {
    build b;
    sbit_quant *quant;
    sbit_feed feed;
    float x[BLOCKS_ROWS * BLOCKS_PIXELS];
    sbit_tensor all;
} blocks;

static sbit_value_id blocks_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                 uint64_t seed)
{
    const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attr = build_ints("pads", pads, 4);
    char text[40];
    sbit_value_id inputs[3];
    inputs[0] = x;
    snprintf(text, sizeof text, "%s.weight", name);
    inputs[1] = build_weights(b, text, dims, seed);
    snprintf(text, sizeof text, "%s.bias", name);
    inputs[2] = build_weights(b, text, "4", seed + 1);
    return build_node(b, "Conv", name, inputs, 3, &attr, 1);
}

/* Every third weight of the layer b is pruned. */
static bool blocks_pruned(int i)
{
    return i % 3 == 0;
}

static void blocks_prune(build *b)
{
    const sbit_value_id id = sbit_graph_find_value(b->graph, "b.weight");
    float data[144];
    sbit_tensor w = sbit_graph_value(b->graph, id)->constant;
    memcpy(data, w.data, sizeof data);
    for (int i = 0; i < 144; i++) {
        data[i] = blocks_pruned(i) ? 0.0f : data[i];
    }
    w.data = data;
    build_do(b, sbit_graph_set_constant(b->graph, id, &w, &b->error), "prune");
}

static void blocks_begin_pruned(blocks *s, int threads, const char *text, bool pruned)
{
    sbit_qconfig *config = NULL;
    sbit_feed_desc desc;
    sbit_rng rng = sbit_rng_seed(11);
    memset(s, 0, sizeof *s);
    build_begin_threads(&s->b, 13, threads);
    build *b = &s->b;
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,2,5,5");
    const sbit_value_id in = build_unary(b, "Relu", "in", blocks_conv(b, "stem", x, "4,2,3,3", 1));
    sbit_value_id y = build_unary(b, "Relu", "rb", blocks_conv(b, "b", in, "4,4,3,3", 3));
    y = build_binary(b, "Add", "sum", blocks_conv(b, "c", y, "4,4,3,3", 5), in);
    y = build_unary(b, "GlobalAveragePool", "pool", build_unary(b, "Relu", "out", y));
    sbit_value_id inputs[2];
    inputs[0] = build_unary(b, "Flatten", "flat", y);
    inputs[1] = build_weights(b, "fc.weight", "4,3", 7);
    build_output(b, build_node(b, "Gemm", "fc", inputs, 2, NULL, 0));
    if (pruned) {
        blocks_prune(b);
    }
    for (int i = 0; i < BLOCKS_ROWS * BLOCKS_PIXELS; i++) {
        s->x[i] = sbit_rng_normal(&rng) * (i % 17 == 0 ? 3.0f : 1.0f);
    }
    s->all = build_tensor(SBIT_F32, "24,2,5,5", s->x);
    memset(&desc, 0, sizeof desc);
    desc.inputs = &s->all;
    desc.input_count = 1;
    desc.batch = 7; /* the last batch is smaller */
    build_do(b, sbit_feed_of_tensors(b->ctx, &desc, &s->feed, &b->error), "feed");
    build_do(b, sbit_qconfig_read(b->ctx, text, strlen(text), &config, &b->error), "config");
    if (!b->failed &&
        build_do(b, sbit_quant_create(b->graph, config, &s->quant, &b->error), "quant") &&
        build_do(b, sbit_quant_calibrate(s->quant, &s->feed, &b->error), "calibrate")) {
        build_do(b, sbit_quant_calc_qparams(s->quant, false, false, false, &b->error), "calc");
    }
    sbit_qconfig_destroy(config);
}

static void blocks_begin(blocks *s, int threads, const char *text)
{
    blocks_begin_pruned(s, threads, text, false);
}

static void blocks_end(blocks *s)
{
    sbit_feed_close(&s->feed);
    sbit_quant_destroy(s->quant);
    build_end(&s->b);
}

static const char blocks_plain[] =
    "PLACEMENT: openvino\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n";
static const char blocks_rebuilt[] = "PLACEMENT: openvino\nSTEPS: [reconstruct]\n"
                                     "STEP: {RECONSTRUCT: {ITERATIONS: 250, BATCH: 8}}\n"
                                     "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
                                     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n";

/* Names of the tensors between blocks of at least `layers` layers. */
static void blocks_cuts(const blocks *s, size_t layers, char *text, size_t size)
{
    sbit_unit units[8];
    sbit__arena arena;
    sbit__block *found = NULL;
    sbit_error error;
    size_t count = 0;
    const size_t all = sbit_quant_units(s->quant, NULL, units, 8);
    const sbit_graph *graph = sbit_quant_graph(s->quant);
    sbit__arena_init(&arena, sbit_ctx_allocator(s->b.ctx));
    CHECK(sbit__blocks_find(s->quant, units, all, layers, &arena, &found, &count, &error) ==
          SBIT_OK);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s>%s ", sbit_graph_value(graph, found[i].entry)->name,
                 sbit_graph_value(graph, found[i].exit)->name);
        CHECK(i == 0 ||
              (found[i].entry.idx == found[i - 1].exit.idx && found[i].begin == found[i - 1].end));
    }
    sbit__arena_deinit(&arena);
}

TEST(blocks_are_residual_blocks_and_layers)
{
    static blocks s;
    char text[200];
    blocks_begin(&s, 1, blocks_plain);
    if (!s.b.failed) {
        blocks_cuts(&s, 1, text, sizeof text);
        CHECK_STR(text, "x>in in>flat flat>fc ");
        blocks_cuts(&s, 2, text, sizeof text);
        CHECK_STR(text, "x>flat flat>fc ");
        blocks_cuts(&s, 99, text, sizeof text);
        CHECK_STR(text, "x>fc ");
    }
    blocks_end(&s);
}

/* Mean square of what the quantized model is off by, all samples. */
static double blocks_error(blocks *s)
{
    sbit_graph *q = NULL;
    sbit_session *session = NULL;
    double sum = 0.0;
    float want[BLOCKS_ROWS * 3];
    build *b = &s->b;
    build_do(b, sbit_quant_build(s->quant, NULL, &q, &b->error), "build");
    for (int pass = 0; pass < 2 && !b->failed; pass++) {
        build_do(b, sbit_session_create(pass == 0 ? b->graph : q, NULL, &session, &b->error),
                 "run");
        build_do(b, sbit_session_set_input_at(session, 0, &s->all, &b->error), "input");
        build_do(b, sbit_session_run(session, &b->error), "run");
        const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int i = 0; i < BLOCKS_ROWS * 3; i++) {
            const double off = pass == 0 ? 0.0 : (double)y[i] - (double)want[i];
            want[i] = y[i];
            sum += off * off;
        }
        sbit_session_destroy(session);
        session = NULL;
    }
    sbit_graph_destroy(q);
    return sum / (BLOCKS_ROWS * 3);
}

TEST(reconstruction_is_better_than_the_nearest)
{
    static blocks near, far, all;
    blocks_begin(&near, 1, blocks_plain);
    blocks_begin(&far, 1, blocks_rebuilt);
    blocks_begin(&all, 1, blocks_rebuilt);
    if (!near.b.failed && !far.b.failed && !all.b.failed) {
        const double before = blocks_error(&near), after = blocks_error(&far);
        CHECK_MSG(after < 0.5 * before, "%g, nearest %g", after, before);
        int moved = 0;
        for (size_t i = 0; i < sbit_quant_site_count(far.quant); i++) {
            sbit_site a, b;
            CHECK(sbit_quant_site(near.quant, i, &a) == SBIT_OK &&
                  sbit_quant_site(far.quant, i, &b) == SBIT_OK);
            const bool weight = a.target == SBIT_TARGET_WEIGHT;
            const bool same = a.qparams.scale[0] == b.qparams.scale[0];
            CHECK_MSG(!weight || same, "%s", a.tensor); /* scales of weights stay */
            moved += !weight && !same;
            CHECK(a.qparams.zero_point[0] == b.qparams.zero_point[0]);
        }
        CHECK(moved >= 4);
        int biases = 0;
        for (size_t i = 0; i < far.quant->site_count; i++) {
            biases += far.quant->sites[i].shift != NULL;
        }
        CHECK_EQ_I64(biases, 3); /* of the convolutions; fc has none */
        build_do(&all.b, sbit_quant_set(all.quant, "STEP.RECONSTRUCT.LAYERS", "99", &all.b.error),
                 "set");
        build_do(&all.b, sbit_quant_calc_qparams(all.quant, false, false, false, &all.b.error),
                 "calc");
        const double whole = blocks_error(&all);
        CHECK_MSG(whole < 0.5 * before, "%g, nearest %g", whole, before);
    }
    blocks_end(&near);
    blocks_end(&far);
    blocks_end(&all);
}

/* How many scales of weights and activations a reconstruction changed; pruned weights are 0. */
static void blocks_moved(const blocks *near, const blocks *far, bool power, int *weights,
                         int *activations)
{
    sbit_error error;
    sbit_graph *q = NULL;
    *weights = *activations = 0;
    for (size_t i = 0; i < sbit_quant_site_count(far->quant); i++) {
        sbit_site a, b;
        CHECK(sbit_quant_site(near->quant, i, &a) == SBIT_OK &&
              sbit_quant_site(far->quant, i, &b) == SBIT_OK);
        const bool same = a.qparams.scale[0] == b.qparams.scale[0];
        *weights += a.target == SBIT_TARGET_WEIGHT && !same;
        *activations += a.target != SBIT_TARGET_WEIGHT && !same;
        int exponent = 0;
        CHECK_MSG(!power || frexpf(b.qparams.scale[0], &exponent) == 0.5f, "%s: %g", b.tensor,
                  (double)b.qparams.scale[0]);
    }
    CHECK(sbit_quant_build(far->quant, NULL, &q, &error) == SBIT_OK);
    const sbit_value_id id = sbit_graph_find_value(q, "b.weight_quantized");
    int others = 0;
    if (CHECK(id.idx != 0)) {
        const sbit_tensor *w = &sbit_graph_value(q, id)->constant;
        for (int i = 0; i < 144; i++) {
            const int n = ((const int8_t *)w->data)[i];
            CHECK_MSG(!blocks_pruned(i) || n == 0, "weight %d is %d", i, n);
            others += n != 0;
        }
    }
    CHECK(others > 60);
    sbit_graph_destroy(q);
}

/* Weights that go anywhere, with their scales; per tensor, with scales that stay powers of two;
 * weights that are rounded. Pruned ones stay 0. */
TEST(finetuning_keeps_zeros_and_powers_of_two)
{
    static const char *const text[] = {
        "PLACEMENT: openvino\nSTEPS: [reconstruct]\nSTEP: {RECONSTRUCT: {ITERATIONS: %d, BATCH: 8, "
        "FINETUNE: true, LEARNING_RATE: 0.1, SCALE_RATE: 0.005}}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n",
        "PLACEMENT: openvino\nSTEPS: [reconstruct]\nSTEP: {RECONSTRUCT: {ITERATIONS: %d, BATCH: 8, "
        "FINETUNE: true, LEARNING_RATE: 0.1, SCALE_RATE: 0.02}}\n"
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 4, POWER_OF_TWO: true}}\n"
        "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 4, POWER_OF_TWO: true}}\n",
        "PLACEMENT: openvino\nSTEPS: [reconstruct]\nSTEP: {RECONSTRUCT: {ITERATIONS: %d, BATCH: 8}}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n",
        /* from integers that gptq chose */
        "PLACEMENT: openvino\nSTEPS: [gptq, reconstruct]\nSTEP: {RECONSTRUCT: {ITERATIONS: %d, BATCH: 8, "
        "FINETUNE: true, SCALE_RATE: 0.005}}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n"};
    for (int form = 0; form < 4; form++) {
        static blocks near, far;
        char once[500], often[500];
        int weights, activations;
        snprintf(once, sizeof once, text[form], 1);
        snprintf(often, sizeof often, text[form], 250);
        blocks_begin_pruned(&near, 1, once, true);
        blocks_begin_pruned(&far, 1, often, true);
        if (!near.b.failed && !far.b.failed) {
            const double before = blocks_error(&near), after = blocks_error(&far);
            CHECK_MSG(after < (form == 2 ? 0.95 : 0.75) * before, "%d: %g, nearest %g", form, after, before);
            blocks_moved(&near, &far, form == 1, &weights, &activations);
            CHECK_MSG((weights >= 1 || form == 2) && activations >= 1, "%d: %d weights and %d activations",
                      form, weights, activations);
        }
        blocks_end(&near);
        blocks_end(&far);
    }
}

/* The same bytes from 1 and 2 threads, and once more from the same statistics. */
TEST(reconstruction_is_the_same_each_time)
{
    static blocks one, two;
    sbit_graph *p[3] = {NULL, NULL, NULL};
    blocks_begin(&one, 1, blocks_rebuilt);
    blocks_begin(&two, 2, blocks_rebuilt);
    build_do(&one.b, sbit_quant_build(one.quant, NULL, &p[0], &one.b.error), "build");
    build_do(&one.b, sbit_quant_calc_qparams(one.quant, false, false, false, &one.b.error), "calc");
    build_do(&one.b, sbit_quant_build(one.quant, NULL, &p[1], &one.b.error), "build");
    build_do(&two.b, sbit_quant_build(two.quant, NULL, &p[2], &two.b.error), "build");
    for (uint32_t i = 1; !one.b.failed && !two.b.failed && i < sbit_graph_value_limit(p[0]); i++) {
        const sbit_value_id id = {i};
        const sbit_value_info *v =
            sbit_graph_value_alive(p[0], id) ? sbit_graph_value(p[0], id) : NULL;
        for (int k = 1; v != NULL && v->is_constant && k < 3; k++) {
            const sbit_tensor *other = &sbit_graph_value(p[k], id)->constant;
            CHECK(sbit_tensor_same_shape(other, &v->constant));
            CHECK_MEM(other->data, v->constant.data, sbit_tensor_bytes(other));
        }
    }
    for (int k = 0; k < 3; k++) {
        sbit_graph_destroy(p[k]);
    }
    blocks_end(&one);
    blocks_end(&two);
}

/* A model whose batch is fixed and larger than the samples that there are. */
TEST(few_samples_fill_a_fixed_batch)
{
    build b;
    float x[5 * 6];
    static const char text[] = "PLACEMENT: openvino\nSTEPS: [reconstruct]\n"
                               "STEP: {RECONSTRUCT: {ITERATIONS: 20}}\n"
                               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n"
                               "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n";
    build_begin(&b, 13);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "8,6");
    sbit_value_id y = build_unary(
        &b, "Relu", "r", build_binary(&b, "MatMul", "m", in, build_weights(&b, "w", "6,4", 3)));
    build_output(&b, build_binary(&b, "MatMul", "n", y, build_weights(&b, "v", "4,3", 5)));
    for (int i = 0; i < 30; i++) {
        x[i] = sinf((float)i);
    }
    const sbit_tensor all = build_tensor(SBIT_F32, "5,6", x);
    sbit_graph *q = build_quantized(&b, text, &all, 0, 8);
    sbit_graph_destroy(q);
    build_end(&b);
}

/* One layer, activations all but exact: what remains is a quadratic form in the weights, worked out
 * here in double. Alone, rounding is learned; behind gptq, nothing of what that found is lost. */
static double rounding_form(const char *steps, uint64_t seed)
{
    enum {
        ROWS = 96,
        IN = 24,
        OUT = 3
    };
    static float x[ROWS * IN], w[IN * OUT];
    char text[500];
    build b;
    sbit_rng rng = sbit_rng_seed(seed);
    double form = 0.0;
    snprintf(text, sizeof text,
             "STEPS: [%s]\nSTEP: {GPTQ: {POSITIONS: 0}, RECONSTRUCT: "
             "{ITERATIONS: 300, BATCH: 32, DROP: 0, SCALE_RATE: 0}}\n"
             "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 3}}\n"
             "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 16}}\n",
             steps);
    for (int i = 0; i < ROWS * IN; i++) {
        x[i] = sbit_rng_normal(&rng) + (i % IN > 0 ? 0.8f * x[i - 1] : 0.0f);
    }
    for (int i = 0; i < IN * OUT; i++) {
        w[i] = sbit_rng_normal(&rng);
    }
    build_begin(&b, 13);
    const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,24");
    build_output(&b,
                 build_binary(&b, "MatMul", "y", in, build_constant(&b, "w", SBIT_F32, "24,3", w)));
    const sbit_tensor all = build_tensor(SBIT_F32, "96,24", x);
    sbit_graph *q = build_quantized(&b, text, &all, 0, 0);
    if (!b.failed) {
        const sbit_value_id id = sbit_graph_find_value(q, "w_quantized");
        const int8_t *got = (const int8_t *)sbit_graph_value(q, id)->constant.data;
        const float *scale =
            (const float *)sbit_graph_value(q, sbit_graph_find_value(q, "w_scale"))->constant.data;
        for (int n = 0; n < ROWS * OUT; n++) {
            double off = 0.0;
            for (int k = 0; k < IN; k++) {
                const int at = k * OUT + n % OUT;
                off += ((double)w[at] - (double)scale[n % OUT] * (double)got[at]) *
                       (double)x[n / OUT * IN + k];
            }
            form += off * off;
        }
    }
    sbit_graph_destroy(q);
    build_end(&b);
    return form;
}

TEST(reconstruction_learns_to_round)
{
    double nearest = 0.0, alone = 0.0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        const double gptq = rounding_form("gptq", seed);
        const double behind = rounding_form("gptq, reconstruct", seed);
        nearest += rounding_form("", seed);
        alone += rounding_form("reconstruct", seed);
        CHECK_MSG(behind <= gptq * 1.02, "seed %d: %g, gptq %g", (int)seed, behind, gptq);
    }
    CHECK_MSG(alone < 0.6 * nearest, "%g, nearest %g", alone, nearest);
}
