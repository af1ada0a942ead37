/* admm.c: elements go while the others make up for them, by alternating directions. >>sparser-admm
 *
 * Boyd et al. 2011; for one layer at a time, on what it reads: Boza 2024. With H = sum x x^T, damped and
 * scaled to a diagonal of ones, W0 the weights:
 *     Z = W + U without its smallest elements      as many as the ratio says, fewer at first
 *     U = U + W - Z
 *     W = (H + rho I)^-1 (H W0 + rho (Z - U))      what is nearest to W0 on the data, and to Z
 * Over the last third of the iterations what goes is fixed. Z is the result. float64 throughout.
 */
#include "sparsers_private.h"

#include <string.h> /* memset */

static const sbit_key sbit__admm_keys[] = {
    {"ADMM.ITERATIONS", SBIT_KEY_INT, "30", 3, 1000, NULL, "STRATEGY admm"},
    {"ADMM.RHO", SBIT_KEY_FLOAT, "1.0", 1e-6, 1e6, NULL,
     "STRATEGY admm: pull towards what is pruned, in mean squares of the inputs"},
};

typedef struct sbit__admm {
    int64_t rows, columns;
    double rho;
    double *factor;                 /* of H + rho I */
    double *w, *u, *z, *fixed, *by; /* rows x columns; fixed: H W0; by: what is ranked */
    double *scale, *lanes;          /* of every column; [columns][SBIT__SOLVE_LANES] */
    int64_t *order;
    uint8_t *keep, *may; /* may: was kept before */
} sbit__admm;

static bool sbit__admm_memory(sbit__admm *a, sbit__arena *arena)
{
    const size_t size = (size_t)(a->rows * a->columns) + 1;
    double **const arrays[] = {&a->w, &a->u, &a->z, &a->fixed, &a->by};
    for (size_t i = 0; i < SBIT__COUNT_OF(arrays); i++) {
        *arrays[i] = (double *)sbit__arena_array(arena, size, sizeof(double));
        if (*arrays[i] == NULL) {
            return false;
        }
    }
    a->factor = (double *)sbit__arena_array(arena, (size_t)(a->columns * a->columns) + 1, sizeof(double));
    a->scale = (double *)sbit__arena_array(arena, (size_t)a->columns * (1 + SBIT__SOLVE_LANES) + 1, sizeof(double));
    a->order = (int64_t *)sbit__arena_array(arena, size, sizeof(int64_t));
    a->keep = (uint8_t *)sbit__arena_array(arena, size, 1);
    a->may = (uint8_t *)sbit__arena_array(arena, size, 1);
    a->lanes = a->scale != NULL ? a->scale + a->columns : NULL;
    return a->factor != NULL && a->scale != NULL && a->order != NULL && a->keep != NULL && a->may != NULL;
}

/* Scales H and the weights, H W0, the factor; false: not finite. */
static bool sbit__admm_begin(sbit__admm *a, double *h)
{
    const int64_t n = a->columns;
    for (int64_t c = 0; c < n; c++) {
        a->scale[c] = sqrt(h[c * n + c]);
    }
    for (int64_t i = 0; i < n * n; i++) {
        h[i] /= a->scale[i / n] * a->scale[i % n];
        a->factor[i] = h[i] + (i / n == i % n ? a->rho : 0.0);
    }
    for (int64_t r = 0; r < a->rows; r++) {
        double *w = a->w + r * n;
        for (int64_t c = 0; c < n; c++) {
            w[c] *= a->scale[c];
        }
        for (int64_t c = 0; c < n; c++) {
            double sum = 0.0;
            for (int64_t k = 0; k < n; k++) {
                sum += h[c * n + k] * w[k];
            }
            a->fixed[r * n + c] = sum;
        }
    }
    return sbit__cholesky(a->factor, n);
}

/* What goes: the smallest of W + U, of the layer or of every m neighbours. */
static void sbit__admm_choose(sbit__admm *a, double ratio, const int64_t *n_of_m)
{
    const int64_t n = a->columns, all = a->rows * n, m = n_of_m[1] > 0 ? n_of_m[1] : all;
    for (int64_t i = 0; i < all; i++) {
        const double v = a->w[i] + a->u[i];
        a->by[i] = a->may[i] != 0 ? v * v : -1.0; /* what is gone already goes first */
        a->keep[i] = a->may[i];
    }
    for (int64_t first = 0; first < all;) {
        const int64_t left = n_of_m[1] > 0 ? n - first % n : all, width = left < m ? left : m;
        const int64_t full = n_of_m[1] > 0 ? n_of_m[0] - (m - width)
                                           : (int64_t)floor(ratio * (double)all + 1e-9);
        sbit__smallest(a->by + first, width, full > 0 ? full : 0, a->order);
        for (int64_t i = 0; i < full; i++) {
            a->keep[first + a->order[i]] = 0;
        }
        first += width;
    }
}

