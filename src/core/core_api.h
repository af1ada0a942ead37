/* core_api.h: context, logging, progress, threads, random numbers, tensors. >>core
 *
 * Called by: users and every later layer. Calls: base.
 * A context is passed first everywhere; it holds the allocator, the callbacks, the CPU's features
 * and what the user registered. Nothing else in the library is global.
 */
#ifndef SBIT_CORE_API_H
#define SBIT_CORE_API_H

#include "../onnx/onnx_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_ctx sbit_ctx;

/* >>isa: instruction sets that kernels are written for; later rows contain earlier ones of the
 * same architecture, but AVX2VNNI stands beside AVX-512. X(enum, number, text) */
#define SBIT_ISA_LIST(X)                                                                           \
    X(SBIT_ISA_SCALAR, 1, "scalar")                                                                \
    X(SBIT_ISA_SSE2, 2, "sse2")                                                                    \
    X(SBIT_ISA_AVX2, 3, "avx2")             /* with FMA */                                         \
    X(SBIT_ISA_AVX512, 4, "avx512")         /* F, BW, DQ, VL */                                    \
    X(SBIT_ISA_AVX512VNNI, 5, "avx512vnni") /* and VNNI */                                         \
    X(SBIT_ISA_NEON, 6, "neon")                                                                    \
    X(SBIT_ISA_WASM128, 7, "wasm128")                                                              \
    X(SBIT_ISA_AVX2VNNI, 8, "avx2vnni") /* AVX2 and AVX-VNNI */

typedef enum sbit_isa {
    SBIT_ISA_DEFAULT = 0, /* the best that the CPU and operating system offer */
#define SBIT__ISA_ENUM(name, number, text) name = number,
    SBIT_ISA_LIST(SBIT__ISA_ENUM)
#undef SBIT__ISA_ENUM
    SBIT_ISA_COUNT
} sbit_isa;

/* >>callbacks */
typedef enum sbit_log_level {
    SBIT_LOG_INFO,
    SBIT_LOG_WARNING
} sbit_log_level;

/* Receives notices; without one the library is silent. Called from the calling thread. */
typedef struct sbit_logger {
    void (*log_fn)(sbit_log_level level, const char *message, void *user);
    void *user;
} sbit_logger;

/* Told about long work: `done` of `total` units of `what` ("calibrate", ...). Returning false
 * cancels: the running call ends with SBIT_ERR_CANCELLED and leaves nothing half done. */
typedef struct sbit_progress {
    bool (*progress_fn)(const char *what, int64_t done, int64_t total, void *user);
    void *user;
} sbit_progress;

/* One piece of parallel work. `worker` < the context's thread count; no two pieces with the same
 * worker run at the same time, so scratch memory is per worker. */
typedef void (*sbit_task_fn)(void *task, int64_t index, int32_t worker);

/* >>context. {0} is a valid desc: malloc, silent, one thread, best ISA. */
typedef struct sbit_ctx_desc {
    sbit_allocator allocator;
    sbit_logger logger;
    sbit_progress progress;
    int32_t threads; /* 0: 1; N: a pool of N-1 threads besides the caller; at most 64 */
    /* The user's job system instead of the pool: calls fn(task, i, worker) once for each i in
     * 0..count-1 with worker < `threads`, and returns when all are done. NULL: own pool. */
    void (*parallel_for)(int64_t count, sbit_task_fn fn, void *task, void *user);
    void *parallel_user;
    /* How many nodes of bodies (of If, Loop, Scan) one inference of types may look at, counted each
     * time: nested loops can make that grow without bounds. 0: 500,000 */
    int64_t max_body_nodes;
    sbit_isa force_isa; /* for tests and comparisons; unavailable: SBIT_ERR_UNSUPPORTED */
} sbit_ctx_desc;

/* desc may be NULL. Free with sbit_ctx_destroy after everything that was made with it. A context
 * may be used by several threads at once; its pool then serves one of them at a time and the
 * others run on their own thread. Registration is not thread-safe: register first. */
SPARSEBIT_API sbit_status sbit_ctx_create(const sbit_ctx_desc *desc, sbit_ctx **out,
                                          sbit_error *error);
SPARSEBIT_API void sbit_ctx_destroy(sbit_ctx *ctx); /* NULL is fine */

SPARSEBIT_API sbit_isa sbit_ctx_isa(const sbit_ctx *ctx);
SPARSEBIT_API int32_t sbit_ctx_threads(const sbit_ctx *ctx);
SPARSEBIT_API const sbit_allocator *sbit_ctx_allocator(const sbit_ctx *ctx);
SPARSEBIT_API const char *sbit_isa_name(sbit_isa isa);
SPARSEBIT_API bool sbit_isa_available(sbit_isa isa); /* compiled in, and the CPU and OS have it */

