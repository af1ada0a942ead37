/* step_smooth_quant.c: channels behind normalizations trade their size with the weights that read
 * them: smooth_quant, awq. >>step-smooth-quant
 *
 * Xiao et al. 2022. Where a LayerNormalization (RMSNormalization) feeds matrix products alone, its
 * scale and shift of channel k are divided by s_k and the weights that read the channel multiplied
 * by it: the same function. s_k = max|x_k|^alpha / max|w_k|^(1 - alpha), with the alpha of 0, 0.1
 * ... 1 - or none at all - under which the products lose least when activations are quantized per
 * tensor and weights per output channel: tried on up to 256 rows of the calibration data.
 *
 * awq, Lin et al. 2023: the same places, for weights alone: s_k = mean|x_k|^alpha, divided by the
 * geometric mean of the largest and the smallest, with the alpha of 0, 0.1 ... 1 under which the
 * rounded weights (in blocks of GROUP_SIZE) lose least on float inputs. Channels with large inputs
 * get the finer weights.
 */
#include "layer_private.h"

enum {
    SBIT__SMOOTH_ROWS = 256,
    SBIT__SMOOTH_LAYERS = 16 /* behind one normalization */
};

static const sbit_key sbit__smooth_keys[] = {
    {"SMOOTH_QUANT.ALPHA", SBIT_KEY_FLOAT, "-1", -1.0, 1.0, NULL,
     "how much moves from activations to weights; -1: the best of eleven"},
};

static const sbit_key sbit__awq_keys[] = {
    {"AWQ.ALPHA", SBIT_KEY_FLOAT, "-1", -1.0, 1.0, NULL,
     "how far the weights follow the size of their inputs; -1: the best of eleven"},
};

typedef struct sbit__smooth {
    bool awq;
    int64_t block; /* awq: of inputs that share a scale; 0: all */
    sbit_quant *quant;
    sbit_graph *graph;
    sbit_walk *walk;
    int32_t weight_bits, activation_bits;
    double fixed; /* alpha, -1: to be found */
    const sbit_node *norm;
    sbit__layer layers[SBIT__SMOOTH_LAYERS];
    size_t layer_count;
    int64_t k, rows;                  /* channels; rows of x taken */
    float *x;                         /* [SBIT__SMOOTH_ROWS][k] */
    float *low, *high, *w, *s, *best; /* [k]: of x, largest |weight|, factors */
    float *room;                      /* x, w, y, y of a trial */
    int64_t widest;                   /* columns of the widest layer */
    void *scratch;
} sbit__smooth;

/* >>step-smooth-quant places */
static bool sbit__smooth_own(const sbit_graph *graph, const sbit_node *node, size_t input,
                             int64_t count)
{
    if (input >= node->input_count || node->inputs[input].idx == 0) {
        return false;
    }
    const sbit_value_info *value = sbit_graph_value(graph, node->inputs[input]);
    return value->is_constant && value->use_count == 1 && value->constant.dtype == SBIT_F32 &&
           (count < 0 || sbit_tensor_count(&value->constant) == count);
}

/* What the layers behind read: the value, or the one token of it that a Gather picks. */
static const sbit_value_info *sbit__smooth_read(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *y = sbit_graph_value(graph, id);
    sbit_use use;
    if (sbit_graph_uses(graph, id, &use, 1) != 1 || use.node.idx == 0 || use.body != NULL) {
        return y;
    }
    const sbit_node *node = sbit_graph_node(graph, use.node);
    const int64_t axis = sbit_node_int(node, "axis", 0);
    const bool picks = node->domain[0] == '\0' && sbit__streq(node->op_type, "Gather") &&
                       use.index == 0 && axis >= 0 && axis < y->type.rank - 1;
    return picks && !y->is_output ? sbit_graph_value(graph, node->outputs[0]) : y;
}

