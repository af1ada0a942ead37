/* vec_neon.h: vector operations of 64-bit ARM's NEON. >>vec_neon
 *
 * The names are explained in vec_sse2.h; vec_end.h takes them back.
 */
#define SBIT__V(name) sbit__##name##__neon
#define SBIT__V_TARGET
#define SBIT__V_INLINE SBIT__INLINE
#if !defined(__clang__)
#pragma GCC diagnostic push
#endif

enum {
    SBIT__V(lanes) = 4
};
typedef int32x4_t SBIT__V(vi);
typedef float32x4_t SBIT__V(vf);
typedef uint8x16_t SBIT__V(vb);

SBIT__V_INLINE int32x4_t SBIT__V(set_i32)(int32_t x)
{
    return vdupq_n_s32(x);
}
SBIT__V_INLINE int32x4_t SBIT__V(load_i32)(const int32_t *x)
{
    return vld1q_s32(x);
}
SBIT__V_INLINE void SBIT__V(store_i32)(int32_t *y, int64_t n, int32x4_t v)
{
    if (n >= 4) {
        vst1q_s32(y, v);
    } else {
        int32_t part[4];
        vst1q_s32(part, v);
        memcpy(y, part, n > 0 ? (size_t)n * sizeof *y : 0);
    }
}
SBIT__V_INLINE int32x4_t SBIT__V(add_i32)(int32x4_t a, int32x4_t b)
{
    return vaddq_s32(a, b);
}
SBIT__V_INLINE int32x4_t SBIT__V(sub_i32)(int32x4_t a, int32x4_t b)
{
    return vsubq_s32(a, b);
}
SBIT__V_INLINE int32x4_t SBIT__V(mul_i32)(int32x4_t a, int32x4_t b)
{
    return vmulq_s32(a, b);
}
SBIT__V_INLINE int32x4_t SBIT__V(load_u8)(const uint8_t *x, int64_t n)
{
    uint8_t part[8] = {0};
    memcpy(part, x, n >= 4 ? 4 : n > 0 ? (size_t)n : 0);
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vld1_u8(part)))));
}
SBIT__V_INLINE void SBIT__V(store_u8)(uint8_t *y, int64_t n, int32x4_t v)
{
    const uint16x4_t words = vqmovun_s32(v);
    const uint8x8_t bytes = vqmovn_u16(vcombine_u16(words, words));
    const uint32_t part = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(y, &part, n >= 4 ? 4 : n > 0 ? (size_t)n : 0);
}
SBIT__V_INLINE float32x4_t SBIT__V(set_f32)(float x)
{
    return vdupq_n_f32(x);
}
SBIT__V_INLINE float32x4_t SBIT__V(load_f32)(const float *x, int64_t n)
{
    float part[4] = {0.0f};
    if (n >= 4) {
        return vld1q_f32(x);
    }
    memcpy(part, x, n > 0 ? (size_t)n * sizeof *x : 0);
    return vld1q_f32(part);
}
SBIT__V_INLINE void SBIT__V(store_f32)(float *y, int64_t n, float32x4_t v)
{
    float part[4];
    if (n >= 4) {
        vst1q_f32(y, v);
    } else {
        vst1q_f32(part, v);
        memcpy(y, part, n > 0 ? (size_t)n * sizeof *y : 0);
    }
}
SBIT__V_INLINE float32x4_t SBIT__V(add_f32)(float32x4_t a, float32x4_t b)
{
    return vaddq_f32(a, b);
}
SBIT__V_INLINE float32x4_t SBIT__V(sub_f32)(float32x4_t a, float32x4_t b)
{
    return vsubq_f32(a, b);
}
SBIT__V_INLINE float32x4_t SBIT__V(mul_f32)(float32x4_t a, float32x4_t b)
{
    float32x4_t product = vmulq_f32(a, b);
    __asm__("" : "+w"(product)); /* never joined to a sum */
    return product;
}
SBIT__V_INLINE float32x4_t SBIT__V(quotient)(float32x4_t x, float32x4_t y, float inverse)
{
    (void)inverse;
    return vdivq_f32(x, y);
}
SBIT__V_INLINE float32x4_t SBIT__V(fma_f32)(float32x4_t a, float32x4_t b, float32x4_t sum)
{
    return vfmaq_f32(sum, a, b);
}
SBIT__V_INLINE float32x4_t SBIT__V(max_f32)(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
SBIT__V_INLINE float32x4_t SBIT__V(min_f32)(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
SBIT__V_INLINE float32x4_t SBIT__V(inside_f32)(float32x4_t d, float32x4_t v, float32x4_t lo,
                                               float32x4_t hi)
{
    const uint32x4_t inside = vbicq_u32(vcgtq_f32(v, lo), vcgeq_f32(v, hi));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(d), inside));
}
SBIT__V_INLINE float32x4_t SBIT__V(clamp_f32)(float32x4_t v, float32x4_t lo, float32x4_t hi)
{
    v = vbslq_f32(vcgtq_f32(v, lo), v, lo);
    return vbslq_f32(vcltq_f32(v, hi), v, hi);
}
SBIT__V_INLINE float32x4_t SBIT__V(to_f32)(int32x4_t v)
{
    return vcvtq_f32_s32(v);
}
SBIT__V_INLINE int32x4_t SBIT__V(round)(float32x4_t v)
{
    return vcvtnq_s32_f32(v);
}
SBIT__V_INLINE int32x4_t SBIT__V(round_below)(float32x4_t v, float32x4_t top)
{
    return vcvtnq_s32_f32(vminq_f32(vmaxnmq_f32(v, vdupq_n_f32(-2147483648.0f)), top));
}

