/* cholesky.c: symmetric systems of equations in double. >>cholesky
 *
 * Called by: sparsers, ridge repair, operators beside blocks. Calls: nothing.
 */
#include "core_private.h"

#include <math.h> /* sqrt */

/* h[i][k] less the products of what stands left of it and of (k, k), for four rows i. */
static void sbit__cholesky_four(const double *h, const double *by, int64_t n, int64_t k, double *sums)
{
    const double *a = h, *b = h + n, *c = b + n, *d = c + n;
    double w = a[k], x = b[k], y = c[k], z = d[k];
    for (int64_t p = 0; p < k; p++) {
        w -= a[p] * by[p];
        x -= b[p] * by[p];
        y -= c[p] * by[p];
        z -= d[p] * by[p];
    }
    sums[0] = w;
    sums[1] = x;
    sums[2] = y;
    sums[3] = z;
}

SBIT__FN bool sbit__cholesky(double *h, int64_t n)
{
    for (int64_t first = 0, rows; first < n; first += rows) {
        rows = first + 4 <= n ? 4 : 1; /* four read a row together */
        for (int64_t k = 0; k < first + rows; k++) {
            double sums[4] = {0.0};
            if (rows == 4) {
                sbit__cholesky_four(h + first * n, h + k * n, n, k, sums);
            } else {
                sums[0] = h[first * n + k];
                for (int64_t p = 0; p < k; p++) {
                    sums[0] -= h[first * n + p] * h[k * n + p];
                }
            }
            if (k >= first && !(sums[k - first] > 0.0)) {
                return false;
            }
            for (int64_t i = k > first ? k : first; i < first + rows; i++) {
                h[i * n + k] = i == k ? sqrt(sums[i - first]) : sums[i - first] / h[k * n + k];
            }
        }
    }
    return true;
}

SBIT__FN void sbit__cholesky_solve(const double *l, int64_t n, double *x)
{
    for (int64_t i = 0; i < n; i++) {
        double *to = x + i * SBIT__SOLVE_LANES;
        for (int64_t k = 0; k < i; k++) {
            for (int64_t r = 0; r < SBIT__SOLVE_LANES; r++) {
                to[r] -= l[i * n + k] * x[k * SBIT__SOLVE_LANES + r];
            }
        }
        for (int64_t r = 0; r < SBIT__SOLVE_LANES; r++) {
            to[r] /= l[i * n + i];
        }
    }
    for (int64_t i = n; i-- > 0;) { /* by rows of L: contiguous */
        double *from = x + i * SBIT__SOLVE_LANES;
        for (int64_t r = 0; r < SBIT__SOLVE_LANES; r++) {
            from[r] /= l[i * n + i];
        }
        for (int64_t k = 0; k < i; k++) {
            for (int64_t r = 0; r < SBIT__SOLVE_LANES; r++) {
                x[k * SBIT__SOLVE_LANES + r] -= l[i * n + k] * from[r];
            }
        }
    }
}
