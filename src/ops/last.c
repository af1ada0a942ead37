/* last.c: float operators with channels last, which lowering puts in. >>last_rows
 *
 * Called by: exec through the rows. Calls: the drivers with channels last.
 * Domain sbit; data are N, positions..., C; weights and attributes are those of the operator:
 *   ConvLast           Conv with what sbit Conv has behind it; attributes winograd: 2 or 4 outputs at
 *                      once along both axes; first: the input has its channels first; large: its
 *                      result is (lower_layout.c); nonzeros: so many weights, if the others are left out
 *   StripLast          three ConvLast, 2-D: 1x1, depthwise and 1x1. Inputs: x, weight and bias of the
 *                      depthwise one, of the one before and the one behind (which may be absent), what
 *                      is added to the result; attributes: the depthwise one's, and the others' activation,
 *                      lo and hi with 0 or 2 behind their names
 *   JoinLast           two ConvLast of the same tensor, the first of them 1x1, and their channels side by side.
 *                      Inputs: x, weight and bias of the second, of the 1x1; attributes: the second's, and
 *                      the 1x1's activation, lo and hi with 0 behind their names
 *   MaxPoolLast        without indices
 *   AveragePoolLast, GlobalAveragePoolLast
 *   ShuffleLast        two tensors of the same type: their channels by turns; in one output, or the
 *                      first half of the channels in one and the second in another
 */
#include "../kernels/last_private.h"
#include "qlinear_private.h"

static bool sbit__last_from_first(const sbit_op_call *call)
{
    return sbit_node_int(call->node, "first", 0) != 0;
}

/* The float operator's shape for inputs 0.., of which the first has its channels last. */
static sbit_status sbit__last_infer_as(const sbit_op_call *call, const char *op_type,
                                       int32_t version, int32_t count, sbit_error *error)
{
    static const int32_t inputs[3] = {0, 1, 2};
    sbit__q_view view;
    sbit__q_view_init(call, op_type, version, inputs, count, !sbit__last_from_first(call), &view);
    SBIT__TRY(view.call.row->infer(&view.call, error));
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        *call->out_type[0] = view.out;
        sbit__q_type_to_last(call->out_type[0]);
    }
    return SBIT_OK;
}

/* >>convolution */

typedef struct sbit__last_conv_params {
    sbit__last_conv plan;
    sbit__epilogue epilogue;
} sbit__last_conv_params;

static sbit_status sbit__last_conv_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 4, error));
    SBIT__TRY(sbit__op_dtypes(call, 14, 0, error));
    SBIT__TRY(sbit__last_infer_as(call, "Conv", 11, 3, error));
    return sbit__epilogue_check(call, 3, error);
}

/* The plan of a shape. */
static void sbit__last_conv_plan_of(const sbit_op_call *call, sbit__last_conv *plan)
{
    const int64_t m = sbit_node_int(call->node, "winograd", 0);
    plan->winograd = (m == 2 || m == 4) && sbit__last_may_winograd(&plan->shape) ? m : 0;
    plan->first = sbit__last_from_first(call);
    plan->nonzeros = sbit_node_int(call->node, "nonzeros", -1);
    plan->sparse = plan->nonzeros >= 0;
    sbit__last_conv_plan(call->ctx, plan);
}

static sbit_status sbit__last_conv_pack_op(const sbit_op_call *call, sbit_error *error)
{
    sbit__last_conv plan;
    memset(&plan, 0, sizeof plan);
    if (!sbit__conv_weights(call, &plan.shape)) {
        return SBIT_OK;
    }
    sbit__last_conv_plan_of(call, &plan);
    float *packed = (float *)call->alloc_packed(call, plan.packed_bytes);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__last_conv_pack(call->ctx, &plan, (const float *)call->in[1]->data, packed);
    call->release_input(call, 1);
    return SBIT_OK;
}

