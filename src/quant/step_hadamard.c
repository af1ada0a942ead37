/* step_hadamard.c: the residual stream of a transformer is turned by a rotation that is folded into
 * the weights around it. >>step-hadamard
 *
 * After Ashkboos et al. 2024 (QuaRot, SliceGPT): x R in place of x, W R for the weights that write
 * to the stream, R^T W for those that read it; large channels are spread over all. Behind a
 * normalization scale g and shift b would stand in between: g goes into the weights behind it, and
 * the shift becomes (b / g) R. LayerNormalization also takes the mean off; it commutes with R
 * because R leaves the vector of ones alone: R = F D F / d, where F = F^T is a Hadamard matrix
 * times (for the odd factor of d) one of Hartley, F F = d I with a first column of ones, and D has
 * drawn signs, the first +. R is its own inverse, and nothing is added to the graph. What is turned
 * is found by following channels from normalization to normalization; where an operator is met
 * that mixes or bends them otherwise, the whole stream stays as it is (normalizations whose output
 * is added to the stream, as in BERT, among them).
 */
#include "quant_private.h"

/* A constant that is multiplied with R along `axis`, and before with the scale of a normalization. */
typedef struct sbit__turn_constant {
    sbit_value_id id;
    int64_t axis;
    uint32_t norm; /* number in `norms` from 1; 0: none */
} sbit__turn_constant;

typedef struct sbit__turn {
    sbit_graph *graph;
    sbit__arena *arena;
    int64_t d;
    uint32_t limit;    /* of values */
    int64_t *axis;     /* by value: where its channels lie, from 1; 0: it has none */
    uint32_t *norm;    /* by value: behind which normalization it lies, from 1 */
    uint32_t *queue;   /* values that were found */
    size_t found;
    sbit__turn_constant *changes;
    size_t change_count, change_limit;
    sbit_node_id *norms;
    uint32_t norm_count;
    bool *done; /* by value: some stream has it */
    double *room; /* [2 d] */
    signed char *sign;
} sbit__turn;

/* >>step-hadamard shapes */
static int64_t sbit__turn_rank(const sbit_value_info *value)
{
    return value->is_constant ? (int64_t)value->constant.rank : (int64_t)value->type.rank;
}

/* -1: not known. */
static int64_t sbit__turn_dim(const sbit_value_info *value, int64_t axis)
{
    const sbit_dim *dim = &value->type.dims[axis];
    return value->is_constant ? value->constant.dims[axis] : dim->symbol == 0 ? dim->value : -1;
}

/* Values that lie next to each other along the axis; -1: not known. */
static int64_t sbit__turn_tail(const sbit_value_info *value, int64_t axis)
{
    int64_t tail = 1;
    for (int64_t i = axis + 1; i < sbit__turn_rank(value); i++) {
        const int64_t dim = sbit__turn_dim(value, i);
        tail = dim < 0 || tail < 0 ? -1 : tail * dim;
    }
    return tail;
}

static bool sbit__turn_is(const sbit_node *node, const char *type)
{
    return node->domain[0] == '\0' && sbit__streq(node->op_type, type);
}

/* Where channels at `axis` of `from` (a node's first input or its output) lie in `to` (the other);
 * -1: they do not pass. */
static int64_t sbit__turn_pass(const sbit__turn *t, const sbit_node *node,
                               const sbit_value_info *from, const sbit_value_info *to, int64_t axis)
{
    const int64_t shift = sbit__turn_rank(to) - sbit__turn_rank(from);
    const bool forward = from->id.idx == node->inputs[0].idx;
    if (sbit__turn_is(node, "Identity") || sbit__turn_is(node, "Dropout") ||
        sbit__turn_is(node, "Expand")) {
        return axis + shift;
    }
    if (sbit__turn_is(node, "Transpose")) {
        const sbit_attr *perm = sbit_node_attr(node, "perm");
        for (int64_t i = 0; perm != NULL && i < (int64_t)perm->count; i++) {
            if (forward ? perm->ints[i] == axis : i == axis) {
                return forward ? i : perm->ints[i];
            }
        }
        return perm == NULL ? sbit__turn_rank(from) - 1 - axis : -1;
    }
    if (sbit__turn_is(node, "Reshape") || sbit__turn_is(node, "Flatten") ||
        sbit__turn_is(node, "Squeeze") || sbit__turn_is(node, "Unsqueeze")) {
        const int64_t tail = sbit__turn_tail(from, axis);
        for (int64_t i = 0; i < sbit__turn_rank(to) && tail >= 0; i++) {
            if (sbit__turn_dim(to, i) == t->d && sbit__turn_tail(to, i) == tail) {
                return i;
            }
        }
        return -1;
    }
    if (sbit__turn_is(node, "Gather")) { /* of places, not of channels */
        const int64_t ranks = sbit__turn_rank(forward ? from : to);
        const int64_t at = sbit_node_int(node, "axis", 0), own = at < 0 ? at + ranks : at;
        const int64_t more = sbit__turn_rank(sbit_graph_value(t->graph, node->inputs[1])) - 1;
        if (forward) {
            return axis == own ? -1 : axis < own ? axis : axis + more;
        }
        return axis < own ? axis : axis > own + more ? axis - more : -1;
    }
    return -1;
}

