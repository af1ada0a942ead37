/* conv.c: Conv and ConvTranspose with 1 to 3 spatial dimensions. >>conv
 *
 * Called by: infer, exec. Calls: kernels (convolution and gemm drivers).
 * Layout: X [N, Cin, spatial...]; Conv W [Cout, Cin/g, k...]; ConvTranspose W [Cin, Cout/g, k...].
 * Conv hands everything to the convolution driver. ConvTranspose is, per image and group,
 *     columns [Cout/g * k][in] = W^T [Cout/g * k][Cin/g] * X [Cin/g][in]
 * whose rows are then added to the places of Y that they stand for (col2im): input position i and
 * kernel position j meet at i * stride + j * dilation - pad_begin. Columns are made in blocks of
 * whole input rows, so scratch memory stays small; each channel adds them in the same order
 * whatever the number of threads. Computed in float32; other float types are converted.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#define SBIT__CONV_COLUMN_FLOATS ((int64_t)1 << 20) /* of one block, unless one row is longer */

/* ---- Conv */

/* Checks ranks and channels of X, W and B; *rank is X's (-1: unknown). `transposed`: W's first
 * dimension is the input channel. */
static sbit_status sbit__conv_check(const sbit_op_call *call, bool transposed, int32_t *rank,
                                    sbit_error *error)
{
    int32_t w_rank = -1, b_rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 2, sbit__op_is_internal(call) ? 4 : 3, error));
    SBIT__TRY(sbit__op_dtypes(call, 14, 0, error));
    SBIT__TRY(sbit__op_rank(call, 0, rank, error));
    SBIT__TRY(sbit__op_rank(call, 1, &w_rank, error));
    SBIT__TRY(sbit__op_rank(call, 2, &b_rank, error));
    if (*rank >= 0 && w_rank >= 0 && *rank != w_rank) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "weight rank %d, input rank %d",
                            (int)w_rank, (int)*rank);
    }
    if (sbit__op_has(call, 2) && b_rank >= 0 && b_rank != 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "bias rank %d, must be 1", (int)b_rank);
    }
    const int64_t groups = sbit_node_int(call->node, "group", 1);
    if (groups < 1 || groups > INT32_MAX) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "group is %lld",
                            (long long)groups);
    }
    if (*rank < 0) {
        *rank = w_rank;
    }
    if (*rank >= 0 && *rank < 3) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be at least 3",
                            (int)*rank);
    }
    if (w_rank < 0) {
        return SBIT_OK;
    }
    const sbit_dim *w = call->in_type[1]->dims;
    for (int32_t i = 0; i < 2; i++) {
        if (sbit__dim_known(w[i]) && (w[i].value < 1 || w[i].value > INT64_MAX / groups)) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "weight dimension %d is %lld", (int)i,
                                (long long)w[i].value);
        }
    }
    if (sbit__dim_known(w[0]) && w[0].value % groups != 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "%lld channels do not divide into %lld groups", (long long)w[0].value,
                            (long long)groups);
    }
    const sbit_dim in_channels = transposed ? w[0] : w[1];
    const int64_t in_groups = transposed ? 1 : groups;
    if (call->in_type[0]->rank >= 0 && sbit__dim_known(call->in_type[0]->dims[1]) &&
        sbit__dim_known(in_channels) &&
        call->in_type[0]->dims[1].value != in_channels.value * in_groups) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "input has %lld channels, the weight is for %lld in %lld groups",
                            (long long)call->in_type[0]->dims[1].value,
                            (long long)(in_channels.value * in_groups), (long long)groups);
    }
    const sbit_dim out_channels = transposed ? w[1] : w[0];
    const int64_t out_groups = transposed ? groups : 1;
    if (b_rank == 1 && sbit__dim_known(call->in_type[2]->dims[0]) &&
        sbit__dim_known(out_channels) &&
        call->in_type[2]->dims[0].value != out_channels.value * out_groups) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "bias has %lld entries for %lld channels",
                            (long long)call->in_type[2]->dims[0].value,
                            (long long)(out_channels.value * out_groups));
    }
    return SBIT_OK;
}

/* Spatial dims of the weight, unknown where the weight's shape is. */
static void sbit__conv_kernel_dims(const sbit_op_call *call, sbit_dim kernel[SBIT__MAX_SPATIAL])
{
    const sbit_type *w = call->in_type[1];
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        kernel[i] = i + 2 < w->rank ? w->dims[i + 2] : sbit__dim_any();
    }
}

