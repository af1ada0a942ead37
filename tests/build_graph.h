/* build_graph.h: small graphs for tests, in few words. Include after sparsebit.h and test.h.
 *
 *     build b;
 *     build_begin(&b, 17);
 *     sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
 *     sbit_value_id y = build_node(&b, "Relu", "r", &x, 1, NULL, 0);
 *     build_output(&b, y);
 *     ...
 *     build_end(&b);
 *
 * Dimensions are text: numbers, names (symbols), "?" (unknown), "" (a scalar). A failure is a
 * failed check and sets b.failed; later calls then do nothing.
 */
#ifndef SBIT_BUILD_GRAPH_H
#define SBIT_BUILD_GRAPH_H

typedef struct build {
    sbit_ctx *ctx;
    sbit_graph *graph;
    sbit_error error;
    bool failed;
    int warnings;
    char warning[600]; /* the last one */
} build;

TEST_FN void build_log(sbit_log_level level, const char *message, void *user)
{
    build *b = (build *)user;
    if (level == SBIT_LOG_WARNING) {
        b->warnings++;
        snprintf(b->warning, sizeof b->warning, "%s", message);
    }
}

TEST_FN bool build_do(build *b, sbit_status status, const char *what)
{
    if (status != SBIT_OK) {
        CHECK_MSG(false, "%s: %s", what, b->error.message);
        b->failed = true;
    }
    return status == SBIT_OK;
}

/* b must stay where it is: the logger points to it. */
TEST_FN void build_begin_threads(build *b, int64_t opset, int32_t threads)
{
    sbit_ctx_desc desc;
    memset(b, 0, sizeof *b);
    memset(&desc, 0, sizeof desc);
    desc.threads = threads;
    desc.logger.log_fn = build_log;
    desc.logger.user = b;
    if (build_do(b, sbit_ctx_create(&desc, &b->ctx, &b->error), "context")) {
        build_do(b, sbit_graph_create(b->ctx, opset, &b->graph, &b->error), "graph");
    }
}

TEST_FN void build_begin(build *b, int64_t opset)
{
    build_begin_threads(b, opset, test_threads());
}

TEST_FN void build_end(build *b)
{
    sbit_graph_destroy(b->graph);
    sbit_ctx_destroy(b->ctx);
}

TEST_FN sbit_type build_type(build *b, sbit_dtype dtype, const char *dims)
{
    sbit_type type;
    memset(&type, 0, sizeof type);
    type.dtype = dtype;
    while (*dims != '\0') {
        char name[64];
        size_t n = strcspn(dims, ",");
        sbit_dim *dim = &type.dims[type.rank++];
        snprintf(name, sizeof name, "%.*s", (int)n, dims);
        if (strcmp(name, "?") == 0) {
            dim->symbol = SBIT_SYMBOL_ANY;
        } else if (name[0] >= '0' && name[0] <= '9') {
            dim->value = atoi(name);
        } else {
            build_do(b, sbit_graph_symbol(b->graph, name, &dim->symbol, &b->error), "symbol");
        }
        dims += n + (dims[n] == ',' ? 1 : 0);
    }
    return type;
}

TEST_FN sbit_value_id build_value(build *b, const char *name, const sbit_type *type)
{
    sbit_value_id id = {0};
    if (!b->failed) {
        build_do(b, sbit_graph_add_value(b->graph, name, type, &id, &b->error), name);
    }
    return id;
}

TEST_FN sbit_value_id build_input(build *b, const char *name, sbit_dtype dtype, const char *dims)
{
    const sbit_type type = build_type(b, dtype, dims);
    const sbit_value_id id = build_value(b, name, &type);
    if (!b->failed) {
        build_do(b, sbit_graph_set_input(b->graph, id, true, &b->error), name);
    }
    return id;
}

/* A tensor that views `data`. */
TEST_FN sbit_tensor build_tensor(sbit_dtype dtype, const char *dims, const void *data)
{
    sbit_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = dtype;
    while (*dims != '\0') {
        const size_t n = strcspn(dims, ",");
        tensor.dims[tensor.rank++] = atoi(dims);
        dims += n + (dims[n] == ',' ? 1 : 0);
    }
    memcpy(&tensor.data, &data, sizeof data);
    return tensor;
}

TEST_FN sbit_value_id build_constant(build *b, const char *name, sbit_dtype dtype, const char *dims,
                                     const void *data)
{
    const sbit_tensor tensor = build_tensor(dtype, dims, data);
    sbit_value_id id = {0};
    if (!b->failed) {
        build_do(b, sbit_graph_add_constant(b->graph, name, &tensor, &id, &b->error), name);
    }
    return id;
}

