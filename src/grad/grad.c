/* grad.c: the driver of differentiation: which nodes matter, in which order, and sums. >>grad
 *
 * Called by: train and all that learns. Calls: graph, infer, ops (row->gradient).
 * A value matters if it is a float, depends on a wanted value, and the loss depends on it. Nodes
 * with an output that matters are visited from the last to the first; by then all that read their
 * outputs have given their part, and parts are added as they come.
 */
#include "../ops/expand_private.h"
#include "grad_private.h"

#include <stdio.h> /* snprintf */

typedef struct sbit__gradients {
    sbit_graph *graph;
    sbit__arena arena;
    uint32_t value_limit, node_limit; /* of the graph as it came */
    bool *depends;                    /* by value: on a wanted one */
    bool *matters;                    /* by value: the loss depends on it too */
    sbit_value_id *sums;              /* by value: its gradient so far */
} sbit__gradients;

static bool sbit__grad_is_float(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_type *type = &sbit_graph_value(graph, id)->type;
    return type->kind == SBIT_KIND_TENSOR && (SBIT_T(type->dtype) & SBIT_T_FLOATS) != 0;
}

static sbit_status sbit__gradients_init(sbit__gradients *d, sbit_value_id loss,
                                        const sbit_value_id *wanted, size_t count,
                                        sbit_error *error)
{
    sbit_graph *graph = d->graph;
    d->value_limit = sbit_graph_value_limit(graph);
    d->node_limit = sbit_graph_node_limit(graph);
    d->depends = (bool *)sbit__arena_array(&d->arena, d->value_limit, sizeof(bool));
    d->matters = (bool *)sbit__arena_array(&d->arena, d->value_limit, sizeof(bool));
    d->sums = (sbit_value_id *)sbit__arena_array(&d->arena, d->value_limit, sizeof(sbit_value_id));
    if (d->depends == NULL || d->matters == NULL || d->sums == NULL) {
        return sbit__fail_oom(error, d->value_limit * sizeof(sbit_value_id));
    }
    if (!sbit_graph_value_alive(graph, loss) || !sbit__grad_is_float(graph, loss)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the loss must be a float value of the graph");
    }
    for (size_t i = 0; i < count; i++) {
        if (!sbit_graph_value_alive(graph, wanted[i]) || !sbit__grad_is_float(graph, wanted[i])) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                              "wanted value %lu is no float value of the graph",
                              (unsigned long)wanted[i].idx);
        }
        d->depends[wanted[i].idx] = true;
    }
    return SBIT_OK;
}

/* CastLike looks at the type of its second input, not at its elements. */
static size_t sbit__gradients_reads(const sbit_node *node)
{
    return sbit__is_op(node, "CastLike") ? 1 : node->input_count;
}

/* Marks what depends on wanted values (forward), then what the loss depends on (backward). */
static sbit_status sbit__gradients_mark(sbit__gradients *d, sbit_value_id loss, sbit_node_id *order,
                                        size_t *count, sbit_error *error)
{
    const sbit_graph *graph = d->graph;
    *count = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        bool depends = false;
        for (size_t i = 0; i < sbit__gradients_reads(node); i++) {
            depends = depends || d->depends[node->inputs[i].idx];
        }
        const size_t captures = sbit_graph_captures(graph, id, NULL, 0);
        if (captures > 0) {
            sbit_value_id *captured =
                (sbit_value_id *)sbit__arena_array(&d->arena, captures, sizeof *captured);
            if (captured == NULL) {
                return sbit__fail_oom(error, captures * sizeof *captured);
            }
            sbit_graph_captures(graph, id, captured, captures);
            for (size_t i = 0; i < captures; i++) {
                depends = depends || d->depends[captured[i].idx];
            }
        }
        for (size_t i = 0; depends && i < node->output_count; i++) {
            const sbit_value_id out = node->outputs[i];
            d->depends[out.idx] =
                out.idx != 0 && (d->depends[out.idx] ||
                                 sbit_graph_value(graph, out)->type.kind != SBIT_KIND_TENSOR ||
                                 sbit__grad_is_float(graph, out));
        }
        order[(*count)++] = id;
    }
    d->matters[loss.idx] = d->depends[loss.idx];
    for (size_t n = *count; n-- > 0;) {
        const sbit_node *node = sbit_graph_node(graph, order[n]);
        bool matters = false;
        for (size_t i = 0; i < node->output_count; i++) {
            matters = matters || d->matters[node->outputs[i].idx];
        }
        for (size_t i = 0; matters && i < sbit__gradients_reads(node); i++) {
            d->matters[node->inputs[i].idx] |= d->depends[node->inputs[i].idx];
        }
    }
    d->matters[0] = false;
    return SBIT_OK;
}

