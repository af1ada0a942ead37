/* resize.c: Resize and Upsample of all versions. >>resize
 *
 * Called by: infer, exec. Calls: kernels (threads).
 * Each axis is resized by itself: output position x stands at x_original (the formulas are those of
 * the attribute coordinate_transformation_mode, sbit__resize_position), and takes a weighted sum of
 * its neighbours, its taps:
 *   nearest  1 tap, rounded as nearest_mode says      linear  2 taps      cubic  4 taps
 *   antialias, when shrinking: as many as the filter, stretched by 1 / scale, reaches
 * Taps outside of the input repeat its edge, or are left out with exclude_outside. Taps of all axes
 * are tabulated first; then
 *   nearest             copies elements of any type
 *   only the last two axes, float32     first along rows, then along columns, plane by plane
 *   anything else       sums over all combinations of taps, in double
 * Versions 1 to 10 place pixels as "asymmetric"; their nearest rounds down, and up when shrinking.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* floor, floorf, ceil, fabs, rint */

typedef enum sbit__resize_mode {
    SBIT__RESIZE_NEAREST,
    SBIT__RESIZE_LINEAR,
    SBIT__RESIZE_CUBIC
} sbit__resize_mode;

typedef enum sbit__resize_place {
    SBIT__RESIZE_AT_HALF_PIXEL,
    SBIT__RESIZE_AT_HALF_PIXEL_SYMMETRIC,
    SBIT__RESIZE_AT_PYTORCH,
    SBIT__RESIZE_AT_ALIGN_CORNERS,
    SBIT__RESIZE_AT_ASYMMETRIC,
    SBIT__RESIZE_AT_TF_CROP
} sbit__resize_place;

typedef enum sbit__resize_round {
    SBIT__RESIZE_ROUND_PREFER_FLOOR,
    SBIT__RESIZE_ROUND_PREFER_CEIL,
    SBIT__RESIZE_ROUND_FLOOR,
    SBIT__RESIZE_ROUND_CEIL,
    SBIT__RESIZE_ROUND_OLD
} sbit__resize_round;

typedef struct sbit__resize_axis {
    int64_t in, out;
    double scale; /* 0: not known */
    double width; /* scale * in: the output's length before it became an integer */
    double roi_begin, roi_end;
    bool keeps; /* identity */
    int64_t taps;
    /* tables of the run: [out][taps]; of nearest only `index`, -1: extrapolated */
    int64_t *index;
    void *weight;  /* float, or double if the resize is wide */
    bool *outside; /* [out]: extrapolated */
} sbit__resize_axis;

typedef struct sbit__resize {
    int32_t rank;
    sbit__resize_mode mode;
    sbit__resize_place place;
    sbit__resize_round round;
    bool exclude_outside, antialias;
    bool wide; /* elements are float64 and weighted */
    double cubic_a;
    float extrapolation;
    sbit__resize_axis axis[SBIT_MAX_RANK];
} sbit__resize;

/* ---- attributes */

static bool sbit__resize_is_new(const sbit_op_call *call)
{
    return call->row->since_version >= 11 && sbit__streq(call->row->op_type, "Resize");
}

static sbit_status sbit__resize_attributes(const sbit_op_call *call, sbit__resize *resize,
                                           sbit_error *error)
{
    static const char *const modes[] = {"nearest", "linear", "cubic", "bilinear"};
    static const char *const places[] = {"half_pixel",         "half_pixel_symmetric",
                                         "pytorch_half_pixel", "align_corners",
                                         "asymmetric",         "tf_crop_and_resize"};
    static const char *const rounds[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                         "ceil"};
    int32_t choice = 0;
    memset(resize, 0, sizeof *resize);
    SBIT__TRY(sbit__op_word(call, "mode", modes, 4, &choice, error));
    resize->mode = choice == 3 ? SBIT__RESIZE_LINEAR : (sbit__resize_mode)choice;
    resize->place = SBIT__RESIZE_AT_ASYMMETRIC;
    resize->round = SBIT__RESIZE_ROUND_OLD;
    if (!sbit__resize_is_new(call)) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_word(call, "coordinate_transformation_mode", places, 6, &choice, error));
    resize->place = (sbit__resize_place)choice;
    SBIT__TRY(sbit__op_word(call, "nearest_mode", rounds, 4, &choice, error));
    resize->round = (sbit__resize_round)choice;
    resize->exclude_outside = sbit_node_int(call->node, "exclude_outside", 0) != 0;
    resize->antialias = sbit_node_int(call->node, "antialias", 0) != 0;
    resize->cubic_a = (double)sbit_node_float(call->node, "cubic_coeff_a", -0.75f);
    resize->extrapolation = sbit_node_float(call->node, "extrapolation_value", 0.0f);
    if (resize->antialias && resize->mode == SBIT__RESIZE_NEAREST) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "antialias needs mode linear or cubic");
    }
    return SBIT_OK;
}

/* ---- scales and sizes */

/* The axes that scales, sizes and roi speak of: attribute axes (version 18), else all. */
static sbit_status sbit__resize_axes(const sbit_op_call *call, int32_t rank,
                                     int32_t axes[SBIT_MAX_RANK], int32_t *count, sbit_error *error)
{
    int64_t given[SBIT_MAX_RANK];
    int64_t n = -1;
    bool seen[SBIT_MAX_RANK] = {false};
    SBIT__TRY(sbit__op_ints(call, "axes", -1, given, SBIT_MAX_RANK, &n, error));
    *count = n < 0 ? rank : (int32_t)n;
    for (int32_t i = 0; i < *count; i++) {
        axes[i] = i;
        if (n >= 0) {
            SBIT__TRY(sbit__op_axis(call, given[i], rank, &axes[i], error));
        }
        if (seen[axes[i]]) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "axis %d is listed twice",
                                (int)axes[i]);
        }
        seen[axes[i]] = true;
    }
    return SBIT_OK;
}

