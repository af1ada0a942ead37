/* repair.c: what pruning spoiled is made up for from data, without training. >>sparse-repair
 *
 * ridge       layer by layer, in order: the weights that are left of a layer become those whose
 *             outputs are nearest to what the model computed there before anything was pruned. With
 *             x the inputs as they are now, y the outputs that were, W the weights that stay:
 *             min |W x - y|^2 + d |W - W_before|^2, the normal equations in float64.
 *             A layer without a bias has the mean of the BatchNormalization behind it for one.
 * batch_norm  mean and variance of every BatchNormalization anew (sbit_reestimate_bn), last; not of
 *             those right behind a layer that ridge repaired, or in front of all that was cut.
 *
 * Both work on the masked graph, before anything is cut: columns that go are simply not among the
 * unknowns. What is cut then is compared with the repaired masked graph.
 */
#include "../exec/exec_api.h"
#include "../measure/measure_api.h"
#include "../passes/passes_private.h"
#include "../quant/layer_private.h"
#include "sparse_private.h"

enum {
    SBIT__RIDGE_DEPTH = 6912 /* weights of a row; more would take minutes: 768 channels of 3x3 */
};

/* Two models on the same data: as it was, and as it is. */
typedef struct sbit__repair {
    sbit_sparse *sparse;
    const sbit_feed *feed;
    sbit_graph *before, *now; /* of the same ids; `now` is masked, and changes */
    sbit_session *sessions[2];
    sbit_walk *walks[2]; /* from layer to layer */
} sbit__repair;

/* >>how far the outputs are off */

static void sbit__repair_differ(const sbit__repair *r, const sbit_batch *batch, sbit_diff *diff)
{
    for (size_t i = 0; i < sbit_session_output_count(r->sessions[0]); i++) {
        const sbit_value *a = sbit_session_output(r->sessions[0], i);
        const sbit_value *b = sbit_session_output(r->sessions[1], i);
        if (a->kind == SBIT_KIND_TENSOR && b->kind == SBIT_KIND_TENSOR && a->tensor.rank > 0 &&
            a->tensor.dims[0] > 0 && (SBIT_T_FLOATS >> (uint32_t)a->tensor.dtype & 1u) != 0) {
            const int64_t row = sbit_tensor_count(&a->tensor) / a->tensor.dims[0];
            sbit_diff_add(diff, &a->tensor, &b->tensor,
                          batch->whole ? row * a->tensor.dims[0] : row * batch->samples);
        }
    }
}

static sbit_status sbit__repair_batches(const sbit__repair *r, sbit_diff *diff, sbit_error *error)
{
    sbit_batch batch;
    for (int64_t at = 0; at < r->feed->count; at += batch.samples) {
        SBIT__TRY(sbit_feed_read(r->feed, at, 0, &batch, error));
        if (batch.samples <= 0) {
            break;
        }
        for (int s = 0; s < 2; s++) {
            for (size_t i = 0; i < batch.input_count; i++) {
                const char *name = batch.names != NULL
                                       ? batch.names[i]
                                       : sbit_session_input_info(r->sessions[s], 0)->name;
                SBIT__TRY(
                    sbit_session_set_input(r->sessions[s], name, &batch.inputs[i], error));
            }
            SBIT__TRY(sbit_session_run(r->sessions[s], error));
        }
        sbit__repair_differ(r, &batch, diff);
    }
    return SBIT_OK;
}

static sbit_status sbit__repair_sqnr(sbit__repair *r, double *out, sbit_error *error)
{
    sbit_diff diff;
    memset(&diff, 0, sizeof diff);
    sbit_status status = sbit_session_create(r->before, NULL, &r->sessions[0], error);
    status = status == SBIT_OK ? sbit_session_create(r->now, NULL, &r->sessions[1], error) : status;
    status = status == SBIT_OK ? sbit__repair_batches(r, &diff, error) : status;
    for (int s = 0; s < 2; s++) {
        sbit_session_destroy(r->sessions[s]);
        r->sessions[s] = NULL;
    }
    *out = sbit_diff_sqnr(&diff);
    return status;
}