static sbit_status sbit__last_conv_prepare(const sbit_op_call *call, sbit_error *error)
{
    static const int32_t inputs[3] = {0, 1, 2};
    sbit__q_view view;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0]) || !sbit__type_static(call->in_type[1])) {
        return SBIT_OK;
    }
    sbit__last_conv_params *params =
        (sbit__last_conv_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    memset(params, 0, sizeof *params);
    sbit__q_view_init(call, "Conv", 11, inputs, 3, !sbit__last_from_first(call), &view);
    SBIT__TRY(sbit__conv_shape_of(&view.call, &params->plan.shape, error));
    sbit__last_conv_plan_of(call, &params->plan);
    sbit__epilogue_read(call, &params->epilogue);
    *call->scratch_bytes = sbit__align64(params->plan.scratch_bytes) +
                           (call->packed != NULL ? 0 : params->plan.packed_bytes);
    return SBIT_OK;
}

static sbit_status sbit__last_conv_op_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__last_conv_params *params = (const sbit__last_conv_params *)call->params;
    const sbit_tensor *bias = sbit__in(call, 2);
    sbit__epilogue memory;
    if (params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    const float *packed = (const float *)call->packed;
    char *scratch = (char *)call->scratch;
    if (packed == NULL) { /* a session that overrides the weight */
        float *here = (float *)(void *)(scratch + sbit__align64(params->plan.scratch_bytes));
        sbit__last_conv_pack(call->ctx, &params->plan, (const float *)call->in[1]->data, here);
        packed = here;
    }
    sbit__last_conv_run(call->ctx, &params->plan, (const float *)call->in[0]->data, packed,
                        bias != NULL ? (const float *)bias->data : NULL,
                        sbit__epilogue_of(call, &params->epilogue, 3, &memory),
                        (float *)call->out[0]->data, scratch);
    return SBIT_OK;
}

static int64_t sbit__last_conv_macs(const sbit_op_call *call)
{
    return sbit__window_macs(call->out_type[0], call->in_type[1]);
}

/* >>strips */

typedef struct sbit__strip_params {
    sbit__last_strip plan;
    sbit__epilogue epilogue[3];
} sbit__strip_params;

enum {
    SBIT__STRIP_RESIDUAL = 7
};

/* The input that is the weight of convolution i; its bias follows. */
static int32_t sbit__strip_weight(int32_t i)
{
    return i == 1 ? 1 : i + 3;
}

/* The types of x and of the weights are known. */
static bool sbit__strip_known(const sbit_op_call *call)
{
    bool known = true;
    for (int32_t i = 0; i < SBIT__STRIP_RESIDUAL; i += i == 0 ? 1 : 2) {
        const sbit_type *type = sbit__in_type(call, i);
        known = known && (type != NULL ? sbit__type_static(type) && type->rank == 4 : i > 1);
    }
    return known;
}

/* Channels and kernel of a convolution in a plane. */
static void sbit__last_weights(const sbit_type *w, bool depthwise, sbit__conv_shape *s)
{
    s->batch = 1;
    s->groups = depthwise ? w->dims[0].value : 1;
    s->out_channels = w->dims[0].value;
    s->in_channels = depthwise ? s->groups : w->dims[1].value;
    for (int k = 0; k < 3; k++) {
        s->in[k] = s->out[k] = s->stride[k] = s->dilation[k] = 1;
        s->kernel[k] = k == 0 ? 1 : w->dims[k + 1].value;
    }
}

/* Channels and kernels. */
static void sbit__strip_weights(const sbit_op_call *call, sbit__last_strip *plan)
{
    memset(plan, 0, sizeof *plan);
    for (int32_t i = 0; i < 3; i++) {
        const sbit_type *w = sbit__in_type(call, sbit__strip_weight(i));
        if (w != NULL) {
            sbit__last_weights(w, i == 1, &plan->conv[i].shape);
        }
    }
}

