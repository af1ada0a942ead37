/* read.c: documents, and reading messages into them. >>read
 *
 * Called by: users, import. Calls: wire, schema, arena, files.
 * Does: fill the structs of onnx_api.h from bytes that may be hostile. Every message is gone
 * through twice: the first pass counts elements, so that each array is allocated once and never
 * larger than the input justifies; the second fills them. The first pass skips sub-messages, so
 * every tag is decoded twice, whatever the depth.
 * Does not: judge what a model means (see check), nor read external data.
 *
 * proto2 rules kept: a singular sub-message that comes again is merged, any other singular field
 * takes the last value, a oneof keeps its last member, packed and unpacked lists are both
 * accepted, a known number with a foreign wire type is an unknown field.
 */
#include "onnx_private.h"

#include <stdio.h> /* snprintf: field paths */

#define SBIT__READ_DEPTH 100u
#define SBIT__READ_DEPTH_MAX 1000u /* bounds the C stack: below 1 KiB a level */
#define SBIT__READ_ARENA_BYTES ((size_t)1 << 30)
#define SBIT__READ_TEXT_CHUNK ((size_t)4096)
#define SBIT__READ_SINGULAR SIZE_MAX

/* Where the reader is, for error messages: a list from the innermost field outwards. */
typedef struct sbit__read_frame {
    const struct sbit__read_frame *up;
    const sbit__onnx_field *field;
    size_t idx; /* or SBIT__READ_SINGULAR */
} sbit__read_frame;

typedef struct sbit__read_state {
    sbit__arena *arena;
    const unsigned char *base; /* of the whole input, for offsets */
    char *text;                /* free rest of a chunk for short texts */
    size_t text_left;
    sbit_error *error;
} sbit__read_state;

/* One message that is being read. */
typedef struct sbit__read_scope {
    const sbit__onnx_schema *schema;
    void *message;
    const unsigned char *p, *end;
    const sbit__read_frame *frame;
    uint32_t depth; /* levels that may still be opened */
} sbit__read_scope;

/* Fields that the schema does not know, of one message. */
typedef struct sbit__read_unknown {
    const unsigned char *first, *last; /* start of the first, end of the last */
    size_t bytes;
    char *to; /* where the next one is copied; NULL: msg.unknown is a view already */
} sbit__read_unknown;

static sbit_status sbit__read_message(sbit__read_state *state, sbit__read_scope scope);

/* ---- errors ---- */

static size_t sbit__read_path(const sbit__read_frame *frame, char *path, size_t capacity)
{
    const size_t used = frame->up != NULL ? sbit__read_path(frame->up, path, capacity) : 0;
    const bool indexed = frame->idx != SBIT__READ_SINGULAR;
    char idx[32];
    snprintf(idx, sizeof(idx), "[%llu]", (unsigned long long)frame->idx);
    const int size = snprintf(path + used, capacity - used, "%s%s%s", used != 0 ? "." : "",
                              frame->field->name, indexed ? idx : "");
    return size < 0 ? used : (size_t)size < capacity - used ? used + (size_t)size : capacity - 1;
}

static sbit_status sbit__read_fail(const sbit__read_state *state, const sbit__read_frame *frame,
                                   sbit_status status, const unsigned char *at, const char *problem)
{
    char path[256] = "the message";
    if (frame != NULL) {
        sbit__read_path(frame, path, sizeof(path));
    }
    return sbit__fail_at(state->error, status, (uint64_t)(at - state->base), "%s: %s", path,
                         problem);
}

SBIT__FN sbit_status sbit__onnx_arena_fail(const sbit__arena *arena, size_t bytes,
                                           sbit_error *error)
{
    if (arena->limit_bytes != 0 && bytes + 64 > arena->limit_bytes - arena->used_bytes) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the message's structs and texts exceed the limit of %llu bytes",
                          (unsigned long long)arena->limit_bytes);
    }
    return sbit__fail_oom(error, bytes);
}

