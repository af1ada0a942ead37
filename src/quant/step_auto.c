/* step_auto.c: the observer of each tensor by what the outputs lose. >>step-auto
 *
 * OBSERVER.TYPE: auto, or STEPS: [auto] for all tensors. The candidates see the first three quarters
 * of the calibration data; the rest, up to 48 samples, judges: each tensor alone quantized with each
 * candidate's range, by the noise of the outputs (>>trials). Errors of tensors add up only roughly,
 * so in the end the mixture competes with every candidate used everywhere, all sites quantized. What
 * wins sees all data once more.
 */
#include "trials_private.h"

enum {
    SBIT__AUTO_MOST = 16,   /* candidates */
    SBIT__AUTO_JUDGES = 48, /* samples */
    SBIT__AUTO_NONE = 0xff
};

static const sbit_key sbit__auto_keys[] = {
    {"AUTO.CANDIDATES", SBIT_KEY_STRINGS, "", 0, 0, NULL,
     "observers to choose from; none: minmax, mse, percentile, octav"},
    {"AUTO.SCOPE", SBIT_KEY_CHOICE, "tensor", 0, 0, "tensor|model",
     "one for each tensor, or one for the model"},
};

typedef struct sbit__auto {
    sbit_quant *quant;
    const sbit_observer_row *rows[SBIT__AUTO_MOST];
    size_t row_count;
    bool *chosen;   /* [site count]: sites at work */
    bool *mask;     /* [site count]: of a trial */
    uint8_t *best;  /* [site count]: the candidate */
    size_t *offset; /* [site count]: of the site's first part in `ranges` */
    size_t parts;   /* of all sites at work */
    float *ranges;  /* [row_count][2][parts] */
    sbit__search_layers layers;
    sbit__trials trials;
} sbit__auto;

static float *sbit__auto_range(const sbit__auto *a, size_t row, size_t site, int side)
{
    return a->ranges + (2 * row + (size_t)side) * a->parts + a->offset[site];
}

/* >>step-auto candidates */
static sbit_status sbit__auto_rows(sbit__auto *a, const sbit_options *options, sbit_error *error)
{
    static const char *const standard[] = {"minmax", "mse", "percentile", "octav"};
    const sbit_option *list = sbit_options_find(options, "STEP.AUTO.CANDIDATES");
    const size_t count = list->list_count > 0 ? list->list_count : SBIT__COUNT_OF(standard);
    for (size_t i = 0; i < count; i++) {
        const char *name = list->list_count > 0 ? list->list[i] : standard[i];
        const sbit_observer_row *row = sbit_observer_find(a->quant->ctx, name);
        if (row == NULL || a->row_count == SBIT__AUTO_MOST) {
            return sbit__fail(error, SBIT_ERR_CONFIG, "STEP.AUTO.CANDIDATES",
                              row == NULL ? "there is no observer '%s'" : "%s: more than 16", name);
        }
        a->rows[a->row_count++] = row;
    }
    return SBIT_OK;
}

static bool sbit__auto_takes(const sbit__auto *a, size_t row, const sbit__site *site)
{
    return (a->rows[row]->head.targets & site->target) != 0;
}

static bool sbit__auto_wants(const sbit_quant *quant, const sbit__site *site)
{
    const sbit_option *list = sbit_options_find(&quant->config->tree.top, "STEPS");
    bool listed = site->settings.range_step == sbit__step_auto();
    for (size_t i = 0; i < list->list_count; i++) {
        listed = listed || (sbit__same_word(list->list[i], "auto") &&
                            site->target == SBIT_TARGET_ACTIVATION);
    }
    return listed && site->enabled && !site->fixed_range && site->change.scale == NULL &&
           sbit__quantizer_statistics(site->settings.quantizer, site->target,
                                      &site->settings.options) == NULL;
}

/* >>step-auto statistics: the site's own stay aside while a candidate looks. */
typedef struct sbit__auto_aside {
    const sbit_observer_row *observer;
    void *observer_state, *quantizer_state;
    size_t observer_bytes, quantizer_bytes;
    bool observed;
} sbit__auto_aside;

