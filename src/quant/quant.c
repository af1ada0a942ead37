/* quant.c: the public steps of post-training quantization. >>quant
 *
 * Holds the order of the steps and the session of the current mode; the work is in place.c,
 * calibrate.c and build.c.
 */
#include "quant_private.h"

/* >>quant create */
/* Per-channel Q/DQ needs opset 13, half-precision floats 19, 16-bit and 4-bit storage 21. */
static int64_t sbit__quant_opset(const sbit_quant *quant)
{
    int64_t opset = 13;
    for (size_t i = 0; i < quant->site_count; i++) {
        const int32_t bits = quant->sites[i].settings.grid.bits;
        const bool int4 = bits == 4 && sbit_options_bool(&quant->config->tree.top, "EXPORT.INT4");
        if (quant->sites[i].enabled && (bits > 8 || int4)) {
            return 21;
        }
        opset = quant->sites[i].dtype != SBIT_F32 ? 19 : opset;
    }
    return opset;
}

static void sbit__quant_release_sites(sbit_quant *quant)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site_release(quant, &quant->sites[i]);
    }
    quant->site_count = 0;
}

static sbit_status sbit__quant_fill(sbit_quant *quant, const sbit_graph *graph,
                                    const sbit_qconfig *config, sbit_error *error)
{
    sbit_simplify_desc simplify;
    memset(&simplify, 0, sizeof simplify);
    SBIT__TRY(sbit__qconfig_clone(config, &quant->config, error));
    SBIT__TRY(sbit_qconfig_validate(quant->config, error));
    quant->profile = sbit_qconfig_profile(quant->config);
    simplify.keep_batch_norm = !sbit_options_bool(&quant->config->tree.top, "SCHEDULE.FUSE_BN") ||
                               sbit_options_bool(&quant->config->tree.top, "SCHEDULE.BN_TUNING");
    SBIT__TRY(sbit_graph_clone(graph, &quant->graph, error));
    SBIT__TRY(sbit_simplify(quant->graph, &simplify, NULL, error));
    SBIT__TRY(sbit__quant_place(quant, error));
    const int64_t opset = sbit__quant_opset(quant);
    if (sbit_graph_opset(quant->graph, "") < opset) { /* lifting renumbers nodes: place again */
        SBIT__TRY(sbit_graph_lift_opset(quant->graph, opset, error));
        SBIT__TRY(sbit_simplify(quant->graph, &simplify, NULL, error));
        sbit__quant_release_sites(quant);
        SBIT__TRY(sbit__quant_place(quant, error));
    }
    if (quant->site_count == 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "nothing in this model can be quantized: no float32 layer with a "
                          "constant weight was found for profile %s",
                          quant->profile->head.name);
    }
    return sbit_session_create(quant->graph, NULL, &quant->session, error);
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

static void sbit__quant_drop_session(sbit_quant *quant)
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

/* >>quant calibrate */
static bool sbit__quant_observes(const sbit__site *site)
{
    return site->enabled && site->target == SBIT_TARGET_ACTIVATION && !site->fixed_range;
}

SPARSEBIT_API bool sbit_quant_needs_data(const sbit_quant *quant)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        if (sbit__quant_observes(&quant->sites[i])) {
            return true;
        }
    }
    return false;
}

