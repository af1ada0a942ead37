/* build.c: the graph with QuantizeLinear and DequantizeLinear. >>build
 *
 * Features:  x -> [Clip] -> QuantizeLinear -> DequantizeLinear -> users. Clip only where the true
 *            width is below that of the storage type, so that any runtime clips at the true width.
 * Weights:   integer constant -> DequantizeLinear -> layer.
 * Biases:    int32 constant -> DequantizeLinear with scale_x * scale_w -> layer.
 * Values get names "<tensor>_scale", "_zero_point", "_quantized", "_dequantized", made unique by
 * the graph. Node ids of the float graph are valid in the clone; nodes are only added.
 */
#include "../passes/passes_private.h"
#include "quant_private.h"

typedef struct sbit__build {
    sbit_quant *quant;
    sbit_graph *root;  /* the clone being rewritten */
    sbit_graph *graph; /* the root, or the body that is worked on */
} sbit__build;

static bool sbit__build_int4(const sbit_quant *quant, const sbit__site *site)
{
    return site->settings.grid.bits == 4 &&
           sbit_options_bool(&quant->config->tree.top, "EXPORT.INT4");
}

static sbit_dtype sbit__build_dtype(const sbit_quant *quant, const sbit__site *site)
{
    if (sbit__build_int4(quant, site)) {
        return site->settings.grid.dtype == SBIT_I8 ? SBIT_I4 : SBIT_U4;
    }
    return site->settings.grid.dtype;
}

/* Stores an integer as element i of `dtype` (8, 16, 32 or packed 4 bits; then in rising order). */
static void sbit__build_store(sbit_dtype dtype, int32_t value, int64_t i, void *out)
{
    switch (dtype) {
    case SBIT_I16:
    case SBIT_U16: {
        const uint16_t v = (uint16_t)(uint32_t)value;
        memcpy((char *)out + 2 * i, &v, 2);
        break;
    }
    case SBIT_I4:
    case SBIT_U4: {
        uint8_t *at = (uint8_t *)out + i / 2;
        const uint32_t v = (uint32_t)value & 15u;
        *at = (uint8_t)(i % 2 == 0 ? v : (uint32_t)*at | (v << 4));
        break;
    }
    case SBIT_I32:
        memcpy((char *)out + 4 * i, &value, 4);
        break;
    default:
        ((uint8_t *)out)[i] = (uint8_t)(uint32_t)value;
        break;
    }
}

/* Adds the tensor as the constant "<base><suffix>", which takes it over. */
static sbit_status sbit__build_constant(sbit__build *b, const char *base, const char *suffix,
                                        sbit_tensor *tensor, sbit_value_id *out, sbit_error *error)
{
    sbit__text name;
    sbit__text_init(&name, sbit_ctx_allocator(b->quant->ctx));
    sbit__text_printf(&name, "%s%s", base, suffix);
    const sbit_status status =
        name.failed ? sbit__fail_oom(error, 0)
                    : sbit__graph_take_constant(b->graph, name.data, tensor, out, error);
    sbit__text_deinit(&name);
    if (status != SBIT_OK) {
        sbit_tensor_free(b->quant->ctx, tensor);
    }
    return status;
}

static sbit_status sbit__build_integers(sbit__build *b, const char *base, const char *suffix,
                                        sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                        const int32_t *values, sbit_value_id *out,
                                        sbit_error *error)
{
    sbit_tensor tensor;
    SBIT__TRY(sbit_tensor_alloc(b->quant->ctx, dtype, rank, dims, &tensor, error));
    for (int64_t i = 0; i < sbit_tensor_count(&tensor); i++) {
        sbit__build_store(dtype, values[i], i, tensor.data);
    }
    return sbit__build_constant(b, base, suffix, &tensor, out, error);
}

/* Stored in the float type of the tensor they belong to. */
static sbit_status sbit__build_floats(sbit__build *b, const char *base, const char *suffix,
                                      sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                      const float *values, sbit_value_id *out, sbit_error *error)
{
    sbit_tensor tensor;
    SBIT__TRY(sbit_tensor_alloc(b->quant->ctx, dtype, rank, dims, &tensor, error));
    sbit__convert(SBIT_F32, values, dtype, tensor.data, sbit_tensor_count(&tensor));
    return sbit__build_constant(b, base, suffix, &tensor, out, error);
}

