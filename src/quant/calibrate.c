/* calibrate.c: what sites observe: states, pieces of data without their padding. >>calibrate
 */
#include "quant_private.h"

SBIT__FN sbit_status sbit__site_arrays(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const size_t parts = (size_t)sbit__site_parts(site);
    if (site->piece != NULL) {
        return SBIT_OK;
    }
    site->piece = (float *)sbit__arena_array(&quant->arena, 7 * parts + 1, sizeof(float));
    site->zero_point = (int32_t *)sbit__arena_array(&quant->arena, parts + 1, sizeof(int32_t));
    if (site->piece == NULL || site->zero_point == NULL) {
        site->piece = NULL;
        return sbit__fail_oom(error, parts * 32);
    }
    site->own_min = site->piece + 2 * parts;
    site->own_max = site->own_min + parts;
    site->min = site->own_max + parts;
    site->max = site->min + parts;
    site->scale = site->max + parts;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__site_fresh_quantizer(sbit_quant *quant, sbit__site *site,
                                                sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const sbit_quantizer_row *row = site->settings.quantizer;
    const sbit_quantizer_call call = sbit__site_quantizer(quant, site);
    if (site->quantizer_state != NULL && row->deinit != NULL) {
        row->deinit(site->quantizer_state, &call);
    }
    sbit__free(a, site->quantizer_state, site->quantizer_bytes);
    site->quantizer_bytes = row->state_bytes(&call) + 1;
    site->quantizer_state = sbit__calloc(a, 1, site->quantizer_bytes);
    return site->quantizer_state != NULL ? SBIT_OK : sbit__fail_oom(error, site->quantizer_bytes);
}

SBIT__FN sbit_status sbit__site_prepare(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    sbit__site_release(quant, site);
    SBIT__TRY(sbit__site_arrays(quant, site, error));
    SBIT__TRY(sbit__site_fresh_quantizer(quant, site, error));
    site->observer_bytes = site->settings.observer->state_bytes(&observer) + 1;
    site->observer_state = sbit__calloc(a, 1, site->observer_bytes);
    if (site->observer_state == NULL) {
        return sbit__fail_oom(error, site->observer_bytes);
    }
    return site->settings.observer->init(site->observer_state, &observer, error);
}

SBIT__FN void sbit__site_release(sbit_quant *quant, sbit__site *site)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    const sbit_quantizer_call quantizer = sbit__site_quantizer(quant, site);
    if (site->quantizer_state != NULL && site->settings.quantizer->deinit != NULL) {
        site->settings.quantizer->deinit(site->quantizer_state, &quantizer);
    }
    if (site->observer_state != NULL && site->settings.observer->deinit != NULL) {
        site->settings.observer->deinit(site->observer_state, &observer);
    }
    sbit__free(a, site->observer_state, site->observer_bytes);
    sbit__free(a, site->quantizer_state, site->quantizer_bytes);
    site->observer_state = site->quantizer_state = NULL;
    site->observed = site->warned = false;
    site->extreme = site->second = 0.0f;
    site->rest = 0.0;
    site->extreme_count = site->rest_count = 0;
    sbit__site_forget_rounding(quant, site);
}

SBIT__FN void sbit__site_forget_weight(sbit_quant *quant, sbit__site *site)
{
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    if (sbit__quantizer_statistics(site->settings.quantizer, site->target,
                                   &site->settings.options) != NULL) {
        return; /* init reads it */
    }
    if (site->settings.observer->deinit != NULL) {
        site->settings.observer->deinit(site->observer_state, &observer);
    }
    sbit__free(sbit_ctx_allocator(quant->ctx), site->observer_state, site->observer_bytes);
    site->observer_state = NULL;
}

/* The axis on which a tensor has the samples of the batch: the first, if whole rows fit on it, else
 * the first that is as long; -1: it has none. */
