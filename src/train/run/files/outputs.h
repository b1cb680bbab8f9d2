/* Files that a run writes: to which run they belong, and which may be replaced.
 *
 * A run has a random id, which it keeps when it is resumed. Its checkpoints and its best model have it as metadata, recurve.run:
 *   {"id": "32 hexadecimal digits", "step": updates}
 * A run replaces files with its own id. It replaces files of other runs where the caller allows it (overwrite), and a file that is not a
 * model only at the output path itself, never at a path derived from it. */
#ifndef RCVI_OUTPUTS_H
#define RCVI_OUTPUTS_H

#include "base/base.h"

enum { RCVI_RUN_ID = 33 }; /* bytes of a run's id: 128 bits as hexadecimal digits, and the terminator */

typedef struct {
    rcv_context *context;
    char run_id[RCVI_RUN_ID];
    bool adopts_unnamed; /* files without an id belong to the run: it was resumed from one */
    /* of a call of rcv_trainer_run */
    const char *path;    /* NULL: the call writes nothing */
    bool overwrite;      /* files of other runs may be replaced */
    int64_t keep;        /* checkpoints that stay, the new one included */
    rcvi_file_lock lock; /* of the path */
    /* the last checkpoint that was written or resumed from */
    char *last_good; /* its path; NULL: none */
    int64_t last_good_step;
} rcvi_outputs;

/* With a new id. */
void rcvi_outputs_init(rcvi_outputs *outputs, rcv_context *context);
void rcvi_outputs_free(rcvi_outputs *outputs);

/* Checks that a call at update `step` may write to the path, and locks it until it is released. On one rank alone. */
rcv_status rcvi_outputs_claim(rcvi_outputs *outputs, int64_t step);
void rcvi_outputs_release(rcvi_outputs *outputs);
/* Before a new checkpoint: the file at the path also becomes MODEL.1.ENDING, that one MODEL.2.ENDING, and so on, `keep` files in all. The
 * path itself keeps its file until the new one is renamed over it. A file of another run is not replaced. */
rcv_status rcvi_outputs_rotate(const rcvi_outputs *outputs, int64_t step);
/* The path of the best model, for rcvi_free; RCV_IO where it may not be written. */
rcv_status rcvi_outputs_best(const rcvi_outputs *outputs, int64_t step, char **path);
/* A checkpoint of update `step` is at `path`. */
rcv_status rcvi_outputs_set_last_good(rcvi_outputs *outputs, const char *path, int64_t step);

/* The id and the update as metadata; and the id from metadata. Without one there, the id stays and adopts_unnamed is set. */
rcv_status rcvi_run_id_to_tensors(const rcvi_outputs *outputs, int64_t step, rcv_tensors *tensors);
void rcvi_run_id_from_tensors(rcvi_outputs *outputs, const rcv_tensors *tensors);

/* DIR/MODEL.safetensors and "best": DIR/MODEL.best.safetensors. For rcvi_free; NULL without memory. */
char *rcvi_sibling(rcv_context *context, const char *path, const char *word);

#endif
