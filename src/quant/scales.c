/* scales.c: scale and zero point of every site. >>scales
 *
 * A pure function of the plan (sites), what observers saw and the settings: computing it twice
 * changes nothing. Ranges -> groups that share one -> scale and zero point -> weight scales raised
 * where an int32 bias would not fit -> the quantizers' own start.
 */
#include "quant_private.h"

#include <stdlib.h> /* qsort */

/* Sparsebit's smallest scale. */
#define SBIT__CLASSIC_FLOOR 1e-6f

/* >>scales ranges */
static sbit_status sbit__calc_weight(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    sbit_tensor weight;
    SBIT__TRY(sbit__site_prepare(quant, site, error));
    SBIT__TRY(sbit__site_weight(quant, site, &weight, error));
    for (bool wanted = true; wanted;) {
        SBIT__TRY(sbit__site_observe(quant, site, &weight, error));
        SBIT__TRY(sbit__site_again(quant, site, &wanted, error));
    }
    return SBIT_OK;
}

/* What is quantized, before groups and scales: everything that earlier calculations decided is
 * forgotten. */
static void sbit__calc_reset(sbit_quant *quant)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        site->enabled = sbit__site_wanted(site);
        site->reason = site->enabled             ? ""
                       : site->search_float != NULL ? site->search_float
                       : site->change.enable < 0 ? "left float by sbit_quant_set_site"
                                                 : "disabled by the configuration";
        site->leader = 0;
        sbit__site_forget_rounding(quant, site);
    }
}

static sbit_status sbit__calc_range(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const sbit_observer_call observer = sbit__site_observer(quant, site);
    if (site->fixed_range) {
        site->own_min[0] = site->fixed_min;
        site->own_max[0] = site->fixed_max;
        return SBIT_OK;
    }
    if (site->change.scale != NULL) { /* the range that the fixed scale covers */
        for (int64_t c = 0; c < sbit__site_parts(site); c++) {
            const sbit_grid *grid = &site->settings.grid;
            const int32_t zero_point = site->change.zero_point[c];
            site->own_min[c] = (float)(grid->qmin - zero_point) * site->change.scale[c];
            site->own_max[c] = (float)(grid->qmax - zero_point) * site->change.scale[c];
        }
        return SBIT_OK;
    }
    if (site->ranged != NULL) {
        const size_t parts = (size_t)sbit__site_parts(site);
        memcpy(site->own_min, site->range, parts * sizeof(float));
        memcpy(site->own_max, site->range + parts, parts * sizeof(float));
        return SBIT_OK;
    }
    if (site->target == SBIT_TARGET_WEIGHT) {
        SBIT__TRY(sbit__calc_weight(quant, site, error));
    }
    if (!site->observed) {
        site->enabled = site->target == SBIT_TARGET_WEIGHT;
        site->reason = site->enabled ? "" : "no data reached it during calibration";
        return SBIT_OK;
    }
    SBIT__TRY(site->settings.observer->range(site->observer_state, &observer, site->own_min,
                                             site->own_max, error));
    if (site->target == SBIT_TARGET_WEIGHT) {
        sbit__site_forget_weight(quant, site);
    }
    return SBIT_OK;
}

/* >>scales groups */
static float sbit__calc_width(const sbit__site *site)
{
    const float lo = site->min[0] < 0.0f ? -site->min[0] : site->min[0];
    const float hi = site->max[0] < 0.0f ? -site->max[0] : site->max[0];
    return lo > hi ? lo : hi;
}

/* Joins the ranges of all per-tensor activation sites of one group: gathered at the site whose
 * number the group bears, then given to all. */
static sbit_status sbit__calc_join_groups(sbit_quant *quant, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const size_t bytes = (quant->site_count + 1) * 2 * sizeof(float);
    float *range = (float *)sbit__calloc(a, 1, bytes);
    if (range == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < quant->site_count; i++) {
            sbit__site *site = &quant->sites[i];
            float *min = &range[2 * site->group], *max = min + 1;
            if (sbit__site_shares(site) && pass == 0) { /* 0 is in every range in the end */
                *min = site->min[0] < *min ? site->min[0] : *min;
                *max = site->max[0] > *max ? site->max[0] : *max;
            } else if (sbit__site_shares(site)) {
                site->min[0] = *min;
                site->max[0] = *max;
            }
        }
    }
    sbit__free(a, range, bytes);
    return SBIT_OK;
}

/* The enabled per-tensor activation site of a value, for sharing. */
static sbit__site *sbit__calc_shared_site(sbit_quant *quant, const sbit_graph *graph,
                                          sbit_value_id value)
{
    sbit__site *site = sbit__site_on(quant, graph, value, SBIT_TARGET_ACTIVATION);
    while (site != NULL && !sbit__site_shares(site)) {
        site = sbit__site_after(quant, site);
    }
    return site;
}

