/* step_hadamard.c: the residual stream of a transformer, and what its heads compute, are turned by
 * rotations that are folded into the weights around them. >>step-hadamard
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
 *
 * Heads: softmax(Q K^T) V turns with V. The columns of V's projection, head by head, become W R and
 * the rows behind R^T W, with R = F / sqrt(d): symmetric, its own inverse, and flat.
 */
#include "quant_private.h"

static const sbit_key sbit__hadamard_keys[] = {
    {"HADAMARD.HEADS", SBIT_KEY_BOOL, "true", 0, 0, NULL,
     "turn the values of attention's heads too, not the residual stream alone"},
};

enum { SBIT__HEADS_LEAVES = 16 }; /* that a projection is cut into: q, k, v; a head each */

/* A constant that is multiplied with R along `axis`, and before with the scale of a normalization. */
typedef struct sbit__turn_constant {
    sbit_value_id id;
    int64_t axis;
    uint32_t norm; /* number in `norms` from 1; 0: none */
} sbit__turn_constant;

typedef struct sbit__turn {
    sbit_graph *graph;
    sbit__arena *arena;
    int64_t d;         /* channels that are turned together */
    int64_t width;     /* of the constants along the axis: d, or that of all heads */
    int64_t *places;   /* [heads][d]: where they lie along the axis; NULL: 0 .. d - 1, of one */
    int64_t heads;
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
    signed char *sign; /* NULL: R = F / sqrt(d) */
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
        axis >= value->constant.rank || value->constant.dims[axis] != t->width ||
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
        x[i] *= t->sign != NULL ? (double)t->sign[i] / (double)t->d : 1.0 / sqrt((double)t->d);
    }
    if (t->sign != NULL) {
        sbit__turn_transform(x, t->d, x + t->d);
    }
}

/* The constant's rows along `axis`, times `factor` if there is one (or through it), turned: each
 * head's places by themselves. */