static sbit_status sbit__conv_window(const sbit_op_call *call, int32_t rank, sbit__window *window,
                                     sbit_error *error)
{
    sbit_dim kernel[SBIT__MAX_SPATIAL];
    sbit__conv_kernel_dims(call, kernel);
    return sbit__window_read(call, rank - 2, kernel, window, error);
}

static sbit_status sbit__conv_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    sbit__window window;
    SBIT__TRY(sbit__conv_check(call, false, &rank, error));
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, rank);
    if (rank < 0 || out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__conv_window(call, rank, &window, error));
    if (call->in_type[1]->rank >= 0) {
        out->dims[1] = call->in_type[1]->dims[0];
    }
    if (call->in_type[0]->rank < 0) {
        return SBIT_OK;
    }
    out->dims[0] = call->in_type[0]->dims[0];
    SBIT__TRY(sbit__window_dims(call, &window, call->in_type[0]->dims + 2, out->dims + 2, error));
    return sbit__epilogue_check(call, 3, error);
}

/* The driver multiplies terms of a sum with pixels, padding included, and with outputs. */
static sbit_status sbit__conv_check_sizes(const sbit_op_call *call, const sbit__conv_shape *shape,
                                          const sbit__window *window, sbit_error *error)
{
    int64_t terms = shape->in_channels, padded = 1, outputs = shape->out_channels;
    bool fits = sbit__mul_i64(outputs, shape->batch, &outputs);
    for (int32_t i = 0; fits && i < SBIT__MAX_SPATIAL; i++) {
        const int32_t at = i - (SBIT__MAX_SPATIAL - window->spatial);
        const int64_t pad = at < 0 ? 0 : window->pad_begin[at] + window->pad_end[at];
        fits = sbit__mul_i64(terms, shape->kernel[i], &terms) &&
               sbit__mul_i64(padded, shape->in[i] + pad, &padded) &&
               sbit__mul_i64(outputs, shape->out[i], &outputs);
    }
    fits = fits && sbit__mul_i64(terms, padded > outputs ? padded : outputs, &terms) &&
           terms <= INT64_MAX / 64;
    return fits ? SBIT_OK
                : sbit_op_fail(call, SBIT_ERR_LIMIT, error,
                               "the sizes of window, padding and output are too large together");
}

SBIT__FN sbit_status sbit__conv_shape_of(const sbit_op_call *call, sbit__conv_shape *shape,
                                         sbit_error *error)
{
    int32_t rank = -1;
    sbit__window window;
    SBIT__TRY(sbit__conv_check(call, false, &rank, error));
    SBIT__TRY(sbit__conv_window(call, rank, &window, error));
    const sbit_type *x = call->in_type[0];
    const sbit_type *w = call->in_type[1];
    memset(shape, 0, sizeof *shape);
    shape->batch = x->dims[0].value;
    shape->groups = sbit_node_int(call->node, "group", 1);
    shape->in_channels = x->dims[1].value;
    shape->out_channels = w->dims[0].value;
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        shape->in[i] = shape->out[i] = shape->kernel[i] = 1;
        shape->stride[i] = shape->dilation[i] = 1;
    }
    for (int32_t i = 0; i < window.spatial; i++) {
        const int32_t at = SBIT__MAX_SPATIAL - window.spatial + i;
        shape->in[at] = x->dims[i + 2].value;
        SBIT__TRY(sbit__window_length(call, &window, i, shape->in[at], &shape->out[at], error));
        shape->kernel[at] = window.kernel[i];
        shape->stride[at] = window.stride[i];
        shape->dilation[at] = window.dilation[i];
        shape->pad_begin[at] = window.pad_begin[i];
    }
    return sbit__conv_check_sizes(call, shape, &window, error);
}

SBIT__FN bool sbit__conv_weights(const sbit_op_call *call, sbit__conv_shape *shape)
{
    const sbit_tensor *w = sbit__in(call, 1);
    const int64_t groups = sbit_node_int(call->node, "group", 1);
    if (w == NULL || w->dtype != SBIT_F32 || w->rank < 3 || w->rank > 2 + SBIT__MAX_SPATIAL ||
        sbit_tensor_count(w) == 0 || groups < 1 || w->dims[0] % groups != 0) {
        return false;
    }
    memset(shape, 0, sizeof *shape);
    shape->batch = 1;
    shape->groups = groups;
    shape->out_channels = w->dims[0];
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        const int32_t from = i - (SBIT__MAX_SPATIAL - (w->rank - 2));
        shape->in[i] = shape->out[i] = shape->stride[i] = shape->dilation[i] = 1;
        shape->kernel[i] = from < 0 ? 1 : w->dims[from + 2];
    }
    return sbit__mul_i64(w->dims[1], groups, &shape->in_channels);
}

