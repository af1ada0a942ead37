/* notices.c: what a loaded model says that is likely a mistake. >>notices
 *
 * Called by: import. Calls: the context's logger.
 * Nothing here refuses a model: other tools accept these, and disagree about what they mean. Nodes
 * with the same mistake are one warning.
 */
#include "graph_private.h"

#include <stdio.h> /* snprintf */

enum {
    SBIT__NOTICE_OPSET = 28, /* the newest that this library knows */
    SBIT__NOTICE_IR = 14
};

/* Writes what is wrong with the node to `text`; false: nothing. `text` may hold the node's own
 * numbers: then it is not the same mistake as another's. */
typedef bool (*sbit__notice_fn)(const sbit_graph *graph, const sbit_node *node, int64_t opset,
                                char *text, size_t size);

static const sbit_tensor *sbit__notice_constant(const sbit_graph *graph, const sbit_node *node,
                                                size_t input)
{
    return input < node->input_count && node->inputs[input].idx != 0
               ? sbit__graph_constant(graph, node->inputs[input])
               : NULL;
}

static bool sbit__notice_all_zero(const sbit_tensor *tensor)
{
    const size_t bytes = sbit_tensor_bytes(tensor);
    for (size_t i = 0; i < bytes; i++) {
        if (((const unsigned char *)tensor->data)[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool sbit__notice_dequantize(const sbit_graph *graph, const sbit_node *node, int64_t opset,
                                    char *text, size_t size)
{
    const sbit_tensor *zero_point = sbit__notice_constant(graph, node, 2);
    (void)opset;
    if (zero_point == NULL || zero_point->dtype != SBIT_I32 || sbit__notice_all_zero(zero_point)) {
        return false;
    }
    snprintf(text, size,
             "a zero point for int32 data, which the standard has none for; it is used");
    return true;
}

static bool sbit__notice_axis(const sbit_graph *graph, const sbit_node *node, int64_t opset,
                              char *text, size_t size)
{
    (void)graph;
    if (opset >= 13 || sbit_node_attr(node, "axis") == NULL) {
        return false;
    }
    snprintf(text, size, "an attribute axis, which exists from opset 13 on (the model has %lld)",
             (long long)opset);
    return true;
}

static bool sbit__notice_there(const sbit_graph *graph, const sbit_node *node, size_t input)
{
    const sbit_tensor *tensor = sbit__notice_constant(graph, node, input);
    return input < node->input_count && node->inputs[input].idx != 0 &&
           (tensor == NULL || sbit_tensor_count(tensor) > 0);
}

static bool sbit__notice_resize(const sbit_graph *graph, const sbit_node *node, int64_t opset,
                                char *text, size_t size)
{
    if (opset < 11 || !sbit__notice_there(graph, node, 2) || !sbit__notice_there(graph, node, 3)) {
        return false;
    }
    snprintf(text, size, "both scales and sizes, of which only one may be there; scales are used");
    return true;
}

static bool sbit__notice_slice(const sbit_graph *graph, const sbit_node *node, int64_t opset,
                               char *text, size_t size)
{
    const sbit_tensor *given = opset >= 10 ? sbit__notice_constant(graph, node, 3) : NULL;
    const sbit_attr *attr = opset < 10 ? sbit_node_attr(node, "axes") : NULL;
    const int32_t rank =
        node->input_count > 0 ? sbit_graph_value(graph, node->inputs[0])->type.rank : -1;
    const int64_t count = given != NULL  ? sbit_tensor_count(given)
                          : attr != NULL ? (int64_t)attr->count
                                         : 0;
    int64_t axes[SBIT_MAX_RANK];
    for (int64_t i = 0; i < count && i < SBIT_MAX_RANK; i++) {
        axes[i] = attr != NULL               ? attr->ints[i]
                  : given->dtype == SBIT_I64 ? ((const int64_t *)given->data)[i]
                                             : ((const int32_t *)given->data)[i];
        axes[i] += axes[i] < 0 && rank >= 0 ? rank : 0;
        for (int64_t k = 0; k < i; k++) {
            if (axes[k] == axes[i]) {
                snprintf(text, size,
                         "axis %lld twice, of which the standard does not say what it "
                         "means",
                         (long long)axes[i]);
                return true;
            }
        }
    }
    return false;
}

static const struct {
    const char *op_type;
    sbit__notice_fn find;
} sbit__notice_rows[] = {
    {"DequantizeLinear", sbit__notice_dequantize},
    {"DequantizeLinear", sbit__notice_axis},
    {"QuantizeLinear", sbit__notice_axis},
    {"Resize", sbit__notice_resize},
    {"Slice", sbit__notice_slice},
};

/* The first node of a mistake, and how many more there are. */
typedef struct sbit__notice {
    char node[128], text[160];
    size_t count;
} sbit__notice;

static void sbit__notice_look(const sbit_graph *graph, const sbit_node *node, size_t row,
                              sbit__notice *first)
{
    char text[160];
    if (!sbit__streq(node->op_type, sbit__notice_rows[row].op_type) || node->domain[0] != '\0' ||
        !sbit__notice_rows[row].find(graph, node, sbit_graph_opset(graph, ""), text, sizeof text)) {
        return;
    }
    if (first->count++ == 0) {
        snprintf(first->text, sizeof first->text, "%s", text);
        sbit_graph_describe(graph, node->id, first->node, sizeof first->node);
    }
}

static void sbit__notice_versions(const sbit_graph *graph)
{
    const sbit__graph_family *family = graph->family;
    const int64_t opset = sbit_graph_opset(graph, "");
    if (family->ir_version > SBIT__NOTICE_IR) {
        sbit__log(
            family->ctx, SBIT_LOG_WARNING,
            "the model has IR version %lld, newer than %d, the newest known here: what is new "
            "in it is kept, and not understood",
            (long long)family->ir_version, SBIT__NOTICE_IR);
    }
    if (opset > SBIT__NOTICE_OPSET) {
        sbit__log(family->ctx, SBIT_LOG_WARNING,
                  "the model has opset %lld, newer than %d, the newest known here: operators are "
                  "taken for what they were then",
                  (long long)opset, SBIT__NOTICE_OPSET);
    }
}

SBIT__FN void sbit__graph_notices(const sbit_graph *root)
{
    sbit__notice_versions(root);
    if (root->family->ctx->logger.log_fn == NULL) {
        return;
    }
    for (size_t row = 0; row < SBIT__COUNT_OF(sbit__notice_rows); row++) {
        sbit__notice first;
        first.count = 0;
        for (const sbit_graph *graph = root->family->graphs; graph != NULL;
             graph = graph->next_graph) {
            for (sbit_node_id id = sbit_graph_first(graph); graph->alive && id.idx != 0;
                 id = sbit_graph_next(graph, id)) {
                sbit__notice_look(graph, sbit_graph_node(graph, id), row, &first);
            }
        }
        if (first.count > 0) {
            char more[40] = "";
            if (first.count > 1) {
                snprintf(more, sizeof more, " (and %lu more)", (unsigned long)(first.count - 1));
            }
            sbit__log(root->family->ctx, SBIT_LOG_WARNING, "%s%s has %s", first.node, more,
                      first.text);
        }
    }
}
