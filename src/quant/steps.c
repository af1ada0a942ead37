/* steps.c: the steps of a recipe: the table, when each runs, what they are made with. >>step-table
 */
#include "quant_private.h"

typedef const sbit_step_row *(*sbit__step_fn)(void);

static const sbit__step_fn sbit__step_table[] = {
#define SBIT__STEP_ENTRY(name) sbit__step_##name,
    SBIT__STEPS(SBIT__STEP_ENTRY)
#undef SBIT__STEP_ENTRY
};

SPARSEBIT_API const sbit_step_row *sbit_step_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__step_table) ? sbit__step_table[index]() : NULL;
}

static const sbit_head *sbit__step_head(size_t index)
{
    return (const sbit_head *)sbit_step_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_step(void)
{
    static const sbit__kind kind = {"step", sbit__step_head};
    return &kind;
}

SPARSEBIT_API const sbit_step_row *sbit_step_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_step_row *)(const void *)sbit__row_find(ctx, sbit__kind_step(), name);
}

SPARSEBIT_API sbit_status sbit_step_register(sbit_ctx *ctx, const sbit_step_row *row,
                                             sbit_error *error)
{
    return sbit__row_register(ctx, sbit__kind_step(), (const sbit_head *)row,
                              row != NULL && row->run != NULL, error);
}

/* >>step recipe */
static bool sbit__step_listed(const sbit_quant *quant, const sbit_step_row *row)
{
    const sbit_option *list = sbit_options_find(&quant->config->tree.top, "STEPS");
    for (size_t i = 0; i < list->list_count; i++) {
        if (sbit__same_word(list->list[i], row->head.name)) {
            return true;
        }
    }
    return false;
}

/* True if the recipe has it: it is listed, or QUANTIZER.TYPE of some site names it. */
static bool sbit__step_wanted(const sbit_quant *quant, const sbit_step_row *row)
{
    bool wanted = sbit__step_listed(quant, row);
    for (size_t i = 0; i < quant->site_count && !wanted; i++) {
        wanted = quant->sites[i].settings.step == row || quant->sites[i].settings.range_step == row;
    }
    return wanted;
}

/* Step `index` of a stage: those that are listed in their order, then the others; NULL: no more. */
static const sbit_step_row *sbit__step_next(const sbit_quant *quant, sbit_stage stage, size_t index)
{
    const sbit_option *list = sbit_options_find(&quant->config->tree.top, "STEPS");
    for (size_t i = 0; i < list->list_count; i++) {
        const sbit_step_row *row = sbit_step_find(quant->ctx, list->list[i]);
        if (row != NULL && row->stage == stage && index-- == 0) {
            return row;
        }
    }
    const sbit_head *head;
    for (size_t i = 0; (head = sbit__row_at(quant->ctx, sbit__kind_step(), i)) != NULL; i++) {
        const sbit_step_row *row = (const sbit_step_row *)(const void *)head;
        if (row->stage == stage && !sbit__step_listed(quant, row) &&
            sbit__step_wanted(quant, row) && index-- == 0) {
            return row;
        }
    }
    return NULL;
}

SBIT__FN bool sbit__steps_any(const sbit_quant *quant, sbit_stage stage)
{
    return sbit__step_next(quant, stage, 0) != NULL;
}

SBIT__FN bool sbit__steps_need_data(const sbit_quant *quant, sbit_stage stage)
{
    const sbit_step_row *row;
    for (size_t i = 0; (row = sbit__step_next(quant, stage, i)) != NULL; i++) {
        if (row->needs_data) {
            return true;
        }
    }
    return false;
}

/* Says whose it is, unless the text does. */
static sbit_status sbit__step_failed(const sbit_step_row *row, sbit_status status, sbit_error *error)
{
    const char *name = row->head.name;
    return error == NULL || strstr(error->message, name) != NULL
               ? status
               : sbit__fail(error, status, error->where, "step '%s': %s", name, error->message);
}