static bool sbit__gradients_visits(const sbit__gradients *d, const sbit_node *node)
{
    bool out = false, in = false;
    for (size_t i = 0; i < node->output_count; i++) {
        out = out || d->matters[node->outputs[i].idx];
    }
    for (size_t i = 0; i < node->input_count; i++) {
        in = in || d->matters[node->inputs[i].idx];
    }
    return out && (in || sbit_graph_captures(d->graph, node->id, NULL, 0) > 0);
}

/* Whether `word` is one of the words of a list "a, b, c". */
static bool sbit__gradients_listed(const char *list, const char *word)
{
    const size_t size = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += size) {
        if ((at == list || at[-1] == ' ') && (at[size] == ',' || at[size] == '\0')) {
            return true;
        }
    }
    return false;
}

/* All operators without a gradient, by name, once each. */
static sbit_status sbit__gradients_check(const sbit__gradients *d, const sbit_node_id *order,
                                         size_t count, sbit_error *error)
{
    char text[sizeof(((sbit_error *)0)->message)] = "";
    char first[160] = "";
    size_t used = 0;
    for (size_t n = 0; n < count; n++) {
        const sbit_node *node = sbit_graph_node(d->graph, order[n]);
        int32_t opset = 0;
        const sbit_op_row *row = sbit__op_row(d->graph, node, &opset);
        char word[96];
        if (!sbit__gradients_visits(d, node) || (row != NULL && row->gradient != NULL)) {
            continue;
        }
        snprintf(word, sizeof word, "%s%.80s", used > 0 ? ", " : "", node->op_type);
        if (first[0] == '\0') {
            sbit_graph_describe(d->graph, node->id, first, sizeof first);
        }
        if (!sbit__gradients_listed(text, node->op_type) && used + strlen(word) < sizeof text / 2) {
            memcpy(text + used, word, strlen(word) + 1);
            used += strlen(word);
        }
    }
    return used == 0
               ? SBIT_OK
               : sbit__fail(error, SBIT_ERR_UNSUPPORTED, first,
                            "no gradient of %s (the first: %s); freeze the layers in front of it, "
                            "or simplify the model first",
                            text, first);
}

static sbit_status sbit__gradients_seed(sbit__gradients *d, sbit_value_id loss, sbit_error *error)
{
    const sbit_type *type = &sbit_graph_value(d->graph, loss)->type;
    sbit_tensor one;
    double data = 0.0;
    memset(&one, 0, sizeof one);
    one.dtype = type->dtype;
    one.rank = type->rank > 0 ? type->rank : 0;
    for (int32_t i = 0; i < one.rank; i++) {
        one.dims[i] = 1;
        if (!sbit__dim_known(type->dims[i]) || type->dims[i].value != 1) {
            return sbit__fail(error, SBIT_ERR_SHAPE, sbit_graph_value(d->graph, loss)->name,
                              "the loss '%s' must be one element",
                              sbit_graph_value(d->graph, loss)->name);
        }
    }
    one.data = &data;
    sbit__tensor_set_f64(&one, 0, 1.0);
    return sbit_graph_add_constant(d->graph, "loss_grad", &one, &d->sums[loss.idx], error);
}