/* Scale and zero point of a site as constants: scalars, one row, or in blocks the shape of the
 * tensor with an entry for each block. */
static sbit_status sbit__build_qparams(sbit__build *b, const sbit__site *site, const char *name,
                                       sbit_value_id *scale, sbit_value_id *zero_point,
                                       sbit_error *error)
{
    const sbit_tensor *shape = &sbit__site_value(site)->constant;
    int32_t rank = site->axis >= 0 ? 1 : 0;
    int64_t dims[SBIT_MAX_RANK] = {0};
    dims[0] = sbit__site_parts(site);
    if (site->block > 0) {
        rank = shape->rank;
        memcpy(dims, shape->dims, sizeof dims);
        dims[site->axis] = (dims[site->axis] + site->block - 1) / site->block;
    }
    SBIT__TRY(
        sbit__build_floats(b, name, "_scale", site->dtype, rank, dims, site->scale, scale, error));
    return sbit__build_integers(b, name, "_zero_point", sbit__build_dtype(b->quant, site), rank,
                                dims, site->zero_point, zero_point, error);
}

/* One node with one fresh output "<base><suffix>"; axis -1: no axis attribute. */
static sbit_status sbit__build_node(sbit__build *b, const char *op_type, const char *base,
                                    const char *suffix, const sbit_value_id *inputs,
                                    size_t input_count, int32_t axis, sbit_node_id before,
                                    const sbit_type *type, sbit_node_id *node, sbit_value_id *out,
                                    sbit_error *error)
{
    sbit__text name;
    sbit_node_desc desc;
    const sbit_attr attr = sbit__attr_int("axis", axis);
    memset(&desc, 0, sizeof desc);
    sbit__text_init(&name, sbit_ctx_allocator(b->quant->ctx));
    sbit__text_printf(&name, "%s%s", base, suffix);
    if (name.failed) {
        return sbit__fail_oom(error, 0);
    }
    sbit_status status = sbit_graph_add_value(b->graph, name.data, type, out, error);
    desc.op_type = op_type;
    desc.name = name.data;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = out;
    desc.output_count = 1;
    desc.attrs = &attr;
    desc.attr_count = axis >= 0 ? 1 : 0;
    desc.before = before;
    if (status == SBIT_OK) {
        status = sbit_graph_add_node(b->graph, &desc, node, error);
    }
    sbit__text_deinit(&name);
    return status;
}

static sbit_status sbit__build_mark_bits(sbit__build *b, const sbit__site *site, sbit_node_id node,
                                         sbit_error *error)
{
    char text[16];
    if (site->settings.grid.bits == 8 || site->settings.grid.bits == 16) {
        return SBIT_OK; /* the storage type says it */
    }
    snprintf(text, sizeof text, "%d", (int)site->settings.grid.bits);
    return sbit_graph_add_node_metadata(b->graph, node, "bits", text, error);
}

/* >>build activations */
/* True if the quantized integers can be wider than the site's range in their storage. */
static bool sbit__build_needs_clip(const sbit_quant *quant, const sbit__site *site)
{
    const int32_t bits = site->settings.grid.bits;
    return bits != 8 && bits != 16 && !sbit__build_int4(quant, site);
}

/* The values of the lowest or the highest integer of each part, shaped to go with the tensor. */
static sbit_status sbit__build_limit(sbit__build *b, const sbit__site *site, const char *name,
                                     const sbit_type *type, int32_t q, sbit_value_id *out,
                                     sbit_error *error)
{
    const bool lowest = q == site->settings.grid.qmin;
    sbit_tensor limit;
    int64_t dims[SBIT_MAX_RANK];
    const int32_t rank = site->axis >= 0 ? type->rank - site->axis : 0;
    for (int32_t i = 0; i < rank; i++) {
        dims[i] = i == 0 ? sbit__site_parts(site) : 1;
    }
    SBIT__TRY(sbit_tensor_alloc(b->quant->ctx, type->dtype, rank, dims, &limit, error));
    for (int64_t c = 0; c < sbit__site_parts(site); c++) {
        const float value = (float)(q - site->zero_point[c]) * site->scale[c];
        sbit__tensor_set_f64(&limit, c, (double)value);
    }
    return sbit__build_constant(b, name, lowest ? "_lowest" : "_highest", &limit, out, error);
}

