/* Heartbeats, and the end of a broken world. Every rank sends a heartbeat to rank 0: how much progress it has made, and whether it waits for other
 * ranks. Rank 0 sends one to all. Rank 0 checks all other ranks, and rank 1 checks rank 0. The rank that finds another one without
 * progress, or that cannot continue itself, sends a failure notice to all: the world is then broken, and all transfers end. */
#include "comm/internal.h"

#include <stdio.h>
#include <string.h>

static const double notice_interval = 1e-3; /* seconds between two looks for notices */
static const double notice_timeout = 2;     /* seconds that sending the last notices may take */

enum { HEARTBEAT = 1, FAILURE = 2 };

typedef struct {
    int32_t kind, from;
    uint64_t progress;
    int32_t waits;                 /* the rank itself */
    int32_t any_waits;             /* any rank that it knows of */
    char reason[RCVI_COMM_REASON]; /* of a FAILURE; a HEARTBEAT is sent without it */
} notice;

enum { HEARTBEAT_BYTES = offsetof(notice, reason) };

/* What is known of another rank. Times are rcvi_now(). */
typedef struct {
    double heard, progressed; /* the last heartbeat; the last progress, or waiting, in one */
    uint64_t progress;
    bool waits, any_waits;
    rcvi_request request; /* the notice to it that is in flight */
    notice heartbeat;     /* its content */
} peer;

struct rcvi_heartbeat {
    double advanced, sent;
    double waiting_since; /* any rank waits; 0: none does */
    notice failure;
    bool failure_started;
    double failure_time;
    peer peers[]; /* [size] */
};

rcv_status rcvi_heartbeat_new(rcvi_world *w) {
    size_t size = (size_t)w->facts.size;
    rcvi_heartbeat *h = rcvi_new(w->context, 1, sizeof *h + size * sizeof(peer));
    if (!h) return RCV_NO_MEMORY;
    h->advanced = rcvi_now();
    for (size_t i = 0; i < size; i++) h->peers[i].heard = h->peers[i].progressed = h->advanced;
    w->heartbeat = h;
    return RCV_OK;
}

void rcvi_heartbeat_free(rcvi_world *w) { rcvi_free(w->context, w->heartbeat); }

double rcvi_heartbeat_interval(const rcvi_world *w) { return w->timeout > 0 && w->timeout < 4 ? w->timeout / 4 : 1; }

/* ---- failure ---- */

void rcvi_world_break(rcvi_world *w, unsigned flags, const char *format, ...) {
    bool reports = flags & RCVI_BREAK_REPORT;
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->broken)) {
        vsnprintf(w->failure, sizeof w->failure, format, arguments);
        w->reports_failure = reports;
        w->needs_abort = flags & RCVI_BREAK_ABORT;
        w->failure_sent = !reports || !w->transport;
        atomic_store(&w->broken, true);
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    va_end(arguments);
}

rcv_status rcvi_world_broken(const rcvi_world *w) { return rcvi_fail(RCV_PEER, "%s", w->failure); }

bool rcvi_comm_reports_failure(const rcvi_comm *world) {
    rcvi_world *w = world->world;
    return atomic_load(&w->broken) && w->reports_failure;
}

void rcvi_comm_report_progress(rcvi_comm *comm) { atomic_fetch_add(&comm->world->progress, 1); }

void rcvi_comm_fail(rcvi_comm *comm, const char *reason) {
    rcvi_world *w = comm->world;
    if (rcvi_world_is_foreign(w)) return;
    rcvi_world_break(w, RCVI_BREAK_REPORT, "rank %d: %s", w->all.rank, reason);
    double begun = rcvi_now();
    pthread_mutex_lock(&w->lock);
    while (!w->failure_sent && rcvi_now() - begun < notice_timeout) rcvi_world_wait(w, &w->completed, 0.05);
    pthread_mutex_unlock(&w->lock);
}

/* Has the last notice to this rank been sent? One that failed counts as sent. */
static bool is_notice_sent(rcvi_world *w, peer *p) {
    char why[RCVI_TRANSPORT_REASON];
    bool done = false;
    return !p->request.active || !w->transport->test(&p->request, &done, why) || done;
}