/* >>extend */

/* Runs fn for each index 0..count-1 on the context's threads; returns when all are done. */
SPARSEBIT_API void sbit_ctx_parallel(sbit_ctx *ctx, int64_t count, sbit_task_fn fn, void *task);

/* >>users */

/* >>rng: PCG32, the same numbers everywhere. Not for cryptography. */
typedef struct sbit_rng {
    uint64_t state;
} sbit_rng;
SPARSEBIT_API sbit_rng sbit_rng_seed(uint64_t seed);
SPARSEBIT_API uint32_t sbit_rng_next(sbit_rng *rng);
SPARSEBIT_API uint32_t sbit_rng_below(sbit_rng *rng, uint32_t bound); /* unbiased; bound >= 1 */
SPARSEBIT_API float sbit_rng_uniform(sbit_rng *rng);                  /* [0, 1) */
SPARSEBIT_API float sbit_rng_normal(sbit_rng *rng);                   /* mean 0, deviation 1 */

/* >>tensor */
#define SBIT_MAX_RANK 8

/* A dense row-major tensor; plain data, copied freely. Who owns `data` is said where a tensor is
 * handed over. Types below 8 bits are packed as in raw_data; SBIT_STRING holds sbit_str. */
typedef struct sbit_tensor {
    sbit_dtype dtype;
    int32_t rank;                /* 0: a scalar */
    int64_t dims[SBIT_MAX_RANK]; /* dims[rank..] are 0 */
    void *data;                  /* NULL only if a dim is 0, or not yet allocated */
} sbit_tensor;

typedef enum sbit_value_kind {
    SBIT_KIND_TENSOR = 0,
    SBIT_KIND_SEQUENCE,
    SBIT_KIND_OPTIONAL, /* holds 0 or 1 item */
    SBIT_KIND_MAP,      /* not executed, only carried in models */
    SBIT_KIND_SPARSE,   /* likewise */
    SBIT_KIND_OPAQUE    /* likewise */
} sbit_value_kind;

/* What flows through a graph when it runs. */
typedef struct sbit_value {
    sbit_value_kind kind;
    sbit_tensor tensor;       /* SBIT_KIND_TENSOR */
    struct sbit_value *items; /* SBIT_KIND_SEQUENCE, SBIT_KIND_OPTIONAL */
    int64_t item_count;
} sbit_value;

SPARSEBIT_API int64_t sbit_tensor_count(const sbit_tensor *tensor); /* elements; rank 0: 1 */
/* As sbit_dtype_bytes; for SBIT_STRING of the sbit_str, without the text. */
SPARSEBIT_API size_t sbit_tensor_bytes(const sbit_tensor *tensor);
SPARSEBIT_API bool sbit_tensor_same_shape(const sbit_tensor *a, const sbit_tensor *b);
/* Allocates zeroed 64-byte aligned data for the given shape (dims may be NULL with rank 0).
 * Free with sbit_tensor_free. Errors: SHAPE, LIMIT, OUT_OF_MEMORY. */
SPARSEBIT_API sbit_status sbit_tensor_alloc(sbit_ctx *ctx, sbit_dtype dtype, int32_t rank,
                                            const int64_t *dims, sbit_tensor *out,
                                            sbit_error *error);
SPARSEBIT_API void sbit_tensor_free(sbit_ctx *ctx, sbit_tensor *tensor); /* then zeroed */
/* Writes "float32[1,3,224,224]"; always NUL-terminated. */
SPARSEBIT_API void sbit_tensor_describe(const sbit_tensor *tensor, char *text, size_t size);

/* A TensorProto file (.pb) as a tensor with data of its own; free with sbit_tensor_free. */
SPARSEBIT_API sbit_status sbit_tensor_load_pb(sbit_ctx *ctx, const char *path, sbit_tensor *out,
                                              sbit_error *error);
/* A .npy file of NumPy: one plain array in C order, of this machine's byte order; likewise. */
SPARSEBIT_API sbit_status sbit_tensor_load_npy(sbit_ctx *ctx, const char *path, sbit_tensor *out,
                                               sbit_error *error);
SPARSEBIT_API sbit_status sbit_tensor_save_pb(sbit_ctx *ctx, const char *path, const char *name,
                                              const sbit_tensor *tensor, sbit_error *error);

