/* facts.c: what is certain of a graph's values. >>facts
 *
 * Called by: passes, exec (lowering). Calls: infer.
 */
#include "infer_private.h"

static sbit_status sbit__facts_run(sbit__facts *facts, const sbit_graph *graph, sbit__infer **out,
                                   sbit_error *error)
{
    sbit__infer *outer = NULL, *state = NULL;
    if (sbit_graph_parent(graph) != NULL) {
        SBIT__TRY(sbit__facts_run(facts, sbit_graph_parent(graph), &outer, error));
    }
    state = (sbit__infer *)sbit__arena_alloc(&facts->arena, sizeof *state);
    if (state == NULL) {
        return sbit__fail_oom(error, sizeof *state);
    }
    SBIT__TRY(sbit__infer_init(state, graph, outer, &facts->arena, error));
    SBIT__TRY(sbit__infer_run(state, error));
    *out = state;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__facts_init(sbit__facts *facts, const sbit_graph *graph,
                                      sbit_error *error)
{
    sbit_status status = SBIT_OK;
    memset(facts, 0, sizeof *facts);
    sbit__arena_init(&facts->arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    facts->unknown = sbit__type_unknown();
    facts->limit = sbit_graph_value_limit(graph);
    status = sbit__facts_run(facts, graph, &facts->state, error);
    if (status != SBIT_OK) {
        sbit__facts_deinit(facts);
    }
    return status;
}

SBIT__FN void sbit__facts_deinit(sbit__facts *facts)
{
    sbit__arena_deinit(&facts->arena);
    facts->state = NULL;
}

SBIT__FN const sbit_type *sbit__facts_type(const sbit__facts *facts, sbit_value_id id)
{
    return id.idx == 0 || id.idx >= facts->limit ? &facts->unknown : &facts->state->types[id.idx];
}

SBIT__FN const sbit_dim *sbit__facts_elems(const sbit__facts *facts, sbit_value_id id,
                                           int64_t *count)
{
    *count = 0;
    if (id.idx == 0 || id.idx >= facts->limit || facts->state->elems[id.idx] == NULL) {
        return NULL;
    }
    *count = facts->state->elem_counts[id.idx];
    return facts->state->elems[id.idx];
}

SBIT__FN bool sbit__same_dims(const sbit_type *a, const sbit_type *b)
{
    if (a->kind != SBIT_KIND_TENSOR || b->kind != SBIT_KIND_TENSOR || a->rank < 0 ||
        a->rank != b->rank) {
        return false;
    }
    for (int32_t i = 0; i < a->rank; i++) {
        if (!sbit__dim_equal(a->dims[i], b->dims[i])) {
            return false;
        }
    }
    return true;
}
