/* write.c: messages to bytes and files. >>write
 *
 * Called by: users, export. Calls: wire, schema, external, files.
 * Does: write fields by ascending number and unknown ones last, as protobuf's own writers do, so
 * that a file from one of them comes back byte for byte. Measuring is writing without a buffer.
 * A save keeps large `bytes` fields out of the buffer and copies them from where they lie.
 *
 * All goes backwards (see wire): last field first, last element first.
 */
#include "onnx_private.h"

#include <stdio.h> /* snprintf: offset and length of external data */

#define SBIT__WRITE_REF_BYTES ((size_t)4096)           /* larger bytes fields are not buffered */
#define SBIT__WRITE_MESSAGE_BYTES UINT64_C(0x7fffffff) /* protobuf's limit for one message */
#define SBIT__WRITE_ALIGN 4096u

/* Bytes that belong into the output but not into the buffer. */
typedef struct sbit__write_ref {
    const void *data;
    size_t size;
    const sbit__onnx_place *place; /* read from its file; NULL: data */
    size_t tail;                   /* buffered bytes that follow */
} sbit__write_ref;

typedef struct sbit__write_state {
    sbit__wire_out out;
    const sbit__onnx_plan *plan; /* NULL: tensors as they are, everything buffered */
    size_t places_left;          /* plan entries not met yet: they are met in reverse order */
    sbit__write_ref *refs;       /* NULL: only count */
    size_t ref_count;
    uint64_t ref_bytes;
} sbit__write_state;

static void sbit__write_message(sbit__write_state *state, int kind, const void *message);

static void sbit__write_refer(sbit__write_state *state, const void *data, size_t size,
                              const sbit__onnx_place *place)
{
    if (state->refs != NULL) {
        sbit__write_ref *ref = &state->refs[state->ref_count];
        ref->data = data;
        ref->size = size;
        ref->place = place;
        ref->tail = (size_t)(state->out.total - state->ref_bytes);
    }
    state->ref_count++;
    state->ref_bytes += size;
    state->out.total += size;
}

static void sbit__write_str(sbit__write_state *state, const sbit__onnx_field *field, sbit_str str)
{
    if (state->plan != NULL && field->type == SBIT__ONNX_BYTES &&
        str.size >= SBIT__WRITE_REF_BYTES) {
        sbit__write_refer(state, str.data, str.size, NULL);
    } else {
        sbit__wire_put_bytes(&state->out, str.data, str.size);
    }
    sbit__wire_put_varint(&state->out, str.size);
    sbit__wire_put_tag(&state->out, field->number, SBIT__WIRE_LENGTH);
}

static void sbit__write_number(sbit__write_state *state, const sbit__onnx_field *field,
                               const void *value)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    int32_t signed32 = 0;
    switch (field->type) {
    case SBIT__ONNX_INT32:
        memcpy(&signed32, value, sizeof(signed32));
        sbit__wire_put_varint(&state->out, (uint64_t)(int64_t)signed32);
        return;
    case SBIT__ONNX_FLOAT:
        memcpy(&narrow, value, sizeof(narrow));
        sbit__wire_put_fixed32(&state->out, narrow);
        return;
    case SBIT__ONNX_DOUBLE:
        memcpy(&wide, value, sizeof(wide));
        sbit__wire_put_fixed64(&state->out, wide);
        return;
    default:
        memcpy(&wide, value, sizeof(wide));
        sbit__wire_put_varint(&state->out, wide);
        return;
    }
}

static void sbit__write_sub(sbit__write_state *state, const sbit__onnx_field *field,
                            const void *sub)
{
    const uint64_t before = state->out.total;
    sbit__write_message(state, field->kind, sub);
    sbit__wire_put_varint(&state->out, state->out.total - before);
    sbit__wire_put_tag(&state->out, field->number, SBIT__WIRE_LENGTH);
}

static void sbit__write_packed(sbit__write_state *state, const sbit__onnx_field *field,
                               const char *elements, size_t count)
{
    const size_t each = sbit__onnx_element_bytes(field);
    const uint64_t before = state->out.total;
    if (sbit__onnx_wire_of_element(field) != SBIT__WIRE_VARINT && sbit__onnx_host_is_little()) {
        sbit__wire_put_bytes(&state->out, elements, count * each);
    } else {
        for (size_t i = count; i-- > 0;) {
            sbit__write_number(state, field, elements + i * each);
        }
    }
    sbit__wire_put_varint(&state->out, state->out.total - before);
    sbit__wire_put_tag(&state->out, field->number, SBIT__WIRE_LENGTH);
}

