/* qat.c: quantization-aware training: quantizers inside the graph that is trained. >>qat
 *
 * Called by: users. Calls: quant (sites), quantizers (rows), trainer.
 * Every site of the quant becomes an External node that calls its quantizer's row: forward for y,
 * backward for dx and the gradients of the row's parameters (scales ...). These parameters are
 * values of the graph, fed from the row's own memory: the optimizer changes them where forward
 * reads them. Sites that share a scale share the state of the first of them. What finish publishes
 * is what is exported: the Q/DQ pair computes what forward did, bit for bit.
 */
#include "../ops/gradient_private.h"
#include "../quant/quant_private.h"
#include "train_private.h"

typedef struct sbit__qat_site {
    sbit__external functions; /* user: this struct */
    sbit_quant *quant;
    const bool *off;  /* the trainer's */
    sbit__site *site; /* whose state, scale and settings are used */
    const sbit_quantizer_row *row;
    void *state; /* of a row that learns; else NULL: scale and zero point stay as calibrated */
    sbit_parameter *parameters; /* [count] of the row */
    sbit_value_id *inputs;      /* [1 + count] of its node: x, which changes, and the parameters */
    size_t count;
    int32_t bits; /* as configured */
    float *range; /* [2] in the trainer's ranges, of one that follows the batches; else NULL */
    float low, high;
    bool seen; /* low and high are of the last run */
} sbit__qat_site;

/* >>the node */

static void sbit__qat_see(sbit__qat_site *q, const sbit_op_call *call)
{
    const int64_t count = sbit_tensor_count(call->in[0]);
    float low, high;
    bool finite = false;
    if (q->range != NULL && count > 0) {
        call->kernels->f32_minmax(count, (const float *)call->in[0]->data, &low, &high, &finite);
    }
    if (finite) {
        q->low = q->seen && q->low < low ? q->low : low;
        q->high = q->seen && q->high > high ? q->high : high;
        q->seen = true;
    }
}

static sbit_status sbit__qat_forward(void *user, const sbit_op_call *call, sbit_error *error)
{
    sbit__qat_site *q = (sbit__qat_site *)user;
    sbit__qat_see(q, call);
    if (*q->off) {
        memcpy(call->out[0]->data, call->in[0]->data, sbit_tensor_bytes(call->in[0]));
        return SBIT_OK;
    }
    const sbit_quantizer_call quantizer = sbit__site_quantizer(q->quant, q->site);
    const sbit_observation x =
        sbit__site_observation(q->site, call->in[0], (const float *)call->in[0]->data);
    return q->row->forward(q->state, &quantizer, &x, (float *)call->out[0]->data, error);
}

/* Inputs dy, x, parameters; outputs dx, their gradients. */
static sbit_status sbit__qat_backward(void *user, const sbit_op_call *call, sbit_error *error)
{
    const sbit__qat_site *q = (const sbit__qat_site *)user;
    const sbit_quantizer_call quantizer = sbit__site_quantizer(q->quant, q->site);
    const sbit_observation x =
        sbit__site_observation(q->site, call->in[1], (const float *)call->in[1]->data);
    float *dx = call->out[0] != NULL ? (float *)call->out[0]->data : (float *)call->scratch;
    for (size_t i = 0; i < q->count; i++) {
        memset(q->parameters[i].gradient, 0, (size_t)q->parameters[i].count * sizeof(float));
    }
    if (*q->off) {
        memcpy(dx, call->in[0]->data, sbit_tensor_bytes(call->in[0]));
    } else {
        SBIT__TRY(q->row->backward(q->state, &quantizer, &x, (const float *)call->in[0]->data, dx,
                                   error));
    }
    for (size_t i = 0; i < q->count; i++) {
        sbit_tensor *out = (int32_t)i + 1 < call->output_count ? call->out[i + 1] : NULL;
        if (out != NULL) {
            memcpy(out->data, q->parameters[i].gradient, sbit_tensor_bytes(out));
        }
    }
    return SBIT_OK;
}

/* >>sites */

/* The site whose state all sites of a group with the same kind of quantizer use. A range that was
 * fixed for its operator goes with those that it was joined with. */
static sbit__site *sbit__qat_leader(sbit_quant *quant, sbit__site *site)
{
    for (size_t i = 0; sbit__site_shares(site) && i < quant->site_count; i++) {
        sbit__site *other = &quant->sites[i];
        if (sbit__site_shares(other) && other->group == site->group && !other->fixed_range &&
            (site->fixed_range || other->settings.quantizer == site->settings.quantizer)) {
            return other;
        }
    }
    return site;
}

