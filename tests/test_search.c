/* split */
/* test_search.c: sensitivity of layers, steps that search: against brute force. */
#include "../src/measure/measure_api.h"
#include "../src/quant/trials_private.h"
#include "../src/quant/analyze_api.h"
#include "test.h"
#include "build_graph.h"

/* Conv a - Relu - Conv b - Add (residual) - Relu - Conv c - mean - Gemm: logits of 5 classes. */
enum {
    SAMPLES = 24,
    VALUES = 3 * 6 * 6
};

typedef struct search {
    build b;
    sbit_quant *quant;
    sbit_feed feed;
    float data[SAMPLES * VALUES];
    sbit_tensor x;
} search;

/* Channel 0 of the input has rare large values, which nothing reads. */
static bool search_outliers;

static sbit_value_id search_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                 float size)
{
    sbit_rng rng = sbit_rng_seed((uint64_t)name[0]);
    sbit_tensor w = build_tensor(SBIT_F32, dims, NULL);
    float values[512];
    char text[40];
    sbit_value_id in[2];
    sbit_attr pads;
    const int64_t four[4] = {1, 1, 1, 1};
    pads = build_ints("pads", four, 4);
    for (int64_t i = 0; i < sbit_tensor_count(&w); i++) {
        values[i] = size * sbit_rng_normal(&rng) * (i % 17 == 0 ? 3.0f : 1.0f);
        values[i] *= search_outliers && name[0] == 'a' && i / 9 % 3 == 0 ? 0.0f : 1.0f;
    }
    in[0] = x;
    snprintf(text, sizeof text, "%s.weight", name);
    in[1] = build_constant(b, text, SBIT_F32, dims, values);
    return build_node(b, "Conv", name, in, 2, &pads, 1);
}

static void search_begin(search *s, const char *const set[][2])
{
    sbit_qconfig *config = NULL;
    sbit_feed_desc desc;
    sbit_rng rng = sbit_rng_seed(4);
    sbit_value_id in[2];
    memset(s, 0, sizeof *s);
    build_begin(&s->b, 17);
    build *b = &s->b;
    const sbit_value_id x = build_input(b, "x", SBIT_F32, "N,3,6,6");
    sbit_value_id y = search_conv(b, "a", x, "6,3,3,3", 0.3f);
    const sbit_value_id skip = build_node(b, "Relu", "ra", &y, 1, NULL, 0);
    in[0] = search_conv(b, "b", skip, "6,6,3,3", 0.1f);
    in[1] = skip;
    y = build_node(b, "Add", "add", in, 2, NULL, 0);
    y = build_node(b, "Relu", "rb", &y, 1, NULL, 0);
    y = search_conv(b, "c", y, "8,6,3,3", 0.2f);
    y = build_node(b, "GlobalAveragePool", "pool", &y, 1, NULL, 0);
    in[0] = build_node(b, "Flatten", "flat", &y, 1, NULL, 0);
    in[1] = build_weights(b, "fc.weight", "8,5", 9);
    build_output(b, build_node(b, "Gemm", "fc", in, 2, NULL, 0));
    for (int i = 0; i < SAMPLES * VALUES; i++) {
        s->data[i] = sbit_rng_normal(&rng);
        s->data[i] *= search_outliers && i % VALUES < 36 && i % 29 == 0 ? 30.0f : 1.0f;
    }
    build_do(b, sbit_qconfig_create(b->ctx, "generic", &config, &b->error), "config");
    for (size_t i = 0; !b->failed && set != NULL && set[i][0] != NULL; i++) {
        build_do(b, sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), set[i][0]);
    }
    build_do(b, sbit_quant_create(b->graph, config, &s->quant, &b->error), "quant");
    sbit_qconfig_destroy(config);
    s->x = build_tensor(SBIT_F32, "24,3,6,6", s->data);
    memset(&desc, 0, sizeof desc);
    desc.inputs = &s->x;
    desc.input_count = 1;
    desc.batch = 5; /* 5, 5, 5, 5, 4 */
    build_do(b, sbit_feed_of_tensors(b->ctx, &desc, &s->feed, &b->error), "feed");
    build_do(b, sbit_quant_calibrate(s->quant, &s->feed, &b->error), "calibrate");
    build_do(b, sbit_quant_calc_qparams(s->quant, false, false, false, &b->error), "calc");
}