/* The depthwise convolution by itself. */
static void sbit__strip_view(const sbit_op_call *call, sbit__q_view *view)
{
    static const int32_t inputs[3] = {0, 1, 2};
    const sbit_type *w = sbit__in_type(call, sbit__strip_weight(0));
    sbit__q_view_init(call, "Conv", 11, inputs, 3, true, view);
    if (w != NULL && w->rank == 4 && view->types[0].rank == 4) {
        view->types[0].dims[1] = w->dims[0];
    }
}

static sbit_status sbit__strip_infer(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *w = sbit__in_type(call, sbit__strip_weight(2));
    sbit__q_view view;
    SBIT__TRY(sbit__op_inputs(call, 2, 8, error));
    SBIT__TRY(sbit__op_dtypes(call, 0xfe, 0, error));
    sbit__strip_view(call, &view);
    SBIT__TRY(view.call.row->infer(&view.call, error));
    if (w != NULL && w->rank == 4 && view.out.rank == 4) {
        view.out.dims[1] = w->dims[0];
    }
    *call->out_type[0] = view.out;
    sbit__q_type_to_last(call->out_type[0]);
    return sbit__epilogue_check(call, SBIT__STRIP_RESIDUAL, error);
}

static void sbit__strip_pack_all(const sbit_op_call *call, const sbit__last_strip *plan, void *packed)
{
    const float *weights[3];
    for (int32_t i = 0; i < 3; i++) {
        const sbit_tensor *w = sbit__in(call, sbit__strip_weight(i));
        weights[i] = w != NULL ? (const float *)w->data : NULL;
    }
    sbit__last_strip_pack(call->ctx, plan, weights, (float *)packed);
}

static sbit_status sbit__strip_pack(const sbit_op_call *call, sbit_error *error)
{
    sbit__last_strip plan;
    bool all = sbit__strip_known(call);
    for (int32_t i = 1; i < 7; i += 2) {
        all = all && (!sbit__op_has(call, i) || sbit__in(call, i) != NULL);
    }
    if (!all) {
        return SBIT_OK;
    }
    sbit__strip_weights(call, &plan);
    sbit__last_strip_plan(call->ctx, &plan);
    void *packed = call->alloc_packed(call, plan.packed_bytes);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__strip_pack_all(call, &plan, packed);
    for (int32_t i = 1; i < 7; i += 2) {
        call->release_input(call, i);
    }
    return SBIT_OK;
}

static sbit_status sbit__strip_prepare(const sbit_op_call *call, sbit_error *error)
{
    static const char *const names[3][3] = {
        {"activation0", "lo0", "hi0"}, {"activation", "lo", "hi"}, {"activation2", "lo2", "hi2"}};
    sbit__q_view view;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__strip_known(call)) {
        return SBIT_OK;
    }
    sbit__strip_params *params =
        (sbit__strip_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__strip_weights(call, &params->plan);
    sbit__conv_shape *shape[3];
    for (int i = 0; i < 3; i++) {
        shape[i] = &params->plan.conv[i].shape;
        sbit__epilogue_read_as(call, names[i], &params->epilogue[i]);
    }
    sbit__strip_view(call, &view);
    SBIT__TRY(sbit__conv_shape_of(&view.call, shape[1], error));
    for (int i = 0; i < 3; i += 2) {
        const int64_t *plane = i == 0 ? shape[1]->in : shape[1]->out;
        const int64_t channels = i == 0 ? call->in_type[0]->dims[3].value : shape[1]->groups;
        if (shape[i]->out_channels > 0 && shape[i]->in_channels != channels) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "channels do not fit");
        }
        shape[i]->batch = shape[1]->batch;
        memcpy(shape[i]->in, plane, sizeof shape[i]->in);
        memcpy(shape[i]->out, plane, sizeof shape[i]->out);
    }
    sbit__last_strip_plan(call->ctx, &params->plan);
    *call->scratch_bytes = params->plan.scratch_bytes +
                           (call->packed != NULL ? 0 : params->plan.packed_bytes);
    return SBIT_OK;
}