/* A float constant of small numbers that differ: reproducible, by a name's seed. */
TEST_FN sbit_value_id build_weights(build *b, const char *name, const char *dims, uint64_t seed)
{
    sbit_rng rng = sbit_rng_seed(seed);
    sbit_tensor shape = build_tensor(SBIT_F32, dims, NULL);
    const int64_t count = sbit_tensor_count(&shape);
    float *data = (float *)malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        data[i] = sbit_rng_uniform(&rng) - 0.5f;
    }
    const sbit_value_id id = build_constant(b, name, SBIT_F32, dims, data);
    free(data);
    return id;
}

/* A node with `out_count` new outputs called name, name_1, ... */
TEST_FN sbit_node_id build_node_outputs(build *b, const char *domain, const char *op_type,
                                        const char *name, const sbit_value_id *inputs,
                                        size_t input_count, const sbit_attr *attrs,
                                        size_t attr_count, sbit_value_id *outputs, size_t out_count)
{
    sbit_node_desc desc;
    sbit_node_id id = {0};
    sbit_type unknown;
    memset(&desc, 0, sizeof desc);
    memset(&unknown, 0, sizeof unknown);
    unknown.rank = -1;
    for (size_t i = 0; i < out_count; i++) {
        outputs[i] = build_value(b, name, &unknown);
    }
    desc.op_type = op_type;
    desc.domain = domain;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = outputs;
    desc.output_count = out_count;
    desc.attrs = attrs;
    desc.attr_count = attr_count;
    if (!b->failed) {
        build_do(b, sbit_graph_add_node(b->graph, &desc, &id, &b->error), name);
    }
    return id;
}

/* An ai.onnx node with one output, which it gives. */
TEST_FN sbit_value_id build_node(build *b, const char *op_type, const char *name,
                                 const sbit_value_id *inputs, size_t input_count,
                                 const sbit_attr *attrs, size_t attr_count)
{
    sbit_value_id output = {0};
    build_node_outputs(b, "", op_type, name, inputs, input_count, attrs, attr_count, &output, 1);
    return output;
}

TEST_FN sbit_value_id build_unary(build *b, const char *op_type, const char *name, sbit_value_id x)
{
    return build_node(b, op_type, name, &x, 1, NULL, 0);
}

TEST_FN sbit_value_id build_binary(build *b, const char *op_type, const char *name, sbit_value_id x,
                                   sbit_value_id y)
{
    const sbit_value_id inputs[2] = {x, y};
    return build_node(b, op_type, name, inputs, 2, NULL, 0);
}

TEST_FN void build_output(build *b, sbit_value_id id)
{
    if (!b->failed) {
        build_do(b, sbit_graph_add_output(b->graph, id, &b->error), "output");
    }
}

TEST_FN sbit_attr build_ints(const char *name, const int64_t *values, size_t count)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_INTS;
    attr.ints = values;
    attr.count = count;
    return attr;
}

TEST_FN sbit_attr build_int(const char *name, int64_t value)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_INT;
    attr.i = value;
    return attr;
}

TEST_FN sbit_attr build_float(const char *name, float value)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_FLOAT;
    attr.f = value;
    return attr;
}

/* "float32[N,4]" of a value of the graph. */
TEST_FN const char *build_type_text(const build *b, sbit_value_id id, char *text, size_t size)
{
    const sbit_type *type = &sbit_graph_value(b->graph, id)->type;
    size_t used = (size_t)snprintf(text, size, "%s[", sbit_dtype_name((int32_t)type->dtype));
    if (type->rank < 0) {
        used += (size_t)snprintf(text + used, size - used, "...");
    }
    for (int32_t i = 0; i < type->rank && used < size; i++) {
        const sbit_dim dim = type->dims[i];
        if (dim.symbol == 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%lld", i > 0 ? "," : "",
                                     (long long)dim.value);
        } else {
            used += (size_t)snprintf(
                text + used, size - used, "%s%s", i > 0 ? "," : "",
                dim.symbol == SBIT_SYMBOL_ANY ? "?" : sbit_graph_symbol_name(b->graph, dim.symbol));
        }
    }
    snprintf(text + used, used < size ? size - used : 0, "]");
    return text;
}

#endif /* SBIT_BUILD_GRAPH_H */
