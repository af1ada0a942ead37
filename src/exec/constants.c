/* constants.c: what constants of a program make: values computed from them, packed forms.
 * >>constants
 *
 * Called by: face. Calls: session, program, step, infer, ops (row->run, row->pack).
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
    uint32_t *readers;       /* by value: inputs of nodes that have not read it yet */
    bool *keep;              /* by value: read after the program is made */
    sbit__exec_node **stack; /* of nodes to compute, each for the one below it */
    size_t depth;
    bool fixed; /* no default may be replaced: what was made of constants is not made again */
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
        if (idx != 0 && sbit__exec_place(s, idx) != SBIT__PLACE_CONSTANT) {
            return false;
        }
        if (idx != 0) {
            const sbit_tensor *tensor = &s->values[idx]->value.tensor;
            *few = *few && sbit_tensor_count(tensor) <= SBIT__CONSTANTS_SMALL;
            *in_bytes += sbit_tensor_bytes(tensor);
        }
    }
    return true;
}

/* All inputs are constant, and the outputs are worth keeping. The types of the outputs are inferred
 * on the way; a node for which that fails is left to the plan, which says why. */
static bool sbit__constants_allowed(sbit__constants *fold, const sbit__exec_node *data)
{
    sbit_session *s = fold->session;
    const sbit_node *node = data->node;
    const sbit_op_row *row = data->row;
    size_t in_bytes = 0, out_bytes = 0;
    bool few = true, is_static = true;
    if (row == NULL || row->run == NULL || (row->flags & (SBIT_OP_RANDOM | SBIT_OP_BODY)) != 0 ||
        node->input_count == 0 || !sbit__constants_counts(fold, node, &in_bytes, &few) ||
        sbit__infer_node(&s->infer, node->id, NULL) != SBIT_OK) {
        return false;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit__exec_value *out = s->values[node->outputs[i].idx];
        const sbit_type *type = out != NULL ? &out->type : NULL;
        int64_t count = 0;
        size_t bytes = 0;
        if (type == NULL) {
            continue;
        }
        if (type->dtype == SBIT_STRING) {
            return false; /* text that a row made (alloc_text) lasts for one run only */
        }
        if (!sbit__type_static(type)) {
            is_static = false;
            continue;
        }
        count = sbit__type_elements(type);
        few = few && count <= SBIT__CONSTANTS_SMALL;
        if (!sbit__exec_bytes(type->dtype, count, &bytes) ||
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
        const sbit_type *type = idx != 0 ? &s->values[idx]->type : NULL;
        size_t bytes = 0;
        if (type == NULL) {
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
        sbit__exec_value *out = s->values[idx];
        if (out != NULL) {
            memset(&out->value, 0, sizeof out->value);
            sbit__tensor_of_type(&out->type, &out->value.tensor);
            out->place = SBIT__PLACE_CONSTANT;
            s->infer.known[idx] = NULL;
        }
    }
}

/* A constant of the program's graph, or of the caller's. */
static void sbit__constants_release(sbit__constants *fold, sbit__exec_value *value, uint32_t idx)
{
    const sbit__lowered *lowered = sbit__program_lowered(fold->program, fold->graph);
    const sbit_graph *source = lowered != NULL ? lowered->source : NULL;
    sbit_value_id id;
    id.idx = idx;
    const sbit_value_info *info = sbit_graph_value(fold->graph, id);
    if (info->outer.idx != 0 || sbit_tensor_bytes(&info->constant) <= SBIT__CONSTANTS_NOW) {
        return; /* from small ones shapes are inferred again, in bodies with each plan */
    }
    const bool same = source != NULL && sbit_graph_value_alive(source, id) &&
                      sbit_graph_value(source, id)->constant.data == info->constant.data;
    if (sbit__graph_release_constant(fold->graph, id, fold->fixed) ||
        (same && sbit__graph_release_constant(
                     source, id, fold->fixed && fold->program->desc.release_weights))) {
        fold->graph->values[idx]->info.constant.data = NULL;
        fold->program->halfway = true;
        value->value.tensor.data = NULL;
        fold->session->infer.known[idx] = NULL;
    }
}

/* A reader less; the last one frees what nobody reads later. */
static void sbit__constants_read(sbit__constants *fold, uint32_t idx)
{
    sbit_session *s = fold->session;
    sbit__exec_value *value = s->values[idx];
    if (value == NULL || --fold->readers[idx] > 0 || fold->keep[idx]) {
        return;
    }
    if (value->shared) {
        sbit__constants_release(fold, value, idx);
        return;
    }
    if (value->dynamic.main == NULL) {
        return;
    }
    sbit__dynamic_free(s, &value->dynamic);
    value->value.tensor.data = NULL;
    s->infer.known[idx] = NULL;
}

/* *tensors: all outputs are tensors, which stay constant. A node that fails is left to the plan: it
 * may stand in a branch that is never taken. */
static sbit_status sbit__constants_compute(sbit__constants *fold, sbit__exec_node *data,
                                           bool *tensors, sbit_error *error)
{
    sbit_session *s = fold->session;
    const sbit_node *node = data->node;
    const sbit_status status = sbit__step_evaluate(s, data, error);
    *tensors = status == SBIT_OK;
    if (status == SBIT_ERR_OUT_OF_MEMORY) {
        return status;
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const sbit__exec_value *out = s->values[node->outputs[i].idx];
        *tensors = *tensors && (out == NULL || (out->value.kind == SBIT_KIND_TENSOR &&
                                                out->value.tensor.dtype != SBIT_STRING &&
                                                out->value.tensor.data != NULL));
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        sbit__exec_value *out = s->values[idx];
        if (out != NULL && *tensors) {
            out->place = SBIT__PLACE_CONSTANT;
            s->infer.known[idx] = &out->value.tensor;
            s->infer.elems[idx] = NULL;
        } else if (out != NULL) {
            out->place = SBIT__PLACE_NONE;
            sbit__dynamic_free(s, &out->dynamic);
        }
    }
    for (size_t i = 0; *tensors && i < node->input_count; i++) {
        sbit__constants_read(fold, node->inputs[i].idx);
    }
    return SBIT_OK;
}

/* The node that is to compute a value first; NULL if the data is there. */
static sbit__exec_node *sbit__constants_maker(const sbit__constants *fold, uint32_t idx)
{
    const sbit_session *s = fold->session;
    sbit_value_id id;
    sbit_node_id maker;
    id.idx = idx;
    if (sbit__exec_place(s, idx) != SBIT__PLACE_CONSTANT ||
        s->values[idx]->value.tensor.data != NULL) {
        return NULL;
    }
    maker = sbit_graph_value(fold->graph, id)->producer;
    return maker.idx != 0 && fold->made->folded[maker.idx]
               ? &s->nodes[s->node_at[maker.idx] - 1]
               : NULL; /* an empty tensor of the graph */
}

/* Makes the data of a value that waits. */
static sbit_status sbit__constants_need(sbit__constants *fold, uint32_t idx, sbit_error *error)
{
    sbit__exec_node *maker = sbit__constants_maker(fold, idx);
    if (maker != NULL) {
        fold->stack[fold->depth++] = maker;
    }
    while (fold->depth > 0) {
        sbit__exec_node *data = fold->stack[fold->depth - 1], *first = NULL;
        bool tensors = true;
        for (size_t i = 0; first == NULL && i < data->node->input_count; i++) {
            first = sbit__constants_maker(fold, data->node->inputs[i].idx);
        }
        if (first != NULL) {
            fold->stack[fold->depth++] = first;
            continue;
        }
        fold->depth--;
        SBIT__TRY(sbit__constants_compute(fold, data, &tensors, error));
        if (!tensors) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, data->node->name,
                              "'%s' cannot be computed from its constants", data->node->name);
        }
    }
    return SBIT_OK;
}

