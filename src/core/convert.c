/* convert.c: one element type to another, for Cast and for operators without a kernel of their own
 * for a type. >>convert
 *
 * Called by: operator families, infer. Calls: core's float16 and bfloat16.
 * Does: all numeric types with the rules of Cast-19 and later. Does not: strings, complex numbers.
 * An element travels as a double (floats), or as 64 bits (integers and bool; uint64 as the same
 * bits). Both carriers hold every value of every type exactly, so each conversion rounds once.
 *
 * Small floats, value = (-1)^s * 2^(e - bias) * 1.m, subnormal 2^(1 - bias) * 0.m when e is 0:
 *   float8e4m3fn    s eeee mmm  bias 7   no infinity, NaN s1111111, largest 448
 *   float8e4m3fnuz  s eeee mmm  bias 8   no infinity, NaN 10000000, no -0, largest 240
 *   float8e5m2      s eeeee mm  bias 15  infinity s1111100, NaN s11111xx, largest 57344
 *   float8e5m2fnuz  s eeeee mm  bias 16  no infinity, NaN 10000000, no -0, largest 57344
 *   float8e8m0      eeeeeeee    2^(e - 127), NaN 11111111
 *   float4e2m1      s ee m      bias 1   no infinity, no NaN (which becomes -0), largest 6
 *   float6e2m3      s ee mmm    bias 1   likewise, largest 7.5
 *   float6e3m2      s eee mm    bias 3   likewise, largest 28
 */
#include "core_private.h"

#include <math.h> /* rint, frexp, ldexp, NAN, INFINITY */

/* Elements at a time; a multiple of 4, so that bytes stay whole. */
#define SBIT__CONVERT_BLOCK 64

typedef struct sbit__small_float {
    int32_t mantissa_bits, bias;
    uint32_t sign_bit, max_code; /* max_code: the largest finite value */
    uint32_t inf_code, nan_code; /* what infinity becomes without saturation; NaN */
    bool unsigned_zero;          /* -0 becomes 0, and NaN has no sign */
} sbit__small_float;

static const sbit__small_float sbit__small_e4m3fn = {3, 7, 0x80, 0x7e, 0x7f, 0x7f, false};
static const sbit__small_float sbit__small_e4m3fnuz = {3, 8, 0x80, 0x7f, 0x80, 0x80, true};
static const sbit__small_float sbit__small_e5m2 = {2, 15, 0x80, 0x7b, 0x7c, 0x7e, false};
static const sbit__small_float sbit__small_e5m2fnuz = {2, 16, 0x80, 0x7f, 0x80, 0x80, true};
static const sbit__small_float sbit__small_e2m1 = {1, 1, 0x08, 0x07, 0x07, 0x08, false};
static const sbit__small_float sbit__small_e2m3 = {3, 1, 0x20, 0x1f, 0x1f, 0x20, false};
static const sbit__small_float sbit__small_e3m2 = {2, 3, 0x20, 0x1f, 0x1f, 0x20, false};

static const sbit__small_float *sbit__small_float_of(sbit_dtype dtype)
{
    switch ((int)dtype) {
    case SBIT_F8E4M3FN:
        return &sbit__small_e4m3fn;
    case SBIT_F8E4M3FNUZ:
        return &sbit__small_e4m3fnuz;
    case SBIT_F8E5M2:
        return &sbit__small_e5m2;
    case SBIT_F8E5M2FNUZ:
        return &sbit__small_e5m2fnuz;
    case SBIT_F6E2M3:
        return &sbit__small_e2m3;
    case SBIT_F6E3M2:
        return &sbit__small_e3m2;
    default:
        return &sbit__small_e2m1;
    }
}

