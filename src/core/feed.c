/* feed.c: data that can be read again in any order; arrays in memory as such data. >>feed
 *
 * Called by: users, calibration, evaluation, pruning, training. Calls: tensors.
 * Does: gathers samples of arrays into batches, turns raw numbers (bytes of pictures ...) into
 * float32 on the way, repeats the last sample where a model takes batches of one size only.
 * Does not: read files or decode pictures: who has those writes a read function of their own.
 */
#include "core_private.h"

#include <stdio.h> /* snprintf */

enum {
    SBIT__FEED_ARRAYS = 32 /* inputs and targets of a feed of tensors, at most */
};

/* >>feed read */
static int64_t sbit__feed_size(const sbit_feed *feed, int64_t wanted)
{
    int64_t size = wanted > 0 ? wanted : (int64_t)SBIT_FEED_BATCH;
    size = feed->batch > 0 && size > feed->batch ? feed->batch : size;
    return size > (int64_t)SBIT_FEED_MOST ? (int64_t)SBIT_FEED_MOST : size;
}

SPARSEBIT_API sbit_status sbit_feed_read(const sbit_feed *feed, int64_t first, int64_t wanted,
                                         sbit_batch *out, sbit_error *error)
{
    int64_t index[SBIT_FEED_MOST];
    sbit_batch batch;
    if (feed == NULL || feed->read == NULL || out == NULL || first < 0 || first >= feed->count) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "a feed, a place for the batch and a sample below %lld are wanted",
                          (long long)(feed != NULL ? feed->count : 0));
    }
    int64_t count = sbit__feed_size(feed, wanted);
    count = feed->count - first < count ? feed->count - first : count;
    for (int64_t i = 0; i < count; i++) {
        index[i] = first + i;
    }
    memset(&batch, 0, sizeof batch);
    SBIT__TRY(feed->read(feed->user, index, count, &batch, error));
    if (batch.samples != count || (batch.inputs == NULL && batch.input_count > 0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the feed gave %lld samples where %lld were asked for",
                          (long long)batch.samples, (long long)count);
    }
    *out = batch;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_feed_close(sbit_feed *feed)
{
    if (feed != NULL && feed->close != NULL) {
        feed->close(feed->user);
    }
    if (feed != NULL) {
        memset(feed, 0, sizeof *feed);
    }
}

/* >>feed normalize */
static double sbit__normal_of(const sbit_normalize *n, double x, int64_t c)
{
    const double scale = n->scale < 0.0 || n->scale > 0.0 ? n->scale : 1.0;
    const int64_t at = n->channels > 1 ? c : 0;
    const double mean = n->mean != NULL ? n->mean[at] : 0.0;
    const double std = n->std != NULL ? n->std[at] : 1.0;
    return (x * scale - mean) / std;
}

/* Bytes are looked up: the same numbers, one division a value and channel instead of a pixel. */
static void sbit__normalize_bytes(const sbit_normalize *n, const uint8_t *x, int64_t outer,
                                  int64_t channels, int64_t inner, float *y)
{
    float table[256];
    for (int64_t c = 0; c < channels; c++) {
        for (int b = 0; b < 256; b++) {
            table[b] = (float)sbit__normal_of(n, (double)b, c);
        }
        for (int64_t o = 0; o < outer; o++) {
            const int64_t at = (o * channels + c) * inner;
            for (int64_t i = at; i < at + inner; i++) {
                y[i] = table[x[i]];
            }
        }
    }
}

SPARSEBIT_API sbit_status sbit_tensor_normalize(const sbit_normalize *n, const sbit_tensor *x,
                                                float *y, sbit_error *error)
{
    const int32_t axis = n->axis != 0 ? n->axis : 1;
    int64_t outer = 1, channels = 1, inner = 1;
    for (int32_t i = 0; i < x->rank; i++) {
        int64_t *part = i < axis ? &outer : i == axis ? &channels : &inner;
        *part *= x->dims[i];
    }
    if (n->channels > 1 && n->channels != channels) {
        return sbit__fail(error, SBIT_ERR_SHAPE, NULL,
                          "mean and std are for %lld channels, the data has %lld",
                          (long long)n->channels, (long long)channels);
    }
    if (x->dtype == SBIT_U8 && outer * inner >= 256) {
        sbit__normalize_bytes(n, (const uint8_t *)x->data, outer, channels, inner, y);
        return SBIT_OK;
    }
    if (x->dtype == SBIT_STRING || x->dtype == SBIT_C64 || x->dtype == SBIT_C128) {
        return sbit__fail(error, SBIT_ERR_SHAPE, NULL, "%s holds no numbers to normalize",
                          sbit_dtype_name((int32_t)x->dtype));
    }
    for (int64_t i = 0; i < outer * channels * inner; i++) {
        y[i] = (float)sbit__normal_of(n, sbit__tensor_f64_at(x, i), i / inner % channels);
    }
    return SBIT_OK;
}

