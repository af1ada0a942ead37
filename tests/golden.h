/* golden.h: the reference data of ../shared/golden: an index of entries, arrays in a .npz file.
 * Shared by the tests that compare with it. Needs test.h and the library's declarations.
 *
 *     golden g;
 *     if (!golden_open(&g, ctx, "A_sparsebit_observers")) { SKIP(...) }
 *     for (const sbit_yaml *e; (e = golden_next(&g)) != NULL;) { ... golden_array(&g, name) ... }
 *     golden_close(&g);
 */
#ifndef SBIT_TEST_GOLDEN_H
#define SBIT_TEST_GOLDEN_H

#include <ctype.h> /* isspace */

typedef struct golden_file {
    unsigned char *data;
    size_t size;
} golden_file;

typedef struct golden_item { /* an array, unpacked when first asked for */
    char name[160];
    size_t at, packed, size;
    bool deflated;
    unsigned char *bytes;
} golden_item;

typedef struct golden {
    sbit_ctx *ctx;
    golden_file index, arrays;
    char *line; /* of the next entry */
    sbit_yaml_doc *doc;
    golden_item *items;
    size_t count;
} golden;

typedef struct golden_array_view {
    int64_t dims[6], count;
    int rank;
    const float *f; /* float32, or NULL */
    const unsigned char *u8;
} golden_array_view;

TEST_FN bool golden_read(const char *name, golden_file *out)
{
    char path[512], inside[160];
    snprintf(inside, sizeof inside, "golden/%s", name);
    memset(out, 0, sizeof *out);
    FILE *f = test_shared(inside, path, sizeof path) ? fopen(path, "rb") : NULL;
    if (f == NULL) {
        return false;
    }
    fseek(f, 0, SEEK_END);
    out->size = (size_t)ftell(f);
    rewind(f);
    out->data = (unsigned char *)malloc(out->size + 1);
    const bool ok = out->data != NULL && fread(out->data, 1, out->size, f) == out->size;
    fclose(f);
    if (ok) {
        out->data[out->size] = 0;
    }
    return ok;
}

/* ---- inflate (RFC 1951), bit by bit: these files are small */
typedef struct golden_bits {
    const unsigned char *in;
    size_t at;
    unsigned bit;
} golden_bits;

TEST_FN unsigned golden_take(golden_bits *b, unsigned count)
{
    unsigned value = 0;
    for (unsigned i = 0; i < count; i++) {
        value |= ((unsigned)b->in[b->at] >> b->bit & 1u) << i;
        b->bit = (b->bit + 1) % 8;
        b->at += b->bit == 0;
    }
    return value;
}

typedef struct golden_code {
    unsigned short count[16], symbol[288];
} golden_code;

TEST_FN void golden_make_code(golden_code *code, const unsigned char *lengths, int n)
{
    unsigned short offset[16];
    memset(code, 0, sizeof *code);
    for (int i = 0; i < n; i++) {
        code->count[lengths[i]]++;
    }
    code->count[0] = 0;
    offset[1] = 0;
    for (int i = 1; i < 15; i++) {
        offset[i + 1] = (unsigned short)(offset[i] + code->count[i]);
    }
    for (int i = 0; i < n; i++) {
        if (lengths[i] != 0) {
            code->symbol[offset[lengths[i]]++] = (unsigned short)i;
        }
    }
}

TEST_FN int golden_symbol(golden_bits *b, const golden_code *code)
{
    int value = 0, first = 0, index = 0;
    for (int length = 1; length < 16; length++) {
        value |= (int)golden_take(b, 1);
        if (value - code->count[length] < first) {
            return code->symbol[index + value - first];
        }
        index += code->count[length];
        first = (first + code->count[length]) << 1;
        value <<= 1;
    }
    return -1;
}

