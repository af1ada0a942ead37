/* external.c: tensors whose bytes lie in a file beside the model. >>external
 *
 * Called by: tensor, write. Calls: files, schema.
 * TensorProto.data_location = EXTERNAL, and external_data holds text pairs:
 *     location  path relative to the model's folder; must stay inside it
 *     offset    first byte, decimal; default 0
 *     length    bytes, decimal; default: what dims and type need
 *     other     (checksum, ...) not looked at
 * Does: read by range on demand; lay tensors out in one file for a save.
 * Does not: follow `location` out of the folder. Symbolic links inside it are the user's.
 */
#include "onnx_private.h"

#include <stdio.h> /* snprintf: keys of ranges */

#define SBIT__EXTERNAL_AUTO_BYTES ((size_t)1024)
#define SBIT__EXTERNAL_MESSAGE_BYTES UINT64_C(0x7fffffff) /* protobuf's limit for one message */
#define SBIT__EXTERNAL_KEY_BYTES 512

SBIT__FN bool sbit__onnx_location_is_safe(const char *name, size_t size)
{
    if (size == 0 || memchr(name, '\0', size) != NULL || memchr(name, ':', size) != NULL ||
        name[0] == '/' || name[0] == '\\') {
        return false; /* ':' is a drive letter or a stream on Windows */
    }
    size_t start = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i == size || name[i] == '/' || name[i] == '\\') {
            if (i - start == 2 && name[start] == '.' && name[start + 1] == '.') {
                return false;
            }
            start = i + 1;
        }
    }
    return true;
}

static sbit_status sbit__external_number(const sbit_onnx_tensor *tensor,
                                         const sbit_onnx_string_entry *entry, uint64_t *out,
                                         sbit_error *error)
{
    int64_t value = 0;
    if (entry->value.size == 0 || !sbit__parse_i64(entry->value.data, &value) || value < 0) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': external_data %s '%s' is not a number of bytes", label,
                          entry->key.data, entry->value.size != 0 ? entry->value.data : "");
    }
    *out = (uint64_t)value;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_external_info(const sbit_onnx_tensor *tensor,
                                              sbit__onnx_external *out, sbit_error *error)
{
    const char *label = sbit__onnx_tensor_label(tensor);
    sbit__onnx_external info;
    sbit_str location = sbit__str(NULL);
    info.offset = 0;
    info.length = UINT64_MAX;
    for (size_t i = 0; i < tensor->external_data_count; i++) {
        const sbit_onnx_string_entry *entry = &tensor->external_data[i];
        if (sbit__streq(entry->key.data, "location")) {
            location = entry->value;
        } else if (sbit__streq(entry->key.data, "offset")) {
            SBIT__TRY(sbit__external_number(tensor, entry, &info.offset, error));
        } else if (sbit__streq(entry->key.data, "length")) {
            SBIT__TRY(sbit__external_number(tensor, entry, &info.length, error));
        }
    }
    if (location.size == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': external data has no location", label);
    }
    if (!sbit__onnx_location_is_safe(location.data, location.size)) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': external data location '%s' leaves the model's folder",
                          label, location.data);
    }
    info.location = location.data;
    *out = info;
    return SBIT_OK;
}

/* Whether the file is what git-LFS leaves in the place of one: a page of text at most. */
static bool sbit__external_is_pointer(const sbit_allocator *allocator, const char *path)
{
    static const char head[] = "version https://git-lfs";
    sbit__file file;
    if (sbit__file_open_range(allocator, path, 0, sizeof head - 1, &file, NULL) != SBIT_OK ||
        file.data == NULL) {
        return false;
    }
    const bool is = memcmp(file.data, head, sizeof head - 1) == 0;
    sbit__file_close(&file);
    return is;
}

static sbit_status sbit__external_open_in(const sbit_onnx_doc *doc, const sbit__onnx_external *info,
                                          size_t bytes, sbit__file *out, sbit_error *error)
{
    const sbit_allocator *allocator = &doc->arena.allocator;
    const size_t size = strlen(doc->folder) + strlen(info->location) + 2;
    char *path = (char *)sbit__alloc(allocator, size);
    if (path == NULL) {
        return sbit__fail_oom(error, size);
    }
    snprintf(path, size, "%s/%s", doc->folder, info->location);
    sbit_status status = sbit__file_open_range(allocator, path, info->offset, bytes, out, error);
    if ((status != SBIT_OK || info->offset + bytes <= 1024) &&
        sbit__external_is_pointer(allocator, path)) {
        if (status == SBIT_OK) {
            sbit__file_close(out);
        }
        status = sbit__fail(error, SBIT_ERR_PARSE, info->location,
                            "'%s' is a git-LFS pointer, which stands for the real file: fetch that "
                            "(git lfs pull)",
                            info->location);
    }
    sbit__free(allocator, path, size);
    return status;
}