static sbit_status sbit__conv_op_pack(const sbit_op_call *call, sbit_error *error)
{
    sbit__conv_shape shape;
    sbit__conv plan;
    if (!sbit__conv_weights(call, &shape)) {
        return SBIT_OK;
    }
    sbit__conv_plan(call->ctx, &shape, &plan);
    float *packed = (float *)call->alloc_packed(call, plan.packed_bytes);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__conv_pack(call->ctx, &plan, (const float *)call->in[1]->data, packed);
    call->release_input(call, 1);
    return SBIT_OK;
}

static bool sbit__conv_static(const sbit_op_call *call)
{
    return sbit__type_static(call->in_type[0]) && sbit__type_static(call->in_type[1]);
}

typedef struct sbit__conv_params {
    sbit__conv plan;
    sbit__epilogue epilogue;
} sbit__conv_params;

static sbit_status sbit__conv_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__conv_shape shape;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__conv_static(call)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__conv_shape_of(call, &shape, error));
    sbit__conv_params *params = (sbit__conv_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__conv *plan = &params->plan;
    sbit__conv_plan(call->ctx, &shape, plan);
    sbit__epilogue_read(call, &params->epilogue);
    *call->scratch_bytes = sbit__op_in_float_scratch(call) + sbit__align64(plan->scratch_bytes) +
                           (call->packed != NULL ? 0 : sbit__align64(plan->packed_bytes));
    return SBIT_OK;
}

/* An input without elements gives what zeros would give. */
static void sbit__conv_fill(const sbit_op_call *call, const sbit__epilogue *epilogue)
{
    sbit_tensor *y = call->out[0];
    const float *bias =
        call->input_count > 2 && call->in[2] != NULL ? (const float *)call->in[2]->data : NULL;
    const int64_t channels = y->dims[1];
    const int64_t plane = sbit__tensor_span(y, 2, y->rank);
    for (int64_t i = 0; i < y->dims[0] * channels; i++) {
        float *row = (float *)y->data + i * plane;
        for (int64_t j = 0; j < plane; j++) {
            row[j] = bias != NULL ? bias[i % channels] : 0.0f;
        }
        sbit__epilogue_apply(call->kernels, epilogue, i * plane, plane, row);
    }
}

static sbit_status sbit__conv_run32(const sbit_op_call *call, sbit_error *error)
{
    const sbit__conv_params *params = (const sbit__conv_params *)call->params;
    const sbit_tensor *x = call->in[0];
    sbit__epilogue memory;
    if (params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (sbit_tensor_count(call->out[0]) == 0) {
        return SBIT_OK;
    }
    const sbit__conv *plan = &params->plan;
    const sbit__epilogue *epilogue = sbit__epilogue_of(call, &params->epilogue, 3, &memory);
    if (sbit_tensor_count(x) == 0) {
        sbit__conv_fill(call, epilogue);
        return SBIT_OK;
    }
    char *scratch = (char *)call->scratch;
    const float *packed = (const float *)call->packed;
    if (packed == NULL) {
        float *here = (float *)(void *)scratch;
        scratch += sbit__align64(plan->packed_bytes);
        sbit__conv_pack(call->ctx, plan, (const float *)call->in[1]->data, here);
        packed = here;
    }
    const float *bias =
        call->input_count > 2 && call->in[2] != NULL ? (const float *)call->in[2]->data : NULL;
    sbit__conv_run(call->ctx, plan, (const float *)x->data, packed, bias, epilogue,
                   (float *)call->out[0]->data, scratch);
    return SBIT_OK;
}

/* The operands of a convolution in double. */
static void sbit__conv_operands64(const sbit_op_call *call, sbit__f64_conv *conv)
{
    const sbit_tensor *bias = call->input_count > 2 ? call->in[2] : NULL;
    conv->x = (const double *)call->in[0]->data;
    conv->w = (const double *)call->in[1]->data;
    conv->bias = bias != NULL ? (const double *)bias->data : NULL;
    conv->y = (double *)call->out[0]->data;
}

static sbit_status sbit__conv_run64(const sbit_op_call *call, sbit_error *error)
{
    sbit__f64_conv conv;
    memset(&conv, 0, sizeof conv);
    SBIT__TRY(sbit__conv_shape_of(call, &conv.shape, error));
    sbit__conv_operands64(call, &conv);
    sbit__f64_conv_run(call->ctx, &conv);
    return SBIT_OK;
}

static sbit_status sbit__conv_op_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__conv_run32, sbit__conv_run64, error);
}