/* ---- fields ---- */

/* Fields mostly come in the order of the rows: the search starts at the row found last. */
static const sbit__onnx_field *sbit__read_find(const sbit__onnx_schema *schema, uint32_t number,
                                               size_t *hint)
{
    for (size_t i = 0; i < schema->field_count; i++) {
        const size_t row =
            *hint + i < schema->field_count ? *hint + i : *hint + i - schema->field_count;
        if (schema->fields[row].number == number) {
            *hint = row;
            return &schema->fields[row];
        }
    }
    return NULL;
}

static bool sbit__read_is_packed(const sbit__onnx_field *field, const sbit__wire_item *item)
{
    return field->repeated && field->type < SBIT__ONNX_TEXT && item->wire == SBIT__WIRE_LENGTH;
}

/* Decodes the field at scope->p, moves on, and gives its row; *field NULL: unknown. */
static sbit_status sbit__read_next(const sbit__read_state *state, sbit__read_scope *scope,
                                   size_t *hint, sbit__wire_item *item,
                                   const sbit__onnx_field **field)
{
    const char *problem = sbit__wire_next(scope->p, scope->end, scope->depth, item);
    const sbit__onnx_field *row = sbit__read_find(scope->schema, item->number, hint);
    if (problem == NULL && item->wire == SBIT__WIRE_GROUP_END) {
        problem = "a group ends here that did not start";
    }
    if (problem != NULL) {
        sbit__read_frame frame;
        frame.up = scope->frame;
        frame.field = row;
        frame.idx = SBIT__READ_SINGULAR;
        return sbit__read_fail(state, row != NULL ? &frame : scope->frame, SBIT_ERR_PARSE,
                               item->end, problem);
    }
    scope->p = item->end;
    if (row != NULL && item->wire != sbit__onnx_wire_of_element(row) &&
        !sbit__read_is_packed(row, item)) {
        row = NULL;
    }
    *field = row;
    return SBIT_OK;
}

static sbit_status sbit__read_count_packed(const sbit__read_state *state,
                                           const sbit__read_scope *scope,
                                           const sbit__onnx_field *field,
                                           const sbit__wire_item *item, size_t *count)
{
    const size_t each = sbit__onnx_element_bytes(field);
    bool whole = true;
    if (sbit__onnx_wire_of_element(field) == SBIT__WIRE_VARINT) {
        whole = sbit__wire_count_varints(item->data, item->size, count);
    } else {
        *count = item->size / each;
        whole = item->size % each == 0;
    }
    if (whole) {
        return SBIT_OK;
    }
    sbit__read_frame frame;
    frame.up = scope->frame;
    frame.field = field;
    frame.idx = *count;
    return sbit__read_fail(state, &frame, SBIT_ERR_PARSE, item->end,
                           "the last element of the packed list is cut off");
}

/* First pass: how many elements each repeated field gets, how many bytes are unknown. */
static sbit_status sbit__read_count(const sbit__read_state *state, sbit__read_scope scope,
                                    size_t counts[SBIT__ONNX_MAX_FIELDS],
                                    sbit__read_unknown *unknown)
{
    size_t hint = 0;
    while (scope.p < scope.end) {
        sbit__wire_item item;
        const sbit__onnx_field *field = NULL;
        size_t count = 1;
        SBIT__TRY(sbit__read_next(state, &scope, &hint, &item, &field));
        if (field == NULL) {
            unknown->first = unknown->bytes == 0 ? item.start : unknown->first;
            unknown->last = item.end;
            unknown->bytes += (size_t)(item.end - item.start);
            continue;
        }
        if (sbit__read_is_packed(field, &item)) {
            SBIT__TRY(sbit__read_count_packed(state, &scope, field, &item, &count));
        }
        counts[hint] += count;
    }
    return SBIT_OK;
}

