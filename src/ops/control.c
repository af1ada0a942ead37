/* control.c: If, Loop, Scan, and the operators of sequences and optionals. >>control
 *
 * Called by: exec through the rows. Calls: bodies through call->run_body and call->infer_body.
 * Does: all opsets of If, Loop and Scan (8 with its batch axis, 9 on); sequences and optionals of
 * tensors; SequenceMap. A loop without a limit asks the user's progress callback now and then, so
 * that it can be cancelled.
 * Does not: plan or run graphs; that is the executor's.
 * Memory: arrays of values for a body's inputs and outputs are scratch, sized by prepare. States
 * go from one call's results to the next call's inputs without a copy; what a Loop stacks is kept
 * in a list that the output itself stores until its length is known.
 */
#include "elements_private.h"

#if !SPARSEBIT_NO_OPS_CONTROL

/* >>types */

/* Makes `into` a type that both have: what differs becomes unknown. */
static void sbit__control_join(sbit_type *into, const sbit_type *from)
{
    if (into->kind != from->kind || into->of != from->of) {
        *into = sbit__type_unknown();
        return;
    }
    into->dtype = into->dtype == from->dtype ? into->dtype : SBIT_UNDEFINED;
    if (into->rank != from->rank) {
        into->rank = -1;
        return;
    }
    for (int32_t i = 0; i < into->rank; i++) {
        if (!sbit__dim_equal(into->dims[i], from->dims[i])) {
            into->dims[i] = sbit__dim_any();
        }
    }
}

static const sbit_graph *sbit__control_body(const sbit_op_call *call, const char *name)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    return attr != NULL && attr->type == SBIT_ONNX_ATTR_GRAPH ? attr->g : NULL;
}

static sbit_status sbit__control_check_body(const sbit_op_call *call, const char *name,
                                            int64_t inputs, int64_t least_outputs,
                                            const sbit_graph **body, sbit_error *error)
{
    *body = sbit__control_body(call, name);
    if (*body == NULL) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "it has no graph '%s'", name);
    }
    if ((int64_t)sbit_graph_input_count(*body) != inputs ||
        (int64_t)sbit_graph_output_count(*body) < least_outputs) {
        return sbit_op_fail(
            call, SBIT_ERR_INVALID_MODEL, error,
            "'%s' has %lu inputs and %lu outputs; %lld and at least %lld are needed", name,
            (unsigned long)sbit_graph_input_count(*body),
            (unsigned long)sbit_graph_output_count(*body), (long long)inputs,
            (long long)least_outputs);
    }
    return SBIT_OK;
}

/* Types for a body's inputs and outputs, from the context's allocator. */
typedef struct sbit__control_types {
    sbit_type *in, *out;
    const sbit_type **in_list;
    size_t in_count, out_count;
} sbit__control_types;

static sbit_status sbit__control_types_make(const sbit_op_call *call, const sbit_graph *body,
                                            sbit__control_types *types, sbit_error *error)
{
    const sbit_allocator *a = &call->ctx->allocator;
    types->in_count = sbit_graph_input_count(body);
    types->out_count = sbit_graph_output_count(body);
    types->in = (sbit_type *)sbit__calloc(a, types->in_count + 1, sizeof(sbit_type));
    types->out = (sbit_type *)sbit__calloc(a, types->out_count + 1, sizeof(sbit_type));
    types->in_list = (const sbit_type **)sbit__calloc(a, types->in_count + 1, sizeof(void *));
    if (types->in == NULL || types->out == NULL || types->in_list == NULL) {
        return sbit__fail_oom(error, (types->in_count + types->out_count) * sizeof(sbit_type));
    }
    for (size_t i = 0; i < types->in_count; i++) {
        types->in[i] = sbit__type_unknown();
        types->in_list[i] = &types->in[i];
    }
    for (size_t i = 0; i < types->out_count; i++) {
        types->out[i] = sbit__type_unknown();
    }
    return SBIT_OK;
}

static void sbit__control_types_free(const sbit_op_call *call, sbit__control_types *types)
{
    const sbit_allocator *a = &call->ctx->allocator;
    sbit__free(a, types->in, (types->in_count + 1) * sizeof(sbit_type));
    sbit__free(a, types->out, (types->out_count + 1) * sizeof(sbit_type));
    sbit__free(a, types->in_list, (types->in_count + 1) * sizeof(void *));
}

static sbit_status sbit__control_infer_body(const sbit_op_call *call, const sbit_graph *body,
                                            const sbit__control_types *types, sbit_error *error)
{
    if (call->infer_body == NULL) {
        return SBIT_OK;
    }
    return call->infer_body(call, body, types->in_list, types->out, error);
}

/* >>If */

static sbit_status sbit__if_infer_branch(const sbit_op_call *call, const char *name, bool first,
                                         sbit_error *error)
{
    const sbit_graph *body = NULL;
    sbit__control_types types;
    sbit_status status = SBIT_OK;
    memset(&types, 0, sizeof types);
    SBIT__TRY(sbit__control_check_body(call, name, 0, call->output_count, &body, error));
    status = sbit__control_types_make(call, body, &types, error);
    if (status == SBIT_OK) {
        status = sbit__control_infer_body(call, body, &types, error);
    }
    for (int32_t i = 0; status == SBIT_OK && i < call->output_count; i++) {
        if (call->out_type[i] != NULL && first) {
            *call->out_type[i] = types.out[i];
        } else if (call->out_type[i] != NULL) {
            sbit__control_join(call->out_type[i], &types.out[i]);
        }
    }
    sbit__control_types_free(call, &types);
    return status;
}

/* The condition is not known. A branch that does not fit the shapes at hand is not the one that
 * runs (that is often what the condition asks), so the other one says what the outputs are. */
static sbit_status sbit__if_infer_both(const sbit_op_call *call, sbit_error *error)
{
    sbit_error unfit;
    const sbit_status one = sbit__if_infer_branch(call, "then_branch", true, &unfit);
    sbit_status other = SBIT_OK;
    if (one == SBIT_ERR_SHAPE) {
        return sbit__if_infer_branch(call, "else_branch", true, error);
    }
    if (one == SBIT_OK) {
        other = sbit__if_infer_branch(call, "else_branch", false, &unfit);
    }
    if (other == SBIT_ERR_SHAPE || (one == SBIT_OK && other == SBIT_OK)) {
        return SBIT_OK;
    }
    if (error != NULL) {
        *error = unfit;
    }
    return one != SBIT_OK ? one : other;
}

static sbit_status sbit__if_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *cond = sbit__in(call, 0);
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    if (cond != NULL && sbit_tensor_count(cond) == 1) {
        const bool yes = sbit__tensor_i64_at(cond, 0) != 0;
        return sbit__if_infer_branch(call, yes ? "then_branch" : "else_branch", true, error);
    }
    return sbit__if_infer_both(call, error);
}

