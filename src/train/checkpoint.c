/* checkpoint.c: a trainer's state in a file, for going on exactly where it stopped. >>checkpoint
 *
 * Called by: users. Calls: trainer, base (files).
 * Layout, in the byte order of this machine: "SBTRAIN3", step, epoch, bits at present (int64), rate (double), flags,
 * count of parameters and of statistics (uint64); then for each parameter: name length, name,
 * element count, optimizer state bytes, flags (uint64), elements (float32), state, mask (bytes; if
 * it has one), average (if it has one); for each statistic: name length, name, element count,
 * elements; how many ranges follow the batches (uint64), they (float32); of the best epoch and of
 * the mark (if they exist): score (double), epoch, epochs since, elements of all parameters and
 * statistics, ranges. Parameters are matched by name, in order.
 */
#include "train_private.h"

static const char sbit__checkpoint_magic[8] = {'S', 'B', 'T', 'R', 'A', 'I', 'N', '3'};

enum { /* flags: of all, of a parameter */
    SBIT__CHECKPOINT_FIXED = 1,
    SBIT__CHECKPOINT_BEST = 2,
    SBIT__CHECKPOINT_MARK = 4,
    SBIT__CHECKPOINT_FROZEN = 1,
    SBIT__CHECKPOINT_MASK = 2,
    SBIT__CHECKPOINT_AVERAGE = 4
};

/* >>writing */

static sbit_status sbit__checkpoint_put_u64(sbit__writer *w, uint64_t value, sbit_error *error)
{
    return sbit__writer_put(w, &value, sizeof value, error);
}

static sbit_status sbit__checkpoint_put_name(sbit__writer *w, const char *name, sbit_error *error)
{
    const size_t size = strlen(name);
    SBIT__TRY(sbit__checkpoint_put_u64(w, size, error));
    return sbit__writer_put(w, name, size, error);
}

static uint64_t sbit__checkpoint_flags(const sbit__train_param *p)
{
    return (p->frozen ? (uint64_t)SBIT__CHECKPOINT_FROZEN : 0) |
           (p->mask != NULL ? (uint64_t)SBIT__CHECKPOINT_MASK : 0) |
           (p->average != NULL ? (uint64_t)SBIT__CHECKPOINT_AVERAGE : 0);
}

static size_t sbit__checkpoint_best_bytes(const sbit_trainer *t, size_t i)
{
    return sbit_tensor_bytes(i < t->param_count ? &t->params[i].data
                                                : sbit__train_statistic(t, i - t->param_count));
}

static sbit_status sbit__checkpoint_write_snapshot(const sbit_trainer *t,
                                                   const sbit__train_snapshot *best,
                                                   sbit__writer *w, sbit_error *error)
{
    if (best->data == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__writer_put(w, &best->score, sizeof best->score, error));
    SBIT__TRY(sbit__checkpoint_put_u64(w, (uint64_t)best->epoch, error));
    SBIT__TRY(sbit__checkpoint_put_u64(w, (uint64_t)best->waited, error));
    for (size_t i = 0; i < t->param_count + t->statistic_count; i++) {
        SBIT__TRY(sbit__writer_put(w, best->data[i], sbit__checkpoint_best_bytes(t, i), error));
    }
    return sbit__writer_put(w, best->data[t->param_count + t->statistic_count],
                            t->range_count * sizeof(float), error);
}

