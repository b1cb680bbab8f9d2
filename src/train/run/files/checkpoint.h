/* A run as a file: see checkpoint.c for its contents. */
#ifndef RCVI_CHECKPOINT_H
#define RCVI_CHECKPOINT_H

#include "base/base.h"

/* Collective; rank 0 writes. Resuming is rcv_trainer_resume. */
rcv_status rcvi_checkpoint_save(rcv_trainer *trainer, const char *path);
/* The model alone, with all of these parameters, [elements] in the host's memory. */
rcv_status rcvi_checkpoint_save_model(const rcv_trainer *trainer, const void *parameters, const char *path);
/* Before the first update of a call: the batcher and the carried states to the run's position. */
rcv_status rcvi_checkpoint_restore_position(rcv_trainer *trainer);

#endif