static sbit__qat_site *sbit__qat_known(sbit__qat_site **sites, size_t count,
                                       const sbit__site *leader)
{
    for (size_t i = 0; i < count; i++) {
        if (sites[i]->site == leader) {
            return sites[i];
        }
    }
    return NULL;
}

/* The parameters of a row that learns become constants of the clone. */
static sbit_status sbit__qat_parameters(sbit_trainer *t, sbit__qat_site *q, sbit_error *error)
{
    const sbit_quantizer_call call = sbit__site_quantizer(q->quant, q->site);
    sbit_parameter parameter;
    size_t count = 0;
    while (q->state != NULL && q->row->parameter != NULL &&
           q->row->parameter(q->state, &call, count, &parameter)) {
        count++;
    }
    q->parameters =
        (sbit_parameter *)sbit__arena_array(&t->arena, count + 1, sizeof *q->parameters);
    q->inputs = (sbit_value_id *)sbit__arena_array(&t->arena, count + 1, sizeof *q->inputs);
    if (q->parameters == NULL || q->inputs == NULL) {
        return sbit__fail_oom(error, count * sizeof *q->parameters);
    }
    for (; q->count < count; q->count++) {
        sbit_parameter *p = &q->parameters[q->count];
        char name[200];
        sbit_tensor tensor;
        q->row->parameter(q->state, &call, q->count, p);
        memset(&tensor, 0, sizeof tensor);
        tensor.dtype = SBIT_F32;
        tensor.rank = 1;
        tensor.dims[0] = p->count;
        tensor.data = p->data;
        snprintf(name, sizeof name, "%.160s.%.32s", q->site->tensor, p->name);
        SBIT__TRY(
            sbit_graph_add_constant(t->graph, name, &tensor, &q->inputs[1 + q->count], error));
    }
    return SBIT_OK;
}

/* What a site needs to be run. */
static sbit_status sbit__qat_make(sbit_trainer *t, sbit_quant *quant, sbit__site *site,
                                  sbit__qat_site **out, sbit_error *error)
{
    sbit__qat_site *q = (sbit__qat_site *)sbit__arena_alloc(&t->arena, sizeof *q);
    const bool fixed = site->fixed_range || site->change.scale != NULL;
    if (q == NULL) {
        return sbit__fail_oom(error, sizeof *q);
    }
    q->quant = quant;
    q->off = &t->qat_off;
    q->site = site;
    q->bits = site->settings.grid.bits;
    q->row = fixed ? sbit__quantizer_uniform() : site->settings.quantizer;
    q->state = fixed ? NULL : site->quantizer_state;
    q->functions.forward = sbit__qat_forward;
    q->functions.backward = q->row->backward != NULL ? sbit__qat_backward : NULL;
    q->functions.user = q;
    q->functions.elementwise = site->axis < 0; /* one scale for all */
    if (q->row->backward == NULL) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, site->tensor,
                          "quantizer '%s' of tensor '%s' cannot be trained", q->row->head.name,
                          site->tensor);
    }
    *out = q;
    return sbit__qat_parameters(t, q, error);
}

/* >>biases: int32 at scale_x * scale_w where the export makes them so; gradients straight through
 */

typedef struct sbit__qat_bias {
    sbit__external functions;
    const bool *off;
    sbit__bias bias; /* with the sites whose scales are the current ones */
} sbit__qat_bias;

static sbit_status sbit__qat_bias_forward(void *user, const sbit_op_call *call, sbit_error *error)
{
    const sbit__qat_bias *node = (const sbit__qat_bias *)user;
    const sbit__bias *b = &node->bias;
    const float *from = (const float *)call->in[0]->data;
    float *to = (float *)call->out[0]->data;
    bool fits = !*node->off;
    (void)error;
    for (int64_t i = 0; fits && i < b->count; i++) {
        int32_t q;
        fits = sbit__bias_round(b, i, from[i], &q) && fits;
        to[i] = (float)q * sbit__bias_scale(b, i);
    }
    if (!fits) { /* it stays float then */
        memcpy(to, from, sbit_tensor_bytes(call->in[0]));
    }
    return SBIT_OK;
}

