/* fit.c: the loop of training, and schedules of the learning rate. >>fit
 *
 * Called by: users. Calls: trainer.
 */
#include "train_private.h"

#include <math.h> /* cos, pow */

/* >>schedules */

static const double sbit__rate_pi = 3.14159265358979323846;

static double sbit__rate_constant(const sbit_options *options, int64_t step, int64_t total)
{
    (void)options;
    (void)step;
    (void)total;
    return 1.0;
}

static const sbit_key sbit__rate_cosine_keys[] = {
    {"LOWEST", SBIT_KEY_FLOAT, "0", 0, 1, NULL, "what is left of the rate at the end"},
};

static double sbit__rate_cosine(const sbit_options *options, int64_t step, int64_t total)
{
    const double lowest = sbit_options_float(options, "LOWEST");
    const double at = total > 0 ? (double)step / (double)total : 0.0;
    return lowest + (1.0 - lowest) * 0.5 * (1.0 + cos(sbit__rate_pi * at));
}

static const sbit_key sbit__rate_step_keys[] = {
    {"PARTS", SBIT_KEY_INT, "3", 1, 1000, NULL, "training is cut in so many equal parts"},
    {"FACTOR", SBIT_KEY_FLOAT, "0.1", 0, 1, NULL, "on the rate from one part to the next"},
};

static double sbit__rate_step(const sbit_options *options, int64_t step, int64_t total)
{
    const int64_t parts = sbit_options_int(options, "PARTS");
    return pow(sbit_options_float(options, "FACTOR"),
               (double)(total > 0 ? step * parts / total : 0));
}

static const sbit_key sbit__rate_one_cycle_keys[] = {
    {"RISE", SBIT_KEY_FLOAT, "0.3", 0, 1, NULL, "part of training in which the rate grows"},
    {"FIRST", SBIT_KEY_FLOAT, "0.04", 0, 1, NULL, "what it begins with"},
    {"LOWEST", SBIT_KEY_FLOAT, "0.0001", 0, 1, NULL, "what is left at the end"},
};

static double sbit__rate_one_cycle(const sbit_options *options, int64_t step, int64_t total)
{
    const double rise = sbit_options_float(options, "RISE") * (double)total;
    const double first = sbit_options_float(options, "FIRST");
    const double lowest = sbit_options_float(options, "LOWEST");
    const double at = (double)step;
    if (at < rise) {
        return first + (1.0 - first) * 0.5 * (1.0 - cos(sbit__rate_pi * at / rise));
    }
    const double rest = (double)total > rise ? (at - rise) / ((double)total - rise) : 1.0;
    return lowest + (1.0 - lowest) * 0.5 * (1.0 + cos(sbit__rate_pi * rest));
}

#define SBIT__RATE_KEYS(keys) keys, SBIT__COUNT_OF(keys)

static const sbit_rate_row sbit__rates[] = {
    {{"constant", "the same rate all the time", 0, NULL, 0}, sbit__rate_constant},
    {{"cosine", "half a cosine down to LOWEST", 0, SBIT__RATE_KEYS(sbit__rate_cosine_keys)},
     sbit__rate_cosine},
    {{"step", "times FACTOR after each part", 0, SBIT__RATE_KEYS(sbit__rate_step_keys)},
     sbit__rate_step},
    {{"one_cycle", "up, then down", 0, SBIT__RATE_KEYS(sbit__rate_one_cycle_keys)},
     sbit__rate_one_cycle},
};

#undef SBIT__RATE_KEYS

static const sbit_head *sbit__rate_head(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__rates) ? &sbit__rates[index].head : NULL;
}

SBIT__FN const sbit__kind *sbit__kind_rate(void)
{
    static const sbit__kind kind = {"schedule", sbit__rate_head};
    return &kind;
}

SPARSEBIT_API sbit_status sbit_rate_register(sbit_ctx *ctx, const sbit_rate_row *row,
                                             sbit_error *error)
{
    return sbit__row_register(ctx, sbit__kind_rate(), row != NULL ? &row->head : NULL,
                              row != NULL && row->factor != NULL, error);
}

SPARSEBIT_API const sbit_rate_row *sbit_rate_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_rate_row *)(const void *)sbit__row_find(ctx, sbit__kind_rate(), name);
}

SPARSEBIT_API const sbit_rate_row *sbit_rate_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__rates) ? &sbit__rates[index] : NULL;
}

/* >>the loop */

