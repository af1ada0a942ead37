/* quantize.c: a float network becomes one of integers, in one call and step by step.
 *
 *     cc -O2 -I.. quantize.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out [MODEL.onnx
 * DATA.npy]
 *
 * Without a model it builds one, two convolutions and a classifier, and draws its data.
 */
#include "sparsebit.h"

#include <stdio.h>  /* printf */
#include <string.h> /* memset */

enum {
    SAMPLES = 64
};
static float pictures[SAMPLES * 3 * 16 * 16];

/* ---- a small network */

static sbit_status weights(sbit_graph *graph, const char *name, int32_t rank, const int64_t *dims,
                           sbit_value_id *out, sbit_error *error)
{
    sbit_rng rng = sbit_rng_seed((uint64_t)name[0] * 31 + (uint64_t)name[1]);
    sbit_tensor tensor;
    sbit_status status =
        sbit_tensor_alloc(sbit_graph_ctx(graph), SBIT_F32, rank, dims, &tensor, error);
    if (status == SBIT_OK) {
        for (int64_t i = 0; i < sbit_tensor_count(&tensor); i++) {
            ((float *)tensor.data)[i] = 0.2f * sbit_rng_normal(&rng);
        }
        status = sbit_graph_add_constant(graph, name, &tensor, out, error);
        sbit_tensor_free(sbit_graph_ctx(graph), &tensor);
    }
    return status;
}

/* y = op(y, w); w 0: op(y) */
static sbit_status node(sbit_graph *graph, const char *op_type, sbit_value_id w, sbit_value_id *y,
                        sbit_error *error)
{
    const sbit_value_id inputs[2] = {*y, w};
    const sbit_type unknown = {.rank = -1};
    sbit_node_desc desc;
    sbit_node_id id;
    memset(&desc, 0, sizeof desc);
    desc.op_type = op_type;
    desc.inputs = inputs;
    desc.input_count = w.idx != 0 ? 2 : 1;
    desc.outputs = y;
    desc.output_count = 1;
    const sbit_status status = sbit_graph_add_value(graph, op_type, &unknown, y, error);
    return status == SBIT_OK ? sbit_graph_add_node(graph, &desc, &id, error) : status;
}

static int make_network(sbit_ctx *ctx, sbit_graph **graph, sbit_error *error)
{
    const int64_t first[] = {8, 3, 3, 3}, second[] = {16, 8, 3, 3}, head[] = {16, 10};
    const sbit_value_id none = {0};
    sbit_value_id y, w[3];
    sbit_type type = {.dtype = SBIT_F32, .rank = 4};
    type.dims[1].value = 3;
    type.dims[2].value = type.dims[3].value = 16;
    return sbit_graph_create(ctx, 17, graph, error) ||
           sbit_graph_symbol(*graph, "N", &type.dims[0].symbol, error) ||
           sbit_graph_add_value(*graph, "x", &type, &y, error) ||
           sbit_graph_set_input(*graph, y, true, error) ||
           weights(*graph, "first.weight", 4, first, &w[0], error) ||
           weights(*graph, "second.weight", 4, second, &w[1], error) ||
           weights(*graph, "head.weight", 2, head, &w[2], error) ||
           node(*graph, "Conv", w[0], &y, error) || node(*graph, "Relu", none, &y, error) ||
           node(*graph, "Conv", w[1], &y, error) || node(*graph, "Relu", none, &y, error) ||
           node(*graph, "GlobalAveragePool", none, &y, error) ||
           node(*graph, "Flatten", none, &y, error) || node(*graph, "MatMul", w[2], &y, error) ||
           sbit_graph_add_output(*graph, y, error);
}

/* Smooth random pictures: neighbours are alike. */
static void draw(void)
{
    sbit_rng rng = sbit_rng_seed(7);
    for (int i = 0; i < SAMPLES * 3 * 16 * 16; i++) {
        const float left = i % 16 > 0 ? pictures[i - 1] : 0.0f;
        const float above = i % 256 > 15 ? pictures[i - 16] : 0.0f;
        pictures[i] = 0.45f * (left + above) + 0.5f * sbit_rng_normal(&rng);
    }
}

/* ---- how far two networks are apart: dB, larger is better */

