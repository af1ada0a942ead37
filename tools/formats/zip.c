/* formats/zip.c: NumPy's .npz files: ZIP archives of .npy arrays, stored or deflated.
 *
 * Central directory (PKWARE APPNOTE 4.3.12), found through its end record (4.3.16), an entry:
 *   0 "PK\1\2"   10 method (0 stored, 8 deflated)   20 packed size   24 size   28 name length
 *   30 extra length   32 comment length   42 offset of the local header   46 name, extra, comment
 * Local header: 0 "PK\3\4"   26 name length   28 extra length   30 name, extra, data
 * np.savez writes ZIP64 extras in local headers only as long as sizes fit 32 bits; archives over
 * 4 GB are refused. Deflate (RFC 1951): see cli_inflate.
 */
#include "formats/npy.h"
#include "base/system.h"

#include <errno.h>  /* the reason a call failed */
#include <stdlib.h> /* malloc */

/* ---- inflate: canonical Huffman codes, decoded bit by bit (code lengths of at most 15) */

typedef struct cli_bits {
    const unsigned char *data;
    size_t size, at;
    uint32_t held; /* bits not yet used, lowest first */
    unsigned count;
    bool failed; /* read past the end */
} cli_bits;

typedef struct cli_huffman {
    uint16_t count[16];    /* codes of each length */
    uint16_t symbols[288]; /* by length, then by value */
} cli_huffman;

typedef struct cli_window {
    unsigned char *data;
    size_t size, at;
} cli_window;

static uint32_t cli_bits_take(cli_bits *bits, unsigned count)
{
    while (bits->count < count) {
        if (bits->at == bits->size) {
            bits->failed = true;
            return 0;
        }
        bits->held |= (uint32_t)bits->data[bits->at++] << bits->count;
        bits->count += 8;
    }
    const uint32_t value = bits->held & ((1u << count) - 1u);
    bits->held >>= count;
    bits->count -= count;
    return value;
}

/* False: the lengths give more codes than there are bits. */
static bool cli_huffman_make(cli_huffman *code, const unsigned char *lengths, size_t symbols)
{
    uint16_t next[16];
    int32_t left = 1; /* codes of this length that are not taken */
    memset(code, 0, sizeof *code);
    for (size_t i = 0; i < symbols; i++) {
        code->count[lengths[i]]++;
    }
    code->count[0] = 0;
    next[0] = next[1] = 0;
    for (size_t length = 1; length < 15; length++) {
        next[length + 1] = (uint16_t)(next[length] + code->count[length]);
    }
    for (size_t i = 0; i < symbols; i++) {
        if (lengths[i] != 0) {
            code->symbols[next[lengths[i]]++] = (uint16_t)i;
        }
    }
    for (size_t length = 1; length < 16 && left >= 0; length++) {
        left = 2 * left - code->count[length];
    }
    return left >= 0;
}

/* The next symbol; 0xffff: no such code. */
static uint32_t cli_huffman_take(const cli_huffman *code, cli_bits *bits)
{
    uint32_t value = 0, first = 0, index = 0;
    for (size_t length = 1; length < 16; length++) {
        value |= cli_bits_take(bits, 1);
        if (bits->failed) {
            break;
        }
        if (value < first + code->count[length]) {
            return code->symbols[index + value - first];
        }
        index += code->count[length];
        first = (first + code->count[length]) << 1;
        value <<= 1;
    }
    return 0xffff;
}

static bool cli_inflate_stored(cli_bits *bits, cli_window *out)
{
    bits->held = 0;
    bits->count = 0;
    if (bits->size - bits->at < 4) {
        return false;
    }
    const size_t size = (size_t)bits->data[bits->at] | (size_t)bits->data[bits->at + 1] << 8;
    const size_t check = (size_t)bits->data[bits->at + 2] | (size_t)bits->data[bits->at + 3] << 8;
    bits->at += 4;
    if ((size ^ check) != 0xffff || size > bits->size - bits->at || size > out->size - out->at) {
        return false;
    }
    memcpy(out->data + out->at, bits->data + bits->at, size);
    bits->at += size;
    out->at += size;
    return true;
}