/* Makes room behind the elements that a merged message may have already. */
static sbit_status sbit__read_reserve(sbit__read_state *state, void *message,
                                      const sbit__onnx_field *field, size_t extra)
{
    const size_t old_count = sbit__onnx_count(message, field);
    const size_t each = sbit__onnx_element_bytes(field);
    const void *old_elements = sbit__onnx_pointer(message, field);
    size_t count = 0;
    void *elements = NULL;
    if (sbit__add_size(old_count, extra, &count)) {
        elements = sbit__arena_array(state->arena, count, each);
    }
    if (elements == NULL) {
        size_t bytes = SIZE_MAX / 2;
        sbit__mul_size(count, each, &bytes);
        return sbit__onnx_arena_fail(state->arena, bytes, state->error);
    }
    if (old_count != 0) {
        memcpy(elements, old_elements, old_count * each);
    }
    memcpy((char *)message + field->offset, &elements, sizeof(elements));
    return SBIT_OK;
}

/* One run of unknown fields is viewed where it lies; several are joined in the arena. */
static sbit_status sbit__read_reserve_unknown(sbit__read_state *state, sbit_onnx_msg *msg,
                                              sbit__read_unknown *unknown)
{
    const sbit_str old = msg->unknown;
    if (unknown->bytes == 0) {
        return SBIT_OK;
    }
    if (old.size == 0 && (size_t)(unknown->last - unknown->first) == unknown->bytes) {
        msg->unknown.data = (const char *)unknown->first;
        msg->unknown.size = unknown->bytes;
        return SBIT_OK;
    }
    size_t bytes = 0;
    char *joined = NULL;
    if (sbit__add_size(old.size, unknown->bytes, &bytes)) {
        joined = (char *)sbit__arena_alloc(state->arena, bytes);
    }
    if (joined == NULL) {
        return sbit__onnx_arena_fail(state->arena, bytes, state->error);
    }
    if (old.size != 0) {
        memcpy(joined, old.data, old.size);
    }
    unknown->to = joined + old.size;
    msg->unknown.data = joined;
    msg->unknown.size = bytes;
    return SBIT_OK;
}

/* ---- values ---- */

static sbit_status sbit__read_str(sbit__read_state *state, bool text, const sbit__wire_item *item,
                                  sbit_str *out)
{
    out->data = (const char *)item->data;
    out->size = item->size;
    if (!text) {
        return SBIT_OK;
    }
    size_t bytes = 0;
    char *copy = NULL;
    if (sbit__add_size(item->size, 1, &bytes) && bytes > SBIT__READ_TEXT_CHUNK / 8) {
        copy = (char *)sbit__arena_alloc(state->arena, bytes);
    } else {
        if (bytes > state->text_left) {
            state->text = (char *)sbit__arena_alloc(state->arena, SBIT__READ_TEXT_CHUNK);
            state->text_left = state->text != NULL ? SBIT__READ_TEXT_CHUNK : 0;
        }
        copy = state->text;
        if (copy != NULL) {
            state->text += bytes;
            state->text_left -= bytes;
        }
    }
    if (copy == NULL) {
        return sbit__onnx_arena_fail(state->arena,
                                     bytes > SBIT__READ_TEXT_CHUNK ? bytes : SBIT__READ_TEXT_CHUNK,
                                     state->error);
    }
    memcpy(copy, item->data, item->size); /* the NUL behind it: arenas are zeroed */
    out->data = copy;
    return SBIT_OK;
}

static void sbit__read_number(const sbit__onnx_field *field, uint64_t value, void *to)
{
    if (field->type == SBIT__ONNX_INT32 || field->type == SBIT__ONNX_FLOAT) {
        const uint32_t low = (uint32_t)value; /* int32: the upper half is sign extension */
        memcpy(to, &low, sizeof(low));
    } else {
        memcpy(to, &value, sizeof(value));
    }
}

