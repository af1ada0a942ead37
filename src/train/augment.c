/* augment.c: pictures changed at random, differently in each epoch. >>augment
 *
 * Called by: fit. Works on float32 [N,C,H,W]. What happens to a sample depends on the seed, the
 * epoch and the sample's number only: not on threads, batches or interruptions. Mixup and cutmix
 * exchange parts of two samples of one run, as the seed, the epoch and the first one's number say.
 */
#include "train_private.h"

#include <math.h> /* cos, pow, sqrt */

typedef struct sbit__augment {
    const sbit_fit_desc *desc;
    const sbit_batch *batch;
    int64_t epoch;
    const sbit_tensor *from;
    float *to;
    int64_t classes;
    float *y; /* [samples, classes], zeros: of what is mixed */
} sbit__augment;

/* Numbers for sample n of the batch: `purpose` tells those of one use from another's. */
static sbit_rng sbit__augment_rng(const sbit__augment *a, int64_t n, uint64_t purpose)
{
    const uint64_t number = (uint64_t)(a->batch->index != NULL ? a->batch->index[n] : n);
    return sbit_rng_seed((a->desc->seed * 1000003u + (uint64_t)a->epoch) * 1000033u +
                         number * 2654435761u + purpose);
}

/* One plane moved by (dy, dx), mirrored, with a square of zeros. */
static void sbit__augment_plane(const float *from, float *to, int64_t height, int64_t width,
                                int64_t dy, int64_t dx, bool flip, const int64_t hole[3])
{
    for (int64_t y = 0; y < height; y++) {
        for (int64_t x = 0; x < width; x++) {
            const int64_t sy = y + dy, sx = (flip ? width - 1 - x : x) + dx;
            const bool cut =
                y >= hole[0] && y < hole[0] + hole[2] && x >= hole[1] && x < hole[1] + hole[2];
            const bool inside = sy >= 0 && sy < height && sx >= 0 && sx < width && !cut;
            to[y * width + x] = inside ? from[sy * width + sx] : 0.0f;
        }
    }
}

static void sbit__augment_sample(void *user, int64_t n, int32_t worker)
{
    const sbit__augment *a = (const sbit__augment *)user;
    const int64_t *dims = a->from->dims, plane = dims[2] * dims[3];
    sbit_rng rng = sbit__augment_rng(a, n, 1);
    const uint32_t range = (uint32_t)(2 * a->desc->shift + 1);
    const int64_t dy = (int64_t)sbit_rng_below(&rng, range) - a->desc->shift;
    const int64_t dx = (int64_t)sbit_rng_below(&rng, range) - a->desc->shift;
    const bool flip = a->desc->flip && sbit_rng_below(&rng, 2) == 1;
    int64_t hole[3] = {0, 0, a->desc->cutout};
    (void)worker;
    hole[0] = (int64_t)sbit_rng_below(&rng, (uint32_t)dims[2]) - hole[2] / 2;
    hole[1] = (int64_t)sbit_rng_below(&rng, (uint32_t)dims[3]) - hole[2] / 2;
    for (int64_t c = 0; c < dims[1]; c++) {
        const int64_t at = (n * dims[1] + c) * plane;
        sbit__augment_plane((const float *)a->from->data + at, a->to + at, dims[2], dims[3], dy, dx,
                            flip, hole);
    }
}

/* A number of Beta(a, a), from Student's t of 2a degrees of freedom (Devroye 1996). */
static float sbit__augment_beta(sbit_rng *rng, float a)
{
    const double drawn = pow((double)sbit_rng_uniform(rng), -1.0 / (double)a) - 1.0;
    const double turned = cos(6.283185307179586 * (double)sbit_rng_uniform(rng));
    const double part = 1.0 / sqrt(1.0 + 1.0 / (drawn * turned * turned));
    return (float)(0.5 + (turned < 0.0 ? -0.5 : 0.5) * part);
}

/* Two pictures become share of their own and the rest of the other. */
static void sbit__augment_blend(float *a, float *b, int64_t count, float share)
{
    for (int64_t i = 0; i < count; i++) {
        const float own = a[i], theirs = b[i];
        a[i] = share * own + (1.0f - share) * theirs;
        b[i] = share * theirs + (1.0f - share) * own;
    }
}

/* Two pictures exchange a rectangle of 1 - share of the plane around a random pixel, cut off at the
 * edges; returns the share that they keep. */
static float sbit__augment_exchange(sbit_rng *rng, float *a, float *b, const int64_t *dims, float share)
{
    const double side = sqrt(1.0 - (double)share);
    int64_t from[2], to[2];
    for (int32_t k = 0; k < 2; k++) {
        const int64_t size = dims[2 + k], length = (int64_t)(side * (double)size + 0.5);
        from[k] = (int64_t)sbit_rng_below(rng, (uint32_t)size) - length / 2;
        to[k] = from[k] + length < size ? from[k] + length : size;
        from[k] = from[k] > 0 ? from[k] : 0;
    }
    for (int64_t c = 0; c < dims[1]; c++) {
        for (int64_t y = from[0]; y < to[0]; y++) {
            for (int64_t x = from[1]; x < to[1]; x++) {
                const int64_t at = (c * dims[2] + y) * dims[3] + x;
                const float own = a[at];
                a[at] = b[at];
                b[at] = own;
            }
        }
    }
    return 1.0f - (float)((to[0] - from[0]) * (to[1] - from[1])) / (float)(dims[2] * dims[3]);
}