static sbit_status sbit__qat_bias_backward(void *user, const sbit_op_call *call, sbit_error *error)
{
    (void)user;
    (void)error;
    if (call->out[0] != NULL) {
        memcpy(call->out[0]->data, call->in[0]->data, sbit_tensor_bytes(call->in[0]));
    }
    return SBIT_OK;
}

/* One node before a layer, with one output. */
static sbit_status sbit__qat_before(sbit_trainer *t, sbit_node_id layer, const char *op_type,
                                    const sbit_value_id *inputs, size_t input_count,
                                    const sbit_attr *attr, const sbit_type *type, sbit_value_id *y,
                                    sbit_error *error)
{
    sbit_node_desc desc;
    sbit_node_id added;
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(sbit_graph_add_value(t->graph, "bias_quantized", type, y, error));
    desc.op_type = op_type;
    desc.domain = attr != NULL ? "sbit" : "";
    desc.name = "bias_quantized";
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = y;
    desc.output_count = 1;
    desc.attrs = attr;
    desc.attr_count = attr != NULL ? 1 : 0;
    desc.before = layer;
    return sbit_graph_add_node(t->graph, &desc, &added, error);
}

/* The bias of one layer of a weight site, under the conditions of sbit_quant_build. */
static sbit_status sbit__qat_place_bias(sbit_trainer *t, sbit_quant *quant, sbit__site *weight,
                                        sbit_node_id layer, sbit_error *error)
{
    const sbit_node *node = sbit_graph_node(t->graph, layer);
    const sbit_op_row *row = sbit_operator_find(t->ctx, node->domain, node->op_type,
                                                sbit_graph_opset(t->graph, node->domain));
    sbit__qat_bias *b = (sbit__qat_bias *)sbit__arena_alloc(&t->arena, sizeof *b);
    if (b == NULL) {
        return sbit__fail_oom(error, sizeof *b);
    }
    if (!sbit__profile_is(quant->profile, SBIT_PROFILE_INT32_BIAS) ||
        !sbit__bias_of(quant, quant->graph, layer, weight, &b->bias) ||
        b->bias.value->constant.dtype != SBIT_F32) {
        return SBIT_OK;
    }
    b->off = &t->qat_off;
    b->functions.forward = sbit__qat_bias_forward;
    b->functions.backward = sbit__qat_bias_backward;
    b->functions.user = b;
    const sbit_attr attr = sbit__external_attr(&b->functions);
    sbit_value_id inputs[2], y;
    sbit_type type = b->bias.value->type;
    inputs[0] = b->bias.value->id;
    if (b->bias.given < b->bias.count) { /* one number for all: a row of them is stored */
        sbit_tensor shape;
        memset(&shape, 0, sizeof shape);
        shape.dtype = SBIT_I64;
        shape.rank = 1;
        shape.dims[0] = 1;
        shape.data = &b->bias.count;
        type.rank = 1;
        memset(type.dims, 0, sizeof type.dims);
        type.dims[0].value = b->bias.count;
        SBIT__TRY(sbit_graph_add_constant(t->graph, "bias_shape", &shape, &inputs[1], error));
        SBIT__TRY(sbit__qat_before(t, layer, "Expand", inputs, 2, NULL, &type, &y, error));
        inputs[0] = y;
    }
    SBIT__TRY(sbit__qat_before(t, layer, "External", inputs, 1, &attr, &type, &y, error));
    return sbit_graph_set_node_input(t->graph, layer, (size_t)row->quant->bias, y, error);
}

/* A range that is fixed for its operator stays as it is: it has no scale to learn. */
static void sbit__qat_widen_site(sbit__qat_site *q, int32_t bits)
{
    sbit__site *site = q->site;
    const sbit_grid before = site->settings.grid, *grid = &site->settings.grid;
    const int32_t wanted = bits > q->bits ? bits : q->bits;
    const int64_t parts = before.parts.count;
    const sbit_quantizer_call call = sbit__site_quantizer(q->quant, site);
    int32_t largest;
    if (wanted == before.bits || site->fixed_range || site->change.scale != NULL ||
        sbit__quantizer_float8(q->row, &largest) != SBIT_UNDEFINED) {
        return;
    }
    sbit__settings_bits(q->quant->config, site->target, wanted, &site->settings);
    const double ratio = ldexp(1.0, wanted - before.bits);
    for (int64_t p = 0; p < parts; p++) {
        const double zero = ((double)call.zero_point[p] - (double)before.qmin) * ratio;
        call.scale[p] = (float)((double)call.scale[p] / ratio);
        call.zero_point[p] = grid->symmetric ? call.zero_point[p]
                                             : (int32_t)nearbyint(zero) + grid->qmin;
    }
    if (q->state != NULL && q->row->regrid != NULL) {
        q->row->regrid(q->state, &call, &before);
    }
}