/* Elements of a packed list, counted before. Returns where a varint is too long, or NULL. */
static const unsigned char *sbit__read_packed(const sbit__onnx_field *field,
                                              const sbit__wire_item *item, char *to)
{
    const size_t each = sbit__onnx_element_bytes(field);
    const unsigned char *p = item->data;
    if (sbit__onnx_wire_of_element(field) == SBIT__WIRE_VARINT) {
        for (; p < item->end; to += each) {
            uint64_t value = 0;
            if (!sbit__wire_varint(&p, item->end, &value)) {
                return p;
            }
            sbit__read_number(field, value, to);
        }
    } else if (sbit__onnx_host_is_little()) {
        if (item->size != 0) {
            memcpy(to, p, item->size);
        }
    } else {
        for (; p < item->end; p += each, to += each) {
            sbit__read_number(field, each == 8 ? sbit__wire_load64(p) : sbit__wire_load32(p), to);
        }
    }
    return NULL;
}

static sbit_status sbit__read_sub(sbit__read_state *state, const sbit__read_scope *scope,
                                  const sbit__onnx_field *field, const sbit__wire_item *item,
                                  size_t idx, void *message)
{
    sbit__read_frame frame;
    sbit__read_scope sub;
    frame.up = scope->frame;
    frame.field = field;
    frame.idx = idx;
    if (scope->depth == 0) {
        return sbit__read_fail(state, &frame, SBIT_ERR_LIMIT, item->start,
                               "messages are nested too deeply");
    }
    sub.schema = sbit__onnx_schema_at(field->kind);
    sub.message = message;
    sub.p = item->data;
    sub.end = item->data + item->size;
    sub.frame = &frame;
    sub.depth = scope->depth - 1;
    return sbit__read_message(state, sub);
}

static sbit_status sbit__read_repeated(sbit__read_state *state, const sbit__read_scope *scope,
                                       const sbit__onnx_field *field, const sbit__wire_item *item)
{
    sbit_onnx_msg *msg = (sbit_onnx_msg *)scope->message;
    const size_t each = sbit__onnx_element_bytes(field);
    char *elements = NULL;
    size_t count = sbit__onnx_count(msg, field);
    memcpy(&elements, (char *)scope->message + field->offset, sizeof(elements));
    char *to = elements != NULL ? elements + count * each : NULL; /* NULL: an empty packed list */
    size_t added = 1;
    if (field->type == SBIT__ONNX_MESSAGE) {
        SBIT__TRY(sbit__read_sub(state, scope, field, item, count, to));
    } else if (field->type >= SBIT__ONNX_TEXT) {
        SBIT__TRY(
            sbit__read_str(state, field->type == SBIT__ONNX_TEXT, item, (sbit_str *)(void *)to));
    } else if (sbit__read_is_packed(field, item)) {
        SBIT__TRY(sbit__read_count_packed(state, scope, field, item, &added));
        const unsigned char *bad = added != 0 ? sbit__read_packed(field, item, to) : NULL;
        if (bad != NULL) {
            return sbit__read_fail(state, scope->frame, SBIT_ERR_PARSE, bad,
                                   "a varint of a packed list is longer than 10 bytes");
        }
    } else {
        sbit__read_number(field, item->value, to);
    }
    if (field->type < SBIT__ONNX_TEXT && sbit__read_is_packed(field, item) != field->packed) {
        msg->repacked |= 1u << field->number;
    }
    count += added;
    memcpy((char *)scope->message + field->count_offset, &count, sizeof(count));
    return SBIT_OK;
}

static void sbit__read_clear_oneof(const sbit__read_scope *scope, const sbit__onnx_field *keep)
{
    sbit_onnx_msg *msg = (sbit_onnx_msg *)scope->message;
    for (size_t i = 0; i < scope->schema->field_count; i++) {
        const sbit__onnx_field *field = &scope->schema->fields[i];
        if (!field->oneof || field == keep) {
            continue;
        }
        msg->has &= ~(1u << field->number);
        if (field->type == SBIT__ONNX_MESSAGE) {
            const void *none = NULL;
            memcpy((char *)scope->message + field->offset, &none, sizeof(none));
        }
    }
}

