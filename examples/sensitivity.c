/* sensitivity.c: which layer suffers most from few bits: calibrate once, then try each layer alone
 * at 3 bits and see how far the output moves, without looking at the data again.
 *
 *     cc -O2 -I.. sensitivity.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * That is how widths are chosen layer by layer: the most sensitive ones keep 8 bits. The network
 * and its data are made here.
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf */
#include <string.h> /* memcpy */

enum {
    SAMPLES = 32
};

static sbit_status make_model(sbit_graph *graph, sbit_error *error)
{
    const int64_t dims[3] = {3, 8, 8};
    const sbit_value_id none = {0};
    const char *const names[] = {"conv1", "conv2", "conv3", "conv4"};
    sbit_builder b = sbit_builder_init(graph, 5, error);
    sbit_value_id x = sbit_builder_input(&b, "x", 3, dims);
    for (int i = 0; i < 4; i++) {
        const sbit_conv_desc conv = {.channels = 8, .bias = true};
        x = sbit_builder_op(&b, "Relu", sbit_builder_conv(&b, names[i], x, &conv), none);
    }
    x = sbit_builder_op(&b, "Flatten", sbit_builder_pool(&b, "GlobalAveragePool", x, 0), none);
    return sbit_builder_output(&b, "y", sbit_builder_linear(&b, "fc", x, 10));
}

/* How far the quantized output is from `wanted`, with the settings as they are, in dB. */
static sbit_status measure(sbit_quant *quant, const sbit_tensor *x, const sbit_tensor *wanted,
                           double *sqnr, sbit_error *error)
{
    sbit_diff diff = {0};
    sbit_status status = sbit_quant_calc_qparams(quant, false, false, false, error);
    status = status == SBIT_OK ? sbit_quant_set_quant(quant, true, true, error) : status;
    status = status == SBIT_OK ? sbit_quant_forward(quant, NULL, x, 1, error) : status;
    if (status == SBIT_OK) {
        sbit_diff_add(&diff, wanted, &sbit_quant_output(quant, 0)->tensor, INT64_MAX);
        *sqnr = sbit_diff_sqnr(&diff);
    }
    return status;
}

/* Each weight alone at 3 bits; *worst: the layer that the output suffers most from. */
static sbit_status try_layers(sbit_quant *quant, const sbit_tensor *x, const sbit_tensor *wanted,
                              char worst[64], sbit_error *error)
{
    const sbit_site_change few = {.bits = 3}, as_before = {0};
    double least = 1e9;
    sbit_status status = SBIT_OK;
    for (size_t i = 0; i < sbit_quant_site_count(quant) && status == SBIT_OK; i++) {
        sbit_site site;
        double sqnr = 0.0;
        status = sbit_quant_site(quant, i, &site);
        if (status != SBIT_OK || site.target != SBIT_TARGET_WEIGHT || !site.enabled) {
            continue;
        }
        status = sbit_quant_set_site(quant, i, &few, error);
        status = status == SBIT_OK ? measure(quant, x, wanted, &sqnr, error) : status;
        status = status == SBIT_OK ? sbit_quant_set_site(quant, i, &as_before, error) : status;
        printf("  %-6s at 3 bits: %5.1f dB\n", site.layer, sqnr);
        if (sqnr < least) {
            least = sqnr;
            snprintf(worst, 64, "%s", site.layer);
        }
    }
    return status;
}

static int run(sbit_ctx *ctx, sbit_error *error)
{
    static float data[SAMPLES * 3 * 8 * 8], kept[SAMPLES * 10];
    const sbit_tensor x = {.dtype = SBIT_F32, .rank = 4, .dims = {SAMPLES, 3, 8, 8}, .data = data};
    const sbit_tensor wanted = {.dtype = SBIT_F32, .rank = 2, .dims = {SAMPLES, 10}, .data = kept};
    const sbit_feed_desc desc = {.inputs = &x, .input_count = 1};
    sbit_graph *graph = NULL;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_feed feed = {0};
    sbit_rng rng = sbit_rng_seed(3);
    char worst[64] = "";
    double eight = 0.0, four = 0.0;
    for (int i = 0; i < SAMPLES * 3 * 8 * 8; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    int failed = sbit_graph_create(ctx, 17, &graph, error) || make_model(graph, error) ||
                 sbit_feed_of_tensors(ctx, &desc, &feed, error) ||
                 sbit_qconfig_create(ctx, "openvino", &config, error) ||
                 sbit_quant_create(graph, config, &quant, error) ||
                 sbit_quant_calibrate(quant, &feed, error) ||
                 sbit_quant_calc_qparams(quant, false, false, false, error) ||
                 sbit_quant_set_quant(quant, false, false, error) || /* the float model */
                 sbit_quant_forward(quant, NULL, &x, 1, error);
    if (!failed) {
        memcpy(kept, sbit_quant_output(quant, 0)->tensor.data, sizeof kept);
        failed = measure(quant, &x, &wanted, &eight, error) ||
                 try_layers(quant, &x, &wanted, worst, error) ||
                 sbit_quant_set(quant, "A.QUANTIZER.BIT", "4", error) ||
                 measure(quant, &x, &wanted, &four, error);
        printf("all at 8 bits %.1f dB, activations at 4 bits %.1f dB; most sensitive: %s\n", eight,
               four, worst);
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    sbit_graph_destroy(graph);
    return failed || worst[0] == '\0' || four >= eight;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "fewer bits should lose something", ""};
    const int failed = sbit_ctx_create(NULL, &ctx, &error) || run(ctx, &error);
    if (failed) {
        fprintf(stderr, "%s\n", error.message);
    }
    sbit_ctx_destroy(ctx);
    return failed;
}
