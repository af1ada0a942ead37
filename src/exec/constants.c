/* constants.c: what constants of a program make: values computed from them, packed forms.
 * >>constants
 * >>constants
 *
 * Called by: program. Calls: step, infer, ops (row->run, row->pack).
 * A node whose inputs are all constant is computed here, once for all sessions, unless its outputs
 * would be much larger than what they are made of. Large floats wait until a row packs them, and
 * are freed when the last one has, so that a model with integer weights never holds all its floats.
 * What has to be made first is found with a list of nodes, not by recursion: chains may be long. A
 * session without steps does the computing; what it made is handed over to the program.
 */
#include "exec_private.h"

#define SBIT__CONSTANTS_SMALL 64  /* elements that may always be computed */
#define SBIT__CONSTANTS_GROWTH 8  /* a constant may take this much more than what it is made of */
#define SBIT__CONSTANTS_FREE 4096 /* bytes that a constant may always take */
#define SBIT__CONSTANTS_NOW 16384 /* bytes of a constant that need not wait */

typedef struct sbit__constants {
    sbit_program *program;
    const sbit_graph *graph;
    sbit__made *made;
    sbit_session *session;
    uint32_t *readers;   /* by value: inputs of nodes that have not read it yet */
    bool *keep;          /* by value: read after the program is made */
    sbit_node_id *stack; /* of nodes to compute, each for the one below it */
    size_t depth;
} sbit__constants;

/* >>what may be computed */

static bool sbit__constants_counts(const sbit__constants *fold, const sbit_node *node,
                                   size_t *in_bytes, bool *few)
{
    const sbit_session *s = fold->session;
    *in_bytes = 0;
    *few = true;
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        if (idx != 0 && s->plan[idx].place != SBIT__PLACE_CONSTANT) {
            return false;
        }
        if (idx != 0) {
            *few = *few && sbit_tensor_count(&s->values[idx].tensor) <= SBIT__CONSTANTS_SMALL;
            *in_bytes += sbit_tensor_bytes(&s->values[idx].tensor);
        }
    }
    return true;
}

/* All inputs are constant, and the outputs are worth keeping. The types of the outputs are inferred
 * on the way; a node for which that fails is left to the plan, which says why. */
static bool sbit__constants_allowed(sbit__constants *fold, const sbit_node *node)
{
    sbit_session *s = fold->session;
    const sbit_op_row *row = s->nodes[node->id.idx].row;
    size_t in_bytes = 0, out_bytes = 0;
    bool few = true, is_static = true;
    if (row == NULL || row->run == NULL || (row->flags & (SBIT_OP_RANDOM | SBIT_OP_BODY)) != 0 ||
        node->input_count == 0 || !sbit__constants_counts(fold, node, &in_bytes, &few) ||
        sbit__infer_node(&s->infer, node->id, NULL) != SBIT_OK) {
        return false;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        const sbit_type *type = &s->infer.types[idx];
        int64_t count = 0;
        size_t bytes = 0;
        if (idx == 0) {
            continue;
        }
        if (!sbit__type_static(type)) {
            is_static = false;
            continue;
        }
        count = sbit__type_elements(type);
        few = few && count <= SBIT__CONSTANTS_SMALL;
        /* text that a row made (alloc_text) lasts for one run only */
        if (type->dtype == SBIT_STRING || !sbit__exec_bytes(type->dtype, count, &bytes) ||
            !sbit__add_size(out_bytes, bytes, &out_bytes)) {
            return false;
        }
    }
    return !is_static ? (row->flags & SBIT_OP_DYNAMIC) != 0
                      : few || out_bytes <= SBIT__CONSTANTS_FREE ||
                            out_bytes / SBIT__CONSTANTS_GROWTH <= in_bytes;
}

/* Large, of floats (so that no shape depends on it), and only read while the program is made. */
static bool sbit__constants_can_wait(const sbit__constants *fold, const sbit_node *node)
{
    const sbit_session *s = fold->session;
    size_t total = 0;
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        const sbit_type *type = &s->infer.types[idx];
        size_t bytes = 0;
        if (idx == 0) {
            continue;
        }
        if (fold->keep[idx] || !sbit__type_static(type) ||
            (SBIT_T(type->dtype) & SBIT_T_FLOATS) == 0 ||
            !sbit__exec_bytes(type->dtype, sbit__type_elements(type), &bytes)) {
            return false;
        }
        total += bytes;
    }
    return total > SBIT__CONSTANTS_NOW;
}