static sbit_status sbit__if_prepare(const sbit_op_call *call, sbit_error *error)
{
    static const char *const branches[2] = {"then_branch", "else_branch"};
    *call->scratch_bytes = ((size_t)call->output_count + 1) * sizeof(sbit_value);
    for (int i = 0; i < 2; i++) {
        const sbit_graph *body = sbit__control_body(call, branches[i]);
        if (body != NULL && sbit_graph_input_count(body) == 0) {
            SBIT__TRY(call->plan_body(call, body, NULL, 0, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__if_run(const sbit_op_call *call, sbit_error *error)
{
    int64_t cond = 0;
    const sbit_graph *body = NULL;
    sbit_value *outputs = (sbit_value *)call->scratch;
    SBIT__TRY(sbit__op_scalar(call, 0, 0, &cond, error));
    SBIT__TRY(sbit__control_check_body(call, cond != 0 ? "then_branch" : "else_branch", 0,
                                       call->output_count, &body, error));
    if ((int32_t)sbit_graph_output_count(body) != call->output_count) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "the branch has more outputs than the node");
    }
    memset(outputs, 0, (size_t)call->output_count * sizeof *outputs);
    SBIT__TRY(call->run_body(call, body, NULL, 0, outputs, (size_t)call->output_count, error));
    for (int32_t i = 0; i < call->output_count; i++) {
        if (call->out_value[i] != NULL) {
            SBIT__TRY(call->copy_output(call, i, -1, &outputs[i], error));
        }
    }
    return SBIT_OK;
}

/* >>Loop: body inputs are the iteration, the condition, the states; its outputs the condition, the
 * states, and elements of what is stacked. */

static int32_t sbit__loop_states(const sbit_op_call *call)
{
    return call->input_count > 2 ? call->input_count - 2 : 0;
}

static sbit_status sbit__loop_body(const sbit_op_call *call, const sbit_graph **body,
                                   sbit_error *error)
{
    const int32_t states = sbit__loop_states(call);
    SBIT__TRY(sbit__control_check_body(call, "body", 2 + states, 1 + states, body, error));
    if ((int64_t)sbit_graph_output_count(*body) < (int64_t)call->output_count + 1) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "the body has fewer outputs than the node needs");
    }
    for (int32_t i = 0; i < states; i++) {
        if (call->in_type[2 + i] == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "state %d has no first value",
                                (int)i);
        }
    }
    return SBIT_OK;
}

/* Types of the states that hold for every iteration: what a round changes becomes unknown, until
 * nothing changes. */
static sbit_status sbit__loop_infer_types(const sbit_op_call *call, const sbit_graph *body,
                                          sbit__control_types *types, sbit_error *error)
{
    const int32_t states = sbit__loop_states(call);
    SBIT__TRY(sbit__control_types_make(call, body, types, error));
    types->in[0].dtype = SBIT_I64;
    types->in[1].dtype = SBIT_BOOL;
    types->in[0].rank = types->in[1].rank = 0;
    for (int32_t i = 0; i < states; i++) {
        types->in[2 + i] = *call->in_type[2 + i];
    }
    for (int round = 0; round < SBIT_MAX_RANK + 3; round++) {
        bool same = true;
        SBIT__TRY(sbit__control_infer_body(call, body, types, error));
        for (int32_t i = 0; i < states; i++) {
            const sbit_type before = types->in[2 + i];
            sbit__control_join(&types->in[2 + i], &types->out[1 + i]);
            same = same && memcmp(&before, &types->in[2 + i], sizeof before) == 0;
        }
        if (same) {
            break;
        }
    }
    for (int32_t i = 0; i < call->output_count; i++) {
        sbit_type *out = call->out_type[i];
        const sbit_type *element = &types->out[1 + i];
        if (out == NULL) {
            continue;
        }
        if (i < states) {
            *out = types->in[2 + i];
            continue;
        }
        *out = sbit__type_unknown();
        out->dtype = element->dtype;
        if (element->rank < 0 || element->rank >= SBIT_MAX_RANK) {
            continue;
        }
        out->rank = element->rank + 1;
        for (int32_t d = 0; d < element->rank; d++) {
            out->dims[d + 1] = element->dims[d];
        }
    }
    return SBIT_OK;
}

/* No round is made, whatever comes: the body need not fit. */
static bool sbit__loop_is_idle(const sbit_op_call *call)
{
    const sbit_tensor *most = sbit__in(call, 0), *condition = sbit__in(call, 1);
    return (most != NULL && sbit_tensor_count(most) == 1 && sbit__tensor_i64_at(most, 0) <= 0) ||
           (condition != NULL && sbit_tensor_count(condition) == 1 &&
            sbit__tensor_i64_at(condition, 0) == 0);
}

static sbit_status sbit__loop_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_graph *body = NULL;
    sbit__control_types types;
    sbit_status status = SBIT_OK;
    memset(&types, 0, sizeof types);
    SBIT__TRY(sbit__op_inputs(call, 0, INT32_MAX, error));
    SBIT__TRY(sbit__loop_body(call, &body, error));
    status = sbit__loop_infer_types(call, body, &types, error);
    sbit__control_types_free(call, &types);
    if (status == SBIT_ERR_SHAPE && sbit__loop_is_idle(call)) {
        for (int32_t i = 0; i < call->output_count; i++) {
            if (call->out_type[i] != NULL) { /* states as they came; nothing stacked: as declared */
                *call->out_type[i] =
                    i < sbit__loop_states(call) ? *call->in_type[2 + i] : sbit__type_unknown();
            }
        }
        return SBIT_OK;
    }
    return status;
}

/* What a run keeps in scratch memory. */
typedef struct sbit__loop_run {
    const sbit_graph *body;
    int32_t states, stacked;
    size_t in_count, out_count;
    const sbit_value **inputs;
    sbit_value *results[2]; /* of this call and of the one before */
    sbit_value **lists;     /* per stacked output: the elements so far */
    int64_t *capacity;
    sbit_value iteration, condition;
    int64_t iteration_data;
    uint8_t condition_data;
} sbit__loop_run;

/* Cuts scratch memory: results, capacities, inputs, lists. */
static void sbit__loop_place(sbit__loop_run *run, void *memory)
{
    run->results[0] = (sbit_value *)memory;
    run->results[1] = run->results[0] + run->out_count;
    run->capacity = (int64_t *)(void *)(run->results[1] + run->out_count);
    run->inputs = (const sbit_value **)(void *)(run->capacity + run->out_count);
    run->lists = (sbit_value **)(void *)(run->inputs + run->in_count);
}

static sbit_status sbit__control_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_graph *body = sbit__control_body(call, "body");
    (void)error;
    if (body != NULL) {
        *call->scratch_bytes = sbit_graph_output_count(body) *
                                   (2 * sizeof(sbit_value) + sizeof(int64_t) + sizeof(void *)) +
                               sbit_graph_input_count(body) * sizeof(void *);
    }
    return SBIT_OK;
}

static sbit_status sbit__loop_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_graph *body = NULL;
    sbit__control_types types;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit__control_prepare(call, error));
    SBIT__TRY(sbit__loop_body(call, &body, error));
    memset(&types, 0, sizeof types);
    status = sbit__control_types_make(call, body, &types, error);
    if (status == SBIT_OK) {
        types.in[0].dtype = SBIT_I64;
        types.in[1].dtype = SBIT_BOOL;
        types.in[0].rank = types.in[1].rank = 0;
        for (int32_t i = 0; i < sbit__loop_states(call); i++) {
            types.in[2 + i] = *call->in_type[2 + i];
        }
        status = call->plan_body(call, body, types.in_list, types.in_count, error);
    }
    sbit__control_types_free(call, &types);
    return status;
}

static void sbit__loop_start(const sbit_op_call *call, sbit__loop_run *run, bool condition)
{
    memset(run->capacity, 0, run->out_count * sizeof run->capacity[0]);
    memset(run->results[0], 0, run->out_count * sizeof(sbit_value));
    memset(run->results[1], 0, run->out_count * sizeof(sbit_value));
    run->condition_data = condition ? 1 : 0;
    run->iteration.tensor.dtype = SBIT_I64;
    run->iteration.tensor.data = &run->iteration_data;
    run->condition.tensor.dtype = SBIT_BOOL;
    run->condition.tensor.data = &run->condition_data;
    run->inputs[0] = &run->iteration;
    run->inputs[1] = &run->condition;
    for (int32_t i = 0; i < run->states; i++) {
        run->inputs[2 + i] = call->in_value[2 + i];
    }
}