/* Copies `length` bytes from `distance` bytes back; they may overlap. */
static bool cli_inflate_match(cli_bits *bits, uint32_t symbol, const cli_huffman *distances,
                              cli_window *out)
{
    static const uint16_t length_base[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                             15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                             67, 83, 99, 115, 131, 163, 195, 227, 258};
    if (symbol > 285) {
        return false;
    }
    const uint32_t l = symbol - 257;
    const unsigned length_bits = l < 8 || l == 28 ? 0 : (unsigned)(l - 4) / 4;
    const size_t length = (size_t)length_base[l] + cli_bits_take(bits, length_bits);
    const uint32_t d = cli_huffman_take(distances, bits);
    if (d > 29) {
        return false;
    }
    const unsigned distance_bits = d < 4 ? 0 : (unsigned)d / 2 - 1;
    const size_t base = d < 4 ? d + 1u : (size_t)(2u + d % 2) * ((size_t)1 << distance_bits) + 1u;
    const size_t distance = base + cli_bits_take(bits, distance_bits);
    if (bits->failed || distance > out->at || length > out->size - out->at) {
        return false;
    }
    for (size_t i = 0; i < length; i++, out->at++) {
        out->data[out->at] = out->data[out->at - distance];
    }
    return true;
}

static bool cli_inflate_codes(cli_bits *bits, const cli_huffman *literals,
                              const cli_huffman *distances, cli_window *out)
{
    for (;;) {
        const uint32_t symbol = cli_huffman_take(literals, bits);
        if (symbol == 256) {
            return true;
        }
        if (symbol > 256) {
            if (!cli_inflate_match(bits, symbol, distances, out)) {
                return false;
            }
        } else if (out->at == out->size) {
            return false;
        } else {
            out->data[out->at++] = (unsigned char)symbol;
        }
    }
}

/* Code lengths that are themselves coded: 16 repeats the last, 17 and 18 are runs of 0. */
static bool cli_inflate_lengths(cli_bits *bits, const cli_huffman *code, unsigned char *lengths,
                                size_t count)
{
    for (size_t i = 0; i < count;) {
        const uint32_t symbol = cli_huffman_take(code, bits);
        if (symbol < 16) {
            lengths[i++] = (unsigned char)symbol;
            continue;
        }
        if (symbol > 18 || (symbol == 16 && i == 0)) {
            return false;
        }
        const unsigned extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        size_t run = (symbol == 18 ? 11u : 3u) + (size_t)cli_bits_take(bits, extra);
        const unsigned char value = symbol == 16 ? lengths[i - 1] : 0;
        if (bits->failed || run > count - i) {
            return false;
        }
        for (; run > 0; run--) {
            lengths[i++] = value;
        }
    }
    return true;
}

static bool cli_inflate_dynamic(cli_bits *bits, cli_huffman *literals, cli_huffman *distances)
{
    static const unsigned char order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                            11, 4,  12, 3, 13, 2, 14, 1, 15};
    unsigned char lengths[288 + 32] = {0};
    const size_t literal_count = cli_bits_take(bits, 5) + 257u;
    const size_t distance_count = cli_bits_take(bits, 5) + 1u;
    const size_t order_count = cli_bits_take(bits, 4) + 4u;
    for (size_t i = 0; i < order_count; i++) {
        lengths[order[i]] = (unsigned char)cli_bits_take(bits, 3);
    }
    const bool ordered = cli_huffman_make(literals, lengths, 19);
    memset(lengths, 0, sizeof lengths);
    if (!ordered || bits->failed || literal_count > 286 || distance_count > 30 ||
        !cli_inflate_lengths(bits, literals, lengths, literal_count + distance_count)) {
        return false;
    }
    return cli_huffman_make(literals, lengths, literal_count) &&
           cli_huffman_make(distances, lengths + literal_count, distance_count);
}

static void cli_inflate_fixed(cli_huffman *literals, cli_huffman *distances)
{
    unsigned char lengths[288];
    for (size_t i = 0; i < 288; i++) {
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    }
    cli_huffman_make(literals, lengths, 288);
    memset(lengths, 5, 30);
    cli_huffman_make(distances, lengths, 30);
}

