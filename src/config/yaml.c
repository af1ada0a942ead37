/* yaml.c: the subset of YAML 1.2 that configuration files use. >>yaml
 *
 * Reads block and flow maps and lists, plain and quoted scalars on one line, comments, multi-line
 * flow collections. Rejects, with line and column, what it does not read: anchors, aliases, tags,
 * directives, block scalars, complex keys, tabs as indentation, duplicate keys, a second document.
 *
 * The cursor walks the text once. A block collection owns the column of its first token: entries
 * stand in exactly that column, deeper ones belong to the entry before, shallower ones end it.
 */
#include "config_private.h"

#include <stdlib.h> /* qsort */

#define SBIT__YAML_MAX_BYTES ((size_t)1 << 24)
#define SBIT__YAML_MAX_DEPTH 64

struct sbit_yaml_doc {
    sbit__arena arena;
    sbit_yaml root;
};

typedef struct sbit__yaml_cursor {
    sbit__arena *arena;
    const char *at, *end, *line_start;
    int32_t line, depth;
    sbit_error *error;
} sbit__yaml_cursor;

/* Children are collected in a list, then copied side by side. */
typedef struct sbit__yaml_link {
    sbit_yaml node;
    struct sbit__yaml_link *next;
} sbit__yaml_link;

typedef struct sbit__yaml_list {
    sbit__yaml_link *first, *last;
    size_t count;
} sbit__yaml_list;

static int32_t sbit__yaml_column(const sbit__yaml_cursor *c)
{
    return (int32_t)(c->at - c->line_start) + 1;
}

static sbit_status sbit__yaml_fail_at(const sbit__yaml_cursor *c, int32_t line, int32_t column,
                                      const char *what)
{
    char where[32];
    sbit__yaml_position(line, column, where, sizeof where);
    return sbit__fail(c->error, SBIT_ERR_CONFIG, where, "YAML %s: %s", where, what);
}

static sbit_status sbit__yaml_fail(const sbit__yaml_cursor *c, const char *what)
{
    return sbit__yaml_fail_at(c, c->line, sbit__yaml_column(c), what);
}

static bool sbit__yaml_at_end(const sbit__yaml_cursor *c)
{
    return c->at == c->end;
}

static char sbit__yaml_peek(const sbit__yaml_cursor *c, ptrdiff_t offset)
{
    return offset < c->end - c->at ? c->at[offset] : '\0';
}

/* True if the character ends a token: blank, line end or end of text. */
static bool sbit__yaml_blank_at(const sbit__yaml_cursor *c, ptrdiff_t offset)
{
    const char ch = sbit__yaml_peek(c, offset);
    return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r' || ch == '\0';
}

static void sbit__yaml_skip_blanks(sbit__yaml_cursor *c)
{
    while (sbit__yaml_peek(c, 0) == ' ' || sbit__yaml_peek(c, 0) == '\t') {
        c->at++;
    }
}

static void sbit__yaml_skip_comment(sbit__yaml_cursor *c)
{
    if (sbit__yaml_peek(c, 0) == '#') {
        while (!sbit__yaml_at_end(c) && *c->at != '\n') {
            c->at++;
        }
    }
}

/* Moves over a line end if one is here. */
static bool sbit__yaml_skip_newline(sbit__yaml_cursor *c)
{
    if (sbit__yaml_peek(c, 0) == '\r' && sbit__yaml_peek(c, 1) == '\n') {
        c->at++;
    }
    if (sbit__yaml_peek(c, 0) != '\n') {
        return false;
    }
    c->at++;
    c->line++;
    c->line_start = c->at;
    return true;
}

/* Moves to the first token of the next line that has one, or to the end. */
static sbit_status sbit__yaml_next_token(sbit__yaml_cursor *c)
{
    do {
        const bool indentation = c->at == c->line_start;
        const char *start = c->at;
        sbit__yaml_skip_blanks(c);
        const bool comment = sbit__yaml_peek(c, 0) == '#';
        sbit__yaml_skip_comment(c);
        const bool content = !sbit__yaml_at_end(c) && *c->at != '\n' && *c->at != '\r';
        if (indentation && content && !comment &&
            memchr(start, '\t', (size_t)(c->at - start)) != NULL) {
            return sbit__yaml_fail(c, "a tab is used as indentation; use spaces");
        }
    } while (sbit__yaml_skip_newline(c));
    return SBIT_OK;
}

