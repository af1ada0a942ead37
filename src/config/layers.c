/* layers.c: which names a layer answers to. >>layers
 *
 * One resolver for quantization and pruning (contracts.md section 6).
 */
#include "config_private.h"

#define SBIT__LAYER_NAME_BYTES 256

/* Copies a name in the form in which names are compared: '.', '/' and ' ' become '_', a leading
 * "module." or "model/" and separators in front are dropped. */
static void sbit__layer_normalize(const char *name, char *out, size_t size)
{
    static const char *const prefixes[] = {"module.", "module/", "model.", "model/"};
    size_t n = 0;
    while (*name == '/' || *name == '.') {
        name++;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(prefixes); i++) {
        const size_t length = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], length) == 0 && name[length] != '\0') {
            name += length;
            break;
        }
    }
    for (; *name != '\0' && n + 1 < size; name++) {
        out[n++] = *name == '.' || *name == '/' ? '_' : *name;
    }
    out[n] = '\0';
}

static bool sbit__layer_same(const char *pattern, const char *name)
{
    char text[SBIT__LAYER_NAME_BYTES], glob[SBIT__LAYER_NAME_BYTES];
    if (name == NULL || name[0] == '\0') {
        return false;
    }
    if (sbit__fnmatch(pattern, name)) {
        return true;
    }
    sbit__layer_normalize(name, text, sizeof text);
    sbit__layer_normalize(pattern, glob, sizeof glob);
    return sbit__fnmatch(glob, text);
}

/* The layer's weight constant; NULL if it has none. */
static const sbit_value_info *sbit__layer_weight(const sbit_graph *graph, const sbit_node *node)
{
    const sbit_op_row *row = sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                                                sbit_graph_opset(graph, node->domain));
    const int input = row != NULL && row->quant != NULL ? row->quant->weight : -1;
    if (input < 0 || (size_t)input >= node->input_count || node->inputs[input].idx == 0) {
        return NULL;
    }
    const sbit_value_info *weight = sbit_graph_value(graph, node->inputs[input]);
    return weight->is_constant ? weight : NULL;
}

/* The name of the layer's weight constant without ".weight"; false if it has none. Names such as
 * "onnx::Conv_123" are made up by exporters and do not count. */
static bool sbit__layer_weight_name(const sbit_graph *graph, const sbit_node *node, char *text,
                                    size_t size)
{
    static const char suffix[] = ".weight";
    const sbit_value_info *weight = sbit__layer_weight(graph, node);
    const size_t length = weight != NULL ? strlen(weight->name) : 0;
    const size_t tail = sizeof suffix - 1;
    if (weight == NULL || length <= tail || strcmp(weight->name + length - tail, suffix) != 0 ||
        length - tail >= size) {
        return false;
    }
    memcpy(text, weight->name, length - tail);
    text[length - tail] = '\0';
    return true;
}

SPARSEBIT_API void sbit_layer_name(const sbit_graph *graph, sbit_node_id id, char *text,
                                   size_t size)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    if (sbit__layer_weight_name(graph, node, text, size)) {
        return;
    }
    if (node->name[0] != '\0') {
        snprintf(text, size, "%s", node->name);
    } else {
        snprintf(text, size, "%s_%u", node->op_type, (unsigned)id.idx);
    }
}

SPARSEBIT_API bool sbit_layer_matches(const sbit_graph *graph, sbit_node_id id, const char *pattern)
{
    char name[SBIT__LAYER_NAME_BYTES];
    const sbit_node *node = sbit_graph_node(graph, id);
    sbit_layer_name(graph, id, name, sizeof name);
    if (sbit__layer_same(pattern, name) || sbit__layer_same(pattern, node->name)) {
        return true;
    }
    const sbit_value_info *weight = sbit__layer_weight(graph, node);
    if (weight != NULL && sbit__layer_same(pattern, weight->name)) {
        return true;
    }
    const bool has_output = node->output_count > 0 && node->outputs[0].idx != 0;
    return has_output && sbit__layer_same(pattern, sbit_graph_value(graph, node->outputs[0])->name);
}

SPARSEBIT_API void sbit_layer_suggest(const sbit_graph *graph, const char *pattern, char *text,
                                      size_t size)
{
    enum {
        SBIT__LAYER_SUGGESTIONS = 3
    };
    char best[SBIT__LAYER_SUGGESTIONS][SBIT__LAYER_NAME_BYTES];
    size_t distance[SBIT__LAYER_SUGGESTIONS];
    size_t count = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        char name[SBIT__LAYER_NAME_BYTES];
        sbit_layer_name(graph, id, name, sizeof name);
        const size_t d = sbit__edit_distance(pattern, name);
        size_t at = count;
        while (at > 0 && d < distance[at - 1]) {
            at--;
        }
        if (at >= SBIT__LAYER_SUGGESTIONS) {
            continue;
        }
        count += count < SBIT__LAYER_SUGGESTIONS ? 1u : 0u;
        for (size_t i = count - 1; i > at; i--) {
            memcpy(best[i], best[i - 1], sizeof best[i]);
            distance[i] = distance[i - 1];
        }
        memcpy(best[at], name, sizeof name);
        distance[at] = d;
    }
    size_t used = 0;
    if (size > 0) {
        text[0] = '\0';
    }
    for (size_t i = 0; i < count; i++) {
        const int n = snprintf(text + used, size - used, "%s%.60s", i > 0 ? ", " : "", best[i]);
        if (n < 0 || (size_t)n >= size - used) {
            break;
        }
        used += (size_t)n;
    }
}
