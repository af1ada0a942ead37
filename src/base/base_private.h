/* base_private.h: configuration block, private linkage, arena, checked arithmetic, text, files.
 *
 * Called by: every implementation file of both headers. Calls: libc, and the operating system
 * only in base/file.c.
 */
#ifndef SBIT_BASE_PRIVATE_H
#define SBIT_BASE_PRIVATE_H

#include "base_api.h"

#include <stdarg.h> /* va_list for message formatting */
#include <string.h> /* memcpy, memset, memcmp, strlen */

/* >>config ---------------------------------------------------------------------------------
 * All switches are 0 or 1 and concern the implementation only: no declaration depends on them.
 */
#ifndef SPARSEBIT_NO_FILES /* 1: no file access (load/save by path fail); saves the OS headers */
#define SPARSEBIT_NO_FILES 0
#endif
#ifndef SPARSEBIT_NO_MMAP /* 1: read files into memory instead of mapping them */
#define SPARSEBIT_NO_MMAP 0
#endif
#ifndef SPARSEBIT_NO_THREADS /* 1: no thread pool; parallel_for callbacks still work */
#if defined(_WIN32) || defined(__unix__) || defined(__APPLE__) || defined(__HAIKU__)
#define SPARSEBIT_NO_THREADS 0
#else /* no system, or none that is known: define it 0 where there are POSIX threads */
#define SPARSEBIT_NO_THREADS 1
#endif
#endif
#ifndef SPARSEBIT_NO_SIMD /* 1: scalar kernels only; smaller, 10-50 times slower */
#define SPARSEBIT_NO_SIMD 0
#endif
#ifndef SPARSEBIT_ASSERT /* programmers' mistakes; has no side effects; off by default */
#define SPARSEBIT_ASSERT(expr) ((void)0)
#endif

/* Linkage of private functions that several source files share: `static` in the single header,
 * external in the split build (SBIT_SPLIT_BUILD), where src/ files are compiled one by one. */
#if defined(SBIT_SPLIT_BUILD)
#define SBIT__FN
#elif defined(__GNUC__)
#define SBIT__FN static __attribute__((unused))
#else
#define SBIT__FN static
#endif

#if defined(__GNUC__)
#define SBIT__INLINE static inline __attribute__((always_inline, unused))
#define SBIT__RESTRICT __restrict__
#define SBIT__PRINTF(fmt_idx, arg_idx) __attribute__((format(printf, fmt_idx, arg_idx)))
#elif defined(_MSC_VER)
#define SBIT__INLINE static __forceinline
#define SBIT__RESTRICT __restrict
#define SBIT__PRINTF(fmt_idx, arg_idx)
#else
#define SBIT__INLINE static inline
#define SBIT__RESTRICT
#define SBIT__PRINTF(fmt_idx, arg_idx)
#endif

/* Leaves the function with the status of a failed call. The only flow macro: functions that own
 * something are written as a wrapper that cleans up around a body that uses this. */
#define SBIT__TRY(expr)                                                                            \
    do {                                                                                           \
        const sbit_status sbit__status_ = (expr);                                                  \
        if (sbit__status_ != SBIT_OK) {                                                            \
            return sbit__status_;                                                                  \
        }                                                                                          \
    } while (0)

