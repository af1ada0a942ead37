/* gemm.c: matrix multiplication over the tile kernel. >>gemm
 *
 * Called by: ops (MatMul, Gemm, recurrent layers), conv.c (packing). Calls: kernels, parallel.
 *
 * Panels: the left matrix is packed as [m / tile_m][k][tile_m], the right one as
 * [n / tile_n][k][tile_n], zeros where the last panel is not full. k is cut into blocks of 128, so
 * that a left and a right panel fit the L1 cache together, deeper for narrow matrices; n into
 * blocks of which a few along k fit L2; m into blocks that fit L2, whose part of c stays there for them. Where both
 * are packed (a weight's gradient), c is cut into parts that stay in L2, for which one block of k after the other is packed. Threads get rectangles of c. The order in which
 * the terms of one sum are added depends on n and k alone, so neither threads nor blocks nor the
 * batch change a result.
 *
 * Rows that lie as they are read, against panels, are not packed: their tiles are those of
 * convolutions with channels last, which waste nothing at the edge (last_private.h).
 *
 * One row against a packed right matrix takes four panels at a time, because the sums of one leave
 * most of the multiplier idle. Without packing: few rows against an untransposed matrix are
 * multiplied where it lies; one to four rows against a transposed one are plain dot products.
 */
#include "last_private.h"
#include "rows_private.h"

enum {
    SBIT__GEMM_L1_BYTES = 24 * 1024, /* of 32 KiB and more */
    SBIT__GEMM_ROWS = 144,           /* times the depth of a block: 72 KiB of L2 */
    SBIT__GEMM_COLUMNS = 256,
    SBIT__GEMM_AHEAD = 12,            /* rows that are fetched before they are packed */
    SBIT__GEMM_BOTH_ROWS = 768,       /* where both operands are packed, of a block of c, */
    SBIT__GEMM_C_FLOATS = 160 * 1024, /* which has so many */
    SBIT__GEMM_DEPTHS = 4, /* blocks of k at once, at most, */
    SBIT__GEMM_B_FLOATS = 128 * 1024, /* of b */
    SBIT__GEMM_DOT_ROWS = 4,
    SBIT__GEMM_REFERENCE_TERMS = 1024,
    SBIT__GEMM_ROW_PANELS = 4, /* of f32_gemm_row */
    SBIT__GEMM_SUMMED = 128    /* rows of b that are added up at once */
};

/* Terms of a sum that are added up before they join the rest: 128, more for narrow matrices, which
 * is what ONNX Runtime's library (MLAS) does. A sum rounded otherwise would now and then fall on
 * the other side of a quantizer's step; so its pieces are the same, on every instruction set.
 * The reference, whose sums are of doubles, is rounded as rarely as memory allows. */
static int64_t sbit__gemm_terms(const sbit_kernels *kernels, int64_t n, int64_t k)
{
    int64_t terms = 128, width = 128;
    if (kernels->isa == SBIT_ISA_SCALAR) {
        terms = SBIT__GEMM_REFERENCE_TERMS;
    }
    while (n < k && width > 16 && width / 2 >= n) {
        width /= 2;
        terms *= 2;
    }
    return sbit__larger(sbit__smaller(terms, k), 1);
}

/* For convolutions: equal pieces of at most what L1 holds. */
SBIT__FN int64_t sbit__gemm_depth(const sbit_kernels *kernels, int64_t k)
{
    const int64_t floats = SBIT__GEMM_L1_BYTES / (int64_t)sizeof(float);
    const int64_t most = kernels->isa == SBIT_ISA_SCALAR
                             ? (int64_t)SBIT__GEMM_REFERENCE_TERMS
                             : floats / (kernels->tile_m + kernels->tile_n);
    return k <= most ? sbit__larger(k, 1) : sbit__div_up(k, sbit__div_up(k, most));
}

SBIT__FN size_t sbit__cache_lines(int64_t floats)
{
    return (size_t)sbit__div_up(floats, 16) * 64;
}

