/* A call is announced by one word that all members watch; the end of a member's part by a word of its own. The barrier
 * is by dissemination: in round r member i tells member i + 2^r, and nobody writes a word that another one writes. All
 * words count up, and are compared by their difference, so that they may wrap.
 *
 * Whoever waits spins first, then offers its core to others, then sleeps: in a barrier a little at a time, between
 * calls until it is woken. A member that goes to sleep counts itself as a sleeper before it looks for a new call, and
 * the caller announces the call before it looks for sleepers; both are sequentially consistent, so one sees the other.
 *
 * A sleeper is often woken on the core of the one who wakes it. Two members that spin for each other on one core take
 * milliseconds for what takes microseconds, and the operating system is slow to part them: so a member that finds itself
 * on the caller's core moves away. It stays free to be moved again. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getcpu, sched_setaffinity */
#endif
#include "device/cpu/engine/team.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE = 128,              /* bytes that two cores should not share */
    ROUNDS = 10,             /* of a barrier of RCVI_MAX_THREADS */
    BARRIER_SPIN = 30000,    /* nanoseconds of spinning before the core is offered to others */
    CALL_SPIN = 100000,      /* the same between calls, before a member sleeps */
    CROWDED_SPIN = 500,      /* either one where there are more threads than cores */
    BARRIER_YIELD = 1000000, /* nanoseconds of waiting before sleeping a little at a time */
    BARRIER_NAP = 50000
};

typedef struct {
    alignas(LINE) atomic_uint value;
} word;

typedef struct {
    alignas(LINE) pthread_t thread;
    rcvi_team *team;
    int index;
    unsigned barriers;   /* passed so far; the member's own */
    word done;           /* calls finished */
    word rounds[ROUNDS]; /* of a barrier: how far the member before has come */
} member;

struct rcvi_team {
    word called;   /* calls announced */
    word sleepers; /* members asleep or about to be */
    alignas(LINE) rcv_context *context;
    void *memory; /* as allocated, before alignment */
    int threads;
    int started;  /* members with a thread of their own */
    bool crowded; /* more threads than cores */
    int core;     /* the caller's, when it announced the call; -1: not known */
    int64_t barrier_spin, call_spin;
    void (*work)(void *user, int member); /* of the call announced; NULL: end */
    void *user;
    fenv_t environment; /* the caller's */
    unsigned process;   /* whose threads they are */
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

static inline bool reached(const atomic_uint *word, unsigned count) {
    return (int)(atomic_load_explicit(word, memory_order_acquire) - count) >= 0;
}

/* Spins for about `limit` nanoseconds. */
static bool spin(const atomic_uint *word, unsigned count, int64_t limit) {
    for (int i = 0; i < 64; i++) {
        if (reached(word, count)) return true;
        relax();
    }
    for (int64_t begin = now(); now() - begin < limit;) {
        for (int i = 0; i < 32; i++) {
            if (reached(word, count)) return true;
            relax();
        }
    }
    return reached(word, count);
}

void rcvi_team_await(const rcvi_team *team, const atomic_uint *word, unsigned count) {
    if (spin(word, count, team->barrier_spin)) return;
    for (int64_t begin = now(); !reached(word, count);) {
        if (now() - begin < BARRIER_YIELD) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = BARRIER_NAP}, NULL);
        }
    }
}

static void await_call(rcvi_team *team, unsigned count) {
    if (spin(&team->called.value, count, team->call_spin)) return;
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add(&team->sleepers.value, 1);
    while ((int)(atomic_load(&team->called.value) - count) < 0) pthread_cond_wait(&team->wake, &team->mutex);
    atomic_fetch_sub(&team->sleepers.value, 1);
    pthread_mutex_unlock(&team->mutex);
}

#if defined(__linux__)
static int core_now(void) { return sched_getcpu(); }

static void leave_core(int core) {
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof all, &all)) return;
    others = all;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others)) return;
    sched_setaffinity(0, sizeof all, &all);
}
#else
static int core_now(void) { return -1; }
static void leave_core(int core) { (void)core; }
#endif

static void make_room(const rcvi_team *team) {
    if (!team->crowded && team->core >= 0 && core_now() == team->core) leave_core(team->core);
}

static void *live(void *argument) {
    member *self = argument;
    rcvi_team *team = self->team;
    for (unsigned count = 1;; count++) {
        await_call(team, count);
        if (!team->work) return NULL;
        make_room(team);
        fesetenv(&team->environment);
        team->work(team->user, self->index);
        atomic_store_explicit(&self->done.value, count, memory_order_release);
    }
}

static unsigned announce(rcvi_team *team, void (*work)(void *, int), void *user) {
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

/* Starts the threads, with all signals blocked: they are the program's business, not theirs. */
static rcv_status start(rcvi_team *team) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    for (int i = 1; i < team->threads && !error; i++) {
        error = pthread_create(&team->members[i].thread, NULL, live, &team->members[i]);
        if (!error) team->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    bool crowded = made->crowded = threads > sysconf(_SC_NPROCESSORS_ONLN);
    made->barrier_spin = crowded ? CROWDED_SPIN : BARRIER_SPIN;
    made->call_spin = crowded ? CROWDED_SPIN : CALL_SPIN;
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
    rcv_status status = start(made);
    if (status) {
        rcvi_team_free(made);
        return status;
    }
    *team = made;
    return RCV_OK;
}

static void stop(rcvi_team *team) {
    if (team->started > 0) announce(team, NULL, NULL);
    for (int i = 1; i <= team->started; i++) pthread_join(team->members[i].thread, NULL);
    team->started = 0;
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->mutex);
}

/* In a child of fork() there are no threads to be joined, and who slept on the condition will not come for it. */
void rcvi_team_free(rcvi_team *team) {
    if (!team) return;
    if (team->process == rcvi_fork_generation()) stop(team);
    rcvi_free(team->context, team->memory);
}

/* Starts the team's threads anew in a child of fork(). Where that fails the team stays as it was, to be tried again. */
static rcv_status revive(rcvi_team *team) {
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
    rcv_status status = start(team);
    if (status)
        stop(team);
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
    if (team->process != rcvi_fork_generation()) RCVI_TRY(revive(team));
    fegetenv(&team->environment);
    team->core = core_now();
    unsigned count = announce(team, work, user);
    work(user, 0);
    for (int i = 1; i < team->threads; i++) rcvi_team_await(team, &team->members[i].done.value, count);
    return RCV_OK;
}

void rcvi_team_barrier(rcvi_team *team, int index) {
    member *self = &team->members[index];
    unsigned count = ++self->barriers;
    for (int round = 0, far = 1; far < team->threads; round++, far *= 2) {
        int other = index + far < team->threads ? index + far : index + far - team->threads;
        atomic_store_explicit(&team->members[other].rounds[round].value, count, memory_order_release);
        rcvi_team_await(team, &self->rounds[round].value, count);
    }
}