static sbit_status sbit__strip_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__strip_params *params = (const sbit__strip_params *)call->params;
    sbit__epilogue epilogue[3];
    const float *bias[3];
    if (params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    const void *packed = call->packed;
    if (packed == NULL) { /* a session that overrides a weight */
        void *here = (char *)call->scratch + params->plan.scratch_bytes;
        sbit__strip_pack_all(call, &params->plan, here);
        packed = here;
    }
    for (int32_t i = 0; i < 3; i++) {
        const sbit_tensor *given = sbit__in(call, sbit__strip_weight(i) + 1);
        bias[i] = given != NULL ? (const float *)given->data : NULL;
        epilogue[i] = params->epilogue[i];
    }
    (void)sbit__epilogue_of(call, &params->epilogue[2], SBIT__STRIP_RESIDUAL, &epilogue[2]);
    sbit__last_strip_run(call->ctx, &params->plan, (const float *)call->in[0]->data,
                         (const float *)packed, bias, epilogue, (float *)call->out[0]->data,
                         call->scratch);
    return SBIT_OK;
}

/* macs and those of a convolution with weights w whose result is as `at`, but for its channels. */
static int64_t sbit__last_more_macs(int64_t macs, sbit_type at, const sbit_type *w)
{
    at.dims[3] = w->dims[0];
    const int64_t more = sbit__window_macs(&at, w);
    return more > INT64_MAX - macs ? INT64_MAX : macs + more;
}

static int64_t sbit__strip_macs(const sbit_op_call *call)
{
    const sbit_type *at[3] = {call->in_type[0], call->out_type[0], call->out_type[0]};
    int64_t macs = 0;
    for (int32_t i = 0; i < 3; i++) {
        const sbit_type *w = sbit__in_type(call, sbit__strip_weight(i));
        if (w != NULL && at[i]->rank == 4) {
            macs = sbit__last_more_macs(macs, *at[i], w);
        }
    }
    return macs;
}

/* >>joined: two convolutions into one tensor */

typedef struct sbit__join_params {
    sbit__last_conv plan[2]; /* the 1x1, the other */
    sbit__epilogue epilogue[2];
} sbit__join_params;

/* The input that is the weight of convolution i; its bias follows. */
static int32_t sbit__join_weight(int32_t i)
{
    return i == 0 ? 3 : 1;
}

/* The types of x and of the weights are known. */
static bool sbit__join_known(const sbit_op_call *call)
{
    bool known = true;
    for (int32_t i = 0; i < 4; i += i == 0 ? 1 : 2) {
        const sbit_type *type = sbit__in_type(call, i);
        known = known && type != NULL && sbit__type_static(type) && type->rank == 4;
    }
    return known;
}

static sbit_status sbit__join_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 5, error));
    if (!sbit__op_has(call, 3)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input 3 is missing");
    }
    SBIT__TRY(sbit__op_dtypes(call, 0x1e, 0, error));
    SBIT__TRY(sbit__last_infer_as(call, "Conv", 11, 3, error));
    sbit_type *out = call->out_type[0];
    if (out != NULL && out->rank == 4) {
        out->dims[3] = sbit__dim_add(call->in_type[3]->dims[0], out->dims[3]);
    }
    return sbit__epilogue_check(call, 5, error);
}

/* Weights are constants (exec/lower_strips.c): those of the 1x1, packed, then of the other. */
static void sbit__join_pack_all(const sbit_op_call *call, const sbit__last_conv plan[2], void *packed)
{
    for (int32_t i = 0; i < 2; i++) {
        const sbit_tensor *w = call->in[sbit__join_weight(i)];
        sbit__last_conv_pack(call->ctx, &plan[i], (const float *)w->data, (float *)packed);
        packed = (char *)packed + plan[i].packed_bytes;
    }
}