SBIT__FN void sbit__qat_widen(sbit_trainer *t, int32_t bits)
{
    for (size_t i = 0; bits != t->bits_now && i < t->quant_site_count; i++) {
        sbit__qat_widen_site((sbit__qat_site *)t->quant_sites[i], bits);
    }
    t->bits_now = bits;
}

/* Scale and zero point of all sites as their quantizers have them now. */
SBIT__FN sbit_status sbit__qat_publish(sbit_trainer *t, sbit_error *error)
{
    sbit__qat_widen(t, t->bits);
    for (size_t i = 0; i < t->quant_site_count; i++) {
        const sbit__qat_site *q = (const sbit__qat_site *)t->quant_sites[i];
        const sbit_quantizer_call call = sbit__site_quantizer(q->quant, q->site);
        const sbit_tensor *weight = NULL;
        sbit_observation x;
        memset(&x, 0, sizeof x);
        for (size_t p = 0; p < t->param_count; p++) {
            weight = t->params[p].value.idx == q->site->value.idx ? &t->params[p].data : weight;
        }
        if (q->state == NULL || q->row->finish == NULL) {
            continue;
        }
        float *effective = NULL;
        if (q->site->target == SBIT_TARGET_WEIGHT) {
            weight = weight != NULL ? weight : &sbit__site_value(q->site)->constant;
            x = sbit__site_observation(q->site, weight, (const float *)weight->data);
            effective = t->effective;
            memcpy(effective, weight->data, sbit_tensor_bytes(weight));
        }
        SBIT__TRY(q->row->finish(q->state, &call, effective != NULL ? &x : NULL, effective, error));
    }
    if (t->quant != NULL) {
        sbit__quant_follow(t->quant);
    }
    return SBIT_OK;
}

static sbit_status sbit__qat_range_scale(const sbit__qat_site *q, sbit_error *error)
{
    const sbit_quantizer_call call = sbit__site_quantizer(q->quant, q->site);
    return sbit_grid_scale(call.grid, call.name, q->range[0] < 0.0f ? q->range[0] : 0.0f,
                           q->range[1] > 0.0f ? q->range[1] : 0.0f, call.scale, call.zero_point,
                           error);
}