static uint8_t sbit__small_encode(const sbit__small_float *f, double value, bool saturate)
{
    const uint32_t sign = signbit(value) ? f->sign_bit : 0;
    double magnitude = fabs(value);
    int exponent = 0;
    uint32_t code = f->max_code + 1;
    if (isnan(value)) {
        return (uint8_t)(f->unsigned_zero ? f->nan_code : f->nan_code | sign);
    }
    if (!isinf(value)) {
        frexp(magnitude, &exponent);
        exponent = magnitude == 0.0 || exponent < 2 - f->bias ? 1 - f->bias : exponent - 1;
        /* Rounding up to the next power of two carries into the exponent field by itself. */
        magnitude = rint(ldexp(magnitude, f->mantissa_bits - exponent));
        if (exponent + f->bias < 64) {
            code = ((uint32_t)(exponent + f->bias - 1) << f->mantissa_bits) + (uint32_t)magnitude;
        }
    }
    if (code > f->max_code) {
        code = saturate ? f->max_code : f->inf_code;
        return (uint8_t)(f->unsigned_zero && !saturate ? code : code | sign);
    }
    return (uint8_t)(f->unsigned_zero && code == 0 ? 0 : code | sign);
}

static double sbit__small_decode(const sbit__small_float *f, uint32_t bits)
{
    const uint32_t code = bits & (f->sign_bit - 1);
    const uint32_t hidden = 1u << f->mantissa_bits;
    uint32_t mantissa = code & (hidden - 1);
    int exponent = (int)(code >> f->mantissa_bits);
    double value = 0.0;
    if (f->unsigned_zero && bits == f->nan_code) {
        return (double)NAN;
    }
    if (code > f->max_code) {
        value = code == f->inf_code && f->inf_code != f->nan_code ? (double)INFINITY : (double)NAN;
    } else {
        mantissa += exponent > 0 ? hidden : 0;
        exponent = exponent > 0 ? exponent : 1;
        value = ldexp((double)mantissa, exponent - f->bias - f->mantissa_bits);
    }
    return (bits & f->sign_bit) != 0 ? -value : value;
}

SBIT__FN uint8_t sbit__f32_to_e8m0(float value, sbit__e8m0_round round, bool saturate)
{
    int exponent = 0;
    const double fraction = frexp((double)value, &exponent); /* 0.5 <= fraction < 1 */
    int code = 0;
    if (isnan(value) || (!saturate && (isinf(value) || value == 0.0f))) {
        return 0xff;
    }
    if (isinf(value) || value <= 0.0f) {
        return value > 0.0f ? 0xfe : 0;
    }
    if (fraction > 0.5 &&
        (round == SBIT__E8M0_UP || (round == SBIT__E8M0_NEAREST && fraction >= 0.75))) {
        exponent++;
    }
    code = exponent - 1 + 127;
    if (code < 0 || code > 0xfe) {
        return (uint8_t)(!saturate ? 0xff : code < 0 ? 0 : 0xfe);
    }
    return (uint8_t)code;
}

SBIT__FN uint8_t sbit__f32_to_f8(sbit_dtype dtype, float value, bool saturate)
{
    if (dtype == SBIT_F8E8M0) {
        return sbit__f32_to_e8m0(value, SBIT__E8M0_UP, saturate);
    }
    return sbit__small_encode(sbit__small_float_of(dtype), (double)value, saturate);
}

SBIT__FN float sbit__f8_to_f32(sbit_dtype dtype, uint8_t bits)
{
    if (dtype == SBIT_F8E8M0) {
        return bits == 0xff ? NAN : (float)ldexp(1.0, (int)bits - 127);
    }
    return (float)sbit__small_decode(sbit__small_float_of(dtype), bits);
}

/* A double as a float that a second rounding to 16 bits or less cannot go wrong with: cut, and
 * the last bit set where something was cut off ("round to odd"). */
static float sbit__convert_odd(double value)
{
    float single = (float)value;
    uint32_t bits = 0;
    if ((double)single == value || !isfinite(value) || !isfinite(single)) {
        return single;
    }
    memcpy(&bits, &single, sizeof bits);
    if (fabs((double)single) > fabs(value)) {
        bits--;
    }
    bits |= 1u;
    memcpy(&single, &bits, sizeof bits);
    return single;
}

/* Truncates to an integer; values outside of int64 go to its ends, NaN to 0. */
static int64_t sbit__convert_trunc(double value)
{
    if (isnan(value)) {
        return 0;
    }
    if (value >= 9223372036854775808.0) {
        return INT64_MAX;
    }
    return value <= -9223372036854775808.0 ? INT64_MIN : (int64_t)value;
}