/* >>packing */
static void sbit__pack_copy(int64_t tile, float *to, const float *from)
{
    if (tile == 16) { /* sizes that compilers turn into vector moves */
        memcpy(to, from, 16 * sizeof(float));
    } else if (tile == 32) {
        memcpy(to, from, 32 * sizeof(float));
    } else if (tile == 12) {
        memcpy(to, from, 12 * sizeof(float));
    } else {
        memcpy(to, from, (size_t)tile * sizeof(float));
    }
}

SBIT__FN void sbit__pack_panel(int64_t count, int64_t tile, int64_t k, const float *source,
                               int64_t stride_i, int64_t stride_k, float alpha, float *panel)
{
    if (count < tile) {
        memset(panel, 0, (size_t)(k * tile) * sizeof(float));
    }
    if (stride_i == 1 && alpha == 1.0f && count == tile) {
        for (int64_t p = 0; p < k; p++) {
            sbit__pack_copy(tile, panel + p * tile, source + p * stride_k);
        }
    } else if (stride_i == 1) {
        for (int64_t p = 0; p < k; p++) {
            for (int64_t i = 0; i < count; i++) {
                panel[p * tile + i] = alpha * source[p * stride_k + i];
            }
        }
    } else {
        int64_t i = 0;
        for (; i + 4 <= count; i += 4) { /* what lies together is written together */
            const float *a = source + i * stride_i, *b = a + stride_i, *c = b + stride_i;
            const float *d = c + stride_i;
            float *to = panel + i;
            for (int64_t p = 0; p < k; p++, to += tile) {
                to[0] = alpha * a[p * stride_k];
                to[1] = alpha * b[p * stride_k];
                to[2] = alpha * c[p * stride_k];
                to[3] = alpha * d[p * stride_k];
            }
        }
        for (; i < count; i++) {
            const float *from = source + i * stride_i;
            float *to = panel + i;
            for (int64_t p = 0; p < k; p++, to += tile, from += stride_k) {
                *to = alpha * *from;
            }
        }
    }
}

/* Four panels side by side: rows are read 192 bytes and more at a time. They may lie a page apart,
 * where no hardware sees what comes next. */
static void sbit__pack_four(int64_t tile, int64_t k, const float *source, int64_t stride_k,
                            float *panel, int64_t panel_stride)
{
    for (int64_t p = 0; p < k; p++, source += stride_k, panel += tile) {
        for (int64_t i = 0; p + SBIT__GEMM_AHEAD < k && i < 4 * tile; i += 16) {
            SBIT__PREFETCH(source + SBIT__GEMM_AHEAD * stride_k + i);
        }
        for (int64_t i = 0; i < 4; i++) {
            sbit__pack_copy(tile, panel + i * panel_stride, source + i * tile);
        }
    }
}

SBIT__FN void sbit__pack_panels(int64_t count, int64_t tile, int64_t k, const float *source,
                                int64_t stride_i, int64_t stride_k, float alpha, float *panel,
                                int64_t panel_stride)
{
    int64_t i = 0;
    for (; i + 4 * tile <= count && stride_i == 1 && alpha == 1.0f; i += 4 * tile) {
        sbit__pack_four(tile, k, source + i, stride_k, panel, panel_stride);
        panel += 4 * panel_stride;
    }
    for (; i < count; i += tile, panel += panel_stride) {
        sbit__pack_panel(sbit__smaller(count - i, tile), tile, k, source + i * stride_i, stride_i,
                         stride_k, alpha, panel);
    }
}

typedef struct sbit__pack_task {
    int64_t count, tile, k, stride_i, stride_k;
    const float *source;
    float alpha, *packed;
} sbit__pack_task;

/* Units of four panels. */
static void sbit__pack_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__pack_task *t = (const sbit__pack_task *)user;
    const int64_t first = 4 * t->tile * begin;
    (void)worker;
    sbit__pack_panels(sbit__smaller(4 * t->tile * end, t->count) - first, t->tile, t->k,
                      t->source + first * t->stride_i, t->stride_i, t->stride_k, t->alpha,
                      t->packed + first * t->k, t->k * t->tile);
}

