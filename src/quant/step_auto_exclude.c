/* step_auto_exclude.c: the fewest layers that must stay float. >>step-auto-exclude
 *
 * Layers are ranked by the noise that each alone makes in the outputs (>>trials). The most sensitive
 * ones are left float, as few as suffice for the loss that is allowed (doubling, then halving); then
 * each of them, the least sensitive first, is put back if the loss stays allowed. The loss is that
 * of the calibration data: points of top-1 where they have labels, else of equal predictions.
 * Weights are at their nearest values here: what rounds them afterwards only gains.
 */
#include "trials_private.h"

#include <stdlib.h> /* qsort */

static const sbit_key sbit__exclude_keys[] = {
    {"AUTO_EXCLUDE.MAX_DROP", SBIT_KEY_FLOAT, "0.5", 0.0, 100.0, NULL,
     "points of accuracy that may be lost"},
};

typedef struct sbit__excluded {
    uint32_t layer;
    double noise;
} sbit__excluded;

typedef struct sbit__exclude {
    sbit_quant *quant;
    double allowed;
    sbit__search_layers layers;
    sbit__trials trials;
    sbit__trial plain;
    sbit__excluded *ranked; /* [layers]: the most sensitive first */
    size_t ranked_count;
    bool *excluded; /* [layers] */
    bool *sites;    /* [site count] */
} sbit__exclude;

static int sbit__exclude_order(const void *a, const void *b)
{
    const sbit__excluded *x = (const sbit__excluded *)a, *y = (const sbit__excluded *)b;
    return x->noise > y->noise   ? -1
           : x->noise < y->noise ? 1
           : x->layer < y->layer ? -1
                                 : 1;
}

/* What is lost with these layers float. */
static sbit_status sbit__exclude_drop(sbit__exclude *x, double *drop, sbit_error *error)
{
    const sbit_node_id none = {0};
    sbit__trial trial;
    for (size_t i = 0; i < x->quant->site_count; i++) {
        x->sites[i] = x->quant->sites[i].enabled && !x->excluded[x->layers.of_site[i]];
    }
    SBIT__TRY(sbit__trials_run(&x->trials, x->sites, none, &trial, error));
    *drop = sbit__trials_drop(&x->trials, &x->plain, &trial);
    return SBIT_OK;
}

static sbit_status sbit__exclude_first(sbit__exclude *x, size_t count, double *drop,
                                       sbit_error *error)
{
    memset(x->excluded, 0, x->layers.count * sizeof *x->excluded);
    for (size_t i = 0; i < count; i++) {
        x->excluded[x->ranked[i].layer] = true;
    }
    return sbit__exclude_drop(x, drop, error);
}

static sbit_status sbit__exclude_rank(sbit__exclude *x, sbit_error *error)
{
    for (size_t l = 0; l < x->layers.count; l++) {
        sbit__trial trial;
        bool any = false;
        SBIT__TRY(sbit__progress(x->quant->ctx, "auto_exclude", (int64_t)l,
                                 (int64_t)x->layers.count, error));
        for (size_t i = 0; i < x->quant->site_count; i++) {
            x->sites[i] = x->quant->sites[i].enabled && x->layers.of_site[i] == l;
            any = any || x->sites[i];
        }
        if (any) {
            SBIT__TRY(sbit__trials_run(&x->trials, x->sites, x->layers.items[l].start, &trial,
                                       error));
            x->ranked[x->ranked_count].layer = (uint32_t)l;
            x->ranked[x->ranked_count++].noise = trial.noise;
        }
    }
    qsort(x->ranked, x->ranked_count, sizeof *x->ranked, sbit__exclude_order);
    return sbit__progress(x->quant->ctx, "auto_exclude", (int64_t)x->layers.count,
                          (int64_t)x->layers.count, error);
}

static sbit_status sbit__exclude_search(sbit__exclude *x, sbit_error *error)
{
    size_t few = 0, enough = 1; /* few is too few */
    double drop;
    SBIT__TRY(sbit__exclude_first(x, 0, &drop, error));
    if (drop <= x->allowed) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__exclude_rank(x, error));
    for (;; enough *= 2) {
        enough = enough < x->ranked_count ? enough : x->ranked_count;
        SBIT__TRY(sbit__exclude_first(x, enough, &drop, error));
        if (drop <= x->allowed || enough == x->ranked_count) {
            break;
        }
        few = enough;
    }
    while (enough - few > 1) {
        const size_t middle = few + (enough - few) / 2;
        SBIT__TRY(sbit__exclude_first(x, middle, &drop, error));
        *(drop <= x->allowed ? &enough : &few) = middle;
    }
    SBIT__TRY(sbit__exclude_first(x, enough, &drop, error));
    for (size_t i = enough; i-- > 0;) {
        x->excluded[x->ranked[i].layer] = false;
        SBIT__TRY(sbit__exclude_drop(x, &drop, error));
        x->excluded[x->ranked[i].layer] = drop > x->allowed;
    }
    return SBIT_OK;
}

static sbit_status sbit__exclude_work(sbit__exclude *x, const sbit_feed *feed, sbit_error *error)
{
    const sbit_node_id none = {0};
    sbit_quant *quant = x->quant;
    SBIT__TRY(sbit__trials_begin(quant, feed, &x->trials, error));
    SBIT__TRY(sbit__trials_run(&x->trials, x->sites, none, &x->plain, error)); /* no site yet */
    SBIT__TRY(sbit__exclude_search(x, error));
    for (size_t i = 0; i < quant->site_count; i++) {
        if (x->excluded[x->layers.of_site[i]]) {
            quant->sites[i].search_float = "left float by step auto_exclude";
        }
    }
    for (size_t l = 0; l < x->layers.count; l++) {
        if (x->excluded[l]) {
            sbit__log(quant->ctx, SBIT_LOG_INFO, "auto_exclude: layer '%s' stays float",
                      x->layers.items[l].name);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__exclude_run(void *state, const sbit_options *options,
                                     const sbit_feed *feed, sbit_error *error)
{
    sbit__exclude x;
    memset(&x, 0, sizeof x);
    x.quant = (sbit_quant *)state;
    x.allowed = sbit_options_float(options, "STEP.AUTO_EXCLUDE.MAX_DROP");
    const sbit_allocator *a = sbit_ctx_allocator(x.quant->ctx);
    sbit_status status = sbit__search_layers_find(x.quant, &x.layers, error);
    const size_t bytes =
        (x.layers.count + 1) * (sizeof *x.ranked + 1) + x.quant->site_count + 1;
    if (status == SBIT_OK) {
        x.ranked = (sbit__excluded *)sbit__calloc(a, 1, bytes);
        status = x.ranked != NULL ? SBIT_OK : sbit__fail_oom(error, bytes);
    }
    if (status == SBIT_OK) {
        x.excluded = (bool *)(void *)(x.ranked + x.layers.count + 1);
        x.sites = x.excluded + x.layers.count + 1;
        status = sbit__exclude_work(&x, feed, error);
        sbit__trials_end(&x.trials);
    }
    sbit__free(a, x.ranked, bytes);
    sbit__search_layers_free(x.quant, &x.layers);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_auto_exclude(void)
{
    static const sbit_step_row row = {
        {"auto_exclude", "the fewest layers float that keep the accuracy",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__exclude_keys,
         SBIT__COUNT_OF(sbit__exclude_keys)},
        SBIT_STAGE_SEARCH,
        true,
        sbit__exclude_run,
    };
    return &row;
}
