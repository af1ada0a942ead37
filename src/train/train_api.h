/* train_api.h: training: a step, and a loop over a feed. >>train
 *
 * Called by: users. Calls: grad, exec, quant (QAT), sparse (masks).
 *
 *     sbit_trainer_create(graph, &desc, &trainer, &error);
 *     sbit_trainer_fit(trainer, &feed, &fit, &report, &error);    or sbit_trainer_step in a loop
 *     sbit_trainer_store(trainer, graph, &error);     weights and statistics, back to the graph
 *
 * A trainer has a private clone of the graph with loss and gradients as nodes: one plan, one
 * session. Parameters are the float32 weights that the loss depends on; running statistics of
 * BatchNormalization are states of the session. Dropout drops, by a function of step and place
 * alone, until the model is stored. One thread at a time per trainer; it uses all
 * threads of its context, and gives the same bits for any number of them.
 */
#ifndef SBIT_TRAIN_API_H
#define SBIT_TRAIN_API_H

#include "../quant/quant_api.h"
#include "../sparse/sparse_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_trainer sbit_trainer;

/* Settings for the parameters whose names match; of several groups the first counts. */
typedef struct sbit_train_group {
    const char *pattern; /* glob: "*.bias" */
    bool frozen;         /* not trained */
    float rate;          /* factor on the learning rate; 0: 1 */
    bool no_decay;       /* no weight decay */
} sbit_train_group;

/* An inner value of the model that learns to be like one of the teacher, of the same shape (Romero
 * et al. 2015; SHAPE if the two surely differ): adds weight * (mean squared difference / mean square of the teacher's) to the loss. */
typedef struct sbit_train_feature {
    const char *student, *teacher; /* names of values; teacher NULL: student is a glob, of all values
                                      that have one name and surely one shape in both, which share the
                                      weight; open dims are one if named alike or of one input's axis */
    float weight;                  /* 0: 1 */
} sbit_train_feature;

/* All zero is valid but for learning_rate. Texts are copied. */
typedef struct sbit_train_desc {
    const char *loss;              /* name of a loss row; NULL: cross_entropy */
    const char *loss_options;      /* YAML of its keys, "SMOOTHING: 0.1"; NULL: defaults */
    const char *optimizer;         /* name of an optimizer row; NULL: sgd */
    const char *optimizer_options; /* "MOMENTUM: 0.9" */
    float learning_rate, weight_decay;
    float clip_norm;  /* the gradient of all parameters together is at most this long; 0: no */
    float clip_value; /* each element of the gradient lies in +-this; 0: no */
    const sbit_train_group *groups;
    size_t group_count;
    const char *const *train; /* names of the parameters; NULL: all weights */
    size_t train_count;
    size_t output; /* which output of the model the loss looks at */
    /* distillation: the output [N, classes] also learns from the output of the same number and shape
     * of these models, which get the same inputs by their names: loss = (1 - distill) * loss +
     * distill * the mean over the teachers of kl(TEMPERATURE: temperature), whose slope is that of
     * the mean of what they say (Hinton et al. 2015) */
    sbit_graph *const *teachers; /* the graphs stay the caller's, who neither edits nor frees them
                                    before the trainer; the array is read once */
    size_t teacher_count;        /* 0: none */
    float distill, temperature;  /* 0: 0.5 and 4 */
    const sbit_train_feature *features; /* of the first teacher */
    size_t feature_count;
    bool fixed_statistics; /* BatchNormalization as in inference */
    /* saves memory: of the forward pass only what crosses a cut every so many nodes is kept, the
     * rest is computed again for the gradients, with the same bits. 0: all is kept */
    int64_t checkpoint;
    /* a mean of the parameters is kept: average = ema * average + (1 - ema) * parameter after each
     * step, beginning with what they are at first. store and finish_qat give it. 0: no */
    float ema;
    float slim; /* adds slim * sum |scale| of BatchNormalization to the loss (Liu et al. 2017) */
    /* QAT: adds dampening * sum (w - quantized w)^2, over weights inside of their grid, to the loss
     * (Nagel et al. 2022): weights settle instead of swinging between two integers */
    float dampening;
    /* QAT: the ranges of activations whose quantizer is `uniform`, with one scale, follow the
     * batches: range = observe * range + (1 - observe) * the batch's, after each step, as long as
     * statistics are not frozen. 0: they stay as calibrated */
    float observe;
} sbit_train_desc;

