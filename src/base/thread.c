/* Starting threads of the library. */
#include "base/base.h"

#include <signal.h>

int rcvi_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
