/* Who moves. Every rank tells rank 0 from time to time that it lives, how often it has moved, and whether it waits; rank 0 tells all. Rank 0
 * watches all others, and rank 1 watches rank 0. Whoever notices that one stands still, or cannot go on itself, tells all: the world is
 * broken then, and all transfers end. */
#include "comm/parts.h"

#include <stdio.h>
#include <string.h>

static const double listening = 1e-3; /* seconds between two looks for notices */
static const double telling = 2;      /* that the end of the world may take to be told */

enum { PULSE = 1, END = 2 };

typedef struct {
    int32_t kind, from;
    uint64_t progress;
    int32_t waits;                     /* the rank; */
    int32_t someone;                   /* or anybody, as far as it knows */
    char sentence[RCVI_COMM_SENTENCE]; /* of an END; a PULSE goes without */
} notice;

enum { PULSE_BYTES = offsetof(notice, sentence) };

typedef struct {
    double heard, moved;
    uint64_t progress;
    bool waits, someone;
    rcvi_request told; /* the notice that is on its way to it */
    notice pulse;
} peer;

struct rcvi_watch {
    double looked, told;
    double waited; /* since when somebody waits; 0: nobody does */
    notice end;
    bool ending;
    double ending_since;
    peer peers[]; /* [size] */
};

rcv_status rcvi_watch_new(rcvi_world *w) {
    size_t size = (size_t)w->facts.size;
    rcvi_watch *watch = rcvi_new(w->context, 1, sizeof *watch + size * sizeof(peer));
    if (!watch) return RCV_NO_MEMORY;
    watch->looked = rcvi_now();
    for (size_t i = 0; i < size; i++) watch->peers[i].heard = watch->peers[i].moved = watch->looked;
    w->watch = watch;
    return RCV_OK;
}

void rcvi_watch_free(rcvi_world *w) { rcvi_free(w->context, w->watch); }

double rcvi_watch_interval(const rcvi_world *w) { return w->timeout > 0 && w->timeout < 4 ? w->timeout / 4 : 1; }

/* ---- the end ---- */

void rcvi_world_break(rcvi_world *w, bool speaks, bool hung, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->broken)) {
        vsnprintf(w->sentence, sizeof w->sentence, format, arguments);
        w->speaks = speaks;
        w->hung = hung;
        w->announced = !speaks || !w->transport;
        atomic_store(&w->broken, true);
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    va_end(arguments);
}

rcv_status rcvi_world_broken(const rcvi_world *w) { return rcvi_fail(RCV_PEER, "%s", w->sentence); }

bool rcvi_comm_speaks(const rcvi_comm *world) {
    rcvi_world *w = world->world;
    return atomic_load(&w->broken) && w->speaks;
}

void rcvi_comm_alive(rcvi_comm *comm) { atomic_fetch_add(&comm->world->progress, 1); }

void rcvi_comm_fail(rcvi_comm *comm, const char *sentence) {
    rcvi_world *w = comm->world;
    if (rcvi_world_is_foreign(w)) return;
    rcvi_world_break(w, true, false, "rank %d: %s", w->all.rank, sentence);
    double begun = rcvi_now();
    pthread_mutex_lock(&w->lock);
    while (!w->announced && rcvi_now() - begun < telling) rcvi_world_wait(w, &w->ended, 0.05);
    pthread_mutex_unlock(&w->lock);
}

static bool is_told(rcvi_world *w, peer *p) {
    char why[RCVI_TRANSPORT_WHY];
    bool done = false;
    return !p->told.active || !w->transport->test(&p->told, &done, why) || done;
}

