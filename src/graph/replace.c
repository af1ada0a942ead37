/* replace.c: moving all uses of a value to another one. >>replace
 *
 * Called by: passes, all the time. Calls: ir, edit.
 * The names of the root graph's outputs are part of the model's interface. When the replaced value
 * was an output, the new one takes its name over; where it cannot (an input, another output), an
 * Identity node gives the name. A body's outputs have no outside names: they are only re-pointed.
 */
#include "graph_private.h"

/* Exchanges the names of two values that define theirs. Needs no memory: two names leave the maps
 * before two come in. */
static void sbit__replace_swap_names(sbit_graph *graph, sbit_value_id a, sbit_value_id b)
{
    sbit__graph_value *first = graph->values[a.idx], *second = graph->values[b.idx];
    const char *name = first->info.name;
    sbit__graph_release_name(graph, false, first->info.name, a.idx);
    sbit__graph_release_name(graph, false, second->info.name, b.idx);
    first->info.name = second->info.name;
    second->info.name = name;
    (void)sbit__graph_hold_name(graph, false, first->info.name, a.idx, NULL);
    (void)sbit__graph_hold_name(graph, false, second->info.name, b.idx, NULL);
    sbit__graph_spread_name(graph, a);
    sbit__graph_spread_name(graph, b);
}

/* A new value, with room for the uses of `from`, that an Identity node makes from `to`. */
static sbit_status sbit__replace_add_identity(sbit_graph *graph, sbit_value_id from,
                                              sbit_value_id to, sbit_value_id *out,
                                              sbit_error *error)
{
    const sbit__graph_value *old = graph->values[from.idx];
    sbit_node_desc desc;
    sbit_value_id carrier = {0};
    SBIT__TRY(sbit_graph_add_value(graph, old->info.name, &old->info.type, &carrier, error));
    memset(&desc, 0, sizeof(desc));
    desc.op_type = "Identity";
    desc.inputs = &to;
    desc.input_count = 1;
    desc.outputs = &carrier;
    desc.output_count = 1;
    sbit_status status = sbit__graph_reserve_uses(graph, carrier, old->info.use_count, error);
    if (status == SBIT_OK) {
        status = sbit_graph_add_node(graph, &desc, NULL, error);
    }
    if (status != SBIT_OK) {
        sbit_graph_erase_value(graph, carrier);
        return status;
    }
    *out = carrier;
    return SBIT_OK;
}

/* The value that will carry the name of the output `from`: `to` itself, under a free name for the
 * moment, or an Identity of it. */
static sbit_status sbit__replace_carrier(sbit_graph *graph, sbit_value_id from, sbit_value_id to,
                                         sbit_value_id *out, sbit_error *error)
{
    sbit__graph_value *target = graph->values[to.idx];
    if (target->info.is_input || target->info.is_output) {
        return sbit__replace_add_identity(graph, from, to, out, error);
    }
    const char *fresh = NULL;
    SBIT__TRY(
        sbit__graph_unique_name(graph, false, graph->values[from.idx]->info.name, &fresh, error));
    SBIT__TRY(sbit__graph_hold_name(graph, false, fresh, to.idx, error));
    sbit__graph_release_name(graph, false, target->info.name, to.idx);
    target->info.name = fresh;
    *out = to;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_replace_uses(sbit_graph *graph, sbit_value_id from,
                                                  sbit_value_id to, sbit_error *error)
{
    if (!sbit_graph_value_alive(graph, from) || !sbit_graph_value_alive(graph, to)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "value %lu or %lu does not exist",
                          (unsigned long)from.idx, (unsigned long)to.idx);
    }
    sbit__graph_value *value = graph->values[from.idx];
    if (from.idx == to.idx || value->info.use_count == 0) {
        return SBIT_OK;
    }
    sbit_value_id output = to;
    const bool keep_name = value->info.is_output && graph->parent == NULL;
    SBIT__TRY(sbit__graph_reserve_uses(graph, to, (size_t)value->info.use_count + 1, error));
    if (keep_name) {
        SBIT__TRY(sbit__replace_carrier(graph, from, to, &output, error));
    }
    for (uint32_t i = 0; i < value->info.use_count; i++) {
        const sbit_use use = value->uses[i];
        sbit_value_id target = to;
        if (use.body != NULL) {
            use.body->values[use.index]->info.outer = to;
        } else if (use.node.idx != 0) {
            graph->nodes[use.node.idx]->inputs[use.index] = to;
        } else {
            target = output;
            graph->outputs[use.index] = output;
        }
        sbit__graph_put_use(graph, target, use.node, use.index, use.body);
    }
    value->info.use_count = 0;
    value->info.is_output = false;
    if (keep_name) {
        sbit__replace_swap_names(graph, from, output);
        graph->values[output.idx]->info.source = value->info.source; /* the output's doc string */
    }
    sbit__graph_spread_name(graph, to);
    return SBIT_OK;
}
