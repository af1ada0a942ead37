/* fold_constants.c: nodes whose inputs are all constants are computed once, now.
 * >>pass-fold-constants
 *
 * The nodes are copied into a graph of their own, which runs in a session. Not folded: random
 * numbers, bodies, text, and QuantizeLinear and DequantizeLinear, because a quantized weight must
 * stay one (A8.3). A result that is larger than the limit is only made where it takes the place of
 * constants that are at least as large (A1.13).
 */
#include "passes_private.h"

enum {
    SBIT__FOLD_COPY_BYTES = 1024
}; /* a weight up to this size may be there twice */

typedef struct sbit__fold {
    sbit__rewrite *rw;
    sbit_graph *graph;
    sbit_graph *scratch;
    bool *constant;       /* by value: constant, or computed by a node that will be folded */
    size_t *bytes;        /* by value: of those */
    sbit_value_id *moved; /* by value: its copy in `scratch` */
    sbit_node_id *nodes;  /* that will be folded, in order */
    size_t node_count;
} sbit__fold;

static size_t sbit__fold_bytes(const sbit_type *type)
{
    const int64_t count = sbit__known_product(type, 0, type->rank);
    size_t bytes = 0;
    if (count < 0 || !sbit__mul_size((size_t)count, 8, &bytes)) {
        return SIZE_MAX;
    }
    return sbit_dtype_bytes((int32_t)type->dtype, count, &bytes) ? bytes : SIZE_MAX;
}

/* Only this node uses the value, so that folding the node ends it. */
static bool sbit__fold_dies(const sbit_graph *graph, const sbit_node *node, sbit_value_id id)
{
    const sbit_value_info *value = sbit_graph_value(graph, id);
    uint32_t here = 0;
    for (size_t i = 0; i < node->input_count; i++) {
        here += node->inputs[i].idx == id.idx ? 1u : 0u;
    }
    return value->use_count == here && !value->is_input && value->outer.idx == 0;
}

static bool sbit__fold_known_op(const sbit_graph *graph, const sbit_node *node)
{
    static const char *const kept[] = {"QuantizeLinear", "DequantizeLinear",
                                       "DynamicQuantizeLinear"};
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, node, &opset);
    char reason[64];
    for (size_t i = 0; i < SBIT__COUNT_OF(kept); i++) {
        if (sbit__is_op(node, kept[i])) {
            return false;
        }
    }
    return row != NULL && row->run != NULL && (row->flags & (SBIT_OP_RANDOM | SBIT_OP_BODY)) == 0 &&
           !sbit__node_unsupported(graph, node, reason, sizeof reason);
}

/* A weight of the model that others use as well: what is made of it, at its size, would store it a
 * second time (a tied embedding, transposed for the last layer). */
static bool sbit__fold_copies(const sbit__fold *fold, const sbit_node *node, size_t made)
{
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_value_id id = node->inputs[i];
        const sbit_tensor *weight = id.idx != 0 ? sbit__graph_constant(fold->graph, id) : NULL;
        if (weight != NULL && (SBIT_T(weight->dtype) & SBIT_T_FLOATS) != 0 &&
            sbit_tensor_bytes(weight) > SBIT__FOLD_COPY_BYTES &&
            made >= sbit_tensor_bytes(weight) / 2 && !sbit__fold_dies(fold->graph, node, id)) {
            return true; /* half: as float16 */
        }
    }
    return false;
}

/* True if all inputs are constants, and the outputs tensors that may be made. */
static bool sbit__fold_wanted(sbit__fold *fold, const sbit_node *node)
{
    size_t gone = 0, made = 0, fed = 0;
    if (node->input_count == 0 || !sbit__fold_known_op(fold->graph, node)) {
        return false;
    }
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_value_id id = node->inputs[i];
        if (id.idx != 0 && !fold->constant[id.idx]) {
            return false;
        }
        fed += id.idx != 0 ? fold->bytes[id.idx] : 0;
        gone += id.idx != 0 && sbit__fold_dies(fold->graph, node, id) ? fold->bytes[id.idx] : 0;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit_value_id id = node->outputs[i];
        const sbit_type *type = sbit__facts_type(&fold->rw->facts, id);
        if (id.idx == 0) {
            continue;
        }
        if (sbit_graph_value(fold->graph, id)->is_output || type->kind != SBIT_KIND_TENSOR ||
            type->dtype == SBIT_STRING) {
            return false;
        }
        /* A size that depends on data (NonZero, Unique ...) grows with the data. */
        fold->bytes[id.idx] = sbit__type_static(type) ? sbit__fold_bytes(type) : 8 * fed;
        if (!sbit__add_size(made, fold->bytes[id.idx], &made)) {
            return false;
        }
    }
    return made <= gone ||
           (made <= fold->rw->desc->max_fold_bytes && !sbit__fold_copies(fold, node, made));
}

