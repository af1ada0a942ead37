/* custom_sparser.c: a sparser and a search of one's own, registered from outside.
 *
 *     cc -O2 -I.. custom_sparser.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * A sparser gives every channel of a layer one number; the library prunes the smallest, keeps
 * layers equal that must be, cuts and proves. Here: the largest absolute weight of a channel
 * ("peak"), with an option of its own, PEAK.SQUARED. A search finds ratios that meet a budget; here:
 * tenth by tenth, all alike ("tenths").
 */
#include "sparsebit.h"

#include <math.h>   /* fabsf */
#include <stdio.h>  /* printf */
#include <string.h> /* memset */

static sbit_status peak_score(const void *state, const sbit_sparser_call *call, double *score,
                              sbit_error *error)
{
    const float *w = (const float *)call->weight.data;
    const int squared = sbit_options_bool(call->options, "PEAK.SQUARED");
    sbit_runs runs = sbit_runs_of(call->units); /* runs of elements of one channel */
    (void)state;
    (void)error;
    memset(score, 0, (size_t)call->units->count * sizeof *score);
    while (sbit_runs_next(&runs)) {
        for (int64_t i = 0; i < runs.count; i++) {
            const double x = (double)fabsf(w[runs.at + i]);
            score[runs.part] = x > score[runs.part] ? x : score[runs.part];
        }
    }
    for (int64_t u = 0; squared && u < call->units->count; u++) {
        score[u] *= score[u];
    }
    return SBIT_OK;
}

static const sbit_key peak_keys[] = {
    {"PEAK.SQUARED", SBIT_KEY_BOOL, "false", 0, 0, NULL, "squares the score"},
};

static const sbit_sparser_row peak = {
    .head = {"peak", "largest absolute value", 0, peak_keys, 1},
    .granularities = SBIT_GRANULARITY_ROW,
    .score = peak_score,
};

static sbit_status tenths_run(sbit_search *search, const sbit_options *options, double *ratios,
                              sbit_error *error)
{
    sbit_search_point point = {2.0, 0.0};
    sbit_status s = SBIT_OK;
    (void)options;
    for (int tenth = 1; tenth < 10 && s == SBIT_OK && point.over > 1.0; tenth++) {
        for (size_t i = 0; i < sbit_search_unit_count(search); i++) {
            ratios[i] = 0.1 * tenth;
        }
        s = sbit_search_try(search, ratios, false, &point, error);
    }
    return s;
}

static const sbit_search_row tenths = {
    .head = {.name = "tenths", .doc = "the first tenth that does"},
    .run = tenths_run,
};

/* x [N,2] -> MatMul [2,4] -> Relu -> MatMul [4,1]; of the hidden units 1 and 2 have small peaks. */
static sbit_status make_network(sbit_graph *graph, sbit_error *error)
{
    static float first[] = {4, 1, -2, 3, -1, 1, 1, 5}, second[] = {1, 2, 3, 4};
    const sbit_tensor w1 = {SBIT_F32, 2, {2, 4}, first}, w2 = {SBIT_F32, 2, {4, 1}, second};
    const sbit_type unknown = {.rank = -1};
    sbit_type type = {.dtype = SBIT_F32, .rank = 2};
    sbit_value_id x, w[2], y[3];
    sbit_node_id id;
    type.dims[0].value = 1;
    type.dims[1].value = 2;
    sbit_status s = sbit_graph_add_value(graph, "x", &type, &x, error);
    s = s ? s : sbit_graph_set_input(graph, x, true, error);
    s = s ? s : sbit_graph_add_constant(graph, "hidden.weight", &w1, &w[0], error);
    s = s ? s : sbit_graph_add_constant(graph, "out.weight", &w2, &w[1], error);
    for (int i = 0; i < 3 && s == SBIT_OK; i++) {
        const sbit_value_id in[2] = {i == 0 ? x : y[i - 1], w[i / 2]};
        sbit_node_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.op_type = i == 1 ? "Relu" : "MatMul";
        desc.inputs = in;
        desc.input_count = i == 1 ? 1 : 2;
        desc.outputs = &y[i];
        desc.output_count = 1;
        s = sbit_graph_add_value(graph, "y", &unknown, &y[i], error);
        s = s ? s : sbit_graph_add_node(graph, &desc, &id, error);
    }
    s = s ? s : sbit_graph_add_output(graph, y[2], error);
    return s ? s : sbit_infer(graph, error);
}

static sbit_status check(sbit_graph *small, sbit_error *error)
{
    const sbit_value_id id = sbit_graph_find_value(small, "hidden.weight");
    const sbit_tensor *left = &sbit_graph_value(small, id)->constant;
    const float *w = (const float *)left->data;
    (void)error;
    printf("hidden units left: %d, weights %g %g / %g %g\n", (int)left->dims[1], (double)w[0],
           (double)w[1], (double)w[2], (double)w[3]);
    return left->dims[1] == 2 && w[0] == 4.0f && w[1] == 3.0f ? SBIT_OK : SBIT_ERR_NUMERIC;
}

static sbit_status prune(sbit_ctx *ctx, sbit_error *error)
{
    static const char text[] =
        "SPARSER: {TYPE: structured, STRATEGY: peak, SEARCH: tenths}\n";
    const sbit_sparse_budget half = {.params = 0.5};
    sbit_graph *graph = NULL, *small = NULL;
    sbit_sconfig *config = NULL;
    sbit_sparse *sparse = NULL;
    sbit_status s = sbit_sparser_register(ctx, &peak, error);
    s = s ? s : sbit_search_register(ctx, &tenths, error);
    s = s ? s : sbit_graph_create(ctx, 17, &graph, error);
    s = s ? s : make_network(graph, error);
    s = s ? s : sbit_sconfig_read(ctx, text, sizeof text - 1, &config, error);
    s = s ? s : sbit_sparse_create(graph, config, &sparse, error);
    s = s ? s : sbit_sparse_fit(sparse, &half, NULL, error);
    s = s ? s : sbit_sparse_shrink(sparse, NULL, &small, error);
    s = s ? s : check(small, error);
    sbit_graph_destroy(small);
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    sbit_graph_destroy(graph);
    return s;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "", ""};
    sbit_status status = sbit_ctx_create(NULL, &ctx, &error);
    status = status == SBIT_OK ? prune(ctx, &error) : status;
    if (status != SBIT_OK) {
        fprintf(stderr, "%s\n", error.message);
    }
    sbit_ctx_destroy(ctx);
    return status == SBIT_OK ? 0 : 1;
}