/* Value i of those that a node joins: its inputs, then its output. */
static sbit_value_id sbit__calc_joined(const sbit_node *node, size_t i)
{
    return i < node->input_count ? node->inputs[i] : node->outputs[0];
}

/* One scale for the first `count` of them, if their ranges are alike. */
static void sbit__calc_share_node(sbit_quant *quant, const sbit_graph *graph, const sbit_node *node,
                                  size_t count)
{
    const double limit = sbit_options_float(&quant->config->tree.top, "EXPORT.SHARE_LIMIT");
    const sbit__site *first = sbit__calc_shared_site(quant, graph, sbit__calc_joined(node, 0));
    float narrow = 0.0f, wide = 0.0f;
    for (size_t i = 0; i < count; i++) {
        const sbit__site *site = sbit__calc_shared_site(quant, graph, sbit__calc_joined(node, i));
        if (site == NULL || !sbit__site_same_grid(site, first)) {
            return;
        }
        const float width = sbit__calc_width(site);
        narrow = i == 0 || width < narrow ? width : narrow;
        wide = width > wide ? width : wide;
    }
    if ((double)wide > limit * (double)narrow) {
        char text[160];
        sbit_graph_describe(graph, node->id, text, sizeof text);
        sbit__log(quant->ctx, SBIT_LOG_INFO,
                  "%s: its inputs' ranges differ by more than %g times (%g and %g); they keep "
                  "scales of their own",
                  text, limit, (double)wide, (double)narrow);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        const uint32_t from =
            sbit__calc_shared_site(quant, graph, sbit__calc_joined(node, i))->group;
        for (size_t j = 0; j < quant->site_count; j++) {
            if (quant->sites[j].group == from) {
                quant->sites[j].group = first->group;
            }
        }
    }
}

static void sbit__calc_share_graph(sbit_quant *quant, const sbit_graph *graph, bool add, bool asked)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        const sbit_op_row *row = sbit_operator_find(quant->ctx, node->domain, node->op_type,
                                                    sbit_graph_opset(quant->graph, node->domain));
        if (row == NULL || row->quant == NULL || node->output_count == 0) {
            continue;
        }
        if ((row->quant->flags & SBIT_QUANT_SHARE_SCALE) != 0) {
            const bool out = sbit__calc_shared_site(
                                 quant, graph, sbit__calc_joined(node, node->input_count)) != NULL;
            if (out || asked) { /* a float output gains nothing by it */
                sbit__calc_share_node(quant, graph, node, node->input_count + (out ? 1 : 0));
            }
        } else if (add && sbit__word_listed(quant->profile->sums, node->op_type)) {
            sbit__calc_share_node(quant, graph, node, node->input_count);
        }
    }
}

/* Concat: inputs and output; Add: inputs, for runtimes that add the integers as they are. Where
 * inputs alone are quantized, only if that is asked for: Sparsebit gives each a scale of its own.
 */
static void sbit__calc_share(sbit_quant *quant)
{
    const sbit_option *option = sbit_options_find(&quant->config->tree.top, "EXPORT.SHARE_SCALE");
    const bool concat =
        (sbit__profile_is(quant->profile, SBIT_PROFILE_OUTPUTS) || option->is_set) &&
        !sbit__streq(option->s, "none");
    const bool add = concat && sbit__streq(option->s, "concat_add");
    const sbit_graph *graph;
    for (uint32_t body = 0; concat && (graph = sbit__quant_body(quant->graph, body)) != NULL;
         body++) {
        sbit__calc_share_graph(quant, graph, add, option->is_set);
    }
}

/* >>scales numbers */
/* The smallest scale that is a normal number, as its reciprocal is, in the type it is stored in. */
static float sbit__calc_least(const sbit__site *site)
{
    return site->dtype == SBIT_F16 ? 6.103515625e-5f : 1.17549435e-38f;
}

/* A scale as it is stored: a power of two if that is asked for, in the tensor's own type. */
static float sbit__calc_store(const sbit__site *site, float scale)
{
    const float least = sbit__calc_least(site);
    scale = scale > least ? scale : least;
    if (site->settings.grid.power_of_two) {
        scale = (float)exp2(ceil(log2((double)scale)));
    }
    if (site->dtype == SBIT_F16) {
        return sbit_f16_to_f32(sbit_f32_to_f16(scale));
    }
    return site->dtype == SBIT_BF16 ? sbit_bf16_to_f32(sbit_f32_to_bf16(scale)) : scale;
}

