/* trainer.c: a model with loss, gradients and optimizer: one step. >>trainer
 *
 * Called by: users, fit. Calls: grad (loss, gradients, optimizers), exec.
 * The clone gets the loss behind the model's output, BatchNormalization in training form, and the
 * gradients of all parameters. The session is cut at the parameters: they are fed from the
 * trainer's memory, which optimizers write; running statistics are states. Gradients are outputs,
 * so they can be read, clipped and changed before the update.
 */
#include "train_private.h"

#include <math.h> /* sqrt */

/* >>rows and options */

SBIT__FN sbit_status sbit__train_row(sbit_ctx *ctx, const sbit__kind *kind, const char *name,
                                     const sbit_head **out, sbit_error *error)
{
    sbit__text known;
    *out = sbit__row_find(ctx, kind, name);
    if (*out != NULL) {
        return SBIT_OK;
    }
    sbit__text_init(&known, &ctx->allocator);
    sbit__row_names(ctx, kind, 0, ", ", &known);
    const sbit_status status =
        sbit__fail(error, SBIT_ERR_NOT_FOUND, name, "unknown %s '%s'; known: %s", kind->what, name,
                   known.failed || known.data == NULL ? "" : known.data);
    sbit__text_deinit(&known);
    return status;
}

SBIT__FN sbit_status sbit__train_options(sbit_ctx *ctx, sbit__arena *arena, const sbit_head *head,
                                         const char *text, sbit_options *out, sbit_error *error)
{
    sbit__key_table table;
    sbit_yaml_doc *doc = NULL;
    table.prefix = "";
    table.keys = head->keys;
    table.count = head->key_count;
    SBIT__TRY(sbit__options_init(arena, &table, 1, out, error));
    if (text == NULL) {
        return sbit__options_complete(out, head->name, error);
    }
    SBIT__TRY(sbit_yaml_parse(ctx, text, strlen(text), &doc, error));
    sbit_status status = sbit__options_read(arena, out, sbit_yaml_root(doc), head->name, error);
    sbit_yaml_destroy(doc);
    return status == SBIT_OK ? sbit__options_complete(out, head->name, error) : status;
}

/* >>parameters */

static const sbit_train_group *sbit__train_group_of(const sbit_train_desc *desc, const char *name)
{
    for (size_t i = 0; i < desc->group_count; i++) {
        if (sbit__fnmatch(desc->groups[i].pattern, name)) {
            return &desc->groups[i];
        }
    }
    return NULL;
}

/* A float32 tensor that may be trained: data of a constant, or of an input that nobody feeds. */
static bool sbit__train_is_tensor(const sbit_value_info *info)
{
    return (info->is_constant || info->has_default) && info->use_count > 0 &&
           info->constant.dtype == SBIT_F32 && info->constant.rank > 0;
}

static bool sbit__train_is_stored(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_onnx_tensor *tensor = sbit__graph_value_at(graph, id)->tensor;
    const sbit_onnx_graph *source = graph->source;
    return source == NULL || tensor == NULL ||
           (tensor >= source->initializer &&
            tensor < source->initializer + source->initializer_count);
}

/* Whether the weights lie in Constant nodes (Paddle writes such models): then those are trained;
 * else what Constant nodes hold is an exporter's arithmetic. */
static bool sbit__train_in_nodes(const sbit_graph *graph)
{
    bool stored = false, any = false;
    for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
        const sbit_value_id id = {i};
        if (sbit_graph_value_alive(graph, id) &&
            sbit__train_is_tensor(sbit_graph_value(graph, id))) {
            any = true;
            stored = stored || sbit__train_is_stored(graph, id);
        }
    }
    return any && !stored;
}

static bool sbit__train_is_weight(const sbit_graph *graph, sbit_value_id id, bool in_nodes)
{
    const sbit_value_info *info = sbit_graph_value(graph, id);
    return sbit__train_is_tensor(info) && (sbit__train_is_stored(graph, id) ||
                                           (in_nodes && sbit_tensor_count(&info->constant) > 1));
}

static bool sbit__train_is_statistic(const sbit_trainer *t, sbit_value_id id)
{
    for (size_t i = 0; i < t->statistic_count; i++) {
        if (t->statistics[i].value.idx == id.idx) {
            return true;
        }
    }
    return false;
}

static bool sbit__train_listed(const sbit_train_desc *desc, const char *name)
{
    for (size_t i = 0; i < desc->train_count; i++) {
        if (sbit__streq(desc->train[i], name)) {
            return true;
        }
    }
    return false;
}

static sbit_status sbit__train_choose(sbit_trainer *t, const sbit_train_desc *desc,
                                      sbit_value_id *ids, size_t *count, sbit_error *error)
{
    const uint32_t limit = sbit_graph_value_limit(t->graph);
    const bool in_nodes = sbit__train_in_nodes(t->graph);
    size_t found = 0;
    *count = 0;
    for (uint32_t i = 1; i < limit; i++) {
        const sbit_value_id id = {i};
        if (!sbit_graph_value_alive(t->graph, id) ||
            !sbit__train_is_weight(t->graph, id, in_nodes) || sbit__train_is_statistic(t, id)) {
            continue;
        }
        const char *name = sbit_graph_value(t->graph, id)->name;
        const sbit_train_group *group = sbit__train_group_of(desc, name);
        const bool listed = desc->train == NULL || sbit__train_listed(desc, name);
        found += listed ? 1 : 0;
        if (listed && (group == NULL || !group->frozen)) {
            ids[(*count)++] = id;
        }
    }
    if (desc->train != NULL && found != desc->train_count) {
        return sbit__fail(
            error, SBIT_ERR_NOT_FOUND, NULL,
            "of %lu names of parameters to train, %lu are float32 weights of the model",
            (unsigned long)desc->train_count, (unsigned long)found);
    }
    return SBIT_OK;
}

/* Whether a value is the scale of a BatchNormalization. */
static bool sbit__train_is_scale(const sbit_graph *graph, sbit_value_id id)
{
    for (sbit_node_id n = sbit_graph_first(graph); n.idx != 0; n = sbit_graph_next(graph, n)) {
        const sbit_node *node = sbit_graph_node(graph, n);
        if ((sbit__streq(node->op_type, "BatchNormTrain") ||
             sbit__is_op(node, "BatchNormalization")) &&
            sbit__node_in(node, 1).idx == id.idx) {
            return true;
        }
    }
    return false;
}