/* What a step reports. */
typedef struct sbit_train_report {
    int64_t step, epoch; /* steps count from 1, epochs from 0 */
    double loss, learning_rate;
    double gradient_norm; /* before clipping */
    int64_t samples;
    double best;        /* with sbit_fit_desc.measure: the best score so far ... */
    int64_t best_epoch; /* ... and where it was; -1: none yet */
} sbit_train_report;

/* The graph is read here and may be edited or freed afterwards. Errors: UNSUPPORTED (operators
 * without a gradient, all named; nothing to train), NOT_FOUND (names of rows, parameters and
 * features), INVALID_ARGUMENT (an output that is not there, teachers), SHAPE (of what a teacher
 * says). Free with sbit_trainer_destroy. */
SPARSEBIT_API sbit_status sbit_trainer_create(const sbit_graph *graph, const sbit_train_desc *desc,
                                              sbit_trainer **out, sbit_error *error);
SPARSEBIT_API void sbit_trainer_destroy(sbit_trainer *trainer); /* NULL is fine */

/* Runs forward and backward for a batch (its first target goes to the loss; rows of padding are cut
 * off) and updates the parameters. `report` may be NULL. A loss or gradient that is not finite is
 * NUMERIC, naming the node it comes from; parameters and statistics are then as before. */
SPARSEBIT_API sbit_status sbit_trainer_step(sbit_trainer *trainer, const sbit_batch *batch,
                                            sbit_train_report *report, sbit_error *error);
/* The two halves: gradients can be read and changed between them. */
SPARSEBIT_API sbit_status sbit_trainer_backward(sbit_trainer *trainer, const sbit_batch *batch,
                                                sbit_train_report *report, sbit_error *error);
/* As backward, but adds: update then uses the mean over the samples of all batches since the last
 * update. For batches larger than memory. */
SPARSEBIT_API sbit_status sbit_trainer_accumulate(sbit_trainer *trainer, const sbit_batch *batch,
                                                  sbit_train_report *report, sbit_error *error);
SPARSEBIT_API sbit_status sbit_trainer_update(sbit_trainer *trainer, sbit_train_report *report,
                                              sbit_error *error);
/* The learning rate from now on. The schedule of sbit_trainer_fit multiplies it. */
SPARSEBIT_API void sbit_trainer_set_rate(sbit_trainer *trainer, double rate);
/* Parameters whose names match the glob are not updated from now on (false: they are again), and
 * their momentum stands still. Returns how many match. */
SPARSEBIT_API size_t sbit_trainer_freeze(sbit_trainer *trainer, const char *pattern, bool frozen);
/* BatchNormalization normalizes by its running statistics from now on, and they stay (false: by the
 * batch's again): what a quantized model does after export, and better for small batches. */
SPARSEBIT_API void sbit_trainer_freeze_statistics(sbit_trainer *trainer, bool frozen);
/* What a trainer takes besides the graph that it was made from. */
typedef struct sbit_train_memory {
    size_t parameter_bytes; /* the parameters that are trained */
    size_t optimizer_bytes; /* momentum and the like, averages */
    size_t live_bytes;      /* of the session: no plan of this order of nodes needs less */
    size_t planned_bytes;   /* what its plan takes; gradients of parameters are in it */
} sbit_train_memory;
/* Sizes of the session are 0 before the first step. */
SPARSEBIT_API sbit_train_memory sbit_trainer_memory(const sbit_trainer *trainer);
/* The model's output `index` in the last backward; borrowed until the next. */
SPARSEBIT_API const sbit_tensor *sbit_trainer_output(const sbit_trainer *trainer, size_t index);

