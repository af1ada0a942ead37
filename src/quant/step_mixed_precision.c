/* step_mixed_precision.c: widths of weights, layer by layer, within a budget. >>step-mixed-precision
 *
 * For each width the noise that each layer alone makes in the outputs is measured (>>trials). Then
 * the widths with the least sum of noise are chosen whose cost keeps to the budget: a knapsack with
 * one choice a layer. It is solved exactly: layer after layer, all sums of cost and noise that
 * nothing else beats in both; only beyond 65,536 of them every other is dropped, which costs at most
 * the gap between neighbours. What every layer's cheapest width already exceeds is an error.
 */
#include "trials_private.h"

#include <stdlib.h> /* atoi, qsort */

enum {
    SBIT__MIXED_WIDTHS = 8,
    SBIT__MIXED_STATES = 65536
};

static const sbit_key sbit__mixed_keys[] = {
    {"MIXED_PRECISION.SIZE_BUDGET", SBIT_KEY_FLOAT, "0", 0.0, 1e15, NULL,
     "bytes of all weights; up to 1: a part of what the configured widths take; 0: none"},
    {"MIXED_PRECISION.BOPS_BUDGET", SBIT_KEY_FLOAT, "0", 0.0, 1e18, NULL,
     "bit operations, the sum of MACs x width x width of the input; likewise"},
    {"MIXED_PRECISION.BITS", SBIT_KEY_STRINGS, "", 0, 0, NULL,
     "widths to choose from; none: 2, 4, 8"},
};

/* A sum over the layers so far. */
typedef struct sbit__mixed_state {
    double cost, noise;
    uint32_t before; /* the state that it continues */
    uint32_t width;  /* number of the width of the last layer */
} sbit__mixed_state;

typedef struct sbit__mixed {
    sbit_quant *quant;
    int32_t widths[SBIT__MIXED_WIDTHS];
    size_t width_count;
    bool operations; /* costs are bit operations */
    double budget;
    sbit__search_layers layers;
    uint32_t *own; /* [count]: layers with weights, in order */
    size_t count;
    double *cost, *noise; /* [count][widths] */
    bool *sites;
    uint32_t *chosen; /* [count] */
    size_t bytes;
} sbit__mixed;

static bool sbit__mixed_site(const sbit__mixed *m, size_t site, size_t layer)
{
    const sbit__site *s = &m->quant->sites[site];
    return s->enabled && s->target == SBIT_TARGET_WEIGHT &&
           m->layers.of_site[site] == m->own[layer];
}

/* >>step-mixed-precision costs */
static int32_t sbit__mixed_input_bits(const sbit__mixed *m, size_t layer)
{
    const sbit_node_id node = m->layers.items[m->own[layer]].node;
    const sbit__site *x =
        node.idx != 0 ? sbit__quant_input_site(m->quant, m->quant->graph, node, 0) : NULL;
    return x != NULL ? x->settings.grid.bits : 32;
}

static void sbit__mixed_cost(sbit__mixed *m, size_t layer)
{
    const sbit__search_layer *own = &m->layers.items[m->own[layer]];
    for (size_t w = 0; w < m->width_count; w++) {
        const double macs =
            own->node.idx != 0 ? (double)sbit_graph_node_macs(m->quant->graph, own->node) : 0.0;
        m->cost[layer * m->width_count + w] =
            (double)m->widths[w] * (m->operations
                                        ? macs * (double)sbit__mixed_input_bits(m, layer)
                                        : (double)own->params / 8.0);
    }
}

/* The budget in the unit of the costs: a part is one of the configured widths' cost. */
static double sbit__mixed_absolute(const sbit__mixed *m, double budget)
{
    double now = 0.0;
    for (size_t l = 0; l < m->count; l++) {
        for (size_t i = 0; i < m->quant->site_count; i++) {
            if (sbit__mixed_site(m, i, l)) {
                now += m->cost[l * m->width_count] / (double)m->widths[0] *
                       (double)m->quant->sites[i].settings.grid.bits;
                break;
            }
        }
    }
    return budget <= 1.0 ? budget * now : budget;
}

static sbit_status sbit__mixed_measure(sbit__mixed *m, const sbit_feed *feed, sbit_error *error)
{
    sbit_quant *quant = m->quant;
    sbit__trials trials;
    sbit_status status = sbit__trials_begin(quant, feed, &trials, error);
    for (size_t w = 0; w < m->width_count && status == SBIT_OK; w++) {
        for (size_t i = 0; i < quant->site_count; i++) {
            if (quant->sites[i].enabled && quant->sites[i].target == SBIT_TARGET_WEIGHT) {
                sbit__site_search_bits(quant, &quant->sites[i], m->widths[w]);
            }
        }
        status = sbit__quant_calc(quant, error);
        for (size_t l = 0; l < m->count && status == SBIT_OK; l++) {
            sbit__trial trial;
            status = sbit__progress(quant->ctx, "mixed_precision", (int64_t)(w * m->count + l),
                                    (int64_t)(m->width_count * m->count), error);
            for (size_t i = 0; i < quant->site_count; i++) {
                m->sites[i] = sbit__mixed_site(m, i, l);
            }
            if (status == SBIT_OK) {
                status = sbit__trials_run(&trials, m->sites, m->layers.items[m->own[l]].start,
                                          &trial, error);
            }
            m->noise[l * m->width_count + w] = status == SBIT_OK ? trial.noise : 0.0;
        }
    }
    sbit__trials_end(&trials);
    SBIT__TRY(status);
    return sbit__progress(quant->ctx, "mixed_precision", 1, 1, error);
}

