/* text.c: text views, matching, number parsing, growing text, hash map. >>text
 *
 * Called by: everything. Calls: memory, libc's strtod and vsnprintf.
 * Does: read and write numbers with '.' as the decimal point whatever setlocale() says.
 * Does not: know any encoding: bytes are compared as they are.
 */
#include "base_private.h"

#include <stdio.h>  /* vsnprintf, snprintf */
#include <stdlib.h> /* strtod */

#define SBIT__TEXT_NUMBER_BYTES 512 /* longest decimal number that is parsed */
#define SBIT__TEXT_DISTANCE_BYTES 128

SBIT__FN sbit_str sbit__str(const char *text)
{
    sbit_str view;
    view.data = text;
    view.size = text != NULL ? strlen(text) : 0;
    return view;
}

SBIT__FN bool sbit__str_eq(sbit_str a, sbit_str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

SBIT__FN bool sbit__streq(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* Matches one bracket expression that starts behind '['. Returns the pattern behind ']', or NULL
 * if there is no ']' (then '[' stands for itself, as in Python's fnmatch). */
static const char *sbit__text_bracket(const char *p, char c, bool *matched)
{
    const bool negated = *p == '!';
    bool found = false;
    p += negated ? 1 : 0;
    for (const char *first = p; *p != ']' || p == first;) {
        if (*p == '\0') {
            return NULL;
        }
        const unsigned char low = (unsigned char)*p;
        unsigned char high = low;
        p++;
        if (p[0] == '-' && p[1] != ']' && p[1] != '\0') {
            high = (unsigned char)p[1];
            p += 2;
        }
        found = found || ((unsigned char)c >= low && (unsigned char)c <= high);
    }
    *matched = found != negated;
    return p + 1;
}

/* Matches one non-star pattern element against c; returns the pattern behind it, NULL: no match. */
static const char *sbit__text_match_one(const char *p, char c)
{
    if (*p == '?') {
        return p + 1;
    }
    if (*p == '[') {
        bool matched = false;
        const char *behind = sbit__text_bracket(p + 1, c, &matched);
        if (behind != NULL) {
            return matched ? behind : NULL;
        }
    }
    return *p == c ? p + 1 : NULL;
}

/* Only the last star needs to be tried again: time is at most pattern times text length. */
SBIT__FN bool sbit__fnmatch(const char *pattern, const char *text)
{
    const char *star = NULL;
    const char *retry = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
            continue;
        }
        const char *behind = *pattern != '\0' ? sbit__text_match_one(pattern, *text) : NULL;
        if (behind != NULL) {
            pattern = behind;
            text++;
        } else if (star != NULL) {
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

SBIT__FN char sbit__lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Levenshtein distance with one row on the stack; overlong texts count as wholly different. */
SBIT__FN size_t sbit__edit_distance(const char *a, const char *b)
{
    const size_t a_size = strlen(a);
    const size_t b_size = strlen(b);
    size_t row[SBIT__TEXT_DISTANCE_BYTES];
    if (a_size >= SBIT__TEXT_DISTANCE_BYTES || b_size >= SBIT__TEXT_DISTANCE_BYTES) {
        return a_size > b_size ? a_size : b_size;
    }
    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            const size_t above = row[j];
            const bool same = sbit__lower(a[i - 1]) == sbit__lower(b[j - 1]);
            size_t best = diagonal + (same ? 0 : 1);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[b_size];
}

SPARSEBIT_API const char *sbit_word_nearest(const char *text, const char *const *words,
                                            size_t count)
{
    const size_t size = strlen(text);
    const char *best = NULL;
    size_t least = 1 + (size / 2 < 3 ? size / 2 : 3); /* edits allowed + 1 */
    for (size_t i = 0; i < count; i++) {
        const size_t distance = sbit__edit_distance(text, words[i]);
        if (distance < least) {
            least = distance;
            best = words[i];
        }
    }
    for (size_t i = 0; i < count && best == NULL; i++) {
        best = size >= 3 && strncmp(text, words[i], size) == 0 ? words[i] : NULL;
    }
    return best;
}

SBIT__FN uint64_t sbit__hash_bytes(const void *data, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* ---- numbers ---- */

static bool sbit__text_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

SBIT__FN bool sbit__parse_i64(const char *text, int64_t *out)
{
    const bool negative = *text == '-';
    const uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t value = 0;
    text += *text == '-' || *text == '+' ? 1 : 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        const uint64_t digit = (uint64_t)(*text - '0');
        if (!sbit__text_is_digit(*text) || value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    /* -(value - 1) - 1 stays in range for INT64_MIN */
    *out = negative && value != 0 ? -(int64_t)(value - 1) - 1 : (int64_t)value;
    return true;
}

/* Case-insensitive comparison with a lower-case ASCII word. */
static bool sbit__text_is_word(const char *text, const char *word)
{
    for (; *text != '\0' && sbit__lower(*text) == *word; text++, word++) {
    }
    return *text == *word;
}

/* digits [. digits] [e [sign] digits] with at least one digit before the exponent */
static bool sbit__text_is_decimal(const char *p)
{
    size_t digits = 0;
    for (; sbit__text_is_digit(*p); p++) {
        digits++;
    }
    if (*p == '.') {
        for (p++; sbit__text_is_digit(*p); p++) {
            digits++;
        }
    }
    if (digits == 0) {
        return false;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+' ? 1 : 0;
        if (!sbit__text_is_digit(*p)) {
            return false;
        }
        while (sbit__text_is_digit(*p)) {
            p++;
        }
    }
    return *p == '\0';
}

/* What the current locale writes between "1" and "5" of 1.5; strtod reads the same. */
static void sbit__text_decimal_point(char point[8])
{
    char sample[16];
    const int size = snprintf(sample, sizeof(sample), "%.1f", 1.5);
    memcpy(point, ".", 2);
    if (size >= 3 && size < 10) {
        memcpy(point, sample + 1, (size_t)size - 2);
        point[size - 2] = '\0';
    }
}

SBIT__FN bool sbit__parse_f64(const char *text, double *out)
{
    char buffer[SBIT__TEXT_NUMBER_BYTES + 8];
    char point[8];
    const char *digits = text + (*text == '-' || *text == '+' ? 1 : 0);
    const size_t size = strlen(text);
    if (sbit__text_is_word(digits, "inf") || sbit__text_is_word(digits, "infinity")) {
        const uint64_t bits = UINT64_C(0x7ff0000000000000) | ((uint64_t)(*text == '-') << 63);
        memcpy(out, &bits, sizeof(*out));
        return true;
    }
    if (sbit__text_is_word(digits, "nan")) {
        const uint64_t bits = UINT64_C(0x7ff8000000000000);
        memcpy(out, &bits, sizeof(*out));
        return true;
    }
    if (size > SBIT__TEXT_NUMBER_BYTES || !sbit__text_is_decimal(digits)) {
        return false;
    }
    sbit__text_decimal_point(point);
    const char *dot = strchr(text, '.');
    const size_t head = dot != NULL ? (size_t)(dot - text) : size;
    const size_t point_size = dot != NULL ? strlen(point) : 0;
    memcpy(buffer, text, head);
    memcpy(buffer + head, point, point_size);
    memcpy(buffer + head + point_size, dot != NULL ? dot + 1 : "", dot != NULL ? size - head : 1);
    *out = strtod(buffer, NULL);
    return true;
}

SBIT__FN size_t sbit__format_f64(double value, bool single, char out[40])
{
    const int precisions[] = {6, 9, 15, 17};
    char point[8];
    if (value != value || value - value != 0.0) {
        memcpy(out, value != value ? "nan" : value > 0 ? "inf" : "-inf", value < 0 ? 5 : 4);
        return strlen(out);
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(precisions); i++) {
        snprintf(out, 40, "%.*g", precisions[i], value);
        const double back = strtod(out, NULL);
        if (single ? (float)back == (float)value : back == value) {
            break;
        }
    }
    sbit__text_decimal_point(point);
    char *found = strstr(out, point);
    if (found != NULL && strcmp(point, ".") != 0) {
        const size_t rest = strlen(found + strlen(point));
        memmove(found + 1, found + strlen(point), rest + 1);
        *found = '.';
    }
    return strlen(out);
}

/* ---- growing text ---- */

SBIT__FN void sbit__text_init(sbit__text *text, const sbit_allocator *allocator)
{
    text->allocator = sbit__allocator_or_default(allocator);
    text->data = NULL;
    text->size = 0;
    text->capacity = 0;
    text->failed = false;
}

SBIT__FN void sbit__text_deinit(sbit__text *text)
{
    sbit__free(&text->allocator, text->data, text->capacity);
    text->data = NULL;
    text->size = 0;
    text->capacity = 0;
}

/* Makes room for `size` more bytes and the NUL. */
static bool sbit__text_reserve(sbit__text *text, size_t size)
{
    size_t needed = 0;
    void *items = text->data;
    if (text->failed || !sbit__add_size(text->size, size, &needed) ||
        !sbit__add_size(needed, 1, &needed) ||
        sbit__grow(&text->allocator, &items, &text->capacity, needed, 1, NULL) != SBIT_OK) {
        text->failed = true;
        return false;
    }
    text->data = (char *)items;
    return true;
}

SBIT__FN void sbit__text_append(sbit__text *text, const char *data, size_t size)
{
    if (!sbit__text_reserve(text, size)) {
        return;
    }
    if (size != 0) {
        memcpy(text->data + text->size, data, size);
    }
    text->size += size;
    text->data[text->size] = '\0';
}

SBIT__FN void sbit__text_f64(sbit__text *text, double value, bool single)
{
    char number[40];
    const size_t size = sbit__format_f64(value, single, number);
    sbit__text_append(text, number, size);
}

SBIT__FN void sbit__text_printf(sbit__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0 || !sbit__text_reserve(text, (size_t)size)) {
        text->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(text->data + text->size, (size_t)size + 1, format, args);
    va_end(args);
    text->size += (size_t)size;
}

SBIT__FN char *sbit__arena_printf(sbit__arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *out = size >= 0 ? (char *)sbit__arena_alloc(arena, (size_t)size + 1) : NULL;
    if (out != NULL) {
        va_start(args, format);
        vsnprintf(out, (size_t)size + 1, format, args);
        va_end(args);
    }
    return out;
}

/* ---- hash map: open addressing, power-of-two capacity, at most 3/4 full ---- */

struct sbit__map_slot {
    const char *key; /* NULL: free */
    uint64_t hash;
    uint32_t value;
};

SBIT__FN void sbit__map_init(sbit__map *map, const sbit_allocator *allocator)
{
    map->allocator = sbit__allocator_or_default(allocator);
    map->cells = NULL;
    map->capacity = 0;
    map->count = 0;
}

SBIT__FN void sbit__map_deinit(sbit__map *map)
{
    sbit__free(&map->allocator, map->cells, map->capacity * sizeof(struct sbit__map_slot));
    map->cells = NULL;
    map->capacity = 0;
    map->count = 0;
}

/* FNV-1a's low bits are weak for short keys; folding the high half in spreads them. */
static uint64_t sbit__map_hash(const char *key)
{
    const uint64_t hash = sbit__hash_bytes(key, strlen(key));
    return hash ^ (hash >> 32);
}

/* The slot that holds `key`, or the free one where it belongs. Needs capacity > count. */
static size_t sbit__map_slot_of(const sbit__map *map, const char *key, uint64_t hash)
{
    size_t i = (size_t)hash & (map->capacity - 1);
    while (map->cells[i].key != NULL &&
           (map->cells[i].hash != hash || strcmp(map->cells[i].key, key) != 0)) {
        i = (i + 1) & (map->capacity - 1);
    }
    return i;
}

SBIT__FN bool sbit__map_find(const sbit__map *map, const char *key, uint32_t *value)
{
    if (map->count == 0) {
        return false;
    }
    const size_t i = sbit__map_slot_of(map, key, sbit__map_hash(key));
    if (map->cells[i].key == NULL) {
        return false;
    }
    if (value != NULL) {
        *value = map->cells[i].value;
    }
    return true;
}

static sbit_status sbit__map_enlarge(sbit__map *map, sbit_error *error)
{
    const size_t old_capacity = map->capacity;
    struct sbit__map_slot *old_slots = map->cells;
    size_t capacity = 0;
    if (!sbit__mul_size(old_capacity != 0 ? old_capacity : 8, 2, &capacity)) {
        return sbit__fail_oom(error, SIZE_MAX);
    }
    struct sbit__map_slot *cells = (struct sbit__map_slot *)sbit__calloc(
        &map->allocator, capacity, sizeof(struct sbit__map_slot));
    if (cells == NULL) {
        return sbit__fail_oom(error, capacity * sizeof(struct sbit__map_slot));
    }
    map->cells = cells;
    map->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old_slots[i].key != NULL) {
            cells[sbit__map_slot_of(map, old_slots[i].key, old_slots[i].hash)] = old_slots[i];
        }
    }
    sbit__free(&map->allocator, old_slots, old_capacity * sizeof(struct sbit__map_slot));
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__map_set(sbit__map *map, const char *key, uint32_t value,
                                   sbit_error *error)
{
    if (map->count >= map->capacity - map->capacity / 4) {
        SBIT__TRY(sbit__map_enlarge(map, error));
    }
    const uint64_t hash = sbit__map_hash(key);
    struct sbit__map_slot *slot = &map->cells[sbit__map_slot_of(map, key, hash)];
    map->count += slot->key == NULL ? 1 : 0;
    slot->key = key;
    slot->hash = hash;
    slot->value = value;
    return SBIT_OK;
}

/* Moves later entries of the probe chain back into the hole, so that no tombstones are needed. */
SBIT__FN void sbit__map_remove(sbit__map *map, const char *key)
{
    if (map->count == 0) {
        return;
    }
    const size_t mask = map->capacity - 1;
    size_t hole = sbit__map_slot_of(map, key, sbit__map_hash(key));
    if (map->cells[hole].key == NULL) {
        return;
    }
    for (size_t i = (hole + 1) & mask; map->cells[i].key != NULL; i = (i + 1) & mask) {
        const size_t home = (size_t)map->cells[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->cells[hole] = map->cells[i];
            hole = i;
        }
    }
    map->cells[hole].key = NULL;
    map->count--;
}
#undef SBIT__TEXT_NUMBER_BYTES
#undef SBIT__TEXT_DISTANCE_BYTES