static sbit_status sbit__checkpoint_write(const sbit_trainer *t, sbit__writer *w, sbit_error *error)
{
    SBIT__TRY(sbit__writer_put(w, sbit__checkpoint_magic, sizeof sbit__checkpoint_magic, error));
    SBIT__TRY(sbit__checkpoint_put_u64(w, (uint64_t)t->report.step, error));
    SBIT__TRY(sbit__checkpoint_put_u64(w, (uint64_t)t->report.epoch, error));
    SBIT__TRY(sbit__checkpoint_put_u64(w, (uint64_t)t->bits_now, error));
    SBIT__TRY(sbit__writer_put(w, &t->rate, sizeof t->rate, error));
    SBIT__TRY(
        sbit__checkpoint_put_u64(w,
                                 (t->fixed != 0.0f ? (uint64_t)SBIT__CHECKPOINT_FIXED : 0) |
                                     (t->best.data != NULL ? (uint64_t)SBIT__CHECKPOINT_BEST : 0) |
                                     (t->mark.data != NULL ? (uint64_t)SBIT__CHECKPOINT_MARK : 0),
                                 error));
    SBIT__TRY(sbit__checkpoint_put_u64(w, t->param_count, error));
    SBIT__TRY(sbit__checkpoint_put_u64(w, t->statistic_count, error));
    for (size_t i = 0; i < t->param_count; i++) {
        const sbit__train_param *p = &t->params[i];
        SBIT__TRY(sbit__checkpoint_put_name(w, p->name, error));
        SBIT__TRY(sbit__checkpoint_put_u64(w, (uint64_t)sbit_tensor_count(&p->data), error));
        SBIT__TRY(sbit__checkpoint_put_u64(w, p->state_bytes, error));
        SBIT__TRY(sbit__checkpoint_put_u64(w, sbit__checkpoint_flags(p), error));
        SBIT__TRY(sbit__writer_put(w, p->data.data, sbit_tensor_bytes(&p->data), error));
        SBIT__TRY(sbit__writer_put(w, p->state, p->state_bytes, error));
        SBIT__TRY(sbit__writer_put(
            w, p->mask, p->mask != NULL ? (size_t)sbit_tensor_count(&p->data) : 0, error));
        SBIT__TRY(sbit__writer_put(w, p->average,
                                   p->average != NULL ? sbit_tensor_bytes(&p->data) : 0, error));
    }
    for (size_t i = 0; i < t->statistic_count; i++) {
        const sbit_value_info *info = sbit_graph_value(t->graph, t->statistics[i].value);
        const sbit_tensor *tensor = sbit__train_statistic(t, i);
        SBIT__TRY(sbit__checkpoint_put_name(w, info->name, error));
        SBIT__TRY(sbit__checkpoint_put_u64(w, (uint64_t)sbit_tensor_count(tensor), error));
        SBIT__TRY(sbit__writer_put(w, tensor->data, sbit_tensor_bytes(tensor), error));
    }
    SBIT__TRY(sbit__checkpoint_put_u64(w, t->range_count, error));
    SBIT__TRY(sbit__writer_put(w, t->ranges, t->range_count * sizeof(float), error));
    SBIT__TRY(sbit__checkpoint_write_snapshot(t, &t->best, w, error));
    return sbit__checkpoint_write_snapshot(t, &t->mark, w, error);
}

SPARSEBIT_API sbit_status sbit_trainer_save(const sbit_trainer *trainer, const char *path,
                                            sbit_error *error)
{
    sbit__writer w;
    SBIT__TRY(sbit__writer_open(&trainer->ctx->allocator, path, &w, error));
    const sbit_status status = sbit__checkpoint_write(trainer, &w, error);
    if (status != SBIT_OK) {
        sbit__writer_abort(&w);
        return status;
    }
    return sbit__writer_commit(&w, error);
}

/* >>reading */

typedef struct sbit__checkpoint {
    const unsigned char *at, *end;
    bool short_file;
} sbit__checkpoint;

static const void *sbit__checkpoint_take(sbit__checkpoint *c, uint64_t size)
{
    const unsigned char *at = c->at;
    if (size > (uint64_t)(c->end - c->at)) {
        c->short_file = true;
        return NULL;
    }
    c->at += size;
    return at;
}

static uint64_t sbit__checkpoint_u64(sbit__checkpoint *c)
{
    uint64_t value = 0;
    const void *at = sbit__checkpoint_take(c, sizeof value);
    if (at != NULL) {
        memcpy(&value, at, sizeof value);
    }
    return value;
}