typedef struct sbit__epochs {
    sbit_trainer *trainer;
    const sbit_feed *feed;
    const sbit_fit_desc *desc;
    const sbit_rate_row *rate;
    sbit_options options;
    sbit__arena arena;
    int64_t *order;
    int64_t samples, batch, epochs, steps, total; /* of an epoch, a step; steps of an epoch, all */
    int64_t micro;                                /* samples of a run */
    bool whole;                                   /* the model takes full batches only */
    sbit_tensor room[2];                          /* of changed pictures and targets */
} sbit__epochs;

/* A new order for each epoch, the same for the same seed. */
static void sbit__epochs_shuffle(sbit__epochs *fit, int64_t epoch)
{
    const int64_t count = fit->feed->count;
    sbit_rng rng = sbit_rng_seed(fit->desc->seed * 1000003u + (uint64_t)epoch);
    for (int64_t i = 0; i < count; i++) {
        fit->order[i] = i;
    }
    for (int64_t i = count - 1; !fit->desc->in_order && i > 0; i--) {
        const int64_t k = (int64_t)sbit_rng_below(&rng, (uint32_t)(i + 1));
        const int64_t other = fit->order[k];
        fit->order[k] = fit->order[i];
        fit->order[i] = other;
    }
}

/* Whether the model or a teacher takes batches of one size only. Targets and what teachers say are no
 * inputs of the model's: a feature's first dim may be fixed. */
static bool sbit__epochs_whole(const sbit_trainer *t)
{
    bool whole = false;
    for (size_t k = 0; k <= t->teacher_count; k++) {
        const sbit_session *session = k < t->teacher_count ? t->teachers[k] : t->session;
        for (size_t i = k < t->teacher_count ? 0 : t->desc.input_count; i < sbit_session_input_count(session); i++) {
            const sbit_value_info *info = sbit_session_input_info(session, i);
            const bool own = k < t->teacher_count || !sbit__train_is_fed(t, info->name);
            whole = whole || (own && info->type.rank > 0 && sbit__dim_known(info->type.dims[0]));
        }
    }
    return whole;
}

static sbit_status sbit__epochs_init(sbit__epochs *fit, sbit_error *error)
{
    const sbit_fit_desc *desc = fit->desc;
    const sbit_head *head = NULL;
    const int64_t most = fit->feed->batch > 0 ? fit->feed->batch : (int64_t)SBIT_FEED_MOST;
    SBIT__TRY(sbit__train_row(fit->trainer->ctx, sbit__kind_rate(),
                              desc->rate != NULL ? desc->rate : "constant", &head, error));
    fit->rate = (const sbit_rate_row *)(const void *)head;
    SBIT__TRY(sbit__train_options(fit->trainer->ctx, &fit->arena, head, desc->rate_options,
                                  &fit->options, error));
    fit->batch = desc->batch > 0 ? desc->batch : 64;
    fit->micro = desc->micro > 0 && desc->micro < most ? desc->micro : most;
    fit->micro = fit->micro > fit->batch ? fit->batch : fit->micro;
    fit->epochs = desc->epochs > 0 ? desc->epochs : 1;
    fit->samples = desc->most > 0 && desc->most < fit->feed->count ? desc->most : fit->feed->count;
    fit->whole = sbit__epochs_whole(fit->trainer);
    fit->steps = (fit->samples + (fit->whole ? 0 : fit->batch - 1)) / fit->batch;
    fit->total = fit->steps * fit->epochs;
    if (fit->steps == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "%lld samples do not make a batch of %lld", (long long)fit->samples,
                          (long long)fit->batch);
    }
    fit->order =
        (int64_t *)sbit__arena_array(&fit->arena, (size_t)fit->feed->count + 1, sizeof *fit->order);
    return fit->order != NULL ? SBIT_OK
                              : sbit__fail_oom(error, (size_t)fit->feed->count * sizeof(int64_t));
}

/* The factor on the trainer's rate. */
static double sbit__epochs_rate(const sbit__epochs *fit, int64_t step)
{
    const int64_t warm = fit->desc->warmup;
    if (step < warm) {
        return (double)(step + 1) / (double)warm;
    }
    return fit->rate->factor(&fit->options, step - warm, fit->total - warm);
}

/* Bits of the quantizers at a step, by desc.anneal. */
static int32_t sbit__epochs_bits(const sbit__epochs *fit, int64_t step)
{
    const int64_t first = fit->desc->anneal, even = fit->total / (2 * (first > 0 ? first : 1));
    const int64_t every = fit->desc->anneal_steps > 0 ? fit->desc->anneal_steps : even + 1;
    return step / every < first ? (int32_t)(first - step / every) : 0;
}