static sbit_status sbit__gradients_add(sbit__gradients *d, sbit_gradient *g, sbit_value_id value,
                                       sbit_value_id part)
{
    sbit_value_id *sum = &d->sums[value.idx];
    if (sum->idx != 0) {
        const sbit_value_id both[2] = {*sum, part};
        part = sbit_gradient_add(g, "", "Add", both, 2, NULL, 0);
    }
    *sum = part;
    return g->status;
}

static sbit_status sbit__gradients_visit(sbit__gradients *d, sbit_node_id id, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(d->graph, id);
    const size_t ins = node->input_count, outs = node->output_count;
    sbit_gradient g;
    bool any = false;
    memset(&g, 0, sizeof g);
    sbit_value_id *ids =
        (sbit_value_id *)sbit__arena_array(&d->arena, 2 * ins + 2 * outs + 1, sizeof *ids);
    bool *wanted = (bool *)sbit__arena_array(&d->arena, ins + 1, sizeof *wanted);
    if (ids == NULL || wanted == NULL) {
        return sbit__fail_oom(error, (ins + outs) * sizeof *ids);
    }
    memcpy(ids, node->inputs, ins * sizeof *ids);
    memcpy(ids + ins, node->outputs, outs * sizeof *ids);
    for (size_t i = 0; i < sbit__gradients_reads(node); i++) {
        wanted[i] = d->matters[node->inputs[i].idx];
    }
    for (size_t i = 0; i < outs; i++) {
        ids[ins + outs + i] = d->sums[node->outputs[i].idx];
        any = any || ids[ins + outs + i].idx != 0;
    }
    if (!any) {
        return SBIT_OK;
    }
    g.graph = d->graph;
    g.node = node;
    g.input_count = (int32_t)ins;
    g.output_count = (int32_t)outs;
    g.inputs = ids;
    g.outputs = ids + ins;
    g.output_grads = ids + ins + outs;
    g.input_grads = ids + ins + 2 * outs;
    g.wanted = wanted;
    g.error = error;
    const sbit_op_row *row = sbit__op_row(d->graph, node, &g.opset);
    row->gradient(&g);
    for (size_t i = 0; i < ins && g.status == SBIT_OK; i++) {
        if (wanted[i] && g.input_grads[i].idx != 0) {
            SBIT__TRY(sbit__gradients_add(d, &g, g.inputs[i], g.input_grads[i]));
        }
    }
    return g.status;
}

/* Both outputs have the same known rank and dims that are surely equal. */
static bool sbit__gradients_alike(const sbit_type *a, const sbit_type *b)
{
    return a->kind == SBIT_KIND_TENSOR && a->rank >= 0 && sbit__graph_type_equal(a, b);
}

/* The body of a branch of an If whose results can be chosen from with Where; NULL: none. */
static sbit_graph *sbit__gradients_branch(const sbit_node *node, const char *name,
                                          const sbit_graph *like)
{
    const sbit_attr *attr = sbit_node_attr(node, name);
    bool ok = attr != NULL && attr->type == SBIT_ONNX_ATTR_GRAPH && attr->g != NULL &&
              sbit_graph_output_count(attr->g) == node->output_count &&
              sbit_graph_input_count(attr->g) == 0;
    for (size_t i = 0; ok && like != NULL && i < node->output_count; i++) {
        ok = sbit__gradients_alike(&sbit_graph_value(like, sbit_graph_output(like, i))->type,
                                   &sbit_graph_value(attr->g, sbit_graph_output(attr->g, i))->type);
    }
    return ok ? attr->g : NULL;
}