/* >>feed tensors */
typedef struct sbit__feed_array {
    sbit_tensor source; /* all samples; borrowed */
    bool normal;        /* becomes float32 by `normalize` */
    void *room;         /* of one batch */
    size_t room_bytes;
} sbit__feed_array;

typedef struct sbit__feed_tensors {
    sbit_ctx *ctx;
    sbit_normalize normalize;
    int64_t count, rows; /* rows: 0 as many as asked for */
    size_t input_count, target_count;
    sbit__feed_array arrays[SBIT__FEED_ARRAYS]; /* inputs, then targets */
    sbit_tensor batch[SBIT__FEED_ARRAYS];
    const char *names[SBIT__FEED_ARRAYS];
    bool named;
    int64_t index[SBIT_FEED_MOST];
} sbit__feed_tensors;

static void sbit__feed_tensors_close(void *user)
{
    sbit__feed_tensors *f = (sbit__feed_tensors *)user;
    const sbit_allocator *a = sbit_ctx_allocator(f->ctx);
    for (size_t i = 0; i < f->input_count + f->target_count; i++) {
        sbit__free(a, f->arrays[i].room, f->arrays[i].room_bytes);
    }
    sbit__free(a, f, sizeof *f);
}

/* Rows `index` of one array, the last one again up to `rows`, in *out. */
static sbit_status sbit__feed_gather(sbit__feed_tensors *f, size_t which, const int64_t *index,
                                     int64_t count, int64_t rows, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(f->ctx);
    sbit__feed_array *array = &f->arrays[which];
    sbit_tensor *out = &f->batch[which];
    sbit_tensor row = array->source;
    *out = array->source;
    if (row.rank == 0) { /* a scalar goes to every batch as it is */
        return SBIT_OK;
    }
    row.dims[0] = 1;
    const size_t from = sbit_tensor_bytes(&row), n = (size_t)sbit_tensor_count(&row);
    const size_t to = array->normal ? n * sizeof(float) : from;
    size_t bytes = 0;
    if (!sbit__mul_size(to, (size_t)rows, &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a batch of %lld samples is too large",
                          (long long)rows);
    }
    if (array->room_bytes < bytes) {
        sbit__free(a, array->room, array->room_bytes);
        array->room_bytes = 0;
        array->room = sbit__alloc(a, bytes);
        if (array->room == NULL) {
            return sbit__fail_oom(error, bytes);
        }
        array->room_bytes = bytes;
    }
    for (int64_t i = 0; i < rows; i++) {
        const int64_t sample = index[i < count ? i : count - 1];
        char *at = (char *)array->room + to * (size_t)i;
        row.data = (char *)array->source.data + from * (size_t)sample;
        if (!array->normal) {
            memcpy(at, row.data, from);
        } else {
            SBIT__TRY(sbit_tensor_normalize(&f->normalize, &row, (float *)(void *)at, error));
        }
    }
    out->dims[0] = rows;
    out->dtype = array->normal ? SBIT_F32 : array->source.dtype;
    out->data = array->room;
    return SBIT_OK;
}

