/* custom_target.c: a runtime that the library does not know: what it wants quantized (a profile),
 * how (a quantizer), what is done to the model before (a step), and what is written (a format),
 * registered from outside.
 *
 *     cc -O2 -I.. custom_target.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * The accelerator takes int8 at the inputs of Conv alone, without zero points, and its scales are
 * powers of two: it shifts. Weights beyond three deviations are cut off first, so that the scales
 * need not cover them.
 */
#include "sparsebit.h"

#include <math.h>   /* sqrt, frexp, ldexp, rint */
#include <stdio.h>  /* printf */
#include <string.h> /* strcmp */

/* ---- what is quantized */

static const char *const only_conv[] = {"Conv", NULL};
static const char *const nothing[] = {NULL};

static const sbit_profile_row shifter = {
    .head = {.name = "shifter", .doc = "inputs of Conv, int8, scales are powers of two"},
    .flags = SBIT_PROFILE_CLASSIC | SBIT_PROFILE_SYMMETRIC_ONLY, /* inputs of what is listed */
    .activation_scheme = SBIT_QSCHEME_PER_TENSOR_SYMMETRIC,
    .weight_scheme = SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC,
    .max_bits = 8,
    .inputs = only_conv,
    .sums = nothing,
    .clamps = nothing,
};

/* ---- how */

static size_t shift_state_bytes(const sbit_quantizer_call *call)
{
    (void)call;
    return 0;
}

/* The next power of two above: nothing is cut off that was not before. */
static sbit_status shift_init(void *state, const sbit_quantizer_call *call,
                              const sbit_observation *x, sbit_error *error)
{
    (void)state;
    (void)x;
    (void)error;
    for (int64_t p = 0; p < call->grid->parts.count; p++) {
        int exponent = 0;
        const double fraction = frexp((double)call->scale[p], &exponent); /* 0.5 <= fraction < 1 */
        call->scale[p] = (float)ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
        call->zero_point[p] = 0;
    }
    return SBIT_OK;
}

static sbit_status shift_forward(void *state, const sbit_quantizer_call *call,
                                 const sbit_observation *x, float *y, sbit_error *error)
{
    const int64_t count = sbit_parts_elements(&x->parts);
    (void)state;
    (void)error;
    for (int64_t i = 0; i < count; i++) {
        const float scale = call->scale[sbit_parts_at(&x->parts, i)];
        float q = rintf(x->data[i] / scale);
        q = q < (float)call->grid->qmin   ? (float)call->grid->qmin
            : q > (float)call->grid->qmax ? (float)call->grid->qmax
                                          : q;
        y[i] = q * scale;
    }
    return SBIT_OK;
}

static const sbit_quantizer_row shift = {
    .head = {.name = "shift",
             .doc = "scales are powers of two",
             .targets = SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION},
    .state_bytes = shift_state_bytes,
    .init = shift_init,
    .forward = shift_forward,
};

/* ---- what is done before */

static sbit_status cut_weight(sbit_graph *graph, sbit_value_id id, sbit_error *error)
{
    sbit_tensor tensor;
    const sbit_tensor *weight = &sbit_graph_value(graph, id)->constant;
    sbit_status status = sbit_tensor_alloc(sbit_graph_ctx(graph), weight->dtype, weight->rank,
                                           weight->dims, &tensor, error);
    if (status != SBIT_OK) {
        return status;
    }
    const int64_t count = sbit_tensor_count(weight);
    double square = 0.0;
    for (int64_t i = 0; i < count; i++) {
        square += pow(sbit_tensor_f64_at(weight, i), 2.0);
    }
    const double most = 3.0 * sqrt(square / (double)count);
    for (int64_t i = 0; i < count; i++) {
        const double w = sbit_tensor_f64_at(weight, i);
        ((float *)tensor.data)[i] = (float)(w > most ? most : w < -most ? -most : w);
    }
    status = sbit_graph_set_constant(graph, id, &tensor, error);
    sbit_tensor_free(sbit_graph_ctx(graph), &tensor);
    return status;
}

static sbit_status cut_run(void *state, const sbit_options *options, const sbit_feed *feed,
                           sbit_error *error)
{
    sbit_graph *graph = sbit_quant_float_graph((sbit_quant *)state);
    sbit_status status = SBIT_OK;
    (void)options;
    (void)feed;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && status == SBIT_OK;
         id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (strcmp(node->op_type, "Conv") == 0 &&
            sbit_graph_value(graph, node->inputs[1])->constant.dtype == SBIT_F32) {
            status = cut_weight(graph, node->inputs[1], error);
        }
    }
    return status;
}