/* After a value: only blanks and a comment may follow on the line. */
static sbit_status sbit__yaml_end_line(sbit__yaml_cursor *c)
{
    const char *start = c->at;
    sbit__yaml_skip_blanks(c);
    if (sbit__yaml_peek(c, 0) == '#' && c->at == start) {
        return sbit__yaml_fail(c, "a comment must be separated from the value by a space");
    }
    sbit__yaml_skip_comment(c);
    if (!sbit__yaml_at_end(c) && *c->at != '\n' && *c->at != '\r') {
        return sbit__yaml_fail(c, "unexpected text after the value");
    }
    return SBIT_OK;
}

static sbit_status sbit__yaml_push(sbit__yaml_cursor *c, sbit__yaml_list *list,
                                   const sbit_yaml *node)
{
    sbit__yaml_link *link = (sbit__yaml_link *)sbit__arena_alloc(c->arena, sizeof *link);
    if (link == NULL) {
        return sbit__fail_oom(c->error, sizeof *link);
    }
    link->node = *node;
    if (list->last != NULL) {
        list->last->next = link;
    } else {
        list->first = link;
    }
    list->last = link;
    list->count++;
    return SBIT_OK;
}

static int sbit__yaml_by_key(const void *a, const void *b)
{
    const sbit_yaml *x = *(const sbit_yaml *const *)a, *y = *(const sbit_yaml *const *)b;
    const int order = strcmp(x->key, y->key);
    return order != 0 ? order : x < y ? -1 : x > y ? 1 : 0;
}

/* The first key of a map that stands there a second time is an error. */
static sbit_status sbit__yaml_unique(sbit__yaml_cursor *c, const sbit_yaml *items, size_t count)
{
    const sbit_yaml *twice = NULL;
    const sbit_yaml **sorted = (const sbit_yaml **)sbit__arena_array(c->arena, count, sizeof *sorted);
    if (sorted == NULL) {
        return sbit__fail_oom(c->error, count * sizeof *sorted);
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &items[i];
    }
    qsort(sorted, count, sizeof sorted[0], sbit__yaml_by_key);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0 && (twice == NULL || sorted[i] < twice)) {
            twice = sorted[i];
        }
    }
    return twice == NULL ? SBIT_OK
                         : sbit__yaml_fail_at(c, twice->key_line, twice->key_column, "this key is given twice");
}

static sbit_status sbit__yaml_finish(sbit__yaml_cursor *c, const sbit__yaml_list *list,
                                     sbit_yaml *out)
{
    if (list->count == 0) {
        return SBIT_OK;
    }
    sbit_yaml *items = (sbit_yaml *)sbit__arena_array(c->arena, list->count, sizeof *items);
    if (items == NULL) {
        return sbit__fail_oom(c->error, list->count * sizeof *items);
    }
    size_t i = 0;
    for (const sbit__yaml_link *link = list->first; link != NULL; link = link->next) {
        items[i++] = link->node;
    }
    out->items = items;
    out->count = list->count;
    return out->kind == SBIT_YAML_MAP ? sbit__yaml_unique(c, items, list->count) : SBIT_OK;
}

/* >>yaml scalars */
static sbit_status sbit__yaml_hex(sbit__yaml_cursor *c, int digits, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        const char ch = sbit__yaml_peek(c, 0);
        uint32_t digit;
        if (ch >= '0' && ch <= '9') {
            digit = (uint32_t)(ch - '0');
        } else if ((ch >= 'a' && ch <= 'f') || (ch >= 'A' && ch <= 'F')) {
            digit = (uint32_t)((ch | 0x20) - 'a') + 10u;
        } else {
            return sbit__yaml_fail(c, "a hexadecimal digit is missing in the escape");
        }
        value = value * 16u + digit;
        c->at++;
    }
    *out = value;
    return SBIT_OK;
}