/* Fails unless the next name and element count are these. */
static sbit_status sbit__checkpoint_expect(sbit__checkpoint *c, const char *name, int64_t count,
                                           sbit_error *error)
{
    const uint64_t size = sbit__checkpoint_u64(c);
    const char *text = (const char *)sbit__checkpoint_take(c, size);
    if (text == NULL || size != strlen(name) || memcmp(text, name, (size_t)size) != 0 ||
        sbit__checkpoint_u64(c) != (uint64_t)count) {
        return sbit__fail(error, SBIT_ERR_PARSE, name,
                          "the checkpoint is of another model or other settings: it has no '%s' "
                          "with %lld elements at this place",
                          name, (long long)count);
    }
    return SBIT_OK;
}

static sbit_status sbit__checkpoint_read_param(sbit_trainer *t, sbit__train_param *p,
                                               sbit__checkpoint *c, bool apply, sbit_error *error)
{
    const size_t count = (size_t)sbit_tensor_count(&p->data);
    SBIT__TRY(sbit__checkpoint_expect(c, p->name, (int64_t)count, error));
    const uint64_t state_bytes = sbit__checkpoint_u64(c), flags = sbit__checkpoint_u64(c);
    const void *data = sbit__checkpoint_take(c, sbit_tensor_bytes(&p->data));
    const void *state = sbit__checkpoint_take(c, state_bytes);
    const bool masked = (flags & SBIT__CHECKPOINT_MASK) != 0;
    const void *mask = sbit__checkpoint_take(c, masked ? count : 0);
    const bool averaged = (flags & SBIT__CHECKPOINT_AVERAGE) != 0;
    const void *average = sbit__checkpoint_take(c, averaged ? sbit_tensor_bytes(&p->data) : 0);
    if (averaged != (p->average != NULL)) {
        return sbit__fail(error, SBIT_ERR_PARSE, p->name,
                          "the checkpoint was made %s averages of parameters",
                          averaged ? "with" : "without");
    }
    if (state_bytes != p->state_bytes) {
        return sbit__fail(error, SBIT_ERR_PARSE, p->name,
                          "the checkpoint was made with another optimizer");
    }
    if (!apply || data == NULL || state == NULL || mask == NULL || average == NULL) {
        return SBIT_OK;
    }
    if (averaged) {
        memcpy(p->average, average, sbit_tensor_bytes(&p->data));
    }
    memcpy(p->data.data, data, sbit_tensor_bytes(&p->data));
    if (state_bytes > 0) {
        memcpy(p->state, state, (size_t)state_bytes);
    }
    p->frozen = (flags & SBIT__CHECKPOINT_FROZEN) != 0;
    return sbit_trainer_set_mask(t, p->name, masked ? (const uint8_t *)mask : NULL, error);
}

static sbit_status sbit__checkpoint_read_snapshot(sbit_trainer *t, sbit__train_snapshot *best,
                                                  sbit__checkpoint *c, bool apply,
                                                  sbit_error *error)
{
    const void *score = sbit__checkpoint_take(c, sizeof best->score);
    const int64_t epoch = (int64_t)sbit__checkpoint_u64(c);
    const int64_t waited = (int64_t)sbit__checkpoint_u64(c);
    if (apply && score != NULL) {
        SBIT__TRY(sbit__train_take(t, best, error)); /* for its memory */
        memcpy(&best->score, score, sizeof best->score);
        best->epoch = epoch;
        best->waited = waited;
    }
    for (size_t i = 0; i < t->param_count + t->statistic_count; i++) {
        const size_t bytes = sbit__checkpoint_best_bytes(t, i);
        const void *data = sbit__checkpoint_take(c, bytes);
        if (apply && data != NULL) {
            memcpy(best->data[i], data, bytes);
        }
    }
    const void *ranges = sbit__checkpoint_take(c, t->range_count * sizeof(float));
    if (apply && ranges != NULL && t->range_count > 0) {
        memcpy(best->data[t->param_count + t->statistic_count], ranges,
               t->range_count * sizeof(float));
    }
    return SBIT_OK;
}