static int64_t sbit__conv_macs(const sbit_op_call *call)
{
    return sbit__window_macs(call->out_type[0], call->in_type[1]);
}

/* ---- ConvTranspose */

/* Output lengths and padding; symbolic input lengths give unknown outputs unless they are fixed by
 * output_shape. `window` gets the padding in front of each axis. */
static sbit_status sbit__convt_dims(const sbit_op_call *call, sbit__window *window,
                                    const sbit_dim *in, sbit_dim *out, sbit_error *error)
{
    int64_t extra[2 * SBIT__MAX_SPATIAL] = {0}, wanted[2 * SBIT__MAX_SPATIAL] = {0};
    int64_t extra_count = -1, wanted_count = -1;
    const int32_t n = window->spatial;
    SBIT__TRY(sbit__op_ints(call, "output_padding", -1, extra, 2 * SBIT__MAX_SPATIAL, &extra_count,
                            error));
    SBIT__TRY(sbit__op_ints(call, "output_shape", -1, wanted, 2 * SBIT__MAX_SPATIAL, &wanted_count,
                            error));
    if (wanted_count == n + 2) { /* some exporters list batch and channel too */
        memmove(wanted, wanted + 2, (size_t)n * sizeof wanted[0]);
        wanted_count = n;
    }
    if ((extra_count >= 0 && extra_count != n) || (wanted_count >= 0 && wanted_count != n)) {
        return sbit_op_fail(
            call, SBIT_ERR_INVALID_MODEL, error,
            "%s must have %d entries, as the input's rank asks for",
            extra_count >= 0 && extra_count != n ? "output_padding" : "output_shape", (int)n);
    }
    for (int32_t i = 0; i < n; i++) {
        out[i] = wanted_count >= 0 ? sbit__dim(wanted[i]) : sbit__dim_any();
        if (extra[i] < 0 || extra[i] > INT32_MAX || wanted[i] < 0 || wanted[i] > INT32_MAX) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "output_padding or output_shape out of range on axis %d", (int)i);
        }
        if (!sbit__dim_known(in[i]) || window->kernel[i] == 0) {
            continue;
        }
        if (in[i].value < 0 || in[i].value > INT32_MAX) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "spatial dimension %d is %lld", (int)i,
                                (long long)in[i].value);
        }
        const int64_t extent = sbit__window_extent(window, i);
        const int64_t steps = in[i].value > 0 ? (in[i].value - 1) * window->stride[i] : 0;
        const int64_t full = extent > INT64_MAX / 4 || steps > INT64_MAX / 4
                                 ? INT64_MAX / 2
                                 : steps + extent + extra[i];
        int64_t length = full - window->pad_begin[i] - window->pad_end[i];
        if (wanted_count >= 0 || window->auto_pad >= SBIT__PAD_SAME_UPPER) {
            length = wanted_count >= 0 ? wanted[i] : in[i].value * window->stride[i];
            const int64_t total = full > length ? full - length : 0;
            window->pad_begin[i] =
                window->auto_pad == SBIT__PAD_SAME_UPPER ? total / 2 : total - total / 2;
        }
        if (in[i].value == 0) {
            length = wanted_count >= 0 ? wanted[i] : 0;
        }
        if (length < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "padding leaves %lld elements of spatial dimension %d",
                                (long long)length, (int)i);
        }
        out[i] = sbit__dim(length);
    }
    return SBIT_OK;
}

static sbit_status sbit__convt_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    sbit__window window;
    SBIT__TRY(sbit__conv_check(call, true, &rank, error));
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, rank);
    if (rank < 0 || out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__conv_window(call, rank, &window, error));
    const sbit_type *w = call->in_type[1];
    if (w->rank >= 0 && sbit__dim_known(w->dims[1])) {
        out->dims[1] = sbit__dim(w->dims[1].value * sbit_node_int(call->node, "group", 1));
    }
    if (call->in_type[0]->rank < 0) {
        return SBIT_OK;
    }
    out->dims[0] = call->in_type[0]->dims[0];
    SBIT__TRY(sbit__convt_dims(call, &window, call->in_type[0]->dims + 2, out->dims + 2, error));
    return sbit__epilogue_check(call, 3, error);
}

typedef struct sbit__convt_plan {
    int64_t batch, groups, in_channels, out_channels; /* channels of one group */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    int64_t in_size, out_size, kernel_size;
    int64_t block_rows; /* rows of the last axis per block of columns */
    size_t column_bytes, gemm_bytes;
    size_t group_bytes; /* packed weights of one group; they lie behind each other */
    sbit__epilogue epilogue;
} sbit__convt_plan;

