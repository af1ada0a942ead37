/* split */
/* test_integer.c: integer kernels on every instruction set of this machine against their plain
 * definition, bit for bit, at the sizes where vector code goes wrong; the convolution driver
 * against loops over the operator's formula. */
#include "../src/ops/qlinear_private.h"
#include "test.h"

static sbit_rng rng;

static int64_t below(int64_t n)
{
    return (int64_t)sbit_rng_below(&rng, (uint32_t)n);
}

static void *random_bytes(size_t n)
{
    uint8_t *data = (uint8_t *)malloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        data[i] = (uint8_t)below(256);
    }
    return data;
}

static int32_t *random_i32(int64_t n, int64_t limit)
{
    int32_t *data = (int32_t *)malloc((size_t)n * sizeof *data + 1);
    for (int64_t i = 0; i < n; i++) {
        data[i] = (int32_t)(below(2 * limit + 1) - limit);
    }
    return data;
}

static float *random_f32(int64_t n, float scale)
{
    float *data = (float *)malloc((size_t)n * sizeof *data + 1);
    for (int64_t i = 0; i < n; i++) {
        data[i] = (sbit_rng_uniform(&rng) - 0.5f) * scale;
    }
    return data;
}

/* Calls test(kernels) for every set but the scalar one. */
static void each_set(void (*test)(const sbit__q8_kernels *, const char *))
{
    for (int isa = SBIT_ISA_SCALAR + 1; isa < SBIT_ISA_COUNT; isa++) {
        const sbit__q8_kernels *kernels =
            sbit_isa_available((sbit_isa)isa) ? sbit__q8_kernels_of((sbit_isa)isa) : NULL;
        if (kernels != NULL) {
            rng = sbit_rng_seed(7);
            test(kernels, sbit_isa_name((sbit_isa)isa));
        }
    }
}

static void random_store(sbit__q8_store *store, int kind)
{
    store->kind = (sbit__q8_kind)kind;
    store->fits = below(2) != 0; /* scales and shifts here are small */
    store->zero = (int32_t)below(256);
    store->lo = below(2) ? 0 : (int32_t)below(store->zero + 1);
    store->hi = below(2) ? 255 : store->lo + (int32_t)below(256 - store->lo);
}

static void random_pair(sbit__q8_pair *pair)
{
    memset(pair, 0, sizeof *pair);
    pair->op = SBIT__BINARY_ADD;
    pair->scale_a = 0.001f + sbit_rng_uniform(&rng);
    pair->scale_b = 0.001f + sbit_rng_uniform(&rng);
    pair->scale_y = 0.01f + sbit_rng_uniform(&rng);
    pair->zero_a = (int32_t)below(256);
    pair->zero_b = (int32_t)below(256);
    random_store(&pair->store, SBIT__Q8_U8);
}

static void check_same(const void *got, const void *want, size_t bytes, const char *what,
                       const char *isa, int64_t a, int64_t b)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned g = ((const uint8_t *)got)[i], w = ((const uint8_t *)want)[i];
        if (!CHECK_MSG(g == w, "%s %s (%lld, %lld): byte %zu is %u, not %u", isa, what,
                       (long long)a, (long long)b, i, g, w)) {
            return;
        }
    }
}

