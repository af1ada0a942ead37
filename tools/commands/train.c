/* commands/train.c: `sparsebit train`: trains, finetunes, and trains quantized (-c), with labels
 * and perhaps a teacher.
 *
 * With -s channels are cut first, or weights are masked while training. After each epoch the model
 * is measured on --val and, if it is the best so far (or there is no --val), written to -o; a
 * checkpoint goes beside it, then and on Ctrl-C, from which --resume goes on exactly.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "report/quantize.h"
#include "report/unsupported.h"

#include <signal.h> /* SIGINT */
#include <stdlib.h> /* malloc, strtod */

static volatile sig_atomic_t cli_interrupted;

static void cli_interrupt(int number)
{
    (void)number;
    cli_interrupted = 1;
}

typedef struct cli_training {
    cli_job job; /* the model; with -c: configuration, calibration set and quantizers */
    cli_data train, val;
    bool has_val;
    cli_model teachers[CLI_MAX_LIST];
    size_t teacher_count;
    cli_source_feed source;
    sbit_trainer *trainer;
    sbit_sconfig *pruning;
    sbit_sparse *sparse;
    sbit_graph *original; /* the model before channels were cut; NULL: none were */
    sbit_graph *graph;    /* as trained so far, after an epoch */
    bool masks;           /* made while training */
    FILE *log;
    bool log_json;
    double begin, before, best, last, loss; /* accuracies as fractions; -1: not known */
    int64_t best_epoch, epochs, steps;
    int code; /* of a failure in a hook */
} cli_training;

static double cli_one(const cli_numbers *numbers, double otherwise)
{
    return numbers->count > 0 ? numbers->items[0] : otherwise;
}

/* ---- opening */

