/* search.c: a budget is met: what the rows of searches.c are run with. >>sparse-budget
 *
 * What counts is the graph that would be left, channels that cannot go included.
 */
#include "../measure/latency_private.h"
#include "sparse_private.h"

#include <math.h> /* fabs, pow */

enum {
    SBIT__SEARCH_TURNS = 3, /* that a result is measured in, at most */
    SBIT__SEARCH_STEPS = 10 /* of budgets that a new table learns */
};
#define SBIT__SEARCH_OFF 0.03 /* what a result's time may be off by before the table learns it */

/* >>costs */

static const char *const sbit__budget_words[SBIT__BUDGETS] = {
    "of the parameters", "of the multiply-accumulates", "of the bytes", "of the time"};

/* Cost at the size that channels were labelled at; weights of the graph become what a file holds. */
static sbit_status sbit__budget_cost(const sbit_search *search, sbit_graph *graph, double *out,
                                     sbit_error *error)
{
    const sbit_sparse *sparse = search->sparse;
    sbit_graph_cost cost;
    out[SBIT__BUDGET_TIME] = 0.0;
    if (search->limits[SBIT__BUDGET_TIME] > 0.0) {
        SBIT__TRY(sbit__latency_of(search->times, sparse, graph, &out[SBIT__BUDGET_TIME], error));
    }
    for (size_t i = 0; i < sbit_graph_input_count(graph); i++) {
        const sbit_value_id id = sbit_graph_input(graph, i);
        sbit_graph_set_type(graph, id, sparse->labeler.infer.types[id.idx]);
    }
    SBIT__TRY(sbit__packed_close(sparse, graph, error));
    SBIT__TRY(sbit_infer(graph, error));
    SBIT__TRY(sbit_graph_cost_of(graph, &cost, error));
    out[SBIT__BUDGET_PARAMS] = (double)cost.params;
    out[SBIT__BUDGET_MACS] = (double)cost.macs;
    out[SBIT__BUDGET_BYTES] = (double)cost.weight_bytes;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__sparse_left(sbit_sparse *sparse, sbit_graph **out, sbit_error *error)
{
    SBIT__TRY(sbit_graph_clone(sparse->graph, out, error));
    const sbit_status status = sbit__cut(sparse, *out, error);
    if (status != SBIT_OK) {
        sbit_graph_destroy(*out);
        *out = NULL;
    }
    return status;
}

static sbit_status sbit__budget_left(const sbit_search *search, double *out, sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit__sparse_left(search->sparse, &graph, error));
    const sbit_status status = sbit__budget_cost(search, graph, out, error);
    sbit_graph_destroy(graph);
    return status;
}

static double sbit__budget_share(double after, double before)
{
    return before > 0.0 ? after / before : 1.0;
}

/* >>services */

SPARSEBIT_API size_t sbit_search_unit_count(const sbit_search *search)
{
    return search->unit_count;
}

SPARSEBIT_API sbit_search_unit sbit_search_unit_at(const sbit_search *search, size_t index)
{
    const sbit_sparse *sparse = search->sparse;
    sbit_search_unit out;
    SPARSEBIT_ASSERT(index < search->unit_count);
    const sbit__alone *alone = &search->units[index];
    out.layers = sbit__alone_name(sparse, alone);
    out.parameters = 0;
    sbit__alone_kept(sparse, alone, &out.count);
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_value_id id = sparse->labeler.members[sparse->layers[i].member].value;
        out.parameters += sbit__alone_has(sparse, alone, i)
                              ? sbit_tensor_count(&sbit_graph_value(sparse->graph, id)->constant)
                              : 0;
    }
    return out;
}

static sbit_status sbit__search_score(sbit_search *search, double *out, sbit_error *error)
{
    sbit_sparse *sparse = search->sparse;
    const sbit_sparse_budget *budget = search->budget;
    double sqnr = 0.0;
    sbit_graph_destroy(search->tuned);
    search->tuned = NULL;
    SBIT__TRY(sbit_sparse_masked(sparse, &search->tuned, error));
    if (search->tuning.steps > 0) {
        search->tuning.graph = search->tuned;
        SBIT__TRY(budget->tune(&search->tuning, error));
    }
    if (budget->measure != NULL) {
        return budget->measure(search->tuned, budget->user, out, error);
    }
    SBIT__TRY(
        sbit__repair_compare(sparse, search->feed, search->before, search->tuned, &sqnr, error));
    *out = -pow(10.0, -0.1 * sqnr);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__search_tunes(sbit_search *search, int64_t steps, int64_t batch,
                                        double rate, sbit_error *error)
{
    if (steps > 0 && (search->budget->tune == NULL || search->feed == NULL)) {
        return sbit__fail(error, SBIT_ERR_STATE, search->row->head.name,
                          "SEARCH %s is to train between its steps: give it data with labels, and "
                          "sbit_sparse_budget.tune",
                          search->row->head.name);
    }
    search->tuning.sparse = search->sparse;
    search->tuning.feed = search->feed;
    search->tuning.loss = sbit_options_string(&search->sparse->options, "LOSS");
    search->tuning.steps = steps;
    search->tuning.batch = batch;
    search->tuning.rate = rate;
    return SBIT_OK;
}

SBIT__FN void sbit__search_keep(sbit_search *search)
{
    sbit_graph_destroy(search->best);
    search->best = search->tuned;
    search->tuned = NULL;
}

SBIT__FN sbit_status sbit__search_adopt(sbit_search *search, sbit_error *error)
{
    sbit_sparse *sparse = search->sparse;
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        sbit_value_id id;
        id.idx = v;
        const sbit_value_info *old = sbit_graph_value(sparse->graph, id);
        const sbit_value_info *now = old != NULL ? sbit_graph_value(search->best, id) : NULL;
        if (now != NULL && old->is_constant && now->is_constant && old->constant.dtype == SBIT_F32 &&
            memcmp(old->constant.data, now->constant.data, sbit_tensor_bytes(&old->constant)) != 0) {
            SBIT__TRY(sbit_sparse_set_weight(sparse, old->name, &now->constant, error));
        }
    }
    return sbit__layers_score(sparse, search->feed, error);
}