static float sbit__calc_size(const sbit__site *site, int64_t c)
{
    const float lo = -site->min[c], hi = site->max[c];
    const float most = lo > hi ? lo : hi;
    return most > 0.0f ? most : 0.0f;
}

static int sbit__calc_compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Dead channels - all zero, or below 2^-24 of the largest - take the median scale of the live ones:
 * their integers stay 0 and their bias keeps its precision. */
static sbit_status sbit__calc_dead(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const int64_t parts = sbit__site_parts(site);
    float largest = 0.0f;
    int64_t live = 0;
    for (int64_t c = 0; c < parts; c++) {
        largest = sbit__calc_size(site, c) > largest ? sbit__calc_size(site, c) : largest;
    }
    const float least = largest * 5.9604645e-8f; /* 2^-24 */
    for (int64_t c = 0; c < parts; c++) {
        live += sbit__calc_size(site, c) > least ? 1 : 0;
    }
    if (parts == 1 || live == 0 || live == parts) {
        return SBIT_OK;
    }
    const size_t bytes = (size_t)live * sizeof(float);
    float *scales = (float *)sbit__alloc(a, bytes);
    if (scales == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    int64_t n = 0;
    for (int64_t c = 0; c < parts; c++) {
        if (sbit__calc_size(site, c) > least) {
            scales[n++] = site->scale[c];
        }
    }
    qsort(scales, (size_t)live, sizeof *scales, sbit__calc_compare);
    for (int64_t c = 0; c < parts; c++) {
        if (!(sbit__calc_size(site, c) > least)) {
            site->scale[c] = scales[(live - 1) / 2];
        }
    }
    sbit__free(a, scales, bytes);
    return SBIT_OK;
}

/* Sparsebit's floor, in its own profile; said where it changes something. */
static void sbit__calc_floor(sbit_quant *quant, sbit__site *site)
{
    int64_t bound = 0;
    for (int64_t c = 0; c < sbit__site_parts(site); c++) {
        const bool zero = !(sbit__calc_size(site, c) > 0.0f);
        if (zero || site->scale[c] < SBIT__CLASSIC_FLOOR) {
            site->scale[c] = SBIT__CLASSIC_FLOOR;
            bound += zero ? 0 : 1;
        }
    }
    if (bound > 0) {
        sbit__log(
            quant->ctx, SBIT_LOG_WARNING,
            "tensor '%s': %lld of %lld scales are raised to 1e-6, the smallest that Sparsebit "
            "knows; other profiles keep such small values precise",
            sbit__site_value(site)->name, (long long)bound, (long long)sbit__site_parts(site));
    }
}

/* Says once that a number which comes again and again (a sentinel, as masks are), far from all
 * others, sets the range, so that these are less than half a step on average. What saturates
 * (Relu6) has values in between. */
static void sbit__calc_warn_sentinels(const sbit_quant *quant, sbit__site *site)
{
    const char *name = sbit__site_value(site)->name;
    const double size = site->rest / (double)(site->rest_count > 0 ? site->rest_count : 1);
    if (site->warned || site->fixed_range || site->extreme_count < 4 || site->rest_count < 4 ||
        site->second > 0.5f * site->extreme || size <= 0.0 || size >= 0.5 * (double)site->scale[0]) {
        return;
    }
    site->warned = true;
    sbit__log(quant->ctx, SBIT_LOG_WARNING,
              "tensor '%s': a few values of size %g set its range, the others are %g on average, "
              "less than half a step; if they are a mask's, leave its layer float "
              "(SKIP_TRACE_MODULES: [\"%s\"])",
              name, (double)site->extreme, size, site->layer_name);
}

SBIT__FN sbit_status sbit__calc_site(sbit_quant *quant, sbit__site *site, sbit_error *error)
{
    const sbit_grid *grid = &site->settings.grid;
    const char *name = sbit__site_value(site)->name;
    const int64_t parts = sbit__site_parts(site);
    if (site->change.scale != NULL) {
        memcpy(site->scale, site->change.scale, (size_t)parts * sizeof(float));
        memcpy(site->zero_point, site->change.zero_point, (size_t)parts * sizeof(int32_t));
        return SBIT_OK;
    }
    for (int64_t c = 0; c < parts; c++) {
        SBIT__TRY(sbit_qparams_from_range(name, site->min[c], site->max[c], grid->symmetric,
                                          grid->qmin, grid->qmax, &site->scale[c],
                                          &site->zero_point[c], error));
    }
    if (sbit__profile_is(quant->profile, SBIT_PROFILE_SCALE_FLOOR)) {
        sbit__calc_floor(quant, site);
    } else if (site->target == SBIT_TARGET_WEIGHT) {
        SBIT__TRY(sbit__calc_dead(quant, site, error));
    }
    for (int64_t c = 0; c < parts; c++) {
        const float stored = sbit__calc_store(site, site->scale[c]);
        if (sbit__calc_size(site, c) > 0.0f) {
            site->scale[c] = stored;
            site->zero_point[c] = sbit__qparams_zero_point(site->min[c], stored, grid->symmetric,
                                                           grid->qmin, grid->qmax);
        } else {
            site->scale[c] = stored;
        }
    }
    if (site->target == SBIT_TARGET_ACTIVATION && parts == 1) {
        sbit__calc_warn_sentinels(quant, site);
    }
    return SBIT_OK;
}

/* >>scales bias: |bias| / (scale_x scale_w) must stay below 2^31, whoever makes it an integer, this
 * library or the runtime: raises scale_w just enough. Weights of such a channel are next to zero
 * beside the bias (field-reports A4.3). */
static void sbit__calc_fit_bias(sbit_quant *quant, sbit__site *weight, sbit_node_id node)
{
    sbit__bias bias;
    if (weight->change.scale != NULL || !sbit__bias_of(quant, weight->graph, node, weight, &bias)) {
        return;
    }
    for (int64_t i = 0; i < bias.count; i++) {
        const double b = fabs(sbit__tensor_f64_at(&bias.value->constant, i % bias.given));
        const double least = b / ((double)bias.x->scale[0] * 2147483000.0);
        float *scale = &weight->scale[i % bias.parts];
        if ((double)*scale < least) {
            *scale = sbit__calc_store(weight, (float)(least * (1.0 + 1e-6)));
        }
    }
}

static void sbit__calc_fit_biases(sbit_quant *quant)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        for (const sbit__site_use *use = site->uses;
             site->enabled && site->target == SBIT_TARGET_WEIGHT && !site->captured && use != NULL;
             use = use->next) {
            sbit__calc_fit_bias(quant, site, use->node);
        }
    }
}