/* Appends the elements of this iteration to the lists; room doubles. */
static sbit_status sbit__loop_append(const sbit_op_call *call, sbit__loop_run *run,
                                     const sbit_value *results, int64_t iteration,
                                     sbit_error *error)
{
    for (int32_t k = 0; k < run->stacked; k++) {
        const int32_t output = run->states + k;
        const sbit_value *element = &results[1 + output];
        if (call->out_value[output] == NULL) {
            continue;
        }
        if (element->kind != SBIT_KIND_TENSOR) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "output %d would stack what is no tensor", (int)output);
        }
        if (iteration >= run->capacity[k]) {
            const int64_t room = run->capacity[k] == 0 ? 16 : 2 * run->capacity[k];
            SBIT__TRY(call->alloc_items(call, output, SBIT_KIND_SEQUENCE, room, error));
            sbit_value *list = call->out_value[output]->items;
            if (iteration > 0) {
                memcpy(list, run->lists[k], (size_t)iteration * sizeof *list);
            }
            run->lists[k] = list;
            run->capacity[k] = room;
        }
        run->lists[k][iteration] = *element;
    }
    return SBIT_OK;
}

/* The elements of `list` stacked along a new first axis. */
static sbit_status sbit__loop_stack(const sbit_op_call *call, int32_t output,
                                    const sbit_value *list, int64_t count, sbit_error *error)
{
    const sbit_tensor *first = &list[0].tensor;
    int64_t dims[SBIT_MAX_RANK + 1];
    if (first->rank >= SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "output %d has a rank above %d",
                            (int)output, SBIT_MAX_RANK);
    }
    dims[0] = count;
    memcpy(dims + 1, first->dims, (size_t)first->rank * sizeof dims[0]);
    SBIT__TRY(call->alloc_output(call, output, -1, first->dtype, first->rank + 1, dims, error));
    call->out_value[output]->items = NULL; /* the list lives on until the next run */
    call->out_value[output]->item_count = 0;
    const int64_t each = sbit_tensor_count(first);
    for (int64_t i = 0; i < count; i++) {
        const sbit_tensor *element = &list[i].tensor;
        if (element->dtype != first->dtype || !sbit_tensor_same_shape(element, first)) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "elements of output %d differ between iterations", (int)output);
        }
        sbit__elem_copy(first->dtype, call->out[output]->data, i * each, element->data, 0, each);
    }
    return SBIT_OK;
}

/* Nothing was stacked: the shape as declared, with 0 in front and for what is not known. */
static sbit_status sbit__loop_stack_nothing(const sbit_op_call *call, const sbit_graph *body,
                                            int32_t output, size_t body_output, sbit_error *error)
{
    const sbit_type *type = &sbit_graph_value(body, sbit_graph_output(body, body_output))->type;
    int64_t dims[SBIT_MAX_RANK] = {0};
    const int32_t rank = type->rank < 0               ? 1
                         : type->rank < SBIT_MAX_RANK ? type->rank + 1
                                                      : SBIT_MAX_RANK;
    for (int32_t i = 1; i < rank; i++) {
        dims[i] = sbit__dim_known(type->dims[i - 1]) ? type->dims[i - 1].value : 0;
    }
    return call->alloc_output(call, output, -1,
                              type->dtype == SBIT_UNDEFINED ? SBIT_F32 : type->dtype, rank, dims,
                              error);
}

