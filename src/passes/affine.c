/* affine.c: a scale and a shift per channel moved into a linear node. >>affine
 *
 * Called by: fold_batch_norm, fuse_scalar. Calls: graph.
 * y' = s[c] * (W x + b)[c] + t[c] = (s[c] W[c]) x + (s[c] b[c] + t[c]); computed in double, rounded
 * once to the weight's type. Where the output channels lie:
 *     Conv           W[Cout, Cin/group, k...]: axis 0
 *     ConvTranspose  W[Cin, Cout/group, k...]: channel g * (Cout/group) + j is W[ci, j] for the ci
 *                    of group g
 *     Gemm           B[K, N], or B[N, K] with transB
 *     MatMul         B[..., K, N]; has no bias: a shift needs an Add behind
 * The new weight takes over the name of the old one if nothing else uses that.
 */
#include "passes_private.h"

SBIT__FN sbit_status sbit__affine_init(sbit__rewrite *rw, sbit__affine *affine, int64_t count,
                                       sbit_error *error)
{
    sbit__arena *arena = &rw->facts.arena;
    affine->count = count;
    affine->scale = (double *)sbit__arena_array(arena, (size_t)count + 1, sizeof(double));
    affine->shift = (double *)sbit__arena_array(arena, (size_t)count + 1, sizeof(double));
    if (affine->scale == NULL || affine->shift == NULL) {
        return sbit__fail_oom(error, (size_t)count * sizeof(double));
    }
    for (int64_t i = 0; i < count; i++) {
        affine->scale[i] = 1.0;
    }
    return SBIT_OK;
}

static double sbit__affine_scale(const sbit__affine *affine, int64_t channel)
{
    return affine->scale[affine->count == 1 ? 0 : channel];
}

static double sbit__affine_shift(const sbit__affine *affine, int64_t channel)
{
    return affine->shift[affine->count == 1 ? 0 : channel];
}

static bool sbit__affine_shifts(const sbit__affine *affine)
{
    for (int64_t i = 0; i < affine->count; i++) {
        if (affine->shift[i] != 0.0) {
            return true;
        }
    }
    return false;
}

static bool sbit__affine_scales(const sbit__affine *affine)
{
    for (int64_t i = 0; i < affine->count; i++) {
        if (affine->scale[i] != 1.0) {
            return true;
        }
    }
    return false;
}

/* >>which channel an element of the weight belongs to */

typedef struct sbit__affine_site {
    const sbit_node *linear;
    const sbit_tensor *weight, *bias; /* bias NULL: none */
    int64_t channels;
    int64_t inner, axis_dim;                    /* channel of element i: i / inner % axis_dim ... */
    int64_t outer, group_outer, group_channels; /* ... + i / outer / group_outer * group_channels */
    double beta;
    bool has_bias; /* the operator has one */
} sbit__affine_site;

/* Axis `axis` of the weight holds the channels, all or those of one group. */
static void sbit__affine_axis(sbit__affine_site *site, int32_t axis)
{
    site->axis_dim = site->weight->dims[axis];
    site->inner = 1;
    for (int32_t i = axis + 1; i < site->weight->rank; i++) {
        site->inner *= site->weight->dims[i];
    }
    site->outer = site->inner * site->axis_dim;
    site->channels = site->axis_dim;
    site->group_outer = INT64_MAX;
    site->group_channels = 0;
}

static int64_t sbit__affine_channel(const sbit__affine_site *site, int64_t i)
{
    return i / site->inner % site->axis_dim +
           i / site->outer / site->group_outer * site->group_channels;
}

static bool sbit__affine_gemm(sbit__affine_site *site)
{
    if (site->weight->rank != 2) {
        return false;
    }
    sbit__affine_axis(site, sbit_node_int(site->linear, "transB", 0) != 0 ? 0 : 1);
    site->beta = (double)sbit_node_float(site->linear, "beta", 1.0f);
    return true;
}

static bool sbit__affine_deconv(sbit__affine_site *site)
{
    const int64_t groups = sbit_node_int(site->linear, "group", 1);
    if (site->weight->rank < 3 || groups < 1 || site->weight->dims[0] % groups != 0 ||
        site->weight->dims[0] == 0) {
        return false;
    }
    sbit__affine_axis(site, 1);
    site->group_outer = site->weight->dims[0] / groups;
    site->group_channels = site->axis_dim;
    site->channels = site->axis_dim * groups;
    return true;
}

