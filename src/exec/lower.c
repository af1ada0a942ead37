/* lower.c: the driver of lowering, and what its entries look and change with. >>lower
 *
 * Called by: program. Calls: graph, infer.
 */
#include "lower_private.h"

#include <math.h> /* INFINITY */

/* >>account of where nodes came from */

/* The nodes of the caller that the program's nodes came from, one after the other. */
static sbit_status sbit__lower_origins(sbit__lowered *result, sbit__arena *arena,
                                       const sbit_node_id *nodes, size_t count, sbit__origin *out,
                                       sbit_error *error)
{
    size_t total = 0;
    sbit_node_id *list = NULL;
    for (size_t i = 0; i < count; i++) {
        const uint32_t idx = nodes[i].idx;
        total += idx < result->origin_limit && result->origin[idx].count > 0
                     ? result->origin[idx].count
                     : 1;
    }
    list = (sbit_node_id *)sbit__arena_array(arena, total, sizeof *list);
    if (list == NULL) {
        return sbit__fail_oom(error, total * sizeof *list);
    }
    out->nodes = list;
    out->count = total;
    for (size_t i = 0; i < count; i++) {
        const uint32_t idx = nodes[i].idx;
        const sbit__origin *from = idx < result->origin_limit && result->origin[idx].count > 0
                                       ? &result->origin[idx]
                                       : NULL;
        for (size_t k = 0; k < (from != NULL ? from->count : 1); k++) {
            *list++ = from != NULL ? from->nodes[k] : nodes[i];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__lower_set_origin(sbit__lowered *result, sbit__arena *arena,
                                          sbit_node_id node, const sbit__origin *origin,
                                          sbit_error *error)
{
    if (node.idx >= result->origin_limit) {
        const uint32_t limit = node.idx < UINT32_MAX / 2 ? 2 * node.idx + 16 : node.idx + 1;
        sbit__origin *grown = (sbit__origin *)sbit__arena_array(arena, limit, sizeof *grown);
        if (grown == NULL) {
            return sbit__fail_oom(error, limit * sizeof *grown);
        }
        if (result->origin_limit > 0) {
            memcpy(grown, result->origin, result->origin_limit * sizeof *grown);
        }
        result->origin = grown;
        result->origin_limit = limit;
    }
    result->origin[node.idx] = *origin;
    return SBIT_OK;
}

SBIT__FN sbit_node_id sbit__lowered_origin(const sbit__lowered *lowered, sbit_node_id node)
{
    return node.idx < lowered->origin_limit && lowered->origin[node.idx].count > 0
               ? lowered->origin[node.idx].nodes[0]
               : node;
}

SBIT__FN sbit_status sbit__lower_reason(sbit__lowering *lower, sbit_node_id node,
                                        const char *reason, sbit_error *error)
{
    sbit__lowered *result = lower->result;
    const uint32_t idx = sbit__lowered_origin(result, node).idx;
    if (result->reason == NULL) {
        result->reason_limit = sbit_graph_node_limit(result->source);
        result->reason = (const char **)sbit__arena_array(lower->arena, result->reason_limit,
                                                          sizeof *result->reason);
        if (result->reason == NULL) {
            return sbit__fail_oom(error, result->reason_limit * sizeof *result->reason);
        }
    }
    if (idx >= result->reason_limit ||
        (result->reason[idx] != NULL && strcmp(result->reason[idx], reason) == 0)) {
        return SBIT_OK;
    }
    result->reason[idx] = sbit__arena_strdup(lower->arena, reason, strlen(reason));
    return result->reason[idx] != NULL ? SBIT_OK : sbit__fail_oom(error, strlen(reason));
}

/* >>looking */

SBIT__FN bool sbit__lower_is(const sbit__lowering *lower, const sbit_node *node,
                             const char *op_type)
{
    int32_t opset = 0;
    const sbit_op_row *row = NULL;
    if (node == NULL || node->domain[0] != '\0' || strcmp(node->op_type, op_type) != 0) {
        return false;
    }
    row = sbit__op_row(lower->graph, node, &opset);
    return row != NULL && sbit__op_row_is_built_in(lower->ctx, row);
}

SBIT__FN const sbit_type *sbit__lower_type(const sbit__lowering *lower, sbit_value_id id)
{
    return id.idx == 0 || id.idx < lower->facts.limit ? sbit__facts_type(&lower->facts, id)
                                                      : &sbit_graph_value(lower->graph, id)->type;
}

SBIT__FN const sbit_type *sbit__lower_expected(const sbit__lowering *lower, sbit_value_id id)
{
    return id.idx < lower->expected.limit ? sbit__facts_type(&lower->expected, id)
                                          : sbit__lower_type(lower, id);
}

SBIT__FN const sbit_tensor *sbit__lower_constant(const sbit__lowering *lower, sbit_value_id id)
{
    const sbit_graph *graph = lower->graph;
    const sbit_value_info *info = id.idx != 0 ? sbit_graph_value(graph, id) : NULL;
    while (info != NULL && info->outer.idx != 0) {
        graph = sbit_graph_parent(graph);
        info = sbit_graph_value(graph, info->outer);
    }
    return info != NULL && info->is_constant && !info->is_input ? &info->constant : NULL;
}

SBIT__FN bool sbit__lower_scalar(const sbit__lowering *lower, sbit_value_id id, float *out)
{
    const sbit_tensor *tensor = sbit__lower_constant(lower, id);
    if (tensor == NULL || tensor->dtype != SBIT_F32 || sbit_tensor_count(tensor) != 1) {
        return false;
    }
    memcpy(out, tensor->data, sizeof *out);
    return true;
}

SBIT__FN bool sbit__lower_clamp(const sbit__lowering *lower, const sbit_node *node, float *lo,
                                float *hi)
{
    const bool clip = sbit__lower_is(lower, node, "Clip");
    *lo = clip ? sbit_node_float(node, "min", -INFINITY) : 0.0f;
    *hi = clip ? sbit_node_float(node, "max", INFINITY) : INFINITY;
    for (size_t i = 1; clip && i <= 2; i++) {
        if (sbit__lower_in(node, i).idx != 0 &&
            !sbit__lower_scalar(lower, node->inputs[i], i == 1 ? lo : hi)) {
            return false;
        }
    }
    return clip || sbit__lower_is(lower, node, "Relu");
}

SBIT__FN bool sbit__lower_inner(const sbit__lowering *lower, sbit_value_id id, size_t uses)
{
    const sbit_value_info *info = id.idx != 0 ? sbit_graph_value(lower->graph, id) : NULL;
    return info != NULL && info->use_count == uses && !info->is_output && info->producer.idx != 0 &&
           (lower->kept == NULL || id.idx >= lower->kept_limit || !lower->kept[id.idx]);
}

SBIT__FN const sbit_node *sbit__lower_user(const sbit__lowering *lower, sbit_value_id id)
{
    sbit_use use;
    if (!sbit__lower_inner(lower, id, 1) || sbit_graph_uses(lower->graph, id, &use, 1) != 1 ||
        use.body != NULL || use.node.idx == 0) {
        return NULL;
    }
    return sbit_graph_node(lower->graph, use.node);
}

SBIT__FN const sbit_node *sbit__lower_producer(const sbit__lowering *lower, sbit_value_id id)
{
    const sbit_value_info *info = id.idx != 0 ? sbit_graph_value(lower->graph, id) : NULL;
    return info != NULL && info->producer.idx != 0 ? sbit_graph_node(lower->graph, info->producer)
                                                   : NULL;
}

SBIT__FN sbit_value_id sbit__lower_in(const sbit_node *node, size_t index)
{
    static const sbit_value_id none = {0};
    return index < node->input_count ? node->inputs[index] : none;
}

SBIT__FN uint32_t sbit__lower_axes(const sbit__lowering *lower, const sbit_node *node,
                                   int32_t rank)
{
    const sbit_attr *attr = sbit_node_attr(node, "axes");
    const sbit_tensor *tensor = sbit__lower_constant(lower, sbit__lower_in(node, 1));
    const int64_t count = attr != NULL     ? (int64_t)attr->count
                          : tensor != NULL ? sbit_tensor_count(tensor)
                                           : 0;
    uint32_t seen = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t axis = attr != NULL ? attr->ints[i] : sbit__tensor_i64_at(tensor, i);
        const int64_t at = axis < 0 ? axis + rank : axis;
        if (at < 0 || at >= SBIT_MAX_RANK) {
            return 0;
        }
        seen |= 1u << at;
    }
    return seen;
}

SBIT__FN bool sbit__lower_in_loop(const sbit_graph *graph)
{
    while (sbit_graph_parent(graph) != NULL) {
        if (sbit_graph_input_count(graph) > 0) {
            return true;
        }
        graph = sbit_graph_parent(graph);
    }
    return false;
}

SBIT__FN bool sbit__lower_before(const sbit__lowering *lower, const sbit_node *a,
                                 const sbit_node *b)
{
    return sbit__graph_node_at(lower->graph, a->id)->order <
           sbit__graph_node_at(lower->graph, b->id)->order;
}

/* >>changing */

static bool sbit__lower_needed(const sbit__lowering *lower, const sbit_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0 && !sbit__lower_inner(lower, node->outputs[i], 0)) {
            return true;
        }
    }
    return false;
}