/* >>step-hadamard search */
/* The value has the channels along `axis`; false: it cannot, or was found to have them elsewhere. */
static bool sbit__turn_visit(sbit__turn *t, sbit_value_id id, int64_t axis, uint32_t norm)
{
    const sbit_value_info *value = sbit_graph_value(t->graph, id);
    if (axis < 0 || axis >= sbit__turn_rank(value) || sbit__turn_dim(value, axis) != t->d ||
        t->done[id.idx]) {
        return false;
    }
    if (t->axis[id.idx] == 0) {
        t->axis[id.idx] = axis + 1;
        t->norm[id.idx] = norm;
        t->queue[t->found++] = id.idx;
    }
    return t->axis[id.idx] == axis + 1 && t->norm[id.idx] == norm;
}

/* A constant of `rank` with the channels along `axis` is to be turned. only: nothing else reads it. */
static bool sbit__turn_change(sbit__turn *t, sbit_value_id id, int64_t rank, int64_t axis,
                              uint32_t norm, bool only)
{
    const sbit_value_info *value = sbit_graph_value(t->graph, id);
    if (!value->is_constant || value->is_input || value->constant.dtype != SBIT_F32 ||
        (only && value->use_count != 1) || (rank > 0 && value->constant.rank != rank) ||
        axis >= value->constant.rank || value->constant.dims[axis] != t->d ||
        t->change_count >= t->change_limit) {
        return false;
    }
    t->changes[t->change_count].id = id;
    t->changes[t->change_count].axis = axis;
    t->changes[t->change_count++].norm = norm;
    return true;
}

/* Both inputs of an addition, or all that are joined: as the output, counted from the last axis. */
static bool sbit__turn_inputs(sbit__turn *t, const sbit_node *node, const sbit_value_info *value,
                              int64_t axis)
{
    bool fine = true;
    for (size_t i = 0; i < node->input_count && fine; i++) {
        const int64_t rank = sbit__turn_rank(sbit_graph_value(t->graph, node->inputs[i]));
        fine = sbit__turn_visit(t, node->inputs[i], axis + rank - sbit__turn_rank(value), 0);
    }
    return fine;
}

static bool sbit__turn_joins(const sbit__turn *t, const sbit_node *node, int64_t axis)
{
    const int64_t rank = sbit__turn_rank(sbit_graph_value(t->graph, node->outputs[0]));
    const int64_t at = sbit_node_int(node, "axis", 0);
    return sbit__turn_is(node, "Add") || sbit__turn_is(node, "Sub") ||
           (sbit__turn_is(node, "Concat") && (at < 0 ? at + rank : at) != axis);
}

/* What makes a value of the stream. */
static bool sbit__turn_up(sbit__turn *t, const sbit_value_info *value, int64_t axis)
{
    if (value->is_constant) {
        return sbit__turn_change(t, value->id, 0, axis, 0, false);
    }
    if (value->producer.idx == 0) {
        return false;
    }
    const sbit_node *node = sbit_graph_node(t->graph, value->producer);
    const bool last = axis == sbit__turn_rank(value) - 1, own = value->id.idx == node->outputs[0].idx;
    const bool turned = sbit_node_int(node, "transB", 0) != 0;
    const bool bias = node->input_count > 2 && node->inputs[2].idx != 0;
    if (!own || node->input_count == 0) {
        return false;
    }
    if (sbit__turn_joins(t, node, axis)) {
        return sbit__turn_inputs(t, node, value, axis);
    }
    if (sbit__turn_is(node, "MatMul")) {
        return last && sbit__turn_change(t, node->inputs[1], 2, 1, 0, true);
    }
    if (sbit__turn_is(node, "Gemm")) {
        return last && sbit__turn_change(t, node->inputs[1], 2, turned ? 0 : 1, 0, true) &&
               (!bias || sbit__turn_change(t, node->inputs[2], 1, 0, 0, true));
    }
    if (sbit__turn_is(node, "Conv")) {
        return axis == 1 && sbit_node_int(node, "group", 1) == 1 &&
               sbit__turn_change(t, node->inputs[1], 0, 0, 0, true) &&
               (!bias || sbit__turn_change(t, node->inputs[2], 1, 0, 0, true));
    }
    const sbit_value_info *from = sbit_graph_value(t->graph, node->inputs[0]);
    return sbit__turn_visit(t, from->id, sbit__turn_pass(t, node, value, from, axis), 0);
}