SBIT__FN void sbit__pack_all(sbit_ctx *ctx, int64_t count, int64_t tile, int64_t k,
                             const float *source, int64_t stride_i, int64_t stride_k, float alpha,
                             float *packed)
{
    const int64_t unit = sbit__larger(4 * tile * k, 1);
    sbit__pack_task task;
    task.count = count;
    task.tile = tile;
    task.k = k;
    task.stride_i = stride_i;
    task.stride_k = stride_k;
    task.source = source;
    task.alpha = alpha;
    task.packed = packed;
    sbit__parallel_range(ctx, sbit__div_up(count, 4 * tile),
                         sbit__div_up(SBIT__WORTH_A_THREAD, unit), sbit__pack_range, &task);
}

SBIT__FN size_t sbit__gemm_pack_a_bytes(const sbit_ctx *ctx, int64_t m, int64_t k)
{
    const int64_t tile = sbit__kernels(ctx)->tile_m;
    return sbit__cache_lines(sbit__div_up(m, tile) * tile * k);
}

SBIT__FN size_t sbit__gemm_pack_b_bytes(const sbit_ctx *ctx, int64_t n, int64_t k)
{
    const int64_t tile = sbit__kernels(ctx)->tile_n;
    return sbit__cache_lines(sbit__div_up(n, tile) * tile * k);
}

SBIT__FN void sbit__gemm_pack_a(sbit_ctx *ctx, int64_t m, int64_t k, const float *a, int64_t lda,
                                bool trans, float alpha, float *packed)
{
    const int64_t tile = sbit__kernels(ctx)->tile_m;
    const int64_t stride_i = trans ? 1 : lda, stride_k = trans ? lda : 1;
    sbit__pack_all(ctx, m, tile, k, a, stride_i, stride_k, alpha, packed);
}

SBIT__FN void sbit__gemm_pack_b(sbit_ctx *ctx, int64_t n, int64_t k, const float *b, int64_t ldb,
                                bool trans, float alpha, float *packed)
{
    const int64_t tile = sbit__kernels(ctx)->tile_n;
    const int64_t stride_i = trans ? ldb : 1, stride_k = trans ? 1 : ldb;
    sbit__pack_all(ctx, n, tile, k, b, stride_i, stride_k, alpha, packed);
}

/* >>plan */
typedef struct sbit__gemm_job {
    const sbit__gemm *gemm;
    const sbit_kernels *kernels;
    int64_t tiles_m, tiles_n, parts_m, parts_n; /* c in tiles; in rectangles */
    int64_t depth, rows, columns;               /* of a block */
    const sbit__last_kernels *rows_of; /* a is read where it lies, by these; NULL: by panels */
    int64_t width; /* of a panel of b: the widest that rows take, where it is packed here */
    bool pack_a, pack_b;
    bool sums; /* of b's columns are made where b is packed */
    float alpha_a, alpha_b; /* the product's, at the operand that is packed here */
    int64_t depths; /* blocks of k at once: c is read and written once for them */
    size_t a_bytes, b_bytes, worker_bytes;
    unsigned char *scratch;
} sbit__gemm_job;

static bool sbit__gemm_by_dots(const sbit__gemm *g)
{
    return g->m <= SBIT__GEMM_DOT_ROWS && g->packed_a == NULL && g->packed_b == NULL &&
           !g->trans_a && g->trans_b;
}

/* Splits c among the threads, first along its longer side. */
static void sbit__gemm_split(sbit__gemm_job *job, int64_t threads)
{
    const sbit__gemm *g = job->gemm;
    int64_t pieces = job->pack_a ? threads : 2 * threads; /* each packs the other operand anew */
    job->parts_m = job->parts_n = 1;
    const double work = (double)g->m * (double)g->n * (double)sbit__larger(g->k, 1);
    const double worth = work / (double)SBIT__WORTH_A_THREAD; /* so many threads */
    if (threads == 1 || worth < 2.0) {
        return;
    }
    if (worth < (double)pieces) {
        pieces = (int64_t)worth;
    }
    if (job->tiles_n * job->kernels->tile_n >= job->tiles_m * job->kernels->tile_m) {
        job->parts_n = sbit__smaller(pieces, job->tiles_n);
        job->parts_m = sbit__smaller(sbit__div_up(pieces, job->parts_n), job->tiles_m);
    } else {
        job->parts_m = sbit__smaller(pieces, job->tiles_m);
        job->parts_n = sbit__smaller(sbit__div_up(pieces, job->parts_m), job->tiles_n);
    }
}