static void check_tile(const sbit__q8_kernels *kernels, const char *isa, int64_t rows,
                       int64_t width, int64_t columns, int kind)
{
    const int64_t taps = 1 + below(3), depth = 1 + below(70), quads = (depth + 3) / 4;
    const int64_t stride = columns + below(5), x_bytes = 8192;
    const int64_t weight_bytes = taps * (quads + 2) * width * 4;
    uint8_t *x = (uint8_t *)random_bytes((size_t)x_bytes);
    int8_t *weights = (int8_t *)random_bytes((size_t)weight_bytes);
    int32_t *bias = random_i32(width, 100000), *factor = random_i32(width, 128);
    int32_t *sums = random_i32(rows, 30000);
    float *scale = random_f32(width, 0.01f), *shift = random_f32(width, 30.0f);
    int64_t offsets[4];
    const uint8_t *row[64];
    int64_t to[64];
    static char got[64 * 80 * 4], want[64 * 80 * 4];
    sbit__q8_tile tile;
    memset(&tile, 0, sizeof tile);
    tile.taps = taps;
    tile.depth = depth;
    tile.offsets = offsets;
    tile.width = width;
    tile.columns = columns;
    tile.weights = tile.next = weights;
    tile.bias = bias;
    tile.factor = below(3) == 0 ? factor : NULL;
    tile.scale = scale;
    tile.shift = below(3) == 0 ? shift : NULL;
    tile.out_stride = stride;
    tile.between = below(2) ? 4 * width * below(3) : 0;
    for (int64_t i = 0; i < rows; i++) { /* backwards */
        to[i] = (rows - 1 - i) * stride;
    }
    tile.to = below(2) ? to : NULL;
    random_store(&tile.store, kind);
    const int64_t tap = quads * width * 4 + tile.between;
    for (int64_t i = 0; i < weight_bytes; i++) { /* zeros beyond the depth, extremes now and then */
        const int64_t k = i % tap / (4 * width) * 4 + i % 4;
        weights[i] = (int8_t)(k >= depth ? 0 : below(4) == 0 ? -128 : weights[i]);
    }
    for (int64_t i = 0; i < x_bytes; i++) {
        x[i] = below(3) == 0 ? 255 : x[i];
    }
    for (int t = 0; t < 4; t++) {
        offsets[t] = below(1000);
    }
    const int64_t step = below(2) ? 1 + below(100) : 0, gap = below(300); /* neighbours in lines, or anywhere */
    tile.line = step > 0 ? 4 * below(6) : 0;
    for (int64_t i = 0; i < rows; i++) {
        row[i] = x + (step > 0 ? i * step + (tile.line > 0 ? i / tile.line * gap : 0) : below(3000));
    }
    memset(got, 0x55, sizeof got);
    memset(want, 0x55, sizeof want);
    kernels->q8_tile(&tile, rows, row, sums, got);
    sbit__q8_tile__ref(&tile, rows, row, sums, want);
    check_same(got, want, sizeof got, "q8_tile", isa, rows, columns);
    free(x), free(weights), free(bias), free(factor), free(sums), free(scale), free(shift);
}

static void tile_on(const sbit__q8_kernels *kernels, const char *isa)
{
    for (int64_t width = kernels->lanes; width <= kernels->panel; width *= 2) {
        for (int64_t rows = 0; rows <= 35; rows += rows < 19 ? 1 : 4) {
            for (int kind = 0; kind < 3; kind++) {
                check_tile(kernels, isa, rows, width, width, kind);
                check_tile(kernels, isa, rows, width, 1 + below(width), kind);
            }
        }
    }
}

/* Rows side by side in the output, as most convolutions have them. */
static void tight_on(const sbit__q8_kernels *kernels, const char *isa)
{
    for (int64_t width = kernels->lanes; width <= kernels->panel; width *= 2) {
        for (int64_t rows = 4; rows <= 48; rows += 4) {
            enum { DEPTH = 36 };
            static uint8_t x[64 * 64], got[64 * 64], want[64 * 64];
            int8_t *weights = (int8_t *)random_bytes((size_t)(width * DEPTH));
            int32_t *bias = random_i32(width, 100000);
            float *scale = random_f32(width, 0.01f);
            const uint8_t *row[64];
            const int64_t offset = 0, gap = rows % 16 == 0 ? 80 : rows % 8 * 16; /* between lines of 16 */
            sbit__q8_tile tile;
            memset(&tile, 0, sizeof tile);
            memset(got, 0x55, sizeof got);
            memset(want, 0x55, sizeof want);
            for (int64_t i = 0; i < 64 * 64; i++) {
                x[i] = (uint8_t)below(256);
            }
            for (int64_t i = 0; i < rows; i++) {
                row[i] = x + i * 16 + i / 16 * gap;
            }
            tile.taps = 1;
            tile.line = gap > 0 ? 16 * (rows % 16 == 0) : rows;
            tile.depth = DEPTH;
            tile.offsets = &offset;
            tile.width = tile.columns = tile.out_stride = width;
            tile.weights = tile.next = weights;
            tile.bias = bias;
            tile.scale = scale;
            random_store(&tile.store, SBIT__Q8_U8);
            tile.store.fits = true;
            kernels->q8_tile(&tile, rows, row, NULL, got);
            sbit__q8_tile__ref(&tile, rows, row, NULL, want);
            check_same(got, want, sizeof got, "q8_tile tight", isa, rows, width);
            free(weights), free(bias), free(scale);
        }
    }
}

