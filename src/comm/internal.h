/* Types and functions that the files of this folder share.
 *
 * Threads: the caller's thread checks, allocates and frees. The progress thread makes all calls of the transport, and allocates nothing. A
 * transfer belongs to the caller's thread until it is submitted and after it is complete, and to the progress thread in between. One lock
 * guards what both use. */
#ifndef RCVI_COMM_INTERNAL_H
#define RCVI_COMM_INTERNAL_H

#include "comm/comm.h"
#include "comm/transport.h"

enum {
    RCVI_COMM_TAGS = 1024, /* tags of sends and receives: 0 to 1023; those of collectives follow */
    RCVI_COMM_CONCURRENT =
        4, /* collectives of a communicator that may be in flight at once: each has a tag of its own */
    RCVI_COMM_IN_FLIGHT = 4,     /* messages of a transfer that are in flight at once, in each direction */
    RCVI_COMM_SEGMENT = 1 << 18, /* bytes of data per message where messages are summed or rounded */
    RCVI_COMM_SMALL = 64,        /* largest count of a small all-reduce */
    RCVI_COMM_REASON = 512       /* bytes of the reason of a failure */
};

typedef struct rcvi_world rcvi_world;
typedef struct rcvi_heartbeat rcvi_heartbeat; /* what is known of the other ranks: heartbeat.c */

struct rcvi_comm {
    rcvi_world *world;
    rcvi_transport_comm *transport_comm; /* NULL: the world's */
    int rank, size;
    int *ranks;        /* [size], in the world */
    unsigned sequence; /* number of collectives submitted so far */
    /* For rcvi_comm_all_gather_words: allocated with the communicator, so that agreement cannot fail for lack of memory. */
    int32_t *words;                    /* [size, 2] */
    int64_t *word_starts;              /* [size + 1], in bytes */
    rcvi_collective_comm *device_comm; /* of the device's collectives; opened when first needed */
};

/* Buffers for messages that are summed or rounded. Transfers borrow them from the world. */
typedef struct rcvi_scratch {
    struct rcvi_scratch *next;
    _Alignas(16) char slots[2 * RCVI_COMM_IN_FLIGHT][RCVI_COMM_SEGMENT];
} rcvi_scratch;

/* A staging buffer of the device, borrowed the same way by transfers that go through the host's memory. */
typedef struct rcvi_staging_buffer {
    struct rcvi_staging_buffer *next;
    rcvi_staging *staging;
    size_t bytes;
} rcvi_staging_buffer;

struct rcvi_world {
    rcvi_comm all;
    rcv_context *context;
    unsigned process;                /* rcvi_fork_generation() of the process that opened it */
    const rcvi_transport *transport; /* NULL: this is the only rank, and there is no progress thread */
    rcvi_transport_facts facts;
    double timeout;
    char name[256];
    const rcvi_device
        *device; /* whose memory `on_device` means; NULL, or a device without staging: the host's memory */
    int ordinal;
    bool shares_device; /* several ranks have the same device */
    /* The device's collectives (NCCL): requested by name; not ruled out by the transport's name; in use. */
    bool requires_collectives, may_use_collectives, uses_collectives;
    atomic_bool polls; /* wait by polling: a GPU computes, and this rank has a core to spare */
    rcvi_heartbeat *heartbeat;
    pthread_t thread;
    /* For the heartbeat: `progress` counts actions of the rank, `waiting` is 1 inside of rcvi_transfer_wait. */
    _Atomic uint64_t progress;
    atomic_int waiting;
    _Atomic int64_t transfers, bytes; /* started; sent */
    atomic_bool broken;               /* no transfer follows */
    atomic_bool closing;              /* all ranks are closing the world: no heartbeats any longer */
    /* Guarded by the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake;      /* signals the progress thread */
    pthread_cond_t completed; /* signals callers that wait */
    rcvi_transfer *submitted; /* list in the order of submission, not seen by the progress thread yet */
    rcvi_transfer **submitted_end;
    rcvi_transfer *waited_for; /* in rcvi_transfer_wait */
    rcvi_scratch *free_scratch;
    rcvi_staging_buffer *free_staging;
    bool open_finished;                     /* the transport was opened, or failed to with `open_error` */
    bool may_progress;                      /* the progress thread may begin to process transfers */
    bool stopping;                          /* the progress thread ends when it has nothing left to do */
    bool failure_sent;                      /* nothing is left to send to other ranks about the failure */
    bool reports_failure;                   /* this rank prints why the world broke */
    bool needs_abort;                       /* a rank may not answer: only the transport's abort ends it */
    char open_error[RCVI_TRANSPORT_REASON]; /* why the transport could not be opened */
    char failure[RCVI_COMM_REASON];         /* why the world broke */
    /* The progress thread's. */
    rcvi_transfer *queue; /* transfers that wait or are in flight, in the order of submission */
    uint64_t events;      /* messages started and completed, and so on: counts progress of the transfers */
};

