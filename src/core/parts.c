/* parts.c: which elements of a tensor share something. >>parts
 *
 * Called by: observers, quantizers, quant, masks. Calls: tensors' shapes.
 * One description for scales per tensor, axis, block and group, and for the bits of masks.
 */
#include "core_private.h"

SPARSEBIT_API sbit_parts sbit_parts_of(const sbit_tensor *shape, int32_t axis, int64_t block)
{
    sbit_parts parts;
    for (int d = 0; d < 4; d++) {
        parts.dims[d] = parts.block[d] = 1;
        parts.step[d] = 0;
    }
    for (int32_t i = 0; i < shape->rank; i++) {
        parts.dims[axis < 0 || i < axis ? 0 : i == axis ? 1 : 2] *= shape->dims[i];
    }
    parts.count = 1;
    if (axis >= 0 && block == 0) {
        parts.step[1] = 1;
        parts.count = parts.dims[1];
    } else if (axis >= 0) {
        const int64_t blocks = (parts.dims[1] + block - 1) / block;
        parts.block[1] = block;
        parts.step[0] = blocks * parts.dims[2];
        parts.step[1] = parts.dims[2];
        parts.step[2] = 1;
        parts.count = parts.dims[0] * parts.step[0];
    }
    return parts;
}

SPARSEBIT_API int64_t sbit_parts_elements(const sbit_parts *parts)
{
    return parts->dims[0] * parts->dims[1] * parts->dims[2] * parts->dims[3];
}

SPARSEBIT_API int64_t sbit_parts_at(const sbit_parts *parts, int64_t element)
{
    int64_t part = 0;
    for (int d = 3; d >= 0; d--) {
        part += element % parts->dims[d] / parts->block[d] * parts->step[d];
        element /= parts->dims[d];
    }
    return part;
}

/* >>runs: the last dims without a step make up the tail, which every run has whole; a run takes a
 * block of the dim before. */
SPARSEBIT_API sbit_runs sbit_runs_of(const sbit_parts *parts)
{
    sbit_runs runs;
    memset(&runs, 0, sizeof runs);
    runs.parts = *parts;
    runs.tail = 1;
    runs.dim = 3;
    while (runs.dim > 0 && parts->step[runs.dim] == 0) {
        runs.tail *= parts->dims[runs.dim--];
    }
    if (runs.dim == 0 && parts->step[0] == 0) { /* one part: one run */
        runs.parts.block[0] = parts->dims[0] > 0 ? parts->dims[0] : 1;
    }
    if (sbit_parts_elements(parts) == 0) {
        runs.index[0] = parts->dims[0]; /* past the end */
    }
    return runs;
}

SPARSEBIT_API bool sbit_runs_next(sbit_runs *runs)
{
    const sbit_parts *p = &runs->parts;
    const int32_t dim = runs->dim;
    if (runs->index[0] >= p->dims[0]) {
        return false;
    }
    const int64_t left = p->dims[dim] - runs->index[dim];
    const int64_t taken = left < p->block[dim] ? left : p->block[dim];
    runs->at += runs->count;
    runs->count = taken * runs->tail;
    runs->part = 0;
    for (int32_t d = 0; d <= dim; d++) {
        const int64_t i = runs->index[d];
        runs->part += (p->block[d] == 1 ? i : i / p->block[d]) * p->step[d];
    }
    runs->index[dim] += taken;
    for (int32_t d = dim; d > 0 && runs->index[d] >= p->dims[d]; d--) {
        runs->index[d] = 0;
        runs->index[d - 1]++;
    }
    return true;
}