SBIT__FN sbit_status sbit__repair_compare(sbit_sparse *sparse, const sbit_feed *feed,
                                          sbit_graph *before, sbit_graph *now, double *sqnr,
                                          sbit_error *error)
{
    sbit__repair r;
    memset(&r, 0, sizeof r);
    r.sparse = sparse;
    r.feed = feed;
    r.before = before;
    r.now = now;
    return sbit__repair_sqnr(&r, sqnr, error);
}

/* >>one layer */

typedef struct sbit__ridge {
    const sbit_sparse *sparse;
    const sbit__sparse_layer *of;
    sbit__layer layer;
    sbit__gram gram; /* stream a: before, b: now */
    const sbit_tensor *weight;
    const float *before; /* the weight, as it was */
    const float *bias;   /* [rows of all groups]; NULL: none that may change */
    sbit_value_id bias_id;
    double bias_sign; /* -1: it is the mean of the BatchNormalization behind, in place of a bias */
    double damping;
    int64_t *columns; /* of a group, those that stay */
    int64_t count;
    double *a, *x; /* [count][count], [count][SBIT__SOLVE_LANES] */
    /* of a group, [rows][depth]: weights as they were; of columns that go, which add something all
     * the same where biases stay; sums of what is wanted of every column */
    float *old, *rest, *want;
    void *scratch;
} sbit__ridge;

static sbit_status sbit__ridge_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__ridge *ridge = (sbit__ridge *)user;
    const bool apart = batch->rows > 0 && batch[0].x->rank > 0 && batch[0].x->dims[0] % batch->rows == 0;
    return sbit__gram_add(&ridge->gram, batch[0].x, batch[1].x, apart ? batch->rows : 1, 0,
                          apart ? batch->samples : 1, error);
}

/* Column k of group g is read from a channel that stays. */
static bool sbit__ridge_stays(const sbit__ridge *ridge, int64_t g, int64_t k)
{
    const sbit__channel_labels *x =
        &ridge->sparse->labeler.of[ridge->layer.node->inputs[0].idx];
    const sbit__layer *layer = &ridge->layer;
    const int64_t window = layer->conv ? layer->kernel[0] * layer->kernel[1] * layer->kernel[2] : 1;
    const int32_t axis = layer->conv ? 1 : x->rank - 1;
    const int64_t channel = g * (layer->depth / window) + k / window;
    return x->form != SBIT__LABELS_AXIS || x->axis != axis || channel >= x->dims[axis] ||
           !sbit__class_is_removed(ridge->sparse, x->at[channel]);
}

/* What is left of a row keeps all of its columns that stay: no mask of single elements. */
static bool sbit__ridge_is_whole(const sbit__ridge *ridge)
{
    const uint8_t *keep = ridge->sparse->keep[ridge->layer.node->inputs[1].idx];
    const sbit__layer *layer = &ridge->layer;
    for (int64_t r = 0; keep != NULL && r < layer->groups * layer->rows; r++) {
        int64_t kept = 0, all = 0;
        for (int64_t k = 0; k < layer->depth; k++) {
            if (sbit__ridge_stays(ridge, r / layer->rows, k)) {
                kept += keep[r * layer->row_step + k * layer->depth_step] != 0 ? 1 : 0;
                all++;
            }
        }
        if (kept != 0 && kept != all) {
            return false;
        }
    }
    return true;
}

/* Sums around the means: a bias takes the rest. */
static void sbit__ridge_centre(const sbit__ridge *ridge, float *sums, const float *mean_i,
                               int64_t g)
{
    const int64_t depth = ridge->layer.depth;
    const float *mean_j = ridge->gram.mean_b + g * depth;
    for (int64_t i = 0; ridge->bias != NULL && i < depth; i++) {
        const double share = (double)mean_i[g * depth + i] / ridge->gram.count;
        float *line = sums + i * depth;
        for (int64_t j = 0; j < depth; j++) {
            line[j] = (float)((double)line[j] - share * (double)mean_j[j]);
        }
    }
}