/* Fills in the layers behind a normalization over the last axis; false: something else reads it. */
static bool sbit__smooth_find(sbit__smooth *t, const sbit_node *norm)
{
    const bool layer_norm = sbit__streq(norm->op_type, "LayerNormalization");
    sbit_use uses[SBIT__SMOOTH_LAYERS];
    if (norm->domain[0] != '\0' ||
        !(layer_norm || sbit__streq(norm->op_type, "RMSNormalization")) ||
        !sbit__smooth_own(t->graph, norm, 1, -1) || sbit_node_int(norm, "axis", -1) != -1) {
        return false;
    }
    const sbit_value_info *y = sbit__smooth_read(t->graph, norm->outputs[0]);
    const size_t count = sbit_graph_uses(t->graph, y->id, uses, SBIT__COUNT_OF(uses));
    t->k = sbit_tensor_count(&sbit_graph_value(t->graph, norm->inputs[1])->constant);
    t->norm = norm;
    t->layer_count = 0;
    t->widest = 0;
    if (y->is_output || count == 0 || count > SBIT__COUNT_OF(uses) ||
        (norm->input_count > 2 && norm->inputs[2].idx != 0 &&
         !sbit__smooth_own(t->graph, norm, 2, t->k))) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        sbit__layer *layer = &t->layers[t->layer_count++];
        if (uses[i].node.idx == 0 || uses[i].body != NULL || uses[i].index != 0 ||
            !sbit__layer_of(t->graph, uses[i].node, layer) || layer->conv || layer->depth != t->k ||
            !sbit__smooth_own(t->graph, layer->node, 1, -1)) {
            return false;
        }
        t->widest = layer->rows > t->widest ? layer->rows : t->widest;
    }
    return true;
}

static const float *sbit__smooth_weights(const sbit__smooth *t, const sbit__layer *layer)
{
    return (const float *)sbit_graph_value(t->graph, layer->node->inputs[1])->constant.data;
}

/* >>step-smooth-quant data */
static sbit_status sbit__smooth_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__smooth *t = (sbit__smooth *)user;
    const sbit_tensor *x = batch->x;
    const int64_t all = sbit_tensor_count(x) / t->k;
    if (x->dtype != SBIT_F32 || x->rank < 1 || x->dims[x->rank - 1] != t->k) {
        return sbit__fail(error, SBIT_ERR_SHAPE, t->norm->name,
                          "the output of '%s' does not go with its scale", t->norm->name);
    }
    const int64_t real = batch->rows > 0 ? all / batch->rows * batch->samples : all;
    const int64_t step = real / 32 > 1 ? real / 32 : 1; /* 32 rows of each batch */
    for (int64_t r = 0; r < real; r++) {
        const float *row = (const float *)x->data + r * t->k;
        for (int64_t i = 0; i < t->k && t->awq; i++) {
            t->high[i] += fabsf(row[i]); /* a mean, up to its divisor */
        }
        for (int64_t i = 0; i < t->k && !t->awq; i++) {
            t->low[i] = row[i] < t->low[i] ? row[i] : t->low[i];
            t->high[i] = row[i] > t->high[i] ? row[i] : t->high[i];
        }
        if (r % step == step / 2 && t->rows < SBIT__SMOOTH_ROWS) {
            memcpy(t->x + t->rows++ * t->k, row, (size_t)t->k * sizeof *row);
        }
    }
    return SBIT_OK;
}

/* >>step-smooth-quant trials */
static void sbit__smooth_multiply(const sbit__smooth *t, const float *x, const float *w, int64_t n,
                                  float *y)
{
    sbit__gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = t->rows;
    gemm.n = gemm.ldb = gemm.ldc = n;
    gemm.k = gemm.lda = t->k;
    gemm.a = x;
    gemm.b = w;
    gemm.alpha = 1.0f;
    gemm.c = y;
    sbit__gemm_run(t->quant->ctx, &gemm, t->scratch);
}