/* Scales by position; *count -1: not known, 0: not given. Upsample-1 has two attributes. */
static sbit_status sbit__resize_scales(const sbit_op_call *call, int32_t rank,
                                       float scales[SBIT_MAX_RANK], int64_t *count,
                                       sbit_error *error)
{
    const bool upsample = sbit__streq(call->row->op_type, "Upsample");
    const int32_t input = sbit__resize_is_new(call) ? 2 : 1;
    if (upsample && call->row->since_version < 7) {
        if (rank != 4) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be 4", (int)rank);
        }
        scales[0] = scales[1] = 1.0f;
        scales[2] = sbit_node_float(call->node, "height_scale", 0.0f);
        scales[3] = sbit_node_float(call->node, "width_scale", 0.0f);
        *count = 4;
        return SBIT_OK;
    }
    if (upsample && call->row->since_version < 9) {
        return sbit__op_floats(call, "scales", -1, scales, SBIT_MAX_RANK, count, error);
    }
    *count = 0;
    if (!sbit__op_has(call, input)) {
        return SBIT_OK;
    }
    const sbit_type *type = call->in_type[input];
    if (type->kind != SBIT_KIND_TENSOR ||
        (type->dtype != SBIT_F32 && type->dtype != SBIT_UNDEFINED)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "scales must be a float32 tensor");
    }
    if (type->rank == 1 && sbit__dim_known(type->dims[0]) && type->dims[0].value == 0) {
        return SBIT_OK;
    }
    return sbit__op_floats(call, NULL, input, scales, SBIT_MAX_RANK, count, error);
}

static sbit_status sbit__resize_by_scales(const sbit_op_call *call, const int32_t *axes, int32_t n,
                                          const float *scales, const sbit_dim *in, sbit_dim *out,
                                          sbit__resize *resize, sbit_error *error)
{
    for (int32_t i = 0; i < n; i++) {
        const int32_t a = axes[i];
        const float scale = scales[i];
        if (!(scale > 0.0f) || scale > 1e9f) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "scales[%d] is %g", (int)i,
                                (double)scale);
        }
        resize->axis[a].scale = (double)scale;
        out[a] = scale == 1.0f ? in[a] : sbit__dim_any();
        if (sbit__dim_known(in[a])) {
            /* float32, as others compute it: 10 * 0.7f is 7, not 6.99 */
            const float length = floorf((float)in[a].value * scale);
            if (length > 9e18f || in[a].value < 0) {
                return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "axis %d would be too long",
                                    (int)a);
            }
            out[a] = scale == 1.0f ? in[a] : sbit__dim((int64_t)length);
            resize->axis[a].width = (double)scale * (double)in[a].value;
        }
    }
    return SBIT_OK;
}

/* keep_aspect_ratio_policy: one scale for all axes, the least or the largest that sizes ask for. */
static sbit_status sbit__resize_by_policy(const sbit_op_call *call, const int32_t *axes, int32_t n,
                                          bool larger, const sbit_dim *sizes, const sbit_dim *in,
                                          sbit_dim *out, sbit__resize *resize, sbit_error *error)
{
    double scale = 0.0;
    for (int32_t i = 0; i < n; i++) {
        out[axes[i]] = sbit__dim_any();
        if (!sbit__dim_known(sizes[i]) || !sbit__dim_known(in[axes[i]])) {
            scale = -1.0;
        } else if (scale >= 0.0 && in[axes[i]].value > 0) {
            const double ratio =
                sbit__real(resize->wide, (double)sizes[i].value / (double)in[axes[i]].value);
            scale = i == 0 || (larger ? ratio > scale : ratio < scale) ? ratio : scale;
        }
    }
    for (int32_t i = 0; i < n && scale > 0.0; i++) {
        const int32_t a = axes[i];
        const double width = scale * (double)in[a].value;
        if (width > 9e18) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "axis %d would be too long", (int)a);
        }
        resize->axis[a].scale = scale;
        resize->axis[a].width = width;
        out[a] = sbit__dim((int64_t)floor(width + 0.5));
    }
    return SBIT_OK;
}

static sbit_status sbit__resize_by_sizes(const sbit_op_call *call, const int32_t *axes, int32_t n,
                                         const sbit_dim *sizes, const sbit_dim *in, sbit_dim *out,
                                         sbit__resize *resize, sbit_error *error)
{
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    int32_t policy = 0;
    SBIT__TRY(sbit__op_word(call, "keep_aspect_ratio_policy", policies, 3, &policy, error));
    for (int32_t i = 0; i < n; i++) {
        if (sbit__dim_known(sizes[i]) && sizes[i].value < 0) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "sizes[%d] is %lld", (int)i,
                                (long long)sizes[i].value);
        }
    }
    if (policy != 0) {
        return sbit__resize_by_policy(call, axes, n, policy == 2, sizes, in, out, resize, error);
    }
    for (int32_t i = 0; i < n; i++) {
        sbit__resize_axis *axis = &resize->axis[axes[i]];
        out[axes[i]] = sizes[i];
        if (sbit__dim_known(sizes[i]) && sbit__dim_known(in[axes[i]]) && in[axes[i]].value > 0) {
            axis->scale =
                sbit__real(resize->wide, (double)sizes[i].value / (double)in[axes[i]].value);
            axis->width = (double)sizes[i].value;
        }
    }
    return SBIT_OK;
}