static char *sbit__yaml_put_utf8(char *to, uint32_t code)
{
    if (code < 0x80u) {
        *to++ = (char)code;
    } else if (code < 0x800u) {
        *to++ = (char)(0xc0u | (code >> 6));
        *to++ = (char)(0x80u | (code & 0x3fu));
    } else if (code < 0x10000u) {
        *to++ = (char)(0xe0u | (code >> 12));
        *to++ = (char)(0x80u | ((code >> 6) & 0x3fu));
        *to++ = (char)(0x80u | (code & 0x3fu));
    } else {
        *to++ = (char)(0xf0u | (code >> 18));
        *to++ = (char)(0x80u | ((code >> 12) & 0x3fu));
        *to++ = (char)(0x80u | ((code >> 6) & 0x3fu));
        *to++ = (char)(0x80u | (code & 0x3fu));
    }
    return to;
}

/* The cursor stands behind the backslash. */
static sbit_status sbit__yaml_escape(sbit__yaml_cursor *c, char **to)
{
    static const char names[] = "0abtnvfre\"/\\ ";
    static const char values[] = "\0\a\b\t\n\v\f\r\x1b\"/\\ ";
    const char ch = sbit__yaml_peek(c, 0);
    const int digits = ch == 'x' ? 2 : ch == 'u' ? 4 : ch == 'U' ? 8 : 0;
    if (digits > 0) {
        uint32_t code = 0;
        c->at++;
        SBIT__TRY(sbit__yaml_hex(c, digits, &code));
        if (code == 0 || code > 0x10ffffu) {
            return sbit__yaml_fail(c, "the escape is not a character");
        }
        *to = sbit__yaml_put_utf8(*to, code);
        return SBIT_OK;
    }
    const char *name = ch != '\0' ? strchr(names, ch) : NULL;
    if (name == NULL || ch == '0') {
        return sbit__yaml_fail(c, "unknown escape in a quoted scalar");
    }
    *(*to)++ = values[name - names];
    c->at++;
    return SBIT_OK;
}

static sbit_status sbit__yaml_quoted(sbit__yaml_cursor *c, const char **out)
{
    const char quote = *c->at++;
    const char *end = c->at; /* the first quote that is neither escaped nor doubled */
    for (; end < c->end && *end != '\n'; end++) {
        const bool pair = end + 1 < c->end && end[1] != '\n' &&
                          (quote == '"' ? *end == '\\' : *end == '\'' && end[1] == '\'');
        if (!pair && *end == quote) {
            break;
        }
        end += pair;
    }
    /* no escape decodes to more bytes than it is written with */
    char *text = (char *)sbit__arena_alloc(c->arena, (size_t)(end - c->at) + 1);
    if (text == NULL) {
        return sbit__fail_oom(c->error, (size_t)(end - c->at) + 1);
    }
    char *to = text;
    for (;;) {
        if (c->at >= c->end || *c->at == '\n') {
            return sbit__yaml_fail(c, "a quoted scalar must end on the line it began on");
        }
        const char ch = *c->at++;
        if (ch == quote && quote == '\'' && sbit__yaml_peek(c, 0) == '\'') {
            c->at++;
            *to++ = '\'';
        } else if (ch == quote) {
            break;
        } else if (ch == '\\' && quote == '"') {
            SBIT__TRY(sbit__yaml_escape(c, &to));
        } else {
            *to++ = ch;
        }
    }
    *to = '\0';
    *out = text;
    return SBIT_OK;
}

static bool sbit__yaml_flow_mark(char ch)
{
    return ch == ',' || ch == '[' || ch == ']' || ch == '{' || ch == '}';
}

/* What a plain scalar may not begin with, and what that would have been. */
static const char *sbit__yaml_reserved(const sbit__yaml_cursor *c)
{
    switch (sbit__yaml_peek(c, 0)) {
    case '&':
        return "anchors (&) are not supported";
    case '*':
        return "aliases (*) are not supported; put a pattern with * in quotes";
    case '!':
        return "tags (!) are not supported";
    case '|':
    case '>':
        return "block scalars (| and >) are not supported; use quotes";
    case '%':
        return "directives (%) are not supported";
    case '@':
    case '`':
        return "this character is reserved; use quotes";
    case '\t':
        return "a tab stands where a value should begin";
    default:
        break;
    }
    if (sbit__yaml_peek(c, 0) == '?' && sbit__yaml_blank_at(c, 1)) {
        return "complex keys (?) are not supported";
    }
    return NULL;
}