static int32_t sbit__batch_axis(const sbit_quant *quant, const sbit_tensor *tensor)
{
    const int64_t rows = quant->rows;
    if (rows < 1 || tensor->rank == 0) {
        return -1;
    }
    int32_t axis = tensor->dims[0] % rows == 0 ? 0 : 1;
    while (axis > 0 && axis < tensor->rank && tensor->dims[axis] != rows) {
        axis++;
    }
    return axis < tensor->rank ? axis : -1;
}

/* "" or " (sample 17)": where the first value that is not finite lies. */
static void sbit__bad_sample(const sbit_quant *quant, const sbit_tensor *tensor, const float *data,
                             char *text, size_t size)
{
    const int64_t count = sbit_tensor_count(tensor);
    const int32_t axis = sbit__batch_axis(quant, tensor);
    int64_t at = 0, inner = 1;
    while (at < count && data[at] - data[at] == 0.0f) {
        at++;
    }
    text[0] = '\0';
    for (int32_t i = axis + 1; axis >= 0 && i < tensor->rank; i++) {
        inner *= tensor->dims[i];
    }
    if (axis >= 0 && at < count) {
        const int64_t row = at / inner % tensor->dims[axis] / (tensor->dims[axis] / quant->rows);
        const int64_t sample =
            quant->index != NULL && row < quant->samples ? quant->index[row] : row;
        snprintf(text, size, " (sample %lld)", (long long)sample);
    }
}

/* Fills in the smallest and largest of x; an error where a value is not finite. */
static sbit_status sbit__site_measure(sbit_quant *quant, const sbit__site *site,
                                      const sbit_tensor *tensor, sbit_observation *x,
                                      sbit_error *error)
{
    const char *name = sbit__site_value(site)->name;
    float *min = site->piece, *max = min + sbit__site_parts(site);
    if (!sbit__observation_measure(quant->ctx, x->data, &x->parts, min, max)) {
        char where[40];
        sbit__bad_sample(quant, tensor, x->data, where, sizeof where);
        return sbit__fail(error, SBIT_ERR_NUMERIC, name,
                          "tensor '%s' has values that are not finite (NaN or infinity)%s; check "
                          "the data and its preprocessing",
                          name, where);
    }
    x->min = min;
    x->max = max;
    return SBIT_OK;
}

/* What the quantizer makes of x, where it has a domain of its own; `seen` has room for it. */
static sbit_status sbit__site_domain(sbit_quant *quant, sbit__site *site, const sbit_tensor *tensor,
                                     sbit_observation *x, float *seen, sbit_error *error)
{
    const sbit_quantizer_call call = sbit__site_quantizer(quant, site);
    SBIT__TRY(site->settings.quantizer->domain(site->quantizer_state, &call, x, seen, error));
    x->data = seen;
    return sbit__site_measure(quant, site, tensor, x, error);
}

/* Scores more than 20 below the largest of their Softmax row are nothing behind it: they widen no
 * range. y gets x with such values raised; returns false, y untouched, if there are none. */
static bool sbit__softmax_view(const sbit__site *site, const sbit_tensor *shape, const float *x,
                               float *y)
{
    const int32_t axis =
        site->softmax_axis < 0 ? site->softmax_axis + shape->rank : site->softmax_axis;
    int64_t outer = 1, row = 1, inner = 1;
    bool apart = false;
    for (int32_t i = 0; i < shape->rank; i++) {
        int64_t *part = i < axis ? &outer : i == axis || site->softmax_rest ? &row : &inner;
        *part *= shape->dims[i];
    }
    for (int pass = 0; pass < 2; pass++) { /* look, then write */
        for (int64_t r = 0; r < outer * inner && (pass == 0 || apart); r++) {
            const int64_t at = r / inner * row * inner + r % inner;
            float most = x[at];
            for (int64_t i = 1; i < row; i++) {
                most = x[at + i * inner] > most ? x[at + i * inner] : most;
            }
            for (int64_t i = 0; i < row; i++) {
                const float value = x[at + i * inner];
                apart = apart || value < most - 20.0f;
                if (pass == 1) {
                    y[at + i * inner] = value < most - 20.0f ? most - 20.0f : value;
                }
            }
        }
    }
    return apart;
}

