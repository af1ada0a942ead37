/* test_budgets.c: searches that meet a budget, and tables of times: what they keep, what they say
 * about tables of other machines, how far from the truth they end. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

static sbit_value_id budget_conv(build *b, const char *name, sbit_value_id x, const char *dims,
                                 const float *weight)
{
    char text[40];
    sbit_value_id in[2];
    in[0] = x;
    snprintf(text, sizeof text, "%s.weight", name);
    in[1] = weight != NULL ? build_constant(b, text, SBIT_F32, dims, weight)
                           : build_weights(b, text, dims, (uint64_t)name[0] * 256 + (uint64_t)name[1]);
    return build_node(b, "Conv", name, in, 2, NULL, 0);
}

/* aa and bb make ten channels each; five of aa's are 0. Convs are called aa, bb, zz, as their outputs. */
static sbit_sparse *ten_and_ten(build *b, const char *keys)
{
    const float first[] = {0, 1, 0, -2, 0, 3, 0, -1, 0, 2};
    char text[300];
    sbit_sconfig *config = NULL;
    sbit_sparse *sparse = NULL;
    build_begin(b, 18);
    sbit_value_id y = build_input(b, "x", SBIT_F32, "N,1,2,2");
    y = build_unary(b, "Relu", "relu", budget_conv(b, "aa", y, "10,1,1,1", first));
    y = build_unary(b, "Relu", "relu2", budget_conv(b, "bb", y, "10,10,1,1", NULL));
    build_output(b, budget_conv(b, "zz", y, "2,10,1,1", NULL));
    snprintf(text, sizeof text, "SPARSER: {TYPE: structured, STRATEGY: l1norm, %s}\n", keys);
    build_do(b, sbit_sconfig_read(b->ctx, text, strlen(text), &config, &b->error), text);
    if (!b->failed) {
        build_do(b, sbit_sparse_create(b->graph, config, &sparse, &b->error), "create");
    }
    sbit_sconfig_destroy(config);
    return sparse;
}

static int64_t kept_of(const sbit_sparse *sparse, size_t group)
{
    sbit_sparse_group out;
    return CHECK_EQ_I64(sbit_sparse_group_at(sparse, group, &out), SBIT_OK) ? out.kept : -1;
}

static sbit_status table_load(build *b, const char *text, sbit_latency **out)
{
    char path[400];
    test_tmp_path("budgets.json", path, sizeof path);
    FILE *file = fopen(path, "wb");
    if (!CHECK(file != NULL)) {
        return SBIT_ERR_IO;
    }
    fputs(text, file);
    fclose(file);
    const sbit_status status = sbit_latency_load(b->ctx, path, out, &b->error);
    remove(path);
    return status;
}

static sbit_latency *table_of(build *b, const char *text)
{
    sbit_latency *times = NULL;
    build_do(b, table_load(b, text, &times), text);
    return times;
}

/* What keeps most of bb is best. */
static sbit_status wants_bb(sbit_graph *masked, void *user, double *score, sbit_error *error)
{
    const sbit_tensor *w =
        &sbit_graph_value(masked, sbit_graph_find_value(masked, "bb.weight"))->constant;
    (void)user;
    (void)error;
    *score = 0.0;
    for (int64_t i = 0; i < sbit_tensor_count(w); i++) {
        *score += ((const float *)w->data)[i] != 0.0f ? 1.0 : 0.0;
    }
    return SBIT_OK;
}