TEST_FN void golden_codes(golden_bits *b, unsigned type, golden_code *literal, golden_code *far)
{
    static const unsigned char order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                            11, 4,  12, 3, 13, 2, 14, 1, 15};
    unsigned char lengths[320];
    int literals = 288, fars = 30, n = 0;
    if (type == 1) {
        for (int i = 0; i < 288; i++) {
            lengths[i] = (unsigned char)(i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8);
        }
        memset(lengths + 288, 5, 30);
    } else {
        literals = (int)golden_take(b, 5) + 257;
        fars = (int)golden_take(b, 5) + 1;
        const int used = (int)golden_take(b, 4) + 4;
        memset(lengths, 0, sizeof lengths);
        for (int i = 0; i < used; i++) {
            lengths[order[i]] = (unsigned char)golden_take(b, 3);
        }
        golden_make_code(literal, lengths, 19);
        const golden_code meta = *literal;
        while (n < literals + fars) {
            const int symbol = golden_symbol(b, &meta);
            const int before = n > 0 ? lengths[n - 1] : 0;
            const int repeat = symbol < 16    ? 1
                               : symbol == 16 ? 3 + (int)golden_take(b, 2)
                               : symbol == 17 ? 3 + (int)golden_take(b, 3)
                                              : 11 + (int)golden_take(b, 7);
            for (int i = 0; i < repeat && n < literals + fars; i++) {
                lengths[n++] = (unsigned char)(symbol < 16 ? symbol : symbol == 16 ? before : 0);
            }
        }
    }
    golden_make_code(literal, lengths, literals);
    golden_make_code(far, lengths + literals, fars);
}