static const sbit_step_row cut_outliers = {
    .head = {.name = "cut_outliers", .doc = "weights beyond three deviations are cut off"},
    .stage = SBIT_STAGE_FLOAT_GRAPH,
    .run = cut_run,
};

/* ---- what is written: the shift of each scale beside its node, as metadata */

static sbit_status shifts_write(sbit_graph *graph, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && status == SBIT_OK;
         id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (strcmp(node->op_type, "QuantizeLinear") == 0) {
            char text[20];
            int exponent = 0;
            frexp(sbit_tensor_f64_at(&sbit_graph_value(graph, node->inputs[1])->constant, 0),
                  &exponent);
            snprintf(text, sizeof text, "%d", exponent - 1);
            status = sbit_graph_add_node_metadata(graph, id, "shifter.shift", text, error);
        }
    }
    return status;
}

static const sbit_format_row shifts = {
    .head = {.name = "shifts", .doc = "Q and DQ, with the shift beside each Q"},
    .write = shifts_write,
};

/* ---- a small network and its data */

static sbit_status make_model(sbit_graph *graph, sbit_error *error)
{
    const int64_t dims[3] = {3, 8, 8};
    const sbit_value_id none = {0};
    const sbit_conv_desc conv = {.channels = 8, .bias = true};
    sbit_builder b = sbit_builder_init(graph, 1, error);
    sbit_value_id x = sbit_builder_input(&b, "x", 3, dims);
    x = sbit_builder_op(&b, "Relu", sbit_builder_conv(&b, "conv1", x, &conv), none);
    x = sbit_builder_op(&b, "Relu", sbit_builder_conv(&b, "conv2", x, &conv), none);
    x = sbit_builder_op(&b, "Flatten", sbit_builder_pool(&b, "GlobalAveragePool", x, 0), none);
    return sbit_builder_output(&b, "y", sbit_builder_linear(&b, "fc", x, 4));
}

/* Lists the sites; true if what is quantized are the Convs, with scales that are powers of two. */
static bool as_wanted(const sbit_quant *quant)
{
    bool good = true;
    int quantized = 0;
    for (size_t i = 0; i < sbit_quant_site_count(quant); i++) {
        sbit_site site;
        if (sbit_quant_site(quant, i, &site) != SBIT_OK || !site.enabled) {
            continue;
        }
        int exponent = 0;
        const double fraction = frexp((double)site.qparams.scale[0], &exponent);
        printf("%-8s %-12s scale 2^%d\n", site.layer, site.tensor, exponent - 1);
        good = good && fraction == 0.5 && strncmp(site.layer, "conv", 4) == 0;
        quantized++;
    }
    return good && quantized == 4; /* two weights, two inputs */
}

static int quantize(sbit_ctx *ctx, sbit_error *error)
{
    static float data[16 * 3 * 8 * 8];
    const sbit_tensor x = {.dtype = SBIT_F32, .rank = 4, .dims = {16, 3, 8, 8}, .data = data};
    const sbit_feed_desc desc = {.inputs = &x, .input_count = 1};
    sbit_graph *graph = NULL;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_feed feed = {0};
    sbit_rng rng = sbit_rng_seed(3);
    for (int i = 0; i < 16 * 3 * 8 * 8; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    const int failed = sbit_graph_create(ctx, 17, &graph, error) || make_model(graph, error) ||
                       sbit_feed_of_tensors(ctx, &desc, &feed, error) ||
                       sbit_qconfig_create(ctx, "shifter", &config, error) ||
                       sbit_qconfig_set(config, "W.QUANTIZER.TYPE", "shift", error) ||
                       sbit_qconfig_set(config, "A.QUANTIZER.TYPE", "shift", error) ||
                       sbit_qconfig_set(config, "STEPS", "[cut_outliers]", error) ||
                       sbit_qconfig_set(config, "EXPORT.FORMAT", "shifts", error) ||
                       sbit_quant_create(graph, config, &quant, error) ||
                       sbit_quant_calibrate(quant, &feed, error) ||
                       sbit_quant_calc_qparams(quant, false, false, false, error) ||
                       !as_wanted(quant) ||
                       sbit_quant_export_onnx(quant, "shifter.onnx", NULL, error);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    sbit_graph_destroy(graph);
    return failed;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "not as wanted", ""};
    const int failed = sbit_ctx_create(NULL, &ctx, &error) ||
                       sbit_profile_register(ctx, &shifter, &error) ||
                       sbit_quantizer_register(ctx, &shift, &error) ||
                       sbit_step_register(ctx, &cut_outliers, &error) ||
                       sbit_format_register(ctx, &shifts, &error) || quantize(ctx, &error);
    printf("%s\n", failed ? error.message : "wrote shifter.onnx");
    sbit_ctx_destroy(ctx);
    return failed;
}