static void sbit__write_repeated(sbit__write_state *state, const sbit__onnx_field *field,
                                 const void *message)
{
    const size_t count = sbit__onnx_count(message, field);
    const size_t each = sbit__onnx_element_bytes(field);
    const char *elements = (const char *)sbit__onnx_pointer(message, field);
    const bool repacked = ((((const sbit_onnx_msg *)message)->repacked >> field->number) & 1u) != 0;
    if (count == 0) {
        return;
    }
    if (field->type < SBIT__ONNX_TEXT && field->packed != repacked) {
        sbit__write_packed(state, field, elements, count);
        return;
    }
    for (size_t i = count; i-- > 0;) {
        const char *element = elements + i * each;
        if (field->type == SBIT__ONNX_MESSAGE) {
            sbit__write_sub(state, field, element);
        } else if (field->type >= SBIT__ONNX_TEXT) {
            sbit_str str;
            memcpy(&str, element, sizeof(str));
            sbit__write_str(state, field, str);
        } else {
            sbit__write_number(state, field, element);
            sbit__wire_put_tag(&state->out, field->number, sbit__onnx_wire_of_element(field));
        }
    }
}

static void sbit__write_singular(sbit__write_state *state, const sbit__onnx_field *field,
                                 const void *message)
{
    if (field->type == SBIT__ONNX_MESSAGE) {
        const void *sub = sbit__onnx_pointer(message, field);
        if (sub != NULL) {
            sbit__write_sub(state, field, sub);
        }
    } else if (!sbit__onnx_has(message, field)) {
        return;
    } else if (field->type >= SBIT__ONNX_TEXT) {
        sbit_str str;
        memcpy(&str, sbit__onnx_member(message, field), sizeof(str));
        sbit__write_str(state, field, str);
    } else {
        sbit__write_number(state, field, sbit__onnx_member(message, field));
        sbit__wire_put_tag(&state->out, field->number, sbit__onnx_wire_of_element(field));
    }
}

/* Fields of a message with numbers from `first` to `last`. */
static void sbit__write_fields(sbit__write_state *state, int kind, const void *message,
                               uint32_t first, uint32_t last)
{
    const sbit__onnx_schema *schema = sbit__onnx_schema_at(kind);
    for (size_t i = schema->field_count; i-- > 0;) {
        const sbit__onnx_field *field = &schema->fields[i];
        if (field->number < first || field->number > last) {
            continue;
        }
        if (field->repeated) {
            sbit__write_repeated(state, field, message);
        } else {
            sbit__write_singular(state, field, message);
        }
    }
}

static void sbit__write_entry(sbit_onnx_string_entry *entry, const char *key, const char *value)
{
    memset(entry, 0, sizeof(*entry));
    SBIT_ONNX_SET(entry, SBIT_ONNX_STRING_ENTRY_KEY, key, sbit__str(key));
    SBIT_ONNX_SET(entry, SBIT_ONNX_STRING_ENTRY_VALUE, value, sbit__str(value));
}

/* A tensor whose bytes move out of the message or into it: all data fields give way. */
static void sbit__write_placed(sbit__write_state *state, const sbit__onnx_place *place)
{
    sbit_onnx_string_entry entries[3];
    char offset[24];
    char length[24];
    sbit_onnx_tensor tensor = *place->tensor;
    tensor.msg.has &= ~(1u << SBIT_ONNX_TENSOR_RAW_DATA | 1u << SBIT_ONNX_TENSOR_DATA_LOCATION);
    tensor.float_data_count = 0;
    tensor.int32_data_count = 0;
    tensor.int64_data_count = 0;
    tensor.double_data_count = 0;
    tensor.uint64_data_count = 0;
    tensor.external_data = NULL;
    tensor.external_data_count = 0;
    if (place->to_file) {
        snprintf(offset, sizeof(offset), "%llu", (unsigned long long)place->offset);
        snprintf(length, sizeof(length), "%llu", (unsigned long long)place->bytes);
        sbit__write_entry(&entries[0], "location", state->plan->location);
        sbit__write_entry(&entries[1], "offset", offset);
        sbit__write_entry(&entries[2], "length", length);
        tensor.external_data = entries;
        tensor.external_data_count = 3;
        SBIT_ONNX_SET(&tensor, SBIT_ONNX_TENSOR_DATA_LOCATION, data_location,
                      (int32_t)SBIT__ONNX_EXTERNAL);
    }
    sbit__write_fields(state, SBIT_ONNX_TENSOR, &tensor, SBIT_ONNX_TENSOR_RAW_DATA, UINT32_MAX);
    if (!place->to_file) {
        sbit__write_refer(state, NULL, place->bytes, place);
        sbit__wire_put_varint(&state->out, place->bytes);
        sbit__wire_put_tag(&state->out, SBIT_ONNX_TENSOR_RAW_DATA, SBIT__WIRE_LENGTH);
    }
    sbit__write_fields(state, SBIT_ONNX_TENSOR, &tensor, 0, SBIT_ONNX_TENSOR_RAW_DATA - 1);
}