/* Notes the extreme of an activation and the size of the rest: a mask's -1e9 beside scores is the
 * same number again and again, and far from everything else. Some 4,096 values a piece are looked
 * at. */
static void sbit__site_note_extreme(sbit__site *site, const sbit_tensor *tensor, const float *data)
{
    const int64_t n = sbit_tensor_count(tensor), step = n / 4096 + 1;
    const float low = fabsf(site->piece[0]), high = fabsf(site->piece[1]);
    const float extreme = low > high ? low : high;
    if (site->target != SBIT_TARGET_ACTIVATION || sbit__site_parts(site) != 1) {
        return;
    }
    if (extreme > site->extreme) {
        site->second = site->extreme;
        site->extreme = extreme;
        site->extreme_count = 0;
    }
    for (int64_t i = 0; i < n; i += step) {
        const float size = fabsf(data[i]);
        if (size < site->extreme) {
            site->rest += (double)size;
            site->rest_count++;
            site->second = size > site->second ? size : site->second;
        } else {
            site->extreme_count++;
        }
    }
}

/* Feeds float32 data laid out as `tensor`. */
static sbit_status sbit__site_observe_f32(sbit_quant *quant, sbit__site *site,
                                          const sbit_tensor *tensor, const float *data,
                                          sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    const char *name = sbit__site_value(site)->name;
    const size_t bytes = (size_t)sbit_tensor_count(tensor) * sizeof(float);
    float *seen = NULL;
    if (site->axis >= 0 &&
        (site->axis >= tensor->rank ||
         sbit_parts_of(tensor, site->axis, site->block).count != sbit__site_parts(site))) {
        return sbit__fail(
            error, SBIT_ERR_SHAPE, name,
            "tensor '%s': its %lld entries on axis %d are not the planned number", name,
            (long long)(site->axis < tensor->rank ? tensor->dims[site->axis] : 0), (int)site->axis);
    }
    sbit_observation x = sbit__site_observation(site, tensor, data);
    SBIT__TRY(sbit__site_measure(quant, site, tensor, &x, error));
    sbit__site_note_extreme(site, tensor, data);
    sbit_status status = SBIT_OK;
    const bool domain = site->settings.quantizer->domain != NULL;
    if (site->softmax || domain) {
        seen = (float *)sbit__alloc(a, bytes);
        status = seen != NULL ? SBIT_OK : sbit__fail_oom(error, bytes);
    }
    if (status == SBIT_OK && site->softmax && sbit__softmax_view(site, tensor, data, seen)) {
        x.data = seen;
        status = sbit__site_measure(quant, site, tensor, &x, error);
    }
    if (status == SBIT_OK && domain) {
        status = sbit__site_domain(quant, site, tensor, &x, seen, error);
    }
    if (status == SBIT_OK) {
        status = site->settings.observer->observe(site->observer_state, &observer, &x, error);
        site->observed = status == SBIT_OK;
    }
    sbit__free(a, seen, bytes);
    return status;
}

SBIT__FN sbit_status sbit__site_again(sbit_quant *quant, sbit__site *site, bool *wanted,
                                      sbit_error *error)
{
    const sbit_observer_row *row = site->settings.observer;
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    *wanted = false;
    return row->again != NULL ? row->again(site->observer_state, &observer, wanted, error)
                              : SBIT_OK;
}