/* y = Where(condition, a, b), placed before a node; y may be there already. */
static sbit_status sbit__gradients_where(sbit_graph *graph, sbit_value_id condition,
                                         sbit_value_id a, sbit_value_id b, sbit_value_id *y,
                                         sbit_node_id before, sbit_error *error)
{
    const sbit_value_id inputs[3] = {condition, a, b};
    sbit_node_desc desc;
    sbit_node_id added;
    if (y->idx == 0) {
        const sbit_type type = sbit__type_unknown();
        SBIT__TRY(sbit_graph_add_value(graph, "if", &type, y, error));
    }
    memset(&desc, 0, sizeof desc);
    desc.op_type = "Where";
    desc.name = "if";
    desc.inputs = inputs;
    desc.input_count = 3;
    desc.outputs = y;
    desc.output_count = 1;
    desc.before = before;
    return sbit_graph_add_node(graph, &desc, &added, error);
}

/* The nodes of a branch (`first` and later ones) read 0 in place of what is differentiated, unless
 * the branch is taken: what they make of it then is finite more often, and its gradient is 0 in any
 * case. */
static sbit_status sbit__gradients_gate(sbit__gradients *d, uint32_t first, sbit_value_id condition,
                                        bool yes, sbit_error *error)
{
    sbit_value_id *gates =
        (sbit_value_id *)sbit__arena_array(&d->arena, d->value_limit, sizeof *gates);
    sbit_node_id begin = sbit_graph_first(d->graph);
    if (gates == NULL) {
        return sbit__fail_oom(error, d->value_limit * sizeof *gates);
    }
    while (begin.idx != 0 && begin.idx < first) {
        begin = sbit_graph_next(d->graph, begin);
    }
    for (sbit_node_id id = begin; id.idx >= first; id = sbit_graph_next(d->graph, id)) {
        for (size_t i = 0; i < sbit_graph_node(d->graph, id)->input_count; i++) {
            const sbit_value_id in = sbit_graph_node(d->graph, id)->inputs[i];
            if (in.idx == 0 || in.idx >= d->value_limit || !d->depends[in.idx]) {
                continue;
            }
            if (gates[in.idx].idx == 0) {
                const sbit_dtype dtype = sbit_graph_value(d->graph, in)->type.dtype;
                sbit_value_id zero = {0};
                SBIT__TRY(sbit__add_scalar(d->graph, "zero", dtype, 0, 0.0, &zero, error));
                SBIT__TRY(sbit__gradients_where(d->graph, condition, yes ? in : zero,
                                                yes ? zero : in, &gates[in.idx], begin, error));
            }
            SBIT__TRY(sbit_graph_set_node_input(d->graph, id, i, gates[in.idx], error));
        }
    }
    return SBIT_OK;
}

/* If becomes the nodes of both branches, whose results have the same shapes, and Where: the branch
 * that was not taken gets the gradient 0. */
static sbit_status sbit__gradients_branches(sbit__gradients *d, sbit_node_id id, bool *any,
                                            sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(d->graph, id);
    const size_t count = node->output_count;
    const sbit_value_id condition = node->inputs[0];
    sbit_graph *yes = sbit__gradients_branch(node, "then_branch", NULL);
    sbit_value_id *ids = (sbit_value_id *)sbit__arena_array(&d->arena, 3 * count + 1, sizeof *ids);
    sbit_graph *no = yes != NULL ? sbit__gradients_branch(node, "else_branch", yes) : NULL;
    if (ids == NULL) {
        return sbit__fail_oom(error, count * sizeof *ids);
    }
    if (no == NULL || sbit_graph_value(d->graph, condition)->type.rank != 0) {
        return SBIT_OK; /* it is named with the others that have no gradient */
    }
    memcpy(ids, node->outputs, count * sizeof *ids);
    for (size_t branch = 0; branch < 2; branch++) {
        const uint32_t first = sbit_graph_node_limit(d->graph);
        SBIT__TRY(sbit__graph_inline_body(branch == 0 ? yes : no, id, NULL,
                                          ids + (1 + branch) * count, error));
        SBIT__TRY(sbit__gradients_gate(d, first, condition, branch == 0, error));
    }
    const sbit_node_id next = sbit_graph_next(d->graph, id);
    sbit_graph_erase_node(d->graph, id);
    for (size_t i = 0; i < count; i++) {
        if (ids[i].idx != 0) {
            SBIT__TRY(sbit__gradients_where(d->graph, condition, ids[count + i],
                                            ids[2 * count + i], &ids[i], next, error));
        }
    }
    *any = true;
    return SBIT_OK;
}

