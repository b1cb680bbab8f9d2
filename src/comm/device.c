/* How a device's memory travels between ranks: all ranks exchange what their devices can do, and decide the same. */
#include "comm/internal.h"

#include <stdio.h>
#include <string.h>

/* What a rank sends to the others about its device. */
typedef struct {
    char id[RCVI_DEVICE_ID];
    bool has_collectives, is_time_sliced;
} device_facts;

static bool all_have_collectives(const device_facts *ranks, int size) {
    for (int i = 0; i < size; i++) {
        if (!ranks[i].has_collectives) return false;
    }
    return true;
}

/* A rank that has the same device as a lower rank; NULL: all devices differ. */
static const device_facts *find_shared(const device_facts *ranks, int size) {
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < i; j++) {
            if (!memcmp(ranks[i].id, ranks[j].id, RCVI_DEVICE_ID)) return &ranks[i];
        }
    }
    return NULL;
}

static rcv_status check_collectives(const rcvi_world *w) {
    if (w->device->collectives) return w->device->collectives->check_available();
    return rcvi_fail(RCV_UNSUPPORTED, "device %s has no NCCL", w->device->name);
}

static rcv_status exchange_facts(rcvi_world *w, device_facts *ranks, int64_t *starts) {
    device_facts *own = &ranks[w->all.rank];
    for (int i = 0; i <= w->all.size; i++) starts[i] = i * (int64_t)sizeof *ranks;
    if (w->requires_collectives) RCVI_TRY(rcvi_comm_agree(&w->all, check_collectives(w)));
    own->has_collectives = w->may_use_collectives && !check_collectives(w);
    own->is_time_sliced = w->device->staging->is_time_sliced(w->ordinal);
    RCVI_TRY(rcvi_comm_agree(&w->all, w->device->staging->identify(w->ordinal, own->id)));
    rcvi_transfer_options gather = {
        .kind = RCVI_ALL_GATHER, .data = ranks, .count = starts[w->all.size], .starts = starts};
    return rcvi_transfer_run(&w->all, &gather);
}

/* Appends to the transport's name how a GPU's memory travels; replaces what an earlier call appended. */
static void append_to_name(rcvi_world *w, const char *reason) {
    char *end = strstr(w->name, "; GPU memory");
    if (!end) end = w->name + strlen(w->name);
    size_t room = sizeof w->name - (size_t)(end - w->name);
    if (w->uses_collectives) {
        snprintf(end, room, "; GPU memory by %s", w->device->collectives->name());
    } else if (w->facts.accepts_device_memory) {
        snprintf(end, room, "; GPU memory directly, sums through the host");
    } else {
        snprintf(end, room, "; GPU memory through the host%s%s", reason ? ": " : "", reason ? reason : "");
    }
    if (!atomic_load(&w->polls) && rcvi_available_cores() < rcvi_cores())
        snprintf(w->name + strlen(w->name), sizeof w->name - strlen(w->name),
                 "; each rank is bound to one core: mpirun --bind-to none lifts that");
}

static rcv_status choose_path(rcvi_world *w, device_facts *ranks, int64_t *starts) {
    RCVI_TRY(exchange_facts(w, ranks, starts));
    const device_facts *shared = find_shared(ranks, w->all.size);
    const char *reason = NULL;
    w->shares_device = shared != NULL;
    if (shared)
        reason = shared->is_time_sliced ? "ranks share a GPU in time slices, since CUDA's MPS does not run"
                                        : "ranks share a GPU, by CUDA's MPS";
    else if (w->may_use_collectives && !all_have_collectives(ranks, w->all.size))
        reason = "a rank has no NCCL";
    w->uses_collectives = w->may_use_collectives && !reason;
    if (w->requires_collectives && reason) return rcvi_fail(RCV_UNSUPPORTED, "NCCL cannot be used: %s", reason);
    append_to_name(w, reason);
    return RCV_OK;
}

bool rcvi_comm_shares_device(const rcvi_comm *world) { return world->world->shares_device; }

rcv_status rcvi_comm_set_device(rcvi_comm *world, const rcvi_device *device, int ordinal) {
    rcvi_world *w = world->world;
    size_t size = (size_t)w->all.size;
    w->device = device;
    w->ordinal = ordinal;
    atomic_store(&w->polls, device->staging && rcvi_comm_cores(world, rcvi_cores()) >= 2);
    if (!device->staging && w->requires_collectives)
        return rcvi_fail(RCV_UNSUPPORTED, "the transport nccl needs a GPU, but the device is %s", device->name);
    if (!device->staging || (size == 1 && !w->requires_collectives)) return RCV_OK;
    device_facts *ranks = rcvi_new(w->context, size, sizeof *ranks);
    int64_t *starts = rcvi_new(w->context, size + 1, sizeof *starts);
    rcv_status status = ranks && starts ? choose_path(w, ranks, starts) : RCV_NO_MEMORY;
    rcvi_free(w->context, ranks);
    rcvi_free(w->context, starts);
    return status;
}
