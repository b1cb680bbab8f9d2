/* A team of threads. A call is published by one counter that all members read; each member counts the calls that it has finished
 * in a counter of its own. The barrier is a dissemination barrier: in round r member i writes a counter of member i + 2^r, so
 * every counter has one writer. All counters only increase and are compared by their difference, so that they may wrap.
 *
 * A waiting member spins first, then yields its core (sched_yield), then sleeps: in a barrier for short intervals, between calls
 * on a condition variable. A member that goes to sleep increments `sleepers` before it checks for a new call, and the caller
 * publishes the call before it checks `sleepers`; both are sequentially consistent, so at least one of them sees the other.
 *
 * The operating system often wakes a thread on the core of the thread that wakes it. Two members that spin on one core take
 * milliseconds for a barrier that takes microseconds, and the scheduler is slow to separate them. So a member that finds itself
 * on the caller's core moves to another one. Its affinity is then restored, so that it may be moved again. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getcpu, sched_setaffinity */
#endif
#include "device/cpu/engine/team.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The time limits have no recorded measurement; rcv_measure_barrier measures the time of a barrier. */
enum {
    LINE = 128,  /* bytes: alignment of counters, so that no two share a cache line or an adjacent pair of lines */
    ROUNDS = 10, /* rounds of a barrier of RCVI_MAX_THREADS members: its base-2 logarithm */
    BARRIER_SPIN = 30000, /* nanoseconds: a member in a barrier spins before it yields its core */
    CALL_SPIN = 100000,   /* nanoseconds: a member between calls spins before it sleeps */
    OVERSUBSCRIBED_SPIN =
        500,                 /* nanoseconds: both of them, where the team has more threads than the machine has cores */
    BARRIER_YIELD = 1000000, /* nanoseconds: a member in a barrier yields before it sleeps */
    BARRIER_SLEEP = 50000    /* nanoseconds of one sleep in a barrier */
};

typedef struct {
    alignas(LINE) atomic_uint value;
} word;

typedef struct {
    alignas(LINE) pthread_t thread;
    rcvi_team *team;
    int index;
    unsigned barriers;   /* barriers passed; read and written by the member alone */
    word done;           /* number of calls finished */
    word rounds[ROUNDS]; /* [round] number of the last barrier in which the partner of this round arrived */
} member;

struct rcvi_team {
    word called;   /* number of calls published */
    word sleepers; /* members asleep or about to be */
    alignas(LINE) rcv_context *context;
    void *memory; /* as allocated, before alignment */
    int threads;
    int started;         /* members with a thread of their own */
    bool oversubscribed; /* more threads than cores */
    int core;            /* core of the caller when it published the call; -1: not known */
    int64_t barrier_spin, call_spin;
    void (*work)(void *user, int member); /* of the published call; NULL: members exit */
    void *user;
    fenv_t environment; /* floating-point environment of the caller */
    unsigned process;   /* rcvi_fork_generation() of the process that started the threads */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    member members[]; /* [threads]; the first is the caller */
};

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static inline bool has_reached(const atomic_uint *word, unsigned count) {
    return (int)(atomic_load_explicit(word, memory_order_acquire) - count) >= 0;
}

/* Spins for about `limit` nanoseconds. */
static bool spin(const atomic_uint *word, unsigned count, int64_t limit) {
    for (int i = 0; i < 64; i++) {
        if (has_reached(word, count)) return true;
        relax();
    }
    for (int64_t begin = now(); now() - begin < limit;) {
        for (int i = 0; i < 32; i++) {
            if (has_reached(word, count)) return true;
            relax();
        }
    }
    return has_reached(word, count);
}

void rcvi_team_wait_for(const rcvi_team *team, const atomic_uint *word, unsigned count) {
    if (spin(word, count, team->barrier_spin)) return;
    for (int64_t begin = now(); !has_reached(word, count);) {
        if (now() - begin < BARRIER_YIELD) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = BARRIER_SLEEP}, NULL);
        }
    }
}

static void wait_for_call(rcvi_team *team, unsigned count) {
    if (spin(&team->called.value, count, team->call_spin)) return;
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add(&team->sleepers.value, 1);
    while ((int)(atomic_load(&team->called.value) - count) < 0) pthread_cond_wait(&team->wake, &team->mutex);
    atomic_fetch_sub(&team->sleepers.value, 1);
    pthread_mutex_unlock(&team->mutex);
}

#if defined(__linux__)
static int current_core(void) { return sched_getcpu(); }

static void move_off_core(int core) {
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof all, &all)) return;
    others = all;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others)) return;
    sched_setaffinity(0, sizeof all, &all);
}
#else
static int current_core(void) { return -1; }
static void move_off_core(int core) { (void)core; }
#endif

static void avoid_core_of_caller(const rcvi_team *team) {
    if (!team->oversubscribed && team->core >= 0 && current_core() == team->core) move_off_core(team->core);
}

static void *run_member(void *argument) {
    member *self = argument;
    rcvi_team *team = self->team;
    for (unsigned count = 1;; count++) {
        wait_for_call(team, count);
        if (!team->work) return NULL;
        avoid_core_of_caller(team);
        fesetenv(&team->environment);
        team->work(team->user, self->index);
        atomic_store_explicit(&self->done.value, count, memory_order_release);
    }
}