static void sbit__convt_gemm(const sbit__convt_plan *plan, sbit__gemm *gemm)
{
    memset(gemm, 0, sizeof *gemm);
    gemm->m = plan->out_channels * plan->kernel_size;
    gemm->k = plan->in_channels;
    gemm->n = plan->block_rows * plan->in[2];
    gemm->lda = gemm->m;
    gemm->trans_a = true;
    gemm->ldb = plan->in_size;
    gemm->ldc = gemm->n;
    gemm->alpha = 1.0f;
}

static sbit_status sbit__convt_plan_of(const sbit_op_call *call, sbit__convt_plan *plan,
                                       sbit_error *error)
{
    int32_t rank = -1;
    sbit__window window;
    sbit_dim out[SBIT__MAX_SPATIAL];
    SBIT__TRY(sbit__conv_check(call, true, &rank, error));
    SBIT__TRY(sbit__conv_window(call, rank, &window, error));
    const sbit_type *x = call->in_type[0];
    SBIT__TRY(sbit__convt_dims(call, &window, x->dims + 2, out, error));
    memset(plan, 0, sizeof *plan);
    plan->batch = x->dims[0].value;
    plan->groups = sbit_node_int(call->node, "group", 1);
    plan->in_channels = x->dims[1].value / plan->groups;
    plan->out_channels = call->in_type[1]->dims[1].value;
    plan->in_size = plan->out_size = plan->kernel_size = 1;
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        const int32_t from = i - (SBIT__MAX_SPATIAL - window.spatial);
        plan->in[i] = from < 0 ? 1 : x->dims[from + 2].value;
        plan->out[i] = from < 0 ? 1 : out[from].value;
        plan->kernel[i] = from < 0 ? 1 : window.kernel[from];
        plan->stride[i] = from < 0 ? 1 : window.stride[from];
        plan->dilation[i] = from < 0 ? 1 : window.dilation[from];
        plan->pad[i] = from < 0 ? 0 : window.pad_begin[from];
        if (!sbit__mul_i64(plan->in_size, plan->in[i], &plan->in_size) ||
            !sbit__mul_i64(plan->out_size, plan->out[i], &plan->out_size) ||
            !sbit__mul_i64(plan->kernel_size, plan->kernel[i], &plan->kernel_size)) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
        }
    }
    const int64_t rows = plan->in[0] * plan->in[1];
    int64_t row_floats = 0;
    if (!sbit__mul_i64(plan->out_channels, plan->kernel_size, &row_floats) ||
        !sbit__mul_i64(row_floats, plan->in[2], &row_floats) || row_floats > INT64_MAX / 64) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
    }
    plan->block_rows = row_floats > 0 ? SBIT__CONV_COLUMN_FLOATS / row_floats : 1;
    plan->block_rows = plan->block_rows < 1 ? 1 : plan->block_rows;
    plan->block_rows = plan->block_rows > rows ? rows : plan->block_rows;
    plan->column_bytes = sbit__align64((size_t)(plan->block_rows * row_floats) * sizeof(float));
    return SBIT_OK;
}

static sbit_status sbit__convt_pack(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *w = sbit__in(call, 1);
    const int64_t groups = sbit_node_int(call->node, "group", 1);
    if (w == NULL || w->dtype != SBIT_F32 || w->rank < 3 || sbit_tensor_count(w) == 0 ||
        groups < 1 || w->dims[0] % groups != 0) {
        return SBIT_OK;
    }
    const int64_t k = w->dims[0] / groups, m = sbit__tensor_span(w, 1, w->rank);
    const size_t bytes = sbit__align64(sbit__gemm_pack_a_bytes(call->ctx, m, k));
    char *packed = (char *)call->alloc_packed(call, (size_t)groups * bytes);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    for (int64_t g = 0; g < groups; g++) {
        sbit__gemm_pack_a(call->ctx, m, k, (const float *)w->data + g * m * k, m, true, 1.0f,
                          (float *)(void *)(packed + (size_t)g * bytes));
    }
    call->release_input(call, 1);
    return SBIT_OK;
}

static sbit_status sbit__convt_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__convt_plan plan;
    sbit__gemm gemm;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__conv_static(call)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__convt_plan_of(call, &plan, error));
    sbit__convt_gemm(&plan, &gemm);
    plan.group_bytes = sbit__align64(sbit__gemm_pack_a_bytes(call->ctx, gemm.m, gemm.k));
    gemm.packed_a = (const float *)call->packed;
    plan.gemm_bytes = sbit__align64(sbit__gemm_scratch_bytes(call->ctx, &gemm));
    sbit__convt_plan *params = (sbit__convt_plan *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    *params = plan;
    sbit__epilogue_read(call, &params->epilogue);
    *call->scratch_bytes = sbit__op_in_float_scratch(call) + plan.column_bytes + plan.gemm_bytes;
    return SBIT_OK;
}