/* Erases what nobody needs, and what then nobody needs. */
static void sbit__lower_sweep(sbit__lowering *lower, const sbit_node_id *nodes, size_t count)
{
    bool again = true;
    while (again) {
        again = false;
        for (size_t i = 0; i < count; i++) {
            if (sbit_graph_node_alive(lower->graph, nodes[i]) &&
                !sbit__lower_needed(lower, sbit_graph_node(lower->graph, nodes[i]))) {
                sbit_graph_erase_node(lower->graph, nodes[i]);
                again = true;
            }
        }
    }
}

static bool sbit__lower_listed(const sbit__lower_desc *desc, sbit_node_id id)
{
    for (size_t i = 0; id.idx != 0 && i < desc->node_count; i++) {
        if (desc->nodes[i].idx == id.idx) {
            return true;
        }
    }
    return false;
}

/* Adds the node before `before`. */
static sbit_status sbit__lower_add(sbit__lowering *lower, const sbit__lower_desc *desc,
                                   const char *name, sbit_node_id before,
                                   const sbit__origin *origin, sbit_node_id *out, sbit_error *error)
{
    const bool unnamed = name[0] == '\0';
    sbit_node_desc node;
    sbit_node_id made;
    memset(&node, 0, sizeof node);
    node.op_type = desc->op_type;
    node.domain = desc->domain != NULL ? desc->domain : "sbit";
    node.name = unnamed ? NULL : name;
    node.inputs = desc->inputs;
    node.input_count = desc->input_count;
    node.outputs = desc->outputs;
    node.output_count = desc->output_count;
    node.attrs = desc->attrs;
    node.attr_count = desc->attr_count;
    node.before = before;
    SBIT__TRY(sbit_graph_add_node(lower->graph, &node, &made, error));
    if (unnamed) { /* messages then name the output, as they do of the caller's node */
        sbit__graph_node *entry = sbit__graph_node_at(lower->graph, made);
        sbit__graph_release_name(lower->graph, true, entry->info.name, made.idx);
        entry->info.name = "";
    }
    lower->changes++;
    if (out != NULL) {
        *out = made;
    }
    for (size_t i = 0; i < origin->count && lower->integers && lower->result->reason != NULL; i++) {
        if (origin->nodes[i].idx < lower->result->reason_limit) {
            lower->result->reason[origin->nodes[i].idx] = NULL;
        }
    }
    return sbit__lower_set_origin(lower->result, lower->arena, made, origin, error);
}