static void search_end(search *s)
{
    sbit_feed_close(&s->feed);
    sbit_quant_destroy(s->quant);
    build_end(&s->b);
}

/* Outputs [24][5] of the model with these sites quantized (NULL: float), all samples at once. */
static void search_run(search *s, const bool *sites, float *out)
{
    sbit_quant_build_desc desc;
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    build *b = &s->b;
    memset(&desc, 0, sizeof desc);
    desc.sites = sites;
    if (sites != NULL) {
        build_do(b, sbit_quant_build(s->quant, &desc, &graph, &b->error), "build");
    }
    sbit_session_desc how;
    memset(&how, 0, sizeof how);
    how.exact = how.disable_fusion = true;
    build_do(b, sbit_session_create(graph != NULL ? graph : s->quant->graph, &how, &session,
                                    &b->error),
             "session");
    build_do(b, sbit_session_set_input_at(session, 0, &s->x, &b->error), "input");
    if (!b->failed && build_do(b, sbit_session_run(session, &b->error), "run")) {
        memcpy(out, sbit_session_output(session, 0)->tensor.data, SAMPLES * 5 * sizeof *out);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
}

static double search_noise(search *s, const bool *sites)
{
    float plain[SAMPLES * 5], other[SAMPLES * 5];
    double error2 = 0.0, reference2 = 0.0;
    search_run(s, NULL, plain);
    search_run(s, sites, other);
    for (int i = 0; i < SAMPLES * 5; i++) {
        const double e = (double)plain[i] - (double)other[i];
        error2 += e * e;
        reference2 += (double)plain[i] * (double)plain[i];
    }
    return error2 / reference2;
}

/* The layer whose output is the model's: what it loses is what the outputs lose. */
static bool search_makes_output(const search *s, const char *layer)
{
    const sbit_graph *graph = s->quant->graph;
    const sbit_node_id made = sbit_graph_value(graph, sbit_graph_output(graph, 0))->producer;
    for (size_t i = 0; i < s->quant->site_count; i++) {
        if (strcmp(s->quant->sites[i].layer_name, layer) == 0) {
            return s->quant->sites[i].layer.idx == made.idx;
        }
    }
    return false;
}

TEST(analysis_is_what_each_layer_does_alone)
{
    search s;
    sbit_sensitivity found[32];
    bool sites[64];
    size_t count = 0;
    static const char *const set[][2] = {{"W.QUANTIZER.BIT", "4"}, {NULL, NULL}};
    search_begin(&s, set);
    build_do(&s.b, sbit_quant_analyze(s.quant, &s.feed, found, 32, &count, &s.b.error), "analyze");
    CHECK(count >= 5); /* four layers with weights, and others */
    for (size_t l = 0; l < count && !s.b.failed; l++) {
        for (size_t i = 0; i < s.quant->site_count; i++) {
            const sbit__site *site = &s.quant->sites[i];
            sites[i] = site->enabled && strcmp(site->layer_name, found[l].layer) == 0;
        }
        CHECK_NEAR(found[l].noise, search_noise(&s, sites), 1e-4 * found[l].noise + 1e-12);
        CHECK(l == 0 || found[l].noise <= found[l - 1].noise);
        CHECK(found[l].agreement >= 0.0 && found[l].agreement <= 1.0);
    }
    int first = 0, last = 0;
    for (size_t l = 0; l < count && !s.b.failed; l++) {
        const bool ends = search_makes_output(&s, found[l].layer);
        const double own = found[l].own.error2 / found[l].own.reference2;
        CHECK_MSG(found[l].own.count > 0 && (found[l].own.error2 > 0.0 || found[l].weight_bits == 0), "%s",
                  found[l].layer);
        first += !ends && fabs(own - found[l].noise) > 1e-3 * own;
        last += ends;
        CHECK_MSG(!ends || fabs(own - found[l].noise) <= 1e-4 * own, "%s: %g alone, outputs %g",
                  found[l].layer, own, found[l].noise);
    }
    CHECK(first >= 1 && last == 1);
    CHECK_EQ_I64(found[0].weight_bits, 4);
    CHECK(found[0].params > 0 && found[0].macs > 0);
    /* fewer than there are: the worst */
    sbit_sensitivity one;
    build_do(&s.b, sbit_quant_analyze(s.quant, &s.feed, &one, 1, &count, &s.b.error), "analyze");
    CHECK_STR(one.layer, found[0].layer);
    search_end(&s);
}

static double search_loss(const float *logits, int64_t label)
{
    double sum = 0.0;
    for (int k = 0; k < 5; k++) {
        sum += exp((double)logits[k]);
    }
    return log(sum) - (double)logits[label];
}

/* With fine steps the loss moves by its slope (activations alone: behind coarse weights they are
 * rounded elsewhere); what has come together at the last layer is what the outputs lose. */
static void search_slopes(const char *weight_bits, const char *activation_bits, bool weights)
{
    const char *const set[][2] = {{"W.QUANTIZER.BIT", weight_bits},
                                  {"A.QUANTIZER.BIT", activation_bits},
                                  {NULL, NULL}};
    search s;
    sbit_sensitivity found[32];
    sbit_feed_desc desc;
    sbit_feed feed;
    int64_t labels[SAMPLES];
    float plain[SAMPLES * 5], other[SAMPLES * 5];
    bool sites[64];
    size_t count = 0, seen = 0;
    search_begin(&s, set);
    search_run(&s, NULL, plain);
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % 5;
    }
    const sbit_tensor target = build_tensor(SBIT_I64, "24", labels);
    memset(&desc, 0, sizeof desc);
    desc.inputs = &s.x;
    desc.targets = &target;
    desc.input_count = desc.target_count = 1;
    build_do(&s.b, sbit_feed_of_tensors(s.b.ctx, &desc, &feed, &s.b.error), "feed");
    build_do(&s.b, sbit_quant_analyze(s.quant, &feed, found, 32, &count, &s.b.error), "analyze");
    for (size_t l = 0; l < count && !s.b.failed; l++) {
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < s.quant->site_count; i++) {
            const sbit__site *site = &s.quant->sites[i];
            sites[i] = site->enabled && strcmp(site->layer_name, found[l].layer) == 0;
        }
        search_run(&s, sites, other);
        for (int i = 0; i < SAMPLES; i++) {
            const double moved =
                search_loss(other + 5 * i, labels[i]) - search_loss(plain + 5 * i, labels[i]);
            sum += moved / SAMPLES;
            squares += moved * moved / SAMPLES;
        }
        if ((found[l].weight_bits > 0) == weights) {
            CHECK_NEAR(found[l].taylor, sum, 0.05 * sqrt(squares));
            CHECK_NEAR(found[l].fisher, 0.5 * squares, 0.05 * squares);
            seen++;
        }
        if (search_makes_output(&s, found[l].layer)) {
            for (size_t i = 0; i < s.quant->site_count; i++) {
                sites[i] = s.quant->sites[i].enabled;
            }
            const double all = search_noise(&s, sites);
            CHECK_NEAR(found[l].accumulated.error2 / found[l].accumulated.reference2, all, 0.01 * all);
        }
        CHECK(found[l].accumulated.count == found[l].own.count);
    }
    CHECK(seen >= (weights ? 4 : 2));
    build_do(&s.b, sbit_quant_analyze(s.quant, &s.feed, found, 32, &count, &s.b.error), "without");
    CHECK(count > 0 && isnan(found[0].taylor) && isnan(found[0].fisher));
    labels[3] = 5; /* no class of this model: the rest of the analysis stands */
    build_do(&s.b, sbit_quant_analyze(s.quant, &feed, found, 32, &count, &s.b.error), "no class");
    CHECK(count > 0 && isnan(found[0].taylor) && isnan(found[0].fisher));
    sbit_feed_close(&feed);
    search_end(&s);
}

