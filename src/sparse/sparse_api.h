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

/* One index of one axis of one value. */
typedef struct sbit_channel_ref {
    sbit_value_id value;
    int32_t axis;
    int64_t index;
} sbit_channel_ref;

/* Channel indices that live and die together (union-find over what row->channel ties). `fixed`:
 * may not be removed, because it reaches a graph input or output or an operator without a rule. */
typedef struct sbit_channel_group {
    const sbit_channel_ref *refs;
    size_t ref_count;
    bool fixed;
    float score;
} sbit_channel_group;

#ifdef __cplusplus
}
#endif

#endif /* SBIT_SPARSE_API_H */
