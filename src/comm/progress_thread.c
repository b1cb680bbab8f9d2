/* The progress thread: makes all calls of the transport.
 *
 * It loops: it takes over submitted transfers, starts those that may start, advances those in flight, and handles notices. When nothing happened in an
 * iteration it backs off. While the rank waits for a transfer, or while a GPU computes, it first polls (yields its core) for a
 * limited time. Otherwise, and after that, it sleeps for a time that grows with the time since the last event. When nothing is queued it waits
 * until it is signalled or the next heartbeat is due; shortly at first, since a transport may report a message as sent that leaves
 * only during later calls. */
#include "comm/internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Seconds without an event before it sleeps: where the rank waits (a large message arrives in parts), and where a GPU computes. */
static const double wait_poll_limit = 5e-3, gpu_poll_limit = 50e-3;
/* Seconds for which collectives pause while a point-to-point message is being sent: the next pipeline stage waits for the message, but
 * no rank waits for the sums until the backward pass has ended. The pause is limited, since the receiver may have to complete a sum before it receives. */
static const double send_priority_limit = 0.1;
static const double short_wait_limit = 20e-3; /* seconds without an event before it waits for longer */
static const double report_grace = 1; /* seconds for the reporting rank to print the reason before any rank ends */
/* A sleep is a fraction of the time since the last event, so that it delays the next event by that fraction at most, within bounds. A core that
 * is interrupted 25,000 times a second loses 7% of its computing time (measured on a Neoverse V1). */
static const double sleep_fraction = 1.0 / 16, shortest_sleep = 40e-6;
static const double longest_sleep_in_flight = 200e-6, longest_sleep_waiting = 1e-3;

void rcvi_sleep(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

void rcvi_world_wait(rcvi_world *w, pthread_cond_t *condition, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double end = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)end;
    until.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    pthread_cond_timedwait(condition, &w->lock, &until);
}

/* ---- which transfers may start ---- */

static bool match_equally(const rcvi_transfer *a, const rcvi_transfer *b) {
    return a->options.kind == b->options.kind && a->options.peer == b->options.peer && a->options.tag == b->options.tag;
}

/* Collectives of a communicator start in order, and at most as many are in flight as there are tags for them. Sends to one rank with one tag, which
 * the receiver cannot tell apart, follow each other message by message; so do receives. */
static bool must_follow(const rcvi_transfer *t, const rcvi_transfer *earlier) {
    if (earlier->comm != t->comm || earlier->collective != t->collective) return false;
    if (t->collective) return !earlier->started || t->sequence - earlier->sequence >= RCVI_COMM_CONCURRENT;
    return !earlier->all_posted && match_equally(earlier, t);
}

static bool may_start(const rcvi_world *w, const rcvi_transfer *t) {
    if (!rcvi_transfer_is_ready(&t->options)) return false;
    for (const rcvi_transfer *earlier = w->queue; earlier != t; earlier = earlier->next) {
        if (must_follow(t, earlier)) return false;
    }
    return true;
}

static void start(rcvi_world *w, rcvi_transfer *t) {
    t->started = true;
    t->times.started = rcvi_now();
    rcvi_staging_start(t);
    w->events++;
    atomic_fetch_add_explicit(&w->transfers, 1, memory_order_relaxed);
}

/* ---- one iteration ---- */

static void complete(rcvi_world *w, rcvi_transfer *t, rcv_status status) {
    t->times.completed = rcvi_now();
    if (!t->started) t->times.started = t->times.completed;
    w->events++;
    pthread_mutex_lock(&w->lock);
    t->status = status;
    atomic_store(&t->completed, true); /* when the lock is released the transfer belongs to the caller */
    pthread_cond_broadcast(&w->completed);
    pthread_mutex_unlock(&w->lock);
}

static bool advance(rcvi_transfer *t) { return t->phase ? rcvi_staging_advance(t) : t->operations->advance(t); }

/* Is a point-to-point message being sent that collectives have to pause for? */
static bool is_sending(const rcvi_world *w) {
    for (const rcvi_transfer *t = w->queue; t; t = t->next) {
        if (t->started && t->options.kind == RCVI_SEND) return rcvi_now() - t->times.started < send_priority_limit;
    }
    return false;
}

static void advance_all(rcvi_world *w) {
    bool sending = is_sending(w);
    for (rcvi_transfer **link = &w->queue, *t; (t = *link);) {
        if (!t->started && may_start(w, t)) start(w, t);
        bool done = t->started && !(sending && t->collective) && advance(t);
        if (atomic_load(&w->broken)) return;
        if (done) {
            *link = t->next;
            complete(w, t, RCV_OK);
        } else {
            link = &t->next;
        }
    }
}

static void fail_all(rcvi_world *w) {
    for (rcvi_transfer *t; (t = w->queue);) {
        w->queue = t->next;
        rcvi_messages_cancel(t);
        complete(w, t, RCV_PEER);
    }
}