static sbit__gemm_job sbit__gemm_plan(const sbit_ctx *ctx, const sbit__gemm *g)
{
    sbit__gemm_job job;
    memset(&job, 0, sizeof(job));
    job.gemm = g;
    job.kernels = sbit__kernels(ctx);
    const int64_t tile_m = job.kernels->tile_m, tile_n = job.kernels->tile_n;
    job.tiles_m = sbit__div_up(g->m, tile_m);
    job.tiles_n = sbit__div_up(g->n, tile_n);
    job.depth = sbit__gemm_terms(job.kernels, g->n, g->k);
    job.rows = sbit__smaller(job.tiles_m, SBIT__GEMM_ROWS / tile_m) * tile_m;
    job.columns = sbit__smaller(job.tiles_n, SBIT__GEMM_COLUMNS / tile_n) * tile_n;
    job.pack_b = g->packed_b == NULL && (g->trans_b || g->m > 2 * tile_m);
    job.alpha_a = job.pack_b ? 1.0f : g->alpha;
    job.alpha_b = job.pack_b ? g->alpha : 1.0f;
    if (g->packed_a == NULL && !g->trans_a && !g->bias_rows && job.alpha_a == 1.0f &&
        (g->packed_b != NULL || job.pack_b) && job.kernels->isa != SBIT_ISA_SCALAR) {
        job.rows_of = sbit__last_of(ctx);
    }
    job.width = tile_n;
    if (job.rows_of != NULL && job.pack_b) {
        job.width = sbit__larger((int64_t)job.rows_of->panel * job.rows_of->lanes, tile_n);
    }
    job.pack_a = job.rows_of == NULL && (g->packed_a == NULL || job.alpha_a != 1.0f);
    if (job.pack_a && job.pack_b) { /* one block of k at a time, packed once for a large part of c */
        job.rows = sbit__smaller(job.tiles_m, SBIT__GEMM_BOTH_ROWS / tile_m) * tile_m;
        const int64_t most = SBIT__GEMM_C_FLOATS / sbit__larger(job.rows, tile_m) / tile_n;
        job.columns = sbit__smaller(job.tiles_n, sbit__larger(most, 1)) * tile_n;
    }
    job.sums = g->b_sums != NULL && job.pack_a && job.pack_b;
    job.a_bytes = job.pack_a ? sbit__cache_lines(job.rows * job.depth) : 0;
    const int64_t panels = sbit__div_up(job.columns, job.width);
    job.b_bytes = job.pack_b ? sbit__cache_lines(panels * job.width * job.depth) : 0;
    job.depths = sbit__smaller(SBIT__GEMM_B_FLOATS / sbit__larger(job.columns * job.depth, 1), SBIT__GEMM_DEPTHS);
    job.depths = job.pack_a && job.pack_b ? 1 : job.depths;
    job.depths = sbit__larger(sbit__smaller(job.depths, sbit__div_up(g->k, job.depth)), 1);
    job.worker_bytes = job.a_bytes + job.b_bytes * (size_t)job.depths;
    sbit__gemm_split(&job, g->serial ? 1 : sbit_ctx_threads(ctx));
    return job;
}

/* The reference's tiles round a later block's sum together with what there is, which rows cannot. */
static bool sbit__gemm_by_row(const sbit__gemm_job *job)
{
    const sbit__gemm *g = job->gemm;
    return g->m == 1 && g->packed_a == NULL && g->packed_b != NULL && g->alpha == 1.0f &&
           (!g->trans_a || g->lda == 1) &&
           (job->kernels->isa != SBIT_ISA_SCALAR || g->k <= job->depth);
}

/* >>run */
typedef struct sbit__gemm_block {
    int64_t m0, m1, n0, n1, k0, k1; /* of c and of the sums */
    int64_t first;                  /* m0 of the first block with the same columns */
    const float *a;                 /* panels from m0 on, at k0 */
    int64_t a_stride;               /* from panel to panel */
    const float *b;                 /* likewise; without panels: b's rows from k0 on */
    int64_t b_stride, b_row;
} sbit__gemm_block;