/* One column of w [k][n], on its grid. */
static void sbit__smooth_round(const sbit__smooth *t, float *column, int64_t n)
{
    const float steps = (float)((int64_t)1 << (t->weight_bits - 1));
    const int64_t block = t->block > 0 ? t->block : t->k;
    for (int64_t first = 0; first < t->k; first += block) {
        const int64_t end = first + block < t->k ? first + block : t->k;
        float most = 0.0f;
        for (int64_t i = first; i < end; i++) {
            most = fabsf(column[i * n]) > most ? fabsf(column[i * n]) : most;
        }
        const float scale = 2.0f * most / (2.0f * steps - 1.0f);
        for (int64_t i = first; i < end && scale > 0.0f; i++) {
            const float q = nearbyintf(column[i * n] / scale);
            column[i * n] = scale * (q > steps - 1.0f ? steps - 1.0f : q < -steps ? -steps : q);
        }
    }
}

/* w [k][n] of a layer times s, on its grid if `rounded`. */
static void sbit__smooth_fill(const sbit__smooth *t, const sbit__layer *layer, bool rounded,
                              float *out)
{
    const float *w = sbit__smooth_weights(t, layer);
    for (int64_t c = 0; c < layer->rows; c++) {
        for (int64_t i = 0; i < t->k; i++) {
            out[i * layer->rows + c] = w[c * layer->row_step + i * layer->depth_step] * t->s[i];
        }
        if (rounded) {
            sbit__smooth_round(t, out + c, layer->rows);
        }
    }
}

/* The squared error of all products under the factors t->s. */
static double sbit__smooth_trial(const sbit__smooth *t)
{
    float *x = t->room, *rounded = x + SBIT__SMOOTH_ROWS * t->k;
    float *w = rounded + SBIT__SMOOTH_ROWS * t->k, *y = w + t->k * t->widest;
    float *z = y + SBIT__SMOOTH_ROWS * t->widest;
    float low = 0.0f, high = 0.0f, scale = 1.0f;
    int32_t zero = 0;
    double error = 0.0;
    const int32_t most = ((int32_t)1 << t->activation_bits) - 1;
    for (int64_t i = 0; i < t->k; i++) {
        low = t->low[i] / t->s[i] < low ? t->low[i] / t->s[i] : low;
        high = t->high[i] / t->s[i] > high ? t->high[i] / t->s[i] : high;
    }
    if (!t->awq &&
        sbit_qparams_from_range(NULL, low, high, false, 0, most, &scale, &zero, NULL) != SBIT_OK) {
        return HUGE_VAL;
    }
    for (int64_t i = 0; i < t->rows * t->k; i++) {
        x[i] = t->x[i] / t->s[i % t->k];
    }
    if (t->awq) {
        memcpy(rounded, x, (size_t)(t->rows * t->k) * sizeof *x);
    } else {
        sbit__kernels(t->quant->ctx)
            ->f32_fake_quantize(t->rows * t->k, x, scale, zero, 0, most, rounded);
    }
    for (size_t l = 0; l < t->layer_count; l++) {
        const int64_t n = t->layers[l].rows;
        sbit__smooth_fill(t, &t->layers[l], false, w);
        sbit__smooth_multiply(t, x, w, n, y);
        sbit__smooth_fill(t, &t->layers[l], true, w);
        sbit__smooth_multiply(t, rounded, w, n, z);
        for (int64_t i = 0; i < t->rows * n; i++) {
            error += ((double)y[i] - (double)z[i]) * ((double)y[i] - (double)z[i]);
        }
    }
    return error;
}

static void sbit__smooth_factors(sbit__smooth *t, double alpha)
{
    double low = HUGE_VAL, high = 0.0;
    for (int64_t i = 0; i < t->k; i++) {
        const double x = fmax((double)t->high[i], -(double)t->low[i]), w = (double)t->w[i];
        const double s = t->awq ? pow(fmax(x, 1e-12), alpha) : pow(x, alpha) / pow(w, 1.0 - alpha);
        t->s[i] = x > 1e-12 && w > 1e-12 ? (float)s : 1.0f;
        low = x > 1e-12 && w > 1e-12 && s < low ? s : low;
        high = x > 1e-12 && w > 1e-12 && s > high ? s : high;
    }
    for (int64_t i = 0; i < t->k && t->awq && high > 0.0; i++) {
        const bool live = fmax((double)t->high[i], -(double)t->low[i]) > 1e-12 && t->w[i] > 1e-12f;
        t->s[i] = live ? (float)((double)t->s[i] / sqrt(low * high)) : 1.0f;
    }
}