SBIT__FN sbit_status sbit__qat_ranges(sbit_trainer *t, sbit_error *error)
{
    for (size_t i = 0; i < t->quant_site_count; i++) {
        const sbit__qat_site *q = (const sbit__qat_site *)t->quant_sites[i];
        if (q->range != NULL) {
            SBIT__TRY(sbit__qat_range_scale(q, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__qat_observe(sbit_trainer *t, bool take, sbit_error *error)
{
    for (size_t i = 0; i < t->quant_site_count; i++) {
        sbit__qat_site *q = (sbit__qat_site *)t->quant_sites[i];
        if (take && q->seen && t->fixed == 0.0f) {
            q->range[0] = t->observe * q->range[0] + (1.0f - t->observe) * q->low;
            q->range[1] = t->observe * q->range[1] + (1.0f - t->observe) * q->high;
            SBIT__TRY(sbit__qat_range_scale(q, error));
        }
        q->seen = false;
    }
    return SBIT_OK;
}

/* The ranges begin with those that the scales cover. */
static sbit_status sbit__qat_follow(sbit_trainer *t, sbit_error *error)
{
    if (!(t->observe > 0.0f)) {
        return SBIT_OK;
    }
    t->ranges = (float *)sbit__arena_array(&t->arena, 2 * t->quant_site_count + 1, sizeof(float));
    if (t->ranges == NULL) {
        return sbit__fail_oom(error, t->quant_site_count * sizeof(float));
    }
    for (size_t i = 0; i < t->quant_site_count; i++) {
        sbit__qat_site *q = (sbit__qat_site *)t->quant_sites[i];
        const sbit_grid *grid = &q->site->settings.grid;
        const sbit_quantizer_call call = sbit__site_quantizer(q->quant, q->site);
        if (q->site->target != SBIT_TARGET_ACTIVATION || grid->parts.count != 1 ||
            q->row != sbit__quantizer_uniform() || q->site->fixed_range ||
            q->site->change.scale != NULL) {
            continue;
        }
        const float half = ((float)grid->qmax - (float)grid->qmin) / 2.0f;
        q->range = t->ranges + t->range_count;
        q->range[0] = *call.scale * (grid->symmetric ? -half : (float)(grid->qmin - *call.zero_point));
        q->range[1] = *call.scale * (grid->symmetric ? half : (float)(grid->qmax - *call.zero_point));
        t->range_count += 2;
    }
    return SBIT_OK;
}

/* A Dropout behind what stands in its place now, and behind that one's quantizer: what it makes larger
 * is not cut. */
static sbit_status sbit__qat_place_dropout(sbit_trainer *t, const sbit__quant_dropout *dropout,
                                           sbit_error *error)
{
    const sbit_attr ratio = sbit__attr_float("ratio", dropout->ratio);
    sbit_value_id x = sbit_graph_find_value(t->graph, dropout->from), y;
    sbit_node_desc desc;
    sbit_node_id added;
    sbit_use use;
    x = x.idx != 0 ? x : sbit_graph_find_value(t->graph, dropout->to);
    if (x.idx == 0) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, dropout->from,
                          "the Dropout behind '%s' cannot be trained quantized: simplification "
                          "leaves nothing in its place; remove it from the model",
                          dropout->from);
    }
    while (sbit_graph_uses(t->graph, x, &use, 1) == 1 &&
           sbit__streq(sbit_graph_node(t->graph, use.node)->op_type, "External")) {
        x = sbit_graph_node(t->graph, use.node)->outputs[0];
    }
    const sbit_type type = sbit_graph_value(t->graph, x)->type;
    SBIT__TRY(sbit_graph_add_value(t->graph, "dropout", &type, &y, error));
    SBIT__TRY(sbit_graph_replace_uses(t->graph, x, y, error));
    memset(&desc, 0, sizeof desc);
    desc.op_type = desc.name = "Dropout";
    desc.inputs = &x;
    desc.outputs = &y;
    desc.input_count = desc.output_count = 1;
    desc.attrs = &ratio; /* in every opset: DropoutTrain takes its place */
    desc.attr_count = 1;
    SBIT__TRY(sbit_graph_add_node(t->graph, &desc, &added, error));
    return sbit_graph_sort(t->graph, error);
}

SBIT__FN sbit_status sbit__qat_insert(sbit_trainer *t, sbit_quant *quant, sbit_error *error)
{
    sbit__qat_site **known =
        (sbit__qat_site **)sbit__arena_array(&t->arena, quant->site_count + 1, sizeof *known);
    size_t count = 0, most = 0;
    if (known == NULL) {
        return sbit__fail_oom(error, quant->site_count * sizeof *known);
    }
    for (size_t i = 0; i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (!site->enabled) {
            continue;
        }
        if (site->graph != quant->graph || site->captured || site->dtype != SBIT_F32) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, site->tensor,
                              "tensor '%s' lies in the body of a control-flow operator or is no "
                              "float32: it cannot be trained quantized",
                              site->tensor);
        }
        sbit__site *leader = sbit__qat_leader(quant, site);
        site->leader = leader != site ? (uint32_t)(leader - quant->sites) + 1 : 0;
        sbit__qat_site *q = sbit__qat_known(known, count, leader);
        if (q == NULL) {
            SBIT__TRY(sbit__qat_make(t, quant, leader, &q, error));
            known[count++] = q;
        }
        SBIT__TRY(sbit__site_insert(t->graph, site, &q->functions, q->inputs, 1 + q->count,
                                    &t->arena, error));
        if (site->target == SBIT_TARGET_WEIGHT) {
            const size_t bytes = sbit_tensor_bytes(&sbit__site_value(site)->constant);
            most = bytes > most ? bytes : most;
            for (const sbit__site_use *use = site->uses; use != NULL; use = use->next) {
                SBIT__TRY(sbit__qat_place_bias(t, quant, site, use->node, error));
            }
        }
    }
    t->effective = (float *)sbit__arena_alloc(&t->arena, most + 1);
    if (t->effective == NULL) {
        return sbit__fail_oom(error, most);
    }
    for (size_t i = 0; i < quant->dropout_count; i++) {
        SBIT__TRY(sbit__qat_place_dropout(t, &quant->dropouts[i], error));
    }
    t->quant = quant;
    t->quant_sites = (void **)(void *)known;
    t->quant_site_count = count;
    return sbit__qat_follow(t, error);
}

/* Adds 2 dampening (w - q(w)) where w lies inside of its grid: there it is at most half a step from
 * q(w). Rows that round another value than w (DoReFa's tanh) are left alone. */
SBIT__FN sbit_status sbit__qat_dampen(sbit_trainer *t, sbit_error *error)
{
    for (size_t i = 0; i < t->quant_site_count; i++) {
        const sbit__qat_site *q = (const sbit__qat_site *)t->quant_sites[i];
        sbit__train_param *p = NULL;
        for (size_t k = 0; k < t->param_count; k++) {
            p = t->params[k].value.idx == q->site->value.idx ? &t->params[k] : p;
        }
        if (q->site->target != SBIT_TARGET_WEIGHT || p == NULL || q->row->domain != NULL) {
            continue;
        }
        const sbit_quantizer_call call = sbit__site_quantizer(q->quant, q->site);
        const float *w = (const float *)p->data.data;
        const sbit_observation x = sbit__site_observation(q->site, &p->data, w);
        sbit_runs runs = sbit_runs_of(&x.parts);
        SBIT__TRY(q->row->forward(q->state, &call, &x, t->effective, error));
        while (sbit_runs_next(&runs)) {
            const float most = call.scale[runs.part] * 0.50001f;
            for (int64_t k = runs.at; k < runs.at + runs.count; k++) {
                const float off = w[k] - t->effective[k];
                p->grad[k] += off <= most && off >= -most ? 2.0f * t->dampening * off : 0.0f;
            }
        }
    }
    return SBIT_OK;
}

SBIT__FN float *sbit__qat_memory(const sbit_trainer *t, sbit_value_id value, bool *decay)
{
    for (size_t i = 0; i < t->quant_site_count; i++) {
        const sbit__qat_site *q = (const sbit__qat_site *)t->quant_sites[i];
        for (size_t k = 0; k < q->count; k++) {
            if (q->inputs[1 + k].idx == value.idx) {
                *decay = q->parameters[k].decay;
                return q->parameters[k].data;
            }
        }
    }
    return NULL;
}

/* >>public */

SPARSEBIT_API sbit_status sbit_trainer_create_qat(sbit_quant *quant, const sbit_train_desc *desc,
                                                  sbit_trainer **out, sbit_error *error)
{
    if (!quant->calibrated) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "call sbit_quant_calibrate and sbit_quant_calc_qparams first");
    }
    return sbit__trainer_make(quant->graph, quant, desc, out, error);
}