SBIT__FN sbit_status sbit__onnx_external_open(const sbit_onnx_doc *doc,
                                              const sbit_onnx_tensor *tensor, sbit__file *out,
                                              sbit_error *error)
{
    sbit__onnx_external info;
    size_t bytes = 0;
    SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
    SBIT__TRY(sbit__onnx_external_info(tensor, &info, error));
    if (bytes == 0) {
        memset(out, 0, sizeof(*out));
        return SBIT_OK;
    }
    const sbit_status status = sbit__external_open_in(doc, &info, bytes, out, error);
    if (status != SBIT_OK && error != NULL) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(error, status, label, "tensor '%s': %s", label, error->message);
    }
    return status;
}

SBIT__FN sbit_status sbit__onnx_external_view(sbit_onnx_doc *doc, const sbit_onnx_tensor *tensor,
                                              sbit_str *out, sbit_error *error)
{
    char key[SBIT__EXTERNAL_KEY_BYTES];
    sbit__onnx_external info;
    size_t bytes = 0;
    uint32_t idx = 0;
    sbit__file file;
    SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
    SBIT__TRY(sbit__onnx_external_info(tensor, &info, error));
    if (bytes == 0) {
        *out = sbit__str("");
        return SBIT_OK;
    }
    const int key_size = snprintf(key, sizeof(key), "%llu:%llu:%s", (unsigned long long)info.offset,
                                  (unsigned long long)bytes, info.location);
    const bool keyed = key_size > 0 && (size_t)key_size < sizeof(key);
    if (keyed && sbit__map_find(&doc->range_of, key, &idx)) {
        out->data = (const char *)doc->ranges[idx].data;
        out->size = bytes;
        return SBIT_OK;
    }
    void *ranges = doc->ranges;
    SBIT__TRY(sbit__grow(&doc->arena.allocator, &ranges, &doc->range_capacity, doc->range_count + 1,
                         sizeof(sbit__file), error));
    doc->ranges = (sbit__file *)ranges;
    SBIT__TRY(sbit__onnx_external_open(doc, tensor, &file, error));
    doc->ranges[doc->range_count++] = file; /* owned from here on, whatever comes next */
    if (keyed) {
        const char *kept = sbit__arena_strdup(&doc->arena, key, (size_t)key_size);
        if (kept == NULL) {
            return sbit__onnx_arena_fail(&doc->arena, (size_t)key_size, error);
        }
        SBIT__TRY(sbit__map_set(&doc->range_of, kept, (uint32_t)(doc->range_count - 1), error));
    }
    out->data = (const char *)file.data;
    out->size = bytes;
    return SBIT_OK;
}

SBIT__FN void sbit__onnx_external_close_all(sbit_onnx_doc *doc)
{
    for (size_t i = 0; i < doc->range_count; i++) {
        sbit__file_close(&doc->ranges[i]);
    }
    sbit__free(&doc->arena.allocator, doc->ranges, doc->range_capacity * sizeof(sbit__file));
    sbit__map_deinit(&doc->range_of);
    doc->ranges = NULL;
    doc->range_count = 0;
    doc->range_capacity = 0;
}

SBIT__FN void sbit__onnx_forget(const sbit_onnx_doc *doc, const void *data, size_t size)
{
    sbit__file_forget(&doc->file, data, size);
    for (size_t i = 0; i < doc->range_count; i++) {
        sbit__file_forget(&doc->ranges[i], data, size);
    }
}

/* ---- laying tensors out for a save ---- */

static sbit_status sbit__external_sum(const sbit_onnx_tensor *tensor,
                                      const sbit__onnx_field *parent, void *user, sbit_error *error)
{
    uint64_t *sum = (uint64_t *)user;
    size_t bytes = 0;
    (void)parent;
    if (sbit__onnx_is_external(tensor)) {
        SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
        *sum = *sum > UINT64_MAX - bytes ? UINT64_MAX : *sum + bytes;
    }
    return SBIT_OK;
}

static bool sbit__external_is_initializer(const sbit__onnx_field *parent)
{
    return parent != NULL && parent->number == SBIT_ONNX_GRAPH_INITIALIZER &&
           strcmp(parent->name, "initializer") == 0;
}

typedef struct sbit__external_planner {
    sbit__onnx_plan *plan;
    sbit_onnx_doc *doc;
} sbit__external_planner;

