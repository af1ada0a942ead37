/* lower_strips.c: inverted bottlenecks in one pass. >>lower-strips
 *
 * Called by: lower. Calls: graph.
 * A depthwise ConvLast, with a 1x1 in front that expands its channels or a 1x1 behind that projects
 * them, or both: StripLast, where what is between them is large (lower_layout.c). The same of QConv,
 * with a 1x1 in front: QStrip. A 1x1 and another convolution of the same tensor, whose results are joined
 * (SqueezeNet's fire): JoinLast, which puts them where they belong.
 */
#include "lower_private.h"

#define SBIT__STRIP_ATTRS 24 /* SBIT__LOWER_WORK_BYTES */
#define SBIT__STRIP_QCONV 9  /* inputs of a QConv that adds nothing */

static bool sbit__strip_all(const sbit_node *node, const char *name, int64_t value)
{
    const sbit_attr *attr = sbit_node_attr(node, name);
    for (size_t i = 0; attr != NULL && i < attr->count; i++) {
        if (attr->ints[i] != value) {
            return false;
        }
    }
    return true;
}

/* The type of a convolution's weights, if it goes over a plane with known channels, which are alone in their
 * group or all in one that a 1x1 reads; NULL: it does not. */
static const sbit_type *sbit__strip_type(const sbit__lowering *lower, const sbit_node *node,
                                            sbit_value_id weights, bool depthwise)
{
    const sbit_type *w = sbit__lower_type(lower, weights);
    const int64_t group = sbit_node_int(node, "group", 1);
    if (w->rank != 4 || !sbit__type_static(w) ||
        (depthwise ? group < 2 || w->dims[0].value != group || w->dims[1].value != 1
                   : group != 1 || w->dims[2].value != 1 || w->dims[3].value != 1 ||
                         !sbit__strip_all(node, "strides", 1) || !sbit__strip_all(node, "pads", 0))) {
        return NULL;
    }
    return w;
}

/* The same of a ConvLast. */
static const sbit_type *sbit__strip_conv(const sbit__lowering *lower, const sbit_node *node,
                                         bool depthwise)
{
    return node != NULL && sbit__streq(node->domain, "sbit") && sbit__streq(node->op_type, "ConvLast") &&
                   sbit_node_attr(node, "nonzeros") == NULL
               ? sbit__strip_type(lower, node, node->inputs[1], depthwise)
               : NULL;
}

/* The description of what is made around a convolution, with its attributes, which are returned. */
static sbit_attr *sbit__strip_begin(const sbit__lowering *lower, const sbit_node *node, const char *op_type,
                                    sbit__lower_desc *desc)
{
    sbit_attr *attrs = (sbit_attr *)lower->work;
    memset(desc, 0, sizeof *desc);
    memcpy(attrs, node->attrs, node->attr_count * sizeof attrs[0]);
    desc->op_type = op_type;
    desc->attrs = attrs;
    desc->attr_count = node->attr_count;
    desc->output_count = 1;
    return attrs;
}

static void sbit__strip_attrs(const sbit_node *node, const char *const names[3],
                              sbit__lower_desc *desc, sbit_attr *attrs)
{
    attrs[desc->attr_count++] = sbit__attr_int(names[0], sbit_node_int(node, "activation", 0));
    attrs[desc->attr_count++] = sbit__attr_float(names[1], sbit_node_float(node, "lo", 0.0f));
    attrs[desc->attr_count++] = sbit__attr_float(names[2], sbit_node_float(node, "hi", 0.0f));
}

