/* conv_rows.c: convolution with few output channels in a group. >>conv_rows
 *
 * Called by: conv.c. Calls: the depthwise kernels.
 * DEPTHWISE leaves all to its kernel. DIRECT computes each output row from the rows it depends on,
 * the kernel rows of all channels of its group, taken from a strip of the input that was copied
 * with its padding. Rows too narrow for vectors are computed together: the strip is read as one
 * long row and what lies between two rows is thrown away.
 */
#include "conv_private.h"

enum {
    SBIT__CONV_DEPTHWISE_STRIP = 8 * 1024, /* input numbers */
    SBIT__CONV_NARROW = 16                 /* rows below are computed together */
};

/* >>depthwise */

/* Strips of a plane keep the pages of an image few, and give threads more to share. */
SBIT__FN void sbit__conv_plan_depthwise(sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t fit = SBIT__CONV_DEPTHWISE_STRIP / (sbit__larger(s->in[2], 1) * s->stride[1]);
    job->by_rows.strip = sbit__larger(sbit__smaller(sbit__larger(fit, 8), s->out[1]), 1);
    job->by_rows.strips = sbit__div_up(s->out[1], job->by_rows.strip);
    job->shared_bytes = sbit__cache_lines(s->in[2]); /* a row of zeros */
    job->units = s->batch * s->out_channels * s->out[0] * job->by_rows.strips;
}

SBIT__FN void sbit__conv_share_depthwise(const sbit__conv_job *job)
{
    memset(job->scratch, 0, job->shared_bytes);
}

static sbit__depthwise sbit__conv_depthwise_of(const sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    sbit__depthwise d;
    d.in_h = s->in[1];
    d.in_w = s->in[2];
    d.out_w = s->out[2];
    d.kh = s->kernel[1];
    d.kw = s->kernel[2];
    d.stride_h = s->stride[1];
    d.stride_w = s->stride[2];
    d.dilation_h = s->dilation[1];
    d.dilation_w = s->dilation[2];
    d.pad_h = s->pad_begin[1];
    d.pad_w = s->pad_begin[2];
    d.zeros = (const float *)(const void *)job->scratch;
    return d;
}

SBIT__FN void sbit__conv_depthwise_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_job *job = (const sbit__conv_job *)task;
    const sbit__conv_shape *s = &job->s;
    const sbit__depthwise d = sbit__conv_depthwise_of(job);
    (void)worker;
    for (int64_t index = begin; index < end; index++) {
        const int64_t row0 = index % job->by_rows.strips * job->by_rows.strip;
        const int64_t row1 = sbit__smaller(row0 + job->by_rows.strip, s->out[1]);
        const int64_t plane = index / job->by_rows.strips; /* of the output */
        const int64_t channel = plane / s->out[0] % s->out_channels;
        const int64_t image = plane / s->out[0] / s->out_channels;
        const int64_t in_channel = image * s->in_channels + channel / job->out_group;
        const int64_t z = plane % s->out[0] * s->stride[0] - s->pad_begin[0];
        sbit__epilogue ep;
        memset(&ep, 0, sizeof(ep));
        if (job->epilogue != NULL) {
            ep = *job->epilogue;
            ep.residual = ep.residual != NULL ? ep.residual + plane * s->out[1] * s->out[2] : NULL;
        }
        sbit__depthwise here = d;
        here.in_h = z >= 0 && z < s->in[0] ? d.in_h : 0; /* a plane of padding */
        job->kernels->f32_depthwise_plane(
            &here, row0, row1,
            job->x + in_channel * job->in_pixels + (here.in_h > 0 ? z * s->in[1] * s->in[2] : 0),
            job->packed + channel * job->k, job->bias != NULL ? job->bias[channel] : 0.0f,
            job->y + plane * s->out[1] * s->out[2], &ep);
    }
}

