/* NCCL, for collectives of what lies in a GPU's memory: opened when it is first asked for. Where a build has no CUDA, or no nccl.h, it
 * says so. */
#ifndef RCVI_NCCL_H
#define RCVI_NCCL_H

#include "comm/comm.h"

typedef struct rcvi_nccl rcvi_nccl; /* a group's communicator, with a stream of its own */

enum { RCVI_NCCL_ID = 128 };

rcv_status rcvi_nccl_there(void); /* RCV_UNSUPPORTED, with the sentence, where it is not */
const char *rcvi_nccl_name(void); /* with the version, where it is there */

rcv_status rcvi_nccl_make_id(char id[RCVI_NCCL_ID]); /* by one rank of a group, for all of them */
/* Begins to bring ranks together, who are when `ready` says so. */
rcv_status rcvi_nccl_open(rcv_context *context, int ordinal, const char id[RCVI_NCCL_ID], int rank, int size,
                          rcvi_nccl **nccl);
rcv_status rcvi_nccl_ready(rcvi_nccl *nccl, bool *ready);
void rcvi_nccl_close(rcvi_nccl *nccl, bool broken); /* NULL is harmless */

#endif
