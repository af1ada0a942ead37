/* quant.c: the public steps of post-training quantization. >>quant
 *
 * Holds the order of the steps and the session of the current mode; the work is in place.c,
 * calibrate.c and build.c.
 */
#include "quant_private.h"

/* >>quant create */
static void sbit__quant_release_sites(sbit_quant *quant)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site_release(quant, &quant->sites[i]);
    }
    quant->site_count = 0;
}

static bool sbit__quant_keeps_bn(const sbit_quant *quant)
{
    const sbit_options *top = &quant->config->tree.top;
    const bool tunes = sbit_options_bool(top, "SCHEDULE.BN_TUNING");
    return tunes ? !quant->bn_done : !sbit_options_bool(top, "SCHEDULE.FUSE_BN");
}

/* Finds the sites; lifts the graph to the opset that they need. */
static sbit_status sbit__quant_sites(sbit_quant *quant, sbit_error *error)
{
    sbit_simplify_desc simplify;
    memset(&simplify, 0, sizeof simplify);
    simplify.keep_batch_norm = sbit__quant_keeps_bn(quant);
    SBIT__TRY(sbit__qconfig_skip(quant->config, &quant->arena, &simplify, error));
    SBIT__TRY(sbit__quant_place(quant, error));
    const int64_t opset = sbit__quant_opset(quant);
    if (sbit_graph_opset(quant->graph, "") < opset) { /* lifting renumbers nodes: place again */
        SBIT__TRY(sbit_graph_lift_opset(quant->graph, opset, error));
        SBIT__TRY(sbit_simplify(quant->graph, &simplify, NULL, error));
        sbit__quant_release_sites(quant);
        SBIT__TRY(sbit__quant_place(quant, error));
    }
    SBIT__TRY(sbit__learned_apply(quant, &quant->learned, error));
    if (quant->site_count == 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "nothing in this model can be quantized: no float32 layer with a "
                          "constant weight was found for profile %s",
                          quant->profile->head.name);
    }
    return SBIT_OK;
}

/* Inputs with a default that serve as weights are inputs no more. */
static void sbit__quant_tell_fixed(const sbit_quant *quant, const sbit_graph *graph)
{
    char names[200] = "";
    int64_t count = 0;
    for (size_t i = 0; i < sbit_graph_input_count(graph); i++) {
        const sbit_value_info *info = sbit_graph_value(graph, sbit_graph_input(graph, i));
        const sbit_value_id now = sbit_graph_find_value(quant->graph, info->name);
        if (info->has_default && now.idx != 0 && !sbit_graph_value(quant->graph, now)->is_input) {
            const size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s'%s'", count++ > 0 ? ", " : "",
                     info->name);
        }
    }
    if (count > 0) {
        sbit__log(sbit_graph_ctx(graph), SBIT_LOG_WARNING,
                  "%lld inputs with default values serve as weights and become constants, which "
                  "cannot be fed any more: %s%s",
                  (long long)count, names, strlen(names) + 1 == sizeof names ? " ..." : "");
    }
}

/* What became of the scales of a model that was quantized already. */
static void sbit__quant_tell_scales(const sbit_quant *quant)
{
    size_t kept = 0;
    for (size_t i = 0; i < quant->site_count; i++) {
        kept += quant->sites[i].change.scale != NULL ? 1 : 0;
    }
    if (quant->learned.count > 0) {
        sbit__log(
            quant->ctx, SBIT_LOG_INFO,
            "the model is quantized already: %u of %u tensors keep its scales, the others get "
            "new ones (SCHEDULE.KEEP_SCALES: false gives all new ones)",
            (unsigned)kept, (unsigned)quant->site_count);
    }
}

SBIT__FN sbit_status sbit__quant_session(sbit_quant *quant, sbit_graph *graph,
                                         const sbit_session_desc *desc, sbit_session **out,
                                         sbit_error *error)
{
    sbit_error problem;
    const sbit_status status = sbit_session_create(graph, desc, out, &problem);
    if (status == SBIT_ERR_UNSUPPORTED && !sbit_quant_needs_data(quant)) {
        *out = NULL; /* weights alone: nothing has to run */
        return SBIT_OK;
    }
    if (status != SBIT_OK && error != NULL) {
        *error = problem;
    }
    return status;
}

