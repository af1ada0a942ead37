/* verify.c: the masked and the smaller graph are run on the same inputs and compared.
 * >>sparse-verify
 */
#include "../exec/exec_api.h"
#include "../ops/window_private.h"
#include "../passes/passes_private.h"
#include "sparse_private.h"

/* >>inputs */

static void sbit__verify_fill(sbit_tensor *tensor, sbit_rng *rng)
{
    const int64_t n = sbit_tensor_count(tensor);
    for (int64_t i = 0; i < n; i++) {
        const double x = (SBIT_T_FLOATS >> (uint32_t)tensor->dtype & 1u) != 0
                             ? (double)sbit_rng_normal(rng)
                             : (double)sbit_rng_below(rng, 2);
        sbit__tensor_set_f64(tensor, i, x);
    }
}

SBIT__FN void sbit__sparse_input_type(const sbit_sparse *sparse, sbit_value_id id, bool one,
                                      sbit_type *out)
{
    *out = *sparse->labeler.infer.types[id.idx];
    if (one && out->rank > 0 &&
        !sbit__dim_known(sbit_graph_value(sparse->graph, id)->type.dims[0])) {
        out->dims[0] = sbit__dim(1);
    }
}

SBIT__FN sbit_status sbit__sparse_inputs(const sbit_sparse *sparse, sbit_session *session, bool one,
                                         uint64_t seed, sbit__arena *arena, sbit_error *error)
{
    sbit_rng rng = sbit_rng_seed(seed);
    for (size_t i = 0; i < sbit_session_input_count(session); i++) {
        const sbit_value_info *info = sbit_session_input_info(session, i);
        const sbit_value_id id = sbit_graph_find_value(sparse->graph, info->name);
        sbit_type type;
        sbit_tensor tensor;
        size_t bytes = 0;
        memset(&type, 0, sizeof type);
        if (id.idx != 0) {
            sbit__sparse_input_type(sparse, id, one, &type);
        }
        if (id.idx == 0 || !sbit__type_static(&type) || type.kind != SBIT_KIND_TENSOR) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, info->name,
                              "input '%s' is no tensor that can be made up", info->name);
        }
        memset(&tensor, 0, sizeof tensor);
        tensor.dtype = type.dtype;
        tensor.rank = type.rank;
        for (int32_t d = 0; d < type.rank; d++) {
            tensor.dims[d] = type.dims[d].value;
        }
        bytes = sbit_tensor_bytes(&tensor);
        tensor.data = sbit__arena_alloc(arena, bytes + 16);
        if (tensor.data == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        sbit__verify_fill(&tensor, &rng);
        SBIT__TRY(sbit_session_set_input(session, info->name, &tensor, error));
    }
    return SBIT_OK;
}

/* >>comparison */

typedef struct sbit__verify {
    const sbit_sparse *sparse;
    const sbit_feed *feed; /* NULL: random inputs only */
    double bound;
    sbit_session *a, *b;
    const char *a_is, *b_is; /* for messages */
} sbit__verify;

/* Output `index` of a has its channels; of b, where it lost some, those that stay: the position in b
 * of a position in a; -1: it went. */
static int64_t sbit__verify_place(const sbit__verify *v, const sbit__channel_labels *labels,
                                  const sbit_tensor *a, const sbit_tensor *b, int64_t position)
{
    const int32_t axis = labels->axis;
    int64_t inner = 1, kept = 0;
    for (int32_t i = axis + 1; i < a->rank; i++) {
        inner *= a->dims[i];
    }
    const int64_t n = a->dims[axis], channel = position / inner % n;
    if (sbit__class_is_removed(v->sparse, labels->at[channel])) {
        return -1;
    }
    for (int64_t i = 0; i < channel; i++) {
        kept += sbit__class_is_removed(v->sparse, labels->at[i]) ? 0 : 1;
    }
    return (position / inner / n * b->dims[axis] + kept) * inner + position % inner;
}

