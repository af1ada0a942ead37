/* conv.c: convolution in 1 to 3 dimensions, [N,C,D,H,W]: choice, weights, run. >>conv
 *
 * Called by: ops (Conv). Calls: conv_matrix.c, conv_patch.c, conv_rows.c, gemm.c (packing),
 * parallel. See conv_private.h for who does what.
 */
#include "conv_private.h"

enum {
    SBIT__CONV_DEPTHWISE_CHANNELS = 4,
    SBIT__CONV_DIRECT_CHANNELS = 2, /* out of a group, at most, for the row form */
    SBIT__CONV_DIRECT_ROWS = 1024,  /* rows that an output row depends on, at most */
};

/* >>plan */
static bool sbit__conv_is_pointwise(const sbit__conv_shape *s)
{
    for (int d = 0; d < 3; d++) {
        if (s->kernel[d] != 1 || s->stride[d] != 1 || s->pad_begin[d] != 0 ||
            s->in[d] != s->out[d]) {
            return false;
        }
    }
    return true;
}

static sbit__conv_algorithm sbit__conv_choose(const sbit__conv_shape *s)
{
    const int64_t in_group = s->in_channels / s->groups, out_group = s->out_channels / s->groups;
    const int64_t rows = in_group * s->kernel[0] * s->kernel[1];
    if (in_group == 1 && s->kernel[0] == 1 && out_group <= SBIT__CONV_DEPTHWISE_CHANNELS) {
        return SBIT__CONV_DEPTHWISE;
    }
    if (s->groups > 1 && out_group <= SBIT__CONV_DIRECT_CHANNELS &&
        rows <= SBIT__CONV_DIRECT_ROWS) {
        return SBIT__CONV_DIRECT;
    }
    return sbit__conv_is_pointwise(s) ? SBIT__CONV_POINTWISE : SBIT__CONV_IM2COL;
}

static bool sbit__conv_by_rows(sbit__conv_algorithm algorithm)
{
    return algorithm == SBIT__CONV_DEPTHWISE || algorithm == SBIT__CONV_DIRECT;
}

static void sbit__conv_job_init(sbit__conv_job *job, const sbit_ctx *ctx, const sbit__conv *conv)
{
    memset(job, 0, sizeof(*job));
    const sbit__conv_shape *s = &conv->shape;
    job->kernels = sbit__kernels(ctx);
    job->algorithm = conv->algorithm;
    job->s = *s;
    job->in_group = s->in_channels / s->groups;
    job->out_group = s->out_channels / s->groups;
    job->in_pixels = s->in[0] * s->in[1] * s->in[2];
    job->out_pixels = s->out[0] * s->out[1] * s->out[2];
    job->taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    job->rows = job->in_group * s->kernel[0] * s->kernel[1];
    job->k = job->in_group * job->taps;
    job->panels = sbit__div_up(job->out_group, job->kernels->tile_m);
    if (job->algorithm == SBIT__CONV_DEPTHWISE) {
        sbit__conv_plan_depthwise(job);
        return;
    }
    if (job->algorithm == SBIT__CONV_DIRECT) {
        sbit__conv_plan_rows(job);
        return;
    }
    sbit__conv_plan_patch(job, sbit_ctx_threads(ctx));
    if (!job->patch.used) {
        sbit__conv_plan_matrix(job, sbit_ctx_threads(ctx));
    }
}

SBIT__FN void sbit__conv_plan(const sbit_ctx *ctx, const sbit__conv_shape *shape, sbit__conv *out)
{
    memset(out, 0, sizeof(*out));
    out->shape = *shape;
    out->algorithm = sbit__conv_choose(shape);
    sbit__conv_job job;
    sbit__conv_job_init(&job, ctx, out);
    const int64_t channels =
        sbit__conv_by_rows(out->algorithm) ? job.out_group : job.panels * job.kernels->tile_m;
    out->packed_bytes = sbit__cache_lines(shape->groups * channels * job.k);
    out->scratch_bytes = job.shared_bytes + job.worker_bytes * (size_t)sbit_ctx_threads(ctx);
}

SBIT__FN void sbit__conv_pack(sbit_ctx *ctx, const sbit__conv *conv, const float *weights,
                              float *packed)
{
    sbit__conv_job job;
    sbit__conv_job_init(&job, ctx, conv);
    if (sbit__conv_by_rows(conv->algorithm)) {
        memcpy(packed, weights, (size_t)(job.s.out_channels * job.k) * sizeof(float));
        return;
    }
    const int64_t tile = job.kernels->tile_m;
    for (int64_t g = 0; g < job.s.groups; g++, weights += job.out_group * job.k) {
        sbit__pack_all(ctx, job.out_group, tile, job.k, weights, job.k, 1, 1.0f, packed);
        packed += job.panels * tile * job.k;
    }
}

/* >>run */
SBIT__FN void sbit__conv_run(sbit_ctx *ctx, const sbit__conv *conv, const float *x,
                             const float *packed, const float *bias, const sbit__epilogue *epilogue,
                             float *y, void *scratch)
{
    sbit__conv_job job;
    sbit__conv_job_init(&job, ctx, conv);
    job.x = x;
    job.packed = packed;
    job.bias = bias;
    job.epilogue = epilogue;
    job.y = y;
    job.scratch = (unsigned char *)scratch;
    const int64_t outputs = job.s.batch * job.s.out_channels * job.out_pixels;
    if (outputs <= 0) {
        return;
    }
    sbit__range_fn range = sbit__conv_matrix_range;
    if (conv->algorithm == SBIT__CONV_DEPTHWISE) {
        sbit__conv_share_depthwise(&job);
        range = sbit__conv_depthwise_range;
    } else if (conv->algorithm == SBIT__CONV_DIRECT) {
        range = sbit__conv_rows_range;
    } else if (job.patch.used) {
        sbit__conv_share_patch(&job);
        range = sbit__conv_patch_range;
    } else {
        sbit__conv_share_matrix(&job);
    }
    const int64_t each = sbit__larger(outputs * job.k / job.units, 1);
    sbit__parallel_range(ctx, job.units, sbit__div_up(SBIT__WORTH_A_THREAD, each), range, &job);
}
