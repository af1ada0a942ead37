/* merge_duplicates.c: equal nodes, and equal small constants, become one. >>pass-merge-duplicates
 *
 * Two nodes are equal if operator, attributes and inputs are. Random numbers, nodes with bodies
 * and quantizers (runtimes want a pair for each user) stay. Of constants only integers, booleans
 * and single numbers are merged, but slopes and bytes: two layers whose weights are equal by chance (biases of zero) must
 * not be tied together, or training and pruning one would change the other.
 */
#include "passes_private.h"

typedef struct sbit__dup {
    sbit__rewrite *rw;
    sbit__map seen; /* key -> idx of a value (constants) or node */
} sbit__dup;

static void sbit__dup_hex(sbit__text *text, const void *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = (const unsigned char *)data;
    for (size_t i = 0; i < size; i++) {
        char two[2];
        two[0] = digits[bytes[i] >> 4];
        two[1] = digits[bytes[i] & 15];
        sbit__text_append(text, two, 2);
    }
}

static void sbit__dup_tensor(sbit__text *text, const sbit_tensor *tensor)
{
    sbit__text_printf(text, "t%d[", (int)tensor->dtype);
    for (int32_t i = 0; i < tensor->rank; i++) {
        sbit__text_printf(text, "%lld,", (long long)tensor->dims[i]);
    }
    sbit__text_printf(text, "]");
    sbit__dup_hex(text, tensor->data, sbit_tensor_bytes(tensor));
}

/* Writes an attribute's value; false for kinds that are not compared. */
static bool sbit__dup_attr(sbit__text *text, const sbit_attr *attr)
{
    sbit__text_printf(text, "|%s=%d:", attr->name, (int)attr->type);
    switch (attr->type) {
    case SBIT_ONNX_ATTR_FLOAT:
        sbit__dup_hex(text, &attr->f, sizeof attr->f);
        return true;
    case SBIT_ONNX_ATTR_INT:
        sbit__text_printf(text, "%lld", (long long)attr->i);
        return true;
    case SBIT_ONNX_ATTR_STRING:
        sbit__dup_hex(text, attr->s.data, attr->s.size);
        return true;
    case SBIT_ONNX_ATTR_TENSOR:
        sbit__dup_tensor(text, &attr->t);
        return attr->t.dtype != SBIT_STRING;
    case SBIT_ONNX_ATTR_FLOATS:
        sbit__dup_hex(text, attr->floats, attr->count * sizeof *attr->floats);
        return true;
    case SBIT_ONNX_ATTR_INTS:
        sbit__dup_hex(text, attr->ints, attr->count * sizeof *attr->ints);
        return true;
    default:
        return false;
    }
}

/* Attributes in the order of their names, so that their order in the file does not matter. */
static bool sbit__dup_attrs(sbit__text *text, const sbit_node *node)
{
    const char *last = "";
    for (size_t n = 0; n < node->attr_count; n++) {
        const sbit_attr *next = NULL;
        for (size_t i = 0; i < node->attr_count; i++) {
            const sbit_attr *attr = &node->attrs[i];
            if (strcmp(attr->name, last) > 0 &&
                (next == NULL || strcmp(attr->name, next->name) < 0)) {
                next = attr;
            }
        }
        if (next == NULL || !sbit__dup_attr(text, next)) {
            return false;
        }
        last = next->name;
    }
    return true;
}

static bool sbit__dup_node_key(const sbit_graph *graph, const sbit_node *node, sbit__text *text)
{
    int32_t opset = 0;
    const sbit_op_row *row = sbit__op_row(graph, node, &opset);
    if (row == NULL || (row->flags & (SBIT_OP_RANDOM | SBIT_OP_BODY)) != 0 ||
        sbit__is_op(node, "QuantizeLinear") || sbit__is_op(node, "DequantizeLinear")) {
        return false;
    }
    sbit__text_printf(text, "n%s:%s", node->domain, node->op_type);
    for (size_t i = 0; i < node->input_count; i++) {
        sbit__text_printf(text, ",%lu", (unsigned long)node->inputs[i].idx);
    }
    for (size_t i = 0; i < node->output_count; i++) {
        /* outputs that one of them does not have */
        sbit__text_printf(text, "%c", node->outputs[i].idx != 0 ? ';' : '-');
    }
    return sbit__dup_attrs(text, node);
}

/* Looks the key up; enters it if it is new. *found 0: it was. */
static sbit_status sbit__dup_look_up(sbit__dup *dup, const sbit__text *text, uint32_t idx,
                                     uint32_t *found, sbit_error *error)
{
    char *key = NULL;
    *found = 0;
    if (text->failed) {
        return sbit__fail_oom(error, text->size);
    }
    if (sbit__map_find(&dup->seen, text->data, found)) {
        return SBIT_OK;
    }
    key = sbit__arena_strdup(&dup->rw->facts.arena, text->data, text->size);
    if (key == NULL) {
        return sbit__fail_oom(error, text->size);
    }
    return sbit__map_set(&dup->seen, key, idx, error);
}

