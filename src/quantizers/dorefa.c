/* dorefa.c: rounding in the space of tanh (Zhou et al. 2016). >>quantizer-dorefa
 *
 * As Sparsebit has it (algorithms: section 1.8): z = tanh(x) / M, M = max|tanh(x)| of the whole
 * tensor; observer and grid see z, and y = fake-quantized z is not scaled back: what follows (a
 * BatchNormalization, as a rule) has to. A weight's file holds the integers of z. For an activation
 * the nodes that compute z stand in front of the pair; M is then that of the batch.
 * backward: straight through the rounding, then (1 - tanh(x)^2) / M; M counts as a constant.
 */
#include "../graph/graph_private.h"
#include "quantizers_private.h"

static size_t sbit__dorefa_state_bytes(const sbit_quantizer_call *call)
{
    (void)call;
    return 0;
}

/* max|tanh(x)|; 1 where all are 0 (z is 0 then, and the gradient finite). */
static float sbit__dorefa_most(const sbit_observation *x)
{
    const int64_t n = sbit_parts_elements(&x->parts);
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(x->data[i]);
        most = size > most ? size : most;
    }
    most = tanhf(most);
    return most > FLT_MIN ? most : 1.0f;
}

enum {
    SBIT__DOREFA_GRAIN = 4096 /* elements for a thread: tanhf is slow */
};

typedef struct sbit__dorefa_task {
    const sbit_quantizer_call *call;
    const sbit_observation *x;
    const float *dy;
    float *y; /* dx */
    float most;
} sbit__dorefa_task;

static void sbit__dorefa_domain_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__dorefa_task *task = (const sbit__dorefa_task *)user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        task->y[i] = tanhf(task->x->data[i]) / task->most;
    }
}

/* As far as runs reach into the range. */
static void sbit__dorefa_backward_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__dorefa_task *task = (const sbit__dorefa_task *)user;
    const sbit_quantizer_call *call = task->call;
    const float qmin = (float)call->grid->qmin, qmax = (float)call->grid->qmax, most = task->most;
    sbit_runs runs = sbit_runs_of(&task->x->parts);
    (void)worker;
    while (sbit_runs_next(&runs) && runs.at < end) {
        const float scale = call->scale[runs.part], zp = (float)call->zero_point[runs.part];
        const int64_t from = runs.at > begin ? runs.at : begin;
        const int64_t to = runs.at + runs.count < end ? runs.at + runs.count : end;
        for (int64_t i = from; i < to; i++) {
            const float t = tanhf(task->x->data[i]);
            const float q = nearbyintf(t / most / scale) + zp;
            task->y[i] = q >= qmin && q <= qmax ? task->dy[i] * (1.0f - t * t) / most : 0.0f;
        }
    }
}

static void sbit__dorefa_run(const sbit_quantizer_call *call, const sbit_observation *x,
                             const float *dy, float *y, sbit__range_fn range)
{
    sbit__dorefa_task task;
    task.call = call;
    task.x = x;
    task.dy = dy;
    task.y = y;
    task.most = sbit__dorefa_most(x);
    sbit__parallel_range(call->ctx, sbit_parts_elements(&x->parts), SBIT__DOREFA_GRAIN, range, &task);
}

static sbit_status sbit__dorefa_domain(void *state, const sbit_quantizer_call *call,
                                       const sbit_observation *x, float *y, sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__dorefa_run(call, x, NULL, y, sbit__dorefa_domain_range);
    return SBIT_OK;
}

/* One node with one output of the type of x, or a scalar. */
static sbit_status sbit__dorefa_node(sbit_graph *graph, const char *op_type, const char *base,
                                     const sbit_value_id *inputs, size_t count, bool scalar,
                                     sbit_node_id before, sbit_node_id *node, sbit_value_id *out,
                                     sbit_error *error)
{
    char name[160];
    const sbit_attr keep = sbit__attr_int("keepdims", 0);
    sbit_node_desc desc;
    sbit_type type = sbit_graph_value(graph, inputs[0])->type;
    memset(&desc, 0, sizeof desc);
    type.rank = scalar ? 0 : type.rank;
    snprintf(name, sizeof name, "%.100s_%s", base, op_type);
    SBIT__TRY(sbit_graph_add_value(graph, name, &type, out, error));
    desc.op_type = op_type;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = count;
    desc.outputs = out;
    desc.output_count = 1;
    desc.attrs = &keep;
    desc.attr_count = sbit__streq(op_type, "ReduceMax") ? 1 : 0;
    desc.before = before;
    return sbit_graph_add_node(graph, &desc, node, error);
}