/* The column of tiles at j, with rows of a where they lie. */
static void sbit__gemm_rows(const sbit__gemm_job *job, const sbit__gemm_block *block, int64_t j,
                            const float *b)
{
    const sbit__gemm *g = job->gemm;
    const bool last = block->k1 == g->k;
    const int64_t at = block->m0 * g->ldc + j;
    const sbit__epilogue *ep = last ? g->epilogue : NULL;
    sbit__last_tile tile;
    memset(&tile, 0, sizeof tile);
    tile.taps = 1;
    tile.depth = block->k1 - block->k0;
    tile.x = g->a + block->m0 * g->lda + block->k0;
    tile.x_step = g->lda;
    tile.width = job->width;
    tile.columns = sbit__smaller(block->n1 - j, tile.width);
    tile.weights = b;
    if (g->packed_b != NULL && block->m0 == block->first) { /* the next panel, or the next block's first */
        const bool more = j + tile.width < block->n1;
        tile.next = more ? b + block->b_stride : block->b + tile.depth * tile.width;
        tile.ahead = (more ? tile.depth : sbit__smaller(g->k - block->k1, tile.depth)) * tile.width;
    }
    tile.adds = block->k0 > 0;
    tile.behind = last && g->bias != NULL ? g->bias + j : NULL;
    tile.out_step = g->ldc;
    if (ep != NULL) {
        tile.store.residual = ep->residual != NULL ? ep->residual + at : NULL;
        tile.store.activation = ep->activation == SBIT__ACT_CLAMP ? SBIT__ACT_CLAMP : SBIT__ACT_NONE;
        tile.store.lo = ep->lo;
        tile.store.hi = ep->hi;
    }
    job->rows_of->last_tile(&tile, block->m1 - block->m0, NULL, g->c + at);
    if (ep != NULL && ep->activation > SBIT__ACT_CLAMP) {
        for (int64_t i = block->m0; i < block->m1; i++) {
            job->kernels->f32_activate(tile.columns, g->c + i * g->ldc + j, ep);
        }
    }
}

/* The same of panels. */
static void sbit__gemm_tiles(const sbit__gemm_job *job, const sbit__gemm_block *block, int64_t j,
                             const float *b)
{
    const sbit__gemm *g = job->gemm;
    const int64_t tile_m = job->kernels->tile_m;
    const int64_t n = sbit__smaller(block->n1 - j, job->kernels->tile_n);
    const bool last = block->k1 == g->k;
    const sbit__epilogue *epilogue = last ? g->epilogue : NULL;
    const float *a = block->a, *bias = NULL;
    sbit__epilogue ep;
    memset(&ep, 0, sizeof(ep));
    for (int64_t i = block->m0; i < block->m1; i += tile_m, a += block->a_stride) {
        if (last && g->bias != NULL) {
            bias = g->bias + (g->bias_rows ? i : j);
        }
        if (epilogue != NULL) {
            ep = *epilogue;
            ep.residual = ep.residual != NULL ? ep.residual + i * g->ldc + j : NULL;
        }
        job->kernels->f32_gemm_tile(sbit__smaller(block->m1 - i, tile_m), n, block->k1 - block->k0,
                                    a, b, block->b_row, g->c + i * g->ldc + j, g->ldc,
                                    block->k0 > 0, bias, g->bias_rows,
                                    epilogue != NULL ? &ep : NULL);
    }
}

