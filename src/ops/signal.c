/* signal.c: DFT, STFT, MelWeightMatrix, HannWindow, HammingWindow, BlackmanWindow. >>signal
 *
 * Called by: exec through the rows. Calls: libm.
 * Does: both forms of DFT (axis as attribute or input), one-sided and inverse transforms.
 * How: sums of the definition in double, O(n^2) for a transform of n points. Angles are reduced
 * as integers, k * m mod n, before they become a fraction of a turn.
 * Does not: fast transforms; these operators stand in front of networks, on short frames.
 */
#include "elements_private.h"
#include "gradient_private.h"

#include <math.h> /* cos, sin, log10, pow, floor */

#if !SPARSEBIT_NO_OPS_SIGNAL

#define SBIT__SIGNAL_TURN 6.28318530717958647693

/* >>one transform */

typedef struct sbit__signal_line {
    const sbit_tensor *x, *window;      /* window: NULL, or one factor per point */
    int64_t x0, x_step;                 /* first point, in elements of the real part; to the next */
    int64_t have, points;               /* what x holds; the transform's length */
    bool complex_in, inverse, mirrored; /* mirrored: x is the first half of a symmetric spectrum */
} sbit__signal_line;

static void sbit__signal_point(const sbit__signal_line *line, int64_t n, double *re, double *im)
{
    const bool above = line->mirrored && n > line->points / 2;
    const int64_t m = above ? line->points - n : n;
    *re = *im = 0.0;
    if (m >= line->have) {
        return;
    }
    const double weight = line->window != NULL ? sbit__tensor_f64_at(line->window, n) : 1.0;
    *re = weight * sbit__tensor_f64_at(line->x, line->x0 + m * line->x_step);
    if (line->complex_in) {
        *im = weight * sbit__tensor_f64_at(line->x, line->x0 + m * line->x_step + 1);
        *im = above ? -*im : *im;
    }
}

/* Output k: sum over n of x[n] * exp(-+ 2 pi i k n / points), over points if inverse. */
static void sbit__signal_output(const sbit__signal_line *line, int64_t k, double *re, double *im)
{
    const double sign = line->inverse ? 1.0 : -1.0;
    *re = *im = 0.0;
    for (int64_t n = 0; n < line->points; n++) {
        double a = 0.0, b = 0.0;
        const double angle = SBIT__SIGNAL_TURN * (double)((k % line->points) * n % line->points) /
                             (double)line->points;
        const double c = cos(angle), s = sign * sin(angle);
        sbit__signal_point(line, n, &a, &b);
        *re += a * c - b * s;
        *im += a * s + b * c;
    }
    if (line->inverse) {
        *re /= (double)line->points;
        *im /= (double)line->points;
    }
}

static void sbit__signal_store(sbit_tensor *y, int64_t at, bool complex_out, double re, double im)
{
    sbit__tensor_set_f64(y, at, re);
    if (complex_out) {
        sbit__tensor_set_f64(y, at + 1, im);
    }
}

/* >>DFT */

typedef struct sbit__dft {
    int32_t axis;
    bool inverse, one_sided;
    sbit_dim points; /* of the transform */
} sbit__dft;

static sbit_status sbit__dft_axis(const sbit_op_call *call, int32_t rank, int32_t *axis,
                                  bool *known, sbit_error *error)
{
    int64_t given = -2;
    *known = true;
    if (call->row->since_version < 20) {
        given = sbit_node_int(call->node, "axis", 1);
    } else if (sbit__in_type(call, 2) != NULL) {
        *known = sbit__in(call, 2) != NULL;
        SBIT__TRY(sbit__op_scalar(call, 2, -2, &given, error));
    }
    SBIT__TRY(sbit__op_axis(call, given, rank, axis, error));
    if (*axis == rank - 1) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "the last axis holds the parts of complex numbers");
    }
    return SBIT_OK;
}