/* Samples n and count - 1 - n exchange a share, and their classes. */
static void sbit__augment_pair(void *user, int64_t n, int32_t worker)
{
    const sbit__augment *p = (const sbit__augment *)user;
    const int64_t *dims = p->from->dims, size = dims[1] * dims[2] * dims[3];
    const int64_t other = p->batch->samples - 1 - n;
    const int64_t *classes = (const int64_t *)p->batch->targets[0].data;
    const float mixup = p->desc->mixup, cutmix = p->desc->cutmix;
    float *a = p->to + n * size, *b = p->to + other * size;
    sbit_rng rng = sbit__augment_rng(p, n, 2);
    const bool cut = cutmix > 0.0f && (mixup <= 0.0f || sbit_rng_below(&rng, 2) == 1);
    float share = sbit__augment_beta(&rng, cut ? cutmix : mixup);
    (void)worker;
    if (n == other) {
        share = 1.0f; /* the one in the middle */
    } else if (cut) {
        share = sbit__augment_exchange(&rng, a, b, dims, share);
    } else {
        sbit__augment_blend(a, b, size, share);
    }
    p->y[n * p->classes + classes[n]] += share;
    p->y[n * p->classes + classes[other]] += 1.0f - share;
    if (n != other) {
        p->y[other * p->classes + classes[other]] += share;
        p->y[other * p->classes + classes[n]] += 1.0f - share;
    }
}

/* Mixup and cutmix of a run's pictures; their classes become probabilities in `room`. */
static sbit_status sbit__augment_mix(sbit_trainer *t, sbit__augment *a, sbit_batch *batch,
                                     sbit_tensor *room, sbit_error *error)
{
    const sbit_value_id output = sbit_graph_output(t->graph, t->loss_output);
    const sbit_type *type = &sbit_graph_value(t->graph, output)->type;
    const sbit_tensor *targets = &batch->targets[0];
    int64_t dims[2];
    if (batch->target_count == 0 || type->rank != 2 || !sbit__dim_known(type->dims[1]) ||
        targets->dtype != SBIT_I64 || targets->rank < 1 || targets->dims[0] < batch->samples ||
        sbit_tensor_count(targets) != targets->dims[0]) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "mixup and cutmix are for int64 class numbers, one for each sample, and an "
                          "output [N, classes]");
    }
    dims[0] = batch->samples;
    dims[1] = type->dims[1].value;
    for (int64_t n = 0; n < dims[0]; n++) {
        const int64_t own = ((const int64_t *)targets->data)[n];
        if (own < 0 || own >= dims[1]) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                              "mixup and cutmix: a target is no class of %lld", (long long)dims[1]);
        }
    }
    if (room->rank != 2 || room->dims[0] != dims[0]) {
        sbit_tensor_free(t->ctx, room);
        SBIT__TRY(sbit_tensor_alloc(t->ctx, SBIT_F32, 2, dims, room, error));
    }
    memset(room->data, 0, sbit_tensor_bytes(room));
    a->classes = dims[1];
    a->y = (float *)room->data;
    sbit_ctx_parallel(t->ctx, (dims[0] + 1) / 2, sbit__augment_pair, a);
    batch->targets = room;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__augment_batch(sbit_trainer *t, const sbit_fit_desc *desc, int64_t epoch,
                                         sbit_batch *batch, sbit_tensor room[2], sbit_error *error)
{
    sbit__augment a;
    const bool mixes = desc->mixup > 0.0f || desc->cutmix > 0.0f;
    if (!desc->flip && desc->shift <= 0 && desc->cutout <= 0 && !mixes) {
        return SBIT_OK;
    }
    if (batch->input_count != 1 || batch->inputs[0].rank != 4 ||
        batch->inputs[0].dtype != SBIT_F32 || batch->inputs[0].dims[2] < 1 ||
        batch->inputs[0].dims[3] < 1) {
        return sbit__fail(
            error, SBIT_ERR_UNSUPPORTED, NULL,
            "flip, shift, cutout, mixup and cutmix are for one input of float32 pictures [N,C,H,W]");
    }
    if (!sbit_tensor_same_shape(&room[0], &batch->inputs[0])) {
        sbit_tensor_free(t->ctx, &room[0]);
        SBIT__TRY(sbit_tensor_alloc(t->ctx, SBIT_F32, 4, batch->inputs[0].dims, &room[0], error));
    }
    a.desc = desc;
    a.batch = batch;
    a.epoch = epoch;
    a.from = &batch->inputs[0];
    a.to = (float *)room[0].data;
    sbit_ctx_parallel(t->ctx, batch->samples, sbit__augment_sample, &a);
    batch->inputs = &room[0];
    return mixes ? sbit__augment_mix(t, &a, batch, &room[1], error) : SBIT_OK;
}