/* Clip knows scalars only: per channel it is Max and Min. */
static sbit_status sbit__build_clip(sbit__build *b, const sbit__site *site, const char *name,
                                    sbit_node_id before, const sbit_type *type, sbit_value_id *x,
                                    sbit_node_id *first, sbit_error *error)
{
    const sbit_grid *grid = &site->settings.grid;
    sbit_value_id inputs[3];
    sbit_node_id node;
    inputs[0] = *x;
    SBIT__TRY(sbit__build_limit(b, site, name, type, grid->qmin, &inputs[1], error));
    SBIT__TRY(sbit__build_limit(b, site, name, type, grid->qmax, &inputs[2], error));
    if (site->axis < 0) {
        return sbit__build_node(b, "Clip", name, "_clipped", inputs, 3, -1, before, type, first, x,
                                error);
    }
    SBIT__TRY(
        sbit__build_node(b, "Max", name, "_raised", inputs, 2, -1, before, type, first, x, error));
    inputs[0] = *x;
    inputs[1] = inputs[2];
    return sbit__build_node(b, "Min", name, "_clipped", inputs, 2, -1, before, type, &node, x,
                            error);
}

/* Where the pair goes: behind the producer, or for graph inputs before everything. */
static sbit_node_id sbit__build_place(const sbit__build *b, sbit_value_id value)
{
    const sbit_value_info *info = sbit_graph_value(b->graph, value);
    return info->producer.idx != 0 ? sbit_graph_next(b->graph, info->producer)
                                   : sbit_graph_first(b->graph);
}

/* Turns every node input that reads `from` to `to`; bodies and graph outputs keep the float. */
static sbit_status sbit__build_redirect_all(sbit__build *b, sbit_value_id from, sbit_value_id to,
                                            sbit_node_id except, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(b->quant->ctx);
    const size_t count = sbit_graph_uses(b->graph, from, NULL, 0);
    sbit_use *uses = (sbit_use *)sbit__calloc(a, count + 1, sizeof *uses);
    if (uses == NULL) {
        return sbit__fail_oom(error, count * sizeof *uses);
    }
    sbit_graph_uses(b->graph, from, uses, count);
    sbit_status status = SBIT_OK;
    for (size_t i = 0; i < count && status == SBIT_OK; i++) {
        if (uses[i].node.idx != 0 && uses[i].body == NULL && uses[i].node.idx != except.idx) {
            status = sbit_graph_set_node_input(b->graph, uses[i].node, uses[i].index, to, error);
        }
    }
    sbit__free(a, uses, (count + 1) * sizeof *uses);
    return status;
}

static sbit_status sbit__build_activation(sbit__build *b, const sbit__site *site, sbit_error *error)
{
    const sbit_value_info *value = sbit__site_value(site);
    const sbit_node_id before = sbit__build_place(b, site->value);
    sbit_type type = value->type;
    sbit_value_id q_inputs[3], dq_inputs[3], x = site->value, y;
    sbit_node_id first = {0}, node;
    SBIT__TRY(sbit__build_qparams(b, site, value->name, &q_inputs[1], &q_inputs[2], error));
    if (site->settings.quantizer->nodes != NULL) {
        const sbit_quantizer_call call = sbit__site_quantizer(b->quant, site);
        SBIT__TRY(site->settings.quantizer->nodes(&call, b->graph, x, before, &first, &x, error));
    }
    if (sbit__build_needs_clip(b->quant, site)) {
        SBIT__TRY(sbit__build_clip(b, site, value->name, before, &type, &x, &node, error));
        first = first.idx != 0 ? first : node;
    }
    q_inputs[0] = x;
    type.dtype = sbit__build_dtype(b->quant, site);
    SBIT__TRY(sbit__build_node(b, "QuantizeLinear", value->name, "_quantized", q_inputs, 3,
                               site->axis, before, &type, &node, &dq_inputs[0], error));
    first = first.idx != 0 ? first : node;
    SBIT__TRY(sbit__build_mark_bits(b, site, node, error));
    dq_inputs[1] = q_inputs[1];
    dq_inputs[2] = q_inputs[2];
    type.dtype = site->dtype;
    SBIT__TRY(sbit__build_node(b, "DequantizeLinear", value->name, "_dequantized", dq_inputs, 3,
                               site->axis, before, &type, &node, &y, error));
    SBIT__TRY(sbit__build_mark_bits(b, site, node, error));
    if (site->all_uses) {
        return sbit__build_redirect_all(b, site->value, y, first, error);
    }
    for (const sbit__site_use *use = site->uses; use != NULL; use = use->next) {
        SBIT__TRY(sbit_graph_set_node_input(b->graph, use->node, use->input, y, error));
    }
    return SBIT_OK;
}

