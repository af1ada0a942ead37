/* tune.c: training inside of pruning: a masked graph, for some steps. >>tune
 *
 * Called by: searches, through sbit_sparse_budget.tune. Calls: trainer, fit.
 */
#include "train_private.h"

/* The proximal step of the alternating directions: w -= rho (w - z + u), with pull = z - u. */
static sbit_status sbit__tune_pull(sbit_trainer *trainer, const sbit_train_report *report,
                                   void *user, sbit_error *error)
{
    const sbit_sparse_tuning *tuning = (const sbit_sparse_tuning *)user;
    (void)report;
    (void)error;
    for (size_t i = 0; i < sbit_trainer_parameter_count(trainer); i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(trainer, i);
        const float *to = tuning->pull[p.value.idx], rho = (float)tuning->rho;
        float *w = (float *)p.data.data;
        for (int64_t k = 0; to != NULL && k < sbit_tensor_count(&p.data); k++) {
            w[k] -= rho * (w[k] - to[k]);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__tune_run(sbit_trainer *trainer, const sbit_sparse_tuning *tuning,
                                  sbit_error *error)
{
    const int64_t wanted = tuning->steps * tuning->batch, count = tuning->feed->count;
    sbit_sparse_tuning own = *tuning;
    sbit_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.batch = tuning->batch;
    fit.most = wanted < count ? wanted : count;
    fit.epochs = fit.most > 0 ? (wanted + fit.most - 1) / fit.most : 1;
    fit.seed = 1; /* all candidates see the same samples */
    fit.before_step = tuning->pull != NULL ? sbit__tune_pull : NULL;
    fit.user = &own;
    if (tuning->pull == NULL) {
        SBIT__TRY(sbit__train_masks(trainer, tuning->sparse, error));
    }
    SBIT__TRY(sbit_trainer_fit(trainer, tuning->feed, &fit, NULL, error));
    return sbit_trainer_store(trainer, tuning->graph, error);
}

SPARSEBIT_API sbit_status sbit_trainer_tune(const sbit_sparse_tuning *tuning, sbit_error *error)
{
    sbit_trainer *trainer = NULL;
    sbit_train_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.loss = tuning->loss;
    desc.optimizer = "sgd";
    desc.optimizer_options = "MOMENTUM: 0.9";
    desc.learning_rate = (float)tuning->rate;
    SBIT__TRY(sbit_trainer_create(tuning->graph, &desc, &trainer, error));
    const sbit_status status = sbit__tune_run(trainer, tuning, error);
    sbit_trainer_destroy(trainer);
    return status;
}