/* The session's tap: hands a value to every site on it. */
static sbit_status sbit__quant_tap(const sbit_graph *graph, sbit_value_id id,
                                   const sbit_value *value, void *user, sbit_error *error)
{
    sbit_quant *quant = (sbit_quant *)user;
    const bool root = sbit_graph_parent(graph) == NULL;
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        const bool here = root ? site->body == 0 : site->graph == graph;
        if (here && site->value.idx == id.idx && sbit__quant_observes(site)) {
            SBIT__TRY(sbit__site_observe(quant, site, &value->tensor, error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__quant_calibration_session(sbit_quant *quant, sbit_session **out,
                                                   sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    sbit_session_desc desc;
    sbit_value_id *taps = (sbit_value_id *)sbit__calloc(a, quant->site_count, sizeof *taps);
    if (taps == NULL) {
        return sbit__fail_oom(error, quant->site_count * sizeof *taps);
    }
    memset(&desc, 0, sizeof desc);
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *site = &quant->sites[i];
        bool listed = !sbit__quant_observes(site) || site->body != 0;
        desc.tap_bodies = desc.tap_bodies || (sbit__quant_observes(site) && site->body != 0);
        for (size_t j = 0; j < desc.tap_count && !listed; j++) {
            listed = taps[j].idx == site->value.idx;
        }
        if (!listed) {
            taps[desc.tap_count++] = site->value;
        }
    }
    desc.tap_fn = sbit__quant_tap;
    desc.tap_user = quant;
    desc.taps = taps;
    const sbit_status status = sbit_session_create(quant->graph, &desc, out, error);
    sbit__free(a, taps, quant->site_count * sizeof *taps);
    return status;
}

SPARSEBIT_API sbit_status sbit_quant_prepare_calibration(sbit_quant *quant, sbit_error *error)
{
    sbit_session *session = NULL;
    if (quant == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant is NULL");
    }
    for (size_t i = 0; i < quant->site_count; i++) {
        if (quant->sites[i].enabled) {
            SBIT__TRY(sbit__site_prepare(quant, &quant->sites[i], error));
        }
    }
    SBIT__TRY(sbit__quant_calibration_session(quant, &session, error));
    sbit__quant_drop_session(quant);
    quant->session = session;
    quant->calibrating = true;
    quant->calibrated = quant->use_weights = quant->use_activations = false;
    quant->batches_seen = 0;
    return SBIT_OK;
}

/* Runs a batch of which `samples` count (-1: all). */
static sbit_status sbit__quant_run(sbit_quant *quant, const char *const *names,
                                   const sbit_tensor *inputs, size_t input_count, int64_t samples,
                                   sbit_error *error)
{
    if (quant->session == NULL) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL, "the last change of mode failed");
    }
    if (names == NULL && (input_count != 1 || sbit_session_input_count(quant->session) != 1)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the model has %u inputs: pass their names",
                          (unsigned)sbit_session_input_count(quant->session));
    }
    quant->rows = 0;
    for (size_t i = 0; i < input_count; i++) {
        const char *name =
            names != NULL ? names[i] : sbit_session_input_info(quant->session, 0)->name;
        SBIT__TRY(sbit_session_set_input(quant->session, name, &inputs[i], error));
        quant->rows = quant->rows == 0 && inputs[i].rank > 0 ? inputs[i].dims[0] : quant->rows;
    }
    quant->samples = samples >= 0 ? samples : quant->rows;
    SBIT__TRY(sbit_session_run(quant->session, error));
    quant->batches_seen += quant->calibrating && (quant->rows > 0 || input_count == 0) ? 1 : 0;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_quant_forward(sbit_quant *quant, const char *const *names,
                                             const sbit_tensor *inputs, size_t input_count,
                                             sbit_error *error)
{
    if (quant == NULL || (inputs == NULL && input_count > 0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant or inputs is NULL");
    }
    return sbit__quant_run(quant, names, inputs, input_count, -1, error);
}

SPARSEBIT_API sbit_status sbit_quant_calibrate(sbit_quant *quant, const sbit_feed *feed,
                                               sbit_error *error)
{
    if (quant == NULL || feed == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant or feed is NULL");
    }
    SBIT__TRY(sbit_quant_prepare_calibration(quant, error));
    sbit_batch batch;
    for (int64_t at = 0; at < feed->count && sbit_quant_needs_data(quant); at += batch.samples) {
        SBIT__TRY(sbit__progress(quant->ctx, "calibrate", at, feed->count, error));
        SBIT__TRY(sbit_feed_read(feed, at, 0, &batch, error));
        quant->index = batch.index;
        const sbit_status status = sbit__quant_run(quant, batch.names, batch.inputs,
                                                   batch.input_count, batch.samples, error);
        quant->index = NULL;
        SBIT__TRY(status);
    }
    return sbit__progress(quant->ctx, "calibrate", feed->count, feed->count, error);
}

SPARSEBIT_API const sbit_value *sbit_quant_output(const sbit_quant *quant, size_t index)
{
    return quant->session != NULL ? sbit_session_output(quant->session, index) : NULL;
}

SPARSEBIT_API sbit_status sbit_quant_calc_qparams(sbit_quant *quant, sbit_error *error)
{
    if (quant == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant is NULL");
    }
    if (!quant->calibrating) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "call sbit_quant_prepare_calibration and feed data first");
    }
    if (quant->batches_seen == 0 && sbit_quant_needs_data(quant)) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "the calibration set is empty: no batch was fed to sbit_quant_forward");
    }
    SBIT__TRY(sbit__quant_calc(quant, error));
    quant->calibrating = false;
    quant->calibrated = true;
    return sbit_quant_set_quant(quant, false, false, error);
}

SPARSEBIT_API sbit_status sbit_quant_set_quant(sbit_quant *quant, bool weights, bool activations,
                                               sbit_error *error)
{
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    if (quant == NULL || !quant->calibrated) {
        return sbit__fail(error, quant == NULL ? SBIT_ERR_INVALID_ARGUMENT : SBIT_ERR_STATE, NULL,
                          "call sbit_quant_calc_qparams first");
    }
    if (weights || activations) {
        SBIT__TRY(sbit_quant_build(quant, weights, activations, &graph, error));
    }
    const sbit_status status =
        sbit_session_create(graph != NULL ? graph : quant->graph, NULL, &session, error);
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
    SBIT__TRY(sbit_quant_build(quant, true, true, &graph, error));
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
    out->tensor = sbit__site_value(site)->name;
    out->value.idx = site->body == 0 ? site->value.idx : 0;
    out->target = site->target;
    out->enabled = site->enabled;
    out->reason = site->reason;
    out->observer = site->settings.observer->head.name;
    out->quantizer = site->settings.quantizer->head.name;
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