static void sbit__write_message(sbit__write_state *state, int kind, const void *message)
{
    const sbit_str unknown = ((const sbit_onnx_msg *)message)->unknown;
    sbit__wire_put_bytes(&state->out, unknown.data, unknown.size);
    if (kind == SBIT_ONNX_TENSOR && state->places_left != 0 &&
        state->plan->places[state->places_left - 1].tensor == message) {
        state->places_left--;
        sbit__write_placed(state, &state->plan->places[state->places_left]);
    } else {
        sbit__write_fields(state, kind, message, 0, UINT32_MAX);
    }
}

/* ---- to memory ---- */

SPARSEBIT_API uint64_t sbit_onnx_measure(sbit_onnx_kind kind, const void *message)
{
    sbit__write_state state;
    memset(&state, 0, sizeof(state));
    sbit__write_message(&state, (int)kind, message);
    return state.out.total;
}

SPARSEBIT_API sbit_status sbit_onnx_write(sbit_onnx_kind kind, const void *message, void *buffer,
                                          size_t capacity, size_t *written, sbit_error *error)
{
    const uint64_t total = sbit_onnx_measure(kind, message);
    sbit__write_state state;
    if (total > capacity) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the message needs %llu bytes, the buffer has %llu",
                          (unsigned long long)total, (unsigned long long)capacity);
    }
    memset(&state, 0, sizeof(state));
    if (total != 0) {
        state.out.begin = (unsigned char *)buffer;
        state.out.p = state.out.begin + (size_t)total;
        sbit__write_message(&state, (int)kind, message);
    }
    *written = (size_t)total;
    return SBIT_OK;
}

/* ---- to files ---- */

typedef struct sbit__write_save {
    sbit_onnx_doc *doc;
    const char *path;
    sbit__arena scratch; /* all memory of the save but the plan's */
    sbit__onnx_plan plan;
    sbit__writer model, data;
    unsigned char *buffer;
    size_t buffer_bytes;
    sbit__write_ref *refs;
    size_t ref_count;
} sbit__write_save;

static sbit_status sbit__write_options(sbit__write_save *save, const sbit_onnx_write_desc *desc,
                                       sbit_error *error)
{
    const char *base = save->path;
    for (const char *p = save->path; *p != '\0'; p++) {
        base = *p == '/' || *p == '\\' ? p + 1 : base;
    }
    const char *name = desc != NULL ? desc->external_name : NULL;
    if (name == NULL) {
        name = sbit__arena_printf(&save->scratch, "%s.data", base);
    } else if (strpbrk(name, "/\\") != NULL || !sbit__onnx_location_is_safe(name, strlen(name)) ||
               strcmp(name, base) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, name,
                          "'%s' cannot name the external file: it must be a plain file name other "
                          "than the model's",
                          name);
    }
    if (name == NULL) {
        return sbit__fail_oom(error, strlen(base));
    }
    save->plan.location = name;
    save->plan.above_bytes = desc != NULL ? desc->external_above_bytes : 0;
    save->plan.align =
        desc != NULL && desc->external_align != 0 ? desc->external_align : SBIT__WRITE_ALIGN;
    return SBIT_OK;
}