static sbit_status sbit__quant_note_dropouts(sbit_quant *quant, sbit_error *error)
{
    const sbit_graph *graph = quant->graph;
    size_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        quant->dropout_count = 0;
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;
             id = sbit_graph_next(graph, id)) {
            const sbit_node *node = sbit_graph_node(graph, id);
            if (!sbit__is_op(node, "Dropout") ||
                sbit_graph_uses(graph, node->inputs[0], NULL, 0) != 1) {
                continue;
            }
            count++;
            if (pass == 1) {
                const sbit_tensor *ratio = sbit__const_in(graph, node, 1);
                sbit__quant_dropout *to = &quant->dropouts[quant->dropout_count++];
                const char *from = sbit_graph_value(graph, node->inputs[0])->name;
                const char *after = sbit_graph_value(graph, node->outputs[0])->name;
                to->from = sbit__arena_strdup(&quant->arena, from, strlen(from));
                to->to = sbit__arena_strdup(&quant->arena, after, strlen(after));
                to->ratio = ratio != NULL ? (float)sbit__tensor_f64_at(ratio, 0)
                                          : sbit_node_float(node, "ratio", 0.5f);
                if (to->from == NULL || to->to == NULL) {
                    return sbit__fail_oom(error, 1);
                }
            }
        }
        if (pass == 0) {
            quant->dropouts = (sbit__quant_dropout *)sbit__arena_array(
                &quant->arena, count + 1, sizeof *quant->dropouts);
            if (quant->dropouts == NULL) {
                return sbit__fail_oom(error, count * sizeof *quant->dropouts);
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__quant_fill(sbit_quant *quant, const sbit_graph *graph,
                                    const sbit_qconfig *config, sbit_error *error)
{
    sbit_simplify_desc simplify;
    memset(&simplify, 0, sizeof simplify);
    SBIT__TRY(sbit__qconfig_clone(config, &quant->config, error));
    SBIT__TRY(sbit_qconfig_validate(quant->config, error));
    quant->profile = sbit_qconfig_profile(quant->config);
    simplify.keep_batch_norm = sbit__quant_keeps_bn(quant);
    SBIT__TRY(sbit__qconfig_skip(quant->config, &quant->arena, &simplify, error));
    SBIT__TRY(sbit_graph_clone(graph, &quant->graph, error));
    if (sbit_graph_is_quantized(graph)) {
        const bool keep = sbit_options_bool(&quant->config->tree.top, "SCHEDULE.KEEP_SCALES");
        quant->learned.arena = &quant->arena;
        SBIT__TRY(sbit__dequantize(quant->graph, keep ? &quant->learned : NULL, error));
    }
    SBIT__TRY(sbit__quant_note_dropouts(quant, error));
    simplify.fix_defaults = true; /* weights have to stay what they are */
    SBIT__TRY(sbit_simplify(quant->graph, &simplify, NULL, error));
    sbit__quant_tell_fixed(quant, graph);
    if (!sbit__steps_need_data(quant, SBIT_STAGE_FLOAT_GRAPH)) {
        SBIT__TRY(sbit__steps_run(quant, SBIT_STAGE_FLOAT_GRAPH, NULL, error));
        quant->float_done = true;
    }
    SBIT__TRY(sbit__quant_sites(quant, error));
    sbit__quant_tell_scales(quant);
    return sbit__quant_session(quant, quant->graph, NULL, &quant->session, error);
}

SPARSEBIT_API sbit_status sbit_quant_create(const sbit_graph *graph, const sbit_qconfig *config,
                                            sbit_quant **out, sbit_error *error)
{
    if (graph == NULL || config == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "graph, config or out is NULL");
    }
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    const sbit_allocator *a = sbit_ctx_allocator(ctx);
    sbit_quant *quant = (sbit_quant *)sbit__calloc(a, 1, sizeof *quant);
    if (quant == NULL) {
        return sbit__fail_oom(error, sizeof *quant);
    }
    quant->ctx = ctx;
    sbit__arena_init(&quant->arena, a);
    const sbit_status status = sbit__quant_fill(quant, graph, config, error);
    if (status != SBIT_OK) {
        sbit_quant_destroy(quant);
        return status;
    }
    *out = quant;
    return SBIT_OK;
}

SBIT__FN void sbit__quant_drop_session(sbit_quant *quant)
{
    sbit_session_destroy(quant->session);
    sbit_graph_destroy(quant->simulated);
    quant->session = NULL;
    quant->simulated = NULL;
}

SPARSEBIT_API void sbit_quant_destroy(sbit_quant *quant)
{
    if (quant == NULL) {
        return;
    }
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    sbit__quant_drop_session(quant);
    sbit__quant_release_sites(quant);
    sbit__free(a, quant->sites, quant->site_capacity * sizeof *quant->sites);
    sbit_graph_destroy(quant->graph);
    sbit_qconfig_destroy(quant->config);
    sbit__arena_deinit(&quant->arena);
    sbit__free(a, quant, sizeof *quant);
}

/* >>quant modes */
/* Scales, and the steps before, between and behind them. */
static sbit_status sbit__quant_recipe(sbit_quant *quant, sbit_error *error)
{
    static const sbit_stage stages[] = {SBIT_STAGE_RANGES, SBIT_STAGE_SEARCH};
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site_search_forget(quant, &quant->sites[i]);
    }
    SBIT__TRY(sbit__steps_run(quant, SBIT_STAGE_SELECT, &quant->feed, error));
    SBIT__TRY(sbit__quant_calc(quant, error));
    quant->calibrated = true;
    for (size_t i = 0; i < SBIT__COUNT_OF(stages); i++) {
        if (sbit__steps_any(quant, stages[i])) {
            SBIT__TRY(sbit__steps_run(quant, stages[i], &quant->feed, error));
            SBIT__TRY(sbit__quant_calc(quant, error)); /* with what they set */
            quant->calibrated = true;
        }
    }
    SBIT__TRY(sbit__steps_run(quant, SBIT_STAGE_WEIGHTS, &quant->feed, error));
    return sbit__steps_run(quant, SBIT_STAGE_AFTER, &quant->feed, error);
}

