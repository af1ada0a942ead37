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
    sbit_session *session = ((sbit__step *)call->session)->session;
    sbit__packing *packing = session->packing;
    if (packing == NULL || packing->block != NULL) {
        return NULL;
    }
    packing->block = sbit__block_make(&session->allocator, bytes);
    return packing->block != NULL ? memset(sbit__block_data(packing->block), 0, bytes) : NULL;
}

static void *sbit__params_data(sbit__params *params)
{
    return params + 1;
}

/* The block of the last time, if it has that size. */
static void *sbit__call_alloc_params(const sbit_op_call *call, size_t bytes)
{
    sbit__step *step = (sbit__step *)call->session;
    sbit_session *session = step->session;
    sbit__exec_node *data = step->data;
    if (data->params != NULL &&
        (data->params->bytes != bytes || data->params->late != (size_t)step->late)) {
        sbit__exec_free_params(session, data);
    }
    if (data->params == NULL) {
        size_t total = 0;
        if (sbit__add_size(bytes, sizeof *data->params, &total)) {
            data->params = (sbit__params *)sbit__alloc(
                step->late ? &session->dynamic : &session->allocator, total);
        }
        if (data->params == NULL) {
            return NULL;
        }
        data->params->bytes = bytes;
        data->params->late = step->late ? 1 : 0;
        session->state_bytes += bytes;
    }
    step->asked = true;
    memset(sbit__params_data(data->params), 0, bytes);
    return sbit__params_data(data->params);
}

static void sbit__call_release_input(const sbit_op_call *call, int32_t input)
{
    sbit__packing *packing = ((sbit__step *)call->session)->session->packing;
    const bool counted = packing != NULL && input >= 0 && input < call->input_count && input < 32;
    if (counted) {
        packing->released |= 1u << input;
    }
}

static void *sbit__call_alloc_text(const sbit_op_call *call, size_t bytes)
{
    sbit_session *session = ((sbit__step *)call->session)->session;
    return sbit__block_add(session, &session->text, bytes);
}

/* An output that the row may give storage to; NULL if there is none. */
static sbit__exec_value *sbit__call_output(const sbit_op_call *call, int32_t output)
{
    const sbit__step *step = (const sbit__step *)call->session;
    const sbit_node *node = step->data->node;
    return output < 0 || (size_t)output >= node->output_count
               ? NULL
               : step->session->values[node->outputs[output].idx];
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
    sbit__exec_value *out = sbit__call_output(call, output);
    sbit_value *target = out != NULL ? &out->value : NULL;
    size_t bytes = 0;
    if (out == NULL || (item >= 0 && item >= out->value.item_count)) {
        return sbit__call_no_output(call, output, item, error);
    }
    if (item >= 0) {
        target = &out->value.items[item];
        SBIT__TRY(sbit__exec_shape(dtype, rank, dims, &target->tensor, &bytes, error));
        target->kind = SBIT_KIND_TENSOR;
        target->tensor.data = sbit__block_add(session, &out->dynamic.items, bytes);
        return target->tensor.data == NULL ? sbit__fail_oom(error, bytes) : SBIT_OK;
    }
    target->kind = SBIT_KIND_TENSOR;
    return sbit__dynamic_tensor(session, &out->dynamic, dtype, rank, dims, &target->tensor, error);
}

