/* custom_step.c: a step of one's own in the recipe: the first and the last layer keep 8 bits where
 * all others have 4, as most papers do it.
 *
 *     cc -O2 -I.. custom_step.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf */
#include <string.h> /* memset */

/* ---- the step: sites of the outer layers get another width */

static sbit_status edges_run(void *state, const sbit_options *options, const sbit_feed *feed,
                             sbit_error *error)
{
    sbit_quant *quant = (sbit_quant *)state;
    sbit_unit units[64];
    sbit_site_change change;
    (void)feed; /* needs no data */
    const size_t count = sbit_quant_units(quant, NULL, units, 64);
    memset(&change, 0, sizeof change);
    change.bits = (int32_t)sbit_options_int(options, "STEP.EDGES.BIT");
    if (count == 0 || count > 64) {
        return SBIT_OK;
    }
    const sbit_status status = sbit_quant_set_site(quant, units[0].site, &change, error);
    return status == SBIT_OK ? sbit_quant_set_site(quant, units[count - 1].site, &change, error)
                             : status;
}

static const sbit_key edges_keys[] = {
    {"EDGES.BIT", SBIT_KEY_INT, "8", 2.0, 16.0, NULL, "width of the first and last weight"},
};

static const sbit_step_row edges_row = {
    {"edges", "another width for the first and the last layer", SBIT_TARGET_WEIGHT, edges_keys, 1},
    SBIT_STAGE_SELECT,
    false,
    edges_run,
};

/* ---- its use: three matrix products on 4 bits */

static float data[64 * 24], weights[3][24 * 24];

static int make_network(sbit_ctx *ctx, sbit_graph **graph, sbit_error *error)
{
    static const char *const names[] = {"first", "middle", "last"};
    const sbit_type unknown = {.rank = -1};
    sbit_type type = {.dtype = SBIT_F32, .rank = 2};
    sbit_value_id y;
    type.dims[1].value = 24;
    int failed = sbit_graph_create(ctx, 17, graph, error) ||
                 sbit_graph_symbol(*graph, "N", &type.dims[0].symbol, error) ||
                 sbit_graph_add_value(*graph, "x", &type, &y, error) ||
                 sbit_graph_set_input(*graph, y, true, error);
    for (int i = 0; i < 3 && !failed; i++) {
        const sbit_tensor w = {SBIT_F32, 2, {24, 24}, weights[i]};
        sbit_value_id inputs[2] = {y, {0}};
        sbit_node_desc desc;
        sbit_node_id id;
        memset(&desc, 0, sizeof desc);
        desc.op_type = "MatMul";
        desc.inputs = inputs;
        desc.input_count = 2;
        desc.outputs = &y;
        desc.output_count = 1;
        failed = sbit_graph_add_constant(*graph, names[i], &w, &inputs[1], error) ||
                 sbit_graph_add_value(*graph, "y", &unknown, &y, error) ||
                 sbit_graph_add_node(*graph, &desc, &id, error);
    }
    return failed || sbit_graph_add_output(*graph, y, error);
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_tensor x = {SBIT_F32, 2, {64, 24}, data};
    sbit_feed feed = {0};
    sbit_feed_desc desc = {0};
    sbit_site site;
    sbit_error error = {SBIT_OK, "", ""};
    sbit_rng rng = sbit_rng_seed(3);
    for (int i = 0; i < 64 * 24; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    for (int i = 0; i < 3 * 24 * 24; i++) {
        weights[i / (24 * 24)][i % (24 * 24)] = 0.2f * sbit_rng_normal(&rng);
    }
    desc.inputs = &x;
    desc.input_count = 1;
    const int failed =
        sbit_ctx_create(NULL, &ctx, &error) || sbit_step_register(ctx, &edges_row, &error) ||
        make_network(ctx, &graph, &error) || sbit_feed_of_tensors(ctx, &desc, &feed, &error) ||
        sbit_qconfig_create(ctx, "generic", &config, &error) ||
        sbit_qconfig_set(config, "W.QUANTIZER.BIT", "4", &error) ||
        sbit_qconfig_set(config, "STEPS", "[edges, gptq]", &error) ||
        sbit_quant_create(graph, config, &quant, &error) ||
        sbit_quant_calibrate(quant, &feed, &error) ||
        sbit_quant_calc_qparams(quant, false, false, false, &error);
    for (size_t i = 0; !failed && i < sbit_quant_site_count(quant); i++) {
        if (sbit_quant_site(quant, i, &site) == SBIT_OK && site.target == SBIT_TARGET_WEIGHT) {
            printf("%-7s %d bits\n", site.tensor, (int)site.qparams.grid.bits);
        }
    }
    if (failed) {
        fprintf(stderr, "custom_step: %s\n", error.message);
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return failed != 0;
}