/* The sconfig of -s: channels go now, masks of elements come while training. */
static int cli_train_prune(cli_training *t)
{
    const cli_args *args = t->job.args;
    cli_model *model = &t->job.model;
    cli_data data;
    cli_source_feed source;
    sbit_sparse_budget budget;
    sbit_graph_cost cost;
    sbit_graph *smaller = NULL;
    sbit_error error;
    memset(&data, 0, sizeof data);
    memset(&source, 0, sizeof source);
    memset(&budget, 0, sizeof budget);
    budget.tune = sbit_trainer_tune;
    memset(&error, 0, sizeof error);
    const bool budgeted = args->macs != NULL || args->bytes != NULL;
    if (args->sconfig == NULL) {
        return budgeted ? cli_fail_usage(args->command, "--macs and --bytes go with -s") : CLI_OK;
    }
    if (sbit_sconfig_load(model->ctx, args->sconfig, &t->pruning, &error) != SBIT_OK ||
        sbit_sparse_create(model->graph, t->pruning, &t->sparse, &error) != SBIT_OK) {
        return cli_fail_library(&error, "pruning configuration '%s'", args->sconfig);
    }
    t->masks = true;
    for (sbit_node_id id = sbit_graph_first(model->graph); id.idx != 0 && t->masks;
         id = sbit_graph_next(model->graph, id)) {
        sbit_sparse_settings settings;
        t->masks = sbit_sconfig_layer(t->pruning, model->graph, id, &settings, &error) != SBIT_OK ||
                   !settings.structured;
    }
    if (t->masks) {
        return budgeted ? cli_fail_usage(args->command,
                                         "--macs and --bytes need a structured layer in '%s'", args->sconfig)
                        : CLI_OK;
    }
    if (sbit_graph_cost_of(model->graph, &cost, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot prune '%s'", model->path);
    }
    CLI_TRY(args->macs != NULL ? cli_model_share(model, args, "--macs", args->macs, NULL, &budget.macs) : CLI_OK);
    CLI_TRY(args->bytes != NULL ? cli_model_share(model, args, "--bytes", args->bytes, &cost, &budget.bytes)
                                : CLI_OK);
    CLI_TRY(cli_data_open(args, model, "training set", args->data, cli_first(256), &data));
    sbit_feed feed = cli_feed_of(&data, &source);
    error.status = budgeted ? sbit_sparse_fit(t->sparse, &budget, &feed, &error)
                            : sbit_sparse_select(t->sparse, &feed, &error);
    if (error.status == SBIT_OK) {
        error.status = sbit_sparse_shrink(t->sparse, &feed, &smaller, &error);
    }
    sbit_feed_close(&feed);
    cli_data_close(&data);
    if (error.status != SBIT_OK) {
        return source.failed ? CLI_BAD : cli_fail_library(&error, "cannot prune '%s'", model->path);
    }
    t->original = model->graph;
    model->graph = smaller;
    return CLI_OK;
}

static int cli_train_model(cli_training *t)
{
    const cli_args *args = t->job.args;
    cli_model *model = &t->job.model;
    sbit_simplify_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    if (args->config != NULL || args->target != NULL || args->set.count > 0) {
        CLI_TRY(cli_config_make(&t->job));
        CLI_TRY(cli_model_check_runs(model));
        CLI_TRY(cli_calibration_open(&t->job));
        return cli_calibrate(&t->job);
    }
    desc.keep_batch_norm = desc.keep_dropout = true;
    if (!args->as_is && sbit_simplify(model->graph, &desc, NULL, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s'", model->path);
    }
    return cli_model_check_runs(model);
}

static int cli_train_data(cli_training *t)
{
    const cli_args *args = t->job.args;
    CLI_TRY(cli_data_open(args, &t->job.model, "training set", args->data, cli_first(args->limit),
                          &t->train));
    if (!t->train.has_labels) {
        return cli_fail("'%s' has no labels to learn: add ,labels=FILE to the data", args->data);
    }
    if (args->val == NULL) {
        return CLI_OK;
    }
    CLI_TRY(cli_data_open(args, &t->job.model, "validation set", args->val, cli_first(0), &t->val));
    t->has_val = true;
    return t->val.has_labels ? CLI_OK
                             : cli_fail("--val '%s' has no labels: add ,labels=FILE", args->val);
}

/* Weights that are zero are masked. */
static sbit_status cli_train_mask(cli_training *t, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    for (size_t i = 0; status == SBIT_OK && i < sbit_trainer_parameter_count(t->trainer); i++) {
        const sbit_train_parameter p = sbit_trainer_parameter(t->trainer, i);
        const int64_t count = sbit_tensor_count(&p.data);
        if (p.data.rank < 2) {
            continue;
        }
        uint8_t *keep = (uint8_t *)malloc((size_t)count + 1);
        if (keep == NULL) {
            return SBIT_ERR_OUT_OF_MEMORY;
        }
        for (int64_t k = 0; k < count; k++) {
            keep[k] = ((const float *)p.data.data)[k] != 0.0f;
        }
        status = sbit_trainer_set_mask(t->trainer, p.name, keep, error);
        free(keep);
    }
    return status;
}

/* What teachers are for; graphs, features: room for what desc points to. */
static int cli_train_teachers(cli_training *t, sbit_graph *graphs[CLI_MAX_LIST], sbit_train_feature *features,
                              sbit_train_desc *desc)
{
    const cli_args *args = t->job.args;
    if (args->features == NULL && args->feature_weight.count > 0) {
        return cli_fail_usage(args->command, "--feature-weight goes with --features");
    }
    if (args->teacher.count == 0) {
        return args->features == NULL && args->distill.count == 0
                   ? CLI_OK
                   : cli_fail_usage(args->command, "%s needs a teacher: name it with --teacher",
                                    args->features != NULL ? "--features" : "--distill");
    }
    for (size_t i = 0; i < args->teacher.count; i++) {
        cli_model *teacher = &t->teachers[i];
        CLI_TRY(cli_model_load(t->job.model.ctx, args->teacher.items[i], teacher));
        t->teacher_count++;
        CLI_TRY(cli_model_prepare(args, teacher));
        graphs[i] = teacher->graph;
    }
    desc->teachers = graphs;
    desc->teacher_count = t->teacher_count;
    desc->distill = (float)cli_one(&args->distill, 0.5);
    features->student = args->features;
    features->weight = (float)cli_one(&args->feature_weight, 10.0);
    desc->features = features;
    desc->feature_count = args->features != NULL ? 1 : 0;
    return CLI_OK;
}

static int cli_train_trainer(cli_training *t)
{
    static const sbit_train_group no_decay[] = {{"*.bias", false, 0.0f, true}};
    const cli_args *args = t->job.args;
    char options[64], smoothing[64];
    sbit_train_desc desc;
    sbit_train_feature features;
    sbit_graph *teachers[CLI_MAX_LIST];
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&features, 0, sizeof features);
    memset(&error, 0, sizeof error);
    desc.optimizer = args->optimizer != NULL ? args->optimizer : "sgd";
    snprintf(options, sizeof options, "{MOMENTUM: %g, NESTEROV: true}",
             cli_one(&args->momentum, 0.9));
    desc.optimizer_options = strcmp(desc.optimizer, "sgd") == 0 ? options : NULL;
    desc.learning_rate =
        (float)cli_one(&args->lr, strcmp(desc.optimizer, "sgd") == 0 ? 0.01 : 0.001);
    desc.weight_decay = (float)cli_one(&args->decay, 1e-4);
    desc.groups = no_decay;
    desc.group_count = 1;
    desc.clip_norm = (float)cli_one(&args->clip, 0.0);
    desc.ema = (float)cli_one(&args->ema, 0.0);
    desc.slim = (float)cli_one(&args->slim, 0.0);
    desc.dampening = (float)cli_one(&args->dampening, 0.0);
    desc.observe = (float)cli_one(&args->observe, 0.0);
    desc.checkpoint = args->checkpoint;
    snprintf(smoothing, sizeof smoothing, "SMOOTHING: %g", cli_one(&args->smoothing, 0.0));
    desc.loss_options = smoothing;
    CLI_TRY(cli_find_output(args, t->job.model.graph, &desc.output));
    CLI_TRY(cli_train_teachers(t, teachers, &features, &desc));
    error.status = t->job.quant != NULL
                       ? sbit_trainer_create_qat(t->job.quant, &desc, &t->trainer, &error)
                       : sbit_trainer_create(t->job.model.graph, &desc, &t->trainer, &error);
    if (error.status == SBIT_OK && args->keep_zeros) {
        error.status = cli_train_mask(t, &error);
    }
    for (size_t i = 0; error.status == SBIT_OK && i < args->freeze.count; i++) {
        if (sbit_trainer_freeze(t->trainer, args->freeze.items[i], true) == 0) {
            return cli_fail("--freeze '%s' matches no weight", args->freeze.items[i]);
        }
    }
    return error.status == SBIT_OK
               ? CLI_OK
               : cli_fail_library(&error, "cannot train '%s'", t->job.model.path);
}

/* ---- after each epoch */

/* The model as trained so far, to be destroyed. */
static int cli_train_built(cli_training *t, sbit_graph **out)
{
    static const char *const identity[] = {"identity"}; /* Dropout was for training */
    sbit_simplify_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.only = identity;
    desc.only_count = 1;
    if (t->job.quant != NULL) {
        error.status = sbit_trainer_finish_qat(t->trainer, &error);
        error.status = error.status == SBIT_OK ? sbit_quant_build(t->job.quant, NULL, out, &error)
                                               : error.status;
    } else {
        error.status = sbit_graph_clone(t->job.model.graph, out, &error);
        error.status =
            error.status == SBIT_OK ? sbit_trainer_store(t->trainer, *out, &error) : error.status;
        if (error.status == SBIT_OK && !t->job.args->as_is) {
            error.status = sbit_simplify(*out, &desc, NULL, &error);
        }
    }
    return error.status == SBIT_OK ? CLI_OK : cli_fail_library(&error, "cannot store the weights");
}

static int cli_train_measure(cli_training *t, sbit_graph *graph, double *top1)
{
    cli_score score;
    *top1 = -1.0;
    if (t->has_val) {
        CLI_TRY(cli_evaluate(&t->val, graph, t->job.args->out, true, NULL, &score));
        *top1 = (double)score.top1 / (double)score.samples;
    }
    return CLI_OK;
}

static int cli_train_save(cli_training *t)
{
    char path[4096];
    sbit_error error;
    memset(&error, 0, sizeof error);
    snprintf(path, sizeof path, "%s.checkpoint", t->job.args->out);
    if (sbit_trainer_save(t->trainer, path, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot write '%s'", path);
    }
    return CLI_OK;
}

static void cli_train_say(const cli_training *t, const sbit_train_report *report)
{
    const double seconds = cli_seconds() - t->begin;
    cli_progress_clear();
    if (t->log != NULL) {
        fprintf(t->log,
                t->log_json ? "{\"epoch\": %lld, \"step\": %lld, \"loss\": %.6g, \"rate\": %.6g, "
                              "\"top1\": %.6g, \"seconds\": %.1f}\n"
                            : "%lld,%lld,%.6g,%.6g,%.6g,%.1f\n",
                (long long)report->epoch + 1, (long long)report->step, report->loss,
                report->learning_rate, t->last, seconds);
        fflush(t->log);
    }
    if (t->job.args->json) {
        return;
    }
    printf("epoch %lld/%lld  loss %.4f  rate %.3g", (long long)report->epoch + 1,
           (long long)t->epochs, report->loss, report->learning_rate);
    if (t->has_val) {
        printf("  top-1 %.2f %%%s", 100.0 * t->last, t->best == t->last ? "" : "  (not the best)");
    }
    printf("  %.0f s\n", seconds);
    fflush(stdout);
}

/* --val after an epoch: how often the label has the highest logit. */
static sbit_status cli_train_score(sbit_trainer *trainer, const sbit_train_report *report,
                                   void *user, double *score, sbit_error *error)
{
    cli_training *t = (cli_training *)user;
    (void)trainer;
    (void)report;
    (void)error;
    sbit_graph_destroy(t->graph);
    t->graph = NULL;
    t->code = cli_train_built(t, &t->graph);
    t->code = t->code == CLI_OK ? cli_train_measure(t, t->graph, &t->last) : t->code;
    *score = t->last;
    return t->code == CLI_OK ? SBIT_OK : SBIT_ERR_CANCELLED;
}

static sbit_status cli_train_epoch(sbit_trainer *trainer, const sbit_train_report *report,
                                   void *user, sbit_error *error)
{
    cli_training *t = (cli_training *)user;
    sbit_error failure;
    (void)trainer;
    (void)error;
    memset(&failure, 0, sizeof failure);
    t->loss = report->loss;
    t->steps = report->step;
    if (t->has_val) {
        t->best = report->best;
        t->best_epoch = report->best_epoch + 1;
    } else {
        sbit_graph_destroy(t->graph);
        t->graph = NULL;
        t->code = cli_train_built(t, &t->graph);
    }
    if (t->code == CLI_OK && (!t->has_val || report->best_epoch == report->epoch) &&
        sbit_graph_save(t->graph, t->job.args->out, NULL, &failure) != SBIT_OK) {
        t->code = cli_fail_library(&failure, "cannot write '%s'", t->job.args->out);
    }
    t->code = t->code == CLI_OK ? cli_train_save(t) : t->code;
    if (t->code == CLI_OK) {
        cli_train_say(t, report);
    }
    return t->code == CLI_OK ? SBIT_OK : SBIT_ERR_CANCELLED;
}

/* Ctrl-C: a checkpoint, then the end. */
static sbit_status cli_train_stop(sbit_trainer *trainer, const sbit_train_report *report,
                                  void *user, sbit_error *error)
{
    cli_training *t = (cli_training *)user;
    (void)trainer;
    (void)error;
    if (cli_interrupted == 0) {
        return SBIT_OK;
    }
    t->code = cli_train_save(t);
    if (t->code == CLI_OK) {
        cli_progress_clear();
        t->code = cli_fail("interrupted after step %lld; go on with --resume %s.checkpoint",
                           (long long)report->step, t->job.args->out);
    }
    return SBIT_ERR_CANCELLED;
}

/* ---- the command */

static int cli_train_fit(cli_training *t)
{
    const cli_args *args = t->job.args;
    sbit_fit_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.epochs = t->epochs;
    desc.batch = t->train.batch;
    desc.seed = (uint64_t)args->seed;
    desc.rate = args->schedule != NULL ? args->schedule : "cosine";
    desc.warmup = args->warmup;
    desc.anneal = (int32_t)args->anneal;
    desc.freeze_statistics = args->freeze_statistics;
    desc.micro = args->micro;
    desc.mixup = (float)cli_one(&args->mixup, 0.0);
    desc.cutmix = (float)cli_one(&args->cutmix, 0.0);
    desc.patience = args->patience;
    desc.sparse = t->masks ? t->sparse : NULL;
    desc.rewind = args->rewind;
    desc.measure = t->has_val ? cli_train_score : NULL;
    desc.after_step = cli_train_stop;
    desc.resume = args->resume != NULL;
    desc.flip = args->flip;
    desc.shift = args->shift;
    desc.cutout = args->cutout;
    desc.after_epoch = cli_train_epoch;
    desc.user = t;
    sbit_feed feed = cli_feed_of(&t->train, &t->source);
    const sbit_status status = sbit_trainer_fit(t->trainer, &feed, &desc, NULL, &error);
    sbit_feed_close(&feed);
    if (t->code != CLI_OK || t->source.failed) {
        return CLI_BAD;
    }
    return status == SBIT_OK ? CLI_OK
                             : cli_fail_library(&error, "cannot train '%s'", t->job.model.path);
}

static int cli_train_show(const cli_training *t)
{
    const cli_args *args = t->job.args;
    const double seconds = cli_seconds() - t->begin;
    const sbit_train_memory memory = sbit_trainer_memory(t->trainer);
    char values[32], least[32];
    if (args->json) {
        cli_json json;
        cli_json_begin(&json);
        sbit_json_open(&json.to, NULL, '{');
        sbit_json_text(&json.to, "model", args->operands[0]);
        sbit_json_text(&json.to, "out", args->out);
        sbit_json_int(&json.to, "samples", t->train.count);
        sbit_json_int(&json.to, "epochs", t->epochs);
        sbit_json_int(&json.to, "steps", t->steps);
        sbit_json_number(&json.to, "loss", t->loss);
        if (t->has_val) {
            sbit_json_number(&json.to, "before", t->before);
            sbit_json_number(&json.to, "top1", t->best);
            sbit_json_int(&json.to, "best_epoch", t->best_epoch);
        }
        sbit_json_number(&json.to, "seconds", seconds);
        sbit_json_int(&json.to, "parameter_bytes", (int64_t)memory.parameter_bytes);
        sbit_json_int(&json.to, "optimizer_bytes", (int64_t)memory.optimizer_bytes);
        sbit_json_int(&json.to, "activation_bytes", (int64_t)memory.planned_bytes);
        sbit_json_int(&json.to, "least_activation_bytes", (int64_t)memory.live_bytes);
        sbit_json_close(&json.to, '}');
        return cli_json_print(&json);
    }
    if (t->has_val) {
        printf("%-10s %.2f %% before, %.2f %% after epoch %lld\n", "top-1", 100.0 * t->before,
               100.0 * t->best, (long long)t->best_epoch);
    }
    printf("%-10s %s for the values of a step, at least %s\n", "memory",
           cli_bytes_text((double)memory.planned_bytes, values, sizeof values),
           cli_bytes_text((double)memory.live_bytes, least, sizeof least));
    printf("%-10s %s\n", "written", args->out);
    return CLI_OK;
}

static int cli_train_run(cli_training *t)
{
    const cli_args *args = t->job.args;
    sbit_graph *graph = NULL;
    CLI_TRY(cli_train_prune(t));
    CLI_TRY(cli_train_model(t));
    CLI_TRY(cli_train_data(t));
    CLI_TRY(cli_train_trainer(t));
    if (args->log != NULL) {
        t->log = fopen(args->log, args->resume != NULL ? "a" : "w");
        if (t->log == NULL) {
            return cli_fail("--log '%s' cannot be written", args->log);
        }
        const char *dot = strrchr(args->log, '.');
        t->log_json = dot != NULL && strcmp(dot, ".json") == 0;
        fputs(args->resume != NULL || t->log_json ? "" : "epoch,step,loss,rate,top1,seconds\n",
              t->log);
    }
    t->epochs = args->epochs > 0 ? args->epochs : 1;
    t->best = t->last = -1.0;
    t->begin = cli_seconds();
    if (t->has_val) {
        int code = cli_train_built(t, &graph);
        code = code == CLI_OK ? cli_train_measure(t, graph, &t->before) : code;
        sbit_graph_destroy(graph);
        CLI_TRY(code);
    }
    if (args->resume != NULL) { /* "before" is the model's own */
        sbit_error error;
        memset(&error, 0, sizeof error);
        if (sbit_trainer_load(t->trainer, args->resume, &error) != SBIT_OK) {
            return cli_fail_library(&error, "cannot go on from '%s'", args->resume);
        }
    }
    signal(SIGINT, cli_interrupt);
    const int code = cli_train_fit(t);
    signal(SIGINT, SIG_DFL);
    return code == CLI_OK ? cli_train_show(t) : code;
}

int cli_train(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_training t;
    cli_args own = *args;
    memset(&t, 0, sizeof t);
    own.batch = args->batch > 0 ? args->batch : 64;
    t.job.args = &own;
    CLI_TRY(cli_check_out(args));
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &t.job.model);
    if (code == CLI_OK) {
        code = cli_train_run(&t);
        sbit_trainer_destroy(t.trainer);
        sbit_graph_destroy(t.graph);
        sbit_quant_destroy(t.job.quant);
        sbit_qconfig_destroy(t.job.config);
        cli_data_close(&t.job.calib);
        cli_data_close(&t.train);
        cli_data_close(&t.val);
        for (size_t i = 0; i < t.teacher_count; i++) {
            cli_model_free(&t.teachers[i]);
        }
        if (t.original != NULL) {
            sbit_graph_destroy(t.job.model.graph);
            t.job.model.graph = t.original;
        }
        sbit_sparse_destroy(t.sparse);
        sbit_sconfig_destroy(t.pruning);
        cli_model_free(&t.job.model);
    }
    if (t.log != NULL) {
        fclose(t.log);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
