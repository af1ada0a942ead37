/* rewrite.c: what the passes share: rules, looking at and making nodes. >>rewrite
 *
 * Called by: the passes. Calls: graph, infer.
 */
#include "passes_private.h"

SBIT__FN int64_t sbit__known_product(const sbit_type *type, int32_t from, int32_t to)
{
    int64_t product = 1;
    for (int32_t i = from; i < to; i++) {
        if (!sbit__dim_known(type->dims[i]) ||
            !sbit__mul_i64(product, type->dims[i].value, &product)) {
            return -1;
        }
    }
    return product;
}

/* >>rules */

SBIT__FN sbit_status sbit__node_list(const sbit_graph *graph, sbit__arena *arena,
                                     sbit_node_id **ids, size_t *count, sbit_error *error)
{
    const size_t limit = sbit_graph_node_limit(graph);
    *count = 0;
    *ids = (sbit_node_id *)sbit__arena_array(arena, limit + 1, sizeof(sbit_node_id));
    if (*ids == NULL) {
        return sbit__fail_oom(error, limit * sizeof(sbit_node_id));
    }
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        (*ids)[(*count)++] = id;
    }
    return SBIT_OK;
}

static sbit_status sbit__apply_to_nodes(sbit__rewrite *rw, const sbit__rule *rules,
                                        size_t rule_count, sbit_error *error)
{
    sbit_node_id *ids = NULL;
    size_t count = 0;
    SBIT__TRY(sbit__node_list(rw->graph, &rw->facts.arena, &ids, &count, error));
    for (size_t i = 0; i < count; i++) {
        const int64_t before = rw->changes;
        for (size_t r = 0; r < rule_count && rw->changes == before; r++) {
            const sbit_node *node = sbit_graph_node_alive(rw->graph, ids[i])
                                        ? sbit_graph_node(rw->graph, ids[i])
                                        : NULL;
            if (node != NULL && (rules[r].op_type == NULL || sbit__is_op(node, rules[r].op_type))) {
                SBIT__TRY(rules[r].apply(rw, node, error));
            }
        }
    }
    return SBIT_OK;
}

/* Spares most bodies the inference that rules need. */
static bool sbit__rules_apply(const sbit_graph *graph, const sbit__rule *rules, size_t rule_count)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        for (size_t r = 0; r < rule_count; r++) {
            if (rules[r].op_type == NULL ||
                sbit__is_op(sbit_graph_node(graph, id), rules[r].op_type)) {
                return true;
            }
        }
    }
    return false;
}