/* >>computing */

/* A value that waits: its shape stands for it. */
static void sbit__constants_wait(sbit__constants *fold, const sbit_node *node)
{
    sbit_session *s = fold->session;
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        if (idx != 0) {
            memset(&s->values[idx], 0, sizeof s->values[idx]);
            sbit__tensor_of_type(&s->infer.types[idx], &s->values[idx].tensor);
            s->plan[idx].place = SBIT__PLACE_CONSTANT;
            s->infer.known[idx] = NULL;
        }
    }
}

/* A reader less; the last one frees what nobody reads later. */
static void sbit__constants_read(sbit__constants *fold, uint32_t idx)
{
    sbit_session *s = fold->session;
    if (idx == 0 || --fold->readers[idx] > 0 || fold->keep[idx] || s->dynamics[idx].main == NULL) {
        return;
    }
    sbit__dynamic_free(s, &s->dynamics[idx]);
    s->values[idx].tensor.data = NULL;
    s->infer.known[idx] = NULL;
}

/* *tensors: all outputs are tensors, which stay constant. A node that fails is left to the plan: it
 * may stand in a branch that is never taken. */
static sbit_status sbit__constants_compute(sbit__constants *fold, const sbit_node *node,
                                           bool *tensors, sbit_error *error)
{
    sbit_session *s = fold->session;
    const sbit_status status = sbit__step_evaluate(s, node->id, error);
    *tensors = status == SBIT_OK;
    if (status == SBIT_ERR_OUT_OF_MEMORY) {
        return status;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        *tensors = *tensors && (idx == 0 || (s->values[idx].kind == SBIT_KIND_TENSOR &&
                                             s->values[idx].tensor.dtype != SBIT_STRING &&
                                             s->values[idx].tensor.data != NULL));
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        if (idx != 0 && *tensors) {
            s->plan[idx].place = SBIT__PLACE_CONSTANT;
            s->infer.known[idx] = &s->values[idx].tensor;
            s->infer.elems[idx] = NULL;
        } else if (idx != 0) {
            s->plan[idx].place = SBIT__PLACE_NONE;
            sbit__dynamic_free(s, &s->dynamics[idx]);
        }
    }
    for (size_t i = 0; *tensors && i < node->input_count; i++) {
        sbit__constants_read(fold, node->inputs[i].idx);
    }
    return SBIT_OK;
}

/* The node that is to compute a value first; none if the data is there. */
static sbit_node_id sbit__constants_maker(const sbit__constants *fold, uint32_t idx)
{
    sbit_value_id id;
    sbit_node_id none;
    id.idx = idx;
    none.idx = 0;
    if (idx == 0 || fold->session->values[idx].tensor.data != NULL ||
        fold->session->plan[idx].place != SBIT__PLACE_CONSTANT) {
        return none;
    }
    none = sbit_graph_value(fold->graph, id)->producer;
    if (none.idx != 0 && !fold->made->folded_node[none.idx]) {
        none.idx = 0; /* an empty tensor of the graph */
    }
    return none;
}

/* Makes the data of a value that waits. */
static sbit_status sbit__constants_need(sbit__constants *fold, uint32_t idx, sbit_error *error)
{
    const sbit_node_id maker = sbit__constants_maker(fold, idx);
    if (maker.idx != 0) {
        fold->stack[fold->depth++] = maker;
    }
    while (fold->depth > 0) {
        const sbit_node *node = sbit_graph_node(fold->graph, fold->stack[fold->depth - 1]);
        sbit_node_id first;
        bool tensors = true;
        first.idx = 0;
        for (size_t i = 0; first.idx == 0 && i < node->input_count; i++) {
            first = sbit__constants_maker(fold, node->inputs[i].idx);
        }
        if (first.idx != 0) {
            fold->stack[fold->depth++] = first;
            continue;
        }
        fold->depth--;
        SBIT__TRY(sbit__constants_compute(fold, node, &tensors, error));
        if (!tensors) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, node->name,
                              "'%s' cannot be computed from its constants", node->name);
        }
    }
    return SBIT_OK;
}

/* >>packing */

