/* profiles.c: the placement profiles. >>profiles
 *
 * One row each; place.c reads the members, nothing else asks for a profile's name.
 */
#include "quant_private.h"

static const sbit_profile_row sbit__profiles[] = {
    {{"sparsebit", "inputs of Sparsebit's operators, float bias", 0, NULL, 0},
     SBIT_PROFILE_CLASSIC | SBIT_PROFILE_WEIGHT_AFFINE | SBIT_PROFILE_SCALE_FLOOR,
     SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {{"generic", "inputs and outputs, int32 bias: integers from the first layer to the last", 0,
      NULL, 0},
     SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_INT32_BIAS | SBIT_PROFILE_RECURRENT_WEIGHTS |
         SBIT_PROFILE_WEIGHT_AFFINE,
     SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {{"onnxruntime", "generic with uint8 activations and int8 weights", 0, NULL, 0},
     SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_INT32_BIAS | SBIT_PROFILE_RECURRENT_WEIGHTS,
     SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {{"openvino", "generic with symmetric weights and float bias", 0, NULL, 0},
     SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_RECURRENT_WEIGHTS,
     SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {{"tensorrt", "inputs and residual branches, symmetric, float bias", 0, NULL, 0},
     SBIT_PROFILE_RESIDUAL_INPUTS | SBIT_PROFILE_RECURRENT_WEIGHTS | SBIT_PROFILE_SYMMETRIC_ONLY,
     SBIT_QSCHEME_PER_TENSOR_SYMMETRIC,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {{"mcu", "generic with int8 activations", 0, NULL, 0},
     SBIT_PROFILE_OUTPUTS | SBIT_PROFILE_INT32_BIAS | SBIT_PROFILE_RECURRENT_WEIGHTS |
         SBIT_PROFILE_SIGNED_AFFINE,
     SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
};

SPARSEBIT_API const sbit_profile_row *sbit_profile_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__profiles) ? &sbit__profiles[index] : NULL;
}

static const sbit_head *sbit__profile_head(size_t index)
{
    return (const sbit_head *)sbit_profile_at(index); /* the first member */
}

static const sbit__kind sbit__profile_kind = {"profile", sbit__profile_head};

SPARSEBIT_API const sbit_profile_row *sbit_profile_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_profile_row *)(const void *)sbit__row_find(ctx, &sbit__profile_kind, name);
}

SBIT__FN const char *sbit__profile_names(const sbit_ctx *ctx, char *text, size_t size)
{
    const sbit_head *row;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; (row = sbit__row_at(ctx, &sbit__profile_kind, i)) != NULL; i++) {
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
    return sbit__row_register(ctx, &sbit__profile_kind, (const sbit_head *)row, true, error);
}

SBIT__FN bool sbit__profile_is(const sbit_profile_row *profile, uint32_t flag)
{
    return (profile->flags & flag) != 0;
}
