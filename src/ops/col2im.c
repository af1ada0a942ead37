/* col2im.c: Col2Im: columns of blocks added up to an image, any number of dimensions. >>col2im
 *
 * Called by: infer, exec. Calls: ops/common.c.
 *   X [N, C * block, L]: L blocks in the order of their places, each block's elements in row-major
 *   order -> Y [N, C, image...]: every element is added where its place, stride, dilation and
 * padding put it, in the order of the columns; what falls into padding is dropped.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#if !SPARSEBIT_NO_OPS_VISION

#define SBIT__COL2IM_RANK (SBIT_MAX_RANK - 2)

typedef struct sbit__col2im {
    int32_t rank; /* of image and block */
    int64_t image[SBIT__COL2IM_RANK], block[SBIT__COL2IM_RANK], places[SBIT__COL2IM_RANK];
    int64_t stride[SBIT__COL2IM_RANK], dilation[SBIT__COL2IM_RANK], pads[2 * SBIT__COL2IM_RANK];
    int64_t image_count, block_count, place_count;
} sbit__col2im;

static sbit_status sbit__col2im_per_axis(const sbit_op_call *call, const char *name, int64_t many,
                                         int64_t least, int64_t otherwise, int64_t *values,
                                         sbit_error *error)
{
    int64_t count = -1;
    SBIT__TRY(sbit__op_ints(call, name, -1, values, many, &count, error));
    for (int64_t i = 0; count < 0 && i < many; i++) {
        values[i] = otherwise;
    }
    for (int64_t i = 0; i < many; i++) {
        if ((count >= 0 && count != many) || values[i] < least || values[i] > INT32_MAX) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "%s has %lld numbers of at least %lld", name, (long long)many,
                                (long long)least);
        }
    }
    return SBIT_OK;
}

/* *known: both shapes are there. */
static sbit_status sbit__col2im_read(const sbit_op_call *call, sbit__col2im *c, bool *known,
                                     sbit_error *error)
{
    int64_t image = -1, block = -1;
    memset(c, 0, sizeof *c);
    SBIT__TRY(sbit__op_ints(call, NULL, 1, c->image, SBIT__COL2IM_RANK, &image, error));
    SBIT__TRY(sbit__op_ints(call, NULL, 2, c->block, SBIT__COL2IM_RANK, &block, error));
    *known = image >= 0 && block >= 0;
    if (!*known) {
        return SBIT_OK;
    }
    if (image != block || image < 1) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "image_shape and block_shape have the same number of entries");
    }
    c->rank = (int32_t)image;
    SBIT__TRY(sbit__col2im_per_axis(call, "strides", image, 1, 1, c->stride, error));
    SBIT__TRY(sbit__col2im_per_axis(call, "dilations", image, 1, 1, c->dilation, error));
    SBIT__TRY(sbit__col2im_per_axis(call, "pads", 2 * image, 0, 0, c->pads, error));
    c->image_count = c->block_count = c->place_count = 1;
    for (int32_t i = 0; i < c->rank; i++) {
        if (c->image[i] < 1 || c->block[i] < 1 || c->image[i] > INT32_MAX ||
            c->block[i] > INT32_MAX) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "image_shape and block_shape are at least 1");
        }
        const int64_t room = c->image[i] + c->pads[i] + c->pads[c->rank + i] -
                             (c->dilation[i] * (c->block[i] - 1) + 1);
        if (room < 0) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "the block is larger than the padded image along axis %d", (int)i);
        }
        c->places[i] = room / c->stride[i] + 1;
        if (!sbit__mul_i64(c->image_count, c->image[i], &c->image_count) ||
            !sbit__mul_i64(c->block_count, c->block[i], &c->block_count) ||
            !sbit__mul_i64(c->place_count, c->places[i], &c->place_count)) {
            return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__col2im_type(const sbit_op_call *call, const sbit__col2im *c,
                                     const sbit_type *x, sbit_type *out, sbit_error *error)
{
    const sbit_dim rows = x->dims[1], places = x->dims[2];
    if (sbit__dim_known(rows) && rows.value % c->block_count != 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "dimension 1 (%lld) is no multiple of the block's %lld elements",
                            (long long)rows.value, (long long)c->block_count);
    }
    if (sbit__dim_known(places) && places.value != c->place_count) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "dimension 2 is %lld, but the block has %lld places",
                            (long long)places.value, (long long)c->place_count);
    }
    out->rank = c->rank + 2;
    out->dims[0] = x->dims[0];
    out->dims[1] = sbit__dim_known(rows) ? sbit__dim(rows.value / c->block_count) : sbit__dim_any();
    for (int32_t i = 0; i < c->rank; i++) {
        out->dims[i + 2] = sbit__dim(c->image[i]);
    }
    return SBIT_OK;
}