/* The labels of an output that lost channels, as it should have; NULL: it did not. */
static const sbit__channel_labels *sbit__verify_cut(const sbit__verify *v, const char *name,
                                                    const sbit_tensor *a, const sbit_tensor *b)
{
    const sbit_value_id id = sbit_graph_find_value(v->sparse->graph, name);
    const sbit__channel_labels *labels = id.idx != 0 ? &v->sparse->labeler.of[id.idx] : NULL;
    if (labels == NULL || labels->form != SBIT__LABELS_AXIS || a->rank != b->rank ||
        labels->axis >= a->rank || a->dims[labels->axis] != labels->dims[labels->axis]) {
        return NULL;
    }
    for (int32_t i = 0; i < a->rank; i++) {
        if (b->dims[i] !=
            (i == labels->axis ? sbit__cut_kept(v->sparse, id, i) : a->dims[i])) {
            return NULL;
        }
    }
    return labels;
}

static sbit_status sbit__verify_output(const sbit__verify *v, size_t index, const char *what,
                                       sbit_error *error)
{
    const sbit_tensor *a = &sbit_session_output(v->a, index)->tensor;
    const sbit_tensor *b = &sbit_session_output(v->b, index)->tensor;
    const char *name = sbit_session_output_info(v->a, index)->name;
    const bool same = sbit_tensor_same_shape(a, b);
    const sbit__channel_labels *cut = same ? NULL : sbit__verify_cut(v, name, a, b);
    double largest = 1e-6, off = 0.0;
    if ((!same && cut == NULL) || a->dtype != b->dtype) {
        char had[80], has[80];
        sbit_tensor_describe(a, had, sizeof had);
        sbit_tensor_describe(b, has, sizeof has);
        return sbit__fail(error, SBIT_ERR_NUMERIC, name, "output '%s' of %s is %s, of %s %s", name,
                          v->b_is, has, v->a_is, had);
    }
    for (int64_t i = 0; i < sbit_tensor_count(a); i++) {
        const int64_t at = cut != NULL ? sbit__verify_place(v, cut, a, b, i) : i;
        if (at < 0) {
            continue;
        }
        const double x = sbit__tensor_f64_at(a, i), y = sbit__tensor_f64_at(b, at);
        const double d = x > y ? x - y : y - x;
        largest = x > largest ? x : -x > largest ? -x : largest;
        off = x == y || (x != x && y != y) ? off : d > off || d != d ? d : off;
        if (off != off) {
            break;
        }
    }
    if (!(off <= v->bound * largest)) {
        return sbit__fail(error, SBIT_ERR_NUMERIC, name,
                          "output '%s' of %s differs from that of %s by %.3g of %.3g on %s: "
                          "nothing was written; please report the model",
                          name, v->b_is, v->a_is, off, largest, what);
    }
    return SBIT_OK;
}