static sbit_status sbit__loop_finish(const sbit_op_call *call, const sbit__loop_run *run,
                                     int64_t iterations, sbit_error *error)
{
    for (int32_t i = 0; i < call->output_count; i++) {
        if (call->out_value[i] == NULL) {
            continue;
        }
        if (i < run->states) {
            SBIT__TRY(call->copy_output(call, i, -1, run->inputs[2 + i], error));
        } else if (iterations == 0) {
            SBIT__TRY(sbit__loop_stack_nothing(call, run->body, i, (size_t)i + 1, error));
        } else {
            SBIT__TRY(sbit__loop_stack(call, i, run->lists[i - run->states], iterations, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__loop_run_all(const sbit_op_call *call, sbit_error *error)
{
    sbit__loop_run run;
    int64_t most = INT64_MAX, condition = 1, i = 0;
    memset(&run, 0, sizeof run);
    SBIT__TRY(sbit__loop_body(call, &run.body, error));
    SBIT__TRY(sbit__op_scalar(call, 0, INT64_MAX, &most, error));
    SBIT__TRY(sbit__op_scalar(call, 1, 1, &condition, error));
    run.states = sbit__loop_states(call);
    run.stacked = call->output_count > run.states ? call->output_count - run.states : 0;
    run.in_count = sbit_graph_input_count(run.body);
    run.out_count = sbit_graph_output_count(run.body);
    sbit__loop_place(&run, call->scratch);
    sbit__loop_start(call, &run, condition != 0);
    for (; i < most && run.condition_data != 0; i++) {
        sbit_value *results = run.results[i % 2];
        run.iteration_data = i;
        SBIT__TRY(call->run_body(call, run.body, run.inputs, run.in_count, results, run.out_count,
                                 error));
        const sbit_tensor *go_on = &results[0].tensor;
        if (results[0].kind != SBIT_KIND_TENSOR || sbit_tensor_count(go_on) != 1) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "the body's condition is not a scalar");
        }
        SBIT__TRY(sbit__loop_append(call, &run, results, i, error));
        run.condition_data = sbit__tensor_i64_at(go_on, 0) != 0 ? 1 : 0;
        if (go_on->rank == 0 && go_on->dtype == SBIT_BOOL) {
            run.inputs[1] = &results[0]; /* which ends its life in the next round */
        }
        for (int32_t k = 0; k < run.states; k++) {
            run.inputs[2 + k] = &results[1 + k];
        }
        if (i % 256 == 255) { /* rounds may be slow: sequences grow */
            SBIT__TRY(sbit__progress(call->ctx, "loop", i + 1, most, error));
        }
    }
    return sbit__loop_finish(call, &run, i, error);
}

/* >>Scan */

/* How a Scan is laid out: version 8 has a batch axis in front and an input of lengths. */
typedef struct sbit__scan {
    const sbit_graph *body;
    bool batched;
    int32_t first;           /* input that is the first state */
    int32_t states, scanned; /* inputs */
    int32_t stacked;         /* outputs */
} sbit__scan;

static sbit_status sbit__scan_layout(const sbit_op_call *call, sbit__scan *scan, sbit_error *error)
{
    const int64_t scanned = sbit_node_int(call->node, "num_scan_inputs", 0);
    scan->batched = call->row->since_version < 9;
    scan->first = scan->batched ? 1 : 0;
    if (scanned < 1 || scanned > call->input_count - scan->first) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "num_scan_inputs is %lld, it has %d inputs", (long long)scanned,
                            (int)call->input_count);
    }
    scan->scanned = (int32_t)scanned;
    scan->states = call->input_count - scan->first - scan->scanned;
    SBIT__TRY(sbit__control_check_body(call, "body", scan->states + scan->scanned, scan->states,
                                       &scan->body, error));
    if ((int64_t)sbit_graph_output_count(scan->body) != (int64_t)call->output_count) {
        return sbit_op_fail(
            call, SBIT_ERR_INVALID_MODEL, error, "the body has %lu outputs, the node %d",
            (unsigned long)sbit_graph_output_count(scan->body), (int)call->output_count);
    }
    scan->stacked = call->output_count - scan->states;
    for (int32_t i = scan->first; i < call->input_count; i++) {
        if (call->in_type[i] == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
    }
    return SBIT_OK;
}

/* Entry i of an attribute that lists one number per input or output. */
static int64_t sbit__scan_list(const sbit_op_call *call, const char *name, int32_t i)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    return attr != NULL && attr->type == SBIT_ONNX_ATTR_INTS && (size_t)i < attr->count
               ? attr->ints[i]
               : 0;
}

/* The axis of scan input i; in version 8 always 1, behind the batch. */
static sbit_status sbit__scan_in_axis(const sbit_op_call *call, const sbit__scan *scan, int32_t i,
                                      int32_t rank, int32_t *axis, sbit_error *error)
{
    const int64_t given = scan->batched ? 1 : sbit__scan_list(call, "scan_input_axes", i);
    return sbit__op_axis(call, given, rank, axis, error);
}

/* `rank`: of the output, without a batch axis. */
static sbit_status sbit__scan_out_axis(const sbit_op_call *call, const sbit__scan *scan, int32_t i,
                                       int32_t rank, int32_t *axis, sbit_error *error)
{
    const int64_t given = scan->batched ? 0 : sbit__scan_list(call, "scan_output_axes", i);
    return sbit__op_axis(call, given, rank, axis, error);
}

static void sbit__scan_drop_dim(sbit_type *type, int32_t axis)
{
    if (type->rank > axis) {
        type->rank--;
        for (int32_t d = axis; d < type->rank; d++) {
            type->dims[d] = type->dims[d + 1];
        }
    }
}

static void sbit__scan_add_dim(sbit_type *type, int32_t axis, sbit_dim dim)
{
    if (type->rank >= SBIT_MAX_RANK) {
        type->rank = -1;
    }
    if (type->rank >= 0) {
        for (int32_t d = type->rank; d > axis; d--) {
            type->dims[d] = type->dims[d - 1];
        }
        type->dims[axis] = dim;
        type->rank++;
    }
}

/* The steps and the batch, as far as the inputs' types say. */
static sbit_status sbit__scan_infer_inputs(const sbit_op_call *call, const sbit__scan *scan,
                                           sbit__control_types *types, sbit_dim *batch,
                                           sbit_dim *steps, sbit_error *error)
{
    *batch = sbit__dim_any();
    *steps = sbit__dim_any();
    for (int32_t i = 0; i < scan->states + scan->scanned; i++) {
        sbit_type *type = &types->in[i];
        int32_t axis = 0;
        *type = *call->in_type[scan->first + i];
        if (type->rank < 0) {
            continue;
        }
        if (i >= scan->states) {
            SBIT__TRY(sbit__scan_in_axis(call, scan, i - scan->states, type->rank, &axis, error));
            *steps = sbit__dim_known(type->dims[axis]) || !sbit__dim_known(*steps)
                         ? type->dims[axis]
                         : *steps;
            sbit__scan_drop_dim(type, axis);
        }
        if (scan->batched) {
            *batch = type->rank > 0 ? type->dims[0] : *batch;
            sbit__scan_drop_dim(type, 0);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__scan_infer_types(const sbit_op_call *call, const sbit__scan *scan,
                                          sbit__control_types *types, sbit_error *error)
{
    sbit_dim batch, steps;
    SBIT__TRY(sbit__control_types_make(call, scan->body, types, error));
    SBIT__TRY(sbit__scan_infer_inputs(call, scan, types, &batch, &steps, error));
    SBIT__TRY(sbit__control_infer_body(call, scan->body, types, error));
    for (int32_t i = 0; i < call->output_count; i++) {
        sbit_type *type = &types->out[i];
        int32_t axis = 0;
        if (call->out_type[i] == NULL) {
            continue;
        }
        if (i >= scan->states && type->rank >= 0) {
            SBIT__TRY(
                sbit__scan_out_axis(call, scan, i - scan->states, type->rank + 1, &axis, error));
            sbit__scan_add_dim(type, axis, steps);
        }
        if (scan->batched) {
            sbit__scan_add_dim(type, 0, batch);
        }
        *call->out_type[i] = *type;
    }
    return SBIT_OK;
}

static sbit_status sbit__scan_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__scan scan;
    sbit__control_types types;
    sbit_status status = SBIT_OK;
    memset(&types, 0, sizeof types);
    SBIT__TRY(sbit__scan_layout(call, &scan, error));
    status = sbit__scan_infer_types(call, &scan, &types, error);
    sbit__control_types_free(call, &types);
    return status;
}

/* Bytes that one element of every scan input takes together, each 64-byte aligned. */
static bool sbit__scan_slice_bytes(const sbit_op_call *call, const sbit__scan *scan, size_t *bytes)
{
    *bytes = 0;
    for (int32_t i = scan->states; i < scan->states + scan->scanned; i++) {
        const sbit_type *type = call->in_type[scan->first + i];
        const sbit_dim count =
            type->rank >= 0 ? sbit__dim_product(type->dims, type->rank) : sbit__dim_any();
        size_t each = sbit__elem_bytes(type->dtype);
        if (!sbit__dim_known(count) ||
            !sbit__mul_size((size_t)count.value, each > 0 ? each : 1, &each) ||
            !sbit__add_size(*bytes, each + 64, bytes)) {
            return false;
        }
    }
    return true;
}

/* Elements of scan inputs are copied only where the axis is not the first; room for a whole
 * input is the simple upper bound. */
static sbit_status sbit__scan_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__scan scan;
    size_t values = 0, slices = 0;
    SBIT__TRY(sbit__scan_layout(call, &scan, error));
    values =
        ((size_t)call->input_count * 3 + (size_t)call->output_count * 2 + 2) * sizeof(sbit_value);
    if (sbit__scan_slice_bytes(call, &scan, &slices)) {
        *call->scratch_bytes = values + slices;
    }
    return SBIT_OK;
}

typedef struct sbit__scan_run {
    sbit__scan scan;
    int64_t batch, steps; /* sizes; steps: the longest */
    sbit_value *elements; /* what the body gets: states of the batch, slices */
    sbit_value *results[2];
    const sbit_value **inputs;
    char *slices;
} sbit__scan_run;

static sbit_status sbit__scan_sizes(const sbit_op_call *call, sbit__scan_run *run,
                                    sbit_error *error)
{
    const sbit__scan *scan = &run->scan;
    run->batch = 1;
    run->steps = -1;
    for (int32_t i = 0; i < scan->states + scan->scanned; i++) {
        const sbit_tensor *x = call->in[scan->first + i];
        int32_t axis = 0;
        if (scan->batched && (x->rank < 1 || (i > 0 && x->dims[0] != run->batch))) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d has another batch size",
                                (int)(scan->first + i));
        }
        run->batch = scan->batched ? x->dims[0] : 1;
        if (i < scan->states) {
            continue;
        }
        SBIT__TRY(sbit__scan_in_axis(call, scan, i - scan->states, x->rank, &axis, error));
        if (run->steps >= 0 && run->steps != x->dims[axis]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "scan inputs of %lld and %lld steps",
                                (long long)run->steps, (long long)x->dims[axis]);
        }
        run->steps = x->dims[axis];
    }
    return SBIT_OK;
}

/* The tensor without its first `drop` dims, element `index` of them. */
static sbit_tensor sbit__scan_part(const sbit_tensor *x, int32_t drop, int64_t index)
{
    sbit_tensor part;
    memset(&part, 0, sizeof part);
    part.dtype = x->dtype;
    part.rank = x->rank - drop;
    for (int32_t d = 0; d < part.rank; d++) {
        part.dims[d] = x->dims[d + drop];
    }
    const size_t offset = (size_t)(index * sbit_tensor_count(&part)) * sbit__elem_bytes(x->dtype);
    part.data = x->data != NULL ? (char *)x->data + offset : NULL;
    return part;
}

/* Step t of scan input x (already without a batch axis) into `element`; copied to `room` unless
 * it lies together. */
static void sbit__scan_slice(const sbit_tensor *x, int32_t axis, int64_t t, char *room,
                             sbit_tensor *element)
{
    const int64_t outer = sbit__dims_product(x->dims, 0, axis);
    const int64_t inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    if (axis == 0 && sbit__elem_bytes(x->dtype) > 0) {
        *element = sbit__scan_part(x, 1, t);
        return;
    }
    memset(element, 0, sizeof *element);
    element->dtype = x->dtype;
    element->rank = x->rank - 1;
    for (int32_t d = 0; d < element->rank; d++) {
        element->dims[d] = x->dims[d < axis ? d : d + 1];
    }
    element->data = room;
    for (int64_t o = 0; o < outer; o++) {
        sbit__elem_copy(x->dtype, room, o * inner, x->data, (o * x->dims[axis] + t) * inner, inner);
    }
}