/* >>build weights */
static int32_t sbit__build_round(double value, int32_t zero_point, int32_t qmin, int32_t qmax)
{
    const double q = nearbyint(value) + (double)zero_point;
    return q < (double)qmin ? qmin : q > (double)qmax ? qmax : (int32_t)q;
}

/* The integer of every element; x / scale in fp32, as QuantizeLinear does. */
static void sbit__build_quantize(const sbit_kernels *kernels, const sbit__site *site,
                                 const sbit_observation *x, sbit_tensor *out)
{
    const int32_t qmin = site->settings.grid.qmin, qmax = site->settings.grid.qmax;
    sbit_runs runs = sbit_runs_of(&x->parts);
    while (sbit_runs_next(&runs)) {
        const int32_t zero_point = site->zero_point[runs.part];
        const float scale = site->scale[runs.part];
        if (sbit__site_is_float8(site)) {
            for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
                ((uint8_t *)out->data)[i] = sbit__f32_to_f8(out->dtype, x->data[i] / scale, true);
            }
            continue;
        }
        if (out->dtype == SBIT_I8 && runs.count > 1) {
            kernels->f32_quantize_s8(runs.count, x->data + runs.at, scale, zero_point, qmin, qmax,
                                     (int8_t *)out->data + runs.at);
            continue;
        }
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double q = (double)(x->data[i] / scale);
            sbit__build_store(out->dtype, sbit__build_round(q, zero_point, qmin, qmax), i,
                              out->data);
        }
    }
}

/* A weight's integers, from the values that its quantizer wants stored. */
static sbit_status sbit__build_weight_values(sbit__build *b, sbit__site *site,
                                             const sbit_tensor *weight, sbit_tensor *out,
                                             sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(b->quant->ctx);
    const sbit_kernels *kernels = sbit__kernels(b->quant->ctx);
    const sbit_quantizer_row *row = site->settings.quantizer;
    const size_t bytes = sbit_tensor_bytes(weight);
    sbit_observation x = sbit__site_observation(site, weight, (const float *)weight->data);
    if (site->rounded != NULL) { /* a step put the values on the grid */
        x.data = site->rounded;
        sbit__build_quantize(kernels, site, &x, out);
        return SBIT_OK;
    }
    if (row->finish == NULL || site->change.scale != NULL) {
        sbit__build_quantize(kernels, site, &x, out);
        return SBIT_OK;
    }
    float *effective = (float *)sbit__alloc(a, bytes);
    if (effective == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    const sbit_quantizer_call quantizer = sbit__site_quantizer(b->quant, site);
    memcpy(effective, weight->data, bytes);
    const sbit_status status = row->finish(site->quantizer_state, &quantizer, &x, effective, error);
    if (status == SBIT_OK) {
        x.data = effective;
        sbit__build_quantize(kernels, site, &x, out);
    }
    sbit__free(a, effective, bytes);
    return status;
}

SBIT__FN sbit_status sbit__site_dequantized(sbit_quant *quant, sbit__site *site, float *out,
                                            sbit_error *error)
{
    sbit__build b;
    sbit_tensor weight, integers;
    b.quant = quant;
    b.root = b.graph = NULL;
    if (site->raw) {
        memcpy(out, site->rounded, site->rounded_bytes);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__site_weight(quant, site, &weight, error));
    SBIT__TRY(sbit_tensor_alloc(quant->ctx, sbit__build_dtype(quant, site), weight.rank,
                                weight.dims, &integers, error));
    const sbit_status status = sbit__build_weight_values(&b, site, &weight, &integers, error);
    const sbit_observation x = sbit__site_observation(site, &weight, NULL);
    sbit_runs runs = sbit_runs_of(&x.parts);
    while (status == SBIT_OK && sbit_runs_next(&runs)) {
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double q = sbit__tensor_f64_at(&integers, i);
            out[i] = (float)(q - (double)site->zero_point[runs.part]) * site->scale[runs.part];
        }
    }
    sbit_tensor_free(quant->ctx, &integers);
    return status;
}

