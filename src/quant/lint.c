/* lint.c: why a node is quantized or not. >>lint
 *
 * Called by: users (sparsebit lint). Calls: sites, flow, the profile's row.
 */
#include "quant_private.h"

/* The first site that concerns a node, an enabled one before others; NULL: none. */
static const sbit__site *sbit__lint_site(const sbit_quant *quant, sbit_node_id id)
{
    const sbit_node *node = sbit_graph_node(quant->graph, id);
    const sbit__site *found = NULL;
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *site = &quant->sites[i];
        const sbit_value_info *value = site->body == 0 ? sbit__site_value(site) : NULL;
        bool concerns = value != NULL && value->producer.idx == id.idx && site->all_uses;
        for (size_t k = 0; value != NULL && site->all_uses && k < node->input_count; k++) {
            concerns = concerns || node->inputs[k].idx == value->id.idx;
        }
        for (const sbit__site_use *use = site->uses; value != NULL && use != NULL;
             use = use->next) {
            concerns = concerns || use->node.idx == id.idx;
        }
        found = concerns && (found == NULL || (site->enabled && !found->enabled)) ? site : found;
    }
    return found;
}

static bool sbit__lint_skipped(const sbit_quant *quant, sbit_node_id id)
{
    const sbit_option *skip = sbit_options_find(&quant->config->tree.top, "SKIP_TRACE_MODULES");
    for (size_t i = 0; i < skip->list_count; i++) {
        if (sbit_layer_matches(quant->graph, id, skip->list[i])) {
            return true;
        }
    }
    return false;
}

/* What its inputs are: 1 some carry data, 2 some are constants, 4 some must stay exact. */
static uint32_t sbit__lint_inputs(const sbit_quant *quant, const sbit_node *node)
{
    const sbit__site_graph *facts = sbit__site_graph_of(quant, quant->graph);
    uint32_t found = 0;
    for (size_t k = 0; k < node->input_count; k++) {
        const sbit_value_id id = node->inputs[k];
        if (id.idx != 0) {
            const bool constant = sbit_graph_value(quant->graph, id)->is_constant;
            found |= facts->data[id.idx] ? 1u : 0u;
            found |= constant ? 2u : 0u;
            found |= facts->exact[id.idx] ? 4u : 0u;
        }
    }
    if (node->output_count > 0 && node->outputs[0].idx != 0) {
        found |= facts->exact[node->outputs[0].idx] ? 4u : 0u;
    }
    return found;
}

SPARSEBIT_API const char *sbit_quant_reason(const sbit_quant *quant, sbit_node_id id)
{
    const sbit_node *node = sbit_graph_node(quant->graph, id);
    const sbit_op_row *row = sbit_operator_find(quant->ctx, node->domain, node->op_type,
                                                sbit_graph_opset(quant->graph, node->domain));
    const sbit_op_quant *q = row != NULL ? row->quant : NULL;
    const sbit__site *site = sbit__lint_site(quant, id);
    const char *const *listed = quant->profile->inputs;
    const uint32_t inputs = sbit__lint_inputs(quant, node);
    const int64_t least = sbit_options_int(&quant->config->tree.top, "EXPORT.SMALLEST_WEIGHT");
    if (site != NULL) {
        return site->enabled ? "" : site->reason;
    }
    if ((inputs & 1u) == 0) {
        return "follows from shapes and constants";
    }
    if ((inputs & 4u) != 0) {
        return "attention scores with a mask, or inside of a function written in pieces: exact";
    }
    if (sbit__lint_skipped(quant, id)) {
        return "named in SKIP_TRACE_MODULES";
    }
    if (sbit__word_listed(quant->profile->clamps, node->op_type)) {
        return "a clamp: goes with the operator before it";
    }
    if (q == NULL) {
        return "no target has quantizers at this operator";
    }
    if ((q->flags & SBIT_QUANT_KEEP_FLOAT) != 0) {
        return "targets compute it in float between quantizers";
    }
    if (listed != NULL && !sbit__word_listed(listed, node->op_type)) {
        return "the target does not list this operator";
    }
    if ((q->flags & SBIT_QUANT_TENSOR_ONLY) != 0 && (inputs & 2u) != 0) {
        return "one operand is a constant: it continues what is before it";
    }
    if (least > 0 && q->weight >= 0) {
        return "its weight has fewer elements than EXPORT.SMALLEST_WEIGHT";
    }
    if ((q->flags & SBIT_QUANT_PASS_SCALE) != 0) {
        return "passes values on: needs no quantizer";
    }
    return (q->flags & SBIT_QUANT_INPUTS) == 0 ? "nothing quantized is around it"
                                               : "its tensors are no floats that carry data";
}