/* >>scales quantizers */
static sbit_status sbit__calc_start(sbit_quant *quant, uint32_t target, sbit_error *error)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (!site->enabled || site->target != target || site->fixed_range ||
            site->change.scale != NULL) {
            continue;
        }
        sbit_tensor weight;
        sbit_observation x;
        const bool is_weight = target == SBIT_TARGET_WEIGHT;
        SBIT__TRY(sbit__site_fresh_quantizer(quant, site, error));
        const sbit_quantizer_call call = sbit__site_quantizer(quant, site);
        if (is_weight) {
            SBIT__TRY(sbit__site_weight(quant, site, &weight, error));
            x = sbit__site_observation(site, &weight, (const float *)weight.data);
        }
        SBIT__TRY(site->settings.quantizer->init(site->quantizer_state, &call,
                                                 is_weight ? &x : NULL, error));
    }
    return SBIT_OK;
}

/* From every site's own range to scales. */
static sbit_status sbit__calc_finish(sbit_quant *quant, sbit_error *error)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        const size_t bytes = (size_t)sbit__site_parts(site) * sizeof(float);
        site->group = site->plan_group;
        if (site->enabled) {
            memcpy(site->min, site->own_min, bytes);
            memcpy(site->max, site->own_max, bytes);
        }
    }
    sbit__calc_share(quant);
    SBIT__TRY(sbit__calc_join_groups(quant, error));
    for (size_t i = 0; i < quant->site_count; i++) {
        if (quant->sites[i].enabled) {
            SBIT__TRY(sbit__calc_site(quant, &quant->sites[i], error));
        }
    }
    SBIT__TRY(sbit__calc_start(quant, SBIT_TARGET_ACTIVATION, error));
    sbit__calc_fit_biases(quant); /* before any weight is rounded */
    return sbit__calc_start(quant, SBIT_TARGET_WEIGHT, error);
}

SBIT__FN sbit_status sbit__quant_calc(sbit_quant *quant, sbit_error *error)
{
    sbit__calc_reset(quant);
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        SBIT__TRY(
            sbit__progress(quant->ctx, "quantize", (int64_t)i, (int64_t)quant->site_count, error));
        if (site->enabled) {
            SBIT__TRY(sbit__site_arrays(quant, site, error));
            SBIT__TRY(sbit__calc_range(quant, site, error));
        }
    }
    SBIT__TRY(sbit__calc_finish(quant, error));
    if (quant->asym) {
        SBIT__TRY(sbit__calibrate_asym(quant, error));
        SBIT__TRY(sbit__calc_finish(quant, error));
    }
    return SBIT_OK;
}
