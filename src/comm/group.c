/* Groups that are made of others, and how a group agrees. */
#include "comm/parts.h"

#include <stdio.h>
#include <string.h>

/* ---- parts ---- */

/* What the courier makes or releases; where a transfer has its data. */
typedef struct {
    rcvi_transport_group *part;
    int colour, key;
} division;

static bool advance(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    division *d = (division *)t->data;
    char why[RCVI_TRANSPORT_WHY] = "";
    if (d->part) {
        w->transport->release(d->part);
    } else if (!w->transport->split(t->comm->group, d->colour, d->key, &d->part, why)) {
        rcvi_world_break(w, true, true, "rank %d could not make a group: %s", w->all.rank, why);
    }
    return true;
}

static const rcvi_exchange exchange_divide = {NULL, advance};

static rcv_status divide(rcvi_comm *comm, division *d) {
    rcvi_transfer_options options = {.kind = RCVI_BROADCAST, .data = d};
    rcvi_transfer *transfer = NULL;
    RCVI_TRY(rcvi_transfer_ask(comm, &options, &exchange_divide, &transfer));
    return rcvi_comm_finish(transfer, NULL);
}

/* The ranks of this one's colour, by (key, rank). */
static void list_members(const rcvi_comm *comm, int colour, rcvi_comm *part) {
    const int32_t *words = comm->words;
    for (int i = 0; i < comm->size; i++) {
        int before = 0;
        if (words[2 * i] != colour) continue;
        for (int j = 0; j < comm->size; j++) {
            bool first = words[2 * j + 1] < words[2 * i + 1] || (words[2 * j + 1] == words[2 * i + 1] && j < i);
            before += words[2 * j] == colour && first;
        }
        part->ranks[before] = comm->ranks[i];
        if (i == comm->rank) part->rank = before;
    }
}

static rcv_status make(rcvi_comm *comm, int colour, int key, rcvi_comm *part) {
    int size = 0;
    for (int i = 0; i < comm->size; i++) size += comm->words[2 * i] == colour;
    RCVI_TRY(rcvi_comm_fill(part, comm->world, 0, size));
    list_members(comm, colour, part);
    if (comm->size == 1) return RCV_OK;
    division d = {.colour = colour, .key = key};
    RCVI_TRY(divide(comm, &d));
    part->group = d.part;
    return RCV_OK;
}

/* All have said where they go before the transport is asked, which waits for all of them and listens to nobody. */
rcv_status rcvi_comm_split(rcvi_comm *comm, int colour, int key, rcvi_comm **part) {
    *part = NULL;
    if (colour < 0) return rcvi_fail(RCV_INVALID, "a group's colour is %d, below 0", colour);
    RCVI_TRY(rcvi_comm_tell_words(comm, colour, key));
    rcvi_comm *made = rcvi_new(comm->world->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->world = comm->world;
    rcv_status status = make(comm, colour, key, made);
    if (status) {
        rcvi_comm_leave(made);
        return status;
    }
    *part = made;
    return RCV_OK;
}

void rcvi_comm_leave(rcvi_comm *part) {
    if (!part) return;
    division d = {.part = part->group};
    if (part->group) divide(part, &d); /* in a world that broke it does nothing */
    rcvi_comm_empty(part);
    rcvi_free(part->world->context, part);
}

/* ---- agreement ---- */

static int find_failed(const rcvi_comm *comm) {
    for (int i = 0; i < comm->size; i++) {
        if (comm->words[2 * i] != RCV_OK) return i;
    }
    return -1;
}

static rcv_status learn(rcvi_comm *comm, rcv_status status, char *sentence) {
    RCVI_TRY(rcvi_comm_tell_words(comm, (int32_t)status, 0));
    int failed = find_failed(comm);
    if (failed < 0) return RCV_OK;
    rcvi_transfer_options tell = {
        .kind = RCVI_BROADCAST, .data = sentence, .count = RCVI_COMM_SENTENCE, .peer = failed};
    RCVI_TRY(rcvi_comm_do(comm, &tell));
    sentence[RCVI_COMM_SENTENCE - 1] = '\0';
    if (failed == comm->rank) return status;
    return rcvi_fail(RCV_PEER, "rank %d: %s", comm->ranks[failed], sentence);
}

rcv_status rcvi_comm_agree(rcvi_comm *comm, rcv_status status) {
    char own[4096], told[RCVI_COMM_SENTENCE] = "";
    snprintf(own, sizeof own, "%s", status ? rcv_message() : "");
    memcpy(told, own, sizeof told - 1);
    rcv_status agreed = learn(comm, status, told);
    bool is_own = status && (agreed == status || atomic_load(&comm->world->broken));
    return is_own ? rcvi_fail(status, "%s", own) : agreed;
}