/* Output dims and scales as far as they are known. `dims` has room for X's rank. */
static sbit_status sbit__resize_shape(const sbit_op_call *call, sbit__resize *resize,
                                      sbit_dim *dims, sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    int32_t axes[SBIT_MAX_RANK];
    int32_t n = 0;
    float scales[SBIT_MAX_RANK] = {0};
    sbit_dim sizes[SBIT_MAX_RANK];
    int64_t count = -1;
    SBIT__TRY(sbit__resize_axes(call, x->rank, axes, &n, error));
    memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
    resize->rank = x->rank;
    for (int32_t i = 0; i < x->rank; i++) {
        resize->axis[i].scale = 1.0;
        resize->axis[i].width = (double)x->dims[i].value;
        resize->axis[i].roi_end = 1.0;
    }
    const bool has_sizes = sbit__resize_is_new(call) && sbit__op_has(call, 3);
    SBIT__TRY(sbit__resize_scales(call, x->rank, scales, &count, error));
    const bool by_sizes = count == 0 && has_sizes;
    if (by_sizes && !sbit__op_elems(call, 3, sizes, SBIT_MAX_RANK, &count)) {
        count = -1;
    }
    if (count >= 0 && count != n) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "scales or sizes has %lld entries for %d axes", (long long)count,
                            (int)n);
    }
    if (count < 0) {
        for (int32_t i = 0; i < n; i++) {
            dims[axes[i]] = sbit__dim_any();
            resize->axis[axes[i]].scale = 0.0;
        }
        return SBIT_OK;
    }
    return by_sizes ? sbit__resize_by_sizes(call, axes, n, sizes, x->dims, dims, resize, error)
                    : sbit__resize_by_scales(call, axes, n, scales, x->dims, dims, resize, error);
}

static bool sbit__resize_numeric(sbit_dtype dtype)
{
    return dtype == SBIT_UNDEFINED || (SBIT_T_NUMBERS >> (uint32_t)dtype & 1u) != 0;
}

static sbit_status sbit__resize_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__resize resize;
    sbit_dim dims[SBIT_MAX_RANK];
    int32_t rank = -1;
    const bool is_new = sbit__resize_is_new(call);
    const bool by_attribute =
        sbit__streq(call->row->op_type, "Upsample") && call->row->since_version < 9;
    SBIT__TRY(sbit__op_inputs(call, by_attribute || is_new ? 1 : 2,
                              is_new         ? 4
                              : by_attribute ? 1
                                             : 2,
                              error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    SBIT__TRY(sbit__resize_attributes(call, &resize, error));
    if (resize.mode != SBIT__RESIZE_NEAREST && !sbit__resize_numeric(call->in_type[0]->dtype)) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "%s cannot be interpolated",
                            sbit_dtype_name((int32_t)call->in_type[0]->dtype));
    }
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, rank);
    if (rank < 0 || out == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__resize_shape(call, &resize, dims, error));
    memcpy(out->dims, dims, (size_t)rank * sizeof dims[0]);
    return SBIT_OK;
}

/* ---- taps */

/* How many taps output positions of an axis can have, from its lengths alone. */
static int64_t sbit__resize_most_taps(const sbit__resize *resize, int64_t in, int64_t out)
{
    const int64_t reach = resize->mode == SBIT__RESIZE_CUBIC ? 2 : 1;
    if (resize->mode == SBIT__RESIZE_NEAREST) {
        return 1;
    }
    if (!resize->antialias || out < 1) {
        return 2 * reach;
    }
    /* A policy's scale may be half of out / in, when the length was rounded up. */
    const int64_t shrink = 2 * (in / out + 1);
    return 2 * (reach * shrink + 1);
}

/* In float32, as ONNX Runtime does it: otherwise positions that are meant to be whole or halves
 * would be rounded to other neighbours. In double where elements are, and neighbours are weighted.
 */
static double sbit__resize_position(const sbit__resize *resize, const sbit__resize_axis *axis,
                                    int64_t at)
{
    const bool w = resize->wide;
    const double x = (double)at, last = (double)(axis->in - 1);
    const double scale = sbit__real(w, axis->scale), width = sbit__real(w, axis->width);
    const double half = sbit__real(w, sbit__real(w, sbit__real(w, x + 0.5) / scale) - 0.5);
    switch (resize->place) {
    case SBIT__RESIZE_AT_HALF_PIXEL_SYMMETRIC: {
        const double rest = sbit__real(w, 1.0 - sbit__real(w, (double)axis->out / width));
        return sbit__real(w, half + sbit__real(w, (double)axis->in / 2.0 * rest));
    }
    case SBIT__RESIZE_AT_PYTORCH:
        return axis->out > 1 ? half : 0.0;
    case SBIT__RESIZE_AT_ALIGN_CORNERS:
        return width == 1.0 ? 0.0
                            : sbit__real(w, sbit__real(w, x * last) / sbit__real(w, width - 1.0));
    case SBIT__RESIZE_AT_ASYMMETRIC:
        return sbit__real(w, x / scale);
    case SBIT__RESIZE_AT_TF_CROP: {
        const double begin = axis->roi_begin, end = axis->roi_end;
        if (width == 1.0) {
            return sbit__real(w, 0.5 * sbit__real(w, begin + end) * last);
        }
        const double range = sbit__real(w, sbit__real(w, x * sbit__real(w, end - begin)) * last);
        return sbit__real(w, sbit__real(w, begin * last) +
                                 sbit__real(w, range / sbit__real(w, width - 1.0)));
    }
    default:
        return half;
    }
}