TEST(tiles_give_the_same_bits_on_every_set)
{
    each_set(tile_on);
    each_set(tight_on);
}

static void depthwise_on(const sbit__q8_kernels *kernels, const char *isa)
{
    const int64_t block = 4 * kernels->lanes;
    for (int64_t channels = 1; channels < 140; channels += channels % 16 == 1 ? 14 : 1) {
        const int64_t blocks = (channels + block - 1) / block, quads = 3 + below(5);
        const int64_t pixels = below(6), padded = blocks * block;
        uint8_t *x = (uint8_t *)random_bytes(1 << 16);
        const int64_t shares = 1 + below(2);
        int8_t *weights = (int8_t *)random_bytes((size_t)(padded * quads * shares * 4));
        int32_t *bias = random_i32(padded, 10000);
        float *scale = random_f32(padded, 0.02f), *shift = random_f32(padded, 30.0f);
        static char got[2 * 6 * 160 * 4], want[2 * 6 * 160 * 4];
        int64_t offsets[28];
        sbit__q8_depthwise d;
        memset(&d, 0, sizeof d);
        d.channels = channels;
        d.block = block;
        d.quads = quads;
        d.shares = shares;
        d.offsets = offsets;
        d.weights = weights;
        d.bias = bias;
        d.scale = scale;
        d.shift = below(2) ? shift : NULL;
        d.in_stride = channels * (1 + below(2));
        d.out_stride = channels + below(3);
        d.below = below(2) * 6 * 160;
        random_store(&d.store, below(2) ? 0 : (int)below(3));
        for (int t = 0; t < 28; t++) {
            offsets[t] = below(20) * channels;
        }
        if (channels % 2 == 0) { /* columns of a row of pixels */
            d.quads = d.shares == 2 ? 3 : d.quads;
            d.in_stride = channels;
            for (int t = 4; t < 28; t++) {
                offsets[t] = offsets[t - 4] + channels;
            }
        }
        memset(got, 0x55, sizeof got);
        memset(want, 0x55, sizeof want);
        kernels->q8_depthwise(&d, pixels, x, got);
        sbit__q8_depthwise__ref(&d, pixels, x, want);
        check_same(got, want, sizeof got, "q8_depthwise", isa, channels, pixels);
        free(x), free(weights), free(bias), free(scale), free(shift);
    }
}

TEST(depthwise_gives_the_same_bits_on_every_set)
{
    each_set(depthwise_on);
}

TEST(rows_become_columns)
{
    uint8_t x[27 * 27], y[27 * 27 + 8];
    for (int64_t i = 0; i < 27 * 27; i++) {
        x[i] = (uint8_t)below(256);
    }
    for (int64_t rows = 1; rows < 27; rows += rows < 9 ? 1 : 5) {
        for (int64_t columns = 1; columns < 27; columns++) {
            int64_t wrong = 0;
            memset(y, 7, sizeof y);
            sbit__q_to_last(1, rows, columns, x, 0x80, y);
            for (int64_t i = 0; i < rows * columns; i++) {
                wrong += y[i % columns * rows + i / columns] != (x[i] ^ 0x80);
            }
            CHECK(wrong == 0 && y[rows * columns] == 7);
        }
    }
}

