/* The courier: the thread that makes all calls of the transport.
 *
 * It goes round: takes what was asked for, begins what may begin, looks after what is under way, and listens for notices. It rests between two
 * rounds in which nothing happened: while the rank waits for a transfer, or a GPU computes, it offers its core to others, for a while, and
 * then naps as it does while the rank computes. Where there is nothing under way it sleeps until it is woken, or until it has to say that it
 * lives; shortly at first, since a transport may call sent what leaves only while somebody calls it. */
#include "comm/parts.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Seconds without an event before it naps, where the rank waits, since a large message goes in parts; and where a GPU computes. */
static const double yielding = 5e-3, polling = 50e-3;
/* Seconds for which sums wait for a message that is on its way: another stage waits for that, and for sums nobody does until all is
 * computed. Not for ever, since its receiver may have a sum to end before it receives. */
static const double patience = 0.1;
static const double lingering = 20e-3; /* seconds without an event before it sleeps for longer */
static const double grace = 1;         /* seconds for whoever speaks to do so, before anybody ends */
/* A nap is a part of what has passed since the last event, so that it delays the next one by as much at most, and between these: a core that
 * wakes somebody 25,000 times a second loses 7% of what it computes. */
static const double nap_part = 1.0 / 16, shortest_nap = 40e-6;
static const double longest_nap = 200e-6, longest_doze = 1e-3; /* while something is under way, and while nothing is */

void rcvi_nap(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

void rcvi_world_wait(rcvi_world *w, pthread_cond_t *woken, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double end = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)end;
    until.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    pthread_cond_timedwait(woken, &w->lock, &until);
}

bool rcvi_counted(const rcvi_transfer_options *o) {
    return !o->counter || atomic_load_explicit(o->counter, memory_order_acquire) >= o->ready;
}

/* ---- what may begin ---- */

static bool are_equals(const rcvi_transfer *a, const rcvi_transfer *b) {
    return a->options.kind == b->options.kind && a->options.peer == b->options.peer && a->options.tag == b->options.tag;
}

/* Collectives of a group begin in order, and not more at once than there are tags. Sends that a receiver cannot tell apart follow each
 * other, message by message, and so do receives. */
static bool is_held_back(const rcvi_transfer *t, const rcvi_transfer *earlier) {
    if (earlier->comm != t->comm || earlier->collective != t->collective) return false;
    if (t->collective) return !earlier->begun || t->sequence - earlier->sequence >= RCVI_COMM_ROUND;
    return !earlier->posted && are_equals(earlier, t);
}

static bool may_begin(const rcvi_world *w, const rcvi_transfer *t) {
    if (!rcvi_counted(&t->options)) return false;
    for (const rcvi_transfer *earlier = w->queue; earlier != t; earlier = earlier->next) {
        if (is_held_back(t, earlier)) return false;
    }
    return true;
}

static void begin(rcvi_world *w, rcvi_transfer *t) {
    t->begun = true;
    t->times.begun = rcvi_now();
    rcvi_staged_begin(t);
    w->events++;
    atomic_fetch_add_explicit(&w->transfers, 1, memory_order_relaxed);
}

/* ---- a round ---- */

