/* folded.c: what a removed channel is: a constant that the layers behind it take up. >>folded
 *
 * The masked graph is run on random inputs; wherever a layer reads a removed channel, that channel
 * must have been one number at every position of every sample. Zero costs nothing. Another number
 * is added, times the layer's columns, to its bias; behind zero padding, or in a product of two
 * activations, that is not exact, and the channel stays.
 */
#include "../exec/exec_api.h"
#include "../passes/passes_private.h"
#include "sparse_private.h"

#include <math.h> /* fabs */

/* >>measuring */

typedef struct sbit__folded_tap {
    sbit_sparse *sparse;
    const sbit_graph *masked;
    sbit__folded *folded;
} sbit__folded_tap;

static sbit_status sbit__folded_value(const sbit_graph *graph, sbit_value_id id,
                                      const sbit_value *value, void *user, sbit_error *error)
{
    const sbit__folded_tap *tap = (const sbit__folded_tap *)user;
    (void)error;
    const sbit_value_id same =
        sbit_graph_find_value(tap->masked, sbit_graph_value(graph, id)->name);
    float *low = same.idx != 0 ? tap->folded->low[same.idx] : NULL;
    if (low == NULL || value->kind != SBIT_KIND_TENSOR) {
        return SBIT_OK;
    }
    float *high = tap->folded->high[same.idx];
    const sbit__channel_labels *labels = &tap->sparse->labeler.of[same.idx];
    const int64_t n = labels->dims[labels->axis];
    const int64_t inner = sbit__channel_labels_inner(labels, labels->axis);
    const int64_t slices = inner > 0 ? sbit_tensor_count(&value->tensor) / inner : 0;
    const float *floats =
        value->tensor.dtype == SBIT_F32 ? (const float *)value->tensor.data : NULL;
    for (int64_t slice = 0; slice < slices; slice++) {
        const int64_t i = slice % n;
        float least = low[i], most = high[i]; /* NaN: not removed, or not finite */
        for (int64_t p = slice * inner; most == most && p < (slice + 1) * inner; p++) {
            const float x =
                floats != NULL ? floats[p] : (float)sbit__tensor_f64_at(&value->tensor, p);
            least = x < least ? x : least;
            most = x > most || x != x ? x : most;
        }
        low[i] = least;
        high[i] = most;
    }
    return SBIT_OK;
}

static sbit_status sbit__folded_memory(const sbit_sparse *sparse, sbit__folded *folded,
                                       sbit_error *error)
{
    sbit__arena *arena = &folded->arena;
    const uint32_t limit = sbit_graph_value_limit(sparse->graph);
    sbit__arena_deinit(arena);
    sbit__arena_init(arena, sbit_ctx_allocator(sparse->ctx));
    folded->low = (float **)sbit__arena_array(arena, limit, sizeof(float *));
    folded->high = (float **)sbit__arena_array(arena, limit, sizeof(float *));
    if (folded->low == NULL || folded->high == NULL) {
        return sbit__fail_oom(error, limit * sizeof(float *));
    }
    for (uint32_t v = 1; v < limit; v++) {
        const sbit__channel_labels *labels = &sparse->labeler.of[v];
        sbit_value_id id;
        id.idx = v;
        if (labels->form != SBIT__LABELS_AXIS || !sbit__cut_touches(sparse, id, labels->axis) ||
            sbit_graph_value(sparse->graph, id)->is_constant) {
            continue;
        }
        const size_t n = (size_t)labels->dims[labels->axis];
        folded->low[v] = (float *)sbit__arena_array(arena, n, sizeof(float));
        folded->high[v] = (float *)sbit__arena_array(arena, n, sizeof(float));
        if (folded->low[v] == NULL || folded->high[v] == NULL) {
            return sbit__fail_oom(error, n * sizeof(float));
        }
        for (size_t i = 0; i < n; i++) {
            const bool removed = sbit__class_is_removed(sparse, labels->at[i]);
            folded->low[v][i] = INFINITY;
            folded->high[v][i] = removed ? -INFINITY : NAN;
        }
    }
    return SBIT_OK;
}