/* Copies the first `keep` entries of an axis. */
static void sbit__copy_front(const sbit_tensor *tensor, int32_t axis, int64_t keep, char *to)
{
    sbit_tensor part = *tensor;
    for (int32_t i = 0; i < axis; i++) {
        part.dims[i] = 1;
    }
    const size_t step = sbit_tensor_bytes(&part);
    part.dims[axis] = keep;
    const size_t bytes = sbit_tensor_bytes(&part);
    for (size_t at = 0, end = sbit_tensor_bytes(tensor); at < end; at += step, to += bytes) {
        memcpy(to, (const char *)tensor->data + at, bytes);
    }
}

SBIT__FN sbit_status sbit__site_observe(sbit_quant *quant, sbit__site *site,
                                        const sbit_tensor *tensor, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const bool activation = site->target == SBIT_TARGET_ACTIVATION;
    const int32_t batch = activation ? sbit__batch_axis(quant, tensor) : -1;
    sbit_tensor real = *tensor;
    if (batch >= 0 && quant->samples < quant->rows) {
        real.dims[batch] = tensor->dims[batch] / quant->rows * quant->samples;
    }
    const int64_t count = sbit_tensor_count(&real);
    const bool moved = batch > 0 && quant->samples < quant->rows;
    if (count == 0) {
        return SBIT_OK; /* says nothing */
    }
    if (tensor->dtype == SBIT_F32 && !moved) {
        return sbit__site_observe_f32(quant, site, &real, (const float *)tensor->data, error);
    }
    const size_t bytes = (size_t)count * sizeof(float), old = sbit_tensor_bytes(&real);
    char *data = (char *)sbit__alloc(a, bytes + old); /* float32, then the part that counts */
    if (data == NULL) {
        return sbit__fail_oom(error, bytes + old);
    }
    const void *from = tensor->data;
    if (moved) {
        sbit__copy_front(tensor, batch, real.dims[batch], data + bytes);
        from = data + bytes;
    }
    sbit__convert(tensor->dtype, from, SBIT_F32, data, count);
    const sbit_status status =
        sbit__site_observe_f32(quant, site, &real, (const float *)(const void *)data, error);
    sbit__free(a, data, bytes + old);
    return status;
}

/* >>calibrate sessions */
SBIT__FN bool sbit__quant_observes(const sbit__site *site)
{
    return sbit__site_wanted(site) && site->target == SBIT_TARGET_ACTIVATION &&
           !site->fixed_range && site->change.scale == NULL;
}

SPARSEBIT_API bool sbit_quant_needs_data(const sbit_quant *quant)
{
    const bool tunes = sbit_options_bool(&quant->config->tree.top, "SCHEDULE.BN_TUNING");
    if ((tunes && !quant->bn_done) ||
        (!quant->float_done && sbit__steps_need_data(quant, SBIT_STAGE_FLOAT_GRAPH)) ||
        sbit__steps_need_data(quant, SBIT_STAGE_SELECT) ||
        sbit__steps_need_data(quant, SBIT_STAGE_RANGES) ||
        sbit__steps_need_data(quant, SBIT_STAGE_SEARCH) ||
        sbit__steps_need_data(quant, SBIT_STAGE_WEIGHTS) ||
        sbit__steps_need_data(quant, SBIT_STAGE_AFTER)) {
        return true;
    }
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
    sbit__site *site =
        sbit__site_on(quant, root ? quant->graph : graph, id, SBIT_TARGET_ACTIVATION);
    for (; site != NULL; site = sbit__site_after(quant, site)) {
        if (sbit__quant_observes(site) && site->waiting) {
            SBIT__TRY(sbit__site_observe(quant, site, &value->tensor, error));
        }
    }
    return SBIT_OK;
}

/* Which axis is which matters to a site on the value of the root. */
static bool sbit__value_needs_order(sbit_quant *quant, sbit_value_id id)
{
    const sbit__site *site = sbit__site_on(quant, quant->graph, id, SBIT_TARGET_ACTIVATION);
    while (site != NULL && site->axis < 0 && !site->softmax) {
        site = sbit__site_after(quant, site);
    }
    return site != NULL;
}

