/* Requests that ranks all-reduce with every update: see control_flags.h. */
#include "train/run/control_flags.h"

#include <string.h>

void rcvi_control_flags_clear(rcvi_control_flags *f) {
    memset(f->requests, 0, sizeof f->requests);
    memset(f->agreed, 0, sizeof f->agreed);
}

rcv_status rcvi_control_flags_begin(rcvi_control_flags *f, const rcvi_topology *topology) {
    memcpy(f->agreed, f->requests, sizeof f->agreed);
    if (!topology) return RCV_OK;
    const rcvi_transfer_options o = {
        .kind = RCVI_ALL_REDUCE_MAX, .type = RCVI_TRANSFER_DOUBLE, .data = f->agreed, .count = RCVI_FLAGS};
    return rcvi_transfer_start(topology->world, &o, &f->transfer);
}

rcv_status rcvi_control_flags_end(rcvi_control_flags *f) {
    rcvi_transfer *transfer = f->transfer;
    f->transfer = NULL;
    return rcvi_transfer_wait(transfer, NULL);
}
