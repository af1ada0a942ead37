/* build_graph.h: small graphs for tests, a line a node. Failures are failed checks. */
#ifndef SBIT_BUILD_GRAPH_H
#define SBIT_BUILD_GRAPH_H

#include "test.h"

static sbit_error build_error;

/* dims: -1 is the symbol "N". */
TEST_FN sbit_type build_type(sbit_graph *g, sbit_dtype dtype, int32_t rank, const int64_t *dims)
{
    sbit_type type;
    memset(&type, 0, sizeof type);
    type.dtype = dtype;
    type.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        type.dims[i].value = dims[i] < 0 ? 0 : dims[i];
        if (dims[i] < 0) {
            CHECK_OK(sbit_graph_symbol(g, "N", &type.dims[i].symbol, &build_error), build_error);
        }
    }
    return type;
}

TEST_FN sbit_value_id build_input(sbit_graph *g, const char *name, int32_t rank,
                                  const int64_t *dims)
{
    sbit_value_id id = {0};
    const sbit_type type = build_type(g, SBIT_F32, rank, dims);
    CHECK_OK(sbit_graph_add_value(g, name, &type, &id, &build_error), build_error);
    CHECK_OK(sbit_graph_set_input(g, id, true, &build_error), build_error);
    return id;
}

TEST_FN sbit_tensor build_tensor(sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                 const void *data)
{
    sbit_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
    }
    memcpy(&t.data, &data, sizeof data); /* lent as read-only */
    return t;
}

TEST_FN sbit_value_id build_const(sbit_graph *g, const char *name, int32_t rank,
                                  const int64_t *dims, const float *data)
{
    sbit_value_id id = {0};
    const sbit_tensor t = build_tensor(SBIT_F32, rank, dims, data);
    CHECK_OK(sbit_graph_add_constant(g, name, &t, &id, &build_error), build_error);
    return id;
}

/* A constant of seeded values in -scale..scale. */
TEST_FN sbit_value_id build_random(sbit_graph *g, const char *name, int32_t rank,
                                   const int64_t *dims, float scale, uint64_t seed)
{
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++) {
        count *= dims[i];
    }
    float *data = (float *)malloc((size_t)count * sizeof *data + 1);
    sbit_rng rng = sbit_rng_seed(seed);
    for (int64_t i = 0; i < count; i++) {
        data[i] = (2.0f * sbit_rng_uniform(&rng) - 1.0f) * scale;
    }
    const sbit_value_id id = build_const(g, name, rank, dims, data);
    free(data);
    return id;
}

TEST_FN sbit_value_id build_ints(sbit_graph *g, const char *name, int64_t count,
                                 const int64_t *data)
{
    sbit_value_id id = {0};
    const sbit_tensor t = build_tensor(SBIT_I64, 1, &count, data);
    CHECK_OK(sbit_graph_add_constant(g, name, &t, &id, &build_error), build_error);
    return id;
}

/* A node with one output named `out`; inputs end with idx 0 (see BUILD_NODE). */
TEST_FN sbit_value_id build_node(sbit_graph *g, const char *op, const char *out,
                                 const sbit_value_id *inputs, size_t input_count)
{
    sbit_node_desc desc;
    sbit_node_id node;
    sbit_value_id id = {0};
    memset(&desc, 0, sizeof desc);
    CHECK_OK(sbit_graph_add_value(g, out, NULL, &id, &build_error), build_error);
    desc.op_type = op;
    desc.name = out;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = &id;
    desc.output_count = 1;
    CHECK_OK(sbit_graph_add_node(g, &desc, &node, &build_error), build_error);
    return id;
}

TEST_FN sbit_value_id build_node1(sbit_graph *g, const char *op, const char *out, sbit_value_id a)
{
    return build_node(g, op, out, &a, 1);
}

TEST_FN sbit_value_id build_node2(sbit_graph *g, const char *op, const char *out, sbit_value_id a,
                                  sbit_value_id b)
{
    const sbit_value_id inputs[2] = {a, b};
    return build_node(g, op, out, inputs, 2);
}

TEST_FN sbit_value_id build_node3(sbit_graph *g, const char *op, const char *out, sbit_value_id a,
                                  sbit_value_id b, sbit_value_id c)
{
    const sbit_value_id inputs[3] = {a, b, c};
    return build_node(g, op, out, inputs, 3);
}

/* Attributes of the node that makes `value`. */
TEST_FN void build_attr_int(sbit_graph *g, sbit_value_id value, const char *name, int64_t i)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_INT;
    attr.i = i;
    CHECK_OK(sbit_graph_set_attr(g, sbit_graph_value(g, value)->producer, &attr, &build_error),
             build_error);
}

TEST_FN void build_attr_ints(sbit_graph *g, sbit_value_id value, const char *name, size_t count,
                             const int64_t *ints)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_INTS;
    attr.count = count;
    attr.ints = ints;
    CHECK_OK(sbit_graph_set_attr(g, sbit_graph_value(g, value)->producer, &attr, &build_error),
             build_error);
}

TEST_FN void build_output(sbit_graph *g, sbit_value_id value)
{
    CHECK_OK(sbit_graph_add_output(g, value, &build_error), build_error);
}

#endif /* SBIT_BUILD_GRAPH_H */