/* Two samples that differ: of one batch, or of two. */
static sbit_status sbit__folded_session(sbit_sparse *sparse, sbit_session *session,
                                        sbit_error *error)
{
    uint64_t runs = 1;
    for (size_t i = 0; i < sbit_session_input_count(session); i++) {
        const sbit_value_id id =
            sbit_graph_find_value(sparse->graph, sbit_session_input_info(session, i)->name);
        const sbit_type *type = sparse->labeler.infer.types[id.idx];
        runs = id.idx != 0 && type->rank > 0 && type->dims[0].value > 1 ? runs : 2;
    }
    sbit__arena inputs;
    sbit_status status = SBIT_OK;
    sbit__arena_init(&inputs, sbit_ctx_allocator(sparse->ctx));
    for (uint64_t seed = 2; status == SBIT_OK && seed < 2 + runs; seed++) {
        status = sbit__sparse_inputs(sparse, session, false, seed, &inputs, error);
        status = status == SBIT_OK ? sbit_session_run(session, error) : status;
    }
    sbit__arena_deinit(&inputs);
    return status;
}

SBIT__FN sbit_status sbit__folded_run(sbit_sparse *sparse, sbit_graph *masked,
                                      sbit__folded *folded, sbit_error *error)
{
    sbit_session_desc desc;
    sbit__folded_tap tap;
    sbit_session *session = NULL;
    SBIT__TRY(sbit__folded_memory(sparse, folded, error));
    tap.sparse = sparse;
    tap.masked = masked;
    tap.folded = folded;
    memset(&desc, 0, sizeof desc);
    desc.tap_fn = sbit__folded_value;
    desc.tap_user = &tap;
    desc.tap_all = true;
    SBIT__TRY(sbit_session_create(masked, &desc, &session, error));
    const sbit_status status = sbit__folded_session(sparse, session, error);
    sbit_session_destroy(session);
    return status;
}

/* What index i of a value is; false: no constant. */
static bool sbit__folded_is(const sbit__folded *folded, sbit_value_id value, int64_t i, double *out)
{
    const float low = folded->low[value.idx] != NULL ? folded->low[value.idx][i] : NAN;
    const float high = folded->high[value.idx] != NULL ? folded->high[value.idx][i] : NAN;
    *out = 0.5 * ((double)low + (double)high);
    return fabs((double)high - (double)low) <= 1e-6 * (fabs(*out) > 1.0 ? fabs(*out) : 1.0);
}

/* >>who reads channels */

/* How a node that sums over channels takes up constants. */
typedef enum sbit__reader {
    SBIT__READS_NOT,    /* channels go through, or the node does not read this input */
    SBIT__READS_BIAS,   /* Conv without padding, Gemm, MatMul: into the bias */
    SBIT__READS_ZERO,   /* only zeros can go */
    SBIT__READS_PRODUCT /* two activations: one of them must be zero */
} sbit__reader;

static bool sbit__reader_pads(const sbit_node *node)
{
    const sbit_attr *pads = sbit_node_attr(node, "pads");
    const char *automatic = sbit_node_string(node, "auto_pad", "NOTSET");
    for (size_t i = 0; pads != NULL && i < pads->count; i++) {
        if (pads->ints[i] != 0) {
            return true;
        }
    }
    return !sbit__streq(automatic, "NOTSET") && !sbit__streq(automatic, "VALID");
}

static bool sbit__reader_has_columns(const sbit_sparse *sparse, const sbit_node *node)
{
    for (size_t m = 0; m < sparse->labeler.member_count; m++) {
        const sbit__member *member = &sparse->labeler.members[m];
        for (size_t i = 0; i < node->input_count; i++) {
            if (member->value.idx == node->inputs[i].idx &&
                (member->roles >> SBIT_ROLE_COLUMNS & 1u) != 0) {
                return true;
            }
        }
    }
    return false;
}