static sbit_status sbit__build_weight_constant(sbit__build *b, sbit__site *site, sbit_value_id *out,
                                               sbit_error *error)
{
    const sbit_value_info *value = sbit__site_value(site);
    sbit_tensor weight, integers;
    SBIT__TRY(sbit__site_weight(b->quant, site, &weight, error));
    SBIT__TRY(sbit_tensor_alloc(b->quant->ctx, sbit__build_dtype(b->quant, site), weight.rank,
                                weight.dims, &integers, error));
    const sbit_status status = sbit__build_weight_values(b, site, &weight, &integers, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(b->quant->ctx, &integers);
        return status;
    }
    return sbit__build_constant(b, value->name, "_quantized", &integers, out, error);
}

static sbit_status sbit__build_bias_nodes(sbit__build *b, const sbit__bias *bias,
                                          sbit_node_id layer, const float *scale, const int32_t *q,
                                          sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(b->graph, layer);
    const sbit_op_row *row = sbit_operator_find(b->quant->ctx, node->domain, node->op_type,
                                                sbit_graph_opset(b->graph, node->domain));
    const sbit_value_info *value = bias->value;
    const bool per_channel = bias->weight->axis >= 0 && bias->count > 1;
    const int64_t *dims = per_channel ? &bias->count : value->constant.dims;
    sbit_type type = value->type;
    sbit_value_id inputs[2], y;
    sbit_node_id added;
    SBIT__TRY(sbit__build_integers(b, value->name, "_quantized", SBIT_I32,
                                   per_channel ? 1 : value->constant.rank, dims, q, &inputs[0],
                                   error));
    SBIT__TRY(sbit__build_floats(b, value->name, "_scale", SBIT_F32, per_channel ? 1 : 0,
                                 &bias->count, scale, &inputs[1], error));
    if (per_channel) {
        memset(&type, 0, sizeof type);
        type.dtype = SBIT_F32;
        type.rank = 1;
        type.dims[0].value = bias->count;
    }
    SBIT__TRY(sbit__build_node(b, "DequantizeLinear", value->name, "_dequantized", inputs, 2,
                               per_channel ? 0 : -1, layer, &type, &added, &y, error));
    return sbit_graph_set_node_input(b->graph, layer, (size_t)row->quant->bias, y, error);
}

