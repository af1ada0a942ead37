/* verify.c: the masked and the smaller graph are run on the same inputs and compared.
 * >>sparse-verify
 */
#include "../exec/exec_api.h"
#include "../ops/window_private.h"
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

SBIT__FN sbit_status sbit__sparse_inputs(const sbit_sparse *sparse, sbit_session *session,
                                         uint64_t seed, sbit__arena *arena, sbit_error *error)
{
    sbit_rng rng = sbit_rng_seed(seed);
    for (size_t i = 0; i < sbit_session_input_count(session); i++) {
        const sbit_value_info *info = sbit_session_input_info(session, i);
        const sbit_value_id id = sbit_graph_find_value(sparse->graph, info->name);
        const sbit_type *type = &sparse->labeler.infer.types[id.idx];
        sbit_tensor tensor;
        size_t bytes = 0;
        if (id.idx == 0 || !sbit__type_static(type) || type->kind != SBIT_KIND_TENSOR) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, info->name,
                              "input '%s' is no tensor that can be made up", info->name);
        }
        memset(&tensor, 0, sizeof tensor);
        tensor.dtype = type->dtype;
        tensor.rank = type->rank;
        for (int32_t d = 0; d < type->rank; d++) {
            tensor.dims[d] = type->dims[d].value;
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
    sbit_sparse *sparse;
    sbit_session *masked, *shrunk;
    double bound;
} sbit__verify;

static sbit_status sbit__verify_output(const sbit__verify *v, size_t index, const char *what,
                                       sbit_error *error)
{
    const sbit_tensor *a = &sbit_session_output(v->masked, index)->tensor;
    const sbit_tensor *b = &sbit_session_output(v->shrunk, index)->tensor;
    const char *name = sbit_session_output_info(v->masked, index)->name;
    double largest = 1e-6, off = 0.0;
    if (!sbit_tensor_same_shape(a, b) || a->dtype != b->dtype) {
        char had[80], has[80];
        sbit_tensor_describe(a, had, sizeof had);
        sbit_tensor_describe(b, has, sizeof has);
        return sbit__fail(error, SBIT_ERR_NUMERIC, name,
                          "output '%s' of the smaller graph is %s, of the masked one %s", name, has,
                          had);
    }
    for (int64_t i = 0; i < sbit_tensor_count(a); i++) {
        const double x = sbit__tensor_f64_at(a, i), y = sbit__tensor_f64_at(b, i);
        const double d = x > y ? x - y : y - x;
        largest = x > largest ? x : -x > largest ? -x : largest;
        off = x == y || (x != x && y != y) ? off : d > off || d != d ? d : off;
        if (off != off) {
            break;
        }
    }
    if (!(off <= v->bound * largest)) {
        return sbit__fail(error, SBIT_ERR_NUMERIC, name,
                          "output '%s' of the smaller graph differs from the masked one by %.3g of "
                          "%.3g on %s: nothing was written; please report the model",
                          name, off, largest, what);
    }
    return SBIT_OK;
}

static sbit_status sbit__verify_run(const sbit__verify *v, const char *what, sbit_error *error)
{
    SBIT__TRY(sbit_session_run(v->masked, error));
    SBIT__TRY(sbit_session_run(v->shrunk, error));
    for (size_t i = 0; i < sbit_session_output_count(v->masked); i++) {
        if (sbit_session_output(v->masked, i)->kind == SBIT_KIND_TENSOR) {
            SBIT__TRY(sbit__verify_output(v, i, what, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__verify_feed(const sbit__verify *v, const sbit_feed *feed,
                                     sbit_error *error)
{
    sbit_batch batch;
    SBIT__TRY(sbit_feed_read(feed, 0, 8, &batch, error));
    for (size_t i = 0; i < batch.input_count; i++) {
        const char *name =
            batch.names != NULL ? batch.names[i] : sbit_session_input_info(v->masked, 0)->name;
        SBIT__TRY(sbit_session_set_input(v->masked, name, &batch.inputs[i], error));
        SBIT__TRY(sbit_session_set_input(v->shrunk, name, &batch.inputs[i], error));
    }
    return sbit__verify_run(v, "the first samples", error);
}

static sbit_status sbit__verify_all(sbit__verify *v, const sbit_feed *feed, sbit__arena *arena,
                                    sbit_graph *masked, sbit_graph *shrunk, sbit_error *error)
{
    SBIT__TRY(sbit_session_create(masked, NULL, &v->masked, error));
    SBIT__TRY(sbit_session_create(shrunk, NULL, &v->shrunk, error));
    SBIT__TRY(sbit__sparse_inputs(v->sparse, v->masked, 1, arena, error));
    SBIT__TRY(sbit__sparse_inputs(v->sparse, v->shrunk, 1, arena, error));
    SBIT__TRY(sbit__verify_run(v, "random inputs", error));
    return feed != NULL && feed->count > 0 ? sbit__verify_feed(v, feed, error) : SBIT_OK;
}

SBIT__FN sbit_status sbit__sparse_verify(sbit_sparse *sparse, sbit_graph *masked,
                                         sbit_graph *shrunk, const sbit_feed *feed,
                                         sbit_error *error)
{
    sbit__verify v;
    sbit__arena arena;
    size_t layers = 0;
    memset(&v, 0, sizeof v);
    v.sparse = sparse;
    for (size_t m = 0; m < sparse->labeler.member_count; m++) {
        layers += sbit__member_prunes(&sparse->labeler.members[m]) ? 1u : 0u;
    }
    v.bound = layers > 50 ? 1e-3 : 1e-4;
    sbit__arena_init(&arena, sbit_ctx_allocator(sparse->ctx));
    const sbit_status status = sbit__verify_all(&v, feed, &arena, masked, shrunk, error);
    sbit_session_destroy(v.masked);
    sbit_session_destroy(v.shrunk);
    sbit__arena_deinit(&arena);
    return status;
}