static sbit_status sbit__call_alloc_items(const sbit_op_call *call, int32_t output,
                                          sbit_value_kind kind, int64_t count, sbit_error *error)
{
    sbit_session *session = ((sbit__step *)call->session)->session;
    sbit__exec_value *out = sbit__call_output(call, output);
    sbit_value *items = NULL;
    size_t bytes = 0;
    if (out == NULL || count < 0) {
        return sbit__call_no_output(call, output, count, error);
    }
    if (!sbit__mul_size((size_t)count, sizeof(sbit_value), &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a sequence is too long");
    }
    items = (sbit_value *)sbit__block_add(session, &out->dynamic.items, bytes);
    if (items == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memset(items, 0, bytes);
    memset(&out->value, 0, sizeof out->value);
    out->value.kind = kind;
    out->value.items = items;
    out->value.item_count = count;
    return SBIT_OK;
}

static sbit_status sbit__call_copy_output(const sbit_op_call *call, int32_t output, int64_t item,
                                          const sbit_value *from, sbit_error *error)
{
    sbit_session *session = ((sbit__step *)call->session)->session;
    sbit__exec_value *out = sbit__call_output(call, output);
    if (out == NULL || item >= out->value.item_count) {
        return sbit__call_no_output(call, output, item, error);
    }
    return sbit__value_copy(session, &out->dynamic.items, from,
                            item < 0 ? &out->value : &out->value.items[item], error);
}

/* >>steps */

SBIT__FN void sbit__exec_free_params(sbit_session *session, sbit__exec_node *node)
{
    if (node->params != NULL) {
        session->state_bytes -= node->params->bytes;
        sbit__free(node->params->late ? &session->dynamic : &session->allocator, node->params,
                   node->params->bytes + sizeof *node->params);
        node->params = NULL;
    }
    if (node->late != NULL) {
        sbit__free(&session->dynamic, node->late, node->late->bytes);
        node->late = NULL;
    }
}

SBIT__FN sbit_status sbit__exec_scratch(sbit_session *session, size_t bytes, sbit_error *error)
{
    const sbit_allocator *a = session->planned ? &session->dynamic : &session->allocator;
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

SBIT__FN sbit_op_call *sbit__step_call(sbit__step *step)
{
    sbit_session *session = step->session;
    sbit_op_call *call = &session->call;
    const sbit__exec_node *data = step->data;
    const sbit__call_arrays *arrays = &session->arrays;
    call->node = data->node;
    call->row = data->row;
    call->opset = data->opset;
    call->input_count = (int32_t)data->node->input_count;
    call->output_count = (int32_t)data->node->output_count;
    call->packed = data->packed;
    call->session = step;
    for (int32_t i = 0; i < call->input_count; i++) {
        sbit__exec_value *value = session->values[data->node->inputs[i].idx];
        arrays->in_type[i] = value != NULL ? &value->type : NULL;
        arrays->in[i] = value != NULL ? &value->value.tensor : NULL;
        arrays->in_value[i] = value != NULL ? &value->value : NULL;
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        sbit__exec_value *value = session->values[data->node->outputs[i].idx];
        arrays->out_type[i] = value != NULL ? &value->type : NULL;
        arrays->out[i] = value != NULL ? &value->value.tensor : NULL;
        arrays->out_value[i] = value != NULL ? &value->value : NULL;
    }
    return call;
}

SBIT__FN sbit_op_call sbit__step_constant_call(sbit__step *step)
{
    sbit_op_call call = *sbit__step_call(step);
    const sbit__call_arrays *arrays = &step->session->arrays;
    for (int32_t i = 0; i < call.input_count; i++) {
        const uint32_t idx = call.node->inputs[i].idx;
        arrays->constant_in[i] = sbit__exec_place(step->session, idx) == SBIT__PLACE_CONSTANT
                                     ? &step->session->values[idx]->value.tensor
                                     : NULL;
    }
    call.in = arrays->constant_in;
    call.out = NULL;
    call.in_value = NULL;
    call.out_value = NULL;
    return call;
}

SBIT__FN sbit_status sbit__session_make_call(sbit_session *session, size_t ins, size_t outs,
                                             sbit_error *error)
{
    sbit__arena *arena = &session->arena;
    sbit__call_arrays *a = &session->arrays;
    sbit_op_call *call = &session->call;
    a->in_type = (const sbit_type **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    a->out_type = (sbit_type **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    a->in = (const sbit_tensor **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    a->out = (sbit_tensor **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    a->in_value = (const sbit_value **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    a->out_value = (sbit_value **)sbit__arena_array(arena, outs + 1, sizeof(void *));
    a->constant_in = (const sbit_tensor **)sbit__arena_array(arena, ins + 1, sizeof(void *));
    if (a->in_type == NULL || a->out_type == NULL || a->in == NULL || a->out == NULL ||
        a->in_value == NULL || a->out_value == NULL || a->constant_in == NULL) {
        return sbit__fail_oom(error, (ins + outs) * sizeof(void *));
    }
    call->in_type = a->in_type;
    call->out_type = a->out_type;
    call->in = a->in;
    call->out = a->out;
    call->in_value = a->in_value;
    call->out_value = a->out_value;
    call->ctx = session->ctx;
    call->kernels = sbit__kernels(session->ctx);
    call->graph = session->graph;
    call->alloc_packed = sbit__call_alloc_packed;
    call->alloc_params = sbit__call_alloc_params;
    call->release_input = sbit__call_release_input;
    call->alloc_text = sbit__call_alloc_text;
    call->alloc_output = sbit__call_alloc_output;
    call->alloc_items = sbit__call_alloc_items;
    call->copy_output = sbit__call_copy_output;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__step_prepare(sbit__step *step, sbit_error *error)
{
    size_t scratch_bytes = 0;
    if (step->data->row->prepare == NULL || step->copies) {
        return SBIT_OK;
    }
    sbit_op_call call = sbit__step_constant_call(step);
    call.scratch_bytes = &scratch_bytes;
    step->asked = false;
    SBIT__TRY(call.row->prepare(&call, error));
    step->scratch_bytes = scratch_bytes;
    return SBIT_OK;
}

/* Types that were not known when the session planned: no row is run on what it does not list. */
static sbit_status sbit__step_check_inputs(const sbit_op_call *call, sbit_error *error)
{
    for (int32_t i = 0; i < call->input_count; i++) {
        const sbit_value *value = call->in_value[i];
        if (value == NULL) {
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
    const sbit_op_call *call = &step->session->call;
    sbit__exec_node *data = step->data;
    const size_t ins = (size_t)call->input_count, count = ins + (size_t)call->output_count;
    const size_t bytes = sizeof *data->late + count * sizeof(sbit_type);
    bool same = data->late != NULL && data->late->holds;
    if (call->row->prepare == NULL) {
        return SBIT_OK;
    }
    for (size_t i = 0; same && i < count; i++) {
        const sbit_type *type = i < ins ? call->in_type[i] : call->out_type[i - ins];
        same = type == NULL || sbit__graph_type_equal(type, &data->late->types[i]);
    }
    if (!same) {
        if (data->late == NULL) {
            data->late = (sbit__exec_late *)sbit__alloc(&step->session->dynamic, bytes);
        }
        if (data->late == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        data->late->bytes = bytes;
        data->late->holds = false;
        for (size_t i = 0; i < count; i++) {
            const sbit_type *type = i < ins ? call->in_type[i] : call->out_type[i - ins];
            data->late->types[i] = type != NULL ? *type : sbit__type_unknown();
        }
        SBIT__TRY(sbit__step_prepare(step, error));
        data->late->holds = true;
    }
    return step->scratch_bytes > step->session->scratch_bytes
               ? sbit__exec_scratch(step->session, step->scratch_bytes, error)
               : SBIT_OK;
}

/* Gives an output the memory for its type, which is now known. */
static sbit_status sbit__step_allocate(sbit__step *step, uint32_t idx, sbit_error *error)
{
    sbit_session *session = step->session;
    sbit__exec_value *out = session->values[idx];
    const sbit_value_id id = {idx};
    const sbit_type *type = &out->type;
    int64_t dims[SBIT_MAX_RANK];
    if (!sbit__type_static(type)) {
        return sbit_op_fail(&session->call, SBIT_ERR_SHAPE, error,
                            "the shape of output '%s' cannot be found",
                            sbit_graph_value(session->graph, id)->name);
    }
    for (int32_t i = 0; i < type->rank; i++) {
        dims[i] = type->dims[i].value;
    }
    out->value.kind = SBIT_KIND_TENSOR;
    return sbit__dynamic_tensor(session, &out->dynamic, type->dtype, type->rank, dims,
                                &out->value.tensor, error);
}

/* Infers the outputs from the actual inputs. Followed elements are forgotten afterwards: they hold
 * for this run only. */
static sbit_status sbit__step_resolve(sbit__step *step, sbit_error *error)
{
    sbit_session *session = step->session;
    sbit__infer *infer = &session->infer;
    const sbit_node *node = step->data->node;
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    sbit__arena_init(&arena, &session->dynamic);
    arena.block_bytes = SBIT__EXEC_ARENA;
    infer->arena = &arena;
    infer->own_body_nodes = 0; /* each run has them anew */
    for (size_t i = 0; i < node->input_count; i++) {
        const uint32_t idx = node->inputs[i].idx;
        if (idx != 0 && sbit__exec_place(session, idx) != SBIT__PLACE_CONSTANT) {
            const sbit_value *value = &session->values[idx]->value;
            infer->known[idx] = value->kind == SBIT_KIND_TENSOR ? &value->tensor : NULL;
            infer->elems[idx] = NULL;
        }
    }
    status = sbit__infer_node(infer, node->id, error);
    for (size_t i = 0; i < node->input_count + node->output_count; i++) {
        const uint32_t idx =
            i < node->input_count ? node->inputs[i].idx : node->outputs[i - node->input_count].idx;
        if (idx != 0) {
            infer->elems[idx] = NULL;
            if (sbit__exec_place(session, idx) != SBIT__PLACE_CONSTANT) {
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
    const sbit_node *node = step->data->node;
    const bool dynamic = (step->data->row->flags & SBIT_OP_DYNAMIC) != 0 || step->copies;
    if (step->late) {
        SBIT__TRY(sbit__step_check_inputs(&session->call, error));
    }
    if (step->resolve) {
        SBIT__TRY(sbit__step_resolve(step, error));
    }
    for (size_t i = 0; i < node->output_count; i++) {
        const uint32_t idx = node->outputs[i].idx;
        sbit__exec_value *out = session->values[idx];
        if (sbit__exec_place(session, idx) != SBIT__PLACE_DYNAMIC) {
            continue;
        }
        if (!dynamic) {
            SBIT__TRY(sbit__step_allocate(step, idx, error));
            continue;
        }
        sbit__block_free_all(session, &out->dynamic.items);
        memset(&out->value, 0, sizeof out->value);
    }
    return step->late ? sbit__step_prepare_late(step, error) : SBIT_OK;
}

/* After a DYNAMIC row: outputs must be there and, where a plan relied on a shape, have it. */
static sbit_status sbit__step_check_dynamic(sbit__step *step, sbit_error *error)
{
    sbit_session *session = step->session;
    const sbit_node *node = step->data->node;
    for (size_t i = 0; i < node->output_count; i++) {
        sbit__exec_value *out = session->values[node->outputs[i].idx];
        sbit_type actual;
        if (out == NULL) {
            continue;
        }
        if (out->value.kind == SBIT_KIND_TENSOR && out->value.tensor.dtype == SBIT_UNDEFINED) {
            return sbit_op_fail(&session->call, SBIT_ERR_STATE, error,
                                "the row did not give output %d", (int)i);
        }
        actual = sbit__type_of_value(&out->value,
                                     &sbit_graph_value(session->graph, node->outputs[i])->type);
        if (out->fixed && !sbit__graph_type_equal(&actual, &out->type)) {
            char a[96], b[96];
            sbit__type_describe(session->graph, &out->type, a, sizeof a);
            sbit__type_describe(session->graph, &actual, b, sizeof b);
            return sbit_op_fail(&session->call, SBIT_ERR_SHAPE, error,
                                "output %d was inferred as %s, but is %s", (int)i, a, b);
        }
        out->type = actual;
    }
    return SBIT_OK;
}

/* Whether all outputs have their memory and no element: then there is nothing to compute, though
 * rows may count along other axes, whose sizes such tensors do not limit. */
static bool sbit__step_is_empty(const sbit__step *step)
{
    const sbit_op_call *call = &step->session->call;
    bool empty = call->output_count > 0 &&
                 (step->data->row->flags & (SBIT_OP_DYNAMIC | SBIT_OP_BODY)) == 0;
    for (int32_t i = 0; empty && i < call->output_count; i++) {
        empty = call->out[i] == NULL || sbit_tensor_count(call->out[i]) == 0;
    }
    return empty;
}

static sbit_status sbit__step_compute(sbit__step *step, sbit_error *error)
{
    sbit_session *session = step->session;
    sbit_op_call *call = &session->call;
    if (step->alias != 0) {
        session->values[step->data->node->outputs[0].idx]->value.tensor.data =
            session->values[step->alias]->value.tensor.data;
    }
    if (step->copies) {
        return sbit__call_copy_output(call, 0, -1, call->in_value[0], error);
    }
    call->params = step->asked ? sbit__params_data(step->data->params) : NULL;
    call->scratch =
        step->has_scratch ? (char *)session->block + step->scratch.offset : session->scratch;
    return sbit__step_is_empty(step) ? SBIT_OK : step->data->row->run(call, error);
}

/* Hands on what a row said of its failure, with the node in front if it is not named yet. */
static sbit_status sbit__step_fail(const sbit__step *step, sbit_status status,
                                   const sbit_error *said, sbit_error *error)
{
    char node[160];
    sbit_graph_describe(step->session->graph, step->data->node->id, node, sizeof node);
    if (said->message[0] != '\0' && strncmp(said->message, node, strlen(node)) == 0) {
        return sbit__fail(error, status, step->data->node->name, "%s", said->message);
    }
    return sbit__fail(error, status, step->data->node->name, "%s: %s", node,
                      said->message[0] != '\0' ? said->message : sbit_status_text(status));
}

SBIT__FN sbit_status sbit__step_run(sbit__step *step, sbit_error *error)
{
    const bool dynamic = (step->data->row->flags & SBIT_OP_DYNAMIC) != 0 || step->copies;
    sbit_error said;
    sbit_status status = SBIT_OK;
    said.message[0] = '\0';
    (void)sbit__step_call(step);
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

SBIT__FN sbit_status sbit__step_evaluate(sbit_session *session, sbit__exec_node *node,
                                         sbit_error *error)
{
    sbit__step step;
    sbit_status status = SBIT_OK;
    memset(&step, 0, sizeof step);
    step.session = session;
    step.data = node;
    for (size_t i = 0; i < node->node->output_count; i++) {
        sbit__exec_value *out = session->values[node->node->outputs[i].idx];
        if (out != NULL) {
            out->place = SBIT__PLACE_DYNAMIC;
            sbit__dynamic_set_constant(session, &out->dynamic, true);
        }
    }
    status = sbit__step_prepare(&step, error);
    if (status == SBIT_OK && step.scratch_bytes > session->scratch_bytes) {
        status = sbit__exec_scratch(session, step.scratch_bytes, error);
    }
    if (status == SBIT_OK) {
        status = sbit__step_run(&step, error);
    }
    sbit__exec_free_params(session, node);
    return status;
}