SBIT__FN sbit_status sbit__quant_calibration_session(sbit_quant *quant, sbit_session **out,
                                                     sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    sbit_session_desc desc;
    sbit_value_id *taps = (sbit_value_id *)sbit__calloc(a, quant->site_count, sizeof *taps);
    if (taps == NULL) {
        return sbit__fail_oom(error, quant->site_count * sizeof *taps);
    }
    memset(&desc, 0, sizeof desc);
    for (size_t i = 0; i < 2 * quant->site_count; i++) { /* those that need no order first */
        const bool ordered = i >= quant->site_count;
        const sbit__site *site = &quant->sites[i % quant->site_count];
        bool listed = !sbit__quant_observes(site) || site->body != 0 ||
                      (!ordered && sbit__value_needs_order(quant, site->value));
        desc.tap_bodies = desc.tap_bodies || (sbit__quant_observes(site) && site->body != 0);
        for (size_t j = 0; j < desc.tap_count && !listed; j++) {
            listed = taps[j].idx == site->value.idx;
        }
        if (!listed) {
            taps[desc.tap_count++] = site->value;
            desc.taps_as_they_lie += ordered ? 0 : 1;
        }
    }
    desc.tap_fn = sbit__quant_tap;
    desc.tap_user = quant;
    desc.taps = taps;
    const sbit_status status = sbit__quant_session(quant, quant->graph, &desc, out, error);
    sbit__free(a, taps, quant->site_count * sizeof *taps);
    return status;
}

SPARSEBIT_API sbit_status sbit_quant_prepare_calibration(sbit_quant *quant, sbit_error *error)
{
    sbit_session *session = NULL;
    if (quant == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant is NULL");
    }
    SBIT__TRY(sbit__quant_float_steps(quant, NULL, error));
    if (!quant->tuning && !quant->bn_done &&
        sbit_options_bool(&quant->config->tree.top, "SCHEDULE.BN_TUNING")) {
        return sbit__fail(
            error, SBIT_ERR_STATE, "SCHEDULE.BN_TUNING",
            "SCHEDULE.BN_TUNING reads calibration data: use sbit_quant_calibrate with "
            "a feed");
    }
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (sbit__quant_observes(site)) {
            SBIT__TRY(sbit__site_prepare(quant, site, error));
            site->waiting = true;
        }
    }
    SBIT__TRY(sbit__quant_calibration_session(quant, &session, error));
    sbit__quant_drop_session(quant);
    quant->session = session;
    quant->prepared = quant->calibrating = quant->pass_open = true;
    quant->calibrated = quant->use_weights = quant->use_activations = false;
    quant->fed = false;
    memset(&quant->feed, 0, sizeof quant->feed);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__batch_set(const sbit_batch *batch, const sbit_graph *graph,
                                     sbit_session *session, sbit_error *error)
{
    for (size_t i = 0; i < batch->input_count; i++) {
        if (batch->names == NULL) {
            SBIT__TRY(sbit_session_set_input_at(session, i, &batch->inputs[i], error));
        } else if (sbit_graph_find_value(graph, batch->names[i]).idx != 0) {
            SBIT__TRY(sbit_session_set_input(session, batch->names[i], &batch->inputs[i], error));
        }
    }
    return SBIT_OK;
}