/* The parameters that the loss depends on, with memory of their own. */
static sbit_status sbit__train_adopt(sbit_trainer *t, const sbit_train_desc *desc,
                                     const sbit_value_id *ids, const sbit_value_id *grads,
                                     size_t count, sbit_error *error)
{
    t->params = (sbit__train_param *)sbit__arena_array(&t->arena, count + 1, sizeof *t->params);
    if (t->params == NULL) {
        return sbit__fail_oom(error, count * sizeof *t->params);
    }
    for (size_t i = 0; i < count; i++) {
        sbit__train_param *p = &t->params[t->param_count];
        sbit_optimizer_call call;
        if (grads[i].idx == 0) {
            continue;
        }
        const sbit_value_info *info = sbit_graph_value(t->graph, ids[i]);
        const sbit_train_group *group = sbit__train_group_of(desc, info->name);
        p->name = info->name;
        p->value = ids[i];
        p->gradient = grads[i];
        p->rate = group != NULL && group->rate > 0.0f ? group->rate : 1.0f;
        p->decay = group != NULL && group->no_decay ? 0.0f : 1.0f;
        bool decay = true;
        p->data = info->constant;
        p->data.data = sbit__qat_memory(t, ids[i], &decay);
        p->borrowed = p->data.data != NULL;
        p->decay *= decay ? 1.0f : 0.0f;
        p->in_graph = !p->borrowed && sbit__graph_value_at(t->graph, ids[i])->owns_constant;
        if (p->in_graph) {
            p->data.data = info->constant.data;
        } else if (!p->borrowed) {
            SBIT__TRY(sbit__tensor_copy(t->ctx, &info->constant, &p->data, error));
        }
        t->param_count++;
        p->slim = t->slim > 0.0f && sbit__train_is_scale(t->graph, ids[i]);
        if (t->ema > 0.0f) {
            p->average = (float *)sbit__arena_alloc(&t->arena, sbit_tensor_bytes(&p->data) + 1);
            if (p->average == NULL) {
                return sbit__fail_oom(error, sbit_tensor_bytes(&p->data));
            }
            memcpy(p->average, p->data.data, sbit_tensor_bytes(&p->data));
        }
        memset(&call, 0, sizeof call);
        call.ctx = t->ctx;
        call.options = &t->optimizer_options;
        call.count = sbit_tensor_count(&p->data);
        p->state_bytes = t->optimizer->state_bytes(&call);
        if (p->state_bytes > 0) {
            p->state = sbit__calloc(&t->ctx->allocator, p->state_bytes, 1);
            if (p->state == NULL) {
                return sbit__fail_oom(error, p->state_bytes);
            }
        }
    }
    if (t->param_count == 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "there is nothing to train: the loss depends on no float32 weight");
    }
    return SBIT_OK;
}

/* >>building */

/* Values that are sequences: the passes know how to do without them. */
static bool sbit__train_has_sequences(const sbit_graph *graph)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        if (sbit__is_op(node, "SplitToSequence") || sbit__is_op(node, "SequenceConstruct") ||
            sbit__is_op(node, "SequenceAt")) {
            return true;
        }
    }
    return false;
}

static sbit_status sbit__train_prepare(sbit_trainer *t, sbit_error *error)
{
    static const char *const only[] = {"fold_constants", "shape_folding", "sequence_to_split",
                                       "dead_code"};
    sbit_simplify_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.only = only;
    desc.only_count = SBIT__COUNT_OF(only);
    desc.keep_batch_norm = true;
    return sbit__train_has_sequences(t->graph) ? sbit_simplify(t->graph, &desc, NULL, error)
                                               : SBIT_OK;
}

/* Fewer passes over activations, forward and backward; values inside of what is fused are gone. */
static sbit_status sbit__train_fuse(sbit_trainer *t, sbit_error *error)
{
    static const char *const only[] = {"fuse_patterns"};
    sbit_simplify_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.only = only;
    desc.only_count = SBIT__COUNT_OF(only);
    SBIT__TRY(sbit_graph_set_opset(t->graph, "sbit", 1, error));
    SBIT__TRY(sbit_simplify(t->graph, &desc, NULL, error));
    return sbit__lower_heads_of(t->graph, error);
}