SBIT__FN sbit_status sbit__steps_run(sbit_quant *quant, sbit_stage stage, const sbit_feed *feed,
                                     sbit_error *error)
{
    const sbit_step_row *row;
    for (size_t i = 0; (row = sbit__step_next(quant, stage, i)) != NULL; i++) {
        if (row->needs_data && (feed == NULL || feed->read == NULL)) {
            return sbit__fail(error, SBIT_ERR_STATE, row->head.name,
                              "step '%s' reads calibration data: use sbit_quant_calibrate with a "
                              "feed",
                              row->head.name);
        }
        const sbit_status status = row->run(quant, &quant->config->tree.top, feed, error);
        if (status != SBIT_OK) {
            return sbit__step_failed(row, status, error);
        }
    }
    const sbit_options *top = &quant->config->tree.top;
    return stage == SBIT_STAGE_FLOAT_GRAPH && sbit__step_listed(quant, sbit__step_compensate()) &&
                   !sbit__same_word(sbit_options_string(top, "STEP.COMPENSATE.OPERATOR"), "none")
               ? sbit__beside_add(quant, error)
               : SBIT_OK;
}

/* >>step services */
SPARSEBIT_API sbit_graph *sbit_quant_float_graph(sbit_quant *quant)
{
    return quant->graph;
}

SPARSEBIT_API bool sbit_quant_asym(const sbit_quant *quant, sbit_walk_desc *desc)
{
    if (quant->asym) {
        desc->quantized = true;
        desc->float_weights = !quant->asym_weights;
        desc->float_activations = !quant->asym_activations;
    }
    return quant->asym;
}

/* The one layer that reads the weight of a site; node 0: none, or not as its weight. */
static sbit_unit sbit__unit_of(const sbit_quant *quant, size_t index)
{
    const sbit__site *site = &quant->sites[index];
    sbit_unit unit;
    memset(&unit, 0, sizeof unit);
    unit.site = index;
    if (site->target != SBIT_TARGET_WEIGHT || !site->enabled || sbit__site_is_float8(site) ||
        site->body != 0 || site->captured || site->uses == NULL || site->uses->next != NULL) {
        return unit;
    }
    const sbit_node *node = sbit_graph_node(quant->graph, site->uses->node);
    const sbit_op_row *row = sbit_operator_find(quant->ctx, node->domain, node->op_type,
                                                sbit_graph_opset(quant->graph, node->domain));
    if (row != NULL && row->quant != NULL && row->quant->weight == (int)site->uses->input &&
        (row->quant->activations & 1u) != 0) {
        unit.node = site->uses->node;
    }
    return unit;
}

SPARSEBIT_API size_t sbit_quant_units(const sbit_quant *quant, const sbit_step_row *step,
                                      sbit_unit *units, size_t capacity)
{
    size_t count = 0;
    const bool all = step == NULL || sbit__step_listed(quant, step);
    for (sbit_node_id id = sbit_graph_first(quant->graph); id.idx != 0;
         id = sbit_graph_next(quant->graph, id)) {
        const sbit_node *node = sbit_graph_node(quant->graph, id);
        for (size_t k = 0; k < node->input_count; k++) {
            sbit_quant *const own = (sbit_quant *)(uintptr_t)quant;
            for (const sbit__site *site =
                     sbit__site_on(own, quant->graph, node->inputs[k], SBIT_TARGET_WEIGHT);
                 site != NULL; site = sbit__site_after(own, site)) {
                const sbit_unit unit = sbit__unit_of(quant, (size_t)(site - quant->sites));
                if (unit.node.idx != id.idx || !(all || site->settings.step == step)) {
                    continue;
                }
                if (count < capacity) {
                    units[count] = unit;
                }
                count++;
            }
        }
    }
    return count;
}

SPARSEBIT_API sbit_status sbit_quant_set_weight(sbit_quant *quant, size_t site, const float *values,
                                                sbit_error *error)
{
    if (quant == NULL || values == NULL || site >= quant->site_count ||
        quant->sites[site].target != SBIT_TARGET_WEIGHT) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "a quant, the number of a weight's site and values are wanted");
    }
    sbit__site *s = &quant->sites[site];
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t bytes = (size_t)sbit_tensor_count(&sbit__site_value(s)->constant) * sizeof(float);
    float *copy = (float *)sbit__alloc(a, bytes);
    if (copy == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memcpy(copy, values, bytes);
    sbit__free(a, s->rounded, s->rounded_bytes);
    s->rounded = copy;
    s->rounded_bytes = bytes;
    s->raw = false;
    return SBIT_OK;
}
