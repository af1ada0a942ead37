/* sort.c: topological order. >>sort
 *
 * Called by: import, passes, users. Calls: ir.
 * Depth first along the list: a node is placed right after the last of what it needs and was not
 * placed yet, so a list that is in order stays as it is. What a body captures is needed by the
 * node that holds the body. The stack is memory, not recursion: graphs are deep.
 */
#include "graph_private.h"

typedef struct sbit__sort_frame {
    uint32_t node;
    size_t begin, next; /* its part of `needs` */
} sbit__sort_frame;

typedef struct sbit__sort {
    const sbit_graph *graph;
    const sbit_allocator *allocator;
    unsigned char *state; /* of each node: 0 new, 1 on the stack, 2 placed */
    uint32_t *order;
    size_t order_count;
    sbit__sort_frame *frames;
    size_t frame_count, frame_capacity;
    sbit_value_id *needs; /* of all frames, the newest last */
    size_t need_count, need_capacity;
} sbit__sort;

static sbit_status sbit__sort_push(sbit__sort *sort, uint32_t idx, sbit_error *error)
{
    const sbit__graph_node *node = sort->graph->nodes[idx];
    const size_t captures = sbit_graph_captures(sort->graph, node->info.id, NULL, 0);
    const size_t total = sort->need_count + node->info.input_count + captures;
    void *frames = sort->frames, *needs = sort->needs;
    const sbit_status status = sbit__grow(sort->allocator, &frames, &sort->frame_capacity,
                                          sort->frame_count + 1, sizeof(*sort->frames), error);
    sort->frames = (sbit__sort_frame *)frames;
    SBIT__TRY(status);
    const sbit_status needs_status = sbit__grow(sort->allocator, &needs, &sort->need_capacity,
                                                total + 1, sizeof(*sort->needs), error);
    sort->needs = (sbit_value_id *)needs;
    SBIT__TRY(needs_status);
    sbit__sort_frame *frame = &sort->frames[sort->frame_count++];
    frame->node = idx;
    frame->begin = frame->next = sort->need_count;
    for (size_t i = 0; i < node->info.input_count; i++) {
        sort->needs[sort->need_count++] = node->inputs[i];
    }
    sbit_graph_captures(sort->graph, node->info.id, sort->needs + sort->need_count, captures);
    sort->need_count = total;
    sort->state[idx] = 1;
    return SBIT_OK;
}

static sbit_status sbit__sort_visit(sbit__sort *sort, uint32_t start, sbit_error *error)
{
    SBIT__TRY(sbit__sort_push(sort, start, error));
    while (sort->frame_count != 0) {
        sbit__sort_frame *frame = &sort->frames[sort->frame_count - 1];
        if (frame->next == sort->need_count) {
            sort->state[frame->node] = 2;
            sort->order[sort->order_count++] = frame->node;
            sort->need_count = frame->begin;
            sort->frame_count--;
            continue;
        }
        const sbit_value_id need = sort->needs[frame->next++];
        const uint32_t producer =
            need.idx != 0 ? sort->graph->values[need.idx]->info.producer.idx : 0;
        if (producer == 0 || sort->state[producer] == 2) {
            continue;
        }
        if (sort->state[producer] == 1) {
            char text[160];
            sbit_graph_describe(sort->graph, sort->graph->nodes[producer]->info.id, text,
                                sizeof(text));
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, text,
                              "the graph has a cycle: %s needs its own output", text);
        }
        SBIT__TRY(sbit__sort_push(sort, producer, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__sort_all(sbit__sort *sort, sbit_error *error)
{
    const sbit_graph *graph = sort->graph;
    sort->state = (unsigned char *)sbit__calloc(sort->allocator, graph->node_count, 1);
    sort->order =
        (uint32_t *)sbit__calloc(sort->allocator, graph->node_count, sizeof(*sort->order));
    if (sort->state == NULL || sort->order == NULL) {
        return sbit__fail_oom(error, graph->node_count);
    }
    for (uint32_t i = graph->first; i != 0; i = graph->nodes[i]->next) {
        if (sort->state[i] == 0) {
            SBIT__TRY(sbit__sort_visit(sort, i, error));
        }
    }
    return SBIT_OK;
}

static void sbit__sort_apply(sbit_graph *graph, const sbit__sort *sort)
{
    size_t place = 0;
    for (uint32_t i = graph->first; i != 0; i = graph->nodes[i]->next) {
        if (sort->order[place++] != i) {
            graph->first = graph->last = 0;
            break;
        }
    }
    for (size_t i = 0; graph->first == 0 && i < sort->order_count; i++) {
        graph->nodes[sort->order[i]]->prev = graph->nodes[sort->order[i]]->next = 0;
    }
    if (graph->first == 0) {
        for (size_t i = 0; i < sort->order_count; i++) {
            sbit__graph_link_node(graph, sort->order[i], 0);
        }
    }
}

SPARSEBIT_API sbit_status sbit_graph_sort(sbit_graph *graph, sbit_error *error)
{
    for (uint32_t i = graph->first; i != 0; i = graph->nodes[i]->next) {
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(&graph->nodes[i]->info, b)) != NULL; b++) {
            SBIT__TRY(sbit_graph_sort(body, error));
        }
    }
    sbit__sort sort;
    memset(&sort, 0, sizeof(sort));
    sort.graph = graph;
    sort.allocator = &graph->family->ctx->allocator;
    const sbit_status status = sbit__sort_all(&sort, error);
    if (status == SBIT_OK) {
        sbit__sort_apply(graph, &sort);
    }
    sbit__free(sort.allocator, sort.state, graph->node_count);
    sbit__free(sort.allocator, sort.order, graph->node_count * sizeof(*sort.order));
    sbit__free(sort.allocator, sort.frames, sort.frame_capacity * sizeof(*sort.frames));
    sbit__free(sort.allocator, sort.needs, sort.need_capacity * sizeof(*sort.needs));
    return status;
}
