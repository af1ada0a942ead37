/* custom_quantizer.c: calibration statistics and a rounding that the library does not have,
 * registered from outside and chosen in the configuration like its own.
 *
 *     cc -O2 -I.. custom_quantizer.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * The observer keeps mean +- K deviations of each part (one, or one a channel); the quantizer
 * rounds weights of less than half a step away from zero, so that more of them become 0.
 */
#include "sparsebit.h"

#include <math.h>   /* sqrt, fabsf */
#include <stdio.h>  /* printf */
#include <string.h> /* memset */

/* ---- the observer: state = sums of each part */

typedef struct sums {
    double count, sum, squares;
} sums;

static size_t sigma_state_bytes(const sbit_observer_call *call)
{
    return (size_t)call->grid->parts.count * sizeof(sums);
}

static sbit_status sigma_init(void *state, const sbit_observer_call *call, sbit_error *error)
{
    (void)state, (void)call, (void)error; /* zeroed memory is right */
    return SBIT_OK;
}

/* A piece comes in runs of neighbours that share a range. */
static sbit_status sigma_observe(void *state, const sbit_observer_call *call,
                                 const sbit_observation *x, sbit_error *error)
{
    sbit_runs runs = sbit_runs_of(&x->parts);
    (void)call, (void)error;
    while (sbit_runs_next(&runs)) {
        sums *s = (sums *)state + runs.part;
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            s->count += 1.0;
            s->sum += (double)x->data[i];
            s->squares += (double)x->data[i] * (double)x->data[i];
        }
    }
    return SBIT_OK;
}

static sbit_status sigma_range(const void *state, const sbit_observer_call *call, float *min,
                               float *max, sbit_error *error)
{
    const double k = sbit_options_float(call->options, "OBSERVER.SIGMA.K");
    (void)error;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        const sums *s = (const sums *)state + p;
        const double mean = s->sum / s->count;
        const double deviation = sqrt(fmax(s->squares / s->count - mean * mean, 0.0));
        min[p] = (float)(mean - k * deviation);
        max[p] = (float)(mean + k * deviation);
    }
    return SBIT_OK;
}

static const sbit_key sigma_keys[] = {
    {.path = "SIGMA.K",
     .type = SBIT_KEY_FLOAT,
     .otherwise = "3",
     .min = 1,
     .max = 10,
     .doc = "deviations to keep on each side"},
};

static const sbit_observer_row sigma = {
    .head = {.name = "sigma",
             .doc = "mean +- K deviations",
             .targets = SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION,
             .keys = sigma_keys,
             .key_count = 1},
    .state_bytes = sigma_state_bytes,
    .init = sigma_init,
    .observe = sigma_observe,
    .range = sigma_range,
};

/* ---- the quantizer: what is nearer to zero than a step becomes zero before it is rounded */

static size_t sparse_state_bytes(const sbit_quantizer_call *call)
{
    (void)call;
    return 0;
}

static sbit_status sparse_init(void *state, const sbit_quantizer_call *call,
                               const sbit_observation *x, sbit_error *error)
{
    (void)state, (void)call, (void)x, (void)error; /* scale and zero point as the range gave them */
    return SBIT_OK;
}

/* The values whose rounding is stored. */
static sbit_status sparse_finish(void *state, const sbit_quantizer_call *call,
                                 const sbit_observation *x, float *effective, sbit_error *error)
{
    (void)state, (void)error;
    for (int64_t i = 0; effective != NULL && i < sbit_parts_elements(&x->parts); i++) {
        const float scale = call->scale[sbit_parts_at(&x->parts, i)];
        effective[i] = fabsf(x->data[i]) < scale ? 0.0f : x->data[i];
    }
    return SBIT_OK;
}

static sbit_status sparse_forward(void *state, const sbit_quantizer_call *call,
                                  const sbit_observation *x, float *y, sbit_error *error)
{
    sparse_finish(state, call, x, y, error);
    for (int64_t i = 0; i < sbit_parts_elements(&x->parts); i++) {
        const int64_t p = sbit_parts_at(&x->parts, i);
        const float q = rintf(y[i] / call->scale[p]) + (float)call->zero_point[p];
        const float inside = fminf(fmaxf(q, (float)call->grid->qmin), (float)call->grid->qmax);
        y[i] = (inside - (float)call->zero_point[p]) * call->scale[p];
    }
    return SBIT_OK;
}