/* True if `out` was filled exactly. */
static bool cli_inflate(const unsigned char *data, size_t size, unsigned char *out, size_t out_size)
{
    cli_huffman literals, distances;
    cli_bits bits;
    cli_window window;
    bool last = false;
    memset(&bits, 0, sizeof bits);
    bits.data = data;
    bits.size = size;
    window.data = out;
    window.size = out_size;
    window.at = 0;
    while (!last) {
        last = cli_bits_take(&bits, 1) != 0;
        const uint32_t kind = cli_bits_take(&bits, 2);
        bool good = !bits.failed;
        if (good && kind == 0) {
            good = cli_inflate_stored(&bits, &window);
        } else if (good && kind < 3) {
            if (kind == 1) {
                cli_inflate_fixed(&literals, &distances);
            } else {
                good = cli_inflate_dynamic(&bits, &literals, &distances);
            }
            good = good && cli_inflate_codes(&bits, &literals, &distances, &window);
        } else {
            good = false;
        }
        if (!good) {
            return false;
        }
    }
    return window.at == window.size;
}

/* ---- the archive */

typedef struct cli_zip_entry {
    uint32_t method;
    uint64_t packed, size, local;
    char name[CLI_NPZ_NAME + 4]; /* with .npy while it is read */
} cli_zip_entry;

