/* What the files of this folder share.
 *
 * The caller's thread checks, allocates and frees; the courier makes all calls of the transport, and allocates nothing. Between them lies one
 * lock: a transfer is the caller's until it is asked for and after it has ended, the courier's between. */
#ifndef RCVI_COMM_PARTS_H
#define RCVI_COMM_PARTS_H

#include "comm/comm.h"
#include "comm/nccl.h"
#include "comm/transport.h"

enum {
    RCVI_COMM_TAGS = 1024,     /* of sends and receives; those of collectives follow */
    RCVI_COMM_ROUND = 4,       /* collectives of a group that may be under way at once: each has a tag of its own */
    RCVI_COMM_WINDOW = 4,      /* messages of a transfer that are under way at once, each way */
    RCVI_COMM_PIECE = 1 << 18, /* bytes of a message that is summed or rounded on its way */
    RCVI_COMM_FEW = 64,        /* elements that are exchanged whole, and reduced by everybody */
    RCVI_COMM_SENTENCE = 512
};

typedef struct rcvi_world rcvi_world;
typedef struct rcvi_watch rcvi_watch; /* who was heard when: watch.c */

struct rcvi_comm {
    rcvi_world *world;
    rcvi_transport_group *group; /* NULL: all */
    int rank, size;
    int *ranks;        /* [size], in the world */
    unsigned sequence; /* collectives asked for */
    /* What all say to each other before they agree or part: made before, since they must not fail for want of memory. */
    int32_t *words;       /* [size, 2] */
    int64_t *word_starts; /* [size + 1], bytes */
    rcvi_nccl *nccl;      /* made when first needed */
};

/* Memory that transfers borrow from their world: messages that are summed or rounded. */
typedef struct rcvi_scratch {
    struct rcvi_scratch *next;
    _Alignas(16) char slots[2 * RCVI_COMM_WINDOW][RCVI_COMM_PIECE];
} rcvi_scratch;

/* A device's, borrowed the same way by transfers that go through the host. */
typedef struct rcvi_berth {
    struct rcvi_berth *next;
    rcvi_ferry *ferry;
    size_t bytes;
} rcvi_berth;

struct rcvi_world {
    rcvi_comm all;
    rcv_context *context;
    unsigned process;                /* that opened it */
    const rcvi_transport *transport; /* NULL: this rank is alone, and there is no courier */
    rcvi_transport_facts facts;
    double timeout;
    char name[256];
    const rcvi_device *device; /* whose memory `on_device` means; NULL, or one without ferries: the host's */
    int ordinal;
    bool shares;                              /* ranks have the same device */
    bool wants_nccl, may_use_nccl, uses_nccl; /* asked for by its name; not ruled out; so it is */
    atomic_bool polls;                        /* a GPU computes, and this rank has cores to wait on */
    rcvi_watch *watch;
    pthread_t thread;
    /* What the rank does: moves are counted, waiting is 1 inside of rcvi_comm_finish. */
    _Atomic uint64_t progress;
    atomic_int waiting;
    _Atomic int64_t transfers, bytes; /* sent */
    atomic_bool broken;               /* nothing follows */
    atomic_bool quiet;                /* all ranks leave: nobody is watched any longer */
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake, ended; /* the courier; who waits for it */
    rcvi_transfer *asked;       /* in order */
    rcvi_transfer **asked_end;
    rcvi_transfer *awaited; /* in rcvi_comm_finish */
    rcvi_scratch *scratch;
    rcvi_berth *berths;
    bool opened;                       /* the transport, or why not */
    bool begun;                        /* the courier may carry */
    bool leaving;                      /* the courier may go */
    bool announced;                    /* all that is to be told of the end was told */
    bool speaks;                       /* this rank says why the world broke */
    bool hung;                         /* since somebody does not answer, whom nothing but the transport's abort ends */
    char opening[RCVI_TRANSPORT_WHY];  /* why the transport could not be opened */
    char sentence[RCVI_COMM_SENTENCE]; /* why it broke, as it is told here */
    /* The courier's. */
    rcvi_transfer *queue; /* not begun or under way, in the order in which they were asked for */
    uint64_t events;      /* messages begun and ended */
};

/* How a kind of transfer goes. */
typedef struct {
    rcv_status (*prepare)(rcvi_transfer *transfer); /* by the caller: state, requests, scratch */
    bool (*advance)(rcvi_transfer *transfer);       /* by the courier, again and again: true when all is done */
} rcvi_exchange;

extern const rcvi_exchange rcvi_exchange_ring;  /* sums, gathers */
extern const rcvi_exchange rcvi_exchange_few;   /* sums of few elements */
extern const rcvi_exchange rcvi_exchange_relay; /* broadcasts, sends, receives */
extern const rcvi_exchange rcvi_exchange_nccl;  /* collectives in a GPU's memory */

typedef enum { RCVI_LEG_NONE, RCVI_LEG_FETCH, RCVI_LEG_EXCHANGE, RCVI_LEG_DELIVER } rcvi_leg;