/* Reads a plain scalar up to ": ", " #", the line end, or in flow one of ,[]{}. */
static sbit_status sbit__yaml_plain(sbit__yaml_cursor *c, bool flow, const char **out)
{
    const char *reserved = sbit__yaml_reserved(c);
    if (reserved != NULL) {
        return sbit__yaml_fail(c, reserved);
    }
    const char *start = c->at;
    const char *last = c->at; /* behind the last character that is not blank */
    while (!sbit__yaml_at_end(c) && *c->at != '\n' && *c->at != '\r') {
        const char ch = *c->at;
        const bool colon = ch == ':' && (sbit__yaml_blank_at(c, 1) ||
                                         (flow && sbit__yaml_flow_mark(sbit__yaml_peek(c, 1))));
        const bool comment = ch == '#' && c->at > start && (c->at[-1] == ' ' || c->at[-1] == '\t');
        if (colon || comment || (flow && sbit__yaml_flow_mark(ch))) {
            break;
        }
        c->at++;
        if (ch != ' ' && ch != '\t') {
            last = c->at;
        }
    }
    c->at = last;
    *out = sbit__arena_strdup(c->arena, start, (size_t)(last - start));
    return *out != NULL ? SBIT_OK : sbit__fail_oom(c->error, (size_t)(last - start) + 1);
}

static sbit_status sbit__yaml_scalar(sbit__yaml_cursor *c, bool flow, sbit_yaml *out)
{
    const char ch = sbit__yaml_peek(c, 0);
    out->kind = SBIT_YAML_SCALAR;
    out->quoted = ch == '\'' || ch == '"';
    if (out->quoted) {
        return sbit__yaml_quoted(c, &out->text);
    }
    SBIT__TRY(sbit__yaml_plain(c, flow, &out->text));
    const char *text = out->text;
    if (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
        strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0) {
        out->kind = SBIT_YAML_NULL;
    }
    return SBIT_OK;
}

/* >>yaml flow collections */
static sbit_status sbit__yaml_flow(sbit__yaml_cursor *c, sbit_yaml *out);

static sbit_status sbit__yaml_flow_value(sbit__yaml_cursor *c, sbit_yaml *out)
{
    SBIT__TRY(sbit__yaml_next_token(c));
    out->line = c->line;
    out->column = sbit__yaml_column(c);
    const char ch = sbit__yaml_peek(c, 0);
    if (ch == '[' || ch == '{') {
        return sbit__yaml_flow(c, out);
    }
    return sbit__yaml_scalar(c, true, out);
}

static sbit_status sbit__yaml_flow_entry(sbit__yaml_cursor *c, bool is_map, sbit_yaml *out)
{
    if (!is_map) {
        SBIT__TRY(sbit__yaml_flow_value(c, out));
        SBIT__TRY(sbit__yaml_next_token(c));
        if (sbit__yaml_peek(c, 0) == ':') {
            return sbit__yaml_fail(c, "a 'key: value' pair in a list needs braces {}");
        }
        return SBIT_OK;
    }
    sbit_yaml key;
    memset(&key, 0, sizeof key);
    out->key_line = c->line;
    out->key_column = sbit__yaml_column(c);
    SBIT__TRY(sbit__yaml_scalar(c, true, &key));
    out->key = key.text;
    out->line = out->key_line;
    out->column = out->key_column;
    SBIT__TRY(sbit__yaml_next_token(c));
    if (sbit__yaml_peek(c, 0) != ':') {
        return sbit__yaml_fail(c, "':' is missing after a key");
    }
    c->at++;
    SBIT__TRY(sbit__yaml_next_token(c));
    if (sbit__yaml_peek(c, 0) == ',' || sbit__yaml_peek(c, 0) == '}') {
        return SBIT_OK; /* null */
    }
    return sbit__yaml_flow_value(c, out);
}

