/* sparsers_private.h: the built-in sparsers.
 *
 * Called by: sparse. A new sparser: its functions and one row in a file of this folder, one line in
 * SBIT__SPARSERS, one test row.
 */
#ifndef SBIT_SPARSERS_PRIVATE_H
#define SBIT_SPARSERS_PRIVATE_H

#include "../config/config_private.h"
#include "sparsers_api.h"

#include <math.h> /* sqrt, fabs, erf, exp, pow */

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__SPARSERS(X)                                                                          \
    X(l1norm)                                                                                      \
    X(level)                                                                                       \
    X(l2norm)                                                                                      \
    X(l0norm)                                                                                      \
    X(linfnorm)                                                                                    \
    X(fpgm)                                                                                        \
    X(random)                                                                                      \
    X(slim)                                                                                        \
    X(apoz)                                                                                        \
    X(mean_activation)                                                                             \
    X(hrank)                                                                                       \
    X(wanda)                                                                                       \
    X(taylor)                                                                                      \
    X(fisher)                                                                                      \
    X(movement)                                                                                    \
    X(soft_movement)                                                                               \
    X(sparsegpt)                                                                                   \
    X(admm)

#define SBIT__SPARSER_DECLARE(name) SBIT__FN const sbit_sparser_row *sbit__sparser_##name(void);
SBIT__SPARSERS(SBIT__SPARSER_DECLARE)
#undef SBIT__SPARSER_DECLARE

/* What rows share that change weights: the state is the sum of x x^T, upper half, [n][n] of columns. */
SBIT__FN int64_t sbit__gpt_columns(const sbit_sparser_call *call);
SBIT__FN size_t sbit__gpt_bytes(const sbit_sparser_call *call);
SBIT__FN sbit_status sbit__gpt_observe(void *state, const sbit_sparser_call *call,
                                       const sbit_sparser_sample *sample, sbit_error *error);
SBIT__FN sbit_status sbit__gpt_score(const void *state, const sbit_sparser_call *call,
                                     double *score, sbit_error *error);
SBIT__FN void sbit__gpt_complete(double *h, int64_t n);
SBIT__FN int64_t sbit__gpt_at(const sbit_sparser_call *call, int64_t r, int64_t c);
/* order[0..gone-1]: the indices of the smallest of n scores, in any order. */
SBIT__FN void sbit__smallest(const double *scores, int64_t n, int64_t gone, int64_t *order);

SBIT__FN const sbit__kind *sbit__kind_sparser(void);
SBIT__FN const sbit__kind *sbit__kind_sparsity(void);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSERS_PRIVATE_H */
