/* latency_api.h: a table of how long each node of a model takes on this machine. >>latency
 *
 * Called by: users, pruning to a budget of time, placement by time. Calls: exec, config.
 * Nodes are known by the name of their first output, times are in microseconds by the work that a node
 * is left with (multiply-accumulates, with output channels filled up to the lanes of vectors, else
 * elements); between what was measured they are interpolated. Beside them stand shares of the whole that
 * pruned models were measured to take, by those that their nodes add up to.
 */
#ifndef SBIT_LATENCY_API_H
#define SBIT_LATENCY_API_H

#include "../core/core_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_latency sbit_latency;
/* To and from a JSON file, which also says where it was measured: instruction set, threads, processor.
 * A table that was loaded is never measured again: with the same configuration it gives the same
 * result, on any machine; where this is not the one it is of, a warning says so. Errors: IO, CONFIG. */
SPARSEBIT_API sbit_status sbit_latency_save(const sbit_latency *latency, const char *path,
                                            sbit_error *error);
SPARSEBIT_API sbit_status sbit_latency_load(sbit_ctx *ctx, const char *path, sbit_latency **out,
                                            sbit_error *error);
SPARSEBIT_API void sbit_latency_destroy(sbit_latency *latency); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif /* SBIT_LATENCY_API_H */
