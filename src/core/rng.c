/* rng.c: random numbers that are the same on every machine. >>rng
 *
 * Called by: users, data shuffling, weight initialisation, training. Calls: libm's sqrt only.
 * Does: PCG32 (O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
 * Algorithms for Random Number Generation", variant XSH-RR 64/32) on the stream 54 of its
 * published demonstration; bounded, uniform and normal numbers.
 * Does not: need libm's log or cos, whose last bits differ between systems.
 */
#include "core_private.h"

#include <math.h> /* sqrt: exactly rounded by IEEE 754, hence the same everywhere */

static const uint64_t sbit__rng_multiplier = 6364136223846793005u;
static const uint64_t sbit__rng_increment = (54u << 1) | 1u;

SPARSEBIT_API uint32_t sbit_rng_next(sbit_rng *rng)
{
    const uint64_t old = rng->state;
    const uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    const uint32_t rotation = (uint32_t)(old >> 59);
    rng->state = old * sbit__rng_multiplier + sbit__rng_increment;
    return (shifted >> rotation) | (shifted << ((32u - rotation) & 31u));
}

SPARSEBIT_API sbit_rng sbit_rng_seed(uint64_t seed)
{
    sbit_rng rng;
    rng.state = sbit__rng_increment + seed;
    (void)sbit_rng_next(&rng);
    return rng;
}

/* Numbers below 2^32 mod bound are drawn again, so that each residue is equally likely. */
SPARSEBIT_API uint32_t sbit_rng_below(sbit_rng *rng, uint32_t bound)
{
    SPARSEBIT_ASSERT(bound >= 1);
    const uint32_t threshold = (0u - bound) % bound;
    for (;;) {
        const uint32_t drawn = sbit_rng_next(rng);
        if (drawn >= threshold) {
            return drawn % bound;
        }
    }
}

SPARSEBIT_API float sbit_rng_uniform(sbit_rng *rng)
{
    return (float)(sbit_rng_next(rng) >> 8) * (1.0f / 16777216.0f);
}

/* Natural logarithm for 0 < x < 1: x = m * 2^e with m near 1, and with z = (m - 1)/(m + 1)
 * ln m = 2 (z + z^3/3 + z^5/5 + ...), |z| < 0.172: 10 terms are below 2^-53. */
static double sbit__rng_log(double x)
{
    int exponent = 0;
    while (x < 0.70710678118654752) {
        x *= 2.0;
        exponent--;
    }
    const double z = (x - 1.0) / (x + 1.0);
    const double z2 = z * z;
    double sum = 0.0;
    for (int k = 21; k >= 1; k -= 2) {
        sum = sum * z2 + 1.0 / (double)k;
    }
    return 2.0 * z * sum + (double)exponent * 0.69314718055994531;
}

/* Marsaglia's polar method; of the pair it makes, one number is used, to keep the state small. */
SPARSEBIT_API float sbit_rng_normal(sbit_rng *rng)
{
    for (;;) {
        const double u = (double)sbit_rng_next(rng) * (2.0 / 4294967296.0) - 1.0;
        const double v = (double)sbit_rng_next(rng) * (2.0 / 4294967296.0) - 1.0;
        const double s = u * u + v * v;
        if (s > 0.0 && s < 1.0) {
            return (float)(u * sqrt(-2.0 * sbit__rng_log(s) / s));
        }
    }
}