static sbit_status sbit__scan_take(const sbit_op_call *call, sbit__scan_run *run, int64_t b,
                                   int64_t t, sbit_error *error)
{
    const sbit__scan *scan = &run->scan;
    char *room = run->slices;
    for (int32_t i = 0; i < scan->scanned; i++) {
        const int32_t k = scan->states + i;
        const sbit_tensor *whole = call->in[scan->first + k];
        const bool back =
            sbit__scan_list(call, scan->batched ? "directions" : "scan_input_directions", i) != 0;
        int32_t axis = 0;
        SBIT__TRY(sbit__scan_in_axis(call, scan, i, whole->rank, &axis, error));
        const sbit_tensor x = scan->batched ? sbit__scan_part(whole, 1, b) : *whole;
        memset(&run->elements[k], 0, sizeof run->elements[k]);
        sbit__scan_slice(&x, scan->batched ? axis - 1 : axis, back ? run->steps - 1 - t : t, room,
                         &run->elements[k].tensor);
        run->inputs[k] = &run->elements[k];
        room += (sbit_tensor_bytes(&run->elements[k].tensor) + 63) / 64 * 64;
    }
    return SBIT_OK;
}

/* Writes `element` at step t (and batch b) of stacked output i. */
static sbit_status sbit__scan_put(const sbit_op_call *call, const sbit__scan_run *run, int32_t i,
                                  const sbit_tensor *element, int64_t b, int64_t t, bool first,
                                  sbit_error *error)
{
    const sbit__scan *scan = &run->scan;
    const int32_t output = scan->states + i, lead = scan->batched ? 1 : 0;
    const bool back = !scan->batched && sbit__scan_list(call, "scan_output_directions", i) != 0;
    int64_t dims[SBIT_MAX_RANK + 2];
    int32_t axis = 0;
    if (call->out_value[output] == NULL) {
        return SBIT_OK;
    }
    if (element->rank + 1 + lead > SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "output %d has a rank above %d",
                            (int)output, SBIT_MAX_RANK);
    }
    SBIT__TRY(sbit__scan_out_axis(call, scan, i, element->rank + 1, &axis, error));
    dims[0] = run->batch;
    for (int32_t d = 0; d <= element->rank; d++) {
        dims[lead + d] = d < axis    ? element->dims[d]
                         : d == axis ? run->steps
                                     : element->dims[d - 1];
    }
    const int32_t rank = element->rank + 1 + lead;
    if (first) {
        SBIT__TRY(call->alloc_output(call, output, -1, element->dtype, rank, dims, error));
        sbit__elem_zero(element->dtype, call->out[output]->data, 0,
                        sbit_tensor_count(call->out[output]));
    }
    sbit_tensor *y = call->out[output];
    for (int32_t d = 0; d < rank; d++) {
        if (y->rank != rank || y->dims[d] != dims[d]) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "elements of output %d differ between steps", (int)output);
        }
    }
    const int64_t outer = sbit__dims_product(element->dims, 0, axis);
    const int64_t inner = sbit__dims_product(element->dims, axis, element->rank);
    const int64_t at = back ? run->steps - 1 - t : t;
    for (int64_t o = 0; o < outer; o++) {
        sbit__elem_copy(y->dtype, y->data, ((b * outer + o) * run->steps + at) * inner,
                        element->data, o * inner, inner);
    }
    return SBIT_OK;
}

/* The final states of a batch entry; without a batch axis they are the outputs. */
static sbit_status sbit__scan_states_out(const sbit_op_call *call, const sbit__scan_run *run,
                                         int64_t b, sbit_error *error)
{
    for (int32_t i = 0; i < run->scan.states; i++) {
        const sbit_tensor *state = &run->inputs[i]->tensor;
        int64_t dims[SBIT_MAX_RANK + 1];
        if (call->out_value[i] == NULL) {
            continue;
        }
        if (!run->scan.batched) {
            SBIT__TRY(call->copy_output(call, i, -1, run->inputs[i], error));
            continue;
        }
        if (state->rank >= SBIT_MAX_RANK) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "state %d has a rank above %d", (int)i,
                                SBIT_MAX_RANK - 1);
        }
        dims[0] = run->batch;
        memcpy(dims + 1, state->dims, (size_t)state->rank * sizeof dims[0]);
        if (b == 0) {
            SBIT__TRY(call->alloc_output(call, i, -1, state->dtype, state->rank + 1, dims, error));
        }
        const int64_t each = sbit_tensor_count(state);
        if (each * run->batch != sbit_tensor_count(call->out[i])) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "state %d changes its shape", (int)i);
        }
        sbit__elem_copy(state->dtype, call->out[i]->data, b * each, state->data, 0, each);
    }
    return SBIT_OK;
}

static sbit_status sbit__scan_batch(const sbit_op_call *call, sbit__scan_run *run, int64_t b,
                                    int64_t steps, sbit_error *error)
{
    const sbit__scan *scan = &run->scan;
    for (int32_t i = 0; i < scan->states; i++) {
        run->inputs[i] = call->in_value[scan->first + i];
        if (scan->batched) {
            memset(&run->elements[i], 0, sizeof run->elements[i]);
            run->elements[i].tensor = sbit__scan_part(call->in[scan->first + i], 1, b);
            run->inputs[i] = &run->elements[i];
        }
    }
    for (int64_t t = 0; t < steps; t++) {
        sbit_value *results = run->results[t % 2];
        SBIT__TRY(sbit__scan_take(call, run, b, t, error));
        SBIT__TRY(call->run_body(call, scan->body, run->inputs,
                                 (size_t)(scan->states + scan->scanned), results,
                                 (size_t)call->output_count, error));
        for (int32_t i = 0; i < scan->stacked; i++) {
            SBIT__TRY(sbit__scan_put(call, run, i, &results[scan->states + i].tensor, b, t,
                                     b == 0 && t == 0, error));
        }
        for (int32_t i = 0; i < scan->states; i++) {
            run->inputs[i] = &results[i];
        }
    }
    return sbit__scan_states_out(call, run, b, error);
}

static sbit_status sbit__scan_run_all(const sbit_op_call *call, sbit_error *error)
{
    sbit__scan_run run;
    const sbit_tensor *lengths = NULL;
    memset(&run, 0, sizeof run);
    SBIT__TRY(sbit__scan_layout(call, &run.scan, error));
    SBIT__TRY(sbit__scan_sizes(call, &run, error));
    lengths = run.scan.batched ? sbit__in(call, 0) : NULL;
    run.elements = (sbit_value *)call->scratch;
    run.results[0] = run.elements + call->input_count;
    run.results[1] = run.results[0] + call->output_count;
    run.inputs = (const sbit_value **)(void *)(run.results[1] + call->output_count);
    run.slices =
        (char *)call->scratch + (((size_t)call->input_count * 3 + (size_t)call->output_count * 2) *
                                     sizeof(sbit_value) / 64 +
                                 1) *
                                    64;
    if (lengths != NULL && sbit_tensor_count(lengths) != run.batch) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld lengths for a batch of %lld",
                            (long long)sbit_tensor_count(lengths), (long long)run.batch);
    }
    bool any = false;
    for (int64_t b = 0; b < run.batch; b++) {
        int64_t steps = run.steps;
        if (lengths != NULL) {
            const int64_t length = sbit__tensor_i64_at(lengths, b);
            steps = length < 0 ? 0 : length < steps ? length : steps;
        }
        if (b == 0 && steps == 0 && run.steps > 0 && run.batch > 1) {
            return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error,
                                "a first sequence of no steps: the outputs' shapes are not known");
        }
        any = any || steps > 0;
        SBIT__TRY(sbit__scan_batch(call, &run, b, steps, error));
    }
    for (int32_t i = 0; !any && i < run.scan.stacked; i++) {
        const int32_t output = run.scan.states + i;
        if (call->out_value[output] != NULL) {
            SBIT__TRY(sbit__loop_stack_nothing(call, run.scan.body, output, (size_t)output, error));
        }
    }
    return SBIT_OK;
}

/* >>sequences */

