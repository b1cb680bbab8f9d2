/* Collectives on data in the device's memory, by the library that the device's table offers (rcvi_collectives). */
#include "comm/internal.h"

/* Exchanges the library's id and connects the ranks. A failure of another rank ends the wait. */
rcv_status rcvi_device_comm_open(rcvi_comm *comm) {
    rcvi_world *w = comm->world;
    const rcvi_collectives *collectives = w->device->collectives;
    char id[RCVI_COLLECTIVE_ID] = "";
    if (comm->rank == 0) RCVI_TRY(collectives->make_id(id));
    rcvi_transfer_options broadcast = {.kind = RCVI_BROADCAST, .data = id, .count = sizeof id};
    RCVI_TRY(rcvi_transfer_run(comm, &broadcast));
    RCVI_TRY(collectives->open(w->context, w->ordinal, id, comm->rank, comm->size, &comm->device_comm));
    for (bool ready = false; !ready; rcvi_sleep(1000000)) {
        if (atomic_load(&w->broken)) return rcvi_world_broken(w);
        RCVI_TRY(collectives->test_ready(comm->device_comm, &ready));
    }
    return RCV_OK;
}

static const rcvi_collective_kind kinds[] = {
    [RCVI_ALL_REDUCE_SUM] = RCVI_COLLECTIVE_SUM,
    [RCVI_ALL_REDUCE_MAX] = RCVI_COLLECTIVE_MAX,
    [RCVI_REDUCE_SCATTER] = RCVI_COLLECTIVE_REDUCE_SCATTER,
    [RCVI_ALL_GATHER] = RCVI_COLLECTIVE_ALL_GATHER,
    [RCVI_BROADCAST] = RCVI_COLLECTIVE_BROADCAST,
};

static const rcv_dtype types[] = {
    [RCVI_TRANSFER_BYTES] = RCV_UINT8, [RCVI_TRANSFER_FLOAT] = RCV_FLOAT32, [RCVI_TRANSFER_DOUBLE] = RCV_FLOAT64};

static bool advance(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    const rcvi_transfer_options *o = &t->options;
    bool done = false;
    if (o->count == 0) return true;
    const rcvi_collective collective = {.kind = kinds[o->kind],
                                        .dtype = types[o->type],
                                        .data = t->data,
                                        .count = o->count,
                                        .starts = o->starts,
                                        .root = o->peer};
    if (w->device->collectives->advance(t->comm->device_comm, &collective, t->state, &done))
        rcvi_world_break(w, RCVI_BREAK_REPORT, "rank %d: %s", w->all.rank, rcv_message());
    return done;
}

static rcv_status prepare(rcvi_transfer *t) {
    return rcvi_transfer_allocate(t, t->comm->world->device->collectives->state_bytes, 0, false);
}

const rcvi_transfer_operations rcvi_device_collective_operations = {prepare, advance};