static sbit_status sbit__constants_pack(sbit__constants *fold, const sbit_node *node,
                                        sbit_error *error)
{
    sbit_session *s = fold->session;
    const sbit_op_row *row = s->nodes[node->id.idx].row;
    sbit__step step;
    sbit_op_call call;
    bool any = false;
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        any = any || (idx != 0 && s->plan[idx].place == SBIT__PLACE_CONSTANT);
    }
    if (row == NULL || row->pack == NULL || !any) {
        return SBIT_OK;
    }
    memset(&step, 0, sizeof step);
    step.node = node;
    SBIT__TRY(sbit__step_build(s, &step, error));
    call = step.call;
    call.in = step.constant_in;
    call.out = NULL;
    call.in_value = NULL;
    call.out_value = NULL;
    const sbit_status status = row->pack(&call, error);
    if (step.packed != NULL) {
        step.packed->next = fold->program->blocks;
        fold->program->blocks = step.packed;
        fold->program->packed_bytes += step.packed->bytes;
        fold->made->packed[node->id.idx] = sbit__block_data(step.packed);
        fold->made->released[node->id.idx] = step.released;
    }
    return status;
}

/* A node that runs later: it packs what it can, and what it reads then has to be there. */
static sbit_status sbit__constants_reader(sbit__constants *fold, const sbit_node *node,
                                          sbit_error *error)
{
    for (size_t i = 0; i < node->input_count; i++) {
        SBIT__TRY(sbit__constants_need(fold, node->inputs[i].idx, error));
    }
    SBIT__TRY(sbit__constants_pack(fold, node, error));
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        if (i >= 32 || (fold->made->released[node->id.idx] >> i & 1u) == 0) {
            fold->keep[idx] = true;
        }
        sbit__constants_read(fold, idx);
    }
    return SBIT_OK;
}

/* >>driver */

static void sbit__constants_count_readers(sbit__constants *fold)
{
    const sbit_session *s = fold->session;
    const bool root = fold->graph == fold->program->graph;
    for (size_t o = 0; o < s->order_count; o++) {
        const sbit_node *node = sbit_graph_node(fold->graph, s->order[o]);
        const sbit__exec_node *data = &s->nodes[node->id.idx];
        for (size_t i = 0; i < node->input_count; i++) {
            fold->readers[node->inputs[i].idx]++;
        }
        for (size_t i = 0; i < data->capture_count; i++) {
            fold->keep[data->captures[i].idx] = true;
        }
    }
    for (uint32_t idx = 0; idx < s->value_limit; idx++) {
        fold->keep[idx] = fold->keep[idx] || s->wanted[idx] || fold->program->desc.keep_values ||
                          (root && idx < fold->program->kept_limit && fold->program->kept[idx]);
    }
}

/* Constants of the graph, and of the graphs around it. */
static void sbit__constants_sources(sbit__constants *fold)
{
    sbit_session *s = fold->session;
    for (uint32_t idx = 1; idx < s->value_limit; idx++) {
        sbit_value_id id;
        const sbit_tensor *tensor = NULL;
        id.idx = idx;
        tensor = sbit__program_constant(fold->program, fold->graph, id);
        if (tensor != NULL) {
            memset(&s->values[idx], 0, sizeof s->values[idx]);
            s->values[idx].tensor = *tensor;
            s->infer.types[idx] = sbit__type_of_tensor(tensor);
            s->infer.known[idx] = tensor;
            s->plan[idx].place = SBIT__PLACE_CONSTANT;
        }
    }
}

static sbit_status sbit__constants_nodes(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    for (size_t o = 0; o < s->order_count; o++) {
        const sbit_node *node = sbit_graph_node(fold->graph, s->order[o]);
        bool tensors = true;
        if (!sbit__constants_allowed(fold, node)) {
            continue;
        }
        if (sbit__constants_can_wait(fold, node)) {
            sbit__constants_wait(fold, node);
        } else {
            for (size_t i = 0; i < node->input_count; i++) {
                SBIT__TRY(sbit__constants_need(fold, node->inputs[i].idx, error));
            }
            SBIT__TRY(sbit__constants_compute(fold, node, &tensors, error));
        }
        fold->made->folded_node[node->id.idx] = tensors;
    }
    for (size_t o = 0; o < s->order_count; o++) {
        const sbit_node *node = sbit_graph_node(fold->graph, s->order[o]);
        if (!fold->made->folded_node[node->id.idx]) {
            SBIT__TRY(sbit__constants_reader(fold, node, error));
        }
    }
    return SBIT_OK;
}

