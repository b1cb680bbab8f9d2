/* Which process this is, for what a child of fork() does not have: threads. */
#include "base/base.h"

#include <stdatomic.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint forks; /* between the process that asked first and this one */
static bool is_counted;   /* by the handler below */
static pthread_mutex_t brief = PTHREAD_MUTEX_INITIALIZER;

static void stop_others(void) { pthread_mutex_lock(&brief); }
static void let_others_go_on(void) { pthread_mutex_unlock(&brief); }

static void count_fork(void) {
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
    pthread_mutex_unlock(&brief);
}

static void watch_forks(void) { is_counted = pthread_atfork(stop_others, let_others_go_on, count_fork) == 0; }

unsigned rcvi_process(void) {
    pthread_once(&once, watch_forks);
    return is_counted ? atomic_load_explicit(&forks, memory_order_relaxed) : (unsigned)getpid();
}

bool rcvi_is_forked(void) { return rcvi_process() != 0 && is_counted; }

void rcvi_lock_briefly(void) {
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&brief);
}

void rcvi_unlock_briefly(void) { pthread_mutex_unlock(&brief); }