SPARSEBIT_API sbit_status sbit_search_try(sbit_search *search, const double *ratios, bool scored,
                                          sbit_search_point *out, sbit_error *error)
{
    out->over = out->score = 0.0;
    sbit__alone_set(search->sparse, search->units, search->unit_count, ratios);
    SBIT__TRY(sbit__sparse_choose(search->sparse, search->feed, error));
    SBIT__TRY(sbit__budget_left(search, search->left, error));
    for (int b = 0; b < SBIT__BUDGETS; b++) {
        search->left[b] = sbit__budget_share(search->left[b], search->whole[b]);
        if (b == SBIT__BUDGET_TIME && search->limits[b] > 0.0) {
            search->by_nodes = search->left[b];
            search->left[b] = sbit__latency_share(search->times, search->left[b]);
        }
        const double over = search->limits[b] > 0.0 ? search->left[b] / search->limits[b] : 0.0;
        out->over = over > out->over ? over : out->over;
    }
    return scored ? sbit__search_score(search, &out->score, error) : SBIT_OK;
}

/* >>fit */

static sbit_status sbit__search_fail(const sbit_search *search, sbit_error *error)
{
    char text[160] = "";
    for (int b = 0; b < SBIT__BUDGETS; b++) {
        if (search->limits[b] > 0.0) {
            const size_t size = strlen(text);
            snprintf(text + size, sizeof text - size, "%s%.3f %s", size > 0 ? ", " : "",
                     search->left[b], sbit__budget_words[b]);
        }
    }
    return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                      "the budget cannot be met: at best %s are left (SEARCH %s)", text,
                      search->row->head.name);
}

/* *met: nothing is over. */
static sbit_status sbit__search_once(sbit_search *search, const sbit_search_row *row, double *ratios, bool *met,
                                     sbit_error *error)
{
    sbit_search_point point;
    memset(ratios, 0, search->unit_count * sizeof *ratios);
    SBIT__TRY(row->run(search, &search->sparse->options, ratios, error));
    SBIT__TRY(sbit_search_try(search, ratios, false, &point, error));
    *met = point.over <= 1.0 + 1e-12;
    return SBIT_OK;
}

/* What is left at present takes *share of the whole's time, measured. */
static sbit_status sbit__search_measure(sbit_search *search, double *share, sbit_error *error)
{
    double before = 0.0, after = 0.0;
    SBIT__TRY(sbit_latency_now(search->sparse, &before, &after, error));
    *share = sbit__budget_share(after, before);
    return SBIT_OK;
}

/* A new table learns what budgets of every tenth come to with one ratio for all, beginning with nothing
 * pruned: what adding up nodes leaves out, what their times were off by, and where the graph that is
 * pruned is slower than the user's. Then it serves any budget as it is. */
static sbit_status sbit__search_ladder(sbit_search *search, double *ratios, sbit_error *error)
{
    double limits[SBIT__BUDGETS], share = 0.0;
    bool met = true;
    memcpy(limits, search->limits, sizeof limits);
    memset(search->limits, 0, sizeof search->limits);
    for (int step = SBIT__SEARCH_STEPS; step > 0 && met; step--) {
        search->limits[SBIT__BUDGET_TIME] = (double)step / (double)SBIT__SEARCH_STEPS;
        SBIT__TRY(sbit__search_once(search, sbit_search_at(0), ratios, &met, error));
        if (met) {
            SBIT__TRY(sbit__search_measure(search, &share, error));
            share = step == SBIT__SEARCH_STEPS && fabs(share - 1.0) < SBIT__SEARCH_OFF ? 1.0 : share;
            SBIT__TRY(sbit__latency_learn(search->times, search->by_nodes, share, error));
        }
        SBIT__TRY(sbit__progress(search->sparse->ctx, "latency", SBIT__SEARCH_STEPS + 1 - step, SBIT__SEARCH_STEPS, error));
    }
    memcpy(search->limits, limits, sizeof limits);
    return SBIT_OK;
}