/* float16/bfloat16/float8 conversions, round half to even (ONNX Cast). */
SPARSEBIT_API float sbit_f16_to_f32(uint16_t bits);
SPARSEBIT_API uint16_t sbit_f32_to_f16(float value);
SPARSEBIT_API float sbit_bf16_to_f32(uint16_t bits);
SPARSEBIT_API uint16_t sbit_f32_to_bf16(float value);

/* >>feed: data that can be read again, in any order: calibration, evaluation, pruning and training
 * pull from it. A stateful model's sample is a whole sequence. */
enum {
    SBIT_FEED_BATCH = 32, /* samples read at once where nobody says otherwise */
    SBIT_FEED_MOST = 128  /* and at most */
};

/* Some samples, ready for a session; borrowed until the next read. */
typedef struct sbit_batch {
    int64_t samples; /* rows of the tensors beyond them are padding: fed, never looked at ... */
    bool whole;      /* ... unless this is set: a sample is a batch of its own, all rows count */
    size_t input_count;
    const sbit_tensor *inputs;
    const char *const *names; /* of the inputs; NULL: of the model's only input */
    size_t target_count;
    const sbit_tensor *targets; /* what training and evaluation compare with; class numbers: int64
                                   [samples] */
    const int64_t *index;       /* [samples] which samples these are; not the array that read was
                                   given, which goes when it returns */
} sbit_batch;

/* A source of samples; whoever has them fills it in. Plain data. */
typedef struct sbit_feed {
    int64_t count; /* of samples */
    int64_t batch; /* samples that one read may ask for; 0: any number up to SBIT_FEED_MOST */
    /* Reads samples index[0..count-1], in that order; `out` arrives zeroed. */
    sbit_status (*read)(void *user, const int64_t *index, int64_t count, sbit_batch *out,
                        sbit_error *error);
    void (*close)(void *user); /* NULL: nothing to free */
    void *user;
} sbit_feed;

/* Samples first, first + 1 ...: up to `wanted` of them (0: SBIT_FEED_BATCH), fewer where the feed
 * allows fewer at once or ends. A loop adds out->samples to `first` until feed->count. */
SPARSEBIT_API sbit_status sbit_feed_read(const sbit_feed *feed, int64_t first, int64_t wanted,
                                         sbit_batch *out, sbit_error *error);
SPARSEBIT_API void sbit_feed_close(sbit_feed *feed); /* then zeroed; NULL is fine */

/* How raw numbers become input values: float32 y = (x * scale - mean[c]) / std[c], computed in
 * float64. */
typedef struct sbit_normalize {
    double scale;             /* 0: 1 */
    const double *mean, *std; /* [channels], borrowed; NULL: 0 and 1 */
    int64_t channels;         /* 0 and 1: one number for all */
    int32_t axis;             /* of the channels in a batch; 0: 1, as in [N,C,H,W] */
} sbit_normalize;
/* The numbers of x (integers or floats) to y[count of x]. Errors: SHAPE. Thread-safe. */
SPARSEBIT_API sbit_status sbit_tensor_normalize(const sbit_normalize *normalize,
                                                const sbit_tensor *x, float *y, sbit_error *error);

/* Arrays in memory as a feed. {0} but for inputs and input_count is valid. */
typedef struct sbit_feed_desc {
    size_t input_count;
    const sbit_tensor *inputs; /* first dim: samples; a scalar goes to every batch */
    const char *const *names;  /* NULL: one input, the model's only one */
    size_t target_count;
    const sbit_tensor *targets; /* first dim: samples */
    int64_t batch;              /* as in sbit_feed */
    int64_t rows;               /* the model takes batches of this size only: the last sample is
                                   repeated; 0: of any size */
    sbit_normalize normalize;   /* all zero: values are fed as they are */
} sbit_feed_desc;
/* Borrows the arrays and names; free with sbit_feed_close. Errors: SHAPE, INVALID_ARGUMENT. One
 * thread at a time. */
SPARSEBIT_API sbit_status sbit_feed_of_tensors(sbit_ctx *ctx, const sbit_feed_desc *desc,
                                               sbit_feed *out, sbit_error *error);

/* >>parts: which elements of a tensor share something: a scale, a bit of a mask. Its shape is
 * folded into four dims, row-major; element (i0, i1, i2, i3) belongs to part
 *     sum over d of (i_d / block[d]) * step[d]
 * step 0: all indices of d together; block >= 1, the last block may be short.
 *     per tensor                  one dim, step 0
 *     per index of an axis        {outer, axis, inner}, step {0, 1, 0}
 *     blocks of b along an axis   {outer, axis, inner}, block {1, b, 1}, a step for each: as
 *                                 DequantizeLinear-21 has it with block_size
 *     groups of b indices         the same with step 0 for outer and inner */