static sbit_status sbit__read_singular(sbit__read_state *state, const sbit__read_scope *scope,
                                       const sbit__onnx_field *field, const sbit__wire_item *item)
{
    sbit_onnx_msg *msg = (sbit_onnx_msg *)scope->message;
    char *member = (char *)scope->message + field->offset;
    if (field->oneof) {
        sbit__read_clear_oneof(scope, field);
    }
    if (field->type != SBIT__ONNX_MESSAGE) {
        msg->has |= 1u << field->number;
        if (field->type >= SBIT__ONNX_TEXT) {
            return sbit__read_str(state, field->type == SBIT__ONNX_TEXT, item,
                                  (sbit_str *)(void *)member);
        }
        sbit__read_number(field, item->value, member);
        return SBIT_OK;
    }
    void *sub = NULL;
    memcpy(&sub, member, sizeof(sub));
    if (sub == NULL) {
        const size_t size = sbit__onnx_schema_at(field->kind)->size;
        sub = sbit__arena_alloc(state->arena, size);
        if (sub == NULL) {
            return sbit__onnx_arena_fail(state->arena, size, state->error);
        }
        memcpy(member, &sub, sizeof(sub));
    }
    return sbit__read_sub(state, scope, field, item, SBIT__READ_SINGULAR, sub);
}

/* Second pass. */
static sbit_status sbit__read_fill(sbit__read_state *state, sbit__read_scope scope,
                                   sbit__read_unknown *unknown)
{
    size_t hint = 0;
    while (scope.p < scope.end) {
        sbit__wire_item item;
        const sbit__onnx_field *field = NULL;
        SBIT__TRY(sbit__read_next(state, &scope, &hint, &item, &field));
        if (field == NULL) {
            if (unknown->to != NULL) {
                const size_t size = (size_t)(item.end - item.start);
                memcpy(unknown->to, item.start, size);
                unknown->to += size;
            }
        } else if (field->repeated) {
            SBIT__TRY(sbit__read_repeated(state, &scope, field, &item));
        } else {
            SBIT__TRY(sbit__read_singular(state, &scope, field, &item));
        }
    }
    return SBIT_OK;
}

/* Reads into `message`, which is zeroed or already holds fields that the new ones are merged to. */
static sbit_status sbit__read_message(sbit__read_state *state, sbit__read_scope scope)
{
    sbit__read_unknown unknown;
    memset(&unknown, 0, sizeof(unknown));
    {
        size_t counts[SBIT__ONNX_MAX_FIELDS];
        memset(counts, 0, sizeof(counts));
        SBIT__TRY(sbit__read_count(state, scope, counts, &unknown));
        for (size_t i = 0; i < scope.schema->field_count; i++) {
            if (scope.schema->fields[i].repeated && counts[i] != 0) {
                SBIT__TRY(
                    sbit__read_reserve(state, scope.message, &scope.schema->fields[i], counts[i]));
            }
        }
    }
    SBIT__TRY(sbit__read_reserve_unknown(state, (sbit_onnx_msg *)scope.message, &unknown));
    return sbit__read_fill(state, scope, &unknown);
}

/* ---- documents ---- */

SBIT__FN const char *sbit__onnx_folder_of(sbit__arena *arena, const char *path)
{
    size_t size = 0;
    for (size_t i = 0; path[i] != '\0'; i++) {
#if defined(_WIN32)
        const bool separator = path[i] == '/' || path[i] == '\\';
#else
        const bool separator = path[i] == '/';
#endif
        size = separator ? (i == 0 ? 1 : i) : size; /* "/model.onnx" lies in "/" */
    }
    return size != 0 ? sbit__arena_strdup(arena, path, size) : ".";
}