#define SBIT__COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#ifdef __cplusplus
extern "C" {
#endif

/* >>error: the three ways a failure is described. Each returns `status`, so that callers write
 * `return sbit__fail(error, SBIT_ERR_SHAPE, name, "...", ...)`. `where` may be NULL (empty). */
SBIT__FN sbit_status sbit__fail(sbit_error *error, sbit_status status, const char *where,
                                const char *format, ...) SBIT__PRINTF(4, 5);
SBIT__FN sbit_status sbit__fail_at(sbit_error *error, sbit_status status, uint64_t byte_offset,
                                   const char *format, ...) SBIT__PRINTF(4, 5);
SBIT__FN sbit_status sbit__fail_oom(sbit_error *error, size_t bytes);

/* >>memory: the one path to the allocator. sbit__alloc(0) gives a valid one-byte block. */
SBIT__FN sbit_allocator sbit__allocator_or_default(const sbit_allocator *allocator); /* NULL ok */
SBIT__FN bool sbit__allocator_valid(const sbit_allocator *allocator); /* all functions or none */
SBIT__FN void *sbit__alloc(const sbit_allocator *a, size_t bytes);    /* uninitialised */
SBIT__FN void *sbit__calloc(const sbit_allocator *a, size_t count, size_t bytes_each);
SBIT__FN void *sbit__realloc(const sbit_allocator *a, void *ptr, size_t old_bytes,
                             size_t new_bytes); /* ptr may be NULL with old_bytes 0 */
SBIT__FN void sbit__free(const sbit_allocator *a, void *ptr, size_t bytes); /* NULL ok */

/* 64-byte aligned blocks for tensor data and packed weights. */
SBIT__FN void *sbit__alloc_aligned(const sbit_allocator *a, size_t bytes);
SBIT__FN void sbit__free_aligned(const sbit_allocator *a, void *ptr, size_t bytes);

/* Grows *items (element size each_bytes) so that `needed` elements fit; doubles. On failure
 * everything is unchanged. Use as: sbit__grow(a, (void **)&p, &capacity, needed, sizeof *p). */
SBIT__FN sbit_status sbit__grow(const sbit_allocator *a, void **items, size_t *capacity,
                                size_t needed, size_t each_bytes, sbit_error *error);

SBIT__FN int sbit__f64_order(const void *a, const void *b); /* for qsort: of doubles, the least first */

/* An arena: many small allocations, one free. Blocks are 16-byte aligned and zeroed. */
typedef struct sbit__arena_block sbit__arena_block;
typedef struct sbit__arena {
    sbit_allocator allocator;
    sbit__arena_block *blocks; /* newest first */
    size_t used_bytes;         /* sum of all requests, for limits and statistics */
    size_t limit_bytes;        /* 0 = none */
    size_t block_bytes;        /* of a common block; 0 = growing */
} sbit__arena;

SBIT__FN void sbit__arena_init(sbit__arena *arena, const sbit_allocator *allocator);
SBIT__FN void sbit__arena_deinit(sbit__arena *arena);
SBIT__FN void *sbit__arena_alloc(sbit__arena *arena, size_t bytes); /* NULL: out of memory */
SBIT__FN void *sbit__arena_array(sbit__arena *arena, size_t count, size_t bytes_each);
SBIT__FN char *sbit__arena_strdup(sbit__arena *arena, const char *text, size_t size);
SBIT__FN char *sbit__arena_printf(sbit__arena *arena, const char *format, ...) SBIT__PRINTF(2, 3);

/* >>checked arithmetic: false on overflow, *out then untouched. */
SBIT__FN bool sbit__add_size(size_t a, size_t b, size_t *out);
SBIT__FN bool sbit__mul_size(size_t a, size_t b, size_t *out);
SBIT__FN bool sbit__add_i64(int64_t a, int64_t b, int64_t *out);
SBIT__FN bool sbit__mul_i64(int64_t a, int64_t b, int64_t *out);
SBIT__FN bool sbit__dims_count(const int64_t *dims, size_t rank, int64_t *out); /* rank 0: 1 */

/* >>text */
SBIT__FN sbit_str sbit__str(const char *text); /* view of a C string; NULL gives an empty view */
SBIT__FN bool sbit__str_eq(sbit_str a, sbit_str b);
SBIT__FN bool sbit__streq(const char *a, const char *b); /* NULL equals NULL and "" only */
SBIT__FN bool sbit__fnmatch(const char *pattern, const char *text); /* * ? [seq] [!seq] */
SBIT__FN char sbit__lower(char c);                                  /* of ASCII letters */
SBIT__FN size_t sbit__edit_distance(const char *a, const char *b);  /* in any case of letters */
/* Bits that look random, of a counter times the step and a key (splitmix64, Steele et al. 2014). */
#define SBIT__MIX64_STEP UINT64_C(0x9E3779B97F4A7C15)
SBIT__INLINE uint64_t sbit__mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}
SBIT__FN uint64_t sbit__hash_bytes(const void *data, size_t size);  /* FNV-1a, 64 bits */
/* Locale-independent number parsing of the whole of `text`; false if it is not a number. */
SBIT__FN bool sbit__parse_i64(const char *text, int64_t *out);
SBIT__FN bool sbit__parse_f64(const char *text, double *out);
/* The shortest of 6, 9, 15, 17 digits that reads back as the same double (float if `single`), with
 * '.' in any locale (printf's %g does not promise that); "inf", "-inf", "nan". Gives the length. */
SBIT__FN size_t sbit__format_f64(double value, bool single, char out[40]);

/* A growing text buffer. After any append fails, `failed` stays set and appends do nothing: check
 * once at the end. `data` is always NUL-terminated once anything was appended. */
typedef struct sbit__text {
    sbit_allocator allocator;
    char *data;
    size_t size, capacity;
    bool failed;
} sbit__text;