typedef struct sbit__convt_task {
    const sbit__convt_plan *plan;
    const float *columns;
    int64_t row_begin, row_end; /* rows of the last input axis in `columns` */
    float *y;                   /* first channel of the group */
    const float *bias;
    const sbit_kernels *kernels;
    const sbit__epilogue *epilogue;
} sbit__convt_task;

/* Adds one row of columns, all of one kernel position, to a row of the output. */
static void sbit__convt_add_row(const sbit__convt_plan *plan, const float *from, int64_t kx,
                                float *to)
{
    const int64_t stride = plan->stride[2];
    const int64_t shift = kx * plan->dilation[2] - plan->pad[2];
    int64_t begin = 0, end = plan->in[2];
    if (shift < 0) {
        begin = (-shift + stride - 1) / stride;
    }
    if (end > 0 && (end - 1) * stride + shift >= plan->out[2]) {
        end = plan->out[2] > shift ? (plan->out[2] - shift + stride - 1) / stride : 0;
    }
    if (stride == 1) {
        for (int64_t i = begin; i < end; i++) {
            to[i + shift] += from[i];
        }
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        to[i * stride + shift] += from[i];
    }
}

/* One channel: all kernel positions of all rows of the block. */
static void sbit__convt_scatter_channel(const sbit__convt_task *task, int64_t channel)
{
    const sbit__convt_plan *plan = task->plan;
    const int64_t rows = task->row_end - task->row_begin;
    const float *from = task->columns + channel * plan->kernel_size * rows * plan->in[2];
    float *y = task->y + channel * plan->out_size;
    for (int64_t k = 0; k < plan->kernel_size; k++) {
        const int64_t kx = k % plan->kernel[2];
        const int64_t ky = k / plan->kernel[2] % plan->kernel[1];
        const int64_t kz = k / plan->kernel[2] / plan->kernel[1];
        for (int64_t r = task->row_begin; r < task->row_end; r++, from += plan->in[2]) {
            const int64_t oz =
                r / plan->in[1] * plan->stride[0] + kz * plan->dilation[0] - plan->pad[0];
            const int64_t oy =
                r % plan->in[1] * plan->stride[1] + ky * plan->dilation[1] - plan->pad[1];
            if (oz >= 0 && oz < plan->out[0] && oy >= 0 && oy < plan->out[1]) {
                sbit__convt_add_row(plan, from, kx, y + (oz * plan->out[1] + oy) * plan->out[2]);
            }
        }
    }
}

static void sbit__convt_scatter(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__convt_task *task = (const sbit__convt_task *)user;
    (void)worker;
    for (int64_t c = begin; c < end; c++) {
        sbit__convt_scatter_channel(task, c);
    }
}

/* Planes of the whole output: bias before the sums ... */
static void sbit__convt_begin(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__convt_task *task = (const sbit__convt_task *)user;
    const int64_t channels = task->plan->groups * task->plan->out_channels;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *y = task->y + i * task->plan->out_size;
        const float value = task->bias != NULL ? task->bias[i % channels] : 0.0f;
        for (int64_t j = 0; j < task->plan->out_size; j++) {
            y[j] = value;
        }
    }
}

/* ... residual and activation after them. */
static void sbit__convt_finish(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__convt_task *task = (const sbit__convt_task *)user;
    const int64_t size = task->plan->out_size;
    (void)worker;
    for (int64_t i = begin; i < end; i++) { /* by planes: results must not depend on the range */
        sbit__epilogue_apply(task->kernels, task->epilogue, i * size, size, task->y + i * size);
    }
}

static void sbit__convt_group(const sbit_op_call *call, const sbit__convt_plan *plan,
                              const float *x, float *y, int64_t group)
{
    float *columns = (float *)call->scratch;
    void *gemm_scratch = (char *)call->scratch + plan->column_bytes;
    const int64_t rows = plan->in[0] * plan->in[1];
    sbit__convt_task task;
    sbit__gemm gemm;
    memset(&task, 0, sizeof task);
    task.plan = plan;
    task.columns = columns;
    task.y = y;
    sbit__convt_gemm(plan, &gemm);
    if (call->packed != NULL) {
        gemm.packed_a = (const float *)(const void *)((const char *)call->packed +
                                                      (size_t)group * plan->group_bytes);
    } else {
        gemm.a = (const float *)call->in[1]->data + group * gemm.m * gemm.k;
    }
    gemm.c = columns;
    for (int64_t r = 0; r < rows; r += plan->block_rows) {
        task.row_begin = r;
        task.row_end = rows - r < plan->block_rows ? rows : r + plan->block_rows;
        gemm.n = gemm.ldc = (task.row_end - r) * plan->in[2];
        gemm.b = x + r * plan->in[2];
        sbit__gemm_run(call->ctx, &gemm, gemm_scratch);
        sbit__parallel_range(call->ctx, plan->out_channels, 1, sbit__convt_scatter, &task);
    }
}