static bool sbit__gradients_is_if(const sbit_op_row *row)
{
    return sbit__streq(row->op_type, "If") && (row->domain == NULL || row->domain[0] == '\0');
}

SPARSEBIT_API bool sbit_operator_has_gradient(const sbit_op_row *row)
{
    return row->gradient != NULL || sbit__gradients_is_if(row) ||
           (row->expand != NULL && (row->flags & SBIT_OP_INTEGERS) == 0);
}

/* Operators on the way that are written with others and have no gradient of their own become those.
 */
static sbit_status sbit__gradients_expand(sbit__gradients *d, const sbit_node_id *order,
                                          size_t count, bool *any, sbit_error *error)
{
    for (size_t n = 0; n < count; n++) {
        const sbit_node *node = sbit_graph_node(d->graph, order[n]);
        int32_t opset = 0;
        const sbit_op_row *row = sbit__op_row(d->graph, node, &opset);
        if (row == NULL || row->gradient != NULL || !sbit_operator_has_gradient(row) ||
            !sbit__gradients_visits(d, node)) {
            continue;
        }
        if (sbit__gradients_is_if(row)) {
            SBIT__TRY(sbit__gradients_branches(d, order[n], any, error));
        } else {
            SBIT__TRY(row->expand(d->graph, order[n], error));
            *any = true;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__gradients_run(sbit__gradients *d, sbit_value_id loss,
                                       const sbit_value_id *wanted, size_t count,
                                       sbit_value_id *gradients, sbit_error *error)
{
    size_t nodes = 0;
    sbit_node_id *order = NULL;
    for (bool again = true; again;) { /* what operators become may have to be expanded, too */
        SBIT__TRY(sbit_infer(d->graph, error));
        SBIT__TRY(sbit__gradients_init(d, loss, wanted, count, error));
        order = (sbit_node_id *)sbit__arena_array(&d->arena, d->node_limit + 1, sizeof *order);
        if (order == NULL) {
            return sbit__fail_oom(error, d->node_limit * sizeof *order);
        }
        SBIT__TRY(sbit__gradients_mark(d, loss, order, &nodes, error));
        again = false;
        SBIT__TRY(sbit__gradients_expand(d, order, nodes, &again, error));
    }
    SBIT__TRY(sbit__gradients_check(d, order, nodes, error));
    if (d->matters[loss.idx]) {
        SBIT__TRY(sbit__gradients_seed(d, loss, error));
    }
    for (size_t n = nodes; n-- > 0;) {
        if (sbit__gradients_visits(d, sbit_graph_node(d->graph, order[n]))) {
            SBIT__TRY(sbit__gradients_visit(d, order[n], error));
        }
    }
    for (size_t i = 0; i < count; i++) {
        gradients[i] = d->sums[wanted[i].idx];
    }
    return sbit_infer(d->graph, error);
}

SBIT__FN sbit_status sbit__gradients_build(sbit_graph *graph, sbit_value_id loss,
                                           const sbit_value_id *wanted, size_t count,
                                           sbit_value_id *gradients, uint32_t *forward,
                                           sbit_error *error)
{
    sbit__gradients d;
    memset(&d, 0, sizeof d);
    d.graph = graph;
    sbit__arena_init(&d.arena, sbit_ctx_allocator(sbit_graph_ctx(graph)));
    const sbit_status status = sbit__gradients_run(&d, loss, wanted, count, gradients, error);
    *forward = d.node_limit;
    sbit__arena_deinit(&d.arena);
    return status;
}

SPARSEBIT_API sbit_status sbit_graph_add_gradients(sbit_graph *graph, sbit_value_id loss,
                                                   const sbit_value_id *wanted, size_t count,
                                                   sbit_value_id *gradients, sbit_error *error)
{
    uint32_t forward = 0;
    return sbit__gradients_build(graph, loss, wanted, count, gradients, &forward, error);
}

/* >>training form */

static sbit_status sbit__grad_train_node(sbit_graph *graph, sbit_node_id id,
                                         sbit_statistic *statistics, size_t capacity, size_t *count,
                                         sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_value_id old[2] = {sbit__node_in(node, 3), sbit__node_in(node, 4)};
    for (size_t i = 1; i < node->output_count; i++) {
        if (node->outputs[i].idx != 0) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, node->name,
                              "BatchNormalization '%s' gives its statistics away: it is in "
                              "training mode already",
                              node->name);
        }
    }
    SBIT__TRY(sbit_graph_set_op(graph, id, "sbit", "BatchNormTrain", error));
    for (size_t i = 1; i < 5; i++) {
        sbit_value_id value = {0};
        const sbit_type *type = &sbit_graph_value(graph, old[i % 2 == 1 ? 0 : 1])->type;
        const sbit_type copy = *type;
        SBIT__TRY(sbit_graph_add_value(graph, i < 3 ? "statistic" : "batch_statistic", &copy,
                                       &value, error));
        SBIT__TRY(sbit_graph_set_node_output(graph, id, i, value, error));
        if (i < 3) {
            if (*count < capacity) {
                statistics[*count].value = old[i - 1];
                statistics[*count].updated = value;
            }
            (*count)++;
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_graph_to_training(sbit_graph *graph, sbit_statistic *statistics,
                                                 size_t capacity, size_t *count, sbit_error *error)
{
    *count = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (sbit__is_op(node, "BatchNormalization") && node->input_count == 5) {
            SBIT__TRY(sbit__grad_train_node(graph, id, statistics, capacity, count, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__grad_dropout_node(sbit_graph *graph, sbit_node_id id, int64_t seed,
                                           sbit_value_id draw, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_value_id given = sbit__node_in(node, 1);
    const sbit_value_info *ratio = given.idx != 0 ? sbit_graph_value(graph, given) : NULL;
    if ((ratio != NULL && (!ratio->is_constant || sbit_tensor_count(&ratio->constant) != 1)) ||
        (node->output_count > 1 && sbit_graph_uses(graph, node->outputs[1], NULL, 0) > 0)) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, node->name,
                          "Dropout '%s' cannot be trained: its mask is read, or its ratio computed",
                          node->name);
    }
    const float share = ratio != NULL ? (float)sbit__tensor_f64_at(&ratio->constant, 0)
                                      : sbit_node_float(node, "ratio", 0.5f);
    const sbit_attr attrs[2] = {sbit__attr_float("ratio", share), sbit__attr_int("seed", seed)};
    sbit__expand e = sbit__expand_begin(graph, id, error);
    const sbit_value_id inputs[2] = {sbit__expand_in(&e, 0), draw};
    const sbit_value_id out = sbit__expand_out(&e, 0);
    sbit__expand_node(&e, "sbit", "DropoutTrain", inputs, 2, &out, 1, attrs, 2);
    return e.status;
}

SBIT__FN sbit_status sbit__grad_train_dropout(sbit_graph *graph, sbit_value_id *draw,
                                              sbit_error *error)
{
    int64_t seed = 0;
    draw->idx = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;) {
        const sbit_node_id next = sbit_graph_next(graph, id);
        if (sbit__is_op(sbit_graph_node(graph, id), "Dropout")) {
            if (draw->idx == 0) {
                SBIT__TRY(
                    sbit__add_scalar(graph, "dropout_draw", SBIT_I64, 0, 0.0, draw, error));
            }
            SBIT__TRY(sbit__grad_dropout_node(graph, id, seed++, *draw, error));
        }
        id = next;
    }
    return SBIT_OK;
}
