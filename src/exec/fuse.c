/* fuse.c: which nodes are done by the kernel of the node before them. >>fuse
 *
 * Called by: plan. Calls: nothing.
 *   - an Add of a tensor of the same shape, then one activation, behind a row that stores through
 *     an epilogue (row->fuse): Relu, Clip, HardSwish, LeakyRelu, Sigmoid, x * Sigmoid(x),
 *     x * HardSigmoid(x) with HardSwish's constants;
 *   - DequantizeLinear behind QuantizeLinear with the same constant scale and zero point per
 *     tensor: one kernel that gives the same bits.
 * Only float32, and only where nobody else looks at what lies between: a single use, no result, no
 * tap, known and equal shapes.
 */
#include "exec_private.h"

#include <math.h> /* INFINITY, fabsf */

static bool sbit__fuse_is(const sbit_node *node, const char *op_type)
{
    return node->domain[0] == '\0' && strcmp(node->op_type, op_type) == 0;
}

/* The data of a float32 scalar that the plan knows. */
static bool sbit__fuse_scalar(const sbit_session *session, sbit_value_id id, float *out)
{
    const sbit_tensor *tensor = &session->values[id.idx].tensor;
    if (id.idx == 0 || session->plan[id.idx].place != SBIT__PLACE_CONSTANT ||
        tensor->dtype != SBIT_F32 || sbit_tensor_count(tensor) != 1) {
        return false;
    }
    memcpy(out, tensor->data, sizeof *out);
    return true;
}

/* A value that may vanish: a float32 tensor of known shape that only `uses` node inputs read. */
static bool sbit__fuse_may_vanish(const sbit_session *session, sbit_value_id id, uint32_t uses)
{
    return session->plan[id.idx].uses == uses && !session->tapped[id.idx] &&
           !session->wanted[id.idx] && sbit__type_static(&session->infer.types[id.idx]) &&
           session->infer.types[id.idx].dtype == SBIT_F32;
}

/* The node that alone uses `id` and gives a tensor of the same type; NULL if there is none. */
static const sbit_node *sbit__fuse_follower(const sbit_session *session, sbit_value_id id)
{
    sbit_node_id user;
    const sbit_node *node = NULL;
    user.idx = session->plan[id.idx].user;
    if (!sbit__fuse_may_vanish(session, id, 1)) {
        return NULL;
    }
    node = sbit_graph_node(session->graph, user);
    if (session->nodes[user.idx].skipped || node->output_count != 1 || node->outputs[0].idx == 0 ||
        session->nodes[user.idx].capture_count > 0 ||
        !sbit__graph_type_equal(&session->infer.types[node->outputs[0].idx],
                                &session->infer.types[id.idx])) {
        return NULL;
    }
    return node;
}

static void sbit__fuse_join(sbit_session *session, sbit__step *step, const sbit_node *node,
                            sbit_node_id *last)
{
    session->nodes[node->id.idx].skipped = true;
    session->nodes[node->id.idx].fused_into = step->node->id;
    session->plan[step->output.idx].place = SBIT__PLACE_NONE;
    step->output = node->outputs[0];
    *last = node->id;
}

/* >>residual */

/* The other operand of an Add, if it is another value of the same type. */
static uint32_t sbit__fuse_other(const sbit_session *session, const sbit_node *add,
                                 sbit_value_id id)
{
    sbit_value_id other;
    if (!sbit__fuse_is(add, "Add") || add->input_count != 2) {
        return 0;
    }
    other = add->inputs[add->inputs[0].idx == id.idx ? 1 : 0];
    if (other.idx == id.idx || other.idx == 0 ||
        !sbit__graph_type_equal(&session->infer.types[other.idx], &session->infer.types[id.idx])) {
        return 0;
    }
    return other.idx;
}

/* Of two branches that an Add joins, the one that is computed last takes the Add. */
static bool sbit__fuse_leave_to_other(const sbit_session *session, const sbit_node *node,
                                      uint32_t other)
{
    sbit_value_id id;
    const sbit_value_info *info = NULL;
    const sbit__exec_node *data = NULL;
    id.idx = other;
    info = sbit_graph_value(session->graph, id);
    if (info->producer.idx == 0) {
        return false;
    }
    data = &session->nodes[info->producer.idx];
    if (data->skipped || data->row == NULL || (data->row->fuse & SBIT_FUSE_RESIDUAL) == 0 ||
        !sbit__fuse_may_vanish(session, id, 1)) {
        return false;
    }
    for (size_t o = 0; o < session->order_count; o++) {
        if (session->order[o].idx == node->id.idx) {
            return true;
        }
        if (session->order[o].idx == info->producer.idx) {
            return false;
        }
    }
    return false;
}