/* >>packing */

static sbit_status sbit__constants_pack(sbit__constants *fold, sbit__exec_node *data,
                                        sbit_error *error)
{
    sbit_session *s = fold->session;
    const sbit_node *node = data->node;
    sbit__packing packing;
    sbit__step step;
    bool any = false;
    for (size_t i = 0; i < node->input_count; i++) {
        any = any || sbit__exec_place(s, node->inputs[i].idx) == SBIT__PLACE_CONSTANT;
    }
    if (data->row == NULL || data->row->pack == NULL || !any) {
        return SBIT_OK;
    }
    memset(&step, 0, sizeof step);
    step.session = s;
    step.data = data;
    memset(&packing, 0, sizeof packing);
    s->packing = &packing;
    const sbit_op_call call = sbit__step_constant_call(&step);
    const sbit_status status = data->row->pack(&call, error);
    s->packing = NULL;
    if (packing.block != NULL) {
        packing.block->next = fold->program->blocks;
        fold->program->blocks = packing.block;
        fold->program->packed_bytes += packing.block->bytes;
        fold->made->packed[node->id.idx] = sbit__block_data(packing.block);
        fold->made->released[node->id.idx] = packing.released;
    }
    return status;
}

/* A node that runs later: it packs what it can, and what it reads then has to be there. */
static sbit_status sbit__constants_reader(sbit__constants *fold, sbit__exec_node *data,
                                          sbit_error *error)
{
    const sbit_node *node = data->node;
    for (size_t i = 0; i < node->input_count; i++) {
        SBIT__TRY(sbit__constants_need(fold, node->inputs[i].idx, error));
    }
    SBIT__TRY(sbit__constants_pack(fold, data, error));
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

/* Read later, too: results, captures of bodies, what only taps and states compute. */
static void sbit__constants_count_readers(sbit__constants *fold)
{
    const sbit_session *s = fold->session;
    const sbit_program *program = fold->program;
    for (size_t o = 0; o < s->node_count; o++) {
        const sbit_node *node = s->nodes[o].node;
        for (size_t i = 0; i < node->input_count; i++) {
            fold->readers[node->inputs[i].idx]++;
        }
    }
    for (uint32_t idx = 0; idx < s->value_limit; idx++) {
        sbit_value_id id;
        id.idx = idx;
        fold->keep[idx] =
            s->wanted[idx] || program->desc.keep_values ||
            (sbit_graph_value_alive(fold->graph, id) &&
             fold->readers[idx] != sbit_graph_value(fold->graph, id)->use_count) ||
            (fold->graph == program->graph && idx < program->kept_limit && program->kept[idx]);
    }
}

/* A constant that sessions share. */
static sbit_status sbit__constants_share(sbit__constants *fold, uint32_t idx,
                                         const sbit_tensor *tensor, sbit_error *error)
{
    sbit__exec_value *value =
        (sbit__exec_value *)sbit__arena_alloc(&fold->program->arena, sizeof *value);
    if (value == NULL) {
        return sbit__fail_oom(error, sizeof *value);
    }
    value->value.tensor = *tensor;
    value->type = sbit__type_of_tensor(tensor);
    value->shared = true;
    value->place = SBIT__PLACE_CONSTANT;
    value->root = value;
    fold->made->values[idx] = value;
    return SBIT_OK;
}

/* Constants of the graph, and of the graphs around it. */
static sbit_status sbit__constants_sources(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    const sbit_graph *parent = sbit_graph_parent(fold->graph);
    for (uint32_t idx = 1; idx < s->value_limit; idx++) {
        const sbit_value_info *info = NULL;
        sbit_value_id id;
        id.idx = idx;
        if (!sbit_graph_value_alive(fold->graph, id)) {
            continue;
        }
        info = sbit_graph_value(fold->graph, id);
        if (info->is_constant || info->has_default) { /* a default: until something else is fed */
            SBIT__TRY(sbit__constants_share(fold, idx, &info->constant, error));
        } else if (info->outer.idx != 0) {
            fold->made->values[idx] =
                sbit__program_constant(fold->program, parent, info->outer.idx);
        }
    }
    return SBIT_OK;
}

/* All values that the session's nodes have, and their types as far as they follow from the declared
 * inputs: rows may pack by element types. */
static sbit_status sbit__constants_values(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    sbit__facts facts;
    const sbit_status status = sbit__facts_init(&facts, fold->graph, NULL);
    bool ok = status != SBIT_ERR_OUT_OF_MEMORY;
    for (uint32_t idx = 1; ok && idx < s->value_limit; idx++) {
        sbit_value_id id;
        id.idx = idx;
        s->values[idx] = fold->made->values[idx];
        if (s->values[idx] == NULL && sbit_graph_value_alive(fold->graph, id)) {
            sbit__exec_value *value = sbit__exec_own(s, idx);
            ok = value != NULL;
            if (ok && status == SBIT_OK) {
                value->type = *sbit__facts_type(&facts, id);
            }
        }
        if (s->values[idx] != NULL) {
            const sbit_tensor *tensor = &s->values[idx]->value.tensor;
            s->infer.types[idx] = &s->values[idx]->type;
            s->infer.known[idx] = s->values[idx]->shared && tensor->data != NULL ? tensor : NULL;
        }
    }
    if (status == SBIT_OK) {
        sbit__facts_deinit(&facts);
    }
    return ok ? SBIT_OK : sbit__fail_oom(error, sizeof(sbit__exec_value));
}

static sbit_status sbit__constants_nodes(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    for (size_t o = 0; o < s->node_count; o++) {
        sbit__exec_node *data = &s->nodes[o];
        bool tensors = true;
        if (!sbit__constants_allowed(fold, data)) {
            continue;
        }
        if (sbit__constants_can_wait(fold, data->node)) {
            sbit__constants_wait(fold, data->node);
        } else {
            for (size_t i = 0; i < data->node->input_count; i++) {
                SBIT__TRY(sbit__constants_need(fold, data->node->inputs[i].idx, error));
            }
            SBIT__TRY(sbit__constants_compute(fold, data, &tensors, error));
        }
        fold->made->folded[data->node->id.idx] = tensors;
    }
    for (size_t o = 0; o < s->node_count; o++) {
        if (!fold->made->folded[s->nodes[o].node->id.idx]) {
            SBIT__TRY(sbit__constants_reader(fold, &s->nodes[o], error));
        }
    }
    return SBIT_OK;
}

/* What was computed goes from the session to the program. */
static sbit_status sbit__constants_hand_over(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    for (size_t o = 0; o < s->node_count; o++) {
        const sbit_node *node = s->nodes[o].node;
        for (size_t i = 0; fold->made->folded[node->id.idx] && i < node->output_count; i++) {
            const uint32_t idx = node->outputs[i].idx;
            sbit__exec_value *value = s->values[idx];
            if (value != NULL) {
                SBIT__TRY(sbit__constants_share(fold, idx, &value->value.tensor, error));
                SBIT__TRY(sbit__program_take(fold->program, &value->dynamic, error));
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__constants_fill(sbit__constants *fold, sbit_error *error)
{
    sbit_session *s = fold->session;
    sbit__arena *arena = &s->plan_arena;
    fold->readers = (uint32_t *)sbit__arena_array(arena, s->value_limit, sizeof(uint32_t));
    fold->keep = (bool *)sbit__arena_array(arena, s->value_limit, sizeof(bool));
    fold->stack =
        (sbit__exec_node **)sbit__arena_array(arena, s->node_count + 1, sizeof(sbit__exec_node *));
    if (fold->readers == NULL || fold->keep == NULL || fold->stack == NULL) {
        return sbit__fail_oom(error, s->value_limit * sizeof(uint32_t));
    }
    SBIT__TRY(sbit__infer_begin(&s->infer, fold->graph, NULL, arena, arena, error));
    SBIT__TRY(sbit__constants_sources(fold, error));
    SBIT__TRY(sbit__constants_values(fold, error));
    sbit__constants_count_readers(fold);
    SBIT__TRY(sbit__constants_nodes(fold, error));
    return sbit__constants_hand_over(fold, error);
}

static sbit_status sbit__constants_graph(sbit_program *program, const sbit_graph *graph,
                                         sbit__made *made, sbit_error *error)
{
    sbit__constants fold;
    sbit_session_desc desc;
    sbit_status status = SBIT_OK;
    const size_t values = sbit_graph_value_limit(graph), nodes = sbit_graph_node_limit(graph);
    memset(&fold, 0, sizeof fold);
    memset(&desc, 0, sizeof desc);
    made->values = (sbit__exec_value **)sbit__arena_array(&program->arena, values + 1,
                                                          sizeof(sbit__exec_value *));
    made->folded = (bool *)sbit__arena_array(&program->arena, nodes + 1, sizeof(bool));
    made->packed = (const void **)sbit__arena_array(&program->arena, nodes + 1, sizeof(void *));
    made->released = (uint32_t *)sbit__arena_array(&program->arena, nodes + 1, sizeof(uint32_t));
    if (made->values == NULL || made->folded == NULL || made->packed == NULL ||
        made->released == NULL) {
        return sbit__fail_oom(error, nodes * sizeof(void *));
    }
    SBIT__TRY(sbit__session_make(program, graph, &desc, NULL, NULL, false, &fold.session, error));
    fold.program = program;
    fold.graph = graph;
    fold.made = made;
    fold.fixed = true;
    for (size_t i = 0; i < sbit_graph_input_count(program->graph); i++) {
        const sbit_value_id input = sbit_graph_input(program->graph, i);
        fold.fixed = fold.fixed && !sbit_graph_value(program->graph, input)->has_default;
    }
    status = sbit__constants_fill(&fold, error);
    sbit_session_destroy(fold.session);
    return status;
}

/* Bodies after the graphs that they stand in. */
SBIT__FN sbit_status sbit__program_fold(sbit_program *program, sbit_error *error)
{
    bool again = true;
    if (program->halfway) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "packing the constants failed before; some are freed: load the model again");
    }
    while (again) {
        again = false;
        for (sbit_graph *graph = program->graph->family->graphs; graph != NULL;
             graph = graph->next_graph) {
            sbit__made *made = &program->made[graph->index];
            if (graph->alive && !made->done &&
                (graph->parent == NULL || program->made[graph->parent->index].done)) {
                SBIT__TRY(sbit__constants_graph(program, graph, made, error));
                made->done = true;
                again = true;
            }
        }
    }
    program->halfway = false;
    return SBIT_OK;
}
