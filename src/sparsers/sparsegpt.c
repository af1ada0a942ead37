/* sparsegpt.c: elements go where the others can make up for them. >>sparser-sparsegpt
 *
 * Frantar and Alistarh 2023. With H = sum x x^T over the layer's inputs, damped, and U the upper
 * Cholesky factor of its inverse: column by column, what is set to zero leaves an error w /
 * U[i][i], which the columns behind take up along row i of U. Within blocks of 128 columns the
 * elements with the smallest (w / U[i][i])^2 go. Matrix products and 1x1 convolutions; float64
 * throughout.
 */
#include "sparsers_private.h"

#include <string.h> /* memset */

#define SBIT__GPT_BLOCK 128

SBIT__FN int64_t sbit__gpt_columns(const sbit_sparser_call *call)
{
    return call->in_axis >= 0 ? call->weight.dims[call->in_axis] : 0;
}

SBIT__FN size_t sbit__gpt_bytes(const sbit_sparser_call *call)
{
    const size_t n = (size_t)sbit__gpt_columns(call);
    return n * n * sizeof(double) + 16;
}

/* H += x x^T for each position; only the upper half. */
SBIT__FN sbit_status sbit__gpt_observe(void *state, const sbit_sparser_call *call,
                                       const sbit_sparser_sample *sample, sbit_error *error)
{
    const sbit_tensor *t = &sample->tensor;
    const int64_t n = sbit__gpt_columns(call);
    double *h = (double *)state;
    int64_t inner = 1, count = sbit_tensor_count(t);
    for (int32_t i = sample->axis + 1; i < t->rank; i++) {
        inner *= t->dims[i];
    }
    if (t->dims[sample->axis] != n || n == 0 ||
        sbit_tensor_count(&call->weight) != n * call->weight.dims[call->out_axis]) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, call->name,
                          "it prunes matrix products and 1x1 convolutions; '%s' is neither",
                          call->name);
    }
    if (sample->samples >= 0 && sample->axis > 0) {
        count = count / t->dims[0] * sample->samples;
    }
    for (int64_t p = 0; p < count / n; p++) {
        const float *x = (const float *)t->data + p / inner * n * inner + p % inner;
        for (int64_t i = 0; i < n; i++) {
            const double xi = (double)x[i * inner];
            for (int64_t k = i; k < n && xi != 0.0; k++) {
                h[i * n + k] += xi * (double)x[k * inner];
            }
        }
    }
    return SBIT_OK;
}

/* Of h, symmetric and positive, the upper factor U of its inverse: inverse = U^T U. `m` is scratch.
 */
static bool sbit__gpt_factor(double *h, double *m, int64_t n)
{
    if (!sbit__cholesky(h, n)) {
        return false;
    }
    for (int64_t c = 0; c < n; c++) { /* m = L^-1, lower */
        for (int64_t r = 0; r < n; r++) {
            double sum = r == c ? 1.0 : 0.0;
            for (int64_t p = c; p < r; p++) {
                sum -= h[r * n + p] * m[p * n + c];
            }
            m[r * n + c] = r < c ? 0.0 : sum / h[r * n + r];
        }
    }
    for (int64_t i = 0; i < n; i++) { /* h = L^-T L^-1 = the inverse */
        for (int64_t k = 0; k <= i; k++) {
            double sum = 0.0;
            for (int64_t p = i; p < n; p++) {
                sum += m[p * n + i] * m[p * n + k];
            }
            h[i * n + k] = h[k * n + i] = sum;
        }
    }
    if (!sbit__cholesky(h, n)) {
        return false;
    }
    for (int64_t i = 0; i < n; i++) { /* U = L^T */
        for (int64_t k = 0; k < i; k++) {
            h[k * n + i] = h[i * n + k];
            h[i * n + k] = 0.0;
        }
    }
    return true;
}