/* >>activations */

static bool sbit__fuse_clip(const sbit_session *session, const sbit_node *node,
                            sbit__epilogue *epilogue)
{
    epilogue->activation = SBIT__ACT_CLAMP;
    epilogue->lo = sbit_node_float(node, "min", -INFINITY);
    epilogue->hi = sbit_node_float(node, "max", INFINITY);
    if (node->input_count > 1 && node->inputs[1].idx != 0 &&
        !sbit__fuse_scalar(session, node->inputs[1], &epilogue->lo)) {
        return false;
    }
    return node->input_count < 3 || node->inputs[2].idx == 0 ||
           sbit__fuse_scalar(session, node->inputs[2], &epilogue->hi);
}

static bool sbit__fuse_is_hard_sigmoid_sixth(const sbit_node *node)
{
    return sbit__fuse_is(node, "HardSigmoid") &&
           fabsf(sbit_node_float(node, "alpha", 0.2f) - 1.0f / 6.0f) < 1e-7f &&
           sbit_node_float(node, "beta", 0.5f) == 0.5f;
}

static bool sbit__fuse_activation(const sbit_session *session, const sbit_node *node,
                                  sbit__epilogue *epilogue)
{
    if (sbit__fuse_is(node, "Relu")) {
        epilogue->activation = SBIT__ACT_CLAMP;
        epilogue->lo = 0.0f;
        epilogue->hi = INFINITY;
        return true;
    }
    if (sbit__fuse_is(node, "LeakyRelu")) {
        epilogue->activation = SBIT__ACT_LEAKY;
        epilogue->lo = sbit_node_float(node, "alpha", 0.01f);
        return true;
    }
    if (sbit__fuse_is(node, "HardSwish")) {
        epilogue->activation = SBIT__ACT_HARDSWISH;
        return true;
    }
    if (sbit__fuse_is(node, "Sigmoid")) {
        epilogue->activation = SBIT__ACT_SIGMOID;
        return true;
    }
    return sbit__fuse_is(node, "Clip") && sbit__fuse_clip(session, node, epilogue);
}

/* x * g(x), where g is Sigmoid or HardSigmoid: x has exactly the two uses. Gives the Mul. */
static const sbit_node *sbit__fuse_gate(const sbit_session *session, sbit_value_id id,
                                        const sbit_node **gate, sbit__epilogue *epilogue)
{
    sbit_use uses[3];
    const sbit_node *nodes[2];
    if (!sbit__fuse_may_vanish(session, id, 2) ||
        sbit_graph_uses(session->graph, id, uses, 3) != 2) {
        return NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        if (uses[i].node.idx == 0 || uses[i].body != NULL) {
            return NULL;
        }
        nodes[i] = sbit_graph_node(session->graph, uses[i].node);
    }
    /* Uses come in execution order, so the gate is first. */
    if (sbit__fuse_is(nodes[0], "Sigmoid")) {
        epilogue->activation = SBIT__ACT_SILU;
    } else if (sbit__fuse_is_hard_sigmoid_sixth(nodes[0])) {
        epilogue->activation = SBIT__ACT_HARDSWISH;
    } else {
        return NULL;
    }
    if (!sbit__fuse_is(nodes[1], "Mul") || nodes[1]->input_count != 2 ||
        sbit__fuse_follower(session, nodes[0]->outputs[0]) != nodes[1]) {
        return NULL;
    }
    *gate = nodes[0];
    return nodes[1];
}

/* >>fake quantization */

static bool sbit__fuse_q_range(sbit_dtype dtype, int32_t *qmin, int32_t *qmax)
{
    switch ((int)dtype) {
    case SBIT_U8:
        *qmin = 0;
        *qmax = 255;
        return true;
    case SBIT_I8:
        *qmin = -128;
        *qmax = 127;
        return true;
    case SBIT_U16:
        *qmin = 0;
        *qmax = 65535;
        return true;
    case SBIT_I16:
        *qmin = -32768;
        *qmax = 32767;
        return true;
    case SBIT_U4:
        *qmin = 0;
        *qmax = 15;
        return true;
    case SBIT_I4:
        *qmin = -8;
        *qmax = 7;
        return true;
    default:
        return false;
    }
}

