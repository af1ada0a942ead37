/* grad_recurrent.c: gradients of LSTM and GRU. >>grad-recurrent
 *
 * Called by: infer, exec; the node is added by ops/gradients.c. Calls: kernels.
 * LstmGrad(x, W, R, B, h0, c0, Y, dY, dYh, dYc, kept) -> dx, dW, dR, dB, dh0, dc0   (B, h0, c0, d..,
 * kept optional) x [T,N,I], W [D,4H,I], R [D,4H,H], B [D,8H], Y [T,D,N,H], states [D,N,H]; gates i, o,
 * f, c as ONNX; kept: what sbit LSTM had computed (exec/lower_float.c). Without it all gates are computed
 * again, with the same bits, since the states between steps are known from Y: g = h R^T + (x W^T + b) (all
 * steps), c_t in order; then, from the last step to the first, dc += dh o (1 - tanh(c)^2);  di, do, df, dc~
 * through their functions;  dh' = dg R;  dc' = dc f   dx = dg W   dW = dg^T x   dR = dg^T h   dB = sum of
 * dg, twice
 * Samples do not meet on the way back: each thread takes its share through a part of the steps. W and R
 * are packed once. With {again: 1} only a part's gates are kept and made once more on the way back: the
 * same bits in an eighth of the memory.
 */
#include "../kernels/last_private.h"
#include "../kernels/rows_private.h"
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* exp, tanh */

#if !SPARSEBIT_NO_OPS_TRAINING

typedef struct sbit__lstm_grad {
    sbit_ctx *ctx;
    sbit_dtype dtype;
    int64_t steps, batch, input, hidden, directions;
    bool reverse;         /* the direction at hand */
    bool whole;           /* gates, more, cells, before of all steps, not of a part */
    int64_t part;         /* steps of a full part */
    int64_t first, count; /* steps of the part at hand, in the order of the direction */
    void *gates, *more, *cells, *before, *dh, *dc;
    void *ends; /* cells in front of each part, and behind the last */
    void *bias; /* W's and R's */
    void *sum;  /* what a part adds to dW or dR */
    void *gemm;
    size_t gemm_bytes; /* of a worker that goes back through the steps */
    int64_t blocks;    /* of samples, each on one thread */
    const float *kept; /* NULL: gates are computed again */
    float *packed;     /* R of the direction, for dg R; NULL: not float32 */
    float *packed_w, *packed_r; /* transposed, for the gates; NULL: not needed, or for memory's sake */
} sbit__lstm_grad;

enum {
    SBIT__LSTM_PARTS = 8,
    SBIT__LSTM_FEW = 4 /* rows of a product that adds up otherwise unless weights are packed */
};

enum {
    SBIT__LSTM_X,
    SBIT__LSTM_W,
    SBIT__LSTM_R,
    SBIT__LSTM_B,
    SBIT__LSTM_H0,
    SBIT__LSTM_C0,
    SBIT__LSTM_Y,
    SBIT__LSTM_DY,
    SBIT__LSTM_DYH,
    SBIT__LSTM_DYC,
    SBIT__LSTM_IN_KEPT
};

static sbit_status sbit__lstm_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    static const int32_t from[] = {SBIT__LSTM_X, SBIT__LSTM_W,  SBIT__LSTM_R,
                                   SBIT__LSTM_B, SBIT__LSTM_H0, SBIT__LSTM_C0};
    SBIT__TRY(sbit__op_inputs(call, 3, 11, error));
    for (int32_t i = 0; i < 6 && i < call->output_count; i++) {
        if (call->out_type[i] != NULL && sbit__op_has(call, from[i])) {
            *call->out_type[i] = *call->in_type[from[i]];
        }
    }
    return SBIT_OK;
}

/* c [m][n] = a * b; float64 by the definition. trans: a is [k][m], b is [n][k]. */
typedef struct sbit__lstm_product {
    int64_t m, n, k;
    bool trans_a, trans_b;
    bool serial;         /* on this thread */
    const float *packed; /* b as panels, or NULL */
    const void *bias;    /* [n], or NULL */
} sbit__lstm_product;

static sbit__gemm sbit__lstm_gemm(const sbit__lstm_product *p)
{
    sbit__gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = p->m;
    gemm.n = gemm.ldc = p->n;
    gemm.k = p->k;
    gemm.lda = p->trans_a ? p->m : p->k;
    gemm.ldb = p->trans_b ? p->k : p->n;
    gemm.trans_a = p->trans_a;
    gemm.trans_b = p->trans_b;
    gemm.packed_b = p->packed;
    gemm.serial = p->serial;
    gemm.alpha = 1.0f;
    return gemm;
}

static void sbit__lstm_multiply_in(const sbit__lstm_grad *l, const sbit__lstm_product *of, const void *a,
                                   const void *b, void *c, void *scratch)
{
    const sbit__lstm_product p = *of;
    sbit__gemm gemm = sbit__lstm_gemm(&p);
    if (l->dtype == SBIT_F32) {
        gemm.a = (const float *)a;
        gemm.b = (const float *)b;
        gemm.bias = (const float *)p.bias;
        gemm.c = (float *)c;
        sbit__gemm_run(l->ctx, &gemm, scratch);
        return;
    }
    for (int64_t i = 0; i < p.m; i++) {
        for (int64_t j = 0; j < p.n; j++) {
            double sum = p.bias != NULL ? ((const double *)p.bias)[j] : 0.0;
            for (int64_t k = 0; k < p.k; k++) {
                sum += ((const double *)a)[p.trans_a ? k * p.m + i : i * p.k + k] *
                       ((const double *)b)[p.trans_b ? j * p.k + k : k * p.n + j];
            }
            ((double *)c)[i * p.n + j] = sum;
        }
    }
}

static void sbit__lstm_multiply(const sbit__lstm_grad *l, sbit__lstm_product p, const void *a,
                                const void *b, void *c)
{
    sbit__lstm_multiply_in(l, &p, a, b, c, l->gemm);
}

static sbit__lstm_product sbit__lstm_product_of(int64_t m, int64_t n, int64_t k, bool trans_a,
                                                bool trans_b)
{
    sbit__lstm_product p;
    memset(&p, 0, sizeof p);
    p.m = m;
    p.n = n;
    p.k = k;
    p.trans_a = trans_a;
    p.trans_b = trans_b;
    return p;
}

/* Sizes from types, and memory for one direction from `scratch` (NULL: only sizes); gives the
 * bytes. */