static uint32_t cli_zip_u16(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t cli_zip_u32(const unsigned char *at)
{
    return cli_zip_u16(at) | cli_zip_u16(at + 2) << 16;
}

/* Finds the end record; it stands in the last 65557 bytes. */
static bool cli_zip_end(FILE *file, uint64_t bytes, uint64_t *directory, uint64_t *size,
                        size_t *count)
{
    const size_t tail = bytes < 65557 ? (size_t)bytes : 65557;
    unsigned char *text = (unsigned char *)malloc(tail + 1);
    bool found = false;
    if (text != NULL && tail >= 22 && cli_read_at(file, bytes - tail, text, tail)) {
        for (size_t i = tail - 22 + 1; i-- > 0 && !found;) {
            found = memcmp(text + i, "PK\5\6", 4) == 0;
            if (found) {
                *count = cli_zip_u16(text + i + 10);
                *size = cli_zip_u32(text + i + 12);
                *directory = cli_zip_u32(text + i + 16);
            }
        }
    }
    free(text);
    return found && *directory <= bytes && *size <= bytes - *directory && *size < (1u << 26);
}

/* One entry; gives the bytes it takes in the directory, 0: damaged. */
static size_t cli_zip_entry_at(const unsigned char *at, size_t left, cli_zip_entry *entry)
{
    if (left < 46 || memcmp(at, "PK\1\2", 4) != 0) {
        return 0;
    }
    const size_t name = cli_zip_u16(at + 28);
    const size_t total = 46 + name + cli_zip_u16(at + 30) + cli_zip_u16(at + 32);
    if (total > left) {
        return 0;
    }
    entry->method = cli_zip_u16(at + 10);
    entry->packed = cli_zip_u32(at + 20);
    entry->size = cli_zip_u32(at + 24);
    entry->local = cli_zip_u32(at + 42);
    snprintf(entry->name, sizeof entry->name, "%.*s", (int)name, (const char *)at + 46);
    if (cli_has_suffix(entry->name, ".npy")) {
        entry->name[strlen(entry->name) - 4] = '\0';
    }
    return total;
}

/* Unpacks a deflated entry into array->memory. */
static int cli_npz_unpack(cli_array *array, const cli_zip_entry *entry, uint64_t at)
{
    unsigned char *packed = NULL;
    if (entry->size / 1040 > entry->packed) { /* deflate cannot shrink more than 1032 to 1 */
        return cli_fail("'%s': '%s' is damaged", array->path, entry->name);
    }
    array->memory = (unsigned char *)malloc((size_t)entry->size + 1);
    packed = (unsigned char *)malloc((size_t)entry->packed + 1);
    int code = CLI_OK;
    if (array->memory == NULL || packed == NULL) {
        code = cli_fail_memory((size_t)entry->size);
    } else if (!cli_read_at(array->file, at, packed, (size_t)entry->packed) ||
               !cli_inflate(packed, (size_t)entry->packed, array->memory, (size_t)entry->size)) {
        code = cli_fail("'%s': '%s' is damaged", array->path, entry->name);
    }
    free(packed);
    return code == CLI_OK ? cli_npy_header(array, 0, entry->size) : code;
}

static int cli_npz_array(const char *path, uint64_t bytes, const cli_zip_entry *entry,
                         cli_array *out)
{
    unsigned char local[30];
    if (strlen(entry->name) >= sizeof out->name) {
        return cli_fail("'%s': the name '%.60s...' is too long", path, entry->name);
    }
    memcpy(out->name, entry->name, strlen(entry->name) + 1);
    if (!cli_read_at(out->file, entry->local, local, sizeof local) ||
        memcmp(local, "PK\3\4", 4) != 0) {
        return cli_fail("'%s': '%s' is damaged", path, entry->name);
    }
    const uint64_t at = entry->local + 30 + cli_zip_u16(local + 26) + cli_zip_u16(local + 28);
    if (at > bytes || entry->packed > bytes - at) {
        return cli_fail("'%s' is cut short at '%s'", path, entry->name);
    }
    if (entry->method == 0 && entry->size == entry->packed) {
        return cli_npy_header(out, at, at + entry->size);
    }
    if (entry->method != 8) {
        return cli_fail("'%s': '%s' is packed in a way that is not supported; make the file with "
                        "np.savez",
                        path, entry->name);
    }
    return cli_npz_unpack(out, entry, at);
}

static int cli_npz_entries(FILE *file, const char *path, uint64_t bytes, const unsigned char *directory,
                           size_t size, cli_array *out, size_t capacity, size_t *count)
{
    size_t used = 0;
    for (size_t i = 0; i < capacity; i++) {
        cli_zip_entry entry;
        const size_t step = cli_zip_entry_at(directory + used, size - used, &entry);
        if (step == 0) {
            return cli_fail("'%s' has a damaged directory; make it again with np.savez", path);
        }
        if (entry.size == 0xffffffffu || entry.local == 0xffffffffu) {
            return cli_fail("'%s': '%s' has more than 4 GB; split the data, or use npy:FILE", path,
                            entry.name);
        }
        used += step;
        *count = i + 1; /* counted first: what is half open is closed too */
        out[i].path = path;
        out[i].file = file;
        const int code = cli_npz_array(path, bytes, &entry, &out[i]);
        out[i].file = NULL; /* many arrays keep no file open */
        CLI_TRY(code);
    }
    return CLI_OK;
}

int cli_npz_open(const char *path, cli_array **out, size_t *count)
{
    uint64_t bytes = 0, directory = 0, size = 0;
    size_t entries = 0;
    CLI_TRY(cli_file_bytes(path, &bytes));
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return cli_fail("'%s' cannot be read: %s", path, strerror(errno));
    }
    *out = NULL;
    *count = 0;
    unsigned char *text = NULL;
    int code = CLI_OK;
    if (!cli_zip_end(file, bytes, &directory, &size, &entries)) {
        code = cli_fail("'%s' is no .npz archive; make one with np.savez", path);
    } else {
        text = (unsigned char *)malloc((size_t)size + 1);
        *out = (cli_array *)calloc(entries + 1, sizeof **out);
        if (text == NULL || *out == NULL) {
            code = cli_fail_memory((size_t)size);
        } else if (!cli_read_at(file, directory, text, (size_t)size)) {
            code = cli_fail("'%s' cannot be read", path);
        } else {
            code = cli_npz_entries(file, path, bytes, text, (size_t)size, *out, entries, count);
        }
    }
    fclose(file);
    free(text);
    for (size_t i = 0; code != CLI_OK && i < *count; i++) {
        cli_array_close(&(*out)[i]);
    }
    if (code != CLI_OK) {
        free(*out);
        *out = NULL;
    }
    return code;
}

/* ---- writing */

