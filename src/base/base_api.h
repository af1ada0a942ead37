/* base_api.h: status, error, allocator and byte views: what every other part speaks. >>base
 *
 * Called by: everything. Calls: nothing. Stands alone in sparsebit_onnx.h.
 * All functions here are thread-safe: none keeps state.
 */
#ifndef SBIT_BASE_API_H
#define SBIT_BASE_API_H

#include <stdbool.h> /* bool */
#include <stddef.h>  /* size_t, NULL */
#include <stdint.h>  /* int64_t and friends */

#define SPARSEBIT_VERSION_MAJOR 0
#define SPARSEBIT_VERSION_MINOR 1
#define SPARSEBIT_VERSION_PATCH 0
#define SPARSEBIT_VERSION "0.1.0"

/* Linkage of every public function: `extern`, or `static` with SPARSEBIT_STATIC. */
#ifndef SPARSEBIT_API
#if defined(SPARSEBIT_STATIC)
#if defined(__GNUC__)
#define SPARSEBIT_API static __attribute__((unused))
#else
#define SPARSEBIT_API static
#endif
#else
#define SPARSEBIT_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The result of everything that can fail: 0 is success, negative says which class of failure. */
#define SBIT_STATUS_LIST(X)                                                                        \
    X(SBIT_OK, 0, "success")                                                                       \
    X(SBIT_ERR_OUT_OF_MEMORY, -1, "out of memory")                                                 \
    X(SBIT_ERR_INVALID_ARGUMENT, -2, "invalid argument")                                           \
    X(SBIT_ERR_IO, -3, "file cannot be read or written")                                           \
    X(SBIT_ERR_PARSE, -4, "malformed input")                                                       \
    X(SBIT_ERR_LIMIT, -5, "a size or depth limit was exceeded")                                    \
    X(SBIT_ERR_UNSUPPORTED, -6, "not supported")                                                   \
    X(SBIT_ERR_INVALID_MODEL, -7, "the model breaks a rule of ONNX")                               \
    X(SBIT_ERR_SHAPE, -8, "shapes or types do not fit")                                            \
    X(SBIT_ERR_NOT_FOUND, -9, "no such name")                                                      \
    X(SBIT_ERR_DUPLICATE, -10, "name already taken")                                               \
    X(SBIT_ERR_CONFIG, -11, "invalid configuration")                                               \
    X(SBIT_ERR_STATE, -12, "called in the wrong order")                                            \
    X(SBIT_ERR_NUMERIC, -13, "a value is not finite")                                              \
    X(SBIT_ERR_CANCELLED, -14, "cancelled by the caller")

typedef enum sbit_status {
#define SBIT__STATUS_ENUM(name, value, text) name = value,
    SBIT_STATUS_LIST(SBIT__STATUS_ENUM)
#undef SBIT__STATUS_ENUM
    SBIT__STATUS_FORCE_INT = 0x7fffffff
} sbit_status;

/* Details of a failure, owned by the caller; pass NULL where they do not matter.
 * message: one sentence naming the thing, cut to fit. where: byte offset, "line:column", node or
 * tensor name, may be empty. Written only on failure. */
typedef struct sbit_error {
    sbit_status status;
    char message[512];
    char where[128];
} sbit_error;

/* The fixed English text of a status; "unknown status" for other values. Never NULL. */
SPARSEBIT_API const char *sbit_status_text(sbit_status status);

/* Where all memory comes from. All three functions or none ({0} = malloc/realloc/free).
 * alloc_fn returns memory aligned for any type, or NULL; sizes are never 0.
 * realloc_fn gets the old size; on NULL the old block stays valid.
 * free_fn gets the size that was asked for; never called with NULL.
 * Called from the thread that calls the library, never from pool threads. */
typedef struct sbit_allocator {
    void *(*alloc_fn)(size_t bytes, void *user);
    void *(*realloc_fn)(void *ptr, size_t old_bytes, size_t new_bytes, void *user);
    void (*free_fn)(void *ptr, size_t bytes, void *user);
    void *user;
} sbit_allocator;

/* A view of bytes that something else owns. A view of *text* is always followed by a NUL that
 * `size` does not count, so `data` can be used as a C string; a view of *bytes* is not. */
typedef struct sbit_str {
    const char *data; /* NULL only if size is 0 */
    size_t size;
} sbit_str;

/* The word that `text` was probably meant to be ("did you mean"): few edits away in any case of
 * letters, or begun by it. NULL: none is near. */
SPARSEBIT_API const char *sbit_word_nearest(const char *text, const char *const *words,
                                            size_t count);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_BASE_API_H */
