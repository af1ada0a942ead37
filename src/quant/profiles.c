/* profiles.c: the placement profiles. >>profiles
 *
 * One row each; place.c reads the members, nothing else asks for a profile's name.
 */
#include "quant_private.h"

static const char *const sbit__sums[] = {"Add", "Sum", NULL};
static const char *const sbit__clamps[] = {"Relu", "Clip", NULL};

/* Sparsebit's operators (algorithms section 1.9), by their ONNX names. */
static const char *const sbit__classic_inputs[] = {"Conv",        "ConvTranspose",
                                                   "Gemm",        "MatMul",
                                                   "Gather",      "Relu",
                                                   "Clip",        "LeakyRelu",
                                                   "Sigmoid",     "Swish",
                                                   "Gelu",        "Mish",
                                                   "HardSigmoid", "Tanh",
                                                   "ReduceMean",  "LayerNormalization",
                                                   "AveragePool", "GlobalAveragePool",
                                                   "Upsample",    "Resize",
                                                   "Identity",    "Softmax",
                                                   NULL};
static const char *const sbit__behind_conv[] = {
    "BatchNormalization", "Relu", "Clip", "Sigmoid", "LeakyRelu", "Mish", "Swish", "HardSigmoid", NULL};
static const char *const sbit__behind_linear[] = {
    "BatchNormalization", "Relu", "Clip", "Sigmoid", "LeakyRelu", "Mish", "Swish",
    "HardSigmoid",        "Gelu", NULL};
static const char *const sbit__behind_norm[] = {"Relu", "Clip",  "Sigmoid",     "LeakyRelu",
                                                "Mish", "Swish", "HardSigmoid", NULL};
static const sbit_profile_chain sbit__classic_chains[] = {
    {"Conv", sbit__behind_conv},     {"Gemm", sbit__behind_linear},
    {"MatMul", sbit__behind_linear}, {"BatchNormalization", sbit__behind_norm},
    {"Add", sbit__clamps},
};

/* What OpenVINO computes in the epilogue of its layers (HardSigmoid it does not). */
static const char *const sbit__openvino_behind[] = {"HardSwish", "Swish", "Sigmoid", "Tanh", "Elu",
                                                    "Gelu", "Mish", "LeakyRelu", NULL};
static const sbit_profile_chain sbit__openvino_chains[] = {
    {"Conv", sbit__openvino_behind},
    {"Gemm", sbit__openvino_behind},
    {"MatMul", sbit__openvino_behind},
};

#define SBIT__PROFILE(name, doc, flags, activations, max_bits)                                     \
    {                                                                                              \
        {name, doc, 0, NULL, 0}, flags, activations, SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC, max_bits, \
            NULL, sbit__sums, sbit__clamps, NULL, 0                                                \
    }

static const sbit_profile_row sbit__profiles[] = {
    {{"sparsebit", "inputs of Sparsebit's operators, float bias", 0, NULL, 0},
     SBIT_PROFILE_CLASSIC | SBIT_PROFILE_WEIGHT_AFFINE | SBIT_PROFILE_SCALE_FLOOR,
     SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC,
     0,
     sbit__classic_inputs,
     sbit__sums,
     sbit__clamps,
     sbit__classic_chains,
     SBIT__COUNT_OF(sbit__classic_chains)},
    SBIT__PROFILE("generic",
                  "inputs and outputs, int32 bias: integers from the first layer to the last",
                  SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_INT32_BIAS | SBIT_PROFILE_RECURRENT_WEIGHTS |
                      SBIT_PROFILE_WEIGHT_AFFINE,
                  SBIT_QSCHEME_PER_TENSOR_AFFINE, 0),
    SBIT__PROFILE("onnxruntime", "generic with uint8 activations and int8 weights",
                  SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_INT32_BIAS | SBIT_PROFILE_RECURRENT_WEIGHTS,
                  SBIT_QSCHEME_PER_TENSOR_AFFINE, 0),
    {{"openvino", "generic with float bias; activations go with their layers", 0, NULL, 0},
     SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_RECURRENT_WEIGHTS,
     SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC,
     0,
     NULL,
     sbit__sums,
     sbit__clamps,
     sbit__openvino_chains,
     SBIT__COUNT_OF(sbit__openvino_chains)},
    SBIT__PROFILE("tensorrt", "inputs and residual branches, symmetric, float bias",
                  SBIT_PROFILE_RESIDUAL_INPUTS | SBIT_PROFILE_RECURRENT_WEIGHTS |
                      SBIT_PROFILE_SYMMETRIC_ONLY,
                  SBIT_QSCHEME_PER_TENSOR_SYMMETRIC, 8),
    SBIT__PROFILE("residual",
                  "inputs and residual branches: a sum is added up before it is rounded",
                  SBIT_PROFILE_RESIDUAL_INPUTS | SBIT_PROFILE_RECURRENT_WEIGHTS,
                  SBIT_QSCHEME_PER_TENSOR_AFFINE, 0),
    SBIT__PROFILE("mcu", "generic with int8 activations",
                  SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_INT32_BIAS | SBIT_PROFILE_RECURRENT_WEIGHTS |
                      SBIT_PROFILE_SIGNED_AFFINE,
                  SBIT_QSCHEME_PER_TENSOR_AFFINE, 0),
};

SPARSEBIT_API const sbit_profile_row *sbit_profile_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__profiles) ? &sbit__profiles[index] : NULL;
}

static const sbit_head *sbit__profile_head(size_t index)
{
    return (const sbit_head *)sbit_profile_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_profile(void)
{
    static const sbit__kind kind = {"profile", sbit__profile_head};
    return &kind;
}

SPARSEBIT_API const sbit_profile_row *sbit_profile_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_profile_row *)(const void *)sbit__row_find(ctx, sbit__kind_profile(), name);
}

SBIT__FN const char *sbit__profile_names(const sbit_ctx *ctx, char *text, size_t size)
{
    const sbit_head *row;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; (row = sbit__row_at(ctx, sbit__kind_profile(), i)) != NULL; i++) {
        const int n = snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", row->name);
        if (n < 0 || (size_t)n >= size - used) {
            break; /* cut to fit */
        }
        used += (size_t)n;
    }
    return text;
}

SPARSEBIT_API sbit_status sbit_profile_register(sbit_ctx *ctx, const sbit_profile_row *row,
                                                sbit_error *error)
{
    return sbit__row_register(ctx, sbit__kind_profile(), (const sbit_head *)row, true, error);
}

SBIT__FN bool sbit__profile_is(const sbit_profile_row *profile, uint32_t flag)
{
    return (profile->flags & flag) != 0;
}

SBIT__FN bool sbit__word_listed(const char *const *list, const char *word)
{
    for (; list != NULL && *list != NULL; list++) {
        if (sbit__streq(*list, word)) {
            return true;
        }
    }
    return false;
}