/* The short formula is the long one of all pairs of bytes, and is found for nearly all scales. */
static void linear_on(const sbit__q8_kernels *kernels, const char *isa)
{
    int found = 0;
    for (int k = 0; k < 60; k++) {
        uint8_t a[256], b[256], got[256], want[256];
        sbit__q8_pair pair;
        random_pair(&pair);
        pair.op = k % 2 == 0 ? SBIT__BINARY_ADD : SBIT__BINARY_SUB;
        pair.scale_y = (0.3f + sbit_rng_uniform(&rng)) * (pair.scale_a + pair.scale_b);
        if (k == 0) { /* sums of halves: ties wherever they are odd */
            pair.scale_a = pair.scale_b = 0.5f;
            pair.scale_y = 1.0f;
        }
        sbit__q8_try_linear(kernels, &pair);
        found += pair.linear;
        for (int i = 0; i < 256; i++) {
            for (int j = 0; j < 256; j++) {
                a[j] = (uint8_t)i, b[j] = (uint8_t)j;
            }
            kernels->q8_binary(&pair, 256, a, b, got);
            sbit__q8_binary__ref(&pair, 256, a, b, want);
            check_same(got, want, sizeof got, "q8_binary of all pairs", isa, k, i);
        }
    }
    CHECK_MSG(found >= 48, "%s: %d of 60", isa, found);
}

static void elements_on(const sbit__q8_kernels *kernels, const char *isa)
{
    for (int64_t n = 0; n < 150; n++) {
        const int64_t rows = n % 4, stride = n + n % 3;
        uint8_t *a = (uint8_t *)random_bytes(768), *b = (uint8_t *)random_bytes(256);
        uint8_t got[256], want[256];
        float sums_got[256], sums_want[256];
        sbit__q8_pair pair;
        random_pair(&pair);
        pair.op = n % 3 == 0 ? SBIT__BINARY_ADD : n % 3 == 1 ? SBIT__BINARY_SUB : SBIT__BINARY_MUL;
        memset(got, 1, sizeof got);
        memset(want, 1, sizeof want);
        kernels->q8_binary(&pair, n, a, b, got);
        sbit__q8_binary__ref(&pair, n, a, b, want);
        check_same(got, want, sizeof got, "q8_binary", isa, n, (int64_t)pair.op);
        sbit__q8_try_linear(kernels, &pair);
        CHECK(!(pair.linear && pair.op == SBIT__BINARY_MUL));
        memset(got, 1, sizeof got);
        kernels->q8_binary(&pair, n, a, b, got);
        check_same(got, want, sizeof got, "q8_binary linear", isa, n, (int64_t)pair.op);
        memcpy(got, b, 256);
        memcpy(want, b, 256);
        const int64_t offsets[3] = {n % 7, 0, 5};
        kernels->q8_max(n / 3, n % 4, n / 3 + (n & 8), n & 3, offsets, a, got);
        sbit__q8_max__ref(n / 3, n % 4, n / 3 + (n & 8), n & 3, offsets, a, want);
        check_same(got, want, sizeof got, "q8_max", isa, n, 0);
        memset(got, 1, sizeof got);
        memset(want, 1, sizeof want);
        kernels->q8_interleave(n / 2, a, b, got);
        sbit__q8_interleave__ref(n / 2, a, b, want);
        check_same(got, want, sizeof got, "q8_interleave", isa, n, 0);
        kernels->q8_three(n / 2, n / 2 + n % 5, a, (uint8_t)(n % 2 * 128), got);
        sbit__q8_three__ref(n / 2, n / 2 + n % 5, a, (uint8_t)(n % 2 * 128), want);
        check_same(got, want, sizeof got, "q8_three", isa, n, 0);
        memset(got, 1, sizeof got);
        memset(want, 1, sizeof want);
        uint8_t *table = (uint8_t *)random_bytes(256);
        kernels->q8_lookup(n, table, a, got);
        sbit__q8_lookup__ref(n, table, a, want);
        check_same(got, want, sizeof got, "q8_lookup", isa, n, 0);
        free(table);
        for (int i = 0; i < 256; i++) {
            sums_got[i] = sums_want[i] = sbit_rng_uniform(&rng) * 100.0f;
        }
        kernels->q8_accumulate(n, rows, stride, a, pair.zero_a, pair.scale_a, sums_got);
        sbit__q8_accumulate__ref(n, rows, stride, a, pair.zero_a, pair.scale_a, sums_want);
        check_same(sums_got, sums_want, sizeof sums_got, "q8_accumulate", isa, n, 0);
        free(a), free(b);
    }
}