static int64_t sbit__convert_to_int(double value, sbit_dtype to)
{
    const int64_t whole = sbit__convert_trunc(value);
    if (to == SBIT_U64 && value >= 9223372036854775808.0) {
        const uint64_t large = value >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)value;
        int64_t bits = 0;
        memcpy(&bits, &large, sizeof bits);
        return bits;
    }
    if (to == SBIT_I32) {
        return whole > INT32_MAX ? INT32_MAX : whole < INT32_MIN ? INT32_MIN : whole;
    }
    if (to == SBIT_U32) {
        return whole > (int64_t)UINT32_MAX ? (int64_t)UINT32_MAX : whole;
    }
    return whole; /* narrower types drop the high bits, as every runtime does */
}

typedef enum sbit__carrier {
    SBIT__CARRY_FLOAT,
    SBIT__CARRY_INT,
    SBIT__CARRY_U64
} sbit__carrier;

static sbit__carrier sbit__carrier_of(sbit_dtype dtype)
{
    if (dtype == SBIT_U64) {
        return SBIT__CARRY_U64;
    }
    if ((SBIT_T(dtype) & SBIT_T_FLOATS) != 0 || dtype == SBIT_F4E2M1 ||
        dtype == SBIT_F6E2M3 || dtype == SBIT_F6E3M2 ||
        (dtype >= SBIT_F8E4M3FN && dtype <= SBIT_F8E5M2FNUZ) || dtype == SBIT_F8E8M0) {
        return SBIT__CARRY_FLOAT;
    }
    return SBIT__CARRY_INT;
}

#define SBIT__CONVERT_LOAD(enum_name, type, member, expr)                                          \
    case enum_name: {                                                                              \
        const type *p = (const type *)src + begin;                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            member[i] = expr;                                                                      \
        }                                                                                          \
        break;                                                                                     \
    }

/* Elements begin..begin+n-1 of floating-point data; f8 and the packed type share the last cases. */
static void sbit__convert_load_float(sbit_dtype dtype, const void *src, int64_t begin, int64_t n,
                                     double *f)
{
    switch ((int)dtype) {
        SBIT__CONVERT_LOAD(SBIT_F32, float, f, (double)p[i])
        SBIT__CONVERT_LOAD(SBIT_F64, double, f, p[i])
        SBIT__CONVERT_LOAD(SBIT_F16, uint16_t, f, (double)sbit_f16_to_f32(p[i]))
        SBIT__CONVERT_LOAD(SBIT_BF16, uint16_t, f, (double)sbit_bf16_to_f32(p[i]))
    case SBIT_F4E2M1:
    case SBIT_F6E2M3:
    case SBIT_F6E3M2:
        for (int64_t i = 0; i < n; i++) {
            f[i] = sbit__small_decode(
                sbit__small_float_of(dtype),
                sbit__packed_at(src, begin + i, sbit_dtype_bits((int32_t)dtype)));
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            f[i] = (double)sbit__f8_to_f32(dtype, ((const uint8_t *)src)[begin + i]);
        }
        break;
    }
}

static void sbit__convert_load_int(sbit_dtype dtype, const void *src, int64_t begin, int64_t n,
                                   int64_t *v)
{
    const int bits = sbit_dtype_bits((int32_t)dtype);
    switch ((int)dtype) {
        SBIT__CONVERT_LOAD(SBIT_U8, uint8_t, v, (int64_t)p[i])
        SBIT__CONVERT_LOAD(SBIT_I8, int8_t, v, (int64_t)p[i])
        SBIT__CONVERT_LOAD(SBIT_U16, uint16_t, v, (int64_t)p[i])
        SBIT__CONVERT_LOAD(SBIT_I16, int16_t, v, (int64_t)p[i])
        SBIT__CONVERT_LOAD(SBIT_U32, uint32_t, v, (int64_t)p[i])
        SBIT__CONVERT_LOAD(SBIT_I32, int32_t, v, (int64_t)p[i])
        SBIT__CONVERT_LOAD(SBIT_BOOL, uint8_t, v, (int64_t)(p[i] != 0))
    case SBIT_U64:
    case SBIT_I64:
        memcpy(v, (const int64_t *)src + begin, (size_t)n * sizeof *v);
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            if (bits != 2 && bits != 4) { /* text, complex: no number */
                v[i] = 0;
                continue;
            }
            const int64_t raw = (int64_t)sbit__packed_at(src, begin + i, bits);
            const bool negative = (dtype == SBIT_I4 || dtype == SBIT_I2) && raw >> (bits - 1) != 0;
            v[i] = negative ? raw - ((int64_t)1 << bits) : raw;
        }
        break;
    }
}
#undef SBIT__CONVERT_LOAD