/* The end goes to everybody; who cannot be told will find out. */
static void tell_end(rcvi_world *w) {
    rcvi_watch *watch = w->watch;
    char why[RCVI_TRANSPORT_WHY];
    bool all = true;
    if (!watch->ending) {
        watch->end.kind = END;
        watch->end.from = w->all.rank;
        memcpy(watch->end.sentence, w->sentence, sizeof watch->end.sentence);
    }
    for (int i = 0; i < w->all.size; i++) {
        peer *p = &watch->peers[i];
        if (i == w->all.rank) continue;
        if (!watch->ending) w->transport->notify(i, &watch->end, sizeof watch->end, &p->told, why);
        all &= is_told(w, p);
    }
    if (!watch->ending) watch->ending_since = rcvi_now();
    watch->ending = true;
    if (!all && rcvi_now() - watch->ending_since < telling) return;
    pthread_mutex_lock(&w->lock);
    w->announced = true;
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

/* ---- hearing ---- */

static void hear_pulse(rcvi_world *w, const notice *n, double now) {
    peer *p = &w->watch->peers[n->from];
    if (p->progress != n->progress || n->waits) p->moved = now;
    p->heard = now;
    p->progress = n->progress;
    p->waits = n->waits;
    p->someone = n->someone;
}

static void hear_all(rcvi_world *w, double now) {
    char why[RCVI_TRANSPORT_WHY];
    notice n;
    for (size_t bytes = 1; bytes;) {
        if (!w->transport->hear(&n, sizeof n, &bytes, why)) return;
        if (bytes < PULSE_BYTES || n.from < 0 || n.from >= w->all.size) continue;
        if (n.kind == PULSE) hear_pulse(w, &n, now);
        if (n.kind == END && bytes == sizeof n)
            rcvi_world_break(w, false, false, "%.*s", RCVI_COMM_SENTENCE - 1, n.sentence);
    }
}

/* ---- telling ---- */

/* This rank, for others: who waits for a counter waits for itself. */
static bool waits_here(rcvi_world *w) {
    pthread_mutex_lock(&w->lock);
    const rcvi_transfer *t = w->awaited;
    bool waits = t && (t->begun || rcvi_counted(&t->options));
    pthread_mutex_unlock(&w->lock);
    return waits;
}

/* Anybody but `except` (the number of ranks: but nobody), as far as this rank knows. */
static bool someone_waits(rcvi_world *w, int except) {
    bool waits = except != w->all.rank && waits_here(w);
    for (int i = 0; i < w->all.size; i++) {
        const peer *p = &w->watch->peers[i];
        if (i != except && i != w->all.rank) waits |= p->waits;
    }
    return waits || (except == 0 && w->watch->peers[0].someone);
}

static void tell_pulse(rcvi_world *w, int to) {
    peer *p = &w->watch->peers[to];
    char why[RCVI_TRANSPORT_WHY];
    if (to == w->all.rank || !is_told(w, p)) return;
    p->pulse.kind = PULSE;
    p->pulse.from = w->all.rank;
    p->pulse.progress = atomic_load(&w->progress);
    p->pulse.waits = waits_here(w);
    p->pulse.someone = someone_waits(w, w->all.rank);
    if (!w->transport->notify(to, &p->pulse, PULSE_BYTES, &p->told, why))
        rcvi_world_break(w, true, true, "a notice to rank %d failed: %s", to, why);
}

static void tell_pulses(rcvi_world *w, double now) {
    w->watch->told = now;
    for (int i = 0; i < (w->all.rank == 0 ? w->all.size : 1); i++) tell_pulse(w, i);
}

/* ---- judging ---- */

/* Who was stopped itself knows nothing of the others' time. */
static void forgive(rcvi_world *w, double now) {
    for (int i = 0; i < w->all.size; i++) w->watch->peers[i].heard = w->watch->peers[i].moved = now;
    w->watch->waited = 0;
}

static void judge(rcvi_world *w, int rank, double now) {
    rcvi_watch *watch = w->watch;
    const peer *p = &watch->peers[rank];
    if (rank == w->all.rank || atomic_load(&w->broken)) return;
    if (now - p->heard > w->timeout)
        rcvi_world_break(w, true, true, "rank %d has not moved for %.3g seconds (--timeout): nothing is heard of it",
                         rank, w->timeout);
    double since = p->moved > watch->waited ? p->moved : watch->waited;
    if (!p->waits && someone_waits(w, rank) && now - since > w->timeout)
        rcvi_world_break(w, true, true, "rank %d has not moved for %.3g seconds (--timeout): others wait for it", rank,
                         w->timeout);
}

static void judge_all(rcvi_world *w, double now) {
    rcvi_watch *watch = w->watch;
    bool waits = someone_waits(w, w->all.size) || (w->all.rank > 0 && watch->peers[0].someone);
    if (!waits) watch->waited = 0;
    if (waits && watch->waited == 0) watch->waited = now;
    if (w->all.rank == 0) {
        for (int i = 1; i < w->all.size; i++) judge(w, i, now);
    } else if (w->all.rank == 1) {
        judge(w, 0, now);
    }
}

void rcvi_watch_look(rcvi_world *w) {
    rcvi_watch *watch = w->watch;
    double now = rcvi_now();
    if (atomic_load(&w->broken)) {
        if (!w->announced) tell_end(w); /* written by this thread, since it is false */
        return;
    }
    if (now - watch->looked < listening) return;
    if (w->timeout > 0 && now - watch->looked > w->timeout / 2) forgive(w, now);
    watch->looked = now;
    hear_all(w, now);
    if (w->timeout <= 0 || atomic_load(&w->quiet)) return;
    if (now - watch->told >= rcvi_watch_interval(w)) tell_pulses(w, now);
    judge_all(w, now);
}

void rcvi_watch_settle(rcvi_world *w) {
    bool all = false;
    for (double begun = rcvi_now(); !all && rcvi_now() - begun < telling;) {
        all = true;
        hear_all(w, begun);
        for (int i = 0; i < w->all.size; i++) all &= is_told(w, &w->watch->peers[i]);
    }
}