static int64_t sbit__resize_clamp(double at, int64_t length)
{
    return !(at > 0.0) ? 0 : at > (double)(length - 1) ? length - 1 : (int64_t)at;
}

static int64_t sbit__resize_nearest(const sbit__resize *resize, const sbit__resize_axis *axis,
                                    double x)
{
    /* What float32 makes of a half counts as a half (ONNX Runtime): 2 / (4 / 7) is 3.4999998. */
    const bool half = fabs(x - floor(x) - 0.5) < 1e-5;
    double at = x;
    switch (resize->round) {
    case SBIT__RESIZE_ROUND_PREFER_FLOOR:
        at = half ? floor(x) : floor(x + 0.5);
        break;
    case SBIT__RESIZE_ROUND_PREFER_CEIL:
        at = half ? ceil(x) : floor(x + 0.5);
        break;
    case SBIT__RESIZE_ROUND_CEIL:
        at = ceil(x);
        break;
    case SBIT__RESIZE_ROUND_OLD:
        at = axis->scale < 1.0 ? ceil(x) : floor(x);
        break;
    default:
        at = floor(x);
        break;
    }
    return sbit__resize_clamp(at, axis->in);
}

/* The filter at distance d (in input pixels, already divided by the stretch). */
static double sbit__resize_filter(const sbit__resize *resize, double d)
{
    const double a = resize->cubic_a;
    d = fabs(d);
    if (resize->mode == SBIT__RESIZE_LINEAR) {
        return d < 1.0 ? 1.0 - d : 0.0;
    }
    if (d <= 1.0) {
        return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    }
    return d < 2.0 ? ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a : 0.0;
}

/* Fills the axis's taps of output position `at`. */
static void sbit__resize_taps_at(const sbit__resize *resize, const sbit__resize_axis *axis,
                                 int64_t at)
{
    const double reach = resize->mode == SBIT__RESIZE_CUBIC ? 2.0 : 1.0;
    const double squeeze = resize->antialias && axis->scale < 1.0 ? axis->scale : 1.0;
    const double x = sbit__resize_position(resize, axis, at);
    int64_t *index = axis->index + at * axis->taps;
    double sum = 0.0, divisor = 1.0;
    const double first = floor(x - reach / squeeze) + 1.0;
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int64_t k = 0; k < axis->taps; k++) {
            const double place = first + (double)k;
            double w = sbit__resize_filter(resize, (place - x) * squeeze);
            if (resize->exclude_outside && (place < 0.0 || place > (double)(axis->in - 1))) {
                w = 0.0;
            }
            if (pass == 0) {
                sum += w;
            } else {
                index[k] = sbit__resize_clamp(place, axis->in);
                sbit__real_set(resize->wide, axis->weight, at * axis->taps + k, w / divisor);
            }
        }
        divisor = (resize->antialias || resize->exclude_outside) && sum != 0.0 ? sum : 1.0;
    }
}

static void sbit__resize_tabulate(const sbit__resize *resize, sbit__resize_axis *axis)
{
    for (int64_t at = 0; at < axis->out; at++) {
        const double x = axis->keeps ? (double)at : sbit__resize_position(resize, axis, at);
        /* Not >= and <=: a position that is no number is outside, too. */
        const bool inside = x >= 0.0 && x <= (double)(axis->in - 1);
        axis->outside[at] = !axis->keeps && resize->place == SBIT__RESIZE_AT_TF_CROP && !inside;
        if (axis->keeps) {
            axis->index[at] = at;
            if (axis->weight != NULL) {
                sbit__real_set(resize->wide, axis->weight, at, 1.0);
            }
        } else if (resize->mode == SBIT__RESIZE_NEAREST) {
            axis->index[at] = sbit__resize_nearest(resize, axis, x);
        } else {
            sbit__resize_taps_at(resize, axis, at);
        }
    }
}

/* ---- prepare: room for the tables, and rows between the two passes */

static size_t sbit__resize_table_bytes(const sbit__resize *resize, int64_t in, int64_t out)
{
    const int64_t taps = sbit__resize_most_taps(resize, in, out);
    return sbit__align64((size_t)(out * taps) * sizeof(int64_t)) +
           sbit__align64((size_t)(out * taps) * sizeof(double)) + sbit__align64((size_t)out);
}

static size_t sbit__resize_plane_floats(const sbit_type *x, const sbit_type *y)
{
    if (x->rank < 2) {
        return 0;
    }
    return (size_t)((x->dims[x->rank - 2].value * y->dims[y->rank - 1].value + 15) / 16 * 16);
}