static void sbit__gemm_pack_block_a(const sbit__gemm_job *job, sbit__gemm_block *block,
                                    float *scratch)
{
    const sbit__gemm *g = job->gemm;
    const int64_t tile = job->kernels->tile_m, depth = block->k1 - block->k0;
    if (!job->pack_a) {
        block->a = g->packed_a + block->m0 * g->k + block->k0 * tile;
        block->a_stride = g->k * tile;
        return;
    }
    block->a = scratch;
    block->a_stride = depth * tile;
    if (g->packed_a != NULL) { /* only to multiply with alpha: all panels are full */
        for (int64_t i = block->m0; i < block->m1; i += tile, scratch += depth * tile) {
            sbit__pack_panel(tile, tile, depth, g->packed_a + i * g->k + block->k0 * tile, 1, tile,
                             job->alpha_a, scratch);
        }
        return;
    }
    const int64_t stride_i = g->trans_a ? 1 : g->lda, stride_k = g->trans_a ? g->lda : 1;
    sbit__pack_panels(block->m1 - block->m0, tile, depth,
                      g->a + block->m0 * stride_i + block->k0 * stride_k, stride_i, stride_k,
                      job->alpha_a, scratch, depth * tile);
}

static void sbit__gemm_pack_block_b(const sbit__gemm_job *job, sbit__gemm_block *block,
                                    float *scratch)
{
    const sbit__gemm *g = job->gemm;
    const int64_t tile = job->width, depth = block->k1 - block->k0;
    block->b_row = tile;
    if (g->packed_b != NULL) {
        block->b = g->packed_b + block->n0 * g->k + block->k0 * tile;
        block->b_stride = g->k * tile;
        return;
    }
    if (!job->pack_b) {
        block->b = g->b + block->k0 * g->ldb + block->n0;
        block->b_stride = tile;
        block->b_row = g->ldb;
        return;
    }
    block->b = scratch;
    block->b_stride = depth * tile;
    const int64_t stride_i = g->trans_b ? g->ldb : 1, stride_k = g->trans_b ? 1 : g->ldb;
    sbit__pack_panels(block->n1 - block->n0, tile, depth,
                      g->b + block->n0 * stride_i + block->k0 * stride_k, stride_i, stride_k,
                      job->alpha_b, scratch, depth * tile);
}

/* Adds the block's rows of b, which were packed just now, to its columns' sums. */
static void sbit__gemm_sum_block(const sbit__gemm_job *job, const sbit__gemm_block *block)
{
    const int64_t width = job->width, most = (int64_t)SBIT__GEMM_ROW_PANELS * width;
    float ones[SBIT__GEMM_SUMMED], part[(int)SBIT__GEMM_ROW_PANELS * (int)SBIT__MAX_TILE_N];
    for (int64_t i = 0; i < SBIT__GEMM_SUMMED; i++) {
        ones[i] = 1.0f;
    }
    for (int64_t j = block->n0; j < block->n1; j += most) {
        const int64_t n = sbit__smaller(block->n1 - j, most);
        const float *panel = block->b + (j - block->n0) / width * block->b_stride;
        float *sums = job->gemm->b_sums + j;
        for (int64_t k = block->k0; k < block->k1; k += SBIT__GEMM_SUMMED, panel += SBIT__GEMM_SUMMED * width) {
            job->kernels->f32_gemm_row(sbit__div_up(n, width), sbit__smaller(block->k1 - k, SBIT__GEMM_SUMMED),
                                       ones, panel, block->b_stride, part);
            if (k == 0) {
                memcpy(sums, part, (size_t)n * sizeof *sums);
            } else {
                job->kernels->f32_binary(SBIT__BINARY_ADD, n, sums, 1, part, 1, sums);
            }
        }
    }
}

/* The same of rows that lie where they are. */
static void sbit__gemm_sum_rows(const sbit__gemm_job *job)
{
    const sbit__gemm *g = job->gemm;
    memset(g->b_sums, 0, (size_t)g->n * sizeof *g->b_sums);
    for (int64_t k = 0; k < g->k; k++) {
        job->kernels->f32_binary(SBIT__BINARY_ADD, g->n, g->b_sums, 1, g->b + k * g->ldb, 1, g->b_sums);
    }
}

static void sbit__gemm_block_run(const sbit__gemm_job *job, sbit__gemm_block *block, float *scratch)
{
    const float *b = block->b;
    if (job->rows_of == NULL) {
        sbit__gemm_pack_block_a(job, block, scratch);
    }
    for (int64_t j = block->n0; j < block->n1; j += job->width, b += block->b_stride) {
        if (job->rows_of != NULL) {
            sbit__gemm_rows(job, block, j, b);
        } else {
            sbit__gemm_tiles(job, block, j, b);
        }
    }
}

