/* Messages of a transfer, as its courier sends and receives them. */
#include "comm/parts.h"

static int tag_of(const rcvi_transfer *t) {
    return t->collective ? RCVI_COMM_TAGS + (int)(t->sequence % RCVI_COMM_ROUND) : t->options.tag;
}

static void lose(rcvi_transfer *t, int peer, const char *why) {
    rcvi_world_break(t->comm->world, true, true, "an exchange with rank %d failed: %s", t->comm->ranks[peer], why);
}

void rcvi_send(rcvi_transfer *t, int to, const void *bytes, size_t count, rcvi_request *request) {
    rcvi_world *w = t->comm->world;
    char why[RCVI_TRANSPORT_WHY] = "";
    if (!w->transport->send(t->comm->group, to, tag_of(t), bytes, count, request, why)) lose(t, to, why);
    w->events++;
    atomic_fetch_add_explicit(&w->bytes, (int64_t)count, memory_order_relaxed);
}

void rcvi_receive(rcvi_transfer *t, int from, void *bytes, size_t count, rcvi_request *request) {
    char why[RCVI_TRANSPORT_WHY] = "";
    if (!t->comm->world->transport->receive(t->comm->group, from, tag_of(t), bytes, count, request, why))
        lose(t, from, why);
    t->comm->world->events++;
}

bool rcvi_arrived(rcvi_transfer *t, int peer, rcvi_request *request) {
    rcvi_world *w = t->comm->world;
    char why[RCVI_TRANSPORT_WHY] = "";
    bool done = false;
    if (atomic_load(&w->broken)) return false;
    if (!request->active) return true;
    if (!w->transport->test(request, &done, why)) lose(t, peer, why);
    w->events += done;
    return done;
}

void rcvi_withdraw(rcvi_transfer *t) {
    for (size_t i = 0; i < t->request_count; i++) {
        if (t->requests[i].active) t->comm->world->transport->cancel(&t->requests[i]);
    }
}