static sbit_status sbit__join_pack(const sbit_op_call *call, sbit_error *error)
{
    sbit__last_conv plan[2];
    memset(plan, 0, sizeof plan);
    if (sbit__in(call, 1) == NULL || sbit__in(call, 3) == NULL || !sbit__conv_weights(call, &plan[1].shape)) {
        return SBIT_OK;
    }
    sbit__last_weights(call->in_type[3], false, &plan[0].shape);
    sbit__last_conv_plan(call->ctx, &plan[0]);
    sbit__last_conv_plan_of(call, &plan[1]);
    void *packed = call->alloc_packed(call, plan[0].packed_bytes + plan[1].packed_bytes);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__join_pack_all(call, plan, packed);
    call->release_input(call, 1);
    call->release_input(call, 3);
    return SBIT_OK;
}

/* Bytes of either convolution. */
static size_t sbit__join_scratch(const sbit__join_params *params)
{
    const size_t a = params->plan[0].scratch_bytes, b = params->plan[1].scratch_bytes;
    return sbit__align64(a > b ? a : b);
}

static sbit_status sbit__join_prepare(const sbit_op_call *call, sbit_error *error)
{
    static const int32_t inputs[3] = {0, 1, 2};
    static const char *const names[2][3] = {{"activation0", "lo0", "hi0"}, {"activation", "lo", "hi"}};
    sbit__q_view view;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__join_known(call)) {
        return SBIT_OK;
    }
    sbit__join_params *params = (sbit__join_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    memset(params, 0, sizeof *params);
    sbit__conv_shape *one = &params->plan[0].shape, *other = &params->plan[1].shape;
    sbit__q_view_init(call, "Conv", 11, inputs, 3, true, &view);
    SBIT__TRY(sbit__conv_shape_of(&view.call, other, error));
    sbit__last_weights(call->in_type[3], false, one);
    if (memcmp(other->in, other->out, sizeof other->in) != 0 || one->in_channels != other->in_channels) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the convolutions do not fit");
    }
    one->batch = other->batch;
    memcpy(one->in, other->in, sizeof one->in);
    memcpy(one->out, other->out, sizeof one->out);
    for (int i = 0; i < 2; i++) {
        params->plan[i].pitch = one->out_channels + other->out_channels;
        sbit__epilogue_read_as(call, names[i], &params->epilogue[i]);
    }
    sbit__last_conv_plan(call->ctx, &params->plan[0]);
    sbit__last_conv_plan_of(call, &params->plan[1]);
    const size_t packed = params->plan[0].packed_bytes + params->plan[1].packed_bytes;
    *call->scratch_bytes = sbit__join_scratch(params) + (call->packed != NULL ? 0 : packed);
    return SBIT_OK;
}

static sbit_status sbit__join_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__join_params *params = (const sbit__join_params *)call->params;
    const void *packed = call->packed;
    if (params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (packed == NULL) { /* a session that overrides a bias or x */
        void *here = (char *)call->scratch + sbit__join_scratch(params);
        sbit__join_pack_all(call, params->plan, here);
        packed = here;
    }
    float *y = (float *)call->out[0]->data;
    for (int32_t i = 0; i < 2; i++) {
        const sbit__last_conv *plan = &params->plan[i];
        const sbit_tensor *bias = sbit__in(call, sbit__join_weight(i) + 1);
        sbit__last_conv_run(call->ctx, plan, (const float *)call->in[0]->data, (const float *)packed,
                            bias != NULL ? (const float *)bias->data : NULL, &params->epilogue[i], y,
                            call->scratch);
        packed = (const char *)packed + plan->packed_bytes;
        y += plan->shape.out_channels;
    }
    return SBIT_OK;
}