SBIT__FN sbit_status sbit__lower_insert(sbit__lowering *lower, const sbit__lower_desc *desc,
                                        sbit_node_id *out, sbit_error *error)
{
    sbit__origin origin;
    SBIT__TRY(sbit__lower_origins(lower->result, lower->arena, desc->nodes, desc->node_count,
                                  &origin, error));
    return sbit__lower_add(lower, desc, sbit_graph_node(lower->graph, desc->nodes[0])->name,
                           desc->at, &origin, out, error);
}

SBIT__FN sbit_status sbit__lower_replace(sbit__lowering *lower, const sbit__lower_desc *desc,
                                         sbit_node_id *out, sbit_error *error)
{
    sbit_graph *graph = lower->graph;
    const char *name = sbit_graph_node(graph, desc->nodes[0])->name;
    sbit_node_id before =
        desc->at.idx != 0 ? desc->at : sbit_graph_value(graph, desc->outputs[0])->producer;
    sbit__origin origin;
    SBIT__TRY(sbit__lower_origins(lower->result, lower->arena, desc->nodes, desc->node_count,
                                  &origin, error));
    while (sbit__lower_listed(desc, before)) {
        before = sbit_graph_next(graph, before);
    }
    for (size_t i = 0; i < desc->output_count; i++) {
        const sbit_node *maker = sbit__lower_producer(lower, desc->outputs[i]);
        if (maker != NULL) { /* several outputs may be of one node */
            sbit_graph_erase_node(graph, maker->id);
        }
    }
    sbit__lower_sweep(lower, desc->nodes, desc->node_count);
    return sbit__lower_add(lower, desc, name, before, &origin, out, error);
}

