/* hqq.c: half-quadratic quantization of weights without data (Badri and Shaji 2023).
 * >>quantizer-hqq
 *
 * Looks for the grid with the least sum of |w - y|^p, p < 1: large errors of few weights count less
 * than small ones of many. In turns: the errors in steps, e = (w - y) / s, are shrunk to
 *     u = sign(e) * max(0, |e| - |e|^(p - 1) / beta)
 * and the grid is fitted to w - s u by least squares: on affine grids the zero point first, rounded
 * to an integer (DequantizeLinear takes no other), then the scale with that zero point. beta grows
 * by 1 % a turn. The best grid of all turns is kept, the observer's own among them.
 *
 * State: sbit__hqq_part[parts].
 */
#include "quantizers_private.h"

typedef struct sbit__hqq_part {
    double count, error, zero_sum, product_sum, square_sum; /* of a turn */
    double least;
    float scale, best_scale;
    int32_t zero, best_zero;
} sbit__hqq_part;

static const sbit_key sbit__hqq_keys[] = {
    {"HQQ.ITERATIONS", SBIT_KEY_INT, "20", 1.0, 1000.0, NULL, "turns of hqq"},
    {"HQQ.P", SBIT_KEY_FLOAT, "0.7", 0.1, 1.0, NULL, "power of the error that hqq sums"},
};

static size_t sbit__hqq_state_bytes(const sbit_quantizer_call *call)
{
    return (size_t)call->grid->parts.count * sizeof(sbit__hqq_part);
}

static double sbit__hqq_integer(const sbit_grid *grid, float x, float scale, int32_t zero)
{
    const double q = (double)(nearbyintf(x / scale) + (float)zero);
    return q < (double)grid->qmin   ? (double)grid->qmin
           : q > (double)grid->qmax ? (double)grid->qmax
                                    : q;
}

/* w - s u in steps of the grid, for the integer q of w. */
static double sbit__hqq_target(double w, double scale, double offset, double power, double beta)
{
    const double e = w / scale - offset;
    const double size = fabs(e);
    double left = size > 0.0 ? size - pow(size, power - 1.0) / beta : 0.0;
    left = left > 0.0 ? left : 0.0;
    return w / scale - (e < 0.0 ? -left : left);
}

/* Errors of the grid, and the sums for a better zero point. */
static void sbit__hqq_measure(sbit__hqq_part *parts, const sbit_grid *grid,
                              const sbit_observation *x, double power, double beta)
{
    sbit_runs runs = sbit_runs_of(&x->parts);
    while (sbit_runs_next(&runs)) {
        sbit__hqq_part *p = &parts[runs.part];
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double w = (double)x->data[i], s = (double)p->scale;
            const double q = sbit__hqq_integer(grid, x->data[i], p->scale, p->zero);
            const double offset = q - (double)p->zero;
            p->error += pow(fabs(w - offset * s), power);
            p->zero_sum += q - sbit__hqq_target(w, s, offset, power, beta);
            p->count += 1.0;
        }
    }
}

/* Sums for the scale, with the new zero point and the integers of the old grid. */
static void sbit__hqq_fit(sbit__hqq_part *parts, const sbit_grid *grid, const sbit_observation *x,
                          double power, double beta)
{
    sbit_runs runs = sbit_runs_of(&x->parts);
    while (sbit_runs_next(&runs)) {
        sbit__hqq_part *p = &parts[runs.part];
        for (int64_t i = runs.at; i < runs.at + runs.count; i++) {
            const double w = (double)x->data[i], s = (double)p->scale;
            const double q = sbit__hqq_integer(grid, x->data[i], p->scale, p->zero);
            const double offset = q - (double)p->zero;
            const double target = s * sbit__hqq_target(w, s, offset, power, beta);
            p->product_sum += offset * target;
            p->square_sum += offset * offset;
        }
    }
}

static void sbit__hqq_keep_best(sbit__hqq_part *p, bool first)
{
    if (first || p->error < p->least) {
        p->least = p->error;
        p->best_scale = p->scale;
        p->best_zero = p->zero;
    }
}

static sbit_status sbit__hqq_init(void *state, const sbit_quantizer_call *call,
                                  const sbit_observation *x, sbit_error *error)
{
    const sbit_grid *grid = call->grid;
    const int64_t parts = grid->parts.count;
    const int64_t turns = sbit_options_int(call->options, "QUANTIZER.HQQ.ITERATIONS");
    const double power = sbit_options_float(call->options, "QUANTIZER.HQQ.P");
    sbit__hqq_part *all = (sbit__hqq_part *)state;
    double beta = 10.0;
    (void)error;
    for (int64_t p = 0; p < parts; p++) {
        all[p].scale = call->scale[p];
        all[p].zero = call->zero_point[p];
    }
    for (int64_t turn = 0; turn <= turns; turn++, beta *= 1.01) {
        for (int64_t p = 0; p < parts; p++) {
            all[p].error = all[p].zero_sum = all[p].count = 0.0;
            all[p].product_sum = all[p].square_sum = 0.0;
        }
        sbit__hqq_measure(all, grid, x, power, beta);
        for (int64_t p = 0; p < parts; p++) {
            sbit__hqq_keep_best(&all[p], turn == 0);
            if (!grid->symmetric) {
                const double zero = nearbyint(all[p].zero_sum / all[p].count); /* empty: NaN */
                all[p].zero = !(zero > (double)grid->qmin) ? grid->qmin
                              : zero > (double)grid->qmax  ? grid->qmax
                                                           : (int32_t)zero;
            }
        }
        sbit__hqq_fit(all, grid, x, power, beta);
        for (int64_t p = 0; p < parts && !grid->power_of_two; p++) {
            const double scale =
                all[p].square_sum > 0.0 ? all[p].product_sum / all[p].square_sum : 0.0;
            all[p].scale = scale > (double)FLT_MIN ? (float)scale : all[p].scale;
        }
    }
    for (int64_t p = 0; p < parts; p++) {
        call->scale[p] = all[p].best_scale;
        call->zero_point[p] = all[p].best_zero;
    }
    return SBIT_OK;
}

SBIT__FN const sbit_quantizer_row *sbit__quantizer_hqq(void)
{
    static const sbit_quantizer_row row = {
        {"hqq", "half-quadratic: the grid whose large errors are few", SBIT_TARGET_WEIGHT,
         sbit__hqq_keys, SBIT__COUNT_OF(sbit__hqq_keys)},
        sbit__hqq_state_bytes,
        NULL,
        NULL,
        NULL,
        sbit__hqq_init,
        sbit__straight_row_forward,
        sbit__straight_row_backward,
        NULL,
        NULL,
        NULL,
        NULL,
    };
    return &row;
}