/* All of the sums of rows m0..m1 and columns n0..n1 of c, at most `columns` of them. */
static void sbit__gemm_columns(const sbit__gemm_job *job, int64_t m0, int64_t m1, int64_t n0,
                               int64_t n1, int32_t worker)
{
    unsigned char *scratch = job->scratch + (size_t)worker * job->worker_bytes;
    sbit__gemm_block blocks[SBIT__GEMM_DEPTHS];
    int64_t k = 0;
    do { /* k may be 0: one empty block */
        int count = 0;
        do {
            sbit__gemm_block *block = &blocks[count];
            memset(block, 0, sizeof *block);
            block->first = m0;
            block->n0 = n0;
            block->n1 = n1;
            block->k0 = k;
            block->k1 = k = sbit__smaller(job->gemm->k, k + job->depth);
            sbit__gemm_pack_block_b(
                job, block, (float *)(void *)(scratch + job->a_bytes + (size_t)count * job->b_bytes));
            if (job->sums && m0 == 0) {
                sbit__gemm_sum_block(job, block);
            }
            count++;
        } while (k < job->gemm->k && count < job->depths);
        for (int64_t m = m0; m < m1; m += job->rows) { /* c's part stays in the cache */
            for (int i = 0; i < count; i++) {
                blocks[i].m0 = m;
                blocks[i].m1 = sbit__smaller(m1, m + job->rows);
                sbit__gemm_block_run(job, &blocks[i], (float *)(void *)scratch);
            }
        }
    } while (k < job->gemm->k);
}

static void sbit__gemm_rectangle(void *task, int64_t index, int32_t worker)
{
    const sbit__gemm_job *job = (const sbit__gemm_job *)task;
    const int64_t tile_m = job->kernels->tile_m, tile_n = job->kernels->tile_n;
    const int64_t i = index / job->parts_n, j = index % job->parts_n;
    const int64_t m0 = i * job->tiles_m / job->parts_m * tile_m;
    const int64_t m1 = (i + 1) * job->tiles_m / job->parts_m * tile_m;
    const int64_t n0 = j * job->tiles_n / job->parts_n * tile_n;
    const int64_t n1 = sbit__smaller((j + 1) * job->tiles_n / job->parts_n * tile_n, job->gemm->n);
    const int64_t rows = job->pack_b ? sbit__larger(m1 - m0, 1) : job->rows; /* c's part stays in L2 */
    for (int64_t n = n0; n < n1; n += job->columns) {
        for (int64_t m = m0; m < m1; m += rows) {
            sbit__gemm_columns(job, m, sbit__smaller(sbit__smaller(m1, m + rows), job->gemm->m), n,
                               sbit__smaller(n1, n + job->columns), worker);
        }
    }
}

static void sbit__gemm_dots(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__gemm_job *job = (const sbit__gemm_job *)task;
    const sbit__gemm *g = job->gemm;
    (void)worker;
    for (int64_t j = begin; j < end; j++) {
        for (int64_t i = 0; i < g->m; i++) { /* b's row stays in the cache */
            float x = g->alpha * job->kernels->f32_dot(g->k, g->a + i * g->lda, g->b + j * g->ldb);
            x += g->bias != NULL ? g->bias[g->bias_rows ? i : j] : 0.0f;
            if (g->epilogue != NULL && g->epilogue->residual != NULL) {
                x += g->epilogue->residual[i * g->ldc + j];
            }
            g->c[i * g->ldc + j] = x;
        }
    }
    for (int64_t i = 0; i < g->m && g->epilogue != NULL; i++) {
        job->kernels->f32_activate(end - begin, g->c + i * g->ldc + begin, g->epilogue);
    }
}