/* The int32 bias of one layer, where the profile wants it. */
static sbit_status sbit__build_bias(sbit__build *b, const sbit__site *weight, sbit_node_id layer,
                                    sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(b->quant->ctx);
    sbit__bias bias;
    if (!sbit__profile_is(b->quant->profile, SBIT_PROFILE_INT32_BIAS) ||
        !sbit__bias_of(b->quant, b->graph, layer, weight, &bias) ||
        bias.value->constant.dtype != SBIT_F32) {
        return SBIT_OK;
    }
    const size_t bytes = (size_t)bias.count * (sizeof(float) + sizeof(int32_t));
    float *scale = (float *)sbit__alloc(a, bytes);
    if (scale == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    int32_t *q = (int32_t *)(void *)(scale + bias.count);
    const float *values = (const float *)bias.value->constant.data;
    bool fits = true;
    sbit_status status = SBIT_OK;
    for (int64_t i = 0; i < bias.count; i++) {
        scale[i] = sbit__bias_scale(&bias, i);
        fits = sbit__bias_round(&bias, i, values[i % bias.given], &q[i]) && fits;
    }
    if (fits) {
        status = sbit__build_bias_nodes(b, &bias, layer, scale, q, error);
    } else {
        sbit__log(b->quant->ctx, SBIT_LOG_WARNING,
                  "bias '%s' stays float: it does not fit in 31 bits with the scales of its layer",
                  bias.value->name);
    }
    sbit__free(a, scale, bytes);
    return status;
}

/* The node and input that hold a layer's bias, in the graph that is built: its own, or that of the
 * Add with a constant that alone reads a MatMul. False: it cannot have one. */
static bool sbit__build_bias_place(const sbit__build *b, sbit_node_id layer, sbit_node_id *node,
                                   size_t *input)
{
    const sbit_node *info = sbit_graph_node(b->graph, layer);
    *node = layer;
    *input = 2;
    if (sbit__streq(info->op_type, "Conv") || sbit__streq(info->op_type, "Gemm")) {
        return true;
    }
    sbit_use use;
    const sbit_value_info *y = sbit_graph_value(b->graph, info->outputs[0]);
    if (!sbit__streq(info->op_type, "MatMul") || y->use_count != 1 || y->is_output ||
        sbit_graph_uses(b->graph, y->id, &use, 1) != 1 || use.node.idx == 0 || use.body != NULL) {
        return false;
    }
    const sbit_node *add = sbit_graph_node(b->graph, use.node);
    *node = use.node;
    *input = 1 - use.index;
    return sbit__streq(add->op_type, "Add") &&
           sbit_graph_value(b->graph, add->inputs[*input])->is_constant;
}

/* Adds the site's shift to its layer's bias. */
static sbit_status sbit__build_shift(sbit__build *b, const sbit__site *site, sbit_node_id layer,
                                     sbit_error *error)
{
    const int64_t count = (int64_t)(site->shift_bytes / sizeof(float));
    sbit_node_id node;
    size_t input;
    sbit_tensor tensor;
    sbit_value_id id;
    if (site->shift == NULL || !sbit__build_bias_place(b, layer, &node, &input)) {
        return SBIT_OK;
    }
    const sbit_node *info = sbit_graph_node(b->graph, node);
    const sbit_value_info *old = input < info->input_count && info->inputs[input].idx != 0
                                     ? sbit_graph_value(b->graph, info->inputs[input])
                                     : NULL;
    const int64_t given = old != NULL ? sbit_tensor_count(&old->constant) : 0;
    if (old != NULL && (!old->is_constant || (given != count && given != 1))) {
        return SBIT_OK;
    }
    const sbit_dtype dtype = old != NULL ? old->constant.dtype : site->dtype;
    const bool keep = given == count; /* [1,N] stays so */
    SBIT__TRY(sbit_tensor_alloc(b->quant->ctx, dtype, keep ? old->constant.rank : 1,
                                keep ? old->constant.dims : &count, &tensor, error));
    for (int64_t i = 0; i < count; i++) {
        const double before =
            old != NULL ? sbit__tensor_f64_at(&old->constant, given == 1 ? 0 : i) : 0.0;
        sbit__tensor_set_f64(&tensor, i, before + (double)site->shift[i]);
    }
    const char *base = old != NULL ? old->name : sbit_graph_node(b->graph, layer)->name;
    SBIT__TRY(
        sbit__build_constant(b, base, old != NULL ? "_corrected" : "_bias", &tensor, &id, error));
    return sbit_graph_set_node_input(b->graph, node, input, id, error);
}

/* A weight that stays float, with what a step made of it. */
static sbit_status sbit__build_raw(sbit__build *b, const sbit__site *site, sbit_error *error)
{
    sbit_tensor weight = sbit__site_value(site)->constant;
    weight.data = site->rounded;
    SBIT__TRY(sbit_graph_set_constant(b->graph, site->value, &weight, error));
    return sbit__build_shift(b, site, site->uses->node, error);
}

static sbit_status sbit__build_weight(sbit__build *b, sbit__site *site, bool with_bias,
                                      sbit_error *error)
{
    const sbit_value_info *value = sbit__site_value(site);
    const sbit_node_id before = site->captured ? sbit_graph_first(b->graph) : site->uses->node;
    sbit_value_id inputs[3], y;
    sbit_node_id node;
    SBIT__TRY(sbit__build_weight_constant(b, site, &inputs[0], error));
    SBIT__TRY(sbit__build_qparams(b, site, value->name, &inputs[1], &inputs[2], error));
    SBIT__TRY(sbit__build_node(b, "DequantizeLinear", value->name, "_dequantized", inputs, 3,
                               site->axis, before, &value->type, &node, &y, error));
    if (site->block > 0) {
        const sbit_attr block = sbit__attr_int("block_size", site->block);
        SBIT__TRY(sbit_graph_set_attr(b->graph, node, &block, error));
    }
    SBIT__TRY(sbit__build_mark_bits(b, site, node, error));
    if (site->captured) {
        return sbit_graph_replace_uses(b->graph, site->value, y, error);
    }
    for (const sbit__site_use *use = site->uses; use != NULL; use = use->next) {
        SBIT__TRY(sbit_graph_set_node_input(b->graph, use->node, use->input, y, error));
        SBIT__TRY(sbit__build_shift(b, site, use->node, error));
        if (with_bias) {
            SBIT__TRY(sbit__build_bias(b, site, use->node, error));
        }
    }
    return SBIT_OK;
}

/* Float weights that nothing reads any more; an initializer that was listed as an input too
 * leaves both lists. */
static sbit_status sbit__build_drop_unused(sbit__build *b, sbit_error *error)
{
    const uint32_t limit = sbit_graph_value_limit(b->graph);
    for (uint32_t i = 1; i < limit; i++) {
        const sbit_value_id id = {i};
        if (!sbit_graph_value_alive(b->graph, id)) {
            continue;
        }
        const sbit_value_info *value = sbit_graph_value(b->graph, id);
        if (value->is_constant && value->use_count == 0) {
            if (value->is_input) {
                SBIT__TRY(sbit_graph_set_input(b->graph, id, false, error));
            }
            sbit_graph_erase_value(b->graph, id);
        }
    }
    return SBIT_OK;
}

/* >>build description */
static void sbit__build_to_text(const char *text, size_t size, void *user)
{
    sbit__text_append((sbit__text *)user, text, size);
}

/* How the model was made; and PyTorch's notes for debugging its exporter (stack traces, a fifth of
 * a small quantized file) are left behind. */
static sbit_status sbit__build_describe(sbit__build *b, sbit_error *error)
{
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(b->quant->ctx));
    sbit_qconfig_print(b->quant->config, true, sbit__build_to_text, &text);
    sbit_status status = text.failed ? sbit__fail_oom(error, text.size) : SBIT_OK;
    if (status == SBIT_OK) {
        status = sbit_graph_add_metadata(b->root, "sparsebit.qconfig", text.data, error);
    }
    if (status == SBIT_OK) {
        status = sbit_graph_add_metadata(b->root, "sparsebit.version", SPARSEBIT_VERSION, error);
    }
    sbit__text_deinit(&text);
    return status;
}