/* One ratio for all is found as well as 1/500: of 800 channels one more than need be goes at most. */
TEST(uniform_ratios_are_as_near_as_is_said)
{
    build b;
    sbit_sconfig *config = NULL;
    sbit_sparse *sparse = NULL;
    sbit_sparse_budget budget;
    static const char text[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, SEARCH: uniform}\n";
    build_begin(&b, 18);
    const sbit_value_id y =
        budget_conv(&b, "aa", build_input(&b, "x", SBIT_F32, "N,1,1,1"), "800,1,1,1", NULL);
    build_output(&b, budget_conv(&b, "zz", y, "1,800,1,1", NULL));
    build_do(&b, sbit_sconfig_read(b.ctx, text, sizeof text - 1, &config, &b.error), text);
    if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
        for (int i = 1; i < 40; i++) {
            memset(&budget, 0, sizeof budget);
            budget.params = 0.025 * i;
            CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
            const int64_t kept = kept_of(sparse, 0);
            CHECK_MSG(kept == 20 * i || kept == 20 * i - 1, "%d of %d", (int)kept, 20 * i);
        }
    }
    sbit_sconfig_destroy(config);
    sbit_sparse_destroy(sparse);
    build_end(&b);
}

/* A machine on which only seven channels of aa are fast: what comes first misses the budget, what
 * meets it later is kept, whatever its score. */
TEST(annealing_keeps_what_meets_the_budget)
{
    static const char text[] =
        "{\"microseconds\": {\"aa\": [4, 100, 24, 100, 28, 10, 32, 100, 40, 100], \"bb\": [1, 0], "
        "\"zz\": [1, 0], \"relu\": [1, 0], \"relu2\": [1, 0]}}";
    build b;
    sbit_sparse_budget budget;
    sbit_sparse *sparse = ten_and_ten(&b, "SEARCH: annealing, ANNEALING.STEPS: 40");
    memset(&budget, 0, sizeof budget);
    if (!b.failed) {
        budget.latency = 0.5;
        budget.times = table_of(&b, text);
        budget.measure = wants_bb;
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
        CHECK_EQ_I64(kept_of(sparse, 0), 7);
        sbit_latency_destroy(budget.times);
    }
    sbit_sparse_destroy(sparse);
    build_end(&b);
}

/* Less work than was ever measured takes less time, down to none: 10 us for 20, 100 for 40. */
TEST(times_below_the_first_go_on_evenly)
{
    build b;
    sbit_sparse_budget budget;
    sbit_sparse *sparse = ten_and_ten(&b, "SEARCH: uniform");
    memset(&budget, 0, sizeof budget);
    if (!b.failed) {
        budget.times = table_of(&b, "{\"microseconds\": {\"aa\": [20, 10, 40, 100], \"bb\": [1, 0], "
                                    "\"zz\": [1, 0], \"relu\": [1, 0], \"relu2\": [1, 0]}}");
        /* 10 us, of 5 channels; 5 us would be the half of that work, 2 channels take 4; 1 takes 2 */
        static const double shares[] = {0.1, 0.05, 0.02};
        static const int64_t kept[] = {5, 2, 1};
        for (int i = 0; i < 3; i++) {
            budget.latency = shares[i];
            CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
            CHECK_EQ_I64(kept_of(sparse, 0), kept[i]);
        }
        sbit_latency_destroy(budget.times);
        /* one that takes its time whatever it does: no less than the line, 10 us at no work at all */
        budget.times = table_of(&b, "{\"microseconds\": {\"aa\": [20, 55, 40, 100], \"bb\": [1, 0], "
                                    "\"zz\": [1, 0], \"relu\": [1, 0], \"relu2\": [1, 0]}}");
        budget.latency = 0.2; /* 20 us: 4 of work */
        CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
        CHECK_EQ_I64(kept_of(sparse, 0), 1);
        budget.latency = 0.18;
        CHECK_STATUS(sbit_sparse_fit(sparse, &budget, NULL, &b.error), SBIT_ERR_LIMIT, b.error);
        sbit_latency_destroy(budget.times);
    }
    sbit_sparse_destroy(sparse);
    build_end(&b);
}