SPARSEBIT_API sbit_status sbit_quant_calc_qparams(sbit_quant *quant, bool asym, bool weights,
                                                  bool activations, sbit_error *error)
{
    if (quant == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant is NULL");
    }
    if (!quant->prepared) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "call sbit_quant_calibrate first (or sbit_quant_prepare_calibration, and "
                          "feed data)");
    }
    if (!quant->fed && sbit_quant_needs_data(quant)) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "the calibration set is empty: no batch was fed to sbit_quant_forward");
    }
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *site = &quant->sites[i];
        if (sbit__quant_observes(site) && site->observer_state == NULL) {
            return sbit__fail(error, SBIT_ERR_STATE, site->tensor,
                              "observer '%s' of tensor '%s' has seen no data with these settings; "
                              "calibrate again",
                              site->settings.observer->head.name, site->tensor);
        }
    }
    if (quant->pass_open) { /* data that was pushed cannot be read again */
        bool wanted;
        SBIT__TRY(sbit__calibrate_again(quant, &wanted, error));
    }
    sbit__quant_drop_session(quant); /* what it holds is not needed, steps need memory */
    quant->calibrating = false;
    const bool always = sbit_options_bool(&quant->config->tree.top, "SCHEDULE.ASYM");
    quant->asym_weights = weights || always;
    quant->asym_activations = activations || always;
    quant->asym = always || (asym && (weights || activations)); /* else inputs are float anyway */
    sbit_status status = sbit__quant_recipe(quant, error);
    quant->asym = false;
    quant->calibrated = status == SBIT_OK;
    SBIT__TRY(status);
    return sbit_quant_set_quant(quant, false, false, error);
}

