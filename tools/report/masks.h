/* report/masks.h: masks of a pruned model in files.
 *
 * FILE.npz: an array of uint8 (1 keep, 0 pruned) a tensor, of its shape, called "layer.weight" or
 * "layer.bias" as NNI's {layer: {weight, bias}}; others by the constant's name.
 * FILE.json: {"layer": {"weight": {"shape": [...], "runs": [kept, pruned, kept ...]}}}.
 */
#ifndef SBIT_CLI_MASKS_H
#define SBIT_CLI_MASKS_H

#include "model/model.h"

int cli_masks_save(sbit_sparse *sparse, const char *path);
/* Sets all masks of a .npz or .json file: those of before choosing (start), or those that count. */
int cli_masks_load(sbit_sparse *sparse, const char *path, bool start);

#endif /* SBIT_CLI_MASKS_H */