static sbit_status sbit__feed_tensors_read(void *user, const int64_t *index, int64_t count,
                                           sbit_batch *out, sbit_error *error)
{
    sbit__feed_tensors *f = (sbit__feed_tensors *)user;
    const int64_t rows = f->rows > 0 ? f->rows : count;
    if (count < 1 || count > SBIT_FEED_MOST || count > rows) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "%lld samples at once: 1 to %lld are possible", (long long)count,
                          (long long)(f->rows > 0 ? f->rows : (int64_t)SBIT_FEED_MOST));
    }
    for (int64_t i = 0; i < count; i++) {
        if (index[i] < 0 || index[i] >= f->count) {
            return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                              "sample %lld of %lld was asked for", (long long)index[i],
                              (long long)f->count);
        }
        f->index[i] = index[i];
    }
    for (size_t i = 0; i < f->input_count + f->target_count; i++) {
        const int64_t of_this = i < f->input_count ? rows : count;
        SBIT__TRY(sbit__feed_gather(f, i, index, count, of_this, error));
    }
    out->samples = count;
    out->input_count = f->input_count;
    out->inputs = f->batch;
    out->names = f->named ? f->names : NULL;
    out->target_count = f->target_count;
    out->targets = f->target_count > 0 ? f->batch + f->input_count : NULL;
    out->index = f->index;
    return SBIT_OK;
}

static sbit_status sbit__feed_tensors_check(const sbit_feed_desc *desc, int64_t *count,
                                            sbit_error *error)
{
    *count = -1;
    if (desc->input_count == 0 || desc->inputs == NULL || desc->rows > SBIT_FEED_MOST ||
        desc->input_count + desc->target_count > SBIT__FEED_ARRAYS) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "1 to %d arrays and batches of at most %d samples are possible",
                          (int)SBIT__FEED_ARRAYS, (int)SBIT_FEED_MOST);
    }
    for (size_t i = 0; i < desc->input_count + desc->target_count; i++) {
        const bool input = i < desc->input_count;
        const sbit_tensor *t = input ? &desc->inputs[i] : &desc->targets[i - desc->input_count];
        if (t->dtype == SBIT_STRING || sbit_dtype_bits((int32_t)t->dtype) % 8 != 0) {
            return sbit__fail(error, SBIT_ERR_SHAPE, NULL, "array %u is %s, which cannot be fed",
                              (unsigned)i, sbit_dtype_name((int32_t)t->dtype));
        }
        if (t->rank > 0 && *count >= 0 && t->dims[0] != *count) {
            return sbit__fail(error, SBIT_ERR_SHAPE, NULL,
                              "array %u has %lld samples (its first dim), the others have %lld",
                              (unsigned)i, (long long)t->dims[0], (long long)*count);
        }
        *count = t->rank > 0 ? t->dims[0] : *count;
    }
    if (*count < 1) {
        return sbit__fail(error, SBIT_ERR_SHAPE, NULL, "the arrays hold no samples");
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_feed_of_tensors(sbit_ctx *ctx, const sbit_feed_desc *desc,
                                               sbit_feed *out, sbit_error *error)
{
    int64_t count = 0;
    if (ctx == NULL || desc == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx, desc or out is NULL");
    }
    SBIT__TRY(sbit__feed_tensors_check(desc, &count, error));
    sbit__feed_tensors *f =
        (sbit__feed_tensors *)sbit__calloc(sbit_ctx_allocator(ctx), 1, sizeof *f);
    if (f == NULL) {
        return sbit__fail_oom(error, sizeof *f);
    }
    const bool normal =
        desc->normalize.scale < 0.0 || desc->normalize.scale > 0.0 || desc->normalize.mean != NULL;
    f->ctx = ctx;
    f->normalize = desc->normalize;
    f->count = count;
    f->rows = desc->rows;
    f->input_count = desc->input_count;
    f->target_count = desc->target_count;
    f->named = desc->names != NULL;
    for (size_t i = 0; i < desc->input_count + desc->target_count; i++) {
        const bool input = i < desc->input_count;
        f->arrays[i].source = input ? desc->inputs[i] : desc->targets[i - desc->input_count];
        f->arrays[i].normal =
            input && f->arrays[i].source.rank > 0 && (normal || desc->normalize.std != NULL);
        f->names[i] = input && f->named ? desc->names[i] : NULL;
    }
    out->count = count;
    out->batch = desc->rows > 0 ? desc->rows : desc->batch;
    out->read = sbit__feed_tensors_read;
    out->close = sbit__feed_tensors_close;
    out->user = f;
    return SBIT_OK;
}