/* a = the sums of x x^T over the columns that stay, damped, as a Cholesky factor. */
static bool sbit__ridge_factor(sbit__ridge *ridge, const float *sums)
{
    const int64_t n = ridge->count, depth = ridge->layer.depth;
    double trace = 0.0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k <= i; k++) {
            ridge->a[i * n + k] = (double)sums[ridge->columns[i] * depth + ridge->columns[k]];
        }
        trace += ridge->a[i * n + i];
    }
    ridge->damping = sbit_options_float(&ridge->of->options, "RIDGE.DAMPING") * trace / (double)n;
    for (int64_t i = 0; i < n; i++) {
        ridge->a[i * n + i] += ridge->damping;
    }
    return ridge->damping > 0.0 && sbit__cholesky(ridge->a, n);
}

/* to[rows][depth] (+)= alpha times rows[rows][depth] times sums[depth][depth] */
static void sbit__ridge_multiply(const sbit__ridge *ridge, const float *rows, const float *sums,
                                 float alpha, float *to)
{
    sbit__gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = ridge->layer.rows;
    gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = ridge->layer.depth;
    gemm.a = rows;
    gemm.b = sums;
    gemm.alpha = alpha;
    gemm.c = to;
    sbit__gemm_run(ridge->sparse->ctx, &gemm, ridge->scratch);
}

/* What each column is wanted to add up to: old times mixed, less what the rest adds. */
static void sbit__ridge_targets(sbit__ridge *ridge, int64_t g)
{
    const sbit__layer *layer = &ridge->layer;
    const float *now = (const float *)ridge->weight->data;
    const int64_t depth = layer->depth, n = layer->rows * depth;
    float *sums = ridge->gram.sums + g * depth * depth;
    float *mixed = ridge->gram.mixed + g * depth * depth;
    for (int64_t r = 0; r < layer->rows; r++) {
        const int64_t first = (g * layer->rows + r) * layer->row_step;
        for (int64_t k = 0; k < depth; k++) {
            ridge->old[r * depth + k] = ridge->before[first + k * layer->depth_step];
            ridge->rest[r * depth + k] = now[first + k * layer->depth_step];
        }
        for (int64_t i = 0; i < ridge->count; i++) {
            ridge->rest[r * depth + ridge->columns[i]] = 0.0f;
        }
    }
    sbit__ridge_multiply(ridge, ridge->old, mixed, 1.0f, ridge->want);
    if (ridge->count < depth) {
        float *less = ridge->want + n;
        sbit__ridge_multiply(ridge, ridge->rest, sums, -1.0f, less);
        sbit__kernels(ridge->sparse->ctx)
            ->f32_binary(SBIT__BINARY_ADD, n, ridge->want, 1, less, 1, ridge->want);
    }
}

static bool sbit__ridge_row_stays(const sbit__ridge *ridge, int64_t row)
{
    const sbit__layer *layer = &ridge->layer;
    const uint8_t *keep = ridge->sparse->keep[layer->node->inputs[1].idx];
    for (int64_t k = 0; keep != NULL && k < layer->depth; k++) {
        if (keep[row * layer->row_step + k * layer->depth_step] != 0) {
            return true;
        }
    }
    return keep == NULL;
}