/* Gemm adds one row to all of its outputs; a matrix or a computed C takes up nothing. */
static bool sbit__reader_has_row(const sbit_sparse *sparse, const sbit_node *node)
{
    const sbit_value_info *c =
        sbit__streq(node->op_type, "Gemm") && node->input_count > 2 && node->inputs[2].idx != 0
            ? sbit_graph_value(sparse->graph, node->inputs[2])
            : NULL;
    const sbit_tensor *t = c != NULL ? &c->constant : NULL;
    return c == NULL ||
           (c->is_constant && (t->rank < 2 || t->dims[t->rank - 1] == sbit_tensor_count(t)));
}

static sbit__reader sbit__reader_of(const sbit_sparse *sparse, const sbit_node *node)
{
    const bool built_in = node->domain[0] == '\0';
    if (built_in && sbit__streq(node->op_type, "MatMul") &&
        !sbit_graph_value(sparse->graph, node->inputs[0])->is_constant &&
        !sbit_graph_value(sparse->graph, node->inputs[1])->is_constant) {
        return SBIT__READS_PRODUCT;
    }
    if (built_in && (sbit__streq(node->op_type, "RMSNormalization") ||
                     sbit__streq(node->op_type, "SimplifiedLayerNormalization"))) {
        return SBIT__READS_ZERO;
    }
    if (!sbit__reader_has_columns(sparse, node)) {
        return SBIT__READS_NOT;
    }
    if (built_in && (sbit__streq(node->op_type, "Gemm") || sbit__streq(node->op_type, "MatMul"))) {
        return sbit__reader_has_row(sparse, node) ? SBIT__READS_BIAS : SBIT__READS_ZERO;
    }
    return built_in && sbit__streq(node->op_type, "Conv") && !sbit__reader_pads(node)
               ? SBIT__READS_BIAS
               : SBIT__READS_ZERO;
}

/* >>checking */

static void sbit__folded_give_back(sbit_sparse *sparse, int32_t label, sbit_node_id node,
                                   const char *reason)
{
    const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, label);
    if (c >= 0 && sparse->removed[c]) {
        sparse->removed[c] = false;
        sparse->kept_why[c] = sbit__node_reason(sparse->graph, &sparse->reasons, node, reason);
    }
}

static bool sbit__folded_check_input(sbit_sparse *sparse, const sbit__folded *folded,
                                     const sbit_node *node, sbit__reader reader)
{
    const sbit_value_id x = node->inputs[0];
    const sbit__channel_labels *labels = &sparse->labeler.of[x.idx];
    bool changed = false;
    if (labels->form != SBIT__LABELS_AXIS || folded->low[x.idx] == NULL) {
        return false;
    }
    for (int64_t i = 0; i < labels->dims[labels->axis]; i++) {
        double k = 0.0;
        if (!sbit__class_is_removed(sparse, labels->at[i])) {
            continue;
        }
        const bool constant = sbit__folded_is(folded, x, i, &k);
        if (!constant || (reader == SBIT__READS_ZERO && k != 0.0)) {
            sbit__folded_give_back(sparse, labels->at[i], node->id,
                                   !constant ? "reads channels that are not constant when masked"
                                   : sbit__streq(node->op_type, "Conv")
                                       ? "reads a constant through zero padding"
                                       : "reads channels that are not zero when masked");
            changed = true;
        }
    }
    return changed;
}

/* Channel k of a meets channel k of b: what goes must be zero in one of them. */
static bool sbit__folded_check_product(sbit_sparse *sparse, const sbit__folded *folded,
                                       const sbit_node *node)
{
    const sbit__channel_labels *a = &sparse->labeler.of[node->inputs[0].idx];
    const sbit__channel_labels *b = &sparse->labeler.of[node->inputs[1].idx];
    bool changed = false;
    if (a->form != SBIT__LABELS_AXIS || b->form != SBIT__LABELS_AXIS || a->axis != a->rank - 1 ||
        b->axis != b->rank - 2) {
        return false; /* not over channels */
    }
    for (int64_t i = 0; i < a->dims[a->axis]; i++) {
        double x = 0.0, y = 0.0;
        if (sbit__class_is_removed(sparse, a->at[i]) &&
            !(sbit__folded_is(folded, node->inputs[0], i, &x) && x == 0.0) &&
            !(sbit__folded_is(folded, node->inputs[1], i, &y) && y == 0.0)) {
            sbit__folded_give_back(sparse, a->at[i], node->id,
                                   "multiplies channels that are not zero when masked");
            changed = true;
        }
    }
    return changed;
}

