/* What carries messages between ranks, as a table: a module fills it that is opened at run time, is compiled by itself and sees nothing
 * of the library but this header.
 *
 * All calls are made by one thread, `open` first. What returns bool is false when it failed, with the reason in `why`, which has
 * room for RCVI_TRANSPORT_WHY bytes. */
#ifndef RCVI_TRANSPORT_H
#define RCVI_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RCVI_TRANSPORT_ABI = 1, /* raised when the table changes */
    RCVI_TRANSPORT_WHY = 256,
    RCVI_TRANSPORT_MOST = 1 << 30, /* bytes of a message */
    RCVI_TRANSPORT_TAGS = 32768    /* tags are below */
};

typedef struct {
    int rank, size;
    int here;           /* ranks on this machine */
    bool takes_devices; /* messages may lie in a GPU's memory */
    char name[64];      /* for people, with the version */
} rcvi_transport_facts;

typedef struct rcvi_transport_group rcvi_transport_group; /* NULL is the world */

typedef struct {
    uint64_t handle;
    bool active; /* under way: from the call that made it to the test that found it done, or its cancellation */
} rcvi_request;

typedef struct {
    int abi;
    bool (*open)(rcvi_transport_facts *facts, char *why);
    void (*close)(void); /* all ranks together, with nothing under way */
    void (*abort)(void); /* of all ranks, those too that do not answer; does not return */
    /* Collective. */
    bool (*split)(rcvi_transport_group *of, int colour, int key, rcvi_transport_group **part, char *why);
    void (*release)(rcvi_transport_group *part);
    /* Messages of two ranks with equal tags of a group arrive in the order in which they were sent. */
    bool (*send)(rcvi_transport_group *group, int to, int tag, const void *bytes, size_t count, rcvi_request *request,
                 char *why);
    bool (*receive)(rcvi_transport_group *group, int from, int tag, void *bytes, size_t count, rcvi_request *request,
                    char *why);
    bool (*test)(rcvi_request *request, bool *done, char *why);
    void (*cancel)(rcvi_request *request);
    /* Notices go beside all messages, to and from anybody of the world. */
    bool (*notify)(int to, const void *bytes, size_t count, rcvi_request *request, char *why);
    bool (*hear)(void *bytes, size_t room, size_t *count, char *why); /* *count is 0 where there is none */
} rcvi_transport;

/* What a module exports, by the name RCVI_TRANSPORT_SYMBOL. */
extern const rcvi_transport rcvi_transport_mpi;
#define RCVI_TRANSPORT_SYMBOL "rcvi_transport_mpi"

#endif