static sbit_status sbit__sequence_fail(const sbit_op_call *call, int32_t input, sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d is no sequence", (int)input);
}

static sbit_status sbit__sequence_in(const sbit_op_call *call, const sbit_value **sequence,
                                     sbit_error *error)
{
    *sequence = call->in_value[0];
    return (*sequence)->kind == SBIT_KIND_SEQUENCE ? SBIT_OK : sbit__sequence_fail(call, 0, error);
}

/* infer: input 0 must be a sequence, if anything is known of it. */
static sbit_status sbit__sequence_check(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *type = call->in_type[0];
    const bool unknown =
        type->kind == SBIT_KIND_TENSOR && type->dtype == SBIT_UNDEFINED && type->rank < 0;
    return unknown || type->kind == SBIT_KIND_SEQUENCE ? SBIT_OK
                                                       : sbit__sequence_fail(call, 0, error);
}

/* A position counted from the end if negative, in 0..limit. */
static sbit_status sbit__sequence_position(const sbit_op_call *call, int32_t input, int64_t count,
                                           int64_t limit, int64_t otherwise, int64_t *out,
                                           sbit_error *error)
{
    SBIT__TRY(sbit__op_scalar(call, input, otherwise, out, error));
    *out += *out < 0 ? count : 0;
    if (*out < 0 || *out > limit) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the position is outside of a sequence of %lld", (long long)count);
    }
    return SBIT_OK;
}

static void sbit__sequence_out(const sbit_op_call *call, int32_t output, const sbit_type *element)
{
    if (output < call->output_count && call->out_type[output] != NULL) {
        *call->out_type[output] = *element;
        call->out_type[output]->kind = SBIT_KIND_SEQUENCE;
        call->out_type[output]->of = SBIT_KIND_TENSOR;
    }
}

static sbit_status sbit__sequence_construct_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type element;
    SBIT__TRY(sbit__op_inputs(call, 1, INT32_MAX, error));
    SBIT__TRY(sbit__op_one_dtype(call, 0, call->input_count - 1, error));
    element = *call->in_type[0];
    for (int32_t i = 1; i < call->input_count; i++) {
        if (call->in_type[i] == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
        sbit__control_join(&element, call->in_type[i]);
    }
    sbit__sequence_out(call, 0, &element);
    return SBIT_OK;
}

static sbit_status sbit__sequence_construct_run(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(call->alloc_items(call, 0, SBIT_KIND_SEQUENCE, call->input_count, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        SBIT__TRY(call->copy_output(call, 0, i, call->in_value[i], error));
    }
    return SBIT_OK;
}

static sbit_status sbit__sequence_empty_infer(const sbit_op_call *call, sbit_error *error)
{
    const int64_t dtype = sbit_node_int(call->node, "dtype", (int64_t)SBIT_F32);
    sbit_type element = sbit__type_unknown();
    SBIT__TRY(sbit__op_inputs(call, 0, 0, error));
    if (dtype <= 0 || dtype >= (int64_t)SBIT_DTYPE_COUNT) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "dtype %lld", (long long)dtype);
    }
    element.dtype = (sbit_dtype)dtype;
    sbit__sequence_out(call, 0, &element);
    return SBIT_OK;
}

static sbit_status sbit__sequence_empty_run(const sbit_op_call *call, sbit_error *error)
{
    return call->alloc_items(call, 0, SBIT_KIND_SEQUENCE, 0, error);
}

static sbit_status sbit__sequence_at_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__sequence_check(call, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->kind = call->in_type[0]->of;
    }
    return SBIT_OK;
}

static sbit_status sbit__sequence_at_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_value *sequence = NULL;
    int64_t at = 0;
    SBIT__TRY(sbit__sequence_in(call, &sequence, error));
    SBIT__TRY(sbit__sequence_position(call, 1, sequence->item_count, sequence->item_count - 1, 0,
                                      &at, error));
    return call->copy_output(call, 0, -1, &sequence->items[at], error);
}

static sbit_status sbit__sequence_insert_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type element;
    SBIT__TRY(sbit__op_inputs(call, 2, 3, error));
    SBIT__TRY(sbit__sequence_check(call, error));
    element = *call->in_type[0];
    element.kind = SBIT_KIND_TENSOR;
    element.of = SBIT_KIND_TENSOR;
    if (element.dtype == SBIT_UNDEFINED) {
        element.dtype = call->in_type[1]->dtype;
    }
    sbit__control_join(&element, call->in_type[1]);
    sbit__sequence_out(call, 0, &element);
    return SBIT_OK;
}

static sbit_status sbit__sequence_insert_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_value *sequence = NULL;
    int64_t at = 0;
    SBIT__TRY(sbit__sequence_in(call, &sequence, error));
    const int64_t count = sequence->item_count;
    SBIT__TRY(sbit__sequence_position(call, 2, count, count, count, &at, error));
    SBIT__TRY(call->alloc_items(call, 0, SBIT_KIND_SEQUENCE, count + 1, error));
    for (int64_t i = 0; i <= count; i++) {
        const sbit_value *item = i == at  ? call->in_value[1]
                                 : i < at ? &sequence->items[i]
                                          : &sequence->items[i - 1];
        SBIT__TRY(call->copy_output(call, 0, i, item, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__sequence_erase_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 2, error));
    SBIT__TRY(sbit__sequence_check(call, error));
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__sequence_erase_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_value *sequence = NULL;
    int64_t at = 0;
    SBIT__TRY(sbit__sequence_in(call, &sequence, error));
    const int64_t count = sequence->item_count;
    SBIT__TRY(sbit__sequence_position(call, 1, count, count - 1, count - 1, &at, error));
    SBIT__TRY(call->alloc_items(call, 0, SBIT_KIND_SEQUENCE, count - 1, error));
    for (int64_t i = 0; i < count - 1; i++) {
        SBIT__TRY(call->copy_output(call, 0, i, &sequence->items[i < at ? i : i + 1], error));
    }
    return SBIT_OK;
}

static sbit_status sbit__sequence_length_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__sequence_check(call, error));
    sbit__op_out(call, 0, SBIT_I64, 0);
    return SBIT_OK;
}

static sbit_status sbit__sequence_length_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_value *sequence = NULL;
    SBIT__TRY(sbit__sequence_in(call, &sequence, error));
    if (call->out[0] != NULL) {
        memcpy(call->out[0]->data, &sequence->item_count, sizeof(int64_t));
    }
    return SBIT_OK;
}

/* >>SplitToSequence, ConcatFromSequence */

static sbit_status sbit__split_to_infer(const sbit_op_call *call, sbit_error *error)
{
    const bool single = sbit__in_type(call, 1) == NULL;
    sbit_type element;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 2, error));
    element = *call->in_type[0];
    if (element.rank >= 0) {
        SBIT__TRY(
            sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), element.rank, &axis, error));
        element.dims[axis] = single ? sbit__dim(1) : sbit__dim_any();
        if (single && sbit_node_int(call->node, "keepdims", 1) == 0) {
            sbit__scan_drop_dim(&element, axis);
        }
    }
    sbit__sequence_out(call, 0, &element);
    return SBIT_OK;
}

/* The size of part i: of the list of sizes, or equal parts of `each` with a smaller last one. */
static int64_t sbit__split_to_size(const sbit_tensor *sizes, int64_t each, int64_t whole, int64_t i)
{
    if (sizes != NULL && sizes->rank > 0) {
        return sbit__tensor_i64_at(sizes, i);
    }
    const int64_t left = whole - i * each;
    return left < each ? left : each;
}