static sbit_status sbit__verify_run(const sbit__verify *v, const char *what, sbit_error *error)
{
    SBIT__TRY(sbit_session_run(v->a, error));
    SBIT__TRY(sbit_session_run(v->b, error));
    for (size_t i = 0; i < sbit_session_output_count(v->a); i++) {
        if (sbit_session_output(v->a, i)->kind == SBIT_KIND_TENSOR) {
            SBIT__TRY(sbit__verify_output(v, i, what, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__verify_feed(const sbit__verify *v, sbit_error *error)
{
    sbit_batch batch;
    SBIT__TRY(sbit_feed_read(v->feed, 0, 8, &batch, error));
    for (size_t i = 0; i < batch.input_count; i++) {
        const char *name =
            batch.names != NULL ? batch.names[i] : sbit_session_input_info(v->a, 0)->name;
        SBIT__TRY(sbit_session_set_input(v->a, name, &batch.inputs[i], error));
        SBIT__TRY(sbit_session_set_input(v->b, name, &batch.inputs[i], error));
    }
    return sbit__verify_run(v, "the first samples", error);
}

static sbit_status sbit__verify_sessions(sbit__verify *v, sbit_graph *a, sbit_graph *b,
                                         sbit__arena *arena, sbit_error *error)
{
    SBIT__TRY(sbit_session_create(a, NULL, &v->a, error));
    SBIT__TRY(sbit_session_create(b, NULL, &v->b, error));
    SBIT__TRY(sbit__sparse_inputs(v->sparse, v->a, false, 1, arena, error));
    SBIT__TRY(sbit__sparse_inputs(v->sparse, v->b, false, 1, arena, error));
    SBIT__TRY(sbit__verify_run(v, "random inputs", error));
    return v->feed != NULL && v->feed->count > 0 ? sbit__verify_feed(v, error) : SBIT_OK;
}

static sbit_status sbit__verify_pair(sbit__verify *v, const char *a_is, sbit_graph *a,
                                     const char *b_is, sbit_graph *b, sbit_error *error)
{
    sbit__arena arena;
    v->a = v->b = NULL;
    v->a_is = a_is;
    v->b_is = b_is;
    sbit__arena_init(&arena, sbit_ctx_allocator(v->sparse->ctx));
    const sbit_status status = sbit__verify_sessions(v, a, b, &arena, error);
    sbit_session_destroy(v->a);
    sbit_session_destroy(v->b);
    sbit__arena_deinit(&arena);
    return status;
}

/* >>the user's graph */

/* What a node reads there, behind Identity; NULL: it is computed. */
static const sbit_tensor *sbit__original_constant(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *value = sbit_graph_value(graph, id);
    while (!value->is_constant && value->producer.idx != 0 &&
           sbit__is_op(sbit_graph_node(graph, value->producer), "Identity")) {
        value = sbit_graph_value(graph, sbit_graph_node(graph, value->producer)->inputs[0]);
    }
    return value->is_constant ? &value->constant : NULL;
}

static bool sbit__original_use(const sbit_sparse *sparse, const sbit_use *use,
                               const sbit_tensor *now)
{
    if (use->node.idx == 0 || use->body != NULL ||
        use->node.idx >= sbit_graph_node_limit(sparse->original) ||
        !sbit_graph_node_alive(sparse->original, use->node)) {
        return false;
    }
    const sbit_node *node = sbit_graph_node(sparse->original, use->node);
    const sbit_tensor *was =
        use->index < node->input_count && node->inputs[use->index].idx != 0
            ? sbit__original_constant(sparse->original, node->inputs[use->index])
            : NULL;
    return was != NULL && was->dtype == now->dtype && sbit_tensor_same_shape(was, now) &&
           sbit__streq(node->op_type, sbit_graph_node(sparse->graph, use->node)->op_type) &&
           memcmp(was->data, now->data, sbit_tensor_bytes(now)) == 0;
}

#define SBIT__ORIGINAL_USES 16 /* of one constant, at most */

SBIT__FN void sbit__originals_find(sbit_sparse *sparse)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        sbit_use uses[SBIT__ORIGINAL_USES];
        sbit_value_id id;
        id.idx = v;
        if (!sbit_graph_value_alive(sparse->graph, id) ||
            !sbit_graph_value(sparse->graph, id)->is_constant) {
            continue;
        }
        const size_t count = sbit_graph_uses(sparse->graph, id, uses, SBIT__ORIGINAL_USES);
        sparse->in_original[v] = count > 0 && count <= SBIT__ORIGINAL_USES;
        for (size_t i = 0; sparse->in_original[v] && i < count; i++) {
            sparse->in_original[v] = sbit__original_use(
                sparse, &uses[i], &sbit_graph_value(sparse->graph, id)->constant);
        }
    }
}

SBIT__FN sbit_status sbit__originals_put(const sbit_sparse *sparse, sbit_graph *copy,
                                         sbit_value_id id, const sbit_tensor *tensor,
                                         sbit_error *error)
{
    sbit_use uses[SBIT__ORIGINAL_USES];
    const size_t count = sbit_graph_uses(sparse->graph, id, uses, SBIT__ORIGINAL_USES);
    sbit_value_id put;
    SBIT__TRY(sbit_graph_add_constant(copy, sbit_graph_value(sparse->graph, id)->name, tensor,
                                      &put, error));
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(sbit_graph_set_node_input(copy, uses[i].node, uses[i].index, put, error));
    }
    return SBIT_OK;
}

/* Puts what masks, sparsers and repairs changed into a copy of the user's graph; false: it lacks some of it. */
static sbit_status sbit__verify_mask_original(const sbit_sparse *sparse, const sbit_graph *masked,
                                              sbit_graph *copy, bool *all, sbit_error *error)
{
    *all = true;
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph) && *all; v++) {
        sbit_value_id id;
        id.idx = v;
        if (sparse->keep[v] == NULL && sparse->was[v].data == NULL) {
            continue;
        }
        const sbit_tensor *now = &sbit_graph_value(masked, id)->constant;
        const sbit_tensor *before = sparse->was[v].data != NULL
                                        ? &sparse->was[v]
                                        : &sbit_graph_value(sparse->graph, id)->constant;
        if (memcmp(now->data, before->data, sbit_tensor_bytes(now)) != 0) {
            *all = sparse->in_original[v];
            if (*all) {
                SBIT__TRY(sbit__originals_put(sparse, copy, id, now, error));
            } else {
                SBIT__TRY(sbit__packed_original(sparse, id, now, copy, all, error));
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__verify_original(sbit__verify *v, const sbit_graph *masked,
                                         sbit_graph *shrunk, sbit_error *error)
{
    const sbit_sparse *sparse = v->sparse;
    sbit_graph *copy = NULL;
    bool all = false, changed = false; /* changed: sparse->graph is not the model any more */
    for (uint32_t i = 1; i < sbit_graph_value_limit(sparse->graph); i++) {
        changed = changed || sparse->was[i].data != NULL;
    }
    SBIT__TRY(sbit_graph_clone(sparse->original, &copy, error));
    sbit_status status = sbit__verify_mask_original(sparse, masked, copy, &all, error);
    if (status == SBIT_OK && all) {
        status = sbit__verify_pair(v, "the masked model", copy, "the smaller one", shrunk, error);
    } else if (status == SBIT_OK && !changed) {
        sbit_graph_destroy(copy);
        copy = NULL;
        SBIT__TRY(sbit_graph_clone(sparse->graph, &copy, error));
        status = sbit__packed_close(sparse, copy, error);
        status = status == SBIT_OK ? sbit__verify_pair(v, "the model", sparse->original, "its simplified copy",
                                                       copy, error)
                                   : status;
    }
    sbit_graph_destroy(copy);
    return status;
}

static sbit_status sbit__verify_masked(sbit__verify *v, const sbit_graph *masked, sbit_graph *shrunk,
                                       sbit_error *error)
{
    sbit_graph *copy = NULL;
    SBIT__TRY(sbit_graph_clone(masked, &copy, error));
    sbit_status status = sbit__packed_close(v->sparse, copy, error);
    status = status == SBIT_OK
                 ? sbit__verify_pair(v, "the masked graph", copy, "the smaller one", shrunk, error)
                 : status;
    sbit_graph_destroy(copy);
    return status;
}

static sbit__verify sbit__verify_of(const sbit_sparse *sparse)
{
    sbit__verify v;
    size_t layers = 0;
    memset(&v, 0, sizeof v);
    v.sparse = sparse;
    for (size_t m = 0; m < sparse->labeler.member_count; m++) {
        layers += sbit__member_prunes(&sparse->labeler.members[m]) ? 1u : 0u;
    }
    v.bound = layers > 50 ? 1e-3 : 1e-4;
    return v;
}

SBIT__FN sbit_status sbit__sparse_same(const sbit_sparse *sparse, sbit_graph *a, sbit_graph *b, sbit_error *error)
{
    sbit__verify v = sbit__verify_of(sparse);
    return sbit__verify_pair(&v, "the model", a, "its copy", b, error);
}

SBIT__FN sbit_status sbit__sparse_verify(sbit_sparse *sparse, sbit_graph *masked,
                                         sbit_graph *shrunk, const sbit_feed *feed,
                                         sbit_error *error)
{
    sbit__verify v = sbit__verify_of(sparse);
    v.feed = feed;
    if (!sbit_sparse_is_exact(sparse)) {
        sbit__log(sparse->ctx, SBIT_LOG_WARNING,
                  "a normalized axis lost channels (INEXACT_NORM): the smaller model is not the masked one");
        return sbit__verify_pair(&v, "the smaller graph", shrunk, "itself", shrunk, error);
    }
    SBIT__TRY(sbit__verify_masked(&v, masked, shrunk, error));
    return sparse->original != NULL ? sbit__verify_original(&v, masked, shrunk, error) : SBIT_OK;
}