/* >>bytes: 16 channels */
SBIT__V_INLINE uint8x16_t SBIT__V(load_bytes)(const uint8_t *x, int64_t n)
{
    uint8_t part[16] = {0};
    if (n >= 16) {
        return vld1q_u8(x);
    }
    memcpy(part, x, n > 0 ? (size_t)n : 0);
    return vld1q_u8(part);
}
SBIT__V_INLINE void SBIT__V(store_bytes)(uint8_t *y, int64_t n, uint8x16_t v)
{
    if (n >= 16) {
        vst1q_u8(y, v);
    } else {
        uint8_t part[16];
        vst1q_u8(part, v);
        memcpy(y, part, n > 0 ? (size_t)n : 0);
    }
}
SBIT__V_INLINE void SBIT__V(store_half)(uint8_t *y, int64_t n, bool upper, uint8x16_t v)
{
    const uint8x8_t half = upper ? vget_high_u8(v) : vget_low_u8(v);
    if (n >= 8) {
        vst1_u8(y, half);
    } else {
        uint8_t part[8];
        vst1_u8(part, half);
        memcpy(y, part, n > 0 ? (size_t)n : 0);
    }
}
SBIT__V_INLINE uint8x16_t SBIT__V(max_bytes)(uint8x16_t a, uint8x16_t b)
{
    return vmaxq_u8(a, b);
}
SBIT__V_INLINE uint8x16_t SBIT__V(min_bytes)(uint8x16_t a, uint8x16_t b)
{
    return vminq_u8(a, b);
}
SBIT__V_INLINE uint8x16_t SBIT__V(low8)(uint8x16_t a, uint8x16_t b)
{
    return vzip1q_u8(a, b);
}
SBIT__V_INLINE uint8x16_t SBIT__V(high8)(uint8x16_t a, uint8x16_t b)
{
    return vzip2q_u8(a, b);
}
SBIT__V_INLINE uint8x16_t SBIT__V(low16)(uint8x16_t a, uint8x16_t b)
{
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
SBIT__V_INLINE uint8x16_t SBIT__V(high16)(uint8x16_t a, uint8x16_t b)
{
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
SBIT__V_INLINE uint8x16_t SBIT__V(narrow)(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d,
                                          uint8x16_t zero)
{
    const int16x8_t by = vreinterpretq_s16_u8(zero);
    const int16x8_t low = vqaddq_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)), by);
    const int16x8_t high = vqaddq_s16(vcombine_s16(vqmovn_s32(c), vqmovn_s32(d)), by);
    return vcombine_u8(vqmovun_s16(low), vqmovun_s16(high));
}
SBIT__V_INLINE uint8x16_t SBIT__V(set_words)(int16_t x)
{
    return vreinterpretq_u8_s16(vdupq_n_s16(x));
}
SBIT__V_INLINE uint8x16_t SBIT__V(set_bytes)(uint8_t x)
{
    return vdupq_n_u8(x);
}
SBIT__V_INLINE uint8x16_t SBIT__V(in_order)(uint8x16_t v)
{
    return v;
}
SBIT__V_INLINE uint8x16_t SBIT__V(lookup)(const uint8_t *table, uint8x16_t v)
{
    uint8x16_t found = vdupq_n_u8(0); /* outside of its 64 entries, a look-up gives 0 */
    for (int quarter = 0; quarter < 4; quarter++) {
        const uint8x16x4_t part = vld1q_u8_x4(table + 64 * quarter);
        found = vorrq_u8(found, vqtbl4q_u8(part, vsubq_u8(v, vdupq_n_u8((uint8_t)(64 * quarter)))));
    }
    return found;
}
SBIT__V_INLINE uint8x16_t SBIT__V(repeat4)(const uint8_t *x) /* 4 bytes in each lane */
{
    uint32_t part;
    memcpy(&part, x, sizeof part);
    return vreinterpretq_u8_u32(vdupq_n_u32(part));
}

