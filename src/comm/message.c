/* Messages of a transfer, as the progress thread sends and receives them. */
#include "comm/internal.h"

static int tag_of(const rcvi_transfer *t) {
    return t->collective ? RCVI_COMM_TAGS + (int)(t->sequence % RCVI_COMM_CONCURRENT) : t->options.tag;
}

static void fail(rcvi_transfer *t, int peer, const char *why) {
    rcvi_world_break(t->comm->world, RCVI_BREAK_REPORT | RCVI_BREAK_ABORT, "a message to or from rank %d failed: %s",
                     t->comm->ranks[peer], why);
}

void rcvi_message_send(rcvi_transfer *t, int to, const void *bytes, size_t count, rcvi_request *request) {
    rcvi_world *w = t->comm->world;
    char why[RCVI_TRANSPORT_REASON] = "";
    if (!w->transport->send(t->comm->transport_comm, to, tag_of(t), bytes, count, request, why)) fail(t, to, why);
    w->events++;
    atomic_fetch_add_explicit(&w->bytes, (int64_t)count, memory_order_relaxed);
}

void rcvi_message_receive(rcvi_transfer *t, int from, void *bytes, size_t count, rcvi_request *request) {
    rcvi_world *w = t->comm->world;
    char why[RCVI_TRANSPORT_REASON] = "";
    if (!w->transport->receive(t->comm->transport_comm, from, tag_of(t), bytes, count, request, why))
        fail(t, from, why);
    w->events++;
}

bool rcvi_message_test(rcvi_transfer *t, int peer, rcvi_request *request) {
    rcvi_world *w = t->comm->world;
    char why[RCVI_TRANSPORT_REASON] = "";
    bool done = false;
    if (atomic_load(&w->broken)) return false;
    if (!request->active) return true;
    if (!w->transport->test(request, &done, why)) fail(t, peer, why);
    w->events += done;
    return done;
}

void rcvi_messages_cancel(rcvi_transfer *t) {
    for (size_t i = 0; i < t->request_count; i++) {
        if (t->requests[i].active) t->comm->world->transport->cancel(&t->requests[i]);
    }
}
