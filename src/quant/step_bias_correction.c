/* step_bias_correction.c: biases take up what rounding moved the mean of each output by.
 * >>step-bias-correction
 *
 * Nagel et al. 2019, from data: layer by layer b += mean(w x) - mean(w_q x'), where x' is x, the
 * float input (what the layer's own rounding did), or with asym the input that the quantized and
 * corrected model so far gives. Both means are w times the mean of x over all positions.
 * Needs a bias: Conv and Gemm get one where they have none; a MatMul has that of the Add behind it.
 */
#include "layer_private.h"

typedef struct sbit__correction {
    sbit_quant *quant;
    sbit_walk *plain, *quantized; /* quantized NULL: local */
    double *mean[2];              /* [groups * depth]: sums of x, of x' */
    double count[2];
    int stream;
    sbit__layer layer;
} sbit__correction;

static sbit_status sbit__correction_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__correction *c = (sbit__correction *)user;
    return sbit__layer_means(&c->layer, batch->x, batch->rows, batch->samples, c->mean[c->stream],
                             &c->count[c->stream], error);
}

/* The shift of each output channel. */
static void sbit__correction_shift(const sbit__correction *c, const float *w, const float *rounded,
                                   float *shift)
{
    const sbit__layer *l = &c->layer;
    const int other = c->quantized != NULL ? 1 : 0;
    for (int64_t row = 0; row < l->groups * l->rows; row++) {
        const int64_t g = row / l->rows;
        double sum = 0.0;
        for (int64_t k = 0; k < l->depth; k++) {
            const int64_t at = row * l->row_step + k * l->depth_step, m = g * l->depth + k;
            sum += (double)w[at] * c->mean[0][m] / c->count[0] -
                   (double)rounded[at] * c->mean[other][m] / c->count[other];
        }
        shift[row] = (float)sum;
    }
}

static sbit_status sbit__correction_room(sbit__correction *c, const sbit_unit *unit, double *means,
                                         float *rounded, float *shift, sbit_error *error)
{
    const size_t n = (size_t)(c->layer.groups * c->layer.depth);
    sbit_tensor weight;
    sbit__site *site = &c->quant->sites[unit->site];
    c->mean[0] = means;
    c->mean[1] = means + n;
    c->count[0] = c->count[1] = 0.0;
    c->stream = 0;
    SBIT__TRY(sbit_walk_to(c->plain, unit->node, unit->input, sbit__correction_see, c, error));
    c->stream = 1;
    if (c->quantized != NULL) {
        SBIT__TRY(
            sbit_walk_to(c->quantized, unit->node, unit->input, sbit__correction_see, c, error));
    }
    SBIT__TRY(sbit__site_weight(c->quant, site, &weight, error));
    SBIT__TRY(sbit__site_dequantized(c->quant, site, rounded, error));
    if (c->count[0] > 0.0 && (c->quantized == NULL || c->count[1] > 0.0)) {
        sbit__correction_shift(c, (const float *)weight.data, rounded, shift);
    }
    return sbit__site_set_shift(c->quant, site, shift, (size_t)(c->layer.groups * c->layer.rows),
                                error);
}

static sbit_status sbit__correction_unit(sbit__correction *c, const sbit_unit *unit,
                                         sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(c->quant->ctx);
    if (!sbit__layer_of(c->quant->graph, unit->node, &c->layer)) {
        return SBIT_OK;
    }
    const size_t inputs = (size_t)(c->layer.groups * c->layer.depth);
    const size_t outputs = (size_t)(c->layer.groups * c->layer.rows);
    const size_t weights = outputs * (size_t)c->layer.depth;
    const size_t bytes = 2 * inputs * sizeof(double) + (weights + outputs) * sizeof(float);
    double *room = (double *)sbit__calloc(a, 1, bytes);
    if (room == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    float *rounded = (float *)(void *)(room + 2 * inputs);
    const sbit_status status =
        sbit__correction_room(c, unit, room, rounded, rounded + weights, error);
    sbit__free(a, room, bytes);
    return status;
}

static sbit_status sbit__correction_all(sbit__correction *c, const sbit_feed *feed,
                                        sbit_unit *units, size_t count, sbit_error *error)
{
    sbit_walk_desc desc;
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(sbit_walk_create(c->quant, feed, NULL, &c->plain, error));
    if (sbit_quant_asym(c->quant, &desc)) {
        SBIT__TRY(sbit_walk_create(c->quant, feed, &desc, &c->quantized, error));
    }
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(
            sbit__progress(c->quant->ctx, "bias_correction", (int64_t)i, (int64_t)count, error));
        SBIT__TRY(sbit__correction_unit(c, &units[i], error));
    }
    return SBIT_OK;
}

static sbit_status sbit__correction_run(void *state, const sbit_options *options,
                                        const sbit_feed *feed, sbit_error *error)
{
    sbit__correction c;
    (void)options;
    memset(&c, 0, sizeof c);
    c.quant = (sbit_quant *)state;
    const sbit_allocator *a = sbit_ctx_allocator(c.quant->ctx);
    const size_t count = sbit_quant_units(c.quant, NULL, NULL, 0);
    const size_t bytes = (count + 1) * sizeof(sbit_unit);
    sbit_unit *units = (sbit_unit *)sbit__alloc(a, bytes);
    if (units == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    sbit_quant_units(c.quant, NULL, units, count);
    const sbit_status status = sbit__correction_all(&c, feed, units, count, error);
    sbit_walk_destroy(c.plain);
    sbit_walk_destroy(c.quantized);
    sbit__free(a, units, bytes);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_bias_correction(void)
{
    static const sbit_step_row row = {
        {"bias_correction", "biases take up what rounding moved the mean of each output by",
         SBIT_TARGET_WEIGHT, NULL, 0},
        SBIT_STAGE_AFTER,
        true,
        sbit__correction_run,
    };
    return &row;
}
