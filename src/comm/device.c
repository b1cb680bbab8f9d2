/* Which way a device's memory takes from rank to rank: all ranks say where theirs lies, and decide the same. */
#include "comm/parts.h"

#include <stdio.h>
#include <string.h>

/* Why NCCL cannot be, as all ranks see it; NULL: it can. `places`: [size], empty where a rank has no NCCL. */
static const char *doubt(char (*places)[RCVI_NCCL_PLACE], int size) {
    for (int i = 0; i < size; i++) {
        if (!places[i][0]) return "a rank has no NCCL";
        for (int j = 0; j < i; j++) {
            if (!memcmp(places[i], places[j], RCVI_NCCL_PLACE)) return "ranks share a GPU";
        }
    }
    return NULL;
}

static rcv_status tell_places(rcvi_world *w, char (*places)[RCVI_NCCL_PLACE], int64_t *starts) {
    char *own = places[w->all.rank];
    for (int i = 0; i <= w->all.size; i++) starts[i] = i * (int64_t)RCVI_NCCL_PLACE;
    if (w->may_use_nccl && (rcvi_nccl_there() || rcvi_nccl_place(w->ordinal, own))) own[0] = '\0';
    rcvi_transfer_options gather = {
        .kind = RCVI_GATHER_ALL, .data = places, .count = starts[w->all.size], .starts = starts};
    return rcvi_comm_do(&w->all, &gather);
}

static void name_way(rcvi_world *w, const char *reason) {
    size_t length = strlen(w->name);
    char *behind = w->name + length;
    size_t room = sizeof w->name - length;
    if (w->uses_nccl) {
        snprintf(behind, room, "; GPU memory by %s", rcvi_nccl_name());
    } else if (w->facts.takes_devices) {
        snprintf(behind, room, "; GPU memory directly, sums through the host");
    } else {
        snprintf(behind, room, "; GPU memory through the host%s%s", reason ? ": " : "", reason ? reason : "");
    }
}

static rcv_status decide(rcvi_world *w, char (*places)[RCVI_NCCL_PLACE], int64_t *starts) {
    RCVI_TRY(tell_places(w, places, starts));
    const char *reason = w->may_use_nccl ? doubt(places, w->all.size) : NULL;
    w->uses_nccl = w->may_use_nccl && !reason;
    if (w->wants_nccl && reason) return rcvi_fail(RCV_UNSUPPORTED, "NCCL cannot be used: %s", reason);
    name_way(w, reason);
    return RCV_OK;
}

rcv_status rcvi_comm_set_device(rcvi_comm *world, const rcvi_device *device, int ordinal) {
    rcvi_world *w = world->world;
    size_t size = (size_t)w->all.size;
    w->device = device;
    w->ordinal = ordinal;
    if (!device->ferries && w->wants_nccl)
        return rcvi_fail(RCV_UNSUPPORTED, "NCCL carries what lies in a GPU's memory, and the device is %s",
                         device->name);
    if (!device->ferries || (size == 1 && !w->wants_nccl)) return RCV_OK;
    char(*places)[RCVI_NCCL_PLACE] = rcvi_new(w->context, size, sizeof *places);
    int64_t *starts = rcvi_new(w->context, size + 1, sizeof *starts);
    rcv_status status = places && starts ? decide(w, places, starts) : RCV_NO_MEMORY;
    rcvi_free(w->context, places);
    rcvi_free(w->context, starts);
    return status;
}