static sbit_status sbit__convt_run32(const sbit_op_call *call, sbit_error *error)
{
    const sbit__convt_plan *plan = (const sbit__convt_plan *)call->params;
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (sbit_tensor_count(call->out[0]) == 0) {
        return SBIT_OK;
    }
    const int64_t planes = plan->batch * plan->groups * plan->out_channels;
    sbit__epilogue epilogue;
    sbit__convt_task task;
    memset(&task, 0, sizeof task);
    task.plan = plan;
    task.y = (float *)call->out[0]->data;
    task.bias =
        call->input_count > 2 && call->in[2] != NULL ? (const float *)call->in[2]->data : NULL;
    task.kernels = call->kernels;
    task.epilogue = sbit__epilogue_of(call, &plan->epilogue, 3, &epilogue);
    sbit__parallel_range(call->ctx, planes, 1, sbit__convt_begin, &task);
    for (int64_t i = 0; plan->in_size > 0 && i < plan->batch * plan->groups; i++) {
        sbit__convt_group(call, plan,
                          (const float *)call->in[0]->data + i * plan->in_channels * plan->in_size,
                          task.y + i * plan->out_channels * plan->out_size, i % plan->groups);
    }
    if (task.epilogue != NULL) {
        sbit__parallel_range(call->ctx, planes, 1, sbit__convt_finish, &task);
    }
    return SBIT_OK;
}

static sbit_status sbit__convt_run64(const sbit_op_call *call, sbit_error *error)
{
    sbit__convt_plan plan;
    sbit__f64_conv conv;
    sbit__conv_shape *shape = &conv.shape;
    memset(&conv, 0, sizeof conv);
    SBIT__TRY(sbit__convt_plan_of(call, &plan, error));
    conv.transposed = true;
    shape->batch = plan.batch;
    shape->groups = plan.groups;
    shape->in_channels = plan.in_channels * plan.groups;
    shape->out_channels = plan.out_channels * plan.groups;
    for (int32_t i = 0; i < SBIT__MAX_SPATIAL; i++) {
        shape->in[i] = plan.in[i];
        shape->out[i] = plan.out[i];
        shape->kernel[i] = plan.kernel[i];
        shape->stride[i] = plan.stride[i];
        shape->dilation[i] = plan.dilation[i];
        shape->pad_begin[i] = plan.pad[i];
    }
    sbit__conv_operands64(call, &conv);
    sbit__f64_conv_run(call->ctx, &conv);
    return SBIT_OK;
}

static sbit_status sbit__convt_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__convt_run32, sbit__convt_run64, error);
}

static int64_t sbit__convt_macs(const sbit_op_call *call)
{
    return sbit__window_macs(call->in_type[0], call->in_type[1]);
}

/* ---- channels */

static void sbit__conv_join(const sbit_channel_call *call, const int32_t *a, const int32_t *b,
                            int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        call->join(call, a[i], b[i]);
    }
}

/* The bias belongs to the rows, which are the output's channels. */
static sbit_status sbit__conv_label_rows(const sbit_channel_call *call, const int32_t *rows,
                                         int64_t count, sbit_error *error)
{
    const int32_t *bias = NULL;
    if (sbit__op_has(call->op, 2)) {
        SBIT__TRY(call->labels(call, 2, 0, 1, SBIT_ROLE_BIAS, &bias, error));
        sbit__conv_join(call, rows, bias, count);
    }
    return call->produce(call, 0, 1, rows, error);
}

/* Rows make channels, columns read them. One input channel a group (depthwise): its rows live and
 * die with it. Other groups must keep as many channels each. */