static sbit_status sbit__yaml_flow_items(sbit__yaml_cursor *c, bool is_map, sbit__yaml_list *list)
{
    const char close = is_map ? '}' : ']';
    for (;;) {
        SBIT__TRY(sbit__yaml_next_token(c));
        if (sbit__yaml_at_end(c)) {
            return sbit__yaml_fail(c, is_map ? "'}' is missing" : "']' is missing");
        }
        if (*c->at == close) {
            c->at++;
            return SBIT_OK;
        }
        if (*c->at == ',') {
            return sbit__yaml_fail(c, "an entry is missing before ','");
        }
        sbit_yaml node;
        memset(&node, 0, sizeof node);
        SBIT__TRY(sbit__yaml_flow_entry(c, is_map, &node));
        SBIT__TRY(sbit__yaml_push(c, list, &node));
        SBIT__TRY(sbit__yaml_next_token(c));
        if (sbit__yaml_peek(c, 0) == ',') {
            c->at++;
        } else if (sbit__yaml_peek(c, 0) != close) {
            return sbit__yaml_fail(c, is_map ? "',' or '}' is missing" : "',' or ']' is missing");
        }
    }
}

static sbit_status sbit__yaml_flow(sbit__yaml_cursor *c, sbit_yaml *out)
{
    const bool is_map = *c->at == '{';
    sbit__yaml_list list;
    memset(&list, 0, sizeof list);
    if (++c->depth > SBIT__YAML_MAX_DEPTH) {
        return sbit__yaml_fail(c, "too deeply nested");
    }
    c->at++;
    out->kind = is_map ? SBIT_YAML_MAP : SBIT_YAML_LIST;
    SBIT__TRY(sbit__yaml_flow_items(c, is_map, &list));
    c->depth--;
    return sbit__yaml_finish(c, &list, out);
}

/* >>yaml block collections */
static sbit_status sbit__yaml_block(sbit__yaml_cursor *c, sbit_yaml *out);

static bool sbit__yaml_at_dash(const sbit__yaml_cursor *c)
{
    return sbit__yaml_peek(c, 0) == '-' && sbit__yaml_blank_at(c, 1);
}

/* True at "---" or "..." in the first column. */
static bool sbit__yaml_at_marker(const sbit__yaml_cursor *c, const char *marker)
{
    return c->at == c->line_start && c->end - c->at >= 3 && memcmp(c->at, marker, 3) == 0 &&
           sbit__yaml_blank_at(c, 3);
}

/* True if the line's token is a key: something, then ':' and a blank. Nothing is consumed. */
static bool sbit__yaml_at_key(const sbit__yaml_cursor *c)
{
    sbit__yaml_cursor probe = *c;
    const char ch = sbit__yaml_peek(c, 0);
    if (ch == '[' || ch == '{') {
        return false; /* a flow collection, whatever stands in it */
    }
    if (ch == '\'' || ch == '"') {
        probe.at++;
        while (!sbit__yaml_at_end(&probe) && *probe.at != '\n' && *probe.at != ch) {
            probe.at += *probe.at == '\\' && ch == '"' && probe.end - probe.at > 1 ? 2 : 1;
        }
        if (sbit__yaml_at_end(&probe) || *probe.at != ch) {
            return false;
        }
        probe.at++;
        sbit__yaml_skip_blanks(&probe);
        return sbit__yaml_peek(&probe, 0) == ':' && sbit__yaml_blank_at(&probe, 1);
    }
    for (; !sbit__yaml_at_end(&probe) && *probe.at != '\n'; probe.at++) {
        if (*probe.at == ':' && sbit__yaml_blank_at(&probe, 1)) {
            return true;
        }
        if (*probe.at == '#' && probe.at > c->at && probe.at[-1] == ' ') {
            return false;
        }
    }
    return false;
}

/* The value behind "key:" or "-". `column` is the collection's own column; `list_column` the least
 * column at which a list on following lines belongs to this entry. */
