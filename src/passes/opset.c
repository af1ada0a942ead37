/* opset.c: what raising and lowering an opset share. >>opset
 *
 * Called by: lift_opset.c, lower_opset.c. Calls: graph, infer.
 */
#include "passes_private.h"

enum {
    SBIT__OPSET_NO_CAST_LIKE = 14
};

SBIT__FN sbit_status sbit__opset_problem(sbit__opset *opset, const sbit_node *node, const char *why)
{
    char text[256];
    if (!opset->change) {
        sbit_graph_describe(opset->graph, node->id, text, sizeof text);
        sbit__text_printf(opset->problems, "%s%s: %s", opset->problem_count > 0 ? "; " : "", text,
                          why);
        opset->problem_count++;
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__opset_from(const sbit_graph *graph, int64_t *from, sbit_error *error)
{
    *from = sbit_graph_opset(graph, "");
    return sbit_graph_parent(graph) == NULL
               ? SBIT_OK
               : sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                            "only a whole model has an opset, not the body of a node");
}

static sbit_status sbit__opset_level(sbit__opset *opset, sbit_graph *graph, sbit_error *error)
{
    sbit_node_id *ids = NULL;
    size_t count = 0;
    SBIT__TRY(sbit__node_list(graph, opset->arena, &ids, &count, error));
    for (size_t i = 0; i < count; i++) {
        const sbit_node *node = sbit_graph_node(graph, ids[i]);
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(node, b)) != NULL; b++) {
            SBIT__TRY(sbit__opset_level(opset, body, error));
        }
        opset->graph = graph;
        SBIT__TRY(opset->convert(opset, ids[i], error));
    }
    return SBIT_OK;
}

/* Looks at all nodes, then changes them. */
static sbit_status sbit__opset_twice(sbit__opset *opset, sbit_graph *graph, const char *how,
                                     sbit_error *error)
{
    SBIT__TRY(sbit__opset_level(opset, graph, error));
    if (opset->problems->failed) {
        return sbit__fail_oom(error, opset->problems->size);
    }
    if (opset->problem_count > 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "the opset cannot be %s from %d to %d: %s", how, (int)opset->from,
                          (int)opset->to, opset->problems->data);
    }
    opset->change = true;
    SBIT__TRY(sbit__opset_level(opset, graph, error));
    if (opset->to < opset->from) {
        sbit__graph_lower_opset(graph, opset->to);
    } else {
        SBIT__TRY(sbit_graph_set_opset(graph, "", opset->to, error));
    }
    return sbit_infer(graph, error);
}

/* With `fold`, what nodes compute from constants and from shapes is stored first; on the way down
 * once more in opset 14, where CastLike has become Cast. */
static sbit_status sbit__opset_run(const sbit__opset *form, sbit_graph *graph, bool fold,
                                   const char *how, sbit_error *error)
{
    static const char *const passes[] = {"sequence_to_split", "fold_constants", "shape_folding",
                                         "dead_code"};
    const sbit_allocator *a = sbit_ctx_allocator(sbit_graph_ctx(graph));
    sbit__opset copy = *form, *opset = &copy;
    sbit_simplify_desc desc;
    sbit__arena arena;
    sbit__text problems;
    if (fold && form->from > SBIT__OPSET_NO_CAST_LIKE && form->to < SBIT__OPSET_NO_CAST_LIKE) {
        copy.to = SBIT__OPSET_NO_CAST_LIKE;
        SBIT__TRY(sbit__opset_run(&copy, graph, fold, how, error));
        copy.from = copy.to;
        copy.to = form->to;
    }
    memset(&desc, 0, sizeof desc);
    desc.only = passes;
    desc.only_count = SBIT__COUNT_OF(passes);
    SBIT__TRY(fold ? sbit_simplify(graph, &desc, NULL, error) : sbit_infer(graph, error));
    sbit__arena_init(&arena, a);
    sbit__text_init(&problems, a);
    opset->arena = &arena;
    opset->problems = &problems;
    const sbit_status status = sbit__opset_twice(opset, graph, how, error);
    sbit__text_deinit(&problems);
    sbit__arena_deinit(&arena);
    return status;
}

/* A copy is converted first, so that a conversion that fails leaves the graph as it is. */
static sbit_status sbit__opset_try(const sbit__opset *form, const sbit_graph *graph, bool fold,
                                   const char *how, sbit_error *error)
{
    sbit_graph *copy = NULL;
    SBIT__TRY(sbit__graph_clone_borrowing(graph, &copy, error));
    const sbit_status status = sbit__opset_run(form, copy, fold, how, error);
    sbit_graph_destroy(copy);
    return status;
}

SBIT__FN sbit_status sbit__opset_convert(const sbit__opset *form, sbit_graph *graph,
                                         const char *how, sbit_error *error)
{
    bool fold = false;
    sbit_status status = sbit__opset_try(form, graph, fold, how, error);
    if (status == SBIT_ERR_UNSUPPORTED) {
        fold = true;
        status = sbit__opset_try(form, graph, fold, how, error);
    }
    return status == SBIT_OK ? sbit__opset_run(form, graph, fold, how, error) : status;
}