/* The best factors in t->best. */
static void sbit__smooth_search(sbit__smooth *t)
{
    double least;
    for (int64_t i = 0; i < t->k; i++) {
        t->s[i] = t->best[i] = 1.0f;
    }
    least = t->fixed < 0.0 ? sbit__smooth_trial(t) : HUGE_VAL;
    for (int i = 0; i <= 10; i++) {
        const double alpha = t->fixed >= 0.0 ? t->fixed : 0.1 * (double)i;
        sbit__smooth_factors(t, alpha);
        const double error = t->fixed < 0.0 ? sbit__smooth_trial(t) : 0.0;
        if (error < least) {
            least = error;
            memcpy(t->best, t->s, (size_t)t->k * sizeof *t->s);
        }
    }
}

/* >>step-smooth-quant result */
static sbit_status sbit__smooth_store(sbit__smooth *t, sbit_value_id id, float *values,
                                      sbit_error *error)
{
    sbit_tensor tensor = sbit_graph_value(t->graph, id)->constant;
    tensor.data = values;
    return sbit_graph_set_constant(t->graph, id, &tensor, error);
}

static sbit_status sbit__smooth_apply(sbit__smooth *t, sbit_error *error)
{
    float *room = t->room;
    for (size_t input = 1; input < 3 && input < t->norm->input_count; input++) {
        const sbit_value_id id = t->norm->inputs[input];
        const float *old =
            id.idx != 0 ? (const float *)sbit_graph_value(t->graph, id)->constant.data : NULL;
        for (int64_t i = 0; old != NULL && i < t->k; i++) {
            room[i] = old[i] / t->best[i];
        }
        if (old != NULL) {
            SBIT__TRY(sbit__smooth_store(t, id, room, error));
        }
    }
    for (size_t l = 0; l < t->layer_count; l++) {
        const sbit__layer *layer = &t->layers[l];
        const float *w = sbit__smooth_weights(t, layer);
        for (int64_t c = 0; c < layer->rows; c++) {
            for (int64_t i = 0; i < t->k; i++) {
                const int64_t at = c * layer->row_step + i * layer->depth_step;
                room[at] = w[at] * t->best[i];
            }
        }
        SBIT__TRY(sbit__smooth_store(t, layer->node->inputs[1], room, error));
    }
    return SBIT_OK;
}