static sbit_status sbit__auto_enter(sbit__auto *a, size_t index, const sbit_observer_row *row,
                                    sbit__auto_aside *aside, sbit_error *error)
{
    sbit__site *site = &a->quant->sites[index];
    aside->observer = site->settings.observer;
    aside->observer_state = site->observer_state;
    aside->quantizer_state = site->quantizer_state;
    aside->observer_bytes = site->observer_bytes;
    aside->quantizer_bytes = site->quantizer_bytes;
    aside->observed = site->observed;
    site->observer_state = site->quantizer_state = NULL;
    site->settings.observer = row;
    return sbit__site_prepare(a->quant, site, error);
}

static void sbit__auto_leave(sbit__auto *a, size_t index, const sbit__auto_aside *aside)
{
    sbit__site *site = &a->quant->sites[index];
    sbit__site_release(a->quant, site);
    site->settings.observer = aside->observer;
    site->observer_state = aside->observer_state;
    site->quantizer_state = aside->quantizer_state;
    site->observer_bytes = aside->observer_bytes;
    site->quantizer_bytes = aside->quantizer_bytes;
    site->observed = aside->observed;
    site->waiting = false;
}

static sbit_status sbit__auto_observe(sbit__auto *a, const sbit_feed *feed, sbit_error *error)
{
    sbit_quant *quant = a->quant;
    bool activations = false;
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        sbit_tensor weight;
        bool wanted = site->waiting && site->target == SBIT_TARGET_WEIGHT;
        activations = activations || (site->waiting && site->target == SBIT_TARGET_ACTIVATION);
        while (wanted) {
            SBIT__TRY(sbit__site_weight(quant, site, &weight, error));
            SBIT__TRY(sbit__site_observe(quant, site, &weight, error));
            SBIT__TRY(sbit__site_again(quant, site, &wanted, error));
            site->waiting = wanted;
        }
    }
    sbit__quant_drop_session(quant);
    SBIT__TRY(sbit__quant_calibration_session(quant, &quant->session, error));
    while (activations) {
        SBIT__TRY(sbit__calibrate_pass(quant, feed, error));
        SBIT__TRY(sbit__calibrate_again(quant, &activations, error));
    }
    return SBIT_OK;
}

/* What site i's candidate `row` makes of what it saw. */
static sbit_status sbit__auto_store(sbit__auto *a, size_t i, size_t row, sbit_error *error)
{
    sbit__site *site = &a->quant->sites[i];
    const sbit_observer_call call = sbit__site_observer(a->quant, site);
    float *min = sbit__auto_range(a, row, i, 0), *max = sbit__auto_range(a, row, i, 1);
    if (!site->observed) { /* nothing reached it: disabled in the end */
        memset(min, 0, (size_t)sbit__site_parts(site) * sizeof *min);
        memset(max, 0, (size_t)sbit__site_parts(site) * sizeof *max);
        return SBIT_OK;
    }
    return site->settings.observer->range(site->observer_state, &call, min, max, error);
}

/* Shows the feed to candidate `row` of all sites (row NONE: to the best of each), and stores their
 * ranges. */
static sbit_status sbit__auto_collect(sbit__auto *a, size_t row, const sbit_feed *feed,
                                      sbit_error *error)
{
    sbit_quant *quant = a->quant;
    const sbit_allocator *allocator = sbit_ctx_allocator(quant->ctx);
    const size_t bytes = (quant->site_count + 1) * sizeof(sbit__auto_aside);
    sbit__auto_aside *aside = (sbit__auto_aside *)sbit__calloc(allocator, 1, bytes);
    sbit_status status = aside != NULL ? SBIT_OK : sbit__fail_oom(error, bytes);
    size_t entered = 0;
    for (; entered < quant->site_count && status == SBIT_OK; entered++) {
        const size_t own = row != SBIT__AUTO_NONE ? row : a->best[entered];
        quant->sites[entered].waiting = false;
        if (a->chosen[entered] && sbit__auto_takes(a, own, &quant->sites[entered])) {
            status = sbit__auto_enter(a, entered, a->rows[own], &aside[entered], error);
            quant->sites[entered].waiting = true;
        }
    }
    status = status == SBIT_OK ? sbit__auto_observe(a, feed, error) : status;
    for (size_t i = 0; i < entered && aside != NULL; i++) {
        const size_t own = row != SBIT__AUTO_NONE ? row : a->best[i];
        if (aside[i].observer != NULL) {
            status = status == SBIT_OK ? sbit__auto_store(a, i, own, error) : status;
            sbit__auto_leave(a, i, &aside[i]);
        }
    }
    sbit__free(allocator, aside, bytes);
    return status;
}

