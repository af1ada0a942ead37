/* builder.c: networks written in C: layers with initialised weights, as nodes of a graph. >>builder
 *
 * Called by: users. Calls: graph, infer.
 * Weights of convolutions begin with He's deviation sqrt(2 / fan in), so that the signal keeps its
 * size from layer to layer with Relu behind them, those of linear layers with sqrt(1 / fan in); with
 * `xavier` all with Glorot's sqrt(2 / (fan in + fan out)), which suits tanh; biases with 0;
 * BatchNormalization with scale 1, mean 0 and variance 1.
 */
#include "train_private.h"

#include <math.h> /* sqrt */

SPARSEBIT_API sbit_builder sbit_builder_init(sbit_graph *graph, uint64_t seed, sbit_error *error)
{
    sbit_builder b;
    memset(&b, 0, sizeof b);
    b.graph = graph;
    b.rng = sbit_rng_seed(seed);
    b.error = error;
    return b;
}

static sbit_value_id sbit__builder_add(sbit_builder *b, const char *op_type, const char *name,
                                       const sbit_value_id *inputs, size_t count,
                                       const sbit_attr *attrs, size_t attr_count)
{
    const sbit_node_id end = {0};
    sbit_value_id out = {0};
    if (b->status == SBIT_OK) {
        b->status = sbit__emit(b->graph, end, op_type, name, inputs, count, attrs, attr_count, &out,
                               b->error);
    }
    return out;
}

SPARSEBIT_API sbit_value_id sbit_builder_input(sbit_builder *b, const char *name, int32_t rank,
                                               const int64_t *dims)
{
    sbit_value_id id = {0};
    sbit_type type = sbit__type_unknown();
    type.dtype = SBIT_F32;
    type.rank = rank + 1;
    if (b->status == SBIT_OK) {
        b->status = sbit_graph_symbol(b->graph, "N", &type.dims[0].symbol, b->error);
    }
    type.dims[0].value = 0;
    for (int32_t i = 0; i < rank; i++) {
        type.dims[i + 1] = sbit__dim(dims[i]);
    }
    if (b->status == SBIT_OK) {
        b->status = sbit_graph_add_value(b->graph, name, &type, &id, b->error);
    }
    if (b->status == SBIT_OK) {
        b->status = sbit_graph_set_input(b->graph, id, true, b->error);
    }
    return id;
}

/* The length of an axis of x, which what is built so far must tell. */
static int64_t sbit__builder_dim(sbit_builder *b, sbit_value_id x, int32_t axis, const char *name)
{
    if (b->status == SBIT_OK) {
        b->status = sbit_infer(b->graph, b->error);
    }
    if (b->status != SBIT_OK) {
        return 1;
    }
    const sbit_type *type = &sbit_graph_value(b->graph, x)->type;
    axis = axis < 0 ? axis + type->rank : axis;
    if (type->rank <= axis || axis < 0 || !sbit__dim_known(type->dims[axis])) {
        b->status = sbit__fail(b->error, SBIT_ERR_SHAPE, name,
                               "layer '%s': axis %d of its input must be known", name, (int)axis);
        return 1;
    }
    return type->dims[axis].value;
}

/* A constant named "<name>.<what>": normal numbers of this deviation, or `value` if that is 0. */
static sbit_value_id sbit__builder_weight(sbit_builder *b, const char *name, const char *what,
                                          int32_t rank, const int64_t *dims, double deviation,
                                          float value)
{
    sbit_value_id id = {0};
    sbit_tensor tensor;
    char full[160];
    snprintf(full, sizeof full, "%.120s.%.32s", name, what);
    if (b->status == SBIT_OK) {
        b->status =
            sbit_tensor_alloc(sbit_graph_ctx(b->graph), SBIT_F32, rank, dims, &tensor, b->error);
    }
    if (b->status != SBIT_OK) {
        return id;
    }
    float *data = (float *)tensor.data;
    for (int64_t i = 0; i < sbit_tensor_count(&tensor); i++) {
        data[i] = deviation > 0.0 ? sbit_rng_normal(&b->rng) * (float)deviation : value;
    }
    b->status = sbit__graph_take_constant(b->graph, full, &tensor, &id, b->error);
    if (b->status != SBIT_OK) {
        sbit_tensor_free(sbit_graph_ctx(b->graph), &tensor);
    }
    return id;
}

static double sbit__builder_deviation(const sbit_builder *b, double in, double out, double gain)
{
    return b->xavier ? sqrt(2.0 / (in + out)) : gain / sqrt(in);
}