/* Row r of group g, solved in a lane of x: new weights, and what its bias becomes. */
static void sbit__ridge_row(sbit__ridge *ridge, int64_t g, int64_t r, const double *x, float *weight, float *bias)
{
    const sbit__layer *layer = &ridge->layer;
    const int64_t depth = layer->depth, row = g * layer->rows + r;
    const float *mean_a = ridge->gram.mean_a + g * depth, *mean_b = ridge->gram.mean_b + g * depth;
    double shift = 0.0;
    for (int64_t i = 0; i < ridge->count; i++) {
        const int64_t column = ridge->columns[i];
        const float now = (float)x[i * SBIT__SOLVE_LANES];
        weight[row * layer->row_step + column * layer->depth_step] = now;
        ridge->rest[r * depth + column] = now;
    }
    for (int64_t k = 0; bias != NULL && k < depth; k++) {
        shift += (double)ridge->old[r * depth + k] * (double)mean_a[k] -
                 (double)ridge->rest[r * depth + k] * (double)mean_b[k];
    }
    if (bias != NULL) {
        bias[row] = (float)((double)ridge->bias[row] +
                            ridge->bias_sign * shift / ridge->gram.count);
    }
}

/* The rows of group g that stay, some at a time. */
static void sbit__ridge_rows(sbit__ridge *ridge, int64_t g, float *weight, float *bias)
{
    const sbit__layer *layer = &ridge->layer;
    const float *now = (const float *)ridge->weight->data + g * layer->rows * layer->row_step;
    for (int64_t r = 0, first = 0; first < layer->rows; first = r) {
        int64_t lanes[SBIT__SOLVE_LANES], count = 0;
        for (r = first; r < layer->rows && count < SBIT__SOLVE_LANES; r++) {
            if (!sbit__ridge_row_stays(ridge, g * layer->rows + r)) {
                continue;
            }
            for (int64_t i = 0; i < ridge->count; i++) {
                const int64_t column = ridge->columns[i];
                ridge->x[i * SBIT__SOLVE_LANES + count] =
                    (double)ridge->want[r * layer->depth + column] +
                    ridge->damping * (double)now[r * layer->row_step + column * layer->depth_step];
            }
            lanes[count++] = r;
        }
        sbit__cholesky_solve(ridge->a, ridge->count, ridge->x);
        for (int64_t lane = 0; lane < count; lane++) {
            sbit__ridge_row(ridge, g, lanes[lane], ridge->x + lane, weight, bias);
        }
    }
}

static void sbit__ridge_solve(sbit__ridge *ridge, float *weight, float *bias)
{
    const sbit__layer *layer = &ridge->layer;
    for (int64_t g = 0; g < layer->groups; g++) {
        ridge->count = 0;
        for (int64_t k = 0; k < layer->depth; k++) {
            if (sbit__ridge_stays(ridge, g, k)) {
                ridge->columns[ridge->count++] = k;
            }
        }
        float *sums = ridge->gram.sums + g * layer->depth * layer->depth;
        sbit__ridge_centre(ridge, sums, ridge->gram.mean_b, g);
        sbit__ridge_centre(ridge, ridge->gram.mixed + g * layer->depth * layer->depth,
                           ridge->gram.mean_a, g);
        if (ridge->count == 0 || !sbit__ridge_factor(ridge, sums)) {
            continue; /* nothing reaches it */
        }
        sbit__ridge_targets(ridge, g);
        sbit__ridge_rows(ridge, g, weight, bias);
    }
}

/* >>all layers */

/* The BatchNormalization that alone reads the layer has a mean, which is as good as a bias. */
static void sbit__ridge_mean(const sbit_graph *now, int64_t rows, sbit__ridge *out)
{
    const sbit_value_info *output = sbit_graph_value(now, out->layer.node->outputs[0]);
    sbit_use use;
    if (output->use_count != 1 || sbit_graph_uses(now, output->id, &use, 1) != 1 ||
        use.node.idx == 0 || use.body != NULL || use.index != 0 ||
        !sbit__is_op(sbit_graph_node(now, use.node), "BatchNormalization")) {
        return;
    }
    const sbit_value_info *mean = sbit_graph_value(now, sbit_graph_node(now, use.node)->inputs[3]);
    if (mean->is_constant && mean->use_count == 1 && mean->constant.rank == 1 &&
        mean->constant.dims[0] == rows && mean->constant.dtype == SBIT_F32) {
        out->bias = (const float *)mean->constant.data;
        out->bias_id = mean->id;
        out->bias_sign = -1.0;
    }
}