/* >>step-auto trials */
static sbit_status sbit__auto_set(sbit__auto *a, size_t site, size_t row, sbit_error *error)
{
    return sbit__site_search_range(a->quant, &a->quant->sites[site], a->rows[row],
                                   sbit__auto_range(a, row, site, 0),
                                   sbit__auto_range(a, row, site, 1), error);
}

/* An earlier candidate whose range is the same within 1 % of it; `row`: there is none. */
static size_t sbit__auto_same(const sbit__auto *a, size_t site, size_t row)
{
    const int64_t parts = sbit__site_parts(&a->quant->sites[site]);
    const float *min = sbit__auto_range(a, row, site, 0), *max = sbit__auto_range(a, row, site, 1);
    for (size_t i = 0; i < row; i++) {
        const float *low = sbit__auto_range(a, i, site, 0), *high = sbit__auto_range(a, i, site, 1);
        int64_t p = 0;
        while (p < parts && fabsf(low[p] - min[p]) + fabsf(high[p] - max[p]) <=
                                0.01f * (max[p] - min[p])) {
            p++;
        }
        if (p == parts) {
            return i;
        }
    }
    return row;
}

/* The site alone, with each candidate's range; its scale comes from that, as if it shared none. */
static sbit_status sbit__auto_site(sbit__auto *a, size_t index, sbit_error *error)
{
    sbit__site *site = &a->quant->sites[index];
    const size_t bytes = (size_t)sbit__site_parts(site) * sizeof(float);
    const sbit_node_id start = a->layers.items[a->layers.of_site[index]].start;
    double least = HUGE_VAL;
    a->mask[index] = true;
    for (size_t row = 0; row < a->row_count; row++) {
        sbit__trial trial;
        if (!sbit__auto_takes(a, row, site) || sbit__auto_same(a, index, row) < row) {
            continue;
        }
        memcpy(site->min, sbit__auto_range(a, row, index, 0), bytes);
        memcpy(site->max, sbit__auto_range(a, row, index, 1), bytes);
        SBIT__TRY(sbit__calc_site(a->quant, site, error));
        SBIT__TRY(sbit__trials_run(&a->trials, a->mask, start, &trial, error));
        if (trial.noise < least) {
            least = trial.noise;
            a->best[index] = (uint8_t)row;
        }
    }
    a->mask[index] = false;
    return SBIT_OK;
}

/* All sites quantized, those at work with candidate `row` (NONE: the best of each). */
static sbit_status sbit__auto_together(sbit__auto *a, size_t row, double *noise, sbit_error *error)
{
    sbit_quant *quant = a->quant;
    const sbit_node_id none = {0};
    sbit__trial trial;
    for (size_t i = 0; i < quant->site_count; i++) {
        const size_t own = row != SBIT__AUTO_NONE ? row : a->best[i];
        if (a->chosen[i] && sbit__auto_takes(a, own, &quant->sites[i])) {
            SBIT__TRY(sbit__auto_set(a, i, own, error));
        }
    }
    SBIT__TRY(sbit__quant_calc(quant, error));
    SBIT__TRY(sbit__trials_run(&a->trials, NULL, none, &trial, error));
    *noise = trial.noise;
    return SBIT_OK;
}

static sbit_status sbit__auto_judge(sbit__auto *a, bool tensors, sbit_error *error)
{
    sbit_quant *quant = a->quant;
    double least = HUGE_VAL, noise;
    size_t winner = SBIT__AUTO_NONE;
    for (size_t l = 0; tensors && l < a->layers.count; l++) { /* in the order of their places */
        SBIT__TRY(sbit__progress(quant->ctx, "auto", (int64_t)l, (int64_t)a->layers.count, error));
        for (size_t i = 0; i < quant->site_count; i++) {
            if (a->chosen[i] && a->layers.of_site[i] == l) {
                SBIT__TRY(sbit__auto_site(a, i, error));
            }
        }
    }
    if (tensors) {
        SBIT__TRY(sbit__auto_together(a, SBIT__AUTO_NONE, &least, error));
    }
    for (size_t row = 0; row < a->row_count; row++) {
        SBIT__TRY(sbit__auto_together(a, row, &noise, error));
        if (noise < least) {
            least = noise;
            winner = row;
        }
    }
    for (size_t i = 0; i < quant->site_count && winner != SBIT__AUTO_NONE; i++) {
        if (a->chosen[i] && sbit__auto_takes(a, winner, &quant->sites[i])) {
            a->best[i] = (uint8_t)winner;
        }
    }
    sbit__log(quant->ctx, SBIT_LOG_INFO, "auto: %s, outputs' noise %.3g",
              winner != SBIT__AUTO_NONE ? a->rows[winner]->head.name : "one for each tensor", least);
    return sbit__progress(quant->ctx, "auto", (int64_t)a->layers.count, (int64_t)a->layers.count,
                          error);
}