static void cli_zip_put(unsigned char *at, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> 8 * i);
    }
}

/* CRC-32 of a part of the file (polynomial 0xedb88320). */
static bool cli_zip_crc(FILE *file, long from, uint32_t size, uint32_t *crc)
{
    unsigned char block[512];
    uint32_t c = 0xffffffffu;
    if (fseek(file, from, SEEK_SET) != 0) {
        return false;
    }
    while (size > 0) {
        const size_t n = size < sizeof block ? size : sizeof block;
        if (fread(block, 1, n, file) != n) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            c ^= block[i];
            for (int bit = 0; bit < 8; bit++) {
                c = (c >> 1) ^ (0xedb88320u & (0u - (c & 1u)));
            }
        }
        size -= (uint32_t)n;
    }
    *crc = ~c;
    return true;
}

/* One entry: a local header, the array; `central` gets the header of the directory, 46 bytes. */
static bool cli_zip_add(FILE *file, const char *name, const sbit_tensor *tensor,
                        unsigned char *central)
{
    const size_t length = strlen(name) + 4;
    const long local = ftell(file);
    uint32_t crc = 0;
    memset(central, 0, 46);
    memcpy(central, "PK\1\2\24\0\24", 7); /* made by and needs version 2.0 */
    cli_zip_put(central + 14, 33, 2);        /* 1 January 1980 */
    cli_zip_put(central + 28, (uint32_t)length, 2);
    cli_zip_put(central + 42, (uint32_t)local, 4);
    unsigned char head[30] = {'P', 'K', 3, 4};
    if (local < 0 || fwrite(head, 1, 30, file) != 30 || fprintf(file, "%s.npy", name) < 0 ||
        !cli_npy_write(file, tensor)) {
        return false;
    }
    const long begin = local + 30 + (long)length, end = ftell(file);
    if (end < begin || end > 0x7fffffffL || !cli_zip_crc(file, begin, (uint32_t)(end - begin), &crc)) {
        return false;
    }
    cli_zip_put(central + 16, crc, 4);
    cli_zip_put(central + 20, (uint32_t)(end - begin), 4);
    cli_zip_put(central + 24, (uint32_t)(end - begin), 4);
    memcpy(head + 4, central + 6, 26); /* the same fields: version to length of the extra field */
    return fseek(file, local, SEEK_SET) == 0 && fwrite(head, 1, 30, file) == 30 &&
           fseek(file, 0, SEEK_END) == 0;
}

typedef struct cli_npz {
    size_t count, stride;
    const char *names;
    const sbit_tensor *tensors;
    unsigned char *central; /* count * 46 */
} cli_npz;

static bool cli_npz_write(FILE *file, const void *user)
{
    const cli_npz *z = (const cli_npz *)user;
    unsigned char end[22] = {'P', 'K', 5, 6};
    for (size_t i = 0; i < z->count; i++) {
        if (!cli_zip_add(file, z->names + i * z->stride, &z->tensors[i], z->central + i * 46)) {
            return false;
        }
    }
    const long directory = ftell(file);
    for (size_t i = 0; i < z->count; i++) {
        if (fwrite(z->central + i * 46, 1, 46, file) != 46 ||
            fprintf(file, "%s.npy", z->names + i * z->stride) < 0) {
            return false;
        }
    }
    cli_zip_put(end + 8, (uint32_t)z->count, 2);
    cli_zip_put(end + 10, (uint32_t)z->count, 2);
    cli_zip_put(end + 12, (uint32_t)(ftell(file) - directory), 4);
    cli_zip_put(end + 16, (uint32_t)directory, 4);
    return directory >= 0 && z->count < 65535 && fwrite(end, 1, 22, file) == 22;
}

int cli_npz_save(const char *path, size_t count, const char *names, size_t stride,
                 const sbit_tensor *tensors)
{
    const cli_npz z = {count, stride, names, tensors, (unsigned char *)malloc(count * 46 + 1)};
    if (z.central == NULL) {
        return cli_fail_memory(count * 46);
    }
    const int code = cli_file_replace(path, cli_npz_write, &z);
    free(z.central);
    return code;
}