static sbit_status sbit__checkpoint_read(sbit_trainer *t, sbit__checkpoint *c, bool apply,
                                         sbit_error *error)
{
    const void *magic = sbit__checkpoint_take(c, sizeof sbit__checkpoint_magic);
    if (magic == NULL ||
        memcmp(magic, sbit__checkpoint_magic, sizeof sbit__checkpoint_magic) != 0) {
        return sbit__fail(error, SBIT_ERR_PARSE, NULL, "this is no checkpoint of a training");
    }
    const int64_t step = (int64_t)sbit__checkpoint_u64(c);
    const int64_t epoch = (int64_t)sbit__checkpoint_u64(c);
    const uint64_t bits = sbit__checkpoint_u64(c);
    double rate = 0.0;
    const void *rate_at = sbit__checkpoint_take(c, sizeof rate);
    if (rate_at != NULL) {
        memcpy(&rate, rate_at, sizeof rate);
    }
    const uint64_t flags = sbit__checkpoint_u64(c);
    if (sbit__checkpoint_u64(c) != t->param_count ||
        sbit__checkpoint_u64(c) != t->statistic_count) {
        return sbit__fail(error, SBIT_ERR_PARSE, NULL,
                          "the checkpoint has another number of parameters");
    }
    if (apply && bits <= 16) { /* the scales to come fit these grids */
        t->bits = (int32_t)bits;
        sbit__qat_widen(t, t->bits);
    }
    for (size_t i = 0; i < t->param_count; i++) {
        SBIT__TRY(sbit__checkpoint_read_param(t, &t->params[i], c, apply, error));
    }
    for (size_t i = 0; i < t->statistic_count; i++) {
        const sbit_value_info *info = sbit_graph_value(t->graph, t->statistics[i].value);
        sbit_tensor tensor = info->constant;
        SBIT__TRY(sbit__checkpoint_expect(c, info->name, sbit_tensor_count(&tensor), error));
        const void *data = sbit__checkpoint_take(c, sbit_tensor_bytes(&tensor));
        if (apply && data != NULL) {
            sbit_tensor copy;
            SBIT__TRY(
                sbit_tensor_alloc(t->ctx, tensor.dtype, tensor.rank, tensor.dims, &copy, error));
            memcpy(copy.data, data, sbit_tensor_bytes(&copy));
            const sbit_status status =
                sbit_session_set_input(t->session, info->name, &copy, error); /* copies */
            sbit_tensor_free(t->ctx, &copy);
            SBIT__TRY(status);
        }
    }
    if (sbit__checkpoint_u64(c) != t->range_count) {
        return sbit__fail(error, SBIT_ERR_PARSE, NULL,
                          "the checkpoint has another number of ranges that follow the batches");
    }
    const void *ranges = sbit__checkpoint_take(c, t->range_count * sizeof(float));
    if (apply && ranges != NULL && t->range_count > 0) {
        memcpy(t->ranges, ranges, t->range_count * sizeof(float));
        SBIT__TRY(sbit__qat_ranges(t, error));
    }
    if ((flags & SBIT__CHECKPOINT_BEST) != 0) {
        SBIT__TRY(sbit__checkpoint_read_snapshot(t, &t->best, c, apply, error));
    }
    if ((flags & SBIT__CHECKPOINT_MARK) != 0) {
        SBIT__TRY(sbit__checkpoint_read_snapshot(t, &t->mark, c, apply, error));
    }
    if (c->short_file || c->at != c->end) {
        return sbit__fail(error, SBIT_ERR_PARSE, NULL, "the checkpoint is cut or damaged");
    }
    if (apply) {
        t->report.step = step;
        t->report.epoch = epoch;
        t->rate = rate;
        t->fixed = (flags & SBIT__CHECKPOINT_FIXED) != 0 ? 1.0f : 0.0f;
        t->ready = false;
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_trainer_load(sbit_trainer *trainer, const char *path,
                                            sbit_error *error)
{
    sbit__file file;
    sbit_status status = SBIT_OK;
    SBIT__TRY(sbit__file_open(&trainer->ctx->allocator, path, &file, error));
    for (int pass = 0; pass < 2 && status == SBIT_OK; pass++) { /* first look, then take */
        sbit__checkpoint c;
        c.at = file.data;
        c.end = file.data + file.size;
        c.short_file = false;
        status = sbit__checkpoint_read(trainer, &c, pass == 1, error);
    }
    sbit__file_close(&file);
    return status;
}
