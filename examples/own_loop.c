/* own_loop.c: a loop of training of one's own: large batches in pieces, gradients that are looked at
 * and changed, its own rate and its own end.
 *
 *     cc -O2 -I.. own_loop.c ../tools/sparsebit_impl.c -lm -lpthread && ./a.out
 *
 * The task: is a point inside of a ring? Each step adds up the gradients of four pieces; then the
 * gradient of every parameter is brought to the length of the parameter itself (as LARS does), so
 * that all layers learn at one pace, whatever the size of their gradients. sbit_trainer_fit does none of
 * that; sbit_trainer_step is backward and update in one.
 */
#include "sparsebit.h"

#include <math.h>  /* sqrt */
#include <stdio.h> /* printf */

enum {
    PIECE = 64, /* points that are in memory at a time */
    PIECES = 4,
    MOST = 600 /* steps */
};

typedef struct piece {
    float x[2 * PIECE];
    int64_t label[PIECE];
} piece;

static void draw(sbit_rng *rng, piece *p)
{
    for (int i = 0; i < PIECE; i++) {
        const float a = 1.2f * sbit_rng_normal(rng), b = 1.2f * sbit_rng_normal(rng);
        const float r = a * a + b * b;
        p->x[2 * i] = a;
        p->x[2 * i + 1] = b;
        p->label[i] = r > 0.5f && r < 2.5f;
    }
}

static sbit_status make_model(sbit_graph *graph, sbit_error *error)
{
    const int64_t dims[1] = {2};
    const sbit_value_id none = {0};
    sbit_builder b = sbit_builder_init(graph, 1, error);
    sbit_value_id x = sbit_builder_input(&b, "x", 1, dims);
    x = sbit_builder_op(&b, "Relu", sbit_builder_linear(&b, "first", x, 32), none);
    x = sbit_builder_op(&b, "Relu", sbit_builder_linear(&b, "second", x, 32), none);
    return sbit_builder_output(&b, "logits", sbit_builder_linear(&b, "last", x, 2));
}

static double length_of(int64_t count, const float *data)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)data[i] * (double)data[i];
    }
    return sqrt(sum);
}

/* Gradients may be read and written between backward and update. */
static void even_pace(sbit_trainer *trainer)
{
    for (size_t i = 0; i < sbit_trainer_parameter_count(trainer); i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(trainer, i);
        const int64_t count = sbit_tensor_count(&p.data);
        const double own = length_of(count, (const float *)p.data.data);
        const double gradient = length_of(count, p.gradient);
        for (int64_t k = 0; gradient > 0.0 && k < count; k++) {
            p.gradient[k] *= (float)((own + 0.3) / gradient); /* biases begin at 0 */
        }
    }
}

/* Points of the last run whose class is right. */
static int right_ones(const sbit_trainer *trainer, const piece *p)
{
    const float *logits = (const float *)sbit_trainer_output(trainer, 0)->data;
    int right = 0;
    for (int i = 0; i < PIECE; i++) {
        right += (logits[2 * i + 1] > logits[2 * i]) == (p->label[i] == 1);
    }
    return right;
}

static int loop(sbit_trainer *trainer, sbit_error *error)
{
    static piece p;
    const sbit_tensor input = {.dtype = SBIT_F32, .rank = 2, .dims = {PIECE, 2}, .data = p.x};
    const sbit_tensor target = {.dtype = SBIT_I64, .rank = 1, .dims = {PIECE}, .data = p.label};
    const sbit_batch batch = {.samples = PIECE,
                              .inputs = &input,
                              .input_count = 1,
                              .targets = &target,
                              .target_count = 1};
    sbit_rng rng = sbit_rng_seed(3);
    sbit_train_report report = {0};
    double share = 0.0; /* of right answers, in the mean over the last steps */
    for (int step = 0; step < MOST && share < 0.95; step++) {
        int right = 0;
        for (int i = 0; i < PIECES; i++) {
            draw(&rng, &p);
            if (i == 0 ? sbit_trainer_backward(trainer, &batch, NULL, error)
                       : sbit_trainer_accumulate(trainer, &batch, NULL, error)) {
                return 1;
            }
            right += right_ones(trainer, &p);
        }
        even_pace(trainer);
        sbit_trainer_set_rate(trainer, 0.05 / (1.0 + 0.01 * step));
        if (sbit_trainer_update(trainer, &report, error)) {
            return 1;
        }
        share = 0.9 * share + 0.1 * right / (PIECE * PIECES);
    }
    printf("%lld steps of %lld points, loss %.3f, %.1f %% right\n", (long long)report.step,
           (long long)report.samples, report.loss, 100.0 * share);
    return share < 0.95;
}

int main(void)
{
    const sbit_train_desc how = {.learning_rate = 0.05f};
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_trainer *trainer = NULL;
    sbit_error error = {SBIT_OK, "the ring was not found", ""};
    const int failed = sbit_ctx_create(NULL, &ctx, &error) ||
                       sbit_graph_create(ctx, 17, &graph, &error) || make_model(graph, &error) ||
                       sbit_trainer_create(graph, &how, &trainer, &error) || loop(trainer, &error);
    if (failed) {
        printf("%s\n", error.message);
    }
    sbit_trainer_destroy(trainer);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return failed;
}
