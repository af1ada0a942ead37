/* sparse_api.h: masks, and the channels that must be pruned together. >>sparse
 *
 * Called by: users, train. Calls: sparsers, ops (row->channel), passes, exec (verification).
 * The data that pruning hands around; the steps (create, calc_params, shrink, export) follow the
 * shape of quant_api.h.
 */
#ifndef SBIT_SPARSE_API_H
#define SBIT_SPARSE_API_H

#include "sconfig_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A mask on one constant: one byte an element of the tensor, 1 keep, 0 pruned. */
typedef struct sbit_mask {
    sbit_value_id value; /* the weight or bias in the graph */
    int64_t count;       /* elements */
    int64_t kept;
    const uint8_t *keep;
} sbit_mask;

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSE_API_H */