static sbit_status sbit__resize_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__resize resize;
    const sbit_type *x = call->in_type[0];
    const sbit_type *y = call->out_type[0];
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    SBIT__TRY(sbit__resize_attributes(call, &resize, error));
    if (y == NULL || !sbit__type_static(x) || !sbit__type_static(y)) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < x->rank; i++) {
        const int64_t in = x->dims[i].value, out = y->dims[i].value;
        if (in == 0 && out != 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "axis %d has nothing to resize",
                                (int)i);
        }
        if (out > INT32_MAX || in > INT32_MAX) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "axis %d is too long", (int)i);
        }
        *call->scratch_bytes += sbit__resize_table_bytes(&resize, in, out);
    }
    if (resize.mode != SBIT__RESIZE_NEAREST) {
        *call->scratch_bytes +=
            sbit__op_in_float_scratch(call) +
            (size_t)sbit_ctx_threads(call->ctx) * sbit__resize_plane_floats(x, y) * sizeof(float);
    }
    return SBIT_OK;
}

/* ---- run */

/* roi [begin..., end...] of the listed axes, for tf_crop_and_resize. */
static sbit_status sbit__resize_roi(const sbit_op_call *call, sbit__resize *resize,
                                    sbit_error *error)
{
    int32_t axes[SBIT_MAX_RANK];
    int32_t n = 0;
    const sbit_tensor *roi = sbit__in(call, 1);
    if (resize->place != SBIT__RESIZE_AT_TF_CROP) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__resize_axes(call, resize->rank, axes, &n, error));
    if (roi == NULL || sbit_tensor_count(roi) != 2 * n) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "tf_crop_and_resize needs a roi of %d entries", 2 * (int)n);
    }
    for (int32_t i = 0; i < n; i++) {
        resize->axis[axes[i]].roi_begin = sbit__real(resize->wide, sbit__tensor_f64_at(roi, i));
        resize->axis[axes[i]].roi_end = sbit__real(resize->wide, sbit__tensor_f64_at(roi, n + i));
    }
    return SBIT_OK;
}

/* Reads everything and fills the tables; *rest is the scratch memory behind them. */
static sbit_status sbit__resize_setup(const sbit_op_call *call, sbit__resize *resize, char **rest,
                                      sbit_error *error)
{
    sbit_dim dims[SBIT_MAX_RANK];
    char *next = (char *)call->scratch;
    SBIT__TRY(sbit__resize_attributes(call, resize, error));
    resize->wide = resize->mode != SBIT__RESIZE_NEAREST && call->in[0]->dtype == SBIT_F64;
    SBIT__TRY(sbit__resize_shape(call, resize, dims, error));
    SBIT__TRY(sbit__resize_roi(call, resize, error));
    for (int32_t i = 0; i < resize->rank; i++) {
        sbit__resize_axis *axis = &resize->axis[i];
        axis->in = call->in[0]->dims[i];
        axis->out = call->out[0]->dims[i];
        if (axis->scale == 0.0 && axis->out > 0) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "axis %d has no scale",
                                (int)i);
        }
        axis->keeps = axis->in == axis->out && axis->scale == 1.0 &&
                      (resize->place != SBIT__RESIZE_AT_TF_CROP ||
                       (axis->roi_begin == 0.0 && axis->roi_end == 1.0));
        axis->taps = axis->keeps ? 1 : sbit__resize_most_taps(resize, axis->in, axis->out);
        if (!axis->keeps && resize->antialias) {
            const double reach = resize->mode == SBIT__RESIZE_CUBIC ? 2.0 : 1.0;
            const double taps = ceil(2.0 * reach / (axis->scale < 1.0 ? axis->scale : 1.0)) + 1.0;
            axis->taps = taps < (double)axis->taps ? (int64_t)taps : axis->taps;
        }
        const size_t cells = (size_t)(axis->out * axis->taps);
        axis->index = (int64_t *)(void *)next;
        next += sbit__align64(cells * sizeof(int64_t));
        if (resize->mode != SBIT__RESIZE_NEAREST) {
            axis->weight = next;
            next += sbit__align64(cells * (resize->wide ? sizeof(double) : sizeof(float)));
        }
        axis->outside = (bool *)(void *)next;
        next += sbit__align64((size_t)axis->out);
        sbit__resize_tabulate(resize, axis);
    }
    *rest = next;
    return SBIT_OK;
}

typedef struct sbit__resize_task {
    const sbit__resize *resize;
    const sbit_tensor *x;
    sbit_tensor *y;
    int64_t in_strides[SBIT_MAX_RANK];
    float *planes; /* one per worker */
    int64_t plane_floats;
} sbit__resize_task;

/* Where output row `row` (all axes but the last) begins in the input; false: extrapolated. Only for
 * one tap per axis. */
static bool sbit__resize_row_offset(const sbit__resize_task *task, int64_t row, int64_t *offset)
{
    const sbit__resize *resize = task->resize;
    *offset = 0;
    for (int32_t i = resize->rank - 2; i >= 0; i--) {
        const sbit__resize_axis *axis = &resize->axis[i];
        const int64_t at = row % axis->out;
        row /= axis->out;
        if (axis->outside[at]) {
            return false;
        }
        *offset += axis->index[at] * task->in_strides[i];
    }
    return true;
}

#define SBIT__RESIZE_GATHER(type)                                                                  \
    do {                                                                                           \
        const type *from = (const type *)x + offset;                                               \
        type *to = (type *)y + row * n;                                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            to[i] = from[index[i]];                                                                \
        }                                                                                          \
    } while (0)

