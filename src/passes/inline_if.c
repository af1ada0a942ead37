/* inline_if.c: If with a constant condition becomes the nodes of the branch taken.
 * >>pass-inline-if
 */
#include "passes_private.h"

static sbit_status sbit__inline_if_node(sbit__rewrite *rw, const sbit_node *node, sbit_error *error)
{
    const sbit_tensor *condition = sbit__const_in(rw->graph, node, 0);
    const sbit_attr *attr = NULL;
    sbit_value_id *results = NULL;
    if (condition == NULL || condition->dtype != SBIT_BOOL || sbit_tensor_count(condition) != 1) {
        return SBIT_OK;
    }
    attr = sbit_node_attr(node,
                          *(const uint8_t *)condition->data != 0 ? "then_branch" : "else_branch");
    if (attr == NULL || attr->type != SBIT_ONNX_ATTR_GRAPH || attr->g == NULL ||
        sbit_graph_output_count(attr->g) != node->output_count ||
        sbit_graph_input_count(attr->g) != 0) {
        return SBIT_OK;
    }
    results = (sbit_value_id *)sbit__arena_array(&rw->facts.arena, node->output_count + 1,
                                                 sizeof *results);
    if (results == NULL) {
        return sbit__fail_oom(error, node->output_count * sizeof *results);
    }
    SBIT__TRY(sbit__graph_inline_body(attr->g, node->id, NULL, results, error));
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0 && results[i].idx != 0) {
            SBIT__TRY(sbit_graph_replace_uses(rw->graph, node->outputs[i], results[i], error));
        }
    }
    sbit__erase_unused(rw->graph, node);
    rw->changes++;
    return SBIT_OK;
}

static sbit_status sbit__inline_if_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                       int64_t *changes, sbit_error *error)
{
    static const sbit__rule rules[] = {{"If", sbit__inline_if_node}};
    return sbit__apply_rules(graph, desc, rules, SBIT__COUNT_OF(rules), changes, error);
}

SBIT__FN const sbit_pass_row *sbit__pass_inline_if(void)
{
    static const sbit_pass_row row = {
        {"inline_if", "If with a constant condition becomes the branch that is taken", 0, NULL, 0},
        false,
        sbit__inline_if_run};
    return &row;
}
