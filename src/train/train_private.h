/* train_private.h: the insides of a trainer.
 *
 * Called by: train. Calls: grad, exec, config.
 */
#ifndef SBIT_TRAIN_PRIVATE_H
#define SBIT_TRAIN_PRIVATE_H

#include "../exec/exec_private.h"
#include "../grad/grad_private.h"
#include "train_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit__train_param {
    const char *name;
    sbit_value_id value, gradient;
    sbit_tensor data;
    uint8_t *mask; /* NULL: none */
    void *state;
    size_t state_bytes;
    float rate, decay;  /* factors */
    size_t output;      /* the session's, that is the gradient */
    float *grad;        /* of the last backward */
    float *sum;         /* of several batches; NULL: not needed so far */
    float *average;     /* of the parameter over the steps; NULL: none */
    bool slim;          /* the scale of a BatchNormalization */
    bool borrowed;      /* data is a quantizer's */
    bool in_graph;      /* data is the constant of the trainer's graph, which has no other reader */
    bool frozen;        /* not updated at present */
    sbit_status status; /* of the last update, written by the worker that did it */
} sbit__train_param;

/* Parameters, then statistics, at some time. */
typedef struct sbit__train_snapshot {
    void **data; /* NULL: none yet */
    double score;
    int64_t epoch, waited; /* of the best: epochs since */
} sbit__train_snapshot;

struct sbit_trainer {
    sbit_ctx *ctx;
    sbit_graph *graph; /* with loss and gradients */
    sbit__arena arena;
    sbit_session *session;
    const sbit_loss_row *loss_row;
    const sbit_optimizer_row *optimizer;
    sbit_options loss_options, optimizer_options;
    double rate, factor; /* what the caller set; what a schedule makes of it */
    float decay, clip_norm, clip_value, ema, slim, dampening, observe;
    sbit__train_param *params;
    size_t param_count;
    sbit_statistic *statistics;
    size_t statistic_count;
    void **kept;               /* their data before the last run */
    float fixed;               /* 1: BatchNormalization normalizes by them, and they stay */
    sbit_value_id fixed_input; /* of the graph, where that is fed; none without statistics */
    int64_t draw;              /* which run it is: what Dropout drops */
    sbit_value_id draw_input;  /* where that is fed; none without Dropout */
    sbit_session_desc desc;    /* of the session */
    sbit_value_id target, loss;
    size_t model_outputs, loss_output;
    sbit_train_report report;
    bool ready;               /* gradients wait for an update */
    sbit_session **teachers;  /* [teacher_count] */
    size_t teacher_count;
    sbit_value_id *taught;    /* [taught_count] inputs: of each teacher its output, of the first then features */
    size_t taught_count;
    sbit__train_snapshot best, mark;
    bool swapped; /* parameters are the averages at present */
    sbit_quant *quant;  /* that is trained; NULL: none */
    void **quant_sites; /* see qat.c */
    size_t quant_site_count;
    float *effective; /* room for the largest weight with a site */
    float *ranges; /* [range_count] that follow the batches: lowest, highest, the next site's ... */
    size_t range_count;
    bool qat_off;           /* quantizers let everything pass: sbit_trainer_enable_qat */
    int32_t bits, bits_now; /* wanted, and at present: of quantizers with fewer; 0: their own */
};

/* A trainer of `graph`, with the sites of `quant` (NULL: none) in it. */
SBIT__FN sbit_status sbit__trainer_make(const sbit_graph *graph, sbit_quant *quant,
                                        const sbit_train_desc *desc, sbit_trainer **out,
                                        sbit_error *error);
/* Puts the sites of a quant into the trainer's graph. */
SBIT__FN sbit_status sbit__qat_insert(sbit_trainer *t, sbit_quant *quant, sbit_error *error);
/* The batch's pictures changed as desc says, in room[0], and its targets by mixup and cutmix in room[1], which
 * the caller frees. */
SBIT__FN sbit_status sbit__augment_batch(sbit_trainer *t, const sbit_fit_desc *desc, int64_t epoch,
                                         sbit_batch *batch, sbit_tensor room[2], sbit_error *error);
/* Makes, and gives back, a snapshot. */
SBIT__FN sbit_status sbit__train_take(sbit_trainer *t, sbit__train_snapshot *s, sbit_error *error);
SBIT__FN sbit_status sbit__train_give_back(sbit_trainer *t, const sbit__train_snapshot *s,
                                           sbit_error *error);
/* Adds the dampening of quantized weights to their gradients. */
SBIT__FN sbit_status sbit__qat_dampen(sbit_trainer *t, sbit_error *error);
/* Running statistic i, at present. */
SBIT__FN const sbit_tensor *sbit__train_statistic(const sbit_trainer *t, size_t i);
/* Grids of at least so many bits, 0: their own; what is learned goes along. */
SBIT__FN void sbit__qat_widen(sbit_trainer *t, int32_t bits);
/* What was seen of the ranges that follow the batches: goes into them (take), is forgotten. */
SBIT__FN sbit_status sbit__qat_observe(sbit_trainer *t, bool take, sbit_error *error);
/* Scales of those ranges, after they were changed. */
SBIT__FN sbit_status sbit__qat_ranges(sbit_trainer *t, sbit_error *error);
/* Before a run: scales and zero points as they are now. */
SBIT__FN sbit_status sbit__qat_publish(sbit_trainer *t, sbit_error *error);
/* The memory of a quantizer's parameter; NULL: the value is none. */
SBIT__FN float *sbit__qat_memory(const sbit_trainer *t, sbit_value_id value, bool *decay);

/* Options of a row from YAML text (NULL: defaults), in the arena. */
SBIT__FN sbit_status sbit__train_options(sbit_ctx *ctx, sbit__arena *arena, const sbit_head *head,
                                         const char *text, sbit_options *out, sbit_error *error);
/* The row of a kind with that name; an unknown name is an error that lists the known ones. */
SBIT__FN sbit_status sbit__train_row(sbit_ctx *ctx, const sbit__kind *kind, const char *name,
                                     const sbit_head **out, sbit_error *error);
SBIT__FN const sbit__kind *sbit__kind_rate(void);
/* Whether a name is that of the target or of what a teacher says, not of a model's input. */
SBIT__FN bool sbit__train_is_fed(const sbit_trainer *t, const char *name);
/* fit.c: the masks of a sparse hold for parameters of the same names */
SBIT__FN sbit_status sbit__train_masks(sbit_trainer *t, const sbit_sparse *sparse, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_TRAIN_PRIVATE_H */