static unsigned publish_call(rcvi_team *team, void (*work)(void *, int), void *user) {
    team->work = work;
    team->user = user;
    unsigned count = atomic_load_explicit(&team->called.value, memory_order_relaxed) + 1;
    atomic_store(&team->called.value, count);
    if (atomic_load(&team->sleepers.value) > 0) {
        pthread_mutex_lock(&team->mutex);
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->mutex);
    }
    return count;
}

static rcv_status start_threads(rcvi_team *team) {
    int error = 0;
    for (int i = 1; i < team->threads && !error; i++) {
        error = rcvi_thread_start(&team->members[i].thread, run_member, &team->members[i]);
        if (!error) team->started++;
    }
    if (!error) return RCV_OK;
    return rcvi_fail(RCV_NO_MEMORY, "the system refused thread %d of %d (%s); ask for fewer threads", team->started + 2,
                     team->threads, strerror(error));
}

size_t rcvi_team_bytes(int threads) { return sizeof(rcvi_team) + (size_t)threads * sizeof(member) + LINE; }

rcv_status rcvi_team_new(rcv_context *context, int threads, rcvi_team **team) {
    *team = NULL;
    if (threads < 1 || threads > RCVI_MAX_THREADS)
        return rcvi_fail(RCV_INVALID, "threads must be 1 to %d, not %d", RCVI_MAX_THREADS, threads);
    char *memory = rcvi_new(context, rcvi_team_bytes(threads), 1);
    if (!memory) return rcvi_no_memory(rcvi_team_bytes(threads));
    rcvi_team *made = (void *)(memory + (LINE - (uintptr_t)memory % LINE) % LINE);
    made->context = context;
    made->memory = memory;
    made->threads = threads;
    bool oversubscribed = made->oversubscribed = threads > sysconf(_SC_NPROCESSORS_ONLN);
    made->barrier_spin = oversubscribed ? OVERSUBSCRIBED_SPIN : BARRIER_SPIN;
    made->call_spin = oversubscribed ? OVERSUBSCRIBED_SPIN : CALL_SPIN;
    for (int i = 0; i < threads; i++) {
        made->members[i].team = made;
        made->members[i].index = i;
    }
    int error = pthread_mutex_init(&made->mutex, NULL);
    if (!error && (error = pthread_cond_init(&made->wake, NULL)) != 0) pthread_mutex_destroy(&made->mutex);
    if (error) {
        rcvi_free(context, memory);
        return rcvi_fail(RCV_NO_MEMORY, "the system refused a lock for %d threads (%s)", threads, strerror(error));
    }
    made->process = rcvi_fork_generation();
    rcv_status status = start_threads(made);
    if (status) {
        rcvi_team_free(made);
        return status;
    }
    *team = made;
    return RCV_OK;
}

static void stop_threads(rcvi_team *team) {
    if (team->started > 0) publish_call(team, NULL, NULL);
    for (int i = 1; i <= team->started; i++) pthread_join(team->members[i].thread, NULL);
    team->started = 0;
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->mutex);
}

/* In a child of fork() there are no threads to join, and the condition variable still counts waiters that do not exist. */
void rcvi_team_free(rcvi_team *team) {
    if (!team) return;
    if (team->process == rcvi_fork_generation()) stop_threads(team);
    rcvi_free(team->context, team->memory);
}

/* Starts the team's threads again in a child of fork(). On failure the team is unchanged, and the next call tries again. */
static rcv_status restart_threads(rcvi_team *team) {
    team->started = 0;
    atomic_store(&team->called.value, 0);
    atomic_store(&team->sleepers.value, 0);
    for (int i = 0; i < team->threads; i++) {
        member *m = &team->members[i];
        m->barriers = 0;
        atomic_store(&m->done.value, 0);
        for (int round = 0; round < ROUNDS; round++) atomic_store(&m->rounds[round].value, 0);
    }
    int error = pthread_mutex_init(&team->mutex, NULL);
    if (!error) error = pthread_cond_init(&team->wake, NULL);
    if (error) return rcvi_fail(RCV_NO_MEMORY, "the system refused a lock for threads (%s)", strerror(error));
    rcv_status status = start_threads(team);
    if (status)
        stop_threads(team);
    else
        team->process = rcvi_fork_generation();
    return status;
}

int rcvi_team_threads(const rcvi_team *team) { return team->threads; }

rcv_status rcvi_team_call(rcvi_team *team, void (*work)(void *user, int member), void *user) {
    if (team->threads == 1) {
        work(user, 0);
        return RCV_OK;
    }
    if (team->process != rcvi_fork_generation()) RCVI_TRY(restart_threads(team));
    fegetenv(&team->environment);
    team->core = current_core();
    unsigned count = publish_call(team, work, user);
    work(user, 0);
    for (int i = 1; i < team->threads; i++) rcvi_team_wait_for(team, &team->members[i].done.value, count);
    return RCV_OK;
}

void rcvi_team_barrier(rcvi_team *team, int index) {
    member *self = &team->members[index];
    unsigned count = ++self->barriers;
    for (int round = 0, distance = 1; distance < team->threads; round++, distance *= 2) {
        int other = index + distance < team->threads ? index + distance : index + distance - team->threads;
        atomic_store_explicit(&team->members[other].rounds[round].value, count, memory_order_release);
        rcvi_team_wait_for(team, &self->rounds[round].value, count);
    }
}