/* A channel less of both groups leaves of the budget what one of them needs to stay: 10 us a channel. */
TEST(what_a_step_leaves_goes_to_groups_in_front)
{
    build b;
    sbit_sparse_budget budget;
    sbit_sparse *sparse = ten_and_ten(&b, "SEARCH: uniform");
    memset(&budget, 0, sizeof budget);
    if (!b.failed) {
        budget.times = table_of(&b, "{\"microseconds\": {\"aa\": [4, 10, 40, 100], \"bb\": [1, 0], "
                                    "\"zz\": [8, 10, 80, 100], \"relu\": [1, 0], \"relu2\": [1, 0]}}");
        for (int us = 200; us >= 20; us -= 10) {
            budget.latency = us / 200.0;
            CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
            CHECK_EQ_I64(kept_of(sparse, 0), (us + 10) / 20);
            CHECK_EQ_I64(kept_of(sparse, 1), us / 20);
        }
        sbit_latency_destroy(budget.times);
    }
    sbit_sparse_destroy(sparse);
    build_end(&b);
}

/* A table says where it was measured: another machine, other threads are told; another model refused. */
TEST(tables_of_elsewhere_are_told)
{
    static const char nodes[] = "\"microseconds\": {\"aa\": [40, 100], \"bb\": [1, 0], \"zz\": [1, 0]}";
    char path[400], text[400];
    build b;
    sbit_sparse_budget budget;
    sbit_sparse *sparse = ten_and_ten(&b, "SEARCH: uniform");
    memset(&budget, 0, sizeof budget);
    if (!b.failed) {
        static const char *const fields[] = {"\"threads\": 63", "\"isa\": \"abacus\"",
                                             "\"machine\": \"a slide rule\""};
        for (int i = 0; i < 3; i++) {
            snprintf(text, sizeof text, "{%s, %s}", fields[i], nodes);
            b.warnings = 0;
            sbit_latency_destroy(table_of(&b, text));
            CHECK_EQ_I64(b.warnings, 1);
            CHECK_CONTAINS(b.warning, i == 0 ? "63" : i == 1 ? "abacus" : "a slide rule");
        }
        /* what it saves itself is of here */
        test_tmp_path("budgets.json", path, sizeof path);
        sbit_latency *times = table_of(&b, text);
        b.warnings = 0;
        CHECK_OK(sbit_latency_save(times, path, &b.error), b.error);
        sbit_latency_destroy(times);
        times = NULL;
        CHECK_OK(sbit_latency_load(b.ctx, path, &times, &b.error), b.error);
        CHECK_EQ_I64(b.warnings, 0);
        sbit_latency_destroy(times);
        remove(path);
        budget.latency = 0.5;
        budget.times = table_of(&b, "{\"microseconds\": {\"somebody_else\": [40, 100]}}");
        CHECK_STATUS(sbit_sparse_fit(sparse, &budget, NULL, &b.error), SBIT_ERR_CONFIG, b.error);
        CHECK_CONTAINS(b.error.message, "of another model");
        for (int i = 0; i < 2; i++) {
            snprintf(text, sizeof text, "{\"lanes\": %s, %s}", i == 0 ? "0" : "[16]", nodes);
            CHECK_STATUS(table_load(&b, text, &times), SBIT_ERR_CONFIG, b.error);
        }
        sbit_latency_destroy(budget.times);
    }
    sbit_sparse_destroy(sparse);
    build_end(&b);
}

/* A machine that takes 2 us for a convolution, and a fixed time for every 16 channels of output times
 * channels of input that are left - as kernels do. */
static double machine_us(int64_t in, int64_t out)
{
    return 2.0 + 0.002 * (double)(in * ((out + 15) / 16 * 16));
}

static double machine_of(const int64_t *kept)
{
    return machine_us(16, kept[0]) + machine_us(kept[0], kept[1]) + machine_us(kept[1], kept[2]) +
           machine_us(kept[2], 10);
}

/* A table of five ratios. Of works as they are (older tables), what a search ends with takes on that machine
 * what the budget says within 5 % along the line that was measured, and within 15 % far from it - one layer
 * with 2 of 80 channels. A table that knows the steps is exact: no search ends above the budget, and
 * below it by less than a step of one layer. */