/* >>rows */
SBIT__FN void sbit__conv_plan_rows(sbit__conv_job *job)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t reach = (s->kernel[1] - 1) * s->dilation[1] + 1;
    job->by_rows.pad_width =
        (s->out[2] - 1) * s->stride[2] + (s->kernel[2] - 1) * s->dilation[2] + 1;
    const int64_t row_bytes = job->in_group * s->kernel[0] * job->by_rows.pad_width * 4;
    /* As many rows as L1 holds, but enough to make the overlap of strips small. */
    const int64_t room = SBIT__CONV_L1_BYTES / sbit__larger(row_bytes, 1) - reach;
    job->by_rows.strip = sbit__larger(room / s->stride[1] + 1, 8);
    job->by_rows.strip = sbit__larger(sbit__smaller(job->by_rows.strip, s->out[1]), 1);
    job->by_rows.strips = sbit__div_up(s->out[1], job->by_rows.strip);
    job->by_rows.pad_rows = (job->by_rows.strip - 1) * s->stride[1] + reach;
    job->by_rows.strip_bytes = sbit__cache_lines(job->in_group * s->kernel[0] *
                                                 job->by_rows.pad_rows * job->by_rows.pad_width);
    job->by_rows.narrow_bytes = sbit__cache_lines(job->by_rows.strip * job->by_rows.pad_width);
    const int64_t pointer_bytes = job->rows * (int64_t)sizeof(const float *);
    job->worker_bytes = job->by_rows.strip_bytes + job->by_rows.narrow_bytes +
                        sbit__cache_lines(sbit__div_up(pointer_bytes, 4));
    job->units = s->batch * s->groups * s->out[0] * job->by_rows.strips;
}

typedef struct sbit__conv_strip {
    int64_t image, group, oz, oy, rows; /* output rows oy..oy+rows */
    float *input, *narrow;
    const float **pointers;
} sbit__conv_strip;

/* One input row with its padding. */
static void sbit__conv_copy_row(const sbit__conv_job *job, const float *plane, int64_t y, float *to)
{
    const int64_t left = sbit__smaller(job->s.pad_begin[2], job->by_rows.pad_width);
    const int64_t n = sbit__smaller(job->s.in[2], job->by_rows.pad_width - left);
    if (plane == NULL || y < 0 || y >= job->s.in[1]) {
        sbit__conv_zero(to, job->by_rows.pad_width);
        return;
    }
    sbit__conv_zero(to, left);
    sbit__conv_copy(to + left, plane + y * job->s.in[2], n);
    sbit__conv_zero(to + left + n, job->by_rows.pad_width - left - n);
}

/* strip->input[channel][kz][row][pad_width] */
static void sbit__conv_copy_strip(const sbit__conv_job *job, const sbit__conv_strip *strip)
{
    const sbit__conv_shape *s = &job->s;
    const int64_t y0 = strip->oy * s->stride[1] - s->pad_begin[1];
    const int64_t rows = (strip->rows - 1) * s->stride[1] + (s->kernel[1] - 1) * s->dilation[1] + 1;
    const int64_t channel = strip->image * s->in_channels + strip->group * job->in_group;
    float *to = strip->input;
    for (int64_t c = 0; c < job->in_group; c++) {
        const float *volume = job->x + (channel + c) * job->in_pixels;
        for (int64_t kz = 0; kz < s->kernel[0]; kz++) {
            const int64_t z = strip->oz * s->stride[0] - s->pad_begin[0] + kz * s->dilation[0];
            const float *plane = z >= 0 && z < s->in[0] ? volume + z * s->in[1] * s->in[2] : NULL;
            for (int64_t y = 0; y < rows; y++) {
                sbit__conv_copy_row(job, plane, y0 + y, to + y * job->by_rows.pad_width);
            }
            to += job->by_rows.pad_rows * job->by_rows.pad_width;
        }
    }
}

/* The rows that output row `row` of the strip depends on. */
static void sbit__conv_point(const sbit__conv_job *job, const sbit__conv_strip *strip, int64_t row)
{
    const float **pointer = strip->pointers;
    const float *plane = strip->input + row * job->s.stride[1] * job->by_rows.pad_width;
    for (int64_t c = 0; c < job->in_group * job->s.kernel[0]; c++) {
        for (int64_t ky = 0; ky < job->s.kernel[1]; ky++) {
            *pointer++ = plane + ky * job->s.dilation[1] * job->by_rows.pad_width;
        }
        plane += job->by_rows.pad_rows * job->by_rows.pad_width;
    }
}

