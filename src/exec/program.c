/* program.c: what a session runs: a private clone of the caller's graph, cut to what is asked for
 * and lowered. >>program
 *
 * Called by: session, plan, constants, face. Calls: lower, graph, infer.
 * Ids are the caller's; constants are borrowed, so the caller's graph has to outlive the program.
 */
#include "exec_private.h"

#include <stdio.h> /* snprintf */

/* >>cutting */

static bool sbit__program_is_live(const sbit_graph *graph, sbit_value_id id)
{
    return id.idx > 0 && id.idx < sbit_graph_value_limit(graph) &&
           sbit_graph_value_alive(graph, id);
}

static sbit_status sbit__program_check_ids(const sbit_graph *graph, const char *what,
                                           const sbit_value_id *ids, size_t count,
                                           sbit_error *error)
{
    for (size_t i = 0; ids != NULL && i < count; i++) {
        if (!sbit__program_is_live(graph, ids[i])) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                              "%s %lu of the session is no value of the graph", what,
                              (unsigned long)i);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__program_check_desc(const sbit_graph *graph, const sbit_session_desc *desc,
                                            sbit_error *error)
{
    if (desc->tap_fn == NULL && (desc->tap_count > 0 || desc->tap_all || desc->tap_bodies)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the session is to be tapped, but there is no tap_fn");
    }
    SBIT__TRY(sbit__program_check_ids(graph, "output", desc->outputs, desc->output_count, error));
    SBIT__TRY(sbit__program_check_ids(graph, "input", desc->inputs, desc->input_count, error));
    SBIT__TRY(sbit__program_check_ids(graph, "tap", desc->taps, desc->tap_count, error));
    for (size_t i = 0; i < desc->state_count; i++) {
        SBIT__TRY(sbit__program_check_ids(graph, "state", &desc->states[i].output, 1, error));
        SBIT__TRY(sbit__program_check_ids(graph, "state", &desc->states[i].input, 1, error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__program_check_input(const sbit_graph *graph,
                                               const sbit_value_info *info, const sbit_type *type,
                                               sbit_error *error)
{
    const sbit_type *declared = &info->type;
    bool fits = type->kind == declared->kind &&
                (declared->dtype == SBIT_UNDEFINED || type->dtype == SBIT_UNDEFINED ||
                 type->dtype == declared->dtype);
    if (fits && type->kind == SBIT_KIND_TENSOR && declared->rank >= 0) {
        fits = type->rank == declared->rank;
        for (int32_t i = 0; fits && i < type->rank; i++) {
            fits = !sbit__dim_known(declared->dims[i]) ||
                   declared->dims[i].value == type->dims[i].value;
        }
    }
    if (!fits) {
        char a[128], b[128];
        sbit__type_describe(graph, type, a, sizeof a);
        sbit__type_describe(graph, declared, b, sizeof b);
        return sbit__fail(error, SBIT_ERR_SHAPE, info->name,
                          "input '%s' is declared as %s and cannot be %s", info->name, b, a);
    }
    return SBIT_OK;
}

/* A value that is fed is an input: whoever computes it gives that to nobody. */
static sbit_status sbit__program_cut(sbit_graph *graph, sbit_value_id id, sbit_error *error)
{
    const sbit_value_info *info = sbit_graph_value(graph, id);
    if (info->is_constant || info->has_default) {
        sbit__graph_drop_constant(graph, id);
    }
    if (info->producer.idx != 0) {
        const sbit_node_id producer = info->producer;
        const uint32_t index = info->producer_output;
        sbit_type type = info->type;
        sbit_value_id nobody;
        SBIT__TRY(sbit_graph_add_value(graph, info->name, &type, &nobody, error));
        SBIT__TRY(sbit_graph_set_node_output(graph, producer, index, nobody, error));
        type.rank = -1; /* declared shapes of inner values are hints */
        sbit_graph_set_type(graph, id, &type);
    }
    return sbit_graph_set_input(graph, id, true, error);
}

static bool sbit__program_needs(const sbit_program *program, const sbit_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        if (idx != 0 && (sbit_graph_value(program->graph, node->outputs[i])->use_count > 0 ||
                         (idx < program->kept_limit && program->kept[idx]))) {
            return true;
        }
    }
    return false;
}

/* Drops the nodes that no result needs, from the last to the first. */
static sbit_status sbit__program_drop(sbit_program *program, sbit_error *error)
{
    const sbit_allocator *a = &program->ctx->allocator;
    const uint32_t limit = sbit_graph_node_limit(program->graph);
    sbit_node_id *ids = (sbit_node_id *)sbit__calloc(a, limit, sizeof *ids);
    size_t count = 0;
    if (ids == NULL) {
        return sbit__fail_oom(error, limit * sizeof *ids);
    }
    for (sbit_node_id id = sbit_graph_first(program->graph); id.idx != 0;
         id = sbit_graph_next(program->graph, id)) {
        ids[count++] = id;
    }
    while (count-- > 0) {
        if (!sbit__program_needs(program, sbit_graph_node(program->graph, ids[count]))) {
            sbit_graph_erase_node(program->graph, ids[count]);
        }
    }
    sbit__free(a, ids, limit * sizeof *ids);
    return SBIT_OK;
}

/* The clone's inputs, outputs and nodes as the desc asks; `kept` as well. */
static sbit_status sbit__program_shape(sbit_program *program, const sbit_session_desc *desc,
                                       sbit_error *error)
{
    program->kept_limit = sbit_graph_value_limit(program->graph);
    program->kept = (bool *)sbit__arena_array(&program->arena, program->kept_limit, sizeof(bool));
    if (program->kept == NULL) {
        return sbit__fail_oom(error, program->kept_limit);
    }
    for (uint32_t idx = 0; desc->tap_fn != NULL && idx < program->kept_limit; idx++) {
        program->kept[idx] = desc->tap_all;
    }
    for (size_t i = 0; desc->tap_fn != NULL && i < desc->tap_count; i++) {
        program->kept[desc->taps[i].idx] = true;
    }
    for (size_t i = 0; desc->inputs != NULL && i < desc->input_count; i++) {
        SBIT__TRY(sbit__program_cut(program->graph, desc->inputs[i], error));
    }
    for (size_t i = 0; i < desc->state_count; i++) {
        SBIT__TRY(sbit__program_cut(program->graph, desc->states[i].input, error));
        program->kept[desc->states[i].output.idx] = true;
    }
    if (desc->outputs != NULL) {
        SBIT__TRY(
            sbit__graph_set_outputs(program->graph, desc->outputs, desc->output_count, error));
    }
    return sbit__program_drop(program, error);
}

/* Expected shapes are those of inputs, and inputs may have them. */
static sbit_status sbit__program_check_shapes(const sbit_graph *graph,
                                              const sbit_session_desc *desc, sbit_error *error)
{
    for (size_t i = 0; i < desc->shape_count; i++) {
        const sbit_value_shape *shape = &desc->shapes[i];
        const sbit_value_info *info = NULL;
        bool valid = sbit__program_is_live(graph, shape->id) && shape->rank >= 0 &&
                     shape->rank <= SBIT_MAX_RANK;
        for (int32_t d = 0; valid && d < shape->rank; d++) {
            valid = shape->dims[d] >= 0;
        }
        info = valid ? sbit_graph_value(graph, shape->id) : NULL;
        if (info == NULL || !info->is_input || info->type.kind != SBIT_KIND_TENSOR) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                              "shape %lu of the session is no shape of an input",
                              (unsigned long)i);
        }
        sbit_type type = info->type;
        sbit__shape_apply(desc->shapes, desc->shape_count, info->id, &type);
        SBIT__TRY(sbit__program_check_input(graph, info, &type, error));
    }
    return SBIT_OK;
}

/* >>making */

static sbit_status sbit__program_lower(sbit_program *program, const sbit_session_desc *desc,
                                       sbit_error *error)
{
    const bool tapped = desc->tap_fn != NULL;
    const bool lower = !desc->disable_fusion && !desc->keep_values && !(desc->tap_all && tapped);
    for (sbit_graph *graph = program->graph->family->graphs; graph != NULL;
         graph = graph->next_graph) {
        const bool root = graph == program->graph;
        sbit__lowered *result = &program->graphs[graph->index];
        if (graph->index >= program->graph_count || !graph->alive) {
            continue;
        }
        if (lower && (root || !(desc->tap_bodies && tapped))) {
            SBIT__TRY(sbit__lower_graph(graph, root ? program->kept : NULL,
                                        root ? program->kept_limit : 0, desc, result,
                                        &program->arena, error));
        }
        SBIT__TRY(sbit__lower_finish(graph, result, &program->arena, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__program_fill(sbit_program *program, const sbit_graph *source,
                                      const sbit_session_desc *desc, sbit_error *error)
{
    SBIT__TRY(sbit__program_check_desc(source, desc, error));
    program->graph_count = source->family->graph_count;
    program->graphs = (sbit__lowered *)sbit__arena_array(&program->arena, program->graph_count,
                                                         sizeof(sbit__lowered));
    if (program->graphs == NULL) {
        return sbit__fail_oom(error, program->graph_count * sizeof(sbit__lowered));
    }
    for (const sbit_graph *graph = source->family->graphs; graph != NULL;
         graph = graph->next_graph) {
        program->graphs[graph->index].source = graph;
    }
    SBIT__TRY(sbit__graph_clone_borrowing(source, &program->graph, error));
    SBIT__TRY(sbit__program_shape(program, desc, error));
    SBIT__TRY(sbit__program_check_shapes(program->graph, &program->desc, error));
    SBIT__TRY(sbit__op_check_forms(program->graph, error));
    SBIT__TRY(sbit__lower_expand_types(program->graph, error));
    for (sbit_graph *graph = program->graph->family->graphs; graph != NULL;
         graph = graph->next_graph) {
        if (graph->index < program->graph_count && graph->alive) {
            SBIT__TRY(
                sbit__lower_expand(graph, &program->graphs[graph->index], &program->arena, error));
        }
    }
    SBIT__TRY(sbit__unsupported_fail(program->graph, error));
    SBIT__TRY(sbit__program_lower(program, &program->desc, error));
    program->made = (sbit__made *)sbit__arena_array(
        &program->arena, program->graph->family->graph_count, sizeof(sbit__made));
    return program->made != NULL ? SBIT_OK : sbit__fail_oom(error, sizeof(sbit__made));
}

/* Lists of the desc are copied: sessions may be made later. */
static sbit_status sbit__program_copy(sbit_program *program, const void *from, size_t count,
                                      size_t bytes_each, const void **out, sbit_error *error)
{
    void *copy = NULL;
    if (*out == NULL) {
        return SBIT_OK;
    }
    copy = sbit__arena_array(&program->arena, count + 1, bytes_each);
    if (copy == NULL) {
        return sbit__fail_oom(error, count * bytes_each);
    }
    memcpy(copy, from, count * bytes_each);
    *out = copy;
    return SBIT_OK;
}

static sbit_status sbit__program_keep_desc(sbit_program *program, const sbit_session_desc *desc,
                                           sbit_error *error)
{
    const void *taps = desc->taps, *inputs = desc->inputs, *states = desc->states;
    const void *shapes = desc->shapes;
    program->desc = *desc;
    program->desc.outputs = NULL; /* they are the clone's */
    program->desc.output_count = 0;
    SBIT__TRY(
        sbit__program_copy(program, desc->taps, desc->tap_count, sizeof *desc->taps, &taps, error));
    SBIT__TRY(sbit__program_copy(program, desc->inputs, desc->input_count, sizeof *desc->inputs,
                                 &inputs, error));
    SBIT__TRY(sbit__program_copy(program, desc->states, desc->state_count, sizeof *desc->states,
                                 &states, error));
    SBIT__TRY(sbit__program_copy(program, desc->shapes, desc->shape_count, sizeof *desc->shapes,
                                 &shapes, error));
    program->desc.taps = (const sbit_value_id *)taps;
    program->desc.inputs = (const sbit_value_id *)inputs;
    program->desc.states = (const sbit_session_state *)states;
    program->desc.shapes = (const sbit_value_shape *)shapes;
    program->desc.shape_count = shapes != NULL ? desc->shape_count : 0;
    program->all_inputs = desc->outputs == NULL && desc->inputs == NULL;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__program_make(const sbit_graph *source, const sbit_session_desc *desc,
                                        sbit_program **out, sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(source);
    sbit_session_desc defaults;
    sbit_program *program = NULL;
    sbit_status status = SBIT_OK;
    if (sbit_graph_parent(source) != NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, sbit_graph_name(source),
                          "the body of a node cannot be run by itself");
    }
    program = (sbit_program *)sbit__calloc(&ctx->allocator, 1, sizeof *program);
    if (program == NULL) {
        return sbit__fail_oom(error, sizeof *program);
    }
    memset(&defaults, 0, sizeof defaults);
    desc = desc != NULL ? desc : &defaults;
    program->ctx = ctx;
    sbit__arena_init(&program->arena, &ctx->allocator);
    status = sbit__program_keep_desc(program, desc, error);
    if (status == SBIT_OK) {
        status = sbit__program_fill(program, source, desc, error);
    }
    if (status != SBIT_OK) {
        sbit_program_destroy(program);
        return status;
    }
    *out = program;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_program_destroy(sbit_program *program)
{
    if (program == NULL) {
        return;
    }
    const sbit_allocator *a = &program->ctx->allocator;
    while (program->blocks != NULL) {
        sbit__exec_block *block = program->blocks;
        program->blocks = block->next;
        sbit__free_aligned(a, block, block->total);
    }
    for (sbit__taken *taken = program->taken; taken != NULL; taken = taken->next) {
        sbit__free_aligned(a, taken->data, taken->bytes);
    }
    sbit_graph_destroy(program->graph);
    sbit__arena_deinit(&program->arena);
    sbit__free(a, program, sizeof *program);
}

SBIT__FN sbit_status sbit__program_take(sbit_program *program, sbit__dynamic *dynamic,
                                        sbit_error *error)
{
    sbit__taken *taken = NULL;
    if (dynamic->main == NULL) {
        return SBIT_OK;
    }
    taken = (sbit__taken *)sbit__arena_alloc(&program->arena, sizeof *taken);
    if (taken == NULL) {
        return sbit__fail_oom(error, sizeof *taken);
    }
    taken->data = dynamic->main;
    taken->bytes = dynamic->main_bytes;
    taken->next = program->taken;
    program->taken = taken;
    program->packed_bytes += taken->bytes;
    dynamic->main = NULL;
    dynamic->main_bytes = 0;
    return SBIT_OK;
}

SBIT__FN const sbit__made *sbit__program_made(const sbit_program *program, const sbit_graph *graph)
{
    return &program->made[graph->index];
}

SBIT__FN sbit__exec_value *sbit__program_constant(const sbit_program *program,
                                                  const sbit_graph *graph, uint32_t idx)
{
    return program->made[graph->index].values[idx];
}

SBIT__FN const sbit__lowered *sbit__program_lowered(const sbit_program *program,
                                                    const sbit_graph *graph)
{
    return graph->index < program->graph_count ? &program->graphs[graph->index] : NULL;
}