TEST(a_budget_of_time_is_true_on_a_machine_of_steps)
{
    static const char *const searches[] = {"uniform", "annealing, ANNEALING.STEPS: 12"};
    static const char *const names[] = {"aa", "bb", "cc", "zz"};
    static const double ratios[] = {0.9, 0.75, 0.5, 0.25, 0.0};
    const int64_t whole[] = {64, 96, 80};
    for (int k = 0; k < 3; k++) {
        const double below = k == 0 ? 0.05 : k == 1 ? 0.15 : 0.07, above = k < 2 ? below : 1e-9;
        char text[2000];
        int used = 0;
        build b;
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        sbit_sparse_budget budget;
        build_begin(&b, 18);
        sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,16,2,2");
        y = budget_conv(&b, "aa", y, "64,16,1,1", NULL);
        y = budget_conv(&b, "bb", y, "96,64,1,1", NULL);
        y = budget_conv(&b, "cc", y, "80,96,1,1", NULL);
        build_output(&b, budget_conv(&b, "zz", y, "10,80,1,1", NULL));
        used = snprintf(text, sizeof text, "SPARSER: {TYPE: structured, STRATEGY: l1norm, SEARCH: %s}\n",
                        searches[k % 2]);
        build_do(&b, sbit_sconfig_read(b.ctx, text, (size_t)used, &config, &b.error), text);
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            used = snprintf(text, sizeof text, "{%s\"microseconds\": {", k < 2 ? "" : "\"lanes\": 16, ");
            for (int n = 0; n < 4; n++) {
                used += snprintf(text + used, sizeof text - (size_t)used, "%s\"%s\": [", n > 0 ? ", " : "",
                                 names[n]);
                for (int r = 0; r < 5; r++) {
                    int64_t side[5] = {16, 0, 0, 0, 10};
                    for (int i = 0; i < 3; i++) {
                        side[i + 1] = whole[i] - (int64_t)floor(ratios[r] * (double)whole[i] + 1e-9);
                    }
                    const int64_t filled = k < 2 ? side[n + 1] : (side[n + 1] + 15) / 16 * 16;
                    used += snprintf(text + used, sizeof text - (size_t)used, "%s%lld, %g", r > 0 ? ", " : "",
                                     (long long)(4 * side[n] * filled), machine_us(side[n], side[n + 1]));
                }
                used += snprintf(text + used, sizeof text - (size_t)used, "]");
            }
            snprintf(text + used, sizeof text - (size_t)used, "}}");
            memset(&budget, 0, sizeof budget);
            budget.times = table_of(&b, text);
            budget.measure = wants_bb;
            for (int i = 0; i < 6; i++) {
                int64_t kept[3];
                budget.latency = 0.4 + 0.1 * i;
                CHECK_OK(sbit_sparse_fit(sparse, &budget, NULL, &b.error), b.error);
                for (size_t g = 0; g < 3; g++) {
                    kept[g] = kept_of(sparse, g);
                }
                const double off = machine_of(kept) / machine_of(whole) / budget.latency - 1.0;
                CHECK_MSG(off >= -below && off <= above, "%d %s %g: %d %d %d, %+.3f", k, searches[k % 2], budget.latency,
                          (int)kept[0], (int)kept[1], (int)kept[2], off);
            }
            sbit_latency_destroy(budget.times);
        }
        sbit_sconfig_destroy(config);
        sbit_sparse_destroy(sparse);
        build_end(&b);
    }
}

/* Mean of -log of the softmax at the label. */
static double loss_of(build *b, sbit_graph *graph, const sbit_tensor *x, const int64_t *labels)
{
    sbit_session *session = NULL;
    double loss = 0.0;
    build_do(b, sbit_session_create(graph, NULL, &session, &b->error), "session");
    if (!b->failed && build_do(b, sbit_session_set_input_at(session, 0, x, &b->error), "input") &&
        build_do(b, sbit_session_run(session, &b->error), "run")) {
        const float *y = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int64_t i = 0; i < x->dims[0]; i++) {
            const double other = (double)y[2 * i + 1 - labels[i]] - (double)y[2 * i + labels[i]];
            loss += log(1.0 + exp(other)) / (double)x->dims[0];
        }
    }
    sbit_session_destroy(session);
    return loss;
}