/* Scale and shift belong to the normalization alone, and no scale is next to nothing. */
static bool sbit__turn_norm(sbit__turn *t, const sbit_node *node, int64_t axis, int64_t rank)
{
    const int64_t at = sbit_node_int(node, "axis", -1);
    float least = INFINITY, most = 0.0f;
    if (axis != rank - 1 || (at != -1 && at != axis) || node->input_count < 2) {
        return false;
    }
    for (size_t i = 1; i < node->input_count; i++) {
        const sbit_value_info *own =
            node->inputs[i].idx != 0 ? sbit_graph_value(t->graph, node->inputs[i]) : NULL;
        if (own != NULL && (!own->is_constant || own->use_count != 1 ||
                            own->constant.dtype != SBIT_F32 ||
                            sbit_tensor_count(&own->constant) != t->d)) {
            return false;
        }
    }
    const float *scale =
        (const float *)sbit_graph_value(t->graph, node->inputs[1])->constant.data;
    for (int64_t i = 0; i < t->d; i++) {
        least = fabsf(scale[i]) < least ? fabsf(scale[i]) : least;
        most = fabsf(scale[i]) > most ? fabsf(scale[i]) : most;
    }
    for (size_t i = 1; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0 &&
            sbit_graph_value(t->graph, node->outputs[i])->use_count > 0) {
            return false;
        }
    }
    t->norms[t->norm_count++] = node->id;
    return least > 1e-5f * most && sbit__turn_visit(t, node->outputs[0], axis, t->norm_count);
}

/* One that reads a value of the stream, or what a normalization made of it. */
static bool sbit__turn_down(sbit__turn *t, const sbit_value_info *value, const sbit_use *use,
                            int64_t axis, uint32_t norm)
{
    if (use->node.idx == 0 || use->body != NULL) {
        return false;
    }
    const sbit_node *node = sbit_graph_node(t->graph, use->node);
    const int64_t rank = sbit__turn_rank(value);
    const bool turned = sbit_node_int(node, "transB", 0) != 0;
    if (sbit__turn_is(node, "Shape") || sbit__turn_is(node, "Size")) {
        return true;
    }
    const sbit_value_info *to = sbit_graph_value(t->graph, node->outputs[0]);
    if (norm == 0 && sbit__turn_joins(t, node, axis + sbit__turn_rank(to) - rank)) {
        return sbit__turn_visit(t, to->id, axis + sbit__turn_rank(to) - rank, 0);
    }
    if (use->index != 0) {
        return false;
    }
    if (sbit__turn_is(node, "LayerNormalization") || sbit__turn_is(node, "RMSNormalization")) {
        return norm == 0 && sbit__turn_norm(t, node, axis, rank);
    }
    if (sbit__turn_is(node, "MatMul")) {
        return axis == rank - 1 && sbit__turn_change(t, node->inputs[1], 2, 0, norm, true);
    }
    if (sbit__turn_is(node, "Gemm")) {
        return axis == rank - 1 && sbit_node_int(node, "transA", 0) == 0 &&
               sbit__turn_change(t, node->inputs[1], 2, turned ? 1 : 0, norm, true);
    }
    return sbit__turn_visit(t, to->id, sbit__turn_pass(t, node, value, to, axis), norm);
}

/* All that hangs together with the value; false: something cannot be turned. */
static bool sbit__turn_follow(sbit__turn *t, sbit_value_id first, sbit_use *uses, size_t capacity)
{
    const sbit_value_info *start = sbit_graph_value(t->graph, first);
    bool fine = sbit__turn_visit(t, first, sbit__turn_rank(start) - 1, 0);
    for (size_t next = 0; next < t->found && fine; next++) {
        const sbit_value_id id = {t->queue[next]};
        const sbit_value_info *value = sbit_graph_value(t->graph, id);
        const int64_t axis = t->axis[id.idx] - 1;
        const size_t count = sbit_graph_uses(t->graph, id, uses, capacity);
        fine = count <= capacity && !value->is_output &&
               (t->norm[id.idx] > 0 || sbit__turn_up(t, value, axis));
        for (size_t i = 0; i < count && fine; i++) {
            fine = sbit__turn_down(t, value, &uses[i], axis, t->norm[id.idx]);
        }
    }
    return fine;
}