/* Runs a batch of which `samples` count (-1: all). */
static sbit_status sbit__quant_run(sbit_quant *quant, const char *const *names,
                                   const sbit_tensor *inputs, size_t input_count, int64_t samples,
                                   sbit_error *error)
{
    if (quant->session == NULL) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "the last change of mode failed, or the model has operators that this "
                          "build cannot run (sbit_graph_unsupported lists them)");
    }
    if (names == NULL && (input_count != 1 || sbit_session_input_count(quant->session) != 1)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the model has %u inputs: pass their names",
                          (unsigned)sbit_session_input_count(quant->session));
    }
    bool empty = false;
    quant->rows = 0;
    for (size_t i = 0; i < input_count; i++) {
        const char *name =
            names != NULL ? names[i] : sbit_session_input_info(quant->session, 0)->name;
        SBIT__TRY(sbit_session_set_input(quant->session, name, &inputs[i], error));
        quant->rows = quant->rows == 0 && inputs[i].rank > 0 ? inputs[i].dims[0] : quant->rows;
        empty = empty || (inputs[i].rank > 0 && inputs[i].dims[0] == 0);
    }
    quant->samples = samples >= 0 ? samples : quant->rows;
    SBIT__TRY(sbit_session_run(quant->session, error));
    quant->fed = quant->fed || (quant->calibrating && !empty);
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

SBIT__FN sbit_status sbit__calibrate_pass(sbit_quant *quant, const sbit_feed *feed,
                                          sbit_error *error)
{
    sbit_batch batch;
    quant->pass_open = true;
    for (int64_t at = 0; at < feed->count; at += batch.samples) {
        SBIT__TRY(sbit__progress(quant->ctx, "calibrate", at, feed->count, error));
        SBIT__TRY(sbit_feed_read(feed, at, 0, &batch, error));
        quant->index = batch.index;
        const sbit_status status = sbit__quant_run(quant, batch.names, batch.inputs,
                                                   batch.input_count,
                                                   batch.whole ? -1 : batch.samples, error);
        quant->index = NULL;
        SBIT__TRY(status);
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__calibrate_again(sbit_quant *quant, bool *wanted, sbit_error *error)
{
    *wanted = false;
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (site->waiting && site->observed) {
            SBIT__TRY(sbit__site_again(quant, site, &site->waiting, error));
        }
        *wanted = *wanted || (site->waiting && site->observed);
    }
    quant->pass_open = false;
    return SBIT_OK;
}

static sbit_status sbit__calibrate_all(sbit_quant *quant, const sbit_feed *feed, sbit_error *error)
{
    SBIT__TRY(sbit_quant_prepare_calibration(quant, error));
    quant->feed = *feed;
    for (bool wanted = sbit_quant_needs_data(quant); wanted;) {
        SBIT__TRY(sbit__calibrate_pass(quant, feed, error));
        SBIT__TRY(sbit__calibrate_again(quant, &wanted, error));
    }
    return sbit__progress(quant->ctx, "calibrate", feed->count, feed->count, error);
}

SPARSEBIT_API sbit_status sbit_quant_calibrate(sbit_quant *quant, const sbit_feed *feed,
                                               sbit_error *error)
{
    if (quant == NULL || feed == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant or feed is NULL");
    }
    SBIT__TRY(sbit__quant_float_steps(quant, feed, error));
    const bool tunes = sbit_options_bool(&quant->config->tree.top, "SCHEDULE.BN_TUNING");
    quant->tuning = tunes && !quant->bn_done;
    if (quant->tuning) {
        sbit_status status = sbit__calibrate_all(quant, feed, error);
        if (status == SBIT_OK) {
            status = sbit__quant_tune_bn(quant, feed, error);
        }
        quant->tuning = false;
        SBIT__TRY(status);
    }
    return sbit__calibrate_all(quant, feed, error);
}

SPARSEBIT_API const sbit_value *sbit_quant_output(const sbit_quant *quant, size_t index)
{
    return quant->session != NULL ? sbit_session_output(quant->session, index) : NULL;
}

/* >>calibrate asym */
typedef struct sbit__asym {
    sbit_quant *quant;
    sbit_walk *walk;
    bool *done; /* [site count]: quantized from here on; at first the weights, in their turn */
    sbit__site *site;
} sbit__asym;

static sbit_status sbit__asym_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__asym *a = (sbit__asym *)user;
    a->quant->rows = batch->rows;
    a->quant->samples = batch->samples;
    return sbit__site_observe(a->quant, a->site, batch->x, error);
}

