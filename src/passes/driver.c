/* driver.c: runs the passes over a graph and its bodies until nothing changes. >>simplify
 *
 * Called by: users, quant. Calls: the passes, infer.
 */
#include "passes_private.h"

#define SBIT__SIMPLIFY_ROUNDS 50
#define SBIT__SIMPLIFY_FOLD_BYTES ((size_t)1 << 20)

/* Row `index` of all: the built-in ones, then the user's. NULL past the end. */
static const sbit_pass_row *sbit__simplify_row(const sbit_ctx *ctx, size_t index)
{
    return (const sbit_pass_row *)(const void *)sbit__row_at(ctx, sbit__kind_pass(), index);
}

static sbit_status sbit__simplify_unknown(const sbit_ctx *ctx, const char *name, sbit_error *error)
{
    sbit_status status = SBIT_ERR_NOT_FOUND;
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(ctx));
    sbit__row_names(ctx, sbit__kind_pass(), 0, ", ", &text);
    status = text.failed ? sbit__fail_oom(error, text.size)
                         : sbit__fail(error, SBIT_ERR_NOT_FOUND, name,
                                      "there is no pass '%s'; known are: %s",
                                      name != NULL ? name : "", text.data);
    sbit__text_deinit(&text);
    return status;
}

static sbit_status sbit__simplify_check_names(const sbit_ctx *ctx, const char *const *names,
                                              size_t count, sbit_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i] == NULL || sbit_pass_find(ctx, names[i]) == NULL) {
            return sbit__simplify_unknown(ctx, names[i], error);
        }
    }
    return SBIT_OK;
}

static bool sbit__simplify_named(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (sbit__same_word(names[i], name)) {
            return true;
        }
    }
    return false;
}

static bool sbit__simplify_enabled(const sbit_simplify_desc *desc, const sbit_pass_row *row)
{
    if (sbit__simplify_named(desc->skip, desc->skip_count, row->head.name)) {
        return false;
    }
    return desc->only != NULL ? sbit__simplify_named(desc->only, desc->only_count, row->head.name)
                              : !row->opt_in;
}

/* >>levels: a graph, then the bodies of its nodes. */

static sbit_status sbit__simplify_count_one(const sbit_graph *graph, void *user)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        ++*(int64_t *)user;
    }
    return SBIT_OK;
}

static int64_t sbit__simplify_count(const sbit_graph *graph)
{
    int64_t count = 0;
    sbit_graph_each(graph, sbit__simplify_count_one, &count);
    return count;
}

static sbit_status sbit__simplify_levels(sbit_graph *graph, const sbit_pass_row *row,
                                         const sbit_simplify_desc *desc, int64_t *changes,
                                         sbit_error *error)
{
    const sbit_status status = row->run(graph, desc, changes, error);
    if (status == SBIT_ERR_SHAPE && sbit_graph_parent(graph) != NULL) {
        return SBIT_OK; /* as inference sees it: a body that is never run, and stays as it is */
    }
    SBIT__TRY(status);
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        sbit_graph *body = NULL;
        for (size_t b = 0; (body = sbit_node_body(sbit_graph_node(graph, id), b)) != NULL; b++) {
            SBIT__TRY(sbit__simplify_levels(body, row, desc, changes, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__simplify_round(sbit_graph *graph, const sbit_simplify_desc *desc,
                                        int64_t round, int64_t *changes, sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    const sbit_pass_row *row = NULL;
    for (size_t i = 0; (row = sbit__simplify_row(ctx, i)) != NULL; i++) {
        int64_t changed = 0;
        if (!sbit__simplify_enabled(desc, row)) {
            continue;
        }
        SBIT__TRY(sbit__progress(ctx, "simplify", round, SBIT__SIMPLIFY_ROUNDS, error));
        SBIT__TRY(sbit__simplify_levels(graph, row, desc, &changed, error));
        if (changed != 0) {
            SBIT__TRY(sbit_graph_sort(graph, error));
            SBIT__TRY(sbit_infer(graph, error));
        }
        *changes += changed;
    }
    return SBIT_OK;
}

/* Weights that are inputs with a default stay what they are, and unfused. */
static void sbit__simplify_tell_defaults(const sbit_graph *graph)
{
    int64_t count = 0;
    for (size_t i = 0; i < sbit_graph_input_count(graph); i++) {
        count += sbit_graph_value(graph, sbit_graph_input(graph, i))->has_default ? 1 : 0;
    }
    if (count > 0) {
        sbit__log(sbit_graph_ctx(graph), SBIT_LOG_INFO,
                  "%lld inputs have default values: they stay inputs, and nothing is computed from "
                  "them ahead of time (fix_defaults makes constants of those that are weights)",
                  (long long)count);
    }
}

SPARSEBIT_API sbit_status sbit_simplify(sbit_graph *graph, const sbit_simplify_desc *desc,
                                        sbit_simplify_stats *stats, sbit_error *error)
{
    sbit_simplify_desc full;
    sbit_simplify_stats done;
    int64_t changed = 1;
    const sbit_ctx *ctx = sbit_graph_ctx(graph);
    memset(&full, 0, sizeof full);
    memset(&done, 0, sizeof done);
    if (desc != NULL) {
        full = *desc;
    }
    if (full.max_fold_bytes == 0) {
        full.max_fold_bytes = SBIT__SIMPLIFY_FOLD_BYTES;
    }
    if (sbit_graph_parent(graph) != NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "only a whole model can be simplified, not the body of a node");
    }
    SBIT__TRY(sbit__simplify_check_names(ctx, full.skip, full.skip_count, error));
    SBIT__TRY(sbit__simplify_check_names(ctx, full.only, full.only_count, error));
    done.nodes_before = sbit__simplify_count(graph);
    SBIT__TRY(sbit_infer(graph, error));
    while (changed != 0 && done.rounds < SBIT__SIMPLIFY_ROUNDS) {
        changed = 0;
        SBIT__TRY(sbit__simplify_round(graph, &full, done.rounds, &changed, error));
        done.rounds++;
        done.changes += changed;
    }
    sbit__simplify_tell_defaults(graph);
    done.nodes_after = sbit__simplify_count(graph);
    if (stats != NULL) {
        *stats = done;
    }
    return SBIT_OK;
}

#undef SBIT__SIMPLIFY_ROUNDS
#undef SBIT__SIMPLIFY_FOLD_BYTES
