/* statistics.c: what observers saw, to and from a file. >>statistics
 *
 * For the machine that wrote it (numbers are as in memory; another byte order is refused):
 *     "SBITSTAT", u32 0x01020304, u32 version 2, u64 records, u64 stamp of the float model
 *     record: u32 body, i32 axis, i64 block, i64 parts, u64 stamp of the observer's settings, u64
 * bytes (0: no data came by), u32 size and text of the tensor's name, u32 size and text of the
 * observer's, bytes of its row's save
 */
#include "quant_private.h"

#define SBIT__STATS_MAGIC "SBITSTAT"

typedef struct sbit__stats_head {
    uint32_t order, version;
    uint64_t records, model;
} sbit__stats_head;

typedef struct sbit__stats_record {
    uint32_t body;
    int32_t axis;
    int64_t block, parts;
    uint64_t settings, bytes;
    uint32_t tensor_size, observer_size;
} sbit__stats_record;

/* >>statistics stamps */
static uint64_t sbit__stats_mix(uint64_t stamp, const void *data, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)data;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, size - i < 8 ? size - i : 8);
        word ^= stamp;
        stamp = (word << 29 | word >> 35) * UINT64_C(0x9e3779b97f4a7c15) + size;
    }
    return stamp;
}

/* Of the weights alone, in any order: steps that change them (cross_layer) move ranges, another
 * opset does not. */
static uint64_t sbit__stats_model(const sbit_quant *quant)
{
    uint64_t stamp = 0;
    for (size_t g = 0; g < quant->graph_count; g++) {
        const sbit_graph *graph = quant->graphs[g].graph;
        for (uint32_t i = 1; i < sbit_graph_value_limit(graph); i++) {
            const sbit_value_id id = {i};
            const sbit_value_info *v = sbit_graph_value(graph, id);
            const sbit_dtype dtype = v != NULL && v->is_constant ? v->constant.dtype : SBIT_BOOL;
            if ((dtype == SBIT_F32 || dtype == SBIT_F16 || dtype == SBIT_BF16) &&
                v->constant.rank > 1) {
                stamp += sbit__stats_mix(1, v->constant.data, sbit_tensor_bytes(&v->constant));
            }
        }
    }
    return stamp;
}

/* Of the observer's own keys, and of a quantizer that shows it something else than the tensor. */
static uint64_t sbit__stats_settings(const sbit__site *site)
{
    const sbit_head *head = &site->settings.observer->head;
    const sbit_quantizer_row *quantizer = site->settings.quantizer;
    uint64_t stamp = 1;
    for (size_t i = 0; i < head->key_count; i++) {
        char path[96];
        snprintf(path, sizeof path, "OBSERVER.%s", head->keys[i].path);
        const sbit_option *o = sbit_options_find(&site->settings.options, path);
        if (o != NULL && o->key->type != SBIT_KEY_YAML) {
            const double number = o->f + (double)o->i + (o->b ? 1.0 : 0.0); /* one of them is set */
            stamp = sbit__stats_mix(stamp, &number, sizeof number);
            stamp = o->s != NULL ? sbit__stats_mix(stamp, o->s, strlen(o->s)) : stamp;
        }
    }
    return quantizer->domain == NULL
               ? stamp
               : sbit__stats_mix(stamp, quantizer->head.name, strlen(quantizer->head.name));
}

/* >>statistics save */
static bool sbit__stats_has(const sbit__site *site)
{
    return sbit__quant_observes(site) && site->settings.observer->save != NULL;
}