TEST(elementwise_kernels_give_the_same_bits_on_every_set)
{
    each_set(elements_on);
    each_set(linear_on);
}

/* ---- the driver */

typedef struct conv_case {
    int64_t batch, groups, in, out, size[3], kernel[3], stride[3], dilation[3], pad[3], end[3];
} conv_case;

/* The operator's sum at one output element. */
static int64_t conv_sum(const sbit__conv_shape *s, const uint8_t *x, int32_t zero_x,
                        const sbit__q8_weights *w, int64_t n, const int64_t at[3], int64_t c)
{
    const int64_t in = s->in_channels / s->groups, g = c / (s->out_channels / s->groups);
    int64_t sum = w->bias != NULL ? w->bias[c] : 0;
    for (int64_t t = 0; t < s->kernel[0] * s->kernel[1] * s->kernel[2]; t++) {
        const int64_t k[3] = {t / s->kernel[2] / s->kernel[1], t / s->kernel[2] % s->kernel[1],
                              t % s->kernel[2]};
        int64_t pixel = n;
        bool inside = true;
        for (int i = 0; i < 3; i++) {
            const int64_t p = at[i] * s->stride[i] - s->pad_begin[i] + k[i] * s->dilation[i];
            inside = inside && p >= 0 && p < s->in[i];
            pixel = pixel * s->in[i] + p;
        }
        for (int64_t j = 0; inside && j < in; j++) {
            const int64_t at_w = c * w->out_stride + j * w->in_stride + t * w->tap_stride;
            const int64_t q =
                w->is_unsigned ? ((const uint8_t *)w->data)[at_w] : ((const int8_t *)w->data)[at_w];
            sum += (x[pixel * s->in_channels + g * in + j] - zero_x) *
                   (q - (w->zero != NULL ? w->zero[c] : 0));
        }
    }
    return sum;
}

/* Sums to which another tensor is added: bytes are the same whether taps on padding are left out. */
static void check_skipping(sbit_ctx *ctx, const sbit__conv_shape *shape, const uint8_t *x,
                           const sbit__q8_weights *weights)
{
    const int64_t count = shape->batch * shape->out[1] * shape->out[2] * shape->out_channels;
    uint8_t *other = (uint8_t *)random_bytes((size_t)count), *y[2];
    sbit__q8_weights w = *weights;
    float *scale = random_f32(shape->out_channels, 0.01f);
    sbit__q8_pair added;
    w.scale = scale;
    random_pair(&added);
    for (int skips = 0; skips < 2; skips++) {
        sbit__q8_conv conv;
        memset(&conv, 0, sizeof conv);
        conv.shape = *shape;
        conv.store.hi = 255;
        conv.store.zero = 100;
        conv.adds = true;
        conv.added = added;
        conv.zero_pads = skips == 1;
        sbit__q8_conv_plan(ctx, &conv);
        void *packed = malloc(conv.packed_bytes), *scratch = malloc(conv.scratch_bytes);
        y[skips] = (uint8_t *)malloc((size_t)count);
        sbit__q8_conv_pack(ctx, &conv, &w, packed);
        sbit__q8_conv_run(ctx, &conv, x, packed, other, y[skips], scratch);
        free(packed), free(scratch);
    }
    check_same(y[1], y[0], (size_t)count, "padding left out", sbit_isa_name(sbit_ctx_isa(ctx)),
               shape->out_channels, shape->batch);
    free(other), free(scale), free(y[0]), free(y[1]);
}

