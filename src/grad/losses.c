/* losses.c: the built-in losses, as nodes. >>losses
 *
 * Called by: train, steps. Calls: graph. With o the output, t the target, d = o - t:
 *     cross_entropy   mean over rows of -log softmax(o)[t]; t: class numbers or probabilities;
 *                     with WEIGHTS the mean by the weight of each row's class, as PyTorch
 *     kl              T^2 * mean over rows of sum p_t (log p_t - log p_o), p = softmax(. / T):
 *                     distillation from a teacher's logits
 *     mse, l1         mean of d^2, of |d|; mse RELATIVE: mean of d^2 / (mean of t^2 + 1e-12)
 *     huber           mean of c (d - c/2), c = d clipped to +-DELTA
 *     bce             mean of softplus(o) - o t: binary cross entropy of logits
 */
#include "grad_private.h"

/* >>building. After a failure nothing is added any more. */
typedef struct sbit__loss_builder {
    sbit_graph *graph;
    sbit_status status;
    sbit_error *error;
} sbit__loss_builder;

static sbit_value_id sbit__loss_op(sbit__loss_builder *b, const char *op_type, sbit_value_id x,
                                   sbit_value_id y, const sbit_attr *attr)
{
    const sbit_node_id end = {0};
    const sbit_value_id inputs[2] = {x, y};
    sbit_value_id out = {0};
    if (b->status == SBIT_OK) {
        b->status = sbit__emit(b->graph, end, op_type, "loss", inputs, y.idx != 0 ? 2 : 1, attr,
                               attr != NULL ? 1 : 0, &out, b->error);
    }
    return out;
}

static sbit_value_id sbit__loss_number(sbit__loss_builder *b, sbit_value_id like, double value)
{
    sbit_value_id out = {0};
    if (b->status == SBIT_OK) {
        b->status =
            sbit__add_scalar(b->graph, "loss_number", sbit_graph_value(b->graph, like)->type.dtype,
                             0, value, &out, b->error);
    }
    return out;
}

static sbit_status sbit__loss_mean(sbit__loss_builder *b, sbit_value_id x, sbit_value_id *loss)
{
    const sbit_attr keep = sbit__attr_int("keepdims", 0);
    const sbit_value_id none = {0};
    const sbit_value_id mean = sbit__loss_op(b, "ReduceMean", x, none, &keep);
    if (b->status == SBIT_OK) {
        *loss = mean;
    }
    return b->status;
}

static sbit__loss_builder sbit__loss_begin(sbit_graph *graph, sbit_error *error)
{
    sbit__loss_builder b;
    b.graph = graph;
    b.status = SBIT_OK;
    b.error = error;
    return b;
}

/* >>rows */

static const sbit_key sbit__loss_cross_entropy_keys[] = {
    {"SMOOTHING", SBIT_KEY_FLOAT, "0", 0, 1, NULL, "label smoothing"},
    {"IGNORE", SBIT_KEY_INT, "-100", 0, 0, NULL, "class number of rows that do not count"},
    {"WEIGHTS", SBIT_KEY_STRINGS, "[]", 0, 0, NULL, "[1, 2.5 ...]: how much each class counts"},
};

/* A row of domain sbit with outputs loss and gradient of the output. */
static sbit_status sbit__loss_fused(sbit_graph *graph, const char *op_type, const sbit_attr *attrs,
                                    size_t count, sbit_value_id output, sbit_value_id target,
                                    sbit_value_id *loss, sbit_error *error)
{
    const sbit_type type = sbit__type_unknown();
    const sbit_value_id inputs[2] = {output, target};
    sbit_value_id outputs[2];
    sbit_node_desc desc;
    sbit_node_id node;
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(sbit_graph_add_value(graph, "loss", &type, &outputs[0], error));
    SBIT__TRY(sbit_graph_add_value(graph, "loss_output_grad", &type, &outputs[1], error));
    desc.op_type = op_type;
    desc.domain = "sbit";
    desc.name = "loss";
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = outputs;
    desc.output_count = 2;
    desc.attrs = attrs;
    desc.attr_count = count;
    SBIT__TRY(sbit_graph_add_node(graph, &desc, &node, error));
    *loss = outputs[0];
    return SBIT_OK;
}