SPARSEBIT_API sbit_status sbit_quant_set_quant(sbit_quant *quant, bool weights, bool activations,
                                               sbit_error *error)
{
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    sbit_session_desc simulate;
    memset(&simulate, 0, sizeof simulate);
    simulate.disable_integers = true;
    if (quant == NULL || !quant->calibrated) {
        return sbit__fail(error, quant == NULL ? SBIT_ERR_INVALID_ARGUMENT : SBIT_ERR_STATE, NULL,
                          "call sbit_quant_calc_qparams first");
    }
    if (weights || activations) {
        sbit_quant_build_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.format = "qdq";
        desc.float_weights = !weights;
        desc.float_activations = !activations;
        SBIT__TRY(sbit__quant_build(quant, &desc, true, &graph, error));
    }
    const sbit_status status = sbit__quant_session(quant, graph != NULL ? graph : quant->graph,
                                                   &simulate, &session, error);
    if (status != SBIT_OK) {
        sbit_graph_destroy(graph);
        return status;
    }
    sbit__quant_drop_session(quant);
    quant->session = session;
    quant->simulated = graph;
    quant->use_weights = weights;
    quant->use_activations = activations;
    return SBIT_OK;
}

/* >>quant export */
SPARSEBIT_API sbit_status sbit_quant_export_onnx(sbit_quant *quant, const char *path,
                                                 const sbit_onnx_write_desc *desc,
                                                 sbit_error *error)
{
    sbit_graph *graph = NULL;
    SBIT__TRY(sbit_quant_build(quant, NULL, &graph, error));
    sbit_status status = sbit_graph_validate(graph, error);
    if (status == SBIT_OK) {
        status = sbit_graph_save(graph, path, desc, error);
    }
    sbit_graph_destroy(graph);
    return status;
}

/* >>quant sites */
SPARSEBIT_API const sbit_graph *sbit_quant_graph(const sbit_quant *quant)
{
    return quant->graph;
}

SPARSEBIT_API size_t sbit_quant_site_count(const sbit_quant *quant)
{
    return quant->site_count;
}

SPARSEBIT_API sbit_status sbit_quant_site(const sbit_quant *quant, size_t index, sbit_site *out)
{
    if (quant == NULL || out == NULL || index >= quant->site_count) {
        return SBIT_ERR_INVALID_ARGUMENT;
    }
    const sbit__site *site = &quant->sites[index];
    memset(out, 0, sizeof *out);
    out->layer = site->layer_name;
    out->tensor = site->tensor;
    out->value.idx = site->body == 0 ? site->value.idx : 0;
    out->target = site->target;
    out->enabled = site->enabled;
    out->reason = site->reason;
    out->observer = (site->ranged != NULL ? site->ranged : site->settings.observer)->head.name;
    out->quantizer = site->settings.step != NULL ? site->settings.step->head.name
                                                 : site->settings.quantizer->head.name;
    out->qparams.grid = site->settings.grid;
    out->qparams.axis = site->axis;
    out->qparams.block = site->block;
    if (quant->calibrated && site->enabled) {
        out->qparams.scale = site->scale;
        out->qparams.zero_point = site->zero_point;
        for (int64_t c = 0; c < sbit__site_parts(site); c++) {
            out->min = c == 0 || site->min[c] < out->min ? site->min[c] : out->min;
            out->max = c == 0 || site->max[c] > out->max ? site->max[c] : out->max;
        }
    }
    return SBIT_OK;
}

static bool sbit__quant_change_ok(const sbit__site *site, const sbit_site_change *change)
{
    const bool both = (change->scale != NULL) == (change->zero_point != NULL);
    bool ok = both && (change->bits == 0 || (change->bits >= 2 && change->bits <= 16));
    for (int64_t i = 0; ok && change->scale != NULL && i < sbit__site_parts(site); i++) {
        const float s = change->scale[i];
        ok = s > 0.0f && s - s == 0.0f;
    }
    return ok;
}

SPARSEBIT_API sbit_status sbit_quant_set_site(sbit_quant *quant, size_t index,
                                              const sbit_site_change *change, sbit_error *error)
{
    if (quant == NULL || change == NULL || index >= quant->site_count ||
        !sbit__quant_change_ok(&quant->sites[index], change)) {
        return sbit__fail(
            error, SBIT_ERR_INVALID_ARGUMENT, NULL,
            "a site below %u, 2 to 16 bits (or 0), and scales above 0 with their zero "
            "points (or neither) are wanted",
            (unsigned)(quant != NULL ? quant->site_count : 0));
    }
    sbit__site *site = &quant->sites[index];
    const size_t parts = (size_t)sbit__site_parts(site);
    sbit_site_change kept = *change;
    if (change->scale != NULL) {
        float *scale = (float *)sbit__arena_array(&quant->arena, parts, sizeof *scale);
        int32_t *zero_point =
            (int32_t *)sbit__arena_array(&quant->arena, parts, sizeof *zero_point);
        if (scale == NULL || zero_point == NULL) {
            return sbit__fail_oom(error, parts * 8);
        }
        memcpy(scale, change->scale, parts * sizeof *scale);
        memcpy(zero_point, change->zero_point, parts * sizeof *zero_point);
        kept.scale = scale;
        kept.zero_point = zero_point;
    }
    site->change = kept;
    site->learned = false;
    sbit__settings_bits(quant->config, site->target,
                        change->bits != 0
                            ? change->bits
                            : (int32_t)sbit_options_int(&site->settings.options, "QUANTIZER.BIT"),
                        &site->settings);
    quant->calibrated = false;
    return SBIT_OK;
}