typedef struct sbit__gpt {
    const sbit_sparser_call *call;
    const double *u;
    double *w; /* rows x columns */
    int64_t rows, columns;
    uint8_t *keep; /* likewise */
    double *scores;
    int64_t *order;
} sbit__gpt;

/* What is gone already goes first. */
static double sbit__gpt_worth(const sbit__gpt *g, int64_t r, int64_t c)
{
    if (g->keep[r * g->columns + c] == 0) {
        return -1.0;
    }
    const double x = g->w[r * g->columns + c] / g->u[c * g->columns + c];
    return x * x;
}

static void sbit__gpt_sift(const double *scores, int64_t *order, int64_t root, int64_t n)
{
    for (int64_t child; (child = 2 * root + 1) < n; root = child) {
        child += child + 1 < n && scores[order[child + 1]] > scores[order[child]] ? 1 : 0;
        if (scores[order[root]] >= scores[order[child]]) {
            return;
        }
        const int64_t t = order[root];
        order[root] = order[child];
        order[child] = t;
    }
}

SBIT__FN void sbit__smallest(const double *scores, int64_t n, int64_t gone, int64_t *order)
{
    for (int64_t i = 0; i < gone; i++) { /* a heap of the smallest so far, the largest on top */
        order[i] = i;
    }
    for (int64_t i = gone / 2; i-- > 0;) {
        sbit__gpt_sift(scores, order, i, gone);
    }
    for (int64_t i = gone; i < n && gone > 0; i++) {
        if (scores[i] < scores[order[0]]) {
            order[0] = i;
            sbit__gpt_sift(scores, order, 0, gone);
        }
    }
}

static void sbit__gpt_choose_block(sbit__gpt *g, int64_t first, int64_t end, double ratio)
{
    const int64_t width = end - first, n = g->rows * width;
    const int64_t gone = (int64_t)floor(ratio * (double)n + 1e-9);
    for (int64_t i = 0; i < n; i++) {
        g->scores[i] = sbit__gpt_worth(g, i / width, first + i % width);
    }
    sbit__smallest(g->scores, n, gone, g->order);
    for (int64_t i = 0; i < gone; i++) {
        g->keep[g->order[i] / width * g->columns + first + g->order[i] % width] = 0;
    }
}

static void sbit__gpt_choose_n_of_m(sbit__gpt *g, int64_t first, const int64_t *n_of_m)
{
    const int64_t end = first + n_of_m[1] < g->columns ? first + n_of_m[1] : g->columns;
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t gone = n_of_m[0] - (n_of_m[1] - (end - first));
        for (int64_t c = first; c < end; c++) {
            gone -= g->keep[r * g->columns + c] == 0 ? 1 : 0;
        }
        for (; gone > 0; gone--) {
            int64_t least = -1;
            for (int64_t c = first; c < end; c++) {
                if (g->keep[r * g->columns + c] != 0 &&
                    (least < 0 || sbit__gpt_worth(g, r, c) < sbit__gpt_worth(g, r, least))) {
                    least = c;
                }
            }
            g->keep[r * g->columns + least] = 0;
        }
    }
}

static void sbit__gpt_prune(sbit__gpt *g, double ratio, const int64_t *n_of_m)
{
    for (int64_t c = 0; c < g->columns; c++) {
        if (n_of_m[1] > 0 && c % n_of_m[1] == 0) {
            sbit__gpt_choose_n_of_m(g, c, n_of_m);
        } else if (n_of_m[1] == 0 && c % SBIT__GPT_BLOCK == 0) {
            const int64_t end = c + SBIT__GPT_BLOCK < g->columns ? c + SBIT__GPT_BLOCK : g->columns;
            sbit__gpt_choose_block(g, c, end, ratio);
        }
        const double *u = g->u + c * g->columns;
        for (int64_t r = 0; r < g->rows; r++) {
            double *w = g->w + r * g->columns;
            if (g->keep[r * g->columns + c] == 0) {
                const double off = w[c] / u[c];
                for (int64_t k = c + 1; k < g->columns; k++) {
                    w[k] -= off * u[k];
                }
                w[c] = 0.0;
            }
        }
    }
}