static sbit_status sbit__turn_store(sbit__turn *t, sbit_value_id id, int64_t axis,
                                    const float *factor, bool divide, sbit_error *error)
{
    sbit_tensor tensor = sbit_graph_value(t->graph, id)->constant;
    const int64_t count = sbit_tensor_count(&tensor), d = t->d, width = t->width;
    const float *from = (const float *)tensor.data;
    float *to = (float *)sbit__arena_array(t->arena, (size_t)count, sizeof *to);
    int64_t tail = 1;
    if (to == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof *to);
    }
    for (int64_t i = axis + 1; i < tensor.rank; i++) {
        tail *= tensor.dims[i];
    }
    memcpy(to, from, (size_t)count * sizeof *to);
    for (int64_t r = 0; r < count / width * t->heads; r++) {
        const int64_t row = r / t->heads, first = row / tail * tail * width + row % tail;
        const int64_t *places = t->places != NULL ? t->places + r % t->heads * d : NULL;
        for (int64_t i = 0; i < d; i++) {
            const double by = factor != NULL ? (double)factor[i] : 1.0;
            const double x = (double)from[first + (places != NULL ? places[i] : i) * tail];
            t->room[i] = divide ? x / by : x * by;
        }
        sbit__turn_rotate(t, t->room);
        for (int64_t i = 0; i < d; i++) {
            to[first + (places != NULL ? places[i] : i) * tail] = (float)t->room[i];
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

/* >>step-hadamard heads: Y = A V turns with V's last axis, whatever A is. Where channels go between the
 * projections and that product is found by running what only moves elements on their own numbers. */
static bool sbit__heads_moves(const sbit_node *node)
{
    static const char *const moves[] = {"Identity", "Dropout",   "Transpose", "Reshape",
                                        "Flatten",  "Squeeze",   "Unsqueeze", "Slice",
                                        "Split",    "Gather",    "Expand",    NULL};
    return node->domain[0] == '\0' && sbit__word_listed(moves, node->op_type);
}

/* The values that moves make of `from` and something else reads; false: more than `capacity`, or one
 * is an output of the model. */
static bool sbit__heads_leaves(sbit__turn *t, sbit_value_id from, sbit_use *uses, size_t capacity,
                               sbit_value_id *leaves, size_t *leaf_count)
{
    bool fine = true;
    size_t next = 0;
    t->found = 0;
    t->queue[t->found++] = from.idx;
    *leaf_count = 0;
    for (; next < t->found && fine; next++) {
        const sbit_value_id id = {t->queue[next]};
        const size_t count = sbit_graph_uses(t->graph, id, uses, capacity);
        bool leaf = false;
        fine = count <= capacity && !sbit_graph_value(t->graph, id)->is_output;
        for (size_t i = 0; i < count && fine; i++) {
            const sbit_node *node = uses[i].node.idx != 0 && uses[i].body == NULL
                                        ? sbit_graph_node(t->graph, uses[i].node)
                                        : NULL;
            const bool moves = node != NULL && uses[i].index == 0 && sbit__heads_moves(node);
            leaf = leaf || !moves;
            for (size_t k = 0; moves && fine && k < node->output_count; k++) {
                fine = t->found < t->limit;
                if (fine && node->outputs[k].idx != 0) {
                    t->queue[t->found++] = node->outputs[k].idx;
                }
            }
        }
        if (leaf) {
            fine = fine && *leaf_count < SBIT__HEADS_LEAVES;
            if (fine) {
                leaves[(*leaf_count)++] = id;
            }
        }
    }
    return fine;
}

/* What becomes of the numbers 0, 1, 2 ... in `from`; *out NULL: it depends on something else. Open
 * dims are 2. */
static sbit_status sbit__heads_run(sbit__turn *t, sbit_value_id from, const sbit_value_id *leaves,
                                   size_t leaf_count, sbit_session **out, sbit_error *error)
{
    const sbit_value_info *value = sbit_graph_value(t->graph, from);
    sbit_session_desc desc;
    sbit_tensor x;
    memset(&desc, 0, sizeof desc);
    memset(&x, 0, sizeof x);
    *out = NULL;
    x.dtype = SBIT_F32;
    x.rank = sbit__turn_rank(value) < 0 ? 0 : (int32_t)sbit__turn_rank(value);
    for (int32_t i = 0; i < x.rank; i++) {
        x.dims[i] = sbit__turn_dim(value, i) < 0 ? 2 : sbit__turn_dim(value, i);
    }
    const int64_t count = sbit_tensor_count(&x);
    if (value->type.dtype != SBIT_F32 || x.rank < 2 || count <= 0 || count >= 1 << 24) {
        return SBIT_OK; /* a float holds integers up to there */
    }
    float *numbers = (float *)sbit__arena_array(t->arena, (size_t)count, sizeof *numbers);
    if (numbers == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof *numbers);
    }
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = (float)i;
    }
    x.data = numbers;
    desc.inputs = &from;
    desc.input_count = 1;
    desc.outputs = leaves;
    desc.output_count = leaf_count;
    SBIT__TRY(sbit_session_create(t->graph, &desc, out, error));
    sbit_status status = SBIT_ERR_SHAPE;
    if (sbit_session_input_count(*out) == 1) {
        status = sbit_session_set_input_at(*out, 0, &x, error);
        status = status == SBIT_OK ? sbit_session_run(*out, error) : status;
    }
    if (status != SBIT_OK) {
        sbit_session_destroy(*out);
        *out = NULL;
    }
    return status == SBIT_ERR_OUT_OF_MEMORY ? status : SBIT_OK;
}

/* Each run of d numbers: one place's channels places[h][0 .. d-1], the same lists everywhere; of
 * `width` channels a place. -1: left out, with its whole run. head_of: [width]. */