/* Takes over from `old` what belongs to the same tensor: wishes, and statistics if the same
 * observer with the same options makes them. */
static void sbit__quant_adopt(sbit_quant *quant, sbit__site *site, sbit__site *old)
{
    const bool same =
        site->settings.observer == old->settings.observer &&
        site->settings.quantizer == old->settings.quantizer && site->axis == old->axis &&
        site->block == old->block && sbit__site_parts(site) == sbit__site_parts(old) &&
        sbit__same_options(&site->settings.options, &old->settings.options, "OBSERVER.");
    if (same && old->observer_state != NULL && site->observer_state == NULL) {
        site->observer_state = old->observer_state;
        site->quantizer_state = old->quantizer_state;
        site->observer_bytes = old->observer_bytes;
        site->quantizer_bytes = old->quantizer_bytes;
        site->observed = old->observed;
        old->observer_state = old->quantizer_state = NULL;
    }
    const bool wish = !old->learned && (old->change.enable != 0 || old->change.bits != 0 ||
                                        old->change.scale != NULL);
    if (wish && (sbit__site_parts(site) == sbit__site_parts(old) || old->change.scale == NULL)) {
        site->change = old->change;
        site->learned = false;
        if (old->change.bits != 0) {
            sbit__settings_bits(quant->config, site->target, old->change.bits, &site->settings);
        }
    }
}

/* Finds the sites anew and hands over what the old ones know. */
static sbit_status sbit__quant_renew(sbit_quant *quant, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    sbit__site *old = quant->sites;
    const size_t count = quant->site_count, capacity = quant->site_capacity;
    quant->sites = NULL;
    quant->site_count = quant->site_capacity = 0;
    quant->calibrated = false;
    sbit_status status = sbit__quant_sites(quant, error);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; status == SBIT_OK && k < quant->site_count; k++) {
            sbit__site *site = &quant->sites[k];
            if (site->body == old[i].body && site->target == old[i].target &&
                sbit__streq(sbit__site_value(site)->name, old[i].tensor)) {
                sbit__quant_adopt(quant, site, &old[i]);
            }
        }
        sbit__site_release(quant, &old[i]);
    }
    sbit__free(a, old, capacity * sizeof *old);
    return status;
}

SBIT__FN sbit_status sbit__quant_float_steps(sbit_quant *quant, const sbit_feed *feed,
                                             sbit_error *error)
{
    if (quant->float_done) {
        return SBIT_OK;
    }
    sbit__quant_drop_session(quant);
    SBIT__TRY(sbit__steps_run(quant, SBIT_STAGE_FLOAT_GRAPH, feed, error));
    quant->float_done = true;
    return sbit__quant_renew(quant, error);
}

/* Gives the float graph's BatchNormalization the statistics that those of `tuned` have; both are
 * copies of one graph. */
static sbit_status sbit__quant_take_statistics(sbit_quant *quant, const sbit_graph *tuned,
                                               sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(quant->graph); id.idx != 0;
         id = sbit_graph_next(quant->graph, id)) {
        const sbit_node *node = sbit_graph_node(quant->graph, id);
        if (!sbit__streq(node->op_type, "BatchNormalization") || node->input_count != 5) {
            continue;
        }
        for (size_t i = 3; i < 5; i++) {
            const sbit_value_info *from =
                sbit_graph_value(tuned, sbit_graph_node(tuned, id)->inputs[i]);
            sbit_value_id own;
            if (!from->is_constant) {
                continue;
            }
            SBIT__TRY(
                sbit_graph_add_constant(quant->graph, from->name, &from->constant, &own, error));
            SBIT__TRY(sbit_graph_set_node_input(quant->graph, id, i, own, error));
        }
    }
    return SBIT_OK;
}

