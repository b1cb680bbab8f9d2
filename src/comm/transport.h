/* A transport: a table of functions that carry messages between ranks. A module that is opened at run time exports it. The module is compiled
 * separately, and includes nothing of the library except this header.
 *
 * One thread makes all calls, `open` first. A function that returns bool returns false on failure, and writes the reason to
 * `why`, [RCVI_TRANSPORT_REASON] bytes. */
#ifndef RCVI_TRANSPORT_H
#define RCVI_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RCVI_TRANSPORT_ABI = 1, /* raised when the table changes */
    RCVI_TRANSPORT_REASON = 256,
    RCVI_TRANSPORT_MAX_BYTES = 1 << 30, /* of a message */
    RCVI_TRANSPORT_TAGS = 32768         /* tags are 0 to RCVI_TRANSPORT_TAGS - 1 */
};

typedef struct {
    int rank, size;
    int local_size;             /* ranks on this machine */
    bool accepts_device_memory; /* messages may lie in a GPU's memory */
    char name[64];              /* for users, with the version */
} rcvi_transport_facts;

typedef struct rcvi_transport_comm rcvi_transport_comm; /* a communicator of the transport; NULL is the world */

typedef struct {
    uint64_t handle;
    bool active; /* in flight: from the call that started it until a test finds it complete, or it is cancelled */
} rcvi_request;

typedef struct {
    int abi;
    bool (*open)(rcvi_transport_facts *facts, char *why);
    void (*close)(void); /* by all ranks together, with nothing in flight */
    void (*abort)(void); /* ends all ranks, also those that do not answer; does not return */
    /* Collective. */
    bool (*split)(rcvi_transport_comm *parent, int colour, int key, rcvi_transport_comm **comm, char *why);
    void (*release)(rcvi_transport_comm *comm);
    /* Non-blocking. Messages between two ranks with the same tag and communicator arrive in the order in which they were sent. */
    bool (*send)(rcvi_transport_comm *comm, int to, int tag, const void *bytes, size_t count, rcvi_request *request,
                 char *why);
    bool (*receive)(rcvi_transport_comm *comm, int from, int tag, void *bytes, size_t count, rcvi_request *request,
                    char *why);
    bool (*test)(rcvi_request *request, bool *done, char *why);
    void (*cancel)(rcvi_request *request);
    /* Notices: small messages between any two ranks of the world, on a communicator of their own. */
    bool (*send_notice)(int to, const void *bytes, size_t count, rcvi_request *request, char *why);
    bool (*receive_notice)(void *bytes, size_t room, size_t *count, char *why); /* *count is 0: none has arrived */
} rcvi_transport;

/* The symbol that a module exports, and its name. */
extern const rcvi_transport rcvi_transport_mpi;
#define RCVI_TRANSPORT_SYMBOL "rcvi_transport_mpi"

#endif