SBIT__FN sbit_status sbit__rewrite_init(sbit__rewrite *rw, sbit_graph *graph, const sbit_simplify_desc *desc,
                                        sbit_error *error)
{
    memset(rw, 0, sizeof *rw);
    SBIT__TRY(sbit__facts_init(&rw->facts, graph, error));
    rw->graph = graph;
    rw->ctx = sbit_graph_ctx(graph);
    rw->desc = desc;
    rw->opset = sbit_graph_opset(graph, "");
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__apply_rules(sbit_graph *graph, const sbit_simplify_desc *desc,
                                       const sbit__rule *rules, size_t rule_count, int64_t *changes,
                                       sbit_error *error)
{
    sbit__rewrite rw;
    if (!sbit__rules_apply(graph, rules, rule_count)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__rewrite_init(&rw, graph, desc, error));
    const sbit_status status = sbit__apply_to_nodes(&rw, rules, rule_count, error);
    sbit__facts_deinit(&rw.facts);
    *changes += rw.changes;
    return status;
}

/* >>looking */

SBIT__FN bool sbit__is_op(const sbit_node *node, const char *op_type)
{
    return node != NULL && node->domain[0] == '\0' && strcmp(node->op_type, op_type) == 0;
}

SBIT__FN sbit_value_id sbit__node_in(const sbit_node *node, size_t index)
{
    const sbit_value_id none = {0};
    return index < node->input_count ? node->inputs[index] : none;
}

SBIT__FN bool sbit__output_used(const sbit_graph *graph, const sbit_node *node, size_t index)
{
    return index < node->output_count && node->outputs[index].idx != 0 &&
           sbit_graph_value(graph, node->outputs[index])->use_count != 0;
}

SBIT__FN bool sbit__single_output(const sbit_graph *graph, const sbit_node *node)
{
    for (size_t i = 1; i < node->output_count; i++) {
        if (sbit__output_used(graph, node, i)) {
            return false;
        }
    }
    return node->output_count != 0 && node->outputs[0].idx != 0;
}

SBIT__FN const sbit_node *sbit__producer(const sbit_graph *graph, sbit_value_id id)
{
    if (id.idx == 0 || sbit_graph_value(graph, id)->producer.idx == 0) {
        return NULL;
    }
    return sbit_graph_node(graph, sbit_graph_value(graph, id)->producer);
}

SBIT__FN bool sbit__sole_use(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *value = sbit_graph_value(graph, id);
    sbit_use use;
    return value->use_count == 1 && !value->is_output && sbit_graph_uses(graph, id, &use, 1) == 1 &&
           use.body == NULL && use.node.idx != 0;
}

SBIT__FN const sbit_node *sbit__sole_producer(const sbit_graph *graph, sbit_value_id id,
                                              const char *op_type)
{
    const sbit_node *node = sbit__producer(graph, id);
    return sbit__is_op(node, op_type) && node->outputs[0].idx == id.idx &&
                   sbit__sole_use(graph, id) && sbit__single_output(graph, node)
               ? node
               : NULL;
}

SBIT__FN const sbit_tensor *sbit__const_in(const sbit_graph *graph, const sbit_node *node,
                                           size_t index)
{
    const sbit_value_id id = sbit__node_in(node, index);
    return id.idx != 0 ? sbit__graph_constant(graph, id) : NULL;
}

SBIT__FN bool sbit__is_float(sbit_dtype dtype)
{
    return dtype == SBIT_F32 || dtype == SBIT_F64;
}

SBIT__FN bool sbit__scalar_const(const sbit_graph *graph, sbit_value_id id, double *value)
{
    const sbit_tensor *tensor = id.idx != 0 ? sbit__graph_constant(graph, id) : NULL;
    if (tensor == NULL || sbit_tensor_count(tensor) != 1 ||
        !(sbit__is_float(tensor->dtype) || tensor->dtype == SBIT_F16)) {
        return false;
    }
    *value = sbit__tensor_f64_at(tensor, 0);
    return true;
}

SBIT__FN bool sbit__node_ints(const sbit_graph *graph, const sbit_node *node, const char *name,
                              size_t input, int64_t *values, int64_t capacity, int64_t *count)
{
    const sbit_attr *attr = name != NULL ? sbit_node_attr(node, name) : NULL;
    const sbit_tensor *tensor = sbit__const_in(graph, node, input);
    if (attr != NULL && attr->type == SBIT_ONNX_ATTR_INTS && (int64_t)attr->count <= capacity) {
        *count = (int64_t)attr->count;
        for (int64_t i = 0; i < *count; i++) {
            values[i] = attr->ints[i];
        }
        return true;
    }
    if (attr != NULL || tensor == NULL ||
        (tensor->dtype != SBIT_I64 && tensor->dtype != SBIT_I32) ||
        sbit_tensor_count(tensor) > capacity) {
        return false;
    }
    *count = sbit_tensor_count(tensor);
    for (int64_t i = 0; i < *count; i++) {
        values[i] = sbit__tensor_i64_at(tensor, i);
    }
    return true;
}

/* >>making */

SBIT__FN sbit_status sbit__add_scalar(sbit_graph *graph, const char *name, sbit_dtype dtype,
                                      int32_t rank, double value, sbit_value_id *out,
                                      sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    const int64_t one = 1;
    sbit_tensor tensor;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit_tensor_alloc(ctx, dtype, rank, &one, &tensor, error));
    sbit__tensor_set_f64(&tensor, 0, value);
    status = sbit_graph_add_constant(graph, name, &tensor, out, error);
    sbit_tensor_free(ctx, &tensor);
    return status;
}