static sbit_status sbit__external_append(sbit__onnx_plan *plan, const sbit_onnx_tensor *tensor,
                                         bool from_file, size_t bytes, sbit_error *error)
{
    sbit__onnx_place place;
    void *places = plan->places;
    place.tensor = tensor;
    place.from_file = from_file;
    place.to_file = bytes >= plan->above_bytes && bytes != 0;
    place.bytes = bytes;
    place.offset = 0;
    if (place.to_file) {
        const uint64_t gap = (plan->align - plan->file_bytes % plan->align) % plan->align;
        if (plan->file_bytes > (uint64_t)INT64_MAX - bytes - gap) {
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "the external file exceeds 2^63 bytes");
        }
        place.offset = plan->file_bytes + gap;
        plan->file_bytes = place.offset + bytes;
    }
    SBIT__TRY(sbit__grow(&plan->allocator, &places, &plan->capacity, plan->count + 1,
                         sizeof(sbit__onnx_place), error));
    plan->places = (sbit__onnx_place *)places;
    plan->places[plan->count++] = place;
    return SBIT_OK;
}

/* Readers expect external data of initializers only: other tensors stay inside. */
static sbit_status sbit__external_consider(const sbit_onnx_tensor *tensor,
                                           const sbit__onnx_field *parent, void *user,
                                           sbit_error *error)
{
    const sbit__external_planner *planner = (const sbit__external_planner *)user;
    sbit__onnx_plan *plan = planner->plan;
    size_t bytes = 0;
    if (sbit__onnx_is_external(tensor)) {
        sbit__onnx_external info;
        sbit_str kept;
        SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
        SBIT__TRY(sbit__onnx_external_info(tensor, &info, error));
        if (sbit__streq(info.location, plan->location)) {
            /* the save may replace this file: hold on to what the document refers to */
            SBIT__TRY(sbit__onnx_external_view(planner->doc, tensor, &kept, error));
        }
        return sbit__external_append(plan, tensor, true, bytes, error);
    }
    if (!sbit__external_is_initializer(parent) ||
        sbit__onnx_tensor_bytes(tensor, &bytes, NULL) != SBIT_OK || bytes == 0 ||
        bytes < plan->above_bytes) {
        return SBIT_OK; /* written as it is */
    }
    return sbit__external_append(plan, tensor, false, bytes, error);
}

SBIT__FN sbit_status sbit__onnx_plan_build(sbit__onnx_plan *plan, sbit_onnx_doc *doc,
                                           sbit_error *error)
{
    sbit__external_planner planner;
    planner.plan = plan;
    planner.doc = doc;
    if (plan->above_bytes == 0) {
        uint64_t outside = 0;
        SBIT__TRY(
            sbit__onnx_visit_tensors(doc->kind, doc->root, sbit__external_sum, &outside, error));
        const uint64_t inside = sbit_onnx_measure(doc->kind, doc->root);
        const bool fits = outside <= SBIT__EXTERNAL_MESSAGE_BYTES &&
                          inside <= SBIT__EXTERNAL_MESSAGE_BYTES - outside;
        plan->above_bytes = fits ? SIZE_MAX : SBIT__EXTERNAL_AUTO_BYTES;
    }
    return sbit__onnx_visit_tensors(doc->kind, doc->root, sbit__external_consider, &planner, error);
}

static sbit_status sbit__external_pad(sbit__writer *writer, uint64_t offset, sbit_error *error)
{
    static const unsigned char zeros[256] = {0};
    while (writer->written < offset) {
        const uint64_t gap = offset - writer->written;
        SBIT__TRY(sbit__writer_put(writer, zeros, gap < sizeof(zeros) ? (size_t)gap : sizeof(zeros),
                                   error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_plan_write(const sbit__onnx_plan *plan, const sbit_onnx_doc *doc,
                                           sbit__writer *writer, sbit_error *error)
{
    for (size_t i = 0; i < plan->count; i++) {
        const sbit__onnx_place *place = &plan->places[i];
        sbit_status status = SBIT_OK;
        if (!place->to_file) {
            continue;
        }
        SBIT__TRY(sbit__external_pad(writer, place->offset, error));
        if (place->from_file) {
            sbit__file file;
            SBIT__TRY(sbit__onnx_external_open(doc, place->tensor, &file, error));
            status = sbit__writer_put(writer, file.data, file.size, error);
            sbit__file_close(&file);
        } else {
            sbit__arena scratch;
            sbit_str view;
            sbit__arena_init(&scratch, &plan->allocator);
            status = sbit__onnx_tensor_view(&scratch, place->tensor, true, &view, error);
            if (status == SBIT_OK) {
                status = sbit__writer_put(writer, view.data, view.size, error);
            }
            sbit__arena_deinit(&scratch);
        }
        SBIT__TRY(status);
    }
    return SBIT_OK;
}
#undef SBIT__EXTERNAL_AUTO_BYTES
#undef SBIT__EXTERNAL_MESSAGE_BYTES
#undef SBIT__EXTERNAL_KEY_BYTES