static sbit_status sbit__strip(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    static const char *const names[2][3] = {{"activation0", "lo0", "hi0"},
                                            {"activation2", "lo2", "hi2"}};
    if (sbit__strip_conv(lower, node, true) == NULL || sbit__lower_in(node, 3).idx != 0 ||
        node->attr_count + 6 > SBIT__STRIP_ATTRS) {
        return SBIT_OK;
    }
    const sbit_node *before = sbit__lower_producer(lower, node->inputs[0]);
    const sbit_node *behind = sbit__lower_user(lower, node->outputs[0]);
    const bool expands = sbit__strip_conv(lower, before, false) != NULL &&
                         sbit__lower_in(before, 3).idx == 0 &&
                         sbit__lower_inner(lower, node->inputs[0], 1);
    const bool projects = sbit__strip_conv(lower, behind, false) != NULL &&
                          behind->inputs[0].idx == node->outputs[0].idx;
    if (!(expands && sbit_node_int(before, "large", 0) != 0) &&
        !(projects && sbit_node_int(node, "large", 0) != 0)) {
        return SBIT_OK;
    }
    const sbit_node *const convs[3] = {expands ? before : NULL, node, projects ? behind : NULL};
    sbit_value_id inputs[8];
    sbit_node_id nodes[3];
    sbit__lower_desc desc;
    sbit_attr *attrs = sbit__strip_begin(lower, node, "StripLast", &desc);
    memset(inputs, 0, sizeof inputs);
    inputs[0] = expands ? before->inputs[0] : node->inputs[0];
    for (size_t i = 0; i < 3; i++) {
        if (convs[i] == NULL) {
            continue;
        }
        const size_t at = i == 1 ? 1 : i + 3;
        inputs[at] = convs[i]->inputs[1];
        inputs[at + 1] = sbit__lower_in(convs[i], 2);
        nodes[desc.node_count++] = convs[i]->id;
        desc.outputs = convs[i]->outputs;
        if (i != 1) {
            sbit__strip_attrs(convs[i], names[i / 2], &desc, attrs);
        }
    }
    inputs[7] = projects ? sbit__lower_in(behind, 3) : inputs[7];
    desc.inputs = inputs;
    desc.input_count = SBIT__COUNT_OF(inputs);
    desc.nodes = nodes;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>joined */

/* A dense convolution in a plane, with constant weights, whose result only a Concat looks at. */
static bool sbit__strip_joins(const sbit__lowering *lower, const sbit_node *node)
{
    const sbit_type *w = node != NULL && sbit__streq(node->domain, "sbit") && sbit__streq(node->op_type, "ConvLast") &&
                                 sbit__lower_constant(lower, node->inputs[1]) != NULL
                         ? sbit__lower_type(lower, node->inputs[1])
                         : NULL;
    return w != NULL && w->rank == 4 && sbit__type_static(w) && sbit_node_int(node, "group", 1) == 1 &&
           sbit_node_attr(node, "nonzeros") == NULL && sbit_node_int(node, "first", 0) == 0 &&
           sbit__lower_in(node, 3).idx == 0 && sbit__lower_inner(lower, node->outputs[0], 1);
}

static sbit_status sbit__strip_join(sbit__lowering *lower, const sbit_node *node, sbit_error *error)
{
    static const char *const names[3] = {"activation0", "lo0", "hi0"};
    const int64_t axis = sbit_node_int(node, "axis", 0);
    if (!sbit__lower_is(lower, node, "Concat") || node->input_count != 2 || (axis != 3 && axis != -1)) {
        return SBIT_OK;
    }
    const sbit_node *one = sbit__lower_producer(lower, node->inputs[0]);
    const sbit_node *other = sbit__lower_producer(lower, node->inputs[1]);
    if (!sbit__strip_joins(lower, one) || !sbit__strip_joins(lower, other) ||
        sbit__strip_conv(lower, one, false) == NULL || one->inputs[0].idx != other->inputs[0].idx ||
        other->attr_count + 3 > SBIT__STRIP_ATTRS) {
        return SBIT_OK;
    }
    sbit_value_id inputs[5];
    sbit_node_id nodes[3];
    sbit__lower_desc desc;
    sbit_attr *attrs = sbit__strip_begin(lower, other, "JoinLast", &desc);
    sbit__strip_attrs(one, names, &desc, attrs);
    inputs[0] = other->inputs[0];
    inputs[1] = other->inputs[1];
    inputs[2] = sbit__lower_in(other, 2);
    inputs[3] = one->inputs[1];
    inputs[4] = sbit__lower_in(one, 2);
    nodes[0] = one->id;
    nodes[1] = other->id;
    nodes[2] = node->id;
    desc.inputs = inputs;
    desc.input_count = SBIT__COUNT_OF(inputs);
    desc.outputs = node->outputs;
    desc.nodes = nodes;
    desc.node_count = SBIT__COUNT_OF(nodes);
    return sbit__lower_replace(lower, &desc, NULL, error);
}

/* >>integers */

/* Weights are int8 without zero points. */
static bool sbit__strip_symmetric(const sbit__lowering *lower, const sbit_node *node)
{
    const sbit_value_id zero = sbit__lower_in(node, 5);
    const sbit_tensor *zeros = sbit__lower_constant(lower, zero);
    bool none = zero.idx == 0 || zeros != NULL;
    for (int64_t i = 0; zeros != NULL && i < sbit_tensor_count(zeros); i++) {
        none = none && sbit__tensor_i64_at(zeros, i) == 0;
    }
    return none && sbit__lower_type(lower, node->inputs[3])->dtype == SBIT_I8;
}

/* The same of a QConv with channels last that gives bytes. */
static const sbit_type *sbit__strip_qconv(const sbit__lowering *lower, const sbit_node *node,
                                          bool depthwise)
{
    if (node == NULL || !sbit__streq(node->domain, "sbit") ||
        !sbit__streq(node->op_type, "QConv") || sbit_node_int(node, "channels_last", 0) == 0 ||
        sbit__lower_in(node, 6).idx == 0 || !sbit__strip_symmetric(lower, node)) {
        return NULL;
    }
    const sbit_type *w = sbit__strip_type(lower, node, node->inputs[3], depthwise);
    return w != NULL && (depthwise || w->dims[1].value % 4 == 0) ? w : NULL;
}

static sbit_status sbit__strip_integers(sbit__lowering *lower, const sbit_node *node,
                                        sbit_error *error)
{
    static const char *const names[3][4] = {
        {"lo0", "hi0", NULL, NULL}, {NULL, NULL, NULL, NULL}, {"lo2", "hi2", "sum_lo", "sum_hi"}};
    static const char *const own[4] = {"lo", "hi", "sum_lo", "sum_hi"};
    if (sbit__strip_qconv(lower, node, true) == NULL ||
        sbit__lower_in(node, SBIT__STRIP_QCONV).idx != 0 ||
        node->attr_count + 6 > SBIT__STRIP_ATTRS) {
        return SBIT_OK;
    }
    const sbit_node *before = sbit__lower_producer(lower, node->inputs[0]);
    const sbit_node *behind = sbit__lower_user(lower, node->outputs[0]);
    if (sbit__strip_qconv(lower, before, false) == NULL ||
        sbit__lower_in(before, SBIT__STRIP_QCONV).idx != 0 ||
        !sbit__lower_inner(lower, node->inputs[0], 1) ||
        sbit_node_int(before, "large", 0) == 0) {
        return SBIT_OK;
    }
    const bool projects = sbit__strip_qconv(lower, behind, false) != NULL &&
                          behind->inputs[0].idx == node->outputs[0].idx;
    const sbit_node *const convs[3] = {before, node, projects ? behind : NULL};
    sbit_value_id inputs[3 * SBIT__STRIP_QCONV + 5];
    sbit_node_id nodes[3];
    sbit__lower_desc desc;
    sbit_attr *attrs = sbit__strip_begin(lower, node, "QStrip", &desc);
    memset(inputs, 0, sizeof inputs);
    for (size_t i = 0; i < 3 && convs[i] != NULL; i++) {
        for (size_t k = i > 0; k < convs[i]->input_count; k++) {
            inputs[i * SBIT__STRIP_QCONV + k] = convs[i]->inputs[k];
        }
        for (size_t k = 0; k < 4; k++) {
            const sbit_attr *attr = sbit_node_attr(convs[i], own[k]);
            if (names[i][k] != NULL && attr != NULL) {
                attrs[desc.attr_count++] = sbit__attr_int(names[i][k], attr->i);
            }
        }
        nodes[desc.node_count++] = convs[i]->id;
        desc.outputs = convs[i]->outputs;
    }
    desc.inputs = inputs;
    desc.input_count = SBIT__COUNT_OF(inputs);
    desc.nodes = nodes;
    return sbit__lower_replace(lower, &desc, NULL, error);
}

static const sbit__lower_entry sbit__lower_strips_table[] = {
    {NULL, sbit__strip},
    {"Concat", sbit__strip_join},
    {NULL, sbit__strip_integers},
};

#undef SBIT__STRIP_ATTRS
#undef SBIT__STRIP_QCONV

SBIT__FN const sbit__lower_entry *sbit__lower_entries_strips(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__lower_strips_table);
    return sbit__lower_strips_table;
}