/* >>step-hadamard rotation */
/* x F, with `room` for as many. */
static void sbit__turn_transform(double *x, int64_t d, double *room)
{
    int64_t odd = d;
    while (odd % 2 == 0) {
        odd /= 2;
    }
    for (int64_t block = odd; block < d; block *= 2) { /* Hadamard: over blocks of `odd` */
        for (int64_t i = 0; i < d; i++) {
            if (i / block % 2 == 0) {
                const double a = x[i], b = x[i + block];
                x[i] = a + b;
                x[i + block] = a - b;
            }
        }
    }
    for (int64_t first = 0; first < d && odd > 1; first += odd) { /* Hartley */
        for (int64_t i = 0; i < odd; i++) {
            room[i] = 0.0;
            for (int64_t k = 0; k < odd; k++) {
                const double angle = 6.283185307179586 * (double)(i * k % odd) / (double)odd;
                room[i] += x[first + k] * (cos(angle) + sin(angle));
            }
        }
        memcpy(x + first, room, (size_t)odd * sizeof *x);
    }
}

static void sbit__turn_rotate(const sbit__turn *t, double *x)
{
    sbit__turn_transform(x, t->d, x + t->d);
    for (int64_t i = 0; i < t->d; i++) {
        x[i] *= (double)t->sign[i] / (double)t->d;
    }
    sbit__turn_transform(x, t->d, x + t->d);
}

/* The constant's rows along `axis`, times `factor` if there is one (or through it), turned. */
static sbit_status sbit__turn_store(sbit__turn *t, sbit_value_id id, int64_t axis,
                                    const float *factor, bool divide, sbit_error *error)
{
    sbit_tensor tensor = sbit_graph_value(t->graph, id)->constant;
    const int64_t count = sbit_tensor_count(&tensor), d = t->d;
    const float *from = (const float *)tensor.data;
    float *to = (float *)sbit__arena_array(t->arena, (size_t)count, sizeof *to);
    int64_t tail = 1;
    if (to == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof *to);
    }
    for (int64_t i = axis + 1; i < tensor.rank; i++) {
        tail *= tensor.dims[i];
    }
    for (int64_t r = 0; r < count / d; r++) {
        const int64_t first = r / tail * tail * d + r % tail;
        for (int64_t i = 0; i < d; i++) {
            const double by = factor != NULL ? (double)factor[i] : 1.0;
            const double x = (double)from[first + i * tail];
            t->room[i] = divide ? x / by : x * by;
        }
        sbit__turn_rotate(t, t->room);
        for (int64_t i = 0; i < d; i++) {
            to[first + i * tail] = (float)t->room[i];
        }
    }
    tensor.data = to;
    return sbit_graph_set_constant(t->graph, id, &tensor, error);
}

static sbit_status sbit__turn_apply(sbit__turn *t, sbit_error *error)
{
    sbit_rng rng = sbit_rng_seed((uint64_t)t->d);
    for (int64_t i = 0; i < t->d; i++) {
        t->sign[i] = i > 0 && sbit_rng_below(&rng, 2) == 1 ? -1 : 1;
    }
    for (size_t i = 0; i < t->change_count; i++) {
        const sbit__turn_constant *change = &t->changes[i];
        const sbit_node *norm =
            change->norm > 0 ? sbit_graph_node(t->graph, t->norms[change->norm - 1]) : NULL;
        const float *scale =
            norm != NULL
                ? (const float *)sbit_graph_value(t->graph, norm->inputs[1])->constant.data
                : NULL;
        SBIT__TRY(sbit__turn_store(t, change->id, change->axis, scale, false, error));
    }
    for (uint32_t i = 0; i < t->norm_count; i++) {
        const sbit_node *norm = sbit_graph_node(t->graph, t->norms[i]);
        sbit_tensor ones = sbit_graph_value(t->graph, norm->inputs[1])->constant;
        if (norm->input_count > 2 && norm->inputs[2].idx != 0) {
            SBIT__TRY(sbit__turn_store(t, norm->inputs[2], 0, (const float *)ones.data, true, error));
        }
        float *data = (float *)(void *)t->room;
        for (int64_t k = 0; k < t->d; k++) {
            data[k] = 1.0f;
        }
        ones.data = data;
        SBIT__TRY(sbit_graph_set_constant(t->graph, norm->inputs[1], &ones, error));
    }
    return SBIT_OK;
}