/* Sends the failure to all ranks; then, at later calls, waits until it has been sent. A rank that cannot be reached finds out by its own timeout. */
static void send_failure(rcvi_world *w) {
    rcvi_heartbeat *h = w->heartbeat;
    char why[RCVI_TRANSPORT_REASON];
    bool all = true;
    if (!h->failure_started) {
        h->failure.kind = FAILURE;
        h->failure.from = w->all.rank;
        memcpy(h->failure.reason, w->failure, sizeof h->failure.reason);
    }
    for (int i = 0; i < w->all.size; i++) {
        peer *p = &h->peers[i];
        if (i == w->all.rank) continue;
        if (!h->failure_started) w->transport->send_notice(i, &h->failure, sizeof h->failure, &p->request, why);
        all &= is_notice_sent(w, p);
    }
    if (!h->failure_started) h->failure_time = rcvi_now();
    h->failure_started = true;
    if (!all && rcvi_now() - h->failure_time < notice_timeout) return;
    pthread_mutex_lock(&w->lock);
    w->failure_sent = true;
    pthread_cond_broadcast(&w->completed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- receiving ---- */

static void accept_heartbeat(rcvi_world *w, const notice *n, double now) {
    peer *p = &w->heartbeat->peers[n->from];
    if (p->progress != n->progress || n->waits) p->progressed = now;
    p->heard = now;
    p->progress = n->progress;
    p->waits = n->waits;
    p->any_waits = n->any_waits;
}

static void receive_notices(rcvi_world *w, double now) {
    char why[RCVI_TRANSPORT_REASON];
    notice n;
    for (size_t bytes = 1; bytes;) {
        if (!w->transport->receive_notice(&n, sizeof n, &bytes, why)) return;
        if (bytes < HEARTBEAT_BYTES || n.from < 0 || n.from >= w->all.size) continue;
        if (n.kind == HEARTBEAT) accept_heartbeat(w, &n, now);
        if (n.kind == FAILURE && bytes == sizeof n) rcvi_world_break(w, 0, "%.*s", RCVI_COMM_REASON - 1, n.reason);
    }
}

/* ---- sending ---- */

/* Does this rank wait for others? A transfer whose counter is not reached waits for this rank itself. */
static bool waits_here(rcvi_world *w) {
    pthread_mutex_lock(&w->lock);
    const rcvi_transfer *t = w->waited_for;
    bool waits = t && (t->started || rcvi_transfer_is_ready(&t->options));
    pthread_mutex_unlock(&w->lock);
    return waits;
}

/* Does any rank except `except` wait, as far as this rank knows? `except` = size: any rank at all. */
static bool any_waits(rcvi_world *w, int except) {
    bool waits = except != w->all.rank && waits_here(w);
    for (int i = 0; i < w->all.size; i++) {
        const peer *p = &w->heartbeat->peers[i];
        if (i != except && i != w->all.rank) waits |= p->waits;
    }
    return waits || (except == 0 && w->heartbeat->peers[0].any_waits);
}

static void send_heartbeat(rcvi_world *w, int to) {
    peer *p = &w->heartbeat->peers[to];
    char why[RCVI_TRANSPORT_REASON];
    if (to == w->all.rank || !is_notice_sent(w, p)) return;
    p->heartbeat.kind = HEARTBEAT;
    p->heartbeat.from = w->all.rank;
    p->heartbeat.progress = atomic_load(&w->progress);
    p->heartbeat.waits = waits_here(w);
    p->heartbeat.any_waits = any_waits(w, w->all.rank);
    if (!w->transport->send_notice(to, &p->heartbeat, HEARTBEAT_BYTES, &p->request, why))
        rcvi_world_break(w, RCVI_BREAK_REPORT | RCVI_BREAK_ABORT, "a heartbeat to rank %d failed: %s", to, why);
}

static void send_heartbeats(rcvi_world *w, double now) {
    w->heartbeat->sent = now;
    for (int i = 0; i < (w->all.rank == 0 ? w->all.size : 1); i++) send_heartbeat(w, i);
}

/* ---- timeouts ---- */

/* After this process was stopped itself, the times that it knows of the others are out of date. */
static void restart_timeouts(rcvi_world *w, double now) {
    for (int i = 0; i < w->all.size; i++) w->heartbeat->peers[i].heard = w->heartbeat->peers[i].progressed = now;
    w->heartbeat->waiting_since = 0;
}

static void check_timeout(rcvi_world *w, int rank, double now) {
    rcvi_heartbeat *h = w->heartbeat;
    const peer *p = &h->peers[rank];
    if (rank == w->all.rank || atomic_load(&w->broken)) return;
    if (now - p->heard > w->timeout)
        rcvi_world_break(w, RCVI_BREAK_REPORT | RCVI_BREAK_ABORT,
                         "rank %d has made no progress for %.3g seconds (--timeout): it sends no heartbeat", rank,
                         w->timeout);
    double since = p->progressed > h->waiting_since ? p->progressed : h->waiting_since;
    if (!p->waits && any_waits(w, rank) && now - since > w->timeout)
        rcvi_world_break(w, RCVI_BREAK_REPORT | RCVI_BREAK_ABORT,
                         "rank %d has made no progress for %.3g seconds (--timeout): others wait for it", rank,
                         w->timeout);
}

static void check_timeouts(rcvi_world *w, double now) {
    rcvi_heartbeat *h = w->heartbeat;
    bool waits = any_waits(w, w->all.size) || (w->all.rank > 0 && h->peers[0].any_waits);
    if (!waits) h->waiting_since = 0;
    if (waits && h->waiting_since == 0) h->waiting_since = now;
    if (w->all.rank == 0) {
        for (int i = 1; i < w->all.size; i++) check_timeout(w, i, now);
    } else if (w->all.rank == 1) {
        check_timeout(w, 0, now);
    }
}

/* ---- by the progress thread ---- */

void rcvi_heartbeat_advance(rcvi_world *w) {
    rcvi_heartbeat *h = w->heartbeat;
    double now = rcvi_now();
    if (atomic_load(&w->broken)) {
        if (!w->failure_sent)
            send_failure(w); /* without the lock: only this thread sets it, once the world is broken */
        return;
    }
    if (now - h->advanced < notice_interval) return;
    if (w->timeout > 0 && now - h->advanced > w->timeout / 2) restart_timeouts(w, now);
    h->advanced = now;
    receive_notices(w, now);
    if (w->timeout <= 0 || atomic_load(&w->closing)) return;
    if (now - h->sent >= rcvi_heartbeat_interval(w)) send_heartbeats(w, now);
    check_timeouts(w, now);
}

void rcvi_heartbeat_flush(rcvi_world *w) {
    bool all = false;
    for (double begun = rcvi_now(); !all && rcvi_now() - begun < notice_timeout;) {
        all = true;
        receive_notices(w, begun);
        for (int i = 0; i < w->all.size; i++) all &= is_notice_sent(w, &w->heartbeat->peers[i]);
    }
}