SPARSEBIT_API sbit_value_id sbit_builder_conv(sbit_builder *b, const char *name, sbit_value_id x,
                                              const sbit_conv_desc *desc)
{
    const int64_t in = sbit__builder_dim(b, x, 1, name), k = desc->kernel > 0 ? desc->kernel : 3;
    const int64_t groups = desc->groups > 0 ? desc->groups : 1, pad = (k - 1) / 2;
    const int64_t stride = desc->stride > 0 ? desc->stride : 1;
    const int64_t dims[4] = {desc->channels, in / groups, k, k};
    const int64_t pads[4] = {pad, pad, k - 1 - pad, k - 1 - pad}, strides[2] = {stride, stride};
    sbit_attr attrs[3];
    sbit_value_id inputs[3];
    if (b->status == SBIT_OK && (in % groups != 0 || desc->channels % groups != 0)) {
        b->status = sbit__fail(b->error, SBIT_ERR_INVALID_ARGUMENT, name,
                               "layer '%s': %lld and %lld channels do not divide into %lld groups",
                               name, (long long)in, (long long)desc->channels, (long long)groups);
    }
    attrs[0] = sbit__attr_ints("pads", pads, 4);
    attrs[1] = sbit__attr_ints("strides", strides, 2);
    attrs[2] = sbit__attr_int("group", groups);
    inputs[0] = x;
    inputs[1] = sbit__builder_weight(b, name, "weight", 4, dims,
                                     sbit__builder_deviation(b, (double)(in / groups * k * k),
                                                             (double)(desc->channels / groups * k * k), sqrt(2.0)),
                                     0.0f);
    inputs[2] = desc->bias ? sbit__builder_weight(b, name, "bias", 1, dims, 0.0, 0.0f) : inputs[1];
    return sbit__builder_add(b, "Conv", name, inputs, desc->bias ? 3 : 2, attrs, 3);
}

SPARSEBIT_API sbit_value_id sbit_builder_batch_norm(sbit_builder *b, const char *name,
                                                    sbit_value_id x)
{
    const int64_t channels = sbit__builder_dim(b, x, 1, name);
    sbit_value_id inputs[5];
    inputs[0] = x;
    inputs[1] = sbit__builder_weight(b, name, "weight", 1, &channels, 0.0, 1.0f);
    inputs[2] = sbit__builder_weight(b, name, "bias", 1, &channels, 0.0, 0.0f);
    inputs[3] = sbit__builder_weight(b, name, "running_mean", 1, &channels, 0.0, 0.0f);
    inputs[4] = sbit__builder_weight(b, name, "running_var", 1, &channels, 0.0, 1.0f);
    return sbit__builder_add(b, "BatchNormalization", name, inputs, 5, NULL, 0);
}

SPARSEBIT_API sbit_value_id sbit_builder_linear(sbit_builder *b, const char *name, sbit_value_id x,
                                                int64_t units)
{
    const int64_t in = sbit__builder_dim(b, x, -1, name), dims[2] = {units, in};
    const sbit_attr trans = sbit__attr_int("transB", 1);
    sbit_value_id inputs[3];
    inputs[0] = x;
    inputs[1] = sbit__builder_weight(b, name, "weight", 2, dims,
                                     sbit__builder_deviation(b, (double)in, (double)units, 1.0), 0.0f);
    inputs[2] = sbit__builder_weight(b, name, "bias", 1, dims, 0.0, 0.0f);
    return sbit__builder_add(b, "Gemm", name, inputs, 3, &trans, 1);
}

SPARSEBIT_API sbit_value_id sbit_builder_pool(sbit_builder *b, const char *op_type, sbit_value_id x,
                                              int64_t size)
{
    const int64_t sizes[2] = {size, size};
    sbit_attr attrs[2];
    attrs[0] = sbit__attr_ints("kernel_shape", sizes, 2);
    attrs[1] = sbit__attr_ints("strides", sizes, 2);
    return sbit__builder_add(b, op_type, op_type, &x, 1, attrs, size > 0 ? 2 : 0);
}

SPARSEBIT_API sbit_value_id sbit_builder_op(sbit_builder *b, const char *op_type, sbit_value_id x,
                                            sbit_value_id y)
{
    const sbit_value_id inputs[2] = {x, y};
    return sbit__builder_add(b, op_type, op_type, inputs, y.idx != 0 ? 2 : 1, NULL, 0);
}

SPARSEBIT_API sbit_status sbit_builder_output(sbit_builder *b, const char *name, sbit_value_id x)
{
    if (b->status == SBIT_OK) {
        b->status = sbit_graph_rename_value(b->graph, x, name, b->error);
    }
    if (b->status == SBIT_OK) {
        b->status = sbit_graph_add_output(b->graph, x, b->error);
    }
    return b->status == SBIT_OK ? sbit_infer(b->graph, b->error) : b->status;
}