static sbit_status sbit__split_to_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0], *sizes = sbit__in(call, 1);
    const bool drop = sizes == NULL && sbit_node_int(call->node, "keepdims", 1) == 0;
    int64_t each = 1, at = 0;
    int32_t axis = 0;
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), x->rank, &axis, error));
    if (sizes != NULL && sizes->rank == 0) {
        SBIT__TRY(sbit__op_scalar(call, 1, 1, &each, error));
    }
    const int64_t whole = x->dims[axis], inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    const int64_t outer = sbit__dims_product(x->dims, 0, axis);
    if (each <= 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "parts of %lld", (long long)each);
    }
    const int64_t count = sizes != NULL && sizes->rank > 0 ? sbit_tensor_count(sizes)
                                                           : whole / each + (whole % each != 0);
    SBIT__TRY(call->alloc_items(call, 0, SBIT_KIND_SEQUENCE, count, error));
    for (int64_t i = 0; i < count; i++) {
        const int64_t size = sbit__split_to_size(sizes, each, whole, i);
        int64_t dims[SBIT_MAX_RANK];
        if (size < 0 || size > whole - at) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the parts do not add up to %lld",
                                (long long)whole);
        }
        for (int32_t d = 0, k = 0; d < x->rank; d++) {
            if (d != axis || !drop) {
                dims[k++] = d == axis ? size : x->dims[d];
            }
        }
        SBIT__TRY(
            call->alloc_output(call, 0, i, x->dtype, drop ? x->rank - 1 : x->rank, dims, error));
        sbit_tensor *part = &call->out_value[0]->items[i].tensor;
        for (int64_t o = 0; o < outer; o++) {
            sbit__elem_copy(x->dtype, part->data, o * size * inner, x->data,
                            (o * whole + at) * inner, size * inner);
        }
        at += size;
    }
    if (at != whole) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the parts add up to %lld, not to %lld",
                            (long long)at, (long long)whole);
    }
    return SBIT_OK;
}

static sbit_status sbit__concat_from_infer(const sbit_op_call *call, sbit_error *error)
{
    const bool new_axis = sbit_node_int(call->node, "new_axis", 0) != 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__sequence_check(call, error));
    const sbit_type *element = call->in_type[0];
    int32_t rank = element->rank < 0 ? -1 : element->rank + (new_axis ? 1 : 0);
    rank = rank > SBIT_MAX_RANK ? -1 : rank;
    sbit__op_out(call, 0, element->dtype, rank);
    return SBIT_OK;
}

static sbit_status sbit__concat_from_run(const sbit_op_call *call, sbit_error *error)
{
    const bool new_axis = sbit_node_int(call->node, "new_axis", 0) != 0;
    const sbit_value *sequence = NULL;
    int64_t dims[SBIT_MAX_RANK + 1], along = 0, at = 0;
    int32_t axis = 0;
    SBIT__TRY(sbit__sequence_in(call, &sequence, error));
    if (sequence->item_count == 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the sequence is empty");
    }
    const sbit_tensor *first = &sequence->items[0].tensor;
    const int32_t rank = first->rank + (new_axis ? 1 : 0);
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), rank, &axis, error));
    if (rank > SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "the output's rank is above %d",
                            SBIT_MAX_RANK);
    }
    for (int64_t i = 0; i < sequence->item_count; i++) {
        const sbit_tensor *x = &sequence->items[i].tensor;
        bool fits = x->dtype == first->dtype && x->rank == first->rank;
        for (int32_t d = 0; fits && d < x->rank; d++) {
            fits = x->dims[d] == first->dims[d] || (!new_axis && d == axis);
        }
        if (!fits) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the items do not fit together");
        }
        along += new_axis ? 1 : x->dims[axis];
    }
    for (int32_t d = 0; d < rank; d++) {
        dims[d] = d == axis ? along : first->dims[new_axis && d > axis ? d - 1 : d];
    }
    SBIT__TRY(call->alloc_output(call, 0, -1, first->dtype, rank, dims, error));
    const int64_t outer = sbit__dims_product(dims, 0, axis);
    const int64_t inner = sbit__dims_product(dims, axis + 1, rank);
    for (int64_t i = 0; i < sequence->item_count; i++) {
        const sbit_tensor *x = &sequence->items[i].tensor;
        const int64_t size = new_axis ? 1 : x->dims[axis];
        for (int64_t o = 0; o < outer; o++) {
            sbit__elem_copy(x->dtype, call->out[0]->data, (o * along + at) * inner, x->data,
                            o * size * inner, size * inner);
        }
        at += size;
    }
    return SBIT_OK;
}

/* >>SequenceMap: a body per item; further inputs that are sequences are taken item by item too */

static sbit_status sbit__sequence_map_body(const sbit_op_call *call, const sbit_graph **body,
                                           sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, INT32_MAX, error));
    SBIT__TRY(
        sbit__control_check_body(call, "body", call->input_count, call->output_count, body, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        if (call->in_type[i] == NULL) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input %d is missing", (int)i);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__sequence_map_types(const sbit_op_call *call, const sbit_graph *body,
                                            sbit__control_types *types, sbit_error *error)
{
    SBIT__TRY(sbit__control_types_make(call, body, types, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        types->in[i] = *call->in_type[i];
        if (types->in[i].kind == SBIT_KIND_SEQUENCE) {
            types->in[i].kind = SBIT_KIND_TENSOR;
            types->in[i].of = SBIT_KIND_TENSOR;
        }
    }
    SBIT__TRY(sbit__control_infer_body(call, body, types, error));
    for (int32_t i = 0; i < call->output_count; i++) {
        sbit__sequence_out(call, i, &types->out[i]);
    }
    return SBIT_OK;
}

static sbit_status sbit__sequence_map_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_graph *body = NULL;
    sbit__control_types types;
    sbit_status status = SBIT_OK;
    memset(&types, 0, sizeof types);
    SBIT__TRY(sbit__sequence_map_body(call, &body, error));
    status = sbit__sequence_map_types(call, body, &types, error);
    sbit__control_types_free(call, &types);
    return status;
}

static sbit_status sbit__sequence_map_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__loop_run run;
    const sbit_value *sequence = NULL;
    memset(&run, 0, sizeof run);
    SBIT__TRY(sbit__sequence_map_body(call, &run.body, error));
    SBIT__TRY(sbit__sequence_in(call, &sequence, error));
    run.in_count = sbit_graph_input_count(run.body);
    run.out_count = sbit_graph_output_count(run.body);
    sbit__loop_place(&run, call->scratch);
    memset(run.results[0], 0, run.out_count * sizeof(sbit_value));
    for (int32_t i = 0; i < call->output_count; i++) {
        if (call->out_value[i] != NULL) {
            SBIT__TRY(call->alloc_items(call, i, SBIT_KIND_SEQUENCE, sequence->item_count, error));
        }
    }
    for (int64_t k = 0; k < sequence->item_count; k++) {
        for (int32_t i = 0; i < call->input_count; i++) {
            const sbit_value *value = call->in_value[i];
            if (value->kind == SBIT_KIND_SEQUENCE && value->item_count <= k) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d is a shorter sequence",
                                    (int)i);
            }
            run.inputs[i] = value->kind == SBIT_KIND_SEQUENCE ? &value->items[k] : value;
        }
        SBIT__TRY(call->run_body(call, run.body, run.inputs, run.in_count, run.results[0],
                                 run.out_count, error));
        for (int32_t i = 0; i < call->output_count; i++) {
            if (call->out_value[i] != NULL) {
                SBIT__TRY(call->copy_output(call, i, k, &run.results[0][i], error));
            }
        }
    }
    return SBIT_OK;
}

/* >>optionals */

static sbit_status sbit__optional_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = sbit__in_type(call, 0);
    sbit_type *out = NULL;
    SBIT__TRY(sbit__op_inputs(call, 0, 1, error));
    out = sbit__op_out(call, 0, SBIT_UNDEFINED, -1);
    if (out == NULL) {
        return SBIT_OK;
    }
    if (x != NULL) { /* else attribute `type` says, which the declared type repeats */
        *out = *x;
        out->of = x->kind;
        out->kind = SBIT_KIND_OPTIONAL;
    }
    return SBIT_OK;
}