SPARSEBIT_API sbit_status sbit_trainer_set_bits(sbit_trainer *trainer, int32_t bits,
                                                sbit_error *error)
{
    if (trainer->quant == NULL) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "the trainer was not made by sbit_trainer_create_qat");
    }
    if (bits != 0 && trainer->ema > 0.0f) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "the mean of scales (ema) has no meaning while bits are annealed");
    }
    trainer->bits = bits <= 16 ? bits : 16;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_trainer_enable_qat(sbit_trainer *trainer, bool enabled)
{
    trainer->qat_off = !enabled;
}

SPARSEBIT_API sbit_status sbit_trainer_finish_qat(sbit_trainer *trainer, sbit_error *error)
{
    sbit_quant *quant = trainer->quant;
    if (quant == NULL) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL,
                          "the trainer was not made by sbit_trainer_create_qat");
    }
    SBIT__TRY(sbit_trainer_store(trainer, quant->graph, error));
    const int32_t bits = trainer->bits;
    trainer->bits = 0;
    const bool swap = !trainer->swapped; /* scales, too, are averages while they are published */
    if (swap) {
        sbit_trainer_swap_average(trainer);
    }
    const sbit_status status = sbit__qat_publish(trainer, error);
    trainer->bits = bits;
    if (swap) {
        sbit_trainer_swap_average(trainer);
    }
    for (size_t i = 0; i < quant->site_count; i++) { /* what steps made of the weights before */
        sbit__site_forget_rounding(quant, &quant->sites[i]);
    }
    sbit__quant_drop_session(quant);
    return status;
}