/* Candidates are trained before they are scored, and what is left at the end is what was trained: it
 * meets the budget, what went is 0 and goes, and it knows the labels better than without. */
static void trains_its_candidates(const char *name, const char *keys)
{
    static float data[96];
    static int64_t labels[48];
    double loss[3];
    sbit_rng rng = sbit_rng_seed(9);
    for (int i = 0; i < 48; i++) {
        data[2 * i] = sbit_rng_normal(&rng);
        data[2 * i + 1] = sbit_rng_normal(&rng);
        labels[i] = data[2 * i] * data[2 * i + 1] > 0.0f ? 1 : 0;
    }
    const sbit_tensor x = build_tensor(SBIT_F32, "48,2", data), t = build_tensor(SBIT_I64, "48", labels);
    for (int turn = 0; turn < 3; turn++) { /* without, with, the same again */
        char text[400];
        build b;
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        sbit_graph *out = NULL;
        sbit_sparse_budget budget;
        sbit_feed feed;
        sbit_feed_desc desc;
        memset(&desc, 0, sizeof desc);
        memset(&budget, 0, sizeof budget);
        desc.inputs = &x;
        desc.targets = &t;
        desc.input_count = desc.target_count = 1;
        build_begin(&b, 18);
        sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,2");
        y = build_unary(&b, "Relu", "r1", build_binary(&b, "MatMul", "aa", y, build_weights(&b, "w1", "2,12", 1)));
        y = build_unary(&b, "Relu", "r2", build_binary(&b, "MatMul", "bb", y, build_weights(&b, "w2", "12,12", 2)));
        build_output(&b, build_binary(&b, "MatMul", "zz", y, build_weights(&b, "w3", "12,2", 3)));
        snprintf(text, sizeof text,
                 "SPARSER: {TYPE: structured, STRATEGY: l1norm, SEARCH: %s, ANNEALING.STEPS: 12, %s}\n",
                 turn > 0 || strcmp(name, "autocompress") != 0 ? name : "annealing",
                 turn > 0 ? keys : "NETADAPT.STEP: 0.2");
        build_do(&b, sbit_sconfig_read(b.ctx, text, strlen(text), &config, &b.error), text);
        build_do(&b, sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), "feed");
        if (!b.failed && CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            budget.params = 0.5; /* of 24 + 144 + 24 */
            if (turn > 0) {
                CHECK_STATUS(sbit_sparse_fit(sparse, &budget, &feed, &b.error), SBIT_ERR_STATE, b.error);
            }
            budget.tune = sbit_trainer_tune;
            CHECK_OK(sbit_sparse_fit(sparse, &budget, &feed, &b.error), b.error);
            const int64_t aa = kept_of(sparse, 0), bb = kept_of(sparse, 1);
            CHECK_MSG(2 * aa + aa * bb + 2 * bb <= 96, "%d and %d", (int)aa, (int)bb);
            if (CHECK_OK(sbit_sparse_shrink(sparse, &feed, &out, &b.error), b.error)) {
                loss[turn] = loss_of(&b, out, &x, labels);
            }
        }
        sbit_graph_destroy(out);
        sbit_feed_close(&feed);
        sbit_sconfig_destroy(config);
        sbit_sparse_destroy(sparse);
        build_end(&b);
    }
    CHECK_MSG(loss[1] < 0.8 * loss[0] && loss[2] <= loss[1] && loss[2] >= loss[1],
              "%s: %g without training, with it %g and %g", name, loss[0], loss[1], loss[2]);
}

TEST(searches_train_between_their_steps)
{
    trains_its_candidates("netadapt", "NETADAPT.STEP: 0.2, NETADAPT.STEPS: 12, NETADAPT.RATE: 0.1");
    trains_its_candidates("autocompress", "AUTOCOMPRESS.ROUNDS: 2, AUTOCOMPRESS.ITERATIONS: 6, "
                                          "AUTOCOMPRESS.STEPS: 8, AUTOCOMPRESS.RATE: 0.1, "
                                          "AUTOCOMPRESS.RHO: 0.05");
}