static const sbit_quantizer_row sparse = {
    .head = {.name = "sparse", .doc = "zero up to a whole step", .targets = SBIT_TARGET_WEIGHT},
    .state_bytes = sparse_state_bytes,
    .init = sparse_init,
    .forward = sparse_forward,
    .finish = sparse_finish,
};

/* ---- a model: y = x W, and its quantization */

static int make_model(sbit_graph *graph, float *weights, sbit_error *error)
{
    const sbit_type in = {.dtype = SBIT_F32, .rank = 2, .dims = {{.value = 64}, {.value = 16}}};
    const sbit_type out = {.dtype = SBIT_F32, .rank = 2, .dims = {{.value = 64}, {.value = 8}}};
    const sbit_tensor w = {.dtype = SBIT_F32, .rank = 2, .dims = {16, 8}, .data = weights};
    sbit_value_id inputs[2], y;
    sbit_node_id node;
    if (sbit_graph_add_value(graph, "x", &in, &inputs[0], error) ||
        sbit_graph_set_input(graph, inputs[0], true, error) ||
        sbit_graph_add_constant(graph, "w", &w, &inputs[1], error) ||
        sbit_graph_add_value(graph, "y", &out, &y, error)) {
        return 1;
    }
    const sbit_node_desc desc = {
        .op_type = "MatMul", .inputs = inputs, .input_count = 2, .outputs = &y, .output_count = 1};
    return sbit_graph_add_node(graph, &desc, &node, error) ||
           sbit_graph_add_output(graph, y, error) || sbit_infer(graph, error);
}

static int report(sbit_quant *quant)
{
    int found = 0;
    for (size_t i = 0; i < sbit_quant_site_count(quant); i++) {
        sbit_site site;
        if (sbit_quant_site(quant, i, &site) == SBIT_OK && site.enabled) {
            printf("%-4s %-8s %-8s %8.4f .. %.4f\n", site.tensor, site.observer, site.quantizer,
                   (double)site.min, (double)site.max);
            found += strcmp(site.observer, "sigma") == 0;
        }
    }
    return found == 0;
}

static int run(sbit_ctx *ctx, sbit_error *error)
{
    static float data[64 * 16], weights[16 * 8];
    const sbit_tensor x = {.dtype = SBIT_F32, .rank = 2, .dims = {64, 16}, .data = data};
    sbit_graph *graph = NULL;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_rng rng = sbit_rng_seed(1);
    for (int i = 0; i < 64 * 16; i++) {
        data[i] = sbit_rng_normal(&rng);
        weights[i % (16 * 8)] = 0.1f * sbit_rng_normal(&rng);
    }
    data[7] = 40.0f; /* an outlier */
    int failed = sbit_graph_create(ctx, 17, &graph, error) || make_model(graph, weights, error) ||
                 sbit_qconfig_create(ctx, "generic", &config, error) ||
                 sbit_qconfig_set(config, "A.OBSERVER.TYPE", "sigma", error) ||
                 sbit_qconfig_set(config, "A.OBSERVER.SIGMA.K", "4", error) ||
                 sbit_qconfig_set(config, "W.QUANTIZER.TYPE", "sparse", error) ||
                 sbit_qconfig_set(config, "W.QUANTIZER.BIT", "4", error) ||
                 sbit_quant_create(graph, config, &quant, error) ||
                 sbit_quant_prepare_calibration(quant, error) ||
                 sbit_quant_forward(quant, NULL, &x, 1, error) ||
                 sbit_quant_calc_qparams(quant, false, false, false, error);
    failed = failed || report(quant);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_graph_destroy(graph);
    return failed;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "the observer was not used", ""};
    const int failed = sbit_ctx_create(NULL, &ctx, &error) ||
                       sbit_observer_register(ctx, &sigma, &error) ||
                       sbit_quantizer_register(ctx, &sparse, &error) || run(ctx, &error);
    if (failed) {
        fprintf(stderr, "%s\n", error.message);
    }
    sbit_ctx_destroy(ctx);
    return failed;
}