SBIT__FN bool sbit__folded_check(sbit_sparse *sparse, const sbit_graph *masked,
                                 const sbit__folded *folded)
{
    bool changed = false;
    for (sbit_node_id id = sbit_graph_first(masked); id.idx != 0;
         id = sbit_graph_next(masked, id)) {
        const sbit_node *node = sbit_graph_node(masked, id);
        if (node->input_count == 0 || node->inputs[0].idx == 0) {
            continue;
        }
        const sbit__reader reader = sbit__reader_of(sparse, node);
        if (reader == SBIT__READS_PRODUCT) {
            changed = sbit__folded_check_product(sparse, folded, node) || changed;
        } else if (reader != SBIT__READS_NOT) {
            changed = sbit__folded_check_input(sparse, folded, node, reader) || changed;
        }
    }
    return changed;
}

/* >>taking up */

/* sum[o] = what the removed channels of input 0 contribute to output channel o; *any: not all 0. */
static bool sbit__folded_sums(const sbit_sparse *sparse, const sbit__folded *folded,
                              const sbit_graph *graph, const sbit_node *node, double *sum,
                              int64_t outputs)
{
    const sbit_value_id x = node->inputs[0];
    const sbit__channel_labels *labels = &sparse->labeler.of[x.idx];
    const sbit_tensor *w = &sbit_graph_value(graph, node->inputs[1])->constant;
    const bool conv = sbit__streq(node->op_type, "Conv");
    const bool rows_first = conv || sbit_node_int(node, "transB", 0) != 0;
    const int64_t groups = conv ? sbit_node_int(node, "group", 1) : 1;
    const int64_t columns = w->dims[rows_first ? 1 : 0];
    const int64_t spatial = sbit_tensor_count(w) / (columns * outputs);
    const double alpha =
        sbit__streq(node->op_type, "Gemm") ? (double)sbit_node_float(node, "alpha", 1.0f) : 1.0;
    bool any = false;
    for (int64_t i = 0; i < labels->dims[labels->axis]; i++) {
        double k = 0.0;
        if (!sbit__class_is_removed(sparse, labels->at[i]) || !sbit__folded_is(folded, x, i, &k) ||
            k == 0.0) {
            continue;
        }
        const int64_t group = i / columns, first = group * (outputs / groups);
        for (int64_t o = first; o < first + outputs / groups; o++) {
            for (int64_t s = 0; s < spatial; s++) {
                const int64_t at =
                    rows_first ? (o * columns + i % columns) * spatial + s : i * outputs + o;
                sum[o] += alpha * k * sbit__tensor_f64_at(w, at);
            }
        }
        any = true;
    }
    return any;
}

/* What is added to the output: all of it where the bias is cut later, else what will be left. */
static sbit_status sbit__folded_bias(sbit_sparse *sparse, const sbit_graph *graph,
                                     const sbit_node *node, const sbit_tensor *old,
                                     const double *sum, int64_t outputs, bool cut,
                                     sbit_tensor *bias, sbit_error *error)
{
    const sbit__channel_labels *y = &sparse->labeler.of[node->outputs[0].idx];
    const sbit_dtype dtype = sbit_graph_value(graph, node->inputs[1])->constant.dtype;
    const double beta =
        sbit__streq(node->op_type, "Gemm") ? (double)sbit_node_float(node, "beta", 1.0f) : 1.0;
    const int64_t had = old != NULL ? sbit_tensor_count(old) : 0;
    const bool some = cut && y->form == SBIT__LABELS_AXIS && y->dims[y->axis] == outputs;
    int64_t n = some ? sbit__cut_kept(sparse, node->outputs[0], y->axis) : outputs;
    SBIT__TRY(sbit_tensor_alloc(sparse->ctx, dtype, 1, &n, bias, error));
    n = 0;
    for (int64_t o = 0; o < outputs; o++) {
        const double before = had > 0 ? sbit__tensor_f64_at(old, had == 1 ? 0 : o) : 0.0;
        if (!some || !sbit__class_is_removed(sparse, y->at[o])) {
            sbit__tensor_set_f64(bias, n++, before + (beta != 0.0 ? sum[o] / beta : 0.0));
        }
    }
    return SBIT_OK;
}