static sbit_status sbit__build_drop_notes(sbit_graph *graph, sbit_error *error)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        SBIT__TRY(sbit_graph_drop_node_metadata(graph, id, "pkg.torch.onnx.", error));
    }
    return SBIT_OK;
}

/* The last word of the activations' quantizers; weights get theirs with their values. */
static sbit_status sbit__build_finish(sbit__build *b, sbit_error *error)
{
    for (size_t i = 0; i < b->quant->site_count; i++) {
        const sbit__site *site = &b->quant->sites[i];
        const sbit_quantizer_row *row = site->settings.quantizer;
        const sbit_quantizer_call call = sbit__site_quantizer(b->quant, site);
        if (site->enabled && site->target == SBIT_TARGET_ACTIVATION && !site->fixed_range &&
            site->leader == 0 && site->change.scale == NULL && row->finish != NULL) {
            SBIT__TRY(row->finish(site->quantizer_state, &call, NULL, NULL, error));
        }
    }
    sbit__quant_follow(b->quant);
    return SBIT_OK;
}

/* The sites that a build is to quantize. */
static bool sbit__build_wants(const sbit__build *b, const sbit_quant_build_desc *desc, size_t index)
{
    const sbit__site *site = &b->quant->sites[index];
    const bool weight = site->target == SBIT_TARGET_WEIGHT;
    return site->enabled && !(weight ? desc->float_weights : desc->float_activations) &&
           (desc->sites == NULL || desc->sites[index]);
}