static sbit_status sbit__loss_cross_entropy(sbit_graph *graph, const sbit_options *options,
                                            sbit_value_id output, sbit_value_id target,
                                            sbit_value_id *loss, sbit_error *error)
{
    enum {
        MOST = 256 /* classes with weights */
    };
    const sbit_option *weights = sbit_options_find(options, "WEIGHTS");
    float values[MOST];
    sbit_attr attrs[3];
    const size_t count = weights != NULL ? weights->list_count : 0;
    for (size_t i = 0; i < count; i++) {
        double value = 0.0;
        if (count > MOST || !sbit__parse_f64(weights->list[i], &value) || !(value >= 0.0)) {
            return sbit__fail(error, SBIT_ERR_CONFIG, "WEIGHTS",
                              "WEIGHTS are up to %d numbers of at least 0, not '%s'", (int)MOST,
                              weights->list[i]);
        }
        values[i] = (float)value;
    }
    attrs[0] = sbit__attr_float("smoothing", (float)sbit_options_float(options, "SMOOTHING"));
    attrs[1] = sbit__attr_int("ignore", sbit_options_int(options, "IGNORE"));
    memset(&attrs[2], 0, sizeof attrs[2]);
    attrs[2].name = "weights";
    attrs[2].type = SBIT_ONNX_ATTR_FLOATS;
    attrs[2].floats = values;
    attrs[2].count = count;
    return sbit__loss_fused(graph, "CrossEntropy", attrs, count > 0 ? 3 : 2, output, target, loss,
                            error);
}

static const sbit_key sbit__loss_kl_keys[] = {
    {"TEMPERATURE", SBIT_KEY_FLOAT, "4", 0.01, 1000, NULL, "of both softmaxes"},
};

static sbit_status sbit__loss_kl(sbit_graph *graph, const sbit_options *options,
                                 sbit_value_id output, sbit_value_id target, sbit_value_id *loss,
                                 sbit_error *error)
{
    const sbit_attr attr =
        sbit__attr_float("temperature", (float)sbit_options_float(options, "TEMPERATURE"));
    return sbit__loss_fused(graph, "Distillation", &attr, 1, output, target, loss, error);
}

static const sbit_key sbit__loss_mse_keys[] = {
    {"RELATIVE", SBIT_KEY_BOOL, "false", 0, 0, NULL, "divided by the mean square of the targets"},
};

static sbit_status sbit__loss_mse(sbit_graph *graph, const sbit_options *options,
                                  sbit_value_id output, sbit_value_id target, sbit_value_id *loss,
                                  sbit_error *error)
{
    sbit__loss_builder b = sbit__loss_begin(graph, error);
    const sbit_value_id d = sbit__loss_op(&b, "Sub", output, target, NULL);
    sbit_value_id mean = {0}, power = {0};
    SBIT__TRY(sbit__loss_mean(&b, sbit__loss_op(&b, "Mul", d, d, NULL), &mean));
    if (options != NULL && sbit_options_bool(options, "RELATIVE")) {
        SBIT__TRY(sbit__loss_mean(&b, sbit__loss_op(&b, "Mul", target, target, NULL), &power));
        power = sbit__loss_op(&b, "Add", power, sbit__loss_number(&b, target, 1e-12), NULL);
        mean = sbit__loss_op(&b, "Div", mean, power, NULL);
        SBIT__TRY(b.status);
    }
    *loss = mean;
    return SBIT_OK;
}

static sbit_status sbit__loss_l1(sbit_graph *graph, const sbit_options *options,
                                 sbit_value_id output, sbit_value_id target, sbit_value_id *loss,
                                 sbit_error *error)
{
    sbit__loss_builder b = sbit__loss_begin(graph, error);
    const sbit_value_id none = {0}, d = sbit__loss_op(&b, "Sub", output, target, NULL);
    (void)options;
    return sbit__loss_mean(&b, sbit__loss_op(&b, "Abs", d, none, NULL), loss);
}

static const sbit_key sbit__loss_huber_keys[] = {
    {"DELTA", SBIT_KEY_FLOAT, "1", 1e-30, 1e30, NULL, "where the square becomes a line"},
};