static sbit_status sbit__yaml_entry_value(sbit__yaml_cursor *c, int32_t column, bool in_map,
                                          sbit_yaml *out)
{
    const int32_t line = c->line;
    sbit__yaml_skip_blanks(c);
    SBIT__TRY(sbit__yaml_next_token(c));
    if (sbit__yaml_at_end(c) || sbit__yaml_at_marker(c, "---") || sbit__yaml_at_marker(c, "...")) {
        return SBIT_OK; /* null */
    }
    if (c->line != line) {
        const bool list_here = in_map && sbit__yaml_at_dash(c);
        const int32_t min_column = list_here ? column : column + 1;
        return sbit__yaml_column(c) >= min_column ? sbit__yaml_block(c, out) : SBIT_OK;
    }
    const char ch = *c->at;
    if (!in_map && (sbit__yaml_at_dash(c) || sbit__yaml_at_key(c))) {
        return sbit__yaml_block(c, out);
    }
    out->line = c->line;
    out->column = sbit__yaml_column(c);
    if (ch == '[' || ch == '{') {
        SBIT__TRY(sbit__yaml_flow(c, out));
    } else {
        if (in_map && sbit__yaml_at_dash(c)) {
            return sbit__yaml_fail(c, "a list must begin on the line after its key");
        }
        SBIT__TRY(sbit__yaml_scalar(c, false, out));
        if (sbit__yaml_peek(c, 0) == ':' && sbit__yaml_blank_at(c, 1)) {
            return sbit__yaml_fail(c, "a second ':' on the line; put the value in quotes");
        }
    }
    return sbit__yaml_end_line(c);
}

static sbit_status sbit__yaml_block_list(sbit__yaml_cursor *c, int32_t column,
                                         sbit__yaml_list *list)
{
    while (!sbit__yaml_at_end(c) && sbit__yaml_column(c) == column && sbit__yaml_at_dash(c)) {
        sbit_yaml node;
        memset(&node, 0, sizeof node);
        node.line = c->line;
        node.column = column;
        c->at++;
        SBIT__TRY(sbit__yaml_entry_value(c, column, false, &node));
        SBIT__TRY(sbit__yaml_push(c, list, &node));
        SBIT__TRY(sbit__yaml_next_token(c));
    }
    return SBIT_OK;
}

static sbit_status sbit__yaml_block_map(sbit__yaml_cursor *c, int32_t column, sbit__yaml_list *list)
{
    while (!sbit__yaml_at_end(c) && sbit__yaml_column(c) == column && !sbit__yaml_at_dash(c) &&
           !sbit__yaml_at_marker(c, "---") && !sbit__yaml_at_marker(c, "...")) {
        if (!sbit__yaml_at_key(c)) {
            const char *reserved = sbit__yaml_reserved(c);
            return sbit__yaml_fail(c, reserved != NULL ? reserved : "'key: value' is expected");
        }
        sbit_yaml key, node;
        memset(&key, 0, sizeof key);
        memset(&node, 0, sizeof node);
        node.key_line = node.line = c->line;
        node.key_column = node.column = column;
        SBIT__TRY(sbit__yaml_scalar(c, false, &key));
        node.key = key.text;
        sbit__yaml_skip_blanks(c);
        c->at++; /* the ':' that sbit__yaml_at_key saw */
        SBIT__TRY(sbit__yaml_entry_value(c, column, true, &node));
        SBIT__TRY(sbit__yaml_push(c, list, &node));
        SBIT__TRY(sbit__yaml_next_token(c));
    }
    return SBIT_OK;
}

static sbit_status sbit__yaml_block(sbit__yaml_cursor *c, sbit_yaml *out)
{
    const int32_t column = sbit__yaml_column(c);
    sbit__yaml_list list;
    memset(&list, 0, sizeof list);
    out->line = c->line;
    out->column = column;
    if (sbit__yaml_at_dash(c) || sbit__yaml_at_key(c)) {
        const bool is_list = sbit__yaml_at_dash(c);
        if (++c->depth > SBIT__YAML_MAX_DEPTH) {
            return sbit__yaml_fail(c, "too deeply nested");
        }
        out->kind = is_list ? SBIT_YAML_LIST : SBIT_YAML_MAP;
        SBIT__TRY(is_list ? sbit__yaml_block_list(c, column, &list)
                          : sbit__yaml_block_map(c, column, &list));
        c->depth--;
        if (!sbit__yaml_at_end(c) && sbit__yaml_column(c) > column) {
            return sbit__yaml_fail(c, "the indentation fits no line above");
        }
        return sbit__yaml_finish(c, &list, out);
    }
    if (*c->at == '[' || *c->at == '{') {
        SBIT__TRY(sbit__yaml_flow(c, out));
    } else {
        SBIT__TRY(sbit__yaml_scalar(c, false, out));
    }
    return sbit__yaml_end_line(c);
}