/* Tanh, Abs, ReduceMax, Max (not 0), Div. */
static sbit_status sbit__dorefa_nodes(const sbit_quantizer_call *call, sbit_graph *graph,
                                      sbit_value_id x, sbit_node_id before, sbit_node_id *first,
                                      sbit_value_id *out, sbit_error *error)
{
    float least = FLT_MIN;
    sbit_tensor scalar;
    sbit_value_id t, size, pair[2];
    sbit_node_id node;
    memset(&scalar, 0, sizeof scalar);
    scalar.dtype = SBIT_F32;
    scalar.data = &least;
    const char *base = sbit_graph_value(graph, x)->name;
    if (sbit_graph_value(graph, x)->type.dtype != SBIT_F32) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, call->name,
                          "tensor '%s': dorefa takes float32 activations only", call->name);
    }
    SBIT__TRY(sbit__dorefa_node(graph, "Tanh", base, &x, 1, false, before, first, &t, error));
    SBIT__TRY(sbit__dorefa_node(graph, "Abs", base, &t, 1, false, before, &node, &size, error));
    SBIT__TRY(sbit__dorefa_node(graph, "ReduceMax", base, &size, 1, true, before, &node, &pair[0],
                                error));
    SBIT__TRY(sbit_graph_add_constant(graph, "dorefa_least", &scalar, &pair[1], error));
    SBIT__TRY(sbit__dorefa_node(graph, "Max", base, pair, 2, true, before, &node, &size, error));
    pair[0] = t;
    pair[1] = size;
    return sbit__dorefa_node(graph, "Div", base, pair, 2, false, before, &node, out, error);
}

static sbit_status sbit__dorefa_init(void *state, const sbit_quantizer_call *call,
                                     const sbit_observation *x, sbit_error *error)
{
    (void)state;
    (void)call; /* scale and zero point are those of z, as they came */
    (void)x;
    (void)error;
    return SBIT_OK;
}

static sbit_status sbit__dorefa_forward(void *state, const sbit_quantizer_call *call,
                                        const sbit_observation *x, float *y, sbit_error *error)
{
    sbit_observation z = *x;
    SBIT__TRY(sbit__dorefa_domain(state, call, x, y, error));
    z.data = y;
    sbit__straight_forward(call, &z, call->scale, call->zero_point, y);
    return SBIT_OK;
}

static sbit_status sbit__dorefa_backward(void *state, const sbit_quantizer_call *call,
                                         const sbit_observation *x, const float *dy, float *dx,
                                         sbit_error *error)
{
    (void)state;
    (void)error;
    sbit__dorefa_run(call, x, dy, dx, sbit__dorefa_backward_range);
    return SBIT_OK;
}

static sbit_status sbit__dorefa_finish(void *state, const sbit_quantizer_call *call,
                                       const sbit_observation *x, float *effective,
                                       sbit_error *error)
{
    return effective != NULL ? sbit__dorefa_domain(state, call, x, effective, error) : SBIT_OK;
}

SBIT__FN const sbit_quantizer_row *sbit__quantizer_dorefa(void)
{
    static const sbit_quantizer_row row = {
        {"dorefa", "rounds tanh(x) / max|tanh(x)|", SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION,
         NULL, 0},
        sbit__dorefa_state_bytes,
        sbit__dorefa_domain,
        sbit__dorefa_nodes,
        NULL,
        sbit__dorefa_init,
        sbit__dorefa_forward,
        sbit__dorefa_backward,
        NULL,
        sbit__dorefa_finish,
        NULL,
        NULL,
    };
    return &row;
}
