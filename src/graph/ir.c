/* ir.c: storage of graphs: values, nodes, names, symbols, uses. >>graph
 *
 * Called by: the other files of the graph layer.
 * Calls: core.
 * Does: keep the invariants of names, uses and the node list that edit.c, import.c and body.c
 * build on. Does not: decide what an edit means.
 */
#include "../onnx/onnx_private.h"
#include "graph_private.h"

#include <stdio.h> /* snprintf */

/* Room between the order numbers of neighbours, so that 32 nodes can be put before the same node
 * before all have to be numbered again. */
#define SBIT__GRAPH_ORDER_GAP ((uint64_t)1 << 32)

/* >>memory */
SBIT__FN sbit_status sbit__graph_alloc(sbit_graph *graph, size_t count, size_t bytes_each,
                                       void **out, sbit_error *error)
{
    void *block = sbit__arena_array(&graph->family->arena, count == 0 ? 1 : count, bytes_each);
    if (block == NULL) {
        return sbit__fail_oom(error, bytes_each);
    }
    *out = block;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_text(sbit_graph *graph, const char *text, size_t size,
                                      const char **out, sbit_error *error)
{
    const char *copy = sbit__arena_strdup(&graph->family->arena, size == 0 ? "" : text, size);
    if (copy == NULL) {
        return sbit__fail_oom(error, size + 1);
    }
    *out = copy;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_grow(sbit_graph *graph, void **items, size_t count,
                                      size_t *capacity, size_t needed, size_t bytes_each,
                                      sbit_error *error)
{
    if (needed <= *capacity) {
        return SBIT_OK;
    }
    size_t larger = *capacity < 4 ? 4 : *capacity;
    while (larger < needed) {
        if (!sbit__mul_size(larger, 2, &larger)) {
            return sbit__fail_oom(error, SIZE_MAX);
        }
    }
    void *block = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, larger, bytes_each, &block, error));
    if (count != 0) {
        memcpy(block, *items, count * bytes_each);
    }
    *items = block;
    *capacity = larger;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_put_metadata(sbit_graph *graph, sbit_onnx_string_entry **entries,
                                              size_t *count, const char *key, const char *value,
                                              sbit_error *error)
{
    size_t index = 0;
    while (index < *count && !sbit__streq((*entries)[index].key.data, key)) {
        index++;
    }
    const size_t new_count = index == *count ? *count + 1 : *count;
    void *block = NULL;
    const char *key_copy = NULL, *value_copy = NULL;
    SBIT__TRY(sbit__graph_alloc(graph, new_count, sizeof(**entries), &block, error));
    SBIT__TRY(sbit__graph_text(graph, key, strlen(key), &key_copy, error));
    SBIT__TRY(sbit__graph_text(graph, value, strlen(value), &value_copy, error));
    sbit_onnx_string_entry *copies = (sbit_onnx_string_entry *)block;
    if (*count != 0) {
        memcpy(copies, *entries, *count * sizeof(*copies));
    }
    SBIT_ONNX_SET(&copies[index], SBIT_ONNX_STRING_ENTRY_KEY, key, sbit__str(key_copy));
    SBIT_ONNX_SET(&copies[index], SBIT_ONNX_STRING_ENTRY_VALUE, value, sbit__str(value_copy));
    *entries = copies;
    *count = new_count;
    return SBIT_OK;
}

/* >>graphs */

/* A graph struct of the family, with the unused first entries of its tables. */
static sbit_status sbit__graph_new(sbit__graph_family *family, sbit_graph **out, sbit_error *error)
{
    sbit_graph *graph = (sbit_graph *)sbit__arena_alloc(&family->arena, sizeof(*graph));
    if (graph == NULL) {
        return sbit__fail_oom(error, sizeof(*graph));
    }
    graph->family = family;
    graph->name = "";
    graph->alive = true;
    sbit__map_init(&graph->value_of, &family->ctx->allocator);
    sbit__map_init(&graph->node_of, &family->ctx->allocator);
    void *values = NULL, *nodes = NULL;
    SBIT__TRY(sbit__graph_grow(graph, &values, 0, &graph->value_capacity, 16,
                               sizeof(graph->values[0]), error));
    SBIT__TRY(sbit__graph_grow(graph, &nodes, 0, &graph->node_capacity, 16, sizeof(graph->nodes[0]),
                               error));
    graph->values = (sbit__graph_value **)values;
    graph->nodes = (sbit__graph_node **)nodes;
    graph->value_count = 1;
    graph->node_count = 1;
    graph->index = family->graph_count++;
    graph->next_graph = family->graphs;
    family->graphs = graph;
    *out = graph;
    return SBIT_OK;
}

static void sbit__graph_destroy_family(sbit__graph_family *family)
{
    const sbit_allocator allocator = family->ctx->allocator;
    for (sbit_graph *graph = family->graphs; graph != NULL; graph = graph->next_graph) {
        for (size_t i = 1; i < graph->value_count; i++) {
            sbit_value_id id = {(uint32_t)i};
            sbit__graph_drop_constant(graph, id);
        }
        sbit__map_deinit(&graph->value_of);
        sbit__map_deinit(&graph->node_of);
    }
    for (size_t i = 0; i < family->tensor_count; i++) {
        sbit_tensor_free(family->ctx, &family->tensors[i]);
    }
    sbit__map_deinit(&family->symbol_of);
    sbit__map_deinit(&family->value_names);
    sbit__map_deinit(&family->node_names);
    sbit__map_deinit(&family->value_suffixes);
    sbit__map_deinit(&family->node_suffixes);
    if (family->owns_doc) {
        sbit_onnx_destroy(family->doc);
    }
    sbit__arena_deinit(&family->arena);
    sbit__free(&allocator, family, sizeof(*family));
}

SBIT__FN sbit_status sbit__graph_new_family(sbit_ctx *ctx, sbit_graph **root, sbit_error *error)
{
    const sbit_allocator *allocator = &ctx->allocator;
    sbit__graph_family *family =
        (sbit__graph_family *)sbit__calloc(allocator, 1, sizeof(sbit__graph_family));
    if (family == NULL) {
        return sbit__fail_oom(error, sizeof(*family));
    }
    family->ctx = ctx;
    sbit__arena_init(&family->arena, allocator);
    sbit__map_init(&family->symbol_of, allocator);
    sbit__map_init(&family->value_names, allocator);
    sbit__map_init(&family->node_names, allocator);
    sbit__map_init(&family->value_suffixes, allocator);
    sbit__map_init(&family->node_suffixes, allocator);
    const sbit_status status = sbit__graph_new(family, root, error);
    if (status != SBIT_OK) {
        sbit__graph_destroy_family(family);
    }
    return status;
}

SBIT__FN sbit_status sbit__graph_new_body(sbit_graph *parent, sbit_graph **out, sbit_error *error)
{
    SBIT__TRY(sbit__graph_new(parent->family, out, error));
    (*out)->parent = parent;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_graph_destroy(sbit_graph *graph)
{
    if (graph != NULL) {
        SPARSEBIT_ASSERT(graph->parent == NULL);
        sbit__graph_destroy_family(graph->family);
    }
}

SBIT__FN void sbit__graph_drop_body(sbit_graph *body)
{
    for (uint32_t i = 1; i < body->node_count; i++) {
        sbit__graph_node *node = body->nodes[i];
        if (!node->alive) {
            continue;
        }
        sbit_graph *inner = NULL;
        for (size_t b = 0; (inner = sbit_node_body(&node->info, b)) != NULL; b++) {
            if (inner->parent == body && inner->holder.idx == i && inner->alive) {
                sbit__graph_drop_body(inner);
            }
        }
        sbit__graph_release_name(body, true, node->info.name, i);
        node->alive = false;
    }
    for (uint32_t i = 1; i < body->value_count; i++) {
        sbit__graph_value *value = body->values[i];
        if (!value->alive) {
            continue;
        }
        if (value->info.outer.idx != 0) {
            sbit__graph_take_use(body->parent, value->info.outer, body->holder, i, body);
        } else {
            sbit__graph_release_name(body, false, value->info.name, i);
        }
        sbit__graph_drop_constant(body, value->info.id);
        value->alive = false;
    }
    body->alive = false;
}

SBIT__FN const char *sbit__graph_domain(sbit_str domain)
{
    if (domain.size == 0 || domain.data == NULL || strcmp(domain.data, "ai.onnx") == 0) {
        return "";
    }
    return domain.data;
}

/* >>types and symbols */
SBIT__FN void sbit__graph_type_unknown(sbit_type *type)
{
    memset(type, 0, sizeof(*type));
    type->rank = -1;
}

SBIT__FN void sbit__graph_type_of_tensor(const sbit_tensor *tensor, sbit_type *out)
{
    memset(out, 0, sizeof(*out));
    out->dtype = tensor->dtype;
    out->rank = tensor->rank;
    for (int32_t i = 0; i < tensor->rank; i++) {
        out->dims[i].value = tensor->dims[i];
    }
}

SBIT__FN bool sbit__graph_type_equal(const sbit_type *a, const sbit_type *b)
{
    if (a->kind != b->kind || a->of != b->of || a->dtype != b->dtype || a->rank != b->rank) {
        return false;
    }
    for (int32_t i = 0; i < a->rank; i++) {
        if (a->dims[i].symbol != b->dims[i].symbol || a->dims[i].value != b->dims[i].value) {
            return false;
        }
    }
    return true;
}

SPARSEBIT_API sbit_status sbit_graph_symbol(sbit_graph *graph, const char *name, uint32_t *symbol,
                                            sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    uint32_t found = 0;
    if (name == NULL || name[0] == '\0') {
        *symbol = SBIT_SYMBOL_ANY;
        return SBIT_OK;
    }
    if (sbit__map_find(&family->symbol_of, name, &found)) {
        *symbol = found;
        return SBIT_OK;
    }
    const char *copy = NULL;
    void *items = (void *)family->symbols;
    const size_t count = family->symbol_count == 0 ? 1 : family->symbol_count;
    SBIT__TRY(sbit__graph_text(graph, name, strlen(name), &copy, error));
    SBIT__TRY(sbit__graph_grow(graph, &items, family->symbol_count, &family->symbol_capacity,
                               count + 1, sizeof(family->symbols[0]), error));
    family->symbols = (const char **)items;
    SBIT__TRY(sbit__map_set(&family->symbol_of, copy, (uint32_t)count, error));
    family->symbols[0] = "";
    family->symbols[count] = copy;
    family->symbol_count = count + 1;
    *symbol = (uint32_t)count;
    return SBIT_OK;
}

/* >>alive */
SPARSEBIT_API bool sbit_graph_node_alive(const sbit_graph *graph, sbit_node_id id)
{
    return id.idx != 0 && id.idx < graph->node_count && graph->nodes[id.idx]->alive;
}

SPARSEBIT_API bool sbit_graph_value_alive(const sbit_graph *graph, sbit_value_id id)
{
    return id.idx != 0 && id.idx < graph->value_count && graph->values[id.idx]->alive;
}

/* >>names */

/* The last number that was tried behind a base: a thousand names of one base take a thousand
 * steps, not a million. */
static sbit_status sbit__graph_suffix_of(sbit_graph *graph, bool of_node, const char *base,
                                         uint32_t **out, sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    sbit__map *map = of_node ? &family->node_suffixes : &family->value_suffixes;
    uint32_t index = 0;
    if (!sbit__map_find(map, base, &index)) {
        void *items = family->suffixes;
        const char *key = NULL;
        SBIT__TRY(sbit__graph_grow(graph, &items, family->suffix_count, &family->suffix_capacity,
                                   family->suffix_count + 1, sizeof(uint32_t), error));
        family->suffixes = (uint32_t *)items;
        SBIT__TRY(sbit__graph_text(graph, base, strlen(base), &key, error));
        index = (uint32_t)family->suffix_count;
        SBIT__TRY(sbit__map_set(map, key, index, error));
        family->suffix_count++;
    }
    *out = &family->suffixes[index];
    return SBIT_OK;
}

/* "base", or "base_1", "base_2" ... if that is in use anywhere in the family. */
SBIT__FN sbit_status sbit__graph_unique_name(sbit_graph *graph, bool of_node, const char *base,
                                             const char **out, sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    const sbit__map *names = of_node ? &family->node_names : &family->value_names;
    const size_t size = strlen(base);
    if (!sbit__map_find(names, base, NULL)) {
        return sbit__graph_text(graph, base, size, out, error);
    }
    uint32_t *tried = NULL;
    void *block = NULL;
    const size_t room = size + 16;
    SBIT__TRY(sbit__graph_suffix_of(graph, of_node, base, &tried, error));
    SBIT__TRY(sbit__graph_alloc(graph, room, 1, &block, error));
    char *name = (char *)block;
    do {
        snprintf(name, room, "%s_%lu", base, (unsigned long)++*tried);
    } while (sbit__map_find(names, name, NULL));
    *out = name;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_hold_name(sbit_graph *graph, bool of_node, const char *name,
                                           uint32_t idx, sbit_error *error)
{
    if (name[0] == '\0') {
        return SBIT_OK;
    }
    sbit__map *names = of_node ? &graph->family->node_names : &graph->family->value_names;
    sbit__map *map = of_node ? &graph->node_of : &graph->value_of;
    uint32_t holders = 0;
    if (sbit__map_find(names, name, &holders)) {
        sbit__map_remove(names, name); /* so that counting up needs no memory */
    }
    SBIT__TRY(sbit__map_set(names, name, holders + 1, error));
    if (sbit__map_find(map, name, NULL)) {
        return SBIT_OK; /* nodes may share a name: the first one is found by it */
    }
    const sbit_status status = sbit__map_set(map, name, idx, error);
    if (status != SBIT_OK) {
        sbit__map_remove(names, name);
        if (holders != 0) { /* cannot fail: one entry was just removed */
            (void)sbit__map_set(names, name, holders, NULL);
        }
    }
    return status;
}

SBIT__FN void sbit__graph_release_name(sbit_graph *graph, bool of_node, const char *name,
                                       uint32_t idx)
{
    if (name[0] == '\0') {
        return;
    }
    sbit__map *names = of_node ? &graph->family->node_names : &graph->family->value_names;
    sbit__map *map = of_node ? &graph->node_of : &graph->value_of;
    uint32_t holders = 0, found = 0;
    sbit__map_find(names, name, &holders);
    sbit__map_remove(names, name);
    if (holders > 1) { /* cannot fail: one entry was just removed */
        (void)sbit__map_set(names, name, holders - 1, NULL);
    }
    if (sbit__map_find(map, name, &found) && found == idx) {
        sbit__map_remove(map, name);
    }
}

SBIT__FN bool sbit__graph_name_taken(const sbit_graph *graph, const char *name)
{
    return sbit__map_find(&graph->family->value_names, name, NULL);
}

SBIT__FN void sbit__graph_spread_name(const sbit_graph *graph, sbit_value_id id)
{
    const sbit__graph_value *value = graph->values[id.idx];
    for (uint32_t i = 0; i < value->info.use_count; i++) {
        const sbit_use *use = &value->uses[i];
        if (use->body != NULL) {
            const sbit_value_id inner = {use->index};
            use->body->values[inner.idx]->info.name = value->info.name;
            sbit__graph_spread_name(use->body, inner);
        }
    }
}

/* >>values */
SBIT__FN sbit__graph_value *sbit__graph_value_at(const sbit_graph *graph, sbit_value_id id)
{
    SPARSEBIT_ASSERT(sbit_graph_value_alive(graph, id));
    return graph->values[id.idx];
}

SBIT__FN sbit_status sbit__graph_new_value(sbit_graph *graph, const char *name,
                                           const sbit_type *type, sbit_value_id *out,
                                           sbit_error *error)
{
    void *table = (void *)graph->values, *block = NULL;
    SBIT__TRY(sbit__graph_grow(graph, &table, graph->value_count, &graph->value_capacity,
                               graph->value_count + 1, sizeof(graph->values[0]), error));
    graph->values = (sbit__graph_value **)table;
    SBIT__TRY(sbit__graph_alloc(graph, 1, sizeof(sbit__graph_value), &block, error));
    sbit__graph_value *value = (sbit__graph_value *)block;
    const uint32_t idx = (uint32_t)graph->value_count;
    if (name != NULL) {
        SBIT__TRY(sbit__graph_hold_name(graph, false, name, idx, error));
    }
    value->info.id.idx = idx;
    value->info.name = name != NULL ? name : "";
    if (type != NULL) {
        value->info.type = *type;
    } else {
        sbit__graph_type_unknown(&value->info.type);
    }
    value->alive = true;
    graph->values[idx] = value;
    graph->value_count++;
    *out = value->info.id;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_reserve_uses(sbit_graph *graph, sbit_value_id id, size_t extra,
                                              sbit_error *error)
{
    sbit__graph_value *value = graph->values[id.idx];
    void *uses = value->uses;
    SBIT__TRY(sbit__graph_grow(graph, &uses, value->info.use_count, &value->use_capacity,
                               value->info.use_count + extra, sizeof(value->uses[0]), error));
    value->uses = (sbit_use *)uses;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__graph_reserve_inputs(sbit_graph *graph, const sbit_value_id *inputs,
                                                size_t count, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    for (size_t i = 0; i < count && status == SBIT_OK; i++) {
        if (inputs[i].idx != 0) { /* a value may be there more than once */
            status = sbit__graph_reserve_uses(graph, inputs[i],
                                              ++graph->values[inputs[i].idx]->use_pending, error);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (inputs[i].idx != 0) {
            graph->values[inputs[i].idx]->use_pending = 0;
        }
    }
    return status;
}

SBIT__FN void sbit__graph_put_use(sbit_graph *graph, sbit_value_id id, sbit_node_id node,
                                  uint32_t index, const sbit_graph *body)
{
    sbit__graph_value *value = graph->values[id.idx];
    SPARSEBIT_ASSERT(value->info.use_count < value->use_capacity);
    sbit_use *use = &value->uses[value->info.use_count++];
    use->node = node;
    use->index = index;
    use->body = body;
    value->info.is_output = value->info.is_output || (node.idx == 0 && body == NULL);
}

SBIT__FN void sbit__graph_take_use(sbit_graph *graph, sbit_value_id id, sbit_node_id node,
                                   uint32_t index, const sbit_graph *body)
{
    sbit__graph_value *value = graph->values[id.idx];
    uint32_t i = 0;
    while (i < value->info.use_count &&
           (value->uses[i].node.idx != node.idx || value->uses[i].index != index ||
            value->uses[i].body != body)) {
        i++;
    }
    if (i == value->info.use_count) {
        return;
    }
    value->uses[i] = value->uses[--value->info.use_count];
    if (node.idx == 0 && body == NULL) {
        value->info.is_output = false;
        for (i = 0; i < value->info.use_count; i++) {
            const sbit_use *use = &value->uses[i];
            value->info.is_output =
                value->info.is_output || (use->node.idx == 0 && use->body == NULL);
        }
    }
}

SBIT__FN sbit_value_id sbit__graph_find_capture(const sbit_graph *body, sbit_value_id outer)
{
    const sbit__graph_value *value = body->parent->values[outer.idx];
    sbit_value_id id = {0};
    for (uint32_t i = 0; i < value->info.use_count; i++) {
        if (value->uses[i].body == body) {
            id.idx = value->uses[i].index;
            break;
        }
    }
    return id;
}

SBIT__FN sbit_status sbit__graph_capture(sbit_graph *body, sbit_value_id outer, sbit_value_id *out,
                                         sbit_error *error)
{
    *out = sbit__graph_find_capture(body, outer);
    if (out->idx != 0) {
        return SBIT_OK;
    }
    const sbit__graph_value *source = body->parent->values[outer.idx];
    SBIT__TRY(sbit__graph_reserve_uses(body->parent, outer, 1, error));
    SBIT__TRY(sbit__graph_new_value(body, NULL, &source->info.type, out, error));
    sbit__graph_value *value = body->values[out->idx];
    value->info.name = source->info.name;
    value->info.outer = outer;
    body->capture_count++;
    sbit__graph_put_use(body->parent, outer, body->holder, out->idx, body);
    return SBIT_OK;
}

/* Captures are the same value: they follow through all bodies. */
static void sbit__graph_spread_type(const sbit_graph *graph, sbit_value_id id)
{
    const sbit__graph_value *value = graph->values[id.idx];
    for (uint32_t i = 0; i < value->info.use_count; i++) {
        const sbit_use *use = &value->uses[i];
        if (use->body != NULL) {
            const sbit_value_id inner = {use->index};
            use->body->values[inner.idx]->info.type = value->info.type;
            sbit__graph_spread_type(use->body, inner);
        }
    }
}

SPARSEBIT_API void sbit_graph_set_type(sbit_graph *graph, sbit_value_id id, const sbit_type *type)
{
    if (sbit_graph_value_alive(graph, id)) {
        graph->values[id.idx]->info.type = *type;
        sbit__graph_spread_type(graph, id);
    }
}

SBIT__FN void sbit__graph_drop_constant(sbit_graph *graph, sbit_value_id id)
{
    sbit__graph_value *value = graph->values[id.idx];
    if (value->owns_constant) {
        sbit_tensor_free(graph->family->ctx, &value->info.constant);
    }
    memset(&value->info.constant, 0, sizeof(value->info.constant));
    value->owns_constant = false;
    value->info.is_constant = value->info.has_default = false;
    value->tensor = NULL;
}

SBIT__FN bool sbit__graph_release_constant(const sbit_graph *graph, sbit_value_id id,
                                           bool free_block)
{
    sbit__graph_value *value = graph->values[id.idx];
    sbit_tensor *constant = &value->info.constant;
    if (value->owns_constant && free_block) {
        sbit_tensor old = *constant;
        sbit_tensor_free(graph->family->ctx, &old);
        constant->data = NULL;
        value->owns_constant = false;
        return true;
    }
    if (!value->owns_constant && graph->family->doc != NULL && constant->data != NULL &&
        constant->dtype != SBIT_STRING) {
        sbit__onnx_forget(graph->family->doc, constant->data, sbit_tensor_bytes(constant));
    }
    return false;
}

SBIT__FN void sbit__graph_put_constant(sbit_graph *graph, sbit_value_id id,
                                       const sbit_tensor *tensor, bool owned,
                                       const sbit_onnx_tensor *source)
{
    sbit__graph_value *value = graph->values[id.idx];
    sbit__graph_drop_constant(graph, id);
    value->info.constant = *tensor;
    value->info.has_default = value->info.is_input && graph->family->ir_version >= 4;
    value->info.is_constant = !value->info.has_default;
    value->owns_constant = owned;
    value->tensor = source;
    sbit_type type;
    sbit__graph_type_of_tensor(tensor, &type);
    if (value->info.is_constant || value->info.type.dtype == SBIT_UNDEFINED) {
        sbit_graph_set_type(graph, id, &type); /* else it may be fed with other sizes */
    }
}

SBIT__FN sbit_status sbit__graph_append_id(sbit_graph *graph, sbit_value_id **ids, size_t *count,
                                           size_t *capacity, sbit_value_id id, sbit_error *error)
{
    void *items = *ids;
    SBIT__TRY(sbit__graph_grow(graph, &items, *count, capacity, *count + 1, sizeof(id), error));
    *ids = (sbit_value_id *)items;
    (*ids)[(*count)++] = id;
    return SBIT_OK;
}

/* >>nodes */
SBIT__FN sbit__graph_node *sbit__graph_node_at(const sbit_graph *graph, sbit_node_id id)
{
    SPARSEBIT_ASSERT(sbit_graph_node_alive(graph, id));
    return graph->nodes[id.idx];
}

SBIT__FN sbit_status sbit__graph_new_node(sbit_graph *graph, sbit__graph_node **out,
                                          sbit_error *error)
{
    void *table = (void *)graph->nodes, *block = NULL;
    SBIT__TRY(sbit__graph_grow(graph, &table, graph->node_count, &graph->node_capacity,
                               graph->node_count + 1, sizeof(graph->nodes[0]), error));
    graph->nodes = (sbit__graph_node **)table;
    SBIT__TRY(sbit__graph_alloc(graph, 1, sizeof(sbit__graph_node), &block, error));
    sbit__graph_node *node = (sbit__graph_node *)block;
    node->info.id.idx = (uint32_t)graph->node_count;
    node->info.name = node->info.domain = node->info.op_type = "";
    node->alive = true;
    graph->nodes[graph->node_count++] = node;
    *out = node;
    return SBIT_OK;
}

static void sbit__graph_renumber(sbit_graph *graph)
{
    uint64_t order = 0;
    for (uint32_t i = graph->first; i != 0; i = graph->nodes[i]->next) {
        order += SBIT__GRAPH_ORDER_GAP;
        graph->nodes[i]->order = order;
    }
}

SBIT__FN void sbit__graph_link_node(sbit_graph *graph, uint32_t idx, uint32_t before)
{
    sbit__graph_node *node = graph->nodes[idx];
    const uint32_t after = before != 0 ? graph->nodes[before]->prev : graph->last;
    const uint64_t low = after != 0 ? graph->nodes[after]->order : 0;
    node->prev = after;
    node->next = before;
    if (after != 0) {
        graph->nodes[after]->next = idx;
    } else {
        graph->first = idx;
    }
    if (before != 0) {
        graph->nodes[before]->prev = idx;
    } else {
        graph->last = idx;
    }
    const uint64_t high =
        before != 0 ? graph->nodes[before]->order : low + 2 * SBIT__GRAPH_ORDER_GAP;
    node->order = low + (high - low) / 2;
    if (high < low || high - low < 2) {
        sbit__graph_renumber(graph);
    }
}

SBIT__FN void sbit__graph_unlink_node(sbit_graph *graph, uint32_t idx)
{
    const sbit__graph_node *node = graph->nodes[idx];
    if (node->prev != 0) {
        graph->nodes[node->prev]->next = node->next;
    } else {
        graph->first = node->next;
    }
    if (node->next != 0) {
        graph->nodes[node->next]->prev = node->prev;
    } else {
        graph->last = node->prev;
    }
}

SBIT__FN sbit_graph *sbit__graph_attr_body(const sbit_attr *attr, size_t index)
{
    if (attr->type == SBIT_ONNX_ATTR_GRAPH) {
        return index == 0 ? attr->g : NULL;
    }
    return attr->type == SBIT_ONNX_ATTR_GRAPHS && index < attr->count ? attr->graphs[index] : NULL;
}

SPARSEBIT_API sbit_graph *sbit_node_body(const sbit_node *node, size_t index)
{
    for (size_t a = 0; a < node->attr_count; a++) {
        const sbit_attr *attr = &node->attrs[a];
        const size_t count = attr->type == SBIT_ONNX_ATTR_GRAPHS  ? attr->count
                             : attr->type == SBIT_ONNX_ATTR_GRAPH ? 1
                                                                  : 0;
        if (index < count) {
            return sbit__graph_attr_body(attr, index);
        }
        index -= count;
    }
    return NULL;
}

SBIT__FN sbit_status sbit__graph_keep_tensor(sbit_graph *graph, const sbit_tensor *tensor,
                                             sbit_error *error)
{
    sbit__graph_family *family = graph->family;
    void *items = family->tensors;
    SBIT__TRY(sbit__graph_grow(graph, &items, family->tensor_count, &family->tensor_capacity,
                               family->tensor_count + 1, sizeof(*tensor), error));
    family->tensors = (sbit_tensor *)items;
    family->tensors[family->tensor_count++] = *tensor;
    return SBIT_OK;
}
