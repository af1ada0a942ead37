/* expand.c: operators written with others: taking a node out, putting others in. >>expand
 *
 * See expand_private.h.
 */
#include "expand_private.h"

#include <stdio.h> /* snprintf */

SBIT__FN sbit__expand sbit__expand_of(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e;
    memset(&e, 0, sizeof e);
    e.graph = graph;
    e.node = *sbit_graph_node(graph, id);
    e.before = id;
    e.opset = sbit_graph_opset(graph, "");
    e.error = error;
    e.dtype = sbit_graph_value(graph, e.node.inputs[0])->type.dtype;
    return e;
}

SBIT__FN void sbit__expand_erase(sbit__expand *e)
{
    const sbit_node_id id = e->before;
    e->before = sbit_graph_next(e->graph, id);
    sbit_graph_erase_node(e->graph, id);
}

SBIT__FN sbit__expand sbit__expand_begin(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e = sbit__expand_of(graph, id, error);
    sbit__expand_erase(&e);
    return e;
}

SBIT__FN void sbit__expand_fail(sbit__expand *e, sbit_status status, const char *why)
{
    if (e->status == SBIT_OK) {
        e->status = sbit__fail(e->error, status, e->node.name, "%s '%s': %s", e->node.op_type,
                               e->node.name, why);
    }
}

SBIT__FN sbit_value_id sbit__expand_in(const sbit__expand *e, size_t i)
{
    return i < e->node.input_count ? e->node.inputs[i] : sbit__expand_none;
}

SBIT__FN sbit_value_id sbit__expand_out(const sbit__expand *e, size_t i)
{
    return i < e->node.output_count ? e->node.outputs[i] : sbit__expand_none;
}

SBIT__FN sbit_value_id sbit__expand_value(sbit__expand *e, const char *name)
{
    sbit_value_id id = sbit__expand_none;
    const sbit_type unknown = sbit__type_unknown();
    if (e->status == SBIT_OK) {
        e->status = sbit_graph_add_value(e->graph, name, &unknown, &id, e->error);
    }
    return id;
}

SBIT__FN void sbit__expand_node(sbit__expand *e, const char *domain, const char *op_type,
                                const sbit_value_id *inputs, size_t input_count,
                                const sbit_value_id *outputs, size_t output_count,
                                const sbit_attr *attrs, size_t attr_count)
{
    sbit_node_desc desc;
    sbit_node_id made;
    memset(&desc, 0, sizeof desc);
    desc.domain = domain;
    desc.op_type = op_type;
    desc.name = e->node.name;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = outputs;
    desc.output_count = output_count;
    desc.attrs = attrs;
    desc.attr_count = attr_count;
    desc.before = e->before;
    if (e->status == SBIT_OK) {
        e->status = sbit_graph_add_node(e->graph, &desc, &made, e->error);
    }
}

SBIT__FN sbit_value_id sbit__expand_op(sbit__expand *e, const char *op_type, sbit_value_id a,
                                       sbit_value_id b, const sbit_attr *attr, sbit_value_id out)
{
    sbit_value_id inputs[2];
    inputs[0] = a;
    inputs[1] = b;
    out = out.idx != 0 ? out : sbit__expand_value(e, op_type);
    sbit__expand_node(e, "", op_type, inputs, b.idx != 0 ? 2 : 1, &out, 1, attr,
                      attr != NULL ? 1 : 0);
    return out;
}

/* >>pieces */

SBIT__FN void sbit__expand_needs(sbit__expand *e, int64_t version)
{
    char text[96];
    if (e->opset < version) {
        snprintf(text, sizeof text, "it can be run from opset %d on, this model has %d",
                 (int)version, (int)e->opset);
        sbit__expand_fail(e, SBIT_ERR_UNSUPPORTED, text);
    }
}

SBIT__FN const sbit_type *sbit__expand_in_type(const sbit__expand *e, size_t i)
{
    const sbit_value_id id = sbit__expand_in(e, i);
    return id.idx != 0 ? &sbit_graph_value(e->graph, id)->type : NULL;
}

SBIT__FN int64_t sbit__expand_dim(const sbit__expand *e, size_t i, int32_t axis)
{
    const sbit_type *type = sbit__expand_in_type(e, i);
    axis += type != NULL && axis < 0 ? type->rank : 0;
    return type != NULL && axis >= 0 && axis < type->rank && sbit__dim_known(type->dims[axis])
               ? type->dims[axis].value
               : -1;
}

SBIT__FN sbit_value_id sbit__expand_constant(sbit__expand *e, const sbit_tensor *tensor)
{
    sbit_value_id id = sbit__expand_none;
    if (e->status == SBIT_OK) {
        e->status = sbit_graph_add_constant(e->graph, "of_operator", tensor, &id, e->error);
    }
    return id;
}

SBIT__FN sbit_value_id sbit__expand_ints(sbit__expand *e, const int64_t *values, int64_t count)
{
    sbit_tensor tensor;
    int64_t copy[SBIT_MAX_RANK];
    memcpy(copy, values, (size_t)count * sizeof *values);
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = SBIT_I64;
    tensor.rank = 1;
    tensor.dims[0] = count;
    tensor.data = copy;
    return sbit__expand_constant(e, &tensor);
}

SBIT__FN sbit_value_id sbit__expand_scalar(sbit__expand *e, double value)
{
    sbit_tensor tensor;
    double store = 0.0;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = (SBIT_T(e->dtype) & SBIT_T_NUMBERS) != 0 ? e->dtype : SBIT_F32;
    tensor.data = &store;
    sbit__tensor_set_f64(&tensor, 0, value);
    return sbit__expand_constant(e, &tensor);
}

SBIT__FN sbit_value_id sbit__expand_cast(sbit__expand *e, sbit_value_id x, sbit_dtype to)
{
    const sbit_attr attr = sbit__attr_int("to", (int64_t)(to == SBIT_UNDEFINED ? SBIT_F32 : to));
    return sbit__expand_op(e, "Cast", x, sbit__expand_none, &attr, sbit__expand_none);
}

SBIT__FN sbit_value_id sbit__expand_reshape(sbit__expand *e, sbit_value_id x, const int64_t *dims,
                                            int64_t count)
{
    return sbit__expand_op(e, "Reshape", x, sbit__expand_ints(e, dims, count), NULL,
                           sbit__expand_none);
}

SBIT__FN sbit_value_id sbit__expand_transpose(sbit__expand *e, sbit_value_id x, const int64_t *perm,
                                              int32_t rank, sbit_value_id out)
{
    const sbit_attr attr = sbit__attr_ints("perm", perm, (size_t)rank);
    return sbit__expand_op(e, "Transpose", x, sbit__expand_none, &attr, out);
}

SBIT__FN sbit_value_id sbit__expand_slice(sbit__expand *e, sbit_value_id x, int64_t axis,
                                          int64_t from, int64_t to)
{
    sbit_value_id inputs[4], out = sbit__expand_value(e, "part");
    sbit__expand_needs(e, 10);
    inputs[0] = x;
    inputs[1] = sbit__expand_ints(e, &from, 1);
    inputs[2] = sbit__expand_ints(e, &to, 1);
    inputs[3] = sbit__expand_ints(e, &axis, 1);
    sbit__expand_node(e, "", "Slice", inputs, 4, &out, 1, NULL, 0);
    return out;
}