static sbit_status sbit__onnx_doc_init(const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                       sbit_error *error)
{
    if (!sbit__allocator_valid(&desc->allocator)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the allocator must set all three functions or none");
    }
    if ((uint32_t)desc->kind >= (uint32_t)SBIT_ONNX_KIND_COUNT) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "no message kind has number %d",
                          (int)desc->kind);
    }
    const sbit_allocator allocator = sbit__allocator_or_default(&desc->allocator);
    sbit_onnx_doc *doc = (sbit_onnx_doc *)sbit__calloc(&allocator, 1, sizeof(sbit_onnx_doc));
    if (doc == NULL) {
        return sbit__fail_oom(error, sizeof(sbit_onnx_doc));
    }
    sbit__arena_init(&doc->arena, &allocator);
    sbit__map_init(&doc->range_of, &allocator);
    doc->kind = desc->kind == SBIT_ONNX_STRING_ENTRY ? SBIT_ONNX_MODEL : desc->kind;
    doc->folder = ".";
    doc->root = sbit__arena_alloc(&doc->arena, sbit__onnx_schema_at((int)doc->kind)->size);
    if (doc->root == NULL) {
        sbit_onnx_destroy(doc);
        return sbit__fail_oom(error, sbit__onnx_schema_at((int)desc->kind)->size);
    }
    *out = doc;
    return SBIT_OK;
}

static sbit_status sbit__onnx_doc_read(sbit_onnx_doc *doc, const void *bytes, size_t size,
                                       const sbit_onnx_read_desc *desc, sbit_error *error)
{
    static const unsigned char nothing[1] = {0};
    const uint32_t depth = desc->max_depth == 0 ? SBIT__READ_DEPTH : desc->max_depth;
    sbit__read_state state;
    sbit__read_scope scope;
    if (desc->max_file_bytes != 0 && size > desc->max_file_bytes) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the input of %llu bytes exceeds the limit of %llu bytes",
                          (unsigned long long)size, (unsigned long long)desc->max_file_bytes);
    }
    doc->arena.limit_bytes = desc->max_arena_bytes;
    if (desc->max_arena_bytes == 0 &&
        (!sbit__mul_size(size, 8, &doc->arena.limit_bytes) ||
         !sbit__add_size(doc->arena.limit_bytes, SBIT__READ_ARENA_BYTES,
                         &doc->arena.limit_bytes))) {
        doc->arena.limit_bytes = SIZE_MAX;
    }
    state.arena = &doc->arena;
    state.base = size != 0 ? (const unsigned char *)bytes : nothing;
    state.text = NULL;
    state.text_left = 0;
    state.error = error;
    scope.schema = sbit__onnx_schema_at((int)doc->kind);
    scope.message = doc->root;
    scope.p = state.base;
    scope.end = state.base + size;
    scope.frame = NULL;
    scope.depth = (depth < SBIT__READ_DEPTH_MAX ? depth : SBIT__READ_DEPTH_MAX) - 1;
    const sbit_status status = sbit__read_message(&state, scope);
    const bool empty = doc->kind == SBIT_ONNX_MODEL && sbit_onnx_doc_model(doc)->graph == NULL;
    const char *other = status != SBIT_OK || empty ? sbit__onnx_magic(state.base, size) : NULL;
    if (other != NULL && (status == SBIT_OK || status == SBIT_ERR_PARSE)) {
        return sbit__fail(error, SBIT_ERR_PARSE, "0", "the file is no ONNX %s, but %s",
                          doc->kind == SBIT_ONNX_MODEL ? "model" : "file", other);
    }
    SBIT__TRY(status);
    doc->arena.limit_bytes = 0; /* it bounds what input makes us allocate, not the document's use */
    return SBIT_OK;
}

static sbit_status sbit__onnx_doc_load(sbit_onnx_doc *doc, const char *path,
                                       const sbit_onnx_read_desc *desc, sbit_error *error)
{
    doc->folder = sbit__onnx_folder_of(&doc->arena, path);
    if (doc->folder == NULL) {
        return sbit__fail_oom(error, strlen(path));
    }
    SBIT__TRY(sbit__file_open(&doc->arena.allocator, path, &doc->file, error));
    return sbit__onnx_doc_read(doc, doc->file.data, doc->file.size, desc, error);
}