static void sbit__resize_nearest_row(const sbit__resize_task *task, int64_t row, int64_t offset)
{
    const sbit__resize_axis *last = &task->resize->axis[task->resize->rank - 1];
    const int64_t *index = last->index;
    const int64_t n = last->out;
    const void *x = task->x->data;
    void *y = task->y->data;
    switch (last->keeps ? 0 : sbit__elem_bytes(task->x->dtype)) {
    case 1:
        SBIT__RESIZE_GATHER(uint8_t);
        break;
    case 2:
        SBIT__RESIZE_GATHER(uint16_t);
        break;
    case 4:
        SBIT__RESIZE_GATHER(uint32_t);
        break;
    case 8:
        SBIT__RESIZE_GATHER(uint64_t);
        break;
    case 0:
        sbit__elem_copy(task->x->dtype, y, row * n, x, offset, n);
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            sbit__elem_copy(task->x->dtype, y, row * n + i, x, offset + index[i], 1);
        }
        break;
    }
}

/* Elements of the row that lie outside of the region get extrapolation_value. */
static void sbit__resize_extrapolate(const sbit__resize_task *task, int64_t row, bool whole)
{
    const sbit__resize_axis *last = &task->resize->axis[task->resize->rank - 1];
    if (task->resize->place != SBIT__RESIZE_AT_TF_CROP || !sbit__resize_numeric(task->y->dtype)) {
        return;
    }
    for (int64_t i = 0; i < last->out; i++) {
        if (whole || last->outside[i]) {
            sbit__tensor_set_f64(task->y, row * last->out + i, (double)task->resize->extrapolation);
        }
    }
}

static void sbit__resize_nearest_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__resize_task *task = (const sbit__resize_task *)user;
    const int64_t n = task->resize->axis[task->resize->rank - 1].out;
    int64_t last_offset = -1;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        int64_t offset = 0;
        const bool inside = sbit__resize_row_offset(task, row, &offset);
        if (inside && offset == last_offset && row > begin) { /* as when enlarging 2 times */
            sbit__elem_copy(task->y->dtype, task->y->data, row * n, task->y->data, (row - 1) * n,
                            n);
            continue;
        }
        last_offset = inside ? offset : -1;
        sbit__resize_nearest_row(task, row, offset);
        sbit__resize_extrapolate(task, row, !inside);
    }
}

/* One row along the last axis. */
static void sbit__resize_along(const sbit__resize_axis *axis, const float *x, float *y)
{
    const int64_t *index = axis->index;
    const float *weight = (const float *)axis->weight;
    if (axis->taps == 2) {
        for (int64_t i = 0; i < axis->out; i++, index += 2, weight += 2) {
            y[i] = weight[0] * x[index[0]] + weight[1] * x[index[1]];
        }
        return;
    }
    for (int64_t i = 0; i < axis->out; i++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < axis->taps; k++) {
            sum += *weight++ * x[*index++];
        }
        y[i] = sum;
    }
}

/* Output row `at` of a plane whose rows have been resized already. */
static void sbit__resize_across(const sbit__resize_axis *axis, int64_t at, const float *rows,
                                int64_t n, float *y)
{
    const int64_t *index = axis->index + at * axis->taps;
    const float *weight = (const float *)axis->weight + at * axis->taps;
    if (axis->taps == 2) {
        const float *a = rows + index[0] * n, *b = rows + index[1] * n;
        const float wa = weight[0], wb = weight[1];
        for (int64_t i = 0; i < n; i++) {
            y[i] = wa * a[i] + wb * b[i];
        }
        return;
    }
    for (int64_t k = 0; k < axis->taps; k++) {
        const float *from = rows + index[k] * n;
        const float w = weight[k];
        for (int64_t i = 0; i < n; i++) {
            y[i] = (k == 0 ? 0.0f : y[i]) + w * from[i];
        }
    }
}

static void sbit__resize_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__resize_task *task = (const sbit__resize_task *)user;
    const int32_t rank = task->resize->rank;
    const sbit__resize_axis *across = &task->resize->axis[rank - 2];
    const sbit__resize_axis *along = &task->resize->axis[rank - 1];
    const int64_t n = along->out;
    float *own = task->planes + worker * task->plane_floats;
    for (int64_t plane = begin; plane < end; plane++) {
        const float *x = (const float *)task->x->data + plane * across->in * along->in;
        float *y = (float *)task->y->data + plane * across->out * n;
        const float *rows = along->keeps ? x : own;
        for (int64_t r = 0; !along->keeps && r < across->in; r++) {
            sbit__resize_along(along, x + r * along->in, own + r * n);
        }
        for (int64_t r = 0; r < across->out; r++) {
            sbit__resize_across(across, r, rows, n, y + r * n);
            sbit__resize_extrapolate(task, plane * across->out + r, across->outside[r]);
        }
    }
}

/* Any axes, any type: the sum over all combinations of taps. */
static double sbit__resize_element(const sbit__resize_task *task, const int64_t *at)
{
    const sbit__resize *resize = task->resize;
    int64_t tap[SBIT_MAX_RANK] = {0};
    double sum = 0.0;
    for (;;) {
        double weight = 1.0;
        int64_t offset = 0;
        for (int32_t i = 0; i < resize->rank; i++) {
            const int64_t k = at[i] * resize->axis[i].taps + tap[i];
            weight *= sbit__real_at(resize->wide, resize->axis[i].weight, k);
            offset += resize->axis[i].index[k] * task->in_strides[i];
        }
        sum += weight * (task->x->dtype == SBIT_F32 ? (double)((const float *)task->x->data)[offset]
                                                    : sbit__tensor_f64_at(task->x, offset));
        int32_t i = resize->rank - 1;
        while (i >= 0 && ++tap[i] == resize->axis[i].taps) {
            tap[i--] = 0;
        }
        if (i < 0) {
            return sum;
        }
    }
}