static bool sbit__heads_lists(sbit__turn *t, const float *data, int64_t count, int64_t *head_of)
{
    const int64_t n = t->width, d = t->d;
    t->heads = 0;
    for (int64_t c = 0; c < n; c++) {
        head_of[c] = -1;
    }
    for (int64_t r = 0; r < count / d; r++) {
        const bool out = data[r * d] < 0.0f;
        const int64_t first = (int64_t)data[r * d], known = out ? -1 : head_of[first % n];
        const int64_t head = known < 0 ? t->heads : known;
        for (int64_t i = 0; i < d; i++) {
            const int64_t number = (int64_t)data[r * d + i], c = number % n;
            if (out != (number < 0)) {
                return false;
            }
            if (out) {
                continue;
            }
            if (number / n != first / n ||
                (known < 0 ? head_of[c] >= 0 : t->places[head * d + i] != c)) {
                return false;
            }
            head_of[c] = head;
            t->places[head * d + i] = c;
        }
        t->heads += known < 0 && !out ? 1 : 0;
    }
    return t->heads > 0;
}

/* Where V's channels lie in its projection's output `from`; other leaves must have none of them. */
static sbit_status sbit__heads_front(sbit__turn *t, sbit_value_id from, sbit_value_id v,
                                     const sbit_value_id *leaves, size_t count, int64_t *head_of,
                                     bool *fine, sbit_error *error)
{
    sbit_session *session = NULL;
    SBIT__TRY(sbit__heads_run(t, from, leaves, count, &session, error));
    *fine = session != NULL;
    for (size_t k = 0; k < count && *fine; k++) { /* v first */
        const sbit_tensor *x = &sbit_session_output(session, k)->tensor;
        const float *data = (const float *)x->data;
        if (leaves[k].idx == v.idx) {
            *fine = sbit__heads_lists(t, data, sbit_tensor_count(x), head_of);
        }
    }
    for (size_t k = 0; k < count && *fine; k++) {
        const sbit_tensor *x = &sbit_session_output(session, k)->tensor;
        for (int64_t i = 0; i < sbit_tensor_count(x) && leaves[k].idx != v.idx && *fine; i++) {
            *fine = head_of[(int64_t)((const float *)x->data)[i] % t->width] < 0;
        }
    }
    sbit_session_destroy(session);
    return SBIT_OK;
}

/* Where they lie in what the projection behind reads. */
static sbit_status sbit__heads_behind(sbit__turn *t, sbit_value_id y, sbit_value_id leaf,
                                      int64_t *head_of, bool *fine, sbit_error *error)
{
    sbit_session *session = NULL;
    SBIT__TRY(sbit__heads_run(t, y, &leaf, 1, &session, error));
    *fine = session != NULL;
    if (*fine) {
        const sbit_tensor *x = &sbit_session_output(session, 0)->tensor;
        const int64_t count = sbit_tensor_count(x);
        float *where = NULL; /* of each number */
        int64_t all = 0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t number = (int64_t)((const float *)x->data)[i];
            all = number >= all ? number + 1 : all;
        }
        all = (all + t->d - 1) / t->d * t->d;
        where = (float *)sbit__arena_array(t->arena, (size_t)all + 1, sizeof *where);
        for (int64_t i = 0; where != NULL && i < all; i++) {
            where[i] = -1.0f;
        }
        for (int64_t i = 0; where != NULL && i < count && *fine; i++) {
            float *at = &where[(int64_t)((const float *)x->data)[i]];
            *fine = *at < 0.0f;
            *at = (float)i;
        }
        *fine = *fine && where != NULL && sbit__heads_lists(t, where, all, head_of);
        if (where == NULL) {
            sbit_session_destroy(session);
            return sbit__fail_oom(error, (size_t)all * sizeof *where);
        }
    }
    sbit_session_destroy(session);
    return SBIT_OK;
}