TEST(analysis_with_labels_is_the_slope_of_the_loss)
{
    search_slopes("11", "16", true);
    search_slopes("16", "11", false);
}

static double search_drop(search *s)
{
    float plain[SAMPLES * 5], other[SAMPLES * 5];
    bool sites[64];
    int64_t lost = 0;
    for (size_t i = 0; i < s->quant->site_count; i++) {
        sites[i] = s->quant->sites[i].enabled;
    }
    search_run(s, NULL, plain);
    search_run(s, sites, other);
    for (int i = 0; i < SAMPLES; i++) {
        lost += sbit_best_of(plain + 5 * i, 5) != sbit_best_of(other + 5 * i, 5) ? 1 : 0;
    }
    return 100.0 * (double)lost / (double)SAMPLES;
}

static size_t search_floats(const search *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->quant->site_count; i++) {
        count += s->quant->sites[i].search_float ? 1 : 0;
    }
    return count;
}

TEST(auto_exclude_keeps_the_fewest_layers_float)
{
    static const char *const plain[][2] = {{"W.QUANTIZER.BIT", "2"}, {NULL, NULL}};
    static const char *const set[][2] = {{"W.QUANTIZER.BIT", "2"},
                                         {"STEPS", "[auto_exclude]"},
                                         {"STEP.AUTO_EXCLUDE.MAX_DROP", "5"},
                                         {NULL, NULL}};
    search s;
    search_begin(&s, plain);
    CHECK(search_drop(&s) > 5.0); /* it has something to do */
    search_end(&s);
    search_begin(&s, set);
    CHECK(search_drop(&s) <= 5.0);
    const size_t floats = search_floats(&s);
    CHECK(floats > 0 && floats < s.quant->site_count);
    /* none of them could be put back */
    sbit__search_layers layers;
    build_do(&s.b, sbit__search_layers_find(s.quant, &layers, &s.b.error), "layers");
    for (size_t l = 0; l < layers.count && !s.b.failed; l++) {
        bool any = false;
        for (size_t i = 0; i < s.quant->site_count; i++) {
            sbit__site *site = &s.quant->sites[i];
            any = any || (site->search_float && layers.of_site[i] == l);
            site->enabled = site->enabled || (site->search_float && layers.of_site[i] == l);
        }
        CHECK(!any || search_drop(&s) > 5.0);
        for (size_t i = 0; i < s.quant->site_count; i++) {
            s.quant->sites[i].enabled =
                s.quant->sites[i].enabled && !s.quant->sites[i].search_float;
        }
    }
    sbit__search_layers_free(s.quant, &layers);
    /* once more: the same */
    build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), "calc");
    CHECK_EQ_I64((int64_t)search_floats(&s), (int64_t)floats);
    search_end(&s);
}