/* Input `i` of both nodes is the same constant, or missing in both. */
static bool sbit__fuse_same_constant(const sbit_session *session, const sbit_node *a,
                                     const sbit_node *b, size_t i)
{
    const uint32_t x = i < a->input_count ? a->inputs[i].idx : 0;
    const uint32_t y = i < b->input_count ? b->inputs[i].idx : 0;
    const sbit_tensor *s = &session->values[x].tensor, *t = &session->values[y].tensor;
    if (x == y) {
        return x == 0 || session->plan[x].place == SBIT__PLACE_CONSTANT;
    }
    return x != 0 && y != 0 && session->plan[x].place == SBIT__PLACE_CONSTANT &&
           session->plan[y].place == SBIT__PLACE_CONSTANT && s->dtype == t->dtype &&
           sbit_tensor_count(s) == 1 && sbit_tensor_count(t) == 1 &&
           memcmp(s->data, t->data, sbit_tensor_bytes(s)) == 0;
}

static bool sbit__fuse_fake_quantize(sbit_session *session, sbit__step *step, sbit_node_id *last)
{
    const sbit_node *q = step->node, *dq = NULL;
    const sbit_value_id mid = q->outputs[0];
    const sbit_type *types = session->infer.types;
    const sbit_op_row *row = session->nodes[q->id.idx].row;
    sbit_node_id user;
    user.idx = session->plan[mid.idx].user;
    if (!sbit__fuse_is(q, "QuantizeLinear") || q->input_count < 2 ||
        session->plan[mid.idx].uses != 1 || session->tapped[mid.idx] || session->wanted[mid.idx] ||
        types[q->inputs[0].idx].dtype != SBIT_F32 || sbit_node_attr(q, "precision") != NULL ||
        (row->flags & SBIT_OP_DYNAMIC) != 0) {
        return false;
    }
    dq = sbit_graph_node(session->graph, user);
    if (!sbit__fuse_is(dq, "DequantizeLinear") || session->nodes[user.idx].skipped ||
        dq->inputs[0].idx != mid.idx || types[dq->outputs[0].idx].dtype != SBIT_F32 ||
        !sbit__type_static(&types[mid.idx]) ||
        !sbit__fuse_q_range(types[mid.idx].dtype, &step->qmin, &step->qmax) ||
        !sbit__fuse_scalar(session, q->inputs[1], &step->scale) ||
        !sbit__fuse_same_constant(session, q, dq, 1) ||
        !sbit__fuse_same_constant(session, q, dq, 2)) {
        return false;
    }
    step->zero_point = 0;
    if (q->input_count > 2 && q->inputs[2].idx != 0) {
        const sbit_tensor *zero_point = &session->values[q->inputs[2].idx].tensor;
        step->zero_point = (int32_t)sbit__tensor_i64_at(zero_point, 0);
    }
    step->output = mid;
    step->fake_quantize = true;
    sbit__fuse_join(session, step, dq, last);
    return true;
}

/* >>all */

SBIT__FN sbit_node_id sbit__plan_fuse(sbit_session *session, sbit__step *step)
{
    const uint32_t fuse = session->nodes[step->node->id.idx].row->fuse;
    sbit_node_id last = step->node->id;
    const sbit_node *next = NULL, *gate = NULL;
    sbit__epilogue epilogue;
    if (step->node->output_count == 0 || step->node->outputs[0].idx == 0 ||
        sbit__fuse_fake_quantize(session, step, &last)) {
        return last;
    }
    memset(&epilogue, 0, sizeof epilogue);
    step->output = step->node->outputs[0];
    if ((fuse & SBIT_FUSE_RESIDUAL) != 0) {
        next = sbit__fuse_follower(session, step->output);
        const uint32_t other = next != NULL ? sbit__fuse_other(session, next, step->output) : 0;
        if (other != 0 && !sbit__fuse_leave_to_other(session, step->node, other)) {
            step->residual = other;
            sbit__fuse_join(session, step, next, &last);
        }
    }
    if ((fuse & SBIT_FUSE_ACTIVATION) != 0) {
        next = sbit__fuse_follower(session, step->output);
        if (next != NULL && sbit__fuse_activation(session, next, &epilogue)) {
            sbit__fuse_join(session, step, next, &last);
        } else {
            memset(&epilogue, 0, sizeof epilogue);
            next = sbit__fuse_gate(session, step->output, &gate, &epilogue);
            if (next != NULL) {
                sbit__fuse_join(session, step, gate, &last);
                sbit__fuse_join(session, step, next, &last);
            } else {
                memset(&epilogue, 0, sizeof epilogue);
            }
        }
    }
    step->has_epilogue = step->residual != 0 || epilogue.activation != SBIT__ACT_NONE;
    step->epilogue = epilogue;
    return last;
}