static int64_t sbit__join_macs(const sbit_op_call *call)
{
    int64_t macs = 0;
    for (int32_t i = 0; i < 2 && call->out_type[0]->rank == 4; i++) {
        macs = sbit__last_more_macs(macs, *call->out_type[0], call->in_type[sbit__join_weight(i)]);
    }
    return macs;
}

/* >>pools */

static bool sbit__last_pool_is(const sbit_op_call *call, const char *name)
{
    return sbit__streq(call->row->op_type, name);
}

static sbit_status sbit__last_pool_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    return sbit__last_pool_is(call, "MaxPoolLast") ? sbit__last_infer_as(call, "MaxPool", 12, 1, error)
           : sbit__last_pool_is(call, "AveragePoolLast")
               ? sbit__last_infer_as(call, "AveragePool", 19, 1, error)
               : sbit__last_infer_as(call, "GlobalAveragePool", 1, 1, error);
}

/* The windows of the call, axis by axis; global: one as large as the input. */
static sbit_status sbit__last_pool_windows(const sbit_op_call *call, sbit__last_pool *plan,
                                           sbit_error *error)
{
    static const int32_t inputs[1] = {0};
    const bool global = sbit__last_pool_is(call, "GlobalAveragePoolLast");
    sbit__q_view view;
    sbit__window window;
    sbit__q_view_init(call, plan->average ? "AveragePool" : "MaxPool", 19, inputs, 1, true, &view);
    const sbit_type *x = view.in_type[0];
    const int32_t spatial = x->rank - 2;
    plan->batch = x->dims[0].value;
    plan->channels = x->dims[1].value;
    if (!global) {
        SBIT__TRY(sbit__window_read(&view.call, spatial, NULL, &window, error));
        window.may_cut = true;
    }
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        const int32_t from = i - (SBIT__MAX_SPATIAL - spatial);
        plan->in[i] = plan->out[i] = plan->kernel[i] = plan->stride[i] = plan->dilation[i] = 1;
        if (from < 0) {
            continue;
        }
        plan->in[i] = plan->kernel[i] = x->dims[from + 2].value;
        if (!global) {
            SBIT__TRY(
                sbit__window_length(&view.call, &window, from, plan->in[i], &plan->out[i], error));
            plan->kernel[i] = window.kernel[from];
            plan->stride[i] = window.stride[from];
            plan->dilation[i] = window.dilation[from];
            plan->pad_begin[i] = window.pad_begin[from];
            plan->pad_end[i] = window.pad_end[from];
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__last_pool_prepare(const sbit_op_call *call, sbit_error *error)
{
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0])) {
        return SBIT_OK;
    }
    sbit__last_pool *plan = (sbit__last_pool *)call->alloc_params(call, sizeof *plan);
    if (plan == NULL) {
        return sbit__op_no_memory(call, error);
    }
    memset(plan, 0, sizeof *plan);
    plan->average = !sbit__last_pool_is(call, "MaxPoolLast");
    plan->count_pads = sbit_node_int(call->node, "count_include_pad", 0) != 0;
    SBIT__TRY(sbit__last_pool_windows(call, plan, error));
    sbit__last_pool_plan(call->ctx, plan);
    *call->scratch_bytes = plan->scratch_bytes;
    return SBIT_OK;
}

static sbit_status sbit__last_pool_op_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__last_pool *plan = (const sbit__last_pool *)call->params;
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    sbit__last_pool_run(call->ctx, plan, (const float *)call->in[0]->data,
                        (float *)call->out[0]->data, call->scratch);
    return SBIT_OK;
}

/* >>shuffle */