SBIT__FN sbit_status sbit__add_ints(sbit_graph *graph, const char *name, const int64_t *values,
                                    int64_t count, sbit_value_id *out, sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    sbit_tensor tensor;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit_tensor_alloc(ctx, SBIT_I64, 1, &count, &tensor, error));
    if (count > 0) {
        memcpy(tensor.data, values, (size_t)count * sizeof *values);
    }
    status = sbit_graph_add_constant(graph, name, &tensor, out, error);
    sbit_tensor_free(ctx, &tensor);
    return status;
}

SBIT__FN sbit_status sbit__emit(sbit_graph *graph, sbit_node_id before, const char *op_type,
                                const char *name, const sbit_value_id *inputs, size_t input_count,
                                const sbit_attr *attrs, size_t attr_count, sbit_value_id *out,
                                sbit_error *error)
{
    const sbit_type unknown = sbit__type_unknown();
    sbit_value_id made; /* `out` may be one of `inputs` */
    sbit_node_desc desc;
    SBIT__TRY(sbit_graph_add_value(graph, name, &unknown, &made, error));
    memset(&desc, 0, sizeof desc);
    desc.op_type = op_type;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = &made;
    desc.output_count = 1;
    desc.attrs = attrs;
    desc.attr_count = attr_count;
    desc.before = before;
    SBIT__TRY(sbit_graph_add_node(graph, &desc, NULL, error));
    *out = made;
    return SBIT_OK;
}

/* Exchanges the names of two nodes; needs no memory. */
static void sbit__swap_node_names(sbit_graph *graph, sbit_node_id a, sbit_node_id b)
{
    sbit__graph_node *first = sbit__graph_node_at(graph, a);
    sbit__graph_node *second = sbit__graph_node_at(graph, b);
    const char *name = first->info.name;
    sbit__graph_release_name(graph, true, first->info.name, a.idx);
    sbit__graph_release_name(graph, true, second->info.name, b.idx);
    first->info.name = second->info.name;
    second->info.name = name;
    (void)sbit__graph_hold_name(graph, true, first->info.name, a.idx, NULL);
    (void)sbit__graph_hold_name(graph, true, second->info.name, b.idx, NULL);
}

/* Outputs of `old` go to `node`, which has room for them; `old` is erased. Cannot fail. */
static void sbit__hand_over(sbit_graph *graph, const sbit_node *old, sbit_node_id node,
                            size_t output_count)
{
    const sbit_value_id none = {0};
    for (size_t i = 0; i < output_count && i < old->output_count; i++) {
        const sbit_value_id id = old->outputs[i];
        if (id.idx != 0) {
            (void)sbit_graph_set_node_output(graph, old->id, i, none, NULL);
            (void)sbit_graph_set_node_output(graph, node, i, id, NULL);
        }
    }
    sbit__erase_unused(graph, old);
}