static void sbit__admm_solve(sbit__admm *a)
{
    const int64_t n = a->columns;
    for (int64_t r = 0; r < a->rows; r += SBIT__SOLVE_LANES) {
        for (int64_t i = 0; i < n * SBIT__SOLVE_LANES; i++) {
            const int64_t row = r + i % SBIT__SOLVE_LANES;
            a->lanes[i] = row < a->rows ? a->w[row * n + i / SBIT__SOLVE_LANES] : 0.0;
        }
        sbit__cholesky_solve(a->factor, n, a->lanes);
        for (int64_t i = 0; i < n * SBIT__SOLVE_LANES; i++) {
            const int64_t row = r + i % SBIT__SOLVE_LANES;
            if (row < a->rows) {
                a->w[row * n + i / SBIT__SOLVE_LANES] = a->lanes[i];
            }
        }
    }
}

static void sbit__admm_turn(sbit__admm *a)
{
    const int64_t n = a->columns;
    for (int64_t r = 0; r < a->rows; r++) {
        double *w = a->w + r * n;
        for (int64_t c = 0; c < n; c++) {
            const int64_t i = r * n + c;
            a->z[i] = a->keep[i] != 0 ? w[c] + a->u[i] : 0.0;
            a->u[i] += w[c] - a->z[i];
            w[c] = a->fixed[i] + a->rho * (a->z[i] - a->u[i]);
        }
    }
    sbit__admm_solve(a);
}

static sbit_status sbit__admm_update(void *state, const sbit_sparser_call *call, double ratio,
                                     const int64_t *n_of_m, float *weight, uint8_t *keep,
                                     sbit_error *error)
{
    const int64_t turns = sbit_options_int(call->options, "ADMM.ITERATIONS");
    sbit__arena arena;
    sbit__admm a;
    sbit_status status = SBIT_OK;
    memset(&a, 0, sizeof a);
    sbit__arena_init(&arena, sbit_ctx_allocator(call->ctx));
    a.rows = call->weight.dims[call->out_axis];
    a.columns = sbit__gpt_columns(call);
    a.rho = sbit_options_float(call->options, "ADMM.RHO");
    if (!sbit__admm_memory(&a, &arena)) {
        status = sbit__fail_oom(error, (size_t)(a.rows * a.columns) * sizeof(double));
    }
    for (int64_t i = 0; status == SBIT_OK && i < a.rows * a.columns; i++) {
        const int64_t at = sbit__gpt_at(call, i / a.columns, i % a.columns);
        a.w[i] = (double)weight[at];
        a.may[i] = keep[at];
    }
    if (status == SBIT_OK) {
        sbit__gpt_complete((double *)state, a.columns);
        status = sbit__admm_begin(&a, (double *)state)
                     ? SBIT_OK
                     : sbit__fail(error, SBIT_ERR_NUMERIC, call->name,
                                  "admm: the inputs of '%s' are not finite", call->name);
    }
    for (int64_t turn = 0; status == SBIT_OK && turn < turns; turn++) {
        const double left = 1.0 - 2.0 * (double)(turn + 1) / (double)turns; /* all of it at half time */
        if (turn < turns - turns / 3) {
            sbit__admm_choose(&a, left > 0.0 ? ratio * (1.0 - left * left * left) : ratio, n_of_m);
        }
        sbit__admm_turn(&a);
    }
    for (int64_t i = 0; status == SBIT_OK && i < a.rows * a.columns; i++) {
        const int64_t at = sbit__gpt_at(call, i / a.columns, i % a.columns);
        weight[at] = (float)(a.z[i] / a.scale[i % a.columns]);
        keep[at] = a.keep[i];
    }
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN const sbit_sparser_row *sbit__sparser_admm(void)
{
    static const sbit_sparser_row row = {
        {"admm", "as sparsegpt, by alternating directions: slower, nearer", 0, sbit__admm_keys,
         SBIT__COUNT_OF(sbit__admm_keys)},
        SBIT_NEEDS_INPUT,
        SBIT_GRANULARITY_ELEMENT,
        0,
        sbit__gpt_bytes,
        sbit__gpt_observe,
        sbit__gpt_score,
        sbit__admm_update,
        NULL};
    return &row;
}