/* >>driver */

typedef const sbit__lower_entry *(*sbit__lower_entries_fn)(size_t *count);
#define SBIT__LOWER_NUMBER(name) SBIT__LOWER_PHASE_##name,
enum {
    SBIT__LOWER_PHASES(SBIT__LOWER_NUMBER)
};
#undef SBIT__LOWER_NUMBER
#define SBIT__LOWER_LIST(name) sbit__lower_entries_##name,
static const sbit__lower_entries_fn sbit__lower_phases[] = {SBIT__LOWER_PHASES(SBIT__LOWER_LIST)};
#undef SBIT__LOWER_LIST

static sbit_status sbit__lower_node(sbit__lowering *lower, sbit_node_id id,
                                    const sbit__lower_entry *entries, size_t count,
                                    sbit_error *error)
{
    for (size_t e = 0; e < count && sbit_graph_node_alive(lower->graph, id); e++) {
        const sbit_node *node = sbit_graph_node(lower->graph, id);
        if (entries[e].op_type == NULL || sbit__lower_is(lower, node, entries[e].op_type)) {
            SBIT__TRY(entries[e].apply(lower, node, error));
        }
    }
    return SBIT_OK;
}

/* Once over all nodes in order; nodes that are made on the way come next time. */
static sbit_status sbit__lower_round(sbit__lowering *lower, const sbit__lower_entry *entries,
                                     size_t count, sbit_error *error)
{
    const sbit_allocator *a = &lower->ctx->allocator;
    const uint32_t limit = sbit_graph_node_limit(lower->graph);
    sbit_node_id *ids = (sbit_node_id *)sbit__calloc(a, limit, sizeof *ids);
    sbit_status status = SBIT_OK;
    size_t n = 0;
    if (ids == NULL) {
        return sbit__fail_oom(error, limit * sizeof *ids);
    }
    for (sbit_node_id id = sbit_graph_first(lower->graph); id.idx != 0;
         id = sbit_graph_next(lower->graph, id)) {
        ids[n++] = id;
    }
    for (size_t i = 0; status == SBIT_OK && i < n; i++) {
        status = sbit__lower_node(lower, ids[i], entries, count, error);
    }
    sbit__free(a, ids, limit * sizeof *ids);
    return status;
}

