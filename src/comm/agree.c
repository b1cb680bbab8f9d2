/* Agreement: all ranks of a communicator learn whether one of them failed, and why. */
#include "comm/internal.h"

#include <stdio.h>
#include <string.h>

static int find_failed(const rcvi_comm *comm) {
    for (int i = 0; i < comm->size; i++) {
        if (comm->words[2 * i] != RCV_OK) return i;
    }
    return -1;
}

/* reason: [RCVI_COMM_REASON], this rank's; the lowest rank that failed broadcasts its own. */
static rcv_status exchange_status(rcvi_comm *comm, rcv_status status, char *reason) {
    RCVI_TRY(rcvi_comm_all_gather_words(comm, (int32_t)status, 0));
    int failed = find_failed(comm);
    if (failed < 0) return RCV_OK;
    rcvi_transfer_options broadcast = {
        .kind = RCVI_BROADCAST, .data = reason, .count = RCVI_COMM_REASON, .peer = failed};
    RCVI_TRY(rcvi_transfer_run(comm, &broadcast));
    reason[RCVI_COMM_REASON - 1] = '\0';
    if (failed == comm->rank) return status;
    return rcvi_fail(RCV_PEER, "rank %d: %s", comm->ranks[failed], reason);
}

rcv_status rcvi_comm_agree(rcvi_comm *comm, rcv_status status) {
    char own[4096], reason[RCVI_COMM_REASON] = "";
    snprintf(own, sizeof own, "%s", status ? rcv_message() : "");
    memcpy(reason, own, sizeof reason - 1);
    rcv_status agreed = exchange_status(comm, status, reason);
    bool is_own = status && (agreed == status || atomic_load(&comm->world->broken));
    return is_own ? rcvi_fail(status, "%s", own) : agreed;
}