static sbit_status sbit__fold_choose(sbit__fold *fold, sbit_error *error)
{
    const size_t values = sbit_graph_value_limit(fold->graph);
    sbit__arena *arena = &fold->rw->facts.arena;
    sbit_node_id *all = NULL;
    size_t count = 0;
    fold->constant = (bool *)sbit__arena_array(arena, values + 1, sizeof(bool));
    fold->bytes = (size_t *)sbit__arena_array(arena, values + 1, sizeof(size_t));
    fold->moved = (sbit_value_id *)sbit__arena_array(arena, values + 1, sizeof(sbit_value_id));
    if (fold->constant == NULL || fold->bytes == NULL || fold->moved == NULL) {
        return sbit__fail_oom(error, values * sizeof(size_t));
    }
    SBIT__TRY(sbit__node_list(fold->graph, arena, &all, &count, error));
    for (uint32_t i = 1; i < values; i++) {
        sbit_value_id id;
        const sbit_tensor *tensor = NULL;
        id.idx = i;
        tensor =
            sbit_graph_value_alive(fold->graph, id) ? sbit__graph_constant(fold->graph, id) : NULL;
        fold->constant[i] = tensor != NULL && tensor->dtype != SBIT_STRING;
        fold->bytes[i] = fold->constant[i] ? sbit_tensor_bytes(tensor) : 0;
    }
    fold->nodes = all; /* the chosen ones, which are among those before them */
    for (size_t i = 0; i < count; i++) {
        const sbit_node *node = sbit_graph_node(fold->graph, all[i]);
        if (!sbit__fold_wanted(fold, node)) {
            continue;
        }
        fold->nodes[fold->node_count++] = node->id;
        for (size_t k = 0; k < node->output_count; k++) {
            fold->constant[node->outputs[k].idx] = node->outputs[k].idx != 0;
        }
    }
    return SBIT_OK;
}

/* >>running */

static sbit_status sbit__fold_move_value(sbit__fold *fold, sbit_value_id id, sbit_error *error)
{
    const sbit_tensor *tensor = sbit__graph_constant(fold->graph, id);
    const sbit_type unknown = sbit__type_unknown();
    const char *name = sbit_graph_value(fold->graph, id)->name;
    if (fold->moved[id.idx].idx != 0) {
        return SBIT_OK;
    }
    return tensor != NULL
               ? sbit_graph_add_constant(fold->scratch, name, tensor, &fold->moved[id.idx], error)
               : sbit_graph_add_value(fold->scratch, name, &unknown, &fold->moved[id.idx], error);
}

static sbit_status sbit__fold_move_node(sbit__fold *fold, const sbit_node *node, sbit_error *error)
{
    sbit__arena *arena = &fold->rw->facts.arena;
    const size_t total = node->input_count + node->output_count;
    sbit_value_id *ids = (sbit_value_id *)sbit__arena_array(arena, total + 1, sizeof *ids);
    sbit_node_desc desc;
    if (ids == NULL) {
        return sbit__fail_oom(error, total * sizeof *ids);
    }
    for (size_t i = 0; i < total; i++) {
        const sbit_value_id id =
            i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
        if (id.idx != 0) {
            SBIT__TRY(sbit__fold_move_value(fold, id, error));
            ids[i] = fold->moved[id.idx];
        }
        if (id.idx != 0 && i >= node->input_count) {
            SBIT__TRY(sbit_graph_add_output(fold->scratch, ids[i], error));
        }
    }
    memset(&desc, 0, sizeof desc);
    desc.op_type = node->op_type;
    desc.domain = node->domain;
    desc.name = node->name;
    desc.inputs = ids;
    desc.input_count = node->input_count;
    desc.outputs = ids + node->input_count;
    desc.output_count = node->output_count;
    desc.attrs = node->attrs;
    desc.attr_count = node->attr_count;
    if (node->domain[0] != '\0') {
        SBIT__TRY(sbit_graph_set_opset(fold->scratch, node->domain,
                                       sbit_graph_opset(fold->graph, node->domain), error));
    }
    return sbit_graph_add_node(fold->scratch, &desc, NULL, error);
}