/* The layer can be repaired: a product whose weight and bias are its own. */
static bool sbit__ridge_takes(const sbit_sparse *sparse, const sbit_graph *now,
                              const sbit__sparse_layer *of, sbit__ridge *out)
{
    const sbit__member *member = &sparse->labeler.members[of->member];
    memset(out, 0, sizeof *out);
    out->sparse = sparse;
    out->of = of;
    if ((of->settings.repair & SBIT_REPAIR_RIDGE) == 0 ||
        !sbit__layer_of(sparse->graph, member->node, &out->layer) ||
        out->layer.node->inputs[1].idx != member->value.idx) {
        return false;
    }
    const sbit_value_info *weight = sbit_graph_value(now, member->value);
    const int64_t rows = out->layer.groups * out->layer.rows;
    if (weight->use_count != 1 || weight->constant.dtype != SBIT_F32 ||
        out->layer.depth > SBIT__RIDGE_DEPTH || !sbit__ridge_is_whole(out)) {
        return false;
    }
    out->weight = &weight->constant;
    if (out->layer.node->input_count > 2 && out->layer.node->inputs[2].idx != 0) {
        const sbit_value_info *bias = sbit_graph_value(now, out->layer.node->inputs[2]);
        const bool own = bias->is_constant && bias->use_count == 1 && bias->constant.rank == 1 &&
                         bias->constant.dims[0] == rows && bias->constant.dtype == SBIT_F32;
        out->bias = own ? (const float *)bias->constant.data : NULL;
        out->bias_id = out->layer.node->inputs[2];
        out->bias_sign = 1.0;
    } else {
        sbit__ridge_mean(now, rows, out);
    }
    return sbit__is_op(out->layer.node, "Gemm")
               ? sbit_node_float(out->layer.node, "alpha", 1.0f) == 1.0f &&
                     sbit_node_float(out->layer.node, "beta", 1.0f) == 1.0f
               : true;
}

static sbit_status sbit__ridge_memory(sbit__ridge *ridge, sbit__arena *arena, sbit_error *error)
{
    const size_t depth = (size_t)ridge->layer.depth, rows = (size_t)ridge->layer.rows;
    sbit__gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = ridge->layer.rows;
    gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = ridge->layer.depth;
    ridge->columns = (int64_t *)sbit__arena_array(arena, depth, sizeof(int64_t));
    ridge->a = (double *)sbit__arena_array(arena, depth * depth, sizeof(double));
    ridge->x = (double *)sbit__arena_array(arena, depth * SBIT__SOLVE_LANES, sizeof(double));
    ridge->old = (float *)sbit__arena_array(arena, 4 * rows * depth, sizeof(float));
    void *scratch =
        sbit__arena_alloc(arena, sbit__gemm_scratch_bytes(ridge->sparse->ctx, &gemm) + 64);
    if (ridge->columns == NULL || ridge->a == NULL || ridge->x == NULL || ridge->old == NULL ||
        scratch == NULL) {
        return sbit__fail_oom(error, depth * depth * sizeof(double));
    }
    memset(ridge->x, 0, depth * SBIT__SOLVE_LANES * sizeof(double)); /* lanes that stay free */
    ridge->rest = ridge->old + rows * depth;
    ridge->want = ridge->rest + rows * depth; /* twice */
    ridge->scratch = (void *)(((uintptr_t)scratch + 63u) & ~(uintptr_t)63u);
    return SBIT_OK;
}

