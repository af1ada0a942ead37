/* sparsers_private.h: the built-in sparsers.
 *
 * Called by: sparse. A new sparser: its functions and one row in a file of this folder, one line in
 * SBIT__SPARSERS, one test row.
 */
#ifndef SBIT_SPARSERS_PRIVATE_H
#define SBIT_SPARSERS_PRIVATE_H

#include "../config/config_private.h"
#include "sparsers_api.h"

#include <math.h> /* sqrt, fabs, erf, pow */

#ifdef __cplusplus
extern "C" {
#endif

#define SBIT__SPARSERS(X)                                                                          \
    X(l1norm)                                                                                      \
    X(level)                                                                                       \
    X(l2norm)                                                                                      \
    X(l0norm)                                                                                      \
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
    X(sparsegpt)

#define SBIT__SPARSER_DECLARE(name) SBIT__FN const sbit_sparser_row *sbit__sparser_##name(void);
SBIT__SPARSERS(SBIT__SPARSER_DECLARE)
#undef SBIT__SPARSER_DECLARE

/* sparsegpt.c: h[n][n] = L L^T in place, in the lower half; false: not positive. */
SBIT__FN bool sbit__cholesky(double *h, int64_t n);
/* x = h^-1 x, with the L of h. */
SBIT__FN void sbit__cholesky_solve(const double *l, int64_t n, double *x);

SBIT__FN const sbit__kind *sbit__kind_sparser(void);
SBIT__FN const sbit__kind *sbit__kind_sparsity(void);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSERS_PRIVATE_H */