typedef struct sbit_parts {
    int64_t dims[4], block[4], step[4];
    int64_t count; /* of parts */
} sbit_parts;

/* >>extend */

/* Sets of element types: bit n is the sbit_dtype with number n. */
#define SBIT_T(dtype) (1u << (uint32_t)(dtype))
#define SBIT_T_FLOATS (SBIT_T(SBIT_F32) | SBIT_T(SBIT_F16) | SBIT_T(SBIT_BF16) | SBIT_T(SBIT_F64))
#define SBIT_T_SIGNED (SBIT_T(SBIT_I8) | SBIT_T(SBIT_I16) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64))
#define SBIT_T_UNSIGNED (SBIT_T(SBIT_U8) | SBIT_T(SBIT_U16) | SBIT_T(SBIT_U32) | SBIT_T(SBIT_U64))
#define SBIT_T_INTS (SBIT_T_SIGNED | SBIT_T_UNSIGNED)
#define SBIT_T_NUMBERS (SBIT_T_FLOATS | SBIT_T_INTS)
#define SBIT_T_ANY 0xffffffffu

/* axis -1: the whole tensor is one part. block 0: a part for each index of the axis. block > 0: one
 * for each block of that many indices along it, at every place of the other dims. */
SPARSEBIT_API sbit_parts sbit_parts_of(const sbit_tensor *shape, int32_t axis, int64_t block);
/* The part of element number `element` (row-major). */
SPARSEBIT_API int64_t sbit_parts_at(const sbit_parts *parts, int64_t element);
SPARSEBIT_API int64_t sbit_parts_elements(const sbit_parts *parts);

/* Walks a tensor in runs of neighbours that belong to one part:
 *     sbit_runs runs = sbit_runs_of(&parts);
 *     while (sbit_runs_next(&runs)) { elements runs.at .. runs.at + runs.count - 1: runs.part } */
typedef struct sbit_runs {
    int64_t at, count, part;
    sbit_parts parts; /* what follows is the walk's own */
    int64_t index[4], tail;
    int32_t dim;
} sbit_runs;
SPARSEBIT_API sbit_runs sbit_runs_of(const sbit_parts *parts);
SPARSEBIT_API bool sbit_runs_next(sbit_runs *runs); /* false past the end */

/* >>users */

/* >>grid: what integers a tensor becomes, and which elements share a scale. */
typedef struct sbit_grid {
    sbit_dtype dtype;   /* storage: SBIT_I8, SBIT_U8, SBIT_I16, SBIT_U16, SBIT_I4, SBIT_U4 ... */
    int32_t bits;       /* true width, 2..16 */
    int32_t qmin, qmax; /* float8: 0, the type says it */
    bool symmetric;
    bool power_of_two; /* scales are; rounded up */
    sbit_parts parts;  /* of activations: count, block and step hold for every piece of data, dims
                         are those of one */
} sbit_grid;

/* >>qparams: how a tensor is quantized: q = saturate(round_half_even(x / scale) + zero_point) in
 * qmin..qmax, x ~ (q - zero_point) * scale. */
typedef struct sbit_qparams {
    sbit_grid grid;
    int32_t axis;              /* the axis of grid.parts, -1: per tensor */
    int64_t block;             /* of indices along it, 0: none; see sbit_parts_of */
    const float *scale;        /* [grid.parts.count]; NULL: not known yet */
    const int32_t *zero_point; /* likewise */
} sbit_qparams;

/* >>extend */

/* The one way from a range to scale and zero point (contracts.md section 4): min and max are
 * widened to contain 0. symmetric: scale = 2 max(|min|,|max|) / (qmax - qmin), zero_point = 0 or
 * the middle for unsigned ranges; with qmin == -qmax ("narrow") scale = max(|min|,|max|) / qmax.
 * affine: scale = (max - min) / (qmax - qmin), zero_point = clamp(round(qmin - min / scale)).
 * min = max = 0 gives scale 1, zero point 0 (or the middle); no scale is below 1.2e-38, so that it
 * and its reciprocal are normal numbers.
 * Errors: NUMERIC when min or max is not finite (name the tensor in `name`). Thread-safe. */
SPARSEBIT_API sbit_status sbit_qparams_from_range(const char *name, float min, float max,
                                                  bool symmetric, int32_t qmin, int32_t qmax,
                                                  float *scale, int32_t *zero_point,
                                                  sbit_error *error);

/* The same for a grid: with scales that are powers of two if it asks for them. */
SPARSEBIT_API sbit_status sbit_grid_scale(const sbit_grid *grid, const char *name, float min,
                                          float max, float *scale, int32_t *zero_point,
                                          sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_CORE_API_H */