static sbit_status sbit__ridge_change(sbit__repair *r, sbit__ridge *ridge, sbit_tensor *weight,
                                      sbit_tensor *bias, sbit__arena *arena, sbit_error *error)
{
    sbit_sparse *sparse = r->sparse;
    const sbit_value_id weight_id = ridge->layer.node->inputs[1];
    ridge->before = (const float *)sbit_graph_value(r->before, weight_id)->constant.data;
    SBIT__TRY(sbit__ridge_memory(ridge, arena, error));
    SBIT__TRY(sbit__walk_both(r->walks, ridge->layer.node->id, 0, sbit__ridge_see, ridge, error));
    SBIT__TRY(sbit__tensor_copy(sparse->ctx, ridge->weight, weight, error));
    if (ridge->bias != NULL) {
        SBIT__TRY(sbit__tensor_copy(
            sparse->ctx, &sbit_graph_value(r->now, ridge->bias_id)->constant, bias, error));
    }
    sbit__ridge_solve(ridge, (float *)weight->data, (float *)bias->data);
    if (ridge->bias != NULL) {
        SBIT__TRY(sbit__sparse_change(sparse, ridge->bias_id, bias, error));
        SBIT__TRY(sbit_graph_set_constant(r->now, ridge->bias_id, bias, error));
    }
    SBIT__TRY(sbit__sparse_change(sparse, weight_id, weight, error));
    return sbit_graph_set_constant(r->now, weight_id, weight, error);
}

static sbit_status sbit__repair_layer(sbit__repair *r, sbit__ridge *ridge, sbit_error *error)
{
    sbit_tensor weight, bias;
    sbit__arena arena;
    memset(&weight, 0, sizeof weight);
    memset(&bias, 0, sizeof bias);
    sbit__arena_init(&arena, sbit_ctx_allocator(r->sparse->ctx));
    sbit_status status =
        sbit__gram_init(r->sparse->ctx, &ridge->layer, true,
                        sbit_options_int(&ridge->of->options, "RIDGE.POSITIONS"),
                        (uint64_t)ridge->of->member + 1, &ridge->gram, error);
    status = status == SBIT_OK ? sbit__ridge_change(r, ridge, &weight, &bias, &arena, error)
                               : status;
    sbit__gram_deinit(&ridge->gram);
    sbit_tensor_free(r->sparse->ctx, &weight);
    sbit_tensor_free(r->sparse->ctx, &bias);
    sbit__arena_deinit(&arena);
    return status;
}

/* Something that the layer reads was cut, or computed by layers that were. */
static bool sbit__repair_is_behind(const sbit_sparse *sparse, const sbit__sparse_layer *layer)
{
    const sbit_node *node =
        sbit_graph_node(sparse->graph, sparse->labeler.members[layer->member].node);
    const sbit__channel_labels *x = &sparse->labeler.of[node->inputs[0].idx];
    return x->form == SBIT__LABELS_AXIS && sbit__cut_touches(sparse, node->inputs[0], x->axis);
}

static sbit_status sbit__repair_layers(sbit__repair *r, int64_t *count, sbit_error *error)
{
    sbit_sparse *sparse = r->sparse;
    bool behind = false;
    SBIT__TRY(sbit__walk_on(sparse->ctx, r->before, r->feed, &r->walks[0], error));
    SBIT__TRY(sbit__walk_on(sparse->ctx, r->now, r->feed, &r->walks[1], error));
    for (size_t i = 0; i < sparse->layer_count; i++) {
        sbit__ridge ridge;
        behind = behind || sbit__repair_is_behind(sparse, &sparse->layers[i]);
        if (behind && sbit__ridge_takes(sparse, r->now, &sparse->layers[i], &ridge)) {
            SBIT__TRY(sbit__repair_layer(r, &ridge, error));
            sparse->marks[ridge.layer.node->outputs[0].idx] = true;
            (*count)++;
        } else if (!behind) { /* computes what it did */
            const sbit_node_id id = sparse->labeler.members[sparse->layers[i].member].node;
            sparse->marks[sbit_graph_node(sparse->graph, id)->outputs[0].idx] = true;
        }
        SBIT__TRY(sbit__progress(sparse->ctx, "repair", (int64_t)i + 1,
                                 (int64_t)sparse->layer_count, error));
    }
    return SBIT_OK;
}

