/* profiles.c: the placement profiles. >>profiles
 *
 * One row each; place.c reads the members, nothing else asks for a profile's name.
 */
#include "quant_private.h"

static const sbit_profile_row sbit__profiles[] = {
    /* name, doc, classic, outputs, residual_inputs, int32_bias, recurrent_weights, symmetric_only,
     * signed_affine, weight_affine, activation_scheme, weight_scheme */
    {"sparsebit", "inputs of Sparsebit's operators, float bias", true, false, false, false, false,
     false, false, true, SBIT_QSCHEME_PER_TENSOR_AFFINE, SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {"generic", "inputs and outputs, int32 bias: integers from the first layer to the last", false,
     true, false, true, true, false, false, true, SBIT_QSCHEME_PER_TENSOR_AFFINE,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {"onnxruntime", "generic with uint8 activations and int8 weights", false, true, false, true,
     true, false, false, false, SBIT_QSCHEME_PER_TENSOR_AFFINE, SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {"openvino", "generic with symmetric weights and float bias", false, true, false, false, true,
     false, false, false, SBIT_QSCHEME_PER_TENSOR_AFFINE, SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {"tensorrt", "inputs and residual branches, symmetric, float bias", false, false, true, false,
     true, true, false, false, SBIT_QSCHEME_PER_TENSOR_SYMMETRIC,
     SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
    {"mcu", "generic with int8 activations", false, true, false, true, true, false, true, false,
     SBIT_QSCHEME_PER_TENSOR_AFFINE, SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC},
};

SPARSEBIT_API const sbit_profile_row *sbit_profile_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__profiles) ? &sbit__profiles[index] : NULL;
}

SPARSEBIT_API const sbit_profile_row *sbit_profile_find(const sbit_ctx *ctx, const char *name)
{
    const void *row = sbit__strategy_find(ctx, SBIT__REG_PROFILE, name);
    for (size_t i = 0; row == NULL && i < SBIT__COUNT_OF(sbit__profiles); i++) {
        row = sbit__same_word(sbit__profiles[i].name, name) ? &sbit__profiles[i] : NULL;
    }
    return (const sbit_profile_row *)row;
}

SBIT__FN const char *sbit__profile_names(const sbit_ctx *ctx, char *text, size_t size)
{
    size_t count = 0, used = 0;
    const void *const *rows = sbit__registry_rows(ctx, SBIT__REG_PROFILE, &count);
    text[0] = '\0';
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__profiles) + count; i++) {
        const size_t user = i - SBIT__COUNT_OF(sbit__profiles);
        const sbit_profile_row *row = i < SBIT__COUNT_OF(sbit__profiles)
                                          ? &sbit__profiles[i]
                                          : (const sbit_profile_row *)rows[user];
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
    return sbit__strategy_register(ctx, SBIT__REG_PROFILE, "profile", row,
                                   sbit_profile_find(ctx, row->name) != NULL, true, error);
}