#define SBIT__CONVERT_STORE(enum_name, type, expr)                                                 \
    case enum_name: {                                                                              \
        type *p = (type *)dst + begin;                                                             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            p[i] = expr;                                                                           \
        }                                                                                          \
        break;                                                                                     \
    }

static void sbit__convert_store_float(sbit_dtype dtype, void *dst, int64_t begin, int64_t n,
                                      const double *f)
{
    switch ((int)dtype) {
        SBIT__CONVERT_STORE(SBIT_F32, float, (float)f[i])
        SBIT__CONVERT_STORE(SBIT_F64, double, f[i])
        SBIT__CONVERT_STORE(SBIT_F16, uint16_t, sbit_f32_to_f16(sbit__convert_odd(f[i])))
        SBIT__CONVERT_STORE(SBIT_BF16, uint16_t, sbit_f32_to_bf16(sbit__convert_odd(f[i])))
    case SBIT_F4E2M1:
    case SBIT_F6E2M3:
    case SBIT_F6E3M2:
        for (int64_t i = 0; i < n; i++) {
            sbit__packed_set(dst, begin + i, sbit_dtype_bits((int32_t)dtype),
                             sbit__small_encode(sbit__small_float_of(dtype), f[i], true));
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            ((uint8_t *)dst)[begin + i] =
                dtype == SBIT_F8E8M0 ? sbit__f32_to_e8m0((float)f[i], SBIT__E8M0_UP, true)
                                     : sbit__small_encode(sbit__small_float_of(dtype), f[i], true);
        }
        break;
    }
}

static void sbit__convert_store_int(sbit_dtype dtype, void *dst, int64_t begin, int64_t n,
                                    const int64_t *v)
{
    switch ((int)dtype) {
        SBIT__CONVERT_STORE(SBIT_U8, uint8_t, (uint8_t)v[i])
        SBIT__CONVERT_STORE(SBIT_I8, int8_t, (int8_t)(uint8_t)v[i])
        SBIT__CONVERT_STORE(SBIT_U16, uint16_t, (uint16_t)v[i])
        SBIT__CONVERT_STORE(SBIT_I16, int16_t, (int16_t)(uint16_t)v[i])
        SBIT__CONVERT_STORE(SBIT_U32, uint32_t, (uint32_t)v[i])
        SBIT__CONVERT_STORE(SBIT_I32, int32_t, (int32_t)(uint32_t)v[i])
        SBIT__CONVERT_STORE(SBIT_BOOL, uint8_t, (uint8_t)(v[i] != 0))
    case SBIT_U64:
    case SBIT_I64:
        memcpy((int64_t *)dst + begin, v, (size_t)n * sizeof *v);
        break;
    default:
        for (int64_t i = 0; i < n && sbit_dtype_bits((int32_t)dtype) < 8; i++) {
            sbit__packed_set(dst, begin + i, sbit_dtype_bits((int32_t)dtype),
                             (uint32_t)v[i]);
        }
        break;
    }
}
#undef SBIT__CONVERT_STORE