static double sbit__resize_saturate(sbit_dtype dtype, double value)
{
    static const struct {
        sbit_dtype dtype;
        double low, high;
    } ranges[] = {{SBIT_I8, -128.0, 127.0},
                  {SBIT_U8, 0.0, 255.0},
                  {SBIT_I16, -32768.0, 32767.0},
                  {SBIT_U16, 0.0, 65535.0},
                  {SBIT_I32, -2147483648.0, 2147483647.0},
                  {SBIT_U32, 0.0, 4294967295.0},
                  {SBIT_I64, -9223372036854775808.0, 9223372036854774784.0},
                  {SBIT_U64, 0.0, 18446744073709549568.0}};
    for (size_t i = 0; i < SBIT__COUNT_OF(ranges); i++) {
        if (ranges[i].dtype == dtype) {
            value = rint(value);
            return value < ranges[i].low    ? ranges[i].low
                   : value > ranges[i].high ? ranges[i].high
                                            : value;
        }
    }
    return value;
}

static void sbit__resize_elements(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__resize_task *task = (const sbit__resize_task *)user;
    const sbit__resize *resize = task->resize;
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        int64_t at[SBIT_MAX_RANK];
        int64_t rest = o;
        bool outside = false;
        for (int32_t i = resize->rank - 1; i >= 0; i--) {
            at[i] = rest % resize->axis[i].out;
            rest /= resize->axis[i].out;
            outside = outside || resize->axis[i].outside[at[i]];
        }
        const double value =
            outside ? (double)resize->extrapolation : sbit__resize_element(task, at);
        sbit__tensor_set_f64(task->y, o, sbit__resize_saturate(task->y->dtype, value));
    }
}

static sbit_status sbit__resize_run_any(const sbit_op_call *call, sbit_error *error)
{
    sbit__resize resize;
    sbit__resize_task task;
    char *rest = NULL;
    const int32_t rank = call->in[0]->rank;
    const int64_t count = sbit_tensor_count(call->out[0]);
    if (count == 0) {
        return SBIT_OK;
    }
    if (rank == 0) {
        sbit__elem_copy_all(call->in[0], call->out[0]);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__resize_setup(call, &resize, &rest, error));
    memset(&task, 0, sizeof task);
    task.resize = &resize;
    task.x = call->in[0];
    task.y = call->out[0];
    sbit__tensor_strides(task.x, task.in_strides);
    if (resize.mode == SBIT__RESIZE_NEAREST) {
        sbit__parallel_range(call->ctx, count / resize.axis[rank - 1].out, 16,
                             sbit__resize_nearest_rows, &task);
        return SBIT_OK;
    }
    bool planes = rank >= 2 && task.x->dtype == SBIT_F32;
    for (int32_t i = 0; i < rank - 2; i++) {
        planes = planes && resize.axis[i].keeps;
    }
    if (!planes) {
        sbit__parallel_range(call->ctx, count, 1024, sbit__resize_elements, &task);
        return SBIT_OK;
    }
    task.planes = (float *)(void *)rest;
    task.plane_floats = (int64_t)sbit__resize_plane_floats(call->in_type[0], call->out_type[0]);
    sbit__parallel_range(call->ctx, sbit__tensor_span(task.x, 0, rank - 2), 1, sbit__resize_planes,
                         &task);
    return SBIT_OK;
}

static sbit_status sbit__resize_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__resize resize;
    SBIT__TRY(sbit__resize_attributes(call, &resize, error));
    if (resize.mode == SBIT__RESIZE_NEAREST || call->in[0]->dtype == SBIT_F64) {
        return sbit__resize_run_any(call, error); /* takes any type; scales stay float32 */
    }
    return sbit__op_in_float(call, sbit__resize_run_any, sbit__resize_run_any, error);
}

/* ---- ResizeGrad(x, roi, scales, sizes, dy) {of, version, and the node's attributes}: what each
 * element of dy was made of gets its part of it, by the same taps. */

/* The forward node's call: its row, and dy in place of its output. */
static bool sbit__resize_forward(const sbit_op_call *call, sbit_op_call *forward,
                                 sbit_tensor **output, sbit_type **output_type)
{
    *forward = *call;
    forward->row = sbit_operator_find(call->ctx, "", sbit_node_string(call->node, "of", ""),
                                      sbit_node_int(call->node, "version", 1));
    forward->input_count = 4;
    forward->output_count = 1;
    forward->out = output;
    forward->out_type = output_type;
    return forward->row != NULL;
}

static sbit_status sbit__resize_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 5, error));
    if (!sbit__op_has(call, 4)) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "input 4 is missing");
    }
    sbit__op_same_type(call, 0, 0);
    return SBIT_OK;
}

static sbit_status sbit__resize_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit_op_call forward;
    sbit_type dy = *call->in_type[4], *type = &dy;
    SBIT__TRY(sbit__op_check(call, error));
    return sbit__resize_forward(call, &forward, NULL, &type)
               ? sbit__resize_prepare(&forward, error)
               : sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "of: no such operator");
}