/* All 81 choices of widths for four layers: the best sum within the budget. */
TEST(mixed_precision_is_the_best_of_all_choices)
{
    static const int32_t widths[3] = {2, 4, 8};
    static const char *const set[][2] = {{"STEPS", "[mixed_precision]"},
                                         {"STEP.MIXED_PRECISION.SIZE_BUDGET", "0.55"},
                                         {NULL, NULL}};
    double noise[4][3], params[4], least = HUGE_VAL, budget = 0.0, own = 0.0, size = 0.0;
    size_t weights[4], n = 0;
    bool sites[64];
    search s;
    search_begin(&s, set);
    for (size_t i = 0; i < s.quant->site_count; i++) {
        if (s.quant->sites[i].target == SBIT_TARGET_WEIGHT && n < 4) {
            weights[n++] = i;
        }
    }
    CHECK_EQ_I64((int64_t)n, 4);
    int32_t chosen[4];
    for (size_t l = 0; l < 4; l++) {
        chosen[l] = s.quant->sites[weights[l]].settings.grid.bits;
        params[l] = (double)sbit_tensor_count(
            &sbit__site_value(&s.quant->sites[weights[l]])->constant);
        budget += 0.55 * 8.0 * params[l];
    }
    for (int w = 0; w < 3; w++) { /* the noise of each layer at each width */
        for (size_t l = 0; l < 4; l++) {
            sbit__site_search_bits(s.quant, &s.quant->sites[weights[l]], widths[w]);
        }
        build_do(&s.b, sbit__quant_calc(s.quant, &s.b.error), "calc");
        for (size_t l = 0; l < 4; l++) {
            memset(sites, 0, sizeof sites);
            sites[weights[l]] = true;
            noise[l][w] = search_noise(&s, sites);
        }
    }
    for (int c = 0; c < 81; c++) {
        const int w[4] = {c % 3, c / 3 % 3, c / 9 % 3, c / 27};
        double cost = 0.0, sum = 0.0;
        for (size_t l = 0; l < 4; l++) {
            cost += params[l] * (double)widths[w[l]];
            sum += noise[l][w[l]];
        }
        least = cost <= budget && sum < least ? sum : least;
    }
    for (size_t l = 0; l < 4; l++) {
        const int w = chosen[l] == 2 ? 0 : chosen[l] == 4 ? 1 : 2;
        own += noise[l][w];
        size += params[l] * (double)chosen[l];
    }
    CHECK(size <= budget);
    CHECK_NEAR(own, least, 1e-4 * least);
    search_end(&s);
}