/* What is computed, and the output's type, for an input of type x. */
static sbit_status sbit__dft_read(const sbit_op_call *call, const sbit_type *x, sbit__dft *dft,
                                  sbit_type *out, sbit_error *error)
{
    bool known = true;
    int64_t count = 0;
    dft->inverse = sbit_node_int(call->node, "inverse", 0) != 0;
    dft->one_sided = sbit_node_int(call->node, "onesided", 0) != 0;
    out->rank = x->rank;
    if (x->rank < 2) {
        return x->rank < 0 ? SBIT_OK
                           : sbit_op_fail(call, SBIT_ERR_SHAPE, error, "an input of rank below 2");
    }
    SBIT__TRY(sbit__dft_axis(call, x->rank, &dft->axis, &known, error));
    if (!known) { /* whatever the axis is, a transform of all points keeps the dims */
        if (!dft->one_sided && sbit__in_type(call, 1) == NULL) {
            memcpy(out->dims, x->dims, sizeof out->dims);
        }
        out->dims[x->rank - 1] = sbit__dim(dft->one_sided && dft->inverse ? 1 : 2);
        return SBIT_OK;
    }
    const sbit_dim have = x->dims[dft->axis], one = sbit__dim(1);
    const bool full = dft->one_sided && dft->inverse;
    if (sbit__in_type(call, 1) != NULL) {
        dft->points = sbit__op_elems(call, 1, &dft->points, 1, &count) && count == 1
                          ? dft->points
                          : sbit__dim_any();
    } else {
        dft->points = full ? sbit__dim_mul(sbit__dim(2), sbit__dim_sub(have, one)) : have;
    }
    if (sbit__dim_known(dft->points) && dft->points.value < 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "a transform of no points");
    }
    memcpy(out->dims, x->dims, sizeof out->dims);
    out->dims[dft->axis] = dft->one_sided && !dft->inverse
                               ? sbit__dim_add(sbit__dim_div(dft->points, sbit__dim(2)), one)
                               : dft->points;
    out->dims[x->rank - 1] = sbit__dim(full ? 1 : 2);
    return SBIT_OK;
}

static sbit_status sbit__dft_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type ignored = sbit__type_unknown();
    sbit__dft dft;
    memset(&dft, 0, sizeof dft);
    SBIT__TRY(sbit__op_inputs(call, 1, call->row->since_version < 20 ? 2 : 3, error));
    sbit_type *out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), -1);
    return sbit__dft_read(call, call->in_type[0], &dft, out != NULL ? out : &ignored, error);
}

static sbit_status sbit__dft_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const sbit_type x_type = sbit__type_of_tensor(x);
    sbit_type type = sbit__type_unknown();
    sbit__signal_line line;
    sbit__dft dft;
    sbit_tensor *y = NULL;
    memset(&line, 0, sizeof line);
    memset(&dft, 0, sizeof dft);
    type.dtype = x->dtype;
    SBIT__TRY(sbit__dft_read(call, &x_type, &dft, &type, error));
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &y, error));
    if (y == NULL) {
        return SBIT_OK;
    }
    const int64_t parts = x->dims[x->rank - 1], parts_out = y->dims[y->rank - 1];
    if (parts != 1 && parts != 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "numbers of %lld parts", (long long)parts);
    }
    line.x = x;
    line.have = x->dims[dft.axis];
    line.points = dft.points.value;
    line.complex_in = parts == 2;
    line.inverse = dft.inverse;
    line.mirrored = dft.inverse && dft.one_sided;
    const int64_t outer = sbit__dims_product(x->dims, 0, dft.axis);
    const int64_t inner = sbit__dims_product(x->dims, dft.axis + 1, x->rank - 1);
    line.x_step = inner * parts;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            line.x0 = (o * line.have * inner + i) * parts;
            for (int64_t k = 0; k < y->dims[dft.axis]; k++) {
                double re = 0.0, im = 0.0;
                sbit__signal_output(&line, k, &re, &im);
                sbit__signal_store(y, ((o * y->dims[dft.axis] + k) * inner + i) * parts_out,
                                   parts_out == 2, re, im);
            }
        }
    }
    return SBIT_OK;
}

