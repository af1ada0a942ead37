/* core_private.h: the context's insides and what later layers use of it.
 *
 * Called by: every layer above core. Calls: base, onnx.
 */
#ifndef SBIT_CORE_PRIVATE_H
#define SBIT_CORE_PRIVATE_H

#include "../base/base_private.h"
#include "core_api.h"
#include "json_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__MAX_THREADS 64

/* What users registered, in the order of registration. A kind is the address of something that its
 * layer owns; core knows none. */
typedef struct sbit__registered {
    const void *kind;
    const void *row; /* borrowed from the user until the context is destroyed */
} sbit__registered;

struct sbit_ctx {
    sbit_allocator allocator;
    sbit_logger logger;
    sbit_progress progress;
    int32_t threads; /* at least 1 */
    void (*parallel_for)(int64_t count, sbit_task_fn fn, void *task, void *user);
    void *parallel_user;
    int64_t max_body_nodes;  /* at least 1 */
    sbit_isa isa;            /* never SBIT_ISA_DEFAULT */
    struct sbit__pool *pool; /* NULL: one thread, or the user's parallel_for */
    sbit__registered *registry;
    size_t registry_count, registry_capacity;
};

/* Whether a name is taken is for the kind's layer. */
SBIT__FN sbit_status sbit__registry_add(sbit_ctx *ctx, const void *kind, const void *row,
                                        sbit_error *error);
/* Row `index` of a kind, NULL past the last. */
SBIT__FN const void *sbit__registry_at(const sbit_ctx *ctx, const void *kind, size_t index);

/* Formats for the user's logger; does nothing without one. */
SBIT__FN void sbit__log(sbit_ctx *ctx, sbit_log_level level, const char *format, ...)
    SBIT__PRINTF(3, 4);
/* SBIT_ERR_CANCELLED when the user's callback asks to stop. */
SBIT__FN sbit_status sbit__progress(sbit_ctx *ctx, const char *what, int64_t done, int64_t total,
                                    sbit_error *error);
/* A clock for measuring spans: monotonic where the system shows one, else wall time. */
SBIT__FN uint64_t sbit__now_ns(void);
/* What the processor calls itself; "" where it does not. Gives text. */
#define SBIT__CPU_NAME 49
SBIT__FN const char *sbit__cpu_name(char text[SBIT__CPU_NAME]);

#if !SPARSEBIT_NO_THREADS
/* threads.c: `threads` counts the caller. */
SBIT__FN sbit_status sbit__pool_create(const sbit_allocator *allocator, int32_t threads,
                                       struct sbit__pool **out, sbit_error *error);
SBIT__FN void sbit__pool_destroy(struct sbit__pool *pool); /* NULL is fine */
SBIT__FN void sbit__pool_run(struct sbit__pool *pool, int64_t count, sbit_task_fn fn, void *task);
#endif

/* qparams.c */
/* The zero point that goes with a range and a scale already chosen. */
SBIT__FN int32_t sbit__qparams_zero_point(float min, float scale, bool symmetric, int32_t qmin,
                                          int32_t qmax);

/* convert.c */
/* One element as double / int64; any numeric dtype. */
SBIT__FN double sbit__tensor_f64_at(const sbit_tensor *tensor, int64_t index);
SBIT__FN int64_t sbit__tensor_i64_at(const sbit_tensor *tensor, int64_t index);
SBIT__FN void sbit__tensor_set_f64(sbit_tensor *tensor, int64_t index, double value);
/* Converts n elements between any two numeric types with the rules of Cast-19 (saturate for
 * float8). May be in place only if the sizes are equal. */
SBIT__FN void sbit__convert(sbit_dtype from, const void *src, sbit_dtype to, void *dst, int64_t n);
/* Float8 by one element; `saturate` as in Cast. E8M0 rounds up here; see below for other modes. */
SBIT__FN uint8_t sbit__f32_to_f8(sbit_dtype dtype, float value, bool saturate);
SBIT__FN float sbit__f8_to_f32(sbit_dtype dtype, uint8_t bits);
typedef enum sbit__e8m0_round {
    SBIT__E8M0_UP, /* Cast's attribute round_mode */
    SBIT__E8M0_DOWN,
    SBIT__E8M0_NEAREST
} sbit__e8m0_round;
SBIT__FN uint8_t sbit__f32_to_e8m0(float value, sbit__e8m0_round round, bool saturate);

/* tensor.c */
/* As sbit_tensor_alloc for SBIT_STRING, with room for `text_bytes` of text behind the elements:
 * *text points there. One sbit_tensor_free frees both. */
SBIT__FN sbit_status sbit__tensor_alloc_strings(sbit_ctx *ctx, int32_t rank, const int64_t *dims,
                                                size_t text_bytes, sbit_tensor *out, char **text,
                                                sbit_error *error);
/* A copy with data of its own, strings included; free with sbit_tensor_free. */
SBIT__FN sbit_status sbit__tensor_copy(sbit_ctx *ctx, const sbit_tensor *tensor, sbit_tensor *out,
                                       sbit_error *error);
/* The alignment that the elements of a type need in memory: 1, 2, 4, 8. */
SBIT__FN size_t sbit__dtype_align(sbit_dtype dtype);
/* The elements of a TensorProto in memory that is aligned for their type: borrowed from the
 * document where possible (*owned false), else a block from the context (*owned true: free with
 * sbit_tensor_free). */
SBIT__FN sbit_status sbit__tensor_from_onnx(sbit_ctx *ctx, sbit_onnx_doc *doc,
                                            const sbit_onnx_tensor *source, sbit_tensor *out,
                                            bool *owned, sbit_error *error);
/* Describes `tensor` as a TensorProto of `doc`: raw_data borrows the tensor's data (on big-endian
 * hosts: a swapped copy), text of string tensors is borrowed too. `name` is copied. */
SBIT__FN sbit_status sbit__tensor_to_onnx(sbit_onnx_doc *doc, const char *name,
                                          const sbit_tensor *tensor, sbit_onnx_tensor *out,
                                          sbit_error *error);

/* >>cholesky. h[n][n] = L L^T in place, in the lower half; false: not positive. */
SBIT__FN bool sbit__cholesky(double *h, int64_t n);
/* x = h^-1 x, with the L of h, for eight vectors side by side: x[n][8]. */
enum { SBIT__SOLVE_LANES = 8 };
SBIT__FN void sbit__cholesky_solve(const double *l, int64_t n, double *x);

/* >>json files. A file of JSON, complete or not there; json writes to it. */
typedef struct sbit__json_file {
    sbit__writer writer;
    sbit_status status;
    sbit_error *error;
} sbit__json_file;
SBIT__FN sbit_status sbit__json_file_open(sbit__json_file *file, sbit_ctx *ctx, const char *path,
                                          sbit_json *json, sbit_error *error);
SBIT__FN sbit_status sbit__json_file_close(sbit__json_file *file);
#ifdef __cplusplus
}
#endif

#endif /* SBIT_CORE_PRIVATE_H */
