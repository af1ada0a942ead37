/* schedules.c: how the sparsity grows over training or iterations. >>sparsity-schedules
 *
 *     constant  all at once                       lottery  1 - (1 - to)^(t/T): equal shares of what
 *     linear    from + t/T (to - from)                     is left in every round
 *     agp       to + (from - to) (1 - t/T)^3      cubic    agp between BEGIN and END of the steps
 *     lambda    to times a factor of LAMBDA.FACTORS, which lie at equal distances over the steps
 *               (torch's LambdaSL; a function in C is a row of one's own: sbit_sparsity_register)
 * Steps run from 0 to `total`; at `total` the sparsity is `to` (lambda: times the last factor). (Zhu and Gupta 2017: agp.)
 */
#include "sparsers_private.h"

static double sbit__schedule_part(int64_t step, int64_t total)
{
    return total <= 0 || step >= total ? 1.0 : step <= 0 ? 0.0 : (double)step / (double)total;
}

static double sbit__schedule_constant(const sbit_options *options, int64_t step, int64_t total,
                                      double from, double to)
{
    (void)options;
    (void)step;
    (void)total;
    (void)from;
    return to;
}

static double sbit__schedule_linear(const sbit_options *options, int64_t step, int64_t total,
                                    double from, double to)
{
    (void)options;
    return from + sbit__schedule_part(step, total) * (to - from);
}

static double sbit__schedule_agp(const sbit_options *options, int64_t step, int64_t total,
                                 double from, double to)
{
    const double left = 1.0 - sbit__schedule_part(step, total);
    (void)options;
    return to + (from - to) * left * left * left;
}

static double sbit__schedule_lottery(const sbit_options *options, int64_t step, int64_t total,
                                     double from, double to)
{
    const double part = sbit__schedule_part(step, total);
    (void)options;
    return part >= 1.0 ? to : 1.0 - (1.0 - from) * pow((1.0 - to) / (1.0 - from), part);
}

static double sbit__schedule_cubic(const sbit_options *options, int64_t step, int64_t total,
                                   double from, double to)
{
    const double begin = sbit_options_float(options, "CUBIC.BEGIN") * (double)total;
    const double end = sbit_options_float(options, "CUBIC.END") * (double)total;
    const double part = end > begin           ? ((double)step - begin) / (end - begin)
                        : (double)step >= end ? 1.0
                                              : 0.0;
    const double left = part <= 0.0 ? 1.0 : part >= 1.0 ? 0.0 : 1.0 - part;
    return to + (from - to) * left * left * left;
}

static double sbit__schedule_lambda(const sbit_options *options, int64_t step, int64_t total,
                                    double from, double to)
{
    const sbit_option *factors = sbit_options_find(options, "LAMBDA.FACTORS");
    const double at = sbit__schedule_part(step, total) * (double)(factors->list_count - 1);
    double a = 1.0, b = 1.0;
    (void)from;
    if (factors->list_count == 0) {
        return to;
    }
    const size_t i = (size_t)at;
    sbit__parse_f64(factors->list[i], &a); /* numbers: sconfig has checked them */
    sbit__parse_f64(factors->list[i + 1 < factors->list_count ? i + 1 : i], &b);
    const double out = to * (a + (at - (double)i) * (b - a));
    return out < 0.0 ? 0.0 : out > 1.0 ? 1.0 : out;
}

static const sbit_key sbit__lambda_keys[] = {
    {"LAMBDA.FACTORS", SBIT_KEY_STRINGS, "", 0, 0, NULL,
     "SCHEDULE lambda: [0, 0.5, 1]: of RATIO, at equal distances from the first step to the last"},
};

static const sbit_key sbit__cubic_keys[] = {
    {"CUBIC.BEGIN", SBIT_KEY_FLOAT, "0.0", 0.0, 1.0, NULL, "part of the steps before it grows"},
    {"CUBIC.END", SBIT_KEY_FLOAT, "1.0", 0.0, 1.0, NULL, "part of the steps where it is complete"},
};

static const sbit_sparsity_row sbit__sparsity_rows[] = {
    {{"constant", "all at once", 0, NULL, 0}, sbit__schedule_constant},
    {{"linear", "the same share in every step", 0, NULL, 0}, sbit__schedule_linear},
    {{"agp", "fast first, slowly at the end (cubic)", 0, NULL, 0}, sbit__schedule_agp},
    {{"lottery", "the same share of what is left", 0, NULL, 0}, sbit__schedule_lottery},
    {{"cubic", "agp within a part of the steps", 0, sbit__cubic_keys,
      SBIT__COUNT_OF(sbit__cubic_keys)},
     sbit__schedule_cubic},
    {{"lambda", "RATIO times factors that are listed", 0, sbit__lambda_keys,
      SBIT__COUNT_OF(sbit__lambda_keys)},
     sbit__schedule_lambda},
};

SPARSEBIT_API const sbit_sparsity_row *sbit_sparsity_at(size_t index)
{
    return index < SBIT__COUNT_OF(sbit__sparsity_rows) ? &sbit__sparsity_rows[index] : NULL;
}

static const sbit_head *sbit__sparsity_head(size_t index)
{
    return (const sbit_head *)sbit_sparsity_at(index); /* the first member */
}

SBIT__FN const sbit__kind *sbit__kind_sparsity(void)
{
    static const sbit__kind kind = {"sparsity schedule", sbit__sparsity_head};
    return &kind;
}

SPARSEBIT_API const sbit_sparsity_row *sbit_sparsity_find(const sbit_ctx *ctx, const char *name)
{
    return (const sbit_sparsity_row *)(const void *)sbit__row_find(ctx, sbit__kind_sparsity(),
                                                                   name);
}

SPARSEBIT_API sbit_status sbit_sparsity_register(sbit_ctx *ctx, const sbit_sparsity_row *row,
                                                 sbit_error *error)
{
    return sbit__row_register(ctx, sbit__kind_sparsity(), (const sbit_head *)row,
                              row != NULL && row->at != NULL, error);
}