/* >>statistics */

/* Those behind layers that least squares repaired have the right mean, and must keep their variance:
 * the layers now give less of it, because what they cannot predict is left out, and to scale that up
 * again would make the noise larger. */
static sbit_status sbit__repair_norms(sbit__repair *r, const bool *repaired, int64_t *count,
                                      sbit_error *error)
{
    SBIT__TRY(sbit__reestimate_bn(r->now, repaired, r->feed, error));
    for (sbit_node_id id = sbit_graph_first(r->now); id.idx != 0;
         id = sbit_graph_next(r->now, id)) {
        const sbit_node *node = sbit_graph_node(r->now, id);
        const bool taken = sbit__is_op(node, "BatchNormalization") && !repaired[node->inputs[0].idx];
        for (size_t i = 3; taken && i < 5; i++) {
            SBIT__TRY(sbit__sparse_change(r->sparse, node->inputs[i],
                                          &sbit_graph_value(r->now, node->inputs[i])->constant,
                                          error));
            *count += i == 3 ? 1 : 0;
        }
    }
    return SBIT_OK;
}

static bool sbit__repair_has_norms(const sbit_graph *graph)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        if (sbit__is_op(sbit_graph_node(graph, id), "BatchNormalization")) {
            return true;
        }
    }
    return false;
}

/* >>public */

static sbit_status sbit__repair_all(sbit__repair *r, uint32_t what, sbit_sparse_repaired *out,
                                    sbit_error *error)
{
    sbit_sparse *sparse = r->sparse;
    SBIT__TRY(sbit_graph_clone(sparse->graph, &r->before, error));
    SBIT__TRY(sbit__sparse_unchanged(sparse, r->before, error));
    SBIT__TRY(sbit_sparse_masked(sparse, &r->now, error));
    SBIT__TRY(sbit__repair_sqnr(r, &out->before, error));
    out->ridge = out->after = out->before;
    memset(sparse->marks, 0, sbit_graph_value_limit(sparse->graph) * sizeof *sparse->marks);
    if ((what & SBIT_REPAIR_RIDGE) != 0) {
        SBIT__TRY(sbit__repair_layers(r, &out->layers, error));
        SBIT__TRY(sbit__repair_sqnr(r, &out->ridge, error));
        out->after = out->ridge;
    }
    if ((what & SBIT_REPAIR_BATCH_NORM) != 0 && sbit__repair_has_norms(sparse->graph)) {
        SBIT__TRY(sbit__repair_norms(r, sparse->marks, &out->norms, error));
        SBIT__TRY(sbit__repair_sqnr(r, &out->after, error));
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sparse_repair(sbit_sparse *sparse, const sbit_feed *feed,
                                             sbit_sparse_repaired *out, sbit_error *error)
{
    sbit__repair r;
    sbit_sparse_repaired repaired;
    uint32_t what = 0;
    memset(&r, 0, sizeof r);
    memset(&repaired, 0, sizeof repaired);
    for (size_t i = 0; i < sparse->layer_count; i++) {
        what |= sparse->layers[i].settings.repair;
    }
    if (what != 0 && (feed == NULL || feed->count < 1)) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL, "REPAIR looks at data: give it a feed");
    }
    if (what != 0) {
        r.sparse = sparse;
        r.feed = feed;
        const sbit_status status = sbit__repair_all(&r, what, &repaired, error);
        sbit_walk_destroy(r.walks[0]);
        sbit_walk_destroy(r.walks[1]);
        sbit_graph_destroy(r.before);
        sbit_graph_destroy(r.now);
        sparse->masks_fit = false; /* what removed channels are may have changed */
        SBIT__TRY(status);
    }
    if (out != NULL) {
        *out = repaired;
    }
    return SBIT_OK;
}