/* Where element (r, c) lies in the weight. */
SBIT__FN int64_t sbit__gpt_at(const sbit_sparser_call *call, int64_t r, int64_t c)
{
    const int64_t columns = sbit__gpt_columns(call);
    return call->out_axis < call->in_axis ? r * columns + c
                                          : c * call->weight.dims[call->out_axis] + r;
}

/* Upper half to both, dead columns out, damped by 1 % of the mean. */
SBIT__FN void sbit__gpt_complete(double *h, int64_t n)
{
    double mean = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mean += h[i * n + i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++) {
            h[i * n + k] = h[k * n + i];
        }
        h[i * n + i] += mean > 0.0 ? 0.01 * mean : 1.0;
    }
}

static sbit_status sbit__gpt_update(void *state, const sbit_sparser_call *call, double ratio,
                                    const int64_t *n_of_m, float *weight, uint8_t *keep,
                                    sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(call->ctx);
    sbit__gpt g;
    sbit__arena arena;
    sbit_status status = SBIT_OK;
    memset(&g, 0, sizeof g);
    sbit__arena_init(&arena, a);
    g.call = call;
    g.rows = call->weight.dims[call->out_axis];
    g.columns = sbit__gpt_columns(call);
    const size_t size = (size_t)(g.rows * g.columns), square = (size_t)(g.columns * g.columns);
    double *m = (double *)sbit__arena_array(&arena, square + 1, sizeof *m);
    g.w = (double *)sbit__arena_array(&arena, size + 1, sizeof *g.w);
    g.scores = (double *)sbit__arena_array(&arena, size + 1, sizeof *g.scores);
    g.order = (int64_t *)sbit__arena_array(&arena, size + 1, sizeof *g.order);
    g.keep = (uint8_t *)sbit__arena_array(&arena, size + 1, 1);
    if (m == NULL || g.w == NULL || g.scores == NULL || g.order == NULL || g.keep == NULL) {
        status = sbit__fail_oom(error, square * sizeof *m);
    } else {
        sbit__gpt_complete((double *)state, g.columns);
        status = sbit__gpt_factor((double *)state, m, g.columns)
                     ? SBIT_OK
                     : sbit__fail(error, SBIT_ERR_NUMERIC, call->name,
                                  "sparsegpt: the inputs of '%s' are not finite", call->name);
    }
    for (int64_t i = 0; status == SBIT_OK && i < g.rows * g.columns; i++) {
        const int64_t at = sbit__gpt_at(call, i / g.columns, i % g.columns);
        g.w[i] = (double)weight[at];
        g.keep[i] = keep[at];
    }
    if (status == SBIT_OK) {
        g.u = (const double *)state;
        sbit__gpt_prune(&g, ratio, n_of_m);
    }
    for (int64_t i = 0; status == SBIT_OK && i < g.rows * g.columns; i++) {
        const int64_t at = sbit__gpt_at(call, i / g.columns, i % g.columns);
        weight[at] = (float)g.w[i];
        keep[at] = g.keep[i];
    }
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN sbit_status sbit__gpt_score(const void *state, const sbit_sparser_call *call,
                                     double *score, sbit_error *error)
{
    (void)state; /* update chooses by itself */
    (void)error;
    memset(score, 0, (size_t)call->units->count * sizeof *score);
    return SBIT_OK;
}

SBIT__FN const sbit_sparser_row *sbit__sparser_sparsegpt(void)
{
    static const sbit_sparser_row row = {
        {"sparsegpt", "what the other elements of a row can make up for; they are changed", 0, NULL,
         0},
        SBIT_NEEDS_INPUT,
        SBIT_GRANULARITY_ELEMENT,
        0,
        sbit__gpt_bytes,
        sbit__gpt_observe,
        sbit__gpt_score,
        sbit__gpt_update,
        NULL};
    return &row;
}
#undef SBIT__GPT_BLOCK