/* The step of the last masks. */
static int64_t sbit__epochs_sparse_end(const sbit__epochs *fit)
{
    const int64_t end = fit->desc->sparse_end > 0 ? fit->desc->sparse_end : fit->total * 2 / 3;
    return end > 0 ? end : 1;
}

/* Masks grow after this epoch, too: its score is that of another model than what is asked for. */
static bool sbit__epochs_grows(const sbit__epochs *fit, int64_t epoch)
{
    return fit->desc->sparse != NULL && (epoch + 1) * fit->steps <= sbit__epochs_sparse_end(fit) &&
           epoch + 1 < fit->epochs;
}

SBIT__FN sbit_status sbit__train_masks(sbit_trainer *t, const sbit_sparse *sparse, sbit_error *error)
{
    for (size_t i = 0; i < sbit_sparse_mask_count(sparse); i++) {
        sbit_mask mask;
        SBIT__TRY(sbit_sparse_mask(sparse, i, &mask));
        for (size_t k = 0; k < t->param_count; k++) {
            if (sbit__streq(t->params[k].name, mask.name)) {
                SBIT__TRY(sbit_trainer_set_mask(t, mask.name, mask.keep, error));
            }
        }
    }
    return SBIT_OK;
}

/* The weights go to the sparse, its masks to the trainer, if this is a step for that. */
static sbit_status sbit__epochs_prune(sbit__epochs *fit, int64_t step, sbit_error *error)
{
    sbit_trainer *t = fit->trainer;
    sbit_sparse *sparse = fit->desc->sparse;
    const int64_t end = sbit__epochs_sparse_end(fit);
    const int64_t tenth = end > 10 ? end / 10 : 1;
    const int64_t every = fit->desc->sparse_every > 0 ? fit->desc->sparse_every : tenth;
    if (sparse == NULL || step > end || (step % every != 0 && step != end)) {
        return SBIT_OK;
    }
    for (size_t i = 0; i < t->param_count; i++) {
        const sbit__train_param *p = &t->params[i];
        const sbit_graph *graph = sbit_sparse_graph(sparse);
        const sbit_value_id id = sbit_graph_find_value(graph, p->name);
        if (id.idx != 0 && sbit_graph_value(graph, id)->is_constant) {
            SBIT__TRY(sbit_sparse_set_weight(sparse, p->name, &p->data, error));
        }
    }
    SBIT__TRY(sbit_sparse_step(sparse, step, end, fit->feed, error));
    SBIT__TRY(sbit__train_masks(t, sparse, error));
    if (fit->desc->rewind && step == 0) {
        SBIT__TRY(sbit_trainer_mark(t, error));
    }
    return fit->desc->rewind && step == end ? sbit_trainer_rewind(t, error) : SBIT_OK;
}

static sbit_status sbit__epochs_step(sbit__epochs *fit, int64_t epoch, int64_t index,
                                     sbit_error *error)
{
    sbit_trainer *t = fit->trainer;
    const sbit_fit_desc *desc = fit->desc;
    const int64_t first = index * fit->batch, rest = fit->samples - first;
    const int64_t count = rest < fit->batch ? rest : fit->batch;
    sbit_batch batch;
    sbit_train_report report;
    t->factor = sbit__epochs_rate(fit, epoch * fit->steps + index);
    t->report.epoch = epoch;
    t->report.learning_rate = t->rate * t->factor;
    if (desc->freeze_statistics > 0 && t->report.step >= desc->freeze_statistics) {
        sbit_trainer_freeze_statistics(t, true);
    }
    SBIT__TRY(sbit__epochs_prune(fit, epoch * fit->steps + index, error));
    if (desc->anneal > 0) {
        SBIT__TRY(sbit_trainer_set_bits(t, sbit__epochs_bits(fit, epoch * fit->steps + index),
                                        error));
    }
    if (desc->before_step != NULL) {
        SBIT__TRY(desc->before_step(t, &t->report, desc->user, error));
    }
    for (int64_t at = 0; at < count; at += fit->micro) {
        const int64_t wanted = count - at < fit->micro ? count - at : fit->micro;
        memset(&batch, 0, sizeof batch);
        SBIT__TRY(fit->feed->read(fit->feed->user, fit->order + first + at, wanted, &batch, error));
        SBIT__TRY(sbit__augment_batch(t, desc, epoch, &batch, fit->room, error));
        SBIT__TRY(at == 0 ? sbit_trainer_backward(t, &batch, NULL, error)
                          : sbit_trainer_accumulate(t, &batch, NULL, error));
    }
    SBIT__TRY(sbit_trainer_update(t, &report, error));
    return desc->after_step != NULL ? desc->after_step(t, &report, desc->user, error) : SBIT_OK;
}