/* A parameter: data may be written at any time, gradient between backward and update. */
typedef struct sbit_train_parameter {
    const char *name;
    sbit_value_id value; /* in the graph that the trainer was made from */
    sbit_tensor data;    /* float32 */
    float *gradient;     /* of the last backward; NULL before */
    bool frozen;         /* by sbit_trainer_freeze */
} sbit_train_parameter;
SPARSEBIT_API size_t sbit_trainer_parameter_count(const sbit_trainer *trainer);
SPARSEBIT_API sbit_train_parameter sbit_trainer_parameter(const sbit_trainer *trainer,
                                                          size_t index); /* asserts the index */
/* For averages (desc.ema): puts them in place of the parameters until it is called again, to
 * measure them. Does nothing without. */
SPARSEBIT_API void sbit_trainer_swap_average(sbit_trainer *trainer);
/* Remembers parameters and statistics; rewind sets them back to that, forgets momentum and keeps
 * masks: a lottery ticket (Frankle and Carbin 2019). Steps go on counting. Errors of rewind: STATE
 * without a mark. */
SPARSEBIT_API sbit_status sbit_trainer_mark(sbit_trainer *trainer, sbit_error *error);
SPARSEBIT_API sbit_status sbit_trainer_rewind(sbit_trainer *trainer, sbit_error *error);
/* Elements with keep 0 become zero and stay so, whatever momentum and decay say. `keep` is copied,
 * one byte an element; NULL: no mask any more. Errors: NOT_FOUND. */
SPARSEBIT_API sbit_status sbit_trainer_set_mask(sbit_trainer *trainer, const char *name,
                                                const uint8_t *keep, sbit_error *error);

/* All that training changes - parameters, masks, what is frozen, the optimizer's state, running
 * statistics, the rate, the step - to and from a file of this machine: a trainer made in the same
 * way goes on where the other stopped, with the same bits. Nothing changes if loading fails.
 * Errors: IO, PARSE (of another model). */
SPARSEBIT_API sbit_status sbit_trainer_save(const sbit_trainer *trainer, const char *path,
                                            sbit_error *error);
SPARSEBIT_API sbit_status sbit_trainer_load(sbit_trainer *trainer, const char *path,
                                            sbit_error *error);

/* Copies parameters and running statistics into the constants of `graph`, which must be the graph
 * that the trainer was made from or a clone of it. */
SPARSEBIT_API sbit_status sbit_trainer_store(const sbit_trainer *trainer, sbit_graph *graph,
                                             sbit_error *error);

/* >>qat: quantization-aware training. The trainer works on the quant's graph with all quantizers in
 * it, as sbit_quant_calc_qparams left them; scales of those that learn (lsq, lsq+ ...) are
 * parameters, named "<tensor>.scale". The quant must stay, and not be calibrated meanwhile. Errors:
 * STATE, UNSUPPORTED (a quantizer that cannot be trained, named). */
SPARSEBIT_API sbit_status sbit_trainer_create_qat(sbit_quant *quant, const sbit_train_desc *desc,
                                                  sbit_trainer **out, sbit_error *error);
/* false: quantizers let everything pass from the next backward on, and scales get no gradient: the
 * float network is trained (a warm-up, or a look at its loss); true, as at first: they quantize.
 * Checkpoints do not keep it. Does nothing without quantizers. */
SPARSEBIT_API void sbit_trainer_enable_qat(sbit_trainer *trainer, bool enabled);
/* Gives weights and scales to the quant, which then simulates and exports what was trained; what
 * AdaRound, GPTQ or bias correction made of the weights before is forgotten. May be called between
 * steps. */
SPARSEBIT_API sbit_status sbit_trainer_finish_qat(sbit_trainer *trainer, sbit_error *error);

