/* What lies in a device's memory: it goes as it is where the transport or NCCL takes it so. Else it is fetched into a block of the host's
 * memory, exchanged there and delivered, of which the courier only ever waits for the next. */
#include "comm/parts.h"

#include <stdio.h>
#include <string.h>

static const rcvi_ferries *ferries_of(const rcvi_world *w) { return w->device ? w->device->ferries : NULL; }

static bool is_summed(const rcvi_transfer_options *o) {
    return o->kind == RCVI_SUM_ALL || o->kind == RCVI_MAX_ALL || o->kind == RCVI_SUM_SHARES;
}

/* ---- which elements move ---- */

typedef struct {
    int64_t first, count;
} range;

static range share_of(const rcvi_transfer *t) {
    const int64_t *starts = t->options.starts + t->comm->rank;
    return (range){starts[0], starts[1] - starts[0]};
}

static range fetched(const rcvi_transfer *t) {
    bool is_target =
        t->options.kind == RCVI_RECEIVE || (t->options.kind == RCVI_BROADCAST && t->options.peer != t->comm->rank);
    if (t->options.kind == RCVI_GATHER_ALL) return share_of(t);
    return (range){0, is_target ? 0 : t->options.count};
}

static range delivered(const rcvi_transfer *t) {
    bool is_source = t->options.kind == RCVI_SEND ||
                     (t->options.kind == RCVI_BROADCAST && !t->options.narrow && t->options.peer == t->comm->rank);
    if (t->options.kind == RCVI_SUM_SHARES) return share_of(t);
    return (range){0, is_source ? 0 : t->options.count};
}

/* ---- a ferry for a transfer ---- */

static rcvi_berth *borrow(rcvi_world *w, size_t bytes) {
    pthread_mutex_lock(&w->lock);
    rcvi_berth **place = &w->berths;
    while (*place && (*place)->bytes < bytes && (*place)->next) place = &(*place)->next;
    rcvi_berth *berth = *place; /* one that is large enough, or the last */
    if (berth) *place = berth->next;
    pthread_mutex_unlock(&w->lock);
    return berth ? berth : rcvi_new(w->context, 1, sizeof *berth);
}

/* The transfer has the berth from here on, whether it could be made large enough or not. */
static rcv_status board(rcvi_transfer *t, size_t bytes) {
    rcvi_world *w = t->comm->world;
    rcvi_berth *berth = t->berth = borrow(w, bytes);
    if (!berth) return RCV_NO_MEMORY;
    if (berth->ferry && berth->bytes >= bytes) return RCV_OK;
    if (berth->ferry) w->device->ferries->close(berth->ferry);
    berth->ferry = NULL;
    berth->bytes = 0;
    RCVI_TRY(w->device->ferries->open(w->context, w->ordinal, bytes, &berth->ferry));
    berth->bytes = bytes;
    return RCV_OK;
}

void rcvi_staged_close(rcvi_world *w) {
    for (rcvi_berth *berth; (berth = w->berths);) {
        w->berths = berth->next;
        if (berth->ferry) w->device->ferries->close(berth->ferry);
        rcvi_free(w->context, berth);
    }
}

/* ---- preparing ---- */

static rcv_status join(rcvi_comm *comm) {
    rcvi_world *w = comm->world;
    char id[RCVI_NCCL_ID] = "";
    if (comm->rank == 0) RCVI_TRY(rcvi_nccl_make_id(id));
    rcvi_transfer_options tell = {.kind = RCVI_BROADCAST, .data = id, .count = sizeof id};
    RCVI_TRY(rcvi_comm_do(comm, &tell));
    RCVI_TRY(rcvi_nccl_open(w->context, w->ordinal, id, comm->rank, comm->size, &comm->nccl));
    for (bool ready = false; !ready; rcvi_nap(1000000)) {
        if (atomic_load(&w->broken)) return rcvi_world_broken(w);
        RCVI_TRY(rcvi_nccl_ready(comm->nccl, &ready));
    }
    return RCV_OK;
}

rcv_status rcvi_staged_prepare(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    const rcvi_transfer_options *o = &t->options;
    const rcvi_ferries *ferries = ferries_of(w);
    if (!ferries) return RCV_OK;
    if (w->uses_nccl && t->collective && !o->narrow) {
        t->exchange = &rcvi_exchange_nccl;
        return t->comm->nccl ? RCV_OK : join(t->comm);
    }
    if (w->facts.takes_devices && !o->narrow && !is_summed(o)) return RCV_OK;
    RCVI_TRY(board(t, (size_t)o->count * rcvi_transfer_bytes(o->type)));
    t->data = ferries->block(t->berth->ferry);
    t->leg = RCVI_LEG_FETCH;
    return RCV_OK;
}

/* ---- going ---- */

static bool give_up(rcvi_world *w) {
    rcvi_world_break(w, true, false, "rank %d: %s", w->all.rank, rcv_message());
    return false;
}

void rcvi_staged_begin(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    if (t->options.on_device && ferries_of(w) && ferries_of(w)->attend(w->ordinal)) give_up(w);
}

/* True when the elements have been copied. */
static bool ferry(rcvi_transfer *t, range r, bool fetches) {
    rcvi_world *w = t->comm->world;
    const rcvi_ferries *ferries = ferries_of(w);
    size_t element = rcvi_transfer_bytes(t->options.type), at = (size_t)r.first * element;
    size_t bytes = (size_t)r.count * element;
    char *data = t->options.data;
    bool done = true;
    rcv_status status = RCV_OK;
    if (bytes == 0) return true;
    if (!t->ferried && fetches) status = ferries->fetch(t->berth->ferry, at, data + at, bytes);
    if (!t->ferried && !fetches) status = ferries->deliver(t->berth->ferry, data + at, at, bytes);
    t->ferried = true;
    if (!status) status = ferries->test(t->berth->ferry, &done);
    if (status) return give_up(w);
    if (done) t->ferried = false;
    return done;
}

bool rcvi_staged_advance(rcvi_transfer *t) {
    if (t->leg == RCVI_LEG_FETCH && ferry(t, fetched(t), true)) t->leg = RCVI_LEG_EXCHANGE;
    if (t->leg == RCVI_LEG_EXCHANGE && t->exchange->advance(t)) t->leg = RCVI_LEG_DELIVER;
    return t->leg == RCVI_LEG_DELIVER && ferry(t, delivered(t), false);
}

rcv_status rcvi_staged_round(rcvi_comm *comm, const rcvi_transfer_options *o) {
    rcvi_world *w = comm->world;
    const rcvi_memory *memory = w->device ? w->device->memory : NULL;
    size_t bytes = (size_t)o->count * sizeof(float);
    if (!memory) {
        rcvi_round(o->data, o->count);
        return RCV_OK;
    }
    float *numbers = rcvi_new(w->context, (size_t)o->count, sizeof *numbers);
    if (!numbers) return RCV_NO_MEMORY;
    rcv_status status = memory->read(w->ordinal, numbers, o->data, bytes);
    rcvi_round(numbers, o->count);
    if (!status) status = memory->write(w->ordinal, o->data, numbers, bytes);
    rcvi_free(w->context, numbers);
    return status;
}
