/* peak.c: how fast this processor multiplies and adds. >>peak
 *
 * Called by: users. Calls: the kernels.
 */
#include "../kernels/last_private.h"
#include "../kernels/q8_private.h"
#include "exec_private.h"

SPARSEBIT_API double sbit_measure_peak(const sbit_ctx *ctx, bool integers)
{
    const sbit__last_kernels *floats = sbit__last_of(ctx);
    const sbit__q8_kernels *bytes = sbit__q8_of(ctx);
    const uint64_t begin = sbit__now_ns();
    double best = 0.0;
    float sum = 0.001f;
    int32_t total = 1;
    for (uint64_t now = begin; now - begin < 10000000;) {
        const int64_t done =
            integers ? bytes->q8_peak(20000, &total) : floats->last_peak(20000, &sum);
        const uint64_t end = sbit__now_ns();
        const double rate = (double)done / ((double)(end - now) * 1e-9);
        best = end > now && rate > best ? rate : best;
        now = end;
    }
    return best;
}
