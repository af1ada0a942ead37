/* facts.c: what is certain of a graph's values. >>facts
 *
 * Called by: passes, exec (lowering). Calls: infer.
 */
#include "infer_private.h"

/* A name that stands twice in one input is one that a converter gives to every open dim: that these
 * dims are equal is nothing to build on, wherever it stands. */
SBIT__FN sbit_status sbit__loose_symbols(const sbit_graph *root, sbit__arena *arena, bool **out,
                                         sbit_error *error)
{
    const size_t count = root->family->symbol_count;
    bool *loose = (bool *)sbit__arena_array(arena, count + 1, sizeof *loose);
    if (loose == NULL) {
        return sbit__fail_oom(error, count);
    }
    for (size_t i = 0; i < sbit_graph_input_count(root); i++) {
        const sbit_type *type = &sbit_graph_value(root, sbit_graph_input(root, i))->type;
        for (int32_t d = 0; d < type->rank; d++) {
            for (int32_t e = 0; e < d; e++) {
                const uint32_t symbol = type->dims[d].symbol;
                if (symbol < count && symbol != 0 && symbol == type->dims[e].symbol) {
                    loose[symbol] = true;
                }
            }
        }
    }
    *out = loose;
    return SBIT_OK;
}

static sbit_status sbit__facts_forget_loose(sbit__infer *state, sbit_error *error)
{
    const size_t count = state->graph->family->symbol_count;
    bool *loose = NULL;
    SBIT__TRY(sbit__loose_symbols(state->graph, state->arena, &loose, error));
    for (size_t i = 0; i < sbit_graph_input_count(state->graph); i++) {
        sbit_type *type = state->types[sbit_graph_input(state->graph, i).idx];
        for (int32_t d = 0; d < type->rank; d++) {
            if (type->dims[d].symbol < count && loose[type->dims[d].symbol]) {
                type->dims[d] = sbit__dim_any();
            }
        }
    }
    return SBIT_OK;
}

SBIT__FN void sbit__shape_apply(const sbit_value_shape *shapes, size_t count, sbit_value_id id,
                                sbit_type *type)
{
    for (size_t i = 0; i < count; i++) {
        if (shapes[i].id.idx == id.idx) {
            type->rank = shapes[i].rank;
            for (int32_t d = 0; d < type->rank; d++) {
                type->dims[d] = sbit__dim(shapes[i].dims[d]);
            }
        }
    }
}

static sbit_status sbit__facts_run(sbit__facts *facts, const sbit_graph *graph,
                                   const sbit_value_shape *shapes, size_t count, sbit__infer **out,
                                   sbit_error *error)
{
    sbit__infer *outer = NULL, *state = NULL;
    if (sbit_graph_parent(graph) != NULL) {
        SBIT__TRY(
            sbit__facts_run(facts, sbit_graph_parent(graph), shapes, count, &outer, error));
    }
    state = (sbit__infer *)sbit__arena_alloc(&facts->arena, sizeof *state);
    if (state == NULL) {
        return sbit__fail_oom(error, sizeof *state);
    }
    SBIT__TRY(sbit__infer_init(state, graph, outer, &facts->arena, error));
    if (outer == NULL) {
        SBIT__TRY(sbit__facts_forget_loose(state, error));
        for (size_t i = 0; i < count; i++) {
            sbit__shape_apply(shapes, count, shapes[i].id, state->types[shapes[i].id.idx]);
        }
    }
    SBIT__TRY(sbit__infer_run(state, error));
    *out = state;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__facts_init_for(sbit__facts *facts, const sbit_graph *graph,
                                          const sbit_value_shape *shapes, size_t count,
                                          sbit_error *error)
{
    sbit_status status = SBIT_OK;
    memset(facts, 0, sizeof *facts);
    sbit__arena_init(&facts->arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    facts->unknown = sbit__type_unknown();
    facts->limit = sbit_graph_value_limit(graph);
    status = sbit__facts_run(facts, graph, shapes, count, &facts->state, error);
    if (status != SBIT_OK) {
        sbit__facts_deinit(facts);
    }
    return status;
}

SBIT__FN sbit_status sbit__facts_init(sbit__facts *facts, const sbit_graph *graph,
                                      sbit_error *error)
{
    return sbit__facts_init_for(facts, graph, NULL, 0, error);
}

SBIT__FN void sbit__facts_deinit(sbit__facts *facts)
{
    sbit__arena_deinit(&facts->arena);
    facts->state = NULL;
}

SBIT__FN const sbit_type *sbit__facts_type(const sbit__facts *facts, sbit_value_id id)
{
    return id.idx == 0 || id.idx >= facts->limit ? &facts->unknown : facts->state->types[id.idx];
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