/* >>STFT */

static sbit_status sbit__stft_read(const sbit_op_call *call, const sbit_type *x, int64_t *step,
                                   int64_t *length, sbit_type *out, sbit_error *error)
{
    const sbit_type *window = sbit__in_type(call, 2);
    const bool one_sided = sbit_node_int(call->node, "onesided", 1) != 0;
    out->rank = 4;
    out->dims[0] = x->rank == 3 ? x->dims[0] : sbit__dim_any();
    out->dims[3] = sbit__dim(2);
    *step = *length = 0;
    if (x->rank >= 0 && x->rank != 3) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "a signal of rank %d, not 3",
                            (int)x->rank);
    }
    SBIT__TRY(sbit__op_scalar(call, 1, 0, step, error));
    SBIT__TRY(sbit__op_scalar(call, 3, 0, length, error));
    if (x->rank < 0 || !sbit__dim_known(x->dims[1]) || *step == 0) {
        return SBIT_OK;
    }
    if (*length == 0 && sbit__in_type(call, 3) == NULL) {
        const sbit_dim other = window != NULL && window->rank == 1 ? window->dims[0] : x->dims[1];
        *length = sbit__dim_known(other) ? other.value : 0;
    }
    if (*length == 0) {
        return SBIT_OK;
    }
    if (*step < 0 || *length < 0 || *length > x->dims[1].value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "frames of %lld, %lld apart, in a signal of %lld", (long long)*length,
                            (long long)*step, (long long)x->dims[1].value);
    }
    out->dims[1] = sbit__dim((x->dims[1].value - *length) / *step + 1);
    out->dims[2] = sbit__dim(one_sided ? *length / 2 + 1 : *length);
    return SBIT_OK;
}

static sbit_status sbit__stft_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_type ignored = sbit__type_unknown();
    int64_t step = 0, length = 0;
    SBIT__TRY(sbit__op_inputs(call, 2, 4, error));
    sbit_type *out = sbit__op_out(call, 0, sbit__in_dtype(call, 0), -1);
    return sbit__stft_read(call, call->in_type[0], &step, &length, out != NULL ? out : &ignored,
                           error);
}

static sbit_status sbit__stft_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const sbit_type x_type = sbit__type_of_tensor(x);
    sbit_type type = sbit__type_unknown();
    sbit__signal_line line;
    int64_t step = 0, length = 0;
    sbit_tensor *y = NULL;
    memset(&line, 0, sizeof line);
    type.dtype = x->dtype;
    SBIT__TRY(sbit__stft_read(call, &x_type, &step, &length, &type, error));
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &y, error));
    line.x = x;
    line.window = sbit__in(call, 2);
    line.have = line.points = length;
    line.complex_in = x->dims[2] == 2;
    line.x_step = x->dims[2];
    if ((x->dims[2] != 1 && x->dims[2] != 2) ||
        (line.window != NULL && sbit_tensor_count(line.window) != length)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "the signal or the window does not fit frames of %lld",
                            (long long)length);
    }
    for (int64_t f = 0; y != NULL && f < y->dims[0] * y->dims[1]; f++) {
        line.x0 = (f / y->dims[1] * x->dims[1] + f % y->dims[1] * step) * x->dims[2];
        for (int64_t k = 0; k < y->dims[2]; k++) {
            double re = 0.0, im = 0.0;
            sbit__signal_output(&line, k, &re, &im);
            sbit__signal_store(y, (f * y->dims[2] + k) * 2, true, re, im);
        }
    }
    return SBIT_OK;
}

/* >>windows: a0 - a1 cos(t) + a2 cos(2 t), t = 2 pi i / (size, or size - 1 if symmetric) */