/* MatMul has no bias: an Add behind it. */
static sbit_status sbit__folded_add_node(sbit_graph *graph, sbit_node_id id, sbit_value_id bias,
                                         sbit_error *error)
{
    const sbit_value_id output = sbit_graph_node(graph, id)->outputs[0];
    const sbit_type type = sbit_graph_value(graph, output)->type;
    sbit_value_id inputs[2];
    sbit_node_desc desc;
    sbit_node_id add;
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(sbit_graph_add_value(graph, sbit_graph_value(graph, output)->name, &type, &inputs[0],
                                   error));
    SBIT__TRY(sbit_graph_set_node_output(graph, id, 0, inputs[0], error));
    inputs[1] = bias;
    desc.op_type = "Add";
    desc.name = "folded";
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = &output;
    desc.output_count = 1;
    desc.before = sbit_graph_next(graph, id);
    return sbit_graph_add_node(graph, &desc, &add, error);
}

/* The bias grows, or appears. */
static sbit_status sbit__folded_add(sbit_sparse *sparse, sbit_graph *graph, sbit_node_id id,
                                    const double *sum, int64_t outputs, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const bool matmul = sbit__streq(node->op_type, "MatMul");
    const sbit_tensor *old = !matmul && node->input_count > 2 && node->inputs[2].idx != 0
                                 ? &sbit_graph_value(graph, node->inputs[2])->constant
                                 : NULL;
    const bool grows = old != NULL && old->rank == 1 && old->dims[0] == outputs;
    sbit_tensor bias;
    sbit_value_id added;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit__folded_bias(sparse, graph, node, old, sum, outputs, !grows, &bias, error));
    if (grows) {
        added = node->inputs[2];
        status = sbit_graph_set_constant(graph, added, &bias, error);
    } else {
        status = sbit_graph_add_constant(graph, "folded", &bias, &added, error);
    }
    sbit_tensor_free(sparse->ctx, &bias);
    SBIT__TRY(status);
    if (matmul) {
        return sbit__folded_add_node(graph, id, added, error);
    }
    return grows ? SBIT_OK : sbit_graph_set_node_input(graph, id, 2, added, error);
}

SBIT__FN sbit_status sbit__folded_apply(sbit_sparse *sparse, sbit_graph *graph,
                                        const sbit__folded *folded, sbit_error *error)
{
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    for (sbit_node_id id = sbit_graph_first(sparse->graph); status == SBIT_OK && id.idx != 0;
         id = sbit_graph_next(sparse->graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (node->input_count < 2 || node->inputs[0].idx == 0 ||
            sbit__reader_of(sparse, sbit_graph_node(sparse->graph, id)) != SBIT__READS_BIAS ||
            folded->low[node->inputs[0].idx] == NULL ||
            sparse->labeler.of[node->inputs[0].idx].form != SBIT__LABELS_AXIS) {
            continue;
        }
        const sbit_tensor *w = &sbit_graph_value(graph, node->inputs[1])->constant;
        const bool rows_first =
            sbit__streq(node->op_type, "Conv") || sbit_node_int(node, "transB", 0) != 0;
        const int64_t outputs = w->dims[rows_first ? 0 : 1];
        double *sum = (double *)sbit__arena_array(&arena, (size_t)outputs + 1, sizeof *sum);
        if (sum == NULL) {
            status = sbit__fail_oom(error, (size_t)outputs * sizeof *sum);
        } else if (sbit__folded_sums(sparse, folded, graph, node, sum, outputs)) {
            status = sbit__folded_add(sparse, graph, id, sum, outputs, error);
        }
    }
    sbit__arena_deinit(&arena);
    return status;
}