typedef struct sbit__resize_back {
    sbit__resize_task task;  /* x: dx, y: dy */
    int64_t planes, in, out; /* elements of a plane: axes in front of it keep their size */
    int32_t first;           /* axis of a plane */
} sbit__resize_back;

static void sbit__resize_back_planes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__resize_back *b = (const sbit__resize_back *)user;
    const sbit__resize *resize = b->task.resize;
    (void)worker;
    for (int64_t o = begin * b->out; o < end * b->out; o++) {
        int64_t at[SBIT_MAX_RANK], tap[SBIT_MAX_RANK] = {0}, rest = o % b->out;
        const double dy = sbit__real_at(resize->wide, b->task.y->data, o);
        bool outside = false;
        int32_t i = 0;
        for (i = resize->rank - 1; i >= b->first; i--) {
            at[i] = rest % resize->axis[i].out;
            rest /= resize->axis[i].out;
            outside = outside || resize->axis[i].outside[at[i]];
        }
        while (!outside && i < resize->rank) {
            int64_t offset = o / b->out * b->in;
            double weight = dy;
            for (i = b->first; i < resize->rank; i++) {
                const int64_t k = at[i] * resize->axis[i].taps + tap[i];
                weight *= sbit__real_at(resize->wide, resize->axis[i].weight, k);
                offset += resize->axis[i].index[k] * b->task.in_strides[i];
            }
            void *dx = b->task.x->data;
            sbit__real_set(resize->wide, dx, offset,
                           sbit__real_at(resize->wide, dx, offset) + weight);
            for (i = resize->rank - 1; i >= b->first && ++tap[i] == resize->axis[i].taps; i--) {
                tap[i] = 0;
            }
            i = i < b->first ? resize->rank : i;
        }
    }
}

static sbit_status sbit__resize_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__resize resize;
    sbit__resize_back b;
    sbit_op_call forward;
    sbit_tensor dy = *call->in[4], *output = &dy;
    sbit_type type = *call->in_type[4], *output_type = &type;
    char *rest = NULL;
    memset(&b, 0, sizeof b);
    memset(call->out[0]->data, 0, sbit_tensor_bytes(call->out[0]));
    if (!sbit__resize_forward(call, &forward, &output, &output_type) ||
        sbit_tensor_count(&dy) == 0) {
        return SBIT_OK; /* prepare has refused others */
    }
    if (dy.rank == 0) {
        sbit__elem_copy_all(&dy, call->out[0]);
        return SBIT_OK;
    }
    SBIT__TRY(sbit__resize_setup(&forward, &resize, &rest, error));
    b.task.resize = &resize;
    b.task.x = call->out[0];
    b.task.y = &dy;
    sbit__tensor_strides(call->out[0], b.task.in_strides);
    while (b.first < resize.rank - 1 && resize.axis[b.first].keeps) {
        b.first++;
    }
    b.planes = sbit__tensor_span(&dy, 0, b.first);
    b.in = sbit__tensor_span(call->out[0], b.first, resize.rank);
    b.out = sbit__tensor_span(&dy, b.first, resize.rank);
    sbit__parallel_range(call->ctx, b.planes, 1, sbit__resize_back_planes, &b);
    return SBIT_OK;
}

/* ---- channels */

/* Axes that keep their size are not mixed. */
static sbit_status sbit__resize_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *x = call->op->in_type[0], *y = call->op->out_type[0];
    uint32_t mixed = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        mixed |= x->dims[i].value != y->dims[i].value ? 1u << (uint32_t)i : 0u;
    }
    return call->pass(call, mixed, "resizes the axis of the channels", error);
}

/* PASS_SCALE is for mode nearest, which the other flags are not for. */
static const sbit_op_quant sbit__resize_quant = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT | SBIT_QUANT_PASS_NEAREST,
    1,
    -1,
    -1,
    -1,
    0,
    0,
    NULL,
    0,
    0};
static const sbit_op_channel sbit__resize_channel = {SBIT_CHANNEL_OWN,  1, 0, 0, 0,
                                                     sbit__resize_label};

#define SBIT__RESIZE_ROW(name, version, types)                                                     \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__resize_infer, sbit__resize_prepare,                  \
            sbit__resize_run, sbit__grad_resize, NULL, &sbit__resize_quant, &sbit__resize_channel, \
            NULL                                                                                   \
    }

static const sbit_op_row sbit__resize_rows[] = {
    SBIT__RESIZE_ROW("Upsample", 1,
                     SBIT__T_FLOATS1 | SBIT_T(SBIT_BOOL) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64)),
    SBIT__RESIZE_ROW("Upsample", 7, SBIT__T_ALL1),
    SBIT__RESIZE_ROW("Upsample", 9, SBIT__T_ALL1),
    SBIT__RESIZE_ROW("Resize", 10, SBIT__T_ALL1),
    SBIT__RESIZE_ROW("Resize", 11, SBIT__T_ALL1),
    SBIT__RESIZE_ROW("Resize", 13, SBIT__T_ALL13),
    SBIT__RESIZE_ROW("Resize", 18, SBIT__T_ALL13),
    SBIT__RESIZE_ROW("Resize", 19, SBIT__T_ALL13),
    {SBIT__GRAD_DOMAIN, "ResizeGrad", 1, SBIT__T_GRAD, 0, 0, sbit__resize_grad_infer,
     sbit__resize_grad_prepare, sbit__resize_grad_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__RESIZE_GATHER
#undef SBIT__RESIZE_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_resize(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__resize_rows);
    return sbit__resize_rows;
}
