/* custom_training.c: a loss, an optimizer and a schedule of the learning rate that the library does
 * not have, registered from outside and named like its own.
 *
 *     cc -O2 -I.. custom_training.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * The task is a line through points of which a tenth are far off: y = 2 a - 3 b + 1. The loss
 * d tanh(d) counts what is near by its square and what is far by its distance only; the optimizer
 * goes by the sign of the gradient; the rate falls as 1 / (1 + 9 t).
 */
#include "sparsebit.h"

#include <math.h>  /* fabs */
#include <stdio.h> /* printf */

/* ---- the loss: nodes behind the output */

static sbit_status robust_build(sbit_graph *graph, const sbit_options *options,
                                sbit_value_id output, sbit_value_id target, sbit_value_id *loss,
                                sbit_error *error)
{
    const sbit_value_id none = {0};
    sbit_builder b = sbit_builder_init(graph, 0, error);
    (void)options;
    const sbit_value_id d = sbit_builder_op(&b, "Sub", output, target);
    const sbit_value_id each = sbit_builder_op(&b, "Mul", d, sbit_builder_op(&b, "Tanh", d, none));
    *loss = sbit_builder_op(&b, "ReduceMean", each, none); /* without axes: over all */
    return b.status;
}

static const sbit_loss_row robust = {
    .head = {.name = "robust", .doc = "mean of d tanh(d)"},
    .like_output = true,
    .build = robust_build,
};

/* ---- the optimizer */

static size_t sign_state_bytes(const sbit_optimizer_call *call)
{
    (void)call;
    return 0;
}

static sbit_status sign_update(void *state, const sbit_optimizer_call *call, const float *gradient,
                               float *parameter, sbit_error *error)
{
    (void)state;
    (void)error;
    for (int64_t i = 0; i < call->count; i++) {
        const float sign = gradient[i] > 0.0f ? 1.0f : gradient[i] < 0.0f ? -1.0f : 0.0f;
        parameter[i] -= call->learning_rate * sign;
    }
    return SBIT_OK;
}

static const sbit_optimizer_row by_sign = {
    .head = {.name = "sign", .doc = "steps of equal length against the gradient's sign"},
    .state_bytes = sign_state_bytes,
    .update = sign_update,
};

/* ---- the schedule, with a key of its own */

static double inverse_factor(const sbit_options *options, int64_t step, int64_t total)
{
    return 1.0 / (1.0 + sbit_options_float(options, "FALL") * (double)step / (double)total);
}

static const sbit_key inverse_keys[] = {
    {.path = "FALL",
     .type = SBIT_KEY_FLOAT,
     .otherwise = "9",
     .min = 0.0,
     .max = 1e6,
     .doc = "the last rate is 1 / (1 + FALL) of the first"},
};

static const sbit_rate_row inverse = {
    .head = {.name = "inverse", .doc = "1 / (1 + FALL t)", .keys = inverse_keys, .key_count = 1},
    .factor = inverse_factor,
};

/* ---- data and model */

enum {
    POINTS = 640
};

static void make_points(float *x, float *y)
{
    sbit_rng rng = sbit_rng_seed(1);
    for (int i = 0; i < POINTS; i++) {
        x[2 * i] = sbit_rng_normal(&rng);
        x[2 * i + 1] = sbit_rng_normal(&rng);
        y[i] = 2.0f * x[2 * i] - 3.0f * x[2 * i + 1] + 1.0f + 0.05f * sbit_rng_normal(&rng);
        y[i] += i % 10 == 0 ? 20.0f : 0.0f;
    }
}

static sbit_status make_model(sbit_graph *graph, sbit_error *error)
{
    const int64_t dims[1] = {2};
    sbit_builder b = sbit_builder_init(graph, 2, error);
    const sbit_value_id x = sbit_builder_input(&b, "x", 1, dims);
    return sbit_builder_output(&b, "y", sbit_builder_linear(&b, "line", x, 1));
}

/* Prints every parameter; true if all are near what made the points. */
static bool near_truth(const sbit_trainer *trainer)
{
    static const double truth[3] = {2.0, -3.0, 1.0};
    int seen = 0;
    bool near = true;
    for (size_t i = 0; i < sbit_trainer_parameter_count(trainer); i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(trainer, i);
        for (int64_t k = 0; k < sbit_tensor_count(&p.data); k++) {
            const double value = (double)((const float *)p.data.data)[k];
            printf("%s[%d] = %.3f\n", p.name, (int)k, value);
            near = near && seen < 3 && fabs(value - truth[seen]) < 0.15;
            seen++;
        }
    }
    return near && seen == 3;
}

static int train(sbit_ctx *ctx, sbit_error *error)
{
    static float x[2 * POINTS], y[POINTS];
    const sbit_tensor inputs = {.dtype = SBIT_F32, .rank = 2, .dims = {POINTS, 2}, .data = x};
    const sbit_tensor targets = {.dtype = SBIT_F32, .rank = 2, .dims = {POINTS, 1}, .data = y};
    const sbit_feed_desc data = {
        .inputs = &inputs, .input_count = 1, .targets = &targets, .target_count = 1};
    const sbit_train_desc how = {.loss = "robust", .optimizer = "sign", .learning_rate = 0.1f};
    const sbit_fit_desc fit = {.epochs = 40, .batch = 64, .rate = "inverse"};
    sbit_graph *graph = NULL;
    sbit_trainer *trainer = NULL;
    sbit_feed feed = {0};
    make_points(x, y);
    int failed = sbit_graph_create(ctx, 17, &graph, error) || make_model(graph, error) ||
                 sbit_feed_of_tensors(ctx, &data, &feed, error) ||
                 sbit_trainer_create(graph, &how, &trainer, error) ||
                 sbit_trainer_fit(trainer, &feed, &fit, NULL, error);
    if (!failed) { /* and a step by hand, which fit does by itself */
        sbit_batch batch;
        sbit_train_report report;
        sbit_trainer_set_rate(trainer, 0.001);
        failed = sbit_feed_read(&feed, 0, 64, &batch, error) ||
                 sbit_trainer_step(trainer, &batch, &report, error);
    }
    if (!failed) {
        const sbit_tensor *last = sbit_trainer_output(trainer, 0); /* of the last batch */
        printf("%lld outputs in the last batch\n", (long long)sbit_tensor_count(last));
        failed = !near_truth(trainer);
    }
    sbit_trainer_destroy(trainer);
    sbit_feed_close(&feed);
    sbit_graph_destroy(graph);
    return failed;
}

int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error = {SBIT_OK, "the line was not found", ""};
    const int failed = sbit_ctx_create(NULL, &ctx, &error) ||
                       sbit_loss_register(ctx, &robust, &error) ||
                       sbit_optimizer_register(ctx, &by_sign, &error) ||
                       sbit_rate_register(ctx, &inverse, &error) || train(ctx, &error);
    printf("%s\n", failed ? error.message : "y = 2 a - 3 b + 1");
    sbit_ctx_destroy(ctx);
    return failed;
}