static sbit_status sbit__dup_node(sbit__dup *dup, const sbit_node *node, sbit__text *text,
                                  sbit_error *error)
{
    sbit_graph *graph = dup->rw->graph;
    const sbit_node *first = NULL;
    sbit_node_id id;
    if (!sbit__dup_node_key(graph, node, text)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__dup_look_up(dup, text, node->id.idx, &id.idx, error));
    if (id.idx == 0) {
        return SBIT_OK;
    }
    first = sbit_graph_node(graph, id);
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0 &&
            !sbit__can_replace(graph, node->outputs[i], first->outputs[i])) {
            return SBIT_OK;
        }
    }
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0) {
            SBIT__TRY(sbit_graph_replace_uses(graph, node->outputs[i], first->outputs[i], error));
        }
    }
    sbit__erase_unused(graph, node);
    dup->rw->changes++;
    return SBIT_OK;
}

/* Slopes are trained. Bytes are zero points or weights: ONNX Runtime makes zero points of int8 unsigned, each
 * once, and refuses a model where two scales share one. */
static bool sbit__dup_is_own(const sbit_graph *graph, sbit_value_id id)
{
    const int32_t dtype = (int32_t)sbit_graph_value(graph, id)->constant.dtype;
    sbit_use use;
    return (dtype != SBIT_BOOL && sbit_dtype_bits(dtype) <= 8) ||
           (sbit_graph_uses(graph, id, &use, 1) != 0 && use.node.idx != 0 &&
            sbit__is_op(sbit_graph_node(graph, use.node), "PRelu"));
}

static sbit_status sbit__dup_constant(sbit__dup *dup, sbit_value_id id, sbit__text *text,
                                      sbit_error *error)
{
    sbit_graph *graph = dup->rw->graph;
    const sbit_value_info *value = sbit_graph_value(graph, id);
    const sbit_tensor *tensor = &value->constant;
    sbit_value_id first;
    if (!value->is_constant || value->is_input || value->is_output || value->use_count == 0 ||
        tensor->dtype == SBIT_STRING || tensor->rank < 0 || sbit_tensor_count(tensor) > 1024) {
        return SBIT_OK;
    }
    if (((SBIT_T(tensor->dtype) & (SBIT_T_FLOATS)) != 0 && sbit_tensor_count(tensor) != 1) || sbit__dup_is_own(graph, id)) {
        return SBIT_OK;
    }
    sbit__text_printf(text, "c");
    sbit__dup_tensor(text, tensor);
    SBIT__TRY(sbit__dup_look_up(dup, text, id.idx, &first.idx, error));
    if (first.idx == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_graph_replace_uses(graph, id, first, error));
    sbit__erase_dead_value(graph, id);
    dup->rw->changes++;
    return SBIT_OK;
}

static sbit_status sbit__dup_all(sbit__dup *dup, sbit_error *error)
{
    const sbit_graph *graph = dup->rw->graph;
    const sbit_allocator *allocator = sbit_ctx_allocator(dup->rw->ctx);
    sbit_node_id *ids = NULL;
    size_t count = 0;
    const uint32_t limit = sbit_graph_value_limit(graph);
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit__node_list(graph, &dup->rw->facts.arena, &ids, &count, error));
    for (uint32_t i = 1; i < limit + count && status == SBIT_OK; i++) {
        sbit__text text;
        sbit_value_id id;
        id.idx = i;
        sbit__text_init(&text, allocator);
        if (i >= limit) {
            status = sbit__dup_node(dup, sbit_graph_node(graph, ids[i - limit]), &text, error);
        } else if (sbit_graph_value_alive(graph, id)) {
            status = sbit__dup_constant(dup, id, &text, error);
        }
        sbit__text_deinit(&text);
    }
    return status;
}

static sbit_status sbit__dup_run(sbit_graph *graph, const sbit_simplify_desc *desc,
                                 int64_t *changes, sbit_error *error)
{
    sbit__rewrite rw;
    sbit__dup dup;
    sbit_status status = SBIT_OK;
    memset(&rw, 0, sizeof rw);
    rw.graph = graph;
    rw.ctx = sbit_graph_ctx(graph);
    rw.desc = desc;
    sbit__arena_init(&rw.facts.arena, sbit_ctx_allocator(rw.ctx));
    dup.rw = &rw;
    sbit__map_init(&dup.seen, sbit_ctx_allocator(rw.ctx));
    status = sbit__dup_all(&dup, error);
    sbit__map_deinit(&dup.seen);
    sbit__arena_deinit(&rw.facts.arena);
    *changes += rw.changes;
    return status;
}

SBIT__FN const sbit_pass_row *sbit__pass_merge_duplicates(void)
{
    static const sbit_pass_row row = {
        {"merge_duplicates", "equal nodes, and equal small constants, become one", 0, NULL, 0},
        false,
        sbit__dup_run};
    return &row;
}