SBIT__FN void sbit__text_init(sbit__text *text, const sbit_allocator *allocator);
SBIT__FN void sbit__text_deinit(sbit__text *text);
SBIT__FN void sbit__text_append(sbit__text *text, const char *data, size_t size);
SBIT__FN void sbit__text_printf(sbit__text *text, const char *format, ...) SBIT__PRINTF(2, 3);
SBIT__FN void sbit__text_f64(sbit__text *text, double value, bool single); /* sbit__format_f64 */

/* A hash map from text to a 32-bit index; keys are borrowed and must outlive the map. */
typedef struct sbit__map {
    sbit_allocator allocator;
    struct sbit__map_slot *cells;
    size_t capacity, count;
} sbit__map;

SBIT__FN void sbit__map_init(sbit__map *map, const sbit_allocator *allocator);
SBIT__FN void sbit__map_deinit(sbit__map *map);
SBIT__FN bool sbit__map_find(const sbit__map *map, const char *key, uint32_t *value);
SBIT__FN sbit_status sbit__map_set(sbit__map *map, const char *key, uint32_t value,
                                   sbit_error *error); /* replaces */
SBIT__FN void sbit__map_remove(sbit__map *map, const char *key);

/* >>files. A mapped (or read) file; `data` stays valid until sbit__file_close. */
typedef struct sbit__file {
    const unsigned char *data;
    size_t size;
    bool mapped; /* else allocated */
    sbit_allocator allocator;
} sbit__file;

SBIT__FN sbit_status sbit__file_open(const sbit_allocator *a, const char *path, sbit__file *out,
                                     sbit_error *error);
SBIT__FN bool sbit__file_missing(const char *path); /* nothing is there; false: who knows */
/* Maps or reads `size` bytes at `offset` only; for external data and data sets. */
SBIT__FN sbit_status sbit__file_open_range(const sbit_allocator *a, const char *path,
                                           uint64_t offset, size_t size, sbit__file *out,
                                           sbit_error *error);
SBIT__FN void sbit__file_close(sbit__file *file); /* zeroed or closed: fine */
/* Gives back the memory behind bytes of a mapped file, which are read again from it when they are
 * needed. Nothing happens if they are not in `file`, or it is not mapped. */
SBIT__FN void sbit__file_forget(const sbit__file *file, const void *data, size_t size);
/* Asks the system to serve a large block with large pages: fewer of them to make and to look up. */
SBIT__FN void sbit__pages_large(void *data, size_t size);

/* Writes to a temporary name beside `path`; commit flushes to disk and renames over `path`;
 * abort removes the temporary file. Exactly one of commit and abort ends a writer. */
typedef struct sbit__writer {
    int fd;       /* POSIX */
    void *stream; /* FILE *, elsewhere */
    char *path, *temp_path;
    size_t path_bytes, temp_path_bytes;
    unsigned char *buffer;
    size_t buffered;
    uint64_t written;
    sbit_allocator allocator;
} sbit__writer;

SBIT__FN sbit_status sbit__writer_open(const sbit_allocator *a, const char *path, sbit__writer *out,
                                       sbit_error *error);
SBIT__FN sbit_status sbit__writer_put(sbit__writer *writer, const void *data, size_t size,
                                      sbit_error *error);
SBIT__FN sbit_status sbit__writer_commit(sbit__writer *writer, sbit_error *error);
SBIT__FN void sbit__writer_abort(sbit__writer *writer);

/* >>packed: element `index` of a stream of elements of less than 8 bits each, low bits first; one
 * of 6 bits may lie in two bytes. */
SBIT__INLINE uint32_t sbit__packed_at(const void *data, int64_t index, int bits)
{
    const uint8_t *octet = (const uint8_t *)data + index * bits / 8;
    const int shift = (int)(index * bits % 8);
    const uint32_t two = octet[0] | (shift + bits > 8 ? (uint32_t)octet[1] << 8 : 0u);
    return (two >> shift) & ((1u << bits) - 1u);
}
SBIT__INLINE void sbit__packed_set(void *data, int64_t index, int bits, uint32_t value)
{
    uint8_t *octet = (uint8_t *)data + index * bits / 8;
    const int shift = (int)(index * bits % 8);
    const uint32_t mask = ((1u << bits) - 1u) << shift, placed = (value << shift) & mask;
    octet[0] = (uint8_t)((octet[0] & ~mask) | placed);
    if (shift + bits > 8) {
        octet[1] = (uint8_t)((octet[1] & ~(mask >> 8)) | placed >> 8);
    }
}

#ifdef __cplusplus
}
#endif

#endif /* SBIT_BASE_PRIVATE_H */