static size_t sbit__lstm_place(const sbit_op_call *call, sbit__lstm_grad *l, char *scratch)
{
    const sbit_type *x = call->in_type[SBIT__LSTM_X], *r = call->in_type[SBIT__LSTM_R];
    memset(l, 0, sizeof *l);
    l->ctx = call->ctx;
    l->dtype = x->dtype;
    l->steps = x->dims[0].value;
    l->batch = x->dims[1].value;
    l->input = x->dims[2].value;
    l->directions = r->dims[0].value;
    l->hidden = r->dims[2].value;
    l->whole = sbit_node_int(call->node, "again", 0) == 0;
    l->count = l->steps;
    l->part = (l->steps + SBIT__LSTM_PARTS - 1) / SBIT__LSTM_PARTS;
    l->blocks = sbit__larger(sbit__smaller(sbit_ctx_threads(call->ctx), l->batch), 1);
    const bool kept = sbit__op_has(call, SBIT__LSTM_IN_KEPT), single = l->dtype == SBIT_F32;
    const int64_t rows = l->part * l->batch, h = l->hidden, in = l->input;
    const int64_t all = (l->whole ? l->steps : l->part) * l->batch;
    const size_t each = l->dtype == SBIT_F64 ? sizeof(double) : sizeof(float);
    const int64_t cell = l->batch * h;
    const int64_t last = l->part > 0 && l->steps % l->part != 0 ? l->steps % l->part : l->part;
    const bool packs = single && !kept && (l->whole || last * l->batch <= SBIT__LSTM_FEW);
    sbit__lstm_product serial = sbit__lstm_product_of(sbit__div_up(l->batch, l->blocks), h, 4 * h, false, false);
    serial.packed = single ? sbit__gemm_any() : NULL;
    serial.serial = true;
    const sbit__gemm back = sbit__lstm_gemm(&serial);
    const struct {
        void **place;
        size_t bytes;
    } parts[] = {
        {&l->gates, (size_t)(all * 4 * h) * each},
        {&l->more, (size_t)(kept ? rows * in : all * (in > 4 * h ? in : 4 * h)) * each},
        {&l->cells, kept ? 0 : (size_t)(all * h + cell) * each},
        {&l->before, (size_t)(rows * h) * each},
        {&l->dh, (size_t)cell * each},
        {&l->dc, (size_t)cell * each},
        {&l->ends, kept ? 0 : (size_t)((SBIT__LSTM_PARTS + 1) * cell) * each},
        {&l->sum, (size_t)(4 * h * (in > h ? in : h)) * each},
        {&l->bias, kept ? 0 : (size_t)(4 * h) * each},
    };
    const struct {
        float **place;
        size_t bytes;
    } packed[] = {
        {&l->packed, single ? sbit__gemm_pack_b_bytes(call->ctx, h, 4 * h) : 0},
        {&l->packed_w, packs ? sbit__gemm_pack_b_bytes(call->ctx, 4 * h, in) : 0},
        {&l->packed_r, packs ? sbit__gemm_pack_b_bytes(call->ctx, 4 * h, h) : 0},
    };
    size_t used = 0, gemm = 0;
    for (size_t i = 0; i < SBIT__COUNT_OF(parts); i++) {
        *parts[i].place = scratch != NULL ? scratch + used : NULL;
        used += sbit__align64(parts[i].bytes);
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(packed); i++) {
        *packed[i].place =
            scratch != NULL && packed[i].bytes > 0 ? (float *)(void *)(scratch + used) : NULL;
        used += sbit__align64(packed[i].bytes);
    }
    l->gemm = scratch != NULL ? scratch + used : NULL;
    const sbit__lstm_product products[5] = {sbit__lstm_product_of(rows, 4 * h, in, false, true),
                                            sbit__lstm_product_of(rows, 4 * h, h, false, true),
                                            sbit__lstm_product_of(rows, in, 4 * h, false, false),
                                            sbit__lstm_product_of(4 * h, in, rows, true, false),
                                            sbit__lstm_product_of(4 * h, h, rows, true, false)};
    l->gemm_bytes = single ? sbit__align64(sbit__gemm_scratch_bytes(call->ctx, &back)) : 0;
    gemm = l->gemm_bytes * (size_t)sbit_ctx_threads(call->ctx);
    for (int32_t i = 0; single && i < 5; i++) {
        const sbit__gemm one = sbit__lstm_gemm(&products[i]);
        const size_t bytes = sbit__gemm_scratch_bytes(call->ctx, &one);
        gemm = bytes > gemm ? bytes : gemm;
    }
    return used + sbit__align64(gemm);
}

static sbit_status sbit__lstm_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__lstm_grad l;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (sbit__type_static(call->in_type[SBIT__LSTM_X]) &&
        sbit__type_static(call->in_type[SBIT__LSTM_R])) {
        *call->scratch_bytes = sbit__lstm_place(call, &l, NULL);
    }
    return SBIT_OK;
}

static void sbit__lstm_f32_unary(const sbit__lstm_grad *l, sbit__unary op, int64_t n,
                                 const float *x, float *y)
{
    sbit__kernels(l->ctx)->f32_unary(op, n, x, y);
}

static void sbit__lstm_f32_sum(const sbit__lstm_grad *l, int64_t n, const float *x, float *y)
{
    sbit__kernels(l->ctx)->f32_binary(SBIT__BINARY_ADD, n, y, 1, x, 1, y);
}

