/* Ranks that train one model: communicators, asynchronous transfers, and how all ranks end together after a failure.
 *
 * Every rank has one progress thread, which makes all calls of the transport. It starts transfers in the order in which they were submitted, as soon as
 * the counters that they wait for are reached, and advances those in flight while the rank computes. It sleeps when there is
 * nothing to do, and does not spin while the rank computes, since a core that spins does not compute. All ranks of a communicator start the
 * same collectives in the same order. Sends and receives of two ranks match in the order in which they were started.
 *
 * Every reduction has one order of summation for all ranks: all ranks end with the same bits, and the same transfer gives the same bits every time.
 *
 * A rank that cannot continue calls rcvi_comm_fail; the transfers of all other ranks then end with RCV_PEER, and the message names the failed rank.
 * A rank that is stopped, or makes no progress for longer than the timeout, is named the same way by the rank that notices. */
#ifndef RCVI_COMM_H
#define RCVI_COMM_H

#include "device/device.h"
#include "recurve_distributed.h"

#include <stdatomic.h>

typedef struct rcvi_comm rcvi_comm;         /* a communicator, as one of its ranks sees it */
typedef struct rcvi_transfer rcvi_transfer; /* a transfer that was started and not waited for yet */

typedef struct {
    /* "self", "mpi", "nccl" (MPI, and NCCL for collectives on a GPU's memory); NULL: the best that is available */
    const char *transport;
    double timeout; /* seconds without progress of a rank after which all ranks end; 0: no limit */
} rcvi_comm_options;

/* Opens the world, the communicator of all ranks that were started together. RCV_UNSUPPORTED where the transport is not available, RCV_INVALID
 * where this process was not started by its launcher. At most once a process. */
rcv_status rcvi_comm_open(rcv_context *context, const rcvi_comm_options *options, rcvi_comm **world);
/* Collective, unless the world is broken: then every rank leaves alone. Where a rank does not answer any longer, the rank that reports the
 * failure aborts all ranks here and does not return: it prints the reason before. */
void rcvi_comm_close(rcvi_comm *world);
/* The number of ranks that a launcher started together with this process, which is *rank of them; 1 and rank 0 without a launcher. */
int rcvi_comm_launched_size(int *rank);

/* A communicator of the ranks with the same colour (at least 0), ordered by key; collective. It is freed before its parent, collectively. */
rcv_status rcvi_comm_split(rcvi_comm *parent, int colour, int key, rcvi_comm **comm);
void rcvi_comm_free(rcvi_comm *comm);

int rcvi_comm_rank(const rcvi_comm *comm);
int rcvi_comm_size(const rcvi_comm *comm);
int rcvi_comm_local_size(const rcvi_comm *world); /* ranks on this machine */
/* This rank's part of `cores` cores of this machine: the cores that the launcher bound it to, else an equal part of all. */
int64_t rcvi_comm_cores(const rcvi_comm *world, int64_t cores);
/* The transport's name for users: "mpi (Open MPI 4.1.4)", and how it transfers a GPU's memory. */
const char *rcvi_comm_name(const rcvi_comm *comm);

/* Selects the device whose memory `on_device` means. It is transferred directly where the transport can, else through staging buffers in the host's
 * memory. Collective. RCV_UNSUPPORTED where the transport is "nccl" and NCCL cannot be used. */
rcv_status rcvi_comm_set_device(rcvi_comm *world, const rcvi_device *device, int ordinal);
bool rcvi_comm_shares_device(const rcvi_comm *world); /* do several ranks compute on one GPU? */

/* The communicator of a world of the public header. */
rcvi_comm *rcvi_world_comm(const rcv_world *world);

/* ---- transfers ---- */

typedef enum {
    RCVI_ALL_REDUCE_SUM, /* data[count] of all ranks summed, to all ranks */
    RCVI_ALL_REDUCE_MAX, /* the maximum; NaN is larger than every number */
    RCVI_REDUCE_SCATTER, /* summed; rank r ends with its share, data[starts[r]] .. data[starts[r + 1] - 1]; the rest of data is undefined */
    RCVI_ALL_GATHER, /* the shares of all ranks, to all ranks, in place */
    RCVI_BROADCAST,  /* data[count] of rank `peer`, to all ranks */
    RCVI_SEND,       /* data[count] to rank `peer` */
    RCVI_RECEIVE     /* data[count] from rank `peer` */
} rcvi_transfer_kind;

typedef enum { RCVI_TRANSFER_BYTES, RCVI_TRANSFER_FLOAT, RCVI_TRANSFER_DOUBLE } rcvi_transfer_type;

typedef struct {
    rcvi_transfer_kind kind;
    rcvi_transfer_type type;
    void *data; /* [count]; the caller does not touch it until the transfer is complete */
    int64_t count;
    /* [size + 1], rising from 0 to count: the shares of a reduce-scatter or all-gather; valid until the transfer is complete */
    const int64_t *starts;
    int peer;
    int tag; /* of sends and receives, 0 to 1023: they match by it, and those with the same tag in order */
    /* Floats are sent as bfloat16, and partial sums are rounded to it at every rank; all ranks end with the same bits. */
    bool as_bfloat16;
    bool on_device; /* data lies in the device's memory, else in the host's */
    /* NULL, or a counter that the transfer waits for: it starts when the counter, which another thread or the device raises, reaches `ready`. */
    const _Atomic uint64_t *counter;
    uint64_t ready;
} rcvi_transfer_options;

typedef struct {
    double queued, started, completed; /* rcvi_now() */
} rcvi_transfer_times;

rcv_status rcvi_transfer_start(rcvi_comm *comm, const rcvi_transfer_options *options, rcvi_transfer **transfer);
/* Waits until the transfer is complete, and frees it. NULL is harmless; `times` may be NULL. */
rcv_status rcvi_transfer_wait(rcvi_transfer *transfer, rcvi_transfer_times *times);
rcv_status rcvi_transfer_run(rcvi_comm *comm, const rcvi_transfer_options *options); /* starts and waits */

/* Blocking transfers of the host's memory: an all-reduce of doubles; and bytes by RCVI_SEND, RCVI_RECEIVE or RCVI_BROADCAST. */
rcv_status rcvi_comm_all_reduce(rcvi_comm *comm, rcvi_transfer_kind kind, double *numbers, int64_t count);
rcv_status rcvi_comm_transfer_bytes(rcvi_comm *comm, rcvi_transfer_kind kind, int peer, void *data, size_t bytes);

/* What this rank has sent through all communicators since the world was opened: payload, without what a transport adds. */
typedef struct {
    int64_t transfers, bytes;
} rcvi_comm_statistics;
rcvi_comm_statistics rcvi_comm_get_statistics(const rcvi_comm *world);

/* ---- failure ---- */

/* Collective. RCV_OK when all ranks pass RCV_OK. Else the lowest rank that does not returns its own status and message, all
 * others RCV_PEER. */
rcv_status rcvi_comm_agree(rcvi_comm *comm, rcv_status status);
/* This rank cannot continue: breaks the world, and sends the reason to all other ranks. No transfer follows. */
void rcvi_comm_fail(rcvi_comm *comm, const char *reason);
/* In a broken world: does this rank print the reason? It is the rank that failed or, where a rank made no progress, the rank that noticed. */
bool rcvi_comm_reports_failure(const rcvi_comm *world);
/* This rank makes progress, for the heartbeat. Starting and waiting for a transfer count as progress too. */
void rcvi_comm_report_progress(rcvi_comm *comm);

#endif