/* One normalization and the layers behind it. */
static sbit_status sbit__smooth_group(sbit__smooth *t, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(t->quant->ctx);
    sbit__gemm gemm;
    size_t scratch = 0;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = SBIT__SMOOTH_ROWS;
    gemm.k = gemm.lda = t->k;
    for (size_t l = 0; l < t->layer_count; l++) { /* fewer columns may take more */
        gemm.n = gemm.ldb = gemm.ldc = t->layers[l].rows;
        const size_t own = sbit__gemm_scratch_bytes(t->quant->ctx, &gemm) + 64;
        scratch = own > scratch ? own : scratch;
    }
    const size_t floats = (size_t)(3 * SBIT__SMOOTH_ROWS * t->k + 5 * t->k + t->k * t->widest +
                                   2 * SBIT__SMOOTH_ROWS * t->widest);
    const size_t bytes = floats * sizeof(float) + scratch;
    float *room = (float *)sbit__calloc(a, 1, bytes);
    if (room == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    t->x = room;
    t->low = t->x + SBIT__SMOOTH_ROWS * t->k;
    t->high = t->low + t->k;
    t->w = t->high + t->k;
    t->s = t->w + t->k;
    t->best = t->s + t->k;
    t->room = t->best + t->k;
    t->scratch = (void *)(((uintptr_t)(room + floats) + 63u) & ~(uintptr_t)63u);
    t->rows = 0;
    for (size_t l = 0; l < t->layer_count; l++) {
        const float *w = sbit__smooth_weights(t, &t->layers[l]);
        for (int64_t i = 0; i < t->k * t->layers[l].rows; i++) {
            const float v =
                fabsf(w[i / t->k * t->layers[l].row_step + i % t->k * t->layers[l].depth_step]);
            t->w[i % t->k] = v > t->w[i % t->k] ? v : t->w[i % t->k];
        }
    }
    sbit_status status =
        sbit_walk_to(t->walk, t->layers[0].node->id, 0, sbit__smooth_see, t, error);
    if (status == SBIT_OK && t->rows > 0) {
        sbit__smooth_search(t);
        status = sbit__smooth_apply(t, error);
    }
    sbit__free(a, room, bytes);
    return status;
}

static sbit_status sbit__smooth_all(sbit__smooth *t, sbit_error *error)
{
    size_t done = 0;
    sbit_status status = SBIT_OK;
    for (sbit_node_id id = sbit_graph_first(t->graph); id.idx != 0 && status == SBIT_OK;
         id = sbit_graph_next(t->graph, id)) {
        if (sbit__smooth_find(t, sbit_graph_node(t->graph, id))) {
            status = sbit__smooth_group(t, error);
            done++;
        }
    }
    sbit__log(t->quant->ctx, SBIT_LOG_INFO, "%s: %u normalizations",
              t->awq ? "awq" : "smooth_quant", (unsigned)done);
    return status;
}

static sbit_status sbit__smooth_begin(sbit_quant *quant, bool awq, double alpha,
                                      const sbit_feed *feed, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    sbit__smooth *t = (sbit__smooth *)sbit__calloc(a, 1, sizeof *t);
    if (t == NULL) {
        return sbit__fail_oom(error, sizeof *t);
    }
    t->quant = quant;
    t->graph = sbit_quant_float_graph(quant);
    t->awq = awq;
    t->block = awq ? sbit_options_int(&quant->config->tree.sections[SBIT__QCONFIG_W].options,
                                      "QUANTIZER.GROUP_SIZE")
                   : 0;
    t->fixed = alpha;
    t->weight_bits = sbit__quant_bits(quant, SBIT_TARGET_WEIGHT);
    t->activation_bits = sbit__quant_bits(quant, SBIT_TARGET_ACTIVATION);
    sbit_status status = sbit_walk_create(quant, feed, NULL, &t->walk, error);
    if (status == SBIT_OK) {
        status = sbit__smooth_all(t, error);
        sbit_walk_destroy(t->walk);
    }
    sbit__free(a, t, sizeof *t);
    return status;
}

static sbit_status sbit__smooth_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                    sbit_error *error)
{
    return sbit__smooth_begin((sbit_quant *)state, false,
                              sbit_options_float(options, "STEP.SMOOTH_QUANT.ALPHA"), feed, error);
}

static sbit_status sbit__awq_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                 sbit_error *error)
{
    return sbit__smooth_begin((sbit_quant *)state, true,
                              sbit_options_float(options, "STEP.AWQ.ALPHA"), feed, error);
}

SBIT__FN const sbit_step_row *sbit__step_awq(void)
{
    static const sbit_step_row row = {
        {"awq", "behind normalizations, weights with large inputs get finer steps",
         SBIT_TARGET_WEIGHT, sbit__awq_keys, SBIT__COUNT_OF(sbit__awq_keys)},
        SBIT_STAGE_FLOAT_GRAPH,
        true,
        sbit__awq_run,
    };
    return &row;
}

SBIT__FN const sbit_step_row *sbit__step_smooth_quant(void)
{
    static const sbit_step_row row = {
        {"smooth_quant", "outlier channels behind normalizations move into the weights",
         SBIT_TARGET_WEIGHT, sbit__smooth_keys, SBIT__COUNT_OF(sbit__smooth_keys)},
        SBIT_STAGE_FLOAT_GRAPH,
        true,
        sbit__smooth_run,
    };
    return &row;
}
