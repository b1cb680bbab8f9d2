/* Ranks that work together: groups of them, what they exchange beside their work, and how they end together.
 *
 * A rank has one courier, a thread through which everything goes that it exchanges: it starts transfers, in the order in which they
 * were asked for, as soon as what they wait for is there, and looks after those under way while the rank computes. It sleeps where there is
 * nothing to do, and never spins while the rank computes: a core that polls is a core that does not compute. All ranks of a group start the
 * same transfers of all ranks in the same order; sends and receives of two ranks match in the order of their starts.
 *
 * Sums have one order for all ranks: every rank ends with the same bits, and the same transfer gives the same bits every time.
 *
 * Who cannot go on says so (rcvi_comm_fail); transfers of all other ranks then end with RCV_PEER, the sentence naming the rank. Who is
 * killed, or does not move for longer than the timeout, is named the same way by whoever notices. */
#ifndef RCVI_COMM_H
#define RCVI_COMM_H

#include "device/device.h"

#include <stdatomic.h>

typedef struct rcvi_comm rcvi_comm;         /* a group of ranks, as one of them sees it */
typedef struct rcvi_transfer rcvi_transfer; /* something under way */

typedef struct {
    const char *
        transport; /* "self", "mpi", "nccl" (mpi, and NCCL for what lies in a GPU's memory); NULL: the best that is there */
    double timeout; /* seconds that a rank may stand still before all end; 0: for ever */
} rcvi_comm_options;

/* The world: all ranks that were started together. RCV_UNSUPPORTED where a transport is not there, RCV_INVALID where this process
 * was not started by it. One a process. */
rcv_status rcvi_comm_open(rcv_context *context, const rcvi_comm_options *options, rcvi_comm **world);
/* A world in which all is well is left by all ranks together. One that broke is left by everybody alone, who then ends; where a rank does
 * not answer any longer it ends all of them, and does not return to the rank that speaks: say why before. */
void rcvi_comm_close(rcvi_comm *world);
/* What starts programs here says that this process is one of so many; 1 where nothing does, and then *rank is 0. */
int rcvi_comm_started(int *rank);

/* Ranks with the same colour, by key; collective. Closed before the group it is made of, collectively. */
rcv_status rcvi_comm_split(rcvi_comm *comm, int colour, int key, rcvi_comm **part);
void rcvi_comm_leave(rcvi_comm *part);

int rcvi_comm_rank(const rcvi_comm *comm);
int rcvi_comm_size(const rcvi_comm *comm);
int rcvi_comm_here(const rcvi_comm *world); /* ranks on this machine */
/* Of so many cores of this machine, those that this rank has: where the launcher has bound ranks to cores its own, else all are shared out. */
int64_t rcvi_comm_cores(const rcvi_comm *world, int64_t cores);
const char *
rcvi_comm_name(const rcvi_comm *comm); /* for people: "mpi (Open MPI 4.1.4)", with how a GPU's memory travels */

/* From here on `on_device` means this device's memory: directly where the transport can, else through memory of the host. Collective.
 * RCV_UNSUPPORTED where NCCL was asked for by its name and cannot be. */
rcv_status rcvi_comm_set_device(rcvi_comm *world, const rcvi_device *device, int ordinal);
bool rcvi_comm_shares_device(const rcvi_comm *world); /* is there a GPU that several ranks compute on? */

/* Of a world as users have it. */
rcvi_comm *rcvi_world_comm(const rcv_world *world);

/* ---- transfers ---- */

typedef enum {
    RCVI_SUM_ALL,    /* data[count] of all ranks summed, to all of them */
    RCVI_MAX_ALL,    /* the largest, the same */
    RCVI_SUM_SHARES, /* summed, but every rank is left with its own share, data[starts[rank]] .. data[starts[rank + 1] - 1]; the rest is spoilt */
    RCVI_GATHER_ALL, /* the shares of all ranks, to all of them, in place */
    RCVI_BROADCAST,  /* data[count] of rank `peer`, to all */
    RCVI_SEND,       /* data[count] to rank `peer` */
    RCVI_RECEIVE     /* from it */
} rcvi_transfer_kind;

typedef enum { RCVI_TRANSFER_BYTES, RCVI_TRANSFER_FLOAT, RCVI_TRANSFER_DOUBLE } rcvi_transfer_type;

typedef struct {
    rcvi_transfer_kind kind;
    rcvi_transfer_type type;
    void *data; /* the comm's until the transfer is finished */
    int64_t count;
    const int64_t
        *starts; /* [size + 1], rising, the last one is count: shares; they stay until the transfer is finished */
    int peer;
    int tag; /* of sends and receives, 0 to 1023: these match by it, and order holds among equals */
    bool
        narrow; /* floats travel as bfloat16, and sums are rounded to it at every rank that they pass; all end with the same bits */
    bool on_device; /* data lies in the memory of the device, else in the host's */
    const _Atomic uint64_t
        *counter; /* NULL, or: it starts when this one, which somebody else raises, has reached `ready` */
    uint64_t ready;
} rcvi_transfer_options;

typedef struct {
    double asked, begun, ended; /* rcvi_now() */
} rcvi_transfer_times;

rcv_status rcvi_comm_start(rcvi_comm *comm, const rcvi_transfer_options *options, rcvi_transfer **transfer);
/* Waits for its end, after which it is gone; NULL is harmless. `times` may be NULL. */
rcv_status rcvi_comm_finish(rcvi_transfer *transfer, rcvi_transfer_times *times);
rcv_status rcvi_comm_do(rcvi_comm *comm, const rcvi_transfer_options *options); /* both */

/* The two that everybody needs: a sum or a maximum of doubles of the host, for all; and bytes of the host, to or from one rank or, with
 * RCVI_BROADCAST, from it to all. */
rcv_status rcvi_comm_combine(rcvi_comm *comm, rcvi_transfer_kind kind, double *numbers, int64_t count);
rcv_status rcvi_comm_pass(rcvi_comm *comm, rcvi_transfer_kind kind, int peer, void *data, size_t bytes);

/* What this rank has sent through all groups of the world since it was opened: payload, without what a transport adds. */
typedef struct {
    int64_t transfers, bytes;
} rcvi_comm_tally;
rcvi_comm_tally rcvi_comm_count(const rcvi_comm *world);

/* ---- ending together ---- */

/* Of all ranks of a group: RCV_OK where all come with RCV_OK. Else the lowest that does not returns with its own status and sentence,
 * all others with RCV_PEER. */
rcv_status rcvi_comm_agree(rcvi_comm *comm, rcv_status status);
/* This rank cannot go on: all others learn so, with the sentence. No transfer follows. */
void rcvi_comm_fail(rcvi_comm *comm, const char *sentence);
/* Of a world that broke: is it this rank that prints why, the one that failed or, where one stands still, the one that noticed? */
bool rcvi_comm_speaks(const rcvi_comm *world);
/* The rank moves, whatever it does: every transfer that it starts or finishes says so too. */
void rcvi_comm_alive(rcvi_comm *comm);

#endif