TEST(budgets_that_cannot_be_kept_are_errors)
{
    static const char *const set[][2] = {{"STEP.MIXED_PRECISION.SIZE_BUDGET", "0.1"}, {NULL, NULL}};
    search s;
    search_begin(&s, set); /* keys alone do nothing */
    build_do(&s.b, sbit_quant_set(s.quant, "STEPS", "[mixed_precision]", &s.b.error), "set");
    CHECK(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error) ==
          SBIT_ERR_INVALID_ARGUMENT);
    CHECK_CONTAINS(s.b.error.message, "cannot be kept");
    build_do(&s.b, sbit_quant_set(s.quant, "STEP.MIXED_PRECISION.SIZE_BUDGET", "0", &s.b.error),
             "set");
    CHECK(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error) == SBIT_ERR_CONFIG);
    search_end(&s);
}

TEST(widen_gives_bits_to_the_most_sensitive)
{
    static const char *const set[][2] = {{"W.QUANTIZER.BIT", "3"}, {NULL, NULL}};
    sbit_sensitivity found[32];
    size_t count = 0, wide = 0;
    search s;
    search_begin(&s, set);
    build_do(&s.b, sbit_quant_analyze(s.quant, &s.feed, found, 32, &count, &s.b.error), "analyze");
    const char *worst = "";
    for (size_t i = count; i-- > 0;) {
        worst = found[i].weight_bits > 0 ? found[i].layer : worst;
    }
    char name[64];
    snprintf(name, sizeof name, "%s", worst);
    build_do(&s.b, sbit_quant_set(s.quant, "STEP.WIDEN.PERCENT", "20", &s.b.error), "set");
    build_do(&s.b, sbit_quant_set(s.quant, "STEPS", "[widen]", &s.b.error), "set");
    build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), "calc");
    for (size_t i = 0; i < s.quant->site_count; i++) {
        const sbit__site *site = &s.quant->sites[i];
        if (site->settings.grid.bits == 16) {
            wide++;
            CHECK_STR(site->layer_name, name);
        }
    }
    CHECK(wide > 0); /* one of four layers */
    sbit_graph *built = NULL;
    if (build_do(&s.b, sbit_quant_build(s.quant, NULL, &built, &s.b.error), "build")) {
        build_do(&s.b, sbit_graph_validate(built, &s.b.error), "validate");
    }
    sbit_graph_destroy(built);
    /* without the step all is as it was */
    build_do(&s.b, sbit_quant_set(s.quant, "STEPS", "[]", &s.b.error), "set");
    build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error), "calc");
    for (size_t i = 0; i < s.quant->site_count; i++) {
        CHECK(s.quant->sites[i].settings.grid.bits < 16);
    }
    search_end(&s);
}