/* A node whose outputs are all none for now. */
static sbit_status sbit__add_bare(sbit_graph *graph, const sbit_node *before, const char *domain,
                                  const char *op_type, const sbit_value_id *inputs, size_t input_count,
                                  const sbit_attr *attrs, size_t attr_count, size_t output_count,
                                  sbit_node_id *out, sbit_error *error)
{
    sbit_value_id few[8];
    sbit_value_id *outputs = few;
    sbit__arena arena;
    sbit_node_desc desc;
    sbit_status status = SBIT_OK;
    memset(few, 0, sizeof few);
    memset(&desc, 0, sizeof desc);
    sbit__arena_init(&arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    if (output_count > SBIT__COUNT_OF(few)) {
        outputs = (sbit_value_id *)sbit__arena_array(&arena, output_count, sizeof *outputs);
    }
    desc.op_type = op_type;
    desc.domain = domain;
    desc.name = before->name;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = outputs;
    desc.output_count = output_count;
    desc.attrs = attrs;
    desc.attr_count = attr_count;
    desc.before = before->id;
    status = outputs == NULL ? sbit__fail_oom(error, output_count * sizeof *outputs)
                             : sbit_graph_add_node(graph, &desc, out, error);
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN sbit_status sbit__replace_node(sbit_graph *graph, const sbit_node *old,
                                        const char *op_type, const sbit_value_id *inputs,
                                        size_t input_count, const sbit_attr *attrs,
                                        size_t attr_count, size_t output_count, sbit_error *error)
{
    return sbit__replace_with(graph, old, "", op_type, inputs, input_count, attrs, attr_count,
                              output_count, error);
}

SBIT__FN sbit_status sbit__replace_with(sbit_graph *graph, const sbit_node *old, const char *domain,
                                        const char *op_type, const sbit_value_id *inputs,
                                        size_t input_count, const sbit_attr *attrs,
                                        size_t attr_count, size_t output_count, sbit_error *error)
{
    sbit_node_id node = {0};
    SBIT__TRY(sbit__add_bare(graph, old, domain, op_type, inputs, input_count, attrs, attr_count,
                             output_count, &node, error));
    sbit__swap_node_names(graph, old->id, node);
    sbit__hand_over(graph, old, node, output_count);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__rebuild_node(sbit_graph *graph, const sbit_node *like,
                                        const sbit_node *last, const sbit_value_id *inputs,
                                        size_t input_count, const sbit_attr *attrs,
                                        size_t attr_count, sbit_error *error)
{
    const sbit__graph_node *model = sbit__graph_node_at(graph, like->id);
    sbit__graph_node *made = NULL;
    sbit_node_id node = {0};
    SBIT__TRY(sbit__add_bare(graph, last, "", like->op_type, inputs, input_count, attrs, attr_count, 1,
                             &node, error));
    made = sbit__graph_node_at(graph, node);
    made->info.source = model->info.source;
    made->metadata = model->metadata;
    made->metadata_count = model->metadata_count;
    sbit__swap_node_names(graph, like->id, node);
    sbit__hand_over(graph, last, node, 1);
    return SBIT_OK;
}

SBIT__FN void sbit__erase_dead_value(sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *value = NULL;
    if (id.idx == 0 || !sbit_graph_value_alive(graph, id)) {
        return;
    }
    value = sbit_graph_value(graph, id);
    if (value->producer.idx == 0 && value->use_count == 0 && !value->is_input) {
        sbit_graph_erase_value(graph, id);
    }
}

SBIT__FN void sbit__erase_unused(sbit_graph *graph, const sbit_node *node)
{
    /* The node's memory stays readable until the graph is destroyed. */
    sbit_graph_erase_node(graph, node->id);
    for (size_t i = 0; i < node->output_count; i++) {
        sbit__erase_dead_value(graph, node->outputs[i]);
    }
}

SBIT__FN bool sbit__can_replace(const sbit_graph *graph, sbit_value_id from, sbit_value_id to)
{
    const sbit_value_info *target = NULL;
    if (from.idx == 0 || to.idx == 0 || from.idx == to.idx) {
        return false;
    }
    /* A graph output must be made by a node of this graph, and each by a value of its own. */
    target = sbit_graph_value(graph, to);
    return !sbit_graph_value(graph, from)->is_output ||
           (target->producer.idx != 0 && !target->is_output);
}

SBIT__FN sbit_status sbit__bypass(sbit__rewrite *rw, const sbit_node *node, sbit_value_id to,
                                  sbit_error *error)
{
    if (!sbit__single_output(rw->graph, node) ||
        !sbit__can_replace(rw->graph, node->outputs[0], to)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_graph_replace_uses(rw->graph, node->outputs[0], to, error));
    sbit__erase_unused(rw->graph, node);
    rw->changes++;
    return SBIT_OK;
}

SBIT__FN void sbit__take_name(sbit_graph *graph, sbit_value_id from, sbit_value_id to)
{
    sbit__graph_value *first = sbit__graph_value_at(graph, from);
    sbit__graph_value *second = sbit__graph_value_at(graph, to);
    const char *name = first->info.name;
    if (first->info.outer.idx != 0 || second->info.outer.idx != 0) {
        return;
    }
    sbit__graph_release_name(graph, false, first->info.name, from.idx);
    sbit__graph_release_name(graph, false, second->info.name, to.idx);
    first->info.name = second->info.name;
    second->info.name = name;
    (void)sbit__graph_hold_name(graph, false, first->info.name, from.idx, NULL);
    (void)sbit__graph_hold_name(graph, false, second->info.name, to.idx, NULL);
    sbit__graph_spread_name(graph, from);
    sbit__graph_spread_name(graph, to);
}