/* Fills the site; false if the node is not one of the four with a constant weight. */
static bool sbit__affine_look(sbit__rewrite *rw, const sbit_node *linear, bool last_axis,
                              sbit__affine_site *site)
{
    const bool matmul = sbit__is_op(linear, "MatMul");
    bool fits = false;
    memset(site, 0, sizeof *site);
    site->linear = linear;
    site->weight = sbit__const_in(rw->graph, linear, 1);
    site->bias = sbit__const_in(rw->graph, linear, 2);
    site->beta = 1.0;
    site->has_bias = !matmul;
    if (site->weight == NULL || !sbit__is_float(site->weight->dtype) ||
        sbit_tensor_count(site->weight) == 0 ||
        (sbit__node_in(linear, 2).idx != 0 && site->bias == NULL)) {
        return false;
    }
    if (sbit__is_op(linear, "Conv") && site->weight->rank >= 3 && !last_axis) {
        sbit__affine_axis(site, 0);
        fits = true;
    } else if (sbit__is_op(linear, "ConvTranspose") && !last_axis) {
        fits = sbit__affine_deconv(site);
    } else if (sbit__is_op(linear, "Gemm")) {
        fits = sbit__affine_gemm(site); /* axis 1 is the last */
    } else if (matmul && site->weight->rank >= 2) {
        sbit__affine_axis(site, site->weight->rank - 1);
        fits = last_axis || sbit__facts_type(&rw->facts, linear->outputs[0])->rank == 2;
    }
    /* A Gemm's C may also be one number, or differ by row, which no shift per channel can say. */
    return fits &&
           (site->bias == NULL || sbit_tensor_count(site->bias) == site->channels ||
            (sbit__is_op(linear, "Gemm") && sbit_tensor_count(site->bias) == 1)) &&
           (site->bias == NULL || site->bias->dtype == site->weight->dtype) &&
           (site->bias == NULL || site->bias->rank == 0 || site->bias->rank == 1 ||
            site->bias->dims[0] == 1);
}

/* >>new constants */

static bool sbit__affine_finite(const sbit_tensor *tensor)
{
    const int64_t count = sbit_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) {
        const double value = sbit__tensor_f64_at(tensor, i);
        if (!(value <= DBL_MAX && value >= -DBL_MAX)) {
            return false;
        }
    }
    return true;
}

/* "conv1.weight" gives "conv1.bias", other names "name_bias". */
static void sbit__affine_bias_name(const char *weight, char *name, size_t size)
{
    const char *const ends[] = {".weight", "_weight", "/weight"};
    const size_t length = strlen(weight);
    for (size_t i = 0; i < SBIT__COUNT_OF(ends); i++) {
        const size_t end = strlen(ends[i]);
        if (length > end && strcmp(weight + length - end, ends[i]) == 0 && length < size) {
            snprintf(name, size, "%.*s%cbias", (int)(length - end), weight, ends[i][0]);
            return;
        }
    }
    snprintf(name, size, "%.200s_bias", weight);
}

/* Adds the scaled weight (*out none: not changed) if all of it is finite. */
static sbit_status sbit__affine_new_weight(sbit__rewrite *rw, const sbit__affine_site *site,
                                           const sbit__affine *affine, bool *finite,
                                           sbit_value_id *out, sbit_error *error)
{
    const int64_t count = sbit_tensor_count(site->weight);
    const char *name = sbit_graph_value(rw->graph, site->linear->inputs[1])->name;
    sbit_tensor made;
    sbit_status status = SBIT_OK;
    *finite = true;
    *out = site->linear->inputs[1];
    if (!sbit__affine_scales(affine)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_tensor_alloc(rw->ctx, site->weight->dtype, site->weight->rank,
                                site->weight->dims, &made, error));
    for (int64_t i = 0; i < count; i++) {
        sbit__tensor_set_f64(&made, i,
                             sbit__tensor_f64_at(site->weight, i) *
                                 sbit__affine_scale(affine, sbit__affine_channel(site, i)));
    }
    *finite = sbit__affine_finite(&made);
    if (*finite) {
        status = sbit_graph_add_constant(rw->graph, name, &made, out, error);
    }
    sbit_tensor_free(rw->ctx, &made);
    return status;
}

