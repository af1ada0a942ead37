/* expand.c: operators written with others: taking a node out, putting others in. >>expand
 *
 * See expand_private.h.
 */
#include "expand_private.h"

SBIT__FN sbit__expand sbit__expand_begin(sbit_graph *graph, sbit_node_id id, sbit_error *error)
{
    sbit__expand e;
    memset(&e, 0, sizeof e);
    e.graph = graph;
    e.node = *sbit_graph_node(graph, id);
    e.before = sbit_graph_next(graph, id);
    e.opset = sbit_graph_opset(graph, "");
    e.error = error;
    e.dtype = sbit_graph_value(graph, e.node.inputs[0])->type.dtype;
    sbit_graph_erase_node(graph, id);
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