/* A simulation keeps channels first: what computes those adds pieces of sums as ONNX Runtime does. */
static sbit_status sbit__lower_run(sbit__lowering *lower, bool integers, sbit_error *error)
{
    const size_t first = integers ? 0 : SBIT__LOWER_PHASE_float;
    const size_t end =
        integers ? SBIT__COUNT_OF(sbit__lower_phases) : (size_t)SBIT__LOWER_PHASE_last;
    for (size_t p = first; p < end; p++) {
        size_t count = 0;
        const sbit__lower_entry *entries = sbit__lower_phases[p](&count);
        lower->integers = p < (size_t)SBIT__LOWER_PHASE_float;
        do {
            lower->changes = 0;
            SBIT__TRY(sbit__lower_round(lower, entries, count, error));
        } while (lower->changes > 0);
    }
    return SBIT_OK;
}

static sbit_status sbit__lower_work(sbit__lowering *lower, const sbit_session_desc *desc,
                                    sbit_error *error)
{
    if (desc->shape_count > 0) {
        const bool body = sbit_graph_parent(lower->graph) != NULL; /* maybe of a branch not taken */
        const sbit_status status = sbit__facts_init_for(
            &lower->expected, lower->graph, desc->shapes, desc->shape_count, body ? NULL : error);
        if (status != SBIT_OK) {
            if (!body || status == SBIT_ERR_OUT_OF_MEMORY) {
                return body ? sbit__fail_oom(error, 0) : status;
            }
            memset(&lower->expected, 0, sizeof lower->expected);
        }
    }
    lower->work = sbit__alloc(&lower->ctx->allocator, SBIT__LOWER_WORK_BYTES);
    const sbit_status status = lower->work != NULL
                                   ? sbit__lower_run(lower, !desc->disable_integers, error)
                                   : sbit__fail_oom(error, SBIT__LOWER_WORK_BYTES);
    sbit__free(&lower->ctx->allocator, lower->work, SBIT__LOWER_WORK_BYTES);
    sbit__free(&lower->ctx->allocator, lower->lasts, lower->last_limit * sizeof *lower->lasts);
    if (lower->expected.state != NULL) {
        sbit__facts_deinit(&lower->expected);
    }
    return status;
}

SBIT__FN sbit_status sbit__lower_graph(sbit_graph *graph, const bool *kept, uint32_t kept_limit,
                                       const sbit_session_desc *desc, sbit__lowered *result,
                                       sbit__arena *arena, sbit_error *error)
{
    sbit__lowering lower;
    sbit_status status = SBIT_OK;
    memset(&lower, 0, sizeof lower);
    lower.ctx = sbit_graph_ctx(graph);
    lower.graph = graph;
    lower.kept = kept;
    lower.kept_limit = kept_limit;
    lower.exact = desc->exact;
    lower.result = result;
    lower.arena = arena;
    status = sbit__facts_init(&lower.facts, graph, NULL);
    if (status != SBIT_OK) {
        return status == SBIT_ERR_OUT_OF_MEMORY ? sbit__fail_oom(error, 0) : SBIT_OK;
    }
    status = sbit__lower_work(&lower, desc, error);
    sbit__facts_deinit(&lower.facts);
    return status;
}