static sbit_status sbit__affine_new_bias(sbit__rewrite *rw, const sbit__affine_site *site,
                                         const sbit__affine *affine, bool *finite,
                                         sbit_value_id *out, sbit_error *error)
{
    const bool one = site->bias != NULL && sbit_tensor_count(site->bias) == 1;
    char name[256];
    sbit_tensor made;
    sbit_status status = SBIT_OK;
    out->idx = 0;
    *finite = true;
    if (site->bias == NULL && !sbit__affine_shifts(affine)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_tensor_alloc(rw->ctx, site->weight->dtype, 1, &site->channels, &made, error));
    for (int64_t c = 0; c < site->channels; c++) {
        const double old = site->bias == NULL ? 0.0 : sbit__tensor_f64_at(site->bias, one ? 0 : c);
        sbit__tensor_set_f64(&made, c,
                             old * site->beta * sbit__affine_scale(affine, c) +
                                 sbit__affine_shift(affine, c));
    }
    *finite = sbit__affine_finite(&made);
    if (*finite) {
        sbit__affine_bias_name(sbit_graph_value(rw->graph, site->linear->inputs[1])->name, name,
                               sizeof name);
        status = sbit_graph_add_constant(rw->graph, name, &made, out, error);
    }
    sbit_tensor_free(rw->ctx, &made);
    return status;
}

/* The attributes of the node, with beta 1 if the new bias contains it. */
static sbit_status sbit__affine_attrs(sbit__rewrite *rw, const sbit_node *node, sbit_attr **out,
                                      sbit_error *error)
{
    *out = (sbit_attr *)sbit__arena_array(&rw->facts.arena, node->attr_count + 1, sizeof **out);
    if (*out == NULL) {
        return sbit__fail_oom(error, node->attr_count * sizeof **out);
    }
    for (size_t i = 0; i < node->attr_count; i++) {
        (*out)[i] = node->attrs[i];
        if (sbit__is_op(node, "Gemm") && strcmp(node->attrs[i].name, "beta") == 0) {
            (*out)[i].f = 1.0f;
        }
    }
    return SBIT_OK;
}

/* The old linear node is not used any more; the new weight may have its name. */
static void sbit__affine_finish(sbit__rewrite *rw, const sbit_node *linear, sbit_value_id weight)
{
    const sbit_value_id old_weight = linear->inputs[1], old_bias = sbit__node_in(linear, 2);
    sbit__erase_unused(rw->graph, linear);
    if (weight.idx != old_weight.idx && sbit_graph_value(rw->graph, old_weight)->use_count == 0 &&
        !sbit_graph_value(rw->graph, old_weight)->is_input) {
        sbit__take_name(rw->graph, old_weight, weight);
    }
    sbit__erase_dead_value(rw->graph, old_weight);
    sbit__erase_dead_value(rw->graph, old_bias);
    rw->changes++;
}

/* >>MatMul: the shift becomes, or joins, an Add behind it. */

/* `tail`: the Add of a constant between the MatMul and `last`; NULL: none. */
static sbit_status sbit__affine_matmul(sbit__rewrite *rw, sbit__affine_site *site,
                                       const sbit_node *tail, const sbit_node *last,
                                       const sbit__affine *affine, sbit_error *error)
{
    sbit_value_id weight, bias, inputs[2], product;
    bool fine = true, bias_fine = true;
    SBIT__TRY(sbit__affine_new_weight(rw, site, affine, &fine, &weight, error));
    SBIT__TRY(sbit__affine_new_bias(rw, site, affine, &bias_fine, &bias, error));
    if (!fine || !bias_fine) {
        return SBIT_OK;
    }
    inputs[0] = site->linear->inputs[0];
    inputs[1] = weight;
    if (bias.idx == 0) {
        SBIT__TRY(sbit__rebuild_node(rw->graph, site->linear, last, inputs, 2, site->linear->attrs,
                                     site->linear->attr_count, error));
    } else {
        SBIT__TRY(sbit__emit(rw->graph, last->id, "MatMul", site->linear->name, inputs, 2, NULL, 0,
                             &product, error));
        inputs[0] = product;
        inputs[1] = bias;
        SBIT__TRY(sbit__replace_node(rw->graph, last, "Add", inputs, 2, NULL, 0, 1, error));
    }
    if (tail != NULL) {
        sbit__erase_unused(rw->graph, tail);
    }
    sbit__affine_finish(rw, site->linear, weight);
    return SBIT_OK;
}