/* Measures, allocates once, writes. */
static sbit_status sbit__write_skeleton(sbit__write_save *save, sbit_error *error)
{
    sbit__write_state state;
    const sbit_onnx_doc *doc = save->doc;
    memset(&state, 0, sizeof(state));
    state.plan = &save->plan;
    state.places_left = save->plan.count;
    sbit__write_message(&state, (int)doc->kind, doc->root);
    if (state.out.total > SBIT__WRITE_MESSAGE_BYTES) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the message has %llu bytes, above protobuf's 2 GB; move weights to an "
                          "external file (external_above_bytes)",
                          (unsigned long long)state.out.total);
    }
    save->buffer_bytes = (size_t)(state.out.total - state.ref_bytes);
    save->buffer = (unsigned char *)sbit__arena_alloc(&save->scratch, save->buffer_bytes);
    save->refs = (sbit__write_ref *)sbit__arena_array(&save->scratch, state.ref_count,
                                                      sizeof(sbit__write_ref));
    if (save->buffer == NULL || save->refs == NULL) {
        return sbit__fail_oom(error, save->buffer_bytes);
    }
    memset(&state, 0, sizeof(state));
    state.plan = &save->plan;
    state.places_left = save->plan.count;
    state.refs = save->refs;
    state.out.begin = save->buffer;
    state.out.p = save->buffer + save->buffer_bytes;
    sbit__write_message(&state, (int)doc->kind, doc->root);
    save->ref_count = state.ref_count;
    return SBIT_OK;
}

static sbit_status sbit__write_put_ref(sbit__write_save *save, const sbit__write_ref *ref,
                                       sbit_error *error)
{
    if (ref->place == NULL) {
        return sbit__writer_put(&save->model, ref->data, ref->size, error);
    }
    sbit__file file;
    SBIT__TRY(sbit__onnx_external_open(save->doc, ref->place->tensor, &file, error));
    const sbit_status status = sbit__writer_put(&save->model, file.data, file.size, error);
    sbit__file_close(&file);
    return status;
}

/* The references were met from the end: the last one comes first in the file. */
static sbit_status sbit__write_model(sbit__write_save *save, sbit_error *error)
{
    size_t done = 0;
    for (size_t i = save->ref_count; i-- > 0;) {
        const size_t until = save->buffer_bytes - save->refs[i].tail;
        SBIT__TRY(sbit__writer_put(&save->model, save->buffer + done, until - done, error));
        SBIT__TRY(sbit__write_put_ref(save, &save->refs[i], error));
        done = until;
    }
    return sbit__writer_put(&save->model, save->buffer + done, save->buffer_bytes - done, error);
}

static sbit_status sbit__write_open_data(sbit__write_save *save, sbit_error *error)
{
    const char *folder = sbit__onnx_folder_of(&save->scratch, save->path);
    const char *path =
        folder != NULL ? sbit__arena_printf(&save->scratch, "%s/%s", folder, save->plan.location)
                       : NULL;
    if (path == NULL) {
        return sbit__fail_oom(error, strlen(save->path));
    }
    return sbit__writer_open(&save->plan.allocator, path, &save->data, error);
}

/* Both files are complete before the first of them takes its place. */
static sbit_status sbit__write_body(sbit__write_save *save, const sbit_onnx_write_desc *desc,
                                    sbit_error *error)
{
    SBIT__TRY(sbit__write_options(save, desc, error));
    SBIT__TRY(sbit__onnx_plan_build(&save->plan, save->doc, error));
    SBIT__TRY(sbit__write_skeleton(save, error));
    SBIT__TRY(sbit__writer_open(&save->plan.allocator, save->path, &save->model, error));
    SBIT__TRY(sbit__write_model(save, error));
    if (save->plan.file_bytes != 0) {
        SBIT__TRY(sbit__write_open_data(save, error));
        SBIT__TRY(sbit__onnx_plan_write(&save->plan, save->doc, &save->data, error));
        SBIT__TRY(sbit__writer_commit(&save->data, error));
    }
    return sbit__writer_commit(&save->model, error);
}

SPARSEBIT_API sbit_status sbit_onnx_save(sbit_onnx_doc *doc, const char *path,
                                         const sbit_onnx_write_desc *desc, sbit_error *error)
{
    const sbit_allocator *allocator = &doc->arena.allocator;
    sbit__write_save save;
    memset(&save, 0, sizeof(save));
    save.doc = doc;
    save.path = path;
    save.plan.allocator = *allocator;
    sbit__arena_init(&save.scratch, allocator);
    const sbit_status status = sbit__write_body(&save, desc, error);
    sbit__writer_abort(&save.data); /* no effect on a writer that was committed or never opened */
    sbit__writer_abort(&save.model);
    sbit__free(allocator, save.plan.places, save.plan.capacity * sizeof(sbit__onnx_place));
    sbit__arena_deinit(&save.scratch);
    return status;
}
#undef SBIT__WRITE_REF_BYTES
#undef SBIT__WRITE_MESSAGE_BYTES
#undef SBIT__WRITE_ALIGN