static sbit_status sbit__signal_dtype(const sbit_op_call *call, sbit_dtype *dtype,
                                      sbit_error *error)
{
    const int64_t asked = sbit_node_int(call->node, "output_datatype", (int64_t)SBIT_F32);
    if (asked <= 0 || asked >= (int64_t)SBIT_DTYPE_COUNT ||
        (SBIT_T((sbit_dtype)asked) & SBIT_T_NUMBERS) == 0) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "output_datatype %lld",
                            (long long)asked);
    }
    *dtype = (sbit_dtype)asked;
    return SBIT_OK;
}

static sbit_status sbit__window_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dtype dtype = SBIT_F32;
    sbit_dim size = sbit__dim_any();
    int64_t count = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__signal_dtype(call, &dtype, error));
    sbit_type *out = sbit__op_out(call, 0, dtype, 1);
    if (out == NULL || !sbit__op_elems(call, 0, &size, 1, &count) || count != 1) {
        return SBIT_OK;
    }
    if (sbit__dim_known(size) && size.value < 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "a size of %lld", (long long)size.value);
    }
    out->dims[0] = size;
    return SBIT_OK;
}

static sbit_status sbit__window_fill(const sbit_op_call *call, double a0, double a1, double a2,
                                     sbit_error *error)
{
    const bool periodic = sbit_node_int(call->node, "periodic", 1) != 0;
    sbit_dtype dtype = SBIT_F32;
    sbit_tensor *y = NULL;
    int64_t size = 0;
    SBIT__TRY(sbit__op_scalar(call, 0, 0, &size, error));
    SBIT__TRY(sbit__signal_dtype(call, &dtype, error));
    SBIT__TRY(sbit__op_output(call, 0, dtype, 1, &size, &y, error));
    const int64_t turn = periodic ? size : size - 1; /* 0: no number, by the definition */
    for (int64_t i = 0; y != NULL && i < size; i++) {
        const double t = SBIT__SIGNAL_TURN * (double)i / (double)turn;
        sbit__tensor_set_f64(y, i, a0 - a1 * cos(t) + a2 * cos(2.0 * t));
    }
    return SBIT_OK;
}

static sbit_status sbit__hann_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__window_fill(call, 0.5, 0.5, 0.0, error);
}

static sbit_status sbit__hamming_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__window_fill(call, 25.0 / 46.0, 21.0 / 46.0, 0.0, error);
}

static sbit_status sbit__blackman_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__window_fill(call, 0.42, 0.5, 0.08, error);
}

/* >>MelWeightMatrix: triangles over the bins of a spectrum, their corners equally spaced in mel,
 * mel(f) = 2595 log10(1 + f / 700) */

static sbit_status sbit__mel_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dtype dtype = SBIT_F32;
    sbit_dim bins = sbit__dim_any(), length = sbit__dim_any();
    int64_t count = 0;
    SBIT__TRY(sbit__op_inputs(call, 5, 5, error));
    SBIT__TRY(sbit__signal_dtype(call, &dtype, error));
    sbit_type *out = sbit__op_out(call, 0, dtype, 2);
    if (out == NULL || !sbit__op_elems(call, 0, &bins, 1, &count) ||
        !sbit__op_elems(call, 1, &length, 1, &count)) {
        return SBIT_OK;
    }
    if ((sbit__dim_known(bins) && bins.value < 0) ||
        (sbit__dim_known(length) && length.value < 0)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "negative sizes");
    }
    out->dims[0] = sbit__dim_add(sbit__dim_div(length, sbit__dim(2)), sbit__dim(1));
    out->dims[1] = bins;
    return SBIT_OK;
}

/* The bin of corner i of bins + 2. */
static int64_t sbit__mel_corner(const sbit_op_call *call, int64_t i, int64_t bins, int64_t length)
{
    const double rate = sbit__tensor_f64_at(call->in[2], 0);
    const double low = 2595.0 * log10(1.0 + sbit__tensor_f64_at(call->in[3], 0) / 700.0);
    const double high = 2595.0 * log10(1.0 + sbit__tensor_f64_at(call->in[4], 0) / 700.0);
    const double mel = low + (double)i * (high - low) / (double)(bins + 2);
    const double hertz = 700.0 * (pow(10.0, mel / 2595.0) - 1.0);
    const double bin = floor((double)(length + 1) * hertz / rate);
    return bin > 0.0 ? (bin < (double)length ? (int64_t)bin : length) : 0;
}