/* The largest values do not matter to the outputs: min-max wastes the steps on them. */
TEST(auto_chooses_by_what_the_outputs_lose)
{
    static const char *const names[] = {"minmax", "percentile", "auto"};
    double noise[3];
    search_outliers = true;
    for (int c = 0; c < 3; c++) {
        const char *const set[][2] = {{"A.QUANTIZER.BIT", "5"},
                                      {"A.OBSERVER.TYPE", names[c]},
                                      {"A.OBSERVER.PERCENTILE.ALPHA", "0.01"},
                                      {"STEP.AUTO.CANDIDATES", "[minmax, mse, percentile]"},
                                      {NULL, NULL}};
        search s;
        bool sites[64];
        search_begin(&s, set);
        for (size_t i = 0; i < s.quant->site_count; i++) {
            sites[i] = s.quant->sites[i].enabled;
        }
        noise[c] = search_noise(&s, sites);
        if (c == 2) {
            sbit_site site;
            size_t i = 0;
            while (sbit_quant_site(s.quant, i, &site) == SBIT_OK && strcmp(site.tensor, "x") != 0) {
                i++;
            }
            CHECK(strcmp(site.observer, "minmax") != 0);
            build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error),
                     "calc");
            CHECK_NEAR(search_noise(&s, sites), noise[2], 0.0); /* once more: the same */
        }
        search_end(&s);
    }
    search_outliers = false;
    CHECK_MSG(noise[2] < 0.5 * noise[0] && noise[2] <= 1.3 * noise[1], "minmax %g, percentile %g, auto %g",
              noise[0], noise[1], noise[2]);
}

TEST(auto_names_what_it_does_not_know)
{
    static const char *const set[][2] = {{"STEP.AUTO.CANDIDATES", "[minmax, nothing]"},
                                         {NULL, NULL}};
    search s;
    search_begin(&s, set);
    build_do(&s.b, sbit_quant_set(s.quant, "STEPS", "[auto]", &s.b.error), "set");
    CHECK(sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error) == SBIT_ERR_CONFIG);
    CHECK_CONTAINS(s.b.error.message, "'nothing'");
    search_end(&s);
}

/* The step of the last layer's integer bias: scale of its input times that of its weight. */
static double search_bias_step(search *s, int channel)
{
    const sbit_node_id fc = sbit_graph_find_node(s->quant->graph, "fc");
    const sbit__site *x = sbit__quant_input_site(s->quant, s->quant->graph, fc, 0);
    const sbit__site *w = sbit__site_on(s->quant, s->quant->graph,
                                        sbit_graph_node(s->quant->graph, fc)->inputs[1],
                                        SBIT_TARGET_WEIGHT);
    return (double)x->scale[0] * (double)w->scale[channel];
}

/* The last layer's gains and biases solve their least squares: what is left over has no mean and
 * goes with nothing that the layer gives. Nearest rounding leaves more. */