static sbit_status sbit__stats_put_site(const sbit_quant *quant, const sbit__site *site,
                                        sbit__writer *writer, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const sbit_observer_row *row = site->settings.observer;
    const sbit_observer_call call = sbit__site_observer(quant, site);
    const size_t bytes = site->observed ? row->save(site->observer_state, &call, NULL, 0) : 0;
    sbit__stats_record record;
    memset(&record, 0, sizeof record);
    record.body = site->body;
    record.axis = site->axis;
    record.block = site->block;
    record.parts = sbit__site_parts(site);
    record.settings = sbit__stats_settings(site);
    record.bytes = bytes;
    record.tensor_size = (uint32_t)strlen(site->tensor);
    record.observer_size = (uint32_t)strlen(row->head.name);
    void *data = sbit__alloc(a, bytes + 1);
    if (data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    if (bytes > 0) {
        row->save(site->observer_state, &call, data, bytes);
    }
    sbit_status status = sbit__writer_put(writer, &record, sizeof record, error);
    if (status == SBIT_OK) {
        status = sbit__writer_put(writer, site->tensor, record.tensor_size, error);
    }
    if (status == SBIT_OK) {
        status = sbit__writer_put(writer, row->head.name, record.observer_size, error);
    }
    if (status == SBIT_OK) {
        status = sbit__writer_put(writer, data, bytes, error);
    }
    sbit__free(a, data, bytes + 1);
    return status;
}

static sbit_status sbit__stats_put(const sbit_quant *quant, sbit__writer *writer, sbit_error *error)
{
    sbit__stats_head head;
    memset(&head, 0, sizeof head);
    head.order = 0x01020304;
    head.version = 2;
    head.model = sbit__stats_model(quant);
    for (size_t i = 0; i < quant->site_count; i++) {
        head.records += sbit__stats_has(&quant->sites[i]) ? 1u : 0u;
    }
    SBIT__TRY(sbit__writer_put(writer, SBIT__STATS_MAGIC, 8, error));
    SBIT__TRY(sbit__writer_put(writer, &head, sizeof head, error));
    for (size_t i = 0; i < quant->site_count; i++) {
        if (sbit__stats_has(&quant->sites[i])) {
            SBIT__TRY(sbit__stats_put_site(quant, &quant->sites[i], writer, error));
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_quant_save_statistics(const sbit_quant *quant, const char *path,
                                                     sbit_error *error)
{
    sbit__writer writer;
    if (quant == NULL || path == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant or path is NULL");
    }
    if (!quant->fed) {
        return sbit__fail(error, SBIT_ERR_STATE, path,
                          "there are no statistics to save: call sbit_quant_calibrate first");
    }
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *site = &quant->sites[i];
        if (site->observed && site->target == SBIT_TARGET_ACTIVATION && !sbit__stats_has(site)) {
            return sbit__fail(error, SBIT_ERR_UNSUPPORTED, site->tensor,
                              "observer '%s' of tensor '%s' cannot be saved",
                              site->settings.observer->head.name, site->tensor);
        }
    }
    SBIT__TRY(sbit__writer_open(sbit_ctx_allocator(quant->ctx), path, &writer, error));
    const sbit_status status = sbit__stats_put(quant, &writer, error);
    if (status != SBIT_OK) {
        sbit__writer_abort(&writer);
        return status;
    }
    return sbit__writer_commit(&writer, error);
}

/* >>statistics load */
typedef struct sbit__stats_reader {
    const unsigned char *data;
    size_t size, at;
} sbit__stats_reader;

/* NULL: the file ends before. */
static const void *sbit__stats_take(sbit__stats_reader *r, uint64_t size)
{
    if (size > r->size - r->at) {
        return NULL;
    }
    const void *data = r->data + r->at;
    r->at += (size_t)size;
    return data;
}

static bool sbit__stats_same(const char *text, const void *bytes, uint32_t size)
{
    return strlen(text) == size && memcmp(text, bytes, size) == 0;
}

static sbit_status sbit__stats_get_site(sbit_quant *quant, sbit__site *site, const void *data,
                                        uint64_t bytes, sbit_error *error)
{
    const sbit_observer_row *row = site->settings.observer;
    const sbit_observer_call call = sbit__site_observer(quant, site);
    sbit__site other = *site; /* what the file holds, to be added; its arrays are the site's */
    if (!site->observed) {
        SBIT__TRY(sbit__site_prepare(quant, site, error));
        SBIT__TRY(row->load(site->observer_state, &call, data, (size_t)bytes, error));
        site->observed = true;
        return SBIT_OK;
    }
    if (row->merge == NULL) {
        return sbit__fail(error, SBIT_ERR_STATE, site->tensor,
                          "what observer '%s' saw of tensor '%s' depends on the order of the data: it "
                          "cannot be joined",
                          row->head.name, site->tensor);
    }
    other.observer_state = other.quantizer_state = NULL;
    sbit_status status = sbit__site_prepare(quant, &other, error);
    if (status == SBIT_OK) {
        status = row->load(other.observer_state, &call, data, (size_t)bytes, error);
    }
    if (status == SBIT_OK) {
        status = row->merge(site->observer_state, other.observer_state, &call, error);
    }
    sbit__site_release(quant, &other);
    return status;
}

static sbit_status sbit__stats_get_record(sbit_quant *quant, sbit__stats_reader *r, bool *cut,
                                          sbit_error *error)
{
    sbit__stats_record record;
    const void *head = sbit__stats_take(r, sizeof record);
    *cut = head == NULL;
    if (head == NULL) {
        return SBIT_OK;
    }
    memcpy(&record, head, sizeof record);
    const void *tensor = sbit__stats_take(r, record.tensor_size);
    const void *observer = sbit__stats_take(r, record.observer_size);
    const void *data = sbit__stats_take(r, record.bytes);
    *cut = tensor == NULL || observer == NULL || data == NULL;
    for (size_t i = 0; !*cut && i < quant->site_count; i++) {
        sbit__site *site = &quant->sites[i];
        if (sbit__stats_has(site) && site->body == record.body && site->axis == record.axis &&
            site->block == record.block && sbit__site_parts(site) == record.parts &&
            sbit__stats_settings(site) == record.settings &&
            sbit__stats_same(site->tensor, tensor, record.tensor_size) &&
            sbit__stats_same(site->settings.observer->head.name, observer, record.observer_size)) {
            site->waiting = false;
            if (record.bytes > 0) {
                SBIT__TRY(sbit__stats_get_site(quant, site, data, record.bytes, error));
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__stats_get(sbit_quant *quant, sbit__stats_reader *r, const char *path,
                                   sbit_error *error)
{
    sbit__stats_head head;
    bool cut = false;
    const void *magic = sbit__stats_take(r, 8), *start = sbit__stats_take(r, sizeof head);
    memset(&head, 0, sizeof head);
    if (start != NULL) {
        memcpy(&head, start, sizeof head);
    }
    if (magic == NULL || memcmp(magic, SBIT__STATS_MAGIC, 8) != 0 || head.order != 0x01020304 ||
        head.version != 2) {
        return sbit__fail(error, SBIT_ERR_PARSE, path,
                          "'%s' holds no statistics that this machine and version can read", path);
    }
    if (head.model != sbit__stats_model(quant)) {
        return sbit__fail(error, SBIT_ERR_STATE, path,
                          "'%s' was made with other weights: of another model, or with other steps "
                          "before calibration; calibrate again",
                          path);
    }
    for (uint64_t i = 0; i < head.records && !cut; i++) {
        SBIT__TRY(sbit__stats_get_record(quant, r, &cut, error));
    }
    if (cut || r->at != r->size) {
        return sbit__fail(error, SBIT_ERR_PARSE, path, "'%s' is cut off or damaged", path);
    }
    return SBIT_OK;
}

/* Adds what a file holds to what the sites saw. */
static sbit_status sbit__stats_add(sbit_quant *quant, const char *path, sbit_error *error)
{
    sbit__file file;
    sbit__stats_reader r;
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(quant->ctx), path, &file, error));
    r.data = (const unsigned char *)file.data;
    r.size = file.size;
    r.at = 0;
    for (size_t i = 0; i < quant->site_count; i++) {
        quant->sites[i].waiting = sbit__quant_observes(&quant->sites[i]);
    }
    const sbit_status status = sbit__stats_get(quant, &r, path, error);
    sbit__file_close(&file);
    SBIT__TRY(status);
    for (size_t i = 0; i < quant->site_count; i++) {
        const sbit__site *site = &quant->sites[i];
        if (site->waiting) {
            return sbit__fail(error, SBIT_ERR_STATE, site->tensor,
                              "'%s' has no statistics of observer '%s' with these settings for tensor "
                              "'%s'; calibrate again with this configuration",
                              path, site->settings.observer->head.name, site->tensor);
        }
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_quant_load_statistics(sbit_quant *quant, const char *path,
                                                     sbit_error *error)
{
    if (quant == NULL || path == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant or path is NULL");
    }
    SBIT__TRY(sbit_quant_prepare_calibration(quant, error));
    SBIT__TRY(sbit__stats_add(quant, path, error));
    quant->fed = true;
    quant->calibrating = quant->pass_open = false;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_quant_merge_statistics(sbit_quant *quant, const char *path,
                                                      sbit_error *error)
{
    if (quant == NULL || path == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "quant or path is NULL");
    }
    if (!quant->fed) {
        return sbit__fail(error, SBIT_ERR_STATE, path,
                          "there are no statistics to add to: calibrate or load some first");
    }
    quant->fed = quant->calibrated = false; /* until all of it is added */
    SBIT__TRY(sbit__stats_add(quant, path, error));
    quant->fed = true;
    memset(&quant->feed, 0, sizeof quant->feed); /* which holds a part of the data */
    return SBIT_OK;
}