/* The row, and again while its result takes another time than the table says, which learns that - unless
 * the table was measured before. */
static sbit_status sbit__search_turns(sbit_search *search, double *ratios, sbit_error *error)
{
    const bool timed = search->limits[SBIT__BUDGET_TIME] > 0.0 && !search->times->loaded;
    bool again = true, met = true;
    if (timed && search->times->shares.count == 0) {
        SBIT__TRY(sbit__search_ladder(search, ratios, error));
    }
    for (int turn = 0; again && turn <= SBIT__SEARCH_TURNS; turn++) {
        double share = 0.0;
        SBIT__TRY(sbit__search_once(search, search->row, ratios, &met, error));
        if (!met) {
            return sbit__search_fail(search, error);
        }
        again = timed && turn < SBIT__SEARCH_TURNS;
        if (again) {
            const double expected = search->left[SBIT__BUDGET_TIME];
            SBIT__TRY(sbit__search_measure(search, &share, error));
            again = fabs(share - expected) > SBIT__SEARCH_OFF * expected;
        }
        if (again) {
            SBIT__TRY(sbit__latency_learn(search->times, search->by_nodes, share, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__search_run(sbit_search *search, sbit_error *error)
{
    sbit_sparse *sparse = search->sparse;
    sbit_graph *copy = NULL;
    SBIT__TRY(sbit__sparse_restore(sparse, error));
    SBIT__TRY(sbit_graph_clone(sparse->graph, &search->before, error));
    SBIT__TRY(sbit_graph_clone(sparse->graph, &copy, error));
    const sbit_status status = sbit__budget_cost(search, copy, search->whole, error);
    sbit_graph_destroy(copy);
    SBIT__TRY(status);
    if (search->limits[SBIT__BUDGET_TIME] > 0.0 && !(search->whole[SBIT__BUDGET_TIME] > 0.0)) {
        return sbit__fail(error, SBIT_ERR_CONFIG, NULL,
                          "the table of times is of another model: no node of this one takes any");
    }
    SBIT__TRY(sbit__alone_list(sparse, &search->arena, &search->units, &search->unit_count, error));
    double *ratios =
        (double *)sbit__arena_array(&search->arena, search->unit_count + 1, sizeof *ratios);
    if (ratios == NULL) {
        return sbit__fail_oom(error, search->unit_count * sizeof *ratios);
    }
    for (size_t i = 0; i < search->unit_count; i++) {
        ratios[i] = 0.5; /* all are scored */
    }
    sbit__alone_set(sparse, search->units, search->unit_count, ratios);
    SBIT__TRY(sbit__layers_score(sparse, search->feed, error));
    return sbit__search_turns(search, ratios, error);
}

SPARSEBIT_API sbit_status sbit_sparse_fit(sbit_sparse *sparse, const sbit_sparse_budget *budget,
                                          const sbit_feed *feed, sbit_error *error)
{
    sbit_search search;
    if (budget == NULL || !(budget->params >= 0.0 && budget->macs >= 0.0 && budget->bytes >= 0.0 &&
                            budget->latency >= 0.0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a budget is a share above 0");
    }
    if (budget->latency > 0.0 && budget->times == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "a budget of latency needs a table of times (sbit_latency_measure)");
    }
    memset(&search, 0, sizeof search);
    search.row = sbit_search_find(sparse->ctx, sbit_options_string(&sparse->options, "SEARCH"));
    if (search.row->needs_score && feed == NULL && budget->measure == NULL) {
        return sbit__fail(error, SBIT_ERR_STATE, search.row->head.name,
                          "SEARCH %s looks at data: give it a feed", search.row->head.name);
    }
    search.sparse = sparse;
    search.budget = budget;
    search.feed = feed;
    search.times = budget->times;
    search.limits[SBIT__BUDGET_PARAMS] = budget->params;
    search.limits[SBIT__BUDGET_MACS] = budget->macs;
    search.limits[SBIT__BUDGET_BYTES] = budget->bytes;
    search.limits[SBIT__BUDGET_TIME] = budget->latency;
    sbit__arena_init(&search.arena, sbit_ctx_allocator(sparse->ctx));
    const sbit_status status = sbit__search_run(&search, error);
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__sparse_layer *layer = &sparse->layers[i];
        double *ratio = &layer->settings.ratio, *target = &layer->target;
        *(status == SBIT_OK ? target : ratio) = status == SBIT_OK ? *ratio : *target;
        layer->given = layer->given || status == SBIT_OK;
    }
    sparse->trying = false;
    sbit__groups_limit(sparse);
    sbit_graph_destroy(search.tuned);
    sbit_graph_destroy(search.best);
    sbit_graph_destroy(search.before);
    sbit__arena_deinit(&search.arena);
    return status;
}
#undef SBIT__SEARCH_OFF
