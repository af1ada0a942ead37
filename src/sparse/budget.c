/* budget.c: the smallest ratios that meet a budget. >>sparse-budget
 *
 * One ratio for all layers, but for those whose own was set to 0; found by halving. Or one for each
 * group, from its sensitivity: the largest that leaves the outputs a signal-to-noise ratio of at least
 * t; t is found by halving among the ratios that were measured. What counts is the graph that would
 * be left, channels that cannot go included.
 */
#include "sparse_private.h"

#include <stdlib.h> /* qsort */

#define SBIT__BUDGET_TURNS 9 /* to 1/500 */
#define SBIT__BUDGET_RATIOS 9

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

static sbit_status sbit__budget_fail(const sbit_graph_cost *before, const sbit_graph_cost *after,
                                     const char *with, sbit_error *error)
{
    return sbit__fail(
        error, SBIT_ERR_LIMIT, NULL,
        "the budget cannot be met: with %s %.3f of the parameters, %.3f of the "
        "multiply-accumulates and %.3f of the bytes are left",
        with, sbit__budget_share((double)after->params, (double)before->params),
        sbit__budget_share((double)after->macs, (double)before->macs),
        sbit__budget_share((double)after->weight_bytes, (double)before->weight_bytes));
}

/* >>by sensitivity */

typedef struct sbit__budget_curves {
    sbit_sparse_loss *points;
    size_t count;
    double *levels; /* [count]: their SQNR, ascending */
} sbit__budget_curves;

static int sbit__budget_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The largest ratio with which what `layers` names leaves at least that. */
static double sbit__budget_ratio(const sbit__budget_curves *curves, const char *layers, double level)
{
    double ratio = 0.0;
    for (size_t i = 0; i < curves->count; i++) {
        const sbit_sparse_loss *point = &curves->points[i];
        if (point->layers == layers && point->sqnr >= level && point->ratio > ratio) {
            ratio = point->ratio;
        }
    }
    return ratio;
}

static void sbit__budget_level(sbit_sparse *sparse, const sbit__budget_curves *curves, double level)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        const sbit_option *own = sbit_options_find(&layer->options, "RATIO");
        double ratio = sbit__budget_ratio(curves, layer->name, level);
        for (int32_t g = 0; g < sparse->groups.group_count; g++) {
            const double of_group = sbit__layer_in_group(sparse, layer, g)
                                        ? sbit__budget_ratio(curves, sparse->group_names[g], level)
                                        : 0.0;
            ratio = of_group > ratio ? of_group : ratio;
        }
        layer->settings.ratio = own->is_set && own->f == 0.0 ? 0.0 : ratio;
        layer->target = layer->settings.ratio;
    }
}

static sbit_status sbit__budget_curves_of(sbit_sparse *sparse, const sbit_feed *feed,
                                          sbit__arena *arena, sbit__budget_curves *out,
                                          sbit_error *error)
{
    double ratios[SBIT__BUDGET_RATIOS];
    const size_t capacity =
        SBIT__BUDGET_RATIOS * ((size_t)sparse->groups.group_count + sparse->layer_count);
    for (int i = 0; i < SBIT__BUDGET_RATIOS; i++) {
        ratios[i] = 0.1 * (i + 1);
    }
    out->points =
        (sbit_sparse_loss *)sbit__arena_array(arena, capacity + 1, sizeof *out->points);
    out->levels = (double *)sbit__arena_array(arena, capacity + 1, sizeof *out->levels);
    if (out->points == NULL || out->levels == NULL) {
        return sbit__fail_oom(error, capacity * sizeof *out->points);
    }
    SBIT__TRY(sbit_sparse_analyze(sparse, feed, ratios, SBIT__BUDGET_RATIOS, out->points, capacity,
                                  &out->count, error));
    for (size_t i = 0; i < out->count; i++) {
        out->levels[i] = out->points[i].sqnr;
    }
    qsort(out->levels, out->count, sizeof *out->levels, sbit__budget_ascending);
    return SBIT_OK;
}

static sbit_status sbit__budget_by_sensitivity(sbit_sparse *sparse,
                                               const sbit_sparse_budget *budget,
                                               const sbit_feed *feed,
                                               const sbit_graph_cost *before, sbit__arena *arena,
                                               sbit_error *error)
{
    sbit__budget_curves curves;
    sbit_graph_cost after;
    size_t low = 0, high = 0; /* levels[low] meets it; from high on none does */
    memset(&curves, 0, sizeof curves);
    memset(&after, 0, sizeof after);
    SBIT__TRY(sbit__budget_curves_of(sparse, feed, arena, &curves, error));
    high = curves.count;
    for (size_t at = 0; at < high; at = low + (high - low) / 2) {
        sbit__budget_level(sparse, &curves, curves.levels[at]);
        SBIT__TRY(sbit_sparse_select(sparse, feed, error));
        SBIT__TRY(sbit__budget_left(sparse, true, &after, error));
        const bool met = sbit__budget_met(budget, before, &after);
        if (at == 0 && !met) {
            return sbit__budget_fail(before, &after, "ratio 0.9", error);
        }
        low = met ? at : low;
        high = met ? high : at;
        if (high - low <= 1) {
            break;
        }
    }
    if (curves.count > 0) {
        sbit__budget_level(sparse, &curves, curves.levels[low]);
    }
    return sbit_sparse_select(sparse, feed, error);
}

SPARSEBIT_API sbit_status sbit_sparse_fit(sbit_sparse *sparse, const sbit_sparse_budget *budget,
                                          const sbit_feed *feed, sbit_error *error)
{
    sbit_graph_cost before, after;
    double low = 0.0, high = 1.0;
    memset(&after, 0, sizeof after);
    if (budget == NULL || !(budget->params >= 0.0 && budget->macs >= 0.0 && budget->bytes >= 0.0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a budget is a share above 0");
    }
    SBIT__TRY(sbit__budget_left(sparse, false, &before, error));
    if (budget->by_sensitivity) {
        sbit__arena arena;
        sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
        const sbit_status status =
            sbit__budget_by_sensitivity(sparse, budget, feed, &before, &arena, error);
        sbit__arena_deinit(&arena);
        return status;
    }
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
            return sbit__budget_fail(&before, &after, "ratio 0.98", error);
        }
        SBIT__TRY(sbit__progress(sparse->ctx, "budget", turn + 1, SBIT__BUDGET_TURNS, error));
    }
    sbit__budget_set(sparse, high);
    return sbit_sparse_select(sparse, feed, error);
}
