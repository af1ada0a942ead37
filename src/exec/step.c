/* step.c: one action of a plan: what its row may ask for, prepare, run. >>step
 *
 * Called by: plan (what is known while planning), run. Calls: storage, infer, ops (row->prepare,
 * row->run).
 * A step whose output shapes depend on data is inferred again while running, now with the actual
 * inputs as constants; its outputs and those of SBIT_OP_DYNAMIC rows get memory of their own, which
 * is kept for the next run and only grows.
 */
#include "exec_private.h"

/* >>what a row may ask for while it runs; call->session is the step */

static void *sbit__call_alloc_packed(const sbit_op_call *call, size_t bytes)
{
    sbit__step *step = (sbit__step *)call->session;
    size_t counted = 0;
    void *data = step->packed == NULL
                     ? sbit__block_add(step->session, &step->packed, bytes, &counted)
                     : NULL;
    if (data != NULL) {
        memset(data, 0, bytes);
    }
    return data;
}

/* The block of the last time, if it has that size. */
static void *sbit__call_alloc_params(const sbit_op_call *call, size_t bytes)
{
    sbit__step *step = (sbit__step *)call->session;
    sbit__exec_node *data = step->data;
    if (data->params != NULL && data->params->bytes != bytes) {
        sbit__block_free_all(step->session, &data->params, &step->session->state_bytes);
    }
    if (data->params == NULL &&
        sbit__block_add(step->session, &data->params, bytes, &step->session->state_bytes) == NULL) {
        return NULL;
    }
    step->asked = true;
    memset(sbit__block_data(data->params), 0, bytes);
    return sbit__block_data(data->params);
}

static void sbit__call_release_input(const sbit_op_call *call, int32_t input)
{
    sbit__step *step = (sbit__step *)call->session;
    const bool counted = input >= 0 && input < call->input_count && input < 32;
    step->released |= counted ? 1u << input : 0;
}

static void *sbit__call_alloc_text(const sbit_op_call *call, size_t bytes)
{
    sbit_session *session = ((sbit__step *)call->session)->session;
    return sbit__block_add(session, &session->text, bytes, &session->dynamic_bytes);
}

/* The value of an output that the row may give storage to; NULL if there is none. */
static sbit_value *sbit__call_output(const sbit_op_call *call, int32_t output, sbit_value_id *id)
{
    const sbit__step *step = (const sbit__step *)call->session;
    if (output < 0 || (size_t)output >= step->node->output_count) {
        return NULL;
    }
    *id = step->node->outputs[output];
    return id->idx == 0 ? NULL : &step->session->values[id->idx];
}

static sbit_status sbit__call_no_output(const sbit_op_call *call, int32_t output, int64_t item,
                                        sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_INVALID_ARGUMENT, error,
                        "the row gives output %d, item %lld, which the node does not have",
                        (int)output, (long long)item);
}

static sbit_status sbit__call_alloc_output(const sbit_op_call *call, int32_t output, int64_t item,
                                           sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                           sbit_error *error)
{
    sbit_session *session = ((sbit__step *)call->session)->session;
    sbit_value_id id;
    sbit_value *value = sbit__call_output(call, output, &id);
    sbit_value *target = value;
    size_t bytes = 0;
    if (value == NULL || item >= (item < 0 ? 0 : value->item_count)) {
        if (value == NULL || item >= 0) {
            return sbit__call_no_output(call, output, item, error);
        }
    }
    if (item >= 0) {
        target = &value->items[item];
        SBIT__TRY(sbit__exec_shape(dtype, rank, dims, &target->tensor, &bytes, error));
        target->kind = SBIT_KIND_TENSOR;
        target->tensor.data = sbit__block_add(session, &session->dynamics[id.idx].items, bytes,
                                              &session->dynamic_bytes);
        return target->tensor.data == NULL ? sbit__fail_oom(error, bytes) : SBIT_OK;
    }
    target->kind = SBIT_KIND_TENSOR;
    return sbit__dynamic_tensor(session, &session->dynamics[id.idx], dtype, rank, dims,
                                &target->tensor, error);
}