/* Operators beside blocks that nothing was fitted for in this build have weights of 0: they and their sums go. */
static sbit_status sbit__build_drop_beside(sbit__build *b, const sbit_quant_build_desc *desc,
                                           sbit_error *error)
{
    const sbit_graph *plain = b->quant->graph;
    int64_t dropped = 0;
    for (size_t i = 0; i < b->quant->beside_count; i++) {
        const sbit__beside *beside = &b->quant->beside[i];
        const sbit__site *site = sbit__site_on(
            b->quant, plain, sbit_graph_node(plain, beside->node)->inputs[1], SBIT_TARGET_WEIGHT);
        if (site == NULL || site->rounded == NULL ||
            !sbit__build_wants(b, desc, (size_t)(site - b->quant->sites))) {
            SBIT__TRY(sbit_graph_replace_uses(b->root, beside->sum, beside->y, error));
            dropped++;
        }
    }
    return dropped > 0 ? sbit__pass_dead_code()->run(b->root, NULL, &dropped, error) : SBIT_OK;
}

static sbit_status sbit__build_into(sbit__build *b, const sbit_quant_build_desc *desc, bool whole,
                                    sbit_error *error)
{
    SBIT__TRY(sbit__build_finish(b, error));
    for (size_t i = 0; i < b->quant->site_count; i++) {
        const sbit__site *site = &b->quant->sites[i];
        if (site->target == SBIT_TARGET_ACTIVATION && sbit__build_wants(b, desc, i)) {
            b->graph = sbit__quant_body(b->root, site->body);
            SBIT__TRY(sbit__build_activation(b, site, error));
        }
    }
    for (size_t i = 0; i < b->quant->site_count; i++) {
        sbit__site *site = &b->quant->sites[i];
        if (site->target == SBIT_TARGET_WEIGHT && sbit__build_wants(b, desc, i)) {
            b->graph = sbit__quant_body(b->root, site->body);
            SBIT__TRY(site->raw ? sbit__build_raw(b, site, error)
                                : sbit__build_weight(b, site, !desc->float_activations, error));
        }
    }
    SBIT__TRY(whole ? SBIT_OK : sbit__build_drop_beside(b, desc, error));
    const sbit_options *top = &b->quant->config->tree.top;
    if (sbit_options_bool(top, "EXPORT.FOLD_BN") && !sbit_options_bool(top, "SCHEDULE.BN_TUNING")) {
        const bool integers = sbit__profile_is(b->quant->profile, SBIT_PROFILE_INT32_BIAS);
        SBIT__TRY(sbit__fold_norms(b->root, integers && !desc->float_activations, error));
    }
    for (uint32_t body = 0; (b->graph = sbit__quant_body(b->root, body)) != NULL; body++) {
        SBIT__TRY(sbit__build_drop_unused(b, error));
        SBIT__TRY(sbit__build_drop_notes(b->graph, error));
        SBIT__TRY(sbit_graph_sort(b->graph, error));
    }
    const int64_t opset = sbit__quant_opset(b->quant); /* wishes may need a later one */
    if (sbit_graph_opset(b->root, "") < opset) {
        SBIT__TRY(sbit_graph_lift_opset(b->root, opset, error));
    }
    return sbit__build_describe(b, error);
}

SPARSEBIT_API sbit_status sbit_quant_build(sbit_quant *quant, const sbit_quant_build_desc *desc,
                                           sbit_graph **out, sbit_error *error)
{
    return sbit__quant_build(quant, desc, false, out, error);
}

SBIT__FN sbit_status sbit__quant_build(sbit_quant *quant, const sbit_quant_build_desc *desc, bool whole,
                                       sbit_graph **out, sbit_error *error)
{
    sbit_quant_build_desc d;
    sbit__build b;
    const sbit_format_row *format;
    memset(&d, 0, sizeof d);
    if (quant == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant or out is NULL");
    }
    if (!quant->calibrated) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL, "call sbit_quant_calc_qparams first");
    }
    d = desc != NULL ? *desc : d;
    SBIT__TRY(sbit__format_get(quant->ctx,
                               d.format != NULL
                                   ? d.format
                                   : sbit_options_string(&quant->config->tree.top, "EXPORT.FORMAT"),
                               &format, error));
    d.float_activations = d.float_activations || format->float_activations;
    b.quant = quant;
    b.root = NULL;
    SBIT__TRY(sbit_graph_clone(quant->graph, &b.root, error));
    b.graph = b.root;
    sbit_status status = sbit__build_into(&b, &d, whole, error);
    if (status == SBIT_OK && format->write != NULL) {
        status = format->write(b.root, error);
    }
    if (status != SBIT_OK) {
        sbit_graph_destroy(b.root);
        return status;
    }
    *out = b.root;
    return SBIT_OK;
}