/* >>step-auto run */
static sbit_status sbit__auto_work(sbit__auto *a, const sbit_options *options,
                                   const sbit_feed *feed, sbit_error *error)
{
    const int64_t quarter = feed->count / 4;
    const int64_t judges =
        feed->count < 4                         ? feed->count
                           : quarter < (int64_t)SBIT__AUTO_JUDGES ? quarter
                                                                   : (int64_t)SBIT__AUTO_JUDGES;
    const int64_t seen = feed->count < 4 ? feed->count : feed->count - quarter;
    sbit__feed_part front, back;
    const sbit_feed look = sbit__feed_part_of(&front, feed, 0, seen);
    const sbit_feed judge = sbit__feed_part_of(&back, feed, feed->count - judges, judges);
    for (size_t row = 0; row < a->row_count; row++) {
        SBIT__TRY(sbit__auto_collect(a, row, &look, error));
    }
    sbit__quant_drop_session(a->quant);
    SBIT__TRY(sbit__search_layers_find(a->quant, &a->layers, error));
    SBIT__TRY(sbit__trials_begin(a->quant, &judge, &a->trials, error));
    SBIT__TRY(sbit__auto_judge(
        a, sbit__streq(sbit_options_string(options, "STEP.AUTO.SCOPE"), "tensor"), error));
    SBIT__TRY(sbit__auto_collect(a, SBIT__AUTO_NONE, feed, error));
    for (size_t i = 0; i < a->quant->site_count; i++) {
        if (a->chosen[i]) {
            SBIT__TRY(sbit__auto_set(a, i, a->best[i], error));
        }
    }
    sbit__quant_drop_session(a->quant);
    return SBIT_OK;
}

static sbit_status sbit__auto_room(sbit__auto *a, const sbit_options *options,
                                   const sbit_feed *feed, sbit_error *error)
{
    const size_t count = a->quant->site_count;
    const sbit_allocator *allocator = sbit_ctx_allocator(a->quant->ctx);
    for (size_t i = 0; i < count; i++) {
        a->chosen[i] = sbit__auto_wants(a->quant, &a->quant->sites[i]);
        a->offset[i] = a->parts;
        a->parts += a->chosen[i] ? (size_t)sbit__site_parts(&a->quant->sites[i]) : 0;
    }
    const size_t bytes = 2 * a->row_count * (a->parts + 1) * sizeof *a->ranges;
    if (a->parts == 0) {
        return SBIT_OK;
    }
    a->ranges = (float *)sbit__calloc(allocator, 1, bytes);
    if (a->ranges == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    const sbit_status status = sbit__auto_work(a, options, feed, error);
    sbit__trials_end(&a->trials);
    sbit__search_layers_free(a->quant, &a->layers);
    sbit__free(allocator, a->ranges, bytes);
    return status;
}

static sbit_status sbit__auto_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                  sbit_error *error)
{
    sbit_quant *quant = (sbit_quant *)state;
    const sbit_allocator *allocator = sbit_ctx_allocator(quant->ctx);
    const size_t bytes = (quant->site_count + 1) * (sizeof(size_t) + 3);
    sbit__auto a;
    memset(&a, 0, sizeof a);
    a.quant = quant;
    SBIT__TRY(sbit__auto_rows(&a, options, error));
    a.offset = (size_t *)sbit__calloc(allocator, 1, bytes);
    if (a.offset == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    a.chosen = (bool *)(void *)(a.offset + quant->site_count + 1);
    a.mask = a.chosen + quant->site_count + 1;
    a.best = (uint8_t *)(void *)(a.mask + quant->site_count + 1);
    const sbit_status status = sbit__auto_room(&a, options, feed, error);
    sbit__free(allocator, a.offset, bytes);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_auto(void)
{
    static const sbit_step_row row = {
        {"auto", "the observer of each tensor by what the outputs lose on held-out data",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__auto_keys,
         SBIT__COUNT_OF(sbit__auto_keys)},
        SBIT_STAGE_RANGES,
        true,
        sbit__auto_run,
    };
    return &row;
}