/* The site's range under the walk's model; its float statistics stay aside meanwhile. */
static sbit_status sbit__asym_range(sbit__asym *a, sbit_node_id node, size_t input,
                                    sbit_error *error)
{
    sbit__site *site = a->site, kept = *site;
    const size_t bytes = (size_t)sbit__site_parts(site) * sizeof(float);
    bool wanted = true;
    site->observer_state = site->quantizer_state = NULL;
    sbit_status status = sbit__site_prepare(a->quant, site, error);
    while (status == SBIT_OK && wanted) {
        status = sbit_walk_to(a->walk, node, input, sbit__asym_see, a, error);
        if (status == SBIT_OK) {
            status = sbit__site_again(a->quant, site, &wanted, error);
        }
    }
    if (status == SBIT_OK && site->observed) {
        const sbit_observer_call call = sbit__site_observer(a->quant, site);
        status = site->settings.observer->range(site->observer_state, &call, site->own_min,
                                                site->own_max, error);
    }
    sbit__site_release(a->quant, site);
    site->observer_state = kept.observer_state;
    site->quantizer_state = kept.quantizer_state;
    site->observer_bytes = kept.observer_bytes;
    site->quantizer_bytes = kept.quantizer_bytes;
    site->observed = kept.observed;
    if (status == SBIT_OK) {
        memcpy(site->min, site->own_min, bytes);
        memcpy(site->max, site->own_max, bytes);
        status = sbit__calc_site(a->quant, site, error);
    }
    return status;
}

/* The sites on a node's inputs in turn, then its weights are quantized too. */
static sbit_status sbit__asym_node(sbit__asym *a, const sbit_node *node, sbit_error *error)
{
    for (size_t k = 0; k < node->input_count; k++) {
        sbit__site *site = sbit__quant_input_site(a->quant, a->quant->graph, node->id, (uint32_t)k);
        const size_t at = site != NULL ? (size_t)(site - a->quant->sites) : 0;
        if (site == NULL || a->done[at]) {
            continue;
        }
        if (sbit__quant_observes(site) && site->ranged == NULL) {
            a->site = site;
            SBIT__TRY(sbit__asym_range(a, node->id, k, error));
        }
        a->done[at] = true;
    }
    for (size_t k = 0; k < node->input_count; k++) {
        const sbit__site *site =
            sbit__site_on(a->quant, a->quant->graph, node->inputs[k], SBIT_TARGET_WEIGHT);
        for (; site != NULL; site = sbit__site_after(a->quant, site)) {
            a->done[site - a->quant->sites] = true;
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__calibrate_asym(sbit_quant *quant, sbit_error *error)
{
    const sbit_allocator *allocator = sbit_ctx_allocator(quant->ctx);
    const sbit_graph *graph = quant->graph;
    sbit__asym a;
    sbit_walk_desc desc;
    memset(&a, 0, sizeof a);
    memset(&desc, 0, sizeof desc);
    if (quant->feed.read == NULL) {
        return sbit__fail(
            error, SBIT_ERR_STATE, NULL,
            "asym reads calibration data again: use sbit_quant_calibrate with a feed");
    }
    a.quant = quant;
    a.done = (bool *)sbit__calloc(allocator, quant->site_count, sizeof *a.done);
    if (a.done == NULL) {
        return sbit__fail_oom(error, quant->site_count);
    }
    sbit_quant_asym(quant, &desc);
    desc.sites = a.done;
    quant->calibrated = true; /* the walk builds from what is there */
    sbit_status status = sbit_walk_create(quant, &quant->feed, &desc, &a.walk, error);
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && status == SBIT_OK;
         id = sbit_graph_next(graph, id)) {
        status = sbit__asym_node(&a, sbit_graph_node(graph, id), error);
    }
    sbit_walk_destroy(a.walk);
    sbit__free(allocator, a.done, quant->site_count * sizeof *a.done);
    return status;
}