/* >>yaml documents */
static sbit_status sbit__yaml_document(sbit__yaml_cursor *c, sbit_yaml *root)
{
    if (c->end - c->at >= 3 && memcmp(c->at, "\xef\xbb\xbf", 3) == 0) {
        c->at += 3; /* byte order mark */
        c->line_start = c->at;
    }
    if (memchr(c->at, '\0', (size_t)(c->end - c->at)) != NULL) {
        return sbit__yaml_fail(c, "the text contains a NUL byte");
    }
    SBIT__TRY(sbit__yaml_next_token(c));
    if (sbit__yaml_at_marker(c, "---")) {
        c->at += 3;
        SBIT__TRY(sbit__yaml_next_token(c));
    }
    root->line = root->column = 1;
    if (!sbit__yaml_at_end(c) && !sbit__yaml_at_marker(c, "...")) {
        SBIT__TRY(sbit__yaml_block(c, root));
        SBIT__TRY(sbit__yaml_next_token(c));
    }
    if (sbit__yaml_at_marker(c, "...")) {
        c->at += 3;
        SBIT__TRY(sbit__yaml_next_token(c));
    }
    if (sbit__yaml_at_end(c)) {
        return SBIT_OK;
    }
    return sbit__yaml_fail(c, sbit__yaml_at_marker(c, "---")
                                  ? "a second document is not supported"
                                  : "the indentation fits no line above, or lists and maps mix");
}

SBIT__FN void sbit__yaml_position(int32_t line, int32_t column, char *text, size_t size)
{
    snprintf(text, size, "%d:%d", (int)line, (int)column);
}

static sbit_status sbit__yaml_parse_into(sbit_yaml_doc *doc, const char *text, size_t size,
                                         sbit_error *error)
{
    sbit__yaml_cursor cursor;
    memset(&cursor, 0, sizeof cursor);
    cursor.arena = &doc->arena;
    cursor.at = cursor.line_start = text;
    cursor.end = text + size;
    cursor.line = 1;
    cursor.error = error;
    return sbit__yaml_document(&cursor, &doc->root);
}

SPARSEBIT_API sbit_status sbit_yaml_parse(sbit_ctx *ctx, const char *text, size_t size,
                                          sbit_yaml_doc **out, sbit_error *error)
{
    if (ctx == NULL || out == NULL || (text == NULL && size > 0)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx, text or out is NULL");
    }
    if (size > SBIT__YAML_MAX_BYTES) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a YAML text may have at most 16 MiB");
    }
    const sbit_allocator *a = sbit_ctx_allocator(ctx);
    sbit_yaml_doc *doc = (sbit_yaml_doc *)sbit__calloc(a, 1, sizeof *doc);
    if (doc == NULL) {
        return sbit__fail_oom(error, sizeof *doc);
    }
    sbit__arena_init(&doc->arena, a);
    const sbit_status status = sbit__yaml_parse_into(doc, text != NULL ? text : "", size, error);
    if (status != SBIT_OK) {
        sbit_yaml_destroy(doc);
        return status;
    }
    *out = doc;
    return SBIT_OK;
}

SPARSEBIT_API const sbit_yaml *sbit_yaml_root(const sbit_yaml_doc *doc)
{
    return &doc->root;
}

SPARSEBIT_API void sbit_yaml_destroy(sbit_yaml_doc *doc)
{
    if (doc != NULL) {
        const sbit_allocator a = doc->arena.allocator;
        sbit__arena_deinit(&doc->arena);
        sbit__free(&a, doc, sizeof *doc);
    }
}