/* The constant operand of Add(MatMul, c) with one number for each channel of the last axis. */
static const sbit_tensor *sbit__affine_tail_bias(sbit__rewrite *rw, const sbit_node *add,
                                                 size_t matmul_side, int64_t channels)
{
    const sbit_tensor *bias = sbit__const_in(rw->graph, add, 1 - matmul_side);
    return bias != NULL && sbit__is_float(bias->dtype) && bias->rank >= 1 &&
                   sbit_tensor_count(bias) == channels && bias->dims[bias->rank - 1] == channels &&
                   bias->rank <= sbit__facts_type(&rw->facts, add->outputs[0])->rank
               ? bias
               : NULL;
}

static sbit_status sbit__affine_add(sbit__rewrite *rw, const sbit_node *add, const sbit_node *last,
                                    const sbit__affine *affine, bool last_axis, sbit_error *error)
{
    sbit__affine_site site;
    for (size_t side = 0; side < 2 && add->input_count == 2; side++) {
        const sbit_node *linear = sbit__sole_producer(rw->graph, add->inputs[side], "MatMul");
        if (linear == NULL || !sbit__affine_look(rw, linear, last_axis, &site)) {
            continue;
        }
        site.bias = sbit__affine_tail_bias(rw, add, side, site.channels);
        if (site.bias != NULL && (affine->count == 1 || affine->count == site.channels)) {
            return sbit__affine_matmul(rw, &site, add, last, affine, error);
        }
    }
    return SBIT_OK;
}

/* >>public to the passes */

SBIT__FN sbit_status sbit__affine_into(sbit__rewrite *rw, const sbit_node *linear,
                                       const sbit_node *last, const sbit__affine *affine,
                                       bool last_axis, sbit_error *error)
{
    sbit__affine_site site;
    sbit_value_id inputs[3];
    sbit_attr *attrs = NULL;
    bool fine = true, bias_fine = true;
    if (!sbit__sole_use(rw->graph, linear->outputs[0]) || !sbit__single_output(rw->graph, last)) {
        return SBIT_OK;
    }
    if (sbit__is_op(linear, "Add")) {
        return sbit__affine_add(rw, linear, last, affine, last_axis, error);
    }
    if (!sbit__affine_look(rw, linear, last_axis, &site) ||
        (affine->count != 1 && affine->count != site.channels)) {
        return SBIT_OK;
    }
    if (!site.has_bias) {
        return sbit__affine_matmul(rw, &site, NULL, last, affine, error);
    }
    /* alpha multiplies the weight only, so it stays what it is. */
    SBIT__TRY(sbit__affine_attrs(rw, linear, &attrs, error));
    SBIT__TRY(sbit__affine_new_weight(rw, &site, affine, &fine, &inputs[1], error));
    SBIT__TRY(sbit__affine_new_bias(rw, &site, affine, &bias_fine, &inputs[2], error));
    if (!fine || !bias_fine) {
        return SBIT_OK;
    }
    inputs[0] = linear->inputs[0];
    SBIT__TRY(sbit__rebuild_node(rw->graph, linear, last, inputs, inputs[2].idx != 0 ? 3 : 2, attrs,
                                 linear->attr_count, error));
    sbit__affine_finish(rw, linear, inputs[1]);
    return SBIT_OK;
}

/* >>in front of a Conv: W'[o, i] = W[o, i] s[i], b'[o] += sum over i, k of W[o, i, k] t[i] */

static bool sbit__affine_unpadded(const sbit_node *conv)
{
    const char *mode = sbit_node_string(conv, "auto_pad", "NOTSET");
    const sbit_attr *pads = sbit_node_attr(conv, "pads");
    if (strcmp(mode, "NOTSET") != 0 && strcmp(mode, "VALID") != 0) {
        return false;
    }
    for (size_t i = 0; pads != NULL && i < pads->count; i++) {
        if (pads->ints[i] != 0) {
            return false;
        }
    }
    return true;
}