/* >>step-hadamard run */
static sbit_status sbit__turn_room(sbit__turn *t, sbit_use **uses, size_t capacity,
                                   sbit_error *error)
{
    const uint32_t nodes = sbit_graph_node_limit(t->graph);
    t->limit = sbit_graph_value_limit(t->graph);
    t->change_limit = 2 * (size_t)t->limit;
    t->axis = (int64_t *)sbit__arena_array(t->arena, t->limit, sizeof *t->axis);
    t->norm = (uint32_t *)sbit__arena_array(t->arena, t->limit, sizeof *t->norm);
    t->queue = (uint32_t *)sbit__arena_array(t->arena, t->limit, sizeof *t->queue);
    t->done = (bool *)sbit__arena_array(t->arena, t->limit, sizeof *t->done);
    t->norms = (sbit_node_id *)sbit__arena_array(t->arena, nodes, sizeof *t->norms);
    t->changes =
        (sbit__turn_constant *)sbit__arena_array(t->arena, t->change_limit, sizeof *t->changes);
    *uses = (sbit_use *)sbit__arena_array(t->arena, capacity, sizeof **uses);
    return t->axis != NULL && t->norm != NULL && t->queue != NULL && t->done != NULL &&
                   t->norms != NULL && t->changes != NULL && *uses != NULL
               ? SBIT_OK
               : sbit__fail_oom(error, t->limit * sizeof *t->axis);
}

/* The stream that a normalization reads. */
static sbit_status sbit__turn_stream(sbit__turn *t, const sbit_node *norm, sbit_use *uses,
                                     size_t capacity, bool *turned, sbit_error *error)
{
    const sbit_value_info *x = sbit_graph_value(t->graph, norm->inputs[0]);
    const int64_t rank = sbit__turn_rank(x);
    *turned = false;
    if (t->done[x->id.idx] || rank < 2 || sbit__turn_dim(x, rank - 1) < 2) {
        return SBIT_OK;
    }
    t->d = sbit__turn_dim(x, rank - 1);
    t->found = t->change_count = t->norm_count = 0;
    t->room = (double *)sbit__arena_array(t->arena, 2 * (size_t)t->d, sizeof *t->room);
    t->sign = (signed char *)sbit__arena_array(t->arena, (size_t)t->d, sizeof *t->sign);
    if (t->room == NULL || t->sign == NULL) {
        return sbit__fail_oom(error, (size_t)t->d * sizeof *t->room);
    }
    *turned = sbit__turn_follow(t, x->id, uses, capacity);
    for (size_t i = 0; i < t->found; i++) {
        t->done[t->queue[i]] = *turned;
        t->axis[t->queue[i]] = 0;
    }
    t->done[x->id.idx] = true;
    return *turned ? sbit__turn_apply(t, error) : SBIT_OK;
}

static sbit_status sbit__turn_all(sbit__turn *t, sbit_quant *quant, sbit_error *error)
{
    const size_t capacity = 4096;
    sbit_use *uses = NULL;
    unsigned count = 0;
    SBIT__TRY(sbit__turn_room(t, &uses, capacity, error));
    for (sbit_node_id id = sbit_graph_first(t->graph); id.idx != 0;
         id = sbit_graph_next(t->graph, id)) {
        const sbit_node *node = sbit_graph_node(t->graph, id);
        bool turned = false;
        if (sbit__turn_is(node, "LayerNormalization") || sbit__turn_is(node, "RMSNormalization")) {
            SBIT__TRY(sbit__turn_stream(t, node, uses, capacity, &turned, error));
        }
        if (turned) {
            count += t->norm_count;
        }
    }
    sbit__log(quant->ctx, SBIT_LOG_INFO, "hadamard: the stream of %u normalizations is turned",
              count);
    return SBIT_OK;
}

static sbit_status sbit__hadamard_run(void *state, const sbit_options *options,
                                      const sbit_feed *feed, sbit_error *error)
{
    sbit_quant *quant = (sbit_quant *)state;
    sbit__arena arena;
    sbit__turn t;
    (void)options;
    (void)feed;
    memset(&t, 0, sizeof t);
    sbit__arena_init(&arena, sbit_ctx_allocator(quant->ctx));
    t.graph = sbit_quant_float_graph(quant);
    t.arena = &arena;
    const sbit_status status = sbit__turn_all(&t, quant, error);
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_hadamard(void)
{
    static const sbit_step_row row = {
        {"hadamard", "a rotation folded into weights spreads large channels of a transformer",
         SBIT_TARGET_WEIGHT, NULL, 0},
        SBIT_STAGE_FLOAT_GRAPH,
        false,
        sbit__hadamard_run,
    };
    return &row;
}