TEST_FN void golden_inflate(const unsigned char *in, unsigned char *out, size_t size)
{
    static const unsigned short length_base[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                   15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                   67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const unsigned char length_more[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    golden_bits b = {in, 0, 0};
    size_t at = 0;
    for (bool last = false; !last && at <= size;) {
        last = golden_take(&b, 1) != 0;
        const unsigned type = golden_take(&b, 2);
        if (type == 0) {
            b.at += b.bit != 0;
            b.bit = 0;
            const size_t n = (size_t)in[b.at] | (size_t)in[b.at + 1] << 8;
            memcpy(out + at, in + b.at + 4, n);
            b.at += 4 + n;
            at += n;
            continue;
        }
        golden_code literal, far;
        golden_codes(&b, type, &literal, &far);
        for (int symbol; (symbol = golden_symbol(&b, &literal)) != 256 && symbol >= 0;) {
            if (symbol < 256) {
                out[at++] = (unsigned char)symbol;
                continue;
            }
            size_t n = length_base[symbol - 257] + golden_take(&b, length_more[symbol - 257]);
            const int d = golden_symbol(&b, &far);
            const unsigned more = d < 2 ? 0 : (unsigned)d / 2 - 1;
            const size_t base = d < 4 ? (size_t)d + 1 : ((2u + ((unsigned)d & 1u)) << more) + 1u;
            const size_t back = base + golden_take(&b, more);
            for (; n > 0 && at < size; n--, at++) {
                out[at] = out[at - back];
            }
        }
    }
}

/* ---- the archive */
TEST_FN unsigned golden_number(const unsigned char *p, int bytes)
{
    unsigned value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | p[i];
    }
    return value;
}

TEST_FN bool golden_open(golden *g, sbit_ctx *ctx, const char *group)
{
    char name[128];
    memset(g, 0, sizeof *g);
    g->ctx = ctx;
    snprintf(name, sizeof name, "%s.json", group);
    const bool index = golden_read(name, &g->index);
    snprintf(name, sizeof name, "%s.npz", group);
    if (!index || !golden_read(name, &g->arrays)) {
        return false;
    }
    const unsigned char *d = g->arrays.data;
    size_t end = g->arrays.size - 22;
    while (end > 0 && memcmp(d + end, "PK\5\6", 4) != 0) {
        end--;
    }
    g->count = golden_number(d + end + 10, 2);
    g->items = (golden_item *)calloc(g->count + 1, sizeof *g->items);
    const unsigned char *p = d + golden_number(d + end + 16, 4);
    for (size_t i = 0; i < g->count; i++) {
        golden_item *item = &g->items[i];
        const size_t length = golden_number(p + 28, 2);
        const unsigned char *local = d + golden_number(p + 42, 4);
        snprintf(item->name, sizeof item->name, "%.*s", (int)length - 4, (const char *)p + 46);
        item->deflated = golden_number(p + 10, 2) == 8;
        item->packed = golden_number(p + 20, 4);
        item->size = golden_number(p + 24, 4);
        item->at =
            (size_t)(local - d) + 30 + golden_number(local + 26, 2) + golden_number(local + 28, 2);
        p += 46 + length + golden_number(p + 30, 2) + golden_number(p + 32, 2);
    }
    g->line = strstr((char *)g->index.data, "\"entries\"");
    g->line = g->line != NULL ? strchr(g->line, '\n') : NULL;
    return true;
}

TEST_FN void golden_close(golden *g)
{
    for (size_t i = 0; i < g->count; i++) {
        free(g->items[i].bytes);
    }
    sbit_yaml_destroy(g->doc);
    free(g->items);
    free(g->index.data);
    free(g->arrays.data);
}

/* The next entry, valid until the one after; NULL past the last. */
TEST_FN const sbit_yaml *golden_next(golden *g)
{
    sbit_error error;
    sbit_yaml_destroy(g->doc);
    g->doc = NULL;
    while (g->line != NULL && isspace((unsigned char)*g->line)) {
        g->line++;
    }
    if (g->line == NULL || *g->line != '{') {
        return NULL;
    }
    char *end = strchr(g->line, '\n');
    size_t size = end != NULL ? (size_t)(end - g->line) : strlen(g->line);
    size -= g->line[size - 1] == ',';
    if (sbit_yaml_parse(g->ctx, g->line, size, &g->doc, &error) != SBIT_OK) {
        printf("golden: %s: %.80s\n", error.message, g->line);
        return NULL;
    }
    g->line = end;
    return sbit_yaml_root(g->doc);
}

/* The item of a map; NULL if it has none. */
TEST_FN const sbit_yaml *golden_get(const sbit_yaml *map, const char *key)
{
    for (size_t i = 0; map != NULL && i < map->count; i++) {
        if (strcmp(map->items[i].key, key) == 0) {
            return &map->items[i];
        }
    }
    return NULL;
}

TEST_FN const char *golden_text(const sbit_yaml *map, const char *key)
{
    const sbit_yaml *item = golden_get(map, key);
    return item != NULL && item->text != NULL ? item->text : "";
}

TEST_FN double golden_value(const sbit_yaml *map, const char *key)
{
    return atof(golden_text(map, key));
}

/* The array of that name: little-endian float32 or uint8, as NumPy stores them. */
TEST_FN bool golden_array(golden *g, const char *name, golden_array_view *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < g->count; i++) {
        golden_item *item = &g->items[i];
        if (strcmp(item->name, name) != 0) {
            continue;
        }
        if (item->bytes == NULL) {
            item->bytes = (unsigned char *)malloc(item->size + 1);
            item->bytes[item->size] = 0; /* the header is searched as text */
            if (item->deflated) {
                golden_inflate(g->arrays.data + item->at, item->bytes, item->size);
            } else {
                memcpy(item->bytes, g->arrays.data + item->at, item->size);
            }
        }
        const size_t header = 10 + golden_number(item->bytes + 8, 2); /* a multiple of 64 */
        const char *text = (const char *)item->bytes + 10;
        const char *shape = strchr(strstr(text, "'shape'"), '(') + 1;
        for (out->count = 1; *shape != ')';) {
            char *next;
            const long long dim = strtoll(shape, &next, 10);
            if (next == shape) {
                break;
            }
            out->dims[out->rank++] = dim;
            out->count *= dim;
            shape = next + strspn(next, ", ");
        }
        out->u8 = item->bytes + header;
        out->f = strstr(text, "<f4") != NULL ? (const float *)(const void *)out->u8 : NULL;
        return true;
    }
    return false;
}

#endif /* SBIT_TEST_GOLDEN_H */