struct rcvi_transfer {
    rcvi_transfer *next;
    rcvi_comm *comm;
    rcvi_transfer_options options;
    const rcvi_exchange *exchange;
    rcvi_transfer_times times;
    unsigned sequence;              /* among the collectives of its group */
    bool collective, begun, posted; /* posted: it has no message left to ask the transport for */
    atomic_bool ended;
    rcv_status status;
    char *data;  /* what messages are made of: the options', or a ferry's block */
    void *state; /* its exchange's */
    rcvi_request *requests;
    size_t request_count;
    rcvi_scratch *scratch;
    rcvi_berth *berth;
    rcvi_leg leg;
    bool ferried; /* the leg's copy was enqueued */
};

/* ---- groups: comm.c ---- */

rcv_status rcvi_comm_fill(rcvi_comm *comm, rcvi_world *world, int rank, int size);
void rcvi_comm_empty(rcvi_comm *comm); /* also one that could not be filled */
/* Everybody's two words, to all: comm->words. */
rcv_status rcvi_comm_tell_words(rcvi_comm *comm, int32_t first, int32_t second);

/* ---- elements: elements.c ---- */

size_t rcvi_transfer_bytes(rcvi_transfer_type type); /* of an element */
void rcvi_transfer_combine(rcvi_transfer_kind kind, rcvi_transfer_type type, void *sum, const void *more,
                           int64_t count);
/* Floats as bfloat16, nearest even, and back; and rounded where they lie. */
void rcvi_narrow(uint16_t *to, const float *from, int64_t count);
void rcvi_widen(float *to, const uint16_t *from, int64_t count);
void rcvi_round(float *numbers, int64_t count);

/* ---- messages of a transfer, by the courier: message.c. What fails breaks the world, and is never done. ---- */

void rcvi_send(rcvi_transfer *transfer, int to, const void *bytes, size_t count, rcvi_request *request);
void rcvi_receive(rcvi_transfer *transfer, int from, void *bytes, size_t count, rcvi_request *request);
bool rcvi_arrived(rcvi_transfer *transfer, int peer, rcvi_request *request); /* or was never under way */
void rcvi_withdraw(rcvi_transfer *transfer);                                 /* all that is under way */

/* ---- transfers: transfer.c ---- */

/* For exchange's `prepare`: fills state and requests. */
rcv_status rcvi_transfer_room(rcvi_transfer *transfer, size_t state_bytes, size_t requests, bool scratch);
/* Starts what was checked before; without an exchange this rank is alone. */
rcv_status rcvi_transfer_ask(rcvi_comm *comm, const rcvi_transfer_options *options, const rcvi_exchange *exchange,
                             rcvi_transfer **transfer);

/* Data in a device's memory: staged.c. */
rcv_status rcvi_staged_prepare(rcvi_transfer *transfer);
void rcvi_staged_begin(rcvi_transfer *transfer);   /* by the courier */
bool rcvi_staged_advance(rcvi_transfer *transfer); /* as an exchange's, around it */
void rcvi_staged_close(rcvi_world *world);
rcv_status rcvi_staged_round(rcvi_comm *comm, const rcvi_transfer_options *options); /* of a rank alone */

/* ---- the courier: courier.c ---- */

rcv_status rcvi_courier_open(rcvi_world *world); /* and with it the transport */
void rcvi_courier_begin(rcvi_world *world);      /* once the watch is there */
void rcvi_courier_close(rcvi_world *world);      /* also one that never began */
/* A child of fork() has no courier, and the lock may stay locked: it is no rank, and nothing of the world may be touched but freed. */
bool rcvi_world_is_foreign(const rcvi_world *world);

/* Waits for `woken`, at most so long; under the lock. */
void rcvi_world_wait(rcvi_world *world, pthread_cond_t *woken, double seconds);
bool rcvi_counted(const rcvi_transfer_options *options);   /* what it waits for is there */
bool rcvi_may_yield(const rcvi_world *world, double idle); /* for so many seconds now: instead of sleeping */
void rcvi_nap(long nanoseconds);

/* ---- who moves: watch.c ---- */

rcv_status rcvi_watch_new(rcvi_world *world); /* once the ranks are known */
void rcvi_watch_free(rcvi_world *world);
double rcvi_watch_interval(const rcvi_world *world); /* seconds between two looks */
void rcvi_watch_look(rcvi_world *world);             /* by the courier */
void rcvi_watch_settle(rcvi_world *world);           /* before the transport is closed: nothing is left under way */
/* Nothing follows. The first to say so counts. `speaks`: this rank found out, and tells the others. */
void rcvi_world_break(rcvi_world *world, bool speaks, bool hung, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
rcv_status rcvi_world_broken(const rcvi_world *world); /* RCV_PEER, with the sentence */

/* ---- opening the module: module.c ---- */

rcv_status rcvi_transport_open(const rcvi_transport **transport);
bool rcvi_comm_launched(int *rank, int *size); /* by a program that starts ranks */

#endif