/* The constants that make the last axis of a value: a weight's columns, a bias. */
static bool sbit__heads_made(sbit__turn *t, const sbit_value_info *value)
{
    const sbit_node *node =
        value->producer.idx != 0 ? sbit_graph_node(t->graph, value->producer) : NULL;
    if (node != NULL && sbit__turn_is(node, "Add") && node->input_count == 2) {
        const sbit_value_info *a = sbit_graph_value(t->graph, node->inputs[0]),
                              *b = sbit_graph_value(t->graph, node->inputs[1]);
        const sbit_value_info *bias = a->is_constant ? a : b, *product = a->is_constant ? b : a;
        if (!bias->is_constant || product->use_count != 1 || product->is_output ||
            sbit_tensor_count(&bias->constant) != t->width ||
            !sbit__turn_change(t, bias->id, 0, sbit__turn_rank(bias) - 1, 0, true)) {
            return false;
        }
        value = product;
        node = product->producer.idx != 0 ? sbit_graph_node(t->graph, product->producer) : NULL;
    }
    return node != NULL && (sbit__turn_is(node, "MatMul") || sbit__turn_is(node, "Gemm")) &&
           sbit__turn_up(t, value, sbit__turn_rank(value) - 1);
}

/* V, and how many channels of its last axis belong together; false: the node is no such product. */
static bool sbit__heads_product(sbit__turn *t, const sbit_node *node, sbit_value_id *v)
{
    const bool attention = sbit__turn_is(node, "Attention");
    const size_t at = attention ? 2 : 1;
    if ((!attention && !sbit__turn_is(node, "MatMul")) || node->input_count <= at) {
        return false;
    }
    for (size_t i = 1; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0) {
            return false; /* what is kept for later is not turned */
        }
    }
    for (size_t i = 4; i < node->input_count; i++) {
        if (node->inputs[i].idx != 0) {
            return false;
        }
    }
    *v = node->inputs[at];
    const sbit_value_info *value = sbit_graph_value(t->graph, *v);
    const int64_t rank = sbit__turn_rank(value);
    if (value->is_constant || value->is_output || value->use_count != 1 || rank < 2) {
        return false;
    }
    const int64_t last = sbit__turn_dim(value, rank - 1);
    const int64_t heads = attention && rank == 3 ? sbit_node_int(node, "kv_num_heads", 0) : 1;
    t->d = heads > 0 && last > 0 && last % heads == 0 ? last / heads : 0;
    return t->d > 1;
}