static sbit_status sbit__fold_take(sbit__fold *fold, const sbit_session *session,
                                   const sbit_node *node, size_t *result, sbit_error *error)
{
    const size_t limit = fold->rw->desc->max_fold_bytes;
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit_value_id id = node->outputs[i];
        const sbit_value *value = id.idx != 0 ? sbit_session_output(session, (*result)++) : NULL;
        if (value == NULL) {
            continue;
        }
        if (value->kind != SBIT_KIND_TENSOR ||
            (sbit_tensor_bytes(&value->tensor) > limit &&
             sbit_tensor_bytes(&value->tensor) > fold->bytes[id.idx])) {
            return SBIT_ERR_UNSUPPORTED; /* it turned out larger than thought */
        }
        SBIT__TRY(sbit_graph_set_constant(fold->graph, id, &value->tensor, error));
    }
    sbit__erase_unused(fold->graph, node);
    fold->rw->changes++;
    return SBIT_OK;
}

static sbit_status sbit__fold_session(sbit__fold *fold, const sbit_node_id *nodes, size_t count,
                                      sbit_error *error)
{
    sbit_session *session = NULL;
    sbit_status status = sbit_session_create(fold->scratch, NULL, &session, error);
    size_t result = 0;
    if (status == SBIT_OK) {
        status = sbit_session_run(session, error);
    }
    for (size_t i = 0; i < count && status == SBIT_OK; i++) {
        status =
            sbit__fold_take(fold, session, sbit_graph_node(fold->graph, nodes[i]), &result, error);
    }
    sbit_session_destroy(session);
    return status;
}

static sbit_status sbit__fold_build(sbit__fold *fold, const sbit_node_id *nodes, size_t count,
                                    sbit_error *error)
{
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(sbit__fold_move_node(fold, sbit_graph_node(fold->graph, nodes[i]), error));
    }
    return sbit__fold_session(fold, nodes, count, error);
}

static sbit_status sbit__fold_nodes(sbit__fold *fold, const sbit_node_id *nodes, size_t count,
                                    sbit_error *error)
{
    sbit_status status = SBIT_OK;
    memset(fold->moved, 0, fold->rw->facts.limit * sizeof *fold->moved);
    SBIT__TRY(sbit_graph_create(fold->rw->ctx, fold->rw->opset, &fold->scratch, error));
    status = sbit__fold_build(fold, nodes, count, error);
    sbit_graph_destroy(fold->scratch);
    fold->scratch = NULL;
    return status;
}

static sbit_status sbit__fold_body(sbit__rewrite *rw, sbit_error *error)
{
    sbit__fold fold;
    sbit_status status = SBIT_OK;
    memset(&fold, 0, sizeof fold);
    fold.rw = rw;
    fold.graph = rw->graph;
    SBIT__TRY(sbit__fold_choose(&fold, error));
    if (fold.node_count == 0) {
        return SBIT_OK;
    }
    status = sbit__fold_nodes(&fold, fold.nodes, fold.node_count, error);
    if (status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY || status == SBIT_ERR_CANCELLED) {
        return status;
    }
    /* One of them cannot be computed; it stays, to say so when the model runs. */
    for (size_t i = 0; i < fold.node_count; i++) {
        const sbit_node *node = sbit_graph_node_alive(fold.graph, fold.nodes[i])
                                    ? sbit_graph_node(fold.graph, fold.nodes[i])
                                    : NULL;
        bool ready = node != NULL;
        for (size_t k = 0; ready && k < node->input_count; k++) {
            ready = node->inputs[k].idx == 0 ||
                    sbit__graph_constant(fold.graph, node->inputs[k]) != NULL;
        }
        status = ready ? sbit__fold_nodes(&fold, &fold.nodes[i], 1, NULL) : SBIT_OK;
        if (status == SBIT_ERR_OUT_OF_MEMORY || status == SBIT_ERR_CANCELLED) {
            return sbit__fail(error, status, NULL, "%s while constants were folded",
                              sbit_status_text(status));
        }
    }
    return SBIT_OK;
}

static bool sbit__fold_any(const sbit_graph *graph)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        bool all = node->input_count != 0;
        for (size_t i = 0; all && i < node->input_count; i++) {
            all = node->inputs[i].idx == 0 || sbit__const_in(graph, node, i) != NULL;
        }
        if (all) {
            return true;
        }
    }
    return false;
}

static sbit_status sbit__fold_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                  int64_t *changes, sbit_error *error)
{
    sbit__rewrite rw;
    if (!sbit__fold_any(graph)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__rewrite_init(&rw, graph, desc, error));
    const sbit_status status = sbit__fold_body(&rw, error);
    sbit__facts_deinit(&rw.facts);
    *changes += rw.changes;
    return status;
}

SBIT__FN const sbit_pass_row *sbit__pass_fold_constants(void)
{
    static const sbit_pass_row row = {
        {"fold_constants", "computes nodes whose inputs are all constants", 0, NULL, 0},
        false,
        sbit__fold_run};
    return &row;
}