/* SCHEDULE.BN_TUNING: the statistics of BatchNormalization follow the quantized weights in front of
 * it; then it is folded. Activations stay float meanwhile: their ranges were those of the old
 * statistics. */
SBIT__FN sbit_status sbit__quant_tune_bn(sbit_quant *quant, const sbit_feed *feed,
                                         sbit_error *error)
{
    sbit_graph *built = NULL;
    sbit_simplify_desc simplify;
    sbit_quant_build_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.format = "qdq";
    desc.float_activations = true;
    SBIT__TRY(sbit_quant_calc_qparams(quant, false, false, false, error));
    SBIT__TRY(sbit__quant_build(quant, &desc, true, &built, error));
    sbit__quant_drop_session(quant);
    sbit_status status = sbit_reestimate_bn(built, feed, error);
    if (status == SBIT_OK) {
        status = sbit__quant_take_statistics(quant, built, error);
    }
    sbit_graph_destroy(built);
    SBIT__TRY(status);
    quant->bn_done = true;
    memset(&simplify, 0, sizeof simplify);
    SBIT__TRY(sbit_simplify(quant->graph, &simplify, NULL, error));
    return sbit__quant_renew(quant, error);
}

SPARSEBIT_API sbit_status sbit_quant_set(sbit_quant *quant, const char *path, const char *value,
                                         sbit_error *error)
{
    sbit_qconfig *config = NULL;
    if (quant == NULL || path == NULL || value == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant, path or value is NULL");
    }
    if (strncmp(path, "SCHEDULE.", 9) == 0 &&
        !sbit__streq(path, "SCHEDULE.DISABLE_UNNECESSARY_QUANT")) {
        return sbit__fail(error, SBIT_ERR_STATE, path,
                          "%s changes the float graph: set it before sbit_quant_create", path);
    }
    SBIT__TRY(sbit__qconfig_clone(quant->config, &config, error));
    sbit_status status = sbit_qconfig_set(config, path, value, error);
    status = status == SBIT_OK ? sbit_qconfig_validate(config, error) : status;
    if (status != SBIT_OK) {
        sbit_qconfig_destroy(config);
        return status;
    }
    sbit__quant_drop_session(quant);
    sbit_qconfig *before = quant->config;
    quant->config = config;
    quant->profile = sbit_qconfig_profile(config);
    status = sbit__quant_renew(quant, error);
    sbit_qconfig_destroy(before); /* the old sites' options pointed to its keys */
    SBIT__TRY(status);
    return sbit__quant_session(quant, quant->graph, NULL, &quant->session, error);
}

/* >>quant in one call */
static sbit_status sbit__quantize(sbit_quant *quant, const sbit_feed *feed, sbit_graph **out,
                                  sbit_error *error)
{
    if (feed != NULL) {
        SBIT__TRY(sbit_quant_calibrate(quant, feed, error));
    } else {
        SBIT__TRY(sbit_quant_prepare_calibration(quant, error));
    }
    SBIT__TRY(sbit_quant_calc_qparams(quant, false, false, false, error));
    return sbit_quant_build(quant, NULL, out, error);
}

SPARSEBIT_API sbit_status sbit_quantize(const sbit_graph *graph, const sbit_qconfig *config,
                                        const sbit_feed *feed, sbit_graph **out, sbit_error *error)
{
    sbit_qconfig *standard = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *built = NULL;
    sbit_status status = SBIT_OK;
    if (graph == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "graph or out is NULL");
    }
    if (config == NULL) {
        status = sbit_qconfig_create(sbit_graph_ctx(graph), NULL, &standard, error);
    }
    if (status == SBIT_OK) {
        status = sbit_quant_create(graph, config != NULL ? config : standard, &quant, error);
    }
    if (status == SBIT_OK) {
        status = sbit__quantize(quant, feed, &built, error);
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(standard);
    if (status == SBIT_OK) {
        *out = built;
    }
    return status;
}