static sbit_status sbit__optional_run(const sbit_op_call *call, sbit_error *error)
{
    const bool has = call->input_count > 0 && call->in_value[0] != NULL;
    SBIT__TRY(call->alloc_items(call, 0, SBIT_KIND_OPTIONAL, has ? 1 : 0, error));
    return has ? call->copy_output(call, 0, 0, call->in_value[0], error) : SBIT_OK;
}

/* OptionalGetElement-18 also takes what is no optional, and gives it back. */
static sbit_status sbit__optional_get_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL &&
        call->in_type[0]->kind == SBIT_KIND_OPTIONAL) {
        call->out_type[0]->kind = call->in_type[0]->of;
        call->out_type[0]->of = SBIT_KIND_TENSOR;
    }
    return SBIT_OK;
}

static sbit_status sbit__optional_get_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_value *value = call->in_value[0];
    if (value->kind == SBIT_KIND_OPTIONAL && value->item_count == 0) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_ARGUMENT, error, "the optional is empty");
    }
    return call->copy_output(call, 0, -1,
                             value->kind == SBIT_KIND_OPTIONAL ? &value->items[0] : value, error);
}

static sbit_status sbit__optional_has_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 0, 1, error));
    sbit__op_out(call, 0, SBIT_BOOL, 0);
    return SBIT_OK;
}

static sbit_status sbit__optional_has_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_value *value = call->input_count > 0 ? call->in_value[0] : NULL;
    (void)error;
    if (call->out[0] != NULL) {
        *(uint8_t *)call->out[0]->data =
            value != NULL && (value->kind != SBIT_KIND_OPTIONAL || value->item_count > 0);
    }
    return SBIT_OK;
}

/* >>rows */

#define SBIT__CONTROL_ROW(name, version, types, flags, infer, prepare, run)                        \
    {                                                                                              \
        "", name, version, types, (flags) | SBIT_OP_OMITS, 0, infer, prepare, run, NULL, NULL,     \
            NULL, NULL, NULL                                                                       \
    }
#define SBIT__CONTROL_IF(version)                                                                  \
    SBIT__CONTROL_ROW("If", version, SBIT_T(SBIT_BOOL),                                            \
                      SBIT_OP_BODY | SBIT_OP_DYNAMIC | SBIT_OP_KINDS, sbit__if_infer,              \
                      sbit__if_prepare, sbit__if_run)
#define SBIT__CONTROL_LOOP(version)                                                                \
    SBIT__CONTROL_ROW("Loop", version, SBIT_T(SBIT_I64),                                           \
                      SBIT_OP_BODY | SBIT_OP_DYNAMIC | SBIT_OP_KINDS, sbit__loop_infer,            \
                      sbit__loop_prepare, sbit__loop_run_all)
#define SBIT__CONTROL_SCAN(version, types)                                                         \
    SBIT__CONTROL_ROW("Scan", version, types, SBIT_OP_BODY | SBIT_OP_DYNAMIC, sbit__scan_infer,    \
                      sbit__scan_prepare, sbit__scan_run_all)
#define SBIT__CONTROL_SEQUENCE(name, version, types, fn)                                           \
    SBIT__CONTROL_ROW(name, version, types, SBIT_OP_DYNAMIC | SBIT_OP_KINDS, sbit__##fn##_infer,   \
                      NULL, sbit__##fn##_run)
#define SBIT__CONTROL_SCALAR(name, version, types, fn)                                             \
    SBIT__CONTROL_ROW(name, version, types, SBIT_OP_KINDS, sbit__##fn##_infer, NULL,               \
                      sbit__##fn##_run)

static const sbit_op_row sbit__control_rows[] = {
    SBIT__CONTROL_IF(1),
    SBIT__CONTROL_IF(11),
    SBIT__CONTROL_IF(13),
    SBIT__CONTROL_IF(16),
    SBIT__CONTROL_IF(19),
    SBIT__CONTROL_IF(21),
    SBIT__CONTROL_IF(23),
    SBIT__CONTROL_IF(24),
    SBIT__CONTROL_IF(25),
    SBIT__CONTROL_LOOP(1),
    SBIT__CONTROL_LOOP(11),
    SBIT__CONTROL_LOOP(13),
    SBIT__CONTROL_LOOP(16),
    SBIT__CONTROL_LOOP(19),
    SBIT__CONTROL_LOOP(21),
    SBIT__CONTROL_LOOP(23),
    SBIT__CONTROL_LOOP(24),
    SBIT__CONTROL_LOOP(25),
    SBIT__CONTROL_SCAN(8, SBIT_T(SBIT_I64)),
    SBIT__CONTROL_SCAN(9, SBIT__T_ALL1),
    SBIT__CONTROL_SCAN(11, SBIT__T_ALL1),
    SBIT__CONTROL_SCAN(16, SBIT__T_ALL13),
    SBIT__CONTROL_SCAN(19, SBIT__T_ALL19),
    SBIT__CONTROL_SCAN(21, SBIT__T_ALL21),
    SBIT__CONTROL_SCAN(23, SBIT__T_ALL23),
    SBIT__CONTROL_SCAN(24, SBIT__T_ALL24),
    SBIT__CONTROL_SCAN(25, SBIT__T_ALL25),
    SBIT__CONTROL_SEQUENCE("SequenceConstruct", 11, SBIT__T_ALL1, sequence_construct),
    SBIT__CONTROL_SEQUENCE("SequenceEmpty", 11, SBIT__T_ALL1, sequence_empty),
    SBIT__CONTROL_SEQUENCE("SequenceAt", 11, SBIT__T_ALL1, sequence_at),
    SBIT__CONTROL_SEQUENCE("SequenceInsert", 11, SBIT__T_ALL1, sequence_insert),
    SBIT__CONTROL_SEQUENCE("SequenceErase", 11, SBIT__T_ALL1, sequence_erase),
    SBIT__CONTROL_SCALAR("SequenceLength", 11, SBIT__T_ALL1, sequence_length),
    SBIT__CONTROL_SEQUENCE("SplitToSequence", 11, SBIT__T_ALL1, split_to),
    SBIT__CONTROL_SEQUENCE("SplitToSequence", 24, SBIT__T_ALL13, split_to),
    SBIT__CONTROL_SEQUENCE("ConcatFromSequence", 11, SBIT__T_ALL1, concat_from),
    SBIT__CONTROL_ROW("SequenceMap", 17, SBIT__T_ALL1,
                      SBIT_OP_BODY | SBIT_OP_DYNAMIC | SBIT_OP_KINDS, sbit__sequence_map_infer,
                      sbit__control_prepare, sbit__sequence_map_run),
    SBIT__CONTROL_SEQUENCE("Optional", 15, SBIT__T_ALL1, optional),
    SBIT__CONTROL_SEQUENCE("Optional", 28, SBIT__T_ALL28, optional),
    SBIT__CONTROL_SEQUENCE("OptionalGetElement", 15, SBIT__T_ALL1, optional_get),
    SBIT__CONTROL_SEQUENCE("OptionalGetElement", 18, SBIT__T_ALL1, optional_get),
    SBIT__CONTROL_SEQUENCE("OptionalGetElement", 28, SBIT__T_ALL28, optional_get),
    SBIT__CONTROL_SCALAR("OptionalHasElement", 15, SBIT__T_ALL1, optional_has),
    SBIT__CONTROL_SCALAR("OptionalHasElement", 18, SBIT__T_ALL1, optional_has),
    SBIT__CONTROL_SCALAR("OptionalHasElement", 28, SBIT__T_ALL28, optional_has),
};

#undef SBIT__CONTROL_ROW
#undef SBIT__CONTROL_IF
#undef SBIT__CONTROL_LOOP
#undef SBIT__CONTROL_SCAN
#undef SBIT__CONTROL_SEQUENCE
#undef SBIT__CONTROL_SCALAR

SBIT__FN const sbit_op_row *sbit__op_rows_control(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__control_rows);
    return sbit__control_rows;
}

#endif /* SPARSEBIT_NO_OPS_CONTROL */
