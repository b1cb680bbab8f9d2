/* Communicators that are split from others. */
#include "comm/internal.h"

/* Splitting and releasing are calls of the transport, which the progress thread makes: they are submitted as transfers whose data is this. */
typedef struct {
    rcvi_transport_comm *comm; /* to release; NULL: to make */
    int colour, key;
} split_call;

static bool advance(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    split_call *call = (split_call *)t->data;
    char why[RCVI_TRANSPORT_REASON] = "";
    if (call->comm) {
        w->transport->release(call->comm);
    } else if (!w->transport->split(t->comm->transport_comm, call->colour, call->key, &call->comm, why)) {
        rcvi_world_break(w, RCVI_BREAK_REPORT | RCVI_BREAK_ABORT, "rank %d could not split a communicator: %s",
                         w->all.rank, why);
    }
    return true;
}

static const rcvi_transfer_operations split_operations = {NULL, advance};

static rcv_status run_call(rcvi_comm *comm, split_call *call) {
    rcvi_transfer_options options = {.kind = RCVI_BROADCAST, .data = call};
    rcvi_transfer *transfer = NULL;
    RCVI_TRY(rcvi_transfer_submit(comm, &options, &split_operations, &transfer));
    return rcvi_transfer_wait(transfer, NULL);
}

/* The ranks of this one's colour, ordered by (key, rank). parent->words: [size, 2], colour and key of every rank. */
static void list_members(const rcvi_comm *parent, int colour, rcvi_comm *comm) {
    const int32_t *words = parent->words;
    for (int i = 0; i < parent->size; i++) {
        int before = 0;
        if (words[2 * i] != colour) continue;
        for (int j = 0; j < parent->size; j++) {
            bool first = words[2 * j + 1] < words[2 * i + 1] || (words[2 * j + 1] == words[2 * i + 1] && j < i);
            before += words[2 * j] == colour && first;
        }
        comm->ranks[before] = parent->ranks[i];
        if (i == parent->rank) comm->rank = before;
    }
}

static rcv_status init_split(rcvi_comm *parent, int colour, int key, rcvi_comm *comm) {
    int size = 0;
    for (int i = 0; i < parent->size; i++) size += parent->words[2 * i] == colour;
    RCVI_TRY(rcvi_comm_init(comm, parent->world, 0, size));
    list_members(parent, colour, comm);
    if (parent->size == 1) return RCV_OK;
    split_call call = {.colour = colour, .key = key};
    RCVI_TRY(run_call(parent, &call));
    comm->transport_comm = call.comm;
    return RCV_OK;
}

/* The colours are all-gathered first. The transport's split blocks the progress thread until all ranks call it: so no rank calls it before all
 * have arrived here. */
rcv_status rcvi_comm_split(rcvi_comm *parent, int colour, int key, rcvi_comm **comm) {
    *comm = NULL;
    if (colour < 0) return rcvi_fail(RCV_INVALID, "the colour of a communicator is %d, below 0", colour);
    RCVI_TRY(rcvi_comm_all_gather_words(parent, colour, key));
    rcvi_comm *made = rcvi_new(parent->world->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->world = parent->world;
    rcv_status status = init_split(parent, colour, key, made);
    if (status) {
        rcvi_comm_free(made);
        return status;
    }
    *comm = made;
    return RCV_OK;
}

void rcvi_comm_free(rcvi_comm *comm) {
    if (!comm) return;
    split_call call = {.comm = comm->transport_comm};
    if (comm->transport_comm) run_call(comm, &call); /* in a broken world it does nothing */
    rcvi_comm_release(comm);
    rcvi_free(comm->world->context, comm);
}