/* skips: the zero point is 0, and taps on padding are left out */
static bool check_conv(sbit_ctx *ctx, const conv_case *c, bool is_unsigned, bool zeros, bool skips)
{
    sbit__q8_conv conv;
    sbit__q8_weights weights;
    memset(&conv, 0, sizeof conv);
    memset(&weights, 0, sizeof weights);
    sbit__conv_shape *s = &conv.shape;
    s->batch = c->batch;
    s->groups = c->groups;
    s->in_channels = c->in;
    s->out_channels = c->out;
    int64_t taps = 1, in_pixels = c->batch, out_pixels = c->batch;
    for (int i = 0; i < 3; i++) {
        s->in[i] = c->size[i];
        s->kernel[i] = c->kernel[i];
        s->stride[i] = c->stride[i];
        s->dilation[i] = c->dilation[i];
        s->pad_begin[i] = c->pad[i];
        s->out[i] = (s->in[i] + c->pad[i] + c->end[i] - (s->kernel[i] - 1) * s->dilation[i] - 1) /
                        s->stride[i] +
                    1;
        taps *= s->kernel[i];
        in_pixels *= s->in[i];
        out_pixels *= s->out[i];
    }
    const sbit__conv_shape shape = *s;
    const int64_t per_group = c->in / c->groups;
    uint8_t *x = (uint8_t *)random_bytes((size_t)(in_pixels * c->in));
    weights.data = random_bytes((size_t)(c->out * per_group * taps));
    weights.is_unsigned = is_unsigned;
    weights.out_stride = per_group * taps;
    weights.in_stride = taps;
    weights.tap_stride = 1;
    int32_t *bias = random_i32(c->out, 5000), *zero = random_i32(c->out, 60);
    weights.bias = bias;
    weights.zero = zeros ? zero : NULL;
    conv.store.kind = SBIT__Q8_I32;
    conv.zero_x = skips ? 0 : (int32_t)below(256);
    conv.zero_pads = skips;
    conv.has_factor = zeros || is_unsigned;
    sbit__q8_conv_plan(ctx, &conv);
    void *packed = malloc(conv.packed_bytes), *scratch = malloc(conv.scratch_bytes);
    int32_t *y = (int32_t *)malloc((size_t)(out_pixels * c->out) * sizeof *y);
    sbit__q8_conv_pack(ctx, &conv, &weights, packed);
    sbit__q8_conv_run(ctx, &conv, x, packed, NULL, y, scratch);
    for (int64_t p = 0; p < out_pixels; p++) {
        const int64_t at[3] = {p / shape.out[2] / shape.out[1] % shape.out[0],
                               p / shape.out[2] % shape.out[1], p % shape.out[2]};
        const int64_t n = p / shape.out[2] / shape.out[1] / shape.out[0];
        for (int64_t k = 0; k < c->out; k++) {
            const int64_t want = conv_sum(&shape, x, conv.zero_x, &weights, n, at, k);
            if (!CHECK_MSG(y[p * c->out + k] == want,
                           "%s: conv %lldx%lld group %lld, pixel %lld channel %lld: %d, not %lld",
                           sbit_isa_name(sbit_ctx_isa(ctx)), (long long)c->in, (long long)c->out,
                           (long long)c->groups, (long long)p, (long long)k, y[p * c->out + k],
                           (long long)want)) {
                p = out_pixels;
                break;
            }
        }
    }
    if (conv.skips) {
        check_skipping(ctx, &shape, x, &weights);
    }
    free(x), free((void *)(uintptr_t)weights.data), free(bias), free(zero);
    free(packed), free(scratch), free(y);
    return conv.skips;
}