static void end(rcvi_world *w, rcvi_transfer *t, rcv_status status) {
    t->times.ended = rcvi_now();
    if (!t->begun) t->times.begun = t->times.ended;
    w->events++;
    pthread_mutex_lock(&w->lock);
    t->status = status;
    atomic_store(&t->ended, true); /* from here on, and out of the lock, it is the caller's */
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

static bool advance(rcvi_transfer *t) { return t->leg ? rcvi_staged_advance(t) : t->exchange->advance(t); }

static bool is_sending(const rcvi_world *w) {
    for (const rcvi_transfer *t = w->queue; t; t = t->next) {
        if (t->begun && t->options.kind == RCVI_SEND) return rcvi_now() - t->times.begun < patience;
    }
    return false;
}

static void carry_all(rcvi_world *w) {
    bool sending = is_sending(w);
    for (rcvi_transfer **place = &w->queue, *t; (t = *place);) {
        if (!t->begun && may_begin(w, t)) begin(w, t);
        bool done = t->begun && !(sending && t->collective) && advance(t);
        if (atomic_load(&w->broken)) return;
        if (done) {
            *place = t->next;
            end(w, t, RCV_OK);
        } else {
            place = &t->next;
        }
    }
}

static void end_all(rcvi_world *w) {
    for (rcvi_transfer *t; (t = w->queue);) {
        w->queue = t->next;
        rcvi_withdraw(t);
        end(w, t, RCV_PEER);
    }
}

/* False when there is nothing left to do, ever. `quiet`: seconds since the last event. */
static bool accept_asked(rcvi_world *w, double quiet) {
    pthread_mutex_lock(&w->lock);
    bool idle = !w->queue && !w->asked && !w->leaving;
    bool shortly = quiet < lingering || (atomic_load(&w->broken) && !w->announced);
    if (idle) rcvi_world_wait(w, &w->wake, shortly ? 2e-3 : rcvi_watch_interval(w));
    rcvi_transfer **last = &w->queue;
    while (*last) last = &(*last)->next;
    *last = w->asked;
    w->asked = NULL;
    w->asked_end = &w->asked;
    bool goes_on = !w->leaving || w->queue || (atomic_load(&w->broken) && !w->announced);
    pthread_mutex_unlock(&w->lock);
    return goes_on;
}

static bool is_under_way(const rcvi_world *w) {
    bool found = false;
    for (const rcvi_transfer *t = w->queue; t && !found; t = t->next) found = t->begun;
    return found;
}

/* A core that sleeps takes up to 0.2 ms to wake, as long as a message takes. */
bool rcvi_may_yield(const rcvi_world *w, double idle) {
    return atomic_load(&w->polls) ? idle < polling : atomic_load(&w->waiting) > 0 && idle < yielding;
}

static void rest(const rcvi_world *w, double idle) {
    double nap = idle * nap_part, most = is_under_way(w) ? longest_nap : longest_doze;
    if (rcvi_may_yield(w, idle)) {
        sched_yield();
        return;
    }
    if (atomic_load(&w->waiting) > 0) most = shortest_nap;
    nap = nap > most ? most : nap < shortest_nap ? shortest_nap : nap;
    rcvi_nap((long)(nap * 1e9));
}

static void carry(rcvi_world *w) {
    uint64_t seen = 0;
    double seen_at = rcvi_now();
    while (accept_asked(w, rcvi_now() - seen_at)) {
        carry_all(w);
        rcvi_watch_look(w);
        if (atomic_load(&w->broken)) end_all(w);
        if (w->events != seen) {
            seen = w->events;
            seen_at = rcvi_now();
        } else if (w->queue) {
            rest(w, rcvi_now() - seen_at);
        }
    }
}

/* ---- its life ---- */

/* In a world that broke nobody waits for all others: what started the ranks ends those that are left. */
static void leave(rcvi_world *w) {
    if (!atomic_load(&w->broken)) {
        rcvi_watch_settle(w);
        w->transport->close();
    } else if (w->hung || !w->speaks) {
        for (double begun = rcvi_now(); rcvi_now() - begun < grace;) rcvi_nap(50000000);
        if (w->hung && w->speaks) w->transport->abort();
    }
}

static void *live(void *user) {
    rcvi_world *w = user;
    char why[RCVI_TRANSPORT_WHY] = "";
    bool opened = w->transport->open(&w->facts, why);
    pthread_mutex_lock(&w->lock);
    w->opened = true;
    if (!opened) snprintf(w->opening, sizeof w->opening, "%s", *why ? why : "nobody says why");
    pthread_cond_broadcast(&w->ended);
    while (opened && !w->begun && !w->leaving) pthread_cond_wait(&w->wake, &w->lock);
    bool begun = w->begun;
    pthread_mutex_unlock(&w->lock);
    if (!begun) return NULL;
    carry(w);
    leave(w);
    return NULL;
}

/* Signals are for the threads that were there before. */
rcv_status rcvi_courier_open(rcvi_world *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&w->thread, NULL, live, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return rcvi_fail(RCV_NO_MEMORY, "the system refused the courier's thread (%s)", strerror(error));
    pthread_mutex_lock(&w->lock);
    while (!w->opened) pthread_cond_wait(&w->ended, &w->lock);
    pthread_mutex_unlock(&w->lock);
    if (!*w->opening) return RCV_OK;
    pthread_join(w->thread, NULL);
    return rcvi_fail(RCV_UNSUPPORTED, "MPI could not be started: %s", w->opening);
}

void rcvi_courier_begin(rcvi_world *w) {
    pthread_mutex_lock(&w->lock);
    w->begun = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* All ranks are here: until then they are watched, and from then on nobody sends a notice. */
static void part(rcvi_world *w) {
    double all = 0;
    rcvi_transfer_options meet = {.kind = RCVI_SUM_ALL, .type = RCVI_TRANSFER_DOUBLE, .data = &all, .count = 1};
    if (rcvi_comm_do(&w->all, &meet)) return;
    atomic_store(&w->quiet, true);
    rcvi_comm_do(&w->all, &meet);
}

void rcvi_courier_close(rcvi_world *w) {
    if (w->begun && !atomic_load(&w->broken)) part(w);
    pthread_mutex_lock(&w->lock);
    w->leaving = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
}