SBIT__FN sbit_status sbit__lower_heads_of(sbit_graph *graph, sbit_error *error)
{
    sbit__lowering lower;
    sbit__lowered result;
    sbit__arena arena;
    size_t count = 0;
    const sbit__lower_entry *entries = sbit__lower_entries_heads(&count);
    memset(&lower, 0, sizeof lower);
    memset(&result, 0, sizeof result);
    lower.ctx = sbit_graph_ctx(graph);
    lower.graph = graph;
    result.source = graph;
    lower.result = &result;
    lower.arena = &arena;
    SBIT__TRY(sbit__facts_init(&lower.facts, graph, error));
    sbit__arena_init(&arena, &lower.ctx->allocator);
    const sbit_status status = sbit__lower_round(&lower, entries, count, error);
    sbit__arena_deinit(&arena);
    sbit__facts_deinit(&lower.facts);
    return status;
}

/* >>operators defined by others */

static bool sbit__lower_expands(const sbit_graph *graph, sbit_node_id id)
{
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, sbit_graph_node(graph, id), &opset);
    return row != NULL && row->run == NULL && row->expand != NULL;
}

SBIT__FN sbit_status sbit__lower_expand_types(sbit_graph *root, sbit_error *error)
{
    for (const sbit_graph *graph = root->family->graphs; graph != NULL; graph = graph->next_graph) {
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;
             id = sbit_graph_next(graph, id)) {
            if (graph->alive && sbit__lower_expands(graph, id)) {
                return sbit_infer(root, error);
            }
        }
    }
    return SBIT_OK;
}

/* The operators that a node is replaced by know nothing of the types that its row takes. */
static sbit_status sbit__lower_expand_check(const sbit_graph *graph, sbit_node_id id,
                                            const sbit_op_row *row, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const bool has = node->input_count > 0 && node->inputs[0].idx != 0;
    const sbit_dtype dtype =
        has ? sbit_graph_value(graph, node->inputs[0])->type.dtype : SBIT_UNDEFINED;
    char name[160];
    if (dtype == SBIT_UNDEFINED || (row->types & SBIT_T(dtype)) != 0) {
        return SBIT_OK;
    }
    sbit_graph_describe(graph, id, name, sizeof name);
    return sbit__fail(error, SBIT_ERR_UNSUPPORTED, node->name, "%s: element type %s", name,
                      sbit_dtype_name((int32_t)dtype));
}

SBIT__FN sbit_status sbit__lower_expand(sbit_graph *graph, sbit__lowered *result,
                                        sbit__arena *arena, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;) {
        if (!sbit__lower_expands(graph, id)) {
            id = sbit_graph_next(graph, id);
            continue;
        }
        int32_t opset = 0;
        const sbit_op_row *row = sbit__op_row(graph, sbit_graph_node(graph, id), &opset);
        const uint32_t before = sbit_graph_node_limit(graph);
        sbit__origin origin;
        SBIT__TRY(sbit__lower_expand_check(graph, id, row, error));
        SBIT__TRY(sbit__lower_origins(result, arena, &id, 1, &origin, error));
        SBIT__TRY(row->expand(graph, id, error));
        for (uint32_t made = before; made < sbit_graph_node_limit(graph); made++) {
            sbit_node_id node;
            node.idx = made;
            SBIT__TRY(sbit__lower_set_origin(result, arena, node, &origin, error));
        }
        id = sbit_graph_first(graph);
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__lower_finish(const sbit_graph *graph, sbit__lowered *result,
                                        sbit__arena *arena, sbit_error *error)
{
    const uint32_t limit = sbit_graph_node_limit(result->source);
    result->into = (sbit_node_id *)sbit__arena_array(arena, limit, sizeof *result->into);
    if (result->into == NULL) {
        return sbit__fail_oom(error, limit * sizeof *result->into);
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const bool listed = id.idx < result->origin_limit && result->origin[id.idx].count > 0;
        for (size_t i = 0; i < (listed ? result->origin[id.idx].count : 1); i++) {
            const sbit_node_id from = listed ? result->origin[id.idx].nodes[i] : id;
            if (from.idx < limit && result->into[from.idx].idx == 0) {
                result->into[from.idx] = id;
            }
        }
    }
    return SBIT_OK;
}