/* The score of the epoch that has ended; *ends: there were no better ones for too long. */
static sbit_status sbit__epochs_measure(sbit__epochs *fit, sbit_train_report *report, bool *ends,
                                        sbit_error *error)
{
    sbit_trainer *t = fit->trainer;
    sbit__train_snapshot *best = &t->best;
    double score = 0.0;
    *ends = false;
    if (fit->desc->measure == NULL) {
        return SBIT_OK;
    }
    sbit_trainer_swap_average(t);
    sbit_status status = fit->desc->measure(t, report, fit->desc->user, &score, error);
    const bool counts = !sbit__epochs_grows(fit, report->epoch);
    const bool better = counts && (best->data == NULL || score > best->score);
    if (status == SBIT_OK && better) {
        status = sbit__train_take(t, best, error);
        best->score = score;
        best->epoch = report->epoch;
    }
    sbit_trainer_swap_average(t);
    best->waited = better || !counts ? 0 : best->waited + 1;
    report->best = best->data != NULL ? best->score : score;
    report->best_epoch = best->data != NULL ? best->epoch : -1;
    *ends = fit->desc->patience > 0 && best->waited >= fit->desc->patience;
    return status;
}

static sbit_status sbit__epochs_run(sbit__epochs *fit, sbit_train_report *last, sbit_error *error)
{
    bool ends = false;
    sbit_trainer *t = fit->trainer;
    SBIT__TRY(sbit__epochs_init(fit, error));
    const int64_t begin = fit->desc->resume ? t->report.step : 0;
    if (!fit->desc->resume) {
        t->best.data = NULL;
        t->best.waited = 0;
    }
    /* stopped behind the last step of an epoch, before its score */
    const bool unmeasured = begin > 0 && begin % fit->steps == 0 && fit->desc->measure != NULL &&
                            !sbit__epochs_grows(fit, t->report.epoch) &&
                            (t->best.data == NULL ||
                             t->best.epoch + t->best.waited < t->report.epoch);
    for (int64_t epoch = begin / fit->steps - (unmeasured ? 1 : 0);
         epoch < fit->epochs && !ends; epoch++) {
        double loss = 0.0;
        int64_t samples = 0;
        sbit__epochs_shuffle(fit, epoch);
        const int64_t first = epoch < begin / fit->steps    ? fit->steps
                              : epoch == begin / fit->steps ? begin % fit->steps
                                                            : 0;
        for (int64_t i = first; i < fit->steps; i++) {
            SBIT__TRY(sbit__progress(t->ctx, "train", epoch * fit->samples + i * fit->batch,
                                     fit->epochs * fit->samples, error));
            SBIT__TRY(sbit__epochs_step(fit, epoch, i, error));
            loss += t->report.loss * (double)t->report.samples;
            samples += t->report.samples;
        }
        *last = t->report;
        last->loss = samples > 0 ? loss / (double)samples : 0.0;
        last->samples = samples;
        last->best_epoch = -1;
        SBIT__TRY(sbit__epochs_measure(fit, last, &ends, error));
        if (fit->desc->after_epoch != NULL) {
            SBIT__TRY(fit->desc->after_epoch(t, last, fit->desc->user, error));
        }
    }
    if (t->best.data != NULL) {
        SBIT__TRY(sbit__train_give_back(t, &t->best, error));
    }
    return sbit__progress(t->ctx, "train", fit->epochs * fit->samples, fit->epochs * fit->samples,
                          error);
}

SPARSEBIT_API sbit_status sbit_trainer_fit(sbit_trainer *trainer, const sbit_feed *feed,
                                           const sbit_fit_desc *desc, sbit_train_report *report,
                                           sbit_error *error)
{
    sbit__epochs fit;
    sbit_fit_desc defaults;
    sbit_train_report last;
    memset(&fit, 0, sizeof fit);
    memset(&defaults, 0, sizeof defaults);
    memset(&last, 0, sizeof last);
    fit.trainer = trainer;
    fit.feed = feed;
    fit.desc = desc != NULL ? desc : &defaults;
    sbit__arena_init(&fit.arena, &trainer->ctx->allocator);
    const sbit_status status = sbit__epochs_run(&fit, &last, error);
    trainer->factor = 1.0;
    sbit__arena_deinit(&fit.arena);
    sbit_tensor_free(trainer->ctx, &fit.room[0]);
    sbit_tensor_free(trainer->ctx, &fit.room[1]);
    if (status == SBIT_OK && report != NULL) {
        *report = last;
    }
    return status;
}