/* Integers to floats go straight to the target where a double could not hold them. */
static void sbit__convert_int_to_float(bool is_unsigned, int64_t n, const int64_t *v, sbit_dtype to,
                                       void *dst, int64_t begin)
{
    double f[SBIT__CONVERT_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, &v[i], sizeof bits);
        if (to == SBIT_F32) {
            ((float *)dst)[begin + i] = is_unsigned ? (float)bits : (float)v[i];
        }
        f[i] = is_unsigned ? (double)bits : (double)v[i];
    }
    if (to != SBIT_F32) {
        sbit__convert_store_float(to, dst, begin, n, f);
    }
}

static void sbit__convert_block(sbit_dtype from, const void *src, sbit_dtype to, void *dst,
                                int64_t begin, int64_t n)
{
    double f[SBIT__CONVERT_BLOCK];
    int64_t v[SBIT__CONVERT_BLOCK];
    const bool to_float = sbit__carrier_of(to) == SBIT__CARRY_FLOAT;
    if (sbit__carrier_of(from) != SBIT__CARRY_FLOAT) {
        sbit__convert_load_int(from, src, begin, n, v);
        if (to_float) {
            sbit__convert_int_to_float(from == SBIT_U64, n, v, to, dst, begin);
        } else {
            sbit__convert_store_int(to, dst, begin, n, v);
        }
        return;
    }
    sbit__convert_load_float(from, src, begin, n, f);
    if (to_float) {
        sbit__convert_store_float(to, dst, begin, n, f);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        v[i] = to == SBIT_BOOL ? (f[i] != 0.0 ? 1 : 0) : sbit__convert_to_int(f[i], to);
    }
    sbit__convert_store_int(to, dst, begin, n, v);
}

SBIT__FN void sbit__convert(sbit_dtype from, const void *src, sbit_dtype to, void *dst, int64_t n)
{
    size_t bytes = 0;
    if (n <= 0 || !sbit_dtype_bytes((int32_t)to, n, &bytes)) {
        return;
    }
    if (from == to) {
        memmove(dst, src, bytes);
        return;
    }
    if (src != dst && sbit_dtype_bits((int32_t)to) < 8) {
        ((uint8_t *)dst)[bytes - 1] = 0; /* the unused high bits of the last byte */
    }
    for (int64_t begin = 0; begin < n; begin += SBIT__CONVERT_BLOCK) {
        const int64_t left = n - begin;
        sbit__convert_block(from, src, to, dst, begin,
                            left < SBIT__CONVERT_BLOCK ? left : SBIT__CONVERT_BLOCK);
    }
}

SBIT__FN double sbit__tensor_f64_at(const sbit_tensor *tensor, int64_t index)
{
    double f = 0.0;
    int64_t v = 0;
    uint64_t bits = 0;
    if (sbit__carrier_of(tensor->dtype) == SBIT__CARRY_FLOAT) {
        sbit__convert_load_float(tensor->dtype, tensor->data, index, 1, &f);
        return f;
    }
    sbit__convert_load_int(tensor->dtype, tensor->data, index, 1, &v);
    memcpy(&bits, &v, sizeof bits);
    return tensor->dtype == SBIT_U64 ? (double)bits : (double)v;
}

SBIT__FN int64_t sbit__tensor_i64_at(const sbit_tensor *tensor, int64_t index)
{
    double f = 0.0;
    int64_t v = 0;
    if (sbit__carrier_of(tensor->dtype) == SBIT__CARRY_FLOAT) {
        sbit__convert_load_float(tensor->dtype, tensor->data, index, 1, &f);
        return sbit__convert_trunc(f);
    }
    sbit__convert_load_int(tensor->dtype, tensor->data, index, 1, &v);
    return v;
}

SBIT__FN void sbit__tensor_set_f64(sbit_tensor *tensor, int64_t index, double value)
{
    if (sbit__carrier_of(tensor->dtype) == SBIT__CARRY_FLOAT) {
        sbit__convert_store_float(tensor->dtype, tensor->data, index, 1, &value);
    } else {
        const int64_t v = tensor->dtype == SBIT_BOOL ? (value != 0.0 ? 1 : 0)
                                                     : sbit__convert_to_int(value, tensor->dtype);
        sbit__convert_store_int(tensor->dtype, tensor->data, index, 1, &v);
    }
}