/* >>step-mixed-precision knapsack */
static int sbit__mixed_order(const void *a, const void *b)
{
    const sbit__mixed_state *x = (const sbit__mixed_state *)a, *y = (const sbit__mixed_state *)b;
    if (x->cost < y->cost || x->cost > y->cost) {
        return x->cost < y->cost ? -1 : 1;
    }
    if (x->noise < y->noise || x->noise > y->noise) {
        return x->noise < y->noise ? -1 : 1;
    }
    return x->before != y->before ? (x->before < y->before ? -1 : 1)
                                  : (x->width < y->width ? -1 : 1);
}

/* Keeps of `count` states, by rising cost, those with less noise than all cheaper ones. */
static size_t sbit__mixed_best(sbit__mixed_state *states, size_t count)
{
    size_t kept = 0;
    qsort(states, count, sizeof *states, sbit__mixed_order);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || states[i].noise < states[kept - 1].noise) {
            states[kept++] = states[i];
        }
    }
    while (kept > SBIT__MIXED_STATES) {
        for (size_t i = 0; i < (kept + 1) / 2; i++) {
            states[i] = states[2 * i];
        }
        kept = (kept + 1) / 2;
    }
    return kept;
}

/* The states after layer l from those before it (l 0: one, of nothing). `rest`: the least that the
 * layers behind cost. */