/* Moves submitted transfers to the queue; waits where there are none. `idle`: seconds since the last event. False: the thread ends. */
static bool accept_submitted(rcvi_world *w, double idle) {
    pthread_mutex_lock(&w->lock);
    bool empty = !w->queue && !w->submitted && !w->stopping;
    bool shortly = idle < short_wait_limit || (atomic_load(&w->broken) && !w->failure_sent);
    if (empty) rcvi_world_wait(w, &w->wake, shortly ? 2e-3 : rcvi_heartbeat_interval(w));
    rcvi_transfer **last = &w->queue;
    while (*last) last = &(*last)->next;
    *last = w->submitted;
    w->submitted = NULL;
    w->submitted_end = &w->submitted;
    bool continues = !w->stopping || w->queue || (atomic_load(&w->broken) && !w->failure_sent);
    pthread_mutex_unlock(&w->lock);
    return continues;
}

static bool any_in_flight(const rcvi_world *w) {
    bool found = false;
    for (const rcvi_transfer *t = w->queue; t && !found; t = t->next) found = t->started;
    return found;
}

/* A core that sleeps takes up to 0.2 ms to wake up, as long as a message takes. */
bool rcvi_may_poll(const rcvi_world *w, double idle) {
    return atomic_load(&w->polls) ? idle < gpu_poll_limit : atomic_load(&w->waiting) > 0 && idle < wait_poll_limit;
}

static void back_off(const rcvi_world *w, double idle) {
    double seconds = idle * sleep_fraction, most = any_in_flight(w) ? longest_sleep_in_flight : longest_sleep_waiting;
    if (rcvi_may_poll(w, idle)) {
        sched_yield();
        return;
    }
    if (atomic_load(&w->waiting) > 0) most = shortest_sleep;
    seconds = seconds > most ? most : seconds < shortest_sleep ? shortest_sleep : seconds;
    rcvi_sleep((long)(seconds * 1e9));
}

static void process_transfers(rcvi_world *w) {
    uint64_t events = 0;
    double last_event = rcvi_now();
    while (accept_submitted(w, rcvi_now() - last_event)) {
        advance_all(w);
        rcvi_heartbeat_advance(w);
        if (atomic_load(&w->broken)) fail_all(w);
        if (w->events != events) {
            events = w->events;
            last_event = rcvi_now();
        } else if (w->queue) {
            back_off(w, rcvi_now() - last_event);
        }
    }
}

/* ---- the thread ---- */

/* In a broken world no rank waits for the others; the launcher ends those that are left. */
static void close_transport(rcvi_world *w) {
    if (!atomic_load(&w->broken)) {
        rcvi_heartbeat_flush(w);
        w->transport->close();
    } else if (w->needs_abort || !w->reports_failure) {
        for (double begun = rcvi_now(); rcvi_now() - begun < report_grace;) rcvi_sleep(50000000);
        if (w->needs_abort && w->reports_failure) w->transport->abort();
    }
}

static void *run_thread(void *user) {
    rcvi_world *w = user;
    char why[RCVI_TRANSPORT_REASON] = "";
    bool opened = w->transport->open(&w->facts, why);
    pthread_mutex_lock(&w->lock);
    w->open_finished = true;
    if (!opened) snprintf(w->open_error, sizeof w->open_error, "%s", *why ? why : "it gives no reason");
    pthread_cond_broadcast(&w->completed);
    while (opened && !w->may_progress && !w->stopping) pthread_cond_wait(&w->wake, &w->lock);
    bool progresses = w->may_progress;
    pthread_mutex_unlock(&w->lock);
    if (!progresses) return NULL;
    process_transfers(w);
    close_transport(w);
    return NULL;
}

rcv_status rcvi_progress_thread_open(rcvi_world *w) {
    int error = rcvi_thread_start(&w->thread, run_thread, w);
    if (error) return rcvi_fail(RCV_NO_MEMORY, "the system refused to start the progress thread (%s)", strerror(error));
    pthread_mutex_lock(&w->lock);
    while (!w->open_finished) pthread_cond_wait(&w->completed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    if (!*w->open_error) return RCV_OK;
    pthread_join(w->thread, NULL);
    return rcvi_fail(RCV_UNSUPPORTED, "MPI could not be started: %s", w->open_error);
}

void rcvi_progress_thread_begin(rcvi_world *w) {
    pthread_mutex_lock(&w->lock);
    w->may_progress = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* Two barriers. Heartbeats continue until all ranks have reached the first; after the second no rank sends a notice any more. */
static void synchronise(rcvi_world *w) {
    double number = 0;
    rcvi_transfer_options barrier = {
        .kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_DOUBLE, .data = &number, .count = 1};
    if (rcvi_transfer_run(&w->all, &barrier)) return;
    atomic_store(&w->closing, true);
    rcvi_transfer_run(&w->all, &barrier);
}

void rcvi_progress_thread_close(rcvi_world *w) {
    if (w->may_progress && !atomic_load(&w->broken)) synchronise(w);
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
}