static sbit_status sbit__last_shuffle_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    for (int32_t i = 0; i < call->output_count && i < 2; i++) {
        sbit__op_same_type(call, i, 0);
        if (call->output_count == 1 && call->out_type[0] != NULL && call->out_type[0]->rank > 0) {
            sbit_dim *channels = &call->out_type[0]->dims[call->out_type[0]->rank - 1];
            *channels = sbit__dim_mul(sbit__dim(2), *channels);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__last_shuffle_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *a = call->in_type[0], *b = call->in_type[1];
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(a) || !sbit__type_static(b)) {
        return SBIT_OK;
    }
    bool alike = a->rank == b->rank && a->rank > 0;
    for (int32_t i = 0; alike && i < a->rank; i++) {
        alike = sbit__dim_equal(a->dims[i], b->dims[i]);
    }
    if (!alike ||
        (call->output_count > 1 && a->dims[a->rank - 1].value % 2 != 0)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "inputs must be alike");
    }
    return SBIT_OK;
}

typedef struct sbit__last_shuffle_task {
    const sbit__last_kernels *kernels;
    const float *a, *b;
    float *y[2];
    int64_t channels; /* of an input */
} sbit__last_shuffle_task;

static void sbit__last_shuffle_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__last_shuffle_task *task = (const sbit__last_shuffle_task *)user;
    const int64_t c = task->channels;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *a = task->a + i * c, *b = task->b + i * c;
        if (task->y[1] == NULL) {
            task->kernels->last_zip(c, a, b, task->y[0] + 2 * i * c);
        } else {
            task->kernels->last_zip(c / 2, a, b, task->y[0] + i * c);
            task->kernels->last_zip(c / 2, a + c / 2, b + c / 2, task->y[1] + i * c);
        }
    }
}

static sbit_status sbit__last_shuffle_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__last_shuffle_task task;
    (void)error;
    if (sbit_tensor_count(x) == 0) {
        return SBIT_OK;
    }
    task.kernels = sbit__last_of(call->ctx);
    task.a = (const float *)x->data;
    task.b = (const float *)call->in[1]->data;
    task.y[0] = (float *)call->out[0]->data;
    task.y[1] = call->output_count > 1 ? (float *)call->out[1]->data : NULL;
    task.channels = x->dims[x->rank - 1];
    sbit__parallel_range(call->ctx, sbit_tensor_count(x) / task.channels, 1 + 16384 / task.channels,
                         sbit__last_shuffle_range, &task);
    return SBIT_OK;
}

/* >>rows */
#define SBIT__LAST_ROW(name, pack, infer, prepare, run, macs)                                      \
    {                                                                                              \
        "sbit", name, 1, SBIT_T(SBIT_F32), 0, pack, infer, prepare, run, NULL, NULL, NULL, NULL,   \
            macs                                                                                   \
    }
#define SBIT__LAST_POOL(name)                                                                      \
    SBIT__LAST_ROW(name, NULL, sbit__last_pool_infer, sbit__last_pool_prepare,                     \
                   sbit__last_pool_op_run, NULL)

static const sbit_op_row sbit__last_rows[] = {
    SBIT__LAST_ROW("ConvLast", sbit__last_conv_pack_op, sbit__last_conv_infer,
                   sbit__last_conv_prepare, sbit__last_conv_op_run, sbit__last_conv_macs),
    SBIT__LAST_ROW("StripLast", sbit__strip_pack, sbit__strip_infer, sbit__strip_prepare,
                   sbit__strip_run, sbit__strip_macs),
    SBIT__LAST_ROW("JoinLast", sbit__join_pack, sbit__join_infer, sbit__join_prepare, sbit__join_run,
                   sbit__join_macs),
    SBIT__LAST_POOL("MaxPoolLast"),
    SBIT__LAST_POOL("AveragePoolLast"),
    SBIT__LAST_POOL("GlobalAveragePoolLast"),
    SBIT__LAST_ROW("ShuffleLast", NULL, sbit__last_shuffle_infer, sbit__last_shuffle_prepare,
                   sbit__last_shuffle_run, NULL),
};

#undef SBIT__LAST_ROW
#undef SBIT__LAST_POOL

SBIT__FN const sbit_op_row *sbit__op_rows_last(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__last_rows);
    return sbit__last_rows;
}
