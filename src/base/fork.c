/* Detection of fork(), after which a child has none of the parent's threads, and the global lock, which is consistent across fork(). */
#include "base/base.h"

#include <stdatomic.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint forks;  /* from the process that first called rcvi_fork_generation() to this one */
static bool is_registered; /* the fork handlers are registered */
static pthread_mutex_t global_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_before_fork(void) { pthread_mutex_lock(&global_lock); }
static void unlock_in_parent(void) { pthread_mutex_unlock(&global_lock); }

static void count_in_child(void) {
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
    pthread_mutex_unlock(&global_lock);
}

static void register_handlers(void) {
    is_registered = pthread_atfork(lock_before_fork, unlock_in_parent, count_in_child) == 0;
}

unsigned rcvi_fork_generation(void) {
    pthread_once(&once, register_handlers);
    return is_registered ? atomic_load_explicit(&forks, memory_order_relaxed) : (unsigned)getpid();
}

bool rcvi_is_forked(void) { return rcvi_fork_generation() != 0 && is_registered; }

void rcvi_global_lock(void) {
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&global_lock);
}

void rcvi_global_unlock(void) { pthread_mutex_unlock(&global_lock); }