/* Columns j0..j1 of the one row, at most SBIT__GEMM_ROW_PANELS panels. */
static void sbit__gemm_row_columns(const sbit__gemm_job *job, int64_t j0, int64_t j1)
{
    const sbit__gemm *g = job->gemm;
    const int64_t tile = job->kernels->tile_n, n = j1 - j0;
    const float *b = g->packed_b + j0 * g->k;
    float sums[(int)SBIT__GEMM_ROW_PANELS * (int)SBIT__MAX_TILE_N], *c = g->c + j0;
    const sbit_kernels *kernels = job->kernels;
    const float none = 0.0f;
    const float *bias = g->bias == NULL ? &none : g->bias_rows ? g->bias : g->bias + j0;
    int64_t k0 = 0;
    do { /* as in sbit__gemm_columns */
        const int64_t k1 = sbit__smaller(g->k, k0 + job->depth);
        kernels->f32_gemm_row(sbit__div_up(n, tile), k1 - k0, g->a + k0, b + k0 * tile, g->k * tile,
                              sums);
        if (k0 > 0) {
            kernels->f32_binary(SBIT__BINARY_ADD, n, sums, 1, c, 1, c);
        } else if (k1 < g->k) {
            memcpy(c, sums, (size_t)n * sizeof(*c));
        }
        k0 = k1;
    } while (k0 < g->k);
    kernels->f32_binary(SBIT__BINARY_ADD, n, g->k > job->depth ? c : sums, 1, bias,
                        g->bias == NULL || g->bias_rows ? 0 : 1, c);
    if (g->epilogue != NULL) {
        if (g->epilogue->residual != NULL) {
            kernels->f32_binary(SBIT__BINARY_ADD, n, c, 1, g->epilogue->residual + j0, 1, c);
        }
        kernels->f32_activate(n, c, g->epilogue);
    }
}

static void sbit__gemm_row_range(void *task, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__gemm_job *job = (const sbit__gemm_job *)task;
    const int64_t width = SBIT__GEMM_ROW_PANELS * job->kernels->tile_n;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        sbit__gemm_row_columns(job, i * width, sbit__smaller((i + 1) * width, job->gemm->n));
    }
}

/* A loop over the threads, or on this one alone. */
static void sbit__gemm_spread(sbit_ctx *ctx, sbit__gemm_job *job, int64_t n, int64_t work_each,
                              sbit__range_fn fn)
{
    if (job->gemm->serial) {
        fn(job, 0, n, 0);
        return;
    }
    sbit__parallel_range(ctx, n, sbit__div_up(SBIT__WORTH_A_THREAD, sbit__larger(work_each, 1)), fn,
                         job);
}

SBIT__FN size_t sbit__gemm_scratch_bytes(const sbit_ctx *ctx, const sbit__gemm *gemm)
{
    sbit__gemm most = *gemm;
    const size_t rows = sbit__gemm_plan(ctx, gemm).worker_bytes;
    most.bias_rows = true; /* a bias and alpha may be set only at the run: room for panels of a */
    const size_t panels = sbit__gemm_plan(ctx, &most).worker_bytes;
    return (rows > panels ? rows : panels) * (size_t)(gemm->serial ? 1 : sbit_ctx_threads(ctx));
}

SBIT__FN const float *sbit__gemm_any(void)
{
    static const float any[1] = {0.0f};
    return any;
}

SBIT__FN void sbit__gemm_run(sbit_ctx *ctx, const sbit__gemm *gemm, void *scratch)
{
    sbit__gemm_job job = sbit__gemm_plan(ctx, gemm);
    job.scratch = (unsigned char *)scratch;
    if (gemm->b_sums != NULL && (gemm->m <= 0 || !job.sums)) {
        sbit__gemm_sum_rows(&job);
    }
    if (gemm->m <= 0 || gemm->n <= 0) {
        return;
    }
    if (sbit__gemm_by_dots(gemm)) {
        sbit__gemm_spread(ctx, &job, gemm->n, gemm->m * gemm->k, sbit__gemm_dots);
    } else if (sbit__gemm_by_row(&job)) {
        const int64_t width = SBIT__GEMM_ROW_PANELS * job.kernels->tile_n;
        sbit__gemm_spread(ctx, &job, sbit__div_up(gemm->n, width), width * gemm->k,
                          sbit__gemm_row_range);
    } else if (gemm->serial) {
        sbit__gemm_rectangle(&job, 0, 0);
    } else {
        sbit_ctx_parallel(ctx, job.parts_m * job.parts_n, sbit__gemm_rectangle, &job);
    }
}
