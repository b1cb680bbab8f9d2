/* Which way a device's memory takes from rank to rank: all ranks say where theirs lies, and decide the same. */
#include "comm/parts.h"

#include <stdio.h>
#include <string.h>

/* What a rank says of itself. */
typedef struct {
    char place[RCVI_PLACE];
    bool has_nccl, takes_turns;
} told;

static bool all_have_nccl(const told *ranks, int size) {
    for (int i = 0; i < size; i++) {
        if (!ranks[i].has_nccl) return false;
    }
    return true;
}

/* A rank that has another one's device; NULL: all have their own. */
static const told *find_shared(const told *ranks, int size) {
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < i; j++) {
            if (!memcmp(ranks[i].place, ranks[j].place, RCVI_PLACE)) return &ranks[i];
        }
    }
    return NULL;
}

static rcv_status tell(rcvi_world *w, told *ranks, int64_t *starts) {
    told *own = &ranks[w->all.rank];
    for (int i = 0; i <= w->all.size; i++) starts[i] = i * (int64_t)sizeof *ranks;
    if (w->wants_nccl) RCVI_TRY(rcvi_comm_agree(&w->all, rcvi_nccl_there()));
    own->has_nccl = w->may_use_nccl && !rcvi_nccl_there();
    own->takes_turns = w->device->ferries->takes_turns(w->ordinal);
    RCVI_TRY(rcvi_comm_agree(&w->all, w->device->ferries->place(w->ordinal, own->place)));
    rcvi_transfer_options gather = {
        .kind = RCVI_GATHER_ALL, .data = ranks, .count = starts[w->all.size], .starts = starts};
    return rcvi_comm_do(&w->all, &gather);
}

/* Behind the transport's name, in place of what was said of another device. */
static void name_way(rcvi_world *w, const char *reason) {
    char *behind = strstr(w->name, "; GPU memory");
    if (!behind) behind = w->name + strlen(w->name);
    size_t room = sizeof w->name - (size_t)(behind - w->name);
    if (w->uses_nccl) {
        snprintf(behind, room, "; GPU memory by %s", rcvi_nccl_name());
    } else if (w->facts.takes_devices) {
        snprintf(behind, room, "; GPU memory directly, sums through the host");
    } else {
        snprintf(behind, room, "; GPU memory through the host%s%s", reason ? ": " : "", reason ? reason : "");
    }
    if (!atomic_load(&w->polls) && rcvi_own_cores() < rcvi_cores())
        snprintf(w->name + strlen(w->name), sizeof w->name - strlen(w->name),
                 "; one core a rank, which mpirun --bind-to none would not hold it to");
}

static rcv_status decide(rcvi_world *w, told *ranks, int64_t *starts) {
    RCVI_TRY(tell(w, ranks, starts));
    const told *shared = find_shared(ranks, w->all.size);
    const char *reason = NULL;
    w->shares = shared != NULL;
    if (shared)
        reason = shared->takes_turns ? "ranks share a GPU, and take turns at it, since CUDA's MPS does not run"
                                     : "ranks share a GPU, by CUDA's MPS";
    else if (w->may_use_nccl && !all_have_nccl(ranks, w->all.size))
        reason = "a rank has no NCCL";
    w->uses_nccl = w->may_use_nccl && !reason;
    if (w->wants_nccl && reason) return rcvi_fail(RCV_UNSUPPORTED, "NCCL cannot be used: %s", reason);
    name_way(w, reason);
    return RCV_OK;
}

bool rcvi_comm_shares_device(const rcvi_comm *world) { return world->world->shares; }

rcv_status rcvi_comm_set_device(rcvi_comm *world, const rcvi_device *device, int ordinal) {
    rcvi_world *w = world->world;
    size_t size = (size_t)w->all.size;
    w->device = device;
    w->ordinal = ordinal;
    atomic_store(&w->polls, device->ferries && rcvi_comm_cores(world, rcvi_cores()) >= 2);
    if (!device->ferries && w->wants_nccl)
        return rcvi_fail(RCV_UNSUPPORTED, "NCCL carries what lies in a GPU's memory, and the device is %s",
                         device->name);
    if (!device->ferries || (size == 1 && !w->wants_nccl)) return RCV_OK;
    told *ranks = rcvi_new(w->context, size, sizeof *ranks);
    int64_t *starts = rcvi_new(w->context, size + 1, sizeof *starts);
    rcv_status status = ranks && starts ? decide(w, ranks, starts) : RCV_NO_MEMORY;
    rcvi_free(w->context, ranks);
    rcvi_free(w->context, starts);
    return status;
}