static sbit_status sbit__train_statistics(sbit_trainer *t, sbit_error *error)
{
    size_t nodes = 0;
    for (sbit_node_id id = sbit_graph_first(t->graph); id.idx != 0;
         id = sbit_graph_next(t->graph, id)) {
        nodes++;
    }
    t->statistics =
        (sbit_statistic *)sbit__arena_array(&t->arena, 2 * nodes + 1, sizeof *t->statistics);
    t->kept = (void **)sbit__arena_array(&t->arena, 2 * nodes + 1, sizeof *t->kept);
    if (t->statistics == NULL || t->kept == NULL) {
        return sbit__fail_oom(error, nodes * sizeof *t->statistics);
    }
    SBIT__TRY(
        sbit_graph_to_training(t->graph, t->statistics, 2 * nodes, &t->statistic_count, error));
    if (t->statistic_count == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(
        sbit__add_scalar(t->graph, "statistics_fixed", SBIT_F32, 0, 0.0, &t->fixed_input, error));
    for (sbit_node_id id = sbit_graph_first(t->graph); id.idx != 0;
         id = sbit_graph_next(t->graph, id)) {
        if (sbit__streq(sbit_graph_node(t->graph, id)->op_type, "BatchNormTrain")) {
            SBIT__TRY(sbit_graph_set_node_input(t->graph, id, 5, t->fixed_input, error));
        }
    }
    return SBIT_OK;
}

/* part * value */
static sbit_status sbit__train_part(sbit_trainer *t, sbit_value_id value, double part,
                                    sbit_value_id *out, sbit_error *error)
{
    const sbit_node_id end = {0};
    sbit_value_id both[2];
    both[0] = value;
    SBIT__TRY(sbit__add_scalar(t->graph, "loss_part", SBIT_F32, 0, part, &both[1], error));
    return sbit__emit(t->graph, end, "Mul", "loss", both, 2, NULL, 0, out, error);
}

/* A value `own` of the model learns from one of the teacher, which becomes an input of the graph:
 * adds part * row(own, that) to the loss. */
static sbit_status sbit__train_learn_from(sbit_trainer *t, const char *loss,
                                          const char *options_text, sbit_value_id own, double part,
                                          sbit_error *error)
{
    const sbit_loss_row *row = sbit_loss_find(t->ctx, loss);
    const sbit_type type = sbit_graph_value(t->graph, own)->type;
    const sbit_node_id end = {0};
    sbit_options options;
    sbit_value_id parts[2], distance = {0};
    sbit_value_id *target = &t->taught[t->taught_count++];
    SBIT__TRY(sbit__train_options(t->ctx, &t->arena, &row->head, options_text, &options, error));
    SBIT__TRY(sbit_graph_add_value(t->graph, "teacher_value", &type, target, error));
    SBIT__TRY(sbit_graph_set_input(t->graph, *target, true, error));
    SBIT__TRY(row->build(t->graph, &options, own, *target, &distance, error));
    parts[0] = t->loss;
    SBIT__TRY(sbit__train_part(t, distance, part, &parts[1], error));
    return sbit__emit(t->graph, end, "Add", "loss", parts, 2, NULL, 0, &t->loss, error);
}

/* Whether two dims are one: a number, a name, or what stands at one place of an input of both. */
static bool sbit__train_same_dim(const sbit_trainer *t, const sbit_graph *teacher, sbit_dim own, sbit_dim theirs)
{
    if (own.symbol == SBIT_SYMBOL_ANY || theirs.symbol == SBIT_SYMBOL_ANY || (own.symbol == 0 && theirs.symbol == 0)) {
        return sbit__dim_equal(own, theirs);
    }
    bool same = own.symbol != 0 && theirs.symbol != 0 &&
                sbit__streq(sbit_graph_symbol_name(t->graph, own.symbol),
                            sbit_graph_symbol_name(teacher, theirs.symbol));
    for (size_t i = 0; i < sbit_graph_input_count(teacher) && !same; i++) {
        const sbit_value_info *b = sbit_graph_value(teacher, sbit_graph_input(teacher, i));
        const sbit_value_info *a = sbit_graph_value(t->graph, sbit_graph_find_value(t->graph, b->name));
        for (int32_t k = 0; a != NULL && k < a->type.rank && k < b->type.rank && !same; k++) {
            same = sbit__dim_equal(a->type.dims[k], own) && sbit__dim_equal(b->type.dims[k], theirs);
        }
    }
    return same;
}

/* A computed float32 value of one name and shape in both. */
static bool sbit__train_is_shared(const sbit_trainer *t, const sbit_graph *teacher,
                                  sbit_value_id own, const char *pattern)
{
    const sbit_value_info *a = sbit_graph_value(t->graph, own);
    if (a == NULL || a->producer.idx == 0 || a->type.dtype != SBIT_F32 || a->type.rank < 1 ||
        !sbit__fnmatch(pattern, a->name)) {
        return false;
    }
    const sbit_value_info *b = sbit_graph_value(teacher, sbit_graph_find_value(teacher, a->name));
    bool same = b != NULL && b->producer.idx != 0 && b->type.dtype == SBIT_F32 &&
                b->type.rank == a->type.rank;
    for (int32_t i = 0; same && i < a->type.rank; i++) {
        same = sbit__train_same_dim(t, teacher, a->type.dims[i], b->type.dims[i]);
    }
    return same;
}

/* That a value may have the type of what teacher `number` gives to learn from. */
static sbit_status sbit__train_compare(const sbit_trainer *t, const sbit_graph *teacher, size_t number,
                                       sbit_value_id own, sbit_value_id theirs, sbit_error *error)
{
    const sbit_value_info *a = sbit_graph_value(t->graph, own), *b = sbit_graph_value(teacher, theirs);
    bool differ = (a->type.rank >= 0 && b->type.rank >= 0 && a->type.rank != b->type.rank) ||
                  (a->type.dtype != SBIT_UNDEFINED && b->type.dtype != SBIT_UNDEFINED &&
                   a->type.dtype != b->type.dtype);
    for (int32_t i = 0; i < a->type.rank && i < b->type.rank && !differ; i++) {
        differ = sbit__dim_known(a->type.dims[i]) && sbit__dim_known(b->type.dims[i]) &&
                 a->type.dims[i].value != b->type.dims[i].value;
    }
    if (differ) {
        char text[2][160];
        sbit__type_describe(t->graph, &a->type, text[0], sizeof text[0]);
        sbit__type_describe(teacher, &b->type, text[1], sizeof text[1]);
        return sbit__fail(error, SBIT_ERR_SHAPE, a->name, "'%s' is %s and cannot learn from teacher %lu's '%s', %s",
                          a->name, text[0], (unsigned long)number, b->name, text[1]);
    }
    return SBIT_OK;
}

static sbit_status sbit__train_feature(sbit_trainer *t, const sbit_graph *teacher,
                                       const sbit_train_feature *f, sbit_value_id *theirs,
                                       sbit_error *error)
{
    const double weight = f->weight > 0.0f ? (double)f->weight : 1.0;
    sbit_value_id own = {0};
    if (f->teacher != NULL) {
        own = sbit_graph_find_value(t->graph, f->student);
        theirs[t->taught_count] = sbit_graph_find_value(teacher, f->teacher);
        if (own.idx == 0 || theirs[t->taught_count].idx == 0) {
            return sbit__fail(error, SBIT_ERR_NOT_FOUND, own.idx == 0 ? f->student : f->teacher,
                              "%s has no value '%s' to learn from",
                              own.idx == 0 ? "the model" : "the teacher",
                              own.idx == 0 ? f->student : f->teacher);
        }
        SBIT__TRY(sbit__train_compare(t, teacher, 0, own, theirs[t->taught_count], error));
        return sbit__train_learn_from(t, "mse", "RELATIVE: true", own, weight, error);
    }
    const uint32_t limit = sbit_graph_value_limit(t->graph);
    size_t count = 0;
    for (own.idx = 1; own.idx < limit; own.idx++) {
        count += sbit__train_is_shared(t, teacher, own, f->student);
    }
    if (count == 0) {
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, f->student,
                          "no value '%s' has one shape in the model and the teacher", f->student);
    }
    for (own.idx = 1; own.idx < limit; own.idx++) {
        if (sbit__train_is_shared(t, teacher, own, f->student)) {
            const char *name = sbit_graph_value(t->graph, own)->name;
            theirs[t->taught_count] = sbit_graph_find_value(teacher, name);
            SBIT__TRY(sbit__train_learn_from(t, "mse", "RELATIVE: true", own,
                                             weight / (double)count, error));
        }
    }
    return SBIT_OK;
}