SBIT__V_INLINE void SBIT__V(transpose4)(float32x4_t v[4])
{
    const float32x4x2_t a = vtrnq_f32(v[0], v[1]), b = vtrnq_f32(v[2], v[3]);
    v[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    v[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    v[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    v[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

SBIT__V_INLINE void SBIT__V(zip)(float32x4_t a, float32x4_t b, float32x4_t v[2])
{
    const float32x4x2_t both = vzipq_f32(a, b);
    v[0] = both.val[0];
    v[1] = both.val[1];
}

#define SBIT__V_LAST 4
enum {
    SBIT__V(last_m) = 6,
    SBIT__V(last_v) = SBIT__V_LAST
};

/* >>products */
enum {
    SBIT__V(tile_m) = 4,
    SBIT__V(tile_v) = 2
};
typedef struct SBIT__V(u4) {
    int16x8_t even, odd;
} SBIT__V(u4);
typedef SBIT__V(u4) SBIT__V(s4);
SBIT__V_INLINE SBIT__V(u4) SBIT__V(u4_of)(uint8x16_t v)
{
    SBIT__V(u4) u;
    const uint16x8_t words = vreinterpretq_u16_u8(v);
    u.even = vreinterpretq_s16_u16(vandq_u16(words, vdupq_n_u16(0xff)));
    u.odd = vreinterpretq_s16_u16(vshrq_n_u16(words, 8));
    return u;
}
SBIT__V_INLINE SBIT__V(s4) SBIT__V(s4_of)(uint8x16_t v)
{
    SBIT__V(s4) s;
    const int16x8_t words = vreinterpretq_s16_u8(v);
    s.even = vshrq_n_s16(vshlq_n_s16(words, 8), 8);
    s.odd = vshrq_n_s16(words, 8);
    return s;
}
SBIT__V_INLINE int32x4_t SBIT__V(dot4)(int32x4_t sum, SBIT__V(u4) u, SBIT__V(s4) s)
{
    int32x4_t low = vmull_s16(vget_low_s16(u.even), vget_low_s16(s.even));
    int32x4_t high = vmull_s16(vget_high_s16(u.even), vget_high_s16(s.even));
    low = vmlal_s16(low, vget_low_s16(u.odd), vget_low_s16(s.odd));
    high = vmlal_s16(high, vget_high_s16(u.odd), vget_high_s16(s.odd));
    return vaddq_s32(sum, vpaddq_s32(low, high));
}