static void sbit__affine_front(const sbit__affine_site *site, const sbit__affine *affine,
                               sbit_tensor *weight, sbit_tensor *bias)
{
    const int64_t outs = site->weight->dims[0], ins = site->weight->dims[1];
    const int64_t taps = sbit_tensor_count(site->weight) / outs / ins;
    const int64_t per_group = outs / sbit_node_int(site->linear, "group", 1);
    for (int64_t o = 0; o < outs; o++) {
        double sum = site->bias != NULL ? sbit__tensor_f64_at(site->bias, o) : 0.0;
        for (int64_t i = 0; i < ins; i++) {
            const int64_t channel = o / per_group * ins + i;
            for (int64_t k = 0; k < taps; k++) {
                const int64_t at = (o * ins + i) * taps + k;
                const double w = sbit__tensor_f64_at(site->weight, at);
                sum += w * sbit__affine_shift(affine, channel);
                sbit__tensor_set_f64(weight, at, w * sbit__affine_scale(affine, channel));
            }
        }
        sbit__tensor_set_f64(bias, o, sum);
    }
}

static sbit_status sbit__affine_front_nodes(sbit__rewrite *rw, const sbit_node *before,
                                            const sbit__affine_site *site,
                                            const sbit_tensor *weight, const sbit_tensor *bias,
                                            sbit_value_id x, sbit_error *error)
{
    const sbit_node *conv = site->linear;
    const char *weight_name = sbit_graph_value(rw->graph, conv->inputs[1])->name;
    sbit_value_id inputs[3];
    char name[256];
    if (!sbit__affine_finite(weight) || !sbit__affine_finite(bias)) {
        return SBIT_OK;
    }
    inputs[0] = x;
    SBIT__TRY(sbit_graph_add_constant(rw->graph, weight_name, weight, &inputs[1], error));
    sbit__affine_bias_name(weight_name, name, sizeof name);
    SBIT__TRY(sbit_graph_add_constant(rw->graph, name, bias, &inputs[2], error));
    SBIT__TRY(
        sbit__rebuild_node(rw->graph, conv, conv, inputs, 3, conv->attrs, conv->attr_count, error));
    sbit__erase_unused(rw->graph, before);
    if (sbit_graph_value(rw->graph, conv->inputs[1])->use_count == 0 &&
        !sbit_graph_value(rw->graph, conv->inputs[1])->is_input) {
        sbit__take_name(rw->graph, conv->inputs[1], inputs[1]);
    }
    sbit__erase_dead_value(rw->graph, conv->inputs[1]);
    sbit__erase_dead_value(rw->graph, sbit__node_in(conv, 2));
    rw->changes++;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__affine_from(sbit__rewrite *rw, const sbit_node *before, sbit_value_id x,
                                       const sbit_node *conv, const sbit__affine *affine,
                                       sbit_error *error)
{
    sbit__affine_site site;
    sbit_tensor weight, bias;
    sbit_status status = SBIT_OK;
    const int64_t groups = sbit_node_int(conv, "group", 1);
    if (!sbit__is_op(conv, "Conv") || !sbit__sole_use(rw->graph, before->outputs[0]) ||
        !sbit__single_output(rw->graph, before) || !sbit__affine_look(rw, conv, false, &site) ||
        groups < 1 || site.weight->dims[0] % groups != 0 ||
        (affine->count != 1 && affine->count != site.weight->dims[1] * groups) ||
        (sbit__affine_shifts(affine) && !sbit__affine_unpadded(conv))) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit_tensor_alloc(rw->ctx, site.weight->dtype, site.weight->rank, site.weight->dims,
                                &weight, error));
    status = sbit_tensor_alloc(rw->ctx, site.weight->dtype, 1, &site.channels, &bias, error);
    if (status == SBIT_OK) {
        sbit__affine_front(&site, affine, &weight, &bias);
        status = sbit__affine_front_nodes(rw, before, &site, &weight, &bias, x, error);
        sbit_tensor_free(rw->ctx, &bias);
    }
    sbit_tensor_free(rw->ctx, &weight);
    return status;
}