/* Bit annealing: quantizers of fewer bits have so many from the next backward on, and steps that
 * are smaller by powers of two; 0: their own, which finish_qat goes back to in any case. Errors:
 * STATE (not made by create_qat), UNSUPPORTED (with desc.ema). */
SPARSEBIT_API sbit_status sbit_trainer_set_bits(sbit_trainer *trainer, int32_t bits,
                                                sbit_error *error);

/* >>extend */

/* >>schedules: rows; the learning rate of a step as a factor of the base rate. */
typedef struct sbit_rate_row {
    sbit_head head; /* "constant", "cosine", "step", "one_cycle" */
    /* steps 0..total-1 */
    double (*factor)(const sbit_options *options, int64_t step, int64_t total);
} sbit_rate_row;
SPARSEBIT_API sbit_status sbit_rate_register(sbit_ctx *ctx, const sbit_rate_row *row,
                                             sbit_error *error);
SPARSEBIT_API const sbit_rate_row *sbit_rate_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_rate_row *sbit_rate_at(size_t index); /* built-in; NULL past the end */

/* >>users */

/* Called around a step; anything but SBIT_OK ends training with that status. `report` says step,
 * epoch and rate before a step, all after it. */
typedef sbit_status (*sbit_train_hook)(sbit_trainer *trainer, const sbit_train_report *report,
                                       void *user, sbit_error *error);

/* How good the model is at present; more is better. */
typedef sbit_status (*sbit_train_measure)(sbit_trainer *trainer, const sbit_train_report *report,
                                          void *user, double *score, sbit_error *error);

typedef struct sbit_fit_desc {
    int64_t epochs; /* 0: 1 */
    int64_t batch;  /* samples of a step; 0: 64 */
    int64_t micro;  /* samples of one run, accumulated up to `batch`; 0: as many as the
                       feed gives at once */
    int64_t most;   /* samples of an epoch; 0: all */
    uint64_t seed;  /* of the order of samples */
    bool in_order;  /* do not shuffle */
    bool resume;    /* go on at the trainer's step (sbit_trainer_load), not at 0 */
    /* pictures [N,C,H,W] are changed at random: mirrored left to right, moved by up to `shift`
     * pixels with zeros behind, a square of `cutout` pixels set to zero */
    bool flip;
    int64_t shift, cutout;
    /* pairs of a run's pictures exchange a share of themselves, drawn for each pair from the
     * distribution Beta(mixup, mixup), and their classes the same share. mixup (Zhang et al. 2018)
     * blends them, cutmix (Yun et al. 2019) exchanges a rectangle; with both, each pair does one of
     * them. 0: no. For the loss cross_entropy of class numbers. */
    float mixup, cutmix;
    const char *rate;          /* name of a schedule; NULL: constant */
    const char *rate_options;  /* YAML of its keys */
    int64_t warmup;            /* steps over which the rate grows from 0 */
    /* QAT: quantizers of fewer bits begin with so many (8), and lose one every anneal_steps (0: so
     * that all are lost after half of the steps); 0: no annealing */
    int32_t anneal;
    int64_t anneal_steps;
    int64_t freeze_statistics; /* sbit_trainer_freeze_statistics after so many steps; 0: never */
    sbit_train_hook before_step, after_step, after_epoch; /* NULL: none */
    /* NULL: none. Called after each epoch, with the averages of desc.ema in place. At the end
     * parameters and statistics are those of the best epoch (of those with the last masks). */
    sbit_train_measure measure;
    int64_t patience; /* training ends after so many epochs that were not better; 0: it goes on */
    /* unstructured pruning while training: every `sparse_every` steps (0: 10 times in all) until
     * `sparse_end` (0: two thirds of all) the weights go to `sparse`, which was made from the same
     * graph; its SCHEDULE gives the ratio of the step, and its masks hold from then on */
    sbit_sparse *sparse; /* NULL: none */
    int64_t sparse_every, sparse_end;
    bool rewind; /* lottery ticket: with the last masks, weights go back to what they were at first */
    void *user;
} sbit_fit_desc;
/* The loop: epochs over the feed, shuffled in an order that only the seed and the epoch give.
 * Progress "train" counts samples. report (NULL ok): of the last step, with the mean loss of the
 * last epoch. A last batch that is smaller is trained too, unless the model has a fixed batch. */
