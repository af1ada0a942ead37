/* augment.c: pictures changed at random, differently in each epoch. >>augment
 *
 * Called by: fit. Works on float32 [N,C,H,W]. What happens to a sample depends on the seed, the
 * epoch and the sample's number only: not on threads, batches or interruptions.
 */
#include "train_private.h"

typedef struct sbit__augment {
    const sbit_fit_desc *desc;
    const sbit_batch *batch;
    int64_t epoch;
    const sbit_tensor *from;
    float *to;
} sbit__augment;

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
    const uint64_t number = (uint64_t)(a->batch->index != NULL ? a->batch->index[n] : n);
    sbit_rng rng = sbit_rng_seed((a->desc->seed * 1000003u + (uint64_t)a->epoch) * 1000033u +
                                 number * 2654435761u + 1u);
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

SBIT__FN sbit_status sbit__augment_batch(sbit_trainer *t, const sbit_fit_desc *desc, int64_t epoch,
                                         sbit_batch *batch, sbit_tensor *room, sbit_error *error)
{
    sbit__augment a;
    if (!desc->flip && desc->shift <= 0 && desc->cutout <= 0) {
        return SBIT_OK;
    }
    if (batch->input_count != 1 || batch->inputs[0].rank != 4 ||
        batch->inputs[0].dtype != SBIT_F32 || batch->inputs[0].dims[2] < 1 ||
        batch->inputs[0].dims[3] < 1) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "flip, shift and cutout are for one input of float32 pictures [N,C,H,W]");
    }
    if (!sbit_tensor_same_shape(room, &batch->inputs[0])) {
        sbit_tensor_free(t->ctx, room);
        SBIT__TRY(sbit_tensor_alloc(t->ctx, SBIT_F32, 4, batch->inputs[0].dims, room, error));
    }
    a.desc = desc;
    a.batch = batch;
    a.epoch = epoch;
    a.from = &batch->inputs[0];
    a.to = (float *)room->data;
    sbit_ctx_parallel(t->ctx, batch->samples, sbit__augment_sample, &a);
    batch->inputs = room;
    return SBIT_OK;
}