/* The loss becomes a mix with the distances to the teachers' outputs and the first one's features. */
static sbit_status sbit__train_teachers(sbit_trainer *t, const sbit_train_desc *desc,
                                        sbit_value_id output, sbit_error *error)
{
    const double mix = desc->distill > 0.0f ? (double)desc->distill : 0.5;
    const size_t count = desc->teacher_count + desc->feature_count * sbit_graph_value_limit(t->graph);
    char text[64];
    snprintf(text, sizeof text, "TEMPERATURE: %g",
             desc->temperature > 0.0f ? (double)desc->temperature : 4.0);
    sbit_value_id *ids = (sbit_value_id *)sbit__arena_array(&t->arena, count, sizeof *ids);
    t->taught = (sbit_value_id *)sbit__arena_array(&t->arena, count, sizeof *ids);
    t->teachers = (sbit_session **)sbit__arena_array(&t->arena, desc->teacher_count, sizeof *t->teachers);
    if (ids == NULL || t->taught == NULL || t->teachers == NULL) {
        return sbit__fail_oom(error, count * sizeof *ids);
    }
    SBIT__TRY(sbit__train_part(t, t->loss, 1.0 - mix, &t->loss, error));
    for (size_t k = 0; k < desc->teacher_count; k++) {
        sbit_graph *teacher = desc->teachers[k];
        const size_t first = t->taught_count;
        sbit_session_desc session;
        if (desc->output >= sbit_graph_output_count(teacher)) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "teacher %lu has no output %lu",
                              (unsigned long)k, (unsigned long)desc->output);
        }
        SBIT__TRY(sbit_infer(teacher, error));
        ids[first] = sbit_graph_output(teacher, desc->output);
        SBIT__TRY(sbit__train_compare(t, teacher, k, output, ids[first], error));
        SBIT__TRY(sbit__train_learn_from(t, "kl", text, output, mix / (double)desc->teacher_count, error));
        for (size_t i = 0; k == 0 && i < desc->feature_count; i++) {
            SBIT__TRY(sbit__train_feature(t, teacher, &desc->features[i], ids, error));
        }
        memset(&session, 0, sizeof session);
        session.outputs = ids + first;
        session.output_count = t->taught_count - first;
        SBIT__TRY(sbit_session_create(teacher, &session, &t->teachers[t->teacher_count], error));
        t->teacher_count++;
    }
    return SBIT_OK;
}

static sbit_status sbit__train_loss(sbit_trainer *t, const sbit_train_desc *desc, sbit_error *error)
{
    sbit_type type = sbit__type_unknown();
    t->model_outputs = sbit_graph_output_count(t->graph);
    if (desc->output >= t->model_outputs) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the model has no output %lu for the loss", (unsigned long)desc->output);
    }
    const sbit_value_id output = sbit_graph_output(t->graph, desc->output);
    t->loss_output = desc->output;
    SBIT__TRY(sbit_infer(t->graph, error));
    if (t->loss_row->like_output) {
        type = sbit_graph_value(t->graph, output)->type;
    }
    SBIT__TRY(sbit_graph_add_value(t->graph, "target", &type, &t->target, error));
    SBIT__TRY(sbit_graph_set_input(t->graph, t->target, true, error));
    SBIT__TRY(t->loss_row->build(t->graph, &t->loss_options, output, t->target, &t->loss, error));
    return desc->teacher_count > 0 ? sbit__train_teachers(t, desc, output, error) : SBIT_OK;
}

