/* A build without NCCL. */
#include "comm/parts.h"

static rcv_status refuse(void) { return rcvi_fail(RCV_UNSUPPORTED, "this build has no NCCL"); }

rcv_status rcvi_nccl_there(void) { return refuse(); }

const char *rcvi_nccl_name(void) { return NULL; }

rcv_status rcvi_nccl_make_id(char id[RCVI_NCCL_ID]) {
    id[0] = '\0';
    return refuse();
}

rcv_status rcvi_nccl_open(rcv_context *context, int ordinal, const char id[RCVI_NCCL_ID], int rank, int size,
                          rcvi_nccl **nccl) {
    (void)context;
    (void)ordinal;
    (void)id;
    (void)rank;
    (void)size;
    *nccl = NULL;
    return refuse();
}

rcv_status rcvi_nccl_ready(rcvi_nccl *nccl, bool *ready) {
    (void)nccl;
    *ready = false;
    return refuse();
}

void rcvi_nccl_close(rcvi_nccl *nccl, bool broken) {
    (void)nccl;
    (void)broken;
}

static rcv_status prepare(rcvi_transfer *transfer) {
    (void)transfer;
    return refuse();
}

const rcvi_exchange rcvi_exchange_nccl = {prepare, NULL};