static sbit_status sbit__mixed_layer(const sbit__mixed *m, size_t l, double rest,
                                     const sbit__mixed_state *before, size_t before_count,
                                     sbit__mixed_state **out, size_t *count, sbit__arena *arena,
                                     sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(m->quant->ctx);
    const size_t bytes = before_count * m->width_count * sizeof **out + 1;
    sbit__mixed_state *all = (sbit__mixed_state *)sbit__alloc(a, bytes);
    size_t n = 0;
    if (all == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (size_t i = 0; i < before_count; i++) {
        for (size_t w = 0; w < m->width_count; w++) {
            all[n].cost = before[i].cost + m->cost[l * m->width_count + w];
            all[n].noise = before[i].noise + m->noise[l * m->width_count + w];
            all[n].before = (uint32_t)i;
            all[n].width = (uint32_t)w;
            n += all[n].cost + rest <= m->budget * (1.0 + 1e-12) ? 1 : 0;
        }
    }
    *count = sbit__mixed_best(all, n);
    *out = (sbit__mixed_state *)sbit__arena_array(arena, *count + 1, sizeof **out);
    if (*out != NULL) {
        memcpy(*out, all, *count * sizeof *all);
    }
    sbit__free(a, all, bytes);
    return *out != NULL ? SBIT_OK : sbit__fail_oom(error, *count * sizeof **out);
}

static double sbit__mixed_least(const sbit__mixed *m, size_t first)
{
    double sum = 0.0;
    for (size_t l = first; l < m->count; l++) {
        double least = m->cost[l * m->width_count];
        for (size_t w = 1; w < m->width_count; w++) {
            least = fmin(least, m->cost[l * m->width_count + w]);
        }
        sum += least;
    }
    return sum;
}

static sbit_status sbit__mixed_solve(sbit__mixed *m, sbit__arena *arena, sbit_error *error)
{
    const size_t bytes = (m->count + 1) * (sizeof(sbit__mixed_state *) + sizeof(size_t));
    sbit__mixed_state **states = (sbit__mixed_state **)sbit__arena_alloc(arena, bytes);
    sbit__mixed_state nothing;
    memset(&nothing, 0, sizeof nothing);
    if (states == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    size_t *counts = (size_t *)(void *)(states + m->count + 1);
    for (size_t l = 0; l < m->count; l++) {
        SBIT__TRY(sbit__mixed_layer(m, l, sbit__mixed_least(m, l + 1),
                                    l > 0 ? states[l - 1] : &nothing, l > 0 ? counts[l - 1] : 1,
                                    &states[l], &counts[l], arena, error));
    }
    size_t at = m->count > 0 && counts[m->count - 1] > 0 ? counts[m->count - 1] - 1 : 0;
    if (m->count == 0 || counts[m->count - 1] == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, "STEP.MIXED_PRECISION",
                          "the budget of %g cannot be kept: the smallest widths take %g", m->budget,
                          sbit__mixed_least(m, 0));
    }
    for (size_t l = m->count; l-- > 0;) { /* the last state has the least noise */
        m->chosen[l] = states[l][at].width;
        at = states[l][at].before;
    }
    return SBIT_OK;
}

/* >>step-mixed-precision run */
static sbit_status sbit__mixed_widths(sbit__mixed *m, const sbit_options *options,
                                      sbit_error *error)
{
    static const int32_t standard[] = {2, 4, 8};
    const sbit_option *list = sbit_options_find(options, "STEP.MIXED_PRECISION.BITS");
    m->width_count = list->list_count > 0 ? list->list_count : SBIT__COUNT_OF(standard);
    for (size_t i = 0; i < m->width_count; i++) {
        const int32_t bits = list->list_count == 0   ? standard[i]
                             : i < SBIT__MIXED_WIDTHS ? atoi(list->list[i])
                                                      : 0;
        if (bits < 2 || bits > 16 ||
            (m->quant->profile->max_bits > 0 && bits > m->quant->profile->max_bits)) {
            return sbit__option_fail(list, "", "wants up to 8 widths from 2 to 16 (or the profile's "
                                               "most)",
                                     error);
        }
        m->widths[i] = bits;
    }
    return SBIT_OK;
}

static sbit_status sbit__mixed_work(sbit__mixed *m, const sbit_feed *feed, double budget,
                                    sbit_error *error)
{
    sbit__arena arena;
    for (size_t l = 0; l < m->count; l++) {
        sbit__mixed_cost(m, l);
    }
    m->budget = sbit__mixed_absolute(m, budget);
    SBIT__TRY(sbit__mixed_measure(m, feed, error));
    sbit__arena_init(&arena, sbit_ctx_allocator(m->quant->ctx));
    const sbit_status status = sbit__mixed_solve(m, &arena, error);
    sbit__arena_deinit(&arena);
    SBIT__TRY(status);
    for (size_t i = 0; i < m->quant->site_count; i++) {
        for (size_t l = 0; l < m->count; l++) {
            if (sbit__mixed_site(m, i, l)) {
                sbit__site_search_bits(m->quant, &m->quant->sites[i], m->widths[m->chosen[l]]);
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__mixed_room(sbit__mixed *m, sbit_error *error)
{
    const size_t layers = m->layers.count + 1;
    m->bytes = layers * (2 * m->width_count * sizeof(double) + 2 * sizeof(uint32_t)) +
               m->quant->site_count;
    m->cost = (double *)sbit__calloc(sbit_ctx_allocator(m->quant->ctx), 1, m->bytes);
    if (m->cost == NULL) {
        return sbit__fail_oom(error, m->bytes);
    }
    m->noise = m->cost + layers * m->width_count;
    m->own = (uint32_t *)(void *)(m->noise + layers * m->width_count);
    m->chosen = m->own + layers;
    m->sites = (bool *)(void *)(m->chosen + layers);
    for (size_t l = 0; l < m->layers.count; l++) {
        bool any = false;
        m->own[m->count] = (uint32_t)l;
        for (size_t i = 0; i < m->quant->site_count; i++) {
            any = any || sbit__mixed_site(m, i, m->count);
        }
        m->count += any ? 1 : 0;
    }
    return SBIT_OK;
}

static sbit_status sbit__mixed_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                   sbit_error *error)
{
    sbit__mixed m;
    const double size = sbit_options_float(options, "STEP.MIXED_PRECISION.SIZE_BUDGET");
    const double bops = sbit_options_float(options, "STEP.MIXED_PRECISION.BOPS_BUDGET");
    memset(&m, 0, sizeof m);
    m.quant = (sbit_quant *)state;
    m.operations = bops > 0.0;
    if ((size > 0.0) == (bops > 0.0)) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "STEP.MIXED_PRECISION",
                          "mixed_precision wants one budget: STEP.MIXED_PRECISION.SIZE_BUDGET or "
                          "BOPS_BUDGET");
    }
    SBIT__TRY(sbit__mixed_widths(&m, options, error));
    sbit_status status = sbit__search_layers_find(m.quant, &m.layers, error);
    status = status == SBIT_OK ? sbit__mixed_room(&m, error) : status;
    status = status == SBIT_OK ? sbit__mixed_work(&m, feed, size > 0.0 ? size : bops, error) : status;
    sbit__free(sbit_ctx_allocator(m.quant->ctx), m.cost, m.bytes);
    sbit__search_layers_free(m.quant, &m.layers);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_mixed_precision(void)
{
    static const sbit_step_row row = {
        {"mixed_precision", "widths of weights, layer by layer, within a budget",
         SBIT_TARGET_WEIGHT, sbit__mixed_keys, SBIT__COUNT_OF(sbit__mixed_keys)},
        SBIT_STAGE_SEARCH,
        true,
        sbit__mixed_run,
    };
    return &row;
}