/* The memory that a session reads in each run: parameters, and what is fed beside them. */
static sbit_status sbit__train_attach(sbit_trainer *t, sbit_session *session, sbit_error *error)
{
    for (size_t i = 0; i < t->param_count; i++) {
        SBIT__TRY(sbit_session_set_input_at(session, i, &t->params[i].data, error));
    }
    sbit_tensor number;
    size_t at = t->param_count;
    memset(&number, 0, sizeof number);
    if (t->fixed_input.idx != 0) {
        number.dtype = SBIT_F32;
        number.data = &t->fixed;
        SBIT__TRY(sbit_session_set_input_at(session, at++, &number, error));
    }
    if (t->draw_input.idx != 0) {
        number.dtype = SBIT_I64;
        number.data = &t->draw;
        SBIT__TRY(sbit_session_set_input_at(session, at, &number, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__train_session(sbit_trainer *t, sbit_error *error)
{
    sbit_session_desc desc;
    const size_t outputs = 1 + t->model_outputs + t->param_count;
    sbit_value_id *ids =
        (sbit_value_id *)sbit__arena_array(&t->arena, outputs + t->param_count + 2, sizeof *ids);
    sbit_session_state *states =
        (sbit_session_state *)sbit__arena_array(&t->arena, t->statistic_count + 1, sizeof *states);
    if (ids == NULL || states == NULL) {
        return sbit__fail_oom(error, outputs * sizeof *ids);
    }
    sbit_value_id *inputs = ids + outputs;
    ids[0] = t->loss;
    for (size_t i = 0; i < t->model_outputs; i++) {
        ids[1 + i] = sbit_graph_output(t->graph, i);
    }
    for (size_t i = 0; i < t->param_count; i++) {
        t->params[i].output = 1 + t->model_outputs + i;
        ids[t->params[i].output] = t->params[i].gradient;
        inputs[i] = t->params[i].value;
    }
    for (size_t i = 0; i < t->statistic_count; i++) {
        states[i].input = t->statistics[i].value;
        states[i].output = t->statistics[i].updated;
    }
    memset(&desc, 0, sizeof desc);
    desc.outputs = ids;
    desc.output_count = outputs;
    desc.inputs = inputs;
    desc.input_count = t->param_count;
    if (t->fixed_input.idx != 0) {
        inputs[desc.input_count++] = t->fixed_input;
    }
    if (t->draw_input.idx != 0) {
        inputs[desc.input_count++] = t->draw_input;
    }
    desc.states = states;
    desc.state_count = t->statistic_count;
    t->desc = desc;
    SBIT__TRY(sbit_session_create(t->graph, &desc, &t->session, error));
    return sbit__train_attach(t, t->session, error);
}

static sbit_status sbit__train_rows(sbit_trainer *t, const sbit_train_desc *desc, sbit_error *error)
{
    const sbit_head *head = NULL;
    SBIT__TRY(sbit__train_row(t->ctx, sbit__kind_loss(),
                              desc->loss != NULL ? desc->loss : "cross_entropy", &head, error));
    t->loss_row = (const sbit_loss_row *)(const void *)head;
    SBIT__TRY(
        sbit__train_options(t->ctx, &t->arena, head, desc->loss_options, &t->loss_options, error));
    SBIT__TRY(sbit__train_row(t->ctx, sbit__kind_optimizer(),
                              desc->optimizer != NULL ? desc->optimizer : "sgd", &head, error));
    t->optimizer = (const sbit_optimizer_row *)(const void *)head;
    return sbit__train_options(t->ctx, &t->arena, head, desc->optimizer_options,
                               &t->optimizer_options, error);
}

/* Teachers are there; features are named, have a weight, and a teacher to learn from. */
static sbit_status sbit__train_lessons(const sbit_train_desc *desc, sbit_error *error)
{
    if (desc->feature_count > 0 && desc->teacher_count == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "features need a teacher");
    }
    if (desc->teacher_count > 0 && !(desc->distill >= 0.0f && desc->distill <= 1.0f)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "distill is %g, not 0 to 1", (double)desc->distill);
    }
    for (size_t k = 0; k < desc->teacher_count; k++) {
        if (desc->teachers == NULL || desc->teachers[k] == NULL) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "teacher %lu is NULL", (unsigned long)k);
        }
    }
    for (size_t i = 0; i < desc->feature_count; i++) {
        const sbit_train_feature *f = &desc->features[i];
        if (f->student == NULL || !(f->weight >= 0.0f)) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, f->student,
                              "feature %lu needs a name of the model's and a weight of at least 0",
                              (unsigned long)i);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__train_build(sbit_trainer *t, const sbit_graph *graph, sbit_quant *quant,
                                     const sbit_train_desc *desc, sbit_error *error)
{
    size_t count = 0;
    SBIT__TRY(sbit__train_rows(t, desc, error));
    SBIT__TRY(sbit__train_lessons(desc, error));
    SBIT__TRY(sbit_graph_clone(graph, &t->graph, error));
    SBIT__TRY(sbit__train_prepare(t, error));
    if (quant != NULL) {
        SBIT__TRY(sbit__qat_insert(t, quant, error));
    } else if (desc->feature_count == 0) {
        SBIT__TRY(sbit__train_fuse(t, error));
    }
    if (!desc->fixed_statistics) {
        SBIT__TRY(sbit__train_statistics(t, error));
    }
    SBIT__TRY(sbit__grad_train_dropout(t->graph, &t->draw_input, error));
    SBIT__TRY(sbit__train_loss(t, desc, error));
    const size_t limit = sbit_graph_value_limit(t->graph);
    sbit_value_id *ids = (sbit_value_id *)sbit__arena_array(&t->arena, 2 * limit, sizeof *ids);
    if (ids == NULL) {
        return sbit__fail_oom(error, 2 * limit * sizeof *ids);
    }
    SBIT__TRY(sbit__train_choose(t, desc, ids, &count, error));
    uint32_t forward = 0;
    SBIT__TRY(sbit__gradients_build(t->graph, t->loss, ids, count, ids + limit, &forward, error));
    if (desc->checkpoint > 0) {
        SBIT__TRY(sbit__grad_recompute(t->graph, forward, (size_t)desc->checkpoint, error));
    }
    SBIT__TRY(sbit__train_adopt(t, desc, ids, ids + limit, count, error));
    return sbit__train_session(t, error);
}

SBIT__FN sbit_status sbit__trainer_make(const sbit_graph *graph, sbit_quant *quant,
                                        const sbit_train_desc *desc, sbit_trainer **out,
                                        sbit_error *error)
{
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    sbit_trainer *t = (sbit_trainer *)sbit__calloc(&ctx->allocator, 1, sizeof *t);
    if (t == NULL) {
        return sbit__fail_oom(error, sizeof *t);
    }
    t->ctx = ctx;
    sbit__arena_init(&t->arena, &ctx->allocator);
    t->rate = (double)desc->learning_rate;
    t->factor = 1.0;
    t->decay = desc->weight_decay;
    t->clip_norm = desc->clip_norm;
    t->clip_value = desc->clip_value;
    t->ema = desc->ema;
    t->slim = desc->slim;
    t->dampening = desc->dampening;
    t->observe = desc->observe;
    const sbit_status status = sbit__train_build(t, graph, quant, desc, error);
    if (status != SBIT_OK) {
        sbit_trainer_destroy(t);
        return status;
    }
    *out = t;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_trainer_create(const sbit_graph *graph, const sbit_train_desc *desc,
                                              sbit_trainer **out, sbit_error *error)
{
    return sbit__trainer_make(graph, NULL, desc, out, error);
}

SPARSEBIT_API void sbit_trainer_destroy(sbit_trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    const sbit_allocator *a = &trainer->ctx->allocator;
    sbit_ctx *ctx = trainer->ctx;
    sbit_session_destroy(trainer->session);
    for (size_t i = 0; i < trainer->teacher_count; i++) {
        sbit_session_destroy(trainer->teachers[i]);
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        sbit__train_param *p = &trainer->params[i];
        sbit__free(a, p->mask, (size_t)sbit_tensor_count(&p->data));
        sbit__free(a, p->state, p->state_bytes);
        if (!p->borrowed && !p->in_graph) {
            sbit_tensor_free(ctx, &p->data);
        }
    }
    sbit_graph_destroy(trainer->graph);
    sbit__arena_deinit(&trainer->arena);
    sbit__free(a, trainer, sizeof *trainer);
}

/* >>a step */

SBIT__FN bool sbit__train_is_fed(const sbit_trainer *t, const char *name)
{
    bool fed = sbit__streq(name, sbit_graph_value(t->graph, t->target)->name);
    for (size_t i = 0; !fed && i < t->taught_count; i++) {
        fed = sbit__streq(name, sbit_graph_value(t->graph, t->taught[i])->name);
    }
    return fed;
}

/* What the teachers make of the inputs that they were given. */
static sbit_status sbit__train_ask_teachers(sbit_trainer *t, sbit_session *session,
                                            sbit_error *error)
{
    const sbit_value_id *taught = t->taught;
    for (size_t k = 0; k < t->teacher_count; k++) {
        SBIT__TRY(sbit_session_run(t->teachers[k], error));
        for (size_t i = 0; i < sbit_session_output_count(t->teachers[k]); i++) {
            SBIT__TRY(sbit_session_set_input(session, sbit_graph_value(t->graph, *taught++)->name,
                                             &sbit_session_output(t->teachers[k], i)->tensor, error));
        }
    }
    return SBIT_OK;
}

/* The model's inputs behind the parameters, and the target; rows of padding are cut off. */
static sbit_status sbit__train_feed(sbit_trainer *t, sbit_session *session, const sbit_batch *batch,
                                    sbit_error *error)
{
    const size_t first = t->desc.input_count, count = sbit_session_input_count(session);
    const char *only = NULL;
    for (size_t i = first; i < count && only == NULL; i++) {
        const char *name = sbit_session_input_info(session, i)->name;
        only = sbit__train_is_fed(t, name) ? NULL : name;
    }
    if (batch->target_count == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the batch has no target for the loss");
    }
    for (size_t i = 0; i <= batch->input_count; i++) {
        const bool is_target = i == batch->input_count;
        sbit_tensor tensor = is_target ? batch->targets[0] : batch->inputs[i];
        const char *name = is_target              ? sbit_graph_value(t->graph, t->target)->name
                           : batch->names != NULL ? batch->names[i]
                                                  : only;
        if (tensor.rank > 0 && batch->samples < tensor.dims[0]) {
            tensor.dims[0] = batch->samples;
        }
        SBIT__TRY(sbit_session_set_input(session, name != NULL ? name : "", &tensor, error));
        for (size_t k = 0; !is_target && k < t->teacher_count; k++) {
            SBIT__TRY(sbit_session_set_input(t->teachers[k], name, &tensor, error));
        }
    }
    return sbit__train_ask_teachers(t, session, error);
}

/* Running statistics before a run (save) and again after one that must not count. */
static sbit_status sbit__train_keep_statistics(sbit_trainer *t, bool save, sbit_error *error)
{
    for (size_t i = 0; i < t->statistic_count; i++) {
        const sbit_value_info *info = sbit_graph_value(t->graph, t->statistics[i].value);
        sbit_tensor tensor = info->constant;
        const sbit_value *now = sbit_session_state_at(t->session, i);
        if (t->kept[i] == NULL) {
            t->kept[i] = sbit__arena_alloc(&t->arena, sbit_tensor_bytes(&tensor) + 1);
        }
        if (t->kept[i] == NULL) {
            return sbit__fail_oom(error, sbit_tensor_bytes(&tensor));
        }
        if (save) {
            memcpy(t->kept[i], now != NULL ? now->tensor.data : tensor.data,
                   sbit_tensor_bytes(&tensor));
        } else {
            tensor.data = t->kept[i];
            SBIT__TRY(sbit_session_set_input(t->session, info->name, &tensor, error));
        }
    }
    return SBIT_OK;
}

static bool sbit__train_finite(const sbit_tensor *tensor)
{
    const int64_t count = sbit_tensor_count(tensor);
    bool finite = true;
    for (int64_t i = 0; finite && tensor->dtype == SBIT_F32 && i < count; i++) {
        const float v = ((const float *)tensor->data)[i];
        finite = v - v == 0.0f;
    }
    return finite;
}

/* Which node made the first value that is not finite: everything is run again, and kept. */
static sbit_status sbit__train_blame(sbit_trainer *t, sbit_session *session, const char *what,
                                     const sbit_batch *batch, sbit_error *error)
{
    char node[160] = "";
    SBIT__TRY(sbit__train_attach(t, session, error));
    SBIT__TRY(sbit__train_feed(t, session, batch, error));
    SBIT__TRY(sbit_session_run(session, error));
    for (sbit_node_id id = sbit_graph_first(t->graph); id.idx != 0 && node[0] == '\0';
         id = sbit_graph_next(t->graph, id)) {
        const sbit_node *info = sbit_graph_node(t->graph, id);
        for (size_t k = 0; k < info->output_count; k++) {
            const sbit_value *value =
                info->outputs[k].idx != 0 ? sbit_session_value(session, info->outputs[k]) : NULL;
            if (value != NULL && value->kind == SBIT_KIND_TENSOR && value->tensor.data != NULL &&
                !sbit__train_finite(&value->tensor)) {
                sbit_graph_describe(t->graph, id, node, sizeof node);
            }
        }
    }
    return sbit__fail(error, SBIT_ERR_NUMERIC, node,
                      "%s is not finite after step %lld; first in %s: lower the learning rate, or "
                      "clip the gradient",
                      what, (long long)t->report.step, node[0] != '\0' ? node : "the input");
}

static sbit_status sbit__train_fail_finite(sbit_trainer *t, const char *what,
                                           const sbit_batch *batch, sbit_error *error)
{
    sbit_session *session = NULL;
    sbit_session_desc desc = t->desc;
    desc.keep_values = true;
    desc.state_count = 0;
    SBIT__TRY(sbit__train_keep_statistics(t, false, error));
    SBIT__TRY(sbit_session_create(t->graph, &desc, &session, error));
    const sbit_status status = sbit__train_blame(t, session, what, batch, error);
    sbit_session_destroy(session);
    return status;
}

/* Before a run that adds to gradients: they move out of the session's memory. */
static sbit_status sbit__train_gather(sbit_trainer *t, sbit_error *error)
{
    for (size_t i = 0; i < t->param_count; i++) {
        sbit__train_param *p = &t->params[i];
        const size_t bytes = sbit_tensor_bytes(&p->data);
        if (p->sum == NULL) {
            p->sum = (float *)sbit__arena_alloc(&t->arena, bytes + 1);
        }
        if (p->sum == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        if (p->grad != p->sum) {
            memcpy(p->sum, p->grad, bytes);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__train_backward(sbit_trainer *t, const sbit_batch *batch, bool add,
                                        sbit_train_report *report, sbit_error *error)
{
    const double before = add ? (double)t->report.samples : 0.0, loss = t->report.loss;
    const double all = before + (double)batch->samples;
    double squares = 0.0;
    t->ready = false;
    t->draw = add ? t->draw + 1 : (t->report.step + 1) << 16;
    if (add) {
        SBIT__TRY(sbit__train_gather(t, error));
    } else {
        SBIT__TRY(sbit__qat_observe(t, false, error));
    }
    SBIT__TRY(sbit__train_feed(t, t->session, batch, error));
    SBIT__TRY(sbit__qat_publish(t, error));
    SBIT__TRY(sbit__train_keep_statistics(t, true, error));
    SBIT__TRY(sbit_session_run(t->session, error));
    const double own = sbit__tensor_f64_at(&sbit_session_output(t->session, 0)->tensor, 0);
    if (own - own != 0.0) {
        return sbit__train_fail_finite(t, "the loss", batch, error);
    }
    for (size_t i = 0; i < t->param_count; i++) {
        sbit__train_param *p = &t->params[i];
        const int64_t count = sbit_tensor_count(&p->data);
        p->grad = (float *)sbit_session_output(t->session, p->output)->tensor.data;
        for (int64_t k = 0; add && k < count; k++) {
            p->sum[k] =
                (float)(((double)p->sum[k] * before + (double)p->grad[k] * (double)batch->samples) /
                        all);
        }
        p->grad = add ? p->sum : p->grad;
        const double square = (double)sbit__kernels(t->ctx)->f32_dot(count, p->grad, p->grad);
        if (square - square != 0.0) {
            char what[160];
            snprintf(what, sizeof what, "the gradient of '%.100s'", p->name);
            return sbit__train_fail_finite(t, what, batch, error);
        }
        squares += square;
    }
    t->report.loss = add ? (loss * before + own * (double)batch->samples) / all : own;
    t->report.samples = (int64_t)all;
    t->report.learning_rate = t->rate * t->factor;
    t->report.gradient_norm = sqrt(squares);
    t->ready = true;
    if (report != NULL) {
        *report = t->report;
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_trainer_backward(sbit_trainer *trainer, const sbit_batch *batch,
                                                sbit_train_report *report, sbit_error *error)
{
    return sbit__train_backward(trainer, batch, false, report, error);
}

SPARSEBIT_API sbit_status sbit_trainer_accumulate(sbit_trainer *trainer, const sbit_batch *batch,
                                                  sbit_train_report *report, sbit_error *error)
{
    return sbit__train_backward(trainer, batch, trainer->ready, report, error);
}

typedef struct sbit__train_update {
    sbit_trainer *trainer;
    double factor; /* on all gradients */
} sbit__train_update;

static void sbit__train_mask(sbit__train_param *p)
{
    const int64_t count = sbit_tensor_count(&p->data);
    for (int64_t i = 0; p->mask != NULL && i < count; i++) {
        if (p->mask[i] == 0) {
            ((float *)p->data.data)[i] = 0.0f;
        }
    }
}

static void sbit__train_update_one(void *user, int64_t index, int32_t worker)
{
    sbit__train_update *u = (sbit__train_update *)user;
    const sbit_trainer *t = u->trainer;
    sbit__train_param *p = &t->params[index];
    sbit_optimizer_call call;
    sbit_error ignored;
    (void)worker;
    p->status = SBIT_OK;
    if (p->frozen) {
        return;
    }
    memset(&call, 0, sizeof call);
    call.ctx = t->ctx;
    call.name = p->name;
    call.options = &t->optimizer_options;
    call.count = sbit_tensor_count(&p->data);
    call.step = t->report.step + 1;
    call.learning_rate = (float)(t->rate * t->factor * (double)p->rate);
    call.weight_decay = t->decay * p->decay;
    for (int64_t i = 0; p->slim && i < call.count; i++) { /* the slope of |w| */
        const float w = ((const float *)p->data.data)[i];
        p->grad[i] += w > 0.0f ? t->slim : w < 0.0f ? -t->slim : 0.0f;
    }
    for (int64_t i = 0; (u->factor != 1.0 || t->clip_value > 0.0f) && i < call.count; i++) {
        const float g = (float)((double)p->grad[i] * u->factor), most = t->clip_value;
        p->grad[i] = most > 0.0f ? (g > most ? most : g < -most ? -most : g) : g;
    }
    p->status = t->optimizer->update(p->state, &call, p->grad, (float *)p->data.data, &ignored);
    sbit__train_mask(p);
    for (int64_t i = 0; p->average != NULL && i < call.count; i++) {
        p->average[i] = t->ema * p->average[i] + (1.0f - t->ema) * ((const float *)p->data.data)[i];
    }
}

SPARSEBIT_API sbit_status sbit_trainer_update(sbit_trainer *trainer, sbit_train_report *report,
                                              sbit_error *error)
{
    sbit__train_update u;
    if (!trainer->ready) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "there are no gradients: call sbit_trainer_backward first");
    }
    if (trainer->dampening > 0.0f) {
        SBIT__TRY(sbit__qat_dampen(trainer, error));
    }
    memset(&u, 0, sizeof u);
    u.trainer = trainer;
    u.factor = 1.0;
    if (trainer->clip_norm > 0.0f && trainer->report.gradient_norm > (double)trainer->clip_norm) {
        u.factor = (double)trainer->clip_norm / trainer->report.gradient_norm;
    }
    trainer->ready = false;
    sbit_ctx_parallel(trainer->ctx, (int64_t)trainer->param_count, sbit__train_update_one, &u);
    for (size_t i = 0; i < trainer->param_count; i++) {
        const sbit__train_param *p = &trainer->params[i];
        if (p->status != SBIT_OK) {
            return sbit__fail(error, p->status, p->name, "%s could not update '%s'",
                              trainer->optimizer->head.name, p->name);
        }
    }
    SBIT__TRY(sbit__qat_observe(trainer, true, error));
    trainer->report.step++;
    if (report != NULL) {
        *report = trainer->report;
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_trainer_step(sbit_trainer *trainer, const sbit_batch *batch,
                                            sbit_train_report *report, sbit_error *error)
{
    SBIT__TRY(sbit_trainer_backward(trainer, batch, NULL, error));
    return sbit_trainer_update(trainer, report, error);
}

/* >>access */

SPARSEBIT_API void sbit_trainer_set_rate(sbit_trainer *trainer, double rate)
{
    trainer->rate = rate;
}

SPARSEBIT_API sbit_train_memory sbit_trainer_memory(const sbit_trainer *trainer)
{
    sbit_train_memory out;
    sbit_session_memory session;
    memset(&out, 0, sizeof out);
    sbit_session_memory_of(trainer->session, &session);
    for (size_t i = 0; i < trainer->param_count; i++) {
        const sbit__train_param *p = &trainer->params[i];
        const size_t bytes = sbit_tensor_bytes(&p->data);
        out.parameter_bytes += bytes;
        out.optimizer_bytes += p->state_bytes + (p->average != NULL ? bytes : 0);
    }
    out.live_bytes = session.live_bytes;
    out.planned_bytes = session.activation_bytes;
    return out;
}

SPARSEBIT_API const sbit_tensor *sbit_trainer_output(const sbit_trainer *trainer, size_t index)
{
    const sbit_value *value =
        index < trainer->model_outputs ? sbit_session_output(trainer->session, 1 + index) : NULL;
    return value != NULL ? &value->tensor : NULL;
}

SPARSEBIT_API size_t sbit_trainer_parameter_count(const sbit_trainer *trainer)
{
    return trainer->param_count;
}

SPARSEBIT_API sbit_train_parameter sbit_trainer_parameter(const sbit_trainer *trainer, size_t index)
{
    sbit_train_parameter out;
    SPARSEBIT_ASSERT(index < trainer->param_count);
    const sbit__train_param *p = &trainer->params[index];
    memset(&out, 0, sizeof out);
    out.name = p->name;
    out.value = p->value;
    out.data = p->data;
    out.gradient = p->grad;
    out.frozen = p->frozen;
    return out;
}

SPARSEBIT_API size_t sbit_trainer_freeze(sbit_trainer *trainer, const char *pattern, bool frozen)
{
    size_t count = 0;
    for (size_t i = 0; i < trainer->param_count; i++) {
        sbit__train_param *p = &trainer->params[i];
        if (sbit__fnmatch(pattern, p->name)) {
            p->frozen = frozen;
            count++;
        }
    }
    return count;
}

SPARSEBIT_API void sbit_trainer_freeze_statistics(sbit_trainer *trainer, bool frozen)
{
    trainer->fixed = frozen ? 1.0f : 0.0f;
}

SPARSEBIT_API sbit_status sbit_trainer_set_mask(sbit_trainer *trainer, const char *name,
                                                const uint8_t *keep, sbit_error *error)
{
    const sbit_allocator *a = &trainer->ctx->allocator;
    for (size_t i = 0; i < trainer->param_count; i++) {
        sbit__train_param *p = &trainer->params[i];
        const size_t count = (size_t)sbit_tensor_count(&p->data);
        if (!sbit__streq(p->name, name)) {
            continue;
        }
        if (keep != NULL && p->mask == NULL) {
            p->mask = (uint8_t *)sbit__alloc(a, count);
            if (p->mask == NULL) {
                return sbit__fail_oom(error, count);
            }
        }
        if (keep == NULL) {
            sbit__free(a, p->mask, count);
            p->mask = NULL;
        } else {
            memcpy(p->mask, keep, count);
            sbit__train_mask(p);
        }
        return SBIT_OK;
    }
    return sbit__fail(error, SBIT_ERR_NOT_FOUND, name, "'%s' is no parameter that is trained",
                      name);
}

static sbit_status sbit__train_store(const sbit_trainer *t, sbit_graph *graph, sbit_value_id id,
                                     const sbit_tensor *tensor, sbit_error *error)
{
    const sbit_value_info *mine = sbit_graph_value(t->graph, id);
    if (!sbit_graph_value_alive(graph, id) ||
        !sbit__streq(sbit_graph_value(graph, id)->name, mine->name) ||
        (!sbit_graph_value(graph, id)->is_constant && !sbit_graph_value(graph, id)->has_default)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, mine->name,
                          "the graph has no constant '%s': it is not the one that is trained",
                          mine->name);
    }
    return sbit_graph_set_constant(graph, id, tensor, error);
}

SPARSEBIT_API void sbit_trainer_swap_average(sbit_trainer *trainer)
{
    trainer->swapped = trainer->ema > 0.0f && !trainer->swapped;
    for (size_t i = 0; i < trainer->param_count; i++) {
        sbit__train_param *p = &trainer->params[i];
        const int64_t count = p->average != NULL ? sbit_tensor_count(&p->data) : 0;
        float *data = (float *)p->data.data;
        for (int64_t k = 0; k < count; k++) {
            const float other = p->average[k];
            p->average[k] = data[k];
            data[k] = other;
        }
    }
}

SBIT__FN const sbit_tensor *sbit__train_statistic(const sbit_trainer *t, size_t i)
{
    const sbit_value *value = sbit_session_state_at(t->session, i);
    return value != NULL ? &value->tensor
                         : &sbit_graph_value(t->graph, t->statistics[i].value)->constant;
}

SBIT__FN sbit_status sbit__train_take(sbit_trainer *t, sbit__train_snapshot *s, sbit_error *error)
{
    const size_t count = t->param_count + t->statistic_count;
    void **data = s->data;
    sbit__qat_widen(t, 0); /* what a snapshot has fits the quantizers' own bits */
    if (data == NULL) {
        data = (void **)sbit__arena_array(&t->arena, count + 1, sizeof *data);
    }
    for (size_t i = 0; i < count; i++) {
        const sbit_tensor *from =
            i < t->param_count ? &t->params[i].data : sbit__train_statistic(t, i - t->param_count);
        const size_t bytes = sbit_tensor_bytes(from);
        if (data != NULL && data[i] == NULL) {
            data[i] = sbit__arena_alloc(&t->arena, bytes + 1);
        }
        if (data == NULL || data[i] == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        memcpy(data[i], from->data, bytes);
    }
    if (t->range_count > 0 && data[count] == NULL) {
        data[count] = sbit__arena_alloc(&t->arena, t->range_count * sizeof(float));
    }
    if (t->range_count > 0 && data[count] == NULL) {
        return sbit__fail_oom(error, t->range_count * sizeof(float));
    }
    if (t->range_count > 0) {
        memcpy(data[count], t->ranges, t->range_count * sizeof(float));
    }
    s->data = data;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__train_give_back(sbit_trainer *t, const sbit__train_snapshot *s,
                                           sbit_error *error)
{
    sbit__qat_widen(t, 0);
    for (size_t i = 0; i < t->param_count; i++) {
        sbit__train_param *p = &t->params[i];
        memcpy(p->data.data, s->data[i], sbit_tensor_bytes(&p->data));
        sbit__train_mask(p);
        if (p->average != NULL) {
            memcpy(p->average, p->data.data, sbit_tensor_bytes(&p->data));
        }
    }
    for (size_t i = 0; i < t->statistic_count; i++) {
        sbit_tensor tensor = *sbit__train_statistic(t, i);
        tensor.data = s->data[t->param_count + i];
        SBIT__TRY(sbit_session_set_input(
            t->session, sbit_graph_value(t->graph, t->statistics[i].value)->name, &tensor, error));
    }
    t->ready = false;
    if (t->range_count > 0) {
        memcpy(t->ranges, s->data[t->param_count + t->statistic_count],
               t->range_count * sizeof(float));
    }
    return sbit__qat_ranges(t, error);
}

SPARSEBIT_API sbit_status sbit_trainer_mark(sbit_trainer *trainer, sbit_error *error)
{
    return sbit__train_take(trainer, &trainer->mark, error);
}

SPARSEBIT_API sbit_status sbit_trainer_rewind(sbit_trainer *trainer, sbit_error *error)
{
    if (trainer->mark.data == NULL) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "there is nothing to go back to: call sbit_trainer_mark first");
    }
    SBIT__TRY(sbit__train_give_back(trainer, &trainer->mark, error));
    for (size_t i = 0; i < trainer->param_count; i++) {
        sbit__train_param *p = &trainer->params[i];
        if (p->state != NULL) {
            memset(p->state, 0, p->state_bytes);
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_trainer_store(const sbit_trainer *trainer, sbit_graph *graph,
                                             sbit_error *error)
{
    for (size_t i = 0; i < trainer->param_count; i++) {
        const sbit__train_param *p = &trainer->params[i];
        sbit_tensor tensor = p->data;
        tensor.data = p->average != NULL && !trainer->swapped ? (void *)p->average : tensor.data;
        if (!p->borrowed) {
            SBIT__TRY(sbit__train_store(trainer, graph, p->value, &tensor, error));
        }
    }
    for (size_t i = 0; i < trainer->statistic_count; i++) {
        const sbit_value *value = sbit_session_state_at(trainer->session, i);
        if (value != NULL) {
            SBIT__TRY(sbit__train_store(trainer, graph, trainer->statistics[i].value,
                                        &value->tensor, error));
        }
    }
    return SBIT_OK;
}