/* What was computed goes from the session to the program. */
static sbit_status sbit__constants_hand_over(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    for (size_t o = 0; o < s->order_count; o++) {
        const sbit_node *node = sbit_graph_node(fold->graph, s->order[o]);
        for (size_t i = 0; i < node->output_count; i++) {
            const uint32_t idx = node->outputs[i].idx;
            sbit_tensor *tensor = NULL;
            if (idx == 0 || !fold->made->folded_node[node->id.idx]) {
                continue;
            }
            tensor = (sbit_tensor *)sbit__arena_alloc(&fold->program->arena, sizeof *tensor);
            if (tensor == NULL) {
                return sbit__fail_oom(error, sizeof *tensor);
            }
            *tensor = s->values[idx].tensor;
            SBIT__TRY(sbit__program_take(fold->program, &s->dynamics[idx], error));
            fold->made->folded[idx] = tensor;
        }
    }
    return SBIT_OK;
}

/* Types as far as they follow from the declared inputs: rows may pack by element types. */
static sbit_status sbit__constants_types(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    sbit__facts facts;
    const sbit_status status = sbit__facts_init(&facts, fold->graph, NULL);
    if (status == SBIT_ERR_OUT_OF_MEMORY) {
        return sbit__fail_oom(error, 0);
    }
    for (uint32_t idx = 1; status == SBIT_OK && idx < s->value_limit; idx++) {
        sbit_value_id id;
        id.idx = idx;
        s->infer.types[idx] = *sbit__facts_type(&facts, id);
    }
    if (status == SBIT_OK) {
        sbit__facts_deinit(&facts);
    }
    return SBIT_OK;
}

static sbit_status sbit__constants_fill(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    sbit__arena *arena = &s->plan_arena;
    s->plan = (sbit__exec_value *)sbit__arena_array(arena, s->value_limit, sizeof(*s->plan));
    fold->readers = (uint32_t *)sbit__arena_array(arena, s->value_limit, sizeof(uint32_t));
    fold->keep = (bool *)sbit__arena_array(arena, s->value_limit, sizeof(bool));
    fold->stack = (sbit_node_id *)sbit__arena_array(arena, s->node_limit + 1, sizeof(sbit_node_id));
    if (s->plan == NULL || fold->readers == NULL || fold->keep == NULL || fold->stack == NULL) {
        return sbit__fail_oom(error, s->value_limit * sizeof(*s->plan));
    }
    SBIT__TRY(sbit__infer_init(&s->infer, fold->graph, NULL, arena, error));
    SBIT__TRY(sbit__constants_types(fold, error));
    sbit__constants_sources(fold);
    sbit__constants_count_readers(fold);
    SBIT__TRY(sbit__constants_nodes(fold, error));
    return sbit__constants_hand_over(fold, error);
}

SBIT__FN sbit_status sbit__constants_graph(sbit_program *program, const sbit_graph *graph,
                                           sbit__made *made, sbit_error *error)
{
    sbit__constants fold;
    sbit_session_desc desc;
    sbit_status status = SBIT_OK;
    const size_t values = sbit_graph_value_limit(graph), nodes = sbit_graph_node_limit(graph);
    memset(&fold, 0, sizeof fold);
    memset(&desc, 0, sizeof desc);
    made->folded =
        (const sbit_tensor **)sbit__arena_array(&program->arena, values + 1, sizeof(sbit_tensor *));
    made->folded_node = (bool *)sbit__arena_array(&program->arena, nodes + 1, sizeof(bool));
    made->packed = (const void **)sbit__arena_array(&program->arena, nodes + 1, sizeof(void *));
    made->released = (uint32_t *)sbit__arena_array(&program->arena, nodes + 1, sizeof(uint32_t));
    if (made->folded == NULL || made->folded_node == NULL || made->packed == NULL ||
        made->released == NULL) {
        return sbit__fail_oom(error, nodes * sizeof(void *));
    }
    SBIT__TRY(sbit__session_make(program, graph, &desc, NULL, NULL, &fold.session, error));
    fold.program = program;
    fold.graph = graph;
    fold.made = made;
    status = sbit__constants_fill(&fold, error);
    sbit_session_destroy(fold.session);
    return status;
}
