/* custom_observer.c: an observer of one's own, registered and chosen by name.
 *
 *     cc -O2 -I.. custom_observer.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * "sigma" keeps a number of standard deviations around the mean: outliers are cut off. It needs
 * sums only, so that it can be merged and its statistics used again for any width.
 */
#include "sparsebit.h"

#include <math.h>   /* sqrt */
#include <stdio.h>  /* printf */
#include <string.h> /* memset */

typedef struct sigma {
    double count, sum, squares;
} sigma;

static size_t sigma_state_bytes(const sbit_observer_call *call)
{
    return (size_t)call->grid->parts.count * sizeof(sigma);
}

static sbit_status sigma_init(void *state, const sbit_observer_call *call, sbit_error *error)
{
    (void)state; /* arrives zeroed */
    (void)call;
    (void)error;
    return SBIT_OK;
}

static sbit_status sigma_observe(void *state, const sbit_observer_call *call,
                                 const sbit_observation *x, sbit_error *error)
{
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)call;
    (void)error;
    while (sbit_runs_next(&runs)) { /* runs of elements that share a scale */
        sigma *s = (sigma *)state + runs.part;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double value = (double)x->data[i];
            s->count += 1.0;
            s->sum += value;
            s->squares += value * value;
        }
    }
    return SBIT_OK;
}

static sbit_status sigma_merge(void *state, const void *other, const sbit_observer_call *call,
                               sbit_error *error)
{
    (void)error;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        sigma *to = (sigma *)state + p;
        const sigma *from = (const sigma *)other + p;
        to->count += from->count;
        to->sum += from->sum;
        to->squares += from->squares;
    }
    return SBIT_OK;
}

static sbit_status sigma_range(const void *state, const sbit_observer_call *call, float *min,
                               float *max, sbit_error *error)
{
    const double width = sbit_options_float(call->options, "OBSERVER.SIGMA.WIDTH");
    (void)error;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        const sigma *s = (const sigma *)state + p;
        const double mean = s->sum / s->count;
        const double deviation = sqrt(fmax(s->squares / s->count - mean * mean, 0.0));
        min[p] = (float)(mean - width * deviation);
        max[p] = (float)(mean + width * deviation);
    }
    return SBIT_OK;
}

static const sbit_key sigma_keys[] = {
    {"SIGMA.WIDTH", SBIT_KEY_FLOAT, "4", 0.1, 100.0, NULL, "standard deviations to each side"},
};

static const sbit_observer_row sigma_row = {
    {"sigma", "mean and a number of standard deviations",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sigma_keys, 1},
    sigma_state_bytes,
    sigma_init,
    sigma_observe,
    NULL, /* one pass is enough */
    sigma_merge,
    sigma_range,
    NULL,
    NULL,
    NULL,
};

/* ---- its use: y = x w, where one value in a thousand is far out */

static float data[64 * 32], w[32 * 8];

static int make_network(sbit_ctx *ctx, sbit_graph **graph, sbit_error *error)
{
    const sbit_tensor weight = {SBIT_F32, 2, {32, 8}, w};
    const sbit_type unknown = {.rank = -1};
    sbit_type type = {.dtype = SBIT_F32, .rank = 2};
    sbit_value_id inputs[2], y;
    sbit_node_desc desc;
    sbit_node_id id;
    type.dims[1].value = 32;
    memset(&desc, 0, sizeof desc);
    desc.op_type = "MatMul";
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = &y;
    desc.output_count = 1;
    return sbit_graph_create(ctx, 17, graph, error) ||
           sbit_graph_symbol(*graph, "N", &type.dims[0].symbol, error) ||
           sbit_graph_add_value(*graph, "x", &type, &inputs[0], error) ||
           sbit_graph_set_input(*graph, inputs[0], true, error) ||
           sbit_graph_add_constant(*graph, "w", &weight, &inputs[1], error) ||
           sbit_graph_add_value(*graph, "y", &unknown, &y, error) ||
           sbit_graph_add_node(*graph, &desc, &id, error) ||
           sbit_graph_add_output(*graph, y, error);
}

static int run(sbit_ctx *ctx, sbit_graph *graph, const sbit_feed *feed, const char *observer,
               sbit_error *error)
{
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_site site;
    int failed = sbit_qconfig_create(ctx, "generic", &config, error) ||
                 sbit_qconfig_set(config, "A.OBSERVER.TYPE", observer, error) ||
                 sbit_quant_create(graph, config, &quant, error) ||
                 sbit_quant_calibrate(quant, feed, error) ||
                 sbit_quant_calc_qparams(quant, false, false, false, error);
    for (size_t i = 0; !failed && i < sbit_quant_site_count(quant); i++) {
        if (sbit_quant_site(quant, i, &site) == SBIT_OK && site.target == SBIT_TARGET_ACTIVATION) {
            printf("%-7s %s: %.2f to %.2f\n", observer, site.tensor, (double)site.min,
                   (double)site.max);
        }
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    return failed;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_tensor x = {SBIT_F32, 2, {64, 32}, data};
    sbit_feed feed = {0};
    sbit_feed_desc desc = {0};
    sbit_error error = {SBIT_OK, "", ""};
    sbit_rng rng = sbit_rng_seed(1);
    for (int i = 0; i < 64 * 32; i++) {
        data[i] = sbit_rng_normal(&rng) * (i % 1000 == 7 ? 50.0f : 1.0f);
    }
    for (int i = 0; i < 32 * 8; i++) {
        w[i] = sbit_rng_normal(&rng);
    }
    desc.inputs = &x;
    desc.input_count = 1;
    const int failed =
        sbit_ctx_create(NULL, &ctx, &error) || sbit_observer_register(ctx, &sigma_row, &error) ||
        make_network(ctx, &graph, &error) || sbit_feed_of_tensors(ctx, &desc, &feed, &error) ||
        run(ctx, graph, &feed, "minmax", &error) || run(ctx, graph, &feed, "sigma", &error);
    if (failed) {
        fprintf(stderr, "custom_observer: %s\n", error.message);
    }
    sbit_feed_close(&feed);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return failed != 0;
}