static int measure(sbit_graph *a, sbit_graph *b, const sbit_tensor *x, double *db,
                   sbit_error *error)
{
    sbit_graph *const graphs[2] = {a, b};
    sbit_session *sessions[2] = {NULL, NULL};
    sbit_diff diff;
    int failed = 0;
    memset(&diff, 0, sizeof diff);
    for (int i = 0; i < 2 && !failed; i++) {
        failed = sbit_session_create(graphs[i], NULL, &sessions[i], error) ||
                 sbit_session_set_input_at(sessions[i], 0, x, error) ||
                 sbit_session_run(sessions[i], error);
    }
    if (!failed) {
        const sbit_tensor *y = &sbit_session_output(sessions[0], 0)->tensor;
        sbit_diff_add(&diff, y, &sbit_session_output(sessions[1], 0)->tensor, INT64_MAX);
        *db = sbit_diff_sqnr(&diff);
    }
    sbit_session_destroy(sessions[0]);
    sbit_session_destroy(sessions[1]);
    return failed;
}

/* ---- one call */

static int in_one_call(sbit_graph *graph, const sbit_feed *feed, const sbit_tensor *x,
                       sbit_error *error)
{
    sbit_graph *int8 = NULL;
    double db = 0.0;
    const int failed = sbit_quantize(graph, NULL, feed, &int8, error) ||
                       sbit_graph_save(int8, "int8.onnx", NULL, error) ||
                       measure(graph, int8, x, &db, error);
    sbit_graph_destroy(int8);
    if (!failed) {
        printf("int8.onnx: %.1f dB\n", db);
    }
    return failed;
}

/* ---- step by step: 4-bit weights, nearest and by AdaRound, from one calibration */

static int step_by_step(sbit_graph *graph, const sbit_feed *feed, const sbit_tensor *x,
                        sbit_error *error)
{
    static const char *const recipes[] = {"[]", "[adaround]", "[adaround]"};
    static const char *const asym[] = {"false", "false", "true"};
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    int failed = sbit_qconfig_create(sbit_graph_ctx(graph), "generic", &config, error) ||
                 sbit_qconfig_set(config, "W.QUANTIZER.BIT", "4", error) ||
                 sbit_qconfig_set(config, "STEP.ADAROUND.ITERATIONS", "300", error) ||
                 sbit_quant_create(graph, config, &quant, error) ||
                 sbit_quant_calibrate(quant, feed, error);
    for (int i = 0; i < 3 && !failed; i++) {
        sbit_graph *int4 = NULL;
        double db = 0.0;
        failed = sbit_quant_set(quant, "STEPS", recipes[i], error) ||
                 sbit_quant_calc_qparams(quant, asym[i][0] == 't', true, true, error) ||
                 sbit_quant_build(quant, NULL, &int4, error) || measure(graph, int4, x, &db, error);
        if (!failed) {
            printf("4-bit weights, steps %s, asym %s: %.1f dB\n", recipes[i], asym[i], db);
        }
        sbit_graph_destroy(int4);
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    return failed;
}

int main(int argc, char **argv)
{
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_tensor x = {SBIT_F32, 4, {SAMPLES, 3, 16, 16}, pictures}, file = {.rank = 0};
    sbit_feed feed = {0};
    sbit_feed_desc data = {0};
    sbit_error error = {SBIT_OK, "usage: quantize [MODEL DATA.npy]", ""};
    draw();
    int failed = argc == 2 || sbit_ctx_create(NULL, &ctx, &error);
    if (!failed && argc > 2) {
        failed = sbit_graph_load(ctx, argv[1], &graph, &error) ||
                 sbit_tensor_load_npy(ctx, argv[2], &file, &error);
        x = file;
    } else if (!failed) {
        failed = make_network(ctx, &graph, &error);
    }
    data.inputs = &x;
    data.input_count = 1;
    failed = failed || sbit_feed_of_tensors(ctx, &data, &feed, &error) ||
             in_one_call(graph, &feed, &x, &error) || step_by_step(graph, &feed, &x, &error);
    if (failed) {
        fprintf(stderr, "quantize: %s\n", error.message);
    }
    sbit_feed_close(&feed);
    sbit_tensor_free(ctx, &file);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return failed != 0;
}