static sbit_status sbit__call_alloc_items(const sbit_op_call *call, int32_t output,
                                          sbit_value_kind kind, int64_t count, sbit_error *error)
{
    sbit_session *session = ((sbit__step *)call->session)->session;
    sbit_value_id id;
    sbit_value *value = sbit__call_output(call, output, &id);
    sbit_value *items = NULL;
    size_t bytes = 0;
    if (value == NULL || count < 0) {
        return sbit__call_no_output(call, output, count, error);
    }
    if (!sbit__mul_size((size_t)count, sizeof(sbit_value), &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a sequence is too long");
    }
    items = (sbit_value *)sbit__block_add(session, &session->dynamics[id.idx].items, bytes,
                                          &session->dynamic_bytes);
    if (items == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memset(items, 0, bytes);
    memset(value, 0, sizeof *value);
    value->kind = kind;
    value->items = items;
    value->item_count = count;
    return SBIT_OK;
}

static sbit_status sbit__call_copy_output(const sbit_op_call *call, int32_t output, int64_t item,
                                          const sbit_value *from, sbit_error *error)
{
    sbit_session *session = ((sbit__step *)call->session)->session;
    sbit_value_id id;
    sbit_value *value = sbit__call_output(call, output, &id);
    if (value == NULL || item >= value->item_count) {
        return sbit__call_no_output(call, output, item, error);
    }
    return sbit__value_copy(session, &session->dynamics[id.idx].items, from,
                            item < 0 ? value : &value->items[item], error);
}

/* >>steps */

SBIT__FN void sbit__exec_free_state(sbit_session *session, sbit__exec_node *node)
{
    sbit__block_free_all(session, &node->params, &session->state_bytes);
    sbit__free(&session->allocator, node->prepared, node->prepared_bytes);
    node->prepared = NULL;
    node->prepared_bytes = 0;
    node->prepared_holds = false;
}

SBIT__FN sbit_status sbit__exec_scratch(sbit_session *session, size_t bytes, sbit_error *error)
{
    const sbit_allocator *a = &session->allocator;
    if (bytes == session->scratch_bytes) {
        return SBIT_OK;
    }
    sbit__free_aligned(a, session->scratch, session->scratch_bytes);
    session->scratch = NULL;
    session->scratch_bytes = 0;
    if (bytes > 0) {
        session->scratch = sbit__alloc_aligned(a, bytes);
        if (session->scratch == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        session->scratch_bytes = bytes;
    }
    return SBIT_OK;
}

static bool sbit__step_arrays(sbit_session *session, sbit__step *step)
{
    sbit__arena *arena = &session->plan_arena;
    const size_t ins = step->node->input_count, outs = step->node->output_count;
    const sbit_type **in_type =
        (const sbit_type **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    sbit_type **out_type = (sbit_type **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    const sbit_tensor **in =
        (const sbit_tensor **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    sbit_tensor **out = (sbit_tensor **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    const sbit_value **in_value =
        (const sbit_value **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    sbit_value **out_value = (sbit_value **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    step->constant_in = (const sbit_tensor **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    if (in_type == NULL || out_type == NULL || in == NULL || out == NULL || in_value == NULL ||
        out_value == NULL || step->constant_in == NULL) {
        return false;
    }
    for (size_t i = 0; i < ins; i++) {
        const uint32_t idx = step->node->inputs[i].idx;
        if (idx != 0) {
            in_type[i] = &session->infer.types[idx];
            in[i] = &session->values[idx].tensor;
            in_value[i] = &session->values[idx];
            step->constant_in[i] = session->plan[idx].place == SBIT__PLACE_CONSTANT ? in[i] : NULL;
        }
    }
    for (size_t i = 0; i < outs; i++) {
        const uint32_t idx = step->node->outputs[i].idx;
        if (idx != 0) {
            out_type[i] = &session->infer.types[idx];
            out[i] = &session->values[idx].tensor;
            out_value[i] = &session->values[idx];
            step->tapped = step->tapped || session->tapped[idx];
        }
    }
    step->call.in_type = in_type;
    step->call.out_type = out_type;
    step->call.in = in;
    step->call.out = out;
    step->call.in_value = in_value;
    step->call.out_value = out_value;
    return true;
}

SBIT__FN sbit_status sbit__step_build(sbit_session *session, sbit__step *step, sbit_error *error)
{
    sbit_op_call *call = &step->call;
    step->session = session;
    step->data = &session->nodes[step->node->id.idx];
    if (!sbit__step_arrays(session, step)) {
        return sbit__fail_oom(error, sizeof *step);
    }
    call->ctx = session->ctx;
    call->kernels = sbit__kernels(session->ctx);
    call->graph = session->graph;
    call->node = step->node;
    call->row = step->data->row;
    call->opset = step->data->opset;
    call->input_count = (int32_t)step->node->input_count;
    call->output_count = (int32_t)step->node->output_count;
    call->packed = step->data->packed;
    call->alloc_packed = sbit__call_alloc_packed;
    call->alloc_params = sbit__call_alloc_params;
    call->release_input = sbit__call_release_input;
    call->alloc_text = sbit__call_alloc_text;
    call->alloc_output = sbit__call_alloc_output;
    call->alloc_items = sbit__call_alloc_items;
    call->copy_output = sbit__call_copy_output;
    call->run_body = sbit__exec_run_body;
    call->session = step;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__step_prepare(sbit__step *step, sbit_error *error)
{
    sbit_op_call call = step->call;
    size_t scratch_bytes = 0;
    if (call.row->prepare == NULL || step->copies) {
        return SBIT_OK;
    }
    call.in = step->constant_in;
    call.out = NULL;
    call.in_value = NULL;
    call.out_value = NULL;
    call.scratch_bytes = &scratch_bytes;
    step->asked = false;
    SBIT__TRY(call.row->prepare(&call, error));
    step->call.params = step->asked ? sbit__block_data(step->data->params) : NULL;
    step->scratch_bytes = scratch_bytes;
    return SBIT_OK;
}

/* Types that were not known when the session planned: no row is run on what it does not list. */
static sbit_status sbit__step_check_inputs(const sbit__step *step, sbit_error *error)
{
    const sbit_op_call *call = &step->call;
    for (int32_t i = 0; i < call->input_count; i++) {
        const uint32_t idx = step->node->inputs[i].idx;
        const sbit_value *value = &step->session->values[idx];
        if (idx == 0) {
            continue;
        }
        if (value->kind != SBIT_KIND_TENSOR) {
            if ((call->row->flags & SBIT_OP_KINDS) == 0) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "input %d must be a tensor, not a sequence or optional",
                                    (int)i);
            }
        } else if (i == 0 && (call->row->types & SBIT_T(value->tensor.dtype)) == 0) {
            return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "element type %s",
                                sbit_dtype_name((int32_t)value->tensor.dtype));
        }
    }
    return SBIT_OK;
}

/* Prepares while running, unless the types are those of the last time. */
static sbit_status sbit__step_prepare_late(sbit__step *step, sbit_error *error)
{
    const sbit_op_call *call = &step->call;
    sbit__exec_node *data = step->data;
    const sbit_allocator *a = &step->session->allocator;
    const size_t ins = (size_t)call->input_count, count = ins + (size_t)call->output_count;
    const size_t bytes = (count + 1) * sizeof(sbit_type);
    bool same = data->prepared_holds;
    if (call->row->prepare == NULL) {
        return SBIT_OK;
    }
    for (size_t i = 0; same && i < count; i++) {
        const sbit_type *type = i < ins ? call->in_type[i] : call->out_type[i - ins];
        same = type == NULL || sbit__graph_type_equal(type, &data->prepared[i]);
    }
    if (!same) {
        data->prepared_holds = false;
        if (data->prepared == NULL) {
            data->prepared = (sbit_type *)sbit__alloc(a, bytes);
            data->prepared_bytes = bytes;
        }
        if (data->prepared == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        for (size_t i = 0; i < count; i++) {
            const sbit_type *type = i < ins ? call->in_type[i] : call->out_type[i - ins];
            data->prepared[i] = type != NULL ? *type : sbit__type_unknown();
        }
        SBIT__TRY(sbit__step_prepare(step, error));
        data->prepared_holds = true;
    }
    return step->scratch_bytes > step->session->scratch_bytes
               ? sbit__exec_scratch(step->session, step->scratch_bytes, error)
               : SBIT_OK;
}

/* Gives an output the memory for its type, which is now known. */
static sbit_status sbit__step_allocate(sbit__step *step, uint32_t idx, sbit_error *error)
{
    sbit_session *session = step->session;
    const sbit_type *type = &session->infer.types[idx];
    int64_t dims[SBIT_MAX_RANK];
    if (!sbit__type_static(type)) {
        return sbit_op_fail(&step->call, SBIT_ERR_SHAPE, error,
                            "the shape of output '%s' cannot be found",
                            sbit_graph_value(session->graph, step->node->outputs[0])->name);
    }
    for (int32_t i = 0; i < type->rank; i++) {
        dims[i] = type->dims[i].value;
    }
    session->values[idx].kind = SBIT_KIND_TENSOR;
    return sbit__dynamic_tensor(session, &session->dynamics[idx], type->dtype, type->rank, dims,
                                &session->values[idx].tensor, error);
}

/* Infers the outputs from the actual inputs. Followed elements are forgotten afterwards: they hold
 * for this run only. */
static sbit_status sbit__step_resolve(sbit__step *step, sbit_error *error)
{
    sbit_session *session = step->session;
    sbit__infer *infer = &session->infer;
    const sbit_node *node = step->node;
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    sbit__arena_init(&arena, &session->allocator);
    infer->arena = &arena;
    infer->own_body_nodes = 0; /* each run has them anew */
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        if (idx != 0 && session->plan[idx].place != SBIT__PLACE_CONSTANT) {
            const bool is_tensor = session->values[idx].kind == SBIT_KIND_TENSOR;
            infer->known[idx] = is_tensor ? &session->values[idx].tensor : NULL;
            infer->elems[idx] = NULL;
        }
    }
    status = sbit__infer_node(infer, node->id, error);
    for (size_t i = 0; i < node->input_count + node->output_count; i++) {
        const uint32_t idx =
            i < node->input_count ? node->inputs[i].idx : node->outputs[i - node->input_count].idx;
        if (idx != 0) {
            infer->elems[idx] = NULL;
            if (session->plan[idx].place != SBIT__PLACE_CONSTANT) {
                infer->known[idx] = NULL;
            }
        }
    }
    infer->arena = &session->plan_arena;
    sbit__arena_deinit(&arena);
    return status;
}

static sbit_status sbit__step_storage(sbit__step *step, sbit_error *error)
{
    sbit_session *session = step->session;
    const bool dynamic = (step->data->row->flags & SBIT_OP_DYNAMIC) != 0 || step->copies;
    if (step->late) {
        SBIT__TRY(sbit__step_check_inputs(step, error));
    }
    if (step->resolve) {
        SBIT__TRY(sbit__step_resolve(step, error));
    }
    for (size_t i = 0; i < step->node->output_count; i++) {
        const uint32_t idx = step->node->outputs[i].idx;
        if (idx == 0 || session->plan[idx].place != SBIT__PLACE_DYNAMIC) {
            continue;
        }
        if (!dynamic) {
            SBIT__TRY(sbit__step_allocate(step, idx, error));
            continue;
        }
        sbit__block_free_all(session, &session->dynamics[idx].items, &session->dynamic_bytes);
        memset(&session->values[idx], 0, sizeof session->values[idx]);
    }
    return step->late ? sbit__step_prepare_late(step, error) : SBIT_OK;
}

/* After a DYNAMIC row: outputs must be there and, where a plan relied on a shape, have it. */
static sbit_status sbit__step_check_dynamic(sbit__step *step, sbit_error *error)
{
    sbit_session *session = step->session;
    for (size_t i = 0; i < step->node->output_count; i++) {
        const uint32_t idx = step->node->outputs[i].idx;
        const sbit_value *value = &session->values[idx];
        sbit_type actual;
        if (idx == 0) {
            continue;
        }
        if (value->kind == SBIT_KIND_TENSOR && value->tensor.dtype == SBIT_UNDEFINED) {
            return sbit_op_fail(&step->call, SBIT_ERR_STATE, error,
                                "the row did not give output %d", (int)i);
        }
        actual = sbit__type_of_value(
            value, &sbit_graph_value(session->graph, step->node->outputs[i])->type);
        if (session->plan[idx].fixed &&
            !sbit__graph_type_equal(&actual, &session->infer.types[idx])) {
            char a[96], b[96];
            sbit__type_describe(session->graph, &session->infer.types[idx], a, sizeof a);
            sbit__type_describe(session->graph, &actual, b, sizeof b);
            return sbit_op_fail(&step->call, SBIT_ERR_SHAPE, error,
                                "output %d was inferred as %s, but is %s", (int)i, a, b);
        }
        session->infer.types[idx] = actual;
    }
    return SBIT_OK;
}

static sbit_status sbit__step_compute(sbit__step *step, sbit_error *error)
{
    sbit_session *session = step->session;
    if (step->alias != 0) {
        session->values[step->node->outputs[0].idx].tensor.data =
            session->values[step->alias].tensor.data;
    }
    if (step->copies) {
        return sbit__call_copy_output(&step->call, 0, -1, step->call.in_value[0], error);
    }
    if (!step->has_scratch) {
        step->call.scratch = session->scratch;
    }
    return step->data->row->run(&step->call, error);
}

/* Hands on what a row said of its failure, with the node in front if it is not named yet. */
static sbit_status sbit__step_fail(const sbit__step *step, sbit_status status,
                                   const sbit_error *said, sbit_error *error)
{
    char node[160];
    sbit_graph_describe(step->session->graph, step->node->id, node, sizeof node);
    if (said->message[0] != '\0' && strncmp(said->message, node, strlen(node)) == 0) {
        return sbit__fail(error, status, step->node->name, "%s", said->message);
    }
    return sbit__fail(error, status, step->node->name, "%s: %s", node,
                      said->message[0] != '\0' ? said->message : sbit_status_text(status));
}

SBIT__FN sbit_status sbit__step_run(sbit__step *step, sbit_error *error)
{
    const bool dynamic = (step->data->row->flags & SBIT_OP_DYNAMIC) != 0 || step->copies;
    sbit_error said;
    sbit_status status = SBIT_OK;
    said.message[0] = '\0';
    status = sbit__step_storage(step, &said);
    if (status == SBIT_OK) {
        status = sbit__step_compute(step, &said);
    }
    if (status == SBIT_OK && dynamic) {
        status = sbit__step_check_dynamic(step, &said);
    }
    if (step->data->results != NULL) {
        sbit__body_results_free(step->session, step->data);
    }
    return status == SBIT_OK ? SBIT_OK : sbit__step_fail(step, status, &said, error);
}

SBIT__FN sbit_status sbit__step_evaluate(sbit_session *session, sbit_node_id id, sbit_error *error)
{
    sbit__step step;
    sbit_status status = SBIT_OK;
    memset(&step, 0, sizeof step);
    step.node = sbit_graph_node(session->graph, id);
    SBIT__TRY(sbit__step_build(session, &step, error));
    for (size_t i = 0; i < step.node->output_count; i++) {
        const uint32_t idx = step.node->outputs[i].idx;
        session->plan[idx].place = SBIT__PLACE_DYNAMIC;
        sbit__dynamic_set_constant(session, &session->dynamics[idx], idx != 0);
    }
    status = sbit__step_prepare(&step, error);
    if (status == SBIT_OK && step.scratch_bytes > session->scratch_bytes) {
        status = sbit__exec_scratch(session, step.scratch_bytes, error);
    }
    if (status == SBIT_OK) {
        status = sbit__step_run(&step, error);
    }
    sbit__exec_free_state(session, step.data);
    return status;
}