static sbit_status sbit__col2im_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__col2im c;
    bool known = false;
    const sbit_type *x = call->in_type[0];
    SBIT__TRY(sbit__op_inputs(call, 3, 3, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x6, SBIT_T(SBIT_I64), error));
    sbit_type *out = sbit__op_out(call, 0, x->dtype, -1);
    if (x->rank >= 0 && x->rank != 3) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "its input has rank 3");
    }
    SBIT__TRY(sbit__col2im_read(call, &c, &known, error));
    const sbit_type *image = call->in_type[1];
    if (!known && out != NULL && image->rank == 1 && sbit__dim_known(image->dims[0]) &&
        image->dims[0].value >= 1 && image->dims[0].value <= SBIT__COL2IM_RANK) {
        out->rank = (int32_t)image->dims[0].value + 2;
        for (int32_t i = 0; i < out->rank; i++) {
            out->dims[i] = i == 0 && x->rank == 3 ? x->dims[0] : sbit__dim_any();
        }
    }
    return known && out != NULL && x->rank == 3 ? sbit__col2im_type(call, &c, x, out, error)
                                                : SBIT_OK;
}

/* Where element `e` of the block at `place` falls in the image; -1: into the padding. */
static int64_t sbit__col2im_at(const sbit__col2im *c, int64_t e, int64_t place)
{
    int64_t at = 0, step = 1;
    for (int32_t i = c->rank - 1; i >= 0; i--) {
        const int64_t x =
            place % c->places[i] * c->stride[i] + e % c->block[i] * c->dilation[i] - c->pads[i];
        if (x < 0 || x >= c->image[i]) {
            return -1;
        }
        at += x * step;
        step *= c->image[i];
        place /= c->places[i];
        e /= c->block[i];
    }
    return at;
}

static sbit_status sbit__col2im_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__col2im c;
    bool known = false;
    sbit_type type = sbit__type_of_tensor(call->in[0]), x_type = type;
    sbit_tensor *out = NULL;
    SBIT__TRY(sbit__col2im_read(call, &c, &known, error));
    SBIT__TRY(sbit__col2im_type(call, &c, &x_type, &type, error));
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &out, error));
    if (out == NULL) {
        return SBIT_OK;
    }
    const int64_t planes = type.dims[0].value * type.dims[1].value;
    for (int64_t i = 0; i < planes * c.image_count; i++) {
        sbit__tensor_set_f64(out, i, 0.0);
    }
    for (int64_t plane = 0; plane < planes; plane++) {
        for (int64_t e = 0; e < c.block_count; e++) {
            const int64_t row = (plane * c.block_count + e) * c.place_count;
            for (int64_t place = 0; place < c.place_count; place++) {
                const int64_t at = sbit__col2im_at(&c, e, place);
                if (at >= 0) {
                    const int64_t to = plane * c.image_count + at;
                    sbit__tensor_set_f64(out, to,
                                         sbit__tensor_f64_at(out, to) +
                                             sbit__tensor_f64_at(call->in[0], row + place));
                }
            }
        }
    }
    return SBIT_OK;
}

/* Col2ImGrad(x, image, block, dy): each element gets what lies where it fell. */
static sbit_status sbit__col2im_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 4, 4, 0, error);
}

static sbit_status sbit__col2im_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const int64_t count = sbit_tensor_count(call->in[0]);
    sbit__col2im c;
    bool known = false;
    SBIT__TRY(sbit__col2im_read(call, &c, &known, error));
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / c.place_count, plane = row / c.block_count;
        const int64_t at = sbit__col2im_at(&c, row % c.block_count, i % c.place_count);
        sbit__tensor_set_f64(
            call->out[0], i,
            at >= 0 ? sbit__tensor_f64_at(call->in[3], plane * c.image_count + at) : 0.0);
    }
    return SBIT_OK;
}

static const sbit_op_row sbit__col2im_table[] = {
    {SBIT__GRAD_DOMAIN, "Col2ImGrad", 1, SBIT__T_GRAD, 0, 0, sbit__col2im_grad_infer, NULL,
     sbit__col2im_grad_run, NULL, NULL, NULL, NULL, NULL},
    {"", "Col2Im", 18, SBIT_T_NUMBERS, 0, 0, sbit__col2im_infer, sbit__op_prepare_check,
     sbit__col2im_run, sbit__grad_col2im, NULL, NULL, NULL, NULL},
};

SBIT__FN const sbit_op_row *sbit__op_rows_col2im(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__col2im_table);
    return sbit__col2im_table;
}

#endif /* SPARSEBIT_NO_OPS_VISION */