static void sbit__lstm_f64_sum(const sbit__lstm_grad *l, int64_t n, const double *x, double *y)
{
    (void)l;
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

static void sbit__lstm_f64_unary(const sbit__lstm_grad *l, sbit__unary op, int64_t n,
                                 const double *x, double *y)
{
    (void)l;
    for (int64_t i = 0; i < n; i++) {
        y[i] = op == SBIT__UNARY_TANH ? tanh(x[i]) : 1.0 / (1.0 + exp(-x[i]));
    }
}

enum {
    SBIT__LSTM_COLUMNS = 96, /* of the bias, summed at a time */
    SBIT__LSTM_ROWS = 16,    /* that are added up before they join the rest */
    SBIT__LSTM_GRAIN = 1024  /* elements that are worth a thread */
};

/* What threads share. */
typedef struct sbit__lstm_task {
    const sbit__lstm_grad *l;
    const sbit_op_call *call;
    int64_t direction;
    const void *x;
    void *y;
    bool first; /* y = instead of y += */
} sbit__lstm_task;

/* A step on the way back, from sample 0 on: gates are written over if dg is gates. */
typedef struct sbit__lstm_step {
    const void *gates, *tops; /* tanh of the cells */
    const void *cells, *dy;   /* in front of the step; either may be NULL: zeros */
    void *dg;
} sbit__lstm_step;

/* The steps of one direction, for one type. Units: samples (gates), rows (tops: tanh of the cells goes to
 * `more`, for back), columns of the bias in pieces, elements (add). */
#define SBIT__LSTM_STEPS(T, name)                                                                  \
    static void name##_gates(void *user, int64_t begin, int64_t end, int32_t worker)               \
    {                                                                                              \
        const sbit__lstm_grad *l = ((const sbit__lstm_task *)user)->l;                             \
        const int64_t h = l->hidden, cell = l->batch * h;                                          \
        const T *c0 = (const T *)l->ends, *more = (const T *)l->more;                              \
        T *cells = (T *)l->cells;                                                                  \
        (void)worker;                                                                              \
        for (int64_t i = begin * h; i < end * h; i++) {                                            \
            cells[i] = c0[i];                                                                      \
        }                                                                                          \
        for (int64_t t = 0; t < l->count; t++) {                                                   \
            for (int64_t r = t * l->batch + begin; r < t * l->batch + end; r++) {                  \
                T *g = (T *)l->gates + r * 4 * h;                                                  \
                for (int64_t i = 0; i < 4 * h; i++) {                                              \
                    g[i] += more[r * 4 * h + i];                                                   \
                }                                                                                  \
                name##_unary(l, SBIT__UNARY_SIGMOID, 3 * h, g, g);                                 \
                name##_unary(l, SBIT__UNARY_TANH, h, g + 3 * h, g + 3 * h);                        \
                for (int64_t i = 0; i < h; i++) {                                                  \
                    cells[cell + r * h + i] =                                                      \
                        g[2 * h + i] * cells[r * h + i] + g[i] * g[3 * h + i];                     \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_tops(void *user, int64_t begin, int64_t end, int32_t worker)                \
    {                                                                                              \
        const sbit__lstm_grad *l = ((const sbit__lstm_task *)user)->l;                             \
        const int64_t h = l->hidden;                                                               \
        (void)worker;                                                                              \
        for (int64_t r = begin; r < end; r++) {                                                    \
            name##_unary(l, SBIT__UNARY_TANH, h, (const T *)l->cells + (l->batch + r) * h,         \
                         (T *)l->more + r * h);                                                    \
        }                                                                                          \
    }                                                                                              \
    static void name##_bias(void *user, int64_t begin, int64_t end, int32_t worker)                \
    {                                                                                              \
        const sbit__lstm_task *task = (const sbit__lstm_task *)user;                               \
        const sbit__lstm_grad *l = task->l;                                                        \
        const int64_t width = 4 * l->hidden;                                                       \
        T *db = (T *)task->y;                                                                      \
        (void)worker;                                                                              \
        for (int64_t piece = begin; piece < end; piece++) {                                        \
            const int64_t first = piece * SBIT__LSTM_COLUMNS;                                      \
            const int64_t n = sbit__smaller(width - first, SBIT__LSTM_COLUMNS);                    \
            double sums[SBIT__LSTM_COLUMNS] = {0.0};                                               \
            for (int64_t r = 0; r < l->count * l->batch; r += SBIT__LSTM_ROWS) {                   \
                const int64_t rows = sbit__smaller(l->count * l->batch - r, SBIT__LSTM_ROWS);      \
                T part[SBIT__LSTM_COLUMNS] = {0};                                                  \
                for (int64_t k = r; k < r + rows; k++) {                                           \
                    name##_sum(l, n, (const T *)l->gates + k * width + first, part);               \
                }                                                                                  \
                for (int64_t i = 0; i < n; i++) {                                                  \
                    sums[i] += (double)part[i];                                                    \
                }                                                                                  \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++) {                                                      \
                sums[i] += task->first ? 0.0 : (double)db[first + i];                              \
                db[first + i] = db[width + first + i] = (T)sums[i];                                \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_add(void *user, int64_t begin, int64_t end, int32_t worker)                 \
    {                                                                                              \
        const sbit__lstm_task *task = (const sbit__lstm_task *)user;                               \
        const T *x = (const T *)task->x;                                                           \
        T *y = (T *)task->y;                                                                       \
        (void)worker;                                                                              \
        if (task->first) {                                                                         \
            memcpy(y + begin, x + begin, (size_t)(end - begin) * sizeof *y);                       \
        } else {                                                                                   \
            name##_sum(task->l, end - begin, x + begin, y + begin);                                \
        }                                                                                          \
    }

SBIT__LSTM_STEPS(float, sbit__lstm_f32)
SBIT__LSTM_STEPS(double, sbit__lstm_f64)
#undef SBIT__LSTM_STEPS

/* Samples begin..end-1 of a step. */
static void sbit__lstm_back_step(const sbit__lstm_grad *l, const sbit__lstm_step *s, int64_t begin,
                                 int64_t end)
{
    const sbit__last_kernels *kernels = sbit__last_of(l->ctx);
    const int64_t h = l->hidden;
    for (int64_t n = begin; n < end && l->dtype == SBIT_F32; n++) {
        kernels->lstm_back(h, (const float *)s->gates + n * 4 * h, (const float *)s->tops + n * h,
                           s->cells != NULL ? (const float *)s->cells + n * h : NULL,
                           (const float *)l->dh + n * h,
                           s->dy != NULL ? (const float *)s->dy + n * h : NULL,
                           (float *)l->dc + n * h, (float *)s->dg + n * 4 * h);
    }
    for (int64_t k = begin * h; k < end * h && l->dtype == SBIT_F64; k++) {
        const int64_t at = k / h * 4 * h + k % h;
        const double *g = (const double *)s->gates + at, top = ((const double *)s->tops)[k];
        const double in = g[0], out = g[h], keep = g[2 * h], value = g[3 * h];
        const double up = ((const double *)l->dh)[k] + (s->dy != NULL ? ((const double *)s->dy)[k] : 0.0);
        const double down = ((const double *)l->dc)[k] + up * out * (1.0 - top * top);
        double *dg = (double *)s->dg + at;
        dg[0] = down * value * in * (1.0 - in);
        dg[h] = up * top * out * (1.0 - out);
        dg[2 * h] = down * (s->cells != NULL ? ((const double *)s->cells)[k] : 0.0) * keep * (1.0 - keep);
        dg[3 * h] = down * in * (1.0 - value * value);
        ((double *)l->dc)[k] = down * keep;
    }
}

static sbit__lstm_task sbit__lstm_task_of(const sbit__lstm_grad *l)
{
    sbit__lstm_task task;
    memset(&task, 0, sizeof task);
    task.l = l;
    return task;
}

/* Element `offset` of input i, which may be omitted. */
static const void *sbit__lstm_in(const sbit_op_call *call, int32_t i, int64_t offset)
{
    const sbit_tensor *in = sbit__in(call, i);
    return in != NULL ? sbit__elem_at_const(in->dtype, in->data, offset) : NULL;
}

static void *sbit__lstm_out(const sbit_op_call *call, int32_t i, int64_t offset)
{
    sbit_tensor *out = sbit__out(call, i);
    return out != NULL ? sbit__elem_at(out->dtype, out->data, offset) : NULL;
}

/* Step t of this direction is time `at`. */
static int64_t sbit__lstm_time(const sbit__lstm_grad *l, int64_t t)
{
    return l->reverse ? l->steps - 1 - t : t;
}

/* Rows of x (`width` numbers for each step and sample) of the part, in the order of this direction. */
static void sbit__lstm_order(const sbit__lstm_grad *l, const void *x, int64_t width, void *to)
{
    for (int64_t t = 0; t < l->count; t++) {
        sbit__elem_copy(l->dtype, to, t * l->batch * width, x,
                        sbit__lstm_time(l, l->first + t) * l->batch * width, l->batch * width);
    }
}

/* The states in front of each step of the part: h0, then Y of the step before. */
static void sbit__lstm_before(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d)
{
    const int64_t cell = l->batch * l->hidden;
    const void *h0 = sbit__lstm_in(call, SBIT__LSTM_H0, d * cell);
    for (int64_t t = 0; t < l->count; t++) {
        if (l->first + t > 0) {
            const int64_t last = sbit__lstm_time(l, l->first + t - 1);
            sbit__elem_copy(l->dtype, l->before, t * cell, call->in[SBIT__LSTM_Y]->data,
                            (last * l->directions + d) * cell, cell);
        } else if (h0 != NULL) {
            sbit__elem_copy(l->dtype, l->before, 0, h0, 0, cell);
        } else {
            sbit__elem_zero(l->dtype, l->before, 0, cell);
        }
    }
}

/* The same where they lie, if that is in this order; else in `before`. */
static const void *sbit__lstm_states(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d)
{
    if (!l->reverse && l->directions == 1 && l->first > 0) {
        return sbit__lstm_in(call, SBIT__LSTM_Y, (l->first - 1) * l->batch * l->hidden);
    }
    sbit__lstm_before(call, l, d);
    return l->before;
}

/* Rows of x where they lie, if that is in this order; else in `more`. */
static const void *sbit__lstm_rows(const sbit__lstm_grad *l, const sbit_tensor *x)
{
    if (!l->reverse) {
        return sbit__elem_at_const(l->dtype, x->data, l->first * l->batch * l->input);
    }
    sbit__lstm_order(l, x->data, l->input, l->more);
    return l->more;
}

static void sbit__lstm_copy_or_zero(const sbit__lstm_grad *l, const void *from, void *to)
{
    const int64_t cell = l->batch * l->hidden;
    if (from != NULL) {
        sbit__elem_copy(l->dtype, to, 0, from, 0, cell);
    } else {
        sbit__elem_zero(l->dtype, to, 0, cell);
    }
}

/* Part i of the steps. */
static sbit__lstm_grad sbit__lstm_part(const sbit__lstm_grad *l, int64_t i)
{
    const int64_t h = l->hidden, widest = l->input > 4 * h ? l->input : 4 * h;
    sbit__lstm_grad part = *l;
    part.first = i * l->part;
    part.count = l->steps - part.first < l->part ? l->steps - part.first : l->part;
    const int64_t rows = l->whole ? part.first * l->batch : 0;
    part.gates = sbit__elem_at(l->dtype, l->gates, rows * 4 * h);
    if (l->kept == NULL) {
        part.more = sbit__elem_at(l->dtype, l->more, rows * widest);
        part.cells = sbit__elem_at(l->dtype, l->cells, rows * h);
        part.ends = sbit__elem_at(l->dtype, l->ends, i * l->batch * h);
    }
    return part;
}

/* Gates and cells of a part, by the same sums as sbit LSTM's. */
static void sbit__lstm_gates(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d)
{
    const int64_t rows = l->count * l->batch, h = l->hidden, cell = l->batch * h;
    const void *w = sbit__lstm_in(call, SBIT__LSTM_W, d * 4 * h * l->input);
    const void *r = sbit__lstm_in(call, SBIT__LSTM_R, d * 4 * h * h);
    sbit__lstm_product of_x = sbit__lstm_product_of(rows, 4 * h, l->input, false, true);
    sbit__lstm_product of_h = sbit__lstm_product_of(rows, 4 * h, h, false, true);
    of_x.packed = l->packed_w;
    of_x.bias = l->bias;
    of_h.packed = l->packed_r;
    sbit__lstm_multiply(l, of_x, sbit__lstm_rows(l, call->in[SBIT__LSTM_X]), w, l->gates);
    sbit__lstm_multiply(l, of_h, sbit__lstm_states(call, l, d), r, l->more);
    sbit__lstm_task task = sbit__lstm_task_of(l);
    const bool single = l->dtype == SBIT_F32;
    const int64_t grain = sbit__div_up(SBIT__LSTM_GRAIN, sbit__larger(h, 1));
    sbit__parallel_range(l->ctx, l->batch, 1, single ? sbit__lstm_f32_gates : sbit__lstm_f64_gates,
                         &task);
    sbit__parallel_range(l->ctx, rows, grain, single ? sbit__lstm_f32_tops : sbit__lstm_f64_tops,
                         &task);
    sbit__elem_copy(l->dtype, l->ends, cell, l->cells, l->count * cell, cell);
}

/* What step t of a part reads. */
static sbit__lstm_step sbit__lstm_step_of(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d,
                                          int64_t t)
{
    const int64_t h = l->hidden, cell = l->batch * h, step = l->first + t;
    const int64_t at = sbit__lstm_time(l, step) * l->directions + d;
    sbit__lstm_step s;
    s.dg = sbit__elem_at(l->dtype, l->gates, t * 4 * cell);
    s.dy = sbit__lstm_in(call, SBIT__LSTM_DY, at * cell);
    if (l->kept != NULL) {
        const int64_t all = l->steps * l->directions * cell;
        const int64_t last = step > 0 ? sbit__lstm_time(l, step - 1) * l->directions + d : 0;
        s.gates = l->kept + at * 4 * cell;
        s.tops = l->kept + 5 * all + at * cell;
        s.cells = step > 0 ? l->kept + 4 * all + last * cell
                           : sbit__lstm_in(call, SBIT__LSTM_C0, d * cell);
    } else {
        s.gates = s.dg;
        s.tops = sbit__elem_at(l->dtype, l->more, t * cell);
        s.cells = sbit__elem_at(l->dtype, l->cells, t * cell);
    }
    return s;
}

/* The samples of block `index` back through the steps of a part. */
static void sbit__lstm_block(void *user, int64_t index, int32_t worker)
{
    const sbit__lstm_task *task = (const sbit__lstm_task *)user;
    const sbit__lstm_grad *l = task->l;
    const int64_t h = l->hidden;
    const int64_t begin = index * l->batch / l->blocks, end = (index + 1) * l->batch / l->blocks;
    const void *r = sbit__lstm_in(task->call, SBIT__LSTM_R, task->direction * 4 * h * h);
    sbit__lstm_product product = sbit__lstm_product_of(end - begin, h, 4 * h, false, false);
    product.packed = l->packed;
    product.serial = true;
    for (int64_t t = l->count - 1; t >= 0; t--) {
        const sbit__lstm_step step = sbit__lstm_step_of(task->call, l, task->direction, t);
        sbit__lstm_back_step(l, &step, begin, end);
        sbit__lstm_multiply_in(l, &product, sbit__elem_at_const(l->dtype, step.dg, begin * 4 * h), r,
                               sbit__elem_at(l->dtype, l->dh, begin * h),
                               (char *)l->gemm + (size_t)worker * l->gemm_bytes);
    }
}

/* The gradients of a part's gates; dh and dc go back through its steps. */
static void sbit__lstm_back(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d)
{
    sbit__lstm_task task = sbit__lstm_task_of(l);
    task.call = call;
    task.direction = d;
    sbit_ctx_parallel(l->ctx, l->blocks, sbit__lstm_block, &task);
}

static void sbit__lstm_add(const sbit__lstm_grad *l, int64_t n, const void *x, bool first, void *y)
{
    sbit__lstm_task task = sbit__lstm_task_of(l);
    task.x = x;
    task.y = y;
    task.first = first;
    sbit__parallel_range(l->ctx, n, 4 * SBIT__LSTM_GRAIN,
                         l->dtype == SBIT_F32 ? sbit__lstm_f32_add : sbit__lstm_f64_add, &task);
}

/* What a part gives to dR, dB, dW and dx; last: it is the first that does. */
static void sbit__lstm_results(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d,
                               bool last)
{
    const int64_t rows = l->count * l->batch, h = l->hidden;
    const void *w = sbit__lstm_in(call, SBIT__LSTM_W, d * 4 * h * l->input);
    void *dx = sbit__lstm_out(call, 0, 0), *dw = sbit__lstm_out(call, 1, d * 4 * h * l->input);
    void *dr = sbit__lstm_out(call, 2, d * 4 * h * h), *db = sbit__lstm_out(call, 3, d * 8 * h);
    sbit__lstm_product of_h = sbit__lstm_product_of(4 * h, h, rows, true, false);
    sbit__lstm_product of_x = sbit__lstm_product_of(4 * h, l->input, rows, true, false);
    sbit__lstm_product of_g = sbit__lstm_product_of(rows, l->input, 4 * h, false, false);
    if (dr != NULL) {
        sbit__lstm_multiply(l, of_h, l->gates, sbit__lstm_states(call, l, d), l->sum);
        sbit__lstm_add(l, 4 * h * h, l->sum, last, dr);
    }
    if (db != NULL) {
        sbit__lstm_task task = sbit__lstm_task_of(l);
        task.y = db;
        task.first = last;
        sbit__parallel_range(l->ctx, sbit__div_up(4 * h, SBIT__LSTM_COLUMNS), 1,
                             l->dtype == SBIT_F32 ? sbit__lstm_f32_bias : sbit__lstm_f64_bias,
                             &task);
    }
    if (dw != NULL) {
        sbit__lstm_multiply(l, of_x, l->gates, sbit__lstm_rows(l, call->in[SBIT__LSTM_X]), l->sum);
        sbit__lstm_add(l, 4 * h * l->input, l->sum, last, dw);
    }
    if (dx == NULL) {
        return;
    }
    if (!l->reverse) {
        sbit__lstm_multiply(l, of_g, l->gates, w,
                            sbit__elem_at(l->dtype, dx, l->first * l->batch * l->input));
        return;
    }
    sbit__lstm_multiply(l, of_g, l->gates, w, l->more);
    for (int64_t t = 0; t < l->count; t++) {
        const int64_t n = l->batch * l->input, to = sbit__lstm_time(l, l->first + t) * n;
        sbit__lstm_add(l, n, sbit__elem_at_const(l->dtype, l->more, t * n), d == 0,
                       sbit__elem_at(l->dtype, dx, to));
    }
}

/* Packed weights and the bias of a direction. */
static void sbit__lstm_begin(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d)
{
    const int64_t h = l->hidden;
    const void *w = sbit__lstm_in(call, SBIT__LSTM_W, d * 4 * h * l->input);
    const void *r = sbit__lstm_in(call, SBIT__LSTM_R, d * 4 * h * h);
    const void *b = sbit__lstm_in(call, SBIT__LSTM_B, d * 8 * h);
    if (l->packed != NULL) {
        sbit__gemm_pack_b(l->ctx, h, 4 * h, (const float *)r, h, false, 1.0f, l->packed);
    }
    if (l->packed_w != NULL) {
        sbit__gemm_pack_b(l->ctx, 4 * h, l->input, (const float *)w, l->input, true, 1.0f, l->packed_w);
    }
    if (l->packed_r != NULL) { /* also where x has no features */
        sbit__gemm_pack_b(l->ctx, 4 * h, h, (const float *)r, h, true, 1.0f, l->packed_r);
    }
    for (int64_t i = 0; l->kept == NULL && i < 4 * h; i++) {
        if (l->dtype == SBIT_F32) {
            const float *from = (const float *)b;
            ((float *)l->bias)[i] = from != NULL ? from[i] + from[4 * h + i] : 0.0f;
        } else {
            const double *from = (const double *)b;
            ((double *)l->bias)[i] = from != NULL ? from[i] + from[4 * h + i] : 0.0;
        }
    }
}

static void sbit__lstm_direction(const sbit_op_call *call, const sbit__lstm_grad *l, int64_t d)
{
    const int64_t parts = (l->steps + l->part - 1) / l->part, cell = l->batch * l->hidden;
    void *dh0 = sbit__lstm_out(call, 4, d * cell), *dc0 = sbit__lstm_out(call, 5, d * cell);
    sbit__lstm_begin(call, l, d);
    if (l->kept == NULL) {
        sbit__lstm_copy_or_zero(l, sbit__lstm_in(call, SBIT__LSTM_C0, d * cell), l->ends);
    }
    for (int64_t i = 0; l->kept == NULL && i < parts; i++) {
        const sbit__lstm_grad part = sbit__lstm_part(l, i);
        sbit__lstm_gates(call, &part, d);
    }
    sbit__lstm_copy_or_zero(l, sbit__lstm_in(call, SBIT__LSTM_DYH, d * cell), l->dh);
    sbit__lstm_copy_or_zero(l, sbit__lstm_in(call, SBIT__LSTM_DYC, d * cell), l->dc);
    for (int64_t i = parts; i-- > 0;) {
        const sbit__lstm_grad part = sbit__lstm_part(l, i);
        if (!l->whole && l->kept == NULL && i + 1 < parts) {
            sbit__lstm_gates(call, &part, d);
        }
        sbit__lstm_back(call, &part, d);
        sbit__lstm_results(call, &part, d, i + 1 == parts);
    }
    if (dh0 != NULL) {
        sbit__elem_copy(l->dtype, dh0, 0, l->dh, 0, cell);
    }
    if (dc0 != NULL) {
        sbit__elem_copy(l->dtype, dc0, 0, l->dc, 0, cell);
    }
}

/* Without steps or sequences weights have no gradient, and those of the states come through. */
static bool sbit__lstm_nothing(const sbit_op_call *call, const sbit__lstm_grad *l)
{
    const bool nothing = l->steps == 0 || l->batch == 0;
    for (int32_t i = 1; nothing && i < call->output_count; i++) {
        sbit_tensor *out = sbit__out(call, i);
        const sbit_tensor *from = i < 4 ? NULL : sbit__in(call, i == 4 ? SBIT__LSTM_DYH : SBIT__LSTM_DYC);
        if (out != NULL && from != NULL) {
            sbit__elem_copy(l->dtype, out->data, 0, from->data, 0, sbit_tensor_count(out));
        } else if (out != NULL) {
            sbit__elem_zero(l->dtype, out->data, 0, sbit_tensor_count(out));
        }
    }
    return nothing;
}

static sbit_status sbit__lstm_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__lstm_grad l;
    const char *direction = sbit_node_string(call->node, "direction", "forward");
    (void)error;
    sbit__lstm_place(call, &l, (char *)call->scratch);
    l.kept = (const float *)sbit__lstm_in(call, SBIT__LSTM_IN_KEPT, 0);
    const bool nothing = sbit__lstm_nothing(call, &l);
    for (int64_t d = 0; !nothing && d < l.directions; d++) {
        l.reverse = d == 1 || sbit__streq(direction, "reverse");
        sbit__lstm_direction(call, &l, d);
    }
    return SBIT_OK;
}

/* >>GRU: n = tanh(gn + r (h Rn^T + b)) if linear_before_reset, else tanh(gn + (r h) Rn^T + b);
 * y = (1 - z) n + z h. With `up` the gradient of y: dn = up (1 - z) (1 - n^2), dz = up (h - n) z (1
 * - z), dr = d(what r multiplies) r (1 - r), dh = up z + what comes through R. */

typedef struct sbit__gru_grad {
    sbit__lstm_grad l; /* context, sizes, `before`, `more`, memory of products */
    bool before_reset; /* linear_before_reset */
    void *x_gates,
        *h_gates; /* [rows][3h]: z, r, n and then their gradients; of h: those of R's part */
    void *reset;  /* [rows][h] r h, or h Rn^T + b */
    void *dh, *part, *room;
} sbit__gru_grad;

static size_t sbit__gru_place(const sbit_op_call *call, sbit__gru_grad *g, char *scratch)
{
    memset(g, 0, sizeof *g);
    sbit__lstm_place(call, &g->l, NULL);
    const int64_t rows = g->l.steps * g->l.batch, h = g->l.hidden, in = g->l.input;
    const size_t each = g->l.dtype == SBIT_F64 ? sizeof(double) : sizeof(float);
    const int64_t cell = g->l.batch * h;
    const int64_t counts[8] = {
        rows * 3 * h, rows * 3 * h, rows * h, rows * (in > 3 * h ? in : 3 * h),
        rows * h,     cell,         cell,     2 * cell};
    void **places[8];
    size_t used = 0, gemm = 0;
    places[0] = &g->x_gates;
    places[1] = &g->h_gates;
    places[2] = &g->reset;
    places[3] = &g->l.more;
    places[4] = &g->l.before;
    places[5] = &g->dh;
    places[6] = &g->part;
    places[7] = &g->room;
    for (int32_t i = 0; i < 8; i++) {
        *places[i] = scratch != NULL ? scratch + used : NULL;
        used += sbit__align64((size_t)counts[i] * each);
    }
    g->l.gemm = scratch != NULL ? scratch + used : NULL;
    const sbit__lstm_product all[11] = {sbit__lstm_product_of(rows, 3 * h, in, false, true),
                                        sbit__lstm_product_of(rows, 3 * h, h, false, true),
                                        sbit__lstm_product_of(rows, 2 * h, h, false, true),
                                        sbit__lstm_product_of(rows, h, h, false, true),
                                        sbit__lstm_product_of(g->l.batch, h, 3 * h, false, false),
                                        sbit__lstm_product_of(g->l.batch, h, 2 * h, false, false),
                                        sbit__lstm_product_of(g->l.batch, h, h, false, false),
                                        sbit__lstm_product_of(3 * h, in, rows, true, false),
                                        sbit__lstm_product_of(3 * h, h, rows, true, false),
                                        sbit__lstm_product_of(2 * h, h, rows, true, false),
                                        sbit__lstm_product_of(rows, in, 3 * h, false, false)};
    for (int32_t i = 0; g->l.dtype == SBIT_F32 && i < 11; i++) {
        const sbit__gemm one = sbit__lstm_gemm(&all[i]);
        const size_t bytes = sbit__gemm_scratch_bytes(call->ctx, &one);
        gemm = bytes > gemm ? bytes : gemm;
    }
    const sbit__lstm_product last = sbit__lstm_product_of(h, h, rows, true, false);
    const sbit__gemm one = sbit__lstm_gemm(&last);
    const size_t bytes = g->l.dtype == SBIT_F32 ? sbit__gemm_scratch_bytes(call->ctx, &one) : 0;
    return used + sbit__align64(bytes > gemm ? bytes : gemm);
}

static sbit_status sbit__gru_grad_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__gru_grad g;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (sbit__type_static(call->in_type[SBIT__LSTM_X]) &&
        sbit__type_static(call->in_type[SBIT__LSTM_R])) {
        *call->scratch_bytes = sbit__gru_place(call, &g, NULL);
    }
    return SBIT_OK;
}

/* One type. b: [6h] or NULL. gates: z and r of all rows, and r h; hidden: n. */
#define SBIT__GRU_STEPS(T, name)                                                                   \
    static void name##_gates(const sbit__gru_grad *g, const T *b, int64_t stride)                  \
    {                                                                                              \
        const int64_t h = g->l.hidden;                                                             \
        for (int64_t r = 0; r < g->l.steps * g->l.batch; r++) {                                    \
            T *x = (T *)g->x_gates + r * 3 * h;                                                    \
            const T *own = (const T *)g->h_gates + r * stride;                                     \
            const T *before = (const T *)g->l.before + r * h;                                      \
            T *reset = (T *)g->reset + r * h;                                                      \
            for (int64_t i = 0; i < 2 * h; i++) {                                                  \
                const T v = x[i] + own[i] + (b != NULL ? b[i] + b[3 * h + i] : (T)0);              \
                x[i] = (T)(1.0 / (1.0 + exp(-(double)v)));                                         \
            }                                                                                      \
            for (int64_t i = 0; i < h; i++) {                                                      \
                reset[i] = g->before_reset ? own[2 * h + i] + (b != NULL ? b[5 * h + i] : (T)0)    \
                                           : x[h + i] * before[i];                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_hidden(const sbit__gru_grad *g, const T *b)                                 \
    {                                                                                              \
        const int64_t h = g->l.hidden;                                                             \
        for (int64_t r = 0; r < g->l.steps * g->l.batch; r++) {                                    \
            T *x = (T *)g->x_gates + r * 3 * h;                                                    \
            for (int64_t i = 0; i < h; i++) {                                                      \
                const T own = g->before_reset ? x[h + i] * ((const T *)g->reset)[r * h + i]        \
                                              : ((const T *)g->l.more)[r * h + i] +                \
                                                    (b != NULL ? b[5 * h + i] : (T)0);             \
                const T v = x[2 * h + i] + (b != NULL ? b[2 * h + i] : (T)0) + own;                \
                x[2 * h + i] = (T)tanh((double)v);                                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* dz and dn of step t; room: dn; dh becomes up z */                                           \
    static void name##_outer(const sbit__gru_grad *g, int64_t t, const T *dy)                      \
    {                                                                                              \
        const int64_t h = g->l.hidden;                                                             \
        for (int64_t k = 0; k < g->l.batch; k++) {                                                 \
            const int64_t r = t * g->l.batch + k;                                                  \
            T *x = (T *)g->x_gates + r * 3 * h, *dh = (T *)g->dh + k * h;                          \
            for (int64_t i = 0; i < h; i++) {                                                      \
                const T z = x[i], n = x[2 * h + i];                                                \
                const T up = dh[i] + (dy != NULL ? dy[k * h + i] : (T)0);                          \
                x[i] = up * (((const T *)g->l.before)[r * h + i] - n) * z * ((T)1 - z);            \
                x[2 * h + i] = up * ((T)1 - z) * ((T)1 - n * n);                                   \
                ((T *)g->room)[k * h + i] = x[2 * h + i];                                          \
                dh[i] = up * z;                                                                    \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* dr of step t; part: the gradient of r h, if r is applied to h */                            \
    static void name##_inner(const sbit__gru_grad *g, int64_t t)                                   \
    {                                                                                              \
        const int64_t h = g->l.hidden;                                                             \
        for (int64_t k = 0; k < g->l.batch; k++) {                                                 \
            const int64_t r = t * g->l.batch + k;                                                  \
            T *x = (T *)g->x_gates + r * 3 * h, *own = (T *)g->h_gates + r * 3 * h;                \
            T *dh = (T *)g->dh + k * h, *pair = (T *)g->room + k * 2 * h;                          \
            for (int64_t i = 0; i < h; i++) {                                                      \
                const T reset = x[h + i], part = ((const T *)g->part)[k * h + i];                  \
                const T by = g->before_reset ? x[2 * h + i] * ((const T *)g->reset)[r * h + i]     \
                                             : part * ((const T *)g->l.before)[r * h + i];         \
                x[h + i] = by * reset * ((T)1 - reset);                                            \
                own[i] = x[i];                                                                     \
                own[h + i] = x[h + i];                                                             \
                own[2 * h + i] = g->before_reset ? x[2 * h + i] * reset : x[2 * h + i];            \
                dh[i] += g->before_reset ? (T)0 : part * reset;                                    \
            }                                                                                      \
            for (int64_t i = 0; i < 2 * h && !g->before_reset; i++) {                              \
                pair[i] = x[i];                                                                    \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_bias(const sbit__gru_grad *g, T *db)                                        \
    {                                                                                              \
        const int64_t width = 3 * g->l.hidden;                                                     \
        for (int64_t i = 0; i < 2 * width; i++) {                                                  \
            const T *from = (const T *)(i < width ? g->x_gates : g->h_gates) + i % width;          \
            double sum = 0.0;                                                                      \
            for (int64_t r = 0; r < g->l.steps * g->l.batch; r++) {                                \
                sum += (double)from[r * width];                                                    \
            }                                                                                      \
            db[i] = (T)sum;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void name##_columns(const sbit__gru_grad *g, const void *from, int64_t first,           \
                               int64_t count, void *to)                                            \
    {                                                                                              \
        const int64_t width = 3 * g->l.hidden;                                                     \
        for (int64_t r = 0; r < g->l.steps * g->l.batch; r++) {                                    \
            memcpy((T *)to + r * count, (const T *)from + r * width + first,                       \
                   (size_t)count * sizeof(T));                                                     \
        }                                                                                          \
    }                                                                                              \
    static void name##_plus(const sbit__gru_grad *g)                                               \
    {                                                                                              \
        for (int64_t i = 0; i < g->l.batch * g->l.hidden; i++) {                                   \
            ((T *)g->dh)[i] += ((const T *)g->part)[i];                                            \
        }                                                                                          \
    }

SBIT__GRU_STEPS(float, sbit__gru_f32)
SBIT__GRU_STEPS(double, sbit__gru_f64)
#undef SBIT__GRU_STEPS

#define SBIT__GRU_CALL(g, what, ...)                                                               \
    do {                                                                                           \
        if ((g)->l.dtype == SBIT_F32) {                                                            \
            sbit__gru_f32_##what(__VA_ARGS__);                                                     \
        } else {                                                                                   \
            sbit__gru_f64_##what(__VA_ARGS__);                                                     \
        }                                                                                          \
    } while (0)

static const void *sbit__gru_skip(const sbit__gru_grad *g, const void *data, int64_t count)
{
    return sbit__elem_at_const(g->l.dtype, data, count);
}

/* All gates, then their gradients in place of them. */
static void sbit__gru_gates(const sbit_op_call *call, const sbit__gru_grad *g, int64_t d)
{
    const int64_t rows = g->l.steps * g->l.batch, h = g->l.hidden, cell = g->l.batch * h;
    const void *w = sbit__lstm_in(call, SBIT__LSTM_W, d * 3 * h * g->l.input);
    const void *r = sbit__lstm_in(call, SBIT__LSTM_R, d * 3 * h * h);
    const void *rn = sbit__gru_skip(g, r, 2 * h * h);
    const void *b = sbit__lstm_in(call, SBIT__LSTM_B, d * 6 * h);
    const int64_t own = g->before_reset ? 3 * h : 2 * h;
    sbit__lstm_order(&g->l, call->in[SBIT__LSTM_X]->data, g->l.input, g->l.more);
    sbit__lstm_multiply(&g->l, sbit__lstm_product_of(rows, 3 * h, g->l.input, false, true),
                        g->l.more, w, g->x_gates);
    sbit__lstm_before(call, &g->l, d);
    sbit__lstm_multiply(&g->l, sbit__lstm_product_of(rows, own, h, false, true), g->l.before, r,
                        g->h_gates);
    if (g->l.dtype == SBIT_F32) {
        sbit__gru_f32_gates(g, (const float *)b, own);
    } else {
        sbit__gru_f64_gates(g, (const double *)b, own);
    }
    if (!g->before_reset) {
        sbit__lstm_multiply(&g->l, sbit__lstm_product_of(rows, h, h, false, true), g->reset, rn,
                            g->l.more);
    }
    if (g->l.dtype == SBIT_F32) {
        sbit__gru_f32_hidden(g, (const float *)b);
    } else {
        sbit__gru_f64_hidden(g, (const double *)b);
    }
    sbit__lstm_copy_or_zero(&g->l, sbit__lstm_in(call, SBIT__LSTM_DYH, d * cell), g->dh);
    for (int64_t t = g->l.steps - 1; t >= 0; t--) {
        const void *dy = sbit__lstm_in(call, SBIT__LSTM_DY,
                                       (sbit__lstm_time(&g->l, t) * g->l.directions + d) * cell);
        if (g->l.dtype == SBIT_F32) {
            sbit__gru_f32_outer(g, t, (const float *)dy);
        } else {
            sbit__gru_f64_outer(g, t, (const double *)dy);
        }
        if (!g->before_reset) { /* the gradient of r h */
            sbit__lstm_multiply(&g->l, sbit__lstm_product_of(g->l.batch, h, h, false, false),
                                g->room, rn, g->part);
        }
        SBIT__GRU_CALL(g, inner, g, t);
        sbit__lstm_multiply(&g->l, sbit__lstm_product_of(g->l.batch, h, own, false, false),
                            g->before_reset ? sbit__gru_skip(g, g->h_gates, t * g->l.batch * 3 * h)
                                            : g->room,
                            r, g->part);
        SBIT__GRU_CALL(g, plus, g);
    }
}

static void sbit__gru_weights(const sbit_op_call *call, const sbit__gru_grad *g, int64_t d)
{
    const int64_t rows = g->l.steps * g->l.batch, h = g->l.hidden;
    void *dw = sbit__lstm_out(call, 1, d * 3 * h * g->l.input);
    void *dr = sbit__lstm_out(call, 2, d * 3 * h * h), *db = sbit__lstm_out(call, 3, d * 6 * h);
    if (db != NULL && g->l.dtype == SBIT_F32) {
        sbit__gru_f32_bias(g, (float *)db);
    } else if (db != NULL) {
        sbit__gru_f64_bias(g, (double *)db);
    }
    if (dr != NULL && g->before_reset) {
        sbit__lstm_multiply(&g->l, sbit__lstm_product_of(3 * h, h, rows, true, false), g->h_gates,
                            g->l.before, dr);
    } else if (dr != NULL) {
        SBIT__GRU_CALL(g, columns, g, g->x_gates, 0, 2 * h, g->l.more);
        sbit__lstm_multiply(&g->l, sbit__lstm_product_of(2 * h, h, rows, true, false), g->l.more,
                            g->l.before, dr);
        SBIT__GRU_CALL(g, columns, g, g->x_gates, 2 * h, h, g->l.more);
        sbit__lstm_multiply(&g->l, sbit__lstm_product_of(h, h, rows, true, false), g->l.more,
                            g->reset, sbit__elem_at(g->l.dtype, dr, 2 * h * h));
    }
    if (dw != NULL) {
        sbit__lstm_order(&g->l, call->in[SBIT__LSTM_X]->data, g->l.input, g->l.more);
        sbit__lstm_multiply(&g->l, sbit__lstm_product_of(3 * h, g->l.input, rows, true, false),
                            g->x_gates, g->l.more, dw);
    }
}

#undef SBIT__GRU_CALL

static sbit_status sbit__gru_grad_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__gru_grad g;
    const char *direction = sbit_node_string(call->node, "direction", "forward");
    (void)error;
    sbit__gru_place(call, &g, (char *)call->scratch);
    g.before_reset = sbit_node_int(call->node, "linear_before_reset", 0) != 0;
    const bool nothing = sbit__lstm_nothing(call, &g.l);
    for (int64_t d = 0; !nothing && d < g.l.directions; d++) {
        const int64_t h = g.l.hidden, cell = g.l.batch * h, rows = g.l.steps * g.l.batch;
        const void *w = sbit__lstm_in(call, SBIT__LSTM_W, d * 3 * h * g.l.input);
        void *dx = sbit__lstm_out(call, 0, 0), *dh0 = sbit__lstm_out(call, 4, d * cell);
        g.l.reverse = d == 1 || sbit__streq(direction, "reverse");
        sbit__gru_gates(call, &g, d);
        sbit__gru_weights(call, &g, d);
        if (dh0 != NULL) {
            sbit__elem_copy(g.l.dtype, dh0, 0, g.dh, 0, cell);
        }
        if (dx == NULL) {
            continue;
        }
        sbit__lstm_multiply(&g.l, sbit__lstm_product_of(rows, g.l.input, 3 * h, false, false),
                            g.x_gates, w, g.l.more);
        for (int64_t t = 0; t < g.l.steps; t++) {
            const int64_t n = g.l.batch * g.l.input, to = sbit__lstm_time(&g.l, t) * n;
            sbit__lstm_add(&g.l, n, sbit__elem_at_const(g.l.dtype, g.l.more, t * n), d == 0,
                           sbit__elem_at(g.l.dtype, dx, to));
        }
    }
    return SBIT_OK;
}

static const sbit_op_row sbit__grad_recurrent_rows[] = {
    {SBIT__GRAD_DOMAIN, "LstmGrad", 1, SBIT__T_GRAD, 0, 0, sbit__lstm_grad_infer,
     sbit__lstm_grad_prepare, sbit__lstm_grad_run, NULL, NULL, NULL, NULL, NULL},
    {SBIT__GRAD_DOMAIN, "GruGrad", 1, SBIT__T_GRAD, 0, 0, sbit__lstm_grad_infer,
     sbit__gru_grad_prepare, sbit__gru_grad_run, NULL, NULL, NULL, NULL, NULL},
};

SBIT__FN const sbit_op_row *sbit__op_rows_grad_recurrent(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__grad_recurrent_rows);
    return sbit__grad_recurrent_rows;
}

#endif /* SPARSEBIT_NO_OPS_TRAINING */