static sbit_status sbit__conv_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *w = call->op->in_type[1];
    const int64_t groups = sbit_node_int(call->op->node, "group", 1);
    const int32_t *x = NULL, *rows = NULL, *columns = NULL;
    if (!call->is_constant(call, 1)) {
        return call->stop(call, "has a weight that is computed", error);
    }
    const int64_t out = w->dims[0].value, in = w->dims[1].value;
    const sbit_channel_role role = groups > 1 && in == 1 ? SBIT_ROLE_FILTER : SBIT_ROLE_ROWS;
    SBIT__TRY(call->labels(call, 0, 1, 1, SBIT_ROLE_PARAM, &x, error));
    SBIT__TRY(call->labels(call, 1, 0, 1, role, &rows, error));
    if (groups > 1 && in == 1) {
        for (int64_t i = 0; i < out; i++) {
            call->join(call, rows[i], x[i / (out / groups)]);
        }
        return sbit__conv_label_rows(call, rows, out, error);
    }
    SBIT__TRY(call->labels(call, 1, 1, groups, SBIT_ROLE_COLUMNS, &columns, error));
    sbit__conv_join(call, x, columns, in * groups);
    if (groups > 1) {
        SBIT__TRY(call->balance(call, x, in * groups, groups, error));
        SBIT__TRY(call->balance(call, rows, out, groups, error));
    }
    return sbit__conv_label_rows(call, rows, out, error);
}

/* The weight is [inputs, outputs of a group, ...]. */
static sbit_status sbit__convt_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *w = call->op->in_type[1];
    const int64_t groups = sbit_node_int(call->op->node, "group", 1);
    const int32_t *x = NULL, *rows = NULL, *columns = NULL;
    if (!call->is_constant(call, 1)) {
        return call->stop(call, "has a weight that is computed", error);
    }
    const int64_t in = w->dims[0].value, out = w->dims[1].value;
    if (groups > 1 && (in != groups || out != 1)) {
        return call->stop(call, "has groups of several channels", error);
    }
    SBIT__TRY(call->labels(call, 0, 1, 1, SBIT_ROLE_PARAM, &x, error));
    SBIT__TRY(call->labels(call, 1, 0, 1, groups > 1 ? SBIT_ROLE_FILTER : SBIT_ROLE_COLUMNS,
                           &columns, error));
    sbit__conv_join(call, x, columns, in);
    if (groups > 1) {
        return sbit__conv_label_rows(call, columns, in, error);
    }
    SBIT__TRY(call->labels(call, 1, 1, 1, SBIT_ROLE_ROWS, &rows, error));
    return sbit__conv_label_rows(call, rows, out, error);
}

/* ---- rows */

static const sbit_op_quant sbit__conv_quant = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, 1, -1, 2, 0, 1, NULL, 0, 0};
static const sbit_op_quant sbit__convt_quant = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, 1, -1, 2, 1, 0, NULL, 0, 0};
static const sbit_op_channel sbit__conv_channel = {SBIT_CHANNEL_OWN, 1, 0, 0, 0, sbit__conv_label};
static const sbit_op_channel sbit__convt_channel = {SBIT_CHANNEL_OWN, 1, 0, 0, 0,
                                                    sbit__convt_label};

#define SBIT__CONV_ROW(domain, version, types)                                                     \
    {                                                                                              \
        domain, "Conv", version, types, 0, sbit__conv_op_pack, sbit__conv_infer,                   \
            sbit__conv_prepare, sbit__conv_op_run, sbit__grad_conv, NULL, &sbit__conv_quant,       \
            &sbit__conv_channel, sbit__conv_macs                                                   \
    }
#define SBIT__CONVT_ROW(domain, version, types)                                                    \
    {                                                                                              \
        domain, "ConvTranspose", version, types, 0, sbit__convt_pack, sbit__convt_infer,           \
            sbit__convt_prepare, sbit__convt_run, sbit__grad_conv_transpose, NULL,                 \
            &sbit__convt_quant, &sbit__convt_channel, sbit__convt_macs                             \
    }

static const sbit_op_row sbit__conv_rows[] = {
    SBIT__CONV_ROW("", 1, SBIT__T_FLOATS1),       SBIT__CONV_ROW("", 11, SBIT__T_FLOATS1),
    SBIT__CONV_ROW("", 22, SBIT_T_FLOATS),        SBIT__CONVT_ROW("", 1, SBIT__T_FLOATS1),
    SBIT__CONVT_ROW("", 11, SBIT__T_FLOATS1),     SBIT__CONVT_ROW("", 22, SBIT_T_FLOATS),
    SBIT__CONV_ROW("sbit", 1, SBIT_T(SBIT_F32)), SBIT__CONVT_ROW("sbit", 1, SBIT_T(SBIT_F32)),
};

#undef SBIT__CONV_COLUMN_FLOATS
#undef SBIT__CONV_ROW
#undef SBIT__CONVT_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_conv(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__conv_rows);
    return sbit__conv_rows;
}