SPARSEBIT_API sbit_status sbit_onnx_load(const char *path, const sbit_onnx_read_desc *desc,
                                         sbit_onnx_doc **out, sbit_error *error)
{
    sbit_onnx_read_desc defaults;
    sbit_onnx_doc *doc = NULL;
    memset(&defaults, 0, sizeof(defaults));
    desc = desc != NULL ? desc : &defaults;
    SBIT__TRY(sbit__onnx_doc_init(desc, &doc, error));
    const sbit_status status = sbit__onnx_doc_load(doc, path, desc, error);
    if (status != SBIT_OK) {
        sbit_onnx_destroy(doc);
        return status;
    }
    *out = doc;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_onnx_read(const void *bytes, size_t size,
                                         const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                         sbit_error *error)
{
    sbit_onnx_read_desc defaults;
    sbit_onnx_doc *doc = NULL;
    memset(&defaults, 0, sizeof(defaults));
    desc = desc != NULL ? desc : &defaults;
    SBIT__TRY(sbit__onnx_doc_init(desc, &doc, error));
    const sbit_status status = sbit__onnx_doc_read(doc, bytes, size, desc, error);
    if (status != SBIT_OK) {
        sbit_onnx_destroy(doc);
        return status;
    }
    *out = doc;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_onnx_create(const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                           sbit_error *error)
{
    sbit_onnx_read_desc defaults;
    sbit_onnx_doc *doc = NULL;
    memset(&defaults, 0, sizeof(defaults));
    desc = desc != NULL ? desc : &defaults;
    SBIT__TRY(sbit__onnx_doc_init(desc, &doc, error));
    doc->arena.limit_bytes = desc->max_arena_bytes;
    *out = doc;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_onnx_destroy(sbit_onnx_doc *doc)
{
    if (doc == NULL) {
        return;
    }
    const sbit_allocator allocator = doc->arena.allocator;
    sbit__onnx_external_close_all(doc);
    sbit__file_close(&doc->file);
    sbit__arena_deinit(&doc->arena);
    sbit__free(&allocator, doc, sizeof(sbit_onnx_doc));
}

SPARSEBIT_API sbit_onnx_kind sbit_onnx_doc_kind(const sbit_onnx_doc *doc)
{
    return doc->kind;
}

SPARSEBIT_API void *sbit_onnx_doc_root(sbit_onnx_doc *doc)
{
    return doc->root;
}

SPARSEBIT_API sbit_onnx_model *sbit_onnx_doc_model(sbit_onnx_doc *doc)
{
    return doc->kind == SBIT_ONNX_MODEL ? (sbit_onnx_model *)doc->root : NULL;
}

SPARSEBIT_API const char *sbit_onnx_doc_folder(const sbit_onnx_doc *doc)
{
    return doc->folder;
}

SPARSEBIT_API void *sbit_onnx_alloc(sbit_onnx_doc *doc, size_t count, size_t bytes_each)
{
    return sbit__arena_array(&doc->arena, count, bytes_each);
}

SPARSEBIT_API sbit_status sbit_onnx_text(sbit_onnx_doc *doc, const char *text, size_t size,
                                         sbit_str *out, sbit_error *error)
{
    char *copy = sbit__arena_strdup(&doc->arena, text, size);
    if (copy == NULL) {
        return sbit__onnx_arena_fail(&doc->arena, size, error);
    }
    out->data = copy;
    out->size = size;
    return SBIT_OK;
}
#undef SBIT__READ_DEPTH
#undef SBIT__READ_DEPTH_MAX
#undef SBIT__READ_ARENA_BYTES
#undef SBIT__READ_TEXT_CHUNK
#undef SBIT__READ_SINGULAR
