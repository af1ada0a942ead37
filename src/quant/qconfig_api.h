/* qconfig_api.h: the quantization configuration (Sparsebit's YAML tree and a few keys more).
 * >>qconfig
 *
 * Called by: users, quant, tools. Calls: config (YAML, key tables), the rows of observers,
 * quantizers and profiles, whose own keys become part of the tree.
 */
#ifndef SBIT_QCONFIG_API_H
#define SBIT_QCONFIG_API_H

#include "../quantizers/quantizers_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_qconfig sbit_qconfig;

/* >>extend */

typedef enum sbit_qscheme {
    SBIT_QSCHEME_PER_TENSOR_SYMMETRIC,
    SBIT_QSCHEME_PER_TENSOR_AFFINE,
    SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC,
    SBIT_QSCHEME_PER_CHANNEL_AFFINE
} sbit_qscheme;

/* >>profiles: where quantizers stand, for a kind of runtime (contracts.md section 5). */
enum {
    SBIT_PROFILE_CLASSIC = 1,            /* Sparsebit's operator list, inputs only */
    SBIT_PROFILE_OUTPUTS = 2,            /* quantize outputs too */
    SBIT_PROFILE_RESIDUAL_INPUTS = 4,    /* TensorRT: of a sum only what no layer makes straight */
    SBIT_PROFILE_INT32_BIAS = 8,         /* bias through DequantizeLinear; else float */
    SBIT_PROFILE_RECURRENT_WEIGHTS = 16, /* LSTM, GRU, RNN weights as int8 */
    SBIT_PROFILE_SYMMETRIC_ONLY = 32,    /* no zero points: affine schemes are refused */
    SBIT_PROFILE_SIGNED_AFFINE = 64,     /* affine activations as int8 -128..127, not uint8 */
    SBIT_PROFILE_WEIGHT_AFFINE = 128,    /* allows affine weights */
    SBIT_PROFILE_SCALE_FLOOR = 256       /* Sparsebit's smallest scale, 1e-6; else no floor */
};

/* Runtimes compute any of `behind` in the epilogue of `before`: the tensor between does not exist.
 */
typedef struct sbit_profile_chain {
    const char *before;
    const char *const *behind; /* ends with NULL */
} sbit_profile_chain;

/* What a kind of runtime wants quantized. Lists of operators end with NULL. */
typedef struct sbit_profile_row {
    sbit_head head;
    uint32_t flags;                                /* SBIT_PROFILE_* */
    sbit_qscheme activation_scheme, weight_scheme; /* without YAML */
    int32_t max_bits;                              /* of activations and weights; 0: 16 */
    const char *const *inputs; /* whose activation inputs are quantized; NULL: of all operators that
                                  the facts of their rows (SBIT_QUANT_INPUTS) name. With CLASSIC the
                                  list alone counts */
    const char *const *sums;   /* elementwise sums: QADD, residual branches, EXPORT.SHARE_SCALE */
    const char *const *clamps; /* fold into the output range of the operator before */
    const sbit_profile_chain *chains; /* see SCHEDULE.DISABLE_UNNECESSARY_QUANT */
    size_t chain_count;
} sbit_profile_row;
SPARSEBIT_API sbit_status sbit_profile_register(sbit_ctx *ctx, const sbit_profile_row *row,
                                                sbit_error *error);
SPARSEBIT_API const sbit_profile_row *sbit_profile_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_profile_row *sbit_profile_at(size_t index); /* NULL past the end */

/* >>formats: how a quantized graph is written (EXPORT.FORMAT, sbit_quant_build_desc.format). */
typedef struct sbit_format_row {
    sbit_head head;
    bool float_activations; /* weights alone are quantized */
    /* optional: rewrites the graph with Q/DQ nodes */
    sbit_status (*write)(sbit_graph *graph, sbit_error *error);
} sbit_format_row;
SPARSEBIT_API sbit_status sbit_format_register(sbit_ctx *ctx, const sbit_format_row *row,
                                               sbit_error *error);
SPARSEBIT_API const sbit_format_row *sbit_format_find(const sbit_ctx *ctx, const char *name);
SPARSEBIT_API const sbit_format_row *sbit_format_at(size_t index); /* NULL past the end */

/* >>users */

/* From a YAML file or text. Existing Sparsebit files load unchanged (DEVICE is accepted with a
 * notice). A YAML without PLACEMENT gets profile "sparsebit". Errors: CONFIG with the key's path
 * and line:column. Free with sbit_qconfig_destroy. */
SPARSEBIT_API sbit_status sbit_qconfig_load(sbit_ctx *ctx, const char *path, sbit_qconfig **out,
                                            sbit_error *error);
SPARSEBIT_API sbit_status sbit_qconfig_read(sbit_ctx *ctx, const char *text, size_t size,
                                            sbit_qconfig **out, sbit_error *error);
/* Without YAML: 8 bits, minmax, the schemes of the profile (NULL: "generic"). */
SPARSEBIT_API sbit_status sbit_qconfig_create(sbit_ctx *ctx, const char *profile,
                                              sbit_qconfig **out, sbit_error *error);
SPARSEBIT_API void sbit_qconfig_destroy(sbit_qconfig *config); /* NULL is fine */

/* Sets one key as if it had been written in the file: "A.QUANTIZER.BIT", "4". */
SPARSEBIT_API sbit_status sbit_qconfig_set(sbit_qconfig *config, const char *path,
                                           const char *value, sbit_error *error);
/* Adds a step to STEPS unless it is listed. */
SPARSEBIT_API sbit_status sbit_qconfig_add_step(sbit_qconfig *config, const char *step,
                                                sbit_error *error);
/* Checks what concerns several keys (bits and schemes that BACKEND and PLACEMENT allow). Done by
 * load, read and sbit_quant_create. */
SPARSEBIT_API sbit_status sbit_qconfig_validate(const sbit_qconfig *config, sbit_error *error);
/* >>extend */

SPARSEBIT_API const sbit_profile_row *sbit_qconfig_profile(const sbit_qconfig *config);
/* >>users */

/* The whole tree as YAML that reads back equal, in pieces to `put`; defaults as comments when
 * only_set. */
SPARSEBIT_API void sbit_qconfig_print(const sbit_qconfig *config, bool only_set,
                                      void (*put)(const char *text, size_t size, void *user),
                                      void *user);

/* Every key with its default, what it takes and means, and every observer, quantizer, step and
 * profile by name, the user's rows too: the tables of the manual. The text goes to `put` in one
 * piece. */
SPARSEBIT_API sbit_status sbit_qconfig_describe(const sbit_qconfig *config,
                                                void (*put)(const char *text, size_t size,
                                                            void *user),
                                                void *user, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QCONFIG_API_H */
