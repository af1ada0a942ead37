/* print.c: messages as text, in the style of protobuf's text format. >>print
 *
 * Called by: users (debugging), tools. Calls: schema.
 *     name: value        numbers, "text" with C escapes
 *     name {             sub-messages, two spaces a level
 * Lists of numbers and texts stop after max_elements elements, bytes after max_elements bytes,
 * followed by "# N more"; 0 prints all. Without cuts and unknown fields the output can be read
 * back by protobuf. Allocates nothing.
 */
#include "onnx_private.h"

#include <stdio.h> /* snprintf: numbers */

typedef struct sbit__print_state {
    void (*put)(const char *text, size_t size, void *user);
    void *user;
    uint32_t max_elements;
} sbit__print_state;

static void sbit__print_message(const sbit__print_state *state, int kind, const void *message,
                                unsigned depth);

static void sbit__print_text(const sbit__print_state *state, const char *text)
{
    state->put(text, strlen(text), state->user);
}

static void sbit__print_indent(const sbit__print_state *state, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++) {
        state->put("  ", 2, state->user);
    }
}

static void sbit__print_more(const sbit__print_state *state, size_t count, unsigned depth)
{
    char line[64];
    snprintf(line, sizeof(line), "# %llu more\n", (unsigned long long)count);
    sbit__print_indent(state, depth);
    sbit__print_text(state, line);
}

/* Octal escapes for what is not printable ASCII: always three digits, so nothing can follow on. */
static void sbit__print_quoted(const sbit__print_state *state, const char *data, size_t size)
{
    char piece[256];
    size_t used = 0;
    state->put("\"", 1, state->user);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)data[i];
        if (used + 8 > sizeof(piece)) {
            state->put(piece, used, state->user);
            used = 0;
        }
        if (c == '"' || c == '\\') {
            piece[used++] = '\\';
            piece[used++] = (char)c;
        } else if (c == '\n') {
            piece[used++] = '\\';
            piece[used++] = 'n';
        } else if (c < 0x20 || c >= 0x7f) {
            piece[used++] = '\\';
            piece[used++] = (char)('0' + (c >> 6));
            piece[used++] = (char)('0' + (c >> 3 & 7));
            piece[used++] = (char)('0' + (c & 7));
        } else {
            piece[used++] = (char)c;
        }
    }
    state->put(piece, used, state->user);
    state->put("\"", 1, state->user);
}

static void sbit__print_number(const sbit__print_state *state, const sbit__onnx_field *field,
                               const void *value)
{
    char text[48];
    int32_t i32 = 0;
    int64_t i64 = 0;
    uint64_t u64 = 0;
    float f32 = 0;
    double f64 = 0;
    switch (field->type) {
    case SBIT__ONNX_INT32:
        memcpy(&i32, value, sizeof(i32));
        snprintf(text, sizeof(text), "%d", (int)i32);
        break;
    case SBIT__ONNX_INT64:
        memcpy(&i64, value, sizeof(i64));
        snprintf(text, sizeof(text), "%lld", (long long)i64);
        break;
    case SBIT__ONNX_UINT64:
        memcpy(&u64, value, sizeof(u64));
        snprintf(text, sizeof(text), "%llu", (unsigned long long)u64);
        break;
    case SBIT__ONNX_FLOAT:
        memcpy(&f32, value, sizeof(f32));
        sbit__format_f64((double)f32, true, text);
        break;
    default:
        memcpy(&f64, value, sizeof(f64));
        sbit__format_f64(f64, false, text);
        break;
    }
    sbit__print_text(state, text);
}

/* One element, with the field's name in front. */
static void sbit__print_element(const sbit__print_state *state, const sbit__onnx_field *field,
                                const void *element, unsigned depth)
{
    sbit__print_indent(state, depth);
    sbit__print_text(state, field->name);
    if (field->type == SBIT__ONNX_MESSAGE) {
        sbit__print_text(state, " {\n");
        sbit__print_message(state, field->kind, element, depth + 1);
        sbit__print_indent(state, depth);
        sbit__print_text(state, "}\n");
        return;
    }
    sbit__print_text(state, ": ");
    if (field->type < SBIT__ONNX_TEXT) {
        sbit__print_number(state, field, element);
        sbit__print_text(state, "\n");
        return;
    }
    sbit_str str;
    memcpy(&str, element, sizeof(str));
    const bool cut = field->type == SBIT__ONNX_BYTES && state->max_elements != 0 &&
                     str.size > state->max_elements;
    const size_t shown = cut ? state->max_elements : str.size;
    sbit__print_quoted(state, str.data, shown);
    sbit__print_text(state, "\n");
    if (cut) {
        sbit__print_more(state, str.size - shown, depth);
    }
}

static void sbit__print_message(const sbit__print_state *state, int kind, const void *message,
                                unsigned depth)
{
    const sbit__onnx_schema *schema = sbit__onnx_schema_at(kind);
    const sbit_str unknown = ((const sbit_onnx_msg *)message)->unknown;
    for (size_t i = 0; i < schema->field_count; i++) {
        const sbit__onnx_field *field = &schema->fields[i];
        const char *elements = (const char *)sbit__onnx_member(message, field);
        size_t count = sbit__onnx_has(message, field) ? 1 : 0;
        if (field->repeated || field->type == SBIT__ONNX_MESSAGE) {
            elements = (const char *)sbit__onnx_pointer(message, field);
            count = field->repeated ? sbit__onnx_count(message, field)
                                    : (size_t)(elements != NULL ? 1 : 0);
        }
        const size_t each = sbit__onnx_element_bytes(field);
        const bool cut = field->type != SBIT__ONNX_MESSAGE && state->max_elements != 0 &&
                         count > state->max_elements;
        const size_t shown = cut ? state->max_elements : count;
        for (size_t j = 0; j < shown; j++) {
            sbit__print_element(state, field, elements + j * each, depth);
        }
        if (cut) {
            sbit__print_more(state, count - shown, depth);
        }
    }
    if (unknown.size != 0) {
        char line[64];
        snprintf(line, sizeof(line), "# %llu bytes of unknown fields\n",
                 (unsigned long long)unknown.size);
        sbit__print_indent(state, depth);
        sbit__print_text(state, line);
    }
}

SPARSEBIT_API void sbit_onnx_print(sbit_onnx_kind kind, const void *message, uint32_t max_elements,
                                   void (*put)(const char *text, size_t size, void *user),
                                   void *user)
{
    sbit__print_state state;
    state.put = put;
    state.user = user;
    state.max_elements = max_elements;
    sbit__print_message(&state, (int)kind, message, 0);
}
