/* budget.c: the smallest ratio that meets a budget. >>sparse-budget
 *
 * One ratio for all layers, but for those whose own was set to 0; found by halving. What counts is
 * the graph that would be left, channels that cannot go included.
 */
#include "sparse_private.h"

#define SBIT__BUDGET_TURNS 9 /* to 1/500 */

/* Cost at the size that channels were labelled at. */
static sbit_status sbit__budget_cost(const sbit_sparse *sparse, sbit_graph *graph,
                                     sbit_graph_cost *out, sbit_error *error)
{
    for (size_t i = 0; i < sbit_graph_input_count(graph); i++) {
        const sbit_value_id id = sbit_graph_input(graph, i);
        sbit_graph_set_type(graph, id, sparse->labeler.infer.types[id.idx]);
    }
    SBIT__TRY(sbit_infer(graph, error));
    return sbit_graph_cost_of(graph, out, error);
}

static sbit_status sbit__budget_left(sbit_sparse *sparse, bool cut, sbit_graph_cost *out,
                                     sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit_graph_clone(sparse->graph, &graph, error));
    sbit_status status = cut ? sbit__cut(sparse, graph, error) : SBIT_OK;
    status = status == SBIT_OK ? sbit__budget_cost(sparse, graph, out, error) : status;
    sbit_graph_destroy(graph);
    return status;
}

static double sbit__budget_share(double after, double before)
{
    return before > 0.0 ? after / before : 1.0;
}

static bool sbit__budget_met(const sbit_sparse_budget *budget, const sbit_graph_cost *before,
                             const sbit_graph_cost *after)
{
    const double params = sbit__budget_share((double)after->params, (double)before->params);
    const double macs = sbit__budget_share((double)after->macs, (double)before->macs);
    const double bytes =
        sbit__budget_share((double)after->weight_bytes, (double)before->weight_bytes);
    return (budget->params == 0.0 || params <= budget->params) &&
           (budget->macs == 0.0 || macs <= budget->macs) &&
           (budget->bytes == 0.0 || bytes <= budget->bytes);
}

static void sbit__budget_set(sbit_sparse *sparse, double ratio)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        const sbit_option *own = sbit_options_find(&layer->options, "RATIO");
        layer->settings.ratio = own->is_set && own->f == 0.0 ? 0.0 : ratio;
        layer->target = layer->settings.ratio;
    }
}

SPARSEBIT_API sbit_status sbit_sparse_fit(sbit_sparse *sparse, const sbit_sparse_budget *budget,
                                          const sbit_feed *feed, sbit_error *error)
{
    sbit_graph_cost before, after;
    double low = 0.0, high = 1.0;
    if (budget == NULL || !(budget->params >= 0.0 && budget->macs >= 0.0 && budget->bytes >= 0.0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a budget is a share above 0");
    }
    SBIT__TRY(sbit__budget_left(sparse, false, &before, error));
    for (int turn = 0; turn < SBIT__BUDGET_TURNS; turn++) {
        const double ratio = turn == 0 ? 0.98 : 0.5 * (low + high);
        sbit__budget_set(sparse, ratio);
        SBIT__TRY(sbit_sparse_select(sparse, feed, error));
        SBIT__TRY(sbit__budget_left(sparse, true, &after, error));
        if (!sbit__budget_met(budget, &before, &after)) {
            low = ratio;
        } else {
            high = ratio;
        }
        if (turn == 0 && high > ratio) {
            return sbit__fail(
                error, SBIT_ERR_LIMIT, NULL,
                "the budget cannot be met: with ratio 0.98 %.3f of the parameters, %.3f of the "
                "multiply-accumulates and %.3f of the bytes are left",
                sbit__budget_share((double)after.params, (double)before.params),
                sbit__budget_share((double)after.macs, (double)before.macs),
                sbit__budget_share((double)after.weight_bytes, (double)before.weight_bytes));
        }
        SBIT__TRY(sbit__progress(sparse->ctx, "budget", turn + 1, SBIT__BUDGET_TURNS, error));
    }
    sbit__budget_set(sparse, high);
    return sbit_sparse_select(sparse, feed, error);
}