TEST(convolutions_are_the_operators_sum)
{
    static const conv_case cases[] = {
        {1, 1, 3, 16, {1, 7, 9}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {2, 1, 16, 24, {1, 8, 8}, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {2, 1, 20, 70, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
        {1, 1, 6, 33, {1, 6, 6}, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
        {1, 1, 8, 130, {1, 9, 9}, {1, 3, 2}, {1, 1, 1}, {1, 2, 3}, {0, 2, 0}, {0, 1, 3}},
        {2, 4, 12, 20, {1, 6, 7}, {1, 3, 3}, {1, 1, 2}, {1, 1, 1}, {0, 1, 0}, {0, 0, 1}},
        {1, 70, 70, 70, {1, 9, 8}, {1, 3, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {2, 16, 16, 16, {1, 6, 9}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {1, 24, 24, 24, {1, 5, 19}, {1, 5, 3}, {1, 2, 1}, {1, 1, 2}, {0, 2, 1}, {0, 1, 0}},
        {1, 3, 3, 3, {1, 4, 4}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
        {1, 64, 64, 64, {1, 5, 6}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {2, 64, 64, 64, {1, 6, 6}, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
        {1, 6, 6, 12, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {2, 1, 5, 7, {1, 1, 20}, {1, 1, 5}, {1, 1, 3}, {1, 1, 1}, {0, 0, 2}, {0, 0, 2}},
        {1, 2, 4, 6, {4, 5, 6}, {2, 3, 3}, {2, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
        {1, 1, 4, 9, {5, 6, 5}, {3, 1, 2}, {1, 2, 1}, {2, 1, 1}, {0, 0, 0}, {0, 0, 0}},
        {1, 1, 4, 4, {1, 3, 3}, {1, 2, 2}, {1, 3, 3}, {1, 1, 1}, {0, 4, 4}, {0, 3, 3}},
        {9, 1, 8, 64, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {6, 1, 4, 16, {1, 9, 8}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {5, 1, 12, 96, {1, 7, 9}, {1, 3, 5}, {1, 2, 1}, {1, 2, 1}, {0, 2, 2}, {0, 2, 2}},
        {3, 1, 16, 128, {1, 6, 5}, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, 1, 1}, {0, 0, 0}},
        {1, 1, 4, 130, {1, 12, 7}, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {0, 6, 6}, {0, 2, 5}},
        {4, 1, 32, 32, {1, 10, 9}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        {1, 1, 64, 64, {1, 20, 21}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
        /* windows behind the last row, which no tap sees */
        {8, 1, 8, 96, {1, 7, 11}, {1, 1, 3}, {1, 2, 1}, {1, 2, 1}, {0, 0, 2}, {0, 4, 0}},
        {3, 1, 12, 64, {1, 6, 4}, {1, 1, 5}, {1, 1, 1}, {1, 2, 1}, {0, 3, 4}, {0, 3, 3}},
    };
    int skipping = 0;
    for (int isa = SBIT_ISA_SCALAR; isa < SBIT_ISA_COUNT; isa++) {
        for (int32_t threads = 1; threads <= 2 && sbit_isa_available((sbit_isa)isa); threads++) {
            sbit_ctx_desc desc;
            sbit_ctx *ctx = NULL;
            memset(&desc, 0, sizeof desc);
            desc.force_isa = (sbit_isa)isa;
            desc.threads = threads;
            rng = sbit_rng_seed(3);
            CHECK_EQ_I64(sbit_ctx_create(&desc, &ctx, NULL), SBIT_OK);
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                check_conv(ctx, &cases[i], false, false, false);
                check_conv(ctx, &cases[i], false, true, false);
                check_conv(ctx, &cases[i], true, true, false);
                skipping += check_conv(ctx, &cases[i], false, false, true);
                check_conv(ctx, &cases[i], false, true, true);
            }
            sbit_ctx_destroy(ctx);
        }
        CHECK_MSG(skipping >= 4 || !sbit_isa_available((sbit_isa)isa), "%s: %d of %d",
                  sbit_isa_name((sbit_isa)isa), skipping, 2 * (int)(sizeof cases / sizeof cases[0]));
        skipping = 0;
    }
}