static sbit_status sbit__loss_huber(sbit_graph *graph, const sbit_options *options,
                                    sbit_value_id output, sbit_value_id target, sbit_value_id *loss,
                                    sbit_error *error)
{
    sbit__loss_builder b = sbit__loss_begin(graph, error);
    const double delta = sbit_options_float(options, "DELTA");
    const sbit_value_id none = {0}, d = sbit__loss_op(&b, "Sub", output, target, NULL);
    /* the clipped d as (|d + delta| - |d - delta|) / 2: a form that every opset has */
    const sbit_value_id number = sbit__loss_number(&b, output, delta);
    const sbit_value_id half = sbit__loss_number(&b, output, 0.5);
    const sbit_value_id up = sbit__loss_op(&b, "Add", d, number, NULL);
    const sbit_value_id down = sbit__loss_op(&b, "Sub", d, number, NULL);
    const sbit_value_id wide = sbit__loss_op(&b, "Sub", sbit__loss_op(&b, "Abs", up, none, NULL),
                                             sbit__loss_op(&b, "Abs", down, none, NULL), NULL);
    const sbit_value_id c = sbit__loss_op(&b, "Mul", wide, half, NULL);
    const sbit_value_id rest =
        sbit__loss_op(&b, "Sub", d, sbit__loss_op(&b, "Mul", c, half, NULL), NULL);
    return sbit__loss_mean(&b, sbit__loss_op(&b, "Mul", c, rest, NULL), loss);
}

static sbit_status sbit__loss_bce(sbit_graph *graph, const sbit_options *options,
                                  sbit_value_id output, sbit_value_id target, sbit_value_id *loss,
                                  sbit_error *error)
{
    sbit__loss_builder b = sbit__loss_begin(graph, error);
    const sbit_value_id none = {0}, soft = sbit__loss_op(&b, "Softplus", output, none, NULL);
    const sbit_value_id product = sbit__loss_op(&b, "Mul", output, target, NULL);
    (void)options;
    return sbit__loss_mean(&b, sbit__loss_op(&b, "Sub", soft, product, NULL), loss);
}

#define SBIT__LOSS_KEYS(keys) keys, SBIT__COUNT_OF(keys)

static const sbit_loss_row sbit__losses[] = {
    {{"cross_entropy", "classes: -log of the softmax at the target", 0,
      SBIT__LOSS_KEYS(sbit__loss_cross_entropy_keys)},
     false,
     sbit__loss_cross_entropy},
    {{"mse", "mean squared difference", 0, SBIT__LOSS_KEYS(sbit__loss_mse_keys)},
     true,
     sbit__loss_mse},
    {{"l1", "mean absolute difference", 0, NULL, 0}, true, sbit__loss_l1},
    {{"huber", "squared near 0, absolute beyond DELTA", 0, SBIT__LOSS_KEYS(sbit__loss_huber_keys)},
     true,
     sbit__loss_huber},
    {{"bce", "binary cross entropy of logits", 0, NULL, 0}, true, sbit__loss_bce},
    {{"kl", "distillation: the targets are a teacher's logits", 0,
      SBIT__LOSS_KEYS(sbit__loss_kl_keys)},
     true,
     sbit__loss_kl},
};

#undef SBIT__LOSS_KEYS

static const sbit_head *sbit__loss_head(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__losses) ? &sbit__losses[index].head : NULL;
}

SBIT__FN const sbit__kind *sbit__kind_loss(void)
{
    static const sbit__kind kind = {"loss", sbit__loss_head};
    return &kind;
}

SPARSEBIT_API sbit_status sbit_loss_register(sbit_ctx *ctx, const sbit_loss_row *row,
                                             sbit_error *error)
{
    return sbit__row_register(ctx, sbit__kind_loss(), row != NULL ? &row->head : NULL,
                              row != NULL && row->build != NULL, error);
}

SPARSEBIT_API const sbit_loss_row *sbit_loss_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_loss_row *)(const void *)sbit__row_find(ctx, sbit__kind_loss(), name);
}

SPARSEBIT_API const sbit_loss_row *sbit_loss_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__losses) ? &sbit__losses[index] : NULL;
}

SBIT__FN sbit_status sbit__loss_append(sbit_graph *graph, const sbit_loss_row *row,
                                       sbit_value_id output, sbit_value_id *target,
                                       sbit_value_id *loss, sbit_error *error)
{
    sbit_type type = sbit__type_unknown();
    sbit__arena arena;
    sbit_options options;
    sbit__key_table table;
    SBIT__TRY(sbit_infer(graph, error));
    if (row->like_output) {
        type = sbit_graph_value(graph, output)->type;
    }
    SBIT__TRY(sbit_graph_add_value(graph, "target", &type, target, error));
    SBIT__TRY(sbit_graph_set_input(graph, *target, true, error));
    table.prefix = "";
    table.keys = row->head.keys;
    table.count = row->head.key_count;
    sbit__arena_init(&arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    sbit_status status = sbit__options_init(&arena, &table, 1, &options, error);
    status = status == SBIT_OK ? row->build(graph, &options, output, *target, loss, error) : status;
    sbit__arena_deinit(&arena);
    return status;
}