static sbit_status sbit__mel_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_dtype dtype = SBIT_F32;
    int64_t dims[2], bins = 0, length = 0;
    sbit_tensor *y = NULL;
    SBIT__TRY(sbit__op_scalar(call, 0, 0, &bins, error));
    SBIT__TRY(sbit__op_scalar(call, 1, 0, &length, error));
    SBIT__TRY(sbit__signal_dtype(call, &dtype, error));
    for (int32_t i = 2; i < 5; i++) {
        if (sbit_tensor_count(call->in[i]) != 1) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input %d must be one number", (int)i);
        }
    }
    dims[0] = length / 2 + 1;
    dims[1] = bins;
    SBIT__TRY(sbit__op_output(call, 0, dtype, 2, dims, &y, error));
    if (y == NULL) {
        return SBIT_OK;
    }
    sbit__elem_zero(dtype, y->data, 0, sbit_tensor_count(y));
    for (int64_t b = 0; b < bins; b++) {
        const int64_t lower = sbit__mel_corner(call, b, bins, length);
        const int64_t center = sbit__mel_corner(call, b + 1, bins, length);
        const int64_t higher = sbit__mel_corner(call, b + 2, bins, length);
        for (int64_t j = lower; j <= center && j < dims[0]; j++) {
            sbit__tensor_set_f64(y, j * bins + b,
                                 center == lower ? 1.0
                                                 : (double)(j - lower) / (double)(center - lower));
        }
        for (int64_t j = center; j < higher && j < dims[0]; j++) {
            sbit__tensor_set_f64(y, j * bins + b, (double)(higher - j) / (double)(higher - center));
        }
    }
    return SBIT_OK;
}

/* >>rows */

#define SBIT__SIGNAL_ROW_WITH(name, version, types, infer, run, gradient)                          \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__##infer##_infer, NULL, sbit__##run##_run, gradient,  \
            NULL, NULL, NULL, NULL                                                                 \
    }
#define SBIT__SIGNAL_ROW(name, version, types, infer, run)                                         \
    SBIT__SIGNAL_ROW_WITH(name, version, types, infer, run, NULL)
#define SBIT__SIGNAL_SIZES (SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64))

static const sbit_op_row sbit__signal_rows[] = {
    SBIT__SIGNAL_ROW_WITH("DFT", 17, SBIT_T_FLOATS, dft, dft, sbit__grad_dft),
    SBIT__SIGNAL_ROW_WITH("DFT", 20, SBIT_T_FLOATS, dft, dft, sbit__grad_dft),
    SBIT__SIGNAL_ROW_WITH("STFT", 17, SBIT_T_FLOATS, stft, stft, sbit__grad_stft),
    SBIT__SIGNAL_ROW("HannWindow", 17, SBIT__SIGNAL_SIZES, window, hann),
    SBIT__SIGNAL_ROW("HammingWindow", 17, SBIT__SIGNAL_SIZES, window, hamming),
    SBIT__SIGNAL_ROW("BlackmanWindow", 17, SBIT__SIGNAL_SIZES, window, blackman),
    SBIT__SIGNAL_ROW("MelWeightMatrix", 17, SBIT__SIGNAL_SIZES, mel, mel),
};

#undef SBIT__SIGNAL_ROW
#undef SBIT__SIGNAL_ROW_WITH
#undef SBIT__SIGNAL_SIZES
#undef SBIT__SIGNAL_TURN

SBIT__FN const sbit_op_row *sbit__op_rows_signal(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__signal_rows);
    return sbit__signal_rows;
}

#endif /* SPARSEBIT_NO_OPS_SIGNAL */