SPARSEBIT_API sbit_status sbit_trainer_fit(sbit_trainer *trainer, const sbit_feed *feed,
                                           const sbit_fit_desc *desc, sbit_train_report *report,
                                           sbit_error *error);

/* For sbit_sparse_budget.tune: stochastic gradient descent with a momentum of 0.9 on the first output,
 * over whole epochs where the feed has fewer samples than the steps want. */
SPARSEBIT_API sbit_status sbit_trainer_tune(const sbit_sparse_tuning *tuning, sbit_error *error);

/* >>builder: a network in C. After a failure functions do nothing and give none; the status is in
 * the builder, and sbit_builder_output returns it.
 *
 *     sbit_graph_create(ctx, 17, &graph, &error);
 *     sbit_builder b = sbit_builder_init(graph, seed, &error);
 *     x = sbit_builder_input(&b, "input", 3, dims);             [N, dims...]
 *     x = sbit_builder_conv(&b, "c1", x, &desc); x = sbit_builder_batch_norm(&b, "b1", x);
 *     x = sbit_builder_op(&b, "Relu", x, none); ...
 *     sbit_builder_output(&b, "logits", sbit_builder_linear(&b, "fc", x, 10));
 */
typedef struct sbit_builder {
    sbit_graph *graph;
    sbit_rng rng; /* of the weights */
    bool xavier;  /* may be set at any time: normal weights of deviation sqrt(2 / (fan in + fan out)),
                     Glorot and Bengio 2010; else He et al. 2015, sqrt(2 / fan in), linear sqrt(1 / fan in) */
    sbit_status status;
    sbit_error *error;
} sbit_builder;
typedef struct sbit_conv_desc {
    int64_t channels;       /* of the output */
    int64_t kernel;         /* square; 0: 3; padded so that stride 1 keeps the size */
    int64_t stride, groups; /* 0: 1 */
    bool bias;              /* leave it out in front of BatchNormalization */
} sbit_conv_desc;
/* error may be NULL; it and the graph stay with the caller. */
SPARSEBIT_API sbit_builder sbit_builder_init(sbit_graph *graph, uint64_t seed, sbit_error *error);
SPARSEBIT_API sbit_value_id sbit_builder_input(sbit_builder *b, const char *name, int32_t rank,
                                               const int64_t *dims); /* without the batch */
SPARSEBIT_API sbit_value_id sbit_builder_conv(sbit_builder *b, const char *name, sbit_value_id x,
                                              const sbit_conv_desc *desc);
SPARSEBIT_API sbit_value_id sbit_builder_batch_norm(sbit_builder *b, const char *name,
                                                    sbit_value_id x);
SPARSEBIT_API sbit_value_id sbit_builder_linear(sbit_builder *b, const char *name, sbit_value_id x,
                                                int64_t units); /* x [N, in] */
/* "MaxPool" or "AveragePool" with windows that do not overlap; size 0: "GlobalAveragePool". */
SPARSEBIT_API sbit_value_id sbit_builder_pool(sbit_builder *b, const char *op_type, sbit_value_id x,
                                              int64_t size);
/* Any operator of one or two inputs without attributes: Relu, Add ... y none: one input. */
SPARSEBIT_API sbit_value_id sbit_builder_op(sbit_builder *b, const char *op_type, sbit_value_id x,
                                            sbit_value_id y);
SPARSEBIT_API sbit_status sbit_builder_output(sbit_builder *b, const char *name, sbit_value_id x);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_TRAIN_API_H */