/* How one kind of transfer is carried out. */
typedef struct {
    rcv_status (*prepare)(rcvi_transfer *transfer); /* by the caller's thread: allocates state, requests, scratch */
    bool (*advance)(rcvi_transfer *transfer);       /* by the progress thread, repeatedly: true when it is complete */
} rcvi_transfer_operations;

extern const rcvi_transfer_operations rcvi_ring_operations;              /* all-reduce, reduce-scatter, all-gather */
extern const rcvi_transfer_operations rcvi_small_all_reduce_operations;  /* all-reduce of few elements */
extern const rcvi_transfer_operations rcvi_broadcast_operations;         /* broadcast, send, receive */
extern const rcvi_transfer_operations rcvi_device_collective_operations; /* collectives on a device's memory */

/* Phases of a transfer through a staging buffer. */
typedef enum {
    RCVI_STAGING_NONE, /* it does not use one */
    RCVI_STAGING_TO_HOST,
    RCVI_STAGING_TRANSFER,
    RCVI_STAGING_TO_DEVICE
} rcvi_staging_phase;

struct rcvi_transfer {
    rcvi_transfer *next;
    rcvi_comm *comm;
    rcvi_transfer_options options;
    const rcvi_transfer_operations *operations; /* NULL: this rank is alone */
    rcvi_transfer_times times;
    unsigned sequence; /* among the collectives of its communicator */
    bool collective, started;
    bool all_posted; /* all its messages have been given to the transport */
    atomic_bool completed;
    rcv_status status;
    char *data;  /* what messages are made from: the caller's data, or a staging buffer */
    void *state; /* of its operations */
    rcvi_request *requests;
    size_t request_count;
    rcvi_scratch *scratch;
    rcvi_staging_buffer *staging;
    rcvi_staging_phase phase;
    bool copy_started; /* the copy of this phase has been enqueued */
};

/* ---- communicators: comm.c ---- */

rcv_status rcvi_comm_init(rcvi_comm *comm, rcvi_world *world, int rank, int size);
void rcvi_comm_release(rcvi_comm *comm); /* also after rcvi_comm_init failed */
/* All-gathers two words of every rank into comm->words. */
rcv_status rcvi_comm_all_gather_words(rcvi_comm *comm, int32_t first, int32_t second);

/* ---- elements: elements.c ---- */

size_t rcvi_transfer_bytes(rcvi_transfer_type type); /* of an element */
/* Adds `more` to `sum`, or takes the maximum, element by element. */
void rcvi_transfer_reduce(rcvi_transfer_kind kind, rcvi_transfer_type type, void *sum, const void *more, int64_t count);
/* Floats as bfloat16, rounded to nearest even; back; and rounded in place. */
void rcvi_to_bfloat16(uint16_t *to, const float *from, int64_t count);
void rcvi_from_bfloat16(float *to, const uint16_t *from, int64_t count);
void rcvi_round_to_bfloat16(float *numbers, int64_t count);

/* ---- messages of a transfer, by the progress thread: message.c. A failure breaks the world; such a message never completes. ---- */