TEST(compensation_leaves_the_least_squares)
{
    double noise[2];
    for (int c = 0; c < 2; c++) {
        const char *const set[][2] = {{"W.QUANTIZER.BIT", "3"},
                                      {"A.QUANTIZER.BIT", "4"},
                                      {"STEP.COMPENSATE.POSITIONS", "0"},
                                      {"STEPS", c == 0 ? "[]" : "[compensate]"},
                                      {NULL, NULL}};
        float y[SAMPLES * 5], q[SAMPLES * 5];
        bool sites[64];
        search s;
        search_begin(&s, set);
        for (size_t i = 0; i < s.quant->site_count; i++) {
            sites[i] = s.quant->sites[i].enabled;
        }
        search_run(&s, NULL, y);
        search_run(&s, sites, q);
        noise[c] = search_noise(&s, sites);
        for (int k = 0; k < 5 && c == 1; k++) {
            double rest = 0.0, mean = 0.0, with = 0.0, size = 0.0;
            for (int i = 0; i < SAMPLES; i++) {
                rest += ((double)y[5 * i + k] - (double)q[5 * i + k]) / SAMPLES;
                mean += (double)q[5 * i + k] / SAMPLES;
            }
            for (int i = 0; i < SAMPLES; i++) {
                const double apart = (double)q[5 * i + k] - mean;
                with += ((double)y[5 * i + k] - (double)q[5 * i + k]) * apart;
                size += apart * apart;
            }
            CHECK_NEAR(rest, 0.0, 0.501 * search_bias_step(&s, k)); /* an int32 bias rounds */
            CHECK_NEAR(with / size, 0.0, 2e-3);
        }
        if (c == 1) { /* once more: the same */
            build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error),
                     "calc");
            CHECK_NEAR(search_noise(&s, sites), noise[1], 0.0);
        }
        search_end(&s);
    }
    CHECK_MSG(noise[1] < noise[0], "nearest %g, compensated %g", noise[0], noise[1]);
}

/* Moves integers where the layer's output gains by it; never worse than the nearest in what it
 * minimizes. */
TEST(adaquant_moves_weights)
{
    double noise[2];
    int8_t integers[2][64];
    int moved = 0;
    for (int c = 0; c < 2; c++) {
        const char *const set[][2] = {{"W.QUANTIZER.BIT", "3"},
                                      {"W.QUANTIZER.TYPE", c == 0 ? "uniform" : "adaquant"},
                                      {"STEP.ADAQUANT.POSITIONS", "0"},
                                      {NULL, NULL}};
        bool sites[64];
        search s;
        sbit_graph *built = NULL;
        search_begin(&s, set);
        for (size_t i = 0; i < s.quant->site_count; i++) {
            sites[i] = s.quant->sites[i].enabled;
        }
        noise[c] = search_noise(&s, sites);
        if (build_do(&s.b, sbit_quant_build(s.quant, NULL, &built, &s.b.error), "build")) {
            const sbit_value_id id = sbit_graph_find_value(built, "fc.weight_quantized");
            memcpy(integers[c], sbit_graph_value(built, id)->constant.data, 40);
        }
        sbit_graph_destroy(built);
        if (c == 1) {
            build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error),
                     "calc");
            CHECK_NEAR(search_noise(&s, sites), noise[1], 0.0); /* once more: the same */
        }
        search_end(&s);
    }
    for (int i = 0; i < 40; i++) {
        moved += integers[0][i] != integers[1][i] ? 1 : 0;
        CHECK(integers[1][i] >= -4 && integers[1][i] <= 3);
    }
    CHECK(moved > 0);
    CHECK_MSG(noise[1] < noise[0], "nearest %g, adaquant %g", noise[0], noise[1]);
}

/* At 2 bits the observer's scales are far from the best for what the layers compute. */
TEST(gptq_finds_scales)
{
    double noise[2];
    for (int c = 0; c < 2; c++) {
        const char *const set[][2] = {{"W.QUANTIZER.BIT", "2"},
                                      {"W.QUANTIZER.TYPE", "gptq"},
                                      {"STEP.GPTQ.POSITIONS", "0"},
                                      {"STEP.GPTQ.SCALES", c == 0 ? "1" : "8"},
                                      {NULL, NULL}};
        bool sites[64];
        search s;
        search_begin(&s, set);
        for (size_t i = 0; i < s.quant->site_count; i++) {
            sites[i] = s.quant->sites[i].enabled;
        }
        noise[c] = search_noise(&s, sites);
        if (c == 1) {
            build_do(&s.b, sbit_quant_calc_qparams(s.quant, false, false, false, &s.b.error),
                     "calc");
            CHECK_NEAR(search_noise(&s, sites), noise[1], 0.0); /* once more: the same */
        }
        search_end(&s);
    }
    CHECK_MSG(noise[1] < 0.7 * noise[0], "observer's scales %g, found %g", noise[0], noise[1]);
}