static sbit_status sbit__heads_turn(sbit__turn *t, const sbit_node *node, sbit_use *uses,
                                    size_t capacity, bool *turned, sbit_error *error)
{
    sbit_value_id v = {0}, leaves[SBIT__HEADS_LEAVES], front[SBIT__HEADS_LEAVES];
    size_t leaf_count = 0, front_count = 0;
    *turned = false;
    if (!sbit__heads_product(t, node, &v)) {
        return SBIT_OK;
    }
    const sbit_value_info *made = sbit_graph_value(t->graph, v);
    while (made->producer.idx != 0 &&
           sbit__heads_moves(sbit_graph_node(t->graph, made->producer))) {
        made = sbit_graph_value(t->graph, sbit_graph_node(t->graph, made->producer)->inputs[0]);
    }
    const int64_t made_rank = sbit__turn_rank(made);
    if (made->is_constant || made_rank < 2 ||
        !sbit__heads_leaves(t, made->id, uses, capacity, front, &front_count) ||
        !sbit__heads_leaves(t, node->outputs[0], uses, capacity, leaves, &leaf_count) ||
        leaf_count != 1 || sbit_graph_uses(t->graph, leaves[0], uses, capacity) != 1) {
        return SBIT_OK;
    }
    const sbit_value_info *leaf = sbit_graph_value(t->graph, leaves[0]);
    const int64_t rank = sbit__turn_rank(leaf);
    const int64_t widths[2] = {sbit__turn_dim(made, made_rank - 1),
                               rank > 1 ? sbit__turn_dim(leaf, rank - 1) : -1};
    size_t counts[2];
    t->change_count = 0;
    t->width = widths[0];
    bool fine = widths[0] > 1 && widths[1] > 1 && sbit__heads_made(t, made);
    counts[0] = t->change_count;
    t->width = widths[1];
    const bool projects =
        fine && uses[0].index == 0 && uses[0].node.idx != 0 && uses[0].body == NULL &&
        (sbit__turn_is(sbit_graph_node(t->graph, uses[0].node), "MatMul") ||
         sbit__turn_is(sbit_graph_node(t->graph, uses[0].node), "Gemm"));
    if (!projects || !sbit__turn_down(t, leaf, &uses[0], rank - 1, 0)) {
        return SBIT_OK;
    }
    counts[1] = t->change_count;
    int64_t *places[2], heads[2];
    const int64_t most = widths[0] > widths[1] ? widths[0] : widths[1];
    int64_t *head_of = (int64_t *)sbit__arena_array(t->arena, (size_t)most, sizeof *head_of);
    t->room = (double *)sbit__arena_array(t->arena, 2 * (size_t)t->d, sizeof *t->room);
    t->sign = NULL;
    for (int side = 0; side < 2 && fine; side++) {
        t->width = widths[side];
        t->places = places[side] =
            (int64_t *)sbit__arena_array(t->arena, (size_t)t->width, sizeof *t->places);
        if (t->places == NULL || head_of == NULL || t->room == NULL) {
            return sbit__fail_oom(error, (size_t)most * sizeof *t->places);
        }
        SBIT__TRY(side == 0 ? sbit__heads_front(t, made->id, v, front, front_count, head_of, &fine,
                                                error)
                            : sbit__heads_behind(t, node->outputs[0], leaves[0], head_of, &fine,
                                                 error));
        heads[side] = t->heads;
    }
    for (size_t i = 0; i < counts[1] && fine; i++) {
        const int side = i < counts[0] ? 0 : 1;
        t->width = widths[side];
        t->places = places[side];
        t->heads = heads[side];
        SBIT__TRY(sbit__turn_store(t, t->changes[i].id, t->changes[i].axis, NULL, false, error));
    }
    *turned = fine;
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
    t->d = t->width = sbit__turn_dim(x, rank - 1);
    t->heads = 1;
    t->places = NULL;
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

static sbit_status sbit__turn_all(sbit__turn *t, sbit_quant *quant, bool heads, sbit_error *error)
{
    const size_t capacity = 4096;
    sbit_use *uses = NULL;
    unsigned count = 0, products = 0;
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
        if (heads) {
            SBIT__TRY(sbit__heads_turn(t, node, uses, capacity, &turned, error));
            products += turned ? 1 : 0;
        }
    }
    sbit__log(quant->ctx, SBIT_LOG_INFO,
              "hadamard: the stream of %u normalizations and the heads of %u products are turned",
              count, products);
    return SBIT_OK;
}

static sbit_status sbit__hadamard_run(void *state, const sbit_options *options,
                                      const sbit_feed *feed, sbit_error *error)
{
    sbit_quant *quant = (sbit_quant *)state;
    sbit__arena arena;
    sbit__turn t;
    (void)feed;
    memset(&t, 0, sizeof t);
    sbit__arena_init(&arena, sbit_ctx_allocator(quant->ctx));
    t.graph = sbit_quant_float_graph(quant);
    t.arena = &arena;
    const sbit_status status = sbit__turn_all(&t, quant, sbit_options_bool(options, "STEP.HADAMARD.HEADS"), error);
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_hadamard(void)
{
    static const sbit_step_row row = {
        {"hadamard", "a rotation folded into weights spreads large channels of a transformer",
         SBIT_TARGET_WEIGHT, sbit__hadamard_keys, SBIT__COUNT_OF(sbit__hadamard_keys)},
        SBIT_STAGE_FLOAT_GRAPH,
        false,
        sbit__hadamard_run,
    };
    return &row;
}