void rcvi_message_send(rcvi_transfer *transfer, int to, const void *bytes, size_t count, rcvi_request *request);
void rcvi_message_receive(rcvi_transfer *transfer, int from, void *bytes, size_t count, rcvi_request *request);
bool rcvi_message_test(rcvi_transfer *transfer, int peer, rcvi_request *request); /* complete, or never started? */
void rcvi_messages_cancel(rcvi_transfer *transfer);                               /* all that are in flight */

/* ---- transfers: transfer.c ---- */

/* For `prepare` of the operations: allocates the state and the requests, and borrows scratch. */
rcv_status rcvi_transfer_allocate(rcvi_transfer *transfer, size_t state_bytes, size_t requests, bool scratch);
/* Submits a transfer whose options were checked; without operations this rank is alone. */
rcv_status rcvi_transfer_submit(rcvi_comm *comm, const rcvi_transfer_options *options,
                                const rcvi_transfer_operations *operations, rcvi_transfer **transfer);
bool rcvi_transfer_is_ready(const rcvi_transfer_options *options); /* has its counter reached `ready`? */

/* Data in a device's memory: staging.c, device_collectives.c. */
rcv_status rcvi_staging_prepare(rcvi_transfer *transfer);
void rcvi_staging_start(rcvi_transfer *transfer);   /* by the progress thread */
bool rcvi_staging_advance(rcvi_transfer *transfer); /* copies to the host, the transfer's operations, copies back */
void rcvi_staging_close(rcvi_world *world);
rcv_status rcvi_staging_round(rcvi_comm *comm, const rcvi_transfer_options *options); /* of a rank alone: to bfloat16 */
rcv_status rcvi_device_comm_open(rcvi_comm *comm);                                    /* collective */

/* ---- the progress thread: progress_thread.c ---- */

rcv_status rcvi_progress_thread_open(rcvi_world *world); /* starts it; it opens the transport */
void rcvi_progress_thread_begin(rcvi_world *world);      /* after the heartbeat was allocated */
void rcvi_progress_thread_close(rcvi_world *world);      /* also without rcvi_progress_thread_begin */
/* Is this process a child of the one that opened the world? A child of fork() has no progress thread, and the lock may stay locked for ever. It is
 * not a rank: it may free the world, and nothing else. */
bool rcvi_world_is_foreign(const rcvi_world *world);

/* Waits for the condition, at most so long; with the lock held. */
void rcvi_world_wait(rcvi_world *world, pthread_cond_t *condition, double seconds);
/* After so many seconds without an event: poll (yield the core) instead of sleeping? */
bool rcvi_may_poll(const rcvi_world *world, double idle);
void rcvi_sleep(long nanoseconds);

/* ---- heartbeat and failure: heartbeat.c ---- */

rcv_status rcvi_heartbeat_new(rcvi_world *world); /* after the transport was opened */
void rcvi_heartbeat_free(rcvi_world *world);
double rcvi_heartbeat_interval(const rcvi_world *world); /* seconds between two heartbeats */
void rcvi_heartbeat_advance(rcvi_world *world);          /* by the progress thread: sends, receives, checks timeouts */
void rcvi_heartbeat_flush(rcvi_world *world); /* before the transport is closed: waits for notices in flight */

enum {
    RCVI_BREAK_REPORT = 1, /* this rank detected the failure: it sends the reason to the others and reports it */
    RCVI_BREAK_ABORT = 2   /* a rank may not answer: only the transport's abort ends it */
};
/* Breaks the world: no transfer follows. Only the first call counts. `flags`: RCVI_BREAK_... */
void rcvi_world_break(rcvi_world *world, unsigned flags, const char *format, ...) __attribute__((format(printf, 3, 4)));
rcv_status rcvi_world_broken(const rcvi_world *world); /* RCV_PEER, with the reason */

/* ---- the MPI module: mpi_module.c ---- */

rcv_status rcvi_transport_open(const rcvi_transport **transport);
bool rcvi_find_launcher(int *rank, int *size); /* from the environment; false: no launcher started this process */

#endif