static void sbit__conv_row_run(const sbit__conv_job *job, const sbit__conv_strip *strip,
                               int64_t channel, int64_t out_w, float *y, const sbit__epilogue *ep)
{
    job->kernels->f32_depthwise_row(
        out_w, job->rows, job->s.kernel[2], job->s.stride[2], job->s.dilation[2], strip->pointers,
        job->packed + channel * job->k, job->bias != NULL ? job->bias[channel] : 0.0f, y, ep);
}

static float *sbit__conv_strip_y(const sbit__conv_job *job, const sbit__conv_strip *strip,
                                 int64_t channel)
{
    const sbit__conv_shape *s = &job->s;
    return job->y +
           (((strip->image * s->out_channels + channel) * s->out[0] + strip->oz) * s->out[1] +
            strip->oy) *
               s->out[2];
}

/* All rows of the strip at once, as one row with pad_width outputs between two beginnings. */
static void sbit__conv_strip_narrow(const sbit__conv_job *job, const sbit__conv_strip *strip)
{
    const int64_t width = job->s.out[2];
    const sbit__epilogue *ep = job->epilogue;
    const float *residual = ep != NULL ? ep->residual : NULL;
    sbit__conv_point(job, strip, 0);
    for (int64_t i = 0; i < job->out_group; i++) {
        const int64_t channel = strip->group * job->out_group + i;
        float *y = sbit__conv_strip_y(job, strip, channel);
        sbit__conv_row_run(job, strip, channel, (strip->rows - 1) * job->by_rows.pad_width + width,
                           strip->narrow, residual == NULL ? ep : NULL);
        for (int64_t row = 0; row < strip->rows; row++) {
            sbit__conv_copy(y + row * width, strip->narrow + row * job->by_rows.pad_width, width);
        }
        if (residual != NULL) {
            const int64_t n = strip->rows * width;
            job->kernels->f32_binary(SBIT__BINARY_ADD, n, y, 1, residual + (y - job->y), 1, y);
            job->kernels->f32_activate(n, y, ep);
        }
    }
}

static void sbit__conv_strip_wide(const sbit__conv_job *job, const sbit__conv_strip *strip)
{
    const int64_t width = job->s.out[2];
    for (int64_t row = 0; row < strip->rows; row++) {
        sbit__conv_point(job, strip, row);
        for (int64_t i = 0; i < job->out_group; i++) {
            const int64_t channel = strip->group * job->out_group + i;
            float *y = sbit__conv_strip_y(job, strip, channel) + row * width;
            sbit__epilogue ep;
            memset(&ep, 0, sizeof(ep));
            if (job->epilogue != NULL) {
                ep = *job->epilogue;
                ep.residual = ep.residual != NULL ? ep.residual + (y - job->y) : NULL;
            }
            sbit__conv_row_run(job, strip, channel, width, y, &ep);
        }
    }
}

SBIT__FN void sbit__conv_rows_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__conv_job *job = (const sbit__conv_job *)task;
    unsigned char *scratch = job->scratch + (size_t)worker * job->worker_bytes;
    const sbit__conv_shape *s = &job->s;
    const int64_t widest = s->stride[2] == 1 ? SBIT__CONV_NARROW : SBIT__CONV_NARROW / 2;
    const bool narrow = s->stride[1] == s->stride[2] && s->out[2] < widest;
    sbit__conv_strip strip;
    strip.input = (float *)(void *)scratch;
    strip.narrow = (float *)(void *)(scratch + job->by_rows.strip_bytes);
    strip.pointers =
        (const float **)(void *)(scratch + job->by_rows.strip_bytes + job->by_rows.narrow_bytes);
    for (int64_t index = begin; index < end; index++) {
        int64_t rest = index;
        strip.oy = rest % job->by_rows.strips * job->by_rows.strip;
        rest /= job->by_rows.strips;
        strip.oz = rest % s->out[0];
        rest /= s->out[0];
        strip.group = rest % s->groups;
        strip.image = rest / s->groups;
        strip.rows = sbit__smaller(job->by_rows.strip, s->out[1] - strip.oy);
        sbit__conv_copy_strip(job, &strip);
        if (narrow) {
            sbit__conv_strip_narrow(job, &strip);
        } else {
            sbit__conv_strip_wide(job, &strip);
        }
    }
}
